/* The command insitu: help and wrong usage, info, verify, order, doctor. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "expect.h"
#include "run_tool.h"
#include "zip.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif
#define WINDS "examples/data/winds.zarr"

/* ---- the JSON that a command printed ---- */

static struct insitu__text_json doc;
static void parse(void) {
  insitu_error err = {0};
  insitu__text_json_free(&doc);
  if (insitu__text_json_parse(&doc, run_out, strlen(run_out), "stdout", &err))
    fail_msg("%s\n%s", err.message, run_out);
}
static int at(int object, const char *key) {
  int token = insitu__text_json_get(&doc, object, key);
  if (token < 0) fail_msg("no key '%s' in:\n%s", key, run_out);
  return token;
}
static uint64_t number(int object, const char *key) {
  uint64_t value;
  if (!insitu__text_json_u64(&doc, at(object, key), &value))
    fail_msg("'%s' is no whole number in:\n%s", key, run_out);
  return value;
}
static double real(int object, const char *key) {
  double value = 0;
  if (!insitu__text_json_double(&doc, at(object, key), &value))
    fail_msg("'%s' is no number in:\n%s", key, run_out);
  return value;
}
static bool yes(int object, const char *key) {
  return insitu__text_json_is_true(&doc, at(object, key));
}
static bool is(int object, const char *key, const char *value) {
  return insitu__text_json_equals(&doc, at(object, key), value);
}
static int array_of(const char *path) { /* the member of "arrays" with this path; -1: none */
  int arrays = at(0, "arrays");
  for (int t = insitu__text_json_first(&doc, arrays); t >= 0; t = insitu__text_json_next(&doc, t))
    if (is(t, "path", path)) return t;
  return -1;
}
static void check_extents(int object, const char *key, int n, const uint64_t *want) {
  int list = at(object, key), k = 0;
  assert_int_equal(insitu__text_json_size(&doc, list), n);
  for (int t = insitu__text_json_first(&doc, list); t >= 0;
       t = insitu__text_json_next(&doc, t), k++) {
    uint64_t value;
    assert_true(insitu__text_json_u64(&doc, t, &value));
    assert_int_equal(value, want[k]);
  }
}

/* ---- help and usage ---- */

static void test_help(void **state) {
  (void)state;
  static const char *const commands[] = {"info", "verify", "order", "doctor"};
  assert_int_equal(run_tool("--help"), 0);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) assert_has(run_out, commands[i]);
  assert_int_equal(run_tool("%s", ""), 2);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char usage[40];
    snprintf(usage, sizeof usage, "usage: insitu %s ", commands[i]);
    assert_int_equal(run_tool("%s --help", commands[i]), 0);
    assert_has(run_out, usage);
    assert_has(run_out, "--json");
    assert_string_equal(run_err, "");
    for (const char *line = run_out; line; line = strchr(line + 1, '\n'))
      assert_true(strcspn(line + 1, "\n") <= 100);
    assert_int_equal(run_tool("help %s", commands[i]), 0);
    assert_has(run_out, usage);
  }
}

static void test_usage(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *says;
  } wrong[] = {{"inf " WINDS, "did you mean 'info'?"}, {"frobnicate", "no command 'frobnicate'"},
      {"info", "the archive is missing"}, {"verify", "the archive is missing"},
      {"info --shor " WINDS, "did you mean --short?"}, {"info -z " WINDS, "no option -z"},
      {"info --size-seconds", "--size-seconds needs a value"},
      {"info --size-seconds=soon " WINDS, "a whole number is needed"},
      {"info --json=1 " WINDS, "takes no value"},
      {"info " WINDS " uwnd vwnd", "'vwnd' is one argument too many"},
      {"info " WINDS " ../x", "not a path inside the archive"},
      {"order 1 2 3", "4 of the 7 numbers"},
      {"order 12 4 0 0 8 2 x", "W: 'x' is not a whole number"},
      {"order 12 4 0 0 8 2 3 5", "not UNIT:COUNT"}, {"doctor a b", "one argument too many"},
      {"--json info " WINDS, "options stand behind the command"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (run_tool("%s", wrong[i].arguments) != 2)
      fail_msg("insitu %s: not refused", wrong[i].arguments);
    assert_has(run_err, wrong[i].says);
    assert_has(run_err, "--help");
    assert_string_equal(run_out, "");
  }
}

static void test_not_an_archive(void **state) {
  (void)state;
  static const char *const commands[] = {"info", "verify", "doctor"};
  static const struct {
    const char *url, *says;
  } wrong[] = {{"nowhere.zarr", "no such directory"}, {"s3:/bucket/a", "two slashes"},
      {"''", "it is empty"}, {"ftp://a/b", "'ftp' is not supported"}, {"Makefile", "it is a file"},
      {"examples", ""}, {NULL, "not JSON"}};
  const char *broken = support_path("broken");
  char file[600];
  snprintf(file, sizeof file, "%s/zarr.json", broken);
  support_write(file, "{\"zarr_format\": 3,", 18);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
      if (wrong[i].url && strcmp(wrong[i].url, "examples") == 0)
        snprintf(file, sizeof file, "%s", "tests/data/codec");
      else snprintf(file, sizeof file, "%s", wrong[i].url ? wrong[i].url : broken);
      if (run_tool("%s %s%s", commands[c], file, c == 2 ? " --json" : "") != 1)
        fail_msg("insitu %s %s: not refused", commands[c], file);
      assert_has(c == 2 ? run_out : run_err, wrong[i].says[0] ? wrong[i].says : "no Zarr metadata");
    }
}

/* ---- order ---- */

static void check_order(const insitu_order_desc *d) {
  char irregular[400] = "";
  insitu_error err = {0};
  insitu_order *o;
  insitu_order_place p;
  for (uint64_t i = 0; i < d->n_irregular; i++)
    sprintf(irregular + strlen(irregular), " %" PRIu64 ":%" PRIu64, d->irregular[2 * i],
        d->irregular[2 * i + 1]);
  assert_int_equal(insitu_order_open(d, &o, &err), INSITU_OK);
  assert_int_equal(run_tool("order %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                            " %" PRIu64 " %" PRIu64 "%s",
                       d->units, d->unit_rows, d->seed, d->epoch, d->global_batch, d->lanes,
                       d->window, irregular),
      0);
  const char *line = run_out;
  for (uint64_t i = 0; insitu_order_at(o, i, &p) == INSITU_OK; i++) {
    char want[120];
    int n = sprintf(want, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i,
        p.unit, p.within, p.lane, p.window);
    if (strncmp(line, want, (size_t)n)) fail_msg("'%.40s' is not '%s'", line, want);
    line += n;
  }
  assert_string_equal(line, "");
  insitu_order_close(&o);
}
static void test_order(void **state) {
  (void)state;
  const uint64_t irregular[] = {2, 0, 7, 3, 11, 1};
  insitu_order_desc d = {
      .api = INSITU_API, .units = 12, .unit_rows = 4, .global_batch = 8, .lanes = 2, .window = 3};
  check_order(&d);
  d.irregular = irregular;
  d.n_irregular = 3;
  check_order(&d);
  d = (insitu_order_desc){.api = INSITU_API,
      .units = 700,
      .unit_rows = 8,
      .seed = UINT64_MAX,
      .epoch = 5,
      .global_batch = 48,
      .lanes = 16,
      .window = 9};
  check_order(&d);
  assert_int_equal(run_tool("order 12 4 0 0 8 3 3"), 1); /* 3 lanes do not divide 8 */
  assert_int_equal(strncmp(run_err, "insitu order: lanes 3 ", 22), 0);
  assert_int_equal(run_tool("order 3 2 0 0 2 1 1 --json"), 0);
  parse();
  assert_int_equal(insitu__text_json_size(&doc, 0), 6);
}

