/* Patches and halos that hang over the edges of their axes: each element against the array's own
 * formula, in all types and layouts; where drawn ones lie; ranks, states, and what is refused.
 * test_patches.c has the model of origins and blocks. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"
#include <math.h>

enum { TIME, Z, Y, X, DIMS };
static const char *const names[DIMS] = {"time", "z", "y", "x"};

/* An array, and two variables that show patches of it. Drawn at random. */
struct hung {
  char root[600], select[40];
  struct support_array array;
  int dim[DIMS]; /* of each stored axis */
  uint64_t size[DIMS];
  double fill;
  bool packed; /* values are packed: half of them, and 10 */
  insitu_axis axes[DIMS], *axis[DIMS];
  insitu_variable variable[2];
  int64_t steps[2];
  insitu_loader_desc desc;
  bool turned[DIMS]; /* the second variable shows this axis backwards */
  uint64_t outside;  /* elements that were */
};

static void draw_array(struct hung *s) {
  static const int32_t types[] = {
      INSITU_U8, INSITU_I16, INSITU_I32, INSITU_I64, INSITU_F16, INSITU_F32, INSITU_F64};
  static char dims[100];
  int order[DIMS] = {TIME, Z, Y, X};
  struct support_array *a = &s->array;
  s->packed = support_below(3) == 0;
  s->fill = s->packed ? -7 : 5;
  *a = (struct support_array){.name = "a",
      .ndim = DIMS,
      .dtype = s->packed ? INSITU_I16 : types[support_below(7)],
      .fill = s->packed ? "-7" : "5",
      .dims = dims};
  if (s->packed) a->attributes = "\"scale_factor\":0.5,\"add_offset\":10,\"_FillValue\":-7";
  support_shuffle(order, DIMS);
  for (int d = 0; d < DIMS; d++) {
    s->dim[d] = order[d];
    a->shape[d] = s->size[order[d]] = 1 + support_below(order[d] == TIME ? 4 : 7);
  }
  snprintf(dims, sizeof dims, "[\"%s\",\"%s\",\"%s\",\"%s\"]", names[order[0]], names[order[1]],
      names[order[2]], names[order[3]]);
  support_layout(a, 2 + (int)support_below(2));
  support_make(s->root, a);
}

static void draw_axes(struct hung *s, bool random) {
  int list[3] = {Z, Y, X}, n_patched = 1 + (int)support_below(3);
  uint64_t n = 0;
  support_shuffle(list, 3);
  for (int k = 0; k <= n_patched; k++) {
    insitu_axis *axis = &s->axes[n++];
    int dim = k ? list[k - 1] : TIME;
    s->axis[dim] = axis;
    axis->dim = names[dim];
    if (dim == TIME) continue;
    bool over = k == 1 || support_below(2);
    axis->edge = over ? INSITU_FILL : 0;
    axis->patch = 1 + support_below(over ? 2 * s->size[dim] + 1 : s->size[dim]);
    if (!over && s->variable[0].halo > (s->size[dim] - axis->patch) / 2)
      s->variable[0].halo = (s->size[dim] - axis->patch) / 2;
    if (!random && support_below(2)) axis->stride = 1 + support_below(4);
    if (!over || support_below(2)) continue;
    axis->start = (int64_t)support_below(s->size[dim]);
    axis->stop = axis->start + 1 + (int64_t)support_below(s->size[dim] - (uint64_t)axis->start);
  }
  s->desc.n_axes = n;
}

static void draw_hung(struct hung *s) {
  static const int32_t floats[] = {INSITU_F16, INSITU_BF16, INSITU_F32, INSITU_F64};
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", support_path("edges"));
  draw_array(s);
  int m = any_mode();
  bool random = support_below(2);
  s->steps[1] = 1;
  s->variable[0] = (insitu_variable){.label = "plain", .path = "a", .halo = support_below(4)};
  draw_axes(s, random);
  s->variable[1] = (insitu_variable){.label = "other", .path = "a"};
  if (support_below(3)) s->variable[1].dtype = floats[support_below(4)];
  if (s->packed) s->variable[1].decode = INSITU_CF;
  if (s->size[TIME] > 1 && support_below(2)) {
    s->variable[1].steps = s->steps;
    s->variable[1].n_steps = 2;
  }
  for (int dim = Z; dim <= X && !s->select[0]; dim++) { /* an axis without a patch, backwards */
    if (s->axis[dim] || support_below(2)) continue;
    snprintf(s->select, sizeof s->select, "%s=[::-1]", names[dim]);
    s->variable[1].select = s->select;
    s->turned[dim] = true;
  }
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = 2,
      .axes = s->axes,
      .n_axes = s->desc.n_axes,
      .patches = random ? 1 + support_below(7) : 0,
      .batch_size = 1 + support_below(3),
      .seed = support_random(),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      /* What hangs over an edge is no absent chunk, and no error where it is NaN. */
      .on_absent_chunk = s->array.absent ? INSITU_FILL : (int32_t)support_below(2),
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
}

