/* Parts of chunks: batches and boxes hold the right bytes, and no more of a chunk is decoded than
 * what its codec needs for the rows that a window shows. */
#include <blosc.h>
#include <lz4.h>
#include <zstd.h>
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "gzip.h"

enum { N = 32, CHUNK = 8, LEVELS = 4, Y = 64, X = 128, LEVEL = Y * X * 4, ROW = LEVELS * LEVEL };
enum { BLOSC, BITS, LZ4, ZSTD, ZSTD_SUM, GZIP, RAW, F_ORDER, KINDS };
static const char *const codecs[] = {
    "{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}",
    "{\"id\":\"blosc\",\"cname\":\"zstd\",\"clevel\":1,\"shuffle\":2,\"blocksize\":0}",
    "{\"id\":\"lz4\",\"acceleration\":1}", "{\"id\":\"zstd\",\"level\":1}",
    "{\"id\":\"zstd\",\"level\":1,\"checksum\":true}", "{\"id\":\"gzip\",\"level\":1}", "null",
    "{\"id\":\"zstd\",\"level\":1}"};

static float value(uint64_t t, uint64_t level, uint64_t i) {
  return (float)(t * 1000 + level * 100) + (float)(i % 977) * 0.0625f;
}

/* ---- the archive ---- */

static insitu_object objects[N / CHUNK + 2];
static unsigned char *stored[N / CHUNK];
static size_t stored_n[N / CHUNK];

static size_t pack(int kind, const void *plain, size_t n, unsigned char *to, size_t cap) {
  uint32_t length = (uint32_t)n;
  size_t got = 0;
  if (kind == BLOSC || kind == BITS) { /* blocks of a quarter of a level */
    blosc_set_splitmode(BLOSC_NEVER_SPLIT);
    got = (size_t)blosc_compress_ctx(5, kind == BITS ? BLOSC_BITSHUFFLE : BLOSC_SHUFFLE, 4, n,
        plain, to, cap, kind == BITS ? "zstd" : "lz4", LEVEL / 4, 1);
    assert_int_equal(to[8] | to[9] << 8 | to[10] << 16 | to[11] << 24, LEVEL / 4);
  } else if (kind == LZ4) {
    memcpy(to, &length, 4);
    got = 4 +
          (size_t)LZ4_compress_default((const char *)plain, (char *)to + 4, (int)n, (int)(cap - 4));
  } else if (kind == GZIP) {
    got = gzip_pack(plain, n, to, cap);
  } else if (kind == RAW) {
    memcpy(to, plain, n);
    got = n;
  } else {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, kind == ZSTD_SUM);
    got = ZSTD_compress2(c, to, cap, plain, n);
    assert_false(ZSTD_isError(got));
    ZSTD_freeCCtx(c);
  }
  return got;
}
static void make(int kind) {
  static char meta[600], key[N / CHUNK][32];
  size_t n = (size_t)CHUNK * ROW, cap = n + 65536;
  float *plain = malloc(n);
  assert_non_null(plain);
  snprintf(meta, sizeof meta,
      "{\"zarr_format\":2,\"shape\":[%d,%d,%d,%d],\"chunks\":[%d,%d,%d,%d],\"dtype\":\"<f4\","
      "\"order\":\"%s\",\"fill_value\":0,\"filters\":null,\"compressor\":%s}",
      N, LEVELS, Y, X, CHUNK, LEVELS, Y, X, kind == F_ORDER ? "F" : "C", codecs[kind]);
  objects[0] = (insitu_object){"v/.zarray", meta, strlen(meta)};
  objects[1] =
      (insitu_object){"v/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"time\",\"level\",\"y\",\"x\"]}", 46};
  for (uint64_t c = 0; c < N / CHUNK; c++) {
    for (uint64_t t = 0; t < CHUNK; t++)
      for (uint64_t l = 0; l < LEVELS; l++)
        for (uint64_t i = 0; i < Y * X; i++) {
          uint64_t at = (t * LEVELS + l) * Y * X + i;
          if (kind == F_ORDER) at = ((i % X * Y + i / X) * LEVELS + l) * CHUNK + t;
          plain[at] = value(c * CHUNK + t, l, i);
        }
    free(stored[c]);
    stored[c] = malloc(cap);
    assert_non_null(stored[c]);
    stored_n[c] = pack(kind, plain, n, stored[c], cap);
    snprintf(key[c], sizeof key[c], "v/%u.0.0.0", (unsigned)c);
    objects[2 + c] = (insitu_object){key[c], stored[c], stored_n[c]};
  }
  free(plain);
}
static insitu_loader *open_with(const insitu_variable *vars, uint64_t n, int m, int32_t assembly) {
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://",
      .objects = objects,
      .n_objects = sizeof objects / sizeof *objects,
      .variables = vars,
      .n_variables = n,
      .batch_size = 4,
      .block_chunks = 1,
      .hold_epoch = 1,
      .assembly = assembly,
      .plan_only = !n,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  insitu_loader *ld;
  insitu_error err;
  if (insitu_loader_open(&desc, &ld, &err)) fail_msg("%s", err.message);
  return ld;
}
/* Whether a codec decodes `made` bytes for parts of a chunk that end at `end`; `wanted` of their
 * bytes are wanted. */
