/* CF time against a walk from day to day by rules of this file's own, against cftime, and by its
 * spellings. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include "support.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

/* ---- a slow calendar ---- */

static bool slow_leap(int c, int y) {
  bool julian = ((y % 4) + 4) % 4 == 0, gregorian = julian && (y % 100 != 0 || y % 400 == 0);
  if (c == INSITU__TIME_ALL_LEAP) return true;
  if (c == INSITU__TIME_NOLEAP) return false;
  return c == INSITU__TIME_JULIAN || (c == INSITU__TIME_STANDARD && y < 1583) ? julian : gregorian;
}
static void slow_next(int c, int *y, int *m, int *d) {
  static const int length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int days = c == INSITU__TIME_360_DAY ? 30 : length[*m - 1] + (*m == 2 && slow_leap(c, *y));
  if (++*d > days) *d = 1, ++*m;
  if (*m > 12) *m = 1, ++*y;
  if (c == INSITU__TIME_STANDARD && *y == 1582 && *m == 10 && *d == 5) *d = 15;
}
static void test_walk(void **state) {
  (void)state;
  for (int c = 0; c < 6; c++) {
    int y = -805, m = 1, d = 1;
    int64_t n = insitu__time_day(c, y, m, d);
    for (; y < 2420; n++) {
      struct insitu__time_date back;
      if (insitu__time_day(c, y, m, d) != n || !insitu__time_exists(c, y, m, d))
        fail_msg("%s %d-%d-%d: %d", insitu__time_calendars[c], y, m, d,
            (int)(n - insitu__time_day(c, y, m, d)));
      insitu__time_from_day(c, n, &back);
      if (back.year != y || back.month != m || back.day != d)
        fail_msg("%s %d-%d-%d: %d-%d-%d", insitu__time_calendars[c], y, m, d, (int)back.year,
            back.month, back.day);
      slow_next(c, &y, &m, &d);
    }
    assert_int_equal(insitu__time_day(c, 1970, 1, 1), c == INSITU__TIME_JULIAN ? 13 : 0);
  }
  for (int64_t y = -199000; y <= 199000; y += 997) /* far years come back */
    for (int c = 0; c < 6; c++) {
      struct insitu__time_date back;
      insitu__time_from_day(c, insitu__time_day(c, y, 12, 30), &back);
      assert_true(back.year == y && back.month == 12 && back.day == 30);
    }
}

/* The public form of a date, of each day of several centuries in every calendar. */
static void test_date_parts(void **state) {
  (void)state;
  bool few = support_slow(); /* around the day that the standard calendar changes */
  for (int c = 0; c < 6; c++) {
    bool no_0 = c == INSITU__TIME_STANDARD || c == INSITU__TIME_JULIAN;
    int y = few ? 1570 : 1492, m = 1, d = 1, of_year = 1, days = 0, next_y = y, next_m = m,
        next_d = d;
    int64_t n = insitu__time_day(c, y, m, d) - insitu__time_day(c, 1970, 1, 1);
    for (; y < (few ? 1610 : 2110); n++) {
      if (of_year == 1)
        for (days = 0, next_y = y, next_m = next_d = 1; next_y == y; days++)
          slow_next(c, &next_y, &next_m, &next_d);
      insitu_date date, same;
      insitu_error err = {0};
      double hour = (double)(n % 24 + 24) * 0.97;
      hour = hour >= 24 ? hour - 24 : hour;
      assert_int_equal(insitu_date_from_double((double)n + hour / 24, "days since 1970-01-01",
                           insitu__time_calendars[c], &date, &err),
          0);
      if (date.year != y || date.month != m || date.day != d || date.day_of_year != of_year ||
          date.days_in_year != days)
        fail_msg("%s %d-%d-%d: %s, day %d of %d", insitu__time_calendars[c], y, m, d, date.text,
            (int)date.day_of_year, (int)date.days_in_year);
      double seconds = date.hour * 3600 + date.minute * 60 + date.second + date.microsecond * 1e-6;
      assert_true(
          fabs(date.of_day - hour / 24) < 1e-9 && fabs(seconds / 86400 - date.of_day) < 1e-12);
      assert_true(
          date.of_year < 1 && fabs(date.of_year - (of_year - 1 + date.of_day) / days) < 1e-12);
      assert_int_equal(
          insitu_date_from_int(n, "days since 1970-01-01", insitu__time_calendars[c], &same, &err),
          0);
      char text[32];
      snprintf(text, sizeof text, "%04d-%02d-%02dT00:00", y, m, d);
      assert_string_equal(same.text, text);
      assert_true(same.of_day == 0 && same.hour == 0);
      int before = y;
      slow_next(c, &y, &m, &d);
      of_year = y == before ? of_year + 1 : 1;
    }
    insitu_date date;
    insitu_error err = {0};
    assert_int_equal(insitu_date_from_int(
                         -1, "seconds since 0001-01-01", insitu__time_calendars[c], &date, &err),
        0);
    assert_int_equal(date.year, no_0 ? -1 : 0); /* as it is written */
    assert_int_equal(strncmp(date.text, no_0 ? "-0001-12-" : "0000-12-", no_0 ? 9 : 8), 0);
  }
}
static void test_date_refused(void **state) {
  (void)state;
  insitu_date date;
  insitu_error err = {0};
  assert_int_equal(insitu_date_from_int(INT64_C(1000000000123456789),
                       "nanoseconds since 1970-01-01", NULL, &date, &err),
      0);
  assert_string_equal(date.text, "2001-09-09T01:46:40.123456");
  assert_int_equal(date.microsecond, 123456);
  static const struct {
    double value;
    const char *units, *calendar;
    insitu_status status;
  } wrong[] = {{NAN, "days since 1970-01-01", NULL, INSITU_E_FORMAT},
      {1e12, "days since 1970-01-01", NULL, INSITU_E_FORMAT}, {1, "days", NULL, INSITU_E_FORMAT},
      {1, "months since 1970-01-01", NULL, INSITU_E_UNSUPPORTED},
      {1, "days since 1970-01-01", "lunar", INSITU_E_UNSUPPORTED}, {1, NULL, NULL, INSITU_E_ARG}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    memset(&err, 0, sizeof err);
    assert_int_equal(
        insitu_date_from_double(wrong[i].value, wrong[i].units, wrong[i].calendar, &date, &err),
        wrong[i].status);
    assert_int_equal(err.status, wrong[i].status);
  }
  assert_int_equal(
      insitu_date_from_int(INT64_MIN, "days since 1970-01-01", NULL, &date, NULL), INSITU_E_FORMAT);
  assert_int_equal(
      insitu_date_from_int(1, "days since 1970-01-01", NULL, NULL, NULL), INSITU_E_ARG);
}

