/* insitu trace: sums up a timeline that desc.trace or INSITU_TRACE wrote: where the time went, what
 * took longest, and which knob to turn. */
static const char *trace_top;
enum { TRACE_MOST_TOP = 100, TRACE_NAME = 128 };
#define TRACE_MOST_US 1e15 /* a time, microseconds: 30 years */

/* ---- what a timeline holds; times are microseconds ---- */

enum { TRACE_QUEUED, TRACE_READ, TRACE_WAIT, TRACE_DECODE, TRACE_PLACE, TRACE_STAGES };
static const char *const trace_stages[] = {
    "queued", "read", "waits for a worker", "decode", "place"};
static const char *const trace_keys[] = {"queued", "read", "worker_wait", "decode", "place"};

struct trace_span { /* a chunk, a request, or a wait of the consumer */
  double begin, took, stage[TRACE_STAGES];
  uint64_t bytes, epoch, batch, pid, tid;
  int64_t status;
  char name[TRACE_NAME];
};
struct trace_sum {
  struct trace_span *chunks, *requests, *waits; /* growing arrays */
  double *answers, *filling, *ready, *held;     /* the same */
  double begin, end, next_begin, next_end;      /* of all, and of the calls of next */
  double decode, gather, call;                  /* of workers */
  uint64_t batches, rank, world, threads, inflight, depth, lost;
  bool remote, inline_io;
  const char *fault; /* what is wrong with the file */
};
static void trace_free(struct trace_sum *s) {
  INSITU__ARRAY_FREE(s->chunks);
  INSITU__ARRAY_FREE(s->requests);
  INSITU__ARRAY_FREE(s->waits);
  INSITU__ARRAY_FREE(s->answers);
  INSITU__ARRAY_FREE(s->filling);
  INSITU__ARRAY_FREE(s->ready);
  INSITU__ARRAY_FREE(s->held);
}

/* A time of an event; false: it is none. */
static bool trace_time(const struct insitu__text_json *j, int event, const char *key, double *us) {
  int token = insitu__text_json_get(j, event, key);
  return token >= 0 && insitu__text_json_double(j, token, us) && *us >= 0 && *us <= TRACE_MOST_US;
}
static uint64_t trace_count(const struct insitu__text_json *j, int object, const char *key) {
  uint64_t n = 0;
  int token = object < 0 ? -1 : insitu__text_json_get(j, object, key);
  return token >= 0 && insitu__text_json_u64(j, token, &n) ? n : 0;
}
/* Text of a member, cut to what there is room for. */
static void trace_text(
    const struct insitu__text_json *j, int object, const char *key, char *to, uint64_t cap) {
  int token = insitu__text_json_get(j, object, key);
  to[0] = 0;
  if (token < 0 || !insitu__text_json_is_string(j, token)) return;
  if (insitu__text_json_string(j, token, to, cap) < 0) to[0] = 0;
}
static void trace_push(double **list, double x) {
  if (!INSITU__ARRAY_PUSH(*list, x)) tool_no_memory();
}
static void trace_push_span(struct trace_span **list, const struct trace_span *span) {
  if (!INSITU__ARRAY_PUSH(*list, *span)) tool_no_memory();
}

