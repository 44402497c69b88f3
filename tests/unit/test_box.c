/* The strided copy and convert kernel against an element-by-element reference: geometries, dtypes,
 * byte orders, pieces, fill, rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

static const int32_t dtypes[] = {INSITU_BOOL, INSITU_I8, INSITU_I16, INSITU_I32, INSITU_I64,
    INSITU_U8, INSITU_U16, INSITU_U32, INSITU_U64, INSITU_F16, INSITU_BF16, INSITU_F32, INSITU_F64,
    INSITU_C64, INSITU_C128};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static uint64_t seed = 1;
static uint64_t rnd(uint64_t n) { /* splitmix64 */
  uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return n ? z % n : z;
}
/* exactly n bytes, so that a sanitizer sees every step outside */
static unsigned char *bytes(uint64_t n) {
  unsigned char *p = malloc(n ? n : 1);
  assert_non_null(p);
  for (uint64_t i = 0; i < n; i += 8) {
    uint64_t word = rnd(0);
    memcpy(p + i, &word, n - i < 8 ? n - i : 8);
  }
  return p;
}
static unsigned item_of(int32_t dtype) {
  return ((unsigned)dtype & 0xff) / 8;
}
/* The least and the largest value of an integer or bool, as wide numbers. */
static __int128 least_of(int32_t dtype) {
  return dtype >> 8 == 0 ? -((__int128)1 << ((dtype & 0xff) - 1)) : 0;
}
static __int128 most_of(int32_t dtype) {
  if (dtype == INSITU_BOOL) return 1;
  return ((__int128)1 << ((dtype & 0xff) - (dtype >> 8 == 0))) - 1;
}
static bool convertible(int32_t src, int32_t dst) {
  bool whole = src >> 8 < 2 || src == INSITU_BOOL;
  if (src == dst) return true;
  if (src >> 8 == 5 || dst >> 8 == 5) return false;
  if (dst >> 8 == 2 || dst >> 8 == 4) return true;
  if (dst == INSITU_BOOL) return whole;
  return whole && least_of(src) >= least_of(dst) && most_of(src) <= most_of(dst);
}

/* ---- reference: conversion in integers */

/* Bits of the mantissa, and the exponent's bias. */
struct format {
  int m, bias;
};
static struct format format_of(int32_t dtype) {
  if (dtype == INSITU_F16) return (struct format){10, 15};
  if (dtype == INSITU_BF16) return (struct format){7, 127};
  if (dtype == INSITU_F32) return (struct format){23, 127};
  return (struct format){52, 1023};
}

/* The bits of mag * 2^e rounded to nearest even, in a format of m mantissa bits. */
static uint64_t ref_round(bool negative, uint64_t mag, int e, int32_t to) {
  int m = format_of(to).m, bias = format_of(to).bias;
  uint64_t sign = (uint64_t)negative << (8 * item_of(to) - 1),
           infinity = ((uint64_t)bias * 2 + 1) << m, q, rest, half;
  if (!mag) return sign;
  int exponent = 63 - __builtin_clzll(mag) + e;
  int least = exponent > 1 - bias ? exponent : 1 - bias, shift = least - m - e;
  if (shift > 64) return sign;
  if (least > bias) return sign | infinity;
  if (shift <= 0) {
    q = mag << -shift;
  } else {
    q = shift == 64 ? 0 : mag >> shift;
    rest = shift == 64 ? mag : mag & ((UINT64_C(1) << shift) - 1);
    half = UINT64_C(1) << (shift - 1);
    q += rest > half || (rest == half && (q & 1));
  }
  uint64_t bits = ((uint64_t)(least + bias - 1) << m) + q;
  return sign | (bits > infinity ? infinity : bits);
}
static uint64_t ref_float(uint64_t u, int32_t from, int32_t to) {
  unsigned item = item_of(from);
  int m = format_of(from).m, bias = format_of(from).bias, width = (int)(8 * item) - 1 - m,
      kept = format_of(to).m;
  bool negative = u >> (8 * item - 1) & 1;
  int exponent = (int)(u >> m & ((1u << width) - 1));
  uint64_t mantissa = u & ((UINT64_C(1) << m) - 1);
  if (exponent == (1 << width) - 1) {
    uint64_t special = (uint64_t)negative << (8 * item_of(to) - 1) |
                       ((uint64_t)format_of(to).bias * 2 + 1) << kept;
    if (mantissa)
      special |=
          UINT64_C(1) << (kept - 1) | (kept > m ? mantissa << (kept - m) : mantissa >> (m - kept));
    return special;
  }
  return ref_round(negative, exponent ? mantissa | UINT64_C(1) << m : mantissa,
      (exponent ? exponent : 1) - bias - m, to);
}
static void ref_element(
    const unsigned char *src, int32_t from, bool swap, unsigned char *dst, int32_t to) {
  unsigned char native[16];
  unsigned item = item_of(from), half = from == INSITU_C64 || from == INSITU_C128 ? item / 2 : item;
  for (unsigned k = 0; k < item; k++)
    native[k] = src[swap ? k / half * half + half - 1 - k % half : k];
  if (from == to) {
    memcpy(dst, native, item);
    return;
  }
  uint64_t u = 0, sign = UINT64_C(1) << (8 * item - 1), out;
  memcpy(&u, native, item);
  bool negative = from >> 8 == 0 && (u & sign);
  if (from == INSITU_BOOL) u = u != 0;
  if (to == INSITU_BOOL) out = u != 0;
  else if (to >> 8 < 2) out = negative ? u | ~(sign - 1) : u;
  else if (from >> 8 == 2 || from >> 8 == 4) out = ref_float(u, from, to);
  else out = ref_round(negative, negative ? sign - (u & (sign - 1)) : u, 0, to);
  memcpy(dst, &out, item_of(to));
}

