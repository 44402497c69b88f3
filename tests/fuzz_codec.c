/* libFuzzer: chunks of every codec; make fuzz builds and runs it. Input: byte 0 the codec (and an optional zstd stage before it),
 * byte 1 mode and element, bytes 2-3 the decoded size, then the chunk. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

struct dest {
  uint8_t *out;
  uint64_t next, decoded, row;
  uint32_t element;
};
static void took(struct dest *d, uint64_t offset, uint64_t n) {
  if (offset != d->next || !n || n > d->decoded - offset || offset % d->element) abort();
  if (n % d->element && offset + n != d->decoded) abort();
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static struct insitu__codec_scratch scratch;
  static int ready;
  if (!ready++) insitu__codec_scratch_init(&scratch);
  if (n < 4) return 0;
  struct insitu__codec_chain chain = {1, {{data[0] % 6}}};
  if (data[0] & 0x80) chain = (struct insitu__codec_chain){2, {{INSITU__CODEC_BLOSC}, {data[0] % 6}}};
  uint64_t decoded = (uint64_t)data[2] | (uint64_t)data[3] << 8;
  struct dest d = {malloc(decoded + 1), 0, decoded, (data[1] & 0x40) ? 100 : 1u << 20, 1 + (data[1] & 15)};
  struct insitu__codec_sink sink = {&d, (data[1] & 0x80) ? direct : NULL, piece, d.element};
  d.row *= d.element;
  uint8_t *exact = malloc(n - 4 + !(n - 4));
  if (!d.out || !exact) abort();
  memcpy(exact, data + 4, n - 4);
  insitu_error err = {0};
  insitu_status status = insitu__codec_decode(&chain, &scratch, exact, n - 4, decoded, &sink, &err);
  if (status > 0 || (status == INSITU_OK && d.next != decoded) || (status < 0 && !err.message[0])) abort();
  free(exact);
  free(d.out);
  return 0;
}
