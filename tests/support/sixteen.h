/* Floats of 16 bits by the arithmetic of math.h: slow, and nothing like the library's. The dtype is
 * INSITU_F16 or INSITU_BF16. After insitubatch.h. */
#ifndef TESTS_SIXTEEN_H
#define TESTS_SIXTEEN_H
#include <math.h>
#include <stdint.h>

/* The bits of the nearest, ties to even. */
static inline uint16_t sixteen_bits(double x, int32_t dtype) {
  int digits = dtype == INSITU_F16 ? 11 : 8, least = dtype == INSITU_F16 ? -13 : -125, exponent;
  unsigned sign = signbit(x) ? 0x8000 : 0, infinity = dtype == INSITU_F16 ? 0x7c00 : 0x7f80;

  if (isnan(x)) return dtype == INSITU_F16 ? 0x7e00 : 0x7fc0;
  if (isinf(x)) return (uint16_t)(sign | infinity);
  frexp(x, &exponent);
  if (x == 0 || exponent < least) exponent = least;
  unsigned whole = (unsigned)nearbyint(ldexp(fabs(x), digits - exponent)); /* of the last digit */
  /* the first digit counts as one more of the exponent */
  whole += (unsigned)(exponent - least) << (digits - 1);
  return (uint16_t)(sign | (whole < infinity ? whole : infinity));
}

static inline double sixteen_value(uint16_t h, int32_t dtype) {
  int digits = dtype == INSITU_F16 ? 11 : 8, least = dtype == INSITU_F16 ? -13 : -125;
  int exponent = (h & 0x7fff) >> (digits - 1), last = h & ((1 << (digits - 1)) - 1);
  double x = exponent ? ldexp(last + (1 << (digits - 1)), exponent - 1 + least - digits)
                      : ldexp(last, least - digits);

  if (exponent == (1 << (16 - digits)) - 1) x = last ? (double)NAN : (double)INFINITY;
  return h >> 15 ? -x : x;
}

/* An integer that rounds to a float of 16 bits as it would have without the way through double:
 * where double does not hold it, digits that are lost leave a last one of 1. */
static inline double sixteen_whole(bool negative, uint64_t magnitude) {
  int lost = 0;
  double x;

  for (; magnitude >> 53; lost++) magnitude = magnitude >> 1 | (magnitude & 1);
  x = ldexp((double)magnitude, lost);
  return negative ? -x : x;
}
#endif
