/* Random sequences of public calls: several loaders, of folders, zip files, references, memory and
 * a server that goes wrong, with several iterators each, are opened, read, moved, cancelled and
 * closed in any order, also wrongly, while a second thread calls what the manual lets it. A model
 * says which statuses each call may give at that moment, every element of every batch is checked
 * when it comes and when it goes, and at the end nothing may be left: no memory, thread or
 * descriptor.
 *
 *   build/test_sequences                    a fixed slice, as the other tests run
 *   build/test_sequences --seed 7 --n 1000  sequences 7 to 1006; -v tells each call
 *
 * What is wrong is printed with the calls before it, and the command that makes the sequence again.
 * What the second thread does meanwhile is not the same in each run. test_stress has walks over one
 * loader that look into the library. */
#include "server.h"
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "sequence_kinds.h"
#include "sequence_model.h"
#include <dirent.h>

enum { SLICE = 16, STEPS = 250, MAX_SECONDS = 120 };

/* ---- batches ---- */
static struct iter *iter_of(uint64_t number) {
  for (int i = 0; i < ITERS; i++)
    if (iters[i].it && iters[i].number == number) return &iters[i];
  return NULL;
}
struct tensor { /* of DLPack 1.0, as far as it is needed */
  uint32_t major, minor;
  void *manager;
  void (*deleter)(struct tensor *self);
};
/* All that holds the batch has let it go. */
static void let_go(int i) {
  struct iter *m = iter_of(held[i].iter);

  if (m) atomic_fetch_sub(&m->held, 1);
  held[i] = held[--n_held];
}
static void give_back(int i) {
  struct held *h = &held[i];
  struct iter *m = iter_of(h->iter);

  if (h->batch && chance(70)) check_batch(h);
  tell("release batch of iterator %d", (int)h->iter);
  if (m) {
    atomic_fetch_add(&m->loose, 1);
    atomic_fetch_add(&m->gone, 1);
  }
  if (h->batch && (!h->tensor || chance(50))) {
    if (chance(50)) insitu_batch_release(&h->batch);
    else insitu_batch_release_on(&h->batch, NULL);
    if (h->batch) wrong("a released batch is not NULL");
  } else if (h->tensor) {
    struct tensor *t = h->tensor;

    t->deleter(t);
    h->tensor = NULL;
  }
  if (!h->batch && !h->tensor) let_go(i);
  if (m) atomic_fetch_sub(&m->loose, 1);
}
static void step_tensor(void) {
  struct held *h = &held[draw((uint64_t)n_held)];
  insitu_error err = {0};
  insitu_status s;
  void *tensor;

  if (!h->batch) return;
  CALL(s, insitu_batch_dlpack(h->batch, 2, 1, NULL, &tensor, &err), &err);
  must("dlpack", s, INSITU_OK);
  ((struct tensor *)tensor)->deleter(tensor); /* of a fixed array: holds no batch */
  if (h->tensor) return;
  CALL(s, insitu_batch_dlpack(h->batch, draw(2), 1, NULL, &h->tensor, &err), &err);
  must("dlpack", s, INSITU_OK);
}

