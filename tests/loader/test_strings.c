/* Elements that are no numbers: strings of any length through insitu_read_strings, S, U, raw bytes
 * and dates through insitu_read and batches too. The archives are built here, in memory. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static size_t vlen(unsigned char *to, const char *const *strings, uint32_t n) {
  size_t at = 4;
  memcpy(to, &n, 4);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t length = (uint32_t)strlen(strings[i]);
    memcpy(to + at, &length, 4);
    memcpy(to + at + 4, strings[i], length);
    at += 4 + length;
  }
  return at;
}
static void add_vlen(const char *key, const char *const *strings, uint32_t n, bool zstd) {
  unsigned char plain[4096], packed[8192];
  size_t bytes = vlen(plain, strings, n);
  if (!zstd) {
    archive_add(key, plain, bytes);
    return;
  }
  size_t got = ZSTD_compress(packed, sizeof packed, plain, bytes, 3);
  assert_false(ZSTD_isError(got));
  archive_add(key, packed, got);
}
static void strings_are(insitu_loader *ld, const char *path, const char *const *want, uint64_t n) {
  insitu_strings *s;
  insitu_error err = {0};
  if (insitu_read_strings(ld, path, &s, &err)) fail_msg("%s: %s", path, err.message);
  assert_int_equal(s->n, n);
  for (uint64_t i = 0; i < n; i++) {
    if (strcmp(s->text[i], want[i]) || s->bytes[i] != strlen(want[i]))
      fail_msg("%s[%ju]: '%s' (%ju bytes), not '%s'", path, (uintmax_t)i, s->text[i],
          (uintmax_t)s->bytes[i], want[i]);
  }
  insitu_strings_free(&s);
  assert_null(s);
}
static void strings_refused(
    insitu_loader *ld, const char *path, insitu_status want, const char *cause) {
  insitu_strings *s = (insitu_strings *)(uintptr_t)1;
  insitu_error err = {0};
  assert_int_equal(insitu_read_strings(ld, path, &s, &err), want);
  assert_null(s);
  if (!strstr(err.message, cause)) fail_msg("%s: '%s' lacks '%s'", path, err.message, cause);
}

/* ---- strings of any length ---- */
#define V2(shape, chunks, dtype, order, fill, compressor, filters)                                 \
  "{\"zarr_format\":2,\"shape\":" shape ",\"chunks\":" chunks ",\"dtype\":\"" dtype                \
  "\",\"order\":\"" order "\",\"fill_value\":" fill ",\"compressor\":" compressor                  \
  ",\"filters\":" filters "}"
#define UTF8 "[{\"id\":\"vlen-utf8\"}]"
#define ZSTD "{\"id\":\"zstd\",\"level\":1}"

static void any_length(void **state) {
  (void)state;
  archive_begin();
  archive_text(".zgroup", "{\"zarr_format\":2}");
  /* an edge chunk that hangs over, an absent one, a compressor behind the strings */
  archive_text("c/.zarray", V2("[3,3]", "[2,2]", "|O", "C", "\"f\\u00fcll\"", ZSTD, UTF8));
  add_vlen(
      "c/0.0", (const char *[]){"", "a", "\xce\xb1\xce\xb2", "long string with spaces"}, 4, true);
  add_vlen("c/0.1", (const char *[]){"x", "OVER", "y", "OVER"}, 4, true);
  add_vlen("c/1.1", (const char *[]){"last", "OVER", "OVER", "OVER"}, 4, true);
  static const char *const c[] = {"", "a", "x", "\xce\xb1\xce\xb2", "long string with spaces", "y",
      "f\xc3\xbcll", "f\xc3\xbcll", "last"};
  /* column-major; v2 writers give the fill value 0 */
  archive_text("f/.zarray", V2("[2,3]", "[2,3]", "|O", "F", "0", "null", UTF8));
  add_vlen("f/0.0", (const char *[]){"00", "10", "01", "11", "02", "12"}, 6, false);
  static const char *const f[] = {"00", "01", "02", "10", "11", "12"};
  archive_text("absent/.zarray", V2("[2]", "[2]", "|O", "C", "0", "null", UTF8));
  static const char *const empty[] = {"", ""};
  archive_text("scalar/.zarray", V2("[]", "[]", "|O", "C", "null", "null", UTF8));
  add_vlen("scalar/0", (const char *[]){"only"}, 1, false);
  archive_text(
      "json/.zarray", V2("[2,2]", "[2,2]", "|O", "C", "0", "null", "[{\"id\":\"json2\"}]"));
  archive_text("json/0.0", "[[\"a\",\"\\u00e9\"],[null,12.50],\"|O\",[2,2]]");
  static const char *const json[] = {"a", "\xc3\xa9", "null", "12.50"};
  archive_text("numbers/.zarray", V2("[2]", "[2]", "<f4", "C", "0", "null", "null"));
  EACH_MODE (m) {
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, m);
    strings_are(ld, "c", c, 9);
    strings_are(ld, "f", f, 6);
    strings_are(ld, "absent", empty, 2);
    strings_are(ld, "scalar", (const char *[]){"only"}, 1);
    strings_are(ld, "json", json, 4);
    strings_refused(ld, "numbers", INSITU_E_DTYPE, "insitu_read");
    strings_refused(ld, "nothing", INSITU_E_NOTFOUND, "nothing");
    insitu_loader_close(&ld);
    ld = archive_open((insitu_loader_desc){.on_absent_chunk = INSITU_RAISE}, m);
    strings_refused(ld, "absent", INSITU_E_ABSENT, "on_absent_chunk");
    strings_refused(ld, "c", INSITU_E_ABSENT, "1.0");
    insitu_loader_close(&ld);
  }
}

