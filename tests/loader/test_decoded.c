/* Decoded chunks that are kept for later epochs: the same batches, states and errors as without
 * them, whatever is drawn; hits beside the exact optimum; what is printed beside what is found. */
#include "insitubatch.h"
#include "twins.h"
#include <math.h>

enum { MOST = 6, OUTPUTS = 4 };
static const int64_t out[MOST] = {1, 2, 3, 4, 7, 12};
static const insitu_variable variables[] = {
    {.label = "t_in", .path = "t", .into = "x", .steps = in, .n_steps = 4, .dtype = INSITU_F64},
    {.label = "s_in", .path = "s", .into = "x", .steps = in, .n_steps = 4},
    {.label = "y", .path = "t", .steps = out, .n_steps = MOST},
    {.label = "z", .path = "s", .steps = odd, .n_steps = 3, .select = "lat=[::-2]; lon=[1,4]"},
    {.label = "now", .path = "t", .select = "lat=[2]"}};
static const char *const outputs[OUTPUTS] = {"x", "y", "z", "now"};
static const uint64_t steps[OUTPUTS] = {4, MOST, 3, 1};

static const char *const names[2] = {"without", "with a cache"};

/* Jumps, states, fewer steps, two iterators of one loader: with any cache as without one. */
static void drawn(void **state) {
  (void)state;
  uint64_t hits = 0;
  for (int round = 0; round < (support_slow() ? 4 : 32); round++) {
    const char *root = make_archive("decoded", false);
    insitu_loader *ld[2];
    insitu_iter *it[2][2];
    insitu_batch *b[2];
    insitu_state after;
    bool known = false;
    int32_t world = 1 + (int32_t)support_below(2), rank = (int32_t)support_below((uint64_t)world);
    uint64_t batch = 2 * (1 + support_below(4)), block = 2 * (1 + support_below(12)),
             unit = 1 + support_below(3);
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = variables,
          .n_variables = sizeof variables / sizeof *variables,
          .sample_dim = "time",
          .batch_size = batch,
          .block_chunks = block,
          .unit_chunks = unit,
          .lanes = 2,
          .rank = rank,
          .world = world,
          .split = {{.start = 0, .stop = 60}, {.start = 60, .stop = 96}},
          .split_spill = 1,
          .on_absent_chunk = INSITU_FILL,
          .assembly = (int32_t)support_below(3),
          .cache_memory = i ? 10000 + support_below(60000) : 0};
      draw_resources(&d);
      ld[i] = open_or_fail(&d);
      for (int k = 0; k < 2; k++)
        it[k][i] = open_iter_or_fail(ld[i],
            &(insitu_iter_desc){.api = INSITU_API, .order = 1 + k, .split = INSITU_TRAIN + k});
    }

    for (int n = 0; n < 120; n++) {
      int what = (int)support_below(60);
      insitu_error err;
      int k = support_below(4) == 0;
      uint64_t some = support_below(5), o = support_below(OUTPUTS - 1);
      for (int i = 0; i < 2; i++) {
        insitu_status status = INSITU_OK;
        if (what == 0) status = insitu_iter_set_epoch(it[k][i], some, &err);
        if (what == 1 && known) status = insitu_iter_restore(it[0][i], &after, &err);
        if (what == 2) status = insitu_iter_set_epoch(it[k][i], some, &err);
        if (what == 2 && !status)
          status = insitu_iter_set_steps(it[k][i], outputs[o], 1 + some % steps[o], &err);
        if (status) fail_msg("%s", err.message);
      }
      if (step(names, it[k], b) != INSITU_OK) continue;
      if (k == 0) after = b[0]->after;
      known = known || k == 0;
      for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
    }

    insitu_stats st = stats_of(ld[1]);
    hits += st.cache_hits;
    assert_true(st.cache_hits + st.cache_misses > 0);
    assert_int_equal(stats_of(ld[0]).cache_hits + stats_of(ld[0]).cache_misses, 0);
    assert_true(st.memory_promised <= insitu_loader_config(ld[1])->memory_budget);
    for (int k = 0; k < 2; k++)
      for (int i = 0; i < 2; i++) insitu_iter_close(&it[k][i]);
    for (int i = 0; i < 2; i++) insitu_loader_close(&ld[i]);
    support_remove(root);
  }
  assert_true(hits > 0);
}

