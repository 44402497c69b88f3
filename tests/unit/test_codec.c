/* Codecs: round trips, files of other encoders (make_codec_fixtures.py), every way of delivery,
 * truncated and corrupted chunks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
static int allocations; /* counts calls, to show that a reserved scratch is enough */
#define INSITU_REALLOC(pointer, bytes) (allocations++, realloc(pointer, bytes))
#define INSITU_FREE(pointer) free(pointer)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#define SINK_HOLDS assert_true
#include "sink.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static uint64_t seed = 88172645463325252u;
static uint32_t rnd(uint32_t below) { /* xorshift64* */
  seed ^= seed >> 12, seed ^= seed << 25, seed ^= seed >> 27;
  return below ? (uint32_t)((seed * 2685821657736338717u) >> 33) % below : 0;
}
static void *bytes_of(uint64_t n) { /* exactly n, so that ASan sees one byte too far */
  void *p = malloc(n ? n : 1);
  assert_non_null(p);
  return n ? p : (free(p), malloc(1));
}

static struct insitu__codec_scratch scratch;
static insitu_status run(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    struct dest *d, insitu_error *err) {
  return sink_decode(chain, &scratch, src, n, d, err);
}
/* Decodes in every mode and compares. */
static void expect(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    const uint8_t *want, uint64_t decoded, uint32_t element) {
  for (int mode = 0; mode < DELIVERIES; mode++) {
    insitu_error err = {0};
    struct dest d = {.out = bytes_of(decoded),
        .decoded = decoded,
        .element = element,
        .mode = mode,
        .row = 700u * element};
    insitu_status status = run(chain, src, n, &d, &err);
    if (status < 0) fail_msg("%s", err.message);
    assert_true(d.next == decoded);
    assert_memory_equal(d.out, want, decoded);
    assert_true(mode != WHOLE || d.pieces == 0);
    free(d.out);
  }
}
static insitu_status refuse(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    uint64_t decoded, insitu_error *err) {
  struct dest d = {.out = bytes_of(decoded),
      .decoded = decoded,
      .element = 1,
      .mode = (int)rnd(DELIVERIES),
      .row = 64};
  insitu_error own = {0};
  insitu_status status = run(chain, src, n, &d, err ? err : &own);
  assert_true(status == INSITU_OK || (status < 0 && (err ? err : &own)->message[0]));
  assert_true(status < 0 || d.next == decoded);
  free(d.out);
  return status;
}
/* Every truncation fails; every flipped byte ends in some status. */
static void attack(const struct insitu__codec_chain *chain, const uint8_t *src, uint64_t n,
    uint64_t decoded, uint64_t step) {
  uint8_t *bad = bytes_of(n);
  for (uint64_t i = 0; i < n; i += step) {
    if (decoded) assert_true(refuse(chain, src, i, decoded, NULL) < 0);
    memcpy(bad, src, n);
    bad[i] ^= (uint8_t)(1 + rnd(255));
    refuse(chain, bad, n, decoded, NULL);
  }
  free(bad);
  assert_int_equal(refuse(chain, src, n, decoded + 1, NULL), INSITU_E_CORRUPT);
  if (decoded) assert_int_equal(refuse(chain, src, n, decoded - 1, NULL), INSITU_E_CORRUPT);
}

static struct insitu__codec_chain chain_of(int n, int a, int b, int c) {
  return (struct insitu__codec_chain){n, {{.kind = a}, {.kind = b}, {.kind = c}}};
}
static uint8_t formula(uint64_t i) { /* as in make_codec_fixtures.py */
  return (uint8_t)((i & 3) != 1 ? (i / 16) * 5 + (i % 16) * (i % 16)
                                : (uint64_t)((uint32_t)(i * 2654435761u) >> 13));
}
static uint8_t *formulas(uint64_t n) {
  uint8_t *p = bytes_of(n);
  for (uint64_t i = 0; i < n; i++) p[i] = formula(i);
  return p;
}

/* ---- a small blosc1 encoder ---- */
static void put32(uint8_t *p, uint64_t v) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static void shuffle(uint8_t *to, const uint8_t *from, uint64_t n, uint32_t size, int filter) {
  uint64_t all = n / size;
  memcpy(to, from, n);
  if (filter == 0 || (filter == 2 && all % 8)) return;
  if (filter == 2) memset(to, 0, all * size);
  for (uint64_t i = 0; i < all; i++)
    for (uint32_t k = 0; k < size; k++) {
      uint8_t byte = from[i * size + k];
      if (filter == 1) to[k * all + i] = byte;
      for (unsigned bit = 0; filter == 2 && bit < 8; bit++)
        to[(k * 8 + bit) * (all / 8) + i / 8] |= (uint8_t)((byte >> bit & 1) << i % 8);
    }
}
/* blosclz, greedy: matches with the last place that began with the same three bytes, however far
 * that is. */
