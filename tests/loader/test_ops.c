/* Operations on elements, and masks, in batches and in insitu_read: against arithmetic of this
 * file's own, for every stored type, output type, assembly and layout. */
#include <stdatomic.h>
#include <stdlib.h>
static atomic_int allocations_left = -1; /* below 0: no limit */
static void *allocate(void *p, size_t n) {
  if (atomic_load(&allocations_left) < 0) return realloc(p, n);
  return atomic_fetch_sub(&allocations_left, 1) > 0 ? realloc(p, n)
                                                    : (atomic_store(&allocations_left, 0), NULL);
}
#define INSITU_REALLOC(p, n) allocate(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#include "support.h"
#include "modes.h"

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

/* ---- the model ---- */

static const double scale = 0.1, offset = -0.3;
static const char *const attributes =
    "\"scale_factor\":0.1,\"add_offset\":-0.3,\"_FillValue\":5,\"missing_value\":[17,100]";

/* One step, each operation rounded to float where `single` is set. */
static double rounded(double x, bool single) {
  volatile double d = x;
  volatile float f = (float)d;
  return single ? (double)f : d;
}
static double step(const insitu_op *op, uint64_t place, double x, bool single) {
  double a = rounded(op->n ? op->as[place] : op->a, single);
  double b = rounded(op->n && op->bs ? op->bs[place] : op->b, single);
  double one = a != 0 ? a : 1;
  switch (op->kind) {
  case INSITU_OP_NORM: return rounded(rounded(x - a, single) / b, single);
  case INSITU_OP_SCALE: return rounded(x * a, single);
  case INSITU_OP_SHIFT: return rounded(x + a, single);
  case INSITU_OP_CLIP: return x < a ? a : x > b ? b : x;
  case INSITU_OP_LOG1P: return log1p(rounded(x / one, single));
  case INSITU_OP_ASINH: return asinh(rounded(x / one, single));
  case INSITU_OP_FILL: return isnan(x) ? a : x;
  default: return x == a ? b : x;
  }
}

/* A case: an array, a variable, and what it shows of each axis. */
struct shown {
  struct support_array a;
  insitu_variable v;
  insitu_op ops[8];
  double numbers[8][2][8];
  int axis; /* whose numbers are told apart; -1: none */
  uint64_t n[4], index[4][8];
  bool inexact; /* the last operation is a logarithm */
};
static bool is_missing(double stored) {
  return stored == 5 || stored == 17 || stored == 100;
}
static double started(const struct shown *s, double stored, bool asks, bool single) {
  if ((s->v.decode || asks) && is_missing(stored)) return NAN;
  volatile double product = stored * scale, sum = product + offset;
  return rounded(s->v.decode ? sum : stored, single);
}
static double wanted(const struct shown *s, double stored, uint64_t place, bool single) {
  bool asks = false;
  for (uint64_t k = 0; k < s->v.n_ops; k++) asks = asks || s->ops[k].kind == INSITU_OP_FILL;
  double x = started(s, stored, asks, single);
  for (uint64_t k = 0; k < s->v.n_ops; k++) x = step(&s->ops[k], place, x, single);
  return x;
}
static bool wanted_mask(const struct shown *s, double stored, uint64_t place, bool single) {
  double x = started(s, stored, true, single);
  for (uint64_t k = 0; k < s->v.n_ops && s->ops[k].kind == INSITU_OP_REPLACE; k++)
    if (x == rounded(s->ops[k].n ? s->ops[k].as[place] : s->ops[k].a, single)) return true;
  return isnan(x);
}

/* ---- random cases ---- */

static const int32_t stored_types[] = {
    INSITU_U8, INSITU_I16, INSITU_I32, INSITU_I64, INSITU_F16, INSITU_F32, INSITU_F64};
static const int32_t asked_types[] = {
    INSITU_AS_STORED, INSITU_F16, INSITU_BF16, INSITU_F32, INSITU_F64};

