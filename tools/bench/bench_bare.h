/* What bench.c measures against: archives made by formula, their pages in the cache or not,
 * and the bare loop that reads and decodes them. */
#ifndef TOOLS_BENCH_BARE_H
#define TOOLS_BENCH_BARE_H
#include "bench_side.h"
#include "bench_summary.h"
#include <blosc.h>
#include <ftw.h>
#include <liburing.h>
#include <sys/statvfs.h>

enum { PREAD, URING_INLINE, URING_ASYNC, N_MODES }; /* how the bare loop reads */
static const char *const mode_name[] = {"pread", "uring inline", "uring async"};
enum { RAW, ZSTD, BLOSC, N_CODECS };
static const char *const codec_name[] = {"raw", "zstd", "blosc"};
enum { MAX_DEPTH = 32, MAX_ROUNDS = 10001, MAX_THREADS = 64 };

/* prefaulted, in huge pages where possible, like a loader's batches after its first epoch */
static void *map(uint64_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(p != MAP_FAILED, "mmap");
  madvise(p, bytes, MADV_HUGEPAGE);
  return memset(p, 1, bytes);
}

static double quantile(const double *sorted, uint64_t n, double q) {
  return sorted[insitu__base_min(n - 1, (uint64_t)ceil(q * (double)n) - 1)];
}

/* ---- archives ---- */

static void write_file(const char *path, const void *bytes, uint64_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  must(fd >= 0, path);
  for (uint64_t done = 0; done < n;) {
    ssize_t w = write(fd, (const char *)bytes + done, n - done);
    must(w > 0, path);
    done += (uint64_t)w;
  }
  close(fd);
}

/* Like a temperature: waves, and 15 random bits at the end of each mantissa, so that
 * blosc-lz4-shuffle compresses 1.7 to
 * 2 times. The first element is the sample's number. */
static void make_sample(float *out, uint64_t sample, uint64_t ny, uint64_t nx) {
  static uint64_t seed = 88172645463325252u;
  float col[4096];
  for (uint64_t x = 0; x < nx; x++) col[x] = sinf((float)(x + 3 * sample) * 6.2831853f / (float)nx);
  for (uint64_t y = 0; y < ny; y++) {
    float base = 280 + 25 * sinf((float)y * 3.1415927f / (float)ny),
          swing = 6 * cosf((float)(y + sample) * 0.02f);
    for (uint64_t x = 0; x < nx; x++) {
      float v = base + swing * col[x];
      uint32_t bits;
      memcpy(&bits, &v, 4);
      seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
      bits ^= (uint32_t)seed & 0x7fff;
      memcpy(&out[y * nx + x], &bits, 4);
    }
  }
  out[0] = (float)sample;
}

static uint64_t row_chunks(const struct row *r) {
  return r->samples / r->chunk;
}
static uint64_t row_files(const struct row *r) {
  return row_chunks(r) / r->per_shard;
}
static uint64_t chunk_bytes(const struct row *r) {
  return r->chunk * r->ny * r->nx * 4;
}
/* Bytes of a sample, and of the batches of an epoch. */
static uint64_t sample_bytes(const struct row *r) {
  return r->ny * r->nx * 4;
}
static uint64_t shown_bytes(const struct row *r) {
  if (!r->steps) return r->bytes;
  return (r->samples - r->steps + 1) / r->batch * r->batch * r->steps * sample_bytes(r);
}
static uint64_t stored_bound(const struct row *r) {
  uint64_t n = chunk_bytes(r);
  return r->codec == BLOSC ? n + BLOSC_MAX_OVERHEAD : r->codec == ZSTD ? ZSTD_compressBound(n) : n;
}
static const char *file_key(uint64_t i, char key[64]) {
  snprintf(key, 64, "f/%" PRIu64 ".0.0", i);
  return key;
}

static uint64_t pack(const struct row *r, const void *plain, void *packed) {
  uint64_t n = chunk_bytes(r), most = stored_bound(r);
  errno = 0;
  if (r->codec == ZSTD) {
    size_t got = ZSTD_compress(packed, most, plain, n, 3);
    must(!ZSTD_isError(got), "ZSTD_compress");
    return got;
  }
  int got = blosc_compress_ctx(
      5, BLOSC_SHUFFLE, 4, n, plain, packed, most, "lz4", 0, (int)insitu__mem_cores());
  must(got > 0, "blosc_compress_ctx");
  return (uint64_t)got;
}

