/* insitu prove: makes the digests of a run's samples anew from its configuration, and says at which
 * batch the run went another way. Reads what insitu_batch_receipt wrote, and states. */
static const char *prove_skip, *prove_against;
/* Bytes of a receipt's line, and of what is read at once; receipts of a log. */
enum { PROVE_LINE = 1 << 16, PROVE_BUFFER = 1 << 20, PROVE_MOST = 1 << 26 };

/* ---- receipts ---- */

/* What a line of a log says of a batch. */
struct prove_receipt {
  uint64_t split, epoch, batch, rank, world, rows, anchors, running, bytes;
  bool has_running, has_bytes;
  uint32_t file, line;
};
struct prove_log {
  struct prove_receipt *receipts; /* a growing array, sorted once it is read */
  char **files;                   /* their names */
};

/* A digest of 16 hexadecimal digits. */
static bool prove_digest(const struct insitu__text_json *j, const char *key, uint64_t *out) {
  char text[20];
  int token = insitu__text_json_get(j, 0, key);
  if (token < 0 || insitu__text_json_string(j, token, text, sizeof text) != 16) return false;
  *out = 0;
  for (int i = 0; i < 16; i++) {
    const char *digits = "0123456789abcdef",
               *at = text[i] ? (const char *)strchr(digits, text[i]) : NULL;
    if (!at) return false;
    *out = *out << 4 | (uint64_t)(at - digits);
  }
  return true;
}
static bool prove_number(
    const struct insitu__text_json *j, const char *key, uint64_t most, uint64_t *out) {
  int token = insitu__text_json_get(j, 0, key);
  return token >= 0 && insitu__text_json_u64(j, token, out) && *out <= most;
}
/* A receipt of n characters: false: it is none. */
static bool prove_parse(const char *text, uint64_t n, struct prove_receipt *r) {
  struct insitu__text_json j = {0};
  insitu_error err = {0};
  char split[16];
  uint64_t version;
  memset(r, 0, sizeof *r);
  bool ok = insitu__text_json_parse(&j, text, n, "receipt", &err) == INSITU_OK;
  int token = ok ? insitu__text_json_get(&j, 0, "split") : -1;
  ok = token >= 0 && insitu__text_json_string(&j, token, split, sizeof split) > 0;
  while (ok && r->split < 4 && strcmp(insitu__split_names[r->split], split)) r->split++;
  ok = ok && r->split < 4 && prove_number(&j, "receipt", 1, &version) && version == 1;
  ok = ok && prove_number(&j, "epoch", INSITU__MAX_EPOCH - 1, &r->epoch);
  ok = ok && prove_number(&j, "batch", UINT64_C(1) << 42, &r->batch);
  ok = ok && prove_number(&j, "world", INSITU__MAX_WORLD, &r->world);
  ok = ok && prove_number(&j, "rank", INSITU__MAX_WORLD, &r->rank) && r->rank < r->world;
  ok = ok && prove_number(&j, "rows", INSITU__MAX_BATCH, &r->rows);
  ok = ok && prove_digest(&j, "anchors", &r->anchors);
  r->has_running = ok && prove_digest(&j, "epoch_anchors", &r->running);
  r->has_bytes = ok && prove_digest(&j, "bytes", &r->bytes);
  insitu__text_json_free(&j);
  return ok;
}
/* Reads the receipts of n characters of a log, whole lines. Other lines may stand between them, and
 * other text before one. *line counts lines. False: this line is no receipt though it begins like
 * one. */
