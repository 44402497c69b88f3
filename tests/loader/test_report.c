/* What the loader says of itself: statistics against brute force, the JSON of
 * insitu_loader_describe against the other functions, log levels, the watchdog; and when next wakes
 * the reactor. */
#define INSITU_WATCHDOG_S 0.25
#define INSITU_IMPLEMENTATION
#include "hold.h"
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include <locale.h>

static insitu_iter *iter_or_fail(insitu_loader *ld, int32_t split, int32_t order) {
  return open_iter_or_fail(
      ld, &(insitu_iter_desc){.api = INSITU_API, .split = split, .order = order});
}
static insitu_stats stats_of(const insitu_loader *ld) {
  insitu_stats s;
  assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
  return s;
}
static uint64_t run_epoch(insitu_iter *it) { /* its batches */
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  uint64_t n = 0;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    insitu_batch_release(&b);
    n++;
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  return n;
}

static struct support_array plain = {.name = "x",
    .ndim = 3,
    .shape = {100, 6, 10},
    .chunk = {8, 6, 10},
    .dtype = INSITU_F32,
    .format = 2};
static const insitu_variable plain_vars[] = {
    {.label = "x"}, {.label = "y", .path = "x", .offset = 3}};
static insitu_loader_desc plain_desc(const char *root, int m) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = plain_vars,
      .n_variables = 2,
      .batch_size = 8,
      .block_chunks = 4,
      .unit_chunks = 1,
      .lanes = 2,
      .seed = 7,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2,
      .hold_epoch = 1};
}

/* ---- durations ---- */

static int ascending(const void *x, const void *y) {
  uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return (a > b) - (a < b);
}

static void test_percentiles(void **state) {
  (void)state;
  unsigned last = 0;
  for (unsigned shift = 0; shift < 64; shift++) /* every edge of an octave, and what is beside it */
    for (int beside = -1; beside <= 1; beside++) {
      uint64_t ns = (UINT64_C(1) << shift) + (uint64_t)beside;
      unsigned b = insitu__report_bucket(ns);
      assert_true(b < INSITU__LOADER_NEXT_BUCKETS && (shift < 2 || b >= last));
      last = shift < 2 ? 0 : b;
      double off = insitu__report_bucket_middle(b) - (double)ns;
      if (!(off <= (double)ns / 32 + 0.5 && -off <= (double)ns / 32 + 0.5))
        fail_msg("%" PRIu64 ": off by %g", ns, off);
    }
  assert_int_equal(insitu__report_bucket(UINT64_MAX), INSITU__LOADER_NEXT_BUCKETS - 1);
  insitu_loader *ld = calloc(1, sizeof *ld);
  static const double share[] = {0.5, 0.95, 0.99};
  double got[3];
  insitu__report_percentiles(ld, share, got, 3);
  assert_true(got[0] == 0 && got[2] == 0);
  for (int round = 0; round < 200; round++) {
    uint64_t n = 1 + support_below(400), ns[400];
    memset(ld, 0, sizeof *ld);
    for (uint64_t i = 0; i < n; i++) {
      ns[i] = support_random() >> support_below(50) >> 14;
      insitu__report_next_took(ld, ns[i]);
    }
    qsort(ns, n, sizeof *ns, ascending);
    insitu__report_percentiles(ld, share, got, 3);
    for (int k = 0; k < 3; k++) { /* the least duration that so large a share does not exceed */
      uint64_t at = 0;
      while ((double)(at + 1) < share[k] * (double)n) at++;
      double want = (double)ns[at];
      if (!(got[k] <= want * 1.04 + 1 && got[k] >= want * 0.96 - 1))
        fail_msg("share %g: %g, not %g", share[k], got[k], want);
      assert_true(got[k] <= (double)ns[n - 1]);
    }
    assert_int_equal(ld->count.next_max, ns[n - 1]);
  }
  free(ld);
}

static void test_stages(void **state) {
  (void)state;
  assert_int_equal(insitu__report_stage(0, 1, 1, 0, 1), INSITU_STAGE_NONE);
  assert_int_equal(insitu__report_stage(1, 0.049, 0, 0, 1), INSITU_STAGE_CONSUMER);
  assert_int_equal(insitu__report_stage(1, 0.05, 0, 0, 0.81), INSITU_STAGE_DECODE);
  assert_int_equal(insitu__report_stage(1, 0.05, 0, 0, 0.8), INSITU_STAGE_READ);
  assert_int_equal(insitu__report_stage(1, 1, 0, 0, 0), INSITU_STAGE_READ);
  assert_int_equal(insitu__report_stage(1, 0.5, 0.25, 0, 0), INSITU_STAGE_READ);
  assert_int_equal(insitu__report_stage(1, 0.5, 0.26, 0, 0.9), INSITU_STAGE_UPLOAD);
  /* of 0.3 that are left */
  assert_int_equal(insitu__report_stage(1, 0.5, 0.2, 0.2, 0), INSITU_STAGE_UPLOAD);
  assert_int_equal(insitu__report_stage(1, 0.5, 0, 0.46, 0), INSITU_STAGE_CONSUMER);
  assert_int_equal(insitu__report_stage(1, 0.049, 0.049, 0, 0), INSITU_STAGE_CONSUMER);
  assert_string_equal(insitu_stage_name(INSITU_STAGE_NONE), "none");
  assert_string_equal(insitu_stage_name(INSITU_STAGE_CONSUMER), "consumer");
  assert_string_equal(insitu_stage_name(INSITU_STAGE_READ), "read");
  assert_string_equal(insitu_stage_name(INSITU_STAGE_DECODE), "decode");
  assert_string_equal(insitu_stage_name(-1), "unknown");
  assert_string_equal(insitu_stage_name(INSITU_STAGE_UPLOAD), "upload");
  assert_string_equal(insitu_stage_name(5), "unknown");
  /* of 2 workers' 10 seconds each; inline, of the 5 seconds inside next */
  insitu_loader *ld = calloc(1, sizeof *ld);
  ld->config.decode_threads = 2;
  assert_true(insitu__report_busy_share(ld, 10, 10, 5) == 0.5);
  ld->config.inline_io = 1;
  assert_true(insitu__report_busy_share(ld, 4, 10, 5) == 0.8);
  assert_true(
      insitu__report_busy_share(ld, 6, 10, 5) == 1 && insitu__report_busy_share(ld, 6, 10, 0) == 0);
  free(ld);
}

/* ---- re-reads ---- */

struct drawn {
  struct support_array array[2];
  insitu_variable variable[4];
  int of[4], n_variables, n_arrays;
  char label[4][8];
  int64_t step[4][3];
  insitu_loader_desc desc;
};

