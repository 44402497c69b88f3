/* What the stores under tests/data/stores hold: the formula of tests/data/README.md, and a reader
 * of INDEX.txt.
 * Independent of the library. */
#ifndef EXPECT_H
#define EXPECT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPECT_MAX_DIMS = 8, EXPECT_MAX_BYTES = 16 };

static inline uint32_t expect_hash(uint64_t n) {
  uint32_t x = (uint32_t)(n >> 4) * 2654435761u + 12345u;
  x ^= x >> 16;
  return x + 17u * (uint32_t)(n & 15);
}

/* float16 bits of an integer of at most 11 significant bits */
static inline uint16_t expect_half(int v) {
  /* 15 (bias) + 10 (the place of the leading bit) */
  uint32_t sign = v < 0 ? 0x8000u : 0, m = (uint32_t)abs(v), exponent = 25;
  if (!m) return 0;
  for (; m < 0x400; m <<= 1) exponent--;
  for (; m > 0x7ff; m >>= 1) exponent++;
  return (uint16_t)(sign | exponent << 10 | (m & 0x3ff));
}

/* The element of dtype ("b1" "i1" ... "c16") at a flat C-order index, in the host's byte order.
 * Returns its bytes; 0: unknown dtype. */
static inline size_t expect_bits(const char *dtype, uint64_t flat, void *out) {
  char kind = dtype[0];
  size_t bytes = (size_t)atoi(dtype + 1);
  uint32_t x = expect_hash(flat);
  if (kind == 'c' && (bytes == 8 || bytes == 16)) {
    const char *part = bytes == 8 ? "f4" : "f8";
    expect_bits(part, 2 * flat, out);
    expect_bits(part, 2 * flat + 1, (char *)out + bytes / 2);
  } else if (kind == 'b' && bytes == 1) {
    *(uint8_t *)out = x >> 7 & 1;
  } else if (kind == 'f' && bytes == 2) {
    uint16_t h = expect_half((int)(x & 0x7ff) - 1000);
    memcpy(out, &h, 2);
  } else if (kind == 'f' && bytes == 4) {
    float f = (float)(x & 0xffff) / 8 - 1000;
    memcpy(out, &f, 4);
  } else if (kind == 'f' && bytes == 8) {
    double d = (double)(x & 0xffff) / 8 - 1000;
    memcpy(out, &d, 8);
  } else if ((kind == 'i' || kind == 'u') &&
             (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
    uint64_t wide = (uint64_t)expect_hash(flat + 1) << 32 | x;
    memcpy(out, &wide, bytes); /* both supported machines are little-endian */
  } else {
    return 0;
  }
  return bytes;
}

typedef struct expect_entry {
  /* status and word: of a refused array, otherwise empty */
  char store[64], path[64], dtype[16], status[64], word[64];
  int ndim;
  uint64_t shape[EXPECT_MAX_DIMS], chunks[EXPECT_MAX_DIMS];
  /* absent: chunks whose number in the grid, modulo 3, is 1 are not stored and read as fill */
  bool refused, absent;
  unsigned char fill[EXPECT_MAX_BYTES];
} expect_entry;

/* "5x7x3" or "scalar"; the number of sizes */
static inline int expect_sizes(const char *text, uint64_t *out) {
  int n = 0;
  if (!strcmp(text, "scalar")) return 0;
  for (char *end; n < EXPECT_MAX_DIMS; text = end + 1) {
    out[n++] = strtoull(text, &end, 10);
    if (*end != 'x') break;
  }
  return n;
}

/* Reads the next line of INDEX.txt; false at its end, and on a malformed line, which it prints. */
static inline bool expect_next(FILE *index, expect_entry *e) {
  char line[512], shape[64], chunks[64], expect[16], a[64] = "", b[64] = "";
  memset(e, 0, sizeof *e);
  if (!fgets(line, sizeof line, index)) return false;
  int n = sscanf(line, "%63s %63s %15s %63s %63s %15s %63s %63s", e->store, e->path, e->dtype,
      shape, chunks, expect, a, b);
  e->refused = n == 8 && !strcmp(expect, "refuse");
  e->absent = n == 7 && !strcmp(expect, "absent");
  if (!e->refused && !e->absent && (n != 6 || strcmp(expect, "ok"))) {
    fprintf(stderr, "INDEX.txt: cannot parse: %s", line);
    return false;
  }
  e->ndim = expect_sizes(shape, e->shape);
  expect_sizes(chunks, e->chunks);
  if (e->refused) {
    snprintf(e->status, sizeof e->status, "%s", a);
    snprintf(e->word, sizeof e->word, "%s", b);
  }
  /* a number of up to 128 bits, most significant digit first, to little-endian bytes */
  if (e->absent) {
    size_t digits = strlen(a + 2);
    for (size_t i = 0; i < digits && i < 2 * EXPECT_MAX_BYTES; i++) {
      char digit[2] = {a[2 + digits - 1 - i], 0};
      e->fill[i / 2] |= (unsigned char)(strtoul(digit, NULL, 16) << 4 * (i % 2));
    }
  }
  return true;
}

/* The element at a multi-dimensional index, holes taken into account. Returns its bytes. */
static inline size_t expect_element(const expect_entry *e, const uint64_t *index, void *out) {
  uint64_t flat = 0, number = 0;
  for (int d = 0; d < e->ndim; d++) {
    flat = flat * e->shape[d] + index[d];
    number = number * ((e->shape[d] + e->chunks[d] - 1) / e->chunks[d]) + index[d] / e->chunks[d];
  }
  size_t bytes = expect_bits(e->dtype, flat, out);
  if (e->absent && number % 3 == 1) memcpy(out, e->fill, bytes);
  return bytes;
}

/* The whole array in C order, to be freed; NULL when memory is short, and of a refused array. */
static inline unsigned char *expect_array(const expect_entry *e, size_t *bytes) {
  unsigned char one[EXPECT_MAX_BYTES];
  uint64_t count = 1, index[EXPECT_MAX_DIMS] = {0};
  for (int d = 0; d < e->ndim; d++) count *= e->shape[d];
  size_t size = expect_bits(e->dtype, 0, one);
  unsigned char *all = size ? (unsigned char *)malloc((size_t)count * size + 1) : NULL;
  for (uint64_t n = 0; all && n < count; n++) {
    expect_element(e, index, all + n * size);
    for (int d = e->ndim - 1; d >= 0 && ++index[d] == e->shape[d]; d--) index[d] = 0;
  }
  *bytes = (size_t)count * size;
  return all;
}
#endif