static bool is_single(const struct shown *s) {
  int32_t stored = s->a.dtype;
  if (s->v.dtype) return s->v.dtype != INSITU_F64;
  return stored != INSITU_I32 && stored != INSITU_I64 && stored != INSITU_F64;
}
static int32_t out_type(const struct shown *s) {
  if (s->v.dtype) return s->v.dtype;
  return is_single(s) ? INSITU_F32 : INSITU_F64;
}
static double number(void) {
  return (double)support_below(4000) / 64 - 20;
}
static void draw_ops(struct shown *s) {
  static const char *const names[] = {"time", "c", "y", "x"};
  s->v.n_ops = 1 + support_below(4);
  s->axis = support_below(3) ? 1 + (int)support_below(3) : -1;
  s->inexact = false;
  for (uint64_t k = 0; k < s->v.n_ops; k++) {
    insitu_op *op = &s->ops[k];
    bool last = k + 1 == s->v.n_ops;
    *op = (insitu_op){.kind = 1 + (int32_t)support_below(8)};
    if (!last && (op->kind == INSITU_OP_LOG1P || op->kind == INSITU_OP_ASINH))
      op->kind = INSITU_OP_NORM;
    s->inexact = op->kind == INSITU_OP_LOG1P || op->kind == INSITU_OP_ASINH;
    bool two =
        op->kind == INSITU_OP_NORM || op->kind == INSITU_OP_CLIP || op->kind == INSITU_OP_REPLACE;
    bool listed = s->axis >= 0 && support_below(2);
    for (uint64_t i = 0; i < 8; i++) {
      double a = number(), b = number();
      if (op->kind == INSITU_OP_SCALE && a == 0) a = 1;
      if (op->kind == INSITU_OP_NORM || op->kind == INSITU_OP_CLIP) b = fabs(b) + 0.5;
      if (op->kind == INSITU_OP_CLIP) b += a;
      if (s->inexact) a = fabs(a) + 0.01;
      if (op->kind == INSITU_OP_REPLACE) a = rint(a), b = support_below(2) ? NAN : b;
      s->numbers[k][0][i] = op->a = a;
      s->numbers[k][1][i] = op->b = b;
    }
    if (!listed) continue;
    op->dim = names[s->axis];
    op->n = s->n[s->axis];
    op->as = s->numbers[k][0];
    op->bs = two ? s->numbers[k][1] : NULL;
  }
  s->v.ops = s->ops;
}
static void draw(struct shown *s, unsigned round, const char *root) {
  memset(s, 0, sizeof *s);
  s->a = (struct support_array){.name = "x",
      .ndim = 4,
      .shape = {11, 5, 6, 7},
      .dtype = stored_types[round % 7],
      .fill = "0",
      .dims = "[\"time\",\"c\",\"y\",\"x\"]",
      .attributes = attributes};
  support_layout(&s->a, 2 + (int)support_below(2));
  support_make(root, &s->a);
  bool select = support_below(2);
  static const uint64_t c[] = {3, 0, 4}, y[] = {4, 3, 2};
  for (int d = 1; d < 4; d++) {
    s->n[d] = s->a.shape[d];
    for (uint64_t i = 0; i < s->n[d]; i++) s->index[d][i] = i;
  }
  if (select) {
    s->n[1] = s->n[2] = 3;
    memcpy(s->index[1], c, sizeof c);
    memcpy(s->index[2], y, sizeof y);
  }
  s->v = (insitu_variable){.label = "x",
      .select = select ? "c=[3,0,4]; y=[4:1:-1]" : NULL,
      .dtype = asked_types[round / 7 % 5],
      .decode = support_below(2) ? INSITU_CF : 0,
      .mask = "gone"};
  draw_ops(s);
}

