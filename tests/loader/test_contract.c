/* Every function of part A that takes a loader or an iterator, where it must refuse: without a
 * handle, in a forked child, in another thread of an inline loader, once the loader is closed, and
 * once it is cancelled. What it returns and what the error says agree. */
#include "insitubatch.h"
#include <pthread.h>
#include "support.h"

static const struct support_array x = {.name = "x",
                                      .ndim = 2,
                                      .shape = {60, 3},
                                      .chunk = {4, 3},
                                      .dtype = INSITU_F32,
                                      .format = 2,
                                      .dims = "[\"time\",\"lat\"]"},
                                  dates = {.name = "time",
                                      .ndim = 1,
                                      .shape = {60},
                                      .chunk = {60},
                                      .dtype = INSITU_I32,
                                      .format = 2,
                                      .dims = "[\"time\"]",
                                      .attributes = "\"units\":\"days since 2000-01-01\""};
static const int64_t steps[] = {0, 1};
static const insitu_op norm = {.kind = INSITU_OP_NORM, .a = 2, .b = 3};
static const insitu_variable variables[] = {{.label = "x", .ops = &norm, .n_ops = 1},
    {.label = "y", .path = "x", .steps = steps, .n_steps = 2}};
static const insitu_iter_desc train = {.api = INSITU_API};

static insitu_loader *open_loader(const char *root, int32_t inline_io) {
  support_make(root, &x);
  support_make(root, &dates);
  return open_or_fail(&(insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = variables,
      .n_variables = 2,
      .batch_size = 4,
      .split = {{.fraction = 1}},
      .inline_io = inline_io});
}

/* What the calls are given. */
struct handles {
  insitu_loader *loader;
  insitu_iter *iter;
  insitu_state state;
};

enum {
  NEXT,
  SET_EPOCH,
  RESTORE,
  SET_STEPS,
  SKIP,
  LOCATE,
  OF_ITERATORS, /* those before it take an iterator, those behind it a loader */
  OPEN = OF_ITERATORS,
  OPEN_JSON,
  PLAN,
  QUALITY,
  STATS,
  BAD_CHUNK,
  NORM,
  READ,
  STRINGS,
  DATES,
  SAVE,
  CALLS
};
static const char *const names[CALLS] = {"next", "set_epoch", "restore", "set_steps", "skip",
    "locate", "iter_open", "iter_open_json", "plan", "quality", "stats", "bad_chunk", "norm",
    "read", "read_strings", "sample_dates", "manifest_save"};

static insitu_status call_iterator(int which, struct handles *h, insitu_error *err) {
  insitu_batch *b = NULL;
  int64_t index;

  switch (which) {
  case NEXT: {
    insitu_status status = insitu_iter_next(h->iter, 20000, &b, err);
    insitu_batch_release(&b);
    return status;
  }
  case SET_EPOCH: return insitu_iter_set_epoch(h->iter, 2, err);
  case RESTORE: return insitu_iter_restore(h->iter, &h->state, err);
  case SET_STEPS: return insitu_iter_set_steps(h->iter, "y", 1, err);
  case SKIP: return insitu_iter_skip(h->iter, 5, 1, err);
  default: return insitu_iter_locate(h->iter, 0, 0, 0, &index, err);
  }
}
static insitu_status call_loader(int which, struct handles *h, insitu_error *err) {
  float values[180];
  double mean, deviation;
  int64_t sample = 3;
  insitu_plan plan;
  insitu_quality quality;
  insitu_stats stats;
  insitu_bad_chunk bad;
  insitu_date date;
  insitu_strings *strings = NULL;
  insitu_iter *it = NULL;
  insitu_status status;

  switch (which) {
  case OPEN: status = insitu_iter_open(h->loader, &train, &it, err); break;
  case OPEN_JSON: status = insitu_iter_open_json(h->loader, "{}", NULL, &it, err); break;
  case PLAN: return insitu_loader_plan(h->loader, &train, &plan, err);
  case QUALITY: return insitu_loader_quality(h->loader, &train, &quality, err);
  case STATS: return insitu_loader_stats(h->loader, &stats, err);
  case BAD_CHUNK: return insitu_loader_bad_chunk(h->loader, 0, &bad, err);
  case NORM: return insitu_loader_norm(h->loader, "x", 0, &mean, &deviation, err);
  case READ:
    return insitu_read(
        h->loader, &(insitu_variable){.path = "x"}, values, sizeof values, NULL, err);
  case STRINGS: return insitu_read_strings(h->loader, "x", &strings, err);
  case DATES: return insitu_sample_dates(h->loader, &sample, 1, &date, err);
  default: return insitu_manifest_save(h->loader, support_path("manifest.json"), err);
  }
  assert_true(!status == !!it);
  insitu_iter_close(&it);
  return status;
}

