/* Splits and read plans, the pure parts: against brute force on random geometries, and at 10^9
 * samples. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include <malloc.h>
#include <sys/resource.h>

/* A geometry by hand: up to three arrays of the same number of samples, views as
 * given. */
struct made {
  struct insitu__geometry g;
  struct insitu__geometry_array array[3];
  struct insitu__geometry_variable variable[3];
  struct insitu__geometry_region region[3];
  struct insitu__geometry_view view[3][3];
};

/* Groups the array's views, and marks those that show what others do. */
static void list_views(struct insitu__geometry_array *a) {
  assert_true(insitu__geometry_list(a));
  assert_true(malloc_usable_size(a->spans) < a->n_spans * sizeof *a->spans + 32);
  insitu__mem_free(a->spans);
}

static void make_geometry(
    struct made *m, uint64_t samples, int n_arrays, const uint64_t *rows, int64_t reach) {
  memset(m, 0, sizeof *m);
  m->g.arrays = m->array;
  m->g.variables = m->variable;
  m->g.regions = m->region;
  m->g.n_arrays = m->g.n_variables = m->g.n_regions = (uint64_t)n_arrays;
  m->g.samples = m->g.axes[0].samples = samples;
  m->g.n_axes = m->g.n_drawn = m->g.n_public = 1;
  for (int i = 0; i < n_arrays; i++) {
    struct insitu__geometry_array *a = &m->array[i];
    a->zarr.ndim = 2; /* array i has i + 1 fields, which its variable wants all */
    a->samples = samples;
    a->rows = rows[i];
    a->chunks = insitu__base_ceil_div(samples, rows[i]);
    a->drawn[0] = (struct insitu__geometry_drawn){.rows = a->rows, .chunks = a->chunks};
    a->n_drawn = a->drawn_mask = 1;
    a->tile_n[0] = m->region[i].tile_hi[0] = 1;
    a->tile_n[1] = m->region[i].tile_hi[1] = m->region[i].fields = 1 + (uint64_t)i;
    m->variable[i].fields = 1 + (uint64_t)i;
    m->variable[i].region = (uint64_t)i;
    a->first = (uint32_t)i + 1;
    a->chunk_bytes = rows[i] * 4;
    a->views = m->view[i];
    a->n_views = 1 + support_below(3);
    m->variable[i].array = m->region[i].array = m->region[i].variable = (uint32_t)i;
    m->variable[i].n_steps = a->n_views;
    m->g.chunk = m->g.axes[0].chunk = insitu__base_max(m->g.chunk, rows[i]);
    bool steps = support_below(2); /* neighbouring samples, one group */
    for (uint64_t v = 0; v < a->n_views; v++) {
      struct insitu__geometry_view *view = &m->view[i][v];
      view->region = (uint32_t)i;
      view->delta = reach ? (int64_t)support_below((uint64_t)(2 * reach + 1)) - reach : 0;
      if (v && reach >= 2 && steps) view->delta = view[-1].delta + 1;
    }
    list_views(a);
  }
}

static insitu_loader_desc desc_of(uint64_t batch, uint64_t block, uint64_t unit) {
  insitu_loader_desc d = {.api = INSITU_API,
      .batch_size = batch,
      .block_chunks = block,
      .unit_chunks = unit,
      .world = 1};
  for (int p = 0; p < 3; p++) d.split[p].fraction = p ? 0.1 : 0.8;
  return d;
}

/* ---- split ---- */

/* Views that show the same, of one variable or of several, narrow the split once. */
static void test_equal_views(void **state) {
  (void)state;
  struct insitu__geometry_view view[26];
  struct insitu__geometry_array a = {.rows = 4, .n_drawn = 1, .views = view, .n_views = 26};
  int distinct[2] = {0};
  for (uint32_t v = 0; v < 26; v++)
    view[v] = (struct insitu__geometry_view){.region = v / 2, .delta = v % 2};
  list_views(&a);
  for (int v = 0; v < 26; v++) {
    distinct[view[v].delta] += !view[v].again;
    assert_int_equal(view[v].group, 2 - v % 2);
  }
  assert_int_equal(distinct[0], 1);
  assert_int_equal(distinct[1], 1);
}

/* Whose a sample is by chunks or ranges, within [lo, hi) and before the gap: NOBODY, or a part. */
enum { NOBODY = -1 };
static int owner_of(const struct insitu__split *s, int64_t (*exact)[2], uint64_t chunk, int64_t lo,
    int64_t hi, int64_t x) {
  if (x < lo || x >= hi) return NOBODY;
  for (int p = 0; p < 3; p++) {
    const struct insitu__geometry_interval *c = s->part[p].chunks;
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(c); i++)
      if (x / (int64_t)chunk >= c[i].lo && x / (int64_t)chunk < c[i].hi) return p;
    if (x >= exact[p][0] && x < exact[p][1]) return p;
  }
  return NOBODY;
}

/* A manifest that excludes ranges at random, half of them whole chunks. Its length; excluded: of
 * each sample, whether one holds it. */