static uint64_t blosclz(uint8_t *out, const uint8_t *src, uint64_t n) {
  static uint64_t last[1 << 12]; /* index + 1 */
  uint64_t at = 0, literals = 0;
  memset(last, 0, sizeof last);
  for (uint64_t i = 0; i < n;) {
    uint64_t length = 0, from = 0;
    if (n - i >= 3) {
      uint64_t *slot = &last[(src[i] * 33u * 33u + src[i + 1] * 33u + src[i + 2]) & 4095];
      from = *slot, *slot = i + 1;
      while (from && i + length < n && src[from - 1 + length] == src[i + length]) length++;
    }
    uint64_t distance = i + 1 - from;
    if (!from || length < 3 || distance > 8192 + 65535 || i == 0) {
      if (literals == 0) out[at++] = i ? 0 : 0x20; /* the first may have any upper bits */
      else out[at - literals - 1]++;
      out[at++] = src[i++];
      literals = (literals + 1) % 32;
      continue;
    }
    literals = 0;
    uint64_t near = distance - 1 < 0x1fff ? distance - 1 : 0x1fff, more = length - 9;
    out[at++] = (uint8_t)((length < 9 ? length - 2 : 7) << 5 | near >> 8);
    for (; length >= 9 && more >= 255; more -= 255) out[at++] = 255;
    if (length >= 9) out[at++] = (uint8_t)more;
    out[at++] = (uint8_t)near;
    if (near == 0x1fff)
      out[at++] = (uint8_t)((distance - 8192) >> 8), out[at++] = (uint8_t)(distance - 8192);
    i += length;
  }
  return at;
}

#ifdef INSITU_WITH_ZLIB
static uint64_t deflated(uint8_t *out, uint64_t cap, const uint8_t *src, uint64_t n, int bits) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 5, Z_DEFLATED, bits, 8, 0), Z_OK);
  z.next_in = (Bytef *)(uintptr_t)src, z.avail_in = (uInt)n, z.next_out = out,
  z.avail_out = (uInt)cap;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  uint64_t got = z.total_out;
  deflateEnd(&z);
  return got;
}
#endif

enum { BLOSCLZ, LZ4, SNAPPY, ZLIB, ZSTD };
static const int inners[] = {
    BLOSCLZ,
    LZ4,
    ZSTD, /* those that every build has */
#ifdef INSITU_WITH_SNAPPY
    SNAPPY,
#endif
#ifdef INSITU_WITH_ZLIB
    ZLIB,
#endif
};
enum { N_INNERS = sizeof inners / sizeof *inners };
static uint64_t squeeze(int inner, uint8_t *out, uint64_t cap, const uint8_t *src, uint64_t n) {
  switch (inner) {
  case BLOSCLZ: return blosclz(out, src, n);
  case LZ4: return (uint64_t)LZ4_compress_default((const char *)src, (char *)out, (int)n, (int)cap);
#ifdef INSITU_WITH_SNAPPY
  case SNAPPY: {
    size_t got = cap;
    assert_int_equal(snappy_compress((const char *)src, n, (char *)out, &got), SNAPPY_OK);
    return got;
  }
#endif
#ifdef INSITU_WITH_ZLIB
  case ZLIB: return deflated(out, cap, src, n, 15);
#endif
  default: return ZSTD_compress(out, cap, src, n, 1);
  }
}
static uint64_t blosc(uint8_t *out, const uint8_t *src, uint32_t n, uint32_t size,
    uint32_t blocksize, int filter, int inner, bool split, bool plain) {
  memset(out, 0, 16);
  out[0] = 2, out[1] = 1, out[3] = (uint8_t)size;
  out[2] = (uint8_t)((filter == 1) | plain << 1 | (filter == 2) << 2 | !split << 4 | inner << 5);
  put32(out + 4, n), put32(out + 8, blocksize);
  uint32_t blocks = (n + blocksize - 1) / blocksize;
  uint64_t at = plain ? 16 : 16 + 4 * blocks;
  if (plain) memcpy(out + 16, src, n), at += n;
  for (uint32_t i = 0; !plain && i < blocks; i++) {
    uint32_t bytes = n - i * blocksize < blocksize ? n - i * blocksize : blocksize;
    uint32_t runs = split && size <= 16 && blocksize / size >= 128 && bytes == blocksize ? size : 1,
             each = bytes / runs;
    uint8_t *mixed = bytes_of(bytes);
    shuffle(mixed, src + i * blocksize, bytes, size, filter);
    put32(out + 16 + 4 * i, at);
    for (uint32_t k = 0; k < runs; k++) {
      uint64_t cap = each + each / 4 + 200; /* above what any of them asks for */
      uint8_t *tmp = malloc(cap);
      uint64_t got = squeeze(inner, tmp, cap, mixed + k * each, each);
      assert_true(got > 0);
      bool raw = got >= each;
      put32(out + at, raw ? each : got);
      memcpy(out + at + 4, raw ? mixed + k * each : tmp, raw ? each : got);
      at += 4 + (raw ? each : got);
      free(tmp);
    }
    free(mixed);
  }
  put32(out + 12, at);
  return at;
}

