/* INSITU_CHECK: rows read again in a second way agree with every batch that the loader fills, and
 * disagree with one that was tampered with. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "expect.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

#if SUPPORT_SANITIZED
enum { PART = 4 }; /* a quarter of it is enough for a sanitizer */
#else
enum { PART = 1 };
#endif

static uint64_t checked(const insitu_loader *ld) {
  insitu_stats s;
  assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
  return s.checked_rows;
}

/* Runs one epoch of everything and gives the number of batches; each must have been checked. */
static uint64_t run(const insitu_loader_desc *d, int32_t order, const char *name) {
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_status s;
  uint64_t batches = 0, full = 0;
  if (insitu_loader_open(d, &ld, &err)) fail_msg("%s: %s", name, err.message);
  s = insitu_iter_open(
      ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = order}, &it, &err);
  if (s == INSITU_E_SPLIT) { /* too small for one batch */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    return 0;
  }
  if (s) fail_msg("%s: %s", name, err.message);
  while ((s = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    batches++;
    full += b->rows > 0;
    assert_int_equal(checked(ld), full + (full ? d->n_variables : 0));
    insitu_batch_release(&b);
  }
  if (s != INSITU_END) fail_msg("%s: %s %s", name, insitu_status_name(s), err.message);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return batches;
}

/* ---- agreement ---- */

