/* Chunks of which only some rows are wanted: from a server and from large local files no more is
 * read than their codec needs, and the rows are the same bytes, whatever goes wrong on the way. */
#include "server.h"
#include <blosc.h>
#include <lz4.h>
#include <zstd.h>
#define INSITU__HTTP_PAUSE 1000000 /* nanoseconds */
#define INSITU__HTTP_PAUSE_SLOW 1000000
struct insitu__ring_op;
static int64_t fault(struct insitu__ring_op *op, int64_t got);
#define INSITU_TEST_FAULT(op, got) fault(op, got)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#ifdef __SANITIZE_THREAD__
#define MODES_THREADED /* one thread races with nobody */
#endif
#include "modes.h"

enum { N = 32, CHUNK = 8, LEVELS = 4, Y = 128, X = 128, LEVEL = Y * X * 4, ROW = LEVELS * LEVEL };
enum { BYTES = CHUNK * ROW, CHUNKS = N / CHUNK, HEAD = INSITU__COMP_BLOSC_HEAD };
enum { BLOSC, BITS, PLAIN, RAGGED, STORED, LZ4, ZSTD, ZSTD_SUM, ZSTD_UNSIZED, RAW, KINDS };
static const char *const codecs[] = {
    "blosc", "blosc", "blosc", "blosc", "blosc", "lz4", "zstd", "zstd", "zstd", NULL};
static struct server *server;

/* ---- the archive ---- */

/* Fourteen bits of noise: a chunk is stored in some 0.6 of its bytes. */
static float value(uint64_t t, uint64_t level, uint64_t i) {
  uint64_t x = (t * LEVELS + level) * Y * X + i;
  x = (x + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 32) * 0x94d049bb133111ebu;
  return (float)(1000 + t) + (float)(x >> 50) / 16384;
}

static unsigned char *stored[CHUNKS]; /* as they are in files and inside shards */
static size_t stored_n[CHUNKS];
static bool runs;       /* all but the first row are runs */
static int threads = 1; /* that write a blosc chunk: with several its blocks come in any order */

