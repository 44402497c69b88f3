/* Requests in flight to a remote store: what the loader finds by itself, beside the best fixed
 * max_inflight. For each store (latency, bandwidth) a sweep of fixed numbers, then rounds in turns:
 * the tuned loader, and the best fixed one. Prints shares with their 95 % intervals.
 *
 *   build/bench_tuned [--rounds N] [--ranks N] [--first]
 *
 * A store takes a minute at most: no round begins later than that, but three are made in any case.
 *
 *   --ranks N   instead: N tuned loaders, each in a process of its own, share one server: the
 *               smallest and the largest share of the bytes, as a part of an equal one
 *   --first     instead: the first batch and a short epoch, tuned against max_inflight fixed at
 *               the default's number, which is what the loader does without tuning */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "server.h"
#include "bench_side.h"
#include "bench_summary.h"

enum { SAMPLES = 400, BATCH = 8, FIELD = 256, ROUNDS = 64, RANKS = 16 };
enum { LEAST = 3, STORE_S = 54 }; /* rounds of a store; seconds in which its last one begins */

static const struct store {
  int64_t latency_ms;
  uint64_t bandwidth; /* MB/s; 0: as fast as it goes */
} stores[] = {{5, 0}, {5, 40}, {50, 0}, {50, 40}, {200, 0}, {200, 40}};

static void put_archive(struct server *s, void *user) { /* uncompressed chunks of 256 KiB */
  static unsigned char chunk[FIELD * FIELD * 4];
  char text[900];
  (void)user;
  snprintf(text, sizeof text,
      "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [%d, %d, %d], \"data_type\": "
      "\"float32\", \"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": "
      "[1, %d, %d]}}, \"chunk_key_encoding\": {\"name\": \"default\", \"configuration\": "
      "{\"separator\": \"/\"}}, \"fill_value\": 0, \"codecs\": [{\"name\": \"bytes\", "
      "\"configuration\": {\"endian\": \"little\"}}]}",
      SAMPLES, FIELD, FIELD, FIELD, FIELD);
  server_put(s, "a/x/zarr.json", text, strlen(text));
  snprintf(text, sizeof text, "{\"zarr_format\": 3, \"node_type\": \"group\"}");
  server_put(s, "a/zarr.json", text, strlen(text));
  for (int i = 0; i < SAMPLES; i++) {
    snprintf(text, sizeof text, "a/x/c/%d/0/0", i);
    server_put(s, text, chunk, sizeof chunk);
  }
}

static void open_side(struct side *s, int port, uint64_t inflight, uint64_t depth) {
  static const insitu_variable variable = {.label = "x", .path = "x"};
  char url[64];
  insitu_error err = {0};
  snprintf(url, sizeof url, "http://127.0.0.1:%d/a", port);
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = &variable,
      .n_variables = 1,
      .batch_size = BATCH,
      .max_inflight = inflight,
      .prefetch_depth = depth,
      .split_spill = 1};
  insitu_iter_desc id = {.api = INSITU_API};
  *s = (struct side){.batches = 0};
  check(insitu_loader_open(&d, &s->loader, &err), &err);
  check(insitu_iter_open(s->loader, &id, &s->iter, &err), &err);
}

/* Batches a second over so many batches, as fast as they come; epochs follow each other. */
static double speed(struct side *s, uint64_t batches) {
  double begin = seconds();
  for (uint64_t n = 0; n < batches;) {
    insitu_batch *b;
    insitu_error err = {0};
    insitu_status status = insitu_iter_next(s->iter, -1, &b, &err);
    check(status, &err);
    if (status == INSITU_END) continue;
    insitu_batch_release(&b);
    n++;
  }
  return (double)batches / (seconds() - begin);
}

/* Waits until nothing is fetched ahead any more: the server is then the other side's alone. */
static void quiet(const struct side *s) {
  insitu_stats before = {0}, now = {0};
  do {
    before = now;
    usleep(300000);
    check(insitu_loader_stats(s->loader, &now, NULL), NULL);
  } while (now.bytes_fetched != before.bytes_fetched);
}

static void close_side(struct side *s) {
  insitu_iter_close(&s->iter);
  insitu_loader_close(&s->loader);
}

static struct insitu__tune *tune_of(const struct side *s) {
  return insitu__store_tune(&s->loader->source.store);
}

static void print(const char *what, struct summary s) {
  printf("  %-34s %.3f [%.3f, %.3f]\n", what, s.mid, s.low, s.high);
}

