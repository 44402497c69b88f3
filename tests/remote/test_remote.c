/* Whole epochs over HTTP from a server that this process runs, fine and ill: what can be overcome
 * ends in the very bytes and the very order of a local read, all else in one clear error; and
 * nothing is left behind. */
#include "server.h"
#define INSITU__HTTP_PAUSE 10000000 /* nanoseconds */
#define INSITU__HTTP_PAUSE_SLOW 50000000
/* what goes straight into batches goes there past the caches */
#define INSITU__LOADER_PAST_CACHES 1
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "zip.h"
#include <sys/resource.h>
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

/* Small archives with a chunk for every few samples, of each way in which chunks are stored; in the
 * temporary folder. */
static const struct support_array archives[] = {
    {.name = "raw",
        .ndim = 3,
        .shape = {60, 5, 7},
        .chunk = {3, 5, 7},
        .dtype = INSITU_F32,
        .format = 3},
    {.name = "big",
        .ndim = 3,
        .shape = {60, 9, 7},
        .chunk = {4, 4, 7},
        .dtype = INSITU_I16,
        .format = 2,
        .big = true,
        .fortran = true},
    {.name = "zstd",
        .ndim = 2,
        .shape = {60, 300},
        .chunk = {4, 100},
        .dtype = INSITU_F64,
        .format = 3,
        .zstd = true,
        .absent = 5},
    {.name = "sharded",
        .ndim = 2,
        .shape = {60, 64},
        .chunk = {2, 32},
        .dtype = INSITU_F32,
        .format = 3,
        .zstd = true,
        .shard = {5, 2},
        .index_crc = true,
        .gap = 100},
    {.name = "rawshard",
        .ndim = 2,
        .shape = {60, 64},
        .chunk = {2, 32},
        .dtype = INSITU_F32,
        .format = 3,
        .shard = {5, 2},
        .index_first = true},
    {.name = "fields",
        .ndim = 3,
        .shape = {60, 24, 31},
        .chunk = {3, 24, 31},
        .dtype = INSITU_F32,
        .format = 3},
    {.name = "fieldshard",
        .ndim = 3,
        .shape = {60, 24, 31},
        .chunk = {3, 24, 31},
        .dtype = INSITU_F32,
        .format = 3,
        .shard = {4, 1, 1},
        .gap = 100},
};
enum { RAW, BIG, ZSTD, SHARDED, RAWSHARD, FIELDS, FIELDSHARD, ARCHIVES };
static struct server *server;
static struct server_child killed, apart; /* servers in processes of their own */

static void serve_apart(struct server *s, void *user) {
  (void)user;
  server_latency(s, 2);
}
static int setup(void **state) {
  if (support_setup(state)) return -1;
  for (int i = 0; i < ARCHIVES; i++) support_make(support_path(archives[i].name), &archives[i]);
  struct server_options options = {.folder = support_dir};
  killed = server_fork(&options, serve_apart, NULL); /* before there are threads */
  apart = server_fork(&options, serve_apart, NULL);
  /* of the storm */
  if (getenv("TEST_SEED")) options.seed = strtoull(getenv("TEST_SEED"), NULL, 10);
  server = server_start(&options);
  return 0;
}
static int teardown(void **state) {
  server_kill(&killed);
  server_kill(&apart);
  server_stop(&server);
  return support_teardown(state);
}
/* What the server still has to do for clients that are gone. */
static void settle(void) {
  for (int i = 0; !server_is_idle(server); i++) {
    if (i > 60000) fail_msg("a connection stays open");
    usleep(1000);
  }
}
static unsigned descriptors(void) {
  unsigned n = 0;
  settle();
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n - 3; /* ".", "..", and the one that reads */
}
/* ---- an epoch, and what came of it ---- */
struct run {
  uint64_t order, bytes, batches; /* hashes of the anchors and of all bytes */
  insitu_status status;           /* of opening or of the call that gave no batch */
  insitu_error err;
  insitu_stats stats;
  bool opened;
};
struct job {
  const char *url;
  const insitu_variable *variables;
  uint64_t n_variables;
  insitu_option options[8];
  const char *cache_dir;
  uint64_t max_inflight, prefetch_depth, batch_size;
  /* requests that count as sent already: second ones are at most one in twenty of all */
  uint64_t asked_before;
  int32_t split, on_absent, on_bad, offline;
  int mode;
  void (*at_batch)(uint64_t batch);
};
static insitu_loader_desc desc_of(const struct job *j) { /* the job keeps what it points to */
  uint64_t n = 0;
  while (n < 8 && j->options[n].key) n++;
  return (insitu_loader_desc){.api = INSITU_API,
      .url = j->url,
      .variables = j->variables,
      .n_variables = j->n_variables,
      .batch_size = j->batch_size ? j->batch_size : 5,
      .block_chunks = 6,
      .options = j->options,
      .n_options = n,
      .max_inflight = j->max_inflight,
      .prefetch_depth = j->prefetch_depth,
      .cache_dir = j->cache_dir,
      .on_absent_chunk = j->on_absent,
      .on_bad_chunk = j->on_bad,
      .offline = j->offline,
      .hold_epoch = 1,
      .log_level = INSITU_LOG_ERROR,
      .io = modes[j->mode].io,
      .inline_io = modes[j->mode].inline_io};
}
static struct run run(const struct job *j) {
  struct run r = {.order = 1, .bytes = 1};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_loader_desc d = desc_of(j);
  insitu_iter_desc id = {.api = INSITU_API, .split = j->split};
  r.status = insitu_loader_open(&d, &ld, &r.err);
  if (r.status) return r;
  r.opened = true;
  if (j->asked_before)
    insitu__http_count(&insitu__remote_of(insitu__store_base(&ld->source.store))->http->n_requests,
        j->asked_before);
  r.status = insitu_iter_open(ld, &id, &it, &r.err);
  while (!r.status && (r.status = insitu_iter_next(it, 60000, &b, &r.err)) == INSITU_OK) {
    r.order = server__hash(r.order, b->sample_indices, b->rows * sizeof *b->sample_indices);
    for (uint64_t i = 0; i < b->n_arrays; i++)
      r.bytes = server__hash(r.bytes, b->arrays[i].data, b->arrays[i].bytes);
    insitu_batch_release(&b);
    if (j->at_batch) j->at_batch(r.batches);
    r.batches++;
  }
  assert_int_equal(insitu_loader_stats(ld, &r.stats, NULL), INSITU_OK);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return r;
}
static const int64_t two_steps[] = {0, 3};
static const insitu_variable views[ARCHIVES][2] = {
    {{.label = "x", .path = "raw"},
        {.label = "y", .path = "raw", .offset = 2, .dtype = INSITU_F64}},
    {{.label = "x", .path = "big"},
        {.label = "y", .path = "big", .steps = two_steps, .n_steps = 2}},
    {{.label = "x", .path = "zstd"}, {.label = "y", .path = "zstd", .offset = -1}},
    {{.label = "x", .path = "sharded"}, {.label = "y", .path = "sharded", .offset = 1}},
    {{.label = "x", .path = "rawshard"}, {.label = "y", .path = "rawshard", .offset = 1}},
    {{.label = "x", .path = "fields"}, {.label = "y", .path = "fields", .offset = 1}},
    {{.label = "x", .path = "fieldshard"}, {.label = "y", .path = "fieldshard", .offset = 1}}};
/* base: "" for the folder itself */
static struct job job(int archive, const char *base, int mode) {
  static char url[8][700];
  static int turn;
  char *p = url[turn++ % 8];
  snprintf(p, sizeof url[0], "%s/%s", *base ? base : support_dir, archives[archive].name);
  return (struct job){.url = p, .variables = views[archive], .n_variables = 2, .mode = mode};
}
static const char *here(void) {
  static char base[64];
  snprintf(base, sizeof base, "http://127.0.0.1:%d", server->port);
  return base;
}
static struct run local[ARCHIVES]; /* what the folder itself gives */
/* from the local read: how, or NULL */
static const char *differs(const struct run *r, int archive) {
  struct run *want = &local[archive];
  if (!want->batches) {
    struct job j = job(archive, "", INLINE_EPOLL);
    *want = run(&j);
    assert_int_equal(want->status, INSITU_END);
    assert_true(want->batches > 3);
  }
  if (r->status != INSITU_END) return r->err.message;
  if (r->order != want->order) return "another order";
  return r->bytes != want->bytes || r->batches != want->batches ? "other bytes" : NULL;
}
static void same(const struct run *r, int archive, const char *what) {
  const char *how = differs(r, archive);
  if (how) fail_msg("%s: %s: %s", what, insitu_status_name(r->status), how);
}

/* ---- servers that are well ---- */
static void test_epochs(void **state) {
  (void)state;
  EACH_MODE (m) {
    unsigned before = descriptors();
    for (int a = 0; a < ARCHIVES; a++) {
      server_reset(server);
      struct job j = job(a, here(), m);
      struct run r = run(&j);
      same(&r, a, archives[a].name);
      assert_int_equal(r.stats.retries, 0);
      settle(); /* an answer is counted once it has been sent, perhaps after it has come */
      assert_int_equal(r.stats.http_requests, server_stats(server).requests);
      assert_true(
          r.stats.bytes_fetched > 0 && r.stats.bytes_fetched <= server_stats(server).bytes_sent);
    }
    assert_int_equal(descriptors(), before);
  }
}
/* Archives that zarr-python wrote: blosc in its variants, both formats, zip files. */
static void test_stores(void **state) {
  static const insitu_variable train[] = {
      {.label = "x", .offset = 1}, {.label = "y", .dtype = INSITU_F32}, {.label = "z"}};
  static const insitu_variable blosc[] = {
      {.label = "lz4_shuffle"}, {.label = "lz4_bitshuffle"}, {.label = "blosc_zstd_shuffle"}};
  static const insitu_variable zip[2][1] = {
      {{.label = "x", .path = "a/shards"}}, {{.label = "x", .path = "a/c/d"}}};
  struct server *data = server_start(&(struct server_options){.folder = TEST_DATA "/stores"});
  (void)state;
  EACH_MODE (m)
    for (int i = 0; i < 5; i++) {
      static const char *const name[] = {
          "train.v2.zarr", "train.v3.zarr", "codecs.v2.zarr", "store.v3.zip", "folder.v3.zip"};
      char url[300];
      struct run r[2];
      for (int remote = 0; remote < 2; remote++) {
        snprintf(
            url, sizeof url, "%s/%s", remote ? server_url(data, "") : TEST_DATA "/stores", name[i]);
        const insitu_variable *v = i < 2 ? train : i == 2 ? blosc : zip[i - 3];
        struct job j = {.url = url,
            .variables = v,
            .n_variables = i < 3 ? 3 : 1,
            .split = INSITU_ALL,
            .mode = m};
        r[remote] = run(&j);
        if (r[remote].status != INSITU_END) fail_msg("%s: %s", url, r[remote].err.message);
      }
      assert_true(r[0].order == r[1].order && r[0].bytes == r[1].bytes &&
                  r[0].batches == r[1].batches && r[0].batches);
    }
  server_stop(&data);
}

/* A host by name; options; a query that every request carries; names with all sorts of characters.
 */