static void draw(struct drawn *s, const char *root, int m) {
  static const char *const names[] = {"a", "b"};
  memset(s, 0, sizeof *s);
  uint64_t samples = 30 + support_below(90);
  s->n_arrays = 1 + (int)support_below(2);
  for (int i = 0; i < s->n_arrays; i++) { /* up to two fields side by side */
    s->array[i] = (struct support_array){.name = names[i],
        .ndim = 2,
        .shape = {samples, 4},
        .chunk = {1 + support_below(support_below(2) ? 12 : 3), 2 + 2 * support_below(2)},
        .dtype = INSITU_U8,
        .format = 2,
        .absent = support_below(4) ? 0 : 3};
    support_make(root, &s->array[i]);
  }
  s->n_variables = s->n_arrays + (int)support_below(3);
  for (int i = 0; i < s->n_variables; i++) {
    insitu_variable *v = &s->variable[i];
    s->of[i] = i < s->n_arrays ? i : (int)support_below((uint64_t)s->n_arrays);
    sprintf(s->label[i], "v%d", i);
    *v = (insitu_variable){.label = s->label[i], .path = names[s->of[i]]};
    if (support_below(3)) v->offset = (int64_t)support_below(9) - 4;
    if (support_below(4)) continue;
    v->steps = s->step[i];
    v->n_steps = 1 + support_below(3);
    for (uint64_t k = 0; k < v->n_steps; k++) s->step[i][k] = (int64_t)support_below(15) - 7;
  }
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = s->variable,
      .n_variables = (uint64_t)s->n_variables,
      .batch_size = 1 + support_below(8),
      .seed = support_random(),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = 1 + support_below(3),
      .prefetch_depth = 1 + support_below(8),
      .max_inflight = 1 + support_below(8),
      .world = 1,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .split_shuffled = !support_below(3),
      .split_spill = !support_below(3),
      .assembly = INSITU_SCATTER, /* windows share chunks that are kept */
      .hold_epoch = 1};
  if (!support_below(3)) {
    s->desc.world = 2;
    s->desc.rank = (int32_t)support_below(2);
    s->desc.lanes = 2;
  }
}

/* Two epochs; in each, what was read again is all that was read but the different chunks that the
 * delivered rows show. */
static void check_rereads(
    const struct drawn *s, insitu_loader *ld, const insitu_iter_desc *id, int *exact, int *some) {
  insitu_iter *it = NULL;
  insitu_plan plan;
  insitu_stats before = stats_of(ld);              /* an iterator reads from its opening on */
  if (insitu_iter_open(ld, id, &it, NULL)) return; /* too small for a batch */
  assert_int_equal(insitu_loader_plan(ld, id, &plan, NULL), INSITU_OK);
  for (int epoch = 0; epoch < 2; epoch++) {
    static unsigned char seen[2][200];
    uint64_t distinct = 0;
    insitu_batch *b;
    memset(seen, 0, sizeof seen);
    insitu_error err = {0};
    insitu_status status;
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
      for (uint64_t r = 0; r < b->rows; r++)
        for (int i = 0; i < s->n_variables; i++)
          for (uint64_t k = 0; k < (s->variable[i].n_steps ? s->variable[i].n_steps : 1); k++) {
            const struct support_array *a = &s->array[s->of[i]];
            int64_t at = b->sample_indices[r] + s->variable[i].offset +
                         (s->variable[i].n_steps ? s->step[i][k] : 0);
            unsigned char *chunk = &seen[s->of[i]][(uint64_t)at / a->chunk[0]];
            if (!*chunk) distinct += insitu__base_ceil_div(a->shape[1], a->chunk[1]);
            *chunk = 1;
          }
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
    insitu_stats now = stats_of(ld);
    uint64_t reads = now.reads - before.reads, rereads = now.rereads - before.rereads;
    if (rereads != reads - distinct)
      fail_msg("%d reads of %d chunks, %d re-reads", (int)reads, (int)distinct, (int)rereads);
    if (!epoch) { /* at every world size, and whatever the epoch drops */
      assert_int_equal(reads, plan.reads);
      assert_int_equal(distinct, plan.distinct);
      assert_true(plan.amplification >= 1);
      assert_true(plan.amplification > 1 || rereads == 0);
      ++*exact;
    }
    *some += rereads > 0;
    before = now;
  }
  insitu_iter_close(&it);
}

static void test_rereads(void **state) {
  (void)state;
  int rounds = support_rounds(40);
  EACH_MODE (m) {
    int exact = 0, some = 0;
    for (int round = 0; round < rounds; round++) {
      struct drawn s;
      const char *root = support_path("rereads");
      draw(&s, root, m);
      insitu_loader *ld = open_or_fail(&s.desc);
      for (int32_t split = INSITU_TRAIN; split <= INSITU_ALL; split += 3)
        for (int32_t order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++)
          check_rereads(&s, ld,
              &(insitu_iter_desc){.api = INSITU_API, .split = split, .order = order}, &exact,
              &some);
      insitu_loader_close(&ld);
      support_remove(root);
    }
    assert_true(exact > rounds / 2 && some > rounds / 2); /* the draws are worth something */
  }
}

/* ---- counters ---- */

/* What opening and insitu_read do counts as well: indexes of shards that dates are read by, and
 * memory. */
