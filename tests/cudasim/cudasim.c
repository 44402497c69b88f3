/* The simulated CUDA runtime: see cudasim.h. A test links this file or includes it.
 *
 * One lock holds everything. A stream is a slot of the vector clocks; its operations are numbered
 * from 1 (ticks). An operation may run once the slots have done what its clock says: the same clock
 * decides what runs and what is a race. Memory is a memfd that is mapped twice: where the program
 * sees it, and where the simulator does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cudasim.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { SIM_SLOTS = 128, SIM_TEXTS = 32, SIM_JUNK = 16 << 20, SIM_NODES = 64 };
enum { SIM_OPEN = 0, SIM_READ_ONLY = 1, SIM_SHUT = 2 }; /* of a page */

static const char *const sim_names[] = {"cudaGetDeviceCount", "cudaGetDevice", "cudaSetDevice",
    "cudaMemGetInfo", "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaStreamSynchronize",
    "cudaStreamWaitEvent", "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventRecord",
    "cudaEventQuery", "cudaEventSynchronize", "cudaHostAlloc", "cudaFreeHost", "cudaMalloc",
    "cudaFree", "cudaMemcpyAsync", "cudaGetErrorString", "cudaGetErrorName", "cudaGetLastError",
    "cudaThreadExchangeStreamCaptureMode", "cudaDriverGetVersion", "cudaRuntimeGetVersion",
    "cudaGetDeviceProperties", "cudaDeviceGetPCIBusId", "cudaEventElapsedTime", "cudaMemsetAsync",
    "cudaLaunchHostFunc", "cudaStreamBeginCapture", "cudaStreamEndCapture",
    "cudaGraphInstantiateWithFlags", "cudaGraphLaunch", "cudaGraphDestroy", "cudaGraphExecDestroy"};
enum { SIM_N_CALLS = sizeof sim_names / sizeof *sim_names };
/* Those that need no context: all others make one on the device that is current, where it has none.
 */
static const char *const sim_without[] = {"cudaGetDeviceCount", "cudaGetDevice", "cudaEventQuery",
    "cudaEventSynchronize", "cudaDriverGetVersion", "cudaRuntimeGetVersion",
    "cudaGetDeviceProperties", "cudaDeviceGetPCIBusId", "cudaEventElapsedTime"};

typedef struct sim_clock {
  uint64_t at[SIM_SLOTS];
} sim_clock;

typedef struct sim_op {
  struct sim_op *next;
  uint64_t tick;
  sim_clock before; /* what must be done first */
  char *dst;        /* of a copy */
  const char *src;
  void *staged; /* a copy's pageable source, as it was at the call; what a kernel owns */
  size_t bytes;
  bool sets; /* dst to value: cudaMemsetAsync */
  unsigned char value;
  cudaHostFn_t host_fn;
  cudasim_fn *fn;
  void *arg, *reads[CUDASIM_RANGES], *writes[CUDASIM_RANGES];
} sim_op;

/* A copy, or with src NULL a fill; a graph is a row of them */
typedef struct sim_node {
  void *dst;
  const void *src;
  size_t bytes;
  int value;
  enum cudaMemcpyKind kind;
} sim_node;
struct CUgraph_st {
  size_t n;
  enum cudaStreamCaptureMode mode;
  bool spoilt;
  sim_node nodes[SIM_NODES];
};
struct CUgraphExec_st {
  struct CUgraph_st graph;
};

typedef struct sim_access {
  size_t from, to;
  uint64_t tick;
  int slot;
  bool write;
  const char *what;
} sim_access;

typedef struct sim_block {
  struct sim_block *next;
  char *host, *alias; /* alias: NULL when freed */
  size_t bytes, mapped, reserved;
  int device, number;
  sim_access *access; /* those that the host does not know to be over */
  size_t n_access, max_access;
  unsigned char *pages; /* SIM_OPEN, ... of pinned memory */
} sim_block;

typedef enum sim_kind { SIM_FREE, SIM_CREATED, SIM_LEGACY, SIM_PER_THREAD, SIM_DESTROYED } sim_kind;
typedef struct sim_slot {
  sim_kind kind;
  bool blocking, capturing;
  int device;
  unsigned generation, thread;
  uint64_t enqueued, done;
  sim_clock now; /* what has been done when all that is enqueued, and waited for, is */
  sim_op *head, **tail;
  cudaGraph_t graph; /* cudaStreamBeginCapture began it */
} sim_slot;

typedef struct sim_event {
  bool live, timing;
  int device;
  unsigned generation;
  sim_clock at;
} sim_event;

static struct {
  pthread_mutex_t lock;
  bool used, forked;
  unsigned epoch, threads;
  int devices, blocks_made;
  cudaError_t driver, poison, fail_error;
  uint64_t fail_in, random;
  int stalled;
  bool bus_stands; /* copies do not begin */
  unsigned stall;
  /* the error of this call is one of earlier work: what destroys, frees or synchronises goes on */
  bool late;
  bool capture;
  unsigned captures; /* of streams, in global mode */
  cudasim_when when;
  unsigned steps;
  size_t memory, pinned;
  sim_clock host;
  sim_slot slots[SIM_SLOTS];
  sim_event *events;
  size_t n_events;
  sim_block *blocks;
  cudasim_counts counts;
  uint64_t calls[SIM_N_CALLS];
  const char *contexts[CUDASIM_DEVICES]; /* the call that made each one */
  char texts[SIM_TEXTS][240];
  unsigned n_texts;
  struct sigaction old; /* what faults elsewhere go to */
} sim;
static _Thread_local struct {
  unsigned epoch, id;
  int device;
  cudaError_t last;
  enum cudaStreamCaptureMode mode;
} sim_thread;
static pthread_once_t sim_once = PTHREAD_ONCE_INIT;

/* recursive: kernels and the handler of faults may come in while it is held */
static void sim_init_lock(void) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&sim.lock, &attr);
  pthread_mutexattr_destroy(&attr);
}
static void sim_in_child(void) {
  sim_init_lock();
  sim.forked = sim.used;
}
static void sim_defaults(int devices, uint64_t seed) {
  sim.devices = devices;
  sim.random = seed * 0x9e3779b97f4a7c15u + 1;
  sim.when = CUDASIM_RANDOM;
  sim.steps = 3;
  sim.stalled = sim.stall = 0;
  sim.bus_stands = false;
  sim.memory = sim.pinned = (size_t)1 << 30;
  sim.epoch++;
}
static void sim_init(void) {
  sim_init_lock();
  pthread_atfork(NULL, NULL, sim_in_child);
  sim_defaults(1, 1);
}
static void sim_lock(void) {
  pthread_once(&sim_once, sim_init);
  pthread_mutex_lock(&sim.lock);
  if (sim_thread.epoch != sim.epoch) {
    memset(&sim_thread, 0, sizeof sim_thread);
    sim_thread.epoch = sim.epoch;
    sim_thread.id = ++sim.threads;
  }
}
static void sim_unlock(void) {
  pthread_mutex_unlock(&sim.lock);
}
static void sim_die(const char *why) {
  fprintf(stderr, "cudasim: %s\n", why);
  abort();
}
static void *sim_alloc(size_t bytes) {
  void *p = calloc(1, bytes);
  if (!p) sim_die("out of memory");
  return p;
}
static uint64_t sim_below(uint64_t n) {
  uint64_t x = sim.random += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) % n;
}
__attribute__((format(printf, 2, 3))) static void sim_found(
    uint64_t *counter, const char *format, ...) {
  va_list args;
  ++*counter;
  if (sim.n_texts == SIM_TEXTS) return;
  va_start(args, format);
  vsnprintf(sim.texts[sim.n_texts++], sizeof sim.texts[0], format, args);
  va_end(args);
}

