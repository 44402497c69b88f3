/* The loader end to end: every element of every batch against a formula, on both backends and
 * inline, and every way it can end.
 */
#define INSITU_IMPLEMENTATION
#include "hold.h"
#include "insitubatch.h"
#include "support.h"
#include "inside.h"
#include "modes.h"
#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

static const insitu_iter_desc train = {.api = INSITU_API};

static insitu_iter *iter_or_fail(insitu_loader *ld, int32_t split, int32_t order) {
  return open_iter_or_fail(
      ld, &(insitu_iter_desc){.api = INSITU_API, .split = split, .order = order});
}
static void expect_end(insitu_iter *it) {
  insitu_batch *b;
  insitu_error err = {0};
  assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_END);
  assert_null(b);
}
static void refuse(const insitu_loader_desc *d, insitu_status want, const char *word) {
  insitu_error err = {0};
  insitu_loader *ld = (insitu_loader *)&err;
  assert_int_equal(insitu_loader_open(d, &ld, &err), want);
  assert_null(ld);
  assert_int_equal(err.status, want);
  if (!strstr(err.message, word)) fail_msg("'%s' does not name '%s'", err.message, word);
}

/* A small archive that most tests use: x (100, 6, 10) f4 in chunks (8, 6, 10), raw. */
static struct support_array plain = {.name = "x",
    .ndim = 3,
    .shape = {100, 6, 10},
    .chunk = {8, 6, 10},
    .dtype = INSITU_F32,
    .format = 2};
static const insitu_variable plain_x = {.label = "x"};
static insitu_loader_desc plain_desc(const char *root, int m) {
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &plain_x,
      .n_variables = 1,
      .batch_size = 8,
      .block_chunks = 4,
      .lanes = 2,
      .seed = 7,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2};
  return d;
}

/* ---- every element, every anchor ---- */

struct scenario {
  struct support_array array[3];
  int axis[3], n_arrays;
  insitu_variable variable[5];
  int of[5], n_variables; /* variable -> array */
  insitu_slice slice[5][3];
  int64_t step[5][3];
  char label[5][8];
  insitu_loader_desc desc;
};

/* A random archive and a random configuration of it. The sample axis is called by number, the same
 * in every array. */
static void draw(struct scenario *s, const char *root, int m) {
  static const int32_t dtypes[] = {
      INSITU_U8, INSITU_I16, INSITU_I32, INSITU_F16, INSITU_F32, INSITU_F64};
  static const char *const names[] = {"a", "sub/b", "sub/deep/c"};
  memset(s, 0, sizeof *s);
  int axis = support_below(3) ? 0 : 1, format = 2 + (int)support_below(2);
  uint64_t samples = 20 + support_below(80);
  s->n_arrays = 1 + (int)support_below(3);
  for (int i = 0; i < s->n_arrays; i++) {
    struct support_array *a = &s->array[i];
    *a = (struct support_array){.name = names[i],
        .ndim = axis + 1 + (int)support_below(3 - (uint64_t)axis),
        .dtype = dtypes[support_below(6)],
        .format = format,
        .big = !support_below(3),
        .fortran = !support_below(3),
        .zstd = !support_below(2),
        .absent = support_below(4) ? 0 : 3};
    for (int d = 0; d < a->ndim; d++) {
      a->shape[d] = d == axis ? samples : 1 + support_below(9);
      a->chunk[d] = d == axis ? 1 + support_below(support_below(2) ? 12 : 3)
                              : a->shape[d] / 2 + 1 + support_below(a->shape[d]); /* few files */
    }
    if (format == 3 && support_below(2)) {
      for (int d = 0; d < a->ndim; d++) a->shard[d] = 1 + support_below(4);
      a->index_first = support_below(2);
      a->index_crc = support_below(2);
      a->gap = support_below(2)   ? 0
               : support_below(4) ? support_below(100)
                                  : INSITU__LOADER_GAP + 1;
    }
    support_make(root, a);
  }
  s->n_variables = s->n_arrays + (int)support_below(3);
  for (int i = 0; i < s->n_variables; i++) {
    insitu_variable *v = &s->variable[i];
    s->of[i] = i < s->n_arrays ? i : (int)support_below((uint64_t)s->n_arrays);
    const struct support_array *a = &s->array[s->of[i]];
    sprintf(s->label[i], "v%d", i);
    *v = (insitu_variable){.label = s->label[i],
        .path = a->name,
        .offset = (int64_t)support_below(5) - 2,
        .slices = s->slice[i]};
    v->dtype = insitu__dtype_known[support_below(INSITU__DTYPE_KNOWN)].dtype;
    if (support_below(2) || !insitu__dtype_converts(a->dtype, v->dtype)) v->dtype = 0;
    if (!support_below(3)) {
      v->steps = s->step[i];
      v->n_steps = 1 + support_below(3);
      for (uint64_t k = 0; k < v->n_steps; k++) s->step[i][k] = (int64_t)support_below(7) - 3;
    }
    for (int d = 0; d < a->ndim; d++) {
      if (d == axis || support_below(2)) continue;
      int64_t lo = (int64_t)support_below(a->shape[d]);
      s->slice[i][v->n_slices++] = (insitu_slice){.axis = d,
          .start = lo,
          .stop = lo + 1 + (int64_t)support_below(a->shape[d] - (uint64_t)lo)};
    }
  }
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = s->variable,
      .n_variables = (uint64_t)s->n_variables,
      .sample_axis = axis,
      .batch_size = 1 + support_below(9),
      .seed = support_random(),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = 1 + support_below(3),
      .prefetch_depth = 1 + support_below(4),
      .max_inflight = 1 + support_below(8),
      .decode_threads = 1 + support_below(2),
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .split_shuffled = !support_below(3),
      .split_spill = !support_below(3),
      .hold_epoch = (int32_t)support_below(2)};
  for (int i = 0; i < s->n_arrays; i++) s->axis[i] = axis;
}

/* Runs two epochs of one split; seen[anchor] counts deliveries. */
static void run_epochs(const struct scenario *s, insitu_loader *ld, int32_t split, int32_t order) {
  insitu_plan plan;
  insitu_error err = {0};
  insitu_iter *it = NULL;
  insitu_iter_desc id = {.api = INSITU_API,
      .split = split,
      .order = order,
      .max_held = 1 + (uint32_t)support_below(3)};
  insitu_status status = insitu_iter_open(ld, &id, &it, &err);
  if (status == INSITU_E_SPLIT) return; /* too small for one batch: said so */
  assert_int_equal(status, INSITU_OK);
  assert_int_equal(insitu_loader_plan(ld, &id, &plan, &err), INSITU_OK);
  for (uint64_t epoch = 0; epoch < 2; epoch++) {
    unsigned char seen[200] = {0};
    uint64_t rows = 0, batch = 0;
    insitu_batch *b;
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
      assert_int_equal(b->epoch, epoch);
      assert_int_equal(b->index, batch++);
      for (uint64_t r = 0; r < b->rows; r++) {
        int64_t anchor = -1;
        assert_int_equal(insitu_iter_locate(it, epoch, b->index, r, &anchor, &err), INSITU_OK);
        assert_int_equal(anchor, b->sample_indices[r]);
        assert_int_equal(seen[anchor]++, 0);
      }
      for (int i = 0; i < s->n_variables; i++)
        support_check_array(
            b, (uint64_t)i, &s->variable[i], &s->array[s->of[i]], s->axis[s->of[i]]);
      rows += b->rows;
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
    uint64_t global = s->desc.batch_size;
    if (order == INSITU_SEQUENTIAL) assert_int_equal(rows, plan.samples);
    else assert_int_equal(rows, plan.samples / global * global);
  }
  insitu_iter_close(&it);
}

static void test_every_element(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int round = 0; round < support_rounds(25); round++) {
      struct scenario s;
      const char *root = support_path("random");
      draw(&s, root, m);
      insitu_loader *ld = NULL;
      insitu_error err = {0};
      insitu_status status = insitu_loader_open(&s.desc, &ld, &err);
      if (status) fail_msg("%s: %s", insitu_status_name(status), err.message);
      for (int32_t split = INSITU_TRAIN; split <= INSITU_ALL; split++) {
        run_epochs(&s, ld, split, INSITU_SHUFFLED);
        run_epochs(&s, ld, split, INSITU_SEQUENTIAL);
      }
      insitu_loader_close(&ld);
      support_remove(root);
    }
}

/* ---- the order depends on nothing of the machine ---- */

static uint64_t collect(insitu_iter *it, int64_t *anchors, uint64_t cap) {
  uint64_t n = 0;
  insitu_batch *b;
  insitu_error err = {0};
  while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
    for (uint64_t r = 0; r < b->rows && n < cap; r++) anchors[n++] = b->sample_indices[r];
    insitu_batch_release(&b);
  }
  assert_int_equal(err.status, 0);
  return n;
}

