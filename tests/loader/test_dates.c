/* Samples selected by date: against text comparison of ISO dates, which a walk through the calendar
 * writes; and what absent chunks say of dates. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include "support.h"
#include "modes.h"

/* four samples a day, from 1979-11-01 on (1582-09-01 of calendars that have a gap there) */
enum { N = 4 * 800 };
static char iso[N][20];
static double value[N], hours[N];

static void walk(int calendar, int year, int month) {
  struct insitu__time_date d = {.year = year, .month = month, .day = 1};
  for (int i = 0; i < N; i++) {
    snprintf(iso[i], sizeof iso[i], "%04d-%02d-%02dT%02d", (int)d.year % 10000, d.month % 100,
        d.day % 100, i % 4 * 6);
    hours[i] = 6 * i;
    if (i % 4 < 3) continue;
    do { /* the next day that exists */
      d.day++;
      if (d.day > 31) d.day = 1, d.month++;
      if (d.month > 12) d.month = 1, d.year++;
    } while (!insitu__time_exists(calendar, d.year, d.month, d.day));
  }
}
/* The latest date first. */
static void reverse(double *at) {
  for (int i = 0; i < N / 2; i++) {
    char swap[20];
    double other = at[i];
    memcpy(swap, iso[i], 20);
    memcpy(iso[i], iso[N - 1 - i], 20);
    memcpy(iso[N - 1 - i], swap, 20);
    at[i] = at[N - 1 - i];
    at[N - 1 - i] = other;
  }
}
/* Whether a date, cut to the length of a partial one, lies from `from` to `to`. */
static bool inside(const char *date, const char *from, const char *to) {
  return (!from || strncmp(date, from, strlen(from)) >= 0) &&
         (!to || strncmp(date, to, strlen(to)) <= 0);
}

static insitu_status open_with(insitu_loader_desc d, insitu_loader **ld, insitu_error *err) {
  memset(err, 0, sizeof *err);
  return insitu_loader_open(&d, ld, err);
}
static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}
static insitu_variable x = {.label = "x"};
static insitu_loader_desc base(const char *root) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &x,
      .n_variables = 1,
      .batch_size = 4,
      .plan_only = 1};
}
/* An archive whose x has the dates of iso[]. */
static const char *make(const char *name, int format, int32_t dtype, const char *units,
    const char *calendar, const double *values) {
  char attributes[200];
  const char *root = support_path(name);
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {N, 2},
      .chunk = {10, 2},
      .dtype = INSITU_U8,
      .format = format,
      .dims = "[\"time\",\"y\"]"};
  snprintf(attributes, sizeof attributes, "\"units\":\"%s\"%s%s%s", units,
      calendar ? ",\"calendar\":\"" : "", calendar ? calendar : "", calendar ? "\"" : "");
  struct support_array t = {.name = "time",
      .ndim = 1,
      .shape = {N},
      .chunk = {700},
      .dtype = dtype,
      .format = format,
      .zstd = format == 3,
      .dims = "[\"time\"]",
      .attributes = attributes,
      .values = values};
  support_make(root, &a);
  support_make(root, &t);
  return root;
}

