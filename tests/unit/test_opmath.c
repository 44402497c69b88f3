/* The arithmetic of operations: special values, errors against double and long double, and a hash
 * of results. The hash is the same for every compiler, machine and width of vectors: see
 * test_opmath_scalar.c. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <float.h>
#include <math.h>
#include "support.h"

#define N INSITU__OPS_BLOCK

/* Does one operation with a block. */
/* Which vectors: 0 the longest that this machine has, 1 those that every machine of its kind has, 2
 * those of AVX2. */
static int width;
static bool has_wide(void) {
#ifdef INSITU__OPS_HAS_WIDE
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}
static uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static void run(int32_t dtype, int32_t kind, void *x, const void *a, const void *b) {
  insitu__ops_run *const *runs = insitu__ops_runs(dtype);
  if (width == 1) runs = dtype == INSITU_F32 ? insitu__ops_runs_base32 : insitu__ops_runs_base64;
#ifdef INSITU__OPS_HAS_WIDE
  if (width == 2) runs = dtype == INSITU_F32 ? insitu__ops_runs_wide32 : insitu__ops_runs_wide64;
#endif
  uint64_t each = a == b ? 0 : ~UINT64_C(0);
  static unsigned char past[N * sizeof(double)] __attribute__((aligned(64)));
  runs[kind](x, past, a, b, each, N, true);
  insitu__mem_past_caches_end();
  runs[kind](x, x, a, b, each, N, false);
  if (memcmp(past, x, N * (uint64_t)insitu__dtype_size(dtype)))
    fail_msg("past the caches: other bytes");
}
static uint64_t hashed(uint64_t h, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    uint64_t word;
    memcpy(&word, (const char *)bytes + i, 8);
    h = insitu__order_mix(h ^ word);
  }
  return h;
}
/* |got - want| in units in the last place of want, rounded to the type of `next`, the distance to
 * the next number. */
static double off(double distance, double unit) {
  return fabs(distance) / unit;
}
static double off32(float got, double want) {
  float near = (float)want;
  if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL;
  if (isinf(near) || near == 0) return got == near && signbit(got) == signbit(near) ? 0 : HUGE_VAL;
  return off((double)got - want, (double)nextafterf(fabsf(near), HUGE_VALF) - (double)fabsf(near));
}
static double off64(double got, long double want) {
  double near = (double)want;
  if (isnan(near)) return isnan(got) ? 0 : HUGE_VAL;
  if (isinf(near) || near == 0) return got == near && signbit(got) == signbit(near) ? 0 : HUGE_VAL;
  double unit = nextafter(fabs(near), HUGE_VAL) - fabs(near);
  return isfinite(unit) ? off((double)((long double)got - want), unit) : 0;
}

/* The results of a block for every width of vectors, which must have the same bits. */
static void compute32(int32_t kind, const float in[N], float out[N]) {
  for (int w = 2; w >= 0; w--) {
    float last[N];
    bool first = w == (has_wide() ? 2 : 1);
    if (w == 2 && !has_wide()) continue;
    memcpy(last, out, sizeof last);
    width = w;
    memcpy(out, in, sizeof last);
    run(INSITU_F32, kind, out, in, in);
    for (int i = 0; !first && i < N; i++)
      if (memcmp(&last[i], &out[i], 4)) fail_msg("kind %d of %a differs", kind, (double)in[i]);
    for (int i = 0; i < N; i++)
      if (isnan(out[i]) && bits_of(out[i]) != 0x7fc00000) fail_msg("a NaN of kind %d", kind);
  }
}
/* Where the arithmetic changes its way, and what stands beside these numbers. */
static const float edges[] = {0, 1, -0.25f, 0.5f, 0x1p-126f, 0x1p-24f, 2, 0x1p13f, 0x1p61f, 0x1p62f,
    0x1p63f, 0x1p64f, 0x1.8p126f, 0x1p127f, INFINITY, 0x1p126f};