static void test_urls(void **state) {
  static const char *const root = "a b/c+d%41#x?y=\xc3\xa9&z",
                           *const encoded = "a%20b/c+d%2541%23x%3Fy=%C3%A9&z";
  static const char *const name = "t2m %25;,@=[]'~é";
  char base[200], key[300];
  (void)state;
  EACH_MODE (m) {
    server_reset(server);
    snprintf(base, sizeof base, "http://localhost:%d", server->port);
    struct job j = job(ZSTD, base, m);
    j.options[0] = (insitu_option){"http_version", "2"}; /* without TLS it stays at 1.1 */
    j.options[1] = (insitu_option){"user_agent", "me/1"};
    j.options[2] = (insitu_option){"max_connections", "3"};
    struct run r = run(&j);
    same(&r, ZSTD, "localhost");
    assert_int_equal(server_seen(server, "\nuser-agent: me/1\r"), server_stats(server).requests);
    assert_true(server_stats(server).in_flight_max <= 3 && server_stats(server).connections <= 3);
    settle();
    /* an archive of one chunk */
    server_reset(server);
    snprintf(key, sizeof key, "%s/%s/zarr.json", root, name);
    server_text(server, key,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"uint8\",\"chunk_"
        "grid\":{\"name\":\"regular\","
        "\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
        "\"fill_value\":0,\"codecs\":["
        "{\"name\":\"bytes\"}]}");
    snprintf(key, sizeof key, "%s/%s/c/0", root, name);
    server_put(server, key, "\1\2\3\4", 4);
    snprintf(key, sizeof key, "%s/zarr.json", root);
    server_text(server, key, "{\"zarr_format\":3,\"node_type\":\"group\"}");
    insitu_variable v = {.label = "x", .path = name};
    char url[400];
    snprintf(url, sizeof url, "%s?sig=a%%2Fb&x", server_url(server, encoded));
    insitu_loader_desc d = {.api = INSITU_API,
        .url = url,
        .variables = &v,
        .n_variables = 1,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io,
        .plan_only = modes[m].inline_io};
    insitu_loader *ld;
    insitu_error err = {0};
    unsigned char got[4];
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    if (insitu_read(ld, &v, got, sizeof got, NULL, &err)) fail_msg("%s", err.message);
    assert_memory_equal(got, "\1\2\3\4", 4);
    assert_int_equal(server_seen(server, "?sig=a%2Fb&x HTTP/1.1"), server_stats(server).requests);
    insitu_loader_close(&ld);
    settle();
  }
}
static unsigned second_time; /* a rule */
static atomic_bool hedged;
static void *answer_both(void *user) { /* the late one, too, once it is asked for a second time */
  (void)user;
  for (; !atomic_load(&hedged); usleep(1000))
    if (server_hits(server, second_time)) server_release(server);
  return NULL;
}
/* An answer that is late is asked for a second time; whichever comes first counts. */
static void test_hedge(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int late = 0; late < 2; late++) {
      unsigned before = descriptors();
      pthread_t thread;
      server_reset(server);
      server_rule(server, (struct server_rule){.key = "*/c/3/*",
                              .count = 1,
                              .fault = SERVER_STALL,
                              .at = SERVER_AT_START,
                              .ms = SERVER_EVER});
      second_time = server_rule(server, (struct server_rule){.key = "*/c/3/*",
                                            .skip = 1,
                                            .count = 1,
                                            .fault = SERVER_STALL,
                                            .at = 50,
                                            .ms = late ? SERVER_EVER : 200});
      atomic_store(&hedged, false);
      if (late) assert_int_equal(pthread_create(&thread, NULL, answer_both, NULL), 0);
      struct job j = job(RAW, here(), m);
      /* so this one is, too, where the machine is so busy that others are late before it */
      j.asked_before = 1000;
      j.options[0] = (insitu_option){"hedge", "true"};
      /* and where all are so late that late ones are told late */
      j.options[1] = (insitu_option){"stall_timeout", "5m"};
      struct run r = run(&j);
      atomic_store(&hedged, true);
      if (late) pthread_join(thread, NULL);
      same(&r, RAW, "hedges");
      assert_true(r.stats.hedges >= 1);
      assert_int_equal(r.stats.retries, 0);
      settle();
      assert_int_equal(descriptors(), before);
    }
}

/* ---- servers that are ill ---- */
#define FAST                                                                                       \
  {"connect_timeout", "2s"}, {                                                                     \
    "stall_timeout", "1s"                                                                          \
  }
/* Of servers that are never silent: what a busy machine delays is not asked for again, or a fault
 * would meet another request. */
#define SLOW                                                                                       \
  {"connect_timeout", "1m"}, {                                                                     \
    "stall_timeout", "1m"                                                                          \
  }
struct ill {
  const char *name;
  int archive;
  struct server_rule rule[2];
  /* what it must end in: INSITU_END, all right; or this error, from opening or from next */
  insitu_status status;
  int http_status;
  uint64_t retries, throttled; /* at least */
  bool retryable;
  const char *word;     /* in the message */
  insitu_option option; /* one more, in test_parts */
};
#define CHUNKS "*/c/*"
#define EACH .each = true, .count = 1
#define LONG_10 "0123456789"
#define LONG_50 LONG_10 LONG_10 LONG_10 LONG_10 LONG_10
#define LONG LONG_50 LONG_50 LONG_50 LONG_10 LONG_10 LONG_10 LONG_10 /* 190 bytes */
static const struct ill overcome[] = {
    {"500 with XML, each object once", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_STATUS, .status = 500}}, .retries = 10},
    {"502", ZSTD, {{.key = CHUNKS, .count = 3, .fault = SERVER_STATUS, .status = 502}},
        .retries = 3},
    {"504 for metadata", RAW, {{.key = "*zarr.json", EACH, .fault = SERVER_STATUS, .status = 504}},
        .retries = 1},
    {"408", RAW, {{.key = CHUNKS, .count = 3, .fault = SERVER_STATUS, .status = 408}},
        .retries = 3},
    {"503 SlowDown", RAW,
        {{.key = CHUNKS, .count = 2, .fault = SERVER_STATUS, .status = 503, .text = "SlowDown"}},
        .retries = 2, .throttled = 2},
    {"503, Retry-After in seconds", RAW,
        {{.key = CHUNKS, .count = 1, .fault = SERVER_STATUS, .status = 503, .retry_after = 1}},
        .retries = 1, .throttled = 1},
    {"429, Retry-After as a date", RAW,
        {{.key = CHUNKS, .count = 1, .fault = SERVER_STATUS, .status = 429, .retry_after = -1}},
        .retries = 1, .throttled = 1},
    {"reset before the header", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_RESET, .at = SERVER_AT_START}}, .retries = 1},
    {"reset in the header", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_RESET, .at = SERVER_AT_HEADER}}, .retries = 10},
    {"reset after the header", RAW, {{.key = CHUNKS, EACH, .fault = SERVER_RESET, .at = 0}},
        .retries = 10},
    {"reset in the body", RAW, {{.key = CHUNKS, EACH, .fault = SERVER_RESET, .at = 100}},
        .retries = 10},
    {"reset in a shard", SHARDED, {{.key = CHUNKS, EACH, .fault = SERVER_RESET, .at = 11}},
        .retries = 5},
    {"metadata closed in the header", BIG,
        {{.key = "*.zarray", EACH, .fault = SERVER_CLOSE, .at = SERVER_AT_HEADER}}, .retries = 1},
    {"a whole object closed in the header", ZSTD,
        {{.key = CHUNKS, .fault = SERVER_WHOLE},
            {.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = SERVER_AT_HEADER}},
        .retries = 5},
    {"reset in metadata", BIG, {{.key = "*.zarray", EACH, .fault = SERVER_RESET, .at = 50}},
        .retries = 1},
    {"closed before the header", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = SERVER_AT_START}}, .retries = 1},
    {"closed in the header", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = SERVER_AT_HEADER}}, .retries = 10},
    {"truncated", RAW, {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = 200}}, .retries = 10},
    {"truncated, compressed", ZSTD, {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = 20}},
        .retries = 10},
    {"truncated, in a shard", RAWSHARD, {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = 33}},
        .retries = 5},
    {"truncated and chunked", RAW,
        {{.key = CHUNKS, .fault = SERVER_CHUNKED, .at = 64},
            {.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = 200}},
        .retries = 10},
    {"truncated thrice", RAW,
        {{.key = CHUNKS, .each = true, .count = 3, .fault = SERVER_CLOSE, .at = 100}},
        .retries = 20},
    {"silent before the header", RAW,
        {{.key = CHUNKS,
            .count = 2,
            .fault = SERVER_STALL,
            .at = SERVER_AT_START,
            .ms = SERVER_EVER}},
        .retries = 2},
    {"silent in the header", RAW,
        {{.key = CHUNKS,
            .count = 1,
            .fault = SERVER_STALL,
            .at = SERVER_AT_HEADER,
            .ms = SERVER_EVER}},
        .retries = 1},
    {"silent in the body", RAW,
        {{.key = CHUNKS, .count = 2, .fault = SERVER_STALL, .at = 100, .ms = SERVER_EVER}},
        .retries = 2},
    {"a pause in the body", RAW, {{.key = CHUNKS, .fault = SERVER_STALL, .at = 100, .ms = 30}},
        .status = INSITU_OK},
    {"slow drips", RAW, {{.key = CHUNKS, .count = 2, .fault = SERVER_DRIP, .at = 1, .ms = 100}},
        .retries = 2},
    {"bytes by the dozen", ZSTD, {{.key = CHUNKS, .fault = SERVER_DRIP, .at = 12, .ms = 1}},
        .status = INSITU_OK},
    {"another range than asked for, once", SHARDED,
        {{.key = CHUNKS, .range = "?*", EACH, .fault = SERVER_RANGE, .at = 1}}, .retries = 1},
    {"no Content-Range, once", SHARDED,
        {{.key = CHUNKS, .range = "?*", EACH, .fault = SERVER_RANGE, .text = ""}}, .retries = 1},
    {"ranges ignored", SHARDED, {{.key = CHUNKS, .fault = SERVER_WHOLE}}, .status = INSITU_OK},
    {"Content-Length too large", RAW, {{.key = CHUNKS, EACH, .fault = SERVER_LENGTH, .at = 7}},
        .retries = 10},
    {"Content-Length too small, once", SHARDED,
        {{.key = CHUNKS, .range = "?*", EACH, .fault = SERVER_LENGTH, .at = -7}}, .retries = 1},
    {"more than announced", RAW, {{.key = CHUNKS, .fault = SERVER_LONGER, .at = 5000}},
        .status = INSITU_OK},
    {"noise instead of a header", RAW, {{.key = CHUNKS, EACH, .fault = SERVER_NOISE}},
        .retries = 1},
    {"redirect here", RAW,
        {{.key = "raw/*", .fault = SERVER_REDIRECT, .text = "/raw/../*", .count = 3}},
        .status = INSITU_OK},
    {"a header of 90 KiB", RAW, {{.fault = SERVER_BIG_HEADER, .at = 90 << 10}},
        .status = INSITU_OK},
    {"interim answers", RAW, {{.fault = SERVER_CONTINUE, .at = 2}}, .status = INSITU_OK},
    {"early hints", SHARDED, {{.fault = SERVER_CONTINUE, .at = 1, .status = 103}},
        .status = INSITU_OK},
    {"closed after each answer", SHARDED, {{.fault = SERVER_LAST}}, .status = INSITU_OK},
    {"chunked answers", SHARDED, {{.fault = SERVER_CHUNKED, .at = 33}}, .status = INSITU_OK},
    {"answers until close", ZSTD, {{.fault = SERVER_UNTIL_CLOSE}}, .status = INSITU_OK},
    {"no ETag", SHARDED, {{.fault = SERVER_ETAG, .text = ""}}, .status = INSITU_OK},
    {"a weak ETag", SHARDED, {{.fault = SERVER_ETAG, .text = "W/\"1\""}}, .status = INSITU_OK},
    {"404 once for a shard that was read before", SHARDED,
        {{.key = "*/c/1/0",
            .skip = 1,
            .count = 1,
            .fault = SERVER_STATUS,
            .status = 404,
            .text = "NoSuchKey"}},
        .retries = 1},
    {"Retry-After in the past", RAW,
        {{.key = CHUNKS, .count = 1, .fault = SERVER_STATUS, .status = 503, .text = "x"},
            {.key = CHUNKS,
                .count = 1,
                .fault = SERVER_HEADER,
                .text = "Retry-After: Tue, 15 Nov 1994 08:12:31 GMT"}},
        .retries = 1, .throttled = 1},
    {"Retry-After that is none", RAW,
        {{.key = CHUNKS, .count = 1, .fault = SERVER_STATUS, .status = 503},
            {.key = CHUNKS, .count = 1, .fault = SERVER_HEADER, .text = "Retry-After: -7 soon"}},
        .retries = 1, .throttled = 1},
    {"an ETag too long to keep", SHARDED,
        {{.fault = SERVER_HEADER, .text = "X: y"}, {.fault = SERVER_ETAG, .text = "\"" LONG "\""}},
        .status = INSITU_OK},
    {"latency", SHARDED, {{.fault = SERVER_STALL, .at = SERVER_AT_START, .ms = 10}},
        .status = INSITU_OK},
};
static const struct ill fatal[] = {
    {"500 for ever", RAW, {{.key = CHUNKS, .fault = SERVER_STATUS, .status = 500}},
        .status = INSITU_E_HTTP, .http_status = 500, .retries = 2, .retryable = true,
        .word = "attempts"},
    {"503 for ever, metadata", RAW, {{.fault = SERVER_STATUS, .status = 503, .text = "SlowDown"}},
        .status = INSITU_E_HTTP, .http_status = 503, .retryable = true, .word = "SlowDown"},
    {"a Retry-After of days", RAW,
        {{.key = CHUNKS, .fault = SERVER_STATUS, .status = 503, .retry_after = 300000}},
        .status = INSITU_E_HTTP, .http_status = 503, .throttled = 1, .retryable = true,
        .word = "slow down: lower max_inflight"},
    {"a shard that goes away", SHARDED,
        {{.key = "*/c/1/0", .skip = 1, .fault = SERVER_STATUS, .status = 404, .text = "NoSuchKey"}},
        .status = INSITU_E_CHANGED, .http_status = 404, .retries = 2, .word = "not there any more"},
    {"a shard that became shorter", SHARDED,
        {{.key = CHUNKS, .skip = 8, .fault = SERVER_STATUS, .status = 416}},
        .status = INSITU_E_HTTP, .http_status = 416},
    {"an endless error", RAW,
        {{.key = CHUNKS, .fault = SERVER_GARBAGE, .status = 400, .at = 1 << 22}},
        .status = INSITU_E_HTTP, .http_status = 400},
    {"403", RAW,
        {{.key = CHUNKS, .skip = 3, .fault = SERVER_STATUS, .status = 403, .text = "AccessDenied"}},
        .status = INSITU_E_AUTH, .http_status = 403, .word = "AccessDenied"},
    {"404 that breaks off, metadata", RAW,
        {{.fault = SERVER_STATUS, .status = 404, .text = "NoSuchKey"},
            {.fault = SERVER_CLOSE, .at = 10}},
        .status = INSITU_E_HTTP, .http_status = 404, .retryable = true, .word = "attempts"},
    {"401, metadata", BIG, {{.fault = SERVER_STATUS, .status = 401}}, .status = INSITU_E_AUTH,
        .http_status = 401, .word = "credentials"},
    {"400", RAW, {{.key = CHUNKS, .fault = SERVER_STATUS, .status = 400, .text = "InvalidRequest"}},
        .status = INSITU_E_HTTP, .http_status = 400, .word = "InvalidRequest"},
    {"501", RAW, {{.key = CHUNKS, .fault = SERVER_STATUS, .status = 501}}, .status = INSITU_E_HTTP,
        .http_status = 501},
    {"reset for ever", RAW, {{.key = CHUNKS, .fault = SERVER_RESET, .at = SERVER_AT_START}},
        .status = INSITU_E_HTTP, .http_status = 0, .retries = 2, .retryable = true},
    {"reset in every body", RAW, {{.key = CHUNKS, .fault = SERVER_RESET, .at = 0}},
        .status = INSITU_E_HTTP, .http_status = -1, .retries = 2, .retryable = true},
    {"truncated for ever", RAW, {{.key = CHUNKS, .fault = SERVER_CLOSE, .at = 0}},
        .status = INSITU_E_HTTP, .http_status = -1, .retries = 2, .retryable = true},
    {"silent for ever", RAW,
        {{.key = CHUNKS, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER}},
        .status = INSITU_E_HTTP, .http_status = 0, .retries = 1, .retryable = true,
        .word = "stall_timeout"},
    {"silent in metadata", RAW, {{.fault = SERVER_STALL, .at = 10, .ms = SERVER_EVER}},
        .status = INSITU_E_HTTP, .http_status = -1, .retryable = true},
    {"always another range", RAWSHARD,
        {{.key = CHUNKS, .range = "bytes=0-*", .fault = SERVER_RANGE, .at = 1}},
        .status = INSITU_E_HTTP, .http_status = 206, .retryable = true, .word = "range"},
    {"never a Content-Range", RAWSHARD,
        {{.key = CHUNKS, .range = "?*", .fault = SERVER_RANGE, .text = ""}},
        .status = INSITU_E_HTTP, .http_status = 206, .retryable = true, .word = "range"},
    {"changed between reads of a shard", SHARDED,
        {{.key = "*/c/1/0", .skip = 1, .count = 1, .fault = SERVER_CHANGE}},
        .status = INSITU_E_CHANGED, .http_status = -1, .word = "chang"},
    {"changed in the midst of a body", RAW,
        {{.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = 100},
            {.key = CHUNKS, .skip = 30, .fault = SERVER_CHANGE}},
        .status = INSITU_E_CHANGED, .http_status = -1, .word = "chang"},
    {"noise as metadata", RAW, {{.key = "*zarr.json", .fault = SERVER_GARBAGE, .at = 3000}},
        .status = INSITU_E_JSON, .http_status = -1},
    {"noise as a shard", SHARDED, {{.key = CHUNKS, .fault = SERVER_GARBAGE, .at = 30000}},
        .status = INSITU_E_CORRUPT, .http_status = -1},
    {"compressed on the way", RAW, {{.key = CHUNKS, .fault = SERVER_GZIP}}, .status = INSITU_E_HTTP,
        .http_status = 200, .word = "Content-Encoding"},
    {"a byte flipped", ZSTD, {{.key = CHUNKS, .fault = SERVER_FLIP, .at = 30}},
        .status = INSITU_E_CORRUPT, .http_status = -1},
    {"a header of 1 MiB", RAW, {{.key = CHUNKS, .fault = SERVER_BIG_HEADER, .at = 1 << 20}},
        .status = INSITU_E_HTTP, .http_status = -1},
    {"noise for ever", RAW, {{.key = CHUNKS, .fault = SERVER_NOISE}}, .status = INSITU_E_HTTP,
        .http_status = 0, .retries = 2, .retryable = true},
    {"a redirect in circles", RAW, {{.key = CHUNKS, .fault = SERVER_REDIRECT, .text = "/*"}},
        .status = INSITU_E_HTTP, .http_status = 302, .word = "redirect"},
    {"a redirect to a file", RAW,
        {{.key = CHUNKS, .fault = SERVER_REDIRECT, .text = "file:///etc/passwd"}},
        .status = INSITU_E_HTTP, .http_status = 302},
    {"a redirect to nowhere", RAW, {{.key = CHUNKS, .fault = SERVER_REDIRECT, .text = ""}},
        .status = INSITU_E_HTTP, .http_status = 302},
};
/* Illnesses fail one by one, and all are tried. */
static int n_bad;
__attribute__((format(printf, 1, 2))) static void bad(const char *format, ...) {
  char text[3000];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  print_error("%s\n", text);
  n_bad++;
}
/* An illness on all modes in turn; every other one of them with a query and a user, which no
 * message may show. */
