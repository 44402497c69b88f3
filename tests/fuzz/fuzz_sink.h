/* Both ways of delivering what a chunk decodes to, which must agree, and parts of it. Needs
 * insitubatch.h and fuzz.h. */
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

/* Decodes a part of a chunk, as `draw` says, which is the slice of what it decodes to whole (out),
 * where that is not NULL. */
static inline void fuzz_part(const struct insitu__codec_chain *chain, const uint8_t *src, size_t n,
    uint64_t decoded, uint32_t element, uint64_t draw, const uint8_t *out) {
  static struct insitu__codec_scratch scratch;
  static bool ready;
  uint64_t elements = decoded / element;
  if (!ready) insitu__codec_scratch_init(&scratch);
  ready = true;
  if (!elements) return;
  uint64_t first = (draw >> 8) % elements, last = first + 1 + (draw >> 24) % (elements - first);
  insitu_error err = {0};
  struct dest d = {.out = malloc(decoded),
      .decoded = decoded,
      .element = element,
      .mode = (int)(draw % DELIVERIES),
      .row = element * (1 + (draw >> 40) % elements),
      .begin = first * element,
      .end = last * element};
  if (draw & 128) {
    d.period = d.row;
    d.from = element * ((draw >> 32) % (d.row / element));
    d.upto = d.from + element;
  }
  FUZZ_HOLDS(d.out);
  for (uint64_t i = 0; out && i < decoded; i++) d.out[i] = (uint8_t)~out[i];
  insitu_status status = sink_decode(chain, &scratch, src, n, &d, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS(!out || !status);
  FUZZ_HOLDS(!out || sink_differs(&d, out) == decoded);

  /* the same out of parts of the stored chunk: the same bytes, or a refusal */
  int kind = chain->codec[0].kind;
  bool parts = kind == INSITU__CODEC_BLOSC || kind == INSITU__CODEC_ZSTD, planned;
  if (chain->n == 1 && (parts || kind == INSITU__CODEC_LZ4)) {
    uint8_t *whole = d.out;
    insitu_error none = {0};
    d.out = malloc(decoded);
    d.next = 0;
    FUZZ_HOLDS(d.out);
    uint64_t head = draw & 64 ? (draw >> 16) % (n + 1) : n < 200 ? n : 200;
    insitu_status parted =
        sink_parted(chain, &scratch, src, n, head, (draw >> 20) % 300, &d, &planned, &none);
    fuzz_status(parted, &none);
    if (planned && !parted && !status) FUZZ_HOLDS(sink_differs(&d, whole) == decoded);
    free(whole);
  }
  free(d.out);
}
#endif
