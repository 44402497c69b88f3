/* insitu_read: whole arrays and boxes of them, against the formula of the stores that others wrote
 * and of temporary archives. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "expect.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static const struct {
  const char *name;
  int32_t io, plan_only;
} modes[] = {{"epoll", INSITU_IO_EPOLL, 0}, {"plan_only", 0, 1}, {"default", 0, 0}};
enum { MODES = sizeof modes / sizeof *modes };

/* A box of one array against the formula; narrow: on random axes. */
static void read_box(insitu_loader *ld, const expect_entry *e, bool narrow) {
  insitu_variable v = {.path = strcmp(e->path, "/") ? e->path : ""};
  insitu_slice slice[EXPECT_MAX_DIMS];
  uint64_t lo[EXPECT_MAX_DIMS] = {0}, n[EXPECT_MAX_DIMS], index[EXPECT_MAX_DIMS], count = 1;
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char one[EXPECT_MAX_BYTES];
  memcpy(n, e->shape, sizeof n);
  for (int d = 0; d < e->ndim; d++) {
    if (narrow && support_below(2) && n[d]) {
      lo[d] = support_below(n[d]);
      n[d] = 1 + support_below(n[d] - lo[d]);
      slice[v.n_slices++] =
          (insitu_slice){.axis = d, .start = (int64_t)lo[d], .stop = (int64_t)(lo[d] + n[d])};
    }
    count *= n[d];
  }
  v.slices = slice;
  insitu_status s = insitu_read(ld, &v, NULL, 0, &shape, &err);
  if (e->refused) {
    assert_string_equal(insitu_status_name(s), e->status);
    return;
  }
  if (s) fail_msg("%s %s: %s", e->store, e->path, err.message);
  size_t item = expect_bits(e->dtype, 0, one);
  assert_int_equal(shape.ndim, e->ndim);
  assert_int_equal(shape.bytes, count * item);
  for (int d = 0; d < e->ndim; d++) assert_int_equal(shape.shape[d], n[d]);
  unsigned char *got = malloc(shape.bytes + 1);
  got[shape.bytes] = 0x5a;
  s = insitu_read(ld, &v, got, shape.bytes, NULL, &err);
  if (s) fail_msg("%s %s: %s", e->store, e->path, err.message);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t rest = i;
    for (int d = e->ndim - 1; d >= 0; d--) {
      index[d] = lo[d] + rest % n[d];
      rest /= n[d];
    }
    expect_element(e, index, one);
    if (memcmp(one, got + i * item, item))
      fail_msg("%s %s: element %d differs", e->store, e->path, (int)i);
  }
  assert_int_equal(got[shape.bytes], 0x5a);
  free(got);
}

static void test_every_array(void **state) {
  (void)state;
  for (int m = 0; m < MODES; m++) {
    expect_entry e;
    int arrays = 0;
    FILE *index = fopen(TEST_DATA "/stores/INDEX.txt", "r");
    assert_non_null(index);
    while (expect_next(index, &e)) {
      char url[300];
      insitu_error err = {0};
      snprintf(url, sizeof url, "%s/stores/%s", TEST_DATA, e.store);
      /* A loader without variables, or with one of another array open beside. */
      insitu_loader_desc d = {.api = INSITU_API, .url = url, .io = modes[m].io, .plan_only = 1};
      insitu_variable x = {.label = "x"};
      if (!modes[m].plan_only) {
        d.url = TEST_DATA "/stores/train.v3.zarr";
        d.variables = &x;
        d.n_variables = 1;
        d.plan_only = 0;
        if (strncmp(e.store, "train.v3", 8)) continue;
      }
      insitu_loader *ld = NULL;
      insitu_status s = insitu_loader_open(&d, &ld, &err);
      if (s && e.refused) continue; /* the root itself is refused */
      if (s) fail_msg("%s: %s", url, err.message);
      for (int i = 0; i < 3; i++) read_box(ld, &e, i > 0);
      insitu_loader_close(&ld);
      arrays++;
    }
    assert_true(feof(index));
    assert_true(arrays >= (modes[m].plan_only ? 200 : 3));
    fclose(index);
  }
}

/* Beside an iterator in the middle of an epoch, with conversion, through shards, absent chunks, and
 * in little memory. */
