/* desc.on_batch: what it sees, what it adds, its keys; how many calls run at once; errors; what
 * ends while a call runs. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include <stdatomic.h>
#include <unistd.h>

enum { TIME = 40, LAT = 6, LON = 7 };
static struct support_array t = {.name = "t",
                                .ndim = 3,
                                .shape = {TIME, LAT, LON},
                                .dtype = INSITU_F32,
                                .dims = "[\"time\",\"lat\",\"lon\"]"},
                            orog = {.name = "orog",
                                .ndim = 2,
                                .shape = {LAT, LON},
                                .chunk = {LAT, LON},
                                .dtype = INSITU_I16,
                                .dims = "[\"lat\",\"lon\"]"};

static const char *make_archive(const char *name) {
  const char *root = support_path(name);
  t.format = orog.format = 2 + (int)support_below(2);
  t.zstd = support_below(2);
  t.chunk[0] = 1 + support_below(4);
  t.chunk[1] = 1 + support_below(LAT);
  t.chunk[2] = 1 + support_below(LON);
  support_make(root, &t);
  support_make(root, &orog);
  return root;
}

/* The model of a key: the documentation's words, not the header's code. */
static uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
static uint64_t model_key(uint64_t seed, uint64_t epoch, const int64_t *index, int n) {
  uint64_t h = mix(mix(mix(0x6F6E5F6261746368u) ^ seed) ^ epoch);
  for (int i = 0; i < n; i++) h = mix(h ^ (uint64_t)index[i]);
  return h;
}

enum { X, OROG, SPEED, WHO, ARRAYS };
static const int64_t steps[] = {0, 1, 3}, speed_shape[] = {LAT, LON};
static const insitu_variable variables[] = {
    {.label = "x", .path = "t", .steps = steps, .n_steps = 3}, {.label = "orog", .fixed = 1}};
static const insitu_output outputs[] = {
    {.label = "speed", .dtype = INSITU_F64, .ndim = 2, .shape = speed_shape},
    {.label = "who", .dtype = INSITU_U64}};

struct calls {
  uint64_t seed, shown; /* steps of x */
  uint64_t fail_at;     /* index of the batch whose call fails, in epoch 0; UINT64_MAX: none */
  insitu_status fail_with;
  const char *words;
  useconds_t takes;
  _Atomic uint64_t begun, ended, running, most;
};

static insitu_status on_batch(
    void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  struct calls *c = user;
  uint64_t now = atomic_fetch_add(&c->running, 1) + 1, most = atomic_load(&c->most);
  while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now)) continue;
  atomic_fetch_add(&c->begun, 1);
  if (c->takes) usleep(c->takes);

  float *x = b->arrays[X].data;
  double *speed = b->arrays[SPEED].data;
  uint64_t *who = b->arrays[WHO].data;
  bool fine = b->rows > 0 && b->n_arrays == ARRAYS && b->arrays[OROG].fixed &&
              ((const int16_t *)b->arrays[OROG].data)[5] == 5 &&
              b->arrays[X].shape[0] == (int64_t)b->rows &&
              b->arrays[X].shape[1] == (int64_t)c->shown && b->n_axes == 1 &&
              b->axis_indices[0] == b->sample_indices[0];
  for (uint64_t r = 0; fine && r < b->rows; r++) {
    fine = fine && keys[r] == model_key(c->seed, b->epoch, &b->sample_indices[r], 1);
    who[r] = keys[r];
    for (uint64_t i = 0; i < LAT * LON; i++) {
      float *first = &x[r * c->shown * LAT * LON + i];
      speed[r * LAT * LON + i] = 2 * (double)*first + 1;
      *first = -*first; /* in place */
    }
  }
  bool fails = b->epoch == 0 && b->index == c->fail_at;
  atomic_fetch_add(&c->ended, 1);
  atomic_fetch_sub(&c->running, 1);
  if (fails && c->words) snprintf(err->message, sizeof err->message, "%s", c->words);
  if (fails) return c->fail_with;
  return fine ? INSITU_OK : INSITU_E_CHECK;
}

