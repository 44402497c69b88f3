/* insitu bench: runs the loader as a training job would, then measures it against the bare loop on the same files: every core reads
 * and decodes the next chunk into buffers as large as the ring of batches. */
#include <sys/resource.h>

enum { BENCH_MAX_TILES = 1 << 18, BENCH_MAX_ROUNDS = 1001, BENCH_MAX_CALLS = 1 << 20, BENCH_MAX_CORES = 256 };
static const char *bench_seconds, *bench_epochs, *bench_compute, *bench_busy, *bench_rounds;

struct bench_tile {
  uint64_t chunk, field;
  uint32_t array;
  uint64_t offset, bytes; /* of an inner chunk of a shard, 0 bytes if it is absent; else UINT64_MAX */
};
struct bench_replay { /* the job: what its user sees */
  double seconds, stall, first, cpu;
  uint64_t batches, rows, bytes, epochs, n_calls;
  double *call; /* seconds inside next, each */
  insitu_stats stats;
  uint64_t peak_rss;
};
struct bench {
  struct config config;
  insitu_loader *ld;
  insitu_iter *it;
  insitu_plan plan;
  double seconds_asked, compute;
  uint64_t epochs_asked, rounds;
  struct bench_replay replay;
  /* the bare loop */
  struct bench_tile *tile;
  uint64_t n_tiles, slots, slot_bytes;
  unsigned char *ring;
  unsigned n_workers;
  atomic_uint_least64_t next, decoded;
  atomic_bool failed;
  double deadline;
  insitu_error bare_err;
  /* of the rounds */
  double share[BENCH_MAX_ROUNDS], bare[BENCH_MAX_ROUNDS], loader[BENCH_MAX_ROUNDS]; /* the last two: decoded bytes per second */
  double bare_cpu[BENCH_MAX_ROUNDS], loader_cpu[BENCH_MAX_ROUNDS];                  /* seconds per decoded byte */
  double capacity_cpu; /* cores that the loader kept busy in its rounds */
  double machine_busy; /* share of the machine's cores that were busy with anything, from the job's begin on */
  uint64_t n_rounds;
};
struct bench_worker {
  struct bench *b;
  pthread_t id;
  struct insitu__codec_scratch scratch;
  unsigned char *encoded;
  uint64_t encoded_bytes, slot, n_slots, turn; /* its part of the ring, from slot on, which it goes round */
};

static double bench_now(void) {
  return (double)insitu__base_now() * 1e-9;
}
static double bench_cpu(void) { /* seconds of all threads */
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}
/* Seconds that the machine's cores, all together, were busy since it started, with whatever; and all seconds. */
static void bench_machine(double *busy, double *all) {
  unsigned long long t[8] = {0};
  FILE *f = fopen("/proc/stat", "re");
  *busy = *all = 0;
  if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) == 8)
    for (int i = 0; i < 8; i++) *all += (double)t[i];
  if (f) fclose(f);
  *busy = *all - (double)(t[3] + t[4]); /* idle, and waiting for a disk */
}
static int bench_compare(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}
static double bench_quantile(const double *sorted, uint64_t n, double q) {
  return n ? sorted[insitu__base_min(n - 1, (uint64_t)(q * (double)n))] : 0;
}
static uint64_t bench_peak_rss(void) { /* bytes: VmHWM */
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (uint64_t)u.ru_maxrss * 1024;
}

/* ---- the job ---- */

