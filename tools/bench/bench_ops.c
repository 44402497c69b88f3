/* What operations cost in the copy kernel, beside plain copying of the same rows, which come from
 * memory: float32 rows of 1 MiB, out of a source that no cache holds, to a ring of 64 rows, which
 * operations write past the caches, as into batches of that size. "past" is plain copying past the
 * caches.
 *
 *     cc -O2 -std=gnu11 -D_GNU_SOURCE -I. -o build/bench_ops tools/bench/bench_ops.c -luring -lcurl
 *       -llz4 -lzstd -lpthread -lm && build/bench_ops [ROUNDS [MIB]]
 *
 * A round copies the source in each way, one after the other; printed are the median over rounds of
 * plain time / time, and its 95 % interval. */
#define INSITU_IMPLEMENTATION
#define INSITU_STATIC
#include "insitubatch.h"
#include <math.h>

#define ROW (1u << 18) /* elements of a row */
#define RING 64        /* rows */
#define MOST 201       /* rounds */

static int compare(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

int main(int argc, char **argv) {
  static const insitu_op one[] = {{.kind = INSITU_OP_NORM, .a = 2, .b = 3},
      {.kind = INSITU_OP_SCALE, .a = 2}, {.kind = INSITU_OP_SHIFT, .a = 2},
      {.kind = INSITU_OP_CLIP, .a = -1, .b = 1}, {.kind = INSITU_OP_LOG1P},
      {.kind = INSITU_OP_ASINH}, {.kind = INSITU_OP_FILL, .a = 1},
      {.kind = INSITU_OP_REPLACE, .a = -9999, .b = 0}};
  enum { OPS = sizeof one / sizeof *one };
  enum { PAST = OPS + 1, WAYS }; /* plain copying: 0, and past the caches */
  static double ratio[WAYS][MOST];
  uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 31;
  uint64_t rows = argc > 2 ? strtoull(argv[2], NULL, 10) : 512;
  float *source = insitu__mem_map(rows * ROW * 4), *ring = insitu__mem_map(RING * ROW * 4);
  struct insitu__zarr_array z = {.dtype = INSITU_F32, .itemsize = 4};
  struct insitu__box box[OPS + 1];
  insitu_error err = {0};
  if (!source || !ring || rounds > MOST || !rounds) return 1;
  for (uint64_t i = 0; i < rows * ROW; i++)
    source[i] = (float)(insitu__order_mix(i) >> 40) * 0x1p-22f - 0.5f;

  const uint64_t count = ROW;
  const int64_t stride = 4;
  for (int k = 0; k <= OPS; k++) {
    struct insitu__ops *ops = NULL;
    insitu_variable v = {.ops = &one[k - (k > 0)], .n_ops = k > 0};
    insitu_status status = insitu__ops_init(&ops, &v, "x", NULL, &z, NULL, 0, INSITU_F32, &err);
    if (!status && ops)
      status = insitu__box_lay(
          &box[k], 1, &count, &stride, &stride, 0, 0, INSITU_F32, false, INSITU_F32, &err);
    else if (!status)
      status = insitu__box_init(
          &box[k], 1, &count, &stride, &stride, 0, 0, INSITU_F32, false, INSITU_F32, &err);
    if (ops) ops->past_caches = true;
    if (!status && ops) status = insitu__box_ops(&box[k], ops, false, NULL, 0, &err);
    if (status) return fprintf(stderr, "%s\n", err.message), 1;
  }

  for (uint64_t r = 0; r < rounds; r++) {
    double spent[WAYS];
    for (int k = 0; k < WAYS; k++) {
      int way = r & 1 ? WAYS - 1 - k : k; /* to and fro */
      uint64_t begin = (uint64_t)insitu__base_now();
      for (uint64_t i = 0; i < rows; i++) {
        const float *from = source + i * ROW;
        float *to = ring + i % RING * ROW;
        if (way == PAST) insitu__mem_copy_past_caches(to, from, 4 * ROW);
        else insitu__box_copy(&box[way], from, to);
      }
      spent[way] = (double)((uint64_t)insitu__base_now() - begin);
    }
    for (int k = 0; k < WAYS; k++) ratio[k][r] = k ? spent[0] / spent[k] : spent[0];
  }

  for (int k = 0; k < WAYS; k++) qsort(ratio[k], rounds, sizeof **ratio, compare);
  printf("plain copy: %.2f GB/s read, %" PRIu64 " rounds of %" PRIu64 " MiB\n",
      (double)(rows * ROW * 4) / ratio[0][rounds / 2], rounds, rows);
  uint64_t half = (uint64_t)(0.98 * sqrt((double)rounds)); /* of the interval, in ranks */
  for (int k = 1; k < WAYS; k++) {
    uint64_t mid = rounds / 2, low = mid > half ? mid - half : 0;
    uint64_t high = insitu__base_min(mid + half, rounds - 1);
    const char *word = k == PAST ? "past" : insitu__ops_kinds[one[k - 1].kind].word;
    printf("%-8s %.3f [%.3f, %.3f] of plain copying\n", word, ratio[k][mid], ratio[k][low],
        ratio[k][high]);
  }
  return 0;
}
