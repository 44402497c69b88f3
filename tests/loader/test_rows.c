/* What rows know of themselves: coordinates and times of batches, against bytes that the test wrote
 * and arithmetic of its own. */
#include "insitubatch.h"
#include <math.h>
#include "support.h"
#include "modes.h"

enum { N = 203, CHUNK = 7, BATCH = 6 };
#define HOUR INT64_C(3600000000)
#define DAY (24 * HOUR)

/* A coordinate of N values of 8 or fewer bytes, as they are stored. */
static void put_coordinate(const char *root, const char *name, const char *dtype,
    const void *values, size_t item, const char *attributes) {
  char path[700], text[600];
  unsigned char chunk[CHUNK * 8];
  snprintf(path, sizeof path, "%s/%s/.zarray", root, name);
  int n = snprintf(text, sizeof text,
      "{\"zarr_format\":2,\"shape\":[%d],\"chunks\":[%d],\"dtype\":\"%s\",\"order\":\"C\","
      "\"fill_value\":null,\"compressor\":null,\"filters\":null}",
      N, CHUNK, dtype);
  support_write(path, text, (size_t)n);
  snprintf(path, sizeof path, "%s/%s/.zattrs", root, name);
  n = snprintf(text, sizeof text, "{\"_ARRAY_DIMENSIONS\":[\"time\"]%s%s}", *attributes ? "," : "",
      attributes);
  support_write(path, text, (size_t)n);
  for (int k = 0; k * CHUNK < N; k++) {
    size_t some = (size_t)(N - k * CHUNK < CHUNK ? N - k * CHUNK : CHUNK) * item;
    memset(chunk, 0x5a, sizeof chunk);
    memcpy(chunk, (const unsigned char *)values + (size_t)(k * CHUNK) * item, some);
    snprintf(path, sizeof path, "%s/%s/%d", root, name, k);
    support_write(path, chunk, CHUNK * item);
  }
}
/* An archive with samples along "time", whose x is its own index. */
static const char *put_samples(const char *name) {
  static double index[N];
  for (int i = 0; i < N; i++) index[i] = i;
  const char *root = support_path(name);
  struct support_array x = {.name = "x",
      .ndim = 1,
      .shape = {N},
      .chunk = {4},
      .dtype = INSITU_F64,
      .format = 2,
      .dims = "[\"time\"]",
      .values = index};
  support_make(root, &x);
  return root;
}
static const insitu_variable shown = {.label = "x"};
static insitu_loader_desc base(const char *root, int mode) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &shown,
      .n_variables = 1,
      .batch_size = BATCH,
      .block_chunks = 12,
      .coordinates = 1,
      .io = modes[mode].io,
      .inline_io = modes[mode].inline_io};
}
static insitu_iter *iter_or_fail(insitu_loader *ld, int32_t split, uint32_t max_held) {
  insitu_iter *it = NULL;
  insitu_error err;
  insitu_iter_desc d = {.api = INSITU_API, .split = split, .max_held = max_held};
  if (insitu_iter_open(ld, &d, &it, &err)) fail_msg("%s", err.message);
  return it;
}
static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}
static void refuse(const insitu_loader_desc *d, insitu_status want, const char *part) {
  insitu_loader *ld = NULL;
  insitu_error err;
  insitu_status got = insitu_loader_open(d, &ld, &err);
  if (got != want || !strstr(err.message, part))
    fail_msg("%s: %s, without '%s'", insitu_status_name(got), err.message, part);
}

/* What the rows of a batch must say. time: NULL where they have none. */
struct said {
  double value[N];
  const int64_t *time;
  const char *calendar;
};
static void check_rows(const insitu_batch *b, const struct said *s) {
  assert_non_null(b->coordinates);
  if (!s->time) assert_true(!b->time_us && !b->calendar);
  else assert_string_equal(b->calendar, s->calendar);
  for (uint64_t r = 0; r < b->rows; r++) {
    int64_t i = b->sample_indices[r];
    assert_true(((const double *)b->arrays[0].data)[r] == (double)i);
    if (memcmp(&b->coordinates[r], &s->value[i], sizeof(double)) != 0)
      fail_msg("sample %d: %.17g, not %.17g", (int)i, b->coordinates[r], s->value[i]);
    if (s->time && b->time_us[r] != s->time[i])
      fail_msg("sample %d: %" PRId64 " us, not %" PRId64, (int)i, b->time_us[r], s->time[i]);
  }
}
/* Each split's first epoch; returns the rows of val's last batch. */
static uint64_t check_all(insitu_loader *ld, const struct said *s) {
  uint64_t last = 0;
  for (int32_t split = 0; split < 4; split++) {
    insitu_iter *it = iter_or_fail(ld, split, 0);
    insitu_batch *b;
    insitu_error err;
    insitu_status status;
    while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
      check_rows(b, s);
      if (split == INSITU_VAL) last = b->rows;
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s", err.message);
    insitu_iter_close(&it);
  }
  return last;
}