static bool prove_lines(struct prove_log *log, const char *text, uint64_t n, uint64_t *line) {
  static const char begin[] = "{\"receipt\":";
  for (const char *end = text + n, *next; text < end; text = next) {
    const char *stop = (const char *)memchr(text, '\n', (size_t)(end - text));
    next = stop ? stop + 1 : end;
    stop = stop ? stop : end;
    ++*line;
    const char *at = (const char *)memmem(text, (size_t)(stop - text), begin, sizeof begin - 1);
    struct prove_receipt r;
    if (!at) continue;
    while (stop > at && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t')) stop--;
    if (stop - at > PROVE_LINE || !prove_parse(at, (uint64_t)(stop - at), &r)) return false;
    r.file = (uint32_t)INSITU__ARRAY_LEN(log->files) - 1;
    r.line = (uint32_t)insitu__base_min(*line, UINT32_MAX);
    if (INSITU__ARRAY_LEN(log->receipts) >= PROVE_MOST || !INSITU__ARRAY_PUSH(log->receipts, r))
      tool_no_memory();
  }
  return true;
}
static int prove_compare(const void *x, const void *y) {
  const struct prove_receipt *a = (const struct prove_receipt *)x,
                             *b = (const struct prove_receipt *)y;
  if (a->epoch != b->epoch) return a->epoch < b->epoch ? -1 : 1;
  if (a->batch != b->batch) return a->batch < b->batch ? -1 : 1;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->file != b->file) return a->file < b->file ? -1 : 1;
  return a->line < b->line ? -1 : a->line > b->line;
}
static void prove_log_free(struct prove_log *log) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(log->files); i++) insitu__mem_free(log->files[i]);
  INSITU__ARRAY_FREE(log->files);
  INSITU__ARRAY_FREE(log->receipts);
}

/* ---- what is found ---- */

static struct {
  const struct prove_log *log;
  uint64_t batches, missing, skipped, first_epoch, last_epoch, worlds;
  struct prove_receipt at; /* of the first difference */
  char what[320];          /* empty: there is none */
} prove;

__attribute__((format(printf, 2, 3))) static bool prove_differs(
    const struct prove_receipt *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  prove.at = *r;
  vsnprintf(prove.what, sizeof prove.what, format, args);
  va_end(args);
  return false;
}

/* ---- the configuration ---- */

struct prove_skips {
  struct prove_skip {
    uint64_t epoch, first, n;
  } * list; /* a growing array */
};
static bool prove_is_skipped(const struct prove_skips *s, uint64_t epoch, uint64_t batch) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->list); i++)
    if (s->list[i].epoch == epoch && batch >= s->list[i].first &&
        batch - s->list[i].first < s->list[i].n)
      return true;
  return false;
}
/* "EPOCH:FIRST:N,..." */
static int prove_parse_skips(struct prove_skips *s) {
  for (const char *p = prove_skip; p && *p;) {
    struct prove_skip skip;
    uint64_t *number[3] = {&skip.epoch, &skip.first, &skip.n};
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++) {
      char word[24];
      size_t length = strcspn(p, ":,");
      snprintf(word, sizeof word, "%.*s", (int)insitu__base_min(length, sizeof word - 1), p);
      ok = length < sizeof word && tool_u64(word, number[i]) &&
           p[length] == (i < 2 ? ':' : p[length]);
      p += length + (p[length] != 0);
    }
    if (!ok || !skip.n)
      return tool_usage_error(
          "--skip %s: give EPOCH:FIRST:N, such as 0:41200:300, with commas between", prove_skip);
    if (!INSITU__ARRAY_PUSH(s->list, skip)) tool_no_memory();
  }
  return TOOL_OK;
}

struct prove_order {
  insitu_loader *loader;
  struct insitu__plan plan;
  struct insitu__order order;
  bool ready;
  uint64_t sums; /* of an epoch: see prove_walk */
};

static int prove_order_open(struct prove_order *o, struct config *c) {
  insitu_error err = {0};
  c->desc.plan_only = 1;
  insitu_status status = insitu_loader_open(&c->desc, &o->loader, &err);
  if (!status) status = insitu__pass_plan(o->loader, &c->iter, &o->plan, &err);
  if (!status) status = insitu__plan_order(&o->plan, 0, &o->order, &err);
  o->ready = !status;
  return status ? tool_fail_error(&err) : TOOL_OK;
}
static void prove_order_close(struct prove_order *o) {
  if (o->ready) insitu__order_free(&o->order);
  insitu_loader_close(&o->loader);
}

/* ---- a log against the configuration ---- */

/* Receipts [i, end) are of one batch, which the configuration has with a digest and a sum. gap: the
 * digests of the batches before it that have no receipt. False: they differ. */