static void test_counters_of_reads(void **state) {
  (void)state;
  const char *root = support_path("readcounters");
  static double days[100];
  for (int i = 0; i < 100; i++) days[i] = i;
  struct support_array x = plain, t = {.name = "time",
                                      .ndim = 1,
                                      .shape = {100},
                                      .chunk = {10},
                                      .shard = {2},
                                      .dtype = INSITU_F64,
                                      .format = 3,
                                      .dims = "[\"time\"]",
                                      .attributes = "\"units\":\"days since 2000-01-01\"",
                                      .values = days};
  x.format = 3;
  x.dims = "[\"time\",\"y\",\"x\"]";
  support_make(root, &x);
  support_make(root, &t);
  for (int plan_only = 0; plan_only < 2; plan_only++)
    EACH_MODE (m) {
      insitu_loader_desc d = plain_desc(root, m);
      d.plan_only = plan_only;
      d.sample_from = "2000-01-03";
      insitu_loader *ld = open_or_fail(&d);
      insitu_stats s = stats_of(ld), after;
      assert_int_equal(s.index_reads, 5); /* shards of the coordinate */
      assert_int_equal(s.index_bytes, 5 * 2 * 16);
      assert_int_equal(s.reads, 10);
      assert_true(s.memory_bytes_peak >= sizeof days);
      insitu_shape shape;
      insitu_variable v = {.label = "x"}, time = {.label = "time"};
      assert_int_equal(insitu_read(ld, &v, NULL, 0, &shape, NULL), INSITU_OK);
      void *got = malloc(shape.bytes);
      uint64_t before = ld->count.memory_bytes;
      ld->count.memory_bytes_peak = before; /* from here on */
      assert_int_equal(insitu_read(ld, &v, got, shape.bytes, NULL, NULL), INSITU_OK);
      after = stats_of(ld);
      assert_true(after.memory_bytes_peak >= before + 8 * 6 * 10 * 4); /* a chunk at least */
      /* and all of it is given back */
      assert_int_equal(ld->count.memory_bytes, before);
      assert_int_equal(insitu_read(ld, &time, got, shape.bytes, NULL, NULL), INSITU_OK);
      assert_int_equal(stats_of(ld).index_reads, 10);
      free(got);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

static void test_counters(void **state) {
  (void)state;
  const char *root = support_path("counters");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_stats s = stats_of(ld);
    assert_true(s.stall_share == 0 && s.decode_busy == 0 && s.limiting_stage == INSITU_STAGE_NONE &&
                s.next_max_s == 0);
    uint64_t batches = 0, rows = 0, seen = 0, promised = 0;
    for (int round = 0; round < 6; round++) { /* iterators that come and go do not add up */
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL),
                  *other = iter_or_fail(ld, INSITU_TRAIN, 0);
      promised = stats_of(ld).memory_promised;
      uint64_t n = run_epoch(it);
      assert_int_equal(n, 13);
      batches += n + run_epoch(other);
      rows += 97;
      insitu_iter_close(&it);
      insitu_iter_close(&other);
      s = stats_of(ld);
      assert_true(s.memory_bytes_peak <= promised);
    }
    rows += (batches - 6 * 13) * 8;
    assert_int_equal(s.batches, batches);
    assert_int_equal(s.rows, rows);
    for (unsigned b = 0; b < INSITU__LOADER_NEXT_BUCKETS; b++) seen += ld->count.next_in[b];
    assert_int_equal(seen, batches);
    assert_true(s.memory_bytes_peak > s.slab_bytes_peak && s.memory_promised < promised);
    assert_true(s.next_p50_s <= s.next_p95_s && s.next_p95_s <= s.next_p99_s &&
                s.next_p99_s <= s.next_max_s);
    assert_true(s.first_batch_s > 0 && s.stall_s >= s.next_max_s && s.stall_share > 0 &&
                s.stall_share <= 1);
    assert_true(s.limiting_stage != INSITU_STAGE_NONE && s.decode_busy > 0 && s.decode_busy <= 1);
    assert_int_equal(s.slab_bytes, 0);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* ---- describe ---- */

struct json {
  struct insitu__text_json j;
  char *text;
};

static struct json describe(const insitu_loader *ld) {
  struct json d = {.text = malloc(1 << 20)};
  insitu_error err = {0};
  uint64_t n = insitu_loader_describe(ld, d.text, 1 << 20);
  assert_true(n && n < 1 << 20);
  assert_int_equal(strlen(d.text), n);
  if (insitu__text_json_parse(&d.j, d.text, n, "describe", &err))
    fail_msg("%s: %s", err.message, d.text);
  return d;
}
static void done(struct json *d) {
  insitu__text_json_free(&d->j);
  free(d->text);
}
static int get(const struct json *d, int object, const char *key) {
  int t = insitu__text_json_get(&d->j, object, key);
  if (t < 0) fail_msg("no %s in %s", key, d->text);
  return t;
}
static int element(const struct json *d, int list, int n) {
  int t = insitu__text_json_first(&d->j, list);
  while (n-- > 0) t = insitu__text_json_next(&d->j, t);
  assert_true(t >= 0);
  return t;
}
static void is_u64(const struct json *d, int object, const char *key, uint64_t want) {
  uint64_t got;
  assert_true(insitu__text_json_u64(&d->j, get(d, object, key), &got));
  if (got != want) fail_msg("%s is %" PRIu64 ", not %" PRIu64, key, got, want);
}
static void is_i64(const struct json *d, int object, const char *key, int64_t want) {
  int64_t got;
  assert_true(insitu__text_json_i64(&d->j, get(d, object, key), &got));
  if (got != want) fail_msg("%s is %" PRId64 ", not %" PRId64, key, got, want);
}
static double number(const struct json *d, int object, const char *key) {
  double got;
  assert_true(insitu__text_json_double(&d->j, get(d, object, key), &got));
  return got;
}
static void is_double(const struct json *d, int object, const char *key, double want) {
  double got = number(d, object, key);
  if (got != want) fail_msg("%s is %.17g, not %.17g", key, got, want);
}
static void is_flag(const struct json *d, int object, const char *key, int32_t want) {
  int t = get(d, object, key);
  if (!(want ? insitu__text_json_is_true : insitu__text_json_is_false)(&d->j, t))
    fail_msg("%s is wrong", key);
}
static void is_text(const struct json *d, int object, const char *key, const char *want) {
  char got[2000];
  assert_true(insitu__text_json_string(&d->j, get(d, object, key), got, sizeof got) >= 0);
  assert_string_equal(got, want);
}
static void is_list(
    const struct json *d, int object, const char *key, const int64_t *want, uint64_t n) {
  int list = get(d, object, key);
  assert_int_equal(insitu__text_json_size(&d->j, list), n);
  for (uint64_t i = 0; i < n; i++) {
    int64_t got;
    assert_true(insitu__text_json_i64(&d->j, element(d, list, (int)i), &got));
    assert_int_equal(got, want[i]);
  }
}

static void check_variable(const struct json *d, int at, const insitu_variable *v) {
  is_text(d, at, "label", v->label);
  is_text(d, at, "path", v->path ? v->path : v->label);
  is_i64(d, at, "offset", v->offset);
  if (v->n_steps) is_list(d, at, "steps", v->steps, v->n_steps);
  else assert_int_equal(insitu__text_json_get(&d->j, at, "steps"), -1);
  is_text(d, at, "dtype",
      v->dtype == INSITU_F32    ? "float32"
      : v->dtype == INSITU_BF16 ? "bfloat16"
                                : "as_stored");
  int slices = get(d, at, "slices");
  assert_int_equal(insitu__text_json_size(&d->j, slices), v->n_slices);
  for (uint64_t k = 0; k < v->n_slices; k++) {
    int slice = element(d, slices, (int)k);
    if (v->slices[k].dim) is_text(d, slice, "dim", v->slices[k].dim);
    else is_i64(d, slice, "axis", v->slices[k].axis);
    is_i64(d, slice, "start", v->slices[k].start);
    is_i64(d, slice, "stop", v->slices[k].stop);
  }
}

static void check_config(const struct json *d, const insitu_loader_desc *c) {
  int at = get(d, 0, "config"), vars = get(d, at, "variables"), split = get(d, at, "split");
  static const char *const holes[] = {"auto", "raise", "fill"};
  assert_int_equal(insitu__text_json_size(&d->j, vars), c->n_variables);
  for (uint64_t i = 0; i < c->n_variables; i++)
    check_variable(d, element(d, vars, (int)i), &c->variables[i]);
  assert_int_equal(insitu__text_json_size(&d->j, split), 3);
  for (int p = 0; p < 3; p++) {
    is_double(d, element(d, split, p), "fraction", c->split[p].fraction);
    is_i64(d, element(d, split, p), "start", c->split[p].start);
    is_i64(d, element(d, split, p), "stop", c->split[p].stop);
  }
  is_text(d, at, "url", c->url);
  if (c->sample_dim) is_text(d, at, "sample_dim", c->sample_dim);
  else is_i64(d, at, "sample_axis", c->sample_axis);
  assert_int_equal(
      insitu__text_json_get(&d->j, at, c->sample_dim ? "sample_axis" : "sample_dim"), -1);
  if (c->manifest) is_text(d, at, "manifest", c->manifest);
  else assert_int_equal(insitu__text_json_get(&d->j, at, "manifest"), -1);
  is_u64(d, at, "batch_size", c->batch_size);
  is_u64(d, at, "seed", c->seed);
  is_i64(d, at, "rank", c->rank);
  is_i64(d, at, "world", c->world);
  is_u64(d, at, "block_chunks", c->block_chunks);
  is_u64(d, at, "unit_chunks", c->unit_chunks);
  is_u64(d, at, "lanes", c->lanes);
  is_i64(d, at, "sample_start", c->sample_start);
  is_i64(d, at, "sample_stop", c->sample_stop);
  is_flag(d, at, "split_shuffled", c->split_shuffled);
  is_flag(d, at, "split_spill", c->split_spill);
  is_u64(d, at, "split_gap", c->split_gap);
  is_text(d, at, "on_bad_chunk", holes[c->on_bad_chunk]);
  is_text(d, at, "on_absent_chunk", holes[c->on_absent_chunk]);
  is_u64(d, at, "prefetch_depth", c->prefetch_depth);
  is_u64(d, at, "max_inflight", c->max_inflight);
  is_u64(d, at, "decode_threads", c->decode_threads);
  is_u64(d, at, "memory_budget", c->memory_budget);
  is_text(d, at, "io", c->io == INSITU_IO_URING ? "uring" : "epoll");
  is_flag(d, at, "inline_io", c->inline_io);
  is_flag(d, at, "hold_epoch", c->hold_epoch);
}

static void check_arrays(const struct json *d, const insitu_loader *ld) {
  int arrays = get(d, 0, "arrays"), outputs = get(d, arrays, "outputs"),
      stored = get(d, arrays, "stored");
  const insitu_array *a;
  uint64_t i = 0;
  for (; (a = insitu_loader_array(ld, i)); i++) {
    int at = element(d, outputs, (int)i);
    is_text(d, at, "name", a->name);
    is_text(d, at, "dtype",
        a->dtype == INSITU_F32    ? "float32"
        : a->dtype == INSITU_BF16 ? "bfloat16"
                                  : "int16");
    is_list(d, at, "shape", a->shape, (uint64_t)a->ndim);
    is_u64(d, at, "bytes", a->bytes);
  }
  assert_int_equal(insitu__text_json_size(&d->j, outputs), i);
  assert_int_equal(insitu__text_json_size(&d->j, stored), 1);
  int at = element(d, stored, 0), codecs = get(d, at, "codecs"), dims = get(d, at, "dims");
  is_text(d, at, "path", "x");
  is_text(d, at, "dtype", "int16");
  is_list(d, at, "shape", (const int64_t[]){60, 6}, 2);
  is_list(d, at, "chunks", (const int64_t[]){5, 4}, 2);
  assert_int_equal(insitu__text_json_size(&d->j, codecs), 1);
  assert_true(insitu__text_json_equals(&d->j, element(d, codecs, 0), "zstd"));
  assert_int_equal(insitu__text_json_size(&d->j, dims), 2);
  assert_true(insitu__text_json_is_null(&d->j, element(d, dims, 0)));
}

static void check_plan(
    const struct json *d, const insitu_loader *ld, int32_t split, const char *name) {
  insitu_plan p;
  insitu_error err = {0};
  int at = get(d, get(d, 0, "plan"), name);
  if (insitu_loader_plan(ld, &(insitu_iter_desc){.api = INSITU_API, .split = split}, &p, &err)) {
    is_text(d, at, "error", err.message);
    return;
  }
  is_u64(d, at, "order_version", p.order_version);
  is_u64(d, at, "estimated", p.estimated);
  is_u64(d, at, "samples", p.samples);
  is_u64(d, at, "batches", p.batches);
  is_u64(d, at, "rows", p.rows);
  is_u64(d, at, "space", p.space);
  int dropped = get(d, at, "dropped"), reasons = 0;
  for (int32_t r = 0; r < INSITU_DROPS; r++) {
    if (p.dropped[r]) is_u64(d, dropped, insitu_drop_name(r), p.dropped[r]);
    reasons += p.dropped[r] > 0;
  }
  assert_int_equal(insitu__text_json_size(&d->j, dropped), reasons);
  is_u64(d, at, "units", p.units);
  is_u64(d, at, "unit_rows", p.unit_rows);
  is_u64(d, at, "lanes", p.lanes);
  is_u64(d, at, "window", p.window);
  is_u64(d, at, "span", p.span);
  is_u64(d, at, "reads", p.reads);
  is_u64(d, at, "distinct", p.distinct);
  is_u64(d, at, "read_bytes", p.read_bytes);
  is_u64(d, at, "wanted", p.wanted);
  is_double(d, at, "amplification", p.amplification);
  is_double(d, at, "dedup", p.dedup);
  is_u64(d, at, "slabs", p.slabs);
  is_u64(d, at, "slab_bytes", p.slab_bytes);
  is_u64(d, at, "table_bytes", p.table_bytes);
  is_u64(d, at, "inflight_bytes", p.inflight_bytes);
  is_double(d, at, "variance_ratio", p.variance_ratio);
}

/* Of a loader without iterators, whose counters stand still; shares of elapsed time lie between two
 * looks at them. */
static void check_statistics(
    const struct json *d, const insitu_stats *before, const insitu_stats *after) {
  int at = get(d, 0, "statistics");
  is_u64(d, at, "batches", after->batches);
  is_u64(d, at, "rows", after->rows);
  is_u64(d, at, "reads", after->reads);
  is_u64(d, at, "rereads", after->rereads);
  is_u64(d, at, "bytes_read", after->bytes_read);
  is_u64(d, at, "bytes_decoded", after->bytes_decoded);
  is_u64(d, at, "absent_chunks", after->absent_chunks);
  is_u64(d, at, "bad_chunks", after->bad_chunks);
  is_u64(d, at, "slab_bytes", after->slab_bytes);
  is_u64(d, at, "slab_bytes_peak", after->slab_bytes_peak);
  is_u64(d, at, "memory_bytes_peak", after->memory_bytes_peak);
  is_u64(d, at, "memory_promised", after->memory_promised);
  is_u64(d, at, "inflight_peak", after->inflight_peak);
  is_double(d, at, "stall_s", after->stall_s);
  is_double(d, at, "first_batch_s", after->first_batch_s);
  is_double(d, at, "next_p50_s", after->next_p50_s);
  is_double(d, at, "next_p95_s", after->next_p95_s);
  is_double(d, at, "next_p99_s", after->next_p99_s);
  is_double(d, at, "next_max_s", after->next_max_s);
  assert_true(number(d, at, "stall_share") <= before->stall_share &&
              number(d, at, "stall_share") >= after->stall_share);
  assert_true(number(d, at, "decode_busy") <= before->decode_busy &&
              number(d, at, "decode_busy") >= after->decode_busy);
  if (before->limiting_stage == after->limiting_stage)
    is_text(d, at, "limiting_stage", insitu_stage_name(after->limiting_stage));
  is_text(d, at, "io", after->io);
}

static void test_describe(void **state) {
  (void)state;
  const char *root = support_path("describe");
  struct support_array x = {.name = "x",
      .ndim = 2,
      .shape = {60, 6},
      .chunk = {5, 4},
      .dtype = INSITU_I16,
      .format = 3,
      .zstd = true,
      .absent = 4};
  support_make(root, &x);
  static const int64_t steps[] = {-2, 0, 1};
  static const insitu_slice slices[] = {{.axis = 1, .start = 1, .stop = 5}};
  insitu_variable vars[] = {{.label = "x"},
      {.label = "a \"label\" with \\ and \n\t\x01\x7f",
          .path = "x",
          .offset = -1,
          .steps = steps,
          .n_steps = 3,
          .dtype = INSITU_F32},
      {.label = "\xc3\xa9t\xc3\xa9 \xf0\x9f\x8c\x8d",
          .path = "x",
          .slices = slices,
          .n_slices = 1,
          .dtype = INSITU_BF16}};
  EACH_MODE (m)
    for (int k = 0; k < 4; k++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = vars,
          .n_variables = 3,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io,
          .hold_epoch = 1,
          .batch_size = 4 + 9 * (uint64_t)(k & 1),
          .plan_only = k == 3};
      if (k == 1) { /* every member, and splits that are too small for a batch */
        d.seed = UINT64_MAX;
        d.block_chunks = 3;
        d.unit_chunks = 2;
        d.lanes = 13;
        d.sample_start = 1;
        d.sample_stop = 59;
        d.split_spill = d.split_shuffled = 1;
        d.split_gap = 1;
        d.on_bad_chunk = d.on_absent_chunk = INSITU_FILL;
        d.prefetch_depth = 3;
        d.max_inflight = 5;
        d.decode_threads = 3;
        d.memory_budget = 100000001;
        d.split[0].fraction = 1.0 / 3;
      }
      if (k == 2) {
        d.split[0].start = 10;
        d.split[0].stop = 59;
      }
      insitu_loader *ld = open_or_fail(&d);
      struct json j;
      if (!d.plan_only) {
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL, 0);
        insitu_plan p;
        run_epoch(it);
        assert_int_equal(insitu_loader_plan(ld,
                             &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &p, NULL),
            INSITU_OK);
        j = describe(ld);
        int memory = get(&j, 0, "memory");
        is_u64(&j, memory, "slabs", p.slabs * p.slab_bytes);
        is_u64(&j, memory, "tables", p.table_bytes);
        is_u64(&j, memory, "in_flight", p.inflight_bytes);
        is_u64(
            &j, memory, "reserved_now", p.slabs * p.slab_bytes + p.table_bytes + p.inflight_bytes);
        is_u64(&j, memory, "budget", insitu_loader_config(ld)->memory_budget);
        done(&j);
        insitu_iter_close(&it);
      }
      insitu_stats before = stats_of(ld), after;
      j = describe(ld);
      after = stats_of(ld);
      check_statistics(&j, &before, &after);
      is_u64(&j, get(&j, 0, "memory"), "slabs", 0); /* given back */
      is_u64(&j, get(&j, 0, "memory"), "tables", 0);
      check_config(&j, insitu_loader_config(ld));
      check_arrays(&j, ld);
      static const char *const splits[] = {"train", "val", "test", "all"};
      for (int32_t p = 0; p < 4; p++) check_plan(&j, ld, p, splits[p]);
      int origins = get(&j, 0, "origins");
      is_text(&j, origins, "batch_size", "desc");
      is_text(&j, origins, "block_chunks", k == 1 ? "desc" : "default");
      is_text(&j, origins, "split", k == 1 || k == 2 ? "desc" : "default");
      is_text(&j, origins, "max_inflight", k == 1 ? "desc" : "archive");
      is_text(&j, origins, "prefetch_depth", k == 1 ? "desc" : "archive");
      is_text(&j, origins, "decode_threads",
          modes[m].inline_io                                ? "inline_io"
          : k == 1                                          ? "desc"
          : insitu__mem_cgroup(true) == insitu__mem_cores() ? "cgroup"
                                                            : "affinity");
      is_text(&j, origins, "memory_budget",
          k == 1                                             ? "desc"
          : insitu__mem_cgroup(false) == insitu__mem_total() ? "cgroup"
                                                             : "machine");
      is_text(&j, origins, "io", "desc");
      assert_int_equal(insitu__text_json_size(&j.j, origins),
          /* url, sample_dim, time_path, manifest, stats, cache_dir, trace have none */
          INSITU__CONFIG_FIELDS - 7);
      done(&j);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

static void test_origin_of_io(void **state) {
  (void)state;
  const char *root = support_path("origin"), *old = getenv("INSITU_IO");
  char kept[16];
  snprintf(kept, sizeof kept, "%s", old ? old : "");
  support_make(root, &plain);
  for (int k = 0; k < 3; k++) {
    insitu_loader_desc d = plain_desc(root, 1);
    if (k < 2) d.io = INSITU_AUTO;
    if (k) setenv("INSITU_IO", "epoll", 1);
    else unsetenv("INSITU_IO");
    insitu_loader *ld = open_or_fail(&d);
    struct json j = describe(ld);
    is_text(&j, get(&j, 0, "origins"), "io", k == 0 ? "machine" : k == 1 ? "environment" : "desc");
    if (k) is_text(&j, get(&j, 0, "config"), "io", "epoll");
    done(&j);
    insitu_loader_close(&ld);
  }
  if (old) setenv("INSITU_IO", kept, 1);
  else unsetenv("INSITU_IO");
  support_remove(root);
}

/* What a configuration says that has no effect here, and why there are so few decoders. */
static void keep_line(void *user, int32_t level, const char *line) {
  if (level == 2) strncat(user, line, 3000 - strlen(user));
}
static void test_notes(void **state) {
  (void)state;
  const char *root = support_path("notes");
  char log[4000] = "";
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  struct json j = describe(ld);
  assert_int_equal(insitu__text_json_size(&j.j, get(&j, 0, "notes")), 0);
  done(&j);
  insitu_loader_close(&ld);
  d.cache_dir = support_path("none/such");
  d.options =
      (insitu_option[]){{"region", "mars-1"}, {"aws_access_key_id", "x"}, {"max_retries", "many"}};
  d.n_options = 3;
  d.decode_threads = 0;
  d.log_level = INSITU_LOG_INFO;
  d.log = keep_line;
  d.log_user = log;
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  ld = open_or_fail(&d);
  bool several = sysconf(_SC_NPROCESSORS_ONLN) > 1 && insitu__mem_cgroup(true) > 1;
  j = describe(ld);
  assert_int_equal(insitu__text_json_size(&j.j, get(&j, 0, "notes")), 2 + several);
  assert_non_null(strstr(j.text, "cache_dir is not used: the archive is local"));
  assert_non_null(strstr(j.text, "options are not used: the archive is local"));
  done(&j);
  assert_non_null(strstr(log, "cache_dir is not used: the archive is local"));
  assert_true(access(d.cache_dir, F_OK) != 0);
  if (several) assert_non_null(strstr(log, "decode_threads is 1: this process may use 1 core of "));
  if (several) assert_non_null(strstr(log, "mpirun --bind-to none"));
  insitu_loader_close(&ld);
  sched_setaffinity(0, sizeof all, &all);
#ifndef INSITU_NO_CURL
  insitu_error err = {0};
  d.options = &(insitu_option){"regoin", "mars-1"};
  d.n_options = 1;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "did you mean 'region'?"));
#endif
  support_remove(root);
}

