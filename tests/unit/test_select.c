/* The text of a selection: what it says, and which indexes it shows of an axis. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

/* Fails, and shows the text, where it does not contain the words. */
static void contains(const char *text, const char *words) {
  if (strstr(text, words)) return;
  print_error("'%s' is not in '%s'\n", words, text);
  fail();
}

/* The terms of the text's items, written out in one way: "level: 500 850~5; x: [1:2:3]". */
static const char *terms(const char *text) {
  static char out[1000];
  const char *at = text;
  struct insitu__select_item item = {0};
  static insitu_error err;
  insitu_status status;
  size_t n = 0;

  insitu__error_clear(&err);
  out[0] = 0;
  while ((status = insitu__select_next(&at, &item, &err)) == INSITU_OK) {
    n +=
        (size_t)snprintf(out + n, sizeof out - n, "%s%.*s:", n ? "; " : "", item.n_name, item.name);
    do {
      struct insitu__select_term t;
      status = insitu__select_term(&item, &t, &err);
      if (status) break;
      n += (size_t)snprintf(out + n, sizeof out - n, " ");
      if (t.kind == INSITU__SELECT_VALUE)
        n += (size_t)snprintf(out + n, sizeof out - n, "%g", t.from);
      if (t.kind == INSITU__SELECT_VALUE && t.tolerance > 0)
        n += (size_t)snprintf(out + n, sizeof out - n, "~%g", t.tolerance);
      if (t.kind == INSITU__SELECT_RANGE)
        n += (size_t)snprintf(out + n, sizeof out - n, "%g..%g", t.from, t.to);
      if (t.kind == INSITU__SELECT_INDEX)
        n += (size_t)snprintf(out + n, sizeof out - n, "[%d]", (int)t.start);
      if (t.kind != INSITU__SELECT_INDEXES) continue;
      n += (size_t)snprintf(out + n, sizeof out - n, "[");
      if (t.has_start) n += (size_t)snprintf(out + n, sizeof out - n, "%d", (int)t.start);
      n += (size_t)snprintf(out + n, sizeof out - n, ":");
      if (t.has_stop) n += (size_t)snprintf(out + n, sizeof out - n, "%d", (int)t.stop);
      n += (size_t)snprintf(out + n, sizeof out - n, ":%d]", (int)t.step);
    } while (item.more);
    if (status) break;
  }
  if (status == INSITU_END) return out;
  assert_int_equal(status, INSITU_E_ARG);
  assert_int_equal(err.status, INSITU_E_ARG);
  return err.message;
}

