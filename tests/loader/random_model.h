/* What the manual of insitubatch.h promises, worked out again in the plainest way and from the
 * manual alone: the elements of a row, the anchors of a split, the order of an epoch, and what is
 * read for it. Slow, and only for small archives.
 * After random_archive.h. */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H
#include "sixteen.h"

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
  insitu_variable v;
  insitu_slice slice[MAX_DIMS];
  int64_t step[4];
  struct shown shown[MAX_DIMS]; /* that of the sample axis is for insitu_read alone */
  /* chunks of each level that hold something of it, by axis */
  uint64_t *tile[MAX_LEVELS][MAX_DIMS], n_tiles[MAX_LEVELS][MAX_DIMS];
  int output;       /* number of the array in the batch */
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
  return d != v->array->axis && v->v.into && v->shown[d].listed;
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

/* The dtype of a variable's output. */
static inline int32_t view_dtype(const struct view *v) {
  const struct type *t = v->array->type;

  if (v->v.dtype) return v->v.dtype;
  if (v->v.decode != INSITU_CF) return t->dtype;
  if (t->kind == KIND_INT || t->kind == KIND_UINT) return t->bytes <= 2 ? INSITU_F32 : INSITU_F64;
  return t->bytes <= 4 ? INSITU_F32 : INSITU_F64;
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
    if (d != v->array->axis && !view_folds(v, d)) n *= v->shown[d].n;
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

static inline int64_t view_sample(const struct view *v, int64_t anchor, uint64_t step) {
  return anchor + v->v.offset + (v->v.n_steps ? v->step[step] : 0);
}

/* The axis that becomes channels and stands at a place of the text; -1: none. */
static inline int view_folded(const struct view *v, int order) {
  for (int d = 0; d < v->array->ndim; d++)
    if (view_folds(v, d) && v->shown[d].order == order) return d;
  return -1;
}

/* The k-th element of a channel at a sample. The axis that the text names last is the fastest. */
static inline void view_place(
    const struct view *v, int64_t sample, uint64_t channel, uint64_t k, uint64_t *at) {
  for (int order = MAX_DIMS; order > 0; order--) {
    int d = view_folded(v, order);

    if (d < 0) continue;
    at[d] = v->shown[d].at[channel % v->shown[d].n];
    channel /= v->shown[d].n;
  }
  for (int d = v->array->ndim - 1; d >= 0; d--) {
    if (d == v->array->axis || view_folds(v, d)) continue;
    at[d] = v->shown[d].at[k % v->shown[d].n];
    k /= v->shown[d].n;
  }
  at[v->array->axis] = (uint64_t)sample;
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
  int64_t *anchor; /* in the archive's order */
  uint64_t n;
  uint64_t dropped[INSITU_DROPS]; /* without the tail, which is the order's */
  /* of a unit: its first anchor's place in the list, how many it has */
  uint64_t units, *first, *rows;
};
struct split {
  int64_t samples, lo, hi; /* those that take part are [lo, hi) */
  uint64_t ref, n_ref, unit_rows;
  /* of a sample: its part by chunks or ranges; the same without what the gap leaves out */
  signed char *owner, *kept;
  bool *excluded; /* of each sample, by the manifest */
  struct part part[4];
};

/* The boundary behind a sum of fractions, in chunks. */
static inline uint64_t fraction_end(double sum, uint64_t chunks) {
  return (uint64_t)floor(sum * (double)chunks + 0.5);
}

/* The first reason, in the documented order, to drop an anchor; INSITU_DROPS: none. */
static inline int first_drop(
    const struct split *s, int p, int64_t x, const struct view *view, int n_views, bool spill) {
  bool all = p == INSITU_ALL;
  int drop = INSITU_DROPS;

  if (x < s->lo || x >= s->hi) return INSITU_DROP_RANGE;
  if (!all && s->owner[x] != p) return INSITU_DROP_OTHER_SPLIT;
  if (s->excluded[x]) return INSITU_DROP_EXCLUDED;
  for (int i = 0; i < n_views; i++)
    for (uint64_t k = 0; k < view_steps(&view[i]); k++) {
      int64_t y = view_sample(&view[i], x, k);

      if (y >= 0 && y < s->samples && s->excluded[y]) return INSITU_DROP_EXCLUDED;
    }
  if (!all && s->kept[x] != p) return INSITU_DROP_GAP;
  for (int i = 0; i < n_views; i++)
    for (uint64_t k = 0; k < view_steps(&view[i]); k++) {
      int64_t y = view_sample(&view[i], x, k);

      if (y < 0 || y >= s->samples) return INSITU_DROP_ARCHIVE_EDGE;
      if (!spill && (all ? y < s->lo || y >= s->hi : s->kept[y] != p))
        drop = INSITU_DROP_SPLIT_EDGE;
    }
  return drop;
}

/* From the owners: the gap, the anchors of each part, and its units. */
static inline void split_finish(struct split *s, const struct view *view, int n_views, uint64_t gap,
    bool spill, uint64_t unit_chunks) {
  s->unit_rows = s->ref * unit_chunks;
  for (int64_t x = 0; x < s->samples; x++) {
    if (x < s->lo || x >= s->hi) s->owner[x] = NOBODY;
    s->kept[x] = s->excluded[x] ? NOBODY : s->owner[x];
  }
  for (int64_t x = 0; x < s->samples; x++)
    for (int64_t y = x - 1; y >= 0 && x - y <= (int64_t)gap; y--)
      if (s->owner[y] != NOBODY && !s->excluded[y] && s->owner[y] != s->owner[x])
        s->kept[x] = NOBODY;
  for (int p = 0; p < 4; p++) {
    struct part *part = &s->part[p];
    uint64_t cap = (uint64_t)s->samples;

    *part = (struct part){.anchor = own(cap * 8), .first = own(cap * 8), .rows = own(cap * 8)};
    for (int64_t x = 0; x < s->samples; x++) {
      int drop = first_drop(s, p, x, view, n_views, spill);

      if (drop < INSITU_DROPS) {
        part->dropped[drop]++;
        continue;
      }
      bool new_unit =
          !part->n || part->anchor[part->n - 1] != x - 1 || (uint64_t)x % s->unit_rows == 0;
      if (new_unit) part->first[part->units++] = part->n;
      part->rows[part->units - 1]++;
      part->anchor[part->n++] = x;
    }
  }
}

/* ---- the order: a rewriting of its normative model ---- */
static inline uint64_t order_mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

static inline uint64_t order_key(const uint64_t *word, int n) {
  uint64_t h = 0;

  for (int i = 0; i < n; i++) h = order_mix(h ^ word[i]);
  return h;
}

static inline uint64_t feistel(
    uint64_t x, const uint64_t *k, unsigned left_bits, unsigned right_bits) {
  uint64_t left = x >> right_bits, right = x & ((UINT64_C(1) << right_bits) - 1);

  for (int i = 0; i < 8; i += 2) {
    left ^= order_mix(right ^ k[i]) >> (64 - left_bits);
    right ^= order_mix(left ^ k[i + 1]) >> (64 - right_bits);
  }
  return left << right_bits | right;
}

/* A keyed permutation of 0 to n - 1 as a table. */
static inline uint64_t *permutation(uint64_t n, uint64_t key) {
  uint64_t *to = own(n * sizeof *to), k[8];

  for (uint64_t i = 0; i < n; i++) to[i] = i;
  if (n < 64) {
    for (uint64_t i = n; i-- > 1;) {
      uint64_t j = order_key((uint64_t[]){key, i}, 2) % (i + 1), t = to[i];

      to[i] = to[j];
      to[j] = t;
    }
    return to;
  }
  unsigned bits = 0;
  while ((n - 1) >> bits) bits++;
  for (uint64_t i = 0; i < 8; i++) k[i] = order_key((uint64_t[]){key, i}, 2);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t x = i;

    do x = feistel(x, k, bits / 2, bits - bits / 2);
    while (x >= n);
    to[i] = x;
  }
  return to;
}

