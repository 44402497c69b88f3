/* Filters, and the codecs of examples/08_extension_codecs.c: what numcodecs and the specifications
 * say they decode to (make_codec_fixtures.py), every way of delivery, whole archives in both
 * formats, refusals by name, and desc.codecs. */
#include <stdlib.h>
static _Atomic int allocations; /* counts calls, to show that a reserved scratch is enough */
#define INSITU_REALLOC(pointer, bytes) ((void)allocations++, realloc(pointer, bytes))
#define INSITU_FREE(pointer) free(pointer)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "examples/08_extension_codecs.c"
#include "support.h"
#include "modes.h"
#define SINK_HOLDS assert_true
#include "sink.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static struct insitu__codec_scratch scratch;
static struct insitu__chain_hooks extensions = {.codec = extension_codecs, .n = EXTENSION_CODECS};
static insitu_status run(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    struct dest *d, insitu_error *err) {
  return sink_decode(chain, &scratch, src, n, d, err);
}
/* Bytes equal; or, of a float type, both not a number where the reference is none: which one it is
 * is not specified. */
static void same(const uint8_t *got, const uint8_t *want, uint64_t n, struct insitu__codec_type t,
    const char *what) {
  uint64_t size = insitu__codec_type_size(t);
  for (uint64_t i = 0; i < n; i += size ? size : 1) {
    if (!memcmp(got + i, want + i, size ? size : 1)) continue;
    union insitu__filter_block a, b;
    if (insitu__dtype_is_float(t.dtype)) {
      insitu__filter_load(t, got + i, 1, &a), insitu__filter_load(t, want + i, 1, &b);
      double x = t.dtype == INSITU_F64 ? a.d[0] : (double)a.f[0],
             y = t.dtype == INSITU_F64 ? b.d[0] : (double)b.f[0];
      if (x != x && y != y) continue;
    }
    fail_msg("byte %d is %02x, not %02x: %s", (int)i, got[i], want[i], what);
  }
}
static void expect(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    const uint8_t *want, uint64_t decoded, const char *what) {
  struct insitu__codec_type t =
      chain->n ? chain->codec[chain->n - 1].to : (struct insitu__codec_type){0, false};
  for (int mode = 0; mode < DELIVERIES; mode++)
    for (uint32_t element = 1; element <= 16; element = element * 2 + (element == 2)) {
      insitu_error err = {0};
      struct dest d = {.out = malloc(decoded + 1),
          .decoded = decoded,
          .element = element,
          .mode = mode,
          .row = 5u * element};
      insitu_status status = run(chain, src, n, &d, &err);
      if (status < 0) fail_msg("%s: %s", what, err.message);
      assert_true(d.next == decoded);
      same(d.out, want, decoded, t, what);
      assert_true(mode != WHOLE || d.pieces == 0);
      free(d.out);
    }
}
static insitu_status refuse(const struct insitu__codec_chain *chain, const void *src, uint64_t n,
    uint64_t decoded, insitu_error *err) {
  insitu_error own = {0};
  struct dest d = {.out = malloc(decoded + 1),
      .decoded = decoded,
      .element = 1,
      .mode = (int)support_below(DELIVERIES),
      .row = 64};
  insitu_status status = run(chain, src, n, &d, err ? err : &own);
  assert_true(status == INSITU_OK || (err ? err : &own)->message[0]);
  free(d.out);
  return status;
}

/* ---- fixtures ---- */
static uint8_t *unhex(const struct insitu__text_json *j, int token, uint64_t *n) {
  const char *text = insitu__text_json_span(j, token, n);
  assert_true(*n >= 2);
  *n = (*n - 2) / 2;
  uint8_t *bytes = malloc((size_t)*n + 1);
  for (uint64_t i = 0; i < *n; i++)
    bytes[i] =
        (uint8_t)(insitu__text_hex(text[1 + 2 * i]) << 4 | insitu__text_hex(text[2 + 2 * i]));
  return bytes;
}
/* Decodes a fixture by the built-in codec or, own, by that of the example; false: there is none. */
static bool fixture(const char *line, uint64_t length, bool own, uint64_t *format) {
  struct insitu__text_json j;
  struct insitu__filter_context at = {.format = 2};
  struct insitu__codec_chain chain = {.n = 1};
  struct insitu__codec *codec = &chain.codec[0];
  insitu_error err = {0};
  char type[16];
  uint64_t n, decoded;
  bool found = own;
  assert_int_equal(insitu__text_json_parse(&j, line, length, "filters.jsonl", NULL), INSITU_OK);
  assert_true(insitu__text_json_u64(&j, insitu__text_json_get(&j, 0, "format"), format));
  if (*format == 3) {
    assert_true(
        insitu__text_json_string(&j, insitu__text_json_get(&j, 0, "type"), type, sizeof type) > 0);
    at = (struct insitu__filter_context){.format = 3, .array = true};
    assert_true(insitu__filter_type_parse(type, &at.type));
  }
  int token = insitu__text_json_get(&j, 0, "codec");
  insitu_status status =
      own ? insitu__chain_find_user(&extensions, &j, token, &at, codec, &found, &err)
          : insitu__chain_read(&j, token, &at, codec, &err);
  if ((own && !found) || (status && strstr(err.message, "08_extension_codecs.c"))) {
    insitu__text_json_free(&j);
    return false;
  }
  if (status) fail_msg("%.*s: %s", (int)length, line, err.message);
  int want_token = insitu__text_json_get(&j, 0, "decoded");
  uint8_t *src = unhex(&j, insitu__text_json_get(&j, 0, "encoded"), &n);
  if (insitu__codec_is_identity(codec)) chain.n = 0;
  if (insitu__text_json_is_null(&j, want_token)) {
    decoded = n / insitu__codec_type_size(codec->from) * insitu__codec_type_size(codec->to);
    if (refuse(&chain, src, n, decoded, NULL) != INSITU_E_CORRUPT)
      fail_msg("decoded: %.*s", (int)length, line);
  } else {
    uint8_t *want = unhex(&j, want_token, &decoded);
    uint64_t bound = insitu__chain_bound(&chain, decoded);
    /* no slack: scratch and buffers are exact */
    assert_true(codec->kind == INSITU__CODEC_USER && !codec->from.dtype ? bound > n : bound == n);
    expect(&chain, src, n, want, decoded, line);
    if (n) assert_int_equal(refuse(&chain, src, n - 1, decoded, NULL), INSITU_E_CORRUPT);
    uint8_t *more = calloc(1, n + 1);
    memcpy(more, src, n);
    assert_int_equal(refuse(&chain, more, n + 1, decoded, NULL), INSITU_E_CORRUPT);
    /* else the padding may be elements */
    bool told = !strstr(line, "\"packbits\"") || *format == 2 || strstr(line, "_byte\"");
    if (told) assert_int_equal(refuse(&chain, src, n, decoded + 1, NULL), INSITU_E_CORRUPT);
    if (told && decoded)
      assert_int_equal(refuse(&chain, src, n, decoded - 1, NULL), INSITU_E_CORRUPT);
    free(more);
    free(want);
  }
  free(src);
  insitu__codec_free(codec);
  insitu__text_json_free(&j);
  return true;
}
static void fixtures(void **state) {
  (void)state;
  int n_of[2][4] = {{0}}; /* built in, of the example; by format */
  FILE *f = fopen(TEST_DATA "/codec/filters.jsonl", "r");
  char *line = NULL;
  size_t cap = 0;
  assert_non_null(f);
  for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
    line[n - 1] = 0;
    int ways = 0;
    for (int own = 0; own < 2; own++) {
      uint64_t format;
      bool is = fixture(line, (uint64_t)n - 1, own, &format);
      n_of[own][format] += is;
      ways += is;
    }
    assert_true(ways);
  }
  free(line);
  fclose(f);
  assert_true(n_of[0][2] > 250 && n_of[1][2] > 5 && n_of[0][3] > 2 && n_of[1][3] > 200);
}

