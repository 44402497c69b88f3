/* Reads through a store from a server whose bodies end too early or too late, whose objects change
 * on the way, and from a curl that refuses; and what is taken as the answer to a range. */
#include "server.h"
#include <curl/curl.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/prctl.h>
/* Names that end in .test are this machine, "gone" is none of them; those that begin with "slow"
 * are told when nobody holds them, those that begin with "lone" as on a machine that has no network
 * but its own, "sick" and "poor" without files or memory for the resolver. Whoever resolves a name
 * on another thread than a look-up's own is counted: curl, or the reactor. */
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t names_news = PTHREAD_COND_INITIALIZER;
static int names_asked, names_foreign, names_inside;
static bool names_held, names_fail;
int getaddrinfo(
    const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list) {
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  if (!node || !strstr(node, ".test")) return real(node, service, hints, list);
  char thread[16] = "";
  prctl(PR_GET_NAME, thread);
  pthread_mutex_lock(&names_lock);
  names_asked += (hints->ai_flags & AI_ADDRCONFIG) != 0; /* without it: the same look-up goes on */
  names_foreign += strcmp(thread, "insitu-name") != 0;
  names_inside++;
  while (names_held && !strncmp(node, "slow", 4)) pthread_cond_wait(&names_news, &names_lock);
  bool fail = names_fail || !strncmp(node, "gone", 4);
  names_inside--;
  pthread_mutex_unlock(&names_lock);
  /* what finds out this machine's networks the thread sanitizer does not understand */
  struct addrinfo plain = *hints;
  plain.ai_flags = AI_NUMERICHOST;
  if (!strncmp(node, "poor", 4)) return EAI_MEMORY;
  if (!strncmp(node, "sick", 4)) return errno = EMFILE, EAI_SYSTEM;
  if (!strncmp(node, "lone", 4) && hints->ai_flags & AI_ADDRCONFIG) return EAI_ADDRFAMILY;
  return fail ? EAI_NONAME : real("127.0.0.1", service, &plain, list);
}
static int names(const int *count) {
  pthread_mutex_lock(&names_lock);
  int n = *count;
  pthread_mutex_unlock(&names_lock);
  return n;
}
static void names_set(bool held, bool fail) {
  pthread_mutex_lock(&names_lock);
  names_held = held;
  names_fail = fail;
  pthread_cond_broadcast(&names_news);
  pthread_mutex_unlock(&names_lock);
}
static int refusals;            /* of curl, to come */
static int resets, resets_sent; /* of handles: so far, and when one was sent last */
enum { OPTIONS = 64, VALUE = 512 };
static struct {
  CURL *easy;
  unsigned n;
  struct {
    CURLoption id;
    char value[VALUE];
  } one[OPTIONS];
  char all[8192]; /* in order of their numbers, when it was sent */
} known;          /* which options the last handle has */
static void know_none(CURL *easy) {
  known.easy = easy;
  known.n = 0;
  resets++;
}
static void know(CURL *easy, CURLoption id, uintptr_t value) {
  unsigned i = 0, n = 0;
  if (easy != known.easy) know_none(easy);
#if LIBCURL_VERSION_NUM >= 0x074900 /* before, curl does not tell what an option's value is */
  const struct curl_easyoption *option = curl_easy_option_by_id(id);
  while (i < known.n && known.one[i].id != id) i++;
  if (i == known.n) known.n++;
  if (known.n >= OPTIONS) abort();
  known.one[i].id = id;
  char *text = known.one[i].value;
  text[0] = 0;
  /* an empty one counts */
  if (option->type == CURLOT_STRING && value) snprintf(text, VALUE, "'%s'", (char *)value);
  else if (option->type == CURLOT_STRING) text[0] = 0;
  else if (option->type == CURLOT_SLIST)
    for (struct curl_slist *l = (struct curl_slist *)value; l; l = l->next)
      n += (unsigned)snprintf(text + n, VALUE - n, "%s|", l->data);
  else if (option->type == CURLOT_OBJECT || option->type == CURLOT_CBPTR)
    snprintf(text, VALUE, "%s", value ? "set" : "");
  else snprintf(text, VALUE, "%lu", (unsigned long)value);
  if (!text[0]) known.one[i] = known.one[--known.n]; /* as if it had never been set */
#else
  (void)i, (void)n, (void)id, (void)value;
#endif
}
static int by_id(const void *a, const void *b) {
  return *(const CURLoption *)a < *(const CURLoption *)b ? -1 : 1;
}
static CURLMcode add_handle(CURLM *multi, CURL *easy) {
  unsigned n = 0;
  resets_sent = resets;
  qsort(known.one, known.n, sizeof *known.one, by_id);
  for (unsigned i = 0; i < known.n; i++)
    n += (unsigned)snprintf(
        known.all + n, sizeof known.all - n, "%d=%s\n", (int)known.one[i].id, known.one[i].value);
  known.all[n] = 0;
  return refusals && refusals-- ? CURLM_OUT_OF_MEMORY : curl_multi_add_handle(multi, easy);
}
static bool no_threads; /* for look-ups */
static int create_thread(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg) {
  return no_threads ? EAGAIN : pthread_create(thread, attributes, fn, arg);
}
#define pthread_create create_thread
#undef curl_easy_setopt
#define curl_easy_setopt(easy, id, value)                                                          \
  (know(easy, id, (uintptr_t)(value)), (curl_easy_setopt)(easy, id, value))
#define curl_easy_reset(easy) (know_none(easy), curl_easy_reset(easy))
#define curl_multi_add_handle(multi, easy) add_handle(multi, easy)
#define INSITU__HTTP_PAUSE 1000000 /* nanoseconds */
#define INSITU__HTTP_PAUSE_SLOW 1000000
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"

