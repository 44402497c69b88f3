/* Archives of a single image, of which all axes have a patch: grids and drawn patches, their
 * values, reads, ranks, states and lists. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"

enum { AXES = 3, LONGEST = 12, MOST = 4096 };
static const char *const names[AXES + 1] = {"z", "y", "x", "channel"};

/* An image, drawn at random; its array has the axes in the order of `order`. */
struct image {
  char root[600];
  struct support_array array[2];
  int order[2][AXES + 1], n_axes;
  insitu_axis axes[AXES];
  insitu_variable variable[2];
  insitu_loader_desc desc;
  uint64_t size[AXES + 1], halo;
  int64_t list[MOST * AXES];
  int n_valid; /* places where a patch may begin; of a grid, and in the list */
};

static void draw_array(struct image *s, int which, int format) {
  struct support_array *a = &s->array[which];
  static char dims[2][64];
  *a = (struct support_array){.name = which ? "mask" : "image",
      .dtype = which ? INSITU_U8 : INSITU_I32,
      .format = format,
      .zstd = support_below(2),
      .fortran = format == 2 && support_below(2),
      .absent = support_below(3) ? 0 : 4,
      .dims = dims[which]};
  int used = 0;
  for (int k = 0; k <= s->n_axes; k++) {
    if (k == s->n_axes && which) continue;
    s->order[which][used++] = k == s->n_axes ? AXES : k;
  }
  for (int i = used; i-- > 1 && support_below(3);) {
    int j = (int)support_below((uint64_t)i + 1), other = s->order[which][i];
    s->order[which][i] = s->order[which][j];
    s->order[which][j] = other;
  }
  strcpy(dims[which], "[");
  for (; a->ndim < used; a->ndim++) {
    int k = s->order[which][a->ndim];
    a->shape[a->ndim] = s->size[k];
    a->chunk[a->ndim] = 1 + support_below(s->size[k]);
    if (format == 3) a->shard[a->ndim] = 1 + support_below(2);
    sprintf(dims[which] + strlen(dims[which]), "%s\"%s\"", a->ndim ? "," : "", names[k]);
  }
  strcat(dims[which], "]");
  if (support_below(2)) memset(a->shard, 0, sizeof a->shard);
  support_make(s->root, a);
}

/* Whether a patch may begin at o along an axis. */
static bool begins(const struct image *s, int k, int64_t o) {
  const insitu_axis *axis = &s->axes[k];
  int64_t n = (int64_t)axis->patch, halo = (int64_t)s->halo, size = (int64_t)s->size[k];
  int64_t stop = axis->stop ? axis->stop : size, stride = axis->stride ? (int64_t)axis->stride : n;
  if (o < axis->start || o + n > stop || o < halo || o + n + halo > size) return false;
  return s->desc.patches || (o - axis->start) % stride == 0;
}

static bool valid(const struct image *s, const int64_t *at) {
  bool ok = true;
  for (int k = 0; k < s->n_axes; k++) ok = ok && begins(s, k, at[k]);
  return ok;
}

static uint64_t number_of(const struct image *s, const int64_t *at) {
  uint64_t number = 0;
  for (int k = 0; k < s->n_axes; k++) number = number * s->size[k] + (uint64_t)at[k];
  return number;
}