static void test_stores(void **state) {
  (void)state;
  uint64_t batches = 0;
  int arrays = 0;
  expect_entry e;
  FILE *index = fopen(TEST_DATA "/stores/INDEX.txt", "r");
  assert_non_null(index);
  while (expect_next(index, &e)) {
    uint64_t count = e.ndim > 0;
    for (int k = 0; k < e.ndim; k++) count *= e.shape[k];
    if (e.refused || !count || arrays++ % PART) continue;
    for (int axis = 0; axis < e.ndim; axis++) {
      char url[300];
      const char *path = strcmp(e.path, "/") ? e.path : "";
      insitu_variable v[] = {{.label = "it", .path = path},
          {.label = "f", .path = path, .dtype = INSITU_F32},
          {.label = "d", .path = path, .dtype = INSITU_F64},
          {.label = "h", .path = path, .dtype = INSITU_F16},
          {.label = "b", .path = path, .dtype = INSITU_BF16}};
      int m = (arrays + axis) % MODES;
      if (!mode_usable(m)) m ^= 1;
      snprintf(url, sizeof url, "%s/stores/%s", TEST_DATA, e.store);
      insitu_loader_desc d = {.api = INSITU_API,
          .url = url,
          .variables = v,
          .n_variables = e.dtype[0] == 'c' ? 1 : 5,
          .sample_axis = axis,
          .on_absent_chunk = INSITU_FILL,
          .batch_size = 1 + support_below(9),
          .check = 1,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      batches += run(&d, INSITU_SEQUENTIAL, e.path);
    }
  }
  fclose(index);
  assert_true(arrays > 100 && batches > 1000 / PART);
}

/* Variables that show x as it is, and as each type it can be converted to; how many. */
static uint64_t all_types(const char *stored, insitu_variable *v) {
  int32_t from = 0;
  uint64_t n = 1;
  v[0] = (insitu_variable){.label = "x"};
  assert_true(insitu__dtype_find(stored, true, &from));
  for (int i = 0; i < INSITU__DTYPE_KNOWN; i++) {
    int32_t to = insitu__dtype_known[i].dtype;
    if (to == from || !insitu__dtype_converts(from, to)) continue;
    v[n++] = (insitu_variable){.label = insitu__dtype_known[i].v3, .path = "x", .dtype = to};
  }
  return n;
}

/* Any bits of any type convert alike: NaNs, infinities, subnormals, large integers. */
static void test_all_bits(void **state) {
  static const struct {
    const char *name;
    unsigned bytes, shown; /* shown: types that there is a conversion to, and its own */
  } types[] = {{"b1", 1, 13}, {"i1", 1, 9}, {"u1", 1, 12}, {"i2", 2, 8}, {"u2", 2, 10},
      {"f2", 2, 4}, {"i4", 4, 7}, {"u4", 4, 8}, {"f4", 4, 4}, {"i8", 8, 6}, {"u8", 8, 6},
      {"f8", 8, 4}, {"c8", 8, 1}, {"c16", 16, 1}};
  enum { ROWS = 9, ROW = 5000 };
  static unsigned char chunk[3 * ROW * 16];
  const char *root = support_path("bits");
  (void)state;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    for (int big = 0; big < 2; big++) {
      char path[600], text[300];
      snprintf(text, sizeof text,
          "{\"zarr_format\":2,\"shape\":[%d,%d],\"chunks\":[3,%d],\"dtype\":\"%s%s\",\"order\":\"%"
          "s\",\"fill_value\":0,\"filters\":"
          "null,\"compressor\":null}",
          ROWS, ROW, ROW,
          types[i].bytes == 1 ? "|"
          : big               ? ">"
                              : "<",
          types[i].name, big ? "F" : "C");
      snprintf(path, sizeof path, "%s/x/.zarray", root);
      support_write(path, text, strlen(text));
      for (int c = 0; c < 3; c++) {
        for (size_t k = 0; k < sizeof chunk; k += 8) {
          uint64_t bits = support_random(), kind = support_below(8);
          if (kind == 0) bits |= UINT64_C(0x7ff0000000000000);
          if (kind == 1) bits |= UINT64_C(0x7f8000007f800000);
          if (kind == 2) bits |= UINT64_C(0x7c007c007c007c00);
          if (kind == 3) bits &= UINT64_C(0x83ff83ff83ff83ff);
          if (kind == 4) bits &= UINT64_C(0x807fffff807fffff);
          /* float's subnormals */
          if (kind == 5)
            bits = (bits & UINT64_C(0x8fffffffffffffff)) | UINT64_C(0x3000000000000000);
          /* integers on and beside the middle between two floats of 8 or 11 digits */
          if (kind == 6) {
            unsigned top = 16 + (unsigned)support_below(48), half = support_below(2) ? 8 : 11;
            bits = (UINT64_C(1) << top | UINT64_C(1) << (top - half)) - 1 + support_below(3);
          }
          if (big) bits = __builtin_bswap64(bits);
          memcpy(chunk + k, &bits, 8);
        }
        snprintf(path, sizeof path, "%s/x/%d.0", root, c);
        support_write(path, chunk, 3 * ROW * types[i].bytes);
      }
      insitu_variable v[INSITU__DTYPE_KNOWN];
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = v,
          .n_variables = all_types(types[i].name, v),
          .batch_size = 1,
          .check = 1};
      assert_int_equal(d.n_variables, types[i].shown);
      assert_int_equal(run(&d, INSITU_SEQUENTIAL, types[i].name), ROWS);
    }
  support_remove(root);
}

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Random archives and configurations, with absent chunks, and damaged ones that are filled. */
static void test_random(void **state) {
  static const int32_t dtypes[] = {
      INSITU_U8, INSITU_I16, INSITU_I32, INSITU_F16, INSITU_F32, INSITU_F64};
  (void)state;
  EACH_MODE (m)
    for (int round = 0; round < 30 / PART; round++) {
      const char *root = support_path("random");
      int axis = (int)support_below(2);
      struct support_array a = {.name = "x",
          .ndim = 2 + (int)support_below(2),
          .dtype = dtypes[support_below(6)],
          .format = 2 + (int)support_below(2),
          .big = support_below(2),
          .fortran = support_below(2),
          .zstd = support_below(2),
          .fill = support_below(2) ? "3" : NULL,
          .absent = support_below(2) ? 3 : 0};
      for (int d = 0; d < a.ndim; d++) {
        a.shape[d] =
            d == axis ? 20 + support_below(30) : 1 + support_below(support_below(4) ? 9 : 700);
        a.chunk[d] = 1 + support_below(d == axis ? 6 : a.shape[d]);
        if (a.shape[d] / a.chunk[d] > 30) a.chunk[d] = a.shape[d] / 10;
      }
      support_make(root, &a);
      bool damaged = support_below(2);
      if (damaged) {
        char path[700];
        uint64_t index[4] = {0, 0, 0, 0};
        index[axis] = a.absent ? 1 : support_below(3);
        support_chunk_path(path, sizeof path, root, &a, index);
        damaged = truncate(path, (off_t)support_below(9)) == 0;
      }
      insitu_variable v[3] = {
          {.label = "a", .path = "x"}, {.label = "b", .path = "x"}, {.label = "c", .path = "x"}};
      insitu_slice slice[3][3];
      int64_t step[3][3];
      for (int i = 0; i < 3; i++) {
        v[i].offset = (int64_t)support_below(5) - 2;
        v[i].dtype = insitu__dtype_known[support_below(INSITU__DTYPE_KNOWN)].dtype;
        if (support_below(2) || !insitu__dtype_converts(a.dtype, v[i].dtype)) v[i].dtype = 0;
        v[i].slices = slice[i];
        v[i].steps = step[i];
        v[i].n_steps = support_below(4);
        for (uint64_t k = 0; k < v[i].n_steps; k++) step[i][k] = (int64_t)support_below(7) - 3;
        for (int d = 0; d < a.ndim; d++) {
          if (d == axis || support_below(2)) continue;
          int64_t lo = (int64_t)support_below(a.shape[d]);
          slice[i][v[i].n_slices++] = (insitu_slice){.axis = d,
              .start = lo,
              .stop = lo + 1 + (int64_t)support_below(a.shape[d] - (uint64_t)lo)};
        }
      }
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = v,
          .n_variables = 1 + support_below(3),
          .sample_axis = axis,
          .batch_size = 1 + support_below(9),
          .block_chunks = 1 + support_below(12),
          .prefetch_depth = 1 + support_below(4),
          .decode_threads = 1 + support_below(2),
          .seed = support_random(),
          .on_bad_chunk = damaged ? INSITU_FILL : 0,
          .log = quiet,
          .check = 1,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      run(&d, INSITU_SHUFFLED, modes[m].name);
      run(&d, INSITU_SEQUENTIAL, modes[m].name);
      support_remove(root);
    }
}