/* A plan_only loader, which nothing changes: the text is the same every time, cut anywhere. */
static void test_describe_truncated(void **state) {
  (void)state;
  const char *root = support_path("truncated");
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, 1);
  d.plan_only = 1;
  insitu_loader *ld = open_or_fail(&d);
  uint64_t n = insitu_loader_describe(ld, NULL, 0);
  char *whole = malloc(n + 1), *part = malloc(n + 3);
  assert_int_equal(insitu_loader_describe(ld, whole, n + 1), n);
  assert_int_equal(strlen(whole), n);
  /* every length, but of the middle ones some where that takes long */
  for (uint64_t cap = 0; cap <= n + 2; cap += support_slow() && cap > 9 && cap + 20 < n ? 7 : 1) {
    memset(part, '#', n + 3);
    assert_int_equal(insitu_loader_describe(ld, part, cap), n);
    uint64_t kept = cap ? insitu__base_min(cap - 1, n) : 0;
    assert_memory_equal(part, whole, kept);
    if (cap) assert_int_equal(part[kept], 0);
    for (uint64_t i = cap ? kept + 1 : 0; i < n + 3; i++) assert_int_equal(part[i], '#');
  }
  assert_int_equal(insitu_loader_describe(NULL, part, 8), 0);
  assert_int_equal(part[0], 0);
  free(whole);
  free(part);
  insitu_loader_close(&ld);
  support_remove(root);
}

