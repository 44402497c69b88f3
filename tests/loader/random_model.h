/* What the manual of insitubatch.h promises, worked out again in the plainest way and from the
 * manual alone: the elements of a row, and the anchors of a split. Slow, and only for small
 * archives. random_order.h goes on from here. After random_space.h. */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H
#include "sixteen.h"

/* Variables of a case, and with the outputs that tell what they miss. */
enum { MAX_VARIABLES = 4, MAX_VIEWS = 2 * MAX_VARIABLES };

/* ---- elements of a row ---- */
/* Indexes of one axis, in the order of the batch. */
struct shown {
  uint64_t n, *at;
  bool listed;       /* by values and indexes, and by no range */
  int order;         /* the place in the text, counted from 1; 0: it does not name the axis */
  const char **name; /* of each index, where it is listed */
};

struct view {
  const struct array *array;
  const struct space *space;
  insitu_variable v;
  insitu_slice slice[MAX_DIMS];
  int64_t step[4];
  struct shown shown[MAX_DIMS]; /* of axes of the draw space for insitu_read alone */
  /* chunks of each level that hold something of it, by axis */
  uint64_t *tile[MAX_LEVELS][MAX_DIMS], n_tiles[MAX_LEVELS][MAX_DIMS];
  int op_axis;      /* that the numbers of its operations are told apart by; -1: none */
  bool is_mask;     /* it tells which elements are missing: see mask_view */
  int output;       /* number of the array in the batch, without fixed ones */
  uint64_t channel; /* the first one in it */
};

static inline struct shown shown_range(uint64_t lo, uint64_t hi) {
  struct shown s = {.n = hi - lo, .at = own((hi - lo) * 8)};

  for (uint64_t i = 0; i < s.n; i++) s.at[i] = lo + i;
  return s;
}

/* After what is shown is known: the chunks that hold it. */
static inline void view_finish(struct view *v) {
  const struct array *a = v->array;

  for (int l = 0; l < a->n_levels; l++)
    for (int d = 0; d < a->ndim; d++) {
      uint64_t size = a->level[l].size[d], n = ceil_div(a->shape[d], size), *list = own(n * 8);
      unsigned char *has = own(n);

      for (uint64_t i = 0; i < v->shown[d].n; i++) has[v->shown[d].at[i] / size] = 1;
      v->tile[l][d] = list;
      v->n_tiles[l][d] = 0;
      for (uint64_t i = 0; i < n; i++)
        if (has[i]) list[v->n_tiles[l][d]++] = i;
    }
}

/* Whether the axis becomes channels. */
static inline bool view_folds(const struct view *v, int d) {
  return !v->array->drawn[d] && v->v.into && v->shown[d].listed;
}

/* The axis of the draw space that an array's axis is; NULL: none. */
static inline const struct axis *view_axis(const struct view *v, int d) {
  return v->array->drawn[d] ? &v->space->axis[v->array->drawn[d] - 1] : NULL;
}

/* Whether samples are drawn along an array's axis, so that a row has one index of it. */
static inline bool view_samples(const struct view *v, int d) {
  const struct axis *a = view_axis(v, d);

  return a && !a->patch;
}

/* Elements of an axis in a row; of one along which samples are drawn, 1. */
static inline uint64_t view_length(const struct view *v, int d) {
  const struct axis *a = view_axis(v, d);

  if (!a) return v->shown[d].n;
  return a->patch ? a->patch + 2 * v->v.halo : 1;
}

/* A stored element in native byte order, widened: as an integer, and as a double. */
struct number {
  int64_t i;
  uint64_t u;
  double x;
};