/* Raw rows that the kernel reads into the batch itself, each wanted twice. */
static void test_straight(void **state) {
  static const insitu_variable v[] = {{.label = "a", .path = "x"}, {.label = "b", .path = "x"},
      {.label = "c", .path = "x", .offset = 1}};
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {60, 600},
      .chunk = {4, 600},
      .dtype = INSITU_F32,
      .format = 2};
  const char *root = support_path("straight");
  (void)state;
  support_make(root, &a);
  EACH_MODE (m) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = v,
        .n_variables = 3,
        .batch_size = 5,
        .check = 1,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io};
    assert_int_equal(run(&d, INSITU_SHUFFLED, modes[m].name), 11);
    assert_int_equal(run(&d, INSITU_SEQUENTIAL, modes[m].name), 12);
  }
  support_remove(root);
}

/* ---- disagreement ---- */
static struct support_array plain = {.name = "g/x",
    .ndim = 2,
    .shape = {64, 40},
    .chunk = {4, 15},
    .dtype = INSITU_I16,
    .format = 2,
    .big = true,
    .zstd = true};
static const int64_t steps[] = {0, 1};
static const insitu_variable vars[] = {{.label = "a", .path = "g/x"},
    {.label = "b", .path = "g/x", .dtype = INSITU_F32},
    {.label = "c", .path = "g/x", .steps = steps, .n_steps = 2}};

/* Waits until batch `number` is ready, so that it can be tampered with before it is checked. */
static struct insitu__loader_slab *ready(insitu_loader *ld, insitu_iter *it, uint64_t number) {
  for (int turns = 0; turns < 100000; turns++) {
    pthread_mutex_lock(&it->lock);
    struct insitu__loader_slab *slab =
        it->shared.assigned > number ? it->ring[number % it->n_ring] : NULL;
    bool there = slab && slab->number == number && !atomic_load(&slab->pending);
    pthread_mutex_unlock(&it->lock);
    if (there) return slab;
    if (ld->config.inline_io) insitu__reactor_run(&ld->reactor, 1000000);
    else poll(NULL, 0, 1);
  }
  fail_msg("batch %d does not come", (int)number);
  return NULL;
}