/* ---- info ---- */

static void test_info_winds(void **state) {
  (void)state;
  const uint64_t shape[] = {132, 73, 144}, chunk[] = {6, 73, 144};
  assert_int_equal(run_tool("info %s --json " ALL_SIZES, WINDS), 0);
  parse();
  assert_int_equal(number(0, "zarr_format"), 2);
  assert_true(yes(0, "consolidated"));
  int uwnd = array_of("uwnd"), lat = array_of("lat");
  assert_true(uwnd >= 0 && lat >= 0);
  assert_true(yes(uwnd, "readable"));
  assert_true(is(uwnd, "dtype", "float32") && is(uwnd, "byte_order", "little"));
  check_extents(uwnd, "shape", 3, shape);
  check_extents(uwnd, "chunk_shape", 3, chunk);
  assert_int_equal(number(uwnd, "objects"), 22);
  assert_int_equal(number(uwnd, "stored_objects"), 22);
  assert_int_equal(number(uwnd, "decoded_bytes"), 132 * 73 * 144 * 4);
  assert_true(is(at(uwnd, "compressor"), "cname", "zstd"));
  assert_true(is(at(uwnd, "attributes"), "long_name", "ZONAL WIND"));
  int values = at(lat, "values");
  assert_true(
      real(values, "first") == -90 && real(values, "last") == 90 && real(values, "step") == 2.5);
  int axes = at(0, "sample_axes"), axis = insitu__text_json_first(&doc, axes);
  assert_int_equal(insitu__text_json_size(&doc, axes), 1); /* the coordinates are not among them */
  assert_true(is(axis, "dimension", "time"));
  assert_int_equal(number(axis, "samples"), 132);
  int member = insitu__text_json_first(&doc, at(axis, "arrays"));
  assert_int_equal(number(member, "samples_per_chunk"), 6);
  assert_int_equal(number(member, "bytes_per_sample"), 73 * 144 * 4);
  int suggestion = at(0, "suggestion");
  assert_int_equal(insitu__text_json_size(&doc, at(suggestion, "variables")), 2);
  assert_int_equal(number(suggestion, "train_rows"),
      number(suggestion, "train_batches") * number(suggestion, "batch_size"));
}
/* What the suggestion prints compiles into the same plan. */
static void test_info_suggestion(void **state) {
  (void)state;
  assert_int_equal(run_tool("info %s --json", WINDS), 0);
  parse();
  int s = at(0, "suggestion");
  insitu_variable vars[] = {{.label = "uwnd"}, {.label = "vwnd"}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = WINDS,
      .variables = vars,
      .n_variables = 2,
      .sample_dim = "time",
      .batch_size = number(s, "batch_size"),
      .block_chunks = number(s, "block_chunks"),
      .plan_only = 1};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_plan p;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
  assert_int_equal(
      insitu_loader_plan(ld, &(insitu_iter_desc){.api = INSITU_API}, &p, &err), INSITU_OK);
  assert_int_equal(number(s, "reads"), p.reads);
  assert_int_equal(number(s, "memory_bytes"),
      p.slabs * p.slab_bytes + p.table_bytes + p.inflight_bytes + p.cache_bytes);
  insitu_loader_close(&ld);
}
/* Chunks of 8 and of 12 samples: units of 12 would read each of the former twice, so units of 24
 * are suggested. */
static void test_info_units(void **state) {
  (void)state;
  char root[512];
  snprintf(root, sizeof root, "%s", support_path("units"));
  struct support_array a = {"a", 2, {480, 4}, {8, 4}, INSITU_F32, 3, .absent = 0}, b = a;
  b.name = "b";
  b.chunk[0] = 12;
  support_make(root, &a);
  support_make(root, &b);
  assert_int_equal(run_tool("info %s --json", root), 0);
  parse();
  int s = at(0, "suggestion");
  assert_int_equal(number(s, "unit_chunks"), 2);
  assert_true(real(s, "amplification") == 1);
  assert_int_equal(run_tool("info %s", root), 0);
  assert_has(run_out, ".unit_chunks = 2};");
}
static void test_info_text(void **state) {
  (void)state;
  static const char *const parts[] = {"Zarr v2 consolidated, 5 arrays",
      "uwnd  float32 (time 132, lat 73, lon 144)",
      "chunk    6 x 73 x 144, 246 KiB; 22 chunks = 22 x 1 x 1",
      "blosc(blocksize 0, clevel 9, cname zstd, shuffle 1)",
      "values   -90 to 90 degrees_north, regular, step 2.5", ":long_name      \"ZONAL WIND\"",
      "Sample axis time: 132 samples", "To train on them",
      "insitu_loader_desc desc = {.api = INSITU_API,"};
  assert_int_equal(run_tool("info %s", WINDS), 0);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_has(run_out, parts[i]);
  assert_null(strchr(run_out, '\33'));
  for (const char *line = run_out; *line; line += strcspn(line, "\n") + 1)
    assert_true(strcspn(line, "\n") <= 100);
  assert_null(strstr(run_out, "rounded to 14 bits")); /* shortened */
  assert_int_equal(run_tool("info %s --attributes", WINDS), 0);
  assert_has(run_out, "rounded to 14 bits");
  assert_int_equal(run_tool("info %s --short", WINDS), 0);
  assert_null(strstr(run_out, "ZONAL WIND"));
  assert_int_equal(run_tool("info %s lat", WINDS), 0);
  assert_null(strstr(run_out, "uwnd"));
  assert_int_equal(run_tool("info %s uwn", WINDS), 1);
  assert_has(run_err, "did you mean 'uwnd'?");
  assert_int_equal(run_tool("info --no-size %s", WINDS), 0);
  assert_null(strstr(run_out, "stored"));
}
/* Every array of the stores that zarr-python wrote: shape, chunk and whether it can be read. */
static void test_info_stores(void **state) {
  (void)state;
  expect_entry entry, *e = &entry;
  char store[64] = "";
  FILE *index = fopen(TEST_DATA "/stores/INDEX.txt", "r");
  int arrays = 0;
  assert_non_null(index);
  for (; expect_next(index, e); arrays++) {
    if (strcmp(store, e->store)) {
      memcpy(store, e->store, sizeof store);
      assert_int_equal(run_tool("info %s/stores/%s --json", TEST_DATA, store), 0);
      parse();
    }
    int a = array_of(strcmp(e->path, "/") ? e->path : "");
    if (a < 0) fail_msg("%s: no %s", e->store, e->path);
    if (e->refused) {
      assert_false(yes(a, "readable"));
      assert_true(is(a, "status", e->status));
      continue;
    }
    assert_true(yes(a, "readable"));
    check_extents(a, "shape", e->ndim, e->shape);
    check_extents(a, "chunk_shape", e->ndim, e->chunks);
  }
  assert_true(arrays > 150);
  fclose(index);
}
static void test_info_sharded(void **state) {
  (void)state;
  const uint64_t shard[] = {8, 6}, chunk[] = {2, 3};
  assert_int_equal(run_tool("info %s/stores/sharded.v3.zarr end_crc32c --json", TEST_DATA), 0);
  parse();
  int a = array_of("end_crc32c");
  check_extents(a, "shard_shape", 2, shard);
  check_extents(a, "chunk_shape", 2, chunk);
  assert_int_equal(number(a, "objects"), 2);
  assert_int_equal(run_tool("info %s/stores/sharded.v3.zarr end_crc32c", TEST_DATA), 0);
  assert_has(run_out, "shard    8 x 6, 192 B; 2 objects of 8 chunks");
  assert_has(run_out, "[bytes(endian little) -> crc32c], index_location end)");
}
/* Coordinates of every dtype, both byte orders; one that is not regular; names that a terminal
 * would obey. */
