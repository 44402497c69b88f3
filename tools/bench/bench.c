/* make build/bench && build/bench */
/* How close the loader comes to what the machine can do, in one process. Four tables:
 *
 * SHARE. The loader's throughput as a share of the barest loop that does the same unavoidable work:
 * the same files opened and read, decoded by libblosc or libzstd, into destinations as large as the
 * loader's ring of batches. A round is one epoch of an archive made here, begun and drained; each
 * pair of rounds, one of each side in changing order, gives one quotient of times.
 *   share        the quotients' median and its 95 % interval; the target is met when the interval
 *                reaches it, "<" where not
 *   best         fastest round of the bare loop over fastest round of the loader: what is left of
 *                other load on the machine
 *   GB/s         decoded bytes over the median round of each side
 *   cpu          user and system seconds of the median round, the kernel's threads for io_uring
 *   included; cpu share: bare / ours
 *   reads by     the bare loop reads by pread, io_uring or io_uring with IOSQE_ASYNC, whichever was
 *                fastest just before
 * A row is field-codec-samples per chunk-[shard-]page cache-decode threads. small: 64 x 64 float32
 * (16 KiB), large: 721 x 1440 (4.15 MB). Of the others a batch's row shows several neighbouring
 * samples; the bare loop decodes each chunk once and copies its samples to all their places, and
 * GB are those of batches. pairs: 181 x 360 (261 kB), two of them, of an archive that is five times
 * the window; steps: 8 x 8 (256 bytes), 64 of them, without a target; steps4k: 32 x 32 (4 KiB), 64
 * of them. The loader keeps all that steps show, from epoch to epoch, and the bare loop reads the
 * page cache. shard: v3 sharding, inner chunks as long as in the row
 * without it. cold: the kernel is asked to forget every file before each round of either side;
 * mincore tells whether it did, and a row says so where it did not; a disk's or a host's own cache
 * stays warm. 1t: one decode thread beside one thread of the bare loop, which then reads, too; the
 * loader's reactor and the kernel's reading threads may use other cores, so that its cpu seconds
 * are to be looked at.
 * The bare loop takes chunks in a random order, as whoever shuffles must. --in-order gives it the
 * archive's order, in which small chunks of a shard are neighbours in the page cache.
 * Where the bare loop is generous to itself: it has that order before the round, knows the length
 * of each file, and puts rows nowhere but behind each other; it does not look at what it has
 * decoded; it opens a shard and reads its index once a round, and keeps all of them open.
 * Where it is not: it ends with its slowest thread, and with few large chunks a thread may wait for
 * the other.
 * Under small raw rows in the page cache a second line, "its rows in our order", has a second
 * limit: a loop that puts every sample into its row of a batch, in the order of the loader that is
 * measured, without that loader's bookkeeping (bench_rows.h). share, best and cpu share are the
 * loader's of that loop; the columns of the bare loop are its own.
 *
 * CONSUMER. In turns the loader's capacity is measured, and a consumer takes batches and works on
 * each for 1 / 0.8 of the time that it takes at capacity: it sleeps; or, busy, it takes processor
 * time, and so does a thread while the capacity is measured. stall: share of the time that the
 * loader counts as waiting in next; p99/half: of the time in next seen from outside, as a share of
 * half a batch period. Targets: 1 % and 1. Where a busy consumer's work takes longer than its
 * processor time, its batches come less often: achieved is what it takes of the capacity.
 *
 * HTTP. Raw chunks, one sample each, from an HTTP server in a process of its own on loopback
 * (tests/support/server.h).
 *   share     without latency the loader against the faster of two bare loops of libcurl
 *             (curl_multi_poll; or curl_multi_socket_action over epoll) that copy the same objects
 *             into buffers as large as the ring of batches, over as many connections; with latency
 *             against min(connections * bytes / latency, that loop without latency). Target 0.95.
 *   of recv   the same against a bare loop of recv straight into those buffers, at the loader's own
 *             server
 *   cpu       of this process, without the server's; with latency curl's at the loader's own server
 *
 * HEDGE. What the option hedge is worth: raw chunks of 64 KiB behind a server on loopback of
 * whose answers one in a hundred begins 2 s late.
 *   gain      an epoch's time without the option over that with it, in turns, 9 pairs at most
 *   requests  of an epoch with the option, and how many of them are second ones
 *
 * DECODE. Time of the reference library's call over the header's for one chunk, on one thread, from
 * and into warm memory.
 *
 * PLAN. 10^9 samples in one-sample chunks: metadata, split, order, up to the chunks of the first
 * batch, without its reads, in a process of its own. Targets: 50 ms, 64 MB.
 *
 * AGAINST, in place of all tables: how much faster a newer version of the header is than an older
 * one, on the same rows but those of the consumer. speed: the median of the quotients, old time
 * over new time; best: the same of the fastest rounds. It is a failure where the whole interval of
 * a row is below 0.97, or the geometric mean of all rows below 0.99.
 *
 *   (nothing)    a subset of the rows that stands for all; some 4 minutes
 *   --full       every row; more than half an hour
 *   --only GLOB  rows whose name holds GLOB, of all: 'small-raw-1-*2t', 'cold', 'decode-zstd,plan';
 *                several by commas
 *   --list       names of the rows, nothing else
 *   --rounds N   pairs of rounds (31)           --quick      7 pairs: to look, not to conclude
 *   --json       one JSON document              --in-order   the bare loop takes chunks in the
 *                archive's order
 *   --dir D      where to make the archives, one at a time: at most 1.1 GB, with --full 1.7 GB
 *                ($TMPDIR)
 *   --keep       leave them there
 *   --profile R  only the loader (or, with --bare, only the bare loop) on row R, for --rounds
 *                epochs
 *   --against DIR  two versions of the header in turns, which bench-against has built there
 *   --gather     of rows that show several samples the bare loop keeps all of them, and copies
 *                windows in the order of a shuffle: what a loader of such rows cannot do without
 *   --hedge      the option hedge for the rows over HTTP
 *   --depth N --inflight N --threads N --block N --io uring|epoll --inline   as in
 *   insitu_loader_desc */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "bench_bare.h"