static uint64_t draw_excluded(char *text, uint64_t samples, uint64_t chunk, bool *excluded) {
  uint64_t n = (uint64_t)sprintf(text, "{\"excluded\": ["), ranges = support_below(5);
  bool whole = support_below(2);
  memset(excluded, 0, samples * sizeof *excluded);
  for (uint64_t i = 0; i < ranges; i++) {
    uint64_t lo = support_below(samples), hi = lo + 1 + support_below(12);
    if (whole) lo -= lo % chunk;
    if (whole) hi += chunk - 1 - (hi - 1) % chunk;
    if (hi > samples) hi = samples;
    n += (uint64_t)sprintf(text + n,
        support_below(2) ? "%1$s{\"start\": %2$d, \"stop\": %3$d}"
                         : "%1$s{\"reason\": \"fog\\n\", \"stop\": %3$d, \"start\": %2$d}",
        i ? ", " : "", (int)lo, (int)hi);
    for (uint64_t x = lo; x < hi; x++) excluded[x] = true;
  }
  return n + (uint64_t)sprintf(text + n, "], \"n_samples\": %d}", (int)samples);
}

/* A split by chunks is the same again when its manifest is read. What is excluded goes where the
 * Python package can read it, if that is whole chunks, and these chunks are in no list. */
static void saved_again(
    const struct insitu__split *s, const insitu_loader_desc *d, const struct made *m) {
  struct insitu__split again = {0};
  struct insitu__text_buffer b = {0}, twice = {0};
  struct insitu__text_json j = {0};
  insitu_loader_desc other = *d;
  insitu_error err = {0};
  other.manifest = "saved";
  other.split_shuffled = 0;
  insitu__split_print(s, &b, &m->g, 5);
  if (insitu__split_init(&again, &other, b.text, b.n, &m->g, &err)) fail_msg("%s", err.message);
  for (int p = 0; p < INSITU__SPLIT_PARTS; p++) assert_true(again.part[p].hash == s->part[p].hash);
  insitu__split_print(&again, &twice, &m->g, 5);
  assert_int_equal(b.n, twice.n);
  assert_memory_equal(b.text, twice.text, b.n);
  assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "saved", &err), INSITU_OK);
  int chunks = insitu__text_json_get(&j, 0, "chunks");
  bool any = INSITU__ARRAY_LEN(s->excluded) > 0;
  assert_int_equal(insitu__text_json_get(&j, chunks, "excluded") >= 0, any && s->whole_chunks);
  assert_int_equal(insitu__text_json_get(&j, 0, "excluded") >= 0, any && !s->whole_chunks);
  bool whole = true; /* each index is excluded with all of its chunk, or no one of it is */
  for (uint64_t c = 0; c * m->g.chunk < m->g.samples; c++) {
    uint64_t held = 0, n = 0, listed = 0;
    for (uint64_t x = c * m->g.chunk; x < m->g.samples && x < (c + 1) * m->g.chunk; x++, n++) {
      bool is = false;
      for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->excluded); i++)
        is = is || ((int64_t)x >= s->excluded[i].lo && (int64_t)x < s->excluded[i].hi);
      held += is;
    }
    whole = whole && (!held || held == n);
    for (int p = 0; p < 3; p++)
      for (uint64_t i = 0; i < INSITU__ARRAY_LEN(again.part[p].chunks); i++)
        listed +=
            (int64_t)c >= again.part[p].chunks[i].lo && (int64_t)c < again.part[p].chunks[i].hi;
    if (any && s->whole_chunks && held) assert_int_equal(listed, 0);
  }
  if (any) assert_int_equal(s->whole_chunks, whole);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&twice);
  insitu__text_buffer_free(&b);
  insitu__split_free(&again);
}

/* The table of drops by brute force: of each sample of the archive the first reason that holds.
 * first: whose a sample is before the gap; kept: behind it. */
static void count_drops(const struct insitu__split *s, const struct made *m,
    const insitu_loader_desc *d, const bool *excluded, const int *first, const int *kept,
    int64_t lo, int64_t hi) {
  int64_t samples = (int64_t)m->g.samples;
  for (int p = 0; p < 4; p++) {
    uint64_t want[INSITU_DROPS] = {0}, got[INSITU_DROPS], drawn = (uint64_t)samples;
    for (int64_t x = 0; x < samples; x++) {
      bool mine = p == INSITU_ALL, archive = true, split = true, shown = !excluded[x];
      for (uint64_t i = 0; i < m->array[0].n_views; i++) {
        int64_t y = x + m->view[0][i].delta;
        bool there = y >= 0 && y < samples;
        archive = archive && there;
        shown = shown && !(there && excluded[y]);
        split = split && (!there || (mine ? y >= lo && y < hi : kept[y] == p));
      }
      if (x < lo || x >= hi) want[INSITU_DROP_RANGE]++;
      else if (!mine && first[x] != p) want[INSITU_DROP_OTHER_SPLIT]++;
      else if (!shown) want[INSITU_DROP_EXCLUDED]++;
      else if (!mine && kept[x] != p) want[INSITU_DROP_GAP]++;
      else if (!archive) want[INSITU_DROP_ARCHIVE_EDGE]++;
      else if (!split && !d->split_spill) want[INSITU_DROP_SPLIT_EDGE]++;
    }
    uint64_t global = 1 + support_below(7);
    for (int order = 0; order < 2; order++) {
      struct insitu__plan plan = {
          .split = s, .part = &s->part[p], .layout = {.global_batch = global, .sequential = order}};
      want[INSITU_DROP_TAIL] = order ? 0 : s->part[p].anchors % global;
      insitu__plan_dropped(&plan, got);
      assert_memory_equal(got, want, sizeof got);
    }
    for (int r = 0; r < INSITU_DROPS; r++) drawn -= got[r];
    assert_int_equal(drawn, s->part[p].anchors); /* sequential: all of them */
  }
}

