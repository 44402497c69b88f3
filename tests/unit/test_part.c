/* Parts of chunks: what a sink wants of a chunk is the same bytes that a whole decode gives, for
 * every codec, and no more is decoded than the codec needs. */
#include <blosc.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#define SINK_HOLDS assert_true
#include "sink.h"

static struct insitu__codec_scratch scratch;

static uint32_t rnd(uint32_t below) {
  return (uint32_t)support_below(below);
}
static uint8_t *bytes_of(uint64_t n) { /* exactly n, so that ASan sees one byte too far */
  uint8_t *p = malloc(n ? n : 1);
  assert_non_null(p);
  return p;
}

/* ---- chunks ---- */

struct chunk {
  struct insitu__codec_chain chain;
  uint8_t *plain, *stored;
  uint64_t n, decoded;
  uint32_t size; /* bytes of an element */
  char text[160];
};

/* Noise, counting, or planes that compress, with copies from before. */
static void fill(uint8_t *p, uint64_t n, uint32_t size, int kind) {
  uint64_t word = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t element = i / size;
    if (i % 8 == 0) word = support_random();
    uint8_t drawn = (uint8_t)(word >> i % 8 * 8);
    p[i] = kind == 0             ? drawn
           : kind == 1           ? (uint8_t)(element >> i % size % 8 * 8)
           : drawn % 40 || i < 9 ? (uint8_t)(element / 50 >> i % size % 8 * 3)
                                 : p[i - 1 - rnd((uint32_t)(i < 5000 ? i : 5000))];
  }
}
static void keep(struct chunk *c, const void *stored, uint64_t n) {
  c->stored = bytes_of(n);
  memcpy(c->stored, stored, n);
  c->n = n;
}
static struct chunk chunk_of(uint32_t decoded, uint32_t size) {
  struct chunk c = {.chain = {.n = 0}, .decoded = decoded, .size = size};
  c.plain = bytes_of(decoded);
  fill(c.plain, decoded, size, (int)rnd(4));
  return c;
}
static void chunk_free(struct chunk *c) {
  free(c->plain);
  free(c->stored);
}