static void test_order_is_the_models(void **state) {
  (void)state;
  const char *root = support_path("order");
  support_make(root, &plain);
  int64_t want[100];
  insitu_order_desc od = {.api = INSITU_API,
      .units = 10,
      .unit_rows = 8,
      .seed = 7,
      .epoch = 0,
      .global_batch = 8,
      .lanes = 2,
      .window = 2};
  insitu_order *o;
  /* fractions 0.8 of 13 chunks: 10 units of 8 */
  assert_int_equal(insitu_order_open(&od, &o, NULL), INSITU_OK);
  uint64_t n = insitu_order_batches(o) * 8;
  for (uint64_t p = 0; p < n; p++) {
    insitu_order_place place;
    assert_int_equal(insitu_order_at(o, p, &place), INSITU_OK);
    want[p] = (int64_t)(place.unit * 8 + place.within);
  }
  insitu_order_close(&o);
  EACH_MODE (m)
    for (int k = 0; k < 4; k++) {
      insitu_loader_desc d = plain_desc(root, m);
      d.prefetch_depth = 1 + (uint64_t)k;
      d.decode_threads = 1 + (uint64_t)k % 2;
      d.max_inflight = 1 + 3 * (uint64_t)k;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
      int64_t got[100];
      assert_int_equal(collect(it, got, 100), n);
      assert_memory_equal(got, want, n * sizeof *want);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

/* World sizes that divide the lanes see the same global batches, each rank the same number of rows.
 */
static void test_world(void **state) {
  (void)state;
  const char *root = support_path("world");
  support_make(root, &plain);
  int64_t one[100], many[100];
  for (int32_t world = 1; world <= 4; world *= 2) {
    uint64_t rows = 0, n = 0;
    memset(many, 0, sizeof many);
    for (int32_t rank = 0; rank < world; rank++) {
      insitu_loader_desc d = plain_desc(root, 1);
      d.batch_size = 16 / (uint64_t)world;
      d.lanes = 4;
      d.world = world;
      d.rank = rank;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
      int64_t mine[100];
      uint64_t got = collect(it, mine, 100), lanes = 4 / (uint64_t)world;
      assert_true(rank == 0 || got == rows);
      rows = got;
      n += got;
      /* local row r of batch b is global row r / lanes * 4 + rank * lanes + r % lanes */
      for (uint64_t i = 0; i < got; i++) {
        uint64_t b = i / d.batch_size, r = i % d.batch_size;
        many[b * 16 + r / lanes * 4 + (uint64_t)rank * lanes + r % lanes] = mine[i];
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    assert_int_equal(n, 80);
    if (world == 1) memcpy(one, many, sizeof one);
    assert_memory_equal(one, many, 80 * sizeof *one);
  }
  insitu_loader_desc d = plain_desc(root, 1); /* 8 rows x 3 ranks, 2 lanes */
  d.world = 3;
  d.lanes = 2;
  insitu_loader *ld = open_or_fail(&d);
  insitu_error err = {0};
  insitu_iter *it = NULL;
  assert_int_equal(insitu_iter_open(ld, &train, &it, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "set lanes to 3"));
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  /* evaluation: every sample exactly once over the ranks, the same number of batches on each, empty
   * ones included */
  EACH_MODE (m) {
    unsigned char seen[100] = {0};
    uint64_t batches = 0;
    for (int32_t rank = 0; rank < 3; rank++) {
      d = plain_desc(root, m);
      d.world = 3;
      d.rank = rank;
      d.batch_size = 33; /* the last rank has 32 rows, and an empty second batch */
      ld = open_or_fail(&d);
      it = iter_or_fail(ld, INSITU_ALL, 0);
      uint64_t n = 0;
      insitu_batch *b;
      for (; insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK; n++) {
        for (uint64_t r = 0; r < b->rows; r++) seen[b->sample_indices[r]]++;
        support_check_array(b, 0, &plain_x, &plain, 0);
        insitu_batch_release(&b);
      }
      assert_true(rank == 0 || n == batches);
      batches = n;
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 1);
  }
  support_remove(root);
}

/* ---- resume ---- */

/* A state whose checksum fits its bytes. */
static insitu_state sealed(insitu_state s) {
  insitu__base_store64(
      s.bytes + INSITU__STATE_CHECK, insitu__geometry_hash(0, s.bytes, INSITU__STATE_CHECK));
  return s;
}
static void refuse_state(insitu_iter *it, insitu_state s, const char *word) {
  insitu_error err = {0};
  assert_int_equal(insitu_iter_restore(it, &s, &err), INSITU_E_STATE);
  if (!strstr(err.message, word)) fail_msg("'%s' does not say '%s'", err.message, word);
}

/* 128 bytes, the reserved ones zero; whatever is changed is named. */
static void test_state_bytes(void **state) {
  (void)state;
  const char *root = support_path("state");
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
  insitu_batch *b = next_batch_or_fail(it);
  const insitu_state good = b->after;
  insitu_batch_release(&b);
  assert_int_equal(sizeof good, 128);
  for (int i = INSITU__STATE_RESERVED; i < INSITU__STATE_CHECK; i++)
    assert_int_equal(good.bytes[i], 0);
  for (unsigned i = 0; i < sizeof good.bytes; i++) { /* every byte is guarded */
    insitu_state bad = good;
    bad.bytes[i] ^= 0x20;
    refuse_state(it, bad, i < 6 ? "are no state" : i < 8 ? "version" : "checksum");
  }
  for (int i = INSITU__STATE_RESERVED; i < INSITU__STATE_CHECK; i++) {
    insitu_state bad = good;
    char word[48];
    bad.bytes[i] = 7;
    snprintf(word, sizeof word, "reserved byte %d of the state is 7", i);
    refuse_state(it, sealed(bad), word);
  }
  const struct {
    int at;
    const char *word;
  } field[] = {{INSITU__STATE_GEOMETRY, "the archive's chunks"},
      {INSITU__STATE_VARIABLES, "the variables"}, {INSITU__STATE_SPLIT, "value of the split"},
      {INSITU__STATE_SEED, "seed"},
      {INSITU__STATE_LANES, "3 lanes and windows"}, /* 8 rows cannot be */
      {INSITU__STATE_LANES + 7, "which no iterator has"},
      {INSITU__STATE_WINDOW, "value of block_chunks (6, here 4); set block_chunks to 6"},
      {INSITU__STATE_WINDOW + 7, "which no iterator has"},
      {INSITU__STATE_UNIT, "units of 9 samples"}, {INSITU__STATE_UNIT + 7, "which no iterator has"},
      {INSITU__STATE_GLOBAL, "global batch"}, {INSITU__STATE_PASS, "iterator's split or order"},
      {INSITU__STATE_PASS + 1, "iterator's split or order"},
      {INSITU__STATE_EPOCH + 4, "does not exist"}, {INSITU__STATE_NEXT + 4, "does not exist"}};
  for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
    insitu_state bad = good;
    bad.bytes[field[i].at] ^= 1;
    refuse_state(it, sealed(bad), field[i].word);
  }
  static const int zeros[] = {INSITU__STATE_LANES, INSITU__STATE_WINDOW, INSITU__STATE_UNIT};
  for (int i = 0; i < 3; i++) {
    insitu_state bad = good;
    memset(bad.bytes + zeros[i], 0, 8);
    refuse_state(it, sealed(bad), "which no iterator has");
  }
  insitu_state grown = good; /* the archive's length alone decides nothing */
  grown.bytes[INSITU__STATE_SAMPLES] ^= 1;
  grown = sealed(grown);
  assert_int_equal(insitu_iter_restore(it, &grown, NULL), INSITU_OK);
  insitu_state old = good; /* 96 bytes of version 1, and whatever lay behind them */
  old.bytes[6] = 1;
  memset(old.bytes + 96, 0xEE, 32);
  refuse_state(it, old, "the state has version 1");
  old = good;
  old.bytes[6] = 2;
  refuse_state(it, sealed(old), "the state has version 2 and order_version 1, this");
  assert_int_equal(insitu_iter_restore(it, &good, NULL), INSITU_OK);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* What the hashes of a state are made of. */
struct identity {
  uint64_t geometry, variables, split[4];
};
static struct identity identity_of(insitu_loader_desc d) {
  d.plan_only = 1;
  insitu_loader *ld = open_or_fail(&d);
  struct identity i = {ld->geometry.hash_geometry, ld->geometry.hash_variables, {0}};
  for (int p = 0; p < 4; p++) i.split[p] = ld->split.part[p].hash;
  insitu_loader_close(&ld);
  return i;
}

/* Configurations that draw other anchors, or show other elements of them, have other hashes; those
 * that mean the same in other words have the same ones. */
static void test_state_tells_apart(void **state) {
  (void)state;
  const char *root = support_path("apart");
  struct support_array q = {.name = "q",
      .ndim = 3,
      .shape = {48, 48, 48},
      .chunk = {8, 8, 8},
      .dtype = INSITU_F32,
      .format = 2,
      .attributes = "\"scale_factor\":1.0,\"missing_value\":3.0",
      .dims = "[\"time\",\"y\",\"x\"]"};
  struct support_array twin = q;
  twin.name = "r"; /* the same but for its name */
  support_metadata(root, &q);
  support_metadata(root, &twin);
  static const int64_t zero[] = {0}, one[] = {1}, up[] = {1, 2}, down[] = {2, 1},
                       three[] = {0, 1, 2};
  static const insitu_slice by_name[] = {{.dim = "y", .start = 8, .stop = 16}},
                            third[] = {{.axis = 2, .start = 8, .stop = 16}},
                            whole[] = {{.axis = 1, .start = 0, .stop = 48}},
                            to_end[] = {{.axis = 1}};
  const insitu_variable apart[][2] = {{{.label = "q"}}, {{.label = "r"}},
      {{.label = "q"}, {.label = "r"}}, {{.label = "r"}, {.label = "q"}},
      {{.label = "q"}, {.label = "q2", .path = "q"}}, {{.label = "q", .offset = 1}},
      {{.label = "q", .offset = -1}}, {{.label = "q", .steps = up, .n_steps = 2}},
      {{.label = "q", .steps = down, .n_steps = 2}},
      {{.label = "q", .steps = three, .n_steps = 3}}};
  enum { APART = sizeof apart / sizeof *apart };
  struct identity id[APART + 1];
  const insitu_loader_desc base = {.api = INSITU_API, .url = root, .batch_size = 4};
  for (int i = 0; i <= APART; i++) {
    insitu_loader_desc d = base;
    d.variables = apart[i % APART];
    d.n_variables = 1 + (d.variables[1].label != NULL);
    /* the last: all axes are alike, and samples lie along another one */
    d.sample_axis = i == APART;
    id[i] = identity_of(d);
    for (int k = 0; k < i; k++)
      if (id[i].variables == id[k].variables)
        fail_msg("configurations %d and %d have one hash", k, i);
  }
  const struct {
    int of;
    insitu_variable variable;
  } same[] = {{0, {.label = "q", .path = "q"}}, {0, {.label = "q", .slices = whole, .n_slices = 1}},
      {0, {.label = "q", .slices = to_end, .n_slices = 1}},
      /* what decides neither the order nor what is read at an anchor */
      {0, {.label = "other", .path = "q"}}, {1, {.label = "q", .path = "r"}},
      {0, {.label = "q", .steps = zero, .n_steps = 1}},
      {5, {.label = "q", .steps = one, .n_steps = 1}}, {0, {.label = "q", .dtype = INSITU_F32}},
      {0, {.label = "q", .dtype = INSITU_F64}}, {0, {.label = "q", .decode = INSITU_CF}},
      {0, {.label = "q", .slices = by_name, .n_slices = 1}},
      {0, {.label = "q", .slices = third, .n_slices = 1}}, {0, {.label = "q", .select = "y=[1,3]"}},
      {0, {.label = "q", .into = "o"}},
      {7, {.label = "q", .offset = 1, .steps = three, .n_steps = 2}}};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    insitu_loader_desc d = base;
    d.variables = &same[i].variable;
    d.n_variables = 1;
    if (i == 1) d.sample_dim = "time";
    struct identity now = identity_of(d);
    if (memcmp(&now, &id[same[i].of], sizeof now))
      fail_msg("%d means configuration %d, and has another hash", (int)i, same[i].of);
  }
  support_remove(root);
}

/* Parts have one hash exactly if they have the same anchors, whatever the others have. */
static void test_state_tells_splits_apart(void **state) {
  (void)state;
  const char *root = support_path("parts"), *path = support_path("parts.json");
  static const char *const lists[][3] = {{"0,2,4,6", "8", ""}, {"0,2,4", "6,8", ""},
      {"0,2,4", "6", "8"}, {"0,2,4,6", "", "8"}, {"", "0,2,4,6,8", ""}, {"0,2,4,6,8", "", ""},
      {"", "", "0,2,4,6,8"}, {"8", "0,2,4,6", ""}, {"0", "2", "4"}, {"0,2", "", "4"},
      {"0,1", "2", "4"}};
  enum { LISTS = sizeof lists / sizeof *lists };
  struct identity id[LISTS];
  insitu_state first = {{0}};
  support_make(root, &plain);
  for (int i = 0; i < LISTS; i++) {
    char text[300];
    int n = snprintf(text, sizeof text,
        "{\"n_chunks\":13,\"sample_chunk_size\":8,\"n_samples\":100,\"chunks\":{\"train\":[%s],"
        "\"val\":[%s],\"test\":[%s]}}",
        lists[i][0], lists[i][1], lists[i][2]);
    support_write(path, text, (size_t)n);
    insitu_loader_desc d = plain_desc(root, any_mode());
    d.manifest = path;
    id[i] = identity_of(d);
    for (int k = 0; k <= i; k++)
      for (int p = 0; p < 9; p++)
        if (!strcmp(lists[i][p / 3], lists[k][p % 3]) != (id[i].split[p / 3] == id[k].split[p % 3]))
          fail_msg("hashes of %s and %s", lists[i][p / 3], lists[k][p % 3]);
    if (i > 2) continue;
    d.lanes = 1;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *b = next_batch_or_fail(it);
    if (i == 0) first = b->after;
    if (i == 1) refuse_state(it, first, "value of the split");
    if (i == 1) first = b->after; /* then only val and test change */
    if (i == 2) assert_memory_equal(&first, &b->after, sizeof first);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  const struct {
    int64_t start, stop;
  } ranges[][3] = {{{0, 40}, {40, 60}, {0, 0}}, {{0, 0}, {0, 40}, {40, 60}},
      {{0, 0}, {40, 60}, {0, 40}}, {{40, 60}, {0, 40}, {0, 0}}, {{0, 40}, {0, 0}, {40, 60}},
      {{0, 60}, {0, 0}, {0, 0}}, {{0, 0}, {0, 60}, {0, 0}}, {{0, 59}, {0, 0}, {0, 0}}};
  enum { RANGES = sizeof ranges / sizeof *ranges };
  struct identity by_range[RANGES];
  for (int i = 0; i < RANGES; i++) {
    insitu_loader_desc d = plain_desc(root, any_mode());
    for (int p = 0; p < 3; p++)
      d.split[p] = (insitu_split_range){.start = ranges[i][p].start, .stop = ranges[i][p].stop};
    by_range[i] = identity_of(d);
    for (int k = 0; k <= i; k++)
      for (int p = 0; p < 9; p++) {
        bool same = ranges[i][p / 3].start == ranges[k][p % 3].start &&
                    ranges[i][p / 3].stop == ranges[k][p % 3].stop;
        if (same != (by_range[i].split[p / 3] == by_range[k].split[p % 3]))
          fail_msg("hashes of parts %d of %d and %d of %d", p / 3, i, p % 3, k);
      }
  }
  insitu_loader_desc d = plain_desc(root, any_mode()), e = d; /* the same parts, said in two ways */
  d.split[0].stop = 80;
  d.split[1] = (insitu_split_range){.start = 80, .stop = 100};
  e.split[0].fraction = 10.0 / 13;
  e.split[1].fraction = 3.0 / 13;
  struct identity said = identity_of(d), otherwise = identity_of(e);
  assert_memory_equal(&said, &otherwise, sizeof said);
  support_remove(root);
}

/* One global batch at every world size: all ranks have the same 128 bytes. */
static void test_state_of_ranks(void **state) {
  (void)state;
  const char *root = support_path("ranks");
  support_make(root, &plain);
  insitu_state first = {{0}};
  for (int world = 1; world <= 4; world *= 2)
    for (int rank = 0; rank < world; rank++) {
      insitu_loader_desc d = plain_desc(root, rank % 2 ? EPOLL : any_mode());
      d.lanes = 4;
      d.batch_size = 8 / (uint64_t)world;
      d.world = world;
      d.rank = rank;
      d.prefetch_depth = 1 + (uint64_t)rank; /* resources are no part of it */
      d.decode_threads = 1 + (uint64_t)rank % 2;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
      insitu_batch *b = next_batch_or_fail(it);
      if (world == 1) first = b->after;
      assert_memory_equal(&first, &b->after, sizeof first);
      insitu_batch_release(&b);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
  support_remove(root);
}

/* Iterators are refused by the version of their desc, too. */
static void test_iter_api(void **state) {
  (void)state;
  const char *root = support_path("iterapi");
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  for (int api = 0; api <= INSITU_API + 1; api++) {
    insitu_iter_desc i = {.api = (uint32_t)api, .split = INSITU_ALL};
    insitu_iter *it = NULL;
    insitu_plan plan;
    insitu_quality quality;
    insitu_error err[3] = {{0}};
    insitu_status want = api == INSITU_API ? INSITU_OK : INSITU_E_API;
    assert_int_equal(insitu_iter_open(ld, &i, &it, &err[0]), want);
    assert_int_equal(insitu_loader_plan(ld, &i, &plan, &err[1]), want);
    assert_int_equal(insitu_loader_quality(ld, &i, &quality, &err[2]), want);
    for (int k = 0; want && k < 3; k++) {
      char word[80];
      snprintf(word, sizeof word, "desc.api is %d and the INSITU_API of this implementation is %d",
          api, INSITU_API);
      assert_non_null(strstr(err[k].message, word));
    }
    insitu_iter_close(&it);
  }
  insitu_loader_close(&ld);
  support_remove(root);
}

static void test_resume(void **state) {
  (void)state;
  const char *root = support_path("resume");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_state states[20];
    int64_t first[20];
    uint64_t n = 0;
    insitu_batch *b;
    for (int epoch = 0; epoch < 2; epoch++, expect_end(it))
      for (uint64_t i = 0; i < 10; i++) {
        b = next_batch_or_fail(it);
        first[n] = b->sample_indices[0];
        states[n++] = b->after;
        insitu_batch_release(&b);
      }
    insitu_iter *other = iter_or_fail(ld, INSITU_TRAIN, 0);
    for (uint64_t i = 0; i < n - 1; i++) { /* twice each: with batches in flight, and again */
      insitu_error err = {0};
      assert_int_equal(insitu_iter_restore(other, &states[i], &err), INSITU_OK);
      if (i % 10 == 9) expect_end(other);
      for (uint64_t k = i + 1; k < n && k < i + 4; k++) {
        b = next_batch_or_fail(other);
        assert_int_equal(b->sample_indices[0], first[k]);
        support_check_array(b, 0, &plain_x, &plain, 0);
        insitu_batch_release(&b);
        if (k % 10 == 9) expect_end(other);
      }
    }
    /* a damaged or foreign state is refused by name */
    insitu_error err = {0};
    insitu_state bad = states[3];
    bad.bytes[50] ^= 1;
    assert_int_equal(insitu_iter_restore(other, &bad, &err), INSITU_E_STATE);
    memset(&err, 0, sizeof err);
    insitu_iter *val = iter_or_fail(ld, INSITU_ALL, 0);
    assert_int_equal(insitu_iter_restore(val, &states[3], &err), INSITU_E_STATE);
    assert_non_null(strstr(err.message, "split"));
    insitu_iter_close(&val);
    insitu_iter_close(&other);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    d.seed = 8;
    ld = open_or_fail(&d);
    it = iter_or_fail(ld, INSITU_TRAIN, 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(insitu_iter_restore(it, &states[3], &err), INSITU_E_STATE);
    assert_non_null(strstr(err.message, "seed"));
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    insitu_iter_close(&other);
    insitu_iter_close(&val);
    /* at another world size with the same global batch */
    d = plain_desc(root, m);
    d.world = 2;
    d.batch_size = 4;
    ld = open_or_fail(&d);
    it = iter_or_fail(ld, INSITU_TRAIN, 0);
    assert_int_equal(insitu_iter_restore(it, &states[3], NULL), INSITU_OK);
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, 4);
    assert_int_equal(b->sample_indices[0], first[4]);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    insitu_iter_close(&other);
    insitu_iter_close(&val);
  }
  support_remove(root);
}

static void test_set_epoch(void **state) {
  (void)state;
  const char *root = support_path("epoch");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    int64_t run[3][100] = {{0}}, again[100];
    for (int e = 0; e < 3; e++) assert_int_equal(collect(it, run[e], 100), 80);
    assert_memory_not_equal(run[0], run[1], sizeof run[0]);
    for (int k = 0; k < 6; k++) {
      int e = (int)support_below(3);
      assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)e, NULL), INSITU_OK);
      if (k % 2) { /* in the middle */
        insitu_batch *b = next_batch_or_fail(it);
        insitu_batch_release(&b);
        assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)e, NULL), INSITU_OK);
      }
      assert_int_equal(collect(it, again, 100), 80);
      assert_memory_equal(again, run[e], 80 * sizeof *again);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

