/* insitu_iter_set_steps: batches that show fewer steps than their variables name, against the
 * arrays' formula; what is read for them; what does not change; when it may be called. */
#include "insitubatch.h"
#include <stdatomic.h>
#include "support.h"
#include "modes.h"

enum { TIME = 48, LEVEL = 4, LAT = 5, LON = 6, MOST = 5 };
static struct support_array t = {.name = "t",
                                .ndim = 4,
                                .shape = {TIME, LEVEL, LAT, LON},
                                .dtype = INSITU_F32,
                                .dims = "[\"time\",\"level\",\"lat\",\"lon\"]"},
                            s = {.name = "s",
                                .ndim = 3,
                                .shape = {LAT, TIME, LON},
                                .dtype = INSITU_I16,
                                .dims = "[\"lat\",\"time\",\"lon\"]"},
                            orog = {.name = "orog",
                                .ndim = 2,
                                .shape = {LAT, LON},
                                .chunk = {2, LON},
                                .dtype = INSITU_I16,
                                .dims = "[\"lat\",\"lon\"]"};

/* Arrays that are chunked at random; chunks of one sample where single is true. */
static const char *make_archive(const char *name, bool single) {
  const char *root = support_path(name);
  int format = 2 + (int)support_below(2);
  t.format = s.format = orog.format = format;
  t.zstd = support_below(2), s.zstd = support_below(2);
  t.fortran = !single && support_below(3) == 0;
  for (int d = 0; d < 4; d++) t.chunk[d] = 1 + support_below(t.shape[d] / 2);
  for (int d = 0; d < 3; d++) s.chunk[d] = 1 + support_below(s.shape[d] / 2);
  if (single) t.chunk[0] = s.chunk[1] = 1;
  memset(t.shard, 0, sizeof t.shard);
  bool sharded = format == 3 && support_below(2);
  for (int d = 0; sharded && d < 4; d++) t.shard[d] = 1 + support_below(3);
  support_make(root, &t);
  support_make(root, &s);
  support_make(root, &orog);
  return root;
}

/* x: two channels of t and one of s; y: the same, with lists that become channels; z: s alone, of
 * another type; now: without steps; orog: fixed. */
static const int64_t in[] = {-1, 0}, out[MOST] = {1, 2, 3, 5, 9}, odd[] = {4, -2, 4, 0};
static const insitu_variable variables[] = {{.label = "t_in",
                                                .path = "t",
                                                .into = "x",
                                                .select = "level=[1]",
                                                .steps = in,
                                                .n_steps = 2,
                                                .dtype = INSITU_F32},
    {.label = "s_in", .path = "s", .into = "x", .steps = in, .n_steps = 2},
    {.label = "t_out",
        .path = "t",
        .into = "y",
        .select = "level=[3,0]; lat=[::-1]",
        .steps = out,
        .n_steps = MOST,
        .dtype = INSITU_F32},
    {.label = "s_out",
        .path = "s",
        .into = "y",
        .select = "lat=[::-1]",
        .steps = out,
        .n_steps = MOST},
    {.label = "z",
        .path = "s",
        .offset = 1,
        .steps = odd,
        .n_steps = 4,
        .dtype = INSITU_F64,
        .select = "lat=[1:4]"},
    {.label = "now", .path = "t", .select = "level=[2]; lon=[0:2]"}, {.label = "orog", .fixed = 1}};
enum { N_VARIABLES = sizeof variables / sizeof *variables, X = 0, Y, Z, NOW, OROG, OUTPUTS };
static const char *const names[OUTPUTS] = {"x", "y", "z", "now", "orog"};
static const uint64_t all[OUTPUTS] = {2, MOST, 4, 1, 0};

static insitu_loader *open_loader(const char *root, insitu_loader_desc d) {
  d.api = INSITU_API;
  d.url = root;
  d.variables = variables;
  d.n_variables = N_VARIABLES;
  d.sample_dim = "time";
  if (!d.split[0].fraction) d.split[0].fraction = 1;
  if (!d.batch_size) d.batch_size = 4;
  return open_or_fail(&d);
}
static insitu_iter *open_train(insitu_loader *ld) {
  return open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
}
static void set(insitu_iter *it, const char *output, uint64_t n) {
  insitu_error err = {0};
  if (insitu_iter_set_steps(it, output, n, &err)) fail_msg("%s", err.message);
}
static insitu_stats stats_of(const insitu_loader *ld) {
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  return stats;
}

