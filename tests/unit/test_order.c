/* The epoch order: golden dumps of the model, exactly once, inverse, windows, sequential order,
 * classes of units against a list, shuffle quality, refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static int allocations, fail_at; /* counts; the fail_at-th from now on (1-based) fails */
static void *counted_realloc(void *p, size_t bytes) {
  allocations++;
  return fail_at && allocations >= fail_at ? NULL : realloc(p, bytes);
}
#define INSITU_REALLOC(p, bytes) counted_realloc(p, bytes)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static uint64_t random_state;
/* PCG's generator, so that the code under test does not choose its own cases */
static uint64_t any(void) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  uint64_t x = random_state;
  return ((x >> 18 ^ x) >> 5) * UINT64_C(0xda942042e4dd58b5) ^ x >> 29;
}
static uint64_t below(uint64_t n) {
  return any() % n;
}

/* ---- golden ---- */
static uint64_t number(FILE *f) {
  uint64_t x;
  assert_int_equal(fscanf(f, " %" SCNu64, &x), 1);
  return x;
}
static uint64_t fnv(uint64_t h, uint64_t x) {
  for (int i = 0; i < 8; i++, x >>= 8) h = (h ^ (x & 255)) * UINT64_C(0x100000001B3);
  return h;
}
static bool where(
    const struct insitu__order *o, uint64_t unit, uint64_t within, uint64_t *position) {
  return !insitu_order_where((const insitu_order *)(const void *)o, unit, within, position);
}
static void check_place(const struct insitu__order *o, uint64_t position, FILE *f) {
  insitu_order_place p;
  uint64_t back;
  assert_true(insitu__order_at(o, position, &p));
  assert_int_equal(p.unit, number(f));
  assert_int_equal(p.within, number(f));
  assert_int_equal(p.lane, number(f));
  assert_int_equal(p.window, number(f));
  assert_true(where(o, p.unit, p.within, &back));
  assert_int_equal(back, position);
}
static void golden(void **state) {
  (void)state;
  FILE *f = fopen(TEST_DATA "/order_golden.txt", "r");
  assert_non_null(f);
  char line[8];
  int cases = 0;
  for (; fscanf(f, " %7s", line) == 1; cases++) {
    const bool classed = !strncmp(line, "c_", 2); /* its pairs are classes */
    const char *kind = line + 2 * classed;
    insitu_order_desc d = {0};
    uint64_t *field[] = {&d.units, &d.unit_rows, &d.seed, &d.epoch, &d.global_batch, &d.lanes,
        &d.window, &d.n_irregular};
    for (int i = 0; i < 8; i++) *field[i] = number(f);
    struct insitu__order_irregular *irregular = calloc(d.n_irregular + 1, sizeof *irregular);
    for (uint64_t i = 0; i < d.n_irregular; i++)
      irregular[i].unit = number(f), irregular[i].rows = number(f);
    d.irregular = (uint64_t *)irregular;
    if (classed) {
      d.classes = d.irregular;
      d.n_classes = d.n_irregular;
      d.n_irregular = 0;
    }
    struct insitu__order o;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    assert_int_equal(o.batches, number(f));
    uint64_t positions = o.batches * o.global_batch, h = UINT64_C(0xCBF29CE484222325);
    if (*kind == 'h') {
      for (uint64_t p = 0; p < positions; p++) {
        insitu_order_place at;
        assert_true(insitu__order_at(&o, p, &at));
        h = fnv(fnv(fnv(fnv(fnv(h, p), at.unit), at.within), at.lane), at.window);
      }
      assert_true(h == number(f));
    } else {
      assert_int_equal(fgetc(f) + fgetc(f), ' ' + ':');
      uint64_t count = *kind == 'd' ? positions : number(f);
      for (uint64_t i = 0; i < count; i++) check_place(&o, *kind == 'd' ? i : number(f), f);
    }
    insitu__order_free(&o);
    free(irregular);
  }
  fclose(f);
  assert_int_equal(cases, 427);
}

/* ---- properties ---- */
/* Walks every lane window by window, as a reader does, and holds each place against at, where and
 * the bounds. */
static uint64_t check_lane(const struct insitu__order *o, uint64_t lane, uint8_t *seen) {
  struct insitu__order_window w = {0};
  insitu_order_place p, q;
  uint64_t share = o->global_batch / o->lanes, rows = insitu__order_rows(o, lane),
           span = insitu__order_span(o), back;
  for (uint64_t i = 0; i < rows; i++) {
    uint64_t index = w.index;
    if (i == w.offset + (w.end - w.begin)) {
      insitu__order_window_init(o, &w, lane, insitu__order_lane_begin(o, lane) + i);
      assert_int_equal(w.offset, i);
      assert_true(i == 0 || w.index > index);
      assert_true(w.end > w.begin);
    }
    insitu__order_window_at(o, &w, i, &p);
    assert_true(insitu__order_at(o, i * o->lanes + lane, &q));
    assert_true(p.unit == q.unit && p.within == q.within && p.lane == q.lane &&
                p.window == q.window && p.lane == lane);
    uint64_t a = insitu__order_unit_begin(o, p.unit) + p.within;
    assert_true(a >= w.begin && a < w.end);
    assert_int_equal(insitu__order_window_index(&w, a - w.begin), i);
    assert_true(where(o, p.unit, p.within, &back) && back == i * o->lanes + lane);
    assert_true(i / share - w.offset / share < span);
    if (o->sequential) assert_int_equal(a, insitu__order_lane_begin(o, lane) + i);
    assert_true(p.unit < o->units && p.within < o->unit_rows);
    assert_int_equal(seen[p.unit * o->unit_rows + p.within]++, 0);
  }
  return rows;
}

