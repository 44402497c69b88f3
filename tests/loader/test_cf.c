/* CF conventions: packed and missing values, in batches and in insitu_read, against arithmetic of
 * this file's own. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include "support.h"
#include "parse.h"
#include "modes.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

/* ---- attributes ---- */

/* The description of an array with this dtype (v2 typestr or v3 name), fill and attributes. */
static insitu_status describe(const char *dtype, const char *fill, const char *attributes,
    struct insitu__cf *cf, insitu_error *err) {
  char text[1200];
  struct insitu__zarr_array z;
  bool v2 = strchr("<>|", dtype[0]);
  memset(err, 0, sizeof *err);
  if (v2)
    snprintf(text, sizeof text,
        "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[4],\"dtype\":\"%s\",\"order\":\"C\",\"fill_"
        "value\":%s,\"filters\":null,"
        "\"compressor\":null}",
        dtype, fill);
  else
    snprintf(text, sizeof text,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"%s\",\"chunk_"
        "grid\":{\"name\":\"regular\","
        "\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
        "\"fill_value\":%s,"
        "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],"
        "\"attributes\":%s}",
        dtype, fill, attributes);
  insitu_status status =
      v2 ? parse_v2(&z, "g/x", text, strlen(text), attributes, strlen(attributes), err)
         : parse_v3(&z, "g/x", text, strlen(text), err);
  if (status) fail_msg("%s", err->message);
  status = insitu__cf_init(cf, &z, err);
  insitu__zarr_array_free(&z);
  return status;
}
static void found(const char *dtype, const char *fill, const char *attributes, double scale,
    double offset, unsigned n, const uint64_t *missing) {
  struct insitu__cf cf;
  insitu_error err;
  if (describe(dtype, fill, attributes, &cf, &err))
    fail_msg("%s %s: %s", dtype, attributes, err.message);
  assert_true(cf.scale == scale && cf.offset == offset && signbit(cf.offset) == signbit(offset));
  if (cf.n_missing != n) fail_msg("%s %s: %u missing, not %u", dtype, attributes, cf.n_missing, n);
  for (unsigned i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, cf.missing[i], 8);
    if (bits != missing[i])
      fail_msg("%s %s: %#jx, not %#jx", dtype, attributes, (uintmax_t)bits, (uintmax_t)missing[i]);
  }
}
#define M(...)                                                                                     \
  (sizeof((uint64_t[]){__VA_ARGS__}) / 8), (const uint64_t[]) {                                    \
    __VA_ARGS__                                                                                    \
  }

