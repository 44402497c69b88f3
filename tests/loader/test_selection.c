/* What insitu_variable.select and .into make of arrays: batches and insitu_read against the arrays'
 * formula, element by element, for selections that are drawn at random; names, refusals, and what
 * is read. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"

enum { TIME = 14, LEVEL = 6, LAT = 9, LON = 16 };
static const double levels[LEVEL] = {1000, 850, 700, 500, 300, 50};
static double lats[LAT], lons[LON];

/* An archive of t (time, level, lat, lon), s (time, lat, lon) and coordinates, chunked at random.
 */
static struct support_array t = {.name = "t",
                                .ndim = 4,
                                .shape = {TIME, LEVEL, LAT, LON},
                                .dtype = INSITU_I32,
                                .dims = "[\"time\",\"level\",\"lat\",\"lon\"]"},
                            s = {.name = "s",
                                .ndim = 3,
                                .shape = {TIME, LAT, LON},
                                .dtype = INSITU_I16,
                                .dims = "[\"time\",\"lat\",\"lon\"]"};

static void make_archive(const char *root) {
  bool north = support_below(2), single = support_below(2);
  for (int i = 0; i < LAT; i++) lats[i] = (north ? 80 : -80) + (north ? -20 : 20) * i;
  for (int i = 0; i < LON; i++) lons[i] = 22.5 * i;
  int format = 2 + (int)support_below(2);
  support_layout(&t, format);
  support_layout(&s, format);
  support_make(root, &t);
  support_make(root, &s);
  const struct support_array coordinates[] = {{.name = "level",
                                                  .ndim = 1,
                                                  .shape = {LEVEL},
                                                  .chunk = {4},
                                                  .dtype = INSITU_F64,
                                                  .format = format,
                                                  .values = levels,
                                                  .dims = "[\"level\"]"},
      {.name = "lat",
          .ndim = 1,
          .shape = {LAT},
          .chunk = {LAT},
          .dtype = single ? INSITU_F32 : INSITU_F64,
          .format = format,
          .values = lats,
          .dims = "[\"lat\"]"},
      {.name = "lon",
          .ndim = 1,
          .shape = {LON},
          .chunk = {5},
          .dtype = INSITU_F32,
          .format = format,
          .values = lons,
          .dims = "[\"lon\"]",
          .attributes = "\"units\":\"degrees_east\""}};
  for (int i = 0; i < 3; i++) support_make(root, &coordinates[i]);
}

/* Indexes of one axis, in the order of the output. */
struct shown {
  int n, at[64];
};

/* Draws a selection of an axis of n; appends its text, which is nothing where all is shown. values:
 * of its coordinate, or NULL. */
static struct shown draw(const char *dim, int n, const double *values, char *text) {
  struct shown is = {0};
  int way = (int)support_below(values ? 5 : 3), a = (int)support_below((uint64_t)n),
      b = (int)support_below((uint64_t)n);
  char *to = text + strlen(text);
  if (way == 0) {
    for (; is.n < n; is.n++) is.at[is.n] = is.n;
    return is;
  }
  to += sprintf(to, " %s =", dim);
  if (way == 1) { /* a list of indexes */
    int many = 1 + (int)support_below(4);
    for (; is.n < many; is.n++) {
      is.at[is.n] = (int)support_below((uint64_t)n);
      bool negative = support_below(2);
      to += sprintf(to, "%s%d", is.n ? ", " : "[", is.at[is.n] - (negative ? n : 0));
    }
    sprintf(to, "];");
  } else if (way == 2) { /* a range of indexes */
    int step = 1 + (int)support_below(4);
    if (a > b) step = -step;
    for (int i = a; step > 0 ? i <= b : i >= b; i += step) is.at[is.n++] = i;
    int stop = b + (step > 0 ? 1 : -1);
    if (stop < 0) sprintf(to, "[%d::%d];", a, step);
    else sprintf(to, "[%d:%d:%d];", a, stop, step);
  } else if (way == 3) { /* a list of values, some of them near */
    int many = 1 + (int)support_below(4);
    for (; is.n < many; is.n++) {
      is.at[is.n] = (int)support_below((uint64_t)n);
      bool near = support_below(2);
      to += sprintf(to, "%s%.17g", is.n ? "," : "", values[is.at[is.n]] + (near ? 1.5 : 0));
      if (near) to += sprintf(to, "~2");
    }
    sprintf(to, ";");
  } else { /* a range of values, its ends between the values or on them */
    double low = values[0] < values[n - 1] ? -0.5 : 0.5;
    bool on = support_below(2);
    sprintf(to, "%.17g..%.17g;",
        values[a] + (on          ? 0
                        : a <= b ? low
                                 : -low),
        values[b] - (on          ? 0
                        : a <= b ? low
                                 : -low));
    for (int i = a; a <= b ? i <= b : i >= b; i += a <= b ? 1 : -1) is.at[is.n++] = i;
  }
  return is;
}