static inline struct number number_of(
    const struct type *t, bool is_unsigned, const unsigned char *at) {
  struct number n = {0};
  float f;
  unsigned drop = 64 - 8 * t->bytes;

  memcpy(&n.u, at, t->bytes < 8 ? t->bytes : 8);
  switch (t->kind) {
  case KIND_BOOL:
  case KIND_UINT: n.x = (double)n.u; return n;
  case KIND_INT:
    n.i = (int64_t)(n.u << drop) >> drop;
    n.x = is_unsigned ? (double)n.u : (double)n.i;
    return n;
  case KIND_BFLOAT: n.x = sixteen_value((uint16_t)n.u, INSITU_BF16); return n;
  case KIND_FLOAT:
    if (t->bytes == 2) n.x = sixteen_value((uint16_t)n.u, INSITU_F16);
    if (t->bytes == 4) {
      memcpy(&f, at, 4);
      n.x = (double)f;
    }
    if (t->bytes == 8) memcpy(&n.x, at, 8);
    return n;
  case KIND_COMPLEX: break;
  }
  return n;
}

/* The dtype of what a variable shows, where that is no mask. */
static inline int32_t value_dtype(const struct view *v) {
  const struct type *t = v->array->type;

  if (v->v.dtype) return v->v.dtype;
  if (v->v.decode != INSITU_CF && !v->v.n_ops) return t->dtype;
  if (t->kind == KIND_INT || t->kind == KIND_UINT) return t->bytes <= 2 ? INSITU_F32 : INSITU_F64;
  return t->bytes <= 4 ? INSITU_F32 : INSITU_F64;
}

/* The dtype of a variable's output. */
static inline int32_t view_dtype(const struct view *v) {
  return v->is_mask ? INSITU_U8 : value_dtype(v);
}

/* Whether an integer or bool of so many bytes can become another one: the type has no smaller
 * numbers, and so many digits. */
static inline bool holds_all(const struct type *t, int32_t dtype) {
  int to = dtype == INSITU_BOOL ? 1 : (dtype & 0xff) - (dtype >> 8 == 0);
  int from = t->kind == KIND_BOOL ? 1 : (int)t->bytes * 8 - (t->kind == KIND_INT);

  if (dtype == INSITU_BOOL) return true; /* by definition */
  return to >= from && (t->kind != KIND_INT || dtype >> 8 == 0);
}

/* What the library must say to this conversion: INSITU_OK, or why not. */
static inline insitu_status view_refusal(const struct view *v) {
  enum kind k = v->array->type->kind;
  int32_t dtype = v->v.dtype;
  bool whole = k == KIND_INT || k == KIND_UINT || k == KIND_BOOL,
       to_float = dtype >> 8 == 2 || dtype >> 8 == 4;

  if (v->v.decode && (k == KIND_COMPLEX || k == KIND_BOOL || (dtype && !to_float)))
    return INSITU_E_DTYPE;
  if (k == KIND_COMPLEX && (v->v.n_ops || v->is_mask)) return INSITU_E_DTYPE;
  if (v->v.n_ops && dtype && !to_float) return INSITU_E_DTYPE;
  if (v->v.n_ops) return INSITU_OK;
  if (!dtype || dtype == v->array->type->dtype) return INSITU_OK;
  if (k == KIND_COMPLEX || dtype >> 8 == 5) return INSITU_E_DTYPE;
  if (to_float || (whole && holds_all(v->array->type, dtype))) return INSITU_OK;
  return INSITU_E_DTYPE;
}

static inline unsigned dtype_bytes(int32_t dtype) {
  return (unsigned)(dtype & 0xff) / 8;
}

static inline bool is_missing(const struct array *a, struct number n) {
  double x = n.x;

  if (a->has_missing && x == a->missing[0]) return true;
  if (a->has_fill_value) return x == a->missing[1];
  if (a->format != 2 || !strcmp(a->fill_text, "null")) return false;
  struct number fill = number_of(a->type, a->is_unsigned, a->fill);
  bool whole = a->type->kind == KIND_INT || a->type->kind == KIND_UINT;
  return whole ? n.u == fill.u : x == fill.x; /* a double does not hold all of 64 bits */
}