/* ---- iterators ---- */
/* Whether some row of a batch shows an element of which `is` tells. */
static bool batch_shows(const struct iter *m, uint64_t epoch, uint64_t batch,
    bool (*is)(const struct kind *, const uint64_t *)) {
  int64_t index[3];

  for (uint64_t r = 0; insitu_iter_locate(m->it, epoch, batch, r, index, NULL) == INSITU_OK; r++)
    if (row_shows(m->of, m->shown, index, is)) return true;
  return false;
}
/* An error of next, which the iterator had not told before, belongs to the batch that is due. */
static void check_failure(struct iter *m, insitu_status s, const insitu_error *err) {
  const struct loader *l = m->of;
  bool fits = by_server(l, s);

  if (s == INSITU_E_CORRUPT && !fills_bad(l))
    fits = batch_shows(m, m->epoch, m->next, kind_is_damaged);
  if (s == INSITU_E_ABSENT && raises_absent(l))
    fits = batch_shows(m, m->epoch, m->next, kind_is_absent);
  if (s == INSITU_E_SHAPE) fits = call_fails(l, m->epoch, m->next);
  if (s == INSITU_E_NOMEM) fits = l->stingy;
  if (!fits)
    wrong("next: %s, at batch %d of epoch %d: %s", name_of(s), (int)m->next, (int)m->epoch,
        err->message);
  m->failed = s;
  snprintf(m->message, sizeof m->message, "%s", err->message);
}
static uint64_t hash(uint64_t h, uint64_t word) {
  return server__mix(h ^ word) + 1;
}
/* A hash of the same key is that of before. */
static void check_seen(const char *what, uint64_t key, uint64_t value) {
  uint64_t at = key % SEEN;

  pthread_mutex_lock(&told.lock);
  bool differs = seen[at].key == key && seen[at].samples != value;
  seen[at].key = key;
  seen[at].samples = value;
  pthread_mutex_unlock(&told.lock);
  if (differs) wrong("%s: a batch differs from an earlier one", what);
}
/* The order is the same whatever loader, store and way it comes. */
static void check_order(struct iter *m, const insitu_batch *b) {
  const insitu_loader_desc *d = &m->of->d;
  const uint64_t words[] = {
      m->order_id, (uint64_t)m->split, (uint64_t)m->order, b->epoch, b->index};
  uint64_t key = 1, samples = b->rows;

  for (size_t i = 0; i < sizeof words / sizeof *words; i++) key = hash(key, words[i]);
  for (uint64_t i = 0; i < b->rows * b->n_axes; i++)
    samples = hash(samples, (uint64_t)b->axis_indices[i]);
  check_seen("samples", hash(hash(key, (uint64_t)d->world), (uint64_t)d->rank), samples);
  if (!d->receipts) return;
  if (m->order == INSITU_SHUFFLED) check_seen("anchors_digest", hash(key, 99), b->anchors_digest);
  m->sum = insitu_digest_add(m->sum, b->anchors_digest);
  bool skips = false;
  for (int i = 0; i < BATCHES; i++) skips = skips || (m->skip_epoch == m->epoch && m->skip[i]);
  if (!skips && b->epoch_digest != (m->known ? m->sum : 0)) wrong("epoch_digest");
}
/* Batches that are left out are passed in the call of next that comes to them. */
static void pass_skipped(struct iter *m) {
  if (m->failed || m->end_due || m->skip_epoch != m->epoch) return;
  while (m->next < m->batches && m->skip[m->next]) {
    m->next++;
    atomic_fetch_add(&n_skipped[m->of->slot], 1);
  }
  m->end_due = m->next == m->batches;
}
static void begin_epoch(struct iter *m, uint64_t epoch) {
  m->epoch = epoch;
  m->next = 0;
  m->end_due = false;
  m->moved = m->known = true;
  m->sum = 0;
}
static void keep_state(const struct iter *m, const insitu_batch *b) {
  struct saved *to = &saved[n_saved < STATES ? n_saved++ : (int)draw(STATES)];

  *to = (struct saved){.state = b->after,
      .k = m->of->k,
      .order_id = m->order_id,
      .epoch = b->epoch,
      .next = b->index + 1,
      .sum = m->sum,
      .split = m->split,
      .order = m->order,
      .world = m->of->d.world,
      .rank = m->of->d.rank,
      .known = m->known && m->of->d.receipts};
  if (m->skip_epoch == b->epoch) memcpy(to->skip, m->skip, sizeof to->skip);
}
static void took_batch(struct iter *m, insitu_batch *b, bool keep) {
  struct held h = {.batch = b, .was = *m->of, .iter = m->number, .shown = m->shown};
  insitu_error err = {0};
  int64_t index[3];

  if (b->epoch != m->epoch || b->index != m->next)
    wrong("batch %d of epoch %d came, not %d of %d", (int)b->index, (int)b->epoch, (int)m->next,
        (int)m->epoch);
  if (b->rows && call_fails(m->of, b->epoch, b->index))
    wrong("on_batch failed, and the batch came");
  check_batch(&h);
  check_order(m, b);
  atomic_fetch_add(&n_batches[m->of->slot], 1);
  atomic_fetch_add(&n_rows[m->of->slot], b->rows);
  uint64_t row = b->rows ? draw(b->rows) : 0;
  if (b->rows && (insitu_iter_locate(m->it, b->epoch, b->index, row, index, &err) ||
                     memcmp(index, b->axis_indices + row * b->n_axes, b->n_axes * 8)))
    wrong("locate: %s %d, not %d", err.message, (int)index[0], (int)b->sample_indices[row]);
  m->moved = false;
  m->next++;
  m->end_due = m->next == m->batches;
  if (!keep) {
    insitu_batch_release(&b);
    return;
  }
  if (chance(30)) keep_state(m, b);
  atomic_fetch_add(&m->held, 1);
  held[n_held++] = h;
}
/* keep: on the main thread, which may go on to hold the batch. */
static void step_next(struct iter *m, bool keep) {
  struct loader *l = m->of;
  insitu_error err = {0};
  insitu_batch *b = (insitu_batch *)(void *)m;
  int64_t timeout = chance(60) ? INSITU_FOREVER : (int64_t)draw(4);
  uint64_t gone = atomic_load(&m->gone);
  bool before = atomic_load(&cancelled[l->slot]), sure = !atomic_load(&m->loose);
  insitu_status s;

  CALL(s, insitu_iter_next(m->it, timeout, &b, &err), &err);
  pass_skipped(m);
  if ((s == INSITU_OK) != (b != NULL)) wrong("next: %s, and a batch or none", name_of(s));
  if (!may_cancel(l, before, s)) wrong("next: %s, cancelled %d", name_of(s), before);
  if (s == INSITU_CANCELLED) return;
  if (m->failed) {
    if (s != m->failed || strcmp(err.message, m->message))
      wrong("next: %s %s, after %s", name_of(s), err.message, m->message);
    return;
  }
  if (s == INSITU_TIMEOUT) {
    if (timeout < 0) wrong("next: a wait without end timed out");
    return;
  }
  if (m->end_due) {
    must("next", s, INSITU_END);
    begin_epoch(m, m->epoch + 1);
    return;
  }
  bool full = atomic_load(&m->held) == m->max_held;
  sure = sure && gone == atomic_load(&m->gone); /* no batch of it was given back meanwhile */
  if (s == INSITU_BUSY) {
    if (sure && !full) wrong("next: BUSY, %d are held", (int)m->held);
    return;
  }
  if (s) {
    check_failure(m, s, &err);
    return;
  }
  if (sure && full) wrong("next: a batch, and %d are held", (int)m->held);
  took_batch(m, b, keep);
}

static void step_set_epoch(struct iter *m) {
  insitu_error err = {0};
  insitu_status s;
  uint64_t epoch = chance(50) ? m->epoch + m->end_due : draw(4);

  if (chance(2)) epoch = MAX_EPOCH;
  CALL(s, insitu_iter_set_epoch(m->it, epoch, &err), &err);
  must("set_epoch", s, epoch == MAX_EPOCH ? INSITU_E_ARG : INSITU_OK);
  if (s) return;
  begin_epoch(m, epoch);
  m->failed = 0;
  memset(m->skip, 0, sizeof m->skip);
}
/* A state that was kept, mostly one of this archive, split and order. */
static const struct saved *draw_state(const struct iter *m) {
  const struct saved *from = NULL;

  for (int tries = 0; n_saved && tries < 20; tries++) {
    from = &saved[draw((uint64_t)n_saved)];
    if (chance(5)) return from;
    if (from->k == m->of->k && from->split == m->split && from->order == m->order) return from;
  }
  return NULL;
}
/* Whether a state must be taken. */
static bool is_alike(const struct saved *from, const struct iter *m) {
  const struct loader *l = m->of;

  if (from->order_id != l->order_id || from->split != m->split || from->order != m->order)
    return false;
  return from->order == INSITU_SHUFFLED || (from->world == l->d.world && from->rank == l->d.rank);
}
static void step_restore(struct iter *m) {
  const struct saved *from = draw_state(m);
  insitu_error err = {0};
  insitu_status s;

  if (!from) return;
  insitu_state state = from->state;
  bool spoilt = chance(5);
  if (spoilt) state.bytes[draw(sizeof state.bytes)] ^= (unsigned char)(1 + draw(255));
  CALL(s, insitu_iter_restore(m->it, &state, &err), &err);
  if (spoilt) must("restore", s, INSITU_E_STATE);
  if (s == INSITU_E_BUDGET && m->of->tight) return;
  if (s == INSITU_E_NOMEM && m->of->stingy) return;
  if (s == INSITU_E_STATE && (spoilt || !is_alike(from, m))) return;
  must("restore", s, INSITU_OK);
  begin_epoch(m, from->epoch);
  m->next = from->next;
  m->end_due = m->next == m->batches;
  m->failed = 0;
  m->order_id = from->order_id;
  m->sum = from->sum;
  m->known = from->known;
  m->skip_epoch = from->epoch;
  memcpy(m->skip, from->skip, sizeof m->skip);
}
static void step_steps(struct iter *m) {
  uint64_t n = draw(8), all = m->of->k->n_steps;
  bool begins = m->moved || (!m->next && !m->end_due), fits = n > 0 && n <= all && !m->failed;
  insitu_error err = {0};
  insitu_status s;

  CALL(s, insitu_iter_set_steps(m->it, "x", n, &err), &err);
  must("set_steps", s, begins && fits ? INSITU_OK : INSITU_E_ARG);
  if (!s) m->shown = n;
}
/* How many ranges are left out. */
static int skip_ranges(const bool *skip) {
  int n = 0;

  for (int i = 0; i < BATCHES; i++) n += skip[i] && !(i && skip[i - 1]);
  return n;
}
static void step_skip(struct iter *m) {
  uint64_t first = draw(m->batches + 2), n = draw(5), at = m->end_due ? 0 : m->next;
  uint64_t epoch = m->epoch + m->end_due;
  bool skip[BATCHES] = {false}, inside = n && first < m->batches && n <= m->batches - first;
  insitu_error err = {0};
  insitu_status s;

  CALL(s, insitu_iter_skip(m->it, first, n, &err), &err);
  tell("  of %d from %d on, at %d of %d", (int)n, (int)first, (int)at, (int)m->batches);
  if (m->skip_epoch == epoch) memcpy(skip, m->skip, sizeof skip);
  while (inside && at > first && skip[at - 1]) at--; /* it was left out, and not delivered */
  if (!inside || first < at) {
    must("skip", s, INSITU_E_ARG);
    return;
  }
  for (uint64_t i = first; i < first + n; i++) skip[i] = true;
  if (s != INSITU_E_ARG || skip_ranges(skip) <= 2) must("skip", s, INSITU_OK);
  if (s) return;
  m->skip_epoch = epoch;
  memcpy(m->skip, skip, sizeof skip);
}