/* ---- header lines ---- */
static void take(struct insitu__http_answer *a, const char *line) {
  char *copy = strdup(line);
  assert_true(insitu__http_read_header(a, copy));
  free(copy);
}
static void test_retry_after(void **state) {
  (void)state;
  struct insitu__http_answer a = {.status = 503};
  char line[100];
  insitu__http_answer_init(&a);
  take(&a, "Retry-After: 7");
  assert_int_equal(a.retry_after, 7);
  take(&a, "Retry-After: 0");
  assert_int_equal(a.retry_after, 0);
  take(&a, "Retry-After: 99999999999999999");
  assert_int_equal(a.retry_after, 1 << 20);
  take(&a, "Retry-After: soon");
  assert_int_equal(a.retry_after, -1);
  take(&a, "Retry-After: Tue, 15 Nov 1994 08:12:31 GMT");
  assert_int_equal(a.retry_after, 0);
  /* nanoseconds until then are more than 64 bits hold */
  take(&a, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT");
  assert_int_equal(a.retry_after, 1 << 20);
  time_t soon = time(NULL) + 1000;
  strftime(line, sizeof line, "Retry-After: %a, %d %b %Y %H:%M:%S GMT", gmtime(&soon));
  take(&a, line);
  assert_true(a.retry_after > 0 && a.retry_after <= 1000);
  insitu__http_answer_init(&a);

  /* a date counts by the clock of the server that wrote it, where it tells that */
  static const struct {
    const char *value, *date;
    int64_t want;
  } cases[] = {
      {"Tue, 15 Nov 1994 08:12:41 GMT", "Tue, 15 Nov 1994 08:12:31 GMT", 10},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "Tue, 15 Nov 1994 08:12:41 GMT", 0},
      {"Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:50 GMT", 9},
      {"7", "Fri, 31 Dec 9999 23:59:50 GMT", 7},
      {"soon", "Fri, 31 Dec 9999 23:59:50 GMT", -1},
      {"Tue, 15 Nov 1994 08:12:31 GMT", "today", 0},
      {"Fri, 31 Dec 9999 23:59:59 GMT", "today", 1 << 20},
  };
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    char lines[2][100];
    snprintf(lines[i % 2], sizeof lines[0], "Retry-After: %s", cases[i / 2].value);
    snprintf(lines[1 - i % 2], sizeof lines[0], "Date: %s", cases[i / 2].date);
    for (int k = 0; k < 2; k++) take(&a, lines[k]);
    insitu__http_answer_complete(&a);
    if (a.retry_after != cases[i / 2].want) fail_msg("%s, %s", lines[0], lines[1]);
    insitu__http_answer_init(&a);
  }
}

/* only what curl would send as it is goes around its parser */
static void test_target(void **state) {
  static const char *const none[] = {"", "/", "http", "http://", "http://h", "http://h?x=/",
      "http://h#/x", "http://h:1/a#b", "http://h/a b", "http://h/a\r\nX: y", "http://h/\x7f",
      "http://h/\t"};
  (void)state;
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    if (insitu__http_target(none[i])) fail_msg("%s", none[i]);
  assert_string_equal(insitu__http_target("https://u@h:1/"), "/");
  assert_string_equal(
      insitu__http_target("http://[::1]:8/a//../%20\xff?b=/c"), "/a//../%20\xff?b=/c");
}

/* ---- what is taken as the answer to a range ---- */
static void test_judge(void **state) {
  (void)state;
  enum {
    FINE = INSITU__HTTP_FINE,
    RANGE = INSITU__HTTP_RANGE,
    WHOLE = INSITU__HTTP_WHOLE,
    ENCODED = INSITU__HTTP_ENCODED
  };
  const uint64_t tail = INSITU__RING_TAIL, none = UINT64_MAX;
  const struct {
    uint64_t first, bytes; /* asked for */
    int status;
    bool has_range;
    uint64_t from, to, total, length;
    bool encoded;
    int verdict;
    uint64_t skip;
  } cases[] = {
      {0, 10, 206, true, 0, 9, 100, 10, false, FINE, 0},
      {5, 10, 206, true, 5, 14, none, 10, false, FINE, 0},
      {95, 10, 206, true, 95, 99, 100, 5, false, FINE, 0},  /* at the object's end */
      {0, 100, 206, true, 0, 99, 100, 100, false, FINE, 0}, /* as long as the buffers */
      {5, 10, 206, true, 5, 9, none, 5, false, FINE, 0},    /* perhaps its end */
      {5, 10, 206, true, 5, 9, 100, 5, false, RANGE, 0},    /* too little */
      {5, 10, 206, true, 5, 15, 100, 11, false, RANGE, 0},  /* too much */
      {5, 10, 206, true, 6, 15, 100, 10, false, RANGE, 0},  /* another */
      {5, 10, 206, true, 1, 0, 100, 10, false, RANGE, 0},   /* none */
      {5, 10, 206, false, 0, 0, none, 10, false, RANGE, 0}, /* none, or several */
      {0, 0, 206, true, 0, 9, 10, 10, false, RANGE, 0},     /* not asked for */
      {tail, 10, 206, true, 90, 99, 100, 10, false, FINE, 0},
      {tail, 10, 206, true, 0, 4, 5, 5, false, FINE, 0},
      {tail, 10, 206, true, 90, 99, none, 10, false, RANGE, 0}, /* where is the end? */
      {tail, 10, 206, true, 90, 98, 100, 9, false, RANGE, 0},
      {tail, 10, 206, true, 95, 99, 100, 5, false, RANGE, 0},
      {tail, 10, 206, true, 80, 99, 100, 20, false, RANGE, 0},
      {5, 10, 200, false, 0, 0, none, 100, false, FINE, 5},
      {5, 10, 200, false, 0, 0, none, none, false, FINE, 5},
      {2 << 20, 10, 200, false, 0, 0, none, 100, false, WHOLE, 2 << 20},
      {tail, 10, 200, false, 0, 0, none, 100, false, FINE, 90},
      {tail, 10, 200, false, 0, 0, none, 4, false, FINE, 0},
      {tail, 10, 200, false, 0, 0, none, none, false, WHOLE, 0},
      {0, 10, 200, false, 0, 0, none, 10, true, ENCODED, 0},
      {0, 10, 503, false, 0, 0, none, 10, true, FINE, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct iovec iov = {0};
    struct insitu__http_request r = {
        .iov = &iov, .n_iov = 1, .first = cases[i].first, .bytes = cases[i].bytes};
    r.answer = (struct insitu__http_answer){.status = cases[i].status,
        .has_range = cases[i].has_range,
        .first = cases[i].from,
        .last = cases[i].to,
        .total = cases[i].total,
        .length = cases[i].length,
        .encoded = cases[i].encoded};
    int verdict = insitu__http_check_head(&r);
    if (verdict != cases[i].verdict || r.skip != cases[i].skip)
      fail_msg("case %d: %d, skips %d", (int)i, verdict, (int)r.skip);
  }
}
/* never more than there is room for, or than was announced */
static void test_place(void **state) {
  (void)state;
  for (uint64_t left = 0; left < 12; left++) {
    char a[3] = "", b[4] = "";
    struct iovec iov[] = {{a, 3}, {NULL, 2}, {NULL, 0}, {b, 4}};
    struct insitu__http_request r = {.iov = iov, .n_iov = 4, .skip = 2, .left = left};
    bool all = insitu__http_copy_body(&r, "xyabcde", 7);
    assert_int_equal(all, left >= 5);
    all = insitu__http_copy_body(&r, "fghijk", 6);
    assert_false(all);
    assert_int_equal(r.placed, left < 9 ? left : 9);
    assert_memory_equal(a, "abc", left < 3 ? left : 3);
    assert_memory_equal(b, "fghi", left < 5 ? 0 : left < 9 ? left - 5 : 4);
  }
}
/* As memcpy does: every place in a line, every length, nothing beside it. */
static void test_place_past_the_caches(void **state) {
  static unsigned char from[400], to[600];
  (void)state;
  for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 7 + 1);
  for (size_t place = 0; place < 64; place++)
    for (size_t n = 0; n <= 333; n++) {
      unsigned char *at = to + 64 - (uintptr_t)to % 64 + place;
      struct iovec iov = {at, n};
      struct insitu__http_request r = {.iov = &iov, .n_iov = 1, .left = n, .past_caches = true};
      memset(to, 0xEE, sizeof to);
      assert_true(insitu__http_copy_body(&r, (char *)from + n % 61, n));
      assert_memory_equal(at, from + n % 61, n);
      for (unsigned char *p = to; p < to + sizeof to; p++)
        if (p < at || p >= at + n) assert_int_equal(*p, 0xEE);
    }
}