static void test_beside_iterators(void **state) {
  (void)state;
  const char *root = support_path("beside");
  struct support_array a = {.name = "x",
      .ndim = 3,
      .shape = {60, 7, 9},
      .chunk = {4, 3, 5},
      .dtype = INSITU_I16,
      .format = 3,
      .big = true,
      .fortran = true,
      .zstd = true,
      .absent = 4,
      .shard = {3, 2, 1},
      .index_crc = true};
  support_make(root, &a);
  insitu_variable x = {.label = "x"}, whole = {.path = "x", .dtype = INSITU_F64};
  for (int inline_io = 0; inline_io < 2; inline_io++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &x,
        .n_variables = 1,
        .batch_size = 6,
        .inline_io = inline_io};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = NULL;
    insitu_batch *b;
    insitu_error err = {0};
    insitu_stats before, after;
    static double got[60 * 7 * 9];
    assert_int_equal(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), 0);
    for (int i = 0; i < 3; i++) {
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), 0);
      support_check_array(b, 0, &x, &a, 0);
      insitu_batch_release(&b);
      memset(got, 0xff, sizeof got);
      uint64_t reserved = ld->budget.reserved;
      assert_int_equal(insitu_read(ld, &whole, got, sizeof got, NULL, &err), 0);
      assert_int_equal(ld->budget.reserved, reserved);
      for (uint64_t k = 0; k < 60 * 7 * 9; k++)
        assert_true(got[k] == support_expect(&a, (uint64_t[]){k / 63, k / 9 % 7, k % 9}));
    }
    /* Just enough memory for one reader, and not enough. */
    uint64_t free_bytes = ld->config.memory_budget - ld->footprint.inflight_bytes -
                          ld->footprint.cache_bytes - ld->budget.reserved;
    ld->config.memory_budget -= free_bytes - (1 << 20);
    assert_int_equal(insitu_read(ld, &whole, got, sizeof got, NULL, &err), 0);
    ld->config.memory_budget -= 1 << 20;
    assert_int_equal(insitu_read(ld, &whole, got, sizeof got, NULL, &err), INSITU_E_BUDGET);
    assert_non_null(strstr(err.message, "memory_budget"));
    ld->config.memory_budget += free_bytes;
    memset(&err, 0, sizeof err);
    insitu_loader_stats(ld, &before, NULL);
    assert_int_equal(insitu_read(ld, &whole, got, sizeof got, NULL, &err), 0);
    insitu_loader_stats(ld, &after, NULL);
    assert_true(after.absent_chunks > before.absent_chunks);
    insitu_loader_cancel(ld);
    assert_int_equal(insitu_read(ld, &whole, got, sizeof got, NULL, &err), INSITU_CANCELLED);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

static void refuse(insitu_loader *ld, const insitu_variable *v, uint64_t bytes, insitu_status want,
    const char *word) {
  insitu_error err = {0};
  char dst[4000];
  assert_int_equal(insitu_read(ld, v, dst, bytes, NULL, &err), want);
  if (!strstr(err.message, word)) fail_msg("'%s' does not name '%s'", err.message, word);
}
static void test_refusals(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = {.name = "grid/x",
      .ndim = 2,
      .shape = {20, 5},
      .chunk = {4, 5},
      .dtype = INSITU_F32,
      .format = 2};
  support_make(root, &a);
  insitu_loader_desc d = {.api = INSITU_API, .url = root, .plan_only = 1};
  insitu_loader *ld = open_or_fail(&d);
  insitu_slice far = {.axis = 1, .start = 3, .stop = 6}, third = {.axis = 2};
  refuse(ld, &(insitu_variable){.path = "grid/x"}, 399, INSITU_E_ARG, "400 bytes");
  refuse(ld, &(insitu_variable){.path = "grid/y"}, 400, INSITU_E_NOTFOUND, "grid/x");
  refuse(ld, &(insitu_variable){.path = "grid/x", .offset = 1}, 400, INSITU_E_ARG, "offset");
  refuse(ld, &(insitu_variable){.path = "grid/x", .slices = &far, .n_slices = 1}, 400,
      INSITU_E_SHAPE, "[3, 6)");
  refuse(ld, &(insitu_variable){.path = "grid/x", .slices = &third, .n_slices = 1}, 400,
      INSITU_E_SHAPE, "axis 2");
  refuse(ld, &(insitu_variable){.path = "grid/x", .dtype = INSITU_I8}, 400, INSITU_E_DTYPE,
      "from float32 to int8; use INSITU_AS_STORED or one of float16, float64, bfloat16");
  refuse(ld, &(insitu_variable){0}, 400, INSITU_E_ARG, "path");
  refuse(ld, NULL, 400, INSITU_E_ARG, "variable");
  /* A loader without variables is for reading alone. */
  insitu_iter_desc train = {.api = INSITU_API};
  insitu_plan plan;
  insitu_error err = {0};
  assert_int_equal(insitu_loader_plan(ld, &train, &plan, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "without variables"));
  memset(&err, 0, sizeof err);
  assert_int_equal(insitu_manifest_save(ld, support_path("m.json"), &err), INSITU_E_ARG);
  assert_null(insitu_loader_array(ld, 0));
  insitu_loader_close(&ld);
  d.plan_only = 0;
  memset(&err, 0, sizeof err);
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "n_variables"));
  support_remove(root);
}

static char logged[1000]; /* the log's lines */
static void keep_line(void *user, int32_t level, const char *line) {
  size_t n = strlen(logged);
  (void)user;
  snprintf(logged + n, sizeof logged - n, "%d %s\n", level, line);
}