static void grammar(void **state) {
  (void)state;
  static const struct {
    const char *text, *is;
  } good[] = {{"", ""}, {" ; ;", ""},
      {"level=500,850; lat=60..30;lon=-30..60", "level: 500 850; lat: 60..30; lon: -30..60"},
      {"x=[10:200:2]", "x: [10:200:2]"}, {" p = 850 ~ 5 ", "p: 850~5"}, {"c=[0,2]", "c: [0] [2]"},
      {"c=[ 0 , -2 ] , 7", "c: [0] [-2] 7"},
      {"a=1,[2:],[:3],[::-1],4..5", "a: 1 [2::1] [:3:1] [::-1] 4..5"},
      {"a=-1.5e2..+.5", "a: -150..0.5"}, {"a b=1", "a b: 1"}, {"a=5...7", "a: 5..0.7"}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    assert_string_equal(terms(good[i].text), good[i].is);

  static const char *const bad[][2] = {{"level", "names no dimension"},
      {"=5", "names no dimension"}, {"level;lat=5", "names no dimension"}, {"a=", "is missing"},
      {"a=;b=1", "is missing"}, {"a=1,", "is missing"}, {"a=,1", "is missing"},
      {"a=1,,2", "is missing"}, {"a=[", "is missing"}, {"a=[]", "is missing"},
      {"a=[1", "] is missing"}, {"a=[1,", "is missing"}, {"a=1]", "comma is missing"},
      {"a=[1]]", "comma is missing"}, {"a=[1]2", "comma is missing"},
      {"a=[1[2]]", "comma is missing"}, {"a=1[2]", "comma is missing"},
      {"a=x", "begins with no number"}, {"a=nan", "begins with no number"},
      {"a=inf", "begins with no number"}, {"a=0x10", "begins with no number"},
      {"a=1e999", "begins with no number"}, {"a=1 2", "begins with no number"},
      {"a=2000-01-02", "sample_from"}, {"a= 1979-06..1980", "sample_from"},
      {"a=1979-", "sample_from"}, {"a=979-06", "begins with no number"},
      {"a=..5", "begins with no number"}, {"a=5..", "behind the dots"},
      {"a=5..x", "behind the dots"}, {"a=5~", "behind ~"}, {"a=5~-1", "behind ~"},
      {"a=1..2~3", "has no tolerance"}, {"a=[1.5]", "no index"}, {"a=[x]", "no index"},
      {"a=[1:2:0]", "no range of indexes"}, {"a=[1:2:]", "no range of indexes"},
      {"a=[x:2]", "no range of indexes"}, {"a=[1:x]", "no range of indexes"},
      {"a=[1:2:3:4]", "no range of indexes"}, {"a=[99999999999999999999]", "no index"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) contains(terms(bad[i][0]), bad[i][1]);
}

/* The indexes that a text of one item shows of an axis, such as "3 2 1 | 7": runs are parted by |.
 * Of what it refuses, the message. */
static const char *shown(const char *text, uint64_t length, uint64_t chunk, const double *values,
    double cycle, bool single) {
  static char out[4000];
  struct insitu__select_axis axis = {.length = length, .chunk = chunk, .listed = true};
  struct insitu__select_values v = {
      .at = values, .n = values ? length : 0, .path = "x", .cycle = cycle, .single = single};
  struct insitu__select_item item;
  insitu_error err = {0};
  const char *at = text;
  size_t n = 0;

  assert_int_equal(insitu__select_next(&at, &item, &err), INSITU_OK);
  insitu__select_values_init(&v);
  insitu_status status;
  do {
    struct insitu__select_term term;
    status = insitu__select_term(&item, &term, &err);
    if (!status) status = insitu__select_take(&axis, &term, &v, &err);
  } while (!status && item.more);

  out[0] = 0;
  uint64_t indexes = 0;
  for (uint64_t r = 0; r < INSITU__ARRAY_LEN(axis.run); r++)
    for (uint64_t i = 0; i < axis.run[r].n; i++, indexes++)
      n += (size_t)snprintf(out + n, sizeof out - n, "%s%d",
          i   ? " "
          : r ? " | "
              : "",
          (int)(axis.run[r].first + (int64_t)i * axis.run[r].stride));
  if (!status) assert_int_equal(indexes, axis.n);
  INSITU__ARRAY_FREE(axis.run);
  INSITU__ARRAY_FREE(axis.name);
  if (!status) return out;
  assert_int_equal(err.status, status);
  snprintf(out, sizeof out, "%s", err.message);
  return out;
}

static void indexes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint64_t chunk;
    const char *is;
  } good[] = {{"x=[3]", 10, "3"}, {"x=[-1]", 10, "9"}, {"x=[2:5]", 10, "2 3 4"},
      {"x=[:3]", 10, "0 1 2"}, {"x=[8:]", 10, "8 9"}, {"x=[::4]", 10, "0 4 8"},
      {"x=[::4]", 3, "0 | 4 | 8"}, {"x=[::3]", 3, "0 3 6 9"}, {"x=[::-3]", 3, "9 6 3 0"},
      {"x=[::-4]", 3, "9 | 5 | 1"}, {"x=[4::-1]", 10, "4 3 2 1 0"}, {"x=[4:1:-2]", 10, "4 2"},
      {"x=[-3:-1]", 10, "7 8"}, {"x=[1,2,3]", 10, "1 2 3"}, {"x=[3,2,1]", 10, "3 2 1"},
      {"x=[1,3,5,6]", 10, "1 3 5 | 6"}, {"x=[5,5]", 10, "5 | 5"},
      {"x=[0:3],[3:5]", 10, "0 1 2 3 4"}, {"x=[0:3],[5:7]", 10, "0 1 2 | 5 6"},
      {"x=[1],[3:9:2]", 10, "1 3 5 7"}, {"x=[0,9]", 5, "0 | 9"}, {"x=[9:10]", 10, "9"}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    assert_string_equal(shown(good[i].text, 10, good[i].chunk, NULL, 0, false), good[i].is);

  static const char *const bad[] = {"x=[10]", "x=[-11]", "x=[5:5]", "x=[5:4]", "x=[0:11]",
      "x=[10:]", "x=[-11:]", "x=[1:4:-1]", "x=[:-11]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    contains(shown(bad[i], 10, 10, NULL, 0, false),
        "axis of 10; indexes are 0 to 9, and -10 to -1 from its end");
}

static void values(void **state) {
  (void)state;
  static const double level[] = {1000, 850, 500, 250}, rising[] = {10, 20, 30, 40, 50},
                      mixed[] = {10, 30, 20}, one[] = {7}, tenth[] = {0.1f, 0.2f, 0.3f};
  assert_string_equal(shown("p=500,850", 4, 4, level, 0, false), "2 1");
  assert_string_equal(shown("p=500,1000", 4, 4, level, 0, false), "2 0");
  assert_string_equal(shown("p=480~25", 4, 4, level, 0, false), "2");
  assert_string_equal(shown("p=900..300", 4, 4, level, 0, false), "1 2");
  assert_string_equal(shown("p=300..900", 4, 4, level, 0, false), "2 1");
  assert_string_equal(shown("x=20..40", 5, 5, rising, 0, false), "1 2 3");
  assert_string_equal(shown("x=45..15", 5, 5, rising, 0, false), "3 2 1");
  assert_string_equal(shown("x=20..20", 5, 5, rising, 0, false), "1");
  assert_string_equal(shown("x=20,[0],40..50", 5, 5, rising, 0, false), "1 0 | 3 4");
  assert_string_equal(shown("x=20,10", 3, 3, mixed, 0, false), "2 0");
  assert_string_equal(shown("x=0..10", 1, 1, one, 0, false), "0");
  /* float32 holds no 0.1: the text means what the archive has */
  assert_string_equal(shown("x=0.1,0.3", 3, 3, tenth, 0, true), "0 2");
  assert_string_equal(shown("x=0.1..0.2", 3, 3, tenth, 0, true), "0 1");
  contains(shown("x=0.1", 3, 3, tenth, 0, false), "selects nothing");

  contains(shown("p=600", 4, 4, level, 0, false), "next to 600 are 500 and 850");
  contains(shown("p=100", 4, 4, level, 0, false), "least value is 250");
  contains(shown("p=1001", 4, 4, level, 0, false), "greatest value is 1000");
  contains(shown("p=480~10", 4, 4, level, 0, false), "next to 480 are 250 and 500");
  contains(shown("p=600..700", 4, 4, level, 0, false), "selects nothing");
  contains(shown("x=10..20", 3, 3, mixed, 0, false), "neither rise nor fall");
}

static void circle(void **state) {
  (void)state;
  double east[36], west[36], part[4] = {340, 345, 350, 355}, falls[36];
  for (int i = 0; i < 36; i++) {
    east[i] = 10 * i;
    west[i] = -180 + 10 * i;
    falls[i] = 350 - 10 * i;
  }
  assert_string_equal(shown("lon=-20..20", 36, 36, east, 360, false), "34 35 | 0 1 2");
  assert_string_equal(shown("lon=20..-20", 36, 36, east, 360, false), "2 1 0 | 35 34");
  assert_string_equal(shown("lon=340..380", 36, 36, east, 360, false), "34 35 | 0 1 2");
  assert_string_equal(shown("lon=-20", 36, 36, east, 360, false), "34");
  assert_string_equal(shown("lon=358~5", 36, 36, east, 360, false), "0");
  assert_string_equal(shown("lon=170..190", 36, 36, west, 360, false), "35 | 0 1");
  assert_string_equal(shown("lon=350..370", 36, 36, west, 360, false), "17 18 19");
  assert_string_equal(shown("lon=-20..20", 36, 36, falls, 360, false), "1 0 | 35 34 33");
  assert_string_equal(shown("lon=-20..-5", 4, 4, part, 360, false), "0 1 2 3");
  contains(shown("lon=-20..20", 36, 36, east, 0, false), "0"); /* no circle: from 0 on */
  /* Coordinates that hold both ends of the circle. */
  double both[13], whole[13], one[1] = {__builtin_nan("")}, tenths[31];
  for (int i = 0; i < 13; i++) {
    both[i] = -180 + 30 * i;
    whole[i] = 30 * i;
  }
  assert_string_equal(
      shown("lon=-180..180", 13, 13, both, 360, false), "0 1 2 3 4 5 6 7 8 9 10 11 12");
  assert_string_equal(shown("lon=120..180", 13, 13, both, 360, false), "10 11 12");
  assert_string_equal(shown("lon=-180..-120", 13, 13, both, 360, false), "0 1 2");
  assert_string_equal(shown("lon=180", 13, 13, both, 360, false), "12");
  assert_string_equal(shown("lon=-180", 13, 13, both, 360, false), "0");
  assert_string_equal(shown("lon=150..210", 13, 13, both, 360, false), "11 12 | 1");
  assert_string_equal(
      shown("lon=0..360", 13, 13, whole, 360, false), "0 1 2 3 4 5 6 7 8 9 10 11 12");
  assert_string_equal(shown("lon=0..60", 13, 13, whole, 360, false), "0 1 2");
  assert_string_equal(shown("lon=-30..60", 13, 13, whole, 360, false), "11 | 0 1 2");
  assert_string_equal(shown("lon=60..-30", 13, 13, whole, 360, false), "2 1 0 | 11");
  assert_string_equal(shown("lon=360", 13, 13, whole, 360, false), "12");
  assert_string_equal(shown("lon=330..390", 13, 13, whole, 360, true), "11 12 | 1");

  contains(shown("n=0..10", 1, 1, one, 0, false), "no other value");
  for (int i = 0; i < 31; i++) tenths[i] = i * 0.1; /* 0.30000000000000004 */
  assert_string_equal(shown("d=0.3", 31, 31, tenths, 0, false), "3");
  assert_string_equal(shown("d=0.1..0.3", 31, 31, tenths, 0, false), "1 2 3");
  assert_string_equal(shown("d=0.3..0.1", 31, 31, tenths, 0, false), "3 2 1");
  contains(shown("lon=-20..341", 36, 36, east, 360, false), "more than once");

  /* A whole turn shows each index once. */
  for (int from = -360; from <= 360; from += 10) {
    char text[64];
    uint64_t seen = 0;
    int n = 0, at;
    snprintf(text, sizeof text, "lon=%d..%d", from, from + 360 > 360 ? from - 360 : from + 360);
    const char *p = shown(text, 36, 36, from % 20 ? east : falls, 360, false);
    for (int used; sscanf(p, " %d%n", &at, &used) == 1; n++) {
      seen |= UINT64_C(1) << at;
      p += used;
      if (!strncmp(p, " |", 2)) p += 2;
    }
    assert_int_equal(n, 36);
    assert_true(seen == (UINT64_C(1) << 36) - 1);
  }
}

static void too_many(void **state) {
  (void)state;
  struct insitu__select_axis axis = {.length = 100000, .chunk = 1};
  insitu_error err = {0};
  struct insitu__select_term every = {
      .kind = INSITU__SELECT_INDEXES, .text = "::2", .n = 3, .step = 2};
  assert_int_equal(insitu__select_indexes(&axis, &every, &err), INSITU_E_ARG);
  contains(err.message, "do not lie side by side");
  INSITU__ARRAY_FREE(axis.run);

  /* The count of what is shown does not overflow, however often an axis is shown. */
  axis = (struct insitu__select_axis){.length = UINT64_C(1) << 62, .chunk = 1};
  struct insitu__select_term all = {.kind = INSITU__SELECT_INDEXES, .text = ":", .n = 1, .step = 1};
  insitu__error_clear(&err);
  assert_int_equal(insitu__select_indexes(&axis, &all, &err), INSITU_OK);
  assert_int_equal(insitu__select_indexes(&axis, &all, &err), INSITU_E_SHAPE);
  contains(err.message, "more than 2^63 - 1 indexes");
  INSITU__ARRAY_FREE(axis.run);

  /* A term that is longer than can be is not cut. */
  char text[6000];
  snprintf(text, sizeof text, "x=[%05000d]", 5);
  contains(shown(text, 10, 10, NULL, 0, false), "too long");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(grammar), cmocka_unit_test(indexes),
      cmocka_unit_test(values), cmocka_unit_test(circle), cmocka_unit_test(too_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