/* ---- reads through a store ---- */
enum { PART = INSITU__REMOTE_PART };
static struct server *server;
static struct insitu__reactor reactor;
static struct insitu__store store;
static struct {
  const char *key;
  uint64_t offset, bytes, got;
  bool whole;
  char *to;
  insitu_status status;
  insitu_error err;
} ask;
static void ask_it(void *arg) {
  struct iovec iov[2] = {{ask.to, (size_t)(ask.bytes / 2)},
      {ask.to + ask.bytes / 2, (size_t)(ask.bytes - ask.bytes / 2)}};
  struct insitu__store_tag tag = {.whole = ask.whole};
  (void)arg;
  ask.status =
      insitu__store_fetch_await(&store, ask.key, ask.offset, iov, 2, &tag, &ask.got, &ask.err);
}
static void asked(const char *key, uint64_t offset, uint64_t bytes) {
  ask.key = key;
  ask.offset = offset;
  ask.bytes = bytes;
  ask.to = realloc(ask.to, (size_t)bytes + 1);
  memset(ask.to, 0, (size_t)bytes);
  memset(&ask.err, 0, sizeof ask.err);
  assert_int_equal(insitu__reactor_call(&reactor, ask_it, NULL), INSITU_OK);
}
static void open_store(int m, const insitu_option *options, uint64_t n) {
  insitu_error err = {0};
  struct insitu__reactor_desc d = {
      .backend = modes[m].io == INSITU_IO_URING ? INSITU__RING_URING : INSITU__RING_EPOLL,
      .inline_mode = modes[m].inline_io};
  const insitu_loader_desc desc = {
      .api = INSITU_API, .url = server_url(server, ""), .options = options, .n_options = n};
  d.workers = d.io_threads = d.inline_mode ? 0 : 1;
  if (insitu__reactor_open(&reactor, &d, &err) ||
      insitu__source_open_store(&store, &reactor, &desc, &err))
    fail_msg("%s", err.message);
}
static void close_store(void) {
  insitu__reactor_close(&reactor);
  insitu__store_close(&store);
}
static int setup(void **state) {
  if (support_setup(state)) return -1;
  server = server_start(&(struct server_options){.threads = 1});
  return 0;
}
static int teardown(void **state) {
  (void)state;
  free(ask.to);
  server_stop(&server);
  return support_teardown(state);
}
static char *noise(uint64_t n) {
  char *bytes = malloc((size_t)n);
  assert_non_null(bytes);
  for (uint64_t i = 0; i < n; i++) bytes[i] = (char)(server__mix(i / 8) >> i % 8 * 8);
  return bytes;
}
/* objects shorter and longer than parts and buffers, and exactly as long */
static void test_sizes(void **state) {
  (void)state;
  static const uint64_t sizes[] = {1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1};
  char *bytes = noise(3 * PART);
  EACH_MODE (m) {
    server_reset(server);
    open_store(m, NULL, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      char key[20];
      uint64_t n = sizes[i];
      snprintf(key, sizeof key, "s%d", (int)i);
      server_put(server, key, bytes, n);
      for (int more = -1; more <= 1; more++) {
        asked(key, 0, n + (uint64_t)more);
        if (ask.status) fail_msg("%s", ask.err.message);
        assert_int_equal(ask.got, more < 0 ? n - 1 : n);
        assert_memory_equal(ask.to, bytes, ask.got);
      }
      asked(key, INSITU__RING_TAIL, 5);
      assert_true(!ask.status && ask.got == (n < 5 ? n : 5));
      assert_memory_equal(ask.to, bytes + n - ask.got, ask.got);
      asked(key, n, 5); /* beyond its end */
      assert_true(!ask.status && ask.got == 0);
    }
    close_store();
  }
  free(bytes);
}
/* Where all of an object is meant no range is asked for, but for the rest of one that broke off,
 * and of parts. */
static void test_whole(void **state) {
  static const uint64_t sizes[] = {0, 1, 100000};
  char *bytes = noise(PART);
  (void)state;
  ask.whole = true;
  server_put(server, "large", bytes, PART);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char key[20];
    snprintf(key, sizeof key, "w%d", (int)i);
    server_put(server, key, bytes, sizes[i]);
  }
  EACH_MODE (m) {
    open_store(m, NULL, 0);
    server_reset(server);
    server_rule(server, (struct server_rule){.range = "?*", .fault = SERVER_STATUS, .status = 400});
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (uint64_t room = sizes[i] > 1 ? sizes[i] - 1 : 1; room <= sizes[i] + 2; room++) {
        char key[20];
        snprintf(key, sizeof key, "w%d", (int)i);
        asked(key, 0, room);
        if (ask.status) fail_msg("%s", ask.err.message);
        assert_int_equal(ask.got, room < sizes[i] ? room : sizes[i]);
        assert_memory_equal(ask.to, bytes, ask.got);
      }
    assert_int_equal(server_stats(server).faults, 0);
    /* broken off; a part of it; not from its begin; more than a part */
    for (int k = 0; k < 4; k++) {
      static const char *const range[] = {
          "bytes=70000-100004", "", "bytes=5-100004", "bytes=0-8388607"};
      server_reset(server);
      server_rule(server, (struct server_rule){.range = range[k], .fault = SERVER_STALL, .ms = 1});
      if (k == 0)
        server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = 70000});
      if (k == 3) asked("large", 0, PART + 1);
      else asked("w2", k == 2 ? 5 : 0, k == 1 ? 100 : k == 2 ? 100000 : 100005);
      if (ask.status) fail_msg("%s", ask.err.message);
      assert_int_equal(ask.got, k == 3 ? PART : k == 2 ? 99995 : k == 1 ? 100 : 100000);
      assert_memory_equal(ask.to, bytes + (k == 2 ? 5 : 0), ask.got);
      assert_int_equal(server_stats(server).faults, k ? 1 : 2);
    }
    close_store();
  }
  ask.whole = false;
  free(bytes);
}
/* All bytes of a range have come, and then the connection ends without the end of a chunked body:
 * the rest of the read is asked for, not the object again; and the same with nothing but the range
 * wanted. */
