/* What a timeline and receipts cost: processor time of the whole process, with and without.
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -Itools/bench -o build/bench_trace \
 *       tools/bench/bench_trace.c -luring -lcurl -llz4 -lzstd -lpthread -lm
 *     build/bench_trace [ROUNDS]
 *     valgrind --tool=callgrind build/bench_trace 1 none|plain|trace [BYTES [zstd]]
 *
 * Archives in memory, so that nothing waits: chunks of 16 to 256 KiB, raw and zstd. A round runs
 * each way once, in an order that turns; printed are the median over rounds of time / plain time,
 * and its 95 % interval. Opening, and writing the file at close, are not in it. callgrind counts
 * instructions of one run, on a machine that is busy: insitu__open_destroy writes the file. */
#define INSITU_IMPLEMENTATION
#define INSITU_STATIC
#include "insitubatch.h"
#include "bench_summary.h"

enum { PLAIN, TRACED, ANCHORS, BYTES, WAYS };
static const char *const names[] = {"plain", "trace", "receipts: anchors", "receipts: bytes"};
enum { MOST = 1001, SAMPLES = 2048 };

struct archive {
  insitu_object *objects;
  char (*keys)[24];
  uint64_t n;
};

/* An archive of SAMPLES chunks, each one sample of `bytes` float32 bytes. */
static struct archive make(uint64_t bytes, bool zstd) {
  static char meta[512];
  struct archive a = {.n = SAMPLES + 1};
  a.objects = calloc(a.n, sizeof *a.objects);
  a.keys = calloc(a.n, sizeof *a.keys);
  float *row = malloc(bytes);
  void *packed = malloc(ZSTD_compressBound(bytes));
  if (!a.objects || !a.keys || !row || !packed) exit(1);
  int n = snprintf(meta, sizeof meta,
      "{\"zarr_format\": 2, \"shape\": [%d, %d], \"chunks\": [1, %d], \"dtype\": \"<f4\", "
      "\"compressor\": %s, \"fill_value\": 0, \"order\": \"C\", \"filters\": null}",
      SAMPLES, (int)(bytes / 4), (int)(bytes / 4),
      zstd ? "{\"id\": \"zstd\", \"level\": 1}" : "null");
  a.objects[0] = (insitu_object){".zarray", strdup(meta), (uint64_t)n};
  for (uint64_t i = 0; i < SAMPLES; i++) {
    for (uint64_t k = 0; k < bytes / 4; k++) row[k] = (float)((i + k / 16) % 997);
    size_t size = bytes;
    void *to = row;
    if (zstd) {
      size = ZSTD_compress(packed, ZSTD_compressBound(bytes), row, bytes, 1);
      to = packed;
    }
    void *kept = malloc(size);
    if (!kept) exit(1);
    memcpy(kept, to, size);
    snprintf(a.keys[i], sizeof a.keys[i], "%d.0", (int)i);
    a.objects[i + 1] = (insitu_object){a.keys[i], kept, size};
  }
  free(row);
  free(packed);
  return a;
}
static void drop(struct archive *a) {
  for (uint64_t i = 0; i < a->n; i++) free((void *)(uintptr_t)a->objects[i].bytes);
  free(a->objects);
  free(a->keys);
}

static double cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Processor time of an epoch; opening and writing the file are not in it. */
static double run(const struct archive *a, int way, uint64_t threads) {
  static const insitu_variable x = {.label = "x", .path = ""};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = "memory://bench",
      .objects = a->objects,
      .n_objects = a->n,
      .variables = &x,
      .n_variables = 1,
      .batch_size = 32,
      .split = {{.fraction = 1}},
      .decode_threads = threads,
      .hold_epoch = 1,
      .trace = way == TRACED ? "/dev/null" : NULL,
      .receipts = way == ANCHORS ? INSITU_RECEIPT_ANCHORS
                  : way == BYTES ? INSITU_RECEIPT_BYTES
                                 : 0};
  insitu_iter_desc pass = {.api = INSITU_API};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it;
  insitu_batch *b;
  if (insitu_loader_open(&d, &ld, &err) || insitu_iter_open(ld, &pass, &it, &err)) {
    fprintf(stderr, "%s\n", err.message);
    exit(1);
  }
  while (insitu_iter_next(it, -1, &b, &err) == INSITU_OK) insitu_batch_release(&b); /* warm */
  insitu_iter_set_epoch(it, 1, &err);
  double begin = cpu();
  while (insitu_iter_next(it, -1, &b, &err) == INSITU_OK) insitu_batch_release(&b);
  double took = cpu() - begin;
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return took;
}

int main(int argc, char **argv) {
  static double ratio[WAYS][MOST];
  static const uint64_t sizes[] = {16 << 10, 64 << 10, 256 << 10};
  uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 31;
  const char *only = argc > 2 ? argv[2] : ""; /* none, plain, trace [BYTES [zstd]]: for callgrind */
  if (!rounds || rounds > MOST) return 1;
  if (*only) {
    struct archive a = make(argc > 3 ? strtoull(argv[3], NULL, 10) : sizes[1], argc > 4);
    if (strcmp(only, "none")) run(&a, strcmp(only, "trace") ? PLAIN : TRACED, 1);
    drop(&a);
    return 0;
  }
  for (int k = 0; k < 2 * (int)(sizeof sizes / sizeof *sizes); k++) {
    struct archive a = make(sizes[k / 2], k % 2);
    double plain = 0;
    for (uint64_t r = 0; r < rounds; r++) {
      double took[WAYS];
      for (int i = 0; i < WAYS; i++) {
        int way = (i + (int)r) % WAYS;
        took[way] = run(&a, way, 2);
      }
      plain += took[PLAIN] / (double)rounds;
      for (int way = 0; way < WAYS; way++) ratio[way][r] = took[way] / took[PLAIN];
    }
    printf("%3d KiB %s: %.2f us of processor time a chunk\n", (int)(sizes[k / 2] >> 10),
        k % 2 ? "zstd" : "raw ", 1e6 * plain / SAMPLES);
    for (int way = TRACED; way < WAYS; way++) {
      struct summary s = summarise(ratio[way], rounds);
      printf("  %-18s %.4f  [%.4f, %.4f]\n", names[way], s.mid, s.low, s.high);
    }
    drop(&a);
  }
  return 0;
}