/* Behind epoch 2^20 - 1 there is no other: no state could tell it. */
static void test_last_epoch(void **state) {
  (void)state;
  const char *root = support_path("last");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.hold_epoch = (int32_t)support_below(2);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc id = {.api = INSITU_API, .epoch = (1 << 20) - 1};
    insitu_iter *it = open_iter_or_fail(ld, &id);
    insitu_state after = {{0}};
    insitu_error err;
    insitu_batch *b;
    insitu_plan plan;
    insitu_stats stats;
    assert_int_equal(insitu_loader_plan(ld, &id, &plan, &err), INSITU_OK);
    for (uint64_t i = 0; i < plan.batches; i++, insitu_batch_release(&b)) {
      b = next_batch_or_fail(it);
      after = b->after;
    }
    for (int again = 0; again < 2; again++) {
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_END);
      for (int k = 0; k < 2; k++) {
        assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_E_ARG);
        assert_null(b);
        assert_int_equal(err.status, INSITU_E_ARG);
        assert_non_null(strstr(err.message, "epoch 2^20 - 1 was the last one"));
      }
      assert_int_equal(insitu_iter_skip(it, 0, 1, &err), INSITU_E_ARG);
      assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_OK);
    }
    assert_int_equal(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
    assert_int_equal(stats.reads, plan.reads); /* nothing of another epoch */
    assert_int_equal(insitu_iter_set_epoch(it, 1 << 20, &err), INSITU_E_ARG);
    assert_int_equal(insitu_iter_set_epoch(it, 3, &err), INSITU_OK);
    b = next_batch_or_fail(it);
    assert_int_equal(b->epoch, 3);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    id.epoch = 1 << 20;
    ld = open_or_fail(&d);
    assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_E_ARG);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* ---- several iterators, held batches, budget ---- */

static void test_iterators_together(void **state) {
  (void)state;
  const char *root = support_path("together");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it[4];
    bool ended[4] = {false};
    for (int i = 0; i < 4; i++) it[i] = iter_or_fail(ld, i, 0);
    for (int live = 4; live;)
      for (int i = 0; i < 4; i++) {
        insitu_batch *b;
        insitu_status s = ended[i] ? INSITU_END : insitu_iter_next(it[i], 20000, &b, NULL);
        if (s == INSITU_END) {
          live -= !ended[i];
          ended[i] = true;
          continue;
        }
        assert_int_equal(s, INSITU_OK);
        support_check_array(b, 0, &plain_x, &plain, 0);
        insitu_batch_release(&b);
      }
    insitu_iter_close(&it[2]); /* in any order */
    insitu_iter_close(&it[0]);
    insitu_loader_close(&ld);
    insitu_iter_close(&it[1]);
    insitu_iter_close(&it[3]);
  }
  support_remove(root);
}

static void test_held_batches(void **state) {
  (void)state;
  const char *root = support_path("held");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *b[3], *none;
    b[0] = next_batch_or_fail(it);
    b[1] = next_batch_or_fail(it);
    insitu_error err = {0};
    /* even for ever: waiting could not end */
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &none, &err), INSITU_BUSY);
    assert_int_equal(err.status, 0);
    insitu_batch_release(&b[0]);
    assert_null(b[0]);
    b[0] = next_batch_or_fail(it);
    memset(b[1]->arrays[0].data, 0xff, b[1]->arrays[0].bytes); /* writable, and nobody else's */
    support_check_array(b[0], 0, &plain_x, &plain, 0);
    insitu_batch_release(&b[1]);
    b[1] = next_batch_or_fail(it);
    insitu_iter_close(&it);
    support_check_array(b[0], 0, &plain_x, &plain, 0);
    it = iter_or_fail(ld, INSITU_VAL, 0);
    b[2] = next_batch_or_fail(it);
    insitu_loader_close(&ld); /* before the iterator */
    insitu_iter_close(&it);
    for (int i = 0; i < 3; i++) {
      support_check_array(b[i], 0, &plain_x, &plain, 0);
      assert_ptr_equal(insitu_batch_find(b[i], "x"), &b[i]->arrays[0]);
      assert_null(insitu_batch_find(b[i], "y"));
      insitu_batch_release(&b[i]);
    }
  }
  support_remove(root);
}

/* Batch memory is what the plan promised, and no more; too small a budget is refused with the bytes
 * and the knobs. */
static void test_memory(void **state) {
  (void)state;
  const char *root = support_path("memory");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.prefetch_depth = 2;
    /* 3 rows a lane: windows of 16 rows begin anywhere in a batch and need every slab */
    d.batch_size = 6;
    d.lanes = 2;
    insitu_loader *ld = open_or_fail(&d);
    insitu_plan plan;
    insitu_stats stats;
    assert_int_equal(insitu_loader_plan(ld, &train, &plan, NULL), INSITU_OK);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *b[2] = {NULL, NULL};
    uint64_t promise = plan.slabs * plan.slab_bytes;
    if (modes[m].inline_io)
      /* nothing is prefetched while all batches are held: next is not running then */
      promise -= plan.slab_bytes;
    for (int n = 0; n < 400; n++) { /* two are always held */
      insitu_batch_release(&b[n % 2]);
      if (insitu_iter_next(it, 20000, &b[n % 2], NULL) == INSITU_END)
        assert_int_equal(insitu_iter_next(it, 20000, &b[n % 2], NULL), INSITU_OK);
      if (n < 100 && !modes[m].inline_io) support_fill_up(ld, it);
    }
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_int_equal(stats.slab_bytes_peak, promise);
    /* reused, not given back and taken again */
    assert_int_equal(stats.slab_bytes, stats.slab_bytes_peak);
    assert_true(stats.inflight_peak <= insitu_loader_config(ld)->max_inflight);
    assert_int_equal(stats.batches, 400);
    insitu_batch_release(&b[0]);
    insitu_batch_release(&b[1]);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    /* exactly enough is enough, one byte less is not */
    d.memory_budget = plan.inflight_bytes + plan.table_bytes + plan.slabs * plan.slab_bytes;
    d.max_inflight = 32;
    ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_plan(ld, &train, &plan, NULL), INSITU_OK);
    uint64_t need = plan.inflight_bytes + plan.table_bytes + plan.slabs * plan.slab_bytes;
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    for (uint64_t less = 0; less < 2; less++) {
      insitu_error err = {0};
      d.memory_budget = need - less;
      ld = open_or_fail(&d);
      insitu_status s = insitu_iter_open(ld, &train, &it, &err);
      assert_int_equal(s, less ? INSITU_E_BUDGET : INSITU_OK);
      if (less) assert_non_null(strstr(err.message, "block_chunks"));
      else { /* a second one does not fit; after closing the first it does */
        insitu_iter *second = NULL;
        assert_int_equal(insitu_iter_open(ld, &train, &second, NULL), INSITU_E_BUDGET);
        insitu_iter_close(&it);
        assert_int_equal(insitu_iter_open(ld, &train, &second, NULL), INSITU_OK);
        insitu_iter_close(&second);
      }
      insitu_loader_close(&ld);
    }
    d.memory_budget = 1000;
    refuse(&d, INSITU_E_BUDGET, "max_inflight");
  }
  support_remove(root);
}