/* ---- clocks ---- */

static void sim_join(sim_clock *to, const sim_clock *from) {
  for (int i = 0; i < SIM_SLOTS; i++)
    if (to->at[i] < from->at[i]) to->at[i] = from->at[i];
}
static bool sim_reached(const sim_clock *c) {
  for (int i = 0; i < SIM_SLOTS; i++)
    if (sim.slots[i].done < c->at[i]) return false;
  return true;
}

/* ---- memory ---- */

static size_t sim_page(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}
static sim_block *sim_find(const void *p) { /* freed ones too: their addresses are not used again */
  for (sim_block *b = sim.blocks; b; b = b->next)
    if ((const char *)p >= b->host && (const char *)p < b->host + b->reserved) return b;
  return NULL;
}
/* Not instrumented: a sanitizer may forbid others the program's memory while it is in flight. */
__attribute__((
    noinline, no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined"))) static void
sim_copy(char *dst, const char *src, size_t bytes) {
  volatile char *d = dst;
  const volatile char *s = src;
  size_t i = 0;
  if (((uintptr_t)d | (uintptr_t)s) % 8 == 0)
    for (; i + 8 <= bytes; i += 8)
      *(volatile uint64_t *)(d + i) = *(const volatile uint64_t *)(s + i);
  for (; i < bytes; i++) d[i] = s[i];
}
/* Pages of pinned memory as what is in flight demands */
static void sim_protect(sim_block *b) {
  static const int protections[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
  size_t page = sim_page(), n = b->mapped / page;
  unsigned char *want = sim_alloc(n);
  for (size_t k = 0; k < b->n_access; k++) {
    const sim_access *a = &b->access[k];
    unsigned char level = a->write ? SIM_SHUT : SIM_READ_ONLY;
    for (size_t i = a->from / page; i <= (a->to - 1) / page; i++)
      if (want[i] < level) want[i] = level;
  }
  for (size_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && want[end] == want[i] && b->pages[end] == b->pages[i]; end++) {}
    if (want[i] == b->pages[i]) continue;
    if (mprotect(b->host + i * page, (end - i) * page, protections[want[i]])) sim_die("mprotect");
    memset(b->pages + i, want[i], end - i);
  }
  free(want);
}
/* The host has learnt that all up to that clock is over. */
static void sim_learn(const sim_clock *c) {
  sim_join(&sim.host, c);
  for (sim_block *b = sim.blocks; b; b = b->next) {
    size_t kept = 0;
    for (size_t k = 0; k < b->n_access; k++)
      if (sim.host.at[b->access[k].slot] < b->access[k].tick) b->access[kept++] = b->access[k];
    if (kept == b->n_access) continue;
    b->n_access = kept;
    if (b->pages) sim_protect(b);
  }
}
static sim_block *sim_map(size_t bytes, int device) {
  size_t page = sim_page(), mapped = (bytes + page - 1) / page * page;
  if (mapped < bytes) return NULL;
  int fd = memfd_create("cudasim", MFD_CLOEXEC);
  if (fd < 0) return NULL;
  sim_block *b = sim_alloc(sizeof *b);
  void *alias = MAP_FAILED, *host = MAP_FAILED;
  /* a page to overrun into */
  *b = (sim_block){.bytes = bytes, .mapped = mapped, .reserved = mapped + page, .device = device};
  if (!ftruncate(fd, (off_t)mapped)) {
    alias = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    host = mmap(NULL, b->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  int protection = device == CUDASIM_PINNED ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (alias == MAP_FAILED || host == MAP_FAILED ||
      mmap(host, mapped, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    if (alias != MAP_FAILED) munmap(alias, mapped);
    if (host != MAP_FAILED) munmap(host, b->reserved);
    close(fd);
    free(b);
    return NULL;
  }
  close(fd);
  b->alias = alias;
  b->host = host;
  memset(b->alias, 0xa5, mapped < SIM_JUNK ? mapped : SIM_JUNK); /* nobody may count on zeros */
  if (device == CUDASIM_PINNED) b->pages = sim_alloc(mapped / page);
  b->number = ++sim.blocks_made;
  b->next = sim.blocks;
  sim.blocks = b;
  return b;
}
/* the addresses stay taken: nothing else shall come to lie there */
static void sim_unmap(sim_block *b) {
  munmap(b->alias, b->mapped);
  if (mmap(b->host, b->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
          -1, 0) == MAP_FAILED)
    sim_die("mmap");
  b->alias = NULL;
  free(b->pages);
  free(b->access);
  b->pages = NULL;
  b->access = NULL;
  b->n_access = b->max_access = 0;
}

/* ---- streams ---- */

static const char *sim_place(const sim_block *b, char *text, size_t room) {
  if (b->device == CUDASIM_PINNED) snprintf(text, room, "pinned block %d", b->number);
  else snprintf(text, room, "block %d of device %d", b->number, b->device);
  return text;
}
/* Names the range as read or written by an operation on a slot, and looks whether another one is in
 * the way. */
static void sim_touch(sim_block *b, const void *at, size_t bytes, bool write, int slot,
    const sim_op *op, const char *what) {
  char place[64];
  size_t from = (size_t)((const char *)at - b->host), to = from + bytes, kept = 0;
  if (!bytes) return;
  for (size_t k = 0; k < b->n_access; k++) {
    const sim_access *a = &b->access[k];
    bool same = a->slot == slot, ordered = same || op->before.at[a->slot] >= a->tick;
    if (a->from < to && from < a->to && (write || a->write) && !ordered)
      sim_found(&sim.counts.races,
          "race: %s %llu of stream %d %s %s from %zu to %zu, and nothing orders it after %s %llu "
          "of stream %d, which %s %zu to %zu",
          what, (unsigned long long)op->tick, slot, write ? "writes" : "reads",
          sim_place(b, place, sizeof place), from, to, a->what, (unsigned long long)a->tick,
          a->slot, a->write ? "writes" : "reads", a->from, a->to);
    /* The new one stands for an old one, where whoever comes after it comes after both. */
    bool covered = from <= a->from && a->to <= to && (write ? ordered : same && !a->write);
    if (!covered) b->access[kept++] = *a;
  }
  b->n_access = kept;
  if (kept == b->max_access) {
    b->max_access = 2 * kept + 8;
    b->access = realloc(b->access, b->max_access * sizeof *b->access);
    if (!b->access) sim_die("out of memory");
  }
  b->access[b->n_access++] = (sim_access){
      .from = from, .to = to, .tick = op->tick, .slot = slot, .write = write, .what = what};
  if (b->pages) sim_protect(b);
}
static sim_op *sim_enqueue(int slot) {
  sim_slot *s = &sim.slots[slot];
  sim_op *op = sim_alloc(sizeof *op);
  /* the legacy stream and the blocking ones of a device wait for each other */
  for (int i = 0; i < SIM_SLOTS; i++) {
    const sim_slot *o = &sim.slots[i];
    if (i == slot || o->kind == SIM_FREE || o->device != s->device) continue;
    if ((s->kind == SIM_LEGACY && o->blocking) || (s->blocking && o->kind == SIM_LEGACY))
      sim_join(&s->now, &o->now);
  }
  op->before = s->now;
  op->tick = s->now.at[slot] = ++s->enqueued;
  *s->tail = op;
  s->tail = &op->next;
  sim.counts.pending++;
  return op;
}
static void sim_drop(sim_slot *s) {
  sim_op *op = s->head;
  s->head = op->next;
  if (!s->head) s->tail = &s->head;
  s->done = op->tick;
  sim.counts.pending--;
  free(op->staged);
  free(op);
}
/* One random operation that may run; within: only of those that this clock needs. False: there is
 * none. Where it need not be fair, one stream at a time is left behind for a while: the others get
 * far ahead. */
static bool sim_run_one(const sim_clock *within, bool fair) {
  int ready[SIM_SLOTS], n = 0;
  if (!fair && !sim.stall--) {
    sim.stalled = (int)sim_below(8); /* the slots that are used first */
    sim.stall = (unsigned)sim_below(32);
  }
  for (int i = 0; i < SIM_SLOTS; i++) {
    const sim_op *op = sim.slots[i].head;
    if (!fair && i == sim.stalled) continue;
    if (op && op->dst && !op->sets && sim.bus_stands && !within) continue;
    if (op && (!within || op->tick <= within->at[i]) && sim_reached(&op->before)) ready[n++] = i;
  }
  if (!n) return false;
  sim_slot *s = &sim.slots[ready[sim_below((uint64_t)n)]];
  if (s->head->sets) memset(s->head->dst, s->head->value, s->head->bytes);
  else if (s->head->dst)
    sim_copy(s->head->dst, s->head->staged ? s->head->staged : s->head->src, s->head->bytes);
  if (s->head->host_fn) s->head->host_fn(s->head->arg);
  if (s->head->fn) s->head->fn(s->head->reads, s->head->writes, s->head->arg);
  sim_drop(s);
  return true;
}
static void sim_run_to(const sim_clock *c) {
  while (!sim_reached(c))
    if (!(sim.when == CUDASIM_RANDOM && sim_run_one(NULL, false)) && !sim_run_one(c, true))
      sim_die("operations that wait for each other");
}
static void sim_progress(void) {
  if (sim.when == CUDASIM_RANDOM)
    for (uint64_t n = sim_below((uint64_t)sim.steps + 1); n && sim_run_one(NULL, false); n--) {}
  if (sim.when == CUDASIM_AT_ONCE)
    while (sim_run_one(NULL, true)) {}
}
/* A slot for a new stream. One of before is taken only where the host knows that all of it is over:
 * its ticks go on. */
static int sim_new_slot(sim_kind kind, int device, bool blocking) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    sim_slot *s = &sim.slots[i];
    if (s->kind != SIM_FREE && (s->kind != SIM_DESTROYED || sim.host.at[i] < s->enqueued)) continue;
    s->kind = kind;
    s->device = device;
    s->blocking = blocking;
    s->capturing = false;
    s->graph = NULL;
    s->thread = sim_thread.id;
    memset(&s->now, 0, sizeof s->now);
    s->tail = &s->head;
    return i;
  }
  sim_die("too many streams that the host has not waited for");
  return -1;
}
static int sim_default(sim_kind kind, int device) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    const sim_slot *s = &sim.slots[i];
    if (s->kind == kind && s->device == device &&
        (kind == SIM_LEGACY || s->thread == sim_thread.id))
      return i;
  }
  return sim_new_slot(kind, device, kind == SIM_PER_THREAD);
}
/* Handles: a number in the table, how often it was given out, a mark of streams or events, of
 * resets. They are no addresses. */
static void *sim_handle(size_t index, unsigned generation, unsigned mark) {
  return (void *)(((uintptr_t)(sim.epoch & 127) << 56 | (uintptr_t)1 << 55 |
                   (uintptr_t)generation << 24 | index << 4 | mark));
}
enum { SIM_STREAM_MARK = 5, SIM_EVENT_MARK = 9 };
static int sim_stream(cudaStream_t stream) { /* -1: there is none */
  if (!stream || stream == cudaStreamLegacy) return sim_default(SIM_LEGACY, sim_thread.device);
  if (stream == cudaStreamPerThread) return sim_default(SIM_PER_THREAD, sim_thread.device);
  for (int i = 0; i < SIM_SLOTS; i++) {
    const sim_slot *s = &sim.slots[i];
    if (s->kind == SIM_CREATED &&
        sim_handle((size_t)i, s->generation, SIM_STREAM_MARK) == (void *)stream)
      return i;
  }
  sim_found(&sim.counts.misuses, "%p is no stream", (void *)stream);
  return -1;
}
static int sim_used_stream(cudaStream_t stream) {
  if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    sim.counts.default_stream++;
  return sim_stream(stream);
}
static sim_event *sim_get_event(cudaEvent_t event) {
  for (size_t i = 0; i < sim.n_events; i++)
    if (sim.events[i].live &&
        sim_handle(i, sim.events[i].generation, SIM_EVENT_MARK) == (void *)event)
      return &sim.events[i];
  sim_found(&sim.counts.misuses, "%p is no event", (void *)event);
  return NULL;
}

/* ---- entering and leaving ---- */

static bool sim_sticky(cudaError_t e) {
  return e == cudaErrorIllegalAddress || e == cudaErrorECCUncorrectable ||
         e == cudaErrorLaunchTimeout || e == cudaErrorLaunchFailure ||
         e == cudaErrorContextIsDestroyed;
}
static void sim_poison(cudaError_t e) { /* nothing runs any more, so nothing is in flight */
  sim_clock all;
  for (int i = 0; i < SIM_SLOTS; i++) {
    while (sim.slots[i].head) sim_drop(&sim.slots[i]);
    all.at[i] = sim.slots[i].enqueued;
  }
  sim.poison = e;
  sim_learn(&all);
}
static bool sim_unsafe(const char *name) {
  if (!(sim.capture || sim.captures) || sim_thread.mode != cudaStreamCaptureModeGlobal)
    return false;
  sim_found(&sim.counts.captures, "%s while %s captures a graph", name,
      sim.capture ? "another thread" : "somebody");
  for (int i = 0; i < SIM_SLOTS; i++)
    if (sim.slots[i].graph && sim.slots[i].graph->mode == cudaStreamCaptureModeGlobal)
      sim.slots[i].graph->spoilt = true;
  return true;
}
static void sim_called(const char *name) {
  int i = 0;
  while (i < SIM_N_CALLS && strcmp(sim_names[i], name)) i++;
  if (i == SIM_N_CALLS) sim_die("a call without a name");
  sim.calls[i]++;
  sim.counts.calls++;
}
static void sim_context(const char *name, int device) {
  if (!sim.contexts[device]) sim.contexts[device] = name;
}
/* Of a call: on the current device. cudaSetDevice makes one on the device that it names (since CUDA
 * 12). */
static void sim_use(const char *name) {
  bool uses = strcmp(name, "cudaSetDevice");
  for (size_t i = 0; i < sizeof sim_without / sizeof *sim_without; i++)
    uses = uses && strcmp(name, sim_without[i]);
  if (uses) sim_context(name, sim_thread.device);
}
/* Locks; what the call fails with before it does anything. */
static cudaError_t sim_enter(const char *name, bool unsafe) {
  sim_lock();
  sim.used = true;
  sim.late = false;
  sim_called(name);
  if (sim.forked) return cudaErrorInitializationError;
  if (sim.driver) return sim.driver;
  if (!sim.devices) return cudaErrorNoDevice;
  sim_use(name);
  if (sim.poison) {
    sim.late = true;
    return sim.poison;
  }
  if (unsafe && sim_unsafe(name)) return cudaErrorStreamCaptureUnsupported;
  sim_progress();
  if (sim.fail_in && --sim.fail_in == 0) {
    sim.late = true;
    sim.counts.injected++;
    if (sim_sticky(sim.fail_error)) sim_poison(sim.fail_error);
    return sim.fail_error;
  }
  return cudaSuccess;
}
static cudaError_t sim_leave(cudaError_t e) {
  if (sim.when == CUDASIM_AT_ONCE) sim_progress();
  if (e) sim_thread.last = e;
  sim_unlock();
  return e;
}
/* What destroys, frees, synchronises or exchanges goes on after an error of earlier work, as does
 * cudaSetDevice. */
static bool sim_goes_on(cudaError_t e) {
  return !e || sim.late;
}
static cudaError_t sim_captured(int slot, const char *name, cudaError_t error) {
  const sim_slot *s = &sim.slots[slot];
  for (int i = 0; i < SIM_SLOTS && s->kind == SIM_LEGACY; i++) {
    const sim_slot *o = &sim.slots[i];
    if (!o->capturing || o->kind != SIM_CREATED || !o->blocking || o->device != s->device) continue;
    sim_found(
        &sim.counts.captures, "%s on the legacy stream while a blocking one is captured", name);
    return cudaErrorStreamCaptureImplicit;
  }
  if (!s->capturing) return cudaSuccess;
  if (s->graph) s->graph->spoilt = true;
  sim_found(&sim.counts.captures, "%s on a stream that is being captured", name);
  return error;
}

/* ---- the runtime ---- */

cudaError_t cudaGetDeviceCount(int *count) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) *count = sim.devices;
  return sim_leave(e);
}
cudaError_t cudaGetDevice(int *device) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) *device = sim_thread.device;
  return sim_leave(e);
}
cudaError_t cudaSetDevice(int device) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && (device < 0 || device >= sim.devices)) e = cudaErrorInvalidDevice;
  if (sim_goes_on(e)) {
    sim_thread.device = device;
    sim_context(__func__, device);
  }
  return sim_leave(e);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) {
    uint64_t taken = sim.counts.bytes_of[sim_thread.device];
    *total = sim.memory;
    *free_bytes = taken < sim.memory ? sim.memory - (size_t)taken : 0;
  }
  return sim_leave(e);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && flags > cudaStreamNonBlocking) e = cudaErrorInvalidValue;
  if (!e) {
    int slot = sim_new_slot(SIM_CREATED, sim_thread.device, flags != cudaStreamNonBlocking);
    *stream = sim_handle((size_t)slot, sim.slots[slot].generation, SIM_STREAM_MARK);
    sim.counts.streams++;
    sim.counts.stream_creates++;
  }
  return sim_leave(e);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaError_t e = sim_enter(__func__, false);
  if (sim_goes_on(e)) {
    int slot = !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread
                   ? -1
                   : sim_stream(stream);
    if (slot < 0) {
      e = e ? e : cudaErrorInvalidResourceHandle;
    } else { /* what is enqueued still runs */
      sim.slots[slot].kind = SIM_DESTROYED;
      sim.slots[slot].generation++;
      sim.counts.streams--;
    }
  }
  return sim_leave(e);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cudaError_t e = sim_enter(__func__, true);
  if (sim_goes_on(e)) {
    int slot = sim_used_stream(stream);
    cudaError_t own =
        slot < 0 ? cudaErrorInvalidResourceHandle
                 : sim_captured(slot, "cudaStreamSynchronize", cudaErrorStreamCaptureUnsupported);
    if (!own) {
      sim_run_to(&sim.slots[slot].now);
      sim_learn(&sim.slots[slot].now);
    }
    e = e ? e : own;
  }
  return sim_leave(e);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && flags) e = cudaErrorInvalidValue;
  if (!e) {
    int slot = sim_used_stream(stream);
    const sim_event *from = sim_get_event(event);
    e = slot < 0 || !from
            ? cudaErrorInvalidResourceHandle
            : sim_captured(slot, "cudaStreamWaitEvent", cudaErrorStreamCaptureIsolation);
    if (!e) sim_join(&sim.slots[slot].now, &from->at);
  }
  return sim_leave(e);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
    e = cudaErrorInvalidValue;
  if (!e) {
    size_t i = 0;
    while (i < sim.n_events && sim.events[i].live) i++;
    if (i == sim.n_events) {
      sim.events = realloc(sim.events, (i + 1) * sizeof *sim.events);
      if (!sim.events) sim_die("out of memory");
      memset(&sim.events[sim.n_events++], 0, sizeof *sim.events);
    }
    sim_event *made = &sim.events[i];
    *made = (sim_event){.live = true,
        .timing = !(flags & cudaEventDisableTiming),
        .device = sim_thread.device,
        .generation = made->generation};
    *event = sim_handle(i, made->generation, SIM_EVENT_MARK);
    sim.counts.events++;
    sim.counts.event_creates++;
    sim.counts.timing_events += !(flags & cudaEventDisableTiming);
  }
  return sim_leave(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  cudaError_t e = sim_enter(__func__, false);
  if (sim_goes_on(e)) {
    sim_event *old = sim_get_event(event);
    if (old) {
      old->live = false;
      old->generation++;
      sim.counts.events--;
    } else if (!e) {
      e = cudaErrorInvalidResourceHandle;
    }
  }
  return sim_leave(e);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) {
    int slot = sim_used_stream(stream);
    sim_event *to = sim_get_event(event);
    e = slot < 0 || !to ? cudaErrorInvalidResourceHandle
                        : sim_captured(slot, "cudaEventRecord", cudaErrorStreamCaptureIsolation);
    if (!e && sim.slots[slot].device != to->device) {
      sim_found(&sim.counts.misuses,
          "cudaEventRecord: the event is of device %d, the stream of device %d", to->device,
          sim.slots[slot].device);
      e = cudaErrorInvalidResourceHandle;
    }
    if (!e) { /* an operation that does nothing: it, too, comes late */
      sim_enqueue(slot);
      to->at = sim.slots[slot].now;
    }
  }
  return sim_leave(e);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  cudaError_t e = sim_enter(__func__, true);
  if (!e) {
    const sim_event *of = sim_get_event(event);
    e = !of                    ? cudaErrorInvalidResourceHandle
        : sim_reached(&of->at) ? cudaSuccess
                               : cudaErrorNotReady;
    if (!e) sim_learn(&of->at);
  }
  return sim_leave(e);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  cudaError_t e = sim_enter(__func__, true);
  if (sim_goes_on(e)) {
    const sim_event *of = sim_get_event(event);
    if (of) {
      sim_run_to(&of->at);
      sim_learn(&of->at);
    } else if (!e) {
      e = cudaErrorInvalidResourceHandle;
    }
  }
  return sim_leave(e);
}

