/* The limit of rows whose chunks are read straight into batches: what any loader that shuffles has
 * to do. bench.c's bare loop reads each chunk to one place; a loader puts every sample into its row
 * of a batch. This loop does so, in the order of the loader that is measured: it takes the chunks
 * as that loader first needs them, and puts their samples to where they stand in its epoch, in a
 * ring as large as its batches. It does no bookkeeping: it knows all places before the round, and
 * hands no batch over. Of three ways it takes the fastest; the last one copies once more, but
 * fetches no lines that are overwritten anyway. */
#ifndef TOOLS_BENCH_ROWS_H
#define TOOLS_BENCH_ROWS_H
#include "bench_bare.h"

/* How the rows get to their places; as many ways as the bare loop has. */
enum { ROWS_PREADV, ROWS_ASYNC, ROWS_COPIED, N_ROWS_MODES };
static const char *const rows_mode_name[] = {
    "preadv", "uring async readv", "pread, copy past caches"};
_Static_assert((int)N_ROWS_MODES == (int)N_MODES, "bare_calibrate tries both");
/* Bytes that are read at once before they are copied: they stay in a core's own cache. */
enum { ROWS_PIECE = 256 << 10 };

/* Whether a row has this limit: small raw samples in warm pages, each shown once. */
static bool rows_limited(const struct row *r) {
  return r->small && r->codec == RAW && !r->steps && !r->cold;
}

/* Drains an epoch of the loader, and returns the place of each sample in it. */
static uint64_t *rows_places(struct side *s, const struct row *r) {
  uint64_t *place = (uint64_t *)take(r->samples, sizeof *place), n = 0;
  for (uint64_t i = 0; i < s->batches; i++) {
    insitu_batch *b = side_next(s);
    side_check(b);
    for (uint64_t k = 0; k < b->rows; k++) place[b->sample_indices[k]] = n++;
    insitu_batch_release(&b);
  }
  must(n == r->samples, "an epoch does not show each sample once");
  return place;
}

static int rows_by_place(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}
/* Orders the chunks by the first of their samples' places. */
static void rows_order(struct bare *b) {
  uint64_t(*first)[2] = (uint64_t(*)[2])take(b->chunks, sizeof *first);
  for (uint64_t c = 0; c < b->chunks; c++) {
    first[c][0] = UINT64_MAX;
    first[c][1] = c;
    for (uint64_t i = 0; i < b->row->chunk; i++)
      first[c][0] = insitu__base_min(first[c][0], b->place[c * b->row->chunk + i]);
  }
  qsort(first, b->chunks, sizeof *first, rows_by_place);
  for (uint64_t i = 0; i < b->chunks; i++) b->order[i] = first[i][1];
  free(first);
}

static unsigned char *rows_at(const struct bare *b, uint64_t sample) {
  uint64_t bytes = sample_bytes(b->row);
  return b->to + b->place[sample] % (b->to_bytes / bytes) * bytes;
}
static void rows_aim(const struct bare *b, uint64_t chunk, struct iovec *iov) {
  for (uint64_t i = 0; i < b->row->chunk; i++)
    iov[i] = (struct iovec){rows_at(b, chunk * b->row->chunk + i), sample_bytes(b->row)};
}
static void rows_done(struct bare *b, uint64_t chunk, int fd) {
  bare_leave(b, chunk, fd);
  atomic_fetch_add_explicit(&b->done_bytes, b->chunk_bytes, memory_order_relaxed);
}

static void rows_preadv(struct bare *b) {
  struct iovec iov[IOV_MAX];
  for (uint64_t c; bare_take(b, &c);) {
    struct bare_part p = bare_find(b, c);
    rows_aim(b, c, iov);
    ssize_t got = preadv(p.fd, iov, (int)b->row->chunk, (off_t)p.offset);
    must(got == (ssize_t)b->chunk_bytes, "preadv");
    rows_done(b, c, p.fd);
  }
}

