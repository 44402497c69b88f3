/* Lists of samples: which samples take part, their order, values, counts and states, along several
 * axes and with patches, against a model that looks at each sample. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"

enum { T, Z, Y, X, CHANNEL, DIMS, LONGEST = 7, SAMPLES = 128, MOST = 8192, COLUMNS = 4 };
static const char *const dim_names[DIMS] = {"t", "z", "y", "x", "channel"};

/* A sample, or with a grid of patches a patch: its index along each dimension. */
struct point {
  int64_t at[DIMS];
  int cell[DIMS]; /* its group along each sample axis; of a list without patches */
  bool listed;
  int drop; /* of the part that is looked at: the reason, or INSITU_DROPS */
};

/* A configuration, drawn at random. */
struct listing {
  char root[600];
  uint64_t size[DIMS], chunk[DIMS]; /* chunk: the longest of the arrays */
  struct support_array array[2];
  int dim[2][DIMS];
  insitu_axis axes[COLUMNS];
  int desc_of[COLUMNS]; /* the dimension of each entry of axes */
  int n_axes, along;    /* along: a dimension */
  bool patched, drawn;
  insitu_variable variable[2];
  int64_t steps[2];
  insitu_loader_desc desc;
  int64_t list[MOST * COLUMNS];
  int64_t cut; /* train is before it, val from there on */

  /* all that is in the archive, in the order of cells and in each cell row-major */
  struct point point[MOST];
  int n_points, each; /* each: drawn patches of a point */
};

static const insitu_axis *axis_of(const struct listing *s, int dim) {
  for (int k = 0; k < s->n_axes; k++)
    if (s->desc_of[k] == dim) return &s->axes[k];
  return NULL;
}

static bool is_patch(const struct listing *s, int dim) {
  const insitu_axis *axis = axis_of(s, dim);
  return axis && axis->patch;
}

static void shuffle(int *list, int n) {
  for (int i = n; i-- > 1;) {
    int j = (int)support_below((uint64_t)i + 1), other = list[i];
    list[i] = list[j];
    list[j] = other;
  }
}

static void draw_array(struct listing *s, int which, int format) {
  struct support_array *a = &s->array[which];
  static char dims[2][64];
  int order[DIMS] = {T, Z, Y, X, CHANNEL};
  *a = (struct support_array){.name = which ? "mask" : "image",
      .dtype = which ? INSITU_U8 : INSITU_I32,
      .format = format,
      .zstd = support_below(2),
      .dims = dims[which]};
  a->fortran = format == 2 && support_below(2);
  if (support_below(2)) shuffle(order, DIMS);
  int more = 4 - s->n_axes; /* an array has at most 4 axes here */
  strcpy(dims[which], "[");
  for (int i = 0; i < DIMS; i++) {
    int dim = order[i];
    if (!axis_of(s, dim) && (which || dim < Y || more-- <= 0)) continue;
    int d = a->ndim++;
    s->dim[which][d] = dim;
    a->shape[d] = s->size[dim];
    a->chunk[d] = 1 + support_below(a->shape[d]);
    if (a->chunk[d] > s->chunk[dim]) s->chunk[dim] = a->chunk[d];
    sprintf(dims[which] + strlen(dims[which]), "%s\"%s\"", d ? "," : "", dim_names[dim]);
  }
  strcat(dims[which], "]");
  for (int d = 0; format == 3 && d < a->ndim; d++) a->shard[d] = 1 + support_below(2);
  if (support_below(2)) memset(a->shard, 0, sizeof a->shard);
  support_make(s->root, a);
}