/* Every so many-th float32, of all signs, exponents and NaNs, and edges. TEST_OPS_STEP=1: all. */
static void test_logarithms32(void **state) {
  (void)state;
  const char *given = getenv("TEST_OPS_STEP");
  uint64_t step = given ? strtoull(given, NULL, 10) : support_slow() ? 65537 : 4099;
  for (int which = 0; which < 2; which++) {
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u <= UINT32_MAX;) {
      float in[N], out[N];
      bool first = u == 0;
      for (int i = 0; i < N; i++, u += step) {
        uint32_t bits = (uint32_t)u, edge = (uint32_t)i / 6;
        if (first && edge < sizeof edges / sizeof *edges)
          bits = (bits_of(edges[edge]) + (uint32_t)i % 3 - 1) ^ (uint32_t)(i / 3 % 2) << 31;
        memcpy(&in[i], &bits, 4);
      }
      compute32(which ? INSITU_OP_ASINH : INSITU_OP_LOG1P, in, out);
      for (int i = 0; i < N; i++) {
        double e = off32(out[i], which ? asinh((double)in[i]) : log1p((double)in[i]));
        if (e > worst) at = in[i];
        if (e > worst) worst = e;
      }
    }
    print_message("%s of float32: %.3f units at %a\n", which ? "asinh" : "log1p", worst, at);
    assert_true(worst < (which ? 1.6 : 1.1));
  }
}
/* Where the power of two changes that a function takes out: right, growing, and asinh odd. */
static void test_powers(void **state) {
  (void)state;
  for (int j = 0; j < 2 * 80; j++) {
    int which = j & 1, k = j / 2 - 20;
    double u = ldexp(1.5, k); /* what log1p and asinh take the logarithm of */
    if (which ? k < 0 || k > 61 : u == 0) continue;
    float in[N], out[N], middle = (float)(which ? (u - 1 / u) / 2 : u - 1);
    for (int i = 0; i < N; i++) {
      uint32_t bits = bits_of(middle) + ((uint32_t)(i / 2) - N / 4) * (middle < 0 ? ~0u : 1);
      bits ^= which && i % 2 ? 0x80000000u : 0;
      memcpy(&in[i], &bits, 4);
    }
    compute32(which ? INSITU_OP_ASINH : INSITU_OP_LOG1P, in, out);
    for (int i = 0; i < N; i++) {
      double e = off32(out[i], which ? asinh((double)in[i]) : log1p((double)in[i]));
      if (e >= (which ? 1.6 : 1.1)) fail_msg("%a: %.3f units", (double)in[i], e);
      if (which && i % 2 && out[i] != -out[i - 1]) fail_msg("%a is not odd", (double)in[i]);
      float before = i > 1 ? out[i - 2] : out[i];
      if (which ? fabsf(out[i]) < fabsf(before) : out[i] < before)
        fail_msg("%a falls", (double)in[i]);
    }
  }
}

/* What an element becomes does not depend on those that stand beside it: numbers for which a kernel
 * does something else, and NaN. */
static void test_neighbours(void **state) {
  (void)state;
  static const uint32_t far[] = {0x7fc00000, 0xffc12345, 0x7f812345, 0x7f800000, 0xff800000,
      0x5e800000, 0x5e800001, 0xde800001, 0x7ebfffff, 0x7ec00000, 0xfec00000, 0x7e800000,
      0x7f7fffff, 0xbf800000, 0xc0000000, 0x80000000};
  static const int32_t kinds[] = {INSITU_OP_LOG1P, INSITU_OP_ASINH};
  for (int which = 0; which < 2; which++) {
    float in[N], alone[N], out[N];
    for (int i = 0; i < N; i++) in[i] = (float)i * 0.07f - 0.9f;
    compute32(kinds[which], in, alone);
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
      float same[N], is[N], x;
      memcpy(&x, &far[k], 4);
      for (int i = 0; i < N; i++) same[i] = x;
      compute32(kinds[which], same, is);
      for (int at = (int)k % 5; at < N; at += 5) {
        float was = in[at];
        in[at] = x;
        compute32(kinds[which], in, out);
        in[at] = was;
        for (int i = 0; i < N; i++)
          if (bits_of(out[i]) != bits_of(i == at ? is[0] : alone[i]))
            fail_msg("kind %d of %a beside %#x", kinds[which], (double)in[i], far[k]);
      }
    }
  }
}

static void test_logarithms64(void **state) {
  (void)state;
  if (LDBL_MANT_DIG < 64) skip(); /* no wider type to compare with */
  int rounds = support_slow() ? 100 : 4000;
  support_random_state = 7;
  for (int which = 0; which < 2; which++) {
    double worst = 0, at = 0;
    for (int k = 0; k < rounds; k++) {
      double in[N], out[N];
      for (int i = 0; i < N; i++) { /* all numbers, or those whose logarithm is not large */
        uint64_t bits = support_random(), exponent = 1023 - 60 + support_below(80);
        if (k & 1) bits = (bits & ~(UINT64_C(0x7ff) << 52)) | exponent << 52;
        memcpy(&in[i], &bits, 8);
      }
      memcpy(out, in, sizeof in);
      run(INSITU_F64, which ? INSITU_OP_ASINH : INSITU_OP_LOG1P, out, in, in);
      for (int i = 0; i < N; i++) {
        double e = off64(out[i], which ? asinhl((long double)in[i]) : log1pl((long double)in[i]));
        if (e > worst) at = in[i];
        if (e > worst) worst = e;
      }
    }
    print_message("%s of float64: %.3f units at %a\n", which ? "asinh" : "log1p", worst, at);
    assert_true(worst < (which ? 1.25 : 0.9));
  }
}