/* A number in a type that holds it, or a float that is not as wide. */
static inline void show_number(int32_t dtype, uint64_t u, double d, float f, unsigned char *to) {
  uint16_t h;

  switch (dtype) {
  case INSITU_F64: memcpy(to, &d, 8); return;
  case INSITU_F32: memcpy(to, &f, 4); return;
  case INSITU_F16:
  case INSITU_BF16:
    h = sixteen_bits(d, dtype);
    memcpy(to, &h, 2);
    return;
  case INSITU_BOOL: *to = u != 0; return;
  default: memcpy(to, &u, dtype_bytes(dtype));
  }
}

/* One element as the batch must show it. */
static inline void show_element(
    const struct view *v, const unsigned char *stored, unsigned char *to) {
  const struct array *a = v->array;
  struct number n = number_of(a->type, a->is_unsigned && v->v.decode == INSITU_CF, stored);
  volatile double x = n.x; /* each operation is rounded, none is fused */
  int32_t dtype = view_dtype(v);
  float f;
  double d;

  if (v->v.decode != INSITU_CF && dtype == a->type->dtype) {
    memcpy(to, stored, a->type->bytes);
    return;
  }
  if (v->v.decode == INSITU_CF) {
    bool missing = is_missing(a, n);

    if (a->has_scale) x = x * a->scale;
    if (a->has_offset) x = x + a->offset;
    if (missing) x = (double)NAN;
    d = x;
    f = (float)d;
  } else {
    bool is_int = a->type->kind == KIND_INT;
    bool is_uint = a->type->kind == KIND_UINT || a->type->kind == KIND_BOOL;
    bool negative = is_int && n.i < 0;

    d = n.x;
    f = is_int ? (float)n.i : is_uint ? (float)n.u : (float)d;
    if (is_int) n.u = (uint64_t)n.i;
    if (a->type->kind == KIND_BOOL) n.u = n.u != 0;
    if ((is_int || is_uint) && dtype_bytes(dtype) == 2)
      d = sixteen_whole(negative, negative ? 0 - n.u : n.u);
  }
  if (isnan(d)) d = (double)NAN, f = NAN;
  show_number(dtype, n.u, d, f, to);
}

static inline uint64_t view_elements(const struct view *v) { /* of one step and channel */
  uint64_t n = 1;

  for (int d = 0; d < v->array->ndim; d++)
    if (!view_folds(v, d)) n *= view_length(v, d);
  return n;
}

static inline uint64_t view_channels(const struct view *v) {
  uint64_t n = 1;

  for (int d = 0; d < v->array->ndim; d++)
    if (view_folds(v, d)) n *= v->shown[d].n;
  return n;
}

static inline uint64_t view_steps(const struct view *v) {
  return v->v.n_steps ? v->v.n_steps : 1;
}

/* The index of the view's own array, on the axis of the split, that a step shows of an anchor with
 * index x there. */
static inline int64_t view_sample(const struct view *v, int64_t x, uint64_t step) {
  return array_partner(v->array, x) + v->v.offset + (v->v.n_steps ? v->step[step] : 0);
}

/* The axis that becomes channels and stands at a place of the text; -1: none. */
static inline int view_folded(const struct view *v, int order) {
  for (int d = 0; d < v->array->ndim; d++)
    if (view_folds(v, d) && v->shown[d].order == order) return d;
  return -1;
}

/* Where the array has the k-th element of a step and channel of an anchor, by its indexes. The axis
 * that the text of the selection names last is the fastest. */
static inline void view_place(const struct view *v, const int64_t *anchor, uint64_t step,
    uint64_t channel, uint64_t k, uint64_t *at) {
  for (int order = MAX_DIMS; order > 0; order--) {
    int d = view_folded(v, order);

    if (d < 0) continue;
    at[d] = v->shown[d].at[channel % v->shown[d].n];
    channel /= v->shown[d].n;
  }
  for (int d = v->array->ndim - 1; d >= 0; d--) {
    const struct axis *a = view_axis(v, d);
    uint64_t n = view_length(v, d);

    if (view_folds(v, d)) continue;
    if (a) at[d] = (uint64_t)(anchor[v->array->drawn[d] - 1] - (a->patch ? (int64_t)v->v.halo : 0));
    at[d] = a ? at[d] + k % n : v->shown[d].at[k % n];
    k /= n;
  }
  at[v->array->axis] = (uint64_t)view_sample(v, anchor[v->space->along], step);
}