/* Every anchor by brute force: whose it is, and whether its reads stay inside. */
static void test_split_against_brute_force(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    struct made m;
    struct insitu__split s = {0};
    uint64_t rows = 1 + support_below(9), samples = 1 + support_below(150);
    make_geometry(&m, samples, 1, &rows, support_below(2) ? 0 : (int64_t)support_below(20));
    insitu_loader_desc d = desc_of(1, 4, 1 + support_below(4));
    d.seed = support_random();
    d.split_shuffled = !support_below(3);
    d.split_spill = !support_below(3);
    d.split_gap = support_below(3) ? 0 : support_below(6);
    if (!support_below(3)) {
      d.sample_start = (int64_t)support_below(samples);
      d.sample_stop =
          d.sample_start + 1 + (int64_t)support_below(samples - (uint64_t)d.sample_start);
    }
    int64_t base_lo = d.sample_start, base_hi = d.sample_stop ? d.sample_stop : (int64_t)samples,
            exact[3][2] = {{0}};
    bool by_range = !support_below(3);
    if (by_range) { /* disjoint ranges in any order */
      int64_t at = base_lo;
      int turn = (int)support_below(3);
      for (int k = 0; k < 3; k++) {
        int p = (turn + k) % 3;
        d.split[p].fraction = 0;
        int64_t lo = at + (int64_t)support_below((uint64_t)(base_hi - at) + 1);
        int64_t hi = lo + (int64_t)support_below((uint64_t)(base_hi - lo) + 1);
        if (hi == lo) continue;
        d.split[p].start = exact[p][0] = lo;
        d.split[p].stop = exact[p][1] = at = hi;
      }
      by_range = exact[0][1] || exact[1][1] || exact[2][1];
      if (!by_range) d.split[0].fraction = 1;
    }
    insitu_error err = {0};
    bool excluded[200] = {false}, excludes = support_below(2);
    char text[1000];
    uint64_t length = excludes ? draw_excluded(text, samples, m.g.chunk, excluded) : 0;
    d.manifest = excludes ? "excluded" : NULL;
    if (insitu__split_init(&s, &d, excludes ? text : NULL, length, &m.g, &err))
      fail_msg("%s", err.message);
    if (!by_range) saved_again(&s, &d, &m);
    int owner[200], first[200];
    for (uint64_t x = 0; x < samples; x++) {
      first[x] = owner_of(&s, exact, m.g.chunk, base_lo, base_hi, (int64_t)x);
      owner[x] = -1;
      for (int p = 0; p < 3; p++)
        for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s.part[p].range); i++)
          if ((int64_t)x >= s.part[p].range[i].lo && (int64_t)x < s.part[p].range[i].hi) {
            assert_int_equal(owner[x], -1); /* disjoint */
            owner[x] = p;
          }
      if ((int64_t)x < base_lo || (int64_t)x >= base_hi) assert_int_equal(owner[x], -1);
      if (by_range && owner[x] >= 0)
        assert_true((int64_t)x >= exact[owner[x]][0] && (int64_t)x < exact[owner[x]][1]);
    }
    for (uint64_t x = 0; x < samples; x++)
      for (uint64_t y = x + 1; y < samples && y <= x + d.split_gap; y++)
        assert_true(owner[x] < 0 || owner[y] < 0 || owner[x] == owner[y]);
    for (uint64_t x = 0; x < samples; x++) { /* the later one loses what the gap takes */
      int want = excluded[x] ? NOBODY : first[x];
      for (uint64_t y = x; y-- > 0 && x - y <= d.split_gap;)
        if (first[y] >= 0 && !excluded[y] && first[y] != first[x]) want = NOBODY;
      assert_int_equal(owner[x], want);
    }
    count_drops(&s, &m, &d, excluded, first, owner, base_lo, base_hi);
    /* chunks go whole, and all of them where the fractions add up to 1 */
    if (!by_range && !d.split_gap && !excludes) {
      for (int64_t x = base_lo; x < base_hi; x++) {
        assert_true(owner[x] >= 0);
        if (x + 1 < base_hi && (uint64_t)x / rows == (uint64_t)(x + 1) / rows)
          assert_int_equal(owner[x], owner[x + 1]);
      }
    }
    for (int p = 0; p < 4; p++) {
      uint64_t anchors = 0, next = 0, rows_before = 0;
      int64_t last = -1;
      for (int64_t x = base_lo; x < base_hi; x++) {
        bool mine = p == INSITU_ALL || owner[x] == p, inside = !excluded[x];
        for (uint64_t i = 0; i < m.array[0].n_views; i++) {
          int64_t y = x + m.view[0][i].delta;
          bool archive = y >= 0 && y < (int64_t)samples;
          inside =
              inside && archive && !excluded[y] &&
              (d.split_spill || (p == INSITU_ALL ? y >= base_lo && y < base_hi : owner[y] == p));
        }
        struct insitu__split_unit u, same;
        insitu__split_find(&s.part[p], &x, &u);
        assert_true(u.lo[0] <= x && x < u.hi[0]);
        assert_int_equal(!u.none, mine && inside);
        if (u.none) continue;
        anchors++;
        /* units are numbered in the archive's order, one per group of unit_rows and segment */
        if (u.lo[0] == x) {
          assert_int_equal(u.unit[0], next++);
          rows_before = (uint64_t)x;
        }
        assert_int_equal(u.unit[0], next - 1);
        assert_int_equal((uint64_t)x / s.unit_rows, rows_before / s.unit_rows);
        insitu__split_unit_at(&s.part[p], true, u.unit[0], &same);
        assert_int_equal(same.lo[0], u.lo[0]);
        assert_int_equal(same.hi[0], u.hi[0]);
        assert_int_equal(same.n[0], u.hi[0] - u.lo[0]);
        bool short_unit = u.n[0] < s.unit_rows;
        if (u.lo[0] == x) {
          bool listed = false;
          for (uint64_t i = 0; i < s.part[p].n_irregular; i++)
            if (s.part[p].irregular[i].unit == u.unit[0])
              listed = s.part[p].irregular[i].rows == u.n[0];
          assert_int_equal(listed, short_unit);
        }
        assert_true(x > last);
        last = x;
      }
      assert_int_equal(s.part[p].units, next);
      assert_int_equal(s.part[p].anchors, anchors);
    }
    insitu__split_free(&s);
  }
}

