/* insitubatch.h as a peer: only functions of part A. Prints the one line of JSON that
 * tools/peers/common.py describes.
 *   ours KEY=VALUE...   url, array, offset (1: pairs), batch, seed, epochs, anchors and rows
 *                       (files, as there), plan=1 (tells the plan, and reads nothing);
 *                       block_chunks, unit_chunks, lanes, max_inflight, prefetch_depth (0: the
 *                       default); option.KEY=VALUE of the store
 * The clock's "opened" stands before insitu_loader_open; all else is the library's defaults. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

enum { MOST_OPTIONS = 16 };

static const char *setting(char **arguments, const char *key) { /* NULL: it is not given */
  size_t n = strlen(key);
  for (char **a = arguments; *a; a++)
    if (!strncmp(*a, key, n) && (*a)[n] == '=') return *a + n + 1;
  return NULL;
}
static uint64_t number(char **arguments, const char *key, uint64_t absent) {
  const char *text = setting(arguments, key);
  return text ? strtoull(text, NULL, 10) : absent;
}
static uint64_t store_options(char **arguments, insitu_option *options) {
  static const char prefix[] = "option.";
  uint64_t n = 0;
  for (char **a = arguments; *a && n < MOST_OPTIONS; a++) {
    char *equals = strchr(*a, '=');
    if (strncmp(*a, prefix, sizeof prefix - 1) || !equals) continue;
    *equals = 0;
    options[n++] = (insitu_option){*a + sizeof prefix - 1, equals + 1};
  }
  return n;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static int failed(const insitu_error *err) {
  printf("{\"error\": \"");
  for (const char *c = err->message; *c; c++) {
    if (*c == '"' || *c == '\\') putchar('\\');
    if ((unsigned char)*c >= 0x20) putchar(*c);
  }
  printf("\"}\n");
  return 1;
}
static FILE *create(const char *path) { /* NULL: no path */
  FILE *f = path ? fopen(path, "w") : NULL;
  if (path && !f) {
    perror(path);
    exit(2);
  }
  return f;
}
static void write_rows(FILE *out, const insitu_batch *batch) {
  for (uint64_t row = 0; row < batch->rows; row++) {
    fprintf(out, "%" PRId64, batch->sample_indices[row]);
    for (uint64_t i = 0; i < batch->n_arrays; i++) {
      const insitu_array *a = &batch->arrays[i];
      const unsigned char *bytes = (const unsigned char *)a->data + row * a->row_bytes;
      fprintf(out, " %08lx", crc32(0, bytes, (unsigned)a->row_bytes));
    }
    fprintf(out, "\n");
  }
}
static void print_plan(const insitu_loader *loader, const insitu_plan *plan) {
  const insitu_loader_desc *desc = insitu_loader_config(loader);
  printf("\"plan\": {\"block_chunks\": %" PRIu64 ", \"unit_chunks\": %" PRIu64
         ", \"lanes\": %" PRIu64 ", \"window\": %" PRIu64 ", \"unit_rows\": %" PRIu64
         ", \"units\": %" PRIu64 ", \"amplification\": %.3f, \"variance_ratio\": %.4f},"
         " \"versions\": {\"insitubatch.h\": \"API %d\"}",
      desc->block_chunks, desc->unit_chunks, plan->lanes, plan->window, plan->unit_rows,
      plan->units, plan->amplification, plan->variance_ratio, INSITU_API);
}
int main(int argc, char **argv) {
  char **arguments = argv + 1;
  insitu_option options[MOST_OPTIONS];
  insitu_error err = {0};
  insitu_loader *loader;
  insitu_iter *iter;
  insitu_plan plan;
  (void)argc;
  uint64_t n_options = store_options(arguments, options), epochs = number(arguments, "epochs", 1),
           rows = 0;
  insitu_variable variables[] = {{.label = "x", .path = setting(arguments, "array")},
      {.label = "y",
          .path = setting(arguments, "array"),
          .offset = (int64_t)number(arguments, "offset", 0)}};
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = setting(arguments, "url"),
      .options = options,
      .n_options = n_options,
      .variables = variables,
      .n_variables = variables[1].offset ? 2 : 1,
      .batch_size = number(arguments, "batch", 32),
      .seed = number(arguments, "seed", 0),
      .block_chunks = number(arguments, "block_chunks", 0),
      .unit_chunks = number(arguments, "unit_chunks", 0),
      .lanes = number(arguments, "lanes", 0),
      .max_inflight = number(arguments, "max_inflight", 0),
      .prefetch_depth = number(arguments, "prefetch_depth", 0),
      .split = {{.fraction = 1}},
      .plan_only = (int32_t)number(arguments, "plan", 0),
      .hold_epoch = epochs == 1}; /* no other peer begins an epoch that nobody asks for */
  insitu_iter_desc train = {.api = INSITU_API};
  FILE *anchors = create(setting(arguments, "anchors")),
       *checksums = create(setting(arguments, "rows"));
  double opened = now(), first = 0;
  if (insitu_loader_open(&desc, &loader, &err)) return failed(&err);
  if (insitu_loader_plan(loader, &train, &plan, &err)) return failed(&err);
  if (desc.plan_only) {
    printf("{");
    print_plan(loader, &plan);
    printf("}\n");
    return insitu_loader_close(&loader), 0;
  }
  if (insitu_iter_open(loader, &train, &iter, &err)) return failed(&err);
  for (uint64_t epoch = 0; epoch < epochs; epoch++) {
    insitu_batch *batch;
    insitu_status status;
    while ((status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
      if (!rows) first = now();
      rows += batch->rows;
      if (anchors)
        fwrite(batch->sample_indices, sizeof *batch->sample_indices, batch->rows, anchors);
      if (checksums) write_rows(checksums, batch);
      insitu_batch_release(&batch);
    }
    if (status != INSITU_END) return failed(&err);
  }
  double end = now();
  printf("{\"opened\": %.6f, \"first\": %.6f, \"end\": %.6f, \"rows\": %" PRIu64 ", ", opened,
      first, end, rows);
  print_plan(loader, &plan);
  printf("}\n");
  if (anchors) fclose(anchors);
  if (checksums) fclose(checksums);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return 0;
}
