/* Samples that are drawn along several axes: the whole draw space, its order and its values,
 * against a model that lists everything. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"
#include "unit_model.h"

enum { NAMES = 4, MOST = 8, ANCHORS = 8192, REACH = 2 };
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

  struct units units; /* of one part */
};

/* An array with the drawn axes, some of the others, and all of them in any order. */
static void draw_array(struct space *s, int which) {
  struct support_array *a = &s->array[which];
  static char dims[2][64];
  int order[NAMES] = {0, 1, 2, 3};
  *a = (struct support_array){
      .name = which ? "u" : "t", .dtype = which ? INSITU_I16 : INSITU_I32, .dims = dims[which]};
  bool in_order = support_below(2); /* the drawn axes first: rows then follow each other */
  support_shuffle(order, NAMES);
  strcpy(dims[which], "[");
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < NAMES; i++) {
      int name = order[i];
      if (in_order && !pass) name = i < s->n ? s->drawn[i] : -1;
      if (name < 0) continue;
      bool drawn = unit_has(s->drawn, s->n, name);
      if (in_order ? drawn == !!pass : pass) continue;
      if (!drawn && !support_below(3)) continue;
      int d = a->ndim++;
      s->dim[which][d] = name;
      a->shape[d] = s->size[name];
      sprintf(dims[which] + strlen(dims[which]), "%s\"%s\"", d ? "," : "", dim_names[name]);
    }
  strcat(dims[which], "]");
  support_layout(a, s->format);
  support_make(s->root, a);
}

static void draw_space(struct space *s, const char *root) {
  memset(s, 0, sizeof *s);
  s->root = root;
  s->format = 2 + (int)support_below(2);
  for (int i = 0; i < NAMES; i++) s->size[i] = 1 + support_below(MOST);
  for (s->n = 0; s->n < 1 + (int)support_below(3);) {
    int name = (int)support_below(NAMES);
    if (!unit_has(s->drawn, s->n, name)) s->drawn[s->n++] = name;
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
  struct line *line = &s->units.line[k];
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

static void list_part(struct space *s, int part) {
  s->units.n = s->n;
  for (int k = 0; k < s->n; k++) list_line(s, k, part);
  unit_list(&s->units);
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
    if (!unit_has(s->drawn, s->n, s->dim[which][d])) {
      assert_int_equal(a->shape[shown++], stored->shape[d]);
      each *= stored->shape[d];
    }
  assert_int_equal(a->ndim, shown);
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = stored->ndim; d-- > 0;) {
      int name = s->dim[which][d];
      if (unit_has(s->drawn, s->n, name)) continue;
      at[d] = rest % stored->shape[d];
      rest /= stored->shape[d];
    }
    for (int i = 0; i < s->n; i++)
      for (int d = 0; d < stored->ndim; d++)
        if (s->dim[which][d] == s->drawn[i])
          at[d] =
              (uint64_t)(anchor[i] +
                         (i == s->along ? v->offset + (v->n_steps ? v->steps[k / each] : 0) : 0));
    support_same(a->data, a->dtype, row * n_steps * each + k, support_expect(stored, at), a->name);
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
  assert_int_equal(plan.units, s->units.n_units);
  assert_int_equal(plan.samples, s->units.n_anchors);
  bool shuffled = d->order == INSITU_SHUFFLED;
  check_drops(s, d->split, shuffled, &plan);
  insitu_order *o = shuffled ? unit_order(&s->units, &s->desc, &plan, epoch) : NULL;
  uint64_t place = 0, first = 0;
  insitu_stats after;
  insitu_batch *b;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->n_axes, s->n);
    if (b->index == 0) first = place;
    for (uint64_t row = 0; row < b->rows; row++, place++) {
      int64_t want[NAMES], located[NAMES];
      if (shuffled) unit_shuffled(&s->units, o, place, want);
      else unit_sequential(&s->units, (int)place, want);
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
  for (int round = 0; round < support_rounds(250); round++) {
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
      bool enough = s.units.n_anchors >= (d.order == INSITU_SHUFFLED ? (int)s.desc.batch_size : 1);
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
  assert_true(checked > 5);
}

/* ---- a hindcast: forecasts that begin on some day, for some days ahead ---- */

enum { INIT = 23, LEAD = 9, STATION = 3, MOST_ROWS = INIT * LEAD };

static struct support_array hindcast(void) {
  return (struct support_array){.name = "t",
      .ndim = 3,
      .shape = {INIT, LEAD, STATION},
      .chunk = {4, 2, 2},
      .dtype = INSITU_I32,
      .format = 3,
      .zstd = true,
      .dims = "[\"init\", \"lead\", \"station\"]"};
}

/* What all of its tests open: every other lead, and at each sample the forecast of a day before. */
static const int64_t days[] = {0, -1};
static const insitu_variable hindcast_v = {.label = "t", .steps = days, .n_steps = 2};
static const insitu_axis hindcast_axes[] = {
    {.dim = "init", .start = 2}, {.dim = "lead", .start = 1, .stride = 2}};

static insitu_loader_desc hindcast_desc(const char *root) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &hindcast_v,
      .n_variables = 1,
      .axes = hindcast_axes,
      .n_axes = 2,
      .batch_size = 12,
      .lanes = 6,
      .block_chunks = 12,
      .seed = 5,
      .split = {{.fraction = 1}}};
}

