/* The server of the other tests, by raw sockets: what it sends is taken byte for byte. */
#include "server.h"
#include <setjmp.h>
#include <stddef.h>
/* cmocka needs these two */
#include <cmocka.h>

static struct server *server;
static char object[200000];

static int setup(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof object; i++) object[i] = (char)server__mix(i);
  server = server_start(NULL);
  server_text(server, "a b/c", "0123456789");
  server_text(server, "empty", "");
  server_put(server, "large", object, sizeof object);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  server_stop(&server);
  return 0;
}

static int dial(void) {
  struct sockaddr_in address = {.sin_family = AF_INET,
      .sin_port = htons((uint16_t)server->port),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}
static void put(int fd, const char *text) {
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}
/* What comes until the connection ends. */
static char *got, *body;
static size_t n_got, n_body;
static int got_errno;
static void take(int fd) {
  got = realloc(got, 1 << 20);
  n_got = n_body = 0;
  got_errno = 0;
  for (ssize_t n; (n = recv(fd, got + n_got, (1 << 20) - 1 - n_got, 0)) != 0; n_got += (size_t)n)
    if (n < 0) {
      got_errno = errno;
      break;
    }
  got[n_got] = 0;
  close(fd);
  body = memmem(got, n_got, "\r\n\r\n", 4);
  if (body) body += 4, n_body = n_got - (size_t)(body - got);
}
/* the status of the answer, 0: none */
static int ask(const char *method, const char *target, const char *headers) {
  char text[2000];
  int fd = dial();
  snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n%s\r\n", method,
      target, headers);
  put(fd, text);
  take(fd);
  return strncmp(got, "HTTP/1.1 ", 9) ? 0 : atoi(got + 9);
}
static bool has(const char *line) {
  char want[300];
  snprintf(want, sizeof want, "\r\n%s\r\n", line);
  return memmem(got, body ? (size_t)(body - got) : n_got, want, strlen(want)) != NULL;
}
static void is(const char *text) {
  assert_int_equal(n_body, strlen(text));
  assert_memory_equal(body, text, n_body);
}
#define RULE(...) (server_reset(server), server_rule(server, (struct server_rule){__VA_ARGS__}))