static insitu_loader_desc desc_of(const char *root, struct calls *c) {
  c->fail_at = c->fail_at ? c->fail_at : UINT64_MAX;
  if (!c->shown) c->shown = 3;
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = variables,
      .n_variables = 2,
      .sample_dim = "time",
      .batch_size = 4,
      .split = {{.fraction = 1}},
      .seed = c->seed,
      .decode_threads = 3,
      .on_batch = on_batch,
      .on_batch_user = c,
      .outputs = outputs,
      .n_outputs = 2};
}

/* Every element of a batch that on_batch has been at. */
static void check(const insitu_batch *b, const struct calls *c) {
  assert_int_equal(b->n_arrays, ARRAYS);
  assert_string_equal(b->arrays[SPEED].name, "speed");
  assert_ptr_equal(insitu_batch_find(b, "who"), &b->arrays[WHO]);
  assert_int_equal(b->arrays[SPEED].ndim, 3);
  assert_int_equal(b->arrays[SPEED].shape[0], b->rows);
  assert_int_equal(b->arrays[SPEED].shape[1], LAT);
  assert_int_equal(b->arrays[SPEED].strides[0], LAT * LON);
  assert_int_equal(b->arrays[SPEED].bytes, b->rows * LAT * LON * 8);
  assert_int_equal((uintptr_t)b->arrays[SPEED].data % 256, 0);
  assert_int_equal(b->arrays[WHO].ndim, 1);
  const float *x = b->arrays[X].data;
  const double *speed = b->arrays[SPEED].data;
  for (uint64_t r = 0; r < b->rows; r++) {
    int64_t at = b->sample_indices[r];
    assert_true(((const uint64_t *)b->arrays[WHO].data)[r] == model_key(c->seed, b->epoch, &at, 1));
    for (uint64_t k = 0; k < c->shown; k++)
      for (uint64_t i = 0; i < LAT * LON; i++) {
        double want = support_expect(&t, (uint64_t[]){(uint64_t)(at + steps[k]), i / LON, i % LON});
        double got = (double)x[(r * c->shown + k) * LAT * LON + i];
        if (got != (k ? want : -want)) fail_msg("row %d, step %d: %g", (int)r, (int)k, got);
        if (!k) assert_true(speed[r * LAT * LON + i] == 2 * want + 1);
      }
  }
}

/* One epoch; how many batches had rows. */
static uint64_t epoch(insitu_iter *it, const struct calls *c) {
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status;
  uint64_t n = 0;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    check(b, c);
    n += b->rows > 0;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  return n;
}

/* Both assemblies, all modes, several iterators, fewer steps, several epochs. */
static void drawn(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(24); round++) {
    const char *root = make_archive("drawn");
    struct calls c = {.seed = support_random()};
    insitu_loader_desc d = desc_of(root, &c);
    int m = any_mode();
    d.io = modes[m].io;
    d.inline_io = support_below(4) == 0;
    d.assembly = (int32_t)support_below(3);
    d.batch_size = 1 + support_below(6);
    d.prefetch_depth = support_below(6);
    d.on_batch_threads = support_below(4);
    d.check = (int32_t)support_below(2);
    d.hold_epoch = (int32_t)support_below(2);
    d.split[0].fraction = 0.6;
    d.split[1].fraction = 0.4;
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_config(ld)->on_batch_threads, d.on_batch_threads
                                                                     ? d.on_batch_threads
                                                                 : d.inline_io ? 1
                                                                               : 3);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
    insitu_iter *val =
        open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_VAL});
    for (int e = 0; e < 3; e++) {
      epoch(it, &c);
      if (e != 1) epoch(val, &c);
    }
    insitu_iter_close(&val);
    assert_int_equal(insitu_iter_set_epoch(it, 9, NULL), INSITU_OK);
    epoch(it, &c);
    insitu_iter_close(&it);
    assert_true(c.most <= insitu_loader_config(ld)->on_batch_threads);
    assert_int_equal(c.begun, c.ended);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* Fewer steps: x is cut, the added arrays stay. */