struct sample {
  int64_t init, lead;
};

/* Adds the rows of a batch, whose elements it looks at, to a list; returns how many. */
static uint64_t take(const insitu_batch *b, struct sample *list) {
  const struct support_array t = hindcast();
  const int32_t *shown = b->arrays[0].data;
  assert_int_equal(b->n_axes, 2);
  for (uint64_t row = 0; row < b->rows; row++) {
    list[row] = (struct sample){b->axis_indices[2 * row], b->axis_indices[2 * row + 1]};
    assert_int_equal(b->sample_indices[row], list[row].init);
    for (int step = 0; step < 2; step++)
      for (uint64_t x = 0; x < STATION; x++) {
        uint64_t at[] = {(uint64_t)(list[row].init + days[step]), (uint64_t)list[row].lead, x};
        assert_int_equal(*shown++, support_expect(&t, at));
      }
  }
  return b->rows;
}

/* The rows of an epoch, batch for batch: batch i begins with row first[i]. */
struct epoch {
  struct sample row[MOST_ROWS];
  uint64_t first[MOST_ROWS + 1], batches;
};

static void read_epoch(insitu_iter *it, struct epoch *e) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  e->batches = e->first[0] = 0;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    e->first[e->batches + 1] = e->first[e->batches] + take(b, e->row + e->first[e->batches]);
    e->batches++;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
}

/* Ranks together deliver the batches of one process: of each lane the rows that it has there. */
static void ranks(void **state) {
  (void)state;
  static struct epoch alone, e;
  const char *root = support_path("ranks");
  struct support_array t = hindcast();
  support_make(root, &t);
  for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
    insitu_iter_desc id = {.api = INSITU_API, .order = order, .epoch = 3};
    for (int world = 1; world <= 6; world++) {
      uint64_t next = 0;
      if (world == 4 || world == 5) continue; /* no divisors of the lanes */
      for (int rank = 0; rank < world; rank++) {
        insitu_loader_desc d = hindcast_desc(root);
        d.rank = rank;
        d.world = world;
        d.batch_size /= (uint64_t)world;
        d.inline_io = rank & 1;
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = open_iter_or_fail(ld, &id);
        read_epoch(it, world == 1 ? &alone : &e);
        insitu_iter_close(&it);
        insitu_loader_close(&ld);
        if (world == 1) continue;
        if (order == INSITU_SEQUENTIAL) { /* a contiguous part each */
          uint64_t n = e.first[e.batches];
          assert_memory_equal(e.row, alone.row + next, n * sizeof *e.row);
          next += n;
          continue;
        }
        assert_int_equal(e.batches, alone.batches);
        for (uint64_t b = 0, at = 0; b < e.batches; b++)
          for (uint64_t i = alone.first[b]; i < alone.first[b + 1]; i++)
            if ((int)((i - alone.first[b]) % 6) * world / 6 == rank)
              assert_memory_equal(&e.row[at++], &alone.row[i], sizeof *e.row);
      }
      if (world > 1 && order == INSITU_SEQUENTIAL)
        assert_int_equal(next, alone.first[alone.batches]);
    }
    if (order == INSITU_SHUFFLED) continue;
    /* each sample once: 20 days, because the first has none before it, and 4 leads */
    uint64_t n = alone.first[alone.batches];
    assert_int_equal(n, (INIT - 3) * 4);
    bool seen[INIT][LEAD] = {{false}};
    for (uint64_t i = 0; i < n; i++) {
      struct sample s = alone.row[i];
      assert_true(s.init >= 3 && s.lead % 2 == 1 && !seen[s.init][s.lead]);
      seen[s.init][s.lead] = true;
    }
  }
}