static void suffer(const struct ill *f, int m) {
  char base[200];
  unsigned before = descriptors();
  server_reset(server);
  for (int i = 0; i < 2; i++)
    if (f->rule[i].fault) server_rule(server, f->rule[i]);
  snprintf(base, sizeof base, "http://us3r:secr3t@127.0.0.1:%d", server->port);
  struct job j = job(f->archive, base, m);
  char url[800];
  snprintf(url, sizeof url, "%s?sig=t0ken", j.url);
  j.url = url;
  bool silent = f->rule[0].ms == SERVER_EVER || f->rule[0].fault == SERVER_DRIP;
  static const insitu_option fast[] = {FAST}, slow[] = {SLOW};
  memcpy(j.options, silent ? fast : slow, sizeof fast);
  j.options[2] = (insitu_option){"max_retries", f->status < 0 ? "2" : "8"};
  struct run r = run(&j);
  if (f->status == INSITU_OK) {
    if (differs(&r, f->archive)) bad("%s: %s", f->name, differs(&r, f->archive));
  } else {
    const char *name = strrchr(j.url, '/') + 1;
    if (r.status != f->status)
      bad("%s: %s, not %s: %s", f->name, insitu_status_name(r.status),
          insitu_status_name(f->status), r.err.message);
    if (f->http_status >= 0 && r.err.http_status != f->http_status)
      bad("%s: HTTP status %d, not %d: %s", f->name, r.err.http_status, f->http_status,
          r.err.message);
    if (f->http_status >= 0 && r.err.retryable != f->retryable)
      bad("%s: retryable is %d", f->name, r.err.retryable);
    if (f->word && !strcasestr(r.err.message, f->word))
      bad("%s: no '%s' in: %s", f->name, f->word, r.err.message);
    if (f->status == INSITU_E_HTTP || f->status == INSITU_E_AUTH || f->status == INSITU_E_CHANGED) {
      char store[100], want[100];
      snprintf(store, sizeof store, "127.0.0.1:%d", server->port);
      snprintf(want, sizeof want, "%.*s", (int)strcspn(name, "?"), name);
      if (!strstr(r.err.message, store) || !strstr(r.err.message, want) ||
          !strstr(r.err.message, "; "))
        bad("%s: store, object or advice is missing: %s", f->name, r.err.message);
    }
    if (getenv("TEST_VERBOSE")) print_message("%s: %s\n", f->name, r.err.message);
  }
  static const char *const secret[] = {"us3r", "secr3t", "t0ken", "dXMzcjpzZWNyM3Q", "sig="};
  for (int i = 0; i < 5; i++)
    if (strstr(r.err.message, secret[i])) bad("%s: a secret in: %s", f->name, r.err.message);
  if (r.opened && (r.stats.retries < f->retries || r.stats.throttled < f->throttled))
    bad("%s: %d retries, %d throttled", f->name, (int)r.stats.retries, (int)r.stats.throttled);
  if (server_stats(server).faults == 0) bad("%s: never happened", f->name);
  settle();
  if (descriptors() != before)
    bad("%s: %d descriptors, before %d", f->name, (int)descriptors(), (int)before);
}
static void suffer_all(const struct ill *f, size_t n) {
  int usable[MODES], modes_n = n_bad = 0;
  const char *only = getenv("TEST_ILL");
  EACH_MODE (m) usable[modes_n++] = m;
  for (size_t i = 0; i < n; i++)
    if (!only || strstr(f[i].name, only)) suffer(&f[i], usable[i % (size_t)modes_n]);
  assert_int_equal(n_bad, 0);
}
static void test_overcome(void **state) {
  (void)state;
  suffer_all(overcome, sizeof overcome / sizeof *overcome);
}
static void test_fatal(void **state) {
  (void)state;
  suffer_all(fatal, sizeof fatal / sizeof *fatal);
}
/* Inner chunks of a shard in a remote zip file, with gaps that a read over plain HTTP would drop:
 * what is read of a zip
 * file has a place, and no more than there is room for. */
