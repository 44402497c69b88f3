/* Iterators of a case beside the model: every batch, row and element that comes. After
 * random_config.h. */
#ifndef TESTS_RANDOM_WALK_H
#define TESTS_RANDOM_WALK_H

enum { MAX_LOADERS = 8, MAX_ITERS = 16, MAX_HELD = 4, WAIT_MS = 60000 };

/* ---- what a case holds: closed however it ends ---- */
static insitu_loader *loaders[MAX_LOADERS];
static insitu_iter *iters[MAX_ITERS];
static insitu_batch *batches[MAX_ITERS][MAX_HELD];
static int homes[MAX_ITERS]; /* the device whose stream uses their batches; see draw_home */

static inline void let_go(void) {
  gpus_sync(0);
  for (int i = 0; i < MAX_ITERS; i++) {
    gpus_choose(homes[i]);
    for (int k = 0; k < MAX_HELD; k++) insitu_batch_release(&batches[i][k]);
    homes[i] = 0;
  }
  for (int i = 0; i < MAX_ITERS; i++) insitu_iter_close(&iters[i]);
  for (int i = 0; i < MAX_LOADERS; i++) insitu_loader_close(&loaders[i]);
  drop_tensors();
}

/* ---- an iterator and what it must do ---- */
/* What all ranks of one run have in common. */
struct run {
  uint64_t world, epoch, lanes, window, n_batches;
  int32_t part, order;
  struct saved *after; /* behind each batch of the epoch */
  uint64_t *digest;    /* anchors_digest of each */
  uint64_t left;       /* rows of all ranks that are left out */
  struct skip_call skip[MAX_SKIPS];
  unsigned n_skips;
  uint64_t *seen;  /* how often each anchor came in it; of drawn patches, its sample */
  int64_t *global; /* the anchor at each position of the epoch; -1: it did not come */
  uint64_t *key;   /* on_batch's at each position */
  uint64_t *next;  /* of a grid's patches: by sample, the number behind the last one that came */
  unsigned char *patch; /* of patches: by sample and number, whether it came */
  bool whole;           /* all ranks got through the epoch */
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
  uint64_t idle;            /* uses of its chunks, of which no row shows some */
  struct known known;       /* chunks that the loader has read for it */
  const insitu_batch *real; /* the batch that is looked at, as the loader gave it */
  const void *fixed[2];     /* where the fixed array and its mask lie; NULL: not seen yet */
  unsigned max_held, n_held;
  uint64_t hash[MAX_HELD];
  /* The first batch that an absent or damaged chunk stops (UINT64_MAX: none), and which of both it
   * has. */
  uint64_t bad;
  bool bad_absent, bad_corrupt;
  uint64_t call_fails; /* the batch that on_batch fails at */
  struct run *run;     /* to be told of its batches */
  struct run *before;  /* whose epoch it goes on with */
  bool failed, ended, closing;
  /* Batches of this epoch that are left out; of the next one, where that was said behind the last
   * batch; how many the iterator went past so far. */
  bool *out, *out_next;
  uint64_t n_out;
  unsigned skipped; /* calls of the run's that were made */
  bool skips;       /* it leaves batches out by itself, at random */
  bool summed;      /* the epoch's digest is known, and is the sum */
  uint64_t sum;
  struct saved last; /* behind the batch that was delivered last */
};

static const char *const part_names[] = {"train", "val", "test", "all"};

/* Whether an element of a batch is NaN. */
static inline bool shows_nan(int32_t dtype, const unsigned char *at) {
  struct type t = {
      .kind = dtype == INSITU_BF16 ? KIND_BFLOAT : KIND_FLOAT, .bytes = dtype_bytes(dtype)};

  return (dtype >> 8 == 2 || dtype == INSITU_BF16) && isnan(number_of(&t, false, at).x);
}

/* Whether a variable shows the fill value of its array as NaN. */
static inline bool shows_fill_as_nan(const struct view *v) {
  unsigned char shown[16];

  if (v->is_mask) return false;
  if (v->v.n_ops) return computes_nan_of_fill(v);
  if (v->v.decode != INSITU_CF) return v->array->fill_is_nan;
  show_element(v, v->array->fill, shown);
  return shows_nan(view_dtype(v), shown);
}

/* Whether a variable shows something of the chunk of a level that an element lies in, at any
 * sample. */
static inline bool shows_chunk(const struct view *v, int level, const uint64_t *at) {
  const struct array *a = v->array;

  for (int d = 0; d < a->ndim; d++) {
    bool has = a->drawn[d];

    for (uint64_t i = 0; i < v->n_tiles[level][d] && !has; i++)
      has = v->tile[level][d][i] == at[d] / a->level[level].size[d];
    if (!has) return false;
  }
  return true;
}

