/* cc -O2 -I. examples/11_evaluate_forecasts.c -o 11_evaluate_forecasts -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* How good are forecasts, by lead time? A sample is one forecast at one lead: an index on the axis
 * init and one on the axis lead. An evaluation sees every sample exactly once. The archive is made
 * in memory: 60 days of forecasts for 10 days ahead at 4 stations, and what was observed.
 * Run: ./11_evaluate_forecasts */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
enum { DAYS = 60, LEADS = 10, STATIONS = 4, SEEN = DAYS + LEADS, CHUNK = 5 };
enum { CHUNKS = DAYS / CHUNK * LEADS / CHUNK, OBJECTS = 6 + CHUNKS + 2 };

/* The archive: forecasts in chunks of 5 days and 5 leads, observations and days in one each. */
static float chunk[CHUNKS][CHUNK][CHUNK][STATIONS], observed[SEEN][STATIONS];
static int32_t day[DAYS];
static char keys[CHUNKS][32];
static insitu_object objects[OBJECTS];
static uint64_t n_objects;

static void put(const char *key, const void *bytes, uint64_t n) {
  objects[n_objects++] = (insitu_object){.key = key, .bytes = bytes, .n = n};
}
static void put_text(const char *key, const char *text) {
  put(key, text, strlen(text));
}

static void make_archive(void) {
  uint32_t random = 1;
#define ARRAY(shape, chunks, dtype)                                                                \
  "{\"zarr_format\":2,\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":\"" dtype                \
  "\",\"compressor\":null,\"filters\":null,\"fill_value\":null,\"order\":\"C\"}"
  put_text("t/.zarray", ARRAY("[60,10,4]", "[5,5,4]", "<f4"));
  put_text("t/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"init\",\"lead\",\"station\"]}");
  put_text("init/.zarray", ARRAY("[60]", "[60]", "<i4"));
  put_text(
      "init/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"init\"],\"units\":\"days since 2020-01-01\"}");
  put_text("observed/.zarray", ARRAY("[70,4]", "[70,4]", "<f4"));
  put_text("observed/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"day\",\"station\"]}");

  for (int d = 0; d < SEEN; d++)
    for (int s = 0; s < STATIONS; s++) observed[d][s] = (float)(15 + 8 * sin(0.1 * d + s));
  for (int32_t d = 0; d < DAYS; d++) day[d] = d;
  for (int d = 0; d < DAYS; d++)
    for (int lead = 0; lead < LEADS; lead++)
      for (int s = 0; s < STATIONS; s++) {
        random = random * 1664525 + 1013904223; /* a forecast gets worse by the day */
        double miss = (1 + lead) * (random / 4294967296.0 - 0.5);
        chunk[d / CHUNK * 2 + lead / CHUNK][d % CHUNK][lead % CHUNK][s] =
            observed[d + lead][s] + (float)miss;
      }
  for (int c = 0; c < CHUNKS; c++) {
    snprintf(keys[c], sizeof keys[c], "t/%d.%d.0", c / 2, c % 2);
    put(keys[c], chunk[c], sizeof chunk[c]);
  }
  put("init/0", day, sizeof day);
  put("observed/0.0", observed, sizeof observed);
}

int main(void) {
  make_archive();
  const insitu_axis axes[] = {
      {.dim = "init", .from = "2020-01-15", .to = "2020-02"}, {.dim = "lead", .stride = 3}};
  const insitu_variable v = {.label = "forecast", .path = "t", .dtype = INSITU_F32};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://forecasts",
      .objects = objects,
      .n_objects = n_objects,
      .variables = &v,
      .n_variables = 1,
      .axes = axes,
      .n_axes = 2,
      .batch_size = 32};
  const insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL}; /* sequential */
  static float truth[SEEN][STATIONS];
  double square[LEADS] = {0};
  uint64_t n[LEADS] = {0}, rows = 0;
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_read(
        loader, &(insitu_variable){.path = "observed"}, truth, sizeof truth, NULL, &err);
  if (!status) status = insitu_iter_open(loader, &all, &iter, &err);
  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    const float *forecast = b->arrays[0].data;
    for (uint64_t row = 0; row < b->rows; row++) {
      int64_t init = b->axis_indices[2 * row], lead = b->axis_indices[2 * row + 1];
      for (int s = 0; s < STATIONS; s++) {
        double miss = (double)forecast[row * STATIONS + (uint64_t)s] - truth[init + lead][s];
        square[lead] += miss * miss;
      }
      n[lead]++;
    }
    rows += b->rows;
    insitu_batch_release(&b);
  }

  bool once = status == INSITU_END;
  if (status < 0) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  for (int lead = 0; once && lead < LEADS; lead += 3) {
    printf("%2d days ahead: %2" PRIu64 " forecasts, the error is %.2f degrees\n", lead, n[lead],
        sqrt(square[lead] / (double)(n[lead] * STATIONS)));
    once = n[lead] == 46; /* January 15 to February 29 */
  }
  printf(
      "%" PRIu64 " samples, %s\n", rows, once ? "each of them once" : "and not each of them once");
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return !once;
}