/* An element of a row: of one step of one channel of an output. */
static double expected(int output, int64_t anchor, uint64_t c, uint64_t k, uint64_t y, uint64_t x) {
  bool of_s = output == Z || (output == X && c == 1) || (output == Y && c == 2);
  uint64_t level = output == NOW ? 2 : output == X ? 1 : c == 0 ? 3 : 0;
  int64_t delta = output == X ? in[k] : output == Y ? out[k] : output == Z ? 1 + odd[k] : 0;
  uint64_t time = (uint64_t)(anchor + delta), lat = output == Y ? LAT - 1 - y : y + (output == Z);
  return of_s ? support_expect(&s, (uint64_t[]){lat, time, x})
              : support_expect(&t, (uint64_t[]){time, level, lat, x});
}

/* Every element, shape and stride of a batch that shows so many steps of each output. */
static void check(const insitu_batch *b, const uint64_t shown[OUTPUTS]) {
  assert_int_equal(b->n_arrays, OUTPUTS);
  assert_int_equal(b->arrays[OROG].shape[0], LAT);
  for (uint64_t i = 0; i < LAT * LON; i++)
    assert_int_equal(((const int16_t *)b->arrays[OROG].data)[i], i);
  for (int o = 0; o < OROG; o++) {
    const insitu_array *a = &b->arrays[o];
    uint64_t n[5] = {b->rows,
        o == X   ? 2
        : o == Y ? 3
                 : 1,
        shown[o], o == Z ? 3 : LAT, o == NOW ? 2 : LON};
    uint64_t element = 0, item = (uint64_t)(a->dtype & 0xff) / 8, stride = 1;
    int d = a->ndim;
    assert_string_equal(a->name, names[o]);
    for (int i = 5; i-- > 0;) {
      if ((i == 1 && o == Z) || (i == 2 && o == NOW)) continue;
      assert_true(d-- > 0);
      assert_int_equal(a->shape[d], n[i]);
      assert_int_equal(a->strides[d], stride);
      stride *= n[i];
    }
    assert_int_equal(d, 0);
    assert_int_equal((uintptr_t)a->data % 256, 0);
    assert_int_equal(a->bytes, stride * item);
    assert_int_equal(a->row_bytes * b->rows, a->bytes);
    for (uint64_t row = 0; row < n[0]; row++)
      for (uint64_t c = 0; c < n[1]; c++)
        for (uint64_t k = 0; k < n[2]; k++)
          for (uint64_t y = 0; y < n[3]; y++)
            for (uint64_t x = 0; x < n[4]; x++, element++) {
              double got = support_get((const char *)a->data + element * item, a->dtype),
                     want = expected(o, b->sample_indices[row], c, k, y, x);
              if (got != want)
                fail_msg("%s, row %d, channel %d, step %d of %d: %g, not %g", a->name, (int)row,
                    (int)c, (int)k, (int)n[2], got, want);
            }
  }
}

/* One epoch, of batches that show so many steps; how many there were. */
static uint64_t epoch(insitu_iter *it, const uint64_t shown[OUTPUTS]) {
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status;
  uint64_t n = 0;
  for (; (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK; n++) {
    check(b, shown);
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  return n;
}

/* Any numbers of steps, drawn anew for each epoch, with all that may run beside. */
static void drawn(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(24); round++) {
    const char *root = make_archive("drawn", false);
    int m = any_mode();
    insitu_loader *ld = open_loader(root, (insitu_loader_desc){.io = modes[m].io,
                                              .inline_io = (int32_t)support_below(2),
                                              .batch_size = 1 + support_below(6),
                                              .block_chunks = 1 + support_below(20),
                                              .prefetch_depth = support_below(6),
                                              .hold_epoch = (int32_t)support_below(2),
                                              .check = (int32_t)support_below(2)});
    insitu_iter *it = open_train(ld);
    uint64_t shown[OUTPUTS], batches = 0;
    memcpy(shown, all, sizeof shown);
    for (int e = 0; e < 6; e++) {
      for (int o = 0; o < NOW; o++) {
        if (support_below(2)) continue;
        shown[o] = 1 + support_below(all[o]);
        set(it, names[o], shown[o]);
      }
      uint64_t n = epoch(it, shown);
      if (e) assert_int_equal(n, batches);
      batches = n;
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* Held batches keep what they show, and tell it, while others show less. */
static void held(void **state) {
  (void)state;
  const char *root = make_archive("held", false);
  EACH_MODE (m) {
    insitu_loader *ld =
        open_loader(root, (insitu_loader_desc){.io = modes[m].io, .inline_io = modes[m].inline_io});
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .max_held = 4});
    const uint64_t shown[3][OUTPUTS] = {{2, MOST, 4, 1}, {2, 1, 4, 1}, {1, 3, 2, 1}};
    insitu_batch *b[3];
    for (int i = 0; i < 3; i++) {
      assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)i, NULL), INSITU_OK);
      for (int o = 0; o < NOW; o++) set(it, names[o], shown[i][o]);
      b[i] = next_batch_or_fail(it);
      epoch(it, shown[i]);
    }
    for (int i = 0; i < 3; i++) check(b[i], shown[i]);
    insitu_iter_close(&it); /* batches and their shapes outlive both */
    insitu_loader_close(&ld);
    for (int i = 3; i-- > 0;) {
      check(b[i], shown[i]);
      insitu_batch_release(&b[i]);
    }
  }
  support_remove(root);
}

