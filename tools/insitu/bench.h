/* insitu bench: runs the loader as a training job would, then measures it against the bare loop on
 * the same files: every core reads and decodes the next chunk into buffers as large as the ring of
 * batches. */
#include <sys/resource.h>

enum {
  BENCH_MAX_TILES = 1 << 18,
  BENCH_FAR_TILES = 1 << 12,
  BENCH_MAX_ROUNDS = 1001,
  BENCH_MAX_CALLS = 1 << 20,
  BENCH_MAX_CORES = 256
};
static const char *bench_seconds, *bench_epochs, *bench_compute, *bench_busy, *bench_rounds,
    *bench_sweep;

struct bench_tile {
  uint64_t chunk, field;
  uint32_t array;
  /* of an inner chunk of a shard, 0 bytes if it is absent; else UINT64_MAX */
  uint64_t offset, bytes;
  /* of a virtual archive's chunk: the file that it lies in, below a directory; else NULL */
  char *file;
  int directory;
};
struct bench_replay { /* the job: what its user sees */
  double seconds, stall, first, cpu;
  uint64_t batches, rows, bytes, epochs, n_calls;
  double *call; /* seconds inside next, each */
  insitu_stats stats;
  uint64_t peak_rss;
};
struct bench {
  struct config config;
  insitu_loader *ld;
  insitu_iter *it;
  insitu_plan plan;
  double seconds_asked, compute;
  uint64_t epochs_asked, rounds;
  struct bench_replay replay;
  /* the bare loop */
  struct bench_tile *tile;
  uint64_t n_tiles, slots, slot_bytes;
  uint64_t unseen; /* tiles that the bare loop does not read: in memory, or on a server */
  unsigned char *ring;
  unsigned n_workers;
  atomic_uint_least64_t next, decoded;
  atomic_bool failed;
  double deadline;
  insitu_error bare_err;
  /* of the rounds */
  /* the last two: decoded bytes per second */
  double share[BENCH_MAX_ROUNDS], bare[BENCH_MAX_ROUNDS], loader[BENCH_MAX_ROUNDS];
  /* seconds per decoded byte */
  double bare_cpu[BENCH_MAX_ROUNDS], loader_cpu[BENCH_MAX_ROUNDS];
  double capacity_cpu; /* cores that the loader kept busy in its rounds */
  double others;       /* cores that other processes kept busy during the rounds */
  /* share of the machine's cores that were busy with anything, from the job's begin on */
  double machine_busy;
  uint64_t n_rounds;
};
struct bench_worker {
  struct bench *b;
  pthread_t id;
  struct insitu__codec_scratch scratch;
  unsigned char *encoded;
  /* its part of the ring, from slot on, which it goes round */
  uint64_t encoded_bytes, slot, n_slots, turn;
};

static double bench_now(void) {
  return (double)insitu__base_now() * 1e-9;
}
static double bench_cpu(void) { /* seconds of all threads */
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}
/* Clock ticks that the machine's cores, all together, were busy since it started, with whatever;
 * and all ticks. */
static void bench_machine(double *busy, double *all) {
  unsigned long long t[8] = {0};
  FILE *f = fopen("/proc/stat", "re");
  *busy = *all = 0;
  if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
               &t[4], &t[5], &t[6], &t[7]) == 8)
    for (int i = 0; i < 8; i++) *all += (double)t[i];
  if (f) fclose(f);
  *busy = *all - (double)(t[3] + t[4]); /* idle, and waiting for a disk */
}
static int bench_compare(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}
static double bench_quantile(const double *sorted, uint64_t n, double q) {
  return n ? sorted[insitu__base_min(n - 1, (uint64_t)(q * (double)n))] : 0;
}
static uint64_t bench_peak_rss(void) { /* bytes: VmHWM */
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (uint64_t)u.ru_maxrss * 1024;
}

/* ---- the job ---- */

