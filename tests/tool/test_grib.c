/* GRIB messages as chunks: files that eccodes writes are indexed by the command, and every value is
 * read back through the index, bit for bit what eccodes gives; the configurations of kerchunk's and
 * gribberish's codecs; what is damaged, or another file's inventory, is refused by name. */
#include "server.h"
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "readback.h"
#include "run_tool.h"
#include "index_reader.h"

#ifdef INSITU_WITH_ECCODES
enum { NI = 20, NJ = 11, POINTS = NI * NJ, TIMES = 6, LEVELS = 3, MOST = TIMES * LEVELS };

struct grib {
  const char *name, *level_type;
  long level, date, clock, step, member; /* member -1: none */
  bool missing, south_up;
};
static float written[MOST][POINTS]; /* as eccodes decodes them */
static size_t offset[64], n_written;

/* Appends a message, and keeps what it decodes to. */
static void grib_append(FILE *f, const struct grib *g, float *decoded) {
  double values[POINTS];
  const void *bytes;
  size_t n, count = POINTS;
  codes_handle *h = codes_grib_handle_new_from_samples(NULL, "regular_ll_sfc_grib2");
  assert_non_null(h);
  const struct {
    const char *key;
    double degrees;
  } corner[] = {{"latitudeOfFirstGridPointInDegrees", g->south_up ? -50 : 50},
      {"latitudeOfLastGridPointInDegrees", g->south_up ? 50 : -50},
      {"longitudeOfFirstGridPointInDegrees", 0}, {"longitudeOfLastGridPointInDegrees", 342},
      {"iDirectionIncrementInDegrees", 18}, {"jDirectionIncrementInDegrees", 10}};
  codes_set_long(h, "Ni", NI);
  codes_set_long(h, "Nj", NJ);
  for (size_t i = 0; i < sizeof corner / sizeof *corner; i++)
    codes_set_double(h, corner[i].key, corner[i].degrees);
  codes_set_long(h, "jScansPositively", g->south_up);
  if (g->member >= 0) {
    codes_set_long(h, "productDefinitionTemplateNumber", 1);
    codes_set_long(h, "perturbationNumber", g->member);
  }
  n = strlen(g->level_type);
  codes_set_string(h, "typeOfLevel", g->level_type, &n);
  codes_set_long(h, "level", g->level);
  n = strlen(g->name);
  assert_int_equal(codes_set_string(h, "shortName", g->name, &n), 0);
  codes_set_long(h, "dataDate", g->date);
  codes_set_long(h, "dataTime", g->clock);
  codes_set_long(h, "step", g->step);
  codes_set_long(h, "bitsPerValue", 16);
  for (int i = 0; i < POINTS; i++)
    values[i] = g->missing && i % 7 == 0 ? 9999 : 250 + (double)support_below(6000) / 100;
  if (g->missing) {
    codes_set_long(h, "bitmapPresent", 1);
    codes_set_double(h, "missingValue", 9999);
  }
  assert_int_equal(codes_set_double_array(h, "values", values, POINTS), 0);
  assert_int_equal(codes_get_double_array(h, "values", values, &count), 0);
  for (int i = 0; i < POINTS; i++) decoded[i] = g->missing && i % 7 == 0 ? NAN : (float)values[i];
  assert_int_equal(codes_get_message(h, &bytes, &n), 0);
  offset[n_written++] = (size_t)ftell(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  codes_handle_delete(h);
}
static FILE *grib_create(char path[300], const char *name) {
  snprintf(path, 300, "%s", support_path(name));
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  n_written = 0;
  return f;
}
static void grib_read(const char *index, const char *path, const void *want, size_t n) {
  index_expect_at(&(insitu_loader_desc){.url = index}, path, want, n);
}

/* Analyses at six times on three levels, with a field on the ground between. */
static void test_analyses(void **state) {
  static const long levels[] = {500, 850, 1000};
  static float ground[TIMES][POINTS];
  static double hours[TIMES];
  const double north[NJ] = {50, 40, 30, 20, 10, 0, -10, -20, -30, -40, -50};
  char path[300], index[300], inventory[310];
  FILE *f = grib_create(path, "a.grib2");
  (void)state;
  for (int t = 0; t < TIMES; t++) {
    hours[t] = 490896 + 6 * t; /* of 2026-01-01 */
    struct grib g = {"t", "isobaricInhPa", 0, 20260101 + t / 4, t % 4 * 600, 0, -1, false, false};
    for (int k = LEVELS; k-- > 0;) {
      g.level = levels[k];
      g.missing = k == 1;
      grib_append(f, &g, written[t * LEVELS + k]);
    }
    struct grib ground_field = g;
    ground_field.name = "2t";
    ground_field.level_type = "heightAboveGround";
    ground_field.level = 2;
    ground_field.missing = false;
    grib_append(f, &ground_field, ground[t]);
  }
  fclose(f);
  snprintf(index, sizeof index, "%s", support_path("a.insitu"));
  for (int with = 0; with < 2; with++) {
    assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 0);
    assert_string_equal(run_err, "");
    grib_read(index, "t", written, sizeof written);
    grib_read(index, "t2m", ground, sizeof ground);
    grib_read(index, "time", hours, sizeof hours);
    grib_read(index, "latitude", north, sizeof north);
    grib_read(index, "isobaricInhPa", (const double[]){500, 850, 1000}, 24);
    /* again, with an inventory as NOAA has it */
    snprintf(inventory, sizeof inventory, "%s.idx", path);
    f = fopen(inventory, "w");
    for (size_t i = 0; i < n_written; i++)
      fprintf(f, "%zu:%zu:d=2026010100:TMP:850 mb:anl:\n", i + 1, offset[i]);
    fclose(f);
  }
  f = fopen(inventory, "w"); /* another file's */
  fprintf(f, "1:0:d=2026010100:TMP:850 mb:anl:\n2:333:d=2026010100:TMP:850 mb:anl:\n");
  fclose(f);
  assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 1);
  assert_has(run_err, "no message begins there; its inventory may be of another file");
  /* one that leaves out the first, the third or the last message */
  for (size_t k = 0; k < 3; k++) {
    const size_t out[] = {0, 2, n_written - 1};
    char says[80];
    f = fopen(inventory, "w");
    for (size_t i = 0; i < n_written; i++)
      if (i != out[k]) fprintf(f, "%zu:%zu:d=2026010100:TMP:850 mb:anl:\n", i + 1, offset[i]);
    fclose(f);
    assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 1);
    snprintf(
        says, sizeof says, "its inventory leaves out the message at byte %zu;", offset[out[k]]);
    assert_has(run_err, says);
  }
  unlink(inventory);
  /* the same message twice; a file that is cut off */
  assert_int_equal(run_tool("index '%s' '%s' -o '%s'", path, path, index), 0);
  assert_has(
      run_err, "array 't' is left out: two messages have the same date, step, member and level");
  size_t n;
  unsigned char *bytes = index_slurp(path, &n);
  support_write(path, bytes, n - 10);
  assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 1);
  assert_has(run_err, "it is cut off: fetch the file again");
  free(bytes);
  /* one of GRIB 1 whose length counts 120 bytes each */
  support_write(path, "GRIB\x80\0\1\1............................", 36);
  assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 1);
  assert_has(run_err, "byte 0: it is a GRIB 1 message of 8 MiB or more");
}
/* One forecast of three members: time is the valid time. */
static void test_forecast(void **state) {
  char path[300], index[300];
  FILE *f = grib_create(path, "f.grib2");
  (void)state;
  for (int i = 0; i < 6; i++) {
    const struct grib g = {
        "10u", "heightAboveGround", 10, 20260101, 0, i / 3 * 6, i % 3, false, true};
    grib_append(f, &g, written[i]);
  }
  fclose(f);
  snprintf(index, sizeof index, "%s", support_path("f.insitu"));
  assert_int_equal(run_tool("index '%s' -o '%s' --rename u10=u", path, index), 0);
  grib_read(index, "u", written, 6 * sizeof *written);
  grib_read(index, "time", (const double[]){490896, 490902}, 16);
  grib_read(index, "number", (const double[]){0, 1, 2}, 24);
}
/* A message as a chunk of archives of both formats, with the configurations that others write. */
/* An index of a file in a store is that of its copy, byte for byte; an inventory lets all messages
 * be fetched at once, and chooses some of them. */