static void test_selections(void **state) {
  static const int32_t dtypes[] = {INSITU_I64, INSITU_F64, INSITU_I32, INSITU_F32};
  static const struct {
    const char *unit;
    double hour;
  } units[] = {{"hours", 1}, {"days", 1.0 / 24}, {"minutes", 60}, {"seconds", 3600}};
  (void)state;
  for (int c = 0; c < 6; c++)
    for (int round = 0; round < 4; round++) {
      char name[32], since[64];
      bool falls = round == 3, old = round == 2, real = round == 1;
      walk(c, old ? 1582 : 1979, old ? 9 : 11);
      snprintf(since, sizeof since, "%s since %s", units[round].unit,
          old ? "1582-09-01" : "1979-11-01 00:00:00");
      for (int i = 0; i < N; i++) value[i] = hours[i] * units[round].hour;
      if (falls) reverse(value);
      snprintf(name, sizeof name, "dates%d%d", c, round);
      const char *root = make(name, 2 + round % 2, real ? INSITU_F64 : dtypes[round], since,
          insitu__time_calendars[c], value);
      for (int k = 0; k < support_rounds(25); k++) {
        static const size_t lengths[] = {4, 7, 10, 13};
        char first[20], last[20];
        insitu_loader_desc d = base(root);
        insitu_loader *ld;
        insitu_error err;
        snprintf(first, sizeof first, "%s", iso[support_below(N)]);
        snprintf(last, sizeof last, "%s", iso[support_below(N)]);
        first[lengths[support_below(4)]] = last[lengths[support_below(4)]] = 0;
        if (k % 5) d.sample_from = first;
        if (k % 4 || !d.sample_from) d.sample_to = last;
        int begin = N, end = 0;
        for (int i = 0; i < N; i++)
          if (inside(iso[i], d.sample_from, d.sample_to)) {
            begin = begin < i ? begin : i;
            end = i + 1;
          }
        insitu_status status = open_with(d, &ld, &err);
        if (begin >= end) {
          assert_int_equal(status, INSITU_E_SPLIT);
          has(err.message, "no sample lies from");
          continue;
        }
        if (status) fail_msg("%s to %s: %s", first, last, err.message);
        const insitu_loader_desc *r = insitu_loader_config(ld);
        if (r->sample_start != begin || r->sample_stop != end)
          fail_msg("%s, %s to %s: [%d, %d), not [%d, %d)", insitu__time_calendars[c], d.sample_from,
              d.sample_to, (int)r->sample_start, (int)r->sample_stop, begin, end);
        assert_true(!r->sample_from && !r->sample_to);
        insitu_loader_close(&ld);
      }
    }
}

/* numpy's datetime64: its unit is in the type. */
static void test_datetime64(void **state) {
  static const struct {
    const char *dtype, *name;
    double step; /* of six hours */
  } types[] = {{"<M8[h]", "h", 6}, {"<M8[s]", "s", 21600}, {"<M8[ns]", "ns", 21600e9},
      {"<M8[25s]", "25s", 864}};
  (void)state;
  walk(INSITU__TIME_PROLEPTIC, 1979, 11);
  for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
    char path[700], metadata[300];
    insitu_loader *ld;
    insitu_error err;
    /* days from 1970-01-01 to 1979-11-01 */
    for (int i = 0; i < N; i++) value[i] = (3591 * 4 + i) * types[k].step;
    const char *root = make(types[k].name, 2, INSITU_I64, "m", NULL, value);
    snprintf(path, sizeof path, "%s/time/.zarray", root);
    int n = snprintf(metadata, sizeof metadata,
        "{\"zarr_format\":2,\"shape\":[%d],\"chunks\":[700],\"dtype\":\"%s\",\"order\":\"C\","
        "\"fill_value\":null,"
        "\"compressor\":null,\"filters\":null}",
        N, types[k].dtype);
    support_write(path, metadata, (size_t)n);
    insitu_loader_desc d = base(root);
    d.sample_from = "1979-11-03";
    d.sample_to = "1979-11-04T06";
    if (open_with(d, &ld, &err)) fail_msg("%s: %s", types[k].dtype, err.message);
    assert_true(
        insitu_loader_config(ld)->sample_start == 8 && insitu_loader_config(ld)->sample_stop == 14);
    insitu_loader_close(&ld);
    char *unit = strchr(strstr(metadata, "M8"), '[') + 1, *end = strchr(unit, '"');
    memmove(unit + 2, end, strlen(end) + 1); /* years have no length */
    memcpy(unit, "Y]", 2);
    support_write(path, metadata, strlen(metadata));
    assert_int_equal(open_with(d, &ld, &err), INSITU_E_UNSUPPORTED);
    has(err.message, "datetime64[Y]");
  }
}

/* Splits by date with a gap are those by index; the coordinate of another name, in a group, in all
 * modes. */