/* What a variable shows of an element; outside of the array it is the fill value. */
static double expect(struct hung *s, const insitu_variable *v, const int64_t *at) {
  const struct support_array *a = &s->array;
  uint64_t number = 0, place[DIMS];
  bool outside = false;
  for (int d = 0; d < DIMS; d++) {
    place[d] = (uint64_t)at[d];
    outside = outside || at[d] < 0 || place[d] >= a->shape[d];
    number = number * support_ceil_div(a->shape[d], a->chunk[d]) + place[d] / a->chunk[d];
  }
  s->outside += outside;
  bool fill = outside || support_is_absent(a, number);
  if (fill && v->decode) return NAN;
  double x = fill ? s->fill : support_expect(a, place);
  return v->decode ? x * 0.5 + 10 : x;
}

static void check_row(struct hung *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_variable *v = &s->variable[which];
  const insitu_array *out = &b->arrays[which];
  uint64_t n_steps = v->n_steps ? v->n_steps : 1, each = 1, extent[DIMS];
  int64_t lowest[DIMS], at[DIMS];
  for (int d = 0; d < DIMS; d++) {
    const insitu_axis *axis = s->axis[s->dim[d]];
    int64_t index = axis ? b->axis_indices[row * b->n_axes + (uint64_t)(axis - s->axes)] : 0;
    bool patch = axis && axis->patch;
    lowest[d] = patch ? index - (int64_t)v->halo : index;
    extent[d] = patch ? axis->patch + 2 * v->halo : axis ? 1 : s->array.shape[d];
    each *= extent[d];
  }
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = DIMS; d-- > 0; rest /= extent[d]) {
      int64_t i = (int64_t)(rest % extent[d]);
      if (which && s->turned[s->dim[d]]) i = (int64_t)extent[d] - 1 - i;
      at[d] = lowest[d] + i + (s->dim[d] == TIME ? (int64_t)(k / each) : 0);
    }
    double want = expect(s, v, at);
    const char *data = (const char *)out->data;
    uint64_t number = row * n_steps * each + k;
    if (!isnan(want)) support_same(data, out->dtype, number, want, out->name);
    else if (!isnan(support_get(data + number * (uint64_t)(out->dtype & 0xff) / 8, out->dtype)))
      fail_msg("%s: element %d is not NaN", out->name, (int)number);
  }
}

static void elements(void **state) {
  (void)state;
  static struct hung s;
  uint64_t outside = 0, packed = 0, checked = 0;
  for (int round = 0; round < support_rounds(300); round++) {
    insitu_error err = {0};
    insitu_stats stats;
    draw_hung(&s);
    insitu_loader *ld;
    insitu_status opened = insitu_loader_open(&s.desc, &ld, &err);
    if (opened == INSITU_E_SPLIT) { /* inside an axis, strides and halos may leave no patch */
      support_remove(s.root);
      continue;
    }
    if (opened) fail_msg("%s", err.message);
    for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
      const insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_ALL, .order = order};
      insitu_plan plan;
      insitu_batch *b;
      insitu_iter *it;
      uint64_t rows = 0;
      insitu_status status = insitu_iter_open(ld, &d, &it, &err);
      if (status == INSITU_E_SPLIT) continue; /* less than a batch */
      if (status) fail_msg("%s", err.message);
      assert_int_equal(insitu_loader_plan(ld, &d, &plan, &err), INSITU_OK);
      while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
        rows += b->rows;
        for (uint64_t row = 0; row < b->rows; row++)
          for (int which = 0; which < 2; which++) check_row(&s, b, which, row);
        insitu_batch_release(&b);
      }
      if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
      assert_int_equal(rows, plan.rows);
      insitu_iter_close(&it);
    }
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    checked += stats.checked_rows;
    outside += s.outside;
    packed += s.packed ? s.outside : 0;
    insitu_loader_close(&ld);
    support_remove(s.root);
  }
  assert_true(outside > 10000 && packed > 1000 && checked > 100);
}