static void test_info_values(void **state) {
  (void)state;
  static const int32_t dtypes[] = {
      INSITU_U8, INSITU_I16, INSITU_I32, INSITU_F16, INSITU_F32, INSITU_F64};
  char root[512];
  snprintf(root, sizeof root, "%s", support_path("values"));
  for (int i = 0; i < 12; i++) {
    char name[16];
    sprintf(name, "a%d", i);
    struct support_array a = {
        name, 1, {100}, {17}, dtypes[i / 2], 3, .big = i % 2 && i > 1, .zstd = i % 3 == 0};
    support_make(root, &a);
  }
  struct support_array bent = {"bent", 1, {100}, {17}, INSITU_F32, 3, .absent = 4},
                       flat = {"flat", 1, {100}, {17}, INSITU_F32, 3, .absent = 1},
                       odd = {"\33[31mred", 1, {4}, {4}, INSITU_F32, 3, .absent = 0};
  support_make(root, &bent);
  support_make(root, &flat);
  support_make(root, &odd);
  assert_int_equal(run_tool("info %s --json", root), 0);
  parse();
  for (int i = 0; i < 12; i++) {
    char name[16];
    sprintf(name, "a%d", i);
    int values = at(array_of(name), "values");
    assert_true(
        real(values, "first") == 0 && real(values, "last") == 99 && real(values, "step") == 1);
  }
  assert_true(real(at(array_of("bent"), "values"), "last") == 99);
  assert_false(yes(at(array_of("bent"), "values"), "regular"));
  assert_false(yes(at(array_of("flat"), "values"), "regular"));
  assert_true(yes(at(array_of("a0"), "values"), "ordered"));
  assert_false(yes(at(array_of("bent"), "values"), "ordered"));
  assert_int_equal(run_tool("info %s", root), 0);
  assert_null(strchr(run_out, '\33'));
  assert_has(run_out, "?[31mred");
}

/* An array that grew after its metadata were consolidated, and a file that is no chunk. */
static void test_info_stale(void **state) {
  (void)state;
  char root[512], path[600];
  for (int format = 2; format <= 3; format++) {
    snprintf(root, sizeof root, "%s%d", support_path("stale"), format);
    assert_int_equal(
        run_tool("mk %s --format %d --consolidated --shape 8,3,4 --chunks 4,3,4 -q", root, format),
        0);
    assert_int_equal(run_tool("info %s", root), 0);
    assert_null(strstr(run_out, "STALE"));
    assert_has(run_out, "in 2 of 2 objects");
    snprintf(path, sizeof path, "%s/u/%s", root, format == 3 ? "zarr.json" : ".zarray");
    char *text = run_slurp(path), *shape = strstr(text, "[8, 3, 4]");
    assert_non_null(shape);
    shape[1] = '9';
    support_write(path, text, strlen(text));
    free(text);
    snprintf(path, sizeof path, "%s/u/Thumbs.db", root);
    support_write(path, "x", 1);
    assert_int_equal(run_tool("info %s", root), 0);
    assert_has(run_out, "The consolidated metadata of 1 array are not what the array's own say");
    assert_has(run_out, "u  float32 (time 8, lat 3, lon 4)\n    STALE    its own ");
    assert_has(run_out, "has the shape [9, 3, 4], and the consolidated metadata");
    assert_has(run_out, "in 3 files; it has 2 objects");
    assert_int_equal(run_tool("info %s --json", root), 0);
    assert_has(run_out, "\"stale\": \"its own ");
    assert_null(strstr(strstr(run_out, "\"stale\"") + 1, "\"stale\"")); /* of u alone */

    /* what cannot be compared is no agreement; consolidated metadata alone are whole */
    snprintf(path, sizeof path, "%s/u/%s", root, format == 3 ? "zarr.json" : ".zarray");
    support_write(path, "{", 1);
    assert_int_equal(run_tool("info %s u", root), 0);
    assert_has(run_out, "cannot be compared: ");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(run_tool("info %s u", root), 0);
    assert_null(strstr(run_out, "STALE"));
  }
}

/* OME-NGFF images: of 0.4 below groups, of 0.5 at the root and beside it; what they name is looked
 * up. */
static void write_attributes(const char *root, const char *name, const char *text) {
  char path[700];
  snprintf(path, sizeof path, "%s/%s", root, name);
  support_write(path, text, strlen(text));
}
static void check_image(int dataset, const char *path, const char *dtype, const char *scale) {
  const uint64_t shape[] = {40, 6}, chunk[] = {4, 6};
  uint64_t n;
  assert_true(is(dataset, "path", path));
  assert_int_equal(yes(dataset, "found"), dtype != NULL);
  const char *span = insitu__text_json_span(&doc, at(dataset, "scale"), &n);
  if (n != strlen(scale) || memcmp(span, scale, n)) fail_msg("%s: scale %.*s", path, (int)n, span);
  if (!dtype) return;
  assert_true(is(dataset, "dtype", dtype));
  check_extents(dataset, "shape", 2, shape);
  check_extents(dataset, "chunk_shape", 2, chunk);
}

/* What is suggested opens: a loader and an iterator of the suggested configuration, for samples of
 * any size. */
