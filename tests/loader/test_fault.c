/* Every call to the system that a loader makes fails, each in turn, once or from then on, in each
 * way it can, over both backends and inline, while two iterators run. Whatever fails must end in
 * one clear error or in right batches: no wrong byte, no hang, no leak, no crash; and once the
 * fault is gone the same iterator delivers a whole right epoch.
 *
 * Calls of the C library and of other libraries are replaced by macros; what the kernel answers to
 * a read, through io_uring too, is changed in INSITU_TEST_FAULT. FAULT_DEPTH: each of the first so
 * many calls fails, of the later ones a sample. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#ifndef INSITU_NO_URING
#include <liburing.h>
#endif
#include "insitubatch.h"

/* ---- faults ---- */
enum site { /* calls that fail alike are counted together */
  NONE,
  HEAP,    /* the header's allocator */
  MAP,     /* mmap of batches and buffers */
  STACK,   /* mmap and mprotect of coroutine stacks */
  CONTEXT, /* ZSTD_createDCtx */
  THREAD,  /* pthread_create */
  SETUP,   /* io_uring_setup, and asking what it can do */
  EVENT,   /* eventfd, epoll_create1, epoll_ctl */
  ROOT,    /* opening the archive's directory */
  LIST,    /* openat, fdopendir, readdir of a listing */
  SAVE,    /* fopen, fwrite, fflush, fsync, rename of a manifest */
  ENTER,   /* io_uring_enter, epoll_wait */
  OPEN,    /* opening a file, through the ring */
  READ,    /* reading it */
  /* a worker's try to find a chunk in the caches, which is no error; where OPEN or READ fail,
   * none is found there */
  CACHE
};
enum how {
  FAIL, /* with an errno */
  /* half of the bytes come; the others are overwritten, so that not reading them again shows */
  SHORT,
  CUT,    /* as SHORT, and then the file ends */
  EMPTY,  /* the file ends at once */
  CANCEL, /* nothing fails, but insitu_loader_cancel is called by whoever looks at the answer */
  SIGNAL, /* nothing fails, but a signal handler of the main thread calls it */
  STALL,  /* as CANCEL, and the answer takes until `release` */
  MARK,   /* nothing fails, `reached` is set */
  MARK_FAIL
};
static struct {
  atomic_int site, how, error, n, count, hits;
  atomic_bool forever, reached, release;
  _Atomic(const char *) path; /* only files of this key; NULL: all */
  _Atomic(insitu_loader *) loader;
  pthread_t main;
} fault;
static atomic_int live_heap, live_maps, live_contexts;

static int fault_hit(int site) { /* the errno to fail with, or 0 */
  if (atomic_load(&fault.site) != site) return 0;
  int count = atomic_fetch_add(&fault.count, 1) + 1, n = atomic_load(&fault.n);
  if (count < n || (count > n && !atomic_load(&fault.forever))) return 0;
  atomic_fetch_add(&fault.hits, 1);
  return errno = atomic_load(&fault.error);
}
static void *fault_realloc(void *p, size_t bytes) {
  if (fault_hit(HEAP)) return NULL;
  void *q = realloc(p, bytes);
  if (q && !p) atomic_fetch_add(&live_heap, 1);
  return q;
}
static void fault_free(void *p) {
  atomic_fetch_sub(&live_heap, 1);
  free(p);
}
static void *fault_mmap(size_t bytes, int prot, int flags) {
  if (fault_hit(prot == PROT_NONE ? STACK : MAP)) return MAP_FAILED;
  void *p = mmap(NULL, bytes, prot, flags, -1, 0);
  if (p != MAP_FAILED) atomic_fetch_add(&live_maps, 1);
  return p;
}
static int fault_munmap(void *p, size_t bytes) {
  atomic_fetch_sub(&live_maps, 1);
  return munmap(p, bytes);
}
static ZSTD_DCtx *fault_context(void) {
  ZSTD_DCtx *context = fault_hit(CONTEXT) ? NULL : ZSTD_createDCtx();
  if (context) atomic_fetch_add(&live_contexts, 1);
  return context;
}
static size_t fault_context_free(ZSTD_DCtx *context) {
  if (context) atomic_fetch_sub(&live_contexts, 1);
  return ZSTD_freeDCtx(context);
}
static int64_t fault_stage(
    void *op, bool opening, bool last, const char *path, const struct iovec *iov, int64_t got);

#define INSITU_REALLOC(p, bytes) fault_realloc(p, bytes)
#define INSITU_FREE(p) fault_free(p)
#define INSITU_TEST_FAULT(op, got)                                                                 \
  fault_stage(op, op->stage == INSITU__RING_STAGE_OPEN, op->retries == INSITU__RING_RETRIES - 1,   \
      op->path, op->iov, got)
#define mmap(at, bytes, prot, flags, fd, offset) fault_mmap(bytes, prot, flags)
#define munmap(p, bytes) fault_munmap(p, bytes)
#define mprotect(p, bytes, prot) (fault_hit(STACK) ? -1 : mprotect(p, bytes, prot))
#define ZSTD_createDCtx() fault_context()
#define ZSTD_freeDCtx(context) fault_context_free(context)
#define pthread_create(id, attr, fn, arg)                                                          \
  (fault_hit(THREAD) ? errno : pthread_create(id, attr, fn, arg))
#define io_uring_queue_init_params(n, ring, p)                                                     \
  (fault_hit(SETUP) ? -errno : io_uring_queue_init_params(n, ring, p))
#define io_uring_register_probe(ring, p, n)                                                        \
  (fault_hit(SETUP) ? -errno : io_uring_register_probe(ring, p, n))
#define io_uring_submit(ring) (fault_hit(ENTER) ? -errno : io_uring_submit(ring))
#define io_uring_submit_and_get_events(ring)                                                       \
  (fault_hit(ENTER) ? -errno : io_uring_submit_and_get_events(ring))
#define io_uring_submit_and_wait(ring, n)                                                          \
  (fault_hit(ENTER) ? -errno : io_uring_submit_and_wait(ring, n))
#define io_uring_wait_cqes(ring, cqe, n, limit, mask)                                              \
  (fault_hit(ENTER) ? -errno : io_uring_wait_cqes(ring, cqe, n, limit, mask))
#define io_uring_submit_and_wait_timeout(ring, cqe, n, limit, mask)                                \
  (fault_hit(ENTER) ? -errno : io_uring_submit_and_wait_timeout(ring, cqe, n, limit, mask))
#define epoll_wait(epoll, event, n, ms) (fault_hit(ENTER) ? -1 : epoll_wait(epoll, event, n, ms))
#define eventfd(n, flags) (fault_hit(EVENT) ? -1 : eventfd(n, flags))
#define epoll_create1(flags) (fault_hit(EVENT) ? -1 : epoll_create1(flags))
#define epoll_ctl(epoll, what, fd, event)                                                          \
  (fault_hit(EVENT) ? -1 : epoll_ctl(epoll, what, fd, event))