/* Damaged and absent chunks. */
static void test_holes(void **state) {
  (void)state;
  const char *root = support_path("holes");
  struct support_array a = {.name = "x",
      .ndim = 1,
      .shape = {40},
      .chunk = {8},
      .dtype = INSITU_F32,
      .format = 2,
      .fill = "7",
      .absent = 2};
  support_make(root, &a);
  char path[600];
  snprintf(path, sizeof path, "%s/x/2", root);
  support_write(path, "short", 5);
  insitu_variable x = {.path = "x"};
  float got[40];
  insitu_error err = {0};
  for (int bad = INSITU_RAISE; bad <= INSITU_FILL; bad++)
    for (int absent = 0; absent <= INSITU_FILL; absent++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .plan_only = 1,
          .on_bad_chunk = bad,
          .on_absent_chunk = absent,
          .decode_threads = 1,
          .log = keep_line};
      insitu_loader *ld = open_or_fail(&d);
      insitu_stats stats;
      logged[0] = 0;
      memset(&err, 0, sizeof err);
      insitu_status s = insitu_read(ld, &x, got, sizeof got, NULL, &err);
      if (absent == INSITU_RAISE) {
        assert_int_equal(s, INSITU_E_ABSENT);
        assert_non_null(strstr(err.message, "chunk x/1: it is absent; set on_absent_chunk"));
      } else if (bad == INSITU_RAISE) {
        assert_int_equal(s, INSITU_E_CORRUPT);
        assert_non_null(
            strstr(err.message, "chunk x/2: read: wrong chunk length: got 5 bytes, expected 32"));
      } else {
        assert_int_equal(s, 0);
        for (int i = 0; i < 40; i++)
          assert_true(got[i] == (i / 8 % 2 || i / 8 == 2 ? 7 : (float)i));
        insitu_loader_stats(ld, &stats, NULL);
        assert_int_equal(stats.absent_chunks, 2);
        assert_int_equal(stats.bad_chunks, 1);
        assert_non_null(strstr(logged, "array x, chunk x/2 is filled: read: wrong chunk length"));
        assert_int_equal(logged[0], '1'); /* a warning, and the only line */
        assert_null(strchr(strchr(logged, '\n') + 1, '\n'));
      }
      if (bad == INSITU_RAISE || absent == INSITU_RAISE) assert_int_equal(logged[0], 0);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

/* A chunk that the system refuses to read: what it said comes with the error, of numbers and of
 * strings. */
static void test_system_error(void **state) {
  static const char *const dtype[] = {
      "|u1\",\"filters\":null", "|O\",\"filters\":[{\"id\":\"vlen-utf8\"}]"};
  const char *root = support_path("refused");
  (void)state;
  for (int strings = 0; strings < 2; strings++) {
    char path[600], text[300], got[4];
    insitu_strings *s;
    insitu_error err = {0};
    insitu_loader_desc d = {.api = INSITU_API, .url = root, .plan_only = 1};
    insitu_variable x = {.path = "x"};
    snprintf(text, sizeof text,
        "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[4],\"order\":\"C\",\"fill_value\":0,"
        "\"compressor\":null,\"dtype\":\"%s}",
        dtype[strings]);
    snprintf(path, sizeof path, "%s/x/.zarray", root);
    support_write(path, text, strlen(text));
    snprintf(path, sizeof path, "%s/x/0", root);
    assert_int_equal(symlink("0", path), 0); /* to itself */
    insitu_loader *ld = open_or_fail(&d);
    insitu_status status = strings ? insitu_read_strings(ld, "x", &s, &err)
                                   : insitu_read(ld, &x, got, sizeof got, NULL, &err);
    if (status != INSITU_E_IO) fail_msg("%s: %s", insitu_status_name(status), err.message);
    assert_int_equal(err.sys_errno, ELOOP);
    assert_non_null(strstr(err.message, "read, array x, chunk x/0: "));
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* What -ffast-math sets at a program's start, and threads inherit: subnormal numbers are zero. */
static void flush_to_zero(bool on) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(on ? 0x9fc0 : 0x1f80);
#else
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)on << 24));
#endif
}
static void test_flush_to_zero(void **state) {
  static const float small = 1e-40f;
  const char *root = support_path("flushed");
  struct support_array a = {.name = "x",
      .ndim = 1,
      .shape = {4},
      .chunk = {2},
      .dtype = INSITU_F32,
      .format = 3,
      .fill = "1e-40",
      .absent = 1};
  (void)state;
  support_make(root, &a);
  for (int m = 0; m < MODES; m++) {
    if (modes[m].plan_only) continue; /* on this thread, by its own state */
    const insitu_variable x = {.label = "x"};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &x,
        .n_variables = 1,
        .batch_size = 2,
        .io = modes[m].io,
        .plan_only = modes[m].plan_only};
    insitu_error err = {0};
    insitu_loader *ld = NULL;
    float got[4] = {1, 1, 1, 1};
    flush_to_zero(true);
    insitu_status s = insitu_loader_open(&d, &ld, &err);
    if (!s) s = insitu_read(ld, &x, got, sizeof got, NULL, &err);
    flush_to_zero(false);
    if (s) fail_msg("%s", err.message);
    for (int i = 0; i < 4; i++) assert_memory_equal(&got[i], &small, sizeof small);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_array),
      cmocka_unit_test(test_beside_iterators),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_holes),
      cmocka_unit_test(test_system_error),
      cmocka_unit_test(test_flush_to_zero),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