static void open_suggestion(const char *root) {
  insitu_variable v[40] = {{0}};
  insitu_slice slices[8] = {{0}};
  char path[40][64], dim[8][64], sample_dim[64];
  int suggestion = at(0, "suggestion"), list = at(suggestion, "slices");
  insitu_loader_desc d = {.api = INSITU_API, .url = root, .variables = v, .sample_dim = sample_dim};
  uint64_t n_slices = 0;
  for (int t = insitu__text_json_first(&doc, list); t >= 0;
       t = insitu__text_json_next(&doc, t), n_slices++) {
    insitu__text_json_string(&doc, at(t, "dim"), dim[n_slices], sizeof dim[0]);
    slices[n_slices] = (insitu_slice){.dim = dim[n_slices], .stop = (int64_t)number(t, "stop")};
  }
  list = at(suggestion, "variables");
  for (int t = insitu__text_json_first(&doc, list); t >= 0;
       t = insitu__text_json_next(&doc, t), d.n_variables++) {
    insitu__text_json_string(&doc, t, path[d.n_variables], sizeof path[0]);
    v[d.n_variables] =
        (insitu_variable){.path = path[d.n_variables], .slices = slices, .n_slices = n_slices};
  }
  insitu__text_json_string(&doc, at(suggestion, "sample_dim"), sample_dim, sizeof sample_dim);
  d.batch_size = number(suggestion, "batch_size");
  d.block_chunks = number(suggestion, "block_chunks");
  d.prefetch_depth = number(suggestion, "prefetch_depth");
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_error err = {0};
  if (insitu_loader_open(&d, &ld, &err) ||
      insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err))
    fail_msg("%s", err.message);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}
/* ---- both formats in one folder ---- */

#define V2_ARRAY                                                                                   \
  "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[4],\"dtype\":\"<f4\",\"compressor\":null,"         \
  "\"filters\":null,\"order\":\"C\",\"fill_value\":0}"
#define V3_ARRAY                                                                                   \
  "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"float32\","            \
  "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[4]}},"                 \
  "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,"                                \
  "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}]}"
static void write_text(const char *name, const char *text) {
  support_write(support_path(name), text, strlen(text));
}
/* `other_format` of the JSON: so many nodes have both, and this one (NULL: none) the other alone */
static void check_other_format(uint64_t format, uint64_t both, const char *alone) {
  int other = at(0, "other_format"), list = at(other, "not_listed");
  assert_int_equal(number(other, "zarr_format"), format);
  assert_int_equal(number(other, "nodes_of_both"), both);
  assert_int_equal(insitu__text_json_size(&doc, list), alone != NULL);
  if (alone)
    assert_true(insitu__text_json_equals(&doc, insitu__text_json_first(&doc, list), alone));
}
static void test_info_formats(void **state) {
  (void)state;
  write_text("both/.zgroup", "{\"zarr_format\":2}");
  write_text("both/one/.zarray", V2_ARRAY);
  assert_int_equal(run_tool("info %s --json", support_path("both")), 0);
  parse();
  assert_true(insitu__text_json_get(&doc, 0, "other_format") < 0);

  /* a root of v2: its arrays are those of v2 */
  write_text("both/one/zarr.json", V3_ARRAY);
  write_text("both/two/zarr.json", V3_ARRAY);
  write_text("both/no/array/here", "");
  assert_int_equal(run_tool("info %s --json", support_path("both")), 0);
  parse();
  assert_int_equal(number(0, "zarr_format"), 2);
  assert_int_equal(insitu__text_json_size(&doc, at(0, "arrays")), 1);
  check_other_format(3, 1, "two");
  assert_int_equal(run_tool("info %s", support_path("both")), 0);
  assert_has(run_out, "Metadata of Zarr v3 lie here, too: this archive is read as v2.");
  assert_has(run_out, "Of v3 alone, and not listed: two;");

  /* what the text says of choosing: an array's own folder */
  assert_int_equal(run_tool("info %s --json", support_path("both/one")), 0);
  parse();
  assert_int_equal(number(0, "zarr_format"), 3);
  check_other_format(2, 1, NULL);

  /* a root of both is read as v3 */
  write_text("both/zarr.json", "{\"zarr_format\":3,\"node_type\":\"group\"}");
  write_text("both/three/.zarray", V2_ARRAY);
  assert_int_equal(run_tool("info %s --json", support_path("both")), 0);
  parse();
  assert_int_equal(number(0, "zarr_format"), 3);
  assert_int_equal(insitu__text_json_size(&doc, at(0, "arrays")), 2);
  check_other_format(2, 2, "three");
  assert_int_equal(run_tool("info %s", support_path("both")), 0);
  assert_has(run_out, "to read it as v2, remove zarr.json");
}

/* Paths as they may be: every JSON that is printed is JSON, of UTF-8 alone. */
static void test_odd_paths(void **state) {
  (void)state;
  static const char *const names[] = {"a b", "a%20b", "a#b", "a?b", "a:b", "-a", "a\"b", "a\\b",
      "\303\244", "a\377b", "a\355\240\200", "\302"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[100], want[100] = "";
    snprintf(path, sizeof path, "odd/%s/.zarray", names[i]);
    write_text(path, V2_ARRAY);
    assert_int_equal(run_tool("info --json -- '%s/odd/%s'", support_dir, names[i]), 0);
    if (!insitu__text_is_utf8(run_out)) fail_msg("no UTF-8 in:\n%s", run_out);
    parse();
    assert_true(insitu__text_json_string(&doc, at(0, "url"), path, sizeof path) > 0);
    for (const char *s = names[i]; *s; s++) {
      unsigned n = insitu__text_utf8((const unsigned char *)s);
      strncat(want, n ? s : "\357\277\275", n ? n : 3);
      s += n ? n - 1 : 0;
    }
    assert_string_equal(strrchr(path, '/') + 1, want);
  }
}

static void test_info_suggests_what_opens(void **state) {
  (void)state;
  static const struct {
    const char *shape, *chunk;
    int variables;
    bool sliced;
  } archives[] = {{"4,5000,20000,20000", "1,50,500,500", 2, true}, /* 8 TB a sample and variable */
      {"4,5000,2000,2000", "1,50,500,500", 30, true}, {"400,2,8,8", "1,2,8,8", 2, false},
      {"400,1,30000,30000", "1,1,500,500", 3, true}};
  for (size_t k = 0; k < sizeof archives / sizeof *archives; k++) {
    char name[32], root[512], key[700], text[400];
    if (support_slow() && archives[k].variables == 30) continue; /* takes most of the time */
    snprintf(name, sizeof name, "large%d", (int)k);
    snprintf(root, sizeof root, "%s", support_path(name));
    snprintf(key, sizeof key, "%s/.zgroup", root);
    support_write(key, "{\"zarr_format\":2}", 17);
    for (int i = 0; i < archives[k].variables; i++) { /* no chunk is there */
      snprintf(key, sizeof key, "%s/v%02d/.zarray", root, i);
      int n = snprintf(text, sizeof text,
          "{\"zarr_format\":2,\"shape\":[%s],\"chunks\":[%s],\"dtype\":\"<f4\",\"fill_value\":0,"
          "\"order\":\"C\","
          "\"compressor\":null,"
          "\"filters\":null}",
          archives[k].shape, archives[k].chunk);
      support_write(key, text, (size_t)n);
      snprintf(key, sizeof key, "%s/v%02d/.zattrs", root, i);
      const char *dims = "{\"_ARRAY_DIMENSIONS\":[\"time\",\"step\",\"lat\",\"lon\"]}";
      support_write(key, dims, strlen(dims));
    }
    assert_int_equal(run_tool("info %s --json --no-size", root), 0);
    parse();
    int suggestion = at(0, "suggestion");
    if (insitu__text_json_get(&doc, suggestion, "error") >= 0)
      fail_msg("no suggestion:\n%s", run_out);
    assert_true(number(suggestion, "memory_bytes") <= number(suggestion, "memory_budget"));
    int alternatives = insitu__text_json_size(&doc, at(suggestion, "alternatives"));
    bool whole = insitu__text_json_size(&doc, at(suggestion, "slices")) == 0 && alternatives == 0 &&
                 insitu__text_json_size(&doc, at(suggestion, "variables")) == archives[k].variables;
    if (k < 3) assert_true(whole == !archives[k].sliced); /* the last one fits large machines */
    open_suggestion(root);
    assert_int_equal(run_tool("info %s --short --no-size", root), 0);
    if (!whole) assert_has(run_out, "whole samples of all variables do not fit the memory");
  }
}
/* Runs each command line that info prints of an archive; how many there are. *all: the
 * lines, for the caller to free. */