static bool blosc_chunk(
    struct chunk *c, const char *name, int level, int shuffle, int split, size_t blocksize) {
  size_t cap = c->decoded + BLOSC_MAX_OVERHEAD;
  uint8_t *room = bytes_of(cap), *back = bytes_of(c->decoded);
  blosc_set_splitmode(split);
  int got = blosc_compress_ctx(
      level, shuffle, c->size, c->decoded, c->plain, room, cap, name, blocksize, 1);
  assert_true(got > 0);
  keep(c, room, (uint64_t)got);
  c->chain = (struct insitu__codec_chain){1, {{.kind = INSITU__CODEC_BLOSC}}};
  snprintf(c->text, sizeof c->text, "blosc %s level %d shuffle %d split %d block %zu", name, level,
      shuffle, split, blocksize);
  /* what it writes when told to split always, it does not always read */
  bool reads = blosc_decompress_ctx(room, back, c->decoded, 1) == (int)c->decoded;
  free(room);
  free(back);
  return reads;
}
/* Frames of several sizes, some skippable, with or without checksum and content size. */
static void zstd_chunk(struct chunk *c, bool sum, bool sized, unsigned frames) {
  size_t cap = ZSTD_compressBound(c->decoded) + 64 * (size_t)frames + 64, n = 0;
  uint8_t *room = bytes_of(cap);
  ZSTD_CCtx *z = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, 1 + (int)rnd(6));
  ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, sum);
  ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, sized);
  for (uint64_t at = 0, k = 0; k < frames; k++) {
    uint64_t bytes = k + 1 < frames ? rnd((uint32_t)(c->decoded - at) + 1) : c->decoded - at;
    size_t got = ZSTD_compress2(z, room + n, cap - n, c->plain + at, bytes);
    assert_false(ZSTD_isError(got));
    at += bytes, n += got;
    if (rnd(3)) continue;
    memcpy(room + n, "\x53\x2a\x4d\x18\x04\x00\x00\x00skip", 12);
    n += 12;
  }
  ZSTD_freeCCtx(z);
  keep(c, room, n);
  free(room);
  c->chain = (struct insitu__codec_chain){1, {{.kind = INSITU__CODEC_ZSTD}}};
  snprintf(c->text, sizeof c->text, "zstd sum %d sized %d frames %u", sum, sized, frames);
}
static void lz4_chunk(struct chunk *c) {
  int cap = LZ4_compressBound((int)c->decoded);
  uint8_t *room = bytes_of((uint64_t)cap + 4);
  uint32_t length = (uint32_t)c->decoded;
  memcpy(room, &length, 4);
  int got = LZ4_compress_default((char *)c->plain, (char *)room + 4, (int)c->decoded, cap);
  assert_true(got > 0);
  keep(c, room, (uint64_t)got + 4);
  free(room);
  c->chain = (struct insitu__codec_chain){1, {{.kind = INSITU__CODEC_LZ4}}};
  snprintf(c->text, sizeof c->text, "lz4");
}
static void raw_chunk(struct chunk *c) {
  keep(c, c->plain, c->decoded);
  snprintf(c->text, sizeof c->text, "raw");
}
/* A checksum of the stored bytes, before them or behind them. */
static void add_checksum(struct chunk *c, bool first) {
  uint8_t *stored = bytes_of(c->n + 4);
  uint32_t crc = insitu__comp_crc32c(c->stored, c->n);
  memcpy(stored + (first ? 4 : 0), c->stored, c->n);
  memcpy(stored + (first ? 0 : c->n), &crc, 4);
  free(c->stored);
  c->stored = stored;
  c->n += 4;
  memmove(&c->chain.codec[1], &c->chain.codec[0], sizeof c->chain.codec[0]);
  c->chain.codec[0] =
      (struct insitu__codec){.kind = INSITU__CODEC_CRC32C, .name = "crc32c", .sum_first = first};
  c->chain.n++;
}
/* A chunk of any kind. */
static struct chunk any_chunk(uint32_t most) {
  static const char *const names[] = {"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"};
  static const uint32_t sizes[] = {1, 2, 4, 8, 3, 12, 16, 17, 100, 255};
  static const int splits[] = {
      BLOSC_ALWAYS_SPLIT, BLOSC_NEVER_SPLIT, BLOSC_AUTO_SPLIT, BLOSC_FORWARD_COMPAT_SPLIT};
  for (;;) {
    uint32_t kind = rnd(10), size = sizes[rnd(rnd(2) ? 4 : 10)];
    struct chunk c = chunk_of(1 + rnd(most), size);
    bool good = true;
    if (kind < 6)
      good = blosc_chunk(&c, names[rnd(6)], (int)rnd(10), (int)rnd(3), splits[rnd(4)],
          rnd(3) ? 128 + rnd(1 + most / 4) : 0);
    else if (kind < 8) zstd_chunk(&c, !rnd(3), rnd(3), 1 + rnd(3));
    else if (kind < 9) lz4_chunk(&c);
    else raw_chunk(&c);
    if (good && !rnd(4)) add_checksum(&c, rnd(2));
    if (good) return c;
    chunk_free(&c);
  }
}

/* ---- decoding ---- */

/* Eight bytes at a time. */
static void invert(uint8_t *to, const uint8_t *from, uint64_t n) {
  uint64_t i = 0;
  for (uint64_t word; i + 8 <= n; i += 8) {
    memcpy(&word, from + i, 8);
    word = ~word;
    memcpy(to + i, &word, 8);
  }
  for (; i < n; i++) to[i] = (uint8_t)~from[i];
}
/* Decodes a part and compares it. *made: bytes that were decoded. */
static void expect(const struct chunk *c, struct dest d, uint64_t *made) {
  insitu_error err = {0};
  d.decoded = c->decoded;
  d.out = bytes_of(c->decoded);
  invert(d.out, c->plain, c->decoded);
  insitu_status status = sink_decode(&c->chain, &scratch, c->stored, c->n, &d, &err);
  if (status) fail_msg("%s: %s", c->text, err.message);
  uint64_t i = sink_differs(&d, c->plain);
  if (i < c->decoded)
    fail_msg("%s, %u bytes of %u each, [%u, %u) of period %u [%u, %u), mode %d: byte %u is %s",
        c->text, (unsigned)c->decoded, (unsigned)d.element, (unsigned)d.begin, (unsigned)d.end,
        (unsigned)d.period, (unsigned)d.from, (unsigned)d.upto, d.mode, (unsigned)i,
        (d.out[i] ^ c->plain[i]) == 255 ? "missing" : "wrong");
  assert_true(scratch.made <= c->decoded && (d.end || scratch.made == c->decoded));
  if (made) *made = scratch.made;
  free(d.out);
}