static void draw_image(struct image *s) {
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", support_path("image"));
  s->n_axes = 1 + (int)support_below(AXES);
  s->halo = support_below(3) ? 0 : 1 + support_below(2);
  int format = 2 + (int)support_below(2), m = any_mode();
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = 2,
      .axes = s->axes,
      .n_axes = (uint64_t)s->n_axes,
      .patches = support_below(2) ? 1 + support_below(30) : 0,
      .batch_size = 1 + support_below(4),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = support_below(3),
      .seed = support_random(),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      .coordinates = (int32_t)support_below(2),
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
  s->size[AXES] = 2;
  for (int k = 0; k < s->n_axes; k++) {
    insitu_axis *axis = &s->axes[k];
    s->size[k] = 2 * s->halo + 1 + support_below(LONGEST);
    axis->dim = names[k];
    axis->patch = 1 + support_below(s->size[k] - 2 * s->halo);
    if (!s->desc.patches && support_below(2)) axis->stride = 1 + support_below(5);
    if (!support_below(3) && !s->halo)
      axis->start = (int64_t)support_below(s->size[k] - axis->patch + 1);
  }
  for (int which = 0; which < 2; which++) draw_array(s, which, format);
  s->variable[0] = (insitu_variable){.label = "image", .halo = s->halo};
  s->variable[1] = (insitu_variable){.label = "mask"};

  uint64_t all = 1;
  bool listed = !s->desc.patches && support_below(2);
  for (int k = 0; k < s->n_axes; k++) all *= s->size[k];
  for (uint64_t i = 0; i < all; i++) {
    int64_t at[AXES] = {0};
    uint64_t rest = i;
    for (int k = s->n_axes; k-- > 0; rest /= s->size[k]) at[k] = (int64_t)(rest % s->size[k]);
    if (!valid(s, at) || (listed && support_below(2))) continue;
    memcpy(&s->list[s->n_valid++ * s->n_axes], at, (size_t)s->n_axes * sizeof *at);
  }
  if (!listed || !s->n_valid) return;
  s->desc.samples = s->list;
  s->desc.n_samples = (uint64_t)s->n_valid;
}

static void check_row(const struct image *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_array *a = &b->arrays[which];
  const struct support_array *stored = &s->array[which];
  const int64_t *index = b->axis_indices + row * b->n_axes;
  uint64_t halo = s->variable[which].halo, each = 1, at[AXES + 1], extent[AXES + 1];
  for (int d = 0; d < stored->ndim; d++) {
    int k = s->order[which][d];
    extent[d] = k < AXES ? s->axes[k].patch + 2 * halo : stored->shape[d];
    assert_int_equal(a->shape[1 + d], extent[d]);
    each *= extent[d];
  }
  assert_int_equal(a->ndim, stored->ndim + 1);
  for (uint64_t i = 0; i < each; i++) {
    uint64_t rest = i;
    for (int d = stored->ndim; d-- > 0; rest /= extent[d]) {
      int k = s->order[which][d];
      at[d] = rest % extent[d] + (k < AXES ? (uint64_t)index[k] - halo : 0);
    }
    double got = support_get(
        (const char *)a->data + (row * each + i) * (uint64_t)(a->dtype & 0xff) / 8, a->dtype);
    if (got != support_as(a->dtype, support_expect(stored, at)))
      fail_msg("%s, row %d, element %d: %g", a->name, (int)row, (int)i, got);
  }
}