/* one byte of every cache line, as a copy to a device would */
static uint64_t bench_touch(const insitu_batch *b) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < b->n_arrays; i++) {
    const volatile unsigned char *p = (const volatile unsigned char *)b->arrays[i].data;
    if (b->arrays[i].fixed) continue;
    for (uint64_t k = 0; k < b->arrays[i].bytes; k += 64) sum += p[k];
  }
  return sum;
}
static void bench_consume(const struct bench *b, const insitu_batch *batch) {
  double end = bench_now() + b->compute;
  bench_touch(batch);
  double left = end - bench_now();
  if (bench_busy)
    while (bench_now() < end) continue;
  else if (left > 0)
    nanosleep(&(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)}, NULL);
}
/* Batches until the time or the epochs are over. Times begin with the first batch. An exit code. */
static int bench_run_job(struct bench *b) {
  struct bench_replay *r = &b->replay;
  insitu_error err = {0};
  double opened = bench_now(), begin = 0, cpu = 0, asked;
  uint64_t seen = 0;
  r->call = (double *)tool_alloc(BENCH_MAX_CALLS, sizeof *r->call);
  tool_progress_begin(
      b->epochs_asked ? b->epochs_asked * b->plan.batches : (uint64_t)(1000 * b->seconds_asked),
      b->epochs_asked ? "batches" : "ms");
  for (;;) {
    insitu_batch *batch = NULL;
    asked = bench_now();
    insitu_status status = insitu_iter_next(b->it, INSITU_FOREVER, &batch, &err);
    double now = bench_now();
    if (status == INSITU_END && (++r->epochs == b->epochs_asked || !b->plan.rows)) break;
    if (status == INSITU_END) continue;
    if (status < 0) {
      tool_progress_end();
      return tool_fail_error(&err);
    }
    seen++;
    if (seen == 1) {
      r->first = now - opened;
      begin = now;
      cpu = bench_cpu();
    } else {
      r->stall += now - asked;
      r->call[r->n_calls++ % BENCH_MAX_CALLS] = now - asked;
      r->batches++;
      r->rows += batch->rows;
      for (uint64_t i = 0; i < batch->n_arrays; i++)
        if (!batch->arrays[i].fixed) r->bytes += batch->arrays[i].bytes;
    }
    bench_consume(b, batch);
    insitu_batch_release(&batch);
    tool_progress(b->epochs_asked ? seen : (uint64_t)(1000 * (bench_now() - begin)));
    if (!b->epochs_asked && bench_now() - begin >= b->seconds_asked) break;
  }
  tool_progress_end();
  r->seconds = bench_now() - begin;
  r->cpu = bench_cpu() - cpu;
  r->n_calls = insitu__base_min(r->n_calls, BENCH_MAX_CALLS);
  qsort(r->call, (size_t)r->n_calls, sizeof *r->call, bench_compare);
  r->peak_rss = bench_peak_rss();
  return insitu_loader_stats(b->ld, &r->stats, &err) < 0 ? tool_fail_error(&err) : TOOL_OK;
}

/* ---- the bare loop ---- */

/* The key and the place of a chunk in the array's grid. */
static void bench_key(
    const struct bench *b, const struct bench_tile *t, uint64_t *index, char *key) {
  const struct insitu__geometry_array *a = &b->ld->geometry.arrays[t->array];
  uint64_t object[INSITU__MAX_DIMS];
  insitu__geometry_field(a, NULL, t->field, index);
  index[a->axis] = t->chunk;
  insitu__zarr_object_of(&a->zarr, index, object);
  insitu__zarr_chunk_key(&a->zarr, object, key, INSITU__MAX_KEY);
}
/* Whether a store says where chunks lie in other files, and is no zip file. */
static bool bench_is_virtual(const struct insitu__store *s) {
  return s->base && s->ops != &insitu__zip_ops;
}
/* Where a chunk of a virtual archive lies. What is in memory or on a server is counted alone. */
static void bench_locate_virtual_await(
    struct bench *b, struct insitu__store *s, struct bench_tile *t, const char *key) {
  char room[INSITU__MAX_KEY];
  struct insitu__store_extent x = {.room = room};
  insitu_error err = {0}; /* the loader says why */
  insitu_status status = s->ops->resolve_await ? s->ops->resolve_await(s, key, 0, 1, NULL, &x, &err)
                                               : s->ops->resolve_now(s, key, &x);
  bool there = !status && x.base && !x.base->ops->remote;
  t->directory = there ? x.base->dirfd : -1;
  if (there) t->file = tool_copy(x.key);
  else if (!status) b->unseen++;
  t->offset += there ? x.offset : 0;
  t->bytes = there ? insitu__base_min(t->bytes, x.n) : 0;
  if (!status && s->ops->release) s->ops->release(s, &x);
}
/* Where the chunks lie in their shards, and those in a zip file or in other files: the bare loop
 * knows it beforehand. */
