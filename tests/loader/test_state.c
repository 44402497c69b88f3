/* insitu_iter_restore where the state has units, windows and lanes that the desc leaves open, and
 * where the archive has grown since: batches against those of the run that gave the state, values
 * against the arrays' formula, and what is refused. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include <pthread.h>
#include <semaphore.h>

enum { ROWS = 8, EPOCHS = 3, MOST = 32 }; /* rows of a global batch; epochs of a run */

/* x (96, 4, 5) in chunks of 4 samples; input and target. */
static struct support_array x = {.name = "x",
    .ndim = 3,
    .shape = {96, 4, 5},
    .chunk = {4, 4, 5},
    .dtype = INSITU_F32,
    .format = 2,
    .dims = "[\"time\",\"y\",\"x\"]"};
static const insitu_variable shown[2] = {
    {.label = "in", .path = "x"}, {.label = "out", .path = "x", .offset = 1}};
static const insitu_iter_desc train = {.api = INSITU_API, .order = INSITU_SHUFFLED};

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}

static insitu_loader_desc desc_of(const char *root, int m) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = shown,
      .n_variables = 2,
      .batch_size = ROWS,
      .seed = 5,
      .split = {{.fraction = 1}},
      .log = quiet,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2};
}

/* A run of some epochs: the anchors of its global batches, and the state behind each. */
struct run {
  uint64_t unit_chunks, block_chunks, lanes; /* of its desc */
  uint64_t layout_lanes, batches;            /* an epoch */
  int64_t anchor[EPOCHS][MOST][ROWS];
  insitu_state after[EPOCHS][MOST];
};

static void check_values(const insitu_batch *b) {
  for (uint64_t i = 0; i < 2; i++) support_check_array(b, i, &shown[i], &x, 0);
}