/* ---- loaders ---- */
static void draw_store(struct loader *l) {
  int number = (int)(l->k - kinds);

  switch (draw(6)) {
  case 5: snprintf(l->url, sizeof l->url, "%s", l->k->refs); break;
  case 0: snprintf(l->url, sizeof l->url, "%s", l->k->folder); break;
  case 1: snprintf(l->url, sizeof l->url, "%s", l->k->zip); break;
  case 2:
    snprintf(l->url, sizeof l->url, "memory://k%d", number);
    l->d.objects = l->k->object;
    l->d.n_objects = l->k->n_objects;
    break;
  default:
    snprintf(l->url, sizeof l->url, "http://127.0.0.1:%d/k%d%s", server->port, number,
        chance(20)   ? ".zip"
        : chance(20) ? ".json"
                     : "");
    l->option[0] = (insitu_option){"max_retries", chance(95) ? "0" : "1"};
    l->option[1] = (insitu_option){"hedge", chance(50) ? "true" : "false"};
    l->d.options = l->option;
    l->d.n_options = 2;
    l->faulty = server->n_rules > 0;
  }
  l->d.url = l->url;
}
/* Along which axes samples are drawn, and which of them. A hash of it. */
static uint64_t draw_space(struct loader *l) {
  insitu_loader_desc *d = &l->d;
  uint64_t what = draw(8), keep = 2 + draw(2);

  if (what == 0) { /* a list */
    for (int i = 0; i < TIME; i++)
      if (server__mix((uint64_t)i) % keep) l->samples[d->n_samples++] = i;
    d->samples = l->samples;
    return keep;
  }
  if (what > 2) return 0;
  d->patches = chance(50) ? 0 : 3;
  int32_t edge = chance(30) ? INSITU_FILL : 0;
  l->axes[0] = (insitu_axis){.dim = "time"};
  l->axes[1] = (insitu_axis){.dim = "lat", .patch = PATCH_LAT, .edge = edge};
  l->axes[2] = (insitu_axis){.dim = "lon", .patch = PATCH_LON, .edge = edge};
  l->v[0].halo = chance(50) && edge;
  d->axes = l->axes;
  d->n_axes = 3;
  return 100 + d->patches * 4 + (uint64_t)edge + 20 * l->v[0].halo;
}
static void draw_order(struct loader *l) {
  insitu_loader_desc *d = &l->d;
  uint64_t space = draw_space(l);

  /* few of each, so that states of one loader are often taken by others */
  d->seed = chance(20);
  d->batch_size = chance(70) ? 2 : 3 + draw(2);
  d->unit_chunks = chance(60) ? 0 : 1 + draw(2);
  d->block_chunks = chance(60) ? 0 : 4 * (1 + draw(2));
  d->world = chance(20) ? 2 : 1;
  d->rank = d->world == 2 ? (int32_t)draw(2) : 0;
  d->split_spill = chance(20);
  /* neither world nor rank: states and digests are the same for one global batch */
  const uint64_t words[] = {(uint64_t)(l->k - kinds), d->seed, d->batch_size * (uint64_t)d->world,
      d->unit_chunks, d->block_chunks, (uint64_t)d->split_spill, space};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    l->order_id = hash(l->order_id, words[i]);
}
static void draw_variables(struct loader *l) {
  l->v[0] = (insitu_variable){.label = "x", .path = "a", .n_steps = l->k->n_steps};
  if (l->k->n_steps) l->v[0].steps = l->k->steps;
  if (chance(30)) l->v[0].dtype = INSITU_F64;
  l->v[1] = (insitu_variable){.label = "y", .path = "a", .offset = 1};
  l->v[2] = (insitu_variable){.label = "mask", .fixed = 1};
  l->d.variables = l->v;
  l->d.n_variables = 3;
}
static void draw_caches(struct loader *l) {
  insitu_loader_desc *d = &l->d;
  bool remote = d->n_options > 0, refers = strstr(l->url, ".json"), memory = d->n_objects > 0;

  if (chance(20)) d->cache_memory = 1 << 20;
  if (!chance(20)) return;
  snprintf(l->cache, sizeof l->cache, "%s/cache%d", support_dir, (int)draw(2));
  d->cache_dir = l->cache;
  d->cache_budget = chance(50) ? 64 << 10 : 16 << 20;
  d->cache_decoded = remote ? chance(50) : !memory && !refers;
  d->offline = (remote || d->cache_decoded) && chance(20);
  l->offline = d->offline;
}
static void draw_callbacks(struct loader *l) {
  insitu_loader_desc *d = &l->d;

  d->log = on_log;
  d->log_level = (int32_t)draw(5);
  if (chance(40)) {
    d->alloc = pool_alloc;
    d->release = pool_release;
    d->alloc_user = l;
    l->stingy = chance(10);
  }
  if (chance(40)) {
    d->on_batch = on_batch;
    d->on_batch_user = l;
    d->on_batch_threads = draw(3);
    d->outputs = outputs;
    d->n_outputs = 1;
    l->fails = chance(50);
  }
}
/* What changes neither the order nor the values. */
static void draw_ways(struct loader *l) {
  insitu_loader_desc *d = &l->d;
  int mode = (int)draw(2);

  if (!getenv("INSITU_IO")) d->io = mode_usable(mode) ? modes[mode].io : INSITU_IO_EPOLL;
  d->memory_budget = UINT64_C(256) << 20;
  l->tight = chance(15);
  d->prefetch_depth = draw(6);
  d->max_inflight = draw(9);
  d->decode_threads = 1 + draw(3);
  d->inline_io = chance(25);
  d->hold_epoch = chance(30);
  d->assembly = (int32_t)draw(d->n_axes ? 2 : 3); /* chunks of patches cannot be kept */
  d->receipts = (int32_t)draw(3);
  d->coordinates = chance(30);
  d->on_bad_chunk = chance(40) ? INSITU_FILL : 0;
  d->on_absent_chunk = (int32_t)draw(3);
  draw_caches(l);
  draw_callbacks(l);
  d->check = !l->faulty && !l->offline && chance(10);
  if (!chance(10)) return;
  snprintf(l->trace, sizeof l->trace, "%s/trace", support_dir);
  d->trace = l->trace;
}
static insitu_stats stats_of(const struct loader *l) {
  insitu_stats stats;
  insitu_error err = {0};

  if (insitu_loader_stats(l->ld, &stats, &err)) wrong("stats: %s", err.message);
  return stats;
}
/* A budget of about what the loader takes by itself, so that little is left for iterators. */
static void tighten(struct loader *l) {
  uint64_t takes = 1 << 20;

  if (!insitu_loader_open(&l->d, &l->ld, NULL)) takes = stats_of(l).memory_promised;
  insitu_loader_close(&l->ld);
  l->d.memory_budget = takes + 450000 + draw(300000); /* reading mask takes some 600000 */
}
static void step_open(struct loader *l) {
  insitu_error err = {0};
  insitu_status s;

  memset(l, 0, sizeof *l);
  l->slot = (int)(l - loaders);
  l->k = pair[draw(2)];
  l->d.api = INSITU_API;
  draw_store(l);
  draw_variables(l);
  draw_order(l);
  draw_ways(l);
  atomic_store(&cancelling[l->slot], false);
  atomic_store(&cancelled[l->slot], false);
  atomic_store(&dated[l->slot], false);
  atomic_store(&n_batches[l->slot], 0);
  atomic_store(&n_rows[l->slot], 0);
  atomic_store(&n_skipped[l->slot], 0);
  if (l->tight) tighten(l);
  CALL(s, insitu_loader_open(&l->d, &l->ld, &err), &err);
  tell("  of %s as loader %d%s", l->url, l->slot, l->d.inline_io ? ", inline" : "");
  bool fits = !s || by_server(l, s) || (s == INSITU_E_BUDGET && l->tight) ||
              (s == INSITU_E_NOMEM && l->stingy);
  if (!fits) wrong("open: %s: %s", name_of(s), err.message);
  if (!s != (l->ld != NULL)) wrong("open: %s, and a loader or none", name_of(s));
  if (!s) l->promised = stats_of(l).memory_promised;
}
static void step_iter_open(struct loader *l, struct iter *m) {
  insitu_error err = {0};
  insitu_iter_desc d = {.api = INSITU_API,
      .split = (int32_t)draw(4),
      .order = (int32_t)draw(3),
      .max_held = 1 + (uint32_t)draw(3),
      .epoch = draw(4)};
  insitu_plan plan;
  insitu_status s, planned;

  CALL(planned, insitu_loader_plan(l->ld, &d, &plan, &err), &err);
  CALL(s, insitu_iter_open(l->ld, &d, &m->it, &err), &err);
  if (!s != (m->it != NULL)) wrong("iter_open: %s, and an iterator or none", name_of(s));
  if (s == INSITU_E_BUDGET && l->tight) return;
  if (s == INSITU_E_NOMEM && l->stingy) return;
  must("iter_open", s, planned);
  if (s && s != INSITU_E_SPLIT && s != INSITU_E_ARG && s != INSITU_E_UNSUPPORTED)
    wrong("iter_open: %s", err.message);
  if (s) return;
  if (plan.batches > BATCHES) wrong("%d batches", (int)plan.batches);
  memset(m->skip, 0, sizeof m->skip);
  m->of = l;
  m->order_id = l->order_id;
  m->number = ++n_iters;
  m->batches = plan.batches;
  m->max_held = d.max_held;
  m->split = d.split;
  m->order = d.order ? d.order : d.split == INSITU_TRAIN ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  m->shown = l->k->n_steps;
  m->failed = 0;
  m->skip_epoch = 0;
  atomic_store(&m->held, 0);
  atomic_store(&m->loose, 0);
  begin_epoch(m, d.epoch);
  tell("  as iterator %d of loader %d", (int)m->number, l->slot);
}
/* Nothing of the loader's iterators and reads is left in its memory. */
static void check_memory(const struct loader *l) {
  uint64_t dates = atomic_load(&dated[l->slot]) && !l->d.coordinates ? 8 * TIME : 0;

  for (int i = 0; i < ITERS; i++)
    if (iters[i].it && iters[i].of == l) return;
  insitu_stats stats = stats_of(l);
  if (stats.memory_promised != l->promised + dates)
    wrong("memory_promised is %d, and was %d", (int)stats.memory_promised, (int)l->promised);
  if (stats.slab_bytes) wrong("slab_bytes is %d without iterators", (int)stats.slab_bytes);
}
static void check_stats(const struct loader *l) {
  insitu_stats stats = stats_of(l);

  if (stats.batches != n_batches[l->slot] || stats.rows != n_rows[l->slot])
    wrong("%d batches with %d rows, and not %d with %d", (int)stats.batches, (int)stats.rows,
        (int)n_batches[l->slot], (int)n_rows[l->slot]);
  if (stats.skipped != n_skipped[l->slot])
    wrong("%d batches were left out, not %d", (int)stats.skipped, (int)n_skipped[l->slot]);
  if (!l->d.check && stats.memory_bytes_peak > l->d.memory_budget)
    wrong("%d bytes were used, and allowed %d", (int)stats.memory_bytes_peak,
        (int)l->d.memory_budget);
  if (l->d.max_inflight && stats.inflight_peak > l->d.max_inflight) wrong("inflight_peak");
  if (stats.bad_chunks && !fills_bad(l)) wrong("%d bad chunks", (int)stats.bad_chunks);
}
static void close_iter(struct iter *m) {
  struct loader *l = m->of;

  tell("close iterator %d", (int)m->number);
  insitu_iter_close(&m->it);
  if (m->it) wrong("a closed iterator is not NULL");
  m->of = NULL;
  if (l) check_memory(l);
}
static void close_loader(struct loader *l) {
  tell("close loader %d", l->slot);
  check_memory(l);
  check_stats(l);
  insitu_loader_close(&l->ld);
  if (l->ld) wrong("a closed loader is not NULL");
  for (int i = 0; i < ITERS; i++)
    if (iters[i].of == l) iters[i].of = NULL;
}

