/* What HTTP answers say, read by pure functions: header lines, ranges, and whether an answer is
 * what was asked for; and options. */
#include <stdlib.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

/* curl's memory: `left` allocations until one fails; negative: none does. */
static long left = -1;
static bool fails(void) {
  return left >= 0 && left-- == 0;
}
static void *curl_malloc(size_t n) {
  return fails() ? NULL : malloc(n);
}
static void *curl_realloc(void *p, size_t n) {
  return fails() ? NULL : realloc(p, n);
}
static void *curl_calloc(size_t n, size_t size) {
  return fails() ? NULL : calloc(n, size);
}
static char *curl_strdup(const char *text) {
  return fails() ? NULL : strdup(text);
}

static struct insitu__http_answer answer;
static void take(const char *line) {
  char copy[9000];
  snprintf(copy, sizeof copy, "%s", line);
  assert_true(insitu__http_read_header(&answer, copy));
}
static int setup(void **state) {
  (void)state;
  insitu__http_answer_init(&answer);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  insitu__http_answer_init(&answer);
  return 0;
}

static void test_headers(void **state) {
  char line[9000], fits[INSITU__HTTP_ETAG];
  (void)state;
  take("ETag: \"a b\"");
  assert_string_equal(answer.etag, "\"a b\"");
  take("etag:\t W/\"x\" \t");
  assert_string_equal(answer.etag, "W/\"x\"");
  memset(fits, 'e', sizeof fits);
  uint64_t before = 0;
  /* of one that does not fit the text is not kept, but it is another one */
  for (int more = 0; more < 2; more++) {
    snprintf(line, sizeof line, "ETag: %.*s", (int)sizeof fits - 1 + more, fits);
    answer.etag[0] = 0;
    take(line);
    assert_int_equal(strlen(answer.etag), more ? 0 : sizeof fits - 1);
    assert_true(answer.version.etag && answer.version.etag != before);
    before = answer.version.etag;
  }
  static const char *const broken[] = {
      "ETag: \"a\rX: y\"", "ETag: \"a\x01\"", "ETag: \"a\tb\"", "ETag: \"a\x7f\""};
  for (int i = 0; i < 4; i++) { /* an ETag is sent back: none that breaks a request's head */
    answer.etag[0] = 0;
    take(broken[i]);
    assert_string_equal(answer.etag, "");
  }
  take("x-amz-request-id: a\rb");
  assert_string_equal(answer.id, "");
  take("Content-Length: 18446744073709551614");
  assert_true(answer.length == UINT64_MAX - 1);
  static const char *const no_length[] = {"Content-Length: 18446744073709551616",
      "Content-Length: -1", "Content-Length: 1 2", "Content-Length:", "Content-Length: 0x10"};
  for (int i = 0; i < 5; i++) {
    answer.length = 1;
    take(no_length[i]);
    assert_true(answer.length == UINT64_MAX);
  }
  take("Content-Encoding: identity");
  assert_false(answer.encoded);
  take("Content-Encoding: GZIP");
  assert_true(answer.encoded);
  static const struct {
    const char *line;
    bool framed;
  } codings[] = {{"Transfer-Encoding: gzip", false}, {"Transfer-Encoding: chunked", true},
      {"Transfer-Encoding: chunked, gzip", false}, {"transfer-encoding: gzip, Chunked ", true},
      {"Transfer-Encoding: identity", false}};
  for (size_t i = 0; i < sizeof codings / sizeof *codings;
       i++) { /* the last coding frames a body */
    take(codings[i].line);
    if (answer.framed != codings[i].framed) fail_msg("%s", codings[i].line);
  }
  take("Date: Tue, 15 Nov 1994 08:12:31 GMT");
  assert_int_equal(answer.date, 784887151);
  take("Retry-After: 7");
  assert_int_equal(answer.retry_after, 7);
  take("Retry-After: Tue, 15 Nov 1994 08:12:31 GMT");
  assert_int_equal(answer.retry_after, 0);
  take("Retry-After: soon");
  assert_int_equal(answer.retry_after, -1);
  take("Retry-After: 99999999999999");
  assert_true(answer.retry_after > 0 && answer.retry_after <= 1 << 20);
  take("Location: /a");
  take("Location:  http://b/c ");
  assert_string_equal(answer.location, "http://b/c");
  take("x-amz-request-id: id1");
  assert_string_equal(answer.id, "id1");
  take("X-Amz-Bucket-Region: eu-west-1");
  assert_string_equal(answer.region, "eu-west-1");
  take("x-ms-error-code: BlobNotFound");
  assert_string_equal(answer.code, "BlobNotFound");
  take("no colon");
  take(": no name");
  take("ETagg: no");
  take("ETa: no");
  assert_string_equal(answer.etag, "");
}