static void test_attributes(void **state) {
  (void)state;
  found("<i2", "null", "{}", 1, -0.0, 0, NULL);
  found("<i2", "null", "{\"scale_factor\":0.5,\"add_offset\":[-3]}", 0.5, -3, 0, NULL);
  found("<i2", "-32767", "{\"scale_factor\":[0.5]}", 0.5, -0.0, M(0x8001));
  found(">i2", "7", "{\"_FillValue\":-2.0,\"missing_value\":[1,2,3,4]}", 1, -0.0,
      M(0xfffe, 1, 2, 3, 4));
  found("<i2", "7", "{\"missing_value\":3}", 1, -0.0, M(7, 3));
  found("<i2", "7", "{\"_FillValue\":null}", 1, -0.0, M(7));
  found("int16", "7", "{}", 1, -0.0, 0, NULL); /* Zarr v3: the fill is not missing */
  found("int16", "7", "{\"_FillValue\":[7]}", 1, -0.0, M(7));
  found("<f4", "0", "{\"_FillValue\":1e20,\"missing_value\":\"NaN\"}", 1, -0.0,
      M(0x60ad78ec, 0x7fc00000));
  found("<f4", "\"NaN\"", "{}", 1, -0.0, M(0x7fc00000));
  found("float32", "0", "{\"_FillValue\":\"AAAAAAAA+H8=\"}", 1, -0.0, M(0x7fc00000));
  found("float64", "0", "{\"_FillValue\":\"AAAAAAAA+H8=\"}", 1, -0.0,
      M(UINT64_C(0x7ff8000000000000)));
  /* the float32 next to 1e20 */
  found("float32", "0", "{\"_FillValue\":\"AAAAgB2vFUQ=\"}", 1, -0.0, M(0x60ad78ec));
  found("bfloat16", "0", "{\"_FillValue\":-9999}", 1, -0.0, M(0xc61c));
  found("|i1", "null", "{\"_Unsigned\":\"true\",\"_FillValue\":-1}", 1, -0.0, M(0xff));
  found("|i1", "null", "{\"_Unsigned\":\"true\",\"_FillValue\":255}", 1, -0.0, M(0xff));
  found("|u1", "null", "{\"_Unsigned\":\"false\",\"_FillValue\":-1}", 1, -0.0, M(0xff));
  found("<i8", "null", "{\"_FillValue\":-9223372036854775808}", 1, -0.0, M(UINT64_C(1) << 63));
  /* numbers that the stored type does not hold equal nothing; the fill value does not come instead
   */
  found("<i2", "7", "{\"_FillValue\":40000}", 1, -0.0, 0, NULL);
  found("<i2", "7", "{\"_FillValue\":0.5,\"missing_value\":[1e20,3,1e999]}", 1, -0.0, M(3));
  found("int16", "7", "{\"_FillValue\":\"NaN\",\"missing_value\":NaN}", 1, -0.0, 0, NULL);
  found("|u1", "null", "{\"_FillValue\":-1,\"missing_value\":255}", 1, -0.0, M(255));
  found("<f4", "0", "{\"_FillValue\":1e300}", 1, -0.0, 0, NULL);
  static const struct {
    const char *dtype, *attributes, *part;
    insitu_status status;
  } bad[] = {{"<i2", "{\"scale_factor\":\"0.5\"}", "scale_factor", INSITU_E_FORMAT},
      {"<i2", "{\"scale_factor\":[0.5,1]}", "a finite number", INSITU_E_FORMAT},
      {"<i2", "{\"add_offset\":NaN}", "add_offset", INSITU_E_FORMAT},
      {"<i2", "{\"_FillValue\":true}", "not a value of this array's dtype", INSITU_E_FORMAT},
      {"<i2", "{\"missing_value\":[1,\"x\"]}", "'missing_value' = [1,\"x\"]", INSITU_E_FORMAT},
      {"<i2", "{\"_FillValue\":[1,2]}", "one value", INSITU_E_FORMAT},
      {"<i2", "{\"missing_value\":[1,2,3,4,5]}", "one to four", INSITU_E_FORMAT},
      {"<i2", "{\"missing_value\":[]}", "missing_value", INSITU_E_FORMAT},
      {"<f4", "{\"_FillValue\":\"AAAAAAAA+H9=\"}", "_FillValue", INSITU_E_FORMAT},
      {"<f4", "{\"_FillValue\":\"nothing\"}", "array 'g/x'", INSITU_E_FORMAT},
      {"<i2", "{\"_Unsigned\":\"yes\"}", "_Unsigned", INSITU_E_FORMAT},
      {"|b1", "{}", "bool", INSITU_E_DTYPE}, {"<c8", "{}", "complex64", INSITU_E_DTYPE}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct insitu__cf cf;
    insitu_error err;
    insitu_status status = describe(bad[i].dtype, "null", bad[i].attributes, &cf, &err);
    if (status != bad[i].status) fail_msg("%s: %s", bad[i].attributes, insitu_status_name(status));
    has(err.message, bad[i].part);
  }
}

/* What xarray decodes. */
static void test_xarray(void **state) {
  FILE *f = fopen(TEST_DATA "/cf_golden.txt", "r");
  char line[300], kind[8], stored[32], shown[64], dtype[12];
  int at, lines = 0;
  (void)state;
  assert_non_null(f);
  for (; fgets(line, sizeof line, f); lines++) {
    struct insitu__cf cf;
    struct insitu__box b;
    insitu_error err;
    assert_int_equal(sscanf(line, "%7s %31s %63s %n", kind, stored, shown, &at), 3);
    snprintf(dtype, sizeof dtype, "<%s", kind);
    if (describe(dtype, "null", line + at, &cf, &err)) fail_msg("%s%s", line, err.message);
    uint64_t bits = strtoull(stored, NULL, 16);
    double got, want = strtod(shown, NULL);
    if (insitu__box_init(&b, 0, NULL, NULL, NULL, 0, 0, cf.dtype, false, INSITU_F64, &err))
      fail_msg("%s", err.message);
    insitu__box_cf(&b, &cf, false);
    insitu__box_copy(&b, &bits, &got);
    if (isnan(want) ? !isnan(got) : got != want) fail_msg("%s: %a", line, got);
  }
  assert_int_equal(lines, 96);
  fclose(f);
}

/* ---- batches ---- */

