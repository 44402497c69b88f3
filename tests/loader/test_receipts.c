/* Receipts and batches that are left out: digests against the manual's words, at every world size,
 * behind restored states, with on_batch; insitu_iter_skip against a model, and what it reads. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "xxh64.h"

enum { TIME = 96, ROWS = 8, MOST = 16 };
static struct support_array x = {.name = "x",
    .ndim = 3,
    .shape = {TIME, 3, 5},
    .chunk = {4, 3, 5},
    .dtype = INSITU_F32,
    .format = 2,
    .dims = "[\"time\",\"y\",\"x\"]"};
static const insitu_variable shown[] = {
    {.label = "in", .path = "x"}, {.label = "out", .path = "x", .offset = 1}};

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
      .lanes = 4,
      .block_chunks = 8,
      .unit_chunks = 1,
      .split = {{.fraction = 1}},
      .receipts = INSITU_RECEIPT_BYTES,
      .log = quiet,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2};
}

/* ---- the model: the manual's words, not the header's code ---- */

static uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

static uint64_t anchor_of(uint64_t epoch, uint64_t position, const int64_t *index, uint64_t n) {
  uint64_t h = mix(mix(mix(0x616E63686F7273u) ^ epoch) ^ position);
  for (uint64_t i = 0; i < n; i++) h = mix(h ^ (uint64_t)index[i]);
  return h;
}
/* Both digests of a batch of a world of 1. first: the position of its first row. */
static void model(const insitu_batch *b, uint64_t first, uint64_t *anchors, uint64_t *bytes) {
  const int64_t *index = b->n_axes > 1 ? b->axis_indices : b->sample_indices;
  *anchors = *bytes = 0;
  for (uint64_t r = 0; r < b->rows; r++) {
    *anchors += anchor_of(b->epoch, first + r, index + r * b->n_axes, b->n_axes);
    uint64_t place = mix(mix(mix(0x6279746573u) ^ b->epoch) ^ (first + r));
    for (uint64_t i = 0; i < b->n_arrays; i++) {
      const insitu_array *a = &b->arrays[i];
      if (a->fixed) continue;
      const unsigned char *row = (const unsigned char *)a->data + r * a->row_bytes;
      *bytes += xxh64(row, a->row_bytes, mix(place ^ i));
    }
  }
}

/* ---- runs ---- */

struct run {
  uint64_t batches;
  uint64_t anchors[2][MOST], bytes[2][MOST], epoch[2][MOST];
  insitu_state after[2][MOST];
};