/* ---- beside the optimum ---- */

enum { EPOCHS = 6, AHEAD = 8 };

/* The use of a chunk, and when it is used again. */
struct use {
  uint64_t chunk, next;
};

/* Hits of the optimum: of the chunks that are kept and the one that is used, the one whose next use
 * is furthest goes. hits[e]: in epoch e. end[e]: uses before the end of epoch e. */
static void optimum(struct use *use, uint64_t n, uint64_t chunks, uint64_t room,
    const uint64_t *end, uint64_t *hits) {
  uint64_t *last = calloc(chunks, sizeof *last), *next = calloc(chunks, sizeof *next), kept = 0;
  bool *here = calloc(chunks, sizeof *here);
  assert_true(last && next && here);
  for (uint64_t c = 0; c < chunks; c++) last[c] = UINT64_MAX;
  for (uint64_t i = n; i-- > 0;) {
    use[i].next = last[use[i].chunk];
    last[use[i].chunk] = i;
  }
  memset(hits, 0, (EPOCHS + AHEAD) * sizeof *hits);
  for (uint64_t i = 0, e = 0; i < n; i++) {
    uint64_t c = use[i].chunk, worst = c;
    while (i >= end[e]) e++;
    hits[e] += here[c];
    kept += !here[c];
    here[c] = true;
    next[c] = use[i].next;
    if (kept <= room) continue;
    for (uint64_t k = 0; k < chunks; k++)
      if (here[k] && next[k] > next[worst]) worst = k;
    here[worst] = false;
    kept--;
  }
  free(last);
  free(next);
  free(here);
}

/* One lane a rank, of whose window each row touches the chunks of its samples, and of the samples
 * `offset` further. */
struct world_case {
  uint64_t samples, rows, block; /* of a chunk, chunks of the windows of all ranks */
  int64_t offset;
  int32_t world;
  double share;    /* of the chunks that fit */
  uint64_t window; /* chunks of a lane's window; the first is shorter (model/order.py) */
};

static insitu_loader *open_case(
    const char *root, const struct world_case *c, uint64_t cache, insitu_variable v[2]) {
  v[0] = (insitu_variable){.label = "x", .path = "a"};
  v[1] = (insitu_variable){.label = "y", .path = "a", .offset = c->offset};
  return open_or_fail(&(insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = c->offset ? 2 : 1,
      .batch_size = 8,
      .unit_chunks = 1,
      .block_chunks = c->block,
      .lanes = (uint64_t)c->world,
      .world = c->world,
      .split = {{.fraction = 1}},
      .hold_epoch = 1,
      .max_inflight = 4,
      .assembly = INSITU_SCATTER,
      .cache_memory = cache});
}

/* Reads an epoch; `use` gets the chunks of each row, but those that the window has touched. */
static uint64_t read_epoch(insitu_iter *it, const struct world_case *c, struct use *use, uint64_t n,
    uint64_t *stamp, uint64_t *window_number) {
  insitu_batch *b;
  insitu_error err;
  insitu_status status;
  uint64_t row = 0, length = c->window * c->rows;
  uint64_t first = (c->window + (uint64_t)c->world - 1) / (uint64_t)c->world * c->rows;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t r = 0; r < b->rows; r++, row++) {
      if (!row || (row >= first && (row - first) % length == 0)) ++*window_number;
      for (int v = 0; v < (c->offset ? 2 : 1); v++) {
        uint64_t chunk = (uint64_t)(b->sample_indices[r] + v * c->offset) / c->rows;
        if (stamp[chunk] == *window_number) continue;
        stamp[chunk] = *window_number;
        if (use) use[n] = (struct use){.chunk = chunk};
        n++;
      }
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  return n;
}