static const double scale = 0.1, offset = -0.3;
static double decoded(double stored, int32_t out) {
  volatile double product = stored * scale, sum = product + offset;
  if (stored == 5 || stored == 17 || stored == 100) return NAN;
  return support_as(out, sum);
}
static void check_row(const void *got, int32_t dtype, double want, const char *what) {
  double is = support_get(got, dtype);
  if (isnan(want) ? !isnan(is) : is != want) fail_msg("%s: %.17g, not %.17g", what, is, want);
}
static const char *const packed = "\"scale_factor\":0.1,\"add_offset\":[-0.3],\"_FillValue\":5,"
                                  "\"missing_value\":[17,100],\"valid_min\":50";

static void check_epoch(insitu_loader *ld, const struct support_array *a, int32_t dtype) {
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  uint64_t rows = 0;
  assert_int_equal(
      insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
      0);
  while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->arrays[0].dtype, dtype);
    assert_int_equal(b->arrays[1].dtype, a->dtype);
    uint64_t item = (uint64_t)(dtype & 0xff) / 8, raw = (uint64_t)(a->dtype & 0xff) / 8,
             per_row = a->shape[1] * a->shape[2];
    for (uint64_t row = 0; row < b->rows; row++, rows++)
      for (uint64_t k = 0; k < per_row; k++) {
        uint64_t at[4] = {(uint64_t)b->sample_indices[row], k / a->shape[2], k % a->shape[2]};
        double stored = support_expect(a, at);
        check_row((char *)b->arrays[0].data + (row * per_row + k) * item, dtype,
            decoded(stored, dtype), "decoded");
        check_row(
            (char *)b->arrays[1].data + (row * per_row + k) * raw, a->dtype, stored, "stored");
      }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(rows, a->shape[0]);
  insitu_iter_close(&it);
}
static void test_batches(void **state) {
  (void)state;
  static const int32_t dtypes[] = {
      INSITU_U8, INSITU_I16, INSITU_I32, INSITU_I64, INSITU_F16, INSITU_F32, INSITU_F64};
  for (unsigned round = 0; round < 7 * (unsigned)support_rounds(6); round++) {
    char name[32];
    struct support_array a = {.name = "x",
        .ndim = 3,
        .shape = {23, 5, 7},
        .chunk = {1 + support_below(6), 1 + support_below(5), 1 + support_below(7)},
        .dtype = dtypes[round % 7],
        .format = 2 + (int)support_below(2),
        .big = support_below(2),
        .fortran = support_below(2),
        .zstd = support_below(2),
        .fill = "17",
        .dims = "[\"time\",\"y\",\"x\"]",
        .attributes = packed};
    if (a.format == 3 && support_below(2))
      a.shard[0] = 2, a.shard[1] = a.shard[2] = 1, a.index_crc = true;
    snprintf(name, sizeof name, "batches%u", round);
    const char *root = support_path(name);
    support_make(root, &a);
    int32_t asked[] = {INSITU_AS_STORED, INSITU_F32, INSITU_F64, INSITU_F16, INSITU_BF16},
            dtype = asked[support_below(5)], out = dtype;
    if (!out)
      out = a.dtype == INSITU_I32 || a.dtype == INSITU_I64 || a.dtype == INSITU_F64 ? INSITU_F64
                                                                                    : INSITU_F32;
    insitu_variable v[] = {{.label = "d", .path = "x", .dtype = dtype, .decode = INSITU_CF},
        {.label = "s", .path = "x"}};
    EACH_MODE (m) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = v,
          .n_variables = 2,
          .batch_size = 1 + support_below(9),
          .io = modes[m].io,
          .inline_io = modes[m].inline_io,
          .check = round % 2};
      insitu_loader *ld = open_or_fail(&d);
      insitu_stats stats;
      check_epoch(ld, &a, out);
      assert_int_equal(insitu_loader_stats(ld, &stats, NULL), 0);
      assert_true((stats.checked_rows > 0) == (round % 2));
      insitu_shape shape; /* the same through insitu_read */
      insitu_error err = {0};
      insitu_slice slice = {.axis = 1, .start = 1, .stop = 4};
      insitu_variable box = {
          .path = "x", .dtype = dtype, .decode = INSITU_CF, .slices = &slice, .n_slices = 1};
      static double got[23 * 3 * 7];
      if (insitu_read(ld, &box, got, sizeof got, &shape, &err)) fail_msg("%s", err.message);
      assert_int_equal(shape.dtype, out);
      for (uint64_t i = 0; i < 23 * 3 * 7; i++) {
        uint64_t at[4] = {i / 21, 1 + i / 7 % 3, i % 7};
        check_row((char *)got + i * (uint64_t)(out & 0xff) / 8, out,
            decoded(support_expect(&a, at), out), "read");
      }
      insitu_loader_close(&ld);
    }
  }
}

