/* blosc chunks that libblosc writes, with all of its compressors, levels, filters, element sizes
 * and ways to split. */
#include <blosc.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

static uint32_t rnd(uint32_t below) {
  return (uint32_t)support_below(below);
}
static uint8_t *bytes_of(uint64_t n) { /* exactly n, so that ASan sees one byte too far */
  uint8_t *p = malloc(n ? n : 1);
  assert_non_null(p);
  return p;
}

/* Constant, counting, smooth with noise below, noise, and copies from any distance. */
static void fill(uint8_t *p, uint64_t n, uint32_t size, int kind) {
  for (uint64_t i = 0; i < n;) {
    uint64_t element = i / size, length = 1 + rnd(rnd(2) ? 20 : 900),
             distance = 1 + rnd(rnd(2) ? 300 : 80000);
    if (kind == 4) {
      for (bool noise = !rnd(3) || distance > i; length && i < n; length--, i++)
        p[i] = noise ? (uint8_t)rnd(256) : p[i - distance];
      continue;
    }
    uint64_t value = kind == 0 ? 7 : kind == 1 ? element >> i % size % 8 * 8 : rnd(256);
    if (kind == 2 && i % size) value = element / 100 >> i % size % 64;
    p[i] = (uint8_t)value;
    i++;
  }
}

static insitu_status piece(
    void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)err;
  memcpy((uint8_t *)user + offset, bytes, n);
  return INSITU_OK;
}

static void all_that_libblosc_writes(void **state) {
  (void)state;
  static const char *const names[] = {"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"};
  static const uint32_t sizes[] = {1, 2, 4, 8, 3, 12, 16, 17, 100, 255};
  static const int splits[] = {
      BLOSC_ALWAYS_SPLIT, BLOSC_NEVER_SPLIT, BLOSC_AUTO_SPLIT, BLOSC_FORWARD_COMPAT_SPLIT};
  const struct insitu__codec_chain chain = {1, {{.kind = INSITU__CODEC_BLOSC}}};
  struct insitu__codec_scratch scratch;
  unsigned packed[6] = {0}; /* chunks that were not stored plain */
  insitu__codec_scratch_init(&scratch);
  for (unsigned round = 0; round < 1500; round++) {
    unsigned which = round % 6;
    uint32_t size = sizes[rnd(10)], n = rnd(round % 8 ? 20000 : 400000);
    size_t blocksize = rnd(3) ? 0 : 128 + rnd(20000), cap = n + BLOSC_MAX_OVERHEAD;
    uint8_t *src = bytes_of(n), *room = bytes_of(cap), *out = bytes_of(n);
    fill(src, n, size, (int)rnd(5));
    blosc_set_splitmode(splits[rnd(4)]);
    int level = (int)rnd(10), shuffle = (int)rnd(3), got;
    got = blosc_compress_ctx(level, shuffle, size, n, src, room, cap, names[which], blocksize, 1);
    assert_true(got > 0);
    uint8_t *exact = bytes_of((uint64_t)got);
    memcpy(exact, room, (size_t)got);
    /* what it writes when told to split always, it does not always read */
    for (int way = 0; way < 2 && blosc_decompress_ctx(exact, out, n, 1) == (int)n; way++) {
      struct insitu__codec_sink sink =
          way ? insitu__codec_memory(out)
              : (struct insitu__codec_sink){
                    .user = out, .direct = NULL, .piece = piece, .element = 1};
      insitu_error err = {0};
      memset(out, 0xa5, n);
      insitu_status status =
          insitu__chain_decode(&chain, &scratch, exact, (uint64_t)got, n, &sink, &err);
      if (status < 0 || memcmp(out, src, n))
        fail_msg("%s level %d shuffle %d size %u block %zu bytes %u: %s", names[which], level,
            shuffle, size, blocksize, n, err.message);
      packed[which] += !(exact[2] & 2);
    }
    free(src), free(room), free(out), free(exact);
  }
  for (unsigned which = 0; which < 6; which++) assert_true(packed[which] > 100);
  insitu__codec_scratch_free(&scratch);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_that_libblosc_writes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
