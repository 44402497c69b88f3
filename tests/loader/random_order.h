/* The order of an epoch and what is read for it, worked out from the manual and the normative model
 * of the order. After random_model.h. */
#ifndef TESTS_RANDOM_ORDER_H
#define TESTS_RANDOM_ORDER_H

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

/* The shuffled order of several axes: the public functions deal the units, in the numbers that the
 * manual gives them by class. Windows are told apart by lane and number. */
static inline struct epoch shuffled_product(
    const struct part *p, uint64_t seed, uint64_t epoch, uint64_t g, uint64_t lanes, uint64_t w) {
  struct epoch e = {.global = g, .lanes = lanes, .window = w, .batches = p->n / g};
  insitu_order_desc d = {.api = INSITU_API,
      .units = p->units,
      .unit_rows = p->unit_rows,
      .seed = seed,
      .epoch = epoch,
      .global_batch = g,
      .lanes = lanes,
      .window = w,
      .classes = p->classes,
      .n_classes = p->n_classes};
  insitu_order *o;
  insitu_error err = {0};
  uint64_t most_windows = p->units + 2, *lo, *hi;

  if (insitu_order_open(&d, &o, &err)) differ("insitu_order_open: %s", err.message);
  e.positions = e.batches * g;
  e.anchor = own(e.positions * 8);
  e.mixed = own(e.positions * 8);
  e.n_mixed = lanes * most_windows;
  lo = own(e.n_mixed * 8);
  hi = own(e.n_mixed * 8);
  for (uint64_t i = 0; i < e.positions; i++) {
    insitu_order_place at;
    insitu_status status = insitu_order_at(o, i, &at);

    if (status || at.unit >= p->units || at.within >= p->rows[p->numbered[at.unit]]) {
      insitu_order_close(&o);
      differ("insitu_order_at %d: %s", (int)i, insitu_status_name(status));
    }
    e.anchor[i] = p->anchor[p->first[p->numbered[at.unit]] + at.within];
    uint64_t window = e.mixed[i] = at.lane * most_windows + at.window;
    if (!hi[window]) lo[window] = i / g;
    hi[window] = i / g + 1;
    e.span = most(e.span, hi[window] - lo[window]);
  }
  insitu_order_close(&o);
  return e;
}

/* Of patches, whose blocks only the library knows: how many rows there are. insitu_iter_locate
 * tells what stands there. All of it counts as one window. */
