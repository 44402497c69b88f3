/* Zarr metadata of both versions, chunk keys, the file store and opening hierarchies. */
#include <stdlib.h>
#include <setjmp.h>
#include <stdbool.h>
static int allocations_left = -1; /* -1: memory never runs out */
static bool short_once;           /* it runs out for one allocation alone */
static void *limited_realloc(void *p, size_t n) {
  if (allocations_left == 0) {
    if (short_once) allocations_left = -1;
    return NULL;
  }
  allocations_left -= allocations_left > 0;
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) limited_realloc(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "parse.h"
#include <cmocka.h>
#include <ftw.h>

/* ---- metadata ---- */

/* A v2 and a v3 document with some keys' values replaced: "key", "value", ..., NULL; value NULL
 * leaves the key out. */
static char document[4096];
static const char *make(
    const char *const *keys, const char *const *values, size_t n, va_list change) {
  const char *value[16];
  memcpy(value, values, n * sizeof *values);
  size_t at = 0;
  char extra[1024] = "";
  for (const char *key; (key = va_arg(change, const char *));) {
    size_t i = 0;
    const char *to = va_arg(change, const char *);
    while (i < n && strcmp(keys[i], key)) i++;
    if (i < n) value[i] = to;
    else snprintf(extra + strlen(extra), sizeof extra - strlen(extra), ", \"%s\": %s", key, to);
  }
  at += (size_t)snprintf(document, sizeof document, "{\"zarr_format\": %s", value[0]);
  for (size_t i = 1; i < n; i++)
    if (value[i])
      at +=
          (size_t)snprintf(document + at, sizeof document - at, ", \"%s\": %s", keys[i], value[i]);
  snprintf(document + at, sizeof document - at, "%s}", extra);
  return document;
}
static const char *v2(const char *first, ...) {
  static const char *const keys[] = {
      "zarr_format", "shape", "chunks", "dtype", "fill_value", "order", "compressor", "filters"};
  static const char *const values[] = {
      "2", "[10, 20]", "[3, 4]", "\"<f4\"", "0", "\"C\"", "null", "null"};
  (void)first;
  va_list args;
  va_start(args, first);
  const char *text = make(keys, values, 8, args);
  va_end(args);
  return text;
}
static const char *v3(const char *first, ...) {
  static const char *const keys[] = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid",
      "chunk_key_encoding", "fill_value", "codecs"};
  static const char *const values[] = {"3", "\"array\"", "[10, 20]", "\"float32\"",
      "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[3,4]}}",
      "{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}}", "0",
      "[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}]"};
  (void)first;
  va_list args;
  va_start(args, first);
  const char *text = make(keys, values, 8, args);
  va_end(args);
  return text;
}
#define V2(...) v2("", __VA_ARGS__, (char *)NULL)
#define V3(...) v3("", __VA_ARGS__, (char *)NULL)
#define BYTES(endian) "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"" endian "\"}}"

static struct insitu__zarr_array array; /* of the last parse that succeeded */
static insitu_error error;
/* either version, by the array's name of its format */
static insitu_status parse(const char *text) {
  insitu_status status;
  memset(&error, 0, sizeof error);
  insitu__zarr_array_free(&array);
  if (strstr(text, "\"zarr_format\": 2"))
    status = parse_v2(&array, "a/b", text, strlen(text), NULL, 0, &error);
  else status = parse_v3(&array, "a/b", text, strlen(text), &error);
  assert_int_equal(status, error.status);
  if (status < 0) {
    static const struct insitu__zarr_array zero;
    assert_memory_equal(&array, &zero, sizeof zero);
    if (!strstr(error.message, "a/b")) fail_msg("no array named: %s", error.message);
  }
  return status;
}
static void refused(insitu_status want, const char *text, const char *cause) {
  if (parse(text) != want || !strstr(error.message, cause))
    fail_msg("%s\ngave %d %s\nnot %d with %s", text, error.status, error.message, want, cause);
}
static void accepted(const char *text) {
  if (parse(text)) fail_msg("%s\ngave %s", text, error.message);
}
static const char *key(uint64_t i, uint64_t k) {
  static char buf[64];
  uint64_t index[2] = {i, k};
  int64_t n = insitu__zarr_chunk_key(&array, index, buf, sizeof buf);
  assert_true(n >= 0 && (size_t)n == strlen(buf));
  return buf;
}

static void dtypes(void **state) {
  static const struct {
    const char *v2, *v3;
    int32_t dtype;
    uint32_t size;
  } types[] = {{"b1", "bool", INSITU_BOOL, 1}, {"i1", "int8", INSITU_I8, 1},
      {"i2", "int16", INSITU_I16, 2}, {"i4", "int32", INSITU_I32, 4},
      {"i8", "int64", INSITU_I64, 8}, {"u1", "uint8", INSITU_U8, 1},
      {"u2", "uint16", INSITU_U16, 2}, {"u4", "uint32", INSITU_U32, 4},
      {"u8", "uint64", INSITU_U64, 8}, {"f2", "float16", INSITU_F16, 2},
      {"f4", "float32", INSITU_F32, 4}, {"f8", "float64", INSITU_F64, 8},
      {"c8", "complex64", INSITU_C64, 8}, {"c16", "complex128", INSITU_C128, 16}};
  static const char *const no_v2[] = {"<U0", "|S", "|S-1", "|S99999999999999999999", "<U65536",
      "|S65537", "<M8[ns", "<M8ns", "<M9[ns]", "<M8[123456789012]", "|V0", "<U7x", "|O1", "<f16",
      "<f3", "f4", "=f4", "|f4", "|U7", "|M8[s]", "<f", "<", "", "<f4x", "<i16"};
  static const char *const no_v3[] = {"r12", "r0", "r", "r8x", "r99999999999999999999",
      "numpy.datetime64", "raw_bytes", "fixed_length_utf32", "int4", "float8_e4m3"};
  char quoted[64];
  (void)state;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    const char *fill = types[i].dtype == INSITU_BOOL ? "false"
                       : types[i].dtype >> 8 == 5    ? "[0,0]"
                                                     : "0";
    for (const char *order = "<>|"; *order; order++) {
      snprintf(quoted, sizeof quoted, "\"%c%s\"", *order, types[i].v2);
      if (*order == '|' && types[i].size > 1) {
        refused(INSITU_E_DTYPE, V2("dtype", quoted), "byte order");
        continue;
      }
      accepted(V2("dtype", quoted, "fill_value", fill));
      assert_true(
          array.dtype == types[i].dtype && array.itemsize == types[i].size && array.format == 2);
      assert_int_equal(array.swap, *order == '>' && types[i].size > 1);
    }
    for (int big = 0; big < 2; big++) {
      snprintf(quoted, sizeof quoted, "\"%s\"", types[i].v3);
      accepted(V3("data_type", quoted, "fill_value", fill, "codecs",
          big ? "[" BYTES("big") "]" : "[" BYTES("little") "]"));
      assert_true(
          array.dtype == types[i].dtype && array.itemsize == types[i].size && array.format == 3);
      assert_int_equal(array.swap, big && types[i].size > 1);
    }
    const char *bare = V3("data_type", quoted, "fill_value", fill, "codecs", "[\"bytes\"]");
    if (types[i].size > 1) refused(INSITU_E_FORMAT, bare, "endian");
    else accepted(bare);
  }
  for (size_t i = 0; i < sizeof no_v2 / sizeof *no_v2; i++) {
    snprintf(quoted, sizeof quoted, "\"%s\"", no_v2[i]);
    refused(INSITU_E_DTYPE, V2("dtype", quoted), quoted);
  }
  for (size_t i = 0; i < sizeof no_v3 / sizeof *no_v3; i++) {
    snprintf(quoted, sizeof quoted, "\"%s\"", no_v3[i]);
    refused(INSITU_E_DTYPE, V3("data_type", quoted), quoted);
  }
  refused(INSITU_E_DTYPE, V2("dtype", "[[\"a\",\"<f4\"]]"), "structured");
  accepted(V3("data_type", "{\"name\":\"float32\"}"));
  refused(INSITU_E_FORMAT, V2("dtype", NULL), "missing");
  refused(INSITU_E_FORMAT, V2("dtype", "4"), "string");
  refused(INSITU_E_FORMAT, V3("data_type", NULL), "missing");
}

/* Elements with an axis inside, dates, strings: kind, scalar type, length of the axis inside (0:
 * none), unit. */
static void is_element(
    const char *text, int kind, int32_t dtype, uint64_t width, const char *unit) {
  accepted(text);
  if (array.kind != kind || array.dtype != dtype || array.axes != 2 ||
      array.ndim != (width ? 3 : 2) ||
      (width && (array.shape[2] != width || array.chunk[2] != width || array.order[2] != 2)) ||
      strcmp(array.unit, unit))
    fail_msg("%s: kind %d, dtype 0x%x, %u of %u axes, width %ju, unit '%s'", text, array.kind,
        (unsigned)array.dtype, array.axes, array.ndim, (uintmax_t)array.shape[2], array.unit);
}
#define TYPE(name, members)                                                                        \
  V3("data_type", "{\"name\":\"" name "\",\"configuration\":{" members "}}", "fill_value", FILL)
