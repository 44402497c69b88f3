/* libFuzzer: JSON and Zarr metadata. Input: a document, read as every kind of metadata. An array
 * that is taken keeps the bounds that the loader relies on; JSON values survive being written and
 * read again. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "examples/08_extension_codecs.c"
#include "fuzz.h"
#include "parse.h"

/* Chunks that differ in length follow each other, and hold all of the axis. */
static void grid(const struct insitu__zarr_array *a, unsigned d) {
  const struct insitu__grid *g = a->grid[d];
  uint64_t n = g ? INSITU__ARRAY_LEN(g->run) : 0;
  for (uint64_t i = 0; i < n; i++) {
    const struct insitu__grid_run *run = &g->run[i];
    uint64_t behind = insitu__grid_run_end(g, run), end = i + 1 < n ? run[1].at : g->end;
    FUZZ_HOLDS(run->edge && run->edge <= run->stored && run->stored <= a->chunk[d]);
    FUZZ_HOLDS(behind > run->tile && run->at + (behind - run->tile) * run->edge == end);
    FUZZ_HOLDS(insitu__zarr_tile(a, d, run->at) == run->tile);
    FUZZ_HOLDS(insitu__zarr_tile(a, d, end - 1) == behind - 1);
    FUZZ_HOLDS(insitu__zarr_tile_end(a, d, behind - 1) == end);
  }
  if (!g) return;
  FUZZ_HOLDS(n && g->run[0].at == 0 && g->run[0].tile == 0 && g->end >= a->shape[d]);
  FUZZ_HOLDS(g->tiles <= INSITU__MAX_GRID_CHUNKS && n <= INSITU__MAX_GRID_RUNS);
  FUZZ_HOLDS(insitu__zarr_tile_begin(a, d, g->tiles - 1) < a->shape[d]);
}

static void array(struct insitu__zarr_array *a, insitu_status status, const insitu_error *err) {
  fuzz_status(status, err);
  if (status == INSITU_OK) {
    uint64_t bytes = a->itemsize, axes = 0;
    FUZZ_HOLDS(a->ndim <= INSITU__MAX_DIMS && a->codecs.n <= INSITU__MAX_CODECS);
    for (unsigned d = 0; d < a->ndim; d++) {
      FUZZ_HOLDS(a->chunk[d] && !__builtin_mul_overflow(bytes, a->chunk[d], &bytes) &&
                 a->shape[d] <= INT64_MAX);
      axes |= UINT64_C(1) << a->order[d];
      grid(a, d);
    }
    FUZZ_HOLDS(bytes && bytes <= INSITU__MAX_CHUNK && axes + 1 == UINT64_C(1) << a->ndim);
    for (unsigned l = 0; l < a->n_levels; l++) {
      const struct insitu__codec_shard *shard = a->level[l].shard;
      uint64_t entries = 1;
      for (unsigned k = 0; k < a->ndim; k++) {
        FUZZ_HOLDS(shard->chunk[k] % shard->inner[k] == 0);
        FUZZ_HOLDS(!__builtin_mul_overflow(entries, shard->chunk[k] / shard->inner[k], &entries));
      }
      FUZZ_HOLDS(entries == shard->entries && entries <= INSITU__MAX_SHARD_CHUNKS);
    }
    FUZZ_HOLDS(!a->n_levels || a->level[a->n_levels - 1].shard->inner_bytes == bytes);
    FUZZ_HOLDS(a->itemsize <= sizeof a->fill && (a->separator == '.' || a->separator == '/'));
  }
  insitu__zarr_array_free(a);
}

/* a root's zarr.json or .zmetadata, and the arrays in it */
static void consolidated(const char *text, size_t n, int format) {
  static char url[] = "fuzz";
  struct insitu__store store = {.url = url};
  struct insitu__group g = {.store = &store, .nodes = -1};
  struct insitu__zarr_array a;
  struct insitu__chain_hooks hooks = {.codec = extension_codecs, .n = EXTENSION_CODECS};
  insitu_error err = {0};
  char *owned = insitu__mem_alloc(n + 1, 1);
  FUZZ_HOLDS(owned);
  if (n) memcpy(owned, text, n);
  insitu_status status =
      insitu__group_root_parse(&g, format == 3 ? "zarr.json" : ".zmetadata", owned, n, &err);
  if (status == INSITU_OK)
    status = format == 3 ? insitu__group_root_v3(&g, &err) : insitu__group_root_v2(&g, &err);
  fuzz_status(status, &err);
  const struct insitu__text_json *j = &g.root.j;
  for (int t = status || g.nodes < 0 ? -1 : insitu__text_json_first(j, g.nodes); t >= 0;
       t = insitu__text_json_next(j, t)) {
    insitu_error own = {0};
    int node = insitu__text_json_value(j, t);
    int attributes = format == 3 ? insitu__text_json_get(j, node, "attributes") : node;
    status = insitu__zarr_read(&a, "a", format, j, node, j, attributes, &hooks, &own);
    array(&a, status, &own);
  }
  insitu__group_free(&g);
  insitu__chain_hooks_free(&hooks);
}