static void rows_copied(struct bare *b, struct bare_worker *w) {
  uint64_t each = sample_bytes(b->row), most = insitu__base_max(1, ROWS_PIECE / each), n;
  for (uint64_t c; bare_take(b, &c);) {
    struct bare_part p = bare_find(b, c);
    for (uint64_t i = 0; i < b->row->chunk; i += n) {
      n = insitu__base_min(most, b->row->chunk - i);
      ssize_t got = pread(p.fd, w->buffer[0], n * each, (off_t)(p.offset + i * each));
      must(got == (ssize_t)(n * each), "pread");
      for (uint64_t k = 0; k < n; k++)
        insitu__mem_copy_past_caches(
            rows_at(b, c * b->row->chunk + i + k), w->buffer[0] + k * each, each);
    }
    rows_done(b, c, p.fd);
  }
  insitu__mem_past_caches_end();
}

static void rows_async(struct bare *b, struct bare_worker *w) {
  struct {
    uint64_t chunk;
    struct bare_part part;
    struct iovec *iov;
  } slot[MAX_DEPTH];
  uint64_t idle[MAX_DEPTH], n_idle = b->depth;
  for (uint64_t i = 0; i < b->depth; i++) {
    slot[i].iov = (struct iovec *)(void *)w->buffer[1] + i * b->row->chunk;
    idle[i] = i;
  }
  for (bool more = true; more || n_idle < b->depth;) {
    while (n_idle && (more = bare_take(b, &slot[idle[n_idle - 1]].chunk))) {
      uint64_t i = idle[--n_idle];
      slot[i].part = bare_find(b, slot[i].chunk);
      rows_aim(b, slot[i].chunk, slot[i].iov);
      struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
      io_uring_prep_readv(
          sqe, slot[i].part.fd, slot[i].iov, (unsigned)b->row->chunk, slot[i].part.offset);
      sqe->flags |= IOSQE_ASYNC;
      sqe->user_data = i;
    }
    if (n_idle == b->depth) break;
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait(&w->ring, 1);
    while (io_uring_peek_cqe(&w->ring, &cqe) == 0) {
      uint64_t i = cqe->user_data;
      must(cqe->res == (int)b->chunk_bytes, "io_uring readv");
      io_uring_cqe_seen(&w->ring, cqe);
      rows_done(b, slot[i].chunk, slot[i].part.fd);
      idle[n_idle++] = i;
    }
  }
}

static void rows_work(struct bare *b, struct bare_worker *w) {
  errno = 0;
  if (b->mode == ROWS_PREADV) rows_preadv(b);
  else if (b->mode == ROWS_ASYNC) rows_async(b, w);
  else rows_copied(b, w);
}

/* Bytes of a worker's two buffers: of a piece, and of the places of the chunks it waits for. */
static uint64_t rows_buffer(const struct bare *b, int which) {
  return which ? b->depth * b->row->chunk * sizeof(struct iovec)
               : insitu__base_max(ROWS_PIECE, sample_bytes(b->row));
}
/* place: of each sample, by rows_places; it is freed by rows_stop. */
static void rows_start(struct bare *b, const struct row *r, const char *dir, uint64_t ring_bytes,
    uint64_t *place, const struct options *o) {
  bare_start(b, r, dir, ring_bytes, o);
  errno = 0;
  must(r->chunk <= IOV_MAX, "a chunk has more rows than one call reads");
  b->place = place;
  b->work = rows_work;
  rows_order(b);
  for (unsigned i = 0; i < r->threads; i++)
    for (int k = 0; k < 2; k++) b->worker[i].buffer[k] = (unsigned char *)map(rows_buffer(b, k));
}
static void rows_stop(struct bare *b) {
  for (unsigned i = 0; i < b->row->threads; i++)
    for (int k = 0; k < 2; k++) munmap(b->worker[i].buffer[k], rows_buffer(b, k));
  free(b->place);
  bare_stop(b);
}
#endif