static void test_splits(void **state) {
  (void)state;
  walk(INSITU__TIME_NOLEAP, 1979, 11);
  const char *root = make("splits", 3, INSITU_F64, "hours since 1979-11-01", "365_day", hours);
  insitu_loader_desc d = base(root), e;
  insitu_loader *by_date, *by_index;
  insitu_error err;
  char a[20000], b[20000];
  d.split[0] = (insitu_split_range){.to = "1980-06"};
  d.split[1] = (insitu_split_range){.from = "1980-07", .to = "1980-12-31"};
  d.split[2] = (insitu_split_range){.from = "1981"};
  d.split_gap = 8;
  d.sample_from = "1979-12";
  d.sample_to = "1981-12-31";
  e = base(root);
  int at[3] = {0, 0, 0}, begin = 0, end = 0;
  for (int i = 0; i < N; i++) {
    if (inside(iso[i], "1979-12", "1980-06")) at[0] = i + 1;
    if (inside(iso[i], "1980-07", "1980-12-31")) at[1] = i + 1;
    if (inside(iso[i], NULL, "1979-11")) begin = i + 1;
    if (inside(iso[i], NULL, "1981-12-31")) end = i + 1;
  }
  e.split[0] = (insitu_split_range){.start = begin, .stop = at[0]};
  e.split[1] = (insitu_split_range){.start = at[0], .stop = at[1]};
  e.split[2] = (insitu_split_range){.start = at[1], .stop = end};
  e.split_gap = 8;
  e.sample_start = begin;
  e.sample_stop = end;
  EACH_MODE (m) {
    d.plan_only = e.plan_only = 0;
    d.io = e.io = modes[m].io;
    d.inline_io = e.inline_io = modes[m].inline_io;
    if (open_with(d, &by_date, &err) || open_with(e, &by_index, &err)) fail_msg("%s", err.message);
    for (int p = 0; p < 3; p++) {
      insitu_plan one, two;
      const insitu_split_range *r = &insitu_loader_config(by_date)->split[p];
      assert_true(r->start == e.split[p].start && r->stop == e.split[p].stop && !r->from && !r->to);
      insitu_iter_desc i = {.api = INSITU_API, .split = p};
      assert_int_equal(insitu_loader_plan(by_date, &i, &one, &err), 0);
      assert_int_equal(insitu_loader_plan(by_index, &i, &two, &err), 0);
      assert_memory_equal(&one, &two, sizeof one);
    }
    insitu_stats stats;
    assert_int_equal(insitu_loader_stats(by_date, &stats, &err), 0);
    /* nothing of the coordinate stays */
    assert_int_equal(
        stats.memory_promised, by_date->footprint.inflight_bytes + by_date->footprint.cache_bytes);
    assert_true(insitu_loader_describe(by_date, a, sizeof a) &&
                insitu_loader_describe(by_index, b, sizeof b));
    has(a, "\"sample_start\": \"archive\"");
    has(b, "\"sample_start\": \"desc\"");
    /* the description can be opened again: it has no dates */
    a[strcspn(a, "}")] = b[strcspn(b, "}")] = 0;
    assert_string_equal(a, b);
    insitu_loader_close(&by_date);
    insitu_loader_close(&by_index);
  }
}

/* A part's range holds exactly the samples that take part and have a date from `from` to `to`. */
static void has_range(
    const insitu_loader *ld, int p, const insitu_split_range *want, const bool *takes_part) {
  const struct insitu__geometry_interval *range = ld->split.part[p].range;
  int64_t lo = N, hi = 0;
  for (int i = 0; i < N; i++) {
    bool in = false;
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(range); k++)
      in = in || (i >= range[k].lo && i < range[k].hi);
    bool should = takes_part[i] && inside(iso[i], want->from, want->to);
    if (in != should)
      fail_msg(
          "part %d, from %s to %s: sample %d of %s: %d", p, want->from, want->to, i, iso[i], in);
    if (!should) continue;
    lo = lo < i ? lo : i;
    hi = i + 1;
  }
  const insitu_split_range *r = &insitu_loader_config(ld)->split[p];
  if (r->start != lo || r->stop != hi)
    fail_msg("part %d: [%d, %d), not [%d, %d)", p, (int)r->start, (int)r->stop, (int)lo, (int)hi);
}

/* How many samples a list of intervals holds. */
static uint64_t total(const struct insitu__geometry_interval *list) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(list); i++) n += (uint64_t)(list[i].hi - list[i].lo);
  return n;
}

/* Open ends: each end of each split, and of the samples that take part, on axes that rise and that
 * fall. */
