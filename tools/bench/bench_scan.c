/* How fast insitu scan is beside insitu verify, on raw float32 in local files that the page cache
 * has: verify reads them, and no more.
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -Itools/bench -o build/bench_scan \
 *       tools/bench/bench_scan.c -luring -lcurl -llz4 -lzstd -lpthread -lm
 *     build/bench_scan build/insitu [ROUNDS [KIB [MIB]]]
 *
 * KIB: of a chunk (16384), of four samples where these then have 64 KiB or more; MIB: of the
 * archive (640), which is written to $TMPDIR. A round runs each of these in a process of its own,
 * in an order that turns:
 *
 *   verify      insitu verify
 *   scan        insitu scan
 *   bare read   reads all chunks in pieces of 512 KiB, on two threads
 *   bare scan   the same, and measures each piece: no scan of whole pieces does less
 *
 * Printed are the medians over rounds of verify's time / the way's time, of the wall and of the
 * processor, each with its 95 % interval, and the median times. The bare programs have nothing to
 * open and few libraries to load: that is 10 ms of each run of the command. */
#define INSITU_IMPLEMENTATION
#define INSITU_STATIC
#include "insitubatch.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include "bench_summary.h"

enum { VERIFY, SCAN, BARE_READ, BARE_SCAN, WAYS };
static const char *const names[] = {"verify", "scan", "bare read", "bare scan"};
enum { MOST = 1001, PIECE = 512 << 10, FOUR = 4 * INSITU__MOMENTS_BLOCK };
static char folder[400];
static uint64_t chunks, chunk_bytes;