static void test_strings(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *want;
  } at[] = {{"\x80", "\xef\xbf\xbd"}, {"a\xff\x62", "a\xef\xbf\xbd\x62"}, {"\xc3", "\xef\xbf\xbd"},
      {"\xc3(", "\xef\xbf\xbd("}, {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xe0\x80\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xf0\x8f\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"}, {"\xe2\x82\xac", "\xe2\x82\xac"},
      {"\xc2\x80\xdf\xbf", "\xc2\x80\xdf\xbf"},
      {"\xe0\xa0\x80\xef\xbf\xbf", "\xe0\xa0\x80\xef\xbf\xbf"},
      {"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
      {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
      {"\"\\\x01\x1f\x7f/\n", "\"\\\x01\x1f\x7f/\n"}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    struct insitu__text_buffer b = {0};
    struct insitu__text_json j;
    char got[64];
    assert_true(insitu__text_buffer_json_string(&b, at[i].bytes));
    assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "", NULL), INSITU_OK);
    assert_int_equal(insitu__text_json_string(&j, 0, got, sizeof got), strlen(at[i].want));
    assert_string_equal(got, at[i].want);
    insitu__text_json_free(&j);
    insitu__text_buffer_free(&b);
  }
  /* those the machine has */
  static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
  for (size_t l = 0; l < 4; l++) {
    if (!setlocale(LC_NUMERIC, locales[l])) continue;
    for (int i = 0; i < 3000; i++) {
      union {
        uint64_t bits;
        double x;
      } u = {.bits = i % 3 ? support_random() : 0};
      if (i % 3 == 0) u.x = (double)support_below(100000) / 1000;
      struct insitu__text_buffer b = {0};
      struct insitu__text_json j;
      double got;
      assert_true(insitu__text_buffer_double(&b, u.x));
      assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "", NULL), INSITU_OK);
      if (!__builtin_isfinite(u.x)) assert_true(insitu__text_json_is_null(&j, 0));
      else assert_true(insitu__text_json_double(&j, 0, &got) && got == u.x);
      insitu__text_json_free(&j);
      insitu__text_buffer_free(&b);
    }
  }
  setlocale(LC_NUMERIC, "C");
}