static void test_cftime(void **state) {
  FILE *f = fopen(TEST_DATA "/time_golden.txt", "r");
  char line[300], calendar[32], number[64], text[INSITU__TIME_TEXT], want[80];
  int y, mo, d, h, mi, s, us, at, lines = 0;
  (void)state;
  assert_non_null(f);
  for (; fgets(line, sizeof line, f); lines++) {
    struct insitu__time_units u;
    insitu_error err = {0};
    int64_t moment = 0;
    line[strcspn(line, "\n")] = 0;
    assert_int_equal(sscanf(line, "%31s %63s %d %d %d %d %d %d %d %n", calendar, number, &y, &mo,
                         &d, &h, &mi, &s, &us, &at),
        9);
    if (insitu__time_units(&u, "x", line + at, calendar, &err))
      fail_msg("%s: %s", line, err.message);
    bool real = strchr(number, 'x');
    assert_true(real ? insitu__time_from_double(&u, strtod(number, NULL), &moment)
                     : insitu__time_from_int(&u, strtoll(number, NULL, 10), &moment));
    int n = snprintf(want, sizeof want, "%04d-%02d-%02dT%02d:%02d", y, mo, d, h, mi);
    if (s || us) n += snprintf(want + n, sizeof want - (size_t)n, ":%02d", s);
    if (us) snprintf(want + n, sizeof want - (size_t)n, ".%06d", us);
    if (strcmp(want, insitu__time_print(u.calendar, moment, text)))
      fail_msg("%s: %s, not %s", line, text, want);
    if (!real && llabs(strtoll(number, NULL, 10)) < INT64_C(1) << 53) { /* the same as a float */
      int64_t again;
      assert_true(insitu__time_from_double(&u, strtod(number, NULL), &again) && again == moment);
    }
  }
  assert_int_equal(lines, 270);
  fclose(f);
}

/* ---- spellings ---- */