static void test_gaps_in_zip(void **state) {
  static const struct support_array gaps = {.name = "gaps",
      .ndim = 2,
      .shape = {32, 75000},
      .chunk = {1, 75000},
      .dtype = INSITU_F32,
      .format = 3,
      .big = true,
      .shard = {8, 1},
      .gap = 70000};
  (void)state;
  struct zip z = {.n = 0};
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", support_path("gaps"));
  support_make(path, &gaps);
  zip_folder(&z, path, "");
  zip_finish(&z, "", false);
  zip_write(&z, support_path("gaps.zip"));
  zip_free(&z);
  insitu_variable v = {.label = "x", .path = "gaps"};
  struct job j = {.url = path, .variables = &v, .n_variables = 1, .mode = INLINE_EPOLL};
  struct run want = run(&j);
  assert_int_equal(want.status, INSITU_END);
  EACH_MODE (m) {
    server_reset(server);
    j.url = server_url(server, "gaps.zip");
    j.mode = m;
    struct run r = run(&j);
    if (r.status != INSITU_END) fail_msg("%s", r.err.message);
    assert_true(r.order == want.order && r.bytes == want.bytes);
  }
}
/* A server that gives no chunk of a fixed variable for now leaves no hole in all batches. */
static void test_fixed(void **state) {
  (void)state;
  static const insitu_option options[] = {{"max_retries", "0"}};
  insitu_variable v[] = {{.label = "raw"}, {.label = "zstd", .fixed = 1}};
  static const char group[] = "{\"zarr_format\":3,\"node_type\":\"group\"}";
  support_make(support_path("still"), &archives[RAW]);
  support_make(support_path("still"), &archives[ZSTD]);
  support_write(support_path("still/zarr.json"), group, strlen(group));
  insitu_loader_desc d = {.api = INSITU_API,
      .url = server_url(server, "still"),
      .options = options,
      .n_options = 1,
      .variables = v,
      .n_variables = 2,
      .batch_size = 4,
      .on_bad_chunk = INSITU_FILL};
  insitu_error err = {0};
  insitu_loader *ld;
  for (int k = 0; k < 2; k++) {
    server_reset(server);
    server_rule(server,
        (struct server_rule){
            .key = "*zstd/c/3/1", .fault = SERVER_STATUS, .status = k ? 403 : 503, .count = 1});
    insitu_status status = insitu_loader_open(&d, &ld, &err);
    if (status != (k ? INSITU_E_AUTH : INSITU_E_HTTP) || err.retryable != !k)
      fail_msg("%s: %s", insitu_status_name(status), err.message);
    assert_non_null(strstr(err.message, "read, array zstd, chunk zstd/c/3/1: "));
    ld = open_or_fail(&d); /* the next request is answered */
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
    insitu_batch *b = next_batch_or_fail(it);
    uint64_t at[] = {12, 100};
    assert_true(
        ((const double *)b->arrays[1].data)[12 * 300 + 100] == support_expect(&archives[ZSTD], at));
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  server_reset(server);
}
/* A zip file is opened by its last bytes: no HEAD, which a url that was signed for GET does not
 * allow. Where a server does not understand such a range it is opened by its length, which HEAD
 * tells, or the first byte's answer. */
static void test_zip_without_head(void **state) {
  static const struct support_array array = {.name = "far",
      .ndim = 2,
      .shape = {8, 75000},
      .chunk = {1, 75000},
      .dtype = INSITU_F32,
      .format = 3};
  static const struct {
    const char *name;
    struct server_rule rule[2];
    uint64_t heads;
  } kinds[] = {{"signed for GET", {{.method = "HEAD", .fault = SERVER_STATUS, .status = 403}}, 0},
      {"suffixes are ignored", {{.range = "bytes=-*", .fault = SERVER_WHOLE}}, 1},
      {"suffixes are refused", {{.range = "bytes=-*", .fault = SERVER_STATUS, .status = 501}}, 1},
      {"suffixes are a bad request", {{.range = "bytes=-*", .fault = SERVER_STATUS, .status = 400}},
          1},
      {"suffixes cannot be satisfied",
          {{.range = "bytes=-*", .fault = SERVER_STATUS, .status = 416}}, 1},
      {"suffixes are taken for another range",
          {{.range = "bytes=-*", .fault = SERVER_RANGE, .text = "bytes 0-65634/2402000"}}, 1},
      {"neither",
          {{.range = "bytes=-*", .fault = SERVER_STATUS, .status = 501},
              {.method = "HEAD", .fault = SERVER_STATUS, .status = 403}},
          1},
      {"no length in HEAD",
          {{.range = "bytes=-*", .fault = SERVER_STATUS, .status = 501},
              {.method = "HEAD", .fault = SERVER_UNTIL_CLOSE}},
          1}};
  (void)state;
  struct zip z = {.n = 0};
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", support_path("far"));
  support_make(path, &array);
  zip_folder(&z, path, "");
  zip_finish(&z, "", false);
  zip_write(&z, support_path("far.zip"));
  zip_grow(&z, 40000); /* bytes that are none of it */
  zip_write(&z, support_path("longer.zip"));
  zip_free(&z);
  insitu_variable v = {.label = "x", .path = "far"};
  struct job j = {.url = path, .variables = &v, .n_variables = 1, .mode = INLINE_EPOLL};
  struct run want = run(&j);
  assert_int_equal(want.status, INSITU_END);
  j.mode = EPOLL;
  for (size_t n = 0; n < 2 * sizeof kinds / sizeof *kinds; n++) {
    size_t k = n / 2;
    server_reset(server);
    for (int i = 0; i < 2; i++)
      if (kinds[k].rule[i].fault) server_rule(server, kinds[k].rule[i]);
    j.url = server_url(server, n % 2 ? "longer.zip" : "far.zip");
    struct run r = run(&j);
    if (r.status != INSITU_END) fail_msg("%s: %s", kinds[k].name, r.err.message);
    assert_true(r.order == want.order && r.bytes == want.bytes);
    assert_int_equal(server_stats(server).head, kinds[k].heads);
  }
  server_reset(server);
  server_rule(server, (struct server_rule){.fault = SERVER_STATUS, .status = 403});
  struct run r = run(&j);
  assert_int_equal(r.status, INSITU_E_AUTH);
  server_reset(server);
  j.url = server_url(server, "absent.zip");
  r = run(&j);
  assert_int_equal(r.status, INSITU_E_NOTFOUND);
}
/* Each member of a remote zip file takes one request, also in later epochs and through a cache, be
 * it stored or deflated: the local header comes with the bytes. One that is longer than could be
 * expected takes a second one, the first time. */
static void test_zip_round_trips(void **state) {
  enum { CHUNKS_OF = 8 };
  static const struct support_array array = {.name = "trip",
      .ndim = 2,
      .shape = {CHUNKS_OF, 75000},
      .chunk = {1, 75000},
      .dtype = INSITU_F32,
      .format = 3};
  static const int options[] = {0, ZIP_DEFLATE, ZIP_STREAM, ZIP_EXTRA, ZIP_DEFLATE | ZIP_EXTRA};
  (void)state;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", support_path("trip"));
  support_make(path, &array);
  insitu_variable v = {.label = "x", .path = "trip"};
  struct job near = {.url = path, .variables = &v, .n_variables = 1, .mode = INLINE_EPOLL};
  struct run want = run(&near);
  assert_int_equal(want.status, INSITU_END);
  for (size_t k = 0; k < sizeof options / sizeof *options; k++)
    for (int cached = 0; cached < 2; cached++) {
      struct zip z = {.options = options[k]};
      zip_folder(&z, path, "");
      zip_finish(&z, "", false);
      zip_write(&z, support_path("trip.zip"));
      zip_free(&z);
      support_remove(support_path("cache"));
      for (int again = 0; again < 2; again++) {
        server_reset(server);
        struct job j = {.url = server_url(server, "trip.zip"),
            .variables = &v,
            .n_variables = 1,
            .mode = EPOLL};
        if (cached) j.cache_dir = support_path("cache");
        struct run r = run(&j);
        if (r.status != INSITU_END) fail_msg("%s", r.err.message);
        assert_true(r.order == want.order && r.bytes == want.bytes);
        /* the directory, metadata, chunks */
        uint64_t requests = server_stats(server).requests, most = 1 + 2 + CHUNKS_OF;
        if (requests > most)
          fail_msg("options %d, cached %d, run %d: %d requests", options[k], cached, again,
              (int)requests);
      }
    }
}
/* Neighbours in a remote shard share a request as long as it, the gap between them and all its gaps
 * stay within bounds. */
static void test_merging(void **state) {
  enum { KIB = 1024, GAP = INSITU__LOADER_FAR_GAP, RUN = INSITU__LOADER_RUN };
  static const struct {
    uint64_t n, bytes, gap, requests;
  } kinds[] = {{16, 16 * KIB, 0, 1}, {48, 64 * KIB, 0, 48 * 64 * KIB / RUN}, {3, RUN, 0, 3},
      {3, RUN - 4, 0, 2}, {12, RUN / 8, GAP, 2}, {12, RUN / 8, GAP + 1, 12}, {32, 4 * KIB, KIB, 1},
      {32, 4 * KIB, 2 * KIB, 16}, {32, 4 * KIB, 2 * KIB + 1, 32}};
  static const insitu_variable v = {.label = "x", .path = "side"};
  (void)state;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const uint64_t n = kinds[k].n, floats = kinds[k].bytes / 4, want = kinds[k].requests;
    struct support_array a = {.name = "side",
        .ndim = 3,
        .shape = {1, n, floats},
        .chunk = {1, 1, floats},
        .dtype = INSITU_F32,
        .format = 3,
        .shard = {1, n, 1},
        .gap = kinds[k].gap};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", support_path("side"));
    support_make(path, &a);
    struct job j = {.url = path,
        .variables = &v,
        .n_variables = 1,
        .max_inflight = 64,
        .batch_size = 1,
        .mode = INLINE_EPOLL};
    struct run near = run(&j);
    j.url = server_url(server, "side");
    EACH_MODE (m) {
      j.mode = m;
      server_reset(server);
      struct run r = run(&j);
      if (r.status != INSITU_END) fail_msg("%s", r.err.message);
      assert_true(r.bytes == near.bytes && r.batches == 1);
      if (r.stats.requests != want)
        fail_msg("kind %d: %d requests, not %d", (int)k, (int)r.stats.requests, (int)want);
      assert_int_equal(r.stats.bytes_read, n * kinds[k].bytes + (n - want) * kinds[k].gap);
    }
    support_remove(path);
  }
}
/* Ranges are asked for within shards and chunks, and for parts of objects, and not where a chunk is
 * the object. */
static void test_ranges(void **state) {
  static const struct {
    int archive;
    bool ranges;
  } kinds[] = {{RAW, false}, {ZSTD, false}, {SHARDED, true}, {RAWSHARD, true}};
  (void)state;
  EACH_MODE (m)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      struct job j = job(kinds[k].archive, here(), m);
      server_reset(server);
      server_rule(server, (struct server_rule){.key = CHUNKS,
                              .range = kinds[k].ranges ? "" : "?*",
                              .fault = SERVER_STATUS,
                              .status = 400});
      struct run r = run(&j);
      if (differs(&r, kinds[k].archive))
        fail_msg("archive %d: %s", kinds[k].archive, differs(&r, kinds[k].archive));
      assert_int_equal(server_stats(server).faults, 0);
    }
}
/* A chunk that is there and was answered by 404 is a chunk that is absent: its fill value, and
 * counted. */
static void test_absent(void **state) {
  (void)state;
  server_reset(server);
  server_rule(server,
      (struct server_rule){.key = "raw/raw/c/3/0/0", .fault = SERVER_STATUS, .status = 404});
  struct job j = job(RAW, here(), INLINE_EPOLL);
  struct run r = run(&j);
  assert_int_equal(r.status, INSITU_END);
  assert_true(r.stats.absent_chunks >= 1 && r.stats.retries == 0);
  j.on_absent = INSITU_RAISE;
  memset(&r.err, 0, sizeof r.err);
  r = run(&j);
  assert_int_equal(r.status, INSITU_E_ABSENT);
}

/* A store that answers 403 for what is not there, to those who may not list: a group is found by
 * its .zgroup all the same. Where that is refused, too, the error tells so. */
static void test_hidden(void **state) {
  static const char *const hidden[] = {"zarr.json", ".zmetadata", ".zarray", ".zgroup"};
  const struct support_array a = {
      .name = "x", .ndim = 1, .shape = {8}, .chunk = {4}, .dtype = INSITU_F32, .format = 2};
  const insitu_variable x = {.label = "x"};
  (void)state;
  support_make(support_path("hidden"), &a);
  EACH_MODE (m)
    for (int n = 3; n <= 4; n++) {
      insitu_error err = {0};
      insitu_loader *ld = NULL;
      insitu_loader_desc d = {.api = INSITU_API,
          .url = server_url(server, "hidden"),
          .variables = &x,
          .n_variables = 1,
          .batch_size = 2,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      server_reset(server);
      for (int i = 0; i < n; i++) {
        char key[40];
        snprintf(key, sizeof key, "hidden/%s", hidden[i]);
        server_rule(
            server, (struct server_rule){.key = key, .fault = SERVER_STATUS, .status = 403});
      }
      insitu_status status = insitu_loader_open(&d, &ld, &err);
      insitu_loader_close(&ld);
      if (n == 3 && status) fail_msg("%s", err.message);
      if (n == 3) continue;
      assert_int_equal(status, INSITU_E_AUTH);
      assert_int_equal(err.http_status, 403);
    }
  /* nor does it hide what is wrong with the metadata that is there */
  support_write(support_path("hidden/.zmetadata"), "{\"zarr_conso", 12);
  EACH_MODE (m) {
    insitu_error err = {0};
    insitu_loader *ld = NULL;
    insitu_loader_desc d = {.api = INSITU_API,
        .url = server_url(server, "hidden"),
        .plan_only = 1,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io};
    server_reset(server);
    server_rule(server,
        (struct server_rule){.key = "hidden/zarr.json", .fault = SERVER_STATUS, .status = 403});
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_JSON);
    assert_int_equal(err.status, INSITU_E_JSON);
    assert_non_null(strstr(err.message, ".zmetadata"));
  }
}

/* What such a store refused is known offline, too: a run finds the metadata that the run before
 * found. What is in the cache already does not go for an answer of 403. */
static void test_hidden_offline(void **state) {
  static const char *const hidden[] = {
      "zarr.json", ".zmetadata", ".zarray", ".zattrs", "x/.zattrs"};
  const struct support_array a = {
      .name = "x", .ndim = 1, .shape = {8}, .chunk = {4}, .dtype = INSITU_F32, .format = 2};
  const insitu_variable x = {.label = "x"};
  (void)state;
  support_make(support_path("unlisted"), &a);
  EACH_MODE (m) {
    struct run first = {.status = INSITU_OK};
    support_remove(support_path("cache"));
    for (int i = 0; i < 6; i++) {
      /* all refused; what is not there is; offline; all refused; offline; all found */
      bool all = i == 0 || i == 3;
      struct job j = {.url = server_url(server, "unlisted"),
          .variables = &x,
          .n_variables = 1,
          .batch_size = 2,
          .cache_dir = support_path("cache"),
          .split = INSITU_ALL,
          .offline = i == 2 || i == 4,
          .mode = m};
      server_reset(server);
      for (size_t k = 0; i == 1 && k < sizeof hidden / sizeof *hidden; k++) {
        char key[40];
        snprintf(key, sizeof key, "unlisted/%s", hidden[k]);
        server_rule(
            server, (struct server_rule){.key = key, .fault = SERVER_STATUS, .status = 403});
      }
      if (all) server_rule(server, (struct server_rule){.fault = SERVER_STATUS, .status = 403});
      struct run r = run(&j);
      settle();
      if (j.offline) assert_int_equal(server_stats(server).requests, 0);
      if (all) assert_int_equal(r.status, INSITU_E_AUTH);
      if (all) continue;
      if (r.status != INSITU_END) fail_msg("run %d: %s", i, r.err.message);
      if (i == 1) first = r;
      assert_true(r.batches == 4 && r.order == first.order && r.bytes == first.bytes);
    }
  }
}

