/* Arrays whose samples have other indexes than those of the first one: by a rate, rounded down, or
 * joined by their coordinates. Whole epochs against a model that looks everything up. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"

enum { MOST = 400, STEPS = 3, V = 3 };

/* A drawn case: array x of n anchors, and y of m samples. */
struct drawn {
  int64_t n, m;
  int64_t partner[MOST]; /* of each anchor; -1: none */
  int64_t place[MOST + 1];
  struct support_array x, y;
  insitu_variable v[2];
  int64_t steps[2][STEPS];
  int64_t out[2][2]; /* excluded ranges */
  int n_out;
};

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("'%s' is not in: %s", part, text);
}

/* Coordinates of both arrays, and what they join. y's is written in other units. */
static void draw_join(struct drawn *d, const char *root) {
  static double x[MOST], y[MOST];
  int64_t ratio = 1 + (int64_t)support_below(6), at = (int64_t)support_below(20);
  bool coarse = support_below(3) == 0, falls = support_below(4) == 0;
  for (int64_t i = 0; i < d->n; i++) {
    x[i] = (double)at;
    at += (coarse ? 1 : ratio) * (support_below(12) ? 1 : 1 + (int64_t)support_below(4));
  }
  at = (int64_t)support_below(20);
  for (int64_t i = 0; i < d->m; i++) {
    y[i] = (double)at;
    at += (coarse ? ratio : 1) * (support_below(15) ? 1 : 1 + (int64_t)support_below(4));
  }
  for (int64_t a = 0, k = 0; a < d->n; a++) {
    while (k < d->m && y[k] < x[a]) k++;
    d->place[a] = k;
    d->partner[a] = k < d->m && y[k] == x[a] ? k : -1;
  }
  for (int64_t i = 0; falls && i < MOST; i++) x[i] = -x[i], y[i] = -y[i];
  bool minutes = support_below(2);
  for (int64_t i = 0; i < d->m; i++) y[i] = minutes ? y[i] * 60 + 1440 : y[i];
  struct support_array time = {.name = "a/time",
      .ndim = 1,
      .shape = {(uint64_t)d->n},
      .chunk = {13},
      .dtype = INSITU_I32,
      .format = 3,
      .dims = "[\"time\"]",
      .attributes = "\"units\":\"hours since 2001-01-02\"",
      .values = x};
  support_make(root, &time);
  time.name = "b/time", time.shape[0] = (uint64_t)d->m, time.values = y, time.dtype = INSITU_F64;
  if (minutes) time.attributes = "\"units\":\"minutes since 2001-01-01\"";
  support_make(root, &time);
  d->v[1].map = INSITU_BY_COORDINATE;
  if (d->n != d->m && support_below(2)) d->v[1].map = 0;
}

/* What a rate joins. */
static void draw_rate(struct drawn *d) {
  int64_t rate = (int64_t)support_below(14) - 7;
  if (support_below(8) == 0) rate = -(INT64_C(1) << (5 + support_below(44)));
  bool floor = rate < 0 && support_below(3) > 0;
  d->v[1].map = floor ? INSITU_BY_INDEX_FLOOR : INSITU_BY_INDEX;
  d->v[1].rate = rate;
  for (int64_t a = 0; a < d->n; a++) {
    int64_t by = rate < 0 ? -rate : 1, j = rate < 0 ? a / by : a * (rate ? rate : 1);
    bool shares = j < d->m && (floor || rate >= 0 || a % by == 0);
    d->partner[a] = shares ? j : -1;
    d->place[a] = rate < 0 ? (a + by - 1) / by : j;
  }
}

static struct drawn *draw(const char *root) {
  static struct drawn d;
  memset(&d, 0, sizeof d);
  d.n = 30 + (int64_t)support_below(120);
  d.m = 20 + (int64_t)support_below(300);
  static char names[2][16];
  struct support_array *arrays[2] = {&d.x, &d.y};
  for (int i = 0; i < 2; i++) {
    uint64_t rows = 1 + support_below(support_below(2) ? 4 : 40);
    snprintf(names[i], sizeof names[i], "%s", i ? "b/y" : "a/x");
    *arrays[i] = (struct support_array){.name = names[i],
        .ndim = 2,
        .shape = {(uint64_t)(i ? d.m : d.n), V},
        .chunk = {rows, 1 + support_below(V)},
        .dtype = i ? INSITU_F32 : INSITU_I32,
        .format = 3,
        .zstd = support_below(2),
        .dims = "[\"time\",\"v\"]"};
    if (support_below(3) == 0) arrays[i]->shard[0] = arrays[i]->shard[1] = 2;
    support_make(root, arrays[i]);
    d.v[i].path = names[i];
    d.v[i].offset = (int64_t)support_below(7) - 3;
    if (support_below(2)) {
      d.v[i].steps = d.steps[i], d.v[i].n_steps = 1 + support_below(STEPS);
      int64_t at = (int64_t)support_below(5) - 2, by = support_below(3) ? 1 : 3;
      for (int k = 0; k < STEPS; k++) d.steps[i][k] = at + by * k;
    }
  }
  if (support_below(2)) draw_join(&d, root);
  else draw_rate(&d);
  d.n_out = support_below(3) ? 0 : 2;
  for (int r = 0; r < d.n_out; r++) {
    d.out[r][0] = (int64_t)support_below((uint64_t)d.n);
    d.out[r][1] = d.out[r][0] + 1 + (int64_t)support_below(8);
    if (d.out[r][1] > d.n) d.out[r][1] = d.n;
  }
  d.place[0] = 0;
  d.place[d.n] = d.m;
  return &d;
}