/* An iterator stands at epoch EPOCHS: what late epochs find is what the plan has printed. */
static void late_epochs(insitu_loader *ld, insitu_iter *it, const struct world_case *c,
    uint64_t *stamp, uint64_t *number, double printed) {
  int from = c->world > 1 ? 3 * c->world : 2;
  insitu_stats st = stats_of(ld);
  if (from < EPOCHS) return;
  for (int e = EPOCHS; e < from + EPOCHS; e++) {
    if (e == from) st = stats_of(ld);
    (void)read_epoch(it, c, NULL, 0, stamp, number);
  }
  insitu_stats end = stats_of(ld);
  double found = (double)(end.cache_hits - st.cache_hits);
  double missed = (double)(end.cache_misses - st.cache_misses);
  double rate = found / (found + missed);
  print_message("      later on: found %.4f, printed %.4f\n", rate, printed);
  assert_true(fabs(rate / printed - 1) <= 0.01);
}

static void beside_optimum(struct world_case *c) {
  const char *root = support_path("optimum");
  uint64_t all = c->samples + (uint64_t)c->offset, chunks = (all + c->rows - 1) / c->rows, n = 0,
           number = 0, end[EPOCHS + AHEAD];
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {all, 16},
      .chunk = {c->rows, 16},
      .shard = {50, 1},
      .dtype = INSITU_F32,
      .format = 3,
      .dims = "[\"time\",\"x\"]"};
  support_make(root, &a);
  struct use *use = calloc((EPOCHS + AHEAD) * 3 * chunks, sizeof *use);
  uint64_t *stamp = calloc(chunks, sizeof *stamp), hits[EPOCHS + AHEAD];
  assert_true(use && stamp);
  insitu_variable v[2];
  insitu_iter_desc pass = {.api = INSITU_API, .order = INSITU_SHUFFLED};
  insitu_plan plan, whole;
  insitu_error err;
  insitu_loader *ld = open_case(root, c, 0, v);
  if (insitu_loader_plan(ld, &pass, &plan, &err)) fail_msg("%s", err.message);
  c->window = plan.window;
  insitu_iter *it = open_iter_or_fail(ld, &pass);
  for (int e = 0; e < EPOCHS + AHEAD; e++) end[e] = n = read_epoch(it, c, use, n, stamp, &number);
  uint64_t reads = stats_of(ld).reads;
  if (c->world == 1) assert_int_equal(reads, n);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  /* What a chunk takes of the cache is told by one that holds all. */
  ld = open_case(root, c, UINT64_C(1) << 30, v);
  if (insitu_loader_plan(ld, &pass, &whole, &err)) fail_msg("%s", err.message);
  insitu_loader_close(&ld);
  uint64_t each = (whole.cache_bytes - plan.cache_bytes) / chunks;
  assert_int_equal(each * chunks, whole.cache_bytes - plan.cache_bytes);
  uint64_t room = (uint64_t)(c->share * (double)chunks);
  ld = open_case(root, c, room * each, v);
  if (insitu_loader_plan(ld, &pass, &plan, &err)) fail_msg("%s", err.message);
  it = open_iter_or_fail(ld, &pass);
  uint64_t found[EPOCHS], before = 0, uses = 0, sum = 0, best = 0;
  for (int e = 0; e < EPOCHS; e++) {
    (void)read_epoch(it, c, NULL, 0, stamp, &number);
    found[e] = stats_of(ld).cache_hits - before;
    before += found[e];
  }
  insitu_stats st = stats_of(ld);
  assert_int_equal(st.cache_hits + st.cache_misses, end[EPOCHS - 1]);
  assert_int_equal(st.reads, st.cache_misses);
  room = room < chunks ? room : chunks;
  optimum(use, n, chunks, room, end, hits);
  for (int e = 1; e < EPOCHS; e++) {
    sum += found[e];
    best += hits[e];
    uses += end[e] - end[e - 1];
  }
  double rate = (double)sum / (double)uses;
  print_message("    %4d chunks, world %d, room %4d: found %.4f, optimum %.4f, printed %.4f\n",
      (int)chunks, c->world, (int)room, rate, (double)best / (double)uses, plan.hit_rate);
  assert_true((double)sum >= 0.99 * (double)best);
  assert_true(sum <= best + uses / 1000);
  assert_true(rate >= (double)room / (double)chunks / c->world - 0.001);
  assert_true(fabs(rate / plan.hit_rate - 1) <= 0.01);
  late_epochs(ld, it, c, stamp, &number, plan.late_hit_rate);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  free(use);
  free(stamp);
  support_remove(root);
}

