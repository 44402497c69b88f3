/* Maps from anchors of one array to indexes of another, against what a search through both
 * coordinates finds; and comparisons of numbers of any type. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include "support.h"

enum { MOST = 400 };

/* What a map must say: of each anchor its place, and whether that is its partner. */
struct truth {
  int64_t anchors, indexes, place[MOST];
  bool shares[MOST];
  int64_t partner[MOST];
};

static void check_runs(const struct insitu__map *m, const struct truth *t) {
  bool seen[MOST] = {false};
  int64_t from = 0, first, behind;
  while (insitu__map_run(m, from, &first, &behind)) {
    assert_true(first >= from && behind > first && behind <= t->anchors);
    for (int64_t a = first; a < behind; a++) seen[a] = true;
    from = behind;
    if (from == t->anchors) break;
  }
  for (int64_t a = 0; a < t->anchors; a++) assert_int_equal(seen[a], t->shares[a]);
}
/* The most chunks that some group of neighbours has partners in. */
static uint64_t touched(const struct truth *t, int64_t group, int64_t rows) {
  uint64_t most = 0;
  for (int64_t lo = 0; lo < t->anchors; lo++) {
    uint64_t n = 0;
    int64_t last = -1;
    for (int64_t a = lo; a < lo + group && a < t->anchors; a++) {
      if (!t->shares[a] || t->partner[a] / rows == last) continue;
      last = t->partner[a] / rows;
      n++;
    }
    if (n > most) most = n;
  }
  return most;
}
static void check(const struct insitu__map *m, const struct truth *t) {
  uint64_t shared = 0;
  for (int64_t a = 0; a < t->anchors; a++) {
    if (a > 0) assert_int_equal(insitu__map_place(m, a), t->place[a]);
    shared += t->shares[a];
    if (t->shares[a]) assert_int_equal(insitu__map_index(m, a), t->partner[a]);
  }
  assert_int_equal(m->shared, shared);
  assert_int_equal(insitu__map_place(m, 0), 0);
  assert_true(insitu__map_place(m, t->anchors) == INT64_MAX);
  check_runs(m, t);

  for (int64_t x = -2; x <= t->indexes + 2; x++) {
    int64_t at = insitu__map_anchor(m, x);
    assert_true(at >= 0 && at <= t->anchors);
    for (int64_t a = 0; a < t->anchors; a++)
      if (t->shares[a]) assert_int_equal(a >= at, t->partner[a] >= x);
  }

  uint64_t group = 1 + support_below((uint64_t)t->anchors), rows = 1 + support_below(20);
  assert_true(insitu__map_touched(m, group, rows) >= touched(t, (int64_t)group, (int64_t)rows));
  assert_true(insitu__map_touched(m, group, rows) <= group);
  uint64_t lasts = rows;
  if (m->den) lasts = rows * (uint64_t)m->den / (uint64_t)m->num;
  assert_int_equal(insitu__map_rows(m, rows), lasts ? lasts : 1);

  /* pieces are as long as they can be: no two neighbours without partners could be one */
  for (uint64_t i = 1; i < INSITU__ARRAY_LEN(m->pieces); i++)
    assert_true(m->pieces[i].lo > m->pieces[i - 1].lo);
}

/* Rising values: regular with gaps, or irregular. */
static uint64_t draw(int64_t *v, uint64_t cap) {
  uint64_t n = 1 + support_below(cap);
  int64_t at = (int64_t)support_below(40) - 20, step = 1 + (int64_t)support_below(8);
  int way = (int)support_below(3);
  for (uint64_t i = 0; i < n; i++) {
    v[i] = at;
    at += way == 0   ? step
          : way == 1 ? (support_below(12) ? step : step * 7 + 1)
                     : 1 + (int64_t)support_below(9);
  }
  return n;
}