/* A fifth of all answers goes wrong, in every way that passes. */
static void test_storm(void **state) {
  static const struct server_rule rules[] = {{.fault = SERVER_STATUS, .status = 500},
      {.fault = SERVER_STATUS, .status = 502}, {.fault = SERVER_STATUS, .status = 504},
      {.fault = SERVER_RESET, .at = SERVER_AT_START},
      {.fault = SERVER_RESET, .at = SERVER_AT_HEADER}, {.fault = SERVER_RESET, .at = 0},
      {.fault = SERVER_RESET, .at = 100}, {.fault = SERVER_CLOSE, .at = SERVER_AT_START},
      {.fault = SERVER_CLOSE, .at = 77}, {.fault = SERVER_CLOSE, .at = SERVER_AT_HEADER},
      {.fault = SERVER_NOISE}};
  enum { RULES = sizeof rules / sizeof *rules };
  (void)state;
  EACH_MODE (m)
    for (int a = 0; a < ARCHIVES; a++) {
      unsigned before = descriptors();
      server_reset(server);
      for (int i = 0; i < RULES; i++) {
        struct server_rule rule = rules[i];
        rule.probability = 0.2 / RULES;
        server_rule(server, rule);
      }
      server_rule(server, (struct server_rule){.probability = 0.2, .fault = SERVER_LAST});
      server_rule(
          server, (struct server_rule){.probability = 0.2, .fault = SERVER_CHUNKED, .at = 50});
      server_rule(
          server, (struct server_rule){
                      .probability = 0.2, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = 20});
      server_rule(
          /* ranges differ: one for sure */
          server, (struct server_rule){.count = 1, .fault = SERVER_STATUS, .status = 500});
      struct job j = job(a, here(), m);
      j.options[0] = (insitu_option){"max_retries", "20"};
      struct run r = run(&j);
      same(&r, a, archives[a].name);
      assert_true(r.stats.retries > 0);
      settle();
      assert_int_equal(descriptors(), before);
    }
}

/* ---- redirects ---- */
static void test_redirects(void **state) {
  char base[100], target[100];
  struct server *other = server_start(&(struct server_options){.folder = support_dir});
  (void)state;
  for (int mode = 0; mode < 2; mode++) {
    int m = mode                 ? mode_usable(INLINE_EPOLL) ? INLINE_EPOLL : INLINE_URING
            : mode_usable(EPOLL) ? EPOLL
                                 : URING;
    server_reset(server), server_reset(other);
    snprintf(target, sizeof target, "%s*", server_url(other, ""));
    server_rule(server,
        (struct server_rule){.fault = SERVER_REDIRECT, .status = mode ? 307 : 302, .text = target});
    snprintf(base, sizeof base, "http://us3r:secr3t@127.0.0.1:%d", server->port);
    struct job j = job(SHARDED, base, m);
    struct run r = run(&j);
    same(&r, SHARDED, "redirects to another host");
    assert_true(server_seen(server, "\nauthorization: Basic dXMzcjpzZWNyM3Q=") > 0);
    assert_int_equal(server_seen(other, "authorization"), 0);
    assert_int_equal(server_seen(other, "us3r"), 0);
    assert_int_equal(server_seen(other, "secr3t"), 0);
    assert_true(server_stats(other).requests > 0);
    /* and with a token; and on the same host it goes along */
    server_reset(server), server_reset(other);
    server_rule(server,
        (struct server_rule){.key = "sharded/sharded/*", .fault = SERVER_REDIRECT, .text = target});
    server_rule(server,
        (struct server_rule){
            .key = "sharded/zarr.json", .count = 1, .fault = SERVER_REDIRECT, .text = "/*"});
    j = job(SHARDED, here(), m);
    j.options[0] = (insitu_option){"bearer_token", "t0ken"};
    j.options[1] = (insitu_option){"allow_http", "true"};
    r = run(&j);
    same(&r, SHARDED, "redirects with a token");
    assert_int_equal(
        server_seen(server, "\nauthorization: Bearer t0ken"), server_stats(server).requests);
    assert_int_equal(server_seen(other, "t0ken"), 0);
  }
  /* two hosts that send to each other */
  server_reset(server), server_reset(other);
  server_rule(
      server, (struct server_rule){.key = CHUNKS, .fault = SERVER_REDIRECT, .text = target});
  snprintf(target, sizeof target, "%s*", server_url(server, ""));
  server_rule(other, (struct server_rule){.key = CHUNKS, .fault = SERVER_REDIRECT, .text = target});
  struct job j = job(SHARDED, base, INLINE_EPOLL);
  struct run r = run(&j);
  if (r.status != INSITU_E_HTTP) fail_msg("%d %s", r.status, r.err.message);
  assert_non_null(strcasestr(r.err.message, "redirect"));
  assert_int_equal(server_seen(other, "authorization"), 0);
  server_stop(&other);
}

/* ---- servers and loaders that go away ---- */
static void kill_it(uint64_t batch) {
  if (batch == 1) server_kill(&killed);
}
static void test_server_killed(void **state) {
  char base[100];
  (void)state;
  unsigned before = descriptors() - 1; /* that by which the server lives goes with it */
  snprintf(base, sizeof base, "http://127.0.0.1:%d", killed.port);
  struct job j = job(RAW, base, mode_usable(URING) ? URING : EPOLL);
  insitu_option hasty[] = {SLOW, {"max_retries", "3"}};
  memcpy(j.options, hasty, sizeof hasty);
  j.max_inflight = 2;
  /* or all batches are there before it is killed, on a machine that is busy */
  j.prefetch_depth = 1;
  j.at_batch = kill_it;
  struct run r = run(&j);
  assert_int_equal(r.status, INSITU_E_HTTP);
  assert_true(r.batches >= 2);
  assert_true(r.err.retryable && !r.err.http_status);
  assert_non_null(strstr(r.err.message, base + 7));
  assert_int_equal(descriptors(), before);
  /* and nobody listens any more */
  j.at_batch = NULL;
  memset(&r, 0, sizeof r);
  r = run(&j);
  assert_true(r.status == INSITU_E_HTTP && !r.opened);
  assert_non_null(strstr(r.err.message, base + 7));
  assert_int_equal(descriptors(), before);
}
/* No further attempt begins after retry_timeout; a server that takes no connection is given up
 * after connect_timeout. */
static void test_deadlines(void **state) {
  char base[100];
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof address;
  int full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), waiting[8];
  (void)state;
  assert_int_equal(bind(full, (struct sockaddr *)&address, n), 0);
  assert_int_equal(listen(full, 0), 0);
  assert_int_equal(getsockname(full, (struct sockaddr *)&address, &n), 0);
  /* nobody accepts: the queue fills, and the kernel answers no more */
  for (int i = 0; i < 8; i++) {
    waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(waiting[i], (struct sockaddr *)&address, n);
  }
  snprintf(base, sizeof base, "http://127.0.0.1:%d", ntohs(address.sin_port));
  EACH_MODE (m) {
    struct job j = job(RAW, base, m);
    j.options[0] = (insitu_option){"connect_timeout", "100ms"};
    j.options[1] = (insitu_option){"max_retries", "1"};
    struct run r = run(&j);
    assert_int_equal(r.status, INSITU_E_HTTP);
    assert_true(r.err.retryable && !r.err.http_status);
    assert_non_null(strstr(r.err.message, "connect_timeout"));
    server_reset(server);
    server_rule(
        server, (struct server_rule){.key = CHUNKS, .fault = SERVER_RESET, .at = SERVER_AT_START});
    j = job(RAW, here(), m);
    j.options[0] = (insitu_option){"retry_timeout", "1s"};
    j.options[1] = (insitu_option){"max_retries", "1000"};
    do {
      r = run(&j);
      assert_int_equal(r.status, INSITU_E_HTTP);
    } while (!r.stats.retries);
    /* on a machine that is so busy that the first attempt took that long */
    settle();
  }
  for (int i = 0; i < 8; i++) close(waiting[i]);
  close(full);
}
/* How many chunks are in flight unless told: more where several share a request, as many as one
 * wants, and what memory allows. */
static void test_default_inflight(void **state) {
  static const struct {
    int archive;
    uint64_t asked, budget, least, most;
  } cases[] = {{RAW, 0, UINT64_C(4) << 30, 256, 256}, {RAWSHARD, 0, UINT64_C(4) << 30, 1024, 1024},
      /* stacks differ under sanitizers */
      {RAWSHARD, 700, UINT64_C(4) << 30, 700, 700}, {RAWSHARD, 0, 300 << 20, 64, 512}};
  static char text[1 << 16];
  (void)state;
  server_reset(server);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct job j = job(cases[i].archive, here(), INLINE_EPOLL);
    insitu_loader_desc d = {.api = INSITU_API,
        .url = j.url,
        .variables = j.variables,
        .n_variables = 1,
        .max_inflight = cases[i].asked,
        .memory_budget = cases[i].budget,
        .decode_threads = 2,
        .inline_io = 1};
    insitu_loader *ld;
    insitu_error err = {0};
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    assert_true(insitu_loader_describe(ld, text, sizeof text) < sizeof text);
    insitu_loader_close(&ld);
    uint64_t n =
        strtoull(strstr(text, "\"max_inflight\": ") + strlen("\"max_inflight\": "), NULL, 10);
    if (n < cases[i].least || n > cases[i].most) fail_msg("case %d: %d in flight", (int)i, (int)n);
  }
  settle();
}
/* While no server has ever answered, there are few attempts: the name may be wrong. */
static void test_first_answer(void **state) {
  (void)state;
  EACH_MODE (m) {
    uint64_t requests[2]; /* with one retry; by default */
    for (int i = 0; i < 2; i++) {
      server_reset(server);
      server_rule(
          server, (struct server_rule){.key = "*", .fault = SERVER_RESET, .at = SERVER_AT_START});
      struct job j = job(RAW, here(), m);
      if (!i) j.options[0] = (insitu_option){"max_retries", "1"};
      struct run r = run(&j);
      assert_int_equal(r.status, INSITU_E_HTTP);
      requests[i] = server_stats(server).requests;
      settle();
    }
    assert_true(requests[0] > 0);
    assert_int_equal(requests[1], 2 * requests[0]);
    server_reset(server); /* and once one has answered, there are more */
    server_rule(
        server, (struct server_rule){
                    .key = "raw/raw/c/0/0/0", .fault = SERVER_STATUS, .status = 500, .count = 5});
    struct job j = job(RAW, here(), m);
    struct run r = run(&j);
    same(&r, RAW, "a chunk that comes at the sixth attempt");
    assert_int_equal(r.stats.retries, 5);
    settle();
  }
}
/* A loader closed, or cancelled, while its requests wait. */
static void test_close_under_way(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int cancel = 0; cancel < 2; cancel++)
      for (int where = 0; where < 2; where++) {
        insitu_error err = {0};
        insitu_loader *ld;
        insitu_iter *it = NULL;
        insitu_batch *b;
        unsigned before = descriptors();
        server_reset(server);
        server_rule(server, (struct server_rule){.key = CHUNKS,
                                .fault = SERVER_STALL,
                                .at = where ? 10 : SERVER_AT_START,
                                .ms = SERVER_EVER});
        struct job j = job(SHARDED, here(), m);
        insitu_loader_desc d = {.api = INSITU_API,
            .url = j.url,
            .variables = j.variables,
            .n_variables = 2,
            .io = modes[m].io,
            .inline_io = modes[m].inline_io,
            .log_level = INSITU_LOG_ERROR};
        if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
        insitu_iter_desc id = {.api = INSITU_API};
        assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
        assert_int_equal(insitu_iter_next(it, 20, &b, &err), INSITU_TIMEOUT);
        while (!server_stats(server).in_flight)
          assert_int_equal(insitu_iter_next(it, 1, &b, &err), INSITU_TIMEOUT);
        if (cancel) {
          insitu_loader_cancel(ld);
          assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_CANCELLED);
        }
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        settle();
        assert_int_equal(descriptors(), before);
        assert_int_equal(server_stats(server).answered + server_stats(server).broken,
            server_stats(server).requests);
      }
}
static uint64_t epoch_bytes(insitu_iter *it) { /* of a whole epoch, as run() has them */
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status s;
  uint64_t bytes = 1;
  while ((s = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    for (uint64_t i = 0; i < b->n_arrays; i++)
      bytes = server__hash(bytes, b->arrays[i].data, b->arrays[i].bytes);
    insitu_batch_release(&b);
  }
  if (s != INSITU_END) fail_msg("%s", err.message);
  return bytes;
}
/* What one iterator waits for in vain, or has failed at, does no harm to the next epoch. */
static void test_iterators_recover(void **state) {
  static const int archive[] = {RAW, SHARDED};
  (void)state;
  server_reset(server);
  for (int k = 0; k < 2; k++) {
    struct job j = job(archive[k], here(), INLINE_EPOLL);
    struct run r = run(&j);
    same(&r, archive[k], "as it should be");
  }
  EACH_MODE (m)
    for (int k = 0; k < 2; k++) {
      insitu_error err = {0};
      insitu_loader *ld;
      insitu_iter *it = NULL, *other = NULL;
      insitu_batch *b;
      insitu_status s;
      struct job j = job(archive[k], here(), m);
      j.options[0] = (insitu_option){"max_retries", "1"};
      server_reset(server);
      insitu_loader_desc d = desc_of(&j);
      d.log_level = INSITU_LOG_OFF;
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      insitu_iter_desc id = {.api = INSITU_API};
      /* two wait for the same; each is closed while the other waits on */
      server_rule(server,
          (struct server_rule){.key = CHUNKS, .fault = SERVER_STALL, .at = 0, .ms = SERVER_EVER});
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
      while (!server_stats(server).in_flight)
        assert_int_equal(insitu_iter_next(it, 1, &b, &err), INSITU_TIMEOUT);
      assert_int_equal(insitu_iter_open(ld, &id, &other, &err), INSITU_OK);
      assert_int_equal(insitu_iter_next(other, 1, &b, &err), INSITU_TIMEOUT);
      insitu_iter_close(&it);
      assert_null(it);
      server_reset(server);
      server_release(server);
      assert_int_equal(epoch_bytes(other), local[archive[k]].bytes);
      /* an error stays until the epoch is set anew */
      server_rule(
          server, (struct server_rule){.key = CHUNKS, .fault = SERVER_STATUS, .status = 400});
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
      for (int again = 0; again < 2; again++) {
        s = insitu_iter_next(it, INSITU_FOREVER, &b, &err);
        /* its indexes were known, and a run may have been read before */
        if (k == 1 && s == INSITU_OK) {
          insitu_batch_release(&b);
          continue;
        }
        assert_int_equal(s, INSITU_E_HTTP);
        assert_int_equal(err.http_status, 400);
      }
      server_reset(server);
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_iter_set_epoch(it, 0, &err), INSITU_OK);
      assert_int_equal(epoch_bytes(it), local[archive[k]].bytes);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      insitu_iter_close(&other);
      settle();
    }
}
/* Inline, nobody reads between two calls of next: that time is neither a server's silence nor one
 * for its retries. */