/* Chunks in flight where the user tells nothing: 4 a thread and 32 at least; of large ones, whose
 * buffers take more than 32 MiB, fewer, down to 2 a thread. */
static void test_default_inflight(void **state) {
  static const struct {
    uint64_t chunk, threads, most; /* chunk: bytes */
  } cases[] = {{1 << 19, 2, 32}, {1 << 18, 16, 64}, {7 << 20, 2, 4}, {16 << 20, 1, 2},
      {16 << 20, 2, 4}, {16 << 20, 3, 6}, {16 << 20, 64, 128}};
  (void)state;
  const char *root = support_path("inflight");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct support_array a = {.name = "x",
        .ndim = 2,
        .shape = {64, cases[i].chunk},
        .chunk = {1, cases[i].chunk},
        .dtype = INSITU_U8,
        .format = 3,
        .zstd = true};
    support_metadata(root, &a);
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &plain_x,
        .n_variables = 1,
        .batch_size = 1,
        .memory_budget = UINT64_C(1) << 40,
        .decode_threads = cases[i].threads,
        .plan_only = 1};
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_config(ld)->max_inflight, cases[i].most);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* ---- holes ---- */

static void test_absent(void **state) {
  (void)state;
  const char *root = support_path("absent");
  struct support_array a = plain;
  a.absent = 5;
  EACH_MODE (m) {
    a.fill = "0";
    support_make(root, &a);
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_ALL, 0);
    insitu_batch *b;
    insitu_stats stats;
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      support_check_array(b, 0, &plain_x, &a, 0);
      insitu_batch_release(&b);
    }
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_true(stats.absent_chunks >= 2);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    d.on_absent_chunk = INSITU_RAISE;
    ld = open_or_fail(&d);
    it = iter_or_fail(ld, INSITU_ALL, 0);
    insitu_error err = {0};
    /* chunk 4 holds samples 32..39: the four batches before it come first */
    for (int i = 0; i < 4; i++) {
      b = next_batch_or_fail(it);
      insitu_batch_release(&b);
    }
    for (int k = 0; k < 3; k++) { /* sticky */
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_ABSENT);
      assert_non_null(strstr(err.message, "samples [32, 40)"));
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    /* NaN stops by default, and says how to go on */
    a.fill = "\"NaN\"";
    support_make(root, &a);
    d.on_absent_chunk = INSITU_AUTO;
    ld = open_or_fail(&d);
    it = iter_or_fail(ld, INSITU_ALL, 0);
    insitu_status s;
    memset(&err, 0, sizeof err);
    while ((s = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) insitu_batch_release(&b);
    assert_int_equal(s, INSITU_E_ABSENT);
    assert_non_null(strstr(err.message, "NaN"));
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    d.on_absent_chunk = INSITU_FILL;
    ld = open_or_fail(&d);
    it = iter_or_fail(ld, INSITU_ALL, 0);
    uint64_t nan = 0;
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      const uint32_t *x = b->arrays[0].data;
      for (uint64_t i = 0; i < b->arrays[0].bytes / 4; i++) nan += x[i] == 0x7fc00000;
      insitu_batch_release(&b);
    }
    assert_int_equal(nan, 2 * 8 * 60); /* chunks 4 and 9 */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

static char logged[4][1400];
static int n_logged;
static void log_line(void *user, int32_t level, const char *line) {
  (void)user, (void)level;
  if (n_logged < 4) snprintf(logged[n_logged++], sizeof logged[0], "%s", line);
}

/* Damaged chunks: too short, too long, garbage, a directory in their place, no permission to read.
 */
static void test_damaged(void **state) {
  (void)state;
  const char *root = support_path("damaged");
  EACH_MODE (m)
    for (int kind = 0; kind < 4; kind++)
      for (int zstd = 0; zstd < 2; zstd++) {
        struct support_array a = plain;
        char path[700];
        uint64_t index[4] = {3, 0, 0};
        a.zstd = zstd;
        support_make(root, &a);
        support_chunk_path(path, sizeof path, root, &a, index);
        static unsigned char junk[8 * 60 * 4 + 4000];
        memset(junk, 0x5a, sizeof junk);
        if (kind == 0) support_write(path, junk, 100);
        else if (kind == 1) support_write(path, junk, sizeof junk);
        else if (kind == 2) support_write(path, junk, 0);
        else {
          unlink(path);
          mkdir(path, 0777);
        }
        insitu_loader_desc d = plain_desc(root, m);
        insitu_loader *ld = open_or_fail(&d);
        insitu_iter *it = iter_or_fail(ld, INSITU_ALL, 0);
        insitu_batch *b;
        insitu_error err = {0};
        for (int i = 0; i < 3; i++) {
          b = next_batch_or_fail(it);
          support_check_array(b, 0, &plain_x, &plain, 0);
          insitu_batch_release(&b);
        }
        assert_int_equal(
            insitu_iter_next(it, 20000, &b, &err), kind == 3 ? INSITU_E_IO : INSITU_E_CORRUPT);
        assert_non_null(strstr(err.message, "array x, chunk x/3.0.0"));
        assert_non_null(strstr(err.message, "rank 0"));
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        d.on_bad_chunk = INSITU_FILL;
        d.hold_epoch = 1; /* so that the hole is met once */
        d.log = log_line;
        n_logged = 0;
        ld = open_or_fail(&d);
        it = iter_or_fail(ld, INSITU_ALL, 0);
        uint64_t zeros = 0, rows = 0;
        while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
          for (uint64_t r = 0; r < b->rows; r++, rows++) {
            const float *x = (const float *)b->arrays[0].data + 60 * r;
            if (b->sample_indices[r] / 8 == 3) zeros += x[59] == 0;
            else assert_true(x[59] == (float)(60 * b->sample_indices[r] + 59));
          }
          insitu_batch_release(&b);
        }
        insitu_stats stats;
        assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
        assert_true(rows == 100 && zeros == 8 && stats.bad_chunks == 1);
        assert_int_equal(n_logged, 1);
        assert_non_null(strstr(logged[0], "x/3.0.0"));
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        support_remove(root);
      }
}

/* Two slices of one array at different offsets: a field that only one of them wants is not read for
 * the other's rows. */
static void test_views_of_different_fields(void **state) {
  (void)state;
  const char *root = support_path("fields");
  struct support_array a = {.name = "x",
      .ndim = 3,
      .shape = {96, 4, 4},
      .chunk = {1, 1, 4},
      .dtype = INSITU_F64,
      .format = 2};
  const insitu_slice part[2] = {{.axis = 1, .stop = 1}, {.axis = 1, .start = 3}};
  const insitu_variable v[] = {{.label = "a", .path = "x", .slices = &part[0], .n_slices = 1},
      {.label = "b", .path = "x", .offset = 5, .slices = &part[1], .n_slices = 1}};
  for (a.zstd = false;; a.zstd = true) {
    support_make(root, &a);
    EACH_MODE (m) {
      insitu_loader_desc d = plain_desc(root, m);
      d.variables = v;
      d.n_variables = 2;
      d.on_bad_chunk = INSITU_FILL;
      d.hold_epoch = 1;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
      insitu_batch *b;
      uint64_t rows = 0;
      for (; insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK; rows += 8) {
        for (uint64_t i = 0; i < 2; i++) support_check_array(b, i, &v[i], &a, 0);
        insitu_batch_release(&b);
      }
      insitu_stats stats;
      assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
      assert_int_equal(stats.bad_chunks, 0);
      assert_int_equal(stats.reads, 2 * rows);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    if (a.zstd) break;
  }
  support_remove(root);
}

/* After an error set_epoch starts anew; an error of a later batch does not hide earlier ones under
 * shuffle. */
static void test_error_then_restart(void **state) {
  (void)state;
  const char *root = support_path("restart");
  support_make(root, &plain);
  char path[700];
  uint64_t index[4] = {5, 0, 0};
  support_chunk_path(path, sizeof path, root, &plain, index);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    support_write(path, "short", 5);
    assert_int_equal(insitu_iter_set_epoch(it, 3, NULL), INSITU_OK);
    uint64_t before = 0, bad = 0;
    insitu_batch *b;
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      before++;
      insitu_batch_release(&b);
    }
    support_make(root, &plain);
    assert_int_equal(insitu_iter_set_epoch(it, 3, NULL), INSITU_OK);
    for (bool found = false; !found; bad += !found) {
      b = next_batch_or_fail(it);
      for (uint64_t r = 0; r < b->rows; r++) found = found || b->sample_indices[r] / 8 == 5;
      insitu_batch_release(&b);
    }
    assert_int_equal(before, bad); /* every batch up to the first that shows the chunk */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

/* ---- conversions ---- */

/* An archive of big-endian elements, some chunks absent, and types that it is shown as. */
struct shown {
  int32_t stored;
  const char *fill;
  double filled;
  struct {
    int32_t dtype, decode;
  } as[9];
};
static const struct shown conversions[] = {
    {INSITU_I16, "17001", 17001,
        {{INSITU_F16, 0}, {INSITU_BF16, 0}, {INSITU_F64, 0}, {INSITU_I32, 0}, {INSITU_I64, 0},
            {INSITU_BOOL, 0}, {INSITU_F16, INSITU_CF}, {INSITU_BF16, INSITU_CF}, {INSITU_I16, 0}}},
    {INSITU_U8, "250", 250,
        {{INSITU_F16, 0}, {INSITU_BF16, 0}, {INSITU_U16, 0}, {INSITU_U32, 0}, {INSITU_U64, 0},
            {INSITU_I16, 0}, {INSITU_I32, 0}, {INSITU_I64, 0}, {INSITU_BOOL, 0}}},
    /* a fill that float16 shows as infinity, which is no NaN */
    {INSITU_F64, "1e5", 1e5, {{INSITU_F16, 0}, {INSITU_BF16, 0}, {INSITU_F16, INSITU_CF}}},
    {INSITU_F16, "0.5", 0.5, {{INSITU_BF16, 0}, {INSITU_F64, 0}, {INSITU_BF16, INSITU_CF}}}};

static double shown_value(
    const struct support_array *a, const struct shown *s, const insitu_variable *v, uint64_t k) {
  uint64_t chunk = k / 6 / a->chunk[0]; /* a row of 6 is within one chunk */
  volatile double x = support_is_absent(a, chunk) ? s->filled : support_value(a->dtype, k);
  if (v->decode) x = x * 0.1;
  if (v->decode) x = x + 0.3;
  return support_as(v->dtype, x);
}

static void check_shown(const struct support_array *a, const struct shown *s,
    const insitu_variable *v, const void *got, uint64_t first, uint64_t n) {
  uint64_t item = (uint64_t)(v->dtype & 0xff) / 8;
  for (uint64_t k = 0; k < n; k++) {
    double is = support_get((const unsigned char *)got + k * item, v->dtype),
           want = shown_value(a, s, v, first + k);
    if (is != want)
      fail_msg("0x%x as 0x%x, decode %d, element %d: %g, not %g", (unsigned)s->stored,
          (unsigned)v->dtype, v->decode, (int)(first + k), is, want);
  }
}

/* Batches and insitu_read show every type that an array can be converted to. */
static void test_conversions(void **state) {
  (void)state;
  enum { SAMPLES = 40, ROW = 6 };
  for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
    EACH_MODE (m) {
      const struct shown *s = &conversions[i];
      const char *root = support_path("conversions");
      struct support_array a = {.name = "x",
          .ndim = 2,
          .shape = {SAMPLES, ROW},
          .chunk = {4, ROW},
          .dtype = s->stored,
          .format = 2 + (int)support_below(2),
          .big = true,
          .zstd = support_below(2),
          .fill = s->fill,
          .attributes = "\"scale_factor\":0.1,\"add_offset\":0.3,\"_FillValue\":77777",
          .absent = 3};
      support_make(root, &a);
      insitu_variable v[9];
      char label[9][8];
      uint64_t n = 0;
      for (; n < 9 && s->as[n].dtype; n++) {
        sprintf(label[n], "v%d", (int)n);
        v[n] = (insitu_variable){
            .label = label[n], .path = "x", .dtype = s->as[n].dtype, .decode = s->as[n].decode};
      }
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = v,
          .n_variables = n,
          .batch_size = 7,
          .check = 1,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SHUFFLED);
      for (uint64_t b = 0; b < SAMPLES / 7; b++) {
        insitu_batch *batch = next_batch_or_fail(it);
        for (uint64_t k = 0; k < n; k++)
          for (uint64_t r = 0; r < batch->rows; r++)
            check_shown(&a, s, &v[k],
                (const unsigned char *)batch->arrays[k].data + r * batch->arrays[k].row_bytes,
                (uint64_t)batch->sample_indices[r] * ROW, ROW);
        insitu_batch_release(&batch);
      }
      insitu_iter_close(&it);
      for (uint64_t k = 0; k < n; k++) {
        unsigned char got[SAMPLES * ROW * 8];
        insitu_error err = {0};
        insitu_shape shape;
        if (insitu_read(ld, &v[k], got, sizeof got, &shape, &err)) fail_msg("%s", err.message);
        assert_int_equal(shape.dtype, v[k].dtype);
        check_shown(&a, s, &v[k], got, 0, SAMPLES * ROW);
      }
      insitu_loader_close(&ld);
      support_remove(root);
    }
}