/* What is a fill value in base64, what is nested lists whatever the order, and zeros inside
 * strings. */
static void as_numcodecs_has_them(void **state) {
  (void)state;
  archive_begin();
  archive_text(".zgroup", "{\"zarr_format\":2}");
  archive_text(
      "b/.zarray", V2("[2]", "[2]", "|O", "C", "\"YWIA\"", "null", "[{\"id\":\"vlen-bytes\"}]"));
  archive_text(
      "none/.zarray", V2("[2]", "[2]", "|O", "C", "\"\"", "null", "[{\"id\":\"vlen-bytes\"}]"));
  archive_text(
      "bad/.zarray", V2("[2]", "[2]", "|O", "C", "\"abc\"", "null", "[{\"id\":\"vlen-bytes\"}]"));
  archive_text("text/.zarray", V2("[2]", "[2]", "|O", "C", "\"a\\u0000b\"", "null", UTF8));
  archive_text("f/.zarray", V2("[2,3]", "[2,3]", "|O", "F", "0", "null", "[{\"id\":\"json2\"}]"));
  archive_text("f/0.0", "[[\"00\",\"01\",\"02\"],[\"10\",\"11\",\"12\"],\"|O\",[2,3]]");
  archive_text("zero/.zarray", V2("[1]", "[1]", "|O", "C", "0", "null", "[{\"id\":\"json2\"}]"));
  archive_text("zero/0", "[\"a\\u0000b\",\"|O\",[1]]");
  static const struct {
    const char *path, *bytes;
    uint64_t n;
  } has[] = {{"b", "ab\0", 3}, {"none", "", 0}, {"text", "a\0b", 3}, {"zero", "a\0b", 3}};
  EACH_MODE (m) {
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, m);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++) {
      insitu_strings *s;
      insitu_error err = {0};
      if (insitu_read_strings(ld, has[i].path, &s, &err))
        fail_msg("%s: %s", has[i].path, err.message);
      if (s->bytes[s->n - 1] != has[i].n || memcmp(s->text[s->n - 1], has[i].bytes, has[i].n + 1))
        fail_msg(
            "%s: '%s' (%ju bytes)", has[i].path, s->text[s->n - 1], (uintmax_t)s->bytes[s->n - 1]);
      insitu_strings_free(&s);
    }
    strings_are(ld, "f", (const char *[]){"00", "01", "02", "10", "11", "12"}, 6);
    strings_refused(ld, "bad", INSITU_E_FORMAT, "fill_value");
    insitu_loader_close(&ld);
  }
}

