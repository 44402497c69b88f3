/* Shards: their metadata, their indexes, decoding them whole, and reading their inner chunks
 * together. */
#include <stdlib.h>
#include <stdatomic.h>
static _Thread_local int allocations_left = -1; /* -1: memory never runs out */
static atomic_int live;                         /* blocks of the header's */
static void *counted_realloc(void *p, size_t n) {
  if (allocations_left == 0) return NULL;
  allocations_left -= allocations_left > 0;
  if (!p) atomic_fetch_add(&live, 1);
  return realloc(p, n);
}
static void counted_free(void *p) {
  atomic_fetch_sub(&live, 1);
  free(p);
}
#define INSITU_REALLOC(p, n) counted_realloc(p, n)
#define INSITU_FREE(p) counted_free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "parse.h"
#include "inside.h"
#ifdef __SANITIZE_THREAD__
#define MODES_THREADED /* one thread races with nobody */
#endif
#include "modes.h"

static const insitu_variable x_only = {.label = "x"};
/* Whole epochs in order, everything in one batch, all chunks in flight at once: what is merged with
 * what is then certain. */
static insitu_loader_desc all_at_once(const char *root, int m, uint64_t rows) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &x_only,
      .n_variables = 1,
      .batch_size = rows,
      .prefetch_depth = 1,
      .max_inflight = 128,
      .decode_threads = 2,
      .hold_epoch = 1,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
}
static insitu_iter *iter_or_fail(insitu_loader *ld, int32_t split) {
  return open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = split});
}
static insitu_stats stats_of(const insitu_loader *ld) {
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  return stats;
}
/* An epoch to its end; checks each element unless a is NULL. */
static void epoch_or_fail(insitu_iter *it, const struct support_array *a) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t i = 0; a && i < b->n_arrays; i++)
      support_check_array(b, i, &it->loader->config.variables[i], a, 0);
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
}
/* An epoch until its error. */
static void expect_error(insitu_iter *it, insitu_status want, const char *word) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) insitu_batch_release(&b);
  if (status != want || !strstr(err.message, word))
    fail_msg("%s: %s", insitu_status_name(status), err.message);
}
static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* ---- metadata ---- */

#define LE "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define CRC "{\"name\":\"crc32c\"}"
#define INDEX ",\"index_codecs\":[" LE "]"
#define SHARD(inner, codecs, rest)                                                                 \
  "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" inner                       \
  ",\"codecs\":[" codecs "]" rest "}}"
#define TRANSPOSE(order) "{\"name\":\"transpose\",\"configuration\":{\"order\":" order "}}"

static insitu_status parse(struct insitu__zarr_array *a, const char *shape, const char *chunk,
    const char *codecs, insitu_error *err) {
  static char text[16384];
  int n = snprintf(text, sizeof text,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"float32\",\"chunk_"
      "grid\":{\"name\":\"regular\","
      "\"configuration\":{\"chunk_shape\":%s}},\"chunk_key_encoding\":{\"name\":\"default\"},"
      "\"fill_value\":1.5,\"codecs\":[%s]}",
      shape, chunk, codecs);
  memset(err, 0, sizeof *err);
  return parse_v3(a, "x", text, (uint64_t)n, err);
}

/* Each refusal names the array and its cause, and frees what it took. */
static void test_metadata_refused(void **state) {
  static const struct {
    const char *shape, *chunk, *codecs;
    insitu_status status;
    const char *word;
  } bad[] = {
#define IN8(codecs) "[64,64]", "[8,8]", codecs
      {IN8(SHARD("[4,4]", LE, "")), INSITU_E_FORMAT, "index_codecs"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":null")), INSITU_E_FORMAT, "list of index_codecs"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":{}")), INSITU_E_FORMAT, "list of index_codecs"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[]")), INSITU_E_FORMAT, "lack 'bytes'"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" CRC "]")), INSITU_E_CODEC, "crc32c"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" CRC "," LE "]")), INSITU_E_CODEC, "crc32c"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" LE "," LE "]")), INSITU_E_CODEC, "bytes"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" LE "," CRC "," CRC "]")), INSITU_E_CODEC,
          "crc32c"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" LE ",{\"name\":\"zstd\"}]")), INSITU_E_CODEC,
          "zstd"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[" TRANSPOSE("[1,0]") "," LE "]")), INSITU_E_CODEC,
          "transpose"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[7]")), INSITU_E_FORMAT, "needs a name"},
      {IN8(SHARD("[4,4]", LE, ",\"index_codecs\":[{\"name\":\"bytes\"}]")), INSITU_E_FORMAT,
          "endian"},
      {IN8(SHARD("[4,4]", LE, INDEX ",\"index_location\":\"middle\"")), INSITU_E_FORMAT,
          "index_location"},
      {IN8(SHARD("[4,4]", LE, INDEX ",\"index_location\":null")), INSITU_E_FORMAT,
          "index_location"},
      {IN8(SHARD("[4,4]", LE, INDEX ",\"index_location\":1")), INSITU_E_FORMAT, "index_location"},
      {IN8(SHARD("[4]", LE, INDEX)), INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[4,4,1]", LE, INDEX)), INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[]", LE, INDEX)), INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[4,3]", LE, INDEX)), INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[16,8]", LE, INDEX)), INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[4,0]", LE, INDEX)), INSITU_E_FORMAT, "positive"},
      {IN8(SHARD("[4,-4]", LE, INDEX)), INSITU_E_FORMAT, "positive"},
      {IN8(SHARD("[4,2.5]", LE, INDEX)), INSITU_E_FORMAT, "positive"},
      {IN8(SHARD("null", LE, INDEX)), INSITU_E_FORMAT, "chunk_shape"},
      {IN8(SHARD("4", LE, INDEX)), INSITU_E_FORMAT, "chunk_shape"},
      {IN8("{\"name\":\"sharding_indexed\"}"), INSITU_E_FORMAT, "chunk_shape"},
      {IN8("\"sharding_indexed\""), INSITU_E_FORMAT, "chunk_shape"},
      {IN8("{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[4,4]" INDEX "}}"),
          INSITU_E_FORMAT, "list"},
      {IN8("{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[4,4],\"codecs\":"
           "7" INDEX "}}"),
          INSITU_E_FORMAT, "list"},
      {IN8(SHARD("[4,4]", "", INDEX)), INSITU_E_FORMAT, "none of them makes bytes"},
      {IN8(SHARD("[4,4]", CRC, INDEX)), INSITU_E_CODEC, "crc32c"},
      {IN8(SHARD("[4,4]", LE ",{\"name\":\"pcodec\"}", INDEX)), INSITU_E_CODEC, "pcodec"},
      {IN8(SHARD("[4,4]", LE "," LE, INDEX)), INSITU_E_FORMAT, "after 'bytes'"},
      {IN8(LE "," SHARD("[4,4]", LE, INDEX)), INSITU_E_FORMAT, "after 'bytes'"},
      {IN8(SHARD("[4,4]", LE, INDEX) "," SHARD("[4,4]", LE, INDEX)), INSITU_E_FORMAT,
          "after 'bytes'"},
      {IN8(SHARD("[4,4]", LE, INDEX) "," LE), INSITU_E_FORMAT, "after 'bytes'"},
      {IN8(SHARD("[4,4]", LE, INDEX) "," TRANSPOSE("[1,0]")), INSITU_E_FORMAT, "after 'bytes'"},
      {IN8(SHARD("[4,4]", TRANSPOSE("[0,0]") "," LE, INDEX)), INSITU_E_FORMAT, "permutation"},
      /* after a transpose the shard is (8, 16), so that its inner chunks cannot be (16, 4) */
      {"[64,64]", "[16,8]", TRANSPOSE("[1,0]") "," SHARD("[16,4]", LE, INDEX), INSITU_E_FORMAT,
          "divide"},
      {"[64,64]", "[16,8]",
          SHARD("[16,4]", TRANSPOSE("[1,0]") "," SHARD("[16,4]", LE, INDEX), INDEX),
          INSITU_E_FORMAT, "divide"},
      {IN8(SHARD("[8,8]",
           SHARD("[8,8]", SHARD("[8,8]", SHARD("[8,8]", SHARD("[8,8]", LE, INDEX), INDEX), INDEX),
               INDEX),
           INDEX)),
          INSITU_E_UNSUPPORTED, "INSITU__MAX_SHARD_LEVELS"},
      {"[64,64]", "[4194304,2]", SHARD("[1,1]", LE, INDEX), INSITU_E_UNSUPPORTED,
          "INSITU__MAX_SHARD_CHUNKS"},
      {"[64,64]", "[4611686018427387904,4611686018427387904]", SHARD("[1,1]", LE, INDEX),
          INSITU_E_UNSUPPORTED, "shard"},
      {"[64,64]", "[4611686018427387904,1]", SHARD("[4611686018427387904,1]", LE, INDEX),
          INSITU_E_UNSUPPORTED, "shard"},
      {"[64,64]", "[1048576,1048576]", SHARD("[524288,524288]", LE, INDEX), INSITU_E_UNSUPPORTED,
          "INSITU__MAX_CHUNK"},
      {"[64,64]", "[1048576,1024]", SHARD("[1024,1024]", LE, INDEX) "," CRC, INSITU_E_UNSUPPORTED,
          "INSITU__MAX_CHUNK"},
  };
  (void)state;
  int before = atomic_load(&live);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    static const struct insitu__zarr_array zero;
    struct insitu__zarr_array a;
    insitu_error err;
    insitu_status status = parse(&a, bad[i].shape, bad[i].chunk, bad[i].codecs, &err);
    if (status != bad[i].status || !strstr(err.message, bad[i].word) || !strstr(err.message, "'x'"))
      fail_msg("%s\ngave %d %s\nnot %d with %s", bad[i].codecs, status, err.message, bad[i].status,
          bad[i].word);
    assert_memory_equal(&a, &zero, sizeof a);
    assert_int_equal(atomic_load(&live), before);
  }
  /* memory that runs out anywhere */
  struct insitu__zarr_array a;
  insitu_error err;
  insitu_status status = INSITU_E_NOMEM;
  for (int n = 0; status; n++) {
    assert_true(n < 100);
    allocations_left = n;
    status = parse(&a, "[64,64]", "[8,8]", SHARD("[4,4]", SHARD("[2,2]", LE, INDEX), INDEX), &err);
    allocations_left = -1;
    if (status) assert_int_equal(status, INSITU_E_NOMEM);
    if (status) assert_int_equal(atomic_load(&live), before);
  }
  insitu__zarr_array_free(&a);
  assert_int_equal(atomic_load(&live), before);
}

static void expect_axes(const uint64_t *got, uint64_t x, uint64_t y, uint64_t z) {
  assert_true(got[0] == x && got[1] == y && got[2] == z);
}
static void expect_order(const unsigned *got, unsigned x, unsigned y, unsigned z) {
  assert_true(got[0] == x && got[1] == y && got[2] == z);
}