/* ---- archives in memory ---- */
static insitu_loader_desc memory(const insitu_object *objects, uint64_t n) {
  return (insitu_loader_desc){
      .api = INSITU_API, .url = "memory://x", .objects = objects, .n_objects = n, .plan_only = 1};
}
static const insitu_variable root = {.label = "x", .path = ""};
static insitu_status read_root(
    const insitu_loader_desc *d, void *to, uint64_t bytes, insitu_error *err) {
  insitu_loader *ld;
  insitu_status status = insitu_loader_open(d, &ld, err);
  if (status == INSITU_OK) status = insitu_read(ld, &root, to, bytes, NULL, err);
  insitu_loader_close(&ld);
  return status;
}

/* ---- chains of filters and transposes, encoded here step by step ---- */
struct grid {     /* an array whose elements are of a signed type */
  int ndim, size; /* bytes of an element */
  uint64_t shape[3], n;
  int64_t v[512];
};
static uint64_t strides(const struct grid *g, uint64_t *stride) {
  uint64_t n = 1;
  for (int d = g->ndim - 1; d >= 0; d--) stride[d] = n, n *= g->shape[d];
  return n;
}
/* The box of `shape` at `from`; permuted: axis k of it is axis order[k] of g. */
static struct grid cut(
    const struct grid *g, const uint64_t *from, const uint64_t *shape, const int *order) {
  struct grid out = {.ndim = g->ndim, .size = g->size, .n = 1};
  uint64_t stride[3];
  strides(g, stride);
  for (int k = 0; k < g->ndim; k++) out.n *= out.shape[k] = shape[order[k]];
  for (uint64_t i = 0; i < out.n; i++) {
    uint64_t rest = i, at = 0;
    for (int k = out.ndim - 1; k >= 0; k--) {
      at += (from[order[k]] + rest % out.shape[k]) * stride[order[k]];
      rest /= out.shape[k];
    }
    out.v[i] = g->v[at];
  }
  return out;
}
struct op {
  /* 'T' transpose, 'D' delta, 'A' astype, 'C' cast_value, 'S' scale_offset, 'B' bitround */
  int kind;
  int order[3], size;
  bool big, big_to; /* format 2: of what it makes, of what it is given */
};
static void apply(struct grid *g, const struct op *op) {
  static const uint64_t zero[3];
  if (op->kind == 'T') *g = cut(g, zero, g->shape, op->order);
  for (uint64_t i = g->n; op->kind == 'D' && i-- > 1;) g->v[i] -= g->v[i - 1];
  for (uint64_t i = 0; op->kind == 'S' && i < g->n; i++) g->v[i] = (g->v[i] - 3) * 2;
  if (op->kind == 'A' || op->kind == 'C') g->size = op->size;
}
static size_t serialise(const struct grid *g, bool big, uint8_t *to) {
  for (uint64_t i = 0; i < g->n; i++)
    for (int b = 0; b < g->size; b++)
      to[i * (uint64_t)g->size + (uint64_t)b] =
          (uint8_t)(g->v[i] >> 8 * (big ? g->size - 1 - b : b));
  return g->n * (size_t)g->size;
}
/* One to `most` random steps for an array that g is like; writes their JSON, each with a comma
 * behind it. */
static int random_ops(struct op *op, int most, const struct grid *g, int format, bool ordered,
    int *size, char *json) {
  int n = (int)support_below((uint64_t)most + 1);
  for (int i = 0; i < n; i++) {
    char kind = format == 2 ? "DA"[support_below(2)] : "TTDDACSB"[support_below(8)];
    if (kind == 'D' && !ordered) kind = 'T';
    op[i] = (struct op){.kind = kind, .order = {0, 1, 2}, .size = *size};
    if (kind == 'T')
      for (int k = g->ndim - 1; k > 0; k--) {
        int j = (int)support_below((uint64_t)k + 1), t = op[i].order[k];
        op[i].order[k] = op[i].order[j], op[i].order[j] = t;
      }
    if ((kind == 'A' || kind == 'C') && *size < 8) op[i].size = *size * 2;
    if (format == 2) {
      op[i].big = support_below(2), op[i].big_to = support_below(2);
      if (i > 0) op[i].big_to = op[i - 1].big;
      if (kind == 'D')
        json += sprintf(json, "{\"id\":\"delta\",\"dtype\":\"%ci%d\",\"astype\":\"%ci%d\"},",
            "<>"[op[i].big_to], *size, "<>"[op[i].big], *size);
      else
        json += sprintf(json,
            "{\"id\":\"astype\",\"decode_dtype\":\"%ci%d\",\"encode_dtype\":\"%ci%d\"},",
            "<>"[op[i].big_to], *size, "<>"[op[i].big], op[i].size);
    } else if (kind == 'T') {
      json += sprintf(json, "{\"name\":\"transpose\",\"configuration\":{\"order\":[");
      for (int k = 0; k < g->ndim; k++) json += sprintf(json, "%s%d", k ? "," : "", op[i].order[k]);
      json += sprintf(json, "]}},");
    } else if (kind == 'D')
      json += sprintf(
          json, "{\"name\":\"numcodecs.delta\",\"configuration\":{\"dtype\":\"<i%d\"}},", *size);
    else if (kind == 'A')
      json += sprintf(json,
          "{\"name\":\"numcodecs.astype\",\"configuration\":{\"decode_dtype\":\"int%d\",\"encode_"
          "dtype\":\"i%d\"}},",
          *size * 8, op[i].size);
    else if (kind == 'C')
      json += sprintf(json,
          "{\"name\":\"cast_value\",\"configuration\":{\"data_type\":\"int%d\"}},", op[i].size * 8);
    else if (kind == 'S')
      json += sprintf(
          json, "{\"name\":\"scale_offset\",\"configuration\":{\"offset\":3,\"scale\":2}},");
    else json += sprintf(json, "{\"name\":\"bitround\",\"configuration\":{\"keepbits\":3}},");
    *size = op[i].size;
  }
  *json = 0;
  return n;
}
static struct grid random_grid(int *ndim) {
  struct grid g = {.ndim = *ndim = 1 + (int)support_below(3), .size = 2, .n = 1};
  for (int d = 0; d < g.ndim; d++) g.n *= g.shape[d] = 1 + support_below(8);
  for (uint64_t i = 0; i < g.n; i++) g.v[i] = (int64_t)support_below(900);
  return g;
}
static size_t pack(uint8_t *to, const uint8_t *from, size_t n, bool zstd) {
  if (zstd) return ZSTD_compress(to, 40000, from, n, 1);
  memcpy(to, from, n);
  return n;
}
static void check_root(const char *key, const char *meta, const char *chunk_key,
    const uint8_t *chunk, size_t n, const struct grid *g) {
  insitu_object objects[] = {{key, meta, strlen(meta)}, {chunk_key, chunk, n}};
  insitu_loader_desc d = memory(objects, 2);
  insitu_error err = {0};
  int16_t got[512];
  d.codecs = extension_codecs, d.n_codecs = EXTENSION_CODECS;
  if (read_root(&d, got, sizeof got, &err)) fail_msg("%s\n%s", meta, err.message);
  for (uint64_t i = 0; i < g->n; i++)
    if (got[i] != g->v[i])
      fail_msg("element %d is %d, not %d: %s", (int)i, got[i], (int)g->v[i], meta);
}
static const char *const chunk_keys[4][2] = {
    {NULL, NULL}, {"0", "c/0"}, {"0.0", "c/0/0"}, {"0.0.0", "c/0/0/0"}};

