/* cc -O2 -I. examples/09_forecast_box.c -o 09_forecast_box -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* Inputs and targets of a forecaster over a box, which is cut out by values over the seam of the
 * longitudes: two winds as channels, two months in, four out. Prints how far the wind is from the
 * last input with each month: what a forecast has to beat. Run: ./09_forecast_box */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include <stdio.h>
#define BOX "lat=70..20; lon=-80..20" /* the North Atlantic, from north to south */
enum { IN = 2, OUT = 4 };

int main(void) {
  const int64_t in[IN] = {-1, 0}, out[OUT] = {1, 2, 3, 4};
  const insitu_variable v[] = {
      {.label = "u_in", .path = "uwnd", .into = "x", .select = BOX, .steps = in, .n_steps = IN},
      {.label = "v_in", .path = "vwnd", .into = "x", .select = BOX, .steps = in, .n_steps = IN},
      {.label = "u_out", .path = "uwnd", .into = "y", .select = BOX, .steps = out, .n_steps = OUT},
      {.label = "v_out", .path = "vwnd", .into = "y", .select = BOX, .steps = out, .n_steps = OUT}};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "examples/data/winds.zarr",
      .variables = v,
      .n_variables = 4,
      .batch_size = 8};
  insitu_loader *loader = NULL;
  insitu_iter *train = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};
  double square[2][OUT] = {{0}}, n = 0;

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(loader, &(insitu_iter_desc){.api = INSITU_API}, &train, &err);
  while (!status && (status = insitu_iter_next(train, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    /* x (rows, 2 winds, IN, latitudes, longitudes) and y (rows, 2 winds, OUT, ...), float32 */
    const float *x = b->arrays[0].data, *y = b->arrays[1].data;
    int64_t field = b->arrays[0].shape[3] * b->arrays[0].shape[4];
    for (uint64_t row = 0; row < b->rows; row++)
      for (int c = 0; c < 2; c++, x += IN * field)
        for (int lead = 0; lead < OUT; lead++, y += field)
          for (int64_t i = 0; i < field; i++)
            square[c][lead] += pow((double)y[i] - (double)x[(IN - 1) * field + i], 2);
    n += (double)(b->rows * (uint64_t)field);
    insitu_batch_release(&b);
  }

  if (status != INSITU_END) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  for (int lead = 0; lead < OUT && n > 0; lead++)
    printf("%d months ahead: %s %.2f m/s, %s %.2f m/s\n", lead + 1, "eastward wind",
        sqrt(square[0][lead] / n), "northward wind", sqrt(square[1][lead] / n));
  insitu_iter_close(&train);
  insitu_loader_close(&loader);
  return status != INSITU_END;
}