static void check_order(const struct insitu__order *o, const insitu_order_desc *d) {
  uint8_t *seen = calloc(o->units * o->unit_rows, 1);
  insitu_order_place p;
  uint64_t delivered = 0, total = 0, dropped = 0, next = 0, position;
  for (uint64_t l = 0; l < o->lanes; l++) delivered += check_lane(o, l, seen);
  for (uint64_t u = 0; u < o->units; u++) {
    bool listed = next < d->n_irregular && d->irregular[2 * next] == u;
    uint64_t rows = listed ? d->irregular[2 * next++ + 1] : o->unit_rows;
    total += rows;
    for (uint64_t i = 0; i < o->unit_rows; i++) {
      if (i >= rows) assert_int_equal(seen[u * o->unit_rows + i], 0);
      else if (!where(o, u, i, &position)) dropped += !seen[u * o->unit_rows + i];
    }
  }
  assert_int_equal(o->anchors, total);
  assert_int_equal(delivered, o->sequential ? total : total / o->global_batch * o->global_batch);
  assert_int_equal(dropped, total - delivered);
  uint64_t positions = o->batches * o->global_batch, filled = 0;
  for (uint64_t i = 0; i < positions; i++) filled += insitu__order_at(o, i, &p);
  assert_int_equal(filled, delivered);
  assert_false(insitu__order_at(o, positions, &p) || insitu__order_at(o, UINT64_MAX, &p));
  if (!o->sequential) /* every rank gets the same number of rows in every batch */
    for (uint64_t l = 0; l < o->lanes; l++)
      assert_int_equal(insitu__order_rows(o, l), positions / o->lanes);
  else if (o->batches)
    assert_true(insitu__order_rows(o, 0) > (o->batches - 1) * (o->global_batch / o->lanes));
  free(seen);
}

static void properties(void **state) {
  (void)state;
  uint64_t sizes[] = {1, 1, 2, 3, 8, 30};
  for (uint64_t round = 0; round < 500; round++) {
    struct insitu__order_irregular list[120];
    random_state = round;
    insitu_order_desc d = {.units = 1 + below(120),
        .unit_rows = sizes[below(6)],
        .seed = any(),
        .epoch = below(6),
        .window = 1 + below(9),
        .sequential = round & 1,
        .irregular = (uint64_t *)list};
    uint64_t share = below(4), lanes[] = {1, 1, 2, 4, 6, 8};
    for (uint64_t u = 0; u < d.units; u++)
      if (below(4) < share)
        list[d.n_irregular++] = (struct insitu__order_irregular){u, below(d.unit_rows + 1)};
    d.lanes = lanes[below(6)];
    d.global_batch = d.lanes * (1 + below(9));
    if (below(8) == 0) d.window = UINT64_MAX - below(9);
    struct insitu__order o, fresh;
    insitu_order_place p, q;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    check_order(&o, &d);
    d.epoch = any();
    assert_int_equal(insitu__order_init(&fresh, &d, NULL), INSITU_OK);
    int before = allocations;
    insitu__order_reset(&o, d.epoch);
    assert_int_equal(allocations, before);
    for (uint64_t i = 0; i < o.batches * o.global_batch; i++) {
      assert_int_equal(insitu__order_at(&o, i, &p), insitu__order_at(&fresh, i, &q));
      assert_true(p.unit == q.unit && p.within == q.within && p.window == q.window);
    }
    insitu__order_free(&fresh);
    insitu__order_free(&o);
  }
}

/* A shape as tables: the sequence's units in any order, each with its first anchor. */
struct tables {
  uint64_t units, begin[61], unit[60], rank[60];
};
static uint64_t table_begin(const void *user, uint64_t rank) {
  return ((const struct tables *)user)->begin[rank];
}
static uint64_t table_unit(const void *user, uint64_t rank) {
  return ((const struct tables *)user)->unit[rank];
}
static uint64_t table_rank(const void *user, uint64_t unit) {
  return ((const struct tables *)user)->rank[unit];
}
static uint64_t table_rank_of(const void *user, uint64_t a) {
  const struct tables *t = user;
  uint64_t rank = 0;
  while (t->begin[rank + 1] <= a) rank++;
  assert_true(rank < t->units);
  return rank;
}
static void shapes(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 300; round++) {
    struct tables t = {0};
    struct insitu__order_shape shape = {table_begin, table_rank_of, table_unit, table_rank, &t};
    struct insitu__order o;
    insitu_order_place p;
    random_state = round;
    uint64_t lanes[] = {1, 1, 2, 4, 6, 8}, list[] = {0, 0}; /* which the shape overrules */
    insitu_order_desc d = {.units = t.units = 1 + below(60),
        .unit_rows = 1 + below(9),
        .lanes = lanes[below(6)],
        .window = 1 + below(9),
        .irregular = list,
        .n_irregular = round & 1,
        .sequential = true};
    d.global_batch = d.lanes * (1 + below(9));
    for (uint64_t i = 0; i < d.units; i++) {
      uint64_t j = below(i + 1);
      t.begin[i + 1] = t.begin[i] + 1 + below(d.unit_rows);
      t.unit[i] = t.unit[j], t.unit[j] = i;
    }
    for (uint64_t i = 0; i < d.units; i++) t.rank[t.unit[i]] = i;
    assert_int_equal(insitu__order_init_shape(&o, &d, &shape, NULL), INSITU_OK);
    assert_int_equal(o.anchors, t.begin[d.units]);
    uint8_t *seen = calloc(d.units * d.unit_rows, 1);
    uint64_t rows = 0;
    for (uint64_t l = 0; l < d.lanes; l++) rows += check_lane(&o, l, seen);
    assert_int_equal(rows, o.anchors);
    for (uint64_t i = 0, a = 0, rank = 0; i < o.batches * o.global_batch; i++) {
      a = i % d.lanes * o.lane_anchors + i / d.lanes;
      if (!insitu__order_at(&o, i, &p)) continue;
      for (rank = 0; t.begin[rank + 1] <= a;) rank++;
      assert_true(p.unit == t.unit[rank] && p.within == a - t.begin[rank]);
    }
    insitu__order_free(&o);
    /* the shuffled order does not look at it */
    d.sequential = false;
    assert_int_equal(insitu__order_init_shape(&o, &d, &shape, NULL), INSITU_OK);
    assert_int_equal(o.anchors, (d.units - d.n_irregular) * d.unit_rows);
    insitu__order_free(&o);
    free(seen);
  }
}