static struct {
  insitu_loader *ld;
  insitu_iter *it;
  int32_t on_bad_chunk; /* of the next loader */
} with;
static void begin(const char *root, int m) {
  insitu_error err = {0};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = vars,
      .n_variables = 3,
      .batch_size = 8,
      .block_chunks = 4,
      .prefetch_depth = 4,
      .on_bad_chunk = with.on_bad_chunk,
      .log = quiet,
      .check = 1,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  if (insitu_loader_open(&d, &with.ld, &err) ||
      insitu_iter_open(with.ld, &(insitu_iter_desc){.api = INSITU_API}, &with.it, &err))
    fail_msg("%s", err.message);
}
static void good(uint64_t n) {
  insitu_error err = {0};
  insitu_batch *b;
  for (; n; n--) {
    insitu_status s = insitu_iter_next(with.it, 20000, &b, &err);
    if (s) fail_msg("%s %s", insitu_status_name(s), err.message);
    for (uint64_t i = 0; i < 3; i++) support_check_array(b, i, &vars[i], &plain, 0);
    insitu_batch_release(&b);
  }
}
static insitu_error bad(void) {
  insitu_error err = {0}, again = {0};
  insitu_batch *b = (insitu_batch *)(void *)&err;
  insitu_status s = insitu_iter_next(with.it, 20000, &b, &err);
  if (s != INSITU_E_CHECK) fail_msg("%s %s", insitu_status_name(s), err.message);
  assert_null(b);
  assert_int_equal(err.status, INSITU_E_CHECK);
  assert_string_equal(insitu_status_name(s), "INSITU_E_CHECK");
  assert_non_null(strstr(err.message, "rank 0, check"));
  assert_non_null(strstr(err.message, "library"));
  assert_int_equal(insitu_iter_next(with.it, 0, &b, &again), INSITU_E_CHECK); /* for good */
  assert_string_equal(again.message, err.message);
  return err;
}

/* One wrong element of a first batch's first row, in any variable and step, is found and named. */
static void test_one_element(void **state) {
  (void)state;
  const char *root = support_path("one");
  support_make(root, &plain);
  EACH_MODE (m) {
    begin(root, m);
    for (uint64_t round = 0; round < 12; round++) {
      char want[200];
      struct insitu__loader_slab *slab = ready(with.ld, with.it, round * with.it->batches);
      const struct insitu__geometry_variable *v = &with.ld->geometry.variables[round % 3];
      const struct insitu__geometry_output *out = &with.ld->geometry.outputs[v->output];
      uint64_t element = support_below(40);
      unsigned char *row = slab->memory + out->block;
      int64_t t = *(int64_t *)(void *)(slab->memory + with.ld->geometry.indices);
      for (uint64_t step = 0; step < v->n_steps; step++)
        row[step * v->step_bytes + element * ((uint64_t)v->dtype & 0xff) / 8] ^= 1;
      insitu_error err = bad();
      assert_non_null(strstr(err.message, "array g/x, chunk g/x/"));
      if (round % 3 < 2) {
        int value = (int)support_value(INSITU_I16, (uint64_t)t * 40 + element), is = value ^ 1;
        float f = (float)value, g;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        bits ^= 1;
        memcpy(&g, &bits, 4);
        snprintf(want, sizeof want,
            "variable %c, batch 0, row 0, sample %d, element [%d,%d]: the batch holds %.17g (0x",
            "ab"[round % 3], (int)t, (int)t, (int)element, round % 3 ? (double)g : is);
        if (!strstr(err.message, want)) fail_msg("'%s' does not hold '%s'", err.message, want);
        snprintf(want, sizeof want, "the archive %d (0x", value);
        if (!strstr(err.message, want)) fail_msg("'%s' does not hold '%s'", err.message, want);
      }
      assert_int_equal(insitu_iter_set_epoch(with.it, round, NULL), INSITU_OK); /* filled anew */
      good(2);
      assert_int_equal(insitu_iter_set_epoch(with.it, round + 1, NULL), INSITU_OK);
    }
    insitu_loader_close(&with.ld);
    insitu_iter_close(&with.it);
  }
  support_remove(root);
}