#define open(path, ...) (fault_hit(ROOT) ? -1 : open(path, __VA_ARGS__))
#define openat(dir, path, flags, ...)                                                              \
  ((flags)&O_DIRECTORY && fault_hit(LIST) ? -1 : openat(dir, path, flags, ##__VA_ARGS__))
#define syscall(number, ...)                                                                       \
  ((number) == SYS_openat2 &&                                                                      \
              (atomic_load(&fault.site) == OPEN || atomic_load(&fault.site) == READ)               \
          ? (errno = EAGAIN, -1)                                                                   \
          : syscall(number, __VA_ARGS__))
#define preadv2(fd, iov, n, offset, flags)                                                         \
  (fault_hit(CACHE) ? -1 : preadv2(fd, iov, n, offset, flags))
#define fdopendir(fd) (fault_hit(LIST) ? NULL : fdopendir(fd))
#define readdir(dir) (fault_hit(LIST) ? NULL : readdir(dir))
#define fopen(path, mode) (fault_hit(SAVE) ? NULL : fopen(path, mode))
#define fwrite(p, size, n, f) (fault_hit(SAVE) ? 0 : fwrite(p, size, n, f))
#define fflush(f) (fault_hit(SAVE) ? EOF : fflush(f))
#define fsync(fd) (fault_hit(SAVE) ? -1 : fsync(fd))
#define rename(from, to) (fault_hit(SAVE) ? -1 : rename(from, to))
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#undef mmap
#undef munmap
#undef mprotect
#undef pthread_create
#undef open
#undef openat
#undef syscall
#undef preadv2
#undef fdopendir
#undef readdir
#undef fopen
#undef fwrite
#undef fflush
#undef rename
#undef eventfd
#include "support.h"
#include "modes.h"

/* ---- what was done to chunks ---- */
enum { DAMAGES = 512 };
static struct {
  char path[64];
  bool absent; /* "no such file", else damaged */
} damage[DAMAGES];
/* entries in use; how many chunks were damaged, how many hidden, ever */
static int n_damage, n_bad, n_absent;
static pthread_mutex_t damage_lock = PTHREAD_MUTEX_INITIALIZER;

static void damage_add(const char *path, bool absent) {
  char last = path[strlen(path) - 1];
  if (last < '0' || last > '9') return; /* metadata */
  pthread_mutex_lock(&damage_lock);
  ++*(absent ? &n_absent : &n_bad);
  if (n_damage < DAMAGES) {
    snprintf(damage[n_damage].path, sizeof damage[0].path, "%s", path);
    damage[n_damage++].absent = absent;
  }
  pthread_mutex_unlock(&damage_lock);
}

/* Notes that an operation's file has ended, or tells and forgets. */
static bool is_cut(const void *op, bool now) {
  static const void *cut[16];
  bool found = false;
  pthread_mutex_lock(&damage_lock);
  for (int i = 0; i < 16 && !found; i++)
    if ((found = cut[i] == (now ? NULL : op))) cut[i] = now ? op : NULL;
  pthread_mutex_unlock(&damage_lock);
  return found;
}
/* What the ring is told that the kernel answered to opening a file or to reading at an offset;
 * last: no more tries will follow. */
static int64_t fault_stage(
    void *op, bool opening, bool last, const char *path, const struct iovec *iov, int64_t got) {
  const char *only = atomic_load(&fault.path);
  if (is_cut(op, false) && !opening) return 0;
  if (got < 0 || (!opening && !got) || (only && strcmp(only, path) != 0) ||
      !fault_hit(opening ? OPEN : READ))
    return got;
  int how = atomic_load(&fault.how), error = atomic_load(&fault.error);
  if (how == MARK || how == MARK_FAIL) atomic_store(&fault.reached, true);
  if (how == CANCEL || how == STALL) insitu_loader_cancel(atomic_load(&fault.loader));
  if (how == SIGNAL) pthread_kill(fault.main, SIGUSR1);
  while (how == STALL && !atomic_load(&fault.release)) usleep(100);
  if (how == FAIL || how == MARK_FAIL) {
    if (opening) close((int)got);
    if ((error != EINTR && error != EAGAIN) || last) damage_add(path, error == ENOENT);
    return -error;
  }
  if (opening || how >= CANCEL) return got;
  int64_t keep = how == EMPTY ? 0 : (got + 1) / 2, at = 0;
  for (; at < got; at += (int64_t)iov->iov_len, iov++)
    for (int64_t i = 0; i < (int64_t)iov->iov_len && at + i < got; i++)
      if (at + i >= keep) ((unsigned char *)iov->iov_base)[i] = 0xa5;
  if (how != SHORT && keep < got) damage_add(path, false);
  if (how == CUT && keep < got) is_cut(op, true);
  return keep;
}

/* ---- archives ---- */
/* the first 16 samples are train, the others val; no chunk holds both */
enum { SAMPLES = 24, TRAIN = 16, BATCH = 4 };
struct kind {
  struct support_array a[2];
  insitu_variable v[2];
  uint64_t n_variables;
  bool bare, manifest; /* bare: metadata of the arrays only, so that the root is found by listing */
  char root[512], manifest_path[512];
  int64_t anchors[2][2][SAMPLES]; /* split, epoch: the order without faults */
  uint64_t rows[2], batches[2];
};
enum { KINDS = 3 };
static struct kind kinds[KINDS] = {
    /* rows read straight into batches, for two variables */
    {.a = {{.name = "a",
         .ndim = 2,
         .shape = {SAMPLES, 600},
         .chunk = {4, 600},
         .dtype = INSITU_F32,
         .format = 2}},
        .v = {{.label = "x", .path = "a"}, {.label = "y", .path = "a", .offset = 1}},
        .n_variables = 2},
    /* zstd in several fields, and small raw chunks of another array */
    {.a = {{.name = "a",
               .ndim = 3,
               .shape = {SAMPLES, 5, 6},
               .chunk = {4, 3, 6},
               .dtype = INSITU_I16,
               .format = 3,
               .big = true,
               .zstd = true,
               .absent = 5},
         {.name = "sub/b",
             .ndim = 1,
             .shape = {SAMPLES},
             .chunk = {2},
             .dtype = INSITU_F64,
             .format = 3}},
        .v = {{.label = "x", .path = "a", .dtype = INSITU_F32}, {.label = "y", .path = "sub/b"}},
        .n_variables = 2},
    /* column-major and compressed: through a scratch of whole chunks; a root without metadata; a
     * manifest */
    {.a = {{.name = "a",
         .ndim = 2,
         .shape = {SAMPLES, 20},
         .chunk = {4, 7},
         .dtype = INSITU_F64,
         .format = 2,
         .fortran = true,
         .zstd = true}},
        .v = {{.label = "a"}},
        .n_variables = 1,
        .bare = true,
        .manifest = true}};
static const struct support_array *array_of(const struct kind *k, uint64_t i) {
  return strcmp(k->v[i].path ? k->v[i].path : k->v[i].label, k->a[0].name) ? &k->a[1] : &k->a[0];
}

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}
static insitu_loader_desc desc_of(const struct kind *k, int m, int32_t on_bad) {
  insitu_loader_desc d = {.api = INSITU_API,
      .url = k->root,
      .variables = k->v,
      .n_variables = k->n_variables,
      .batch_size = BATCH,
      .block_chunks = 4,
      .lanes = 2,
      .seed = 5,
      .on_bad_chunk = on_bad,
      .prefetch_depth = 2,
      .max_inflight = 3,
      .decode_threads = 2,
      .memory_budget = 64 << 20,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .log = quiet};
  if (k->manifest) d.manifest = k->manifest_path;
  else
    d.split[0] = (insitu_split_range){.fraction = (double)TRAIN / SAMPLES},
    d.split[1] = (insitu_split_range){.fraction = 1 - (double)TRAIN / SAMPLES};
  return d;
}

/* ---- one run: its name for messages, and the way out of a hang ---- */
static char context[300];
static const char *const site_names[] = {"nothing", "heap", "mmap", "stack", "zstd context",
    "pthread_create", "io_uring_setup", "event", "root", "list", "save", "wait", "open", "read",
    "cache"};
static const char *const how_names[] = {"fails", "is short", "is cut", "is empty", "cancels",
    "signals", "stalls", "closes", "fails and closes"};
static int saved_stderr = 2;

#define must(condition, ...)                                                                       \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      print_error("%s: ", context);                                                                \
      fail_msg(__VA_ARGS__);                                                                       \
    }                                                                                              \
  } while (0)

static void on_alarm(int signal) {
  (void)signal;
  ssize_t n = write(saved_stderr, "no end: ", 8);
  n = write(saved_stderr, context, strlen(context));
  n = write(saved_stderr, "\n", 1);
  (void)n;
  _exit(1);
}
static void on_cancel(int signal) {
  (void)signal;
  insitu_loader_cancel(atomic_load(&fault.loader));
}