/* An event of a stage of the chunk that came last. */
static void trace_stage(struct trace_sum *s, const struct trace_span *e, const char *cat) {
  uint64_t n = INSITU__ARRAY_LEN(s->chunks);
  struct trace_span *c = n ? &s->chunks[n - 1] : NULL;
  if (!c || c->pid != e->pid || c->tid != e->tid) return;
  double before = e->begin - c->begin;
  for (int i = 0; i < TRACE_STAGES; i++) before -= c->stage[i];
  if (before < 0) before = 0;
  if (strcmp(cat, "read") == 0) {
    c->stage[TRACE_QUEUED] = before;
    c->stage[TRACE_READ] = e->took;
  } else if (strcmp(cat, "decode") == 0) {
    c->stage[TRACE_WAIT] = before;
    c->stage[TRACE_DECODE] = e->took;
  } else {
    c->stage[TRACE_PLACE] = e->took;
  }
}
/* A call of next. */
static void trace_next(struct trace_sum *s, const struct trace_span *e) {
  double end = e->begin + e->took;
  if (!INSITU__ARRAY_LEN(s->waits) || e->begin < s->next_begin) s->next_begin = e->begin;
  if (end > s->next_end) s->next_end = end;
  trace_push_span(&s->waits, e);
}
/* Takes an event in. */
static void trace_event(struct trace_sum *s, const struct insitu__text_json *j, int event) {
  struct trace_span e = {.pid = trace_count(j, event, "pid"), .tid = trace_count(j, event, "tid")};
  int args = insitu__text_json_get(j, event, "args");
  char phase[4], cat[16];
  trace_text(j, event, "ph", phase, sizeof phase);
  trace_text(j, event, "cat", cat, sizeof cat);
  trace_text(j, event, "name", e.name, sizeof e.name);
  if (strcmp(phase, "X")) return;
  if (!trace_time(j, event, "ts", &e.begin) || !trace_time(j, event, "dur", &e.took)) {
    s->fault = "an event has no time";
    return;
  }
  e.bytes = trace_count(j, args, "bytes");
  e.epoch = trace_count(j, args, "epoch");
  e.batch = trace_count(j, args, "batch");
  int status = args < 0 ? -1 : insitu__text_json_get(j, args, "status");
  if (status >= 0) (void)insitu__text_json_i64(j, status, &e.status);
  if (s->end == 0 || e.begin < s->begin) s->begin = e.begin;
  if (e.begin + e.took > s->end) s->end = e.begin + e.took;
  if (strcmp(cat, "chunk") == 0) trace_push_span(&s->chunks, &e);
  else if (strcmp(cat, "read") == 0 || strcmp(cat, "decode") == 0 || strcmp(cat, "place") == 0)
    trace_stage(s, &e, cat);
  else if (strcmp(cat, "work") == 0)
    *(e.name[0] == 'd' ? &s->decode : e.name[0] == 'g' ? &s->gather : &s->call) += e.took;
  else if (strcmp(cat, "request") == 0) trace_push_span(&s->requests, &e);
  else if (strcmp(cat, "answer") == 0) trace_push(&s->answers, e.took);
  else if (strcmp(cat, "filling") == 0) trace_push(&s->filling, e.took);
  else if (strcmp(cat, "ready") == 0) trace_push(&s->ready, e.took);
  else if (strcmp(cat, "held") == 0) trace_push(&s->held, e.took);
  else if (strcmp(cat, "batch") == 0) s->batches++;
  else if (strcmp(cat, "next") == 0) trace_next(s, &e);
}
/* Sums up a timeline of n characters. False: it is none of ours; s->fault or *err tells why. */
static bool trace_parse(
    const char *text, uint64_t n, const char *name, struct trace_sum *s, insitu_error *err) {
  struct insitu__text_json j = {0};
  memset(s, 0, sizeof *s);
  if (insitu__text_json_parse(&j, text, n, name, err) < 0) return false;
  int other = insitu__text_json_get(&j, 0, "otherData");
  int events = insitu__text_json_get(&j, 0, "traceEvents");
  if (other < 0 || trace_count(&j, other, "insitubatch") != 1 || events < 0)
    s->fault = "it is no timeline of this library";
  s->rank = trace_count(&j, other, "rank");
  s->world = trace_count(&j, other, "world");
  s->threads = trace_count(&j, other, "decode_threads");
  s->inflight = trace_count(&j, other, "max_inflight");
  s->depth = trace_count(&j, other, "prefetch_depth");
  s->lost = trace_count(&j, other, "lost_records");
  s->remote = trace_count(&j, other, "remote") != 0;
  s->inline_io = trace_count(&j, other, "inline_io") != 0;
  if (!s->fault)
    for (int t = insitu__text_json_first(&j, events); t >= 0 && !s->fault;
         t = insitu__text_json_next(&j, t))
      trace_event(s, &j, t);
  insitu__text_json_free(&j);
  return !s->fault;
}

/* ---- figures ---- */