/* A fill value of NaN stays one in floats of 16 bits, and stops by default. */
static void test_converted_nan(void **state) {
  (void)state;
  static const int32_t to[] = {INSITU_F16, INSITU_BF16};
  const char *root = support_path("converted_nan");
  struct support_array a = {.name = "x",
      .ndim = 1,
      .shape = {40},
      .chunk = {4},
      .dtype = INSITU_F32,
      .format = 3,
      .fill = "\"NaN\"",
      .absent = 3};
  support_make(root, &a);
  for (int i = 0; i < 2; i++)
    for (int fill = 0; fill < 2; fill++) {
      const insitu_variable v = {.label = "x", .dtype = to[i]};
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = &v,
          .n_variables = 1,
          .batch_size = 40,
          .on_absent_chunk = fill ? INSITU_FILL : INSITU_AUTO};
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
      insitu_batch *b = NULL;
      uint64_t nan = 0;
      assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), fill ? INSITU_OK : INSITU_E_ABSENT);
      for (uint64_t k = 0; b && k < 40; k++)
        nan += ((const uint16_t *)b->arrays[0].data)[k] == (i ? 0x7fc0 : 0x7e00);
      assert_int_equal(nan, fill ? 3 * 4 : 0); /* chunks 2, 5 and 8 */
      insitu_batch_release(&b);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
  support_remove(root);
}

/* ---- refusals ---- */

static void put(const char *root, const char *key, const char *text) {
  char path[700];
  snprintf(path, sizeof path, "%s/%s", root, key);
  support_write(path, text, strlen(text));
}

#define REST "\"order\":\"C\",\"fill_value\":0,\"filters\":null,"
/* Numbers that no list of a desc has are refused before anything behind the list is looked at. */
static void test_wrong_counts(void **state) {
  (void)state;
  const char *root = support_path("counts");
  support_make(root, &plain);
  insitu_slice slice = {.axis = 1, .start = 1};
  insitu_op op = {.kind = INSITU_OP_SCALE, .a = 2};
  insitu_variable v[2] = {{.label = "x", .path = "x"}, {.label = "y", .path = "x"}};
  insitu_loader_desc d = plain_desc(root, any_mode()), wrong = d;
  insitu_error err;
  insitu_shape shape;
  wrong.n_variables = UINT64_MAX;
  refuse(&wrong, INSITU_E_ARG, "n_variables is 18446744073709551615; give 1 to 1024");
  wrong.variables = NULL;
  wrong.n_variables = 1;
  refuse(&wrong, INSITU_E_ARG, "n_variables is 1, and variables is NULL");
  wrong = d;
  wrong.n_axes = 1;
  refuse(&wrong, INSITU_E_ARG, "n_axes is 1, and axes is NULL; give axes, at most 8");
  wrong = d;
  wrong.variables = v;
  wrong.n_variables = 2;
  static const uint64_t many[] = {17, UINT64_MAX, (UINT64_C(1) << 59) + 1};
  insitu_loader *ld = open_or_fail(&d);
  for (int i = 0; i < 3; i++) {
    v[1].slices = &slice;
    v[1].n_slices = many[i];
    refuse(&wrong, INSITU_E_ARG, "variable y: slices is NULL or n_slices is over 16");
    assert_int_equal(insitu_read(ld, &v[1], NULL, 0, &shape, &err), INSITU_E_ARG);
    assert_non_null(strstr(err.message, "n_slices is over 16"));
    v[1].n_slices = 0;
    v[1].ops = &op;
    v[1].n_ops = many[i] | 128;
    refuse(&wrong, INSITU_E_ARG, "variable y: ops is NULL, or n_ops over 64");
    v[1].n_ops = 0;
  }
  v[1].slices = NULL;
  v[1].n_slices = 1;
  refuse(&wrong, INSITU_E_ARG, "variable y: slices is NULL");
  insitu_loader_close(&ld);
  support_remove(root);
}

static void test_refusals(void **state) {
  (void)state;
  const char *root = support_path("refuse");
  struct support_array longer = plain;
  longer.name = "longer";
  longer.shape[0] = 120;
  support_make(root, &plain);
  support_make(root, &longer);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.url = support_path("nothing");
    refuse(&d, INSITU_E_NOTFOUND, "nothing");
    d.url = "ftp://host/x";
    refuse(&d, INSITU_E_UNSUPPORTED, "ftp");
    put(root, "file", "text");
    char at[700];
    snprintf(at, sizeof at, "%s/file", root);
    d.url = at;
    refuse(&d, INSITU_E_NOT_ZARR, "file");
    put(root, "sub/readme", "text");
    snprintf(at, sizeof at, "%s/sub", root);
    refuse(&d, INSITU_E_NOT_ZARR, "sub");
    d = plain_desc(root, m);
    insitu_variable v[2] = {{.label = "y", .path = "lnger"}, {.label = "x"}};
    d.variables = v;
    refuse(&d, INSITU_E_NOTFOUND, "longer"); /* did you mean */
    v[0].path = "longer";
    d.n_variables = 2;
    refuse(&d, INSITU_E_SHAPE, "120");
    v[0] = v[1];
    refuse(&d, INSITU_E_ARG, "two variables have the label 'x'");
    /* without a label the last part of the path is one */
    v[1] = (insitu_variable){.path = "sub/x"};
    refuse(&d, INSITU_E_ARG, "two variables have the label 'x'");
    v[1] = (insitu_variable){.offset = 1};
    refuse(&d, INSITU_E_ARG, "neither a path nor a label");
    {
      v[0] = (insitu_variable){.path = "/x/"};
      d.n_variables = 1;
      insitu_loader *ld = open_or_fail(&d);
      assert_string_equal(insitu_loader_array(ld, 0)->name, "/x/");
      insitu_loader_close(&ld);
      v[0] = (insitu_variable){.path = "/x", .label = ""};
      ld = open_or_fail(&d);
      assert_string_equal(insitu_loader_array(ld, 0)->name, "x");
      assert_string_equal(insitu_loader_config(ld)->variables[0].label, "x");
      insitu_loader_close(&ld);
    }
    d.n_variables = 1;
    d.sample_dim = "time";
    refuse(&d, INSITU_E_NOTFOUND, "time");
    d.sample_dim = NULL;
    d.sample_axis = 3;
    refuse(&d, INSITU_E_SHAPE, "axis 3");
    d.sample_axis = 0;
    insitu_slice slice = {.axis = 1, .start = 2, .stop = 7};
    v[0].slices = &slice;
    v[0].n_slices = 1;
    refuse(&d, INSITU_E_SHAPE, "[2, 7)");
    slice = (insitu_slice){.axis = 0};
    refuse(&d, INSITU_E_ARG, "sample axis");
    v[0].n_slices = 0;
    v[0].dtype = INSITU_I16;
    refuse(&d, INSITU_E_DTYPE,
        "from float32 to int16; use INSITU_AS_STORED or one of float16, float64, bfloat16");
    v[0].dtype = INSITU_BOOL;
    refuse(&d, INSITU_E_DTYPE, "from float32 to bool");
    v[0].dtype = 0x333;
    refuse(&d, INSITU_E_DTYPE, "dtype is 819");
    v[0].dtype = 0x280; /* a float of 128 bits */
    refuse(&d, INSITU_E_DTYPE, "holds float32: use INSITU_AS_STORED or one of float16");
    v[0].decode = INSITU_CF;
    refuse(&d, INSITU_E_DTYPE, "INSITU_CF makes float16, bfloat16, float32 or float64");
    v[0].dtype = INSITU_I32;
    refuse(&d, INSITU_E_DTYPE, "and int32 is asked for; ask for one of these");
    v[0].decode = 0;
    v[0].dtype = 0;
    v[0].offset = 100;
    {
      insitu_loader *ld = open_or_fail(&d);
      insitu_error err = {0};
      insitu_iter *it = NULL;
      assert_int_equal(insitu_iter_open(ld, &train, &it, &err), INSITU_E_SPLIT);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    v[0].offset = INT64_MIN;
    refuse(&d, INSITU_E_ARG, "2^40");
    v[0].offset = 0;
    d.batch_size = 1000;
    {
      insitu_loader *ld = open_or_fail(&d);
      insitu_error err = {0};
      insitu_iter *it = NULL;
      assert_int_equal(insitu_iter_open(ld, &train, &it, &err), INSITU_E_SPLIT);
      assert_non_null(strstr(err.message, "batch_size 1000"));
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
    d.batch_size = 8;
    const struct {
      const char *meta;
      insitu_status status;
      const char *word;
    } bad[] = {
        {"{\"zarr_format\":2,\"shape\":[100,6", INSITU_E_JSON, ""},
        {"{\"zarr_format\":2,\"shape\":[100],\"chunks\":[0],\"dtype\":\"<f4\"," REST
         "\"compressor\":null}",
            INSITU_E_FORMAT, "chunk"},
        {"{\"zarr_format\":2,\"shape\":[100],\"chunks\":[8],\"dtype\":\"<X8\"," REST
         "\"compressor\":null}",
            INSITU_E_DTYPE, "<X8"},
        {"{\"zarr_format\":2,\"shape\":[100],\"chunks\":[8],\"dtype\":\"<f4\"," REST
         "\"compressor\":"
         "{\"id\":\"pcodec\"}}",
            INSITU_E_CODEC, "pcodec"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
      put(root, "x/.zarray", bad[i].meta);
      refuse(&d, bad[i].status, bad[i].word);
    }
    support_make(root, &plain);
    d.api = 0;
    refuse(&d, INSITU_E_API,
        "desc.api is 0 and the INSITU_API of this implementation is 7; set it to INSITU_API");
    d.api = INSITU_API + 1;
    refuse(&d, INSITU_E_API,
        "desc.api is 8 and the INSITU_API of this implementation is 7; set it to INSITU_API");
    d.api = INSITU_API - 1; /* its structs have other layouts */
    refuse(&d, INSITU_E_API,
        "desc.api is 6 and the INSITU_API of this implementation is 7; set it to INSITU_API");
    d.api = INSITU_API;
    d.world = 2;
    d.rank = 2;
    refuse(&d, INSITU_E_ARG, "rank 2");
  }
  const char *v3 = support_path("refuse3");
  struct support_array a3 = plain;
  a3.format = 3;
  support_make(v3, &a3);
  put(v3, "x/zarr.json",
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[100],\"data_type\":\"float32\","
      "\"chunk_grid\":{\"name\":\"rectangular\","
      "\"configuration\":{}},\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,"
      "\"codecs\":[{\"name\":\"bytes\"}]}");
  insitu_loader_desc d = plain_desc(v3, 1);
  refuse(&d, INSITU_E_GRID, "rectangular");
  support_remove(root);
  support_remove(v3);
}

static void test_forked_child(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* it reports what a child must leave alone as leaks */
  const char *root = support_path("fork");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *b = next_batch_or_fail(it);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
      insitu_error err = {0};
      insitu_batch *none;
      insitu_stats stats;
      bool ok = insitu_iter_next(it, INSITU_FOREVER, &none, &err) == INSITU_E_FORKED &&
                strstr(err.message, "fork");
      ok = ok && insitu_loader_stats(ld, &stats, NULL) == INSITU_E_FORKED &&
           insitu_iter_set_epoch(it, 1, NULL) == INSITU_E_FORKED;
      insitu_batch_release(&b);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      insitu_loader *own = NULL; /* the child may open its own */
      ok = ok && !b && !it && !ld;
#ifndef __SANITIZE_THREAD__ /* it dies when a forked child of a threaded parent starts threads */
      ok = ok && insitu_loader_open(&d, &own, &err) == INSITU_OK;
#endif
      insitu_loader_close(&own);
      insitu_iter_close(&it);
      _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    insitu_batch_release(&b);
    b = next_batch_or_fail(it); /* the parent goes on */
    support_check_array(b, 0, &plain_x, &plain, 0);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

static void *call_from_other_thread(void *arg) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status s = insitu_iter_next((insitu_iter *)arg, 0, &b, &err);
  return (void *)(intptr_t)(s == INSITU_E_WRONG_THREAD && strstr(err.message, "inline_io"));
}

static void test_threads(void **state) {
  (void)state;
  const char *root = support_path("threads");
  support_make(root, &plain);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    void *right = NULL;
    pthread_t other;
    if (modes[m].inline_io) {
      pthread_create(&other, NULL, call_from_other_thread, it);
      pthread_join(other, &right);
      assert_non_null(right);
    }
    insitu_batch *b = next_batch_or_fail(it);
    insitu_batch_release(&b);
    insitu_loader_cancel(ld);
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, NULL), INSITU_CANCELLED);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

static void *cancel_soon(void *arg) {
  usleep(20000);
  insitu_loader_cancel((insitu_loader *)arg);
  return NULL;
}

static void *release_soon(void *arg) {
  (void)arg;
  usleep(20000);
  atomic_store(&hold_key, NULL);
  return NULL;
}

/* A consumer asleep in next is woken by cancel. */
static void test_cancel_wakes(void **state) {
  (void)state;
  const char *root = support_path("cancel");
  support_make(root, &plain);
  for (int m = 0; m < 2; m++) {
    if (!mode_usable(m)) continue;
    atomic_store(&hold_key, "x/0.0.0");
    insitu_loader_desc d = plain_desc(root, m);
    insitu_loader *ld = open_or_fail(&d);
    atomic_store(
        &ld->source.store.never_now, true); /* all is read by the ring, where it can be held */
    insitu_iter *it = iter_or_fail(ld, INSITU_ALL, 0);
    insitu_batch *b;
    assert_int_equal(insitu_iter_next(it, 0, &b, NULL), INSITU_TIMEOUT);
    assert_int_equal(insitu_iter_next(it, 20, &b, NULL), INSITU_TIMEOUT);
    pthread_t other;
    pthread_create(&other, NULL, cancel_soon, ld);
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, NULL), INSITU_CANCELLED);
    pthread_join(other, NULL);
    pthread_create(&other, NULL, release_soon, NULL); /* close waits for the read */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    pthread_join(other, NULL);
  }
  support_remove(root);
}