/* Decoding, with a rounding after each operation. src: native byte order. */
static void ref_decoded(
    const unsigned char *src, const struct insitu__cf *cf, unsigned char *dst, int32_t to) {
  static const uint64_t quiet = UINT64_C(0x7ff8000000000000);
  volatile double x, y;
  double shown;
  bool missing = false, real = cf->dtype >> 8 >= 2;
  ref_element(src, cf->dtype, false, (unsigned char *)&shown, INSITU_F64);
  if (cf->dtype == INSITU_F64) memcpy(&shown, src, 8);
  for (unsigned m = 0; m < cf->n_missing; m++) {
    double other;
    ref_element(cf->missing[m], cf->dtype, false, (unsigned char *)&other, INSITU_F64);
    missing = missing || (real ? other == shown : !memcmp(cf->missing[m], src, item_of(cf->dtype)));
  }
  x = shown;
  y = x * cf->scale;
  shown = y + cf->offset;
  if (missing || isnan(shown)) memcpy(&shown, &quiet, sizeof quiet);
  ref_element((const unsigned char *)&shown, INSITU_F64, false, dst, to);
}
static void ref_shown(const unsigned char *src, int32_t from, bool swap,
    const struct insitu__cf *cf, unsigned char *dst, int32_t to) {
  unsigned char native[16];
  ref_element(src, from, swap, native, from);
  if (cf) ref_decoded(native, cf, dst, to);
  else ref_element(src, from, swap, dst, to);
}

/* ---- random geometries */

struct geometry {
  unsigned ndim;
  uint64_t count[INSITU__MAX_DIMS], src_offset, dst_offset, total, src_end, dst_end;
  int64_t src_stride[INSITU__MAX_DIMS], dst_stride[INSITU__MAX_DIMS];
  int32_t from, to;
  bool swap;
  const struct insitu__cf *cf; /* NULL: not decoded */
};

static uint64_t layout(
    /* strides in a random order; returns the end */
    const struct geometry *g, bool gaps, unsigned item, int64_t *stride) {
  unsigned order[INSITU__MAX_DIMS];
  uint64_t step = item * (gaps && rnd(3) == 0 ? 1 + rnd(3) : 1), end = item;
  for (unsigned d = 0; d < g->ndim; d++) order[d] = g->ndim - 1 - d;
  for (unsigned d = g->ndim; d > 1 && rnd(2); d--) {
    unsigned k = (unsigned)rnd(d), t = order[k];
    order[k] = order[d - 1];
    order[d - 1] = t;
  }
  for (unsigned d = 0; d < g->ndim; d++) {
    stride[order[d]] = (int64_t)step;
    if (g->count[order[d]] == 0) return 0;
    end += (g->count[order[d]] - 1) * step;
    step *= g->count[order[d]];
    if (gaps && rnd(3) == 0) step += item * rnd(4);
  }
  return end;
}
static struct geometry random_geometry(int32_t from, int32_t to, bool swap, uint64_t elements) {
  struct geometry g = {.from = from, .to = to, .swap = swap, .total = 1};
  g.ndim = (unsigned)rnd(7);
  for (unsigned d = 0; d < g.ndim; d++) {
    g.count[d] = rnd(40) == 0 ? 0 : 1 + rnd(rnd(4) ? insitu__base_min(8, elements) : elements);
    elements = insitu__base_max(1, elements / insitu__base_max(1, g.count[d]));
    g.total *= g.count[d];
  }
  bool gaps = rnd(3) != 0;
  g.src_offset = rnd(3) ? rnd(20) : 0; /* unaligned too */
  g.dst_offset = rnd(3) ? rnd(20) : 0;
  g.src_end = layout(&g, gaps, item_of(from), g.src_stride) + g.src_offset;
  g.dst_end = layout(&g, gaps, item_of(to), g.dst_stride) + g.dst_offset;
  for (unsigned d = 0; d < g.ndim; d++) { /* some axes are turned round */
    if (g.count[d] < 2 || rnd(4)) continue;
    g.dst_offset += (g.count[d] - 1) * (uint64_t)g.dst_stride[d];
    g.dst_stride[d] = -g.dst_stride[d];
  }
  for (unsigned d = 0; d < g.ndim; d++) { /* strides of single elements must not matter */
    if (g.count[d] == 1 && rnd(2)) g.src_stride[d] = g.dst_stride[d] = (int64_t)rnd(0);
  }
  return g;
}
/* of element i in C order */
static void place(const struct geometry *g, uint64_t i, uint64_t *src, uint64_t *dst) {
  *src = g->src_offset;
  *dst = g->dst_offset;
  for (unsigned d = g->ndim; d--; i /= g->count[d]) {
    if (g->count[d] == 1) continue;
    *src += i % g->count[d] * (uint64_t)g->src_stride[d];
    *dst += i % g->count[d] * (uint64_t)g->dst_stride[d];
  }
}
static void open_box(struct insitu__box *b, const struct geometry *g, bool wide) {
  insitu_error err = {0};
  insitu_status status = insitu__box_init(b, g->ndim, g->count, g->src_stride, g->dst_stride,
      g->src_offset, g->dst_offset, g->from, g->swap,
      rnd(2) && g->from == g->to ? INSITU_AS_STORED : g->to, &err);
  if (status) fail_msg("%s", err.message);
  assert_true(b->total == g->total);
  if (g->total) assert_true(b->src_begin == g->src_offset && b->src_end == g->src_end);
  if (g->cf) insitu__box_cf(b, g->cf, g->swap);
  if (wide) return;
  if (!g->cf) {
    assert_true(insitu__box_route(b, g->from, g->swap, false));
    return;
  }
  b->run = insitu__box_kernel(g->from, INSITU_F64, g->swap, false);
  b->put = insitu__box_kernel(INSITU_F64, g->to, false, false);
  b->unpack = insitu__box_unpack_base;
}
static void check_same(const unsigned char *got, const unsigned char *want, uint64_t n,
    const struct geometry *g, const char *what) {
  for (uint64_t i = 0; i < n; i++) {
    if (got[i] != want[i])
      fail_msg("%s, dtype 0x%x to 0x%x, swap %d: byte %" PRIu64, what, g->from, g->to, g->swap, i);
  }
}

