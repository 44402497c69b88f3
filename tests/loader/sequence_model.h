/* What test_sequences knows of its loaders, iterators and batches: what was called, which statuses
 * a call may give, what each element of a batch is. After server.h, insitubatch.h, support.h and
 * sequence_kinds.h. */
#ifndef TESTS_SEQUENCE_MODEL_H
#define TESTS_SEQUENCE_MODEL_H

enum {
  LOADERS = 3,
  ITERS = 5,
  HELD = 24, /* batches, at most */
  STATES = 32,
  BATCHES = 400, /* of an epoch, at most */
  SEEN = 1 << 14,
  PATCH_LAT = 2,
  PATCH_LON = 3,
  MAX_EPOCH = 1 << 20, /* what no epoch reaches */
  LINES = 40           /* told when something is wrong */
};

/* ---- draws: each thread has its own ---- */
static _Thread_local uint64_t luck;
static uint64_t draw(uint64_t n) {
  return server__mix(luck += UINT64_C(0x9E3779B97F4A7C15)) % n;
}
static bool chance(uint64_t percent) {
  return draw(100) < percent;
}

/* ---- what was called, and the end of a sequence that went wrong ---- */
static struct {
  pthread_mutex_t lock;
  char line[LINES][200];
  uint64_t n, sequence;
  bool aloud;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  va_list list;

  pthread_mutex_lock(&told.lock);
  char *line = told.line[told.n++ % LINES];
  va_start(list, format);
  vsnprintf(line, sizeof told.line[0], format, list);
  va_end(list);
  if (told.aloud) fprintf(stderr, "  %s\n", line);
  pthread_mutex_unlock(&told.lock);
}

static void tell_end(void) {
  for (uint64_t i = told.n > LINES ? told.n - LINES : 0; i < told.n && !told.aloud; i++)
    fprintf(stderr, "  %s\n", told.line[i % LINES]);
  const char *io = getenv("INSITU_IO");
  fprintf(stderr, "again: %s%s build/test_sequences --seed %" PRIu64 " --n 1\n",
      io ? "INSITU_IO=" : "", io ? io : "", told.sequence);
}

/* Called on any thread, so that it cannot return to cmocka. */
__attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char *format, ...) {
  va_list list;

  tell_end();
  fprintf(stderr, "sequence %" PRIu64 ": ", told.sequence);
  va_start(list, format);
  vfprintf(stderr, format, list);
  va_end(list);
  fprintf(stderr, "\n");
  support_remove(support_dir);
  _exit(1);
}

static void on_end(int number) {
  signal(number, SIG_DFL);
  if (number == SIGALRM) wrong("it hangs");
  wrong("it crashed: %s", strsignal(number));
}

/* ---- the model ---- */
struct loader {
  insitu_loader *ld;
  insitu_loader_desc d;
  const struct kind *k;
  insitu_variable v[3];
  insitu_axis axes[3];
  int64_t samples[TIME];
  insitu_option option[2];
  char url[400], cache[400], trace[400];
  uint64_t order_id; /* of loaders with the same one, states are alike */
  /* faulty: its server breaks off; tight: it has a budget that is too small; stingy: its pool has
   * no memory at times; fails: so does its on_batch; offline: it reads what a cache has, alone */
  bool faulty, tight, stingy, fails, offline;
  uint64_t promised; /* of memory_budget, when it was opened */
  int slot;
};
/* Of loaders, by slot: insitu_loader_cancel was called; it has returned; the dates of samples were
 * told. */
static atomic_bool cancelling[LOADERS], cancelled[LOADERS], dated[LOADERS];
/* Batches and rows that it delivered, batches that it left out. */
static _Atomic uint64_t n_batches[LOADERS], n_rows[LOADERS], n_skipped[LOADERS];
struct iter {
  insitu_iter *it;
  struct loader *of; /* NULL: the loader was closed */
  uint64_t number;   /* of all iterators, from 1 */
  uint64_t epoch, next, batches, max_held;
  /* batches that are held; releases of such that run now; those that have begun so far */
  _Atomic uint64_t held, loose, gone;
  bool end_due;
  bool moved; /* no batch came since it was moved, or since END */
  insitu_status failed;
  char message[1008];
  uint64_t shown;      /* steps of x */
  uint64_t skip_epoch; /* that skip is of */
  bool skip[BATCHES];
  uint64_t order_id, sum; /* sum: of the digests of the epoch so far, where it is known */
  bool known;
  int32_t split, order;
};
struct held {
  insitu_batch *batch; /* NULL: released, and a tensor of it lives */
  void *tensor;
  struct loader was; /* for checks: its handles are stale */
  uint64_t iter, shown;
};
struct saved {
  insitu_state state;
  const struct kind *k;
  uint64_t order_id, epoch, next, sum;
  int32_t split, order, world, rank;
  bool known;
  bool skip[BATCHES];
};
static const struct kind *pair[2]; /* what the loaders of a sequence read */
static struct loader loaders[LOADERS];
static struct iter iters[ITERS];
static struct held held[HELD];
static struct saved saved[STATES];
/* What batches hold: a pure function of what `key` is made of. */
static struct { uint64_t key, samples; } seen[SEEN];
static int n_held, n_saved;
static _Atomic uint64_t n_iters;
static struct server *server;
static _Atomic int64_t pool_bytes;