#include "bench_rows.h"
#include "bench_loader.h"
#include "bench_http.h"
#include "bench_against.h"
#include <fnmatch.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

#ifdef IO_URING_VERSION_MAJOR
enum { URING_MAJOR = IO_URING_VERSION_MAJOR, URING_MINOR = IO_URING_VERSION_MINOR };
#else /* before 2.4, without a name for its version */
enum { URING_MAJOR = 2, URING_MINOR = 3 };
#endif

/* What runs without --full: each kind of row at its cheapest. */
static const char *const usual[] = {"*-1-warm-2t", "*-32-warm-2t", "small-*-200-warm-2t",
    "*-raw-8-warm-2t", "*-blosc-8-warm-2t", "small-raw-1-shard-warm-2t",
    "small-blosc-8-shard-warm-2t", "large-raw-1-shard-warm-2t", "large-zstd-8-shard-warm-2t",
    "small-raw-1-cold-2t", "large-raw-1-cold-2t", "large-blosc-8-cold-2t", "small-raw-1-warm-1t",
    "small-blosc-1-warm-1t", "large-*-1-warm-1t", "steps*-warm-2t", "pairs-*-warm-2t",
    "consumer-small-raw-1", "consumer-large-blosc-1", "consumer-busy-small-raw-1",
    "consumer-busy-large-blosc-1", "http-*", "decode-*", "plan"};
/* Archives that a consumer reads. */
static const char *const consumed[] = {
    "small-raw-1", "small-blosc-32", "large-raw-1", "large-blosc-1"};

static bool selected(const struct options *o, const char *name) {
  char glob[300], list[256];
  if (o->only) {
    snprintf(list, sizeof list, "%s", o->only);
    for (char *next, *one = strtok_r(list, ",", &next); one; one = strtok_r(NULL, ",", &next)) {
      snprintf(glob, sizeof glob, "*%s*", one);
      if (!fnmatch(glob, name, 0)) return true;
    }
    return false;
  }
  bool any = o->full;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    any = any || !fnmatch(usual[i], name, 0);
  return any;
}

/* ---- rows ---- */

/* Rows whose batches show several neighbouring samples. */
struct window {
  const char *field;
  uint64_t steps, ny, nx, samples, batch;
  double target;
  struct {
    int codec;
    uint64_t chunk;
  } archive[4]; /* the first one of chunk 0 ends it */
};
static const struct window windows[] = {
    {"steps", 64, 8, 8, 12800, 32, 0, {{RAW, 200}, {BLOSC, 200}, {RAW, 64}}},
    {"steps4k", 64, 32, 32, 3200, 32, 0.8, {{RAW, 200}, {RAW, 1}, {BLOSC, 200}}},
    {"pairs", 2, 181, 360, 2560, 32, 0.9, {{BLOSC, 1}, {BLOSC, 8}, {BLOSC, 32}, {ZSTD, 8}}}};
enum { N_WINDOWS = sizeof windows / sizeof *windows, N_WINDOW_ARCHIVES = 4 };

static double target(const struct row *r) {
  for (size_t w = 0; w < N_WINDOWS; w++)
    if (!strcmp(windows[w].field, r->field)) return windows[w].target;
  if (chunk_bytes(r) <= 64 << 10 && r->chunk == 1) return 0.85;
  return r->codec == BLOSC ? 1 : 0.95;
}

/* The archive's part of a row: 134 MB of small fields; of large ones 0.5 GB or 8 chunks, half of
 * that for slow zstd, but 2 chunks where they hold 200 samples. */