/* Every calendar and unit, times that rise, fall or jump: the same bits as insitu_sample_dates and
 * insitu_date_from_int, and days that were counted by hand. */
static void test_calendars(void **state) {
  /* of each calendar, how many days before its 1970-01-01, or what the manual calls 0, 1850-01-01
   * is */
  static const struct {
    const char *name, *canonical;
    int64_t days;
  } calendars[] = {{NULL, "standard", 43829}, {"standard", "standard", 43829},
      {"gregorian", "standard", 43829}, {"proleptic_gregorian", "proleptic_gregorian", 43829},
      {"julian", "julian", 43829 - 12}, {"noleap", "noleap", 120 * 365},
      {"365_day", "noleap", 120 * 365}, {"all_leap", "all_leap", 120 * 366},
      {"366_day", "all_leap", 120 * 366}, {"360_day", "360_day", 120 * 360}};
  static const struct {
    const char *name;
    int64_t us;
  } units[] = {{"days", DAY}, {"hours", HOUR}, {"seconds", 1000000}, {"milliseconds", 1000}};
  (void)state;
  for (size_t c = 0; c < sizeof calendars / sizeof *calendars; c++)
    for (size_t u = support_slow() ? c % 4 : 0; u < 4; u += support_slow() ? 4 : 1) {
      char name[32], attributes[200], since[64];
      int64_t stored[N], time[N];
      struct said s = {.time = time, .calendar = calendars[c].canonical};
      snprintf(name, sizeof name, "calendar%d.%d", (int)c, (int)u);
      snprintf(since, sizeof since, "%s since 1850-01-01", units[u].name);
      for (int i = 0; i < N; i++) {
        int64_t k = u == 0 ? 40000 + 17 * i : u == 1 ? 100000 - i : (int64_t)support_below(1 << 30);
        stored[i] = k;
        s.value[i] = (double)k;
        time[i] = k * units[u].us - calendars[c].days * DAY;
      }
      const char *root = put_samples(name);
      int n = snprintf(attributes, sizeof attributes, "\"units\":\"%s\"", since);
      if (calendars[c].name)
        snprintf(attributes + n, sizeof attributes - (size_t)n, ",\"calendar\":\"%s\"",
            calendars[c].name);
      put_coordinate(root, "time", "<i8", stored, 8, attributes);
      insitu_loader_desc d = base(root, any_mode());
      insitu_loader *ld = open_or_fail(&d);
      check_all(ld, &s);
      insitu_error err;
      for (int64_t i = 0; i < N; i++) {
        insitu_date one, two, three;
        memset(&one, 1, sizeof one);
        memset(&two, 2, sizeof two);
        assert_int_equal(insitu_sample_dates(ld, &i, 1, &one, &err), INSITU_OK);
        assert_int_equal(insitu_date_from_us(time[i], s.calendar, &two, &err), INSITU_OK);
        assert_int_equal(
            insitu_date_from_int(stored[i], since, calendars[c].name, &three, &err), INSITU_OK);
        assert_memory_equal(&one, &two, sizeof one);
        assert_memory_equal(&one, &three, sizeof one);
      }
      insitu_loader_close(&ld);
      support_remove(root);
    }
}