static void names(void **state) {
  (void)state;
  struct insitu__codec c;
  insitu_error err = {0};
  assert_int_equal(insitu__chain_from_name("blosc", &c, &err), INSITU_OK);
  assert_int_equal(c.kind, INSITU__CODEC_BLOSC);
  assert_int_equal(insitu__chain_from_name("numcodecs.zstd", &c, &err), INSITU_OK);
  assert_int_equal(c.kind, INSITU__CODEC_ZSTD);
  static const char *const optional[][3] = {{"gzip", "INSITU_WITH_ZLIB", "-lz"},
      {"numcodecs.zlib", "INSITU_WITH_ZLIB", "-lz"}, {"crc32", "INSITU_WITH_ZLIB", "-lz"},
      {"numcodecs.adler32", "INSITU_WITH_LIBDEFLATE", "-ldeflate"},
      {"numcodecs.bz2", "INSITU_WITH_BZIP2", "-lbz2"}};
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
    err = (insitu_error){0};
    insitu_status status = insitu__chain_from_name(optional[i][0], &c, &err);
#ifdef INSITU_WITH_BZIP2 /* a test program has all of them or none */
    assert_int_equal(status, INSITU_OK);
    assert_true(c.sum_first == (c.kind == INSITU__CODEC_CRC32 || c.kind == INSITU__CODEC_ADLER32));
#else
    assert_int_equal(status, INSITU_E_CODEC);
    for (int k = 1; k < 3; k++) assert_non_null(strstr(err.message, optional[i][k]));
#endif
  }
  assert_int_equal(insitu__chain_from_name("numcodecs.fletcher32", &c, &err), INSITU_OK);
  assert_true(c.kind == INSITU__CODEC_FLETCHER32 && !c.sum_first);
  assert_int_equal(insitu__chain_from_name("crc32c", &c, &err), INSITU_OK);
  assert_true(c.kind == INSITU__CODEC_CRC32C && !c.sum_first);
  err = (insitu_error){0};
  assert_int_equal(insitu__chain_from_name("gribb\nerish", &c, &err), INSITU_E_CODEC);
  assert_non_null(strstr(err.message, "\"gribb?erish\""));
  assert_int_equal(insitu__chain_from_name("", &c, NULL), INSITU_E_CODEC);
  assert_int_equal(insitu__chain_from_name("numcodecs.", &c, NULL), INSITU_E_CODEC);
}

static void crc32c(void **state) {
  (void)state;
  /* the check value of the CRC catalogues */
  assert_int_equal(insitu__comp_crc32c("123456789", 9), 0xe3069283u);
  uint8_t *p = formulas(1000008);
  for (uint64_t n = 0; n < 1000000; n += n < 5000 ? 1 : 99991)
    for (uint64_t from = n % 8; from < (n < 150 ? 8 : n % 8 + 1); from++) {
      uint32_t want = insitu__comp_crc_table(0x12345678, p + from, n);
      assert_int_equal(insitu__comp_crc32c(p + from, n), ~insitu__comp_crc_table(~0u, p + from, n));
      if (insitu__comp_crc_has_hardware())
        assert_int_equal(insitu__comp_crc_hardware(0x12345678, p + from, n), want);
    }
  if (insitu__comp_crc_has_hardware())
    /* the square of x^(64 words) is the next: x^33 for the product */
    for (uint64_t words = 1; words < 1 << 24; words *= 2)
      for (uint64_t twice = 2 * words; twice < 1 << 24; twice = 1 << 24)
        assert_int_equal(
            insitu__comp_crc_times(insitu__comp_crc_power(words), insitu__comp_crc_power(words)),
            insitu__comp_crc_power(twice));
  free(p);
}

static void fletcher32(void **state) {
  (void)state;
  static const struct { /* as numcodecs has them: 65535 stands for 0 unless all words are 0 */
    const char *bytes;
    uint64_t n;
    uint32_t sum;
  } known[] = {{"", 0, 0}, {"\0\0", 3, 0}, {"\xff\xff", 2, 0xffffffff},
      {"\x80\0\x7f\xff", 4, 0x8000ffff}, {"\xff\xff\xff", 3, 0xff00ff00},
      {"\0\1\xff\xfe", 4, 0x0001ffff}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    assert_int_equal(
        insitu__comp_fletcher32((const uint8_t *)known[i].bytes, known[i].n), known[i].sum);
  uint8_t *much = bytes_of(3000001); /* sums that are taken in parts: of equal words, by formula */
  memset(much, 0xab, 3000001);
  uint64_t words = 1500000, low = (words * 0xabab + 0xab00) % 65535, high = 0;
  for (uint64_t i = 1; i <= words; i++) high = (high + i * 0xabab) % 65535;
  assert_int_equal(insitu__comp_fletcher32(much, 3000001), (high + low) % 65535 << 16 | low);
  free(much);
}

static void unshuffles(void **state) {
  (void)state;
  static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 255};
  bool avx2 = scratch.avx2;
  for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
    for (int round = 0; round < 24; round++) {
      uint32_t size = sizes[z], all = rnd(300), first = rnd(all + 1),
               count = all - first ? rnd(all - first + 1) : 0;
      if (round & 1) all &= ~7u, first &= ~7u, count &= ~7u;
      uint64_t n = (uint64_t)all * size;
      uint8_t *src = formulas(n), *mixed = bytes_of(n), *out = bytes_of((uint64_t)count * size);
      const uint8_t *plane[256];
      for (uint32_t k = 0; k < size; k++) plane[k] = mixed + (uint64_t)k * all;
      for (int wide = 0; wide <= (int)avx2; wide++) {
        scratch.avx2 = wide;
        shuffle(mixed, src, n, size, 1);
        insitu__comp_unshuffle(out, plane, size, first, count, wide);
        assert_memory_equal(out, src + (uint64_t)first * size, (size_t)count * size);
        if (!(round & 1)) continue;
        struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
        assert_int_equal(insitu__chain_scratch_reserve(&scratch, &chain, n, NULL), INSITU_OK);
        shuffle(mixed, src, n, size, 2);
        memset(out, 0, (size_t)count * size);
        insitu__comp_unbitshuffle(&scratch, out, plane, size, all, first, count);
        assert_memory_equal(out, src + (uint64_t)first * size, (size_t)count * size);
      }
      scratch.avx2 = avx2;
      free(src), free(mixed), free(out);
    }
}

