/* Sums and sketches of elements, and how many batches a scan makes ahead. The whole of a scan is
 * tested in tests/loader/test_scan.c. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

static struct insitu__moments moments, other;
static struct insitu__moments_block block;

static void take(bool all) {
  block.all = all;
  struct insitu__moments_part part = insitu__moments_measure(&block);
  assert_true(insitu__moments_take(&moments, &block, &part));
}
static void begin(void) {
  insitu__moments_free(&moments);
  memset(&moments, 0, sizeof moments);
  memset(&block, 0, sizeof block);
}
static double uniform(void) {
  return (double)support_below(1u << 30) / (1u << 30);
}

/* The standard deviation is within 10^-12, however far the mean is from 0. */
static void far_from_zero(void **state) {
  (void)state;
  static const double base[] = {0, 1e3, 1e5, 1e6, -1e8, 1e5};
  enum { BLOCKS = 8, EIGHTH = INSITU__MOMENTS_BLOCK / 8 };
  static double x[BLOCKS * INSITU__MOMENTS_BLOCK];
  for (size_t k = 0; k < sizeof base / sizeof *base; k++) {
    uint64_t n = BLOCKS * INSITU__MOMENTS_BLOCK - 3;
    long double sum = 0, squares = 0;
    begin();
    for (uint64_t i = 0; i < n; i++) {
      x[i] = base[k] + uniform();
      if (k == 5 && i % EIGHTH == 0) x[i] = 0; /* those by which m is chosen */
      sum += x[i];
    }
    long double mean = sum / (long double)n;
    for (uint64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (uint64_t i = 0; i < n; i++) {
      block.x[block.n++] = x[i];
      if (block.n == INSITU__MOMENTS_BLOCK || i + 1 == n) take(true);
    }
    double deviation, want = (double)sqrtl(squares / (long double)n);
    double got = insitu__moments_mean(&moments, &deviation);
    assert_true(fabs(got - (double)mean) <= 1e-15 * fabs((double)mean) + 1e-16);
    if (fabs(deviation - want) > 1e-12 * want)
      fail_msg("about %g: %.17g, not %.17g", base[k], deviation, want);
  }
  begin();
}

/* The mean of elements whose sum is beyond a double, as are their distances from each other; their
 * deviation is beyond it, too. It has the same bits however the blocks are joined. */
static void near_the_largest(void **state) {
  (void)state;
  enum { ONES, BOTH, ONE_SIDE, FEW, APART, KINDS };
  for (int kind = 0; kind < KINDS; kind++) {
    double means[2];
    for (int turned = 0; turned < 2; turned++) {
      long double sum = 0, large = 0;
      uint64_t n = 3 * INSITU__MOMENTS_BLOCK - 5;
      begin();
      memset(&other, 0, sizeof other);
      for (uint64_t k = 0; k < n; k++) {
        uint64_t i = turned ? n - 1 - k : k;
        double x = 1.7e308, sign = i % 2 ? -1 : 1;
        if (kind == BOTH) x *= sign;
        if (kind == ONE_SIDE) x = -0x1.fffffffffffffp1023;
        if (kind == FEW) x = i % 1000 ? (double)i : sign * 1e308;
        if (kind == APART) x = i % 3 ? 1.5e308 : -1.7e308;
        block.x[block.n++] = x;
        sum += x;
        large += fabsl((long double)x);
        if (block.n < INSITU__MOMENTS_BLOCK && k + 1 < n) continue;
        take(true);
        if (k + 1 < n) continue;
        assert_true(insitu__moments_merge(&other, &moments)); /* to one that is empty */
      }
      double deviation, want = (double)(sum / (long double)n);
      if (isinf(want)) want = copysign(0x1.fffffffffffffp1023, want); /* by its last rounding */
      means[turned] = insitu__moments_mean(&other, &deviation);
      if (!(fabs(means[turned] - want) <= (double)(1e-15L * large / (long double)n)))
        fail_msg("kind %d: %.17g, not %.17g", kind, means[turned], want);
      assert_true(isinf(deviation));
      insitu__moments_free(&other);
      memset(&other, 0, sizeof other);
    }
    assert_memory_equal(&means[0], &means[1], sizeof means[0]);
  }
  begin();
}

/* Of long rows one of 8 neighbours is in the sketch: not always the same index of a last axis. */
static void every_index_is_seen(void **state) {
  (void)state;
  for (uint64_t length = 2; length <= 64; length *= 2) {
    begin();
    while (block.n < INSITU__MOMENTS_BLOCK) {
      block.x[block.n] = (double)(block.n % length);
      block.n++;
    }
    take(false);
    assert_int_equal(moments.sketched, INSITU__MOMENTS_BLOCK / 8);
    double last = (double)length - 1, median = insitu__moments_quantile(&moments, 0.5);
    assert_true(fabs(median - last / 2) <= 0.25 * last + 0.5);
    assert_true(insitu__moments_quantile(&moments, 1) == last);
  }
  begin();
}

/* Quantiles of zeros, and of elements that no float32 holds. */
static void at_the_ends(void **state) {
  (void)state;
  begin();
  for (int i = 0; i < 100; i++) block.x[block.n++] = i < 90 ? 0 : 1;
  take(true);
  assert_true(insitu__moments_quantile(&moments, 0.5) == 0);
  begin();
  for (int i = 0; i < 100; i++) block.x[block.n++] = i < 50 ? -1e200 : 99;
  take(true);
  assert_true(insitu__moments_quantile(&moments, 0.1) == -1e200);
  assert_true(insitu__moments_quantile(&moments, 0.9) > 98);
  begin();
  for (int i = 0; i < 100; i++) block.x[block.n++] = i < 50 ? -99 : 1e200;
  take(true);
  assert_true(insitu__moments_quantile(&moments, 0.9) == 1e200);
  begin();
}

/* The same bits whether or not the compiler has a rounding of product and sum in one. */
static void golden(void **state) {
  (void)state;
  begin();
  uint64_t word = 1;
  for (int i = 0; i < 1000; i++) {
    word = insitu__order_mix(word);
    block.x[block.n++] = (double)(int64_t)word * 0x1p-60;
  }
  struct insitu__moments_part part = insitu__moments_measure(&block);
  uint64_t bits[3];
  memcpy(&bits[0], &part.pivot, 8);
  memcpy(&bits[1], &part.rest, 8);
  memcpy(&bits[2], &part.spread, 8);
  if (bits[0] != 0xbfef414345fb53b0 || bits[1] != 0x4090ef85ac19cb48 ||
      bits[2] != 0x40d62184489c2cb3)
    fail_msg("%#" PRIx64 " %#" PRIx64 " %#" PRIx64, bits[0], bits[1], bits[2]);
  begin();
}

/* ---- blocks where they stand ---- */

enum { FOUR = INSITU__MOMENTS_AT_ONCE };
static struct insitu__moments_tally tally;

/* What a block of n elements has, added to `moments` by way of a copy. */
static struct insitu__moments_part copied(
    bool wide, const void *x, const void *before, uint64_t n) {
  const float *f = x, *g = before;
  const double *d = x, *e = before;
  block.all = n < INSITU__MOMENTS_BLOCK;
  for (uint64_t i = 0; i < n; i++) {
    double lag = !before ? 0 : wide ? e[i] : (double)g[i];
    block.x[block.n++] = (wide ? d[i] : (double)f[i]) - lag;
  }
  struct insitu__moments_part part = insitu__moments_measure_base(&block);
  assert_true(insitu__moments_take(&moments, &block, &part));
  return part;
}

/* Whether two sketches have the same counts. */
static bool same_sketch(void) {
  if (moments.sketched != other.sketched || moments.pages != other.pages) return false;
  for (int p = 0; p < INSITU__MOMENTS_PAGES; p++) {
    if (!moments.page[p] != !other.page[p]) return false;
    if (moments.page[p] && memcmp(moments.page[p], other.page[p], INSITU__MOMENTS_BINS * 8))
      return false;
  }
  return true;
}

static void equal(bool wide, const void *x, const void *before, uint64_t n) {
  const struct insitu__moments_kernel *kernel = insitu__moments_kernel_of(wide, before != NULL);
  struct insitu__moments_part want[FOUR], got[FOUR];
  uint64_t item = wide ? 8 : 4, four = FOUR * INSITU__MOMENTS_BLOCK;
  uint64_t size = n == four ? INSITU__MOMENTS_BLOCK : n;
  begin();
  for (uint64_t k = 0; k * size < n; k++) {
    const char *at = before;
    at = at ? at + k * size * item : NULL;
    want[k] = copied(wide, (const char *)x + k * size * item, at, size);
  }
  if (n == four) {
    assert_true(kernel->four(&tally, x, before, x, got));
    assert_true(insitu__moments_fold(&other, &tally));
    for (int k = 1; k < FOUR; k++) {
      want[0].least = fmin(want[0].least, want[k].least);
      want[0].most = fmax(want[0].most, want[k].most);
    }
    for (int k = 1; k < FOUR; k++) {
      want[k].least = want[0].least;
      want[k].most = want[0].most;
    }
  } else {
    assert_true(kernel->one(x, before, n, got));
    assert_true(kernel->draw(&other, x, before, n, n < INSITU__MOMENTS_BLOCK));
  }
  if (memcmp(want, got, n / size * sizeof *got) || !same_sketch())
    fail_msg("%" PRIu64 " of float%d%s: pivot %a and %a, spread %a and %a", n, wide ? 64 : 32,
        before ? ", differences" : "", want[0].pivot, got[0].pivot, want[0].spread, got[0].spread);
  insitu__moments_free(&other);
  memset(&other, 0, sizeof other);
}

/* The table of neighbours is what its comment says it was made by. */
static void neighbours(void **state) {
  (void)state;
  for (uint64_t i = 0; i < INSITU__MOMENTS_BLOCK; i += INSITU__MOMENTS_EVERY)
    assert_int_equal(INSITU__MOMENTS_NEAR(i), i + insitu__order_mix(i) % INSITU__MOMENTS_EVERY);
}

/* Elements of mixed signs and sizes, zeros of both signs among them; of one sign, far from and near
 * 0; subnormal ones; zeros alone; and such that are beyond a float32. */
enum { MIXED, ABOVE, BELOW, NEAR, UNDER, SMALL, ZEROS, HUGE_ONES, N_KINDS };
static double element(int kind, int i) {
  switch (kind) {
  case MIXED: return i % 11 ? (uniform() - 0.3) * (i % 7 ? 1 : 1e6) : i % 2 ? -0.0 : 0.0;
  case ABOVE: return 280 + 20 * uniform();
  case BELOW: return -1e5 - uniform();
  case NEAR: return i % 300 ? 1e-9 * uniform() : 0.0;
  case UNDER: return i % 300 ? -1e3 * uniform() : -0.0;
  case SMALL: return (uniform() - 0.5) * 0x1p-130;
  case ZEROS: return i % 3 ? -0.0 : 0.0;
  default: return (uniform() - 0.5) * (i % 4 ? 1e37 : 1);
  }
}

/* The same bits as of elements that are copied to a block first. */
static void in_place(void **state) {
  (void)state;
  enum { N = FOUR * INSITU__MOMENTS_BLOCK };
  static float f[N], g[N];
  static double d[N], e[N];
  const uint64_t lengths[] = {
      1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 1001, INSITU__MOMENTS_BLOCK - 1, INSITU__MOMENTS_BLOCK, N};
  const struct insitu__moments_kernel *kernel = insitu__moments_kernel_of(false, false);
  if (!kernel->one || !insitu__moments_wide()) skip();
  for (int kind = 0; kind < N_KINDS; kind++) {
    for (int i = 0; i < N; i++) {
      d[i] = element(kind, i);
      e[i] = i % 5 ? uniform() : 1e-3 * d[i];
      f[i] = (float)d[i];
      g[i] = (float)e[i];
    }
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
      if (kind && lengths[k] < N && lengths[k] > 12) continue;
      equal(false, f, NULL, lengths[k]);
      equal(false, f, g, lengths[k]);
      equal(true, d, NULL, lengths[k]);
      equal(true, d, e, lengths[k]);
    }
  }

  struct insitu__moments_part part[FOUR];
  const int places[] = {0, 3, INSITU__MOMENTS_BLOCK - 1, INSITU__MOMENTS_BLOCK, N - 1};
  for (int i = 0; i < 5; i++) {
    float was = f[places[i]];
    f[places[i]] = i % 2 ? (float)NAN : (float)INFINITY;
    assert_false(kernel->four(&tally, f, NULL, f, part));
    assert_true(!tally.n && !tally.high[0] && !tally.high[1]);
    uint32_t any = 0;
    for (int k = 0; k < INSITU__MOMENTS_PAGES * INSITU__MOMENTS_BINS; k++) any |= tally.count[k];
    assert_int_equal(any, 0);
    assert_int_equal(kernel->one(f, NULL, INSITU__MOMENTS_BLOCK, part), i > 2);
    f[places[i]] = was;
  }
  begin();
}