static int64_t delta(const insitu_variable *v, uint64_t k) {
  return v->offset + (v->n_steps ? v->steps[k] : 0);
}

/* Whether an anchor, or what it shows, is excluded. Excluded anchors take what belongs to them in
 * the other array with them. */
static bool hidden(const struct drawn *d, int64_t a) {
  for (int r = 0; r < d->n_out; r++) {
    int64_t lo = d->out[r][0], hi = d->out[r][1];
    if (a >= lo && a < hi) return true;
    for (int i = 0; i < 2; i++)
      for (uint64_t k = 0; k < (d->v[i].n_steps ? d->v[i].n_steps : 1); k++) {
        int64_t j = (i ? d->partner[a] : a) + delta(&d->v[i], k);
        if (i && d->partner[a] < 0) continue;
        if (j >= (i ? d->place[lo] : lo) && j < (i ? d->place[hi] : hi) && (!i || j < d->m))
          return true;
      }
  }
  return false;
}

/* Whether an anchor is one of the split [lo, hi). */
static bool is_anchor(const struct drawn *d, int64_t a, int64_t lo, int64_t hi, bool spill) {
  if (a < lo || a >= hi || d->partner[a] < 0 || hidden(d, a)) return false;
  if (spill) lo = 0, hi = d->n;
  for (int i = 0; i < 2; i++)
    for (uint64_t k = 0; k < (d->v[i].n_steps ? d->v[i].n_steps : 1); k++) {
      int64_t j = (i ? d->partner[a] : a) + delta(&d->v[i], k);
      int64_t from = i ? d->place[lo] : lo, to = i ? d->place[hi] : hi;
      if (i && to > d->m) to = d->m;
      if (j < from || j >= to) return false;
    }
  return true;
}

/* Why an anchor is not delivered, by the documented order; INSITU_DROPS: it is. */
static int reason(const struct drawn *d, int64_t a, int64_t lo, int64_t hi, bool spill) {
  if (a < lo || a >= hi) return INSITU_DROP_OTHER_SPLIT;
  if (hidden(d, a)) return INSITU_DROP_EXCLUDED;
  if (d->partner[a] < 0) return INSITU_DROP_NO_PARTNER;
  if (!is_anchor(d, a, 0, d->n, true)) return INSITU_DROP_ARCHIVE_EDGE;
  return is_anchor(d, a, lo, hi, spill) ? INSITU_DROPS : INSITU_DROP_SPLIT_EDGE;
}

/* Every element of a row. */
static void check_row(const struct drawn *d, const insitu_batch *b, uint64_t row) {
  int64_t a = b->sample_indices[row];
  for (int i = 0; i < 2; i++) {
    const insitu_array *out = &b->arrays[i];
    const char *p = (const char *)out->data + row * out->row_bytes;
    for (uint64_t k = 0; k < (d->v[i].n_steps ? d->v[i].n_steps : 1); k++)
      for (uint64_t v = 0; v < V; v++, p += 4) {
        int64_t j = (i ? d->partner[a] : a) + delta(&d->v[i], k);
        double want = support_value(i ? d->y.dtype : d->x.dtype, (uint64_t)j * V + v);
        double got = support_get(p, out->dtype);
        if (got != want)
          fail_msg("%s at anchor %d, step %d: %g, not %g", out->name, (int)a, (int)k, got, want);
      }
  }
}

/* A pass that goes on behind a batch, with fewer steps of y where it has some: the rows that the
 * first pass had from there on. */