/* An epoch: a grid has each of its patches once, drawn ones are as many as asked for. */
static void check_epoch(
    const struct image *s, insitu_iter *it, const insitu_plan *plan, uint64_t epoch, int *drawn) {
  static int seen[MOST];
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status;
  uint64_t rows = 0;
  memset(seen, 0, sizeof seen);
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->n_axes, s->n_axes);
    assert_null(b->time_us);
    assert_int_equal(b->coordinates != NULL, s->desc.coordinates);
    for (uint64_t row = 0; row < b->rows; row++, rows++) {
      const int64_t *index = b->axis_indices + row * b->n_axes;
      int64_t located[AXES];
      assert_int_equal(insitu_iter_locate(it, epoch, b->index, row, located, &err), INSITU_OK);
      assert_memory_equal(located, index, b->n_axes * sizeof *index);
      assert_int_equal(b->sample_indices[row], index[0]);
      assert_true(valid(s, index));
      uint64_t number = number_of(s, index);
      drawn[number]++;
      if (!s->desc.patches) assert_int_equal(seen[number]++, 0);
      for (int which = 0; which < 2; which++) check_row(s, b, which, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(rows, plan->rows);
}

static void images(void **state) {
  (void)state;
  static struct image s;
  static int drawn[MOST];
  int checked = 0;
  for (int round = 0; round < support_rounds(200); round++) {
    draw_image(&s);
    insitu_error err = {0};
    insitu_loader *ld;
    insitu_status status = insitu_loader_open(&s.desc, &ld, &err);
    if (!s.n_valid && !s.desc.n_samples) { /* maybe a list of none, which lists all */
      if (!status) insitu_loader_close(&ld);
      support_remove(s.root);
      continue;
    }
    if (status) fail_msg("%s", err.message);
    uint64_t all = s.desc.patches ? s.desc.patches : (uint64_t)s.n_valid;
    for (int k = 0; k < 4; k++) {
      insitu_iter_desc d = {
          .api = INSITU_API, .split = k & 1 ? INSITU_TRAIN : INSITU_ALL, .order = 1 + k / 2};
      insitu_iter *it;
      insitu_plan plan;
      insitu_stats before, after;
      memset(drawn, 0, sizeof drawn);
      if (all < s.desc.batch_size && d.order == INSITU_SHUFFLED) continue;
      if (insitu_loader_plan(ld, &d, &plan, &err)) fail_msg("%s", err.message);
      assert_int_equal(plan.samples, all);
      assert_int_equal(plan.estimated, 0);
      uint64_t left = plan.space;
      for (int r = 0; r < INSITU_DROPS; r++) left -= plan.dropped[r];
      assert_int_equal(left, d.order == INSITU_SHUFFLED ? plan.rows : all);
      assert_int_equal(plan.dropped[INSITU_DROP_LIST], plan.space - all);
      assert_int_equal(insitu_loader_stats(ld, &before, NULL), INSITU_OK);
      it = open_iter_or_fail(ld, &d);
      check_epoch(&s, it, &plan, 0, drawn);
      assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
      assert_int_equal(after.reads - before.reads, plan.reads);
      check_epoch(&s, it, &plan, 1, drawn);
      insitu_iter_close(&it);
      checked++;
    }
    for (int part = INSITU_VAL; part <= INSITU_TEST; part++) {
      insitu_iter *it;
      insitu_iter_desc d = {.api = INSITU_API, .split = part};
      assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_E_SPLIT);
      assert_non_null(strstr(err.message, "give each split a loader of its own"));
    }
    insitu_date date;
    int64_t first = 0;
    assert_int_equal(insitu_sample_dates(ld, &first, 1, &date, &err), INSITU_E_ARG);
    insitu_loader_close(&ld);
    support_remove(s.root);
  }
  assert_true(checked > support_rounds(200));
}

static uint64_t collect(insitu_iter *it, int64_t *to, insitu_state *after, uint64_t batches) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status = INSITU_OK;
  uint64_t n = 0;
  for (; batches > 0 && !(status = insitu_iter_next(it, 20000, &b, &err)); batches--) {
    memcpy(to + n, b->axis_indices, b->rows * b->n_axes * sizeof *to);
    n += b->rows * b->n_axes;
    *after = b->after;
    insitu_batch_release(&b);
  }
  if (status && status != INSITU_END) fail_msg("%s", err.message);
  return n;
}

/* Two ranks go on where one process stopped, with its units. */
static void ranks(void **state) {
  (void)state;
  static struct image s;
  static int64_t whole[MOST * AXES], part[MOST * AXES];
  int checked = 0;
  for (int round = 0; round < support_rounds(60); round++) {
    draw_image(&s);
    insitu_error err = {0};
    insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_TRAIN};
    insitu_state after, last;
    insitu_loader *ld = NULL;
    insitu_iter *it = NULL;
    s.desc.batch_size = 4;
    s.desc.lanes = 2;
    if (insitu_loader_open(&s.desc, &ld, &err) || insitu_iter_open(ld, &d, &it, &err)) {
      insitu_loader_close(&ld);
      support_remove(s.root);
      continue;
    }
    uint64_t columns = (uint64_t)s.n_axes, done = collect(it, whole, &after, 1);
    uint64_t all = done + collect(it, whole + done, &last, UINT64_MAX);
    for (int r = 0; r < 2; r++) {
      insitu_loader_desc half = s.desc;
      half.world = 2;
      half.rank = r;
      half.batch_size = 2;
      half.unit_chunks = half.block_chunks = 0;
      insitu_loader *other = open_or_fail(&half);
      insitu_iter *rest = open_iter_or_fail(other, &d);
      if (insitu_iter_restore(rest, &after, &err)) fail_msg("%s", err.message);
      uint64_t n = collect(rest, part, &last, UINT64_MAX);
      assert_int_equal(2 * n, all - done);
      for (uint64_t row = 0; row < n / columns; row++)
        assert_memory_equal(whole + done + (2 * row + (uint64_t)r) * columns, part + row * columns,
            columns * sizeof *part);
      insitu_iter_close(&rest);
      insitu_loader_close(&other);
    }
    checked++;
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(s.root);
  }
  assert_true(checked > support_rounds(60) / 4);
}