static void chains_v2(void **state) {
  static uint8_t raw[4096], packed[40000];
  (void)state;
  for (int round = 0; round < 400; round++) {
    struct op op[4];
    char json[2000], meta[3000], shape[100];
    int ndim, size = 2, order[3];
    struct grid g = random_grid(&ndim), e = g;
    int n = random_ops(op, 4, &g, 2, true, &size, json);
    bool fortran = support_below(2), zstd = support_below(2), inside = support_below(2),
         big = support_below(2);
    for (int k = 0; k < ndim; k++) order[k] = fortran ? ndim - 1 - k : k;
    e = cut(&e, (uint64_t[3]){0}, g.shape, order);
    for (int i = 0; i < n; i++) apply(&e, &op[i]);
    size_t bytes = pack(packed, raw, serialise(&e, n ? op[n - 1].big : big, raw), zstd);
    char own = "<>"[n ? op[0].big_to : big]; /* as its first filter leaves it */
    if (json[0]) json[strlen(json) - 1] = 0;
    snprintf(meta, sizeof meta,
        "{\"zarr_format\":2,\"shape\":%s,\"chunks\":%s,\"dtype\":\"%ci2\",\"order\":\"%s\",\"fill_"
        "value\":0,\"filters\":[%s%s%s],"
        "\"compressor\":%s}",
        support_list(shape, ndim, g.shape), shape, own, fortran ? "F" : "C", json,
        json[0] && zstd && inside ? "," : "", zstd && inside ? "{\"id\":\"zstd\"}" : "",
        zstd && !inside ? "{\"id\":\"zstd\"}" : "null");
    check_root(".zarray", meta, chunk_keys[ndim][0], packed, bytes, &g);
  }
}

static void chains_v3(void **state) {
  static uint8_t raw[4096], packed[40000], shard[80000];
  (void)state;
  for (int round = 0; round < 1500; round++) {
    struct op outer[4], op[6];
    char before[2000], json[2000], meta[10000], shape[100], cell[100];
    int ndim, size = 2, straight[3] = {0, 1, 2};
    bool sharded = support_below(3) == 0, zstd = support_below(2), big = support_below(2);
    struct grid g = random_grid(&ndim), e = g;
    uint64_t inner[3], grid[3], cells = 1, at = 0;
    int n_outer = sharded ? random_ops(outer, 3, &g, 3, false, &size, before) : 0;
    for (int i = 0; i < n_outer; i++) apply(&e, &outer[i]);
    for (int k = 0; k < ndim; k++) {
      inner[k] = sharded ? 1 + support_below(e.shape[k]) : e.shape[k];
      while (e.shape[k] % inner[k]) inner[k]--;
      cells *= grid[k] = e.shape[k] / inner[k];
    }
    int n = random_ops(op, sharded ? 3 : 6, &g, 3, true, &size, json);
    for (uint64_t c = 0; c < cells; c++) {
      uint64_t from[3], rest = c;
      for (int k = ndim - 1; k >= 0; k--) from[k] = rest % grid[k] * inner[k], rest /= grid[k];
      struct grid part = cut(&e, from, inner, straight);
      for (int i = 0; i < n; i++) apply(&part, &op[i]);
      size_t bytes = pack(packed, raw, serialise(&part, big, raw), zstd);
      memcpy(shard + at, packed, bytes);
      if (sharded)
        insitu__base_store64(shard + 60000 + 16 * c, at),
            insitu__base_store64(shard + 60008 + 16 * c, bytes);
      at += bytes;
    }
    if (sharded) memmove(shard + at, shard + 60000, 16 * cells), at += 16 * cells;
    char codecs[2500], wrapped[5500];
    snprintf(codecs, sizeof codecs,
        "%s{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}%s", json,
        big ? "big" : "little", zstd ? ",{\"name\":\"zstd\"}" : "");
    if (sharded)
      snprintf(wrapped, sizeof wrapped,
          "%s{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":%s,\"codecs\":[%s],"
          "\"index_codecs\":[{\"name\":"
          "\"bytes\",\"configuration\":{\"endian\":\"little\"}}]}}",
          before, support_list(cell, ndim, inner), codecs);
    snprintf(meta, sizeof meta,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"int16\",\"chunk_"
        "grid\":{\"name\":\"regular\","
        "\"configuration\":{\"chunk_shape\":%s}},\"chunk_key_encoding\":{\"name\":\"default\"},"
        "\"fill_value\":0,\"codecs\":[%s]}",
        support_list(shape, ndim, g.shape), shape, sharded ? wrapped : codecs);
    check_root("zarr.json", meta, chunk_keys[ndim][1], shard, at, &g);
  }
}

/* Chunks of packed bits in both formats; absent ones are the fill value. */
static void packed_archives(void **state) {
  static const uint8_t v2[] = {3, 0xa8}, v3[] = {0x15}, v3_last[] = {0x15, 3};
  static const struct {
    const char *key, *meta, *chunk_key;
    const uint8_t *chunk;
    uint64_t n;
  } cases[] = {{".zarray",
                   "{\"zarr_format\":2,\"shape\":[10],\"chunks\":[5],\"dtype\":\"|b1\",\"order\":"
                   "\"C\",\"fill_value\":true,"
                   "\"filters\":[{\"id\":\"packbits\"}],\"compressor\":null}",
                   "0", v2, 2},
#define PACKED_V3(codecs)                                                                          \
  "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[10],\"data_type\":\"bool\",\"chunk_"      \
  "grid\":{\"name\":\"regular\","                                                                  \
  "\"configuration\":{\"chunk_shape\":[5]}},\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_" \
  "value\":true,\"codecs\":[" codecs "]}"
      {"zarr.json", PACKED_V3("{\"name\":\"numcodecs.packbits\"},\"bytes\""), "c/0", v2, 2},
      {"zarr.json", PACKED_V3("\"packbits\""), "c/0", v3, 1},
      {"zarr.json",
          PACKED_V3(
              "{\"name\":\"packbits\",\"configuration\":{\"padding_encoding\":\"last_byte\"}}"),
          "c/0", v3_last, 2}};
  static const uint8_t want[] = {1, 0, 1, 0, 1, 1, 1, 1, 1, 1};
  (void)state;
  for (size_t k = 0; k < 2 * (sizeof cases / sizeof *cases); k++) {
    size_t i = k / 2;
    insitu_object objects[] = {{cases[i].key, cases[i].meta, strlen(cases[i].meta)},
        {cases[i].chunk_key, cases[i].chunk, cases[i].n}};
    insitu_loader_desc d = memory(objects, 2);
    insitu_error err = {0};
    uint8_t got[10];
    if (k % 2) d.codecs = extension_codecs, d.n_codecs = EXTENSION_CODECS;
    if (read_root(&d, got, sizeof got, &err)) fail_msg("%d: %s", (int)i, err.message);
    assert_memory_equal(got, want, sizeof got);
    objects[1].n = 0; /* cut short: no count of padding bits, or none of the bits */
    assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_CORRUPT);
  }
}