static uint64_t bench_touch(const insitu_batch *b) { /* one byte of every cache line, as a copy to a device would */
  uint64_t sum = 0;
  for (uint64_t i = 0; i < b->n_arrays; i++) {
    const volatile unsigned char *p = (const volatile unsigned char *)b->arrays[i].data;
    for (uint64_t k = 0; k < b->arrays[i].bytes; k += 64) sum += p[k];
  }
  return sum;
}
static void bench_consume(const struct bench *b, const insitu_batch *batch) {
  double end = bench_now() + b->compute;
  bench_touch(batch);
  double left = end - bench_now();
  if (bench_busy)
    while (bench_now() < end) continue;
  else if (left > 0) nanosleep(&(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)}, NULL);
}
/* Batches until the time or the epochs are over. Times begin with the first batch. An exit code. */
static int bench_run_job(struct bench *b) {
  struct bench_replay *r = &b->replay;
  insitu_error err = {0};
  double opened = bench_now(), begin = 0, cpu = 0, asked;
  uint64_t seen = 0;
  r->call = (double *)tool_alloc(BENCH_MAX_CALLS, sizeof *r->call);
  tool_progress_begin(b->epochs_asked ? b->epochs_asked * b->plan.batches : (uint64_t)(1000 * b->seconds_asked),
      b->epochs_asked ? "batches" : "ms");
  for (;;) {
    insitu_batch *batch = NULL;
    asked = bench_now();
    insitu_status status = insitu_iter_next(b->it, INSITU_FOREVER, &batch, &err);
    double now = bench_now();
    if (status == INSITU_END && (++r->epochs == b->epochs_asked || !b->plan.rows)) break;
    if (status == INSITU_END) continue;
    if (status < 0) {
      tool_progress_end();
      return tool_fail_error(&err);
    }
    seen++;
    if (seen == 1) {
      r->first = now - opened;
      begin = now;
      cpu = bench_cpu();
    } else {
      r->stall += now - asked;
      r->call[r->n_calls++ % BENCH_MAX_CALLS] = now - asked;
      r->batches++;
      r->rows += batch->rows;
      for (uint64_t i = 0; i < batch->n_arrays; i++) r->bytes += batch->arrays[i].bytes;
    }
    bench_consume(b, batch);
    insitu_batch_release(&batch);
    tool_progress(b->epochs_asked ? seen : (uint64_t)(1000 * (bench_now() - begin)));
    if (!b->epochs_asked && bench_now() - begin >= b->seconds_asked) break;
  }
  tool_progress_end();
  r->seconds = bench_now() - begin;
  r->cpu = bench_cpu() - cpu;
  r->n_calls = insitu__base_min(r->n_calls, BENCH_MAX_CALLS);
  qsort(r->call, (size_t)r->n_calls, sizeof *r->call, bench_compare);
  r->peak_rss = bench_peak_rss();
  return insitu_loader_stats(b->ld, &r->stats, &err) < 0 ? tool_fail_error(&err) : TOOL_OK;
}

/* ---- the bare loop ---- */

/* The key and the place of a chunk in the array's grid. */
static void bench_key(const struct bench *b, const struct bench_tile *t, uint64_t *index, char *key) {
  const struct insitu__geometry_array *a = &b->ld->geometry.arrays[t->array];
  uint64_t object[INSITU__MAX_DIMS];
  insitu__geometry_field(a, NULL, t->field, index);
  index[a->axis] = t->chunk;
  insitu__zarr_object_of(&a->zarr, index, object);
  insitu__zarr_chunk_key(&a->zarr, object, key, INSITU__MAX_KEY);
}
/* Where the chunks lie in their shards, and those in a zip file: the bare loop knows it beforehand. */
static void bench_locate_await(void *arg) {
  struct bench *b = (struct bench *)arg;
  char key[INSITU__MAX_KEY];
  uint64_t index[INSITU__MAX_DIMS];
  for (uint64_t i = 0; i < b->n_tiles; i++) {
    struct bench_tile *t = &b->tile[i];
    const struct insitu__zarr_array *z = &b->ld->geometry.arrays[t->array].zarr;
    insitu_error err = {0};
    t->bytes = UINT64_MAX;
    bench_key(b, t, index, key);
    if (z->n_levels && insitu__cache_locate_await(&b->ld->cache, z, index, key, NULL, &t->offset, &t->bytes, &err) < 0)
      t->bytes = 0;
    struct insitu__store_member *m = b->ld->store.zip ? insitu__store_zip_find(&b->ld->store, key) : NULL;
    if (!b->ld->store.zip || !t->bytes) continue;
    if (!m) t->bytes = 0;
    else if (m->method != INSITU__STORE_STORED)
      insitu__error_set(&b->bare_err, INSITU_E_UNSUPPORTED,
          "'%.300s' is deflated in the zip file, which the bare loop does not read; pack it stored (zip -0)", key);
    else if (insitu__store_zip_start_await(&b->ld->store, m, &err) < 0) t->bytes = 0; /* the loader says why */
    else {
      t->offset += m->start;
      t->bytes = insitu__base_min(t->bytes, m->stored);
    }
  }
}