/* ---- what is no regular file ---- */

/* A named pipe, with and without a writer, a directory, a socket or a device in the place of a
 * chunk, of a shard or of metadata is an error that says so. It is never waited for, and never a
 * hole by itself. */
static void irregular_make(int kind, const char *path) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  remove(path);
  if (kind < 2) assert_int_equal(mkfifo(path, 0600), 0);
  else if (kind == 2) assert_int_equal(mkdir(path, 0700), 0);
  else if (kind == 3) assert_int_equal(symlink("/dev/zero", path), 0);
  else {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(
        (size_t)snprintf(name.sun_path, sizeof name.sun_path, "%s", path) < sizeof name.sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    close(fd);
  }
}
static void test_irregular(void **state) {
  (void)state;
  char path[512];
  EACH_MODE (m)
    for (int kind = 0; kind < 5; kind++)
      for (int zstd = 0; zstd < 3; zstd++) { /* raw chunks; compressed ones; metadata */
        struct support_array a = plain;
        const char *root = support_path("f");
        insitu_error err = {0};
        insitu_loader *ld = NULL;
        insitu_iter *it = NULL;
        insitu_batch *b = NULL;
        a.zstd = zstd == 1;
        support_make(root, &a);
        snprintf(path, sizeof path, "%s/x/%s", root, zstd == 2 ? ".zarray" : "3.0.0");
        irregular_make(kind, path);
        /* and nothing is written */
        int writer = kind == 1 ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
        insitu_loader_desc d = plain_desc(root, m);
        insitu_status status = insitu_loader_open(&d, &ld, &err);
        if (zstd < 2) {
          insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL};
          assert_int_equal(status, INSITU_OK);
          assert_int_equal(insitu_iter_open(ld, &all, &it, &err), INSITU_OK);
          while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK)
            insitu_batch_release(&b);
        }
        const char *want =
            kind == 2 ? "it is a directory, no regular file" : "it is no regular file";
        if (status != INSITU_E_IO || !strstr(err.message, want) ||
            !strstr(err.message, zstd == 2 ? ".zarray" : "x/3.0.0"))
          fail_msg("mode %s, kind %d: %d %s", modes[m].name, kind, status, err.message);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        if (writer >= 0) close(writer);
        support_remove(root);
      }
}

/* ---- close at every await ---- */

static void test_close_anywhere(void **state) {
  (void)state;
  const char *root = support_path("close");
  struct support_array a = plain;
  a.zstd = true;
  support_make(root, &a);
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.max_inflight = 3;
    /* inline: after each single turn of the loop; threaded: at random moments */
    for (int turns = 0; turns < 60; turns++) {
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0),
                  *val = turns % 2 ? iter_or_fail(ld, INSITU_VAL, 0) : NULL;
      insitu_batch *b = NULL;
      if (modes[m].inline_io)
        for (int k = 0; k < turns; k++) insitu__reactor_run(&ld->reactor, 0);
      else
        for (volatile uint64_t spin = support_below(1 << (turns % 18)); spin; spin--) continue;
      if (turns % 3 == 1) insitu_iter_next(it, 0, &b, NULL);
      if (turns % 5 == 2)
        assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)turns, NULL), INSITU_OK);
      if (turns % 7 == 3) insitu_iter_close(&it);
      if (turns % 4 == 1) insitu_iter_close(&val);
      if (turns % 11 == 4) insitu_loader_cancel(ld);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      if (b) support_check_array(b, 0, &plain_x, &a, 0);
      insitu_batch_release(&b);
      insitu_iter_close(&val);
    }
  }
  support_remove(root);
}

/* ---- nothing is allocated once the rings are full ---- */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "allocations.h"

static uint64_t mappings(void) {
  char line[512];
  uint64_t n = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, f)) n++;
  fclose(f);
  return n;
}

static void test_no_allocation(void **state) {
  (void)state;
  if (getenv("INSITU_CHECK")) skip(); /* which allocates */
  const char *root = support_path("allocation");
  struct support_array a = plain;
  a.zstd = true;
  a.fortran = true;
  support_make(root, &a);
  const insitu_variable v[] = {
      {.label = "x"}, {.label = "next", .path = "x", .offset = 1, .dtype = INSITU_F64}};
  EACH_MODE (m) {
    insitu_loader_desc d = plain_desc(root, m);
    d.variables = v;
    d.n_variables = 2;
    d.max_inflight = 4;
    insitu_loader *ld = open_or_fail(&d);
    support_reserve(ld);
    insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
    insitu_batch *b;
    insitu_plan plan;
    assert_int_equal(insitu_loader_plan(ld, &train, &plan, NULL), INSITU_OK);
    int before = 0;
    uint64_t maps = mappings();
    for (int e = 0; e < 60; e++) {
      if (e == 30) before = atomic_load(&allocations);
      while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    }
    assert_int_equal(atomic_load(&allocations) - before, 0);
    assert_true(mappings() <= maps + plan.slabs + 4 * d.max_inflight); /* not 600 batches' worth */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}
#endif

/* ---- manifest, plan ---- */

static void test_manifest(void **state) {
  (void)state;
  const char *root = support_path("manifest"), *path = support_path("split.json");
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, 1);
  d.split_shuffled = 1;
  insitu_loader *ld = open_or_fail(&d);
  int64_t a[100], b[100];
  insitu_iter *it = iter_or_fail(ld, INSITU_TRAIN, 0);
  uint64_t n = collect(it, a, 100);
  assert_int_equal(insitu_manifest_save(ld, path, NULL), INSITU_OK);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  d.split_shuffled = 0;
  d.manifest = path;
  ld = open_or_fail(&d);
  it = iter_or_fail(ld, INSITU_TRAIN, 0);
  assert_int_equal(collect(it, b, 100), n);
  assert_memory_equal(a, b, n * sizeof *a);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  /* as the Python package writes it: other key order, chunks in any order */
  const char *text = "{\"seed\": null, \"chunks\": {\"test\": [12], \"val\": [7, 3], \"train\": "
                     "[9, 0, 1, 2]}, \"n_samples\": 100,\n"
                     " \"sample_chunk_size\": 8, \"n_chunks\": 13}";
  support_write(path, text, strlen(text));
  ld = open_or_fail(&d);
  it = iter_or_fail(ld, INSITU_TEST, 0);
  assert_int_equal(collect(it, a, 100), 4); /* the last chunk is short */
  for (int i = 0; i < 4; i++) assert_int_equal(a[i], 96 + i);
  insitu_iter_close(&it);
  it = iter_or_fail(ld, INSITU_VAL, 0);
  assert_int_equal(collect(it, a, 100), 16);
  assert_int_equal(a[0], 24);
  assert_int_equal(a[8], 56);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  const struct {
    const char *text, *word;
    insitu_status status;
  } bad[] = {{"{\"n_samples\": 99, \"sample_chunk_size\": 8, \"n_chunks\": 13, \"chunks\": {}}",
                 "n_samples", INSITU_E_SPLIT},
      {"{\"n_samples\": 100, \"sample_chunk_size\": 4, \"n_chunks\": 25, \"chunks\": {}}",
          "sample_chunk_size", INSITU_E_SPLIT},
      {"{\"n_samples\": 100, \"sample_chunk_size\": 8, \"n_chunks\": 13,"
       "\"chunks\": {\"train\": [1, 2], \"val\": [2], \"test\": []}}",
          "both", INSITU_E_SPLIT},
      {"{\"n_samples\": 100, \"sample_chunk_size\": 8, \"n_chunks\": 13, \"chunks\": {\"train\": "
       "[13], \"val\": [], \"test\": []}}",
          "below 13", INSITU_E_SPLIT},
      {"{\"n_samples\": 100, \"sample_chunk_size\": 8, \"n_chunks\": 13,"
       "\"chunks\": {\"train\": [1, 1], \"val\": [], \"test\": []}}",
          "twice", INSITU_E_SPLIT},
      {"{\"n_samples\": 100, \"sample_chunk_size\": 8, \"n_chunks\": 13}",
          "neither chunks nor excluded", INSITU_E_SPLIT},
      {"{\"excluded\": 7}", "no list of at most 2^20 ranges", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 1, \"stop\": 2}, {\"start\": 9, \"stop\": 9}]}",
          "entry 1 of excluded is no {\"start\"", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 99, \"stop\": 101}]}", "the archive's 100;", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": -1, \"stop\": 5}]}", "entry 0", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 1, \"end\": 5}]}", "entry 0", INSITU_E_SPLIT},
      {"{\"excluded\": [[1, 5]]}", "entry 0", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 1, \"stop\": 5, \"reason\": 3}]}", "the reason of entry 0",
          INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 1, \"stop\": 5, \"reason\": \"a\\u0000b\"}]}",
          "no text of less than 1024 bytes", INSITU_E_SPLIT},
      {"{\"excluded\": [{\"start\": 1, \"stop\": 5, \"reason\": \"caf\xe9\"}]}",
          "the reason of entry 0 of excluded is no UTF-8", INSITU_E_SPLIT},
      {"{\"n_samples\": 99, \"excluded\": []}", "n_samples is 99", INSITU_E_SPLIT},
      {"{", "", INSITU_E_JSON}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    support_write(path, bad[i].text, strlen(bad[i].text));
    refuse(&d, bad[i].status, bad[i].word);
  }
  d.manifest = support_path("no.json");
  refuse(&d, INSITU_E_NOTFOUND, "no.json");
  support_remove(root);
}