/* While threads ask, the epochs go on. */
static void *ask(void *arg) { /* NULL: every answer was good */
  char text[100];
  insitu_stats s;
  bool ok = true;
  for (int i = 0; i < 50; i++)
    ok = ok && insitu_loader_stats(arg, &s, NULL) == INSITU_OK &&
         insitu_loader_describe(arg, text, sizeof text) > 1000;
  return ok ? NULL : arg;
}
static void test_any_thread(void **state) {
  (void)state;
  const char *root = support_path("asked");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, ld), 0);
    for (int epoch = 0; epoch < 10; epoch++) run_epoch(it);
    void *bad = ld;
    pthread_join(thread, &bad);
    assert_null(bad);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

/* ---- log ---- */

/* its lines are counted apart: on a machine that is busy enough it warns of any chunk */
enum { WATCHDOG = 4 };
static struct {
  pthread_mutex_t lock;
  int lines[5];
  const char *named; /* only lines of the watchdog that hold it count; NULL: all */
  /* of the chunk that the watchdog named last; least time between two warnings */
  double age, least;
  char last[5][1300];
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(void *user, int32_t level, const char *line) {
  assert_ptr_equal(user, &logged);
  assert_true(level >= 0 && level < 4);
  int kind = level == 1 && strstr(line, "watchdog") ? WATCHDOG : level;
  pthread_mutex_lock(&logged.lock);
  if (kind == WATCHDOG && logged.named && !strstr(line, logged.named)) {
    pthread_mutex_unlock(&logged.lock);
    return;
  }
  if (kind == WATCHDOG) {
    const char *age = strstr(line, " for ");
    double was = logged.age;
    logged.age = age ? strtod(age + 5, NULL) : -1;
    if (logged.lines[WATCHDOG] && logged.age - was < logged.least) logged.least = logged.age - was;
  }
  logged.lines[kind]++;
  snprintf(logged.last[kind], sizeof logged.last[kind], "%s", line);
  pthread_mutex_unlock(&logged.lock);
}
static void forget(const char *named) {
  pthread_mutex_lock(&logged.lock);
  logged.named = named;
  memset(logged.lines, 0, sizeof logged.lines);
  memset(logged.last, 0, sizeof logged.last);
  logged.least = 1e9;
  pthread_mutex_unlock(&logged.lock);
}
static int warned(void) {
  pthread_mutex_lock(&logged.lock);
  int n = logged.lines[WATCHDOG];
  pthread_mutex_unlock(&logged.lock);
  return n;
}

enum { LOG_EPOCHS = 6 };

/* One damaged chunk, filled in each epoch. level: how far the log goes. */
static void check_log(const insitu_loader_desc *d, int level) {
  forget(NULL);
  insitu_loader *ld = open_or_fail(d);
  insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
  for (int epoch = 0; epoch < LOG_EPOCHS; epoch++) {
    char batches[100], holes[100];
    uint64_t before = stats_of(ld).rereads;
    snprintf(batches, sizeof batches, "iterator all, epoch %d: %d batches in", epoch,
        (int)run_epoch(it));
    snprintf(holes, sizeof holes, "; %d re-reads, 1 holes filled",
        epoch ? (int)(stats_of(ld).rereads - before) : 0);
    if (level >= 2 &&
        !(strstr(logged.last[2], batches) && (!epoch || strstr(logged.last[2], holes))))
      fail_msg("%s: not %s%s", logged.last[2], batches, holes);
  }
  uint64_t reads = stats_of(ld).reads;
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  assert_int_equal(logged.lines[0], 0);
  assert_int_equal(logged.lines[1], level >= 1 ? LOG_EPOCHS : 0);
  assert_int_equal(logged.lines[2], level >= 2 ? 2 + LOG_EPOCHS : 0);
  assert_int_equal(logged.lines[3], level >= 3 ? reads : 0);
  if (level >= 1) assert_non_null(strstr(logged.last[1], "array x, chunk x/3.0.0 is filled"));
  if (level >= 3) assert_non_null(strstr(logged.last[3], "array x, chunk x/"));
}

static void test_log_levels(void **state) {
  (void)state;
  const char *root = support_path("log"), *old = getenv("INSITU_LOG");
  assert_null(old);
  support_make(root, &plain);
  support_write(support_path("log/x/3.0.0"), "short", 5);
  static const struct {
    const char *environment;
    int32_t desc;
    int level;
  } at[] = {{NULL, 0, 1}, {"", 0, 1}, {"off", 0, -1}, {"error", 0, 0}, {"warn", 0, 1},
      {"info", 0, 2}, {"debug", 0, 3}, {"debug", INSITU_LOG_OFF, -1}, {"off", INSITU_LOG_ERROR, 0},
      {"nonsense", INSITU_LOG_WARN, 1}, {NULL, INSITU_LOG_INFO, 2}, {"error", INSITU_LOG_DEBUG, 3}};
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.on_bad_chunk = INSITU_FILL;
    d.block_chunks = 2; /* windows of the sequential order that share chunks */
    d.log = keep;
    d.log_user = &logged;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      if (at[i].environment) setenv("INSITU_LOG", at[i].environment, 1);
      d.log_level = at[i].desc;
      check_log(&d, at[i].level);
      unsetenv("INSITU_LOG");
    }
    insitu_loader *ld;
    insitu_error err = {0};
    d.log_level = 0;
    setenv("INSITU_LOG", "chatty", 1);
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
    assert_non_null(
        strstr(err.message, "INSITU_LOG=chatty; set it to off, error, warn, info or debug"));
    unsetenv("INSITU_LOG");
    for (d.log_level = -2; d.log_level <= 5; d.log_level += 7)
      assert_int_equal(insitu_loader_open(&d, &ld, NULL), INSITU_E_ARG);
  }
  support_remove(root);
}