static void fewer_steps(void **state) {
  (void)state;
  const char *root = make_archive("steps");
  for (int32_t assembly = INSITU_SCATTER; assembly <= INSITU_GATHER; assembly++) {
    struct calls c = {.seed = 3};
    insitu_loader_desc d = desc_of(root, &c);
    d.assembly = assembly;
    d.hold_epoch = 1;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
    epoch(it, &c);
    c.shown = 2;
    insitu_error err = {0};
    if (insitu_iter_set_steps(it, "x", 2, &err)) fail_msg("%s", err.message);
    epoch(it, &c);
    assert_int_equal(insitu_iter_set_steps(it, "speed", 1, &err), INSITU_E_ARG);
    assert_non_null(strstr(err.message, "on_batch makes it"));
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* The key of every sample of epoch 2, whatever the world, the rank and the order. */
static void worlds(void **state) {
  (void)state;
  const char *root = make_archive("worlds");
  for (int32_t world = 1; world <= 4; world++) {
    bool seen[TIME] = {false};
    for (int32_t rank = 0; rank < world; rank++) {
      struct calls c = {.seed = 77};
      insitu_loader_desc d = desc_of(root, &c);
      d.world = world;
      d.rank = rank;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter_desc id = {.api = INSITU_API, .order = INSITU_SEQUENTIAL, .epoch = 2};
      insitu_iter *it = open_iter_or_fail(ld, &id);
      insitu_batch *b;
      uint64_t calls = 0;
      while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
        check(b, &c);
        calls += b->rows > 0; /* an empty batch is delivered, and on_batch has nothing of it */
        for (uint64_t r = 0; r < b->rows; r++) seen[b->sample_indices[r]] = true;
        insitu_batch_release(&b);
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      assert_true(c.begun >= calls && c.begun == c.ended);
    }
    for (int i = 0; i < TIME - 3; i++) assert_true(seen[i]);
  }
  support_remove(root);
}

/* Keys that must never change. */
static void golden(void **state) {
  (void)state;
  const int64_t two[] = {5, 7};
  assert_true(model_key(0, 0, two, 1) == UINT64_C(0x532045000EA5BF97));
  assert_true(model_key(42, 3, two, 2) == UINT64_C(0xC039700E8952A6C9));
}

/* A call that fails: batches before it come, the error is told and stays, and set_epoch ends it. */
static void fails(void **state) {
  (void)state;
  const char *root = make_archive("fails");
  static const struct {
    insitu_status with, is;
    const char *words, *told;
  } way[] = {{INSITU_E_SHAPE, INSITU_E_SHAPE, "no wind today", "no wind today"},
      {INSITU_E_IO, INSITU_E_IO, NULL, "without a message"},
      {INSITU_END, INSITU_E_ARG, "told END", "told END"}, {-1000, INSITU_E_ARG, "odd", "odd"}};
  EACH_MODE (m)
    for (size_t w = 0; w < sizeof way / sizeof *way; w++) {
      struct calls c = {.seed = 5, .fail_at = 3, .fail_with = way[w].with, .words = way[w].words};
      insitu_loader_desc d = desc_of(root, &c);
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      d.assembly = w % 2 ? INSITU_GATHER : INSITU_SCATTER;
      d.rank = 1;
      d.world = 2;
      d.lanes = 2;
      d.batch_size = 2;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
      insitu_batch *b;
      insitu_error err = {0};
      for (int i = 0; i < 3; i++) {
        b = next_batch_or_fail(it);
        check(b, &c);
        insitu_batch_release(&b);
      }
      for (int again = 0; again < 2; again++) {
        assert_int_equal(insitu_iter_next(it, 20000, &b, &err), way[w].is);
        assert_non_null(strstr(err.message, "rank 1, on_batch, batch 3 of epoch 0: "));
        assert_non_null(strstr(err.message, way[w].told));
        assert_null(b);
      }
      assert_int_equal(insitu_iter_set_epoch(it, 1, NULL), INSITU_OK);
      epoch(it, &c);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

/* Batches that are held stay as they are while calls of others run; moving and closing wait for
 * calls. */
static void held(void **state) {
  (void)state;
  const char *root = make_archive("held");
  EACH_MODE (m) {
    struct calls c = {.seed = 1, .takes = 2000};
    insitu_loader_desc d = desc_of(root, &c);
    d.io = modes[m].io;
    d.inline_io = modes[m].inline_io;
    d.batch_size = 2;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .max_held = 3});
    insitu_batch *b[3];
    for (int round = 0; round < 3; round++) {
      b[0] = next_batch_or_fail(it);
      b[1] = next_batch_or_fail(it);
      if (round) assert_int_equal(insitu_iter_restore(it, &b[0]->after, NULL), INSITU_OK);
      b[2] = next_batch_or_fail(it);
      if (round) assert_int_equal(b[2]->index, b[1]->index);
      for (int i = 0; i < 3; i++) check(b[i], &c);
      for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
      if (round < 2) insitu_batch_release(&b[2]);
      assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)round + 1, NULL), INSITU_OK);
    }
    if (d.inline_io == 0) (void)insitu_iter_next(it, 0, &b[0], NULL);
    if (m % 2) insitu_loader_cancel(ld);
    insitu_batch_release(&b[0]);
    if (m % 2) insitu_iter_close(&it);
    insitu_loader_close(&ld);
    assert_int_equal(c.begun, c.ended);
    check(b[2], &c);
    insitu_batch_release(&b[2]);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

/* Added arrays count for the slab, and describe names them. */
static void planned(void **state) {
  (void)state;
  const char *root = make_archive("planned");
  struct calls c = {0};
  insitu_loader_desc d = desc_of(root, &c), bare;
  d.batch_size = 16;
  static const int64_t large_shape[] = {64, 64, 8};
  insitu_output large[] = {outputs[0], outputs[1]};
  large[0].ndim = 3;
  large[0].shape = large_shape;
  d.outputs = large;
  d.max_inflight = d.prefetch_depth = 4;
  d.assembly = INSITU_SCATTER;
  bare = d;
  bare.on_batch = NULL;
  bare.n_outputs = 0;
  insitu_plan with, without;
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_loader *ld = open_or_fail(&d), *plain = open_or_fail(&bare);
  assert_int_equal(insitu_loader_plan(ld, &id, &with, NULL), INSITU_OK);
  assert_int_equal(insitu_loader_plan(plain, &id, &without, NULL), INSITU_OK);
  assert_true(with.slab_bytes > without.slab_bytes);
  assert_int_equal(insitu_loader_array(ld, SPEED)->bytes, 16 * 64 * 64 * 8 * 8);
  assert_null(insitu_loader_array(ld, ARRAYS));
  static char json[1 << 20];
  insitu_loader_describe(ld, json, sizeof json);
  assert_non_null(strstr(json, "\"on_batch_threads\": 3"));
  assert_non_null(strstr(json, "\"outputs\": [{\"label\": \"speed\", \"dtype\": \"float64\""));
  insitu_loader_describe(plain, json, sizeof json);
  assert_null(strstr(json, "on_batch"));
  insitu_loader_close(&ld);
  insitu_loader_close(&plain);
  uint64_t needs =
      with.inflight_bytes + with.cache_bytes + with.fixed_bytes + with.slabs * with.slab_bytes;
  for (uint64_t less = 0; less < 2; less++) {
    insitu_error err = {0};
    insitu_iter *it;
    d.memory_budget = needs + with.table_bytes - less;
    ld = open_or_fail(&d);
    assert_int_equal(insitu_iter_open(ld, &id, &it, &err), less ? INSITU_E_BUDGET : INSITU_OK);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* What open refuses. */
static void refused(void **state) {
  (void)state;
  const char *root = make_archive("refused");
  struct calls c = {0};
  static const int64_t huge[] = {INT64_MAX / 2, 16}, none[] = {3, 0};
  static const struct {
    insitu_output out;
    insitu_status status;
    const char *told;
  } wrong[] = {{{.label = NULL}, INSITU_E_ARG, "no label"},
      {{.label = "o", .dtype = 3}, INSITU_E_ARG, "dtype"},
      {{.label = "o", .ndim = -1}, INSITU_E_ARG, "ndim"},
      {{.label = "o", .ndim = 16, .shape = none}, INSITU_E_ARG, "ndim"},
      {{.label = "o", .ndim = 1}, INSITU_E_ARG, "ndim"},
      {{.label = "o", .ndim = 2, .shape = none}, INSITU_E_ARG, "below 1"},
      {{.label = "o", .place = 4}, INSITU_E_ARG, "place"},
      {{.label = "x"}, INSITU_E_ARG, "a variable's output"},
      {{.label = "who"}, INSITU_E_ARG, "another output"},
      {{.label = "o", .ndim = 2, .shape = huge}, INSITU_E_SHAPE, "memory can address"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    insitu_loader_desc d = desc_of(root, &c);
    insitu_output two[] = {outputs[1], wrong[i].out};
    d.outputs = two;
    insitu_loader *ld;
    insitu_error err = {0};
    assert_int_equal(insitu_loader_open(&d, &ld, &err), wrong[i].status);
    if (!strstr(err.message, wrong[i].told)) fail_msg("%s: %s", wrong[i].told, err.message);
  }
  insitu_loader_desc d = desc_of(root, &c);
  insitu_error err = {0};
  insitu_loader *ld;
  d.on_batch = NULL;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  d = desc_of(root, &c);
  d.outputs = NULL;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  d = desc_of(root, &c);
  d.on_batch_threads = 1u << 30;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ARG);
  support_remove(root);
}

/* Patches: keys take the number of the patch, so that those of a sample differ. */
struct patch_calls {
  uint64_t keys[4096];
  _Atomic uint64_t n;
};
static insitu_status on_patches(
    void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  struct patch_calls *c = user;
  (void)err;
  uint64_t at = atomic_fetch_add(&c->n, b->rows);
  memcpy(c->keys + at, keys, b->rows * sizeof *keys);
  return INSITU_OK;
}
static int by_key(const void *x, const void *y) {
  uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return (a > b) - (a < b);
}
static void patches(void **state) {
  (void)state;
  const char *root = make_archive("patches");
  static struct patch_calls c[3];
  memset(c, 0, sizeof c);
  const insitu_variable v = {.label = "t"};
  const insitu_axis axes[] = {
      {.dim = "time"}, {.dim = "lat", .patch = 2}, {.dim = "lon", .patch = 3}};
  for (int32_t world = 1; world <= 2; world++)
    for (int32_t rank = 0; rank < world; rank++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = &v,
          .n_variables = 1,
          .axes = axes,
          .n_axes = 3,
          .patches = 5,
          .lanes = 2,
          .seed = 9,
          .world = world,
          .rank = rank,
          .batch_size = 4 / (uint64_t)world,
          .split = {{.fraction = 1}},
          .hold_epoch = 1,
          .on_batch = on_patches,
          .on_batch_user = &c[world]};
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
      insitu_batch *b;
      while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  assert_int_equal(c[1].n, TIME * 5);
  assert_int_equal(c[2].n, TIME * 5);
  for (int w = 1; w <= 2; w++) qsort(c[w].keys, TIME * 5, sizeof *c[w].keys, by_key);
  assert_memory_equal(c[1].keys, c[2].keys, TIME * 5 * sizeof *c[1].keys);
  for (int i = 0; i < TIME * 5; i++) {
    if (i) assert_true(c[1].keys[i] != c[1].keys[i - 1]);
    int64_t sample = i / 5, index[] = {sample, i % 5};
    uint64_t key = model_key(9, 0, index, 2);
    assert_non_null(bsearch(&key, c[1].keys, TIME * 5, sizeof key, by_key));
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(fewer_steps),
      cmocka_unit_test(worlds), cmocka_unit_test(golden), cmocka_unit_test(fails),
      cmocka_unit_test(held), cmocka_unit_test(planned), cmocka_unit_test(refused),
      cmocka_unit_test(patches)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