static void resume(const struct drawn *d, insitu_loader *ld, const insitu_iter_desc *pass,
    const insitu_state *from, const int64_t *anchors, uint64_t n) {
  insitu_error err;
  insitu_iter *it = open_iter_or_fail(ld, pass);
  struct drawn fewer = *d;
  if (insitu_iter_restore(it, from, &err)) fail_msg("%s", err.message);
  if (d->v[1].n_steps) {
    fewer.v[1].n_steps = 1 + support_below(d->v[1].n_steps);
    if (insitu_iter_set_steps(it, "y", fewer.v[1].n_steps, &err)) fail_msg("%s", err.message);
  }
  insitu_batch *b;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, n--) {
      assert_true(n > 0 && b->sample_indices[row] == *anchors++);
      check_row(&fewer, b, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(n, 0);
  insitu_iter_close(&it);
}

/* One epoch of a split: the anchors that the model tells, each once, with the right rows. */
static void epoch(const struct drawn *d, insitu_loader *ld, int32_t split, int64_t lo, int64_t hi,
    bool spill, bool shuffled) {
  insitu_iter_desc pass = {
      .api = INSITU_API, .split = split, .order = shuffled ? INSITU_SHUFFLED : INSITU_SEQUENTIAL};
  uint64_t batch = insitu_loader_config(ld)->batch_size, want = 0, got = 0;
  bool seen[MOST] = {false};
  insitu_error err;
  insitu_plan plan;
  insitu_stats before, after;
  for (int64_t a = 0; a < d->n; a++) want += is_anchor(d, a, lo, hi, spill);
  insitu_status status = insitu_loader_plan(ld, &pass, &plan, &err);
  if (want < (shuffled ? batch : 1)) {
    assert_int_equal(status, INSITU_E_SPLIT);
    return;
  }
  if (status) fail_msg("%s (%d anchors)", err.message, (int)want);
  assert_int_equal(plan.samples, want);
  uint64_t dropped[INSITU_DROPS + 1] = {0};
  for (int64_t a = 0; a < d->n; a++) dropped[reason(d, a, lo, hi, spill)]++;
  dropped[INSITU_DROP_TAIL] = shuffled ? want % batch : 0;
  if (d->n_out) { /* of what has no partner, what lies at what is excluded counts as that */
    assert_true(plan.dropped[INSITU_DROP_EXCLUDED] >= dropped[INSITU_DROP_EXCLUDED]);
    uint64_t more = plan.dropped[INSITU_DROP_EXCLUDED] - dropped[INSITU_DROP_EXCLUDED];
    dropped[INSITU_DROP_EXCLUDED] += more;
    dropped[INSITU_DROP_NO_PARTNER] -= more;
  }
  assert_memory_equal(plan.dropped, dropped, sizeof plan.dropped);
  assert_int_equal(insitu_loader_stats(ld, &before, &err), INSITU_OK);

  insitu_iter *it = open_iter_or_fail(ld, &pass);
  insitu_batch *b;
  int64_t last = -1, anchors[MOST];
  insitu_state middle;
  uint64_t behind = 0, half = 1 + support_below(3); /* batches before the pass is resumed */
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, got++) {
      int64_t a = b->sample_indices[row];
      assert_true(is_anchor(d, a, lo, hi, spill) && !seen[a] && (shuffled || a > last));
      seen[last = a] = true;
      anchors[got] = a;
      check_row(d, b, row);
    }
    if (b->index < half) middle = b->after, behind = got;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(got, shuffled ? want / batch * batch : want);
  insitu_iter_close(&it);
  assert_int_equal(insitu_loader_stats(ld, &after, &err), INSITU_OK);
  if (!plan.estimated) assert_int_equal(after.reads - before.reads, plan.reads);
  if (got > behind) resume(d, ld, &pass, &middle, anchors + behind, got - behind);
  assert_true(plan.distinct <= plan.reads && plan.amplification >= 1);
  assert_int_equal(after.rereads - before.rereads <= after.reads - before.reads, 1);
}

