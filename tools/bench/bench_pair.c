/* Two archives with the same values, in turns: how much longer an epoch of the second one takes.
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -Itools/bench -o build/bench_pair \
 *       tools/bench/bench_pair.c -luring -lcurl -llz4 -lzstd -lpthread -lm
 *     build/bench_pair FIRST SECOND VARIABLE [ROUNDS [BATCH_SIZE]]
 *
 * For instance a plain Zarr archive and an Icechunk repository with the same chunks, both served by
 * `build/server -l 20 FOLDER` (make build/server). A round opens each, and reads one shuffled epoch
 * with the defaults, in an order that turns; the batches of both must have the same bytes. Printed
 * are the rate of the second one as a share of the first one's, the median of the rounds and its
 * 95 % interval, for the epoch alone and with opening; and the requests of each. */
#define INSITU_IMPLEMENTATION
#define INSITU_STATIC
#include "insitubatch.h"
#include "bench_summary.h"

enum { MOST = 1001 };
struct pass {
  double epoch, whole; /* seconds */
  uint64_t requests, hash;
};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void must(insitu_status status, const char *url, const insitu_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", url, insitu_status_name(status), err->message);
  exit(1);
}

static struct pass read_epoch(const char *url, const char *variable, uint64_t batch_size) {
  insitu_variable v = {.label = "x", .path = variable};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = &v,
      .n_variables = 1,
      .batch_size = batch_size,
      .split = {{.fraction = 1}},
      .log_level = INSITU_LOG_WARN};
  insitu_iter_desc id = {.api = INSITU_API, .order = INSITU_SHUFFLED};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};
  insitu_stats stats;
  struct pass p = {0};
  insitu_status status;

  double began = seconds();
  must(insitu_loader_open(&d, &ld, &err), url, &err);
  double opened = seconds();
  must(insitu_iter_open(ld, &id, &it, &err), url, &err);
  while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    const unsigned char *bytes = b->arrays[0].data;
    for (uint64_t i = 0; i + 8 <= b->arrays[0].bytes; i += 512) { /* some of each row */
      uint64_t word;
      memcpy(&word, bytes + i, 8);
      p.hash = (p.hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    insitu_batch_release(&b);
  }
  must(status == INSITU_END ? INSITU_OK : status, url, &err);
  p.epoch = seconds() - opened;
  p.whole = seconds() - began;
  must(insitu_loader_stats(ld, &stats, &err), url, &err);
  p.requests = stats.requests;
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return p;
}

int main(int argc, char **argv) {
  if (argc < 4) return puts("usage: bench_pair FIRST SECOND VARIABLE [ROUNDS [BATCH_SIZE]]"), 2;
  int rounds = argc > 4 ? atoi(argv[4]) : 15;
  uint64_t batch_size = argc > 5 ? strtoull(argv[5], NULL, 10) : 32;
  static double epoch[MOST], whole[MOST];
  struct pass p[2] = {{0}};
  if (rounds < 1 || rounds > MOST) return puts("ROUNDS is from 1 to 1001"), 2;

  for (int r = -1; r < rounds; r++) { /* the first one warms up */
    for (int k = 0; k < 2; k++) {
      int which = k ^ (r & 1);
      p[which] = read_epoch(argv[1 + which], argv[3], batch_size);
    }
    if (p[0].hash != p[1].hash) return puts("the archives differ"), 1;
    if (r < 0) continue;
    epoch[r] = p[0].epoch / p[1].epoch;
    whole[r] = p[0].whole / p[1].whole;
  }

  printf("last round: %.3f and %.3f s an epoch, %" PRIu64 " and %" PRIu64 " requests\n", p[0].epoch,
      p[1].epoch, p[0].requests, p[1].requests);
  struct summary s = summarise(epoch, (uint64_t)rounds);
  printf("epoch: %.3f of the first one's rate [%.3f, %.3f]\n", s.mid, s.low, s.high);
  s = summarise(whole, (uint64_t)rounds);
  printf("opening and epoch: %.3f [%.3f, %.3f]\n", s.mid, s.low, s.high);
  return 0;
}