/* Makes the calls first to last - 1; want has their statuses. */
static void expect(struct handles *h, int first, int last, const insitu_status *want) {
  for (int i = first; i < last; i++) {
    insitu_error err;
    memset(&err, 0x55, sizeof err); /* every call begins by emptying it */
    insitu_status got = i < OF_ITERATORS ? call_iterator(i, h, &err) : call_loader(i, h, &err);
    if (got != want[i] || err.status != (got < 0 ? got : 0) || !err.message[0] != (got >= 0))
      fail_msg("%s: %s, not %s; the error has %d, '%s'", names[i], insitu_status_name(got),
          insitu_status_name(want[i]), err.status, err.message);
  }
}
static void expect_all(struct handles *h, int first, int last, insitu_status want) {
  insitu_status all[CALLS];
  for (int i = 0; i < CALLS; i++) all[i] = want;
  expect(h, first, last, all);
}

static void without_a_handle(void **state) {
  (void)state;
  struct handles none = {0};
  expect_all(&none, 0, CALLS, INSITU_E_ARG);
  assert_null(insitu_loader_config(NULL));
  assert_null(insitu_loader_array(NULL, 0));
  assert_int_equal(insitu_loader_describe(NULL, NULL, 0), 0);
  insitu_loader_cancel(NULL);
  insitu_loader_close(NULL);
  insitu_iter_close(NULL);
}

static void in_a_child(void **state) {
  (void)state;
  const char *root = support_path("child");
  for (int32_t inline_io = 0; inline_io < 2; inline_io++) {
    struct handles h = {.loader = open_loader(root, inline_io)};
    h.iter = open_iter_or_fail(h.loader, &train);
    insitu_batch *b = next_batch_or_fail(h.iter);
    h.state = b->after;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
      expect_all(&h, 0, CALLS, INSITU_E_FORKED);
      assert_int_equal(insitu_loader_describe(h.loader, NULL, 0), 0);
      insitu_batch_release(&b);
      insitu_iter_close(&h.iter);
      insitu_loader_close(&h.loader);
      _exit(b || h.iter || h.loader);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    /* for the parent nothing has changed: the batch is held still, and another one comes */
    insitu_batch *second = next_batch_or_fail(h.iter), *third;
    assert_int_equal(insitu_iter_next(h.iter, 0, &third, NULL), INSITU_BUSY);
    insitu_batch_release(&b);
    insitu_batch_release(&second);
    insitu_iter_close(&h.iter);
    insitu_loader_close(&h.loader);
  }
  support_remove(root);
}

static void *other_thread(void *arg) {
  insitu_status want[CALLS];
  for (int i = 0; i < CALLS; i++) want[i] = INSITU_E_WRONG_THREAD;
  want[LOCATE] = want[PLAN] = want[QUALITY] = want[STATS] = want[NORM] = want[SAVE] = INSITU_OK;
  want[BAD_CHUNK] = INSITU_END;
  expect(arg, 0, CALLS, want);
  return arg;
}
static void in_another_thread(void **state) {
  (void)state;
  const char *root = support_path("thread");
  struct handles h = {.loader = open_loader(root, 1)};
  h.iter = open_iter_or_fail(h.loader, &train);
  pthread_t thread;
  void *done = NULL;
  assert_int_equal(pthread_create(&thread, NULL, other_thread, &h), 0);
  assert_int_equal(pthread_join(thread, &done), 0);
  assert_ptr_equal(done, &h);
  insitu_iter_close(&h.iter);
  insitu_loader_close(&h.loader);
  support_remove(root);
}