static void test_versions(void **state) { /* what two answers have to do with each other */
  (void)state;
  enum {
    SAME = INSITU__HTTP_SAME,
    ALIKE = INSITU__HTTP_ALIKE,
    LOST = INSITU__HTTP_LOST,
    OTHER = INSITU__HTTP_OTHER
  };
  const uint64_t none = UINT64_MAX;
  const struct {
    struct insitu__http_version before, now;
    int relation;
  } cases[] = {{{.total = none}, {.total = none}, ALIKE}, {{.total = 5}, {.total = 5}, ALIKE},
      {{.total = 5}, {.total = 6}, OTHER},
      {{.etag = 1, .total = none}, {.etag = 1, .total = 6}, SAME},
      {{.etag = 1, .total = 5}, {.etag = 1, .total = 6}, OTHER},
      {{.etag = 1, .total = 5}, {.etag = 2, .total = 5}, OTHER},
      {{.etag = 1, .total = 5}, {.total = 5}, LOST}, {{.total = 5}, {.etag = 1, .total = 5}, LOST},
      {{.etag = 1, .weak = true}, {.etag = 1, .weak = true}, ALIKE},
      {{.etag = 1, .weak = true}, {.etag = 1}, ALIKE},
      {{.etag = 1, .weak = true}, {.etag = 2, .weak = true}, OTHER},
      {{.modified = 7}, {.modified = 7}, ALIKE},
      {{.modified = 7, .settled = true}, {.modified = 7}, SAME},
      {{.modified = 7}, {.modified = 7, .settled = true}, ALIKE},
      {{.modified = 7, .settled = true}, {.modified = 8}, OTHER},
      {{.modified = 7, .settled = true}, {.total = 0}, LOST},
      {{.total = 0}, {.modified = 7, .settled = true}, LOST},
      {{.etag = 1, .modified = 7, .settled = true}, {.modified = 7}, SAME},
      {{.etag = 1, .modified = 7}, {.modified = 7}, LOST},
      {{.etag = 1, .modified = 7}, {.etag = 1, .modified = 8}, SAME},
      {{.etag = 1, .weak = true, .modified = 7}, {.etag = 1, .weak = true, .modified = 8}, OTHER},
      {{.etag = 1, .weak = true, .modified = 7, .settled = true},
          {.etag = 1, .weak = true, .modified = 7}, SAME},
      {{.absent = true}, {.absent = true}, SAME}, {{.absent = true}, {.etag = 1}, OTHER}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int relation = insitu__http_compare(&cases[i].before, &cases[i].now, false);
    if (relation != cases[i].relation) fail_msg("case %d: %d", (int)i, relation);
    bool totals = cases[i].before.total != none && cases[i].now.total != none &&
                  cases[i].before.total != cases[i].now.total;
    relation = insitu__http_compare(&cases[i].before, &cases[i].now, true);
    assert_int_equal(
        relation, totals || cases[i].before.absent != cases[i].now.absent ? OTHER : SAME);
  }
  /* a date guards once it is a minute old, by the server's own clock */
  static const struct {
    const char *date, *modified;
    bool settled;
  } dates[] = {{"Tue, 15 Nov 1994 08:12:31 GMT", "Tue, 15 Nov 1994 08:12:31 GMT", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Tue, 15 Nov 1994 08:11:32 GMT", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Tue, 15 Nov 1994 08:11:31 GMT", true},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Wed, 16 Nov 1994 08:12:31 GMT", false},
      {"soon", "Tue, 15 Nov 1994 08:11:31 GMT", false},
      /* no dates: each has a number that tells it from others, which may look like an old moment */
      {"Tue, 15 Nov 1994 08:12:31 GMT", "a", false}, {"Tue, 15 Nov 1994 08:12:31 GMT", "b", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "yesterday", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "today", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "-1", false}, {"Tue, 15 Nov 1994 08:12:31 GMT", "0", false},
      /* moments that stand for none */
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Thu, 01 Jan 1970 00:00:01 GMT", false},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Thu, 01 Jan 1970 00:00:02 GMT", true}};
  for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
    char line[100];
    insitu__http_answer_init(&answer);
    snprintf(line, sizeof line, "Date: %s", dates[i].date);
    take(line);
    snprintf(line, sizeof line, "Last-Modified: %s", dates[i].modified);
    take(line);
    insitu__http_answer_complete(&answer);
    assert_true(answer.version.modified && answer.version.settled == dates[i].settled);
  }
  /* of an ETag of any length every character counts, and the length */
  char etag[8001], line[8100];
  uint64_t before = 0;
  memset(etag, 'e', sizeof etag);
  for (int n = 1; n < (int)sizeof etag; n += 1 + n / 7)
    for (int flip = 0; flip < 2; flip++) {
      etag[n - 1] = flip ? 'f' : 'e';
      snprintf(line, sizeof line, "ETag: %.*s", n, etag);
      take(line);
      assert_true(answer.version.etag && answer.version.etag != before && !answer.version.weak);
      before = answer.version.etag;
      etag[n - 1] = 'e';
    }
  take("ETag: W/\"x\"");
  before = answer.version.etag;
  assert_true(answer.version.weak);
  take("ETag: \"x\"");
  assert_true(!answer.version.weak && answer.version.etag == before);
  assert_true(insitu__http_etag_usable("\"a\"") && !insitu__http_etag_usable("") &&
              !insitu__http_etag_usable("W/\"a\""));
}

