/* Filters: what numcodecs and the specifications say they decode to (make_codec_fixtures.py), every way of delivery, whole archives
 * in both formats, refusals by name, and desc.codecs. */
#include <stdlib.h>
static int allocations; /* counts calls, to show that a reserved scratch is enough */
#define INSITU_REALLOC(pointer, bytes) (allocations++, realloc(pointer, bytes))
#define INSITU_FREE(pointer) free(pointer)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

/* ---- a sink that checks order and coverage ---- */
enum { PIECES, WHOLE, ROWS, DELIVERIES };
struct dest {
  uint8_t *out;
  uint64_t next, decoded, row, pieces;
  uint32_t element;
  int mode;
};
static void took(struct dest *d, uint64_t offset, uint64_t n) {
  assert_true(offset == d->next && n > 0 && n <= d->decoded - offset && offset % d->element == 0);
  d->next += n;
}
static void *direct(void *user, uint64_t offset, uint64_t n) {
  struct dest *d = user;
  bool whole = offset == 0 && n == d->decoded;
  if (d->mode == WHOLE ? !whole : offset / d->row != (offset + n - 1) / d->row) return NULL;
  took(d, offset, n);
  return d->out + offset;
}
static insitu_status piece(void *user, const void *p, uint64_t offset, uint64_t n, insitu_error *err) {
  struct dest *d = user;
  (void)err;
  took(d, offset, n);
  memcpy(d->out + offset, p, n);
  d->pieces++;
  return INSITU_OK;
}
static struct insitu__codec_scratch scratch;
static insitu_status run(
    const struct insitu__codec_chain *chain, const void *src, uint64_t n, struct dest *d, insitu_error *err) {
  struct insitu__codec_sink sink = {d, d->mode == PIECES ? NULL : direct, piece, d->element};
  uint8_t *exact = malloc(n ? n : 1); /* so that ASan sees one byte too far */
  memcpy(exact, src, n);
  insitu_status status = insitu__codec_decode(chain, &scratch, exact, n, d->decoded, &sink, err);
  free(exact);
  return status;
}
/* Bytes equal; or, of a float type, both not a number where the reference is none: which one it is is not specified. */
static void same(const uint8_t *got, const uint8_t *want, uint64_t n, struct insitu__codec_type t, const char *what) {
  uint64_t size = insitu__codec_type_size(t);
  for (uint64_t i = 0; i < n; i += size ? size : 1) {
    if (!memcmp(got + i, want + i, size ? size : 1)) continue;
    union insitu__codec_block a, b;
    if (insitu__codec_is_float(t.dtype)) {
      insitu__codec_load(t, got + i, 1, &a), insitu__codec_load(t, want + i, 1, &b);
      double x = t.dtype == INSITU_F64 ? a.d[0] : (double)a.f[0], y = t.dtype == INSITU_F64 ? b.d[0] : (double)b.f[0];
      if (x != x && y != y) continue;
    }
    fail_msg("byte %d is %02x, not %02x: %s", (int)i, got[i], want[i], what);
  }
}
static void expect(const struct insitu__codec_chain *chain, const void *src, uint64_t n, const uint8_t *want, uint64_t decoded,
    const char *what) {
  struct insitu__codec_type t = chain->n ? chain->codec[chain->n - 1].to : (struct insitu__codec_type){0, false};
  for (int mode = 0; mode < DELIVERIES; mode++)
    for (uint32_t element = 1; element <= 16; element = element * 2 + (element == 2)) {
      insitu_error err = {0};
      struct dest d = {.out = malloc(decoded + 1), .decoded = decoded, .element = element, .mode = mode, .row = 5u * element};
      insitu_status status = run(chain, src, n, &d, &err);
      if (status < 0) fail_msg("%s: %s", what, err.message);
      assert_true(d.next == decoded);
      same(d.out, want, decoded, t, what);
      assert_true(mode != WHOLE || d.pieces == 0);
      free(d.out);
    }
}
static insitu_status refuse(
    const struct insitu__codec_chain *chain, const void *src, uint64_t n, uint64_t decoded, insitu_error *err) {
  insitu_error own = {0};
  struct dest d = {
      .out = malloc(decoded + 1), .decoded = decoded, .element = 1, .mode = (int)support_below(DELIVERIES), .row = 64};
  insitu_status status = run(chain, src, n, &d, err ? err : &own);
  assert_true(status == INSITU_OK || (err ? err : &own)->message[0]);
  free(d.out);
  return status;
}