static void copy_in_parts(const struct insitu__box *b, const struct geometry *g,
    const unsigned char *src, unsigned char *dst) {
  uint64_t item = item_of(g->from), at = g->src_offset % item, size = 1 + rnd(rnd(2) ? 8 : 200);
  while (at < g->src_end) {
    uint64_t end = insitu__base_min(g->src_end, at + item * rnd(size + 1));
    unsigned char *piece = bytes(end - at);
    memcpy(piece, src + at, end - at);
    insitu__box_copy_part(b, piece, at, end, dst);
    free(piece);
    at = end;
  }
  /* beyond the box: not read */
  insitu__box_copy_part(b, src, g->src_end + item, g->src_end + 2 * item, dst);
}
static void check_geometry(const struct geometry *g) {
  struct insitu__box b;
  open_box(&b, g, rnd(2));
  unsigned char *src = bytes(g->src_end), *want = bytes(g->dst_end), *got = bytes(g->dst_end),
                *painted = bytes(g->dst_end), fill[16];
  unsigned char *before = bytes(g->dst_end);
  memcpy(want, before, g->dst_end);
  /* every third is missing */
  for (uint64_t i = 0, s, d; g->cf && g->cf->n_missing && i < g->total; i++) {
    unsigned item = item_of(g->from);
    place(g, i, &s, &d);
    for (unsigned k = 0; i % 3 == 0 && k < item; k++)
      src[s + k] = g->cf->missing[i % g->cf->n_missing][g->swap ? item - 1 - k : k];
  }
  for (uint64_t i = 0, s, d; i < g->total; i++) {
    place(g, i, &s, &d);
    ref_shown(src + s, g->from, g->swap, g->cf, want + d, g->to);
  }
  memcpy(got, before, g->dst_end);
  insitu__box_copy(&b, src, got);
  check_same(got, want, g->dst_end, g, "copy");
  memcpy(got, before, g->dst_end);
  copy_in_parts(&b, g, src, got);
  check_same(got, want, g->dst_end, g, "parts");
  if (b.contiguous) {
    memcpy(got, before, g->dst_end);
    memcpy(got + g->dst_offset, src + b.src_begin, b.src_end - b.src_begin);
    check_same(got, want, g->dst_end, g, "contiguous");
  }
  for (unsigned k = 0; k < 16; k++) fill[k] = (unsigned char)rnd(256);
  memcpy(painted, before, g->dst_end);
  memcpy(want, before, g->dst_end);
  insitu__box_fill(&b, fill, 1, painted);
  for (uint64_t i = 0, s, d; i < g->total; i++) {
    place(g, i, &s, &d);
    ref_shown(fill, g->from, false, g->cf, want + d, g->to);
  }
  check_same(painted, want, g->dst_end, g, "fill");
  free(src), free(want), free(got), free(painted), free(before);
}
static void test_all_pairs(void **state) {
  (void)state;
  for (unsigned k = 0; k < DTYPES * DTYPES * 2; k++) {
    int32_t from = dtypes[k / 2 / DTYPES], to = dtypes[k / 2 % DTYPES];
    if (!convertible(from, to)) continue;
    for (unsigned round = 0; round < 40; round++) {
      struct geometry g = random_geometry(from, to, k % 2, 1 + rnd(300));
      check_geometry(&g);
    }
  }
}
/* planes larger than a block, of every remainder, with and without a gap */
static void test_transposed(void **state) {
  (void)state;
  for (unsigned k = 0; k < 480; k++) {
    int32_t from = dtypes[k % DTYPES], to = dtypes[rnd(DTYPES)];
    if (rnd(2) || !convertible(from, to)) to = from;
    bool f_order = rnd(2), tall = rnd(4) == 0;
    struct geometry g = {.ndim = 3,
        .from = from,
        .to = to,
        .swap = rnd(3) == 0,
        .src_offset = rnd(5),
        .dst_offset = rnd(5)};
    uint64_t y = tall ? 1 + rnd(4) : 1 + rnd(90), x = tall ? 1 + rnd(1500) : 1 + rnd(90),
             z = 1 + rnd(3), pad = rnd(2) * rnd(9);
    if (rnd(2)) g.count[0] = z, g.count[1] = y, g.count[2] = x;
    else g.count[0] = z, g.count[1] = x, g.count[2] = y;
    int64_t si = item_of(from), di = item_of(to);
    uint64_t *c = g.count;
    memcpy(g.src_stride,
        (int64_t[]){(int64_t)(c[1] * (c[2] + pad)) * si, (int64_t)(c[2] + pad) * si, si}, 24);
    if (f_order)
      memcpy(g.dst_stride, (int64_t[]){di, (int64_t)c[0] * di, (int64_t)(c[0] * (c[1] + pad)) * di},
          24);
    else
      memcpy(g.dst_stride,
          (int64_t[]){(int64_t)(c[2] * (c[1] + pad)) * di, di, (int64_t)(c[1] + pad) * di}, 24);
    g.total = c[0] * c[1] * c[2];
    g.src_end = g.src_offset + (uint64_t)si, g.dst_end = g.dst_offset + (uint64_t)di;
    for (unsigned d = 0; d < 3; d++) {
      g.src_end += (c[d] - 1) * (uint64_t)g.src_stride[d];
      g.dst_end += (c[d] - 1) * (uint64_t)g.dst_stride[d];
    }
    check_geometry(&g);
  }
}