static int trace_compare_number(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}
static int trace_compare_span(const void *x, const void *y) { /* the longest first */
  const struct trace_span *a = (const struct trace_span *)x, *b = (const struct trace_span *)y;
  if (a->took != b->took) return a->took > b->took ? -1 : 1;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}
struct trace_spread {
  double sum, median, late, most; /* late: 95 % are shorter */
  uint64_t n;
};
/* Of a growing array, which is sorted. */
static struct trace_spread trace_spread(double *list) {
  struct trace_spread s = {.n = INSITU__ARRAY_LEN(list)};
  if (!s.n) return s;
  qsort(list, (size_t)s.n, sizeof *list, trace_compare_number);
  for (uint64_t i = 0; i < s.n; i++) s.sum += list[i];
  s.median = list[s.n / 2];
  s.late = list[(s.n - 1) - (s.n - 1) / 20];
  s.most = list[s.n - 1];
  return s;
}
/* Of one stage of the chunks (-1: of all of it), or of requests. */
static struct trace_spread trace_spread_of(const struct trace_span *spans, int stage) {
  double *list = NULL;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(spans); i++)
    trace_push(&list, stage < 0 ? spans[i].took : spans[i].stage[stage]);
  struct trace_spread s = trace_spread(list);
  INSITU__ARRAY_FREE(list);
  return s;
}

struct trace_shares { /* of the time from the first call of next to the end of the last */
  double wall, waits, busy, flight, reads, first; /* first: of the waits, that of the first batch */
};
static struct trace_shares trace_shares(const struct trace_sum *s) {
  struct trace_shares r = {.wall = s->next_end - s->next_begin};
  if (r.wall <= 0) r.wall = s->end - s->begin;
  if (r.wall <= 0) r.wall = 1;
  double first = 0, begin = HUGE_VAL;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->waits); i++) {
    r.waits += s->waits[i].took;
    if (s->waits[i].begin < begin) {
      begin = s->waits[i].begin;
      first = s->waits[i].took;
    }
  }
  if (r.waits > 0) r.first = first / r.waits;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->chunks); i++) {
    r.flight += s->chunks[i].took / r.wall;
    r.reads += s->chunks[i].stage[TRACE_READ] / r.wall;
  }
  r.busy = (s->decode + s->gather + s->call) / r.wall / (double)insitu__base_max(1, s->threads);
  r.waits /= r.wall;
  return r;
}
/* What limits, and which knob to turn. */
static const char *trace_advice(const struct trace_sum *s, const struct trace_shares *r) {
  double most = (double)insitu__base_max(1, s->inflight);
  if (!INSITU__ARRAY_LEN(s->waits)) return "no call of insitu_iter_next is in it";
  if (r->waits < 0.05) return "consumer: the trainer is the slowest part, and the loader keeps up";
  if (r->first > 0.5)
    return "begin: most of the waiting is for the first batch; run longer, consolidate the "
           "metadata, and let windows be smaller (block_chunks)";
  if (s->inline_io)
    return "inline_io: all work is done in the calls of next; leave it out, so that threads do it";
  if (r->busy > 0.8)
    return "decode: the workers are busy nearly all the time; raise decode_threads where there are "
           "cores, write the archive with a codec that decodes faster, and see `insitu plan` for "
           "chunks that are decoded twice";
  if (r->flight < 0.5 * most)
    return "prefetch: fewer chunks are in flight than max_inflight allows; raise prefetch_depth";
  if (s->remote)
    return "read: requests are the slowest part; raise max_inflight and the option max_connections,"
           " or keep what was read (cache_dir)";
  return "read: the store is the slowest part; raise max_inflight, or keep decoded chunks "
         "(cache_memory)";
}

/* ---- output ---- */