/* An absent chunk is the decoded fill, and stops the epoch where that is NaN and nothing else was
 * said. */
static void test_absent(void **state) {
  (void)state;
  for (int nan = 0; nan < 2; nan++)
    for (int fill = 0; fill < 2; fill++)
      for (int decode = 0; decode < 2; decode++) {
        char name[32];
        struct support_array a = {.name = "x",
            .ndim = 3,
            .shape = {12, 2, 3},
            .chunk = {2, 2, 3},
            .dtype = INSITU_I16,
            .format = 3,
            .fill = "0",
            .absent = 3,
            .attributes = nan ? "\"_FillValue\":0,\"scale_factor\":0.1"
                              : "\"_FillValue\":4,\"add_offset\":2.5"};
        snprintf(name, sizeof name, "absent%d%d%d", nan, fill, decode);
        const char *root = support_path(name);
        support_make(root, &a);
        insitu_variable v[] = {{.label = "x", .decode = decode ? INSITU_CF : 0},
            {.label = "b", .path = "x", .decode = decode ? INSITU_CF : 0, .dtype = INSITU_BF16}};
        insitu_loader_desc d = {.api = INSITU_API,
            .url = root,
            .variables = v,
            .n_variables = 2,
            .batch_size = 12,
            .check = 1,
            .on_absent_chunk = fill ? INSITU_FILL : 0};
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = NULL;
        insitu_batch *b = NULL;
        insitu_error err = {0};
        assert_int_equal(
            insitu_iter_open(
                ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
            0);
        insitu_status status = insitu_iter_next(it, INSITU_FOREVER, &b, &err);
        if (nan && decode && !fill) {
          assert_int_equal(status, INSITU_E_ABSENT);
          has(err.message, "NaN");
        } else {
          if (status) fail_msg("%s", err.message);
          const void *shown = b->arrays[0].data; /* sample 0 is there; samples 4 and 5 are not */
          if (decode)
            check_row((const float *)shown + 4 * 6, INSITU_F32, nan ? (double)NAN : 2.5, "absent");
          else check_row((const int16_t *)shown + 4 * 6, INSITU_I16, 0, "absent");
          check_row((const uint16_t *)b->arrays[1].data + 4 * 6, INSITU_BF16,
              !decode ? 0
              : nan   ? (double)NAN
                      : 2.5,
              "absent, of 16 bits");
        }
        insitu_batch_release(&b);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
}

/* What names the variable in errors and descriptions. */
static void test_refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {40, 3},
      .chunk = {4, 3},
      .dtype = INSITU_I16,
      .format = 2,
      .attributes = "\"add_offset\":1"};
  support_make(root, &a);
  insitu_variable v = {.label = "x", .dtype = INSITU_F32}, w = {.label = "x", .decode = INSITU_CF};
  insitu_loader_desc d = {.api = INSITU_API,
                         .url = root,
                         .variables = &v,
                         .n_variables = 1,
                         .batch_size = 2},
                     e = d;
  e.variables = &w;
  insitu_loader *plain = open_or_fail(&d), *ld = open_or_fail(&e);
  insitu_iter *it = NULL, *other = NULL;
  insitu_batch *b;
  insitu_error err = {0};
  char json[20000];
  assert_int_equal(insitu_iter_open(plain, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), 0);
  assert_int_equal(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &other, &err), 0);
  assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), 0);
  /* how values are shown does not decide which come next */
  assert_int_equal(insitu_iter_restore(other, &b->after, &err), INSITU_OK);
  insitu_batch_release(&b);
  assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
  has(json, "\"decode\": \"cf\"");
  insitu_loader_close(&plain);
  insitu_iter_close(&it);
  insitu_iter_close(&other);
  insitu_loader_close(&ld);
  w.decode = 2;
  memset(&err, 0, sizeof err);
  assert_int_equal(insitu_loader_open(&e, &ld, &err), INSITU_E_ARG);
  has(err.message, "INSITU_CF");
  w = (insitu_variable){.label = "x", .decode = INSITU_CF, .dtype = INSITU_I16};
  memset(&err, 0, sizeof err);
  assert_int_equal(insitu_loader_open(&e, &ld, &err), INSITU_E_DTYPE);
  has(err.message, "leave decode out");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_xarray), cmocka_unit_test(test_batches), cmocka_unit_test(test_absent),
      cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
