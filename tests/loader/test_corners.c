/* The corner cases of Zarr v2 and v3 that readers get wrong, each in a small archive of its own,
 * read whole. A test's name says the case. */
#include "insitubatch.h"
#include <lz4.h>
#include "support.h"
#include "modes.h"
#include "archive.h"
#include "gzip.h"

/* ---- pieces of metadata ---- */
#define V2_BEGIN(shape, chunks, dtype)                                                             \
  "{\"zarr_format\":2,\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":\"" dtype "\""
#define V2_PLAIN ",\"compressor\":null,\"filters\":null"
#define V2(shape, chunks, dtype)                                                                   \
  V2_BEGIN(shape, chunks, dtype) V2_PLAIN ",\"fill_value\":0,\"order\":\"C\"}"
#define V3(shape, chunks, type, keys, fill, codecs)                                                \
  "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":" shape ",\"data_type\":\"" type           \
  "\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" chunks             \
  "}},\"chunk_key_encoding\":" keys ",\"fill_value\":" fill ",\"codecs\":[" codecs "]}"
#define DEFAULT_KEYS "{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}}"
#define LITTLE "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define BIG "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}"
#define SHARD(inner, codecs, index, more)                                                          \
  "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" inner                       \
  ",\"codecs\":[" codecs "],\"index_codecs\":[" index "]" more "}}"

/* The array at the root holds these bytes, in every way of running. */
static void holds(const void *want, size_t n) {
  EACH_MODE (m) {
    unsigned char got[4096];
    insitu_error err = {0};
    insitu_shape shape;
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, m);
    memset(got, 0x5a, sizeof got);
    if (insitu_read(ld, &(insitu_variable){.path = ""}, got, sizeof got, &shape, &err))
      fail_msg("%s", err.message);
    assert_int_equal(shape.bytes, n);
    assert_memory_equal(got, want, n);
    insitu_loader_close(&ld);
  }
}
static void fails(insitu_status want, const char *cause) { /* at open or when it is read */
  insitu_error err = {0};
  unsigned char got[4096];
  insitu_loader *ld;
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://",
      .objects = archive_objects,
      .n_objects = archive_n,
      .plan_only = 1};
  insitu_status status = insitu_loader_open(&desc, &ld, &err);
  if (!status)
    status = insitu_read(ld, &(insitu_variable){.path = ""}, got, sizeof got, NULL, &err);
  insitu_loader_close(&ld);
  if (status != want || !strstr(err.message, cause))
    fail_msg("%d '%s', not %d with '%s'", status, err.message, want, cause);
}
/* An array whose only chunk is `bytes`. */
static void chunk_holds(const char *key, const char *metadata, const char *name, const void *bytes,
    size_t n, const void *want, size_t want_n) {
  archive_begin();
  archive_text(key, metadata);
  archive_add(name, bytes, n);
  holds(want, want_n);
}
static void filled(const char *metadata, const void *want, size_t n) { /* no chunk at all */
  archive_begin();
  archive_text(strstr(metadata, "\"zarr_format\":2") ? ".zarray" : "zarr.json", metadata);
  holds(want, n);
}

/* ---- grid and keys ---- */