static void *close_there(void *arg) {
  struct handles *h = arg;
  insitu_iter_close(&h->iter);
  assert_null(h->iter);
  return arg;
}
/* A thread that did not open an inline loader closes an iterator, with or without a batch that is
 * held: what the iterator has stays with the loader, which goes on and closes. */
static void closed_in_another_thread(void **state) {
  (void)state;
  const char *root = support_path("elsewhere");
  for (int holds = 0; holds < 2; holds++) {
    struct handles h = {.loader = open_loader(root, 1)};
    insitu_stats before, after;
    insitu_batch *held = NULL;
    h.iter = open_iter_or_fail(h.loader, &train);
    if (holds) held = next_batch_or_fail(h.iter);
    assert_int_equal(insitu_loader_stats(h.loader, &before, NULL), INSITU_OK);
    pthread_t thread;
    void *done = NULL;
    assert_int_equal(pthread_create(&thread, NULL, close_there, &h), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_ptr_equal(done, &h);
    assert_int_equal(insitu_loader_stats(h.loader, &after, NULL), INSITU_OK);
    assert_int_equal(before.memory_promised, after.memory_promised);
    insitu_iter *second = open_iter_or_fail(h.loader, &train);
    insitu_batch *b = next_batch_or_fail(second);
    if (held)
      assert_memory_equal(held->arrays[0].data, b->arrays[0].data, (size_t)b->arrays[0].bytes);
    insitu_batch_release(&b);
    insitu_iter_close(&second);
    insitu_loader_close(&h.loader);
    insitu_batch_release(&held);
  }
  support_remove(root);
}

static void behind_close(void **state) {
  (void)state;
  const char *root = support_path("closed");
  for (int32_t inline_io = 0; inline_io < 2; inline_io++) {
    struct handles h = {.loader = open_loader(root, inline_io)};
    h.iter = open_iter_or_fail(h.loader, &train);
    insitu_batch *b = next_batch_or_fail(h.iter);
    h.state = b->after;
    insitu_loader_close(&h.loader);
    expect_all(&h, 0, OF_ITERATORS, INSITU_E_ARG);
    insitu_batch_release(&b);
    expect_all(&h, 0, OF_ITERATORS, INSITU_E_ARG);
    insitu_iter_close(&h.iter);
  }
  support_remove(root);
}

static void behind_cancel(void **state) {
  (void)state;
  const char *root = support_path("cancelled");
  for (int32_t inline_io = 0; inline_io < 2; inline_io++) {
    struct handles h = {.loader = open_loader(root, inline_io)};
    h.iter = open_iter_or_fail(h.loader, &train);
    insitu_batch *b = next_batch_or_fail(h.iter);
    h.state = b->after;
    insitu_loader_cancel(h.loader);
    insitu_status want[CALLS] = {[NEXT] = INSITU_CANCELLED,
        [READ] = INSITU_CANCELLED,
        [STRINGS] = INSITU_CANCELLED,
        [DATES] = INSITU_CANCELLED,
        [BAD_CHUNK] = INSITU_END};
    for (int twice = 0; twice < 2; twice++) expect(&h, 0, CALLS, want);
    insitu_batch_release(&b);
    insitu_iter_close(&h.iter);
    insitu_loader_close(&h.loader);
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_handle),
      cmocka_unit_test(in_a_child), cmocka_unit_test(in_another_thread),
      cmocka_unit_test(closed_in_another_thread), cmocka_unit_test(behind_close),
      cmocka_unit_test(behind_cancel)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
