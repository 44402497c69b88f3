/* mpicc -O2 -I. examples/15_mpi.c -o 15_mpi -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* Needs <mpi.h>: MPI, such as Debian's libopenmpi-dev, and its compiler mpicc */
/* Data-parallel training under MPI: forecasts next month's winds from this month's. The losses are
 * the same bit for bit on 1, 2 and 4 ranks, and a run that was killed goes on at another size.
 *
 *   mpirun -n 4 ./15_mpi [--archive ZARR] [--checkpoint FILE] [--epochs N] [--die STEP]
 *
 * Three things make runs equal. The loader delivers the same global batch at every world size. Each
 * rank owns whole lanes of it (row i of the global batch is of lane i % LANES), and sums the
 * gradients of a lane in the lane's own order. The lanes' sums are added pairwise, along one tree:
 * within a rank as far as it has them, then between ranks. Who adds them changes nothing.
 * A checkpoint is the model and the insitu_state of the last batch, replaced at once by rename.
 * --die kills the last rank at that step, as a machine that fails. */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GLOBAL_BATCH = 16, LANES = 4, HIDDEN = 2, SAVE_EVERY = 5 };
enum { PER_VALUE = 2 + 2 * HIDDEN }; /* damp, bias, encode, decode */
enum { U, V, U_NEXT, V_NEXT, VARIABLES };
static const float RATE = 0.01f;

/* What a checkpoint holds; then follow the parameters, and Adam's two moments. */
struct head {
  char magic[8];
  uint64_t values, steps;
  insitu_state state;
};

static int rank, world;
static uint64_t field, n, size; /* of one wind; of both; parameters of the model */
static float *model;            /* (3, size): parameters, moments */
static float *lane[LANES];      /* (size + 1): gradients, and the loss behind them */
static float *other;            /* (size + 1): of another rank */
static struct head saved = {.magic = "winds 1"};

