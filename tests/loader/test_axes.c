/* Samples that are drawn along several axes: the whole draw space, its order and its values,
 * against a model that lists everything. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"

enum { NAMES = 4, MOST = 8, UNITS = 4096, ANCHORS = 8192, REACH = 2 };
static const char *const dim_names[NAMES] = {"a", "b", "c", "d"};

/* A configuration, drawn at random, and all that the model says of it. */
struct space {
  const char *root;
  int format;
  uint64_t size[NAMES];
  struct support_array array[2];
  int dim[2][NAMES]; /* of each array's axis, the number of its name */
  insitu_axis axes[NAMES];
  int drawn[NAMES]; /* the number of each axis' name */
  int n, along;
  uint64_t chunk[NAMES], unit_chunks; /* of each drawn axis: the reference chunk */
  int64_t steps[2][3];
  uint64_t shown[2]; /* of the variables' steps, by the iterator */
  int owner[MOST];   /* of each index on the axis `along`: its part, or -1 */
  insitu_variable variable[2];
  insitu_loader_desc desc;
  char manifest[700];

  /* of one part: units along each axis, as lists of indexes */
  struct line {
    int64_t at[MOST][MOST];
    int length[MOST], n;
  } line[NAMES];
  /* units of the part, in the order of a sequential epoch, and in that of their numbers */
  int n_units, n_anchors, n_classes, most;
  int unit[UNITS][NAMES], numbered[UNITS];
  uint64_t classes[UNITS][2];
};

static bool has(const int *list, int n, int name) {
  for (int i = 0; i < n; i++)
    if (list[i] == name) return true;
  return false;
}

/* An array with the drawn axes, some of the others, and all of them in any order. */
static void draw_array(struct space *s, int which) {
  struct support_array *a = &s->array[which];
  static char dims[2][64];
  int order[NAMES] = {0, 1, 2, 3};
  *a = (struct support_array){.name = which ? "u" : "t",
      .dtype = which ? INSITU_I16 : INSITU_I32,
      .format = s->format,
      .zstd = support_below(2),
      .dims = dims[which]};
  a->fortran = a->format == 2 && support_below(2);
  bool in_order = support_below(2); /* the drawn axes first: rows then follow each other */
  for (int i = NAMES; i-- > 1;) {
    int j = (int)support_below((uint64_t)i + 1), other = order[i];
    order[i] = order[j];
    order[j] = other;
  }
  strcpy(dims[which], "[");
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < NAMES; i++) {
      int name = order[i];
      if (in_order && !pass) name = i < s->n ? s->drawn[i] : -1;
      if (name < 0) continue;
      bool drawn = has(s->drawn, s->n, name);
      if (in_order ? drawn == !!pass : pass) continue;
      if (!drawn && !support_below(3)) continue;
      int d = a->ndim++;
      s->dim[which][d] = name;
      a->shape[d] = s->size[name];
      a->chunk[d] = 1 + support_below(a->shape[d]);
      sprintf(dims[which] + strlen(dims[which]), "%s\"%s\"", d ? "," : "", dim_names[name]);
    }
  strcat(dims[which], "]");
  for (int d = 0; a->format == 3 && d < a->ndim; d++) a->shard[d] = 1 + support_below(2);
  if (support_below(2)) memset(a->shard, 0, sizeof a->shard);
  a->absent = support_below(3) ? 0 : 3;
  support_make(s->root, a);
}