static void joins(void **state) {
  (void)state;
  for (int round = 0; round < 4000; round++) {
    static struct truth t;
    int64_t x[MOST], y[MOST], fall = support_below(2) ? -1 : 1;
    double real[MOST];
    t.anchors = (int64_t)draw(x, 1 + support_below(120));
    t.indexes = (int64_t)draw(y, 1 + support_below(120));
    if (support_below(8) == 0) memcpy(y, x, sizeof y), t.indexes = t.anchors;
    for (int64_t a = 0, k = 0; a < t.anchors; a++) {
      while (k < t.indexes && y[k] < x[a]) k++;
      t.place[a] = t.partner[a] = k;
      t.shares[a] = k < t.indexes && y[k] == x[a];
    }
    for (int i = 0; i < MOST; i++) x[i] *= fall, real[i] = (double)(y[i] *= fall);
    bool reals = support_below(2);
    struct insitu__map_values anchors = {x, (uint64_t)t.anchors, INSITU_I64},
                              indexes = {reals ? (void *)real : (void *)y, (uint64_t)t.indexes,
                                  reals ? INSITU_F64 : INSITU_I64};
    struct insitu__map m;
    int slope[2];
    assert_int_equal(insitu__map_slope(&anchors, &slope[0], NULL), INSITU_OK);
    assert_int_equal(insitu__map_slope(&indexes, &slope[1], NULL), INSITU_OK);
    for (int i = 0; i < 2; i++)
      assert_int_equal(slope[i], (i ? t.indexes : t.anchors) > 1 ? fall : 0);
    assert_int_equal(insitu__map_join(&anchors, &indexes, fall < 0, &m, NULL), INSITU_OK);
    check(&m, &t);
    bool same = t.anchors == t.indexes && !memcmp(x, y, (size_t)t.anchors * sizeof *x);
    assert_int_equal(insitu__map_is_identity(&m, (uint64_t)t.indexes), same);

    /* what was known of a begin of both is known still */
    struct insitu__map begin;
    anchors.n = 1 + support_below(anchors.n), indexes.n = 1 + support_below(indexes.n);
    assert_int_equal(insitu__map_join(&anchors, &indexes, fall < 0, &begin, NULL), INSITU_OK);
    if (begin.den) assert_true(begin.den == m.den && begin.num == m.num);
    insitu__map_free(&begin);
    insitu__map_free(&m);
  }
}

static void rates(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    static struct truth t;
    struct insitu__map m;
    int64_t rate = (int64_t)support_below(25) - 12;
    bool floor = rate < 0 && support_below(2);
    t.anchors = 1 + (int64_t)support_below(150);
    t.indexes = 1 + (int64_t)support_below(300);
    for (int64_t a = 0; a < t.anchors; a++) {
      int64_t n = rate < 0 ? -rate : 1;
      t.partner[a] = rate < 0 ? a / n : a * (rate ? rate : 1);
      t.place[a] = rate < 0 ? (a + n - 1) / n : t.partner[a];
      t.shares[a] = t.partner[a] < t.indexes && (floor || rate >= 0 || a % n == 0);
      if (t.place[a] > t.indexes) t.place[a] = t.indexes;
    }
    assert_int_equal(insitu__map_by_rate(&m, (uint64_t)t.anchors, (uint64_t)t.indexes,
                         rate ? rate : 1, floor, NULL),
        INSITU_OK);
    check(&m, &t);
    insitu__map_free(&m);
  }
}

