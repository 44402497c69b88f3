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
/* What limits: a word, how that shows, and which knob to turn. */
struct trace_limit {
  const char *word, *shows, *knob;
};
static struct trace_limit trace_limit(const struct trace_sum *s, const struct trace_shares *r) {
  double most = (double)insitu__base_max(1, s->inflight);
  if (!INSITU__ARRAY_LEN(s->waits))
    return (struct trace_limit){
        "unknown", "no call of insitu_iter_next is in it", "Trace a run that takes batches"};
  if (r->waits < 0.05)
    return (struct trace_limit){"consumer",
        "the trainer is the slowest part, and the loader keeps up",
        "No knob of the loader makes it faster"};
  if (r->first > 0.5)
    return (struct trace_limit){"begin", "most of that was for the first batch",
        "Run longer, consolidate the metadata, or let windows be smaller (block_chunks)"};
  if (s->inline_io)
    return (struct trace_limit){"inline_io", "all work is done in the calls of next",
        "Leave inline_io out, so that threads do it"};
  if (r->busy > 0.8 && s->call > s->decode + s->gather)
    return (struct trace_limit){"on_batch",
        "the workers were busy nearly all the time, most of it "
        "in on_batch",
        "Make on_batch faster, or raise decode_threads where there are cores"};
  if (r->busy > 0.8)
    return (struct trace_limit){"decode",
        "the workers were busy nearly all the time, most of it "
        "decoding",
        "Raise decode_threads where there are cores, write the archive with a codec that decodes "
        "faster, and see insitu plan for chunks that are decoded twice"};
  if (r->flight < 0.5 * most)
    return (struct trace_limit){
        "prefetch", "fewer chunks were in flight than max_inflight allows", "Raise prefetch_depth"};
  if (r->reads < r->busy * (double)insitu__base_max(1, s->threads))
    return (struct trace_limit){"decode", "more chunks were being decoded than read",
        "Raise decode_threads where there are cores, or write the archive with a codec that "
        "decodes faster"};
  if (s->remote)
    return (struct trace_limit){"read", "requests were the slowest part",
        "Raise max_inflight and the option max_connections, or keep what was read (cache_dir)"};
  return (struct trace_limit){"read", "the store was the slowest part",
      "Raise max_inflight, or keep decoded chunks (cache_memory)"};
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
/* The rank that a span is of: see insitu__timeline_begin. */
static void trace_print_rank(const struct trace_span *c, bool many) {
  if (many) printf("rank %" PRIu64 ", ", c->pid / 8);
}
/* The first of each list, which are sorted. many: they are of several timelines. */
static void trace_print_longest(const struct trace_sum *s, uint64_t top, bool many) {
  char a[24], b[24];
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->chunks); i++) {
    const struct trace_span *c = &s->chunks[i];
    if (!i) printf("\n%sslowest chunks%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  ", trace_us(a, c->took), trace_us(b, c->begin));
    trace_print_rank(c, many);
    tool_put(stdout, c->name, strlen(c->name));
    for (int k = 0; k < TRACE_STAGES; k++)
      if (c->stage[k] > 0.05 * c->took)
        printf(", %s %s", trace_stages[k], trace_us(a, c->stage[k]));
    printf("\n");
  }
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->requests); i++) {
    const struct trace_span *c = &s->requests[i];
    if (!i) printf("\n%sslowest requests%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  ", trace_us(a, c->took), trace_us(b, c->begin));
    trace_print_rank(c, many);
    printf("status %" PRId64 ", %" PRIu64 " bytes\n", c->status, c->bytes);
  }
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(s->waits); i++) {
    const struct trace_span *c = &s->waits[i];
    if (!i)
      printf(
          "\n%slongest waits of the consumer%s\n", tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("  %10s at %10s  ", trace_us(a, c->took), trace_us(b, c->begin));
    trace_print_rank(c, many);
    if (c->status) printf("call that gave no batch (%" PRId64 ")\n", c->status);
    else printf("batch %" PRIu64 " of epoch %" PRIu64 "\n", c->batch, c->epoch);
  }
}
/* "The trainer waited 41 % of 3.20 s for batches: ...": where the time went, and the knob. who:
 * "The trainer waited", or a rank. */
