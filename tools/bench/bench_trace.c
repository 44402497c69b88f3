/* What a timeline and receipts cost: processor and wall time of the whole process, with and
 * without.
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -Itools/bench -o build/bench_trace \
 *       tools/bench/bench_trace.c -luring -lcurl -llz4 -lzstd -lpthread -lm
 *     build/bench_trace [ROUNDS]
 *     valgrind --tool=callgrind build/bench_trace 1 none|plain|trace [BYTES [zstd]]
 *
 * Archives in memory, so that nothing waits: chunks of 16 to 256 KiB, raw and zstd; and the
 * smallest raw ones as local files, which the page cache holds. A round runs each way once, in an
 * order that turns; printed are the median over rounds of time / plain time, and its 95 % interval.
 * 81 rounds take five minutes. Opening and close are not in these ratios: what close takes longer
 * with a timeline is printed for each chunk in the file, which is written to $TMPDIR. A ring of
 * records bounds how many these are, however long a run is.
 *
 * callgrind counts instructions of one run, on a machine that is busy: insitu__open_destroy writes
 * the file. */
#define INSITU_IMPLEMENTATION
#define INSITU_STATIC
#include "insitubatch.h"
#include "bench_summary.h"

enum { PLAIN, TRACED, ANCHORS, BYTES, WAYS };
static const char *const names[] = {"plain", "trace", "receipts: anchors", "receipts: bytes"};
enum { MOST = 1001 };
/* The sizes of chunks; how many an archive has, one a sample; epochs that are timed. */
static const struct size {
  uint64_t bytes, chunks, epochs;
} sizes[] = {{16 << 10, 2048, 8}, {64 << 10, 1024, 6}, {256 << 10, 512, 3}};

struct took {
  double cpu, wall, close_cpu, close_wall; /* close: of the loader */
};
static char path[400]; /* of the timeline */

struct archive {
  insitu_object *objects;
  char (*keys)[24];
  uint64_t n;
  bool files; /* it lies in `folder`, too, and is read from there */
};
static char folder[400];