static void check_made(int kind, uint64_t made, uint64_t wanted, uint64_t end, const char *what) {
  uint64_t least = wanted, most = wanted;
  if (kind == LZ4) least = most = end;
  if (kind == ZSTD) least = end, most = end + (128 << 10);
  if (kind == ZSTD_SUM || kind == GZIP || kind == F_ORDER) least = most = CHUNK * ROW;
  if (made < least || made > most)
    fail_msg("%s, kind %d: %" PRIu64 " bytes decoded, not %" PRIu64 " to %" PRIu64, what, kind,
        made, least, most);
}

/* ---- batches ---- */

/* Two variables of all rows, or with `level` of one level, at t and t + 1. Windows of one chunk:
 * the last anchor of each shows the first row of the next chunk. */
static void run(int kind, int level, int m, int32_t assembly) {
  char select[32];
  snprintf(select, sizeof select, level < 0 ? "level=[:]" : "level=[%d]", level);
  insitu_variable vars[] = {{.label = "x", .path = "v", .select = select},
      {.label = "y", .path = "v", .offset = 1, .select = select}};
  insitu_loader *ld = open_with(vars, 2, m, assembly);
  insitu_iter_desc d = {
      .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL, .max_held = 1};
  uint64_t first = level < 0 ? 0 : (uint64_t)level, levels = level < 0 ? LEVELS : 1, rows = 0;
  insitu_iter *it;
  insitu_batch *b;
  insitu_error err;
  insitu_status status;
  if (insitu_iter_open(ld, &d, &it, &err)) fail_msg("%s", err.message);
  while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    for (int k = 0; k < 2; k++)
      for (uint64_t r = 0; r < b->rows; r++)
        for (uint64_t i = 0; i < levels * Y * X; i++) {
          uint64_t t = (uint64_t)b->sample_indices[r] + (uint64_t)k;
          float got = ((const float *)b->arrays[k].data)[r * levels * Y * X + i];
          if (got != value(t, first + i / (Y * X), i % (Y * X)))
            fail_msg("kind %d, sample %d: element %d is %g", kind, (int)t, (int)i, (double)got);
        }
    rows += b->rows;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(rows, N - 1);

  insitu_stats s;
  insitu_plan plan;
  insitu_loader_stats(ld, &s, NULL);
  insitu_loader_plan(ld, &d, &plan, NULL);
  d.order = INSITU_SHUFFLED;
  insitu_plan shuffled;
  insitu_loader_plan(ld, &d, &shuffled, NULL);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  bool of_parts = kind == BLOSC || kind == BITS || kind == RAW; /* one row of the next chunk */
  double counted = of_parts ? 1.0 + 1.0 / CHUNK : shuffled.amplification;
  if (kind == LZ4 || kind == ZSTD || kind == ZSTD_SUM) counted = shuffled.decode_amplification;
  assert_true(shuffled.decode_amplification <= shuffled.amplification);
  assert_true(fabs(shuffled.decode_amplification - counted) < 1e-5);
  assert_true(plan.decode_amplification == plan.amplification);
  assert_int_equal(plan.reads, 2 * N / CHUNK - 1);
  if (assembly == INSITU_GATHER && (kind == GZIP || kind == F_ORDER)) { /* windows share them */
    assert_int_equal(s.reads, N / CHUNK);
    assert_int_equal(s.bytes_decoded, N * ROW);
    return;
  }
  assert_int_equal(s.reads, plan.reads);
  assert_int_equal(plan.read_bytes, s.reads * CHUNK * ROW);
  assert_true(s.bytes_decoded <= plan.read_bytes);

  /* four chunks for all of their rows, three for the first row */
  uint64_t wide = levels * LEVEL, end = (first + levels) * LEVEL;
  uint64_t whole = (uint64_t)(CHUNK - 1) * ROW + end;
  uint64_t of_all = kind == LZ4 ? whole : CHUNK * wide, parts;
  bool never = kind == ZSTD_SUM || kind == GZIP || kind == F_ORDER;
  if (never || kind == ZSTD) of_all = CHUNK * ROW;
  if (kind == RAW && level >= 0) return; /* the rows between are read with them */
  if (kind == ZSTD && level >= 0) {      /* blocks of 128 KiB: between the ends and a block more */
    assert_in_range(s.bytes_decoded, 4 * whole + 3 * end, 4 * whole + 3 * end + 7 * (128 << 10));
    return;
  }
  parts = s.bytes_decoded - 4 * of_all;
  assert_true(parts % 3 == 0);
  check_made(kind, parts / 3, wide, end, level < 0 ? "rows" : "levels");
}
static void pairs_and_levels(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    make(kind);
    for (int level = -1; level < LEVELS; level += getenv("TEST_VALGRIND") ? LEVELS : 1)
      EACH_MODE_BY_TURNS (m, kind + level + 1)
        for (int32_t a = INSITU_SCATTER; a <= INSITU_GATHER; a++) run(kind, level, m, a);
  }
}

