/* What memory follows from: how many slots keep chunks, as many as the proof at >>kept needs and no
 * more than that; slots of two sizes, and when they are free again; windows of short splits. Here
 * there are no slots beyond that proof. */
#define INSITU__KEPT_LEAST 1
#define INSITU__KEPT_PART 1
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

enum { MOST_ROWS = 800, WIDTH = 5, MOST_STEPS = 4 };

/* ---- units of windows that have rows in some batches ---- */

struct place {
  uint64_t lane, window, unit;
  uint64_t group; /* the first position with the same lane and window */
  bool counts;    /* this rank's, and the first of its unit there */
};

/* Fills what is told of other positions: they are compared in pairs. */
static void compare_places(const struct insitu__plan_layout *l, struct place *at, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    at[i].group = i;
    at[i].counts = at[i].lane - l->first_lane < l->rank_lanes;
    for (uint64_t k = i; k-- > 0;) {
      if (at[k].lane != at[i].lane || at[k].window != at[i].window) continue;
      at[i].group = k;
      if (at[k].unit == at[i].unit) at[i].counts = false;
    }
  }
}
/* Units of the windows that have rows in batches [first, last) of a rank, by counting. */
static uint64_t count_units(const struct insitu__plan_layout *l, const struct place *at,
    uint64_t positions, uint64_t first, uint64_t last) {
  bool open[MOST_ROWS] = {false}; /* by group */
  uint64_t n = 0;
  for (uint64_t k = first * l->global_batch; k < last * l->global_batch && k < positions; k++)
    open[at[k].group] = true;
  for (uint64_t i = 0; i < positions; i++) n += at[i].counts && open[at[i].group];
  return n;
}

/* No batch has more units in its windows than were counted for it, and mostly one has as many. */
static void units(void **state) {
  (void)state;
  uint64_t reached = 0, fewer = 0, rounds = 0;
  static struct place at[MOST_ROWS];
  for (int most = support_slow() ? 20 : 400, round = 0; round < most; round++) {
    uint64_t n = 1 + support_below(40), rows = 1 + support_below(9),
             lane_rows = 1 + support_below(5);
    uint64_t lanes = 1 + support_below(6), world = lanes % 2 ? 1 : 1 + support_below(2);
    uint64_t window = 1 + support_below(6), shorts = support_below(3), lack = 0;
    struct insitu__order_irregular list[3];
    for (uint64_t i = 0; i < shorts && i < n; i++) {
      list[i] = (struct insitu__order_irregular){i * (n / shorts), 1 + support_below(rows)};
      lack += rows - list[i].rows;
    }
    if (n < 3) shorts = lack = 0;
    struct insitu__split_part part = {.units = n, .unit_rows = rows, .anchors = n * rows - lack};
    uint64_t global = lanes * lane_rows, batches = part.anchors / global;
    if (!batches) continue;
    struct insitu__plan p = {.part = &part,
        .layout = {.batch = global / world,
            .global_batch = global,
            .lanes = lanes,
            .rank_lanes = lanes / world,
            .first_lane = lanes / world * support_below(world),
            .lane_rows = lane_rows,
            .window = window,
            .world = world}};
    uint64_t depth = 1 + support_below(3), most = 0, deep = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
      insitu_order_desc d = {.api = INSITU_API,
          .units = n,
          .unit_rows = rows,
          .seed = support_below(1000),
          .epoch = epoch,
          .global_batch = global,
          .lanes = lanes,
          .window = window,
          .irregular = (const uint64_t *)(const void *)list,
          .n_irregular = shorts};
      struct insitu__order o;
      insitu_error err;
      if (insitu__order_init(&o, &d, &err)) fail_msg("%s", err.message);
      uint64_t positions = batches * global;
      for (uint64_t i = 0; i < positions; i++) {
        insitu_order_place place;
        assert_true(insitu__order_at(&o, i, &place));
        at[i] = (struct place){.lane = place.lane, .window = place.window, .unit = place.unit};
      }
      compare_places(&p.layout, at, positions);
      for (uint64_t b = 0; b < batches; b++) {
        most = insitu__base_max(most, count_units(&p.layout, at, positions, b, b + 1));
        deep = insitu__base_max(deep, count_units(&p.layout, at, positions, b, b + depth));
      }
      insitu__order_free(&o);
    }
    uint64_t told = insitu__kept_units(&p, lane_rows);
    assert_true(most <= told);
    assert_true(deep <= insitu__kept_units(&p, depth * lane_rows));
    if (lane_rows == 1 || n < 3 * lanes * window) continue; /* windows are not full */
    rounds++;
    reached += most == told;
    fewer += told < 2 * window * (lanes / world);
  }
  assert_true(rounds > 0);
  if (support_slow()) return; /* too few rounds to tell shares from */
  assert_true(rounds > 10 && 3 * reached > rounds && 8 * fewer > rounds);
}

/* ---- pieces of chunks that a unit shows ---- */