static const char *name_of(insitu_status s) {
  return insitu_status_name(s);
}

/* Every call that takes an error fills it by the same rules. */
static insitu_status check_error(const char *call, insitu_status s, const insitu_error *err) {
  tell("%s: %s %.120s", call, name_of(s), err->message);
  if (!strcmp(name_of(s), "an unknown status")) wrong("%s: status %d", call, s);
  if (s < 0 && (err->status != s || !*err->message))
    wrong("%s: %s, but the error has %d '%s'", call, name_of(s), err->status, err->message);
  if (s >= 0 && err->status) wrong("%s: %s, with error %d", call, name_of(s), err->status);
  if (s == INSITU_E_CHECK) wrong("%s: %s", call, err->message);
  return s;
}
#define CALL(s, call, e) check_error(#call, (s) = (call), e)
static void must(const char *call, insitu_status s, insitu_status want) {
  if (s != want) wrong("%s: %s, not %s", call, name_of(s), name_of(want));
}

/* What goes wrong with a server that breaks off, and without one. */
static bool by_server(const struct loader *l, insitu_status s) {
  return (l->faulty && s == INSITU_E_HTTP) || (l->offline && s == INSITU_E_IO);
}
/* before: it was cancelled before the call. */
static bool may_cancel(const struct loader *l, bool before, insitu_status s) {
  if (s == INSITU_CANCELLED) return atomic_load(&cancelling[l->slot]);
  return !before;
}
static bool raises_absent(const struct loader *l) {
  if (!l->k->a.absent) return false;
  if (l->d.on_absent_chunk) return l->d.on_absent_chunk == INSITU_RAISE;
  return isnan(l->k->fill);
}
static bool fills_bad(const struct loader *l) {
  return l->d.on_bad_chunk == INSITU_FILL;
}

/* ---- callbacks ---- */
static void on_log(void *user, int32_t level, const char *line) {
  (void)user;
  if (level < 0 || level > 3 || !line || !*line) wrong("log: level %d", level);
}
static void *pool_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  const struct loader *l = user;
  static _Atomic uint64_t calls;
  void *p = NULL;

  if (place != INSITU_HOST || device || stream) wrong("alloc: place %d", place);
  if (l->stingy && server__mix(atomic_fetch_add(&calls, 1)) % 8 == 0) return NULL;
  if (posix_memalign(&p, align < 8 ? 8 : align, bytes)) return NULL;
  atomic_fetch_add(&pool_bytes, (int64_t)bytes);
  return p;
}
static void pool_release(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  (void)user, (void)place, (void)device;
  atomic_fetch_sub(&pool_bytes, (int64_t)bytes);
  free(memory);
}
static bool call_fails(const struct loader *l, uint64_t epoch, uint64_t index) {
  return l->fails && server__mix(epoch * 1000 + index + 7) % 12 == 0;
}
static const insitu_output outputs[] = {{.label = "sum", .dtype = INSITU_F64}};
static double first_of(const insitu_batch *b, uint64_t row) {
  const insitu_array *a = &b->arrays[1];
  double x = support_get((const char *)a->data + row * a->row_bytes, a->dtype);
  return isnan(x) ? -1 : x + 1;
}
static insitu_status on_batch(
    void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  const struct loader *l = user;

  if (!b->rows || !keys) wrong("on_batch: no rows, or no keys");
  if (keys[0] % 16 == 0) usleep(500);
  if (call_fails(l, b->epoch, b->index)) {
    snprintf(err->message, sizeof err->message, "not today");
    return INSITU_E_SHAPE;
  }
  for (uint64_t r = 0; r < b->rows; r++) ((double *)b->arrays[3].data)[r] = first_of(b, r);
  return INSITU_OK;
}

/* ---- values ---- */
static bool same(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}
/* What a row shows of a field in x or y; index: of the row, on each axis. */
static struct part part_of(const struct loader *l, int variable, const int64_t *index) {
  int64_t halo = (int64_t)l->v[variable].halo;