/* What the archive holds, as batches show it */
static double (*expected)[LEVELS][Y * X];
static void expect(void) {
  static bool filled_with_runs;
  if (expected && filled_with_runs == runs) return;
  if (!expected) expected = malloc(N * sizeof *expected);
  assert_non_null(expected);
  filled_with_runs = runs;
  for (uint64_t t = 0; t < N; t++)
    for (uint64_t level = 0; level < LEVELS; level++)
      for (uint64_t i = 0; i < Y * X; i++)
        expected[t][level][i] = runs && t % CHUNK ? (double)t : (double)value(t, level, i);
}
static size_t pack(int kind, const void *plain, unsigned char *to, size_t cap) {
  uint32_t length = BYTES;
  size_t got = 0;
  if (kind <= STORED) {
    static const char *const names[] = {"lz4", "zstd", "blosclz", "lz4", "lz4"};
    static const int shuffle[] = {BLOSC_SHUFFLE, BLOSC_BITSHUFFLE, 0, BLOSC_SHUFFLE, 0};
    size_t block = kind == RAGGED ? 4 * 25000 : LEVEL / 2;
    blosc_set_splitmode(kind == BITS ? BLOSC_NEVER_SPLIT : BLOSC_FORWARD_COMPAT_SPLIT);
    got = (size_t)blosc_compress_ctx(kind == STORED ? 0 : 5, shuffle[kind], 4, BYTES, plain, to,
        cap, names[kind], block, threads);
    assert_int_equal(got == BYTES + 16, kind == STORED);
  } else if (kind == LZ4) {
    memcpy(to, &length, 4);
    got = 4 +
          (size_t)LZ4_compress_default((const char *)plain, (char *)to + 4, BYTES, (int)(cap - 4));
  } else if (kind == RAW) {
    memcpy(to, plain, BYTES);
    got = BYTES;
  } else {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, kind == ZSTD_SUM);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, kind != ZSTD_UNSIZED);
    got = ZSTD_compress2(c, to, cap, plain, BYTES);
    assert_false(ZSTD_isError(got));
    ZSTD_freeCCtx(c);
  }
  return got;
}
static void write_v2(int kind, const char *v) {
  char meta[600], key[600];
  snprintf(meta, sizeof meta,
      "{\"zarr_format\":2,\"shape\":[%d,%d,%d,%d],\"chunks\":[%d,%d,%d,%d],\"dtype\":\"<f4\","
      "\"order\":\"C\",\"fill_value\":0,\"filters\":null,\"compressor\":%s%s%s}",
      N, LEVELS, Y, X, CHUNK, LEVELS, Y, X, kind == RAW ? "null" : "{\"id\":\"",
      kind == RAW ? "" : codecs[kind], kind == RAW ? "" : "\"}");
  snprintf(key, sizeof key, "%.500s/.zarray", v);
  support_write(key, meta, strlen(meta));
  snprintf(key, sizeof key, "%.500s/.zattrs", v);
  support_write(key, "{\"_ARRAY_DIMENSIONS\":[\"time\",\"level\",\"y\",\"x\"]}", 46);
  for (int c = 0; c < CHUNKS; c++) {
    snprintf(key, sizeof key, "%.500s/%d.0.0.0", v, c);
    support_write(key, stored[c], stored_n[c]);
  }
}
/* Two chunks in each shard, the second one first, and rubbish between. */
static void write_shards(int kind, const char *v) {
  char meta[1200], key[600], codec[200] = "";
  enum { GAP = 777 };
  if (kind == RAW) codec[0] = 0;
  else if (kind <= STORED)
    snprintf(codec, sizeof codec,
        ",{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
        "\"shuffle\",\"typesize\":4,\"blocksize\":0}}");
  else if (kind == LZ4) snprintf(codec, sizeof codec, ",{\"name\":\"numcodecs.lz4\"}");
  else
    snprintf(codec, sizeof codec,
        ",{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":%s}}",
        kind == ZSTD_SUM ? "true" : "false");
  snprintf(meta, sizeof meta,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%d,%d,%d,%d],"
      "\"data_type\":\"float32\",\"chunk_grid\":{\"name\":\"regular\","
      "\"configuration\":{\"chunk_shape\":[%d,%d,%d,%d]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,"
      "\"dimension_names\":[\"time\",\"level\",\"y\",\"x\"],\"codecs\":[{\"name\":"
      "\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[%d,%d,%d,%d],\"codecs\":[{\"name\":"
      "\"bytes\",\"configuration\":{\"endian\":\"little\"}}%s],\"index_codecs\":[{\"name\":"
      "\"bytes\",\"configuration\":{\"endian\":\"little\"}},{\"name\":\"crc32c\"}]}}]}",
      N, LEVELS, Y, X, 2 * CHUNK, LEVELS, Y, X, CHUNK, LEVELS, Y, X, codec);
  snprintf(key, sizeof key, "%.500s/zarr.json", v);
  support_write(key, meta, strlen(meta));
  for (int s = 0; s < CHUNKS / 2; s++) {
    size_t n[2] = {stored_n[2 * s], stored_n[2 * s + 1]}, all = n[0] + n[1] + 2 * GAP + 36;
    unsigned char *shard = calloc(1, all), *index = shard + all - 36;
    assert_non_null(shard);
    memcpy(shard + GAP, stored[2 * s + 1], n[1]);
    memcpy(shard + 2 * GAP + n[1], stored[2 * s], n[0]);
    support_store64(index, 2 * GAP + n[1]);
    support_store64(index + 8, n[0]);
    support_store64(index + 16, GAP);
    support_store64(index + 24, n[1]);
    support_store32(index + 32, support_crc32c(index, 32));
    snprintf(key, sizeof key, "%.500s/c/%d/0/0/0", v, s);
    support_write(key, shard, all);
    free(shard);
  }
}
static void make(int kind, bool shards) {
  size_t cap = BYTES + 65536;
  float *plain = malloc(BYTES);
  assert_non_null(plain);
  support_remove(support_path("v"));
  expect();
  for (uint64_t c = 0; c < CHUNKS; c++) {
    const double *from = expected[c * CHUNK][0];
    for (uint64_t k = 0; k < BYTES / 4; k++) plain[k] = (float)from[k];
    free(stored[c]);
    stored[c] = malloc(cap);
    assert_non_null(stored[c]);
    stored_n[c] = pack(kind, plain, stored[c], cap);
  }
  free(plain);
  static const char group[] = "{\"zarr_format\":3,\"node_type\":\"group\"}";
  support_remove(support_path(shards ? ".zgroup" : "zarr.json"));
  if (shards) support_write(support_path("zarr.json"), group, sizeof group - 1);
  else support_write(support_path(".zgroup"), "{\"zarr_format\":2}", 17);
  if (shards) write_shards(kind, support_path("v"));
  else write_v2(kind, support_path("v"));
}
static uint64_t all_stored(void) {
  uint64_t n = 0;
  for (int c = 0; c < CHUNKS; c++) n += stored_n[c];
  return n;
}