/* decoded, quoted and decoded again */
static void string(const struct insitu__text_json *j, int token) {
  char once[64], twice[64];
  struct insitu__text_buffer b = {0};
  struct insitu__text_json again;
  int64_t n = insitu__text_json_string(j, token, once, sizeof once);
  if (n < 0) return;
  FUZZ_HOLDS((size_t)n == strlen(once) && insitu__text_json_equals(j, token, once));
  FUZZ_HOLDS(insitu__text_buffer_json_string(&b, once));
  FUZZ_HOLDS(insitu__text_json_parse(&again, b.text, b.n, "again", NULL) == INSITU_OK);
  bool utf8 = true; /* else other bytes come out, once and for all */
  for (const char *c = once; *c && utf8; c += insitu__text_utf8((const unsigned char *)c))
    utf8 = insitu__text_utf8((const unsigned char *)c);
  int64_t m = insitu__text_json_string(&again, 0, twice, sizeof twice);
  if (utf8) FUZZ_HOLDS(m == n && !strcmp(once, twice));
  for (const char *c = twice; m >= 0 && *c; c += insitu__text_utf8((const unsigned char *)c))
    FUZZ_HOLDS(insitu__text_utf8((const unsigned char *)c));
  insitu__text_json_free(&again);
  insitu__text_buffer_free(&b);
}

/* one that is whole is the same to every reader */
static void number(const struct insitu__text_json *j, int token) {
  uint64_t u = 0;
  int64_t i = 0;
  double d = 0;
  bool is_u = insitu__text_json_u64(j, token, &u), is_i = insitu__text_json_i64(j, token, &i),
       is_d = insitu__text_json_double(j, token, &d);
  if (is_u) FUZZ_HOLDS(is_i == (u <= INT64_MAX) && (!is_i || (uint64_t)i == u));
  if (is_d && is_u) FUZZ_HOLDS(d == (double)u);
  if (is_d && is_i) FUZZ_HOLDS(d == (double)i);
}

/* A value and all below it. */
static void values(const struct insitu__text_json *j, int t) {
  int count = 0;
  uint64_t span;
  const char *p = insitu__text_json_span(j, t, &span);
  FUZZ_HOLDS(p == j->text + t && span && (uint64_t)t + span <= (uint64_t)j->n);
  string(j, t);
  number(j, t);
  for (int c = insitu__text_json_first(j, t); c >= 0; c = insitu__text_json_next(j, c), count++) {
    FUZZ_HOLDS(c > t);
    if (insitu__text_json_is_object(j, t)) string(j, c);
    values(j, insitu__text_json_is_object(j, t) ? insitu__text_json_value(j, c) : c);
  }
  FUZZ_HOLDS(count == insitu__text_json_size(j, t));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char plain[] =
      "{\"zarr_format\":2,\"shape\":[1,2],\"chunks\":[1,2],\"dtype\":\"<f4\",\"order\":\"C\","
      "\"compressor\":null,\"filters\":null,\"fill_value\":0}";
  char *text = fuzz_copy(data, n);
  struct insitu__zarr_array a;
  for (int kind = 0; kind < 3; kind++) { /* v2, v3, v2 attributes */
    insitu_error err = {0};
    insitu_status status = kind == 0   ? parse_v2(&a, "a", text, n, NULL, 0, &err)
                           : kind == 1 ? parse_v3(&a, "a", text, n, &err)
                                       : parse_v2(&a, "a", plain, strlen(plain), text, n, &err);
    array(&a, status, &err);
  }
  consolidated(text, n, 2);
  consolidated(text, n, 3);
  struct insitu__text_json j;
  insitu_error err = {0};
  insitu_status status = insitu__text_json_parse(&j, text, n, "fuzz", &err);
  fuzz_status(status, &err);
  if (!status) values(&j, 0);
  insitu__text_json_free(&j);
  free(text);
  return 0;
}
