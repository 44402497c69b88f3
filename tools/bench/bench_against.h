/* Two versions of the header beside each other, in one process: bench.c with --against, which
 * bench-against calls.
 *
 * Each version is this benchmark, compiled with that version's header as a shared object, which
 * exports bench_version. The rounds of both take turns on the same archive, so that what slows the
 * machine down for a while slows down both. */
#ifndef TOOLS_BENCH_AGAINST_H
#define TOOLS_BENCH_AGAINST_H
#include <dlfcn.h>

/* What a shared object offers. Both versions must know the same rows and options: the sizes tell.
 */
struct version {
  uint64_t row_bytes, options_bytes, n_decoders;
  /* a loader and its iterator */
  void *(*open)(const struct row *, const char *where, const struct options *);
  struct cost (*round)(void *side); /* one epoch */
  void (*close)(void *side);
  /* times: calls that take 4 ms */
  void *(*decode_open)(uint64_t decoder, uint64_t ny, uint64_t nx, uint64_t *times);
  /* seconds of a call */
  double (*decode)(void *decoding, uint64_t times);
  void (*decode_close)(void *decoding);
  double (*plan)(const char *dir); /* seconds */
};
extern const struct version bench_version;

static void *version_open(const struct row *r, const char *where, const struct options *o) {
  struct side *s = (struct side *)take(1, sizeof *s);
  errno = 0;
  must(side_open(s, r, where, o, true), "a version cannot read this row");
  return s;
}
static struct cost version_round(void *side) {
  return side_round((struct side *)side);
}
static void version_close(void *side) {
  side_close((struct side *)side);
  free(side);
}
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
__attribute__((visibility("default"))) const struct version bench_version = {sizeof(struct row),
    sizeof(struct options), N_DECODERS, version_open, version_round, version_close,
    version_decode_open, version_decode, version_decode_close, version_plan};

/* ---- what compares them ---- */

/* The versions under comparison: first the older one, then the newer one. */
static const struct version *versions[2];
static struct {
  uint64_t rows, slower; /* slower: the whole interval is below SLOWER */
  double log_sum;
} versions_total;
#define SLOWER 0.97

/* OLD.so,NEW.so: the two may be of one file's content, but not one file. */
static void versions_load(const char *names) {
  char old[400];
  const char *comma = strchr(names, ',');
  errno = 0;
  must(comma && comma - names < (long)sizeof old, "--against takes OLD.so,NEW.so");
  snprintf(old, sizeof old, "%.*s", (int)(comma - names), names);
  for (int i = 0; i < 2; i++) {
    void *object = dlopen(i ? comma + 1 : old, RTLD_NOW | RTLD_LOCAL);
    const struct version *v =
        object ? (const struct version *)dlsym(object, "bench_version") : NULL;
    if (!v) fprintf(stderr, "bench: %s\n", dlerror());
    errno = 0;
    must(v != NULL, "a version cannot be loaded");
    must(v->row_bytes == sizeof(struct row) && v->options_bytes == sizeof(struct options) &&
             v->n_decoders == N_DECODERS,
        "a version was built with another tools/bench/bench.c");
    versions[i] = v;
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
    side[k] = versions[k]->open(r, where, o);
    for (int warm = 0; warm < 3; warm++) versions[k]->round(side[k]);
  }
  for (uint64_t i = 0; i < o->rounds; i++)
    for (uint64_t turn = 0; turn < 2; turn++) {
      uint64_t k = (i + turn) % 2;
      if (r->cold) drop_pages(r, dir);
      wall[k][i] = versions[k]->round(side[k]).wall;
    }
  for (int k = 0; k < 2; k++) versions[k]->close(side[k]);
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