static void test_end_of_body(void **state) {
  (void)state;
  const uint64_t size = 2 * PART + 1000;
  char *bytes = noise(size);
  server_put(server, "o", bytes, size);
  EACH_MODE (m)
    for (int whole = 0; whole < 3; whole++) {
      server_reset(server);
      server_rule(server, (struct server_rule){.fault = SERVER_CHUNKED, .at = PART});
      int64_t cut = 8 + PART + 2; /* "800000\r\n", and "\r\n" */
      if (whole < 2)
        server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = cut});
      else
        server_rule(server,
            (struct server_rule){.each = true, .count = 2, .fault = SERVER_RESET, .at = 100});
      open_store(m, NULL, 0);
      asked("o", 0, whole ? size + 5 : PART);
      if (ask.status) fail_msg("%s", ask.err.message);
      assert_int_equal(ask.got, whole ? size : PART);
      assert_memory_equal(ask.to, bytes, ask.got);
      close_store();
    }
  free(bytes);
}
/* A server that knows no ranges breaks off behind the first part of a read: an error, or all of it,
 * never a part of it. */
static void test_broken_whole(void **state) {
  (void)state;
  const uint64_t size = 2 * PART;
  char *bytes = noise(size);
  server_put(server, "o", bytes, size);
  for (int ranges = 0; ranges < 2; ranges++) {
    server_reset(server);
    server_rule(server, (struct server_rule){.count = ranges, .fault = SERVER_WHOLE});
    server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = PART + 1000});
    open_store(EPOLL, NULL, 0);
    asked("o", 0, size + 1);
    assert_int_equal(ask.status, ranges ? INSITU_OK : INSITU_E_HTTP);
    if (ranges) assert_true(ask.got == size && !memcmp(ask.to, bytes, (size_t)size));
    close_store();
  }
  free(bytes);
}
/* What stands behind a body, or an empty one, changes nothing of its answer. */
static void test_trailer(void **state) {
  (void)state;
  server_reset(server);
  server_text(server, "o", "0123456789");
  server_text(server, "empty", "");
  EACH_MODE (m) {
    open_store(m, NULL, 0);
    for (int i = 0; i < 3; i++) {
      server_reset(server);
      server_rule(server, (struct server_rule){.fault = SERVER_CHUNKED, .at = 3});
      if (i == 1)
        server_rule(server, (struct server_rule){.fault = SERVER_TRAILER, .text = "ETag: \"new\""});
      asked("o", 0, 10);
      if (ask.status) fail_msg("%s", ask.err.message);
      assert_true(ask.got == 10 && !memcmp(ask.to, "0123456789", 10));
      ask.whole = true; /* a range of it is refused, with a text */
      asked("empty", 0, 10);
      ask.whole = false;
      if (ask.status) fail_msg("%s", ask.err.message);
      assert_int_equal(ask.got, 0);
      assert_int_equal(server_stats(server).requests, 2);
    }
    close_store();
  }
}
/* A header that breaks off says nothing, though its first line came. */
static void test_half_a_header(void **state) {
  (void)state;
  server_text(server, "o", "0123456789");
  EACH_MODE (m)
    for (int hedge = 0; hedge < 2; hedge++) {
      const insitu_option options[] = {{"max_retries", "1"}, {"hedge", hedge ? "true" : "false"}};
      server_reset(server);
      server_rule(server, (struct server_rule){.fault = SERVER_STATUS, .status = 503});
      server_rule(server, (struct server_rule){.fault = SERVER_CLOSE, .at = SERVER_AT_HEADER});
      open_store(m, options, 2);
      asked("o", 0, 10);
      assert_int_equal(ask.status, INSITU_E_HTTP);
      assert_int_equal(ask.err.http_status, 0);
      server_reset(server);
      asked("o", 0, 10);
      if (ask.status) fail_msg("%s", ask.err.message);
      close_store();
    }
}
/* Two requests for one answer, whose headers both come before either's body: the one that gives the
 * body counts. */
static void test_two_headers(void **state) {
  (void)state;
  server_text(server, "o", "0123456789");
  const insitu_option options[] = {{"hedge", "true"}};
  EACH_MODE (m) {
    server_reset(server);
    server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_STALL, .ms = 2000});
    server_rule(
        server, (struct server_rule){.skip = 1, .count = 1, .fault = SERVER_STALL, .ms = 60000});
    server_rule(server,
        (struct server_rule){.skip = 1, .count = 1, .fault = SERVER_ETAG, .text = "\"new\""});
    open_store(m, options, 1);
    for (int i = 0; i < 2; i++) { /* the second finds the ETag that was noted */
      asked("o", 0, 10);
      if (ask.status) fail_msg("%s", ask.err.message);
      assert_true(ask.got == 10 && !memcmp(ask.to, "0123456789", 10));
    }
    assert_int_equal(server_stats(server).requests, 3);
    close_store();
  }
}
/* What was wrong with the answer to a second request is forgotten with it: the first one, which
 * breaks off later, may be tried again. */
static bool second_refused(void *user, const struct server_request *q, struct server_answer *a) {
  int *nth = user;
  (void)q;
  const uint64_t line = 1000, n = ++*nth == 2 ? INSITU__MAX_HEADERS / line + 1 : 0;
  a->status = 206;
  a->headers = malloc(100 + (n + 1) * line);
  char *at = a->headers + sprintf(a->headers, "Content-Range: bytes 0-9/10\r\n");
  for (uint64_t i = 0; i < n; i++) at += sprintf(at, "X: %0*d\r\n", (int)line - 5, 0);
  a->n_body = 10;
  a->body = strdup("0123456789");
  return true;
}
static void test_second_refused(void **state) {
  (void)state;
  int nth = 0;
  struct server *other =
                    server_start(&(struct server_options){.answer = second_refused, .user = &nth}),
                *kept = server;
  const insitu_option options[] = {{"hedge", "true"}};
  server = other;
  EACH_MODE (m) {
    nth = 0;
    server_reset(server);
    server_rule(server,
        (struct server_rule){.count = 1, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = 2000});
    server_rule(
        server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = SERVER_AT_HEADER});
    open_store(m, options, 1);
    asked("o", 0, 10);
    if (ask.status) fail_msg("%s", ask.err.message);
    assert_true(ask.got == 10 && !memcmp(ask.to, "0123456789", 10));
    assert_int_equal(server_stats(server).requests, 3);
    close_store();
  }
  server = kept;
  server_stop(&other);
}
/* a chunked body that goes on behind what Content-Range says */
static void test_more_than_the_range(void **state) {
  (void)state;
  server_reset(server);
  server_text(server, "o", "0123456789abcdef");
  server_rule(server, (struct server_rule){.fault = SERVER_CHUNKED});
  server_rule(server, (struct server_rule){.fault = SERVER_RANGE, .text = "bytes 0-9/10"});
  open_store(EPOLL, NULL, 0);
  asked("o", 0, 100);
  assert_int_equal(ask.status, INSITU_E_HTTP);
  close_store();
}
/* Two versions of an object in one read, from a server without conditions: told, even when both
 * attempts break off. */