/* Compares one sample's elements; numbers of a mask at `gone`, or NULL. */
static void compare(
    const struct shown *s, uint64_t sample, const char *got, const unsigned char *gone) {
  int32_t out = out_type(s);
  bool single = is_single(s);
  uint64_t item = (uint64_t)(out & 0xff) / 8, e = 0;
  for (uint64_t i = 0; i < s->n[1]; i++)
    for (uint64_t j = 0; j < s->n[2]; j++)
      for (uint64_t k = 0; k < s->n[3]; k++, e++) {
        uint64_t at[4] = {sample, s->index[1][i], s->index[2][j], s->index[3][k]};
        uint64_t place = s->axis == 1 ? i : s->axis == 2 ? j : k;
        double stored = support_expect(&s->a, at), is = support_get(got + e * item, out);
        double want = wanted(s, stored, place, single), least = want, most = want;
        if (s->inexact) { /* two units in the last place of what is computed in */
          double unit = fabs(want) * (single ? 0x1p-23 : 0x1p-52);
          least -= 2 * unit;
          most += 2 * unit;
        }
        least = support_as(out, least);
        most = support_as(out, most);
        if (isnan(want) ? !isnan(is) : !(is >= least && is <= most))
          fail_msg("stored %.17g: %.17g, not %.17g", stored, is, want);
        if (gone && gone[e] != wanted_mask(s, stored, place, single))
          fail_msg("stored %.17g: the mask is %d", stored, gone[e]);
      }
}
static void check_epoch(insitu_loader *ld, const struct shown *s) {
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_error err = {0};
  insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
  uint64_t rows = 0, each = s->n[1] * s->n[2] * s->n[3];
  uint64_t item = (uint64_t)(out_type(s) & 0xff) / 8;
  insitu_status status = insitu_iter_open(ld, &pass, &it, &err);
  while (!status && (status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->n_arrays, 2);
    assert_string_equal(b->arrays[1].name, "gone");
    assert_int_equal(b->arrays[0].dtype, out_type(s));
    assert_int_equal(b->arrays[1].dtype, INSITU_U8);
    assert_int_equal(b->arrays[0].ndim, b->arrays[1].ndim);
    for (uint64_t row = 0; row < b->rows; row++, rows++)
      compare(s, (uint64_t)b->sample_indices[row],
          (const char *)b->arrays[0].data + row * each * item,
          (const unsigned char *)b->arrays[1].data + row * each);
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(rows, s->a.shape[0]);
  insitu_iter_close(&it);
}

static void test_batches(void **state) {
  (void)state;
  static char got[11 * 5 * 6 * 7 * 8];
  for (unsigned round = 0; round < 35 * (unsigned)support_rounds(4); round++) {
    struct shown s;
    char name[32];
    snprintf(name, sizeof name, "batches%u", round);
    const char *root = support_path(name);
    draw(&s, round, root);
    int m = (int)(round % MODES);
    while (!mode_usable(m)) m = (m + 1) % MODES;
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &s.v,
        .n_variables = 1,
        .batch_size = 1 + support_below(6),
        .io = modes[m].io,
        .inline_io = modes[m].inline_io,
        .assembly = 1 + (int32_t)support_below(2),
        .on_absent_chunk = INSITU_FILL,
        .check = 1};
    insitu_loader *ld = open_or_fail(&d);
    check_epoch(ld, &s);
    insitu_variable v = s.v;
    insitu_shape shape;
    insitu_error err = {0};
    v.mask = NULL;
    if (insitu_read(ld, &v, got, sizeof got, &shape, &err)) fail_msg("%s", err.message);
    assert_int_equal(shape.dtype, out_type(&s));
    for (uint64_t i = 0; i < 11; i++) compare(&s, i, got + shape.bytes / 11 * i, NULL);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* ---- what has no rows of its own ---- */

static struct support_array plain(int ndim, int32_t dtype) {
  return (struct support_array){.name = "x",
      .ndim = ndim,
      .shape = {12, 4, 3},
      .chunk = {2, 3, 2},
      .dtype = dtype,
      .format = 3,
      .fill = "5",
      .dims = ndim == 3 ? "[\"time\",\"y\",\"x\"]" : "[\"time\",\"y\"]",
      .attributes = "\"_FillValue\":5"};
}
static insitu_batch *first_batch(insitu_loader *ld, insitu_iter **it) {
  insitu_batch *b = NULL;
  insitu_error err = {0};
  insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
  if (insitu_iter_open(ld, &pass, it, &err) || insitu_iter_next(*it, INSITU_FOREVER, &b, &err))
    fail_msg("%s", err.message);
  return b;
}

/* A fixed variable and its mask; a patch that hangs over the edge of its array, where the fill
 * value is missing, and has numbers for each x. */
static void test_fixed_and_patches(void **state) {
  (void)state;
  const char *root = support_path("fixed");
  struct support_array a = plain(3, INSITU_I16);
  support_make(root, &a);
  static const double mean[] = {1, 2, 3}, std[] = {2, 4, 8};
  insitu_op each[] = {{.kind = INSITU_OP_FILL, .a = -7},
      {.kind = INSITU_OP_NORM, .dim = "x", .as = mean, .bs = std, .n = 3}};
  insitu_variable v[] = {{.label = "x", .ops = each, .n_ops = 2, .mask = "x_gone"},
      {.label = "f", .path = "x", .fixed = 1, .ops = each, .n_ops = 2, .mask = "f_gone"}};
  insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 3, .edge = INSITU_FILL}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 2,
      .axes = axes,
      .n_axes = 2,
      .batch_size = 24,
      .check = 1};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = NULL;
  insitu_batch *b = first_batch(ld, &it);
  assert_int_equal(b->n_arrays, 4);
  const float *x = b->arrays[0].data, *f = b->arrays[1].data;
  const unsigned char *x_gone = b->arrays[2].data, *f_gone = b->arrays[3].data;
  for (uint64_t row = 0; row < b->rows; row++)
    for (uint64_t k = 0; k < 9; k++) {
      uint64_t at[4] = {(uint64_t)b->axis_indices[row * 2],
          (uint64_t)b->axis_indices[row * 2 + 1] + k / 3, k % 3};
      double stored = at[1] < 4 ? support_expect(&a, at) : 5;
      bool gone = stored == 5;
      float want = ((gone ? -7.0f : (float)stored) - (float)mean[k % 3]) / (float)std[k % 3];
      assert_true(x[row * 9 + k] == want && x_gone[row * 9 + k] == gone);
    }
  for (uint64_t k = 0; k < 144; k++) {
    uint64_t at[4] = {k / 12, k / 3 % 4, k % 3};
    double stored = support_expect(&a, at);
    bool gone = stored == 5;
    float want = ((gone ? -7.0f : (float)stored) - (float)mean[k % 3]) / (float)std[k % 3];
    assert_true(f[k] == want && f_gone[k] == gone);
  }
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* An absent chunk runs through the operations: once filled, its missing value stops no epoch. Masks
 * of channels are channels. What is resolved opens again, and shows the same. */
static void test_absent_and_channels(void **state) {
  (void)state;
  const char *root = support_path("absent");
  struct support_array a = plain(2, INSITU_F32);
  a.absent = 2;
  a.fill = "\"NaN\"";
  support_make(root, &a);
  insitu_op fill = {.kind = INSITU_OP_FILL, .a = 2.5};
  insitu_variable v[] = {{.label = "a", .path = "x", .into = "all", .mask = "gone"},
      {.label = "b", .path = "x", .into = "all", .mask = "gone", .ops = &fill, .n_ops = 1}};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = root, .variables = v, .n_variables = 2, .batch_size = 12};
  insitu_loader *ld = open_or_fail(&d), *again = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};
  insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
  assert_int_equal(insitu_iter_open(ld, &pass, &it, &err), 0);
  assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_E_ABSENT);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  d.variables = &v[1];
  d.n_variables = 1;
  d.check = 1;
  ld = open_or_fail(&d);
  b = first_batch(ld, &it);
  assert_string_equal(b->arrays[1].name, "gone");
  assert_string_equal(b->arrays[1].channels[0], "gone b");
  uint64_t missing = 0;
  for (uint64_t k = 0; k < 48; k++) {
    bool gone = ((const unsigned char *)b->arrays[1].data)[k];
    missing += gone;
    assert_true(!gone || ((const float *)b->arrays[0].data)[k] == 2.5f);
  }
  assert_in_range(missing, 10, 40);
  assert_int_equal(insitu_loader_config(ld)->n_variables, 2);
  if (insitu_loader_open(insitu_loader_config(ld), &again, &err)) fail_msg("%s", err.message);
  assert_int_equal(insitu_loader_config(again)->n_variables, 2);
  insitu_loader_close(&again);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* Channels of one output share a mask, of different offsets and arrays, too. */
