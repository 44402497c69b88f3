/* A file of statistics, and a part of a scan: whatever they hold, numbers that are found are finite
 * and deviations are above 0; a part is read, or refused with a cause. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static void file(const char *text, size_t n) {
  static const insitu_op ops[] = {{.kind = INSITU_OP_SHIFT, .a = 1}, {.kind = INSITU_OP_NORM}};
  static char path[] = "t", time[] = "time", level[] = "level";
  struct insitu__select_run whole = {0, 1, 9}, *levels = NULL, *times = NULL;
  struct insitu__zarr_array z = {.path = path,
      .ndim = 2,
      .axes = 2,
      .shape = {9, 3},
      .dim = {time, level},
      .dtype = INSITU_F32};
  FUZZ_HOLDS(INSITU__ARRAY_PUSH(times, whole));
  whole.n = 3;
  FUZZ_HOLDS(INSITU__ARRAY_PUSH(levels, whole));
  struct insitu__select_axis shown[INSITU__MAX_DIMS] = {
      {.run = times, .n = 9, .length = 9}, {.run = levels, .n = 3, .length = 3}};
  struct insitu__stats s = {0};
  insitu_error err = {0};
  int64_t start, stop;
  insitu_status status = insitu__stats_init(&s, "s.json", text, n, &err);
  fuzz_status(status, &err);
  for (uint64_t k = 1; !status && k < 3; k++) {
    insitu_variable v = {.label = "t", .ops = ops + 2 - k, .n_ops = k};
    insitu_op norm = {.kind = INSITU_OP_NORM};
    unsigned axis = 0;
    memset(&err, 0, sizeof err);
    insitu_status found = insitu__stats_find(&s, &v, "t", &z, shown, &norm, &axis, &err);
    fuzz_status(found, &err);
    FUZZ_HOLDS(found || norm.n || (norm.b > 0 && norm.a - norm.a == 0));
    for (uint64_t i = 0; !found && i < norm.n; i++)
      FUZZ_HOLDS(norm.bs[i] > 0 && norm.as[i] - norm.as[i] == 0);
    insitu__mem_free((void *)(uintptr_t)norm.as);
    insitu__mem_free((void *)(uintptr_t)norm.bs);
  }
  for (int at = 0; !status && insitu__stats_range(&s, &at, &start, &stop) > 0;)
    FUZZ_HOLDS(start >= 0 && start <= stop);
  insitu__stats_free(&s);
  INSITU__ARRAY_FREE(times);
  INSITU__ARRAY_FREE(levels);
}

/* The checksum is made to fit, so that what is behind it is reached. */
static void part(char *text, size_t n) {
  struct insitu__scan_state s = {0};
  insitu_error err = {0};
  if (n >= 16) {
    insitu__base_store64(text, INSITU__SCAN_MAGIC);
    insitu__base_store64(text + n - 8, insitu__comp_crc32c(text, n - 8));
  }
  insitu_status status = insitu__scan_parse(&s, &insitu__scan_parts, "x", text, n, &err);
  fuzz_status(status, &err);
  insitu__scan_state_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *text = fuzz_copy(data, n);
  file(text, n);
  part(text, n);
  free(text);
  return 0;
}