struct baseline {
  int fds, threads, heap, maps, contexts;
};
static int entries(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}
static int threads(void) { /* of the loader: the kernel's workers stay for a while */
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *e; (e = readdir(dir));) {
    char path[300], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE *f = fopen(path, "r");
    if (f && fgets(name, sizeof name, f)) n += !strncmp(name, "insitu-", 7);
    if (f) fclose(f);
  }
  closedir(dir);
  return n;
}
static struct baseline take_baseline(void) {
  return (struct baseline){
      entries("/proc/self/fd"), threads(), live_heap, live_maps, live_contexts};
}
static void check_leaks(const struct baseline *before) {
  struct baseline now = take_baseline();
  /* a joined thread leaves the list a little later */
  for (int i = 0; i < 5000 && now.threads > before->threads; i++) {
    usleep(1000);
    now = take_baseline();
  }
  must(now.fds == before->fds, "%d descriptors, %d before", now.fds, before->fds);
  must(now.threads <= before->threads, "%d threads, %d before", now.threads, before->threads);
  must(now.heap == before->heap, "%d allocations, %d before", now.heap, before->heap);
  must(now.maps == before->maps, "%d mappings, %d before", now.maps, before->maps);
  must(now.contexts == before->contexts, "%d zstd contexts, %d before", now.contexts,
      before->contexts);
}

struct spec {
  int site, how, error;
};
static struct spec armed; /* or was last */
static void arm(const char *where, const struct spec *s, int n, bool forever) {
  armed = *s;
  snprintf(context, sizeof context, "%s: %s %s, %s, call %d%s", where, site_names[s->site],
      how_names[s->how], strerror(s->error), n, forever ? " and all after it" : "");
  alarm(100);
  n_damage = n_bad = n_absent = 0;
  fault.how = s->how;
  fault.error = s->error;
  fault.n = n;
  fault.count = fault.hits = 0;
  fault.forever = forever;
  fault.reached = fault.release = false;
  fault.site = s->site;
}
static void disarm(void) {
  fault.site = NONE;
}

/* ---- what must hold ---- */

/* The status is one that the fault may bring, and its message says what to do. */
static void check_error(insitu_status status, const insitu_error *err) {
  int site = armed.site, how = armed.how, error = armed.error;
  const char *name = insitu_status_name(status);
  must(status < 0 && err->status == status, "%s: the error holds %s", name,
      insitu_status_name(err->status));
  must(strchr(err->message, ';') && strlen(err->message) > 20, "%s: '%s' does not say what to do",
      name, err->message);
  must((error != EMFILE && error != ENFILE) || strstr(err->message, "ulimit -n"),
      "'%s' names no limit", err->message);
  must(fault.hits > 0, "%s without a fault: %s", name, err->message);
  bool memory = site == HEAP || site == MAP || site == STACK || site == CONTEXT || site == THREAD ||
                error == ENOMEM;
  bool file = site == OPEN || site == READ || site == LIST || site == ROOT;
  switch (status) {
  case INSITU_E_NOMEM: must(memory, "%s: %s", name, err->message); break;
  case INSITU_E_IO:
    must(site == EVENT || file || site == SAVE, "%s: %s", name, err->message);
    must(err->sys_errno == error, "errno %d: %s", err->sys_errno, err->message);
    break;
  case INSITU_E_UNSUPPORTED: must(site == SETUP, "%s: %s", name, err->message); break;
  case INSITU_E_NOTFOUND:
  case INSITU_E_NOT_ZARR: must(file && error == ENOENT, "%s: %s", name, err->message); break;
  case INSITU_E_JSON:
  case INSITU_E_FORMAT:
  case INSITU_E_CORRUPT: must(how == CUT || how == EMPTY, "%s: %s", name, err->message); break;
  default: must(false, "%s: %s", name, err->message);
  }
}
/* Does the library hide this fault? */
static bool invisible(const struct spec *s, bool forever) {
  bool file = s->site == OPEN || s->site == READ;
  return s->how == SHORT || s->site == ENTER ||
         (file && s->how == FAIL && (s->error == EINTR || s->error == EAGAIN) && !forever);
}

/* Is the chunk that holds this element among the damaged ones that may be filled? */
static bool may_be_fill(const struct support_array *a, const uint64_t *at, bool filling) {
  char path[64];
  uint64_t index[4];
  for (int d = 0; d < a->ndim; d++) index[d] = at[d] / a->chunk[d];
  support_chunk_path(path, sizeof path, "", a, index);
  bool found = false;
  pthread_mutex_lock(&damage_lock);
  for (int i = 0; i < n_damage && !found; i++)
    found = !strcmp(path + 1, damage[i].path) && (filling || damage[i].absent);
  pthread_mutex_unlock(&damage_lock);
  return found;
}
/* Every element is right, or the fill value where its chunk is a hole. Returns how many are fill.
 */
static uint64_t check_batch(const struct kind *k, const insitu_batch *b, bool filling) {
  uint64_t filled = 0;
  for (uint64_t i = 0; i < k->n_variables; i++) {
    const struct support_array *a = array_of(k, i);
    const insitu_array *out = &b->arrays[i];
    const unsigned char *p = out->data;
    uint64_t at[4] = {0}, per_row = 1, item = (uint64_t)(out->dtype & 0xff) / 8;
    for (int d = 1; d < a->ndim; d++) per_row *= a->shape[d];
    must(out->bytes == b->rows * per_row * item, "%d bytes", (int)out->bytes);
    for (uint64_t row = 0; row < b->rows; row++) {
      at[0] = (uint64_t)(b->sample_indices[row] + k->v[i].offset);
      if (!a->absent && support_differs(p, out->dtype, a, at[0] * per_row, 1, per_row) == per_row) {
        p += per_row * item;
        continue;
      }
      for (uint64_t n = 0; n < per_row; n++, p += item) {
        uint64_t rest = n;
        for (int d = a->ndim - 1; d > 0; rest /= a->shape[d--]) at[d] = rest % a->shape[d];
        double got = support_get(p, out->dtype), want = support_expect(a, at);
        if (got == want) continue;
        filled++;
        must(got == 0 && may_be_fill(a, at, filling),
            "epoch %d, batch %d, %s, row %d (sample %d), element %d: %g, not %g", (int)b->epoch,
            (int)b->index, k->v[i].label, (int)row, (int)at[0], (int)n, got, want);
      }
    }
  }
  return filled;
}
/* Forgets the damage to one split's chunks: what is delivered from now on must be right. */
static void forget_damage(const struct kind *k, int split) {
  pthread_mutex_lock(&damage_lock);
  for (int i = 0; i < n_damage;) {
    const struct support_array *a =
        k->a[1].name && !strncmp(damage[i].path, k->a[1].name, strlen(k->a[1].name)) ? &k->a[1]
                                                                                     : k->a;
    uint64_t chunk = strtoull(damage[i].path + strcspn(damage[i].path, "0123456789"), NULL, 10);
    if ((chunk * a->chunk[0] >= TRAIN) == (split == INSITU_VAL)) damage[i] = damage[--n_damage];
    else i++;
  }
  pthread_mutex_unlock(&damage_lock);
}

/* ---- the scenario ---- */
struct walk {
  const struct kind *kind;
  insitu_loader *ld;
  const struct spec *spec;
  bool forever, filling;
  int errors; /* seen so far */
};
struct pass {
  struct walk *walk;
  insitu_iter *it;
  int split;
};

static void check_place(
    const struct pass *p, const insitu_batch *b, uint64_t epoch, uint64_t index) {
  const struct kind *k = p->walk->kind;
  must(b->epoch == epoch && b->index == index, "epoch %d, batch %d came, not %d, %d", (int)b->epoch,
      (int)b->index, (int)epoch, (int)index);
  for (uint64_t r = 0; epoch < 2 && r < b->rows; r++)
    must(b->sample_indices[r] == k->anchors[p->split][epoch][index * BATCH + r],
        "another sample stands in row %d", (int)r);
  check_batch(k, b, p->walk->filling);
}
static void note_error(struct walk *w, insitu_status status, const insitu_error *err) {
  check_error(status, err);
  must(!invisible(w->spec, w->forever), "%s", err->message);
  must(!w->errors++ || w->forever, "one fault, and one more error: %s", err->message);
}
/* After an error of next: it is sticky; set_epoch clears it; without the fault the epoch is whole
 * and right from its start. */
