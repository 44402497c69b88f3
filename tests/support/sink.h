/* A codec's sink that checks what a decoder owes it: all of it in order, once, inside its bounds,
 * and pieces of whole elements but for the last. Needs insitubatch.h, and SINK_HOLDS(condition),
 * which ends the test where it is false. */
#ifndef TESTS_SINK_H
#define TESTS_SINK_H
/* nothing directly; only all at once; what lies within `row` bytes */
enum { PIECES, WHOLE, ROWS, DELIVERIES };
struct dest {
  uint8_t *out;
  uint64_t next, decoded, row, pieces, direct;
  uint32_t element;
  int mode;
};
static inline void took(struct dest *d, uint64_t offset, uint64_t n) {
  SINK_HOLDS(offset == d->next && n > 0 && n <= d->decoded - offset);
  SINK_HOLDS(offset % d->element == 0 && (n % d->element == 0 || offset + n == d->decoded));
  d->next += n;
}
static inline void *direct(void *user, uint64_t offset, uint64_t n) {
  struct dest *d = user;
  bool whole = offset == 0 && n == d->decoded;
  if (d->mode == WHOLE ? !whole : offset / d->row != (offset + n - 1) / d->row) return NULL;
  took(d, offset, n);
  d->direct++;
  return d->out + offset;
}
static inline insitu_status piece(
    void *user, const void *p, uint64_t offset, uint64_t n, insitu_error *err) {
  struct dest *d = user;
  (void)err;
  took(d, offset, n);
  memcpy(d->out + offset, p, n);
  d->pieces++;
  return INSITU_OK;
}
/* Decodes from exactly n bytes, so that the address sanitizer sees one byte too far. */
static inline insitu_status sink_decode(const struct insitu__codec_chain *chain,
    struct insitu__codec_scratch *scratch, const void *src, uint64_t n, struct dest *d,
    insitu_error *err) {
  struct insitu__codec_sink sink = {.user = d,
      .direct = d->mode == PIECES ? NULL : direct,
      .piece = piece,
      .element = d->element};
  uint8_t *exact = malloc(n ? n : 1);
  SINK_HOLDS(exact);
  if (n) memcpy(exact, src, n);
  insitu_status status = insitu__chain_decode(chain, scratch, exact, n, d->decoded, &sink, err);
  free(exact);
  return status;
}
#endif