/* An archive of chunks of `bytes` bytes of float32, each one sample. */
static struct archive make(uint64_t chunks, uint64_t bytes, bool zstd) {
  static char meta[512];
  struct archive a = {.n = chunks + 1};
  a.objects = calloc(a.n, sizeof *a.objects);
  a.keys = calloc(a.n, sizeof *a.keys);
  float *row = malloc(bytes);
  void *packed = malloc(ZSTD_compressBound(bytes));
  if (!a.objects || !a.keys || !row || !packed) exit(1);
  int n = snprintf(meta, sizeof meta,
      "{\"zarr_format\": 2, \"shape\": [%d, %d], \"chunks\": [1, %d], \"dtype\": \"<f4\", "
      "\"compressor\": %s, \"fill_value\": 0, \"order\": \"C\", \"filters\": null}",
      (int)chunks, (int)(bytes / 4), (int)(bytes / 4),
      zstd ? "{\"id\": \"zstd\", \"level\": 1}" : "null");
  a.objects[0] = (insitu_object){".zarray", strdup(meta), (uint64_t)n};
  for (uint64_t i = 0; i < chunks; i++) {
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
/* Writes the archive into `folder`. */
static void write_files(struct archive *a) {
  char name[440];
  a->files = true;
  if (mkdir(folder, 0700)) exit(1);
  for (uint64_t i = 0; i < a->n; i++) {
    snprintf(name, sizeof name, "%s/%s", folder, a->objects[i].key);
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(a->objects[i].bytes, a->objects[i].n, 1, f) != 1 || fclose(f)) exit(1);
  }
}
static void drop(struct archive *a) {
  char name[440];
  for (uint64_t i = 0; a->files && i < a->n; i++) {
    snprintf(name, sizeof name, "%s/%s", folder, a->objects[i].key);
    unlink(name);
  }
  if (a->files) rmdir(folder);
  for (uint64_t i = 0; i < a->n; i++) free((void *)(uintptr_t)a->objects[i].bytes);
  free(a->objects);
  free(a->keys);
}

static double clock_of(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void begin(double *cpu, double *wall) {
  *wall = -clock_of(CLOCK_MONOTONIC);
  *cpu = -clock_of(CLOCK_PROCESS_CPUTIME_ID);
}
static void end(double *cpu, double *wall) {
  *cpu += clock_of(CLOCK_PROCESS_CPUTIME_ID);
  *wall += clock_of(CLOCK_MONOTONIC);
}
/* Times epochs, after one that is not timed, and close. */
static struct took run(const struct archive *a, int way, uint64_t threads, uint64_t epochs) {
  static const insitu_variable x = {.label = "x", .path = ""};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = a->files ? folder : "memory://bench",
      .objects = a->files ? NULL : a->objects,
      .n_objects = a->files ? 0 : a->n,
      .variables = &x,
      .n_variables = 1,
      .batch_size = 32,
      .split = {{.fraction = 1}},
      .decode_threads = threads,
      .hold_epoch = 1,
      .trace = way == TRACED ? path : NULL,
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
  struct took took;
  for (uint64_t epoch = 0; epoch <= epochs; epoch++) {
    insitu_iter_set_epoch(it, epoch, &err);
    if (epoch == 1) begin(&took.cpu, &took.wall);
    while (insitu_iter_next(it, -1, &b, &err) == INSITU_OK) insitu_batch_release(&b);
  }
  end(&took.cpu, &took.wall);
  insitu_iter_close(&it);
  begin(&took.close_cpu, &took.close_wall);
  insitu_loader_close(&ld);
  end(&took.close_cpu, &took.close_wall);
  if (way == TRACED) unlink(path); /* a process writes none twice */
  return took;
}

/* The ratios of one kind of archive. */
static void measure(const struct size *size, bool zstd, bool files, uint64_t rounds) {
  static double cpu[WAYS][MOST], wall[WAYS][MOST], close_cpu[MOST], close_wall[MOST];
  struct archive a = make(size->chunks, size->bytes, zstd);
  double plain = 0, timed = 1e-6 * (double)(size->chunks * size->epochs),
         kept = timed + 1e-6 * (double)size->chunks; /* in the file */
  if (files) write_files(&a);
  for (uint64_t r = 0; r < rounds; r++) {
    struct took took[WAYS];
    for (int i = 0; i < WAYS; i++) {
      int way = (i + (int)r) % WAYS;
      took[way] = run(&a, way, 2, size->epochs);
    }
    plain += took[PLAIN].cpu / (double)rounds;
    for (int way = 0; way < WAYS; way++) {
      cpu[way][r] = took[way].cpu / took[PLAIN].cpu;
      wall[way][r] = took[way].wall / took[PLAIN].wall;
    }
    close_cpu[r] = (took[TRACED].close_cpu - took[PLAIN].close_cpu) / kept;
    close_wall[r] = (took[TRACED].close_wall - took[PLAIN].close_wall) / kept;
  }
  printf("%3d KiB %s%s: %.2f us of processor time a chunk; time / plain time\n",
      (int)(size->bytes >> 10), zstd ? "zstd" : "raw ", files ? ", files" : "", plain / timed);
  for (int way = TRACED; way < WAYS; way++) {
    struct summary c = summarise(cpu[way], rounds), w = summarise(wall[way], rounds);
    printf("  %-18s processor %.4f  [%.4f, %.4f]  wall %.4f  [%.4f, %.4f]%s\n", names[way], c.mid,
        c.low, c.high, w.mid, w.low, w.high,
        way == TRACED && c.high > 1.02 ? "  not at most 2 %" : "");
  }
  struct summary c = summarise(close_cpu, rounds), w = summarise(close_wall, rounds);
  printf("  %-18s processor %.2f us a chunk  [%.2f, %.2f]  wall %.2f us  [%.2f, %.2f]\n",
      "trace, at close", c.mid, c.low, c.high, w.mid, w.low, w.high);
  drop(&a);
}

int main(int argc, char **argv) {
  uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 31;
  const char *only = argc > 2 ? argv[2] : ""; /* none, plain, trace [BYTES [zstd]]: for callgrind */
  const char *tmp = getenv("TMPDIR");
  if (!rounds || rounds > MOST) return 1;
  snprintf(folder, sizeof folder, "%.300s/bench_trace.%d.zarr", tmp ? tmp : "/tmp", (int)getpid());
  snprintf(path, sizeof path, "%.300s/bench_trace.%d", tmp ? tmp : "/tmp", (int)getpid());
  if (*only) {
    struct size size = sizes[1];
    if (argc > 3) size.bytes = strtoull(argv[3], NULL, 10);
    struct archive a = make(size.chunks, size.bytes, argc > 4);
    if (strcmp(only, "none")) run(&a, strcmp(only, "trace") ? PLAIN : TRACED, 1, size.epochs);
    drop(&a);
  }
  for (int k = 0; !*only && k < 2 * (int)(sizeof sizes / sizeof *sizes); k++)
    measure(&sizes[k / 2], k % 2, false, rounds);
  if (!*only) measure(&sizes[0], false, true, rounds);
  return 0;
}