static void blosc_round_trips(void **state) {
  (void)state;
  static const uint32_t sizes[] = {1, 2, 3, 4, 8, 16, 17, 12, 100},
                        elements[] = {1, 2, 3, 4, 8, 48, 5000};
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
  int rounds = getenv("TEST_VALGRIND") ? 100 : 500;
  for (int round = 0; round < rounds; round++) {
    uint32_t size = sizes[rnd(9)], n = rnd(round % 10 ? 6000 : 200000),
             blocksize = size * (round % 5 ? 1 + rnd(round % 3 ? 400 : 60000) : 127 + rnd(3));
    /* and now and then a block longer than the chunk */
    if (blocksize > n && round % 7) blocksize = n ? n : 1;
    bool split = rnd(2) && (blocksize % size == 0), plain = rnd(8) == 0;
    uint8_t *src = formulas(n), *out = bytes_of((uint64_t)n * 2 + 100000);
    uint64_t bytes =
        blosc(out, src, n, size, blocksize, (int)rnd(3), inners[rnd(N_INNERS)], split, plain);
    expect(&chain, out, bytes, src, n, elements[rnd(7)]);
    free(src), free(out);
  }
}

static void blosc_hostile(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
  uint8_t *src = formulas(1300), out[8000], bad[8000];
  for (int filter = 0; filter < 3; filter++)
    for (int i = 0; i < N_INNERS; i++) {
      uint64_t n = blosc(out, src, 1300, 4, 600, filter, inners[i], filter != 1, false);
      attack(&chain, out, n, 1300, 1);
      for (uint64_t cut = 16; cut < n; cut++) { /* truncated, and the header knows */
        memcpy(bad, out, n), put32(bad + 12, cut);
        assert_int_equal(refuse(&chain, bad, cut, 1300, NULL), INSITU_E_CORRUPT);
      }
      static const uint32_t evil[] = {
          0, 1, 3, 15, 16, 0x7fffffff, 0x80000000, 0xffffffff, 599, 601, 1299, 1301, 1u << 20};
      /* every word of the header, the starts and the first run */
      for (uint64_t at = 0; at < 40; at++)
        for (size_t k = 0; k < sizeof evil / sizeof *evil; k++) {
          memcpy(bad, out, n), put32(bad + at, evil[k]);
          refuse(&chain, bad, n, 1300, NULL);
          refuse(&chain, bad, n, evil[k] < 100000 ? evil[k] : 0, NULL);
        }
    }
  uint64_t n = blosc(out, src, 1300, 4, 600, 1, 1, true, false);
  static const struct {
    int at, value, status;
    const char *says;
  } cases[] = {{0, 5, INSITU_E_CODEC, "blosc2"}, {0, 0, INSITU_E_CORRUPT, "header"},
      {2, 0x01, INSITU_E_CORRUPT, "does not decode"},
#ifndef INSITU_WITH_SNAPPY
      {2, 0x41, INSITU_E_CODEC, "snappy is not in this build: define INSITU_WITH_SNAPPY"},
      {2, 0x61, INSITU_E_CODEC, "zlib is not in this build: define INSITU_WITH_ZLIB"},
#endif
      {2, 0xa1, INSITU_E_CORRUPT, "inner codec 5"}, {2, 0x25, INSITU_E_CORRUPT, "header"},
      {2, 0x29, INSITU_E_CORRUPT, "header"}, {2, 0x23, INSITU_E_CORRUPT, "plain"},
      {3, 0, INSITU_E_CORRUPT, "header"}, {4, 0, INSITU_E_CORRUPT, "got 1280 bytes, expected 1300"},
      {12, 0, INSITU_E_CORRUPT, "the header says"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    insitu_error err = {0};
    memcpy(bad, out, n), bad[cases[k].at] = (uint8_t)cases[k].value;
    assert_int_equal(refuse(&chain, bad, n, 1300, &err), cases[k].status);
    if (!strstr(err.message, cases[k].says)) fail_msg("%s", err.message);
  }
  for (int i = 0; i < N_INNERS; i++) { /* a run that decodes to less than its block */
    uint64_t m = blosc(bad, src, 1300, 1, 1300, 0, inners[i], true, false);
    put32(bad + 4, 1400), put32(bad + 8, 1400);
    assert_int_equal(refuse(&chain, bad, m, 1400, NULL), INSITU_E_CORRUPT);
  }
  /* four splits of 150 bytes leave two */
  uint64_t odd = blosc(bad, src, 1204, 4, 602, 0, 1, true, false);
  assert_int_equal(refuse(&chain, bad, odd, 1204, NULL), INSITU_E_CORRUPT);
  memcpy(bad, out, n), bad[n] = 0; /* one byte more than the header says */
  assert_int_equal(refuse(&chain, bad, n + 1, 1300, NULL), INSITU_E_CORRUPT);
  free(src);
}

static void zstd_frames(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_ZSTD, 0, 0);
  uint8_t *src = formulas(5000), out[12000];
  uint64_t n = 0, from = 0;
  /* with and without size and checksum, empty ones, skippable ones between */
  for (int frame = 0; frame < 4; frame++) {
    uint64_t part = frame == 2 ? 0 : frame == 3 ? 5000 - from : 1500;
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, frame & 1);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, frame >> 1);
    n += ZSTD_compress2(c, out + n, sizeof out - n, src + from, part);
    ZSTD_freeCCtx(c);
    from += part;
    put32(out + n, 0x184d2a50u + (uint32_t)frame), put32(out + n + 4, 5);
    memset(out + n + 8, 0xee, 5);
    n += 13;
  }
  expect(&chain, out, n, src, 5000, 4);
  insitu_error err = {0};
  /* truncations behind the last frame lose only skippable bytes: attack up to there */
  uint64_t end = n - 13;
  attack(&chain, out, end, 5000, 1);
  assert_int_equal(refuse(&chain, out, n - 1, 5000, NULL), INSITU_E_CORRUPT);
  uint8_t *zeros = calloc(1, 1u << 22); /* a bomb of 4 MiB stops at the known size */
  n = ZSTD_compress(out, sizeof out, zeros, 1u << 22, 1);
  assert_int_equal(refuse(&chain, out, n, 100, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "wrong chunk length"));
  static const uint8_t old[12] = {0x27, 0xb5, 0x2f, 0xfd}; /* zstd 0.7 */
  err = (insitu_error){0};
  assert_int_equal(refuse(&chain, old, sizeof old, 100, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "no frame"));
  free(zeros), free(src);
}