static struct row make_row(int codec, bool small, uint64_t chunk, bool sharded) {
  struct row r = {.field = small ? "small" : "large",
      .codec = codec,
      .small = small,
      .sharded = sharded,
      .chunk = chunk,
      .ny = small ? 64 : 721,
      .nx = small ? 64 : 1440,
      .batch = small ? 32 : 16,
      .samples = small ? 8192 : insitu__base_max(128, 8 * chunk) / (codec == ZSTD ? 2 : 1)};
  if (chunk == 200) r.samples = small ? 8000 : 400;
  r.per_shard = !sharded ? 1 : small && chunk == 1 ? 64 : insitu__base_min(8, row_chunks(&r) / 2);
  if (sharded && chunk == 200 && !small) r.per_shard = 2;
  return r;
}
static struct row make_window_row(const struct window *w, int codec, uint64_t chunk) {
  return (struct row){.field = w->field,
      .codec = codec,
      .small = w->ny * w->nx <= 64 * 64,
      .chunk = chunk,
      .ny = w->ny,
      .nx = w->nx,
      .batch = w->batch,
      .samples = w->samples,
      .steps = w->steps,
      .per_shard = 1};
}
static void name_archive(const struct row *r, char name[48]) {
  snprintf(name, 48, "%s-%s-%d%s", r->field, codec_name[r->codec], (int)r->chunk,
      r->sharded ? "-shard" : "");
}

static const char *fs_name(const char *dir, char unknown[32]) {
  static const struct {
    unsigned long type;
    const char *name;
  } known[] = {{0xef53, "ext4"}, {0x58465342, "xfs"}, {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
      {0x794c7630, "overlay"}, {0x6969, "nfs"}, {0x0bd00bd0, "lustre"}, {0x2fc12fc1, "zfs"},
      {0x65735546, "fuse"}, {0x01021997, "9p"}, {0xf2f52010, "f2fs"}};
  struct statfs s;
  must(statfs(dir, &s) == 0, dir);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].type == (unsigned long)s.f_type) return known[i].name;
  snprintf(unknown, 32, "type 0x%lx", (unsigned long)s.f_type);
  return unknown;
}

static void print_machine(const struct options *o, const char *dir) {
  char cpu[128] = "unknown", commit[64] = "", line[256], fs[32];
  struct utsname u;
  FILE *f = fopen("/proc/cpuinfo", "re");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
      snprintf(cpu, sizeof cpu, "%s", strchr(line, ':') + 2);
      cpu[strcspn(cpu, "\n")] = 0;
      break;
    }
  if (f) fclose(f);
  if ((f = popen("git describe --always --dirty 2>/dev/null", "re"))) {
    if (!fgets(commit, sizeof commit, f)) commit[0] = 0;
    commit[strcspn(commit, "\n")] = 0;
    pclose(f);
  }
  uname(&u);
  const char *form =
      o->json ? "{\"cpu\":\"%s\",\"cores\":%" PRIu64
                ",\"kernel\":\"%s\",\"fs\":\"%s\",\"liburing\":\"%d.%d\","
                "\"lz4\":\"%s\",\"zstd\":\"%s\",\"zlib\":\"%s\",\"blosc\":\"%s\",\"commit\":\"%s\","
                "\"rounds\":%" PRIu64 ",\n"
              : "cpu %s, %" PRIu64
                " cores, kernel %s, %s; liburing %d.%d, lz4 %s, zstd %s, zlib %s, blosc %s; "
                "commit %s; %" PRIu64 " pairs of rounds\n";
  printf(form, cpu, insitu__mem_cores(), u.release, fs_name(dir, fs), URING_MAJOR, URING_MINOR,
      LZ4_versionString(), ZSTD_versionString(), zlibVersion(), BLOSC_VERSION_STRING,
      commit[0] ? commit : "unknown", o->rounds);
  fflush(stdout);
}

/* Begins an element of a JSON list. */
static void print_comma(uint64_t *count) {
  if ((*count)++) printf(",\n");
}

/* ---- share ---- */

struct result {
  struct summary share, bare, ours, bare_cpu, our_cpu, cpu_share;
  double way[N_MODES], left; /* left: of the page cache after dropping */
  int mode;
  const char *refusal; /* the loader cannot read the row: only `bare` and `bare_cpu` are set */
  bool limited;        /* the rest is set: of rows in the loader's order */
  struct summary of_rows, rows, rows_cpu, rows_cpu_share;
  double rows_way[N_ROWS_MODES];
  int rows_mode;
};

/* What the loader is compared with, and it. */
enum { OURS, BARE, ROWS, N_LOOPS };
static struct {
  double wall[N_LOOPS][MAX_ROUNDS], cpu[N_LOOPS][MAX_ROUNDS];
  double share[N_LOOPS][MAX_ROUNDS], cpu_share[N_LOOPS][MAX_ROUNDS]; /* of each loop's throughput */
} rounds;

static void summarise_loop(int loop, uint64_t n, struct summary *share, struct summary *wall,
    struct summary *cpu, struct summary *cpu_share) {
  *share = summarise(rounds.share[loop], n);
  *cpu_share = summarise(rounds.cpu_share[loop], n);
  *wall = summarise(rounds.wall[loop], n);
  *cpu = summarise(rounds.cpu[loop], n);
}