static void epochs(void **state) {
  (void)state;
  int rounds = support_rounds(150);
  if (getenv("MAPS_N")) rounds = atoi(getenv("MAPS_N"));
  if (getenv("MAPS_SEED")) support_random_state = strtoull(getenv("MAPS_SEED"), NULL, 10);
  for (int round = 0; round < rounds; round++) {
    uint64_t seed = support_random_state;
    const char *root = support_path("drawn");
    support_remove(root);
    const struct drawn *d = draw(root);
    int64_t cut = 1 + (int64_t)support_below((uint64_t)d->n - 2);
    bool spill = support_below(4) == 0;
    int m = any_mode();
    insitu_loader_desc desc = {.api = INSITU_API,
        .url = root,
        .variables = d->v,
        .n_variables = 2,
        .batch_size = 1 + support_below(6),
        .split = {{.start = 0, .stop = cut}, {.start = cut, .stop = d->n}},
        .split_spill = spill,
        .unit_chunks = 1 + support_below(3),
        .block_chunks = 1 + support_below(20),
        .io = modes[m].io,
        .inline_io = (int32_t)support_below(2),
        .check = (int32_t)support_below(2),
        .hold_epoch = 1,
        .seed = support_random()};
    char text[200] = "", path[600];
    if (d->n_out) {
      snprintf(text, sizeof text,
          "{\"excluded\": [{\"start\": %d, \"stop\": %d}, {\"start\": %d, \"stop\": %d}]}",
          (int)d->out[0][0], (int)d->out[0][1], (int)d->out[1][0], (int)d->out[1][1]);
      snprintf(path, sizeof path, "%s", support_path("excluded.json"));
      support_write(path, text, strlen(text));
      desc.manifest = path;
    }
    insitu_loader *ld = NULL;
    insitu_error err;
    insitu_status status = insitu_loader_open(&desc, &ld, &err);
    bool any = false;
    for (int64_t a = 0; a < d->n; a++) any = any || d->partner[a] >= 0;
    if (status && !any) {
      has(err.message, "no sample of one has a partner in the other");
      continue;
    }
    if (status) fail_msg("MAPS_SEED=%llu: %s", (unsigned long long)seed, err.message);
    if (getenv("MAPS_N")) fprintf(stderr, "MAPS_SEED=%llu\n", (unsigned long long)seed);
    epoch(d, ld, INSITU_TRAIN, 0, cut, spill, true);
    epoch(d, ld, INSITU_VAL, cut, d->n, spill, false);
    epoch(d, ld, INSITU_ALL, 0, d->n, true, support_below(2));
    insitu_loader_close(&ld);
  }
}

/* ---- maps beside other sample axes, and patches ---- */

enum { TIME, LEAD, HIGH, DIMS };
static const char *const dim_names[DIMS] = {"time", "lead", "high"};

/* The arrays of a drawn map, with a lead that both have and that samples may be drawn along, and a
 * height that patches may be drawn along. */
struct space {
  struct drawn *d;
  int64_t size[DIMS];
  struct support_array array[2];
  char dims[2][64];
  int dim[2][DIMS]; /* of each axis of the array */
  insitu_axis axes[DIMS];
  int of[DIMS]; /* the dimension of each entry of axes */
  int n_axes, at[DIMS];
  int64_t stride[DIMS], halo, each; /* each: patches of a sample */
  bool some, listed[MOST][8];       /* of (time, lead): only these */
  int64_t list[MOST * 8 * 2];
  insitu_loader_desc desc;
};

static void draw_space_array(struct space *s, const char *root, int i) {
  struct support_array *a = &s->array[i];
  int order[DIMS] = {TIME, LEAD, HIGH};
  *a = (struct support_array){.name = i ? "b/y" : "a/x",
      .ndim = DIMS,
      .dtype = i ? INSITU_F32 : INSITU_I32,
      .dims = s->dims[i]};
  support_shuffle(order, DIMS);
  s->dims[i][0] = 0;
  for (int d = 0; d < DIMS; d++) {
    s->dim[i][d] = order[d];
    a->shape[d] = (uint64_t)(order[d] == TIME && i ? s->d->m : s->size[order[d]]);
    sprintf(s->dims[i] + strlen(s->dims[i]), "%c\"%s\"", d ? ',' : '[', dim_names[order[d]]);
  }
  strcat(s->dims[i], "]");
  support_layout(a, 3);
  a->fortran = false;
  for (int d = 0; d < DIMS; d++)
    if (order[d] == TIME && support_below(2)) a->chunk[d] = 1 + support_below(6);
  support_make(root, a);
  s->d->v[i].path = a->name;
  s->d->v[i].halo = i ? 0 : (uint64_t)s->halo;
}

/* How many patches a grid of them has. */
static int64_t grid_patches(const struct space *s, int64_t patch) {
  int64_t n = 0;
  for (int64_t o = 0; o + patch + s->halo <= s->size[HIGH]; o += patch) n += o >= s->halo;
  return n;
}