static void test_shared_mask(void **state) {
  (void)state;
  const char *root = support_path("shared");
  struct support_array x = plain(2, INSITU_F32), y = plain(2, INSITU_F32);
  y.name = "y";
  support_make(root, &x);
  support_make(root, &y);
  insitu_variable v[] = {{.label = "a", .path = "x", .into = "all", .mask = "gone"},
      {.label = "b", .path = "x", .offset = 1, .into = "all", .mask = "gone"},
      {.label = "c", .path = "y", .into = "all", .mask = "gone"}};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = root, .variables = v, .n_variables = 3, .batch_size = 4};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = NULL;
  insitu_batch *batch = first_batch(ld, &it);
  assert_int_equal(batch->n_arrays, 2);
  assert_string_equal(batch->arrays[1].name, "gone");
  assert_int_equal(batch->arrays[1].shape[1], 3);
  assert_string_equal(batch->arrays[1].channels[0], "gone a");
  assert_string_equal(batch->arrays[1].channels[1], "gone b");
  assert_string_equal(batch->arrays[1].channels[2], "gone c");
  insitu_batch_release(&batch);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* Where a list makes the fill value NaN at one index, an absent chunk is an error by default. That
 * is known of a variable once, when the loader opens, and not asked where all chunks are filled. */
static void test_absent_by_index(void **state) {
  (void)state;
  const char *root = support_path("absent_by_index");
  struct support_array a = plain(3, INSITU_F32);
  a.absent = 1;
  support_make(root, &a);
  const double value[] = {1, 2, 5}, gone[] = {1, 2, NAN}, kept[] = {1, 2, 7};
  for (int32_t policy = 0; policy <= INSITU_FILL; policy++)
    for (int nan = 0; nan < 2; nan++) {
      insitu_op replace = {
          .kind = INSITU_OP_REPLACE, .dim = "x", .as = value, .bs = nan ? gone : kept, .n = 3};
      insitu_variable v = {.label = "x", .ops = &replace, .n_ops = 1, .mask = "m"};
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = &v,
          .n_variables = 1,
          .batch_size = 12,
          .on_absent_chunk = policy};
      insitu_loader *ld = open_or_fail(&d);
      assert_int_equal(ld->geometry.variables[0].shows_nan, nan && policy != INSITU_FILL);
      assert_false(ld->geometry.variables[1].shows_nan); /* masks have no NaN */
      insitu_iter *it = NULL;
      insitu_batch *b = NULL;
      insitu_error err = {0};
      insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
      assert_int_equal(insitu_iter_open(ld, &pass, &it, &err), 0);
      bool raises = policy == INSITU_RAISE || (!policy && nan);
      assert_int_equal(
          insitu_iter_next(it, INSITU_FOREVER, &b, &err), raises ? INSITU_E_ABSENT : INSITU_OK);
      if (raises) has(err.message, nan ? "its fill value is NaN" : "is not wanted");
      else
        for (uint64_t k = 0; k < 144; k++) {
          float shown = ((const float *)b->arrays[0].data)[k];
          if (k % 3 < 2) assert_true(shown == 5);
          else assert_true(nan ? isnan(shown) : shown == 7);
        }
      insitu_batch_release(&b);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
}