/* An epoch of a part: what stands at each position. */
struct epoch {
  uint64_t global, lanes, window, batches, positions;
  int64_t *anchor;        /* -1: nothing */
  uint64_t *mixed;        /* the window's number, over all lanes */
  uint64_t n_mixed, span; /* windows; batches that a window falls into at most */
};

/* The shuffled order of the normative model, with windows and lanes as tables. */
static inline struct epoch shuffled(
    const struct part *p, uint64_t seed, uint64_t epoch, uint64_t g, uint64_t lanes, uint64_t w) {
  struct epoch e = {.global = g, .lanes = lanes, .window = w, .batches = p->n / g};
  uint64_t q = e.batches * (g / lanes),
           *unit = permutation(p->units, order_key((uint64_t[]){seed, epoch}, 2));
  uint64_t *rank = own(p->n * 8), *pos = own((p->units + 1) * 8), at = 0;
  int64_t *sequence = own(p->n * 8);

  e.positions = e.batches * g;
  e.anchor = own(e.positions * 8);
  e.mixed = own(e.positions * 8);
  for (uint64_t j = 0; j < p->units; j++) {
    pos[j] = at;
    for (uint64_t i = 0; i < p->rows[unit[j]]; i++, at++) {
      rank[at] = j;
      sequence[at] = p->anchor[p->first[unit[j]] + i];
    }
  }
  pos[p->units] = at;
  for (uint64_t l = 0; l < lanes && q; l++) {
    uint64_t first = rank[l * q], end = (l + 1) * q, a = l * q, k = 0, u = first,
             first_window = ceil_div(w * (l + 1), lanes);

    for (; a < end; k++) {
      u += k ? w : first_window;
      uint64_t stop = least(pos[least(u, p->units)], end);
      uint64_t *mixed = permutation(stop - a, order_key((uint64_t[]){seed, epoch, l, k}, 4)),
               lo = UINT64_MAX, hi = 0;
      for (uint64_t i = a; i < stop; i++) {
        uint64_t position = (i - l * q) * lanes + l;

        e.anchor[position] = sequence[a + mixed[i - a]];
        e.mixed[position] = e.n_mixed;
        lo = least(lo, position / g);
        hi = most(hi, position / g);
      }
      e.n_mixed++;
      e.span = most(e.span, hi - lo + 1);
      a = stop;
    }
  }
  return e;
}