static void draw_space(struct space *s, const char *root) {
  memset(s, 0, sizeof *s);
  s->root = root;
  s->format = 2 + (int)support_below(2);
  for (int i = 0; i < NAMES; i++) s->size[i] = 1 + support_below(MOST);
  for (s->n = 0; s->n < 1 + (int)support_below(3);) {
    int name = (int)support_below(NAMES);
    if (!has(s->drawn, s->n, name)) s->drawn[s->n++] = name;
  }
  s->along = (int)support_below((uint64_t)s->n);
  for (int which = 0; which < 2; which++) draw_array(s, which);
  for (int k = 0; k < s->n; k++) {
    uint64_t size = s->size[s->drawn[k]];
    insitu_axis *axis = &s->axes[k];
    axis->dim = dim_names[s->drawn[k]];
    if (support_below(2)) axis->stride = 1 + support_below(4);
    if (support_below(2)) axis->start = (int64_t)support_below(size);
    if (support_below(2))
      axis->stop = axis->start + 1 + (int64_t)support_below(size - (uint64_t)axis->start);
    for (int which = 0; which < 2; which++)
      for (int d = 0; d < s->array[which].ndim; d++)
        if (s->dim[which][d] == s->drawn[k] && s->array[which].chunk[d] > s->chunk[k])
          s->chunk[k] = s->array[which].chunk[d];
  }
  for (int which = 0; which < 2; which++) {
    insitu_variable *v = &s->variable[which];
    v->label = s->array[which].name;
    v->n_steps = support_below(4);
    v->steps = v->n_steps ? s->steps[which] : NULL;
    for (uint64_t i = 0; i < v->n_steps; i++)
      s->steps[which][i] = (int64_t)support_below(2 * REACH + 1) - REACH;
    if (support_below(2)) v->dtype = INSITU_F64;
    if (support_below(3)) v->offset = (int64_t)support_below(3) - 1;
  }
  int m = any_mode();
  s->unit_chunks = 1 + support_below(3);
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = s->variable,
      .n_variables = 2,
      .axes = s->axes,
      .n_axes = (uint64_t)s->n,
      .split_axis = s->along,
      .batch_size = 1 + support_below(4),
      .unit_chunks = s->unit_chunks,
      .block_chunks = 1 + support_below(12),
      .seed = support_random(),
      .split_spill = !support_below(4),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_ERROR, /* small splits lose much to their edges */
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
}

/* Which part each index of the axis `along` belongs to: chunks are dealt by a manifest. */
static void draw_split(struct space *s) {
  const insitu_axis *axis = &s->axes[s->along];
  uint64_t size = s->size[s->drawn[s->along]], chunk = s->chunk[s->along];
  int chunks = (int)((size + chunk - 1) / chunk), part[MOST];
  char lists[3][100] = {"", "", ""}, text[600], path[600];
  for (int c = 0; c < chunks; c++) {
    part[c] = (int)support_below(4) - 1;
    if (part[c] >= 0)
      sprintf(lists[part[c]] + strlen(lists[part[c]]), "%s%d", *lists[part[c]] ? "," : "", c);
  }
  snprintf(path, sizeof path, "%s", support_path("axes.json"));
  snprintf(text, sizeof text,
      "{\"n_chunks\":%d,\"sample_chunk_size\":%d,\"n_samples\":%d,\"seed\":0,\"chunks\":{"
      "\"train\":[%s],\"val\":[%s],\"test\":[%s]}}",
      chunks, (int)chunk, (int)size, lists[0], lists[1], lists[2]);
  support_write(path, text, strlen(text));
  snprintf(s->manifest, sizeof s->manifest, "%s", path);
  s->desc.manifest = s->manifest;
  int64_t stop = axis->stop ? axis->stop : (int64_t)size;
  for (int64_t x = 0; x < (int64_t)size; x++)
    s->owner[x] = x >= axis->start && x < stop ? part[x / (int64_t)chunk] : -1;
}

/* Whether a sample of the part may have index x on the axis `along`: all that it shows is there. */
static bool may(const struct space *s, int part, int64_t x) {
  const insitu_axis *axis = &s->axes[s->along];
  int64_t size = (int64_t)s->size[s->drawn[s->along]], stop = axis->stop ? axis->stop : size;
  if (part == INSITU_ALL ? x < axis->start || x >= stop : s->owner[x] != part) return false;
  for (int which = 0; which < 2; which++) {
    const insitu_variable *v = &s->variable[which];
    for (uint64_t i = 0; i < (v->n_steps ? v->n_steps : 1); i++) {
      int64_t y = x + v->offset + (v->n_steps ? v->steps[i] : 0);
      if (y < 0 || y >= size) return false;
      if (s->desc.split_spill) continue;
      if (part == INSITU_ALL ? y < axis->start || y >= stop : s->owner[y] != part) return false;
    }
  }
  return true;
}

/* Units of a line: a new one begins in each group of indexes, and behind each index that has no
 * part in it, but for those that a stride leaves out. */
static void list_line(struct space *s, int k, int part) {
  const insitu_axis *axis = &s->axes[k];
  struct line *line = &s->line[k];
  int64_t size = (int64_t)s->size[s->drawn[k]], stop = axis->stop ? axis->stop : size;
  uint64_t stride = axis->stride ? axis->stride : 1, rows = s->chunk[k], last_group = UINT64_MAX;
  if (k == s->along) rows *= s->unit_chunks;
  rows *= (stride + rows - 1) / rows;
  bool hole = true;
  line->n = 0;
  for (int64_t x = axis->start; x < stop; x++) {
    if (k == s->along && !may(s, part, x)) {
      hole = true;
      continue;
    }
    if ((uint64_t)(x - axis->start) % stride) continue;
    if (hole || (uint64_t)x / rows != last_group) line->length[line->n++] = 0;
    hole = false;
    last_group = (uint64_t)x / rows;
    line->at[line->n - 1][line->length[line->n - 1]++] = x;
  }
}