/* How many pieces series that people have make. */
static void pieces(void **state) {
  (void)state;
  static int64_t x[40000], y[40000];
  struct insitu__map_values anchors = {x, 10000, INSITU_I64}, indexes = {y, 40000, INSITU_I64};
  struct insitu__map m;
  for (int64_t i = 0; i < 40000; i++) x[i] = 6 * i, y[i] = i - 5;
  assert_int_equal(insitu__map_join(&anchors, &indexes, false, &m, NULL), INSITU_OK);
  assert_int_equal(INSITU__ARRAY_LEN(m.pieces), 2); /* hours end before the last day does */
  assert_int_equal(m.pieces[0].num, 6);
  assert_int_equal(insitu__map_rows(&m, 24), 4);
  assert_int_equal(insitu__map_rows(&m, 3), 1);
  insitu__map_free(&m);

  assert_int_equal(insitu__map_join(&indexes, &anchors, false, &m, NULL), INSITU_OK);
  assert_int_equal(INSITU__ARRAY_LEN(m.pieces), 2); /* five hours before the first */
  assert_int_equal(m.pieces[1].den, 6);
  assert_int_equal(m.singles, m.shared);
  assert_int_equal(insitu__map_rows(&m, 4), 24);
  insitu__map_free(&m);

  /* two partners in a row may be a chance, and later pieces do not count, however long */
  const int64_t some[] = {0, 7, 8, 10, 12, 100, 101, 102, 103, 104};
  indexes = (struct insitu__map_values){some, 10, INSITU_I64};
  for (int64_t i = 0; i < 200; i++) y[i] = i;
  anchors = (struct insitu__map_values){y, 200, INSITU_I64};
  assert_int_equal(insitu__map_join(&anchors, &indexes, false, &m, NULL), INSITU_OK);
  assert_int_equal(m.den, 2);
  assert_int_equal(insitu__map_rows(&m, 1000), 2000); /* more than there are */
  insitu__map_free(&m);
  indexes.n = 3;
  assert_int_equal(insitu__map_join(&anchors, &indexes, false, &m, NULL), INSITU_OK);
  assert_int_equal(insitu__map_rows(&m, 1000), 1000);
  insitu__map_free(&m);
  indexes = (struct insitu__map_values){x, 40000, INSITU_I64};

  for (int64_t i = 0; i < 40000; i++) x[i] = 6 * i;
  indexes.at = y;
  for (int64_t i = 0; i < 40000; i++) y[i] = i + (i >= 6000 ? 4000 : 0);
  anchors = (struct insitu__map_values){y, 8000, INSITU_I64};
  assert_int_equal(insitu__map_join(&anchors, &indexes, false, &m, NULL), INSITU_OK);
  assert_true(insitu__map_is_identity(&m, 8000));
  insitu__map_free(&m);
}

static void refused(void **state) {
  (void)state;
  insitu_error err = {0};
  struct insitu__map m;
  int slope;
  const int64_t turns[] = {1, 2, 3, 3}, back[] = {3, 2, 1, 2};
  struct insitu__map_values v = {turns, 4, INSITU_I64};
  assert_int_equal(insitu__map_slope(&v, &slope, &err), INSITU_E_FORMAT);
  assert_non_null(strstr(err.message, "index 3"));
  v.at = back;
  assert_int_equal(insitu__map_slope(&v, &slope, NULL), INSITU_E_FORMAT);
  const double hole[] = {1, NAN, 3};
  v = (struct insitu__map_values){hole, 3, INSITU_F64};
  assert_int_equal(insitu__map_slope(&v, &slope, NULL), INSITU_E_FORMAT);

  /* 2^24 single anchors and no more */
  uint64_t n = INSITU__MAP_SINGLES;
  assert_int_equal(insitu__map_by_rate(&m, 3 * n, n, -3, false, NULL), INSITU_OK);
  insitu__map_free(&m);
  assert_int_equal(
      insitu__map_by_rate(&m, 3 * n + 1, n + 1, -3, false, NULL), INSITU_E_UNSUPPORTED);
  insitu__map_free(&m);
  assert_int_equal(insitu__map_by_rate(&m, 3 * n + 1, n + 1, -3, true, NULL), INSITU_OK);
  insitu__map_free(&m);

  /* no number overflows */
  n = (uint64_t)INSITU__MAX_SAMPLES;
  assert_int_equal(insitu__map_by_rate(&m, n, n, INT64_C(1) << 47, false, NULL), INSITU_OK);
  assert_int_equal(m.shared, 2);
  assert_int_equal(insitu__map_index(&m, 1), INT64_C(1) << 47);
  assert_int_equal(insitu__map_place(&m, 2), n);
  insitu__map_free(&m);
  assert_int_equal(insitu__map_by_rate(&m, n, n, -(INT64_C(1) << 47), true, NULL), INSITU_OK);
  assert_int_equal(insitu__map_index(&m, (int64_t)n - 1), 1);
  assert_int_equal(m.fan, INT64_C(1) << 47);
  assert_int_equal(insitu__map_rows(&m, UINT64_C(1) << 31), INSITU__MAP_ROWS);
  insitu__map_free(&m);
  /* no more anchors share an index than there are */
  assert_int_equal(insitu__map_by_rate(&m, 1000, 8, -(int64_t)n, true, NULL), INSITU_OK);
  assert_int_equal(m.fan, 1000);
  insitu__map_free(&m);
}