/* Iterators of one loader show what they are told, each for itself; samples, order and states are
 * those of one that shows all. */
static void beside(void **state) {
  (void)state;
  const char *root = make_archive("beside", false);
  insitu_loader *ld = open_loader(root, (insitu_loader_desc){.seed = 3});
  insitu_iter *it[3];
  const uint64_t shown[3][OUTPUTS] = {{2, MOST, 4, 1}, {2, 1, 4, 1}, {1, 2, 3, 1}};
  for (int i = 0; i < 3; i++) it[i] = open_train(ld);
  uint64_t promised = stats_of(ld).memory_promised;
  for (int i = 0; i < 3; i++)
    for (int o = 0; o < NOW; o++) set(it[i], names[o], shown[i][o]);
  insitu_error err = {0};
  insitu_batch *b[3];
  for (insitu_status status = 0; !status;) {
    for (int i = 0; i < 3; i++) {
      insitu_status now = insitu_iter_next(it[i], 20000, &b[i], &err);
      if (i) assert_int_equal(now, status);
      status = now;
      if (!status) check(b[i], shown[i]);
      if (i && !status) {
        assert_int_equal(b[i]->rows, b[0]->rows);
        assert_memory_equal(b[i]->sample_indices, b[0]->sample_indices, 8 * b[0]->rows);
        assert_memory_equal(&b[i]->after, &b[0]->after, sizeof b[0]->after);
      }
    }
    for (int i = 0; i < 3 && !status; i++) insitu_batch_release(&b[i]);
  }
  assert_int_equal(stats_of(ld).memory_promised, promised);
  assert_int_equal(insitu_loader_array(ld, Y)->shape[2], MOST);
  insitu_iter_close(&it[1]);
  epoch(it[0], shown[0]);
  epoch(it[2], shown[2]);
  insitu_iter_close(&it[0]);
  insitu_iter_close(&it[2]);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Of arrays in chunks of one sample. */
static const insitu_variable single[] = {
    {.label = "a", .path = "t", .steps = out, .n_steps = MOST, .select = "level=[0]; lat=[0]"},
    {.label = "b", .path = "s", .steps = odd, .n_steps = 4, .select = "lat=[0:2]"}};

/* Reads are exactly those of the steps that are shown, and at END with hold_epoch no read is thrown
 * away. */
static void reads(void **state) {
  (void)state;
  t.shard[0] = 0;
  const char *root = make_archive("reads", true);
  EACH_MODE (m) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = single,
        .n_variables = 2,
        .sample_dim = "time",
        .split = {{.fraction = 1}},
        .batch_size = 1,
        .block_chunks = 1,
        .unit_chunks = 1,
        .hold_epoch = 1,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_train(ld);
    insitu_batch *b;
    uint64_t anchors = 0, a_fields = support_ceil_div(LON, t.chunk[3]),
             b_fields = support_ceil_div(2, s.chunk[0]) * support_ceil_div(LON, s.chunk[2]);
    /* a window is one sample: nothing is shared between samples, and of b two steps are the same */
    static const uint64_t distinct[] = {0, 1, 2, 2, 3};
    for (; insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK; anchors++) insitu_batch_release(&b);
    uint64_t before = stats_of(ld).reads;
    assert_int_equal(before, anchors * (MOST * a_fields + 3 * b_fields));
    for (int round = 0; round < 12; round++) {
      uint64_t na = 1, nb = 1;
      for (int k = 0; k < 3; k++) { /* the last one counts */
        set(it, "a", na = 1 + support_below(MOST));
        set(it, "b", nb = 1 + support_below(4));
      }
      for (uint64_t n = 0; n <= anchors; n++) {
        insitu_status status = insitu_iter_next(it, 20000, &b, NULL);
        assert_int_equal(status, n < anchors ? INSITU_OK : INSITU_END);
        if (status) continue;
        assert_int_equal(b->arrays[0].shape[1], na);
        assert_int_equal(b->arrays[1].shape[1], nb);
        insitu_batch_release(&b);
      }
      uint64_t now = stats_of(ld).reads;
      assert_int_equal(now - before, anchors * (na * a_fields + distinct[nb] * b_fields));
      before = now;
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Chunks that hidden steps alone show are not touched: they may be damaged, and an error that was
 * prefetched for them is forgotten. */
static void untouched(void **state) {
  (void)state;
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {20, 3},
      .chunk = {1, 3},
      .dtype = INSITU_I32,
      .format = 2,
      .absent = 20}; /* the last sample's chunk */
  const char *root = support_path("untouched");
  support_make(root, &a);
  static const int64_t steps[] = {0, 4};
  insitu_variable v = {.label = "a", .steps = steps, .n_steps = 2};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 4,
      .on_absent_chunk = INSITU_RAISE};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status;
  for (int round = 0; round < 3; round++) {
    uint64_t n = 0, shown = round == 1 ? 2 : 1;
    set(it, "a", shown);
    for (; (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK; n++) {
      for (uint64_t row = 0; row < b->rows; row++)
        for (uint64_t k = 0; k < shown * 3; k++)
          assert_int_equal(((const int32_t *)b->arrays[0].data)[row * shown * 3 + k],
              (b->sample_indices[row] + (k < 3 ? 0 : 4)) * 3 + (int64_t)k % 3);
      insitu_batch_release(&b);
    }
    assert_int_equal(n, shown == 1 ? 4 : 3); /* the last of 4 batches is damaged */
    assert_int_equal(status, shown == 1 ? INSITU_END : INSITU_E_ABSENT);
    if (shown == 1) continue;
    status = insitu_iter_set_steps(it, "a", 1, &err);
    assert_int_equal(status, INSITU_E_ARG);
    assert_non_null(strstr(err.message, "an error ended the iterator"));
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_E_ABSENT);
    assert_int_equal(insitu_iter_set_epoch(it, 2, NULL), INSITU_OK);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* The same number again throws nothing away: what was prefetched of the next epoch is kept. */
static void kept(void **state) {
  (void)state;
  const char *root = make_archive("kept", true);
  insitu_loader *ld = open_loader(root, (insitu_loader_desc){.block_chunks = 1, .batch_size = 8});
  insitu_iter *it = open_train(ld);
  const uint64_t shown[OUTPUTS] = {2, 2, 4, 1};
  set(it, "y", 2);
  epoch(it, shown);
  epoch(it, shown);
  uint64_t before = 0, reads = stats_of(ld).reads;
  for (int idle = 0; idle < 20;) { /* until the prefetching has come to its end */
    poll(NULL, 0, 5);
    uint64_t now = stats_of(ld).reads;
    idle = now == reads ? idle + 1 : 0;
    reads = now;
  }
  before = reads;
  for (int i = 0; i < 5; i++) {
    set(it, "y", 2);
    set(it, "z", 4);
    poll(NULL, 0, 5);
    assert_int_equal(stats_of(ld).reads, before);
  }
  set(it, "y", 3); /* and another one does */
  epoch(it, (const uint64_t[OUTPUTS]){2, 3, 4, 1});
  assert_true(stats_of(ld).reads > before);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* A state says nothing of shown steps. Behind restore, in the middle of an epoch and at its end,
 * they may be set, and what comes is what would have come. */
static void resumed(void **state) {
  (void)state;
  const char *root = make_archive("resumed", false);
  insitu_state after[64];
  int64_t rows[64][4];
  const uint64_t shown[OUTPUTS] = {2, 2, 1, 1};
  insitu_error err = {0};
  insitu_batch *b;
  uint64_t n = 0;
  for (int hold = 0; hold < 2; hold++) {
    insitu_loader *ld = open_loader(root, (insitu_loader_desc){.hold_epoch = hold});
    insitu_iter *it = open_train(ld);
    set(it, "y", 2);
    set(it, "z", 1);
    for (n = 0; insitu_iter_next(it, 20000, &b, &err) == INSITU_OK; n++) {
      check(b, shown);
      after[n] = b->after;
      memcpy(rows[n], b->sample_indices, sizeof rows[n]);
      insitu_batch_release(&b);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);

    ld = open_loader(root, (insitu_loader_desc){.hold_epoch = hold});
    it = open_train(ld);
    uint64_t other[OUTPUTS] = {1, 4, 4, 1};
    for (int o = 0; o < NOW; o++) set(it, names[o], other[o]);
    for (uint64_t k = 0; k < n; k++) {
      assert_int_equal(insitu_iter_restore(it, &after[k], &err), INSITU_OK);
      bool anew = support_below(2); /* else restore leaves them as they are */
      if (anew) other[Y] = 1 + support_below(MOST);
      if (anew) set(it, "y", other[Y]);
      for (uint64_t next = k + 1; next < n; next++) {
        b = next_batch_or_fail(it);
        check(b, other);
        assert_memory_equal(b->sample_indices, rows[next], sizeof rows[next]);
        assert_memory_equal(&b->after, &after[next], sizeof b->after);
        insitu_batch_release(&b);
      }
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_END); /* once */
    }
    other[Y] = MOST;
    set(it, "y", MOST);
    b = next_batch_or_fail(it);
    check(b, other);
    assert_int_equal(b->epoch, 1);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

static void refuse(
    insitu_iter *it, const char *output, uint64_t n, insitu_status want, const char *words) {
  insitu_error err = {0};
  insitu_status status = insitu_iter_set_steps(it, output, n, &err);
  if (status != want || err.status != want || !strstr(err.message, words))
    fail_msg("%s: '%s', not '%s'", insitu_status_name(status), err.message, words);
}

static void refused(void **state) {
  (void)state;
  const char *root = make_archive("refused", false);
  EACH_MODE (m) {
    insitu_loader *ld =
        open_loader(root, (insitu_loader_desc){.io = modes[m].io, .inline_io = modes[m].inline_io});
    insitu_iter *it = open_train(ld);
    insitu_error err = {0};
    insitu_batch *b;
    uint64_t shown[OUTPUTS] = {2, 3, 4, 1};
    set(it, "y", 3);
    refuse(it, NULL, 1, INSITU_E_ARG, "give the name");
    refuse(it, "yy", 1, INSITU_E_NOTFOUND, "did you mean 'y'?");
    refuse(it, "temperature", 1, INSITU_E_NOTFOUND, "insitu_loader_array");
    refuse(it, "t_out", 1, INSITU_E_NOTFOUND, "a part of output y; name that");
    refuse(it, "now", 1, INSITU_E_ARG, "variable now has no steps");
    refuse(it, "orog", 1, INSITU_E_ARG, "output orog: it is fixed, and has neither");
    refuse(it, "y", 0, INSITU_E_ARG, "give 1 to 5");
    refuse(it, "y", 6, INSITU_E_ARG, "6 of its 5 steps");
    refuse(it, "y", UINT64_MAX, INSITU_E_ARG, "give 1 to 5");
    refuse(NULL, "y", 1, INSITU_E_ARG, "NULL");
    assert_int_equal(insitu_iter_next(it, 0, &b, &err) & ~INSITU_TIMEOUT, 0);
    if (!b) { /* nothing came yet */
      set(it, "y", 2);
      set(it, "y", 3);
      b = next_batch_or_fail(it);
    }
    for (;;) {
      check(b, shown);
      insitu_batch_release(&b);
      /* in the middle, and where only END is left: also what would change nothing */
      refuse(it, "y", 1, INSITU_E_ARG, "batches of epoch 0");
      refuse(it, "y", 3, INSITU_E_ARG, "insitu_iter_restore");
      insitu_status status = insitu_iter_next(it, 20000, &b, &err);
      if (status == INSITU_END) break;
      assert_int_equal(status, INSITU_OK);
    }
    set(it, "y", 1); /* END was told */
    shown[Y] = 1;
    b = next_batch_or_fail(it);
    check(b, shown);
    insitu_batch_release(&b);
    refuse(it, "y", 1, INSITU_E_ARG, "batches of epoch 1");
    assert_int_equal(insitu_iter_set_epoch(it, 7, NULL), INSITU_OK);
    set(it, "y", 2);
    shown[Y] = 2;
    b = next_batch_or_fail(it);
    check(b, shown);
    assert_int_equal(b->epoch, 7);
    insitu_batch_release(&b);
    /* behind batches that are left out the epoch is still under way, whether or not one came */
    assert_int_equal(insitu_iter_skip(it, 1, 1, &err), INSITU_OK);
    assert_int_equal(insitu_iter_next(it, 0, &b, &err) & ~INSITU_TIMEOUT, 0);
    refuse(it, "y", 1, INSITU_E_ARG, "epoch 7");
    insitu_batch_release(&b);
    /* not so before the first batch of the epoch */
    assert_int_equal(insitu_iter_set_epoch(it, 8, NULL), INSITU_OK);
    assert_int_equal(insitu_iter_skip(it, 0, 1, &err), INSITU_OK);
    assert_int_equal(insitu_iter_next(it, 0, &b, &err) & ~INSITU_TIMEOUT, 0);
    if (!b) set(it, "y", 1);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    refuse(it, "y", 1, INSITU_E_ARG, "was closed");
    insitu_iter_close(&it);
  }

  /* of two variables, one has levels where the other has steps: the output has no steps */
  static const insitu_variable mixed[] = {
      {.label = "a", .path = "s", .into = "m", .steps = out, .n_steps = LEVEL, .dtype = INSITU_F32},
      {.label = "b", .path = "t", .into = "m"}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = mixed,
      .n_variables = 2,
      .sample_dim = "time",
      .batch_size = 4};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_train(ld);
  refuse(it, "m", 1, INSITU_E_ARG, "variable b has no steps");
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Calls of on_batch for this batch do not return before the test lets them; UINT64_MAX: all do. */
static _Atomic uint64_t stuck = UINT64_MAX;
static insitu_status call(void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  (void)user, (void)keys, (void)err;
  while (atomic_load(&stuck) == b->index) usleep(1000);
  return INSITU_OK;
}
/* Goes past what is left out, to a batch that does not come in time. */
static void time_out_at(insitu_iter *it, uint64_t index) {
  insitu_batch *b;
  atomic_store(&stuck, index);
  assert_int_equal(insitu_iter_next(it, 20, &b, NULL), INSITU_TIMEOUT);
  atomic_store(&stuck, UINT64_MAX);
}

/* A call of next that timed out behind batches that are left out has moved the iterator. Of the
 * epoch, a batch was delivered before, or none was: that alone decides. */
static void behind_skips(void **state) {
  (void)state;
  const char *root = make_archive("skips", false);
  EACH_MODE (m) {
    if (modes[m].inline_io) continue; /* the call that never returns would be inside next */
    insitu_loader *ld = open_loader(root, (insitu_loader_desc){.io = modes[m].io,
                                              .batch_size = 2,
                                              .prefetch_depth = 1,
                                              .hold_epoch = 1,
                                              .on_batch = call});
    insitu_iter *it = open_train(ld);
    insitu_error err = {0};
    const uint64_t shown[OUTPUTS] = {2, 3, 4, 1};
    set(it, "y", 3);
    insitu_batch *b = next_batch_or_fail(it);
    insitu_batch_release(&b);
    assert_int_equal(insitu_iter_skip(it, 1, 3, &err), INSITU_OK);
    time_out_at(it, 4);
    refuse(it, "y", 1, INSITU_E_ARG, "batches of epoch 0 were delivered");
    refuse(it, "y", 3, INSITU_E_ARG, "insitu_iter_restore");
    assert_int_equal(insitu_iter_skip(it, 1, 3, &err), INSITU_OK); /* they are left out already */
    assert_int_equal(insitu_iter_skip(it, 3, 3, &err), INSITU_OK); /* and two more */
    assert_int_equal(insitu_iter_skip(it, 0, 4, &err), INSITU_E_ARG); /* 0 was delivered */
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, 6);
    check(b, shown);
    insitu_batch_release(&b);
    refuse(it, "y", 1, INSITU_E_ARG, "batches of epoch 0 were delivered");

    epoch(it, shown); /* END was told: nothing of epoch 1 was delivered */
    assert_int_equal(insitu_iter_skip(it, 0, 3, &err), INSITU_OK);
    time_out_at(it, 3);
    set(it, "y", 2);
    set(it, "y", 3);
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, 3);
    check(b, shown);
    refuse(it, "y", 1, INSITU_E_ARG, "batches of epoch 1 were delivered");

    insitu_state after = b->after; /* a restored iterator has delivered nothing, either */
    insitu_batch_release(&b);
    assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_OK);
    assert_int_equal(insitu_iter_skip(it, 4, 2, &err), INSITU_OK);
    time_out_at(it, 6);
    set(it, "y", 1);
    assert_int_equal(insitu_iter_set_epoch(it, 1, &err), INSITU_OK);
    set(it, "y", 3);
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, 0);
    check(b, shown);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Steps of long chunks, whose row lists are pieces: any number of them is shown right, and no list
 * is longer than what the loader took memory for. */
static void pieces(
    const char *root, const int64_t *steps, uint64_t n_steps, const uint64_t *shown) {
  insitu_variable v = {.label = "a", .steps = steps, .n_steps = n_steps};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 64,
      .split = {{.fraction = 1}},
      .prefetch_depth = 1,
      .max_inflight = 1,
      .block_chunks = 1,
      .hold_epoch = 1};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_train(ld);
  for (uint64_t i = 0; shown[i]; i++) {
    assert_int_equal(insitu_iter_set_epoch(it, i, NULL), INSITU_OK);
    set(it, "a", shown[i]);
    for (int k = 0; k < 3; k++) {
      insitu_batch *b = next_batch_or_fail(it);
      assert_int_equal(b->arrays[0].shape[1], shown[i]);
      for (uint64_t n = 0; n < b->rows * shown[i]; n++)
        assert_int_equal(((const int32_t *)b->arrays[0].data)[n],
            b->sample_indices[n / shown[i]] + steps[n % shown[i]]);
      insitu_batch_release(&b);
    }
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}
static void long_chunks(void **state) {
  (void)state;
  enum { STEPS = 400 };
  struct support_array a = {
      .name = "a", .ndim = 1, .shape = {27000}, .chunk = {8000}, .dtype = INSITU_I32, .format = 2};
  const char *root = support_path("long");
  support_make(root, &a);
  static int64_t steps[STEPS];
  for (int i = 0; i < STEPS; i++)
    steps[i] = i < 100 ? 2 * i : (int64_t)support_below(1000) * (i % 3 + 1);
  if (support_slow()) pieces(root, steps, STEPS, (const uint64_t[]){1, STEPS, 99, 0});
  else pieces(root, steps, STEPS, (const uint64_t[]){1, STEPS, 2, 99, 300, 399, 250, 31, 0});
  /* far apart: lists of all three are shorter than one of a whole chunk would be */
  pieces(root, (const int64_t[]){0, 9000, 18000}, 3, (const uint64_t[]){1, 3, 2, 1, 0});
  support_remove(root);
}

/* Indexes of shards that were read for more steps are not read again for fewer. */
static void indexes(void **state) {
  (void)state;
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {TIME, 4},
      .chunk = {2, 2},
      .dtype = INSITU_I32,
      .format = 3,
      .shard = {3, 2}};
  const char *root = support_path("indexes");
  support_make(root, &a);
  insitu_variable v = {.label = "a", .steps = in, .n_steps = 2};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 4,
      .hold_epoch = 1};
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  uint64_t indexes = 0;
  for (int e = 0; e < 5; e++) {
    insitu_batch *b;
    if (e) set(it, "a", 1 + (uint64_t)e % 2);
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    if (e) assert_int_equal(stats_of(ld).index_reads, indexes);
    indexes = stats_of(ld).index_reads;
    assert_int_equal(indexes, TIME / 6);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(held),
      cmocka_unit_test(beside), cmocka_unit_test(reads), cmocka_unit_test(untouched),
      cmocka_unit_test(kept), cmocka_unit_test(resumed), cmocka_unit_test(refused),
      cmocka_unit_test(behind_skips), cmocka_unit_test(long_chunks), cmocka_unit_test(indexes)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