/* Each element of a patch that hangs over both ends of its axis is checked. */
static void test_over_edges(void **state) {
  (void)state;
  const char *root = support_path("edges");
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {4, 5},
      .chunk = {1, 2},
      .dtype = INSITU_I16,
      .format = 2,
      .fill = "7"};
  support_make(root, &a);
  const insitu_axis axes[] = {{.axis = 0}, {.axis = 1, .patch = 8, .edge = INSITU_FILL}};
  insitu_variable v = {.label = "x", .halo = 3};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .axes = axes,
      .n_axes = 2,
      .batch_size = 2,
      .log = quiet,
      .check = 1};
  with.ld = open_or_fail(&d);
  with.it = open_iter_or_fail(with.ld,
      &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL});
  for (uint64_t k = 0; k < 3 + 8 + 3; k++) {
    char want[80];
    struct insitu__loader_slab *slab = ready(with.ld, with.it, k * with.it->batches);
    slab->memory[with.ld->geometry.outputs[0].block + k * 2] ^= 1;
    insitu_error err = bad();
    snprintf(want, sizeof want, "row 0, sample 0, element [0,%d]", (int)k - 3);
    if (!strstr(err.message, want)) fail_msg("'%s' does not hold '%s'", err.message, want);
    assert_int_equal(insitu_iter_set_epoch(with.it, k + 1, NULL), INSITU_OK);
  }
  insitu_loader_close(&with.ld);
  insitu_iter_close(&with.it);
  support_remove(root);
}

/* A row of several steps is checked in one of them, by turns. */
static void test_one_step(void **state) {
  int found = 0;
  enum { ROUNDS = 12 };
  (void)state;
  const char *root = support_path("step");
  support_make(root, &plain);
  begin(root, 1);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    struct insitu__loader_slab *slab = ready(with.ld, with.it, round * with.it->batches);
    const struct insitu__geometry_variable *v = &with.ld->geometry.variables[2];
    const struct insitu__geometry_output *out = &with.ld->geometry.outputs[v->output];
    for (uint64_t row = 0; row < 8; row++)
      slab->memory[out->block + row * out->row_bytes + v->step_bytes] ^= 1;
    insitu_batch *b;
    insitu_status s = insitu_iter_next(with.it, 20000, &b, NULL);
    assert_true(s == INSITU_OK || s == INSITU_E_CHECK);
    found += s == INSITU_E_CHECK;
    insitu_batch_release(&b);
    assert_int_equal(insitu_iter_set_epoch(with.it, round + 1, NULL), INSITU_OK);
  }
  assert_true(found > 0 && found < ROUNDS);
  insitu_loader_close(&with.ld);
  insitu_iter_close(&with.it);
  support_remove(root);
}

/* Later batches: rows in each other's places, indices that lie, damage behind good batches; another
 * iterator is none the worse. */
static void test_later_batches(void **state) {
  (void)state;
  const char *root = support_path("later");
  support_make(root, &plain);
  EACH_MODE (m)
    for (int how = 0; how < 4; how++) {
      begin(root, m);
      good(2);
      uint64_t before = checked(with.ld);
      assert_int_equal(before, 2 + 3);
      struct insitu__loader_slab *slab = ready(with.ld, with.it, 3);
      int64_t *indices = (int64_t *)(void *)(slab->memory + with.ld->geometry.indices);
      for (uint64_t i = 0; i < 3 && how != 2; i++) {
        const struct insitu__geometry_output *out = &with.ld->geometry.outputs[i];
        unsigned char *at = slab->memory + out->block, first[1000];
        assert_true(out->row_bytes <= sizeof first);
        memcpy(first, at, out->row_bytes);
        /* 0 is the fill value: no excuse */
        if (how != 1) memset(at, how ? 0 : 0xA5, 8 * out->row_bytes);
        else memmove(at, at + out->row_bytes, 7 * out->row_bytes); /* each row shows the next */
        if (how == 1) memcpy(at + 7 * out->row_bytes, first, out->row_bytes);
      }
      if (how == 2)
        for (int r = 0; r < 8; r++) indices[r] ^= 1;
      good(1);
      insitu_error err = bad();
      assert_non_null(strstr(err.message, how == 2 ? "the order says" : "batch 3, row"));
      assert_int_equal(checked(with.ld), before + 1);
      insitu_iter *other = NULL;
      assert_int_equal(
          insitu_iter_open(with.ld, &(insitu_iter_desc){.api = INSITU_API}, &other, NULL),
          INSITU_OK);
      insitu_iter_close(&with.it);
      with.it = other;
      good(4);
      insitu_loader_close(&with.ld);
      insitu_iter_close(&with.it);
    }
  support_remove(root);
}

/* The archive changes, or what was stored cannot be decoded any more: said, and not taken for a
 * fill value. */