/* Numbers as text, in order: long double holds none of the tricks that are tested. */
static void numbers(void **state) {
  (void)state;
  static const double real[] = {-INFINITY, -1e300, -0x1.0000000000001p63, -0x1p63, -0x1p62, -1.5,
      -1, -0.5, -1e-300, 0, 1e-300, 0.5, 1, 0x1p53, 0x1p62, 0x1p63, 0x1.fffffffffffffp63, 0x1p64,
      1e300, INFINITY};
  enum { REAL = sizeof real / sizeof *real };
  struct insitu__map_values r = {real, REAL, INSITU_F64};
  for (uint64_t i = 0; i < REAL; i++)
    for (uint64_t k = 0; k < REAL; k++)
      assert_int_equal(insitu__map_compare(&r, i, &r, k), (i > k) - (i < k));

  static const int64_t whole[] = {INT64_MIN, -2, -1, 0, 1, (INT64_C(1) << 53) + 1, INT64_MAX};
  static const int64_t below[] = {3, 5, 6, 9, 12, 14, 15}; /* real numbers below each */
  static const bool equal[] = {true, false, true, true, true, false, false};
  struct insitu__map_values w = {whole, 7, INSITU_I64};
  for (uint64_t i = 0; i < 7; i++)
    for (uint64_t k = 0; k < REAL; k++) {
      int want = k < (uint64_t)below[i] ? 1 : equal[i] && k == (uint64_t)below[i] ? 0 : -1;
      assert_int_equal(insitu__map_compare(&w, i, &r, k), want);
      assert_int_equal(insitu__map_compare(&r, k, &w, i), -want);
    }
  static const uint64_t natural[] = {0, 1, (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, UINT64_MAX};
  struct insitu__map_values u = {natural, 5, INSITU_U64};
  for (uint64_t i = 0; i < 5; i++)
    for (uint64_t k = 0; k < 7; k++) {
      int want = whole[k] < 0 || natural[i] > (uint64_t)whole[k] ? 1
                 : natural[i] == (uint64_t)whole[k]              ? 0
                                                                 : -1;
      assert_int_equal(insitu__map_compare(&u, i, &w, k), want);
    }
  assert_int_equal(insitu__map_compare(&u, 3, &r, 15), 0);
  assert_int_equal(insitu__map_compare(&u, 4, &r, 16), 1);
  assert_int_equal(insitu__map_compare(&u, 4, &r, 17), -1);
  const double nan = NAN, zero[] = {-0.0, 0.0};
  struct insitu__map_values none = {&nan, 1, INSITU_F64}, z = {zero, 2, INSITU_F64};
  assert_int_equal(insitu__map_compare(&none, 0, &none, 0), 2);
  assert_int_equal(insitu__map_compare(&u, 0, &none, 0), 2);
  assert_int_equal(insitu__map_compare(&z, 0, &z, 1), 0);
  const double gap[] = {1, NAN, 3}, filled[] = {1, 2, 3};
  struct insitu__map_values g = {gap, 3, INSITU_F64}, f = {filled, 3, INSITU_F64};
  assert_int_equal(insitu__map_differ(&g, &g), 3);
  assert_int_equal(insitu__map_differ(&g, &f), 1);
  assert_int_equal(insitu__map_differ(&f, &g), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(joins), cmocka_unit_test(rates),
      cmocka_unit_test(pieces), cmocka_unit_test(refused), cmocka_unit_test(numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