/* ---- reads, and what only looks ---- */
/* Reads some samples of the array. Not beside another read of this loader. */
static void step_read(struct loader *l) {
  static _Thread_local double to[TIME * LAT * LON];
  uint64_t start = draw(TIME), stop = start + 1 + draw(TIME - start), n = stop - start;
  const insitu_slice slice = {.dim = "time", .start = (int64_t)start, .stop = (int64_t)stop};
  const insitu_variable v = {.path = "a", .dtype = INSITU_F64, .slices = &slice, .n_slices = 1};
  bool before = atomic_load(&cancelled[l->slot]), damaged = false, absent = false;
  insitu_error err = {0};
  insitu_shape shape;
  insitu_status s;

  CALL(s, insitu_read(l->ld, &v, to, n * LAT * LON * 8, &shape, &err), &err);
  for (uint64_t i = start; i < stop; i++) {
    damaged = damaged || part_has(l->k, whole_field, (int64_t)i, kind_is_damaged);
    absent = absent || part_has(l->k, whole_field, (int64_t)i, kind_is_absent);
  }
  damaged = damaged && !fills_bad(l);
  absent = absent && l->d.on_absent_chunk == INSITU_RAISE;
  if (!may_cancel(l, before, s)) wrong("read: %s", name_of(s));
  if (s == INSITU_CANCELLED || by_server(l, s)) return;
  if (s == INSITU_E_BUDGET && l->tight) return;
  if ((s == INSITU_E_CORRUPT && damaged) || (s == INSITU_E_ABSENT && absent)) return;
  must("read", s, INSITU_OK);
  if (l->faulty && fills_bad(l)) absent = false; /* nobody said so: a fault has filled the chunk */
  if (damaged || absent) wrong("read: OK, of damaged or absent chunks");
  if (shape.ndim != 3 || shape.shape[0] != (int64_t)n) wrong("read: another shape");
  for (uint64_t i = 0; i < n * LAT * LON; i++) {
    uint64_t at[] = {start + i / (LAT * LON), i / LON % LAT, i % LON};
    double want = kind_value(l->k, at);

    if (!same(to[i], want) && !(l->faulty && fills_bad(l) && same(to[i], l->k->fill)))
      wrong("read: element %d is %g, not %g", (int)i, to[i], want);
  }
}
static void step_dates(struct loader *l) {
  const int64_t samples[] = {(int64_t)draw(TIME), 1};
  bool kept = atomic_load(&dated[l->slot]) || l->d.coordinates;
  bool before = atomic_load(&cancelled[l->slot]) && !kept;
  insitu_date date[2];
  insitu_error err = {0};
  insitu_status s;

  CALL(s, insitu_sample_dates(l->ld, samples, 2, date, &err), &err);
  if (!may_cancel(l, before, s)) wrong("dates: %s", name_of(s));
  if (s == INSITU_CANCELLED || by_server(l, s)) return;
  if (s == INSITU_E_BUDGET && l->tight) return;
  must("dates", s, INSITU_OK);
  atomic_store(&dated[l->slot], true);
  if (strcmp(date[1].text, "2000-01-01T06:00")) wrong("dates: %s", date[1].text);
}
/* Of any thread. m: an iterator of the loader, or NULL. */
static void step_look(const struct loader *l, const struct iter *m) {
  insitu_iter_desc d = {
      .api = INSITU_API, .split = (int32_t)draw(4), .order = (int32_t)draw(3), .epoch = draw(3)};
  insitu_error err = {0};
  insitu_status s = INSITU_OK;
  insitu_quality quality;
  insitu_bad_chunk bad;
  insitu_plan plan;
  int64_t at[3];
  char json[64];

  switch (draw(7)) {
  case 0: stats_of(l); break;
  case 1:
    if (insitu_loader_describe(l->ld, json, sizeof json) < sizeof json || json[63])
      wrong("describe: %s", json);
    break;
  case 2: CALL(s, insitu_loader_plan(l->ld, &d, &plan, &err), &err); break;
  case 3: CALL(s, insitu_loader_quality(l->ld, &d, &quality, &err), &err); break;
  case 4:
    for (uint64_t i = 0; !s; i++) CALL(s, insitu_loader_bad_chunk(l->ld, i, &bad, &err), &err);
    must("bad_chunk", s, INSITU_END);
    break;
  case 5:
    if (insitu_loader_config(l->ld)->n_variables != 3 || !insitu_loader_array(l->ld, 2) ||
        insitu_loader_array(l->ld, 3 + l->d.n_outputs))
      wrong("config, array");
    break;
  default:
    if (!m) break;
    CALL(s, insitu_iter_locate(m->it, draw(4), draw(m->batches + 1), draw(5), at, &err), &err);
    if (s != INSITU_E_ARG) must("locate", s, INSITU_OK);
  }
}

