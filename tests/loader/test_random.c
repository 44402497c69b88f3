/* Random archives and configurations against a small independent model of what the manual promises:
 * every element of every batch, the order, the splits, resuming, plans and refusals. A case is a
 * number: the same number is the same case.
 *
 *   build/test_random                     a fixed slice, as the other tests run
 *   build/test_random --seed 7 --n 1000   cases 7 to 1006; -v tells each before it runs
 *
 * A difference prints the case in words, where the difference is, and the command that runs the
 * case again. */
#include "server.h"
#include "insitubatch.h"
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include "random_base.h"
#include "random_archive.h"
#include "random_model.h"
#include "random_select.h"
#include "zip.h"
#include "random_case.h"

enum {
  MAX_LOADERS = 8,
  MAX_ITERS = 16,
  MAX_HELD = 4,
  SLICE = 1000,
  WAIT_MS = 60000,
  MAX_SECONDS = 120
};

/* ---- what a case holds: closed however it ends ---- */
static insitu_loader *loaders[MAX_LOADERS];
static insitu_iter *iters[MAX_ITERS];
static insitu_batch *batches[MAX_ITERS][MAX_HELD];

static void let_go(void) {
  for (int i = 0; i < MAX_ITERS; i++)
    for (int k = 0; k < MAX_HELD; k++) insitu_batch_release(&batches[i][k]);
  for (int i = 0; i < MAX_ITERS; i++) insitu_iter_close(&iters[i]);
  for (int i = 0; i < MAX_LOADERS; i++) insitu_loader_close(&loaders[i]);
}

/* ---- an iterator and what it must do ---- */
/* What all ranks of one run have in common. */
struct run {
  uint64_t world, epoch, lanes, window, n_batches;
  int32_t part, order;
  insitu_state *after; /* behind each batch of the epoch */
  unsigned char *seen; /* how often each anchor came in it */
  bool whole;          /* all ranks got through the epoch */
};

struct walk {
  const struct setup *s;
  int slot; /* in iters and batches */
  insitu_iter *it;
  int32_t part, order;
  struct view view[MAX_VIEWS];        /* as many steps of each as the iterator shows */
  uint64_t world, rank, epoch, batch; /* batch: the next one */
  uint64_t start;                     /* the batch that it was moved to */
  struct epoch e;
  const void *fixed; /* where the fixed array lies; NULL: it was not seen yet */
  unsigned max_held, n_held;
  uint64_t hash[MAX_HELD];
  uint64_t bad;    /* the first batch that a NaN or RAISE stops; UINT64_MAX: none */
  struct run *run; /* to be told of its batches */
  bool failed, ended;
};

static const char *const part_names[] = {"train", "val", "test", "all"};