static void test_content_range(void **state) {
  static const struct {
    const char *text;
    uint64_t first, last, total;
  } good[] = {{"bytes 0-0/1", 0, 0, 1}, {"Bytes 5-9/10", 5, 9, 10},
      {"bytes 5-9/*", 5, 9, UINT64_MAX}, {"bytes */10", 1, 0, 10},
      {"bytes 0-18446744073709551613/18446744073709551614", 0, UINT64_MAX - 2, UINT64_MAX - 1}};
  static const char *const bad[] = {"", "bytes", "bytes ", "bytes=0-1/2", "byte 0-1/2",
      "bytes 1-0/2", "bytes 0-2/2", "bytes -1/2", "bytes 0-/2", "bytes 0-1", "bytes 0-1/",
      "bytes 0-1/x", "bytes 0-1/2x", "bytes 0-1/2 ", "bytes 0 -1/2", "bytes *-1/2", "bytes */",
      "bytes 0-18446744073709551615/*", "bytes 0-18446744073709551616/*",
      "bytes 18446744073709551616-1/*"};
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    answer.has_range = false;
    if (!insitu__http_content_range(good[i].text, &answer))
      fail_msg("'%s' is refused", good[i].text);
    assert_true(answer.has_range);
    assert_true(answer.first == good[i].first && answer.last == good[i].last &&
                answer.total == good[i].total);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    answer.has_range = false;
    if (insitu__http_content_range(bad[i], &answer) || answer.has_range)
      fail_msg("'%s' is taken", bad[i]);
  }
}

/* Asked for bytes [first, first + bytes), or the last ones; what of which answer is taken, and how
 * much is dropped before it. */