static void draw_axes(struct listing *s) {
  int dims[COLUMNS], n = 0;
  int samples = 1 + (int)support_below(3); /* t, z or both */
  if (samples & 1) dims[n++] = T;
  if (samples & 2) dims[n++] = Z;
  s->along = dims[support_below((uint64_t)n)];
  s->patched = !support_below(3);
  s->drawn = s->patched && support_below(2);
  if (s->patched) dims[n++] = Y;
  if (s->patched && support_below(2)) dims[n++] = X;
  shuffle(dims, n);
  for (int k = 0; k < n; k++) {
    insitu_axis *axis = &s->axes[k];
    uint64_t size = s->size[dims[k]];
    s->desc_of[k] = dims[k];
    axis->dim = dim_names[dims[k]];
    if (dims[k] == s->along) s->desc.split_axis = k;
    if (dims[k] >= Y) {
      axis->patch = 1 + support_below(size);
      if (!s->drawn && support_below(2)) axis->stride = 1 + support_below(3);
      continue;
    }
    if (!support_below(3)) axis->stride = 1 + support_below(3);
    if (!support_below(3)) axis->start = (int64_t)support_below(size);
    if (!support_below(3))
      axis->stop = axis->start + 1 + (int64_t)support_below(size - (uint64_t)axis->start);
  }
  s->n_axes = n;
}

static int64_t end_of(const struct listing *s, int dim) {
  const insitu_axis *axis = axis_of(s, dim);
  return axis->stop ? axis->stop : (int64_t)s->size[dim];
}

/* For qsort: by cells, then by indexes, of the sample axes in the order of the desc. */
static const struct listing *sorted_for;
static int compare(const void *x, const void *y) {
  const struct point *a = (const struct point *)x, *b = (const struct point *)y;
  for (int pass = 0; pass < 2; pass++)
    for (int k = 0; k < sorted_for->n_axes; k++) {
      int dim = sorted_for->desc_of[k];
      if (dim >= Y) continue;
      int64_t i = pass ? a->at[dim] : a->cell[dim], j = pass ? b->at[dim] : b->cell[dim];
      if (i != j) return i < j ? -1 : 1;
    }
  return 0;
}

/* All samples, of a grid all patches. */
static void list_points(struct listing *s) {
  uint64_t lengths[DIMS];
  uint64_t unit_chunks = s->desc.unit_chunks ? s->desc.unit_chunks : 1;
  for (int dim = 0; dim < DIMS; dim++) {
    const insitu_axis *axis = axis_of(s, dim);
    lengths[dim] = axis && !(s->drawn && axis->patch) ? s->size[dim] : 1;
  }
  uint64_t all = 1;
  for (int dim = 0; dim < DIMS; dim++) all *= lengths[dim];
  for (uint64_t i = 0; i < all; i++) {
    struct point p = {.drop = INSITU_DROPS};
    uint64_t rest = i;
    bool valid = true;
    for (int dim = DIMS; dim-- > 0; rest /= lengths[dim]) {
      const insitu_axis *axis = axis_of(s, dim);
      p.at[dim] = (int64_t)(rest % lengths[dim]);
      if (!axis) continue;
      uint64_t stride = axis->stride ? axis->stride : axis->patch ? axis->patch : 1;
      if (axis->patch && !s->drawn)
        valid = valid && (uint64_t)p.at[dim] % stride == 0 &&
                (uint64_t)p.at[dim] + axis->patch <= s->size[dim];
      uint64_t group = s->chunk[dim] * (dim == s->along ? unit_chunks : 1);
      if (stride > group) group *= (stride + group - 1) / group;
      p.cell[dim] = (int)((uint64_t)p.at[dim] / group);
    }
    if (valid) s->point[s->n_points++] = p;
  }
  s->each = s->drawn ? (int)s->desc.patches : 1;
  sorted_for = s;
  qsort(s->point, (size_t)s->n_points, sizeof *s->point, compare);
}

/* Draws which points are listed, in any order. */
static void draw_list(struct listing *s) {
  static int order[MOST];
  uint64_t thin = support_below(3) ? 1 + support_below(3) : 8;
  for (int i = 0; i < s->n_points; i++) {
    order[i] = i;
    s->point[i].listed = !support_below(thin);
  }
  if (support_below(3)) shuffle(order, s->n_points);
  s->point[order[0]].listed = true;
  s->desc.samples = s->list;
  s->desc.n_samples = 0;
  int64_t *to = s->list;
  for (int i = 0; i < s->n_points; i++) {
    const struct point *p = &s->point[order[i]];
    if (!p->listed) continue;
    for (int k = 0; k < s->n_axes; k++)
      if (!s->drawn || s->desc_of[k] < Y) *to++ = p->at[s->desc_of[k]];
    s->desc.n_samples++;
  }
}