static void recover(struct pass *p, insitu_status status, const insitu_error *first, uint64_t epoch,
    uint64_t upto) {
  insitu_batch *b;
  insitu_error err = {0};
  note_error(p->walk, status, first);
  must(
      insitu_iter_next(p->it, INSITU_FOREVER, &b, &err) == status && !b, "the error is not sticky");
  must(!strcmp(err.message, first->message), "'%s', then '%s'", first->message, err.message);
  /* leaves the epoch's start, where set_epoch keeps what is on its way, failing or not */
  if (p->walk->forever) {
    memset(&err, 0, sizeof err);
    status = insitu_iter_set_epoch(p->it, epoch, &err);
    if (status) check_error(status, &err);
    for (uint64_t i = 0; !status && i <= upto; i++) {
      memset(&err, 0, sizeof err);
      status = insitu_iter_next(p->it, INSITU_FOREVER, &b, &err);
      if (status) check_error(status, &err);
      else check_place(p, b, epoch, i);
      insitu_batch_release(&b);
    }
  }
  disarm();
  memset(&err, 0, sizeof err);
  status = insitu_iter_set_epoch(p->it, epoch, &err);
  must(!status, "set_epoch: %s", err.message);
  forget_damage(p->walk->kind, p->split);
  for (uint64_t i = 0; i < upto; i++) {
    status = insitu_iter_next(p->it, INSITU_FOREVER, &b, &err);
    must(!status, "batch %d after the fault is gone: %s: %s", (int)i, insitu_status_name(status),
        err.message);
    check_place(p, b, epoch, i);
    insitu_batch_release(&b);
  }
}
/* The batch that must come next, with or without a recovery. */
static insitu_batch *deliver(struct pass *p, uint64_t epoch, uint64_t index) {
  insitu_batch *b;
  for (int i = 0; i < 2; i++) {
    insitu_error err = {0};
    insitu_status status = insitu_iter_next(p->it, INSITU_FOREVER, &b, &err);
    if (status < 0 && !i) {
      recover(p, status, &err, epoch, index);
      continue;
    }
    must(!status && b, "epoch %d, batch %d: %s: %s", (int)epoch, (int)index,
        insitu_status_name(status), err.message);
    break;
  }
  check_place(p, b, epoch, index);
  return b;
}
static void expect_end(struct pass *p) {
  insitu_batch *b;
  insitu_status status = insitu_iter_next(p->it, INSITU_FOREVER, &b, NULL);
  must(status == INSITU_END && !b, "%s instead of the epoch's end", insitu_status_name(status));
}
static bool open_iter(struct pass *p) {
  for (int i = 0; i < 2; i++) {
    insitu_error err = {0};
    insitu_iter_desc d = {.api = INSITU_API, .split = p->split, .max_held = 4};
    insitu_status status = insitu_iter_open(p->walk->ld, &d, &p->it, &err);
    if (!status) return true;
    must(!p->it && !i, "iterator: %s", err.message);
    note_error(p->walk, status, &err);
    disarm();
  }
  return false;
}

/* An epoch of both splits, a little of the next, a restore, and the end with batches held. */
static void walk(const struct kind *k, const insitu_loader_desc *d, const struct spec *spec,
    bool forever, int turn) {
  struct walk w = {
      .kind = k, .spec = spec, .forever = forever, .filling = d->on_bad_chunk == INSITU_FILL};
  struct pass train = {&w, NULL, INSITU_TRAIN}, val = {&w, NULL, INSITU_VAL};
  struct baseline before = take_baseline();
  insitu_error err = {0};
  insitu_status status = insitu_loader_open(d, &w.ld, &err);
  if (status) {
    must(!w.ld, "a loader came with an error");
    note_error(&w, status, &err);
    disarm();
    check_leaks(&before);
    return;
  }
  open_iter(&train);
  open_iter(&val);
  insitu_batch *held[4] = {0}, *b;
  uint64_t n = k->batches[INSITU_TRAIN];
  for (uint64_t i = 0; i < n; i++) {
    b = deliver(&train, 0, i);
    if (!i) held[0] = b;
    else insitu_batch_release(&b);
  }
  insitu_state after_first = held[0]->after;
  expect_end(&train);
  held[1] = deliver(&train, 1, 0);
  held[2] = deliver(&train, 1, 1);
  for (uint64_t i = 0; i < k->batches[INSITU_VAL]; i++) {
    b = deliver(&val, 0, i);
    insitu_batch_release(&b);
  }
  expect_end(&val);
  memset(&err, 0, sizeof err);
  status = insitu_iter_restore(train.it, &after_first, &err);
  if (status) {
    note_error(&w, status, &err);
    disarm();
    must(!insitu_iter_restore(train.it, &after_first, NULL),
        "cannot restore after the fault is gone");
  }
  held[3] = deliver(&train, 0, 1);
  if (turn % 2) {
    insitu_stats stats;
    insitu_iter_close(&val.it);
    insitu_iter_close(&train.it);
    must(!insitu_loader_stats(w.ld, &stats, NULL), "no stats");
    must(!stats.slab_bytes && !w.ld->budget.reserved,
        "%d bytes of batches, %d of the budget are taken", (int)stats.slab_bytes,
        (int)w.ld->budget.reserved);
    must(stats.bad_chunks == (uint64_t)(w.filling ? n_bad : 0), "%d bad chunks, not %d",
        (int)stats.bad_chunks, n_bad);
    if (!k->a[0].absent)
      must(stats.absent_chunks == (uint64_t)n_absent, "%d absent, not %d", (int)stats.absent_chunks,
          n_absent);
  }
  insitu_loader_close(&w.ld);
  must(!w.ld, "close left the handle");
  insitu_iter_close(&val.it); /* handles that outlive the loader */
  insitu_iter_close(&train.it);
  for (int i = 0; i < 4; i++) {
    if (!w.errors) check_batch(k, held[i], w.filling);
    insitu_batch_release(&held[i]);
  }
  check_leaks(&before);
}

/* ---- tests ---- */
static const struct spec specs[] = {{HEAP, FAIL, ENOMEM}, {MAP, FAIL, ENOMEM},
    {STACK, FAIL, ENOMEM}, {CONTEXT, FAIL, ENOMEM}, {THREAD, FAIL, EAGAIN}, {SETUP, FAIL, EPERM},
    {SETUP, FAIL, ENOSYS}, {SETUP, FAIL, ENOMEM}, {EVENT, FAIL, EMFILE}, {EVENT, FAIL, ENFILE},
    {ROOT, FAIL, EMFILE}, {ROOT, FAIL, EACCES}, {ROOT, FAIL, ENOENT}, {LIST, FAIL, EMFILE},
    {LIST, FAIL, EACCES}, {LIST, FAIL, EIO}, {LIST, FAIL, ENOMEM}, {ENTER, FAIL, EAGAIN},
    {ENTER, FAIL, EBUSY}, {ENTER, FAIL, EINTR}, {OPEN, FAIL, EMFILE}, {OPEN, FAIL, ENFILE},
    {OPEN, FAIL, EACCES}, {OPEN, FAIL, EIO}, {OPEN, FAIL, EINTR}, {OPEN, FAIL, EAGAIN},
    {OPEN, FAIL, ENOENT}, {READ, FAIL, EIO}, {READ, FAIL, EINTR}, {READ, FAIL, EAGAIN},
    {READ, FAIL, ESTALE}, {READ, SHORT, 1}, {READ, CUT, 1}, {READ, EMPTY, 1},
    {CACHE, FAIL, EAGAIN}};
enum { SPECS = sizeof specs / sizeof *specs };

static bool slow(void) {
#if defined(INSITU__ASAN) || defined(INSITU__TSAN)
  return true;
#else
  return getenv("TEST_VALGRIND");
#endif
}
static int depth(void) {
  const char *text = getenv("FAULT_DEPTH");
  return text ? atoi(text) : slow() ? 4 : 40;
}
/* Calls of one kind, each in turn; no more than `calls`, which becomes their number once it is
 * known. The specs that share a site take turns at them, but for the first calls in one mode. */