static const char *trace_us(char to[24], double us) {
  if (us < 1e3) snprintf(to, 24, "%.1f us", us);
  else if (us < 1e6) snprintf(to, 24, "%.2f ms", us / 1e3);
  else snprintf(to, 24, "%.2f s", us / 1e6);
  return to;
}
static void trace_row(const char *name, const struct trace_spread *s) {
  char a[24], b[24], c[24];
  if (!s->n) return;
  printf("  %-22s %12s %12s %12s\n", name, trace_us(a, s->median), trace_us(b, s->late),
      trace_us(c, s->most));
}
static void trace_head(const char *what) {
  printf("\n%s%-24s %12s %12s %12s%s\n", tool_style(TOOL_BOLD), what, "median", "95 % within",
      "most", tool_style(TOOL_PLAIN));
}
static void trace_print_shares(const struct trace_sum *s, const struct trace_shares *r) {
  double work = s->decode + s->gather + s->call;
  char a[24];
  printf("\n%swhere the time went%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
  printf("  the consumer waits     %8.1f %%   %s, %.0f %% of it in the first call\n",
      100 * r->waits, trace_us(a, r->waits * r->wall), 100 * r->first);
  printf("  workers are busy       %8.1f %%   of %" PRIu64 ": decode %.0f %%, gather %.0f %%, "
         "on_batch %.0f %%\n",
      100 * r->busy, s->threads, work > 0 ? 100 * s->decode / work : 0,
      work > 0 ? 100 * s->gather / work : 0, work > 0 ? 100 * s->call / work : 0);
  printf("  chunks in flight       %8.1f     on average, of at most %" PRIu64 "; %.1f of them are "
         "being read\n",
      r->flight, s->inflight, r->reads);
}
static void trace_print_longest(const struct trace_sum *s, uint64_t top) {
  char a[24], b[24];
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->chunks); i++) {
    const struct trace_span *c = &s->chunks[i];
    if (!i) printf("\n%sslowest chunks%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  ", trace_us(a, c->took), trace_us(b, c->begin));
    tool_put(stdout, c->name, strlen(c->name));
    for (int k = 0; k < TRACE_STAGES; k++)
      if (c->stage[k] > 0.05 * c->took)
        printf(", %s %s", trace_stages[k], trace_us(a, c->stage[k]));
    printf("\n");
  }
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->requests); i++) {
    const struct trace_span *c = &s->requests[i];
    if (!i) printf("\n%sslowest requests%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  status %" PRId64 ", %" PRIu64 " bytes\n", trace_us(a, c->took),
        trace_us(b, c->begin), c->status, c->bytes);
  }
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->waits); i++) {
    const struct trace_span *c = &s->waits[i];
    if (!i)
      printf(
          "\n%slongest waits of the consumer%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  ", trace_us(a, c->took), trace_us(b, c->begin));
    if (c->status) printf("call that gave no batch (%" PRId64 ")\n", c->status);
    else printf("batch %" PRIu64 " of epoch %" PRIu64 "\n", c->batch, c->epoch);
  }
}
static void trace_print(const char *path, struct trace_sum *s, uint64_t top) {
  struct trace_shares r = trace_shares(s);
  struct trace_spread spread;
  uint64_t bytes = 0;
  char a[24], size[24];
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->chunks); i++) bytes += s->chunks[i].bytes;
  tool_put(stdout, path, strlen(path));
  printf(": rank %" PRIu64 " of %" PRIu64 ", %s; %" PRIu64 " chunks, %s, %" PRIu64 " batches\n",
      s->rank, s->world, trace_us(a, r.wall), (uint64_t)INSITU__ARRAY_LEN(s->chunks),
      tool_bytes(size, bytes), s->batches);
  if (s->lost)
    printf("%" PRIu64 " earlier records are lost: this is the end of the run\n", s->lost);
  trace_print_shares(s, &r);
  trace_head("a chunk");
  for (int k = 0; k < TRACE_STAGES; k++) {
    spread = trace_spread_of(s->chunks, k);
    trace_row(trace_stages[k], &spread);
  }
  if (INSITU__ARRAY_LEN(s->requests)) {
    trace_head("a request");
    spread = trace_spread_of(s->requests, -1);
    trace_row("in all", &spread);
    spread = trace_spread(s->answers);
    trace_row("to the answer's head", &spread);
  }
  trace_head("a batch");
  spread = trace_spread(s->filling);
  trace_row("is filled", &spread);
  spread = trace_spread(s->ready);
  trace_row("is ready", &spread);
  spread = trace_spread(s->held);
  trace_row("is held", &spread);
  trace_print_longest(s, top);
  printf("\nlimited by: ");
  tool_wrap(trace_advice(s, &r), 2, 12);
}
static void trace_json_spread(
    struct tool_json_out *j, const char *key, const struct trace_spread *s) {
  tool_json_object(j, key);
  tool_json_u64(j, "n", s->n);
  tool_json_double(j, "sum_s", s->sum / 1e6);
  tool_json_double(j, "median_s", s->median / 1e6);
  tool_json_double(j, "p95_s", s->late / 1e6);
  tool_json_double(j, "most_s", s->most / 1e6);
  tool_json_end(j);
}
static void trace_print_json(struct trace_sum *s) {
  struct trace_shares r = trace_shares(s);
  struct tool_json_out j = {.to = stdout};
  struct trace_spread spread;
  tool_json_object(&j, NULL);
  tool_json_u64(&j, "rank", s->rank);
  tool_json_double(&j, "wall_s", r.wall / 1e6);
  tool_json_u64(&j, "chunks", INSITU__ARRAY_LEN(s->chunks));
  tool_json_u64(&j, "batches", s->batches);
  tool_json_u64(&j, "requests", INSITU__ARRAY_LEN(s->requests));
  tool_json_u64(&j, "lost_records", s->lost);
  tool_json_double(&j, "consumer_waits", r.waits);
  tool_json_double(&j, "workers_busy", r.busy);
  tool_json_double(&j, "chunks_in_flight", r.flight);
  tool_json_double(&j, "chunks_being_read", r.reads);
  tool_json_object(&j, "stages");
  for (int k = 0; k < TRACE_STAGES; k++) {
    spread = trace_spread_of(s->chunks, k);
    trace_json_spread(&j, trace_keys[k], &spread);
  }
  tool_json_end(&j);
  spread = trace_spread_of(s->requests, -1);
  trace_json_spread(&j, "request", &spread);
  tool_json_string(&j, "advice", trace_advice(s, &r));
  tool_json_end(&j);
}

