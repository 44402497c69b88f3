/* cc -O2 -I. examples/13_ranks_with_boxes.c -o 13_ranks_with_boxes -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* A model that is split over processes in space: each rank reads its own box of the same batches.
 * What is selected decides neither the order nor the state, so that nothing has to be sent for it.
 * Here are 2 x 3 ranks, as processes: 2 of the samples (rank and world of the desc), and of each of
 * these 3 of bands of latitudes. The first process then reads whole fields, and compares what the
 * ranks saw with them. Run: ./13_ranks_with_boxes */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include <sys/wait.h>
enum { SAMPLE_RANKS = 2, BANDS = 3, RANKS = SAMPLE_RANKS * BANDS, BATCHES = 5, ROWS = 8 };
static const char *const band[BANDS] = {"lat=90..30", "lat=27.5..-27.5", "lat=-30..-90"};

/* What a rank tells of a batch: its samples, and the sum of all winds of each in its box. */
struct seen {
  int64_t sample[ROWS];
  double sum[ROWS];
  insitu_state after;
};

/* Reads BATCHES batches; returns how many came. */
static int train(const char *select, int rank, int world, struct seen *seen) {
  const insitu_variable v = {.label = "uwnd", .select = select, .dtype = INSITU_F32};
  insitu_loader_desc desc = {.api = INSITU_API, .variables = &v, .n_variables = 1};
  desc.url = "examples/data/winds.zarr";
  desc.rank = rank, desc.world = world;
  desc.batch_size = ROWS / world;
  desc.lanes = SAMPLE_RANKS; /* ranks share out lanes: the same ones for every world */
  insitu_iter_desc pass = {.api = INSITU_API};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b;
  insitu_error err;
  int n = 0;

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status) status = insitu_iter_open(loader, &pass, &iter, &err);
  for (; !status && n < BATCHES; n++) {
    if ((status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err))) break;
    const float *u = b->arrays[0].data;
    uint64_t field = b->arrays[0].row_bytes / sizeof *u;
    for (uint64_t row = 0; row < b->rows; row++) {
      seen[n].sample[row] = b->sample_indices[row];
      for (uint64_t i = 0; i < field; i++) seen[n].sum[row] += u[row * field + i];
    }
    seen[n].after = b->after;
    insitu_batch_release(&b);
  }
  if (status) fprintf(stderr, "rank %d: %s\n", rank, err.message);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return n;
}

int main(void) {
  static struct seen whole[BATCHES];
  /* ranks write what they saw into memory that this process sees, too */
  struct seen(*rank)[BATCHES] =
      mmap(NULL, RANKS * sizeof *rank, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (rank == MAP_FAILED) return 1;
  fflush(stdout);
  for (int r = 0; r < RANKS; r++)
    if (!fork()) _exit(train(band[r % BANDS], r / BANDS, SAMPLE_RANKS, rank[r]) != BATCHES);
  int failed = 0;
  for (int r = 0, status; r < RANKS; r++) failed += wait(&status) < 0 || status;
  failed += train(NULL, 0, 1, whole) != BATCHES;

  for (int n = 0; n < BATCHES && !failed; n++) {
    for (int row = 0; row < ROWS; row++) {
      int part = row % SAMPLE_RANKS, at = row / SAMPLE_RANKS; /* where the rows of a lane go */
      double sum = 0;
      for (int r = part * BANDS; r < (part + 1) * BANDS; r++) {
        failed += rank[r][n].sample[at] != whole[n].sample[row];
        sum += rank[r][n].sum[at];
      }
      failed += fabs(sum - whole[n].sum[row]) > 1e-6;
    }
    for (int r = 0; r < RANKS; r++)
      failed += memcmp(&rank[r][n].after, &whole[n].after, sizeof whole[n].after) != 0;
    printf("batch %d:", n);
    for (int r = 0; r < RANKS; r += BANDS) {
      printf(" ranks %d to %d read months", r, r + BANDS - 1);
      for (int at = 0; at < ROWS / SAMPLE_RANKS; at++) printf(" %3d", (int)rank[r][n].sample[at]);
      printf(r + BANDS < RANKS ? ";" : "\n");
    }
  }
  if (failed) printf("the ranks do not agree\n");
  else printf("The bands of each month add up to its whole field, and all states are equal.\n");
  return failed != 0;
}
