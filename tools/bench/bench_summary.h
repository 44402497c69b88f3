/* Medians and their intervals, for whoever measures: tools/bench/bench.c, tests/device/gpu.c. */
#ifndef TOOLS_BENCH_SUMMARY_H
#define TOOLS_BENCH_SUMMARY_H
#include <math.h>

struct summary {
  double mid, low, high, least; /* median, its 95 % interval, smallest value */
};

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
/* Number of values to leave out at each end so that the rest covers the median with 95 %: binomial
 * order statistics. */
static uint64_t interval_cut(uint64_t n) {
  /* underflows at n > 1000, which cuts nothing: still an interval */
  double term = pow(0.5, (double)n), sum = 0;
  uint64_t k = 0;
  for (; k < n / 2 && sum + term <= 0.025; k++) {
    sum += term;
    term *= (double)(n - k) / (double)(k + 1);
  }
  return k ? k - 1 : 0;
}
static struct summary summarise(double *v, uint64_t n) { /* sorts */
  qsort(v, n, sizeof *v, by_value);
  uint64_t cut = interval_cut(n);
  return (struct summary){
      n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]), v[cut], v[n - 1 - cut], v[0]};
}
#endif