/* A state continues at another world size, and in no other draw space. */
static void states(void **state) {
  (void)state;
  static struct epoch alone, e;
  const char *root = support_path("states");
  struct support_array t = hindcast();
  support_make(root, &t);
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_loader_desc d = hindcast_desc(root);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &id);
  insitu_error err = {0};
  read_epoch(it, &alone);
  assert_int_equal(insitu_iter_set_epoch(it, 0, &err), INSITU_OK);
  insitu_batch *b = next_batch_or_fail(it);
  insitu_batch_release(&b);
  b = next_batch_or_fail(it);
  insitu_state saved = b->after;
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  for (int rank = 0; rank < 3; rank++) {
    d = hindcast_desc(root);
    d.rank = rank;
    d.world = 3;
    d.batch_size = 4;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &id);
    if (insitu_iter_restore(it, &saved, &err)) fail_msg("%s", err.message);
    read_epoch(it, &e);
    assert_int_equal(e.batches, alone.batches - 2);
    for (uint64_t i = alone.first[2], at = 0; i < alone.first[alone.batches]; i++)
      if ((int)(i % 12 % 6) / 2 == rank)
        assert_memory_equal(&e.row[at++], &alone.row[i], sizeof *e.row);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }

  const char *other = support_path("states_other");
  t.chunk[1] = 3;
  support_make(other, &t);
  t = hindcast();
  const char *longer = support_path("states_longer");
  t.shape[1]++;
  support_make(longer, &t);
  static const insitu_axis moved[][2] = {
      {{.dim = "init", .start = 2}, {.dim = "lead", .stride = 2}},
      {{.dim = "init", .start = 2}, {.dim = "lead", .start = 1}},
      {{.dim = "init", .start = 2}, {.dim = "lead", .start = 1, .stop = 7, .stride = 2}},
      {{.dim = "init", .start = 3}, {.dim = "lead", .start = 1, .stride = 2}},
      {{.dim = "init", .start = 2, .stride = 3}, {.dim = "lead", .start = 1, .stride = 2}},
      {{.dim = "lead", .start = 1, .stride = 2}, {.dim = "init", .start = 2}},
      /* the same first and last index */
      {{.dim = "init", .start = 2}, {.dim = "lead", .start = 1, .stop = 8}},
      {{.dim = "init", .start = 2}, {.dim = "lead", .start = 1, .stride = 6}}};
  for (int i = 0; i < 10; i++) {
    d = hindcast_desc(i == 8 ? other : i == 9 ? longer : root);
    if (i < 8) d.axes = moved[i];
    d.split_axis = i == 5;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &id);
    if (insitu_iter_restore(it, &saved, &err) != INSITU_E_STATE) fail_msg("%d: not refused", i);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
}