static void optima(void **state) {
  (void)state;
  struct world_case cases[] = {{.samples = 1600, .rows = 1, .block = 16, .world = 1, .share = 0.1},
      {.samples = 1600, .rows = 1, .block = 16, .world = 1, .share = 0.4},
      {.samples = 1600, .rows = 1, .block = 400, .world = 1, .share = 0.8},
      {.samples = 3200, .rows = 4, .block = 8, .offset = 1, .world = 1, .share = 0.2},
      {.samples = 1600, .rows = 1, .block = 16, .world = 1, .share = 1.5},
      {.samples = 3200, .rows = 2, .block = 100, .offset = 7, .world = 1, .share = 0.5},
      {.samples = 3200, .rows = 1, .block = 8, .world = 4, .share = 0.1},
      {.samples = 3200, .rows = 1, .block = 8, .world = 4, .share = 0.5},
      {.samples = 1600, .rows = 4, .block = 8, .offset = 1, .world = 2, .share = 0.3},
      {.samples = 1600, .rows = 2, .block = 8, .offset = 1, .world = 4, .share = 0.3},
      {.samples = 2800, .rows = 2, .block = 14, .offset = 1, .world = 7, .share = 0.5}};
  /* Valgrind sees one of two variables, sanitizers that and one of several ranks. */
  size_t step = getenv("TEST_VALGRIND") ? 8 : SUPPORT_SANITIZED ? 4 : 1;
  size_t first = step > 1 ? 3 : 0;
  for (size_t i = first; i < sizeof cases / sizeof *cases; i += step) beside_optimum(&cases[i]);
}

/* ---- an iterator that pauses ---- */

/* Reads an epoch; returns how many of its chunks the cache had. */
static uint64_t found_by(insitu_loader *ld, insitu_iter *it) {
  uint64_t before = stats_of(ld).cache_hits;
  insitu_batch *b;
  insitu_error err;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) insitu_batch_release(&b);
  if (status != INSITU_END) fail_msg("%s", err.message);
  return stats_of(ld).cache_hits - before;
}

/* A validation iterator that stays open between epochs does not keep its chunks meanwhile: the
 * training finds as many as without it, soon after. */