static void test_decoded(void **state) {
  (void)state;
  static const double factors[] = {1, 0.1, 0.01, -3.5, 1e300, 0, 0x1p-40},
                      offsets[] = {-0.0, -0.3, 273.15, 1e16};
  for (unsigned k = 0; k < DTYPES * 2; k++) {
    int32_t from = dtypes[k / 2];
    if (from == INSITU_BOOL || from == INSITU_C64 || from == INSITU_C128) continue;
    for (unsigned round = 0; round < 150; round++) {
      struct insitu__cf cf = {.dtype = from,
          .scale = factors[rnd(7)],
          .offset = offsets[rnd(4)],
          .n_missing = (unsigned)rnd(6)};
      for (unsigned m = 0; m < INSITU__CF_MISSING; m++)
        for (unsigned i = 0; i < item_of(from); i++) cf.missing[m][i] = (unsigned char)rnd(256);
      static const int32_t shown[] = {INSITU_F16, INSITU_BF16, INSITU_F32, INSITU_F64};
      struct geometry g =
          random_geometry(from, shown[rnd(4)], k % 2, 1 + rnd(round % 10 ? 40 : 700));
      g.cf = &cf;
      check_geometry(&g);
    }
  }
  /* Known bits: a fused multiply-add would give 0x1p-55 in the first place. */
  struct insitu__cf cf = {
      .dtype = INSITU_I16, .scale = 0.1, .offset = -0.3, .n_missing = 1, .missing = {{9}}};
  const int16_t stored[4] = {3, 9, 4, -32768};
  double got[4];
  struct insitu__box b;
  assert_int_equal(insitu__box_init(&b, 1, (const uint64_t[]){4}, (const int64_t[]){2},
                       (const int64_t[]){8}, 0, 0, INSITU_I16, false, INSITU_F64, NULL),
      0);
  insitu__box_cf(&b, &cf, false);
  insitu__box_copy(&b, stored, got);
  assert_true(got[0] == 0x1p-54 && isnan(got[1]) && got[3] == -3277.1000000000004);
  assert_null(insitu__box_direct(&b, got, 0, 8));
  uint64_t bits; /* the one NaN, also for what the archive holds */
  memcpy(&bits, &got[1], 8);
  assert_true(bits == UINT64_C(0x7ff8000000000000));
  /* 64-bit integers are missing by all their bits, not by those that a float64 keeps. */
  const int64_t large[2] = {INT64_C(1) << 60, (INT64_C(1) << 60) + 1};
  struct insitu__cf exact = {.dtype = INSITU_I64, .scale = 1, .offset = -0.0, .n_missing = 1};
  memcpy(exact.missing[0], &large[0], 8);
  assert_int_equal(insitu__box_init(&b, 1, (const uint64_t[]){2}, (const int64_t[]){8},
                       (const int64_t[]){8}, 0, 0, INSITU_I64, false, INSITU_F64, NULL),
      0);
  insitu__box_cf(&b, &exact, false);
  insitu__box_copy(&b, large, got);
  assert_true(isnan(got[0]) && got[1] == 0x1p60);
}

static void test_direct(void **state) {
  (void)state;
  unsigned found = 0;
  for (unsigned round = 0; round < 2500; round++) {
    struct geometry g = random_geometry(dtypes[rnd(DTYPES)], 0, rnd(4) == 0, 60);
    g.to = g.from;
    unsigned item = item_of(g.from);
    g.dst_end = layout(&g, rnd(2), item, g.dst_stride) + g.dst_offset;
    struct insitu__box b;
    open_box(&b, &g, true);
    unsigned char base[1];
    int64_t *map = malloc((g.src_end + 1) * sizeof *map); /* source byte to destination byte */
    assert_non_null(map);
    for (uint64_t i = 0; i < g.src_end; i++) map[i] = -1;
    for (uint64_t i = 0, s, d; i < g.total; i++) {
      place(&g, i, &s, &d);
      for (unsigned k = 0; k < item; k++) map[s + k] = (int64_t)(d + k);
    }
    uint64_t begin = g.src_end ? rnd(g.src_end) : 0, end = begin + rnd(3 * item + 1);
    if (rnd(3) == 0) begin = b.src_begin, end = b.src_end;
    bool inside = begin < end && end <= g.src_end && g.total && map[begin] >= 0;
    for (uint64_t i = begin + 1; i < end && inside; i++)
      inside = map[i] == map[begin] + (int64_t)(i - begin);
    unsigned char *p = insitu__box_direct(&b, base, begin, end);
    /* one element */
    bool one = inside && (end - 1 - b.src_begin) / item == (begin - b.src_begin) / item;
    bool raw = !g.swap || item == 1;
    if (p) {
      found++;
      assert_true(raw && inside && (intptr_t)p == (intptr_t)base + (intptr_t)map[begin]);
    } else {
      assert_false(raw && one);
      assert_false(raw && inside && b.contiguous);
    }
    free(map);
  }
  assert_true(found > 300);
  struct geometry g = {.ndim = 2,
      .from = INSITU_F32,
      .to = INSITU_F32,
      .count = {5, 6},
      .src_stride = {40, 4},
      .dst_stride = {24, 4},
      .src_offset = 8,
      .dst_offset = 100,
      .total = 30,
      .src_end = 8 + 160 + 24};
  struct insitu__box b;
  open_box(&b, &g, true);
  unsigned char base[1024];
  assert_ptr_equal(insitu__box_direct(&b, base, 48, 72), base + 124); /* exactly one row */
  assert_null(insitu__box_direct(&b, base, 44, 72));
  assert_null(insitu__box_direct(&b, base, 48, 73));
  assert_false(b.contiguous);
}