/* Two epochs of one rank; of a world of 1 against the model. */
static void record(struct run *r, insitu_loader_desc d, const insitu_iter_desc *id) {
  memset(r, 0, sizeof *r);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, id);
  insitu_plan plan;
  assert_int_equal(insitu_loader_plan(ld, id, &plan, NULL), INSITU_OK);
  r->batches = plan.batches;
  assert_in_range(r->batches, 2, MOST);
  for (uint64_t e = 0; e < 2; e++) {
    uint64_t sum = 0, anchors, bytes;
    insitu_batch *b;
    for (uint64_t i = 0; i < r->batches; i++, insitu_batch_release(&b)) {
      b = next_batch_or_fail(it);
      r->anchors[e][i] = b->anchors_digest;
      r->bytes[e][i] = b->bytes_digest;
      r->epoch[e][i] = b->epoch_digest;
      r->after[e][i] = b->after;
      sum = insitu_digest_add(sum, b->anchors_digest);
      assert_true(sum == b->epoch_digest);
      model(b, i * d.batch_size, &anchors, &bytes);
      if (d.receipts != INSITU_RECEIPT_BYTES) assert_true(b->bytes_digest == 0);
      if (d.world > 1) continue;
      assert_true(b->anchors_digest == anchors);
      if (d.receipts == INSITU_RECEIPT_BYTES) assert_true(b->bytes_digest == bytes);
    }
    assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static const insitu_iter_desc train = {.api = INSITU_API, .order = INSITU_SHUFFLED};

/* Digests and states are those of a world of 1, and bytes add up to its. */
static void check_worlds(insitu_loader_desc d, const insitu_iter_desc *id) {
  static struct run one, other;
  uint64_t global = d.batch_size;
  record(&one, d, id);
  for (int32_t world = 2; world <= 4; world *= 2) {
    uint64_t bytes[2][MOST] = {{0}};
    for (int32_t rank = 0; rank < world; rank++) {
      d.batch_size = global / (uint64_t)world;
      d.world = world;
      d.rank = rank;
      record(&other, d, id);
      assert_int_equal(other.batches, one.batches);
      assert_memory_equal(other.anchors, one.anchors, sizeof one.anchors);
      assert_memory_equal(other.epoch, one.epoch, sizeof one.epoch);
      assert_memory_equal(other.after, one.after, sizeof one.after);
      for (uint64_t e = 0; e < 2; e++)
        for (uint64_t i = 0; i < one.batches; i++)
          bytes[e][i] = insitu_digest_add(bytes[e][i], other.bytes[e][i]);
    }
    assert_memory_equal(bytes, one.bytes, sizeof bytes);
  }
}

static void test_worlds(void **state) {
  (void)state;
  const char *root = support_path("worlds");
  support_make(root, &x);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    check_worlds(d, &train);
    d.assembly = INSITU_GATHER;
    check_worlds(d, &train);
    d.receipts = INSITU_RECEIPT_ANCHORS;
    check_worlds(d, &train);
  }
  support_remove(root);
}

/* Several axes, and drawn patches: indexes of all axes are hashed. */
static void test_axes(void **state) {
  (void)state;
  const char *root = support_path("axes");
  support_make(root, &x);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "y"}},
                    patch[] = {{.dim = "time"}, {.dim = "x", .patch = 2}};
  insitu_loader_desc d = desc_of(root, any_mode());
  d.n_variables = 1;
  d.axes = axes;
  d.n_axes = 2;
  d.batch_size = 24;
  check_worlds(d, &train);
  d.axes = patch;
  d.patches = 2;
  check_worlds(d, &train);
  support_remove(root);
}

/* In order: the sum over an epoch is the same at every world size, also of ranks whose rows have
 * run out. */
static void test_sequential(void **state) {
  (void)state;
  const char *root = support_path("sequential");
  support_make(root, &x);
  insitu_iter_desc id = {.api = INSITU_API, .order = INSITU_SEQUENTIAL};
  insitu_loader_desc d = desc_of(root, any_mode());
  uint64_t whole = 0, all = 0;
  for (int32_t world = 1; world <= 3; world++) {
    uint64_t bytes = 0, rows = 0;
    for (int32_t rank = 0; rank < world; rank++) {
      insitu_batch *b;
      d.batch_size = 7, d.lanes = 0, d.world = world, d.rank = rank;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &id);
      uint64_t sum = 0;
      while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
        sum += b->anchors_digest;
        bytes += b->bytes_digest;
        rows += b->rows;
        insitu_batch_release(&b);
      }
      if (world == 1) whole = sum;
      assert_true(sum == whole);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    assert_int_equal(rows, TIME - 1);
    if (world == 1) all = bytes;
    assert_true(bytes == all);
  }
  support_remove(root);
}