/* Shards of strings, one inside the other, with an index at the start and absent inner chunks. */
static size_t shard(unsigned char *to, const unsigned char *const *inner, const size_t *bytes,
    unsigned n, bool first) {
  size_t at = first ? 16 * n + 4 : 0;
  unsigned char index[16 * 8 + 4] = {0};
  for (unsigned i = 0; i < n; i++) {
    uint64_t entry[2] = {inner[i] ? at : UINT64_MAX, inner[i] ? bytes[i] : UINT64_MAX};
    memcpy(index + 16 * i, entry, 16);
    if (inner[i]) memcpy(to + at, inner[i], bytes[i]), at += bytes[i];
  }
  uint32_t crc = support_crc32c(index, 16 * n);
  memcpy(index + 16 * n, &crc, 4);
  memcpy(first ? to : to + at, index, 16 * n + 4);
  return first ? at : at + 16 * n + 4;
}
#define INDEX                                                                                      \
  "\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}},{\"name\":"    \
  "\"crc32c\"}]"
static void sharded(void **state) {
  unsigned char a[256], b[256], c[256], inner[1024], outer[4096];
  (void)state;
  archive_begin();
  archive_text("zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[7],\"data_type\":\"string\",\"fill_"
      "value\":\"none\","
      "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[8]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"sharding_indexed\","
      "\"configuration\":{"
      "\"chunk_shape\":[4],\"index_location\":\"start\"," INDEX
      ",\"codecs\":[{\"name\":\"sharding_indexed\",\"configuration\":{"
      "\"chunk_shape\":[2]," INDEX
      ",\"codecs\":[{\"name\":\"vlen-utf8\"},{\"name\":\"zstd\"}]}}]}}]}");
  size_t n[2], whole[2];
  n[0] = ZSTD_compress(c, sizeof c, a, vlen(a, (const char *[]){"0", "1"}, 2), 1);
  whole[0] = shard(inner, (const unsigned char *[]){c, NULL}, n, 2, false);
  unsigned char second[1024];
  n[0] = ZSTD_compress(c, sizeof c, a, vlen(a, (const char *[]){"4", "5"}, 2), 1);
  n[1] = ZSTD_compress(b, sizeof b, a, vlen(a, (const char *[]){"6", "OVER"}, 2), 1);
  whole[1] = shard(second, (const unsigned char *[]){c, b}, n, 2, false);
  size_t all = shard(outer, (const unsigned char *[]){inner, second}, whole, 2, true);
  archive_add("c/0", outer, all);
  static const char *const want[] = {"0", "1", "none", "none", "4", "5", "6"};
  EACH_MODE (m) {
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, m);
    insitu_stats before, after;
    assert_int_equal(insitu_loader_stats(ld, &before, NULL), INSITU_OK);
    strings_are(ld, "", want, 7);
    assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
    assert_int_equal(after.absent_chunks - before.absent_chunks, 1);
    insitu_loader_close(&ld);
    ld = archive_open((insitu_loader_desc){.on_absent_chunk = INSITU_RAISE}, m);
    strings_refused(ld, "", INSITU_E_ABSENT, "an inner chunk of this shard is absent");
    insitu_loader_close(&ld);
  }
  /* cut short anywhere: never a wrong string, never a crash */
  for (size_t cut = 0; cut < all; cut++) {
    archive_objects[archive_n - 1].n = cut;
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
    strings_refused(ld, "", INSITU_E_CORRUPT, "c/0");
    insitu_loader_close(&ld);
  }
}

/* What is inside a shard with codecs around it cannot be told apart from damage: refused by name.
 */
static void shard_with_codecs_around(void **state) {
  (void)state;
  archive_begin();
  archive_text("zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"string\",\"fill_"
      "value\":\"\","
      "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[4]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"sharding_indexed\","
      "\"configuration\":{"
      "\"chunk_shape\":[2]," INDEX
      ",\"codecs\":[{\"name\":\"vlen-utf8\"}]}},{\"name\":\"zstd\"}]}");
  insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
  strings_refused(ld, "", INSITU_E_CODEC, "inside another codec");
  insitu_loader_close(&ld);
}