/* Numbers of a block that differ, and results that are exact. */
static void test_exact(void **state) {
  (void)state;
  float x[N], a[N], b[N], is[N];
  for (int i = 0; i < N; i++) {
    x[i] = i % 5 ? (float)i * 0.37f - 11 : i % 3 ? NAN : INFINITY;
    a[i] = (float)(i % 7) * 0.3f - 1;
    b[i] = a[i] + 0.7f;
  }
  for (int32_t kind = INSITU_OP_NORM; kind <= INSITU__OPS_DIVIDE; kind++) {
    if (kind == INSITU_OP_LOG1P || kind == INSITU_OP_ASINH || kind == INSITU_OP_MISSING) continue;
    if (kind == INSITU_OP_REPLACE) memcpy(a, x, sizeof a / 2);
    memcpy(is, x, sizeof x);
    run(INSITU_F32, kind, is, a, b);
    for (int i = 0; i < N; i++) {
      volatile float difference = x[i] - a[i], want = x[i];
      if (kind == INSITU_OP_NORM) want = difference / b[i];
      if (kind == INSITU_OP_SCALE) want = x[i] * a[i];
      if (kind == INSITU_OP_SHIFT) want = x[i] + a[i];
      if (kind == INSITU_OP_CLIP && x[i] < a[i]) want = a[i];
      if (kind == INSITU_OP_CLIP && x[i] > b[i]) want = b[i];
      if (kind == INSITU_OP_FILL && isnan(x[i])) want = a[i];
      if (kind == INSITU_OP_REPLACE && x[i] == a[i]) want = b[i];
      if (kind == INSITU__OPS_DIVIDE) want = x[i] / a[i];
      uint32_t got, bits = 0x7fc00000;
      float wanted = want;
      memcpy(&got, &is[i], 4);
      if (!isnan(wanted)) memcpy(&bits, &wanted, 4);
      if (got != bits) fail_msg("kind %d, %a: %#x, not %#x", kind, (double)x[i], got, bits);
    }
  }
}

/* Makes bounds of INSITU_OP_CLIP of any numbers: the lower one first, and no NaN. */
static void order_bounds(uint32_t *lo32, uint32_t *hi32, uint64_t *lo64, uint64_t *hi64) {
  for (int i = 0; i < N; i++) {
    float low, high;
    double least, most;
    memcpy(&low, &lo32[i], sizeof low);
    memcpy(&high, &hi32[i], sizeof high);
    memcpy(&least, &lo64[i], sizeof least);
    memcpy(&most, &hi64[i], sizeof most);
    float in32[] = {isnan(low) ? -1 : low, isnan(high) ? 1 : high};
    double in64[] = {isnan(least) ? -1 : least, isnan(most) ? 1 : most};
    int swap32 = in32[0] > in32[1], swap64 = in64[0] > in64[1];
    memcpy(&lo32[i], &in32[swap32], sizeof low);
    memcpy(&hi32[i], &in32[!swap32], sizeof low);
    memcpy(&lo64[i], &in64[swap64], sizeof least);
    memcpy(&hi64[i], &in64[!swap64], sizeof least);
  }
}
/* The bits of results, whatever compiles and runs this. */
static void test_same_everywhere(void **state) {
  width = *state ? *(int *)*state : 0;
  if (width == 2 && !has_wide()) skip();
  static const uint64_t golden[2] = {UINT64_C(0x73f8c060e213927c), UINT64_C(0x18e5927a3122bb15)};
  support_random_state = 11;
  uint64_t h[2] = {0, 0};
  for (int32_t kind = INSITU_OP_NORM; kind < INSITU__OPS_KINDS; kind++) {
    if (kind == INSITU_OP_MISSING) continue;
    for (int k = 0; k < 40; k++) {
      uint64_t wide[3][N];
      uint32_t half[3][N];
      for (int list = 0; list < 3; list++)
        for (int i = 0; i < N; i++) {
          uint64_t exponent = support_below(40), bits = support_random();
          wide[list][i] =
              k & 1 ? bits : (bits & ~(UINT64_C(0x7ff) << 52)) | (1003 + exponent) << 52;
          half[list][i] =
              (uint32_t)(k & 1 ? bits : (bits & 0x807fffff) | (uint32_t)(107 + exponent) << 23);
        }
      if (kind == INSITU_OP_CLIP) order_bounds(half[1], half[2], wide[1], wide[2]);
      run(INSITU_F32, kind, half[0], half[1], half[2]);
      run(INSITU_F64, kind, wide[0], wide[1], wide[2]);
      h[0] = hashed(h[0], half[0], sizeof half[0]);
      h[1] = hashed(h[1], wide[0], sizeof wide[0]);
    }
  }
  for (int i = 0; i < 2; i++)
    if (h[i] != golden[i]) fail_msg("hash %d is %#" PRIx64 ", not %#" PRIx64, i, h[i], golden[i]);
}

int main(void) {
  static int widths[] = {1, 2};
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_logarithms32),
      cmocka_unit_test(test_powers), cmocka_unit_test(test_neighbours),
      cmocka_unit_test(test_logarithms64), cmocka_unit_test(test_exact),
      cmocka_unit_test(test_same_everywhere),
      cmocka_unit_test_prestate(test_same_everywhere, &widths[0]),
      cmocka_unit_test_prestate(test_same_everywhere, &widths[1])};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
