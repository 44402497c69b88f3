/* libFuzzer: chunk keys. Input: byte 0 the style, the separator and how many axes; 1 the room; 2
 * how much of the path the rest begins with; then 8 bytes of each axis's index. The key equals
 * printf's, comes with its length, never passes its room, is a valid key of a store, and reads back
 * as the index. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct insitu__zarr_array a = {.axes = n ? data[0] % (INSITU__MAX_DIMS + 1) : 0};
  uint64_t index[INSITU__MAX_DIMS] = {0};
  if (n < 3) return 0;
  a.key_c = data[0] & 0x40;
  a.separator = data[0] & 0x80 ? '/' : '.';
  size_t cap = data[1], path = data[2] < n - 3 ? data[2] : n - 3;
  a.path = fuzz_text(data + 3, path);
  data += 3 + path;
  n -= 3 + path;
  for (unsigned d = 0; d < a.axes && n >= 8; d++, data += 8, n -= 8)
    index[d] = insitu__base_load64(data);

  char want[1024];
  bool lead = a.key_c;
  int at = snprintf(want, sizeof want, "%s%s%s", a.path, a.path[0] ? "/" : "",
          lead     ? "c"
          : a.axes ? ""
                   : "0"),
      prefix = at;
  for (unsigned d = 0; d < a.axes; d++) {
    if (lead || d) want[at++] = a.separator;
    at += snprintf(want + at, sizeof want - (size_t)at, "%" PRIu64, index[d]);
  }
  want[at] = 0;
  char *key = malloc(cap + 1);
  FUZZ_HOLDS(key);
  key[cap] = '!';
  int64_t got = insitu__zarr_chunk_key(&a, index, key, cap);
  FUZZ_HOLDS(key[cap] == '!');
  FUZZ_HOLDS((int)cap > at ? got == at && !strcmp(key, want) : got == INSITU_E_ARG);
  if (got >= 0) {
    char *p = key + prefix;
    for (unsigned d = 0; d < a.axes; d++) {
      if (lead || d) FUZZ_HOLDS(*p++ == a.separator);
      FUZZ_HOLDS(*p >= '0' && *p <= '9' && strtoull(p, &p, 10) == index[d]);
    }
    FUZZ_HOLDS(insitu__store_key_valid(key) == (!a.path[0] || insitu__store_key_valid(a.path)));
  }
  free(key);
  free(a.path);
  return 0;
}