/* What an epoch does not deliver: the log's table, a warning for what takes much, once for each
 * split, and the error of a split that is emptied. */
static void test_drops(void **state) {
  (void)state;
  const char *root = support_path("drops");
  const insitu_variable far[] = {{.label = "x"}, {.label = "y", .path = "x", .offset = 9}};
  static const struct {
    const char *text;
    int warnings; /* so far */
  } want[2][4] = {{{": an epoch delivers 64 of the archive's 100 samples; in another split or in "
                    "none: 20; window leaves the split: 9; too few for a last batch: 7",
                       1},
                      {": an epoch delivers 71 of the archive's 100 samples; in another split or "
                       "in none: 20; window leaves the split: 9",
                          1},
                      {": an epoch delivers 7 of the archive's 100 samples; in another split or "
                       "in none: 84; window leaves the archive: 5; window leaves the split: 4",
                          3},
                      {": an epoch delivers 88 of the archive's 100 samples; window leaves the "
                       "archive: 9; too few for a last batch: 3",
                          3}},
      {{": an epoch delivers 16 of the archive's 100 samples; outside the range asked for: 50; in "
        "another split or in none: 20; window leaves the split: 9; too few for a last batch: 5",
           1},
          {": an epoch delivers 21 of the archive's 100 samples; outside the range asked for: 50; "
           "in another split or in none: 20; window leaves the split: 9",
              1}}};
  support_make(root, &plain);
  EACH_MODE (m)
    for (int half = 0; half < 2; half++) {
      insitu_loader_desc d = plain_desc(root, m);
      insitu_iter *it;
      insitu_error err = {0};
      d.variables = far;
      d.log = keep;
      d.log_user = &logged;
      d.log_level = INSITU_LOG_INFO;
      d.sample_start = half ? 50 : 0;
      if (half) d.batch_size = 16;
      insitu_loader *ld = open_or_fail(&d);
      forget(NULL);
      for (int i = 0; i < (half ? 2 : 4); i++) {
        static const int32_t split[] = {INSITU_TRAIN, INSITU_TRAIN, INSITU_VAL, INSITU_ALL},
                             order[] = {INSITU_SHUFFLED, INSITU_SEQUENTIAL, 0, INSITU_SHUFFLED};
        it = iter_or_fail(ld, split[i], order[i]);
        insitu_iter_close(&it);
        if (!strstr(logged.last[2], want[half][i].text))
          fail_msg("%s: not %s", logged.last[2], want[half][i].text);
        assert_int_equal(logged.lines[1], want[half][i].warnings);
      }
      /* half of train: its tail is more than a tenth as well, but of other samples in each epoch */
      assert_non_null(strstr(logged.last[1],
          half ? "rank 0, split train, window leaves the split: 9 of its 30 samples are dropped; "
               : "rank 0, split val, window leaves the split: 4 of its 16 samples are dropped; use "
                 "contiguous splits, smaller offsets and steps, or split_spill"));
      insitu_loader_close(&ld);
      if (half) continue;

      /* the range emptied test, its windows val, and the batch train */
      d.split[0].stop = 40;
      d.split[1].start = 40;
      d.split[1].stop = 48;
      ld = open_or_fail(&d);
      it = NULL;
      assert_int_equal(insitu_iter_open(ld,
                           &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_VAL}, &it, &err),
          INSITU_E_SPLIT);
      assert_string_equal(err.message,
          "split val: 0 samples can be drawn of the archive's 100, and a batch needs 1 (batch_size "
          "8 x world 1); in another split or in none: 92; window leaves the split: 8. What takes "
          "most: window leaves the split; use contiguous splits, smaller offsets and steps, or "
          "split_spill");
      assert_int_equal(insitu_iter_open(ld,
                           &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TEST}, &it, &err),
          INSITU_E_SPLIT);
      assert_non_null(
          strstr(err.message, "none: 100. What takes most: in another split or in none"));
      insitu_loader_close(&ld);
      d.batch_size = 64;
      ld = open_or_fail(&d);
      assert_int_equal(
          insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_E_SPLIT);
      assert_non_null(strstr(err.message, "or more chunks of the manifest, or lower batch_size"));
      insitu_loader_close(&ld);
      /* more than the archive has: no other range and no other split would do */
      d.batch_size = 128;
      ld = open_or_fail(&d);
      assert_int_equal(
          insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_E_SPLIT);
      assert_non_null(
          strstr(err.message, "What takes most: too few for a last batch; lower batch_size"));
      assert_null(strstr(err.message, "widen"));
      assert_null(strstr(err.message, "or lower batch_size"));
      insitu_loader_close(&ld);
    }
  assert_string_equal(insitu_drop_name(INSITU_DROP_SPLIT_EDGE), "split_edge");
  assert_string_equal(insitu_drop_name(INSITU_DROPS), "unknown");
  assert_string_equal(insitu_drop_name(-1), "unknown");
  support_remove(root);
}

/* ---- watchdog ---- */

/* The oldest chunk is named, by what it waits for. */
static void test_warning(void **state) {
  (void)state;
  static const char *const stages[] = {"", "waiting to read for ", "reading for ", "decoding for "};
  insitu_loader *ld = calloc(1, sizeof *ld);
  struct insitu__loader_tile *tiles = calloc(3, sizeof *tiles);
  struct insitu__geometry_array array = {.zarr.path = "group/x"};
  ld->config = (insitu_loader_desc){
      .rank = 3, .max_inflight = 3, .log_level = INSITU_LOG_WARN, .log = keep, .log_user = &logged};
  ld->tiles = tiles;
  for (int i = 0; i < 3; i++) tiles[i].array = &array;
  ld->sched.inflight = 2;
  forget(NULL);
  insitu__report_warn(ld); /* the last one came through meanwhile */
  assert_int_equal(warned(), 0);
  for (int stage = INSITU__LOADER_WAITING; stage <= INSITU__LOADER_DECODING; stage++)
    for (int oldest = 0; oldest < 3; oldest++) {
      char want[100];
      for (int i = 0; i < 3; i++) {
        tiles[i].stage = i == oldest             ? stage
                         : (i + 1) % 3 == oldest ? INSITU__LOADER_READING
                                                 : INSITU__LOADER_IDLE;
        tiles[i].key = i == oldest ? "group/x/7.0" : "other";
        tiles[i].started_at = insitu__base_now() - (tiles[i].stage == INSITU__LOADER_IDLE ? 9000
                                                       : i == oldest                      ? 60
                                                                                          : 20) *
                                                       INT64_C(1000000000);
      }
      forget(NULL);
      ld->sched.overdue = true;
      insitu__report_warn(ld);
      assert_false(ld->sched.overdue);
      assert_int_equal(warned(), 1);
      snprintf(want, sizeof want, "rank 3, watchdog, array group/x, chunk group/x/7.0: %s6",
          stages[stage]);
      if (!strstr(logged.last[WATCHDOG], want)) fail_msg("%s", logged.last[WATCHDOG]);
      assert_non_null(strstr(logged.last[WATCHDOG], "the 2 chunks in flight"));
    }
  free(tiles);
  free(ld);
}