static cudaError_t sim_make_block(void **at, size_t bytes, int device) {
  uint64_t *live =
      device == CUDASIM_PINNED ? &sim.counts.pinned_bytes : &sim.counts.bytes_of[device];
  size_t most = device == CUDASIM_PINNED ? sim.pinned : sim.memory;
  *at = NULL;
  if (!bytes) return cudaSuccess;
  sim_block *b = *live <= most && bytes <= most - *live ? sim_map(bytes, device) : NULL;
  if (!b) return cudaErrorMemoryAllocation;
  *live += bytes;
  *at = b->host;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **host, size_t bytes, unsigned int flags) {
  cudaError_t e = sim_enter(__func__, true);
  if (!e && flags > 7) e = cudaErrorInvalidValue;
  if (!e) e = sim_make_block(host, bytes, CUDASIM_PINNED);
  if (!e && *host) {
    sim.counts.host_allocs++;
    sim.counts.pinned_blocks++;
    sim.counts.write_combined += !!(flags & cudaHostAllocWriteCombined);
    if (sim.counts.peak_pinned_bytes < sim.counts.pinned_bytes)
      sim.counts.peak_pinned_bytes = sim.counts.pinned_bytes;
  }
  return sim_leave(e);
}
cudaError_t cudaMalloc(void **device, size_t bytes) {
  cudaError_t e = sim_enter(__func__, true);
  if (!e) e = sim_make_block(device, bytes, sim_thread.device);
  if (!e && *device) {
    sim.counts.mallocs++;
    sim.counts.device_blocks++;
    sim.counts.device_bytes += bytes;
    if (sim.counts.peak_device_bytes < sim.counts.device_bytes)
      sim.counts.peak_device_bytes = sim.counts.device_bytes;
  }
  return sim_leave(e);
}
static cudaError_t sim_free(const char *name, void *at, bool pinned) {
  cudaError_t e = sim_enter(name, true);
  if (!sim_goes_on(e) || !at) return sim_leave(e);
  sim_block *b = sim_find(at);
  if (!b || b->host != at || (b->device == CUDASIM_PINNED) != pinned || !b->alias) {
    if (b && !b->alias)
      sim_found(&sim.counts.uses_after_free, "%s: block %d is freed for the second time", name,
          b->number);
    else sim_found(&sim.counts.misuses, "%s: %p is no memory of its", name, at);
    return sim_leave(e ? e : cudaErrorInvalidValue);
  }
  if (b->n_access) {
    const sim_access *a = &b->access[0];
    sim_clock all = {0};
    char place[64];
    sim_found(&sim.counts.uses_after_free,
        "%s of %s: nobody has waited for %s %llu of stream %d, which %s it", name,
        sim_place(b, place, sizeof place), a->what, (unsigned long long)a->tick, a->slot,
        a->write ? "writes" : "reads");
    for (size_t k = 0; k < b->n_access; k++)
      if (all.at[b->access[k].slot] < b->access[k].tick)
        all.at[b->access[k].slot] = b->access[k].tick;
    while (!sim_reached(&all))
      if (!sim_run_one(NULL, true)) sim_die("operations that wait for each other");
  }
  sim_unmap(b);
  sim.counts.frees++;
  if (pinned) {
    sim.counts.pinned_blocks--;
    sim.counts.pinned_bytes -= b->bytes;
  } else {
    sim.counts.device_blocks--;
    sim.counts.device_bytes -= b->bytes;
    sim.counts.bytes_of[b->device] -= b->bytes;
  }
  return sim_leave(e);
}
cudaError_t cudaFreeHost(void *host) {
  return sim_free(__func__, host, true);
}
cudaError_t cudaFree(void *device) {
  return sim_free(__func__, device, false);
}