static void test_away(void **state) {
  int m = mode_usable(INLINE_EPOLL) ? INLINE_EPOLL : INLINE_URING;
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  (void)state;
  server_reset(server);
  struct job j = job(RAW, here(), m);
  struct run r = run(&j);
  same(&r, RAW, "as it should be");
  const insitu_option options[] = {{"connect_timeout", "1m"}, {"stall_timeout", "8s"},
      {"retry_timeout", "8s"}, {"max_retries", "1"}};
  memcpy(j.options, options, sizeof options);
  insitu_loader_desc d = desc_of(&j);
  d.log_level = INSITU_LOG_OFF;
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  server_rule(
      server, (struct server_rule){
                  .key = CHUNKS, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
  server_rule(server, (struct server_rule){.key = CHUNKS, .fault = SERVER_STATUS, .status = 500});
  insitu_iter_desc id = {.api = INSITU_API};
  assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  while (server_stats(server).faults < 4)
    assert_int_equal(insitu_iter_next(it, 1, &b, &err), INSITU_TIMEOUT);
  server_reset(server);
  server_release(server); /* the answers come, and lie there */
  usleep(9000000);
  assert_int_equal(epoch_bytes(it), local[RAW].bytes);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  settle();
}
/* The time that insitu_read takes before the first call of next is none without a reader: the clock
 * of servers does not go back behind an answer that it timed. */
static void test_read_before_next(void **state) {
  (void)state;
  static unsigned char to[1 << 20];
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  server_reset(server);
  struct job j = job(RAW, here(), mode_usable(INLINE_EPOLL) ? INLINE_EPOLL : INLINE_URING);
  insitu_loader_desc d = desc_of(&j);
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  const struct insitu__http *http = insitu__remote_of(insitu__store_base(&ld->source.store))->http;
  server_rule(server,
      (struct server_rule){
          .key = CHUNKS, .count = 1, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = 300});
  insitu_variable v = {.path = archives[RAW].name};
  if (insitu_read(ld, &v, to, sizeof to, NULL, &err)) fail_msg("%s", err.message);
  int64_t answered = http->tune.last;
  if (insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err) ||
      insitu_iter_next(it, INSITU_FOREVER, &b, &err))
    fail_msg("%s", err.message);
  assert_true(http->tune.last >= answered);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  settle();
}
/* What is given up with an epoch, an iterator or the loader is no hole in the archive. */
static void count_line(void *user, int32_t level, const char *line) {
  (void)level, (void)line;
  atomic_fetch_add((atomic_uint *)user, 1);
}
static void test_given_up_is_no_hole(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 6; k++) {
      atomic_uint lines = 0;
      insitu_error err = {0};
      insitu_stats stats;
      insitu_loader *ld;
      insitu_iter *it = NULL;
      insitu_batch *b;
      struct job j = job(k & 1 ? RAW : SHARDED, here(), m);
      server_reset(server);
      server_rule(server,
          (struct server_rule){.key = CHUNKS, .fault = SERVER_STALL, .at = 0, .ms = SERVER_EVER});
      insitu_loader_desc d = {.api = INSITU_API,
          .url = j.url,
          .variables = j.variables,
          .n_variables = 2,
          .batch_size = 5,
          .on_bad_chunk = INSITU_FILL,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io,
          .log_level = INSITU_LOG_WARN,
          .log = count_line,
          .log_user = &lines};
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      assert_int_equal(
          insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_OK);
      while (!server_stats(server).in_flight)
        assert_int_equal(insitu_iter_next(it, 1, &b, &err), INSITU_TIMEOUT);
      if (k / 2 == 0) assert_int_equal(insitu_iter_set_epoch(it, 1, &err), INSITU_OK);
      if (k / 2 == 1) insitu_iter_close(&it);
      if (k / 2 == 2) {
        insitu_loader_cancel(ld);
        assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_CANCELLED);
        insitu_iter_close(&it);
      }
      assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
      assert_int_equal(stats.bad_chunks, 0);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      assert_int_equal(atomic_load(&lines), 0);
      settle();
    }
}
static void *cancel_it(void *loader) {
  while (!server_stats(server).in_flight) usleep(1000);
  insitu_loader_cancel(loader);
  return NULL;
}
static void test_read_is_cancelled(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int a = 0; a < ARCHIVES; a++) {
      static double to[1 << 16];
      insitu_error err = {0};
      insitu_loader *ld;
      pthread_t thread;
      struct job j = job(a, here(), m);
      server_reset(server);
      insitu_loader_desc d = {.api = INSITU_API,
          .url = j.url,
          .plan_only = modes[m].inline_io,
          .inline_io = modes[m].inline_io,
          .variables = j.variables,
          .n_variables = 1,
          .io = modes[m].io};
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      server_rule(server, (struct server_rule){.fault = SERVER_STALL, .at = 0, .ms = SERVER_EVER});
      insitu_variable v = {.path = archives[a].name};
      assert_int_equal(pthread_create(&thread, NULL, cancel_it, ld), 0);
      assert_int_equal(insitu_read(ld, &v, to, sizeof to, NULL, &err), INSITU_CANCELLED);
      pthread_join(thread, NULL);
      insitu_loader_close(&ld);
      settle();
    }
}
/* Objects that are read in several parts at once. */
static void test_parts(void **state) {
  static const struct support_array large = {.name = "large",
      .ndim = 2,
      .shape = {2, 9 << 20},
      .chunk = {1, 9 << 20},
      .dtype = INSITU_U8,
      .format = 3};
  static const insitu_variable v = {.label = "large"};
  static const struct ill ill[] = {{"nothing", .rule = {{.fault = SERVER_NONE}}},
      {"reset in each part",
          .rule = {{.key = CHUNKS, .each = true, .count = 3, .fault = SERVER_RESET, .at = 500000}},
          .retries = 4},
      {"truncated parts",
          .rule = {{.key = CHUNKS, .each = true, .count = 3, .fault = SERVER_CLOSE, .at = 500000}},
          .retries = 4},
      {"parts refused", .rule = {{.key = CHUNKS, EACH, .fault = SERVER_STATUS, .status = 503}},
          .retries = 2},
      {"ranges ignored", .rule = {{.key = CHUNKS, .fault = SERVER_WHOLE}}},
      {"whole objects, truncated",
          .rule = {{.key = CHUNKS, EACH, .fault = SERVER_WHOLE},
              {.key = CHUNKS, EACH, .fault = SERVER_CLOSE, .at = (8 << 20) + 4096}},
          .retries = 2},
      {"changed between parts",
          .rule = {{.key = CHUNKS, .range = "bytes=8388608-*", .fault = SERVER_CHANGE}},
          .status = INSITU_E_CHANGED},
      {"another object's parts",
          .rule =
              {{.key = CHUNKS, .range = "bytes=8388608-*", .fault = SERVER_ETAG, .text = "\"x\""}},
          .status = INSITU_E_CHANGED},
      {"parts of replicas",
          .rule =
              {{.key = CHUNKS, .range = "bytes=8388608-*", .fault = SERVER_ETAG, .text = "\"x\""}},
          .option = {"ignore_etag", "true"}}};
  struct run want = {0};
  char url[300];
  int usable[MODES], modes_n = 0;
  (void)state;
  EACH_MODE (m) usable[modes_n++] = m;
  support_make(support_path("large"), &large);
  for (size_t i = 0; i <= sizeof ill / sizeof *ill; i++) {
    const struct ill *f = i ? &ill[i - 1] : NULL;
    server_reset(server);
    for (int k = 0; f && k < 2; k++)
      if (f->rule[k].fault) server_rule(server, f->rule[k]);
    snprintf(url, sizeof url, "%s/large", f ? here() : support_dir);
    struct job j = {.url = url,
        .variables = &v,
        .n_variables = 1,
        .split = INSITU_ALL,
        .mode = usable[i % (size_t)modes_n]};
    if (f && f->option.key) j.options[0] = f->option;
    struct run r = run(&j);
    if (!f) want = r;
    const char *name = f ? f->name : "local";
    if (f && f->status) {
      if (r.status != f->status)
        fail_msg("%s: %s: %s", name, insitu_status_name(r.status), r.err.message);
    } else if (r.status != INSITU_END) fail_msg("%s: %s", name, r.err.message);
    else if (r.bytes != want.bytes) fail_msg("%s: other bytes", name);
    if (f && r.stats.retries < f->retries) fail_msg("%s: %d retries", name, (int)r.stats.retries);
    settle();
  }
  support_remove(support_path("large"));
}
static void count_metadata(void *user, const struct server_logged *l) {
  *(int *)user += strstr(l->head, "zarr.json") != NULL;
}
/* A url that names an array: its metadata, by which the root was found, are read once. */
static void test_root_array(void **state) {
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_variable v = {.label = "v", .path = ""};
  char url[100];
  unsigned char got[4];
  int asked = 0;
  (void)state;
  server_reset(server);
  server_text(server, "alone/zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"uint8\",\"chunk_"
      "grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_"
      "encoding\":{\"name\":\"default\"},\"fill_value\":0,\"codecs\":[{\"name\":\"bytes\"}]}");
  server_put(server, "alone/c/0", "\1\2\3\4", 4);
  snprintf(url, sizeof url, "%s/alone", here());
  insitu_loader_desc d = {.api = INSITU_API, .url = url, .variables = &v, .n_variables = 1};
  if (insitu_loader_open(&d, &ld, &err) || insitu_read(ld, &v, got, sizeof got, NULL, &err))
    fail_msg("%s", err.message);
  assert_memory_equal(got, "\1\2\3\4", 4);
  insitu_loader_close(&ld);
  server_logged(server, 0, count_metadata, &asked);
  assert_int_equal(asked, 1);
}
/* Two services have a bucket of one name: what the cache keeps of one is never served for the
 * other. */