static insitu_status cancel_and_fail(void *user, const char *config, const void *src, uint64_t n,
    void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  (void)config, (void)src, (void)n, (void)dst, (void)cap, (void)got, (void)err;
  insitu_loader_cancel(*(insitu_loader **)user); /* as a signal handler may */
  return INSITU_E_CORRUPT;
}
static void cancelled(void **state) {
  insitu_loader *ld;
  insitu_strings *s;
  insitu_error err = {0};
  insitu_codec codec = {.name = "mine", .decode = cancel_and_fail, .user = &ld};
  (void)state;
  archive_begin();
  archive_text(".zarray", V2("[1]", "[1]", "|O", "C", "0", "{\"id\":\"mine\"}", UTF8));
  archive_text("0", "x");
  ld = archive_open((insitu_loader_desc){.codecs = &codec, .n_codecs = 1}, EPOLL);
  /* the error that err tells of */
  assert_int_equal(insitu_read_strings(ld, "", &s, &err), INSITU_E_CORRUPT);
  assert_int_equal(err.status, INSITU_E_CORRUPT);
  memset(&err, 0, sizeof err);
  assert_int_equal(insitu_read_strings(ld, "", &s, &err), INSITU_CANCELLED);
  assert_int_equal(err.status, 0);
  insitu_loader_close(&ld);
}

static void damage(void **state) {
  unsigned char bytes[256];
  (void)state;
  size_t n = vlen(bytes, (const char *[]){"abc", "", "\xc3\xa9"}, 3);
  for (size_t cut = 0; cut < n + 4; cut++) { /* too short, too long */
    archive_begin();
    archive_text(".zarray", V2("[3]", "[3]", "|O", "C", "0", "null", UTF8));
    archive_add("0", bytes, cut);
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
    if (cut == n) strings_are(ld, "", (const char *[]){"abc", "", "\xc3\xa9"}, 3);
    else
      strings_refused(ld, "", INSITU_E_CORRUPT,
          cut < 4   ? "0 strings"
          : cut < n ? "outside"
                    : "after the last");
    insitu_loader_close(&ld);
  }
  static const char *const json[] = {"", "{}", "[]", "[\"|O\"]", "[\"a\",\"|O\",[3]]",
      "[\"a\",\"b\",\"c\",\"d\",\"|O\",[4]]", "[\"a\",\"b\",{\"c\":1},\"|O\",[3]]",
      "[\"a\",\"b\",\"c\",\"|O\",[3]"};
  for (size_t i = 0; i < sizeof json / sizeof *json; i++) {
    archive_begin();
    archive_text(".zarray", V2("[3]", "[3]", "|O", "C", "0", "null", "[{\"id\":\"json2\"}]"));
    archive_text("0", json[i]);
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
    insitu_strings *s;
    insitu_status status = insitu_read_strings(ld, "", &s, NULL);
    if (status != INSITU_E_CORRUPT && status != INSITU_E_JSON)
      fail_msg("'%s' gave %d", json[i], status);
    insitu_loader_close(&ld);
  }
  /* a bomb: far more than a chunk of strings may have */
  static char zeros[1 << 20];
  size_t cap = ZSTD_compressBound(sizeof zeros), got = 0;
  unsigned char *bomb = malloc(cap), *many = malloc(80 * 4096);
  size_t one = ZSTD_compress(bomb, cap, zeros, sizeof zeros, 3);
  for (int i = 0; i < 80; i++, got += one) memcpy(many + got, bomb, one);
  archive_begin();
  archive_text(".zarray", V2("[3]", "[3]", "|O", "C", "0", ZSTD, UTF8));
  archive_add("0", many, got);
  insitu_loader *ld = archive_open((insitu_loader_desc){0}, EPOLL);
  strings_refused(ld, "", INSITU_E_CORRUPT, "zstd");
  insitu_loader_close(&ld);
  free(bomb);
  free(many);
}

/* ---- elements of fixed size: an axis inside, told last ---- */

