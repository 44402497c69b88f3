/* Random walks over the public API: loaders and iterators opened, read, moved, restored, cancelled
 * and closed in any order, with batches held across all of it and released by another thread. A
 * model says what every call must return, every element of
 * every batch is checked when it is delivered and again when it is given back, so a slab that is
 * reused too early shows. STRESS_WALKS and STRESS_SEED: more walks than the ones of every run, and
 * where they begin. */
#define INSITU__GEOMETRY_LIST 3 /* so that chunks are walked in pieces */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

enum { STEPS = 120, ITERS = 3, HELD = 24, KINDS = 5 };

/* ---- archives ---- */
struct kind {
  struct support_array a[2];
  insitu_variable v[3];
  uint64_t n_variables;
  int array_of[3];
  int damaged; /* chunk number of a[0] that is cut short, or -1 */
};
static const insitu_slice low = {NULL, 1, 0, 3}, high = {NULL, 1, 2, 5};
static const int64_t steps[3] = {-2, 0, 3};
static struct kind kinds[KINDS] = {
    /* rows read straight into batches, twice for some */
    {{{.name = "a",
         .ndim = 2,
         .shape = {61, 600},
         .chunk = {4, 600},
         .dtype = INSITU_F32,
         .format = 2}},
        {{.label = "x", .path = "a"}, {.label = "y", .path = "a", .offset = 1}}, 2, {0, 0}, -1},
    /* zstd, several fields, steps and a conversion, absent chunks */
    {{{.name = "a",
          .ndim = 3,
          .shape = {50, 5, 6},
          .chunk = {5, 2, 4},
          .dtype = INSITU_I16,
          .format = 3,
          .big = true,
          .zstd = true,
          .fill = "0",
          .absent = 7},
         {.name = "b", .ndim = 1, .shape = {50}, .chunk = {3}, .dtype = INSITU_F64, .format = 3}},
        {{.label = "x", .path = "a", .steps = steps, .n_steps = 3, .dtype = INSITU_F32},
            {.label = "y", .path = "b"}},
        2, {0, 1}, -1},
    /* one sample in a chunk, two slices in different fields at different offsets */
    {{{.name = "a",
         .ndim = 3,
         .shape = {70, 6, 512},
         .chunk = {1, 1, 512},
         .dtype = INSITU_F32,
         .format = 2}},
        {{.label = "x", .path = "a", .slices = &low, .n_slices = 1},
            {.label = "y", .path = "a", .offset = 2, .slices = &high, .n_slices = 1}},
        2, {0, 0}, -1},
    /* column-major and compressed: whole chunks through scratch */
    {{{.name = "a",
         .ndim = 2,
         .shape = {48, 20},
         .chunk = {6, 7},
         .dtype = INSITU_F64,
         .format = 2,
         .fortran = true,
         .zstd = true}},
        {{.label = "a"}}, 1, {0}, -1},
    /* a damaged chunk */
    {{{.name = "a",
         .ndim = 2,
         .shape = {64, 16},
         .chunk = {4, 16},
         .dtype = INSITU_I32,
         .format = 2}},
        {{.label = "a", .steps = steps, .n_steps = 3}}, 1, {0}, 9},
};

static int setup(void **state) {
  if (support_setup(state)) return -1;
  for (int k = 0; k < KINDS; k++) {
    char name[32];
    sprintf(name, "k%d", k);
    const char *root = support_path(name);
    for (int i = 0; i < 2 && kinds[k].a[i].name; i++) support_make(root, &kinds[k].a[i]);
    if (kinds[k].damaged < 0) continue;
    char path[700];
    uint64_t index[4] = {(uint64_t)kinds[k].damaged, 0, 0, 0};
    support_chunk_path(path, sizeof path, root, &kinds[k].a[0], index);
    assert_int_equal(truncate(path, 5), 0);
  }
  return 0;
}

/* ---- a walk ---- */
struct held {
  insitu_batch *batch;
  const struct kind *kind;
  uint64_t shown; /* steps of the first variable */
};
struct model { /* where an iterator must stand */
  insitu_iter *it;
  uint64_t epoch, next, batches, held, max_held;
  bool end_due, damaged;
  int32_t split, order;
  uint64_t shown; /* steps of the first variable */
  bool moved;     /* and no batch came since */
};
static struct held held[HELD];
static int n_held;
static insitu_state states[64];
static bool have_state;

