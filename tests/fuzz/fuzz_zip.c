/* libFuzzer: zip files. Input: a byte that chooses the root, how much stands before the bytes, and
 * the size of pieces; then the end of a file. An index that is made of it is sorted, of keys, and
 * keeps each member apart from the others; what a local header lets be read lies inside; and
 * inflating a member piece by piece gives what zlib makes of it at once, or fails where that does.
 */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

enum { MOST = 1 << 16 }; /* inflated bytes of a member */

/* What zlib makes of a bare deflate stream: its bytes, or -1 when it is none, or not just of that
 * size and checksum. */
static int64_t at_once(const uint8_t *src, uint64_t n, uint64_t size, uint32_t crc, uint8_t *to) {
  z_stream z = {0};
  z.next_in = (Bytef *)(uintptr_t)src;
  z.avail_in = (uInt)n;
  z.next_out = to;
  z.avail_out = (uInt)size + 1;
  FUZZ_HOLDS(inflateInit2(&z, -15) == Z_OK);
  int rc = inflate(&z, Z_FINISH);
  uint64_t got = z.total_out;
  inflateEnd(&z);
  return rc == Z_STREAM_END && got == size && crc32(0, to, (uInt)size) == crc ? (int64_t)size : -1;
}
static void inflate_member(const struct insitu__zip_member *m, const uint8_t *src, uint64_t piece) {
  static uint64_t room[(sizeof(struct insitu__zip_inflater) + INSITU__ZIP_PIECE) / 8 + 1];
  struct insitu__zip_inflater *f = (struct insitu__zip_inflater *)(void *)room;
  uint8_t *want = malloc(MOST + 1), *got = malloc(MOST);
  uint64_t skip = m->crc % (m->object.n + 1), at = 0;
  struct iovec iov[2] = {
      {got, (size_t)(m->object.n - skip) / 2}, {got + (m->object.n - skip) / 2, 0}};
  FUZZ_HOLDS(want && got);
  iov[1].iov_len = (size_t)(m->object.n - skip) - iov[0].iov_len;
  memset(f, 0, sizeof *f);
  FUZZ_HOLDS(inflateInit2(&f->z, -15) == Z_OK);
  f->skip = skip;
  f->wanted = m->object.n - skip;
  f->size = m->object.n;
  f->want_crc = m->crc;
  f->iov = iov;
  while (!f->done && !f->error.status && at < m->stored) {
    uint64_t n = insitu__base_min(piece, m->stored - at);
    memcpy(f->piece, src + at, (size_t)n);
    f->z.next_in = f->piece;
    f->z.avail_in = (uInt)n;
    insitu__zip_inflate_job(f, 0);
    at += n;
  }
  inflateEnd(&f->z);
  FUZZ_HOLDS(f->total <= f->size);
  bool fine = f->done && !f->error.status;
  FUZZ_HOLDS(fine == (at_once(src, m->stored, m->object.n, m->crc, want) >= 0));
  FUZZ_HOLDS(!fine || !memcmp(got, want + skip, (size_t)(m->object.n - skip)));
  free(want);
  free(got);
}

static void members(const struct insitu__zip_index *x, const struct insitu__zip_end *end,
    const uint8_t *bytes, uint64_t n, uint64_t before, uint64_t piece) {
  for (uint64_t i = 0; i < x->n_objects; i++) {
    struct insitu__zip_member *m = insitu__zip_member_of(x, x->object[i]);
    insitu_error err = {0};
    FUZZ_HOLDS(m >= x->member && m < x->member + x->n_members);
    FUZZ_HOLDS(insitu__store_key_valid(m->object.key) && m->limit <= end->at);
    FUZZ_HOLDS(!i || insitu__store_order(x->object[i - 1]->key, m->object.key) < 0);
    insitu_status status = insitu__zip_check(m, &err);
    fuzz_status(status, &err);
    bool there =
        m->header >= before && m->header <= m->limit && m->limit - m->header >= INSITU__ZIP_LOCAL;
    if (status || !there) continue;
    uint8_t *header = fuzz_copy(bytes + (m->header - before), INSITU__ZIP_LOCAL);
    status = insitu__zip_parse_local(header, m, &err);
    fuzz_status(status, &err);
    free(header);
    if (status) continue;
    uint64_t start = m->start;
    FUZZ_HOLDS(start >= m->header + INSITU__ZIP_LOCAL && m->stored <= n &&
               start - before <= n - m->stored);
    if (m->method == INSITU__ZIP_DEFLATED && m->object.n && m->object.n <= MOST)
      inflate_member(m, bytes + (start - before), piece);
  }
  for (uint64_t i = 1; i < x->n_members; i++) /* of two members at most one owns a byte */
    for (uint64_t k = 0; k < i && i < 50; k++) {
      const struct insitu__zip_member *a = &x->member[k], *b = &x->member[i];
      FUZZ_HOLDS(a->limit <= b->header || b->limit <= a->header || a->header >= a->limit ||
                 b->header >= b->limit);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const uint64_t more[] = {0, 1, UINT64_C(1) << 40, 77};
  struct insitu__zip_end end;
  struct insitu__zip_index index;
  insitu_error err = {0};
  if (!n) return 0;
  uint64_t before = more[data[0] & 3];
  uint8_t *bytes = fuzz_copy(data + 1, --n);
  insitu_status status = insitu__zip_find_end(bytes, n, n + before, &end, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS(
      status || (end.at <= n + before && end.bytes <= n + before - end.at && end.before <= end.at));
  if (!status && end.at >= before) {
    uint8_t *directory = fuzz_copy(bytes + (end.at - before), end.bytes);
    status =
        insitu__zip_build_index(directory, end.bytes, &end, data[0] & 4 ? "a" : "", &index, &err);
    fuzz_status(status, &err);
    free(directory);
    if (!status) members(&index, &end, bytes, n, before, 1 + (data[0] >> 3) * UINT64_C(40));
    insitu__zip_index_free(&index);
  }
  free(bytes);
  return 0;
}
