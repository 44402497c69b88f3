/* cc -O2 -I. examples/14_wind_speed.c -o 14_wind_speed -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* A function of yours for each batch, on the decoding threads: wind speed from two arrays, and half
 * of the fields turned east to west, chosen by a key of each sample that is the same on every
 * machine and at every number of ranks. Run: ./14_wind_speed */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Writes the speed, and turns u, v and speed of a row where its key is odd. */
static insitu_status prepare(
    void *user, insitu_batch *batch, const uint64_t *keys, insitu_error *err) {
  float *u = batch->arrays[0].data, *v = batch->arrays[1].data, *speed = batch->arrays[2].data;
  unsigned char *turned = batch->arrays[3].data;
  int64_t lats = batch->arrays[0].shape[1], lons = batch->arrays[0].shape[2];
  (void)user, (void)err;

  for (uint64_t row = 0; row < batch->rows; row++) {
    turned[row] = keys[row] & 1;
    for (int64_t lat = 0; lat < lats; lat++, u += lons, v += lons, speed += lons) {
      for (int64_t lon = 0; turned[row] && lon < lons / 2; lon++) {
        float east = u[lon], north = v[lon];
        u[lon] = u[lons - 1 - lon];
        v[lon] = v[lons - 1 - lon];
        u[lons - 1 - lon] = east;
        v[lons - 1 - lon] = north;
      }
      for (int64_t lon = 0; lon < lons; lon++) {
        if (turned[row]) u[lon] = -u[lon];
        speed[lon] = sqrtf(u[lon] * u[lon] + v[lon] * v[lon]);
      }
    }
  }
  return INSITU_OK;
}

int main(void) {
  const insitu_variable wind[] = {
      {.label = "uwnd", .dtype = INSITU_F32}, {.label = "vwnd", .dtype = INSITU_F32}};
  const int64_t grid[] = {73, 144}; /* the archive's latitudes and longitudes */
  const insitu_output added[] = {{.label = "speed", .dtype = INSITU_F32, .ndim = 2, .shape = grid},
      {.label = "turned", .dtype = INSITU_U8}};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "examples/data/winds.zarr",
      .variables = wind,
      .n_variables = 2,
      .batch_size = 16,
      .seed = 1,
      .on_batch = prepare,
      .outputs = added,
      .n_outputs = 2};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *batch = NULL;
  insitu_error err = {0};

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(
        loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN}, &iter, &err);

  double sum = 0, east = 0;
  uint64_t n = 0, rows = 0, turned = 0;
  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    const float *u = batch->arrays[0].data, *speed = batch->arrays[2].data;
    const unsigned char *flag = batch->arrays[3].data;
    uint64_t elements = batch->arrays[2].bytes / sizeof *speed;
    for (uint64_t i = 0; i < elements; i++) sum += speed[i], east += u[i];
    for (uint64_t row = 0; row < batch->rows; row++) turned += flag[row];
    n += elements;
    rows += batch->rows;
    insitu_batch_release(&batch);
  }
  if (status != INSITU_END) fprintf(stderr, "%s\n", err.message);
  else
    printf("%" PRIu64 " of %" PRIu64 " months are turned; wind speed is %.2f m/s on average, "
           "eastward wind %.2f m/s\n",
        turned, rows, sum / (double)n, east / (double)n);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status != INSITU_END;
}