/* insitu_read beside an iterator, and of an axis that samples are drawn along. */
static void read_beside(void **state) {
  (void)state;
  static struct epoch e;
  const char *root = support_path("beside");
  struct support_array t = hindcast();
  support_make(root, &t);
  insitu_loader_desc d = hindcast_desc(root);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  int32_t part[2 * STATION];
  insitu_shape shape;
  insitu_error err = {0};
  insitu_variable v = {.path = "t", .select = "init=[7]; lead=[3,8]"};
  if (insitu_read(ld, &v, part, sizeof part, &shape, &err)) fail_msg("%s", err.message);
  assert_int_equal(shape.ndim, 3);
  for (uint64_t i = 0; i < 2 * STATION; i++)
    assert_int_equal(
        part[i], support_expect(&t, (uint64_t[]){7, i < STATION ? 3 : 8, i % STATION}));
  read_epoch(it, &e);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What makes no draw space, and what the message says of it. */
static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array t = hindcast();
  support_make(root, &t);
  struct support_array flat = {.name = "orography",
      .ndim = 2,
      .shape = {LEAD, STATION},
      .chunk = {1, 1},
      .dtype = INSITU_F32,
      .format = 3,
      .dims = "[\"lead\", \"station\"]"};
  support_make(root, &flat);
  struct support_array other = t;
  other.name = "shorter";
  other.shape[1]--;
  support_make(root, &other);

  static const struct {
    insitu_axis axis[2];
    insitu_status status;
    const char *says;
  } wrong[] = {{{{.dim = "init"}, {.dim = "leed"}}, INSITU_E_NOTFOUND,
                   "no dimension is called 'leed'; it has: init lead station"},
      {{{.dim = "init"}, {.dim = "init"}}, INSITU_E_ARG, "twice"},
      {{{.dim = "init"}, {.axis = 0}}, INSITU_E_ARG, "twice"},
      {{{.dim = "init"}, {.axis = 3}}, INSITU_E_SHAPE, "no axis 3"},
      {{{.dim = "init"}, {.axis = -1}}, INSITU_E_SHAPE, "no axis -1"},
      {{{.dim = "init", .start = INIT}, {.dim = "lead"}}, INSITU_E_SPLIT, "axis 0 of axes"},
      {{{.dim = "init"}, {.dim = "lead", .stop = LEAD + 1}}, INSITU_E_SPLIT, "axis 1 of axes"},
      {{{.dim = "init"}, {.dim = "lead", .start = -1}}, INSITU_E_SPLIT, "axis 1 of axes"},
      {{{.dim = "init"}, {.dim = "lead", .start = 4, .stop = 4}}, INSITU_E_SPLIT, "axis 1 of axes"},
      {{{.dim = "init"}, {.dim = "lead", .stride = UINT64_MAX}}, INSITU_E_ARG, "axes[1].stride"},
      {{{.dim = "init", .from = "1979", .start = 1}, {.dim = "lead"}}, INSITU_E_ARG,
          "axes[0] is cut by date and by index at once"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    insitu_loader_desc d = hindcast_desc(root);
    d.axes = wrong[i].axis;
    refuse_or_fail(&d, wrong[i].status, wrong[i].says);
  }

  insitu_loader_desc d = hindcast_desc(root);
  d.n_axes = 9;
  refuse_or_fail(&d, INSITU_E_ARG, "n_axes is 9");
  d = hindcast_desc(root);
  d.axes = NULL;
  refuse_or_fail(&d, INSITU_E_ARG, "give axes");
  for (int axis = -1; axis <= 2; axis += 3) {
    d = hindcast_desc(root);
    d.split_axis = axis;
    refuse_or_fail(&d, INSITU_E_ARG, "split_axis");
  }
  d = hindcast_desc(root);
  d.axes = NULL;
  d.n_axes = 0;
  d.split_axis = 1;
  refuse_or_fail(&d, INSITU_E_ARG, "split_axis is 1, and axes has 0");
  for (int i = 0; i < 6; i++) {
    d = hindcast_desc(root);
    if (i == 0) d.sample_dim = "init";
    if (i == 1) d.sample_axis = 1;
    if (i == 2) d.sample_start = 1;
    if (i == 3) d.sample_stop = 1;
    if (i == 4) d.sample_from = "1979";
    if (i == 5) d.sample_to = "1979";
    refuse_or_fail(&d, INSITU_E_ARG, "say it in axes alone");
  }

  /* an array that lacks an axis, one of another length, and selections of what is drawn along */
  insitu_variable v[2] = {hindcast_v, {.label = "orography"}};
  d = hindcast_desc(root);
  d.variables = v;
  d.n_variables = 2;
  refuse_or_fail(&d, INSITU_E_NOTFOUND,
      "array orography: no dimension is called 'init'; it has: lead station; "
      "name one of these, or give the axis number; or say fixed = 1 of its variable");
  v[1].fixed = 1;
  d.plan_only = 1;
  insitu_loader *ld = open_or_fail(&d);
  insitu_loader_close(&ld);
  v[1].fixed = d.plan_only = 0;
  v[1].label = "shorter";
  refuse_or_fail(&d, INSITU_E_SHAPE, "shorter");
  d.n_variables = 1;
  v[0].select = "lead=[1]";
  refuse_or_fail(&d, INSITU_E_ARG,
      "variable t: slices or select name the sample axis 1 of array t; use "
      "sample_start and sample_stop, start and stop of axes");
}

/* Six thousand million samples whose units are short in more than a million places. */
static void huge(void **state) {
  (void)state;
  archive_begin();
  archive_text("t/.zarray",
      "{\"zarr_format\":2,\"shape\":[3000001,2000,3],\"chunks\":[3,7,3],\"dtype\":\"<f4\","
      "\"compressor\":null,\"filters\":null,\"fill_value\":0,\"order\":\"C\"}");
  static const insitu_variable v = {.label = "t"};
  static const insitu_axis axes[] = {{.axis = 0}, {.axis = 1}};
  insitu_loader_desc d = {.variables = &v,
      .n_variables = 1,
      .axes = axes,
      .n_axes = 2,
      .on_absent_chunk = INSITU_FILL,
      .decode_threads = 1};
  int64_t begin = now();
  insitu_loader *ld = archive_open(d, INLINE_EPOLL);
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_error err = {0};
  insitu_plan plan;
  insitu_stats stats;
  if (insitu_loader_plan(ld, &id, &plan, &err)) fail_msg("%s", err.message);
  int64_t planned = now();
  assert_int_equal(plan.space, UINT64_C(3000001) * 2000);
  insitu_iter *it = open_iter_or_fail(ld, &id);
  insitu_batch *b = next_batch_or_fail(it);
  int64_t first = now();
  assert_int_equal(b->rows, 32);
  insitu_batch_release(&b);
  assert_int_equal(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
  assert_in_range(stats.memory_bytes_peak, 1, 64 << 20);
  print_message("open and plan %.1f ms, first batch %.1f ms, %.1f MB\n",
      (double)(planned - begin) / 1e6, (double)(first - planned) / 1e6,
      (double)stats.memory_bytes_peak / 1e6);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(drawn_spaces),
      cmocka_unit_test(ranks),
      cmocka_unit_test(states),
      cmocka_unit_test(read_beside),
      cmocka_unit_test(refused),
      cmocka_unit_test(huge),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