static void test_judge(void **state) {
  enum { TAIL = -1 };
  static const struct {
    int64_t first;
    uint64_t bytes;
    int status;
    int64_t length;
    const char *range;
    int want;
    uint64_t skip;
  } test[] = {{10, 5, 206, 5, "bytes 10-14/100", INSITU__HTTP_FINE, 0},
      {10, 5, 206, 5, "bytes 10-14/*", INSITU__HTTP_FINE, 0},
      {10, 5, 206, 3, "bytes 10-12/13", INSITU__HTTP_FINE, 0},   /* the object ends */
      {10, 5, 206, 3, "bytes 10-12/100", INSITU__HTTP_RANGE, 0}, /* a server that gives less */
      {10, 5, 206, 6, "bytes 10-15/100", INSITU__HTTP_RANGE, 0},
      {10, 5, 206, 5, "bytes 9-13/100", INSITU__HTTP_RANGE, 0},
      {10, 5, 206, 5, NULL, INSITU__HTTP_RANGE, 0},
      {10, 5, 206, 5, "bytes */100", INSITU__HTTP_RANGE, 0},
      {10, 5, 200, 100, NULL, INSITU__HTTP_FINE, 10}, {10, 5, 200, -1, NULL, INSITU__HTTP_FINE, 10},
      {INSITU__HTTP_SKIP + 1, 5, 200, -1, NULL, INSITU__HTTP_WHOLE, 0},
      {0, 0, 200, 100, NULL, INSITU__HTTP_FINE, 0},
      {0, 0, 206, 100, "bytes 0-99/200", INSITU__HTTP_RANGE, 0},
      {TAIL, 5, 206, 5, "bytes 95-99/100", INSITU__HTTP_FINE, 0},
      {TAIL, 5, 206, 3, "bytes 0-2/3", INSITU__HTTP_FINE, 0},
      {TAIL, 5, 206, 5, "bytes 94-98/100", INSITU__HTTP_RANGE, 0},
      {TAIL, 5, 206, 5, "bytes 95-99/*", INSITU__HTTP_RANGE, 0},
      {TAIL, 5, 200, 100, NULL, INSITU__HTTP_FINE, 95},
      {TAIL, 5, 200, 3, NULL, INSITU__HTTP_FINE, 0},
      {TAIL, 5, 200, -1, NULL, INSITU__HTTP_WHOLE, 0}, {10, 5, 404, 5, NULL, INSITU__HTTP_FINE, 0},
      {10, 5, 416, 0, "bytes */7", INSITU__HTTP_FINE, 0}};
  struct iovec iov = {NULL, 5};
  (void)state;
  for (size_t i = 0; i < sizeof test / sizeof *test; i++) {
    struct insitu__http_request r = {
        .first = test[i].first == TAIL ? INSITU__RING_TAIL : (uint64_t)test[i].first,
        .bytes = test[i].bytes,
        .iov = &iov,
        .n_iov = 1};
    insitu__http_answer_init(&r.answer);
    r.answer.status = test[i].status;
    r.answer.length = (uint64_t)test[i].length;
    if (test[i].range) assert_true(insitu__http_content_range(test[i].range, &r.answer));
    int got = insitu__http_check_head(&r);
    if (got != test[i].want) fail_msg("case %d: %d, not %d", (int)i, got, test[i].want);
    if (!got && r.skip != test[i].skip) fail_msg("case %d: %d dropped", (int)i, (int)r.skip);
    r.answer.encoded = true;
    if (r.answer.status < 300) assert_int_equal(insitu__http_check_head(&r), INSITU__HTTP_ENCODED);
  }
}
/* Bytes go to their places in whatever pieces they come, and no further. */
static void test_place(void **state) {
  char from[64], a[20], b[20];
  (void)state;
  for (int i = 0; i < 64; i++) from[i] = (char)i;
  for (uint64_t piece = 1; piece <= 40; piece++) {
    struct iovec iov[3] = {{a, 7}, {NULL, 5}, {b, 9}};
    struct insitu__http_request r = {.iov = iov, .n_iov = 3, .skip = 4, .left = UINT64_MAX};
    memset(a, 99, sizeof a);
    memset(b, 99, sizeof b);
    uint64_t at = 0;
    for (; at < 25; at += piece) {
      uint64_t n = at + piece < 25 ? piece : 25 - at;
      assert_true(insitu__http_copy_body(&r, from + at, n));
    }
    assert_int_equal(r.placed, 21);
    assert_false(insitu__http_copy_body(&r, from, 1));
    for (int i = 0; i < 20; i++) {
      assert_int_equal(a[i], i < 7 ? 4 + i : 99);
      assert_int_equal(b[i], i < 9 ? 16 + i : 99);
    }
  }
}