/* Evaluation: each rank one contiguous range, in order. The windows that reads are shared in come
 * from insitu_order_at. */
static inline struct epoch sequential(const struct part *p, uint64_t g, uint64_t lanes) {
  struct epoch e = {.global = g, .lanes = lanes};
  uint64_t q = ceil_div(p->n, lanes);

  e.batches = ceil_div(q, g / lanes);
  e.positions = e.batches * g;
  e.anchor = own(e.positions * 8);
  e.mixed = own(e.positions * 8);
  for (uint64_t i = 0; i < e.positions; i++) {
    uint64_t l = i % lanes, k = i / lanes;

    e.anchor[i] = k < q && l * q + k < p->n ? p->anchor[l * q + k] : -1;
  }
  return e;
}

/* The anchors of a rank's batch; how many. */
static inline uint64_t epoch_batch(
    const struct epoch *e, uint64_t world, uint64_t rank, uint64_t batch, int64_t *to) {
  uint64_t n = 0;

  for (uint64_t p = batch * e->global; p < (batch + 1) * e->global; p++)
    if (p % e->lanes * world / e->lanes == rank && e->anchor[p] >= 0) to[n++] = e->anchor[p];
  return n;
}

/* The default number of lanes. */
static inline uint64_t default_lanes(
    uint64_t g, uint64_t block, uint64_t unit_chunks, uint64_t units) {
  uint64_t bound = least(block / unit_chunks, units / 8), lanes = 1;

  for (uint64_t l = 1; l <= g; l++)
    if (g % l == 0 && l <= bound) lanes = l;
  return lanes;
}

/* ---- what is read ---- */
struct reads {
  uint64_t reads, distinct, wanted, bytes, absent, rows;
};

/* Chunks that one read returns, of a view's box at a sample: calls each for every one, a number
 * within the array. */
struct chunk_set { /* of one array: when it was last seen, + 1 */
  uint64_t *stamp, grid[MAX_DIMS], n, bytes;
  /* the same of absent inner chunks of shards that are read whole, by level */
  uint64_t *hole[MAX_LEVELS];
};

static inline struct chunk_set chunk_set(const struct array *a) {
  const struct level *l = &a->level[array_leaf(a)];
  struct chunk_set c = {.n = 1, .bytes = a->type->bytes};

  for (int d = 0; d < a->ndim; d++) {
    c.n *= c.grid[d] = ceil_div(a->shape[d], l->size[d]);
    c.bytes *= l->size[d];
  }
  c.stamp = own(c.n * sizeof *c.stamp);
  for (int level = 0; level < a->n_levels; level++)
    c.hole[level] = own(a->n_chunks * sizeof *c.hole[level]);
  return c;
}

/* Chunks of a level that hold something that is shown. */
struct chunk_walk {
  const uint64_t *list[MAX_DIMS]; /* along each axis; NULL: the chunk in `at` alone */
  uint64_t n[MAX_DIMS], i[MAX_DIMS], at[MAX_DIMS];
};

static inline struct chunk_walk chunk_walk(const struct view *v, int level, int64_t sample) {
  const struct array *a = v->array;
  struct chunk_walk w = {0};

  for (int d = 0; d < a->ndim; d++) {
    bool rows = d == a->axis && sample >= 0; /* -1: what is shown of all axes */

    w.list[d] = rows ? NULL : v->tile[level][d];
    w.n[d] = rows ? 1 : v->n_tiles[level][d];
    w.at[d] = rows ? (uint64_t)sample / a->level[level].size[d] : w.list[d][0];
  }
  return w;
}