/* ---- values */

/* n elements to one type, by every kernel. */
static void check_values_to(const void *src, uint64_t n, int32_t from, int32_t to, bool swap) {
  int64_t item = item_of(from), out = item_of(to);
  unsigned char *want = bytes(n * (uint64_t)out), *dst = bytes(n * 2 * (uint64_t)out);
  for (uint64_t i = 0; i < n; i++)
    ref_element(
        (const unsigned char *)src + i * (uint64_t)item, from, swap, want + i * (uint64_t)out, to);
  for (unsigned mode = 0; mode < 4; mode++) {
    bool wide = mode & 1, gap = mode & 2;
    struct geometry g = {.ndim = 1,
        .count = {n},
        .src_stride = {item},
        .dst_stride = {gap ? 2 * out : out},
        .from = from,
        .to = to,
        .swap = swap,
        .total = n,
        .src_end = n * (uint64_t)item};
    struct insitu__box b;
    open_box(&b, &g, wide);
    insitu__box_copy(&b, src, dst);
    for (uint64_t i = 0; i < n; i++) {
      if (memcmp(want + i * (uint64_t)out, dst + i * (uint64_t)g.dst_stride[0], (size_t)out))
        fail_msg("0x%x to 0x%x, swap %d, mode %u: element %" PRIu64 " is wrong", from, to, swap,
            mode, i);
    }
  }
  free(want), free(dst);
}
static void check_values(const void *src, uint64_t n, int32_t from) {
  for (unsigned k = 0; k < DTYPES * 2; k++) {
    int32_t to = dtypes[k / 2];
    if (from != to && convertible(from, to)) check_values_to(src, n, from, to, k % 2);
  }
}
/* every value of the types of 8 and 16 bits */
static void test_small(void **state) {
  (void)state;
  uint16_t *h = malloc(65536 * sizeof *h);
  unsigned char byte[256];
  assert_non_null(h);
  for (unsigned i = 0; i < 65536; i++) h[i] = (uint16_t)i;
  for (unsigned i = 0; i < 256; i++) byte[i] = (unsigned char)i;
  for (unsigned k = 0; k < DTYPES; k++) {
    if (item_of(dtypes[k]) == 1) check_values(byte, 256, dtypes[k]);
    if (item_of(dtypes[k]) == 2) check_values(h, 65536, dtypes[k]);
  }
  free(h);
}
/* float32 to floats of 16 bits: every sign, exponent and 11 bits of mantissa, as many as float16
 * has and one more, before nothing, a little and almost one more of the last */