static bool versions(void *user, const struct server_request *q, struct server_answer *a) {
  int *nth = user;
  uint64_t first = 0;
  for (unsigned i = 0; i < q->n_headers; i++)
    if (!strcasecmp(q->headers[i].name, "range"))
      sscanf(q->headers[i].value, "bytes=%" SCNu64, &first);
  a->status = 206;
  a->headers = malloc(200);
  snprintf(
      a->headers, 200, "Content-Range: bytes %d-99/100\r\nETag: \"%d\"\r\n", (int)first, *nth > 0);
  a->n_body = 100 - first;
  a->body = malloc(100);
  memset(a->body, *nth > 0 ? 'n' : 'o', 100);
  ++*nth;
  return true;
}
static void test_two_versions(void **state) {
  (void)state;
  int nth = 0;
  struct server *other = server_start(&(struct server_options){.answer = versions, .user = &nth}),
                *kept = server;
  server_rule(other, (struct server_rule){.count = 2, .fault = SERVER_CLOSE, .at = 20});
  server = other;
  open_store(EPOLL, NULL, 0);
  asked("o", 0, 100);
  assert_int_equal(ask.status, INSITU_E_CHANGED);
  close_store();
  server = kept;
  server_stop(&other);
}
/* A large object becomes shorter behind its first part: no hole in what is read. Without an ETag,
 * and with a Last-Modified of just now, parts could not be known to belong together: all of it is
 * asked for in one request. */
static void test_shrinks(void **state) {
  (void)state;
  const uint64_t size = 3 * PART;
  char *bytes = noise(size), range[60];
  server_put(server, "o", bytes, size);
  snprintf(range, sizeof range, "bytes=%d-*", PART);
  for (int etag = 0; etag < 2; etag++) {
    server_reset(server);
    if (!etag) server_rule(server, (struct server_rule){.fault = SERVER_ETAG, .text = ""});
    server_rule(
        server, (struct server_rule){.range = range, .fault = SERVER_STATUS, .status = 416});
    server_rule(
        server, (struct server_rule){
                    .range = range, .fault = SERVER_HEADER, .text = "Content-Range: bytes */100"});
    open_store(EPOLL, NULL, 0);
    asked("o", 0, size);
    insitu_status status = ask.status;
    close_store();
    assert_int_equal(status, etag ? INSITU_E_CHANGED : INSITU_OK);
    if (!etag) assert_memory_equal(ask.to, bytes, (size_t)size);
    assert_int_equal(server_stats(server).requests, etag ? 3 : 2);
  }
  free(bytes);
}
/* What is told of answers that cannot be put together is what was seen of them. The server knows no
 * conditions; answers from the second part on have an ETag of their own. */
static bool two_tags(void *user, const struct server_request *q, struct server_answer *a) {
  const char *const *tag = user;
  uint64_t first = 0, last = 2 * PART - 1;
  for (unsigned i = 0; i < q->n_headers; i++)
    if (!strcasecmp(q->headers[i].name, "range"))
      sscanf(q->headers[i].value, "bytes=%" SCNu64 "-%" SCNu64, &first, &last);
  const char *etag = tag[first >= PART];
  a->status = 206;
  a->headers = malloc(200);
  snprintf(a->headers, 200, "Content-Range: bytes %d-%d/%d\r\n%s%s%s", (int)first, (int)last,
      2 * PART, etag[0] ? "ETag: " : "", etag, etag[0] ? "\r\n" : "");
  a->n_body = last - first + 1;
  a->body = calloc(1, (size_t)a->n_body);
  return true;
}
static void test_told_as_changed(void **state) {
  (void)state;
  static const struct {
    const char *tag[2], *part;
  } cases[] = {{{"\"a\"", "\"a\""}, NULL},
      {{"\"a\"", "\"b\""}, "(its ETag, date or size is another)"},
      {{"\"a\"", ""}, "some answers have an ETag or a date, others have none"},
      {{"\"a\"", "W/\"a\""}, "an ETag among them is weak"}};
  const char *tag[2];
  struct server *other = server_start(&(struct server_options){.answer = two_tags, .user = tag}),
                *kept = server;
  server = other;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int again = 0; again < 2; again++) { /* of two parts of a read, or of two reads */
      memcpy(tag, cases[i].tag, sizeof tag);
      open_store(any_mode(), NULL, 0);
      asked("o", 0, again ? 1000 : 2 * PART);
      if (again) {
        assert_int_equal(ask.status, INSITU_OK);
        asked("o", PART, 1000);
      }
      close_store();
      /* parts belong together where that is proven, reads where nothing speaks against it */
      bool good = !cases[i].part || (again && tag[1][0] == 'W');
      assert_int_equal(ask.status, good ? INSITU_OK : INSITU_E_CHANGED);
      if (!good && !strstr(ask.err.message, cases[i].part)) fail_msg("%s", ask.err.message);
    }
  server = kept;
  server_stop(&other);
}
/* The place of the last bytes is counted from a length that was asked for; the object that answers
 * has another one: its bytes there are not the last. */
static void test_tail_of_another_length(void **state) {
  (void)state;
  server_text(server, "o", "0123456789");
  server_text(server, "shorter", "01234567");
  server_text(server, "longer", "0123456789abcdef");
  EACH_MODE (m)
    for (int i = 0; i < 3; i++) {
      static const char *const told[] = {"o", "shorter", "longer"};
      server_reset(server);
      server_rule(
          server, (struct server_rule){.range = "bytes=-*", .fault = SERVER_STATUS, .status = 400});
      server_rule(
          server, (struct server_rule){.method = "HEAD", .fault = SERVER_SWAP, .text = told[i]});
      open_store(m, NULL, 0);
      asked("o", INSITU__RING_TAIL, 9);
      if (i) {
        assert_int_equal(ask.status, INSITU_E_CHANGED);
      } else {
        if (ask.status) fail_msg("%s", ask.err.message);
        assert_true(ask.got == 9 && !memcmp(ask.to, "123456789", 9));
      }
      close_store();
    }
}
/* the request fails, and nothing stays behind of it */
static void test_refusing_curl(void **state) {
  (void)state;
  server_reset(server);
  server_text(server, "o", "0123456789");
  EACH_MODE (m) {
    open_store(m, NULL, 0);
    for (int i = 0; i < 5; i++) {
      refusals = i % 2;
      asked("o", 2, 3);
      assert_int_equal(ask.status, i % 2 ? INSITU_E_NOMEM : INSITU_OK);
      if (!(i % 2)) assert_memory_equal(ask.to, "234", 3);
      assert_int_equal(insitu__remote_of(insitu__store_base(&store))->http->under_way, 0);
    }
    close_store();
  }
}
/* answers of every kind lift the limit again, "not there" as well */
static void test_slowed_down(void **state) {
  (void)state;
  server_reset(server);
  open_store(EPOLL, NULL, 0);
  insitu__remote_of(insitu__store_base(&store))->http->tune.limit = 1;
  for (int i = 0; i < 10; i++) {
    asked("absent", 0, 3);
    assert_int_equal(ask.status, INSITU_E_NOTFOUND);
  }
  assert_true(insitu__remote_of(insitu__store_base(&store))->http->tune.limit > 4);
  close_store();
}