static inline bool chunk_walk_next(struct chunk_walk *w, int ndim) {
  int d = ndim - 1;

  for (; d >= 0 && w->i[d] + 1 == w->n[d]; d--) {
    w->i[d] = 0;
    if (w->list[d]) w->at[d] = w->list[d][0];
  }
  if (d < 0) return false;
  w->at[d] = w->list[d][++w->i[d]];
  return true;
}

/* How many absent inner chunks of the box, in shards that are read whole, bear another stamp; they
 * get this one. */
static inline uint64_t chunk_set_holes(
    struct chunk_set *c, const struct view *v, int64_t sample, uint64_t stamp) {
  const struct array *a = v->array;
  int innermost = a->n_levels - 1, leaf = array_leaf(a);
  struct chunk_walk w = chunk_walk(v, innermost, sample);
  uint64_t at[MAX_DIMS], holes = 0;

  if (leaf == innermost || !a->absent) return 0;
  do {
    for (int d = 0; d < a->ndim; d++) at[d] = w.at[d] * a->level[innermost].size[d];
    int level = array_absent_level(a, at);
    uint64_t number = level > leaf ? array_number(a, level, at) : 0;

    if (level <= leaf || c->hole[level][number] == stamp) continue;
    c->hole[level][number] = stamp;
    holes++;
  } while (chunk_walk_next(&w, a->ndim));
  return holes;
}

/* How many chunks of the box at a sample (-1: of all of it) bear another stamp; they get this one.
 * *absent: those of them that are not stored, and absent inner chunks of those that are. */
static inline uint64_t chunk_set_add(
    struct chunk_set *c, const struct view *v, int64_t sample, uint64_t stamp, uint64_t *absent) {
  const struct array *a = v->array;
  int leaf = array_leaf(a);
  struct chunk_walk w = chunk_walk(v, leaf, sample);
  uint64_t fresh = 0;

  do {
    uint64_t number = 0;

    for (int d = 0; d < a->ndim; d++) number = number * c->grid[d] + w.at[d];
    if (c->stamp[number] == stamp) continue;
    c->stamp[number] = stamp;
    fresh++;
    if (absent) *absent += a->not_stored[leaf][number];
  } while (chunk_walk_next(&w, a->ndim));
  if (absent) *absent += chunk_set_holes(c, v, sample, stamp);
  return fresh;
}

/* What a rank reads for an epoch: a chunk once for each window that shows some of it. */
static inline struct reads epoch_reads(
    const struct epoch *e, uint64_t world, uint64_t rank, const struct view *view, int n_views) {
  struct reads r = {0};
  struct chunk_set *of[MAX_DIMS], *alone[MAX_DIMS], *ever[MAX_DIMS];
  uint64_t *next = own(e->positions * 8), *head = own(e->n_mixed * 8 + 8), stamp = 0;

  for (int i = 0; i < n_views; i++) {
    of[i] = ever[i] = NULL;
    for (int k = 0; k < i; k++)
      if (view[k].array == view[i].array) of[i] = of[k], ever[i] = ever[k];
    if (!of[i]) {
      of[i] = own(sizeof *of[i]);
      ever[i] = own(sizeof *ever[i]);
      *of[i] = chunk_set(view[i].array);
      *ever[i] = chunk_set(view[i].array);
    }
    alone[i] = own(view_steps(&view[i]) * sizeof *alone[i]);
    for (uint64_t k = 0; k < view_steps(&view[i]); k++) alone[i][k] = chunk_set(view[i].array);
  }
  for (uint64_t p = e->positions; p-- > 0;) {
    if (e->anchor[p] < 0 || p % e->lanes * world / e->lanes != rank) continue;
    next[p] = head[e->mixed[p]];
    head[e->mixed[p]] = p + 1;
    r.rows++;
  }
  for (uint64_t w = 0; w < e->n_mixed; w++) {
    stamp++;
    for (uint64_t at = head[w]; at; at = next[at - 1])
      for (int i = 0; i < n_views; i++)
        for (uint64_t k = 0; k < view_steps(&view[i]); k++) {
          int64_t sample = view_sample(&view[i], e->anchor[at - 1], k);
          uint64_t fresh = chunk_set_add(of[i], &view[i], sample, stamp, &r.absent);

          r.reads += fresh;
          r.bytes += fresh * of[i]->bytes;
          r.distinct += chunk_set_add(ever[i], &view[i], sample, 1, NULL);
          r.wanted += chunk_set_add(&alone[i][k], &view[i], sample, stamp, NULL);
        }
  }
  return r;
}
#endif
