/* desc.on_batch of a random case: what it adds to a batch, changes there and fails at, and what a
 * batch then must hold. After random_case.h. */
#ifndef TESTS_RANDOM_CALL_H
#define TESTS_RANDOM_CALL_H
#include <stdatomic.h>

enum { CALL_ROW, CALL_KEY, CALL_NOISE, CALL_OUTPUTS, CALL_NOISES = 3 };

struct calls {
  bool flips;               /* it changes the first array in place */
  uint64_t epoch, fails_at; /* the batch of an epoch whose call fails; UINT64_MAX: none */
  insitu_output output[CALL_OUTPUTS];
  atomic_uint_least64_t done, running, most; /* calls: all, now, at most at once */
  atomic_bool odd;                           /* something was not as it must be */
};

/* ---- the call ---- */
/* What the arrays of the variables, but for fixed ones, show of a row. */
static inline uint64_t call_row(const insitu_batch *b, uint64_t row) {
  uint64_t h = 0;

  for (uint64_t i = 0; i + CALL_OUTPUTS < b->n_arrays; i++) {
    const insitu_array *a = &b->arrays[i];
    const unsigned char *at = (const unsigned char *)a->data + row * a->row_bytes;

    for (uint64_t k = 0; !a->fixed && k < a->row_bytes; k++)
      h = (h ^ at[k]) * UINT64_C(0x100000001b3);
  }
  return h;
}

/* Changes the first array, or changes it back. */
static inline void call_flip(const insitu_batch *b) {
  unsigned char *at = b->arrays[0].data;

  for (uint64_t k = 0; k < b->arrays[0].bytes; k++) at[k] ^= 0xa5;
}

static inline double call_noise(uint64_t key, int i) {
  return (double)(order_mix(key + (uint64_t)i) >> 40);
}

static insitu_status on_random_batch(
    void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  struct calls *c = user;
  uint64_t now = atomic_fetch_add(&c->running, 1) + 1, most_now = atomic_load(&c->most);

  while (now > most_now && !atomic_compare_exchange_weak(&c->most, &most_now, now)) {}
  if (!b->rows || b->n_arrays <= CALL_OUTPUTS || !b->axis_indices) atomic_store(&c->odd, true);
  for (uint64_t i = 0; i < b->n_arrays; i++) /* not on its device yet */
    if (b->arrays[i].place == INSITU_DEVICE && !b->arrays[i].fixed) atomic_store(&c->odd, true);
  const insitu_array *last = b->arrays + b->n_arrays - CALL_OUTPUTS;
  uint64_t *row = last[CALL_ROW].data, *key = last[CALL_KEY].data;
  float *noise = last[CALL_NOISE].data;

  for (uint64_t r = 0; r < b->rows; r++) {
    row[r] = call_row(b, r);
    key[r] = keys[r];
    for (int i = 0; i < CALL_NOISES; i++)
      noise[r * CALL_NOISES + (uint64_t)i] = (float)call_noise(keys[r], i);
  }
  if (c->flips) call_flip(b);
  bool fails = b->epoch == c->epoch && b->index == c->fails_at;
  if (fails) snprintf(err->message, sizeof err->message, "the call says no");
  atomic_fetch_add(&c->done, 1);
  atomic_fetch_sub(&c->running, 1);
  return fails ? INSITU_E_FORMAT : INSITU_OK;
}

/* ---- drawing ---- */
static inline void draw_call(struct setup *s) {
  static const int64_t noises[] = {CALL_NOISES};
  insitu_loader_desc *d = &s->desc;

  if (!chance(25)) return;
  struct calls *c = s->calls = own(sizeof *c);
  c->flips = chance(40);
  c->epoch = draw(3);
  c->fails_at = chance(10) ? draw(8) : UINT64_MAX;
  c->output[CALL_ROW] = (insitu_output){.label = "row", .dtype = INSITU_U64};
  c->output[CALL_KEY] = (insitu_output){.label = "key", .dtype = INSITU_U64};
  c->output[CALL_NOISE] = (insitu_output){.label = "noise", .ndim = 1, .shape = noises};
  d->on_batch = on_random_batch;
  d->on_batch_user = c;
  d->on_batch_threads = draw(3);
  d->outputs = c->output;
  d->n_outputs = CALL_OUTPUTS;
}

/* ---- what a batch must hold ---- */
/* The key of a row: of its sample, and of patches the number of the patch among those of its
 * sample. */
static inline uint64_t row_key(
    const struct setup *s, uint64_t epoch, const int64_t *anchor, uint64_t patch) {
  uint64_t word[4 + MAX_AXES] = {UINT64_C(0x6F6E5F6261746368), s->desc.seed, epoch};
  int n = 3;

  for (int k = 0; k < s->space->n; k++)
    if (!s->space->axis[k].patch) word[n++] = (uint64_t)anchor[k];
  if (space_patched(s->space)) word[n++] = patch;
  return order_key(word, n);
}

/* The number of a patch among those of its sample. UINT64_MAX: the key is that of no patch. */
static inline uint64_t key_patch(
    const struct setup *s, uint64_t epoch, const int64_t *anchor, uint64_t key) {
  uint64_t n = space_each(s->space);

  for (uint64_t i = 0; i < n; i++)
    if (row_key(s, epoch, anchor, i) == key) return i;
  return UINT64_MAX;
}

/* What on_batch adds to a batch, whose first array is as it was. */
static inline void check_call(const struct setup *s, const insitu_batch *b) {
  const insitu_array *last = b->arrays + b->n_arrays - CALL_OUTPUTS;
  static const char *const names[] = {"row", "key", "noise"};
  const uint64_t *row = last[CALL_ROW].data, *key = last[CALL_KEY].data;
  const float *noise = last[CALL_NOISE].data;

  for (int i = 0; i < CALL_OUTPUTS; i++) {
    uint64_t bytes = i == CALL_NOISE ? 4 * CALL_NOISES : 8;

    if (strcmp(last[i].name, names[i])) differ("output '%s' is '%s'", names[i], last[i].name);
    if (last[i].ndim != 1 + (i == CALL_NOISE) || last[i].shape[0] != (int64_t)b->rows)
      differ("output '%s' has another shape", names[i]);
    if (last[i].row_bytes != bytes || last[i].bytes != bytes * b->rows || last[i].fixed)
      differ("output '%s' has %d bytes", names[i], (int)last[i].bytes);
    if ((uintptr_t)last[i].data % 256) differ("output '%s' is not aligned", names[i]);
    check_place(&last[i], s->calls->output[i].place, s->calls->output[i].device);
  }
  for (uint64_t r = 0; r < b->rows; r++) {
    const int64_t *anchor = b->axis_indices + r * b->n_axes;
    uint64_t patch = space_patched(s->space) ? key_patch(s, b->epoch, anchor, key[r]) : 0;

    if (row[r] != call_row(b, r)) differ("on_batch saw another row %d", (int)r);
    if (patch == UINT64_MAX || key[r] != row_key(s, b->epoch, anchor, patch))
      differ("the key of row %d of epoch %d is %" PRIx64, (int)r, (int)b->epoch, key[r]);
    for (int i = 0; i < CALL_NOISES; i++)
      if ((double)noise[r * CALL_NOISES + (uint64_t)i] != call_noise(key[r], i))
        differ("output 'noise' of row %d differs", (int)r);
  }
}
#endif