static void draw_listing(struct listing *s) {
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", support_path("listing"));
  for (int i = 0; i < DIMS; i++) s->size[i] = 1 + support_below(i < Y ? LONGEST + 3 : LONGEST);
  s->size[CHANNEL] = 1 + support_below(2);
  int format = 2 + (int)support_below(2);
  int m = any_mode();
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = 2,
      .batch_size = 1 + support_below(4),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = 1 + support_below(3),
      .seed = support_random(),
      .split_spill = !support_below(4),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
  draw_axes(s);
  if (s->drawn) s->desc.patches = 1 + support_below(5);
  for (int which = 0; which < 2; which++) draw_array(s, which, format);
  s->variable[0].label = "image";
  s->variable[1].label = "mask";
  if (support_below(2)) {
    s->steps[1] = 1 + (int64_t)support_below(2);
    s->variable[1].steps = s->steps;
    s->variable[1].n_steps = 2;
  }
  int64_t lo = axis_of(s, s->along)->start, hi = end_of(s, s->along);
  s->cut = lo + (int64_t)support_below((uint64_t)(hi - lo) + 1);
  if (s->cut > lo && s->cut < hi) {
    s->desc.split[0].start = lo;
    s->desc.split[0].stop = s->cut;
    s->desc.split[1].start = s->cut;
    s->desc.split[1].stop = hi;
  }
  if (s->n_axes == 1 && support_below(2)) { /* the same in the older words */
    const insitu_axis *axis = &s->axes[0];
    if (!axis->stride) {
      s->desc.sample_dim = axis->dim;
      s->desc.sample_start = axis->start;
      s->desc.sample_stop = axis->stop;
    }
  }
  if (!s->desc.sample_dim) {
    s->desc.axes = s->axes;
    s->desc.n_axes = (uint64_t)s->n_axes;
  }
  list_points(s);
  draw_list(s);
}

/* The samples of a part along the axis that is split. */
static void range_of(const struct listing *s, int part, int64_t *lo, int64_t *hi) {
  *lo = axis_of(s, s->along)->start;
  *hi = end_of(s, s->along);
  if (part == INSITU_TRAIN) *hi = s->cut;
  if (part == INSITU_VAL) *lo = s->cut;
}

/* The first reason to drop a point. */
static int drop_of(const struct listing *s, int part, const struct point *p) {
  int64_t lo, hi, x = p->at[s->along], reach = s->variable[1].n_steps ? s->steps[1] : 0;
  range_of(s, part, &lo, &hi);
  for (int dim = 0; dim < Y; dim++)
    if (axis_of(s, dim) && (p->at[dim] < axis_of(s, dim)->start || p->at[dim] >= end_of(s, dim)))
      return INSITU_DROP_RANGE;
  for (int dim = 0; dim < Y; dim++) {
    const insitu_axis *axis = axis_of(s, dim);
    if (axis && axis->stride && (uint64_t)(p->at[dim] - axis->start) % axis->stride)
      return INSITU_DROP_STRIDE;
  }
  if (!p->listed) return INSITU_DROP_LIST;
  if (x < lo || x >= hi) return INSITU_DROP_OTHER_SPLIT;
  if (x + reach >= (int64_t)s->size[s->along]) return INSITU_DROP_ARCHIVE_EDGE;
  if (!s->desc.split_spill && x + reach >= hi) return INSITU_DROP_SPLIT_EDGE;
  return INSITU_DROPS;
}