  if (!l->d.n_axes) return whole_field;
  return (struct part){
      {index[1] - halo, index[2] - halo}, {PATCH_LAT + 2 * halo, PATCH_LON + 2 * halo}};
}
/* Whether a row shows an element of which `is` tells. */
static bool row_shows(const struct loader *l, uint64_t shown, const int64_t *index,
    bool (*is)(const struct kind *, const uint64_t *)) {
  const struct kind *k = l->k;
  bool any = part_has(k, part_of(l, 1, index), index[0] + 1, is);

  for (uint64_t s = 0; s < (shown ? shown : 1); s++)
    any = any || part_has(k, part_of(l, 0, index), index[0] + (shown ? k->steps[s] : 0), is);
  return any;
}
/* One step of one row of x or y; bad: the fill value may stand in its place. */
static void check_field(const struct kind *k, const insitu_array *a, const char *p,
    struct part part, int64_t sample, bool bad) {
  uint64_t item = (uint64_t)(a->dtype & 0xff) / 8, at[3];

  if (sample < 0 || sample >= TIME) wrong("%s shows sample %d", a->name, (int)sample);
  for (int64_t i = 0; i < part.n[0] * part.n[1]; i++) {
    double got = support_get(p + (uint64_t)i * item, a->dtype),
           fill = support_as(a->dtype, k->fill);
    bool inside = part_place(part, sample, i, at);
    double want = inside ? support_as(a->dtype, kind_value(k, at)) : fill;

    if (!same(got, want) && !(bad && same(got, fill)))
      wrong("%s of sample %d, element %d: %g, not %g", a->name, (int)sample, (int)i, got, want);
  }
}
static void check_axes(const struct held *h, uint64_t r) {
  const insitu_batch *b = h->batch;
  int64_t at = b->sample_indices[r];

  if (b->axis_indices[r * b->n_axes] != at) wrong("axis_indices");
  if (!h->was.d.coordinates) return;
  if (b->coordinates[r * b->n_axes] != 6.0 * (double)at) wrong("coordinates");
  if (b->time_us[r] != (INT64_C(10957) * 24 + 6 * at) * 3600 * 1000000) wrong("time_us");
}
static void check_row(const struct held *h, uint64_t r) {
  const struct kind *k = h->was.k;
  const insitu_batch *b = h->batch;
  const insitu_array *x = &b->arrays[0], *y = &b->arrays[1];
  const int64_t *index = b->axis_indices + r * b->n_axes;
  uint64_t steps = h->shown ? h->shown : 1;
  bool bad = b->bad_rows && b->bad_rows[r];

  for (uint64_t s = 0; s < steps; s++)
    check_field(k, x, (const char *)x->data + r * x->row_bytes + s * (x->row_bytes / steps),
        part_of(&h->was, 0, index), index[0] + (h->shown ? k->steps[s] : 0), bad);
  check_field(k, y, (const char *)y->data + r * y->row_bytes, part_of(&h->was, 1, index),
      index[0] + 1, bad);
  bool shows = row_shows(&h->was, h->shown, index, kind_is_damaged);
  if (shows && !bad) wrong("row %d shows a damaged chunk", (int)r);
  if (bad && !shows && !h->was.faulty) wrong("row %d shows no damaged chunk", (int)r);
  if (h->was.d.n_outputs && !same(((double *)b->arrays[3].data)[r], first_of(b, r)))
    wrong("on_batch's output of row %d", (int)r);
  check_axes(h, r);
}
static void check_batch(const struct held *h) {
  const insitu_batch *b = h->batch;
  const insitu_loader_desc *d = &h->was.d;
  const insitu_array *mask = &b->arrays[2];
  char line[300];

  if (b->n_arrays != 3 + d->n_outputs || b->n_axes != (d->n_axes ? d->n_axes : 1))
    wrong("%d arrays", (int)b->n_arrays);
  if (!!b->bad_rows != fills_bad(&h->was)) wrong("bad_rows");
  if (!!b->coordinates != !!d->coordinates || !!b->time_us != !!d->coordinates)
    wrong("coordinates, or none");
  if (!!insitu_batch_receipt(b, line, sizeof line) != !!d->receipts) wrong("receipt");
  if (insitu_batch_find(b, "mask") != mask || !mask->fixed) wrong("mask");
  for (uint64_t i = 0; i < LAT * LON; i++) {
    int16_t got = ((const int16_t *)mask->data)[i];

    if (got != (int16_t)i) wrong("element %d of mask is %d", (int)i, got);
  }
  for (uint64_t r = 0; r < b->rows; r++) check_row(h, r);
}
#endif
