/* libFuzzer: chunks of every codec. Input: byte 0 the codec (and an optional blosc stage before
 * it), byte 1 mode, where a checksum stands, and element, bytes 2-3 the decoded size, then the
 * chunk. What decodes comes in order, once, inside its bounds; the two ways of delivery give the
 * same bytes; and they are those of the reference library, or for blosc of a plain decoder written
 * below. A part of a chunk that decodes whole is the same bytes.
 */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"
#include "fuzz_sink.h"

/* ---- the references ---- */

#define SILENT (UINT64_MAX - 1)

static uint32_t fletcher(const uint8_t *p, uint64_t n) {
  uint32_t low = 0, high = 0;
  bool any = false;
  for (uint64_t i = 0; i < n; i += 2) {
    uint32_t word = (uint32_t)p[i] << 8 | (i + 1 < n ? p[i + 1] : 0);
    any = any || word;
    low = (low + word) % 65535, high = (high + low) % 65535;
  }
  return !any ? 0 : (high ? high : 65535) << 16 | (low ? low : 65535);
}
/* blosclz byte by byte */
static uint64_t blosclz(const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap) {
  uint64_t got = 0;
  for (uint64_t at = 0; at < n;) {
    unsigned control = at ? src[at++] : src[at++] & 31u;
    uint64_t length = control < 32 ? control + 1 : (control >> 5) + 2, distance = 0;
    if (control >= 32) {
      for (unsigned more = length == 9 ? 255 : 0; more == 255; length += more)
        if (at == n) return UINT64_MAX;
        else more = src[at++];
      if (at == n) return UINT64_MAX;
      distance = ((control & 31) << 8) + src[at++] + 1;
      if (distance == 8192) {
        if (n - at < 2) return UINT64_MAX;
        distance += src[at] * 256u + src[at + 1];
        at += 2;
      }
      if (distance > got) return UINT64_MAX;
    }
    for (; length; length--) {
      if (got == cap || (!distance && at == n)) return UINT64_MAX;
      to[got] = distance ? to[got - distance] : src[at++];
      got++;
    }
  }
  return got;
}
static uint64_t bunzip(const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap) {
  uint64_t got = 0;
  do {
    bz_stream z = {.next_in = (char *)(uintptr_t)src, .avail_in = (unsigned)n};
    z.next_out = (char *)to + got, z.avail_out = (unsigned)(cap - got);
    FUZZ_HOLDS(BZ2_bzDecompressInit(&z, 0, 1) == BZ_OK);
    int end = BZ2_bzDecompress(&z);
    got = cap - z.avail_out;
    src += n - z.avail_in, n = z.avail_in;
    BZ2_bzDecompressEnd(&z);
    if (end != BZ_STREAM_END) return UINT64_MAX;
  } while (n);
  return got;
}
static uint64_t checksum(
    const struct insitu__codec *codec, const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap) {
  if (n < 4 || n - 4 > cap) return UINT64_MAX;
  const uint8_t *of = src + (codec->sum_first ? 4 : 0);
  /* crc32c: test_codec.c */
  uint32_t stored = insitu__base_load32(codec->sum_first ? src : src + n - 4), is = stored;
  n -= 4;
  if (codec->kind == INSITU__CODEC_CRC32) is = (uint32_t)crc32_z(0, of, n);
  if (codec->kind == INSITU__CODEC_ADLER32) is = (uint32_t)adler32_z(1, of, n);
  if (codec->kind == INSITU__CODEC_FLETCHER32) is = fletcher(of, n);
  memcpy(to, of, n);
  return is == stored ? n : UINT64_MAX;
}

/* The decoded length, or UINT64_MAX for an error, or SILENT where the reference is stricter; to
 * holds `cap`. */
static uint64_t one(
    const struct insitu__codec *codec, const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap) {
  int kind = codec->kind;
  if (kind == INSITU__CODEC_ZSTD) {
    size_t got = ZSTD_decompress(to, cap, src, n);
    return ZSTD_isError(got) ? UINT64_MAX : got;
  }
  if (kind == INSITU__CODEC_LZ4) { /* numcodecs: the length, then a block */
    int got =
        n < 4 ? -1 : LZ4_decompress_safe((const char *)src + 4, (char *)to, (int)(n - 4), (int)cap);
    return got < 0 || (uint64_t)got != insitu__base_load32(src) ? UINT64_MAX : (uint64_t)got;
  }
  if (kind == INSITU__CODEC_BZ2) return bunzip(src, n, to, cap);
  if (insitu__chain_is_checksum(kind)) return checksum(codec, src, n, to, cap);
  FUZZ_HOLDS(kind == INSITU__CODEC_GZIP || kind == INSITU__CODEC_ZLIB);
  z_stream z = {0};
  uint64_t got = 0;
  uint8_t none;
  do { /* gzip: members one after the other, zeros behind each */
    memset(&z, 0, sizeof z);
    z.next_in = (uint8_t *)(uintptr_t)src, z.avail_in = (uInt)n;
    z.next_out = to ? to + got : &none, z.avail_out = (uInt)(cap - got);
    FUZZ_HOLDS(inflateInit2(&z, kind == INSITU__CODEC_GZIP ? 31 : 15) == Z_OK);
    int end = inflate(&z, Z_FINISH);
    /* of the gzip header alone: libdeflate passes over it */
    bool stricter = z.msg && !strcmp(z.msg, "header crc mismatch");
    got += z.total_out;
    src += n - z.avail_in, n = z.avail_in;
    inflateEnd(&z);
    if (end != Z_STREAM_END) return stricter ? SILENT : UINT64_MAX;
    while (kind == INSITU__CODEC_GZIP && n && !*src) src++, n--;
  } while (kind == INSITU__CODEC_GZIP && n);
  return n ? UINT64_MAX : got;
}
static void unfilter(
    uint8_t *to, const uint8_t *from, uint64_t bytes, uint64_t size, unsigned flags) {
  uint64_t all = bytes / size;
  memcpy(to, from, bytes);
  if (flags & 1 && size > 1)
    for (uint64_t i = 0; i < all * size; i++) to[i] = from[i % size * all + i / size];
  else if (flags & 4 && all % 8 == 0)
    for (uint64_t i = 0; i < all * size; i++) {
      to[i] = 0;
      for (unsigned bit = 0; bit < 8; bit++)
        to[i] |=
            (uint8_t)((from[(i % size * 8 + bit) * (all / 8) + i / size / 8] >> (i / size % 8) & 1)
                      << bit);
    }
}
/* A blosc1 chunk that the library took, once more without its short cuts; false: this decoder would
 * not take it. */