/* ---- names ---- */
/* Waits until so many look-ups have begun in all and so many of them are under way. A look-up has a
 * thread of its own, which begins some time after the request that asked for it. */
static void names_settle(int asked, int inside) {
  for (int i = 0; (names(&names_asked) != asked || names(&names_inside) != inside) && i < 60000;
       i++)
    usleep(1000);
  assert_int_equal(names(&names_asked), asked);
  assert_int_equal(names(&names_inside), inside);
}
struct named { /* a request to http://HOST:port/o */
  const char *host;
  bool expired; /* its address is due for a look-up */
  insitu_status status;
  int answer;
  char message[sizeof((insitu_error *)NULL)->message];
  struct insitu__reactor_gate *done;
};
static void send_named(void *arg) {
  struct named *n = arg;
  insitu_error err = {0};
  char url[200];
  struct insitu__http_request r = {.text = {.limit = 1000}};
  snprintf(url, sizeof url, "http://%s:%d/o", n->host, server->port);
  r.url = url;
  for (int i = 0; n->expired && i < INSITU__MAX_HOSTS; i++)
    insitu__remote_of(insitu__store_base(&store))->http->host[i].until = 0;
  n->status = insitu__http_await(insitu__remote_of(insitu__store_base(&store))->http, &r, &err);
  n->answer = r.answer.status;
  snprintf(n->message, sizeof n->message, "%s", err.message);
  insitu__http_request_free(&r);
  if (n->done) insitu__reactor_gate_open(n->done);
}
enum { NAMED = 5 };
static struct named named[NAMED];
static void send_all_named(void *arg) {
  struct insitu__reactor_gate done;
  (void)arg;
  insitu__reactor_gate_expect(&done, NAMED);
  for (int i = 0; i < NAMED; i++) {
    named[i].done = &done;
    if (insitu__reactor_spawn(&reactor, send_named, &named[i])) abort();
  }
  insitu__reactor_gate_await(&reactor, &done);
}
static struct named *send_one_named(const char *host, bool expired) {
  static struct named one;
  one = (struct named){.host = host, .expired = expired};
  assert_int_equal(insitu__reactor_call(&reactor, send_named, &one), INSITU_OK);
  return &one;
}
/* one that is slow or unknown is told so in time, and is no matter for others */
static void test_names(void **state) {
  static const insitu_option options[] = {{"connect_timeout", "300ms"}, {"max_retries", "0"}};
  static const char *const hosts[NAMED] = {
      "slow.test", "fast.test", "gone.test", "slow.test", "127.0.0.1"};
  (void)state;
  EACH_MODE (m) {
    server_reset(server);
    server_text(server, "o", "0123456789");
    names_asked = names_foreign = 0;
    names_set(true, false);
    open_store(m, options, 2);
    for (int i = 0; i < NAMED; i++) named[i] = (struct named){.host = hosts[i]};
    assert_int_equal(insitu__reactor_call(&reactor, send_all_named, NULL), INSITU_OK);
    for (int i = 0; i < NAMED; i++) {
      bool good = i == 1 || i == 4;
      assert_int_equal(named[i].status, good ? INSITU_OK : INSITU_E_HTTP);
      assert_int_equal(named[i].answer, good ? 200 : 0);
      const char *part =
          i == 2 ? gai_strerror(EAI_NONAME)
                 : "'slow.test': its look-up takes longer than connect_timeout (300 ms)";
      if (!good && !strstr(named[i].message, part)) fail_msg("%s: %s", hosts[i], named[i].message);
    }
    /* the same look-up */
    assert_int_equal(send_one_named("slow.test", false)->status, INSITU_E_HTTP);
    assert_int_equal(send_one_named("fast.test", false)->status, INSITU_OK);
    names_settle(3, 1);
    close_store(); /* and nobody waits for it */
    assert_int_equal(names(&names_inside), 1);
    names_set(false, false);
    names_settle(3, 0);
    assert_int_equal(names(&names_foreign), 0);
  }
}
/* why a look-up failed: the name, this machine, or memory */
static void test_names_failed(void **state) {
  static const insitu_option options[] = {{"max_retries", "0"}};
  static const struct {
    const char *host;
    bool no_threads;
    insitu_status status;
    const char *part, *advice;
  } cases[] = {{"lone.test", false, INSITU_OK, "", ""},
      {"gone.test", false, INSITU_E_HTTP, "'gone.test': ", "check the host's name"},
      {"sick.test", false, INSITU_E_HTTP, "'sick.test': Too many open files; ", "ulimit -n"},
      {"poor.test", false, INSITU_E_NOMEM, "no memory for the request", "more memory"},
      {"fast.test", true, INSITU_E_HTTP, "'fast.test': its look-up got no thread; ", "ulimit -u"},
      {"fast.test", false, INSITU_OK, "", ""}};
  (void)state;
  EACH_MODE (m) {
    server_reset(server);
    server_text(server, "o", "0123456789");
    names_asked = names_foreign = 0;
    names_set(false, false);
    open_store(m, options, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      no_threads = cases[i].no_threads;
      const struct named *one = send_one_named(cases[i].host, false);
      no_threads = false;
      assert_int_equal(one->status, cases[i].status);
      if (!strstr(one->message, cases[i].part) || !strstr(one->message, cases[i].advice))
        fail_msg("%s: %s", cases[i].host, one->message);
    }
    close_store();
    names_settle(5, 0);
    assert_int_equal(names(&names_foreign), 0);
  }
}
/* addresses that are due serve on while, and where, new ones cannot be had */
static void test_names_renewed(void **state) {
  (void)state;
  EACH_MODE (m) {
    server_reset(server);
    server_text(server, "o", "0123456789");
    names_asked = names_foreign = 0;
    names_set(false, false);
    open_store(m, NULL, 0);
    assert_int_equal(send_one_named("slow.test", false)->status, INSITU_OK);
    names_settle(1, 0);
    names_set(true, true);
    for (int i = 0; i < 3; i++)
      assert_int_equal(send_one_named("slow.test", true)->status, INSITU_OK);
    names_settle(2, 1);
    names_set(false, true);
    names_settle(2, 0);
    for (int i = 0; i < 3; i++)
      assert_int_equal(send_one_named("slow.test", false)->status, INSITU_OK);
    struct insitu__names_host *host = &insitu__remote_of(insitu__store_base(&store))->http->host[0];
    /* until its end is seen */
    for (int i = 0; host->asked && i < 1000; i++) send_one_named("slow.test", false);
    assert_int_equal(names(&names_asked), 2);
    assert_true(!host->asked && host->n == 1 && host->error == EAI_NONAME);
    names_set(false, false);
    assert_int_equal(send_one_named("slow.test", true)->status, INSITU_OK);
    close_store();
    names_settle(3, 0);
    assert_int_equal(names(&names_foreign), 0);
  }
}
/* looked up by the same way; a proxy looks its targets up by itself */
static void test_names_of_proxies(void **state) {
  static const struct {
    const char *host, *proxy, *excludes;
    int asked;
    insitu_status status;
  } cases[] = {{"nowhere.test", "fast.test", "", 1, INSITU_OK},
      {"nowhere.test", "127.0.0.1", "", 0, INSITU_OK},
      {"nowhere.test", "gone.test", "", 1, INSITU_E_HTTP},
      {"nowhere.test", "gone.test", "a.b, .test", 1, INSITU_OK},
      {"gone.test", "fast.test", "one.test", 1, INSITU_OK},
      {"127.0.0.1", "gone.test", "127.0.0.0/8", 0, INSITU_OK}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int environment = 0; environment < 2; environment++) {
      char url[100];
      server_reset(server);
      server_text(server, "o", "0123456789");
      names_asked = names_foreign = 0;
      snprintf(url, sizeof url, "http://%s:%d", cases[i].proxy, server->port);
      const insitu_option options[] = {{"proxy_url", url}, {"proxy_excludes", cases[i].excludes}};
      if (environment) setenv("http_proxy", url, 1);
      if (environment) setenv("no_proxy", cases[i].excludes, 1);
      open_store(EPOLL, options, environment ? 0 : 2);
      struct named *n = send_one_named(cases[i].host, false);
      if (n->status != cases[i].status) fail_msg("case %d: %d: %s", (int)i, n->status, n->message);
      assert_int_equal(names(&names_asked), cases[i].asked);
      assert_int_equal(names(&names_foreign), 0);
      close_store();
      unsetenv("http_proxy");
      unsetenv("no_proxy");
    }
}
static void test_proxy_excludes(void **state) {
  static const struct {
    const char *list, *host;
    bool want;
  } cases[] = {{"", "a", false}, {"*", "a", true}, {"a.org", "a.org", true},
      {"a.org", "b.a.org", true}, {".a.org", "a.org", true}, {"a.org", "ba.org", false},
      {"A.ORG.", "a.org", true}, {"x, y a.org", "a.org.", true}, {",,", "a", false},
      {"2.3", "10.1.2.3", false}, {"10.1.2.3", "10.1.2.3", true}, {"10.0.0.0/8", "10.1.2.3", true},
      {"10.0.0.0/9", "10.200.2.3", false}, {"10.0.0.0/33", "10.0.0.0", false},
      {"10.0.0.0/x", "10.0.0.0", false}, {"10.0.0.0/", "10.0.0.0", false},
      {"10.0.0.0/", "192.168.1.1", false}, {"0.0.0.0/0", "10.0.0.0", true}, {"[::1]", "::1", true},
      {"::1", "::1", true}, {"fe80::/10", "fe80::1", true}, {"fe80::/10", "ff80::1", false},
      {"10.0.0.0/8", "a.org", false}, {"10.0.0.0/8", "::1", false}};
  char host[20];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (insitu__names_is_excluded(cases[i].list, cases[i].host) != cases[i].want)
      fail_msg("%s: %s", cases[i].list, cases[i].host);
  static const char *const urls[][2] = {{"http://a.org:80/x", "a.org"}, {"https://u:p@a/", "a"},
      {"http://[::1]:8/", "::1"}, {"http://u@[::1]", "::1"}, {"http://a?b@c", "a"},
      {"http:///", NULL}, {"a", NULL}, {"http://aaaaaaaaaaaaaaaaaaaaaaaa", NULL}};
  for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
    assert_int_equal(insitu__names_bare_host(urls[i][0], host, sizeof host), urls[i][1] != NULL);
    if (urls[i][1]) assert_string_equal(host, urls[i][1]);
  }
}
/* A server that takes connections and stays silent: opening and reading end by the options' times,
 * after as many attempts. */