static void elements(void **state) {
  (void)state;
#define FILL "\"\""
  is_element(V2("dtype", "\"|S7\""), INSITU__ZARR_CHAR, INSITU_U8, 7, "");
  is_element(V2("dtype", "\"|S1\"", "fill_value", "\"\""), INSITU__ZARR_CHAR, INSITU_U8, 1, "");
  is_element(V2("dtype", "\"|V10\"", "fill_value", "null"), INSITU__ZARR_RAW, INSITU_U8, 10, "");
  is_element(V2("dtype", "\">U13\"", "fill_value", "\"\""), INSITU__ZARR_UCS4, INSITU_U32, 13, "");
  assert_true(array.swap && array.itemsize == 4);
  is_element(V2("dtype", "\"<U13\"", "order", "\"F\""), INSITU__ZARR_UCS4, INSITU_U32, 13, "");
  assert_true(!array.swap && array.order[0] == 1 && array.order[1] == 0);
  assert_string_equal(key(1, 2), "a/b/1.2"); /* the axis inside is not told */
  is_element(V3("data_type", "\"r24\"", "fill_value", "[1,2,255]", "codecs", "[\"bytes\"]"),
      INSITU__ZARR_RAW, INSITU_U8, 3, "");
  assert_true(array.wide_n == 3 && !memcmp(array.wide_fill, "\1\2\377\1\2\377", 6));
  is_element(TYPE("raw_bytes", "\"length_bytes\":3"), INSITU__ZARR_RAW, INSITU_U8, 3, "");
  is_element(
      TYPE("null_terminated_bytes", "\"length_bytes\":5"), INSITU__ZARR_CHAR, INSITU_U8, 5, "");
  is_element(
      TYPE("fixed_length_utf32", "\"length_bytes\":12"), INSITU__ZARR_UCS4, INSITU_U32, 3, "");
#undef FILL
#define FILL "0"
  refused(INSITU_E_DTYPE, TYPE("fixed_length_utf32", "\"length_bytes\":13"), "utf32");
  refused(INSITU_E_DTYPE, TYPE("raw_bytes", "\"length_bytes\":1e9"), "raw_bytes");
  /* dates and differences are int64 */
  is_element(V2("dtype", "\"<M8[ns]\""), INSITU__ZARR_DATE, INSITU_I64, 0, "ns");
  is_element(V2("dtype", "\">M8[25s]\"", "fill_value", "\"NaT\""), INSITU__ZARR_DATE, INSITU_I64, 0,
      "25s");
  assert_true(array.swap && array.fill[7] == 0x80 && !array.fill[0] && !array.fill_is_nan);
  is_element(V2("dtype", "\"<m8[D]\"", "fill_value", "-9223372036854775808"),
      INSITU__ZARR_DIFFERENCE, INSITU_I64, 0, "D");
  for (int i = 0; i < 2; i++) { /* without a fill value absent chunks are NaT */
    is_element(V2("dtype", i ? "\"<m8[D]\"" : "\"<M8[s]\"", "fill_value", "null"),
        i ? INSITU__ZARR_DIFFERENCE : INSITU__ZARR_DATE, INSITU_I64, 0, i ? "D" : "s");
    assert_true(array.fill[7] == 0x80 && !array.fill[0] && !array.has_fill);
  }
  is_element(V2("dtype", "\"<M8\""), INSITU__ZARR_DATE, INSITU_I64, 0, "");
  is_element(TYPE("numpy.datetime64", "\"unit\":\"us\",\"scale_factor\":10"), INSITU__ZARR_DATE,
      INSITU_I64, 0, "10us");
  is_element(TYPE("numpy.timedelta64", "\"unit\":\"s\",\"scale_factor\":1"),
      INSITU__ZARR_DIFFERENCE, INSITU_I64, 0, "s");
  is_element(
      TYPE("numpy.datetime64", "\"unit\":\"generic\""), INSITU__ZARR_DATE, INSITU_I64, 0, "");
  refused(
      INSITU_E_DTYPE, TYPE("numpy.datetime64", "\"unit\":\"s\",\"scale_factor\":0"), "datetime64");
#undef FILL
  /* as tensorstore has it in v2 */
  is_element(V2("dtype", "\"bfloat16\""), INSITU__ZARR_NUMBER, INSITU_BF16, 0, "");
  assert_true(!array.swap && array.itemsize == 2);
  /* strings of any length */
  const char *object = "\"|O\"", *utf8 = "[{\"id\":\"vlen-utf8\"}]";
  is_element(V2("dtype", object, "filters", utf8), INSITU__ZARR_STRING, INSITU_U8, 0, "");
  assert_true(array.strings == INSITU__ZARR_VLEN && array.codecs.n == 0 && !array.wide_fill);
  is_element(V2("dtype", object, "filters", utf8, "fill_value", "\"\\u00e9t\\u00e9\""),
      INSITU__ZARR_STRING, INSITU_U8, 0, "");
  assert_string_equal(array.wide_fill, "\xc3\xa9t\xc3\xa9");
  is_element(V2("dtype", object, "filters", "[{\"id\":\"vlen-bytes\"},{\"id\":\"zstd\"}]",
                 "compressor", "{\"id\":\"lz4\"}"),
      INSITU__ZARR_STRING, INSITU_U8, 0, "");
  assert_int_equal(array.codecs.n, 2);
  is_element(V2("dtype", object, "filters", "[{\"id\":\"json2\"}]"), INSITU__ZARR_STRING, INSITU_U8,
      0, "");
  assert_int_equal(array.strings, INSITU__ZARR_JSON2);
  refused(INSITU_E_DTYPE, V2("dtype", object), "vlen-utf8");
  refused(INSITU_E_CODEC, V2("dtype", object, "filters", "[{\"id\":\"pickle\"}]"), "pickle");
  refused(INSITU_E_FORMAT,
      V2("dtype", object, "filters", "[{\"id\":\"zstd\"},{\"id\":\"vlen-utf8\"}]"), "first filter");
  const char *codecs = "[\"vlen-utf8\",\"zstd\"]";
  is_element(V3("data_type", "\"string\"", "fill_value", "\"\"", "codecs", codecs),
      INSITU__ZARR_STRING, INSITU_U8, 0, "");
  refused(INSITU_E_CODEC, V3("data_type", "\"string\"", "fill_value", "\"\""), "vlen-utf8");
  refused(INSITU_E_CODEC, V3("codecs", codecs), "vlen-utf8");
}

