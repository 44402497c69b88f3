/* cc -O2 -std=gnu11 -D_GNU_SOURCE -I. tools/bench.c -o bench -luring -lblosc -llz4 -lzstd -lpthread -lm && ./bench */
/* The loader's throughput as a share of the barest loop that does the same unavoidable work: the same files opened and read,
 * decoded by libblosc on all cores, into destinations as large as the loader's ring of batches. Both run in this process in
 * turns, on archives made here, from the page cache. Every row of the table is measured by pairs of rounds; a round is one epoch,
 * begun and drained. "best" compares the fastest round of each side, "cpu share" user and system seconds: on a busy machine the
 * share itself is biased, because the bare loop ends with its slowest thread.
 *   --rounds N   pairs per row (31)             --only TEXT  rows whose name contains it
 *   --dir D      where to make the archives     --keep       leave them there
 *   --json       one JSON document              --size MB    decoded bytes of a row with large fields (530)
 *   --profile R  only the loader (or, with --bare, only the bare loop) on row R, for --rounds epochs
 *   --depth N --inflight N --threads N --block N --io uring|epoll --inline   as in insitu_loader_desc */
#include <blosc.h>
#include <ftw.h>
#include <liburing.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

#ifdef IO_URING_VERSION_MAJOR
enum { URING_MAJOR = IO_URING_VERSION_MAJOR, URING_MINOR = IO_URING_VERSION_MINOR };
#else /* before 2.4, without a name for its version */
enum { URING_MAJOR = 2, URING_MINOR = 3 };
#endif
enum { PREAD, URING_INLINE, URING_ASYNC, N_MODES };
static const char *const mode_name[] = {"pread", "uring inline", "uring async"};
enum { MAX_DEPTH = 16, MAX_ROUNDS = 10001, MAX_CORES = 256 };

struct row {
  char name[32];
  uint64_t samples, chunk, ny, nx, batch;
  bool blosc;
  uint64_t bytes, stored; /* decoded, stored */
};
struct options {
  uint64_t rounds, size, depth, inflight, threads, block;
  const char *only, *dir, *profile;
  int io;
  bool json, keep, inline_io, bare;
};
struct cost {
  double wall, cpu; /* seconds */
};
struct series {
  double cpu[MAX_ROUNDS], share[MAX_ROUNDS], bare[MAX_ROUNDS], loader[MAX_ROUNDS], bare_cpu[MAX_ROUNDS], loader_cpu[MAX_ROUNDS];
};