static void draw_space(struct space *s, const char *root) {
  static struct drawn d;
  memset(s, 0, sizeof *s);
  memset(&d, 0, sizeof d);
  s->d = &d;
  d.n = s->size[TIME] = 20 + (int64_t)support_below(50);
  d.m = 10 + (int64_t)support_below(150);
  s->size[LEAD] = 1 + (int64_t)support_below(5);
  s->size[HIGH] = 2 + (int64_t)support_below(9);
  for (int i = 0; i < 2; i++) {
    d.v[i].offset = (int64_t)support_below(5) - 2;
    if (support_below(2)) {
      d.v[i].steps = d.steps[i], d.v[i].n_steps = 1 + support_below(STEPS);
      for (int k = 0; k < STEPS; k++) d.steps[i][k] = k * (support_below(3) ? 1 : 2);
    }
  }
  if (support_below(2)) draw_join(&d, root);
  else draw_rate(&d);
  d.place[0] = 0;
  d.place[d.n] = d.m;

  int order[DIMS] = {TIME, LEAD, HIGH}, kind = (int)support_below(3);
  bool drawn[DIMS] = {true, kind != 1, kind != 0}; /* lead, a patch, or both */
  support_shuffle(order, DIMS);
  int64_t patch = 1 + (int64_t)support_below((uint64_t)s->size[HIGH] / 2);
  s->halo = drawn[HIGH] && support_below(2) ? 1 : 0;
  if (grid_patches(s, patch) < 1) s->halo = 0;
  bool random = drawn[HIGH] && support_below(2);
  s->each = !drawn[HIGH] ? 1 : random ? 1 + (int64_t)support_below(5) : grid_patches(s, patch);
  for (int k = 0; k < DIMS; k++) {
    int dim = order[k];
    s->at[dim] = -1;
    s->stride[dim] = 1;
    if (!drawn[dim]) continue;
    insitu_axis *axis = &s->axes[s->n_axes];
    s->at[dim] = s->n_axes;
    s->of[s->n_axes++] = dim;
    axis->dim = dim_names[dim];
    if (dim == HIGH) axis->patch = (uint64_t)patch;
    else if (support_below(3) == 0) s->stride[dim] = 2 + (int64_t)support_below(3);
    if (dim != HIGH) axis->stride = (uint64_t)s->stride[dim];
  }
  for (int i = 0; i < 2; i++) draw_space_array(s, root, i);
  int m = any_mode();
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = d.v,
      .n_variables = 2,
      .axes = s->axes,
      .n_axes = (uint64_t)s->n_axes,
      .split_axis = s->at[TIME],
      .patches = random ? (uint64_t)s->each : 0,
      .batch_size = 1 + support_below(6),
      .split_spill = support_below(4) == 0,
      .unit_chunks = 1 + support_below(3),
      .block_chunks = 1 + support_below(20),
      .on_absent_chunk = INSITU_FILL,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2),
      .check = (int32_t)support_below(2),
      .hold_epoch = 1,
      .log_level = INSITU_LOG_OFF,
      .seed = support_random()};
}

/* Lists some of the samples, those of anchor 0 among them, a third of the times; not of a grid of
 * patches. */
static void draw_list(struct space *s) {
  bool grid = s->at[HIGH] >= 0 && !s->desc.patches;
  int64_t leads = s->at[LEAD] < 0 ? 1 : s->size[LEAD], n = 0;

  s->some = !grid && support_below(3) == 0;
  for (int64_t a = 0; a < s->d->n; a++)
    for (int64_t lead = 0; lead < leads; lead++) {
      bool takes = a % s->stride[TIME] == 0 && lead % s->stride[LEAD] == 0;
      s->listed[a][lead] = takes && (!s->some || !a || support_below(2));
      if (!s->some || !s->listed[a][lead]) continue;
      for (int k = 0; k < s->n_axes; k++)
        if (s->of[k] != HIGH) s->list[n++] = s->of[k] == TIME ? a : lead;
    }
  if (!s->some) return;
  s->desc.samples = s->list;
  s->desc.n_samples = (uint64_t)n / (s->at[LEAD] < 0 ? 1 : 2);
}

/* Every element of a row that stands at `index`. */
static void check_space_row(
    const struct space *s, const insitu_batch *b, uint64_t row, const int64_t *index) {
  int64_t a = index[s->at[TIME]];
  for (int i = 0; i < 2; i++) {
    const insitu_array *out = &b->arrays[i];
    const insitu_variable *v = &s->d->v[i];
    const char *p = (const char *)out->data + row * out->row_bytes;
    uint64_t at[DIMS], extent[DIMS], elements = 1;
    for (int d = 0; d < DIMS; d++) {
      int dim = s->dim[i][d], entry = s->at[dim];
      extent[d] = (uint64_t)s->size[dim];
      if (entry >= 0) extent[d] = dim == HIGH ? s->axes[entry].patch + 2 * v->halo : 1;
      elements *= extent[d];
    }
    for (uint64_t k = 0; k < (v->n_steps ? v->n_steps : 1); k++)
      for (uint64_t e = 0; e < elements; e++, p += 4) {
        uint64_t rest = e;
        for (int d = DIMS; d-- > 0; rest /= extent[d]) {
          int dim = s->dim[i][d], entry = s->at[dim];
          at[d] = rest % extent[d];
          if (dim == TIME) at[d] = (uint64_t)((i ? s->d->partner[a] : a) + delta(v, k));
          else if (entry >= 0) at[d] += (uint64_t)index[entry] - (dim == HIGH ? v->halo : 0);
        }
        support_same(p, out->dtype, 0, support_expect(&s->array[i], at), out->name);
      }
  }
}