static void trace_headline(char *to, size_t cap, const char *who, const struct trace_limit *l,
    const struct trace_shares *r) {
  char a[24];
  snprintf(to, cap, "%s %.0f %% of %s for batches: %s. %s.", who, 100 * r->waits,
      trace_us(a, r->wall), l->shows, l->knob);
}
static void trace_print(const char *path, struct trace_sum *s, uint64_t top) {
  struct trace_shares r = trace_shares(s);
  struct trace_limit limit = trace_limit(s, &r);
  struct trace_spread spread;
  uint64_t bytes = 0;
  char a[24], size[24], headline[500];
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->chunks); i++) bytes += s->chunks[i].bytes;
  trace_headline(headline, sizeof headline, "The trainer waited", &limit, &r);
  printf("%sLimited by %s.%s ", tool_style(TOOL_BOLD), limit.word, tool_style(TOOL_PLAIN));
  tool_wrap(headline, 0, 13 + (unsigned)strlen(limit.word));
  printf("\n");
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
  trace_print_longest(s, top, false);
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
/* The members of a timeline's object. */
static void trace_json(struct tool_json_out *j, const char *path, struct trace_sum *s) {
  struct trace_shares r = trace_shares(s);
  struct trace_limit limit = trace_limit(s, &r);
  struct trace_spread spread;
  char text[500];
  trace_headline(text, sizeof text, "The trainer waited", &limit, &r);
  tool_json_string(j, "file", path);
  tool_json_string(j, "headline", text);
  tool_json_string(j, "limited_by", limit.word);
  tool_json_u64(j, "rank", s->rank);
  tool_json_u64(j, "world", s->world);
  tool_json_double(j, "wall_s", r.wall / 1e6);
  tool_json_u64(j, "chunks", INSITU__ARRAY_LEN(s->chunks));
  tool_json_u64(j, "batches", s->batches);
  tool_json_u64(j, "requests", INSITU__ARRAY_LEN(s->requests));
  tool_json_u64(j, "lost_records", s->lost);
  tool_json_double(j, "consumer_waits", r.waits);
  tool_json_double(j, "workers_busy", r.busy);
  tool_json_double(j, "chunks_in_flight", r.flight);
  tool_json_double(j, "chunks_being_read", r.reads);
  tool_json_object(j, "stages");
  for (int k = 0; k < TRACE_STAGES; k++) {
    spread = trace_spread_of(s->chunks, k);
    trace_json_spread(j, trace_keys[k], &spread);
  }
  tool_json_end(j);
  spread = trace_spread_of(s->requests, -1);
  trace_json_spread(j, "request", &spread);
  tool_json_string(j, "advice", limit.knob);
}

/* ---- several timelines: those of all ranks, or of several loaders of one ---- */

struct trace_file { /* what is kept of one */
  const char *path;
  uint64_t rank, world, chunks, bytes, batches;
  struct trace_shares shares;
  struct trace_limit limit;
  double read, decode; /* of a chunk, the median, us */
};