static struct result measure(const struct row *r, const char *dir, const struct options *o) {
  static struct bare b, rows;
  static struct side side;
  struct result out = {.left = 1};
  struct summary none;
  uint64_t n = o->rounds;
  bool readable = side_open(&side, r, dir, o, true);
  if (!readable) out.refusal = side.refusal.message;
  bare_start(&b, r, dir, readable ? side.ring_bytes : r->bytes / 2, o);
  if (readable) side_round(&side);
  out.limited = readable && rows_limited(r);
  if (out.limited) rows_start(&rows, r, dir, side.ring_bytes, rows_places(&side, r), o);
  if (r->cold) {
    drop_pages(r, dir);
    out.left = resident(r, dir);
  }
  bare_calibrate(&b, dir, out.way);
  if (out.limited) bare_calibrate(&rows, dir, out.rows_way);
  for (int i = 0; readable && i < 3; i++) side_round(&side);
  uint64_t loops = out.limited ? N_LOOPS : ROWS;
  for (uint64_t i = 0; i < n; i++) {
    struct cost cost[N_LOOPS] = {{0, 0}, {0, 0}, {0, 0}};
    for (uint64_t turn = 0; turn < loops; turn++) {
      uint64_t loop = (i + turn) % loops;
      if (r->cold) drop_pages(r, dir);
      if (loop == ROWS) cost[loop] = bare_round(&rows);
      else if (loop == BARE) cost[loop] = bare_round(&b);
      else if (readable) cost[loop] = side_round(&side);
    }
    for (uint64_t k = 0; k < loops; k++) {
      rounds.wall[k][i] = cost[k].wall;
      rounds.cpu[k][i] = cost[k].cpu;
      rounds.share[k][i] = cost[k].wall / cost[OURS].wall;
      rounds.cpu_share[k][i] = cost[k].cpu / cost[OURS].cpu;
    }
  }
  out.mode = b.mode;
  out.rows_mode = rows.mode;
  bare_stop(&b);
  if (out.limited) rows_stop(&rows);
  if (readable) side_close(&side);
  summarise_loop(BARE, n, &out.share, &out.bare, &out.bare_cpu, &out.cpu_share);
  if (readable) summarise_loop(OURS, n, &none, &out.ours, &out.our_cpu, &none);
  if (out.limited)
    summarise_loop(ROWS, n, &out.of_rows, &out.rows, &out.rows_cpu, &out.rows_cpu_share);
  return out;
}

static void print_share_header(void) {
  printf("\n%-28s %7s %-14s %6s %6s %5s %6s %6s  %9s %9s  %8s %7s %9s  %s\n", "row", "share",
      "95 %", "target", "best", "MB", "ratio", "chunks", "bare GB/s", "ours GB/s", "bare cpu",
      "our cpu", "cpu share", "bare loop reads by (s of each way)");
}

/* The second limit of a row: a line, or members of its JSON object. */
static void print_rows(const struct result *m, double gb, const struct options *o) {
  const char *mode = rows_mode_name[m->rows_mode];
  if (o->json)
    printf(",\"rows_share\":%.4f,\"rows_low\":%.4f,\"rows_high\":%.4f,\"rows_best\":%.4f,"
           "\"rows_gb_s\":%.3f,\"rows_cpu_s\":%.4f,\"rows_cpu_share\":%.4f,\"rows_mode\":\"%s\"",
        m->of_rows.mid, m->of_rows.low, m->of_rows.high, m->rows.least / m->ours.least,
        gb / m->rows.mid, m->rows_cpu.mid, m->rows_cpu_share.mid, mode);
  else
    printf("%-28s %7.3f [%.3f, %.3f] %6s %6.3f %5s %6s %6s  %9.2f %9s  %8.4f %7s %9.3f  %s "
           "(%.4f %.4f %.4f)\n",
        "  its rows in our order", m->of_rows.mid, m->of_rows.low, m->of_rows.high, "",
        m->rows.least / m->ours.least, "", "", "", gb / m->rows.mid, "", m->rows_cpu.mid, "",
        m->rows_cpu_share.mid, mode, m->rows_way[0], m->rows_way[1], m->rows_way[2]);
}