/* ---- dates ---- */
enum calendar { CALENDAR_STANDARD, CALENDAR_NOLEAP, CALENDAR_360 };

static inline int64_t days_of(enum calendar c, int64_t year, int month, int day) {
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  int64_t y = year - 1;
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

  if (c == CALENDAR_360) return year * 360 + (month - 1) * 30 + day - 1;
  if (c == CALENDAR_NOLEAP) return year * 365 + before[month - 1] + day - 1;
  return year * 365 + y / 4 - y / 100 + y / 400 + before[month - 1] + (month > 2 && leap) + day - 1;
}

static inline int month_days(enum calendar c, int64_t year, int month) {
  int64_t next = month == 12 ? days_of(c, year + 1, 1, 1) : days_of(c, year, month + 1, 1);

  return (int)(next - days_of(c, year, month, 1));
}

/* A date as text and the seconds [begin, end) that it names, counted as days_of counts days. */
struct date {
  char text[40];
  int64_t begin, end;
};

/* precision: 0 year to 5 second */
static inline struct date date_of(enum calendar c, int64_t seconds, int precision) {
  struct date d;
  int64_t day = seconds / 86400, year = day / 366, rest = seconds % 86400;
  int month = 1, mday, h = (int)(rest / 3600), m = (int)(rest / 60 % 60), s = (int)(rest % 60);

  while (days_of(c, year + 1, 1, 1) <= day) year++;
  while (days_of(c, year, month, 1) + month_days(c, year, month) <= day) month++;
  mday = (int)(day - days_of(c, year, month, 1)) + 1;
  int64_t begins[] = {days_of(c, year, 1, 1) * 86400, days_of(c, year, month, 1) * 86400,
      day * 86400, day * 86400 + h * 3600, seconds - s, seconds};
  int64_t lengths[] = {(days_of(c, year + 1, 1, 1) - days_of(c, year, 1, 1)) * 86400,
      (int64_t)month_days(c, year, month) * 86400, 86400, 3600, 60, 1};
  static const int cut[] = {4, 7, 10, 13, 16, 19};
  snprintf(d.text, sizeof d.text, "%04d-%02d-%02dT%02d:%02d:%02d", (int)year, month, mday, h, m, s);
  d.text[cut[precision]] = 0;
  d.begin = begins[precision];
  d.end = d.begin + lengths[precision];
  return d;
}

/* ---- splits ---- */
enum { NOBODY = -1 };
struct part {
  /* Anchors, as numbers of the space, unit after unit as a sequential epoch has them. Of patches
   * that are drawn: the numbers of their samples, each as often as it has patches. */
  int64_t *anchor;
  uint64_t n;
  uint64_t *due; /* by number: how often an epoch delivers it (of drawn patches: its sample) */
  uint64_t dropped[INSITU_DROPS]; /* without the tail, which is the order's */
  /* Of a unit: its first anchor's place in the list, how many it has. Nothing of it is known of
   * patches, whose blocks are the library's own. */
  uint64_t units, *first, *rows, unit_rows; /* unit_rows: of a full unit */
  /* With several axes, units in the order in which a shuffled epoch numbers them, and how many of
   * them follow each other that hold the same number of anchors, in pairs. */
  uint64_t *numbered, *classes, n_classes;
};
struct split {
  int64_t samples, lo, hi; /* along its axis; those that take part are [lo, hi) */
  uint64_t ref[MAX_AXES];  /* samples of a reference chunk along each axis */
  uint64_t n_ref;          /* reference chunks along its axis */
  /* of a sample: its part by chunks or ranges; the same without what the gap leaves out */
  signed char *owner, *kept;
  bool *excluded; /* of each sample, by the manifest */
  struct part part[4];
};

/* All that decides which anchors a split has. */
struct splitter {
  const struct space *space;
  const struct view *view;
  int n_views;
  uint64_t gap, unit_chunks;
  bool spill;
};