static void lz4_block(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_LZ4, 0, 0);
  uint8_t *src = formulas(3000), out[4000];
  put32(out, 3000);
  uint64_t n =
      4 + (uint64_t)LZ4_compress_default((char *)src, (char *)out + 4, 3000, sizeof out - 4);
  expect(&chain, out, n, src, 3000, 4);
  attack(&chain, out, n, 3000, 1);
  insitu_error err = {0};
  assert_int_equal(refuse(&chain, out, n, 2999, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "got 3000 bytes, expected 2999"));
  put32(out, 0xffffffffu);
  assert_int_equal(refuse(&chain, out, n, 3000, NULL), INSITU_E_CORRUPT);
  free(src);
}

#ifdef INSITU_WITH_ZLIB
static void gzip_members(void **state) {
  (void)state;
  struct insitu__codec_chain gzip = chain_of(1, INSITU__CODEC_GZIP, 0, 0),
                             zlib = chain_of(1, INSITU__CODEC_ZLIB, 0, 0);
  uint8_t *src = formulas(3000), out[6000];
  uint64_t n = deflated(out, 5000, src, 1000, 31);
  n += deflated(out + n, 5000 - n, src, 0, 31);
  n += deflated(out + n, 5000 - n, src + 1000, 2000, 31);
  expect(&gzip, out, n, src, 3000, 4);
  attack(&gzip, out, n, 3000, 1);
  memset(out + n, 0, 9);
  expect(&gzip, out, n + 9, src, 3000, 4);
  out[n + 8] = 1;
  assert_int_equal(refuse(&gzip, out, n + 9, 3000, NULL), INSITU_E_CORRUPT);
  assert_int_equal(refuse(&zlib, out, n, 3000, NULL), INSITU_E_CORRUPT);
  n = deflated(out, 5000, src, 3000, 15);
  expect(&zlib, out, n, src, 3000, 4);
  attack(&zlib, out, n, 3000, 1);
  out[n] = 0;
  assert_int_equal(refuse(&zlib, out, n + 1, 3000, NULL), INSITU_E_CORRUPT);
  uint8_t *zeros = calloc(1, 1u << 22); /* bombs of 4 MiB stop at the known size */
  for (int bits = 15; bits <= 31; bits += 16) {
    insitu_error err = {0};
    n = deflated(out, 6000, zeros, 1u << 22, bits);
    assert_int_equal(refuse(bits == 15 ? &zlib : &gzip, out, n, 100, &err), INSITU_E_CORRUPT);
    assert_non_null(strstr(err.message, "wrong chunk length"));
  }
  free(zeros), free(src);
}
#endif

#ifdef INSITU_WITH_BZIP2
static uint64_t bzipped(uint8_t *out, uint64_t cap, const uint8_t *src, uint64_t n) {
  unsigned got = (unsigned)cap;
  assert_int_equal(
      BZ2_bzBuffToBuffCompress((char *)out, &got, (char *)(uintptr_t)src, (unsigned)n, 9, 0, 0),
      BZ_OK);
  return got;
}
static void bzip2_streams(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BZ2, 0, 0);
  uint8_t *src = formulas(3000), *out = bytes_of(1u << 20);
  uint64_t n = bzipped(out, 5000, src, 1000);
  n += bzipped(out + n, 5000, src, 0);
  n += bzipped(out + n, 5000, src + 1000, 2000);
  expect(&chain, out, n, src, 3000, 4);
  attack(&chain, out, n, 3000, 13);
  out[n] = 0;
  assert_int_equal(refuse(&chain, out, n + 1, 3000, NULL), INSITU_E_CORRUPT);
  uint8_t *much = formulas(1000000); /* a full block: all that a stream may ask for */
  n = bzipped(out, 1u << 20, much, 1000000);
  expect(&chain, out, n, much, 1000000, 4);
  memset(much, 0, 1000000);
  insitu_error err = {0};
  n = bzipped(out, 5000, much, 1000000);
  assert_int_equal(refuse(&chain, out, n, 100, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "wrong chunk length"));
  free(much), free(out), free(src);
}
#endif