/* A second thread that gives batches back. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t news;
  insitu_batch *batch[HELD];
  int n;
  bool stop;
  pthread_t id;
} giver = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
static void *giver_main(void *arg) {
  (void)arg;
  pthread_mutex_lock(&giver.lock);
  while (!giver.stop || giver.n) {
    if (!giver.n) {
      pthread_cond_wait(&giver.news, &giver.lock);
      continue;
    }
    insitu_batch *b = giver.batch[--giver.n];
    pthread_mutex_unlock(&giver.lock);
    insitu_batch_release(&b);
    pthread_mutex_lock(&giver.lock);
  }
  pthread_mutex_unlock(&giver.lock);
  return NULL;
}

static void check(const struct held *h) {
  for (uint64_t i = 0; i < h->kind->n_variables; i++) {
    insitu_variable v = h->kind->v[i];
    if (i == 0) v.n_steps = h->shown;
    if (v.n_steps) assert_int_equal(h->batch->arrays[i].shape[1], v.n_steps);
    support_check_array(h->batch, i, &v, &h->kind->a[h->kind->array_of[i]], 0);
  }
}
static void give_back(struct model *models, int i) {
  struct held h = held[i];
  struct insitu__loader_slab *slab = (struct insitu__loader_slab *)(void *)h.batch;
  check(&h);
  for (int k = 0; k < ITERS; k++)
    if (models[k].it && models[k].it == slab->iter) models[k].held--;
  held[i] = held[--n_held];
  bool model_open = false;
  for (int k = 0; k < ITERS; k++)
    model_open = model_open || (models[k].it && models[k].it == slab->iter);
  bool other =
      /* an open iterator's count must be certain: only orphans go to the other thread */
      !model_open && support_below(2);
  pthread_mutex_lock(&giver.lock);
  other = other && giver.n < HELD;
  if (other) giver.batch[giver.n++] = h.batch;
  pthread_cond_signal(&giver.news);
  pthread_mutex_unlock(&giver.lock);
  if (other) return;
  insitu_batch_release(&h.batch);
  assert_null(h.batch);
}

static uint64_t count_batches(insitu_loader *ld, const insitu_iter_desc *d) {
  insitu_plan p;
  insitu_error err = {0};
  if (insitu_loader_plan(ld, d, &p, &err)) fail_msg("%s", err.message);
  return p.batches;
}

static void step_open(insitu_loader *ld, struct model *m, const struct kind *k) {
  insitu_error err = {0};
  insitu_iter_desc d = {.api = INSITU_API,
      .split = (int32_t)support_below(4),
      .order = (int32_t)support_below(3),
      .max_held = 1 + (uint32_t)support_below(3),
      .epoch = support_below(4)};
  insitu_plan p;
  insitu_status s = insitu_loader_plan(ld, &d, &p, &err);
  insitu_status t = insitu_iter_open(ld, &d, &m->it, &err);
  assert_int_equal(s, t);
  if (s) {
    assert_null(m->it);
    return;
  }
  *m = (struct model){.it = m->it,
      .epoch = d.epoch,
      .batches = count_batches(ld, &d),
      .max_held = d.max_held,
      .split = d.split,
      .order = d.order,
      .shown = k->v[0].n_steps,
      .moved = true};
}

static void step_next(insitu_loader *ld, struct model *m, const struct kind *k, bool cancelled) {
  insitu_error err = {0};
  insitu_batch *b = (insitu_batch *)(void *)m;
  int64_t timeout = support_below(3) ? INSITU_FOREVER : (int64_t)support_below(3);
  if (n_held == HELD) return;
  insitu_status s = insitu_iter_next(m->it, timeout, &b, &err);
  assert_true((s == INSITU_OK) == (b != NULL));
  if (cancelled) {
    assert_int_equal(s, INSITU_CANCELLED);
  } else if (m->damaged) {
    assert_int_equal(s, INSITU_E_CORRUPT);
  } else if (m->end_due) {
    assert_int_equal(s, INSITU_END);
    m->end_due = false;
    m->epoch++;
    m->next = 0;
  } else if (m->held == m->max_held) {
    assert_int_equal(s, INSITU_BUSY);
  } else if (s == INSITU_TIMEOUT) {
    assert_true(timeout >= 0);
  } else if (s == INSITU_E_CORRUPT) {
    assert_true(k->damaged >= 0);
    assert_non_null(strstr(err.message, "length"));
    m->damaged = true;
  } else {
    if (s) fail_msg("%s: %s", insitu_status_name(s), err.message);
    assert_int_equal(b->epoch, m->epoch);
    assert_int_equal(b->index, m->next);
    for (uint64_t r = 0; r < b->rows; r++) {
      int64_t anchor;
      assert_int_equal(insitu_iter_locate(m->it, b->epoch, b->index, r, &anchor, &err), INSITU_OK);
      assert_int_equal(anchor, b->sample_indices[r]);
    }
    held[n_held] = (struct held){b, k, m->shown};
    check(&held[n_held++]);
    m->held++;
    m->moved = false;
    m->end_due = ++m->next == m->batches;
    if (!support_below(4)) { /* remembered for this iterator's like */
      states[(m->split * 3 + m->order) % 64] = b->after;
      have_state = true;
    }
  }
  (void)ld;
}

