/* What a trainer does in a container: an epoch of the winds, t and t+1, and a validation iterator
 * in its middle. Prints a sum over all bytes, and what the library found of the machine:
 * epoch ARCHIVE. */
#include "insitubatch.h"
#include <inttypes.h>
#include <stdio.h>

static uint64_t sum_of(uint64_t sum, const insitu_batch *batch) {
  for (uint64_t a = 0; a < batch->n_arrays; a++) {
    const uint8_t *bytes = batch->arrays[a].data;
    for (uint64_t i = 0; i < batch->arrays[a].bytes; i++)
      sum = (sum ^ bytes[i]) * UINT64_C(1099511628211); /* FNV-1a */
  }
  return sum;
}

int main(int argc, char **argv) {
  const insitu_variable variables[] = {
      {.label = "now", .path = "uwnd"}, {.label = "next", .path = "uwnd", .offset = 1}};
  insitu_loader_desc desc = {
      .api = INSITU_API, .url = argc > 1 ? argv[1] : "", .variables = variables, .n_variables = 2};
  insitu_error err = {0};
  insitu_loader *loader = NULL;
  insitu_iter *train = NULL, *val = NULL;
  insitu_batch *batch = NULL;
  uint64_t sum = UINT64_C(14695981039346656037), rows = 0;
  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  const insitu_iter_desc of_val = {.api = INSITU_API, .split = INSITU_VAL};
  if (!status)
    status = insitu_iter_open(loader, &(insitu_iter_desc){.api = INSITU_API}, &train, &err);
  if (!status) status = insitu_iter_open(loader, &of_val, &val, &err);
  for (insitu_iter *from[] = {train, val, NULL}, **it = from; !status && *it; it++) {
    while (!(status = insitu_iter_next(*it, INSITU_FOREVER, &batch, &err))) {
      sum = sum_of(sum, batch);
      rows += batch->rows;
      insitu_batch_release(&batch);
    }
    if (status == INSITU_END) status = INSITU_OK;
  }

  insitu_stats stats = {0};
  if (!status) status = insitu_loader_stats(loader, &stats, &err);
  if (status) {
    fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  } else {
    const insitu_loader_desc *c = insitu_loader_config(loader);
    printf("rows %" PRIu64 " sum %016" PRIx64 "\n", rows, sum);
    printf("io %s decode_threads %u memory_budget %" PRIu64 "\n", stats.io,
        (unsigned)c->decode_threads, c->memory_budget);
  }
  insitu_iter_close(&val);
  insitu_iter_close(&train);
  insitu_loader_close(&loader);
  return status != 0;
}