static int trace_run(int argc, char **argv) {
  struct trace_sum s;
  insitu_error err = {0};
  uint64_t n = 0, top = 5;
  char *text = NULL;
  if (argc != 1) return tool_usage_error("name one timeline");
  if (trace_top && (!tool_u64(trace_top, &top) || top > TRACE_MOST_TOP))
    return tool_usage_error("--top %s: give a number up to %d", trace_top, TRACE_MOST_TOP);
  int code = config_read_file(argv[0], &text, &n);
  if (code) return code;
  bool ok = trace_parse(text, n, argv[0], &s, &err);
  insitu__mem_free(text);
  if (ok) {
    struct trace_span *all[3] = {s.chunks, s.requests, s.waits};
    for (int i = 0; i < 3; i++)
      if (INSITU__ARRAY_LEN(all[i]))
        qsort(all[i], (size_t)INSITU__ARRAY_LEN(all[i]), sizeof *all[i], trace_compare_span);
    if (tool_json) trace_print_json(&s);
    else trace_print(argv[0], &s, top);
  } else if (s.fault) {
    code = tool_fail("%s: %s; give what INSITU_TRACE or desc.trace wrote", argv[0], s.fault);
  } else {
    code = tool_fail_error(&err);
  }
  trace_free(&s);
  return code;
}

static const struct tool_option trace_options[] = {
    {"top", 0, "N", "how many of the slowest are listed (5)", &trace_top}};
static const struct tool_command trace_command = {.name = "trace",
    .arguments = "FILE",
    .summary = "where the time of a run went, from the timeline that INSITU_TRACE wrote",
    .details =
        "INSITU_TRACE=FILE in the environment, or desc.trace, has a loader write a timeline when "
        "it closes.\n"
        "Told are the share of time that the consumer waited, how busy the workers were, how long "
        "chunks were\n"
        "queued, read, decoded and placed, the slowest ones, and which knob to turn. "
        "ui.perfetto.dev shows the\nsame file.\n\n"
        "example: INSITU_TRACE=t.json ./train && insitu trace t.json\n",
    .options = trace_options,
    .n_options = TOOL_COUNT(trace_options),
    .run = trace_run};
