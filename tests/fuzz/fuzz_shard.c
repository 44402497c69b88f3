/* libFuzzer: shards. Input: an array's zarr.json, a NUL, and its first object. Every inner chunk
 * that is found by the indexes and decoded by itself holds the elements that lie there when the
 * object is decoded whole, and where one way fails the other fails too; an index's entry is what a
 * plain reading of it says. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"
#include "parse.h"

enum { MOST = 1 << 16, MOST_TILES = 4096 }; /* decoded bytes of an object, inner chunks */

static struct insitu__codec_scratch scratch;

static insitu_status decode(const struct insitu__codec_chain *chain, const uint8_t *src, uint64_t n,
    uint8_t *to, uint64_t decoded) {
  insitu_error err = {0};
  struct insitu__codec_sink sink = insitu__codec_memory(to);
  uint8_t *exact = fuzz_copy(src, n);
  insitu_status status = insitu__chain_decode(chain, &scratch, exact, n, decoded, &sink, &err);
  fuzz_status(status, &err);
  free(exact);
  return status;
}

/* The entry of an index as its eight-byte numbers say it. */
static insitu_status entry(const struct insitu__codec_shard *shard, const uint8_t *index,
    uint64_t number, uint64_t limit, uint64_t *offset, uint64_t *bytes) {
  uint64_t want[2] = {0, 0};
  insitu_error err = {0};
  for (int i = 0; i < 16; i++)
    want[i / 8] |= (uint64_t)index[16 * number + (uint64_t)i]
                   << (shard->index_big ? 56 - 8 * (i % 8) : 8 * (i % 8));
  insitu_status status = insitu__shard_entry(shard, index, number, limit, offset, bytes, &err);
  fuzz_status(status, &err);
  bool absent = want[0] == UINT64_MAX && want[1] == UINT64_MAX,
       inside = want[0] <= limit && want[1] <= limit - want[0];
  FUZZ_HOLDS(*offset == want[0] && *bytes == want[1]);
  FUZZ_HOLDS(status == (absent || inside ? INSITU_OK : INSITU_E_CORRUPT));
  return status;
}

/* The chunk whose first element is `first` (array axes, within the object), through the indexes.
 * INSITU_E_NOTFOUND: absent. */
static insitu_status tile(const struct insitu__zarr_array *a, const uint64_t *first,
    const uint8_t *src, uint64_t n, uint8_t *to, uint64_t bytes) {
  for (unsigned l = 0; l < a->n_levels; l++) {
    const struct insitu__codec_shard *shard = a->level[l].shard;
    uint64_t size = insitu__shard_index_bytes(shard), number = 0, offset, inner;
    insitu_error err = {0};
    if (n < size) return INSITU_E_CORRUPT;
    uint8_t *index = fuzz_copy(shard->index_first ? src : src + n - size, size);
    insitu_status status = insitu__shard_index(shard, index, size, &err);
    fuzz_status(status, &err);
    FUZZ_HOLDS(status == INSITU_OK || shard->index_crc);
    for (unsigned k = 0; k < a->ndim; k++)
      number = number * (shard->chunk[k] / shard->inner[k]) +
               first[a->level[l].axis[k]] % shard->chunk[k] / shard->inner[k];
    FUZZ_HOLDS(number < shard->entries);
    if (status == INSITU_OK) status = entry(shard, index, number, n, &offset, &inner);
    free(index);
    if (status) return status;
    if (inner == UINT64_MAX) return INSITU_E_NOTFOUND;
    src += offset;
    n = inner;
  }
  return decode(&a->codecs, src, n, to, bytes);
}

/* Where the element at `at` (array axes) lies in memory of such a shape and storage order. */
static uint64_t place(
    unsigned ndim, const uint64_t *extent, const unsigned *order, const uint64_t *at) {
  uint64_t flat = 0;
  for (unsigned k = 0; k < ndim; k++) flat = flat * extent[order[k]] + at[order[k]];
  return flat;
}

static void both_ways(const struct insitu__zarr_array *a, const uint8_t *src, uint64_t n) {
  uint64_t whole = a->itemsize, bytes = a->itemsize, tiles = 1, item = a->itemsize;
  for (unsigned d = 0; d < a->ndim; d++) {
    if (__builtin_mul_overflow(whole, a->object.chunk[d], &whole) || whole > MOST) return;
    bytes *= a->chunk[d];
    tiles *= a->object.chunk[d] / a->chunk[d];
  }
  if (tiles > MOST_TILES) return;
  uint8_t *object = malloc(whole), *one = malloc(bytes), fill[16] = {0};
  FUZZ_HOLDS(object && one);
  insitu_status status = decode(&a->object.codecs, src, n, object, whole);
  bool any_bad = false;
  memcpy(fill, a->fill, sizeof fill);
  if (a->swap) /* as stored: each half of a complex number by itself */
    for (uint64_t i = 0, part = a->dtype >> 8 == 5 ? item / 2 : item; i < item; i++)
      fill[i] = a->fill[i / part * part + part - 1 - i % part];
  for (uint64_t t = 0; t < tiles; t++) {
    uint64_t first[INSITU__MAX_DIMS], rest = t;
    for (unsigned d = a->ndim; d-- > 0; rest /= a->object.chunk[d] / a->chunk[d])
      first[d] = rest % (a->object.chunk[d] / a->chunk[d]) * a->chunk[d];
    insitu_status got = tile(a, first, src, n, one, bytes);
    any_bad = any_bad || (got && got != INSITU_E_NOTFOUND);
    for (uint64_t e = 0; !status && !any_bad && e < bytes / item; e++) {
      uint64_t within[INSITU__MAX_DIMS], at[INSITU__MAX_DIMS];
      rest = e;
      for (unsigned d = a->ndim; d-- > 0; rest /= a->chunk[d])
        at[d] = first[d] + (within[d] = rest % a->chunk[d]);
      const uint8_t *want = object + item * place(a->ndim, a->object.chunk, a->object.order, at);
      FUZZ_HOLDS(!memcmp(
          want, got ? fill : one + item * place(a->ndim, a->chunk, a->order, within), item));
    }
  }
  FUZZ_HOLDS((status != INSITU_OK) == any_bad);
  free(object);
  free(one);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static int ready;
  if (!ready++) insitu__codec_scratch_init(&scratch);
  const uint8_t *end = memchr(data, 0, n);
  if (!end) return 0;
  struct insitu__zarr_array a;
  insitu_error err = {0};
  insitu_status status = parse_v3(&a, "a", (const char *)data, (uint64_t)(end - data), &err);
  fuzz_status(status, &err);
  if (status == INSITU_OK && a.n_shards) both_ways(&a, end + 1, n - (size_t)(end + 1 - data));
  insitu__zarr_array_free(&a);
  return 0;
}