static void reference(const char *units, const char *calendar, const char *want) {
  struct insitu__time_units u;
  insitu_error err = {0};
  char text[INSITU__TIME_TEXT];
  if (insitu__time_units(&u, "array 't'", units, calendar, &err))
    fail_msg("%s: %s", units, err.message);
  if (strcmp(want, insitu__time_print(u.calendar, u.start, text)))
    fail_msg("%s: %s, not %s", units, text, want);
}
static void refused(
    const char *units, const char *calendar, insitu_status status, const char *part) {
  struct insitu__time_units u;
  insitu_error err = {0};
  if (insitu__time_units(&u, "array 't'", units, calendar, &err) != status ||
      !strstr(err.message, part))
    fail_msg("%s: %s, without '%s'", units, err.message, part);
  if (!strstr(err.message, "array 't'") || !strstr(err.message, "by index"))
    fail_msg("%s", err.message);
}
static void test_units(void **state) {
  (void)state;
  reference("days since 1900-01-01", NULL, "1900-01-01T00:00");
  reference("  Hours  since  1900-1-1 0:0:0.0 ", NULL, "1900-01-01T00:00");
  reference("seconds since 1970-01-01T00:00:00Z", "Gregorian", "1970-01-01T00:00");
  reference("seconds since 1970-01-01 00:00:00 UTC", NULL, "1970-01-01T00:00");
  reference("h since 1970-01-01 00:00 +01:00", NULL, "1969-12-31T23:00");
  reference("h since 1970-01-01T00:00:00-0530", NULL, "1970-01-01T05:30");
  reference("h since 1970-01-01 12 -2", NULL, "1970-01-01T14:00");
  reference("ms since 1970-01-01 00:00:00.1234567", NULL, "1970-01-01T00:00:00.123456");
  reference("ns since 1979", "360_day", "1979-01-01T00:00");
  reference("days since 1979-02-30", "360_day", "1979-02-30T00:00");
  reference("days since 1979-02-29", "366_day", "1979-02-29T00:00");
  reference("days since 0000-01-01", "noleap", "0000-01-01T00:00");
  reference("days since -0004-02-29", "proleptic_gregorian", "-0004-02-29T00:00");
  reference("days since 1582-10-04", "standard", "1582-10-04T00:00");
  /* standard and julian have no year 0: this one is the first of the Julian Period, 2440587.5 days
   * before 1970 */
  struct insitu__time_units u;
  const char *period = "days since -4713-01-01 12:00";
  reference(period, NULL, "-4713-01-01T12:00");
  assert_int_equal(insitu__time_units(&u, "array 't'", period, NULL, NULL), 0);
  assert_int_equal(u.start, -INT64_C(4881175) * (INSITU__TIME_DAY / 2));
  reference("days since -0001-02-29", "julian", "-0001-02-29T00:00");
  refused("days since 0000-01-01", "standard", INSITU_E_FORMAT, "reference date");
  refused("days since 0-1-1", "julian", INSITU_E_FORMAT, "reference date");
  refused("months since 1900-01-01", NULL, INSITU_E_UNSUPPORTED, "months");
  refused("years since 1900-01-01", NULL, INSITU_E_UNSUPPORTED, "no fixed length");
  refused("fortnights since 1900-01-01", NULL, INSITU_E_UNSUPPORTED, "weeks, days");
  refused("hours", NULL, INSITU_E_FORMAT, "<unit> since <date>");
  refused("", NULL, INSITU_E_FORMAT, "<unit> since <date>");
  refused("degrees_north", NULL, INSITU_E_FORMAT, "<unit> since <date>");
  refused("days since 1900-01-01", "tai", INSITU_E_UNSUPPORTED, "'tai'");
  static const char *const none[] = {"1900-13-01", "1900-02-29", "1900-00-01", "1900-01-01 24:00",
      "1900-01-01 00:60", "1582-10-10", "yesterday", "", "1900-01-01 0:0:0.", "1900-01-01T",
      "1900-01-01 00:00 +1:2:3", "1900-01-01 00:00 +24", "1900-01-01x", "200000-01-01", "19000101",
      "1900-1-001"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    char units[80];
    snprintf(units, sizeof units, "days since %s", none[i]);
    refused(units, "standard", INSITU_E_FORMAT, "reference date");
  }
  refused("days since 2000-02-29", "noleap", INSITU_E_FORMAT, "noleap");
  refused("days since 2000-01-31", "360_day", INSITU_E_FORMAT, "360_day");
}