/* ---- scan and map ---- */

/* A whole epoch: every row once and where the map says, each needed chunk of a window once and
 * before any row that needs it, rows of a window within `span` batches, reads as insitu__plan_cost
 * counts them. */
static void scan_epoch(const struct insitu__plan *p, uint64_t epoch) {
  struct insitu__order o;
  struct insitu__plan_scan s;
  insitu_plan cost = {0};
  assert_int_equal(insitu__plan_order(p, epoch, &o, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_scan_init(&s, p, &o, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_cost(p, &o, &cost, NULL), INSITU_OK);
  /* lane, array, chunk: number of the window that read it, + 1 */
  static unsigned char read[64][3][2000];
  memset(read, 0, sizeof read);
  uint64_t reads = 0, rows = 0, span = insitu__order_span(&o);
  while (s.batch < o.batches) {
    uint64_t batch = s.batch;
    switch (insitu__plan_scan_step(&s)) {
    case INSITU__PLAN_ROW: {
      int64_t anchor = -1;
      uint64_t b, r;
      assert_true(insitu__plan_locate(p, &o, s.batch, s.row, &anchor));
      assert_int_equal(anchor, s.anchor[0]);
      struct insitu__plan_map map = {.plan = p, .order = &o, .window = &s.current->window};
      struct insitu__geometry_line line = {.at = {anchor}, .row = 7, .n = 1};
      struct insitu__plan_run run;
      assert_true(insitu__plan_map_run(&map, &line, &run));
      assert_int_equal(run.row, 7);
      assert_int_equal(run.n, 1);
      insitu__plan_map_row(&map, run.at, &b, &r);
      assert_int_equal(b, s.batch);
      assert_int_equal(r, s.row);
      uint64_t first = s.current->window.offset / p->layout.lane_rows,
               last = insitu__plan_last_batch(p, &s.current->window);
      assert_true(first <= b && b <= last && last - first < span);
      rows++;
      break;
    }
    case INSITU__PLAN_TILE: {
      unsigned char *w = &read[s.current->window.lane][s.array][s.chunk];
      if (s.field) assert_int_equal(*w, (unsigned char)(s.current->window.index + 1));
      else assert_int_not_equal(*w, (unsigned char)(s.current->window.index + 1));
      *w = (unsigned char)(s.current->window.index + 1);
      reads++;
      break;
    }
    case INSITU__PLAN_BATCH: {
      uint64_t parts = 0; /* of a row */
      assert_int_equal(s.batch, batch + 1);
      for (uint64_t i = 0; i < p->geometry->n_variables; i++)
        parts += p->geometry->variables[i].n_steps * p->geometry->regions[i].fields;
      assert_int_equal(s.batch_parts, parts * insitu__plan_rows(p, &o, batch));
      break;
    }
    }
    if (!s.row_open || s.tile_open) continue;
    /* what the row's looked-at arrays need is read in this window */
    for (uint64_t i = 0; i < s.next_array; i++)
      for (uint64_t v = 0; v < p->geometry->arrays[i].n_views; v++)
        assert_int_equal(read[s.current->window.lane][i]
                             [(uint64_t)(s.anchor[0] + p->geometry->arrays[i].views[v].delta) /
                                 p->geometry->arrays[i].rows],
            (unsigned char)(s.current->window.index + 1));
  }
  assert_int_equal(reads, cost.reads);
  assert_int_equal(cost.estimated, 0);
  assert_true(cost.wanted >= cost.reads);
  uint64_t want = 0;
  for (uint64_t b = 0; b < o.batches; b++) want += insitu__plan_rows(p, &o, b);
  assert_int_equal(rows, want);
  insitu__plan_scan_free(&s);
  insitu__order_free(&o);
}

static void test_scan(void **state) {
  (void)state;
  int done = 0;
  for (int round = 0; round < 400; round++) {
    struct made m;
    struct insitu__split s = {0};
    uint64_t rows[3] = {1 + support_below(9), 1 + support_below(9), 1 + support_below(30)},
             samples = 20 + support_below(400);
    make_geometry(&m, samples, 1 + (int)support_below(3), rows, (int64_t)support_below(12));
    insitu_loader_desc d =
        desc_of(1 + support_below(12), 1 + support_below(20), 1 + support_below(3));
    d.world = 1 + (int32_t)support_below(3);
    d.lanes = support_below(2) ? 0 : (uint64_t)d.world * (support_below(2) + 1);
    assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
    for (d.rank = 0; d.rank < d.world; d.rank++)
      for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
        struct insitu__plan p;
        if (insitu__plan_init(&p, &m.g, &s, (int)support_below(4), order, &d, NULL)) continue;
        scan_epoch(&p, support_below(3));
        done++;
      }
    insitu__split_free(&s);
  }
  assert_true(done > 500); /* most draws are valid configurations */
}

/* What is extrapolated from some windows, against a walk through all of them: at several world
 * sizes, with chunks that several units share, with offsets, and in both orders. */
static void test_estimated_cost(void **state) {
  (void)state;
  static const struct {
    uint64_t rows, unit, batch, block;
    int64_t other; /* a second view's offset */
  } cases[] = {{4, 1, 64, 64, 0}, {4, 1, 64, 64, 1}, {4, 1, 1000, 16, 9}, {1, 1, 64, 64, 3},
      {3, 2, 64, 8, 40}};
  bool few = support_slow();
  for (size_t i = few ? 3 : 0; i < sizeof cases / sizeof *cases; i += few ? 3 : 1)
    for (int world = 1; world <= (few ? 1 : 4); world += 3)
      for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
        struct made m;
        struct insitu__split s = {0};
        struct insitu__plan p;
        struct insitu__order o;
        insitu_plan out;
        uint64_t samples = 1200000, touched;
        make_geometry(&m, samples, 1, &cases[i].rows, 0);
        m.array[0].n_views = 2;
        m.view[0][1].delta = cases[i].other;
        list_views(&m.array[0]);
        insitu_loader_desc d = desc_of(cases[i].batch, cases[i].block, cases[i].unit);
        d.world = world;
        d.rank = world - 1;
        d.lanes = 4;
        d.sample_stop = (int64_t)samples - 1000;
        assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
        assert_int_equal(insitu__plan_init(&p, &m.g, &s, INSITU_ALL, order, &d, NULL), INSITU_OK);
        assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
        assert_int_equal(insitu__plan_order(&p, 0, &o, NULL), INSITU_OK);
        touched = insitu__plan_touched(&p, &o);
        uint64_t *fields = insitu__plan_fields(&m.g);
        struct insitu__plan_count n = {.plan = &p, .order = &o, .fields = fields, .exact = true};
        assert_true(
            insitu__plan_set_init(&n.shared, touched) && insitu__plan_set_init(&n.alone, touched));
        assert_true(insitu__plan_count_rank(&n));
        assert_int_equal(n.seen, out.rows);
        const double got[2] = {(double)out.reads, (double)out.distinct},
                     want[2] = {(double)n.reads, (double)n.distinct};
        for (int k = 0; k < 2; k++)
          if (got[k] < 0.97 * want[k] || got[k] > 1.03 * want[k])
            fail_msg("case %d, world %d, order %d, %s: %.0f, not %.0f", (int)i, world, order,
                k ? "distinct" : "reads", got[k], want[k]);
        assert_true(out.amplification >= 1 && out.distinct <= out.reads);
        assert_true(out.estimated || world > 1);
        insitu__mem_free(fields);
        insitu__mem_free(n.shared.slot);
        insitu__mem_free(n.alone.slot);
        insitu__mem_free(n.ever.slot);
        insitu__order_free(&o);
        insitu__split_free(&s);
      }
}