/* An array whose views show anchors at some deltas; the caller frees its views and spans. */
static void make_views(struct insitu__geometry_array *a, uint64_t rows, uint64_t n, int64_t far) {
  *a = (struct insitu__geometry_array){.rows = rows, .n_drawn = 1, .n_views = n};
  a->views = insitu__mem_alloc(n, sizeof *a->views);
  assert_non_null(a->views);
  for (uint64_t v = 0; v < n; v++)
    a->views[v].delta = (int64_t)support_below((uint64_t)(2 * far + 1)) - far;
  assert_true(insitu__geometry_list(a));
}

static void pieces(void **state) {
  (void)state;
  enum { ZERO = 300, ALL = 700 };
  for (int most = support_rounds(3000), round = 0; round < most; round++) {
    struct insitu__geometry_array a;
    uint64_t rows = 1 + support_below(10), n = 1 + support_below(MOST_STEPS);
    uint64_t group = rows + support_below(20), at = support_below(rows), want[2] = {0};
    uint64_t part_rows = support_below(rows), longest = 0, shortest = 0;
    make_views(&a, rows, n, 1 + (int64_t)support_below(60));
    bool shown[ALL] = {false};
    uint64_t zero = ZERO / rows * rows; /* a chunk's first row */
    for (uint64_t v = 0; v < n; v++)
      for (uint64_t x = 0; x < group; x++)
        shown[(int64_t)(zero + at + x) + a.views[v].delta] = true;
    for (uint64_t x = 0, length = 0; x < ALL; x++) {
      length = shown[x] ? length + 1 : 0;
      bool ends = length && (x + 1 == ALL || !shown[x + 1] || (x + 1) % rows == 0);
      if (!ends) continue;
      want[length <= part_rows]++;
      if (length < rows) longest = insitu__base_max(longest, length);
      if (length < rows) shortest = shortest ? insitu__base_min(shortest, length) : length;
      length = 0;
    }
    struct insitu__kept_pieces p;
    insitu__kept_pieces(&a, group, at, part_rows, &p);
    assert_int_equal(p.n[0], want[0]);
    assert_int_equal(p.n[1], want[1]);
    assert_int_equal(p.longest, longest);
    assert_int_equal(p.shortest, shortest);
    insitu__mem_free(a.views);
    insitu__mem_free(a.spans);
  }
}

/* ---- epochs with no slot to spare ---- */

static insitu_loader_desc desc_of(const char *root, const insitu_variable *shown, uint64_t n) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = shown,
      .n_variables = n,
      .batch_size = 1 + support_below(12),
      .seed = support_below(1000),
      .split = {{.fraction = 1}},
      .on_absent_chunk = INSITU_FILL,
      .assembly = INSITU_GATHER};
}

/* Every row is that of its anchor and step. */
static void check(const insitu_batch *b, const insitu_variable *shown) {
  for (uint64_t o = 0; o < b->n_arrays; o++)
    for (uint64_t r = 0; r < b->rows; r++)
      for (uint64_t k = 0; k < shown[o].n_steps; k++)
        for (uint64_t i = 0; i < WIDTH; i++)
          assert_int_equal(
              ((const int32_t *)b->arrays[o].data)[(r * shown[o].n_steps + k) * WIDTH + i],
              (b->sample_indices[r] + shown[o].steps[k]) * WIDTH + (int64_t)i);
}