/* What one read returns, and where its axes lie. */
static void test_metadata(void **state) {
  struct insitu__zarr_array a;
  insitu_error err;
  (void)state;
#define ACCEPT(codecs)                                                                             \
  if (parse(&a, "[100,60,40]", "[24,12,8]", codecs, &err)) fail_msg("%s", err.message)
  ACCEPT(SHARD("[6,4,2]", LE "," CRC, INDEX));
  expect_axes(a.object.chunk, 24, 12, 8);
  expect_axes(a.chunk, 6, 4, 2);
  expect_order(a.order, 0, 1, 2);
  assert_true(a.n_levels == 1 && a.n_shards == 1 && a.codecs.n == 1 &&
              a.codecs.codec[0].kind == INSITU__CODEC_CRC32C);
  assert_true(a.object.codecs.n == 1 && a.object.codecs.codec[0].kind == INSITU__CODEC_SHARD);
  assert_true(a.object.codecs.codec[0].shard == &a.shards[0] && a.level[0].shard == &a.shards[0]);
  assert_int_equal(a.shards[0].entries, 4 * 3 * 4);
  assert_true(a.shards[0].bytes == 24 * 12 * 8 * 4 && a.shards[0].inner_bytes == 6 * 4 * 2 * 4);
  assert_true(!a.shards[0].index_first && !a.shards[0].index_crc && !a.shards[0].index_big);
  uint64_t object[3],
      /* chunk (16, 14, 19) begins at element (96, 56, 38): shard (4, 4, 4) of (5, 5, 5) */
      tile[3] = {16, 14, 19};
  assert_int_equal(insitu__zarr_object_of(&a, tile, object), 4 * 25 + 4 * 5 + 4);
  expect_axes(object, 4, 4, 4);
  char key[100] = "x/c/4/4/4";
  insitu__zarr_name_inner(&a, tile, key, sizeof key);
  assert_string_equal(key, "x/c/4/4/4, inner chunk 0.2.3");
  strcpy(key, "x/c/4/4/4");
  insitu__zarr_name_inner(&a, tile, key, 20); /* cut short, not overrun */
  assert_string_equal(key, "x/c/4/4/4, inner ch");
  insitu__zarr_array_free(&a);
  /* index at the start, big-endian, with a checksum */
  ACCEPT(SHARD("[6,4,2]", LE,
      ",\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"big\"}}," CRC
      "],\"index_location\":\"start\""));
  assert_true(
      a.shards[0].index_first && a.shards[0].index_crc && a.shards[0].index_big && a.codecs.n == 0);
  assert_int_equal(insitu__shard_index_bytes(&a.shards[0]), 48 * 16 + 4);
  insitu__zarr_array_free(&a);
  /* transposes: the shard's axes are z, x, y; its inner chunks store them as y, z, x */
  ACCEPT(TRANSPOSE("[2,0,1]") "," SHARD("[4,6,3]", TRANSPOSE("[2,0,1]") "," LE, INDEX));
  expect_axes(a.chunk, 6, 3, 4);
  expect_order(a.object.order, 2, 0, 1);
  expect_order(a.level[0].axis, 2, 0, 1);
  expect_order(a.order, 1, 2, 0);
  expect_axes(a.shards[0].chunk, 8, 24, 12);
  insitu__zarr_array_free(&a);
  /* shards in shards, both of them read in parts; then with a codec around the inner one, and
   * around both */
  ACCEPT(SHARD("[12,6,8]", SHARD("[3,2,4]", LE, INDEX), INDEX));
  assert_true(a.n_levels == 2 && a.n_shards == 2 && a.codecs.n == 0);
  expect_axes(a.chunk, 3, 2, 4);
  insitu__zarr_array_free(&a);
  ACCEPT(SHARD("[12,6,8]", SHARD("[3,2,4]", LE, INDEX) "," CRC, INDEX));
  assert_true(a.n_levels == 1 && a.n_shards == 2 && a.codecs.n == 2 &&
              a.codecs.codec[1].kind == INSITU__CODEC_SHARD);
  expect_axes(a.chunk, 12, 6, 8);
  insitu__zarr_array_free(&a);
  ACCEPT(SHARD("[12,6,8]", SHARD("[3,2,4]", LE, INDEX), INDEX) "," CRC);
  assert_true(a.n_levels == 0 && a.n_shards == 2 && a.codecs.n == 2 &&
              a.codecs.codec[0].kind == INSITU__CODEC_CRC32C);
  expect_axes(a.chunk, 24, 12, 8);
  insitu__zarr_array_free(&a);
  /* as many levels as are allowed, and as many inner chunks */
  ACCEPT(SHARD("[24,12,8]",
      SHARD("[12,6,8]", SHARD("[6,6,8]", SHARD("[3,2,4]", LE, INDEX), INDEX), INDEX), INDEX));
  assert_int_equal(a.n_levels, 4);
  insitu__zarr_array_free(&a);
  if (parse(&a, "[64,64]", "[4194304,1]", SHARD("[1,1]", LE, INDEX), &err))
    fail_msg("%s", err.message);
  assert_int_equal(a.shards[0].entries, INSITU__MAX_SHARD_CHUNKS);
  insitu__zarr_array_free(&a);
  /* one element */
  if (parse(&a, "[]", "[]", SHARD("[]", LE, INDEX), &err)) fail_msg("%s", err.message);
  assert_true(a.shards[0].entries == 1 && a.shards[0].inner_bytes == 4);
  insitu__zarr_array_free(&a);
}

/* ---- indexes, purely ---- */

