/* A version of the header as a user sees it: an iterator's epochs, by public functions alone, so
 * that today's file compiles with an older header, too. For bench.c, and for bench_side.c, which
 * bench-against compiles with both versions. */
#ifndef TOOLS_BENCH_SIDE_H
#define TOOLS_BENCH_SIDE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/resource.h>
#include <time.h>

enum { MAX_STEPS = 64 };

struct row {
  char name[64];
  const char *field; /* what its samples are: see bench.c */
  int codec;
  bool small, sharded, cold;
  unsigned threads;
  uint64_t samples, chunk, ny, nx, batch;
  uint64_t steps;     /* neighbouring samples that a batch's row shows; 0: one, without an axis */
  uint64_t per_shard; /* chunks of a shard; 1 when not sharded */
  uint64_t bytes, stored; /* decoded, stored */
  uint64_t *length;       /* stored bytes of each file */
};
struct cost {
  double wall, cpu; /* seconds */
};

static void die(const char *what) {
  fprintf(stderr, "bench: %s: %s\n", what, errno ? strerror(errno) : "failed");
  exit(1);
}
static void must(bool ok, const char *what) {
  if (!ok) die(what);
}
static void *take(uint64_t n, size_t size) {
  void *p = calloc(n, size);
  must(p != NULL, "calloc");
  return p;
}
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* of all threads, the kernel's io_uring workers of this process among them */
static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct options {
  uint64_t rounds, depth, inflight, block, threads;
  const char *only, *dir, *profile, *planning, *against;
  int io;
  bool json, keep, inline_io, bare, full, list, in_order, quick, hedge, gather;
};
struct side {
  insitu_loader *loader;
  insitu_iter *iter;
  uint64_t batches, ring_bytes;
  insitu_error refusal;
};

static void check(insitu_status status, const insitu_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "bench: %s: %s\n", insitu_status_name(status), err->message);
  exit(1);
}

/* False: the loader cannot read shards; why is in s->refusal. */
static bool side_open(
    struct side *s, const struct row *r, const char *dir, const struct options *o, bool hold) {
  insitu_error err = {0};
  insitu_plan plan;
  int64_t step[MAX_STEPS];
  insitu_variable v = {.label = "f", .steps = step, .n_steps = r->steps};
  const insitu_option hedge = {"hedge", "true"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = dir,
      .options = &hedge,
      .n_options = o->hedge,
      .variables = &v,
      .n_variables = 1,
      .batch_size = r->batch,
      .seed = 1,
      .split = {{.fraction = 1}},
      .hold_epoch = hold,
      .prefetch_depth = o->depth,
      .max_inflight = o->inflight,
      .decode_threads = o->threads ? o->threads : r->threads,
      .block_chunks = o->block,
      .io = o->io,
      .inline_io = o->inline_io};
  memset(s, 0, sizeof *s);
  for (int64_t k = 0; k < MAX_STEPS; k++) step[k] = k;
  insitu_status status = insitu_loader_open(&d, &s->loader, &err);
  if (status && r->sharded && strstr(err.message, "sharding")) {
    s->refusal = err;
    return false;
  }
  check(status, &err);
  const insitu_iter_desc train = {.api = INSITU_API, .split = INSITU_TRAIN};
  check(insitu_loader_plan(s->loader, &train, &plan, &err), &err);
  check(insitu_iter_open(s->loader, &train, &s->iter, &err), &err);
  errno = 0;
  must(r->steps || (plan.rows == r->samples && plan.amplification == 1),
      "an epoch is not every chunk once");
  s->batches = plan.batches;
  s->ring_bytes = plan.slabs * plan.slab_bytes;
  return true;
}

static insitu_batch *side_next(struct side *s) {
  insitu_error err = {0};
  insitu_batch *b = NULL;
  insitu_status status = insitu_iter_next(s->iter, INSITU_FOREVER, &b, &err);
  if (status == INSITU_END) status = insitu_iter_next(s->iter, INSITU_FOREVER, &b, &err);
  check(status, &err);
  errno = 0;
  must(b != NULL, "an epoch ends early");
  return b;
}
static void side_check(const insitu_batch *b) {
  uint64_t stride = (uint64_t)b->arrays[0].strides[0];
  for (uint64_t k = 0; k < b->rows; k++)
    if (((const float *)b->arrays[0].data)[k * stride] != (float)b->sample_indices[k])
      die("a row shows another sample");
}

/* One epoch. Because of hold_epoch the loader is idle from here to the next call, which begins by
 * taking END. */
static struct cost side_round(struct side *s) {
  double wall = seconds(), cpu = cpu_seconds();
  for (uint64_t i = 0; i < s->batches; i++) {
    insitu_batch *b = side_next(s);
    side_check(b);
    must(b->index == i, "an epoch has another number of batches");
    insitu_batch_release(&b);
  }
  return (struct cost){seconds() - wall, cpu_seconds() - cpu};
}

static void side_close(struct side *s) {
  insitu_iter_close(&s->iter);
  insitu_loader_close(&s->loader);
}

/* What a version offers as a shared object: see bench_side.c. */
struct side_version {
  /* a loader and its iterator, on an archive's folder or URL */
  void *(*open)(const struct row *, const char *where, const struct options *);
  struct cost (*round)(void *side); /* one epoch */
  void (*close)(void *side);
};
#endif
