/* cc -O2 -I. examples/05_grib.c -o 05_grib -leccodes -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* Needs <eccodes.h>: apt-get install libeccodes-dev, dnf install eccodes-devel */
/* A codec of your own: the chunks of this archive are GRIB messages, as weather services write
 * them, and eccodes decodes them on the loader's threads. The archive is made here: two days of
 * hourly air temperature, each a GRIB2 message under the
 * key of its chunk, beside Zarr metadata that names the codec "grib". Then one shuffled epoch is
 * streamed. Run: ./05_grib */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <eccodes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* every 5 degrees, from the north pole and from Greenwich */
enum { HOURS = 48, LATS = 37, LONS = 72, POINTS = LATS * LONS };

static const char metadata[] =
    "{\"zarr_format\": 2, \"shape\": [48, 37, 72], \"chunks\": [1, 37, 72], \"dtype\": \"<f4\","
    " \"order\": \"C\", \"fill_value\": \"NaN\", \"filters\": null, \"compressor\": {\"id\": "
    "\"grib\"}}";

/* ---- the archive ---- */

/* kelvin: warm at the equator, and where it is two in the afternoon */
static double temperature(int hour, int lat, int lon) {
  double north = (90 - 5 * lat) * M_PI / 180, local = (hour + lon / 3.0 - 14) * M_PI / 12;
  return 250 + 48 * cos(north) + 6 * cos(north) * cos(local);
}
static insitu_object message(int hour) {
  static char key[HOURS][16];
  static double values[POINTS];
  codes_handle *h = codes_grib_handle_new_from_samples(NULL, "regular_ll_sfc_grib2");
  const struct {
    const char *name;
    long value;
  } set[] = {{"Ni", LONS}, {"Nj", LATS}, {"dataDate", 20260101 + hour / 24},
      {"dataTime", hour % 24 * 100}, {"bitsPerValue", 16}};
  const struct {
    const char *name;
    double degrees;
  } corner[] = {{"latitudeOfFirstGridPointInDegrees", 90},
      {"latitudeOfLastGridPointInDegrees", -90}, {"longitudeOfFirstGridPointInDegrees", 0},
      {"longitudeOfLastGridPointInDegrees", 355}, {"iDirectionIncrementInDegrees", 5},
      {"jDirectionIncrementInDegrees", 5}};
  int failed = h == NULL;
  for (size_t i = 0; !failed && i < sizeof set / sizeof *set; i++)
    failed = codes_set_long(h, set[i].name, set[i].value);
  for (size_t i = 0; !failed && i < sizeof corner / sizeof *corner; i++)
    failed = codes_set_double(h, corner[i].name, corner[i].degrees);
  for (int i = 0; i < POINTS; i++) values[i] = temperature(hour, i / LONS, i % LONS);
  const void *bytes = NULL;
  size_t n = 0;
  if (!failed) failed = codes_set_double_array(h, "values", values, POINTS);
  if (!failed) failed = codes_get_message(h, &bytes, &n);
  void *copy = failed ? NULL : malloc(n);
  if (!copy) {
    fprintf(stderr, "05_grib: eccodes made no message: %s\n",
        h ? codes_get_error_message(failed) : "are its samples installed?");
    exit(1);
  }
  memcpy(copy, bytes, n);
  codes_handle_delete(h);
  snprintf(key[hour], sizeof key[hour], "%d.0.0", hour);
  return (insitu_object){key[hour], copy, n};
}

/* ---- the codec ---- */

/* One GRIB message to float32, as dtype in the metadata says; missing points become NaN. */
static insitu_status decode_grib(void *user, const char *config, const void *src, uint64_t n,
    void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  pthread_mutex_t *one = user;
  double *values = NULL;
  size_t count = 0;
  /* {"id": "grib"}: what a codec's metadata says beside its name would be here */
  (void)config;
  pthread_mutex_lock(one); /* not every build of eccodes may run on several threads */
  codes_handle *h = codes_handle_new_from_message(NULL, src, n);
  int failed = h ? codes_get_size(h, "values", &count) : CODES_INVALID_MESSAGE;
  if (!failed && count * sizeof(float) > cap) failed = CODES_ARRAY_TOO_SMALL;
  if (!failed && !(values = malloc(count * sizeof *values))) failed = CODES_OUT_OF_MEMORY;
  if (!failed) failed = codes_set_double(h, "missingValue", 1e30);
  if (!failed) failed = codes_get_double_array(h, "values", values, &count);
  if (h) codes_handle_delete(h);
  pthread_mutex_unlock(one);
  for (size_t i = 0; !failed && i < count; i++) {
    float x = values[i] == 1e30 ? NAN : (float)values[i];
    memcpy((char *)dst + i * sizeof x, &x, sizeof x);
  }
  free(values);
  *got = count * sizeof(float);
  if (!failed) return INSITU_OK;
  snprintf(
      /* the loader adds array and chunk */
      err->message, sizeof err->message, "eccodes: %s", codes_get_error_message(failed));
  return failed == CODES_OUT_OF_MEMORY ? INSITU_E_NOMEM : INSITU_E_CORRUPT;
}

/* ---- training ---- */

static void print_batch(const insitu_batch *b) {
  const float *t = b->arrays[0].data; /* (rows, lat, lon), in kelvin */
  uint64_t n = b->rows * POINTS, warmest = 0;
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) {
    sum += (double)t[i];
    if (t[i] > t[warmest]) warmest = i;
  }
  printf("batch %d: hours", (int)b->index);
  for (uint64_t row = 0; row < b->rows; row++) printf(" %2d", (int)b->sample_indices[row]);
  printf("; mean %.1f C, warmest %.1f C at %d E in hour %d\n", n ? sum / (double)n - 273.15 : 0,
      (double)t[warmest] - 273.15, (int)(warmest % LONS * 5),
      (int)b->sample_indices[warmest / POINTS]);
}

int main(void) {
  static insitu_object objects[1 + HOURS] = {{".zarray", metadata, sizeof metadata - 1}};
  pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  uint64_t stored = 0;
  for (int hour = 0; hour < HOURS; hour++) stored += (objects[1 + hour] = message(hour)).n;
  printf("%d GRIB messages, %.0f kB; decoded %.0f kB\n", HOURS, (double)stored / 1e3,
      HOURS * POINTS * sizeof(float) / 1e3);

  const insitu_codec grib = {.name = "grib", .decode = decode_grib, .user = &one};
  const insitu_variable t2m = {.label = "t2m", .path = ""}; /* the archive's root is the array */
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://grib", /* of an archive on disk: its path */
      .objects = objects,
      .n_objects = 1 + HOURS,
      .codecs = &grib,
      .n_codecs = 1,
      .variables = &t2m,
      .n_variables = 1,
      .batch_size = 6};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *batch = NULL;
  insitu_error err = {0};
  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(
        loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN}, &iter, &err);
  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    print_batch(batch);
    insitu_batch_release(&batch);
  }
  if (status != INSITU_END) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  for (int hour = 0; hour < HOURS; hour++) free((void *)(uintptr_t)objects[1 + hour].bytes);
  return status != INSITU_END;
}