static void fixed(void **state) {
  static const uint32_t u[2][3] = {/* big-endian: a; U+20AC U+1F600 b */
      {0x61000000, 0, 0}, {0xac200000, 0x00f60100, 0x62000000}};
  static const char s[] = "ab\0c\0\0xyz"; /* "ab", "c", "xyz" */
  (void)state;
  archive_begin();
  archive_text(".zgroup", "{\"zarr_format\":2}");
  archive_text("u/.zarray", V2("[4]", "[2]", ">U3", "C", "\"\\u00e9!\"", "null", "null"));
  archive_add("u/0", u, sizeof u);
  archive_text("s/.zarray", V2("[3]", "[3]", "|S3", "C", "\"\"", "null", "null"));
  archive_add("s/0", s, 9);
  archive_text("v/.zarray", V2("[2,2]", "[2,1]", "|V3", "F", "\"AQID\"", "null", "null"));
  archive_add("v/0.0", "\0\1\2\3\4\5", 6);
  archive_text("t/.zarray", V2("[2]", "[2]", ">M8[h]", "C", "\"NaT\"", "null", "null"));
  archive_add("t/0", "\0\0\0\0\0\0\1\2\x80\0\0\0\0\0\0\0", 16);
  EACH_MODE (m) {
    insitu_loader *ld = archive_open((insitu_loader_desc){0}, m);
    insitu_shape shape;
    insitu_error err = {0};
    uint32_t code[12];
    unsigned char raw[12];
    int64_t dates[2];
    strings_are(ld, "u",
        (const char *[]){"a",
            "\xe2\x82\xac\xf0\x9f\x98\x80"
            "b",
            "\xc3\xa9!", "\xc3\xa9!"},
        4);
    strings_are(ld, "s", (const char *[]){"ab", "c", "xyz"}, 3);
    assert_int_equal(
        insitu_read(ld, &(insitu_variable){.path = "u"}, code, sizeof code, &shape, &err),
        INSITU_OK);
    assert_true(
        shape.ndim == 2 && shape.dtype == INSITU_U32 && shape.shape[0] == 4 && shape.shape[1] == 3);
    static const uint32_t want[] = {
        0x61, 0, 0, 0x20ac, 0x1f600, 0x62, 0xe9, 0x21, 0, 0xe9, 0x21, 0};
    assert_memory_equal(code, want, sizeof want);
    assert_int_equal(
        insitu_read(ld, &(insitu_variable){.path = "v"}, raw, sizeof raw, &shape, &err), INSITU_OK);
    assert_true(shape.ndim == 3 && shape.dtype == INSITU_U8 && shape.shape[2] == 3);
    assert_memory_equal(raw, "\0\1\2\1\2\3\3\4\5\1\2\3", 12);
    assert_int_equal(
        insitu_read(ld, &(insitu_variable){.path = "t"}, dates, sizeof dates, &shape, &err),
        INSITU_OK);
    assert_true(shape.dtype == INSITU_I64 && dates[0] == 258 && dates[1] == INT64_MIN);
    /* the axis inside is nobody's to name, and characters are not converted */
    assert_int_equal(
        insitu_read(ld,
            &(insitu_variable){
                .path = "u", .slices = &(insitu_slice){.axis = 1, .stop = 1}, .n_slices = 1},
            code, sizeof code, NULL, &err),
        INSITU_E_SHAPE);
    memset(&err, 0, sizeof err);
    assert_int_equal(insitu_read(ld, &(insitu_variable){.path = "s", .dtype = INSITU_F32}, code,
                         sizeof code, NULL, &err),
        INSITU_E_DTYPE);
    insitu_loader_close(&ld);
  }
}

/* Batches of them, checked by the loader's slow path too; a shard with a checksum around it is
 * decoded whole, with its fill. */