static uint64_t hash_bytes(const void *at, uint64_t n) {
  const unsigned char *p = at;
  uint64_t h = UINT64_C(0xcbf29ce484222325);

  for (uint64_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

static uint64_t hash_batch(const insitu_batch *b) {
  uint64_t h = 0;

  for (uint64_t i = 0; i < b->n_arrays; i++)
    h = order_mix(h ^ hash_bytes(b->arrays[i].data, b->arrays[i].bytes));
  return h;
}

/* Whether an element of a batch is NaN. */
static bool shows_nan(int32_t dtype, const unsigned char *at) {
  struct type t = {
      .kind = dtype == INSITU_BF16 ? KIND_BFLOAT : KIND_FLOAT, .bytes = dtype_bytes(dtype)};

  return (dtype >> 8 == 2 || dtype == INSITU_BF16) && isnan(number_of(&t, false, at).x);
}

/* Whether a variable shows the fill value of its array as NaN. */
static bool shows_fill_as_nan(const struct view *v) {
  unsigned char shown[16];

  if (v->v.decode != INSITU_CF) return v->array->fill_is_nan;
  show_element(v, v->array->fill, shown);
  return shows_nan(view_dtype(v), shown);
}

/* Whether a variable shows something of the chunk of a level that an element lies in, at any
 * sample. */
static bool shows_chunk(const struct view *v, int level, const uint64_t *at) {
  const struct array *a = v->array;

  for (int d = 0; d < a->ndim; d++) {
    bool has = d == a->axis;

    for (uint64_t i = 0; i < v->n_tiles[level][d] && !has; i++)
      has = v->tile[level][d][i] == at[d] / a->level[level].size[d];
    if (!has) return false;
  }
  return true;
}

/* Whether an element lies in an absent chunk, and that is an error: by default where some variable
 * shows the chunk's fill value as NaN. */
static bool element_raises(const struct setup *s, const struct array *a, const uint64_t *at) {
  int level = array_absent_level(a, at), leaf = array_leaf(a);

  if (level < 0) return false;
  if (s->desc.on_absent_chunk != INSITU_AUTO) return s->desc.on_absent_chunk == INSITU_RAISE;
  for (int i = 0; i < s->n_views; i++) {
    const struct view *v = &s->view[i];

    if (v->array == a && shows_fill_as_nan(v) && shows_chunk(v, level > leaf ? level : leaf, at))
      return true;
  }
  return false;
}

/* Whether what a view shows of a sample touches an absent chunk that is an error. */
static bool sample_raises(const struct setup *s, const struct view *v, int64_t sample) {
  uint64_t each = view_elements(v), n = view_channels(v) * each, at[MAX_DIMS];

  if (!v->array->absent || s->desc.on_absent_chunk == INSITU_FILL) return false;
  for (uint64_t k = 0; k < n; k++) {
    view_place(v, sample, k / each, k % each, at);
    if (element_raises(s, v->array, at)) return true;
  }
  return false;
}

static bool row_raises(const struct walk *w, int64_t anchor) {
  for (int i = 0; i < w->s->n_views; i++) {
    const struct view *v = &w->view[i];

    for (uint64_t k = 0; k < view_steps(v); k++)
      if (sample_raises(w->s, v, view_sample(v, anchor, k))) return true;
  }
  return false;
}

/* Sets up the model of the walk's epoch, from its next batch on. */
static void walk_epoch(struct walk *w, uint64_t lanes, uint64_t window) {
  const struct setup *s = w->s;
  const struct part *p = &s->split.part[w->part];
  int64_t row[4096];

  if (w->order == INSITU_SHUFFLED)
    w->e = shuffled(p, s->desc.seed, w->epoch, s->global, lanes, window);
  else w->e = sequential(p, s->global, lanes);
  w->e.window = window;
  w->bad = UINT64_MAX;
  w->start = w->batch;
  for (uint64_t b = w->batch; b < w->e.batches && w->bad == UINT64_MAX; b++) {
    uint64_t n = epoch_batch(&w->e, w->world, w->rank, b, row);

    for (uint64_t r = 0; r < n; r++)
      if (row_raises(w, row[r])) w->bad = b;
  }
}

/* Where an element was converted, but not decoded, any NaN will do. */
static bool both_nan(const struct view *v, const unsigned char *got, const unsigned char *want) {
  int32_t dtype = view_dtype(v);

  if (v->v.decode == INSITU_CF || dtype == v->array->type->dtype) return false;
  return shows_nan(dtype, got) && shows_nan(dtype, want);
}

/* All elements of a box, as draw_box drew it. */
static void check_box(const struct view *v, const unsigned char *got, const char *what) {
  const struct array *a = v->array;
  unsigned item = dtype_bytes(view_dtype(v));
  uint64_t n = 1, at[MAX_DIMS];
  unsigned char want[16];

  for (int d = 0; d < a->ndim; d++) n *= v->shown[d].n;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t rest = i;

    for (int d = a->ndim - 1; d >= 0; d--) {
      at[d] = v->shown[d].at[rest % v->shown[d].n];
      rest /= v->shown[d].n;
    }
    show_element(v, array_at(a, at), want);
    if (memcmp(got + i * item, want, item) && !both_nan(v, got + i * item, want))
      differ("%s of '%s', select '%s': element %d differs", what, a->path,
          v->v.select ? v->v.select : "", (int)i);
  }
}

/* The fixed array, which is the last one. */
static void check_fixed(struct walk *w, const insitu_batch *b) {
  const struct view *v = &w->s->fixed;
  const insitu_array *out = &b->arrays[w->s->n_outputs];
  int64_t stride = 1;

  if (strcmp(out->name, "fixed") || out->fixed != 1 || out->row_bytes || out->channels)
    differ("the last array is no fixed one, but '%s'", out->name);
  if (out->ndim != v->array->ndim || out->dtype != view_dtype(v))
    differ("the fixed array has %d dimensions of dtype 0x%x", out->ndim, (unsigned)out->dtype);
  for (int d = out->ndim; d-- > 0; stride *= out->shape[d])
    if (out->shape[d] != (int64_t)v->shown[d].n || out->strides[d] != stride)
      differ("the fixed array, axis %d: %d, not %d", d, (int)out->shape[d], (int)v->shown[d].n);
  if (out->bytes != (uint64_t)stride * dtype_bytes(out->dtype))
    differ("the fixed array has %d bytes", (int)out->bytes);
  if (w->fixed && w->fixed != out->data) differ("the fixed array moved");
  w->fixed = out->data;
  check_box(v, out->data, "the fixed variable");
}

static void check_elements(const struct walk *w, const insitu_batch *b, const struct view *v) {
  const insitu_array *out = &b->arrays[v->output];
  const struct array *a = v->array;
  uint64_t elements = view_elements(v), steps = view_steps(v), at[MAX_DIMS];
  uint64_t channels = view_channels(v), planes = channels * steps;
  int32_t dtype = view_dtype(v);
  unsigned item = dtype_bytes(dtype);

  for (uint64_t r = 0; r < b->rows; r++)
    for (uint64_t p = 0; p < planes; p++) {
      uint64_t c = p / steps, k = p % steps;
      const unsigned char *got = (const unsigned char *)out->data + r * out->row_bytes +
                                 (v->channel * steps + p) * elements * item;

      for (uint64_t e = 0; e < elements; e++, got += item) {
        unsigned char want[16];

        view_place(v, view_sample(v, b->sample_indices[r], k), c, e, at);
        show_element(v, array_at(a, at), want);
        if (!memcmp(got, want, item)) continue;
        if (both_nan(v, got, want)) continue;
        char text[2][40] = {"", ""};
        for (unsigned n = 0; n < item; n++) {
          sprintf(text[0] + 2 * n, "%02x", got[n]);
          sprintf(text[1] + 2 * n, "%02x", want[n]);
        }
        differ("%s epoch %d batch %d rank %d: variable '%s' row %d (anchor %d) channel %d step %d "
               "element %d: bytes %s, the model has %s%s",
            part_names[w->part], (int)w->epoch, (int)b->index, (int)w->rank, v->v.label, (int)r,
            (int)b->sample_indices[r], (int)c, (int)k, (int)e, text[0], text[1],
            a->is_absent[array_chunk_of(a, at)] ? " (its chunk is absent)" : "");
      }
    }
}

/* How many channels an array of the batch has; their names are those of its variables. */
static uint64_t check_channels(const struct setup *s, const insitu_array *out, int output) {
  uint64_t n = 0;

  for (int i = 0; i < s->n_views; i++) {
    const struct view *v = &s->view[i];

    if (v->output != output) continue;
    if (!v->v.into && out->channels) differ("'%s' has names of channels", out->name);
    if (v->v.into && !out->channels) differ("'%s' has no names of channels", out->name);
    for (uint64_t c = 0; c < view_channels(v) && v->v.into; c++, n++)
      if (strcmp(out->channels[n], channel_name(v, c)))
        differ("channel %d of '%s' is '%s', not '%s'", (int)n, out->name, out->channels[n],
            channel_name(v, c));
  }
  return n;
}

static void check_shape(const struct walk *w, const insitu_batch *b, const struct view *v) {
  const insitu_array *out = &b->arrays[v->output];
  int64_t want[MAX_DIMS + 3], stride = 1;
  uint64_t channels = v->v.into ? check_channels(w->s, out, v->output) : 1;
  int n = 0;

  want[n++] = (int64_t)b->rows;
  if (v->v.into) want[n++] = (int64_t)channels;
  else check_channels(w->s, out, v->output);
  if (v->v.n_steps) want[n++] = (int64_t)v->v.n_steps;
  for (int d = 0; d < v->array->ndim; d++)
    if (d != v->array->axis && !view_folds(v, d)) want[n++] = (int64_t)v->shown[d].n;
  if (strcmp(out->name, v->v.into ? v->v.into : v->v.label))
    differ("array %d is called '%s'", v->output, out->name);
  if (out->ndim != n) differ("variable '%s' has %d dimensions, not %d", out->name, out->ndim, n);
  for (int d = n - 1; d >= 0; d--) {
    if (out->shape[d] != want[d])
      differ("variable '%s' axis %d: %d, not %d", out->name, d, (int)out->shape[d], (int)want[d]);
    if (out->strides[d] != stride)
      differ(
          "variable '%s' stride %d: %d, not %d", out->name, d, (int)out->strides[d], (int)stride);
    stride *= want[d];
  }
  if (out->dtype != view_dtype(v))
    differ("variable '%s' has dtype 0x%x", out->name, (unsigned)out->dtype);
  uint64_t row = channels * view_elements(v) * view_steps(v) * dtype_bytes(out->dtype);
  if (out->row_bytes != row || out->bytes != row * b->rows)
    differ("variable '%s' has %d bytes", out->name, (int)out->bytes);
  if ((uintptr_t)out->data % 256) differ("variable '%s' is not aligned", out->name);
}

/* The value and the moment of each row, where batches carry them. */
static void check_coordinates(const struct walk *w, const insitu_batch *b) {
  const struct array *time = w->s->archive.time;
  int64_t zero = days_of(w->s->calendar, 1970, 1, 1) * 86400;

  if (!w->s->desc.coordinates) {
    if (b->coordinates || b->time_us || b->calendar) differ("coordinates that nobody asked for");
    return;
  }
  for (uint64_t r = 0; r < b->rows; r++) {
    int64_t at = b->sample_indices[r], whole;
    double x;

    memcpy(&x, time->data + 8 * at, 8);
    memcpy(&whole, time->data + 8 * at, 8);
    if (time->type->kind == KIND_INT) x = (double)whole;
    if (b->coordinates[r] != x)
      differ("coordinate of anchor %d: %.17g, not %.17g", (int)at, b->coordinates[r], x);
    if (b->time_us[r] != (w->s->seconds[at] - zero) * 1000000)
      differ("time of anchor %d: %" PRId64 " us, not %" PRId64 " s", (int)at, b->time_us[r],
          w->s->seconds[at] - zero);
  }
}

static void check_batch(struct walk *w, const insitu_batch *b) {
  int64_t want[4096];
  uint64_t n = epoch_batch(&w->e, w->world, w->rank, w->batch, want);

  if (b->epoch != w->epoch || b->index != w->batch)
    differ("%s: epoch %d batch %d came, not epoch %d batch %d", part_names[w->part], (int)b->epoch,
        (int)b->index, (int)w->epoch, (int)w->batch);
  if (b->rows != n)
    differ("%s epoch %d batch %d rank %d of %d: %d rows, not %d", part_names[w->part],
        (int)w->epoch, (int)w->batch, (int)w->rank, (int)w->world, (int)b->rows, (int)n);
  for (uint64_t r = 0; r < n; r++)
    if (b->sample_indices[r] != want[r])
      differ("%s epoch %d batch %d rank %d of %d row %d: anchor %d, not %d", part_names[w->part],
          (int)w->epoch, (int)w->batch, (int)w->rank, (int)w->world, (int)r,
          (int)b->sample_indices[r], (int)want[r]);
  check_coordinates(w, b);
  bool fixed = w->s->fixed.array;
  if (b->n_arrays != (uint64_t)w->s->n_outputs + fixed)
    differ("a batch of %d arrays", (int)b->n_arrays);
  if (fixed) check_fixed(w, b);
  for (int i = 0; i < w->s->n_views; i++) {
    check_shape(w, b, &w->view[i]);
    check_elements(w, b, &w->view[i]);
  }
  if (n && chance(10)) {
    uint64_t r = draw(n);
    int64_t anchor = -1;
    insitu_error err = {0};

    if (insitu_iter_locate(w->it, w->epoch, w->batch, r, &anchor, &err))
      differ("insitu_iter_locate: %s", err.message);
    if (anchor != want[r])
      differ("insitu_iter_locate: anchor %d, not %d", (int)anchor, (int)want[r]);
  }
}

/* Gives a held batch back: until now nothing may have written to it. What is written then must
 * disturb nothing. */
static void release_one(struct walk *w) {
  unsigned k = (unsigned)draw(w->n_held);
  insitu_batch *b = batches[w->slot][k];

  if (hash_batch(b) != w->hash[k])
    differ("batch %d of %s changed while it was held", (int)b->index, part_names[w->part]);
  for (uint64_t i = 0; i < b->n_arrays; i++)
    if (b->arrays[i].bytes && !b->arrays[i].fixed && chance(50))
      memset(b->arrays[i].data, 0xcc, b->arrays[i].bytes);
  insitu_batch_release(&batches[w->slot][k]);
  w->n_held--;
  batches[w->slot][k] = batches[w->slot][w->n_held];
  w->hash[k] = w->hash[w->n_held];
  batches[w->slot][w->n_held] = NULL;
}

/* The batch that cannot be delivered: its error comes every time. */
static bool walk_fails(struct walk *w, insitu_status status, const insitu_error *err) {
  insitu_batch *b = NULL;

  if (status != INSITU_E_ABSENT)
    differ("%s epoch %d batch %d: %s, not INSITU_E_ABSENT: %s", part_names[w->part], (int)w->epoch,
        (int)w->batch, insitu_status_name(status), err->message);
  for (int i = 0; i < 2; i++)
    if (insitu_iter_next(w->it, WAIT_MS, &b, NULL) != INSITU_E_ABSENT)
      differ("an error does not last");
  w->failed = true;
  return false;
}

/* Anchors of a batch come in no other rank or batch, and what is read for them lies in their split.
 */
static void count_anchors(const struct walk *w, struct run *run, const insitu_batch *b) {
  const struct split *sp = &w->s->split;

  for (uint64_t r = 0; r < b->rows; r++) {
    int64_t x = b->sample_indices[r];

    if (run->seen[x]++) differ("anchor %d comes twice in epoch %d", (int)x, (int)w->epoch);
    for (int i = 0; i < w->s->n_views && run->part != INSITU_ALL && !w->s->desc.split_spill; i++)
      for (uint64_t k = 0; k < view_steps(&w->s->view[i]); k++) {
        int64_t y = view_sample(&w->s->view[i], x, k);

        if (sp->owner[y] != run->part)
          differ("%s leaks: anchor %d reads sample %d of '%s', which is another split's",
              part_names[run->part], (int)x, (int)y, w->s->view[i].v.label);
      }
  }
}

/* Every rank has the same state behind a batch. */
static void tell_run(const struct walk *w, const insitu_batch *b) {
  insitu_state *after = &w->run->after[w->batch];
  static const insitu_state none;

  count_anchors(w, w->run, b);
  if (memcmp(after, &none, sizeof none) && memcmp(after, &b->after, sizeof *after))
    differ("rank %d has another state behind batch %d", (int)w->rank, (int)w->batch);
  *after = b->after;
}

/* One call of insitu_iter_next and what it must give. False: the epoch is over, or cannot go on. */
static bool walk_step(struct walk *w) {
  insitu_error err = {0};
  insitu_batch *b = NULL;
  insitu_status status;

  if (w->failed || w->ended) return false;
  if (w->n_held == w->max_held) {
    if (w->batch < w->e.batches && chance(20) &&
        (status = insitu_iter_next(w->it, 0, &b, &err)) != INSITU_BUSY)
      differ("next while %d batches are held: %s %s", (int)w->n_held, insitu_status_name(status),
          err.message);
    release_one(w);
  }
  int64_t wait = chance(30) ? 0 : chance(50) ? 1 : WAIT_MS;
  do status = insitu_iter_next(w->it, wait, &b, &err);
  while (status == INSITU_TIMEOUT);
  if (w->batch == w->bad) return walk_fails(w, status, &err);
  if (w->batch == w->e.batches) {
    if (status != INSITU_END)
      differ("%s epoch %d rank %d: no end after %d batches: %s %s", part_names[w->part],
          (int)w->epoch, (int)w->rank, (int)w->e.batches, insitu_status_name(status), err.message);
    w->ended = true;
    return false;
  }
  if (status != INSITU_OK)
    differ("%s epoch %d batch %d rank %d: %s: %s", part_names[w->part], (int)w->epoch,
        (int)w->batch, (int)w->rank, insitu_status_name(status), err.message);
  batches[w->slot][w->n_held] = b;
  w->hash[w->n_held++] = hash_batch(b);
  check_batch(w, b);
  if (w->run) tell_run(w, b);
  w->batch++;
  while (w->n_held && chance(60)) release_one(w);
  return true;
}

/* ---- opening ---- */
static insitu_loader *open_loader(const struct setup *s, const insitu_loader_desc *d, int slot) {
  insitu_error err = {0};
  insitu_status status = insitu_loader_open(d, &loaders[slot], &err);

  if (status == s->refused) {
    if (status && loaders[slot]) differ("a refused loader is not NULL");
    if (status && (err.status != status || !*err.message)) differ("a refusal without a message");
    return loaders[slot];
  }
  if (status == INSITU_E_BUDGET && d->memory_budget < UINT64_C(1) << 28) return NULL;
  if (s->refused)
    differ("open: %s, not %s (%s): %s", insitu_status_name(status), insitu_status_name(s->refused),
        s->why, err.message);
  differ("open: %s: %s", insitu_status_name(status), err.message);
}

/* Lanes and window of an iterator; false: it must be refused with *status. */
static bool layout(const struct setup *s, int32_t part, int32_t order, uint64_t world,
    uint64_t *lanes, uint64_t *window, insitu_status *status) {
  const struct part *p = &s->split.part[part];

  if (order == INSITU_SEQUENTIAL) {
    *lanes = world;
    *window = 0;
    *status = INSITU_E_SPLIT;
    return p->n;
  }
  *lanes = s->desc.lanes ? s->desc.lanes
                         : default_lanes(s->global, s->block_chunks, s->unit_chunks, p->units);
  *window = most(1, s->block_chunks / s->unit_chunks / *lanes);
  *status = p->n < s->global ? INSITU_E_SPLIT : INSITU_E_ARG;
  return p->n >= s->global && s->global % *lanes == 0 && *lanes % world == 0;
}

static void check_plan(
    const struct walk *w, insitu_loader *ld, const insitu_iter_desc *id, insitu_plan *plan) {
  const struct part *p = &w->s->split.part[w->part];
  insitu_error err = {0};
  uint64_t rows = 0;
  int64_t row[4096];

  if (insitu_loader_plan(ld, id, plan, &err)) differ("insitu_loader_plan: %s", err.message);
  for (uint64_t b = 0; b < w->e.batches; b++) rows += epoch_batch(&w->e, w->world, w->rank, b, row);
  const struct {
    const char *name;
    uint64_t got, want;
  } at[] = {{"order_version", plan->order_version, 1}, {"samples", plan->samples, p->n},
      {"batches", plan->batches, w->e.batches}, {"rows", plan->rows, rows},
      {"space", plan->space, w->s->samples}, {"units", plan->units, p->units},
      {"unit_rows", plan->unit_rows, w->s->split.unit_rows}, {"lanes", plan->lanes, w->e.lanes},
      {"window", plan->window, w->e.window ? w->e.window : plan->window}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    if (at[i].got != at[i].want)
      differ("plan of %s, rank %d of %d: %s is %d, not %d", part_names[w->part], (int)w->rank,
          (int)w->world, at[i].name, (int)at[i].got, (int)at[i].want);
  uint64_t delivered = w->s->samples;
  for (int r = 0; r < INSITU_DROPS; r++) {
    uint64_t want = p->dropped[r];

    if (r == INSITU_DROP_TAIL) want = w->order == INSITU_SHUFFLED ? p->n % w->s->global : 0;
    if (plan->dropped[r] != want)
      differ("plan of %s: %s drops %d, not %d", part_names[w->part], insitu_drop_name(r),
          (int)plan->dropped[r], (int)want);
    delivered -= want;
  }
  if (delivered != (w->order == INSITU_SHUFFLED ? w->e.batches * w->s->global : p->n))
    differ("plan of %s: %d are left of the table of drops", part_names[w->part], (int)delivered);
  if (plan->amplification < 1 || plan->reads < plan->distinct)
    differ("plan of %s, rank %d of %d: %d chunks are read, %d different ones: amplification %g",
        part_names[w->part], (int)w->rank, (int)w->world, (int)plan->reads, (int)plan->distinct,
        plan->amplification);
  if (plan->distinct &&
      fabs(plan->amplification * (double)plan->distinct / (double)plan->reads - 1) > 1e-9)
    differ("plan of %s: amplification is %g", part_names[w->part], plan->amplification);
  if (plan->reads && fabs(plan->dedup * (double)plan->reads / (double)plan->wanted - 1) > 1e-9)
    differ("plan of %s: dedup is %g", part_names[w->part], plan->dedup);
  if (plan->span < w->e.span)
    differ("plan of %s: span %d, but a window falls into %d batches", part_names[w->part],
        (int)plan->span, (int)w->e.span);
}

/* Opens an iterator of a part and its model; false: it is refused, as the model says. */
static bool walk_open(struct walk *w, const struct setup *s, insitu_loader *ld, int slot,
    int32_t part, int32_t order, uint64_t world, uint64_t rank, uint64_t epoch, insitu_plan *plan) {
  insitu_error err = {0};
  insitu_status want, status;
  uint64_t lanes, window;
  bool usual = order == (part == INSITU_TRAIN ? INSITU_SHUFFLED : INSITU_SEQUENTIAL);
  insitu_iter_desc id = {.api = INSITU_API,
      .split = part,
      .order = usual && chance(50) ? INSITU_AUTO : order,
      .epoch = epoch};

  id.max_held = (uint32_t)draw(MAX_HELD + 1);
  *w = (struct walk){.s = s,
      .slot = slot,
      .part = part,
      .order = order,
      .world = world,
      .rank = rank,
      .epoch = epoch,
      .max_held = id.max_held ? id.max_held : 2};
  memcpy(w->view, s->view, sizeof w->view);
  bool fits = layout(s, part, order, world, &lanes, &window, &want);
  status = insitu_iter_open(ld, &id, &iters[slot], &err);
  if (!fits) {
    if (status != want && !(want == INSITU_E_SPLIT && status == INSITU_E_ARG))
      differ("opening %s: %s, not %s: %s", part_names[part], insitu_status_name(status),
          insitu_status_name(want), err.message);
    return false;
  }
  if (status == INSITU_E_BUDGET && s->desc.memory_budget < UINT64_C(1) << 28) return false;
  if (status)
    differ("opening %s, %s, rank %d of %d: %s: %s", part_names[part],
        order == INSITU_SHUFFLED ? "shuffled" : "sequential", (int)rank, (int)world,
        insitu_status_name(status), err.message);
  w->it = iters[slot];
  walk_epoch(w, lanes, window);
  check_plan(w, ld, &id, plan);
  return true;
}

static void walk_close(struct walk *w) {
  while (w->n_held) release_one(w);
  insitu_iter_close(&iters[w->slot]);
}

static void walk_next_epoch(struct walk *w, uint64_t epoch) {
  w->epoch = epoch;
  w->batch = 0;
  w->failed = w->ended = false;
  walk_epoch(w, w->e.lanes, w->e.window);
}

/* ---- fewer steps ---- */
/* The steps of an output, all of them; 0: it has none, or not all of its variables have. */
static uint64_t output_steps(const struct setup *s, int output) {
  uint64_t n = UINT64_MAX;

  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output) n = least(n, s->view[i].v.n_steps);
  return n;
}

/* Has the iterator show some of an output's steps, or sees that it refuses to. */
static void walk_steps(struct walk *w) {
  const struct setup *s = w->s;
  int output = (int)draw((uint64_t)s->n_outputs);
  uint64_t all = output_steps(s, output), n = chance(10) ? draw(6) : 1 + draw(all ? all : 1);
  const char *name = NULL;
  insitu_error err = {0};
  insitu_status status, want = INSITU_OK;

  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output)
      name = s->view[i].v.into ? s->view[i].v.into : s->view[i].v.label;
  if (w->failed || (w->batch != w->start && !w->ended) || !n || n > all) want = INSITU_E_ARG;
  if (chance(3)) {
    name = "no such output";
    want = INSITU_E_NOTFOUND;
  }
  status = insitu_iter_set_steps(w->it, name, n, &err);
  if (status != want)
    differ("insitu_iter_set_steps(\"%s\", %d) of %d steps: %s, not %s: %s", name, (int)n, (int)all,
        insitu_status_name(status), insitu_status_name(want), err.message);
  if (status) return;
  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output) w->view[i].v.n_steps = n;
  if (!w->ended) walk_epoch(w, w->e.lanes, w->e.window);
}