/* The tuned loader against the best fixed number. */
static void measure(const struct store *st, int port, uint64_t rounds) {
  uint64_t best = 1;
  double most = 0, share[ROUNDS], start = seconds();
  for (uint64_t n = 1; n <= 128; n *= 2) {
    struct side s;
    open_side(&s, port, n, 16);
    speed(&s, 1 + n / 8);
    double got = speed(&s, 2 + n / 2);
    if (got > most) most = got, best = n;
    printf("%s%" PRIu64 ": %.1f", n > 1 ? ", " : "  fixed, MB/s: ", n, got * BATCH * 0.262144);
    fflush(stdout);
    close_side(&s);
  }
  printf("\n");

  struct side tuned, fixed;
  open_side(&tuned, port, 0, 16);
  uint64_t batches = insitu__base_max(8, (uint64_t)most); /* of a second */
  double begin = seconds(), limit = st->latency_ms > 100 ? 30 : 15;
  while (seconds() - begin < limit && !tune_of(&tuned)->settled) speed(&tuned, batches);
  printf("  %s after %.1f s at %.0f of %.0f requests\n",
      tune_of(&tuned)->settled ? "settled" : "not settled", seconds() - begin,
      (double)tune_of(&tuned)->chosen, tune_of(&tuned)->most);
  open_side(&fixed, port, best, 16);
  quiet(&tuned);
  /* one after the other: each has the server for itself, and its prefetched batches are consumed */
  uint64_t made = 0;
  for (uint64_t i = 0; i < rounds && (i < LEAST || seconds() - start < STORE_S); i++, made++) {
    double got[2];
    for (int k = 0; k < 2; k++) {
      struct side *s = ((uint64_t)k + i) % 2 ? &tuned : &fixed;
      speed(s, 18); /* what was fetched ahead */
      got[s == &tuned] = speed(s, batches);
      quiet(s);
    }
    share[i] = got[1] / got[0];
  }
  char what[64];
  snprintf(what, sizeof what, "tuned / best fixed (%" PRIu64 "), %" PRIu64 " rounds", best, made);
  print(what, summarise(share, made));
  close_side(&tuned);
  close_side(&fixed);
}

/* The first batch, and an epoch, of new loaders: tuned, and at the default's number. */
static void measure_first(int port, uint64_t rounds) {
  double first[ROUNDS], epoch[ROUNDS];
  for (uint64_t i = 0; i < rounds; i++) {
    double time[2][2];
    for (int k = 0; k < 2; k++) {
      int fixed = (int)(((uint64_t)k + i) % 2);
      struct side s;
      double begin = seconds();
      open_side(&s, port, fixed ? 256 : 0, 16);
      speed(&s, 1);
      time[fixed][0] = seconds() - begin;
      speed(&s, SAMPLES / BATCH - 11);
      time[fixed][1] = seconds() - begin;
      close_side(&s);
    }
    first[i] = time[0][0] / time[1][0];
    epoch[i] = time[0][1] / time[1][1];
  }
  print("time to first batch, tuned / fixed", summarise(first, rounds));
  print("time of an epoch, tuned / fixed", summarise(epoch, rounds));
}

/* Ranks that share a server, each a process. */
static void measure_ranks(int port, int ranks) {
  int pipes[RANKS][2];
  double got[RANKS], sum = 0, least = 1e9, most = 0;
  for (int r = 0; r < ranks; r++) {
    must(!pipe(pipes[r]), "pipe");
    if (fork()) continue;
    struct side s;
    uint64_t n = 0;
    open_side(&s, port, 0, 16);
    for (double begin = seconds(); seconds() - begin < 10;) speed(&s, 1);
    for (double begin = seconds(); seconds() - begin < 10; n++) speed(&s, 1);
    must(write(pipes[r][1], &n, sizeof n) == sizeof n, "write");
    _exit(0);
  }
  for (int r = 0; r < ranks; r++) {
    uint64_t n = 0;
    must(read(pipes[r][0], &n, sizeof n) == sizeof n, "read");
    sum += got[r] = (double)n;
  }
  for (int r = 0; r < ranks; r++) {
    double share = got[r] * ranks / sum;
    least = share < least ? share : least;
    most = share > most ? share : most;
    wait(NULL);
  }
  printf("  %d ranks: shares of %.3f to %.3f, together %.1f MB/s\n", ranks, least, most,
      sum * BATCH * 0.262144 / 10);
}

int main(int argc, char **argv) {
  uint64_t rounds = 11;
  int ranks = 0;
  bool first = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--rounds") && i + 1 < argc) rounds = strtoull(argv[++i], NULL, 10);
    else if (!strcmp(argv[i], "--ranks") && i + 1 < argc) ranks = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--first")) first = true;
    else die(argv[i]);
  }
  must(rounds >= 1 && rounds <= ROUNDS && ranks >= 0 && ranks <= RANKS, "numbers");
  for (unsigned i = 0; i < sizeof stores / sizeof *stores; i++) {
    const struct store *st = &stores[i];
    if (ranks && !st->bandwidth) continue;
    struct server_options o = {
        .latency_ms = st->latency_ms, .bandwidth = st->bandwidth * 1000000, .no_log = true};
    struct server_child server = server_fork(&o, put_archive, NULL);
    printf("%" PRId64 " ms, ", st->latency_ms);
    if (st->bandwidth) printf("%" PRIu64 " MB/s\n", st->bandwidth);
    else printf("no limit of bandwidth\n");
    fflush(stdout);
    if (ranks) measure_ranks(server.port, ranks);
    else if (first) measure_first(server.port, rounds);
    else measure(st, server.port, rounds);
    server_kill(&server);
  }
  return 0;
}