static void edge_chunk_is_clipped(void **state) { /* what hangs over is never looked at */
  (void)state;
  archive_begin();
  archive_text(".zarray", V2("[3,3]", "[2,2]", "|u1"));
  archive_add("0.0", "\1\2\4\5", 4);
  archive_add("0.1", "\3\xee\6\xee", 4);
  archive_add("1.0", "\7\10\xee\xee", 4);
  archive_add("1.1", "\11\xee\xee\xee", 4);
  holds("\1\2\3\4\5\6\7\10\11", 9);
}
/* one that is stored clipped is damage, never a guess */
static void edge_chunk_must_be_whole(void **state) {
  (void)state;
  archive_begin();
  archive_text(".zarray", V2("[3]", "[2]", "|u1"));
  archive_add("0", "\1\2", 2);
  archive_add("1", "\3", 1);
  fails(INSITU_E_CORRUPT, "length");
}
static void v2_keys(void **state) {
  (void)state;
  /* no dimension_separator: a point */
  chunk_holds(".zarray", V2("[1,1]", "[1,1]", "|u1"), "0.0", "\7", 1, "\7", 1);
  chunk_holds(".zarray",
      V2_BEGIN("[1,1]", "[1,1]", "|u1") V2_PLAIN
      ",\"fill_value\":0,\"order\":\"C\",\"dimension_separator\":\"/\"}",
      "0/0", "\7", 1, "\7", 1);
  chunk_holds(".zarray", V2("[]", "[]", "|u1"), "0", "\7", 1, "\7", 1);
}
static void v3_keys(void **state) {
  (void)state;
  chunk_holds("zarr.json", V3("[1,1]", "[1,1]", "uint8", DEFAULT_KEYS, "0", "\"bytes\""), "c/0/0",
      "\7", 1, "\7", 1);
  chunk_holds("zarr.json", V3("[1,1]", "[1,1]", "uint8", "\"default\"", "0", "\"bytes\""), "c/0/0",
      "\7", 1, "\7", 1);
  chunk_holds("zarr.json",
      V3("[1,1]", "[1,1]", "uint8",
          "{\"name\":\"default\",\"configuration\":{\"separator\":\".\"}}", "0", "\"bytes\""),
      "c.0.0", "\7", 1, "\7", 1);
  chunk_holds(
      "zarr.json", V3("[]", "[]", "uint8", DEFAULT_KEYS, "0", "\"bytes\""), "c", "\7", 1, "\7", 1);
  chunk_holds("zarr.json", V3("[1,1]", "[1,1]", "uint8", "{\"name\":\"v2\"}", "0", "\"bytes\""),
      "0.0", "\7", 1, "\7", 1);
  chunk_holds("zarr.json",
      V3("[1,1]", "[1,1]", "uint8", "{\"name\":\"v2\",\"configuration\":{\"separator\":\"/\"}}",
          "0", "\"bytes\""),
      "0/0", "\7", 1, "\7", 1);
  chunk_holds("zarr.json", V3("[]", "[]", "uint8", "{\"name\":\"v2\"}", "0", "\"bytes\""), "0",
      "\7", 1, "\7", 1);
}
static void v2_order_f_turns_bytes_not_keys(void **state) {
  (void)state;
  archive_begin();
  archive_text(
      ".zarray", V2_BEGIN("[2,4]", "[2,2]", "|u1") V2_PLAIN ",\"fill_value\":0,\"order\":\"F\"}");
  archive_add("0.0", "\1\5\2\6", 4);
  archive_add("0.1", "\3\7\4\10", 4);
  holds("\1\2\3\4\5\6\7\10", 8);
}
static void v3_transpose(void **state) {
  (void)state;
  chunk_holds("zarr.json",
      V3("[2,3]", "[2,3]", "uint8", DEFAULT_KEYS, "0",
          "{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}},\"bytes\""),
      "c/0/0", "\1\4\2\5\3\6", 6, "\1\2\3\4\5\6", 6);
}

/* ---- shards ---- */

struct part { /* an inner chunk: NULL bytes are an absent one */
  const void *bytes;
  uint64_t n, offset;
};
/* Index entries of parts, big-endian or not, and its checksum. */
static size_t index_of(unsigned char *to, const struct part *part, unsigned n, bool big, bool crc) {
  for (unsigned i = 0; i < n; i++) {
    uint64_t entry[2] = {
        part[i].bytes ? part[i].offset : UINT64_MAX, part[i].bytes ? part[i].n : UINT64_MAX};
    for (int k = 0; k < 2; k++) {
      if (big) entry[k] = __builtin_bswap64(entry[k]);
      memcpy(to + 16 * i + 8 * k, &entry[k], 8);
    }
  }
  uint32_t sum = support_crc32c(to, 16 * n);
  if (crc) memcpy(to + 16 * n, &sum, 4);
  return 16 * n + (crc ? 4 : 0);
}
static void shard_holds(
    const char *metadata, const unsigned char *shard, size_t n, const char *want, size_t want_n) {
  chunk_holds("zarr.json", metadata, "c/0", shard, n, want, want_n);
}
#define SHARDED(shape, chunk, inner, index, more)                                                  \
  V3(shape, chunk, "uint8", DEFAULT_KEYS, "7", SHARD(inner, "\"bytes\"", index, more))