/* 10 anchors, 4 lanes: 3 3 3 1, in batches of 2 rows a lane */
static void sequential_lanes(void **state) {
  (void)state;
  struct insitu__order_irregular tail = {3, 1};
  insitu_order_desc d = {.units = 4,
      .unit_rows = 3,
      .global_batch = 8,
      .lanes = 4,
      .window = 1,
      .sequential = true,
      .irregular = (uint64_t *)&tail,
      .n_irregular = 1};
  struct insitu__order o;
  insitu_order_place p;
  assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
  uint64_t rows[] = {3, 3, 3, 1}, at[16] = {0, 3, 6, 9, 1, 4, 7, 99, 2, 5, 8, 99, 99, 99, 99, 99};
  for (uint64_t l = 0; l < 4; l++) assert_int_equal(insitu__order_rows(&o, l), rows[l]);
  assert_int_equal(o.batches, 2);
  for (uint64_t i = 0; i < 16; i++)
    assert_int_equal(insitu__order_at(&o, i, &p) ? p.unit * 3 + p.within : 99, at[i]);
  insitu__order_free(&o);
  /* and with nothing to deliver */
  struct insitu__order_irregular none[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  d.irregular = (uint64_t *)none;
  d.n_irregular = 4;
  for (int sequential = 0; sequential < 2; sequential++) {
    d.sequential = sequential;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    assert_true(o.batches == 0 && o.anchors == 0 && insitu__order_span(&o) == 0 &&
                insitu__order_rows(&o, 3) == 0);
    assert_false(insitu__order_at(&o, 0, &p));
    insitu__order_free(&o);
  }
}

static void arithmetic(void **state) { /* the two shortcuts against what they stand for */
  (void)state;
  random_state = 1;
  for (int i = 0; i < 200000; i++) {
    uint64_t by = any() >> below(64), x = any() >> below(64);
    if (!by) by = 1 + below(9);
    if (i % 3 == 0) x = x / by * by - (i & 1);
    struct insitu__order_divisor d = insitu__order_divisor(by);
    assert_true(insitu__order_divide(&d, x) == x / by);
    unsigned shift = 33 + (unsigned)below(31);
    assert_true(insitu__order_round(x, shift) == insitu__order_mix(x) >> shift);
  }
}

static void huge(void **state) {
  (void)state;
  uint64_t units[] = {1000000000, UINT64_C(1) << 40, (UINT64_C(1) << 61) - 1}, rows[] = {1, 365, 1};
  for (int c = 0; c < 6; c++) {
    random_state = (uint64_t)c;
    struct insitu__order_irregular irregular[] = {
        {0, 0}, {units[c % 3] / 2, 0}, {units[c % 3] - 1, 0}};
    insitu_order_desc d = {.units = units[c % 3],
        .unit_rows = rows[c % 3],
        .seed = any(),
        .global_batch = 512,
        .lanes = 64,
        .window = 1 + below(5000),
        .sequential = c >= 3,
        .irregular = (uint64_t *)irregular,
        .n_irregular = 3};
    struct insitu__order o;
    insitu_order_place p;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    for (int i = 0; i < 2000; i++) {
      uint64_t position = below(o.batches * 512), back, unit = 1 + below(d.units / 2 - 1),
               within = below(d.unit_rows);
      if (insitu__order_at(&o, position, &p))
        assert_true(where(&o, p.unit, p.within, &back) && back == position);
      else assert_true(o.sequential && position / 512 + 1 == o.batches);
      /* one of less than 512 in at least 10^9 */
      if (!where(&o, unit, within, &back)) continue;
      assert_true(insitu__order_at(&o, back, &p) && p.unit == unit && p.within == within);
    }
    insitu__order_free(&o);
  }
}

/* ---- classes ---- */
/* The order of a desc with classes, by its definition alone: every unit, slot and anchor is listed.
 * Only keys and permutations are those of the code under test, which the golden dumps hold. */
struct listed {
  uint64_t units, anchors, batches, lane_anchors;
  uint64_t *unit, *of,
      *begin;     /* by rank: unit, its class, its first anchor; begin[units]: the end */
  uint64_t *rank; /* by anchor of the sequence */
};

static uint64_t key_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d, int n) {
  return insitu__order_key((const uint64_t[]){a, b, c, d}, n);
}

/* Deals the ranks, level by level: those that a class leaves are the slots of the next. */
static void list_deal(struct listed *l, const insitu_order_desc *d) {
  const uint64_t tag = 0x636c617373; /* "class" */
  uint64_t *slot = calloc(d->units, sizeof *slot), slots = d->units, base = 0;
  for (uint64_t j = 0; j < slots; j++) slot[j] = j;
  for (uint64_t c = 0; c < d->n_classes; c++) {
    uint64_t m = d->classes[2 * c], left = 0, nth = 0, level = slots;
    uint64_t phi = key_of(d->seed, d->epoch, tag, c, 4) % level;
    struct insitu__order_perm p;
    insitu__order_perm_init(&p, m, key_of(d->seed, d->epoch, c, 0, c ? 3 : 2));
    for (uint64_t j = 0; j < level; j++) {
      if (((j + 1) * m + phi) / level == (j * m + phi) / level) {
        slot[left++] = slot[j];
        continue;
      }
      l->unit[slot[j]] = base + insitu__order_perm_fwd(&p, nth++);
      l->of[slot[j]] = c;
    }
    assert_int_equal(nth, m);
    assert_int_equal(left, level - m);
    slots = left;
    base += m;
  }
  free(slot);
}

