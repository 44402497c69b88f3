/* The loader's side of bench.c beside whole epochs (bench_side.h): a consumer that works between
 * batches, planning alone, and decoders alone. */
#ifndef TOOLS_BENCH_LOADER_H
#define TOOLS_BENCH_LOADER_H
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- a consumer at 80 % of capacity ---- */

struct consumer {
  /* batches a second that the loader alone delivers; seconds that the consumer works on one */
  double capacity, period, achieved; /* achieved: share of the capacity that was taken */
  /* shares of the wall time: the loader's own clock of waiting, all of next seen from outside */
  struct summary stall, inside;
  double p50, p99, p999, longest; /* of next, in periods */
  uint64_t nexts;
};

static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A thread that takes processor time until it is told to end. */
static void *consumer_spin(void *arg) {
  while (!atomic_load((atomic_bool *)arg)) continue;
  return NULL;
}

/* Takes n batches, as fast as they come. */
static void consumer_drain(struct side *s, uint64_t n) {
  for (uint64_t k = 0; k < n; k++) {
    insitu_batch *b = side_next(s);
    side_check(b);
    insitu_batch_release(&b);
  }
}

/* Batches a second that the loader delivers at most: while another thread takes processor time, if
 * busy. The batches that lay ready are taken before. */
static double consumer_capacity(struct side *s, bool busy) {
  pthread_t spinner;
  atomic_bool end = false;
  uint64_t n = 0;
  if (busy) must(pthread_create(&spinner, NULL, consumer_spin, &end) == 0, "pthread_create");
  consumer_drain(s, insitu__base_max(64, s->batches));
  double begin = seconds(), wall = 0;
  for (; wall < 0.1; n += 8, wall = seconds() - begin) consumer_drain(s, 8);
  if (busy) {
    atomic_store(&end, true);
    pthread_join(spinner, NULL);
  }

  return (double)n / wall;
}