/* on_batch comes before the digest of bytes, and may fail. */
static insitu_status negate(void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  float *data = b->arrays[0].data;
  (void)keys, (void)err;
  for (uint64_t i = 0; i < b->arrays[0].bytes / 4; i++) data[i] = -data[i];
  return b->index == *(const uint64_t *)user ? INSITU_E_IO : INSITU_OK;
}
static void test_on_batch(void **state) {
  (void)state;
  const char *root = support_path("on_batch");
  static struct run plain, negated;
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, any_mode());
  record(&plain, d, &train);
  uint64_t fails = UINT64_MAX;
  d.on_batch = negate;
  d.on_batch_user = &fails;
  record(&negated, d, &train);
  assert_memory_equal(plain.anchors, negated.anchors, sizeof plain.anchors);
  assert_true(plain.bytes[0][0] != negated.bytes[0][0]);
  fails = 3;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  insitu_batch *b;
  for (int i = 0; i < 3; i++) b = next_batch_or_fail(it), insitu_batch_release(&b);
  assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_E_IO);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* The text of a receipt, and none without. */
static void test_line(void **state) {
  (void)state;
  const char *root = support_path("line");
  char line[400], want[400], one;
  support_make(root, &x);
  for (int32_t kind = 0; kind <= INSITU_RECEIPT_BYTES; kind++) {
    insitu_loader_desc d = desc_of(root, any_mode());
    d.receipts = kind;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    insitu_batch *b = next_batch_or_fail(it);
    char bytes[24];
    snprintf(bytes, sizeof bytes, kind == INSITU_RECEIPT_BYTES ? "\"%016llx\"" : "null",
        (unsigned long long)b->bytes_digest);
    snprintf(want, sizeof want,
        "{\"receipt\": 1, \"split\": \"train\", \"epoch\": 0, \"batch\": 0, \"rank\": 0, "
        "\"world\": 1, \"rows\": 8, \"anchors\": \"%016llx\", \"epoch_anchors\": \"%016llx\", "
        "\"bytes\": %s}",
        (unsigned long long)b->anchors_digest, (unsigned long long)b->epoch_digest, bytes);
    uint64_t n = insitu_batch_receipt(b, line, sizeof line);
    assert_string_equal(line, kind ? want : "");
    assert_int_equal(n, strlen(line));
    assert_int_equal(insitu_batch_receipt(b, NULL, 0), n);
    assert_int_equal(insitu_batch_receipt(b, &one, 1), n);
    assert_int_equal(one, 0);
    assert_int_equal(b->after.bytes[6], kind ? 4 : 3);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  assert_int_equal(insitu_batch_receipt(NULL, line, sizeof line), 0);
  insitu_loader_desc d = desc_of(root, any_mode());
  d.receipts = 3;
  refuse_or_fail(
      &d, INSITU_E_ARG, "receipts is 3; use one of its constants: 0 none, 1 anchors, 2 bytes");
  support_remove(root);
}

/* A sum goes on behind a state that has it; behind one without it begins with the next epoch. */
static void test_resume(void **state) {
  (void)state;
  const char *root = support_path("resume");
  static struct run with, without;
  support_make(root, &x);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m), off = d;
    record(&with, d, &train);
    off.receipts = 0;
    insitu_loader *plain = open_or_fail(&off), *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(plain, &train);
    insitu_batch *b;
    for (uint64_t i = 0; i < with.batches; i++, insitu_batch_release(&b)) {
      b = next_batch_or_fail(it);
      without.after[0][i] = b->after;
      assert_int_equal(b->after.bytes[6], 3);
    }
    assert_int_equal(insitu_iter_restore(it, &with.after[0][2], NULL), INSITU_OK);
    b = next_batch_or_fail(it); /* a digest is dropped where none is asked for */
    assert_memory_equal(&b->after, &without.after[0][3], sizeof b->after);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    it = open_iter_or_fail(ld, &train);
    for (int known = 0; known < 2; known++) {
      uint64_t from = support_below(with.batches - 1);
      const insitu_state *s = known ? &with.after[0][from] : &without.after[0][from];
      assert_int_equal(insitu_iter_restore(it, s, NULL), INSITU_OK);
      for (uint64_t n = from + 1; n < 2 * with.batches; n++) {
        uint64_t e = n / with.batches, i = n % with.batches;
        if (!i) assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
        b = next_batch_or_fail(it);
        assert_true(b->anchors_digest == with.anchors[e][i]);
        assert_true(b->epoch_digest == (known || e ? with.epoch[e][i] : 0));
        assert_memory_equal(&b->after, known || e ? &with.after[e][i] : &without.after[e][i], 128);
        insitu_batch_release(&b);
      }
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    insitu_loader_close(&plain);
  }
  support_remove(root);
}