/* One epoch of a split: each sample as often as it has patches, with the right rows; and the same
 * behind a state. */
static void space_epoch(const struct space *s, insitu_loader *ld, int32_t split, int64_t lo,
    int64_t hi, bool spill, bool shuffled) {
  enum { ROWS = 70 * 5 * 12 };
  static int64_t shown[ROWS][DIMS], again[DIMS];
  static int64_t seen[MOST][8];
  const insitu_iter_desc pass = {
      .api = INSITU_API, .split = split, .order = shuffled ? INSITU_SHUFFLED : INSITU_SEQUENTIAL};
  uint64_t batch = s->desc.batch_size, want = 0, got = 0, behind = 0;
  int64_t leads = s->at[LEAD] < 0 ? 1 : s->size[LEAD];
  insitu_error err;
  insitu_plan plan;
  insitu_stats before, after;
  memset(seen, 0, sizeof seen);
  for (int64_t a = 0; a < s->d->n; a++)
    for (int64_t lead = 0; lead < leads; lead++)
      if (s->listed[a][lead] && is_anchor(s->d, a, lo, hi, spill)) want += (uint64_t)s->each;
  insitu_status status = insitu_loader_plan(ld, &pass, &plan, &err);
  if (want < (shuffled ? batch : 1)) {
    assert_int_equal(status, INSITU_E_SPLIT);
    return;
  }
  if (status) fail_msg("%s (%d rows)", err.message, (int)want);
  assert_int_equal(plan.samples, want);
  uint64_t left = plan.space;
  for (int r = 0; r < INSITU_DROPS; r++) left -= plan.dropped[r];
  assert_int_equal(left, plan.rows);
  assert_int_equal(insitu_loader_stats(ld, &before, &err), INSITU_OK);

  insitu_iter *it = open_iter_or_fail(ld, &pass);
  insitu_batch *b;
  insitu_state middle;
  uint64_t half = 1 + support_below(3);
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, got++) {
      const int64_t *index = b->axis_indices + row * b->n_axes;
      int64_t a = index[s->at[TIME]], lead = s->at[LEAD] < 0 ? 0 : index[s->at[LEAD]];
      assert_true(is_anchor(s->d, a, lo, hi, spill) && s->listed[a][lead]);
      assert_true(++seen[a][lead] <= s->each);
      memcpy(shown[got], index, b->n_axes * sizeof *index);
      check_space_row(s, b, row, index);
    }
    if (b->index < half) middle = b->after, behind = got;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(got, shuffled ? want / batch * batch : want);
  assert_int_equal(insitu_loader_stats(ld, &after, &err), INSITU_OK);
  if (!plan.estimated) assert_int_equal(after.reads - before.reads, plan.reads);
  if (!plan.estimated && !s->desc.patches)
    assert_true(after.rereads - before.rereads <= plan.reads - plan.distinct);

  if (insitu_iter_restore(it, &middle, &err)) fail_msg("%s", err.message);
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, behind++) {
      memcpy(again, b->axis_indices + row * b->n_axes, b->n_axes * sizeof *again);
      assert_memory_equal(again, shown[behind], b->n_axes * sizeof *again);
      check_space_row(s, b, row, again);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  assert_int_equal(behind, got);
  insitu_iter_close(&it);
}

static void spaces(void **state) {
  (void)state;
  static struct space s;
  int rounds = support_rounds(250);
  if (getenv("MAPS_N")) rounds = atoi(getenv("MAPS_N"));
  if (getenv("MAPS_SEED")) support_random_state = strtoull(getenv("MAPS_SEED"), NULL, 10);
  for (int round = 0; round < rounds; round++) {
    uint64_t seed = support_random_state;
    const char *root = support_path("space");
    support_remove(root);
    draw_space(&s, root);
    draw_list(&s);
    int64_t n = s.d->n, cut = 1 + (int64_t)support_below((uint64_t)n - 2);
    bool any = false, spill = s.desc.split_spill;
    s.desc.split[0] = (insitu_split_range){.start = 0, .stop = cut};
    s.desc.split[1] = (insitu_split_range){.start = cut, .stop = n};
    insitu_loader *ld = NULL;
    insitu_error err;
    insitu_status status = insitu_loader_open(&s.desc, &ld, &err);
    for (int64_t a = 0; a < n; a++) any = any || s.d->partner[a] >= 0;
    if (status && !any) {
      has(err.message, "no sample of one has a partner in the other");
      continue;
    }
    if (status) fail_msg("MAPS_SEED=%llu: %s", (unsigned long long)seed, err.message);
    if (getenv("MAPS_N")) fprintf(stderr, "MAPS_SEED=%llu\n", (unsigned long long)seed);
    space_epoch(&s, ld, INSITU_TRAIN, 0, cut, spill, true);
    space_epoch(&s, ld, INSITU_VAL, cut, n, spill, false);
    space_epoch(&s, ld, INSITU_ALL, 0, n, true, support_below(2));
    insitu_loader_close(&ld);
  }
}