/* ---- fields ---- */

/* An array of n0 x n1 fields beside the sample axis, and boxes of it. */
struct corners {
  struct insitu__geometry g;
  struct insitu__geometry_array array;
  struct insitu__geometry_variable variable[4];
  struct insitu__geometry_view view[4];
};
static void make_corners(struct corners *c, unsigned axis, int n, uint64_t box[4][2][2]) {
  memset(c, 0, sizeof *c);
  unsigned other[2] = {axis == 0, axis == 2 ? 1 : 2};
  struct insitu__geometry_array *a = &c->array;
  c->g.arrays = a;
  c->g.variables = c->variable;
  c->g.n_arrays = 1;
  c->g.n_variables = a->n_views = (uint64_t)n;
  c->g.samples = c->g.axes[0].samples = a->samples = 40;
  c->g.chunk = c->g.axes[0].chunk = a->rows = 4;
  c->g.n_axes = c->g.n_drawn = c->g.n_public = a->n_drawn = 1;
  a->chunks = 10;
  a->drawn[0] = (struct insitu__geometry_drawn){axis, a->rows, a->chunks, NULL};
  a->drawn_mask = UINT32_C(1) << axis;
  a->zarr.ndim = a->zarr.axes = 3;
  a->axis = axis;
  a->views = c->view;
  a->chunk_bytes = 16;
  a->zarr.shape[axis] = 40;
  a->zarr.chunk[axis] = 4;
  for (unsigned k = 0; k < 2; k++) {
    a->zarr.shape[other[k]] = UINT64_C(3) << 14;
    a->zarr.chunk[other[k]] = 3;
  }
  for (int v = 0; v < n; v++) { /* one element of the first chunk and of the last */
    insitu_slice slices[2];
    for (unsigned k = 0; k < 2; k++)
      slices[k] = (insitu_slice){.axis = (int32_t)other[k],
          .start = (int64_t)box[v][k][0] * 3 + 2,
          .stop = (int64_t)box[v][k][1] * 3 - 2};
    for (unsigned k = 0; k < 2; k++)
      if (box[v][k][1] - box[v][k][0] == 1) slices[k].stop = slices[k].start + 1;
    insitu_variable want = {.slices = slices, .n_slices = 2};
    insitu_error err = {0};
    insitu_status status =
        insitu__geometry_slices(&a->zarr, &want, a->drawn_mask, c->variable[v].axis, &err);
    if (!status) status = insitu__geometry_regions(&c->g, (uint64_t)v, &err);
    if (status) fail_msg("%s", err.message);
  }
  for (unsigned k = 0; k < 2; k++) {
    uint64_t lo = UINT64_MAX, hi = 0;
    for (int v = 0; v < n; v++) {
      assert_int_equal(c->g.regions[v].tile_lo[other[k]], box[v][k][0]);
      assert_int_equal(c->g.regions[v].tile_hi[other[k]], box[v][k][1]);
      lo = insitu__base_min(lo, box[v][k][0]);
      hi = insitu__base_max(hi, box[v][k][1]);
    }
    a->tile_lo[other[k]] = lo;
    a->tile_n[other[k]] = hi - lo;
  }
  a->tile_n[axis] = 1;
  for (int v = 0; v < n; v++) {
    c->g.regions[v].next = a->first;
    c->variable[v].n_steps = 1;
    a->first = (uint32_t)v + 1;
    c->view[v].region = (uint32_t)v;
    c->view[v].group = 1;
  }
}