/* Ends all ranks: one that waits for another would wait for ever. */
static void die(const char *what) {
  fprintf(stderr, "15_mpi, rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 2);
  exit(2);
}

static void check(insitu_status status, const insitu_error *err) {
  if (status < 0) die(err->message);
}

static float *floats(uint64_t count) {
  float *p = calloc(count, sizeof *p);
  if (!p) die("no memory");
  return p;
}

/* ---- one sample ---- */

static const float *row_of(const insitu_batch *b, int array, uint64_t row) {
  return (const float *)b->arrays[array].data + row * field;
}

/* Adds the gradient of half the squared error of a sample, and the error, to a lane's sums. */
static void sample(const insitu_batch *b, uint64_t row, float *sum) {
  float hidden[HIDDEN] = {0}, back[HIDDEN] = {0};
  for (uint64_t i = 0; i < n; i++) {
    float x = row_of(b, U + (i >= field), row)[i % field];
    for (int k = 0; k < HIDDEN; k++) hidden[k] += model[i * PER_VALUE + 2 + (uint64_t)k] * x;
  }
  for (int k = 0; k < HIDDEN; k++) hidden[k] = tanhf(hidden[k]);
  for (uint64_t i = 0; i < n; i++) {
    const float *p = model + i * PER_VALUE;
    float x = row_of(b, U + (i >= field), row)[i % field], *g = sum + i * PER_VALUE;
    float miss = p[0] * x + p[1] - row_of(b, U_NEXT + (i >= field), row)[i % field];
    for (int k = 0; k < HIDDEN; k++) miss += p[2 + HIDDEN + k] * hidden[k];
    for (int k = 0; k < HIDDEN; k++) back[k] += miss * p[2 + HIDDEN + k];
    for (int k = 0; k < HIDDEN; k++) g[2 + HIDDEN + k] += miss * hidden[k];
    g[0] += miss * x;
    g[1] += miss;
    sum[size] += miss * miss / (float)n;
  }
  for (int k = 0; k < HIDDEN; k++) back[k] *= 1 - hidden[k] * hidden[k];
  for (uint64_t i = 0; i < n; i++) {
    float x = row_of(b, U + (i >= field), row)[i % field];
    for (int k = 0; k < HIDDEN; k++) sum[i * PER_VALUE + 2 + (uint64_t)k] += back[k] * x;
  }
}

/* ---- the sum of all lanes: ((0 + 1) + (2 + 3)), whoever has them ---- */

static void add(float *to, const float *from) {
  for (uint64_t i = 0; i <= size; i++) to[i] += from[i];
}

/* Every rank has the sum in lane[0] then: each adds the same two numbers at each node of the tree,
 * and a + b is b + a. */
static void reduce(void) {
  int own = LANES / world;
  for (int step = 1; step < own; step *= 2)
    for (int k = 0; k + step < own; k += 2 * step) add(lane[k], lane[k + step]);
  for (int step = 1; step < world; step *= 2) {
    int partner = rank ^ step;
    MPI_Sendrecv(lane[0], (int)size + 1, MPI_FLOAT, partner, step, other, (int)size + 1, MPI_FLOAT,
        partner, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    add(lane[0], other);
  }
}

/* One step of Adam (Kingma and Ba 2015); the same on every rank. */
static void learn(const float *gradient) {
  float first = 1 - powf(0.9f, (float)saved.steps), second = 1 - powf(0.99f, (float)saved.steps);
  float *mean = model + size, *square = mean + size;
  for (uint64_t i = 0; i < size; i++) {
    float g = gradient[i] / GLOBAL_BATCH, rate = i % PER_VALUE < 2 ? RATE : RATE / 100;
    mean[i] += 0.1f * (g - mean[i]);
    square[i] += 0.01f * (g * g - square[i]);
    model[i] -= rate * (mean[i] / first) / (sqrtf(square[i] / second) + 1e-8f);
  }
}

/* ---- checkpoints ---- */

static void save(const char *path) {
  char fresh[4096];
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE *f = fopen(fresh, "wb");
  if (!f || fwrite(&saved, sizeof saved, 1, f) != 1 ||
      fwrite(model, sizeof *model, 3 * size, f) != 3 * size || fflush(f) || fsync(fileno(f)) ||
      fclose(f) || rename(fresh, path))
    die("the checkpoint cannot be written");
}

/* Rank 0 reads the checkpoint, and all take it. False: there is none, and training begins. */
static int load(const char *path) {
  struct head head = {.values = 0};
  FILE *f = rank == 0 && path ? fopen(path, "rb") : NULL;
  if (f && fread(&head, sizeof head, 1, f) != 1) die("the checkpoint is too short");
  MPI_Bcast(&head, sizeof head, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (!head.values) return 0;
  if (memcmp(head.magic, saved.magic, sizeof head.magic) || head.values != n)
    die("the checkpoint is of another model");
  if (f && fread(model, sizeof *model, 3 * size, f) != 3 * size) die("the checkpoint is too short");
  if (f) fclose(f);
  MPI_Bcast(model, (int)(3 * size), MPI_FLOAT, 0, MPI_COMM_WORLD);
  saved = head;
  return 1;
}

/* ---- training ---- */

static void init(const insitu_loader *loader) {
  const insitu_array *u = insitu_loader_array(loader, U);
  uint64_t random = 1;
  field = u->row_bytes / sizeof(float);
  n = 2 * field;
  size = n * PER_VALUE;
  saved.values = n;
  model = floats(3 * size);
  for (int k = 0; k < LANES / world; k++) lane[k] = floats(size + 1);
  other = floats(size + 1);
  for (uint64_t i = 0; i < size; i++) { /* encode begins at random, damp at persistence */
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (i % PER_VALUE == 0) model[i] = 1;
    if (i % PER_VALUE >= 2 && i % PER_VALUE < 2 + HIDDEN)
      model[i] = (float)((double)(random >> 40) / 0x1p23 - 1) / sqrtf((float)n);
  }
}

/* One global batch: this rank's rows, lane by lane; then the step that all make together. */
static void step(const insitu_batch *b) {
  uint64_t own = (uint64_t)(LANES / world);
  for (uint64_t k = 0; k < own; k++) {
    memset(lane[k], 0, (size + 1) * sizeof(float));
    for (uint64_t row = k; row < b->rows; row += own) sample(b, row, lane[k]);
  }
  reduce();
  saved.steps++;
  saved.state = b->after;
  learn(lane[0]);
  if (rank == 0) /* all digits of a float */
    printf("step %3" PRIu64 "  epoch %2" PRIu64 "  loss %.9g\n", saved.steps, b->epoch,
        (double)(lane[0][size] / GLOBAL_BATCH));
}

static void train(insitu_loader *loader, const char *checkpoint, uint64_t epochs, uint64_t last) {
  const insitu_iter_desc pass = {.api = INSITU_API};
  insitu_error err;
  insitu_iter *iter = NULL;
  insitu_batch *b = NULL;
  uint64_t epoch = 0;
  check(insitu_iter_open(loader, &pass, &iter, &err), &err);
  if (load(checkpoint)) {
    check(insitu_iter_restore(iter, &saved.state, &err), &err);
    if (rank == 0) printf("goes on behind step %" PRIu64 "\n", saved.steps);
  }
  while (epoch < epochs) {
    insitu_status status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err);
    check(status, &err);
    if (status == INSITU_END) continue; /* the next call begins the following epoch */
    epoch = b->epoch;
    if (epoch < epochs) step(b);
    insitu_batch_release(&b);
    if (epoch >= epochs) break;
    if (rank == 0 && checkpoint && saved.steps % SAVE_EVERY == 0) save(checkpoint);
    if (saved.steps == last && rank == world - 1) raise(SIGKILL);
  }
  insitu_iter_close(&iter);
}

int main(int argc, char **argv) {
  const char *archive = "examples/data/winds.zarr", *checkpoint = NULL;
  uint64_t epochs = 5, last = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (LANES % world) die("run it on 1, 2 or 4 ranks");
  for (int i = 1; i + 1 < argc; i += 2)
    if (!strcmp(argv[i], "--archive")) archive = argv[i + 1];
    else if (!strcmp(argv[i], "--checkpoint")) checkpoint = argv[i + 1];
    else if (!strcmp(argv[i], "--epochs")) epochs = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--die")) last = strtoull(argv[i + 1], NULL, 10);
    else die("usage: 15_mpi [--archive ZARR] [--checkpoint FILE] [--epochs N] [--die STEP]");

  const insitu_op norm = {.kind = INSITU_OP_NORM, .a = 0, .b = 4};
  insitu_variable v[VARIABLES] = {{.label = "u", .path = "uwnd"}, {.label = "v", .path = "vwnd"},
      {.label = "u_next", .path = "uwnd", .offset = 1},
      {.label = "v_next", .path = "vwnd", .offset = 1}};
  for (int i = 0; i < VARIABLES; i++) v[i].ops = &norm, v[i].n_ops = 1;
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = archive,
      .variables = v,
      .n_variables = VARIABLES,
      .rank = INSITU_RANK_FROM_ENV, /* as mpirun tells it; or rank and world from MPI */
      .batch_size = (uint64_t)(GLOBAL_BATCH / world),
      .lanes = LANES, /* at every world size */
      .split = {{.fraction = 8.0 / 11}, {.fraction = 1.0 / 11}, {.fraction = 2.0 / 11}}};
  insitu_error err;
  insitu_loader *loader = NULL;
  check(insitu_loader_open(&desc, &loader, &err), &err);
  const insitu_loader_desc *told = insitu_loader_config(loader);
  if (told->rank != rank || told->world != world) die("the launcher and MPI differ");
  init(loader);
  train(loader, checkpoint, epochs, last);
  insitu_loader_close(&loader);
  MPI_Finalize();
  return 0;
}
