/* What the tests of placement share: a small archive, variables of it that lie anywhere, and copies
 * of batches that are checked later. After support.h. */
#ifndef TESTS_PLACES_H
#define TESTS_PLACES_H
enum { VARS = 4, SAMPLES = 60, MAX_ROWS = 40 };
static struct support_array places_array[3] = {{.name = "x",
                                                   .ndim = 3,
                                                   .shape = {SAMPLES, 6, 10},
                                                   .chunk = {4, 6, 10},
                                                   .dtype = INSITU_F32,
                                                   .format = 2},
    {.name = "y",
        .ndim = 2,
        .shape = {SAMPLES, 5},
        .chunk = {4, 5},
        .dtype = INSITU_I16,
        .format = 2,
        .zstd = true},
    {.name = "z",
        .ndim = 2,
        .shape = {SAMPLES, 7},
        .chunk = {4, 7},
        .dtype = INSITU_U8,
        .format = 2}};
static const int places_of[VARS] = {0, 1, 2, 0};
static const insitu_slice places_slice[2] = {
    {.axis = 1, .start = 1, .stop = 4}, {.axis = 1, .start = 2, .stop = 3}};
static const int64_t places_steps[3] = {-1, 0, 2};
/* Every kind of output: as stored; sliced, of another sample, not aligned; with an axis of steps;
 * converted */
static const insitu_variable places_variable[VARS] = {{.label = "x"},
    {.label = "y", .offset = 1, .slices = &places_slice[0], .n_slices = 1},
    {.label = "z", .steps = places_steps, .n_steps = 3},
    {.label = "d", .path = "x", .dtype = INSITU_F64, .slices = &places_slice[1], .n_slices = 1}};
static const struct {
  int code, bits, n_inner;
  int64_t inner[2];
} places_dl[VARS] = {{2, 32, 2, {6, 10}}, {0, 16, 1, {3}}, {1, 8, 2, {3, 7}}, {2, 64, 2, {1, 10}}};
/* as DLPack has them */

static char places_root[512];
static inline int places_setup(void **state) {
  if (support_setup(state)) return -1;
  snprintf(places_root, sizeof places_root, "%s/places", support_dir);
  for (int i = 0; i < 3; i++) support_make(places_root, &places_array[i]);
  return 0;
}

/* A configuration and its variables; place: of each, a digit of INSITU_HOST to _DEVICE_OR_HOST and
 * one of the device, "00 21". */
struct places {
  insitu_variable variable[VARS];
  insitu_loader_desc desc;
};
static inline insitu_loader_desc *places_desc(struct places *p, int m, const char *place) {
  memcpy(p->variable, places_variable, sizeof p->variable);
  for (int i = 0; i < VARS; i++) {
    p->variable[i].place = place[3 * i] - '0';
    p->variable[i].device = place[3 * i + 1] - '0';
  }
  p->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = places_root,
      .variables = p->variable,
      .n_variables = VARS,
      .batch_size = 8,
      .block_chunks = 4,
      .lanes = 2,
      .seed = 7,
      .prefetch_depth = 2,
      .max_inflight = 8,
      .memory_budget = UINT64_C(1) << 28,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2};
  return &p->desc;
}

/* A batch that was seen: all but its elements at once, and those once a consumer has copied them to
 * data. */
struct seen {
  insitu_batch b;
  insitu_array arrays[VARS];
  int64_t shape[VARS], anchors[MAX_ROWS];
};
static inline struct seen *seen_new(const insitu_batch *b) {
  struct seen *s = calloc(1, sizeof *s);
  assert_non_null(s);
  assert_true(b->n_arrays <= VARS && b->rows <= MAX_ROWS);
  s->b = *b;
  s->b.arrays = s->arrays;
  s->b.sample_indices = s->anchors;
  memcpy(s->anchors, b->sample_indices, b->rows * sizeof *s->anchors);
  for (uint64_t i = 0; i < b->n_arrays; i++) {
    assert_int_equal((uintptr_t)b->arrays[i].data % 256, 0);
    s->arrays[i] = b->arrays[i];
    s->shape[i] = b->arrays[i].shape[0];
    s->arrays[i].shape = &s->shape[i];
    s->arrays[i].data = aligned_alloc(256, (b->arrays[i].bytes + 256) / 256 * 256);
    assert_non_null(s->arrays[i].data);
    memset(s->arrays[i].data, 0x77, b->arrays[i].bytes);
  }
  return s;
}
/* Every element against the formula. */
static inline void seen_check(const struct seen *s) {
  for (uint64_t i = 0; i < s->b.n_arrays; i++)
    support_check_array(&s->b, i, &places_variable[i], &places_array[places_of[i]], 0);
}
static inline void seen_free(struct seen *s) {
  for (uint64_t i = 0; i < s->b.n_arrays; i++) free(s->arrays[i].data);
  free(s);
}

/* ---- refusals: that a word is in a message; that a loader is not opened ---- */
#define HAS(text, word)                                                                            \
  do {                                                                                             \
    if (!strstr(text, word)) fail_msg("'%s' does not name '%s'", text, word);                      \
  } while (0)
static inline void places_refuse_open(
    const insitu_loader_desc *d, insitu_status want, const char *word, const char *advice) {
  insitu_error err = {0};
  insitu_loader *ld = (insitu_loader *)&err;
  insitu_status s = insitu_loader_open(d, &ld, &err);
  if (s != want)
    fail_msg("%s, not %s: %s", insitu_status_name(s), insitu_status_name(want), err.message);
  assert_null(ld);
  assert_int_equal(err.status, want);
  HAS(err.message, word);
  HAS(err.message, advice);
}
#endif