/* The length is told apart before a byte is looked at. */
static void blosc_lengths(void **state) {
  (void)state;
  const uint8_t head[16] = {2, 1, 2, 4};
  static const struct {
    uint64_t n;
    const char *says;
  } bad[] = {{0, "0 stored bytes, the header alone has 16"},
      {15, "15 stored bytes, the header alone has 16"}, {16, "the header says 0"},
      {INT32_MAX, "the header says 0"},
      {UINT64_C(1) << 31, "2147483648 stored bytes, a chunk of blosc has 2147483647 at most"},
      {UINT64_MAX, "a chunk of blosc has 2147483647 at most; write the array again with smaller"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct insitu__comp_blosc b;
    insitu_error err = {0};
    assert_int_equal(insitu__comp_blosc_open(&b, head, bad[i].n, &err), INSITU_E_CORRUPT);
    assert_non_null(strstr(err.message, bad[i].says));
  }
}

static void blosclz_matches(void **state) {
  (void)state;
  /* a, 267 times a, bc, bcb */
  static const uint8_t known[] = {0x60, 'a', 0xe0, 255, 3, 0, 0x01, 'b', 'c', 0x20, 1};
  uint8_t small[273];
  assert_true(insitu__comp_blosclz(known, sizeof known, small, sizeof small) == sizeof small);
  for (int i = 0; i < 268; i++) assert_int_equal(small[i], 'a');
  assert_memory_equal(small + 268, "bcbcb", 5);
  for (uint64_t n = 0; n < sizeof known; n++)
    assert_true(insitu__comp_blosclz(known, n, small, sizeof small) != sizeof small);
  assert_true(insitu__comp_blosclz(known, sizeof known, small, sizeof small - 1) == UINT64_MAX);
  /* a match that begins before the first byte */
  static const uint8_t before[] = {0x00, 'a', 0x20, 1};
  assert_true(insitu__comp_blosclz(before, sizeof before, small, sizeof small) == UINT64_MAX);
  for (int round = 0; round < 300; round++) {
    uint64_t n = 1 + rnd(round % 10 ? 3000 : 150000), i = 0;
    uint8_t *src = bytes_of(n), *packed = bytes_of(n * 2 + 100), *out = bytes_of(n);
    while (i < n) { /* noise, and copies from any distance, of any length */
      uint64_t length = 1 + rnd(rnd(2) ? 20 : 900), distance = 1 + rnd(rnd(2) ? 40 : 80000);
      for (bool noise = !rnd(3) || distance > i; length && i < n; length--, i++)
        src[i] = noise ? (uint8_t)rnd(256) : src[i - distance];
    }
    uint64_t m = blosclz(packed, src, n);
    uint8_t *exact = bytes_of(m); /* so that ASan sees one byte too far */
    memcpy(exact, packed, m);
    assert_true(insitu__comp_blosclz(exact, m, out, n) == n);
    assert_memory_equal(out, src, n);
    for (int bad = 0; bad < 20; bad++) {
      uint64_t at = rnd((uint32_t)m);
      uint8_t is = exact[at];
      exact[at] = (uint8_t)rnd(256);
      uint64_t got = insitu__comp_blosclz(exact, m, out, n);
      assert_true(got <= n || got == UINT64_MAX);
      exact[at] = is;
    }
    free(exact), free(src), free(packed), free(out);
  }
}

/* Every truncation fails, and no flipped bit goes unnoticed: it ends in an error, or where no
 * checksum covers it in the same bytes. `sums`: the format has one over all of them. */
static void every_bit(const struct insitu__codec_chain *chain, uint8_t *chunk, uint64_t n,
    const uint8_t *want, bool sums) {
  expect(chain, chunk, n, want, 300, 4);
  attack(chain, chunk, n, 300, 1);
  for (uint64_t bit = 0; bit < 8 * n; bit++) {
    struct dest d = {.out = bytes_of(300),
        .decoded = 300,
        .element = 4,
        .mode = (int)(bit % DELIVERIES),
        .row = 64};
    insitu_error err = {0};
    chunk[bit / 8] ^= (uint8_t)(1 << bit % 8);
    insitu_status status = run(chain, chunk, n, &d, &err);
    chunk[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_true((status < 0) == (err.message[0] != 0));
    if (status >= 0) assert_true(d.next == 300 && (!sums || !memcmp(d.out, want, 300)));
    free(d.out);
  }
}
static void bits(void **state) {
  (void)state;
  uint8_t *src = formulas(300), out[2000];
  struct insitu__codec_chain chain;
  uint64_t n;
  for (int kind = 0; kind < INSITU__CODEC_COUNT; kind++) {
    if (!insitu__chain_is_checksum(kind) || insitu__chain_methods[kind].lack) continue;
    for (int first = 0; first < 2; first++) {
      chain = chain_of(1, kind, 0, 0);
      chain.codec[0].sum_first = first;
      uint8_t *of = out + (first ? 4 : 0), *sum = out + (first ? 0 : 300);
      insitu_error err = {0};
      /* the sum is taken from the refusal; fixtures tell whether it is right */
      memcpy(of, src, 300), put32(sum, 0);
      assert_int_equal(refuse(&chain, out, 304, 300, &err), INSITU_E_CORRUPT);
      put32(sum, strtoul(strstr(err.message, "checksum is ") + 12, NULL, 16));
      every_bit(&chain, out, 304, src, true);
    }
  }
  chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
  for (int i = 0; i < N_INNERS; i++) {
    n = blosc(out, src, 300, 4, 300, 1, inners[i], false, false);
    every_bit(&chain, out, n, src, false);
  }
#ifdef INSITU_WITH_ZLIB
  chain = chain_of(1, INSITU__CODEC_GZIP, 0, 0);
  every_bit(&chain, out, deflated(out, sizeof out, src, 300, 31), src, true);
  chain = chain_of(1, INSITU__CODEC_ZLIB, 0, 0);
  every_bit(&chain, out, deflated(out, sizeof out, src, 300, 15), src, true);
#endif
#ifdef INSITU_WITH_BZIP2
  chain = chain_of(1, INSITU__CODEC_BZ2, 0, 0);
  every_bit(&chain, out, bzipped(out, sizeof out, src, 300), src, true);
#endif
  free(src);
}

static uint64_t with_crc(uint8_t *p, uint64_t n) {
  put32(p + n, insitu__comp_crc32c(p, n));
  return n + 4;
}
static void chains(void **state) {
  (void)state;
  enum {
    C = INSITU__CODEC_CRC32C,
    B = INSITU__CODEC_BLOSC,
    Z = INSITU__CODEC_ZSTD,
    L = INSITU__CODEC_LZ4
  };
  uint8_t *src = formulas(3000), a[20000], b[20000];
  for (int i = 0; i < 3000; i++)
    /* our small encoder never stores a chunk plain by itself: let it shrink */
    src[i] = (uint8_t)(i / 9 * 7);
  struct insitu__codec_chain raw = chain_of(0, 0, 0, 0), chain;
  expect(&raw, src, 3000, src, 3000, 4);
  expect(&raw, src, 0, src, 0, 4);
  assert_int_equal(refuse(&raw, src, 2999, 3000, NULL), INSITU_E_CORRUPT);

  chain = chain_of(1, C, 0, 0);
  memcpy(a, src, 3000);
  uint64_t n = with_crc(a, 3000);
  expect(&chain, a, n, src, 3000, 8);
  for (uint64_t i = 0; i < n; i++) {
    a[i] ^= 0x10;
    assert_int_equal(refuse(&chain, a, n, 3000, NULL), INSITU_E_CORRUPT);
    a[i] ^= 0x10;
  }
  chain = chain_of(2, Z, C, 0);
  n = ZSTD_compress(b, sizeof b, a, n, 3);
  expect(&chain, b, n, src, 3000, 8);
  attack(&chain, b, n, 3000, 7);
  chain = chain_of(3, C, Z, B); /* blosc last, with blocks that end inside elements */
  n = blosc(a, src, 3000, 2, 1002, 1, 1, true, false);
  n = with_crc(b, ZSTD_compress(b, sizeof b, a, n, 3));
  expect(&chain, b, n, src, 3000, 4);
  attack(&chain, b, n, 3000, 7);
  chain = chain_of(3, B, L, C); /* blosc first */
  memcpy(a, src, 3000);
  n = with_crc(a, 3000);
  put32(b, n);
  n = 4 + (uint64_t)LZ4_compress_default((char *)a, (char *)b + 4, (int)n, sizeof b - 4);
  n = blosc(a, b, (uint32_t)n, 1, 700, 0, 4, true, false);
  expect(&chain, a, n, src, 3000, 4);
  attack(&chain, a, n, 3000, 7);
  memcpy(b, a, n), put32(b + 4, 1u << 30); /* a stage inside promises far too much */
  assert_int_equal(refuse(&chain, b, n, 3000, NULL), INSITU_E_CORRUPT);
  free(src);
}

static void bounds(void **state) {
  (void)state;
  enum {
    B = INSITU__CODEC_BLOSC,
    Z = INSITU__CODEC_ZSTD,
    L = INSITU__CODEC_LZ4,
    G = INSITU__CODEC_GZIP
  };
  struct insitu__codec_chain raw = chain_of(0, 0, 0, 0), all = chain_of(3, B, L, Z),
                             z = chain_of(1, Z, 0, 0), l = chain_of(1, L, 0, 0);
  assert_true(insitu__chain_bound(&raw, 77) == 77);
  for (int kind = 0; kind < INSITU__CODEC_SHARD; kind++) {
    struct insitu__codec_chain one = chain_of(1, kind, 0, 0);
    assert_true(insitu__chain_bound(&one, 1000) > 1000 &&
                insitu__chain_bound(&one, UINT64_MAX) == UINT64_MAX);
  }
  assert_true(insitu__chain_bound(&all, UINT64_MAX - 5) == UINT64_MAX);
  struct insitu__chain_needs need = insitu__chain_needs(&all, UINT64_MAX);
  assert_true(insitu__chain_scratch_bytes(&need) == UINT64_MAX);
  for (uint64_t n = 0; n < UINT64_C(1) << 31; n = n * 3 + 1) {
    assert_true(insitu__chain_bound(&z, n) >= ZSTD_compressBound(n));
    if (n < LZ4_MAX_INPUT_SIZE)
      assert_true(insitu__chain_bound(&l, n) >= 4 + (uint64_t)LZ4_compressBound((int)n));
  }
  assert_int_equal(insitu__chain_scratch_reserve(&scratch, &all, UINT64_MAX, NULL), INSITU_E_NOMEM);
}

static void nothing_allocated(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
  struct insitu__codec_scratch own;
  insitu__codec_scratch_init(&own);
  assert_int_equal(insitu__chain_scratch_reserve(&own, &chain, 60000, NULL), INSITU_OK);
  int before = allocations;
  uint8_t *src = formulas(60000), *out = bytes_of(200000), *to = bytes_of(60000);
  for (int round = 0; round < 40; round++) {
    uint32_t size = 1 + rnd(20);
    uint64_t n = blosc(out, src, 60000, size, size * (1 + rnd(3000)), (int)rnd(3),
        inners[rnd(N_INNERS)], rnd(2), false);
    struct dest d = {.out = to,
        .decoded = 60000,
        .element = 1 + rnd(9),
        .mode = (int)rnd(DELIVERIES),
        .row = 900};
    struct insitu__codec_sink sink = {.user = &d,
        .direct = d.mode == PIECES ? NULL : direct,
        .piece = piece,
        .element = d.element};
    d.row *= d.element;
    assert_int_equal(insitu__chain_decode(&chain, &own, out, n, 60000, &sink, NULL), INSITU_OK);
    assert_memory_equal(to, src, 60000);
  }
#ifdef INSITU_WITH_BZIP2
  struct insitu__codec_chain bz2 = chain_of(1, INSITU__CODEC_BZ2, 0, 0);
  assert_int_equal(insitu__chain_scratch_reserve(&own, &bz2, 60000, NULL), INSITU_OK);
  before = allocations;
  for (int round = 0; round < 2; round++) {
    struct insitu__codec_sink sink = insitu__codec_memory(to);
    assert_int_equal(
        insitu__chain_decode(&bz2, &own, out, bzipped(out, 200000, src, 60000), 60000, &sink, NULL),
        INSITU_OK);
  }
#endif
  assert_int_equal(allocations, before);
  insitu__codec_scratch_free(&own); /* and the smallest scratch holds the widest spread of planes */
  uint64_t n = blosc(out, src, 8000, 16, 8000, 1, 1, true, false);
  struct dest d = {.out = to, .decoded = 8000, .element = 1, .mode = WHOLE};
  struct insitu__codec_sink sink = {.user = &d, .direct = direct, .piece = piece, .element = 1};
  assert_int_equal(insitu__chain_decode(&chain, &own, out, n, 8000, &sink, NULL), INSITU_OK);
  assert_memory_equal(to, src, 8000);
  insitu__codec_scratch_free(&own);
  free(src), free(out), free(to);
}

static insitu_status stop(
    void *user, const void *p, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)p, (void)offset, (void)n;
  ++*(int *)user;
  return insitu__error_set(err, INSITU_E_BUDGET, "stop");
}
static void sink_stops(void **state) {
  (void)state;
  struct insitu__codec_chain chain = chain_of(1, INSITU__CODEC_BLOSC, 0, 0);
  uint8_t *src = formulas(60000), *out = bytes_of(100000);
  for (int filter = 0; filter < 3; filter++) {
    int calls = 0;
    struct insitu__codec_sink sink = {.user = &calls, .direct = NULL, .piece = stop, .element = 4};
    uint64_t n = blosc(out, src, 60000, 4, 8192, filter, 1, true, false);
    assert_int_equal(
        insitu__chain_decode(&chain, &scratch, out, n, 60000, &sink, NULL), INSITU_E_BUDGET);
    assert_int_equal(calls, 1);
  }
  free(src), free(out);
}

/* codec-cname-shuffle-typesize-blocksize-bytes.bin */
static void fixtures(void **state) {
  (void)state;
  DIR *dir = opendir(TEST_DATA "/codec");
  assert_non_null(dir);
  int seen = 0;
  for (struct dirent *e; (e = readdir(dir));) {
    char codec[32], cname[32], path[512];
    unsigned filter, size, blocksize;
    uint64_t decoded;
    if (sscanf(e->d_name, "%31[^-]-%31[^-]-%u-%u-%u-%" SCNu64 ".bin", codec, cname, &filter, &size,
            &blocksize, &decoded) != 6)
      continue;
    snprintf(path, sizeof path, TEST_DATA "/codec/%s", e->d_name);
    FILE *f = fopen(path, "rb");
    static uint8_t data[1 << 16];
    uint64_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    struct insitu__codec_chain chain = {.n = 1};
    insitu_status known = insitu__chain_from_name(codec, &chain.codec[0], NULL);
    uint8_t *want = formulas(decoded);
    if (!strcmp(cname, "start") || !strcmp(cname, "end"))
      chain.codec[0].sum_first = cname[0] == 's';
    bool core = true; /* every build has it */
#ifndef INSITU_WITH_BZIP2
    static const char *const optional[] = {"gzip", "zlib", "bz2", "crc32", "adler32"};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
      core = core && strcmp(codec, optional[i]);
    if (!core) assert_int_equal(known, INSITU_E_CODEC);
    bool plain = data[2] & 2;
    if (core && !plain && (!strcmp(cname, "zlib") || !strcmp(cname, "snappy"))) {
      assert_int_equal(refuse(&chain, data, n, decoded, NULL), INSITU_E_CODEC);
      core = false;
    }
#endif
    if (core) {
      assert_int_equal(known, INSITU_OK);
      expect(&chain, data, n, want, decoded, size ? size : 1);
      expect(&chain, data, n, want, decoded, 5);
      attack(&chain, data, n, decoded, n / 12 + 1);
    }
    free(want);
    seen++;
  }
  closedir(dir);
  assert_true(seen >= 120);
}

static int finish(void **state) {
  (void)state;
  insitu__codec_scratch_free(&scratch);
  return 0;
}
int main(void) {
  insitu__codec_scratch_init(&scratch);
  const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(crc32c),
      cmocka_unit_test(fletcher32), cmocka_unit_test(unshuffles),
      cmocka_unit_test(blosc_round_trips), cmocka_unit_test(blosc_hostile),
      cmocka_unit_test(zstd_frames), cmocka_unit_test(lz4_block), cmocka_unit_test(blosc_lengths),
      cmocka_unit_test(blosclz_matches), cmocka_unit_test(bits),
#ifdef INSITU_WITH_ZLIB
      cmocka_unit_test(gzip_members),
#endif
#ifdef INSITU_WITH_BZIP2
      cmocka_unit_test(bzip2_streams),
#endif
      cmocka_unit_test(chains), cmocka_unit_test(bounds), cmocka_unit_test(nothing_allocated),
      cmocka_unit_test(sink_stops), cmocka_unit_test(fixtures)};
  return cmocka_run_group_tests(tests, NULL, finish);
}