static void bench_locate_await(void *arg) {
  struct bench *b = (struct bench *)arg;
  char key[INSITU__MAX_KEY];
  uint64_t index[INSITU__MAX_DIMS];
  for (uint64_t i = 0; i < b->n_tiles; i++) {
    struct bench_tile *t = &b->tile[i];
    const struct insitu__zarr_array *z = &b->ld->geometry.arrays[t->array].zarr;
    insitu_error err = {0};
    t->bytes = UINT64_MAX;
    bench_key(b, t, index, key);
    if (z->n_levels && insitu__cache_locate_await(
                           &b->ld->cache, z, index, key, NULL, &t->offset, &t->bytes, &err) < 0)
      t->bytes = 0;
    struct insitu__store *s = &b->ld->source.store;
    if (!s->base || !t->bytes) continue;
    if (bench_is_virtual(s)) {
      bench_locate_virtual_await(b, s, t, key);
      continue;
    }
    struct insitu__zip_member *m = insitu__zip_find(s, key);
    if (!m) t->bytes = 0;
    else if (m->method != INSITU__ZIP_STORED)
      insitu__error_set(&b->bare_err, INSITU_E_UNSUPPORTED,
          "'%.300s' is deflated in the zip file, which the bare loop does not read; pack it stored "
          "(zip -0)",
          key);
    /* the loader says why */
    else if (insitu__zip_start_await(&b->ld->source.store, m, NULL, &err) < 0) t->bytes = 0;
    else {
      t->offset += m->start;
      t->bytes = insitu__base_min(t->bytes, m->stored);
    }
  }
}