/* Zarr v2, but v3 where chunks lie in shards; chunk keys are i.0.0 in both, in one folder. */
static void make_metadata(const struct row *r, const char *dir) {
  static const char *const v2[] = {"null", "{\"id\":\"zstd\",\"level\":3}",
      "{\"id\":\"blosc\",\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":1,\"blocksize\":0}"};
  static const char v3_blosc[] = ",{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\","
                                 "\"clevel\":5,\"shuffle\":\"shuffle\","
                                 "\"typesize\":4,\"blocksize\":0}}";
  static const char *const v3[] = {
      "", ",{\"name\":\"zstd\",\"configuration\":{\"level\":3,\"checksum\":false}}", v3_blosc};
  char path[600], meta[1200], shape[80];
  int n;
  snprintf(shape, sizeof shape, "[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", r->samples, r->ny, r->nx);
  if (!r->sharded) {
    n = snprintf(meta, sizeof meta,
        "{\"zarr_format\":2,\"shape\":%s,\"chunks\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64
        "],\"dtype\":\"<f4\",\"fill_value\":0,\"order\":\"C\",\"filters\":null,\"compressor\":%s}",
        shape, r->chunk, r->ny, r->nx, v2[r->codec]);
    snprintf(path, sizeof path, "%s/.zgroup", dir);
    write_file(path, "{\"zarr_format\":2}", 17);
    snprintf(path, sizeof path, "%s/f/.zarray", dir);
  } else {
    n = snprintf(meta, sizeof meta,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"float32\",\"fill_"
        "value\":0,\"chunk_grid\":"
        "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64
        "]}},\"chunk_key_encoding\":{\"name\":\"v2\",\"configuration\":{\"separator\":\".\"}},"
        "\"codecs\":[{\"name\":"
        "\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64
        "],\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}%s],\"index_"
        "codecs\":[{\"name\":\"bytes\","
        "\"configuration\":{\"endian\":\"little\"}},{\"name\":\"crc32c\"}],\"index_location\":"
        "\"end\"}}]}",
        shape, r->chunk * r->per_shard, r->ny, r->nx, r->chunk, r->ny, r->nx, v3[r->codec]);
    snprintf(path, sizeof path, "%s/zarr.json", dir);
    write_file(path, "{\"zarr_format\":3,\"node_type\":\"group\"}", 37);
    snprintf(path, sizeof path, "%s/f/zarr.json", dir);
  }
  write_file(path, meta, (uint64_t)n);
}

/* Bytes of a shard's index, which stands at its end: offset and length of each chunk, and a crc32c.
 */
static uint64_t index_bytes(const struct row *r) {
  return 16 * r->per_shard + 4;
}

static void make_archive(struct row *r, const char *dir) {
  char path[600], key[64];
  struct statvfs space;
  uint64_t sample = r->ny * r->nx * 4, bytes = chunk_bytes(r), most = stored_bound(r);
  must(mkdir(dir, 0755) == 0, dir);
  errno = ENOSPC;
  must(statvfs(dir, &space) == 0 && space.f_bavail * space.f_frsize > r->samples * sample * 9 / 8,
      dir);
  snprintf(path, sizeof path, "%s/f", dir);
  must(mkdir(path, 0755) == 0, path);
  make_metadata(r, dir);
  unsigned char *plain = (unsigned char *)map(bytes),
                *packed = r->codec == RAW ? NULL : (unsigned char *)map(most);
  unsigned char *index = (unsigned char *)take(1, index_bytes(r));
  r->bytes = r->stored = 0;
  free(r->length);
  r->length = (uint64_t *)take(row_files(r), sizeof *r->length);
  for (uint64_t c = 0; c < row_chunks(r); c++) {
    uint64_t file = c / r->per_shard, k = c % r->per_shard;
    for (uint64_t i = 0; i < r->chunk; i++)
      make_sample((float *)(void *)(plain + i * sample), c * r->chunk + i, r->ny, r->nx);
    uint64_t n = packed ? pack(r, plain, packed) : bytes;
    snprintf(path, sizeof path, "%s/%s", dir, file_key(file, key));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    must(fd >= 0, path);
    for (uint64_t done = 0; done < n;) {
      ssize_t w = write(fd, (packed ? packed : plain) + done, n - done);
      must(w > 0, path);
      done += (uint64_t)w;
    }
    insitu__base_store64(index + 16 * k, r->length[file]);
    insitu__base_store64(index + 16 * k + 8, n);
    r->length[file] += n;
    if (r->sharded && k == r->per_shard - 1) {
      uint32_t crc = htole32(insitu__comp_crc32c(index, 16 * r->per_shard));
      memcpy(index + 16 * r->per_shard, &crc, 4);
      must(write(fd, index, index_bytes(r)) == (ssize_t)index_bytes(r), path);
      r->length[file] += index_bytes(r);
    }
    close(fd);
    r->bytes += bytes;
    r->stored += n;
  }
  munmap(plain, bytes);
  if (packed) munmap(packed, most);
  free(index);
  /* writing back must not go on while we measure */
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  must(fd >= 0 && syncfs(fd) == 0, dir);
  close(fd);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}