static int trace_compare_file(const void *x, const void *y) { /* by rank; else as they were given */
  const struct trace_file *a = (const struct trace_file *)x, *b = (const struct trace_file *)y;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  return a->path < b->path ? -1 : a->path > b->path;
}
static void trace_keep(struct trace_file *f, const char *path, struct trace_sum *s) {
  *f = (struct trace_file){.path = path,
      .rank = s->rank,
      .world = s->world,
      .chunks = INSITU__ARRAY_LEN(s->chunks),
      .batches = s->batches,
      .shares = trace_shares(s),
      .read = trace_spread_of(s->chunks, TRACE_READ).median,
      .decode = trace_spread_of(s->chunks, TRACE_DECODE).median};
  f->limit = trace_limit(s, &f->shares);
  for (uint64_t i = 0; i < f->chunks; i++) f->bytes += s->chunks[i].bytes;
}
/* The one that waited longest, in seconds: where ranks train in step, all wait for it. */
static const struct trace_file *trace_slowest(const struct trace_file *f, int n) {
  const struct trace_file *most = f;
  for (int i = 1; i < n; i++)
    if (f[i].shares.waits * f[i].shares.wall > most->shares.waits * most->shares.wall) most = &f[i];
  return most;
}
/* How many ranks files, which are sorted, are of. */
static uint64_t trace_ranks(const struct trace_file *f, int n) {
  uint64_t ranks = 0;
  for (int i = 0; i < n; i++) ranks += !i || f[i].rank != f[i - 1].rank;
  return ranks;
}
/* The sentence about all: of the one that waited longest. */
static void trace_headline_of(char *to, size_t cap, const struct trace_file *most) {
  char who[60];
  snprintf(
      who, sizeof who, "Rank %" PRIu64 " of %" PRIu64 " waited longest,", most->rank, most->world);
  trace_headline(to, cap, who, &most->limit, &most->shares);
}
static void trace_print_files(const struct trace_file *f, int n) {
  const struct trace_file *most = trace_slowest(f, n);
  uint64_t chunks = 0, bytes = 0, batches = 0, ranks = trace_ranks(f, n), world = 0;
  uint64_t least = UINT64_MAX;
  char a[24], b[24], c[24], headline[600];
  trace_headline_of(headline, sizeof headline, most);
  printf("%sLimited by %s.%s ", tool_style(TOOL_BOLD), most->limit.word, tool_style(TOOL_PLAIN));
  tool_wrap(headline, 0, 13 + (unsigned)strlen(most->limit.word));
  printf(
      "\n%s  rank       time    waits  workers  in flight   read a chunk  decode it  limited by  "
      "%s\n",
      tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
  for (int i = 0; i < n; i++) {
    const struct trace_shares *r = &f[i].shares;
    printf("  %4" PRIu64 " %10s  %5.1f %%  %5.1f %%  %9.1f   %12s %10s  %-11s ", f[i].rank,
        trace_us(a, r->wall), 100 * r->waits, 100 * r->busy, r->flight, trace_us(b, f[i].read),
        trace_us(c, f[i].decode), f[i].limit.word);
    tool_put(stdout, f[i].path, strlen(f[i].path));
    printf("\n");
    chunks += f[i].chunks;
    bytes += f[i].bytes;
    batches += f[i].batches;
    world = insitu__base_max(world, f[i].world);
    least = insitu__base_min(least, f[i].world);
  }
  printf("  together: %" PRIu64 " chunks, %s, %" PRIu64 " batches; timelines of %" PRIu64
         " of %" PRIu64 " ranks%s\n",
      chunks, tool_bytes(a, bytes), batches, ranks, world,
      ranks < world ? ": the others are missing" : "");
  if (least < world)
    printf("  they are of runs of %" PRIu64 " to %" PRIu64
           " ranks: give the timelines of one run\n",
        least, world);
}

/* ---- the command ---- */

/* Reads and sums up a timeline; its longest come first. An exit code. */
static int trace_load(const char *path, struct trace_sum *s) {
  insitu_error err = {0};
  uint64_t n = 0;
  char *text = NULL;
  memset(s, 0, sizeof *s);
  int code = config_read_file(path, &text, &n);
  if (code) return code;
  bool ok = trace_parse(text, n, path, s, &err);
  insitu__mem_free(text);
  if (!ok && s->fault)
    return tool_fail("%s: %s; give what INSITU_TRACE or desc.trace wrote", path, s->fault);
  if (!ok) return tool_fail_error(&err);
  struct trace_span *all[3] = {s->chunks, s->requests, s->waits};
  for (int i = 0; i < 3; i++)
    if (INSITU__ARRAY_LEN(all[i]))
      qsort(all[i], (size_t)INSITU__ARRAY_LEN(all[i]), sizeof *all[i], trace_compare_span);
  return TOOL_OK;
}
/* Adds the longest of a list, which is sorted. */
static void trace_merge(struct trace_span **to, const struct trace_span *from, uint64_t top) {
  for (uint64_t i = 0; i < top && i < INSITU__ARRAY_LEN(from); i++) trace_push_span(to, &from[i]);
}
static int trace_run_files(int n, char **paths, uint64_t top) {
  struct trace_file *f = (struct trace_file *)tool_alloc((uint64_t)n, sizeof *f);
  struct trace_sum all = {.chunks = NULL}, s;
  char headline[600], *text = NULL; /* of JSON, which is printed as a whole or not at all */
  size_t size = 0;
  int code = TOOL_OK;
  struct tool_json_out j = {.to = tool_json ? open_memstream(&text, &size) : NULL};
  if (tool_json && !j.to) tool_no_memory();
  if (tool_json) tool_json_object(&j, NULL);
  if (tool_json) tool_json_array(&j, "timelines");
  for (int i = 0; i < n && code == TOOL_OK; i++) {
    code = trace_load(paths[i], &s);
    if (code == TOOL_OK) {
      trace_keep(&f[i], paths[i], &s);
      trace_merge(&all.chunks, s.chunks, top);
      trace_merge(&all.requests, s.requests, top);
      trace_merge(&all.waits, s.waits, top);
    }
    if (code == TOOL_OK && tool_json) {
      tool_json_object(&j, NULL);
      trace_json(&j, paths[i], &s);
      tool_json_end(&j);
    }
    trace_free(&s);
  }
  if (code == TOOL_OK) {
    struct trace_span *lists[3] = {all.chunks, all.requests, all.waits};
    for (int i = 0; i < 3; i++)
      if (INSITU__ARRAY_LEN(lists[i]))
        qsort(lists[i], (size_t)INSITU__ARRAY_LEN(lists[i]), sizeof *lists[i], trace_compare_span);
    qsort(f, (size_t)n, sizeof *f, trace_compare_file);
    trace_headline_of(headline, sizeof headline, trace_slowest(f, n));
  }
  if (code == TOOL_OK && tool_json) {
    tool_json_end(&j);
    tool_json_string(&j, "headline", headline);
    tool_json_end(&j);
  } else if (code == TOOL_OK) {
    trace_print_files(f, n);
    trace_print_longest(&all, top, true);
  }
  if (j.to) {
    if (fclose(j.to)) tool_no_memory();
    if (code == TOOL_OK) fwrite(text, 1, size, stdout);
    free(text);
  }
  trace_free(&all);
  insitu__mem_free(f);
  return code;
}
static int trace_run(int argc, char **argv) {
  struct tool_json_out j = {.to = stdout};
  struct trace_sum s;
  uint64_t top = 5;
  if (argc < 1) return tool_usage_error("name one timeline, or several");
  if (trace_top && (!tool_u64(trace_top, &top) || top > TRACE_MOST_TOP))
    return tool_usage_error("--top %s: give a number up to %d", trace_top, TRACE_MOST_TOP);
  if (argc > 1) return trace_run_files(argc, argv, top);
  int code = trace_load(argv[0], &s);
  if (code == TOOL_OK && tool_json) {
    tool_json_object(&j, NULL);
    trace_json(&j, argv[0], &s);
    tool_json_end(&j);
  } else if (code == TOOL_OK) {
    trace_print(argv[0], &s, top);
  }
  trace_free(&s);
  return code;
}

static const struct tool_option trace_options[] = {
    {"top", 0, "N", "how many of the slowest are listed (5)", &trace_top}};
static const struct tool_command trace_command = {.name = "trace",
    .arguments = "FILE...",
    .summary = "where the time of a run went, from the timelines that INSITU_TRACE wrote",
    .details =
        "INSITU_TRACE=FILE in the environment, or desc.trace, has a loader write a timeline when "
        "it closes. In\n"
        "FILE %r is the rank, %p the process and %% a percent sign; without %r rank r > 0 writes "
        "FILE.r. A second\n"
        "loader of a process, or one of another process that runs, writes FILE-2, FILE-3, ...\n\n"
        "Told are what limits and which knob to turn, the share of time that the consumer waited, "
        "how busy the\n"
        "workers were, how long chunks were queued, read, decoded and placed, and the slowest "
        "ones. Of several\n"
        "timelines there is a line for each, by rank. ui.perfetto.dev shows the same files.\n\n"
        "examples:\n"
        "  INSITU_TRACE=t.json ./train && insitu trace t.json\n"
        "  INSITU_TRACE=t-%r.json mpirun -n 4 ./train && insitu trace t-*.json\n",
    .options = trace_options,
    .n_options = TOOL_COUNT(trace_options),
    .run = trace_run};