/* A small image is padded to one size, and a halo costs no patches. By hand. */
static void padded(void **state) {
  (void)state;
  const char *root = support_path("padded");
  struct support_array a = {.name = "a",
      .ndim = 3,
      .shape = {1, 2, 3},
      .chunk = {1, 2, 2},
      .dtype = INSITU_I16,
      .format = 2,
      .fill = "-1",
      .dims = "[\"time\",\"y\",\"x\"]"};
  support_make(root, &a); /* 0 1 2, 3 4 5 */
  insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 3, .edge = INSITU_FILL},
      {.dim = "x", .patch = 2, .edge = INSITU_FILL}};
  insitu_variable v[] = {{.label = "a"}, {.label = "wide", .path = "a", .halo = 1}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 2,
      .axes = axes,
      .n_axes = 3,
      .batch_size = 2,
      .on_absent_chunk = INSITU_RAISE};
  const insitu_iter_desc pass = {
      .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL};
  static const int16_t grid[2][3 * 2] = {{0, 1, 3, 4, -1, -1}, {2, -1, 5, -1, -1, -1}};
  static const int16_t wide[2][5 * 4] = {
      {-1, -1, -1, -1, -1, 0, 1, 2, -1, 3, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1},
      {-1, -1, -1, -1, 1, 2, -1, -1, 4, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &pass);
  insitu_batch *b = next_batch_or_fail(it);
  assert_int_equal(b->rows, 2);
  for (int64_t row = 0; row < 2; row++) {
    assert_int_equal(b->axis_indices[row * 3 + 1], 0);
    assert_int_equal(b->axis_indices[row * 3 + 2], 2 * row);
  }
  assert_memory_equal(b->arrays[0].data, grid, sizeof grid);
  assert_memory_equal(b->arrays[1].data, wide, sizeof wide);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  /* Drawn: element 3 / 2 of a patch is in row 1 of the image, so that the patch begins in row 0. */
  d.patches = 40;
  d.batch_size = 40;
  axes[1].start = 1;
  ld = open_or_fail(&d);
  it = open_iter_or_fail(ld, &pass);
  b = next_batch_or_fail(it);
  unsigned seen = 0;
  for (int row = 0; row < 40; row++) {
    int64_t x = b->axis_indices[row * 3 + 2];
    const int16_t *shown = (const int16_t *)b->arrays[0].data + row * 6;
    assert_int_equal(b->axis_indices[row * 3 + 1], 0);
    assert_true(x >= -1 && x < 2);
    for (int k = 0; k < 6; k++) {
      int64_t column = x + k % 2;
      assert_int_equal(shown[k], column < 0 || column > 2 || k > 3 ? -1 : k / 2 * 3 + column);
    }
    seen |= 1u << (x + 1);
  }
  assert_int_equal(seen, 7);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Elements of several bytes each have the whole fill value. */
static void strings(void **state) {
  (void)state;
  archive_begin();
  archive_text(".zgroup", "{\"zarr_format\":2}");
  archive_text("s/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"time\",\"x\"]}");
  archive_text("s/.zarray",
      "{\"zarr_format\":2,\"shape\":[1,5],\"chunks\":[1,3],\"dtype\":\"|S3\",\"order\":\"C\","
      "\"fill_value\":\"eHl6\",\"filters\":null,\"compressor\":null}"); /* xyz */
  archive_add("s/0.0", "abcdefghi", 9);
  archive_add("s/0.1", "jklmno???", 9);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "x", .patch = 4, .edge = INSITU_FILL}};
  insitu_variable v = {.label = "s", .halo = 1};
  insitu_loader *ld = archive_open((insitu_loader_desc){.variables = &v,
                                       .n_variables = 1,
                                       .axes = axes,
                                       .n_axes = 2,
                                       .batch_size = 2,
                                       .check = 1},
      any_mode());
  insitu_iter *it = open_iter_or_fail(
      ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL});
  insitu_batch *b = next_batch_or_fail(it);
  assert_int_equal(b->rows, 2);
  assert_memory_equal(b->arrays[0].data, "xyzabcdefghijklmnojklmnoxyzxyzxyzxyz", 36);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static struct support_array planes(void) {
  return (struct support_array){.name = "a",
      .ndim = 3,
      .shape = {6, 20, 24},
      .chunk = {2, 8, 7},
      .dtype = INSITU_I32,
      .format = 3,
      .fill = "-1",
      .dims = "[\"time\",\"y\",\"x\"]"};
}
static insitu_loader_desc patches_of(const char *root, const insitu_variable *v,
    const insitu_axis *axes, uint64_t n_axes, uint64_t patches) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 1,
      .axes = axes,
      .n_axes = n_axes,
      .patches = patches,
      .batch_size = 4,
      .seed = 3};
}
static const insitu_iter_desc shuffled = {
    .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};