/* ---- refusals ---- */
static insitu_status open_with(struct insitu__chain_hooks *hooks, int format, const char *type,
    const char *codecs, insitu_error *err) {
  static const char *const metadata[] = {
      "{\"zarr_format\":2,\"shape\":[6],\"chunks\":[6],\"dtype\":\"%s\",\"order\":\"C\","
      "\"fill_value\":0,\"filters\":[%s],\"compressor\":null}",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[6],\"data_type\":\"%s\",\"chunk_"
      "grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[6]}},\"chunk_key_"
      "encoding\":{\"name\":\"default\"},\"fill_value\":0,\"codecs\":[%s]}"};
  char text[3000];
  struct insitu__zarr_array a;
  struct insitu__text_json j;
  snprintf(text, sizeof text, metadata[format - 2], type, codecs);
  memset(err, 0, sizeof *err);
  assert_int_equal(insitu__text_json_parse(&j, text, strlen(text), "", err), INSITU_OK);
  insitu_status status = insitu__zarr_read(&a, "a/b", format, &j, 0, &j, -1, hooks, err);
  if (!status) insitu__zarr_array_free(&a);
  insitu__text_json_free(&j);
  return status;
}
static insitu_status open_v3(const char *type, const char *codecs, insitu_error *err) {
  return open_with(&extensions, 3, type, codecs, err);
}
#define CODEC(name, configuration) "{\"name\":\"" name "\",\"configuration\":{" configuration "}}"
#define LITTLE CODEC("bytes", "\"endian\":\"little\"")
static void refusals(void **state) {
  static const struct {
    int format;
    const char *dtype, *codecs;
    insitu_status status;
    const char *says;
  } cases[] = {
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":\"<i4\"}", INSITU_OK, ""},
      {2, "<f4", "{\"id\":\"delta\",\"dtype\":\"<i4\"}", INSITU_OK, ""},
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":\"<i8\"}", INSITU_E_CODEC,
          "'delta' gives elements of 8 bytes, and the array has 4"},
      {2, "<i4",
          "{\"id\":\"delta\",\"dtype\":\"<i4\",\"astype\":\"<i2\"},{\"id\":\"delta\",\"dtype\":\"<"
          "i4\"}",
          INSITU_E_CODEC, "gives elements of 4 bytes, and codec delta has 2"},
      {2, "<i4", "{\"id\":\"delta\"}", INSITU_E_FORMAT, "'dtype'"},
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":5}", INSITU_E_FORMAT, "'dtype' = 5"},
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":\"<c8\"}", INSITU_E_CODEC, "\"<c8\""},
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":\"|O\"}", INSITU_E_CODEC, "type"},
      {2, "<i4", "{\"id\":\"delta\",\"dtype\":\"<i3\"}", INSITU_E_CODEC, "<i3"},
      {2, "<i8", "{\"id\":\"delta\",\"dtype\":\"<M8[ns]\"}", INSITU_OK, ""},
      {2, "<i4", "{\"id\":\"astype\",\"decode_dtype\":\"<i4\"}", INSITU_E_FORMAT, "encode_dtype"},
      {2, "<f4", "{\"id\":\"fixedscaleoffset\",\"dtype\":\"<f4\",\"scale\":0,\"offset\":1}",
          INSITU_E_FORMAT, "'scale' = 0"},
      {2, "<f4", "{\"id\":\"fixedscaleoffset\",\"dtype\":\"<f4\",\"scale\":NaN,\"offset\":1}",
          INSITU_E_FORMAT, "'scale' = NaN"},
      {2, "<f4", "{\"id\":\"fixedscaleoffset\",\"dtype\":\"<f4\",\"scale\":2,\"offset\":\"1\"}",
          INSITU_E_FORMAT, "'offset'"},
      {2, "<f4", "{\"id\":\"fixedscaleoffset\",\"dtype\":\"<f4\",\"scale\":1e999,\"offset\":1}",
          INSITU_E_FORMAT, "'scale'"},
      {2, "<f4", "{\"id\":\"quantize\",\"digits\":2,\"dtype\":\"<i4\"}", INSITU_E_FORMAT, "floats"},
      {2, "<f4", "{\"id\":\"shuffle\",\"elementsize\":-1}", INSITU_E_FORMAT, "elementsize"},
      {2, "<f4", "{\"id\":\"shuffle\",\"elementsize\":99999999999}", INSITU_E_FORMAT,
          "elementsize"},
      {2, "<f4", "{\"id\":\"crc32c\",\"location\":\"middle\"}", INSITU_E_FORMAT, "location"},
      {2, "<f4", "{\"id\":\"cast_value\",\"data_type\":\"int8\"}", INSITU_E_CODEC, "cast_value"},
      {2, "<f4", "{\"id\":\"pcodec\"}", INSITU_E_CODEC, "desc.codecs"},
      {3, "int32", CODEC("numcodecs.delta", "\"dtype\":\"int32\"") "," LITTLE, INSITU_OK, ""},
      {3, "int32", CODEC("numcodecs.delta", "\"dtype\":\"int16\"") "," LITTLE, INSITU_E_FORMAT,
          "another type"},
      {3, "complex64", CODEC("delta", "") "," LITTLE, INSITU_E_CODEC, "complex"},
      {3, "complex64", CODEC("bitround", "\"keepbits\":3") "," LITTLE, INSITU_OK, ""},
      {3, "int32", LITTLE "," CODEC("delta", ""), INSITU_E_CODEC,
          "\"delta\" is not supported after 'bytes'"},
      {3, "int32", LITTLE ",\"packbits\"", INSITU_E_CODEC,
          "\"packbits\" is not supported after 'bytes'"},
      {3, "int32", CODEC("numcodecs.zstd", "") "," LITTLE, INSITU_E_CODEC,
          "\"numcodecs.zstd\" is not supported before 'bytes'"},
      {3, "int32", CODEC("numcodecs.shuffle", "") "," LITTLE, INSITU_E_CODEC,
          "not supported before 'bytes'"},
      {3, "int32", LITTLE "," CODEC("numcodecs.shuffle", ""), INSITU_OK, ""},
      {3, "int32", CODEC("numcodecs.packbits", "") ",\"bytes\"", INSITU_E_FORMAT, "bool alone"},
      {3, "bool",
          CODEC("numcodecs.packbits", "") "," CODEC("transpose", "\"order\":[0]") ",\"bytes\"",
          INSITU_E_CODEC, "transpose"},
      {3, "bfloat16", CODEC("packbits", ""), INSITU_E_CODEC,
          "bfloat16 and complex numbers are not supported"},
      {3, "complex64", CODEC("packbits", ""), INSITU_E_CODEC,
          "bfloat16 and complex numbers are not supported"},
      {3, "int32", CODEC("packbits", "\"first_bit\":5,\"last_bit\":3"), INSITU_E_FORMAT,
          "last_bit"},
      {3, "int32", CODEC("packbits", "\"last_bit\":32"), INSITU_E_FORMAT, "last_bit"},
      {3, "int32", CODEC("packbits", "\"padding_encoding\":\"both\""), INSITU_E_FORMAT,
          "padding_encoding"},
      {3, "int32", CODEC("packbits", "\"last_bit\":null") "," CODEC("zstd", ""), INSITU_OK, ""},
      {3, "int32", CODEC("packbits", "") "," LITTLE, INSITU_E_FORMAT, "made bytes"},
      {3, "int32", CODEC("scale_offset", "\"scale\":0") "," LITTLE, INSITU_E_FORMAT, "'scale'"},
      {3, "int32", CODEC("scale_offset", "\"scale\":0.5") "," LITTLE, INSITU_E_FORMAT,
          "'scale' = 0.5"},
      {3, "float32", CODEC("scale_offset", "\"offset\":\"NaN\"") "," LITTLE, INSITU_E_FORMAT,
          "'offset'"},
      {3, "float32", CODEC("scale_offset", "\"factor\":1") "," LITTLE, INSITU_E_CODEC, "'factor'"},
      {3, "float32", "\"scale_offset\"," LITTLE, INSITU_OK, ""},
      {3, "float32", "{\"name\":\"scale_offset\",\"configuration\":[223,8]}," LITTLE,
          INSITU_E_FORMAT, "configuration must be an object"},
      {3, "float32", "{\"name\":\"scale_offset\",\"configuration\":\"x\"}," LITTLE, INSITU_E_FORMAT,
          "configuration must be an object"},
      {3, "float32", "{\"name\":\"scale_offset\",\"configuration\":null}," LITTLE, INSITU_OK, ""},
      {3, "int8", "{\"name\":\"cast_value\",\"configuration\":[]}," LITTLE, INSITU_E_FORMAT,
          "configuration must be an object"},
      {3, "uint8", "{\"name\":\"packbits\",\"configuration\":3}", INSITU_E_FORMAT,
          "configuration must be an object"},
      {3, "uint8", "{\"name\":\"packbits\",\"configuration\":null}", INSITU_OK, ""},
      {2, "|b1", "{\"id\":\"packbits\",\"configuration\":3}", INSITU_OK, ""},
      /* of equal keys the last counts */
      {3, "int32", CODEC("scale_offset", "\"scale\":0,\"scale\":4") "," LITTLE, INSITU_OK, ""},
      {3, "int32", CODEC("scale_offset", "\"scale\":4,\"scale\":0") "," LITTLE, INSITU_E_FORMAT,
          "'scale' = 0"},
      {3, "float16", CODEC("scale_offset", "\"offset\":65519") "," LITTLE, INSITU_OK, ""},
      {3, "float16", CODEC("scale_offset", "\"offset\":65520") "," LITTLE, INSITU_E_FORMAT,
          "'offset' = 65520"},
      {3, "bool", "\"scale_offset\",\"bytes\"", INSITU_E_CODEC, "scale_offset"},
      {3, "float32", CODEC("cast_value", "\"data_type\":\"string\"") "," LITTLE, INSITU_E_CODEC,
          "\"string\""},
      {3, "float32", "\"cast_value\"," LITTLE, INSITU_E_FORMAT, "data_type"},
      {3, "float32", CODEC("cast_value", "\"data_type\":\"int8\",\"rounding\":\"up\"") "," LITTLE,
          INSITU_E_FORMAT, "rounding"},
      {3, "float32",
          CODEC("cast_value", "\"data_type\":\"int8\",\"out_of_range\":\"fail\"") "," LITTLE,
          INSITU_E_FORMAT, "out_of"},
      {3, "int8",
          CODEC("cast_value", "\"data_type\":\"float32\",\"out_of_range\":\"wrap\"") "," LITTLE,
          INSITU_E_FORMAT, "wrap"},
      {3, "float32",
          CODEC(
              "cast_value", "\"data_type\":\"int8\",\"scalar_map\":{\"decode\":[[1]]}") "," LITTLE,
          INSITU_E_FORMAT, "scalar_map"},
      {3, "float32",
          CODEC("cast_value",
              "\"data_type\":\"int8\",\"scalar_map\":{\"decode\":[[300,1]]}") "," LITTLE,
          INSITU_E_FORMAT, "scalar_map"},
      {3, "float32", "{\"name\":\"delta\",\"configuration\":[]}," LITTLE, INSITU_E_FORMAT,
          "object"},
      {3, "float32", CODEC("numcodecs.cast_value", "\"data_type\":\"int8\"") "," LITTLE,
          INSITU_E_CODEC, "not known"},
      {3, "int32",
          CODEC("delta", "") "," CODEC("sharding_indexed",
              "\"chunk_shape\":[3],\"codecs\":[" LITTLE "],\"index_codecs\":[" LITTLE "]"),
          INSITU_E_CODEC, "'delta' is not supported before 'sharding_indexed'"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_error err;
    insitu_status status =
        open_with(&extensions, cases[i].format, cases[i].dtype, cases[i].codecs, &err);
    if (status != cases[i].status || !strstr(err.message, cases[i].says) ||
        (status && !strstr(err.message, "a/b")))
      fail_msg("%s: %d %s", cases[i].codecs, status, err.message);
  }
}

