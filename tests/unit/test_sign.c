/* Hashes and signatures by their published vectors, by what botocore, azure-storage-blob and
 * Python's cryptography signed (tests/data/sign.jsonl), dates both ways, and XML and INI, hostile
 * ones too. */
#include <stdlib.h>
static int allocations_left = -1; /* -1: memory never runs out */
static void *limited_realloc(void *p, size_t n) {
  if (allocations_left == 0) return NULL;
  allocations_left -= allocations_left > 0;
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) limited_realloc(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <setjmp.h>
#include <cmocka.h>
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

/* ---- helpers ---- */

static void unhex(const char *text, unsigned char *out) {
  for (; *text; text += 2)
    *out++ = (unsigned char)(insitu__text_hex(text[0]) * 16 + insitu__text_hex(text[1]));
}
static void assert_digest(const unsigned char digest[32], const char *want) {
  char hex[65];
  insitu__sign_hex(digest, 32, hex);
  assert_string_equal(hex, want);
}
static void assert_buffer(struct insitu__text_buffer *b, const char *want) { /* and frees it */
  assert_false(b->failed);
  assert_non_null(b->text);
  assert_int_equal(b->n, strlen(want));
  assert_string_equal(b->text, want);
  insitu__text_buffer_free(b);
}
struct lines { /* header lines of a signed request, beside those that it had before */
  unsigned n;
  char line[4][4096];
};
static void add_line(struct lines *l, const char *name, const char *value) {
  assert_true(l->n < 4);
  int n = snprintf(l->line[l->n], sizeof l->line[0], "%s: %s", name, value);
  assert_true(n < (int)sizeof l->line[0]);
  l->n++;
}
static const char *line_of(const struct lines *l, const char *name) { /* its value; "": none */
  for (unsigned i = 0; i < l->n; i++)
    if (!strncmp(l->line[i], name, strlen(name)) && !strncmp(l->line[i] + strlen(name), ": ", 2))
      return l->line[i] + strlen(name) + 2;
  return "";
}

/* A line of sign.jsonl: its strings. */
struct fixture {
  struct insitu__text_json json;
  char text[16384], pool[32768];
  size_t used;
};
static const char *decoded(struct fixture *f, int token) {
  char *out = f->pool + f->used;
  int64_t n = insitu__text_json_string(&f->json, token, out, sizeof f->pool - f->used);
  assert_true(n >= 0);
  f->used += (size_t)n + 1;
  return out;
}
static const char *member(struct fixture *f, const char *key) {
  return decoded(f, insitu__text_json_get(&f->json, 0, key));
}
static int64_t integer(struct fixture *f, const char *key) {
  int64_t v;
  assert_true(insitu__text_json_i64(&f->json, insitu__text_json_get(&f->json, 0, key), &v));
  return v;
}
static unsigned list(struct fixture *f, const char *key, const char **out) {
  int array = insitu__text_json_get(&f->json, 0, key);
  unsigned n = 0;
  for (int t = insitu__text_json_first(&f->json, array); t >= 0;
       t = insitu__text_json_next(&f->json, t))
    out[n++] = decoded(f, t);
  return n;
}
/* Calls one on each fixture of that kind; there are `want`. */
static void each(const char *kind, int want, void (*one)(struct fixture *)) {
  FILE *file = fopen(TEST_DATA "/sign.jsonl", "r");
  struct fixture *f = malloc(sizeof *f);
  assert_non_null(file);
  assert_non_null(f);
  while (fgets(f->text, sizeof f->text, file)) {
    insitu_error err = {0};
    f->used = 0;
    assert_int_equal(
        insitu__text_json_parse(&f->json, f->text, strlen(f->text), "fixture", &err), INSITU_OK);
    if (!strcmp(member(f, "kind"), kind)) one(f), want--;
    insitu__text_json_free(&f->json);
  }
  assert_int_equal(want, 0);
  free(f);
  fclose(file);
}

/* ---- hashes ---- */

static void test_sha256(void **state) {
  static const char *const vector[][2] = {/* FIPS 180-2, B.1 and B.2, and no bytes at all */
      {"", INSITU__SIGN_EMPTY},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
  unsigned char digest[32], again[32], text[300];
  struct insitu__sign_sha256 s;
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    insitu__sign_sha256(vector[i][0], strlen(vector[i][0]), digest);
    assert_digest(digest, vector[i][1]);
  }
  insitu__sign_sha256_init(&s); /* B.3 */
  memset(text, 'a', sizeof text);
  for (int left = 1000000, n = 1; left; left -= n, n = n * 7 % 301) {
    if (n > left) n = left;
    insitu__sign_sha256_add(&s, text, (uint64_t)n);
  }
  insitu__sign_sha256_end(&s, digest);
  assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (unsigned i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * 151 + 7);
  /* every length, in one piece, in two, and by another implementation */
  for (unsigned n = 0; n <= sizeof text; n++) {
    insitu__sign_sha256(text, n, digest);
    insitu__sign_sha256_init(&s);
    insitu__sign_sha256_add(&s, text, n * 5 / 7);
    insitu__sign_sha256_add(&s, NULL, 0);
    insitu__sign_sha256_add(&s, text + n * 5 / 7, n - n * 5 / 7);
    insitu__sign_sha256_end(&s, again);
    assert_memory_equal(digest, again, 32);
    if (n >= 64) { /* a block, whichever way the machine would go */
      uint32_t h[2][8];
      for (unsigned i = 0; i < 16; i++)
        h[i / 8][i % 8] = insitu__base_load32(text + i % 8 * 4) * (n + 1);
      insitu__sign_sha256_plain(h[0], text + n - 64);
      insitu__sign_sha256_block(h[1], text + n - 64);
      assert_memory_equal(h[0], h[1], sizeof h[0]);
    }
#ifdef INSITU_WITH_OPENSSL
    assert_int_equal(EVP_Digest(text, n, again, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(digest, again, 32);
#endif
  }
}

static void test_hmac(void **state) { /* RFC 4231, 4.2 to 4.8 but 4.6, which cuts the result */
  unsigned char key[131], text[200], digest[32];
  (void)state;
  memset(key, 0x0b, 20);
  insitu__sign_hmac(key, 20, "Hi There", 8, digest);
  assert_digest(digest, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  insitu__sign_hmac("Jefe", 4, "what do ya want for nothing?", 28, digest);
  assert_digest(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  memset(text, 0xdd, 50);
  insitu__sign_hmac(key, 20, text, 50, digest);
  assert_digest(digest, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  unhex("0102030405060708090a0b0c0d0e0f10111213141516171819", key);
  memset(text, 0xcd, 50);
  insitu__sign_hmac(key, 25, text, 50, digest);
  assert_digest(digest, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  memset(key, 0xaa, sizeof key);
  const char *large = "Test Using Larger Than Block-Size Key - Hash Key First";
  insitu__sign_hmac(key, sizeof key, large, strlen(large), digest);
  assert_digest(digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  large = "This is a test using a larger than block-size key and a larger than block-size data. "
          "The key needs to be hashed before "
          "being used by the HMAC algorithm.";
  insitu__sign_hmac(key, sizeof key, large, strlen(large), digest);
  assert_digest(digest, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  insitu__sign_hmac(NULL, 0, NULL, 0, digest);
  /* by Python's hmac */
  assert_digest(digest, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

/* ---- texts ---- */

static void test_base64(void **state) { /* RFC 4648, 10 */
  static const char *const want[] = {
      "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  unsigned char bytes[256], back[256];
  (void)state;
  for (unsigned n = 0; n < 7; n++) {
    struct insitu__text_buffer b = {0};
    assert_true(insitu__sign_base64("foobar", n, &b));
    assert_buffer(&b, want[n]);
  }
  for (unsigned i = 0; i < 256; i++) bytes[i] = (unsigned char)(i * 167);
  for (unsigned n = 0; n <= 256; n++) {
    struct insitu__text_buffer b = {0};
    assert_true(insitu__sign_base64(bytes, n, &b));
    assert_int_equal(insitu__text_base64(b.text, b.n, back, sizeof back), n);
    assert_memory_equal(bytes, back, n);
    insitu__text_buffer_free(&b);
  }
#ifdef INSITU_WITH_OPENSSL
  struct insitu__text_buffer b = {0};
  assert_true(
      insitu__sign_base64url("\xfb\xff\xfe", 3, &b) && insitu__sign_base64url("\xff", 1, &b));
  assert_buffer(&b, "-__-_w");
#endif
}

static void test_escape(void **state) {
  struct insitu__text_buffer b = {0};
  char all[256];
  (void)state;
  for (int i = 0; i < 256; i++) all[i] = (char)i;
  assert_true(insitu__sign_escape(&b, "a b/c+%\xc3\xbc~-._'\"", 15, true));
  assert_buffer(&b, "a%20b/c%2B%25%C3%BC~-._%27%22");
  assert_true(insitu__sign_escape(&b, "/", 1, false));
  assert_buffer(&b, "%2F");
  assert_true(insitu__sign_escape(&b, "", 0, false));
  assert_buffer(&b, "");
  for (int keep = 0; keep < 2; keep++) { /* every byte comes back */
    struct insitu__text_buffer back = {0};
    assert_true(insitu__sign_escape(&b, all, sizeof all, keep));
    assert_int_equal(b.n, 256 * 3 - 2 * (66 + keep)); /* 26 + 26 + 10 + 4 unreserved */
    assert_true(insitu__sign_unescape(&back, b.text, b.n));
    assert_int_equal(back.n, 256);
    assert_memory_equal(back.text, all, 256);
    insitu__text_buffer_free(&b);
    insitu__text_buffer_free(&back);
  }
  assert_true(insitu__sign_unescape(&b, "a+b%2f%2F", 9));
  assert_buffer(&b, "a+b//");
  static const char *const bad[] = {"%", "a%2", "%g0", "%0g", "%%20"};
  for (size_t i = 0; i < 5; i++) {
    assert_false(insitu__sign_unescape(&b, bad[i], strlen(bad[i])));
    insitu__text_buffer_free(&b);
  }
  assert_false(insitu__sign_unescape(&b, "%20", 2)); /* the end is where n says */
  insitu__text_buffer_free(&b);
}

/* ---- Signature Version 4 ---- */

static struct insitu__sign_aws example(void) {
  return (struct insitu__sign_aws){
      "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3"};
}
/* Signs a request with the headers that insitu__auth_sign adds to it. token: of a session, or NULL.
 * got: those headers and the signature's, if there is one. */
static insitu_status sign_v4(struct insitu__sign_day *day, const struct insitu__sign_aws *k,
    const char *token, const char *method, const char *host, const char *path, const char *query,
    const char *const *headers, unsigned n, const char *payload, int64_t now, struct lines *got) {
  struct insitu__text_buffer value = {.secret = true};
  struct lines own = {0};
  const char *all[80];
  char stamp[17];
  insitu__sign_iso_basic(now, stamp);
  add_line(&own, "x-amz-date", stamp);
  if (!strcmp(k->service, "s3")) add_line(&own, "x-amz-content-sha256", payload);
  if (token) add_line(&own, "x-amz-security-token", token);
  assert_true(n + own.n <= 80);
  for (unsigned i = 0; i < n; i++) all[i] = headers[i];
  for (unsigned i = 0; i < own.n; i++) all[n + i] = own.line[i];
  insitu_status status =
      insitu__sign_v4(day, k, method, host, path, query, all, n + own.n, payload, now, &value);
  if (status == INSITU_OK) {
    add_line(&own, "Authorization", value.text);
    *got = own;
  }
  insitu__text_buffer_free(&value);
  return status;
}
static void signs(insitu_status status) {
  assert_int_equal(status, INSITU_OK);
}
static void refuses(insitu_status status) { /* what is signed, and not for want of memory */
  assert_int_equal(status, INSITU_E_ARG);
}
enum { MAY_24 = 1369353600 }; /* 2013-05-24T00:00:00Z */

/* "Examples: Signature Calculations" of Amazon S3's documentation */
static void test_v4_examples(void **state) {
  static const struct {
    const char *method, *path, *query, *header[2], *payload, *names, *signature;
  } one[] = {{"GET", "/test.txt", "", {"Range: bytes=0-9"}, INSITU__SIGN_EMPTY,
                 "host;range;x-amz-content-sha256;x-amz-date",
                 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {"PUT", "/test%24file.text", "",
          {"Date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"},
          "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
          "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {"GET", "/", "lifecycle=", {NULL}, INSITU__SIGN_EMPTY, "host;x-amz-content-sha256;x-amz-date",
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"GET", "/", "max-keys=2&prefix=J", {NULL}, INSITU__SIGN_EMPTY,
          "host;x-amz-content-sha256;x-amz-date",
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}};
  struct insitu__sign_aws k = example();
  struct insitu__sign_day day = {0};
  (void)state;
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    struct lines got = {0};
    char want[400];
    unsigned n = one[i].header[1] ? 2 : one[i].header[0] != NULL;
    signs(sign_v4(&day, &k, NULL, one[i].method, "examplebucket.s3.amazonaws.com", one[i].path,
        one[i].query, one[i].header, n, one[i].payload, MAY_24 + (i == 3), &got));
    snprintf(want, sizeof want,
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=%s, Signature=%s",
        one[i].names, one[i].signature);
    assert_int_equal(got.n, 3);
    if (i == 3) { /* another second, another signature */
      assert_string_not_equal(line_of(&got, "Authorization"), want);
      got.n = 0;
      signs(sign_v4(&day, &k, NULL, one[i].method, "examplebucket.s3.amazonaws.com", one[i].path,
          one[i].query, one[i].header, n, one[i].payload, MAY_24, &got));
    }
    assert_string_equal(line_of(&got, "Authorization"), want);
    assert_string_equal(line_of(&got, "x-amz-date"), "20130524T000000Z");
    assert_string_equal(line_of(&got, "x-amz-content-sha256"), one[i].payload);
  }
}

/* kept over all fixtures: another secret, day or region must not find it */
static struct insitu__sign_day one_day;
static void one_v4(struct fixture *f) {
  const char *headers[8], *token = member(f, "token");
  struct insitu__sign_aws k = {
      member(f, "access"), member(f, "secret"), member(f, "region"), member(f, "service")};
  struct insitu__text_buffer path = {0};
  const char *key = member(f, "key");
  assert_true(insitu__sign_escape(&path, "/", 1, true) &&
              insitu__sign_escape(&path, key, strlen(key), true));
  assert_string_equal(path.text, member(f, "path"));
  unsigned n = list(f, "headers", headers);
  for (int again = 0; again < 2; again++) { /* the second time with the day's key */
    struct lines got = {0};
    signs(sign_v4(&one_day, &k, *token ? token : NULL, member(f, "method"), member(f, "host"),
        path.text, member(f, "query"), headers, n, member(f, "payload"), integer(f, "now"), &got));
    assert_string_equal(line_of(&got, "Authorization"), member(f, "authorization"));
    assert_string_equal(line_of(&got, "x-amz-date"), member(f, "date"));
    assert_string_equal(line_of(&got, "x-amz-content-sha256"), member(f, "content"));
    assert_string_equal(line_of(&got, "x-amz-security-token"), token);
  }
  insitu__text_buffer_free(&path);
}
static void test_v4_botocore(void **state) {
  (void)state;
  each("v4", 60, one_v4);
}

static bool try_v4(const struct insitu__sign_aws *k, const char *token, const char *host,
    const char *path, const char *query, const char *header) {
  struct insitu__sign_day day = {0};
  struct lines got = {0};
  insitu_status status = sign_v4(&day, k, token, "GET", host, path, query, &header, header != NULL,
      INSITU__SIGN_EMPTY, MAY_24, &got);
  bool ok = status == INSITU_OK;
  if (!ok) refuses(status);
  assert_int_equal(got.n, ok ? 3u + (token != NULL) : 0);
  return ok;
}
static void test_v4_refused(void **state) {
  struct insitu__sign_aws k = example(), bad;
  const char *many[70];
  struct insitu__sign_day day = {0};
  struct lines got = {0};
  (void)state;
  assert_true(try_v4(&k, NULL, "h", "/", "", "x-amz-a: b") &&
              try_v4(&k, NULL, "h", "/", "a=b", NULL) &&
              try_v4(&k, NULL, "h", "/", "", "x-amz-a:"));
  static const char *const headers[] = {
      "", "x-amz-a", ": b", "x-amz-a b: c", "x-amz-a: b\r\nx-evil: c", "x-amz-a\n: b", "x: \x7f"};
  for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
    assert_false(try_v4(&k, NULL, "h", "/", "", headers[i]));
  static const char *const words[] = {"", "a b", "a\r\nx-evil: c", "\xff", "a\t"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    bad = k, bad.access_key = words[i];
    assert_false(try_v4(&bad, NULL, "h", "/", "", NULL));
    if (!insitu__text_printable(words[i])) assert_false(try_v4(&k, words[i], "h", "/", "", NULL));
    bad = k, bad.region = words[i];
    assert_false(try_v4(&bad, NULL, "h", "/", "", NULL));
    assert_false(
        try_v4(&k, NULL, words[i], "/", "", NULL) || try_v4(&k, NULL, "h", words[i], "", NULL));
    assert_true(!*words[i] || !try_v4(&k, NULL, "h", "/", words[i], NULL));
  }
  bad = k, bad.region = "a/b";
  assert_false(try_v4(&bad, NULL, "h", "/", "", NULL));
  for (unsigned i = 0; i < 70; i++) many[i] = "x-amz-a: b";
  signs(sign_v4(&day, &k, NULL, "GET", "h", "/", "", many, INSITU__MAX_SIGN_ITEMS - 3,
      INSITU__SIGN_EMPTY, 0, &got));
  got.n = 0;
  refuses(sign_v4(&day, &k, NULL, "GET", "h", "/", "", many, INSITU__MAX_SIGN_ITEMS - 2,
      INSITU__SIGN_EMPTY, 0, &got));
  assert_int_equal(got.n, 0);
}

/* Equal names stand in one line, in their order; what a proxy changes is left out. */
static void test_v4_headers(void **state) {
  struct insitu__sign_aws k = example();
  const char *plain[] = {"x-amz-meta-a: 1,3,2", "range: bytes=1-2"};
  const char *other[] = {"User-Agent: x", "X-Amz-Meta-A:1", "Accept-Encoding: identity",
      "RANGE:  bytes=1-2 ", "x-amz-meta-A: 3", "Host: other", "X-AMZ-META-A:2", "Expect:"};
  struct insitu__sign_day day = {0};
  struct lines one = {0}, two = {0};
  (void)state;
  signs(sign_v4(&day, &k, NULL, "GET", "h", "/", "", plain, 2, INSITU__SIGN_EMPTY, MAY_24, &one));
  signs(sign_v4(&day, &k, NULL, "GET", "h", "/", "", other, 8, INSITU__SIGN_EMPTY, MAY_24, &two));
  assert_string_equal(line_of(&one, "Authorization"), line_of(&two, "Authorization"));
  assert_non_null(strstr(line_of(&one, "Authorization"),
      "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date;x-amz-meta-a,"));
  k.secret_key = "another"; /* the day's key is not this one's */
  two.n = 0;
  signs(sign_v4(&day, &k, NULL, "GET", "h", "/", "", plain, 2, INSITU__SIGN_EMPTY, MAY_24, &two));
  assert_string_not_equal(line_of(&one, "Authorization"), line_of(&two, "Authorization"));
}

/* runs out at every allocation: nothing is added, nothing leaks */
static void test_memory(void **state) {
  struct insitu__sign_aws k = example();
  const char *headers[] = {"x-ms-date: Fri, 24 May 2013 00:00:00 GMT", "x-ms-version: 2021-08-06"};
  char out[8];
  bool ok = false;
  (void)state;
  for (int n = 0; !ok; n++) {
    struct insitu__sign_day day = {0};
    struct lines got = {0};
    allocations_left = n;
    insitu_status status = sign_v4(
        &day, &k, "token", "GET", "h", "/a", "b=c", headers, 2, INSITU__SIGN_EMPTY, MAY_24, &got);
    ok = status == INSITU_OK;
    assert_int_equal(status, ok ? INSITU_OK : INSITU_E_NOMEM);
    allocations_left = -1;
    assert_int_equal(got.n, ok ? 4 : 0);
    assert_true(n < 30 && (ok || n < 29) && (!ok || n > 4));
  }
  ok = false;
  for (int n = 0; !ok; n++) {
    struct insitu__text_buffer b = {0};
    allocations_left = n;
    insitu_status status = insitu__sign_azure(
        "account", (const unsigned char *)"key", 3, "GET", "/c", "a=b", headers, 2, &b);
    ok = status == INSITU_OK;
    assert_int_equal(status, ok ? INSITU_OK : INSITU_E_NOMEM);
    allocations_left = -1;
    insitu__text_buffer_free(&b);
    assert_true(n < 10 && (!ok || n > 1));
  }
  /* it needs no memory: else its lack would look like an answer without the element */
  allocations_left = 0;
  assert_true(insitu__sign_xml_find("<a>b</a>", 8, "a", out, sizeof out));
  allocations_left = -1;
  assert_string_equal(out, "b");
}

/* ---- Azure ---- */

static void one_azure(struct fixture *f) {
  const char *headers[16], *secret = member(f, "secret");
  unsigned char key[64];
  struct insitu__text_buffer b = {0};
  assert_int_equal(insitu__text_base64(secret, strlen(secret), key, sizeof key), 64);
  unsigned n = list(f, "headers", headers);
  char length[64];
  snprintf(length, sizeof length, "Content-Length: %s", member(f, "length"));
  if (strcmp(length, "Content-Length: 0") != 0) headers[n++] = length; /* 0 is not signed */
  signs(insitu__sign_azure(member(f, "account"), key, sizeof key, member(f, "method"),
      member(f, "path"), member(f, "query"), headers, n, &b));
  assert_buffer(&b, member(f, "authorization"));
}
static void test_azure(void **state) {
  static const char *const query[][2] = {/* the same to the service */
      {"comp=list&prefix=a%2Fb&restype=container", "restype=container&&comp=list&PREFIX=a/b"},
      {"a=1%2C2", "a=1&a=2"}, {"a=", "a"}, {"a=b=c", "a=b%3dc"}};
  (void)state;
  each("azure", 30, one_azure);
  for (size_t i = 0; i < sizeof query / sizeof *query; i++) {
    struct insitu__text_buffer b[2] = {{0}, {0}};
    for (int k = 0; k < 2; k++)
      signs(insitu__sign_azure(
          "a", (const unsigned char *)"k", 1, "GET", "/c", query[i][k], NULL, 0, &b[k]));
    assert_buffer(&b[0], b[1].text);
    insitu__text_buffer_free(&b[1]);
  }
  struct insitu__text_buffer text = {0}; /* as Microsoft's documentation prints what is signed */
  struct insitu__sign_items s = {0};
  struct insitu__sign_item item;
  assert_true(
      insitu__sign_header("x-ms-version: 2015-02-21", &item) && insitu__sign_insert(&s, item));
  assert_true(insitu__sign_header("X-Ms-Date: Fri, 26 Jun 2015 23:39:12 GMT ", &item) &&
              insitu__sign_insert(&s, item));
  assert_true(insitu__sign_azure_text(
      &text, "myaccount", "GET", "/mycontainer", "restype=container&comp=metadata&timeout=20", &s));
  assert_buffer(&text, "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 "
                       "GMT\nx-ms-version:2015-02-21\n"
                       "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20");
}
static void test_azure_refused(void **state) {
  static const char *const bad[][4] = {{"a", "/c", "a=%", NULL}, {"a", "/c", "a=b c", NULL},
      {"a", "/c d", "", NULL}, {"a\n", "/c", "", NULL}, {"", "/c", "", NULL}, {"a", "", "", NULL},
      {"a", "/c", "", "x-ms-a"}, {"a", "/c", "", "x-ms-a: b\r\nc: d"}};
  const char *many[INSITU__MAX_SIGN_ITEMS + 1];
  struct insitu__text_buffer b = {0};
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    refuses(insitu__sign_azure(bad[i][0], (const unsigned char *)"k", 1, "GET", bad[i][1],
        bad[i][2], &bad[i][3], bad[i][3] != NULL, &b));
  for (unsigned i = 0; i <= INSITU__MAX_SIGN_ITEMS; i++) many[i] = "x-ms-a: b";
  refuses(insitu__sign_azure(
      "a", (const unsigned char *)"k", 1, "GET", "/c", "", many, INSITU__MAX_SIGN_ITEMS + 1, &b));
  assert_int_equal(b.n, 0);
  insitu__text_buffer_free(&b);
}

/* ---- RS256 ---- */

#ifdef INSITU_WITH_OPENSSL
static void one_rs256(struct fixture *f) {
  struct insitu__text_buffer b = {0};
  insitu_error err = {0};
  const char *pem = member(f, "pem");
  assert_int_equal(insitu__sign_rs256(pem, strlen(pem), member(f, "text"), &b, &err), INSITU_OK);
  assert_buffer(&b, member(f, "token"));
}
static void refused_rs256(const char *pem, uint64_t n) {
  struct insitu__text_buffer b = {0};
  insitu_error err = {0};
  assert_int_equal(insitu__sign_rs256(pem, n, "a.b", &b, &err), INSITU_E_AUTH);
  assert_non_null(strstr(err.message, "private_key is no RSA key"));
  assert_null(b.text);
}
static void test_rs256(void **state) {
  EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"),
           *rsa = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
  BIO *out[2] = {BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem())};
  char *text;
  (void)state;
  each("rs256", 3, one_rs256);
  ERR_clear_error();
  ERR_raise(ERR_LIB_USER, 7); /* the program's own */
  assert_int_equal(PEM_write_bio_PrivateKey(out[0], key, NULL, NULL, 0, NULL, NULL), 1);
  assert_int_equal(PEM_write_bio_PrivateKey(out[1], rsa, EVP_aes_128_cbc(),
                       (const unsigned char *)"word", 4, NULL, NULL),
      1);
  for (int i = 0; i < 2; i++) { /* an elliptic curve, a password: nobody is asked for it */
    uint64_t n = (uint64_t)BIO_get_mem_data(out[i], &text);
    refused_rs256(text, n);
    BIO_free(out[i]);
  }
  refused_rs256("", 0);
  refused_rs256("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 56);
  refused_rs256("", INSITU__MAX_PEM + 1);
  assert_int_equal(ERR_GET_REASON(ERR_get_error()), 7);
  assert_int_equal(ERR_get_error(), 0);
  EVP_PKEY_free(key);
  EVP_PKEY_free(rsa);
}
#endif

/* ---- dates ---- */

static void one_date(struct fixture *f) {
  int64_t seconds = integer(f, "seconds"), got;
  char http[30], basic[17];
  insitu__sign_http_date(seconds, http);
  assert_string_equal(http, member(f, "http"));
  insitu__sign_iso_basic(seconds, basic);
  assert_string_equal(basic, member(f, "basic"));
  assert_true(insitu__sign_parse_http_date(http, &got) && got == seconds);
  assert_true(insitu__sign_parse_iso(basic, &got) && got == seconds);
  assert_true(insitu__sign_parse_iso(member(f, "iso"), &got) && got == seconds);
  assert_true(insitu__sign_parse_iso(member(f, "offset"), &got) && got == seconds);
}
static void test_dates(void **state) {
  int64_t got = 5;
  char http[30], basic[17];
  (void)state;
  each("date", 40, one_date);
  for (int64_t t = INT64_C(-62135596800); t < INT64_C(253402300800); t += 86400 * 11 + 12345) {
    insitu__sign_http_date(t, http);
    insitu__sign_iso_basic(t, basic);
    assert_true(insitu__sign_parse_http_date(http, &got) && got == t);
    assert_true(insitu__sign_parse_iso(basic, &got) && got == t);
  }
  assert_true(insitu__sign_parse_iso("2024-05-01T12:00:00.999Z", &got) && got == 1714564800);
  insitu__sign_http_date(INT64_MAX, http); /* years that no date has stay at the ends */
  assert_string_equal(http, "Fri, 31 Dec 9999 23:59:59 GMT");
  insitu__sign_iso_basic(INT64_MIN, basic);
  assert_string_equal(basic, "00010101T000000Z");
  got = 5;
  static const char *const bad_http[] = {"", "Tue", "Tue, 15 Nov 1994 08:12:31",
      "Tue, 15 Nov 1994 08:12:31 UTC", "Tue, 15 Nov 1994 08:12:31 GMT ",
      "Wed, 15 Nov 1994 08:12:31 GMT", "tue, 15 Nov 1994 08:12:31 GMT",
      "Tue, 5 Nov 1994 08:12:31 GMT", "Tue, 15 nov 1994 08:12:31 GMT",
      "Tue, 15 Nov 94 08:12:31 GMT", "Tue, 15 Nov 1994 24:12:31 GMT",
      "Tue, 15 Nov 1994 08:60:31 GMT", "Tue, 15 Nov 1994 08:12:60 GMT",
      "Wed, 29 Feb 2023 08:12:31 GMT", "Tue, 00 Nov 1994 08:12:31 GMT",
      "Tue, 15 Nov 0000 08:12:31 GMT", "Tuesday, 15-Nov-94 08:12:31 GMT",
      "Tue Nov 15 08:12:31 1994", "Tue, 15 Nov 1994 08:12:31 +0000"};
  for (size_t i = 0; i < sizeof bad_http / sizeof *bad_http; i++)
    assert_false(insitu__sign_parse_http_date(bad_http[i], &got));
  static const char *const bad_iso[] = {"", "2024", "2024-05-01", "2024-05-01T12:00:00",
      "2024-05-01 12:00:00Z", "2024-05-01T12:00:00z", "2024-05-01T12:00Z", "2024-05-01T12:00:00.Z",
      "2024-05-01T12:00:00,5Z", "2024-0501T12:00:00Z", "2024-05-01T120000Z", "20240501T12:00:00Z",
      "20240501T120000", "20240501T120000.5Z", "20240501T120000+01:00", "2024-02-30T12:00:00Z",
      "2024-13-01T12:00:00Z", "0000-01-01T00:00:00Z", "2024-05-01T24:00:00Z",
      "2024-05-01T12:00:00Z ", "2024-05-01T12:00:00+1:00", "2024-05-01T12:00:00+24:00",
      "2024-05-01T12:00:00+01", "12024-05-01T12:00:00Z", "-024-05-01T12:00:00Z"};
  for (size_t i = 0; i < sizeof bad_iso / sizeof *bad_iso; i++)
    if (insitu__sign_parse_iso(bad_iso[i], &got)) fail_msg("%s", bad_iso[i]);
  assert_int_equal(got, 5);
}

/* ---- XML ---- */

/* What the scanner makes of a text, in short: "<name@depth", "=text", ">name@depth", ".", "!". Of a
 * copy of exactly n bytes: the sanitizer sees a read beyond. */
static const char *told(const char *text, size_t n) {
  static char out[2048];
  char *copy = malloc(n ? n : 1);
  assert_non_null(copy);
  memcpy(copy, text, n);
  struct insitu__sign_xml x = {.text = copy, .n = n};
  size_t used = 0;
  for (int piece = 0; piece < INSITU__SIGN_XML_DONE;) {
    struct insitu__text_buffer b = {0};
    piece = insitu__sign_xml_next(&x);
    assert_true(used < sizeof out - 200);
    char *at = out + used;
    size_t room = sizeof out - used;
    switch (piece) {
    case INSITU__SIGN_XML_START:
      used += (size_t)snprintf(at, room, "<%.*s@%u", (int)x.name.n, x.name.text, x.depth);
      break;
    case INSITU__SIGN_XML_END:
      used += (size_t)snprintf(at, room, ">%.*s@%u", (int)x.name.n, x.name.text, x.depth);
      break;
    case INSITU__SIGN_XML_TEXT:
      if (insitu__sign_xml_decode(&x, &b))
        used += (size_t)snprintf(at, room, "=%s@%u", b.text, x.depth);
      else used += (size_t)snprintf(at, room, "=!");
      break;
    default: snprintf(at, room, piece == INSITU__SIGN_XML_DONE ? "." : "!");
    }
    insitu__text_buffer_free(&b);
  }
  assert_true(insitu__sign_xml_next(&x) >= INSITU__SIGN_XML_DONE); /* and stays so */
  free(copy);
  return out;
}
static void test_xml(void **state) {
  static const char *const one[][2] = {{"<a/>", "<a@1>a@1."}, {"<a></a>", "<a@1>a@1."},
      {"<a> </a >", "<a@1= @1>a@1."},
      {"\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- x "
       "--><a><b>1</b><c/>2</a>\n<!-- y --><?z?> ",
          "<a@1<b@2=1@2>b@2<c@2>c@2=2@1>a@1."},
      {"<s3:List xmlns:s3=\"http://x/\" a='\"' b = \">/\"\n><s3:Key>k</s3:Key></s3:List>",
          "<List@1<Key@2=k@2>Key@2>List@1."},
      {"<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#xfc;&#x96f2;&#x1F9CA;&#1;</a>",
          "<a@1=<>&\"'AB\xc3\xbc\xe9\x9b\xb2\xf0\x9f\xa7\x8a\x01@1>a@1."},
      {"<a><![CDATA[<b>&amp;]]]]>x<![CDATA[]]></a>", "<a@1=<b>&amp;]]@1=x@1=@1>a@1."},
      {"<a>1\r\n2\r3&#13;\r</a>", "<a@1=1\n2\n3\r\n@1>a@1."},
      {"<a>1<!-- <b> -->2<?pi <c>?>3</a>", "<a@1=1@1=2@1=3@1>a@1."},
      {"<a-b.c_d1/>", "<a-b.c_d1@1>a-b.c_d1@1."},
      {"<\xc3\xbc>1</\xc3\xbc>", "<\xc3\xbc@1=1@1>\xc3\xbc@1."},
      /* not XML, or more than is taken */
      {"", "!"}, {" ", "!"}, {"a", "!"}, {"<a>", "<a@1!"}, {"<a", "!"}, {"<", "!"}, {"</a>", "!"},
      {"<a></b>", "<a@1!"}, {"<a></a", "<a@1!"}, {"<a><b></a></b>", "<a@1<b@2!"},
      {"<a/><b/>", "<a@1>a@1!"}, {"<a/>x", "<a@1>a@1!"}, {"x<a/>", "!"},
      {"<a/><![CDATA[x]]>", "<a@1>a@1!"}, {"<a>x", "<a@1!"}, {"<a><!-- </a>", "<a@1!"},
      {"<a><![CDATA[</a>", "<a@1!"}, {"<a><?x</a>", "<a@1!"}, {"<1/>", "!"}, {"<a b/>", "!"},
      {"<a b=c/>", "!"}, {"<a b='c/>", "!"}, {"<a b='<'/>", "!"}, {"<a b='1'c='2'/>", "!"},
      {"<a /b>", "!"}, {"< a/>", "!"}, {"<a>< /a>", "<a@1!"}, {"<a>&nbsp;</a>", "<a@1=!>a@1."},
      {"<a>&</a>", "<a@1=!>a@1."}, {"<a>&#;</a>", "<a@1=!>a@1."}, {"<a>&#x;</a>", "<a@1=!>a@1."},
      {"<a>&#0;</a>", "<a@1=!>a@1."}, {"<a>&#xD800;</a>", "<a@1=!>a@1."},
      {"<a>&#x110000;</a>", "<a@1=!>a@1."}, {"<a>&#4294967361;</a>", "<a@1=!>a@1."},
      {"<a>&#a;</a>", "<a@1=!>a@1."}, {"<a>&#65</a>", "<a@1=!>a@1."}, {"<a>&lt</a>", "<a@1=!>a@1."},
      {"<a>\x01</a>", "<a@1=!>a@1."}, {"<!DOCTYPE a><a/>", "!"},
      {"<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "!"}, {"<a><!ELEMENT b></a>", "<a@1!"}};
  (void)state;
  for (size_t i = 0; i < sizeof one / sizeof *one; i++)
    if (strcmp(told(one[i][0], strlen(one[i][0])), one[i][1]))
      fail_msg("%s: %s, not %s", one[i][0], told(one[i][0], strlen(one[i][0])), one[i][1]);
  assert_string_equal(told("<a>\0</a>", 8), "<a@1=!>a@1.");
}

static void test_xml_depth(void **state) {
  char text[7 * 40 + 1];
  (void)state;
  for (unsigned depth = INSITU__MAX_XML_DEPTH; depth <= INSITU__MAX_XML_DEPTH + 1; depth++) {
    size_t n = 0;
    struct insitu__sign_xml x = {.text = text};
    unsigned starts = 0, ends = 0;
    int piece;
    for (unsigned i = 0; i < depth; i++) n += (size_t)snprintf(text + n, sizeof text - n, "<a>");
    for (unsigned i = 0; i < depth; i++) n += (size_t)snprintf(text + n, sizeof text - n, "</a>");
    x.n = n;
    while ((piece = insitu__sign_xml_next(&x)) < INSITU__SIGN_XML_DONE) {
      starts += piece == INSITU__SIGN_XML_START;
      ends += piece == INSITU__SIGN_XML_END;
    }
    assert_int_equal(
        piece, depth == INSITU__MAX_XML_DEPTH ? INSITU__SIGN_XML_DONE : INSITU__SIGN_XML_BAD);
    assert_int_equal(starts, INSITU__MAX_XML_DEPTH);
    assert_int_equal(ends, depth == INSITU__MAX_XML_DEPTH ? depth : 0);
  }
}

static void test_xml_find(void **state) {
  static const char listing[] =
      "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>a &lt;b&gt; "
      "<i>not</i> c</Message>"
      "<s:Region xmlns:s='x'>eu-<!-- - "
      "-->central<![CDATA[-1]]></s:Region><Empty/><Nul>&#0;</Nul><Region>second</Region><Cut>abc";
  char out[32];
  (void)state;
  assert_true(insitu__sign_xml_find(listing, sizeof listing - 1, "Code", out, sizeof out));
  assert_string_equal(out, "AuthorizationHeaderMalformed");
  assert_true(insitu__sign_xml_find(listing, sizeof listing - 1, "Code", out, 29));
  assert_false(insitu__sign_xml_find(listing, sizeof listing - 1, "Code", out, 28));
  assert_true(insitu__sign_xml_find(listing, sizeof listing - 1, "Message", out, sizeof out));
  assert_string_equal(out, "a <b>  c");
  assert_true(insitu__sign_xml_find(listing, sizeof listing - 1, "Region", out, sizeof out));
  assert_string_equal(out, "eu-central-1");
  assert_true(insitu__sign_xml_find(listing, sizeof listing - 1, "Empty", out, 2));
  assert_string_equal(out, "");
  static const char *const none[] = {"Nul", "Cut", "Absent", "code", "Cod", "Region2", ""};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(insitu__sign_xml_find(listing, sizeof listing - 1, none[i], out, sizeof out));
  for (size_t n = 0; n < sizeof listing; n++) { /* cut off anywhere */
    char *copy = malloc(n ? n : 1);
    memcpy(copy, listing, n);
    bool found = insitu__sign_xml_find(copy, n, "Code", out, sizeof out);
    assert_true(found == (n >= (size_t)(strstr(listing, "<Message") - listing)));
    free(copy);
  }
}

/* A listing, in the way that one is read. */
static void test_xml_listing(void **state) {
  static const char listing[] =
      "<ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>false</IsTruncated>"
      "<Contents><Key>a&amp;b</Key><Size>12</Size><Owner><Key>x</Key></Owner></Contents>"
      "<Contents><Key/><Size>0</Size></Contents></ListBucketResult>";
  struct insitu__sign_xml x = {.text = listing, .n = sizeof listing - 1};
  char all[100] = "";
  int piece;
  (void)state;
  while ((piece = insitu__sign_xml_next(&x)) < INSITU__SIGN_XML_DONE) {
    struct insitu__text_buffer b = {0};
    if (piece != INSITU__SIGN_XML_START || x.depth != 3 || !insitu__sign_xml_is(&x, "Key"))
      continue;
    assert_true(insitu__sign_xml_content(&x, &b));
    strcat(strcat(all, b.text), ";");
    insitu__text_buffer_free(&b);
  }
  assert_int_equal(piece, INSITU__SIGN_XML_DONE);
  assert_string_equal(all, "a&b;;");
}

/* ---- INI ---- */

static void test_ini(void **state) {
  static const char text[] =
      "# comment\n; comment\n\n[default]\r\nregion = us-east-1\r\naws_access_key_id=AKIA # mine\n"
      "aws_secret_access_key = a=b#c;d\n[profile  \"two words\" ] # x\nregion=eu-west-1 ; here\ns3 "
      "=\n  max = 7\n"
      "\tregion = nested\n  # comment\n  [nested]\nEmpty=\n"
      "[sso-session  y]\nsso_region=x\n[default]\nREGION = last\n[profile z]\n  role_arn = arn\n  "
      "region = indented\n"
      "    nested = 1\n [profile none]\n";
  static const char want[] =
      "/default/region=us-east-1;/default/aws_access_key_id=AKIA;/default/"
      "aws_secret_access_key=a=b#c;d;"
      "profile/two words/region=eu-west-1;profile/two words/s3=;profile/two "
      "words/Empty=;sso-session/y/sso_region=x;"
      "/default/REGION=last;profile/z/role_arn=arn;profile/z/region=indented;";
  char all[1024] = "";
  char *copy = malloc(sizeof text - 1);
  struct insitu__sign_ini x = {.text = copy, .n = sizeof text - 1};
  int piece;
  (void)state;
  memcpy(copy, text, sizeof text - 1);
  while ((piece = insitu__sign_ini_piece(&x)) < INSITU__SIGN_INI_DONE) {
    size_t n = strlen(all);
    if (piece == INSITU__SIGN_INI_SECTION) continue;
    snprintf(all + n, sizeof all - n, "%.*s/%.*s/%.*s=%.*s;", (int)x.kind.n, x.kind.text,
        (int)x.name.n, x.name.text, (int)x.key.n, x.key.text, (int)x.value.n, x.value.text);
  }
  assert_int_equal(piece, INSITU__SIGN_INI_DONE);
  assert_string_equal(all, want);
  assert_int_equal(insitu__sign_ini_piece(&x), INSITU__SIGN_INI_DONE);
  assert_int_equal(insitu__sign_ini_bad_line(copy, sizeof text - 1), 0);
  free(copy);
  static const struct {
    const char *kind, *name, *key, *value;
  } one[] = {{"", "default", "region", "last"}, {"", "default", "aws_access_key_id", "AKIA"},
      {"profile", "two words", "region", "eu-west-1"}, {"profile", "two words", "empty", ""},
      {"profile", "z", "role_arn", "arn"}, {"sso-session", "y", "sso_region", "x"},
      {"", "z", "role_arn", NULL}, {"profile", "default", "region", NULL},
      {"profile", "Z", "role_arn", NULL}, {"", "default", "max", NULL}, {"", "", "region", NULL},
      {"", "default", "", NULL}, {"profile", "two words", "max", NULL},
      {"profile", "z", "nested", NULL}};
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    struct insitu__sign_span value = {0};
    bool found =
        insitu__sign_ini_find(text, sizeof text - 1, one[i].kind, one[i].name, one[i].key, &value);
    if (found != (one[i].value != NULL)) fail_msg("%s %s", one[i].name, one[i].key);
    if (found && (value.n != strlen(one[i].value) || memcmp(value.text, one[i].value, value.n)))
      fail_msg("%s %s: %.*s", one[i].name, one[i].key, (int)value.n, value.text);
  }
  assert_true(insitu__sign_ini_find(text, sizeof text - 1, "profile", "none", NULL, NULL));
  assert_true(insitu__sign_ini_find(text, sizeof text - 1, "", "default", NULL, NULL));
  assert_false(insitu__sign_ini_find(text, sizeof text - 1, "", "none", NULL, NULL));
  assert_false(insitu__sign_ini_find(text, sizeof text - 1, "profile", "nested", NULL, NULL));
}
/* Lines that are nothing known are told, and not passed over: what they say may be who the user is.
 */
static void test_ini_hostile(void **state) {
  static const struct {
    const char *text;
    uint64_t bad; /* line; 0: none is */
  } cases[] = {{"", 0}, {"[", 1}, {"]", 1}, {"[]", 1}, {"[ ]", 1}, {"[a", 1}, {"[a]=", 0},
      {"[a]\n=", 2}, {"[a]\n#=", 0}, {"[a]\n k=v", 0}, {"[\"\"]\nk=v", 1}, {"[a]\nk", 2},
      {"[profile]k=v", 0}, {"\r\n\r\n", 0}, {"[a]\r", 0}, {"k=v", 1}, {"\xef\xbb\xbf[a]\nk=v", 1},
      {"[a]\nk=v\n x\n\nk: v=w", 5}, {"[a]\nk v = w", 2}, {"[a]\nk=v\n[b\nk=v", 3}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = strlen(cases[i].text);
    char *copy = malloc(n ? n : 1);
    memcpy(copy, cases[i].text, n);
    uint64_t bad = insitu__sign_ini_bad_line(copy, n);
    if (bad != cases[i].bad)
      fail_msg("'%s': %d, not %d", cases[i].text, (int)bad, (int)cases[i].bad);
    free(copy);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sha256),
      cmocka_unit_test(test_hmac),
      cmocka_unit_test(test_base64),
      cmocka_unit_test(test_escape),
      cmocka_unit_test(test_v4_examples),
      cmocka_unit_test(test_v4_botocore),
      cmocka_unit_test(test_v4_refused),
      cmocka_unit_test(test_v4_headers),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_azure),
      cmocka_unit_test(test_azure_refused),
#ifdef INSITU_WITH_OPENSSL
      cmocka_unit_test(test_rs256),
#endif
      cmocka_unit_test(test_dates),
      cmocka_unit_test(test_xml),
      cmocka_unit_test(test_xml_depth),
      cmocka_unit_test(test_xml_find),
      cmocka_unit_test(test_xml_listing),
      cmocka_unit_test(test_ini),
      cmocka_unit_test(test_ini_hostile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
