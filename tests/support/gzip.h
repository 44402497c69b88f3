/* Packs some bytes as one gzip member, by zlib. */
#ifndef TESTS_GZIP_H
#define TESTS_GZIP_H
#include <zlib.h>
#include "support.h"

/* Writes the member to `to`, which has room for cap bytes. Returns its length. */
static inline size_t gzip_pack(const void *plain, size_t n, void *to, size_t cap) {
  z_stream z = {.next_in = (Bytef *)(uintptr_t)plain, .avail_in = (uInt)n};
  z.next_out = to;
  z.avail_out = (uInt)cap;
  assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  size_t packed = z.total_out;
  deflateEnd(&z);
  return packed;
}
#endif