/* INSITU_E_CORRUPT: an element lies in a damaged chunk, and that is an error. INSITU_E_ABSENT: it
 * lies in an absent one, and that is an error: by default where some variable shows the chunk's
 * fill value as NaN. */
static inline insitu_status element_raises(
    const struct setup *s, const struct array *a, const uint64_t *at) {
  int level = array_absent_level(a, at), leaf = array_leaf(a);

  if (array_bad(a, at)) return s->desc.on_bad_chunk == INSITU_FILL ? INSITU_OK : INSITU_E_CORRUPT;
  if (level < 0) return INSITU_OK;
  if (s->desc.on_absent_chunk == INSITU_FILL) return INSITU_OK;
  if (s->desc.on_absent_chunk == INSITU_RAISE) return INSITU_E_ABSENT;
  for (int i = 0; i < s->n_views; i++) {
    const struct view *v = &s->view[i];

    if (v->array == a && shows_fill_as_nan(v) && shows_chunk(v, level > leaf ? level : leaf, at))
      return INSITU_E_ABSENT;
  }
  return INSITU_OK;
}

/* Notes what is an error of what a step of a view shows of an anchor. */
static inline void step_raises(
    struct walk *w, const struct view *v, const int64_t *anchor, uint64_t step) {
  const struct setup *s = w->s;
  uint64_t each = view_elements(v), n = view_channels(v) * each, at[MAX_DIMS];
  bool absent = v->array->absent && s->desc.on_absent_chunk != INSITU_FILL,
       bad = v->array->bad && s->desc.on_bad_chunk != INSITU_FILL;

  if (!absent && !bad) return;
  for (uint64_t k = 0; k < n; k++) {
    view_place(v, anchor, step, k / each, k % each, at);
    insitu_status status = array_has(v->array, at) ? element_raises(s, v->array, at) : INSITU_OK;
    w->bad_absent = w->bad_absent || status == INSITU_E_ABSENT;
    w->bad_corrupt = w->bad_corrupt || status == INSITU_E_CORRUPT;
  }
}

static inline void row_raises(struct walk *w, int64_t number) {
  int64_t anchor[MAX_AXES];

  space_index(w->s->space, number, anchor);
  for (int i = 0; i < w->s->n_views; i++)
    for (uint64_t k = 0; k < view_steps(&w->view[i]); k++) step_raises(w, &w->view[i], anchor, k);
}

/* Whether some of what a row shows lies in a damaged chunk. */
static inline bool row_is_bad(const struct walk *w, const int64_t *anchor) {
  uint64_t at[MAX_DIMS];

  for (int i = 0; i < w->s->n_views; i++) {
    const struct view *v = &w->view[i];
    uint64_t each = view_elements(v), n = view_channels(v) * each;

    for (uint64_t k = 0; v->array->bad && k < n * view_steps(v); k++) {
      view_place(v, anchor, k / n, k % n / each, k % each, at);
      if (array_has(v->array, at) && array_bad(v->array, at)) return true;
    }
  }
  return false;
}

/* What stands at the rank's positions of an epoch, as the iterator says. */
static inline void walk_locate(struct walk *w) {
  const struct space *space = w->s->space;
  insitu_error err = {0};

  for (uint64_t b = 0; b < w->e.batches; b++) {
    uint64_t row = 0;

    for (uint64_t p = b * w->e.global; p < (b + 1) * w->e.global; p++) {
      int64_t index[MAX_AXES];
      bool own_row = p % w->e.lanes * w->world / w->e.lanes == w->rank;

      if (!own_row || w->e.anchor[p] < 0) continue;
      if (insitu_iter_locate(w->it, w->epoch, b, row++, index, &err))
        differ("insitu_iter_locate: %s", err.message);
      for (int k = 0; k < space->n; k++)
        if (index[k] < -space->axis[k].below || index[k] >= (int64_t)space->axis[k].n)
          differ("insitu_iter_locate: index %d on axis %d", (int)index[k], k);
      w->e.anchor[p] = space_number(space, index);
    }
  }
}

/* The epoch as the model has it. */
static inline struct epoch epoch_of(const struct setup *s, int part, int32_t order, uint64_t epoch,
    uint64_t lanes, uint64_t window) {
  const struct part *p = &s->split.part[part];
  bool mixed = order == INSITU_SHUFFLED;
  struct epoch e;

  if (space_patched(s->space)) e = unlocated(p->n, mixed, s->global, lanes);
  else if (!mixed) e = sequential(p, s->global, lanes);
  else if (s->space->n == 1 || s->space->sampled)
    e = shuffled(p, s->desc.seed, epoch, s->global, lanes, window);
  else e = shuffled_product(p, s->desc.seed, epoch, s->global, lanes, window);
  e.window = window;
  return e;
}