static void list_order(struct listed *l, const insitu_order_desc *d) {
  *l = (struct listed){.units = d->units};
  l->unit = calloc(d->units, sizeof *l->unit);
  l->of = calloc(d->units, sizeof *l->of);
  l->begin = calloc(d->units + 1, sizeof *l->begin);
  if (!d->sequential) list_deal(l, d);
  else
    for (uint64_t c = 0, u = 0; c < d->n_classes; c++)
      for (uint64_t i = 0; i < d->classes[2 * c]; i++, u++) l->unit[u] = u, l->of[u] = c;
  for (uint64_t r = 0; r < d->units; r++)
    l->begin[r + 1] = l->begin[r] + d->classes[2 * l->of[r] + 1];
  l->anchors = l->begin[d->units];
  l->rank = calloc(l->anchors, sizeof *l->rank);
  for (uint64_t r = 0; r < d->units; r++)
    for (uint64_t a = l->begin[r]; a < l->begin[r + 1]; a++) l->rank[a] = r;
  uint64_t share = d->global_batch / d->lanes;
  l->batches = l->anchors / d->global_batch;
  l->lane_anchors = l->batches * share;
  if (d->sequential) {
    l->lane_anchors = (l->anchors + d->lanes - 1) / d->lanes;
    l->batches = (l->lane_anchors + share - 1) / share;
  }
}

static void list_free(struct listed *l) {
  free(l->unit), free(l->of), free(l->begin), free(l->rank);
}

/* What the list has at a position, as model/order.py finds it; false: a sequential lane's end. */
static bool list_at(
    const struct listed *l, const insitu_order_desc *d, uint64_t position, insitu_order_place *p) {
  uint64_t lane = position % d->lanes, index = position / d->lanes, from = lane * l->lane_anchors,
           to = from + l->lane_anchors, a = from + index;
  if (to > l->anchors) to = l->anchors;
  if (a >= to || index >= l->lane_anchors) return false;
  uint64_t first = l->rank[from], head = (d->window * (lane + 1) + d->lanes - 1) / d->lanes,
           x = l->rank[a] - first, low = 0, high = head;
  *p = (insitu_order_place){.lane = lane};
  while (x >= high) low = high, high += d->window, p->window++;
  uint64_t last = first + high < d->units ? first + high : d->units, begin = l->begin[first + low],
           end = l->begin[last];
  if (begin < from) begin = from;
  if (end > to) end = to;
  if (!d->sequential) {
    struct insitu__order_perm mixer;
    insitu__order_perm_init(&mixer, end - begin, key_of(d->seed, d->epoch, lane, p->window, 4));
    a = begin + insitu__order_perm_fwd(&mixer, a - begin);
  }
  p->unit = l->unit[l->rank[a]];
  p->within = a - l->begin[l->rank[a]];
  return true;
}

/* Every class has its share of every beginning of the sequence, but for one unit a level. */
static void check_spread(const struct listed *l, const insitu_order_desc *d) {
  uint64_t *count = calloc(d->n_classes, sizeof *count);
  for (uint64_t r = 0; r < l->units; r++) {
    count[l->of[r]]++;
    for (uint64_t c = 0; c < d->n_classes; c++) {
      double even = (double)(r + 1) * (double)d->classes[2 * c] / (double)l->units;
      assert_true(fabs((double)count[c] - even) <= (double)d->n_classes);
    }
  }
  free(count);
}

/* Any classes: of few units or many, of one anchor or many. */
static insitu_order_desc any_classes(uint64_t *list, uint64_t most) {
  uint64_t lanes[] = {1, 1, 2, 4, 6, 8}, counts[] = {1, 1, 2, 7, 40, 150},
           rows[] = {1, 1, 2, 9, 30};
  insitu_order_desc d = {.unit_rows = rows[below(5)],
      .seed = any(),
      .epoch = below(2) ? below(6) : any(),
      .window = 1 + below(below(2) ? 9 : 60),
      .classes = list,
      .n_classes = 1 + below(most)};
  for (uint64_t c = 0; c < d.n_classes; c++) {
    d.units += list[2 * c] = 1 + below(counts[below(6)]);
    list[2 * c + 1] = below(3) ? 1 + below(d.unit_rows) : d.unit_rows;
  }
  d.lanes = lanes[below(6)];
  d.global_batch = d.lanes * (1 + below(9));
  return d;
}

static void check_classes(const struct insitu__order *o, const insitu_order_desc *d) {
  struct listed l;
  list_order(&l, d);
  if (!d->sequential) check_spread(&l, d);
  assert_int_equal(o->anchors, l.anchors);
  assert_int_equal(o->batches, l.batches);
  uint8_t *seen = calloc(d->units * d->unit_rows, 1);
  uint64_t delivered = 0, dropped = 0, back;
  for (uint64_t lane = 0; lane < o->lanes; lane++) delivered += check_lane(o, lane, seen);
  assert_int_equal(delivered, d->sequential ? l.anchors : l.batches * d->global_batch);
  for (uint64_t i = 0; i < l.batches * d->global_batch; i++) {
    insitu_order_place p, q;
    bool there = list_at(&l, d, i, &q);
    assert_int_equal(insitu__order_at(o, i, &p), there);
    if (!there) continue;
    assert_true(p.unit == q.unit && p.within == q.within && p.lane == q.lane);
    assert_int_equal(p.window, q.window);
    assert_true(where(o, p.unit, p.within, &back) && back == i);
  }
  for (uint64_t r = 0; r <= d->units; r++) {
    assert_int_equal(insitu__order_rank_begin(o, r), l.begin[r]);
    if (r == d->units) break;
    assert_int_equal(insitu__order_rank_unit(o, r), l.unit[r]);
    assert_int_equal(insitu__order_unit_rank(o, l.unit[r]), r);
    assert_int_equal(insitu__order_unit_begin(o, l.unit[r]), l.begin[r]);
    uint64_t rows = l.begin[r + 1] - l.begin[r];
    for (uint64_t i = 0; i < rows; i++) dropped += !where(o, l.unit[r], i, &back);
    assert_int_equal(
        insitu_order_where((const insitu_order *)(const void *)o, l.unit[r], rows, &back),
        INSITU_E_ARG);
  }
  assert_int_equal(dropped, l.anchors - delivered);
  for (uint64_t a = 0; a < l.anchors; a++) assert_int_equal(insitu__order_rank_of(o, a), l.rank[a]);
  free(seen);
  list_free(&l);
}