static void test_open_ends(void **state) {
  static const char *const taking[][2] = {
      {NULL, NULL}, {"1979-12", NULL}, {NULL, "1981-11"}, {"1979-12-05", "1981-11-07T06"}};
  (void)state;
  for (int falls = 0; falls < 2; falls++) {
    walk(0, 1979, 11);
    memcpy(value, hours, sizeof value);
    if (falls) reverse(value);
    const char *root =
        make(falls ? "falls" : "rises", 2, INSITU_F64, "hours since 1979-11-01", NULL, value);
    for (int k = 0; k < 8; k++) { /* 4 to 7: the samples that take part are given by index */
      insitu_loader_desc d = base(root);
      insitu_loader *ld;
      insitu_error err;
      bool takes_part[N];
      int64_t lo = N, hi = 0;
      for (int i = 0; i < N; i++) {
        takes_part[i] = inside(iso[i], taking[k % 4][0], taking[k % 4][1]);
        if (!takes_part[i]) continue;
        lo = lo < i ? lo : i;
        hi = i + 1;
      }
      if (k < 4) {
        d.sample_from = taking[k][0];
        d.sample_to = taking[k][1];
      } else {
        d.sample_start = lo;
        d.sample_stop = hi;
      }
      for (int p = 0; p < 3; p++)
        /* neither, from, to, both; the next part has some dates of its own */
        for (int ends = 0; ends < 4; ends++) {
          int other = (p + 1) % 3;
          memset(d.split, 0, sizeof d.split);
          if (ends & 1) d.split[p].from = "1980-06";
          if (ends & 2) d.split[p].to = "1981-03-10";
          if (!ends)
            d.split[other] = (insitu_split_range){.from = "1980-02", .to = "1980-05-10T12"};
          if (open_with(d, &ld, &err))
            fail_msg("falls %d, part %d, ends %d: %s", falls, p, ends, err.message);
          has_range(ld, ends ? p : other, &d.split[ends ? p : other], takes_part);
          for (int q = 0; q < 3; q++)
            if (q != (ends ? p : other))
              assert_int_equal(INSITU__ARRAY_LEN(ld->split.part[q].range), 0);
          insitu_loader_close(&ld);
        }
      /* all three, open to either side: they share nothing and leave nothing out */
      memset(d.split, 0, sizeof d.split);
      d.split[0] = (insitu_split_range){.to = "1980-12"};
      d.split[1] = (insitu_split_range){.from = "1981-01", .to = "1981-05"};
      d.split[2] = (insitu_split_range){.from = "1981-06"};
      if (open_with(d, &ld, &err)) fail_msg("falls %d: %s", falls, err.message);
      uint64_t sum = 0;
      for (int p = 0; p < 3; p++) has_range(ld, p, &d.split[p], takes_part);
      for (int p = 0; p < 3; p++) sum += total(ld->split.part[p].range);
      assert_int_equal(sum, total(ld->split.part[INSITU_ALL].range));
      insitu_loader_close(&ld);
    }
  }
}

static void refuse(insitu_loader_desc d, insitu_status status, const char *part) {
  insitu_loader *ld = NULL;
  insitu_error err;
  insitu_status got = open_with(d, &ld, &err);
  if (got != status || !strstr(err.message, part))
    fail_msg("%s: %s, without '%s'", insitu_status_name(got), err.message, part);
}