/* ---- boxes ---- */

static void boxes(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    make(kind);
    for (int k = 0; k < support_rounds(60); k++) {
      insitu_loader *ld = open_with(NULL, 0, any_mode(), 0);
      int64_t lo[4], hi[4], shape[] = {N, LEVELS, Y, X}, n = 1;
      insitu_slice slices[4];
      insitu_error err;
      for (int d = 0; d < 4; d++) {
        lo[d] = (int64_t)support_below((uint64_t)shape[d]);
        hi[d] = lo[d] + 1 + (int64_t)support_below((uint64_t)(shape[d] - lo[d]));
        slices[d] = (insitu_slice){.axis = d, .start = lo[d], .stop = hi[d]};
        n *= hi[d] - lo[d];
      }
      insitu_variable v = {.path = "v", .slices = slices, .n_slices = 4};
      float *out = malloc((size_t)n * 4);
      insitu_shape s;
      assert_non_null(out);
      if (insitu_read(ld, &v, out, (uint64_t)n * 4, &s, &err)) fail_msg("%s", err.message);
      float *at = out;
      for (int64_t t = lo[0]; t < hi[0]; t++)
        for (int64_t l = lo[1]; l < hi[1]; l++)
          for (int64_t y = lo[2]; y < hi[2]; y++)
            for (int64_t x = lo[3]; x < hi[3]; x++)
              assert_true(*at++ == value((uint64_t)t, (uint64_t)l, (uint64_t)(y * X + x)));
      free(out);
      insitu_loader_close(&ld);
    }
  }
}

/* Damage behind what is read is seen by those alone who read it, or whose checksum covers it. */
static void damage(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    make(kind);
    if (kind == RAW) continue;
    memset(stored[0] + stored_n[0] - 300, 0xff, 300);
    for (int whole = 0; whole < 2; whole++) {
      insitu_loader *ld = open_with(NULL, 0, any_mode(), 0);
      insitu_slice slice = {.axis = 0, .start = 0, .stop = whole ? CHUNK : 1};
      insitu_variable v = {.path = "v", .slices = &slice, .n_slices = 1};
      insitu_error err;
      insitu_stats s;
      float *out = malloc((size_t)CHUNK * ROW);
      assert_non_null(out);
      insitu_status status = insitu_read(ld, &v, out, (uint64_t)CHUNK * ROW, NULL, &err);
      bool seen = whole || kind == ZSTD_SUM || kind == GZIP || kind == F_ORDER;
      if (status != (seen ? INSITU_E_CORRUPT : INSITU_OK))
        fail_msg("kind %d, whole %d: %s", kind, whole, insitu_status_name(status));
      insitu_loader_stats(ld, &s, NULL);
      if (!seen) check_made(kind, s.bytes_decoded, ROW, ROW, "a box");
      free(out);
      insitu_loader_close(&ld);
    }
  }
}