/* Over epochs the middle of a drawn patch is any element of the range with the same chance:
 * chi-square. One axis has a range, the other is shorter than the patch. */
static void even(void **state) {
  (void)state;
  enum { HIGH = 7, WIDE = 13, EPOCHS = 4000, PATCHES = 3, FIRST = 2 };
  const char *root = support_path("even");
  struct support_array a = planes();
  memcpy(a.shape, (uint64_t[]){3, 11, WIDE}, sizeof(uint64_t[3]));
  memcpy(a.chunk, (uint64_t[]){2, 4, 5}, sizeof(uint64_t[3]));
  support_make(root, &a);
  const insitu_axis axes[] = {{.dim = "time"},
      {.dim = "y", .patch = 5, .edge = INSITU_FILL, .start = FIRST, .stop = FIRST + HIGH},
      {.dim = "x", .patch = 20, .edge = INSITU_FILL}};
  insitu_variable v = {.label = "a"};
  insitu_loader_desc d = patches_of(root, &v, axes, 3, PATCHES);
  d.batch_size = 3 * PATCHES;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &shuffled);
  static double seen[HIGH][WIDE];
  insitu_error err = {0};
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
    for (uint64_t row = 0; row < 3 * PATCHES; row++) {
      int64_t index[3];
      assert_int_equal(insitu_iter_locate(it, epoch, 0, row, index, &err), INSITU_OK);
      int64_t y = index[1] + 5 / 2 - FIRST, x = index[2] + 20 / 2;
      assert_true(y >= 0 && y < HIGH && x >= 0 && x < WIDE);
      seen[y][x]++;
    }
  double mean = EPOCHS * 3.0 * PATCHES / (HIGH * WIDE), sum = 0;
  for (int y = 0; y < HIGH; y++)
    for (int x = 0; x < WIDE; x++) sum += (seen[y][x] - mean) * (seen[y][x] - mean) / mean;
  /* 90 degrees of freedom: above 145 in 1 case of 10,000 */
  if (sum > 145) fail_msg("chi-square is %g", sum);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* What is left of an epoch: of each row the indexes, then all elements. Returns bytes. */
static size_t rest_of(insitu_iter *it, unsigned char *to, size_t cap) {
  size_t n = 0;
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++) {
      size_t places = b->n_axes * sizeof(int64_t), bytes = b->arrays[0].row_bytes;
      assert_true(n + places + bytes <= cap);
      memcpy(to + n, b->axis_indices + row * b->n_axes, places);
      memcpy(to + n + places, (const char *)b->arrays[0].data + row * bytes, bytes);
      n += places + bytes;
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  return n;
}

/* Ranks share an epoch, and a pass resumes in the middle of it. A state knows where patches lie: it
 * goes on with those over the edges only where none hangs over. */