/* All elements of a row of an array. */
static void check_row(const struct listing *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_array *a = &b->arrays[which];
  const struct support_array *stored = &s->array[which];
  const insitu_variable *v = &s->variable[which];
  uint64_t n_steps = v->n_steps ? v->n_steps : 1, each = 1, at[DIMS], extent[DIMS];
  int64_t index[DIMS] = {0};
  for (int k = 0; k < s->n_axes; k++)
    index[s->desc_of[k]] = b->axis_indices[row * b->n_axes + (uint64_t)k];
  for (int d = 0; d < stored->ndim; d++) {
    int dim = s->dim[which][d];
    bool sample = axis_of(s, dim) && !is_patch(s, dim);
    extent[d] = sample ? 1 : is_patch(s, dim) ? axis_of(s, dim)->patch : stored->shape[d];
    each *= extent[d];
  }
  assert_int_equal(a->row_bytes, n_steps * each * (uint64_t)(a->dtype & 0xff) / 8);
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = stored->ndim; d-- > 0; rest /= extent[d]) {
      at[d] = rest % extent[d] + (uint64_t)index[s->dim[which][d]];
      if (s->dim[which][d] == s->along && v->n_steps) at[d] += (uint64_t)v->steps[k / each];
    }
    double got = support_get(
        (const char *)a->data + (row * n_steps * each + k) * (uint64_t)(a->dtype & 0xff) / 8,
        a->dtype);
    if (got != support_as(a->dtype, support_expect(stored, at)))
      fail_msg("%s, row %d, element %d: %g", a->name, (int)row, (int)k, got);
  }
}

/* The point of a row; of drawn patches the sample. */
static int point_of(const struct listing *s, const int64_t *index) {
  for (int i = 0; i < s->n_points; i++) {
    bool same = true;
    for (int k = 0; k < s->n_axes; k++) {
      int dim = s->desc_of[k];
      if (!s->drawn || dim < Y) same = same && s->point[i].at[dim] == index[k];
    }
    if (same) return i;
  }
  fail_msg("a row shows what is no sample");
  return -1;
}

/* The order that the model has of an epoch, by the public functions; no patches. place: the point
 * at each number within a unit. */
static insitu_order *open_order(const struct listing *s, const insitu_plan *plan, uint64_t epoch,
    bool sequential, int (*unit)[SAMPLES]) {
  static uint64_t irregular[MOST][2];
  static int length[MOST];
  int n = 0;
  uint64_t n_short = 0, world = (uint64_t)(s->desc.world ? s->desc.world : 1);
  const struct point *last = NULL;
  for (int i = 0; i < s->n_points; i++) {
    const struct point *p = &s->point[i];
    if (p->drop != INSITU_DROPS) continue;
    bool same = last != NULL;
    for (int dim = 0; same && dim < Y; dim++)
      same = !axis_of(s, dim) || p->cell[dim] == last->cell[dim];
    if (!same) length[n++] = 0;
    last = p;
    unit[n - 1][length[n - 1]++] = i;
  }
  for (int u = 0; u < n; u++)
    if ((uint64_t)length[u] < plan->unit_rows) {
      irregular[n_short][0] = (uint64_t)u;
      irregular[n_short++][1] = (uint64_t)length[u];
    }
  assert_int_equal(plan->units, n);
  insitu_order_desc d = {.api = INSITU_API,
      .sequential = sequential,
      .units = (uint64_t)n,
      .unit_rows = plan->unit_rows,
      .seed = s->desc.seed,
      .epoch = epoch,
      .global_batch = s->desc.batch_size * world,
      .lanes = plan->lanes,
      .window = plan->window,
      .irregular = irregular[0],
      .n_irregular = n_short};
  insitu_order *o;
  insitu_error err = {0};
  if (insitu_order_open(&d, &o, &err)) fail_msg("%s", err.message);
  return o;
}

