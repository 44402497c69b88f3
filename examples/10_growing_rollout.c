/* cc -O2 -I. examples/10_growing_rollout.c -o 10_growing_rollout -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* A rollout that grows: a small model learns to forecast one month ahead, an epoch later two, and
 * so on. A second run stops in the middle of an epoch, goes on as another process would, and ends
 * with the same numbers. Run: ./10_growing_rollout */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
enum { EPOCHS = 4, LATS = 96 };

/* A training run. The wind of the next month is keep * wind + add, at each latitude. What a run
 * needs to go on is all in here: write it to a file as it is. */
struct run {
  double keep[LATS], add[LATS], square[EPOCHS], n[EPOCHS];
  uint64_t epoch;
  insitu_state after; /* of the last batch; zero: there was none */
};

/* One step down the gradient of the squared error of all months of the rollout. */
static void learn(struct run *r, const insitu_batch *b) {
  const float *x = b->arrays[0].data, *y = b->arrays[1].data;
  int64_t months = b->arrays[1].shape[1], lats = b->arrays[0].shape[1],
          lons = b->arrays[0].shape[2];
  double keep_slope[LATS] = {0}, add_slope[LATS] = {0}, terms = (double)(b->rows * months * lons);
  for (uint64_t row = 0; row < b->rows; row++)
    for (int64_t i = 0; i < lats * lons; i++) {
      int64_t lat = i / lons;
      double wind = x[row * lats * lons + i] / 10, by_keep = 0,
             by_add = 0; /* derivatives of wind */
      for (int64_t month = 0; month < months; month++) {
        by_keep = wind + r->keep[lat] * by_keep;
        by_add = 1 + r->keep[lat] * by_add;
        wind = r->keep[lat] * wind + r->add[lat];
        double miss = wind - y[(row * months + month) * lats * lons + i] / 10;
        keep_slope[lat] += miss * by_keep / terms;
        add_slope[lat] += miss * by_add / terms;
        r->square[r->epoch] += 100 * miss * miss;
      }
    }
  r->n[r->epoch] += (double)(b->rows * months * lats * lons);
  for (int64_t lat = 0; lat < lats; lat++) {
    r->keep[lat] -= 0.1 * keep_slope[lat];
    r->add[lat] -= 0.1 * add_slope[lat];
  }
  r->after = b->after;
}

/* Trains until all epochs are over (INSITU_END), or for so many batches (INSITU_OK). */
static insitu_status train(struct run *r, uint64_t batches) {
  static const insitu_state none;
  const int64_t steps[EPOCHS] = {1, 2, 3, 4}; /* the longest rollout */
  const insitu_variable v[] = {{.label = "x", .path = "uwnd", .dtype = INSITU_F32},
      {.label = "y", .path = "uwnd", .dtype = INSITU_F32, .steps = steps, .n_steps = EPOCHS}};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "examples/data/winds.zarr",
      .variables = v,
      .n_variables = 2,
      .batch_size = 8,
      .hold_epoch = 1}; /* so that no batch is prefetched with the steps of the epoch before */
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(loader, &(insitu_iter_desc){.api = INSITU_API}, &iter, &err);
  if (!status && insitu_loader_array(loader, 0)->shape[1] > LATS) status = INSITU_E_SHAPE;
  if (!status && memcmp(&r->after, &none, sizeof none))
    status = insitu_iter_restore(iter, &r->after, &err);
  while (!status && (status = insitu_iter_set_steps(iter, "y", 1 + r->epoch, &err)) == INSITU_OK) {
    while (batches && (status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
      learn(r, b);
      insitu_batch_release(&b);
      batches--;
    }
    if (status == INSITU_END && ++r->epoch < EPOCHS) status = INSITU_OK;
    else break;
  }

  if (status < 0) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status;
}

int main(void) {
  static struct run whole, parts; /* zeros: forecasts of no wind */
  if (train(&whole, UINT64_MAX) != INSITU_END) return 1;
  for (int epoch = 0; epoch < EPOCHS; epoch++)
    printf("epoch %d, %d months ahead: the error is %.3f m/s\n", epoch, epoch + 1,
        sqrt(whole.square[epoch] / whole.n[epoch]));

  if (train(&parts, 29) != INSITU_OK) return 1;
  printf("stopped in epoch %" PRIu64 " and resumed: ", parts.epoch);
  if (train(&parts, UINT64_MAX) != INSITU_END) return 1;
  bool same = !memcmp(&whole, &parts, sizeof whole);
  printf("%s\n", same ? "the same numbers" : "other numbers");
  return !same;
}