static void print_share(
    const struct row *r, const struct result *m, const struct options *o, uint64_t *count) {
  double gb = (double)shown_bytes(r) * 1e-9, ratio = (double)r->bytes / (double)r->stored,
         goal = target(r);
  bool met = m->share.high >= goal;
  if (o->json) {
    print_comma(count);
    printf("{\"row\":\"%s\",\"bytes\":%" PRIu64 ",\"ratio\":%.3f,\"chunks\":%" PRIu64
           ",\"files\":%" PRIu64 ",\"bare_gb_s\":%.3f,\"bare_cpu_s\":%.4f,\"bare_mode\":\"%s\"",
        r->name, shown_bytes(r), ratio, row_chunks(r), row_files(r), gb / m->bare.mid,
        m->bare_cpu.mid, mode_name[m->mode]);
    if (r->cold) printf(",\"cached_after_drop\":%.4f", m->left);
    if (m->refusal) printf(",\"readable\":false}");
    else
      printf(",\"share\":%.4f,\"low\":%.4f,\"high\":%.4f,\"target\":%.2f,\"met\":%s,\"best\":%.4f,"
             "\"loader_gb_s\":%.3f,"
             "\"loader_cpu_s\":%.4f,\"cpu_share\":%.4f",
          m->share.mid, m->share.low, m->share.high, goal, met ? "true" : "false",
          m->bare.least / m->ours.least, gb / m->ours.mid, m->our_cpu.mid, m->cpu_share.mid);
    if (m->limited) print_rows(m, gb, o);
    if (!m->refusal) printf("}");
  } else {
    if (!(*count)++) print_share_header();
    if (m->refusal) printf("%-28s %-37s", r->name, "not readable");
    else
      printf("%-28s %7.3f [%.3f, %.3f] %s%.2f %6.3f", r->name, m->share.mid, m->share.low,
          m->share.high, met ? "  " : "< ", goal, m->bare.least / m->ours.least);
    printf(" %5.0f %6.2f %6" PRIu64 "  %9.2f", gb * 1e3, ratio, row_chunks(r), gb / m->bare.mid);
    if (m->refusal) printf(" %9s  %8.4f %7s %9s", "-", m->bare_cpu.mid, "-", "-");
    else
      printf(" %9.2f  %8.4f %7.4f %9.3f", gb / m->ours.mid, m->bare_cpu.mid, m->our_cpu.mid,
          m->cpu_share.mid);
    printf("  %s (%.4f %.4f %.4f)", mode_name[m->mode], m->way[0], m->way[1], m->way[2]);
    if (m->left > 0.01 && r->cold)
      printf("  NOT COLD: %.0f %% stay in the page cache", 100 * m->left);
    printf("\n");
    if (m->limited) print_rows(m, gb, o);
  }
  fflush(stdout);
}

static void profile(const struct row *r, const char *dir, const struct options *o) {
  static struct bare b;
  struct side side;
  struct cost sum = {0, 0}, one;
  insitu_stats stats;
  double way[N_MODES];
  errno = 0;
  must(side_open(&side, r, dir, o, true), "the loader cannot read this row");
  if (o->bare) {
    bare_start(&b, r, dir, side.ring_bytes, o);
    bare_calibrate(&b, dir, way);
  }
  side_round(&side);
  for (uint64_t i = 0; i < o->rounds; i++) {
    if (r->cold) drop_pages(r, dir);
    one = o->bare ? bare_round(&b) : side_round(&side);
    sum.wall += one.wall;
    sum.cpu += one.cpu;
  }
  check(insitu_loader_stats(side.loader, &stats, NULL), &(insitu_error){0});
  printf("%s, %s: %.3f GB/s, %.4f s and %.4f cpu s an epoch; %s, %" PRIu64
         " chunks in flight at most, %" PRIu64 " bytes of batches\n",
      r->name, o->bare ? mode_name[b.mode] : "loader",
      1e-9 * (double)(shown_bytes(r) * o->rounds) / sum.wall, sum.wall / (double)o->rounds,
      sum.cpu / (double)o->rounds, stats.io, stats.inflight_peak, stats.slab_bytes_peak);
  if (o->bare) bare_stop(&b);
  side_close(&side);
}

/* ---- the other tables ---- */

static void print_consumer(
    const char *name, const struct consumer *c, const struct options *o, uint64_t *count) {
  double of_half = 2 * c->p99, ms = 1e3 * c->period;
  bool met = c->stall.low <= 0.01 && of_half <= 1;
  if (o->json) {
    print_comma(count);
    printf("{\"row\":\"%s\",\"batches_s\":%.1f,\"period_ms\":%.4f,\"achieved\":%.4f,"
           "\"stall\":%.5f,\"low\":%.5f,"
           "\"high\":%.5f,\"inside\":%.5f,"
           "\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"longest_ms\":%.4f,\"p99_of_half\":%."
           "4f,\"nexts\":%" PRIu64 ",\"met\":%s}",
        name, c->capacity, ms, c->achieved, c->stall.mid, c->stall.low, c->stall.high,
        c->inside.mid, ms * c->p50, ms * c->p99, ms * c->p999, ms * c->longest, of_half, c->nexts,
        met ? "true" : "false");
  } else {
    printf(
        "%-30s %10.1f %10.3f %9.3f %6.2f %% [%.2f, %.2f] %6.2f %% %8.4f %8.4f %8.4f %8.4f  %s%6.3f "
        "%8" PRIu64 "\n",
        name, c->capacity, ms, c->achieved, 100 * c->stall.mid, 100 * c->stall.low,
        100 * c->stall.high, 100 * c->inside.mid, ms * c->p50, ms * c->p99, ms * c->p999,
        ms * c->longest, met ? "  " : "< ", of_half, c->nexts);
  }
  fflush(stdout);
}