static void test_decoded_otherwise(void **state) {
  (void)state;
  char root[512], path[600], saved[600];
  snprintf(root, sizeof root, "%s", support_path("otherwise"));
  snprintf(path, sizeof path, "%s/g/x", root);
  snprintf(saved, sizeof saved, "%s/g/saved", root);
  support_make(root, &plain);
  EACH_MODE (m) {
    begin(root, m);
    ready(with.ld, with.it, 0);
    assert_int_equal(rename(path, saved), 0);
    insitu_error err = bad(); /* every chunk is absent now, and 0 */
    assert_non_null(strstr(err.message, "the archive 0 (0x0000"));
    insitu_iter_close(&with.it);
    assert_int_equal(rename(saved, path), 0);
    assert_int_equal(
        insitu_iter_open(with.ld, &(insitu_iter_desc){.api = INSITU_API}, &with.it, NULL),
        INSITU_OK);
    good(3);
    ready(with.ld, with.it, 3);
    assert_int_equal(rename(path, saved), 0);
    for (int t = 0; t < 16; t++)
      for (int k = 0; k < 3; k++) {
        char name[640];
        snprintf(name, sizeof name, "%s/%d.%d", path, t, k);
        support_write(name, "no frame of zstd", 16);
      }
    err = bad();
    assert_non_null(strstr(err.message, "as the fill value, for zstd"));
    insitu_loader_close(&with.ld);
    insitu_iter_close(&with.it);
    support_remove(path);
    assert_int_equal(rename(saved, path), 0);
  }
  support_remove(root);
}

/* What cannot be read just then proves nothing about a batch that was filled before, whatever
 * on_bad_chunk says. */
static void test_unreadable(void **state) {
  (void)state;
  char path[600], saved[600];
  const char *root = support_path("unreadable");
  snprintf(path, sizeof path, "%s/g/x", root);
  snprintf(saved, sizeof saved, "%s/g/saved", root);
  support_make(root, &plain);
  with.on_bad_chunk = INSITU_FILL;
  EACH_MODE (m) {
    begin(root, m);
    ready(with.ld, with.it, 0);
    assert_int_equal(rename(path, saved), 0);
    assert_int_equal(symlink("x", path), 0); /* to itself: ELOOP */
    good(1);
    insitu_loader_close(&with.ld);
    insitu_iter_close(&with.it);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(saved, path), 0);
  }
  with.on_bad_chunk = 0;
  support_remove(root);
}

/* ---- how it is asked for ---- */
static void test_asking(void **state) {
  (void)state;
  const char *root = support_path("asking"), *given = getenv("INSITU_CHECK");
  char *before = given ? strdup(given) : NULL;
  support_make(root, &plain);
  static const struct {
    const char *environment;
    int32_t desc, check; /* check -1: refused */
  } cases[] = {{NULL, 0, 0}, {"", 0, 0}, {"0", 0, 0}, {"1", 0, 1}, {"0", 1, 1}, {"yes", 1, 1},
      {"yes", 0, -1}, {NULL, 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_error err = {0};
    insitu_loader *ld;
    insitu_iter *it = NULL;
    insitu_batch *b;
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = vars,
        .n_variables = 3,
        .batch_size = 8,
        .check = cases[i].desc};
    if (cases[i].environment) setenv("INSITU_CHECK", cases[i].environment, 1);
    else unsetenv("INSITU_CHECK");
    insitu_status s = insitu_loader_open(&d, &ld, &err);
    assert_int_equal(s, cases[i].check < 0 ? INSITU_E_ARG : INSITU_OK);
    if (s) assert_non_null(strstr(err.message, "INSITU_CHECK=yes"));
    if (s) continue;
    assert_int_equal(insitu_loader_config(ld)->check, cases[i].check);
    assert_int_equal(
        insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_OK);
    assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_OK);
    assert_int_equal(checked(ld), 4 * (uint64_t)cases[i].check);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  if (before) setenv("INSITU_CHECK", before, 1);
  else unsetenv("INSITU_CHECK");
  free(before);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stores),
      cmocka_unit_test(test_all_bits),
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_straight),
      cmocka_unit_test(test_one_element),
      cmocka_unit_test(test_over_edges),
      cmocka_unit_test(test_one_step),
      cmocka_unit_test(test_later_batches),
      cmocka_unit_test(test_decoded_otherwise),
      cmocka_unit_test(test_unreadable),
      cmocka_unit_test(test_asking),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
