/* cc -O2 -I. examples/04_plan_only.c -o 04_plan_only -luring -lcurl -llz4 -lzstd -lpthread */
/* What would an epoch cost? Opens an archive's metadata alone, starts no thread, reads no chunk,
 * and prints for every split what is in it, what it reads, what memory it takes and how well it is
 * mixed; then how larger units of the shuffle save re-reads. Each array is wanted twice: at a
 * sample, as input, and one sample later, as target. Run: ./04_plan_only [ARCHIVE [ARRAY...]] */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ARRAYS = 16, SPLITS = 4 };

struct cost { /* of one split */
  bool empty; /* no sample whose target is in the split too */
  insitu_plan plan;
  insitu_quality quality;
};

/* Ends the program on an error, with the library's own words. */
static void check(insitu_status status, const insitu_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "04_plan_only: %s: %s\n", insitu_status_name(status), err->message);
  exit(1);
}

static insitu_loader *open_loader(const insitu_loader_desc *desc) {
  insitu_error err = {0};
  insitu_loader *loader = NULL;
  check(insitu_loader_open(desc, &loader, &err), &err);
  return loader;
}

static struct cost cost_of(const insitu_loader *loader, int32_t split) {
  /* order: train is shuffled, the others are not */
  const insitu_iter_desc iter = {.api = INSITU_API, .split = split};
  insitu_error err = {0};
  struct cost c = {0};
  insitu_status status = insitu_loader_plan(loader, &iter, &c.plan, &err);
  c.empty = status == INSITU_E_SPLIT;
  if (c.empty) return c;
  check(status, &err);
  check(insitu_loader_quality(loader, &iter, &c.quality, &err), &err);
  return c;
}

static void print_batch(const insitu_loader *loader) {
  const insitu_loader_desc *d = insitu_loader_config(loader); /* with every default resolved */
  const insitu_array *a;
  printf("A batch of %s holds", d->url);
  for (uint64_t i = 0; (a = insitu_loader_array(loader, i)); i++) {
    printf("%s %s (", i ? "," : "", a->name);
    for (int32_t k = 0; k < a->ndim; k++) printf("%s%" PRId64, k ? ", " : "", a->shape[k]);
    printf(")");
  }
  printf(
      ".\nblock_chunks %" PRIu64 ", prefetch_depth %" PRIu64, d->block_chunks, d->prefetch_depth);
  printf(", max_inflight %" PRIu64 ", decode_threads %" PRIu64, d->max_inflight, d->decode_threads);
  printf(", memory_budget %.1f GB\n\n", (double)d->memory_budget / 1e9);
}

static void print_splits(const insitu_loader *loader) {
  struct cost c[SPLITS];
  for (int32_t i = 0; i < SPLITS; i++) c[i] = cost_of(loader, INSITU_TRAIN + i);
#define ROW(name, format, value)                                                                   \
  do {                                                                                             \
    printf("%-42s", name);                                                                         \
    for (int i = 0; i < SPLITS; i++)                                                               \
      if (c[i].empty) printf("%10s", "-");                                                         \
      else printf("%10" format, value);                                                            \
    printf("\n");                                                                                  \
  } while (0)
  printf("%-42s%10s%10s%10s%10s\n", "an epoch of", "train", "val", "test", "all");
  ROW("samples of the archive", PRIu64, c[i].plan.space);
  for (int32_t r = 0; r < INSITU_DROPS; r++) {
    char name[40];
    bool any = false;
    snprintf(name, sizeof name, "- %s", insitu_drop_name(r));
    for (int i = 0; i < SPLITS; i++) any = any || (!c[i].empty && c[i].plan.dropped[r]);
    if (any) ROW(name, PRIu64, c[i].plan.dropped[r]);
  }
  ROW("batches", PRIu64, c[i].plan.batches);
  ROW("lanes", PRIu64, c[i].plan.lanes);
  ROW("window: units mixed together in a lane", PRIu64, c[i].plan.window);
  ROW("chunks read", PRIu64, c[i].plan.reads);
  ROW("amplification: reads of each chunk", ".2f", c[i].plan.amplification);
  ROW("dedup: uses of each read", ".2f", c[i].plan.dedup);
  ROW("decoded, MB", ".1f", (double)c[i].plan.read_bytes / 1e6);
  ROW("memory: batches, MB", ".1f", (double)(c[i].plan.slabs * c[i].plan.slab_bytes) / 1e6);
  ROW("memory: in flight, MB (shared by all)", ".1f", (double)c[i].plan.inflight_bytes / 1e6);
#undef ROW
  if (c[INSITU_TRAIN].empty) return;
  const struct cost *train = &c[INSITU_TRAIN];
  printf("\ntrain is shuffled, the others come in order. 1 is ideal for: the variance ratio of its "
         "batches, %.2f expected and\n",
      train->plan.variance_ratio);
  printf("%.2f measured; the gap of neighbours, %.2f.\n", train->quality.variance_ratio,
      train->quality.gap_score);
}

int main(int argc, char **argv) {
  static insitu_variable variables[2 * MAX_ARRAYS];
  static char labels[2 * MAX_ARRAYS][64];
  const char *usual[] = {"uwnd", "vwnd"};
  int n = argc > 2 ? argc - 2 : 2;
  if (n > MAX_ARRAYS || (argc > 1 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: 04_plan_only [ARCHIVE [ARRAY...]], at most %d arrays\n", MAX_ARRAYS);
    return 2;
  }
  for (int i = 0; i < 2 * n; i++) {
    const char *path = argc > 2 ? argv[2 + i % n] : usual[i % n];
    snprintf(labels[i], sizeof labels[i], "%.55s%s", path, i < n ? "" : "[+1]");
    variables[i] = (insitu_variable){.label = labels[i], .path = path, .offset = i < n ? 0 : 1};
  }
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = argc > 1 ? argv[1] : "examples/data/winds.zarr",
      .variables = variables,
      .n_variables = 2 * (uint64_t)n,
      .batch_size = 8,
      .plan_only = 1};
  insitu_loader *loader = open_loader(&desc);
  print_batch(loader);
  print_splits(loader);
  insitu_loader_close(&loader);

  printf("\nunit_chunks  lanes  chunks read  amplification  dedup  variance ratio   of train\n");
  for (desc.unit_chunks = 1; desc.unit_chunks <= 4; desc.unit_chunks *= 2) {
    loader = open_loader(&desc);
    struct cost c = cost_of(loader, INSITU_TRAIN);
    if (c.empty) printf("%11" PRIu64 "      -\n", desc.unit_chunks);
    else
      printf("%11" PRIu64 " %6" PRIu64 " %12" PRIu64, desc.unit_chunks, c.plan.lanes, c.plan.reads);
    if (!c.empty)
      printf(
          " %14.2f %6.2f %15.2f\n", c.plan.amplification, c.plan.dedup, c.quality.variance_ratio);
    insitu_loader_close(&loader);
  }
  return 0;
}