static void classes(void **state) {
  (void)state;
  uint64_t list[12], changed = 0, more = 0;
  for (uint64_t round = 0; round < (uint64_t)support_rounds(600); round++) {
    random_state = round;
    insitu_order_desc d = any_classes(list, 6);
    d.sequential = round % 4 == 3;
    struct insitu__order o, fresh;
    insitu_order_place p, q;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    check_classes(&o, &d);
    int before = allocations;
    insitu__order_reset(&o, ++d.epoch);
    assert_int_equal(allocations, before);
    assert_int_equal(insitu__order_init(&fresh, &d, NULL), INSITU_OK);
    check_classes(&o, &d);
    d.epoch--;
    insitu__order_free(&fresh);
    assert_int_equal(insitu__order_init(&fresh, &d, NULL), INSITU_OK);
    for (uint64_t i = 0; i < o.batches * o.global_batch && d.n_classes > 1; i++) {
      bool there = insitu__order_at(&o, i, &p);
      if (!insitu__order_at(&fresh, i, &q) || !there) continue;
      more++, changed += p.unit != q.unit || p.within != q.within;
      if (d.sequential) assert_true(p.unit == q.unit && p.within == q.within);
    }
    insitu__order_free(&fresh);
    insitu__order_free(&o);
  }
  assert_true(changed > more / 2); /* the sequential quarter and small epochs stay */
}

/* A unit of very many anchors here and there, where the mean says nothing of what is near. */
static void uneven_classes(void **state) {
  (void)state;
  for (uint64_t round = 0; round < (uint64_t)support_rounds(60); round++) {
    random_state = round;
    uint64_t list[] = {1 + below(300), 1, 1 + below(4), 2000, 1 + below(50), 1 + below(9)};
    if (round & 1)
      for (int i = 0; i < 2; i++) {
        uint64_t swap = list[i];
        list[i] = list[2 + i], list[2 + i] = swap;
      }
    insitu_order_desc d = {.units = list[0] + list[2] + list[4],
        .unit_rows = 2000,
        .seed = any(),
        .global_batch = 8,
        .lanes = 1 + (round & 1),
        .window = 1 + below(40),
        .classes = list,
        .n_classes = 3,
        .sequential = round % 5 == 4};
    struct insitu__order o;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    check_classes(&o, &d);
    insitu__order_free(&o);
  }
}

/* One class of full units changes nothing. */
static void one_full_class(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 50; round++) {
    random_state = round;
    uint64_t list[2];
    insitu_order_desc d = any_classes(list, 1), plain;
    d.sequential = round & 1;
    list[1] = d.unit_rows;
    plain = d;
    plain.classes = NULL;
    plain.n_classes = 0;
    struct insitu__order o, w;
    insitu_order_place p, q;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    assert_int_equal(insitu__order_init(&w, &plain, NULL), INSITU_OK);
    assert_int_equal(o.batches, w.batches);
    for (uint64_t i = 0; i < o.batches * o.global_batch; i++) {
      bool there = insitu__order_at(&w, i, &q);
      assert_int_equal(insitu__order_at(&o, i, &p), there);
      if (there) assert_memory_equal(&p, &q, sizeof p);
    }
    insitu__order_free(&o);
    insitu__order_free(&w);
  }
}

/* Too large to list: init x lead with edges in both, and what needs products of 128 bits. */
static void huge_classes(void **state) {
  (void)state;
  const uint64_t full = UINT64_C(1) << 55;
  const uint64_t kinds[][9] = {
      {32, 31000000, 32, 1100000, 7, 28000, 20, 1000, 3}, /* unit_rows; (units, rows) * 4 */
      {365, 3000000000, 365, 5000000001, 1, 1, 364, 77, 200},
      {30, full - 5, 30, full / 3, 29, 1, 1, 1000, 2}, {1, full, 1, full, 1, 1, 1, 3, 1}};
  for (uint64_t round = 0; round < 16; round++) {
    const uint64_t *kind = kinds[round % 4];
    random_state = round;
    insitu_order_desc d = {.unit_rows = kind[0],
        .seed = any(),
        .epoch = below(9),
        .global_batch = 512,
        .lanes = 64,
        .window = 1 + below(5000),
        .classes = kind + 1,
        .n_classes = 4,
        .sequential = round >= 12};
    for (int c = 0; c < 4; c++) d.units += kind[1 + 2 * c];
    struct insitu__order o;
    insitu_order_place p;
    int before = allocations;
    assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
    assert_true(allocations - before <= 5);
    for (int i = 0; i < 1000; i++) {
      uint64_t position = below(o.batches * 512), back, rank = below(d.units), rows = 0, first = 0;
      if (insitu__order_at(&o, position, &p))
        assert_true(where(&o, p.unit, p.within, &back) && back == position);
      else assert_true(o.sequential && position / 512 + 1 == o.batches);
      if (i % 4 == 0) { /* a unit of a small class */
        rank = insitu__order_unit_rank(&o, d.units - 1 - below(70));
      }
      uint64_t unit = insitu__order_rank_unit(&o, rank), begin = insitu__order_rank_begin(&o, rank);
      for (int c = 0; c < 4; first += kind[1 + 2 * c++])
        if (unit >= first) rows = kind[2 + 2 * c];
      assert_int_equal(insitu__order_unit_rank(&o, unit), rank);
      assert_int_equal(insitu__order_rank_begin(&o, rank + 1) - begin, rows);
      assert_int_equal(insitu__order_rank_of(&o, begin), rank);
      assert_int_equal(insitu__order_rank_of(&o, begin + rows - 1), rank);
      if (!where(&o, unit, rows - 1, &back)) continue;
      assert_true(insitu__order_at(&o, back, &p) && p.unit == unit && p.within == rows - 1);
    }
    insitu__order_free(&o);
  }
}

