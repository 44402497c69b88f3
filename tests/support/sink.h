/* A codec's sink that checks what a decoder owes it: all of it in order, once, inside its bounds,
 * and pieces of whole elements but for the last. Of a part of a chunk it may be more than what is
 * wanted; whether it is all of that, the test must see in `out`. Needs insitubatch.h, and
 * SINK_HOLDS(condition), which ends the test where it is false. */
#ifndef TESTS_SINK_H
#define TESTS_SINK_H
/* nothing directly; only all at once; what lies within `row` bytes */
enum { PIECES, WHOLE, ROWS, DELIVERIES };
struct dest {
  uint8_t *out;
  uint64_t next, decoded, row, pieces, direct;
  uint32_t element;
  int mode;
  /* a part: bytes [begin, end), and, where period is not 0, of each `period` bytes of the chunk
   * those in [from, upto); end 0: all */
  uint64_t begin, end, period, from, upto;
  const struct insitu__codec_have *have; /* NULL: all of the stored chunk is at hand */
};
/* The next run of bytes that are wanted, at *at or behind: *at is where it begins. Returns its end;
 * 0: there is none. A test goes from run to run, for a sanitizer makes a loop over bytes slow. */
static inline uint64_t sink_run(const struct dest *d, uint64_t *at) {
  if (!d->end) return *at < d->decoded ? d->decoded : 0;
  if (*at < d->begin) *at = d->begin;
  if (*at >= d->end) return 0;
  if (!d->period) return d->end;
  uint64_t row = *at - *at % d->period;
  if (*at - row >= d->upto) row += d->period;
  if (*at < row + d->from) *at = row + d->from;
  uint64_t to = row + d->upto < d->end ? row + d->upto : d->end;
  return *at < to ? to : 0;
}
/* The first byte that is wanted and not as in plain; d->decoded: there is none. */
static inline uint64_t sink_differs(const struct dest *d, const uint8_t *plain) {
  for (uint64_t at = 0, to; (to = sink_run(d, &at)); at = to) {
    if (!memcmp(d->out + at, plain + at, to - at)) continue;
    while (d->out[at] == plain[at]) at++;
    return at;
  }
  return d->decoded;
}
static inline bool sink_wants(void *user, uint64_t offset, uint64_t n) {
  const struct dest *d = user;
  SINK_HOLDS(n > 0 && offset < d->decoded && n <= d->decoded - offset);
  uint64_t at = offset;
  return sink_run(d, &at) && at < offset + n;
}
static inline void took(struct dest *d, uint64_t offset, uint64_t n) {
  SINK_HOLDS(d->end ? offset >= d->next : offset == d->next);
  SINK_HOLDS(n > 0 && offset < d->decoded && n <= d->decoded - offset);
  SINK_HOLDS(offset % d->element == 0 && (n % d->element == 0 || offset + n == d->decoded));
  d->next = offset + n;
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
      .have = d->have,
      .direct = d->mode == PIECES ? NULL : direct,
      .piece = piece,
      .element = d->element,
      .begin = d->begin,
      .end = d->end,
      .wants = d->period ? sink_wants : NULL,
      .wants_user = d};
  uint8_t *exact = malloc(n ? n : 1);
  SINK_HOLDS(exact);
  if (n) memcpy(exact, src, n);
  insitu_status status = insitu__chain_decode(chain, scratch, exact, n, d->decoded, &sink, err);
  free(exact);
  return status;
}
/* Decodes a part of a blosc, zstd or lz4 chunk out of what its first `head` bytes say is needed, or
 * alone out of these; all other bytes are noise. *planned: the head said so. */
static inline insitu_status sink_parted(const struct insitu__codec_chain *chain,
    struct insitu__codec_scratch *scratch, const uint8_t *src, uint64_t n, uint64_t head,
    uint64_t gap, struct dest *d, bool *planned, insitu_error *err) {
  struct insitu__codec_sink sink = {
      .begin = d->begin, .end = d->end, .wants = d->period ? sink_wants : NULL, .wants_user = d};
  struct insitu__codec_have plan = {.n = 0}, have = {.n = 1, .range = {{0, head}}};
  uint64_t stored = gap & 1 ? n : UINT64_MAX, block = 0, length = head;
  uint8_t *first = malloc(head ? head : 1), *parts = malloc(n ? n : 1);
  bool sorted;
  SINK_HOLDS(first && parts && head <= n && chain->n == 1 && d->end);
  memcpy(first, src, head);
  *planned = true;
  if (chain->codec[0].kind == INSITU__CODEC_BLOSC) {
    *planned = insitu__comp_blosc_plan(first, head, d->decoded, &stored, &sink,
        2 + (unsigned)(gap % (INSITU__CODEC_RANGES - 2)), gap, &block, &sorted, &plan);
    length = stored;
    if (stored > n) *planned = false; /* a read would find fewer bytes */
  } else if (chain->codec[0].kind == INSITU__CODEC_ZSTD) {
    *planned = insitu__comp_zstd_may_cut(first, head, d->decoded);
  }
  if (d->end >= d->decoded && !block) *planned = false;
  for (uint64_t i = 0; i < n; i++) parts[i] = (uint8_t)(src[i] ^ (1 + i % 255));
  memcpy(parts, src, head);
  for (unsigned i = 0; *planned && i < plan.n; i++) {
    struct insitu__codec_range r = plan.range[i];
    SINK_HOLDS(r.from >= head && r.from < r.to && r.to <= stored);
    SINK_HOLDS(!i || r.from > plan.range[i - 1].to);
    memcpy(parts + r.from, src + r.from, r.to - r.from);
    insitu__codec_have_add(&have, INSITU__CODEC_RANGES, 0, r.from, r.to);
  }
  insitu_status status = INSITU_OK;
  d->have = &have;
  if (*planned) status = sink_decode(chain, scratch, parts, length, d, err);
  d->have = NULL;
  free(first);
  free(parts);
  return status;
}
#endif