/* ---- loaders ---- */

static const char *here(void) {
  static char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d", server->port);
  return url;
}
static insitu_loader_desc desc_of(const char *url, int m) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = url,
      .batch_size = 4,
      .block_chunks = 1,
      .hold_epoch = 1,
      .assembly = INSITU_SCATTER,
      .max_inflight = 4,
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
}
/* Two variables at t and t + 1, of all levels or of one, in order, in windows of one chunk: each
 * window shows the first row of the next chunk. Raw rows are shown in another type, since those
 * that are shown as they are stored are read one by one anyway. */
static insitu_status pairs(insitu_loader_desc desc, int level, insitu_stats *s, insitu_error *err) {
  char select[32];
  snprintf(select, sizeof select, level < 0 ? "level=[:]" : "level=[%d]", level);
  insitu_variable vars[] = {{.label = "x", .path = "v", .select = select, .dtype = INSITU_F64},
      {.label = "y", .path = "v", .offset = 1, .select = select, .dtype = INSITU_F64}};
  insitu_iter_desc d = {
      .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL, .max_held = 1};
  uint64_t first = level < 0 ? 0 : (uint64_t)level, levels = level < 0 ? LEVELS : 1, rows = 0;
  insitu_loader *ld;
  insitu_iter *it;
  insitu_batch *b;
  desc.variables = vars;
  desc.n_variables = 2;
  ld = open_or_fail(&desc);
  it = open_iter_or_fail(ld, &d);
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, err)) == INSITU_OK) {
    for (int k = 0; k < 2; k++)
      for (uint64_t r = 0; r < b->rows; r++) {
        uint64_t t = (uint64_t)b->sample_indices[r] + (uint64_t)k, n = levels * Y * X;
        const double *got = (const double *)b->arrays[k].data + r * n, *want = expected[t][first];
        if (!memcmp(got, want, n * sizeof *got)) continue;
        for (uint64_t i = 0; i < n; i++)
          if (got[i] != want[i] && !(got[i] == 0 && desc.on_bad_chunk == INSITU_FILL))
            fail_msg("sample %d: element %d is %g, not %g", (int)t, (int)i, got[i], want[i]);
      }
    rows += b->rows;
    insitu_batch_release(&b);
  }
  insitu_plan plan;
  assert_int_equal(insitu_loader_plan(ld, &d, &plan, NULL), INSITU_OK);
  insitu_loader_stats(ld, s, NULL);
  if (status == INSITU_END) {
    assert_int_equal(rows, N - 1);
    assert_int_equal(s->reads, 2 * CHUNKS - 1);
    assert_int_equal(s->reads, plan.reads);
    assert_true(s->bytes_decoded <= plan.read_bytes);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return status;
}
static insitu_stats pairs_or_fail(insitu_loader_desc desc, int level, const char *what) {
  insitu_stats s;
  insitu_error err = {0};
  if (pairs(desc, level, &s, &err) != INSITU_END) fail_msg("%s: %s", what, err.message);
  return s;
}
static bool never(int kind) {
  return kind == ZSTD_SUM || kind == ZSTD_UNSIZED;
}

/* ---- what is read ---- */