/* The first batch from the next one on that stops the iterator. */
static inline void walk_find_bad(struct walk *w) {
  int64_t row[4096];

  w->bad = UINT64_MAX;
  w->bad_absent = w->bad_corrupt = false;
  for (uint64_t b = w->batch; b < w->e.batches && w->bad == UINT64_MAX; b++) {
    if (w->out[b]) continue;
    uint64_t n = epoch_batch(&w->e, w->world, w->rank, b, row);

    for (uint64_t r = 0; r < n; r++) row_raises(w, row[r]);
    if (w->bad_absent || w->bad_corrupt) w->bad = b;
  }
}

/* Sets up the model of the walk's epoch, from its next batch on. */
static inline void walk_epoch(struct walk *w, uint64_t lanes, uint64_t window) {
  const struct setup *s = w->s;

  w->e = epoch_of(s, w->part, w->order, w->epoch, lanes, window);
  if (space_patched(s->space)) walk_locate(w);
  if (!w->out) w->out = own(w->e.batches + 1);
  if (!w->out_next) w->out_next = own(w->e.batches + 1);
  w->call_fails = s->calls && s->calls->epoch == w->epoch ? s->calls->fails_at : UINT64_MAX;
  w->start = w->batch;
  walk_find_bad(w);
}

/* Where an element was converted, but not decoded, any NaN will do. */
static inline bool both_nan(
    const struct view *v, const unsigned char *got, const unsigned char *want) {
  int32_t dtype = view_dtype(v);

  if (v->v.decode == INSITU_CF || dtype == v->array->type->dtype) return false;
  return shows_nan(dtype, got) && shows_nan(dtype, want);
}

/* Whether an output shows a stored element as it must; *want: how. place: along the axis of the
 * numbers of operations. */
static inline bool shows_right(const struct view *v, const unsigned char *stored, uint64_t place,
    const unsigned char *got, unsigned char *want) {
  if (v->is_mask || v->v.n_ops) return shows_computed(v, stored, place, got, want);
  show_element(v, stored, want);
  return !memcmp(got, want, dtype_bytes(view_dtype(v))) || both_nan(v, got, want);
}

/* All elements of a box, as draw_box drew it. */
static inline void check_box(const struct view *v, const unsigned char *got, const char *what) {
  const struct array *a = v->array;
  unsigned item = dtype_bytes(view_dtype(v));
  uint64_t n = 1, at[MAX_DIMS];
  unsigned char want[16];

  for (int d = 0; d < a->ndim; d++) n *= v->shown[d].n;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t rest = i, place = 0;

    for (int d = a->ndim - 1; d >= 0; d--) {
      at[d] = v->shown[d].at[rest % v->shown[d].n];
      if (d == v->op_axis) place = rest % v->shown[d].n;
      rest /= v->shown[d].n;
    }
    if (!shows_right(v, array_at(a, at), place, got + i * item, want))
      differ("%s of '%s', select '%s': element %d differs", what, a->path,
          v->v.select ? v->v.select : "", (int)i);
  }
}

/* The array of a variable in a batch: the fixed one, where there is one, comes before masks, and
 * its mask comes last. */
static inline const insitu_array *view_array(
    const struct setup *s, const insitu_batch *b, const struct view *v) {
  int number = v->output;

  if (v == &s->fixed) number = s->n_unmasked;
  else if (v == &s->fixed_mask) number = s->n_outputs + 1;
  else if (number >= s->n_unmasked && s->fixed.array) number++;
  return &b->arrays[number];
}

/* A fixed array. */
static inline void check_fixed(
    const struct walk *w, const insitu_batch *b, const struct view *v, const void **before) {
  const insitu_array *out = view_array(w->s, b, v);
  int64_t stride = 1;

  if (strcmp(out->name, v->v.label) || out->fixed != 1 || out->row_bytes || out->channels)
    differ("the fixed array '%s' is '%s'", v->v.label, out->name);
  if (out->ndim != v->array->ndim || out->dtype != view_dtype(v))
    differ("the fixed array has %d dimensions of dtype 0x%x", out->ndim, (unsigned)out->dtype);
  for (int d = out->ndim; d-- > 0; stride *= out->shape[d])
    if (out->shape[d] != (int64_t)v->shown[d].n || out->strides[d] != stride)
      differ("the fixed array, axis %d: %d, not %d", d, (int)out->shape[d], (int)v->shown[d].n);
  if (out->bytes != (uint64_t)stride * dtype_bytes(out->dtype))
    differ("the fixed array has %d bytes", (int)out->bytes);
  const void *at = view_array(w->s, w->real, v)->data;
  if (*before && *before != at) differ("the fixed array moved");
  *before = at;
  check_place(out, v->v.place, v->v.device);
  check_box(v, out->data, "the fixed variable");
}