static void fail(const char *what) {
  perror(what);
  exit(1);
}
static void name_of(char to[440], uint64_t chunk) {
  snprintf(to, 440, "%s/%d.0", folder, (int)chunk);
}
/* Waves and noise, so that bins of the sketch are many. */
static void make(void) {
  uint64_t rows = chunk_bytes >= 256 << 10 ? 4 : 1, n = chunk_bytes / 4, noise = 1;
  char path[440];
  float *x = malloc(chunk_bytes);
  if (!x || mkdir(folder, 0700)) fail(folder);
  snprintf(path, sizeof path, "%s/.zarray", folder);
  FILE *f = fopen(path, "w");
  if (!f) fail(path);
  fprintf(f,
      "{\"zarr_format\": 2, \"shape\": [%d, %d], \"chunks\": [%d, %d], \"dtype\": \"<f4\", "
      "\"compressor\": null, \"fill_value\": 0, \"order\": \"C\", \"filters\": null}",
      (int)(chunks * rows), (int)(n / rows), (int)rows, (int)(n / rows));
  fclose(f);
  for (uint64_t i = 0; i < chunks; i++) {
    for (uint64_t k = 0; k < n; k++) {
      noise ^= noise << 13;
      noise ^= noise >> 7;
      noise ^= noise << 17;
      x[k] = (float)(280 + 20 * (double)((i * 7 + k / 64) % 1000) / 1000 +
                     (double)(noise >> 11) * 0x1p-53);
    }
    name_of(path, i);
    f = fopen(path, "wb");
    if (!f || fwrite(x, chunk_bytes, 1, f) != 1 || fclose(f)) fail(path);
  }
  free(x);
}
static void drop(void) {
  char path[440];
  for (uint64_t i = 0; i < chunks; i++) {
    name_of(path, i);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s/.zarray", folder);
  unlink(path);
  rmdir(folder);
}

static atomic_uint_least64_t next_chunk;
static bool measures;
static void *bare(void *unused) {
  char path[440], *window = insitu__mem_map(PIECE);
  struct insitu__moments_tally *tally = insitu__mem_map(sizeof *tally);
  struct insitu__moments *m = calloc(1, sizeof *m);
  const struct insitu__moments_kernel *kernel = insitu__moments_kernel_of(false, false);
  if (!window || !tally || !m || (measures && !kernel->four)) exit(1);
  for (uint64_t i; (i = atomic_fetch_add(&next_chunk, 1)) < chunks;) {
    name_of(path, i);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(path);
    for (uint64_t at = 0; at < chunk_bytes; at += PIECE) {
      uint64_t n = insitu__base_min(PIECE, chunk_bytes - at);
      if (pread(fd, window, n, (off_t)at) != (ssize_t)n) fail(path);
      for (uint64_t k = 0; measures && k + 4 * FOUR <= n; k += 4 * FOUR) {
        struct insitu__moments_part part[4];
        if (!kernel->four(tally, window + k, NULL, window + k, part)) exit(1);
        for (int b = 0; b < 4; b++) insitu__moments_count(m, &part[b], INSITU__MOMENTS_BLOCK);
      }
    }
    close(fd);
  }
  return unused;
}
static void bare_main(void) {
  pthread_t other;
  bool two = !pthread_create(&other, NULL, bare, NULL);
  bare(NULL);
  if (two) pthread_join(other, NULL);
  _exit(0);
}

/* Runs a way; its wall and processor time. */
static void run(int way, const char *tool, double *wall, double *cpu) {
  struct rusage used;
  int status, null = open("/dev/null", O_WRONLY);
  char out[440];
  snprintf(out, sizeof out, "%s.json", folder);
  int64_t begin = insitu__base_now();
  pid_t child = fork();
  if (!child) {
    dup2(null, 1);
    dup2(null, 2);
    measures = way == BARE_SCAN;
    if (way >= BARE_READ) bare_main();
    if (way == VERIFY) execl(tool, tool, "verify", folder, (char *)NULL);
    execl(tool, tool, "scan", folder, "--split", "all", "--out", out, (char *)NULL);
    _exit(127);
  }
  if (wait4(child, &status, 0, &used) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
    fprintf(stderr, "%s %s failed\n", tool, names[way]);
    drop();
    exit(1);
  }
  *wall = (double)(insitu__base_now() - begin) * 1e-9;
  *cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  close(null);
  unlink(out);
}

int main(int argc, char **argv) {
  static double wall[WAYS][MOST], cpu[WAYS][MOST], wall_share[MOST], cpu_share[MOST];
  const char *tool = argc > 1 ? argv[1] : "build/insitu", *tmp = getenv("TMPDIR");
  uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 15;
  chunk_bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 16384) << 10;
  uint64_t bytes = (argc > 4 ? strtoull(argv[4], NULL, 10) : 640) << 20;
  if (!rounds || rounds > MOST || !chunk_bytes || bytes < chunk_bytes) return 1;
  chunks = bytes / chunk_bytes;
  snprintf(folder, sizeof folder, "%.300s/bench_scan.%d.zarr", tmp ? tmp : "/tmp", (int)getpid());
  make();
  for (uint64_t r = 0; r < rounds; r++)
    for (int i = 0; i < WAYS; i++) {
      int way = (i + (int)r) % WAYS;
      run(way, tool, &wall[way][r], &cpu[way][r]);
    }
  printf("%d chunks of %d KiB; verify's time / time\n", (int)chunks, (int)(chunk_bytes >> 10));
  for (int way = 0; way < WAYS; way++) {
    for (uint64_t r = 0; r < rounds; r++) {
      wall_share[r] = wall[VERIFY][r] / wall[way][r];
      cpu_share[r] = cpu[VERIFY][r] / cpu[way][r];
    }
    struct summary w = summarise(wall_share, rounds), c = summarise(cpu_share, rounds);
    printf("  %-10s wall %.3f  [%.3f, %.3f]  processor %.3f  [%.3f, %.3f]  %.1f ms, %.1f ms\n",
        names[way], w.mid, w.low, w.high, c.mid, c.low, c.high,
        1e3 * summarise(wall[way], rounds).mid, 1e3 * summarise(cpu[way], rounds).mid);
  }
  drop();
  return 0;
}