/* Operations and masks change neither order nor state. */
static void test_order(void **state) {
  (void)state;
  const char *root = support_path("order");
  struct support_array a = plain(3, INSITU_F32);
  a.shape[0] = 90;
  support_make(root, &a);
  insitu_op shift = {.kind = INSITU_OP_SHIFT, .a = 1};
  insitu_variable without = {.label = "x"}, with = without;
  with.ops = &shift;
  with.n_ops = 1;
  with.mask = "m";
  insitu_state states[2];
  int64_t order[2][72];
  for (int i = 0; i < 2; i++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = i ? &with : &without,
        .n_variables = 1,
        .batch_size = 8};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = NULL;
    insitu_iter_desc pass = {.api = INSITU_API};
    insitu_error err = {0};
    insitu_batch *b;
    assert_int_equal(insitu_iter_open(ld, &pass, &it, &err), 0);
    for (uint64_t n = 0; n < 9; n++) {
      if (insitu_iter_next(it, INSITU_FOREVER, &b, &err)) fail_msg("%s", err.message);
      memcpy(&order[i][n * 8], b->sample_indices, 8 * sizeof **order);
      states[i] = b->after;
      insitu_batch_release(&b);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  assert_memory_equal(order[0], order[1], sizeof order[0]);
  assert_memory_equal(&states[0], &states[1], sizeof states[0]);
}

/* ---- wrong input ---- */

static void refused(const char *root, insitu_variable v, insitu_status status, const char *part) {
  insitu_variable both[] = {v, {.label = "other", .path = "x"}};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = root, .variables = both, .n_variables = 2, .batch_size = 2};
  insitu_loader *ld = NULL;
  insitu_error err = {0};
  insitu_status is = insitu_loader_open(&d, &ld, &err);
  if (is != status) fail_msg("%d, not %d: %s (%s)", is, status, err.message, part);
  has(err.message, part);
  has(err.message, "variable x");
  insitu_loader_close(&ld);
}
static void test_refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = plain(3, INSITU_F32);
  support_make(root, &a);
  static const double four[] = {1, 2, 0, 4};
  static const struct {
    insitu_op op;
    insitu_status status;
    const char *part;
  } list[] = {{{.kind = 0}, INSITU_E_ARG, "ops[0]: kind is 0"},
      {{.kind = 10}, INSITU_E_ARG, "kind is 10"},
      {{.kind = INSITU_OP_NORM}, INSITU_E_ARG, "ops[0] (norm)"},
      {{.kind = INSITU_OP_NORM, .a = 1}, INSITU_E_ARG, "standard deviation"},
      {{.kind = INSITU_OP_NORM, .a = 1, .b = -1}, INSITU_E_ARG, "standard deviation"},
      {{.kind = INSITU_OP_NORM, .a = 1, .b = NAN}, INSITU_E_ARG, "standard deviation"},
      {{.kind = INSITU_OP_NORM, .a = 1, .b = 1e-40}, INSITU_E_ARG, "standard deviation"},
      {{.kind = INSITU_OP_NORM, .a = NAN, .b = 1}, INSITU_E_ARG, "mean"},
      {{.kind = INSITU_OP_NORM, .dim = "y", .as = four, .bs = four, .n = 4}, INSITU_E_ARG,
          "number 2: the standard deviation"},
      {{.kind = INSITU_OP_NORM, .dim = "x", .as = four, .bs = four, .n = 2}, INSITU_E_SHAPE,
          "2 numbers for 3"},
      {{.kind = INSITU_OP_NORM, .dim = "z", .as = four, .bs = four, .n = 2}, INSITU_E_NOTFOUND,
          "time y x"},
      {{.kind = INSITU_OP_NORM, .dim = "y", .as = four, .n = 4}, INSITU_E_ARG, "bs does not fit"},
      {{.kind = INSITU_OP_NORM, .dim = "y"}, INSITU_E_ARG,
          "for those of desc.stats leave all zero"},
      {{.kind = INSITU_OP_SHIFT, .dim = "time", .as = four, .n = 4}, INSITU_E_UNSUPPORTED,
          "sample axis"},
      {{.kind = INSITU_OP_SHIFT, .as = four}, INSITU_E_ARG, "n is 0"},
      {{.kind = INSITU_OP_SCALE}, INSITU_E_ARG, "a is 0"},
      {{.kind = INSITU_OP_SHIFT, .a = 1e300}, INSITU_E_ARG, "not finite"},
      {{.kind = INSITU_OP_CLIP, .a = 1, .b = 0}, INSITU_E_ARG, "more than b"},
      {{.kind = INSITU_OP_CLIP, .a = NAN, .b = 0}, INSITU_E_ARG, "more than b"},
      {{.kind = INSITU_OP_LOG1P, .a = -1}, INSITU_E_ARG, "above 0"},
      {{.kind = INSITU_OP_FILL, .a = NAN}, INSITU_E_ARG, "not finite"},
      {{.kind = INSITU_OP_REPLACE, .a = NAN}, INSITU_E_ARG, "INSITU_OP_FILL"},
      {{.kind = INSITU_OP_MISSING}, INSITU_E_ARG, "name `mask`"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    refused(root, (insitu_variable){.label = "x", .ops = &list[i].op, .n_ops = 1}, list[i].status,
        list[i].part);

  insitu_op two[] = {{.kind = INSITU_OP_SHIFT, .dim = "y", .as = four, .n = 4},
      {.kind = INSITU_OP_SHIFT, .dim = "x", .as = four, .n = 3}};
  refused(root, (insitu_variable){.label = "x", .ops = two, .n_ops = 2}, INSITU_E_UNSUPPORTED,
      "ops[1] (shift)");
  refused(root, (insitu_variable){.label = "x", .n_ops = 1}, INSITU_E_ARG, "ops is NULL");
  refused(root, (insitu_variable){.label = "x", .ops = two, .n_ops = 1, .dtype = INSITU_I32},
      INSITU_E_DTYPE, "ops makes float16");
  refused(root, (insitu_variable){.label = "x", .mask = "other"}, INSITU_E_ARG, "mask is 'other'");
  refused(root, (insitu_variable){.label = "x", .mask = "x"}, INSITU_E_ARG, "mask is 'x'");
  refused(root, (insitu_variable){.label = "x", .mask = ""}, INSITU_E_ARG, "mask is ''");

  insitu_loader_desc d = {.api = INSITU_API, .url = root, .plan_only = 1};
  insitu_loader *ld = open_or_fail(&d);
  insitu_error err = {0};
  insitu_shape shape;
  insitu_variable v = {.label = "x", .mask = "m"};
  assert_int_equal(insitu_read(ld, &v, NULL, 0, &shape, &err), INSITU_E_ARG);
  has(err.message, "mask");
  v = (insitu_variable){.label = "x", .ops = &list[4].op, .n_ops = 1};
  assert_int_equal(insitu_read(ld, &v, NULL, 0, &shape, &err), INSITU_E_ARG);
  has(err.message, "standard deviation");
  insitu_loader_close(&ld);
}

/* Masks are variables: their labels are their own, and they count. What is resolved opens again. */
static void refused_masks(const char *root, insitu_variable *v, uint64_t n, const char *part) {
  insitu_loader_desc d = {
      .api = INSITU_API, .url = root, .variables = v, .n_variables = n, .batch_size = 2};
  insitu_loader *ld = NULL;
  insitu_error err = {0};
  if (insitu_loader_open(&d, &ld, &err) != INSITU_E_ARG) fail_msg("%s: %s", part, err.message);
  has(err.message, part);
  insitu_loader_close(&ld);
}
static void test_refused_masks(void **state) {
  (void)state;
  const char *root = support_path("refused_masks");
  struct support_array a = plain(3, INSITU_F32);
  support_make(root, &a);
  insitu_variable label[] = {
      {.label = "a", .path = "x", .mask = "m"}, {.label = "m", .path = "x", .into = "foo"}};
  refused_masks(root, label, 2, "variable m: it is a mask, and variable number 1 has that label");
  insitu_variable channel[] = {
      {.label = "a", .path = "x", .into = "all", .mask = "m"}, {.label = "m a", .path = "x"}};
  refused_masks(root, channel, 2, "variable m a: it is a mask, and variable number 1");
  insitu_variable two[] = {{.label = "a", .path = "x", .into = "all", .mask = "m"},
      {.label = "b", .path = "x", .mask = "m a"}};
  refused_masks(root, two, 2, "variable m a: it is a mask, and variable number 2");

  insitu_op replace[64];
  for (int i = 0; i < 64; i++)
    replace[i] = (insitu_op){.kind = INSITU_OP_REPLACE, .a = i, .b = NAN};
  insitu_variable most = {.label = "x", .ops = replace, .n_ops = 64, .mask = "m"};
  refused_masks(root, &most, 1, "variable m: ops is NULL, or n_ops over 64");

  static insitu_variable many[513];
  static char names[513][2][8];
  for (int i = 0; i < 513; i++) {
    snprintf(names[i][0], sizeof names[i][0], "v%d", i);
    snprintf(names[i][1], sizeof names[i][1], "m%d", i);
    many[i] = (insitu_variable){.label = names[i][0], .path = "x", .mask = names[i][1]};
  }
  refused_masks(root, many, 513, "variable m511: it is a mask, and with the masks there are 1026");
}

/* A variable is the mask of another one only where it shows the same elements of the same samples.
 * What a configuration says of the two may differ once somebody has edited one of them. */
static void test_edited_mask(void **state) {
  (void)state;
  const char *root = support_path("edited_mask");
  struct support_array a = plain(3, INSITU_F32);
  support_make(root, &a);
  int64_t steps[] = {0, 1}, others[] = {0, 2};
  insitu_slice slices[] = {{.dim = "y", .start = 1}, {.dim = "y", .start = 2}};
  insitu_variable v = {.label = "x",
      .steps = steps,
      .n_steps = 2,
      .slices = slices,
      .n_slices = 1,
      .select = "x=[0,2]",
      .mask = "m"};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = root, .variables = &v, .n_variables = 1, .batch_size = 2};
  insitu_loader *ld = open_or_fail(&d);
  insitu_variable edited[] = {
      insitu_loader_config(ld)->variables[0], insitu_loader_config(ld)->variables[1]};
  insitu_variable first = edited[0];
  const char *part = "mask is 'm', which is empty or the name of another output";
  d.variables = edited;
  d.n_variables = 2;
  insitu_loader *again = open_or_fail(&d);
  assert_int_equal(insitu_loader_config(again)->n_variables, 2);
  insitu_loader_close(&again);

  edited[0].steps = others;
  refused_masks(root, edited, 2, part);
  edited[0] = first;
  edited[0].slices = &slices[1];
  refused_masks(root, edited, 2, part);
  edited[0] = first;
  edited[0].select = "x=[0,1]";
  refused_masks(root, edited, 2, part);
  edited[0].select = NULL;
  refused_masks(root, edited, 2, part);
  insitu_loader_close(&ld);
}