/* The chunks of an epoch in the order in which the loader reads them, re-reads included. */
static void bench_list_tiles(struct bench *b) {
  struct insitu__plan_scan scan;
  const struct insitu__plan *p = &b->it->plan;
  struct insitu__order order;
  b->tile = (struct bench_tile *)tool_alloc(BENCH_MAX_TILES, sizeof *b->tile);
  if (insitu__plan_order(p, 0, &order, NULL) < 0) tool_no_memory();
  if (insitu__plan_scan_init(&scan, p, &order, NULL) < 0) tool_no_memory();
  /* far ones are looked up in their shards one by one */
  uint64_t most = insitu__store_is_remote(&b->ld->source.store) ? BENCH_FAR_TILES : BENCH_MAX_TILES;
  while (scan.batch < order.batches && b->n_tiles < most)
    if (insitu__plan_scan_step(&scan) == INSITU__PLAN_TILE)
      b->tile[b->n_tiles++] = (struct bench_tile){
          .chunk = scan.chunk, .field = scan.field, .array = (uint32_t)scan.array};
  insitu__plan_scan_free(&scan);
  insitu__order_free(&order);
  if (insitu__reactor_call(&b->ld->reactor, bench_locate_await, b) != INSITU_OK) tool_no_memory();
}
/* Reads and decodes one chunk to `to`; the decoded bytes, 0 where it is absent. */
static uint64_t bench_read(
    struct bench_worker *w, const struct bench_tile *t, unsigned char *to, insitu_error *err) {
  const struct insitu__geometry_array *a = &w->b->ld->geometry.arrays[t->array];
  uint64_t index[INSITU__MAX_DIMS], n = 0,
                                    cap = a->zarr.codecs.n ? w->encoded_bytes : a->chunk_bytes;
  unsigned char *into = a->zarr.codecs.n ? w->encoded : to;
  struct insitu__codec_sink sink = insitu__codec_memory(to);
  char key[INSITU__MAX_KEY];
  if (!t->bytes) return 0;
  cap = insitu__base_min(cap, t->bytes);
  bench_key(w->b, t, index, key);
  const struct insitu__store *s = &w->b->ld->source.store;
  const char *file = s->base && !t->file ? insitu__zip_of(s)->name : key;
  int directory = s->base ? s->base->dirfd : s->dirfd;
  if (t->file) directory = t->directory;
  int fd = openat(directory, t->file ? t->file : file, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return 0;
  ssize_t got = 0;
  while (fd >= 0 && n < cap &&
         (got = pread(fd, into + n, (size_t)(cap - n), (off_t)(t->offset + n))) > 0)
    n += (uint64_t)got;
  if (fd < 0 || got < 0) insitu__error_set(err, INSITU_E_IO, "%s: %s", key, strerror(errno));
  if (fd >= 0) close(fd);
  if (!err->status && a->zarr.codecs.n)
    insitu__chain_decode(&a->zarr.codecs, &w->scratch, w->encoded, n, a->chunk_bytes, &sink, err);
  return err->status ? 0 : a->chunk_bytes;
}
static void *bench_bare_main(void *arg) {
  struct bench_worker *w = (struct bench_worker *)arg;
  struct bench *b = w->b;
  insitu_error err = {0};
  while (bench_now() < b->deadline && !atomic_load(&b->failed)) {
    uint64_t i = atomic_fetch_add(&b->next, 1);
    unsigned char *to = b->ring + (w->slot + w->turn++ % w->n_slots) * b->slot_bytes;
    uint64_t n = bench_read(w, &b->tile[i % b->n_tiles], to, &err);
    if (err.status) {
      if (!atomic_exchange(&b->failed, true)) b->bare_err = err;
      break;
    }
    atomic_fetch_add(&b->decoded, n);
  }
  return NULL;
}
/* Decoded bytes per second; *cpu: seconds for each. */
static double bench_bare_round(
    struct bench *b, struct bench_worker *workers, double length, double *cpu) {
  double begin = bench_now(), cpu_begin = bench_cpu();
  uint64_t before = atomic_load(&b->decoded);
  b->deadline = begin + length;
  unsigned started = 0;
  while (started < b->n_workers &&
         pthread_create(&workers[started].id, NULL, bench_bare_main, &workers[started]) == 0)
    started++;
  if (!started) tool_no_memory();
  for (unsigned i = 0; i < started; i++) pthread_join(workers[i].id, NULL);
  double bytes = (double)(atomic_load(&b->decoded) - before);
  *cpu = bytes > 0 ? (bench_cpu() - cpu_begin) / bytes : 0;
  return bytes / (bench_now() - begin);
}

/* ---- the rounds ---- */

static uint64_t bench_decoded(const struct bench *b) {
  insitu_stats s;
  return insitu_loader_stats(b->ld, &s, NULL) < 0 ? 0 : s.bytes_decoded;
}
struct bench_look {
  const insitu_loader *ld;
  uint64_t inflight;
};
static void bench_look(void *arg) { /* on the reactor */
  struct bench_look *l = (struct bench_look *)arg;
  l->inflight = l->ld->sched.inflight;
}
/* Until the ring is full and no chunk is in flight. With inline_io nothing moves outside of next.
 */
static void bench_wait_idle(struct bench *b) {
  struct bench_look look = {b->ld, 0};
  for (int zeros = 0; zeros < 2 && !insitu_loader_config(b->ld)->inline_io;
       zeros = look.inflight ? 0 : zeros + 1) {
    poll(NULL, 0, 1);
    if (insitu__reactor_call(&b->ld->reactor, bench_look, &look) != INSITU_OK) tool_no_memory();
  }
}
/* Takes batches as fast as they come. Begins and ends with a full ring, so that this time was spent
 * on these bytes. */
static double bench_loader_round(struct bench *b, double length, double *cpu, insitu_error *err) {
  double begin = bench_now(), cpu_begin = bench_cpu();
  uint64_t before = bench_decoded(b);
  while (bench_now() < begin + length) {
    insitu_batch *batch = NULL;
    if (insitu_iter_next(b->it, 10, &batch, err) < 0) return 0;
    insitu_batch_release(&batch);
  }
  bench_wait_idle(b);
  double seconds = bench_now() - begin, used = bench_cpu() - cpu_begin,
         bytes = (double)(bench_decoded(b) - before);
  *cpu = bytes > 0 ? used / bytes : 0;
  b->capacity_cpu += used / seconds;
  return bytes / seconds;
}
static struct bench_worker bench_workers[BENCH_MAX_CORES];
/* The chunks, and the bare loop's buffers. An exit code. */
static int bench_prepare(struct bench *b) {
  uint64_t encoded = 1;
  bench_list_tiles(b);
  if (b->bare_err.status) return tool_fail_error(&b->bare_err);
  for (uint64_t i = 0; i < b->ld->geometry.n_arrays; i++) {
    b->slot_bytes = insitu__base_max(b->slot_bytes, b->ld->geometry.arrays[i].chunk_bytes);
    encoded = insitu__base_max(encoded, b->ld->geometry.arrays[i].bound + 1);
  }
  b->n_workers = (unsigned)insitu__base_min(insitu__mem_cores(), BENCH_MAX_CORES);
  b->slots = insitu__base_max(b->n_workers, b->plan.slabs * b->plan.slab_bytes / b->slot_bytes);
  b->ring = (unsigned char *)insitu__mem_map(b->slots * b->slot_bytes);
  bool ok = b->ring != NULL;
  for (unsigned i = 0; i < b->n_workers; i++) {
    uint64_t share = b->slots / b->n_workers;
    bench_workers[i] = (struct bench_worker){.b = b,
        .slot = i * share,
        .n_slots = share,
        .encoded_bytes = encoded,
        .encoded = (unsigned char *)insitu__mem_map(encoded)};
    insitu__codec_scratch_init(&bench_workers[i].scratch);
    ok = ok && bench_workers[i].encoded;
  }
  if (!ok) tool_no_memory();
  bench_wait_idle(b);
  /* so are a loader's batches touched by now */
  memset(b->ring, 1, (size_t)(b->slots * b->slot_bytes));
  return TOOL_OK;
}
static void bench_unprepare(struct bench *b) {
  for (unsigned i = 0; i < b->n_workers; i++) {
    insitu__codec_scratch_free(&bench_workers[i].scratch);
    insitu__mem_unmap(bench_workers[i].encoded, bench_workers[i].encoded_bytes);
  }
  insitu__mem_unmap(b->ring, b->slots * b->slot_bytes);
  b->ring = NULL;
}
static void bench_free_tiles(struct bench *b) {
  for (uint64_t i = 0; i < b->n_tiles; i++) insitu__mem_free(b->tile[i].file);
  insitu__mem_free(b->tile);
}
static int bench_run_rounds(struct bench *b) {
  insitu_error err = {0};
  double rate = bench_bare_round(b, bench_workers, 0.2, &b->bare_cpu[0]);
  double length = rate > 0 ? 20 * (double)b->slot_bytes / rate : 2; /* some chunks at least */
  length = length < 0.25 ? 0.25 : length > 2 ? 2 : length;
  double busy[2], all[2], own = bench_cpu(), begun = bench_now();
  bench_machine(&busy[0], &all[0]);
  tool_progress_begin(b->rounds, "rounds");
  for (uint64_t i = 0; i < b->rounds && !err.status && !atomic_load(&b->failed); i++) {
    b->bare[i] = bench_bare_round(b, bench_workers, length, &b->bare_cpu[i]);
    b->loader[i] = bench_loader_round(b, length, &b->loader_cpu[i], &err);
    b->share[i] = b->bare[i] > 0 ? b->loader[i] / b->bare[i] : 0;
    b->n_rounds = i + 1;
    tool_progress(i + 1);
  }
  tool_progress_end();
  bench_machine(&busy[1], &all[1]);
  double ticks = (double)sysconf(_SC_CLK_TCK), seconds = bench_now() - begun;
  if (seconds > 0 && ticks > 0)
    b->others = ((busy[1] - busy[0]) / ticks - (bench_cpu() - own)) / seconds;
  if (atomic_load(&b->failed)) err = b->bare_err;
  if (err.status) return tool_fail_error(&err);
  b->capacity_cpu /= (double)b->n_rounds;
  double *series[] = {b->share, b->bare, b->loader, b->bare_cpu, b->loader_cpu};
  for (size_t i = 0; i < TOOL_COUNT(series); i++)
    qsort(series[i], (size_t)b->n_rounds, sizeof(double), bench_compare);
  return TOOL_OK;
}
/* Values left out at each end so that the rest covers the median with 95 %: binomial order
 * statistics. */
static uint64_t bench_cut(uint64_t n) {
  double term = pow(0.5, (double)n), sum = 0;
  uint64_t k = 0;
  for (; k < n / 2 && sum + term <= 0.025; k++) {
    sum += term;
    term *= (double)(n - k) / (double)(k + 1);
  }
  return k ? k - 1 : 0;
}