static void test_cached_namesakes(void **state) {
  static const char *const object[] = {"bucket/zarr.json", "bucket/v/zarr.json", "bucket/v/c/0"};
  struct server *of[2] = {server, server_start(&(struct server_options){0})};
  insitu_variable v = {.label = "v"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    server_reset(of[i]);
    server_text(of[i], object[0], "{\"zarr_format\":3,\"node_type\":\"group\"}");
    server_text(of[i], object[1],
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[4],\"data_type\":\"uint8\",\"chunk_"
        "grid\":{\"name\":"
        "\"regular\",\"configuration\":{\"chunk_shape\":[4]}},\"chunk_key_encoding\":{\"name\":"
        "\"default\"},"
        "\"fill_value\":0,\"codecs\":[{\"name\":\"bytes\"}]}");
    server_put(of[i], object[2], i ? "\5\6\7\10" : "\1\2\3\4", 4);
  }
  for (int k = 0; k < 4; k++) { /* with and without asking; s3 and az */
    insitu_loader *ld[2];
    insitu_error err = {0};
    unsigned char got[4];
    support_remove(support_path("cache"));
    for (int i = 0; i < 2; i++) {
      char endpoint[64];
      snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", of[i]->port);
      insitu_option options[] = {{"environment", "false"}, {"endpoint", endpoint},
          {"allow_http", "true"}, {"skip_signature", "true"},
          {"cache_validate", k & 1 ? "true" : "false"}};
      insitu_loader_desc d = {.api = INSITU_API,
          .url = k & 2 ? "az://bucket" : "s3://bucket",
          .options = options,
          .n_options = 5,
          .variables = &v,
          .n_variables = 1,
          .cache_dir = support_path("cache")};
      if (insitu_loader_open(&d, &ld[i], &err)) fail_msg("%s", err.message);
    }
    for (int i = 0; i < 4; i++) {
      if (insitu_read(ld[i & 1], &v, got, sizeof got, NULL, &err)) fail_msg("%s", err.message);
      assert_memory_equal(got, i & 1 ? "\5\6\7\10" : "\1\2\3\4", 4);
      if (i > 1) assert_true(ld[i & 1]->source.disk.hits > 0);
    }
    for (int i = 0; i < 2; i++) insitu_loader_close(&ld[i]);
  }
  server_stop(&of[1]);
}
/* Of a shard some inner chunks are kept, and its index; the server has it no more, and nobody asked
 * it before. */
static void test_cached_shard_goes(void **state) {
  (void)state;
  EACH_MODE (m) {
    unsigned char got[4000];
    insitu_error err = {0};
    insitu_loader *ld;
    const struct support_array *a = &archives[SHARDED];
    insitu_slice slices[] = {{.axis = 0, .stop = 1}, {.axis = 1, .stop = 1}};
    insitu_variable first = {.path = a->name, .slices = slices, .n_slices = 2};
    struct job j = job(SHARDED, here(), m);
    j.options[0] = (insitu_option){"cache_validate", "false"};
    j.cache_dir = support_path("cache");
    support_remove(j.cache_dir);
    server_reset(server);
    insitu_loader_desc d = desc_of(&j);
    if (insitu_loader_open(&d, &ld, &err) || insitu_read(ld, &first, got, sizeof got, NULL, &err))
      fail_msg("%s", err.message);
    insitu_loader_close(&ld);
    server_rule(
        server, (struct server_rule){.key = "*/c/0/0", .fault = SERVER_STATUS, .status = 404});
    struct run r = run(&j);
    if (r.status != INSITU_E_CHANGED || !strstr(r.err.message, "was read before"))
      fail_msg("%s: %s", insitu_status_name(r.status), r.err.message);
    settle();
  }
}
/* A shard of small chunks: in a folder, in a zip file, and behind references to the server. */
static void make_inner(void) {
  static const struct support_array array = {.name = "inner",
      .ndim = 2,
      .shape = {128, 500},
      .chunk = {1, 500},
      .dtype = INSITU_F32,
      .format = 3,
      .shard = {64, 1}};
  static const char refs[] =
      "{\"version\":1,\"refs\":{\"zarr.json\":\"{\\\"zarr_format\\\":3,\\\"node_type\\\":"
      "\\\"group\\\"}\",\"inner/zarr.json\":[\"%s/zarr.json\"],\"inner/c/0/0\":[\"%s/c/0/0\"],"
      "\"inner/c/1/0\":[\"%s/c/1/0\"]}}";
  struct zip z = {.n = 0};
  char path[PATH_MAX], text[1000];
  snprintf(path, sizeof path, "%s", support_path("inner"));
  support_make(path, &array);
  zip_folder(&z, path, "");
  zip_finish(&z, "", false);
  zip_write(&z, support_path("inner.zip"));
  zip_free(&z);
  snprintf(path, sizeof path, "%s/inner/inner", here());
  int n = snprintf(text, sizeof text, refs, path, path, path);
  support_write(support_path("inner.json"), text, (size_t)n);
}
/* Epochs behind the first find every inner chunk of a shard in cache_dir, also where the shard lies
 * in a zip file or is what a reference names: each is kept by itself, since every epoch reads other
 * neighbours together. */
static void test_cached_inner_chunks(void **state) {
  static const char *const places[] = {"inner", "inner.zip", "inner.json"};
  (void)state;
  make_inner();
  EACH_MODE (m)
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
      insitu_variable v = {.label = "x", .path = "inner"};
      struct job j = {.url = server_url(server, places[k]),
          .variables = &v,
          .n_variables = 1,
          .mode = m,
          .cache_dir = support_path("cache")};
      insitu_loader_desc d = desc_of(&j);
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
      insitu_error err = {0};
      insitu_loader *ld = NULL;
      insitu_iter *it = NULL;
      insitu_batch *b = NULL;
      insitu_stats stats = {0};
      uint64_t first = 0;
      support_remove(j.cache_dir);
      server_reset(server);
      d.batch_size = 4;
      d.unit_chunks = 4;
      d.max_inflight = 12;
      d.prefetch_depth = 1;
      insitu_status status = insitu_loader_open(&d, &ld, &err);
      if (!status) status = insitu_iter_open(ld, &id, &it, &err);
      for (int epoch = 0; !status && epoch < 3; epoch++) {
        while ((status = insitu_iter_next(it, 60000, &b, &err)) == INSITU_OK)
          insitu_batch_release(&b);
        if (status == INSITU_END) status = INSITU_OK;
        assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
        if (!epoch) first = stats.http_requests;
      }
      if (status) fail_msg("%s: %s", places[k], err.message);
      if (stats.http_requests != first)
        fail_msg("%s: %d requests in the first epoch, %d in all", places[k], (int)first,
            (int)stats.http_requests);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
}
/* What befalls a read of inner chunks in a shard behind references, with a cache in front, is a
 * fault of the server, and names the member once. Where neighbours were read together, each is read
 * once more, alone: a single fault may then be none. */
static void test_cached_inner_faults(void **state) {
  (void)state;
  make_inner();
  EACH_MODE (m)
    for (int stays = 0; stays < 2; stays++) {
      insitu_variable v = {.label = "x", .path = "inner"};
      struct job near = {
          .url = support_path("inner"), .variables = &v, .n_variables = 1, .mode = INLINE_EPOLL};
      struct run want = run(&near);
      assert_int_equal(want.status, INSITU_END);
      support_remove(support_path("cache"));
      server_reset(server);
      server_rule(server, (struct server_rule){.key = "*/c/*",
                              .range = "bytes=[0-9]*",
                              .count = stays ? 0 : 1,
                              .fault = SERVER_CLOSE,
                              .at = 11});
      struct job j = near;
      j.url = server_url(server, "inner.json");
      j.mode = m;
      j.cache_dir = support_path("cache");
      j.options[0] = (insitu_option){"max_retries", "0"};
      struct run r = run(&j);
      if (!stays && r.status == INSITU_END) {
        assert_true(r.order == want.order && r.bytes == want.bytes);
        continue;
      }
      const char *member = strstr(r.err.message, "member");
      if (r.status != INSITU_E_HTTP || !r.err.retryable || !member || strstr(member + 1, "member"))
        fail_msg("%s: %s", insitu_status_name(r.status), r.err.message);
    }
}
/* A server sends damaged bytes, with the ETag and the length of the good ones, and they are kept.
 * Once it has healed they are found out and asked for again, though it says that they are
 * unchanged; and then the good ones are kept. */
static void test_cached_damage(void **state) {
  static const struct {
    int archive;
    const char *range; /* of what is damaged: chunks; indexes of shards */
  } kinds[] = {{ZSTD, NULL}, {SHARDED, "bytes=-*"}};
  (void)state;
  EACH_MODE (m)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      uint64_t misses = 0;
      support_remove(support_path("cache"));
      for (int again = 0; again < 3; again++) {
        struct job j = job(kinds[k].archive, here(), m);
        j.cache_dir = support_path("cache");
        server_reset(server);
        if (!again)
          server_rule(
              server, (struct server_rule){
                          .key = CHUNKS, .range = kinds[k].range, .fault = SERVER_FLIP, .at = 5});
        struct run r = run(&j);
        if (again) same(&r, kinds[k].archive, "damage that was kept");
        else assert_int_equal(r.status, INSITU_E_CORRUPT);
        /* these are of absent chunks */
        if (again == 2) assert_true(r.stats.disk_hits > 0 && r.stats.disk_misses < misses);
        misses = r.stats.disk_misses;
      }
      settle();
    }
}
/* Damaged chunks that were filled stay in cache_dir: runs that are offline fill them, too. */
static void test_cached_damage_offline(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct run first = {.status = INSITU_OK};
    support_remove(support_path("cache"));
    for (int offline = 0; offline < 3; offline++) {
      struct job j = job(ZSTD, here(), m);
      j.cache_dir = support_path("cache");
      j.on_bad = INSITU_FILL;
      j.offline = offline > 0;
      server_reset(server);
      server_rule(server, (struct server_rule){.key = CHUNKS, .fault = SERVER_FLIP, .at = 5});
      struct run r = run(&j);
      if (r.status != INSITU_END) fail_msg("run %d: %s", offline, r.err.message);
      if (!offline) first = r;
      assert_true(r.stats.bad_chunks > 0 && r.stats.bad_chunks == first.stats.bad_chunks);
      assert_true(r.order == first.order && r.bytes == first.bytes);
      settle();
      if (offline) assert_int_equal(server_stats(server).requests, 0);
    }
  }
}
/* Replicas with ETags of their own, in front of which stands a cache. */
static void test_cached_replicas(void **state) {
  (void)state;
  for (int a = 0; a < ARCHIVES; a++)
    EACH_MODE_BY_TURNS (m, a) {
      server_reset(server);
      support_remove(support_path("cache"));
      server_rule(
          server, (struct server_rule){
                      .key = CHUNKS, .probability = 0.5, .fault = SERVER_ETAG, .text = "\"x\""});
      for (int again = 0; again < 3; again++) {
        struct job j = job(a, here(), m);
        j.options[0] = (insitu_option){"ignore_etag", "true"};
        j.cache_dir = support_path("cache");
        struct run r = run(&j);
        same(&r, a, archives[a].name);
      }
      settle();
    }
}
/* Few descriptors: fewer connections, or a clear error; and none is lost. */
static void test_few_descriptors(void **state) {
  char base[100];
  struct rlimit limit, low;
  (void)state;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  snprintf(base, sizeof base, "http://127.0.0.1:%d", apart.port);
  EACH_MODE (m)
    for (unsigned more = 2; more < 40; more += m < 2 ? 7 : 3) {
      unsigned before = descriptors();
      low = (struct rlimit){before + more, limit.rlim_max};
      assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
      struct job j = job(ZSTD, base, m);
      insitu_option hasty[] = {SLOW, {"max_retries", "3"}};
      memcpy(j.options, hasty, sizeof hasty);
      struct run r = run(&j);
      assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
      assert_int_equal(descriptors(), before);
      if (r.status == INSITU_END) same(&r, ZSTD, "few descriptors");
      else if (r.status >= 0 || !r.err.message[0])
        fail_msg("%u descriptors: %s", more, insitu_status_name(r.status));
      if (more > 33) assert_int_equal(r.status, INSITU_END);
    }
}

/* ---- many at once ---- */
static const struct support_array many = {.name = "many",
    .ndim = 2,
    .shape = {1400, 4},
    .chunk = {1, 4},
    .dtype = INSITU_F32,
    .format = 3};
/* Reads all chunks of `many`, of which none is answered before `want` requests wait; how many
 * waited at most. more: members of the desc. */