static bool prove_batch(const struct prove_log *log, uint64_t i, uint64_t end, uint64_t digest,
    uint64_t sum, uint64_t gap, uint64_t gap_first) {
  const struct prove_receipt *first = &log->receipts[i];
  for (; i < end; i++) {
    const struct prove_receipt *r = &log->receipts[i];
    if (r->anchors != digest)
      return prove_differs(r,
          "its samples have the digest %016" PRIx64 ", those of the configuration %016" PRIx64,
          r->anchors, digest);
    if (r->has_running && r->running != sum && r->running == sum - gap)
      return prove_differs(r,
          "the run left out batches %" PRIu64 " to %" PRIu64 ", which --skip does not name",
          gap_first, r->batch - 1);
    if (r->has_running && r->running != sum)
      return prove_differs(r,
          "the batches of its epoch up to it have the digest %016" PRIx64
          ", those of the configuration %016" PRIx64
          ": a batch before it was another one, or left out",
          r->running, sum);
    if (r->rank == first->rank && r->world == first->world && r->has_bytes && first->has_bytes &&
        r->bytes != first->bytes)
      return prove_differs(r, "rank %" PRIu64 " delivered it twice, with other bytes", r->rank);
  }
  return true;
}
/* Walks over the batches of an epoch from receipt i on. Returns the first receipt of the next one;
 * 0: they differ. */
static uint64_t prove_epoch(struct prove_order *o, const struct prove_log *log,
    const struct prove_skips *skips, uint64_t i) {
  uint64_t n = INSITU__ARRAY_LEN(log->receipts), epoch = log->receipts[i].epoch, sum = 0, gap = 0,
           gap_first = 0;
  insitu__order_reset(&o->order, epoch);
  for (uint64_t batch = 0; i < n && log->receipts[i].epoch == epoch; batch++) {
    const struct prove_receipt *r = &log->receipts[i];
    if (r->batch >= o->order.batches) {
      prove_differs(r, "the epoch has %" PRIu64 " batches by the configuration", o->order.batches);
      return 0;
    }
    uint64_t digest = insitu__receipt_batch(&o->plan, &o->order, batch), end = i;
    bool skipped = prove_is_skipped(skips, epoch, batch);
    tool_progress(prove.batches);
    while (end < n && log->receipts[end].epoch == epoch && log->receipts[end].batch == batch) end++;
    if (skipped && end > i) {
      prove_differs(r, "it was delivered, and --skip leaves it out");
      return 0;
    }
    if (!skipped) sum += digest;
    if (end == i) {
      prove.skipped += skipped;
      prove.missing += !skipped;
      if (!gap) gap_first = batch;
      if (!skipped) gap += digest;
      continue;
    }
    prove.batches++;
    if (!prove_batch(log, i, end, digest, sum, gap, gap_first)) return 0;
    gap = 0;
    i = end;
  }
  return i;
}
static void prove_walk(
    struct prove_order *o, const struct prove_log *log, const struct prove_skips *skips) {
  uint64_t n = INSITU__ARRAY_LEN(log->receipts);
  prove.log = log;
  prove.first_epoch = log->receipts[0].epoch;
  prove.last_epoch = log->receipts[n - 1].epoch;
  tool_progress_begin(n, "batches");
  for (uint64_t i = 0; i < n;)
    if (!(i = prove_epoch(o, log, skips, i))) break;
  tool_progress_end();
}

/* ---- two logs ---- */

/* The digests of the batch that begins at receipt i; *end: behind it. bytes: only where each rank
 * has one. */
struct prove_sum {
  uint64_t anchors, bytes;
  bool whole;
};
static struct prove_sum prove_sum(const struct prove_log *log, uint64_t i, uint64_t *end) {
  const struct prove_receipt *first = &log->receipts[i], *last = NULL;
  struct prove_sum s = {.anchors = first->anchors};
  uint64_t ranks = 0, n = INSITU__ARRAY_LEN(log->receipts);
  for (; i < n && log->receipts[i].epoch == first->epoch && log->receipts[i].batch == first->batch;
       i++) {
    const struct prove_receipt *r = &log->receipts[i];
    if (r->world != first->world || !r->has_bytes) ranks = UINT64_MAX / 2;
    if (last && last->rank == r->rank) continue; /* delivered again */
    s.bytes += r->bytes;
    ranks++;
    last = r;
  }
  s.whole = ranks == first->world;
  *end = i;
  return s;
}
/* Batches of a log from receipt i on. */
static uint64_t prove_rest(const struct prove_log *log, uint64_t i) {
  uint64_t n = 0;
  for (uint64_t end; i < INSITU__ARRAY_LEN(log->receipts); i = end, n++) prove_sum(log, i, &end);
  return n;
}
/* Compares the batches that both logs have, and counts those that one has alone. */
static void prove_both(const struct prove_log *log, const struct prove_log *other) {
  uint64_t n = INSITU__ARRAY_LEN(log->receipts), m = INSITU__ARRAY_LEN(other->receipts);
  prove.log = log;
  prove.first_epoch = log->receipts[0].epoch;
  prove.last_epoch = log->receipts[n - 1].epoch;
  uint64_t i = 0, k = 0, i_end, k_end;
  while (i < n && k < m) {
    const struct prove_receipt *a = &log->receipts[i], *b = &other->receipts[k];
    struct prove_sum x = prove_sum(log, i, &i_end), y = prove_sum(other, k, &k_end);
    bool before = a->epoch < b->epoch || (a->epoch == b->epoch && a->batch < b->batch);
    bool same = a->epoch == b->epoch && a->batch == b->batch;
    prove.missing += !same;
    if (same || before) i = i_end;
    if (same || !before) k = k_end;
    if (!same) continue;
    prove.batches++;
    if (x.anchors != y.anchors) {
      prove_differs(a, "its samples differ from those of %s:%u", other->files[b->file], b->line);
      return;
    }
    if (x.whole && y.whole && x.bytes != y.bytes) {
      prove_differs(
          a, "it has the samples of %s:%u, and other bytes", other->files[b->file], b->line);
      return;
    }
  }
  prove.missing += prove_rest(log, i) + prove_rest(other, k);
}