/* The number of a unit's size among the sizes of its line: the size that a group has at most, or
 * where no unit has it the largest, then sizes as they come. */
static int size_of(const struct space *s, int k, int unit) {
  const struct line *line = &s->line[k];
  int list[MOST], n = 1;
  list[0] = 0;
  for (int i = 0; i < line->n; i++)
    if (line->length[i] > list[0]) list[0] = line->length[i];
  for (int i = 0; i < line->n; i++)
    if (!has(list, n, line->length[i])) list[n++] = line->length[i];
  for (int i = 0; i < n; i++)
    if (list[i] == line->length[unit]) return i;
  return -1;
}

static int rows_of(const struct space *s, const int *unit) {
  int n = 1;
  for (int k = 0; k < s->n; k++) n *= s->line[k].length[unit[k]];
  return n;
}

/* Lists a part's units row-major, and gives them the numbers that a shuffled epoch deals: units
 * whose sizes are the same along every axis follow each other. */
static void list_part(struct space *s, int part) {
  s->n_units = 1;
  s->n_anchors = s->n_classes = s->most = 0;
  for (int k = 0; k < s->n; k++) {
    list_line(s, k, part);
    s->n_units *= s->line[k].n;
  }
  for (int u = 0; u < s->n_units; u++) {
    int rest = u;
    for (int k = s->n; k-- > 0; rest /= s->line[k].n) s->unit[u][k] = rest % s->line[k].n;
    int rows = rows_of(s, s->unit[u]);
    s->n_anchors += rows;
    if (rows > s->most) s->most = rows;
  }
  if (s->n == 1) {
    for (int u = 0; u < s->n_units; u++) s->numbered[u] = u;
    return;
  }
  int numbered = 0, combinations = 1, sizes[NAMES];
  for (int k = 0; k < s->n; k++) {
    sizes[k] = 0;
    for (int u = 0; u < s->line[k].n; u++)
      if (size_of(s, k, u) >= sizes[k]) sizes[k] = size_of(s, k, u) + 1;
    combinations *= sizes[k];
  }
  for (int c = 0; c < combinations; c++) {
    uint64_t units = 0, rows = 0;
    for (int u = 0; u < s->n_units; u++) {
      int class = 0;
      for (int k = 0; k < s->n; k++) class = class * sizes[k] + size_of(s, k, s->unit[u][k]);
      if (class != c) continue;
      s->numbered[numbered++] = u;
      rows = (uint64_t)rows_of(s, s->unit[u]);
      units++;
    }
    s->classes[s->n_classes][0] = units;
    s->classes[s->n_classes++][1] = rows;
  }
  assert_int_equal(numbered, s->n_units);
}

/* The anchor with number `within` of a unit: row-major over its lists of indexes. */
static void anchor_of(const struct space *s, const int *unit, int within, int64_t *anchor) {
  for (int k = s->n; k-- > 0;) {
    const struct line *line = &s->line[k];
    anchor[k] = line->at[unit[k]][within % line->length[unit[k]]];
    within /= line->length[unit[k]];
  }
}

/* What stands at a place of the sequential order. */
static void sequential(const struct space *s, int place, int64_t *anchor) {
  int u = 0;
  while (place >= rows_of(s, s->unit[u])) place -= rows_of(s, s->unit[u++]);
  anchor_of(s, s->unit[u], place, anchor);
}

/* The order of a shuffled epoch, by the public functions and the model's list of units. */
static insitu_order *open_order(const struct space *s, const insitu_plan *plan, uint64_t epoch) {
  static uint64_t irregular[UNITS][2];
  uint64_t n = 0, world = (uint64_t)(s->desc.world ? s->desc.world : 1);
  insitu_order_desc d = {.api = INSITU_API,
      .units = (uint64_t)s->n_units,
      .unit_rows = plan->unit_rows,
      .seed = s->desc.seed,
      .epoch = epoch,
      .global_batch = s->desc.batch_size * world,
      .lanes = plan->lanes,
      .window = plan->window};
  if (s->n == 1) {
    for (int u = 0; u < s->n_units; u++)
      if ((uint64_t)rows_of(s, s->unit[u]) < plan->unit_rows) {
        irregular[n][0] = (uint64_t)u;
        irregular[n++][1] = (uint64_t)rows_of(s, s->unit[u]);
      }
    d.irregular = irregular[0];
    d.n_irregular = n;
  } else {
    d.classes = s->classes[0];
    d.n_classes = (uint64_t)s->n_classes;
  }
  insitu_order *o;
  insitu_error err = {0};
  if (insitu_order_open(&d, &o, &err)) fail_msg("%s", err.message);
  return o;
}

