/* insitu bench: how many chunks in flight a store wants. The loader with max_inflight 1, 2, 4 and
 * so on, until more does not help, in turns with the limit: of a remote store a bare libcurl loop
 * that gets the same objects over as many connections into reused buffers; of others the bare loop
 * of bench.h. */
enum {
  SWEEP_MOST = 256,
  SWEEP_STEPS = 9,
  SWEEP_ROUNDS = 3,
  SWEEP_STALE = 2 /* steps without a gain that end it */
};
#define SWEEP_GAIN 1.05   /* less than that is none: of the knee, too */
#define SWEEP_SECONDS 1.0 /* of a round, or what --seconds says where that is less */

struct sweep_step { /* medians of the rounds */
  uint64_t inflight;
  /* per second; fetched bytes of either; the loader's over the raw ones */
  double requests, bytes, raw, share;
  double p50, p95;                   /* seconds to the first byte; 0: not known */
  uint64_t retries, throttled, peak; /* peak: chunks in flight at most */
};
struct sweep {
  struct sweep_step step[SWEEP_STEPS];
  unsigned n, knee, best; /* indices of step */
  insitu_error err;       /* why it ended early */
};

/* ---- the limit of a remote store ---- */

#ifndef INSITU_NO_CURL
struct sweep_slot { /* one request of the raw loop */
  CURL *easy;
  struct curl_slist *headers;
  unsigned char *to;
  uint64_t got, cap;
};
struct sweep_raw {
  struct bench *b;
  struct tool_archive archive; /* its own store: it signs requests */
  CURLM *multi;
  struct sweep_slot slot[SWEEP_MOST];
  uint64_t n_slots, next, busy, bytes;
  insitu_error err;
};
struct sweep_prepare {
  struct sweep_raw *raw;
  struct insitu__cloud_ask ask;
  struct insitu__http_request request;
  insitu_status status;
};
static void sweep_prepare_await(void *arg) {
  struct sweep_prepare *p = (struct sweep_prepare *)arg;
  p->status = insitu__cloud_prepare_await(
      &insitu__remote_of(insitu__store_base(&p->raw->archive.store))->cloud, &p->ask, &p->request,
      &p->raw->err);
}
static size_t sweep_write(char *bytes, size_t size, size_t n, void *user) {
  struct sweep_slot *s = (struct sweep_slot *)user;
  n *= size;
  if (n > s->cap - s->got) return 0;
  memcpy(s->to + s->got, bytes, n);
  s->got += n;
  return n;
}
/* The next chunk of the list into this slot; false: there is none, or an error. */
static bool sweep_begin(struct sweep_raw *raw, struct sweep_slot *s) {
  struct bench *b = raw->b;
  const struct insitu__http_desc *d =
      &insitu__remote_of(insitu__store_base(&raw->archive.store))->http->desc;
  struct sweep_prepare p = {.raw = raw, .ask = {.what = INSITU__CLOUD_READ}};
  char key[INSITU__MAX_KEY], range[64];
  uint64_t index[INSITU__MAX_DIMS];
  const struct bench_tile *t = NULL;
  for (uint64_t i = 0; i < b->n_tiles && (!t || !t->bytes); i++)
    t = &b->tile[raw->next++ % b->n_tiles];
  if (!t || !t->bytes) return false; /* all absent */
  bench_key(b, t, index, key);
  p.ask.key = key;
  if (t->bytes != UINT64_MAX) {
    snprintf(
        range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, t->offset, t->offset + t->bytes - 1);
    p.ask.range = range;
  }
  if (insitu__reactor_call(&raw->archive.reactor, sweep_prepare_await, &p) < 0) tool_no_memory();
  curl_slist_free_all(s->headers);
  s->headers = NULL;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(p.request.headers); i++)
    s->headers = curl_slist_append(s->headers, p.request.headers[i]);
  curl_write_callback on_body = sweep_write;
  uint64_t k = (uint64_t)(s - raw->slot);
  s->to = b->ring + (k + raw->next * raw->n_slots) % b->slots * b->slot_bytes;
  s->cap = b->slot_bytes;
  s->got = 0;
  curl_easy_setopt(s->easy, CURLOPT_URL, p.request.url);
  curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
  curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
  curl_easy_setopt(s->easy, CURLOPT_PRIVATE, s);
  curl_easy_setopt(s->easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(s->easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(s->easy, CURLOPT_BUFFERSIZE, INSITU__HTTP_BUFFER);
  curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION,
      d->version == 2 ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
  if (d->proxy || d->isolated) curl_easy_setopt(s->easy, CURLOPT_PROXY, d->proxy ? d->proxy : "");
  if (d->no_proxy) curl_easy_setopt(s->easy, CURLOPT_NOPROXY, d->no_proxy);
  if (d->ca) curl_easy_setopt(s->easy, CURLOPT_CAINFO, d->ca);
  if (d->insecure) curl_easy_setopt(s->easy, CURLOPT_SSL_VERIFYPEER, 0L);
  if (d->insecure) curl_easy_setopt(s->easy, CURLOPT_SSL_VERIFYHOST, 0L);
  bool ok = p.status == INSITU_OK && curl_multi_add_handle(raw->multi, s->easy) == CURLM_OK;
  insitu__http_request_free(&p.request);
  raw->busy += ok;
  return ok;
}
/* Fetched bytes per second, from the first request to the last answer. Those that fail count as
 * nothing. */
static double sweep_raw_round(struct sweep_raw *raw, double length) {
  double begin = bench_now();
  uint64_t before = raw->bytes;
  for (uint64_t i = 0; i < raw->n_slots; i++)
    if (!sweep_begin(raw, &raw->slot[i])) break;
  while (raw->busy) {
    int running, left;
    curl_multi_perform(raw->multi, &running);
    for (CURLMsg *m; (m = curl_multi_info_read(raw->multi, &left));) {
      char *user = NULL;
      long status = 0;
      CURL *easy = m->easy_handle;
      CURLcode result = m->data.result;
      curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
      curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
      struct sweep_slot *s = (struct sweep_slot *)(void *)user;
      curl_multi_remove_handle(raw->multi, easy);
      raw->busy--;
      if (result == CURLE_OK && status / 100 == 2) raw->bytes += s->got;
      if (bench_now() < begin + length) sweep_begin(raw, s);
    }
    if (raw->busy) curl_multi_poll(raw->multi, NULL, 0, 1000, NULL);
  }
  return (double)(raw->bytes - before) / (bench_now() - begin);
}
static bool sweep_raw_open(
    struct sweep_raw *raw, struct bench *b, uint64_t connections, insitu_error *err) {
  memset(raw, 0, sizeof *raw);
  raw->b = b;
  raw->n_slots = insitu__base_min(connections, b->slots);
  if (tool_archive_store(&b->config.desc, 0, &raw->archive, err) < 0) return false;
  raw->multi = curl_multi_init();
  bool ok = raw->multi != NULL;
  for (uint64_t i = 0; i < raw->n_slots; i++)
    ok = (raw->slot[i].easy = curl_easy_init()) != NULL && ok;
  if (!ok) tool_no_memory();
  curl_multi_setopt(raw->multi, CURLMOPT_MAXCONNECTS, (long)(2 * raw->n_slots));
  return true;
}
static void sweep_raw_close(struct sweep_raw *raw) {
  for (uint64_t i = 0; i < raw->n_slots; i++) {
    curl_easy_cleanup(raw->slot[i].easy);
    curl_slist_free_all(raw->slot[i].headers);
  }
  curl_multi_cleanup(raw->multi);
  tool_archive_close(&raw->archive);
}
struct sweep_late { /* looked at on the reactor */
  const struct insitu__http *http;
  int64_t ns[INSITU__HTTP_LATENCIES];
  unsigned n;
};
static void sweep_late(void *arg) {
  struct sweep_late *l = (struct sweep_late *)arg;
  l->n = (unsigned)insitu__base_min(l->http->n_latency, INSITU__HTTP_LATENCIES);
  memcpy(l->ns, l->http->latency, l->n * sizeof *l->ns);
}
static void sweep_latencies(struct bench *b, struct sweep_step *s) { /* of the latest requests */
  struct sweep_late l = {.http = insitu__remote_of(insitu__store_base(&b->ld->source.store))->http};
  double sorted[INSITU__HTTP_LATENCIES];
  if (insitu__reactor_call(&b->ld->reactor, sweep_late, &l) < 0) tool_no_memory();
  for (unsigned i = 0; i < l.n; i++) sorted[i] = 1e-9 * (double)l.ns[i];
  qsort(sorted, l.n, sizeof *sorted, bench_compare);
  s->p50 = bench_quantile(sorted, l.n, 0.5);
  s->p95 = bench_quantile(sorted, l.n, 0.95);
}
#endif

/* ---- steps ---- */

/* A loader with so many chunks in flight, whose ring of batches has room for twice as many. */
static bool sweep_open(struct bench *b, uint64_t inflight, insitu_error *err) {
  insitu_loader_desc d = b->config.desc;
  uint64_t depth =
      insitu__base_ceil_div(2 * inflight * b->slot_bytes, insitu__base_max(1, b->plan.slab_bytes)) +
      1;
  insitu_iter_close(&b->it);
  insitu_loader_close(&b->ld);
  d.max_inflight = inflight;
  d.cache_dir = NULL; /* what it has is not asked for */
  if (!d.prefetch_depth) d.prefetch_depth = insitu__base_max(depth, 4);
  return insitu_loader_open(&d, &b->ld, err) >= 0 &&
         insitu_iter_open(b->ld, &b->config.iter, &b->it, err) >= 0;
}
static bool sweep_step(struct bench *b, struct sweep_step *s, insitu_error *err) {
  double requests[SWEEP_ROUNDS], bytes[SWEEP_ROUNDS], raw[SWEEP_ROUNDS], share[SWEEP_ROUNDS], cpu;
  double length = fmin(SWEEP_SECONDS, b->seconds_asked);
  uint64_t rounds = insitu__base_min(SWEEP_ROUNDS, b->rounds);
  bool far, ok = sweep_open(b, s->inflight, err);
  if (!ok) return false;
  far = insitu__store_is_remote(&b->ld->source.store);
#ifndef INSITU_NO_CURL
  static struct sweep_raw limit;
  if (far && !sweep_raw_open(&limit, b, s->inflight, err)) return false;
#endif
  bench_wait_idle(b);
  for (uint64_t i = 0; i < rounds && ok; i++) {
    insitu_stats before, after;
    insitu_loader_stats(b->ld, &before, NULL);
    double begin = bench_now();
    bench_loader_round(b, length, &cpu, err);
    double seconds = bench_now() - begin;
    insitu_loader_stats(b->ld, &after, NULL);
    requests[i] = (double)(far ? after.http_requests - before.http_requests
                               : after.requests - before.requests) /
                  seconds;
    bytes[i] = (double)(far ? after.bytes_fetched - before.bytes_fetched
                            : after.bytes_decoded - before.bytes_decoded) /
               seconds;
    s->retries += after.retries - before.retries;
    s->throttled += after.throttled - before.throttled;
    s->peak = after.inflight_peak;
#ifndef INSITU_NO_CURL
    if (far) sweep_latencies(b, s);
    if (far) raw[i] = sweep_raw_round(&limit, length);
    else
#endif
      raw[i] = bench_bare_round(b, bench_workers, length, &cpu);
    share[i] = raw[i] > 0 ? bytes[i] / raw[i] : 0;
    ok = !err->status && !atomic_load(&b->failed);
  }
#ifndef INSITU_NO_CURL
  if (far) sweep_raw_close(&limit);
#endif
  double *series[] = {requests, bytes, raw, share},
         *to[] = {&s->requests, &s->bytes, &s->raw, &s->share};
  for (size_t i = 0; ok && i < TOOL_COUNT(series); i++) {
    qsort(series[i], (size_t)rounds, sizeof(double), bench_compare);
    *to[i] = series[i][rounds / 2];
  }
  return ok;
}
static void sweep_print_step(const struct sweep_step *s) {
  char late[2][16] = {"-", "-"};
  if (s->p95 > 0) {
    snprintf(late[0], sizeof late[0], "%.1f", 1e3 * s->p50);
    snprintf(late[1], sizeof late[1], "%.1f", 1e3 * s->p95);
  }
  printf("  %12" PRIu64 "  %10.0f  %8.1f  %8.1f  %6.3f  %8s  %8s  %7" PRIu64 "  %9" PRIu64 "\n",
      s->inflight, s->requests, 1e-6 * s->bytes, 1e-6 * s->raw, s->share, late[0], late[1],
      s->retries, s->throttled);
  fflush(stdout);
}
/* Step after step; each is printed when it is done, unless the result is JSON. An exit code. */
static int sweep_run(struct bench *b, struct sweep *sweep) {
  unsigned stale = 0;
  double best = 0;
  if (!tool_json)
    printf("\n%smax_inflight%s, %" PRIu64 " rounds of loader and raw loop in turns at each\n"
           "  %12s  %10s  %8s  %8s  %6s  %8s  %8s  %7s  %9s\n",
        tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN), insitu__base_min(SWEEP_ROUNDS, b->rounds),
        "in flight", "requests/s", "MB/s", "raw MB/s", "share", "p50 ms", "p95 ms", "retries",
        "throttled");
  for (uint64_t inflight = 1; inflight <= SWEEP_MOST && stale < SWEEP_STALE; inflight *= 2) {
    struct sweep_step *s = &sweep->step[sweep->n];
    s->inflight = inflight;
    if (!sweep_step(b, s, &sweep->err)) break;
    if (!tool_json) sweep_print_step(s);
    stale = s->bytes > SWEEP_GAIN * best ? 0 : stale + 1;
    if (s->bytes > best) {
      best = s->bytes;
      sweep->best = sweep->n;
    }
    sweep->n++;
  }
  if (atomic_load(&b->failed)) sweep->err = b->bare_err;
  if (!sweep->n) return tool_fail_error(&sweep->err);
  while (sweep->step[sweep->knee].bytes * SWEEP_GAIN < best) sweep->knee++;
  return TOOL_OK;
}
static void sweep_print(const struct sweep *sweep) {
  const struct sweep_step *knee = &sweep->step[sweep->knee];
  printf("\nknee: max_inflight %" PRIu64 ", %.1f MB/s, %s%.3f%s of the raw loop\n", knee->inflight,
      1e-6 * knee->bytes, tool_style(knee->share >= 0.9 ? TOOL_GREEN : TOOL_YELLOW), knee->share,
      tool_style(TOOL_PLAIN));
  if (sweep->knee + 1 == sweep->n && !sweep->err.status)
    printf("More may help still: it was the last one that was tried.\n");
  const struct sweep_step *last = &sweep->step[sweep->n - 1];
  if (last->peak < last->inflight)
    printf("Only %" PRIu64 " chunks were in flight at most: two epochs have no more, or "
           "prefetch_depth and block_chunks are small.\n",
        last->peak);
  if (sweep->err.status) printf("It ended early: %s\n", sweep->err.message);
}
static void sweep_json(const struct sweep *sweep, struct tool_json_out *j) {
  tool_json_array(j, "sweep");
  for (unsigned i = 0; i < sweep->n; i++) {
    const struct sweep_step *s = &sweep->step[i];
    tool_json_object(j, NULL);
    tool_json_u64(j, "max_inflight", s->inflight);
    tool_json_double(j, "requests_per_s", s->requests);
    tool_json_double(j, "bytes_per_s", s->bytes);
    tool_json_double(j, "raw_bytes_per_s", s->raw);
    tool_json_double(j, "share", s->share);
    if (s->p95 > 0) tool_json_double(j, "first_byte_p50_s", s->p50);
    if (s->p95 > 0) tool_json_double(j, "first_byte_p95_s", s->p95);
    tool_json_u64(j, "retries", s->retries);
    tool_json_u64(j, "throttled", s->throttled);
    tool_json_end(j);
  }
  tool_json_end(j);
  tool_json_u64(j, "knee", sweep->step[sweep->knee].inflight);
}