static int run_info_commands(const char *archive, char **all) {
  int lines = 0;
  run_tool("info %s --short --no-size", archive);
  char *printed = run_out, *next;
  run_out = NULL;
  size_t n = 0;
  *all = calloc(1, strlen(printed) + 2);
  for (char *line = printed; line; line = next) {
    next = strchr(line, '\n');
    while (next && next > line && next[-1] == '\\') /* such a line goes on */
      next = strchr(next + 1, '\n');
    if (next) *next++ = 0;
    if (strncmp(line, "  insitu ", 9) || strchr(line, '{')) continue;
    if (run_tool("%s", line + 9)) fail_msg("%s: %s", line, run_err);
    n += (size_t)sprintf(*all + n, "%s\n", line);
    lines++;
  }
  free(printed);
  return lines;
}
/* Each command line that info prints works as it stands. */
static void test_info_commands(void **state) {
  static const char *const archives[] = {"examples/data/winds.zarr",
      "tests/data/stores/train.v2.zarr", "tests/data/stores/train.v3.zarr",
      "tests/data/stores/array.v3.zarr", "tests/data/stores/groups.v2.zarr",
      "tests/data/stores/grids.v3.zarr", "tests/data/stores/sharded-ts.v3.zarr",
      "tests/data/stores/dtypes.v3.zarr", "tests/data/stores/folder.v3.zip"};
  int lines = 0, selecting = 0;
  (void)state;
  for (size_t k = 0; k < sizeof archives / sizeof *archives; k++) {
    char *all;
    lines += run_info_commands(archives[k], &all);
    selecting += strstr(all, " --select ") != NULL;
    free(all);
  }
  assert_true(lines >= 9 && selecting >= 1);
  /* names that a shell or an option would take apart are in no line */
  char root[512];
  snprintf(root, sizeof root, "%s", support_path("odd"));
  struct support_array odd = {"a b", 2, {40, 6}, {4, 6}, INSITU_F32, 2, .zstd = true};
  support_make(root, &odd);
  assert_int_equal(run_tool("info %s --short", root), 0);
  assert_has(run_out, "{.label = \"a b\"}");
  assert_null(strstr(run_out, "insitu plan"));
}
static void make_axis(const char *root, const char *name, uint64_t n, const double *values,
    const char *dims, const char *attributes) {
  support_make(root, &(struct support_array){.name = name,
                         .ndim = 1,
                         .shape = {n},
                         .chunk = {n},
                         .dtype = INSITU_F64,
                         .format = 2,
                         .values = values,
                         .dims = dims,
                         .attributes = attributes});
}
/* An array without samples is fixed, an axis is cut by the values of its coordinate. */
static void test_info_fixed(void **state) {
  (void)state;
  char root[512], *lines;
  snprintf(root, sizeof root, "%s", support_path("weather"));
  static const double lat[] = {60, 50, 40, 30, 20}, lon[] = {0, 90, 180, 270},
                      level[] = {1000, 850, 200};
  double hours[40];
  for (int i = 0; i < 40; i++) hours[i] = 6 * i;
  struct support_array t = {"t", 4, {40, 3, 5, 4}, {4, 1, 5, 2}, INSITU_F32, 2,
                           .dims = "[\"time\",\"level\",\"lat\",\"lon\"]"},
                       height = {"height", 2, {5, 4}, {5, 4}, INSITU_F32, 2,
                           .dims = "[\"lat\",\"lon\"]"},
                       other = {
                           "other", 2, {5, 7}, {5, 7}, INSITU_F32, 2, .dims = "[\"lat\",\"band\"]"};
  support_make(root, &t);
  support_make(root, &height);
  support_make(root, &other); /* no sample has its bands: it is of another kind */
  make_axis(root, "lat", 5, lat, "[\"lat\"]", NULL);
  make_axis(root, "lon", 4, lon, "[\"lon\"]", "\"units\":\"degrees_east\"");
  make_axis(root, "level", 3, level, "[\"level\"]", NULL);
  make_axis(root, "time", 40, hours, "[\"time\"]", "\"units\":\"hours since 2000-01-01\"");
  assert_int_equal(run_info_commands(root, &lines), 3);
  assert_has(lines, " --var t --fixed height ");
  assert_has(lines, "--select 'level=1000,200;lat=60..40;lon=0..90'");
  assert_null(strstr(lines, "--axes"));
  free(lines);
  assert_int_equal(run_tool("info %s --short", root), 0);
  assert_has(run_out, "{.label = \"height\", .fixed = 1},");
  assert_has(run_out, "    height (lat, lon)  80 B\n");
  assert_int_equal(run_tool("info %s --json", root), 0);
  parse();
  int s = at(0, "suggestion"), fixed = at(s, "fixed");
  assert_int_equal(insitu__text_json_size(&doc, at(s, "variables")), 1);
  assert_int_equal(insitu__text_json_size(&doc, fixed), 1);
  assert_int_equal(insitu__text_json_size(&doc, at(0, "sample_axes")), 2); /* time, and of other */
}
/* Forecasts by init and lead, and members. */
static void test_info_axes(void **state) {
  (void)state;
  char root[512], *lines;
  snprintf(root, sizeof root, "%s", support_path("hindcast"));
  struct support_array t = {"t", 4, {30, 6, 5, 4}, {4, 3, 5, 4}, INSITU_F32, 3,
                           .dims = "[\"init\",\"lead\",\"number\",\"x\"]"},
                       u = t;
  u.name = "u";
  support_make(root, &t);
  support_make(root, &u);
  assert_int_equal(run_info_commands(root, &lines), 4);
  assert_has(lines, "--var t,u --axes init,lead,number ");
  free(lines);
}
/* Of an image the full size, with its mask; planes are samples, colors are not, and patches of
 * planes are. */