static void consumer_sleep(double until) {
  struct timespec at = {(time_t)until, (long)((until - floor(until)) * 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* Takes n batches, each for one period; it holds its batch meanwhile. A sleep ends late by what the
 * timer and the scheduler need: the next one is shorter by as much, so that the work takes a period
 * on average. took: seconds of each next. Returns the seconds of all. */
static double consumer_run(struct side *s, double period, bool busy, uint64_t n, double *took) {
  double begin = seconds(), late = 0;
  for (uint64_t k = 0; k < n; k++) {
    double t = seconds();
    insitu_batch *b = side_next(s);
    double done = seconds(), until = done + period - fmin(late, period);
    took[k] = done - t;
    side_check(b);
    if (busy) {
      for (double from = thread_seconds(); thread_seconds() - from < period;) continue;
    } else {
      consumer_sleep(until);
      late = seconds() - until;
    }
    insitu_batch_release(&b);
  }
  return seconds() - begin;
}

/* Parts in turns: the capacity, and then a consumer at 80 % of it. Each begins with all prefetched
 * batches ready, as they are in a long run. The consumer sleeps while it "works", as one does that
 * waits for a GPU; or it is busy, and its work takes a period of processor time. Epochs follow each
 * other without a pause (hold_epoch is off). */
static struct consumer consume(
    const struct row *r, const char *dir, const struct options *o, bool busy) {
  struct side s;
  struct consumer out = {0};
  uint64_t room = 0, n = 0;
  double *took = NULL, *stall = (double *)take(5 * o->rounds, sizeof *stall),
         *inside = stall + o->rounds, *capacity = inside + o->rounds,
         *period = capacity + o->rounds, *achieved = period + o->rounds;
  errno = 0;
  must(side_open(&s, r, dir, o, false), "consumer");
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  for (uint64_t i = 0; i < o->rounds; i++) {
    insitu_stats before, after;
    capacity[i] = consumer_capacity(&s, busy);
    period[i] = 1 / (0.8 * capacity[i]);
    uint64_t each = insitu__base_max(1000 / o->rounds + 1, (uint64_t)(0.1 / period[i]));
    if (n + each > room) {
      room = 2 * room + each;
      took = (double *)realloc(took, room * sizeof *took);
      must(took != NULL, "realloc");
    }
    consumer_sleep(seconds() + 70 * period[i]);
    consumer_run(&s, period[i], busy, each / 4, took + n);
    check(insitu_loader_stats(s.loader, &before, NULL), &(insitu_error){0});
    double all = consumer_run(&s, period[i], busy, each, took + n);
    check(insitu_loader_stats(s.loader, &after, NULL), &(insitu_error){0});
    for (uint64_t k = n; k < n + each; k++) {
      inside[i] += took[k] / all;
      took[k] /= period[i];
    }
    stall[i] = (after.stall_s - before.stall_s) / all;
    achieved[i] = (double)each / all / capacity[i];
    n += each;
  }

  side_close(&s);
  summarise(took, n);
  out.nexts = n;
  out.stall = summarise(stall, o->rounds);
  out.inside = summarise(inside, o->rounds);
  out.capacity = summarise(capacity, o->rounds).mid;
  out.period = summarise(period, o->rounds).mid;
  out.achieved = summarise(achieved, o->rounds).mid;
  out.p50 = quantile(took, n, 0.5), out.p99 = quantile(took, n, 0.99),
  out.p999 = quantile(took, n, 0.999), out.longest = took[n - 1];
  free(took);
  free(stall);
  return out;
}

/* ---- planning 10^9 samples in one-sample chunks, up to the chunks of the first batch ---- */

/* of this program: what getrusage tells includes the process that began it */
static uint64_t peak_kib(void) {
  unsigned long kib = 0;
  char line[256];
  FILE *f = fopen("/proc/self/status", "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmHWM: %lu", &kib) == 1) break;
  if (f) fclose(f);
  return kib;
}

/* Opens the archive and plans up to the chunks of the first batch. Returns seconds; *chunks: how
 * many these are. */
static double plan_once(const char *dir, uint64_t *chunks) {
  insitu_error err = {0};
  insitu_variable v = {.label = "f"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = dir,
      .variables = &v,
      .n_variables = 1,
      .seed = 1,
      .split = {{.fraction = 1}},
      .plan_only = 1};
  insitu_loader *loader;
  struct insitu__plan p;
  struct insitu__order order;
  struct insitu__plan_scan scan;
  double begin = seconds();
  *chunks = 0;
  check(insitu_loader_open(&d, &loader, &err), &err);
  check(insitu__plan_init(&p, &loader->geometry, &loader->split, INSITU_TRAIN, INSITU_SHUFFLED,
            &loader->config, &err),
      &err);
  check(insitu__plan_order(&p, 0, &order, &err), &err);
  check(insitu__plan_scan_init(&scan, &p, &order, &err), &err);
  while (scan.batch < 1) *chunks += insitu__plan_scan_step(&scan) == INSITU__PLAN_TILE;
  double took = seconds() - begin;
  insitu__plan_scan_free(&scan);
  insitu__order_free(&order);
  insitu_loader_close(&loader);
  return took;
}
/* Runs in a process of its own, because its peak of memory is a result: prints milliseconds, chunks
 * and that peak in KiB. */
static void plan_here(const char *dir) {
  uint64_t chunks;
  double took = plan_once(dir, &chunks);
  printf("%.6f %" PRIu64 " %" PRIu64 "\n", 1e3 * took, chunks, peak_kib());
}

struct planning {
  struct summary ms;
  double mb; /* the most of all processes, with the program itself and its libraries */
};

/* An array of 10^9 one-sample chunks, of which none is there. */
static void plan_archive(const char *dir) {
  char path[600];
  must(mkdir(dir, 0755) == 0, dir);
  snprintf(path, sizeof path, "%s/f", dir);
  must(mkdir(path, 0755) == 0, path);
  snprintf(path, sizeof path, "%s/.zgroup", dir);
  write_file(path, "{\"zarr_format\":2}", 17);
  static const char meta[] = "{\"zarr_format\":2,\"shape\":[1000000000,64,64],\"chunks\":[1,64,64],"
                             "\"dtype\":\"<f4\",\"fill_value\":0,"
                             "\"order\":\"C\",\"filters\":null,\"compressor\":null}";
  snprintf(path, sizeof path, "%s/f/.zarray", dir);
  write_file(path, meta, strlen(meta));
}
static struct planning plan_huge(const char *dir, uint64_t rounds) {
  struct planning out = {.mb = 0};
  double *ms = (double *)take(rounds, sizeof *ms);
  plan_archive(dir);
  for (uint64_t i = 0; i < rounds; i++) {
    int end[2], status;
    char line[64] = "";
    uint64_t chunks, kib;
    must(pipe2(end, O_CLOEXEC) == 0, "pipe");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (!child) {
      dup2(end[1], 1);
      execl("/proc/self/exe", "bench", "--planning", dir, (char *)NULL);
      _exit(127);
    }
    close(end[1]);
    ssize_t n = read(end[0], line, sizeof line - 1);
    close(end[0]);
    must(waitpid(child, &status, 0) == child && !status && n > 0, "planning in its own process");
    must(sscanf(line, "%lf %" SCNu64 " %" SCNu64, &ms[i], &chunks, &kib) == 3 && chunks == 32,
        "planning: not 32 chunks for 32 samples");
    out.mb = fmax(out.mb, (double)kib * 1024e-6);
  }
  out.ms = summarise(ms, rounds);
  free(ms);
  return out;
}

/* ---- decoders, one thread, against the call of the reference library ---- */

enum { DECODE_BLOSC, DECODE_ZSTD, DECODE_LZ4, DECODE_DEFLATE, DECODE_BZ2, DECODE_SUM };
struct decoder {
  const char *name;
  int kind, codec; /* codec: of the header */
  int shuffle;
  const char *inner;
};
static const struct decoder decoders[] = {
    {"blosc-lz4", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_SHUFFLE, "lz4"},
    {"blosc-lz4-bit", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_BITSHUFFLE, "lz4"},
    {"blosc-zstd", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_SHUFFLE, "zstd"},
    {"blosc-zlib", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_SHUFFLE, "zlib"},
    {"blosc-blosclz", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_SHUFFLE, "blosclz"},
    {"blosc-blosclz-bit", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_BITSHUFFLE, "blosclz"},
    {"blosc-snappy", DECODE_BLOSC, INSITU__CODEC_BLOSC, BLOSC_SHUFFLE, "snappy"},
    {"zstd", DECODE_ZSTD, INSITU__CODEC_ZSTD, 0, NULL},
    {"lz4", DECODE_LZ4, INSITU__CODEC_LZ4, 0, NULL},
    {"zlib", DECODE_DEFLATE, INSITU__CODEC_ZLIB, 0, NULL},
    {"gzip", DECODE_DEFLATE, INSITU__CODEC_GZIP, 0, NULL},
    {"bz2", DECODE_BZ2, INSITU__CODEC_BZ2, 0, NULL},
    {"crc32c", DECODE_SUM, INSITU__CODEC_CRC32C, 0, NULL},
    {"crc32", DECODE_SUM, INSITU__CODEC_CRC32, 0, NULL},
    {"adler32", DECODE_SUM, INSITU__CODEC_ADLER32, 0, NULL}};
enum { N_DECODERS = sizeof decoders / sizeof *decoders };

struct decoding {
  const struct decoder *of;
  unsigned char *plain, *packed, *to;
  uint64_t bytes, stored;
  ZSTD_DCtx *zstd;
  struct libdeflate_decompressor *deflate;
  struct insitu__codec_scratch scratch;
};
struct decode_result {
  struct summary ratio;
  double reference, ours, packed; /* seconds of one chunk; decoded over stored bytes */
};

static void decode_pack(struct decoding *d) {
  uint64_t most = 2 * d->bytes + (1 << 16), n = d->bytes;
  bool gzip = d->of->codec == INSITU__CODEC_GZIP;
  unsigned packed = (unsigned)most;
  switch (d->of->kind) {
  case DECODE_BLOSC: {
    int got =
        blosc_compress_ctx(5, d->of->shuffle, 4, n, d->plain, d->packed, most, d->of->inner, 0, 1);
    must(got > 0, "blosc_compress_ctx");
    d->stored = (uint64_t)got;
    break;
  }
  case DECODE_ZSTD: d->stored = ZSTD_compress(d->packed, most, d->plain, n, 3); break;
  case DECODE_LZ4: /* numcodecs: the decoded length stands in front */
    insitu__base_store64(d->packed, n);
    d->stored = 4 + (uint64_t)LZ4_compress_default(
                        (const char *)d->plain, (char *)d->packed + 4, (int)n, (int)most - 4);
    break;
  case DECODE_DEFLATE: {
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
    d->stored = c ? (gzip ? libdeflate_gzip_compress : libdeflate_zlib_compress)(
                        c, d->plain, n, d->packed, most)
                  : 0;
    must(d->stored != 0, "libdeflate");
    libdeflate_free_compressor(c);
    break;
  }
  case DECODE_BZ2:
    must(BZ2_bzBuffToBuffCompress(
             (char *)d->packed, &packed, (char *)d->plain, (unsigned)n, 9, 0, 0) == BZ_OK,
        "bzip2");
    d->stored = packed;
    break;
  default: {
    uint32_t sum = d->of->codec == INSITU__CODEC_CRC32C  ? insitu__comp_crc32c(d->plain, n)
                   : d->of->codec == INSITU__CODEC_CRC32 ? libdeflate_crc32(0, d->plain, n)
                                                         : libdeflate_adler32(1, d->plain, n);
    sum = htole32(sum);
    memcpy(d->packed, d->plain, n);
    memcpy(d->packed + n, &sum, 4);
    d->stored = n + 4;
  }
  }
}

/* crc32c has no reference library here: the CPU's instruction over three independent streams, which
 * hides its latency and leaves out combining them. Every checksum makes the copy that the header
 * makes too. */
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint64_t reference_crc(
    const unsigned char *p, uint64_t n) {
  uint64_t a = 0, b = 0, c = 0, third = n / 24 * 8;
  for (uint64_t i = 0; i < third; i += 8) {
    a = __builtin_ia32_crc32di(a, insitu__base_load64(p + i));
    b = __builtin_ia32_crc32di(b, insitu__base_load64(p + third + i));
    c = __builtin_ia32_crc32di(c, insitu__base_load64(p + 2 * third + i));
  }
  return a ^ b ^ c;
}
#else
static uint64_t reference_crc(const unsigned char *p, uint64_t n) {
  return insitu__comp_crc32c(p, n);
}
#endif

static void decode_reference(struct decoding *d) {
  static volatile uint64_t sink;
  uint64_t got = 0;
  unsigned most = (unsigned)d->bytes;
  bool gzip = d->of->codec == INSITU__CODEC_GZIP, crc32 = d->of->codec == INSITU__CODEC_CRC32;
  switch (d->of->kind) {
  case DECODE_BLOSC: got = (uint64_t)blosc_decompress_ctx(d->packed, d->to, d->bytes, 1); break;
  case DECODE_ZSTD:
    got = ZSTD_decompressDCtx(d->zstd, d->to, d->bytes, d->packed, d->stored);
    break;
  case DECODE_LZ4:
    got = (uint64_t)LZ4_decompress_safe(
        (const char *)d->packed + 4, (char *)d->to, (int)d->stored - 4, (int)d->bytes);
    break;
  case DECODE_DEFLATE:
    (gzip ? libdeflate_gzip_decompress : libdeflate_zlib_decompress)(
        d->deflate, d->packed, d->stored, d->to, d->bytes, (size_t *)&got);
    break;
  case DECODE_BZ2:
    must(BZ2_bzBuffToBuffDecompress(
             (char *)d->to, &most, (char *)d->packed, (unsigned)d->stored, 0, 0) == BZ_OK,
        "bzip2");
    got = most;
    break;
  default:
    sink = d->of->codec == INSITU__CODEC_CRC32C
               ? reference_crc(d->packed, d->bytes)
               : (crc32 ? libdeflate_crc32 : libdeflate_adler32)(!crc32, d->packed, d->bytes);
    (void)sink;
    memcpy(d->to, d->packed, d->bytes);
    got = d->bytes;
  }
  errno = 0;
  must(got == d->bytes, "a reference decoder");
}

static void *decode_direct(void *user, uint64_t offset, uint64_t bytes) {
  (void)bytes;
  return ((struct decoding *)user)->to + offset;
}
static insitu_status decode_piece(
    void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)err;
  memcpy(((struct decoding *)user)->to + offset, bytes, n);
  return INSITU_OK;
}
static void decode_ours(struct decoding *d) {
  struct insitu__codec_chain chain = {.n = 1, .codec = {{.kind = d->of->codec}}};
  struct insitu__codec_sink sink = {
      .user = d, .direct = decode_direct, .piece = decode_piece, .element = 4};
  insitu_error err = {0};
  check(
      insitu__chain_decode(&chain, &d->scratch, d->packed, d->stored, d->bytes, &sink, &err), &err);
}

static double decode_time(struct decoding *d, void (*decode)(struct decoding *), uint64_t times) {
  double begin = seconds();
  for (uint64_t i = 0; i < times; i++) decode(d);
  return (seconds() - begin) / (double)times;
}

/* A chunk of ny x nx floats, packed. Returns how often one decodes it in 4 ms. */
static uint64_t decode_start(
    struct decoding *out, const struct decoder *of, uint64_t ny, uint64_t nx) {
  struct decoding d = {.of = of, .bytes = ny * nx * 4};
  d.plain = (unsigned char *)map(d.bytes);
  d.to = (unsigned char *)map(d.bytes);
  d.packed = (unsigned char *)map(2 * d.bytes + (1 << 16));
  must((d.zstd = ZSTD_createDCtx()) != NULL, "ZSTD_createDCtx");
  must((d.deflate = libdeflate_alloc_decompressor()) != NULL, "libdeflate_alloc_decompressor");
  insitu__codec_scratch_init(&d.scratch);
  make_sample((float *)(void *)(of->kind == DECODE_LZ4 ? d.to : d.plain), 0, ny, nx);
  /* lz4 finds nothing in floats: shuffle their bytes before */
  for (uint64_t i = 0; of->kind == DECODE_LZ4 && i < d.bytes; i++)
    d.plain[i % 4 * (d.bytes / 4) + i / 4] = d.to[i];
  decode_pack(&d);
  decode_ours(&d);
  errno = 0;
  must(memcmp(d.to, d.plain, d.bytes) == 0, "a decoder's bytes are not the ones packed");
  decode_reference(&d);
  *out = d;
  return (uint64_t)(0.004 / decode_time(&d, decode_reference, 3)) + 1;
}
static void decode_stop(struct decoding *d) {
  munmap(d->plain, d->bytes);
  munmap(d->to, d->bytes);
  munmap(d->packed, 2 * d->bytes + (1 << 16));
  ZSTD_freeDCtx(d->zstd);
  libdeflate_free_decompressor(d->deflate);
  insitu__codec_scratch_free(&d->scratch);
}

static struct decode_result decode_measure(
    const struct decoder *of, uint64_t ny, uint64_t nx, uint64_t rounds) {
  struct decoding d;
  struct decode_result out;
  double *share = (double *)take(3 * rounds, sizeof *share), *reference = share + rounds,
         *ours = reference + rounds;
  uint64_t times = decode_start(&d, of, ny, nx);
  for (uint64_t i = 0; i < rounds; i++) {
    if (i % 2) reference[i] = decode_time(&d, decode_reference, times);
    ours[i] = decode_time(&d, decode_ours, times);
    if (i % 2 == 0) reference[i] = decode_time(&d, decode_reference, times);
    share[i] = reference[i] / ours[i];
  }
  out.ratio = summarise(share, rounds);
  out.reference = summarise(reference, rounds).mid;
  out.ours = summarise(ours, rounds).mid;
  out.packed = (double)d.bytes / (double)d.stored;
  decode_stop(&d);
  free(share);
  return out;
}
#endif