/* As many classes as there may be, of which most have one unit. */
static void most_classes(void **state) {
  (void)state;
  uint64_t *list = calloc(2 * INSITU__MAX_CLASSES, sizeof *list);
  insitu_order_desc d = {.unit_rows = 5,
      .global_batch = 8,
      .lanes = 4,
      .window = 3,
      .classes = list,
      .n_classes = INSITU__MAX_CLASSES};
  for (uint64_t c = 0; c < d.n_classes; c++) {
    d.units += list[2 * c] = c % 1000 ? 1 : 100;
    list[2 * c + 1] = 1 + c % 5;
  }
  struct insitu__order o;
  insitu_order_place p;
  assert_int_equal(insitu__order_init(&o, &d, NULL), INSITU_OK);
  struct listed l;
  list_order(&l, &d);
  for (uint64_t i = 0, back; i < o.batches * 8; i += 97) {
    insitu_order_place q;
    assert_true(insitu__order_at(&o, i, &p) && list_at(&l, &d, i, &q));
    assert_true(p.unit == q.unit && p.within == q.within && p.window == q.window);
    assert_true(where(&o, p.unit, p.within, &back) && back == i);
  }
  insitu__order_free(&o);
  list_free(&l);
  free(list);
}

/* ---- quality: |z| < 4 against independent uniform permutations ---- */
static void permutation(struct insitu__order_perm *p, uint64_t n, uint64_t seed) {
  uint64_t words[] = {seed, 0};
  insitu__order_perm_init(p, n, insitu__order_key(words, 2));
}

static void bijective(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 5000; n = n < 300 ? n + 1 : n * 5 / 4) {
    uint8_t seen[5000] = {0};
    struct insitu__order_perm p;
    permutation(&p, n, n);
    for (uint64_t x = 0; x < n; x++) {
      uint64_t y = insitu__order_perm_fwd(&p, x);
      assert_true(y < n && !seen[y]++);
      assert_int_equal(insitu__order_perm_bwd(&p, y), x);
    }
  }
}

static void autocorrelation(void **state) {
  (void)state;
  uint64_t sizes[] = {50, 64, 100, 1000, 4097, 65536, 100000};
  double *v = calloc(100000, sizeof *v);
  for (int s = 0; s < 7; s++) {
    uint64_t n = sizes[s], seeds = n < 5000 ? 30 : 2;
    double sum[17] = {0}, variance = ((double)n * (double)n - 1) / 12;
    for (uint64_t seed = 0; seed < seeds; seed++) {
      struct insitu__order_perm p;
      permutation(&p, n, seed);
      for (uint64_t i = 0; i < n; i++)
        v[i] = (double)insitu__order_perm_fwd(&p, i) - (double)(n - 1) / 2;
      for (uint64_t lag = 1; lag <= 16; lag++) {
        double product = 0;
        for (uint64_t i = 0; i + lag < n; i++) product += v[i] * v[i + lag];
        for (uint64_t i = n - lag; i < n; i++) product += v[i] * v[i + lag - n];
        double z = (product / ((double)n * variance) + 1 / (double)(n - 1)) * sqrt((double)n);
        assert_true(fabs(z) < 4);
        sum[lag] += z;
      }
    }
    for (int lag = 1; lag <= 16; lag++) assert_true(fabs(sum[lag]) < 4 * sqrt((double)seeds));
  }
  free(v);
}

/* |difference| = 1 between neighbours: Poisson with mean 2 (n - 1) / n */
static void adjacent_pairs(void **state) {
  (void)state;
  uint64_t sizes[] = {50, 64, 100, 1000, 4096}, seeds = 400;
  for (int s = 0; s < 5; s++) {
    uint64_t n = sizes[s], pairs = 0;
    double mean = 2 * (double)(n - 1) / (double)n, spread = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
      struct insitu__order_perm p;
      permutation(&p, n, seed);
      uint64_t last = insitu__order_perm_fwd(&p, 0), found = 0;
      for (uint64_t i = 1; i < n; i++) {
        uint64_t y = insitu__order_perm_fwd(&p, i);
        found += y - last == 1 || last - y == 1;
        last = y;
      }
      pairs += found;
      spread += ((double)found - mean) * ((double)found - mean) / mean;
    }
    assert_true(fabs((double)pairs - mean * (double)seeds) < 4 * sqrt(mean * (double)seeds));
    assert_true(fabs(spread - (double)seeds) < 4 * sqrt((2 + 1 / mean) * (double)seeds));
  }
}

