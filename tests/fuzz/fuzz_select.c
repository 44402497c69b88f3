/* libFuzzer: the text of a selection. Input: two bytes (the length of an axis, the elements of a
 * chunk), a byte of flags, then the text. What is taken shows indexes of the axis alone, in runs
 * that pass over no chunk, as many as are counted; boxes of it find every index once. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static void look(const struct insitu__select_axis *axis) {
  uint64_t n = 0, runs = INSITU__ARRAY_LEN(axis->run), places = 0;
  for (uint64_t r = 0; r < runs; r++) {
    const struct insitu__select_run *run = &axis->run[r];
    int64_t last = run->first + (int64_t)(run->n - 1) * run->stride;
    FUZZ_HOLDS(run->n > 0 && run->first >= 0 && run->first < (int64_t)axis->length);
    FUZZ_HOLDS(last >= 0 && last < (int64_t)axis->length);
    FUZZ_HOLDS(run->n == 1 ||
               (run->stride <= (int64_t)axis->chunk && -run->stride <= (int64_t)axis->chunk));
    n += run->n;
  }
  FUZZ_HOLDS(n == axis->n);
  FUZZ_HOLDS(!axis->listed || INSITU__ARRAY_LEN(axis->name) == n);

  for (uint64_t b = 0; b < insitu__select_boxes(axis, 1); b++) {
    struct insitu__select_box box;
    insitu__select_box(axis, 1, b, &box);
    for (uint64_t tile = 0; tile * axis->chunk < axis->length; tile++) {
      uint64_t first, last;
      insitu__select_inside(&box, 0, tile * axis->chunk, (tile + 1) * axis->chunk, &first, &last);
      for (uint64_t i = first; i < last; i++) {
        uint64_t index = box.lowest[0] + i * box.step[0];
        FUZZ_HOLDS(index / axis->chunk == tile);
        FUZZ_HOLDS((box.falls[0] ? box.place[0] - i : box.place[0] + i) < axis->n);
        places++;
      }
    }
  }
  FUZZ_HOLDS(places == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3) return 0;
  double at[256];
  uint64_t length = 1 + data[0];
  for (uint64_t i = 0; i < length; i++)
    at[i] = data[2] & 1 ? 360.0 - 1.40625 * (double)(i + 1) : 1.40625 * (double)i;
  struct insitu__select_values values = {
      .at = at, .n = length, .path = "x", .single = data[2] & 2, .cycle = data[2] & 4 ? 360 : 0};
  insitu__select_values_init(&values);
  char *text = (char *)malloc(size - 2);
  memcpy(text, data + 3, size - 3);
  text[size - 3] = 0;

  const char *p = text;
  struct insitu__select_item item;
  insitu_error err = {0};
  while (!insitu__select_next(&p, &item, &err)) {
    struct insitu__select_axis axis[INSITU__MAX_DIMS] = {
        {.length = length, .chunk = 1 + data[1] % length, .listed = true}};
    insitu_status status;
    do {
      struct insitu__select_term term;
      status = insitu__select_term(&item, &term, &err);
      if (!status) status = insitu__select_take(axis, &term, &values, &err);
    } while (!status && item.more);
    FUZZ_HOLDS(status == err.status);
    if (!status) look(axis);
    insitu__select_free(axis);
    insitu__error_clear(&err);
  }
  free(text);
  return 0;
}