static void shard_in_any_order_with_gaps_and_absent_chunks(void **state) {
  unsigned char shard[128] = "..CD..AB";
  (void)state;
  const struct part part[3] = {{"AB", 2, 6}, {NULL, 0, 0}, {"CD", 2, 2}};
  size_t n = 8 + index_of(shard + 8, part, 3, false, true);
  shard_holds(
      /* default: at the end */
      SHARDED("[6]", "[6]", "[2]", LITTLE ",{\"name\":\"crc32c\"}", ""), shard, n, "AB\7\7CD", 6);
  shard_holds(SHARDED("[6]", "[6]", "[2]", LITTLE ",\"crc32c\"", ",\"index_location\":\"end\""),
      shard, n, "AB\7\7CD", 6);
}
static void shard_without_checksum_and_with_big_endian_index(void **state) {
  unsigned char shard[128] = "ABCD";
  const struct part part[2] = {{"AB", 2, 0}, {"CD", 2, 2}};
  (void)state;
  size_t n = 4 + index_of(shard + 4, part, 2, true, false);
  shard_holds(SHARDED("[4]", "[4]", "[2]", BIG, ""), shard, n, "ABCD", 4);
}
static void shard_index_at_start_counts_from_the_object(void **state) {
  unsigned char shard[128];
  const struct part part[2] = {{"AB", 2, 32}, {"CD", 2, 34}}; /* absolute */
  (void)state;
  size_t n = index_of(shard, part, 2, false, false);
  memcpy(shard + n, "ABCD", 4);
  shard_holds(SHARDED("[4]", "[4]", "[2]", LITTLE, ",\"index_location\":\"start\""), shard, n + 4,
      "ABCD", 4);
}
static void shard_entries_outside_the_array(void **state) {
  unsigned char shard[128] = "ABCDEF";
  /* the last: beyond the array's end */
  const struct part part[3] = {{"AB", 2, 0}, {"CD", 2, 2}, {"EF", 2, 4}};
  (void)state;
  size_t n = 6 + index_of(shard + 6, part, 3, false, false);
  shard_holds(SHARDED("[3]", "[6]", "[2]", LITTLE, ""), shard, n, "ABC", 3);
}
/* each is read within its own bounds, whatever the others say */
static void shard_entries_may_share_bytes(void **state) {
  unsigned char shard[128] = "ABC";
  const struct part part[2] = {{"AB", 2, 0}, {"BC", 2, 1}};
  (void)state;
  size_t n = 3 + index_of(shard + 3, part, 2, false, false);
  shard_holds(SHARDED("[4]", "[4]", "[2]", LITTLE, ""), shard, n, "ABBC", 4);
}
static void shard_entries_that_lie(void **state) {
  static const struct part lies[] = {{"", 2, 35}, {"", UINT64_MAX - 1, 2}, {"", 2, UINT64_MAX},
      {"", UINT64_MAX, 0}, {"", 40, 0}, {"", 1, 0}, {"", 3, 0}, {"", 0, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    unsigned char shard[128] = "ABCD";
    const struct part part[2] = {{"AB", 2, 0}, lies[i]};
    size_t n = 4 + index_of(shard + 4, part, 2, false, false);
    archive_begin();
    archive_text("zarr.json", SHARDED("[4]", "[4]", "[2]", LITTLE, ""));
    archive_add("c/0", shard, n);
    fails(INSITU_E_CORRUPT, "c/0");
  }
}
static void shard_chunk_shape_is_in_the_transposed_space(void **state) {
  unsigned char shard[256] = "";
  const char *metadata = V3("[2,3]", "[2,3]", "uint8", DEFAULT_KEYS, "0",
      "{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}}," SHARD(
          "[1,2]", "\"bytes\"", LITTLE, ""));
  /* the transposed array is [[1,4],[2,5],[3,6]]: three inner chunks of one row */
  const struct part part[3] = {{"", 2, 0}, {"", 2, 2}, {"", 2, 4}};
  (void)state;
  memcpy(shard, "\1\4\2\5\3\6", 6);
  size_t n = 6 + index_of(shard + 6, part, 3, false, false);
  chunk_holds("zarr.json", metadata, "c/0/0", shard, n, "\1\2\3\4\5\6", 6);
}
static void codecs_around_a_shard(void **state) { /* it is read whole */
  unsigned char shard[128] = "ABCD";
  const struct part part[2] = {{"AB", 2, 0}, {"CD", 2, 2}};
  (void)state;
  size_t n = 4 + index_of(shard + 4, part, 2, false, false);
  uint32_t crc = support_crc32c(shard, n);
  memcpy(shard + n, &crc, 4);
  shard_holds(V3("[4]", "[4]", "uint8", DEFAULT_KEYS, "0",
                  SHARD("[2]", "\"bytes\"", LITTLE, "") ",\"crc32c\""),
      shard, n + 4, "ABCD", 4);
}
/* many bytes that belong to no chunk, in a small shard */
static void codecs_around_a_shard_with_gaps(void **state) {
  unsigned char shard[1024] = "AB";
  const struct part part[2] = {{"AB", 2, 0}, {"CD", 2, 800}};
  (void)state;
  memcpy(shard + 800, "CD", 2);
  size_t n = 802 + index_of(shard + 802, part, 2, false, false);
  uint32_t crc = support_crc32c(shard, n);
  memcpy(shard + n, &crc, 4);
  shard_holds(V3("[4]", "[4]", "uint8", DEFAULT_KEYS, "0",
                  SHARD("[2]", "\"bytes\"", LITTLE, "") ",\"crc32c\""),
      shard, n + 4, "ABCD", 4);
}
/* Entries may overlap, so that an index has many times the shard's bytes: none has more than an
 * encoder makes of an inner chunk. */
static void codecs_around_a_shard_with_long_entries(void **state) {
  (void)state;
  for (uint32_t skipped = 4000; skipped <= 5000; skipped += 1000) {
    unsigned char shard[8192] = {0};
    const unsigned char magic[4] = {0x50, 0x2a, 0x4d, 0x18}; /* of bytes that zstd skips */
    uint32_t n = (uint32_t)ZSTD_compress(shard, sizeof shard, "AB", 2, 1);
    memcpy(shard + n, magic, 4);
    support_store32(shard + n + 4, skipped);
    n += 8 + skipped;
    const struct part part[2] = {{"AB", n, 0}, {"AB", n, 0}};
    const char *metadata = V3("[4]", "[4]", "uint8", DEFAULT_KEYS, "0",
        SHARD("[2]", "\"bytes\",\"zstd\"", LITTLE, "") ",\"crc32c\"");
    n += (uint32_t)index_of(shard + n, part, 2, false, false);
    support_store32(shard + n, support_crc32c(shard, n));
    if (skipped == 4000) {
      shard_holds(metadata, shard, n + 4, "ABAB", 4);
      continue;
    }
    archive_begin();
    archive_text("zarr.json", metadata);
    archive_add("c/0", shard, n + 4);
    fails(INSITU_E_CORRUPT, "are the most");
  }
}
static void refused(const char *metadata, const char *cause) {
  archive_begin();
  archive_text("zarr.json", metadata);
  fails(INSITU_E_CODEC, cause);
}
/* no filter before these, nothing around a shard of them */
static void strings_by_their_own_codecs_alone(void **state) {
  (void)state;
  refused(V3("[2]", "[2]", "string", DEFAULT_KEYS, "\"\"", "\"packbits\""),
      "'packbits' makes no strings");
  refused(V3("[2]", "[2]", "string", DEFAULT_KEYS, "\"\"",
              "{\"name\":\"numcodecs.delta\",\"configuration\":{\"dtype\":\"u1\"}},\"vlen-utf8\""),
      "'numcodecs.delta' makes no strings");
  refused(V3("[2]", "[2]", "string", DEFAULT_KEYS, "\"\"",
              SHARD("[1]", "\"vlen-utf8\"", LITTLE, "") ",\"zstd\""),
      "'sharding_indexed' is not supported for strings inside another codec");
}
static void shard_inside_a_shard(void **state) {
  unsigned char inner[64] = "ABCD", outer[256];
  const struct part part[2] = {{"", 2, 0}, {"", 2, 2}};
  (void)state;
  size_t n = 4 + index_of(inner + 4, part, 2, false, true);
  memcpy(outer, inner, n);
  const struct part whole[2] = {{"", n, 0}, {NULL, 0, 0}};
  size_t all = n + index_of(outer + n, whole, 2, false, false);
  shard_holds(V3("[8]", "[8]", "uint8", DEFAULT_KEYS, "7",
                  SHARD("[4]", SHARD("[2]", "\"bytes\"", LITTLE ",\"crc32c\"", ""), LITTLE, "")),
      outer, all, "ABCD\7\7\7\7", 8);
}

/* ---- metadata ---- */

static void nan_fill_has_one_pattern(void **state) {
  uint32_t nan = 0x7fc00000, other = 0x7fc00001;
  (void)state;
  filled(
      V2_BEGIN("[1]", "[1]", "<f4") V2_PLAIN ",\"fill_value\":\"NaN\",\"order\":\"C\"}", &nan, 4);
  /* Python's bare word */
  filled(V2_BEGIN("[1]", "[1]", ">f4") V2_PLAIN ",\"fill_value\":NaN,\"order\":\"C\"}", &nan, 4);
  filled(V3("[1]", "[1]", "float32", DEFAULT_KEYS, "\"NaN\"", LITTLE), &nan, 4);
  /* the bits as they are */
  filled(V3("[1]", "[1]", "float32", DEFAULT_KEYS, "\"0x7fc00001\"", LITTLE), &other, 4);
}
static void infinite_fills(void **state) {
  double most = __builtin_inf(), least = -__builtin_inf();
  (void)state;
  filled(V2_BEGIN("[1]", "[1]", "<f8") V2_PLAIN ",\"fill_value\":\"Infinity\",\"order\":\"C\"}",
      &most, 8);
  filled(V2_BEGIN("[1]", "[1]", ">f8") V2_PLAIN ",\"fill_value\":-Infinity,\"order\":\"C\"}",
      &least, 8);
  filled(V3("[1]", "[1]", "float64", DEFAULT_KEYS, "\"-Infinity\"", LITTLE), &least, 8);
}
static void null_fill_is_zero(void **state) {
  (void)state;
  filled(V2_BEGIN("[2]", "[2]", "<i2") V2_PLAIN ",\"fill_value\":null,\"order\":\"C\"}", "\0\0\0\0",
      4);
}
static void byte_strings_fill_in_base64_or_zero(void **state) {
  (void)state;
  filled(V2_BEGIN("[2]", "[2]", "|S3") V2_PLAIN ",\"fill_value\":\"YWI=\",\"order\":\"C\"}",
      "ab\0ab\0", 6);
  filled(V2_BEGIN("[2]", "[2]", "|S3") V2_PLAIN ",\"fill_value\":0,\"order\":\"C\"}",
      "\0\0\0\0\0\0", 6);
  filled(V2_BEGIN("[1]", "[1]", "<U1") V2_PLAIN ",\"fill_value\":\"\",\"order\":\"C\"}", "\0\0\0\0",
      4);
}
static void complex_and_raw_fills_are_lists(void **state) {
  float c[2] = {1.5f, -2};
  (void)state;
  filled(V3("[1]", "[1]", "complex64", DEFAULT_KEYS, "[1.5,-2]", LITTLE), c, 8);
  filled(V3("[2]", "[2]", "r16", DEFAULT_KEYS, "[1,255]", "\"bytes\""), "\1\377\1\377", 4);
}
static void one_byte_types_have_any_byte_order(void **state) { /* OME archives have >u1 */
  static const char *const order[] = {
      V2("[2]", "[2]", ">u1"), V2("[2]", "[2]", "<u1"), V2("[2]", "[2]", "|u1")};
  (void)state;
  for (int i = 0; i < 3; i++) chunk_holds(".zarray", order[i], "0", "\1\2", 2, "\1\2", 2);
}
static void codecs_as_bare_names_and_with_prefix(void **state) {
  unsigned char chunk[8] = "AB";
  (void)state;
  uint32_t crc = support_crc32c(chunk, 2);
  memcpy(chunk + 2, &crc, 4);
  chunk_holds("zarr.json", V3("[2]", "[2]", "uint8", DEFAULT_KEYS, "0", "\"bytes\",\"crc32c\""),
      "c/0", chunk, 6, "AB", 2);
  chunk_holds("zarr.json",
      V3("[2]", "[2]", "uint8", DEFAULT_KEYS, "0",
          "{\"name\":\"bytes\"},{\"name\":\"numcodecs.crc32c\"}"),
      "c/0", chunk, 6, "AB", 2);
}
static void unknown_keys_only_if_they_need_no_understanding(void **state) {
  static const char *const head = V3("[2]", "[2]", "uint8", DEFAULT_KEYS, "0", "\"bytes\"");
  char metadata[1024];
  (void)state;
  snprintf(metadata, sizeof metadata, "%.*s,\"new\":{\"must_understand\":false}}",
      (int)strlen(head) - 1, head);
  chunk_holds("zarr.json", metadata, "c/0", "AB", 2, "AB", 2);
  snprintf(metadata, sizeof metadata, "%.*s,\"new\":{}}", (int)strlen(head) - 1, head);
  archive_begin();
  archive_text("zarr.json", metadata);
  fails(INSITU_E_UNSUPPORTED, "new");
  snprintf(metadata, sizeof metadata, "%.*s,\"storage_transformers\":[{\"name\":\"x\"}]}",
      (int)strlen(head) - 1, head);
  archive_begin();
  archive_text("zarr.json", metadata);
  fails(INSITU_E_UNSUPPORTED, "storage_transformers");
}
static void consolidated_null_and_keys_in_any_order(void **state) {
  (void)state;
  archive_begin();
  archive_text("zarr.json", "{\"consolidated_metadata\":null,\"attributes\":{},\"node_type\":"
                            "\"group\",\"zarr_format\":3}");
  archive_text("a/zarr.json",
      "{\"codecs\":[\"bytes\"],\"fill_value\":0,\"chunk_key_encoding\":\"default\","
      "\"chunk_grid\":{\"configuration\":{\"chunk_shape\":[2]},"
      "\"name\":\"regular\"},\"data_type\":\"uint8\",\"shape\":[2],\"node_type\":\"array\",\"zarr_"
      "format\":3}");
  archive_add("a/c/0", "AB", 2);
  insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
  char got[2];
  assert_int_equal(insitu_read(ld, &(insitu_variable){.path = "a"}, got, 2, NULL, NULL), INSITU_OK);
  assert_memory_equal(got, "AB", 2);
  insitu_loader_close(&ld);
}

/* ---- blosc: its header decides, never the metadata ---- */

/* A chunk of one block, stored as its filter left it. */
static size_t blosc_chunk(
    unsigned char *to, unsigned flags, unsigned size, const void *block, uint32_t n) {
  /* nbytes, blocksize, cbytes; start of the block; its length */
  uint32_t words[5] = {n, n, 16 + 8 + n, 20, n};
  bool plain = flags & 2;
  if (plain) words[2] = 16 + n;
  /* lz4, not split */
  to[0] = 2, to[1] = 1, to[2] = (unsigned char)(flags | 1 << 5 | 0x10), to[3] = (unsigned char)size;
  memcpy(to + 4, words, plain ? 12 : 20);
  memcpy(to + (plain ? 16 : 24), block, n);
  return words[2];
}
static void blosc_holds(const char *dtype, unsigned flags, unsigned size, const char *stored,
    const char *want, uint32_t n) {
  unsigned char chunk[128];
  char metadata[400];
  snprintf(metadata, sizeof metadata,
      "{\"zarr_format\":2,\"shape\":[%u],\"chunks\":[%u],\"dtype\":\"%s\",\"order\":\"C\",\"fill_"
      "value\":0,\"filters\":null,"
      "\"compressor\":{\"id\":\"blosc\",\"cname\":\"zstd\",\"shuffle\":2,\"clevel\":9,\"typesize\":"
      "7}}",
      dtype[2] == '2' ? n / 2 : n, dtype[2] == '2' ? n / 2 : n, dtype);
  size_t bytes = blosc_chunk(chunk, flags, size, stored, n);
  chunk_holds(".zarray", metadata, "0", chunk, bytes, want, n);
}
/* int16 shuffled by four bytes, lz4 and no bit shuffle, whatever JSON says */
static void blosc_header_decides(void **state) {
  (void)state;
  blosc_holds("<i2", 1, 4, "aeimbfjncgkodhlp", "abcdefghijklmnop", 16);
}
static void blosc_stored_plain(void **state) {
  (void)state;
  blosc_holds("|u1", 2 | 1, 4, "abcdefgh", "abcdefgh", 8);
}
static void blosc_trailing_bytes_are_not_shuffled(void **state) {
  (void)state;
  blosc_holds("|u1", 1, 4, "aebfcgdhxy", "abcdefghxy", 10);
}
static void blosc_shuffle_of_single_bytes_is_none(void **state) {
  (void)state;
  blosc_holds("|u1", 1, 1, "abcdefgh", "abcdefgh", 8);
}
static void blosc_bitshuffle_needs_eight_elements(void **state) {
  (void)state;
  blosc_holds("|u1", 4, 4, "abcdefghijkl", "abcdefghijkl", 12); /* three elements: copied */
  blosc_holds("|u1", 4, 1, "\xff\0\0\0\0\0\0\0", "\1\1\1\1\1\1\1\1", 8);
}

/* ---- compressors ---- */

/* two frames, one without its size, both with checksums, a skippable one between */
static void zstd_frames(void **state) {
  unsigned char chunk[512], skip[12] = {0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
  ZSTD_CCtx *c = ZSTD_createCCtx();
  (void)state;
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
  size_t n = ZSTD_compress2(c, chunk, sizeof chunk, "abcde", 5);
  memcpy(chunk + n, skip, sizeof skip);
  n += sizeof skip;
  ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
  n += ZSTD_compress2(c, chunk + n, sizeof chunk - n, "fgh", 3);
  ZSTD_freeCCtx(c);
  chunk_holds("zarr.json", V3("[8]", "[8]", "uint8", DEFAULT_KEYS, "0", "\"bytes\",\"zstd\""),
      "c/0", chunk, n, "abcdefgh", 8);
}
/* Chunks as long as the manual allows (FORMATS), and longer by a byte. */
static void length_is_limited(
    const char *codec, uint64_t most, uint64_t (*pack)(unsigned char *to, uint64_t n)) {
  static unsigned char chunk[16384], want[4096];
  char metadata[600];
  snprintf(metadata, sizeof metadata,
      V3("[4096]", "[4096]", "uint8", DEFAULT_KEYS, "7", "\"bytes\",%s"), codec);
  chunk_holds("zarr.json", metadata, "c/0", chunk, pack(chunk, most), want, sizeof want);
  archive_begin();
  archive_text("zarr.json", metadata);
  archive_add("c/0", chunk, pack(chunk, most + 1));
  fails(INSITU_E_CORRUPT, "is longer than");
}
/* 4,096 zeros in a zstd frame; what follows it is skipped. */
static uint64_t pack_zstd(unsigned char *to, uint64_t n) {
  static const unsigned char zeros[4096], magic[4] = {0x50, 0x2a, 0x4d, 0x18};
  uint64_t used = ZSTD_compress(to, 4096, zeros, sizeof zeros, 1);
  memcpy(to + used, magic, 4);
  support_store32(to + used + 4, (uint32_t)(n - used - 8));
  memset(to + used + 8, 1, n - used - 8);
  return n;
}
/* The same in a gzip member that has a long name. */
static uint64_t pack_gzip(unsigned char *to, uint64_t n) {
  static const unsigned char zeros[4096];
  unsigned char plain[256];
  uint64_t used = gzip_pack(zeros, sizeof zeros, plain, sizeof plain), name = n - used;
  memcpy(to, plain, 10);
  to[3] = 8; /* there is a name */
  memset(to + 10, 'n', name - 1);
  to[9 + name] = 0;
  memcpy(to + 10 + name, plain + 10, used - 10);
  return n;
}
static void long_chunks(void **state) {
  (void)state;
  length_is_limited("\"zstd\"", 4096 + 4096 / 256 + 4096 / 64 + 4160, pack_zstd);
  length_is_limited("\"gzip\"", 4096 + 4096 / 8 + 4096 / 64 + 4096, pack_gzip);
}
static void lz4_has_its_length_in_front(void **state) { /* no frame */
  unsigned char chunk[64] = {8, 0, 0, 0};
  (void)state;
  int n = LZ4_compress_default("aaaaaaaa", (char *)chunk + 4, 8, 60);
  chunk_holds(".zarray",
      V2_BEGIN("[8]", "[8]", "|u1") ",\"compressor\":{\"id\":\"lz4\"},\"filters\":null,\"fill_"
                                    "value\":0,\"order\":\"C\"}",
      "0", chunk, (size_t)n + 4, "aaaaaaaa", 8);
}

/* ---- filters ---- */

#define FILTERED(shape, dtype, compressor, filters)                                                \
  V2_BEGIN(shape, shape, dtype)                                                                    \
  ",\"compressor\":" compressor ",\"filters\":" filters ",\"fill_value\":0,\"order\":\"C\"}"

/* compressor null; encoded in order, decoded backwards */
static void kerchunk_has_all_codecs_among_the_filters(void **state) {
  unsigned char chunk[64];
  (void)state;
  size_t n = ZSTD_compress(chunk, sizeof chunk, "aebfcgdh", 8, 1);
  chunk_holds(".zarray",
      FILTERED("[8]", "|u1", "null",
          "[{\"id\":\"shuffle\",\"elementsize\":4},{\"id\":\"zstd\",\"level\":1}]"),
      "0", chunk, n, "abcdefgh", 8);
}
/* delta, then shuffle, then crc32c */
static void v2_decodes_the_compressor_then_filters_backwards(void **state) {
  /* differences 1, 1, 257 as byte planes */
  unsigned char chunk[16] = {1, 1, 1, 0, 0, 1};
  (void)state;
  uint32_t crc = support_crc32c(chunk, 6);
  memcpy(chunk + 6, &crc, 4);
  chunk_holds(".zarray",
      FILTERED("[3]", "<i2", "{\"id\":\"crc32c\"}",
          "[{\"id\":\"delta\",\"dtype\":\"<i2\"},{\"id\":\"shuffle\",\"elementsize\":2}]"),
      "0", chunk, 10, "\1\0\2\0\3\1", 6);
}
static void delta_wraps(void **state) {
  (void)state;
  chunk_holds(".zarray", FILTERED("[3]", "|u1", "null", "[{\"id\":\"delta\",\"dtype\":\"|u1\"}]"),
      "0", "\xff\2\xff", 3, "\xff\1\0", 3);
}
static void fixedscaleoffset_divides(void **state) { /* 3 / 10 is not 3 times a tenth */
  double want[2] = {3.0 / 10 + 0.5, -7.0 / 10 + 0.5};
  (void)state;
  chunk_holds(".zarray",
      FILTERED("[2]", "<f8", "null",
          "[{\"id\":\"fixedscaleoffset\",\"scale\":10,\"offset\":0.5,\"dtype\":\"<f8\",\"astype\":"
          "\"<i2\"}]"),
      "0", "\3\0\xf9\xff", 4, want, 16);
}
/* v2: a byte of padding's length in front, highest bit first; v3: neither */
static void packbits_has_two_forms(void **state) {
  (void)state;
  chunk_holds(".zarray", FILTERED("[3]", "|b1", "null", "[{\"id\":\"packbits\"}]"), "0", "\5\xa0",
      2, "\1\0\1", 3);
  chunk_holds("zarr.json", V3("[3]", "[3]", "bool", DEFAULT_KEYS, "false", "\"packbits\""), "c/0",
      "\5", 1, "\1\0\1", 3);
}
/* numcodecs' crc32 and adler32 first, crc32c last */
static void checksums_stand_first_or_last(void **state) {
  static const unsigned char crc32_first[] = {0xc2, 0x41, 0x24, 0x35, 'a', 'b', 'c'},
                             adler32_first[] = {0x27, 1, 0x4d, 2, 'a', 'b', 'c'};
  (void)state;
  chunk_holds(".zarray", FILTERED("[3]", "|u1", "null", "[{\"id\":\"crc32\"}]"), "0", crc32_first,
      7, "abc", 3);
  chunk_holds(".zarray", FILTERED("[3]", "|u1", "null", "[{\"id\":\"adler32\"}]"), "0",
      adler32_first, 7, "abc", 3);
  unsigned char last[] = {'a', 'b', 'c', 0xc2, 0x41, 0x24, 0x35};
  chunk_holds(".zarray",
      FILTERED("[3]", "|u1", "null", "[{\"id\":\"crc32\",\"location\":\"end\"}]"), "0", last, 7,
      "abc", 3);
}
/* big-endian words, the sum little-endian behind */
static void fletcher32_is_the_one_of_hdf5(void **state) {
  unsigned char chunk[8] = {'a', 'b', 'c', 'd', 0, 0, 0, 0};
  uint32_t one = ('a' << 8 | 'b') % 65535, two = one + (one + ('c' << 8 | 'd')) % 65535,
           sum = (two % 65535) << 16 | (one + ('c' << 8 | 'd')) % 65535;
  (void)state;
  memcpy(chunk + 4, &sum, 4);
  chunk_holds(".zarray", FILTERED("[4]", "|u1", "null", "[{\"id\":\"fletcher32\"}]"), "0", chunk, 8,
      "abcd", 4);
}

/* ---- absent, and what only looks like it ---- */

static void only_not_found_is_absent(void **state) {
  char path[512];
  (void)state;
  insitu_loader *ld;
  insitu_error err = {0};
  unsigned char got[4];
  snprintf(path, sizeof path, "%s/absent", support_dir);
  mkdir(path, 0755);
  snprintf(path, sizeof path, "%s/absent/.zarray", support_dir);
  const char *metadata =
      V2_BEGIN("[4]", "[2]", "|u1") V2_PLAIN ",\"fill_value\":9,\"order\":\"C\"}";
  support_write(path, metadata, strlen(metadata));
  snprintf(path, sizeof path, "%s/absent", support_dir);
  insitu_loader_desc desc = {.api = INSITU_API, .url = path, .plan_only = 1};
  assert_int_equal(insitu_loader_open(&desc, &ld, &err), INSITU_OK);
  assert_int_equal(insitu_read(ld, &(insitu_variable){.path = ""}, got, 4, NULL, &err), INSITU_OK);
  assert_memory_equal(got, "\11\11\11\11", 4);
  char chunk[600];
  snprintf(chunk, sizeof chunk, "%s/1", path);
  mkdir(chunk, 0755); /* there, and not to be read */
  assert_int_equal(
      insitu_read(ld, &(insitu_variable){.path = ""}, got, 4, NULL, &err), INSITU_E_IO);
  insitu_loader_close(&ld);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(edge_chunk_is_clipped),
      cmocka_unit_test(edge_chunk_must_be_whole), cmocka_unit_test(v2_keys),
      cmocka_unit_test(v3_keys), cmocka_unit_test(v2_order_f_turns_bytes_not_keys),
      cmocka_unit_test(v3_transpose),
      cmocka_unit_test(shard_in_any_order_with_gaps_and_absent_chunks),
      cmocka_unit_test(shard_without_checksum_and_with_big_endian_index),
      cmocka_unit_test(shard_index_at_start_counts_from_the_object),
      cmocka_unit_test(shard_entries_outside_the_array),
      cmocka_unit_test(shard_entries_may_share_bytes), cmocka_unit_test(shard_entries_that_lie),
      cmocka_unit_test(shard_chunk_shape_is_in_the_transposed_space),
      cmocka_unit_test(codecs_around_a_shard), cmocka_unit_test(codecs_around_a_shard_with_gaps),
      cmocka_unit_test(codecs_around_a_shard_with_long_entries),
      cmocka_unit_test(strings_by_their_own_codecs_alone), cmocka_unit_test(shard_inside_a_shard),
      cmocka_unit_test(nan_fill_has_one_pattern), cmocka_unit_test(infinite_fills),
      cmocka_unit_test(null_fill_is_zero), cmocka_unit_test(byte_strings_fill_in_base64_or_zero),
      cmocka_unit_test(complex_and_raw_fills_are_lists),
      cmocka_unit_test(one_byte_types_have_any_byte_order),
      cmocka_unit_test(codecs_as_bare_names_and_with_prefix),
      cmocka_unit_test(unknown_keys_only_if_they_need_no_understanding),
      cmocka_unit_test(consolidated_null_and_keys_in_any_order),
      cmocka_unit_test(blosc_header_decides), cmocka_unit_test(blosc_stored_plain),
      cmocka_unit_test(blosc_trailing_bytes_are_not_shuffled),
      cmocka_unit_test(blosc_shuffle_of_single_bytes_is_none),
      cmocka_unit_test(blosc_bitshuffle_needs_eight_elements), cmocka_unit_test(zstd_frames),
      cmocka_unit_test(long_chunks), cmocka_unit_test(lz4_has_its_length_in_front),
      cmocka_unit_test(kerchunk_has_all_codecs_among_the_filters),
      cmocka_unit_test(v2_decodes_the_compressor_then_filters_backwards),
      cmocka_unit_test(delta_wraps), cmocka_unit_test(fixedscaleoffset_divides),
      cmocka_unit_test(packbits_has_two_forms), cmocka_unit_test(checksums_stand_first_or_last),
      cmocka_unit_test(fletcher32_is_the_one_of_hdf5), cmocka_unit_test(only_not_found_is_absent)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