static void test_index(void **state) {
  struct insitu__codec_shard shard = {.ndim = 1, .item = 1, .entries = 4, .index_crc = true};
  unsigned char index[68];
  insitu_error err = {0};
  uint64_t offset, bytes, all = UINT64_MAX;
  (void)state;
  for (uint64_t i = 0; i < 4; i++) {
    insitu__base_store64(index + 16 * i, i == 3 ? all : 100 * i);
    insitu__base_store64(index + 16 * i + 8, i == 3 ? all : 100);
  }
  uint32_t crc = insitu__comp_crc32c(index, 64);
  memcpy(index + 64, &crc, 4);
  assert_int_equal(insitu__shard_index(&shard, index, 68, &err), INSITU_OK);
  for (uint64_t n = 0; n < 72; n++)
    if (n != 68) assert_int_equal(insitu__shard_index(&shard, index, n, NULL), INSITU_E_CORRUPT);
  for (int bit = 0; bit < 68 * 8; bit++) {
    index[bit / 8] ^= (unsigned char)(1 << bit % 8);
    assert_int_equal(insitu__shard_index(&shard, index, 68, NULL), INSITU_E_CORRUPT);
    index[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  const struct {
    uint64_t offset, bytes, limit;
    bool fine;
  } entry[] = {{0, 0, 0, true}, {0, 1, 0, false}, {100, 100, 200, true}, {100, 101, 200, false},
      {200, 0, 200, true}, {201, 0, 200, false}, {all, 0, all, false}, {0, all, all, false},
      {all, 1, all, false}, {all - 1, 1, all, false}, {all - 1, all - 1, all, false},
      {all, all, 0, true}, {INT64_MAX, 0, all, true}, {INT64_MAX, 1, all, false},
      {1, all, 10, false}, {UINT64_C(1) << 63, UINT64_C(1) << 63, all, false}};
  for (size_t i = 0; i < sizeof entry / sizeof *entry; i++)
    for (int big = 0; big < 2; big++) {
      shard.index_big = big;
      insitu__base_store64(index + 16, big ? __builtin_bswap64(entry[i].offset) : entry[i].offset);
      insitu__base_store64(index + 24, big ? __builtin_bswap64(entry[i].bytes) : entry[i].bytes);
      memset(&err, 0, sizeof err);
      insitu_status status =
          insitu__shard_entry(&shard, index, 1, entry[i].limit, &offset, &bytes, &err);
      assert_int_equal(status, entry[i].fine ? INSITU_OK : INSITU_E_CORRUPT);
      assert_true(offset == entry[i].offset && bytes == entry[i].bytes);
      if (status) assert_non_null(strstr(err.message, "inner chunk 1"));
    }
}

/* ---- random nests of shards, by an encoder that knows nothing of the header's structs ---- */

/* Level l of an array's chunk: its axes are permuted, then it is cut into the next level's chunks,
 * or at the last level stored. */
struct nest {
  int ndim, levels, item;
  /* extent[0]: of an object; extent[l + 1]: in the permuted axes of level l */
  uint64_t shape[3], extent[5][3];
  unsigned perm[5][3];
  bool permuted[5], around[5], zstd[5]; /* around: codecs behind the level's */
  bool first[5], crc[5], big[5], big_data;
  char text[4000], *end;
  int32_t *value; /* of the array, C order */
  uint64_t absent_objects;
};
enum { NEST_FILL = 70000 };

static void nest_say(struct nest *n, const char *format, ...) {
  va_list args;
  va_start(args, format);
  n->end += vsprintf(n->end, format, args);
  va_end(args);
}
static void nest_codecs(struct nest *n, int l) {
  char list[100];
  uint64_t perm[3] = {n->perm[l][0], n->perm[l][1], n->perm[l][2]};
  if (n->permuted[l]) nest_say(n, TRANSPOSE("%s") ",", support_list(list, n->ndim, perm));
  if (l == n->levels)
    nest_say(n, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}",
        n->big_data ? "big" : "little");
  else {
    nest_say(n, "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":%s,\"codecs\":[",
        support_list(list, n->ndim, n->extent[l + 1]));
    nest_codecs(n, l + 1);
    nest_say(n,
        "],\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}%s]%s}}",
        n->big[l] ? "big" : "little", n->crc[l] ? "," CRC : "",
        n->first[l] ? ",\"index_location\":\"start\"" : "");
  }
  if (n->around[l])
    nest_say(n, n->zstd[l] ? ",{\"name\":\"zstd\",\"configuration\":{\"level\":1}}" : "," CRC);
}
/* Encodes a box of that many elements in C order; NULL when all of it is the fill value. */
static unsigned char *nest_encode(
    const struct nest *n, int l, const int32_t *from, const uint64_t *box, size_t *bytes) {
  uint64_t count = 1, stride[3], shape[3], k = 0;
  for (int d = n->ndim - 1; d >= 0; d--) {
    stride[d] = count;
    count *= box[d];
  }
  while (k < count && from[k] == NEST_FILL) k++;
  if (k == count) return NULL;
  int32_t *permuted = malloc(count * sizeof *permuted);
  for (int d = 0; d < n->ndim; d++) shape[d] = box[n->perm[l][d]];
  for (uint64_t i = 0; i < count; i++) {
    uint64_t rest = i, at = 0;
    for (int d = n->ndim - 1; d >= 0; d--) {
      at += rest % shape[d] * stride[n->perm[l][d]];
      rest /= shape[d];
    }
    permuted[i] = from[at];
  }
  unsigned char *out = NULL;
  *bytes = 0;
  if (l == n->levels) {
    out = malloc(*bytes = count * 4);
    for (uint64_t i = 0; i < count; i++)
      support_put(out + 4 * i, INSITU_I32, n->big_data, permuted[i]);
  } else {
    const uint64_t *inner = n->extent[l + 1];
    uint64_t cells = 1, inner_count = 1;
    for (int d = 0; d < n->ndim; d++) {
      cells *= shape[d] / inner[d];
      inner_count *= inner[d];
    }
    size_t index_bytes = 16 * cells + 4u * n->crc[l], at = n->first[l] ? index_bytes : 0;
    unsigned char *index = malloc(index_bytes);
    int32_t *cell = malloc(inner_count * sizeof *cell);
    out = calloc(1, index_bytes);
    memset(index, 0xff, index_bytes);
    for (uint64_t j = 0; j < cells; j++) {
      /* in another order than the index's where 7 does not divide cells */
      uint64_t c = (j * 7 + 3) % cells, origin[3], rest = c;
      if (cells % 7 == 0) c = rest = j;
      for (int d = n->ndim - 1; d >= 0; d--) {
        origin[d] = rest % (shape[d] / inner[d]) * inner[d];
        rest /= shape[d] / inner[d];
      }
      for (uint64_t i = 0; i < inner_count; i++) {
        uint64_t left = i, flat = 0, within[3];
        for (int d = n->ndim - 1; d >= 0; d--) {
          within[d] = left % inner[d];
          left /= inner[d];
        }
        for (int d = 0; d < n->ndim; d++) flat = flat * shape[d] + origin[d] + within[d];
        cell[i] = permuted[flat];
      }
      size_t got;
      unsigned char *one = nest_encode(n, l + 1, cell, inner, &got);
      if (!one) continue;
      out = realloc(out, at + got + index_bytes);
      memcpy(out + at, one, got);
      insitu__base_store64(index + 16 * c, n->big[l] ? __builtin_bswap64(at) : at);
      insitu__base_store64(index + 16 * c + 8, n->big[l] ? __builtin_bswap64(got) : got);
      at += got;
      free(one);
    }
    uint32_t crc = insitu__comp_crc32c(index, 16 * cells);
    if (n->crc[l]) memcpy(index + 16 * cells, &crc, 4);
    memcpy(out + (n->first[l] ? 0 : at), index, index_bytes);
    *bytes = n->first[l] ? at : at + index_bytes;
    free(index);
    free(cell);
  }
  free(permuted);
  if (n->around[l] && n->zstd[l]) {
    unsigned char *packed = malloc(ZSTD_compressBound(*bytes));
    *bytes = ZSTD_compress(packed, ZSTD_compressBound(*bytes), out, *bytes, 1);
    free(out);
    out = packed;
  } else if (n->around[l]) {
    uint32_t crc = insitu__comp_crc32c(out, *bytes);
    out = realloc(out, *bytes + 4);
    memcpy(out + *bytes, &crc, 4);
    *bytes += 4;
  }
  return out;
}
static void nest_draw(struct nest *n, const char *root) {
  char path[600], shape[100], chunk[100];
  memset(n, 0, sizeof *n);
  n->ndim = 1 + (int)support_below(3);
  n->levels = 1 + (int)support_below(3);
  n->big_data = support_below(2);
  /* in array axes: chunks of level l + 1 in one of level l; which axis a permuted one is */
  uint64_t factor[5][3], axes[5][3];
  for (int d = 0; d < n->ndim; d++) {
    uint64_t x = 1 + support_below(3);
    factor[n->levels][d] = x;
    for (int l = n->levels - 1; l >= 0; l--) factor[l][d] = 1 + support_below(l ? 2 : 3);
    n->shape[d] = 1 + support_below(40 / (uint64_t)n->ndim);
  }
  for (int d = 0; d < n->ndim; d++) axes[0][d] = (uint64_t)d;
  for (int l = 0; l <= n->levels; l++) {
    for (int d = 0; d < n->ndim; d++) {
      n->extent[l][d] = 1;
      for (int k = l; k <= n->levels; k++) n->extent[l][d] *= factor[k][axes[l][d]];
      n->perm[l][d] = (unsigned)d;
    }
    n->permuted[l] = support_below(2);
    for (int d = n->ndim - 1; n->permuted[l] && d > 0; d--) {
      unsigned other = (unsigned)support_below((uint64_t)d + 1), keep = n->perm[l][d];
      n->perm[l][d] = n->perm[l][other];
      n->perm[l][other] = keep;
    }
    for (int d = 0; l < n->levels && d < n->ndim; d++) axes[l + 1][d] = axes[l][n->perm[l][d]];
    n->around[l] = !support_below(4);
    n->zstd[l] = support_below(2);
    n->first[l] = support_below(2);
    n->crc[l] = support_below(2);
    n->big[l] = !support_below(3);
  }
  uint64_t count = 1, objects = 1, grid[3];
  for (int d = 0; d < n->ndim; d++) count *= n->shape[d];
  n->value = malloc(count * sizeof *n->value);
  uint64_t hole = support_below(3) ? 1 + support_below(30) : UINT64_MAX;
  for (uint64_t i = 0; i < count; i++)
    n->value[i] = i / 16 % 32 >= hole ? NEST_FILL : (int32_t)i + 1;
  n->end = n->text;
  nest_say(n,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"int32\",\"chunk_"
      "grid\":{\"name\":\"regular\","
      "\"configuration\":{\"chunk_shape\":%s}},\"chunk_key_encoding\":{\"name\":\"default\"},"
      "\"fill_value\":%d,\"codecs\":[",
      support_list(shape, n->ndim, n->shape), support_list(chunk, n->ndim, n->extent[0]),
      NEST_FILL);
  nest_codecs(n, 0);
  nest_say(n, "]}");
  snprintf(path, sizeof path, "%s/zarr.json", root);
  support_write(path, n->text, strlen(n->text));
  for (int d = 0; d < n->ndim; d++)
    objects *= grid[d] = insitu__base_ceil_div(n->shape[d], n->extent[0][d]);
  uint64_t inside = 1;
  for (int d = 0; d < n->ndim; d++) inside *= n->extent[0][d];
  int32_t *box = malloc(inside * sizeof *box);
  for (uint64_t o = 0; o < objects; o++) {
    uint64_t index[3], rest = o;
    for (int d = n->ndim - 1; d >= 0; d--) {
      index[d] = rest % grid[d];
      rest /= grid[d];
    }
    for (uint64_t i = 0; i < inside; i++) {
      uint64_t left = i, flat = 0, within[3];
      bool in = true;
      for (int d = n->ndim - 1; d >= 0; d--) {
        within[d] = index[d] * n->extent[0][d] + left % n->extent[0][d];
        left /= n->extent[0][d];
      }
      for (int d = 0; d < n->ndim; d++) {
        in = in && within[d] < n->shape[d];
        flat = flat * n->shape[d] + within[d];
      }
      box[i] = in ? n->value[flat] : NEST_FILL;
    }
    size_t bytes;
    unsigned char *object = nest_encode(n, 0, box, n->extent[0], &bytes);
    int at = snprintf(path, sizeof path, "%s/c", root);
    for (int d = 0; d < n->ndim; d++)
      at += snprintf(path + at, sizeof path - (size_t)at, "/%d", (int)index[d]);
    if (object) support_write(path, object, bytes);
    free(object);
  }
  free(box);
}
static void nest_check(const struct nest *n, const insitu_batch *b, int axis) {
  uint64_t per_row = b->arrays[0].row_bytes / 4;
  const int32_t *x = b->arrays[0].data;
  for (uint64_t r = 0; r < b->rows; r++)
    for (uint64_t k = 0; k < per_row; k++) {
      uint64_t at[3], rest = k, flat = 0;
      for (int d = n->ndim - 1; d >= 0; d--) {
        if (d == axis) continue;
        at[d] = rest % n->shape[d];
        rest /= n->shape[d];
      }
      at[axis] = (uint64_t)b->sample_indices[r];
      for (int d = 0; d < n->ndim; d++) flat = flat * n->shape[d] + at[d];
      if (x[r * per_row + k] != n->value[flat])
        fail_msg("%s\naxis %d anchor %d element %d: %d, not %d", n->text, axis, (int)at[axis],
            (int)k, x[r * per_row + k], n->value[flat]);
    }
}
static void test_random_nests(void **state) {
  (void)state;
  const insitu_variable v = {.label = "x", .path = ""};
  EACH_MODE (m)
    for (int round = 0; round < support_rounds(60); round++) {
      struct nest n;
      const char *root = support_path("nest");
      nest_draw(&n, root);
      int axis = (int)support_below((uint64_t)n.ndim);
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = &v,
          .n_variables = 1,
          .sample_axis = axis,
          .batch_size = 1 + support_below(7),
          .max_inflight = 1 + support_below(12),
          .decode_threads = 2,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      insitu_error err = {0};
      insitu_loader *ld;
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s\n%s", n.text, err.message);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
      insitu_batch *b;
      insitu_status status;
      uint64_t rows = 0;
      while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
        nest_check(&n, b, axis);
        rows += b->rows;
        insitu_batch_release(&b);
      }
      if (status != INSITU_END) fail_msg("%s\n%s", n.text, err.message);
      assert_int_equal(rows, n.shape[axis]);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      free(n.value);
      support_remove(root);
    }
}