static void test_periods(void **state) {
  static const struct {
    const char *date;
    int calendar;
    const char *from, *to; /* NULL: no such date */
  } one[] = {{"1979", 0, "1979-01-01T00:00", "1980-01-01T00:00"},
      {"1979-06", 0, "1979-06-01T00:00", "1979-07-01T00:00"},
      {"1979-12", 5, "1979-12-01T00:00", "1980-01-01T00:00"},
      {"1979-12-31", 0, "1979-12-31T00:00", "1980-01-01T00:00"},
      {"1979-06-01T12", 0, "1979-06-01T12:00", "1979-06-01T13:00"},
      {"1979-06-01 12:30", 0, "1979-06-01T12:30", "1979-06-01T12:31"},
      {"1979-06-01 12:30:59", 0, "1979-06-01T12:30:59", "1979-06-01T12:31"},
      {"1979-06-01T12:30:59.5", 0, "1979-06-01T12:30:59.500000", "1979-06-01T12:30:59.500001"},
      {"1979-06-01T12+02:00", 0, "1979-06-01T10:00", "1979-06-01T11:00"},
      {"1582-10", 0, "1582-10-01T00:00", "1582-11-01T00:00"},
      {"1582-10-04", 0, "1582-10-04T00:00", "1582-10-15T00:00"},
      {"1582-10-10", 0, "1582-10-15T00:00", "1582-10-15T00:00"},
      {"1582-10-10", 1, "1582-10-10T00:00", "1582-10-11T00:00"},
      {"1980-02-29", 3, "1980-03-01T00:00", "1980-03-01T00:00"},
      {"1979-02-29T12", 3, "1979-03-01T00:00", "1979-03-01T00:00"},
      {"1979-02-30", 5, "1979-02-30T00:00", "1979-03-01T00:00"},
      {"1979-01-31", 5, "1979-02-01T00:00", "1979-02-01T00:00"},
      {"1979-12-31", 5, "1980-01-01T00:00", "1980-01-01T00:00"}, {"1979-02-29", 0, NULL, NULL},
      {"1979-02-30", 1, NULL, NULL}, {"1979-04-31", 3, NULL, NULL}, {"1979-02-31", 5, NULL, NULL},
      {"1979-02-29", 4, "1979-02-29T00:00", "1979-03-01T00:00"},
      {"1900-02-29", 2, "1900-02-29T00:00", "1900-03-01T00:00"}};
  char text[INSITU__TIME_TEXT];
  (void)state;
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    struct insitu__time_date d;
    int64_t from, to;
    assert_true(insitu__time_parse(one[i].date, &d));
    bool known = insitu__time_period(one[i].calendar, &d, &from, &to);
    if (known != (one[i].from != NULL)) fail_msg("%s: %d", one[i].date, known);
    if (!known) continue;
    if (strcmp(insitu__time_print(one[i].calendar, from, text), one[i].from))
      fail_msg("%s: from %s", one[i].date, text);
    if (strcmp(insitu__time_print(one[i].calendar, to, text), one[i].to))
      fail_msg("%s: to %s", one[i].date, text);
  }
}

static void test_values(void **state) {
  struct insitu__time_units days, ns;
  int64_t moment = 7;
  (void)state;
  assert_int_equal(insitu__time_units(&days, "x", "days since 1970-01-01", NULL, NULL), 0);
  assert_int_equal(insitu__time_units(&ns, "x", "ns since 1970-01-01", NULL, NULL), 0);
  static const double none[] = {NAN, INFINITY, -INFINITY, 1e300, 1e15, -1e15, 0x1p63};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(insitu__time_from_double(&days, none[i], &moment));
  assert_false(insitu__time_from_int(&days, INT64_MAX, &moment));
  assert_false(insitu__time_from_int(&days, INT64_C(200000) * 366, &moment));
  assert_false(insitu__time_from_int(&ns, INT64_MIN, &moment)); /* NaT */
  assert_true(insitu__time_from_int(&ns, INT64_MAX, &moment) && moment == INT64_MAX / 1000);
  assert_true(insitu__time_from_int(&ns, -1, &moment) && moment == -1);
  assert_true(insitu__time_from_double(&ns, 1600, &moment) && moment == 2);
  assert_true(insitu__time_from_double(&days, 0.1, &moment) && moment == 8640000000);
  assert_true(insitu__time_from_double(&days, -1e-12, &moment) && moment == 0);
  assert_true(
      insitu__time_from_double(&days, -700000.5, &moment) && moment == INT64_C(-60480043200000000));
  struct insitu__time_units u;
  static const struct {
    const char *unit;
    int64_t count, second; /* how many make one, or how many seconds one is (negative) */
  } unit[] = {{"ns", 1, 1000000000}, {"ns", 25, 40000000}, {"us", 1, 1000000}, {"ms", 1, 1000},
      {"s", 1, 1}, {"m", 1, -60}, {"h", 3, -10800}, {"D", 1, -86400}, {"W", 1, -604800}};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
    assert_true(insitu__time_datetime64(&u, unit[i].unit, unit[i].count));
    int64_t n = unit[i].second > 0 ? unit[i].second : 1,
            seconds = unit[i].second > 0 ? 1 : -unit[i].second;
    assert_true(insitu__time_from_int(&u, n, &moment) && moment == seconds * 1000000);
    assert_int_equal(u.calendar, INSITU__TIME_PROLEPTIC);
  }
  assert_false(insitu__time_datetime64(&u, "Y", 1) || insitu__time_datetime64(&u, "M", 1) ||
               insitu__time_datetime64(&u, "ps", 1));
  assert_false(insitu__time_datetime64(&u, "W", INT64_MAX) || insitu__time_datetime64(&u, "s", 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_walk), cmocka_unit_test(test_date_parts),
      cmocka_unit_test(test_date_refused), cmocka_unit_test(test_cftime),
      cmocka_unit_test(test_units), cmocka_unit_test(test_periods), cmocka_unit_test(test_values)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