/* Without memory for the lists, the masks or their names, open says so, and leaks nothing. */
static void test_no_memory(void **state) {
  (void)state;
  const char *root = support_path("no_memory");
  struct support_array a = plain(3, INSITU_F32);
  support_make(root, &a);
  static const double four[] = {1, 2, 3, 4};
  insitu_op ops[] = {{.kind = INSITU_OP_REPLACE, .a = 9},
      {.kind = INSITU_OP_NORM, .dim = "y", .as = four, .bs = four, .n = 4}};
  insitu_variable v = {.label = "x", .into = "all", .ops = ops, .n_ops = 2, .mask = "m"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 2,
      .plan_only = 1};
  insitu_status status = INSITU_E_NOMEM;
  int failed = 0;
  for (int n = 0; status && n < 4000; n += support_slow() ? 7 : 1) {
    insitu_loader *ld = NULL;
    insitu_error err = {0};
    atomic_store(&allocations_left, n);
    status = insitu_loader_open(&d, &ld, &err);
    atomic_store(&allocations_left, -1);
    if (status && status != INSITU_E_NOMEM) fail_msg("%d allocations: %s", n, err.message);
    failed += status != 0;
    insitu_loader_close(&ld);
  }
  assert_int_equal(status, INSITU_OK);
  assert_in_range(failed, 10, 4000);
}

