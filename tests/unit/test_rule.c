/* Units, windows and lanes by the rule: the table of the manual, what each part of the rule gives
 * way to, and what the rule must not look at. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

enum { FIELD = 361 * 720 * 4 };

static const int64_t pair[] = {0, 1}, six[] = {-1, 0, 1, 2, 3, 4}, apart[] = {0, 240}, one[] = {0};
static const struct steps {
  const int64_t *delta;
  uint64_t n;
} steps[] = {{pair, 2}, {six, 6}, {apart, 2}, {one, 1}};
enum { PAIR, SIX, APART, ONE };

/* A rule for one array. */
struct setup {
  struct insitu__rule_array array;
  struct insitu__rule rule;
};

static struct setup setup_of(uint64_t chunk, int of, uint64_t global, enum insitu__rule_part part) {
  struct setup s = {.array = {.chunk = chunk,
                        .bytes = FIELD,
                        .part = part,
                        .delta = (int64_t *)(uintptr_t)steps[of].delta,
                        .n_deltas = steps[of].n}};
  s.rule = (struct insitu__rule){
      .global_batch = global, .chunk = chunk, .stride = 1, .others = 1, .n_arrays = 1};
  return s;
}

static struct insitu__rule_choice choose(struct setup *s) {
  struct insitu__rule_choice c = {0};
  s->rule.arrays = &s->array;
  insitu__rule_unit(&s->rule, &c);
  insitu__rule_window(&s->rule, c.rows, &c);
  assert_true(c.unit_chunks > 0 && c.lanes > 0 && c.window > 0);
  if (!s->rule.block_chunks) assert_int_equal(c.block_chunks, c.lanes * c.window * c.unit_chunks);
  return c;
}

static uint64_t ratio(const struct setup *s, const struct insitu__rule_choice *c) {
  return insitu__rule_ratio(s->rule.global_batch, c->lanes, c->window, c->rows);
}

/* Chunks of 1, 8, 32 and 200 fields of 1 MB, decoded in parts, at two sizes of the global batch:
 * the golden defaults. */
static void test_table(void **state) {
  static const struct {
    uint64_t global, chunk;
    int steps;
    uint64_t unit, lanes, window, amplification, ratio; /* the last two in thousandths */
  } at[] = {{32, 1, PAIR, 7, 32, 2, 1143, 1000}, {32, 8, PAIR, 1, 32, 2, 1125, 1000},
      {32, 32, PAIR, 1, 8, 2, 1032, 2477}, {32, 200, PAIR, 1, 1, 2, 1005, 16462},
      {32, 1, SIX, 34, 4, 3, 1148, 3288}, {32, 8, SIX, 5, 4, 3, 1125, 3295},
      {32, 32, SIX, 2, 4, 2, 1079, 4473}, {32, 200, SIX, 1, 1, 2, 1025, 16462},
      {32, 1, APART, 1, 32, 2, 2000, 1000}, {32, 8, APART, 1, 32, 2, 2000, 1000},
      {32, 32, APART, 1, 8, 2, 2000, 2477}, {32, 200, APART, 1, 1, 2, 2000, 16462},
      {2048, 1, PAIR, 7, 2048, 2, 1143, 1000}, {2048, 8, PAIR, 1, 2048, 2, 1125, 1000},
      {2048, 32, PAIR, 1, 512, 2, 1032, 2477}, {2048, 200, PAIR, 1, 64, 2, 1005, 16462},
      {2048, 1, SIX, 34, 256, 3, 1148, 3288}, {2048, 8, SIX, 5, 256, 3, 1125, 3295},
      {2048, 32, SIX, 2, 256, 2, 1079, 4473}, {2048, 200, SIX, 1, 64, 2, 1025, 16462},
      {2048, 1, APART, 1, 2048, 2, 2000, 1000}, {2048, 8, APART, 1, 2048, 2, 2000, 1000},
      {2048, 32, APART, 1, 512, 2, 2000, 2477}, {2048, 200, APART, 1, 64, 2, 2000, 16462}};
  (void)state;
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    struct setup s = setup_of(at[i].chunk, at[i].steps, at[i].global, INSITU__RULE_ROWS);
    struct insitu__rule_choice c = choose(&s);
    assert_int_equal(c.unit_chunks, at[i].unit);
    assert_int_equal(c.lanes, at[i].lanes);
    assert_int_equal(c.window, at[i].window);
    assert_int_equal(insitu__base_ceil_div(c.amplification, 1000), at[i].amplification);
    assert_int_equal(insitu__base_ceil_div(ratio(&s, &c), 1000), at[i].ratio);
  }
}