static void step_move(struct model *m) {
  insitu_error err = {0};
  if (support_below(2)) {
    uint64_t epoch = support_below(2) ? m->epoch + m->end_due : support_below(5);
    assert_int_equal(insitu_iter_set_epoch(m->it, epoch, &err), INSITU_OK);
    m->epoch = epoch;
    m->next = 0;
    m->end_due = m->damaged = false;
    m->moved = true;
  } else if (have_state) {
    const insitu_state *state = &states[(m->split * 3 + m->order) % 64];
    insitu_status s = insitu_iter_restore(m->it, state, &err);
    if (s) {
      assert_int_equal(s, INSITU_E_STATE);
      return;
    }
    m->epoch = insitu__base_load64(state->bytes + INSITU__STATE_EPOCH);
    m->next = insitu__base_load64(state->bytes + INSITU__STATE_NEXT);
    m->end_due = m->next == m->batches;
    m->damaged = false;
    m->moved = true;
  }
}

static void step_steps(struct model *m, const struct kind *k) {
  insitu_error err = {0};
  uint64_t n = support_below(5), all = k->v[0].n_steps;
  bool begins = m->moved || (!m->next && !m->end_due), fits = n > 0 && n <= all;
  insitu_status s = insitu_iter_set_steps(m->it, k->v[0].label, n, &err);
  assert_int_equal(s, begins && fits && !m->damaged ? INSITU_OK : INSITU_E_ARG);
  if (!s) m->shown = n;
}

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}

static void walk(uint64_t seed) {
  support_random_state = seed << 20;
  const struct kind *k = &kinds[support_below(KINDS)];
  char name[32];
  sprintf(name, "k%d", (int)(k - kinds));
  insitu_loader_desc d = {.api = INSITU_API,
      .url = support_path(name),
      .variables = k->v,
      .n_variables = k->n_variables,
      .batch_size = 1 + support_below(7),
      .seed = support_below(3),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = 1 + support_below(2),
      .prefetch_depth = 1 + support_below(4),
      .max_inflight = 1 + support_below(8),
      .decode_threads = 1 + support_below(3),
      .memory_budget = 256u << 20,
      .inline_io = (int32_t)support_below(2),
      .hold_epoch = (int32_t)support_below(2),
      .split_spill = (int32_t)support_below(2),
      .log = quiet,
      .split = {{.fraction = 0.7}, {.fraction = 0.2}, {.fraction = 0.1}}};
  if (!getenv("INSITU_IO")) d.io = support_below(2) ? INSITU_AUTO : INSITU_IO_EPOLL;
  insitu_error err = {0};
  insitu_loader *ld;
  struct model m[ITERS] = {{0}};
  have_state = false;
  memset(states, 0, sizeof states);
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  bool cancelled = false;
  for (int step = 0; step < STEPS; step++) {
    struct model *one = &m[support_below(ITERS)];
    uint64_t what = support_below(100);
    if (!one->it) step_open(ld, one, k);
    else if (what < 62) step_next(ld, one, k, cancelled);
    else if (what < 86 && n_held) give_back(m, (int)support_below((uint64_t)n_held));
    else if (what < 90) step_move(one);
    else if (what < 94) step_steps(one, k);
    else if (what < 97) {
      insitu_iter_close(&one->it);
      assert_null(one->it);
    } else if (what == 99 && step > STEPS * 3 / 4) {
      insitu_loader_cancel(ld);
      cancelled = true;
    }
  }
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
  assert_true(stats.inflight_peak <= d.max_inflight);
  insitu_loader_close(&ld);
  assert_null(ld);
  /* some of them while batches are held */
  for (int i = 0; i < ITERS; i++) insitu_iter_close(&m[i].it);
  memset(m, 0, sizeof m);
  for (int i = n_held; i-- > 0;) /* the others live on into the next walk */
    if (support_below(2) || n_held > HELD / 2) give_back(m, i);
}

static void test_walks(void **state) {
  const char *walks = getenv("STRESS_WALKS"), *seed = getenv("STRESS_SEED");
  uint64_t n = walks ? strtoull(walks, NULL, 10) : 60, first = seed ? strtoull(seed, NULL, 10) : 1;
  (void)state;
  giver.stop = false;
  assert_int_equal(pthread_create(&giver.id, NULL, giver_main, NULL), 0);
  for (uint64_t i = 0; i < n; i++) {
    alarm(60); /* a walk that hangs dies here */
    if (getenv("STRESS_VERBOSE")) fprintf(stderr, "walk %d\n", (int)(first + i));
    walk(first + i);
  }
  alarm(0);
  struct model none[ITERS] = {{0}};
  while (n_held) give_back(none, n_held - 1);
  pthread_mutex_lock(&giver.lock);
  giver.stop = true;
  pthread_cond_signal(&giver.news);
  pthread_mutex_unlock(&giver.lock);
  pthread_join(giver.id, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_walks)};
  return cmocka_run_group_tests(tests, setup, support_teardown);
}