/* The boundary behind a sum of fractions, in chunks. */
static inline uint64_t fraction_end(double sum, uint64_t chunks) {
  return (uint64_t)floor(sum * (double)chunks + 0.5);
}

/* The anchor that what a step shows belongs to, on the axis of the split; -1: the array has no such
 * sample. */
static inline int64_t view_owner(const struct view *v, int64_t x, uint64_t step) {
  return array_owner(v->array, view_sample(v, x, step));
}

/* The first reason, in the documented order, to drop what has index x on the axis of the split;
 * INSITU_DROPS: none. */
static inline int drop_along(const struct split *s, const struct splitter *by, int p, int64_t x) {
  bool all = p == INSITU_ALL;
  int drop = INSITU_DROPS;

  if (!all && s->owner[x] != p) return INSITU_DROP_OTHER_SPLIT;
  if (s->excluded[x]) return INSITU_DROP_EXCLUDED;
  for (int i = 0; i < by->n_views; i++)
    for (uint64_t k = 0; k < view_steps(&by->view[i]); k++) {
      bool shows = array_has_partner(by->view[i].array, x);
      int64_t y = shows ? view_owner(&by->view[i], x, k) : -1;

      if (y >= 0 && s->excluded[y]) return INSITU_DROP_EXCLUDED;
    }
  if (!all && s->kept[x] != p) return INSITU_DROP_GAP;
  for (int i = 0; i < by->n_views; i++)
    if (!array_has_partner(by->view[i].array, x)) return INSITU_DROP_NO_PARTNER;
  for (int i = 0; i < by->n_views; i++)
    for (uint64_t k = 0; k < view_steps(&by->view[i]); k++) {
      int64_t y = view_owner(&by->view[i], x, k);

      if (y < 0) return INSITU_DROP_ARCHIVE_EDGE;
      if (!by->spill && (all ? y < s->lo || y >= s->hi : s->kept[y] != p))
        drop = INSITU_DROP_SPLIT_EDGE;
    }
  return drop;
}

/* The number by which desc.samples knows a place. */
static inline int64_t listed_number(const struct space *space, const int64_t *index) {
  int64_t number = space_number(space, index);

  return space->patches ? space_sample(space, number) : number;
}

/* The same of a place of the archive. */
static inline int first_drop(
    const struct split *s, const struct splitter *by, int p, const int64_t *index) {
  for (int k = 0; k < by->space->n; k++) {
    const struct axis *a = &by->space->axis[k];

    if (!a->patch && (index[k] < a->lo || index[k] >= a->hi)) return INSITU_DROP_RANGE;
  }
  for (int k = 0; k < by->space->n; k++) {
    const struct axis *a = &by->space->axis[k];

    if (!a->patch && (index[k] - a->lo) % (int64_t)a->stride) return INSITU_DROP_STRIDE;
  }
  if (by->space->sampled && !by->space->sampled[listed_number(by->space, index)])
    return INSITU_DROP_LIST;
  return drop_along(s, by, p, index[by->space->along]);
}

/* The indexes of a unit along an axis: whole reference chunks, of which each has an anchor. */
static inline uint64_t unit_group(const struct split *s, const struct splitter *by, int k) {
  uint64_t group = s->ref[k] * (k == by->space->along ? by->unit_chunks : 1);

  return group * ceil_div(by->space->axis[k].stride, group);
}

/* The anchors of a part along one axis, cut into units: a unit ends with its group of indexes, and
 * where the next index is none of the split (which a stride's gaps are not). */
struct line {
  int64_t *index;
  uint64_t n, units, *first, *rows, full; /* full: anchors that a group has at most */
};