/* chi squared over 16 x 16 cells, summed over seeds */
static void position_by_value(void **state) {
  (void)state;
  uint64_t sizes[] = {16, 48, 64, 112, 1008, 4096}, seeds = 400;
  for (int s = 0; s < 6; s++) {
    uint64_t n = sizes[s], cell[16][16] = {{0}};
    for (uint64_t seed = 0; seed < seeds; seed++) {
      struct insitu__order_perm p;
      permutation(&p, n, seed);
      for (uint64_t i = 0; i < n; i++) cell[i * 16 / n][insitu__order_perm_fwd(&p, i) * 16 / n]++;
    }
    double expected = (double)(seeds * n) / 256, chi = 0, freedom = 15 * 15;
    for (int i = 0; i < 256; i++) chi += pow((double)cell[i / 16][i % 16] - expected, 2) / expected;
    chi *= (double)(n - 1) / (double)n; /* a permutation's cells are hypergeometric */
    assert_true(fabs(chi - freedom) < 4 * sqrt(2 * freedom));
  }
}

/* B Var(batch mean) / variance * (n - 1) / (n - B) on the source rank, over an epoch's batches. */
static double variance_ratio(const insitu_order_desc *d) {
  struct insitu__order o;
  assert_int_equal(insitu__order_init(&o, d, NULL), INSITU_OK);
  double n = (double)o.anchors, rows = (double)o.global_batch, centre = (n - 1) / 2, sum = 0;
  for (uint64_t b = 0; b < o.batches; b++) {
    double mean = 0;
    for (uint64_t r = 0; r < o.global_batch; r++) {
      insitu_order_place p;
      assert_true(insitu__order_at(&o, b * o.global_batch + r, &p));
      mean += ((double)(p.unit * o.unit_rows + p.within) - centre) / rows;
    }
    sum += mean * mean;
  }
  double ratio = rows * (sum / (double)o.batches) / ((n * n - 1) / 12) * (n - 1) / (n - rows);
  insitu__order_free(&o);
  return ratio;
}
static void variance_law(void **state) {
  (void)state;
  uint64_t lanes[] = {1, 8, 4, 32}, window[] = {8, 8, 16, 4}, seeds = 40;
  for (int c = 0; c < 4; c++) {
    double sum = 0, law = 1 + (32 / (double)lanes[c] - 1) * 7 / ((double)window[c] * 8 - 1);
    for (uint64_t seed = 0; seed < seeds; seed++) {
      insitu_order_desc d = {.units = 512,
          .unit_rows = 8,
          .seed = seed,
          .global_batch = 32,
          .lanes = lanes[c],
          .window = window[c]};
      sum += variance_ratio(&d) / (double)seeds;
    }
    assert_true(fabs(sum / law - 1) < 0.1); /* one draw scatters by a quarter */
  }
}

/* ---- refusals and the public functions ---- */
static void refuse(insitu_order_desc d, insitu_status status, const char *says) {
  insitu_error err = {0};
  insitu_order *o = (insitu_order *)&d;
  assert_int_equal(insitu_order_open(&d, &o, &err), status);
  assert_null(o);
  assert_int_equal(err.status, status);
  assert_non_null(strstr(err.message, says));
  assert_int_equal(insitu_order_open(&d, &o, NULL), status);
}
static void refusals(void **state) {
  (void)state;
  const uint64_t list[] = {1, 0, 4, 2};
  const insitu_order_desc good = {.api = INSITU_API,
      .units = 5,
      .unit_rows = 3,
      .global_batch = 4,
      .lanes = 2,
      .window = 2,
      .irregular = list,
      .n_irregular = 2};
  insitu_order_desc d;
#define REFUSE(status, says, change) (d = good, change, refuse(d, status, says))
  REFUSE(INSITU_E_API, "INSITU_API", d.api = 0);
  REFUSE(INSITU_E_API, "desc.api is 8 and the INSITU_API of this implementation is 7",
      d.api = INSITU_API + 1);
  REFUSE(INSITU_E_API, "desc.api is 6 and the INSITU_API of this implementation is 7",
      d.api = INSITU_API - 1);
  REFUSE(INSITU_E_ARG, "sequential 2", d.sequential = 2);
  REFUSE(INSITU_E_ARG, "units 0", d.units = 0);
  REFUSE(INSITU_E_ARG, "unit_rows 0", d.unit_rows = 0);
  REFUSE(INSITU_E_ARG, "global_batch 0", d.global_batch = 0);
  REFUSE(INSITU_E_ARG, "lanes 0", d.lanes = 0);
  REFUSE(INSITU_E_ARG, "window 0", d.window = 0);
  REFUSE(INSITU_E_ARG, "2^61 anchors", d.units = UINT64_C(1) << 60);
  REFUSE(INSITU_E_ARG, "2^61 anchors", (d.units = UINT64_C(1) << 63, d.unit_rows = 2));
  REFUSE(INSITU_E_ARG, "2^61 rows", d.global_batch = (UINT64_C(1) << 61) + 2);
  REFUSE(INSITU_E_ARG, "number of lanes that does is 4", (d.lanes = 5, d.global_batch = 12));
  REFUSE(INSITU_E_ARG, "number of lanes that does is 4", d.lanes = 8);
  REFUSE(INSITU_E_ARG, "at most 1048576", d.lanes = d.global_batch = UINT64_C(1) << 40);
  REFUSE(INSITU_E_ARG, "irregular is NULL", d.irregular = NULL);
  REFUSE(INSITU_E_ARG, "irregular[1] = unit 4", d.units = 4);
  REFUSE(INSITU_E_ARG, "with 2 rows", d.unit_rows = 1);
  REFUSE(INSITU_E_ARG, "ascending", d.irregular = ((const uint64_t[]){4, 2, 4, 1}));
  REFUSE(INSITU_E_ARG, "ascending", d.irregular = ((const uint64_t[]){4, 2, 3, 1}));
  const uint64_t pairs[] = {2, 3, 3, 1};
#define CLASSED(list, n)                                                                           \
  (d.irregular = NULL, d.n_irregular = 0, d.classes = (list), d.n_classes = (n))
  REFUSE(INSITU_E_ARG, "use one of the two", (d.classes = pairs, d.n_classes = 2));
  REFUSE(INSITU_E_ARG, "classes is NULL", CLASSED(NULL, 2));
  REFUSE(INSITU_E_ARG, "4097 classes: at most 4096", CLASSED(pairs, 4097));
  REFUSE(INSITU_E_ARG, "units is 6", (CLASSED(pairs, 2), d.units = 6));
  REFUSE(INSITU_E_ARG, "do not add up", CLASSED(pairs, 1));
  REFUSE(
      INSITU_E_ARG, "classes[1] = 3 units of 0 rows", CLASSED(((const uint64_t[]){2, 3, 3, 0}), 2));
  REFUSE(INSITU_E_ARG, "classes[0] = 0 units", CLASSED(((const uint64_t[]){0, 3, 5, 1}), 2));
  REFUSE(INSITU_E_ARG, "of 1 to 3 rows", CLASSED(((const uint64_t[]){2, 4, 3, 1}), 2));
  REFUSE(
      INSITU_E_ARG, "do not add up", CLASSED(((const uint64_t[]){UINT64_MAX, 3, 5, 1, 1, 1}), 3));
#undef REFUSE
  for (int i = 1; i <= 5; i++) { /* the handle, then the four arrays */
    insitu_error err = {0};
    insitu_order *o;
    fail_at = allocations + i;
    assert_int_equal(insitu_order_open(&good, &o, &err), INSITU_E_NOMEM);
    assert_null(o);
    fail_at = 0;
  }
  d = good;
  CLASSED(pairs, 2);
#undef CLASSED
  for (int i = 1; i <= 7; i++) { /* the handle, the classes, then the four arrays */
    insitu_error err = {0};
    insitu_order *o;
    fail_at = allocations + i;
    insitu_status status = insitu_order_open(&d, &o, &err);
    fail_at = 0;
    assert_int_equal(status, i <= 6 ? INSITU_E_NOMEM : INSITU_OK);
    insitu_order_close(&o);
  }
  insitu_order *o;
  assert_int_equal(insitu_order_open(NULL, &o, NULL), INSITU_E_ARG);
  assert_int_equal(insitu_order_open(&good, NULL, NULL), INSITU_E_ARG);
}