/* ---- wrong calls ---- */
static void refuse_handles(void) {
  insitu_error err = {0};
  insitu_loader_desc d = {.api = INSITU_API - 1, .url = "x"};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_status s;

  CALL(s, insitu_loader_open(&d, &ld, &err), &err);
  must("open", s, INSITU_E_API);
  CALL(s, insitu_loader_open(NULL, &ld, &err), &err);
  must("open", s, INSITU_E_ARG);
  CALL(s, insitu_loader_open_json("{\"ulr\": 1}", NULL, &ld, &err), &err);
  must("open_json", s, INSITU_E_ARG);
  CALL(s, insitu_loader_open_json("{", NULL, &ld, &err), &err);
  must("open_json", s, INSITU_E_JSON);
  CALL(s, insitu_iter_open(NULL, NULL, &it, &err), &err);
  must("iter_open", s, INSITU_E_ARG);
  CALL(s, insitu_iter_next(NULL, 0, &b, &err), &err);
  must("next", s, INSITU_E_ARG);
  CALL(s, insitu_batch_wait(NULL, NULL, &err), &err);
  must("wait", s, INSITU_E_ARG);
  insitu_loader_close(NULL), insitu_loader_close(&ld), insitu_loader_cancel(NULL);
  insitu_iter_close(NULL), insitu_iter_close(&it);
  insitu_batch_release(NULL), insitu_batch_release(&b);
  if (insitu_batch_find(NULL, "x") || insitu_batch_receipt(NULL, NULL, 0)) wrong("no batch");
}
static void refuse_loader(struct loader *l) {
  insitu_iter_desc d = {.api = INSITU_API};
  insitu_variable v = {.path = "a", .offset = 1};
  insitu_strings *strings = NULL;
  insitu_error err = {0};
  insitu_iter *it = NULL;
  insitu_date date;
  insitu_status s;
  double number;

  switch (draw(4)) {
  case 0: d.api++; break;
  case 1: d.split = chance(50) ? 4 : -1; break;
  case 2: d.order = 3; break;
  default: d.epoch = UINT64_MAX;
  }
  CALL(s, insitu_iter_open(l->ld, &d, &it, &err), &err);
  must("iter_open", s, d.api == INSITU_API ? INSITU_E_ARG : INSITU_E_API);
  if (it) wrong("iter_open: a refused iterator is not NULL");
  CALL(s, insitu_read(l->ld, &v, &number, 8, NULL, &err), &err);
  must("read", s, INSITU_E_ARG);
  CALL(s, insitu_loader_norm(l->ld, "x", 0, &number, &number, &err), &err);
  must("norm", s, INSITU_E_NOTFOUND);
  CALL(s, insitu_loader_stats(l->ld, NULL, &err), &err);
  must("stats", s, INSITU_E_ARG);
  if (atomic_load(&cancelling[l->slot]) || l->faulty || l->offline || l->tight) return;
  CALL(s, insitu_sample_dates(l->ld, &(int64_t){TIME}, 1, &date, &err), &err);
  must("dates", s, INSITU_E_ARG);
  atomic_store(&dated[l->slot], true);
  v = (insitu_variable){.path = "a", .dtype = INSITU_F64};
  CALL(s, insitu_read(l->ld, &v, &number, 8, NULL, &err), &err);
  must("read", s, INSITU_E_ARG);
  v.path = "none";
  CALL(s, insitu_read(l->ld, &v, &number, 8, NULL, &err), &err);
  must("read", s, INSITU_E_NOTFOUND);
  CALL(s, insitu_read_strings(l->ld, "a", &strings, &err), &err);
  if (!s || strings) wrong("read_strings of numbers");
}
static void refuse_iter(struct iter *m) {
  insitu_state none = {{0}};
  insitu_error err = {0};
  insitu_status s;
  int64_t at[3];

  CALL(s, insitu_iter_next(m->it, 0, NULL, &err), &err);
  must("next", s, INSITU_E_ARG);
  CALL(s, insitu_iter_restore(m->it, NULL, &err), &err);
  must("restore", s, INSITU_E_ARG);
  CALL(s, insitu_iter_restore(m->it, &none, &err), &err);
  must("restore", s, INSITU_E_STATE);
  CALL(s, insitu_iter_set_steps(m->it, "mask", 1, &err), &err);
  must("set_steps", s, INSITU_E_ARG);
  CALL(s, insitu_iter_set_steps(m->it, "z", 1, &err), &err);
  must("set_steps", s, INSITU_E_NOTFOUND);
  CALL(s, insitu_iter_skip(m->it, UINT64_MAX, UINT64_MAX, &err), &err);
  must("skip", s, INSITU_E_ARG);
  CALL(s, insitu_iter_locate(m->it, 0, m->batches, 0, at, &err), &err);
  must("locate", s, INSITU_E_ARG);
}
/* An iterator whose loader was closed. */
static void refuse_orphan(struct iter *m) {
  insitu_batch *b = NULL;
  insitu_error err = {0};
  insitu_status s;
  int64_t at[3];

  CALL(s, insitu_iter_next(m->it, INSITU_FOREVER, &b, &err), &err);
  must("next", s, INSITU_E_ARG);
  CALL(s, insitu_iter_set_epoch(m->it, 1, &err), &err);
  must("set_epoch", s, INSITU_E_ARG);
  CALL(s, insitu_iter_skip(m->it, 1, 1, &err), &err);
  must("skip", s, INSITU_E_ARG);
  CALL(s, insitu_iter_locate(m->it, 0, 0, 0, at, &err), &err);
  must("locate", s, INSITU_E_ARG);
}
static void refuse_batch(const struct held *h) {
  insitu_error err = {0};
  insitu_status s;
  void *tensor;
  char byte;

  if (!h->batch) return;
  CALL(s, insitu_batch_dlpack(h->batch, h->batch->n_arrays, 1, NULL, &tensor, &err), &err);
  must("dlpack", s, INSITU_E_ARG);
  CALL(s, insitu_batch_copy_to(h->batch, 2, &byte, 1, NULL, &err), &err);
  must("copy_to", s, INSITU_E_ARG);
  CALL(s, insitu_batch_wait(h->batch, NULL, &err), &err);
  must("wait", s, INSITU_OK);
  if (insitu_batch_find(h->batch, NULL)) wrong("an array without a name");
}
/* Another thread than the one that opened an inline loader. */
static void *refuse_thread(void *arg) {
  struct iter *m = arg;
  insitu_error err = {0};
  insitu_batch *b = NULL;
  insitu_status s;

  CALL(s, insitu_iter_next(m->it, 0, &b, &err), &err);
  must("next", s, INSITU_E_WRONG_THREAD);
  CALL(s, insitu_iter_set_epoch(m->it, 0, &err), &err);
  must("set_epoch", s, INSITU_E_WRONG_THREAD);
  return NULL;
}
/* A child process may use nothing of its parent's. */
static void refuse_fork(struct loader *l, struct iter *m) {
  insitu_batch *b = NULL;
  insitu_stats stats;
  int status, answer[2];

  if (pipe(answer)) wrong("no pipe");
  pid_t child = fork();
  if (child < 0) wrong("no process");
  if (child) close(answer[1]);
  if (!child) {
    bool fine = insitu_iter_next(m->it, INSITU_FOREVER, &b, NULL) == INSITU_E_FORKED;
    fine = fine && insitu_loader_stats(l->ld, &stats, NULL) == INSITU_E_FORKED;
    fine = fine && insitu_iter_set_epoch(m->it, 0, NULL) == INSITU_E_FORKED;
    insitu_iter_close(&m->it);
    insitu_loader_close(&l->ld);
    /* The parent ends it: at an end of its own Valgrind looks for leaks in all memory that it
     * believes the child to have. Some is the parent's alone (MADV_DONTFORK), and after a million
     * faults there it gets SIGBUS. */
    if (write(answer[1], &fine, 1) == 1) pause();
    _exit(1);
  }
  bool fine = false;
  ssize_t heard;
  while ((heard = read(answer[0], &fine, 1)) < 0 && errno == EINTR) continue; /* by SIGUSR1 */
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  close(answer[0]);
  if (heard != 1 || !fine) wrong("the child ended with %d", status);
}
static void step_wrong(struct loader *l, struct iter *m) {
  pthread_t other;

  if (chance(20)) refuse_handles();
  if (l->ld) refuse_loader(l);
  if (m->it && !m->of) refuse_orphan(m);
  if (m->it && m->of) refuse_iter(m);
  if (n_held) refuse_batch(&held[draw((uint64_t)n_held)]);
  bool forks = m->it && m->of && chance(10);
#ifdef __SANITIZE_THREAD__
  forks = false;
#endif
  if (forks) refuse_fork(m->of, m);
  if (!m->it || !m->of || !m->of->d.inline_io) return;
  if (pthread_create(&other, NULL, refuse_thread, m)) wrong("no thread");
  pthread_join(other, NULL);
}