/* "3, 0, 7" */
static inline const char *anchor_words(const struct space *space, const int64_t *anchor) {
  const char *words = "";

  for (int k = 0; k < space->n; k++)
    words = own_text("%s%s%d", words, k ? ", " : "", (int)anchor[k]);
  return words;
}

static inline const char *number_words(const struct space *space, int64_t number) {
  int64_t index[MAX_AXES];

  space_index(space, number, index);
  return anchor_words(space, index);
}

static inline void check_elements(
    const struct walk *w, const insitu_batch *b, const struct view *v) {
  const insitu_array *out = view_array(w->s, b, v);
  const struct array *a = v->array;
  uint64_t elements = view_elements(v), steps = view_steps(v), at[MAX_DIMS];
  uint64_t channels = view_channels(v), planes = channels * steps;
  int32_t dtype = view_dtype(v);
  unsigned item = dtype_bytes(dtype);

  for (uint64_t r = 0; r < b->rows; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;

    for (uint64_t p = 0; p < planes; p++) {
      uint64_t c = p / steps, k = p % steps;
      const unsigned char *got = (const unsigned char *)out->data + r * out->row_bytes +
                                 (v->channel * steps + p) * elements * item;

      for (uint64_t e = 0; e < elements; e++, got += item) {
        unsigned char want[16];

        view_place(v, anchor, k, c, e, at);
        bool has = array_has(a, at);
        const unsigned char *stored = has ? array_at(a, at) : a->fill;
        if (shows_right(v, stored, view_op_place(v, c, e), got, want)) continue;
        char text[2][40] = {"", ""};
        for (unsigned n = 0; n < item; n++) {
          sprintf(text[0] + 2 * n, "%02x", got[n]);
          sprintf(text[1] + 2 * n, "%02x", want[n]);
        }
        differ("%s epoch %d batch %d rank %d: variable '%s' row %d (anchor %s) channel %d step %d "
               "element %d: bytes %s, the model has %s%s",
            part_names[w->part], (int)w->epoch, (int)b->index, (int)w->rank, v->v.label, (int)r,
            anchor_words(w->s->space, anchor), (int)c, (int)k, (int)e, text[0], text[1],
            !has                                  ? " (outside of the array)"
            : array_bad(a, at)                    ? " (its chunk is damaged)"
            : a->is_absent[array_chunk_of(a, at)] ? " (its chunk is absent)"
                                                  : "");
      }
    }
  }
}