/* Shards that are decoded whole refuse what is wrong inside them. */
static void test_whole_damaged(void **state) {
  (void)state;
  struct insitu__zarr_array a;
  insitu_error err;
  if (parse(&a, "[8]", "[8]", SHARD("[4]", LE "," CRC, ",\"index_codecs\":[" LE "," CRC "]"), &err))
    fail_msg("%s", err.message);
  unsigned char shard[2 * 20 + 36], out[32];
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (uint64_t i = 0; i < 2; i++) {
    memcpy(shard + 20 * i, x + 4 * i, 16);
    uint32_t crc = insitu__comp_crc32c(shard + 20 * i, 16);
    memcpy(shard + 20 * i + 16, &crc, 4);
    insitu__base_store64(shard + 40 + 16 * i, 20 * i);
    insitu__base_store64(shard + 48 + 16 * i, 20);
  }
  uint32_t crc = insitu__comp_crc32c(shard + 40, 32);
  memcpy(shard + 72, &crc, 4);
  struct insitu__codec_scratch s;
  insitu__codec_scratch_init(&s);
  struct insitu__codec_sink sink = insitu__codec_memory(out);
  assert_int_equal(
      insitu__chain_decode(&a.object.codecs, &s, shard, sizeof shard, 32, &sink, NULL), INSITU_OK);
  assert_memory_equal(out, x, 32);
  for (size_t bit = 0; bit < sizeof shard * 8; bit++) {
    shard[bit / 8] ^= (unsigned char)(1 << bit % 8);
    assert_int_equal(
        insitu__chain_decode(&a.object.codecs, &s, shard, sizeof shard, 32, &sink, NULL),
        INSITU_E_CORRUPT);
    shard[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  /* in a block of its own, so that reading past it shows */
  for (size_t n = 0; n < sizeof shard; n++) {
    unsigned char *cut = malloc(n ? n : 1);
    memcpy(cut, shard, n);
    assert_int_equal(
        insitu__chain_decode(&a.object.codecs, &s, cut, n, 32, &sink, NULL), INSITU_E_CORRUPT);
    free(cut);
  }
  assert_int_equal(insitu__chain_decode(&a.object.codecs, &s, shard, sizeof shard, 28, &sink, NULL),
      INSITU_E_CORRUPT);
  /* an absent inner chunk is the fill value */
  memset(shard + 56, 0xff, 16);
  crc = insitu__comp_crc32c(shard + 40, 32);
  memcpy(shard + 72, &crc, 4);
  assert_int_equal(
      insitu__chain_decode(&a.object.codecs, &s, shard, sizeof shard, 32, &sink, NULL), INSITU_OK);
  for (int i = 0; i < 4; i++)
    assert_true(((const float *)(const void *)out)[4 + i] == 1.5f ||
                ((void)memcpy(x, out, 32), x[4 + i] == 1.5f));
  insitu__codec_scratch_free(&s);
  insitu__zarr_array_free(&a);
}

/* Puts a checksum around each shard of an archive: they are then decoded whole. */
static void wrap(const char *root, const struct support_array *a) {
  char path[700], text[4000] = "";
  uint64_t grid[3];
  for (int d = 0; d < 3; d++)
    grid[d] = insitu__base_ceil_div(a->shape[d], a->chunk[d] * a->shard[d]);
  snprintf(path, sizeof path, "%s/%s/zarr.json", root, a->name);
  FILE *f = fopen(path, "rb");
  size_t n = fread(text, 1, sizeof text - 100, f);
  fclose(f);
  strcpy(text + n - 2, "," CRC "]}");
  support_write(path, text, strlen(text));
  for (uint64_t c = 0; c < grid[0] * grid[1] * grid[2]; c++) {
    static unsigned char bytes[1 << 20];
    uint64_t index[4] = {c / grid[2] / grid[1], c / grid[2] % grid[1], c % grid[2]};
    support_chunk_path(path, sizeof path, root, a, index);
    if (!(f = fopen(path, "rb"))) continue;
    n = fread(bytes, 1, sizeof bytes - 4, f);
    fclose(f);
    uint32_t crc = insitu__comp_crc32c(bytes, n);
    memcpy(bytes + n, &crc, 4);
    support_write(path, bytes, n + 4);
  }
}

/* The same shards read in parts, and with a codec around them whole: the same batches. */
static void test_whole_and_parts(void **state) {
  (void)state;
  const char *root = support_path("whole");
  for (int kind = 0; kind < 4; kind++) {
    struct support_array a = {.name = "x",
        .ndim = 3,
        .shape = {30, 7, 20},
        .chunk = {2, 2, 8},
        .dtype = INSITU_F32,
        .format = 3,
        .shard = {4, 2, 2},
        .absent = 4,
        .big = kind & 1,
        .zstd = kind & 2,
        .index_first = kind & 1,
        .gap = 8};
    EACH_MODE_BY_TURNS (m, kind) {
      support_make(root, &a);
      for (int whole = 0; whole < 2; whole++) {
        if (whole) wrap(root, &a);
        insitu_loader_desc d = all_at_once(root, m, 30);
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        epoch_or_fail(it, &a);
        assert_int_equal(stats_of(ld).reads, whole ? 4 * 2 * 2 : 15 * 4 * 3);
        assert_int_equal(stats_of(ld).absent_chunks, 15 * 4 * 3 / 4);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
    }
    support_remove(root);
  }
}

/* ---- indexes in the loader ---- */

/* x (64, 8, 32) f4 in chunks (2, 2, 8) and shards of (4, 2, 2) of them: 8 x 2 x 2 shards, 16 chunks
 * each. */
static const struct support_array sharded = {.name = "x",
    .ndim = 3,
    .shape = {64, 8, 32},
    .chunk = {2, 2, 8},
    .dtype = INSITU_F32,
    .format = 3,
    .shard = {4, 2, 2}};
enum { SHARDS = 8 * 2 * 2, CHUNKS = SHARDS * 16 };

/* An absent inner chunk of a shard that is decoded whole is an absent chunk: of those who show it,
 * an error or counted. */
static void test_whole_absent(void **state) {
  (void)state;
  const char *root = support_path("whole_absent");
  for (int raise = 0; raise < 2; raise++) {
    /* one of its 512 inner chunks is absent: samples 36 and 37, y 4 and 5, z from 24 */
    struct support_array a = sharded;
    a.absent = 300;
    a.fill = raise ? "7" : "\"NaN\"";
    a.zstd = raise;
    support_make(root, &a);
    wrap(root, &a);
    EACH_MODE (m) {
      const insitu_slice west = {.axis = 2, .stop = 24}, north = {.axis = 1, .start = 2, .stop = 5};
      const insitu_variable all = {.label = "x"},
                            beside = {.label = "x", .slices = &west, .n_slices = 1},
                            other[2] = {beside,
                                {.label = "n", .path = "x", .slices = &north, .n_slices = 1}};
      insitu_loader_desc d = all_at_once(root, m, 4);
      d.variables = &all;
      d.on_absent_chunk = raise ? INSITU_RAISE : INSITU_AUTO;
      d.on_bad_chunk = INSITU_FILL; /* it is not damaged */
      for (int boxes = 0; boxes < 2; boxes++) {
        if (boxes) d.variables = other;
        d.n_variables = 1 + (uint64_t)boxes;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        insitu_batch *b;
        insitu_error err = {0};
        insitu_status status;
        uint64_t batches = 0;
        while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
          if (!boxes) support_check_array(b, 0, &all, &a, 0);
          batches++;
          insitu_batch_release(&b);
        }
        assert_int_equal(status, INSITU_E_ABSENT);
        assert_int_equal(batches, 9); /* samples 32 to 35 are of the same shard */
        assert_non_null(
            strstr(err.message, "chunk x/c/4/1/1: an inner chunk of this shard is absent"));
        assert_non_null(strstr(err.message, "leave samples [36, 38) out"));
        assert_non_null(strstr(err.message, raise ? "not wanted" : "NaN"));
        assert_int_equal(stats_of(ld).absent_chunks + stats_of(ld).bad_chunks, 0);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
      /* who does not show it has no error; who takes the fill has it counted */
      for (int way = 0; way < 3; way++) {
        insitu_loader_desc e = d;
        e.variables = way == 0 ? &beside : &all;
        if (way == 1) e.sample_start = 38;
        if (way == 2) e.on_absent_chunk = INSITU_FILL;
        e.n_variables = 1;
        insitu_loader *ld = open_or_fail(&e);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        epoch_or_fail(it, NULL);
        assert_int_equal(stats_of(ld).absent_chunks, way == 2);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
      /* insitu_read: the fill, NaN too, unless it is told to raise */
      static float got[64 * 8 * 32];
      for (int boxes = 0; boxes < 2; boxes++) {
        insitu_error err = {0};
        insitu_loader *ld = open_or_fail(&d);
        insitu_status status = insitu_read(ld, boxes ? &beside : &all, got, sizeof got, NULL, &err);
        bool raises = raise && !boxes;
        assert_int_equal(status, raises ? INSITU_E_ABSENT : INSITU_OK);
        if (raises)
          assert_non_null(
              strstr(err.message, "chunk x/c/4/1/1: an inner chunk of this shard is absent; set"));
        assert_int_equal(stats_of(ld).absent_chunks, !raises && !boxes);
        assert_int_equal(stats_of(ld).bad_chunks, 0);
        insitu_loader_close(&ld);
      }
    }
    support_remove(root);
  }
}

static void test_index_once(void **state) {
  (void)state;
  const char *root = support_path("once");
  for (int kind = 0; kind < 4; kind++) {
    struct support_array a = sharded;
    a.index_first = kind & 1;
    a.index_crc = kind & 2;
    a.zstd = kind == 3;
    support_make(root, &a);
    EACH_MODE_BY_TURNS (m, kind)
      for (uint64_t inflight = 1u << 2 * kind; inflight <= 512; inflight *= 64) {
        insitu_loader_desc d = all_at_once(root, m, 64);
        d.max_inflight = inflight;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        for (int epoch = 0; epoch < 2; epoch++) {
          epoch_or_fail(it, &a);
          assert_int_equal(ld->cache.loads, SHARDS); /* the second epoch finds them all */
        }
        assert_int_equal(stats_of(ld).reads, 2 * CHUNKS);
        assert_int_equal(ld->footprint.cache_slots, insitu__base_max(inflight, SHARDS));
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
    support_remove(root);
  }
}

/* Fewer slots than shards: indexes are read again, and what they say is right. They are long enough
 * for a worker to check. */
static void test_index_evicted(void **state) {
  (void)state;
  const char *root = support_path("evicted");
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {16, 320},
      .chunk = {1, 1},
      .dtype = INSITU_U8,
      .format = 3,
      .shard = {64, 64},
      .index_crc = true,
      .absent = 7};
  support_make(root, &a);
  EACH_MODE (m) {
    insitu_loader_desc d = all_at_once(root, m, 64);
    d.max_inflight = 3;
    d.memory_budget = (2 << 20) + 3 * INSITU_CORO_STACK;
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(ld->footprint.slot_bytes, 16 * 64 * 64 + 4);
    assert_true(ld->footprint.slot_bytes >= INSITU__CACHE_CHECK);
    assert_int_equal(ld->footprint.cache_slots, 3); /* of 5 shards */
    insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
    epoch_or_fail(it, &a);
    assert_true(ld->cache.loads > 5);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

static unsigned descriptors(void) {
  unsigned n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

/* Small chunks are read through objects that stay open: those of all shards where the process may
 * have many descriptors, else a share of these, and few where half of these are used; none once the
 * loader is closed. */
static void test_kept_open(void **state) {
  (void)state;
  const char *root = support_path("open");
  enum { ALL, FEW_SLOTS, FEW_DESCRIPTORS, HALF_USED, CASES, DESCRIPTORS = 512 };
  struct rlimit limit, few = {.rlim_cur = DESCRIPTORS};
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {256, 64},
      .chunk = {1, 4},
      .dtype = INSITU_F32,
      .format = 3,
      .shard = {1, 64}};
  support_make(root, &a);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  few.rlim_max = limit.rlim_max;
  EACH_MODE (m)
    for (int kind = ALL; kind < CASES; kind++) {
      unsigned before = descriptors(), with = 0;
      insitu_loader_desc d = all_at_once(root, m, 16);
      d.max_inflight = 16;
      d.hold_epoch = 1;
      if (kind == FEW_SLOTS) d.max_inflight = 4;
      if (kind == FEW_SLOTS) d.memory_budget = 10 << 18;
      if (kind >= FEW_DESCRIPTORS) assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
      int used[DESCRIPTORS / 2];
      for (int i = 0; kind == HALF_USED && i < DESCRIPTORS / 2; i++)
        assert_true((used[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
      assert_true((ld->cache.n_slots < a.shape[0]) == (kind == FEW_SLOTS));
      for (int epoch = 0; epoch < 3; epoch++) epoch_or_fail(it, &a);
      insitu_iter_close(&it); /* waits for what is in flight */
      uint64_t most = ld->cache.n_slots, share = DESCRIPTORS / INSITU__CACHE_FILES_SHARE;
      if (kind == FEW_DESCRIPTORS) most = insitu__base_min(most, share);
      if (kind == HALF_USED) most = INSITU__CACHE_FILES_LEAST;
      assert_true(ld->cache.n_files <= most);
      if (kind != FEW_SLOTS && !d.inline_io && !ld->source.store.never_now)
        assert_int_equal(ld->cache.n_files, most);
      for (uint32_t i = 0; i < ld->cache.n_slots; i++)
        if (ld->cache.slot[i].array) {
          assert_int_equal(ld->cache.slot[i].users, 0);
          with += ld->cache.slot[i].fd >= 0;
        }
      assert_int_equal(with, ld->cache.n_files);
      insitu_loader_close(&ld);
      for (int i = 0; kind == HALF_USED && i < DESCRIPTORS / 2; i++) close(used[i]);
      assert_int_equal(descriptors(), before);
      assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
  support_remove(root);
}

/* An index is not evicted while a worker reads its shard's object. */
static void test_held_stays(void **state) {
  (void)state;
  static const struct insitu__zarr_array a;
  struct insitu__cache c;
  assert_true(insitu__cache_init(&c, 3, 16));
  for (uint64_t cell = 0; cell < 20; cell++) {
    struct insitu__cache_slot *slot = insitu__cache_insert(&c, &a, 0, cell);
    slot->loading = slot->used = false;
    slot->users = cell == 1;
  }
  assert_non_null(insitu__cache_find(&c, &a, 0, 1));
  assert_null(insitu__cache_find(&c, &a, 0, 2));
  assert_non_null(insitu__cache_find(&c, &a, 0, 19));
  insitu__cache_free(&c);
}

/* Shards of few chunks have short indexes: what stands beside each of them in the cache counts too.
 */
static void test_cache_memory(void **state) {
  (void)state;
  const char *root = support_path("cachemem");
  struct support_array a = {.name = "x",
      .ndim = 1,
      .shape = {1 << 20},
      .chunk = {1},
      .dtype = INSITU_U8,
      .format = 3,
      .shard = {1}};
  support_metadata(root, &a);
  insitu_loader_desc d = all_at_once(root, 1, 64);
  d.plan_only = 1;
  d.max_inflight = 32;
  for (d.memory_budget = 16 << 20; d.memory_budget <= 64 << 20; d.memory_budget *= 2) {
    insitu_plan plan;
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
    assert_true(
        plan.cache_bytes > d.memory_budget / 17 && plan.cache_bytes <= d.memory_budget / 16);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* What the loader takes is what the plan promises; too long an index is refused with the knobs. */
static void test_memory(void **state) {
  (void)state;
  const char *root = support_path("memory");
  support_make(root, &sharded);
  EACH_MODE (m) {
    insitu_loader_desc d = all_at_once(root, m, 8);
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
    insitu_plan plan = {0};
    insitu_iter *it = NULL;
    d.max_inflight = 32;
    uint64_t need = 64 << 20;
    for (int i = 0; i < 2; i++) { /* the budget decides how many slots: twice to settle */
      d.memory_budget = need;
      insitu_loader *ld = open_or_fail(&d);
      assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
      assert_int_equal(plan.cache_bytes, ld->footprint.cache_bytes);
      assert_int_equal(
          plan.cache_bytes, insitu__cache_bytes((uint32_t)ld->footprint.cache_slots, 16 * 16));
      assert_int_equal(ld->cache.n_slots, ld->footprint.cache_slots);
      need =
          plan.inflight_bytes + plan.cache_bytes + plan.table_bytes + plan.slabs * plan.slab_bytes;
      insitu_loader_close(&ld);
    }
    for (uint64_t less = 0; less < 2; less++) {
      d.memory_budget = need - less;
      insitu_loader *ld = open_or_fail(&d);
      assert_int_equal(insitu_iter_open(ld, &id, &it, NULL), less ? INSITU_E_BUDGET : INSITU_OK);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    insitu_error err = {0};
    insitu_loader *ld;
    d.memory_budget = plan.inflight_bytes + plan.cache_bytes - 1;
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_BUDGET);
    assert_non_null(strstr(err.message, "32 indexes of shards with 256 bytes each"));
    assert_non_null(strstr(err.message, "max_inflight"));
  }
  support_remove(root);
  /* an index of 64 MiB: max_inflight, when it is not the user's, becomes small enough for as many
   * of them */
  struct support_array a = {.name = "x",
      .ndim = 1,
      .shape = {1 << 24},
      .chunk = {1},
      .dtype = INSITU_U8,
      .format = 3,
      .shard = {1 << 22}};
  support_metadata(root, &a);
  insitu_loader_desc d = all_at_once(root, 1, 8);
  d.plan_only = 1;
  d.max_inflight = 0;
  d.memory_budget = 1 << 30;
  insitu_loader *ld = open_or_fail(&d);
  assert_true(ld->footprint.cache_bytes < d.memory_budget / 2);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* ---- shards that are damaged ---- */

struct file {
  unsigned char *bytes;
  size_t n;
  char path[700];
};
static struct file load(
    const char *root, const struct support_array *a, uint64_t i, uint64_t j, uint64_t k) {
  struct file f = {.n = 0};
  uint64_t index[4] = {i, j, k};
  support_chunk_path(f.path, sizeof f.path, root, a, index);
  FILE *in = fopen(f.path, "rb");
  assert_non_null(in);
  f.bytes = malloc(8 << 20);
  f.n = fread(f.bytes, 1, 8 << 20, in);
  fclose(in);
  return f;
}
static void save(struct file *f, size_t n) {
  support_write(f->path, f->bytes, n);
  free(f->bytes);
}
/* of an index at the end, without a checksum */
static unsigned char *entry(struct file *f, uint64_t entries, uint64_t i) {
  return f->bytes + f->n - 16 * entries + 16 * i;
}

static void test_index_damaged(void **state) {
  (void)state;
  const char *root = support_path("indexbad");
  static const struct {
    insitu_status status;
    const char *word;
    uint64_t absent, bad;
  } kinds[] = {{INSITU_E_CORRUPT, "100 bytes are too few for its index of 260", 0, 16},
      {INSITU_E_CORRUPT, "0 bytes are too few for its index of 260", 0, 16},
      {INSITU_E_CORRUPT, "the checksum is", 0, 16}, {INSITU_E_IO, "x/c/3/1/0, inner chunk ", 0, 16},
      {INSITU_E_ABSENT, "x/c/3/1/0, inner chunk ", 16, 0}};
  EACH_MODE (m)
    for (int kind = 0; kind < 5; kind++)
      for (int first = 0; first < 2; first++) {
        struct support_array a = sharded;
        a.index_crc = true;
        a.index_first = first;
        support_make(root, &a);
        struct file f = load(root, &a, 3, 1, 0);
        if (kind == 2) f.bytes[first ? 7 : f.n - 7] ^= 1;
        size_t n = kind == 0 ? 100 : kind == 1 ? 0 : f.n;
        save(&f, n);
        if (kind > 2) unlink(f.path);
        if (kind == 3) mkdir(f.path, 0777);
        insitu_loader_desc d = all_at_once(root, m, 8);
        d.log = quiet;
        d.on_absent_chunk = kind == 4 ? INSITU_RAISE : INSITU_AUTO;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        expect_error(it, kinds[kind].status, kinds[kind].word);
        expect_error(
            it, kinds[kind].status, "rank 0, read, array x, chunk x/c/3/1/0, inner chunk ");
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        d.on_bad_chunk = d.on_absent_chunk = INSITU_FILL;
        for (d.max_inflight = 1; d.max_inflight <= 64; d.max_inflight *= 8) {
          ld = open_or_fail(&d);
          it = iter_or_fail(ld, INSITU_ALL);
          insitu_batch *b;
          insitu_error err = {0};
          insitu_status status;
          uint64_t zeros = 0, wrong = 0;
          while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
            const float *x = b->arrays[0].data;
            for (uint64_t r = 0; r < b->rows; r++)
              for (uint64_t k = 0; k < 256; k++, x++) {
                uint64_t t = (uint64_t)b->sample_indices[r], y = k / 32, z = k % 32;
                bool hole = t / 8 == 3 && y / 4 == 1 && z / 16 == 0;
                zeros += hole && *x == 0;
                wrong += !hole && *x != (float)(t * 256 + k);
              }
            insitu_batch_release(&b);
          }
          assert_int_equal(status, INSITU_END);
          assert_true(zeros == 8 * 4 * 16 && wrong == 0);
          assert_int_equal(stats_of(ld).bad_chunks, kinds[kind].bad);
          assert_int_equal(stats_of(ld).absent_chunks, kinds[kind].absent);
          insitu_loader_close(&ld);
          insitu_iter_close(&it);
        }
        support_remove(root);
      }
}

/* ---- neighbours are read at once ---- */

/* One shard of n chunks side by side, `rows` samples of `floats` elements each. */
static struct support_array side_by_side(uint64_t n, uint64_t rows, uint64_t floats) {
  return (struct support_array){.name = "x",
      .ndim = 3,
      .shape = {rows, n, floats},
      .chunk = {rows, 1, floats},
      .dtype = INSITU_F32,
      .format = 3,
      .shard = {1, n, 1}};
}
/* Reads of the store that n entries of so many bytes and iovecs should need. */
static uint64_t runs(uint64_t n, uint64_t bytes, uint64_t gap, uint64_t iovs) {
  uint64_t requests = 0, run = 0, n_iov = 0;
  for (uint64_t i = 0; i < n; i++) {
    bool joins = requests && gap <= INSITU__LOADER_GAP && run < INSITU__LOADER_RUN &&
                 n_iov + iovs + 1 <= INSITU__LOADER_IOV;
    requests += !joins;
    run = joins ? run + gap + bytes : bytes;
    n_iov = joins ? n_iov + iovs + 1 : iovs;
  }
  return requests;
}
static insitu_stats one_epoch(const struct support_array *a, const char *root, int m) {
  insitu_loader_desc d = all_at_once(root, m, a->shape[0]);
  d.max_inflight = a->shape[1] > 128 ? 1024 : 128;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
  epoch_or_fail(it, a);
  insitu_stats stats = stats_of(ld);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return stats;
}

static void test_merging(void **state) {
  (void)state;
  const char *root = support_path("merge");
  static const struct {
    uint64_t n, rows, floats, gap, want; /* want 0: see runs */
    bool zstd;
  } kinds[] = {{16, 8, 512, 0, 1, false}, {16, 8, 512, 0, 1, true}, {16, 8, 16, 0, 1, false},
      {16, 8, 512, 100, 1, false}, {16, 8, 512, INSITU__LOADER_GAP, 0, false},
      {16, 8, 512, INSITU__LOADER_GAP + 1, 16, false}, {16, 8, 500, INSITU__LOADER_GAP, 0, false},
      {16, 8, 500, INSITU__LOADER_GAP, 0, true}, {16, 8, 16, INSITU__LOADER_GAP + 1, 16, false},
      {70, 16, 2048, 0, 0, false}, {70, 16, 2048, 512, 0, false},
      {3, INSITU__LOADER_RUN / 8192 + 1, 2048, 0, 3, false}, {900, 1, 4, 0, 2, false},
      {600, 1, 4, 8, 2, false}, {1, 8, 512, 0, 1, false}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct support_array a = side_by_side(kinds[k].n, kinds[k].rows, kinds[k].floats);
    uint64_t bytes = a.shape[0] * a.shape[2] * 4;
    a.gap = kinds[k].gap;
    a.zstd = kinds[k].zstd;
    support_make(root, &a);
    bool direct = !a.zstd && a.shape[2] * 4 >= INSITU__LOADER_DIRECT;
    uint64_t want =
        kinds[k].want ? kinds[k].want : runs(a.shape[1], bytes, a.gap, direct ? a.shape[0] : 1);
    EACH_MODE_BY_TURNS (m, (int)k) {
      insitu_stats s = one_epoch(&a, root, m);
      assert_int_equal(s.reads, a.shape[1]);
      if (s.requests != want)
        fail_msg("kind %d: %d requests, not %d", (int)k, (int)s.requests, (int)want);
      assert_int_equal(s.bytes_decoded, bytes * a.shape[1]);
      if (!a.zstd && a.gap <= INSITU__LOADER_GAP)
        assert_int_equal(s.bytes_read, bytes * a.shape[1] + a.gap * (a.shape[1] - want));
    }
    support_remove(root);
  }
}

/* Requests of an epoch whose indexes are known and whose objects are open: a worker reads. */
static uint64_t requests_again(const struct support_array *a, const insitu_loader_desc *d) {
  insitu_loader *ld = open_or_fail(d);
  insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
  insitu_stats before, after;
  epoch_or_fail(it, a);
  before = stats_of(ld);
  epoch_or_fail(it, a);
  after = stats_of(ld);
  bool workers = !d->inline_io && !ld->source.store.never_now;
  assert_int_equal(after.reads, 2 * before.reads);
  assert_int_equal(after.bytes_decoded, 2 * before.bytes_decoded);
  assert_int_equal(after.bytes_read, 2 * before.bytes_read);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return workers ? after.requests - before.requests : 0;
}

/* Neighbours in a bunch are one read of a worker, with what lies between them, but not with longer
 * gaps; the rows of raw chunks go straight into the batch. */
static void test_merging_in_a_bunch(void **state) {
  (void)state;
  const char *root = support_path("bunch");
  enum { N = 16, ROWS = 8 };
  static const struct {
    uint64_t floats, gap, want;
    bool zstd;
  } kinds[] = {{512, 0, 1, false}, {16, 0, 1, false}, {512, 0, 1, true}, {512, 100, 1, false},
      {512, 100, 1, true}, {512, INSITU__LOADER_GAP, 1, false},
      {512, INSITU__LOADER_GAP + 1, N, false}, {512, INSITU__LOADER_GAP + 1, N, true}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct support_array a = side_by_side(N, ROWS, kinds[k].floats);
    a.gap = kinds[k].gap;
    a.zstd = kinds[k].zstd;
    support_make(root, &a);
    EACH_MODE_BY_TURNS (m, (int)k) {
      insitu_loader_desc d = all_at_once(root, m, ROWS);
      uint64_t got = requests_again(&a, &d);
      if (got && got != kinds[k].want)
        fail_msg("kind %d: %d requests, not %d", (int)k, (int)got, (int)kinds[k].want);
    }
    support_remove(root);
  }
}

/* An epoch over a bunch where one chunk of a run is damaged, or where the run reaches past the end
 * of the object: the error is of that chunk, and the other rows come. True where the loader took
 * the object for one that is in the page cache, or the kernel does not tell. */
static bool damaged_in_a_bunch(const char *root, const struct support_array *a, int m, bool cut) {
  uint64_t n = a->shape[1];
  support_make(root, a);
  insitu_loader_desc d = all_at_once(root, m, 1);
  d.on_bad_chunk = INSITU_FILL;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
  epoch_or_fail(it, a);
  struct file f = load(root, a, 0, 0, 0);
  unsigned char *e = entry(&f, n, cut ? n - 1 : 3);
  if (!cut) memset(f.bytes + insitu__base_load64(e), 0x55, 8);
  save(&f, cut ? insitu__base_load64(e) + 4 : f.n);
  insitu_stats before = stats_of(ld);
  epoch_or_fail(it, NULL);
  assert_int_equal(stats_of(ld).bad_chunks, 1);
  assert_int_equal(stats_of(ld).reads - before.reads, n);
  insitu_iter_close(&it); /* waits for what is in flight */
  bool cached = ld->sched.untried == 0 || ld->source.store.never_now; /* so under Valgrind */
  insitu_loader_close(&ld);
  return cached;
}

/* A damaged chunk is not taken for one that is missing in the page cache. The kernel may really
 * miss pages on a busy machine, so some tries may say so, but not each of them. */
static void test_merging_damaged(void **state) {
  (void)state;
  const char *root = support_path("bunchbad");
  for (int cut = 0; cut < 2; cut++) {
    struct support_array a = side_by_side(16, 1, 512);
    a.zstd = !cut;
    EACH_MODE (m) {
      bool cached = false;
      for (int tries = 0; !cached && tries < 20; tries++)
        cached = damaged_in_a_bunch(root, &a, m, cut);
      assert_true(cached);
    }
    support_remove(root);
  }
}

/* A shuffled window touches the chunks of its units in any order; those of a unit are one request,
 * by a worker as by a coroutine. */
static void test_units_are_read_at_once(void **state) {
  (void)state;
  const char *root = support_path("units");
  enum { SAMPLES = 512, UNIT = 8 };
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {SAMPLES, 512},
      .chunk = {1, 512},
      .dtype = INSITU_F32,
      .format = 3,
      .shard = {64, 1}};
  for (int zstd = 0; zstd < 2; zstd++) {
    a.zstd = zstd;
    support_make(root, &a);
    EACH_MODE (m) {
      insitu_loader_desc d = all_at_once(root, m, 16);
      d.unit_chunks = UNIT;
      d.block_chunks = 16 * UNIT;
      d.assembly = INSITU_SCATTER;
      d.seed = 3;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld,
          &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED});
      for (int epoch = 1; epoch <= 3; epoch++) {
        epoch_or_fail(it, &a);
        insitu_stats s = stats_of(ld);
        assert_int_equal(s.reads, epoch * SAMPLES);
        /* some units are cut: by the end of a bunch, or where no tile is free */
        if (s.requests > (uint64_t)epoch * 2 * SAMPLES / UNIT)
          fail_msg("%d requests in %d epochs", (int)s.requests, epoch);
      }
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    support_remove(root);
  }
}

/* Many iovecs: raw rows go straight into batches, one iovec for each. */
static void test_merging_many_rows(void **state) {
  (void)state;
  const char *root = support_path("iov");
  static const uint64_t rows[] = {511, 512, 1023, 1024};
  for (size_t k = 0; k < 4; k++) {
    struct support_array a = side_by_side(4, rows[k], INSITU__LOADER_DIRECT / 4);
    support_make(root, &a);
    EACH_MODE_BY_TURNS (m, (int)k) {
      insitu_stats s = one_epoch(&a, root, m);
      uint64_t iovs = rows[k] < INSITU__LOADER_IOV ? rows[k] : 1;
      assert_int_equal(s.requests, runs(4, rows[k] * INSITU__LOADER_DIRECT, 0, iovs));
    }
    support_remove(root);
  }
}

/* Chunks in any order in the file, with gaps of any length, of lengths of their own. */
static void test_merging_any_order(void **state) {
  (void)state;
  const char *root = support_path("anyorder");
  enum { N = 60 };
  for (int round = 0; round < 12; round++) {
    struct support_array a = side_by_side(N, 4, round % 3 ? 640 : 50);
    a.zstd = round % 2;
    support_make(root, &a);
    struct file f = load(root, &a, 0, 0, 0);
    unsigned char *to = malloc(8 << 20);
    uint64_t order[N], at = 0, requests = 1, run = 0;
    for (uint64_t i = 0; i < N; i++) order[i] = i;
    for (uint64_t i = N - 1; i; i--) {
      uint64_t j = support_below(i + 1), keep = order[i];
      order[i] = order[j];
      order[j] = keep;
    }
    for (uint64_t i = 0; i < N; i++) {
      unsigned char *e = entry(&f, N, order[i]);
      uint64_t gap = support_below(3) ? support_below(300) : support_below(2 * INSITU__LOADER_GAP),
               n = insitu__base_load64(e + 8);
      memset(to + at, 0xaa, gap);
      bool joins = i && gap <= INSITU__LOADER_GAP && run < INSITU__LOADER_RUN;
      requests += i && !joins;
      run = joins ? run + gap + n : n;
      at += gap;
      memcpy(to + at, f.bytes + insitu__base_load64(e), n);
      insitu__base_store64(e, at);
      at += n;
    }
    memcpy(to + at, entry(&f, N, 0), 16 * N);
    free(f.bytes);
    f.bytes = to;
    save(&f, at + 16 * N);
    EACH_MODE (m) assert_int_equal(one_epoch(&a, root, m).requests, requests);
    support_remove(root);
  }
}

/* Entries that share bytes, as writers that store equal chunks once make them. */
static void test_overlapping(void **state) {
  (void)state;
  const char *root = support_path("overlap");
  for (int kind = 0; kind < 2; kind++) {
    struct support_array a = side_by_side(8, 8, kind ? 512 : 16);
    support_make(root, &a);
    struct file f = load(root, &a, 0, 0, 0);
    for (uint64_t i = 0; i < 8; i++) { /* chunk i is read from half a chunk before where it was */
      uint64_t half = a.shape[2] * 16;
      insitu__base_store64(entry(&f, 8, i), i / 2 * half);
    }
    save(&f, f.n);
    EACH_MODE (m) {
      insitu_loader_desc d = all_at_once(root, m, 8);
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
      insitu_batch *b;
      assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_OK);
      const float *x = b->arrays[0].data;
      for (uint64_t r = 0; r < 8; r++)
        for (uint64_t i = 0; i < 8; i++) /* row r of the bytes i / 2 half chunks into the file */
          for (uint64_t k = 0; k < a.shape[2]; k++, x++) {
            uint64_t row = i / 2 * 4 + r;
            assert_true(*x == (float)((row % 8 * 8 + row / 8) * a.shape[2] + k));
          }
      insitu_batch_release(&b);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    support_remove(root);
  }
}

/* Only some rows of each chunk are wanted: what lies between them counts as a gap. */
static void test_partial_rows(void **state) {
  (void)state;
  const char *root = support_path("partial");
  struct support_array a = side_by_side(12, 16, 640); /* rows of 2560 bytes, chunks of 40960 */
  support_make(root, &a);
  EACH_MODE (m)
    for (int64_t start = 0; start < 16; start += 3)
      for (int64_t stop = start + 1; stop <= 16; stop += 4) {
        insitu_loader_desc d = all_at_once(root, m, (uint64_t)(stop - start));
        d.sample_start = start;
        d.sample_stop = stop;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        epoch_or_fail(it, &a);
        uint64_t want = (uint64_t)(stop - start) * 2560, gap = 40960 - want,
                 requests = runs(12, want, gap, want / 2560);
        insitu_stats s = stats_of(ld);
        assert_int_equal(s.requests, requests);
        assert_int_equal(s.bytes_read, 12 * want + (12 - requests) * gap);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
      }
  support_remove(root);
}

/* Variables that share an array, at offsets of their own, in two iterators at once: every element,
 * no read too many. */
static void test_sharing(void **state) {
  (void)state;
  const char *root = support_path("sharing");
  const int64_t steps[] = {0, 3};
  const insitu_slice slice = {.axis = 1, .start = 3, .stop = 7};
  const insitu_variable v[] = {{.label = "x"},
      {.label = "next", .path = "x", .offset = 1, .dtype = INSITU_F64},
      {.label = "twin", .path = "x", .slices = &slice, .n_slices = 1},
      {.label = "steps", .path = "x", .steps = steps, .n_steps = 2}};
  static const uint64_t most[] = {1, 2, 3, 8, 28};
  for (int kind = 0; kind < 4; kind++) {
    struct support_array a = {.name = "x",
        .ndim = 3,
        .shape = {32, 8, 520},
        .chunk = {2, 2, 520},
        .dtype = INSITU_F32,
        .format = 3,
        .shard = {4, 4, 1},
        .zstd = kind & 1,
        .big = kind & 2};
    support_make(root, &a);
    EACH_MODE_BY_TURNS (m, kind)
      for (int way = 0; way < 5; way += support_slow() ? 3 : 1) {
        uint64_t inflight = most[way];
        insitu_loader_desc d = all_at_once(root, m, 8);
        d.variables = v;
        d.n_variables = 4;
        d.max_inflight = inflight;
        d.prefetch_depth = 3;
        d.block_chunks = 4;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it[2] = {iter_or_fail(ld, INSITU_TRAIN), iter_or_fail(ld, INSITU_ALL)};
        insitu_plan plan[2];
        insitu_batch *b;
        for (int i = 0; i < 2; i++) {
          insitu_iter_desc id = {.api = INSITU_API, .split = i ? INSITU_ALL : INSITU_TRAIN};
          assert_int_equal(insitu_loader_plan(ld, &id, &plan[i], NULL), INSITU_OK);
        }
        for (int more = 3; more;)
          for (int i = 0; i < 2; i++) {
            insitu_error err = {0};
            if (!(more >> i & 1)) continue;
            insitu_status status = insitu_iter_next(it[i], 20000, &b, &err);
            if (status == INSITU_END) more &= ~(1 << i);
            else if (status) fail_msg("%s: %s", insitu_status_name(status), err.message);
            else {
              for (uint64_t k = 0; k < 4; k++) support_check_array(b, k, &v[k], &a, 0);
              insitu_batch_release(&b);
            }
          }
        insitu_stats s = stats_of(ld);
        assert_true(s.reads <= plan[0].reads + plan[1].reads && s.requests <= s.reads);
        if (inflight >= 8) assert_true(s.requests < s.reads);
        insitu_loader_close(&ld);
        for (int i = 0; i < 2; i++) insitu_iter_close(&it[i]);
      }
    support_remove(root);
  }
}

/* ---- damage stays where it is ---- */

/* Reads x of side_by_side(8, 8, ...) with holes filled; the columns of `holes` (a bit each) must be
 * 0, all others right. */
static void expect_holes(insitu_iter *it, const struct support_array *a, unsigned holes) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    const float *x = b->arrays[0].data;
    for (uint64_t r = 0; r < b->rows; r++)
      for (uint64_t i = 0; i < a->shape[1]; i++)
        for (uint64_t k = 0; k < a->shape[2]; k++, x++) {
          float want =
              holes >> i & 1
                  ? 0
                  : (float)(((uint64_t)b->sample_indices[r] * a->shape[1] + i) * a->shape[2] + k);
          if (*x != want)
            fail_msg("row %d chunk %d element %d: %g, not %g", (int)r, (int)i, (int)k, *x, want);
        }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
}
enum { BEYOND, HUGE_OFFSET, HUGE_BYTES, NO_BYTES, HALF_ABSENT, ROTTEN, KINDS };

static void test_damage_stays(void **state) {
  (void)state;
  const char *root = support_path("damage");
  EACH_MODE (m)
    for (int kind = 0; kind < KINDS; kind++)
      /* raw straight into batches, raw through a buffer, zstd */
      for (int codec = 0; codec < 3; codec++) {
        if (kind == ROTTEN && codec < 2) continue; /* nothing tells */
        struct support_array a = side_by_side(8, 8, codec == 1 ? 16 : 512);
        a.zstd = codec == 2;
        support_make(root, &a);
        struct file f = load(root, &a, 0, 0, 0);
        unsigned char *e = entry(&f, 8, 4);
        uint64_t at = insitu__base_load64(e), n = insitu__base_load64(e + 8);
        if (kind == BEYOND) insitu__base_store64(e, f.n - n / 2);
        if (kind == HUGE_OFFSET) insitu__base_store64(e, UINT64_MAX - n);
        if (kind == HUGE_BYTES) insitu__base_store64(e + 8, UINT64_C(1) << 40);
        if (kind == NO_BYTES) insitu__base_store64(e + 8, 0);
        if (kind == HALF_ABSENT) insitu__base_store64(e, UINT64_MAX);
        if (kind == ROTTEN) f.bytes[at] ^= 0x10;
        save(&f, f.n);
        insitu_loader_desc d = all_at_once(root, m, 8);
        d.log = quiet;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
        expect_error(it, INSITU_E_CORRUPT, "x/c/0/0/0, inner chunk 0.4.0: ");
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        d.on_bad_chunk = INSITU_FILL;
        ld = open_or_fail(&d);
        it = iter_or_fail(ld, INSITU_ALL);
        expect_holes(it, &a, 1 << 4);
        insitu_stats s = stats_of(ld);
        assert_true(s.bad_chunks == 1 && s.absent_chunks == 0 && s.reads == 8);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        support_remove(root);
      }
}

/* Chunks that wait for the index of their shard when an iterator moves or is closed are not
 * damaged: none is counted. */
static void test_given_up_is_no_damage(void **state) {
  (void)state;
  const char *root = support_path("given_up");
  support_make(root, &sharded);
  EACH_MODE (m)
    for (int closes = 0; closes < 2; closes++) {
      insitu_loader_desc d = all_at_once(root, m, 4);
      d.on_bad_chunk = INSITU_FILL;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = NULL;
      for (uint64_t epoch = 0; epoch < 20; epoch++) {
        insitu_batch *b = NULL;
        if (!it) it = iter_or_fail(ld, INSITU_ALL);
        if (insitu_iter_next(it, 0, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
        if (closes) insitu_iter_close(&it);
        else assert_int_equal(insitu_iter_set_epoch(it, epoch + 1, NULL), INSITU_OK);
      }
      assert_int_equal(stats_of(ld).bad_chunks, 0);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

static atomic_int named; /* lines that name the cause and an inner chunk */
static void count_named(void *user, int32_t level, const char *line) {
  (void)user, (void)level;
  if (strstr(line, "inner chunk 0.") && strstr(line, "is filled: ") && strstr(line, "directory"))
    named++;
}
/* The shard changes after its index was read: cut, gone, or something else in its place. */
static void test_shard_changes(void **state) {
  (void)state;
  const char *root = support_path("changes");
  EACH_MODE (m)
    for (int kind = 0; kind < 3; kind++)
      for (int codec = 0; codec < 3; codec++) {
        struct support_array a = side_by_side(8, 8, codec == 1 ? 16 : 512);
        a.zstd = codec == 2;
        support_make(root, &a);
        for (int fill = 0; fill < 2; fill++) {
          struct file f = load(root, &a, 0, 0, 0);
          uint64_t cut = insitu__base_load64(entry(&f, 8, 6)) - 1; /* within chunk 5 */
          insitu_loader_desc d = all_at_once(root, m, 8);
          d.on_bad_chunk = fill ? INSITU_FILL : INSITU_RAISE;
          d.log = count_named;
          named = 0;
          insitu_loader *ld = open_or_fail(&d);
          insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
          epoch_or_fail(it, &a);
          assert_int_equal(stats_of(ld).requests, 1);
          if (kind == 0) assert_int_equal(truncate(f.path, (off_t)cut), 0);
          else unlink(f.path);
          if (kind == 2) mkdir(f.path, 0777);
          if (!fill && kind == 0) expect_error(it, INSITU_E_CORRUPT, "wrong chunk length");
          else if (!fill && kind == 1)
            expect_error(it, INSITU_E_CORRUPT, "has gone since its index was read");
          else if (!fill) expect_error(it, INSITU_E_IO, "inner chunk");
          else {
            expect_holes(it, &a, kind ? 0xff : 0xe0);
            assert_int_equal(stats_of(ld).bad_chunks, kind ? 8 : 3);
            assert_int_equal(stats_of(ld).absent_chunks, 0);
            assert_int_equal(named, kind == 2 ? 8 : 0);
          }
          assert_int_equal(ld->cache.loads, 1);
          insitu_loader_close(&ld);
          insitu_iter_close(&it);
          if (kind == 2) rmdir(f.path);
          save(&f, f.n);
        }
        support_remove(root);
      }
}

/* A shard in a shard whose place or entries are wrong. */
static void test_nested_damaged(void **state) {
  (void)state;
  const char *root = support_path("nested");
  static const char meta[] =
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"float32\",\"chunk_"
      "grid\":{\"name\":\"regular\","
      "\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
      "\"fill_value\":9,\"codecs\":[" SHARD("[2]", SHARD("[1]", LE, INDEX), INDEX) "]}";
  static const struct {
    size_t at;                 /* byte of the object */
    uint64_t to;               /* eight bytes written there */
    unsigned holes;            /* samples */
  } bad[] = {{88, 31, 3},      /* the first inner shard is shorter than its index */
      {88, 0, 3}, {88, 41, 3}, /* its index is looked for a byte too far */
      {96, 1 << 20, 12},       /* the second lies beyond the end */
      /* an entry that leaves the inner shard, though not the file */
      {8, 37, 1}, {8, UINT64_MAX, 1}, {16, 5, 1},
      {16, UINT64_MAX, 1}, /* not the length of a raw chunk */
      {64, 4, 0}};         /* fine: where it was */
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
    EACH_MODE_BY_TURNS (m, (int)k) {
      unsigned char object[112];
      char path[600];
      for (uint64_t i = 0; i < 2; i++) {
        float x[2] = {(float)(2 * i), (float)(2 * i + 1)};
        memcpy(object + 40 * i, x, 8);
        for (uint64_t j = 0; j < 2; j++) {
          insitu__base_store64(object + 40 * i + 8 + 16 * j, 4 * j);
          insitu__base_store64(object + 40 * i + 16 + 16 * j, 4);
        }
        insitu__base_store64(object + 80 + 16 * i, 40 * i);
        insitu__base_store64(object + 88 + 16 * i, 40);
      }
      insitu__base_store64(object + bad[k].at, bad[k].to);
      snprintf(path, sizeof path, "%s/zarr.json", root);
      support_write(path, meta, sizeof meta - 1);
      snprintf(path, sizeof path, "%s/c/0", root);
      support_write(path, object, sizeof object);
      const insitu_variable v = {.label = "x", .path = ""};
      insitu_loader_desc d = all_at_once(root, m, 4);
      d.variables = &v;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
      if (k == 0) expect_error(it, INSITU_E_CORRUPT, "31 bytes are too few for its index of 32");
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      d.on_bad_chunk = INSITU_FILL;
      d.log = quiet;
      ld = open_or_fail(&d);
      insitu_batch *b;
      it = iter_or_fail(ld, INSITU_ALL);
      assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_OK);
      const float *x = b->arrays[0].data;
      for (unsigned i = 0; i < 4; i++)
        if (x[i] != (bad[k].holes >> i & 1 ? 9 : (float)i))
          fail_msg("case %d, sample %u is %g", (int)k, i, x[i]);
      assert_int_equal(stats_of(ld).bad_chunks, __builtin_popcount(bad[k].holes));
      insitu_batch_release(&b);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
  support_remove(root);
}

/* ---- fill values ---- */

static void test_fill(void **state) {
  (void)state;
  const char *root = support_path("fill");
  const insitu_variable v[] = {{.label = "x"}, {.label = "d", .path = "x", .dtype = INSITU_F64}};
  EACH_MODE (m)
    for (int kind = 0; kind < 4; kind++) {
      struct support_array a = sharded;
      a.absent = 5;
      a.big = kind & 1;
      a.fill = kind & 2 ? "\"NaN\"" : "-1.5";
      support_make(root, &a);
      insitu_loader_desc d = all_at_once(root, m, 8);
      d.variables = v;
      d.n_variables = 2;
      insitu_loader *ld = open_or_fail(&d);
      if (kind & 2) {
        insitu_iter *failed = iter_or_fail(ld, INSITU_ALL);
        expect_error(failed, INSITU_E_ABSENT, "fill value is NaN; leave samples [");
        insitu_loader_close(&ld);
        insitu_iter_close(&failed);
        d.on_absent_chunk = INSITU_FILL;
        ld = open_or_fail(&d);
      }
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL);
      insitu_batch *b;
      insitu_status status;
      uint64_t holes = 0;
      while ((status = insitu_iter_next(it, 20000, &b, NULL)) == INSITU_OK) {
        const float *x = b->arrays[0].data;
        const double *y = b->arrays[1].data;
        for (uint64_t i = 0; i < b->rows * 256; i++) {
          uint64_t t = (uint64_t)b->sample_indices[i / 256],
                   number = (t / 2 * 4 + i % 256 / 32 / 2) * 4 + i % 32 / 8;
          bool hole = number % 5 == 4;
          holes += hole;
          if (hole && kind & 2) assert_true(x[i] != x[i] && y[i] != y[i]);
          else
            assert_true(
                x[i] == (hole ? -1.5f : (float)(t * 256 + i % 256)) && y[i] == (double)x[i]);
        }
        insitu_batch_release(&b);
      }
      assert_int_equal(status, INSITU_END);
      assert_int_equal(holes, CHUNKS / 5 * 2 * 2 * 8);
      assert_int_equal(stats_of(ld).absent_chunks, CHUNKS / 5);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      support_remove(root);
    }
}

/* ---- in the middle of things ---- */

static void test_end_anywhere(void **state) {
  (void)state;
  const char *root = support_path("end");
  struct support_array a = sharded;
  EACH_MODE (m)
    for (int zstd = 0; zstd < 2; zstd++) {
      a.zstd = zstd;
      support_make(root, &a);
      static const uint64_t inflight[] = {1, 2, 3, 4, 7, 32};
      /* inline: after each single turn of the loop; threaded: at random moments */
      for (int turns = 0; turns < 66; turns += getenv("TEST_VALGRIND") ? 13 : 1) {
        insitu_loader_desc d = all_at_once(root, m, 8);
        d.prefetch_depth = 2;
        d.hold_epoch = 0;
        d.block_chunks = 8;
        d.max_inflight = inflight[turns % 6];
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN),
                    *val = turns % 2 ? iter_or_fail(ld, INSITU_VAL) : NULL;
        insitu_batch *b = NULL;
        if (modes[m].inline_io)
          for (int k = 0; k < turns / 2; k++) insitu__reactor_run(&ld->reactor, 0);
        else
          for (volatile uint64_t spin = support_below(1u << turns % 18); spin; spin--) continue;
        if (turns % 3 == 1) insitu_iter_next(it, 0, &b, NULL);
        if (turns % 5 == 2) {
          assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)turns, NULL), INSITU_OK);
          insitu_batch *next;
          assert_int_equal(insitu_iter_next(it, 20000, &next, NULL), INSITU_OK);
          support_check_array(next, 0, &x_only, &a, 0);
          insitu_batch_release(&next);
        }
        if (turns % 7 == 3) insitu_iter_close(&it);
        if (turns % 4 == 1) insitu_iter_close(&val);
        if (turns % 11 == 4) insitu_loader_cancel(ld);
        if (val) {
          insitu_batch *next;
          insitu_status status = insitu_iter_next(val, 20000, &next, NULL);
          assert_int_equal(status, turns % 11 == 4 ? INSITU_CANCELLED : INSITU_OK);
          if (!status) support_check_array(next, 0, &x_only, &a, 0);
          insitu_batch_release(&next);
        }
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        insitu_iter_close(&val);
        if (b) support_check_array(b, 0, &x_only, &a, 0);
        insitu_batch_release(&b);
      }
      support_remove(root);
    }
}

/* ---- nothing is allocated once the rings are full ---- */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "allocations.h"
#include <dirent.h>

/* Inner chunks read by themselves, and shards decoded whole. */
static void test_no_allocation(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* a plain run counts the same */
  const char *root = support_path("allocation");
  const insitu_variable v[] = {
      {.label = "x"}, {.label = "next", .path = "x", .offset = 1, .dtype = INSITU_F64}};
  struct support_array a = sharded;
  a.zstd = true;
  a.shard[1] = 1;
  for (int whole = 0; whole < 2; whole++)
    EACH_MODE (m) {
      support_make(root, &a);
      if (whole) wrap(root, &a);
      insitu_loader_desc d = all_at_once(root, m, 8);
      d.variables = v;
      d.n_variables = 2;
      d.max_inflight = 5;
      d.block_chunks = 4;
      insitu_loader *ld = open_or_fail(&d);
      support_reserve(ld);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN);
      int before = 0;
      for (int e = 0; e < 24; e++) {
        if (e == 12) before = atomic_load(&allocations);
        epoch_or_fail(it, e ? NULL : &a);
      }
      assert_int_equal(atomic_load(&allocations) - before, 0);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
  support_remove(root);
}
#endif

/* Where the elements of an inner chunk go in a decoded shard: any shape, any order of its axes, any
 * element; element by element. */
static void place_slowly(
    const struct insitu__codec_shard *shard, const uint64_t *at, const uint8_t *cell, uint8_t *to) {
  uint64_t within[INSITU__MAX_DIMS];
  for (uint64_t i = 0; i < shard->inner_bytes / shard->item; i++) {
    uint64_t rest = i, flat = 0;
    for (unsigned k = shard->ndim; k-- > 0; rest /= shard->inner[shard->order[k]])
      within[shard->order[k]] = rest % shard->inner[shard->order[k]];
    for (unsigned k = 0; k < shard->ndim; k++) flat = flat * shard->chunk[k] + at[k] + within[k];
    const unsigned char *fill =
        shard->wide_fill ? shard->wide_fill + within[shard->ndim - 1] * shard->item : shard->fill;
    memcpy(to + flat * shard->item, cell ? cell + i * shard->item : fill, shard->item);
  }
}
static void test_place(void **state) {
  static const uint32_t items[] = {1, 2, 3, 4, 8, 16};
  (void)state;
  for (int round = 0; round < support_rounds(4000); round++) {
    struct insitu__codec_shard shard = {
        .ndim = (unsigned)support_below(5), .item = items[support_below(6)]};
    unsigned char wide[16 * 5];
    shard.bytes = shard.inner_bytes = shard.item;
    for (unsigned k = 0; k < shard.ndim; k++) {
      uint64_t swap = support_below(k + 1), n = 1 + support_below(3);
      shard.inner[k] = 1 + support_below(5);
      shard.chunk[k] = shard.inner[k] * n;
      shard.bytes *= shard.chunk[k];
      shard.inner_bytes *= shard.inner[k];
      shard.order[k] = k;
      if (round % 2) {
        shard.order[k] = shard.order[swap];
        shard.order[swap] = k;
      }
    }
    for (size_t i = 0; i < sizeof wide; i++) wide[i] = (unsigned char)support_random();
    memcpy(shard.fill, wide, sizeof shard.fill);
    /* along an axis within the elements, which is whole in every chunk, and stored fastest */
    bool along = shard.ndim && shard.order[shard.ndim - 1] == shard.ndim - 1;
    if (along && round % 3 == 0) shard.wide_fill = wide;
    uint8_t *cell = malloc(shard.inner_bytes), *filled = malloc(shard.inner_bytes),
            *got = malloc(shard.bytes), *want = malloc(shard.bytes);
    memset(got, 0xEE, shard.bytes);
    memset(want, 0xEE, shard.bytes);
    for (uint64_t i = 0; i < shard.inner_bytes; i++) cell[i] = (uint8_t)support_random();
    for (int k = 0; k < 3; k++) {
      uint64_t at[INSITU__MAX_DIMS];
      for (unsigned axis = 0; axis < shard.ndim; axis++)
        at[axis] = shard.inner[axis] * support_below(shard.chunk[axis] / shard.inner[axis]);
      if (k % 2) insitu__shard_fill(&shard, filled);
      insitu__shard_place(&shard, at, k % 2 ? filled : cell, got);
      place_slowly(&shard, at, k % 2 ? NULL : cell, want);
      assert_memory_equal(got, want, shard.bytes);
    }
    free(cell);
    free(filled);
    free(got);
    free(want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_metadata_refused),
    cmocka_unit_test(test_metadata),
    cmocka_unit_test(test_index),
    cmocka_unit_test(test_place),
    cmocka_unit_test(test_random_nests),
    cmocka_unit_test(test_whole_damaged),
    cmocka_unit_test(test_whole_and_parts),
    cmocka_unit_test(test_whole_absent),
    cmocka_unit_test(test_index_once),
    cmocka_unit_test(test_index_evicted),
    cmocka_unit_test(test_kept_open),
    cmocka_unit_test(test_held_stays),
    cmocka_unit_test(test_cache_memory),
    cmocka_unit_test(test_memory),
    cmocka_unit_test(test_index_damaged),
    cmocka_unit_test(test_merging),
    cmocka_unit_test(test_merging_in_a_bunch),
    cmocka_unit_test(test_merging_damaged),
    cmocka_unit_test(test_units_are_read_at_once),
    cmocka_unit_test(test_merging_many_rows),
    cmocka_unit_test(test_merging_any_order),
    cmocka_unit_test(test_overlapping),
    cmocka_unit_test(test_partial_rows),
    cmocka_unit_test(test_sharing),
    cmocka_unit_test(test_damage_stays),
    cmocka_unit_test(test_given_up_is_no_damage),
    cmocka_unit_test(test_shard_changes),
    cmocka_unit_test(test_nested_damaged),
    cmocka_unit_test(test_fill),
    cmocka_unit_test(test_end_anywhere),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    cmocka_unit_test(test_no_allocation),
#endif
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
