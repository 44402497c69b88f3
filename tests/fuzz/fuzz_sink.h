/* Both ways of delivering what a chunk decodes to, which must agree. Needs insitubatch.h and
 * fuzz.h. */
#ifndef TESTS_FUZZ_SINK_H
#define TESTS_FUZZ_SINK_H
#define SINK_HOLDS FUZZ_HOLDS
#include "sink.h"

/* Decodes in pieces, and to places within rows of 2^20 or, narrow, 100 elements. *out is yours, and
 * after success
 * holds what came. */
static inline insitu_status fuzz_deliver(const struct insitu__codec_chain *chain,
    const uint8_t *src, size_t n, uint64_t decoded, uint32_t element, bool narrow, uint8_t **out) {
  static struct insitu__codec_scratch scratch;
  static bool ready;
  insitu_status status[2];
  uint8_t *to[2];
  if (!ready) insitu__codec_scratch_init(&scratch);
  ready = true;
  for (int k = 0; k < 2; k++) {
    struct dest d = {.out = to[k] = malloc(decoded + 1),
        .decoded = decoded,
        .element = element,
        .mode = k ? ROWS : PIECES};
    insitu_error err = {0};
    d.row = (narrow ? 100 : 1u << 20) * (uint64_t)element;
    FUZZ_HOLDS(d.out);
    status[k] = sink_decode(chain, &scratch, src, n, &d, &err);
    fuzz_status(status[k], &err);
    FUZZ_HOLDS(status[k] || d.next == decoded);
  }
  FUZZ_HOLDS(status[0] == status[1] && (status[0] || !memcmp(to[0], to[1], decoded)));
  free(to[1]);
  *out = to[0];
  return status[0];
}
#endif