/* Which of two zeros comes first is a matter of threads: neither is ever -0. */
static void zeros(void **state) {
  (void)state;
  begin();
  for (int i = 0; i < 9; i++) block.x[block.n++] = i % 2 ? 0.0 : -0.0;
  struct insitu__moments_part part = insitu__moments_measure_base(&block);
  assert_false(signbit(part.least) || signbit(part.most));
  part = insitu__moments_measure(&block);
  assert_false(signbit(part.least) || signbit(part.most));
  begin();
}

/* ---- batches that a scan makes ahead ---- */

/* A loader of arrays whose chunks have these rows, of which `coded` are encoded. */
static uint64_t depth_of(uint64_t threads, uint64_t budget, const uint64_t *rows, uint64_t n,
    uint64_t coded, uint64_t batch_size, uint64_t batch_bytes, bool remote) {
  static const struct insitu__store_ops far = {.remote = true};
  insitu_loader *ld = insitu__mem_alloc(1, sizeof *ld);
  struct insitu__geometry_array *a = insitu__mem_alloc(n, sizeof *a);
  assert_true(ld && a);
  for (uint64_t i = 0; i < n; i++) {
    a[i].rows = rows[i];
    a[i].zarr.codecs.n = i < coded;
  }
  ld->config.decode_threads = threads;
  ld->config.memory_budget = budget;
  ld->geometry.arrays = a;
  ld->geometry.n_arrays = n;
  if (remote) ld->source.store.ops = &far;
  uint64_t depth = insitu__scan_depth(ld, batch_size, batch_bytes);
  insitu__mem_free(a);
  insitu__mem_free(ld);
  return depth;
}