static void pauses(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* a plain run counts the same */
  const char *root = support_path("pauses");
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {2000, 16},
      .chunk = {1, 16},
      .shard = {50, 1},
      .dtype = INSITU_F32,
      .format = 3,
      .dims = "[\"time\",\"x\"]"};
  support_make(root, &a);
  insitu_variable v = {.label = "x", .path = "a"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 8,
      .unit_chunks = 1,
      .block_chunks = 16,
      .split = {{.start = 0, .stop = 1600}, {.start = 1600, .stop = 2000}},
      .hold_epoch = 1,
      .max_inflight = 4,
      .assembly = INSITU_SCATTER,
      .cache_memory = 1u << 30};
  insitu_iter_desc train = {.api = INSITU_API, .order = INSITU_SHUFFLED, .split = INSITU_TRAIN};
  insitu_iter_desc val = {.api = INSITU_API, .order = INSITU_SEQUENTIAL, .split = INSITU_VAL};
  insitu_plan all, none;
  insitu_error err;
  insitu_loader *ld = open_or_fail(&d);
  if (insitu_loader_plan(ld, &train, &all, &err)) fail_msg("%s", err.message);
  insitu_loader_close(&ld);
  d.cache_memory = 0;
  ld = open_or_fail(&d);
  if (insitu_loader_plan(ld, &train, &none, &err)) fail_msg("%s", err.message);
  insitu_loader_close(&ld);
  d.cache_memory = (all.cache_bytes - none.cache_bytes) / 5; /* 400 chunks */
  for (int whole = 0; whole < 2; whole++) { /* val is read to its end, or stands inside its epoch */
    ld = open_or_fail(&d);
    insitu_iter *it[2] = {open_iter_or_fail(ld, &train), open_iter_or_fail(ld, &val)};
    for (int round = 0; round < 3; round++) {
      uint64_t found = 0;
      for (int e = 0; e < 4; e++) {
        found = found_by(ld, it[0]);
        print_message("    train found %d of 1600\n", (int)found);
      }
      assert_in_range(found, 390, 400);
      if (whole) {
        print_message("    val found %d of 400\n", (int)found_by(ld, it[1]));
        continue;
      }
      for (int k = 0; k < 30; k++) { /* an epoch has 50 batches */
        insitu_batch *b;
        insitu_status status = insitu_iter_next(it[1], 20000, &b, &err);
        if (status == INSITU_END) status = insitu_iter_next(it[1], 20000, &b, &err);
        if (status) fail_msg("%s", err.message);
        insitu_batch_release(&b);
      }
    }
    for (int i = 0; i < 2; i++) insitu_iter_close(&it[i]);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Many steps use a chunk so often that the plan tries fewer chunks than it would: what is printed
 * is what is found. */
static void many_steps(void **state) {
  (void)state;
  if (support_slow()) skip(); /* a plain run counts the same */
  const char *root = support_path("steps");
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {2000, 16},
      .chunk = {1, 16},
      .shard = {50, 1},
      .dtype = INSITU_F32,
      .format = 3,
      .dims = "[\"time\",\"x\"]"};
  support_make(root, &a);
  int64_t forty[40];
  for (int i = 0; i < 40; i++) forty[i] = i;
  insitu_variable v = {.label = "x", .path = "a", .steps = forty, .n_steps = 40};
  insitu_iter_desc pass = {.api = INSITU_API, .order = INSITU_SHUFFLED};
  insitu_loader *ld = NULL;
  insitu_plan p[3];
  insitu_error err;
  for (int i = 0; i < 3; i++) { /* all chunks, none, a twentieth */
    insitu_loader_close(&ld);
    ld = open_or_fail(&(insitu_loader_desc){.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .batch_size = 8,
        .unit_chunks = 1,
        .block_chunks = 16,
        .split = {{.fraction = 1}},
        .hold_epoch = 1,
        .max_inflight = 4,
        .assembly = INSITU_SCATTER,
        .cache_memory = i < 2 ? (uint64_t)!i << 30 : (p[0].cache_bytes - p[1].cache_bytes) / 20});
    if (insitu_loader_plan(ld, &pass, &p[i], &err)) fail_msg("%s", err.message);
  }
  insitu_iter *it = open_iter_or_fail(ld, &pass);
  (void)found_by(ld, it);
  uint64_t misses = stats_of(ld).cache_misses, found = found_by(ld, it) + found_by(ld, it);
  misses = stats_of(ld).cache_misses - misses;
  double rate = (double)found / (double)(found + misses);
  print_message("    found %.4f, printed %.4f\n", rate, p[2].hit_rate);
  assert_true(fabs(rate - p[2].hit_rate) < 0.03);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* ---- a plan of many ranks ---- */

/* A trial with caches of four neighbours has each keep for itself what its rank uses: with room for
 * all, a chunk is found that an epoch before gave the same rank. The late ones are 32 to 37. */
static void many_ranks(void **state) {
  (void)state;
  const char *root = support_path("ranks");
  static const int32_t ranks[] = {0, 70, 127};
  const char *meta = "{\"zarr_format\": 2, \"shape\": [4096, 64], \"chunks\": [1, 64], \"dtype\": "
                     "\"<f4\", \"compressor\": null, \"fill_value\": 0, \"order\": \"C\", "
                     "\"filters\": null}";
  char path[400];
  mkdir(root, 0700);
  snprintf(path, sizeof path, "%s/a", root);
  mkdir(path, 0700);
  snprintf(path, sizeof path, "%s/a/.zarray", root);
  support_write(path, meta, strlen(meta));
  for (int i = 0; i < 3; i++) {
    insitu_variable v = {.label = "x", .path = "a"};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .batch_size = 1,
        .plan_only = 1,
        .rank = ranks[i],
        .world = 128,
        .seed = 9,
        .split = {{.fraction = 1}},
        .cache_memory = 1u << 20};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc pass = {.api = INSITU_API, .order = INSITU_SHUFFLED};
    insitu_plan p;
    insitu_error err;
    assert_int_equal(insitu_loader_plan(ld, &pass, &p, &err), INSITU_OK);
    insitu_loader_close(&ld);
    double late = 1 - pow(127. / 128, 34.5);
    print_message(
        "    rank %d: %.4f, later %.4f of %.4f\n", ranks[i], p.hit_rate, p.late_hit_rate, late);
    assert_true(fabs(p.late_hit_rate / late - 1) < 0.2);
    assert_true(p.hit_rate > 0.01 && p.hit_rate < 0.04); /* 3 / 128 */
  }
  support_remove(root);
}