/* Counts of one part. */
static uint64_t check_plan(
    struct listing *s, insitu_loader *ld, const insitu_iter_desc *d, insitu_plan *plan) {
  uint64_t dropped[INSITU_DROPS] = {0}, kept = 0, each = (uint64_t)s->each;
  insitu_error err = {0};
  for (int i = 0; i < s->n_points; i++) {
    struct point *p = &s->point[i];
    p->drop = drop_of(s, d->split, p);
    if (p->drop == INSITU_DROPS) kept += each;
    else dropped[p->drop] += each;
  }
  insitu_status status = insitu_loader_plan(ld, d, plan, &err);
  uint64_t world = (uint64_t)(s->desc.world ? s->desc.world : 1);
  bool sequential = d->order == INSITU_SEQUENTIAL;
  if (kept < (sequential ? 1 : s->desc.batch_size * world)) {
    assert_int_equal(status, INSITU_E_SPLIT);
    return 0;
  }
  if (status) fail_msg("%s", err.message);
  dropped[INSITU_DROP_TAIL] = sequential ? 0 : kept % (s->desc.batch_size * world);
  assert_int_equal(plan->space, (uint64_t)s->n_points * each);
  for (int r = 0; r < INSITU_DROPS; r++)
    if (plan->dropped[r] != dropped[r])
      fail_msg("%s: %d, not %d", insitu_drop_name(r), (int)plan->dropped[r], (int)dropped[r]);
  assert_int_equal(plan->samples, kept);
  assert_int_equal(plan->estimated, 0);
  return kept;
}

/* An epoch of one part: samples of the list alone, each as often as it has patches, in the order of
 * the model, with their values. */
static void check_epoch(struct listing *s, insitu_loader *ld, insitu_iter *it,
    const insitu_iter_desc *d, const insitu_plan *plan, uint64_t epoch,
    const insitu_stats *before) {
  static int unit[SAMPLES][SAMPLES], seen[MOST];
  bool sequential = d->order == INSITU_SEQUENTIAL;
  insitu_order *o = s->patched ? NULL : open_order(s, plan, epoch, sequential, unit);
  insitu_stats after;
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status;
  uint64_t rows = 0;
  memset(seen, 0, sizeof seen);
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, rows++) {
      const int64_t *index = b->axis_indices + row * b->n_axes;
      int64_t located[COLUMNS];
      assert_int_equal(insitu_iter_locate(it, epoch, b->index, row, located, &err), INSITU_OK);
      assert_memory_equal(located, index, b->n_axes * sizeof *index);
      int i = point_of(s, index);
      assert_int_equal(s->point[i].drop, INSITU_DROPS);
      assert_true(seen[i]++ < s->each);
      if (o) {
        insitu_order_place place;
        assert_int_equal(
            insitu_order_at(o, b->index * s->desc.batch_size + row, &place), INSITU_OK);
        assert_int_equal(unit[place.unit][place.within], i);
      }
      for (int which = 0; which < 2; which++) check_row(s, b, which, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  assert_int_equal(rows, plan->rows);
  assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
  if (!epoch && after.reads - before->reads != plan->reads)
    fail_msg("%d reads, not %d", (int)(after.reads - before->reads), (int)plan->reads);
  if (!epoch) assert_int_equal(after.rereads - before->rereads, plan->reads - plan->distinct);
  insitu_order_close(&o);
}

static void listed_samples(void **state) {
  (void)state;
  static struct listing s;
  int checked = 0;
  for (int round = 0; round < support_rounds(300); round++) {
    draw_listing(&s);
    insitu_loader *ld;
    insitu_error err = {0};
    if (insitu_loader_open(&s.desc, &ld, &err)) fail_msg("%s", err.message);
    const insitu_loader_desc *config = insitu_loader_config(ld);
    assert_null(config->samples);
    assert_int_equal(config->n_samples, s.desc.n_samples);
    bool split = s.desc.split[0].stop;
    for (int part = split ? 0 : INSITU_ALL; part <= INSITU_ALL; part++)
      for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
        insitu_iter_desc d = {.api = INSITU_API, .split = part, .order = order};
        insitu_iter *it;
        insitu_plan plan;
        if (part == INSITU_TEST || !check_plan(&s, ld, &d, &plan)) continue;
        insitu_stats before;
        assert_int_equal(insitu_loader_stats(ld, &before, NULL), INSITU_OK);
        it = open_iter_or_fail(ld, &d);
        for (uint64_t epoch = 0; epoch < 2; epoch++)
          check_epoch(&s, ld, it, &d, &plan, epoch, &before);
        insitu_iter_close(&it);
        checked++;
      }
    insitu_loader_close(&ld);
    support_remove(s.root);
  }
  assert_true(checked > support_rounds(300));
}