/* The fill's bits as a number; v2 types are named by their typestr, v3 ones by their name. */
static void fill_is(const char *dtype, const char *fill, uint64_t low, uint64_t high, bool nan) {
  char quoted[64];
  uint64_t bits[2];
  snprintf(quoted, sizeof quoted, "\"%s\"", dtype);
  accepted(strchr("<>|", dtype[0]) ? V2("dtype", quoted, "fill_value", fill)
                                   : V3("data_type", quoted, "fill_value", fill));
  memcpy(bits, array.fill, sizeof bits);
  if (!array.has_fill || bits[0] != low || bits[1] != high || array.fill_is_nan != nan)
    fail_msg("%s %s: %#jx %#jx, nan %d", dtype, fill, (uintmax_t)bits[0], (uintmax_t)bits[1],
        array.fill_is_nan);
}
static void fill_refused(const char *dtype, const char *fill) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", dtype);
  refused(INSITU_E_FORMAT,
      strchr("<>|", dtype[0]) ? V2("dtype", quoted, "fill_value", fill)
                              : V3("data_type", quoted, "fill_value", fill),
      "fill_value");
}
static void fills(void **state) {
  (void)state;
  for (int v = 0; v < 2; v++) { /* forms that both versions have */
    const char *f4 = v ? "float32" : ">f4", *f8 = v ? "float64" : "<f8",
               *f2 = v ? "float16" : "<f2";
    fill_is(f4, "\"NaN\"", 0x7fc00000, 0, true);
    fill_is(f4, "NaN", 0x7fc00000, 0, true);
    fill_is(f4, "\"Infinity\"", 0x7f800000, 0, false);
    fill_is(f4, "\"+Infinity\"", 0x7f800000, 0, false);
    fill_is(f4, "\"-Infinity\"", 0xff800000, 0, false);
    fill_is(f4, "-Infinity", 0xff800000, 0, false);
    fill_is(f4, "1", 0x3f800000, 0, false);
    fill_is(f4, "-0.0", 0x80000000, 0, false);
    fill_is(f4, "1e20", 0x60ad78ec, 0, false);
    fill_is(f4, "9.969209968386869e+36", 0x7cf00000, 0, false);
    fill_is(f8, "\"NaN\"", UINT64_C(0x7ff8000000000000), 0, true);
    fill_is(f8, "1e20", UINT64_C(0x4415af1d78b58c40), 0, false);
    fill_is(f2, "\"NaN\"", 0x7e00, 0, true);
    fill_is(f2, "65504", 0x7bff, 0, false);
    fill_is(f2, "65519.99", 0x7bff, 0, false);
    fill_is(f2, "-1.5", 0xbe00, 0, false);
    fill_is(f2, "0.00006103515625", 0x0400, 0, false);
    fill_is(f2, "5.9604644775390625e-8", 1, 0, false);
    fill_is(f2, "4.4e-8", 1, 0, false);
    fill_is(f2, "2.98e-8", 0, 0, false);
    /* half of the least half: a tie, to even */
    fill_is(f2, "2.9802322387695312e-8", 0, 0, false);
    fill_is(f2, "8.940696716308594e-08", 2, 0, false);       /* one and a half of it */
    fill_is(f2, "0.000061005353927612305", 0x400, 0, false); /* rounds up from the subnormals */
    fill_is(f2, "1.00048828125", 0x3c00, 0, false);          /* ties to even */
    fill_is(f2, "1.00146484375", 0x3c02, 0, false);
    fill_is(f2, "\"-Infinity\"", 0xfc00, 0, false);
    fill_refused(f2, "65520");
    fill_refused(f4, "1e39");
    fill_refused(f8, "1e999");
    fill_refused(f4, "true");
    fill_refused(f4, "\"nan\"");
    fill_refused(f4, "\"\"");
    fill_refused(f4, "[0,0]");
    fill_is(v ? "int16" : "<i2", "-32768", 0x8000, 0, false);
    fill_refused(v ? "int16" : "<i2", "-32769");
    fill_refused(v ? "int16" : "<i2", "32768");
    fill_is(v ? "int32" : "<i4", "-999900.0", 0xfff0be24, 0, false);
    fill_refused(v ? "int32" : "<i4", "0.5");
    fill_refused(v ? "int32" : "<i4", "NaN");
    fill_refused(v ? "int32" : "<i4", "\"0\"");
    fill_is(v ? "int64" : "<i8", "-9223372036854775808", UINT64_C(1) << 63, 0, false);
    fill_refused(v ? "int64" : "<i8", "9223372036854775808");
    fill_is(v ? "uint64" : "<u8", "18446744073709551615", UINT64_MAX, 0, false);
    fill_refused(v ? "uint64" : "<u8", "18446744073709551616");
    fill_refused(v ? "uint64" : "<u8", "-1");
    fill_is(v ? "uint8" : "|u1", "255", 255, 0, false);
    fill_refused(v ? "uint8" : "|u1", "256");
    fill_is(v ? "bool" : "|b1", "true", 1, 0, false);
    fill_is(v ? "bool" : "|b1", "0", 0, 0, false);
    fill_refused(v ? "bool" : "|b1", "2");
    fill_is(v ? "complex64" : "<c8", "[1, \"NaN\"]", UINT64_C(0x7fc000003f800000), 0, true);
    fill_is(v ? "complex128" : "<c16", "[\"-Infinity\", 1.0]", UINT64_C(0xfff0000000000000),
        UINT64_C(0x3ff0000000000000), false);
    fill_refused(v ? "complex64" : "<c8", "[1]");
    fill_refused(v ? "complex64" : "<c8", "[1,2,3]");
    fill_refused(v ? "complex64" : "<c8", "[]");
  }
  fill_is("float32", "\"0x7fc00001\"", 0x7fc00001, 0, true);
  fill_is("float16", "\"0xfc01\"", 0xfc01, 0, true);
  fill_is("bfloat16", "\"NaN\"", 0x7fc0, 0, true);
  fill_is("bfloat16", "\"-Infinity\"", 0xff80, 0, false);
  fill_is("bfloat16", "\"0xff81\"", 0xff81, 0, true);
  fill_is("bfloat16", "-9999", 0xc61c, 0, false);
  fill_is("bfloat16", "1.00390625", 0x3f80, 0, false); /* ties to even */
  fill_is("bfloat16", "1.01171875", 0x3f82, 0, false);
  /* a float32 in between would round twice */
  fill_is("bfloat16", "1.003906250001", 0x3f81, 0, false);
  fill_is("bfloat16", "9.2e-41", 1, 0, false); /* the least subnormal is 2^-133 */
  fill_is("bfloat16", "4.5e-41", 0, 0, false);
  fill_is("bfloat16", "1.1754943508222875e-38", 0x0080, 0, false);
  fill_is("bfloat16", "3.3895313892515355e38", 0x7f7f, 0, false);
  fill_refused("bfloat16", "3.4e38");
  fill_is("float64", "\"0x7ff0000000000000\"", UINT64_C(0x7ff0000000000000), 0, false);
  fill_is("complex64", "[\"0x3f800000\", 2]", UINT64_C(0x400000003f800000), 0, false);
  fill_refused("float32", "\"0x7fc0000\"");
  fill_refused("float32", "\"0x7fc00000a\"");
  fill_refused("float32", "\"0x7fc0000g\"");
  fill_refused("<f4", "\"0x7fc00000\""); /* not in v2 */
  fill_is("|S3", "\"AAAA\"", 0, 0, false);
  fill_refused("|S3", "\"AAAAAA==\""); /* four bytes */
  fill_refused("|S3", "\"AAA\"");
  fill_refused("|S3", "\"A=A=\"");
  fill_refused("|S3", "1");
  fill_refused("|V2", "[1,256]");
  fill_refused("|V2", "[1,2,3]");
  fill_refused("<U2", "\"abc\"");
  fill_refused("<U2", "[97]");
  accepted(V2("dtype", "\"|S3\"", "fill_value", "\"eA==\""));
  assert_memory_equal(array.wide_fill, "x\0\0x\0\0", 6);
  /* JSON may escape a slash, which json-c does by default */
  accepted(V2("dtype", "\"|S3\"", "fill_value", "\"\\/\\/\\u002F\\/\""));
  assert_memory_equal(array.wide_fill, "\xff\xff\xff\xff\xff\xff", 6);
  accepted(V2("dtype", "\">U2\"", "fill_value", "\"\\ud83d\\ude00\""));
  /* native, then as stored */
  assert_memory_equal(array.wide_fill, "\x00\xf6\1\0\0\0\0\0\0\1\xf6\x00\0\0\0\0", 16);
  refused(
      INSITU_E_UNSUPPORTED, V2("dtype", "\"<U257\"", "fill_value", "\"x\""), "INSITU__MAX_FILL");
  accepted(V2("dtype", "\"<U257\"", "fill_value", "\"\""));
  accepted(V2("fill_value", "null"));
  assert_false(array.has_fill);
  accepted(V2("fill_value", NULL));
  accepted(V3("fill_value", "null"));
  assert_true(!array.has_fill && !array.fill_is_nan && array.fill[0] == 0);
  refused(INSITU_E_FORMAT, V3("fill_value", NULL), "fill_value");
}