/* False, and told, where the range is of a block that is freed or that it leaves. */
static bool sim_within(const sim_block *b, const void *at, size_t bytes, const char *what) {
  char place[64];
  size_t from = b ? (size_t)((const char *)at - b->host) : 0;
  if (b && !b->alias) {
    sim_found(&sim.counts.uses_after_free, "%s uses %s, which was freed", what,
        sim_place(b, place, sizeof place));
    return false;
  }
  if (b && (from > b->bytes || bytes > b->bytes - from)) {
    sim_found(&sim.counts.misuses, "%s: %zu bytes at %zu of %s, which has %zu", what, bytes, from,
        sim_place(b, place, sizeof place), b->bytes);
    return false;
  }
  return true;
}
/* Enqueues a copy, or where src is NULL a fill with a value. */
static cudaError_t sim_move(const char *name, void *dst, const void *src, int value, size_t count,
    enum cudaMemcpyKind kind, int slot) {
  sim_block *to = sim_find(dst), *from = src ? sim_find(src) : NULL;
  if (!sim_within(to, dst, count, name) || !sim_within(from, src, count, name))
    return cudaErrorInvalidValue;
  bool to_device = to && to->device != CUDASIM_PINNED,
       from_device = from && from->device != CUDASIM_PINNED;
  unsigned real = (from_device ? 2u : 0) + to_device; /* the values of enum cudaMemcpyKind */
  if (src && ((unsigned)kind > cudaMemcpyDefault ||
                 (kind != cudaMemcpyDefault && (unsigned)kind != real))) {
    sim_found(&sim.counts.misuses, "%s: kind %d, but the addresses say %u", name, (int)kind, real);
    return cudaErrorInvalidValue;
  }
  if (!src && !to) {
    sim_found(&sim.counts.misuses, "%s: %p is neither on a device nor pinned", name, dst);
    return cudaErrorInvalidValue;
  }
  int device = sim.slots[slot].device;
  if (src) {
    if (!to || !from) {
      sim.counts.unpinned_copies++;
      if (sim_unsafe("cudaMemcpyAsync of memory that is not pinned"))
        return cudaErrorStreamCaptureUnsupported;
    }
    sim.counts.copies++;
    sim.counts.copy_bytes += count;
    sim.counts.foreign_copies +=
        (to_device && to->device != device) || (from_device && from->device != device);
  }
  sim_op *op = sim_enqueue(slot);
  op->bytes = count;
  op->sets = !src;
  op->value = (unsigned char)value;
  op->dst = to ? to->alias + ((char *)dst - to->host) : dst;
  op->src = from ? from->alias + ((const char *)src - from->host) : src;
  if (from) sim_touch(from, src, count, false, slot, op, "copy");
  if (to) sim_touch(to, dst, count, true, slot, op, src ? "copy" : "fill");
  if (src && !from) { /* as the real one, which copies it to memory of its own before it returns */
    op->staged = sim_alloc(count);
    sim_copy(op->staged, src, count);
  }
  if (src && (!to || real == cudaMemcpyHostToHost)) { /* these are synchronous */
    sim_run_to(&sim.slots[slot].now);
    sim_learn(&sim.slots[slot].now);
  }
  return cudaSuccess;
}
static cudaError_t sim_move_async(const char *name, const sim_node *node, cudaStream_t stream) {
  cudaError_t e = sim_enter(name, false);
  if (e) return sim_leave(e);
  int slot = sim_used_stream(stream);
  if (slot < 0) return sim_leave(cudaErrorInvalidResourceHandle);
  cudaGraph_t graph = sim.slots[slot].graph;
  if (graph) {
    if (graph->n == SIM_NODES) sim_die("a graph of too many nodes");
    graph->nodes[graph->n++] = *node;
    return sim_leave(cudaSuccess);
  }
  if ((e = sim_captured(slot, name, cudaErrorStreamCaptureUnsupported)) || !node->bytes)
    return sim_leave(e);
  return sim_leave(
      sim_move(name, node->dst, node->src, node->value, node->bytes, node->kind, slot));
}
cudaError_t cudaMemcpyAsync(
    void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (!src && count) return cudaErrorInvalidValue;
  return sim_move_async(
      __func__, &(sim_node){.dst = dst, .src = src, .bytes = count, .kind = kind}, stream);
}
cudaError_t cudaMemsetAsync(void *device, int value, size_t count, cudaStream_t stream) {
  return sim_move_async(
      __func__, &(sim_node){.dst = device, .bytes = count, .value = value}, stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user) {
  cudaError_t e = sim_enter(__func__, false);
  if (e) return sim_leave(e);
  int slot = sim_used_stream(stream);
  if (slot < 0) return sim_leave(cudaErrorInvalidResourceHandle);
  if ((e = sim_captured(slot, __func__, cudaErrorStreamCaptureUnsupported))) return sim_leave(e);
  sim_op *op = sim_enqueue(slot);
  op->host_fn = fn;
  op->arg = user;
  return sim_leave(cudaSuccess);
}

/* ---- graphs: copies and fills of one stream ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  cudaError_t e = sim_enter(__func__, false);
  int slot = e ? -1 : sim_used_stream(stream);
  if (!e && slot < 0) e = cudaErrorInvalidResourceHandle;
  if (!e && sim.slots[slot].kind != SIM_CREATED) e = cudaErrorStreamCaptureUnsupported;
  if (!e && (sim.slots[slot].capturing || (unsigned)mode > cudaStreamCaptureModeRelaxed))
    e = cudaErrorInvalidValue;
  if (!e) {
    cudaGraph_t graph = sim_alloc(sizeof *graph);
    graph->mode = mode;
    sim.slots[slot].graph = graph;
    sim.slots[slot].capturing = true;
    sim.captures += mode == cudaStreamCaptureModeGlobal;
  }
  return sim_leave(e);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  cudaError_t e = sim_enter(__func__, false);
  int slot = e ? -1 : sim_used_stream(stream);
  *graph = NULL;
  if (!e && (slot < 0 || !sim.slots[slot].graph)) e = cudaErrorInvalidValue;
  if (!e) {
    cudaGraph_t made = sim.slots[slot].graph;
    sim.captures -= made->mode == cudaStreamCaptureModeGlobal;
    sim.slots[slot].graph = NULL;
    sim.slots[slot].capturing = false;
    if (made->spoilt) {
      free(made);
      e = cudaErrorStreamCaptureInvalidated;
    } else {
      *graph = made;
      sim.counts.graphs++;
    }
  }
  return sim_leave(e);
}
cudaError_t cudaGraphInstantiateWithFlags(
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && (!graph || flags)) e = cudaErrorInvalidValue;
  if (!e) {
    *exec = sim_alloc(sizeof **exec);
    (*exec)->graph = *graph;
    sim.counts.graphs++;
  }
  return sim_leave(e);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  cudaError_t e = sim_enter(__func__, false);
  int slot = e ? -1 : sim_used_stream(stream);
  if (!e && slot < 0) e = cudaErrorInvalidResourceHandle;
  if (!e) e = sim_captured(slot, __func__, cudaErrorStreamCaptureUnsupported);
  for (size_t i = 0; !e && i < exec->graph.n; i++) {
    const sim_node *n = &exec->graph.nodes[i];
    e = sim_move(__func__, n->dst, n->src, n->value, n->bytes, n->kind, slot);
  }
  return sim_leave(e);
}
static cudaError_t sim_free_graph(const char *name, void *graph) {
  cudaError_t e = sim_enter(name, false);
  if (sim_goes_on(e) && graph) {
    free(graph);
    sim.counts.graphs--;
  }
  return sim_leave(e);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return sim_free_graph(__func__, graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return sim_free_graph(__func__, exec);
}

/* ---- what it is ---- */

cudaError_t cudaDriverGetVersion(int *version) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) *version = 0; /* as the real one where there is no driver */
  return sim_leave(e);
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e) *version = 0;
  return sim_leave(e);
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && (device < 0 || device >= sim.devices)) e = cudaErrorInvalidDevice;
  if (!e)
    *properties =
        (struct cudaDeviceProp){.name = "SIMULATED, no GPU", .totalGlobalMem = sim.memory};
  return sim_leave(e);
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && (device < 0 || device >= sim.devices)) e = cudaErrorInvalidDevice;
  if (!e && room < 13) e = cudaErrorInvalidValue;
  if (!e) snprintf(text, (size_t)room, "ffff:ff:%02x.0", (unsigned)device & 31);
  return sim_leave(e);
}
/* As if each operation took a microsecond */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  cudaError_t e = sim_enter(__func__, false);
  const sim_event *a = e ? NULL : sim_get_event(start), *b = e ? NULL : sim_get_event(end);
  if (!e && (!a || !b || !a->timing || !b->timing)) e = cudaErrorInvalidResourceHandle;
  if (!e && !(sim_reached(&a->at) && sim_reached(&b->at))) e = cudaErrorNotReady;
  if (!e) {
    double n = 0;
    for (int i = 0; i < SIM_SLOTS; i++) n += (double)b->at.at[i] - (double)a->at.at[i];
    *milliseconds = (float)(n * 1e-3);
  }
  return sim_leave(e);
}