/* ---- a state ---- */

static int prove_state_print(const char *name, const struct insitu__state_stored *has,
    uint64_t next, uint64_t sum, uint64_t batches) {
  const struct insitu__receipt_run *run = &has->receipt;
  bool same = !run->known || run->anchors == sum;
  struct tool_json_out j = {.to = stdout};
  if (tool_json) {
    tool_json_object(&j, NULL);
    tool_json_string(&j, "state", name);
    tool_json_u64(&j, "epoch", has->skips.epoch);
    tool_json_u64(&j, "next", next);
    tool_json_bool(&j, "receipt", run->known);
    tool_json_bool(&j, "same", same);
    tool_json_array(&j, "skipped");
    for (unsigned i = 0; i < has->skips.n; i++) {
      tool_json_list(&j, NULL);
      tool_json_u64(&j, NULL, has->skips.range[i].first);
      tool_json_u64(&j, NULL, has->skips.range[i].end);
      tool_json_end(&j);
    }
    tool_json_end(&j);
    tool_json_end(&j);
    return same ? TOOL_OK : TOOL_FAILED;
  }
  printf("%s: epoch %" PRIu64 ", %" PRIu64 " of %" PRIu64 " batches are over\n", name,
      has->skips.epoch, next, batches);
  for (unsigned i = 0; i < has->skips.n; i++)
    printf("  left out: batches %" PRIu64 " to %" PRIu64 "\n", has->skips.range[i].first,
        has->skips.range[i].end - 1);
  if (!run->known) printf("  it has no digest: desc.receipts was not set all through its epoch\n");
  else if (same) printf("  its samples are those of the configuration: %016" PRIx64 "\n", sum);
  else
    printf("  the run went another way: the digest of its epoch is %016" PRIx64
           ", that of the configuration %016" PRIx64 "; its receipts tell at which batch\n",
        run->anchors, sum);
  return same ? TOOL_OK : TOOL_FAILED;
}
static int prove_state(
    struct prove_order *o, int split, const insitu_state *state, const char *name) {
  insitu_iter *it = (insitu_iter *)tool_alloc(1, sizeof *it);
  struct insitu__state_stored has = {.skips = {.n = 0}};
  insitu_loader_desc as;
  insitu_error err = {0};
  it->loader = o->loader;
  it->split = split;
  it->plan = o->plan;
  it->batches = o->order.batches;
  insitu_status status = insitu__state_check(it, state, &as, &has, &err);
  insitu__mem_free(it);
  uint64_t next = insitu__base_load64(has.plain.bytes + INSITU__STATE_NEXT), sum = 0;
  if (!status && as.unit_chunks * o->plan.geometry->chunk != o->plan.split->unit_rows)
    return tool_fail("%s: the state has units of %" PRIu64
                     " reference chunks; give --unit-chunks %" PRIu64,
        name, as.unit_chunks, as.unit_chunks);
  struct insitu__order order = {.batches = 0};
  struct insitu__plan plan;
  if (!status)
    status = insitu__plan_init(&plan, o->plan.geometry, o->plan.split, split,
        o->plan.layout.sequential ? INSITU_SEQUENTIAL : INSITU_SHUFFLED, &as, &err);
  if (!status) status = insitu__plan_order(&plan, has.skips.epoch, &order, &err);
  if (status) return tool_fail_error(&err);
  tool_progress_begin(next, "batches");
  for (uint64_t batch = 0; has.receipt.known && batch < next; batch++) {
    batch = insitu__receipt_behind(&has.skips, has.skips.epoch, batch);
    if (batch < next) sum += insitu__receipt_batch(&plan, &order, batch);
    tool_progress(batch);
  }
  tool_progress_end();
  uint64_t batches = order.batches;
  insitu__order_free(&order);
  return prove_state_print(name, &has, next, sum, batches);
}

