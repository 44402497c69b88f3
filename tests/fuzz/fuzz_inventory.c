/* The inventory of a GRIB file (FILE.idx): whatever it holds, it is read or refused with a cause.
 * Lines point into the text, and their offsets never go back. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"
#include "tools/insitu/inventory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *text = fuzz_copy(data, n);
  struct inventory_line *line = NULL;
  insitu_error err = {0};
  insitu_status status = inventory_parse(text, n, &line, &err);
  fuzz_status(status, &err);
  uint64_t before = 0, lines = status < 0 ? 0 : INSITU__ARRAY_LEN(line);
  for (uint64_t i = 0; i < lines; i++) {
    const struct inventory_line *l = &line[i];
    FUZZ_HOLDS(l->text >= text && l->n && l->n <= n - (uint64_t)(l->text - text));
    FUZZ_HOLDS(!memchr(l->text, '\n', l->n) && memchr(l->text, ':', l->n));
    FUZZ_HOLDS(l->offset >= before && l->offset <= INT64_MAX);
    before = l->offset;
  }
  INSITU__ARRAY_FREE(line);
  free(text);
  return 0;
}