/* insitu_date_from_us by itself: what 0 is, ends, and what it refuses. */
static void test_from_us(void **state) {
  static const struct {
    const char *calendar;
    int64_t us;
    const char *text;
  } known[] = {{NULL, 0, "1970-01-01T00:00"}, {"standard", 0, "1970-01-01T00:00"},
      {"proleptic_gregorian", 0, "1970-01-01T00:00"}, {"julian", 0, "1969-12-19T00:00"},
      {"noleap", 0, "1970-01-01T00:00"}, {"all_leap", 0, "1970-01-01T00:00"},
      {"360_day", 0, "1970-01-01T00:00"}, {"standard", -1, "1969-12-31T23:59:59.999999"},
      {"julian", 13 * DAY, "1970-01-01T00:00"}, {"noleap", 59 * DAY, "1970-03-01T00:00"},
      {"all_leap", 59 * DAY, "1970-02-29T00:00"}, {"360_day", 59 * DAY, "1970-02-30T00:00"},
      {"standard", -141427 * DAY, "1582-10-15T00:00"},
      {"standard", -141428 * DAY, "1582-10-04T00:00"},
      {"proleptic_gregorian", -141428 * DAY, "1582-10-14T00:00"},
      {"GREGORIAN", INT64_C(951782400000000), "2000-02-29T00:00"}};
  insitu_date date;
  insitu_error err;
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    insitu_status status = insitu_date_from_us(known[i].us, known[i].calendar, &date, &err);
    if (status || strcmp(date.text, known[i].text))
      fail_msg(
          "%s %" PRId64 ": %s, not %s", known[i].calendar, known[i].us, date.text, known[i].text);
  }
  assert_int_equal(insitu_date_from_us(0, "lunar", &date, &err), INSITU_E_UNSUPPORTED);
  has(err.message, "'lunar' is not known");
  assert_int_equal(insitu_date_from_us(INT64_MIN, NULL, &date, &err), INSITU_E_FORMAT);
  assert_int_equal(insitu_date_from_us(INT64_MAX, NULL, &date, &err), INSITU_E_FORMAT);
  has(err.message, "beyond year");
  assert_int_equal(insitu_date_from_us(0, NULL, NULL, &err), INSITU_E_ARG);
  static const char *const all[] = {
      "standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"};
  for (int c = 0; c < 6; c++) {
    int64_t most = INT64_C(6311520000000000000);
    for (int late = 0; late < 2; late++) {
      assert_int_equal(insitu_date_from_us(late ? most : -most, all[c], &date, &err), INSITU_OK);
      assert_true(late ? date.year > 190000 : date.year < -190000);
      assert_true(strlen(date.text) < sizeof date.text);
    }
    assert_int_equal(insitu_date_from_us(most + 1, all[c], &date, &err), INSITU_E_FORMAT);
    assert_int_equal(insitu_date_from_us(-most - 1, all[c], &date, &err), INSITU_E_FORMAT);
  }
}