/* ---- the command ---- */

/* Reads a log into *log; or, where the file is a state, that: *state with *is_state. A line longer
 * than the buffer is none of ours, and its pieces count as lines. */
static int prove_read(
    struct prove_log *log, const char *path, insitu_state *state, bool *is_state) {
  FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
  if (!f) return tool_fail("%s: %s", path, strerror(errno));
  char *name = tool_copy(path), *text = (char *)tool_alloc(PROVE_BUFFER, 1);
  if (!INSITU__ARRAY_PUSH(log->files, name)) tool_no_memory();
  uint64_t line = 0, n = 0;
  bool ok = true;
  for (bool begin = true, end = false; ok && !end; begin = false) {
    size_t got = fread(text + n, 1, PROVE_BUFFER - n, f);
    n += got;
    end = n < PROVE_BUFFER;
    *is_state = begin && end && n == sizeof *state && !memcmp(text, "INSITU", 6);
    if (*is_state) break;
    const char *last = (const char *)memrchr(text, '\n', n);
    uint64_t whole = end || !last ? n : (uint64_t)(last - text) + 1;
    ok = prove_lines(log, text, whole, &line);
    n -= whole;
    memmove(text, text + whole, n);
  }
  if (*is_state) memcpy(state, text, sizeof *state);
  int error = ferror(f) ? errno : 0;
  if (f != stdin) fclose(f);
  insitu__mem_free(text);
  if (error) return tool_fail("%s: %s", path, strerror(error));
  if (ok) return TOOL_OK;
  return tool_fail(
      "%s:%" PRIu64 ": this line is no receipt; give what insitu_batch_receipt wrote", path, line);
}
/* Leaves the receipts of one split, sorted. False: there are none. */
static bool prove_sort(struct prove_log *log, uint64_t split) {
  uint64_t n = INSITU__ARRAY_LEN(log->receipts), kept = 0;
  for (uint64_t i = 0; i < n; i++)
    if (log->receipts[i].split == split) log->receipts[kept++] = log->receipts[i];
  if (n) insitu__array_header(log->receipts)->length = kept;
  if (kept) qsort(log->receipts, (size_t)kept, sizeof *log->receipts, prove_compare);
  return kept > 0;
}
static int prove_print(const char *reference) {
  const struct prove_receipt *r = &prove.at;
  const char *file = prove.log->files[r->file];
  bool same = !prove.what[0];
  struct tool_json_out j = {.to = stdout};
  if (tool_json) {
    tool_json_object(&j, NULL);
    tool_json_bool(&j, "same", same);
    tool_json_u64(&j, "batches", prove.batches);
    tool_json_u64(&j, "missing", prove.missing);
    tool_json_u64(&j, "skipped", prove.skipped);
    if (!same) {
      tool_json_object(&j, "difference");
      tool_json_u64(&j, "epoch", r->epoch);
      tool_json_u64(&j, "batch", r->batch);
      tool_json_u64(&j, "rank", r->rank);
      tool_json_string(&j, "file", file);
      tool_json_u64(&j, "line", r->line);
      tool_json_string(&j, "what", prove.what);
      tool_json_end(&j);
    }
    tool_json_end(&j);
    return same ? TOOL_OK : TOOL_FAILED;
  }
  if (!same) {
    tool_put(stdout, file, strlen(file));
    printf(":%u: the run went another way at batch %" PRIu64 " of epoch %" PRIu64 ": ", r->line,
        r->batch, r->epoch);
    tool_wrap(prove.what, 2, 0);
    return TOOL_FAILED;
  }
  printf("%" PRIu64 " batches of epochs %" PRIu64 " to %" PRIu64 " are as %s has them\n",
      prove.batches, prove.first_epoch, prove.last_epoch, reference);
  if (prove.skipped) printf("%" PRIu64 " batches were left out\n", prove.skipped);
  if (prove.missing)
    printf("%" PRIu64 " batches have no receipt%s\n", prove.missing,
        prove_against ? " in one of the logs" : "");
  return TOOL_OK;
}
/* The configuration, and what it says of logs or a state. */
static int prove_by_configuration(
    struct prove_log *log, const insitu_state *state, const struct prove_skips *skips) {
  static struct config c;
  struct prove_order o = {.loader = NULL};
  int code = config_load(&c, NULL);
  /* What starts this process is not what started the run. */
  if (c.desc.rank == INSITU_RANK_FROM_ENV) c.desc.rank = 0;
  if (code == TOOL_OK && !c.desc.world && INSITU__ARRAY_LEN(log->receipts))
    c.desc.world = (int32_t)log->receipts[0].world;
  if (code == TOOL_OK) code = prove_order_open(&o, &c);
  if (code == TOOL_OK && state) {
    code = prove_state(&o, c.iter.split, state, log->files[0]);
  } else if (code == TOOL_OK && !prove_sort(log, (uint64_t)c.iter.split)) {
    code = tool_fail(
        "there is no receipt of split %s; give --split", insitu__split_names[c.iter.split]);
  } else if (code == TOOL_OK) {
    prove_walk(&o, log, skips);
    code = prove_print("the configuration");
  }
  prove_order_close(&o);
  config_free(&c);
  return code;
}
static int prove_run(int argc, char **argv) {
  struct prove_log log = {.files = NULL}, other = {.files = NULL};
  struct prove_skips skips = {.list = NULL};
  insitu_state state;
  bool is_state = false;
  memset(&prove, 0, sizeof prove);
  if (!argc) return tool_usage_error("name a log with receipts, or a state");
  int code = prove_parse_skips(&skips);
  for (int i = 0; code == TOOL_OK && i < argc; i++) {
    code = prove_read(&log, argv[i], &state, &is_state);
    if (code == TOOL_OK && is_state && (argc > 1 || prove_against))
      code = tool_usage_error("%s is a state: give it alone", argv[i]);
  }
  if (code == TOOL_OK && prove_against) {
    code = prove_read(&other, prove_against, &state, &is_state);
    uint64_t split = INSITU__ARRAY_LEN(log.receipts) ? log.receipts[0].split : 0;
    bool some = prove_sort(&log, split) && prove_sort(&other, split);
    if (code == TOOL_OK && !some) code = tool_fail("one of the logs has no receipt");
    if (code == TOOL_OK) {
      prove_both(&log, &other);
      code = prove.batches ? prove_print(prove_against)
                           : tool_fail("the logs have no batch in common; give two of one epoch");
    }
  } else if (code == TOOL_OK) {
    code = prove_by_configuration(&log, is_state ? &state : NULL, &skips);
  }
  prove_log_free(&log);
  prove_log_free(&other);
  INSITU__ARRAY_FREE(skips.list);
  return code;
}