/* What a manifest excludes is never shown: not as an anchor, not in a window, not with split_spill.
 * Saving keeps it, with reasons, and whole chunks where the Python package can read them. */
static void test_excluded(void **state) {
  (void)state;
  const char *root = support_path("excluded"), *path = support_path("excluded.json"),
             *saved = support_path("saved.json");
  static const struct {
    const char *text, *saved; /* saved: what the saved one ends with */
    int64_t lo[2], hi[2];
  } at[] = {
      {"{\"excluded\": [{\"start\": 16, \"stop\": 24, \"reason\": \"sensor \\u00fc off\"}, "
       "{\"start\": 96, \"stop\": 100}]}",
          "\"chunks\": {\"train\": [0, 1, 3, 4, 5, 6, 7, 8, 9], \"val\": [10, 11], \"test\": [], "
          "\"excluded\": [{\"start\": 16, \"stop\": 24, \"reason\": \"sensor \u00fc off\"}, "
          "{\"start\": 96, \"stop\": 100}]}}\n",
          {16, 96}, {24, 100}},
      {"{\"excluded\": [{\"start\": 50, \"stop\": 53}, {\"start\": 20, \"stop\": 30}, {\"start\": "
       "25, \"stop\": 33, \"reason\": \"\"}]}",
          "\"chunks\": {\"train\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], \"val\": [10, 11], \"test\": "
          "[12]}, \"excluded\": [{\"start\": 20, \"stop\": 30}, {\"start\": 25, \"stop\": 33, "
          "\"reason\": \"\"}, {\"start\": 50, \"stop\": 53}]}\n",
          {20, 50}, {33, 53}}};
  support_make(root, &plain);
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    for (int spill = 0; spill < 2; spill++) {
      insitu_loader_desc d = plain_desc(root, any_mode());
      int64_t a[100], b[100];
      char text[2000] = "";
      uint64_t want = 0, dropped = 0;
      support_write(path, at[i].text, strlen(at[i].text));
      d.manifest = path;
      d.split_spill = spill;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
      insitu_plan plan;
      insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL};
      uint64_t n = collect(it, a, 100);
      for (int64_t x = 0; x < 100; x++) {
        bool out = false;
        for (uint64_t v = 0; v < d.n_variables; v++)
          for (int k = 0; k < 2; k++) {
            int64_t y = x + d.variables[v].offset;
            out = out || (y >= at[i].lo[k] && y < at[i].hi[k]) ||
                  (x >= at[i].lo[k] && x < at[i].hi[k]);
          }
        bool inside = true;
        for (uint64_t v = 0; v < d.n_variables; v++)
          inside = inside && x + d.variables[v].offset >= 0 && x + d.variables[v].offset < 100;
        dropped += out;
        if (inside && !out) assert_int_equal(a[want++], x);
      }
      assert_int_equal(n, want);
      assert_int_equal(insitu_loader_plan(ld, &all, &plan, NULL), INSITU_OK);
      assert_int_equal(plan.dropped[INSITU_DROP_EXCLUDED], dropped);
      assert_int_equal(insitu_manifest_save(ld, saved, NULL), INSITU_OK);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      FILE *f = fopen(saved, "r");
      assert_true(f && fread(text, 1, sizeof text - 1, f) > 0 && fclose(f) == 0);
      if (strlen(text) < strlen(at[i].saved) ||
          strcmp(text + strlen(text) - strlen(at[i].saved), at[i].saved) != 0)
        fail_msg("%s", text);
      d.manifest = saved;
      ld = open_or_fail(&d);
      it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
      assert_int_equal(collect(it, b, 100), n);
      assert_memory_equal(a, b, n * sizeof *a);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      if (i) continue;
      /* all of test is excluded, or belongs to no split: the error names it */
      insitu_error err = {0};
      d.manifest = path;
      for (int again = 0; again < 2; again++) {
        ld = open_or_fail(&d);
        assert_int_equal(
            insitu_iter_open(
                ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TEST}, &it, &err),
            INSITU_E_SPLIT);
        const char *word = again ? "What takes most: in another split or in none"
                                 : "What takes most: excluded by the manifest; exclude less";
        if (!strstr(err.message, word)) fail_msg("%s", err.message);
        insitu_loader_close(&ld);
        d.manifest = saved;
      }
    }
  support_remove(root);
}

/* Plan counts the reads that the loader then makes; plan_only reads no chunk and starts no thread.
 */
static void test_plan(void **state) {
  (void)state;
  const char *root = support_path("plan");
  for (int round = 0; round < support_rounds(30); round++) {
    struct scenario s;
    draw(&s, root, 1);
    s.desc.hold_epoch = 1;
    s.desc.plan_only = 1;
    bool slices = false;
    for (int i = 0; i < s.n_variables; i++) slices = slices || s.variable[i].n_slices;
    insitu_plan plan, real;
    insitu_loader *ld = open_or_fail(&s.desc);
    insitu_iter *it = NULL;
    insitu_status status = insitu_loader_plan(ld, &train, &plan, NULL);
    assert_int_equal(insitu_iter_open(ld, &train, &it, NULL), INSITU_E_ARG);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    if (status) continue;
    s.desc.plan_only = 0;
    ld = open_or_fail(&s.desc);
    assert_int_equal(insitu_loader_plan(ld, &train, &real, NULL), INSITU_OK);
    plan.inflight_bytes = real.inflight_bytes; /* plan_only decodes inline */
    assert_memory_equal(&plan, &real, sizeof plan);
    it = iter_or_fail(ld, INSITU_TRAIN, 0);
    int64_t anchors[200];
    assert_int_equal(collect(it, anchors, 200), plan.rows);
    insitu_stats stats;
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    if (slices) assert_true(stats.reads <= plan.reads); /* views of different fields: at most */
    else assert_int_equal(stats.reads, plan.reads);
    assert_true(plan.amplification >= 1 && plan.distinct <= plan.reads);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    support_remove(root);
  }
}

/* Small chunks are tried by a worker with what the caches hold; what is not there goes the other
 * way, at random or always. */
static atomic_uint tried, cached;
static unsigned not_cached; /* of 4 */
static const struct insitu__store_ops *real_ops;
static insitu_status read_some_now(struct insitu__store *s, const char *key, int fd,
    uint64_t offset, const struct iovec *iov, unsigned n_iov, uint64_t expected, uint64_t *got) {
  if (insitu__order_mix(atomic_fetch_add(&tried, 1)) % 4 < not_cached) {
    /* what a part of a file may leave */
    for (unsigned i = 0; i < n_iov; i++) memset(iov[i].iov_base, 0x77, iov[i].iov_len);
    return INSITU_TIMEOUT;
  }
  insitu_status status = real_ops->read_now(s, key, fd, offset, iov, n_iov, expected, got);
  if (!status) atomic_fetch_add(&cached, 1);
  return status;
}
static void test_caches(void **state) {
  (void)state;
  const char *root = support_path("caches");
  EACH_MODE (m)
    for (int round = 0; round < 12; round++) {
      struct scenario s;
      draw(&s, root, m);
      s.desc.max_inflight = 1 + support_below(40);
      s.desc.prefetch_depth = 1 + support_below(40);
      s.desc.hold_epoch = 1;
      insitu_loader *ld = open_or_fail(&s.desc);
      real_ops = ld->source.store.ops;
      struct insitu__store_ops ops = *real_ops;
      ops.read_now = read_some_now;
      ld->source.store.ops = &ops;
      not_cached = (unsigned)round % 5;
      atomic_store(&tried, 0);
      atomic_store(&cached, 0);
      run_epochs(&s, ld, INSITU_TRAIN, INSITU_SHUFFLED);
      run_epochs(&s, ld, INSITU_VAL, INSITU_SEQUENTIAL);
      insitu_stats stats;
      insitu_loader_stats(ld, &stats, NULL);
      bool shards = false;
      for (int i = 0; i < s.n_arrays; i++) shards = shards || s.array[i].shard[0];
      if (modes[m].inline_io || !stats.batches) assert_int_equal(tried, 0);
      else if (!shards) assert_true(tried > 0);
      if (not_cached == 4) assert_int_equal(cached, 0);
      if (not_cached == 0 && !shards && !s.array[0].absent && !modes[m].inline_io && stats.batches)
        assert_true(cached > 0 || ld->source.store.never_now);
      assert_true(stats.requests >= atomic_load(&cached));
      insitu_loader_close(&ld);
      support_remove(root);
    }
}

/* ---- what a loader keeps of its desc ---- */

static insitu_status never(void *user, const char *config, const void *src, uint64_t n, void *dst,
    uint64_t cap, uint64_t *got, insitu_error *err) {
  (void)user, (void)config, (void)src, (void)n, (void)dst, (void)cap, (void)got, (void)err;
  return INSITU_E_CODEC;
}

/* insitu_loader_config shows copies: all that the desc points to may go once the loader is open. */
static void test_config_is_a_copy(void **state) {
  (void)state;
  const char *root = support_path("copies");
  support_make(root, &plain);
  struct texts {
    char url[600], label[2][8], path[8], dim[8], from[8], codec[16];
    int64_t steps[2];
    insitu_slice slice;
    insitu_codec codecs[1];
    insitu_variable v[2];
  } *mine = calloc(1, sizeof *mine);
  snprintf(mine->url, sizeof mine->url, "%s", root);
  strcpy(mine->label[0], "one");
  strcpy(mine->label[1], "two");
  strcpy(mine->path, "x");
  strcpy(mine->codec, "my_codec");
  mine->steps[0] = 1;
  mine->steps[1] = 2;
  mine->slice = (insitu_slice){.axis = 1, .start = 1, .stop = 3};
  mine->codecs[0] = (insitu_codec){.name = mine->codec, .decode = never};
  mine->v[0] = (insitu_variable){.label = mine->label[0],
      .path = mine->path,
      .steps = mine->steps,
      .n_steps = 2,
      .slices = &mine->slice,
      .n_slices = 1};
  mine->v[1] = (insitu_variable){
      .label = mine->label[1], .path = mine->path, .steps = mine->steps, .slices = &mine->slice};
  insitu_loader_desc d = plain_desc(mine->url, any_mode());
  d.variables = mine->v;
  d.n_variables = 2;
  d.codecs = mine->codecs;
  d.n_codecs = 1;
  insitu_option none[1] = {{"region", "x"}};
  d.options = none; /* n_options is 0 */
  insitu_loader *ld = open_or_fail(&d);
  memset(mine, 0x5a, sizeof *mine);
  free(mine);
  const insitu_loader_desc *c = insitu_loader_config(ld);
  assert_string_equal(c->url, root);
  assert_string_equal(c->variables[0].label, "one");
  assert_string_equal(c->variables[1].path, "x");
  assert_true(c->variables[0].steps[0] == 1 && c->variables[0].steps[1] == 2);
  assert_true(c->variables[0].slices[0].start == 1 && c->variables[0].slices[0].stop == 3);
  assert_string_equal(c->codecs[0].name, "my_codec");
  assert_null(c->variables[1].steps); /* none are counted: nothing is pointed to */
  assert_null(c->variables[1].slices);
  assert_null(c->options);
  insitu_loader_close(&ld);
  support_remove(root);
}