/* All elements of a row of an array of the batch. */
static void check_row(const struct space *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_array *a = &b->arrays[which];
  const struct support_array *stored = &s->array[which];
  const insitu_variable *v = &s->variable[which];
  const int64_t *anchor = b->axis_indices + row * b->n_axes;
  uint64_t each = 1, n_steps = s->shown[which], at[NAMES];
  int shown = v->n_steps ? 2 : 1;
  for (int d = 0; d < stored->ndim; d++)
    if (!has(s->drawn, s->n, s->dim[which][d])) {
      assert_int_equal(a->shape[shown++], stored->shape[d]);
      each *= stored->shape[d];
    }
  assert_int_equal(a->ndim, shown);
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = stored->ndim; d-- > 0;) {
      int name = s->dim[which][d];
      if (has(s->drawn, s->n, name)) continue;
      at[d] = rest % stored->shape[d];
      rest /= stored->shape[d];
    }
    for (int i = 0; i < s->n; i++)
      for (int d = 0; d < stored->ndim; d++)
        if (s->dim[which][d] == s->drawn[i])
          at[d] =
              (uint64_t)(anchor[i] +
                         (i == s->along ? v->offset + (v->n_steps ? v->steps[k / each] : 0) : 0));
    double got = support_get(
        (const char *)a->data + (row * n_steps * each + k) * (uint64_t)(a->dtype & 0xff) / 8,
        a->dtype);
    if (got != support_as(a->dtype, support_expect(stored, at)))
      fail_msg("%s, row %d, element %d: %g, not %g", a->name, (int)row, (int)k, got,
          support_expect(stored, at));
  }
}

/* The first reason that takes a place of the whole archive from a part, but for the tail. */
static int drop_of(const struct space *s, int part, const int64_t *place) {
  const insitu_axis *axis = &s->axes[s->along];
  int64_t size = (int64_t)s->size[s->drawn[s->along]], stop = axis->stop ? axis->stop : size;
  int64_t x = place[s->along];
  for (int k = 0; k < s->n; k++)
    if (place[k] < s->axes[k].start || (s->axes[k].stop && place[k] >= s->axes[k].stop))
      return INSITU_DROP_RANGE;
  for (int k = 0; k < s->n; k++)
    if (s->axes[k].stride && (uint64_t)(place[k] - s->axes[k].start) % s->axes[k].stride)
      return INSITU_DROP_STRIDE;
  if (part != INSITU_ALL && s->owner[x] != part) return INSITU_DROP_OTHER_SPLIT;
  int drop = INSITU_DROPS;
  for (int which = 0; which < 2; which++) {
    const insitu_variable *v = &s->variable[which];
    for (uint64_t i = 0; i < (v->n_steps ? v->n_steps : 1); i++) {
      int64_t y = x + v->offset + (v->n_steps ? v->steps[i] : 0);
      if (y < 0 || y >= size) return INSITU_DROP_ARCHIVE_EDGE;
      bool out = part == INSITU_ALL ? y < axis->start || y >= stop : s->owner[y] != part;
      if (out && !s->desc.split_spill) drop = INSITU_DROP_SPLIT_EDGE;
    }
  }
  return drop;
}

/* The table of drops against every place of the archive. */
static void check_drops(const struct space *s, int part, bool shuffled, const insitu_plan *plan) {
  uint64_t space = 1, want[INSITU_DROPS + 1] = {0}, delivered = plan->space;
  for (int k = 0; k < s->n; k++) space *= s->size[s->drawn[k]];
  for (uint64_t p = 0; p < space; p++) {
    int64_t place[NAMES];
    uint64_t rest = p;
    for (int k = 0; k < s->n; k++) {
      place[k] = (int64_t)(rest % s->size[s->drawn[k]]);
      rest /= s->size[s->drawn[k]];
    }
    want[drop_of(s, part, place)]++;
  }
  if (shuffled) want[INSITU_DROP_TAIL] = want[INSITU_DROPS] % s->desc.batch_size;
  assert_int_equal(plan->space, space);
  assert_memory_equal(plan->dropped, want, sizeof plan->dropped);
  for (int r = 0; r < INSITU_DROPS; r++) delivered -= plan->dropped[r];
  assert_int_equal(delivered, shuffled ? plan->batches * s->desc.batch_size : plan->samples);
}