static inline struct epoch unlocated(uint64_t n, bool mixed, uint64_t g, uint64_t lanes) {
  struct epoch e = {.global = g, .lanes = lanes, .batches = n / g, .n_mixed = 1};
  uint64_t q = mixed ? n / g * (g / lanes) : ceil_div(n, lanes);

  if (!mixed) e.batches = ceil_div(q, g / lanes);
  e.positions = e.batches * g;
  e.anchor = own(e.positions * 8);
  e.mixed = own(e.positions * 8);
  for (uint64_t i = 0; i < e.positions; i++) {
    uint64_t l = i % lanes, k = i / lanes;

    e.anchor[i] = k < q && l * q + k < n ? 0 : -1;
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

/* The default number of lanes: each has two units of the window, and eight of the part. */
static inline uint64_t default_lanes(
    uint64_t g, uint64_t block, uint64_t unit_chunks, uint64_t units) {
  uint64_t bound = least(block / unit_chunks / 2, units / 8), lanes = 1;

  for (uint64_t l = 1; l <= g; l++)
    if (g % l == 0 && l <= bound) lanes = l;
  return lanes;
}

/* ---- what is read ---- */
struct holes { /* chunks that are not stored, and damaged ones */
  uint64_t absent, bad;
};
struct reads {
  uint64_t reads, distinct, wanted, bytes, rows;
  struct holes holes;
  uint64_t cached; /* reads where decoded chunks are kept, and there is room for all of them */
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

/* Chunks of a level that hold something of what is shown. */
struct chunk_walk {
  const uint64_t *list[MAX_DIMS]; /* along each axis; NULL: n of them from `first` on */
  uint64_t first[MAX_DIMS], n[MAX_DIMS], i[MAX_DIMS], at[MAX_DIMS];
};

/* Of a step of an anchor, by its indexes; NULL: of all that is shown. */
static inline struct chunk_walk chunk_walk(
    const struct view *v, int level, const int64_t *anchor, uint64_t step) {
  const struct array *a = v->array;
  struct chunk_walk w = {0};

  for (int d = 0; d < a->ndim; d++) {
    const struct axis *axis = anchor ? view_axis(v, d) : NULL;
    uint64_t size = a->level[level].size[d];

    w.list[d] = axis ? NULL : v->tile[level][d];
    w.n[d] = axis ? 1 : v->n_tiles[level][d];
    w.at[d] = axis ? 0 : w.list[d][0];
    if (!axis) continue;
    int64_t index = anchor[a->drawn[d] - 1];
    if (d == a->axis) index = view_sample(v, index, step);
    if (axis->patch) index -= (int64_t)v->v.halo;
    int64_t last = index + (int64_t)view_length(v, d) - 1, most_at = (int64_t)a->shape[d] - 1;
    if (index < 0) index = 0; /* what hangs over the ends is in no chunk */
    if (last > most_at) last = most_at;
    w.first[d] = w.at[d] = (uint64_t)index / size;
    w.n[d] = (uint64_t)last / size - w.first[d] + 1;
  }
  return w;
}

static inline bool chunk_walk_next(struct chunk_walk *w, int ndim) {
  int d = ndim - 1;

  for (; d >= 0 && w->i[d] + 1 == w->n[d]; d--) {
    w->i[d] = 0;
    w->at[d] = w->list[d] ? w->list[d][0] : w->first[d];
  }
  if (d < 0) return false;
  w->i[d]++;
  w->at[d] = w->list[d] ? w->list[d][w->i[d]] : w->first[d] + w->i[d];
  return true;
}

/* How many absent inner chunks of the box, in shards that are read whole, bear another stamp; they
 * get this one. */
static inline uint64_t chunk_set_holes(struct chunk_set *c, const struct view *v,
    const int64_t *anchor, uint64_t step, uint64_t stamp) {
  const struct array *a = v->array;
  int innermost = a->n_levels - 1, leaf = array_leaf(a);
  struct chunk_walk w = chunk_walk(v, innermost, anchor, step);
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

/* How many chunks of what a step shows of an anchor (NULL: of all of it) bear another stamp; they
 * get this one. To *holes (NULL: to none) are added those that are not stored or damaged, and
 * absent inner chunks of the others. */
static inline uint64_t chunk_set_add(struct chunk_set *c, const struct view *v,
    const int64_t *anchor, uint64_t step, uint64_t stamp, struct holes *holes) {
  const struct array *a = v->array;
  int leaf = array_leaf(a);
  struct chunk_walk w = chunk_walk(v, leaf, anchor, step);
  uint64_t fresh = 0, at[MAX_DIMS];

  do {
    uint64_t number = 0;

    for (int d = 0; d < a->ndim; d++) {
      number = number * c->grid[d] + w.at[d];
      at[d] = w.at[d] * a->level[leaf].size[d];
    }
    if (c->stamp[number] == stamp) continue;
    c->stamp[number] = stamp;
    fresh++;
    if (!holes) continue;
    if (array_bad(a, at)) holes->bad++;
    else holes->absent += a->not_stored[leaf][number];
  } while (chunk_walk_next(&w, a->ndim));
  if (holes) holes->absent += chunk_set_holes(c, v, anchor, step, stamp);
  return fresh;
}

/* Of a view's array, a chunk that one read returns is kept decoded: it is in no codec's bytes. */
static inline bool chunks_are_kept(const struct array *a) {
  return array_leaf(a) == a->n_levels - 1;
}

/* Chunks of each view's array that a loader has read before. */
struct known {
  struct chunk_set *of[MAX_VIEWS];
};

static inline struct known known_new(const struct view *view, int n_views) {
  struct known known = {0};

  for (int i = 0; i < n_views; i++) {
    for (int k = 0; k < i; k++)
      if (view[k].array == view[i].array) known.of[i] = known.of[k];
    if (known.of[i]) continue;
    known.of[i] = own(sizeof *known.of[i]);
    *known.of[i] = chunk_set(view[i].array);
  }
  return known;
}

/* Of so many chunks that a window shows first in a step of an anchor, of which some are absent or
 * damaged, how many are read where all that were read before are kept. These never are. */
static inline uint64_t known_add(const struct known *known, const struct view *view, int i,
    const int64_t *anchor, uint64_t step, uint64_t fresh, struct holes holes) {
  struct holes gone = {0};

  if (!chunks_are_kept(view[i].array)) return fresh;
  uint64_t unknown = chunk_set_add(known->of[i], &view[i], anchor, step, 1, &gone);
  return unknown - gone.absent - gone.bad + holes.absent + holes.bad;
}

/* What a rank reads for an epoch: a chunk once for each window that shows some of it. */
static inline struct reads epoch_reads(const struct epoch *e, uint64_t world, uint64_t rank,
    const struct view *view, int n_views, const struct known *known) {
  struct reads r = {0};
  struct chunk_set *of[MAX_VIEWS], *alone[MAX_VIEWS], *ever[MAX_VIEWS];
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
    for (uint64_t at = head[w]; at; at = next[at - 1]) {
      int64_t anchor[MAX_AXES];

      space_index(view->space, e->anchor[at - 1], anchor);
      for (int i = 0; i < n_views; i++)
        for (uint64_t k = 0; k < view_steps(&view[i]); k++) {
          struct holes holes = {0};
          uint64_t fresh = chunk_set_add(of[i], &view[i], anchor, k, stamp, &holes);

          r.reads += fresh;
          r.holes.absent += holes.absent;
          r.holes.bad += holes.bad;
          if (known) r.cached += known_add(known, view, i, anchor, k, fresh, holes);
          r.bytes += fresh * of[i]->bytes;
          r.distinct += chunk_set_add(ever[i], &view[i], anchor, k, 1, NULL);
          r.wanted += chunk_set_add(&alone[i][k], &view[i], anchor, k, stamp, NULL);
        }
    }
  }
  return r;
}
#endif