/* A pass that begins inside a window shows of a damaged chunk what one does that began before. */
static void late(void **state) {
  (void)state;
  static float rows[2][4 * ROW / 4];
  make(BLOSC);
  uint32_t begin; /* of the first block */
  memcpy(&begin, stored[0] + 16, sizeof begin);
  memset(stored[0] + begin, 0xff, 4);
  insitu_variable v = {.path = "v"};
  for (int m = 0; m < MODES; m++) {
    if (!mode_usable(m)) continue;
    for (int begins = 0; begins < 2; begins++) { /* with the chunk; behind its first four rows */
      insitu_loader_desc desc = {.api = INSITU_API,
          .url = "memory://",
          .objects = objects,
          .n_objects = sizeof objects / sizeof *objects,
          .variables = &v,
          .n_variables = 1,
          .batch_size = 4,
          .on_bad_chunk = INSITU_FILL,
          .log_level = INSITU_LOG_OFF,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL};
      insitu_loader *ld;
      insitu_iter *it;
      insitu_batch *b;
      insitu_error err;
      static insitu_state after;
      if (insitu_loader_open(&desc, &ld, &err)) fail_msg("%s", err.message);
      if (insitu_iter_open(ld, &id, &it, &err)) fail_msg("%s", err.message);
      if (begins && insitu_iter_restore(it, &after, &err)) fail_msg("%s", err.message);
      for (int k = begins; k < 2; k++) {
        if (insitu_iter_next(it, 20000, &b, &err)) fail_msg("%s", err.message);
        if (!k) after = b->after;
        else memcpy(rows[begins], b->arrays[0].data, sizeof rows[0]);
        insitu_batch_release(&b);
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_true(rows[0][0] == 0); /* filled */
  }
}

/* A damaged chunk that is filled is filled for all: also for a window that shows no damaged row.
 * Raw chunks are cut short. */
static void run_filled(int kind) {
  make(kind);
  memset(stored[1] + stored_n[1] - 300, 0xff, 300);
  if (kind == RAW) objects[3].n -= 300;
  const insitu_variable vars[] = {
      {.label = "x", .path = "v"}, {.label = "y", .path = "v", .offset = 1}};
  for (int32_t assembly = INSITU_SCATTER; assembly <= INSITU_GATHER; assembly++) {
    insitu_loader_desc desc = {.api = INSITU_API,
        .url = "memory://",
        .objects = objects,
        .n_objects = sizeof objects / sizeof *objects,
        .variables = vars,
        .n_variables = 2,
        .batch_size = 1,
        .block_chunks = 1,
        .assembly = assembly,
        .on_bad_chunk = INSITU_FILL,
        .log_level = INSITU_LOG_OFF};
    insitu_loader *ld;
    insitu_error err;
    if (insitu_loader_open(&desc, &ld, &err)) fail_msg("%s", err.message);
    insitu_iter *it = open_iter_or_fail(ld,
        &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL});
    for (uint64_t i = 0; i < 2 * CHUNK; i++) {
      insitu_batch *b = next_batch_or_fail(it);
      for (uint64_t k = 0; k < 2; k++) {
        bool bad = (i + k) / CHUNK == 1;
        assert_true(*(const float *)b->arrays[k].data == (bad ? 0 : value(i + k, 0, 0)));
      }
      insitu_batch_release(&b);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
}
static void filled(void **state) {
  (void)state;
  run_filled(BLOSC);
  run_filled(RAW);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pairs_and_levels), cmocka_unit_test(boxes),
      cmocka_unit_test(damage), cmocka_unit_test(late), cmocka_unit_test(filled)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int c = 0; c < N / CHUNK; c++) free(stored[c]);
  return failed;
}