static void print_http(const struct http_row *h, const struct row *r, const struct http_result *m,
    const struct options *o, uint64_t *count) {
  double gb = (double)r->bytes * 1e-9, goal = 0.95;
  bool met = m->share.high >= goal;
  const char *limit =
      !h->latency_ms ? wire_name[m->mode]
      : m->limit * (double)h->latency_ms * 1e-3 < 0.999 * (double)(h->connections * chunk_bytes(r))
          ? "loopback"
          : "latency";
  double limit_gb = h->latency_ms ? m->limit * 1e-9 : gb / m->curl.mid;
  if (o->json) {
    print_comma(count);
    printf("{\"row\":\"%s\",\"share\":%.4f,\"low\":%.4f,\"high\":%.4f,\"target\":%.2f,\"met\":%s,"
           "\"of_recv\":%.4f,"
           "\"limit\":\"%s\",\"limit_gb_s\":%.3f,\"loader_gb_s\":%.3f,\"curl_gb_s\":%.3f,\"recv_gb_"
           "s\":%.3f,"
           "\"loader_cpu_s\":%.4f,\"curl_cpu_s\":%.4f,\"connections\":%" PRIu64
           ",\"inflight_peak\":%" PRIu64 "}",
        r->name, m->share.mid, m->share.low, m->share.high, goal, met ? "true" : "false",
        m->far.mid, limit, limit_gb, gb / m->ours.mid, gb / m->curl.mid, gb / m->recv.mid,
        m->our_cpu.mid, m->curl_cpu.mid, h->connections, m->stats.inflight_peak);
  } else {
    if (!(*count)++)
      printf("\n%-22s %7s %-14s %6s %7s  %5s %8s %8s %8s %8s  %8s %8s %8s  %s\n", "http", "share",
          "95 %", "target", "of recv", "conns", "limit", "ours", "curl", "recv", "our cpu",
          "curl cpu", "inflight", "limit: (GB/s; s of each way of curl)");
    printf("%-22s %7.3f [%.3f, %.3f] %s%.2f %7.3f  %5" PRIu64
           " %8.3f %8.3f %8.3f %8.3f  %8.4f %8.4f %8" PRIu64 "  %s (%.4f %.4f)\n",
        r->name, m->share.mid, m->share.low, m->share.high, met ? "  " : "< ", goal, m->far.mid,
        h->connections, limit_gb, gb / m->ours.mid, gb / m->curl.mid, gb / m->recv.mid,
        m->our_cpu.mid, m->curl_cpu.mid, m->stats.inflight_peak, limit, m->way[0], m->way[1]);
  }
  fflush(stdout);
}
static void http_against(
    const struct http_row *h, const struct row *r, const char *dir, const struct options *o) {
  struct server_child server = http_serve(dir, h->latency_ms);
  struct options own = *o;
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
  if (!own.inflight) own.inflight = h->connections;
  versions_measure(r, dir, url, &own);
  server_kill(&server);
}
/* What hedging is worth. */
static void run_hedge(const char *root, const struct options *o, uint64_t *count) {
  struct row r = http_archive(&tail_row);
  char dir[500];
  if (o->profile || o->against || !selected(o, r.name)) return;
  if (o->list) {
    printf("%s\n", r.name);
    return;
  }
  snprintf(dir, sizeof dir, "%s/%s.zarr", root, r.name);
  remove_tree(dir);
  make_archive(&r, dir);
  struct tail_result m = tail_measure(&r, dir, o);
  if (o->json) print_comma(count);
  printf(o->json ? "{\"row\":\"%s\",\"gain\":%.3f,\"low\":%.3f,\"high\":%.3f,\"plain_s\":%.3f,"
                   "\"hedging_s\":%.3f,\"requests\":%.1f,\"hedges\":%.1f}"
                 : "\n%s: gain %.2f [%.2f, %.2f]; an epoch takes %.3f s, hedging %.3f s with %.1f "
                   "requests, of them %.1f second ones\n",
      r.name, m.gain.mid, m.gain.low, m.gain.high, m.wall[0].mid, m.wall[1].mid, m.requests,
      m.hedges);
  fflush(stdout);
  if (!o->keep) remove_tree(dir);
  free(r.length);
}

static void run_http(const char *root, const struct options *o) {
  uint64_t count = 0;
  if (o->json && !o->profile && !o->list) printf("],\n\"http\":[\n");
  for (size_t i = 0; i < N_HTTP; i++) {
    const struct http_row *h = &http_rows[i];
    struct row r = http_archive(h);
    char dir[500];
    if (o->profile ? strcmp(r.name, o->profile) : !selected(o, r.name)) continue;
    if (o->list) {
      printf("%s\n", r.name);
      continue;
    }
    snprintf(dir, sizeof dir, "%s/%s.zarr", root, h->name);
    remove_tree(dir);
    make_archive(&r, dir);
    if (o->against) http_against(h, &r, dir, o);
    else if (o->profile) http_profile(h, &r, dir, o);
    else {
      struct http_result m = http_measure(h, &r, dir, o);
      print_http(h, &r, &m, o, &count);
    }
    if (!o->keep) remove_tree(dir);
    free(r.length);
  }
  run_hedge(root, o, &count);
}