/* What is read at most of a chunk for its first row, or for its level. */
static uint64_t most_of_first(int kind, uint64_t n) {
  if (kind == RAW) return ROW;
  /* an eighth, and a guess that begins with 0.75 stored bytes for one, or a large block */
  return n / 4 + HEAD;
}
static void first_rows(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++)
    for (int shards = 0; shards < 2; shards++) {
      if (support_slow() && shards == kind % 2) continue; /* in turns */
      make(kind, shards);
      EACH_MODE_BY_TURNS (m, kind)
        for (int far = 0; far < 2; far++) {
          if (getenv("TEST_VALGRIND") && (far + kind) % 2) continue;
          char what[80];
          snprintf(what, sizeof what, "kind %d, shards %d, far %d, mode %d", kind, shards, far, m);
          server_reset(server);
          insitu_stats s = pairs_or_fail(desc_of(far ? here() : support_dir, m), -1, what);
          uint64_t most = all_stored(), least;
          for (int c = 1; c < CHUNKS; c++) most += most_of_first(kind, stored_n[c]);
          least = all_stored() + (CHUNKS - 1) * (uint64_t)(kind == RAW ? ROW : 30000);
          /* those of which parts are enough for nobody: one chunk shows it, or each */
          if (never(kind)) most = 2 * all_stored() + 3 * (uint64_t)BYTES / 4;
          if (s.bytes_read < least || s.bytes_read > most)
            fail_msg("%s: %" PRIu64 " bytes read, not %" PRIu64 " to %" PRIu64, what, s.bytes_read,
                least, most);
          if (far) assert_true(s.bytes_fetched >= s.bytes_read && s.bytes_fetched < most + 65536);
        }
    }
}
/* Of a level: the ranges of all rows' blocks; lz4 and zstd are read up to the last. */
static void levels(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    make(kind, kind % 2);
    EACH_MODE_BY_TURNS (m, kind)
      for (int far = 0; far < 2; far++) {
        if (getenv("TEST_VALGRIND") && (far + kind) % 2) continue;
        char what[80];
        snprintf(what, sizeof what, "kind %d, far %d, mode %d", kind, far, m);
        insitu_stats s = pairs_or_fail(desc_of(far ? here() : support_dir, m), 2, what);
        bool apart = kind < RAGGED || kind == RAW;
        if (apart && s.bytes_read > 7 * (uint64_t)(stored_n[0] / 4 + HEAD + 8 * 65536))
          fail_msg("%s: %" PRIu64 " bytes read of %" PRIu64, what, s.bytes_read, all_stored());
      }
  }
}

/* ---- boxes ---- */

static insitu_status box(
    insitu_loader *ld, const int64_t *lo, const int64_t *hi, insitu_error *err) {
  insitu_slice slices[4];
  uint64_t n = 1;
  insitu_shape shape;
  for (int d = 0; d < 4; d++) {
    slices[d] = (insitu_slice){.axis = d, .start = lo[d], .stop = hi[d]};
    n *= (uint64_t)(hi[d] - lo[d]);
  }
  insitu_variable v = {.path = "v", .slices = slices, .n_slices = 4};
  float *out = malloc(n * 4), *at = out;
  assert_non_null(out);
  insitu_status status = insitu_read(ld, &v, out, n * 4, &shape, err);
  for (int64_t t = lo[0]; t < hi[0] && !status; t++)
    for (int64_t l = lo[1]; l < hi[1]; l++)
      for (int64_t y = lo[2]; y < hi[2]; y++)
        for (int64_t x = lo[3]; x < hi[3]; x++, at++)
          if (*at != (float)expected[t][l][y * X + x])
            fail_msg("%d %d %d %d is %g", (int)t, (int)l, (int)y, (int)x, (double)*at);
  free(out);
  return status;
}
static insitu_loader *bare(const char *url, int m) {
  insitu_loader_desc desc = desc_of(url, m);
  desc.plan_only = 1;
  return open_or_fail(&desc);
}
static void boxes(void **state) {
  static const int64_t shape[] = {N, LEVELS, Y, X};
  (void)state;
  for (int k = 0; k < 2 * KINDS; k++) {
    if (support_slow() && k % 2 == k / 2 % 2) continue; /* one thread or several, in turns */
    threads = 1 + 3 * (k & 1);
    make(k / 2, k / 2 % 2 ^ (k & 1));
    for (int far = 0; far < 2; far++) {
      insitu_loader *ld = bare(far ? here() : support_dir, any_mode());
      for (int round = 0; round < (support_slow() ? 4 : 12); round++) {
        int64_t lo[4], hi[4];
        insitu_error err = {0};
        for (int d = 0; d < 4; d++) {
          int64_t n = d ? shape[d] : 1 + (int64_t)support_below(CHUNK);
          lo[d] = (int64_t)support_below((uint64_t)(shape[d] - n + 1));
          hi[d] = lo[d] + n;
          if (d == 1 && support_below(2)) hi[d] = lo[d] + 1;
          if (d == 2) lo[d] = (int64_t)support_below(Y), hi[d] = lo[d] + 1;
        }
        if (box(ld, lo, hi, &err)) fail_msg("kind %d: %s", k / 2, err.message);
      }
      insitu_loader_close(&ld);
    }
  }
  threads = 1;
}

