/* Two versions of the header beside each other, in one process: bench.c with --against, which
 * bench-against calls.
 *
 * Each version is two shared objects. bench_side.c of today, compiled with that version's header,
 * runs epochs. What looks inside the header, decoding and planning, is done by that version's own
 * benchmark, which exports bench_version. The rounds of both take turns on the same archive, so
 * that what slows the machine down for a while slows down both. */
#ifndef TOOLS_BENCH_AGAINST_H
#define TOOLS_BENCH_AGAINST_H
#include <dlfcn.h>

/* What a version's benchmark offers. Both versions must know the same decoders. */
struct version {
  void *of_older_ones[2]; /* which held sizes here */
  uint64_t n_decoders;
  void *ran_epochs[3];
  /* times: calls that take 4 ms */
  void *(*decode_open)(uint64_t decoder, uint64_t ny, uint64_t nx, uint64_t *times);
  /* seconds of a call */
  double (*decode)(void *decoding, uint64_t times);
  void (*decode_close)(void *decoding);
  double (*plan)(const char *dir); /* seconds */
};
extern const struct version bench_version;

static void *version_decode_open(uint64_t decoder, uint64_t ny, uint64_t nx, uint64_t *times) {
  struct decoding *d = (struct decoding *)take(1, sizeof *d);
  *times = decode_start(d, &decoders[decoder], ny, nx);
  return d;
}
static double version_decode(void *decoding, uint64_t times) {
  return decode_time((struct decoding *)decoding, decode_ours, times);
}
static void version_decode_close(void *decoding) {
  decode_stop((struct decoding *)decoding);
  free(decoding);
}
static double version_plan(const char *dir) {
  uint64_t chunks;
  return plan_once(dir, &chunks);
}
__attribute__((visibility("default")))
const struct version bench_version = {.n_decoders = N_DECODERS,
    .decode_open = version_decode_open,
    .decode = version_decode,
    .decode_close = version_decode_close,
    .plan = version_plan};

/* ---- what compares them ---- */

/* The versions under comparison: first the older one, then the newer one. */
static const struct version *versions[2];
static const struct side_version *sides[2];
static struct {
  uint64_t rows, slower; /* slower: the whole interval is below SLOWER */
  double log_sum;
} versions_total;
#define SLOWER 0.97

/* A symbol of a shared object in the folder. */
static const void *versions_symbol(const char *dir, const char *file, const char *name) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", dir, file);
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const void *symbol = object ? dlsym(object, name) : NULL;
  if (!symbol) fprintf(stderr, "bench: %s\n", dlerror());
  errno = 0;
  must(symbol != NULL, "a version cannot be loaded");
  return symbol;
}

/* dir: where bench-against has built both. */
static void versions_load(const char *dir) {
  static const char *const file[2][2] = {{"old.so", "old-side.so"}, {"new.so", "new-side.so"}};
  for (int i = 0; i < 2; i++) {
    versions[i] = (const struct version *)versions_symbol(dir, file[i][0], "bench_version");
    sides[i] = (const struct side_version *)versions_symbol(dir, file[i][1], "bench_side");
    must(versions[i]->n_decoders == N_DECODERS, "a version knows other decoders");
  }
}

/* Prints a row: old[i] and new[i] are the seconds of round i. Sorts them. */
static void versions_print(const char *name, double *old_s, double *new_s, uint64_t n) {
  static double quotient[MAX_ROUNDS];
  for (uint64_t i = 0; i < n; i++) quotient[i] = old_s[i] / new_s[i];
  struct summary speed = summarise(quotient, n), old_time = summarise(old_s, n),
                 new_time = summarise(new_s, n);
  bool slower = speed.high < SLOWER;
  if (!versions_total.rows++)
    printf("\n%-28s %7s %-14s  %8s %12s %12s\n", "row", "speed", "95 %", "best", "old s", "new s");
  printf("%-28s %7.3f [%.3f, %.3f]%s %8.3f %12.6f %12.6f\n", name, speed.mid, speed.low, speed.high,
      slower ? " <" : "  ", old_time.least / new_time.least, old_time.mid, new_time.mid);
  fflush(stdout);
  versions_total.slower += slower;
  versions_total.log_sum += log(speed.mid);
}

/* One row of the archive in dir, which both read at `where`: the directory itself, or a server of
 * it. */
static void versions_measure(
    const struct row *r, const char *dir, const char *where, const struct options *o) {
  static double wall[2][MAX_ROUNDS];
  void *side[2];
  for (int k = 0; k < 2; k++) {
    side[k] = sides[k]->open(r, where, o);
    for (int warm = 0; warm < 3; warm++) sides[k]->round(side[k]);
  }
  for (uint64_t i = 0; i < o->rounds; i++)
    for (uint64_t turn = 0; turn < 2; turn++) {
      uint64_t k = (i + turn) % 2;
      if (r->cold) drop_pages(r, dir);
      wall[k][i] = sides[k]->round(side[k]).wall;
    }
  for (int k = 0; k < 2; k++) sides[k]->close(side[k]);
  versions_print(r->name, wall[0], wall[1], o->rounds);
}

static void versions_decode(
    const char *name, uint64_t decoder, uint64_t ny, uint64_t nx, const struct options *o) {
  static double wall[2][MAX_ROUNDS];
  uint64_t times[2];
  void *side[2];
  for (int k = 0; k < 2; k++) side[k] = versions[k]->decode_open(decoder, ny, nx, &times[k]);
  for (uint64_t i = 0; i < o->rounds; i++)
    for (uint64_t turn = 0; turn < 2; turn++) {
      uint64_t k = (i + turn) % 2;
      wall[k][i] = versions[k]->decode(side[k], times[0]);
    }
  for (int k = 0; k < 2; k++) versions[k]->decode_close(side[k]);
  versions_print(name, wall[0], wall[1], o->rounds);
}

static void versions_plan(const char *dir, const struct options *o) {
  static double wall[2][MAX_ROUNDS];
  plan_archive(dir);
  for (uint64_t i = 0; i < o->rounds; i++)
    for (uint64_t turn = 0; turn < 2; turn++) {
      uint64_t k = (i + turn) % 2;
      wall[k][i] = versions[k]->plan(dir);
    }
  versions_print("plan", wall[0], wall[1], o->rounds);
}

/* False where a row got slower, or all together by more than 1 %. */
static bool versions_end(void) {
  double mean = exp(versions_total.log_sum / (double)versions_total.rows);
  errno = 0;
  must(versions_total.rows != 0, "no row has this name");
  printf("\n%d rows: geometric mean of speed %.3f; %d with the whole interval below %.2f\n",
      (int)versions_total.rows, mean, (int)versions_total.slower, SLOWER);
  return mean >= 0.99 && !versions_total.slower;
}
#endif