/* Without desc.codecs a refusal names the file that decodes it; what is built in is not refused. */
static void extensions_are_named(void **state) {
  static const struct {
    const char *type, *codecs, *says;
  } cases[] = {
      {"float32", CODEC("cast_value", "\"data_type\":\"int8\"") "," LITTLE,
          "array 'a/b': codec \"cast_value\": an extension; examples/08_extension_codecs.c decodes "
          "it through desc.codecs"},
      {"float32", "\"scale_offset\"," LITTLE,
          "array 'a/b': codec \"scale_offset\": an extension; examples/08_extension_codecs.c"},
      {"int32", "\"packbits\"",
          "array 'a/b': codec \"packbits\": only bool is packed here; "
          "examples/08_extension_codecs.c"},
      {"complex64", "\"packbits\"", "only bool is packed here"},
      {"bool", CODEC("packbits", "\"last_bit\":1"), "last_bit"},
      {"bool", CODEC("packbits", "\"padding_encoding\":\"both\""), "padding_encoding"},
      {"bool", CODEC("packbits", "\"first_bit\":0,\"last_bit\":null"), NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_error err;
    insitu_status status = open_with(NULL, 3, cases[i].type, cases[i].codecs, &err);
    if (cases[i].says ? !status || !strstr(err.message, cases[i].says) : status != INSITU_OK)
      fail_msg("%s: %d %s", cases[i].codecs, status, err.message);
  }
}

/* A map of many entries is refused, and what was read of a chain is freed (the address sanitizer
 * looks). */
static void too_many(void **state) {
  char codecs[8000], *p = codecs;
  insitu_error err;
  (void)state;
  p += sprintf(p, "{\"name\":\"cast_value\",\"configuration\":{\"data_type\":\"int8\",\"scalar_"
                  "map\":{\"decode\":[");
  for (int i = 0; i <= EXTENSION_MAP; i++) p += sprintf(p, "%s[1,1]", i ? "," : "");
  sprintf(p, "]}}}," LITTLE);
  assert_int_equal(open_v3("int16", codecs, &err), INSITU_E_UNSUPPORTED);
  assert_non_null(strstr(err.message, "EXTENSION_MAP"));
  for (int n = 1; n < 12; n++) {
    p = codecs;
    for (int i = 0; i < n; i++)
      p += sprintf(p, CODEC("cast_value", "\"data_type\":\"int%d\"") ",", i % 2 ? 16 : 32);
    sprintf(p, LITTLE);
    assert_int_equal(
        open_v3("int16", codecs, &err), n <= INSITU__MAX_CODECS ? INSITU_OK : INSITU_E_UNSUPPORTED);
    strcpy(p, "\"nonsense\"");
    assert_int_equal(open_v3("int16", codecs, &err),
        n <= INSITU__MAX_CODECS ? INSITU_E_CODEC : INSITU_E_UNSUPPORTED);
  }
}

/* A scratch that was reserved is enough, of all sizes of pieces and planes. */
static void nothing_allocated(void **state) {
  struct insitu__codec_layout layout = {.ndim = 2, .order = {1, 0}, .item = 4, .shape = {100, 90}};
  struct insitu__codec_type i2 = {INSITU_I16, true}, i4 = {INSITU_I32, false},
                            f8 = {INSITU_F64, false};
  struct insitu__codec_chain chain = {
      4, {{.kind = INSITU__CODEC_SHUFFLE, .name = "shuffle", .size = 2},
             {.kind = INSITU__CODEC_DELTA, .name = "delta", .from = i2, .to = i4},
             {.kind = INSITU__CODEC_TRANSPOSE, .name = "transpose", .layout = &layout},
             {.kind = INSITU__CODEC_FIXEDSCALEOFFSET,
                 .name = "fixedscaleoffset",
                 .from = i4,
                 .to = f8,
                 .scale = 2,
                 .offset = 1}}};
  struct insitu__codec_scratch own;
  static uint8_t src[18000];
  static double out[9000];
  (void)state;
  /* the upper byte is first: big-endian, and shuffled */
  for (int i = 0; i < 9000; i++) src[9000 + i] = (uint8_t)i, src[i] = 0;
  insitu__codec_scratch_init(&own);
  assert_int_equal(insitu__chain_scratch_reserve(&own, &chain, 72000, NULL), INSITU_OK);
  int before = allocations;
  for (int mode = 0; mode < DELIVERIES; mode++) {
    struct dest d = {
        .out = (uint8_t *)out, .decoded = 72000, .element = 8, .mode = mode, .row = 800};
    struct insitu__codec_sink sink = {
        .user = &d, .direct = mode == PIECES ? NULL : direct, .piece = piece, .element = 8};
    assert_int_equal(
        insitu__chain_decode(&chain, &own, src, sizeof src, 72000, &sink, NULL), INSITU_OK);
    int32_t sum = 0;
    for (int k = 0; k < 9000; k++) { /* stored with the axis of 100 fastest */
      sum += (uint8_t)k;
      assert_true(out[k % 100 * 90 + k / 100] == sum / 2.0 + 1);
    }
  }
  assert_int_equal(allocations, before);
  insitu__codec_scratch_free(&own);
}

/* ---- desc.codecs ---- */
struct user {
  insitu_status status;
  const char *message;
  int64_t wrong; /* added to what it says that it wrote */
  _Atomic int calls;
  const char *_Atomic config; /* of the last call */
};
/* Each byte is one more than stored, and a byte goes before them. */
static insitu_status decode_user(void *user, const char *config, const void *src, uint64_t n,
    void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  struct user *u = user;
  u->calls++;
  u->config = config;
  if (u->message) snprintf(err->message, sizeof err->message, "%s", u->message);
  if (u->status) return u->status;
  if (n < 1 || n - 1 > cap) {
    snprintf(err->message, sizeof err->message, "%d bytes for %d", (int)n, (int)cap);
    return INSITU_E_CORRUPT;
  }
  for (uint64_t i = 1; i < n; i++)
    ((uint8_t *)dst)[i - 1] = (uint8_t)(((const uint8_t *)src)[i] - 1);
  *got = n - 1 + (uint64_t)u->wrong;
  return INSITU_OK;
}
enum { SAMPLES = 24, ROWS_EACH = 4 };
static uint8_t user_chunk[SAMPLES / ROWS_EACH][1 + 2 * ROWS_EACH];
static const char *const user_keys[2][6] = {
    {"0", "1", "2", "3", "4", "5"}, {"c/0", "c/1", "c/2", "c/3", "c/4", "c/5"}};
/* int16 7 i in six chunks, encoded by the codec "plus"; big: as it stands in the metadata */
static uint64_t user_objects(insitu_object *objects, const char *meta, bool v3, bool big) {
  for (int i = 0; i < SAMPLES; i++)
    for (int b = 0; b < 2; b++)
      user_chunk[i / ROWS_EACH][1 + i % ROWS_EACH * 2 + b] =
          (uint8_t)((7 * i >> (b != big ? 8 : 0)) + 1);
  objects[0] = (insitu_object){v3 ? "zarr.json" : ".zarray", meta, strlen(meta)};
  for (int c = 0; c < 6; c++)
    objects[1 + c] = (insitu_object){user_keys[v3][c], user_chunk[c], sizeof user_chunk[c]};
  return 7;
}
#define USER_V2(filters, compressor)                                                               \
  "{\"zarr_format\":2,\"shape\":[24],\"chunks\":[4],\"dtype\":\">i2\",\"order\":\"C\",\"fill_"     \
  "value\":5,\"filters\":" filters ",\"compressor\":" compressor "}"
#define USER_V3(codecs)                                                                            \
  "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[24],\"data_type\":\"int16\",\"chunk_"     \
  "grid\":{\"name\":\"regular\","                                                                  \
  "\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_" \
  "value\":5,\"codecs\":[" codecs "]}"
static const struct {
  const char *meta, *config;
  bool v3, big;
} user_metas[] = {
    {USER_V2("null", "{\"id\":\"plus\",\"by\":1}"), "{\"id\":\"plus\",\"by\":1}", false, true},
    {USER_V2("[{\"id\":\"plus\"}]", "null"), "{\"id\":\"plus\"}", false, true},
    {USER_V3("{\"name\":\"plus\",\"configuration\":{\"by\":1}}"),
        "{\"name\":\"plus\",\"configuration\":{\"by\":1}}", true, false},
    {USER_V3("\"plus\""), "\"plus\"", true, false},
    {USER_V3(CODEC("bytes", "\"endian\":\"big\"") ",\"plus\""), "\"plus\"", true, true}};

static void user_codecs(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof user_metas / sizeof *user_metas; k++)
    for (int m = -1; m < MODES; m++) {
      if (m >= 0 && !mode_usable(m)) continue;
      struct user u = {0};
      insitu_object objects[7];
      insitu_codec codec[] = {{.name = "zstd", .decode = decode_user, .user = &u},
          {.name = "plus", .decode = decode_user, .user = &u, .max_encoded = 9}};
      insitu_loader_desc d = memory(
          objects, user_objects(objects, user_metas[k].meta, user_metas[k].v3, user_metas[k].big));
      insitu_error err = {0};
      insitu_loader *ld;
      int16_t got[SAMPLES];
      d.codecs = codec, d.n_codecs = 2;
      d.plan_only = m < 0, d.variables = &root, d.n_variables = 1, d.batch_size = 5;
      if (m >= 0) d.io = modes[m].io, d.inline_io = modes[m].inline_io;
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%d: %s", (int)k, err.message);
      memset(codec, 0, sizeof codec); /* the loader has its own */
      if (insitu_read(ld, &root, got, sizeof got, NULL, &err))
        fail_msg("%d: %s", (int)k, err.message);
      for (int i = 0; i < SAMPLES; i++) assert_int_equal(got[i], 7 * i);
      assert_int_equal(u.calls, 6);
      const char *first = u.config;
      assert_string_equal(first, user_metas[k].config);
      assert_int_equal(insitu_read(ld, &root, got, sizeof got, NULL, &err), INSITU_OK);
      assert_ptr_equal(u.config, first); /* kept once */
      if (m >= 0) {
        insitu_iter *it = NULL;
        insitu_batch *b;
        int rows = 0;
        insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
        assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
        while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
          for (uint64_t r = 0; r < b->rows; r++, rows++)
            assert_int_equal(((int16_t *)b->arrays[0].data)[r], 7 * b->sample_indices[r]);
          insitu_batch_release(&b);
        }
        assert_int_equal(rows, SAMPLES);
        uint64_t n = insitu_loader_describe(ld, NULL, 0);
        char *json = malloc(n + 4096);
        insitu_loader_describe(ld, json, n + 4096);
        assert_non_null(strstr(json, "\"plus\""));
        free(json);
        insitu_iter_close(&it);
      }
      insitu_loader_close(&ld);
      assert_string_equal(err.message, "");
    }
}