static void each_call(const struct kind *k, int m, int32_t on_bad, const struct spec *spec,
    bool forever, int *calls) {
  char where[100];
  int siblings = 0, mine = 0, turn = 0;
  for (int i = 0; i < SPECS; i++) {
    if (&specs[i] == spec) mine = siblings;
    siblings += specs[i].site == spec->site;
  }
  snprintf(where, sizeof where, "archive %d, %s, %s", (int)(k - kinds), modes[m].name,
      on_bad == INSITU_FILL ? "fill" : "raise");
  bool few = getenv("TEST_VALGRIND") && !getenv("FAULT_DEPTH");
  int each = few ? 1 : depth(), part = few ? 1 : slow() ? 2 : 8;
  for (int n = 1; n <= *calls; n += n < each ? 1 : 1 + n / part) {
    if ((turn++ + m) % siblings != mine && (m != INLINE_EPOLL || n > depth() / 8)) continue;
    arm(where, spec, n, forever);
    insitu_loader_desc d = desc_of(k, m, on_bad);
    walk(k, &d, spec, forever, turn);
    disarm();
    if (!fault.hits && !forever) *calls = n;
    if (!fault.hits) break;
  }
}
/* Under Valgrind threaded and inline loaders take turns; a loader that is inline races with nobody.
 */
static bool has_turn(int k, int m) {
#ifdef INSITU__TSAN
  if (modes[m].inline_io) return false;
#endif
  return !getenv("TEST_VALGRIND") || (k + m / 2) % 2;
}
static void each_fault(int k) {
  EACH_MODE (m) {
    if (!has_turn(k, m)) continue;
    int calls[CACHE + 1];
    for (int i = 0; i <= CACHE; i++) calls[i] = INT_MAX;
    for (int i = 0; i < SPECS; i++)
      for (int forever = 0; forever < 2; forever++) {
        const struct spec *s = &specs[i];
        /* a ring that lets nobody in any more is waited for */
        if (forever && s->site == ENTER) continue;
        each_call(&kinds[k], m, INSITU_RAISE, s, forever, &calls[s->site]);
        if (s->site == OPEN || s->site == READ)
          each_call(&kinds[k], m, INSITU_FILL, s, forever, &calls[s->site]);
      }
  }
}
static void test_direct(void **state) {
  (void)state;
  each_fault(0);
}
static void test_compressed(void **state) {
  (void)state;
  each_fault(1);
}
static void test_whole_chunks(void **state) {
  (void)state;
  each_fault(2);
}

/* Without a word about io, io_uring that fails is not missed. */
static void test_fallback(void **state) {
  (void)state;
  char *forced = getenv("INSITU_IO");
  if (forced) return;
  for (int n = 1; n < 10; n++) {
    struct spec spec = {SETUP, FAIL, EPERM};
    arm("no backend asked for", &spec, n, false);
    insitu_loader_desc d = desc_of(&kinds[0], EPOLL, 0);
    insitu_stats stats;
    insitu_loader *ld;
    d.io = INSITU_AUTO;
    must(!insitu_loader_open(&d, &ld, NULL) && !insitu_loader_stats(ld, &stats, NULL),
        "cannot open");
    if (fault.hits) must(!strcmp(stats.io, "epoll"), "%s", stats.io);
    insitu_loader_close(&ld);
    d.io = INSITU_AUTO;
    arm("no backend asked for", &spec, n, false);
    /* as a spec that may bring no error */
    walk(&kinds[0], &d, &(struct spec){ENTER, FAIL, EINTR}, false, n);
    if (!fault.hits) break;
  }
  disarm();
}

/* One chunk fails at each try: the batches before the first that wants it come, that one is an
 * error that names it, or its rows alone are fill and counted. */
static void test_one_chunk(void **state) {
  (void)state;
  static const struct spec ways[] = {
      {OPEN, FAIL, EIO}, {READ, FAIL, EIO}, {READ, CUT, 1}, {READ, EMPTY, 1}, {OPEN, FAIL, ENOENT}};
  const struct kind *k = &kinds[0];
  EACH_MODE (m)
    for (int way = 0; way < 5; way++)
      for (uint64_t c = 0; c < TRAIN / 4; c++)
        for (int32_t policy = INSITU_RAISE; policy <= INSITU_FILL; policy++) {
          char key[16];
          bool absent = ways[way].error == ENOENT;
          struct baseline before = take_baseline();
          insitu_loader_desc d = desc_of(k, m, policy);
          d.n_variables = 1;
          d.on_absent_chunk = policy;
          sprintf(key, "a/%d.0", (int)c);
          atomic_store(&fault.path, key);
          arm(modes[m].name, &ways[way], 1, true);
          insitu_loader *ld;
          insitu_iter *it = NULL;
          insitu_batch *b;
          insitu_error err = {0};
          insitu_iter_desc id = {.api = INSITU_API};
          must(!insitu_loader_open(&d, &ld, &err) && !insitu_iter_open(ld, &id, &it, &err), "%s",
              err.message);
          uint64_t first = 0, n_first = 0, filled = 0, batches = TRAIN / BATCH, i = 0;
          struct kind one = *k;
          one.n_variables = 1;
          int64_t anchor[TRAIN];
          for (uint64_t r = 0; r < TRAIN; r++)
            assert_int_equal(
                insitu_iter_locate(it, 0, r / BATCH, r % BATCH, &anchor[r], NULL), INSITU_OK);
          while (first < TRAIN && (uint64_t)anchor[first] / 4 != c) first++;
          n_first = first / BATCH;
          insitu_status status;
          for (; !(status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)); i++) {
            must(b->index == i, "batch %d, not %d", (int)b->index, (int)i);
            filled += check_batch(&one, b, policy == INSITU_FILL);
            insitu_batch_release(&b);
          }
          if (policy == INSITU_FILL) {
            insitu_stats stats;
            must(status == INSITU_END && i == batches, "%s: %s", insitu_status_name(status),
                err.message);
            /* element 0 is 0 anyway */
            must(filled == 4 * 600 - (c == 0), "%d elements are fill", (int)filled);
            assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
            uint64_t now = absent ? stats.absent_chunks : stats.bad_chunks,
                     other = absent ? stats.bad_chunks : stats.absent_chunks;
            /* the next epoch may be under way */
            must(now >= 1 && now <= 2 && !other, "%d holes", (int)now);
          } else {
            insitu_status want = absent                  ? INSITU_E_ABSENT
                                 : ways[way].how == FAIL ? INSITU_E_IO
                                                         : INSITU_E_CORRUPT;
            must(status == want, "%s: %s", insitu_status_name(status), err.message);
            must(i == n_first, "%d batches came before the error, not %d", (int)i, (int)n_first);
            must(strstr(err.message, key) && strstr(err.message, "array a") &&
                     strchr(err.message, ';'),
                "'%s'", err.message);
          }
          insitu_loader_close(&ld);
          insitu_iter_close(&it);
          disarm();
          atomic_store(&fault.path, NULL);
          check_leaks(&before);
        }
}

/* A misspelt name is listed against: whatever fails meanwhile, the loader says that it is not
 * there, or why it cannot know. */
static void test_near_names(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < KINDS; k++)
      for (int i = 0; i < SPECS; i++) {
        int site = specs[i].site;
        if (!has_turn(k, m)) continue;
        if (site != HEAP && site != LIST && site != OPEN && site != READ) continue;
        for (int n = 1;; n += 1 + n / (slow() ? 3 : 16)) {
          struct baseline before = take_baseline();
          insitu_loader_desc d = desc_of(&kinds[k], m, 0);
          insitu_variable v = {.label = "b", .path = "aa"};
          insitu_error err = {0};
          insitu_loader *ld;
          d.variables = &v;
          d.n_variables = 1;
          arm(modes[m].name, &specs[i], n, n % 2);
          insitu_status status = insitu_loader_open(&d, &ld, &err);
          must(status < 0 && !ld, "opened");
          if (status != INSITU_E_NOTFOUND || !strstr(err.message, "no array 'aa'"))
            check_error(status, &err);
          disarm();
          check_leaks(&before);
          if (!fault.hits) break;
        }
      }
}

