/* Receipts and batches that are left out: what an iterator must tell by digests, which batches it
 * must not deliver, and what a state holds of both. After random_config.h. */
#ifndef TESTS_RANDOM_RECEIPT_H
#define TESTS_RANDOM_RECEIPT_H
#include "xxh64.h"

/* A state, and what it must know: the batches of its epoch that are left out, and the sum of the
 * digests up to it. */
struct saved {
  insitu_state state;
  uint64_t epoch, batch; /* that it is behind */
  bool is, summed;       /* summed: it has an epoch_digest */
  bool *out;
  uint64_t sum;
};

/* Calls of insitu_iter_skip that all ranks of a run make: behind so many batches. */
enum { MAX_SKIPS = 4, SURE_RANGES = 6 };
struct skip_call {
  uint64_t at, first, n;
};

/* What all draw: batches to be left out, of which some do not exist or are over. */
static inline struct skip_call draw_skip(uint64_t at, uint64_t batches) {
  struct skip_call c = {.at = at, .first = at + draw(most(1, batches - at)), .n = 1 + draw(4)};

  if (c.n > batches - c.first && chance(80)) c.n = most(1, batches - c.first);
  if (chance(4)) c.n = 0;
  if (chance(4)) c.first = draw(batches);
  if (chance(2)) c.first = UINT64_MAX - draw(3);
  return c;
}

/* How many ranges of batches that are left out a state must hold. */
static inline uint64_t out_ranges(const bool *out, uint64_t n) {
  uint64_t ranges = 0;

  for (uint64_t i = 0; i < n; i++) ranges += out[i] && !(i && out[i - 1]);
  return ranges;
}

/* ---- digests, as the manual has them under RECEIPTS ---- */
static inline uint64_t digest_position(const struct epoch *e, uint64_t n, bool mixed, uint64_t p) {
  return mixed ? p : p % e->lanes * ceil_div(n, e->lanes) + p / e->lanes;
}

/* Of the place of a position by its indexes. */
static inline uint64_t digest_anchor(
    uint64_t epoch, uint64_t position, const int64_t *index, int n) {
  uint64_t h = order_key((uint64_t[]){UINT64_C(0x616E63686F7273), epoch, position}, 3);

  for (int k = 0; k < n; k++) h = order_mix(h ^ (uint64_t)index[k]);
  return h;
}

/* Of what all arrays but fixed ones show of a row. */
static inline uint64_t digest_row(
    uint64_t epoch, uint64_t position, const insitu_batch *b, uint64_t row) {
  uint64_t h = order_key((uint64_t[]){UINT64_C(0x6279746573), epoch, position}, 3), sum = 0;

  for (uint64_t i = 0; i < b->n_arrays; i++) {
    const insitu_array *a = &b->arrays[i];

    if (a->fixed) continue;
    sum +=
        xxh64((const unsigned char *)a->data + row * a->row_bytes, a->row_bytes, order_mix(h ^ i));
  }
  return sum;
}

/* The line for a log. */
static inline void check_line(const insitu_batch *b, int32_t receipts, uint64_t rank) {
  char line[400], want[400];
  uint64_t n = insitu_batch_receipt(b, line, sizeof line);

  if (!receipts && n) differ("a receipt that nobody asked for: %s", line);
  if (!receipts) return;
  snprintf(want, sizeof want, "\"epoch\": %" PRIu64 ", \"batch\": %" PRIu64 ", \"rank\": %" PRIu64,
      b->epoch, b->index, rank);
  if (n != strlen(line) || !strstr(line, want)) differ("the receipt is %s", line);
  snprintf(want, sizeof want, "\"rows\": %" PRIu64 ", \"anchors\": \"%016" PRIx64 "\"", b->rows,
      b->anchors_digest);
  if (!strstr(line, want)) differ("the receipt is %s", line);
  snprintf(want, sizeof want, "\"bytes\": \"%016" PRIx64 "\"", b->bytes_digest);
  if (!strstr(line, receipts == INSITU_RECEIPT_BYTES ? want : "\"bytes\": null"))
    differ("the receipt is %s", line);
}
#endif