static void die(const char *what) {
  fprintf(stderr, "bench: %s: %s\n", what, errno ? strerror(errno) : "failed");
  exit(1);
}
static void must(bool ok, const char *what) {
  if (!ok) die(what);
}
static void *map(uint64_t bytes) { /* prefaulted, in huge pages where possible, like a loader's batches after its first epoch */
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(p != MAP_FAILED, "mmap");
  madvise(p, bytes, MADV_HUGEPAGE);
  return memset(p, 1, bytes);
}
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double cpu_seconds(void) { /* of all threads, the kernel's io_uring workers of this process among them */
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* ---- archives ---- */

static void write_file(const char *path, const void *bytes, uint64_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  must(fd >= 0, path);
  for (uint64_t done = 0; done < n;) {
    ssize_t w = write(fd, (const char *)bytes + done, n - done);
    must(w > 0, path);
    done += (uint64_t)w;
  }
  close(fd);
}

/* Like a temperature: waves, and 15 random bits at the end of each mantissa, so that blosc-lz4-shuffle compresses 1.7 to
 * 2 times. The first element is the sample's number. */
static void make_sample(float *out, uint64_t sample, uint64_t ny, uint64_t nx) {
  static uint64_t seed = 88172645463325252u;
  float col[4096];
  for (uint64_t x = 0; x < nx; x++) col[x] = sinf((float)(x + 3 * sample) * 6.2831853f / (float)nx);
  for (uint64_t y = 0; y < ny; y++) {
    float base = 280 + 25 * sinf((float)y * 3.1415927f / (float)ny), swing = 6 * cosf((float)(y + sample) * 0.02f);
    for (uint64_t x = 0; x < nx; x++) {
      float v = base + swing * col[x];
      uint32_t bits;
      memcpy(&bits, &v, 4);
      seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
      bits ^= (uint32_t)seed & 0x7fff;
      memcpy(&out[y * nx + x], &bits, 4);
    }
  }
  out[0] = (float)sample;
}

static void make_archive(struct row *r, const char *dir) {
  char path[600], meta[600];
  uint64_t sample = r->ny * r->nx * 4, bytes = sample * r->chunk;
  must(mkdir(dir, 0755) == 0, dir);
  snprintf(path, sizeof path, "%s/f", dir);
  must(mkdir(path, 0755) == 0, path);
  snprintf(path, sizeof path, "%s/.zgroup", dir);
  write_file(path, "{\"zarr_format\":2}", 17);
  int n = snprintf(meta, sizeof meta,
      "{\"zarr_format\":2,\"shape\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "],\"chunks\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64
      "],\"dtype\":\"<f4\",\"fill_value\":0,\"order\":\"C\",\"filters\":null,\"compressor\":%s}",
      r->samples, r->ny, r->nx, r->chunk, r->ny, r->nx,
      r->blosc ? "{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}" : "null");
  snprintf(path, sizeof path, "%s/f/.zarray", dir);
  write_file(path, meta, (uint64_t)n);
  char *plain = map(bytes), *packed = map(bytes + BLOSC_MAX_OVERHEAD);
  r->bytes = r->stored = 0;
  for (uint64_t c = 0; c < r->samples / r->chunk; c++) {
    for (uint64_t i = 0; i < r->chunk; i++) make_sample((float *)(void *)(plain + i * sample), c * r->chunk + i, r->ny, r->nx);
    int got = 0;
    if (r->blosc)
      got = blosc_compress_ctx(
          5, BLOSC_SHUFFLE, 4, bytes, plain, packed, bytes + BLOSC_MAX_OVERHEAD, "lz4", 0, (int)insitu__mem_cores());
    must(got >= 0, "blosc_compress_ctx");
    snprintf(path, sizeof path, "%s/f/%" PRIu64 ".0.0", dir, c);
    write_file(path, r->blosc ? packed : plain, r->blosc ? (uint64_t)got : bytes);
    r->bytes += bytes;
    r->stored += r->blosc ? (uint64_t)got : bytes;
  }
  munmap(plain, bytes);
  munmap(packed, bytes + BLOSC_MAX_OVERHEAD);
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* writing back must not go on while we measure */
  must(fd >= 0 && syncfs(fd) == 0, dir);
  close(fd);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}

/* ---- the bare loop ---- */

struct bare_worker {
  struct bare *bare;
  struct io_uring ring;
  unsigned char *buffer[MAX_DEPTH]; /* encoded chunks */
  pthread_t id;
};
struct bare { /* every core takes the next chunk, reads it, decodes it */
  const struct row *row;
  int dirfd, mode;
  bool stop;
  uint64_t chunks, chunk_bytes, most, slots, depth;
  unsigned char *to;
  atomic_uint_least64_t next, done_bytes;
  unsigned n_workers;
  struct bare_worker worker[MAX_CORES];
  pthread_barrier_t begin, end;
};

static int bare_open(struct bare *b, uint64_t chunk) {
  char key[64];
  snprintf(key, sizeof key, "f/%" PRIu64 ".0.0", chunk);
  int fd = openat(b->dirfd, key, O_RDONLY | O_CLOEXEC);
  must(fd >= 0, key);
  return fd;
}
static unsigned char *bare_place(struct bare *b, uint64_t chunk) {
  return b->to + chunk % b->slots * b->chunk_bytes;
}
static void bare_decode(struct bare *b, uint64_t chunk, const unsigned char *from, uint64_t n) {
  if (b->row->blosc) n = (uint64_t)blosc_decompress_ctx(from, bare_place(b, chunk), b->chunk_bytes, 1);
  atomic_fetch_add_explicit(&b->done_bytes, n, memory_order_relaxed);
}