/* ---- a scan ---- */
static int on_progress(void *user, uint64_t done, uint64_t total) {
  if (done > total) wrong("scan: %d of %d", (int)done, (int)total);
  return *(const bool *)user;
}
/* Not beside another one. */
static void step_scan(const struct loader *l) {
  char path[400];
  bool ends = chance(30);
  if (l->d.n_axes) return;
  insitu_loader_desc d = l->d;
  insitu_scan_desc scan = {.api = INSITU_API,
      .split = (int32_t)draw(4),
      .loader = &d,
      .path = path,
      .progress = on_progress,
      .user = &ends};
  insitu_error err = {0};
  insitu_status s;

  d.trace = NULL;
  snprintf(path, sizeof path, "%s/scan.json", support_dir);
  CALL(s, insitu_scan(&scan, &err), &err);
  bool fits = by_server(l, s) || (s == INSITU_CANCELLED && ends) ||
              (s == INSITU_E_NOMEM && l->stingy) || (s == INSITU_E_BUDGET && l->tight);
  if (s == INSITU_E_CORRUPT) fits = l->k->damaged.hi[0] && !fills_bad(l);
  if (s == INSITU_E_ABSENT) fits = l->k->a.absent && d.on_absent_chunk == INSITU_RAISE;
  if (s && !fits) wrong("scan: %s: %s", name_of(s), err.message);
  remove(path);
  strcat(path, ".part");
  remove(path);
}