static void test_narrow_float32(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  static const uint32_t low[] = {0, 1, 0xfff};
  uint32_t *v = malloc(N * sizeof *v);
  assert_non_null(v);
  for (unsigned k = 0; k < 3; k++) {
    for (uint32_t i = 0; i < N; i++) v[i] = i << 12 | low[k];
    check_values_to(v, N, INSITU_F32, INSITU_F16, false);
    check_values_to(v, N, INSITU_F32, INSITU_BF16, false);
  }
  free(v);
}
/* float64 of every exponent, with every last bit of the mantissa, and its neighbours */
static void test_narrow_float64(void **state) {
  (void)state;
  enum { EACH = 52, N = 2048 * EACH * 3 };
  uint64_t *v = malloc(N * sizeof *v), *at = v;
  assert_non_null(v);
  for (uint64_t exponent = 0; exponent < 2048; exponent++)
    for (unsigned last = 0; last < EACH; last++) {
      uint64_t mantissa = (rnd(0) & ((UINT64_C(1) << 52) - 1)) >> last << last | UINT64_C(1)
                                                                                     << last,
               x = rnd(2) << 63 | exponent << 52 | mantissa;
      if (rnd(4) == 0) x |= (UINT64_C(1) << 52) - (UINT64_C(1) << last); /* ones up to there */
      if (rnd(4) == 0) x = (x >> 52 << 52) | UINT64_C(1) << last;
      *at++ = x - 1;
      *at++ = x;
      *at++ = x + 1;
    }
  check_values(v, N, INSITU_F64);
  free(v);
}
/* near powers of two and near halves of a float's unit, and at random */
static void test_rounding(void **state) {
  (void)state;
  /* Valgrind 3.19 rounds a conversion of 64-bit integers to float twice */
  if (getenv("TEST_VALGRIND")) skip();
  enum { N = 16000 };
  uint64_t *v = malloc(N * sizeof *v);
  uint32_t *w = malloc(N * sizeof *w);
  assert_true(v && w);
  for (unsigned i = 0; i < N; i++) {
    unsigned top = (unsigned)rnd(64),
             kept[] = {8, 11, 24, 53}, /* bits of bfloat16, float16, float32, float64 */
        half = kept[rnd(4)];
    half = top > half ? top - half : 0;
    uint64_t x =
        UINT64_C(1) << top |
        (rnd(2) ? (rnd(0) & ((UINT64_C(1) << top) - 1)) >> half << half : UINT64_C(1) << half);
    v[i] = rnd(8) == 0 ? rnd(0) : x + rnd(3) - 1;
    if (rnd(2)) v[i] = 0 - v[i];
    w[i] = (uint32_t)(v[i] >> (rnd(2) ? 32 : 0));
  }
  check_values(v, N, INSITU_I64);
  check_values(v, N, INSITU_U64);
  check_values(w, N, INSITU_I32);
  check_values(w, N, INSITU_U32);
  /* float64 in and about the range of float32, with ties; infinities, NaN, subnormals */
  for (unsigned i = 0; i < N; i++) {
    uint64_t exponent = rnd(4)   ? 1023 - 152 + rnd(284)
                        : rnd(3) ? 2047
                                 : rnd(2048),
             mantissa = rnd(0) >> 12;
    unsigned drop = 28 + (unsigned)rnd(25);
    if (rnd(2)) mantissa = (mantissa >> drop << drop) + rnd(3) - 1;
    if (rnd(8) == 0) mantissa = 0;
    v[i] = rnd(2) << 63 | exponent << 52 | (mantissa & ((UINT64_C(1) << 52) - 1));
    w[i] = (uint32_t)rnd(0);
    if (rnd(4) == 0) w[i] = (w[i] & 0x807fffff) | (rnd(2) ? 0 : 0x7f800000);
    if (rnd(16) == 0) w[i] &= 0xff800000;
  }
  check_values(v, N, INSITU_F64);
  check_values(w, N, INSITU_F32);
  free(v), free(w);
}
/* a few results written out, so that the reference is checked as well */
static void test_literals(void **state) {
  (void)state;
  /* Valgrind 3.19 rounds a conversion of 64-bit integers to float twice */
  if (getenv("TEST_VALGRIND")) skip();
  const int64_t whole[] = {/* the fourth: 2^53 + 2^29 + 1 */
      16777217, 16777219, -16777217, 9007199791611905, INT64_MIN, INT64_MAX};
  const float want[] = {16777216.0f, 16777220.0f, -16777216.0f, 9007200328482816.0f,
      -9223372036854775808.0f, 9223372036854775808.0f};
  float got[6];
  struct insitu__box b;
  const int64_t eight = 8, four = 4;
  const uint64_t six = 6;
  assert_int_equal(
      insitu__box_init(&b, 1, &six, &eight, &four, 0, 0, INSITU_I64, false, INSITU_F32, NULL),
      INSITU_OK);
  insitu__box_copy(&b, whole, got);
  for (unsigned i = 0; i < 6; i++) assert_true(got[i] == want[i]);
  const double real[] = {
      1.0 + 0x1p-24, 1.0 + 0x1.000002p-24, 0x1.fffffefp127, 0x1.ffffffp127, 0x1p-150, 0x1.8p-150};
  const float near[] = {1.0f, 1.0f + 0x1p-23f, 0x1.fffffep127f, __builtin_inff(), 0.0f, 0x1p-149f};
  assert_int_equal(
      insitu__box_init(&b, 1, &six, &eight, &four, 0, 0, INSITU_F64, false, INSITU_F32, NULL),
      INSITU_OK);
  insitu__box_copy(&b, real, got);
  for (unsigned i = 0; i < 6; i++) assert_true(got[i] == near[i]);
  const double sixteen[] = {0x1p0 + 0x1p-11, 0x1p0 + 0x1p-11 + 0x1p-40, 65519.99, 65520,
      -0x1p-25 - 0x1p-70, 0x1p-25, 0x1.00cp-15, 1e300};
  const uint16_t halves[] = {0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x8001, 0, 0x0202, 0x7c00};
  const int64_t whole64[] = {(INT64_C(1) << 62) + (INT64_C(1) << 54),
      (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1, -(INT64_C(1) << 62) - (INT64_C(1) << 54) - 1,
      INT64_MIN, INT64_MAX, (INT64_C(1) << 53) + (INT64_C(1) << 45) + 1, -1, 257};
  const uint16_t brains[] = {0x5e80, 0x5e81, 0xde81, 0xdf00, 0x5f00, 0x5a01, 0xbf80, 0x4380};
  const int64_t two = 2;
  const uint64_t count = 8;
  uint16_t got16[8];
  assert_int_equal(
      insitu__box_init(&b, 1, &count, &eight, &two, 0, 0, INSITU_F64, false, INSITU_F16, NULL), 0);
  insitu__box_copy(&b, sixteen, got16);
  for (unsigned i = 0; i < 8; i++) assert_int_equal(got16[i], halves[i]);
  assert_int_equal(
      insitu__box_init(&b, 1, &count, &eight, &two, 0, 0, INSITU_I64, false, INSITU_BF16, NULL), 0);
  insitu__box_copy(&b, whole64, got16);
  for (unsigned i = 0; i < 8; i++) assert_int_equal(got16[i], brains[i]);
  const unsigned char big[] = {0xc1, 0x20, 0, 0, 0x3f, 0x80, 0, 0}; /* -10 + 1i, big-endian */
  const uint64_t one = 1;
  assert_int_equal(
      insitu__box_init(&b, 1, &one, &eight, &eight, 0, 0, INSITU_C64, true, INSITU_AS_STORED, NULL),
      INSITU_OK);
  insitu__box_copy(&b, big, got);
  assert_true(got[0] == -10.0f && got[1] == 1.0f);
}

/* ---- what is refused */

static void test_refused(void **state) {
  (void)state;
  struct insitu__box b;
  const uint64_t n[17] = {3, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t ok[17] = {16, 4}, overlap[] = {12, 4}, zero[] = {16, 0}, negative[] = {-16, 4},
                vast[] = {INT64_MAX, 4};
  for (unsigned k = 0; k < DTYPES * DTYPES; k++) {
    int32_t from = dtypes[k / DTYPES], to = dtypes[k % DTYPES];
    insitu_status status =
        insitu__box_init(&b, 0, NULL, NULL, NULL, 0, 0, from, k % 3 == 0, to, NULL);
    assert_int_equal(status, convertible(from, to) ? INSITU_OK : INSITU_E_DTYPE);
  }
  insitu_error err = {0};
  assert_int_equal(insitu__box_init(&b, 2, n, ok, ok, 0, 0, INSITU_C64, false, INSITU_F32, &err),
      INSITU_E_DTYPE);
  assert_true(strstr(err.message, "complex64") && strstr(err.message, "float32"));
  assert_int_equal(
      insitu__box_init(&b, 2, n, ok, ok, 0, 0, 0x333, false, INSITU_F32, NULL), INSITU_E_DTYPE);
  assert_int_equal(
      insitu__box_init(&b, 2, n, ok, ok, 0, 0, INSITU_AS_STORED, false, INSITU_AS_STORED, NULL),
      INSITU_E_DTYPE);
  assert_int_equal(
      insitu__box_init(&b, 17, n, ok, ok, 0, 0, INSITU_F32, false, 0, NULL), INSITU_E_SHAPE);
  assert_int_equal(
      insitu__box_init(&b, 16, n, ok, ok, 0, 0, INSITU_F32, false, 0, NULL), INSITU_OK);
  const int64_t *bad[] = {overlap, zero, negative, vast};
  for (unsigned k = 0; k < 4; k++) {
    assert_int_equal(
        insitu__box_init(&b, 2, n, bad[k], ok, 0, 0, INSITU_F32, false, 0, NULL), INSITU_E_ARG);
    if (k)
      assert_int_equal(
          insitu__box_init(&b, 2, n, ok, bad[k], 0, 0, INSITU_F32, false, 0, NULL), INSITU_E_ARG);
    assert_true(b.total == 0);
  }
  for (unsigned k = 0; k < 2; k++) {
    assert_int_equal(insitu__box_init(&b, 2, n, ok, ok, k ? 0 : UINT64_MAX - 7, k ? INT64_MAX : 0,
                         INSITU_F32, false, 0, NULL),
        INSITU_E_ARG);
    assert_true(b.total == 0);
  }
  assert_int_equal(
      insitu__box_init(&b, 2, n, ok, ok, INT64_MAX, 0, INSITU_F32, false, 0, NULL), INSITU_E_ARG);
  assert_true(b.total == 0);
  const uint64_t many[] = {UINT64_MAX, UINT64_MAX}, none[] = {UINT64_MAX, 0};
  assert_int_equal(
      insitu__box_init(&b, 2, many, ok, ok, 0, 0, INSITU_F32, false, 0, NULL), INSITU_E_ARG);
  assert_int_equal(
      insitu__box_init(&b, 2, none, zero, zero, 7, 0, INSITU_F32, false, 0, NULL), INSITU_OK);
  assert_true(b.total == 0 && b.src_begin == b.src_end && !b.contiguous);
  insitu__box_copy(&b, NULL, NULL);
  insitu__box_copy_part(&b, NULL, 0, 100, NULL);
  insitu__box_fill(&b, NULL, 1, NULL);
  assert_null(insitu__box_direct(&b, &err, 7, 7));
}

/* dimensions that are one run become one, whatever their order and number */
static void test_merged(void **state) {
  (void)state;
  struct insitu__box b;
  const uint64_t n[] = {2, 1, 3, 4};
  const int64_t c[] = {48, 48, 16, 4}, f[] = {4, 8, 8, 24}, d[] = {96, 96, 32, 8};
  assert_int_equal(insitu__box_init(&b, 4, n, c, c, 3, 5, INSITU_F32, false, 0, NULL), INSITU_OK);
  assert_true(b.contiguous && b.ndim == 1 && b.src_begin == 3 && b.src_end == 99 && b.total == 24);
  assert_int_equal(insitu__box_init(&b, 4, n, f, f, 0, 0, INSITU_F32, false, 0, NULL), INSITU_OK);
  assert_true(b.contiguous);
  assert_int_equal(insitu__box_init(&b, 4, n, f, c, 0, 0, INSITU_F32, false, 0, NULL), INSITU_OK);
  assert_true(!b.contiguous && b.ndim == 3 && b.turn == 0);
  assert_int_equal(insitu__box_init(&b, 4, n, c, c, 0, 0, INSITU_F32, true, 0, NULL), INSITU_OK);
  assert_true(!b.contiguous && b.ndim == 1 && b.dim[0].src_stride == 4);
  assert_int_equal(
      insitu__box_init(&b, 4, n, c, d, 0, 0, INSITU_F32, false, INSITU_F64, NULL), INSITU_OK);
  assert_true(!b.contiguous && b.ndim == 1 && b.dim[0].src_stride == 4);
}

/* A copy past the caches is a memcpy, whatever the places and the length, with quarters side by
 * side and without. */
static void test_past_caches(void **state) {
  (void)state;
  enum { MOST = INSITU__MEM_QUARTERS + 3000, ROOM = MOST + 256 };
  unsigned char *from = malloc(ROOM), *to = malloc(ROOM), *want = malloc(ROOM);
  assert_true(from && to && want);
  for (uint64_t i = 0; i < ROOM; i++) from[i] = (unsigned char)(insitu__order_mix(i) >> 8);
  for (uint64_t round = 0; round < 2000; round++) {
    uint64_t drawn = insitu__order_mix(round), n = drawn % 300;
    uint64_t out = (drawn >> 16) % 128, in = (drawn >> 24) % 128;
    if (round % 2) n = INSITU__MEM_QUARTERS - 300 + (drawn >> 32) % 3300;
    memset(to, 7, ROOM);
    memset(want, 7, ROOM);
    memcpy(want + out, from + in, n);
    insitu__mem_copy_past_caches(to + out, from + in, n);
    insitu__mem_past_caches_end();
    if (memcmp(to, want, ROOM)) fail_msg("%" PRIu64 " bytes to %" PRIu64, n, out);
  }
  free(from);
  free(to);
  free(want);
}

/* A list of operations, one of them by index of the box's axis. */
static struct insitu__ops *make_ops(int32_t dtype, uint64_t n, double *numbers) {
  insitu_op ops[4], by_index = {.kind = INSITU_OP_SCALE, .dim = "0", .as = numbers, .n = n};
  const insitu_op any[] = {{.kind = INSITU_OP_NORM, .a = 2, .b = 3},
      {.kind = INSITU_OP_CLIP, .a = -30, .b = 30}, {.kind = INSITU_OP_ASINH},
      {.kind = INSITU_OP_LOG1P, .a = 100}, {.kind = INSITU_OP_FILL, .a = 1},
      {.kind = INSITU_OP_REPLACE, .a = 7, .b = 0}, by_index};
  insitu_variable v = {.ops = ops, .n_ops = 1 + rnd(3)};
  struct insitu__zarr_array z = {.dtype = dtype, .axes = 1, .ndim = 1};
  struct insitu__select_axis shown[1] = {{.n = n}};
  struct insitu__ops *made;
  insitu_error err;
  for (uint64_t k = 0; k < v.n_ops; k++) ops[k] = any[rnd(sizeof any / sizeof *any)];
  for (uint64_t i = 0; i < n; i++) numbers[i] = (double)(1 + i % 5);
  if (insitu__ops_init(&made, &v, "x", NULL, &z, shown, 0, dtype, &err))
    fail_msg("%s", err.message);
  return made;
}
/* Operations write the same bytes past the caches as else, and no others: in rows long and short,
 * at any place, of elements that are converted, strided or swapped, whole and in pieces. */
static void test_ops_past_caches(void **state) {
  (void)state;
  static const int32_t from_types[] = {INSITU_F32, INSITU_F64, INSITU_I16, INSITU_F32};
  enum { MOST = 3000, ROWS = 2, SKIP = 300, ROOM = (ROWS * (MOST + 1) + SKIP) * 8 / 64 * 64 + 64 };
  unsigned char *to[2] = {aligned_alloc(64, ROOM), aligned_alloc(64, ROOM)};
  double *numbers = malloc(MOST * sizeof *numbers);
  assert_true(to[0] && to[1] && numbers);
  for (int round = 0; round < 600; round++) {
    int32_t src = from_types[rnd(4)], dst = rnd(2) && src != INSITU_F64 ? INSITU_F32 : INSITU_F64;
    uint64_t n = round % 4 ? 1000 + rnd(MOST - 1000) : 1 + rnd(MOST), count[2] = {ROWS, n};
    uint64_t skip = rnd(3) ? 0 : rnd(SKIP), step = item_of(src) * (rnd(4) ? 1 : 2);
    bool swap = rnd(4) == 0, pieces = rnd(2);
    int64_t src_stride[2] = {(int64_t)(n * step), (int64_t)step};
    int64_t dst_stride[2] = {(int64_t)(item_of(dst) * (n + rnd(2))), item_of(dst)};
    unsigned char *from = bytes(ROWS * n * step);
    struct insitu__ops *ops = make_ops(dst, n, numbers);
    bool by_index = ops->axis != INSITU__OPS_NONE;
    struct insitu__box_dim along = {n, src_stride[1], dst_stride[1], 1};
    for (int past = 0; past < 2; past++) {
      struct insitu__box b;
      ops->past_caches = past;
      memset(to[past], 7, ROOM);
      assert_int_equal(insitu__box_lay(&b, by_index ? 1 : 2, count, src_stride, dst_stride, 0,
                           skip * item_of(dst), src, swap, dst, NULL),
          INSITU_OK);
      assert_int_equal(
          insitu__box_ops(&b, ops, swap, by_index ? &along : NULL, 0, NULL), INSITU_OK);
      uint64_t end = ROWS * n * step, cut = n * step / 3 / step * step;
      if (!pieces) insitu__box_copy(&b, from, to[past]);
      if (pieces) insitu__box_copy_part(&b, from, 0, cut, to[past]);
      if (pieces) insitu__box_copy_part(&b, from + cut, cut, end, to[past]);
    }
    if (memcmp(to[0], to[1], ROOM)) fail_msg("round %d", round);
    insitu__ops_free(ops);
    free(from);
  }
  for (int i = 0; i < 2; i++) free(to[i]);
  free(numbers);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_pairs),
      cmocka_unit_test(test_transposed), cmocka_unit_test(test_decoded),
      cmocka_unit_test(test_direct), cmocka_unit_test(test_small),
      cmocka_unit_test(test_narrow_float32), cmocka_unit_test(test_narrow_float64),
      cmocka_unit_test(test_rounding), cmocka_unit_test(test_literals),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_merged),
      cmocka_unit_test(test_past_caches), cmocka_unit_test(test_ops_past_caches)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