/* Out of parts of the stored chunk, as its head tells which: the same bytes. Only guesses may
 * be too short. */
static uint64_t parted, refused;
static void expect_parted(const struct chunk *c, struct dest d) {
  insitu_error err = {0};
  bool planned;
  int kind = c->chain.codec[0].kind;
  if (c->chain.n != 1 ||
      (kind != INSITU__CODEC_BLOSC && kind != INSITU__CODEC_ZSTD && kind != INSITU__CODEC_LZ4))
    return;
  d.decoded = c->decoded;
  d.out = bytes_of(c->decoded);
  uint64_t head = rnd(2) ? rnd((uint32_t)c->n + 1) : c->n < 500 ? c->n : 500;
  insitu_status status =
      sink_parted(&c->chain, &scratch, c->stored, c->n, head, rnd(3000), &d, &planned, &err);
  uint64_t i = planned && !status ? sink_differs(&d, c->plain) : c->decoded;
  if (i < c->decoded) fail_msg("%s: byte %u is wrong", c->text, (unsigned)i);
  if (planned && status && kind == INSITU__CODEC_BLOSC) fail_msg("%s: %s", c->text, err.message);
  parted += planned && !status;
  refused += planned && status;
  free(d.out);
}

static void any_part_of_any_chunk(void **state) {
  (void)state;
  for (unsigned round = 0; round < (unsigned)support_rounds(2500); round++) {
    struct chunk c = any_chunk(round % 20 ? 12000 : 600000);
    for (int k = 0; k < 6; k++) {
      /* the element of the sink need not be that of the codec */
      uint32_t element = rnd(3) ? c.size : 1 + rnd(20);
      uint64_t elements = insitu__base_ceil_div(c.decoded, element),
               first = rnd((uint32_t)elements);
      struct dest d = {.element = element,
          .mode = (int)rnd(DELIVERIES),
          .row = (uint64_t)element * (1 + rnd((uint32_t)elements)),
          .begin = first * element,
          .end = (first + 1 + rnd((uint32_t)(elements - first))) * element};
      if (d.end > c.decoded) d.end = c.decoded;
      if (rnd(2)) {
        d.period = d.row;
        d.from = rnd((uint32_t)(d.row / element)) * element;
        d.upto = d.from + element * (1 + rnd((uint32_t)((d.row - d.from) / element)));
      }
      expect(&c, d, NULL);
      expect_parted(&c, d);
    }
    chunk_free(&c);
  }
  uint64_t least = (uint64_t)support_rounds(2500) / 125; /* of 6 in each round */
  assert_true(parted > 50 * least && refused >= least);
}

static void every_range(struct chunk *c, uint32_t element) {
  uint64_t step = element;
  if (support_slow()) step *= 5; /* of the ranges, one in 25 */
  for (uint64_t begin = 0; begin < c->decoded; begin += step)
    for (uint64_t end = begin + element; end < c->decoded + element; end += step) {
      struct dest d = {.element = element,
          .mode = (int)((begin + end) / element % DELIVERIES),
          .row = 64 * (uint64_t)element,
          .begin = begin,
          .end = insitu__base_min(end, c->decoded)};
      expect(c, d, NULL);
    }
  chunk_free(c);
}
static void every_range_of_small_chunks(void **state) {
  (void)state;
  static const uint32_t sizes[] = {1, 2, 4, 8, 3};
  for (int k = 0; k < 5; k++)
    for (int shuffle = 0; shuffle < 3; shuffle++) {
      uint32_t size = sizes[k], n = 700 + 3 * size / 2;
      for (int split = 0; split < 2; split++) {
        struct chunk c = chunk_of(n, size);
        fill(c.plain, n, size, 2);
        if (blosc_chunk(&c, split ? "lz4" : "zstd", 5, shuffle,
                split ? BLOSC_ALWAYS_SPLIT : BLOSC_NEVER_SPLIT, size * 144))
          every_range(&c, size);
        else chunk_free(&c);
      }
    }
  struct chunk c = chunk_of(300, 4);
  raw_chunk(&c);
  every_range(&c, 1);
  c = chunk_of(600, 4);
  lz4_chunk(&c);
  every_range(&c, 4);
  for (unsigned k = 0; k < 4; k++) {
    c = chunk_of(600, 4);
    zstd_chunk(&c, false, k & 1, 1 + (k & 2));
    every_range(&c, 4);
  }
}