static void bare_pread(struct bare *b, struct bare_worker *w) {
  for (uint64_t c; (c = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->chunks;) {
    int fd = bare_open(b, c);
    unsigned char *to = b->row->blosc ? w->buffer[0] : bare_place(b, c);
    uint64_t n = 0;
    for (ssize_t got; n < b->most && (got = pread(fd, to + n, b->most - n, (off_t)n)) > 0;) n += (uint64_t)got;
    close(fd);
    bare_decode(b, c, to, n);
  }
}

static void bare_uring(struct bare *b, struct bare_worker *w) {
  struct {
    uint64_t chunk, got;
    unsigned char *to;
    int fd;
  } slot[MAX_DEPTH];
  uint64_t idle[MAX_DEPTH], n_idle = b->depth;
  for (uint64_t i = 0; i < b->depth; i++) idle[i] = i;
  for (bool more = true; more || n_idle < b->depth;) {
    while (more && n_idle) {
      uint64_t c = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed), i = idle[n_idle - 1];
      if (c >= b->chunks) {
        more = false;
        break;
      }
      n_idle--;
      slot[i].chunk = c;
      slot[i].got = 0;
      slot[i].fd = bare_open(b, c);
      slot[i].to = b->row->blosc ? w->buffer[i] : bare_place(b, c);
      struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
      io_uring_prep_read(sqe, slot[i].fd, slot[i].to, (unsigned)b->most, 0);
      if (b->mode == URING_ASYNC) sqe->flags |= IOSQE_ASYNC;
      sqe->user_data = i;
    }
    if (n_idle == b->depth) break;
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait(&w->ring, 1);
    while (io_uring_peek_cqe(&w->ring, &cqe) == 0) {
      uint64_t i = cqe->user_data;
      int res = cqe->res;
      io_uring_cqe_seen(&w->ring, cqe);
      must(res >= 0, "io_uring read");
      slot[i].got += (uint64_t)res;
      if (res && !b->row->blosc && slot[i].got < b->most) { /* short */
        struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
        io_uring_prep_read(sqe, slot[i].fd, slot[i].to + slot[i].got, (unsigned)(b->most - slot[i].got), slot[i].got);
        sqe->user_data = i;
        continue;
      }
      close(slot[i].fd);
      bare_decode(b, slot[i].chunk, slot[i].to, slot[i].got);
      idle[n_idle++] = i;
    }
  }
}

static void *bare_main(void *arg) {
  struct bare_worker *w = (struct bare_worker *)arg;
  struct bare *b = w->bare;
  must(io_uring_queue_init(2 * MAX_DEPTH, &w->ring, 0) == 0, "io_uring_queue_init");
  for (;;) {
    pthread_barrier_wait(&b->begin);
    if (b->stop) break;
    if (b->mode == PREAD) bare_pread(b, w);
    else bare_uring(b, w);
    pthread_barrier_wait(&b->end);
  }
  io_uring_queue_exit(&w->ring);
  return NULL;
}

static struct cost bare_round(struct bare *b) {
  double wall = seconds(), cpu = cpu_seconds();
  atomic_store(&b->next, 0);
  atomic_store(&b->done_bytes, 0);
  pthread_barrier_wait(&b->begin);
  pthread_barrier_wait(&b->end);
  struct cost cost = {seconds() - wall, cpu_seconds() - cpu};
  errno = 0;
  must(atomic_load(&b->done_bytes) == b->row->bytes, "the bare loop lost bytes");
  return cost;
}