/* Whatever a user's decoder does wrong arrives as an error of the batch that names it, array and
 * chunk. */
static void user_errors(void **state) {
  static const struct {
    struct user user;
    insitu_status status;
    const char *says;
  } cases[] = {{{.status = INSITU_E_IO, .message = "out of paper"}, INSITU_E_IO,
                   "codec \"plus\" of desc.codecs: out of paper"},
      {{.status = INSITU_E_CODEC}, INSITU_E_CODEC, "without a message"},
      {{.status = INSITU_E_NOTFOUND, .message = "gone"}, INSITU_E_CORRUPT, "gone"},
      {{.status = INSITU_E_ABSENT}, INSITU_E_CORRUPT, "without"},
      {{.status = INSITU_END}, INSITU_E_CORRUPT, "plus"},
      {{.status = -12345, .message = "odd"}, INSITU_E_CORRUPT, "odd"},
      {{.wrong = -2}, INSITU_E_CORRUPT, "got 6 bytes, expected 8"},
      {{.wrong = 1}, INSITU_E_CORRUPT, "says that it wrote 9"}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    EACH_MODE (m) {
      struct user u = {.status = cases[k].user.status,
          .message = cases[k].user.message,
          .wrong = cases[k].user.wrong};
      insitu_object objects[7];
      insitu_codec codec = {.name = "plus", .decode = decode_user, .user = &u};
      insitu_loader_desc d =
          memory(objects, user_objects(objects, user_metas[k % 2].meta, false, true));
      insitu_error err = {0};
      insitu_loader *ld;
      insitu_iter *it = NULL;
      insitu_batch *b;
      int16_t got[SAMPLES];
      d.codecs = &codec, d.n_codecs = 1, d.plan_only = 0, d.variables = &root, d.n_variables = 1;
      d.io = modes[m].io, d.inline_io = modes[m].inline_io, d.batch_size = 5;
      assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
      insitu_status status = insitu_iter_next(it, 20000, &b, &err);
      if (status != cases[k].status || !strstr(err.message, cases[k].says) ||
          !strstr(err.message, "chunk "))
        fail_msg("%d: %d %s", (int)k, status, err.message);
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_read(ld, &root, got, sizeof got, NULL, &err), cases[k].status);
      if (!strstr(err.message, cases[k].says)) fail_msg("%d: %s", (int)k, err.message);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      memset(&err, 0, sizeof err);
      d.on_bad_chunk = INSITU_FILL, d.log_level = INSITU_LOG_OFF, d.n_variables = 0,
      d.plan_only = 1;
      assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_OK);
      for (int i = 0; i < SAMPLES; i++) assert_int_equal(got[i], 5);
    }
}