/* The dates of a batch's samples, beside open iterators and with plan_only. */
static void test_sample_dates(void **state) {
  (void)state;
  for (int c = 0; c < 6; c++)
    EACH_MODE (m) {
      char name[32];
      insitu_error err;
      insitu_loader *ld;
      walk(c, c % 2 ? 1979 : 1582, c % 2 ? 11 : 9);
      snprintf(name, sizeof name, "samples%d", c);
      const char *root = make(name, 2 + c % 2, INSITU_I64,
          c % 2 ? "hours since 1979-11-01" : "hours since 1582-09-01", insitu__time_calendars[c],
          hours);
      insitu_loader_desc d = base(root);
      d.plan_only = m == 0 && c == 0;
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      assert_int_equal(open_with(d, &ld, &err), INSITU_OK);
      insitu_date dates[64];
      if (d.plan_only) {
        const int64_t some[] = {N - 1, 0, 7};
        assert_int_equal(insitu_sample_dates(ld, some, 3, dates, &err), INSITU_OK);
        for (int i = 0; i < 3; i++) assert_memory_equal(dates[i].text, iso[some[i]], 13);
        insitu_loader_close(&ld);
        support_remove(root);
        continue;
      }
      insitu_iter *it = NULL;
      insitu_batch *batch;
      assert_int_equal(
          insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_OK);
      insitu_stats before, after;
      insitu_loader_stats(ld, &before, NULL);
      for (int k = 0; k < 5; k++) {
        assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), INSITU_OK);
        assert_int_equal(
            insitu_sample_dates(ld, batch->sample_indices, batch->rows, dates, &err), INSITU_OK);
        for (uint64_t i = 0; i < batch->rows; i++)
          assert_memory_equal(dates[i].text, iso[batch->sample_indices[i]], 13);
        insitu_batch_release(&batch);
      }
      insitu_loader_stats(ld, &after, NULL);
      assert_int_equal(after.memory_promised, before.memory_promised + N * 8);
      assert_int_equal(insitu_sample_dates(ld, NULL, 0, NULL, &err), INSITU_OK);
      assert_int_equal(insitu_sample_dates(ld, (int64_t[]){0, N}, 2, dates, &err), INSITU_E_ARG);
      has(err.message, "there is no sample 3200");
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_sample_dates(ld, (int64_t[]){-1}, 1, dates, &err), INSITU_E_ARG);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      support_remove(root);
    }
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_date date;
  walk(1, 1979, 11);
  const char *root = make("samples", 2, INSITU_I64, "moons since 1979-11-01", NULL, hours);
  insitu_loader_desc d = base(root);
  assert_int_equal(open_with(d, &ld, &err), INSITU_OK);
  for (int k = 0; k < 2; k++) { /* nothing is kept of a failure */
    memset(&err, 0, sizeof err);
    assert_int_equal(insitu_sample_dates(ld, (int64_t[]){0}, 1, &date, &err), INSITU_E_UNSUPPORTED);
    has(err.message, "the unit is not known");
  }
  insitu_loader_close(&ld);
  /* no message is that of an open, which went well */
  static const char *const unfit[] = {"nowhere", "x"};
  for (int i = 0; i < 2; i++) {
    d.time_path = unfit[i];
    assert_int_equal(open_with(d, &ld, &err), INSITU_OK);
    assert_true(insitu_sample_dates(ld, (int64_t[]){0}, 1, &date, &err) < 0);
    if (strstr(err.message, "open")) fail_msg("%s", err.message);
    insitu_loader_close(&ld);
  }
  d.time_path = NULL;
  d.variables = NULL;
  d.n_variables = 0;
  assert_int_equal(open_with(d, &ld, &err), INSITU_OK);
  assert_int_equal(insitu_sample_dates(ld, (int64_t[]){0}, 1, &date, &err), INSITU_E_ARG);
  has(err.message, "no variables");
  insitu_loader_close(&ld);
  support_remove(root);
}
/* A date that cannot be read is an error, though chunks of variables may be filled. */
static void test_damaged(void **state) {
  (void)state;
  walk(0, 1979, 11);
  const char *root = make("damaged", 2, INSITU_I64, "hours since 1979-11-01", NULL, hours);
  char path[600];
  snprintf(path, sizeof path, "%s/time/1", root); /* samples [700, 1400) */
  support_write(path, "short", 5);
  EACH_MODE (m) {
    insitu_error err;
    insitu_loader *ld;
    insitu_date date;
    insitu_stats stats;
    insitu_loader_desc d = base(root);
    d.on_bad_chunk = INSITU_FILL;
    d.plan_only = 0;
    d.io = modes[m].io;
    d.inline_io = modes[m].inline_io;
    assert_int_equal(open_with(d, &ld, &err), INSITU_OK);
    for (int k = 0; k < 2; k++) {
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_sample_dates(ld, (int64_t[]){700}, 1, &date, &err), INSITU_E_CORRUPT);
      has(err.message, "chunk time/1");
    }
    insitu_loader_stats(ld, &stats, NULL);
    assert_int_equal(stats.bad_chunks, 0);
    insitu_loader_close(&ld);
    d.sample_from = "1980-06-01";
    assert_int_equal(open_with(d, &ld, &err), INSITU_E_CORRUPT);
    has(err.message, "chunk time/1");
  }
  support_remove(root);
}
static void test_refused(void **state) {
  (void)state;
  walk(0, 1979, 11);
  insitu_loader_desc d =
      base(make("refused", 2, INSITU_F64, "hours since 1979-11-01", NULL, hours));
  d.sample_from = "1985";
  refuse(d, INSITU_E_SPLIT, "go from 1979-11-01T00:00 to 1982-01-08T18:00");
  d.sample_from = "yesterday";
  refuse(d, INSITU_E_ARG, "'yesterday' is no date of calendar standard");
  d.sample_from = "1979-02-29";
  refuse(d, INSITU_E_ARG, "1979-02-29");
  d.sample_from = "1981-06";
  d.sample_to = "1980-06";
  refuse(d, INSITU_E_SPLIT, "no sample lies from 1981-06 to 1980-06");
  d.sample_to = NULL;
  d.sample_start = 3;
  refuse(d, INSITU_E_ARG, "by date and by index");
  d.sample_start = 0;
  d.split[1] = (insitu_split_range){.from = "1980", .stop = 7};
  refuse(d, INSITU_E_ARG, "by date and by index");
  d.split[1] = (insitu_split_range){.from = "1980", .fraction = 0.5};
  refuse(d, INSITU_E_ARG, "by date and by index");
  d.split[1] = (insitu_split_range){.from = "1990"};
  refuse(d, INSITU_E_SPLIT, "from and to of split val");
  d.split[1] = (insitu_split_range){0};
  d.memory_budget = 1000;
  refuse(d, INSITU_E_BUDGET, "array time");
  d.memory_budget = 0;
  d.time_path = "x";
  refuse(d, INSITU_E_SHAPE, "array x");
  d.time_path = "clock";
  refuse(d, INSITU_E_NOTFOUND, "clock");

  d = base(make("months", 2, INSITU_I32, "months since 1979-11-01", NULL, hours));
  d.sample_to = "1980";
  refuse(d, INSITU_E_UNSUPPORTED, "months and years have no fixed length");
  d = base(make("nonsense", 3, INSITU_I32, "hours", NULL, hours));
  d.sample_to = "1980";
  refuse(d, INSITU_E_FORMAT, "<unit> since <date>");
  d = base(make("calendar", 3, INSITU_I32, "hours since 1979-11-01", "lunar", hours));
  d.sample_to = "1980";
  refuse(d, INSITU_E_UNSUPPORTED, "calendar 'lunar'");
  memcpy(value, hours, sizeof value);
  value[1234] = value[1233];
  d = base(make("twice", 3, INSITU_F64, "hours since 1979-11-01", NULL, value));
  d.sample_to = "1980";
  refuse(d, INSITU_E_FORMAT, "index 1234");
  value[1234] = NAN;
  d = base(make("nan", 3, INSITU_F64, "hours since 1979-11-01", NULL, value));
  d.sample_to = "1980";
  refuse(d, INSITU_E_FORMAT, "at index 1234 is no date");

  const char *root = support_path("unnamed");
  struct support_array a = {
      .name = "x", .ndim = 1, .shape = {40}, .chunk = {4}, .dtype = INSITU_U8, .format = 2};
  support_make(root, &a);
  d = base(root);
  d.sample_to = "1980";
  refuse(d, INSITU_E_NOTFOUND, "has no name");
  a.dims = "[\"time\"]";
  support_make(root, &a);
  refuse(d, INSITU_E_NOTFOUND, "no coordinate 'time'");
  struct support_array t = {
      .name = "clock", .ndim = 1, .shape = {40}, .chunk = {4}, .dtype = INSITU_I16, .format = 2};
  support_make(root, &t);
  d.time_path = "clock";
  refuse(d, INSITU_E_FORMAT, "no attribute units");
  t.attributes = "\"units\":\"days since 1980-01-01\",\"scale_factor\":0.5";
  support_make(root, &t);
  refuse(d, INSITU_E_UNSUPPORTED, "packed");
  t.attributes = "\"units\":\"days since 1980-01-01\"";
  support_make(root, &t);
  d.sample_from = "1980-01-06";
  d.sample_to = "1980-01-10";
  insitu_loader *ld;
  insitu_error err;
  if (open_with(d, &ld, &err)) fail_msg("%s", err.message);
  assert_int_equal(insitu_loader_config(ld)->sample_start, 5);
  assert_int_equal(insitu_loader_config(ld)->sample_stop, 10);
  insitu_loader_close(&ld);
}