static void remove_tree(const char *dir) {
  nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Asks the kernel to forget the archive's pages: data only, names and inodes stay known. Nothing is
 * dirty, see make_archive. */
static void drop_pages(const struct row *r, const char *dir) {
  char path[600], key[64];
  for (uint64_t i = 0; i < row_files(r); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, file_key(i, key));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}
/* Share of the archive that is in the page cache, by mincore on up to 64 files. */
static double resident(const struct row *r, const char *dir) {
  char path[600], key[64];
  uint64_t pages = 0, in = 0, step = insitu__base_max(1, row_files(r) / 64),
           page = (uint64_t)sysconf(_SC_PAGESIZE);
  for (uint64_t i = 0; i < row_files(r); i += step) {
    snprintf(path, sizeof path, "%s/%s", dir, file_key(i, key));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t n = insitu__base_ceil_div(r->length[i], page);
    void *p = fd >= 0 ? mmap(NULL, r->length[i], PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    unsigned char *seen = (unsigned char *)take(n, 1);
    must(p != MAP_FAILED && mincore(p, r->length[i], seen) == 0, path);
    for (uint64_t k = 0; k < n; k++) in += seen[k] & 1;
    pages += n;
    free(seen);
    munmap(p, r->length[i]);
    close(fd);
  }
  return (double)in / (double)pages;
}

/* ---- the bare loop ---- */

struct bare_shard {
  pthread_mutex_t lock; /* taken by the first chunks only: an open shard is used without it */
  _Atomic int fd;       /* -1: not open */
  atomic_uint_least64_t left;
  unsigned char *index;
};
struct bare_worker {
  struct bare *bare;
  struct io_uring ring;
  unsigned char *buffer[MAX_DEPTH]; /* stored chunks, which are not read into their places */
  unsigned char *decoded;           /* a chunk whose rows have places in several windows */
  ZSTD_DCtx *zstd;
  pthread_t id;
};
struct bare { /* every thread takes the next chunk, reads it, decodes it */
  const struct row *row;
  int dirfd, mode;
  bool stop;
  uint64_t chunks, chunk_bytes, depth;
  uint64_t slots, to_bytes; /* places for chunks, or for windows, and their bytes */
  uint64_t *order;          /* of the chunks */
  uint64_t *position;       /* of each chunk in it */
  unsigned char *to;
  unsigned char *kept; /* all samples, decoded before; NULL: chunks are read */
  uint64_t *place;     /* of each sample, and what a worker does: see bench_rows.h; else NULL */
  void (*work)(struct bare *, struct bare_worker *);
  atomic_uint_least64_t next, done_bytes;
  struct bare_shard *shard;
  struct bare_worker worker[MAX_THREADS];
  pthread_barrier_t begin, end;
};
struct bare_part { /* where a stored chunk lies */
  int fd;
  uint64_t offset, bytes;
};

static int bare_open(struct bare *b, uint64_t file) {
  char key[64];
  int fd = openat(b->dirfd, file_key(file, key), O_RDONLY | O_CLOEXEC);
  must(fd >= 0, key);
  return fd;
}
/* The shard of a chunk: opened, and its index read and checked, once a round. */
static struct bare_shard *bare_shard(struct bare *b, uint64_t number) {
  const struct row *r = b->row;
  struct bare_shard *s = &b->shard[number];
  if (atomic_load_explicit(&s->fd, memory_order_acquire) >= 0) return s;
  pthread_mutex_lock(&s->lock);
  if (atomic_load(&s->fd) < 0) {
    int fd = bare_open(b, number);
    uint64_t n = index_bytes(r);
    uint32_t crc;
    must(pread(fd, s->index, n, (off_t)(r->length[number] - n)) == (ssize_t)n, "a shard's index");
    memcpy(&crc, s->index + n - 4, 4);
    must(insitu__comp_crc32c(s->index, n - 4) == le32toh(crc),
        "a shard's index has another checksum");
    atomic_store_explicit(&s->fd, fd, memory_order_release);
  }
  pthread_mutex_unlock(&s->lock);
  return s;
}
static struct bare_part bare_find(struct bare *b, uint64_t chunk) {
  const struct row *r = b->row;
  if (!r->sharded) return (struct bare_part){bare_open(b, chunk), 0, r->length[chunk]};
  struct bare_shard *s = bare_shard(b, chunk / r->per_shard);
  const unsigned char *entry = s->index + 16 * (chunk % r->per_shard);
  return (struct bare_part){
      atomic_load(&s->fd), insitu__base_load64(entry), insitu__base_load64(entry + 8)};
}
static void bare_leave(struct bare *b, uint64_t chunk, int fd) { /* a chunk has been read */
  if (b->row->sharded && atomic_fetch_sub(&b->shard[chunk / b->row->per_shard].left, 1) != 1)
    return;
  close(fd);
}
static unsigned char *bare_place(struct bare *b, uint64_t chunk) {
  return b->to + b->position[chunk] % b->slots * b->chunk_bytes;
}
/* Whether a chunk is read to where it belongs. */
static bool bare_direct(const struct row *r) {
  return r->codec == RAW && !r->steps;
}
/* Copies the rows of a decoded chunk to the windows of all samples that show some of them. */
static void bare_copy(struct bare *b, uint64_t chunk, const unsigned char *decoded) {
  const struct row *r = b->row;
  uint64_t bytes = sample_bytes(r), begin = chunk * r->chunk, end = begin + r->chunk;
  uint64_t first = begin > r->steps - 1 ? begin - (r->steps - 1) : 0;
  for (uint64_t i = first; i < end && i + r->steps <= r->samples; i++) {
    uint64_t lo = insitu__base_max(begin, i), hi = insitu__base_min(end, i + r->steps);
    memcpy(b->to + (i % b->slots * r->steps + (lo - i)) * bytes, decoded + (lo - begin) * bytes,
        (hi - lo) * bytes);
  }
}
static void bare_decode(
    struct bare *b, struct bare_worker *w, uint64_t chunk, const unsigned char *from, uint64_t n) {
  unsigned char *to = b->row->steps ? w->decoded : bare_place(b, chunk);
  if (b->row->codec == BLOSC) n = (uint64_t)blosc_decompress_ctx(from, to, b->chunk_bytes, 1);
  if (b->row->codec == ZSTD) n = ZSTD_decompressDCtx(w->zstd, to, b->chunk_bytes, from, n);
  if (b->row->steps) bare_copy(b, chunk, b->row->codec == RAW ? from : to);
  atomic_fetch_add_explicit(&b->done_bytes, n, memory_order_relaxed);
}
static bool bare_take(struct bare *b, uint64_t *chunk) {
  uint64_t i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
  if (i < b->chunks) *chunk = b->order[i];
  return i < b->chunks;
}

/* Gathers windows of samples that are kept, in the order of a shuffle. */
static void bare_gather(struct bare *b) {
  uint64_t each = sample_bytes(b->row), bytes = b->row->steps * each, i;
  while ((i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->chunks) {
    memcpy(b->to + i % b->slots * bytes, b->kept + b->order[i] * each, bytes);
    atomic_fetch_add_explicit(&b->done_bytes, bytes, memory_order_relaxed);
  }
}

static void bare_pread(struct bare *b, struct bare_worker *w) {
  for (uint64_t c; bare_take(b, &c);) {
    struct bare_part p = bare_find(b, c);
    unsigned char *to = bare_direct(b->row) ? bare_place(b, c) : w->buffer[0];
    for (uint64_t n = 0; n < p.bytes;) {
      ssize_t got = pread(p.fd, to + n, p.bytes - n, (off_t)(p.offset + n));
      must(got > 0, "pread");
      n += (uint64_t)got;
    }
    bare_leave(b, c, p.fd);
    bare_decode(b, w, c, to, p.bytes);
  }
}

static void bare_uring(struct bare *b, struct bare_worker *w) {
  struct {
    uint64_t chunk, got;
    struct bare_part part;
    unsigned char *to;
  } slot[MAX_DEPTH];
  uint64_t idle[MAX_DEPTH], n_idle = b->depth;
  for (uint64_t i = 0; i < b->depth; i++) idle[i] = i;
  for (bool more = true; more || n_idle < b->depth;) {
    while (more && n_idle) {
      uint64_t c, i = idle[n_idle - 1];
      if (!(more = bare_take(b, &c))) break;
      n_idle--;
      slot[i].chunk = c;
      slot[i].got = 0;
      slot[i].part = bare_find(b, c);
      slot[i].to = bare_direct(b->row) ? bare_place(b, c) : w->buffer[i];
      struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
      io_uring_prep_read(
          sqe, slot[i].part.fd, slot[i].to, (unsigned)slot[i].part.bytes, slot[i].part.offset);
      if (b->mode == URING_ASYNC) sqe->flags |= IOSQE_ASYNC;
      sqe->user_data = i;
    }
    if (n_idle == b->depth) break;
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait(&w->ring, 1);
    while (io_uring_peek_cqe(&w->ring, &cqe) == 0) {
      uint64_t i = cqe->user_data;
      int res = cqe->res;
      io_uring_cqe_seen(&w->ring, cqe);
      must(res > 0, "io_uring read");
      slot[i].got += (uint64_t)res;
      if (slot[i].got < slot[i].part.bytes) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
        io_uring_prep_read(sqe, slot[i].part.fd, slot[i].to + slot[i].got,
            (unsigned)(slot[i].part.bytes - slot[i].got), slot[i].part.offset + slot[i].got);
        sqe->user_data = i;
        continue;
      }
      bare_leave(b, slot[i].chunk, slot[i].part.fd);
      bare_decode(b, w, slot[i].chunk, slot[i].to, slot[i].got);
      idle[n_idle++] = i;
    }
  }
}

static void *bare_main(void *arg) {
  struct bare_worker *w = (struct bare_worker *)arg;
  struct bare *b = w->bare;
  must(io_uring_queue_init(2 * MAX_DEPTH, &w->ring, 0) == 0, "io_uring_queue_init");
  for (;;) {
    pthread_barrier_wait(&b->begin);
    if (b->stop) break;
    if (b->work) b->work(b, w);
    else if (b->kept) bare_gather(b);
    else if (b->mode == PREAD) bare_pread(b, w);
    else bare_uring(b, w);
    pthread_barrier_wait(&b->end);
  }
  io_uring_queue_exit(&w->ring);
  return NULL;
}

static struct cost bare_round(struct bare *b) {
  for (uint64_t i = 0; b->row->sharded && i < row_files(b->row); i++) {
    atomic_store(&b->shard[i].fd, -1);
    atomic_store(&b->shard[i].left, b->row->per_shard);
  }
  double wall = seconds(), cpu = cpu_seconds();
  atomic_store(&b->next, 0);
  atomic_store(&b->done_bytes, 0);
  pthread_barrier_wait(&b->begin);
  pthread_barrier_wait(&b->end);
  struct cost cost = {seconds() - wall, cpu_seconds() - cpu};
  errno = 0;
  uint64_t bytes = b->kept ? shown_bytes(b->row) : b->row->bytes;
  must(atomic_load(&b->done_bytes) == bytes, "the bare loop lost bytes");
  return cost;
}

static void bare_start(struct bare *b, const struct row *r, const char *dir, uint64_t ring_bytes,
    const struct options *o) {
  memset(b, 0, sizeof *b);
  b->row = r;
  must((b->dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0, dir);
  b->chunks = row_chunks(r);
  if (o->gather && r->steps) {
    b->kept = (unsigned char *)map(r->bytes);
    b->chunks = shown_bytes(r) / (r->steps * sample_bytes(r)); /* windows */
  }
  b->chunk_bytes = chunk_bytes(r);
  uint64_t slot_bytes = r->steps ? r->steps * sample_bytes(r) : b->chunk_bytes;
  b->slots = insitu__base_max(r->threads, ring_bytes / slot_bytes);
  uint64_t most = stored_bound(r),
           depth = insitu__base_min(r->cold ? MAX_DEPTH : 8, (64u << 20) / most);
  b->depth = insitu__base_max(1, insitu__base_min(depth, b->slots / r->threads));
  b->to_bytes = b->slots * slot_bytes;
  b->to = (unsigned char *)map(b->to_bytes);
  b->order = (uint64_t *)take(b->chunks, sizeof *b->order);
  for (uint64_t i = 0; i < b->chunks; i++) {
    uint64_t k = o->in_order ? i : insitu__order_mix(i) % (i + 1);
    b->order[i] = b->order[k];
    b->order[k] = i;
  }
  b->position = (uint64_t *)take(b->chunks, sizeof *b->position);
  for (uint64_t i = 0; i < b->chunks; i++) b->position[b->order[i]] = i;
  b->shard = (struct bare_shard *)take(row_files(r), sizeof *b->shard);
  for (uint64_t i = 0; r->sharded && i < row_files(r); i++) {
    pthread_mutex_init(&b->shard[i].lock, NULL);
    b->shard[i].index = (unsigned char *)take(1, index_bytes(r));
  }
  pthread_barrier_init(&b->begin, NULL, r->threads + 1);
  pthread_barrier_init(&b->end, NULL, r->threads + 1);
  for (unsigned i = 0; i < r->threads; i++) {
    struct bare_worker *w = &b->worker[i];
    w->bare = b;
    must((w->zstd = ZSTD_createDCtx()) != NULL, "ZSTD_createDCtx");
    for (uint64_t k = 0; !bare_direct(r) && k < b->depth; k++)
      w->buffer[k] = (unsigned char *)map(most);
    if (r->steps) w->decoded = (unsigned char *)map(b->chunk_bytes);
    must(pthread_create(&w->id, NULL, bare_main, w) == 0, "pthread_create");
  }
}

/* The fastest way of reading here, by the least of several rounds each, in turns. */
static void bare_calibrate(struct bare *b, const char *dir, double least[N_MODES]) {
  for (int m = 0; m < N_MODES; m++) least[m] = 1e9;
  double begin = seconds();
  for (int i = 0; i < 3 || (i < 41 && seconds() < begin + 1); i++) {
    for (b->mode = 0; b->mode < N_MODES; b->mode++) {
      if (b->row->cold) drop_pages(b->row, dir);
      double wall = bare_round(b).wall;
      if (i && wall < least[b->mode]) least[b->mode] = wall;
    }
  }
  b->mode = 0;
  for (int m = 1; m < N_MODES; m++)
    if (least[m] < least[b->mode]) b->mode = m;
}

static void bare_stop(struct bare *b) {
  b->stop = true;
  pthread_barrier_wait(&b->begin);
  for (unsigned i = 0; i < b->row->threads; i++) {
    pthread_join(b->worker[i].id, NULL);
    ZSTD_freeDCtx(b->worker[i].zstd);
    for (uint64_t k = 0; !bare_direct(b->row) && k < b->depth; k++)
      munmap(b->worker[i].buffer[k], stored_bound(b->row));
    if (b->row->steps) munmap(b->worker[i].decoded, b->chunk_bytes);
  }
  for (uint64_t i = 0; b->row->sharded && i < row_files(b->row); i++) {
    pthread_mutex_destroy(&b->shard[i].lock);
    free(b->shard[i].index);
  }
  free(b->shard);
  free(b->order);
  free(b->position);
  pthread_barrier_destroy(&b->begin);
  pthread_barrier_destroy(&b->end);
  if (b->kept) munmap(b->kept, b->row->bytes);
  munmap(b->to, b->to_bytes);
  close(b->dirfd);
}
#endif
