/* One program built with INSITU_WITH_CUDA, for machines with and without a CUDA driver: where there
 * is no device, what may fall back lies in host memory and is right, and what may not fails with
 * CUDA's words; where there is one, all lies where it was asked for. tests/cuda/check.sh builds it
 * and runs it in the repository's root. */
#include "insitubatch.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, MONTHS = 132, FIELD = 73 * 144 };
static float *wanted, *got;   /* (MONTHS, FIELD) read at once; one batch */
static const char *no_device; /* CUDA's words, where there is none */

static void die(const char *place, const char *what) {
  printf("place %s: %s\n", place, what);
  exit(1);
}

static insitu_loader *open_loader(int32_t place, int32_t device, insitu_error *err) {
  insitu_variable variable = {.label = "u", .path = "uwnd", .place = place, .device = device};
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = "examples/data/winds.zarr",
      .variables = &variable,
      .n_variables = 1};
  desc.batch_size = ROWS;
  insitu_loader *loader = NULL;
  insitu_status status = insitu_loader_open(&desc, &loader, err);
  return status ? NULL : loader;
}

/* An epoch of batches that lie in `where`, each row of them compared. */
static void epoch(const char *name, int32_t place, int32_t where) {
  insitu_error err = {0};
  insitu_loader *loader = open_loader(place, 0, &err);
  insitu_iter *iter = NULL;
  if (!loader) die(name, err.message);
  if (insitu_loader_array(loader, 0)->place != where)
    die(name, "not where it should lie, before the first batch");
  if (insitu_read(loader, &(insitu_variable){.path = "uwnd"}, wanted,
          sizeof(float) * MONTHS * FIELD, NULL, &err))
    die(name, err.message);
  if (insitu_iter_open(
          loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &iter, &err))
    die(name, err.message);
  insitu_batch *batch;
  insitu_status status;
  uint64_t rows = 0;
  while ((status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    const insitu_array *u = &batch->arrays[0];
    if (u->place != where || u->device != 0) die(name, "not where it should lie");
    const float *values = u->data;
    if (where == INSITU_DEVICE) { /* in the order of the default stream, which the iterator has */
      if (cudaMemcpyAsync(got, u->data, (size_t)u->bytes, cudaMemcpyDeviceToHost, NULL) ||
          cudaStreamSynchronize(NULL))
        die(name, "the copy back failed");
      values = got;
    }
    for (uint64_t row = 0; row < batch->rows; row++, rows++)
      if (memcmp(values + row * FIELD, wanted + batch->sample_indices[row] * FIELD,
              FIELD * sizeof(float)))
        die(name, "wrong values");
    insitu_batch_release(&batch);
  }
  if (status != INSITU_END) die(name, err.message);
  if (rows != MONTHS) die(name, "rows are missing");
  insitu_stats stats;
  if (insitu_loader_stats(loader, &stats, &err)) die(name, err.message);
  if ((stats.uploads > 0) != (where == INSITU_DEVICE)) die(name, "uploads are counted wrong");
  if ((stats.pinned_bytes > 0) != (where != INSITU_HOST))
    die(name, "page-locked memory is counted wrong");
  insitu_loader_close(&loader);
}

/* No such device: an error that says why, at open. */
static void refused(const char *name, int32_t device, const char *words) {
  insitu_error err = {0};
  insitu_loader *loader = open_loader(INSITU_DEVICE, device, &err);
  if (loader) die(name, "opened without a device");
  printf("place %s: %s: %s\n", name, insitu_status_name(err.status), err.message);
  if (err.status != INSITU_E_DEVICE || !strstr(err.message, words))
    die(name, "another error was expected");
}

int main(void) {
  int n = 0;
  cudaError_t answer = cudaGetDeviceCount(&n);
  if (answer) no_device = cudaGetErrorString(answer);
  bool there = !answer && n > 0;
  wanted = malloc(sizeof(float) * MONTHS * FIELD), got = malloc(sizeof(float) * ROWS * FIELD);
  if (!wanted || !got) die("nothing", "no memory");
  epoch("HOST", INSITU_HOST, INSITU_HOST);
  epoch("PINNED", INSITU_PINNED, there ? INSITU_PINNED : INSITU_HOST);
  epoch("DEVICE_OR_HOST", INSITU_DEVICE_OR_HOST, there ? INSITU_DEVICE : INSITU_HOST);
  if (there) epoch("DEVICE", INSITU_DEVICE, INSITU_DEVICE);
  else refused("DEVICE", 0, no_device ? no_device : "");
  refused("DEVICE 63", 63, there ? "device 63" : no_device ? no_device : "");
  free(wanted), free(got);
  printf("place: right, %s\n", there ? "with a device" : "without a device");
  return 0;
}