/* ---- batches that are left out ---- */

/* Goes on to the end of epoch 0 from batch `at`, against a run and a set of batches that are left
 * out. Leaves further ones out on the way, and goes back to states, at random. */
static void walk_skips(insitu_iter *it, const struct run *r, bool *out, uint64_t *skipped) {
  insitu_state state[MOST];
  bool had[MOST][MOST];
  bool stored[MOST] = {false};
  insitu_batch *b;
  int back = 0;
  uint64_t n = r->batches, at = 0, sum = 0, sums[MOST];

  for (;;) {
    if (at < n && support_below(4) == 0) {
      uint64_t first = at + support_below(n - at), length = 1 + support_below(3);
      if (length > n - first) length = n - first;
      insitu_error err = {0};
      if (insitu_iter_skip(it, first, length, &err)) fail_msg("%s", err.message);
      memset(out + first, true, length);
    }
    for (; at < n && out[at]; at++) ++*skipped;
    if (at == n) break;
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, at);
    assert_int_equal(b->epoch, 0);
    assert_true(b->anchors_digest == r->anchors[0][at] && b->bytes_digest == r->bytes[0][at]);
    assert_true(b->epoch_digest == (sum += b->anchors_digest));
    state[at] = b->after;
    memcpy(had[at], out, MOST);
    sums[at] = sum;
    stored[at] = true;
    insitu_batch_release(&b);
    at++;
    uint64_t to = support_below(n);
    if (back < 3 && stored[to] && support_below(4) == 0) {
      assert_int_equal(insitu_iter_restore(it, &state[to], NULL), INSITU_OK);
      memcpy(out, had[to], MOST);
      at = to + 1, sum = sums[to], back++;
    }
  }
  assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
}

static void test_skip(void **state) {
  (void)state;
  const char *root = support_path("skip");
  static struct run whole;
  support_make(root, &x);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    record(&whole, d, &train);
    for (int round = 0; round < support_rounds(8); round++) {
      d.assembly = 1 + (int32_t)support_below(2);
      d.prefetch_depth = 1 + support_below(4);
      d.hold_epoch = support_below(2);
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &train);
      bool out[MOST] = {false};
      uint64_t skipped = 0;
      insitu_stats stats;
      insitu_batch *b;
      walk_skips(it, &whole, out, &skipped);
      assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
      assert_int_equal(stats.skipped, skipped);
      for (uint64_t i = 0; i < whole.batches; i++, insitu_batch_release(&b)) { /* only of epoch 0 */
        b = next_batch_or_fail(it);
        assert_memory_equal(&b->after, &whole.after[1][i], sizeof b->after);
      }
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  }
  support_remove(root);
}

/* Batches that are left out are not read: each sample is a chunk here. */
static void test_reads(void **state) {
  (void)state;
  const char *root = support_path("reads");
  struct support_array single = x;
  single.chunk[0] = 1;
  support_make(root, &single);
  insitu_loader_desc d = desc_of(root, any_mode());
  d.n_variables = 1;
  d.prefetch_depth = 2;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  insitu_stats stats;
  insitu_batch *b;
  assert_int_equal(insitu_iter_skip(it, 3, 4, NULL), INSITU_OK);
  assert_int_equal(insitu_iter_skip(it, 10, 2, NULL), INSITU_OK); /* to the end */
  for (uint64_t i = 0; i < 6; i++, insitu_batch_release(&b)) {
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, i < 3 ? i : i + 4);
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_in_range(stats.reads, (i + 1) * ROWS, 6 * ROWS);
  }
  assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_END);
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  assert_int_equal(stats.skipped, 6);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* The scan stops before batches that are left out at an epoch's begin; set_epoch, which forgets
 * them, has it go on. */