/* The last row: after the head of blosc, one range; of what has to be decoded up to it, all. */
static void last_row(void **state) {
  static const int64_t lo[] = {CHUNK - 1, 0, 0, 0}, hi[] = {CHUNK, LEVELS, Y, X};
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    make(kind, false);
    EACH_MODE (m)
      for (int far = 0; far < 2; far++) {
        server_reset(server);
        insitu_loader *ld = bare(far ? here() : support_dir, m);
        insitu_stats s;
        insitu_error err = {0};
        if (box(ld, lo, hi, &err)) fail_msg("kind %d: %s", kind, err.message);
        insitu_loader_stats(ld, &s, NULL);
        insitu_loader_close(&ld);
        if (kind < LZ4) assert_int_equal(s.requests, 2);
        else assert_int_equal(s.requests, 1);
        if (far) assert_int_equal(server_seen(server, "if-match:"), s.requests - 1);
        if (kind == RAW) assert_int_equal(s.bytes_read, ROW);
        else if (kind < LZ4) assert_in_range(s.bytes_read, 20000, stored_n[0] / 4 + HEAD);
        else assert_int_equal(s.bytes_read, stored_n[0]);
      }
  }
}

/* ---- guesses ---- */

/* The first row is noise, and all others are runs: the ratio says nothing of it. What is missing is
 * read, and later guesses are longer. */
static void too_short(void **state) {
  static const int kinds[] = {BLOSC, BITS, PLAIN, RAGGED, LZ4, ZSTD};
  (void)state;
  runs = true;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int shards = 0; shards < 2; shards++) {
      if (support_slow() && shards == (int)k % 2) continue;
      make(kinds[k], shards);
      EACH_MODE (m) {
        insitu_stats s = pairs_or_fail(desc_of(here(), m), -1, "noise, then runs");
        assert_true(s.bytes_read <= 2 * all_stored());
      }
    }
  runs = false;
}

/* ---- what goes wrong ---- */

struct ill {
  const char *name;
  struct server_rule rule[2];
  insitu_status status; /* 0: nothing is lost */
  uint64_t retries;
  bool whole; /* chunks are then read whole */
};
static void what_goes_wrong(void **state) {
#define CHUNK_1 "v/1.0.0.0"
  static const struct ill ills[] = {
      {"ranges ignored", .rule = {{.key = "v/?.0.0.0", .fault = SERVER_WHOLE}}, .whole = true},
      {"no version", .rule = {{.key = "v/?.0.0.0", .fault = SERVER_ETAG, .text = ""},
                         {.key = "v/?.0.0.0", .fault = SERVER_MODIFIED, .text = ""}}},
      {"weak versions", .rule = {{.key = "v/?.0.0.0", .fault = SERVER_ETAG, .text = "W/\"a\""},
                            {.key = "v/?.0.0.0", .fault = SERVER_MODIFIED, .text = ""}}},
      {"another version after the first read",
          .rule = {{.key = CHUNK_1, .skip = 1, .count = 1, .fault = SERVER_CHANGE}},
          .status = INSITU_E_CHANGED},
      {"another ETag after the first read",
          .rule = {{.key = CHUNK_1, .skip = 1, .fault = SERVER_ETAG, .text = "\"x\""}},
          .status = INSITU_E_CHANGED},
      {"gone after the first read",
          .rule = {{.key = CHUNK_1, .skip = 1, .fault = SERVER_STATUS, .status = 404}},
          .status = INSITU_E_CHANGED},
      {"cut short",
          .rule = {{.key = CHUNK_1, .each = true, .count = 2, .fault = SERVER_CLOSE, .at = 3000}},
          .retries = 1},
      {"the second read is cut short",
          .rule = {{.key = CHUNK_1, .skip = 1, .count = 1, .fault = SERVER_CLOSE, .at = 3000}},
          .retries = 1},
      {"broken off",
          .rule = {{.key = CHUNK_1, .skip = 1, .count = 1, .fault = SERVER_RESET, .at = 9000}},
          .retries = 1},
      {"refused at first",
          .rule = {{.key = "v/?.0.0.0",
              .each = true,
              .count = 2,
              .fault = SERVER_STATUS,
              .status = 503}},
          .retries = 1},
      {"refused", .rule = {{.key = CHUNK_1, .skip = 1, .fault = SERVER_STATUS, .status = 403}},
          .status = INSITU_E_AUTH},
      {"ranges ignored after the first read",
          .rule = {{.key = "v/?.0.0.0", .skip = 1, .fault = SERVER_WHOLE}}}};
  static const int64_t lo[] = {CHUNK + 5, 0, 0, 0}, hi[] = {CHUNK + 6, LEVELS, Y, X};
  static const int kinds[] = {BLOSC, ZSTD, RAW};
  int usable[MODES], n = 0;
  (void)state;
  EACH_MODE (m) usable[n++] = m;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    bool blosc = kinds[k] == BLOSC;
    make(kinds[k], false);
    for (size_t i = 0; i < sizeof ills / sizeof *ills; i++) {
      if (support_slow() && i % 3 != k) continue;
      const struct ill *f = &ills[i];
      insitu_error err = {0};
      insitu_stats s;
      int m = usable[i % (size_t)n];
      server_reset(server);
      for (int j = 0; j < 2; j++)
        if (f->rule[j].fault) server_rule(server, f->rule[j]);
      insitu_loader *ld = bare(here(), m); /* one row: of blosc, the head and a range */
      insitu_status status = box(ld, lo, hi, &err);
      insitu_loader_stats(ld, &s, NULL);
      insitu_loader_close(&ld);
      if (status != (blosc || s.requests > 1 ? f->status : 0))
        fail_msg("%s, kind %d: %s: %s", f->name, kinds[k], insitu_status_name(status), err.message);
      if (blosc && !status) assert_true(s.retries >= f->retries);
      if (blosc && (f->whole || i == 1 || i == 2)) assert_true(s.bytes_read >= stored_n[1]);

      server_reset(server);
      for (int j = 0; j < 2; j++)
        if (f->rule[j].fault) server_rule(server, f->rule[j]);
      insitu_loader_desc desc = desc_of(here(), m);
      desc.max_inflight = 1; /* else the two reads of a chunk do not know of each other */
      status = pairs(desc, -1, &s, &err);
      if (status != (f->status ? f->status : INSITU_END))
        fail_msg("%s, kind %d: %s: %s", f->name, kinds[k], insitu_status_name(status), err.message);
    }
  }
}

