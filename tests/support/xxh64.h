/* XXH64 by Yann Collet, for tests that compute the digests of receipts by themselves. */
#ifndef TESTS_XXH64_H
#define TESTS_XXH64_H
#include <stdint.h>
#include <string.h>

static const uint64_t xxh64_prime[] = {0, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};
static inline uint64_t xxh64_rotate(uint64_t v, int by) {
  return v << by | v >> (64 - by);
}
static inline uint64_t xxh64_lane(uint64_t sum, uint64_t word) {
  return xxh64_rotate(sum + word * xxh64_prime[2], 31) * xxh64_prime[1];
}
/* XXH64, read off its specification. */
static inline uint64_t xxh64(const unsigned char *p, uint64_t n, uint64_t seed) {
  uint64_t v[4] = {seed + xxh64_prime[1] + xxh64_prime[2], seed + xxh64_prime[2], seed,
      seed - xxh64_prime[1]},
           word;
  uint64_t h = seed + xxh64_prime[5], i = 0;
  for (; n - i >= 32; i += 32)
    for (int k = 0; k < 4; k++) memcpy(&word, p + i + 8 * k, 8), v[k] = xxh64_lane(v[k], word);
  if (n >= 32) {
    h = xxh64_rotate(v[0], 1) + xxh64_rotate(v[1], 7) + xxh64_rotate(v[2], 12) +
        xxh64_rotate(v[3], 18);
    for (int k = 0; k < 4; k++) h = (h ^ xxh64_lane(0, v[k])) * xxh64_prime[1] + xxh64_prime[4];
  }
  h += n;
  for (; n - i >= 8; i += 8)
    memcpy(&word, p + i, 8),
        h = xxh64_rotate(h ^ xxh64_lane(0, word), 27) * xxh64_prime[1] + xxh64_prime[4];
  if (n - i >= 4) {
    uint32_t half;
    memcpy(&half, p + i, 4), i += 4;
    h = xxh64_rotate(h ^ half * xxh64_prime[1], 23) * xxh64_prime[2] + xxh64_prime[3];
  }
  for (; i < n; i++) h = xxh64_rotate(h ^ p[i] * xxh64_prime[5], 11) * xxh64_prime[1];
  h = (h ^ h >> 33) * xxh64_prime[2];
  h = (h ^ h >> 29) * xxh64_prime[3];
  return h ^ h >> 32;
}
#endif