/* A range of longitudes over the seam, in either direction. */
static struct shown draw_seam(char *text) {
  struct shown is = {0};
  int from = -1 - (int)support_below(7), to = (int)support_below(7);
  bool turned = support_below(2);
  sprintf(
      text + strlen(text), "lon=%g..%g;", 22.5 * (turned ? to : from), 22.5 * (turned ? from : to));
  for (int i = from; i <= to; i++) is.at[is.n++] = (i + LON) % LON;
  for (int i = 0; turned && i < is.n / 2; i++) {
    int other = is.at[i];
    is.at[i] = is.at[is.n - 1 - i];
    is.at[is.n - 1 - i] = other;
  }
  return is;
}

static struct shown draw_lon(char *text) {
  return support_below(3) ? draw("lon", LON, lons, text) : draw_seam(text);
}

/* Element number k of what `shown` shows of an array, along all its axes. */
static double element(const struct support_array *a, const struct shown *shown, uint64_t k) {
  uint64_t at[4] = {0};
  for (int d = a->ndim; d-- > 0;) {
    at[d] = (uint64_t)shown[d].at[k % (uint64_t)shown[d].n];
    k /= (uint64_t)shown[d].n;
  }
  return support_expect(a, at);
}

/* Batches of a variable that select narrows: each element of each row. */
static void drawn_batches(void **state) {
  (void)state;
  const char *root = support_path("selected");
  for (int round = 0; round < support_rounds(60); round++) {
    char select[500] = "";
    make_archive(root);
    struct shown is[4] = {{0}, draw("level", LEVEL, levels, select), draw("lat", LAT, lats, select),
        draw_lon(select)};
    const int64_t steps[] = {0, 1, 2};
    insitu_variable v = {.label = "t", .select = select};
    if (support_below(2)) v.steps = steps, v.n_steps = 1 + support_below(3);
    if (support_below(2)) v.dtype = INSITU_F32;
    int m = any_mode();
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .sample_dim = "time",
        .batch_size = 1 + support_below(5),
        .io = modes[m].io,
        .inline_io = (int32_t)support_below(2),
        .check = (int32_t)support_below(2)};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it =
        open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
    uint64_t rows = 0, n_steps = v.n_steps ? v.n_steps : 1, each = 1;
    for (int i = 1; i < 4; i++) each *= (uint64_t)is[i].n;
    insitu_batch *b;
    insitu_error err = {0};
    insitu_status status;
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
      const insitu_array *a = &b->arrays[0];
      int first = v.n_steps ? 2 : 1;
      assert_int_equal(a->ndim, first + 3);
      assert_null(a->channels);
      for (int i = 1; i < 4; i++) assert_int_equal(a->shape[first + i - 1], is[i].n);
      for (uint64_t row = 0; row < b->rows; row++, rows++)
        for (uint64_t k = 0; k < n_steps * each; k++) {
          is[0] = (struct shown){1, {(int)b->sample_indices[row] + (int)(k / each)}};
          support_same(
              a->data, a->dtype, row * n_steps * each + k, element(&t, is, k % each), select);
        }
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("select '%s': %s", select, err.message);
    assert_int_equal(rows, TIME - (n_steps - 1));
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* insitu_read of any axes. */
static void drawn_reads(void **state) {
  (void)state;
  const char *root = support_path("selected");
  for (int round = 0; round < support_rounds(60); round++) {
    char select[500] = "";
    make_archive(root);
    struct shown is[4] = {draw("time", TIME, NULL, select), draw("level", LEVEL, levels, select),
        draw("lat", LAT, lats, select), draw_lon(select)};
    insitu_loader_desc d = {.api = INSITU_API, .url = root, .plan_only = 1};
    insitu_variable v = {.path = "t", .select = select};
    static int32_t out[64 * 64 * 64 * 16];
    insitu_shape shape;
    insitu_error err = {0};
    insitu_loader *ld = open_or_fail(&d);
    if (insitu_read(ld, &v, out, sizeof out, &shape, &err))
      fail_msg("select '%s': %s", select, err.message);
    uint64_t n = 1;
    for (int i = 0; i < 4; i++) {
      assert_int_equal(shape.shape[i], is[i].n);
      n *= (uint64_t)is[i].n;
    }
    for (uint64_t k = 0; k < n; k++) support_same(out, shape.dtype, k, element(&t, is, k), select);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* Several variables as channels of one output, of arrays with and without levels. */
static void stacked(void **state) {
  (void)state;
  const char *root = support_path("stacked");
  for (int round = 0; round < support_rounds(20); round++) {
    make_archive(root);
    const int64_t steps[] = {-1, 0};
    insitu_variable v[] = {{.label = "t_in",
                               .path = "t",
                               .into = "x",
                               .select = "level=850,500,[0]; lat=40..-20; lon=-45..45",
                               .steps = steps,
                               .n_steps = 2},
        {.label = "t_out",
            .path = "t",
            .into = "y",
            .select = "level=300",
            .offset = 1,
            .dtype = INSITU_F32},
        {.label = "s",
            .into = "x",
            .select = "lat=40..-20; lon=-45..45",
            .steps = steps,
            .n_steps = 2,
            .dtype = INSITU_F64},
        {.label = "alone", .path = "s"}};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = v,
        .n_variables = 4,
        .sample_dim = "time",
        .batch_size = 3,
        .check = 1};
    insitu_loader *ld = open_or_fail(&d);
    assert_null(insitu_loader_array(ld, 3));
    insitu_iter *it =
        open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
    insitu_batch *b = next_batch_or_fail(it);
    insitu_loader_close(&ld); /* names live as long as the batch */
    assert_int_equal(b->n_arrays, 3);
    const insitu_array *x = insitu_batch_find(b, "x"), *y = insitu_batch_find(b, "y"),
                       *alone = insitu_batch_find(b, "alone");
    assert_true(x == &b->arrays[0] && y == &b->arrays[1] && alone == &b->arrays[2]);
    static const char *const channels[] = {"t_in level=850", "t_in level=500", "t_in level=0", "s"};
    const int64_t shape[] = {(int64_t)b->rows, 4, 2, 4, 5};
    assert_int_equal(x->ndim, 5);
    assert_memory_equal(x->shape, shape, sizeof shape);
    for (int c = 0; c < 4; c++) assert_string_equal(x->channels[c], channels[c]);
    assert_int_equal(y->shape[1], 1);
    assert_int_equal(y->ndim, 4);
    assert_string_equal(y->channels[0], "t_out level=300");
    assert_true(x->dtype == INSITU_F64 && y->dtype == INSITU_F32 && alone->dtype == INSITU_I16);
    assert_null(alone->channels);

    static const int level[] = {1, 3, 0};
    bool north = lats[0] > 0;
    struct shown is[4] = {{1, {0}}, {1, {0}}, {4, {0}}, {5, {14, 15, 0, 1, 2}}};
    for (int i = 0; i < 4; i++) is[2].at[i] = north ? 2 + i : 6 - i;
    for (uint64_t row = 0; row < b->rows; row++)
      for (uint64_t c = 0; c < 4; c++)
        for (uint64_t k = 0; k < 2 * 20; k++) {
          is[0].at[0] = (int)b->sample_indices[row] + (int)(k / 20) - 1;
          struct shown plane[3] = {is[0], is[2], is[3]};
          is[1].at[0] = c < 3 ? level[c] : 0;
          double want = c < 3 ? element(&t, is, k % 20) : element(&s, plane, k % 20);
          support_same(x->data, x->dtype, (row * 4 + c) * 40 + k, want, "x");
        }
    for (uint64_t k = 0; k < b->rows * LAT * LON; k++) {
      struct shown all[4] = {{1, {(int)b->sample_indices[k / (LAT * LON)] + 1}}, {1, {4}},
          {LAT, {0, 1, 2, 3, 4, 5, 6, 7, 8}}, {LON, {0}}};
      for (int i = 0; i < LON; i++) all[3].at[i] = i;
      support_same(y->data, y->dtype, k, element(&t, all, k % (LAT * LON)), "y");
    }
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    support_remove(root);
  }
}

/* Two lists make channels of every pair, the one that the text names last the fastest. */
static void pairs(void **state) {
  (void)state;
  const char *root = support_path("pairs");
  make_archive(root);
  insitu_variable v[] = {{.label = "t", .into = "x", .select = "lat=[3,1]; level=500,1000"},
      {.label = "t2", .path = "t", .into = "x", .select = "level=[5]; lat=[0]; lon=[::1]"}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 2,
      .sample_dim = "time",
      .batch_size = 4};
  insitu_loader *ld = open_or_fail(&d);
  const insitu_array *x = insitu_loader_array(ld, 0);
  static const char *const names[] = {"t lat=3 level=500", "t lat=3 level=1000",
      "t lat=1 level=500", "t lat=1 level=1000", "t2 level=5 lat=0"};
  static const int at[][2] = {{3, 3}, {0, 3}, {3, 1}, {0, 1}, {5, 0}};
  assert_int_equal(x->ndim, 3);
  assert_int_equal(x->shape[1], 5);
  for (int c = 0; c < 5; c++) assert_string_equal(x->channels[c], names[c]);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b = next_batch_or_fail(it);
  for (uint64_t k = 0; k < b->rows * 5 * LON; k++) {
    uint64_t c = k / LON % 5;
    struct shown is[4] = {{1, {(int)b->sample_indices[k / (5 * LON)]}}, {1, {at[c][0]}},
        {1, {at[c][1]}}, {1, {(int)(k % LON)}}};
    support_same(b->arrays[0].data, b->arrays[0].dtype, k, element(&t, is, 0), "x");
  }
  insitu_batch_release(&b);
  char json[20000];
  assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
  assert_non_null(strstr(json, "\"channels\": [\"t lat=3 level=500\", \"t lat=3 level=1000\""));
  assert_non_null(strstr(json, "\"select\": \"lat=[3,1]; level=500,1000\", \"into\": \"x\""));
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  support_remove(root);
}

/* Only chunks that hold something selected are read. */
static void touched(void **state) {
  (void)state;
  const char *root = support_path("touched");
  make_archive(root);
  struct support_array a = t;
  a.name = "a";
  a.format = s.format;
  a.absent = 0;
  memcpy(a.chunk, (uint64_t[]){1, 1, 3, 4}, sizeof a.chunk);
  memset(a.shard, 0, sizeof a.shard);
  support_make(root, &a);
  static const struct {
    const char *select;
    uint64_t chunks; /* of one sample */
  } cases[] = {{NULL, 6 * 3 * 4}, {"level=850", 3 * 4}, {"level=850,50", 2 * 3 * 4},
      {"level=850,50; lat=[0,8]; lon=[0,15]", 2 * 2 * 2}, {"lat=[::8]; lon=0..80", 6 * 2 * 1},
      {"lon=-22.5..22.5; level=[0]", 3 * 2}, {"lon=[0:16:5]; level=[0]; lat=[4]", 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_variable v = {.label = "a", .select = cases[i].select};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .sample_dim = "time",
        .batch_size = 1,
        .hold_epoch = 1};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
    insitu_stats opened, after;
    assert_int_equal(insitu_loader_stats(ld, &opened, NULL), INSITU_OK); /* with coordinates */
    insitu_iter *it = open_iter_or_fail(ld, &pass);
    insitu_plan plan;
    assert_int_equal(insitu_loader_plan(ld, &pass, &plan, NULL), INSITU_OK);
    assert_int_equal(plan.reads, TIME * cases[i].chunks);
    assert_int_equal(plan.wanted, plan.reads);
    insitu_batch *b;
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
    assert_int_equal(after.reads - opened.reads, TIME * cases[i].chunks);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* The most axes that an output can have: those of the array, steps and channels. */
static void most_axes(void **state) {
  (void)state;
  unsigned char bytes[4 * 2 * 3];
  for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
  archive_begin();
  archive_text("a/.zarray",
      "{\"zarr_format\":2,\"shape\":[4,2,1,1,1,1,1,1,1,1,1,1,1,1,1,3],"
      "\"chunks\":[4,2,1,1,1,1,1,1,1,1,1,1,1,1,1,3],\"dtype\":\"|u1\",\"compressor\":null,"
      "\"filters\":null,\"fill_value\":0,\"order\":\"C\"}");
  archive_text(".zgroup", "{\"zarr_format\":2}");
  archive_add("a/0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0", bytes, sizeof bytes);
  const int64_t steps[] = {0, 1};
  insitu_variable v = {
      .label = "a", .into = "x", .steps = steps, .n_steps = 2, .select = "15=[::-1]"};
  insitu_loader *ld = archive_open(
      (insitu_loader_desc){.variables = &v, .n_variables = 1, .batch_size = 2}, any_mode());
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b = next_batch_or_fail(it);
  const insitu_array *a = &b->arrays[0];
  assert_int_equal(a->ndim, 18);
  for (int d = 0; d < 18; d++) {
    static const int64_t shape[18] = {2, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    static const int64_t strides[18] = {12, 12, 6, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1};
    assert_int_equal(a->shape[d], shape[d]);
    assert_int_equal(a->strides[d], strides[d]);
  }
  for (int k = 0; k < 24; k++) {
    int t = (int)b->sample_indices[k / 12] + k / 6 % 2;
    assert_int_equal(((const unsigned char *)a->data)[k], t * 6 + k / 3 % 2 * 3 + 2 - k % 3);
  }
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* Ranks that read boxes of their own have equal states, and one rank goes on with another box. */
static void states(void **state) {
  (void)state;
  const char *root = support_path("states");
  make_archive(root);
  insitu_state saved = {{0}};
  int64_t next[2][4];
  static const char *const select[] = {"lat=[0:4]", "lat=[4:9]; level=500"};
  for (int i = 0; i < 2; i++) {
    insitu_variable v = {.label = i ? "other" : "t", .path = "t", .select = select[i]};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .sample_dim = "time",
        .split = {{.fraction = 1}},
        .batch_size = 4};
    second_batch(&d, &saved, next[i]);
  }
  assert_memory_equal(next[0], next[1], sizeof next[0]);
  support_remove(root);
}

static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  make_archive(root);
  static const double mixed[] = {1, 3, 2, 4, 5, 6};
  struct support_array odd = {.name = "odd",
      .ndim = 2,
      .shape = {TIME, 6},
      .chunk = {3, 3},
      .dtype = INSITU_I16,
      .format = s.format,
      .dims = "[\"time\",\"mixed\"]"};
  support_make(root, &odd);
  struct support_array bare = odd;
  bare.name = "bare";
  bare.dims = "[\"time\",\"nothing\"]";
  support_make(root, &bare);
  struct support_array axis = {.name = "mixed",
      .ndim = 1,
      .shape = {6},
      .chunk = {6},
      .dtype = INSITU_F64,
      .format = s.format,
      .values = mixed,
      .dims = "[\"mixed\"]"};
  support_make(root, &axis);
  static const insitu_slice slice[] = {{.dim = "level", .start = 1, .stop = 2}};
  static const struct {
    insitu_variable v[2];
    insitu_status status;
    const char *says;
  } cases[] = {{{{.label = "t", .select = "level=501"}}, INSITU_E_NOTFOUND,
                   "values next to 501 are 500 and 700"},
      {{{.label = "t", .select = "level"}}, INSITU_E_ARG, "names no dimension"},
      {{{.label = "t", .select = "levels=500"}}, INSITU_E_NOTFOUND,
          "no dimension is called 'levels'"},
      {{{.label = "t",
           .select = "a_name_that_is_longer_than_any_dimension_may_have_one_"
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz=5"}},
          INSITU_E_NOTFOUND, "no dimension has a name as long"},
      {{{.label = "t", .select = "time=[0:3]"}}, INSITU_E_ARG, "use sample_start and sample_stop"},
      {{{.label = "t", .select = "level=500; level=850"}}, INSITU_E_ARG, "name it once"},
      {{{.label = "t", .select = "level=500", .slices = slice, .n_slices = 1}}, INSITU_E_ARG,
          "name it once"},
      {{{.label = "t", .select = "lat=[9]"}}, INSITU_E_SHAPE, "axis of 9"},
      {{{.label = "t", .select = "level=1..2"}}, INSITU_E_NOTFOUND, "selects nothing"},
      {{{.label = "odd", .select = "mixed=1..3"}}, INSITU_E_FORMAT, "neither rise nor fall"},
      {{{.label = "bare", .select = "nothing=1"}}, INSITU_E_NOTFOUND, "no coordinate 'nothing'"},
      {{{.label = "t", .into = ""}}, INSITU_E_ARG, "into is empty"},
      {{{.label = "t", .into = "s"}, {.label = "s"}}, INSITU_E_ARG, "label of another variable"},
      {{{.label = "t", .into = "x", .dtype = INSITU_F32}, {.label = "s", .into = "x"}},
          INSITU_E_SHAPE, "(9, 16), and one of output x has (6, 9, 16)"},
      {{{.label = "t", .into = "x", .select = "level=500"}, {.label = "s", .into = "x"}},
          INSITU_E_DTYPE, "name one dtype"},
      {{{.label = "t", .into = "x", .dtype = INSITU_F32},
           {.label = "t2", .path = "t", .into = "x", .dtype = INSITU_F64}},
          INSITU_E_ARG, "name each of them once"},
      {{{.label = "none", .select = "empty=5"}}, INSITU_E_NOTFOUND, "it has no other value"}};
  struct support_array none = bare, empty = axis;
  none.name = "none";
  none.dims = "[\"time\",\"empty\"]";
  none.shape[1] = 0;
  empty.name = "empty";
  empty.dims = "[\"empty\"]";
  empty.shape[0] = 0;
  support_metadata(root, &none);
  support_metadata(root, &empty);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = cases[i].v,
        .n_variables = 1 + (cases[i].v[1].label != NULL),
        .sample_dim = "time",
        .batch_size = 4};
    refuse_or_fail(&d, cases[i].status, cases[i].says);
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_batches), cmocka_unit_test(drawn_reads),
      cmocka_unit_test(stacked), cmocka_unit_test(pairs), cmocka_unit_test(touched),
      cmocka_unit_test(most_axes), cmocka_unit_test(states), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