/* A shard whose index gives a raw chunk another length: damage, also where one row is wanted. */
static void wrong_length(void **state) {
  static const int64_t lo[] = {1, 0, 0, 0}, hi[] = {2, LEVELS, Y, X};
  (void)state;
  make(RAW, true);
  char path[600];
  unsigned char index[36];
  snprintf(path, sizeof path, "%.500s/v/c/0/0/0/0", support_dir);
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, -36, SEEK_END), 0);
  assert_int_equal(fread(index, 1, 36, f), 36);
  support_store64(index + 8, 100);
  support_store32(index + 32, support_crc32c(index, 32));
  assert_int_equal(fseek(f, -36, SEEK_END), 0);
  assert_int_equal(fwrite(index, 1, 36, f), 36);
  assert_int_equal(fclose(f), 0);
  for (int far = 0; far < 2; far++) {
    insitu_loader *ld = bare(far ? here() : support_dir, any_mode());
    insitu_error err = {0};
    assert_int_equal(box(ld, lo, hi, &err), INSITU_E_CORRUPT);
    insitu_loader_close(&ld);
  }
}

/* Damage in what is wanted is that of a whole read; damage elsewhere is not seen. */
static void damage(void **state) {
  static const int64_t lo[] = {2, 0, 0, 0}, hi[] = {3, LEVELS, Y, X};
  (void)state;
  server_reset(server);
  for (int kind = 0; kind < RAW; kind++) {
    make(kind, false);
    for (int where = 0; where < 3; where++) {
      /* in the head, in the wanted row, behind it */
      size_t at = where == 0   ? (kind == LZ4 ? 0 : 4)
                  : where == 1 ? stored_n[0] * 5 / 16
                               : stored_n[0] - 300;
      unsigned char *copy = malloc(stored_n[0]);
      assert_non_null(copy);
      memcpy(copy, stored[0], stored_n[0]);
      for (size_t i = 0; i < (where ? 300 : 2); i++) copy[at + i] ^= 0xff;
      support_write(support_path("v/0.0.0.0"), copy, stored_n[0]);
      free(copy);
      for (int far = 0; far < 2; far++) {
        insitu_loader *ld = bare(far ? here() : support_dir, any_mode());
        insitu_error err = {0};
        insitu_status status = INSITU_OK;
        if (where == 1) { /* noise that is stored plain is damaged unseen */
          float *out = malloc(ROW);
          insitu_slice slice = {.axis = 0, .start = 2, .stop = 3};
          insitu_variable v = {.path = "v", .slices = &slice, .n_slices = 1};
          status = insitu_read(ld, &v, out, ROW, NULL, &err);
          if (status && status != INSITU_E_CORRUPT) fail_msg("%s", err.message);
          free(out);
        } else {
          status = box(ld, lo, hi, &err);
          if (where == 0) assert_int_equal(status, INSITU_E_CORRUPT);
          else
            assert_int_equal(
                status, never(kind) && kind == ZSTD_SUM ? INSITU_E_CORRUPT : INSITU_OK);
        }
        insitu_loader_close(&ld);
      }
    }
    if (support_slow() && kind % 3) continue;
    /* the policy is that of whole reads: the chunk is filled, once by each window */
    insitu_loader_desc desc = desc_of(here(), any_mode());
    desc.on_bad_chunk = INSITU_FILL;
    unsigned char noise[64];
    memset(noise, 0xff, sizeof noise);
    support_write(support_path("v/0.0.0.0"), stored[0], stored_n[0]);
    support_write(support_path("v/1.0.0.0"), noise, sizeof noise);
    insitu_stats s = pairs_or_fail(desc, -1, "filled");
    assert_int_equal(s.bad_chunks, 2);
    assert_int_equal(unlink(support_path("v/1.0.0.0")), 0);
    desc.on_absent_chunk = INSITU_FILL;
    s = pairs_or_fail(desc, -1, "absent");
    assert_int_equal(s.bad_chunks, 0);
    assert_int_equal(s.absent_chunks, 2);
  }
}