/* The chunks of an epoch in the order in which the loader reads them, re-reads included. */
static void bench_list_tiles(struct bench *b) {
  struct insitu__plan_scan scan;
  const struct insitu__plan *p = &b->it->plan;
  struct insitu__order order;
  b->tile = (struct bench_tile *)tool_alloc(BENCH_MAX_TILES, sizeof *b->tile);
  if (insitu__plan_order(p, 0, &order, NULL) < 0) tool_no_memory();
  if (insitu__plan_scan_init(&scan, p, &order, NULL) < 0) tool_no_memory();
  while (scan.batch < order.batches && b->n_tiles < BENCH_MAX_TILES)
    if (insitu__plan_scan_step(&scan) == INSITU__PLAN_TILE)
      b->tile[b->n_tiles++] = (struct bench_tile){.chunk = scan.chunk, .field = scan.field, .array = (uint32_t)scan.array};
  insitu__plan_scan_free(&scan);
  insitu__order_free(&order);
  if (insitu__reactor_call(&b->ld->reactor, bench_locate_await, b) != INSITU_OK) tool_no_memory();
}
/* Reads and decodes one chunk to `to`; the decoded bytes, 0 where it is absent. */
static uint64_t bench_read(struct bench_worker *w, const struct bench_tile *t, unsigned char *to, insitu_error *err) {
  const struct insitu__geometry_array *a = &w->b->ld->geometry.arrays[t->array];
  uint64_t index[INSITU__MAX_DIMS], n = 0, cap = a->zarr.codecs.n ? w->encoded_bytes : a->chunk_bytes;
  unsigned char *into = a->zarr.codecs.n ? w->encoded : to;
  struct insitu__codec_sink sink = insitu__codec_memory(to);
  char key[INSITU__MAX_KEY];
  if (!t->bytes) return 0;
  cap = insitu__base_min(cap, t->bytes);
  bench_key(w->b, t, index, key);
  const struct insitu__store *s = &w->b->ld->store;
  int fd = openat(s->zip ? s->zip->base.dirfd : s->dirfd, s->zip ? s->zip->name : key, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return 0;
  ssize_t got = 0;
  while (fd >= 0 && n < cap && (got = pread(fd, into + n, (size_t)(cap - n), (off_t)(t->offset + n))) > 0) n += (uint64_t)got;
  if (fd < 0 || got < 0) insitu__error_set(err, INSITU_E_IO, "%s: %s", key, strerror(errno));
  if (fd >= 0) close(fd);
  if (!err->status && a->zarr.codecs.n)
    insitu__codec_decode(&a->zarr.codecs, &w->scratch, w->encoded, n, a->chunk_bytes, &sink, err);
  return err->status ? 0 : a->chunk_bytes;
}
static void *bench_bare_main(void *arg) {
  struct bench_worker *w = (struct bench_worker *)arg;
  struct bench *b = w->b;
  insitu_error err = {0};
  while (bench_now() < b->deadline && !atomic_load(&b->failed)) {
    uint64_t i = atomic_fetch_add(&b->next, 1);
    unsigned char *to = b->ring + (w->slot + w->turn++ % w->n_slots) * b->slot_bytes;
    uint64_t n = bench_read(w, &b->tile[i % b->n_tiles], to, &err);
    if (err.status) {
      if (!atomic_exchange(&b->failed, true)) b->bare_err = err;
      break;
    }
    atomic_fetch_add(&b->decoded, n);
  }
  return NULL;
}
/* Decoded bytes per second; *cpu: seconds for each. */
static double bench_bare_round(struct bench *b, struct bench_worker *workers, double length, double *cpu) {
  double begin = bench_now(), cpu_begin = bench_cpu();
  uint64_t before = atomic_load(&b->decoded);
  b->deadline = begin + length;
  unsigned started = 0;
  while (started < b->n_workers && pthread_create(&workers[started].id, NULL, bench_bare_main, &workers[started]) == 0) started++;
  if (!started) tool_no_memory();
  for (unsigned i = 0; i < started; i++) pthread_join(workers[i].id, NULL);
  double bytes = (double)(atomic_load(&b->decoded) - before);
  *cpu = bytes > 0 ? (bench_cpu() - cpu_begin) / bytes : 0;
  return bytes / (bench_now() - begin);
}

/* ---- the rounds ---- */

static uint64_t bench_decoded(const struct bench *b) {
  insitu_stats s;
  return insitu_loader_stats(b->ld, &s, NULL) < 0 ? 0 : s.bytes_decoded;
}
struct bench_look {
  const insitu_loader *ld;
  uint64_t inflight;
};
static void bench_look(void *arg) { /* on the reactor */
  struct bench_look *l = (struct bench_look *)arg;
  l->inflight = l->ld->inflight;
}
/* Until the ring is full and no chunk is in flight. With inline_io nothing moves outside of next. */
static void bench_wait_idle(struct bench *b) {
  struct bench_look look = {b->ld, 0};
  for (int zeros = 0; zeros < 2 && !insitu_loader_config(b->ld)->inline_io; zeros = look.inflight ? 0 : zeros + 1) {
    poll(NULL, 0, 1);
    if (insitu__reactor_call(&b->ld->reactor, bench_look, &look) != INSITU_OK) tool_no_memory();
  }
}
/* Takes batches as fast as they come. Begins and ends with a full ring, so that this time was spent on these bytes. */
static double bench_loader_round(struct bench *b, double length, double *cpu, insitu_error *err) {
  double begin = bench_now(), cpu_begin = bench_cpu();
  uint64_t before = bench_decoded(b);
  while (bench_now() < begin + length) {
    insitu_batch *batch = NULL;
    if (insitu_iter_next(b->it, 10, &batch, err) < 0) return 0;
    insitu_batch_release(&batch);
  }
  bench_wait_idle(b);
  double seconds = bench_now() - begin, used = bench_cpu() - cpu_begin, bytes = (double)(bench_decoded(b) - before);
  *cpu = bytes > 0 ? used / bytes : 0;
  b->capacity_cpu += used / seconds;
  return bytes / seconds;
}
static int bench_run_rounds(struct bench *b) {
  static struct bench_worker workers[BENCH_MAX_CORES];
  insitu_error err = {0};
  uint64_t encoded = 1;
  bench_list_tiles(b);
  if (b->bare_err.status) return tool_fail_error(&b->bare_err);
  for (uint64_t i = 0; i < b->ld->geometry.n_arrays; i++) {
    b->slot_bytes = insitu__base_max(b->slot_bytes, b->ld->geometry.arrays[i].chunk_bytes);
    encoded = insitu__base_max(encoded, b->ld->geometry.arrays[i].bound + 1);
  }
  b->n_workers = (unsigned)insitu__base_min(insitu__mem_cores(), BENCH_MAX_CORES);
  b->slots = insitu__base_max(b->n_workers, b->plan.slabs * b->plan.slab_bytes / b->slot_bytes);
  b->ring = (unsigned char *)insitu__mem_map(b->slots * b->slot_bytes);
  bool ok = b->ring != NULL;
  for (unsigned i = 0; i < b->n_workers; i++) {
    uint64_t share = b->slots / b->n_workers;
    workers[i] = (struct bench_worker){.b = b,
        .slot = i * share,
        .n_slots = share,
        .encoded_bytes = encoded,
        .encoded = (unsigned char *)insitu__mem_map(encoded)};
    insitu__codec_scratch_init(&workers[i].scratch);
    ok = ok && workers[i].encoded;
  }
  if (!ok) tool_no_memory();
  bench_wait_idle(b);
  memset(b->ring, 1, (size_t)(b->slots * b->slot_bytes)); /* so are a loader's batches touched by now */
  double rate = bench_bare_round(b, workers, 0.2, &b->bare_cpu[0]);
  double length = rate > 0 ? 20 * (double)b->slot_bytes / rate : 2; /* some chunks at least */
  length = length < 0.25 ? 0.25 : length > 2 ? 2 : length;
  tool_progress_begin(b->rounds, "rounds");
  for (uint64_t i = 0; i < b->rounds && !err.status && !atomic_load(&b->failed); i++) {
    b->bare[i] = bench_bare_round(b, workers, length, &b->bare_cpu[i]);
    b->loader[i] = bench_loader_round(b, length, &b->loader_cpu[i], &err);
    b->share[i] = b->bare[i] > 0 ? b->loader[i] / b->bare[i] : 0;
    b->n_rounds = i + 1;
    tool_progress(i + 1);
  }
  tool_progress_end();
  for (unsigned i = 0; i < b->n_workers; i++) {
    insitu__codec_scratch_free(&workers[i].scratch);
    insitu__mem_unmap(workers[i].encoded, encoded);
  }
  insitu__mem_unmap(b->ring, b->slots * b->slot_bytes);
  b->ring = NULL;
  if (atomic_load(&b->failed)) err = b->bare_err;
  if (err.status) return tool_fail_error(&err);
  b->capacity_cpu /= (double)b->n_rounds;
  double *series[] = {b->share, b->bare, b->loader, b->bare_cpu, b->loader_cpu};
  for (size_t i = 0; i < TOOL_COUNT(series); i++) qsort(series[i], (size_t)b->n_rounds, sizeof(double), bench_compare);
  return TOOL_OK;
}
/* Values left out at each end so that the rest covers the median with 95 %: binomial order statistics. */
static uint64_t bench_cut(uint64_t n) {
  double term = pow(0.5, (double)n), sum = 0;
  uint64_t k = 0;
  for (; k < n / 2 && sum + term <= 0.025; k++) {
    sum += term;
    term *= (double)(n - k) / (double)(k + 1);
  }
  return k ? k - 1 : 0;
}

/* ---- report ---- */

struct bench_verdict {
  double stall_share, share, low, high, cores;
  const char *stage; /* what limits: consumer, read, decode */
  char hint[4][400];
  int n_hints;
};
__attribute__((format(printf, 2, 3))) static void bench_hint(struct bench_verdict *v, const char *format, ...) {
  va_list args;
  if (v->n_hints == (int)TOOL_COUNT(v->hint)) return;
  va_start(args, format);
  vsnprintf(v->hint[v->n_hints++], sizeof v->hint[0], format, args);
  va_end(args);
}
static struct bench_verdict bench_judge(const struct bench *b) {
  struct bench_verdict v = {0};
  const insitu_loader_desc *c = insitu_loader_config(b->ld);
  const struct bench_replay *r = &b->replay;
  uint64_t n = b->n_rounds, cut = bench_cut(n), cores = insitu__mem_cores();
  v.stall_share = r->seconds > 0 ? r->stall / r->seconds : 0;
  v.cores = n ? b->capacity_cpu : r->seconds > 0 ? r->cpu / r->seconds : 0;
  if (n) {
    v.share = n % 2 ? b->share[n / 2] : 0.5 * (b->share[n / 2 - 1] + b->share[n / 2]);
    v.low = b->share[cut];
    v.high = b->share[n - 1 - cut];
  }
  v.stage = v.stall_share < 0.05 ? "consumer" : v.cores > 0.8 * (double)cores || b->machine_busy > 0.9 ? "decode" : "read";
  if (b->machine_busy > 0.9 && v.cores < 0.7 * (double)cores)
    bench_hint(&v, "Other programs keep the cores busy, so times and the share are noisy: compare the CPU time a byte.");
  if (b->plan.amplification > 1.1)
    bench_hint(&v, "Each chunk is read %.2f times: see insitu plan for unit_chunks that make it less.", b->plan.amplification);
  if (strcmp(v.stage, "read") == 0 && r->stats.inflight_peak >= c->max_inflight)
    bench_hint(&v,
        "The cores wait for reads while all %" PRIu64 " chunks in flight are taken: raise max_inflight, to %" PRIu64 " perhaps.",
        c->max_inflight, 4 * c->max_inflight);
  if (strcmp(v.stage, "decode") == 0 && v.cores > 0.8 * (double)cores && v.share >= 0.9)
    bench_hint(
        &v, "All cores are busy and the bare loop is hardly faster: only more cores, a cheaper codec or fewer re-reads help.");
  if (n && v.high < 0.9 && c->decode_threads < cores && !c->inline_io)
    bench_hint(&v, "decode_threads is %" PRIu64 " and there are %" PRIu64 " cores: raise it.", c->decode_threads, cores);
  if (n && v.high < 0.9 && c->inline_io)
    bench_hint(&v, "inline_io decodes in the consumer's thread alone: without it all cores do.");
  if (v.stall_share > 0.01 && b->compute > 0 && bench_quantile(r->call, r->n_calls, 0.99) > 0.5 * b->compute)
    bench_hint(&v, "Some batches come late: raise prefetch_depth (now %" PRIu64 ").", c->prefetch_depth);
  if (n && b->plan.read_bytes > insitu__mem_total())
    bench_hint(&v, "An epoch does not fit the page cache: the bare loop repeats files that are in it, so the share is too low.");
  return v;
}
static void bench_print(const struct bench *b, const struct bench_verdict *v) {
  const struct bench_replay *r = &b->replay;
  const insitu_loader_desc *c = insitu_loader_config(b->ld);
  char t[32], u[32];
  double ms[3];
  for (int i = 0; i < 3; i++) ms[i] = 1e3 * bench_quantile(r->call, r->n_calls, i == 0 ? 0.5 : i == 1 ? 0.95 : 0.99);
  printf("%s%s%s: %s, %" PRIu64 " variable%s, batches of %" PRIu64 ", %s, %" PRIu64 " decode threads\n\n", tool_style(TOOL_BOLD),
      b->ld->store.url, tool_style(TOOL_PLAIN), config_split_words[b->config.iter.split], c->n_variables,
      c->n_variables == 1 ? "" : "s", c->batch_size, r->stats.io, c->decode_threads);
  printf("%sthe job%s, %.1f s with %.3g ms of computing for each batch\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN),
      r->seconds, 1e3 * b->compute);
  printf("  delivered      %.1f batches/s, %.0f samples/s, %s/s\n", (double)r->batches / r->seconds, (double)r->rows / r->seconds,
      tool_bytes(t, (uint64_t)((double)r->bytes / r->seconds)));
  printf("  waiting        %.1f %% of the time; next: p50 %.3f ms, p95 %.3f ms, p99 %.3f ms\n", 100 * v->stall_share, ms[0],
      ms[1], ms[2]);
  printf("  first batch    %.1f ms\n", 1e3 * r->first);
  printf("  reads          %s chunks, %s, decoded %s", tool_count(t, r->stats.reads), tool_bytes(u, r->stats.bytes_read), "");
  printf("%s; each is read %.2f times an epoch\n", tool_bytes(t, r->stats.bytes_decoded), b->plan.amplification);
  if (r->stats.absent_chunks || r->stats.bad_chunks)
    printf("  holes          %" PRIu64 " absent chunks, %" PRIu64 " damaged ones filled\n", r->stats.absent_chunks,
        r->stats.bad_chunks);
  printf("  memory         %s resident at most; promised: %s of batches, %s in flight\n", tool_bytes(t, r->peak_rss),
      tool_bytes(u, b->plan.slabs * b->plan.slab_bytes), tool_bytes((char[32]){0}, b->plan.inflight_bytes));
  if (b->n_rounds) {
    printf("\n%sthe limit%s, %" PRIu64 " rounds of each in turns, decoded\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN),
        b->n_rounds);
    uint64_t m = b->n_rounds / 2;
    printf("  bare loop      %s/s, %.3f ns of CPU time a byte\n", tool_bytes(t, (uint64_t)b->bare[m]), 1e9 * b->bare_cpu[m]);
    printf("  loader         %s/s, %.3f ns of CPU time a byte\n", tool_bytes(t, (uint64_t)b->loader[m]), 1e9 * b->loader_cpu[m]);
    printf("  share          %s%.3f%s [%.3f, %.3f]\n", tool_style(v->high >= 0.9 ? TOOL_GREEN : TOOL_YELLOW), v->share,
        tool_style(TOOL_PLAIN), v->low, v->high);
  }
  printf("\nlimited by: %s; %.1f of %" PRIu64 " cores busy with it\n", v->stage, v->cores, insitu__mem_cores());
  for (int i = 0; i < v->n_hints; i++) printf("%s!%s %s\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN), v->hint[i]);
}
static void bench_print_json(const struct bench *b, const struct bench_verdict *v) {
  const struct bench_replay *r = &b->replay;
  struct tool_json_out j = {.to = stdout};
  static const double at[] = {0.5, 0.95, 0.99};
  static const char *const name[] = {"next_p50_s", "next_p95_s", "next_p99_s"};
  tool_json_object(&j, NULL);
  tool_json_string(&j, "url", b->ld->store.url);
  tool_json_double(&j, "seconds", r->seconds);
  tool_json_double(&j, "compute_s", b->compute);
  tool_json_u64(&j, "batches", r->batches);
  tool_json_u64(&j, "rows", r->rows);
  tool_json_u64(&j, "bytes", r->bytes);
  tool_json_double(&j, "batches_per_s", (double)r->batches / r->seconds);
  tool_json_double(&j, "bytes_per_s", (double)r->bytes / r->seconds);
  tool_json_double(&j, "stall_share", v->stall_share);
  tool_json_double(&j, "first_batch_s", r->first);
  for (int i = 0; i < 3; i++) tool_json_double(&j, name[i], bench_quantile(r->call, r->n_calls, at[i]));
  tool_json_u64(&j, "reads", r->stats.reads);
  tool_json_double(&j, "amplification", b->plan.amplification);
  tool_json_u64(&j, "bytes_read", r->stats.bytes_read);
  tool_json_u64(&j, "bytes_decoded", r->stats.bytes_decoded);
  tool_json_u64(&j, "absent_chunks", r->stats.absent_chunks);
  tool_json_u64(&j, "bad_chunks", r->stats.bad_chunks);
  tool_json_u64(&j, "resident_bytes_peak", r->peak_rss);
  tool_json_u64(&j, "slab_bytes_peak", r->stats.slab_bytes_peak);
  tool_json_string(&j, "io", r->stats.io);
  if (b->n_rounds) {
    tool_json_u64(&j, "rounds", b->n_rounds);
    tool_json_double(&j, "bare_bytes_per_s", b->bare[b->n_rounds / 2]);
    tool_json_double(&j, "loader_bytes_per_s", b->loader[b->n_rounds / 2]);
    tool_json_double(&j, "bare_cpu_s_per_byte", b->bare_cpu[b->n_rounds / 2]);
    tool_json_double(&j, "loader_cpu_s_per_byte", b->loader_cpu[b->n_rounds / 2]);
    tool_json_double(&j, "share", v->share);
    tool_json_double(&j, "share_low", v->low);
    tool_json_double(&j, "share_high", v->high);
  }
  tool_json_string(&j, "limited_by", v->stage);
  tool_json_double(&j, "cores_busy", v->cores);
  tool_json_array(&j, "hints");
  for (int i = 0; i < v->n_hints; i++) tool_json_string(&j, NULL, v->hint[i]);
  tool_json_end(&j);
  tool_json_end(&j);
}

static bool bench_number(const char *name, const char *text, double otherwise, double most, double *value) {
  char *end = NULL;
  *value = text ? strtod(text, &end) : otherwise;
  if (!text || (end != text && !*end && *value >= 0 && *value <= most)) return true;
  tool_usage_error("--%s %s: a number from 0 to %g is needed", name, text, most);
  return false;
}
static int bench_run(int argc, char **argv) {
  static struct bench b;
  double compute_ms;
  insitu_error err = {0};
  if (argc > 1) return tool_usage_error("one archive is needed, not %d", argc);
  if (!bench_number("seconds", bench_seconds, 5, 1e6, &b.seconds_asked) ||
      !bench_number("compute-ms", bench_compute, 0, 1e6, &compute_ms) ||
      !tool_option_u64("epochs", bench_epochs, 0, &b.epochs_asked) || !tool_option_u64("rounds", bench_rounds, 15, &b.rounds))
    return TOOL_USAGE;
  if (b.rounds > BENCH_MAX_ROUNDS) return tool_usage_error("--rounds: at most %d", BENCH_MAX_ROUNDS);
  b.compute = compute_ms / 1e3;
  int code = config_load(&b.config, argc ? argv[0] : NULL);
  if (code == TOOL_OK) {
    insitu_status status = insitu_loader_open(&b.config.desc, &b.ld, &err);
    if (status == INSITU_OK) status = insitu_loader_plan(b.ld, &b.config.iter, &b.plan, &err);
    if (status == INSITU_OK) status = insitu_iter_open(b.ld, &b.config.iter, &b.it, &err);
    if (status < 0) code = tool_fail_error(&err);
  }
  double busy[2], all[2];
  bench_machine(&busy[0], &all[0]);
  if (code == TOOL_OK) code = bench_run_job(&b);
  if (code == TOOL_OK && b.rounds) code = bench_run_rounds(&b);
  bench_machine(&busy[1], &all[1]);
  b.machine_busy = all[1] > all[0] ? (busy[1] - busy[0]) / (all[1] - all[0]) : 0;
  if (code == TOOL_OK) {
    struct bench_verdict v = bench_judge(&b);
    if (tool_json) bench_print_json(&b, &v);
    else bench_print(&b, &v);
  }
  insitu_loader_close(&b.ld);
  insitu__mem_free(b.replay.call);
  insitu__mem_free(b.tile);
  config_free(&b.config);
  return code;
}

static const struct tool_option bench_options[] = {{"seconds", 's', "S", "run the job so long (5)", &bench_seconds},
    {"epochs", 'e', "N", "run it for so many epochs instead", &bench_epochs},
    {"compute-ms", 0, "MS", "time that the consumer takes for each batch (0)", &bench_compute},
    {"busy", 0, NULL, "the consumer keeps its core busy meanwhile; without it waits, as for a GPU", &bench_busy},
    {"rounds", 0, "N", "of loader and bare loop, in turns (15); 0 leaves the limit out", &bench_rounds},
    {"like", 0, "FILE", "the same as --config", &config_file}, CONFIG_OPTIONS};
static const struct tool_command bench_command = {.name = "bench",
    .arguments = "URL | --like FILE [options]",
    .summary = "run a job's loader, and compare it with the limit",
    .details = "First the job: batches of the configuration, each byte of which a consumer looks at. Then, in turns, the\n"
               "loader without a consumer and the bare loop on the same files: open, read and decode on all cores into buffers\n"
               "as large as the ring of batches. The share is the loader's throughput over the bare loop's: the median of the\n"
               "rounds, with an interval that covers it with 95 %.\n\n"
               "examples:\n"
               "  insitu bench t.zarr --var x=t,y=t@1 --batch-size 16\n"
               "  insitu bench --like train.json --compute-ms 40 --epochs 2\n"
               "  insitu bench t.zarr --rounds 0 --seconds 30 --io epoll --json\n",
    .options = bench_options,
    .n_options = TOOL_COUNT(bench_options),
    .run = bench_run};