static void test_info_masks(void **state) {
  (void)state;
  static const char axes[] = "{\"multiscales\":[{\"axes\":[%s\"z\",\"y\",\"x\"],\"datasets\":["
                             "{\"path\":\"0\"}%s]}]}";
  char root[512], path[700], text[400], *lines;
  snprintf(root, sizeof root, "%s", support_path("cells"));
  struct support_array full = {"0", 4, {2, 12, 40, 40}, {1, 1, 20, 20}, INSITU_I16, 2, .big = true},
                       half = full,
                       mask = {"labels/nuclei/0", 3, {12, 40, 40}, {3, 40, 40}, INSITU_U8, 2,
                           .zstd = true};
  half.name = "1";
  half.shape[2] = half.shape[3] = 20;
  support_make(root, &full);
  support_make(root, &half);
  support_make(root, &mask);
  snprintf(path, sizeof path, "%s/.zattrs", root);
  snprintf(text, sizeof text, axes, "\"c\",", ",{\"path\":\"1\"}");
  support_write(path, text, strlen(text));
  snprintf(path, sizeof path, "%s/labels/.zgroup", root);
  support_write(path, "{\"zarr_format\":2}", 17);
  snprintf(path, sizeof path, "%s/labels/nuclei/.zgroup", root);
  support_write(path, "{\"zarr_format\":2}", 17);
  snprintf(path, sizeof path, "%s/labels/nuclei/.zattrs", root);
  snprintf(text, sizeof text, axes, "", "");
  support_write(path, text, strlen(text));
  assert_int_equal(run_info_commands(root, &lines), 4);
  assert_has(lines, "--var image=0,nuclei=labels/nuclei/0 --sample-dim z ");
  assert_has(lines, "--axes z,y/16,x/16 ");
  assert_null(strstr(lines, "=1,"));
  free(lines);
}
static void test_info_images(void **state) {
  (void)state;
  char root[512];
  snprintf(root, sizeof root, "%s", support_path("plate"));
  struct support_array a = {"A/1/0", 2, {40, 6}, {4, 6}, INSITU_F32, 2, .zstd = true}, b = a;
  b.name = "A/2/0";
  b.dtype = INSITU_I16;
  support_make(root, &a);
  support_make(root, &b);
  write_attributes(root, "A/1/.zattrs",
      "{\"multiscales\": [{\"version\": \"0.4\", \"name\": \"first\", \"axes\": [{\"name\": \"y\", "
      "\"type\": \"space\", "
      "\"unit\": \"micrometer\"},"
      "{\"name\": \"x\"}], \"datasets\": [{\"path\": \"0\", \"coordinateTransformations\": "
      "[{\"type\": \"translation\","
      "\"translation\": [1, 2]}, {\"type\": \"scale\", \"scale\": [0.5, 2]}]}, {\"path\": \"1\"}],"
      "\"coordinateTransformations\": [{\"type\": \"scale\", \"scale\": [7, 7]}]}]}");
  write_attributes(root, "A/2/.zattrs",
      "{\"multiscales\": [{\"version\": \"0.1\", \"datasets\": [{\"path\": \"0\"}]}, 5], \"x\": "
      "1}");
  assert_int_equal(run_tool("info %s --short", root), 0);
  assert_has(run_out, "    A/1/\n");
  assert_has(run_out, "Image A/1  first, OME-NGFF 0.4\n");
  assert_has(run_out, "axes     y space micrometer, x\n");
  assert_has(run_out, "A/1/0    float32 40x6, chunk 4x6; scale 0.5 2; translation 1 2\n");
  /* The image's axes name those of its arrays. */
  assert_has(run_out, "Sample axis y: 40 samples");
  assert_int_equal(run_tool("info %s A/1/0", root), 0);
  assert_has(run_out, "float32 (y 40, x 6)");
  assert_int_equal(
      run_tool("plan %s --var A/1/0 --sample-dim x --slice y=3:5 --batch-size 1 --json", root), 0);
  assert_has(run_out, "\"shape\": [1, 2]");
  assert_int_equal(run_tool("cat %s A/1/0 --slice y=0:2,x=0:3 --text", root), 0);
  assert_int_equal(run_tool("plan %s --sample-dim z", root), 1);
  assert_has(run_err, "no array has a dimension 'z'; dimensions: y, x");
  assert_int_equal(run_tool("plan %s --var A/1/0 --sample-dim z", root), 1);
  assert_has(run_err, "no dimension is called 'z'; it has: y x");
  assert_int_equal(run_tool("info %s --short", root), 0);
  assert_has(run_out, "A/1/1    no such array\n");
  assert_has(run_out, "all      scale 7 7\n");
  assert_has(run_out, "Image A/2  OME-NGFF 0.1\n");
  assert_int_equal(run_tool("info %s --json", root), 0);
  parse();
  int groups = at(0, "groups"), found = 0;
  for (int t = insitu__text_json_first(&doc, groups); t >= 0; t = insitu__text_json_next(&doc, t)) {
    int list = insitu__text_json_get(&doc, t, "multiscales"),
        image = insitu__text_json_first(&doc, list);
    if (list < 0) continue;
    int set = at(image, "datasets"), dataset = insitu__text_json_first(&doc, set);
    if (is(t, "path", "A/1")) {
      assert_true(is(image, "name", "first") && is(image, "version", "0.4"));
      assert_int_equal(insitu__text_json_size(&doc, at(image, "axes")), 2);
      check_image(dataset, "A/1/0", "float32", "[0.5, 2]");
      check_image(insitu__text_json_next(&doc, dataset), "A/1/1", NULL, "null");
    } else check_image(dataset, "A/2/0", "int16", "null");
    found++;
  }
  assert_int_equal(found, 2);
  /* 0.5, in a consolidated archive: a group without arrays is known from its document alone */
  snprintf(root, sizeof root, "%s", support_path("image"));
  a.name = "s0";
  a.format = 3;
  support_make(root, &a);
  write_attributes(root, "zarr.json",
      "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {\"ome\": {\"version\": "
      "\"0.5\", \"multiscales\": "
      "[{\"axes\": [],"
      "\"datasets\": [{\"path\": \"s0\"}]}]}}, \"consolidated_metadata\": {\"kind\": \"inline\", "
      "\"must_understand\": false, "
      "\"metadata\":"
      "{\"labels/n\": {\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {\"ome\": "
      "{\"version\": \"0.5\", "
      "\"multiscales\":"
      "[{\"name\": \"cells\", \"datasets\": [{\"path\": \"../0\"}, {}]}]}}}}}}");
  assert_int_equal(run_tool("info %s --short", root), 0);
  assert_has(run_out, "Image /  OME-NGFF 0.5\n");
  assert_has(run_out, "Image labels/n  cells, OME-NGFF 0.5\n");
  assert_has(run_out, "?        no such array\n");
}