static void print_decode(const struct options *o) {
  uint64_t count = 0;
  if (o->json) printf("],\n\"decode\":[\n");
  for (int large = 0; large < 2; large++)
    for (size_t i = 0; i < N_DECODERS; i++) {
      char name[64];
      uint64_t ny = large ? 721 : 64, nx = large ? 1440 : 256;
      snprintf(name, sizeof name, "decode-%s-%s", decoders[i].name, large ? "4MB" : "64KiB");
      if (!selected(o, name)) continue;
      if (o->against) {
        versions_decode(name, i, ny, nx, o);
        continue;
      }
      struct decode_result d = decode_measure(&decoders[i], ny, nx, o->rounds);
      double goal = decoders[i].kind == DECODE_BLOSC ? 1 : 0.95, gb = (double)(ny * nx * 4) * 1e-9;
      bool met = d.ratio.high >= goal;
      if (o->json) {
        print_comma(&count);
        printf("{\"row\":\"%s\",\"ratio\":%.4f,\"low\":%.4f,\"high\":%.4f,\"target\":%.2f,\"met\":%"
               "s,\"packed\":%.3f,"
               "\"reference_gb_s\":%.3f,\"header_gb_s\":%.3f}",
            name, d.ratio.mid, d.ratio.low, d.ratio.high, goal, met ? "true" : "false", d.packed,
            gb / d.reference, gb / d.ours);
      } else {
        if (!count++)
          printf("\n%-28s %7s %-14s %6s %7s %14s %11s\n", "decoder", "ratio", "95 %", "target",
              "packed", "library GB/s", "header GB/s");
        printf("%-28s %7.3f [%.3f, %.3f] %s%.2f %7.2f %14.2f %11.2f\n", name, d.ratio.mid,
            d.ratio.low, d.ratio.high, met ? "  " : "< ", goal, d.packed, gb / d.reference,
            gb / d.ours);
      }
      fflush(stdout);
    }
}

static void print_plan(const struct options *o, const char *dir) {
  if (o->json) printf("],\n\"plan\":[\n");
  if (!selected(o, "plan")) return;
  if (o->against) {
    versions_plan(dir, o);
    remove_tree(dir);
    return;
  }
  struct planning p = plan_huge(dir, o->rounds);
  bool met = p.ms.low <= 50 && p.mb <= 64;
  if (o->json)
    printf("{\"row\":\"plan\",\"ms\":%.3f,\"low\":%.3f,\"high\":%.3f,\"mb\":%.2f,\"met\":%s}",
        p.ms.mid, p.ms.low, p.ms.high, p.mb, met ? "true" : "false");
  else
    printf("\nplan of 10^9 one-sample chunks to the first batch's: %.3f ms [%.3f, %.3f], process "
           "peak %.1f MB%s\n",
        p.ms.mid, p.ms.low, p.ms.high, p.mb, met ? "" : "  < target of 50 ms, 64 MB");
  if (!o->keep) remove_tree(dir);
}

/* ---- main ---- */

static struct options parse(int argc, char **argv) {
  struct options o = {.rounds = 31};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : "";
    const struct {
      const char *name;
      uint64_t *number;
      const char **text;
      bool *flag;
    } known[] = {{"--rounds", &o.rounds, NULL, NULL}, {"--depth", &o.depth, NULL, NULL},
        {"--inflight", &o.inflight, NULL, NULL}, {"--threads", &o.threads, NULL, NULL},
        {"--block", &o.block, NULL, NULL}, {"--only", NULL, &o.only, NULL},
        {"--dir", NULL, &o.dir, NULL}, {"--profile", NULL, &o.profile, NULL},
        {"--planning", NULL, &o.planning, NULL}, {"--against", NULL, &o.against, NULL},
        {"--json", NULL, NULL, &o.json}, {"--keep", NULL, NULL, &o.keep},
        {"--inline", NULL, NULL, &o.inline_io}, {"--bare", NULL, NULL, &o.bare},
        {"--full", NULL, NULL, &o.full}, {"--list", NULL, NULL, &o.list},
        {"--in-order", NULL, NULL, &o.in_order}, {"--quick", NULL, NULL, &o.quick},
        {"--hedge", NULL, NULL, &o.hedge}, {"--gather", NULL, NULL, &o.gather}};
    size_t k = 0, n = sizeof known / sizeof *known;
    while (k < n && strcmp(known[k].name, a)) k++;
    errno = 0;
    if (!strcmp(a, "--io")) o.io = !strcmp(next, "epoll") ? INSITU_IO_EPOLL : INSITU_IO_URING;
    else must(k < n, "unknown option; see the top of tools/bench/bench.c");
    if (k < n && known[k].flag) *known[k].flag = true;
    else must(++i < argc, "an option lacks its value");
    if (k < n && known[k].number) *known[k].number = strtoull(next, NULL, 10);
    if (k < n && known[k].text) *known[k].text = next;
  }
  if (o.quick) o.rounds = 7;
  if (o.against) o.json = false;
  must(o.rounds >= 1 && o.rounds <= MAX_ROUNDS, "--rounds");
  return o;
}