/* The indexes of all rows that an iterator delivers from where it is to the end of the epoch. */
static uint64_t collect(insitu_iter *it, int64_t *to, insitu_state *after, uint64_t stop) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status = INSITU_OK;
  uint64_t n = 0;
  for (uint64_t k = 0; k < stop; k++) {
    if ((status = insitu_iter_next(it, 20000, &b, &err))) break;
    memcpy(to + n, b->axis_indices, b->rows * b->n_axes * sizeof *to);
    n += b->rows * b->n_axes;
    *after = b->after;
    insitu_batch_release(&b);
  }
  if (status && status != INSITU_END) fail_msg("%s", err.message);
  return n;
}

/* A state continues in units of another size, at another world size, and not with another list. */
static void states_and_ranks(void **state) {
  (void)state;
  static struct listing s;
  static int64_t whole[MOST * COLUMNS], part[2][MOST * COLUMNS];
  int checked = 0;
  for (int round = 0; round < support_rounds(200); round++) {
    draw_listing(&s);
    insitu_error err = {0};
    insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
    insitu_loader_desc desc = s.desc;
    desc.batch_size = 4;
    desc.lanes = 2;
    desc.prefetch_depth = 4;
    insitu_loader *ld = open_or_fail(&desc);
    insitu_iter *it;
    if (insitu_iter_open(ld, &d, &it, &err)) {
      insitu_loader_close(&ld);
      support_remove(s.root);
      continue;
    }
    insitu_state after, other;
    uint64_t columns = (uint64_t)s.n_axes, n = collect(it, whole, &after, 1);
    insitu_iter_close(&it);

    /* two ranks, with the units of the state */
    insitu_loader_desc half = desc;
    half.world = 2;
    half.batch_size = 2;
    half.unit_chunks = half.block_chunks = half.lanes = 0;
    if (round % 2) half.lanes = 2;
    insitu_loader *ranks[2];
    insitu_iter *its[2];
    uint64_t rows[2], rest;
    for (int r = 0; r < 2; r++) {
      half.rank = r;
      half.lanes = 2; /* so that they can be opened */
      ranks[r] = open_or_fail(&half);
      its[r] = open_iter_or_fail(ranks[r], &d);
      if (insitu_iter_restore(its[r], &after, &err)) fail_msg("%s", err.message);
      rows[r] = collect(its[r], part[r], &other, UINT64_MAX);
      insitu_iter_close(&its[r]);
      insitu_loader_close(&ranks[r]);
    }
    it = open_iter_or_fail(ld, &d);
    uint64_t all = collect(it, whole, &other, UINT64_MAX);
    rest = all - n;
    assert_int_equal(rows[0] + rows[1], rest);
    for (uint64_t row = 0; row < rest / columns; row++)
      assert_memory_equal(
          whole + n + row * columns, part[row % 2] + row / 2 * columns, columns * sizeof *whole);

    /* one sample less */
    desc.n_samples--;
    bool took_part = true;
    const int64_t *last = desc.samples + desc.n_samples * (uint64_t)(s.drawn ? 1 : s.n_axes);
    if (!s.drawn && desc.n_samples >= 8) {
      int i = point_of(&s, last);
      took_part = drop_of(&s, INSITU_ALL, &s.point[i]) == INSITU_DROPS;
      insitu_loader *less = open_or_fail(&desc);
      insitu_iter *of;
      if (!insitu_iter_open(less, &d, &of, &err)) {
        insitu_status got = insitu_iter_restore(of, &after, &err);
        if (got != (took_part ? INSITU_E_STATE : INSITU_OK)) fail_msg("%s", err.message);
        insitu_iter_close(&of);
        checked++;
      }
      insitu_loader_close(&less);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(s.root);
  }
  if (checked < support_rounds(200) / 40) fail_msg("%d", checked);
}

/* Strides longer than chunks make longer units, also of listed samples: a state knows them. */
static void strides(void **state) {
  (void)state;
  const char *root = support_path("strides");
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {40, 3},
      .chunk = {4, 3},
      .dtype = INSITU_U8,
      .format = 3,
      .dims = "[\"time\",\"x\"]"};
  support_make(root, &a);
  static const int64_t list[] = {0, 5, 10, 15, 20, 25, 30, 35};
  insitu_variable v = {.label = "a"};
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
  insitu_state after, none;
  static int64_t rows[MOST];
  for (uint64_t stride = 0; stride <= 5; stride += 5) {
    insitu_axis axis = {.dim = "time", .stride = stride};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .axes = &axis,
        .n_axes = 1,
        .samples = list,
        .n_samples = 8,
        .batch_size = 2,
        .lanes = 1,
        .block_chunks = 4};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &id);
    insitu_error err = {0};
    if (stride) assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_E_STATE);
    assert_int_equal(collect(it, rows, stride ? &none : &after, 1), 2);
    assert_int_equal(insitu_iter_restore(it, stride ? &none : &after, &err), INSITU_OK);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Lists that cannot be meant. */
