/* Bad chunks that are filled: the list of them, and the rows of a batch that show some of one. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include <unistd.h>

enum { TIME = 60, LAT = 4, LON = 3, STEPS = 2 };
static struct support_array t = {.name = "t",
    .ndim = 3,
    .shape = {TIME, LAT, LON},
    .dtype = INSITU_F32,
    .dims = "[\"time\",\"lat\",\"lon\"]"};
static const int64_t steps[STEPS] = {0, 2};
enum { FINE, BAD, ABSENT };

/* Of each chunk of two rows along time and two along lat: what becomes of it. */
static int fate[TIME / 2][2];

static const char *make_archive(const char *name) {
  const char *root = support_path(name);
  t.format = 2 + (int)support_below(2);
  t.zstd = true;
  t.chunk[0] = t.chunk[1] = 2;
  t.chunk[2] = LON;
  support_make(root, &t);
  for (uint64_t i = 0; i < TIME / 2; i++)
    for (uint64_t k = 0; k < 2; k++) {
      char path[1024];
      uint64_t draw = support_below(8);
      support_chunk_path(path, sizeof path, root, &t, (uint64_t[]){i, k, 0});
      fate[i][k] = draw == 0 ? BAD : draw == 1 ? ABSENT : FINE;
      if (fate[i][k] == BAD) support_write(path, "no chunk", 8);
      if (fate[i][k] == ABSENT) assert_int_equal(unlink(path), 0);
    }
  return root;
}

static bool shows_bad(int64_t anchor) {
  bool bad = false;
  for (int s = 0; s < STEPS; s++)
    for (int k = 0; k < 2; k++) bad = bad || fate[(anchor + steps[s]) / 2][k] == BAD;
  return bad;
}

static void rows(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(24); round++) {
    const char *root = make_archive("rows");
    const insitu_variable v = {.label = "t", .steps = steps, .n_steps = STEPS};
    int m = any_mode();
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .split = {{.fraction = 1}},
        .batch_size = 1 + support_below(7),
        .assembly = (int32_t)support_below(3),
        .io = modes[m].io,
        .inline_io = (int32_t)support_below(2),
        .on_bad_chunk = INSITU_FILL,
        .on_absent_chunk = INSITU_FILL,
        .log_level = INSITU_LOG_OFF};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
    uint64_t seen = 0;
    for (int e = 0; e < 3; e++) {
      insitu_batch *b;
      while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
        for (uint64_t r = 0; r < b->rows; r++, seen++)
          if (b->bad_rows[r] != shows_bad(b->sample_indices[r]))
            fail_msg("sample %d: %d", (int)b->sample_indices[r], b->bad_rows[r]);
        insitu_batch_release(&b);
      }
    }
    assert_true(seen > 2 * (TIME - 16));

    /* the list has each bad chunk once */
    uint64_t n = 0, most = 0;
    insitu_bad_chunk bad;
    insitu_error err;
    for (int i = 0; i < TIME / 2; i++) most += (fate[i][0] == BAD) + (fate[i][1] == BAD);
    for (; insitu_loader_bad_chunk(ld, n, &bad, &err) == INSITU_OK; n++) {
      assert_string_equal(bad.array, "t");
      assert_true(bad.status < 0 && *bad.cause);
      int i, k;
      const char *key = bad.chunk + (t.format == 3 ? strlen("t/c/") : strlen("t/"));
      assert_int_equal(sscanf(key, t.format == 3 ? "%d/%d" : "%d.%d", &i, &k), 2);
      assert_int_equal(fate[i][k], BAD);
      fate[i][k] = FINE; /* not again */
    }
    assert_true(n <= most && n + 4 >= most); /* of the last units, an epoch drops some */
    insitu_stats stats;
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_true(stats.bad_chunks >= n && !stats.bad_unlisted);
    assert_int_equal(insitu_loader_bad_chunk(ld, 0, NULL, &err), INSITU_E_ARG);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* More bad chunks than the list has room for; and where bad chunks are errors there is no list. */
static void bounded(void **state) {
  (void)state;
  const char *root = support_path("bounded");
  struct support_array a = {.name = "a",
      .ndim = 1,
      .shape = {INSITU_BAD_CHUNKS + 10},
      .chunk = {1},
      .dtype = INSITU_F32,
      .format = 2,
      .zstd = true};
  support_make(root, &a);
  for (uint64_t i = 0; i < a.shape[0]; i++) {
    char path[1024];
    support_chunk_path(path, sizeof path, root, &a, &i);
    support_write(path, "no chunk", 8);
  }
  const insitu_variable v = {.label = "a"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .split = {{.fraction = 1}},
      .batch_size = 2,
      .hold_epoch = 1,
      .on_bad_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_OFF};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  insitu_bad_chunk bad;
  insitu_batch *b;
  insitu_stats stats;
  for (int e = 0; e < 2; e++)
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      for (uint64_t r = 0; r < b->rows; r++) assert_int_equal(b->bad_rows[r], 1);
      insitu_batch_release(&b);
    }
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  assert_int_equal(insitu_loader_bad_chunk(ld, INSITU_BAD_CHUNKS - 1, &bad, NULL), INSITU_OK);
  assert_int_equal(insitu_loader_bad_chunk(ld, INSITU_BAD_CHUNKS, &bad, NULL), INSITU_END);
  assert_int_equal(stats.bad_chunks, 2 * a.shape[0]);
  assert_int_equal(stats.bad_unlisted, 20);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  d.on_bad_chunk = INSITU_RAISE;
  ld = open_or_fail(&d);
  it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  assert_true(insitu_iter_next(it, 20000, &b, NULL) < 0);
  assert_int_equal(insitu_loader_bad_chunk(ld, 0, &bad, NULL), INSITU_END);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(bounded)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