/* ---- what does not fit ---- */

static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {64, 4096},
      .chunk = {4, 4096},
      .dtype = INSITU_F32,
      .format = 2,
      .dims = "[\"time\",\"x\"]"};
  support_make(root, &a);
  insitu_variable v = {.label = "x", .path = "a"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 4,
      .max_inflight = 4,
      .prefetch_depth = 2,
      .split = {{.fraction = 1}},
      .cache_memory = 65536};
  insitu_loader *ld = NULL;
  insitu_error err;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_BUDGET);
  assert_non_null(strstr(err.message, "cache_memory 65536 holds no chunk"));
  d.cache_memory = 1u << 30; /* only as much is taken as all chunks need */
  d.memory_budget = 64u << 20;
  ld = open_or_fail(&d);
  assert_true(stats_of(ld).memory_promised < 64u << 20);
  insitu_plan p, none;
  insitu_iter_desc pass = {.api = INSITU_API};
  assert_int_equal(insitu_loader_plan(ld, &pass, &p, &err), INSITU_OK);
  assert_true(p.hit_rate == 1);
  insitu_loader_close(&ld);
  d.cache_memory = 0;
  ld = open_or_fail(&d);
  assert_int_equal(insitu_loader_plan(ld, &pass, &none, &err), INSITU_OK);
  assert_true(none.hit_rate == 0);
  insitu_loader_close(&ld);
  d.cache_memory = 1u << 20;
  d.memory_budget = none.inflight_bytes + none.cache_bytes + 65536;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_BUDGET);
  assert_non_null(strstr(err.message, "lower cache_memory below 65536"));
  support_remove(root);
}

/* ---- other ways into a cell and out of it ---- */

/* Two loaders of one desc, the second with a cache that holds some chunks, or all. How often that
 * loader found a chunk there. */
static uint64_t beside(insitu_loader_desc *d, int epochs, uint64_t cache) {
  insitu_loader *ld[2];
  insitu_iter *it[2];
  insitu_batch *b[2];
  for (int i = 0; i < 2; i++) {
    d->cache_memory = i ? cache : 0;
    ld[i] = open_or_fail(d);
    it[i] = open_iter_or_fail(ld[i], &(insitu_iter_desc){.api = INSITU_API});
  }
  for (int e = 0; e < epochs;) {
    insitu_status status = step(names, it, b);
    if (status < 0) break;
    e += status == INSITU_END;
    for (int i = 0; i < 2 && status == INSITU_OK; i++) insitu_batch_release(&b[i]);
  }
  uint64_t hits = stats_of(ld[1]).cache_hits;
  for (int i = 0; i < 2; i++) {
    insitu_iter_close(&it[i]);
    insitu_loader_close(&ld[i]);
  }
  return hits;
}

/* A chunk is damaged where no batch shows it: no error without a cache, and so none with one. What
 * is shown of a chunk that is damaged there is an error with both. */