static void ahead_of_a_scan(void **state) {
  (void)state;
  enum { RAW, CODED };
  static const uint64_t one[] = {1}, long_chunk[] = {64}, two[] = {1, 64};
  const uint64_t mib = 1 << 20, gib = 1 << 30;
  /* about 8 MiB of small batches, at most 64, and one for each thread, but at least 2 */
  assert_int_equal(depth_of(2, gib, one, 1, CODED, 1, 0, false), 64);
  assert_int_equal(depth_of(2, gib, one, 1, CODED, 1, 1000, false), 64);
  assert_int_equal(depth_of(2, gib, one, 1, CODED, 1, mib, false), 8);
  assert_int_equal(depth_of(1, gib, one, 1, CODED, 1, 4 * mib + 1, false), 2);
  assert_int_equal(depth_of(7, gib, one, 1, CODED, 1, 4 * mib, false), 7);
  assert_int_equal(depth_of(99, gib, one, 1, CODED, 1, 4 * mib, false), 16);
  /* as many as a chunk of 64 rows for each thread fills, in batches of 4; also where another array
   * has short ones */
  assert_int_equal(depth_of(2, gib, long_chunk, 1, CODED, 4, 4 * mib, false), 32);
  assert_int_equal(depth_of(2, gib, long_chunk, 1, CODED, 5, 4 * mib, false), 26);
  assert_int_equal(depth_of(2, gib, two, 2, 2, 4, 4 * mib, false), 32);
  assert_int_equal(depth_of(2, gib, long_chunk, 1, CODED, 64, 4 * mib, false), 2);
  /* raw chunks are not decoded: nothing waits for a thread */
  assert_int_equal(depth_of(2, gib, long_chunk, 1, RAW, 4, 4 * mib, false), 2);
  assert_int_equal(depth_of(2, gib, two, 2, CODED, 4, 4 * mib, false), 2);
  /* at most an eighth of memory_budget */
  assert_int_equal(depth_of(2, 512 * mib, long_chunk, 1, CODED, 4, 4 * mib, false), 16);
  assert_int_equal(depth_of(2, 100 * mib, long_chunk, 1, CODED, 4, 4 * mib, false), 3);
  assert_int_equal(depth_of(2, 16 * mib, long_chunk, 1, CODED, 4, 4 * mib, false), 2);
  assert_int_equal(depth_of(2, 0, long_chunk, 1, CODED, 4, 4 * mib, false), 2);
  /* of a remote store the loader's own number */
  assert_int_equal(depth_of(2, gib, long_chunk, 1, CODED, 4, 4 * mib, true), 0);
}

/* What a long chunk adds to the batches ahead never takes more than an eighth of memory_budget. */
static void ahead_within_the_budget(void **state) {
  (void)state;
  const uint64_t one = 1;
  for (int i = 0; i < 20000; i++) {
    uint64_t threads = 1 + support_below(40), size = 1 + support_below(300);
    uint64_t rows = 1 + support_below(3000), bytes = 1 + support_below(UINT64_C(1) << (i % 32));
    uint64_t budget = support_below(UINT64_C(1) << (20 + i % 20));
    uint64_t least = depth_of(threads, budget, &one, 1, 1, size, bytes, false);
    uint64_t depth = depth_of(threads, budget, &rows, 1, 1, size, bytes, false);
    assert_true(depth >= least);
    if (depth > least) assert_true(depth * bytes <= budget / 8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(far_from_zero),
      cmocka_unit_test(near_the_largest), cmocka_unit_test(every_index_is_seen),
      cmocka_unit_test(at_the_ends), cmocka_unit_test(golden), cmocka_unit_test(neighbours),
      cmocka_unit_test(in_place), cmocka_unit_test(zeros), cmocka_unit_test(ahead_of_a_scan),
      cmocka_unit_test(ahead_within_the_budget)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