static void free_corners(struct corners *c) {
  for (int v = 0; v < 4; v++) insitu__select_free(c->variable[v].axis);
  INSITU__ARRAY_FREE(c->g.regions);
}

/* All fields in order, against a walk through the whole grid. */
static void test_fields(void **state) {
  (void)state;
  for (int round = 0; round < 3000; round++) {
    struct corners c;
    uint64_t box[4][2][2], tile[INSITU__MAX_DIMS], most = 1 + support_below(9);
    int n = 1 + (int)support_below(4);
    for (int v = 0; v < n; v++)
      for (int k = 0; k < 2; k++) {
        box[v][k][0] = support_below(most);
        box[v][k][1] = box[v][k][0] + 1 + support_below(most - box[v][k][0]);
      }
    make_corners(&c, (unsigned)support_below(3), n, box);
    const struct insitu__geometry_array *a = &c.array;
    uint64_t grid = a->tile_n[0] * a->tile_n[1] * a->tile_n[2], expected = UINT64_MAX, sum = 0,
             of[4] = {0};
    uint64_t *fields = insitu__plan_fields(&c.g);
    assert_int_equal(insitu__geometry_next(&c.g, a, grid), UINT64_MAX);
    for (uint64_t f = grid; f-- > 0;) {
      bool any = false;
      for (int v = 0; v < n; v++) {
        bool wants = insitu__geometry_field(a, &c.g.regions[v], f, tile);
        of[v] += wants;
        any = any || wants;
      }
      if (any) expected = f;
      sum += any;
      assert_int_equal(insitu__geometry_next(&c.g, a, f), expected);
    }
    assert_int_equal(fields[0], sum);
    for (int v = 0; v < n; v++) assert_int_equal(c.g.regions[v].fields, of[v]);
    insitu__mem_free(fields);
    free_corners(&c);
  }
}

/* Small boxes in opposite corners: a scan looks at the fields that it reads, not at the 2^28
 * between them. */
static void test_corners_work(void **state) {
  (void)state;
  uint64_t box[4][2][2] = {{{0, 2}, {0, 2}}, {{(1 << 14) - 1, 1 << 14}, {(1 << 14) - 3, 1 << 14}}};
  for (unsigned axis = 0; axis < 3; axis++) {
    struct corners c;
    struct insitu__split s = {0};
    struct insitu__plan p;
    struct insitu__order o;
    struct insitu__plan_scan scan;
    insitu_plan out;
    make_corners(&c, axis, 2, box);
    /* 7 fields, though the grid around them has 2^28 */
    assert_true(insitu__geometry_countable(&c.g, &c.array));
    insitu_loader_desc d = desc_of(4, 2, 1);
    assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &c.g, NULL), INSITU_OK);
    assert_int_equal(
        insitu__plan_init(&p, &c.g, &s, INSITU_ALL, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
    assert_int_equal(insitu__plan_order(&p, 0, &o, NULL), INSITU_OK);
    assert_int_equal(insitu__plan_scan_init(&scan, &p, &o, NULL), INSITU_OK);
    uint64_t tiles = 0;
    while (scan.batch < o.batches) tiles += insitu__plan_scan_step(&scan) == INSITU__PLAN_TILE;
    assert_int_equal(tiles, 10 * 7);
    assert_int_equal(scan.looked, 10 * (7 + 1)); /* and once for the end of each chunk */
    assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
    assert_int_equal(out.reads, tiles);
    insitu__plan_scan_free(&scan);
    insitu__order_free(&o);
    insitu__split_free(&s);
    free_corners(&c);
  }
  struct corners c;
  uint64_t large[4][2][2] = {{{0, 1 << 12}, {0, 1 << 12}}, {{1 << 12, (1 << 12) + 1}, {0, 1}}};
  make_corners(&c, 0, 1, large);
  assert_true(insitu__geometry_countable(&c.g, &c.array));
  free_corners(&c);
  large[1][0][0] = 0, large[1][0][1] = 1; /* within the other */
  make_corners(&c, 0, 2, large);
  assert_true(insitu__geometry_countable(&c.g, &c.array));
  free_corners(&c);
  large[1][0][0] = 1 << 12, large[1][0][1] = (1 << 12) + 1;
  make_corners(&c, 0, 2, large);
  assert_false(insitu__geometry_countable(&c.g, &c.array)); /* 2^24 and one more */
  free_corners(&c);
  large[0][0][1] = 1 << 14, large[0][1][1] = (1 << 10) + 1;
  make_corners(&c, 0, 1, large);
  assert_int_equal(c.g.regions[0].fields, INSITU__MAX_FIELDS + 1); /* 2^24 + 2^14 */
  free_corners(&c);
}