static void far_index(struct server *s, const char *path, const char *options, unsigned most) {
  char near[300], far[300];
  size_t n, m;
  snprintf(near, sizeof near, "%s", support_path("near.insitu"));
  snprintf(far, sizeof far, "%s", support_path("far.insitu"));
  assert_int_equal(
      run_tool("index '%s' -o '%s' --base %s %s", path, near, server_url(s, "d"), options), 0);
  uint64_t before = server_stats(s).requests;
  assert_int_equal(run_tool("index %s -o '%s' %s", server_url(s, "d/far.grib2"), far, options), 0);
  assert_string_equal(run_err, "");
  uint64_t requests = server_stats(s).requests - before;
  if (requests > most) fail_msg("%" PRIu64 " requests, not %u", requests, most);
  unsigned char *x = index_slurp(near, &n), *y = index_slurp(far, &m);
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n);
  free(x);
  free(y);
}
static void test_far(void **state) {
  enum { N = 12, APART = 70000 };
  static unsigned char apart[N * APART];
  static float values[N][POINTS];
  char path[300], inventory[310], far[300], prefix[80];
  const char *const prefixes[] = {prefix};
  struct insitu__text_buffer idx = {0};
  FILE *f = grib_create(path, "far.grib2");
  size_t n;
  (void)state;
  for (int i = 0; i < N; i++) {
    struct grib g = {i % 2 ? "2t" : "t", i % 2 ? "heightAboveGround" : "isobaricInhPa",
        i % 2 ? 2 : 850, 20260101, 0, i / 2, -1, false, false};
    grib_append(f, &g, values[i]);
    insitu__text_buffer_printf(&idx, "%d:%d:d=2026010100:TMP:%s:%d hour fcst:\n", i + 1, i * APART,
        i % 2 ? "2 m above ground" : "850 mb", i / 2);
  }
  fclose(f);
  unsigned char *bytes = index_slurp(path, &n);
  struct server *s = server_start(&(struct server_options){.threads = 1});
  server_put(s, "d/far.grib2", bytes, n);
  snprintf(prefix, sizeof prefix, "%s", server_url(s, "d"));
  far_index(s, path, "", 3); /* and two inventories, which are not there */

  /* as far from each other as those of larger fields, which the inventory tells */
  for (size_t i = 0; i < N; i++)
    memcpy(apart + i * APART, bytes + offset[i], (i + 1 < N ? offset[i + 1] : n) - offset[i]);
  support_write(path, apart, sizeof apart);
  server_put(s, "d/far.grib2", apart, sizeof apart);
  snprintf(inventory, sizeof inventory, "%s.idx", path);
  support_write(inventory, idx.text, idx.n);
  server_put(s, "d/far.grib2.idx", idx.text, idx.n);
  server_latency(s, 200); /* on a busy machine, too, some are asked for meanwhile */
  far_index(s, path, "--match ':TMP:2 m .*:[0-4] hour'", 7);
  assert_true(server_stats(s).in_flight_max > 2);
  server_latency(s, 0);
  snprintf(far, sizeof far, "%s", support_path("far.insitu"));
  const insitu_loader_desc where = {
      .url = far, .virtual_prefixes = prefixes, .n_virtual_prefixes = 1};
  float some[5][POINTS];
  for (int i = 0; i < 5; i++) memcpy(some[i], values[2 * i + 1], sizeof some[i]);
  index_expect_at(&where, "t2m", some, sizeof some);

  /* ECMWF's inventory, whose lines need not be in the order of the file */
  idx.n = 0;
  for (int i = N; i-- > 0;)
    insitu__text_buffer_printf(&idx,
        "{\"step\": \"%d\", \"param\": \"%s\", \"_offset\": %d, \"_length\": 9}\n", i / 2,
        i % 2 ? "2t" : "t", i * APART);
  server_delete(s, "d/far.grib2.idx");
  server_put(s, "d/far.index", idx.text, idx.n);
  assert_int_equal(
      run_tool("index '%s/far.grib2' -o '%s' --match '\"[0-4]\", \"param\": \"2t\"'", prefix, far),
      0);
  index_expect_at(&where, "t2m", some, sizeof some);
  server_delete(s, "d/far.index");
  server_text(s, "d/far.grib2.idx",
      "6:350000:d=2026010100:TMP:2 m above ground:5 hour fcst:\n"
      "12:770000:d=2026010100:TMP:2 m above ground:5 hour fcst:\n");

  assert_int_equal(run_tool("index '%s' -o '%s' --match :UGRD:", path, far), 1);
  assert_has(run_err, "no line of its inventory matches --match ':UGRD:'");
  assert_int_equal(run_tool("index '%s' -o '%s' --match '('", path, far), 2);
  assert_has(run_err, "--match '('");
  /* another file's inventory; a file that was cut off between two messages */
  server_put(s, "d/far.grib2", apart, (N - 1) * APART);
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s' --match ':5 hour'", prefix, far), 1);
  assert_has(run_err, "the file ends before; its inventory may be of another file");
  /* a page for people is none */
  server_put(s, "d/far.grib2", bytes, n);
  server_text(s, "d/far.grib2.idx", "\xef\xbb\xbf\n<!DOCTYPE html><title>Not found</title>");
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s'", prefix, far), 0);
  assert_string_equal(run_err, "");
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s' --match x", prefix, far), 1);
  assert_has(run_err, "a page for people, and no file");
  server_text(s, "d/far.grib2.idx", "1:0:d=2026010100:TMP:850 mb:anl:\n<p>\n");
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s'", prefix, far), 1);
  assert_has(run_err, "d/far.grib2: '<p>' is no line of an inventory");
  /* as a bucket answers that may not be listed */
  server_put(s, "d/far.grib2", bytes, n);
  server_rule(s, (struct server_rule){.key = "*.idx", .fault = SERVER_STATUS, .status = 403});
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s' --match x", prefix, far), 1);
  assert_has(run_err, "--match chooses by the lines of its inventory");
  assert_int_equal(run_tool("index %s/far.grib2 -o '%s'", prefix, far), 0);
  assert_has(run_err, "its inventory is not used: ");
  insitu__text_buffer_free(&idx);
  free(bytes);
  server_stop(&s);
}