static void user_descs(void **state) {
  struct user u = {0};
  insitu_object objects[7];
  insitu_codec good = {.name = "plus", .decode = decode_user, .user = &u},
               bad[] = {{.decode = decode_user}, {.name = "", .decode = decode_user}, {.name = "x"},
                   {.name = "x", .decode = decode_user, .max_encoded = UINT64_MAX}};
  insitu_loader_desc d = memory(objects, user_objects(objects, user_metas[0].meta, false, true));
  insitu_error err = {0};
  int16_t got[SAMPLES];
  (void)state;
  d.n_codecs = 1;
  assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_ARG);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    memset(&err, 0, sizeof err);
    d.codecs = &bad[i];
    assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_ARG);
    assert_non_null(strstr(err.message, "codecs[0]"));
  }
  memset(&err, 0, sizeof err);
  d.codecs = NULL, d.n_codecs = 0;
  assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_CODEC);
  assert_non_null(strstr(err.message, "\"plus\""));
  assert_non_null(strstr(err.message, "desc.codecs"));
  memset(&err, 0, sizeof err);
  good.max_encoded = 8; /* the chunks have 9 bytes */
  d.codecs = &good, d.n_codecs = 1;
  assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "is longer than 8 bytes, the most for"));
}

/* Of a whole shard: 2^31 elements, each an inner chunk of up to 2^32 bytes, and five streams around
 * it. */
static void user_sums_wrap(void **state) {
#define GRID(inner, codecs)                                                                        \
  "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[" inner                      \
  "],\"codecs\":[" codecs                                                                          \
  "],\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}]}}"
  static const char meta[] =
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[2147483648],\"data_type\":\"uint8\","
      "\"chunk_grid\":"
      "{\"name\":\"regular\","
      "\"configuration\":{\"chunk_shape\":[2147483648]}},\"chunk_key_encoding\":\"default\",\"fill_"
      "value\":0,\"codecs\":[" GRID("4194304",
          GRID("4096", GRID("64", GRID("1", "\"plus\"")))) ",\"zstd\",\"zstd\",\"zstd\",\"zstd\","
                                                           "\"blosc\",\"blosc\",\"blosc\"]}";
#undef GRID
  struct user u = {0};
  insitu_object object = {"zarr.json", meta, sizeof meta - 1};
  insitu_codec codec = {
      .name = "plus", .decode = decode_user, .user = &u, .max_encoded = UINT64_C(1) << 32};
  insitu_loader_desc d = memory(&object, 1);
  insitu_error err = {0};
  int16_t got[SAMPLES];
  (void)state;
  d.codecs = &codec, d.n_codecs = 1;
  assert_int_equal(read_root(&d, got, sizeof got, &err), INSITU_E_UNSUPPORTED);
  assert_non_null(strstr(err.message, "INSITU__MAX_SCRATCH"));
}