static void geometry(void **state) {
  (void)state;
  accepted(V2("x", "1"));
  assert_true(array.ndim == 2 && array.shape[1] == 20 && array.chunk[0] == 3 &&
              array.order[0] == 0 && array.order[1] == 1);
  assert_string_equal(array.path, "a/b");
  accepted(V2("order", "\"F\"", "shape", "[1,2,3]", "chunks", "[4,5,6]"));
  assert_true(array.order[0] == 2 && array.order[1] == 1 && array.order[2] == 0);
  accepted(V2("shape", "[0, 20]"));
  accepted(V2("shape", "[]", "chunks", "[]"));
  accepted(V2(
      "shape", "[4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4]", "chunks", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"));
  refused(
      INSITU_E_UNSUPPORTED, V2("shape", "[4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4]"), "INSITU__MAX_DIMS");
  static const char *const shapes[] = {"[1,-1]", "[1,2.0]", "[1,\"2\"]", "[1,null]", "7", "null",
      "[9223372036854775808,1]", "[4611686018427387904,1]", "[4294967296,4294967296]",
      "[0,9223372036854775807]", "[1e3,2]", "{}", "[1,[2]]"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    refused(INSITU_E_FORMAT, V2("shape", shapes[i]), "shape");
    refused(INSITU_E_FORMAT, V3("shape", shapes[i]), "shape");
  }
  refused(INSITU_E_FORMAT, V2("shape", NULL), "shape");
  refused(INSITU_E_FORMAT, V2("chunks", "[0,4]"), "chunks");
  refused(INSITU_E_FORMAT, V2("chunks", "[3]"), "chunks");
  refused(INSITU_E_FORMAT, V2("chunks", NULL), "chunks");
  refused(INSITU_E_UNSUPPORTED, V2("chunks", "[32768,32768]"), "INSITU__MAX_CHUNK"); /* 4 GiB */
  refused(INSITU_E_UNSUPPORTED, V2("chunks", "[9223372036854775807,9223372036854775807]"),
      "INSITU__MAX_CHUNK");
  refused(INSITU_E_FORMAT, V2("order", "\"A\""), "order");
  refused(INSITU_E_FORMAT, V2("order", NULL), "order");
  refused(INSITU_E_FORMAT, V2("zarr_format", "2.0"), "zarr_format");
  refused(INSITU_E_FORMAT, V3("zarr_format", "\"3\""), "zarr_format");
  refused(INSITU_E_FORMAT, V3("node_type", "\"group\""), "node_type");
  refused(INSITU_E_FORMAT, "[]", "an object");
  refused(INSITU_E_GRID, V3("chunk_grid", "{\"name\":\"rectangular\",\"configuration\":{}}"),
      "rectangular");
  refused(INSITU_E_FORMAT,
      V3("chunk_grid", "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[3,0]}}"),
      "chunk_shape");
  refused(INSITU_E_FORMAT, V3("chunk_grid", "\"regular\""), "chunk_shape");
  refused(INSITU_E_FORMAT, V3("chunk_grid", "{}"), "chunk_grid");
  /* extensions */
  refused(INSITU_E_UNSUPPORTED, V3("frobnicate", "{\"must_understand\":true}"), "frobnicate");
  refused(INSITU_E_UNSUPPORTED, V3("frobnicate", "1"), "frobnicate");
  accepted(V3("frobnicate", "{\"must_understand\":false}"));
  accepted(V3("storage_transformers", "[]", "attributes", "{}", "consolidated_metadata", "null"));
  refused(INSITU_E_UNSUPPORTED, V3("storage_transformers", "[{\"name\":\"x\"}]"),
      "storage_transformers");
  /* names of dimensions */
  accepted(V3("dimension_names", "[\"time\", null]"));
  assert_string_equal(array.dim[0], "time");
  assert_null(array.dim[1]);
  accepted(V3("dimension_names", "null"));
  refused(INSITU_E_FORMAT, V3("dimension_names", "[\"time\"]"), "dimension_names");
  refused(INSITU_E_FORMAT, V3("dimension_names", "[\"time\", 1]"), "dimension_names");
  static const struct {
    const char *attributes, *dim;
  } dims[] = {{"{\"_ARRAY_DIMENSIONS\": [\"time\", \"x\"], \"v\": NaN}", "time"}, {"{}", NULL},
      {"{\"_ARRAY_DIMENSIONS\": [\"time\"]}", NULL},
      {"{\"_ARRAY_DIMENSIONS\": [\"time\", 2]}", NULL}, {"[]", NULL}};
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    const char *text = V2("x", "1");
    insitu__zarr_array_free(&array);
    assert_int_equal(parse_v2(&array, "a", text, strlen(text), dims[i].attributes,
                         strlen(dims[i].attributes), NULL),
        INSITU_OK);
    if (dims[i].dim) assert_string_equal(array.dim[0], dims[i].dim);
    else assert_null(array.dim[0]);
  }
}

static void codecs(void **state) {
  (void)state;
  struct insitu__codec blosc, zstd;
  assert_int_equal(insitu__chain_from_name("blosc", &blosc, NULL), INSITU_OK);
  assert_int_equal(insitu__chain_from_name("zstd", &zstd, NULL), INSITU_OK);
  accepted(V2("compressor",
      "{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}"));
  assert_true(array.codecs.n == 1 && array.codecs.codec[0].kind == blosc.kind);
  accepted(V2(
      /* as kerchunk writes; decoded from the last */
      "compressor", "null", "filters", "[{\"id\":\"zstd\"},{\"id\":\"blosc\"}]"));
  assert_true(array.codecs.n == 2 && array.codecs.codec[0].kind == blosc.kind);
  accepted(V2("compressor", "{\"id\":\"zstd\"}", "filters", "[{\"id\":\"blosc\"}]"));
  assert_true(array.codecs.n == 2 && array.codecs.codec[0].kind == zstd.kind);
  accepted(V2("compressor", NULL, "filters", "[]"));
  assert_int_equal(array.codecs.n, 0);
  refused(INSITU_E_CODEC, V2("compressor", "{\"id\":\"blosc2\"}"), "blosc2");
  refused(
      INSITU_E_CODEC, V2("filters", "[{\"id\":\"categorize\",\"dtype\":\"<f4\"}]"), "categorize");
  refused(INSITU_E_FORMAT, V2("compressor", "{\"cname\":\"lz4\"}"), "compressor");
  refused(INSITU_E_FORMAT, V2("compressor", "\"blosc\""), "compressor");
  refused(INSITU_E_FORMAT, V2("filters", "{}"), "filters");
  refused(
      INSITU_E_UNSUPPORTED, V2("filters", "[{},{},{},{},{},{},{},{},{}]"), "INSITU__MAX_CODECS");
  accepted(V3("codecs", "[" BYTES("little") ",\"numcodecs.zstd\",{\"name\":\"blosc\","
                                            "\"configuration\":{\"typesize\":4}}]"));
  assert_true(array.codecs.n == 2 && array.codecs.codec[0].kind == blosc.kind);
  assert_int_equal(array.codecs.codec[1].kind, zstd.kind);
  refused(INSITU_E_FORMAT, V3("codecs", "[{\"name\":\"sharding_indexed\",\"configuration\":{}}]"),
      "sharding_indexed");
  refused(INSITU_E_UNSUPPORTED,
      V3("chunk_grid",
          "{\"name\":\"regular\",\n \"configuration\":{\"chunk_shape\":[99999,99999]}}"),
      "\"regular\", \"conf");
  refused(INSITU_E_CODEC, V3("codecs", "[{\"name\":\"gribberish\"}]"), "gribberish");
  refused(INSITU_E_CODEC, V3("codecs", "[{\"name\":\"zstd\"}," BYTES("little") "]"), "zstd");
  refused(INSITU_E_CODEC,
      V3("codecs", "[" BYTES("little") ",{\"name\":\"nope\",\"must_understand\":false}]"), "nope");
  refused(INSITU_E_FORMAT, V3("codecs", "[]"), "codecs");
  refused(INSITU_E_FORMAT, V3("codecs", NULL), "codecs");
  refused(INSITU_E_FORMAT, V3("codecs", "[" BYTES("little") "," BYTES("little") "]"), "codecs");
  refused(INSITU_E_FORMAT, V3("codecs", "[" BYTES("middle") "]"), "endian");
  refused(INSITU_E_FORMAT, V3("codecs", "[{}]"), "name");
  refused(INSITU_E_UNSUPPORTED,
      V3("codecs", "[" BYTES("big") ",\"zstd\",\"zstd\",\"zstd\",\"zstd\",\"zstd\",\"zstd\","
                                    "\"zstd\",\"zstd\",\"zstd\"]"),
      "INSITU__MAX_CODECS");
#define TRANSPOSE(order) "{\"name\":\"transpose\",\"configuration\":{\"order\":" order "}},"
#define CUBE                                                                                       \
  "shape", "[9,9,9]", "chunk_grid",                                                                \
      "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[3,4,5]}}", "codecs"
  accepted(V3(CUBE, "[" TRANSPOSE("[1,2,0]") BYTES("little") "]"));
  assert_true(array.order[0] == 1 && array.order[1] == 2 && array.order[2] == 0);
  accepted(V3(CUBE, "[" TRANSPOSE("[1,2,0]") TRANSPOSE("[1,0,2]") BYTES("little") "]"));
  assert_true(array.order[0] == 2 && array.order[1] == 1 && array.order[2] == 0);
  accepted(V3(CUBE, "[" TRANSPOSE("\"F\"") BYTES("little") "]"));
  assert_true(array.order[0] == 2 && array.order[1] == 1 && array.order[2] == 0);
  static const char *const bad[] = {"[" TRANSPOSE("[0,1]") BYTES("little") "]",
      "[" TRANSPOSE("[0,1,1]") BYTES("little") "]", "[" TRANSPOSE("[0,1,3]") BYTES("little") "]",
      "[" TRANSPOSE("[0,1,2,3]") BYTES("little") "]", "[" TRANSPOSE("null") BYTES("little") "]",
      "[" TRANSPOSE("[0,1,-1]") BYTES("little") "]",
      "[" TRANSPOSE("[18446744073709551615,1,2]") BYTES("little") "]",
      "[" BYTES("little") "," TRANSPOSE("[2,1,0]") "\"zstd\"]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    refused(INSITU_E_FORMAT, V3(CUBE, bad[i]), "codecs");
#define CONFIGURED(name, configuration)                                                            \
  "{\"name\":\"" name "\",\"configuration\":{" configuration "}}"
#define SHARDED(more)                                                                              \
  CONFIGURED("sharding_indexed", "\"chunk_shape\":[1,2,5],\"codecs\":[" BYTES(                     \
                                     "little") "],\"index_codecs\":[" BYTES("little") "]" more)
  accepted(V3(CUBE, "[" SHARDED("") "]"));
  accepted(V3(CUBE, "[" SHARDED(",\"x\":{\"must_understand\":false}") "]"));
  static const char *const unknown[] = {"[" SHARDED(",\"x\":1") "]",
      "[" CONFIGURED("bytes", "\"endian\":\"little\",\"x\":1") "]",
      "[" CONFIGURED("transpose", "\"order\":[1,2,0],\"x\":1") "," BYTES("little") "]"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    refused(INSITU_E_UNSUPPORTED, V3(CUBE, unknown[i]), "'x' = 1");
  refused(INSITU_E_UNSUPPORTED,
      V3("chunk_grid", CONFIGURED("regular", "\"chunk_shape\":[3,4],\"x\":1")), "'x' = 1");
  refused(INSITU_E_UNSUPPORTED,
      V3("chunk_grid",
          CONFIGURED("rectilinear", "\"kind\":\"inline\",\"chunk_shapes\":[[5,5],4],\"x\":1")),
      "'x' = 1");
}

static void keys(void **state) {
#define ENCODING(name, more) "chunk_key_encoding", "{\"name\":\"" name "\"" more "}"
#define SEPARATOR(s) ",\"configuration\":{\"separator\":\"" s "\"}"
#define SCALAR                                                                                     \
  "shape", "[]", "chunk_grid", "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[]}}"
  (void)state;
  accepted(V2("x", "1"));
  assert_string_equal(key(0, 12), "a/b/0.12");
  assert_string_equal(key(UINT64_MAX, 9), "a/b/18446744073709551615.9");
  accepted(V2("dimension_separator", "\"/\""));
  assert_string_equal(key(10, 0), "a/b/10/0");
  accepted(V2("shape", "[]", "chunks", "[]"));
  assert_string_equal(key(0, 0), "a/b/0");
  refused(INSITU_E_FORMAT, V2("dimension_separator", "\"-\""), "dimension_separator");
  refused(INSITU_E_FORMAT, V2("dimension_separator", "null"), "dimension_separator");
  accepted(V3(ENCODING("default", "")));
  assert_string_equal(key(1, 2), "a/b/c/1/2");
  accepted(V3("chunk_key_encoding", "\"default\""));
  assert_string_equal(key(1, 2), "a/b/c/1/2");
  accepted(V3(ENCODING("default", SEPARATOR("."))));
  assert_string_equal(key(1, 2), "a/b/c.1.2");
  accepted(V3(ENCODING("v2", "")));
  assert_string_equal(key(1, 2), "a/b/1.2");
  accepted(V3(ENCODING("v2", SEPARATOR("/"))));
  assert_string_equal(key(1, 2), "a/b/1/2");
  accepted(V3(SCALAR));
  assert_string_equal(key(0, 0), "a/b/c");
  accepted(V3(SCALAR, ENCODING("v2", "")));
  assert_string_equal(key(0, 0), "a/b/0");
  refused(INSITU_E_UNSUPPORTED, V3(ENCODING("fanout", "")), "fanout");
  refused(INSITU_E_FORMAT, V3(ENCODING("default", SEPARATOR("_"))), "separator");
  accepted(V3(ENCODING("default", ",\"configuration\":null")));
  accepted(V3(ENCODING("default", ",\"configuration\":{}")));
  refused(INSITU_E_FORMAT, V3(ENCODING("default", ",\"configuration\":\".\"")), "object");
  refused(INSITU_E_FORMAT, V3(ENCODING("v2", ",\"configuration\":[\"/\"]")), "object");
  refused(INSITU_E_UNSUPPORTED,
      V3(ENCODING("default", ",\"configuration\":{\"separator\":\"/\",\"width\":4}")),
      "'width' = 4");
  accepted(V3(ENCODING(
      "default", ",\"configuration\":{\"separator\":\".\",\"x\":{\"must_understand\":false}}")));
  assert_string_equal(key(1, 2), "a/b/c.1.2");
  accepted(V3("shape", "[10,20]"));
  array.path[0] = 0; /* the root */
  assert_string_equal(key(1, 2), "c/1/2");
  for (size_t cap = 0; cap < 24; cap++) { /* never writes past cap, and fits where it can */
    char *tight = malloc(cap ? cap : 1);
    int64_t n = insitu__zarr_chunk_key(&array, (const uint64_t[]){123, 4567}, tight, cap);
    assert_int_equal(n, cap >= sizeof "c/123/4567" ? 10 : INSITU_E_ARG);
    free(tight);
  }
  for (int ndim = 0; ndim < 2; ndim++)
    for (int c = 0; c < 2; c++)
      for (size_t cap = 0; cap < 12; cap++) {
        struct insitu__zarr_array a = {.path = cap % 2 ? (char *)"p" : (char *)"",
            .axes = (unsigned)ndim,
            .key_c = c,
            .separator = '/'};
        size_t want = strlen(a.path) * 2 + (ndim && c ? 3 : 1);
        char *tight = malloc(cap ? cap : 1);
        assert_int_equal(insitu__zarr_chunk_key(&a, (const uint64_t[]){7}, tight, cap),
            cap > want ? (int64_t)want : INSITU_E_ARG);
        free(tight);
      }
}

/* truncations are refused, changed bytes are refused or give an array within the limits */
static void damage(void **state) {
  char text[sizeof document];
  (void)state;
  for (int v = 0; v < 2; v++) {
    const char *good = v ? V3("dimension_names", "[\"t\",null]", "codecs",
                               "[" TRANSPOSE("[1,0]") BYTES("big") ",\"zstd\"]")
                         : V2("compressor", "{\"id\":\"blosc\"}", "dimension_separator", "\"/\"");
    size_t n = strlen(good);
    snprintf(text, sizeof text, "%s", good);
    for (size_t i = 0; i < n; i++) {
      struct insitu__zarr_array a;
      char *cut = malloc(i + 1);
      memcpy(cut, text, i);
      assert_int_equal(v ? parse_v3(&a, "", cut, i, NULL) : parse_v2(&a, "", cut, i, NULL, 0, NULL),
          INSITU_E_JSON);
      free(cut);
      for (const char *c = "{}[]\",:019-.eNx\x80"; *c; c++) {
        char was = text[i];
        text[i] = *c;
        if (!(v ? parse_v3(&a, "", text, n, NULL) : parse_v2(&a, "", text, n, NULL, 0, NULL))) {
          uint64_t bytes = a.itemsize, axes = 0;
          for (unsigned d = 0; d < a.ndim; d++) bytes *= a.chunk[d], axes |= 1u << a.order[d];
          assert_true(a.ndim <= INSITU__MAX_DIMS && bytes > 0 && bytes <= INSITU__MAX_CHUNK &&
                      axes + 1 == 1u << a.ndim);
        }
        insitu__zarr_array_free(&a);
        text[i] = was;
      }
    }
  }
}

/* ---- rectilinear grids ---- */

#define GRID(kind, shapes)                                                                         \
  "{\"name\":\"rectilinear\",\"configuration\":{\"kind\":\"" kind "\",\"chunk_shapes\":" shapes
#define INLINE(shapes) GRID("inline", shapes) "}}"
#define PADDED(shapes, stored) GRID("insitu.padded", shapes) ",\"stored_shapes\":" stored "}}"
#define RECTILINEAR(configuration) "{\"name\":\"rectilinear\",\"configuration\":" configuration "}"

/* The chunks along axis 0, which has 10 indexes: edge and stored of each, ended by 0; none: the
 * grid is regular, with chunks of `chunk`. */
static void grid_is(const char *text, uint64_t chunk, const int (*want)[2]) {
  const struct insitu__grid *g;
  uint64_t n = 0, begin = 0;
  accepted(text);
  g = array.grid[0];
  assert_int_equal(array.chunk[0], chunk);
  assert_int_equal(g != NULL, want != NULL);
  if (!g) return;
  for (; want[n][0]; begin += (uint64_t)want[n++][0]) {
    uint64_t edge = (uint64_t)want[n][0];
    assert_int_equal(insitu__zarr_tile_begin(&array, 0, n), begin);
    assert_int_equal(insitu__zarr_tile_end(&array, 0, n), begin + edge);
    assert_int_equal(insitu__grid_stored(g, chunk, n), want[n][1]);
    for (uint64_t i = 0; i < edge; i++)
      assert_int_equal(insitu__zarr_tile(&array, 0, begin + i), n);
  }
  assert_int_equal(insitu__zarr_tiles(&array, 0), n);
}

static void grids_accepted(void) {
  static const int mixed[][2] = {{4, 4}, {1, 1}, {1, 1}, {1, 1}, {5, 5}, {0, 0}};
  static const int rest[][2] = {{4, 4}, {4, 4}, {2, 2}, {0, 0}};
  static const int padded[][2] = {{4, 4}, {1, 4}, {4, 4}, {1, 4}, {0, 0}};
  static const int uneven[][2] = {{4, 4}, {1, 3}, {5, 5}, {0, 0}};
  grid_is(V3("chunk_grid", INLINE("[3,4]")), 3, NULL);
  grid_is(V3("chunk_grid", INLINE("[[[3,4]],[4,[4,4]]]")), 3, NULL);
  grid_is(V3("chunk_grid", INLINE("[[5,5,7],[20]]")), 5, NULL); /* one behind the axis */
  grid_is(V3("chunk_grid", INLINE("[[4,[1,3],5],20]")), 5, mixed);
  grid_is(V3("chunk_grid", INLINE("[[4,[1,3],5,[1,1],[7,2]],[[20,1]]]")), 5, mixed);
  grid_is(V3("chunk_grid", INLINE("[[4,4,2],4]")), 4, rest);
  grid_is(V3("chunk_grid", PADDED("[[4,4,2],4]", "[4,4]")), 4, NULL);
  grid_is(V3("chunk_grid", PADDED("[[4,1,4,1],4]", "[[[4,4]],4]")), 4, padded);
  assert_false(array.varies || array.spread);
  grid_is(V3("chunk_grid", PADDED("[[4,1,5],4]", "[[4,3,5],4]")), 5, uneven);
  assert_true(array.varies && !array.spread);
  accepted(V3("chunk_grid", INLINE("[4,[1,[2,9],1]]")));
  assert_true(array.varies && array.spread);
  accepted(V3("shape", "[0,20]", "chunk_grid", INLINE("[[],5]")));
  assert_int_equal(array.chunk[0], 1);
  /* as many as there are numbers for, where they are alike */
  accepted(V3("shape", "[1000000000000,20]", "chunk_grid", INLINE("[[[1,1000000000000]],20]")));
  assert_null(array.grid[0]);

  uint64_t tile[] = {1, 0}, stride[2];
  accepted(V3("chunk_grid", INLINE("[[4,[1,3],5],20]")));
  assert_int_equal(insitu__zarr_strides(&array, tile, stride), 80);
  assert_int_equal(stride[0], 80);
  assert_string_equal(key(4, 0), "a/b/c/4/0");
}

#define SHARD(inner)                                                                               \
  "[{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" inner                      \
  ",\"codecs\":[" BYTES("little") "],\"index_codecs\":[" BYTES("little") "]}}]"

static void grids_sharded(void) {
  static const int inner[][2] = {{2, 2}, {2, 2}, {2, 2}, {1, 2}, {2, 2}, {1, 2}, {0, 0}};
  uint64_t tile[2] = {4, 1}, object[2];
  grid_is(
      V3("chunk_grid", PADDED("[[4,3,3],4]", "[[[4,3]],4]"), "codecs", SHARD("[2,4]")), 2, inner);
  insitu__zarr_object_of(&array, tile, object);
  assert_true(object[0] == 2 && object[1] == 1);
  /* inner chunks that divide all lengths make a regular grid of their own */
  grid_is(
      V3("chunk_grid", PADDED("[[4,2,4],4]", "[[[4,3]],4]"), "codecs", SHARD("[2,4]")), 2, NULL);
  tile[0] = 3;
  insitu__zarr_object_of(&array, tile, object);
  assert_int_equal(object[0], 2);
  /* shards of several shapes, whose chunks divide each of them */
  grid_is(V3("chunk_grid", INLINE("[[4,2,4],4]"), "codecs", SHARD("[2,4]")), 2, NULL);
  assert_true(array.ragged && !array.varies);
  insitu__zarr_object_of(&array, tile, object);
  assert_int_equal(object[0], 2);
  refused(
      INSITU_E_FORMAT, V3("chunk_grid", INLINE("[[4,3,3],4]"), "codecs", SHARD("[2,4]")), "divide");
  refused(INSITU_E_CODEC,
      V3("chunk_grid", INLINE("[[4,2,4],4]"), "codecs",
          "[{\"name\":\"numcodecs.delta\",\"configuration\":{\"dtype\":\"<f4\"}},"
          "{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}}," BYTES("little") "]"),
      "transpose");
}

static void grids_refused(void) {
  static const char *const shapes[] = {"[3]", "[3,4,5]", "3", "{}", "[0,4]", "[[3,0],4]",
      "[[3,-1],4]", "[[3,1.5],4]", "[[[3]],4]", "[[[3,1,1]],4]", "[[[3,0]],4]", "[[[0,3]],4]",
      "[[[3,\"4\"]],4]", "[[4,4],4]", "[[],4]", "[[[[3,4]]],4]", "[\"3\",4]", "[null,4]",
      "[[{}],4]", "[[10,0],4]", "[[9223372036854775808],4]", "[[4,3,3,true],4]"};
  char text[200];
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    snprintf(text, sizeof text, INLINE("%s"), shapes[i]);
    refused(INSITU_E_FORMAT, V3("chunk_grid", text), "chunk_shapes");
  }
  refused(INSITU_E_FORMAT, V3("chunk_grid", RECTILINEAR("{}")), "kind");
  refused(INSITU_E_FORMAT, V3("chunk_grid", RECTILINEAR("{\"kind\":\"inline\"}")), "chunk_shapes");
  refused(INSITU_E_GRID, V3("chunk_grid", RECTILINEAR("{\"kind\":\"remote\"}")), "inline");
  refused(INSITU_E_FORMAT,
      V3("chunk_grid", RECTILINEAR("{\"kind\":\"insitu.padded\",\"chunk_shapes\":[3,4]}")),
      "stored_shapes");
  refused(INSITU_E_FORMAT, V3("chunk_grid", PADDED("[3,4]", "[3]")), "stored_shapes");
  refused(INSITU_E_FORMAT, V3("chunk_grid", PADDED("[[4,6],4]", "[[4],4]")), "stored_shapes");
  refused(INSITU_E_FORMAT, V3("chunk_grid", PADDED("[[4,6],4]", "[[4,5],4]")), "stored_shapes");
  refused(INSITU_E_UNSUPPORTED, V3("chunk_grid", INLINE("[3,[[1,1],2147483648]]")), "MAX_CHUNK");
  refused(INSITU_E_UNSUPPORTED,
      V3("shape", "[1000000000001,20]", "chunk_grid", INLINE("[[[1,999999999999],2],20]")),
      "INSITU__MAX_GRID_CHUNKS");
}

static void grids(void **state) {
  (void)state;
  grids_accepted();
  grids_sharded();
  grids_refused();
}

/* wherever memory runs out, that is the error and nothing stays behind */
static void no_memory(void **state) {
  (void)state;
  for (int v = 0; v < 2; v++) {
    int n = 0;
    const char *text = v ? V3("dimension_names", "[\"t\",\"x\"]") : V2("x", "1"),
               *attributes = "{\"_ARRAY_DIMENSIONS\":[\"t\",\"x\"]}";
    for (insitu_status status = INSITU_E_NOMEM; status < 0; n++) {
      struct insitu__zarr_array a;
      allocations_left = n;
      status = v ? parse_v3(&a, "", text, strlen(text), NULL)
                 : parse_v2(&a, "", text, strlen(text), attributes, strlen(attributes), NULL);
      allocations_left = -1;
      assert_true(status == INSITU_OK || status == INSITU_E_NOMEM);
      insitu__zarr_array_free(&a);
    }
    /* documents, path, two names, attributes; and the time that succeeds */
    assert_int_equal(n, v ? 5 : 7);
  }
  for (insitu_status status = INSITU_E_NOMEM, n = 0; status < 0; n++) { /* tables of chunks */
    const char *text =
        V3("chunk_grid", PADDED("[[4,3,3],4]", "[[[4,3]],4]"), "codecs", SHARD("[2,4]"));
    struct insitu__zarr_array a;
    allocations_left = n;
    status = parse_v3(&a, "", text, strlen(text), NULL);
    allocations_left = -1;
    assert_true(status == INSITU_OK || status == INSITU_E_NOMEM);
    insitu__zarr_array_free(&a);
    assert_true(status < 0 || n > 6);
  }
}

/* ---- hierarchies, on the reactor ---- */

static char root[256], joined[512];
static struct insitu__reactor reactor;
static const char *at(const char *path) {
  snprintf(joined, sizeof joined, "%s/%s", root, path);
  return joined;
}
static void put(const char *path, const char *text) { /* text NULL: a directory */
  at(path);
  for (char *slash = strchr(joined + strlen(root) + 1, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(joined, 0777);
    *slash = '/';
  }
  if (!text) {
    mkdir(joined, 0777);
    return;
  }
  FILE *f = fopen(joined, "wb");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

struct visit { /* one coroutine's errand; cmocka's asserts stay outside */
  const char *url, *path;
  insitu_status status;
  insitu_error error;
  struct insitu__zarr_array array;
  int format;
  bool is_array;
  char names[8192];
  uint64_t n_names;
  char *object;
};
static void visit_name(void *to, const char *path) {
  struct visit *v = to;
  size_t n = strlen(v->names);
  v->n_names++;
  snprintf(v->names + n, sizeof v->names - n, "%s ", path);
}
static void visit_entry(void *to, const char *name, bool is_directory) {
  struct visit *v = to;
  size_t n = strlen(v->names);
  snprintf(v->names + n, sizeof v->names - n, "%s%s ", name, is_directory ? "/" : "");
}
static void visit_zarr(void *arg) { /* opens path, or lists when path is NULL */
  struct visit *v = arg;
  struct insitu__store store;
  struct insitu__group group = {0};
  v->status =
      insitu__source_open_store(&store, &reactor, &(insitu_loader_desc){.url = v->url}, &v->error);
  if (!v->status) v->status = insitu__group_open_await(&group, &store, &v->error);
  v->format = group.format;
  v->is_array = group.is_array;
  if (!v->status && v->path)
    v->status = insitu__group_array_await(&group, v->path, true, &v->array, &v->error);
  else if (!v->status) v->status = insitu__group_names_await(&group, visit_name, v, &v->error);
  insitu__group_free(&group);
  insitu__store_close(&store);
}
static void visit_object(void *arg) { /* reads an object of at most 100000 bytes */
  struct visit *v = arg;
  struct insitu__store store;
  uint64_t n;
  v->status =
      insitu__source_open_store(&store, &reactor, &(insitu_loader_desc){.url = v->url}, &v->error);
  if (!v->status)
    v->status = insitu__store_get_await(&store, v->path, 100000, &v->object, &n, &v->error);
  if (!v->status) v->n_names = n;
  insitu__store_close(&store);
}
static void visit_list(void *arg) {
  struct visit *v = arg;
  struct insitu__store store;
  v->status =
      insitu__source_open_store(&store, &reactor, &(insitu_loader_desc){.url = v->url}, &v->error);
  if (!v->status) v->status = insitu__store_list_await(&store, v->path, visit_entry, v, &v->error);
  insitu__store_close(&store);
}
static struct visit seen;
/* url is below root */
static insitu_status visit(void (*fn)(void *), const char *url, const char *path) {
  char where[512];
  insitu__zarr_array_free(&seen.array);
  free(seen.object);
  memset(&seen, 0, sizeof seen);
  snprintf(where, sizeof where, "%s/%s", root, url);
  seen.url = where;
  seen.path = path;
  assert_int_equal(insitu__reactor_call(&reactor, fn, &seen), INSITU_OK);
  if (seen.status != seen.error.status)
    fail_msg("%s, but the error has %s: %s", insitu_status_name(seen.status),
        insitu_status_name(seen.error.status), seen.error.message);
  return seen.status;
}
static void visit_fails(
    const char *url, const char *path, insitu_status status, const char *cause) {
  if (visit(visit_zarr, url, path) != status || !strstr(seen.error.message, cause))
    fail_msg("%s %s: %d %s, not %d with %s", url, path ? path : "(names)", seen.status,
        seen.error.message, status, cause);
}

static void store(void **state) {
  (void)state;
  char *large = malloc(100002);
  memset(large, 'x', 100001);
  large[100001] = 0;
  put("s/a/1", "one");
  put("s/a/0", "");
  put("s/large", large);
  put("s/limit", large + 1);
  put("s/a/dir", NULL);
  assert_int_equal(symlink("a", at("s/link")), 0);
  assert_int_equal(visit(visit_object, "s", "a/1"), INSITU_OK);
  assert_string_equal(seen.object, "one");
  assert_int_equal(visit(visit_object, "s", "a/0"), INSITU_OK);
  assert_string_equal(seen.object, "");
  assert_int_equal(visit(visit_object, "s", "limit"), INSITU_OK);
  assert_int_equal(seen.n_names, 100000);
  assert_int_equal(visit(visit_object, "s", "large"), INSITU_E_UNSUPPORTED);
  assert_int_equal(visit(visit_object, "s", "a/2"), INSITU_E_NOTFOUND);
  assert_int_equal(seen.error.sys_errno, ENOENT);
  assert_non_null(strstr(seen.error.message, "a/2"));
  assert_int_equal(visit(visit_object, "s", "a/1/2"), INSITU_E_NOTFOUND);
  /* there, but no object: not absent */
  assert_int_equal(visit(visit_object, "s", "a/dir"), INSITU_E_IO);
  assert_int_equal(seen.error.sys_errno, EISDIR);
  if (geteuid()) {
    chmod(at("s/a/1"), 0);
    assert_int_equal(visit(visit_object, "s", "a/1"), INSITU_E_IO);
  }
  static const char *const bad[] = {
      "", "/etc/passwd", "..", "../s/a/1", "a/../a/1", "a/./1", ".", "a//1", "a/", "a/.."};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(visit(visit_object, "s", bad[i]), INSITU_E_ARG);
  memset(large, 'k', 100001);
  assert_int_equal(visit(visit_object, "s", large), INSITU_E_ARG);
  large[300] = 0; /* longer than a name may be: an error, not an absent object */
  assert_int_equal(visit(visit_object, "s", large), INSITU_E_IO);
  free(large);
  assert_int_equal(visit(visit_list, "s", ""), INSITU_OK);
  assert_string_equal(seen.names, "a/ large limit link/ ");
  assert_int_equal(visit(visit_list, "s", "a"), INSITU_OK);
  assert_string_equal(seen.names, "0 1 dir/ ");
  assert_int_equal(visit(visit_list, "s", "a/dir"), INSITU_OK);
  assert_string_equal(seen.names, "");
  assert_int_equal(visit(visit_list, "s", "../s"), INSITU_E_ARG);
  assert_int_equal(visit(visit_list, "s", "b"), INSITU_E_NOTFOUND);
  assert_int_equal(visit(visit_list, "s", "a/1"), INSITU_E_NOTFOUND);
  visit_fails("missing", "", INSITU_E_NOTFOUND, "missing");
  visit_fails("s/a/0", "", INSITU_E_NOT_ZARR, "it is a file");
  visit_fails("s/a/0/x", "", INSITU_E_NOTFOUND, "s/a/0/x");
  visit_fails("s", "", INSITU_E_NOT_ZARR, ".zmetadata");
}

/* A group that is called as a file of Icechunk, below a root without metadata. */
static void repo(void **state) {
  (void)state;
  put("named/repo/t2m/.zarray", V2("x", "1"));
  assert_int_equal(visit(visit_zarr, "named", NULL), INSITU_OK);
  assert_string_equal(seen.names, "repo/t2m ");
}

/* A link that leads to nothing, as git-annex has them, is no absent object. */
static void links(void **state) {
  (void)state;
  put("links/c/1", "one");
  assert_int_equal(symlink("1", at("links/c/found")), 0);
  assert_int_equal(symlink("gone", at("links/c/lost")), 0);
  assert_int_equal(symlink("c", at("links/other")), 0);
  assert_int_equal(visit(visit_object, "links", "c/found"), INSITU_OK);
  assert_string_equal(seen.object, "one");
  assert_int_equal(visit(visit_object, "links", "other/1"), INSITU_OK);
  static const char *const lost[] = {"c/lost", "c/lost/0", "c/lost/0/1"};
  for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
    assert_int_equal(visit(visit_object, "links", lost[i]), INSITU_E_IO);
    assert_non_null(strstr(seen.error.message, "'c/lost' leads to nothing"));
  }
  static const char *const absent[] = {"2", "c/2", "c/2/0", "d/0/1", "other/2", "other/2/0"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    assert_int_equal(visit(visit_object, "links", absent[i]), INSITU_E_NOTFOUND);
}

/* An archive whose directory is removed while it is open does not become one without objects. */
static void visit_removed(void *arg) {
  struct visit *v = arg;
  struct insitu__store store;
  uint64_t n;
  v->status =
      insitu__source_open_store(&store, &reactor, &(insitu_loader_desc){.url = v->url}, &v->error);
  if (!v->status && rmdir(v->url)) v->status = INSITU_E_ARG;
  if (!v->status)
    v->status = insitu__store_get_await(&store, v->path, 100000, &v->object, &n, &v->error);
  insitu__store_close(&store);
}
static void removed(void **state) {
  (void)state;
  put("removed", NULL);
  assert_int_equal(visit(visit_removed, "removed", "c/0/0"), INSITU_E_IO);
  assert_non_null(strstr(seen.error.message, "directory was removed"));
}

static void hierarchy_v2(void **state) {
  (void)state;
  put("v2/.zgroup", "{\"zarr_format\":2}");
  put("v2/t2m/.zarray", V2("dimension_separator", "\"/\""));
  put("v2/t2m/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"time\",\"x\"]}");
  put("v2/t2m/0/0/0", "a chunk: never entered");
  /* no .zgroup between: implicit groups */
  put("v2/my group/sub/z500/.zarray", V2("shape", "[7,8]"));
  put("v2/broken/.zarray", "{\"zarr_format\": 2,\n \"shape\": [1,]}");
  put("v2/attrs/.zarray", V2("x", "1"));
  put("v2/attrs/.zattrs", "{");
  put("v2/three/zarr.json", V3("x", "{\"must_understand\":false}"));
  assert_int_equal(visit(visit_zarr, "v2", NULL), INSITU_OK);
  assert_string_equal(seen.names, "attrs broken t2m my group/sub/z500 ");
  assert_int_equal(seen.format, 2);
  assert_int_equal(visit(visit_zarr, "v2", "t2m"), INSITU_OK);
  assert_string_equal(seen.array.dim[1], "x");
  assert_int_equal(visit(visit_zarr, "v2", "//my group/sub//z500/"), INSITU_OK);
  assert_string_equal(seen.array.path, "my group/sub/z500");
  assert_int_equal(visit(visit_zarr, "v2/t2m", ""), INSITU_OK); /* the root is the array */
  assert_true(seen.is_array && seen.array.path[0] == 0);
  assert_int_equal(visit(visit_zarr, "v2/t2m", NULL), INSITU_OK);
  assert_string_equal(seen.names, " ");
  visit_fails("v2/t2m", "t2m", INSITU_E_NOTFOUND, "itself an array");
  visit_fails("v2", "z500", INSITU_E_NOTFOUND, "did you mean 'my group/sub/z500'");
  visit_fails("v2", "t2n", INSITU_E_NOTFOUND, "did you mean 't2m'");
  visit_fails("v2", "", INSITU_E_NOTFOUND, "'attrs', 'broken', 't2m'");
  visit_fails("v2", "my group", INSITU_E_NOTFOUND, "4 arrays are there");
  visit_fails("v2", "broken", INSITU_E_JSON, "line 2, column 14");
  visit_fails("v2", "attrs", INSITU_E_JSON, ".zattrs");
  visit_fails("v2", "three", INSITU_E_FORMAT, "Zarr v3 metadata");
  visit_fails("v2", "../v2/t2m", INSITU_E_ARG, "not a path");
  put("meta/.zmetadata", "{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":{\"zarr_"
                         "format\":2},\".zattrs\":{},\"g/.zgroup\":{}}}");
  visit_fails("meta", "x", INSITU_E_NOTFOUND, "has no arrays");
  char text[8192];
  snprintf(text, sizeof text,
      "{\"zarr_consolidated_format\":1,\"metadata\":{\"g/a/"
      ".zattrs\":{\"_ARRAY_DIMENSIONS\":[\"t\",\"x\"],\"f\":NaN},"
      "\"g/a/.zarray\":%s,"
      "\".zgroup\":{\"zarr_format\":2},\"../out/.zarray\":%s}}",
      V2("shape", "[70,80]"), document);
  put("meta/.zmetadata", text);
  put("meta/late/.zarray", V2("shape", "[1,2]")); /* added since: found, not listed */
  assert_int_equal(visit(visit_zarr, "meta", "g/a"), INSITU_OK);
  assert_true(seen.array.shape[0] == 70 && strcmp(seen.array.dim[0], "t") == 0);
  assert_int_equal(visit(visit_zarr, "meta", "late"), INSITU_OK);
  assert_int_equal(visit(visit_zarr, "meta", NULL), INSITU_OK);
  assert_string_equal(seen.names, "g/a ../out ");
  visit_fails("meta", "../out", INSITU_E_ARG, "not a path");
  visit_fails("meta", "g/b", INSITU_E_NOTFOUND, "did you mean 'g/a'");
  put("meta/.zmetadata", "{\"zarr_consolidated_format\":2,\"metadata\":{}}");
  visit_fails("meta", "g/a", INSITU_E_UNSUPPORTED, "zarr_consolidated_format");
  put("meta/.zmetadata", "{\"zarr_consolidated_format\":1,\"metadata\":[]}");
  visit_fails("meta", "g/a", INSITU_E_FORMAT, "\"metadata\"");
  put("meta/.zmetadata", "{\"zarr_conso");
  visit_fails("meta", "g/a", INSITU_E_JSON, ".zmetadata, line 1");
}

static void hierarchy_v3(void **state) {
#define GROUP(more) "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}" more "}"
  char text[8192];
  (void)state;
  put("v3/zarr.json", GROUP(",\"consolidated_metadata\":null"));
  put("v3/a/b/c/zarr.json", V3("dimension_names", "[\"t\",\"x\"]"));
  put("v3/a/zarr.json", GROUP(""));
  put("v3/a/b/c/c/0/0", "chunk");
  put("v3/two/.zarray", V2("x", "1"));
  assert_int_equal(visit(visit_zarr, "v3", NULL), INSITU_OK);
  assert_string_equal(seen.names, "a/b/c ");
  assert_int_equal(visit(visit_zarr, "v3", "a/b/c"), INSITU_OK);
  assert_string_equal(seen.array.dim[1], "x");
  assert_int_equal(visit(visit_zarr, "v3/a/b/c", "/"), INSITU_OK);
  assert_true(seen.is_array && seen.format == 3);
  visit_fails("v3", "a", INSITU_E_NOTFOUND, "1 array is there: 'a/b/c'");
  visit_fails("v3", "two", INSITU_E_FORMAT, "Zarr v2 metadata");
  snprintf(text, sizeof text,
      GROUP(",\"consolidated_metadata\":{\"kind\":\"inline\",\"must_understand\":false,"
            "\"metadata\":{\"g\":{\"zarr_format\":3,"
            "\"node_type\":\"group\"},\"g/x\":%s,\"y\":%s}}"),
      V3("shape", "[5,6]"), document);
  put("v3/zarr.json", text);
  assert_int_equal(visit(visit_zarr, "v3", NULL), INSITU_OK);
  assert_string_equal(seen.names, "g/x y ");
  assert_int_equal(visit(visit_zarr, "v3", "g/x"), INSITU_OK);
  assert_int_equal(seen.array.shape[1], 6);
  visit_fails("v3", "g", INSITU_E_NOTFOUND, "2 arrays are there: 'g/x', 'y'");
  put("v3/zarr.json",
      GROUP(",\"consolidated_metadata\":{\"kind\":\"other\",\"must_understand\":false}"));
  assert_int_equal(visit(visit_zarr, "v3", "a/b/c"), INSITU_OK);
  static const struct {
    const char *text, *cause;
    insitu_status status;
  } bad[] = {
      {GROUP(",\"consolidated_metadata\":{\"kind\":\"other\"}"), "inline", INSITU_E_UNSUPPORTED},
      {GROUP(",\"odd\":1"), "odd", INSITU_E_UNSUPPORTED},
      {"{\"zarr_format\":2,\"node_type\":\"group\"}", "zarr_format", INSITU_E_FORMAT},
      {"{\"zarr_format\":3,\"node_type\":\"x\"}", "node_type", INSITU_E_FORMAT},
      {"[]", "zarr_format", INSITU_E_FORMAT}, {"", "zarr.json, line 1", INSITU_E_JSON}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    put("v3/zarr.json", bad[i].text);
    visit_fails("v3", "a/b/c", bad[i].status, bad[i].cause);
  }
  /* no metadata at the root, some below */
  put("bare/deep/er/zarr.json", V3("x", "{\"must_understand\":false}"));
  put("bare/other/file", "x");
  assert_int_equal(symlink("..", at("bare/deep/cycle")), 0);
  assert_int_equal(visit(visit_zarr, "bare", "deep/er"), INSITU_OK);
  assert_int_equal(seen.format, 3);
  put("none/a/b/c", NULL);
  visit_fails("none", "a", INSITU_E_NOT_ZARR, "zarr.json");
  for (int i = 0; i < 30; i++) {
    char path[64];
    snprintf(path, sizeof path, "many/array_%02d/.zarray", i);
    put(path, V2("x", "1"));
  }
  put("many/.zgroup", "{\"zarr_format\":2}");
  visit_fails("many", "nothing like it", INSITU_E_NOTFOUND, "30 arrays are there: 'array_00',");
  assert_non_null(strstr(seen.error.message, "'array_07', ..."));
  assert_null(strstr(seen.error.message, "did you mean"));
}

/* Memory that is missing once while arrays are looked for: all are found, or that is told. */
static void hierarchy_no_memory(void **state) {
  static const char *const roots[] = {"walk3", "walk2"};
  (void)state;
  put("walk3/a/b/zarr.json", V3("dimension_names", "[\"t\",\"x\"]"));
  put("walk3/c/zarr.json", V3("dimension_names", "[\"t\",\"x\"]"));
  put("walk2/.zgroup", "{\"zarr_format\":2}");
  put("walk2/a/b/.zarray", V2("x", "1"));
  put("walk2/c/.zarray", V2("x", "1"));
  for (int i = 0; i < 2; i++) {
    bool more = true;
    for (int at = 0; more; at++) {
      short_once = true;
      allocations_left = at;
      insitu_status status = visit(visit_zarr, roots[i], NULL);
      more = allocations_left < 0;
      allocations_left = -1;
      short_once = false;
      if (status == INSITU_OK ? strcmp(seen.names, "c a/b ") != 0 : status != INSITU_E_NOMEM)
        fail_msg("%s, allocation %d: %s '%s' %s", roots[i], at, insitu_status_name(status),
            seen.names, seen.error.message);
    }
    assert_int_equal(seen.status, INSITU_OK);
  }
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)kind, (void)f;
  return remove(path);
}
static int setup(void **state) {
  const char *tmp = getenv("TMPDIR");
  struct insitu__reactor_desc desc = {.inline_mode = true};
  (void)state;
  snprintf(root, sizeof root, "%.200s/insitu-zarr-XXXXXX", tmp ? tmp : "/tmp");
  return mkdtemp(root) && insitu__reactor_open(&reactor, &desc, NULL) == INSITU_OK ? 0 : -1;
}
static int teardown(void **state) {
  (void)state;
  insitu__reactor_close(&reactor);
  insitu__zarr_array_free(&array);
  insitu__zarr_array_free(&seen.array);
  free(seen.object);
  return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* OME-NGFF images name the axes of their arrays. */
/* "t c z y x", - for an axis without a name */
static const char *names_of(const char *url, const char *path) {
  static char out[200];
  if (visit(visit_zarr, url, path)) fail_msg("%s %s: %s", url, path, seen.error.message);
  out[0] = 0;
  for (unsigned d = 0; d < seen.array.ndim; d++) {
    size_t n = strlen(out);
    snprintf(
        out + n, sizeof out - n, "%s%s", d ? " " : "", seen.array.dim[d] ? seen.array.dim[d] : "-");
  }
  return out;
}
#define IMAGE(axes, paths) "[{" axes "\"datasets\":[" paths "]}]"
#define ZYX "\"axes\":[{\"name\":\"z\",\"type\":\"space\"},{\"name\":\"y\"},{\"name\":\"x\"}],"
#define AT(path) "{\"path\":\"" path "\"}"
static void image_axes(void **state) {
  (void)state;
  static const char *const arrays[] = {"0", "1/deep", "own", "flat", "other"};
  put("ome/.zgroup", "{\"zarr_format\":2}");
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
    char path[100];
    snprintf(path, sizeof path, "ome/%s/.zarray", arrays[i]);
    put(path, i == 3 ? V2("shape", "[7,8]") : V2("shape", "[9,7,8]", "chunks", "[3,7,8]"));
  }
  put("ome/own/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"a\",\"b\",\"c\"]}");
  put("ome/.zattrs",
      "{\"multiscales\":" IMAGE(
          ZYX, "{},5," AT("none") "," AT("/0/") "," AT("1/deep") "," AT("own") "," AT("flat")) "}");
  assert_string_equal(names_of("ome", "0"), "z y x");
  assert_string_equal(names_of("ome", "1/deep"), "z y x");
  assert_string_equal(names_of("ome", "own"), "a b c");   /* its own are kept */
  assert_string_equal(names_of("ome", "flat"), "- -");    /* not as many */
  assert_string_equal(names_of("ome", "other"), "- - -"); /* no dataset of the image */
  put("ome/1/.zattrs", "{\"multiscales\":[5,"
                       "{\"axes\":[\"c\",\"v\",null],\"datasets\":[" AT("deep") "]}]}");
  assert_string_equal(names_of("ome", "1/deep"), "c v -"); /* 0.3; the nearest group counts */
  put("ome/1/.zattrs", "{ damaged");
  /* another node's document is no reason to refuse the array */
  assert_string_equal(names_of("ome", "1/deep"), "z y x");
  put("ome/.zattrs", "{\"multiscales\":" IMAGE("\"version\":\"0.2\",", AT("five") "," AT("0")) "}");
  put("ome/five/.zarray", V2("shape", "[1,2,9,7,8]", "chunks", "[1,1,3,7,8]"));
  assert_string_equal(names_of("ome", "five"), "t c z y x");
  assert_string_equal(names_of("ome", "0"), "- - -");
  /* 0.5: in the group's own document, and consolidated */
  put("ome3/zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{\"ome\":{\"version\":\"0.5\","
      "\"multiscales\":" IMAGE("\"axes\":[{\"name\":\"y\"},{\"name\":\"x\"}],", AT("s0")) "}}}");
  put("ome3/s0/zarr.json", V3("x", "{\"must_understand\":false}"));
  assert_string_equal(names_of("ome3", "s0"), "y x");
  char text[2000];
  snprintf(text, sizeof text,
      "{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":{\"zarr_format\":2},\"i/"
      ".zattrs\":{\"multiscales\":%s},"
      "\"i/0/.zarray\":%s}}",
      IMAGE("\"axes\":[{\"name\":\"y\"},{\"name\":\"x\"}],", AT("0")), V2("shape", "[7,8]"));
  put("ome2/.zmetadata", text);
  assert_string_equal(names_of("ome2", "i/0"), "y x");
}

/* What is no Zarr archive but known is named, with what can be done. */
static void put_bytes(const char *path, const char *bytes, size_t n) {
  put(path, "");
  FILE *f = fopen(at(path), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  fclose(f);
}
static void other_formats(void **state) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *says;
  } file[] = {
      {"\x89HDF\r\n\x1a\n....", 12,
          "it is an HDF5 or NetCDF-4 file, which cannot be read here; index it without a copy"},
      {"CDF\1", 4, "a NetCDF-3 file"}, {"CDF\5xx", 6, "a NetCDF-3 file"},
      {"GRIB\0\0\0\2", 8, "insitu index FILE"}, {"II*\0", 4, "a TIFF or GeoTIFF file"},
      {"MM\0+", 4, "a TIFF or GeoTIFF file"}, {"PAR1....PAR1", 12, "a Parquet file"},
      {"HDF", 3, "it is a file, and not a whole zip file"},
      {"CDF\3", 4, "it is a file, and not a whole zip file"}};
  static const struct {
    const char *path, *text, *says;
  } folder[] = {{"attributes.json", "{\"n5\": \"2.5.1\"}", "it is an N5 container"},
      {"attributes.json", "{\"dimensions\": [4], \"blockSize\": [2]}", "it is an N5 container"},
      {"__schema/1_2_3", "", "it is a TileDB array or group"},
      {"1980.nc", "",
          "it holds '1980.nc', by its name an HDF5 or NetCDF-4 file, which cannot be read here; "
          "index it without a copy"},
      {"meta/root.group.json", "{\"extensions\": []}", "an early draft of Zarr v3"},
      {"meta/root.array.json", "{}", "an early draft of Zarr v3"}, {"a.GRIB2", "", "a GRIB file"},
      {"attributes.json", "{}", "neither zarr.json"}, {"nc", "", "neither zarr.json"}};
  (void)state;
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    put_bytes("other", file[i].bytes, file[i].n);
    visit_fails("other", "", INSITU_E_NOT_ZARR, file[i].says);
    if (!strstr(file[i].says, "whole zip"))
      visit_fails("other/group", "", INSITU_E_NOT_ZARR, file[i].says);
    else visit_fails("other/group", "", INSITU_E_NOTFOUND, "not a whole zip file");
  }
  for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
    char url[20], path[100];
    snprintf(url, sizeof url, "others/%d", (int)i);
    snprintf(path, sizeof path, "%s/%s", url, folder[i].path);
    put(path, folder[i].text);
    visit_fails(url, "", INSITU_E_NOT_ZARR, folder[i].says);
  }
  /* References of kerchunk are an archive: this one is empty, and this one is none. */
  put("other", " {\"version\": 1, \"refs\": {}}");
  visit_fails("other", "", INSITU_E_NOT_ZARR, "no Zarr metadata");
  put("other", "{\"a\": 1}");
  visit_fails("other", "", INSITU_E_FORMAT, "reference 'a'");
  put("parquet/.zmetadata",
      "{\"metadata\": {\".zgroup\": {\"zarr_format\": 2}}, \"record_size\": 10000}");
  visit_fails("parquet", "", INSITU_E_NOT_ZARR, "it is kerchunk's references in Parquet files");
  put("unknown/.zmetadata", "{\"metadata\": {}, \"zarr_consolidated_format\": 2}");
  visit_fails("unknown", "", INSITU_E_UNSUPPORTED, "zarr.consolidate_metadata");
  put("draft/zarr.json", "{\"zarr_format\": \"https://purl.org/zarr/spec/protocol/core/3.0\", "
                         "\"metadata_key_suffix\": \".json\"}");
  visit_fails("draft", "", INSITU_E_UNSUPPORTED, "an early draft of Zarr v3");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dtypes), cmocka_unit_test(elements),
      cmocka_unit_test(fills), cmocka_unit_test(geometry), cmocka_unit_test(codecs),
      cmocka_unit_test(keys), cmocka_unit_test(grids), cmocka_unit_test(damage),
      cmocka_unit_test(no_memory), cmocka_unit_test(store), cmocka_unit_test(links),
      cmocka_unit_test(removed), cmocka_unit_test(repo), cmocka_unit_test(hierarchy_v2),
      cmocka_unit_test(hierarchy_v3), cmocka_unit_test(hierarchy_no_memory),
      cmocka_unit_test(image_axes), cmocka_unit_test(other_formats)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