/* All rows of one archive, which is made only if one of them is wanted. */
static void run_archive(struct row r, const char *root, const struct options *o, uint64_t *count,
    struct consumer consumer[2]) {
  char archive[48], dir[500], name[64];
  bool made = false;
  name_archive(&r, archive);
  snprintf(dir, sizeof dir, "%s/%s.zarr", root, archive);
  for (int i = 0; i < 6; i++) { /* the last two are consumers */
    r.cold = i / 2 == 1;
    r.threads = i % 2 ? 1 : 2;
    if (i >= 4) snprintf(name, sizeof name, "consumer-%s%s", i == 5 ? "busy-" : "", archive);
    else snprintf(name, sizeof name, "%s-%s-%ut", archive, r.cold ? "cold" : "warm", r.threads);
    bool has = i < 4;
    for (size_t k = 0; k < sizeof consumed / sizeof *consumed; k++)
      has = has || !strcmp(consumed[k], archive);
    if (i >= 4 && o->against) has = false;
    if (!has || (o->profile ? strcmp(name, o->profile) : !selected(o, name))) continue;
    memcpy(r.name, name, sizeof r.name);
    if (o->list) {
      printf("%s\n", name);
      continue;
    }
    if (insitu__mem_total() < 7 * r.samples * r.ny * r.nx * 4 &&
        r.chunk * r.ny * r.nx * 4 > 256 << 20) {
      fprintf(stderr, "bench: %s is left out: it needs more memory\n", name);
      continue;
    }
    if (!made) {
      remove_tree(dir);
      make_archive(&r, dir);
      made = true;
    }
    if (i >= 4) consumer[i - 4] = consume(&r, dir, o, i == 5);
    else if (o->against) versions_measure(&r, dir, dir, o);
    else if (o->profile) profile(&r, dir, o);
    else {
      struct result m = measure(&r, dir, o);
      print_share(&r, &m, o, count);
    }
  }
  if (made && !o->keep) remove_tree(dir);
  free(r.length);
}

int main(int argc, char **argv) {
  static const uint64_t chunks[] = {1, 8, 32, 200};
  enum {
    N_CHUNKS = sizeof chunks / sizeof *chunks,
    N_ARCHIVES = 2 * N_CODECS * N_CHUNKS * 2 + N_WINDOWS * N_WINDOW_ARCHIVES
  };
  static struct consumer consumer[N_ARCHIVES][2];
  static char archive[N_ARCHIVES][48];
  struct options o = parse(argc, argv);
  char root[400], name[64], dir[500];
  const char *tmp = getenv("TMPDIR");
  uint64_t count = 0, n = 0;
  if (o.planning) {
    plan_here(o.planning);
    return 0;
  }
  if (o.dir) snprintf(root, sizeof root, "%s", o.dir);
  else snprintf(root, sizeof root, "%s/insitu-bench-%d", tmp && *tmp ? tmp : "/tmp", (int)getpid());
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* thousands of connections */
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  bool made = !o.list && mkdir(root, 0755) == 0, table = !o.profile && !o.list;
  must(o.list || made || errno == EEXIST, root);
  if (o.against) versions_load(o.against);
  if (table) print_machine(&o, root);
  if (table && o.json) printf("\"share\":[\n");
  for (int sharded = 0; sharded < 2; sharded++)
    for (int small = 1; small >= 0; small--)
      for (int codec = 0; codec < N_CODECS; codec++)
        for (size_t k = 0; k < N_CHUNKS; k++, n++) {
          struct row r = make_row(codec, small, chunks[k], sharded);
          name_archive(&r, archive[n]);
          run_archive(r, root, &o, &count, consumer[n]);
        }
  for (const struct window *w = windows; w < windows + N_WINDOWS; w++)
    for (size_t k = 0; k < N_WINDOW_ARCHIVES && w->archive[k].chunk; k++, n++) {
      struct row r = make_window_row(w, w->archive[k].codec, w->archive[k].chunk);
      name_archive(&r, archive[n]);
      run_archive(r, root, &o, &count, consumer[n]);
    }
  if (table) {
    count = 0;
    if (o.json) printf("],\n\"consumer\":[\n");
    for (uint64_t i = 0; i < 2 * n; i++) {
      const struct consumer *c = &consumer[i / 2][i % 2];
      if (!c->nexts) continue;
      if (!o.json && !count++)
        printf("\n%-30s %10s %10s %9s %8s %-14s %8s %8s %8s %8s %8s  %8s %8s\n", "consumer at 80 %",
            "batches/s", "period ms", "achieved", "stall", "95 %", "in next", "p50 ms", "p99 ms",
            "p999 ms", "longest", "p99/half", "nexts");
      snprintf(name, sizeof name, "consumer-%s%.47s", i % 2 ? "busy-" : "", archive[i / 2]);
      print_consumer(name, c, &o, &count);
    }
    run_http(root, &o);
    print_decode(&o);
    snprintf(dir, sizeof dir, "%s/plan.zarr", root);
    print_plan(&o, dir);
    if (o.json) printf("]}\n");
  } else run_http(root, &o);
  if (made && !o.keep) rmdir(root);
  return o.against && !versions_end();
}