static uint64_t read_many(int m, insitu_loader_desc more, uint64_t want) {
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_status s;
  uint64_t rows = 0;
  server_rule(
      server, (struct server_rule){
                  .key = CHUNKS, .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
  insitu_variable v = {.label = "x", .path = "many"};
  more.api = INSITU_API;
  more.url = server_url(server, "many");
  more.variables = &v;
  more.n_variables = 1;
  more.batch_size = 100;
  more.io = modes[m].io;
  more.inline_io = modes[m].inline_io;
  if (insitu_loader_open(&more, &ld, &err)) fail_msg("%s", err.message);
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
  assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  while (server_stats(server).in_flight < want)
    assert_int_equal(insitu_iter_next(it, 10, &b, &err), INSITU_TIMEOUT);
  for (int i = 0; i < 10; i++) /* no more may come */
    assert_int_equal(insitu_iter_next(it, 10, &b, &err), INSITU_TIMEOUT);
  while ((s = insitu_iter_next(it, 1, &b, &err)) == INSITU_OK || s == INSITU_TIMEOUT) {
    server_release(server);
    if (s) continue;
    support_check_array(b, 0, &v, &many, 0);
    rows += b->rows;
    insitu_batch_release(&b);
  }
  if (s != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(rows, 1400);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  settle();
  return server_stats(server).in_flight_max;
}

static void test_a_thousand(void **state) {
  struct rlimit limit;
  (void)state;
  getrlimit(RLIMIT_NOFILE, &limit);
  struct rlimit high = {limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < 2500 && setrlimit(RLIMIT_NOFILE, &high)) skip();
  if (limit.rlim_max < 2500) skip();
  support_make(support_path("many"), &many);
  insitu_option options[] = {/* the times: until so many wait, on a slow machine */
      {"max_connections", "1000"}, {"connect_timeout", "5m"}, {"stall_timeout", "5m"}};
  insitu_loader_desc d = {.prefetch_depth = 14,
      .max_inflight = 1000,
      .options = options,
      .n_options = 3,
      .block_chunks = 1400};
  EACH_MODE (m) {
    server_reset(server);
    uint64_t most = read_many(m, d, 950);
    assert_true(most >= 950 && most <= 1000);
  }
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* A server of HTTP/1.0 takes a connection for each request, and perhaps few at once: it gets 4
 * requests, unless an option says otherwise. One that speaks HTTP/1.1 gets 64 and more, also behind
 * a gateway whose 503 is of HTTP/1.0. */
static void test_old_server(void **state) {
  (void)state;
  support_make(support_path("many"), &many);
  insitu_option options[] = {
      {"connect_timeout", "5m"}, {"stall_timeout", "5m"}, {"max_connections", "8"}};
  const struct server_rule old = {.fault = SERVER_OLD},
                           once = {.key = "*zarr.json", .count = 1, .fault = SERVER_OLD},
                           failure = {.key = "*zarr.json",
                               .count = 1,
                               .fault = SERVER_STATUS,
                               .status = 503};
  EACH_MODE (m) {
    server_reset(server);
    server_rule(server, old);
    insitu_loader_desc d = {.options = options, .n_options = 2};
    assert_int_equal(read_many(m, d, 4), 4);

    server_reset(server);
    server_rule(server, old);
    d.n_options = 3;
    assert_int_equal(read_many(m, d, 8), 8);

    server_reset(server);
    server_rule(server, old);
    d.n_options = 2;
    d.max_inflight = 16;
    assert_int_equal(read_many(m, d, 16), 16);
    d.max_inflight = 0;

    server_reset(server);
    server_rule(server, failure);
    server_rule(server, once);
    d.n_options = 2;
    assert_true(read_many(m, d, 64) >= 64);
  }
}

/* ---- round trips ---- */
enum { VARIABLES = 300 };
static char labels[VARIABLES][16];
/* 300 arrays of one chunk for each two samples */
static void write_many(const char *root, int format, bool consolidated) {
  static const char array3[] =
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[8,3],\"data_type\":\"float32\","
      "\"chunk_grid\":"
      "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2,3]}},\"chunk_key_encoding\":{"
      "\"name\":"
      "\"default\"},\"fill_value\":0,\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":"
      "\"little\"}}]}";
  static const char array2[] = "{\"zarr_format\":2,\"shape\":[8,3],\"chunks\":[2,3],\"dtype\":\"<"
                               "f4\",\"order\":\"C\",\"fill_value\":0,"
                               "\"filters\":null,\"compressor\":null}";
  char key[100], *all = malloc(1 << 18), *p = all;
  p += sprintf(
      p, format == 3
             ? "{\"zarr_format\":3,\"node_type\":\"group\",\"consolidated_metadata\":{\"kind\":"
               "\"inline\","
               "\"must_understand\":false,\"metadata\":{"
             : "{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":{\"zarr_format\":2}");
  for (int i = 0; i < VARIABLES; i++) {
    sprintf(labels[i], "v%03d", i);
    p += format == 3 ? sprintf(p, "%s\"%s\":%s", i ? "," : "", labels[i], array3)
                     : sprintf(p, ",\"%s/.zarray\":%s", labels[i], array2);
    snprintf(key, sizeof key, "%s/%s/%s", root, labels[i], format == 3 ? "zarr.json" : ".zarray");
    if (!consolidated) server_text(server, key, format == 3 ? array3 : array2);
    for (int c = 0; c < 4; c++) {
      float x[6];
      for (int k = 0; k < 6; k++) x[k] = (float)(i * 100 + c * 6 + k);
      snprintf(key, sizeof key, "%s/%s/%s%d%s0", root, labels[i], format == 3 ? "c/" : "", c,
          format == 3 ? "/" : ".");
      server_put(server, key, x, sizeof x);
    }
  }
  sprintf(p, format == 3 ? "}}}" : "}}");
  snprintf(key, sizeof key, "%s/%s", root,
      format == 3    ? "zarr.json"
      : consolidated ? ".zmetadata"
                     : ".zgroup");
  server_text(server, key,
      consolidated  ? all
      : format == 3 ? "{\"zarr_format\":3,\"node_type\":\"group\"}"
                    : "{\"zarr_format\":2}");
  if (format == 2 && consolidated) {
    snprintf(key, sizeof key, "%s/.zgroup", root);
    server_text(server, key, "{\"zarr_format\":2}");
  }
  free(all);
}
/* Answers only when no more requests have come for a while, in which this process did nothing: then
 * they are all of one wave, however slow this machine is. */
static struct {
  pthread_t thread;
  atomic_bool end;
  bool runs;
} quiet;
static void *quiet_run(void *user) {
  struct timespec t;
  uint64_t last = 0;
  int64_t busy = 0;
  (void)user;
  for (int still = 0; !atomic_load(&quiet.end); usleep(10000)) {
    struct server_statistics now = server_stats(server);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    int64_t ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    still = now.in_flight && now.requests == last && ns - busy < 2000000 ? still + 1 : 0;
    last = now.requests;
    busy = ns;
    if (still >= 10) server_release(server);
  }
  return NULL;
}
static void quiet_begin(void) {
  server_latency(server, SERVER_EVER);
  atomic_store(&quiet.end, false);
  assert_int_equal(pthread_create(&quiet.thread, NULL, quiet_run, NULL), 0);
  quiet.runs = true;
}
static int quiet_stop(void **state) { /* also of a test that has failed */
  (void)state;
  if (!quiet.runs) return 0;
  quiet.runs = false;
  atomic_store(&quiet.end, true);
  pthread_join(quiet.thread, NULL);
  server_latency(server, 0);
  server_release(server);
  return 0;
}
static void first_batch(const char *root, bool consolidated, int m) {
  static insitu_variable v[VARIABLES];
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  for (int i = 0; i < VARIABLES; i++) v[i] = (insitu_variable){.label = labels[i]};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = server_url(server, root),
      .variables = v,
      .n_variables = VARIABLES,
      .batch_size = 2,
      .block_chunks = 1,
      .max_inflight = 400,
      .prefetch_depth = 1,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  struct server_statistics opened = server_stats(server);
  /* A root without any metadata: one wave more tells that it is no Icechunk. */
  bool bare = !strcmp(root, "trips.v2");
  if (opened.waves > (consolidated ? 2u : bare ? 4u : 3u))
    fail_msg("%s, %s: %d waves", root, modes[m].name, (int)opened.waves);
  if (opened.requests > (consolidated ? 4u : 5u + 2u * VARIABLES + (bare ? 2u : 0u)))
    fail_msg("%s: %d requests", root, (int)opened.requests);
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
  assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_OK);
  if (server_stats(server).waves > opened.waves + 3) /* those of the batches after it count, too */
    fail_msg("%s: the first batch took %d waves", root,
        (int)(server_stats(server).waves - opened.waves));
  for (int i = 0; i < VARIABLES; i++)
    for (uint64_t row = 0; row < 2; row++)
      for (int k = 0; k < 3; k++)
        assert_true(((float *)b->arrays[i].data)[row * 3 + (uint64_t)k] ==
                    (float)(i * 100 + b->sample_indices[row] * 3 + k));
  insitu_batch_release(&b);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}
/* What opening asks such a server for, which no max_inflight limits: the metadata of each array. */
static void test_old_server_metadata(void **state) {
  (void)state;
  enum { FEW = 20 };
  insitu_option options[] = {{"connect_timeout", "5m"}, {"max_connections", "8"}};
  insitu_variable v[FEW];
  for (int format = 2; format <= 3; format++) {
    char root[20];
    snprintf(root, sizeof root, "old.v%d", format);
    write_many(root, format, false);
    for (int i = 0; i < FEW; i++) v[i] = (insitu_variable){.label = labels[i]};
    for (int k = 0; k < 3; k++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = server_url(server, root),
          .variables = v,
          .n_variables = FEW,
          .max_inflight = k == 1 ? 64 : 0,
          .options = options,
          .n_options = k == 2 ? 2 : 1};
      insitu_error err = {0};
      insitu_loader *ld;
      server_reset(server);
      server_rule(server, (struct server_rule){.fault = SERVER_OLD});
      quiet_begin();
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      quiet_stop(NULL);
      uint64_t most = server_stats(server).in_flight_max;
      if (most > (k == 2 ? 8 : 4)) fail_msg("%s: %d at once", root, (int)most);
      insitu_loader_close(&ld);
      settle();
    }
  }
}
static void test_round_trips(void **state) {
  struct rlimit limit;
  int usable[MODES], modes_n = 0, turn = 0;
  (void)state;
  getrlimit(RLIMIT_NOFILE, &limit);
  struct rlimit high = {limit.rlim_max, limit.rlim_max}; /* both ends of each connection are ours */
  if (limit.rlim_cur < 2500 && setrlimit(RLIMIT_NOFILE, &high)) skip();
  if (limit.rlim_max < 2500) skip();
  EACH_MODE (m) usable[modes_n++] = m;
  for (int format = 2; format <= 3; format++)
    for (int consolidated = 0; consolidated < 2; consolidated++) {
      char root[40];
      snprintf(root, sizeof root, "trips.v%d%s", format, consolidated ? ".consolidated" : "");
      write_many(root, format, consolidated);
      server_reset(server);
      quiet_begin();
      first_batch(root, consolidated, usable[turn++ % modes_n]);
      quiet_stop(NULL);
      settle();
    }
  setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_epochs), cmocka_unit_test(test_stores),
      cmocka_unit_test(test_urls), cmocka_unit_test(test_hedge), cmocka_unit_test(test_overcome),
      cmocka_unit_test(test_fatal), cmocka_unit_test(test_gaps_in_zip),
      cmocka_unit_test(test_fixed), cmocka_unit_test(test_zip_round_trips),
      cmocka_unit_test(test_zip_without_head), cmocka_unit_test(test_cached_damage),
      cmocka_unit_test(test_cached_damage_offline), cmocka_unit_test(test_cached_shard_goes),
      cmocka_unit_test(test_cached_inner_chunks), cmocka_unit_test(test_cached_inner_faults),
      cmocka_unit_test(test_merging), cmocka_unit_test(test_ranges), cmocka_unit_test(test_absent),
      cmocka_unit_test(test_hidden), cmocka_unit_test(test_hidden_offline),
      cmocka_unit_test(test_storm), cmocka_unit_test(test_redirects),
      cmocka_unit_test(test_server_killed), cmocka_unit_test(test_deadlines),
      cmocka_unit_test(test_default_inflight), cmocka_unit_test(test_first_answer),
      cmocka_unit_test(test_close_under_way), cmocka_unit_test(test_iterators_recover),
      cmocka_unit_test(test_away), cmocka_unit_test(test_read_before_next),
      cmocka_unit_test(test_given_up_is_no_hole), cmocka_unit_test(test_read_is_cancelled),
      cmocka_unit_test(test_parts), cmocka_unit_test(test_root_array),
      cmocka_unit_test(test_cached_namesakes), cmocka_unit_test(test_cached_replicas),
      cmocka_unit_test(test_few_descriptors), cmocka_unit_test(test_a_thousand),
      cmocka_unit_test(test_old_server),
      cmocka_unit_test_teardown(test_old_server_metadata, quiet_stop),
      cmocka_unit_test_teardown(test_round_trips, quiet_stop)};
  static const char *const proxies[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
  for (int i = 0; i < 3; i++) unsetenv(proxies[i]); /* the servers are here */
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, setup, teardown);
}