/* A variable read at several offsets is read once per window; dedup and amplification say so. */
static void test_cost(void **state) {
  (void)state;
  struct made m;
  struct insitu__split s = {0};
  uint64_t rows = 10;
  make_geometry(&m, 1000, 1, &rows, 0);
  m.array[0].n_views = 2;
  m.view[0][1].delta = 1;
  list_views(&m.array[0]);
  m.variable[0].n_steps = 2;
  insitu_loader_desc d = desc_of(10, 1, 1);
  assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
  struct insitu__plan p;
  insitu_plan out;
  assert_int_equal(
      insitu__plan_init(&p, &m.g, &s, INSITU_TRAIN, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
  /* 800 samples, 799 anchors, of which 790 are delivered; each window of one unit reads its chunk
   * and the next one */
  assert_int_equal(out.samples, 799);
  static const uint64_t dropped[INSITU_DROPS] = {
      [INSITU_DROP_OTHER_SPLIT] = 200, [INSITU_DROP_SPLIT_EDGE] = 1, [INSITU_DROP_TAIL] = 9};
  assert_int_equal(out.space, 1000);
  assert_memory_equal(out.dropped, dropped, sizeof dropped);
  assert_int_equal(out.distinct, 80);
  assert_true(out.reads >= 157 && out.reads <= 159);
  assert_true(out.wanted > out.reads);
  insitu__split_free(&s);
  d.unit_chunks = 8;
  assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
  d.block_chunks = 8;
  assert_int_equal(
      insitu__plan_init(&p, &m.g, &s, INSITU_TRAIN, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
  assert_true(out.amplification < 1.15); /* (8 + 1) / 8, less the edge */
  insitu__split_free(&s);
}

/* The hash of a pass: that of another rank is the same, and that of another order is not. */
static uint64_t hash_of(struct made *m, const insitu_loader_desc *d, int part, int order) {
  struct insitu__split s = {0};
  struct insitu__plan p;
  assert_int_equal(insitu__split_init(&s, d, NULL, 0, &m->g, NULL), INSITU_OK);
  insitu_error err = {0};
  if (insitu__plan_init(&p, &m->g, &s, part, order, d, &err)) fail_msg("%s", err.message);
  uint64_t hash = insitu__plan_hash(&p);
  insitu__split_free(&s);
  return hash;
}
static void test_hash(void **state) {
  (void)state;
  struct made m;
  uint64_t rows = 10, hash[16];
  int n = 0;
  make_geometry(&m, 1000, 1, &rows, 0);
  insitu_loader_desc d = desc_of(10, 4, 1), as = d;
  d.world = as.world = 2;
  d.lanes = as.lanes = 2;
  uint64_t first = hash_of(&m, &d, INSITU_TRAIN, INSITU_SHUFFLED);
  as.rank = 1;
  assert_true(hash_of(&m, &as, INSITU_TRAIN, INSITU_SHUFFLED) == first);
  hash[n++] = first;
  hash[n++] = hash_of(&m, &d, INSITU_ALL, INSITU_SHUFFLED);
  hash[n++] = hash_of(&m, &d, INSITU_TRAIN, INSITU_SEQUENTIAL);
#define HASH_WITH(field, value)                                                                    \
  as = d;                                                                                          \
  as.field = value;                                                                                \
  hash[n++] = hash_of(&m, &as, INSITU_TRAIN, INSITU_SHUFFLED)
  HASH_WITH(seed, d.seed + 1);
  HASH_WITH(batch_size, 5);
  HASH_WITH(block_chunks, 8);
  HASH_WITH(unit_chunks, 2);
  HASH_WITH(lanes, 4);
  HASH_WITH(world, 1);
  HASH_WITH(sample_stop, 600); /* of the 800 that train has */
  HASH_WITH(split[INSITU_TRAIN].fraction, 0.7);
#undef HASH_WITH
  m.g.hash_geometry++;
  hash[n++] = hash_of(&m, &d, INSITU_TRAIN, INSITU_SHUFFLED);
  m.g.hash_variables++;
  hash[n++] = hash_of(&m, &d, INSITU_TRAIN, INSITU_SHUFFLED);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (hash[i] == hash[k]) fail_msg("passes %d and %d have one hash", k, i);
}

/* Evaluation in windows long enough that offsets cost at most a quarter more. */
static void test_sequential_window(void **state) {
  (void)state;
  struct made m;
  const struct {
    uint64_t rows, block, want;
    int64_t reach;
  } at[] = {{10, 64, 1, 0}, {10, 64, 4, 1}, {10, 64, 4, 10}, {10, 64, 8, 11}, {1, 64, 40, 10},
      {1, 8, 8, 10}, {10, 2, 2, 1}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    struct insitu__split s = {0};
    struct insitu__plan p;
    make_geometry(&m, 1000, 1, &at[i].rows, 0);
    m.array[0].n_views = at[i].reach ? 2 : 1;
    m.view[0][1].delta = at[i].reach;
    list_views(&m.array[0]);
    insitu_loader_desc d = desc_of(10, at[i].block, 1);
    insitu_plan out;
    assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
    assert_int_equal(
        insitu__plan_init(&p, &m.g, &s, INSITU_ALL, INSITU_SEQUENTIAL, &d, NULL), INSITU_OK);
    assert_int_equal(p.layout.window, at[i].want);
    assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
    assert_true(at[i].want == at[i].block || out.amplification <= 1.25);
    insitu__split_free(&s);
  }
}

/* The default number of lanes, and the sizes named when a world does not fit. */
static void test_lanes(void **state) {
  (void)state;
  struct made m;
  struct insitu__split s = {0};
  uint64_t rows = 4;
  make_geometry(&m, 4000, 1, &rows, 0);
  const struct {
    uint64_t batch, block, want;
    int32_t world;
  } at[] = {{32, 64, 32, 1}, {32, 16, 8, 1}, {32, 7, 2, 1}, {30, 16, 6, 1}, {7, 64, 7, 1},
      {32, 1, 1, 1}, {8, 64, 32, 4}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    insitu_loader_desc d = desc_of(at[i].batch, at[i].block, 1);
    struct insitu__plan p;
    d.world = at[i].world;
    assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
    assert_int_equal(
        insitu__plan_init(&p, &m.g, &s, INSITU_TRAIN, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
    assert_int_equal(p.layout.lanes, at[i].want);
    assert_int_equal(p.layout.window, insitu__base_max(1, at[i].block / at[i].want));
    insitu__split_free(&s);
  }
}

/* Shuffle quality: the measured variance ratio follows the law over 30 epochs. */
static void test_quality(void **state) {
  (void)state;
  struct made m;
  struct insitu__split s = {0};
  uint64_t rows = 8;
  make_geometry(&m, 8 * 512, 1, &rows, 0);
  const struct { uint64_t block, lanes; } at[] = {{8, 1}, {64, 8}, {64, 32}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    insitu_loader_desc d = desc_of(32, at[i].block, 1);
    struct insitu__plan p;
    insitu_plan law;
    double sum = 0;
    d.lanes = at[i].lanes;
    d.split[0].fraction = 1;
    d.split[1].fraction = d.split[2].fraction = 0;
    assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
    assert_int_equal(
        insitu__plan_init(&p, &m.g, &s, INSITU_TRAIN, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
    assert_int_equal(insitu__plan_describe(&p, &law, NULL), INSITU_OK);
    for (uint64_t e = 0; e < 40; e++) {
      insitu_quality q;
      assert_int_equal(insitu__plan_quality(&p, e, &q, NULL), INSITU_OK);
      assert_int_equal(q.rows, 4096);
      sum += q.variance_ratio;
    }
    if (!(sum / 40 > 0.8 * law.variance_ratio && sum / 40 < 1.25 * law.variance_ratio))
      fail_msg("block %d lanes %d: measured %g, law %g", (int)at[i].block, (int)at[i].lanes,
          sum / 40, law.variance_ratio);
    insitu__split_free(&s);
  }
}

/* 10^9 one-sample chunks: planned without lists of them. */
static void test_huge(void **state) {
  (void)state;
  struct made m;
  struct insitu__split s = {0};
  uint64_t rows = 1;
  make_geometry(&m, 1000000000, 1, &rows, 0);
  m.array[0].n_views = 1;
  list_views(&m.array[0]);
  insitu_loader_desc d = desc_of(32, 64, 1);
  struct insitu__plan p;
  struct insitu__order o;
  struct insitu__plan_scan scan;
  insitu_plan out;
  assert_int_equal(insitu__split_init(&s, &d, NULL, 0, &m.g, NULL), INSITU_OK);
  assert_int_equal(
      insitu__plan_init(&p, &m.g, &s, INSITU_TRAIN, INSITU_SHUFFLED, &d, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_order(&p, 5, &o, NULL), INSITU_OK);
  assert_int_equal(insitu__plan_scan_init(&scan, &p, &o, NULL), INSITU_OK);
  uint64_t tiles = 0;
  while (scan.batch < 1) tiles += insitu__plan_scan_step(&scan) == INSITU__PLAN_TILE;
  assert_int_equal(tiles, 32);
  assert_int_equal(insitu__plan_describe(&p, &out, NULL), INSITU_OK);
  assert_int_equal(out.estimated, 1);
  assert_int_equal(out.samples, 800000000);
  assert_true(out.amplification > 0.99 && out.amplification < 1.01);
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  assert_true(getenv("TEST_VALGRIND") || use.ru_maxrss < 64 << 10); /* KiB */
#endif
  insitu__plan_scan_free(&scan);
  insitu__order_free(&o);
  insitu__split_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_views), cmocka_unit_test(test_split_against_brute_force),
      cmocka_unit_test(test_scan), cmocka_unit_test(test_fields),
      cmocka_unit_test(test_corners_work), cmocka_unit_test(test_cost), cmocka_unit_test(test_hash),
      cmocka_unit_test(test_sequential_window), cmocka_unit_test(test_lanes),
      cmocka_unit_test(test_quality), cmocka_unit_test(test_huge),
      cmocka_unit_test(test_estimated_cost), /* behind test_huge, which measures memory */
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