static const struct tool_option prove_options[] = {
    {"skip", 0, "LIST", "batches left out: EPOCH:FIRST:N, with commas between", &prove_skip},
    {"against", 0, "LOG", "compare with another run's receipts, bytes too, instead",
        &prove_against},
    CONFIG_OPTIONS};
static const struct tool_command prove_command = {.name = "prove",
    .arguments = "LOG ... | STATE [--config FILE | --url URL] [options]",
    .summary = "whether a run delivered what its configuration says, batch by batch",
    .details =
        "LOG has the lines that insitu_batch_receipt wrote in a run with desc.receipts; other text "
        "may stand\n"
        "between and before them. Give the logs of several ranks together. The digests of samples "
        "are made anew\n"
        "from the configuration, without reading data; the first batch that differs is named. Of a "
        "STATE, 128\n"
        "bytes, the digest of its epoch is compared. Exit status 1: the run went another way.\n\n"
        "examples:\n"
        "  insitu prove run.log --config train.json\n"
        "  insitu prove rank0.log rank1.log --config train.json --skip 0:41200:300\n"
        "  insitu prove checkpoint.state --config train.json\n"
        "  insitu prove run.log --against other.log\n",
    .options = prove_options,
    .n_options = TOOL_COUNT(prove_options),
    .run = prove_run};