/* What is decoded for a row of eight. */
static void no_more_than_needed(void **state) {
  (void)state;
  const uint32_t row = 1 << 20;
  struct dest first = {.element = 4, .row = row, .end = row, .mode = ROWS}, last = first,
              middle = first;
  uint64_t made;
  last.begin = 7 * (uint64_t)row, last.end = 8 * (uint64_t)row;
  /* a quarter of each row, as a level is */
  middle.end = last.end, middle.period = row, middle.from = row / 4, middle.upto = row / 2;
  struct chunk c = chunk_of(8 * row, 4);
  fill(c.plain, c.decoded, 4, 2);
  assert_true(blosc_chunk(&c, "lz4", 5, 1, BLOSC_FORWARD_COMPAT_SPLIT, 1 << 16));
  expect(&c, first, &made);
  assert_int_equal(made, row);
  expect(&c, last, &made);
  assert_int_equal(made, row);
  expect(&c, middle, &made);
  assert_int_equal(made, 2 * row);
  first.begin = 4, first.end = 8;
  expect(&c, first, &made);
  assert_int_equal(made, 1 << 18); /* libblosc makes blocks of 64 KiB for each byte of an element */
  first.begin = 0, first.end = row;
  free(c.stored);

  raw_chunk(&c);
  c.chain.n = 0;
  expect(&c, last, &made);
  assert_int_equal(made, row);
  free(c.stored);

  lz4_chunk(&c);
  expect(&c, first, &made);
  assert_int_equal(made, row);
  expect(&c, last, &made);
  assert_int_equal(made, 8 * row);
  free(c.stored);

  for (int sized = 0; sized < 2; sized++) {
    zstd_chunk(&c, false, sized, 1);
    expect(&c, first, &made);
    assert_in_range(made, row, row + (128 << 10)); /* blocks have 128 KiB at most */
    expect(&c, last, &made);
    assert_int_equal(made, 8 * row);
    free(c.stored);
  }
  zstd_chunk(&c, true, true, 1); /* a checksum of the content: all of it is decoded */
  expect(&c, first, &made);
  assert_int_equal(made, 8 * row);
  chunk_free(&c);
}

/* ---- damage ---- */