/* Arrays x of n samples, and y, of which all anchors show the first eight of a long chunk. */
static insitu_loader_desc shared(const char *name, int64_t n, insitu_variable v[2]) {
  enum { CHUNK = 8192 };
  static const int64_t steps[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const char *root = support_path(name);
  struct support_array x = {.name = "a/x",
      .ndim = 1,
      .shape = {(uint64_t)n},
      .chunk = {CHUNK},
      .dtype = INSITU_I32,
      .format = 3,
      .dims = "[\"time\"]"};
  support_make(root, &x);
  x.name = "b/y", x.shape[0] = 20;
  support_make(root, &x);
  v[0] = (insitu_variable){.path = "a/x"};
  v[1] = (insitu_variable){.path = "b/y",
      .steps = steps,
      .n_steps = 8,
      .map = INSITU_BY_INDEX_FLOOR,
      .rate = -(INT64_C(1) << 48)};
  return (insitu_loader_desc){
      .api = INSITU_API, .url = root, .variables = v, .n_variables = 2, .batch_size = 10};
}

/* Eight steps of 8192 rows and 2^48 anchors would be 2^64 entries of a row list. */
static void far_rate(void **state) {
  (void)state;
  enum { ANCHORS = 1000 };
  insitu_variable v[2];
  insitu_loader_desc d = shared("far", ANCHORS, v);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b;
  insitu_error err;
  uint64_t seen = 0;
  while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, seen++)
      for (uint64_t k = 0; k < 8; k++) {
        const char *p = (const char *)b->arrays[1].data + row * b->arrays[1].row_bytes + 4 * k;
        assert_true(support_get(p, INSITU_I32) == support_value(INSITU_I32, k));
      }
    insitu_batch_release(&b);
  }
  assert_int_equal(seen, ANCHORS);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  d = shared("many", (1 << 17) + 1, v); /* eight steps: more than 2^20 entries for a row */
  insitu_status status = insitu_loader_open(&d, &ld, &err);
  assert_int_equal(status, INSITU_E_UNSUPPORTED);
  has(err.message, "array b/y: by rate -281474976710656 up to 131073 samples");
  has(err.message, "each shows 8 of its steps");
  v[1].n_steps = 7;
  ld = open_or_fail(&d);
  insitu_loader_close(&ld);
}

/* ---- archives that grow ---- */

/* Arrays a/x of n samples and b/y of m, with their coordinates. */
struct grown {
  uint64_t n, m, rows[2]; /* of chunks */
  double x[1100], y[1100];
};

static void make_grown(const char *root, const struct grown *s) {
  for (int i = 0; i < 2; i++) {
    struct support_array a = {.name = i ? "b/y" : "a/x",
        .ndim = 1,
        .shape = {i ? s->m : s->n},
        .chunk = {s->rows[i]},
        .dtype = INSITU_I32,
        .format = 3,
        .dims = "[\"time\"]"};
    support_make(root, &a);
    a.name = i ? "b/time" : "a/time", a.values = i ? s->y : s->x, a.dtype = INSITU_F64;
    support_make(root, &a);
  }
}

/* Anchors of the rest of a pass's epoch. */
static uint64_t rest_of(insitu_iter *it, int64_t *anchors) {
  insitu_batch *b;
  insitu_error err;
  insitu_status status;
  uint64_t n = 0;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++) anchors[n++] = b->sample_indices[row];
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  return n;
}

/* The number behind a key of a manifest. */
static uint64_t manifest_number(const insitu_loader *ld, const char *key) {
  char path[600], text[4000] = "";
  insitu_error err;
  snprintf(path, sizeof path, "%s", support_path("saved.json"));
  if (insitu_manifest_save(ld, path, &err)) fail_msg("%s", err.message);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  const char *at = strstr(text, key);
  assert_non_null(at);
  return strtoull(at + strlen(key) + 3, NULL, 10);
}

/* A state of the archive as it was goes on in it as it is now, and a manifest that tells the length
 * of its chunks holds. `now` may say otherwise what belongs together; differs: the state is
 * refused with these words. */