static void test_options(void **state) {
  static const struct {
    const char *text;
    int64_t ms; /* -1: refused */
  } duration[] = {{"5", 5000}, {"1.5s", 1500}, {"200ms", 200}, {"2m", 120000}, {"0", 0}, {"", -1},
      {"s", -1}, {"-1", -1}, {"1h", -1}, {"1 s", -1}, {"1e300", -1}, {"nan", -1}, {"inf", -1},
      {"0x10", -1}, {"1e3", -1}, {"5.", -1}, {"1.2.3", -1}, {".5", -1}, {"0.0004s", 0},
      {"0.9996s", 1000}, {"1.23456789012345s", 1235}, {"1000000000ms", 1000000000},
      {"1000000001ms", -1}, {"99999999999999999999ms", -1}};
  static const char *const bad[][2] = {{"connect_timeout", "0"}, {"stall_timeout", "x"},
      {"stall_bytes", "-1"}, {"max_retries", "1.5"}, {"max_retries", "99999999999999999999999"},
      {"max_connections", "0"}, {"http_version", "3"}, {"hedge", "maybe"}, {"retry_timeout", "5x"}};
  struct insitu__http_desc d = {0};
  insitu_status status;
  (void)state;
  for (size_t i = 0; i < sizeof duration / sizeof *duration; i++) {
    int64_t ms = -1;
    bool ok = insitu__http_duration(duration[i].text, &ms);
    if (ok != (duration[i].ms >= 0) || (ok && ms != duration[i].ms))
      fail_msg("'%s'", duration[i].text);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    insitu_error err = {0};
    assert_true(insitu__http_option_take(&d, bad[i][0], bad[i][1], &err, &status));
    if (status != INSITU_E_ARG) fail_msg("%s = '%s' is taken", bad[i][0], bad[i][1]);
    assert_non_null(strstr(err.message, bad[i][0]));
  }
  /* texts that go into a request's head or to curl: no line of another header, and no value is
   * quoted */
  static const char *const text[][3] = {{"user_agent", "SECRET\r\nX: y", "control character"},
      {"user_agent", "SECRET\n", "control character"},
      {"user_agent", "SECRET\x7f", "control character"},
      {"proxy_url", "http://u:SECRET@p\r\n", "control character"},
      {"proxy_excludes", "SECRET\t", "control character"},
      {"ca_bundle", "SECRET\n", "control character"},
      {"ca_bundle", "/nowhere/SECRET", "cannot be read"},
      {"proxy_url", "http://user:SECRET@proxy:808O", "no url of a proxy"},
      {"proxy_url", "user:SECRET@p:port", "no url of a proxy"}};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
    insitu_error err = {0};
    assert_true(insitu__http_option_take(&d, text[i][0], text[i][1], &err, &status));
    assert_int_equal(status, INSITU_E_ARG);
    if (!strstr(err.message, text[i][2]) || !strstr(err.message, text[i][0]) ||
        strstr(err.message, "SECRET"))
      fail_msg("%s", err.message);
  }
  static const char *const fine[][2] = {{"user_agent", "me/1 (a; b) \xc3\xa4"},
      {"proxy_url", "proxy:8080"}, {"proxy_url", "socks5h://u:p@[::1]:1080"},
      {"proxy_excludes", ".local, 10.0.0.0/8"}, {"ca_bundle", "/dev/null"}};
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    assert_true(insitu__http_option_take(&d, fine[i][0], fine[i][1], NULL, &status));
    assert_int_equal(status, INSITU_OK);
  }
  d.retries = d.first_retries = 9;
  assert_true(insitu__http_option_take(&d, "max_retries", "0", NULL, &status));
  assert_true(!status && !d.retries && !d.first_retries);
  assert_true(insitu__http_option_take(&d, "hedge", "TRUE", NULL, &status));
  assert_true(!status && d.hedge);
  struct insitu__http_desc before = d;
  /* as if it were not there */
  assert_true(insitu__http_option_take(&d, "retry_timeout", "", NULL, &status));
  assert_true(!status && d.retry_ms == before.retry_ms);
  assert_false(insitu__http_option_take(&d, "max_retrys", "1", NULL, &status));
  /* a local archive takes the same names: capitals do not matter in a service's alone */
  assert_false(insitu__http_option_take(&d, "Hedge", "true", NULL, &status));
  assert_int_equal(insitu__settings_option_exists("Hedge", NULL), INSITU_E_ARG);
  assert_int_equal(insitu__settings_option_exists("hedge", NULL), INSITU_OK);
  assert_int_equal(insitu__settings_option_exists("Region", NULL), INSITU_OK);
}
static void test_origin(void **state) {
  static const char *const test[][2] = {{"http://u:p@h.x:81/a?b#c", "http://h.x:81"},
      {"https://h/", "https://h"}, {"http://[::1]:8/x", "http://[::1]:8"},
      {"http://h?u:p@x", "http://h"}};
  char out[300];
  (void)state;
  for (size_t i = 0; i < sizeof test / sizeof *test; i++) {
    insitu__http_origin(test[i][0], out, sizeof out);
    assert_string_equal(out, test[i][1]);
  }
  assert_false(insitu__http_origin("no url: secret", out, sizeof out));
  assert_null(strstr(out, "secret"));
}