/* ---- what an epoch reads ---- */
/* The windows of a sequential epoch, whose length the manual leaves to the plan. */
static void sequential_windows(struct walk *w, uint64_t window) {
  const struct part *p = &w->s->split.part[w->part];
  uint64_t *irregular = own(p->units * 16), n = 0, most_windows = p->units + 2;
  insitu_order_desc d = {.api = INSITU_API,
      .sequential = 1,
      .units = p->units,
      .unit_rows = w->s->split.unit_rows,
      .global_batch = w->e.global,
      .lanes = w->e.lanes,
      .window = window,
      .irregular = irregular};
  insitu_order *o;
  insitu_error err = {0};

  for (uint64_t u = 0; u < p->units; u++) {
    if (p->rows[u] == d.unit_rows) continue;
    irregular[n++] = u;
    irregular[n++] = p->rows[u];
  }
  d.n_irregular = n / 2;
  if (insitu_order_open(&d, &o, &err)) differ("insitu_order_open: %s", err.message);
  for (uint64_t i = 0; i < w->e.positions; i++) {
    insitu_order_place at;
    insitu_status status = insitu_order_at(o, i, &at);
    int64_t anchor = status ? -1 : p->anchor[p->first[at.unit] + at.within];

    if (anchor != w->e.anchor[i]) {
      insitu_order_close(&o);
      differ("insitu_order_at %d: anchor %d, not %d", (int)i, (int)anchor, (int)w->e.anchor[i]);
    }
    w->e.mixed[i] = status ? 0 : at.lane * most_windows + at.window;
  }
  w->e.n_mixed = w->e.lanes * most_windows;
  insitu_order_close(&o);
}