/* They are described, and told apart. */
static void test_described(void **state) {
  (void)state;
  const char *root = support_path("described");
  struct support_array a = plain(3, INSITU_F32);
  support_make(root, &a);
  char prints[3][17];
  for (int i = 0; i < 3; i++) {
    static const double four[] = {1, 2, 3, 4};
    insitu_op ops[] = {{.kind = INSITU_OP_CLIP, .a = -INFINITY, .b = i == 1 ? 3 : 4},
        {.kind = INSITU_OP_NORM, .dim = "y", .as = four, .bs = four, .n = 4},
        {.kind = INSITU_OP_SHIFT, .a = 1, .b = i}}; /* which has no b */
    insitu_variable v = {.label = "x", .ops = ops, .n_ops = 3, .mask = "m"};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .batch_size = 2 + (uint64_t)i};
    insitu_loader *ld = open_or_fail(&d);
    static char text[20000];
    assert_in_range(insitu_loader_describe(ld, text, sizeof text), 1, sizeof text - 1);
    has(text, i == 1 ? "{\"op\": \"clip\", \"lo\": \"-Infinity\", \"hi\": 3}"
                     : "{\"op\": \"clip\", \"lo\": \"-Infinity\", \"hi\": 4}");
    has(text, "{\"op\": \"norm\", \"dim\": \"y\", \"mean\": [1, 2, 3, 4], \"std\": [1, 2, 3, 4]}");
    has(text, "\"mask\": \"m\"");
    has(text, "{\"op\": \"missing\"");
    const char *print = strstr(text, "\"fingerprint\": \"");
    assert_non_null(print);
    memcpy(prints[i], print + strlen("\"fingerprint\": \""), 16);
    prints[i][16] = 0;
    insitu_loader_close(&ld);
  }
  assert_string_equal(prints[0], prints[2]);
  assert_string_not_equal(prints[0], prints[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_batches),
      cmocka_unit_test(test_fixed_and_patches), cmocka_unit_test(test_absent_and_channels),
      cmocka_unit_test(test_shared_mask), cmocka_unit_test(test_absent_by_index),
      cmocka_unit_test(test_order), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_refused_masks), cmocka_unit_test(test_edited_mask),
      cmocka_unit_test(test_no_memory), cmocka_unit_test(test_described)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