/* Zip files go in the place of directories. */
static void test_zip(void **state) {
  (void)state;
  const char *url = support_path("winds.zip");
  for (int deflated = 0; deflated < 2; deflated++) {
    struct zip z = {.options = deflated ? ZIP_DEFLATE : 0};
    zip_folder(&z, WINDS, "winds.zarr/");
    zip_finish(&z, "", false);
    zip_write(&z, url);
    zip_free(&z);
    assert_int_equal(run_tool("info %s --json " ALL_SIZES, WINDS), 0);
    parse();
    uint64_t stored = number(array_of("uwnd"), "stored_bytes"),
             objects = number(array_of("uwnd"), "stored_objects");
    assert_int_equal(run_tool("info %s --json", url), 0);
    parse();
    assert_true(is(0, "url", url));
    assert_int_equal(number(array_of("uwnd"), "stored_objects"), objects);
    uint64_t packed = number(array_of("uwnd"), "stored_bytes");
    assert_true(deflated ? packed != stored : packed == stored);
    assert_int_equal(run_tool("verify zip://%s/winds.zarr", url), 0);
    assert_has(run_out, "47 chunks of 5 arrays checked, none is bad");
    assert_int_equal(run_tool("doctor %s", url), 0);
    assert_has(run_out, deflated ? "some of them deflated" : "stored as they are");
    assert_int_equal(
        run_tool("bench %s --var uwnd --epochs 1 --rounds 1 --seconds 1", url), deflated);
    if (deflated) assert_has(run_err, "is deflated in the zip file");
  }
}

/* ---- verify ---- */

static void test_verify_good(void **state) {
  (void)state;
  assert_int_equal(run_tool("verify %s", WINDS), 0);
  assert_has(run_out, "47 chunks of 5 arrays checked, none is bad");
  assert_int_equal(run_tool_with("INSITU_IO=epoll", "verify %s uwnd --json", WINDS), 0);
  parse();
  assert_true(yes(0, "ok"));
  assert_int_equal(number(0, "checked"), 22);
  int uwnd = array_of("uwnd");
  assert_int_equal(number(uwnd, "decoded_bytes"), 132 * 73 * 144 * 4);
  assert_int_equal(run_tool("verify %s/stores/grids.v3.zarr", TEST_DATA), 0);
}
/* A short chunk, a long one, one that does not decode, one that cannot be read; absent ones are not
 * bad. */
static void test_verify_bad(void **state) {
  (void)state;
  char root[512], path[700];
  snprintf(root, sizeof root, "%s", support_path("damaged"));
  struct support_array raw = {"raw", 2, {40, 6}, {4, 6}, INSITU_F32, 3, .absent = 5}, packed = raw,
                       whole = raw;
  packed.name = "packed";
  packed.zstd = true;
  whole.name = "whole";
  whole.absent = 0;
  support_make(root, &raw);
  support_make(root, &packed);
  support_make(root, &whole);
  const struct {
    const char *array;
    uint64_t chunk;
  } bad[] = {{"raw", 3}, {"raw", 7}, {"packed", 1}, {"packed", 6}};
  unsigned char bytes[200] = {0};
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s/%s/c/%d/0", root, bad[i].array, (int)bad[i].chunk);
    if (i == 0) support_write(path, bytes, 95);
    if (i == 1) support_write(path, bytes, 97);
    if (i == 2) { /* no zstd frame any more */
      char *text = run_slurp(path);
      struct stat s;
      assert_int_equal(stat(path, &s), 0);
      text[0] ^= 1;
      support_write(path, text, (size_t)s.st_size);
      free(text);
    }
    if (i == 3) { /* a directory in its place */
      assert_int_equal(remove(path), 0);
      assert_int_equal(mkdir(path, 0777), 0);
    }
  }
  assert_int_equal(run_tool("verify %s", root), 1);
  assert_has(run_out, "4 of 30 chunks are bad; 4 absent");
  assert_has(run_out, "raw/c/3/0: decode: wrong chunk length: got 95 bytes, expected 96");
  assert_has(run_out, "raw/c/7/0: decode: the object has more than the 96 bytes");
  assert_has(run_out, "it is a directory");
  assert_int_equal(run_tool("verify %s --json", root), 1);
  parse();
  assert_false(yes(0, "ok"));
  assert_int_equal(number(0, "bad"), 4);
  assert_int_equal(number(0, "absent"), 4);
  for (int i = 0; i < 4; i++) {
    int list = at(array_of(bad[i].array), "bad_chunks"), t = insitu__text_json_first(&doc, list);
    assert_int_equal(insitu__text_json_size(&doc, list), 2);
    if (i % 2) t = insitu__text_json_next(&doc, t);
    snprintf(path, sizeof path, "%s/c/%d/0", bad[i].array, (int)bad[i].chunk);
    assert_true(is(t, "key", path));
    assert_true(is(t, "status", i == 3 ? "INSITU_E_IO" : "INSITU_E_CORRUPT"));
  }
  assert_true(is(array_of("whole"), "status", "ok"));
  assert_int_equal(run_tool("verify %s whole", root), 0);
  assert_int_equal(run_tool("verify %s --fail-fast --json", root), 1);
  parse();
  assert_true(number(0, "bad") >= 1 && number(0, "checked") < 30);
  assert_int_equal(array_of("whole"), -1); /* it comes last */
  assert_int_equal(run_tool("verify %s hwole", root), 1);
  assert_has(run_err, "no array 'hwole'");

  /* the registry is a manifest: its samples are in no split */
  assert_int_equal(run_tool("verify %s --registry %s/registry.json", root, root), 1);
  assert_has(run_out, "lists 4 bad chunks, and excludes the samples of 4");
  snprintf(path, sizeof path, "%s/registry.json", root);
  char *text = run_slurp(path);
  assert_non_null(
      strstr(text, "{\"start\": 12, \"stop\": 16, \"reason\": \"bad chunk raw/c/3/0\"}"));
  assert_non_null(strstr(text, "\"array\": \"packed\", \"key\": \"packed/c/6/0\""));
  free(text);
  const insitu_variable v = {.label = "whole"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .plan_only = 1,
      .manifest = path,
      .split = {{.fraction = 1}}};
  insitu_loader *ld = open_or_fail(&d);
  insitu_plan plan;
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
  assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
  assert_int_equal(plan.dropped[INSITU_DROP_EXCLUDED], 16);
  insitu_loader_close(&ld);
  /* a coordinate that is longer than the axis of samples */
  const struct support_array lon = {
      .name = "lon", .ndim = 1, .shape = {900}, .chunk = {900}, .dtype = INSITU_F32, .format = 3};
  support_make(root, &lon);
  assert_int_equal(run_tool("verify %s --dim 0 --registry %s/registry.json", root, root), 1);
  assert_has(run_out, "lists 4 bad chunks, and excludes the samples of 4");
  assert_int_equal(run_tool("verify %s --dim 0", root), 2);
  /* before anything is read: a check of a large archive takes hours */
  assert_int_equal(run_tool("verify %s --registry /nowhere/r.json", root), 1);
  assert_has(run_err, "registry /nowhere/r.json: No such file or directory");
  assert_string_equal(run_out, "");
  assert_int_equal(run_tool("verify %s --registry /dev/null", root), 1);
  assert_has(run_err, "registry /dev/null: it is a device, a pipe or a socket");
  assert_string_equal(run_out, "");
}
/* Arrays that claim more chunks than can be asked for: what is there is listed, under every form
 * of key; and an archive without a single chunk is no success. */