static void test_objects(void **state) {
  char tag[100], line[200];
  (void)state;
  server_reset(server);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  is("0123456789");
  assert_true(has("Content-Length: 10"));
  assert_int_equal(sscanf(strstr(got, "ETag: "), "ETag: %99s", tag), 1);
  assert_int_equal(ask("HEAD", "/a%20b/c?x=1", ""), 200);
  assert_true(has("Content-Length: 10") && !n_body);
  assert_int_equal(ask("GET", "/large", ""), 200);
  assert_true(n_body == sizeof object && !memcmp(body, object, n_body));
  assert_int_equal(ask("GET", "/empty", ""), 200);
  is("");
  assert_int_equal(ask("GET", "/a", ""), 404);
  assert_non_null(strstr(body, "<Code>NoSuchKey</Code>"));
  assert_int_equal(ask("DELETE", "/a", ""), 405);
  /* conditions */
  snprintf(line, sizeof line, "If-Match: %s\r\n", tag);
  assert_int_equal(ask("GET", "/a%20b/c", line), 200);
  snprintf(line, sizeof line, "If-None-Match: \"x\", %s\r\n", tag);
  assert_int_equal(ask("GET", "/a%20b/c", line), 304);
  is("");
  assert_int_equal(ask("GET", "/a%20b/c", "If-Match: \"x\"\r\n"), 412);
  server_touch(server, "a b/c");
  snprintf(line, sizeof line, "If-Match: %s\r\n", tag);
  assert_int_equal(ask("GET", "/a%20b/c", line), 412);
  snprintf(line, sizeof line, "If-Range: %s\r\nRange: bytes=2-3\r\n", tag);
  assert_int_equal(ask("GET", "/a%20b/c", line), 200);
  is("0123456789");
  /* writing */
  assert_int_equal(ask("PUT", "/new", "Content-Length: 3\r\n\r\nabc"), 200);
  assert_int_equal(ask("GET", "/new", ""), 200);
  is("abc");
  server_delete(server, "new");
  assert_int_equal(ask("GET", "/new", ""), 404);
}
static void test_ranges(void **state) {
  static const struct {
    const char *range;
    int status;
    const char *content_range, *bytes;
  } test[] = {{"0-0", 206, "bytes 0-0/10", "0"}, {"3-5", 206, "bytes 3-5/10", "345"},
      {"7-", 206, "bytes 7-9/10", "789"}, {"8-99", 206, "bytes 8-9/10", "89"},
      {"-3", 206, "bytes 7-9/10", "789"}, {"-99", 206, "bytes 0-9/10", "0123456789"},
      {"10-", 416, "bytes */10", NULL}, {"-0", 416, "bytes */10", NULL},
      {"5-3", 200, NULL, "0123456789"}, {"1-2,4-5", 200, NULL, "0123456789"},
      {"x", 200, NULL, "0123456789"}};
  char line[200];
  (void)state;
  server_reset(server);
  for (size_t i = 0; i < sizeof test / sizeof *test; i++) {
    snprintf(line, sizeof line, "Range: bytes=%s\r\n", test[i].range);
    assert_int_equal(ask("GET", "/a%20b/c", line), test[i].status);
    if (test[i].bytes) is(test[i].bytes);
    snprintf(
        line, sizeof line, "Content-Range: %s", test[i].content_range ? test[i].content_range : "");
    assert_int_equal(has(line), test[i].content_range != NULL);
  }
  assert_int_equal(ask("GET", "/large", "Range: bytes=1000-150000\r\n"), 206);
  assert_true(n_body == 149001 && !memcmp(body, object + 1000, n_body));
  assert_int_equal(ask("GET", "/empty", "Range: bytes=0-\r\n"), 416);
}
static void test_folder(void **state) {
  struct server *before = server;
  char path[] = "/tmp/test-server-XXXXXX", file[100];
  (void)state;
  assert_non_null(mkdtemp(path));
  snprintf(file, sizeof file, "%s/f", path);
  FILE *f = fopen(file, "wb");
  assert_int_equal(fwrite(object, 1, sizeof object, f), sizeof object);
  fclose(f);
  server = server_start(&(struct server_options){.folder = path, .threads = 2});
  assert_int_equal(ask("GET", "/f", "Range: bytes=10-100009\r\n"), 206);
  assert_true(n_body == 100000 && !memcmp(body, object + 10, n_body));
  assert_int_equal(ask("GET", "/f", "Range: bytes=-7\r\n"), 206);
  assert_true(n_body == 7 && !memcmp(body, object + sizeof object - 7, n_body));
  assert_int_equal(ask("GET", "/", ""), 404);
  assert_int_equal(ask("GET", "/../f", ""), 404);
  server_stop(&server);
  server = before;
  unlink(file);
  rmdir(path);
}
/* Several requests at once on one connection, cut anywhere. */
static void test_pipeline(void **state) {
  static const char text[] =
      "GET /a%20b/c HTTP/1.1\r\nHost: h\r\n\r\nPUT /p HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello"
      "GET /p HTTP/1.1\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\n\r\n";
  (void)state;
  for (size_t cut = 1; cut < sizeof text - 30; cut += 7) {
    server_reset(server);
    int fd = dial();
    assert_int_equal(send(fd, text, cut, 0), cut);
    usleep(500);
    put(fd, text + cut);
    take(fd);
    assert_true(n_got > 10 && !memcmp(got + n_got - 9, "\r\n\r\nhello", 9));
    assert_int_equal(server_stats(server).get, 2);
    assert_int_equal(server_stats(server).put, 1);
  }
}
static void test_faults(void **state) {
  (void)state;
  /* the status, how long, and what the connection does afterwards */
  RULE(.fault = SERVER_STATUS, .status = 503, .text = "SlowDown", .retry_after = 7, .count = 1);
  assert_int_equal(ask("GET", "/large", ""), 503);
  assert_true(has("Retry-After: 7") && strstr(body, "<Code>SlowDown</Code>"));
  assert_int_equal(ask("GET", "/large", ""), 200);
  RULE(.fault = SERVER_RESET, .at = SERVER_AT_START);
  assert_int_equal(ask("GET", "/large", ""), 0);
  assert_true(n_got == 0 && got_errno == ECONNRESET);
  RULE(.fault = SERVER_RESET, .at = SERVER_AT_HEADER);
  ask("GET", "/large", "");
  assert_true(n_got > 0 && !body && got_errno == ECONNRESET);
  /* what a window takes at once: a reset drops what has not been sent yet */
  RULE(.fault = SERVER_RESET, .at = 40000);
  assert_int_equal(ask("GET", "/large", ""), 200);
  assert_true(n_body == 40000 && got_errno == ECONNRESET);
  RULE(.fault = SERVER_CLOSE, .at = 0);
  assert_int_equal(ask("GET", "/large", ""), 200);
  assert_true(body && n_body == 0 && has("Content-Length: 200000") && !got_errno);
  RULE(.fault = SERVER_CLOSE, .at = 150000);
  assert_int_equal(ask("GET", "/large", ""), 200);
  assert_true(n_body == 150000 && !memcmp(body, object, n_body) && !got_errno);
  /* bodies that do not fit their headers */
  RULE(.fault = SERVER_LONGER, .at = 3);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 206);
  is("23zzz");
  assert_true(has("Content-Length: 2"));
  RULE(.fault = SERVER_LENGTH, .at = -1);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 206);
  is("23");
  assert_true(has("Content-Length: 1") && has("Content-Range: bytes 2-3/10"));
  RULE(.fault = SERVER_RANGE, .at = 1);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 206);
  assert_true(has("Content-Range: bytes 3-4/10"));
  RULE(.fault = SERVER_RANGE, .text = "");
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 206);
  assert_null(strstr(got, "Content-Range"));
  RULE(.fault = SERVER_WHOLE);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 200);
  is("0123456789");
  RULE(.fault = SERVER_FLIP, .at = 1);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  assert_true(n_body == 10 && body[1] == ('1' ^ 0x55));
  RULE(.fault = SERVER_GZIP);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), 200);
  assert_true(has("Content-Encoding: gzip") && n_body == 33 && !memcmp(body, "\x1f\x8b\x08", 3));
  /* zlib.crc32 of these digits */
  assert_memory_equal(body + 15, "0123456789\xc6\xc7\x84\xa6\x0a\0\0\0", 18);
  RULE(.fault = SERVER_GARBAGE, .at = 77);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  assert_int_equal(n_body, 77);
  RULE(.fault = SERVER_HEAD_BODY, .at = 5);
  assert_int_equal(ask("HEAD", "/a%20b/c", ""), 200);
  assert_int_equal(n_body, 5);
  /* headers */
  RULE(.fault = SERVER_REDIRECT, .text = "http://other:1/x/*");
  assert_int_equal(ask("GET", "/a%20b/c?q", ""), 302);
  assert_true(has("Location: http://other:1/x/a%20b/c?q"));
  RULE(.fault = SERVER_BIG_HEADER, .at = 100000);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  assert_true(n_got > 100000 && n_body == 10);
  RULE(.fault = SERVER_CONTINUE, .at = 2);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 100);
  assert_true(!strncmp(body, "HTTP/1.1 100 Soon\r\n\r\nHTTP/1.1 200 OK\r\n", 38));
  RULE(.fault = SERVER_NOISE);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 0);
  RULE(.fault = SERVER_HEADER, .text = "X-Y: z");
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  assert_true(has("X-Y: z"));
  RULE(.fault = SERVER_ETAG, .text = "\"e\"");
  assert_int_equal(ask("GET", "/a%20b/c", "If-Match: \"e\"\r\n"), 200);
  assert_true(has("ETag: \"e\""));
  RULE(.fault = SERVER_CHUNKED, .at = 4);
  assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=1-5\r\n"), 206);
  is("4\r\n1234\r\n1\r\n5\r\n0\r\n\r\n");
  RULE(.fault = SERVER_UNTIL_CLOSE);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  is("0123456789");
  assert_null(strstr(got, "Content-Length"));
}
static void test_rules(void **state) {
  int failed[2] = {0};
  (void)state;
  RULE(.key = "a*", .method = "GET", .range = "bytes=2*", .skip = 1, .count = 2,
      .fault = SERVER_STATUS, .status = 500);
  assert_int_equal(ask("GET", "/large", "Range: bytes=2-3\r\n"), 206);
  assert_int_equal(ask("GET", "/a%20b/c", ""), 200);
  for (int i = 0; i < 4; i++)
    assert_int_equal(ask("GET", "/a%20b/c", "Range: bytes=2-3\r\n"), i == 1 || i == 2 ? 500 : 206);
  assert_int_equal(server_hits(server, 0), 2);
  RULE(.each = true, .count = 1, .fault = SERVER_STATUS, .status = 404); /* each key once */
  assert_int_equal(ask("GET", "/large", ""), 404);
  assert_int_equal(ask("GET", "/empty", ""), 404);
  assert_int_equal(ask("GET", "/large", ""), 200);
  for (int round = 0; round < 2; round++) {
    RULE(.probability = 0.2, .fault = SERVER_STATUS, .status = 500);
    for (int i = 0; i < 300; i++) failed[round] += ask("GET", "/empty", "") == 500;
  }
  assert_in_range(failed[0], 30, 100);
  assert_int_equal(failed[0], failed[1]); /* the same draws */
}
static bool answer(void *user, const struct server_request *q, struct server_answer *a) {
  char value[100];
  (void)user;
  if (strcmp(q->path, "token")) return false;
  server_answer_header(a, "X-Seen: %s", server_request_query(q, "who", value, sizeof value));
  return server_answer_text(a, 201, "%s %s", server_request_header(q, "x-key"), q->body);
}
static void test_hook_and_log(void **state) {
  struct server *before = server;
  (void)state;
  server = server_start(&(struct server_options){.answer = answer});
  assert_int_equal(
      ask("POST", "/token?a=b&who=m%65+x", "X-Key: k\r\nContent-Length: 2\r\n\r\nhi"), 201);
  is("k hi");
  assert_true(has("X-Seen: me x"));
  assert_int_equal(ask("GET", "/other", "Authorization: secret\r\n"), 404);
  assert_int_equal(server_seen(server, "authorization: secret"), 1);
  assert_int_equal(server_seen(server, "GET /other HTTP"), 1);
  server_stop(&server);
  server = before;
}
/* Many answers wait at once; waves count round trips. */
static void test_waits(void **state) {
  enum { MANY = 500 };
  static int fd[MANY];
  (void)state;
  server_reset(server);
  server_latency(server, SERVER_EVER);
  for (int wave = 1; wave <= 2; wave++) {
    for (int i = 0; i < MANY; i++) {
      if (wave == 1) fd[i] = dial();
      put(fd[i], wave == 1 ? "GET /empty HTTP/1.1\r\n\r\n"
                           : "GET /a%20b/c HTTP/1.1\r\nConnection: close\r\n\r\n");
    }
    while (server_stats(server).in_flight < MANY) usleep(1000);
    server_release(server);
    while (server_stats(server).in_flight) usleep(1000);
  }
  for (int i = 0; i < MANY; i++) {
    take(fd[i]);
    assert_true(n_got > 10 && !memcmp(got + n_got - 10, "0123456789", 10));
  }
  server_latency(server, 0);
  struct server_statistics stats = server_stats(server);
  assert_int_equal(stats.waves, 2);
  assert_int_equal(stats.in_flight_max, MANY);
  assert_int_equal(stats.connections, MANY);
  assert_int_equal(stats.answered, 2 * MANY);
  while (server_stats(server).open) usleep(1000);
  /* by the clock; a client that goes takes its request with it */
  RULE(.key = "large", .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = 30);
  server_rule(server, (struct server_rule){
                          .key = "empty", .fault = SERVER_STALL, .at = SERVER_AT_HEADER, .ms = 20});
  server_rule(
      server, (struct server_rule){.key = "a*", .fault = SERVER_STALL, .at = 5, .ms = SERVER_EVER});
  server_rule(server, (struct server_rule){.key = "a*", .fault = SERVER_DRIP, .at = 30});
  for (int i = 0; i < 3; i++) {
    static const char *const text[] = {"GET /large HTTP/1.1\r\n\r\n", "GET /empty HTTP/1.1\r\n\r\n",
        "GET /a%20b/c HTTP/1.1\r\n\r\n"};
    fd[i] = dial();
    put(fd[i], text[i]);
  }
  while (server_stats(server).answered < 2 || server_stats(server).requests < 3) {
    char some[65536];
    if (recv(fd[0], some, sizeof some, MSG_DONTWAIT) < 0) usleep(1000);
  }
  assert_int_equal(server_stats(server).in_flight, 1);
  close(fd[2]);
  while (server_stats(server).in_flight) usleep(1000);
  assert_int_equal(server_stats(server).broken, 1);
  close(fd[0]), close(fd[1]);
}
static void fill(struct server *s, void *user) {
  server_text(s, "k", user);
}
static void test_fork(void **state) {
  struct server *before = server, other = {.port = 0};
  (void)state;
  server_stop(&before);
  struct server_child child = server_fork(NULL, fill, "from the child");
  other.port = child.port;
  server = &other;
  assert_int_equal(ask("GET", "/k", ""), 200);
  is("from the child");
  server_kill(&child);
  server = NULL;
  setup(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_objects), cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_folder), cmocka_unit_test(test_pipeline), cmocka_unit_test(test_faults),
      cmocka_unit_test(test_rules), cmocka_unit_test(test_hook_and_log),
      cmocka_unit_test(test_waits), cmocka_unit_test(test_fork)};
  int failed = cmocka_run_group_tests(tests, setup, teardown);
  free(got);
  return failed;
}