static void damaged_aside(void **state) {
  (void)state;
  const char *root = support_path("aside");
  const insitu_variable v[2] = {{.label = "x", .path = "a"}, {.label = "b", .path = "b"}};
  struct support_array a = {.ndim = 2,
      .shape = {16, 4096},
      .chunk = {8, 4096},
      .dtype = INSITU_F32,
      .format = 2,
      .dims = "[\"time\",\"x\"]"};
  a.name = "a";
  support_make(root, &a);
  a.name = "b"; /* of whole chunks: what is found in the cache */
  support_make(root, &a);
  char path[600];
  snprintf(path, sizeof path, "%s/a/0.0", root);
  for (int rows = 7; rows >= 5; rows -= 2) { /* six of the first eight rows are shown */
    assert_int_equal(truncate(path, rows * 4096 * 4), 0);
    for (int how = 0; how < 8; how++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = v,
          .n_variables = 2,
          .batch_size = 2,
          .unit_chunks = 1,
          .block_chunks = 1 + how % 2,
          .split = {{.start = 0, .stop = 6}, {.start = 8, .stop = 16}},
          .inline_io = how / 2 % 2,
          .max_inflight = 4,
          .assembly = how < 4 ? INSITU_SCATTER : INSITU_GATHER};
      if (rows == 7 && how < 4) assert_true(beside(&d, 3, 1u << 20) > 0);
      insitu_loader *ld = NULL;
      insitu_batch *b;
      insitu_error err;
      d.cache_memory = 1u << 20;
      ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
      int n = 0;
      insitu_status status;
      for (; (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK; n++)
        insitu_batch_release(&b);
      assert_int_equal(status, rows == 7 ? INSITU_END : INSITU_E_CORRUPT);
      if (rows == 7) assert_int_equal(n, 3);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  }
  support_remove(root);
}

/* Chunks of which slots hold parts, patches, and chunks that are damaged. */
static void others(void **state) {
  (void)state;
  support_random_state = 1; /* however many were drawn before: with these draws caches are hit */
  uint64_t hits = 0;
  static const int64_t far[] = {-3, -1, 0};
  const insitu_variable shown[] = {{.label = "x", .path = "x", .steps = far, .n_steps = 3},
      {.label = "y", .path = "x", .offset = 1, .select = "lon=[100:700]"}};
  const insitu_variable image = {.label = "x", .path = "x", .halo = 2};
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "lon", .patch = 100}};
  for (int round = 0; round < 8; round++) {
    const char *root = support_path("others");
    uint64_t rows = 16 + support_below(17);
    struct support_array x = {.name = "x",
        .ndim = 2,
        .shape = {12 * rows, 1024},
        .chunk = {rows, round < 6 ? 1024 : 300},
        .dtype = INSITU_F32,
        .format = 2 + round % 2,
        .zstd = round & 2,
        .dims = "[\"time\",\"lon\"]"};
    support_make(root, &x);
    if (round == 5) { /* cut, at the end of a run of zeros or in the middle of zstd */
      char path[600];
      snprintf(path, sizeof path, "%s/x/c/3/0", root);
      assert_int_equal(truncate(path, 100), 0);
    }
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = round < 6 ? shown : &image,
        .n_variables = round < 6 ? 2 : 1,
        .batch_size = 4,
        .block_chunks = 3,
        .unit_chunks = 1,
        .split = {{.fraction = 1}},
        .on_bad_chunk = round == 5 ? INSITU_FILL : 0,
        .assembly = round < 6 ? 1 + (int32_t)support_below(2) : 0};
    if (round < 6) d.sample_dim = "time";
    else d.axes = axes, d.n_axes = 2, d.patches = 3;
    draw_resources(&d);
    d.assembly = round < 4 ? INSITU_GATHER : d.assembly;
    /* The few chunks of a small cache can all be in use when the next one comes: on a busy machine
     * one such cache may find nothing. */
    hits += beside(&d, 3, (1 + support_below(12)) * 4096 * (rows + 1));
    assert_true(beside(&d, 3, 1u << 30) > 0);
    support_remove(root);
  }
  assert_true(hits > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(optima),
      cmocka_unit_test(pauses), cmocka_unit_test(many_steps), cmocka_unit_test(damaged_aside),
      cmocka_unit_test(others), cmocka_unit_test(many_ranks), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