/* A manifest that cannot be written leaves the old one and no other file. */
static void test_manifest_save(void **state) {
  (void)state;
  char folder[512], path[600], was[2000] = "", now[2000];
  snprintf(folder, sizeof folder, "%s", support_path("saved"));
  snprintf(path, sizeof path, "%s/m.json", folder);
  support_write(path, "old", 3);
  strcpy(was, "old");
  EACH_MODE (m)
    for (int n = 1;; n++) {
      struct baseline before = take_baseline();
      insitu_loader_desc d = desc_of(&kinds[0], m, 0);
      insitu_error err = {0};
      insitu_loader *ld;
      disarm();
      must(!insitu_loader_open(&d, &ld, NULL), "open");
      int site = n % 2 ? SAVE : HEAP;
      arm("manifest", &(struct spec){site, FAIL, site == SAVE ? ENOSPC : ENOMEM}, (n + 1) / 2,
          false);
      insitu_status status = insitu_manifest_save(ld, path, &err);
      must(!status == !fault.hits, "%s", insitu_status_name(status));
      if (status) check_error(status, &err);
      disarm();
      insitu_loader_close(&ld);
      must(entries(folder) == 3, "more files than the manifest");
      FILE *f = fopen(path, "r");
      now[fread(now, 1, sizeof now - 1, f)] = 0;
      fclose(f);
      must(status ? !strcmp(now, was) : !strncmp(now, "{", 1), "'%s' stands there", now);
      strcpy(was, now);
      check_leaks(&before);
      if (!status && n > 12) break;
    }
}

/* Cancelled at any moment, from any thread and from a signal handler: next says so from then on,
 * and close returns. */
static void test_cancel(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < KINDS; k++)
      for (int how = CANCEL; how <= STALL; how++)
        for (int n = 1; n <= depth(); n += 1 + n / 8) {
          if (how == STALL && m != EPOLL)
            /* elsewhere it is the caller's own thread, or the reactor, that would stall */
            continue;
          struct baseline before = take_baseline();
          struct walk w = {.kind = &kinds[k]};
          insitu_loader_desc d = desc_of(&kinds[k], m, 0);
          if (how == STALL) d.max_inflight = 1; /* no other read wakes the reactor */
          insitu_batch *b = NULL, *held = NULL;
          insitu_status status = INSITU_OK;
          must(!insitu_loader_open(&d, &w.ld, NULL), "open");
          atomic_store(&fault.loader, w.ld);
          arm(modes[m].name, &(struct spec){READ, how, 1}, n, false);
          struct pass train = {&w, NULL, INSITU_TRAIN}, val = {&w, NULL, INSITU_VAL};
          open_iter(&train);
          open_iter(&val);
          for (uint64_t i = 0; i < 3 * kinds[k].batches[0]; i++) {
            while ((status = insitu_iter_next(train.it, INSITU_FOREVER, &b, NULL)) == INSITU_END)
              continue;
            if (status) break;
            check_place(&train, b, i / kinds[k].batches[0], i % kinds[k].batches[0]);
            insitu_batch_release(&held);
            held = b;
          }
          if (fault.hits) {
            while ((status = insitu_iter_next(train.it, INSITU_FOREVER, &b, NULL)) == INSITU_OK ||
                   status == INSITU_END)
              insitu_batch_release(&b);
            must(status == INSITU_CANCELLED && !b, "%s", insitu_status_name(status));
            must(insitu_iter_next(val.it, INSITU_FOREVER, &b, NULL) == INSITU_CANCELLED,
                "the other iterator goes on");
          } else must(!status, "%s", insitu_status_name(status));
          bool hit = fault.hits;
          atomic_store(&fault.release, true);
          disarm();
          if (n % 3 == 1) insitu_iter_close(&train.it);
          insitu_loader_close(&w.ld);
          insitu_iter_close(&train.it);
          insitu_iter_close(&val.it);
          if (held) check_batch(&kinds[k], held, false);
          insitu_batch_release(&held);
          check_leaks(&before);
          if (!hit) break;
        }
}

/* Closed at any moment, also while reads fail. */
static void test_close(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < KINDS; k++)
      for (int how = MARK; how <= MARK_FAIL; how++)
        for (int n = 1; n <= depth(); n += 1 + n / 8) {
          struct baseline before = take_baseline();
          struct walk w = {.kind = &kinds[k]};
          insitu_loader_desc d = desc_of(&kinds[k], m, how == MARK ? INSITU_RAISE : 1 + n % 2);
          w.filling = d.on_bad_chunk == INSITU_FILL;
          insitu_batch *b = NULL, *held = NULL;
          insitu_status status = 0;
          must(!insitu_loader_open(&d, &w.ld, NULL), "open");
          arm(modes[m].name, &(struct spec){n % 4 < 2 ? READ : OPEN, how, EIO}, n, true);
          struct pass train = {&w, NULL, INSITU_TRAIN}, val = {&w, NULL, INSITU_VAL};
          open_iter(&train);
          open_iter(&val);
          for (uint64_t i = 0; i < 2 * kinds[k].batches[0] && !fault.reached && status >= 0;) {
            status = insitu_iter_next(train.it, modes[m].inline_io ? 0 : 1, &b, NULL);
            if (status) continue;
            check_place(&train, b, i / kinds[k].batches[0], i % kinds[k].batches[0]);
            insitu_batch_release(&held);
            held = b;
            i++;
          }
          bool hit = fault.hits;
          if (n % 3 == 1) insitu_iter_close(&train.it);
          if (n % 3 == 2) insitu_iter_close(&val.it);
          insitu_loader_close(&w.ld);
          insitu_iter_close(&train.it);
          insitu_iter_close(&val.it);
          if (held) check_batch(&kinds[k], held, w.filling);
          insitu_batch_release(&held);
          disarm();
          check_leaks(&before);
          if (!hit) break;
        }
}

/* Closed while memory is refused for good. */
static void test_close_without_memory(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < KINDS; k++)
      for (int site = HEAP; site <= CONTEXT; site++)
        for (int n = 1; n <= depth() / 4; n++) {
          struct baseline before = take_baseline();
          struct spec spec = {site, FAIL, ENOMEM};
          struct walk w = {.kind = &kinds[k], .spec = &spec, .forever = true};
          insitu_loader_desc d = desc_of(&kinds[k], m, 0);
          insitu_iter_desc id = {.api = INSITU_API};
          insitu_batch *b;
          insitu_status status;
          must(!insitu_loader_open(&d, &w.ld, NULL), "open");
          struct pass train = {&w, NULL, INSITU_TRAIN};
          arm(modes[m].name, &spec, n, true);
          if (!insitu_iter_open(w.ld, &id, &train.it, NULL))
            for (int tries = 0; tries < 3; tries++) {
              insitu_error err = {0};
              while (!(status = insitu_iter_next(train.it, INSITU_FOREVER, &b, &err))) {
                check_place(&train, b, b->epoch, b->index);
                insitu_batch_release(&b);
              }
              if (status < 0) note_error(&w, status, &err);
              memset(&err, 0, sizeof err);
              status = insitu_iter_set_epoch(train.it, 0, &err);
              if (status) note_error(&w, status, &err);
            }
          if (n % 2) insitu_iter_close(&train.it);
          insitu_loader_close(&w.ld);
          insitu_iter_close(&train.it);
          disarm();
          check_leaks(&before);
        }
}

/* What only computes needs memory too. */
static void test_plans(void **state) {
  (void)state;
  insitu_loader_desc d = desc_of(&kinds[1], INLINE_EPOLL, 0);
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_order_desc od = {
      .api = INSITU_API, .units = 10, .unit_rows = 8, .global_batch = 8, .lanes = 2, .window = 2};
  insitu_plan plan;
  insitu_quality quality;
  insitu_order *order;
  int64_t anchor;
  insitu_loader *ld;
  insitu_iter *it = NULL;
  must(!insitu_loader_open(&d, &ld, NULL) && !insitu_iter_open(ld, &id, &it, NULL), "open");
  for (int call = 0; call < 4; call++)
    for (int n = 1;; n++) {
      struct baseline before = take_baseline();
      insitu_error err = {0};
      arm("plans", &(struct spec){HEAP, FAIL, ENOMEM}, n, true);
      insitu_status status = call == 0   ? insitu_loader_plan(ld, &id, &plan, &err)
                             : call == 1 ? insitu_loader_quality(ld, &id, &quality, &err)
                             : call == 2 ? insitu_iter_locate(it, 0, 0, 0, &anchor, &err)
                                         : insitu_order_open(&od, &order, &err);
      must(!status == !fault.hits, "%s", insitu_status_name(status));
      if (status) check_error(status, &err);
      else if (call == 3) insitu_order_close(&order);
      disarm();
      check_leaks(&before);
      if (!status) break;
      must(n < 100, "no end of calls");
    }
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}