/* What a unit decodes, against a count of every row. */
static void test_covered(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    bool wanted[400] = {false};
    int64_t delta[5];
    uint64_t chunk = 1 + support_below(9), anchors = 1 + support_below(40), want = 0;
    uint64_t begin = 60 + support_below(60), n = 1 + support_below(5);
    for (uint64_t i = 0; i < n; i++) delta[i] = (int64_t)support_below(100) - 50;
    qsort(delta, n, sizeof *delta, insitu__rule_compare);
    for (uint64_t i = 0; i < n; i++)
      for (uint64_t x = 0; x < anchors; x++) wanted[begin + x + (uint64_t)delta[i]] = true;
    enum insitu__rule_part part = (enum insitu__rule_part)support_below(3);
    for (uint64_t lo = 0; lo < 400; lo += chunk) {
      uint64_t rows = 0, last = 0;
      for (uint64_t x = 0; x < chunk && lo + x < 400; x++)
        if (wanted[lo + x]) rows++, last = x + 1;
      if (!rows) continue;
      want += part == INSITU__RULE_ROWS ? rows : part == INSITU__RULE_PREFIX ? last : chunk;
    }
    struct insitu__rule_array a = {.chunk = chunk, .part = part, .delta = delta, .n_deltas = n};
    assert_int_equal(insitu__rule_covered(&a, begin, anchors), want);
  }
}

/* The window's ratio is the law's, and its window the shortest that has it. */
static void test_mixing(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    uint64_t lanes = 1 + support_below(12), rows = 1 + support_below(60);
    uint64_t global = lanes * (1 + support_below(40));
    uint64_t window = insitu__rule_mixing(global, lanes, rows, UINT64_MAX);
    double law = 1 + ((double)(global / lanes) - 1) * ((double)rows - 1) /
                         insitu__base_max(1, window * rows - 1);
    double told = (double)insitu__rule_ratio(global, lanes, window, rows) / 1e6;
    assert_true(window >= 2 && told >= law - 1e-9 && told <= law + 2e-6);
    assert_true(insitu__rule_ratio(global, lanes, window, rows) <= INSITU__RULE_RATIO);
    if (window > 2)
      assert_true(insitu__rule_ratio(global, lanes, window - 1, rows) > INSITU__RULE_RATIO);
    assert_int_equal(insitu__rule_mixing(global, lanes, rows, 1), 1);
  }
}

/* (c) gives way to (b), (b) to G / 4 units of a window, and all of them to a chunk that is longer
 * than a window should be. */
static void test_gives_way(void **state) {
  (void)state;
  struct setup s = setup_of(8, PAIR, 32, INSITU__RULE_WHOLE);
  struct insitu__rule_choice c = choose(&s); /* nothing but whole chunks: seven of them */
  assert_int_equal(c.unit_chunks, 7);
  assert_true(c.amplification <= INSITU__RULE_AMPLIFICATION && ratio(&s, &c) > INSITU__RULE_RATIO);
  assert_int_equal(c.better, 0);

  s = setup_of(32, PAIR, 32, INSITU__RULE_WHOLE); /* seven leave two of a window's units */
  c = choose(&s);
  assert_int_equal(c.unit_chunks, 2);
  assert_int_equal(c.amplification, 1500000);
  assert_int_equal(c.better, 7);

  s = setup_of(1, APART, 32, INSITU__RULE_ROWS); /* no unit that fits helps: the smallest */
  c = choose(&s);
  assert_int_equal(c.unit_chunks, 1);
  assert_true(c.better >= 1600 && c.better < 1700);

  s = setup_of(300, ONE, 32, INSITU__RULE_ROWS); /* one of them fits, two do not */
  c = choose(&s);
  assert_int_equal(c.most, 1);
  assert_int_equal(c.lanes * c.window, 1);
  s = setup_of(600, ONE, 32, INSITU__RULE_ROWS); /* none does */
  c = choose(&s);
  assert_int_equal(c.most, 0);
  assert_int_equal(c.lanes * c.window, 1);

  s = setup_of(600, ONE, 32, INSITU__RULE_ROWS); /* small fields: (a) counts their bytes */
  s.array.bytes = 4096;
  c = choose(&s);
  assert_int_equal(c.most, 32 * INSITU__RULE_ROW_BYTES / (600 * 4096));
  assert_int_equal(c.lanes, 32);
  assert_int_equal(ratio(&s, &c), 1000000);
}

/* What the desc gives holds, each of the three alone and any two. */
static void test_given(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    struct setup s = setup_of(1 + support_below(40), (int)support_below(4), 1 + support_below(64),
        (enum insitu__rule_part)support_below(3));
    struct insitu__rule *r = &s.rule;
    if (support_below(2)) r->unit_chunks = 1 + support_below(40);
    if (support_below(2)) r->block_chunks = 1 + support_below(400);
    if (support_below(2)) r->lanes = insitu__rule_divisor(r->global_batch, 1 + support_below(64));
    struct insitu__rule_choice c = choose(&s);
    if (r->unit_chunks) assert_int_equal(c.unit_chunks, r->unit_chunks);
    if (r->lanes) assert_int_equal(c.lanes, r->lanes);
    if (r->block_chunks) assert_int_equal(c.block_chunks, r->block_chunks);
    assert_int_equal(r->global_batch % c.lanes, 0);
    assert_int_equal(c.window, insitu__rule_lane_window(c.block_chunks, c.unit_chunks, c.lanes));
    if (!r->block_chunks) /* (a) holds, but for one unit a lane */
      assert_true(c.window == 1 || c.lanes * c.window <= c.most);
    if (!r->block_chunks && !r->lanes && c.most >= 2) assert_true(c.window >= 2);
    /* an iterator of a large split has these lanes where it is told only the window */
    if (!r->lanes)
      assert_int_equal(
          insitu__rule_lanes(r->global_batch, c.block_chunks / c.unit_chunks, UINT64_MAX), c.lanes);
  }
}

