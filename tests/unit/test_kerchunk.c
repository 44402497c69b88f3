/* References in JSON: every text in pieces of every size, what is refused, and tables against a
 * plain list of what was written. */
#include <stdlib.h>
static long allocations_left = -1; /* -1: memory never runs out */
static void *limited_realloc(void *p, size_t n) {
  if (allocations_left == 0) return NULL;
  allocations_left -= allocations_left > 0;
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) limited_realloc(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

/* ---- a text, read ---- */

struct read {
  struct insitu__refs refs;
  struct insitu__kerchunk kerchunk;
  insitu_error err;
  insitu_status status;
};
/* Feeds the text in pieces of so many bytes, each in memory of its own. */
static void feed(struct read *r, const char *text, uint64_t n, uint64_t piece) {
  uint64_t done = 0, end = 0, used;
  do {
    end = insitu__base_min(end + piece, n);
    char *copy = malloc(end - done + 1);
    assert_non_null(copy);
    memcpy(copy, text + done, end - done);
    r->status = insitu__kerchunk_feed(&r->kerchunk, copy, end - done, end == n, &used, &r->err);
    free(copy);
    done += used;
  } while (!r->status && end < n);
}
static void read_begin(struct read *r, const char *text, uint64_t n, uint64_t piece) {
  memset(r, 0, sizeof *r);
  insitu__refs_init(&r->refs);
  insitu__kerchunk_init(&r->kerchunk, &r->refs);
  feed(r, text, n, piece);
  if (!r->status && !insitu__refs_finish(&r->refs)) r->status = INSITU_E_NOMEM;
}
static void read_end(struct read *r) {
  insitu__kerchunk_free(&r->kerchunk);
  insitu__refs_free(&r->refs);
}
/* What a key is, as text: "=bytes" of what is inline, "url offset+bytes", "url" of a whole object,
 * "-" of nothing. */
static const char *is(struct read *r, const char *key) {
  static char text[600];
  struct insitu__refs_hit hit;
  struct insitu__text_buffer url = {.limit = 2 * INSITU__MAX_KEY};
  if (!insitu__refs_look_up(&r->refs, key, &hit)) return "-";
  if (hit.object) {
    snprintf(text, sizeof text, "=%.*s", (int)hit.object->n, (const char *)hit.object->bytes);
    return text;
  }
  const struct insitu__refs_table *t = hit.table;
  struct insitu__refs_entry e =
      t->kind == INSITU__REFS_DENSE ? t->entry[hit.number] : t->cell[hit.number].entry;
  uint64_t target = e.where >> 40, n = e.where & INSITU__REFS_LENGTH;
  if (target == INSITU__REFS_ABSENT) return "-";
  if (target == INSITU__REFS_INLINE) {
    snprintf(text, sizeof text, "=%.*s", (int)n, r->refs.bytes.text + e.offset);
    return text;
  }
  const char *cause = NULL;
  assert_true(insitu__text_buffer_reserve(&url, url.limit));
  if (target != INSITU__MAX_REFS_TARGETS)
    cause = insitu__kerchunk_url(&r->kerchunk, (uint32_t)target, &url);
  const char *name = target == INSITU__MAX_REFS_TARGETS ? "null" : url.n ? url.text : "";
  if (cause) snprintf(text, sizeof text, "! %s", cause);
  else if (n == INSITU__REFS_LENGTH) snprintf(text, sizeof text, "%.500s", name);
  else snprintf(text, sizeof text, "%.500s %" PRIu64 "+%" PRIu64, name, e.offset, n);
  insitu__text_buffer_free(&url);
  insitu__text_buffer_free(&url);
  return text;
}

/* ---- texts that are fine ---- */

struct expected {
  const char *key, *value;
};
static void fine(const char *text, const struct expected *expected) {
  uint64_t n = strlen(text);
  for (uint64_t piece = 1; piece <= n + 1; piece += piece < 40 ? 1 : n / 5 + 1) {
    struct read r;
    read_begin(&r, text, n, piece);
    if (r.status) fail_msg("%s: %s", text, r.err.message);
    for (const struct expected *e = expected; e->key; e++)
      if (strcmp(is(&r, e->key), e->value))
        fail_msg("%s, piece %d, key %s: '%s', not '%s'", text, (int)piece, e->key, is(&r, e->key),
            e->value);
    read_end(&r);
  }
}
#define FINE(text, ...) fine(text, (const struct expected[]){__VA_ARGS__, {NULL, NULL}})

static void test_versions(void **state) {
  (void)state;
  FINE("{\"a/0.0\":[\"s3://b/x\",8,100],\".zgroup\":\"{\\\"zarr_format\\\":2}\"}",
      {"a/0.0", "s3://b/x 8+100"}, {".zgroup", "={\"zarr_format\":2}"}, {"a/0.1", "-"},
      {"a/0", "-"}, {"b/0.0", "-"}, {"a", "-"});
  FINE(" { \"version\" : 1 , \"refs\" : { \"a/0.0\" : [ \"x\" , 0 , 1 ] } , \"more\" : {} } ",
      {"a/0.0", "x 0+1"}, {"more", "={}"});
  FINE("{\"version\":1,\"templates\":{},\"gen\":[ ],\"refs\":{}}", {"x", "-"});
  FINE("{}", {"x", "-"});
  /* templates may stand behind */
  FINE("{\"refs\":{\"a/1\":[\"{{u}}/x\"]},\"templates\":{\"u\":\"s3://b\"},\"version\":1}",
      {"a/1", "s3://b/x"}, {"a/0", "-"}, {"a/2", "-"});
}
static void test_values(void **state) {
  (void)state;
  FINE("{\"a\":\"text\",\"b\":{\"x\":[1,{\"y\":\"}]\"}]},\"c/0\":\"base64:aGVsbG8=\","
       "\"d\":\"base64:\",\"e\":\"\",\"f/0\":\"base6\"}",
      {"a", "=text"}, {"b", "={\"x\":[1,{\"y\":\"}]\"}]}"}, {"c/0", "=hello"}, {"d", "="},
      {"e", "="}, {"f/0", "=base6"});
  /* the url of null, and of nothing */
  FINE("{\"a/0\":[null,5,6],\"a/1\":[\"\",7,8],\"a/2\":[null]}", {"a/0", "null 5+6"},
      {"a/1", "null 7+8"}, {"a/2", "null"});
  /* the largest numbers that there may be */
  FINE("{\"a/0\":[\"x\",9223372036854775806,1],\"a/1\":[\"x\",0,1099511627774]}",
      {"a/0", "x 9223372036854775806+1"}, {"a/1", "x 0+1099511627774"});
}
static void test_escapes(void **state) {
  (void)state;
  FINE("{\"\\u0061\\/0\":[\"\\u00e4\\ud83d\\ude00\\\\x\",1,2],\"q\":\"\\\"\\b\\f\\n\\r\\t\"}",
      {"a/0", "\xc3\xa4\xf0\x9f\x98\x80\\x 1+2"}, {"q", "=\"\b\f\n\r\t"});
  FINE("{\"k\xc3\xa4/0\":\"\xe2\x82\xac\"}", {"k\xc3\xa4/0", "=\xe2\x82\xac"});
  /* half a pair */
  FINE("{\"a\":\"\\ud83d!\"}", {"a", "=\xef\xbf\xbd!"});
  FINE("{\"a/0\":[\"x\\ud83d\"],\"a/1\":[\"\\ude00\"]}", {"a/0", "x\xef\xbf\xbd"},
      {"a/1", "\xef\xbf\xbd"});
}
static void test_keys(void **state) {
  (void)state;
  /* the last of equal keys counts; keys that are none are left out */
  FINE("{\"a/0\":\"x\",\"a/0\":[\"y\",1,2],\"z\":\"1\",\"z\":\"2\",\"\":\"n\",\"a//b\":\"n\","
       "\"../etc\":\"n\",\"/x\":\"n\",\"x\\u0000y\":\"n\"}",
      {"a/0", "y 1+2"}, {"z", "=2"}, {"x", "-"});
  /* numbers with zeros before them, or too large, are names */
  FINE("{\"a/00\":\"p\",\"a/0\":\"q\",\"a/1234567890123456789\":\"r\",\"a/01.0\":\"s\"}",
      {"a/00", "=p"}, {"a/0", "=q"}, {"a/1234567890123456789", "=r"}, {"a/01.0", "=s"});
  /* all chunk keys of Zarr, arrays named by numbers, a root that is an array */
  FINE("{\"0/0/1\":\"a\",\"0/0.1\":\"b\",\"v/c/1/2\":\"c\",\"v/c.1.2\":\"d\",\"v/c\":\"e\","
       "\"3\":\"f\",\"1.2\":\"g\",\"c/4\":\"h\",\"0/.zarray\":\"i\",\"t/c\":[\"u\",3,4]}",
      {"0/0/1", "=a"}, {"0/0.1", "=b"}, {"v/c/1/2", "=c"}, {"v/c.1.2", "=d"}, {"v/c", "=e"},
      {"3", "=f"}, {"1.2", "=g"}, {"c/4", "=h"}, {"0/.zarray", "=i"}, {"t/c", "u 3+4"},
      {"v/c/1", "-"}, {"v/c.1", "-"}, {"0/0", "-"}, {"2", "-"});
  /* a scalar's chunk as VirtualiZarr writes it */
  FINE("{\"crs/\":[\"x\",3,8],\"g/s/\":\"base64:aGVsbG8=\",\"/\":\"n\",\"a//\":\"n\"}",
      {"crs/0", "x 3+8"}, {"g/s/0", "=hello"}, {"crs/1", "-"}, {"0", "-"}, {"a/0", "-"});
}
static void test_templates(void **state) {
  (void)state;
  FINE("{\"version\":1,\"templates\":{\"u\":\"s3://b/p\",\"f\":\"{{c}}-{{ d }}\",\"w\":\"\"},"
       "\"refs\":{\"a/0\":[\"{{u}}/x\",1,2],\"a/1\":[\"{{ u }}{{w}}\"],"
       "\"a/2\":[\"x{{f(c='1', d=\\\"two\\\")}}y\"],\"a/3\":[\"{{f(d=4,c=3)}}\"],"
       "\"a/4\":[\"{x}{{u\"],\"a/5\":[\"{{{u}}\"]}}",
      {"a/0", "s3://b/p/x 1+2"}, {"a/1", "s3://b/p"}, {"a/2", "x1-twoy"}, {"a/3", "3-4"},
      {"a/4", "{x}{{u"}, {"a/5", "! \"templates\" has no such name as it has in {{ }}"});
  /* cycles, names that are not there, and what is no text */
  FINE("{\"version\":1,\"templates\":{\"a\":\"{{b}}\",\"b\":\"{{a}}\",\"n\":5},"
       "\"refs\":{\"x/0\":[\"{{a}}\"],\"x/1\":[\"{{c}}\"],\"x/2\":[\"{{n}}\"],\"x/3\":[\"{{}}\"],"
       "\"x/4\":[\"{{a(b='1'}}\"],\"x/5\":[\"{{a(b='1)}}\"],\"x/6\":[\"{{a(b=)}}\"]}}",
      {"x/0", "! a template's text has a name in {{ }} that the reference gives no value for; "
              "templates within templates are not supported"},
      {"x/1", "! \"templates\" has no such name as it has in {{ }}"},
      {"x/2", "! a template is no text, or too long"}, {"x/3", "! a name in {{ }} is none"},
      {"x/4", "! a '(' in {{ }} is not closed"},
      {"x/5", "! a template's text has a name in {{ }} that the reference gives no value for; "
              "templates within templates are not supported"});
  /* without templates braces stand for themselves */
  FINE("{\"a/0\":[\"{{u}}/x\",1,2]}", {"a/0", "{{u}}/x 1+2"});
}

/* ---- texts that are refused ---- */

static void test_refused(void **state) {
  static const struct {
    const char *text;
    insitu_status status;
    const char *cause;
  } bad[] = {{"", INSITU_E_JSON, "ends before"}, {"[]", INSITU_E_JSON, "object is expected"},
      {"{", INSITU_E_JSON, "ends before"}, {"{\"a", INSITU_E_JSON, "ends before"},
      {"{\"a\":", INSITU_E_JSON, "ends before"}, {"{\"a\":\"x\"", INSITU_E_JSON, "ends before"},
      {"{\"a\":\"x\",}", INSITU_E_JSON, "quoted key"}, {"{,}", INSITU_E_JSON, "quoted key"},
      {"{\"a\" \"x\"}", INSITU_E_JSON, "':' is expected"},
      {"{\"a\":\"x\"} 1", INSITU_E_JSON, "more text"},
      {"{\"a\":\"x\" \"b\":\"y\"}", INSITU_E_JSON, "',' or '}'"},
      {"{\"a\":\"\\x\"}", INSITU_E_JSON, "unknown escape"},
      {"{\"a\":\"\\u12g4\"}", INSITU_E_JSON, "four hexadecimal"},
      {"{\"a\":\"\n\"}", INSITU_E_JSON, "control character"},
      {"{\"a\":{\"x\":]}}", INSITU_E_JSON, "its value"},
      {"{\"a\":{\"x\" 1}}", INSITU_E_JSON, "its value"}, {"{\"a\":{]}", INSITU_E_JSON, "its value"},
      {"{\"a\":nul}", INSITU_E_FORMAT, "neither a text"},
      {"{\"a\":null}", INSITU_E_FORMAT, "reference 'a': its value is neither a text"},
      {"{\"a\":1}", INSITU_E_FORMAT, "neither a text"},
      {"{\"a/0\":\"base64:a\"}", INSITU_E_FORMAT, "not base64"},
      {"{\"a/0\":\"base64:a*==\"}", INSITU_E_FORMAT, "not base64"},
      {"{\"a/0\":[]}", INSITU_E_FORMAT, "a reference is"},
      {"{\"a/0\":[1,2,3]}", INSITU_E_FORMAT, "a reference is"},
      {"{\"a/0\":[\"x\",1]}", INSITU_E_FORMAT, "a reference is"},
      {"{\"a/0\":[\"x\",1,2,3]}", INSITU_E_FORMAT, "a reference is"},
      {"{\"a/0\":[\"x\",-1,2]}", INSITU_E_FORMAT, "whole numbers"},
      {"{\"a/0\":[\"x\",1.5,2]}", INSITU_E_FORMAT, "whole numbers"},
      {"{\"a/0\":[\"x\",1e3,2]}", INSITU_E_FORMAT, "whole numbers"},
      {"{\"a/0\":[\"x\",01,2]}", INSITU_E_FORMAT, "whole numbers"},
      {"{\"a/0\":[\"x\",null,2]}", INSITU_E_FORMAT, "whole numbers"},
      {"{\"a/0\":[\"x\",9223372036854775808,2]}", INSITU_E_FORMAT, "below 2^63"},
      {"{\"a/0\":[\"x\",99999999999999999999999,2]}", INSITU_E_FORMAT, "below 2^63"},
      {"{\"a/0\":[\"x\",9223372036854775807,1]}", INSITU_E_FORMAT, "below 2^63"},
      {"{\"a/0\":[\"x\",0,1099511627775]}", INSITU_E_FORMAT, "2^40"},
      {"{\"version\":2,\"refs\":{}}", INSITU_E_UNSUPPORTED, "\"version\""},
      {"{\"version\":1,\"refs\":{},\"refs\":{}}", INSITU_E_FORMAT, "twice"},
      {"{\"version\":1,\"templates\":[],\"refs\":{}}", INSITU_E_FORMAT, "no object"},
      {"{\"version\":1,\"gen\":{},\"refs\":{}}", INSITU_E_FORMAT, "no list"},
      {"{\"version\":1,\"gen\":[{\"key\":\"a{{i}}\"}],\"refs\":{}}", INSITU_E_UNSUPPORTED,
          "save_json"},
      {"{\"a/4294967295.4294967295\":\"x\"}", INSITU_OK, ""},
      {"{\"a/4294967296.4294967296\":\"x\"}", INSITU_E_UNSUPPORTED, "2^64"},
      {"{\"a/999999999999999999.999999999999999999.1\":\"x\","
       "\"a/1.1.999999999999999999\":\"y\"}",
          INSITU_E_UNSUPPORTED, "2^64"}};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    for (uint64_t piece = 1; piece < 9; piece++) {
      struct read r;
      read_begin(&r, bad[i].text, strlen(bad[i].text), piece < 8 ? piece : 1000);
      if (r.status != bad[i].status || !strstr(r.err.message, bad[i].cause))
        fail_msg("%s, piece %d: %s: %s", bad[i].text, (int)piece, insitu_status_name(r.status),
            r.err.message);
      read_end(&r);
    }
}
static void test_deep(void **state) {
  char text[1000] = "{\"a\":";
  struct read r;
  (void)state;
  memset(text + 5, '{', 500);
  read_begin(&r, text, 505, 100);
  assert_int_equal(r.status, INSITU_E_JSON);
  assert_non_null(strstr(r.err.message, "INSITU__MAX_JSON_DEPTH"));
  read_end(&r);
}

/* ---- tables ---- */

/* Random keys in random order against a list of them: dense and sparse tables, of few axes and of
 * many, with numbers that grow beyond what their bits held. */
static void test_tables(void **state) {
  enum { MOST = 400 };
  static char text[MOST * 80], key[MOST][60];
  static uint64_t value[MOST];
  (void)state;
  for (int round = 0; round < support_rounds(300); round++) {
    int n = 1 + (int)support_below(MOST), ndim = 1 + (int)support_below(5);
    uint64_t spread = UINT64_C(1) << support_below(ndim == 1 ? 50 : ndim < 4 ? 20 : 12);
    char separator = support_below(2) ? '.' : '/';
    size_t at = (size_t)sprintf(text, "{");
    for (int i = 0; i < n; i++) {
      char *p = key[i] + sprintf(key[i], support_below(2) ? "a/" : "b/c/");
      for (int d = 0; d < ndim; d++) {
        uint64_t most = support_below(8) ? insitu__base_min(spread, 5) : spread;
        p += sprintf(p, "%" PRIu64, support_below(most));
        if (d + 1 < ndim) *p++ = separator;
      }
      *p = 0;
      value[i] = support_below(1 << 20);
      at += (size_t)sprintf(
          text + at, "%s\"%s\":[\"x\",%" PRIu64 ",1]", i ? "," : "", key[i], value[i]);
    }
    sprintf(text + at, "}");
    struct read r;
    read_begin(&r, text, strlen(text), 1 + support_below(5000));
    if (r.status) fail_msg("%s", r.err.message);
    for (int i = 0; i < n; i++) {
      int last = i;
      char want[40], other[70];
      for (int k = i; k < n; k++)
        if (!strcmp(key[k], key[i])) last = k;
      sprintf(want, "x %" PRIu64 "+1", value[last]);
      assert_string_equal(is(&r, key[i]), want);
      /* a key beside it, which may be there as well */
      memcpy(other, key[i], sizeof key[i]);
      strcat(other, "1");
      bool there = false;
      for (int k = 0; k < n; k++) there |= !strcmp(key[k], other);
      assert_int_equal(strcmp(is(&r, other), "-") != 0, there);
    }
    read_end(&r);
  }
}

/* Each allocation fails once: no memory is no bad input, and nothing is lost. */
static void test_no_memory(void **state) {
  static char text[40000];
  size_t at = (size_t)sprintf(
      text, "{\"version\":1,\"templates\":{\"u\":\"v\"},\"refs\":{\"a/.zarray\":{\"b\":1},");
  (void)state;
  for (int i = 0; i < 300; i++)
    at +=
        (size_t)sprintf(text + at, "\"a%d/%d.%d\":[\"{{u}}%d\",1,2],\"b/%d\":\"base64:aGVsbG8=\",",
            i % 50, i * 7919 % 1000, i, i, i);
  sprintf(text + at, "\"z\":\"\"}}");
  bool more = true;
  for (long n = 0; more; n += 1 + n / 50) {
    struct read r;
    allocations_left = n;
    memset(&r, 0, sizeof r);
    insitu__refs_init(&r.refs);
    insitu__kerchunk_init(&r.kerchunk, &r.refs);
    uint64_t used;
    r.status = insitu__kerchunk_feed(&r.kerchunk, text, strlen(text), true, &used, &r.err);
    if (!r.status && !insitu__refs_finish(&r.refs)) r.status = INSITU_E_NOMEM;
    more = allocations_left == 0;
    allocations_left = -1;
    if (r.status && r.status != INSITU_E_NOMEM) fail_msg("%ld: %s", n, r.err.message);
    if (!r.status) assert_string_equal(is(&r, "a1/919.1"), "v1 1+2");
    read_end(&r);
  }
}

/* More than a limit allows is no lack of memory. */
static void test_limits(void **state) {
  static const char text[] = "{\"x/0\":\"0123456789abcdef\",\"y/0\":[\"s3://bucket/object\"],"
                             "\"z/.zarray\":{}}";
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct read r;
    memset(&r, 0, sizeof r);
    insitu__refs_init(&r.refs);
    insitu__kerchunk_init(&r.kerchunk, &r.refs);
    if (i == 0) r.refs.bytes.limit = 16;
    if (i == 1) r.kerchunk.raw.limit = 17;
    if (i == 2) r.refs.text.limit = 3; /* the first table's prefix has 2 bytes, and an end */
    if (i == 3) r.refs.text.limit = 12;
    feed(&r, text, sizeof text - 1, sizeof text);
    assert_int_equal(r.status, INSITU_E_UNSUPPORTED);
    assert_non_null(strstr(r.err.message, "INSITU__MAX_REFS_BYTES"));
    read_end(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions), cmocka_unit_test(test_values),
      cmocka_unit_test(test_escapes), cmocka_unit_test(test_keys), cmocka_unit_test(test_templates),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_deep), cmocka_unit_test(test_tables),
      cmocka_unit_test(test_limits), cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