static bool blosc(const uint8_t *src, uint64_t n, uint8_t *to, uint64_t decoded) {
  static const struct insitu__codec zlib = {.kind = INSITU__CODEC_ZLIB},
                                    zstd = {.kind = INSITU__CODEC_ZSTD};
  unsigned flags = src[2], size = src[3], inner = flags >> 5;
  uint64_t block = insitu__base_load32(src + 8);
  if (insitu__base_load32(src + 4) != decoded) return false;
  if (!decoded) return true;
  if (flags & 2) return memcpy(to, src + 16, decoded), n == decoded + 16;
  for (uint64_t i = 0; i * block < decoded; i++) {
    uint64_t at = insitu__base_load32(src + 16 + 4 * i),
             bytes = decoded - i * block < block ? decoded - i * block : block;
    uint64_t runs = !(flags & 16) && size <= 16 && bytes == block && bytes / size >= 128 ? size : 1,
             each = bytes / runs;
    uint8_t *mixed = malloc(bytes);
    bool ok = mixed && bytes % runs == 0;
    for (uint64_t k = 0; ok && k < runs; k++) {
      uint64_t stored = insitu__base_load32(src + at);
      const uint8_t *p = src + at + 4;
      if (stored == each) memcpy(mixed + k * each, p, each);
      else if (inner == 1)
        ok = LZ4_decompress_safe(
                 (const char *)p, (char *)mixed + k * each, (int)stored, (int)each) == (int)each;
      else if (inner == 0) ok = blosclz(p, stored, mixed + k * each, each) == each;
      else if (inner == 2) {
        size_t got = each;
        ok = snappy_uncompress((const char *)p, stored, (char *)mixed + k * each, &got) ==
                 SNAPPY_OK &&
             got == each;
      } else ok = one(inner == 3 ? &zlib : &zstd, p, stored, mixed + k * each, each) == each;
      at += 4 + stored;
    }
    if (ok) unfilter(to + i * block, mixed, bytes, size, flags);
    free(mixed);
    if (!ok) return false;
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 4) return 0;
  static const int kinds[] = {INSITU__CODEC_BLOSC, INSITU__CODEC_ZSTD, INSITU__CODEC_LZ4,
      INSITU__CODEC_CRC32C, INSITU__CODEC_GZIP, INSITU__CODEC_ZLIB, INSITU__CODEC_BZ2,
      INSITU__CODEC_CRC32, INSITU__CODEC_ADLER32, INSITU__CODEC_FLETCHER32};
  struct insitu__codec codec = {
      .kind = kinds[(data[0] & 0x7f) % (sizeof kinds / sizeof *kinds)], .name = "codec"};
  codec.sum_first = data[1] & 0x20;
  struct insitu__codec_chain chain = {1, {codec}};
  if (data[0] & 0x80)
    chain = (struct insitu__codec_chain){2, {{.kind = INSITU__CODEC_BLOSC}, codec}};
  uint64_t decoded = (uint64_t)data[2] | (uint64_t)data[3] << 8;
  uint8_t *chunk = fuzz_copy(data + 4, n - 4), *want = malloc(decoded + 1);
  n -= 4;
  uint8_t *out;
  FUZZ_HOLDS(want);
  insitu_status status =
      fuzz_deliver(&chain, chunk, n, decoded, 1 + (data[1] & 15), data[1] & 0x40, &out);
  uint64_t draw = insitu__order_mix(data[1] + (n ? chunk[n / 2] * UINT64_C(257) : 0) + n);
  for (int k = 0; k < 3; k++, draw = insitu__order_mix(draw))
    fuzz_part(&chain, chunk, n, decoded, 1 + (data[1] & 15), draw, status ? NULL : out);
  if (status == INSITU_OK && chain.n == 1) {
    uint64_t got = codec.kind != INSITU__CODEC_BLOSC ? one(&codec, chunk, n, want, decoded)
                   : blosc(chunk, n, want, decoded)  ? decoded
                                                     : UINT64_MAX;
    FUZZ_HOLDS(got == SILENT || (got == decoded && !memcmp(out, want, decoded)));
  }
  free(out);
  free(want);
  free(chunk);
  return 0;
}