/* How many channels an array of the batch has; their names are those of its variables. */
static inline uint64_t check_channels(const struct setup *s, const insitu_array *out, int output) {
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

static inline void check_shape(const struct walk *w, const insitu_batch *b, const struct view *v) {
  const insitu_array *out = view_array(w->s, b, v);
  int64_t want[MAX_DIMS + 3], stride = 1;
  uint64_t channels = v->v.into ? check_channels(w->s, out, v->output) : 1;
  int n = 0;

  want[n++] = (int64_t)b->rows;
  if (v->v.into) want[n++] = (int64_t)channels;
  else check_channels(w->s, out, v->output);
  if (v->v.n_steps) want[n++] = (int64_t)v->v.n_steps;
  for (int d = 0; d < v->array->ndim; d++)
    if (!view_samples(v, d) && !view_folds(v, d)) want[n++] = (int64_t)view_length(v, d);
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
  check_place(out, v->v.place, v->v.device);
}

/* The value of the time of a sample. */
static inline double time_value(const struct array *time, int64_t at) {
  int64_t whole;
  double x;

  memcpy(&x, time->data + 8 * at, 8);
  memcpy(&whole, time->data + 8 * at, 8);
  return time->type->kind == KIND_INT ? (double)whole : x;
}

/* What the coordinate of an axis has at an index; NaN: there is none. */
static inline double coordinate_value(const struct setup *s, int k, int64_t at) {
  const struct array *a = s->view[0].array;
  const struct coordinate *c = NULL;

  if (at < 0) return (double)NAN; /* a patch that hangs over the end */
  if (k == s->space->along) return s->archive.time ? time_value(s->archive.time, at) : (double)NAN;
  for (int d = 0; d < a->ndim; d++)
    if (a->drawn[d] == k + 1) c = axis_coordinate(&s->archive, a, d);
  return c ? c->value[at] : (double)NAN;
}

/* The values and the moment of each row, where batches carry them. */
static inline void check_coordinates(const struct walk *w, const insitu_batch *b) {
  const struct setup *s = w->s;
  int64_t zero = days_of(s->calendar, 1970, 1, 1) * 86400;

  if (!s->desc.coordinates) {
    if (b->coordinates || b->time_us || b->calendar) differ("coordinates that nobody asked for");
    return;
  }
  if (!b->coordinates || !b->time_us != !s->archive.time) differ("coordinates are missing");
  for (uint64_t r = 0; r < b->rows; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;
    int64_t at = anchor[s->space->along];

    for (int k = 0; k < s->space->n; k++) {
      double got = b->coordinates[r * b->n_axes + (uint64_t)k],
             want = coordinate_value(s, k, anchor[k]);

      if (got != want && !(isnan(got) && isnan(want)))
        differ("coordinate of index %d on axis %d: %.17g, not %.17g", (int)anchor[k], k, got, want);
    }
    if (b->time_us && b->time_us[r] != (s->seconds[at] - zero) * 1000000)
      differ("time of index %d: %" PRId64 " us, not %" PRId64 " s", (int)at, b->time_us[r],
          s->seconds[at] - zero);
  }
}

/* Which rows show something of a damaged chunk. */
static inline void check_bad_rows(const struct walk *w, const insitu_batch *b) {
  bool fills = w->s->desc.on_bad_chunk == INSITU_FILL;

  if (!fills != !b->bad_rows) differ("bad_rows is%s NULL", b->bad_rows ? " not" : "");
  for (uint64_t r = 0; fills && r < b->rows; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;
    bool want = row_is_bad(w, anchor);

    if (b->bad_rows[r] != want)
      differ("%s epoch %d batch %d rank %d: bad_rows of row %d (anchor %s) is %d, not %d",
          part_names[w->part], (int)w->epoch, (int)b->index, (int)w->rank, (int)r,
          anchor_words(w->s->space, anchor), b->bad_rows[r], want);
  }
}

static inline void check_batch(struct walk *w, const insitu_batch *b) {
  int64_t want[4096];
  uint64_t n = epoch_batch(&w->e, w->world, w->rank, w->batch, want);

  if (b->epoch != w->epoch || b->index != w->batch)
    differ("%s: epoch %d batch %d came, not epoch %d batch %d", part_names[w->part], (int)b->epoch,
        (int)b->index, (int)w->epoch, (int)w->batch);
  if (b->rows != n)
    differ("%s epoch %d batch %d rank %d of %d: %d rows, not %d", part_names[w->part],
        (int)w->epoch, (int)w->batch, (int)w->rank, (int)w->world, (int)b->rows, (int)n);
  const struct space *space = w->s->space;
  if (b->n_axes != (uint64_t)space->n) differ("a batch of %d axes", (int)b->n_axes);
  for (uint64_t r = 0; r < n; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;

    if (space_number(space, anchor) != want[r])
      differ("%s epoch %d batch %d rank %d of %d row %d: anchor %s, not %s", part_names[w->part],
          (int)w->epoch, (int)w->batch, (int)w->rank, (int)w->world, (int)r,
          anchor_words(space, anchor), number_words(space, want[r]));
    if (b->sample_indices[r] != anchor[0]) differ("sample_indices are no first index");
  }
  check_coordinates(w, b);
  check_bad_rows(w, b);
  const struct view *fixed = &w->s->fixed, *fixed_mask = &w->s->fixed_mask;
  uint64_t others = (uint64_t)(fixed->array != NULL) + (fixed_mask->array != NULL);
  if (w->s->calls) others += CALL_OUTPUTS;
  if (b->n_arrays != (uint64_t)w->s->n_outputs + others)
    differ("a batch of %d arrays", (int)b->n_arrays);
  if (fixed->array) check_fixed(w, b, fixed, &w->fixed[0]);
  if (fixed_mask->array) check_fixed(w, b, fixed_mask, &w->fixed[1]);
  if (w->s->calls) check_call(w->s, b);
  for (int i = 0; i < w->s->n_views; i++) {
    check_shape(w, b, &w->view[i]);
    check_elements(w, b, &w->view[i]);
  }
  if (n && chance(10)) {
    uint64_t r = draw(n);
    int64_t anchor[MAX_AXES];
    insitu_error err = {0};

    if (insitu_iter_locate(w->it, w->epoch, w->batch, r, anchor, &err))
      differ("insitu_iter_locate: %s", err.message);
    if (space_number(space, anchor) != want[r])
      differ("insitu_iter_locate: anchor %s, not %s", anchor_words(space, anchor),
          number_words(space, want[r]));
  }
}

static inline void release_one(struct walk *w) {
  unsigned k = (unsigned)draw(w->n_held);

  gpus_before(homes[w->slot]);
  batch_give(&batches[w->slot][k], homes[w->slot], w->hash[k], w->closing);
  w->n_held--;
  batches[w->slot][k] = batches[w->slot][w->n_held];
  w->hash[k] = w->hash[w->n_held];
  batches[w->slot][w->n_held] = NULL;
}

/* The batch that cannot be delivered: its error comes every time. */
static inline bool walk_fails(struct walk *w, insitu_status status, const insitu_error *err) {
  insitu_batch *b = NULL;
  bool told = (w->bad_absent && status == INSITU_E_ABSENT) ||
              (w->bad_corrupt && status == INSITU_E_CORRUPT);

  if (!told)
    differ("%s epoch %d batch %d: %s, but its chunks are%s%s: %s", part_names[w->part],
        (int)w->epoch, (int)w->batch, insitu_status_name(status), w->bad_absent ? " absent" : "",
        w->bad_corrupt ? " damaged" : "", err->message);
  for (int i = 0; i < 2; i++)
    if (insitu_iter_next(w->it, WAIT_MS, &b, NULL) != status) differ("an error does not last");
  w->failed = true;
  return false;
}

/* The batch whose call failed: its error comes every time. */
static inline bool walk_call_fails(struct walk *w, insitu_status status, const insitu_error *err) {
  insitu_batch *b = NULL;

  if (status != INSITU_E_FORMAT || !strstr(err->message, "the call says no"))
    differ("%s epoch %d batch %d, where on_batch fails: %s: %s", part_names[w->part], (int)w->epoch,
        (int)w->batch, insitu_status_name(status), err->message);
  if (insitu_iter_next(w->it, WAIT_MS, &b, NULL) != INSITU_E_FORMAT)
    differ("an error of on_batch does not last");
  w->failed = true;
  return false;
}

/* Anchors of a batch come in no other rank or batch, patches lie where they may, and what is read
 * for them lies in their split. */
static inline void count_anchors(const struct walk *w, struct run *run, const insitu_batch *b) {
  const struct split *sp = &w->s->split;
  const struct space *space = w->s->space;
  const struct part *p = &sp->part[run->part];

  for (uint64_t r = 0; r < b->rows; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;
    int64_t number = space_number(space, anchor), x = anchor[space->along];

    if (!space_begins(space, anchor)) differ("a patch begins at %s", anchor_words(space, anchor));
    if (space->patches) number = space_sample(space, number);
    if (!p->due[number])
      differ("%s: anchor %s is none of its", part_names[run->part], anchor_words(space, anchor));
    if (++run->seen[number] > p->due[number])
      differ("anchor %s comes once more in epoch %d", anchor_words(space, anchor), (int)w->epoch);
    for (int i = 0; i < w->s->n_views && run->part != INSITU_ALL && !w->s->desc.split_spill; i++)
      for (uint64_t k = 0; k < view_steps(&w->s->view[i]); k++) {
        int64_t y = view_sample(&w->s->view[i], x, k);

        if (sp->owner[view_owner(&w->s->view[i], x, k)] != run->part)
          differ("%s leaks: anchor %s reads sample %d of '%s', which is another split's",
              part_names[run->part], anchor_words(space, anchor), (int)y, w->s->view[i].v.label);
      }
  }
}

/* Notes what stands at the positions of the rank's batch, or sees that it is what another run had
 * there. */
static inline void tell_positions(const struct walk *w, struct run *run) {
  if (!run->global) {
    run->global = own(w->e.positions * 8);
    memset(run->global, 0xff, w->e.positions * 8);
  }
  for (uint64_t p = w->batch * w->e.global; p < (w->batch + 1) * w->e.global; p++) {
    if (w->e.anchor[p] < 0 || p % w->e.lanes * w->world / w->e.lanes != w->rank) continue;
    run->global[p] = w->e.anchor[p];
  }
}

/* The order of the whole epoch is the one that the run had, at whatever world size. */
static inline void check_positions(const struct walk *w, const struct run *run) {
  for (uint64_t p = 0; p < w->e.positions; p++) {
    if (w->e.anchor[p] < 0 || p % w->e.lanes * w->world / w->e.lanes != w->rank) continue;
    if (w->e.anchor[p] != run->global[p])
      differ("epoch %d, position %d: anchor %s at world size %d, %s at %d", (int)w->epoch, (int)p,
          number_words(w->s->space, w->e.anchor[p]), (int)w->world,
          number_words(w->s->space, run->global[p]), (int)run->world);
  }
}

/* The keys of rows are those of the whole epoch's positions, at each world size and after a state
 * was restored; no patch of a sample has the number of another one. */
static inline void tell_keys(const struct walk *w, struct run *run, const insitu_batch *b) {
  const uint64_t *key = b->arrays[b->n_arrays - CALL_OUTPUTS + CALL_KEY].data;
  const struct space *space = w->s->space;
  uint64_t row = 0, each = space_each(space), places = space_places(space);
  bool told = w->run == run, numbers = told && space_patched(space) && places * each < 1 << 22;

  if (!run->key) run->key = own(w->e.positions * 8);
  if (numbers && !run->patch) run->patch = own(places * each);
  if (numbers && !run->next) run->next = own(places * 8);
  for (uint64_t p = w->batch * w->e.global; p < (w->batch + 1) * w->e.global; p++) {
    if (w->e.anchor[p] < 0 || p % w->e.lanes * w->world / w->e.lanes != w->rank) continue;
    const int64_t *anchor = b->axis_indices + row * b->n_axes;
    uint64_t is = key[row++];

    if (!told && run->key[p] && run->key[p] != is)
      differ("the key of position %d, restored, is %" PRIx64 ", not %" PRIx64, (int)p, is,
          run->key[p]);
    if (told) run->key[p] = is;
    if (!numbers) continue;
    uint64_t sample = (uint64_t)space_sample(space, space_number(space, anchor));
    uint64_t number = key_patch(w->s, w->epoch, anchor, is);
    if (run->patch[sample * each + number]++)
      differ("two patches of sample %d have one number", (int)sample);
    if (w->order == INSITU_SHUFFLED || space->patches || w->world > 1) continue;
    if (run->next[sample] > number)
      differ("patch %d of sample %d of a sequential epoch is behind %d", (int)number, (int)sample,
          (int)run->next[sample] - 1);
    run->next[sample] = number + 1;
  }
}

/* ---- batches that are left out ---- */
/* Has the iterator leave batches out of the epoch of its next batch, or sees that it refuses to. */
static inline void walk_skip(struct walk *w, struct skip_call c) {
  bool behind = w->batch == w->e.batches;
  bool *out = behind ? w->out_next : w->out, *to = own(w->e.batches + 1);
  uint64_t at = behind ? 0 : w->batch, n = w->e.batches;
  bool inside = c.n && c.first < n && c.n <= n - c.first && c.first >= at;
  insitu_error err = {0};
  insitu_status status = insitu_iter_skip(w->it, c.first, c.n, &err);

  if (!inside && status != INSITU_E_ARG)
    differ("leaving out %d batches from %d on, at %d of %d: %s", (int)c.n, (int)c.first, (int)at,
        (int)n, insitu_status_name(status));
  if (!inside) return;
  memcpy(to, out, n);
  memset(to + c.first, true, c.n);
  if (status == INSITU_E_ARG && out_ranges(to, n) > SURE_RANGES) return;
  if (status)
    differ("leaving out %d batches from %d on, at %d of %d: %s", (int)c.n, (int)c.first, (int)at,
        (int)n, err.message);
  memcpy(out, to, n);
  if (!behind) walk_find_bad(w);
}

/* Makes the calls of insitu_iter_skip that are due, and goes past what is left out. */
static inline void walk_leave_out(struct walk *w) {
  int64_t row[4096];

  for (; w->run && w->skipped < w->run->n_skips; w->skipped++) {
    struct skip_call c = w->run->skip[w->skipped];

    if (c.at > w->batch) break;
    if (w->batch == w->e.batches) continue;
    c.first = most(c.first, w->batch);
    walk_skip(w, c);
  }
  if (w->skips && chance(8)) {
    bool behind = w->batch == w->e.batches;
    walk_skip(w, draw_skip(behind ? 0 : w->batch, w->e.batches));
  }
  for (; w->batch < w->e.batches && w->out[w->batch]; w->batch++) {
    w->n_out++;
    if (w->run) tell_positions(w, w->run);
    if (w->run) w->run->left += epoch_batch(&w->e, w->world, w->rank, w->batch, row);
  }
}

/* ---- digests ---- */
/* The digests of a batch, as on_batch left it. */
static inline void check_digests(struct walk *w, const insitu_batch *b) {
  const struct setup *s = w->s;
  uint64_t anchors = 0, bytes = 0, row = 0, n = s->split.part[w->part].n;
  bool mixed = w->order == INSITU_SHUFFLED, known = w->world == 1 || !space_patched(s->space);
  struct run *run = w->run ? w->run : w->before;

  if (chance(10)) check_line(w->real, s->desc.receipts, w->rank);
  if (!s->desc.receipts) {
    if (b->anchors_digest || b->epoch_digest || b->bytes_digest)
      differ("digests that nobody asked for");
    return;
  }
  for (uint64_t p = w->batch * w->e.global; p < (w->batch + 1) * w->e.global; p++) {
    int64_t index[MAX_AXES];
    bool own_row = p % w->e.lanes * w->world / w->e.lanes == w->rank;
    uint64_t position = digest_position(&w->e, n, mixed, p);

    if (w->e.anchor[p] < 0) continue;
    space_index(s->space, w->e.anchor[p], index);
    anchors += digest_anchor(w->epoch, position, index, s->space->n);
    if (own_row) bytes += digest_row(w->epoch, position, b, row++);
  }
  if (known && b->anchors_digest != anchors)
    differ("%s epoch %d batch %d rank %d: anchors_digest is %" PRIx64 ", not %" PRIx64,
        part_names[w->part], (int)w->epoch, (int)w->batch, (int)w->rank, b->anchors_digest,
        anchors);
  if (b->bytes_digest != (s->desc.receipts == INSITU_RECEIPT_BYTES ? bytes : 0))
    differ("%s epoch %d batch %d rank %d: bytes_digest is %" PRIx64 ", not %" PRIx64,
        part_names[w->part], (int)w->epoch, (int)w->batch, (int)w->rank, b->bytes_digest, bytes);
  if (run && !run->digest) run->digest = own((run->n_batches + 1) * 8);
  if (run && run->digest[w->batch] && run->digest[w->batch] != b->anchors_digest)
    differ("anchors_digest of batch %d is another one on rank %d of %d", (int)w->batch,
        (int)w->rank, (int)w->world);
  if (run) run->digest[w->batch] = b->anchors_digest;
  w->sum += b->anchors_digest;
  if (b->epoch_digest != (w->summed ? w->sum : 0))
    differ("%s epoch %d batch %d rank %d: epoch_digest is %" PRIx64 ", not %" PRIx64 " (%s)",
        part_names[w->part], (int)w->epoch, (int)w->batch, (int)w->rank, b->epoch_digest, w->sum,
        w->summed ? "known" : "unknown");
}

/* Notes the state behind a batch. */
static inline void walk_save(struct walk *w, const insitu_batch *b) {
  w->last = (struct saved){.state = b->after,
      .epoch = b->epoch,
      .batch = b->index,
      .is = true,
      .summed = w->summed && w->s->desc.receipts,
      .sum = w->sum,
      .out = own(w->e.batches + 1)};
  memcpy(w->last.out, w->out, w->e.batches);
}

/* Every rank has the same state behind a batch. */
static inline void tell_run(const struct walk *w, const insitu_batch *b) {
  struct saved *after = &w->run->after[w->batch];

  count_anchors(w, w->run, b);
  tell_positions(w, w->run);
  if (after->is && memcmp(&after->state, &b->after, sizeof b->after))
    differ("rank %d has another state behind batch %d", (int)w->rank, (int)w->batch);
  *after = w->last;
}

/* One call of insitu_iter_next and what it must give. False: the epoch is over, or cannot go on. */
static inline bool walk_step(struct walk *w) {
  insitu_error err = {0};
  insitu_batch *b = NULL;
  insitu_status status;

  if (w->failed || w->ended) return false;
  walk_leave_out(w);
  if (w->n_held == w->max_held) {
    if (w->batch < w->e.batches && chance(20) &&
        (status = insitu_iter_next(w->it, 0, &b, &err)) != INSITU_BUSY)
      differ("next while %d batches are held: %s %s", (int)w->n_held, insitu_status_name(status),
          err.message);
    release_one(w);
  }
  int64_t wait = chance(30) ? 0 : chance(50) ? 1 : 1000;
  gpus_before(homes[w->slot]);
  while ((status = insitu_iter_next(w->it, wait, &b, &err)) == INSITU_TIMEOUT) gpus_go_on();
  gpus_after(homes[w->slot]);
  if (w->batch == w->bad) return walk_fails(w, status, &err);
  int64_t row[4096];
  bool calls = w->batch < w->e.batches && w->batch == w->call_fails;
  if (calls && epoch_batch(&w->e, w->world, w->rank, w->batch, row))
    return walk_call_fails(w, status, &err);
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
  batches[w->slot][w->n_held++] = b;
  w->real = b;
  b = batch_shown(b, homes[w->slot]);
  w->hash[w->n_held - 1] = hash_batch(b);
  if (b->index == w->batch && b->epoch == w->epoch) check_digests(w, b);
  if (w->s->calls && w->s->calls->flips) call_flip(b);
  check_batch(w, b);
  walk_save(w, b);
  if (w->run) tell_run(w, b);
  if (w->run && w->s->calls) tell_keys(w, w->run, b);
  if (w->before && w->s->calls) tell_keys(w, w->before, b);
  if (w->s->calls && w->s->calls->flips) call_flip(b); /* as it was */
  w->batch++;
  while (w->n_held && chance(60)) release_one(w);
  return true;
}
#endif