static bool narrows(const struct view *v) {
  return v->v.n_slices || v->v.select;
}

/* opened: before the epoch. again: what was prefetched of it was read once more. */
static void check_reads(struct walk *w, insitu_loader *ld, const insitu_plan *plan,
    const insitu_stats *opened, bool again) {
  const struct setup *s = w->s;
  insitu_stats st;
  insitu_error err = {0};
  bool exact = true;

  if (w->order == INSITU_SEQUENTIAL) sequential_windows(w, plan->window);
  struct reads r = epoch_reads(&w->e, w->world, w->rank, w->view, s->n_views), first;
  struct epoch e = w->e;
  if (w->order == INSITU_SHUFFLED) /* a plan is of epoch 0, and of all steps */
    e = shuffled(&s->split.part[w->part], s->desc.seed, 0, s->global, w->e.lanes, w->e.window);
  first = epoch_reads(&e, w->world, w->rank, s->view, s->n_views);
  for (int i = 0; i < s->n_views; i++)
    for (int k = 0; k < i; k++)
      exact = exact && (s->view[i].array != s->view[k].array ||
                           (!narrows(&s->view[i]) && !narrows(&s->view[k])));
  if (insitu_loader_stats(ld, &st, &err)) differ("insitu_loader_stats: %s", err.message);
  uint64_t batches = plan->slabs * plan->slab_bytes;
  uint64_t memory =
      batches + plan->table_bytes + plan->fixed_bytes + plan->inflight_bytes + plan->cache_bytes;
  const struct {
    const char *name;
    uint64_t got, want;
    bool most; /* want is the most */
  } at[] = {{"rows delivered", st.rows - opened->rows, r.rows, false},
      {"batches delivered", st.batches - opened->batches, plan->batches, false},
      {"chunks to be read", r.reads, st.reads - opened->reads, true},
      {"chunks read", st.reads - opened->reads, again ? UINT64_MAX : r.reads, again},
      {"chunks planned", first.reads, plan->reads, !exact},
      {"bytes planned", first.bytes, plan->read_bytes, !exact},
      {"chunks wanted", first.wanted, plan->wanted, !exact},
      {"different chunks planned", first.distinct, plan->distinct, !exact},
      {"absent chunks", st.absent_chunks - opened->absent_chunks, again ? UINT64_MAX : r.absent,
          again},
      {"bad chunks", st.bad_chunks, 0, false},
      {"bytes of batches", st.slab_bytes_peak, batches, true},
      {"bytes promised", st.memory_promised, memory, false},
      {"bytes at most", st.memory_bytes_peak, most(memory, opened->memory_bytes_peak), true},
      {"bytes in all", memory, insitu_loader_config(ld)->memory_budget, true}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    if (at[i].most ? at[i].got > at[i].want : at[i].got != at[i].want)
      differ("an epoch of %s, rank %d of %d: %s: %d, not %d", part_names[w->part], (int)w->rank,
          (int)w->world, at[i].name, (int)at[i].got, (int)at[i].want);
}

/* ---- the case ---- */
/* Numbers of a list in a manifest, to the owner of their chunks; how many. */
static uint64_t adopt_list(struct setup *s, const char *text, int part) {
  char name[16];
  uint64_t n = 0;

  snprintf(name, sizeof name, "\"%s\":", part_names[part]);
  const char *p = strstr(text, name);
  p = p ? strchr(p, '[') : NULL;
  if (!p) differ("the manifest has no list %s", name);
  for (p++; *p != ']'; n++) {
    char *end;
    uint64_t c = strtoull(p, &end, 10), last = least((c + 1) * s->split.ref, s->samples);

    if (end == p || c >= s->split.n_ref) differ("the manifest's list %s is odd", name);
    for (uint64_t x = c * s->split.ref; x < last; x++) {
      if (s->split.owner[x] != NOBODY) differ("the manifest has chunk %d twice", (int)c);
      s->split.owner[x] = (signed char)part;
    }
    for (p = end; *p == ',' || *p == ' '; p++) {}
  }
  return n;
}

/* The library alone says which chunks a shuffled split draws: in its manifest. Each part has as
 * many as without. */
static void adopt_split(struct setup *s, const insitu_loader_desc *d) {
  insitu_loader_desc only = *d;
  insitu_loader *ld;
  insitu_error err = {0};
  const char *path = own_text("%s/spread.json", s->folder);
  char *text = own(1 << 16);
  uint64_t want[3] = {0};

  if (!s->spread) return;
  only.plan_only = 1;
  only.memory_budget = 0;
  only.manifest = NULL; /* chunks that it excludes would be in no list */
  if (!(ld = open_loader(s, &only, 0))) return;
  if (insitu_manifest_save(ld, path, &err)) differ("insitu_manifest_save: %s", err.message);
  insitu_loader_close(&loaders[0]);
  FILE *f = fopen(path, "r");
  if (!f || !fread(text, 1, (1 << 16) - 1, f) || fclose(f)) abort();
  memset(s->split.owner, NOBODY, s->samples);
  split_fractions(s);
  for (uint64_t c = 0; c < s->split.n_ref; c++)
    if (s->split.owner[c * s->split.ref] != NOBODY) want[s->split.owner[c * s->split.ref]]++;
  memset(s->split.owner, NOBODY, s->samples);
  for (int p = 0; p < 3; p++)
    if (adopt_list(s, text, p) != want[p])
      differ("the manifest does not give %s %d chunks", part_names[p], (int)want[p]);
  split_finish(&s->split, s->view, s->n_views, d->split_gap, d->split_spill, s->unit_chunks);
}

static insitu_loader_desc desc_of(const struct setup *s, uint64_t world, uint64_t rank) {
  insitu_loader_desc d = s->desc;

  d.rank = s->refused && d.rank ? d.rank : (int32_t)rank;
  if (world > 1 || d.world) d.world = (int32_t)world;
  d.batch_size = s->global / world;
  if (!s->fixed.array || s->refused) return d;
  insitu_variable *all = own((d.n_variables + 1) * sizeof *all);
  memcpy(all, d.variables, d.n_variables * sizeof *all);
  all[d.n_variables++] = s->fixed.v;
  d.variables = all;
  return d;
}

/* Any box of an array, now: insitu_read. alone: nothing else reads meanwhile, so that statistics
 * can be compared. */
static void check_read(const struct setup *s, insitu_loader *ld, bool alone) {
  struct view v = s->view[draw((uint64_t)s->n_views)];
  const struct array *a = v.array;
  insitu_error err = {0};
  insitu_shape shape;
  insitu_stats before, after;
  uint64_t n, absent = 0;

  v.v.offset = 0;
  v.v.n_steps = 0;
  v.v.into = NULL;
  n = draw_box(&v);
  unsigned item = dtype_bytes(view_dtype(&v));
  unsigned char *got = own(n * item);
  if (insitu_loader_stats(ld, &before, NULL)) differ("no statistics");
  insitu_status status = insitu_read(ld, &v.v, got, n * item, &shape, &err);
  if (status == INSITU_E_BUDGET && s->desc.memory_budget < UINT64_C(1) << 28) return;
  if (!status) check_box(&v, got, "insitu_read");
  struct chunk_set chunks = chunk_set(a);
  uint64_t reads = chunk_set_add(&chunks, &v, -1, 1, &absent);
  if (absent && s->desc.on_absent_chunk == INSITU_RAISE) {
    if (status != INSITU_E_ABSENT)
      differ("insitu_read of an absent chunk: %s", insitu_status_name(status));
    return;
  }
  if (status)
    differ("insitu_read of '%s', select '%s': %s: %s", v.v.label, v.v.select ? v.v.select : "",
        insitu_status_name(status), err.message);
  if (shape.ndim != a->ndim || shape.bytes != n * item || shape.dtype != view_dtype(&v))
    differ("insitu_read: another shape");
  if (insitu_loader_stats(ld, &after, NULL)) differ("no statistics");
  /* a chunk is read once for each run of indexes that it holds */
  alone = alone && !v.v.select;
  if (alone && after.absent_chunks - before.absent_chunks != absent)
    differ("insitu_read counts %d absent chunks, not %d",
        (int)(after.absent_chunks - before.absent_chunks), (int)absent);
  if (alone && after.reads - before.reads != reads)
    differ("insitu_read counts %d chunks, not %d", (int)(after.reads - before.reads), (int)reads);
}

/* Another iterator of the same loader, some steps each in turns. */
static void run_beside(struct setup *s, insitu_loader *ld, struct walk *w) {
  struct walk other;
  insitu_plan plan;
  int32_t part = (int32_t)draw(4), order = chance(50) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  bool more = true;

  if (!walk_open(&other, s, ld, 1, part, order, w->world, w->rank, draw(3), &plan)) return;
  for (uint64_t n = draw(60); n && more; n--) more = walk_step(chance(50) ? w : &other);
  if (chance(50)) walk_close(&other);
}

/* Desc fields of iterators that make no sense. */
static void refuse_iterators(insitu_loader *ld) {
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_status want = INSITU_E_ARG, status;

  switch (draw(4)) {
  case 0: id.split = 4 + (int32_t)draw(3); break;
  case 1: id.split = -1; break;
  case 2: id.order = 3; break;
  default: id.api = 0; want = INSITU_E_API;
  }
  status = insitu_iter_open(ld, &id, &iters[2], NULL);
  if (status != want)
    differ("an iterator that makes no sense: %s, not %s", insitu_status_name(status),
        insitu_status_name(want));
  if (iters[2]) differ("a refused iterator is not NULL");
}

/* A rank's epochs of one part. */
static void run_rank(struct setup *s, struct run *run, uint64_t rank) {
  insitu_loader_desc d = desc_of(s, run->world, rank);
  insitu_loader *ld = open_loader(s, &d, 0);
  struct walk w;
  insitu_plan plan;
  insitu_stats opened = {0};
  insitu_error err = {0};
  uint64_t epoch = run->epoch;

  run->whole = false;
  if (!ld) return;
  if (chance(5)) refuse_iterators(ld);
  if (insitu_loader_stats(ld, &opened, NULL)) differ("no statistics"); /* the coordinate was read */
  if (!walk_open(&w, s, ld, 0, run->part, run->order, run->world, rank, epoch, &plan)) {
    insitu_loader_close(&loaders[0]);
    return;
  }
  run->lanes = w.e.lanes;
  run->window = w.e.window;
  run->n_batches = w.e.batches;
  w.run = run;
  if (!run->after) run->after = own((w.e.batches + 1) * sizeof *run->after);
  bool again = chance(30);
  if (again) walk_steps(&w);
  while (walk_step(&w))
    if (chance(1)) walk_steps(&w);
  run->whole = !w.failed;
  w.run = NULL;
  while (w.n_held) release_one(&w);
  bool counts = d.hold_epoch && !w.failed && !d.check;
  if (counts) check_reads(&w, ld, &plan, &opened, again);
  if (chance(30)) walk_steps(&w);
  if (counts && chance(30)) { /* nothing of the next epoch is prefetched */
    if (insitu_loader_stats(ld, &opened, NULL)) differ("no statistics");
    walk_next_epoch(&w, ++epoch);
    if (chance(30)) walk_steps(&w);
    while (walk_step(&w)) {}
    while (w.n_held) release_one(&w);
    if (!w.failed) check_reads(&w, ld, &plan, &opened, false);
  }
  if (chance(50)) {
    if (w.failed || chance(40)) {
      epoch = draw(5);
      if (insitu_iter_set_epoch(w.it, epoch, &err))
        differ("insitu_iter_set_epoch: %s", err.message);
    } else {
      epoch++;
    }
    walk_next_epoch(&w, epoch);
    if (chance(30)) walk_steps(&w);
    for (uint64_t n = draw(20); n && walk_step(&w); n--) {}
    if (chance(30)) run_beside(s, ld, &w);
    if (chance(30)) check_read(s, ld, false);
  }
  if (chance(80)) { /* else with the loader */
    walk_close(&w);
    if (!iters[1] && chance(30)) check_read(s, ld, true);
  }
  insitu_loader_close(&loaders[0]);
  let_go();
}

/* ---- resuming ---- */
/* Other selections, labels and dtypes of the same samples: a state holds for them as well. */
static void select_anew(struct setup *s) {
  for (int i = 0; i < s->n_views; i++) {
    struct view *v = &s->view[i];

    if (v->v.into) {
      v->v.dtype = 0; /* each has its own again */
      v->v.into = NULL;
    }
    if (!v->v.path) v->v.path = v->v.label;
    v->v.label = own_text("again%d", i);
    draw_selection(&s->archive, v);
    if (v->array->type->kind != KIND_COMPLEX && chance(30)) v->v.dtype = INSITU_F32;
    if (view_refusal(v)) v->v.dtype = 0;
    s->variable[i] = v->v;
  }
  s->n_outputs = place_views(s->view, s->n_views);
  s->desc.variables = s->variable;
}

/* The same setup with a desc that leaves units, windows and lanes open, or some of them. */
static struct setup *leave_open(const struct setup *s) {
  struct setup *open = own(sizeof *open);

  *open = *s;
  if (chance(70)) open->desc.unit_chunks = 0;
  if (chance(70)) open->desc.block_chunks = 0;
  if (chance(70)) open->desc.lanes = 0;
  if (!open->desc.unit_chunks) open->unit_chunks = 1;
  if (!open->desc.block_chunks) open->block_chunks = 64;
  split_finish(&open->split, open->view, open->n_views, open->desc.split_gap,
      open->desc.split_spill, open->unit_chunks);
  return open;
}

/* Goes on behind a batch, at a world size and with resources that need not be those of the run that
 * gave the state, and perhaps with units, windows and lanes that only the state knows. */
static void resume(const struct setup *saved, const struct run *run) {
  struct setup *s = own(sizeof *s), *opened = s;
  uint64_t sizes[64], n = 0, k = draw(run->n_batches), rank, world = run->world;
  insitu_error err = {0};
  insitu_plan plan;
  struct walk w;

  *s = *saved;
  if (chance(40)) select_anew(s);
  if (chance(50)) s->fixed.array = NULL; /* a state does not know of it */
  for (uint64_t r = 1; r <= run->lanes && n < 64; r++)
    if (run->lanes % r == 0) sizes[n++] = r;
  if (run->order == INSITU_SHUFFLED) {
    world = sizes[draw(n)];
    s->desc.lanes = run->lanes; /* where its default is another one */
  }
  rank = draw(world);
  s->desc.prefetch_depth = draw(5);
  s->desc.max_inflight = draw(6);
  s->desc.inline_io = chance(50);
  if (s->global % world == 0) {
    if (chance(50)) opened = leave_open(s);
    insitu_loader_desc d = desc_of(opened, world, rank);
    insitu_loader *ld = open_loader(opened, &d, 0);

    if (ld && walk_open(&w, opened, ld, 0, run->part, run->order, world, rank, draw(3), &plan)) {
      if (chance(40)) walk_steps(&w); /* the state does not know of it */
      for (uint64_t i = draw(4); i && walk_step(&w); i--) {}
      insitu_status status = insitu_iter_restore(w.it, &run->after[k], &err);
      if (status == INSITU_E_BUDGET && d.memory_budget < UINT64_C(1) << 28) {
        while (walk_step(&w)) {} /* it is as it was */
        walk_close(&w);
        insitu_loader_close(&loaders[0]);
        return;
      }
      if (status)
        differ("restoring behind batch %d of epoch %d at world size %d, after %d: %s", (int)k,
            (int)run->epoch, (int)world, (int)run->world, err.message);
      w.s = s;
      w.epoch = run->epoch;
      w.failed = w.ended = false;
      w.batch = k + 1; /* behind the last one comes the end */
      walk_epoch(&w, run->lanes, run->window);
      if (chance(40)) walk_steps(&w);
      while (walk_step(&w)) {}
      if (!w.failed && chance(30)) {
        walk_next_epoch(&w, w.epoch + 1);
        walk_step(&w);
      }
      walk_close(&w);
    }
    insitu_loader_close(&loaders[0]);
  }
}

static bool same_anchors(const struct part *a, const struct part *b) {
  return a->n == b->n && !memcmp(a->anchor, b->anchor, a->n * sizeof *a->anchor);
}

/* A manifest that gives one chunk to another split. */
static bool move_a_chunk(struct setup *s) {
  static const char *const names[] = {"train", "val", "test"};
  struct text *t = own(sizeof *t);
  uint64_t ref = s->split.ref, moved = draw(s->split.n_ref);
  signed char *owner = own(s->samples);
  bool whole = s->kind == SPLIT_DEFAULT || s->kind == SPLIT_FRACTIONS || s->kind == SPLIT_MANIFEST;

  if (!whole || s->split.lo || s->split.hi < (int64_t)s->samples) return false;
  memcpy(owner, s->split.owner, s->samples);
  int to = (int)draw(4) - 1;
  if (chance(50)) { /* the last one of a part to the next part */
    int from = (int)draw(2);

    for (uint64_t c = 0; c < s->split.n_ref; c++)
      if (owner[c * ref] == from) moved = c;
    to = from + 1;
  }
  for (uint64_t x = moved * ref; x < least((moved + 1) * ref, s->samples); x++)
    owner[x] = (signed char)to;
  s->split.owner = owner;
  s->split.excluded = own(s->samples);
  say(t,
      "{\"n_chunks\":%" PRIu64 ",\"sample_chunk_size\":%" PRIu64 ",\"n_samples\":%" PRIu64
      ",\"seed\":null,\"chunks\":{",
      s->split.n_ref, ref, s->samples);
  for (int p = 0; p < 3; p++) {
    bool first = true;

    say(t, "%s\"%s\":[", p ? "," : "", names[p]);
    for (uint64_t c = 0; c < s->split.n_ref; c++) {
      if (owner[c * ref] != p) continue;
      say(t, "%s%" PRIu64, first ? "" : ",", c);
      first = false;
    }
    say(t, "]");
  }
  say(t, "}}");
  memset(s->desc.split, 0, sizeof s->desc.split);
  s->desc.split_shuffled = 0;
  s->desc.manifest = own_text("%s/moved.json", s->folder);
  write_file(s->desc.manifest, t->at, t->n);
  return true;
}

/* A configuration that differs in something that the order or the batches depend on must refuse the
 * state. */
static void refuse_state(struct setup *s, const struct run *run) {
  struct setup *other = own(sizeof *other);
  insitu_error err = {0};
  insitu_plan plan;
  struct walk w;
  const char *what = NULL;
  uint64_t lanes, window;
  insitu_status status;

  *other = *s;
  switch (draw(6)) {
  case 0:
    if (run->order == INSITU_SEQUENTIAL) return; /* its order has no seed */
    other->desc.seed++;
    if (!s->spread) what = "seed";
    break;
  case 1:
    other->desc.unit_chunks = ++other->unit_chunks;
    if (run->order == INSITU_SHUFFLED) what = "unit_chunks";
    break;
  case 2:
    other->variable[0].offset++;
    other->view[0].v.offset++;
    what = "the offset of a variable";
    break;
  case 3:
  case 4:
    if (move_a_chunk(other)) what = "the split";
    break;
  default: other->desc.split_gap++; what = "split_gap";
  }
  if (!what) return;
  other->desc.variables = other->variable;
  split_finish(&other->split, other->view, other->n_views, other->desc.split_gap,
      other->desc.split_spill, other->unit_chunks);
  bool by_split = !strcmp(what, "the split") || !strcmp(what, "split_gap");
  /* what the other parts have decides nothing */
  bool same = by_split && same_anchors(&other->split.part[run->part], &s->split.part[run->part]);
  if (!layout(other, run->part, run->order, run->world, &lanes, &window, &status)) return;
  insitu_loader_desc d = desc_of(other, run->world, 0);
  insitu_loader *ld = open_loader(other, &d, 0);
  if (ld && walk_open(&w, other, ld, 0, run->part, run->order, run->world, 0, 0, &plan)) {
    status = insitu_iter_restore(w.it, &run->after[draw(run->n_batches)], &err);
    if (status != (same ? INSITU_OK : INSITU_E_STATE))
      differ("a state of another configuration (%s): %s", what, insitu_status_name(status));
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

static void run_case(struct setup *s) {
  struct run run = {.world = s->desc.world ? (uint64_t)s->desc.world : 1, .epoch = draw(3)};
  insitu_loader_desc d = desc_of(s, run.world, 0);
  bool whole = true;

  run.part = chance(60) ? INSITU_TRAIN : (int32_t)draw(4);
  run.order = chance(run.part == INSITU_TRAIN ? 80 : 40) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  run.seen = own(s->samples);
  if (s->refused) {
    open_loader(s, &d, 0);
    return;
  }
  adopt_split(s, &d);
  for (uint64_t r = 0; r < run.world; r++) {
    run_rank(s, &run, r);
    whole = whole && run.whole;
  }
  if (!whole) return;
  const struct part *p = &s->split.part[run.part];
  uint64_t n = 0, want = run.order == INSITU_SHUFFLED ? p->n / s->global * s->global : p->n;
  for (uint64_t i = 0; i < p->n; i++) n += run.seen[p->anchor[i]];
  if (n != want)
    differ("%s: %d of %d anchors came in an epoch, not %d", part_names[run.part], (int)n, (int)p->n,
        (int)want);
  if (chance(50)) resume(s, &run);
  if (chance(25)) refuse_state(s, &run);
}

/* ---- running cases ---- */
static struct setup *now;
static const char *replay = "";

static void tell_end(const char *what) {
  fprintf(stderr, "case %" PRIu64 ": %s\n", now->number, what);
  tell_case(stderr, now);
  fprintf(stderr, "  again: make test-random SEED=%" PRIu64 " N=1%s\n", now->number, replay);
}

static void on_signal(int number) {
  signal(number, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  tell_end(number == SIGALRM ? "it hangs" : "it crashed");
  alarm(5); /* clearing up may hang, too */
  remove_all(random_dir);
  raise(number);
}

/* True: model and library agree. */
static bool one_case(uint64_t number, bool verbose) {
  struct setup s = {0};
  volatile bool good = true;

  now = &s;
  alarm(MAX_SECONDS);
  if (!setjmp(case_end)) {
    draw_case(&s, number);
    if (verbose) {
      printf("case %" PRIu64 "\n", number);
      tell_case(stdout, &s);
      fflush(stdout);
    }
    run_case(&s);
  } else {
    good = false;
    tell_end(difference);
  }
  let_go();
  remove_all(s.folder);
  disown_all();
  alarm(0);
  return good;
}

static uint64_t run_cases(uint64_t seed, uint64_t n, bool verbose) {
  uint64_t bad = 0;

  for (uint64_t i = 0; i < n && bad < 20; i++) bad += !one_case(seed + i, verbose);
  return bad;
}

static void begin(void) {
  const char *tmp = getenv("TMPDIR");

  if (!tmp) tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
  snprintf(random_dir, sizeof random_dir, "%.200s/insitu-random-XXXXXX", tmp);
  if (!mkdtemp(random_dir)) abort();
  random_server = server_start(&(struct server_options){.folder = random_dir, .no_log = true});
  signal(SIGALRM, on_signal);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  signal(SIGSEGV, on_signal);
  signal(SIGABRT, on_signal);
#endif
}

static void end(void) {
  server_stop(&random_server);
  remove_all(random_dir);
  free(case_block);
}

static void test_slice(void **state) {
  (void)state;
  begin();
#ifdef __SANITIZE_THREAD__
  uint64_t n = SLICE / 4;
#else
  uint64_t n = getenv("TEST_VALGRIND") ? 20 : SLICE;
#endif
  uint64_t bad = run_cases(1, n, false);
  end();
  assert_int_equal(bad, 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_slice)};
  uint64_t seed = 1, n = SLICE;
  bool verbose = false;

  if (argc < 2) return cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-v")) verbose = true;
    else if (i + 1 < argc && !strcmp(argv[i], "--seed")) seed = strtoull(argv[++i], NULL, 10);
    else if (i + 1 < argc && !strcmp(argv[i], "--n")) n = strtoull(argv[++i], NULL, 10);
    else return fprintf(stderr, "usage: test_random [--seed S] [--n N] [-v]\n"), 2;
  }
  begin();
  uint64_t bad = run_cases(seed, n, verbose);
  end();
  printf("cases %" PRIu64 " to %" PRIu64 ": %" PRIu64 " differ\n", seed, seed + n - 1, bad);
  return bad != 0;
}