/* ---- fixtures ---- */
static uint8_t *unhex(const struct insitu__text_json *j, int token, uint64_t *n) {
  const char *text = insitu__text_json_span(j, token, n);
  *n = (*n - 2) / 2;
  uint8_t *bytes = malloc(*n + 1);
  for (uint64_t i = 0; i < *n; i++)
    bytes[i] = (uint8_t)(insitu__text_hex(text[1 + 2 * i]) << 4 | insitu__text_hex(text[2 + 2 * i]));
  return bytes;
}
static void fixture(const char *line, uint64_t length, int *v2, int *v3) {
  struct insitu__text_json j;
  struct insitu__codec_context at = {.format = 2};
  struct insitu__codec_chain chain = {.n = 1};
  insitu_error err = {0};
  char type[16];
  uint64_t n, decoded, format;
  assert_int_equal(insitu__text_json_parse(&j, line, length, "filters.jsonl", NULL), INSITU_OK);
  assert_true(insitu__text_json_u64(&j, insitu__text_json_get(&j, 0, "format"), &format));
  if (format == 3) {
    assert_true(insitu__text_json_string(&j, insitu__text_json_get(&j, 0, "type"), type, sizeof type) > 0);
    at = (struct insitu__codec_context){.format = 3, .array = true};
    assert_true(insitu__codec_type_parse(type, &at.type));
  }
  if (insitu__codec_read(&j, insitu__text_json_get(&j, 0, "codec"), &at, &chain.codec[0], &err))
    fail_msg("%.*s: %s", (int)length, line, err.message);
  int want_token = insitu__text_json_get(&j, 0, "decoded");
  uint8_t *src = unhex(&j, insitu__text_json_get(&j, 0, "encoded"), &n);
  if (insitu__codec_is_nothing(&chain.codec[0])) chain.n = 0;
  if (insitu__text_json_is_null(&j, want_token)) {
    decoded = n / insitu__codec_type_size(chain.codec[0].from) * insitu__codec_type_size(chain.codec[0].to);
    if (refuse(&chain, src, n, decoded, NULL) != INSITU_E_CORRUPT) fail_msg("decoded: %.*s", (int)length, line);
  } else {
    uint8_t *want = unhex(&j, want_token, &decoded);
    assert_true(insitu__codec_bound(&chain, decoded) == n); /* no slack: scratch and buffers are exact */
    expect(&chain, src, n, want, decoded, line);
    if (n) assert_int_equal(refuse(&chain, src, n - 1, decoded, NULL), INSITU_E_CORRUPT);
    uint8_t *more = calloc(1, n + 1);
    memcpy(more, src, n);
    assert_int_equal(refuse(&chain, more, n + 1, decoded, NULL), INSITU_E_CORRUPT);
    bool told = chain.codec[0].kind != INSITU__CODEC_PACKBITS || chain.codec[0].pad; /* else the padding may be elements */
    if (told) assert_int_equal(refuse(&chain, src, n, decoded + 1, NULL), INSITU_E_CORRUPT);
    if (told && decoded) assert_int_equal(refuse(&chain, src, n, decoded - 1, NULL), INSITU_E_CORRUPT);
    free(more);
    free(want);
  }
  *(format == 3 ? v3 : v2) += 1;
  free(src);
  insitu__codec_free(&chain.codec[0]);
  insitu__text_json_free(&j);
}
static void fixtures(void **state) {
  (void)state;
  int v2 = 0, v3 = 0;
  FILE *f = fopen(TEST_DATA "/codec/filters.jsonl", "r");
  char *line = NULL;
  size_t cap = 0;
  assert_non_null(f);
  for (ssize_t n; (n = getline(&line, &cap, f)) > 0;) {
    line[n - 1] = 0;
    fixture(line, (uint64_t)n - 1, &v2, &v3);
  }
  free(line);
  fclose(f);
  assert_true(v2 > 250 && v3 > 200);
}

static int finish(void **state) {
  insitu__codec_scratch_free(&scratch);
  return support_teardown(state);
}
int main(void) {
  insitu__codec_scratch_init(&scratch);
  const struct CMUnitTest tests[] = {cmocka_unit_test(fixtures)};
  return cmocka_run_group_tests(tests, support_setup, finish);
}