/* Several arrays weigh by their bytes, and chunks of other lengths count as they lie. */
static void test_arrays(void **state) {
  (void)state;
  struct insitu__rule_array a[2] = {setup_of(1, PAIR, 32, INSITU__RULE_ROWS).array,
      setup_of(1, ONE, 32, INSITU__RULE_ROWS).array};
  struct insitu__rule r = {
      .global_batch = 32, .chunk = 1, .stride = 1, .others = 1, .arrays = a, .n_arrays = 2};
  struct insitu__rule_choice c = {0};
  insitu__rule_unit(&r, &c);
  assert_int_equal(c.unit_chunks, 4); /* (5 + 4) / 8 */
  a[1].bytes = 7 * FIELD;
  insitu__rule_unit(&r, &c);
  assert_int_equal(c.unit_chunks, 1); /* (2 + 7) / 8 */
  assert_int_equal(c.bytes, 9 * FIELD);

  a[0] = setup_of(3, ONE, 32, INSITU__RULE_WHOLE).array; /* units of 8: 3 places, 9 + 12 + 9 */
  r.chunk = 8;
  r.n_arrays = 1;
  insitu__rule_cost(&r, 1, &c);
  assert_int_equal(c.bytes, 10 * FIELD);
  assert_int_equal(c.amplification, 1250000);

  r.n_arrays = 0; /* fixed variables alone, and a single image */
  insitu__rule_unit(&r, &c);
  assert_int_equal(c.unit_chunks, 1);
  assert_int_equal(c.amplification, 1000000);
}

/* Lanes of an iterator: few units have few of them, and a window always two for each. */
static void test_lanes(void **state) {
  (void)state;
  assert_int_equal(insitu__rule_lanes(32, 64, 1000), 32);
  assert_int_equal(insitu__rule_lanes(32, 64, 255), 16);
  assert_int_equal(insitu__rule_lanes(32, 63, 1000), 16);
  assert_int_equal(insitu__rule_lanes(30, 64, 1000), 30);
  assert_int_equal(insitu__rule_lanes(32, 64, 0), 1);
  assert_int_equal(insitu__rule_lanes(32, 1, 1000), 1);
  assert_int_equal(
      insitu__rule_lanes(UINT64_C(1) << 30, UINT64_MAX, UINT64_MAX), INSITU__MAX_LANES);
}

/* Extremes end soon and overflow nothing. */
static void test_extremes(void **state) {
  (void)state;
  int64_t away[] = {-INSITU__MAX_OFFSET, INSITU__MAX_OFFSET};
  uint64_t large = UINT64_C(1) << 40;
  for (int part = 0; part < 3; part++)
    for (int i = 0; i < 8; i++) {
      struct setup s = setup_of(
          i & 1 ? UINT64_C(1) << 31 : 1, ONE, i & 2 ? large : 1, (enum insitu__rule_part)part);
      s.array.bytes = i & 4 ? INSITU__RULE_MOST_BYTES : 1;
      s.array.delta = away;
      s.array.n_deltas = 2;
      s.rule.others = i & 1 ? (uint64_t)INSITU__MAX_SAMPLES : 1;
      struct insitu__rule_choice c = choose(&s);
      assert_true(c.amplification >= 1000000 && c.lanes <= INSITU__MAX_LANES);
      assert_true(
          c.block_chunks <= insitu__base_max(INSITU__MAX_LISTED_CHUNKS, c.lanes * c.unit_chunks));
    }
}

/* Lanes that do not divide a large global batch are refused later. Until then the window ends where
 * it may, at once: 2^43 units of a byte would fit (a). */
static void test_long_window(void **state) {
  (void)state;
  struct insitu__rule r = {.global_batch = 1 << 20, .lanes = 7, .chunk = 1, .stride = 1};
  struct insitu__rule_choice c = {.unit_chunks = 1, .bytes = 1};
  insitu__rule_window(&r, 1, &c);
  assert_int_equal(c.most, UINT64_C(1) << 43);
  assert_int_equal(c.window, INSITU__MAX_LISTED_CHUNKS / 7);
  assert_int_equal(c.block_chunks, INSITU__MAX_LISTED_CHUNKS / 7 * 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_covered),
      cmocka_unit_test(test_mixing), cmocka_unit_test(test_gives_way), cmocka_unit_test(test_given),
      cmocka_unit_test(test_arrays), cmocka_unit_test(test_lanes), cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_long_window)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