static const struct {
  cudaError_t error;
  const char *name, *text;
} sim_errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "no address of a device"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "no such direction"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
        "the driver is missing or too old"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "all devices are busy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "no such device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "memory error"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "a system call failed"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "no such stream or event"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "illegal address"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "a kernel took too long"},
    {cudaErrorContextIsDestroyed, "cudaErrorContextIsDestroyed", "the context is destroyed"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
        "not permitted while a stream is captured"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
        "the capture has failed"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
        "depends on work outside of the capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
        "depends on the legacy stream during a capture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
static const char *sim_error_text(const char *call, cudaError_t error, bool name) {
  sim_lock();
  sim_called(call);
  sim_unlock();
  for (size_t i = 0; i < sizeof sim_errors / sizeof *sim_errors; i++)
    if (sim_errors[i].error == error) return name ? sim_errors[i].name : sim_errors[i].text;
  return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
  return sim_error_text(__func__, error, false);
}
const char *cudaGetErrorName(cudaError_t error) {
  return sim_error_text(__func__, error, true);
}
cudaError_t cudaGetLastError(void) {
  sim_lock();
  sim_called(__func__);
  cudaError_t e = sim.poison ? sim.poison : sim_thread.last;
  sim_thread.last = cudaSuccess;
  sim_unlock();
  return e;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  cudaError_t e = sim_enter(__func__, false);
  if (!e && (unsigned)*mode > cudaStreamCaptureModeRelaxed) e = cudaErrorInvalidValue;
  if (sim_goes_on(e)) {
    enum cudaStreamCaptureMode old = sim_thread.mode;
    sim_thread.mode = *mode;
    *mode = old;
  }
  return sim_leave(e);
}

/* ---- consumers ---- */

/* owned: a copy of the argument that goes with the operation, NULL for none; it is freed here */
static cudaError_t sim_kernel(cudaStream_t stream, const cudasim_range *reads, size_t n_reads,
    const cudasim_range *writes, size_t n_writes, cudasim_fn *fn, void *arg, void *owned) {
  const cudasim_range *ranges[] = {reads, writes};
  size_t n[] = {n_reads, n_writes};
  sim_block *blocks[2][CUDASIM_RANGES];
  sim_lock();
  if (n_reads > CUDASIM_RANGES || n_writes > CUDASIM_RANGES) sim_die("a kernel of too many ranges");
  cudaError_t e = !sim.devices ? cudaErrorNoDevice : sim.poison;
  int slot = e ? -1 : sim_stream(stream);
  if (!e && slot < 0) e = cudaErrorInvalidResourceHandle;
  if (!e) e = sim_captured(slot, "a kernel", cudaErrorStreamCaptureUnsupported);
  for (int w = 0; w < 2 && !e; w++)
    for (size_t k = 0; k < n[w] && !e; k++) {
      const void *at = ranges[w][k].at;
      sim_block *b = blocks[w][k] = sim_find(at);
      if (!b)
        sim_found(
            &sim.counts.misuses, "a kernel uses %p, which is neither on a device nor pinned", at);
      if (b && b->device != CUDASIM_PINNED && b->device != sim.slots[slot].device) {
        sim_found(&sim.counts.misuses, "a kernel on device %d uses memory of device %d",
            sim.slots[slot].device, b->device);
        b = NULL;
      }
      if (!b || !sim_within(b, at, ranges[w][k].bytes, "a kernel")) e = cudaErrorIllegalAddress;
    }
  if (!e) {
    sim_op *op = sim_enqueue(slot);
    for (int w = 0; w < 2; w++)
      for (size_t k = 0; k < n[w]; k++) {
        const cudasim_range *r = &ranges[w][k];
        sim_block *b = blocks[w][k];
        (w ? op->writes : op->reads)[k] = b->alias + ((const char *)r->at - b->host);
        sim_touch(b, r->at, r->bytes, w, slot, op, "kernel");
      }
    op->fn = fn;
    op->arg = arg;
    op->staged = owned;
    owned = NULL;
    sim.counts.kernels++;
    sim_progress();
  }
  sim_unlock();
  free(owned);
  return e;
}
cudaError_t cudasim_kernel(cudaStream_t stream, const cudasim_range *reads, size_t n_reads,
    const cudasim_range *writes, size_t n_writes, cudasim_fn *fn, void *arg) {
  return sim_kernel(stream, reads, n_reads, writes, n_writes, fn, arg, NULL);
}
struct sim_transfer {
  size_t bytes;
  void *to;
  unsigned char byte;
};
static void sim_save_fn(void *const *reads, void *const *writes, void *arg) {
  const struct sim_transfer *t = arg;
  (void)writes;
  sim_copy(t->to, reads[0], t->bytes);
}
static void sim_fill_fn(void *const *reads, void *const *writes, void *arg) {
  const struct sim_transfer *t = arg;
  (void)reads;
  memset(writes[0], t->byte, t->bytes);
}
cudaError_t cudasim_save(cudaStream_t stream, const void *from, size_t bytes, void *to) {
  struct sim_transfer *t = sim_alloc(sizeof *t);
  *t = (struct sim_transfer){.bytes = bytes, .to = to};
  return sim_kernel(stream, &(cudasim_range){from, bytes}, 1, NULL, 0, sim_save_fn, t, t);
}
cudaError_t cudasim_fill(cudaStream_t stream, void *at, size_t bytes, unsigned char byte) {
  struct sim_transfer *t = sim_alloc(sizeof *t);
  *t = (struct sim_transfer){.bytes = bytes, .byte = byte};
  return sim_kernel(stream, NULL, 0, &(cudasim_range){at, bytes}, 1, sim_fill_fn, t, t);
}
void *cudasim_alias(const void *at) {
  sim_lock();
  const sim_block *b = sim_find(at);
  void *alias = b && b->alias && (const char *)at < b->host + b->mapped
                    ? b->alias + ((const char *)at - b->host)
                    : NULL;
  sim_unlock();
  return alias;
}

int cudasim_where(const void *at) {
  sim_lock();
  const sim_block *b = sim_find(at);
  int device = b && b->alias ? b->device : CUDASIM_NOWHERE;
  sim_unlock();
  return device;
}

/* ---- faults of the host ---- */

/* The host touched memory of the simulator's. Runs where the fault was: no allocation. Other faults
 * go to who was there before. */
static void sim_fault(int signal, siginfo_t *info, void *context) {
  int kept = errno;
  char place[64];
  char *at = info->si_addr;
  (void)context;
  sim_lock();
  sim_block *b = sim_find(at);
  if (!b) {
    sigaction(signal, &sim.old, NULL); /* the instruction is done again, and faults again */
  } else {
    size_t page = sim_page(), offset = (size_t)(at - b->host);
    const sim_access *in_flight = NULL;
    for (size_t k = 0; k < b->n_access; k++)
      if (b->access[k].from <= offset && offset < b->access[k].to &&
          (!in_flight || b->access[k].write))
        in_flight = &b->access[k];
    sim_place(b, place, sizeof place);
    if (!b->alias || b->device != CUDASIM_PINNED || offset >= b->mapped)
      sim_found(&sim.counts.host_touches, "the host touched %zu of %s%s", offset, place,
          !b->alias             ? ", which was freed"
          : offset >= b->mapped ? ", past its end"
                                : "");
    else if (in_flight && in_flight->write)
      sim_found(&sim.counts.host_touches,
          "the host touched %zu of %s, a destination in flight of %s %llu of stream %d", offset,
          place, in_flight->what, (unsigned long long)in_flight->tick, in_flight->slot);
    else if (in_flight)
      sim_found(&sim.counts.host_writes,
          "the host wrote a pinned source in flight: %zu of %s, which %s %llu of stream %d reads",
          offset, place, in_flight->what, (unsigned long long)in_flight->tick, in_flight->slot);
    /* else: bytes that share a page with some in flight, or over by now */
    if (mprotect(b->host + offset / page * page, page, PROT_READ | PROT_WRITE)) sim_die("mprotect");
    if (b->pages && offset < b->mapped) b->pages[offset / page] = SIM_OPEN;
  }
  sim_unlock();
  errno = kept;
}
void cudasim_catch_faults(bool on) {
  sim_lock();
  struct sigaction now,
      ours = {.sa_sigaction = sim_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigaction(SIGSEGV, NULL, &now);
  /* cmocka sets its own for each test */
  bool catching = now.sa_flags & SA_SIGINFO && now.sa_sigaction == sim_fault;
  if (on && !catching) {
    sim.old = now;
    sigaction(SIGSEGV, &ours, NULL);
  } else if (!on && catching) {
    sigaction(SIGSEGV, &sim.old, NULL);
  }
  sim_unlock();
}

/* ---- control ---- */

void cudasim_reset(int devices, uint64_t seed) {
  sim_lock();
  if (devices < 0 || devices > CUDASIM_DEVICES) sim_die("that many devices there are not");
  for (int i = 0; i < SIM_SLOTS; i++) {
    while (sim.slots[i].head) sim_drop(&sim.slots[i]);
    free(sim.slots[i].graph);
  }
  for (sim_block *next, *b = sim.blocks; b; b = next) {
    next = b->next;
    if (b->alias) munmap(b->alias, b->mapped);
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(b->host, b->reserved); /* something else will come to lie there */
#endif
    munmap(b->host, b->reserved);
    free(b->pages);
    free(b->access);
    free(b);
  }
  free(sim.events);
  sim.events = NULL;
  sim.n_events = 0;
  sim.blocks = NULL;
  sim.blocks_made = 0;
  memset(&sim.host, 0, sizeof sim.host);
  memset(sim.slots, 0, sizeof sim.slots);
  memset(&sim.counts, 0, sizeof sim.counts);
  memset(sim.calls, 0, sizeof sim.calls);
  memset(sim.contexts, 0, sizeof sim.contexts);
  sim.driver = sim.poison = sim.fail_error = cudaSuccess;
  sim.fail_in = 0;
  sim.capture = sim.used = sim.forked = false;
  sim.captures = 0;
  sim.n_texts = 0;
  sim_defaults(devices, seed);
  sim_unlock();
}
void cudasim_memory(size_t device_bytes, size_t pinned_bytes) {
  sim_lock();
  sim.memory = device_bytes;
  sim.pinned = pinned_bytes;
  sim_unlock();
}
void cudasim_driver(cudaError_t error) {
  sim_lock();
  sim.driver = error;
  sim_unlock();
}
void cudasim_delay(cudasim_when when, unsigned steps) {
  sim_lock();
  sim.when = when;
  sim.steps = steps;
  sim_unlock();
}
void cudasim_bus(bool stands) {
  sim_lock();
  sim.bus_stands = stands;
  sim_unlock();
}
void cudasim_step(unsigned steps) {
  sim_lock();
  while (steps-- && sim_run_one(NULL, true)) {}
  sim_unlock();
}
void cudasim_finish(void) {
  sim_clock all;
  sim_lock();
  while (sim_run_one(NULL, true)) {}
  for (int i = 0; i < SIM_SLOTS; i++) all.at[i] = sim.slots[i].done;
  sim_learn(&all);
  sim_unlock();
}
void cudasim_fail(uint64_t n, cudaError_t error) {
  sim_lock();
  sim.fail_in = n;
  sim.fail_error = error;
  sim_unlock();
}
void cudasim_capture(bool on) {
  sim_lock();
  sim.capture = on;
  sim_unlock();
}
void cudasim_capture_stream(cudaStream_t stream, bool on) {
  sim_lock();
  int slot = sim_stream(stream);
  if (slot >= 0) sim.slots[slot].capturing = on;
  sim_unlock();
}
cudasim_counts cudasim_count(void) {
  sim_lock();
  cudasim_counts c = sim.counts;
  sim_unlock();
  return c;
}
uint64_t cudasim_findings(void) {
  cudasim_counts c = cudasim_count();
  return c.races + c.host_writes + c.host_touches + c.uses_after_free + c.captures + c.misuses;
}
const char *cudasim_finding(unsigned number) {
  sim_lock();
  const char *text = number < sim.n_texts ? sim.texts[number] : NULL;
  sim_unlock();
  return text;
}
const char *cudasim_context(int device) {
  sim_lock();
  const char *name = device >= 0 && device < CUDASIM_DEVICES ? sim.contexts[device] : NULL;
  sim_unlock();
  return name;
}
int cudasim_context_state(int device, unsigned *flags, int *active) {
  if (device < 0 || device >= CUDASIM_DEVICES) return cudaErrorInvalidDevice;
  *flags = 0;
  *active = cudasim_context(device) != NULL;
  return 0;
}
cudaError_t cudasim_thread(enum cudaStreamCaptureMode *mode) {
  sim_lock();
  *mode = sim_thread.mode;
  cudaError_t last = sim_thread.last;
  sim_unlock();
  return last;
}
uint64_t cudasim_calls(const char *name) {
  uint64_t n = 0;
  sim_lock();
  for (int i = 0; i < SIM_N_CALLS; i++)
    if (!strcmp(sim_names[i], name)) n = sim.calls[i];
  sim_unlock();
  return n;
}
