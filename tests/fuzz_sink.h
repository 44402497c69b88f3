/* A codec's sink that checks what a decoder owes it: all of it in order, once, inside its bounds, and pieces of whole elements but
 * for the last. Needs insitubatch.h and fuzz.h. */
#ifndef TESTS_FUZZ_SINK_H
#define TESTS_FUZZ_SINK_H
struct dest {
  uint8_t *out;
  uint64_t next, decoded, row;
  uint32_t element;
};
static void took(struct dest *d, uint64_t offset, uint64_t n) {
  FUZZ_HOLDS(offset == d->next && n && n <= d->decoded - offset && offset % d->element == 0);
  FUZZ_HOLDS(n % d->element == 0 || offset + n == d->decoded);
  d->next += n;
}
static void *direct(void *user, uint64_t offset, uint64_t n) {
  struct dest *d = user;
  if (offset / d->row != (offset + n - 1) / d->row) return NULL;
  took(d, offset, n);
  return d->out + offset;
}
static insitu_status piece(void *user, const void *p, uint64_t offset, uint64_t n, insitu_error *err) {
  struct dest *d = user;
  (void)err;
  took(d, offset, n);
  memcpy(d->out + offset, p, n);
  return INSITU_OK;
}
static insitu_status decode(
    const struct insitu__codec_chain *chain, const uint8_t *src, size_t n, struct dest *d, bool directly) {
  static struct insitu__codec_scratch scratch;
  static int ready;
  if (!ready++) insitu__codec_scratch_init(&scratch);
  struct insitu__codec_sink sink = {d, directly ? direct : NULL, piece, d->element};
  insitu_error err = {0};
  insitu_status status = insitu__codec_decode(chain, &scratch, src, n, d->decoded, &sink, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS(status || d->next == d->decoded);
  return status;
}
#endif