/* Whatever is drawn, with as many held batches as there may be; two epochs, then another jump. */
static void least(void **state) {
  (void)state;
  static const int64_t one[] = {0}, pair[] = {0, 1}, before[] = {-2, -1, 0}, around[] = {-1, 0, 1},
                       apart[] = {0, 3, 17}, odd[] = {0, 5};
  static const struct {
    const int64_t *steps;
    uint64_t n;
  } some[] = {{one, 1}, {pair, 2}, {before, 3}, {around, 3}, {apart, 3}, {odd, 2}};
  enum { SOME = sizeof some / sizeof *some };
  uint64_t parted = 0;
  const int rounds = support_rounds(150);
  for (int round = 0; round < rounds; round++) {
    const char *root = support_path("least");
    uint64_t rows = 1 + support_below(9), a = support_below(SOME), b = support_below(SOME);
    struct support_array x = {.name = "x",
        .ndim = 2,
        .shape = {60 + support_below(240), WIDTH},
        .chunk = {rows, WIDTH},
        .dtype = INSITU_I32,
        .format = 2,
        .zstd = support_below(2),
        .dims = "[\"time\",\"lat\"]"};
    const insitu_variable shown[] = {
        {.label = "a", .path = "x", .steps = some[a].steps, .n_steps = some[a].n},
        {.label = "b", .path = "x", .steps = some[b].steps, .n_steps = some[b].n}};
    support_make(root, &x);
    insitu_loader_desc d = desc_of(root, shown, 1 + support_below(2));
    d.unit_chunks = support_below(3);
    d.block_chunks = d.unit_chunks ? d.unit_chunks * (1 + support_below(20)) : 0;
    for (d.lanes = 1 + support_below(d.batch_size); d.batch_size % d.lanes;) d.lanes--;
    d.prefetch_depth = 1 + support_below(4);
    d.max_inflight = 1 + support_below(6);
    uint32_t most = 1 + (uint32_t)support_below(3), n = 0;
    int32_t order = 1 + (int32_t)support_below(2);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(
        ld, &(insitu_iter_desc){.api = INSITU_API, .order = order, .max_held = most});
    parted += it->kept->need[0].part_rows > 0;
    insitu_batch *held[3] = {NULL, NULL, NULL}, *got;
    insitu_error err;
    for (int ends = 0; ends < 3;) {
      if (held[n % most]) insitu_batch_release(&held[n % most]);
      insitu_status status = insitu_iter_next(it, 20000, &got, &err);
      if (status < 0 || status == INSITU_TIMEOUT || status == INSITU_BUSY)
        fail_msg("%s: %s", insitu_status_name(status), err.message);
      if (status == INSITU_END && ++ends == 2)
        assert_int_equal(insitu_iter_set_epoch(it, 5, NULL), INSITU_OK);
      if (status != INSITU_OK) continue;
      check(got, shown);
      held[n++ % most] = got;
    }
    for (int i = 0; i < 3; i++)
      if (held[i]) insitu_batch_release(&held[i]);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
  assert_true(30 * parted > (uint64_t)rounds);
}

/* Inputs at t, targets at t + 1: of the chunk behind its own, a unit takes a row and no more. Slots
 * are free behind the last batch that shows them, so that not all of them are ever taken. */
static void pair(void **state) {
  (void)state;
  const char *root = support_path("pair");
  static const int64_t now[] = {0}, next[] = {1};
  const insitu_variable shown[] = {{.label = "now", .path = "x", .steps = now, .n_steps = 1},
      {.label = "next", .path = "x", .steps = next, .n_steps = 1}};
  for (uint64_t rows = 8; rows; rows = rows == 8 ? 1 : 0) {
    struct support_array x = {.name = "x",
        .ndim = 2,
        .shape = {6400, WIDTH},
        .chunk = {rows, WIDTH},
        .dtype = INSITU_I32,
        .format = 2,
        .zstd = true,
        .dims = "[\"time\",\"lat\"]"};
    support_make(root, &x);
    insitu_loader_desc d = desc_of(root, shown, 2);
    d.batch_size = 32;
    d.lanes = 8;
    d.unit_chunks = 8 / rows;
    d.block_chunks = 8 * 6 * d.unit_chunks;
    d.prefetch_depth = 4;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
    const struct insitu__kept_need *need = &it->kept->need[0];
    uint64_t units = it->kept->size.units, used = 0;
    assert_in_range(units, 8 * 6, 10 * 6);
    assert_int_equal(need->part_rows, rows == 8);
    assert_int_equal(need->slots[0], rows == 8 ? units : 9 * units);
    assert_int_equal(need->slots[1], rows == 8 ? units : 0);
    insitu_batch *b;
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      check(b, shown);
      insitu_batch_release(&b);
    }
    for (uint64_t i = 0; i < it->kept->n_pools; i++) used += it->kept->pool[i].used;
    assert_true(used > 0 && (rows == 8 ? used : 4 * used / 3) < need->slots[0] + need->slots[1]);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* A split of few units has fewer lanes than the rule's, and windows as short as the law allows with
 * these. What the desc gives is not touched, but for block_chunks that are the rule's: they may
 * come from a resolved desc. With lanes beside them they stay. */
static void few_units(void **state) {
  (void)state;
  const char *root = support_path("few_units");
  struct support_array x = {.name = "x",
      .ndim = 2,
      .shape = {640, 5},
      .chunk = {8, 5},
      .dtype = INSITU_F32,
      .format = 2,
      .zstd = true,
      .dims = "[\"time\",\"lat\"]"};
  const insitu_variable shown[] = {
      {.label = "now", .path = "x"}, {.label = "next", .path = "x", .offset = 1}};
  static const struct {
    uint64_t lanes, block, want_lanes, want_window;
  } at[] = {{0, 0, 8, 6}, {8, 0, 8, 6}, {0, 64, 8, 6}, {8, 64, 8, 8}, {0, 72, 8, 9}, {0, 32, 8, 4},
      {16, 0, 16, 2}};
  support_make(root, &x);
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = shown,
        .n_variables = 2,
        .lanes = at[i].lanes,
        .block_chunks = at[i].block,
        .split = {{.fraction = 1}}};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc id = {.api = INSITU_API};
    insitu_iter *it = open_iter_or_fail(ld, &id);
    insitu_plan p;
    assert_int_equal(insitu_loader_plan(ld, &id, &p, NULL), INSITU_OK);
    assert_int_equal(p.lanes, at[i].want_lanes);
    assert_int_equal(p.window, at[i].want_window);
    assert_int_equal(it->plan.layout.window, at[i].want_window); /* it has what the plan tells */
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  assert_true(insitu__rule_ratio(32, 8, 6, 8) <= INSITU__RULE_RATIO);
  assert_true(insitu__rule_ratio(32, 8, 5, 8) > INSITU__RULE_RATIO);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(units), cmocka_unit_test(pieces),
      cmocka_unit_test(least), cmocka_unit_test(pair), cmocka_unit_test(few_units)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
