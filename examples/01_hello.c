/* cc -O2 -I. examples/01_hello.c -o 01_hello -luring -lcurl -llz4 -lzstd -lpthread */
/* The smallest complete program: one shuffled epoch of monthly winds. Run: ./01_hello [ARCHIVE] */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
  /* an array of the archive; its first axis is time */
  const insitu_variable wind = {.label = "uwnd", .dtype = INSITU_F32};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = argc > 1 ? argv[1] : "examples/data/winds.zarr",
      .variables = &wind,
      .n_variables = 1,
      .batch_size = 16}; /* all other fields are zero: the defaults */
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *batch = NULL;
  insitu_error err = {0};

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(
        loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN}, &iter, &err);

  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    /* (rows, lat, lon): eastward wind in m/s; yours until you release the batch */
    const float *u = batch->arrays[0].data;
    uint64_t n = batch->arrays[0].bytes / sizeof *u, west = 0;
    for (uint64_t i = 0; i < n; i++) west += u[i] > 0;
    printf("batch %" PRIu64 ": %.0f %% of the grid has westerly wind in months", batch->index,
        100.0 * (double)west / (double)n);
    for (uint64_t row = 0; row < batch->rows; row++)
      printf(" %3" PRId64, batch->sample_indices[row]);
    printf("\n");
    insitu_batch_release(&batch);
  }
  /* Only INSITU_END says that the epoch was delivered whole. Errors have a message; INSITU_BUSY
   * would mean that batches were not released. */
  if (status != INSITU_END) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status != INSITU_END;
}
