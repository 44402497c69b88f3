/* Memory that is missing once, at every place in turn, while a remote archive is opened and read: a
 * clear error or all batches, never a hang, and no descriptor stays behind. */
#include "server.h"
#include <stdatomic.h>
static atomic_long oom_left = -1; /* allocations until one fails; negative: none does */
static void *oom_realloc(void *p, size_t n) {
  if (atomic_load(&oom_left) >= 0 && atomic_fetch_sub(&oom_left, 1) == 0) return NULL;
  return realloc(p, n);
}
#define INSITU_REALLOC(pointer, bytes) oom_realloc(pointer, bytes)
#define INSITU_FREE(pointer) free(pointer)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"

static const struct support_array archive = {.name = "oom",
    .ndim = 2,
    .shape = {24, 64},
    .chunk = {2, 32},
    .dtype = INSITU_F32,
    .format = 3,
    .zstd = true,
    .shard = {3, 2},
    .index_crc = true,
    .gap = 100};
static struct server *server;
static int setup(void **state) {
  if (support_setup(state)) return -1;
  support_make(support_path("oom"), &archive);
  server = server_start(&(struct server_options){.folder = support_dir, .no_log = true});
  return 0;
}
static int teardown(void **state) {
  server_stop(&server);
  return support_teardown(state);
}
static unsigned descriptors(void) {
  unsigned n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}
static void settle(void) { /* the server's end of a connection goes when it sees ours go */
  for (int i = 0; !server_is_idle(server); i++) {
    if (i > 60000) fail_msg("a connection stays open");
    usleep(1000);
  }
}
/* The hash of all batches, or the error's status. */
static insitu_status epoch(int m, uint64_t *hash, insitu_error *err) {
  static const insitu_option options[] = {{"max_retries", "2"}, {"retry_timeout", "5s"}};
  const insitu_variable v = {.label = "x", .path = "oom"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = server_url(server, "oom"),
      .variables = &v,
      .n_variables = 1,
      .batch_size = 5,
      .options = options,
      .n_options = 2,
      .max_inflight = 3,
      .log_level = INSITU_LOG_ERROR,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b;
  *hash = 1;
  insitu_status status = insitu_loader_open(&d, &ld, err);
  if (status) return status;
  status = insitu_iter_open(ld, &id, &it, err);
  while (!status && !(status = insitu_iter_next(it, 60000, &b, err))) {
    for (uint64_t i = 0; i < b->n_arrays; i++)
      *hash = server__hash(*hash, b->arrays[i].data, b->arrays[i].bytes);
    insitu_batch_release(&b);
  }
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return status;
}
static void test_each_allocation(void **state) {
  uint64_t want, hash;
  (void)state;
  EACH_MODE (m) {
    insitu_error err = {0};
    assert_int_equal(epoch(m, &want, &err), INSITU_END);
    settle();
    unsigned before = descriptors();
    long at = 0, failed = 0;
    for (bool more = true; more; at += modes[m].inline_io ? 1 : 3) {
      memset(&err, 0, sizeof err);
      atomic_store(&oom_left, at);
      alarm(60); /* a hang ends the test */
      insitu_status status = epoch(m, &hash, &err);
      alarm(0);
      more = atomic_exchange(&oom_left, -1) < 0;
      failed += status < 0;
      if (status == INSITU_END ? hash != want : status >= 0 || !err.message[0])
        fail_msg("%s, allocation %ld: %s: %s", modes[m].name, at, insitu_status_name(status),
            err.message);
      if (status != INSITU_END && status != INSITU_E_NOMEM)
        print_message("%s, allocation %ld: %s: %s\n", modes[m].name, at, insitu_status_name(status),
            err.message);
      settle();
      if (descriptors() != before)
        fail_msg("%s, allocation %ld: a descriptor is lost", modes[m].name, at);
    }
    assert_true(failed > 20);
  }
}

/* A listing of two pages, with memory for all but one allocation: all names, or no memory is told.
 */
enum { NAMES = 300 };
static bool list_pages(void *user, const struct server_request *q, struct server_answer *a) {
  bool first = !strstr(q->query, "continuation-token=");
  (void)user;
  a->status = 200;
  a->body = malloc(NAMES * 100 + 300);
  char *at = a->body + sprintf(a->body, "<ListBucketResult><IsTruncated>%s</IsTruncated>%s",
                           first ? "true" : "false",
                           first ? "<NextContinuationToken>t</NextContinuationToken>" : "");
  for (int i = 0; i < NAMES; i++)
    at += sprintf(
        at, "<Contents><Key>a rather long name, number %d</Key></Contents>", first ? i : NAMES + i);
  at += sprintf(at, "</ListBucketResult>");
  a->n_body = (uint64_t)(at - a->body);
  return true;
}
static void count_name(void *to, const char *name, bool is_directory) {
  (void)name;
  *(int *)to += !is_directory;
}
static struct insitu__store listing;
static struct {
  insitu_status status;
  insitu_error err;
  int names;
} listed;
static void list_it(void *arg) {
  (void)arg;
  listed.status = insitu__store_list_await(&listing, "", count_name, &listed.names, &listed.err);
}
static void test_listing(void **state) {
  struct server *s = server_start(&(struct server_options){.answer = list_pages});
  const insitu_option options[] = {{"endpoint", server_url(s, "")}, {"allow_http", "true"},
      {"skip_signature", "true"}, {"region", "us-east-1"}, {"max_retries", "0"}};
  const insitu_loader_desc d = {
      .api = INSITU_API, .url = "s3://bucket", .options = options, .n_options = 5};
  const struct insitu__reactor_desc reactor_desc = {
      .backend = INSITU__RING_EPOLL, .inline_mode = true};
  bool more = true;
  int failed = 0;
  (void)state;
  for (long at = 0; more; at++) {
    struct insitu__reactor reactor;
    insitu_error err = {0};
    if (insitu__reactor_open(&reactor, &reactor_desc, &err) ||
        insitu__source_open_store(&listing, &reactor, &d, &err))
      fail_msg("%s", err.message);
    memset(&listed, 0, sizeof listed);
    atomic_store(&oom_left, at);
    alarm(60);
    insitu_status status = insitu__reactor_call(&reactor, list_it, NULL);
    alarm(0);
    more = atomic_exchange(&oom_left, -1) < 0;
    insitu__reactor_close(&reactor);
    insitu__store_close(&listing);
    if (status < 0) continue; /* the call itself had no memory */
    failed += listed.status < 0;
    if (listed.status ? listed.status != INSITU_E_NOMEM : listed.names != 2 * NAMES)
      fail_msg("allocation %ld: %s, %d names: %s", at, insitu_status_name(listed.status),
          listed.names, listed.err.message);
  }
  assert_int_equal(listed.status, INSITU_OK);
  assert_true(failed > 10);
  server_stop(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_listing)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