/* ---- open and close of a codec ---- */
struct place {
  insitu_codec_place told;
  int32_t stored; /* what open says */
  insitu_status status;
  int opened, open; /* calls; of them not closed */
};
static insitu_status open_place(
    void *user, const char *config, insitu_codec_place *place, void **state, insitu_error *err) {
  struct place *p = user;
  assert_ptr_equal(*state, user);
  assert_non_null(strstr(config, "\"plus\""));
  assert_int_equal(place->stored, 0);
  p->told = *place;
  p->opened++;
  if (p->status) {
    snprintf(err->message, sizeof err->message, "not here");
    return p->status;
  }
  p->open++;
  place->stored = p->stored;
  *state = &p->open;
  return INSITU_OK;
}
static void close_place(void *state) {
  --*(int *)state;
}
/* int16 from bytes, each one more */
static insitu_status decode_place(void *user, const char *config, const void *src, uint64_t n,
    void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  (void)config, (void)err;
  assert_true(*(int *)user > 0);
  assert_true(2 * n <= cap);
  for (uint64_t i = 0; i < n; i++) {
    int16_t x = ((const uint8_t *)src)[i] + 1;
    memcpy((uint8_t *)dst + 2 * i, &x, 2);
  }
  *got = 2 * n;
  return INSITU_OK;
}

static void user_places(void **state) {
  static const struct {
    int format;
    const char *dtype, *codecs;
    int32_t stored;
    insitu_status fails, want;
    insitu_codec_place told;
    const char *says;
  } cases[] = {
      {2, "<i2", "{\"id\":\"plus\"}", 0, 0, INSITU_OK, {2, 0, 0, 0}, ""},
      {2, "<i2", "{\"id\":\"plus\"}", INSITU_I8, 0, INSITU_E_ARG, {2, 0, 0, 0},
          "finds elements of type 8"},
      {3, "int16", LITTLE ",\"plus\"", 0, 0, INSITU_OK, {3, 0, 0, 0}, ""},
      {3, "int16", LITTLE ",\"plus\"", INSITU_I8, 0, INSITU_E_ARG, {3, 0, 0, 0}, "correct it"},
      {3, "int16", "\"plus\"", 0, 0, INSITU_OK, {3, 1, INSITU_I16, 0}, ""},
      {3, "int16", "\"plus\"", INSITU_U8, 0, INSITU_E_FORMAT, {3, 1, INSITU_I16, 0},
          "none of them makes bytes"},
      {3, "int16", "\"plus\"," LITTLE, INSITU_U8, 0, INSITU_OK, {3, 1, INSITU_I16, 0}, ""},
      {3, "int16", "\"plus\"," LITTLE, 0, 0, INSITU_E_FORMAT, {3, 1, INSITU_I16, 0}, "made bytes"},
      {3, "int16", "\"plus\"," LITTLE, INSITU_C64, 0, INSITU_E_ARG, {3, 1, INSITU_I16, 0}, "1344"},
      {3, "int16", "\"plus\"," LITTLE, 12345, 0, INSITU_E_ARG, {3, 1, INSITU_I16, 0}, "12345"},
      {3, "int16", "\"plus\"," CODEC("delta", "") "," LITTLE, INSITU_U8, 0, INSITU_OK,
          {3, 1, INSITU_I16, 0}, ""},
      {3, "int16", CODEC("numcodecs.astype", "\"encode_dtype\":\"<f4\"") ",\"plus\"," LITTLE,
          INSITU_U8, 0, INSITU_OK, {3, 1, INSITU_F32, 0}, ""},
      {3, "complex64", "\"plus\"", 0, 0, INSITU_OK, {3, 1, INSITU_C64, 0}, ""},
      {3, "bfloat16", "\"plus\"," LITTLE, INSITU_F32, 0, INSITU_OK, {3, 1, INSITU_BF16, 0}, ""},
      {3, "r16", "\"plus\"," LITTLE, INSITU_U8, 0, INSITU_E_ARG, {3, 1, 0, 0}, "type 0"},
      {3, "int16", "\"plus\",\"nonsense\"," LITTLE, INSITU_U8, 0, INSITU_E_CODEC,
          {3, 1, INSITU_I16, 0}, "nonsense"},
      {3, "int16", "\"plus\"", 0, INSITU_E_DTYPE, INSITU_E_DTYPE, {3, 1, INSITU_I16, 0},
          "codec \"plus\" of desc.codecs: not here"},
      {3, "int16", "\"plus\"", 0, INSITU_E_NOTFOUND, INSITU_E_CORRUPT, {3, 1, INSITU_I16, 0},
          "not here"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct place p = {.stored = cases[i].stored, .status = cases[i].fails};
    insitu_codec codec = {.name = "plus",
        .decode = decode_place,
        .user = &p,
        .open = open_place,
        .close = close_place};
    struct insitu__chain_hooks hooks = {.codec = &codec, .n = 1};
    insitu_error err;
    insitu_status status =
        open_with(&hooks, cases[i].format, cases[i].dtype, cases[i].codecs, &err);
    if (status != cases[i].want || !strstr(err.message, cases[i].says))
      fail_msg("%d: %d %s", (int)i, status, err.message);
    assert_int_equal(p.opened, 1);
    assert_int_equal(p.open, 0);
    assert_memory_equal(&p.told, &cases[i].told, sizeof p.told);
    insitu__chain_hooks_free(&hooks);
  }

  /* decode and close get what open made; the loader closes it after the last use */
  struct place p = {.stored = INSITU_U8};
  insitu_codec codec = {
      .name = "plus", .decode = decode_place, .user = &p, .open = open_place, .close = close_place};
  insitu_object objects[] = {{"zarr.json", USER_V3("\"plus\",\"bytes\""), 0},
      {"c/0", "\1\2\3\4", 4}, {"c/5", "\5\6\7\10", 4}};
  objects[0].n = strlen(objects[0].bytes);
  insitu_loader_desc d = memory(objects, 3);
  insitu_error err = {0};
  insitu_loader *ld;
  int16_t got[SAMPLES];
  d.codecs = &codec, d.n_codecs = 1;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
  for (int k = 0; k < 2; k++) {
    assert_int_equal(insitu_read(ld, &root, got, sizeof got, NULL, &err), INSITU_OK);
    for (int i = 0; i < SAMPLES; i++)
      assert_int_equal(got[i], i < 4 ? i + 2 : i < 20 ? 5 : i - 20 + 6);
  }
  insitu_loader_close(&ld);
  assert_true(p.opened >= 2);
  assert_int_equal(p.open, 0);
}

static int finish(void **state) {
  insitu__chain_hooks_free(&extensions);
  insitu__codec_scratch_free(&scratch);
  return support_teardown(state);
}
int main(void) {
  insitu__codec_scratch_init(&scratch);
  const struct CMUnitTest tests[] = {cmocka_unit_test(fixtures), cmocka_unit_test(chains_v2),
      cmocka_unit_test(chains_v3), cmocka_unit_test(packed_archives), cmocka_unit_test(refusals),
      cmocka_unit_test(extensions_are_named), cmocka_unit_test(user_places),
      cmocka_unit_test(too_many), cmocka_unit_test(nothing_allocated),
      cmocka_unit_test(user_codecs), cmocka_unit_test(user_errors), cmocka_unit_test(user_descs),
      cmocka_unit_test(user_sums_wrap)};
  return cmocka_run_group_tests(tests, support_setup, finish);
}