/* Without memory for it, an iterator shows as many steps as before. */
static void test_steps(void **state) {
  (void)state;
  static const int64_t steps[] = {0, 3, 1};
  const insitu_variable v[] = {{.label = "x", .path = "a", .steps = steps, .n_steps = 3},
      {.label = "y", .path = "a", .steps = steps, .n_steps = 2}};
  EACH_MODE (m)
    for (int site = HEAP; site <= STACK; site++)
      for (int n = 1, shown = 2;; n++) {
        struct baseline before = take_baseline();
        insitu_loader_desc d = desc_of(&kinds[0], m, 0);
        insitu_iter_desc id = {.api = INSITU_API};
        insitu_loader *ld = NULL;
        insitu_iter *it = NULL;
        insitu_batch *b;
        insitu_error err = {0};
        d.variables = v;
        d.hold_epoch = 1; /* so that nothing else takes memory */
        must(!insitu_loader_open(&d, &ld, &err) && !insitu_iter_open(ld, &id, &it, &err), "open");
        must(!insitu_iter_set_steps(it, "x", 2, &err), "%s", err.message);
        while (!insitu_iter_next(it, INSITU_FOREVER, &b, &err)) insitu_batch_release(&b);
        arm(modes[m].name, &(struct spec){site, FAIL, ENOMEM}, n, true);
        insitu_status status = insitu_iter_set_steps(it, "x", 1, &err);
        bool hit = fault.hits;
        must(!status || hit, "%s", err.message); /* it may do without some of it */
        if (status) check_error(status, &err);
        disarm();
        shown = status ? 2 : 1;
        while (!insitu_iter_next(it, INSITU_FOREVER, &b, &err)) {
          const float *x = b->arrays[0].data, *y = b->arrays[1].data;
          must(b->arrays[0].shape[1] == shown && b->arrays[1].shape[1] == 2, "another shape");
          for (uint64_t r = 0; r < b->rows; r++)
            for (int k = 0; k < 2; k++) {
              uint64_t at[] = {(uint64_t)(b->sample_indices[r] + steps[k]), 599};
              float want = (float)support_expect(&kinds[0].a[0], at);
              must(k >= shown || x[(r * (uint64_t)shown + (uint64_t)k) * 600 + 599] == want, "x");
              must(y[(r * 2 + (uint64_t)k) * 600 + 599] == want, "y");
            }
          insitu_batch_release(&b);
        }
        insitu_iter_close(&it);
        insitu_loader_close(&ld);
        check_leaks(&before);
        if (!hit) break;
        must(n < 100, "no end of calls");
      }
}

/* The anchors of the next n batches. Returns false where the faults since arm() left one of them
 * without memory, which only may_fail allows. */
static bool next_anchors(insitu_iter *it, int n, int64_t *to, bool may_fail) {
  for (int i = 0; i < n; i++) {
    insitu_batch *b = NULL;
    insitu_error err = {0};
    insitu_status status;
    while ((status = insitu_iter_next(it, INSITU_FOREVER, &b, &err)) == INSITU_END) {}
    if (may_fail && fault.hits && status == INSITU_E_NOMEM) return false;
    must(!status, "%s", err.message);
    memcpy(to, b->sample_indices, b->rows * sizeof *to);
    to += b->rows;
    insitu_batch_release(&b);
  }
  return true;
}

/* Without memory for the order of a state, an iterator goes on with its own. The first state needs
 * more batches than the iterator has, the second one fewer, the third one those that the second one
 * did not need. */
static void test_other_order(void **state) {
  (void)state;
  enum { STATES = 3, SOME = 3 };
  static const struct { uint64_t unit, block; } other[STATES] = {{3, 12}, {1, 1}, {2, 12}};
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(&kinds[0], m, 0);
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
    insitu_state after[STATES];
    int64_t want[STATES][SOME * 64], own[SOME * 64], got[SOME * 64];
    insitu_loader *ld = NULL;
    insitu_iter *it = NULL;
    insitu_error err = {0};
    d.batch_size = 4;
    d.lanes = 1;
    d.hold_epoch = 1;
    for (int i = 0; i <= STATES; i++) {
      insitu_loader_desc e = d;
      insitu_batch *b = NULL;
      if (i < STATES) e.unit_chunks = other[i].unit;
      e.block_chunks = i < STATES ? other[i].block : 4;
      must(!insitu_loader_open(&e, &ld, &err) && !insitu_iter_open(ld, &id, &it, &err), "%s",
          err.message);
      must(!insitu_iter_next(it, INSITU_FOREVER, &b, &err), "%s", err.message);
      if (i < STATES) after[i] = b->after;
      insitu_batch_release(&b);
      next_anchors(it, SOME, i < STATES ? want[i] : own, false);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    d.block_chunks = 0;
    d.unit_chunks = 0;
    for (int site = HEAP; site <= STACK; site++)
      for (int n = 1, which = 0;; n++) {
        struct baseline before = take_baseline();
        insitu_stats stats[2];
        must(!insitu_loader_open(&d, &ld, &err) && !insitu_iter_open(ld, &id, &it, &err), "%s",
            err.message);
        for (int i = 0; i < which; i++) {
          must(!insitu_iter_restore(it, &after[i], &err), "%s", err.message);
          next_anchors(it, SOME, got, false);
        }
        int at = which ? which - 1 : STATES; /* the order that it has */
        if (at == STATES) {
          insitu_batch *b = NULL;
          must(!insitu_iter_next(it, INSITU_FOREVER, &b, &err), "%s", err.message);
          insitu_batch_release(&b);
          next_anchors(it, SOME, own, false);
          must(!insitu_iter_set_epoch(it, 0, &err), "%s", err.message);
          must(!insitu_iter_next(it, INSITU_FOREVER, &b, &err), "%s", err.message);
          insitu_batch_release(&b);
        } else {
          must(!insitu_iter_restore(it, &after[at], &err), "%s", err.message);
        }
        must(!insitu_loader_stats(ld, &stats[0], &err), "%s", err.message);
        arm(modes[m].name, &(struct spec){site, FAIL, ENOMEM}, n, true);
        insitu_status status = insitu_iter_restore(it, &after[which], &err);
        if (status) check_error(status, &err);
        disarm();
        must(!insitu_loader_stats(ld, &stats[1], &err), "%s", err.message);
        must(!status || stats[1].memory_promised == stats[0].memory_promised, "bytes promised");
        const int64_t *then = at == STATES ? own : want[at];
        if (!status) then = want[which];
        if (next_anchors(it, SOME, got, true))
          must(!memcmp(got, then, SOME * 4 * sizeof *got), "the order: %s",
              status ? "its own" : "the state's");
        must(!insitu_iter_restore(it, &after[which], &err), "%s", err.message); /* with memory */
        next_anchors(it, SOME, got, false);
        must(!memcmp(got, want[which], SOME * 4 * sizeof *got), "the order of the state");
        insitu_iter_close(&it);
        insitu_loader_close(&ld);
        check_leaks(&before);
        must(n < 200, "no end of calls");
        if (fault.hits) continue;
        if (++which == STATES) break;
        n = 0;
      }
  }
}

/* A loader that draws along several axes opens, plans and delivers a batch, or says what it lacks.
 * Both axes have units of many sizes. */
static void test_axes(void **state) {
  (void)state;
  const insitu_variable v[] = {
      {.label = "x", .path = "a"}, {.label = "y", .path = "a", .offset = 1}};
  const insitu_axis axes[] = {{.axis = 1, .start = 1, .stride = 7}, {.axis = 0, .stride = 3}};
  for (int n = 1;; n++) {
    struct baseline before = take_baseline();
    insitu_loader_desc d = desc_of(&kinds[0], INLINE_EPOLL, 0);
    insitu_iter_desc id = {.api = INSITU_API};
    insitu_plan plan;
    insitu_loader *ld = NULL;
    insitu_iter *it = NULL;
    insitu_batch *b = NULL;
    insitu_error err = {0};
    d.variables = v;
    d.n_variables = 2;
    d.axes = axes;
    d.n_axes = 2;
    d.split_axis = 1;
    d.manifest = NULL;
    d.split_shuffled = 1;
    arm("several axes", &(struct spec){HEAP, FAIL, ENOMEM}, n, true);
    insitu_status status = insitu_loader_open(&d, &ld, &err);
    if (!status) status = insitu_loader_plan(ld, &id, &plan, &err);
    if (!status) status = insitu_iter_open(ld, &id, &it, &err);
    if (!status) status = insitu_iter_next(it, INSITU_FOREVER, &b, &err);
    bool hit = fault.hits;
    must(!status || hit, "%s", err.message); /* it may do without some of it */
    if (status) check_error(status, &err);
    disarm();
    insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    check_leaks(&before);
    if (!hit) break;
    must(n < 1000, "no end of calls");
  }
}