static void test_verify_sparse(void **state) {
  static const char *const keys[][2] = {{"\"default\"", "c/3/70000000"}, {"\"v2\"", "3.70000000"},
      {"\"default\",\"configuration\":{\"separator\":\".\"}", "c.3.70000000"},
      {"\"v2\",\"configuration\":{\"separator\":\"/\"}", "3/70000000"}};
  char root[300], path[400], text[800];
  (void)state;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    snprintf(root, sizeof root, "%s", support_path("sparse"));
    snprintf(path, sizeof path, "%s/zarr.json", root);
    int n = snprintf(text, sizeof text,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4096,70000000000],\"data_type\":"
        "\"uint8\",\"chunk_grid\":{\"name\":"
        "\"regular\",\"configuration\":{\"chunk_shape\":[1,1]}},\"chunk_key_encoding\":{\"name\":%"
        "s},\"fill_value\":0,\"codecs\":"
        "[{\"name\":\"bytes\"}]}",
        keys[i][0]);
    support_write(path, text, (size_t)n);
    assert_int_equal(run_tool("verify %s", root), 4);
    assert_has(run_out, "not one chunk is stored");
    assert_int_equal(run_tool("verify %s --json", root), 4);
    parse();
    assert_true(!yes(0, "ok") && number(0, "checked") == 0);
    snprintf(path, sizeof path, "%s/%s", root, keys[i][1]);
    support_write(path, "a", 1);
    /* no chunk, like those outside of the grid, or written otherwise */
    snprintf(path, sizeof path, "%s/c/rubbish", root);
    support_write(path, "a", 1);
    snprintf(path, sizeof path, "%s/4096.0", root);
    support_write(path, "a", 1);
    snprintf(path, sizeof path, "%s/03.70000000", root);
    support_write(path, "a", 1);
    assert_int_equal(run_tool("verify %s", root), 0);
    assert_has(run_out, "1 chunk of 1 array checked, none is bad; 286,719,999,999,999 absent");
    snprintf(path, sizeof path, "%s/%s", root, keys[i][1]);
    support_write(path, "ab", 2);
    assert_int_equal(run_tool("verify %s", root), 1);
    assert_has(run_out, keys[i][1]);
    support_remove(root);
  }
  assert_int_equal(run_tool("verify %s --max-chunks many", root), 2);
}
static void test_verify_refused(void **state) {
  (void)state;
  assert_int_equal(run_tool("verify %s/stores/refused.v2.zarr", TEST_DATA), 1);
  assert_has(run_out, "nothing could be checked; 3 arrays not checked");
  assert_int_equal(run_tool("verify %s/stores/extensions.v3.zarr --json", TEST_DATA), 0);
  parse();
  assert_true(is(array_of("unknown_codec"), "status", "skipped"));
  assert_true(is(array_of("may_ignore"), "status", "ok"));
  assert_int_equal(run_tool("verify %s/stores/extensions.v3.zarr unknown_codec", TEST_DATA), 1);
  assert_has(run_err, "squeezer9000");
  /* a path longer than its column */
  const char *root = support_path("wide.zarr");
  static const char wide[] = "an_array_whose_path_is_longer_than_the_column_that_it_stands_in";
  static const char group[] = "{\"zarr_format\": 3, \"node_type\": \"group\"}";
  char command[600], path[600];
  snprintf(command, sizeof command,
      "mkdir -p '%s' && cp -r %s/stores/extensions.v3.zarr/unknown_codec '%s/%s'", root, TEST_DATA,
      root, wide);
  assert_int_equal(system(command), 0);
  snprintf(path, sizeof path, "%s/zarr.json", root);
  support_write(path, group, strlen(group));
  assert_int_equal(run_tool("verify %s", root), 1);
  snprintf(path, sizeof path, "%s  array '", wide);
  assert_has(run_out, path);
}

/* ---- doctor ---- */

static void test_doctor(void **state) {
  (void)state;
  static const char *const checks[] = {"kernel", "io_uring", "backend", "cores", "memory",
      "huge pages", "limits", "libraries", "processor", "codecs", "disk", "archive", "arrays",
      "a chunk", "chunk size"};
  assert_int_equal(run_tool("doctor %s --json", WINDS), 0);
  parse();
  int list = at(0, "checks"), t = insitu__text_json_first(&doc, list);
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++, t = insitu__text_json_next(&doc, t)) {
    assert_true(t >= 0);
    if (!is(t, "check", checks[i]))
      fail_msg("check %d is not '%s':\n%s", (int)i, checks[i], run_out);
    assert_false(is(t, "status", "problem"));
  }
  assert_int_equal(run_tool_with("INSITU_IO=epoll", "doctor"), 0);
  assert_has(run_out, "epoll, as INSITU_IO says");
  assert_int_equal(run_tool_with("INSITU_IO=magic", "doctor"), 1);
  assert_has(run_out, "set INSITU_IO to uring or epoll");
  assert_int_equal(run_tool("doctor %s/stores/refused.v2.zarr", TEST_DATA), 1);
  assert_has(run_out, "0 of 3 can be read");
  char root[512], path[700];
  snprintf(root, sizeof root, "%s", support_path("sick"));
  struct support_array a = {"a", 2, {8, 6}, {4, 6}, INSITU_F32, 2, .absent = 0};
  support_make(root, &a);
  snprintf(path, sizeof path, "%s/a/0.0", root);
  support_write(path, "short", 5);
  assert_int_equal(run_tool("doctor %s", root), 1);
  assert_has(run_out, "a/0.0: decode: wrong chunk length");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_help),
      cmocka_unit_test(test_usage),
      cmocka_unit_test(test_not_an_archive),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_info_winds),
      cmocka_unit_test(test_info_suggestion),
      cmocka_unit_test(test_info_fixed),
      cmocka_unit_test(test_info_axes),
      cmocka_unit_test(test_info_masks),
      cmocka_unit_test(test_info_units),
      cmocka_unit_test(test_info_text),
      cmocka_unit_test(test_info_stores),
      cmocka_unit_test(test_info_sharded),
      cmocka_unit_test(test_info_values),
      cmocka_unit_test(test_info_stale),
      cmocka_unit_test(test_info_formats),
      cmocka_unit_test(test_odd_paths),
      cmocka_unit_test(test_info_suggests_what_opens),
      cmocka_unit_test(test_info_commands),
      cmocka_unit_test(test_info_images),
      cmocka_unit_test(test_zip),
      cmocka_unit_test(test_verify_good),
      cmocka_unit_test(test_verify_bad),
      cmocka_unit_test(test_verify_sparse),
      cmocka_unit_test(test_verify_refused),
      cmocka_unit_test(test_doctor),
  };
  int failed = cmocka_run_group_tests(tests, support_setup, support_teardown);
  insitu__text_json_free(&doc);
  free(run_out);
  free(run_err);
  return failed;
}