static inline struct line split_line(
    const struct split *s, const struct splitter *by, int p, int k) {
  const struct axis *a = &by->space->axis[k];
  bool along = k == by->space->along, hole = true;
  uint64_t group = unit_group(s, by, k), last = UINT64_MAX;
  struct line line = {.index = own(a->n * 8), .first = own(a->n * 8), .rows = own(a->n * 8)};

  line.full = ceil_div(group, a->stride);
  for (int64_t x = a->lo; x < a->hi; x++) {
    if (along && drop_along(s, by, p, x) < INSITU_DROPS) {
      hole = true;
      continue;
    }
    if ((x - a->lo) % (int64_t)a->stride) continue;
    if (hole || (uint64_t)x / group != last) line.first[line.units++] = line.n;
    hole = false;
    last = (uint64_t)x / group;
    line.rows[line.units - 1]++;
    line.index[line.n++] = x;
  }
  return line;
}

/* The unit of the part whose units along the axes are these: its anchors, row-major. */
static inline void part_add_unit(
    struct part *part, const struct space *space, const struct line *line, const uint64_t *unit) {
  uint64_t rows = 1;

  for (int k = 0; k < space->n; k++) rows *= line[k].rows[unit[k]];
  part->first[part->units] = part->n;
  part->rows[part->units++] = rows;
  if (space->n > 1) part->unit_rows = most(part->unit_rows, rows);
  for (uint64_t i = 0; i < rows; i++) {
    int64_t index[MAX_AXES];
    uint64_t rest = i;

    for (int k = space->n; k-- > 0; rest /= line[k].rows[unit[k]])
      index[k] = line[k].index[line[k].first[unit[k]] + rest % line[k].rows[unit[k]]];
    int64_t number = space_number(space, index);
    part->due[number]++;
    part->anchor[part->n++] = number;
  }
}

/* The number of a unit's size among the sizes of its line: the size of a full group, or where no
 * unit has it the largest one, is the first; others follow as they come. */
static inline uint64_t line_size(const struct line *line, uint64_t unit, uint64_t *sizes) {
  uint64_t *list = own((line->units + 1) * 8), n = 1, found = 0;

  for (uint64_t u = 0; u < line->units; u++) list[0] = most(list[0], line->rows[u]);
  for (uint64_t u = 0; u < line->units; u++) {
    uint64_t i = 0;

    while (i < n && list[i] != line->rows[u]) i++;
    if (i == n) list[n++] = line->rows[u];
    if (u == unit) found = i;
  }
  *sizes = n;
  return found;
}

/* Numbers of the units in a shuffled epoch of several axes: those with the same sizes along all
 * axes follow each other. */
static inline void part_classes(
    struct part *part, const struct space *space, const struct line *line) {
  uint64_t *class = own(part->units * 8), n_classes = 1, done = 0;

  part->numbered = own(part->units * 8);
  part->classes = own((part->units + 1) * 16);
  for (int k = 0; k < space->n; k++) {
    uint64_t *size = own(line[k].units * 8), sizes = 1, after = 1;

    for (uint64_t u = 0; u < line[k].units; u++) size[u] = line_size(&line[k], u, &sizes);
    for (int j = k + 1; j < space->n; j++) after *= line[j].units;
    for (uint64_t u = 0; u < part->units; u++)
      class[u] = class[u] * sizes + size[u / after % line[k].units];
    n_classes *= sizes;
  }
  for (uint64_t c = 0; c < n_classes; c++) {
    uint64_t *pair = &part->classes[2 * part->n_classes];

    for (uint64_t u = 0; u < part->units; u++) {
      if (class[u] != c) continue;
      part->numbered[done++] = u;
      pair[0]++;
      pair[1] = part->rows[u];
    }
    part->n_classes += pair[0] > 0;
  }
}

/* A part's units, and their anchors. */
static inline void part_fill(struct split *s, const struct splitter *by, int p) {
  const struct space *space = by->space;
  struct part *part = &s->part[p];
  struct line line[MAX_AXES];
  uint64_t units = 1, unit[MAX_AXES];

  for (int k = 0; k < space->n; k++) {
    line[k] = split_line(s, by, p, k);
    units *= line[k].units;
  }
  if (space->n == 1) part->unit_rows = line->full;
  for (uint64_t u = 0; u < units; u++) {
    uint64_t rest = u;

    for (int k = space->n; k-- > 0; rest /= line[k].units) unit[k] = rest % line[k].units;
    part_add_unit(part, space, line, unit);
  }
  if (space->n > 1) part_classes(part, space, line);
}