/* What goes through a cache on disk is read whole, and so is served to every window. */
static void cached(void **state) {
  (void)state;
  server_reset(server);
  make(BLOSC, false);
  insitu_loader_desc desc = desc_of(here(), any_mode());
  desc.cache_dir = support_path("cache");
  desc.max_inflight = 1;
  for (int again = 0; again < 2; again++) {
    insitu_stats s = pairs_or_fail(desc, -1, "cached");
    assert_true(s.bytes_read > all_stored() * 7 / 4);
    assert_true(s.disk_hits >= (again ? 7 : 3));
  }
  support_remove(support_path("cache"));
}

/* ---- a file that is replaced ---- */

static _Atomic int replace_after = -1; /* reads of the chunk's file; -1: never */
static int64_t fault(struct insitu__ring_op *op, int64_t got) {
  if (op->stage != INSITU__RING_STAGE_READ || got < 0 || !strstr(op->path, "v/1.0.0.0")) return got;
  if (replace_after < 0 || replace_after--) return got;
  support_write(support_path("v/new"), stored[2], stored_n[2]);
  rename(support_path("v/new"), support_path("v/1.0.0.0"));
  return got;
}
static void replaced_file(void **state) {
  static const int64_t lo[] = {CHUNK + 5, 0, 0, 0}, hi[] = {CHUNK + 6, LEVELS, Y, X};
  (void)state;
  for (int gone = 0; gone < 2; gone++)
    EACH_MODE (m) {
      insitu_error err = {0};
      make(BLOSC, false);
      insitu_loader *ld = bare(support_dir, m);
      replace_after = 0;
      insitu_status status = box(ld, lo, hi, &err);
      if (status != INSITU_E_CHANGED) fail_msg("%s: %s", insitu_status_name(status), err.message);
      assert_int_equal(replace_after, -1);
      insitu_loader_close(&ld);
    }
}

static int setup(void **state) {
  if (support_setup(state)) return -1;
  server = server_start(&(struct server_options){.folder = support_dir});
  return 0;
}
static int teardown(void **state) {
  server_stop(&server);
  for (int c = 0; c < CHUNKS; c++) free(stored[c]);
  free(expected);
  return support_teardown(state);
}
int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(first_rows), cmocka_unit_test(levels),
      cmocka_unit_test(boxes), cmocka_unit_test(last_row), cmocka_unit_test(too_short),
      cmocka_unit_test(what_goes_wrong), cmocka_unit_test(wrong_length), cmocka_unit_test(damage),
      cmocka_unit_test(cached), cmocka_unit_test(replaced_file)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