static void public_functions(void **state) {
  (void)state;
  const uint64_t list[] = {1, 0, 3, 3, 4, 2}; /* 3 + 0 + 3 + 3 + 2 = 11 anchors */
  insitu_order_desc d = {.api = INSITU_API,
      .units = 5,
      .unit_rows = 3,
      .global_batch = 4,
      .lanes = 2,
      .window = 2,
      .irregular = list,
      .n_irregular = 3};
  insitu_order *o;
  insitu_order_place p;
  uint64_t back, dropped = 0;
  assert_int_equal(insitu_order_open(&d, &o, NULL), INSITU_OK);
  assert_int_equal(insitu_order_batches(o), 2);
  for (uint64_t i = 0; i < 8; i++) {
    assert_int_equal(insitu_order_at(o, i, &p), INSITU_OK);
    assert_int_equal(p.lane, i % 2);
    assert_int_equal(insitu_order_where(o, p.unit, p.within, &back), INSITU_OK);
    assert_int_equal(back, i);
  }
  for (uint64_t u = 0; u < 5; u++)
    for (uint64_t i = 0, rows[] = {3, 0, 3, 3, 2}; i < 4; i++)
      if (i >= rows[u]) assert_int_equal(insitu_order_where(o, u, i, &back), INSITU_E_ARG);
      else dropped += insitu_order_where(o, u, i, &back) == INSITU_END;
  assert_int_equal(dropped, 3);
  assert_int_equal(insitu_order_at(o, 8, &p), INSITU_E_ARG);
  assert_int_equal(insitu_order_at(o, UINT64_MAX, &p), INSITU_E_ARG);
  assert_int_equal(insitu_order_at(NULL, 0, &p), INSITU_E_ARG);
  assert_int_equal(insitu_order_at(o, 0, NULL), INSITU_E_ARG);
  assert_int_equal(insitu_order_where(o, 5, 0, &back), INSITU_E_ARG);
  assert_int_equal(insitu_order_where(o, 0, UINT64_MAX, &back), INSITU_E_ARG);
  assert_int_equal(insitu_order_where(o, 0, 0, NULL), INSITU_E_ARG);
  insitu_order_close(&o);
  assert_null(o);
  insitu_order_close(&o);
  insitu_order_close(NULL);
  assert_int_equal(insitu_order_batches(NULL), 0);
  d.sequential = 1;
  assert_int_equal(insitu_order_open(&d, &o, NULL), INSITU_OK); /* lanes of 6 and 5 */
  assert_int_equal(insitu_order_batches(o), 3);
  assert_int_equal(insitu_order_at(o, 10, &p), INSITU_OK);
  assert_int_equal(insitu_order_at(o, 11, &p), INSITU_END);
  assert_int_equal(insitu_order_at(o, 12, &p), INSITU_E_ARG);
  insitu_order_close(&o);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(golden), cmocka_unit_test(properties),
      cmocka_unit_test(shapes), cmocka_unit_test(sequential_lanes), cmocka_unit_test(arithmetic),
      cmocka_unit_test(huge), cmocka_unit_test(classes), cmocka_unit_test(uneven_classes),
      cmocka_unit_test(one_full_class), cmocka_unit_test(huge_classes),
      cmocka_unit_test(most_classes), cmocka_unit_test(bijective),
      cmocka_unit_test(autocorrelation), cmocka_unit_test(adjacent_pairs),
      cmocka_unit_test(position_by_value), cmocka_unit_test(variance_law),
      cmocka_unit_test(refusals), cmocka_unit_test(public_functions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