/* Where memory is missing once, a port is not taken for none, nor another host for the same. */
static void test_without_memory(void **state) {
  struct insitu__remote *remote = calloc(1, sizeof *remote);
  struct insitu__store store = {.url = "https://a.example"};
  struct insitu__remote_fetch f = {.store = &store, .remote = remote, .key = "k"};
  bool more = true;
  (void)state;
  for (long at = 0; more; at++) {
    struct insitu__names_url u;
    left = at;
    bool split = insitu__names_url_split(&u, "http://h.example:8080/", 0);
    more = left < 0;
    left = -1;
    if (split) assert_string_equal(u.port, "8080");
    insitu__names_url_free(&u);
    assert_true(split || more);
  }
  more = true;
  for (long at = 0; more; at++) {
    insitu_error err = {0};
    f.moved = (char *)"https://b.example/x";
    f.request = (struct insitu__http_request){.url = "https://a.example/x"};
    assert_true(insitu__http_header(&f.request, "Authorization: ", "SECRET"));
    left = at;
    insitu_status status = insitu__remote_fetch_move(&f, &err);
    more = left < 0;
    left = -1;
    if (!status) assert_string_equal(f.request.headers[0], ";");
    else assert_true(more && status == INSITU_E_NOMEM && strstr(err.message, "no memory"));
    insitu__http_request_free(&f.request);
  }
  free(remote);
}

/* curl's own words, where they hold nothing that is not for a log. */
static void test_told(void **state) {
  static const struct {
    CURLcode code;
    const char *text;
    bool shown;
  } cases[] = {{CURLE_COULDNT_CONNECT,
                   "Failed to connect to h port 1 after 0 ms: Couldn't connect to server", true},
      {CURLE_SSL_CACERT_BADFILE, "error setting certificate file: /x", true},
      {CURLE_PEER_FAILED_VERIFICATION,
          "SSL: no alternative certificate subject name matches target host name 'h'", true},
      {CURLE_COULDNT_RESOLVE_PROXY,
          "Unsupported proxy syntax in 'http://user:SECRET@proxy:808O': Port number was not",
          false},
      {CURLE_COULDNT_RESOLVE_PROXY, "Could not resolve proxy: SECRET", false},
      {CURLE_COULDNT_CONNECT, "Unsupported proxy scheme for 'SECRET'", false},
      {CURLE_NOT_BUILT_IN,
          "Unsupported proxy 'SECRET', libcurl is built without the HTTPS-proxy support.", false},
      {CURLE_URL_MALFORMAT, "URL rejected: SECRET", false},
      {CURLE_RECV_ERROR, "from SECRET@h", false},
      {CURLE_RECV_ERROR, "SECRET\r\nforged line", false}, {CURLE_GOT_NOTHING, "", false}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(insitu__http_safe_cause(cases[i].code, cases[i].text),
        cases[i].shown ? cases[i].text : curl_easy_strerror(cases[i].code));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
      cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
      cmocka_unit_test_setup_teardown(test_content_range, setup, teardown),
      cmocka_unit_test(test_judge), cmocka_unit_test(test_place), cmocka_unit_test(test_options),
      cmocka_unit_test(test_origin), cmocka_unit_test(test_without_memory),
      cmocka_unit_test(test_told)};
  if (curl_global_init_mem(
          CURL_GLOBAL_DEFAULT, curl_malloc, free, curl_realloc, curl_strdup, curl_calloc))
    return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