/* The same where samples are listed: a unit is what lies in one group along each axis. */
static inline void part_fill_list(struct split *s, const struct splitter *by, int p) {
  const struct space *space = by->space;
  struct part *part = &s->part[p];
  uint64_t cells = 1, places = space_places(space), *cell = own(places * 8), *begin;

  for (int k = 0; k < space->n; k++) cells *= ceil_div(space->axis[k].n, unit_group(s, by, k));
  begin = own((cells + 1) * 8);
  for (uint64_t i = 0; i < places; i++) {
    int64_t index[MAX_AXES];

    space_index(space, (int64_t)i, index);
    if (first_drop(s, by, p, index) < INSITU_DROPS) continue;
    part->due[i] = 1;
    for (int k = 0; k < space->n; k++) {
      uint64_t group = unit_group(s, by, k);

      cell[i] = cell[i] * ceil_div(space->axis[k].n, group) + (uint64_t)index[k] / group;
    }
    begin[cell[i] + 1]++;
  }
  for (uint64_t c = 0; c < cells; c++) {
    if (begin[c + 1]) {
      part->first[part->units] = part->n;
      part->rows[part->units++] = begin[c + 1];
      part->unit_rows = most(part->unit_rows, begin[c + 1]);
      part->n += begin[c + 1];
    }
    begin[c + 1] = part->n;
  }
  for (uint64_t i = 0; i < places; i++)
    if (part->due[i]) part->anchor[begin[cell[i]]++] = (int64_t)i;
}

/* The same where samples are cut into patches. */
static inline void part_fill_patches(struct split *s, const struct splitter *by, int p) {
  const struct space *space = by->space;
  struct part *part = &s->part[p];
  uint64_t places = space_places(space), each = space_each(space);

  part->anchor = own(places * (space->patches ? each : 1) * 8);
  for (uint64_t i = 0; i < places; i++) {
    int64_t index[MAX_AXES], number = (int64_t)i;

    space_index(space, number, index);
    if (first_drop(s, by, p, index) < INSITU_DROPS) continue;
    if (space->patches ? space_sample(space, number) != number : !space_begins(space, index))
      continue;
    part->due[i] = space->patches ? each : 1;
    for (uint64_t k = 0; k < part->due[i]; k++) part->anchor[part->n++] = number;
  }
}

/* From the owners: the gap, the anchors of each part, and its units. */
static inline void split_finish(struct split *s, const struct splitter *by) {
  const struct space *space = by->space;
  uint64_t places = space_places(space), each = space_each(space);
  bool patched = space_patched(space);

  for (int64_t x = 0; x < s->samples; x++) {
    if (x < s->lo || x >= s->hi) s->owner[x] = NOBODY;
    s->kept[x] = s->excluded[x] ? NOBODY : s->owner[x];
  }
  for (int64_t x = 0; x < s->samples; x++)
    for (int64_t y = x - 1; y >= 0 && x - y <= (int64_t)by->gap; y--)
      if (s->owner[y] != NOBODY && !s->excluded[y] && s->owner[y] != s->owner[x])
        s->kept[x] = NOBODY;
  for (int p = 0; p < 4; p++) {
    struct part *part = &s->part[p];

    *part = (struct part){.anchor = own(places * 8),
        .due = own(places * 8),
        .first = own(places * 8),
        .rows = own(places * 8)};
    if (patched) part_fill_patches(s, by, p);
    else if (space->sampled) part_fill_list(s, by, p);
    else part_fill(s, by, p);
    for (uint64_t i = 0; i < places; i++) {
      int64_t index[MAX_AXES];

      space_index(space, (int64_t)i, index);
      bool sample = space_sample(space, (int64_t)i) == (int64_t)i;
      if (space->patches ? !sample : !space_begins(space, index)) continue;
      int drop = first_drop(s, by, p, index);
      if (drop < INSITU_DROPS) part->dropped[drop] += space->patches ? each : 1;
    }
  }
}
#endif