/* ---- the second thread ---- */
static pthread_t main_thread;
static struct loader *_Atomic signal_cancels; /* by the handler of SIGUSR1; NULL: none */
static void on_signal(int number) {
  struct loader *l = atomic_load(&signal_cancels);

  (void)number;
  if (!l) return;
  atomic_store(&cancelling[l->slot], true);
  insitu_loader_cancel(l->ld);
  atomic_store(&cancelled[l->slot], true);
}
enum job { NO_JOB, LOOK, READ, DRIVE, GIVE, OWN, SCAN, CANCEL, SIGNAL, STOP };
static struct {
  pthread_t id;
  pthread_mutex_t lock;
  pthread_cond_t news;
  enum job job;
  struct loader *l;
  struct iter *m;
  insitu_batch *batch;
  uint64_t luck;
} second = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

static void second_does(enum job job, struct loader *l, struct iter *m) {
  luck = second.luck;
  switch (job) {
  case LOOK:
    for (int n = 1 + (int)draw(6); n--;) step_look(l, m);
    break;
  case READ:
    if (chance(70)) step_read(l);
    else step_dates(l);
    break;
  case DRIVE:
    for (int n = 1 + (int)draw(8); n--;) step_next(m, false);
    break;
  case GIVE:
    insitu_batch_release(&second.batch);
    if (!m) break;
    atomic_fetch_sub(&m->held, 1);
    atomic_fetch_sub(&m->loose, 1);
    break;
  case OWN: {
    struct iter own = {0};

    step_iter_open(l, &own);
    for (int n = 1 + (int)draw(8); own.it && n--;) step_next(&own, false);
    if (own.it) insitu_iter_close(&own.it);
    break;
  }
  case SCAN: step_scan(l); break;
  case SIGNAL:
    for (int n = 1 + (int)draw(8); n--; usleep((useconds_t)draw(200)))
      pthread_kill(main_thread, SIGUSR1);
    break;
  default:
    usleep((useconds_t)draw(500));
    atomic_store(&cancelling[l->slot], true);
    insitu_loader_cancel(l->ld);
    atomic_store(&cancelled[l->slot], true);
  }
}
static void *second_main(void *arg) {
  (void)arg;
  pthread_mutex_lock(&second.lock);
  for (;;) {
    while (!second.job) pthread_cond_wait(&second.news, &second.lock);
    if (second.job == STOP) break;
    pthread_mutex_unlock(&second.lock);
    second_does(second.job, second.l, second.m);
    pthread_mutex_lock(&second.lock);
    second.job = NO_JOB;
    pthread_cond_signal(&second.news);
  }
  pthread_mutex_unlock(&second.lock);
  return NULL;
}
static void second_wait(void) {
  pthread_mutex_lock(&second.lock);
  while (second.job) pthread_cond_wait(&second.news, &second.lock);
  atomic_store(&signal_cancels, NULL);
  pthread_mutex_unlock(&second.lock);
}
static void second_begin(enum job job, struct loader *l, struct iter *m, insitu_batch *batch) {
  second_wait();
  pthread_mutex_lock(&second.lock);
  second.job = job;
  second.l = l;
  second.m = m;
  second.batch = batch;
  second.luck = draw(UINT64_MAX);
  pthread_cond_signal(&second.news);
  pthread_mutex_unlock(&second.lock);
}
/* Before calls that may not run beside any of the second thread's: of this loader or iterator. */
static void second_leaves(const struct loader *l, const struct iter *m) {
  pthread_mutex_lock(&second.lock);
  bool busy = second.job && ((l && second.l == l) || (m && second.m == m));
  pthread_mutex_unlock(&second.lock);
  if (busy) second_wait();
}
/* Before calls that may run beside most of them: not two reads of a loader, not two threads in an
 * iterator. */
static void second_ends(enum job job, const struct loader *l, const struct iter *m) {
  pthread_mutex_lock(&second.lock);
  bool busy = second.job == job && ((l && second.l == l) || (m && second.m == m));
  pthread_mutex_unlock(&second.lock);
  if (busy) second_wait();
}
static void step_second(struct loader *l, struct iter *m) {
  bool own = m->it && m->of == l;

  second_wait();
  if (chance(25) && n_held) { /* gives a batch back */
    int i = (int)draw((uint64_t)n_held);
    insitu_batch *b = held[i].batch;
    struct iter *of = iter_of(held[i].iter);

    if (!b || held[i].tensor) return;
    if (of) atomic_fetch_add(&of->loose, 1);
    if (of) atomic_fetch_add(&of->gone, 1);
    held[i] = held[--n_held];
    tell("the second thread gives back");
    second_begin(GIVE, of ? of->of : NULL, of, b);
    return;
  }
  if (!l->ld) return;
  enum job job = chance(45) ? LOOK : chance(50) ? READ : DRIVE;
  if (chance(15)) job = OWN;
  if (chance(4)) job = SCAN;
  if (chance(2)) job = CANCEL;
  if (chance(5)) job = SIGNAL;
  if (job == SIGNAL && chance(20)) atomic_store(&signal_cancels, l);
  if (job == READ && l->d.inline_io) job = LOOK;
  if (job == DRIVE && (l->d.inline_io || !own)) job = LOOK;
  if (job == OWN && l->d.inline_io) job = LOOK;
  tell("the second thread does %d with loader %d", job, l->slot);
  second_begin(job, l, own ? m : NULL, NULL);
}

