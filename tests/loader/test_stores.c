/* Bit-exactness against stores that zarr-python 2 and 3 wrote (tests/data): every array, along
 * every axis, on both backends and inline. */
#include "insitubatch.h"
#include "support.h"
#include "expect.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static const struct {
  const char *name;
  int32_t io, inline_io;
} modes[] = {{"threads", 0, 0}, {"epoll", INSITU_IO_EPOLL, 0}, {"inline", 0, 1}};

/* Where the element at an index lies in the file's C order. */
static uint64_t flat_of(const expect_entry *e, const uint64_t *index) {
  uint64_t flat = 0;
  for (int d = 0; d < e->ndim; d++) flat = flat * e->shape[d] + index[d];
  return flat;
}

/* One array along one axis, in sequence: all rows come once, every bit as expected. */
static void read_along(
    const expect_entry *e, int axis, int mode, const unsigned char *want, size_t bytes) {
  char url[300];
  insitu_variable v = {.label = "it", .path = strcmp(e->path, "/") ? e->path : ""};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  uint64_t count = 1, rows = 0;
  for (int d = 0; d < e->ndim; d++) count *= e->shape[d];
  snprintf(url, sizeof url, "%s/stores/%s", TEST_DATA, e->store);
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = &v,
      .n_variables = 1,
      .sample_axis = axis,
      .on_absent_chunk = INSITU_FILL,
      .batch_size = 1 + support_below(9),
      .io = modes[mode].io,
      .inline_io = modes[mode].inline_io};
  insitu_status s = insitu_loader_open(&d, &ld, &err);
  if (e->refused) {
    assert_string_equal(insitu_status_name(s), e->status);
    if (!strstr(err.message, e->word)) fail_msg("'%s' does not name '%s'", err.message, e->word);
    return;
  }
  if (!count || !e->ndim) { /* nothing to batch: said so */
    assert_true(s == INSITU_E_SHAPE || s == INSITU_E_SPLIT);
    return;
  }
  if (s) fail_msg("%s %s: %s", e->store, e->path, err.message);
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
  assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  while ((s = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    const unsigned char *p = b->arrays[0].data;
    uint64_t per_row = count / e->shape[axis], item = bytes / count;
    for (uint64_t r = 0; r < b->rows; r++, rows++)
      for (uint64_t k = 0; k < per_row; k++, p += item) {
        uint64_t index[EXPECT_MAX_DIMS], rest = k;
        for (int x = e->ndim - 1; x >= 0; x--) {
          if (x == axis) continue;
          index[x] = rest % e->shape[x];
          rest /= e->shape[x];
        }
        index[axis] = (uint64_t)b->sample_indices[r];
        assert_int_equal(b->sample_indices[r], rows);
        if (memcmp(p, want + item * flat_of(e, index), item))
          fail_msg("%s %s: row %d along axis %d, element %d differs", e->store, e->path, (int)rows,
              axis, (int)k);
      }
    insitu_batch_release(&b);
  }
  if (s != INSITU_END) fail_msg("%s %s: %s", e->store, e->path, err.message);
  assert_int_equal(rows, e->shape[axis]);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}

static void test_every_array(void **state) {
  (void)state;
  int arrays = 0;
  expect_entry e;
  FILE *index = fopen(TEST_DATA "/stores/INDEX.txt", "r");
  assert_non_null(index);
  while (expect_next(index, &e)) {
    size_t bytes;
    unsigned char *want = expect_array(&e, &bytes);
    int axes = e.ndim ? e.ndim : 1;
    /* every axis of every array in a plain run, else one of each */
    for (int axis = support_slow() ? arrays % axes : 0; axis < axes; axis++) {
      read_along(&e, axis, arrays % 3, want, bytes);
      if (support_slow()) break;
    }
    free(want);
    arrays++;
  }
  assert_true(feof(index));
  assert_true(arrays > 150);
  fclose(index);
}

/* Several arrays at once, shuffled, with offsets, steps, slices and conversion, from both formats.
 */
static void test_training_sets(void **state) {
  (void)state;
  static const int64_t steps[] = {-1, 0, 2};
  static const insitu_slice part[] = {{.axis = 1, .start = 1, .stop = 5}};
  static const insitu_variable v[] = {{.label = "x", .offset = 1},
      {.label = "y", .dtype = INSITU_F32}, {.label = "z", .steps = steps, .n_steps = 3},
      {.label = "window",
          .path = "x",
          .steps = steps,
          .n_steps = 3,
          .slices = part,
          .n_slices = 1}};
  for (int format = 2; format <= 3; format++)
    for (int mode = 0; mode < 3; mode++) {
      char url[300];
      snprintf(url, sizeof url, "%s/stores/train.v%d.zarr", TEST_DATA, format);
      insitu_loader_desc d = {.api = INSITU_API,
          .url = url,
          .variables = v,
          .n_variables = 4,
          .batch_size = 6,
          .block_chunks = 3,
          .io = modes[mode].io,
          .inline_io = modes[mode].inline_io};
      insitu_error err = {0};
      insitu_loader *ld;
      insitu_iter *it = NULL;
      insitu_batch *b;
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      insitu_iter_desc id = {.api = INSITU_API};
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
      insitu_status status;
      while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
        const float *x = b->arrays[0].data, *y = b->arrays[1].data, *w = b->arrays[3].data;
        const double *z = b->arrays[2].data;
        for (uint64_t r = 0; r < b->rows; r++) {
          uint64_t t = (uint64_t)b->sample_indices[r];
          float f;
          double g;
          int16_t h;
          for (uint64_t k = 0; k < 60; k++) {
            expect_bits("f4", (t + 1) * 60 + k, &f);
            assert_true(*x++ == f);
            expect_bits("i2", t * 60 + k, &h);
            assert_true(*y++ == (float)h);
          }
          for (int s = 0; s < 3; s++) {
            expect_bits("f8", t + (uint64_t)steps[s], &g);
            assert_true(*z++ == g);
            for (uint64_t k = 10; k < 50; k++) {
              expect_bits("f4", (t + (uint64_t)steps[s]) * 60 + k, &f);
              assert_true(*w++ == f);
            }
          }
        }
        insitu_batch_release(&b);
      }
      if (status != INSITU_END) fail_msg("%s", err.message);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      /* the sample axis by name, where it is the second */
      insitu_variable lev = {.label = "w"};
      d.variables = &lev;
      d.n_variables = 1;
      d.sample_dim = "time";
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      assert_int_equal(insitu_loader_array(ld, 0)->shape[1], 6);
      assert_int_equal(insitu_loader_array(ld, 0)->shape[2], 4);
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
      while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
        const float *p = b->arrays[0].data;
        for (uint64_t r = 0; r < b->rows; r++)
          for (uint64_t k = 0; k < 24; k++) {
            float f;
            expect_bits("f4", (k / 4 * 97 + (uint64_t)b->sample_indices[r]) * 4 + k % 4, &f);
            assert_true(*p++ == f);
          }
        insitu_batch_release(&b);
      }
      if (status != INSITU_END) fail_msg("%s", err.message);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_array),
      cmocka_unit_test(test_training_sets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