static void codec_read(const char *metadata, int format, const void *message, size_t n,
    const void *want, size_t bytes) {
  insitu_object object[] = {{format == 2 ? ".zarray" : "zarr.json", metadata, strlen(metadata)},
      {format == 2 ? "0.0" : "c/0/0", message, n}};
  insitu_loader_desc where = {.url = "memory://grib", .objects = object, .n_objects = 2};
  index_expect_at(&where, "", want, bytes);
}
static void test_codecs(void **state) {
  static float up[POINTS], turned[POINTS];
  static double longitude[POINTS];
  char path[300];
  size_t n;
  const struct grib g = {"2t", "heightAboveGround", 2, 20260101, 0, 0, -1, true, true};
  FILE *f = grib_create(path, "c.grib2");
  (void)state;
  grib_append(f, &g, up);
  fclose(f);
  unsigned char *message = index_slurp(path, &n);
  for (int i = 0; i < POINTS; i++) {
    /* north up, and from 180 degrees east on: columns 10 to 19, then 0 to 9 */
    turned[i] = up[(NJ - 1 - i / NI) * NI + (i % NI + 10) % NI];
    longitude[i] = i % NI * 18;
  }
  codec_read("{\"zarr_format\":2,\"shape\":[11,20],\"chunks\":[11,20],\"dtype\":\"<f4\",\"order\":"
             "\"C\",\"fill_value\":null,\"compressor\":null,\"filters\":[{\"id\":\"grib\",\"var\":"
             "\"t2m\",\"dtype\":\"float32\"}]}",
      2, message, n, up, sizeof up);
#define V3(type, name, configuration)                                                              \
  "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[11,20],\"data_type\":\"" type             \
  "\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[11,20]}},"          \
  "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,\"codecs\":[{\"name\":\"" name   \
  "\",\"configuration\":{" configuration "}}]}"
  codec_read(V3("float32", "gribberish",
                 "\"var\":\"TMP\",\"north_up\":true,\"adjust_longitude_range\":true"),
      3, message, n, turned, sizeof turned);
  codec_read(
      V3("float64", "grib", "\"var\":\"longitude\""), 3, message, n, longitude, sizeof longitude);
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char *bytes;
  const char *metadata = V3("float32", "grib", "\"var\":\"t2m\"");
  insitu_object object[] = {{"zarr.json", metadata, strlen(metadata)}, {"c/0/0", message, n / 2}};
  insitu_loader_desc where = {.url = "memory://grib", .objects = object, .n_objects = 2};
  assert_int_equal(
      readback_read(&where, &(insitu_variable){.path = ""}, 1 << 20, &shape, &bytes, &err),
      INSITU_E_CORRUPT);
  assert_has(err.message, "is it one whole GRIB message?");
  free(message);
}
#else
static void refused(void **state) {
  char path[300];
  (void)state;
  snprintf(path, sizeof path, "%s", support_path("a.grib2"));
  support_write(path, "GRIB\0\0\0\2", 8);
  assert_int_equal(run_tool("index '%s' -o '%s.insitu'", path, path), 1);
  assert_has(run_err, "apt-get install libeccodes-dev");
}
#define test_analyses refused
#define test_forecast refused
#define test_codecs refused
#define test_far refused
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_analyses, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_forecast, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_codecs, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_far, support_setup, support_teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