struct saver {
  pthread_t id;
  insitu_loader *ld;
  const char *path;
  int failed;
};
static void *save_often(void *arg) {
  struct saver *s = arg;
  for (int i = 0; i < 40; i++) s->failed += insitu_manifest_save(s->ld, s->path, NULL) != INSITU_OK;
  return NULL;
}
static int files_in(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
  if (d) closedir(d);
  return n;
}

/* Manifests that threads and processes save to one path at once, by one loader and by several. */
static void test_manifest_at_once(void **state) {
  (void)state;
  char root[700], folder[600], path[900];
  snprintf(root, sizeof root, "%s", support_path("saved"));
  snprintf(folder, sizeof folder, "%s", support_path("manifests"));
  int n = snprintf(path, sizeof path, "%s/", folder);
  for (int i = 0; i < 250; i++) path[n++] = 'm'; /* as long as a name may be, but for 5 */
  path[n] = 0;
  assert_int_equal(mkdir(folder, 0777), 0);
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, any_mode());
  d.plan_only = 1;
  insitu_loader *ld[2] = {open_or_fail(&d), open_or_fail(&d)};
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    insitu_loader *own = NULL;
    int failed = insitu_loader_open(&d, &own, NULL) != INSITU_OK;
    struct saver s = {.ld = own, .path = path};
    if (!failed) save_often(&s);
    _exit(failed || s.failed);
  }
  struct saver s[4];
  for (int i = 0; i < 4; i++) {
    s[i] = (struct saver){.ld = ld[i % 2], .path = path};
    assert_int_equal(pthread_create(&s[i].id, NULL, save_often, &s[i]), 0);
  }
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(s[i].id, NULL), 0);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (int i = 0; i < 4; i++) assert_int_equal(s[i].failed, 0);
  assert_int_equal(files_in(folder), 1);
  insitu_loader_desc again = d;
  again.manifest = path;
  struct identity saved = identity_of(again);
  for (int p = 0; p < 4; p++) /* it is whole */
    assert_int_equal(saved.split[p], ld[0]->split.part[p].hash);
  /* a folder cannot be replaced: nothing is left */
  assert_int_equal(insitu_manifest_save(ld[0], folder, NULL), INSITU_E_IO);
  assert_int_equal(files_in(folder), 1);
  support_remove(folder);
  for (int i = 0; i < 2; i++) insitu_loader_close(&ld[i]);
  support_remove(root);
}

/* ---- one insitu_error for all calls ---- */

/* It speaks of the last call: of its failure, whatever it held before, or of none. */
#define TELLS(call, want, word)                                                                    \
  do {                                                                                             \
    memset(                                                                                        \
        &err, 0x99, sizeof err); /* never set; negative, so that it looks like an earlier error */ \
    err.message[sizeof err.message - 1] = 0;                                                       \
    assert_int_equal(call, want);                                                                  \
    assert_int_equal(err.status, want);                                                            \
    assert_true(!err.sys_errno && !err.http_status && !err.retryable);                             \
    if (!strstr(err.message, word))                                                                \
      fail_msg("%s: '%s' does not say '%s'", #call, err.message, word);                            \
  } while (0)
#define SILENT(call, want)                                                                         \
  do {                                                                                             \
    memset(&err, 0x99, sizeof err);                                                                \
    assert_int_equal(call, want);                                                                  \
    assert_true(                                                                                   \
        !err.status && !err.message[0] && !err.sys_errno && !err.http_status && !err.retryable);   \
  } while (0)

static void test_error_of_the_last_call(void **state) {
  (void)state;
  const char *root = support_path("lasterror");
  support_make(root, &plain);
  insitu_loader_desc d = plain_desc(root, any_mode()), wrong = d;
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL},
                   other = {.api = INSITU_API, .split = 9};
  insitu_order_desc od = {.api = INSITU_API,
                        .units = 4,
                        .unit_rows = 2,
                        .global_batch = 2,
                        .lanes = 1,
                        .window = 1},
                    none = od;
  const insitu_variable missing = {.label = "nothing"};
  insitu_error err;
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_order *order;
  insitu_plan plan;
  insitu_quality quality;
  insitu_stats stats;
  insitu_shape shape;
  insitu_strings *strings;
  insitu_date date;
  int64_t anchor;
  void *managed;
  wrong.url = "";
  none.units = 0;
  TELLS(insitu_loader_open(&wrong, &ld, &err), INSITU_E_ARG, "url is empty");
  SILENT(insitu_loader_open(&d, &ld, &err), INSITU_OK);
  TELLS(insitu_iter_open(ld, &other, &it, &err), INSITU_E_ARG, "split 9");
  SILENT(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  TELLS(insitu_loader_plan(ld, &other, &plan, &err), INSITU_E_ARG, "split 9");
  SILENT(insitu_loader_plan(ld, &id, &plan, &err), INSITU_OK);
  TELLS(insitu_loader_quality(ld, &other, &quality, &err), INSITU_E_ARG, "split 9");
  SILENT(insitu_loader_quality(ld, &id, &quality, &err), INSITU_OK);
  TELLS(insitu_loader_stats(ld, NULL, &err), INSITU_E_ARG, "stats: out is NULL");
  SILENT(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
  TELLS(insitu_read(ld, &missing, NULL, 0, &shape, &err), INSITU_E_NOTFOUND, "nothing");
  SILENT(insitu_read(ld, &plain_x, NULL, 0, &shape, &err), INSITU_OK);
  TELLS(insitu_read_strings(ld, "x", &strings, &err), INSITU_E_DTYPE, "it holds numbers");
  TELLS(insitu_manifest_save(ld, "", &err), INSITU_E_ARG, "the path is empty");
  ld->split.by_chunks = false; /* as if it was given by samples */
  TELLS(insitu_manifest_save(ld, "s3://b/m?sig=t0ken", &err), INSITU_E_SPLIT, "b/m?***");
  ld->split.by_chunks = true;
  SILENT(insitu_manifest_save(ld, support_path("lasterror.json"), &err), INSITU_OK);
  TELLS(insitu_iter_next(it, 0, NULL, &err), INSITU_E_ARG, "next: out is NULL");
  SILENT(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_OK);
  TELLS(insitu_batch_copy_to(b, 7, &anchor, sizeof anchor, NULL, &err), INSITU_E_ARG, "no array 7");
  TELLS(insitu_batch_dlpack(b, 8, 0, NULL, &managed, &err), INSITU_E_ARG, "no array 8");
  TELLS(insitu_batch_wait(NULL, NULL, &err), INSITU_E_ARG, "wait: the batch is NULL");
  SILENT(insitu_batch_wait(b, NULL, &err), INSITU_OK);
  SILENT(insitu_iter_restore(it, &b->after, &err), INSITU_OK);
  insitu_batch_release(&b);
  TELLS(insitu_iter_restore(it, NULL, &err), INSITU_E_ARG, "state is NULL");
  TELLS(insitu_iter_set_epoch(it, UINT64_MAX, &err), INSITU_E_ARG, "beyond the last epoch");
  SILENT(insitu_iter_set_epoch(it, 1, &err), INSITU_OK);
  TELLS(insitu_iter_locate(it, 0, 0, 1000, &anchor, &err), INSITU_E_ARG, "no row 1000");
  SILENT(insitu_iter_locate(it, 0, 0, 0, &anchor, &err), INSITU_OK);
  TELLS(insitu_order_open(&none, &order, &err), INSITU_E_ARG, "units 0");
  SILENT(insitu_order_open(&od, &order, &err), INSITU_OK);
  insitu_order_close(&order);
  memset(&err, 0, sizeof err); /* two failures in a row, as a program meets them */
  assert_int_equal(insitu_loader_plan(ld, &other, &plan, &err), INSITU_E_ARG);
  insitu_loader_cancel(ld);
  SILENT(insitu_iter_next(it, 0, &b, &err), INSITU_CANCELLED);
  SILENT(insitu_read(ld, &plain_x, NULL, 0, &shape, &err), INSITU_CANCELLED);
  SILENT(insitu_read_strings(ld, "x", &strings, &err), INSITU_CANCELLED);
  SILENT(insitu_sample_dates(ld, &anchor, 1, &date, &err), INSITU_CANCELLED);
  assert_int_equal(insitu_iter_next(NULL, 0, &b, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "the handle is NULL"));
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  support_remove(root);
}

/* An iterator shows fewer steps, and its batches are small then: that the loader's operations write
 * large ones past the caches stays, since another iterator's workers may be at them. */
static void test_steps_leave_operations(void **state) {
  static const char meta[] =
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[8,1600000],\"data_type\":"
      "\"float32\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":"
      "[1,1600000]}},\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,\"codecs\":"
      "[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],\"attributes\":{}}";
  insitu_object object = {"x/zarr.json", meta, sizeof meta - 1};
  const int64_t steps[] = {0, 1};
  insitu_op op = {.kind = INSITU_OP_SCALE, .a = 2};
  insitu_variable v = {.label = "x", .steps = steps, .n_steps = 2, .ops = &op, .n_ops = 1};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = "memory://",
      .objects = &object,
      .n_objects = 1,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 1};
  insitu_error err = {0};
  (void)state;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = iter_or_fail(ld, INSITU_ALL, INSITU_SEQUENTIAL);
  assert_true(ld->geometry.variables[0].ops->past_caches);
  if (insitu_iter_set_steps(it, "x", 1, &err)) fail_msg("%s", err.message);
  assert_true(ld->geometry.variables[0].ops->past_caches);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_element),
    cmocka_unit_test(test_order_is_the_models),
    cmocka_unit_test(test_world),
    cmocka_unit_test(test_state_bytes),
    cmocka_unit_test(test_state_tells_apart),
    cmocka_unit_test(test_state_tells_splits_apart),
    cmocka_unit_test(test_state_of_ranks),
    cmocka_unit_test(test_iter_api),
    cmocka_unit_test(test_resume),
    cmocka_unit_test(test_set_epoch),
    cmocka_unit_test(test_last_epoch),
    cmocka_unit_test(test_iterators_together),
    cmocka_unit_test(test_held_batches),
    cmocka_unit_test(test_memory),
    cmocka_unit_test(test_default_inflight),
    cmocka_unit_test(test_absent),
    cmocka_unit_test(test_damaged),
    cmocka_unit_test(test_caches),
    cmocka_unit_test(test_views_of_different_fields),
    cmocka_unit_test(test_error_then_restart),
    cmocka_unit_test(test_conversions),
    cmocka_unit_test(test_converted_nan),
    cmocka_unit_test(test_wrong_counts),
    cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_forked_child),
    cmocka_unit_test(test_threads),
    cmocka_unit_test(test_cancel_wakes),
    cmocka_unit_test(test_irregular),
    cmocka_unit_test(test_close_anywhere),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    cmocka_unit_test(test_no_allocation),
#endif
    cmocka_unit_test(test_manifest),
    cmocka_unit_test(test_excluded),
    cmocka_unit_test(test_error_of_the_last_call),
    cmocka_unit_test(test_config_is_a_copy),
    cmocka_unit_test(test_manifest_at_once),
    cmocka_unit_test(test_plan),
    cmocka_unit_test(test_steps_leave_operations),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