static void passes(void **state) {
  (void)state;
  static unsigned char whole[400000], other[400000];
  const char *root = support_path("passes");
  struct support_array a = planes();
  support_make(root, &a);
  insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 6, .edge = INSITU_FILL},
      {.dim = "x", .patch = 6, .edge = INSITU_FILL}};
  insitu_variable v = {.label = "a", .halo = 1};
  for (int grid = 0; grid < 2; grid++) {
    insitu_loader_desc d = patches_of(root, &v, axes, 3, grid ? 0 : 9);
    insitu_error err = {0};
    d.lanes = 2;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &shuffled);
    size_t n = rest_of(it, whole, sizeof whole), each = 3 * sizeof(int64_t) + 8 * 8 * 4;
    assert_true(n / each >= 48);
    static char text[20000];
    insitu_loader_describe(ld, text, sizeof text);
    assert_non_null(strstr(text, "\"patch\": 6, \"edge\": \"fill\"}"));

    assert_int_equal(insitu_iter_set_epoch(it, 0, &err), INSITU_OK);
    insitu_state after;
    for (int i = 0; i < 3; i++) {
      insitu_batch *b = next_batch_or_fail(it);
      after = b->after;
      insitu_batch_release(&b);
    }
    assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_OK);
    assert_int_equal(rest_of(it, other, sizeof other), n - 12 * each);
    assert_memory_equal(whole + 12 * each, other, n - 12 * each);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);

    d.batch_size = 2; /* of two ranks: each has one of the lanes */
    d.world = 2;
    for (d.rank = 0; d.rank < 2; d.rank++) {
      ld = open_or_fail(&d);
      it = open_iter_or_fail(ld, &shuffled);
      assert_int_equal(rest_of(it, other, sizeof other), n / 2);
      for (size_t i = 0; i < n / each / 2; i++)
        assert_memory_equal(
            other + i * each, whole + (i / 2 * 4 + i % 2 * 2 + (size_t)d.rank) * each, each);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }

    d = patches_of(root, &v, axes, 3, grid ? 0 : 9);
    d.lanes = 2;
    for (int k = 1; k < 3; k++) {
      axes[k].edge = 0;
      ld = open_or_fail(&d);
      it = open_iter_or_fail(ld, &shuffled);
      assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_E_STATE);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      axes[k].edge = INSITU_FILL;
    }
  }

  /* As many places in as many blocks, inside and over the edges, are still other places. */
  insitu_error err = {0};
  insitu_state after[2] = {{{0}}};
  int64_t second[2][4];
  struct support_array high = planes();
  high.name = "high";
  high.shape[1] = 200;
  support_make(root, &high);
  insitu_axis places[] = {{.dim = "time"}, {.dim = "y", .patch = 6, .start = 5, .stop = 110}};
  insitu_variable of_high = {.label = "high"};
  insitu_loader_desc d = patches_of(root, &of_high, places, 2, 50);
  second_batch(&d, &after[0], second[0]);
  places[1] = (insitu_axis){.dim = "y", .patch = 6, .stop = 100, .edge = INSITU_FILL};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  assert_int_equal(insitu_iter_restore(it, &after[0], &err), INSITU_E_STATE);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  memset(after, 0, sizeof after);

  /* 5 and 6 divide the lengths: nothing hangs over, and a grid is the same either way. */
  v.halo = 0;
  axes[1].patch = 5;
  d = patches_of(root, &v, axes, 3, 0);
  for (int inside = 0; inside < 2; inside++) {
    axes[1].edge = axes[2].edge = inside ? 0 : INSITU_FILL;
    second_batch(&d, &after[inside], second[inside]);
  }
  assert_memory_equal(&after[0], &after[1], sizeof after[0]);
  support_remove(root);
}

/* What makes no sense is refused with words. */
static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = planes();
  support_make(root, &a);
  static const struct {
    insitu_axis axes[2];
    insitu_status status;
    const char *says;
  } cases[] = {
      {{{.dim = "time", .edge = INSITU_FILL}, {.dim = "y", .patch = 8}}, INSITU_E_ARG,
          "axes[0].edge is 2, and the axis has no patch; use 0, or INSITU_FILL with a patch"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .edge = INSITU_RAISE}}, INSITU_E_ARG,
          "axes[1].edge is 1; use 0, or INSITU_FILL"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .edge = -1}}, INSITU_E_ARG, "edge is -1"},
      {{{.dim = "time"}, {.dim = "y", .patch = 21}}, INSITU_E_SHAPE,
          "let it hang over the edges with edge = INSITU_FILL"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .edge = INSITU_FILL, .start = 9, .stop = 9}},
          INSITU_E_SPLIT, "correct start, stop or patch"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .edge = INSITU_FILL, .start = -1}},
          INSITU_E_SPLIT, "within [-1, 20)"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .edge = INSITU_FILL, .stop = 21}}, INSITU_E_SPLIT,
          "within [0, 21)"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_variable v = {.label = "a"};
    for (uint64_t patches = 0; patches < 2; patches++) {
      insitu_loader_desc d = patches_of(root, &v, cases[i].axes, 2, patches);
      refuse_or_fail(&d, cases[i].status, cases[i].says);
    }
  }

  /* However long a patch is, only memory is a limit. */
  const insitu_axis longest[] = {
      {.dim = "time"}, {.dim = "y", .patch = UINT64_C(1) << 48, .edge = INSITU_FILL}};
  for (uint64_t patches = 0; patches < 2; patches++) {
    insitu_variable v = {.label = "a"};
    insitu_loader_desc d = patches_of(root, &v, longest, 2, patches);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it;
    insitu_error err = {0};
    assert_int_equal(insitu_iter_open(ld, &shuffled, &it, &err), INSITU_E_BUDGET);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(elements), cmocka_unit_test(padded),
      cmocka_unit_test(strings), cmocka_unit_test(even), cmocka_unit_test(passes),
      cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