static void grows(const struct grown *then, const struct grown *now, insitu_variable before,
    insitu_variable after, const char *differs) {
  const char *root = support_path("grows");
  insitu_variable v[2] = {{.path = "a/x"}, before};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 2,
      .batch_size = 2,
      .split = {{.start = 0, .stop = 30}, {.start = 30, .stop = 58}},
      .hold_epoch = 1};
  const insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_VAL, .order = INSITU_SHUFFLED};
  insitu_error err;
  insitu_state state;
  int64_t first[60], second[60];
  support_remove(root);
  make_grown(root, then);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &pass);
  insitu_batch *b = next_batch_or_fail(it);
  state = b->after;
  insitu_batch_release(&b);
  uint64_t n = rest_of(it, first);
  assert_true(n >= 2);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  d.split[0] = d.split[1] = (insitu_split_range){.start = 0};
  char path[600], text[300];
  ld = open_or_fail(&d);
  uint64_t chunk = manifest_number(ld, "sample_chunk_size");
  insitu_loader_close(&ld);
  snprintf(path, sizeof path, "%s", support_path("told.json"));
  snprintf(text, sizeof text,
      "{\"sample_chunk_size\": %d, \"excluded\": [{\"start\": 5, \"stop\": 6}]}", (int)chunk);
  support_write(path, text, strlen(text));

  support_remove(root);
  make_grown(root, now);
  v[1] = after;
  d.manifest = differs ? NULL : path;
  ld = open_or_fail(&d);
  insitu_loader_close(&ld);
  d.manifest = NULL;
  d.split[0] = (insitu_split_range){.start = 0, .stop = 30};
  d.split[1] = (insitu_split_range){.start = 30, .stop = 58};
  ld = open_or_fail(&d);
  it = open_iter_or_fail(ld, &pass);
  insitu_status status = insitu_iter_restore(it, &state, &err);
  if (differs) {
    assert_int_equal(status, INSITU_E_STATE);
    has(err.message, differs);
  } else {
    if (status) fail_msg("%s", err.message);
    assert_int_equal(rest_of(it, second), n);
    assert_memory_equal(first, second, n * sizeof *first);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static void grown(void **state) {
  (void)state;
  static struct grown then, now;
  insitu_variable joined = {.path = "b/y"}, by_index = {.path = "b/y", .map = INSITU_BY_INDEX},
                  floored = {.path = "b/y", .map = INSITU_BY_INDEX_FLOOR, .rate = -24};

  /* a chunk of days is longer than the archive's hours, then and now */
  then = (struct grown){.n = 1000, .m = 42, .rows = {24, 365}};
  now = (struct grown){.n = 1024, .m = 43, .rows = {24, 365}};
  grows(&then, &now, floored, floored, NULL);

  /* partners that follow later, and for longer, have another rate */
  then = (struct grown){.n = 60, .m = 400, .rows = {5, 60}};
  now = (struct grown){.n = 1000, .m = 1100, .rows = {5, 60}};
  for (int i = 0; i < 1100; i++) {
    now.x[i] = 6 * i;
    now.y[i] = i < 400 ? i : 402 + 2 * (i - 400);
  }
  memcpy(then.x, now.x, sizeof then.x);
  memcpy(then.y, now.y, sizeof then.y);
  grows(&then, &now, joined, joined, NULL);
  grows(&then, &then, joined, joined, NULL);
  grows(&then, &now, joined, by_index, "the archive's chunks along the axes");

  /* the first partner stands alone, and the second one begins another rate */
  for (int i = 0; i < 1100; i++) now.y[i] = i ? 2 * i + 4 : 0;
  memcpy(then.y, now.y, sizeof then.y);
  grows(&then, &now, joined, joined, NULL);

  /* lengths that were equal, and all samples partners, are so no longer */
  for (int i = 0; i < 1100; i++) now.x[i] = now.y[i] = 6 * i;
  then = now;
  then.n = then.m = 60;
  grows(&then, &now, joined, joined, NULL);
  joined.map = INSITU_BY_COORDINATE;
  grows(&then, &now, joined, by_index, NULL); /* by index these are the same samples */
  now.m = 70;
  for (int i = 59; i < 1100; i++) now.y[i] += 1;
  grows(&then, &now, by_index, joined, NULL);
  now.y[20] += 1; /* of train */
  grows(&then, &now, by_index, joined, NULL);
  now.y[40] += 1; /* of val */
  grows(&then, &now, by_index, joined, "the archive had 60 samples");

  /* the same anchors have other partners: by index, or since a sample of train is gone */
  then.n = 60, then.m = 70;
  for (int i = 0; i < 1100; i++) then.y[i] = 6 * (i - 3);
  grows(&then, &then, joined, by_index, "another value of the split");
  now = then;
  for (int i = 10; i < 1100; i++) now.y[i] += 6;
  grows(&then, &now, joined, joined, "another value of the split");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(far_rate), cmocka_unit_test(grown),
      cmocka_unit_test(epochs), cmocka_unit_test(spaces)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