static void wrong(void **state) {
  (void)state;
  char root[600];
  snprintf(root, sizeof root, "%s", support_path("wrong"));
  struct support_array a = {.name = "a",
      .ndim = 3,
      .shape = {6, 8, 8},
      .chunk = {2, 4, 4},
      .dtype = INSITU_U8,
      .format = 3,
      .dims = "[\"time\",\"y\",\"x\"]"};
  support_make(root, &a);
  insitu_variable v = {.label = "a"};
  const insitu_axis two[] = {{.dim = "time"}, {.dim = "y"}};
  const insitu_axis grid[] = {{.dim = "time"}, {.dim = "y", .patch = 3}};
  static const struct {
    int64_t list[6];
    uint64_t n;
    int axes; /* 0: none, 1: two, 2: a grid, 3: drawn patches */
    const char *message;
  } cases[] = {{{0, 6}, 2, 0, "samples[1] is 6 along axis 0, which has 6"},
      {{-1}, 1, 0, "samples[0] is -1"}, {{4, 2, 4}, 3, 0, "samples[0] and samples[2] are the same"},
      {{0, 1, 3, 8}, 2, 1, "samples[1] is 8 along axis 1, which has 8 indexes"},
      {{3, 1, 0, 1, 3, 1}, 3, 1, "samples[0] and samples[2] are the same"},
      {{0, 1}, 1, 2, "samples[0]: no patch of the grid begins at 1 along axes[1]"},
      {{0, 3, 0, 6}, 2, 2, "samples[1]: no patch of the grid begins at 6"},
      {{2, 3, 0, 0, 2, 3}, 3, 2, "samples[0] and samples[2] are the same"},
      {{5, 7}, 2, 3, "samples[1] is 7 along axis 0"}, {{5, 5}, 2, 3, "are the same"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .samples = cases[i].list,
        .n_samples = cases[i].n,
        .patches = cases[i].axes == 3 ? 2 : 0,
        .axes = cases[i].axes > 1   ? grid
                : cases[i].axes > 0 ? two
                                    : NULL,
        .n_axes = cases[i].axes ? 2 : 0};
    insitu_loader *ld;
    insitu_error err = {0};
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
    if (!strstr(err.message, cases[i].message)) fail_msg("%s", err.message);
  }

  int64_t some[] = {5};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_loader_desc d = {.api = INSITU_API, .url = root, .variables = &v, .n_variables = 1};
  d.samples = some;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "all samples take part"));
  d.samples = NULL;
  d.n_samples = 1;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  d.samples = some;
  d.sample_stop = 5; /* what is listed takes no part */
  ld = open_or_fail(&d);
  insitu_iter *it;
  assert_int_equal(
      insitu_iter_open(
          ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = 2}, &it, &err),
      INSITU_E_SPLIT);
  assert_non_null(strstr(err.message, "not in the list of samples: 5"));
  assert_non_null(strstr(err.message, "list more samples"));
  insitu_loader_close(&ld);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(listed_samples),
      cmocka_unit_test(states_and_ranks), cmocka_unit_test(strides), cmocka_unit_test(wrong)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