/* ---- a sequence ---- */
static void step_iter(struct iter *m) {
  uint64_t what = draw(100);

  if (what < 70) {
    if (n_held < HELD) step_next(m, true);
  } else if (what < 77) {
    step_set_epoch(m);
  } else if (what < 86) {
    step_restore(m);
  } else if (what < 93) {
    step_steps(m);
  } else {
    step_skip(m);
  }
}
static void step_loader(struct loader *l, struct iter *m) {
  uint64_t what = draw(100);

  if (what < 30) {
    second_ends(READ, l, NULL);
    step_read(l);
  } else if (what < 40) {
    second_ends(READ, l, NULL);
    step_dates(l);
  } else if (what < 80) {
    step_look(l, m->it && m->of == l ? m : NULL);
  } else if (what < 83) {
    second_wait();
    step_scan(l);
  } else if (what < 90) {
    second_leaves(l, NULL);
    close_loader(l);
  } else if (what < 92) {
    atomic_store(&cancelling[l->slot], true);
    insitu_loader_cancel(l->ld);
    atomic_store(&cancelled[l->slot], true);
    tell("cancel loader %d", l->slot);
  }
}
static void step(void) {
  struct loader *l = &loaders[draw(LOADERS)];
  struct iter *m = &iters[draw(ITERS)];
  uint64_t what = draw(100);

  if (what < 10) {
    step_second(l, m);
  } else if (what < 12) {
    second_leaves(l, NULL);
    second_leaves(NULL, m);
    step_wrong(l, m);
  } else if (!l->ld) {
    step_open(l);
  } else if (what < 24) {
    step_loader(l, m);
  } else if (what < 46) {
    if (!n_held) return;
    if (chance(20)) step_tensor();
    else give_back((int)draw((uint64_t)n_held));
  } else if (!m->it) {
    second_leaves(NULL, m);
    step_iter_open(l, m);
  } else if (what < 50 || !m->of) {
    second_leaves(m->of, m);
    close_iter(m);
  } else {
    second_ends(DRIVE, NULL, m);
    step_iter(m);
  }
}
/* The server's faults of a sequence; some have none. */
static void draw_faults(void) {
  static const enum server_fault faults[] = {
      SERVER_STATUS, SERVER_RESET, SERVER_CLOSE, SERVER_STALL, SERVER_DRIP};

  server_reset(server);
  server_latency(server, (int64_t)draw(3));
  for (int n = chance(50) ? 0 : 1 + (int)draw(3); n--;) {
    enum server_fault fault = faults[draw(5)];

    server_rule(server, (struct server_rule){.key = chance(50) ? "*" : "*/a/*",
                            .skip = draw(200),
                            .probability = 0.01 + 0.01 * (double)draw(15),
                            .fault = fault,
                            .status = chance(50) ? 500 : 503,
                            .at = fault == SERVER_DRIP ? 256 : (int64_t)draw(200) - 2,
                            .ms = 1 + (int64_t)draw(fault == SERVER_DRIP ? 2 : 10)});
  }
}
static int entries(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;

  if (!d) wrong("%s: %s", folder, strerror(errno));
  while (readdir(d)) n++;
  closedir(d);
  return n;
}
/* Threads end, and sockets of the server close, a little after the calls that cause it. */
static void wait_for(const char *folder, int before) {
  while (entries(folder) > before) usleep(1000);
}
static void run_sequence(uint64_t seed) {
  int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");

  told.sequence = seed;
  told.n = 0;
  luck = server__mix(seed);
  n_saved = 0;
  memset(seen, 0, sizeof seen);
  alarm(MAX_SECONDS);
  draw_faults();
  for (int i = 0; i < 2; i++) pair[i] = &kinds[draw(KINDS)];
  for (int i = 0; i < STEPS; i++) step();
  second_wait();
  while (n_held > 6) give_back((int)draw((uint64_t)n_held));
  for (int i = 0; i < ITERS; i++)
    if (iters[i].it && chance(50)) close_iter(&iters[i]);
  for (int i = 0; i < LOADERS; i++)
    if (loaders[i].ld) close_loader(&loaders[i]);
  for (int i = 0; i < ITERS; i++)
    if (iters[i].it) close_iter(&iters[i]);
  while (n_held) give_back((int)draw((uint64_t)n_held));
  if (atomic_load(&pool_bytes)) wrong("the pool lacks %d bytes", (int)pool_bytes);
  tell("threads or descriptors are left"); /* where the next lines do not end */
  wait_for("/proc/self/fd", fds);
  wait_for("/proc/self/task", threads);
  alarm(0);
}

static uint64_t first = 1, sequences;

static void test_sequences(void **state) {
  (void)state;
  server = server_start(&(struct server_options){.folder = support_dir, .no_log = true});
  kinds_make();
  if (pthread_create(&second.id, NULL, second_main, NULL)) wrong("no thread");
  main_thread = pthread_self();
  signal(SIGALRM, on_end);
  if (!SUPPORT_SANITIZED) {
    signal(SIGSEGV, on_end);
    signal(SIGBUS, on_end);
    signal(SIGABRT, on_end);
  }
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
  for (uint64_t i = 0; i < sequences; i++) {
    if (told.aloud) fprintf(stderr, "sequence %" PRIu64 "\n", first + i);
    run_sequence(first + i);
  }
  second_begin(STOP, NULL, NULL, NULL);
  pthread_join(second.id, NULL);
  kinds_free();
  server_stop(&server);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences)};

  sequences = (uint64_t)support_rounds(SLICE);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-v")) told.aloud = true;
    else if (i + 1 < argc && !strcmp(argv[i], "--seed")) first = strtoull(argv[++i], NULL, 10);
    else if (i + 1 < argc && !strcmp(argv[i], "--n")) sequences = strtoull(argv[++i], NULL, 10);
    else return fprintf(stderr, "usage: test_sequences [--seed S] [--n N] [-v]\n"), 2;
  }
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
