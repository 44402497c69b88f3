/* Raw rows that a worker reads in pieces and copies past the caches, as it does where the kernel
 * copies worse: every element is right, whatever is shown, missing in the caches or damaged. Here
 * every processor copies so, from the first batch on, and a piece has few rows. */
#define INSITU__MEM_KERNEL_COPIES_WELL 0
#define INSITU__LOADER_PAST_CACHES 1
#define INSITU__LOADER_PIECE 8192
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

/* A row has ROW bytes, so that three rows are a piece. ROWS is no multiple of CHUNK: the last chunk
 * is cut. */
enum { ROW = 2400, ROWS = 30, CHUNK = 8 };
static const struct support_array plain = {.name = "x",
    .ndim = 2,
    .shape = {ROWS, ROW / 4},
    .chunk = {CHUNK, ROW / 4},
    .dtype = INSITU_F32,
    .format = 2,
    .dims = "[\"time\",\"x\"]"};

/* ---- what is read ---- */

static atomic_uint pieces, whole, refused;
static unsigned missing; /* of 4 reads */
static const struct insitu__store_ops *real_ops;
static insitu_status spy(struct insitu__store *s, const char *key, int fd, uint64_t offset,
    const struct iovec *iov, unsigned n_iov, uint64_t expected, uint64_t *got) {
  if (expected > INSITU__LOADER_PIECE || n_iov > 2) atomic_fetch_add(&whole, 1);
  else atomic_fetch_add(&pieces, 1);
  if (insitu__order_mix(atomic_load(&pieces)) % 4 < missing) {
    atomic_fetch_add(&refused, 1);
    memset(iov[0].iov_base, 0x77, iov[0].iov_len); /* what a part of a file may leave */
    return INSITU_TIMEOUT;
  }
  return real_ops->read_now(s, key, fd, offset, iov, n_iov, expected, got);
}

/* Opens a loader whose reads are counted. */
static insitu_loader *open_spied(const insitu_loader_desc *d, struct insitu__store_ops *ops) {
  insitu_error err = {0};
  insitu_loader *ld = NULL;
  if (insitu_loader_open(d, &ld, &err)) fail_msg("%s", err.message);
  real_ops = ld->source.store.ops;
  *ops = *real_ops;
  ops->read_now = spy;
  ld->source.store.ops = ops;
  atomic_store(&pieces, 0);
  atomic_store(&whole, 0);
  atomic_store(&refused, 0);
  return ld;
}

static insitu_iter *train_of(insitu_loader *ld) {
  const insitu_iter_desc train = {.api = INSITU_API, .split = INSITU_TRAIN};
  insitu_error err = {0};
  insitu_iter *it = NULL;
  if (insitu_iter_open(ld, &train, &it, &err)) fail_msg("%s", err.message);
  return it;
}

/* Two epochs of what the variables show, each element looked at. Returns how many rows came. */
static uint64_t run(const char *root, const struct support_array *a, const insitu_variable *v,
    uint64_t n_variables, double part) {
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = n_variables,
      .sample_dim = "time",
      .batch_size = 3,
      .seed = support_below(1000),
      .decode_threads = 2,
      .split = {{.fraction = part}, {.fraction = 1 - part}}};
  struct insitu__store_ops ops;
  insitu_loader *ld = open_spied(&d, &ops);
  insitu_iter *it = train_of(ld);
  insitu_error err = {0};
  uint64_t rows = 0;

  for (int epoch = 0; epoch < 2; epoch++) {
    insitu_batch *b;
    insitu_status status;
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
      for (uint64_t i = 0; i < n_variables; i++) support_check_array(b, i, &v[i], a, 0);
      rows += b->rows;
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s", err.message);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return rows;
}

/* Objects and shards, whose rows one variable shows; chunks of which a split has some rows. */
static void in_pieces(void **state) {
  (void)state;
  const insitu_variable v = {.label = "x"};
  const char *root = support_path("pieces");
  for (int sharded = 0; sharded < 2; sharded++)
    for (int k = 0; k < 2; k++) {
      struct support_array a = plain;
      a.format = sharded ? 3 : 2;
      a.shard[0] = sharded ? 2 : 0;
      a.shard[1] = sharded;
      /* so far from each other that no two are read by one call */
      a.gap = sharded ? INSITU__LOADER_GAP + 1 : 0;
      support_make(root, &a);
      assert_true(run(root, &a, &v, 1, k ? 1 : 0.6) > 0);
      assert_true(pieces > 0);
      assert_int_equal(whole, 0);
      support_remove(root);
    }
}

/* Rows with several places, and rows larger than a piece, are read as they ever were. */
static void not_copied(void **state) {
  (void)state;
  const insitu_variable twice[] = {{.label = "x"}, {.label = "y", .path = "x"}}, v = {.label = "x"};
  const char *root = support_path("other");
  support_make(root, &plain);
  run(root, &plain, twice, 2, 1);
  assert_true(whole > 0);
  assert_int_equal(pieces, 0);
  support_remove(root);

  struct support_array large = plain;
  large.shape[1] = large.chunk[1] = INSITU__LOADER_PIECE / 4 + 1;
  support_make(root, &large);
  run(root, &large, &v, 1, 1);
  assert_true(whole > 0);
  assert_int_equal(pieces, 0);
  support_remove(root);
}

/* Chunks of more than INSITU__LOADER_TRIED bytes are tried, too. */
static void large_chunks(void **state) {
  (void)state;
  const insitu_variable v = {.label = "x"};
  const char *root = support_path("large");
  struct support_array a = plain;
  a.shape[0] = 1200;
  a.chunk[0] = 500;
  assert_true(a.chunk[0] * ROW > INSITU__LOADER_TRIED);
  support_make(root, &a);
  assert_int_equal(run(root, &a, &v, 1, 1), 2 * 1200);
  assert_true(pieces >= 1200 * ROW / INSITU__LOADER_PIECE);
  assert_int_equal(whole, 0);
  support_remove(root);
}

/* Pieces that are not in the caches: the chunk is read anew, whole. */
static void not_cached(void **state) {
  (void)state;
  const insitu_variable v = {.label = "x"};
  const char *root = support_path("missing");
  support_make(root, &plain);
  for (missing = 1; missing <= 4; missing++) {
    assert_int_equal(run(root, &plain, &v, 1, 1), 2 * ROWS);
    assert_true(refused > 0);
  }
  missing = 0;
  support_remove(root);
}

/* A chunk that is too short or too long is an error. */
static void damaged(void **state) {
  (void)state;
  const char *root = support_path("damaged");
  const uint64_t chunk[] = {1, 0};
  const int64_t change[] = {-ROW, -1, 1};
  const insitu_variable v = {.label = "x"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .sample_dim = "time",
      .batch_size = 3,
      .split = {{.fraction = 1}}};
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    static const char bytes[CHUNK * ROW + 1];
    struct insitu__store_ops ops;
    insitu_error err = {0};
    insitu_batch *b = NULL;
    insitu_status status;
    char path[700];
    support_make(root, &plain);
    support_chunk_path(path, sizeof path, root, &plain, chunk);
    support_write(path, bytes, (size_t)(CHUNK * ROW + change[i]));
    insitu_loader *ld = open_spied(&d, &ops);
    insitu_iter *it = train_of(ld);
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) insitu_batch_release(&b);
    if (status != INSITU_E_CORRUPT) fail_msg("%d: %s", (int)status, err.message);
    assert_true(pieces > 0);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_pieces), cmocka_unit_test(not_copied),
      cmocka_unit_test(large_chunks), cmocka_unit_test(not_cached), cmocka_unit_test(damaged)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