static void bare_start(struct bare *b, const struct row *r, const char *dir, uint64_t ring_bytes) {
  memset(b, 0, sizeof *b);
  b->row = r;
  must((b->dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0, dir);
  b->n_workers = (unsigned)insitu__base_min(insitu__mem_cores(), MAX_CORES);
  b->chunks = r->samples / r->chunk;
  b->chunk_bytes = r->bytes / b->chunks;
  b->most = r->blosc ? b->chunk_bytes + BLOSC_MAX_OVERHEAD : b->chunk_bytes;
  b->slots = insitu__base_max(b->n_workers, ring_bytes / b->chunk_bytes);
  b->depth = insitu__base_max(1, insitu__base_min(insitu__base_min(8, (64u << 20) / b->most), b->slots / b->n_workers));
  b->to = (unsigned char *)map(b->slots * b->chunk_bytes);
  pthread_barrier_init(&b->begin, NULL, b->n_workers + 1);
  pthread_barrier_init(&b->end, NULL, b->n_workers + 1);
  for (unsigned i = 0; i < b->n_workers; i++) {
    struct bare_worker *w = &b->worker[i];
    w->bare = b;
    for (uint64_t k = 0; r->blosc && k < b->depth; k++) w->buffer[k] = (unsigned char *)map(b->most);
    must(pthread_create(&w->id, NULL, bare_main, w) == 0, "pthread_create");
  }
}

/* The fastest way of reading here, by the least of several rounds each, in turns. */
static void bare_calibrate(struct bare *b, double least[N_MODES]) {
  for (int m = 0; m < N_MODES; m++) least[m] = 1e9;
  double begin = seconds();
  for (int i = 0; i < 7 || (i < 41 && seconds() < begin + 2); i++) {
    for (b->mode = 0; b->mode < N_MODES; b->mode++) {
      double wall = bare_round(b).wall;
      if (i && wall < least[b->mode]) least[b->mode] = wall;
    }
  }
  b->mode = 0;
  for (int m = 1; m < N_MODES; m++)
    if (least[m] < least[b->mode]) b->mode = m;
}

static void bare_stop(struct bare *b) {
  b->stop = true;
  pthread_barrier_wait(&b->begin);
  for (unsigned i = 0; i < b->n_workers; i++) {
    pthread_join(b->worker[i].id, NULL);
    for (uint64_t k = 0; b->row->blosc && k < b->depth; k++) munmap(b->worker[i].buffer[k], b->most);
  }
  pthread_barrier_destroy(&b->begin);
  pthread_barrier_destroy(&b->end);
  munmap(b->to, b->slots * b->chunk_bytes);
  close(b->dirfd);
}

/* ---- the loader ---- */

struct side {
  insitu_loader *loader;
  insitu_iter *iter;
  uint64_t batches;
  bool fresh;
};

static void check(insitu_status status, const insitu_error *err) {
  if (status >= 0) return;
  fprintf(stderr, "bench: %s: %s\n", insitu_status_name(status), err->message);
  exit(1);
}

static uint64_t side_open(struct side *s, const struct row *r, const char *dir, const struct options *o) { /* bytes of the ring */
  insitu_error err = {0};
  insitu_plan plan;
  insitu_variable v = {.label = "f"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = dir,
      .variables = &v,
      .n_variables = 1,
      .batch_size = r->batch,
      .seed = 1,
      .split = {{.fraction = 1}},
      .hold_epoch = 1,
      .prefetch_depth = o->depth,
      .max_inflight = o->inflight,
      .decode_threads = o->threads,
      .block_chunks = o->block,
      .io = o->io,
      .inline_io = o->inline_io};
  check(insitu_loader_open(&d, &s->loader, &err), &err);
  const insitu_iter_desc train = {.api = INSITU_API, .split = INSITU_TRAIN};
  check(insitu_loader_plan(s->loader, &train, &plan, &err), &err);
  check(insitu_iter_open(s->loader, &train, &s->iter, &err), &err);
  errno = 0;
  must(plan.rows == r->samples && plan.amplification == 1, "an epoch is not every chunk once");
  s->batches = plan.batches;
  s->fresh = true;
  return plan.slabs * plan.slab_bytes;
}

/* One epoch. Because of hold_epoch the loader is idle from here to the next call, which begins by taking END. */
static struct cost side_round(struct side *s) {
  double wall = seconds(), cpu = cpu_seconds();
  insitu_error err = {0};
  insitu_batch *b;
  errno = 0;
  if (!s->fresh) must(insitu_iter_next(s->iter, INSITU_FOREVER, &b, &err) == INSITU_END, "the epoch does not end");
  s->fresh = false;
  for (uint64_t i = 0; i < s->batches; i++) {
    check(insitu_iter_next(s->iter, INSITU_FOREVER, &b, &err), &err);
    must(b != NULL, "an epoch ends early");
    uint64_t stride = (uint64_t)b->arrays[0].strides[0];
    for (uint64_t k = 0; k < b->rows; k++)
      must(((const float *)b->arrays[0].data)[k * stride] == (float)b->sample_indices[k], "a row shows another sample");
    insitu_batch_release(&b);
  }
  return (struct cost){seconds() - wall, cpu_seconds() - cpu};
}

static void side_close(struct side *s) {
  insitu_iter_close(&s->iter);
  insitu_loader_close(&s->loader);
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *v, uint64_t n) { /* sorts */
  qsort(v, n, sizeof *v, by_value);
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}
/* Number of values to leave out at each end so that the rest covers the median with 95 %: binomial order statistics. */
static uint64_t interval_cut(uint64_t n) {
  double term = pow(0.5, (double)n), sum = 0; /* underflows at n > 1000, which cuts nothing: still an interval */
  uint64_t k = 0;
  for (; k < n / 2 && sum + term <= 0.025; k++) {
    sum += term;
    term *= (double)(n - k) / (double)(k + 1);
  }
  return k ? k - 1 : 0;
}

/* ---- the table ---- */

static void print_machine(const struct options *o) {
  char cpu[128] = "unknown", commit[64] = "", line[256];
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
  const char *form = o->json ? "{\"cpu\":\"%s\",\"cores\":%" PRIu64
                               ",\"kernel\":\"%s\",\"liburing\":\"%d.%d\",\"lz4\":\"%s\",\"zstd\":\"%s\","
                               "\"blosc\":\"%s\",\"commit\":\"%s\",\"rows\":[\n"
                             : "cpu %s, %" PRIu64 " cores, kernel %s, liburing %d.%d, lz4 %s, zstd %s, blosc %s, commit %s\n";
  printf(form, cpu, insitu__mem_cores(), u.release, URING_MAJOR, URING_MINOR, LZ4_versionString(), ZSTD_versionString(),
      BLOSC_VERSION_STRING, commit[0] ? commit : "unknown");
  if (!o->json)
    printf("%-15s %7s %-14s %6s %6s %6s %6s  %9s %9s  %7s %7s %9s  %s\n", "row", "share", "95 %", "best", "MB", "ratio", "chunks",
        "bare GB/s", "ours GB/s", "bare cpu", "our cpu", "cpu share", "bare loop reads by (s of each way)");
  fflush(stdout);
}

static void measure(const struct row *r, const char *dir, const struct options *o, bool first) {
  static struct series s;
  static struct bare b;
  struct side side;
  double way[N_MODES];
  uint64_t n = o->rounds, ring = side_open(&side, r, dir, o);
  bare_start(&b, r, dir, ring);
  side_round(&side);
  bare_calibrate(&b, way);
  for (int i = 0; i < 3; i++) side_round(&side);
  for (uint64_t i = 0; i < n; i++) {
    struct cost bare = {0, 0}, ours;
    if (i % 2) bare = bare_round(&b);
    ours = side_round(&side);
    if (i % 2 == 0) bare = bare_round(&b);
    s.share[i] = bare.wall / ours.wall;
    s.cpu[i] = bare.cpu / ours.cpu;
    s.bare[i] = bare.wall, s.loader[i] = ours.wall, s.bare_cpu[i] = bare.cpu, s.loader_cpu[i] = ours.cpu;
  }
  bare_stop(&b);
  side_close(&side);
  double mid = median(s.share, n), best_bare = 1e9, best_ours = 1e9, gb = (double)r->bytes * 1e-9, bare = median(s.bare, n),
         ours = median(s.loader, n);
  for (uint64_t i = 0; i < n; i++) {
    best_bare = fmin(best_bare, s.bare[i]);
    best_ours = fmin(best_ours, s.loader[i]);
  }
  double low = s.share[interval_cut(n)], high = s.share[n - 1 - interval_cut(n)];
  double cpu = median(s.cpu, n), bare_cpu = median(s.bare_cpu, n), our_cpu = median(s.loader_cpu, n),
         ratio = (double)r->bytes / (double)r->stored;
  if (o->json)
    printf("%s{\"row\":\"%s\",\"share\":%.4f,\"low\":%.4f,\"high\":%.4f,\"best\":%.4f,\"rounds\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"ratio\":%.3f,\"chunks\":%" PRIu64
           ",\"bare_gb_s\":%.3f,\"loader_gb_s\":%.3f,\"bare_cpu_s\":%.4f,\"loader_cpu_s\":%.4f,"
           "\"cpu_share\":%.4f,\"bare_mode\":\"%s\"}",
        first ? "" : ",\n", r->name, mid, low, high, best_bare / best_ours, n, r->bytes, ratio, r->samples / r->chunk, gb / bare,
        gb / ours, bare_cpu, our_cpu, cpu, mode_name[b.mode]);
  else
    printf("%-15s %7.3f [%.3f, %.3f] %6.3f %6.0f %6.2f %6" PRIu64 "  %9.2f %9.2f  %8.4f %7.4f %9.3f  %s (%.4f %.4f %.4f)\n",
        r->name, mid, low, high, best_bare / best_ours, gb * 1e3, ratio, r->samples / r->chunk, gb / bare, gb / ours, bare_cpu,
        our_cpu, cpu, mode_name[b.mode], way[0], way[1], way[2]);
  fflush(stdout);
}

static void profile(const struct row *r, const char *dir, const struct options *o) {
  static struct bare b;
  struct side side;
  struct cost sum = {0, 0}, one;
  insitu_stats stats;
  uint64_t ring = side_open(&side, r, dir, o);
  if (o->bare) {
    double way[N_MODES];
    bare_start(&b, r, dir, ring);
    bare_calibrate(&b, way);
  }
  side_round(&side);
  for (uint64_t i = 0; i < o->rounds; i++) {
    one = o->bare ? bare_round(&b) : side_round(&side);
    sum.wall += one.wall;
    sum.cpu += one.cpu;
  }
  check(insitu_loader_stats(side.loader, &stats, NULL), &(insitu_error){0});
  printf("%s, %s: %.3f GB/s, %.4f s and %.4f cpu s an epoch; %s, %" PRIu64 " chunks in flight at most, %" PRIu64
         " bytes of batches\n",
      r->name, o->bare ? mode_name[b.mode] : "loader", 1e-9 * (double)(r->bytes * o->rounds) / sum.wall,
      sum.wall / (double)o->rounds, sum.cpu / (double)o->rounds, stats.io, stats.inflight_peak, stats.slab_bytes_peak);
  if (o->bare) bare_stop(&b);
  side_close(&side);
}

static struct options parse(int argc, char **argv) {
  struct options o = {.rounds = 31, .size = 530};
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : "";
    const struct {
      const char *name;
      uint64_t *number;
      const char **text;
      bool *flag;
    } known[] = {{"--rounds", &o.rounds, NULL, NULL}, {"--size", &o.size, NULL, NULL}, {"--depth", &o.depth, NULL, NULL},
        {"--inflight", &o.inflight, NULL, NULL}, {"--threads", &o.threads, NULL, NULL}, {"--block", &o.block, NULL, NULL},
        {"--only", NULL, &o.only, NULL}, {"--dir", NULL, &o.dir, NULL}, {"--profile", NULL, &o.profile, NULL},
        {"--json", NULL, NULL, &o.json}, {"--keep", NULL, NULL, &o.keep}, {"--inline", NULL, NULL, &o.inline_io},
        {"--bare", NULL, NULL, &o.bare}};
    size_t k = 0, n = sizeof known / sizeof *known;
    while (k < n && strcmp(known[k].name, a)) k++;
    errno = 0;
    if (!strcmp(a, "--io")) o.io = !strcmp(next, "epoll") ? INSITU_IO_EPOLL : INSITU_IO_URING;
    else must(k < n, "unknown option; see the top of tools/bench.c");
    if (k < n && known[k].flag) *known[k].flag = true;
    else must(++i < argc, "an option lacks its value");
    if (k < n && known[k].number) *known[k].number = strtoull(next, NULL, 10);
    if (k < n && known[k].text) *known[k].text = next;
  }
  must(o.rounds >= 1 && o.rounds <= MAX_ROUNDS, "--rounds");
  return o;
}