/* One epoch of an iterator against the model. reads: of the loader when it was opened. */
static void check_epoch(struct space *s, insitu_loader *ld, insitu_iter *it,
    const insitu_iter_desc *d, uint64_t epoch, uint64_t reads) {
  insitu_plan plan;
  insitu_error err = {0};
  if (insitu_loader_plan(ld, d, &plan, &err)) fail_msg("%s", err.message);
  assert_int_equal(plan.units, s->n_units);
  assert_int_equal(plan.samples, s->n_anchors);
  bool shuffled = d->order == INSITU_SHUFFLED;
  check_drops(s, d->split, shuffled, &plan);
  insitu_order *o = shuffled ? open_order(s, &plan, epoch) : NULL;
  uint64_t place = 0, first = 0;
  insitu_stats after;
  insitu_batch *b;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->n_axes, s->n);
    if (b->index == 0) first = place;
    for (uint64_t row = 0; row < b->rows; row++, place++) {
      int64_t want[NAMES], located[NAMES];
      if (shuffled) {
        insitu_order_place at;
        assert_int_equal(insitu_order_at(o, place, &at), INSITU_OK);
        anchor_of(s, s->unit[s->numbered[at.unit]], (int)at.within, want);
      } else {
        sequential(s, (int)place, want);
      }
      assert_memory_equal(b->axis_indices + row * b->n_axes, want, b->n_axes * sizeof *want);
      assert_int_equal(b->sample_indices[row], want[0]);
      assert_int_equal(insitu_iter_locate(it, epoch, b->index, row, located, &err), INSITU_OK);
      assert_memory_equal(located, want, b->n_axes * sizeof *want);
      for (int which = 0; which < 2; which++) check_row(s, b, which, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
  assert_int_equal(place - first, shuffled ? plan.batches * s->desc.batch_size : plan.samples);
  if (!epoch && !plan.estimated) assert_int_equal(after.reads - reads, plan.reads);
  insitu_order_close(&o);
}

/* Lets the iterator show as many steps of each array as are drawn. */
static void draw_steps(struct space *s, insitu_iter *it) {
  insitu_error err = {0};
  for (int which = 0; which < 2; which++) {
    const insitu_variable *v = &s->variable[which];
    if (!v->n_steps || support_below(2)) continue;
    s->shown[which] = 1 + support_below(v->n_steps);
    if (insitu_iter_set_steps(it, v->label, s->shown[which], &err)) fail_msg("%s", err.message);
  }
}

/* Everything against the model, for spaces that are drawn at random. */
static void drawn_spaces(void **state) {
  (void)state;
  static struct space s;
  char root[600];
  snprintf(root, sizeof root, "%s", support_path("axes"));
  int checked = 0;
  for (int round = 0; round < 250; round++) {
    draw_space(&s, root);
    draw_split(&s);
    insitu_loader *ld;
    insitu_error err = {0};
    if (insitu_loader_open(&s.desc, &ld, &err)) fail_msg("%s", err.message);
    for (int part = 0; part < 4; part++) {
      insitu_iter_desc d = {.api = INSITU_API,
          .split = part,
          .order = support_below(2) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL};
      insitu_iter *it;
      list_part(&s, part);
      bool enough = s.n_anchors >= (d.order == INSITU_SHUFFLED ? (int)s.desc.batch_size : 1);
      insitu_stats before;
      assert_int_equal(insitu_loader_stats(ld, &before, NULL), INSITU_OK);
      insitu_status status = insitu_iter_open(ld, &d, &it, &err);
      if (!enough) {
        assert_int_equal(status, INSITU_E_SPLIT);
        continue;
      }
      if (status) fail_msg("%s", err.message);
      for (int which = 0; which < 2; which++)
        s.shown[which] = s.variable[which].n_steps ? s.variable[which].n_steps : 1;
      for (uint64_t epoch = 0; epoch < 3; epoch++) {
        if (epoch) draw_steps(&s, it);
        check_epoch(&s, ld, it, &d, epoch, before.reads);
      }
      checked += s.n > 1;
      insitu_iter_close(&it);
    }
    insitu_loader_close(&ld);
    support_remove(root);
  }
  assert_true(checked > 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(drawn_spaces),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