static insitu_status status_of(const struct chunk *c, uint64_t end) {
  insitu_error err = {0};
  struct dest d = {.out = bytes_of(c->decoded),
      .decoded = c->decoded,
      .element = 4,
      .row = 4096,
      .mode = ROWS,
      .end = end};
  insitu_status status = sink_decode(&c->chain, &scratch, c->stored, c->n, &d, &err);
  free(d.out);
  return status;
}
/* A checksum of the whole is never passed over; what tells the chunk's length neither. */
static void damage_that_is_reached(void **state) {
  (void)state;
  const uint32_t n = 1 << 20;
  for (int k = 0; k < 6; k++) {
    struct chunk c = chunk_of(n, 4);
    fill(c.plain, n, 4, 2);
    if (k == 0) zstd_chunk(&c, true, true, 1);
    if (k == 1 || k == 4) zstd_chunk(&c, false, true, 1);
    if (k == 2 || k == 5) lz4_chunk(&c);
    if (k == 3) assert_true(blosc_chunk(&c, "lz4", 5, 1, BLOSC_FORWARD_COMPAT_SPLIT, 1 << 16));
    bool sum = k == 0 || k >= 4;
    if (k >= 4) add_checksum(&c, false);
    assert_int_equal(status_of(&c, 4096), INSITU_OK);

    /* a chunk of another length */
    c.decoded = 2 * n;
    assert_int_equal(status_of(&c, 4096), INSITU_E_CORRUPT);
    c.decoded = n / 2;
    assert_int_equal(status_of(&c, 4096), INSITU_E_CORRUPT);
    c.decoded = n;

    /* cut short: the header of blosc and checksums tell; the block of lz4 and a frame of zstd do
     * not, whether they are read whole or in part */
    c.n -= 100;
    assert_int_equal(status_of(&c, 4096), k == 1 || k == 2 ? INSITU_OK : INSITU_E_CORRUPT);
    c.n += 100;

    /* far behind the part */
    c.stored[c.n - 100] ^= 0x55;
    assert_int_equal(status_of(&c, 4096), sum ? INSITU_E_CORRUPT : INSITU_OK);
    assert_true(!sum || status_of(&c, 0) == INSITU_E_CORRUPT);
    c.stored[c.n - 100] ^= 0x55;

    /* in the part */
    uint64_t at = k == 3 ? 16 + 4 * 4 + 4 : k == 2 || k == 5 ? 4 : 12;
    memset(c.stored + at, 0xff, 200);
    if (at == 4) c.stored[at] = 0; /* no literals, then a match from before the chunk */
    assert_int_equal(status_of(&c, 4096), INSITU_E_CORRUPT);
    chunk_free(&c);
  }
}

/* A block that a damaged start makes reach into the next one, which was not read: refused. */
static void reaches_too_far(void **state) {
  (void)state;
  const uint32_t n = 1 << 18, block = 1 << 16;
  uint32_t start;
  insitu_error err = {0};
  bool planned;
  struct chunk c = chunk_of(n, 1);
  fill(c.plain, n, 1, 0); /* noise: all blocks are stored plain */
  free(c.stored);
  c.stored = NULL;
  assert_true(blosc_chunk(&c, "lz4", 5, 0, BLOSC_NEVER_SPLIT, block));
  memcpy(&start, c.stored + 16 + 4, 4);
  if (c.stored[2] & 2) { /* as a whole: libblosc stores it without blocks */
    uint8_t *chunk = bytes_of(16 + 16 + 4 * (block + 4));
    memcpy(chunk, c.stored, 16);
    chunk[2] = 0x30; /* lz4, never split, no filter */
    c.n = 16 + 16 + 4 * (block + 4);
    support_store32(chunk + 8, block);
    support_store32(chunk + 12, (uint32_t)c.n);
    for (uint32_t i = 0; i < 4; i++) {
      uint32_t at = 32 + i * (block + 4);
      support_store32(chunk + 16 + 4 * i, at);
      support_store32(chunk + at, block);
      memcpy(chunk + at + 4, c.plain + i * block, block);
    }
    free(c.stored);
    c.stored = chunk;
    start = 32 + block + 4;
  }
  struct dest d = {.out = bytes_of(n),
      .decoded = n,
      .element = 1,
      .row = n,
      .mode = ROWS,
      .begin = block,
      .end = 2 * (uint64_t)block};
  for (int damaged = 0; damaged < 2; damaged++) {
    if (damaged) {
      support_store32(c.stored + start + 8, block);
      support_store32(c.stored + 16 + 4, start + 8);
    }
    d.next = 0;
    insitu_status status =
        sink_parted(&c.chain, &scratch, c.stored, c.n, 100, 0, &d, &planned, &err);
    assert_true(planned);
    assert_int_equal(status, damaged ? INSITU_E_CORRUPT : INSITU_OK);
    assert_true(damaged || !memcmp(d.out + block, c.plain + block, block));
  }
  free(d.out);
  chunk_free(&c);
}

int main(void) {
  insitu__codec_scratch_init(&scratch);
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_part_of_any_chunk),
      cmocka_unit_test(every_range_of_small_chunks), cmocka_unit_test(no_more_than_needed),
      cmocka_unit_test(damage_that_is_reached), cmocka_unit_test(reaches_too_far)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  insitu__codec_scratch_free(&scratch);
  return failed;
}
