/* libFuzzer: what servers answer. Input: header lines, each ended by a newline; the first two bytes
 * are the status and what was asked for. What is taken from them is within its bounds, a range is
 * one that was asked for, and bytes go where they belong. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const uint64_t first[] = {0, 1, 10, INSITU__HTTP_SKIP, INSITU__RING_TAIL, UINT64_MAX / 2},
                        bytes[] = {0, 1, 5, 4096};
  char to[4096];
  if (n < 2) return 0;
  struct iovec iov = {to, 0};
  struct insitu__http_request r = {
      .first = first[data[1] % 6], .bytes = bytes[data[1] / 6 % 4], .iov = &iov, .n_iov = 1};
  struct insitu__http_answer *a = &r.answer;
  insitu__http_answer_init(a);
  a->status = data[0] & 1 ? 206 : data[0] & 2 ? 404 : 200;
  char *text = fuzz_text(data + 2, n - 2), *rest = text, *line;
  while ((line = strsep(&rest, "\n"))) FUZZ_HOLDS(insitu__http_read_header(a, line));
  FUZZ_HOLDS(memchr(a->etag, 0, sizeof a->etag) && memchr(a->id, 0, sizeof a->id));
  FUZZ_HOLDS(memchr(a->code, 0, sizeof a->code) && memchr(a->region, 0, sizeof a->region));
  FUZZ_HOLDS(a->retry_after >= -1);
  insitu__http_answer_complete(a);
  FUZZ_HOLDS(a->version.etag || !a->etag[0]);
  FUZZ_HOLDS(insitu__http_compare(&a->version, &a->version, false) <= INSITU__HTTP_ALIKE);
  if (a->has_range && a->first <= a->last) FUZZ_HOLDS(a->last < a->total);
  iov.iov_len = (size_t)r.bytes;
  if (insitu__http_check_head(&r) == INSITU__HTTP_FINE && a->status != 404) {
    FUZZ_HOLDS(a->status != 206 || (a->last - a->first < r.bytes &&
                                       (r.first == INSITU__RING_TAIL || a->first == r.first)));
    FUZZ_HOLDS(r.skip <= INSITU__HTTP_SKIP);
    insitu__http_copy_body(&r, (const char *)data, n);
    FUZZ_HOLDS(r.placed <= bytes[data[1] / 6 % 4]);
  }
  insitu__http_answer_init(a);
  free(text);
  return 0;
}