static void refused(void **state) {
  (void)state;
  char root[600];
  snprintf(root, sizeof root, "%s", support_path("refused"));
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {8, 8},
      .chunk = {4, 4},
      .dtype = INSITU_U8,
      .format = 3,
      .dims = "[\"y\",\"x\"]"};
  support_make(root, &a);
  const insitu_axis axes[] = {{.dim = "y", .patch = 2}, {.dim = "x", .patch = 2}};
  static const int64_t list[] = {0, 0}, step = 1;
  insitu_variable v = {.label = "a"};
  for (int i = 0; i < 8; i++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .axes = axes,
        .n_axes = 2};
    insitu_loader *ld;
    insitu_error err = {0};
    v = (insitu_variable){.label = "a"};
    if (i == 0) d.split[1].fraction = 1;
    if (i == 1) d.split[0].stop = 4;
    if (i == 2) d.split_axis = 1;
    if (i == 3) d.split_gap = 1;
    if (i == 4) d.manifest = "none.json";
    if (i == 5) v.offset = 1;
    if (i == 6) v.steps = &step, v.n_steps = 1;
    if (i == 7) d.patches = 3, d.samples = list, d.n_samples = 1;
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
    const char *says = i < 5 ? "start and stop of its axes" : i < 7 ? "leave them out" : "a grid";
    if (!strstr(err.message, says)) fail_msg("%d: %s", i, err.message);
  }
  support_remove(root);
}

/* One list serves the loaders of all parts of an image; what opened opens again by its own
 * configuration; arrays of other coordinates belong together by index where one says so. */
static void parts(void **state) {
  (void)state;
  char root[600];
  snprintf(root, sizeof root, "%s", support_path("parts"));
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {8, 8},
      .chunk = {4, 4},
      .dtype = INSITU_U8,
      .format = 3,
      .dims = "[\"y\",\"x\"]"};
  support_make(root, &a);
  static const int64_t list[] = {0, 0, 6, 6, 2, 4, 4, 2, 2, 6, 0, 2};
  uint64_t found = 0;
  for (int part = 0; part < 2; part++) {
    const insitu_axis axes[] = {{.dim = "y", .patch = 2},
        {.dim = "x", .patch = 2, .start = 4 * part, .stop = 4 + 4 * part}};
    insitu_variable v = {.label = "a", .map = INSITU_BY_INDEX};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .axes = axes,
        .n_axes = 2,
        .samples = list,
        .n_samples = 6,
        .batch_size = 1};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(
        ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = 2});
    insitu_batch *b;
    insitu_error err = {0};
    insitu_status status;
    while (!(status = insitu_iter_next(it, 20000, &b, &err))) {
      uint64_t i = 0;
      while (i < 6 && memcmp(list + 2 * i, b->axis_indices, 2 * sizeof *list) != 0) i++;
      assert_true(i < 6 && list[2 * i + 1] / 4 == part);
      found |= UINT64_C(1) << i;
      insitu_batch_release(&b);
    }
    assert_int_equal(status, INSITU_END);
    insitu_iter_close(&it);

    insitu_loader_desc again = *insitu_loader_config(ld);
    assert_true(!again.samples && again.n_samples == 6);
    again.n_samples = 0;
    insitu_loader *other;
    if (insitu_loader_open(&again, &other, &err)) fail_msg("%s", err.message);
    insitu_loader_close(&other);
    insitu_loader_close(&ld);

    static const int64_t wrong[][2] = {{1, 0}, {0, 7}, {8, 0}, {0, -2}, {0, 3}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      d.samples = wrong[i];
      d.n_samples = 1;
      assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
      assert_non_null(strstr(err.message, "no patch of the grid begins at"));
    }
  }
  assert_int_equal(found, 63);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(images), cmocka_unit_test(ranks),
      cmocka_unit_test(refused), cmocka_unit_test(parts)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