/* ---- shards, and arrays read whole: a call fails once; the outcome is right, or one clear error
 * and right the next time ---- */
static const struct support_array sharded = {.name = "s",
    .ndim = 3,
    .shape = {SAMPLES, 5, 6},
    .chunk = {2, 3, 6},
    .dtype = INSITU_F32,
    .format = 3,
    .zstd = true,
    .shard = {4, 2, 1},
    .index_crc = true};
static const insitu_variable sharded_v = {.label = "s"};
static const struct spec once[] = {{HEAP, FAIL, ENOMEM}, {MAP, FAIL, ENOMEM}, {STACK, FAIL, ENOMEM},
    {CONTEXT, FAIL, ENOMEM}, {OPEN, FAIL, EMFILE}, {OPEN, FAIL, EIO}, {OPEN, FAIL, EINTR},
    {READ, FAIL, EIO}, {READ, FAIL, EAGAIN}, {READ, SHORT, 1}, {READ, CUT, 1}, {READ, EMPTY, 1},
    {CACHE, FAIL, EAGAIN}};
enum { ONCE = sizeof once / sizeof *once };

/* An epoch of the train split; how many of its batches came right before its end or an error. */
static uint64_t sharded_epoch(insitu_iter *it, insitu_status *status, insitu_error *err) {
  uint64_t n = 0;
  insitu_batch *b;
  memset(err, 0, sizeof *err);
  for (; !(*status = insitu_iter_next(it, INSITU_FOREVER, &b, err)); n++) {
    support_check_array(b, 0, &sharded_v, &sharded, 0);
    insitu_batch_release(&b);
  }
  return n;
}
static insitu_loader_desc sharded_desc(const char *root, int m) {
  struct kind k = {.n_variables = 1};
  insitu_loader_desc d = desc_of(&k, m, INSITU_RAISE);
  d.url = root;
  d.variables = &sharded_v;
  d.max_inflight = 8;
  d.hold_epoch = 1;
  return d;
}
static void test_shards(void **state) {
  (void)state;
  const char *root = support_path("sharded");
  support_make(root, &sharded);
  EACH_MODE (m)
    for (int i = 0; i < ONCE; i++)
      for (int n = 1;; n += n < depth() ? 1 : n) {
        struct baseline before = take_baseline();
        insitu_loader_desc d = sharded_desc(root, m);
        insitu_loader *ld = NULL;
        insitu_iter *it = NULL;
        insitu_error err = {0};
        arm(modes[m].name, &once[i], n, false);
        insitu_status status = insitu_loader_open(&d, &ld, &err);
        if (!status)
          status = insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err);
        bool opened = !status;
        if (opened && sharded_epoch(it, &status, &err) == TRAIN / BATCH)
          must(status == INSITU_END, "%s", err.message);
        if (status < 0) check_error(status, &err);
        int hits = fault.hits;
        disarm();
        if (opened && status < 0) {
          assert_int_equal(insitu_iter_set_epoch(it, 0, NULL), INSITU_OK);
          must(sharded_epoch(it, &status, &err) == TRAIN / BATCH && status == INSITU_END,
              "then: %s", err.message);
        }
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        check_leaks(&before);
        if (!hits) break;
      }
  support_remove(root);
}
static void test_read(void **state) {
  (void)state;
  const char *root = support_path("whole");
  static float whole[SAMPLES * 5 * 6];
  support_make(root, &sharded);
  EACH_MODE (m) {
    insitu_loader_desc d = sharded_desc(root, m);
    insitu_loader *ld;
    insitu_error err = {0};
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    /* stacks are kept: they do not count as leaks */
    insitu_read(ld, &sharded_v, whole, sizeof whole, NULL, NULL);
    for (int i = 0; i < ONCE; i++)
      for (int n = 1, hits = 1; hits; n += n < depth() ? 1 : n) {
        struct baseline before = take_baseline();
        memset(&err, 0, sizeof err);
        memset(whole, 0xff, sizeof whole);
        arm(modes[m].name, &once[i], n, false);
        insitu_status status = insitu_read(ld, &sharded_v, whole, sizeof whole, NULL, &err);
        hits = fault.hits;
        if (status) check_error(status, &err);
        disarm();
        if (status) status = insitu_read(ld, &sharded_v, whole, sizeof whole, NULL, NULL);
        must(!status, "then: %s", insitu_status_name(status));
        for (int e = 0; e < SAMPLES * 5 * 6; e++)
          must(whole[e] == (float)e, "element %d is %g", e, (double)whole[e]);
        must(before.heap == live_heap && before.maps >= live_maps - 32, "%d blocks more",
            live_heap - before.heap);
      }
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* ---- set-up ---- */
static int setup(void **state) {
  if (support_setup(state)) return -1;
  fault.main = pthread_self();
  saved_stderr = dup(2);
  signal(SIGALRM, on_alarm);
  strcpy(context, "set-up");
  alarm(100);
  struct sigaction action = {.sa_handler = on_cancel};
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < KINDS; i++) {
    struct kind *k = &kinds[i];
    char name[32];
    sprintf(name, "k%d", i);
    snprintf(k->root, sizeof k->root, "%s", support_path(name));
    sprintf(name, "k%d.json", i);
    snprintf(k->manifest_path, sizeof k->manifest_path, "%s", support_path(name));
    for (int a = 0; a < 2 && k->a[a].name; a++) support_make(k->root, &k->a[a]);
    if (k->bare) {
      char path[600];
      snprintf(path, sizeof path, "%s/.zgroup", k->root);
      assert_int_equal(remove(path), 0);
    }
    insitu_loader_desc d = desc_of(k, EPOLL, 0);
    insitu_error err = {0};
    insitu_loader *ld;
    if (k->manifest) {
      d.manifest = NULL;
      d.split[0].fraction = (double)TRAIN / SAMPLES;
      d.split[1].fraction = 1 - (double)TRAIN / SAMPLES;
      if (insitu_loader_open(&d, &ld, &err) || insitu_manifest_save(ld, k->manifest_path, &err))
        fail_msg("%s", err.message);
      insitu_loader_close(&ld);
      d.manifest = k->manifest_path;
    }
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    for (int split = INSITU_TRAIN; split <= INSITU_VAL; split++) {
      insitu_iter_desc id = {.api = INSITU_API, .split = split};
      insitu_iter *it = NULL;
      insitu_batch *b;
      insitu_plan plan;
      if (insitu_iter_open(ld, &id, &it, &err) || insitu_loader_plan(ld, &id, &plan, &err))
        fail_msg("%s", err.message);
      k->batches[split] = plan.batches;
      for (int epoch = 0; epoch < 2; epoch++) {
        uint64_t at = 0;
        while (!insitu_iter_next(it, INSITU_FOREVER, &b, &err)) {
          for (uint64_t r = 0; r < b->rows; r++)
            k->anchors[split][epoch][at++] = b->sample_indices[r];
          insitu_batch_release(&b);
        }
        assert_true(at > 0);
      }
      insitu_iter_close(&it);
    }
    insitu_loader_close(&ld);
  }
  return 0;
}
static int teardown(void **state) {
  close(saved_stderr);
  return support_teardown(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_direct),
      cmocka_unit_test(test_compressed), cmocka_unit_test(test_whole_chunks),
      cmocka_unit_test(test_shards), cmocka_unit_test(test_read), cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_one_chunk), cmocka_unit_test(test_near_names),
      cmocka_unit_test(test_manifest_save), cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_close), cmocka_unit_test(test_close_without_memory),
      cmocka_unit_test(test_plans), cmocka_unit_test(test_steps),
      cmocka_unit_test(test_other_order), cmocka_unit_test(test_axes)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