int main(int argc, char **argv) {
  struct options o = parse(argc, argv);
  char root[400], dir[500];
  const char *tmp = getenv("TMPDIR");
  if (o.dir) snprintf(root, sizeof root, "%s", o.dir);
  else snprintf(root, sizeof root, "%s/insitu-bench-%d", tmp && *tmp ? tmp : "/tmp", (int)getpid());
  bool made = mkdir(root, 0755) == 0, first = true;
  must(made || errno == EEXIST, root);
  uint64_t large = insitu__base_max(1, (o.size * 1000000 + 66000000) / (32 * 721 * 1440 * 4)) * 32; /* nearest */
  if (!o.profile) print_machine(&o);
  for (int small = 0; small < 2; small++) {
    for (int i = 0; i < 4; i++) {
      bool blosc = i >= 2;
      struct row r = {.samples = small ? 8192 : large,
          .chunk = i % 2 ? 32 : 1,
          .ny = small ? 64 : 721,
          .nx = small ? 64 : 1440,
          .batch = small ? 32 : 16,
          .blosc = blosc};
      snprintf(r.name, sizeof r.name, "%s%s-%d", small ? "small-" : "", blosc ? "blosc" : "raw", (int)r.chunk);
      if ((o.only && !strstr(r.name, o.only)) || (o.profile && strcmp(r.name, o.profile))) continue;
      snprintf(dir, sizeof dir, "%s/%s.zarr", root, r.name);
      nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
      make_archive(&r, dir);
      if (o.profile) profile(&r, dir, &o);
      else measure(&r, dir, &o, first);
      first = false;
      if (!o.keep) nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
  }
  if (o.json && !o.profile) printf("\n]}\n");
  if (made && !o.keep) rmdir(root);
  return 0;
}