/* A chunk that is absent, as those of the future in ARCO-ERA5, names its dates and the setting that
 * leaves it out. */
static void test_absent(void **state) {
  (void)state;
  walk(0, 1979, 11);
  char roots[2][600];
  snprintf(roots[0], sizeof roots[0], "%s",
      make("absent", 3, INSITU_I64, "hours since 1979-11-01", NULL, hours));
  memcpy(value, hours, sizeof value);
  reverse(value);
  snprintf(roots[1], sizeof roots[1], "%s",
      make("absentfalls", 3, INSITU_I64, "hours since 1979-11-01", NULL, value));
  struct support_array a = {.name = "y",
      .ndim = 2,
      .shape = {N, 2},
      .chunk = {10, 2},
      .dtype = INSITU_F32,
      .format = 3,
      .fill = "\"NaN\"",
      .absent = N / 10, /* the last */
      .dims = "[\"time\",\"y\"]"};
  static const struct {
    bool falls;
    const char *attributes, *part;
  } one[] = {{false, NULL,
                 "leave samples [3190, 3200) (1982-01-06T12:00 to 1982-01-08T18:00) out with "
                 "sample_start, sample_stop or the"},
      {false, "\"valid_time_start\":\"1979-11-01\",\"valid_time_stop\":\"1981-12-31\"",
          "out with sample_to = \"1981-12-31\", or set on_absent_chunk = INSITU_FILL; by its "
          "attributes the archive has data from "
          "valid_time_start = \"1979-11-01\" to valid_time_stop = \"1981-12-31\""},
      {false, "\"valid_time_start\":\"1983-01-01\"", "out with sample_from = \"1983-01-01\""},
      {false, "\"valid_time_stop\":\"1985-01-01\"",
          "or the split, or set on_absent_chunk = INSITU_FILL; by its attributes"},
      {false, "\"valid_time_stop\":\"soon\"", "or the split, or set on_absent_chunk = INSITU_FILL"},
      {true, NULL,
          "leave samples [3190, 3200) (1979-11-03T06:00 to 1979-11-01T00:00) out with "
          "sample_start"},
      /* within the chunk's dates */
      {true, "\"valid_time_start\":\"1979-11-02\"", "out with sample_from = \"1979-11-02\""},
      {true, "\"valid_time_stop\":\"1979-11-01\"", "out with sample_to = \"1979-11-01\""},
      {true, "\"valid_time_stop\":\"1979-11-03\"",
          "or the split, or set on_absent_chunk = INSITU_FILL"}};
  for (int m = 0; m < MODES; m++)
    for (size_t i = 0; mode_usable(m) && i < sizeof one / sizeof *one; i++) {
      insitu_variable v = {.label = "y"};
      const char *root = roots[one[i].falls];
      insitu_loader_desc d = base(root);
      insitu_loader *ld;
      insitu_iter *it = NULL;
      insitu_batch *b;
      insitu_error err;
      a.attributes = one[i].attributes;
      support_metadata(root, &a);
      if (m == 0 && (i == 0 || one[i].falls)) support_make(root, &a);
      d.variables = &v;
      d.plan_only = 0;
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      d.sample_start = N - 10; /* one chunk: of several absent ones any may be the first */
      if (open_with(d, &ld, &err)) fail_msg("%s", err.message);
      assert_int_equal(insitu_iter_open(ld,
                           &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
          0);
      insitu_status status;
      while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK)
        insitu_batch_release(&b);
      assert_int_equal(status, INSITU_E_ABSENT);
      has(err.message, one[i].part);
      has(err.message, "array y, chunk y/c/319/0");
      assert_true(strlen(err.message) < sizeof err.message - 100);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_selections),
      cmocka_unit_test(test_datetime64), cmocka_unit_test(test_splits),
      cmocka_unit_test(test_open_ends), cmocka_unit_test(test_sample_dates),
      cmocka_unit_test(test_damaged), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_absent)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