/* Every type of a coordinate, bit for bit; times among them where the units say so. */
static void test_types(void **state) {
  union {
    int64_t i64[N];
    uint64_t u64[N];
    int32_t i32[N];
    int16_t i16[N];
    uint8_t u8[N];
    float f32[N];
    double f64[N];
  } v;
  static const struct {
    const char *dtype, *attributes;
    size_t item;
    bool time;
  } types[] = {{"<f8", "", 8, false}, {"<f4", "\"units\":\"degrees_north\"", 4, false},
      {"<i8", "\"units\":\"m\"", 8, false}, {"<u8", "", 8, false},
      {"<i2", "\"scale_factor\":0.25,\"add_offset\":-3", 2, false}, {"|u1", "", 1, false},
      {"<i4", "\"units\":\"1\"", 4, false}, {"<m8[h]", "", 8, false}, {"<M8[ns]", "", 8, true},
      {"<f8", "\"units\":\"hours since 1970-01-01\"", 8, true},
      {"<f4", "\"units\":\"days since 1970-01-01 01:00:00 +01:00\"", 4, true},
      {"<u8", "\"units\":\"us since 1970-01-01\"", 8, true}};
  (void)state;
  for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
    struct said s = {.calendar = "standard"};
    int64_t time[N];
    char name[32];
    for (int i = 0; i < N; i++) {
      int64_t x = (int64_t)(support_random() >> 1) - (INT64_C(1) << 62);
      switch (k) {
      case 0: /* any bits: NaN, infinities, -0 */
        v.u64[i] = i == 3 ? UINT64_C(1) << 63 : support_random() | (i == 5) * UINT64_C(0x7ff) << 52;
        memcpy(&s.value[i], &v.f64[i], 8);
        break;
      case 1: /* it falls */ s.value[i] = (double)(v.f32[i] = 50 - 0.1f * (float)i); break;
      case 2: s.value[i] = (double)(v.i64[i] = x); break;
      case 3: s.value[i] = (double)(v.u64[i] = support_random()); break;
      case 4: s.value[i] = (v.i16[i] = (int16_t)(x % 30000)) * 0.25 - 3; break;
      case 5: s.value[i] = v.u8[i] = (uint8_t)x; break;
      case 6: s.value[i] = v.i32[i] = (int32_t)x; break;
      case 7: s.value[i] = (double)(v.i64[i] = x % 1000000); break;
      case 8: /* parts of a microsecond are cut off, downwards */
        s.value[i] = (double)(v.i64[i] = x);
        time[i] = x / 1000 - (x % 1000 < 0);
        break;
      case 9: /* quarters of an hour: exact */
        s.value[i] = v.f64[i] = (double)(x % 1000000) / 4;
        time[i] = x % 1000000 * (HOUR / 4);
        break;
      case 10:
        s.value[i] = (double)(v.f32[i] = (float)(x % 100000) / 8);
        time[i] = x % 100000 * (DAY / 8);
        break;
      default: s.value[i] = (double)(v.u64[i] = (uint64_t)(time[i] = x & INT64_MAX >> 2)); break;
      }
    }
    if (k == 0) v.u64[5] = UINT64_C(0x7ff4000000000001), memcpy(&s.value[5], &v.f64[5], 8);
    if (types[k].time) s.time = time;
    if (k == 8) s.calendar = "proleptic_gregorian";
    snprintf(name, sizeof name, "type%d", (int)k);
    const char *root = put_samples(name);
    put_coordinate(root, "time", types[k].dtype, &v, types[k].item, types[k].attributes);
    insitu_loader_desc d = base(root, any_mode());
    insitu_loader *ld = open_or_fail(&d);
    check_all(ld, &s);
    double read[N];
    insitu_error err;
    insitu_variable time_array = {.path = "time", .dtype = INSITU_F64};
    if (k == 4) time_array.decode = INSITU_CF;
    if (insitu_read(ld, &time_array, read, sizeof read, NULL, &err)) fail_msg("%s", err.message);
    assert_memory_equal(read, s.value, sizeof read);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* An hour each from 2000-01-01 on, in an archive of its own. */
static const char *put_hours(const char *name, struct said *s, int64_t time[N]) {
  double hours[N];
  for (int i = 0; i < N; i++) {
    s->value[i] = hours[i] = i;
    time[i] = INT64_C(946684800000000) + i * HOUR;
  }
  s->time = time;
  s->calendar = "proleptic_gregorian";
  const char *root = put_samples(name);
  put_coordinate(root, "time", "<f8", hours, 8,
      "\"units\":\"hours since 2000-01-01\",\"calendar\":\"proleptic_gregorian\"");
  return root;
}

/* In all modes: ranks, short and empty batches, restoring in the middle, batches that are held
 * while others come, and that outlive the loader. */
static void test_passes(void **state) {
  struct said s;
  int64_t time[N];
  (void)state;
  const char *root = put_hours("passes", &s, time);
  EACH_MODE (m) {
    insitu_loader_desc d = base(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_error err;
    uint64_t last = check_all(ld, &s);
    assert_true(last > 0 && last < BATCH);

    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 6), *again = iter_or_fail(ld, INSITU_TRAIN, 2);
    insitu_batch *held[6], *b;
    double value[6][BATCH];
    int64_t us[6][BATCH];
    for (int k = 0; k < 6; k++) {
      assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &held[k], &err), INSITU_OK);
      memcpy(value[k], held[k]->coordinates, sizeof value[k]);
      memcpy(us[k], held[k]->time_us, sizeof us[k]);
    }
    assert_int_equal(insitu_iter_restore(again, &held[2]->after, &err), INSITU_OK);
    for (int k = 3; k < 6; k++) {
      assert_int_equal(insitu_iter_next(again, INSITU_FOREVER, &b, &err), INSITU_OK);
      check_rows(b, &s);
      assert_memory_equal(b->coordinates, value[k], sizeof value[k]);
      assert_memory_equal(b->time_us, us[k], sizeof us[k]);
      insitu_batch_release(&b);
    }
    for (int k = 0; k < 5; k++) insitu_batch_release(&held[k]);
    while (insitu_iter_next(it, INSITU_FOREVER, &b, &err) == INSITU_OK) {
      check_rows(b, &s);
      insitu_batch_release(&b);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    insitu_iter_close(&again);
    check_rows(held[5], &s);
    assert_memory_equal(held[5]->coordinates, value[5], sizeof value[5]);
    insitu_batch_release(&held[5]);
  }
  for (int32_t rank = 0; rank < 32; rank++) { /* most ranks have no row in val's last batch */
    insitu_loader_desc d = base(root, any_mode());
    d.world = 32;
    d.rank = rank;
    d.batch_size = 1;
    d.lanes = 32;
    insitu_loader *ld = open_or_fail(&d);
    check_all(ld, &s);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Fewer steps of an output: rows lie elsewhere in the batch, and say the same. */
static void test_steps(void **state) {
  static const int64_t steps[] = {0, 1, 2, 3};
  struct said s;
  int64_t time[N];
  (void)state;
  const char *root = put_hours("steps", &s, time);
  insitu_variable v[] = {{.label = "x"}, {.label = "y", .path = "x", .steps = steps, .n_steps = 4}};
  EACH_MODE (m) {
    insitu_loader_desc d = base(root, m);
    d.variables = v;
    d.n_variables = 2;
    d.batch_size = 200; /* more than a page */
    d.split[0].fraction = 1;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc i = {.api = INSITU_API, .order = INSITU_SEQUENTIAL};
    insitu_iter *it = open_iter_or_fail(ld, &i);
    for (uint64_t n = 1; n <= 4; n++) {
      insitu_error err;
      if (insitu_iter_set_steps(it, "y", n, &err)) fail_msg("%s", err.message);
      for (insitu_batch *b; insitu_iter_next(it, 20000, &b, &err) == INSITU_OK;) {
        assert_true(b->rows == 200 && b->arrays[1].shape[1] == (int64_t)n);
        check_rows(b, &s);
        insitu_batch_release(&b);
      }
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Several axes: a coordinate of each, the time of the one that the split is along, dates of any. */
static void test_axes(void **state) {
  enum { INIT = 12, LEAD = 5, BAND = 2 };
  double init[INIT], lead[LEAD];
  (void)state;
  for (int i = 0; i < INIT; i++) init[i] = 24 * i;
  for (int i = 0; i < LEAD; i++) lead[i] = 60 - 6 * i;
  const char *root = support_path("axes");
  struct support_array x = {.name = "x",
      .ndim = 3,
      .shape = {BAND, LEAD, INIT},
      .chunk = {1, 2, 5},
      .dtype = INSITU_I32,
      .format = 3,
      .dims = "[\"band\",\"lead\",\"init\"]"};
  struct support_array t = {.name = "init",
      .ndim = 1,
      .shape = {INIT},
      .chunk = {5},
      .dtype = INSITU_F64,
      .format = 3,
      .attributes = "\"units\":\"hours since 2000-01-01\"",
      .values = init};
  struct support_array l = {.name = "lead",
      .ndim = 1,
      .shape = {LEAD},
      .chunk = {5},
      .dtype = INSITU_I16,
      .format = 3,
      .attributes = "\"units\":\"hours since 1990-01-01\"",
      .values = lead};
  support_make(root, &x);
  support_make(root, &t);
  support_make(root, &l);
  insitu_axis axes[] = {{.dim = "init"}, {.dim = "band"}, {.dim = "lead"}};
  EACH_MODE (m)
    for (int k = 0; k < 4; k++) {
      insitu_loader_desc d = base(root, m);
      int along = k < 2 ? 0 : 2;
      axes[0].from = k == 1 ? "2000-01-03" : NULL;
      axes[0].to = k == 1 ? "2000-01-08" : NULL;
      axes[2].from = k == 3 ? "1990-01-02T18" : NULL; /* of a coordinate that falls */
      d.axes = axes;
      d.n_axes = 3;
      d.split_axis = along;
      /* the other end is that of the axis */
      d.split[0].to = along ? "1990-01-03T12" : k ? "2000-01-07" : "2000-01-02";
      insitu_loader *ld = open_or_fail(&d);
      int64_t first = k == 1 ? 2 : 0,
              n_init = k == 1 ? 5
                       : k    ? INIT
                              : 2,
              n_lead = k == 3 ? 4 : LEAD;
      insitu_iter_desc i = {.api = INSITU_API, .order = INSITU_SEQUENTIAL};
      insitu_iter *it = open_iter_or_fail(ld, &i);
      insitu_batch *b;
      insitu_error err;
      int64_t rows = 0, sum = 0;
      while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
        assert_true(b->n_axes == 3);
        for (uint64_t r = 0; r < b->rows; r++, rows++) {
          const int64_t *at = b->axis_indices + 3 * r;
          const double *value = b->coordinates + 3 * r;
          assert_true(value[0] == init[at[0]] && isnan(value[1]) && value[2] == lead[at[2]]);
          assert_true(at[0] >= first && at[0] < first + n_init && at[2] < n_lead);
          assert_int_equal(
              ((int32_t *)b->arrays[0].data)[r], (at[1] * LEAD + at[2]) * INIT + at[0]);
          assert_int_equal(
              b->time_us[r], along ? INT64_C(631152000000000) + (int64_t)lead[at[2]] * HOUR
                                   : INT64_C(946684800000000) + at[0] * DAY);
          assert_string_equal(b->calendar, "standard");
          insitu_date one, two;
          assert_int_equal(insitu_sample_dates(ld, &at[along], 1, &one, &err), INSITU_OK);
          assert_int_equal(insitu_date_from_us(b->time_us[r], b->calendar, &two, &err), INSITU_OK);
          assert_memory_equal(&one, &two, sizeof one);
          sum += (at[0] - first) * BAND * LEAD + at[1] * LEAD + at[2];
        }
        insitu_batch_release(&b);
      }
      assert_int_equal(rows, n_init * BAND * n_lead);
      if (n_lead == LEAD) assert_int_equal(sum, rows * (rows - 1) / 2);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  insitu_loader_desc d = base(root, any_mode());
  axes[0].from = axes[2].from = NULL;
  axes[1].to = "1990";
  d.axes = axes;
  d.n_axes = 3;
  refuse(&d, INSITU_E_NOTFOUND, "dates: there is no coordinate 'band'");
  axes[1].to = NULL;
  axes[2].to = "1970";
  refuse(&d, INSITU_E_SPLIT, "from and to of axes[2]: no sample lies from the begin to 1970");
  axes[2].to = NULL;
  d.split_axis = 1;
  refuse(&d, INSITU_E_NOTFOUND,
      "coordinates: there is no coordinate 'band' of the samples beside array x or at the root; "
      "name one with time_path, or leave");
  d.split_axis = 0;
  axes[1].from = "1990"; /* time_path is another axis's */
  refuse(&d, INSITU_E_NOTFOUND, "'band' of the samples beside array x or at the root; select");
  axes[1].from = NULL;

  /* Latitudes along y and x are no coordinate of another axis; of the split's they are wrong. */
  x.name = "band";
  support_make(root, &x);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  insitu_batch *b = next_batch_or_fail(it);
  assert_true(isnan(b->coordinates[1]) && !isnan(b->coordinates[2]));
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  axes[1].from = "1990";
  refuse(&d, INSITU_E_SHAPE, "the coordinate of 2 samples has one axis of that length");
  axes[1].from = NULL;
  d.split_axis = 1;
  refuse(&d, INSITU_E_SHAPE, "the coordinate of 2 samples has one axis of that length");
  d.split_axis = 0;

  /* nor is one of another length, but at the root, of an array that lies deeper */
  double bands[BAND + 1] = {0};
  struct support_array band = {.name = "band",
      .ndim = 1,
      .shape = {BAND + 1},
      .chunk = {5},
      .dtype = INSITU_F64,
      .format = 3,
      .values = bands};
  support_remove(support_path("axes/band"));
  support_make(root, &band);
  refuse(&d, INSITU_E_SHAPE, "the coordinate of 2 samples has one axis of that length");
  insitu_variable deep = {.path = "deep/x"};
  x.name = "deep/x";
  support_make(root, &x);
  d.variables = &deep;
  ld = open_or_fail(&d);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* What is read when, and what it takes. */
static void test_costs(void **state) {
  struct said s;
  int64_t time[N];
  (void)state;
  const char *root = put_hours("costs", &s, time);
  EACH_MODE (m) {
    insitu_stats with, without, later;
    insitu_plan a, b;
    insitu_iter_desc i = {.api = INSITU_API};
    insitu_date date;
    insitu_error err;
    insitu_loader_desc d = base(root, m);
    d.sample_from = "2000-01-02"; /* the coordinate is read once for both */
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_config(ld)->sample_start, 24);
    insitu_loader_stats(ld, &with, NULL);
    assert_int_equal(with.reads, (N + CHUNK - 1) / CHUNK);
    assert_int_equal(insitu_loader_plan(ld, &i, &a, &err), INSITU_OK);
    assert_int_equal(insitu_sample_dates(ld, &(int64_t){30}, 1, &date, &err), INSITU_OK);
    assert_string_equal(date.text, "2000-01-02T06:00");
    insitu_loader_stats(ld, &later, NULL);
    assert_int_equal(later.reads, with.reads);
    assert_int_equal(later.memory_promised, with.memory_promised);
    check_all(ld, &s);
    char json[20000];
    assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
    has(json, "\"coordinates\": true");
    has(json, "\"coordinates\": 1624,");
    insitu_loader_close(&ld);

    d.coordinates = 0;
    ld = open_or_fail(&d);
    insitu_loader_stats(ld, &without, NULL);
    assert_int_equal(insitu_loader_plan(ld, &i, &b, &err), INSITU_OK);
    assert_int_equal(with.memory_promised, without.memory_promised + N * 8);
    assert_int_equal(a.cache_bytes, b.cache_bytes + N * 8);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(a.slab_bytes >= b.slab_bytes && a.slab_bytes <= b.slab_bytes + page);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *batch;
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), INSITU_OK);
    assert_true(!batch->coordinates && !batch->time_us && !batch->calendar);
    insitu_batch_release(&batch);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  insitu_loader_desc d = base(root, any_mode());
  insitu_error err;
  insitu_loader *ld;
  insitu_plan a, b;
  insitu_iter_desc i = {.api = INSITU_API};
  d.batch_size = 640; /* slabs count 16 bytes a row */
  ld = open_or_fail(&d);
  d.coordinates = 0;
  insitu_loader *plain = open_or_fail(&d);
  i.split = INSITU_ALL;
  i.order = INSITU_SEQUENTIAL;
  assert_int_equal(insitu_loader_plan(ld, &i, &a, &err), INSITU_OK);
  assert_int_equal(insitu_loader_plan(plain, &i, &b, &err), INSITU_OK);
  assert_true(a.slab_bytes > b.slab_bytes);
  insitu_loader_close(&ld);
  insitu_loader_close(&plain);

  d = base(root, any_mode()); /* a plan reads it, too, and says what opening would */
  d.plan_only = 1;
  ld = open_or_fail(&d);
  insitu_stats stats;
  insitu_date date;
  insitu_loader_stats(ld, &stats, NULL);
  assert_int_equal(stats.reads, (N + CHUNK - 1) / CHUNK);
  assert_int_equal(insitu_sample_dates(ld, &(int64_t){1}, 1, &date, &err), INSITU_OK);
  assert_string_equal(date.text, "2000-01-01T01:00");
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Another name, in a group; an axis that is no time; and none at all. */
static void test_which(void **state) {
  struct said s, other = {.time = NULL};
  int64_t time[N], stored[N];
  (void)state;
  const char *root = put_hours("which", &s, time);
  for (int i = 0; i < N; i++) other.value[i] = (double)(stored[i] = 1000 - 5 * i);
  put_coordinate(root, "clock", "<i8", stored, 8, "\"units\":\"m\"");
  insitu_loader_desc d = base(root, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  check_all(ld, &s);
  insitu_loader_close(&ld);
  d.time_path = "clock";
  ld = open_or_fail(&d);
  check_all(ld, &other);
  insitu_date date;
  insitu_error err;
  for (int k = 0; k < 2; k++) { /* no time: that is an error of this call alone */
    assert_int_equal(insitu_sample_dates(ld, &(int64_t){0}, 1, &date, &err), INSITU_E_FORMAT);
    has(err.message, "array 'clock'");
  }
  check_all(ld, &other);
  insitu_loader_close(&ld);
  d.variables = NULL;
  d.n_variables = 0;
  d.plan_only = 1;
  ld = open_or_fail(&d);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* A time of which no dates are read: values come, and a note says why there are no times. */
static void test_undated(void **state) {
  static const struct {
    const char *attributes, *dtype, *note;
  } one[] = {{"\"units\":\"months since 1979-01\"", "<i8", "months and years have no fixed length"},
      {"\"units\":\"days since 1979-01-01\",\"calendar\":\"lunar\"", "<i8",
          "calendar 'lunar' is not known"},
      {"\"units\":\"days since 1979-01-01\",\"scale_factor\":1", "<i8", "it is packed"},
      {"\"units\":\"days since then\"", "<i8", "the reference date is none"},
      {"", "<M8[Y]", "no dates are read from datetime64[Y]"}, {"\"units\":\"days\"", "<i8", NULL},
      {"\"units\":\"K\",\"calendar\":\"noleap\"", "<i8", NULL}, {"", "<i8", NULL}};
  (void)state;
  for (size_t k = 0; k < sizeof one / sizeof *one; k++) {
    struct said s = {.time = NULL};
    int64_t stored[N];
    char json[20000], name[32];
    snprintf(name, sizeof name, "undated%d", (int)k);
    const char *root = put_samples(name);
    for (int i = 0; i < N; i++) s.value[i] = (double)(stored[i] = 3 * i);
    put_coordinate(root, "time", one[k].dtype, stored, 8, one[k].attributes);
    insitu_loader_desc d = base(root, any_mode());
    insitu_loader *ld = open_or_fail(&d);
    check_all(ld, &s);
    insitu_loader_describe(ld, json, sizeof json);
    if (one[k].note) has(json, one[k].note);
    if (one[k].note) has(json, "time_us of batches is NULL: array 'time'");
    else assert_null(strstr(json, "time_us"));
    assert_null(strstr(json, "select samples by index"));
    insitu_loader_close(&ld);
    d.sample_from = "1980"; /* which needs dates */
    insitu_error err;
    assert_true(insitu_loader_open(&d, &ld, &err) < 0);
    has(err.message, "select samples by index");
    support_remove(root);
  }
}

static void test_refused(void **state) {
  double values[N];
  char path[700], names[N * 4] = "";
  (void)state;
  const char *root = put_samples("refused");
  EACH_MODE (m) {
    insitu_loader_desc d = base(root, m);
    refuse(&d, INSITU_E_NOTFOUND,
        "coordinates: there is no coordinate 'time' of the samples beside array x or at the root; "
        "name one with time_path, or leave coordinates at 0");
    d.time_path = "clock";
    refuse(&d, INSITU_E_NOTFOUND, "clock");
  }
  insitu_loader_desc d = base(root, any_mode());
  for (int i = 0; i < N; i++) values[i] = i;
  values[77] = NAN;
  put_coordinate(root, "time", "<f8", values, 8, "\"units\":\"hours since 2000-01-01\"");
  refuse(&d, INSITU_E_FORMAT, "its value at index 77 is no date");
  values[77] = 1e300;
  put_coordinate(root, "time", "<f8", values, 8, "\"units\":\"hours since 2000-01-01\"");
  refuse(&d, INSITU_E_FORMAT, "its value at index 77 is no date");
  put_coordinate(root, "time", "|S4", names, 4, "");
  refuse(&d, INSITU_E_DTYPE, "coordinates, array time");
  put_coordinate(root, "time", "<f8", values, 8, "");
  d.memory_budget = 1000;
  refuse(&d, INSITU_E_BUDGET, "coordinates, array time");
  d.memory_budget = 0;
  snprintf(path, sizeof path, "%s/time/3", root);
  support_write(path, "short", 5);
  d.on_bad_chunk = INSITU_FILL; /* which is of variables */
  refuse(&d, INSITU_E_CORRUPT, "chunk time/3");
  struct support_array longer = {
      .name = "time", .ndim = 1, .shape = {N + 1}, .chunk = {N}, .dtype = INSITU_F64, .format = 2};
  support_make(root, &longer);
  refuse(&d, INSITU_E_SHAPE, "coordinates, array time: the coordinate of 203 samples");
  support_remove(root);

  root = support_path("unnamed");
  struct support_array x = {
      .name = "x", .ndim = 1, .shape = {N}, .chunk = {4}, .dtype = INSITU_F64, .format = 2};
  support_make(root, &x);
  d = base(root, any_mode());
  refuse(&d, INSITU_E_NOTFOUND, "axis 0 has no name");
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_calendars),
      cmocka_unit_test(test_from_us), cmocka_unit_test(test_types), cmocka_unit_test(test_passes),
      cmocka_unit_test(test_steps), cmocka_unit_test(test_axes), cmocka_unit_test(test_costs),
      cmocka_unit_test(test_which), cmocka_unit_test(test_undated), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