static void test_forgets(void **state) {
  (void)state;
  const char *root = support_path("forgets");
  support_make(root, &x);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(root, m);
    d.hold_epoch = 1; /* nothing of an epoch is prefetched before next is called */
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    insitu_batch *b;
    insitu_status status;
    unsigned late = 0;
    for (uint64_t epoch = 0; epoch < 10; epoch++) {
      while ((status = insitu_iter_next(it, 20000, &b, NULL)) == INSITU_OK)
        insitu_batch_release(&b);
      assert_int_equal(status, INSITU_END);
      if (insitu_iter_next(it, 0, &b, NULL) == INSITU_OK) { /* it mostly is not there yet */
        insitu_batch_release(&b);
        continue;
      }
      assert_int_equal(insitu_iter_skip(it, 0, 2, NULL), INSITU_OK);
      float field[TIME * 15];
      insitu_variable read = {.path = "x"}; /* through the reactor, which so has looked */
      assert_int_equal(insitu_read(ld, &read, field, sizeof field, NULL, NULL), INSITU_OK);
      usleep(20000); /* and rests */
      assert_int_equal(insitu_iter_set_epoch(it, epoch + 1, NULL), INSITU_OK);
      status = insitu_iter_next(it, 3000, &b, NULL);
      late += status == INSITU_TIMEOUT;
      if (status) b = next_batch_or_fail(it);
      assert_int_equal(b->index, 0);
      insitu_batch_release(&b);
    }
    assert_in_range(late, 0, 2); /* else only the watchdog's timer has the scan go on */
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

static void refuse_skip(insitu_iter *it, uint64_t first, uint64_t n, const char *says) {
  insitu_error err = {0};
  assert_int_equal(insitu_iter_skip(it, first, n, &err), INSITU_E_ARG);
  if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}
static void test_refusals(void **state) {
  (void)state;
  const char *root = support_path("refusals");
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  insitu_batch *b = next_batch_or_fail(it);
  refuse_skip(it, 0, 1, "batch 0 of epoch 0 is over, the next one is 1");
  refuse_skip(it, 3, 0, "0 batches from 3 on");
  refuse_skip(it, 9, 3, "give one or more of the 11");
  refuse_skip(it, UINT64_MAX, 2, "give one or more");
  assert_int_equal(insitu_iter_skip(NULL, 0, 1, NULL), INSITU_E_ARG);
  assert_int_equal(insitu_iter_skip(it, 2, 1, NULL), INSITU_OK);
  insitu_state s = b->after; /* of before the skip */
  insitu_batch_release(&b);
  b = next_batch_or_fail(it);
  insitu_state left = b->after;
  insitu_batch_release(&b);
  assert_int_equal(insitu_iter_set_epoch(it, 0, NULL), INSITU_OK); /* forgets it */
  for (int i = 0; i < 3; i++, insitu_batch_release(&b)) {
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, i);
  }
  assert_int_equal(insitu_iter_restore(it, &left, NULL), INSITU_OK); /* has it */
  b = next_batch_or_fail(it);
  assert_int_equal(b->index, 3);
  insitu_batch_release(&b);
  assert_int_equal(insitu_iter_restore(it, &s, NULL), INSITU_OK); /* has it not */
  for (uint64_t i = 1; i < 4; i++, insitu_batch_release(&b)) {
    b = next_batch_or_fail(it);
    assert_int_equal(b->index, i);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_worlds), cmocka_unit_test(test_axes),
      cmocka_unit_test(test_sequential), cmocka_unit_test(test_on_batch),
      cmocka_unit_test(test_line), cmocka_unit_test(test_resume), cmocka_unit_test(test_skip),
      cmocka_unit_test(test_reads), cmocka_unit_test(test_forgets),
      cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