static void test_watchdog(void **state) {
  (void)state;
  EACH_MODE (m) {
    /* reads on this thread: would wait for ever */
    if (modes[m].inline_io && modes[m].io == INSITU_IO_EPOLL) continue;
    const char *root = support_path("hold");
    support_make(root, &plain);
    atomic_store(&hold_key, "x/2.0.0");
    insitu_loader_desc d = plain_desc(root, m);
    d.on_bad_chunk = INSITU_FILL;
    d.max_inflight = 4;
    d.log = keep;
    d.log_user = &logged;
    forget(NULL);
    insitu_loader *ld = open_or_fail(&d);
    atomic_store(
        &ld->source.store.never_now, true); /* all is read by the ring, where it can be held */
    usleep(350000);                         /* nothing is in flight */
    assert_int_equal(warned(), 0);
    insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
    insitu_batch *b = NULL;
    insitu_status status = INSITU_TIMEOUT;
    /* nanoseconds in next: more than they need where the machine is busy */
    int64_t inside = -insitu__base_now();
    /* before those that need the hanging chunk */
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_OK);
    inside += insitu__base_now();
    insitu_batch_release(&b);
    /* time that the user spends elsewhere is not the loader's */
    for (int i = 0; modes[m].inline_io && i < 3; i++) {
      usleep(300000);
      inside -= insitu__base_now();
      assert_int_equal(insitu_iter_next(it, 0, &b, NULL), INSITU_TIMEOUT);
      inside += insitu__base_now();
      assert_true(!warned() || (double)inside >= INSITU_WATCHDOG_S * 1e9);
    }
    /* on a busy machine others are late, too, for once */
    forget("rank 0, watchdog, array x, chunk x/2.0.0: reading for ");
    for (int i = 0; i < 400 && warned() < 2; i++) status = insitu_iter_next(it, 100, &b, NULL);
    assert_int_equal(status, INSITU_TIMEOUT);
    assert_true(warned() >= 2); /* and again */
    pthread_mutex_lock(&logged.lock);
    /* but not more often; ages are rounded to 0.1 s */
    assert_true(logged.least > INSITU_WATCHDOG_S - 0.1 - 1e-9);
    assert_non_null(strstr(logged.last[WATCHDOG], "see whether the file system or server"));
    pthread_mutex_unlock(&logged.lock);
    atomic_store(&hold_key, NULL);
    assert_int_equal(run_epoch(it), 13 - 1);
    if (modes[m].inline_io) { /* nothing in flight: no timer runs */
      for (int i = 0; i < 100 && ld->reactor.n_timers; i++) {
        usleep(20000);
        insitu__reactor_run(&ld->reactor, 0);
      }
      assert_int_equal(ld->sched.inflight, 0);
      assert_int_equal(ld->reactor.n_timers, 0);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    support_remove(root);
  }
}

/* Whether next wakes the reactor: once for a quarter of the prefetched batches that are new to it,
 * for half of them while chunks are in flight, and for each if the next batch is not ready. */
static void test_wakes(void **state) {
  static const struct {
    uint64_t ahead, unseen; /* batches prefetched; delivered since the reactor looked */
    bool ready, looks, wakes;
  } cases[] = {{64, 0, true, false, false}, {64, 15, true, false, false},
      {64, 16, true, false, true}, {64, 16, true, true, false}, {64, 31, true, true, false},
      {64, 32, true, true, true}, {64, 1, false, false, true}, {64, 1, false, true, true},
      {64, 0, false, false, false}, {4, 1, true, false, true}, {4, 1, true, true, false},
      {4, 2, true, true, true}, {1, 1, true, false, true}, {1, 1, true, true, true}};
  insitu_loader *ld = calloc(1, sizeof *ld);
  insitu_iter *it = calloc(1, sizeof *it);
  struct insitu__loader_slab slab = {.number = 0}, *ring[64];
  (void)state;
  assert_true(ld && it);
  for (size_t i = 0; i < 64; i++) ring[i] = &slab;
  it->loader = ld;
  it->ring = ring;
  it->n_ring = 64;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ld->config.prefetch_depth = cases[i].ahead;
    it->shared.next = 1000;
    it->shared.seen = 1000 - cases[i].unseen;
    it->shared.assigned = 1000 + cases[i].ahead;
    it->shared.looks = cases[i].looks;
    slab.pending = !cases[i].ready;
    if (insitu__pass_wakes(it) != cases[i].wakes) fail_msg("case %zu", i);
    assert_int_equal(it->shared.seen, cases[i].wakes ? 1000 : 1000 - cases[i].unseen);
    assert_false(insitu__pass_wakes(it) && cases[i].wakes); /* it was woken just now */
  }

  free(it);
  free(ld);
}

static void reactor_policy(void *arg) {
  *(int *)arg = sched_getscheduler(0);
}

/* Waits until the reactor thread has a policy. */
static void await_policy(insitu_loader *ld, int want) {
  int policy = -1;
  for (int i = 0; i < 10000 && policy != want; i++) {
    insitu__reactor_call(&ld->reactor, reactor_policy, &policy);
    if (policy != want) usleep(1000);
  }

  assert_int_equal(policy, want);
}

/* The reactor thread gives way to who wakes it while batches are ready and no chunk is in flight,
 * and only then. */
static void test_gives_way(void **state) {
  const char *root = support_path("way");
  const struct sched_param none = {0};
  (void)state;
  if (pthread_setschedparam(pthread_self(), SCHED_BATCH, &none)) skip(); /* it is forbidden here */
  assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none), 0);
  EACH_MODE (m) {
    if (modes[m].inline_io) continue;
    support_make(root, &plain);
    atomic_store(&hold_key, "x/2.0.0");
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    atomic_store(&ld->source.store.never_now, true);
    insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
    insitu_batch *b = NULL;
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_OK);
    insitu_batch_release(&b);
    await_policy(ld, SCHED_OTHER);
    atomic_store(&hold_key, NULL);
    await_policy(ld, SCHED_BATCH); /* so many batches are ready as may be */
    assert_int_equal(run_epoch(it), 13 - 1);
    await_policy(ld, SCHED_OTHER); /* hold_epoch: nothing is ready, and the user will wait */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    support_remove(root);
  }
}

/* Every status of part A has a name, its own. */
static void test_status_names(void **state) {
  char line[300], name[64];
  int value, n = 0;
  FILE *f = fopen("insitubatch.h", "r");
  (void)state;
  assert_non_null(f);
  while (fgets(line, sizeof line, f) && !strstr(line, "typedef struct insitu_error"))
    if (sscanf(line, " %63[A-Z_0-9] = %d", name, &value) == 2 && !strncmp(name, "INSITU_E_", 9)) {
      assert_string_equal(insitu_status_name(value), name);
      n++;
    }
  fclose(f);
  assert_int_equal(n, -INSITU_E_DEVICE);
  assert_string_equal(insitu_status_name(INSITU_CANCELLED), "INSITU_CANCELLED");
  assert_string_equal(insitu_status_name(-n - 1), "an unknown status");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_percentiles),
      cmocka_unit_test(test_stages), cmocka_unit_test(test_rereads),
      cmocka_unit_test(test_counters), cmocka_unit_test(test_counters_of_reads),
      cmocka_unit_test(test_describe), cmocka_unit_test(test_origin_of_io),
      cmocka_unit_test(test_describe_truncated), cmocka_unit_test(test_strings),
      cmocka_unit_test(test_any_thread), cmocka_unit_test(test_log_levels),
      cmocka_unit_test(test_notes), cmocka_unit_test(test_drops), cmocka_unit_test(test_warning),
      cmocka_unit_test(test_watchdog), cmocka_unit_test(test_wakes),
      cmocka_unit_test(test_gives_way), cmocka_unit_test(test_status_names)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