static void batches(void **state) {
  unsigned char bytes[4][6] = {"abcdef", "ghijkl", "mnopqr", "stuvwx"}, packed[256];
  (void)state;
  archive_begin();
  archive_text("zarr.json", "{\"zarr_format\":3,\"node_type\":\"group\"}");
  archive_text("r/zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[12,2],\"data_type\":\"r24\",\"fill_"
      "value\":[1,2,3],"
      "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[4,2]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\"},\"codecs\":[{\"name\":\"sharding_indexed\","
      "\"configuration\":{"
      "\"chunk_shape\":[1,2]," INDEX
      ",\"codecs\":[{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}},\"bytes\"]}},"
      "{\"name\":\"crc32c\"}]}");
  size_t n = shard(packed, (const unsigned char *[]){bytes[0], NULL, bytes[2], bytes[3]},
      (size_t[]){6, 6, 6, 6}, 4, false);
  uint32_t crc = support_crc32c(packed, n);
  memcpy(packed + n, &crc, 4);
  archive_add("r/c/0/0", packed, n + 4);
  archive_add("r/c/2/0", packed, n + 4);
  EACH_MODE (m) {
    insitu_variable v = {.label = "r"};
    insitu_loader *ld = archive_open(
        (insitu_loader_desc){.variables = &v, .n_variables = 1, .batch_size = 4, .check = 1}, m);
    insitu_iter *it = NULL;
    insitu_batch *b;
    insitu_error err = {0};
    if (insitu_iter_open(
            ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err))
      fail_msg("%s", err.message);
    for (int i = 0; i < 3; i++) {
      if (insitu_iter_next(it, INSITU_FOREVER, &b, &err)) fail_msg("%s", err.message);
      const insitu_array *a = &b->arrays[0];
      assert_true(a->ndim == 3 && a->shape[1] == 2 && a->shape[2] == 3 && a->dtype == INSITU_U8);
      assert_memory_equal(a->data,
          i == 1 ? "\1\2\3\1\2\3\1\2\3\1\2\3\1\2\3\1\2\3\1\2\3\1\2\3"
                 : "abcdef\1\2\3\1\2\3mnopqrstuvwx",
          24);
      insitu_batch_release(&b);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  /* strings of any length are refused by name */
  archive_begin();
  archive_text("s/.zarray", V2("[3]", "[3]", "|O", "C", "0", "null", UTF8));
  insitu_variable v = {.label = "s"};
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://",
      .objects = archive_objects,
      .n_objects = archive_n,
      .variables = &v,
      .n_variables = 1};
  insitu_loader *ld;
  insitu_error err = {0};
  assert_int_equal(insitu_loader_open(&desc, &ld, &err), INSITU_E_DTYPE);
  assert_non_null(strstr(err.message, "insitu_read_strings"));
}

/* What zarr-python 2 and 3 wrote (tests/data/make_stores.py): the same six elements of each kind.
 */
static void written_by_others(void **state) {
  static const char *const text[] = {"", "a", "b\xc3\xa9", "\xe4\xb8\x96\xe7\x95\x8c",
      "\xf0\x9f\x9a\x80\xf0\x9f\x8e\x89", "hello"};
  static const char *const ascii[] = {"", "a", "bc", "d", "\xff\x80", "hello"};
  static const int64_t dates[] = {0, 1, -1, 900000, INT64_MIN, 5};
  static const struct {
    const char *path;
    const char *const *want;
  } arrays[] = {{"s", ascii}, {"u", text}, {"u_big", text}, {"vlen", text}, {"vlen_shards", text},
      {"json", text}, {"bytes", ascii}, {"date", NULL}, {"difference", NULL}};
  (void)state;
  for (int v = 2; v <= 3; v++)
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
      char url[300];
      insitu_loader *ld;
      insitu_error err = {0};
      int64_t got[6];
      const char *path = arrays[i].path;
      if (!strcmp(path, v == 2 ? "vlen_shards" : "u_big") || (v == 3 && !strcmp(path, "json")))
        continue;
      snprintf(url, sizeof url, "%s/stores/elements.v%d.zarr", TEST_DATA, v);
      if (insitu_loader_open(
              &(insitu_loader_desc){.api = INSITU_API, .url = url, .plan_only = 1}, &ld, &err))
        fail_msg("%s", err.message);
      if (arrays[i].want) strings_are(ld, path, arrays[i].want, 6);
      else if (insitu_read(ld, &(insitu_variable){.path = path}, got, sizeof got, NULL, &err))
        fail_msg("%s", err.message);
      else assert_memory_equal(got, dates, sizeof got);
      unsigned char raw[30];
      assert_int_equal(
          insitu_read(ld, &(insitu_variable){.path = "raw"}, raw, sizeof raw, NULL, &err),
          INSITU_OK);
      for (int k = 0; k < 6; k++) assert_int_equal(strncmp((char *)raw + 5 * k, ascii[k], 5), 0);
      insitu_loader_close(&ld);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_length),
      cmocka_unit_test(as_numcodecs_has_them), cmocka_unit_test(sharded), cmocka_unit_test(damage),
      cmocka_unit_test(shard_with_codecs_around), cmocka_unit_test(cancelled),
      cmocka_unit_test(fixed), cmocka_unit_test(batches), cmocka_unit_test(written_by_others)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