static void record(struct run *r, insitu_loader_desc d, int32_t split) {
  insitu_iter_desc id = train;
  insitu_plan plan;
  id.split = split;
  d.unit_chunks = r->unit_chunks;
  d.block_chunks = r->block_chunks;
  d.lanes = r->lanes;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &id);
  insitu_batch *b;
  assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
  r->batches = plan.batches;
  r->layout_lanes = plan.lanes;
  assert_in_range(r->batches, 2, MOST);
  for (int e = 0; e < EPOCHS; e++) {
    for (uint64_t i = 0; i < r->batches; i++) {
      b = next_batch_or_fail(it);
      memcpy(r->anchor[e][i], b->sample_indices, sizeof r->anchor[e][i]);
      r->after[e][i] = b->after;
      check_values(b);
      insitu_batch_release(&b);
    }
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* The next batch of a rank must be that of the run. */
static insitu_batch *same_batch(insitu_iter *it, const struct run *r, uint64_t epoch,
    uint64_t index, uint64_t world, uint64_t rank) {
  insitu_batch *b = next_batch_or_fail(it);
  uint64_t n = 0;
  assert_int_equal(b->epoch, epoch);
  assert_int_equal(b->index, index);
  for (uint64_t i = 0; i < ROWS; i++)
    if (i % r->layout_lanes * world / r->layout_lanes == rank) {
      int64_t anchor = -1;
      assert_int_equal(b->sample_indices[n], r->anchor[epoch][index][i]);
      assert_int_equal(insitu_iter_locate(it, epoch, index, n, &anchor, NULL), INSITU_OK);
      assert_int_equal(anchor, r->anchor[epoch][index][i]);
      n++;
    }
  assert_int_equal(b->rows, n);
  check_values(b);
  assert_memory_equal(&b->after, &r->after[epoch][index], sizeof b->after);
  return b;
}

/* An iterator that was restored behind a batch goes on as the run: to the end of the last epoch. */
static void goes_on(insitu_iter *it, const struct run *r, uint64_t epoch, uint64_t index,
    uint64_t world, uint64_t rank) {
  insitu_batch *b;
  for (index++; epoch < EPOCHS; epoch++, index = 0) {
    for (; index < r->batches; index++) {
      b = same_batch(it, r, epoch, index, world, rank);
      insitu_batch_release(&b);
    }
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
  }
}

static void restore(insitu_iter *it, const struct run *r, uint64_t epoch, uint64_t index) {
  insitu_error err = {0};
  if (insitu_iter_restore(it, &r->after[epoch][index], &err))
    fail_msg("%s: %s", insitu_status_name(err.status), err.message);
  assert_int_equal(err.status, 0);
}

static void refused(
    insitu_iter *it, const insitu_state *s, insitu_status want, const char *one, const char *two) {
  insitu_error err = {0};
  assert_int_equal(insitu_iter_restore(it, s, &err), want);
  if (!strstr(err.message, one) || !strstr(err.message, two))
    fail_msg("'%s' does not say '%s' and '%s'", err.message, one, two);
}

static uint64_t promised(const insitu_loader *ld) {
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  return stats.memory_promised;
}

/* Orders of several units, windows and lanes. The first is nearly the default's, the last two have
 * more and fewer batches in their rings. */
static const struct run kinds[] = {{.unit_chunks = 1, .block_chunks = 12, .lanes = 4},
    {.unit_chunks = 2, .block_chunks = 12, .lanes = 2},
    {.unit_chunks = 3, .block_chunks = 7, .lanes = 2},
    {.unit_chunks = 5, .block_chunks = 24, .lanes = 8},
    {.unit_chunks = 1, .block_chunks = 24, .lanes = 2},
    {.unit_chunks = 1, .block_chunks = 2, .lanes = 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };
static struct run runs[KINDS];

static void record_all(const char *root) {
  insitu_loader_desc d = desc_of(root, any_mode());
  for (int k = 0; k < KINDS; k++) {
    runs[k] = kinds[k];
    record(&runs[k], d, INSITU_TRAIN);
  }
}

/* ---- adopted ---- */

/* A desc of zeros goes on with each order, at two world sizes, with batches in flight thrown away
 * and others held, behind a batch and behind an epoch. */
static void adopts(void **state) {
  (void)state;
  const char *root = support_path("adopts");
  support_make(root, &x);
  record_all(root);
  EACH_MODE (m)
    for (int k = 0; k < KINDS; k++)
      for (uint64_t world = 1; world <= 2; world++)
        for (uint64_t rank = 0; rank < world; rank++) {
          const struct run *r = &runs[k];
          uint64_t at[2] = {support_below(2), support_below(r->batches)};
          if (support_below(3) == 0) at[1] = r->batches - 1;
          insitu_loader_desc d = desc_of(root, m);
          d.batch_size = ROWS / world;
          d.world = (int32_t)world;
          d.rank = (int32_t)rank;
          d.hold_epoch = (int32_t)support_below(2);
          d.prefetch_depth = support_below(6);
          /* said or left open, it is the same */
          if (!support_below(4)) d.unit_chunks = r->unit_chunks;
          if (!support_below(4)) d.block_chunks = r->block_chunks;
          /* its default may not suit the world */
          if (world > 1 || d.unit_chunks || !support_below(4)) d.lanes = r->layout_lanes;
          insitu_loader *ld = open_or_fail(&d);
          insitu_iter *it = open_iter_or_fail(ld, &train);
          insitu_batch *held[2] = {NULL}, *b;
          unsigned char *kept[2];
          uint64_t n = support_below(3);
          for (uint64_t i = support_below(4); i > 0; i--) {
            b = next_batch_or_fail(it);
            insitu_batch_release(&b);
          }
          for (uint64_t i = 0; i < n; i++) {
            held[i] = next_batch_or_fail(it);
            kept[i] = malloc(held[i]->arrays[0].bytes);
            memcpy(kept[i], held[i]->arrays[0].data, held[i]->arrays[0].bytes);
          }
          restore(it, r, at[0], at[1]);
          if (n == 2) { /* they count for max_held */
            insitu_status first = insitu_iter_next(it, 20000, &b, NULL);
            if (at[1] == r->batches - 1) assert_int_equal(first, INSITU_END);
            else assert_int_equal(first, INSITU_BUSY);
            if (first == INSITU_END) {
              restore(it, r, at[0], at[1]);
            }
            check_values(held[1]);
            insitu_batch_release(&held[1]);
            free(kept[1]);
            n = 1;
          }
          if (at[1] == r->batches - 1) {
            assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
            goes_on(it, r, at[0] + 1, UINT64_MAX, world, rank);
          } else {
            goes_on(it, r, at[0], at[1], world, rank);
          }
          for (uint64_t i = 0; i < n; i++) {
            check_values(held[i]);
            assert_memory_equal(kept[i], held[i]->arrays[0].data, held[i]->arrays[0].bytes);
            free(kept[i]);
          }
          /* set_epoch keeps the order */
          assert_int_equal(insitu_iter_set_epoch(it, 1, NULL), INSITU_OK);
          goes_on(it, r, 1, UINT64_MAX, world, rank);
          if (support_below(2)) insitu_iter_close(&it);
          insitu_loader_close(&ld);
          insitu_iter_close(&it);
          for (uint64_t i = 0; i < n; i++) {
            check_values(held[i]); /* it outlives both */
            insitu_batch_release(&held[i]);
          }
        }
  support_remove(root);
}

/* Memory of batches that the loader has now. */
static _Atomic uint64_t taken;
static void *take(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  (void)user, (void)place, (void)device, (void)stream;
  taken += bytes;
  return aligned_alloc(align, (bytes + align - 1) / align * align);
}
static void give(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  (void)user, (void)place, (void)device;
  taken -= bytes;
  free(memory);
}

/* One iterator goes through states of all orders and back, while others keep theirs. What it takes
 * of memory_budget is what it would take if it had been opened so. */
static void again_and_again(void **state) {
  (void)state;
  const char *root = support_path("again");
  support_make(root, &x);
  record_all(root);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    uint64_t took[KINDS];
    if (m % 2) d.alloc = take, d.release = give;
    for (int k = 0; k < KINDS; k++) {
      insitu_loader_desc e = d;
      e.unit_chunks = kinds[k].unit_chunks;
      e.block_chunks = kinds[k].block_chunks;
      e.lanes = kinds[k].lanes;
      insitu_loader *ld = open_or_fail(&e);
      insitu_iter *it = open_iter_or_fail(ld, &train);
      took[k] = promised(ld);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    insitu_loader *ld = open_or_fail(&d);
    uint64_t empty = promised(ld);
    insitu_iter *it = open_iter_or_fail(ld, &train), *other = open_iter_or_fail(ld, &train);
    uint64_t one = promised(ld) - (promised(ld) - empty) / 2;
    insitu_batch *held = NULL, *first = next_batch_or_fail(other);
    insitu_stats stats;
    for (int turn = 0; turn < 40; turn++) {
      int k = turn < KINDS ? turn : (int)support_below(KINDS);
      const struct run *r = &runs[k];
      uint64_t epoch = support_below(2), index = support_below(r->batches - 1);
      if (!held && support_below(2)) {
        insitu_status s = insitu_iter_next(it, 20000, &held, NULL);
        assert_true(s == INSITU_OK || s == INSITU_END);
      }
      restore(it, r, epoch, index);
      uint64_t now = promised(ld) - (one - empty);
      /* structs of slabs that have no memory now stay */
      assert_in_range(now, took[k], took[k] + (64 << 10));
      assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
      assert_true(stats.memory_bytes_peak <= d.memory_budget || !d.memory_budget);
      for (uint64_t i = index + 1; i < r->batches && i < index + 4; i++) {
        insitu_batch *b = same_batch(it, r, epoch, i, 1, 0);
        insitu_batch_release(&b);
      }
      if (held && support_below(2)) {
        check_values(held);
        insitu_batch_release(&held);
      }
    }
    insitu_batch_release(&held);
    insitu_batch_release(&first);
    insitu_iter_close(&it);
    insitu_iter_close(&other);
    assert_int_equal(promised(ld), empty);
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_int_equal(stats.slab_bytes, 0);
    assert_int_equal(taken, 0);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* Where the state's order needs fewer batches, the memory of the others is given back, and it is
 * taken again where the order needs them. */
static void gives_back(void **state) {
  (void)state;
  const char *root = support_path("back");
  support_make(root, &x);
  record_all(root);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    uint64_t most[2];
    static const int of[2] = {4, 5}; /* the orders with the most batches and the fewest */
    d.alloc = take;
    d.release = give;
    d.prefetch_depth = 2;
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc e = d;
      insitu_plan plan;
      e.plan_only = 1;
      e.unit_chunks = kinds[of[i]].unit_chunks;
      e.block_chunks = kinds[of[i]].block_chunks;
      e.lanes = kinds[of[i]].lanes;
      insitu_loader *ld = open_or_fail(&e);
      assert_int_equal(insitu_loader_plan(ld, &train, &plan, NULL), INSITU_OK);
      most[i] = plan.slabs * plan.slab_bytes;
      insitu_loader_close(&ld);
    }
    assert_true(most[1] < most[0]);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    for (int turn = 0; turn < 3; turn++) {
      restore(it, &runs[4], 0, 0);
      insitu_batch *held = turn ? same_batch(it, &runs[4], 0, 1, 1, 0) : NULL;
      goes_on(it, &runs[4], 0, turn ? 1 : 0, 1, 0);
      assert_true(taken > most[1] && taken <= most[0]);
      restore(it, &runs[5], 1, 0);
      assert_true(taken <= most[1]);
      goes_on(it, &runs[5], 1, 0, 1, 0);
      assert_true(taken <= most[1]);
      if (held) check_values(held);
      insitu_batch_release(&held);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    assert_int_equal(taken, 0);
  }
  support_remove(root);
}

/* ---- while other threads locate and release ---- */

struct beside {
  insitu_iter *it;
  const struct run *run[2];
  insitu_batch *_Atomic given;
  _Atomic bool stop;
  int wrong;
};

static void *locate(void *arg) {
  struct beside *s = arg;
  while (!s->stop) {
    int64_t anchor = -1;
    insitu_status status = insitu_iter_locate(s->it, 1, 1, 3, &anchor, NULL);
    if (status || (anchor != s->run[0]->anchor[1][1][3] && anchor != s->run[1]->anchor[1][1][3]))
      s->wrong++;
    insitu_batch *b = s->given;
    if (!b) continue;
    insitu_batch_release(&b);
    s->given = NULL; /* only now may the next batch be taken */
  }
  return NULL;
}

static void beside_others(void **state) {
  (void)state;
  const char *root = support_path("beside");
  support_make(root, &x);
  record_all(root);
  for (int m = 0; m < INLINE_URING; m++) {
    if (!mode_usable(m)) continue;
    insitu_loader_desc d = desc_of(root, m);
    d.unit_chunks = 1;
    insitu_loader *ld = open_or_fail(&d);
    struct beside s = {.it = open_iter_or_fail(ld, &train), .run = {&runs[0], &runs[4]}};
    pthread_t thread;
    restore(s.it, &runs[0], 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, locate, &s), 0);
    for (int turn = 0; turn < 60; turn++) {
      insitu_batch *b = same_batch(s.it, s.run[turn % 2], 0, 1, 1, 0);
      while (s.given) poll(NULL, 0, 1);
      s.given = b;
      restore(s.it, s.run[(turn + 1) % 2], 0, 0);
    }
    s.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    insitu_batch *left = s.given;
    insitu_batch_release(&left);
    assert_int_equal(s.wrong, 0);
    insitu_iter_close(&s.it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* ---- closed by another thread ---- */

struct closing {
  insitu_iter *it;
  sem_t frees, looked;
  bool told;
};

static void give_slowly(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  struct closing *c = user;
  if (!c->told) {
    c->told = true;
    sem_post(&c->frees);
    while (sem_wait(&c->looked)) continue;
  }
  give(NULL, memory, bytes, place, device);
}

static void *close_it(void *arg) {
  struct closing *c = arg;
  insitu_iter_close(&c->it);
  return NULL;
}

/* While an iterator's memory is being freed, it counts: another one may not take it yet. */
static void counts_until_freed(void **state) {
  (void)state;
  const char *root = support_path("closed");
  support_make(root, &x);
  for (int m = 0; m < INLINE_URING; m++) {
    if (!mode_usable(m)) continue;
    insitu_loader_desc d = desc_of(root, m);
    struct closing c = {.told = false};
    sem_init(&c.frees, 0, 0);
    sem_init(&c.looked, 0, 0);
    d.alloc = take;
    d.release = give_slowly;
    d.alloc_user = &c;
    insitu_loader *ld = open_or_fail(&d);
    uint64_t before = promised(ld);
    c.it = open_iter_or_fail(ld, &train);
    insitu_batch *b = next_batch_or_fail(c.it);
    insitu_batch_release(&b);
    uint64_t with = promised(ld);
    assert_true(with > before);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, close_it, &c), 0);
    while (sem_wait(&c.frees)) continue;
    uint64_t meanwhile = promised(ld);
    sem_post(&c.looked);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(meanwhile, with);
    assert_int_equal(promised(ld), before);
    insitu_loader_close(&ld);
    sem_destroy(&c.frees);
    sem_destroy(&c.looked);
  }
  support_remove(root);
}

/* ---- refused ---- */

/* What the desc gives must be the state's; what it leaves open need not. A refused iterator goes on
 * as before. */
static void given(void **state) {
  (void)state;
  const char *root = support_path("given");
  support_make(root, &x);
  record_all(root);
  static struct run mine;
  const struct {
    uint64_t unit_chunks, block_chunks, lanes;
    int of; /* the run whose state it is */
    const char *one, *two;
  } cases[] = {
      {3, 0, 0, 1, "value of unit_chunks (2, here 3)", "set unit_chunks to 2, or leave it zero"},
      {0, 0, 4, 1, "value of lanes (2, here 4)", "set lanes to 2, or leave it zero"},
      {0, 5, 0, 1, "value of block_chunks (12, here 5)", "set block_chunks to 12, or leave"},
      {2, 64, 2, 1, "value of block_chunks (12, here 64)", "from the state"},
      {1, 0, 2, 1, "unit_chunks (2, here 1)", ""}, {2, 12, 1, 1, "lanes (2, here 1)", ""},
      {1, 12, 8, 0, "lanes (4, here 8)", ""}};
  for (int i = 0; i < 2; i++) {
    insitu_loader_desc d = desc_of(root, any_mode());
    char had[40], now[80];
    uint64_t was = i ? d.seed : d.batch_size;
    snprintf(had, sizeof had, "(%" PRIu64 ", here %" PRIu64 ")", was, 2 * was + 1);
    snprintf(now, sizeof now, "was then, with %s %" PRIu64, i ? "seed" : "batch_size", was);
    *(i ? &d.seed : &d.batch_size) = 2 * was + 1;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    refused(it, &runs[0].after[1][1], INSITU_E_STATE, had, now);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  EACH_MODE (m)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      insitu_loader_desc d = desc_of(root, m);
      d.unit_chunks = mine.unit_chunks = cases[i].unit_chunks;
      d.block_chunks = mine.block_chunks = cases[i].block_chunks;
      d.lanes = mine.lanes = cases[i].lanes;
      record(&mine, d, INSITU_TRAIN);
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &train);
      insitu_batch *b = same_batch(it, &mine, 0, 0, 1, 0);
      insitu_batch_release(&b);
      uint64_t before = promised(ld);
      refused(it, &runs[cases[i].of].after[1][1], INSITU_E_STATE, cases[i].one, cases[i].two);
      assert_int_equal(promised(ld), before);
      goes_on(it, &mine, 0, 0, 1, 0);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  /* lanes that this world cannot share */
  struct run single = {.unit_chunks = 1, .block_chunks = 6, .lanes = 1};
  insitu_loader_desc d = desc_of(root, any_mode());
  record(&single, d, INSITU_TRAIN);
  d.world = 2;
  d.batch_size = ROWS / 2;
  d.unit_chunks = 1;
  d.block_chunks = 64; /* a default of two lanes or more */
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  refused(it, &single.after[0][0], INSITU_E_STATE, "1 lanes", "a world of 2");
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* A state of a sequential order has neither windows nor lanes to adopt, and knows its world. */
static void in_order(void **state) {
  (void)state;
  const char *root = support_path("order");
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, any_mode());
  insitu_iter_desc id = {.api = INSITU_API, .order = INSITU_SEQUENTIAL};
  d.unit_chunks = 3;
  d.block_chunks = 6;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &id);
  insitu_batch *b = next_batch_or_fail(it);
  insitu_state after = b->after;
  assert_int_equal(b->sample_indices[0], 0);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  for (uint64_t units = 0; units < 4; units++) {
    d.unit_chunks = units;
    d.block_chunks = units * 7;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &id);
    if (units && units < 3) {
      refused(it, &after, INSITU_E_STATE, "unit_chunks (3, here ", "");
    } else {
      insitu_error err = {0};
      if (insitu_iter_restore(it, &after, &err)) fail_msg("%s", err.message);
      for (uint64_t i = 1; i < 12; i++) {
        b = next_batch_or_fail(it);
        assert_int_equal(b->index, i);
        for (uint64_t row = 0; row < b->rows; row++)
          assert_int_equal(b->sample_indices[row], i * ROWS + row);
        check_values(b);
        insitu_batch_release(&b);
      }
      assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  d.unit_chunks = d.block_chunks = 0;
  d.world = 2;
  d.batch_size = ROWS / 2;
  ld = open_or_fail(&d);
  it = open_iter_or_fail(ld, &id);
  refused(it, &after, INSITU_E_STATE, "world", "(1, here 2)");
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Where memory_budget has no room for the state's order, the iterator stays as it was. */
static void budget(void **state) {
  (void)state;
  const char *root = support_path("budget");
  support_make(root, &x);
  record_all(root);
  static struct run mine;
  mine = (struct run){0};
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    d.block_chunks = 2; /* small windows */
    d.lanes = 2;
    mine.block_chunks = 2, mine.lanes = 2;
    record(&mine, d, INSITU_TRAIN);
    static struct run large;
    large = (struct run){.unit_chunks = 8, .block_chunks = 2, .lanes = 2};
    record(&large, d, INSITU_TRAIN);
    d.prefetch_depth = d.max_inflight = 4;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    d.memory_budget = promised(ld);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &train);
    assert_int_equal(promised(ld), d.memory_budget);
    insitu_batch *b = same_batch(it, &mine, 0, 0, 1, 0);
    refused(it, &large.after[1][0], INSITU_E_BUDGET, "restore", "unit_chunks 8, block_chunks 2");
    assert_int_equal(promised(ld), d.memory_budget);
    insitu_batch_release(&b);
    goes_on(it, &mine, 0, 0, 1, 0);
    restore(it, &mine, 1, 0); /* its own order needs nothing more */
    goes_on(it, &mine, 1, 0, 1, 0);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* ---- an archive that grows ---- */

static void make_grown(const char *root, uint64_t samples) {
  static double time[96];
  struct support_array a = x, t = {.name = "time",
                                  .ndim = 1,
                                  .shape = {samples},
                                  .chunk = {96},
                                  .dtype = INSITU_F64,
                                  .format = 2,
                                  .values = time,
                                  .dims = "[\"time\"]",
                                  .attributes = "\"units\":\"hours since 2000-01-01\""};
  for (int i = 0; i < 96; i++) time[i] = i * 24; /* a sample a day */
  a.shape[0] = samples;
  support_remove(root);
  support_make(root, &a);
  support_make(root, &t);
}

/* A state of 60 samples, restored where there are 96. says: NULL: it goes on. */
static void grown_case(const char *root, insitu_loader_desc then, insitu_loader_desc now,
    int32_t split, const char *says) {
  static struct run r;
  insitu_iter_desc id = train;
  id.split = split;
  r = (struct run){.unit_chunks = 2, .block_chunks = 4, .lanes = 2};
  make_grown(root, 60);
  record(&r, then, split);
  make_grown(root, 96);
  insitu_loader *ld = open_or_fail(&now);
  insitu_iter *it = open_iter_or_fail(ld, &id);
  if (says) {
    refused(it, &r.after[0][0], INSITU_E_STATE, says, says[0] == '6' ? "96 now" : "");
  } else {
    restore(it, &r, 0, 0);
    for (uint64_t e = 0, i = 1; e < EPOCHS; e++, i = 0) {
      insitu_batch *b;
      for (; i < r.batches; i++) {
        b = next_batch_or_fail(it);
        assert_memory_equal(b->sample_indices, r.anchor[e][i], sizeof r.anchor[e][i]);
        check_values(b);
        insitu_batch_release(&b);
      }
      assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
    }
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static void grown(void **state) {
  (void)state;
  const char *root = support_path("grown");
  insitu_loader_desc d = desc_of(root, any_mode()), fractions, ranges, dates, open_end, spill;
  d.sample_dim = "time";
  memset(d.split, 0, sizeof d.split);
  fractions = ranges = dates = d;
  fractions.split[0].fraction = 0.6;
  fractions.split[1].fraction = 0.4;
  grown_case(root, fractions, fractions, INSITU_TRAIN, "60 samples");
  grown_case(root, fractions, fractions, INSITU_VAL, "60 samples");
  grown_case(root, d, d, INSITU_ALL, "60 samples");
  ranges.split[0].stop = 40;
  ranges.split[1] = (insitu_split_range){.start = 40, .stop = 60};
  grown_case(root, ranges, ranges, INSITU_TRAIN, NULL);
  grown_case(root, ranges, ranges, INSITU_VAL, NULL);
  grown_case(root, ranges, ranges, INSITU_ALL, "60 samples");
  dates.split[0].to = "2000-02-09"; /* the 40th day */
  dates.split[1].from = "2000-02-10";
  dates.split[1].to = "2000-02-29"; /* the 60th */
  grown_case(root, dates, dates, INSITU_TRAIN, NULL);
  grown_case(root, dates, dates, INSITU_VAL, NULL);
  grown_case(root, ranges, dates, INSITU_VAL, NULL); /* the same samples in other words */
  /* fractions then, and now the ranges that they were */
  insitu_loader_desc as_ranges = d;
  as_ranges.split[0].stop = 36;
  as_ranges.split[1] = (insitu_split_range){.start = 36, .stop = 60};
  grown_case(root, fractions, as_ranges, INSITU_TRAIN, NULL);
  grown_case(root, fractions, as_ranges, INSITU_VAL, NULL);
  /* an open end moves */
  open_end = ranges;
  open_end.split[1].stop = 0;
  grown_case(root, open_end, open_end, INSITU_TRAIN, NULL);
  grown_case(root, open_end, open_end, INSITU_VAL, "60 samples");
  grown_case(root, open_end, ranges, INSITU_VAL, NULL);
  open_end = dates;
  open_end.split[1].to = NULL;
  grown_case(root, open_end, open_end, INSITU_VAL, "60 samples");
  /* the target of the last anchor lay behind the archive's end, and is there now */
  spill = ranges;
  spill.split_spill = 1;
  grown_case(root, spill, spill, INSITU_TRAIN, NULL);
  grown_case(root, spill, spill, INSITU_VAL, "60 samples");
  spill.split[1].stop = 59; /* it ends before */
  grown_case(root, spill, spill, INSITU_VAL, NULL);
  /* all samples up to there */
  ranges.sample_stop = 60;
  grown_case(root, ranges, ranges, INSITU_ALL, NULL);
  support_remove(root);
}

/* The other parts decide nothing of a part's order: val goes on where only train has changed. */
static void other_parts(void **state) {
  (void)state;
  const char *root = support_path("parts");
  support_make(root, &x);
  static struct run r;
  r = (struct run){.unit_chunks = 2, .block_chunks = 4, .lanes = 2};
  insitu_loader_desc d = desc_of(root, any_mode());
  d.split[0] = (insitu_split_range){.stop = 40};
  d.split[1] = (insitu_split_range){.start = 40, .stop = 80};
  record(&r, d, INSITU_VAL);
  d.split[0] = (insitu_split_range){.start = 3, .stop = 30};
  d.split[2] = (insitu_split_range){.start = 80, .stop = 90};
  insitu_iter_desc id = train;
  id.split = INSITU_VAL;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &id), *other = open_iter_or_fail(ld, &train);
  restore(it, &r, 0, 0);
  goes_on(it, &r, 0, 0, 1, 0);
  refused(other, &r.after[0][0], INSITU_E_STATE, "the iterator's split or order", "");
  insitu_iter_close(&it);
  insitu_iter_close(&other);
  insitu_loader_close(&ld);
  d.split[1].stop = 79;
  ld = open_or_fail(&d);
  it = open_iter_or_fail(ld, &id);
  refused(it, &r.after[0][0], INSITU_E_STATE, "the split", "open the loader as it was then");
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* ---- several axes ---- */

enum { PAIR = 3 }; /* elements of a sample */
static void make_hindcasts(const char *root, uint64_t inits, uint64_t leads) {
  double *values = malloc(inits * leads * PAIR * sizeof *values);
  struct support_array h = {.name = "h",
      .ndim = 3,
      .shape = {inits, leads, PAIR},
      .chunk = {2, 4, PAIR},
      .dtype = INSITU_F32,
      .format = 2,
      .values = values,
      .dims = "[\"init\",\"lead\",\"x\"]"};
  for (uint64_t i = 0; i < inits * leads * PAIR; i++) /* the same at every length of the axes */
    values[i] = (double)(i / PAIR / leads * 1000 + i / PAIR % leads * 10 + i % PAIR);
  support_remove(root);
  support_make(root, &h);
  free(values);
}

/* Units of init x lead: a desc of zeros goes on with larger ones, also where both axes have grown
 * beyond what takes part; an axis that has no end is another split. */
static void several_axes(void **state) {
  (void)state;
  const char *root = support_path("axes");
  static const insitu_variable h = {.label = "h"};
  for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++)
    for (int open_end = 0; open_end < 2; open_end++) {
      insitu_axis axes[2] = {
          {.dim = "init", .stop = 23}, {.dim = "lead", .stop = open_end ? 0 : 10}};
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = &h,
          .n_variables = 1,
          .axes = axes,
          .n_axes = 2,
          .batch_size = ROWS,
          .log = quiet,
          .decode_threads = 2};
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = order};
      static float seen[2 * MOST][ROWS * PAIR];
      insitu_state after = {{0}};
      insitu_batch *b;
      uint64_t n = 0;
      make_hindcasts(root, 23, 10);
      d.unit_chunks = 3;
      d.block_chunks = 9;
      if (order == INSITU_SHUFFLED) d.lanes = 4;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &id);
      for (int ends = 0; ends < 2;) {
        insitu_status status = insitu_iter_next(it, 20000, &b, NULL);
        ends += status == INSITU_END;
        if (status) continue;
        memset(seen[n], 0, sizeof seen[n]);
        memcpy(seen[n++], b->arrays[0].data, b->arrays[0].bytes);
        if (n == 3) after = b->after;
        insitu_batch_release(&b);
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      assert_in_range(n, 50, 2 * MOST);
      make_hindcasts(root, 26, 14);
      d.unit_chunks = d.block_chunks = d.lanes = 0;
      ld = open_or_fail(&d);
      it = open_iter_or_fail(ld, &id);
      if (open_end) {
        refused(it, &after, INSITU_E_STATE, "split", "");
        insitu_iter_close(&it);
        insitu_loader_close(&ld);
        continue;
      }
      insitu_error err = {0};
      if (insitu_iter_restore(it, &after, &err)) fail_msg("%s", err.message);
      for (uint64_t i = 3; i < n;) {
        insitu_status status = insitu_iter_next(it, 20000, &b, NULL);
        if (status == INSITU_END) continue;
        assert_int_equal(status, INSITU_OK);
        assert_memory_equal(seen[i++], b->arrays[0].data, b->arrays[0].bytes);
        insitu_batch_release(&b);
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  support_remove(root);
}

/* An iterator must be opened before it is restored: the message tells that lanes may be a
 * state's. */
static void default_lanes(void **state) {
  (void)state;
  const char *root = support_path("lanes");
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, any_mode());
  d.batch_size = 1, d.world = ROWS, d.lanes = 0, d.unit_chunks = 40;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = NULL;
  insitu_error err;
  assert_int_equal(insitu_iter_open(ld, &train, &it, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "1 lanes, the default, cannot be shared by a world of 8; set "
                                      "lanes to 8 on every rank"));
  assert_non_null(strstr(err.message, "or to resume a run, to the lanes that it had"));
  insitu_loader_close(&ld);
  support_remove(root);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(adopts), cmocka_unit_test(again_and_again),
      cmocka_unit_test(gives_back), cmocka_unit_test(beside_others),
      cmocka_unit_test(counts_until_freed), cmocka_unit_test(given), cmocka_unit_test(in_order),
      cmocka_unit_test(budget), cmocka_unit_test(grown), cmocka_unit_test(other_parts),
      cmocka_unit_test(several_axes), cmocka_unit_test(default_lanes)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