static void test_silence(void **state) {
  static const insitu_option options[] = {
      {"connect_timeout", "1s"}, {"stall_timeout", "1s"}, {"max_retries", "1"}};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof at;
  char url[60];
  (void)state;
  EACH_MODE (m) {
    if (m != EPOLL && m != INLINE_EPOLL) continue; /* seconds each */
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), taken = 0;
    assert_true(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 64));
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/a.zarr", ntohs(at.sin_port));
    const insitu_variable v = {.label = "x", .path = "x"};
    const insitu_loader_desc d = {.api = INSITU_API,
        .url = url,
        .variables = &v,
        .n_variables = 1,
        .batch_size = 1,
        .options = options,
        .n_options = 3,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io,
        .log_level = INSITU_LOG_ERROR};
    insitu_loader *ld = NULL;
    insitu_error err = {0};
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_HTTP);
    assert_null(ld);
    if (!strstr(err.message, "stall_timeout") || !strstr(err.message, "2 attempts"))
      fail_msg("%s", err.message);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; taken++) close(fd);
    assert_true(taken >= 2 && taken <= 8); /* what is asked side by side, twice */
    close(listener);
    at.sin_port = 0;
  }
  server_reset(server);
  server_text(server, "o", "0123456789");
  unsigned rule = server_rule(
      server, (struct server_rule){
                  .key = "o", .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
  open_store(EPOLL, options, 3);
  asked("o", 0, 3);
  assert_int_equal(ask.status, INSITU_E_HTTP);
  assert_int_equal(server_hits(server, rule), 2);
  close_store();
  server_release(server);
}

#include "faulty.h"

/* ---- a handle that is used again ---- */
/* Requests of every kind, each of them after each other one on the same handle: it has the very
 * options, and the server sees the very bytes, as if it were the first. */
static struct server *second;
struct kind {
  const char *name, *method, *key, *header, *header2, *body;
  uint64_t first, bytes;
  int64_t timeout_ms;
  bool text, direct, timing, user, other;
};
static const struct kind kinds[] = {
    {"range", .key = "o", .header = "Range: bytes=2-4", .first = 2, .bytes = 3},
    {"another range", .key = "p", .header = "Range: bytes=5-9", .first = 5, .bytes = 5},
    {"whole", .key = "o"}, {"a GET by name", "GET", .key = "p"},
    {"more headers", .key = "o", .header = "Authorization: Bearer x", .header2 = "If-Match: *"},
    {"not there", .key = "absent"}, {"refused", .key = "refused"},
    {"unauthorized", .key = "unauthorized"}, {"broken", .key = "broken"},
    {"beyond", .key = "o", .header = "Range: bytes=90-99", .first = 90, .bytes = 10},
    {"text", .key = "o", .text = true}, {"head", "HEAD", .key = "o"},
    {"head into text", "HEAD", .key = "p", .text = true},
    {"post", "POST", .key = "o", .body = "a=b", .text = true},
    {"put", "PUT", .key = "q", .body = "", .text = true},
    {"patient", .key = "o", .timeout_ms = 61234}, {"direct", .key = "o", .direct = true},
    {"timed", .key = "o", .timing = true}, {"user", .key = "o", .user = true},
    {"elsewhere", .key = "o", .other = true},
    {"odd path", .key = "a/../b//./%41%2f\xc3\xa9?x=/y&z=%2F"}, {"empty path", .key = ""},
    {"with a fragment", .key = "o#f"}, {"only a query", .key = "?q"}};
enum { KINDS = sizeof kinds / sizeof *kinds };
static struct outcome {
  insitu_status status;
  int answer;
  uint64_t placed;
  char body[64], head[1000], options[sizeof known.all];
} now, alone[KINDS];
static void last_head(void *user, const struct server_logged *l) {
  snprintf(user, sizeof now.head, "%s", l->head);
}
static void send_kind(void *arg) {
  const struct kind *k = arg;
  struct insitu__http_timing timing;
  insitu_error err = {0};
  char url[300], body[sizeof now.body] = "";
  struct iovec iov = {body, 20};
  const char *base = server_url(k->other ? second : server, "");
  snprintf(url, sizeof url, "http://%s%s%s", k->user ? "me:secret@" : "", base + strlen("http://"),
      k->key);
  if (k->key[0] == '?') strcpy(strrchr(url, '/'), k->key);
  struct insitu__http_request r = {
      .method = k->method, .url = url, .first = k->first, .bytes = k->bytes, .body = k->body};
  r.n_body = k->body ? strlen(k->body) : 0;
  r.timeout_ms = k->timeout_ms;
  r.direct = k->direct;
  if (k->timing) r.timing = &timing;
  if (!k->text) r.iov = &iov, r.n_iov = 1;
  bool ok = (!k->header || insitu__http_header(&r, k->header, "")) &&
            (!k->header2 || insitu__http_header(&r, k->header2, ""));
  memset(&now, 0, sizeof now);
  now.status =
      ok ? insitu__http_await(insitu__remote_of(insitu__store_base(&store))->http, &r, &err)
         : INSITU_E_NOMEM;
  now.answer = r.answer.status;
  now.placed = r.placed;
  snprintf(now.body, sizeof now.body, "%s", k->text && r.text.text ? r.text.text : body);
  memcpy(now.options, known.all, sizeof now.options);
  insitu__http_request_free(&r);
}
static void sent(const struct kind *k, bool proxy) {
  struct server *at = k->other || (proxy && !k->direct) ? second : server;
  assert_int_equal(insitu__reactor_call(&reactor, send_kind, (void *)(uintptr_t)k), INSITU_OK);
  server_logged(at, 0, last_head, now.head);
}
static bool is_plain(const struct kind *k) {
  bool usual = !k->text && !k->direct && !k->user && !k->timeout_ms,
       get = !k->method || !strcmp(k->method, "GET");
  return usual && get && !strchr(k->key, '#') && k->key[0] != '?';
}
static void test_kept(void **state) {
  (void)state;
  second = server_start(&(struct server_options){.threads = 1});
  struct server *both[] = {server, second};
  server_reset(server);
  for (int i = 0; i < 2; i++) {
    server_text(both[i], "o", i ? "abcdefghijkl" : "0123456789");
    server_text(both[i], "p", "nopqrstuvwxyz");
    server_rule(
        both[i], (struct server_rule){.key = "refused", .fault = SERVER_STATUS, .status = 403});
    server_rule(both[i],
        (struct server_rule){.key = "unauthorized", .fault = SERVER_STATUS, .status = 401});
    server_rule(both[i], (struct server_rule){.key = "broken", .fault = SERVER_CLOSE, .at = 20});
  }
  for (int proxy = 0; proxy < 2; proxy++) {
    char url[100];
    const insitu_option option = {"proxy_url", url};
    snprintf(url, sizeof url, "%s", server_url(second, ""));
    for (int k = 0; k < KINDS; k++) {
      open_store(EPOLL, &option, (uint64_t)proxy);
      sent(&kinds[k], proxy);
      alone[k] = now;
      close_store();
      if (kinds[k].user) continue;
      char line[200];
      /* what a proxy needs to be told */
      const char *base = server_url(kinds[k].other ? second : server, "");
      if (!proxy || kinds[k].direct) base = "/";
      snprintf(line, sizeof line, "%s %s%.*s HTTP/1.1\r\n",
          kinds[k].method ? kinds[k].method : "GET", base, (int)strcspn(kinds[k].key, "#"),
          kinds[k].key);
      if (strncmp(now.head, line, strlen(line)))
        fail_msg("%s: '%s', not '%s'", kinds[k].name, now.head, line);
    }
    open_store(EPOLL, &option, (uint64_t)proxy);
    for (int a = 0; a < KINDS; a++)
      for (int b = 0; b < KINDS; b++) {
        sent(&kinds[a], proxy);
        int before = resets_sent;
        bool kept = is_plain(&kinds[a]) && is_plain(&kinds[b]) &&
                    kinds[a].other == kinds[b].other && !now.status;
        kept = kept && (now.answer == 200 || now.answer == 206 || now.answer == 404);
        sent(&kinds[b], proxy);
        const struct outcome *want = &alone[b];
        if (strcmp(now.options, want->options))
          fail_msg("%s after %s: it has the options\n%snot\n%s", kinds[b].name, kinds[a].name,
              now.options, want->options);
        if (strcmp(now.head, want->head))
          fail_msg(
              "%s after %s: '%s', not '%s'", kinds[b].name, kinds[a].name, now.head, want->head);
        if (now.status != want->status || now.answer != want->answer ||
            now.placed != want->placed || strcmp(now.body, want->body))
          fail_msg("%s after %s: another answer, %d and not %d", kinds[b].name, kinds[a].name,
              now.answer, want->answer);
        if (kept != (resets_sent == before))
          fail_msg("%s after %s: kept, or not", kinds[b].name, kinds[a].name);
      }
    close_store();
  }
  server_stop(&second);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_retry_after),
      cmocka_unit_test(test_target),
      cmocka_unit_test(test_judge),
      cmocka_unit_test(test_place),
      cmocka_unit_test(test_place_past_the_caches),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_whole),
      cmocka_unit_test(test_end_of_body),
      cmocka_unit_test(test_broken_whole),
      cmocka_unit_test(test_trailer),
      cmocka_unit_test(test_half_a_header),
      cmocka_unit_test(test_two_headers),
      cmocka_unit_test(test_second_refused),
      cmocka_unit_test(test_more_than_the_range),
      cmocka_unit_test(test_two_versions),
      cmocka_unit_test(test_shrinks),
      cmocka_unit_test(test_tail_of_another_length),
      cmocka_unit_test(test_told_as_changed),
      cmocka_unit_test(test_refusing_curl),
      cmocka_unit_test(test_slowed_down),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_names_failed),
      cmocka_unit_test(test_names_renewed),
      cmocka_unit_test(test_names_of_proxies),
      cmocka_unit_test(test_proxy_excludes),
      cmocka_unit_test(test_silence),
      cmocka_unit_test(test_cut_short_is_not_kept),
      cmocka_unit_test(test_unchanged_behind_other_bytes),
      cmocka_unit_test(test_replaced),
      cmocka_unit_test(test_faulty),
      cmocka_unit_test(test_kept),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, setup, teardown);
}
