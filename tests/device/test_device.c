/* What the loader promises of devices, against the simulated CUDA runtime: where arrays lie, how
 * much memory that takes, what is given back when, and what every function of part A does with it.
 * Orderings and faults are swept in test_cuda.c. */
#define INSITU_WITH_CUDA
#define INSITU_IMPLEMENTATION
#include "cudasim/cudasim.c"
#include <dlfcn.h>
/* The simulated driver, which tells whether a device has a context */
static void *driver_open(const char *name, int flags) {
  static char driver;
  return !strcmp(name, "libcuda.so.1") && flags & RTLD_NOLOAD ? &driver : NULL;
}
static void *driver_symbol(void *driver, const char *name) {
  int (*state)(int, unsigned *, int *) = cudasim_context_state;
  void *p = NULL;
  if (driver && !strcmp(name, "cuDevicePrimaryCtxGetState")) memcpy(&p, &state, sizeof p);
  return p;
}
#define dlopen(name, flags) driver_open(name, flags)
#define dlsym(driver, name) driver_symbol(driver, name)
#define dlclose(driver) ((void)(driver))
/* The library as if nvcc --default-stream per-thread or CUDA_API_PER_THREAD_DEFAULT_STREAM had
 * built it: the calls are then others, which take NULL for cudaStreamPerThread. */
static bool per_thread_build;
static cudaStream_t built(cudaStream_t stream) {
  return !stream && per_thread_build ? cudaStreamPerThread : stream;
}
#define cudaStreamSynchronize(stream) cudaStreamSynchronize(built(stream))
#define cudaStreamWaitEvent(stream, event, flags) cudaStreamWaitEvent(built(stream), event, flags)
#define cudaEventRecord(event, stream) cudaEventRecord(event, built(stream))
#define cudaMemcpyAsync(dst, src, bytes, kind, stream)                                             \
  cudaMemcpyAsync(dst, src, bytes, kind, built(stream))
#include "insitubatch.h"
#undef cudaStreamSynchronize
#undef cudaStreamWaitEvent
#undef cudaEventRecord
#undef cudaMemcpyAsync
#include "support.h"
#include "modes.h"
#include "places.h"
#include "dlpack.h"

#define OK(call) assert_int_equal(call, cudaSuccess)

/* ---- every public call leaves the caller's device as it was ---- */

static int current = -1; /* -1: not looked at, which is a call of CUDA's itself */
static void same_device(void) {
  int now = -1;
  if (current < 0) return;
  OK(cudaGetDevice(&now));
  assert_int_equal(now, current);
}
static void choose(int device) {
  current = device;
  OK(cudaSetDevice(device));
}

static insitu_loader *open_here(const insitu_loader_desc *d) {
  insitu_loader *ld = open_or_fail(d);
  same_device();
  return ld;
}
static insitu_iter *iter_or_fail(insitu_loader *ld, const insitu_iter_desc *d) {
  insitu_iter *it = open_iter_or_fail(ld, d);
  same_device();
  return it;
}
static insitu_batch *next_or_fail(insitu_iter *it) {
  insitu_batch *b = next_batch_or_fail(it);
  same_device();
  return b;
}
static void release_on(insitu_batch **b, void *stream) {
  insitu_batch_release_on(b, stream);
  assert_null(*b);
  same_device();
}
static void close_iter(insitu_iter **it) {
  insitu_iter_close(it);
  assert_null(*it);
  same_device();
}
static void close_loader(insitu_loader **ld) {
  insitu_loader_close(ld);
  assert_null(*ld);
  same_device();
}
static insitu_stats stats_of(const insitu_loader *ld) {
  insitu_stats s;
  assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
  same_device();
  return s;
}
static void refuse_open(
    const insitu_loader_desc *d, insitu_status want, const char *word, const char *advice) {
  places_refuse_open(d, want, word, advice);
  same_device();
}
static void refuse_iter(
    insitu_loader *ld, const insitu_iter_desc *d, insitu_status want, const char *word) {
  insitu_error err = {0};
  insitu_iter *it = (insitu_iter *)&err;
  insitu_status s = insitu_iter_open(ld, d, &it, &err);
  if (s != want)
    fail_msg("%s, not %s: %s", insitu_status_name(s), insitu_status_name(want), err.message);
  assert_null(it);
  HAS(err.message, word);
  same_device();
}

/* ---- the consumer ---- */

static cudaStream_t streams[CUDASIM_DEVICES];
static int n_streams;
/* a machine with so many devices, and a stream on each */
static void begin(int devices, uint64_t seed) {
  cudasim_reset(devices, seed);
  current = -1;
  n_streams = devices;
  for (int i = devices; i-- > 0;) { /* device 0 is then the current one */
    OK(cudaSetDevice(i));
    OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  }
}
static void sync_all(void) {
  for (int i = 0; i < n_streams; i++) OK(cudaStreamSynchronize(streams[i]));
}
static void nothing_left(void) {
  cudasim_counts c = cudasim_count();
  assert_int_equal(c.streams, n_streams);
  assert_int_equal(c.events, 0);
  assert_int_equal(c.device_blocks + c.device_bytes + c.pinned_blocks + c.pinned_bytes, 0);
}
static void finish(void) { /* all was right, and nothing is left */
  nothing_left();
  if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
  assert_int_equal(cudasim_count().default_stream, 0);
  assert_int_equal(cudasim_count().write_combined + cudasim_count().timing_events, 0);
  for (int i = 0; i < n_streams; i++) OK(cudaStreamDestroy(streams[i]));
  n_streams = 0;
}

/* Kernels that copy an array to ordinary memory, each on a stream of its device. The iterator's
 * stream is streams[home]. */
static void save_array(const insitu_array *a, int home, void *to) {
  if (a->place == INSITU_HOST) memcpy(to, a->data, a->bytes);
  else if (a->bytes)
    OK(cudasim_save(streams[a->place == INSITU_DEVICE ? a->device : home], a->data, a->bytes, to));
}
static struct seen *save(const insitu_batch *b, int home) {
  struct seen *s = seen_new(b);
  insitu_error err = {0};
  for (int i = 0; i < n_streams; i++)
    if (i != home) assert_int_equal(insitu_batch_wait(b, streams[i], &err), INSITU_OK);
  same_device();
  for (uint64_t i = 0; i < b->n_arrays; i++) save_array(&b->arrays[i], home, s->arrays[i].data);
  return s;
}
/* Makes streams[home] come behind all others, and releases on it. */
static void release_behind_all(insitu_batch **b, int home) {
  int before;
  if (n_streams) OK(cudaGetDevice(&before));
  for (int i = 0; i < n_streams; i++) {
    cudaEvent_t e;
    if (i == home) continue;
    OK(cudaSetDevice(i));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaEventRecord(e, streams[i]));
    OK(cudaStreamWaitEvent(streams[home], e, 0));
    OK(cudaEventDestroy(e));
  }
  if (n_streams) OK(cudaSetDevice(before));
  release_on(b, n_streams ? streams[home] : NULL);
}
/* Takes `most` batches, or all up to END (0), and checks every element; how many there were.
 * *after: the last one's state */
static uint64_t consume(insitu_iter *it, int home, uint64_t most, insitu_state *after) {
  struct seen *seen[64];
  uint64_t n = 0;
  for (insitu_batch *b; !most || n < most; n++) {
    insitu_error err = {0};
    insitu_status s = insitu_iter_next(it, 20000, &b, &err);
    if (s == INSITU_END && !most) break;
    if (s) fail_msg("%s: %s", insitu_status_name(s), err.message);
    same_device();
    assert_true(n < 64);
    seen[n] = save(b, home);
    if (after) *after = b->after;
    release_behind_all(&b, home);
  }
  sync_all();
  for (uint64_t i = 0; i < n; i++) {
    seen_check(seen[i]);
    seen_free(seen[i]);
  }
  return n;
}

static const char ALL_HOST[] = "00 00 00 00", ALL_DEVICE[] = "20 20 20 20", MIXED[] = "20 10 00 30",
                  TWO[] = "21 10 20 31";
static insitu_iter_desc all(int home) { /* every anchor, shuffled */
  return (insitu_iter_desc){.api = INSITU_API,
      .split = INSITU_ALL,
      .order = INSITU_SHUFFLED,
      .stream = n_streams ? streams[home] : NULL};
}

/* ---- 1. where arrays lie ---- */

static struct {
  pthread_mutex_t lock;
  int n, of[VARS];
  char line[1400];
} placed = {.lock = PTHREAD_MUTEX_INITIALIZER};
static void log_placed(void *user, int32_t level, const char *line) {
  (void)user;
  if (!strstr(line, "plain host memory")) return;
  pthread_mutex_lock(&placed.lock);
  placed.n++;
  for (int i = 0; i < VARS; i++) {
    char name[40];
    sprintf(name, "variable %s:", places_variable[i].label);
    placed.of[i] += level == 2 && strstr(line, name);
  }
  snprintf(placed.line, sizeof placed.line, "%s", line);
  pthread_mutex_unlock(&placed.lock);
}
static void log_here(insitu_loader_desc *d) {
  d->log = log_placed;
  d->log_level = INSITU_LOG_INFO;
  placed.n = 0;
  memset(placed.of, 0, sizeof placed.of);
}

static void test_no_device(void **state) {
  static const struct {
    cudaError_t driver;
    const char *text, *name;
  } machine[] = {{cudaSuccess, "no device", "cudaErrorNoDevice"},
      {cudaErrorInsufficientDriver, "the driver is missing or too old",
          "cudaErrorInsufficientDriver"}};
  (void)state;
  EACH_MODE (m)
    for (size_t k = 0; k < 2; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, "30 10 00 20");
      begin(0, 1);
      cudasim_driver(machine[k].driver);
      refuse_open(d, INSITU_E_DEVICE, machine[k].text, "INSITU_DEVICE_OR_HOST");
      refuse_open(d, INSITU_E_DEVICE, machine[k].name, "variable d");
      d = places_desc(&p, m, "30 10 00 37");
      log_here(d);
      insitu_loader *ld = open_here(d);
      assert_int_equal(placed.n, 3);
      assert_true(placed.of[0] == 1 && placed.of[1] == 1 && !placed.of[2] && placed.of[3] == 1);
      HAS(placed.line, machine[k].name);
      for (uint64_t i = 0; i < VARS; i++) {
        assert_int_equal(insitu_loader_array(ld, i)->place, INSITU_HOST);
        assert_int_equal(insitu_loader_array(ld, i)->device, 0);
      }
      /* the wish stays to be read */
      assert_int_equal(insitu_loader_config(ld)->variables[0].place, INSITU_DEVICE_OR_HOST);
      insitu_iter_desc id = all(0);
      insitu_iter *it = iter_or_fail(ld, &id);
      insitu_batch *b = next_or_fail(it);
      for (uint64_t i = 0; i < VARS; i++)
        assert_true(b->arrays[i].place == INSITU_HOST && b->arrays[i].device == 0);
      struct seen *s = save(b, 0);
      seen_check(s);
      seen_free(s);
      insitu_batch_release(&b);
      assert_true(consume(it, 0, 0, NULL) > 3);
      insitu_stats stats = stats_of(ld);
      assert_true(
          stats.uploads + stats.uploaded_bytes + stats.device_bytes + stats.pinned_bytes == 0);
      close_loader(&ld);
      close_iter(&it);
      assert_int_equal(cudasim_calls("cudaMalloc") + cudasim_calls("cudaHostAlloc"), 0);
      finish();
    }
}

static void test_ordinals(void **state) {
  static const struct {
    int32_t place, device;
  } none[] = {{-1, 0}, {4, 0}, {INSITU_DEVICE, -1}, {INSITU_DEVICE, 64}, {INSITU_HOST, -1},
      {INSITU_DEVICE_OR_HOST, 64}};
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, "22 00 00 00");
    begin(2, 1);
    refuse_open(d, INSITU_E_DEVICE, "variable x", "no device 2, only 2");
    refuse_open(d, INSITU_E_DEVICE, "INSITU_DEVICE_OR_HOST", "device");
    for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
      places_desc(&p, m, ALL_HOST);
      p.variable[1].place = none[k].place;
      p.variable[1].device = none[k].device;
      refuse_open(d, INSITU_E_ARG, "variable y", "INSITU_HOST");
    }
    places_desc(&p, m, "32 12 21 31"); /* two of a device that is not there */
    log_here(d);
    insitu_loader *ld = open_here(d);
    assert_true(placed.n == 2 && placed.of[0] == 1 && placed.of[1] == 1);
    HAS(placed.line, "no such device");
    assert_int_equal(insitu_loader_array(ld, 0)->place, INSITU_HOST);
    assert_int_equal(insitu_loader_array(ld, 1)->place, INSITU_HOST);
    for (uint64_t i = 2; i < 4; i++)
      assert_true(insitu_loader_array(ld, i)->place == INSITU_DEVICE &&
                  insitu_loader_array(ld, i)->device == 1);
    choose(1);
    insitu_iter_desc id = all(1);
    insitu_iter *it = iter_or_fail(ld, &id);
    assert_true(consume(it, 1, 0, NULL) > 3);
    assert_int_equal(cudasim_count().bytes_of[0], 0);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

/* What one variable says of an output's place holds for the masks of all of its variables. */
static void test_masks(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int says = 0; says < 2; says++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, ALL_HOST);
      begin(2, 1);
      for (int i = 0; i < 2; i++)
        p.variable[i] = (insitu_variable){
            .label = i ? "b" : "a", .path = "x", .into = "ab", .mask = i ? "mb" : "ma"};
      p.variable[says].place = INSITU_DEVICE;
      p.variable[says].device = 1;
      d->n_variables = 2;
      insitu_loader *ld = open_here(d);
      for (uint64_t i = 0; i < 3; i++) {
        const insitu_array *a = insitu_loader_array(ld, i);
        if (a->place != INSITU_DEVICE || a->device != 1)
          fail_msg("'%s' lies at %d of device %d", a->name, a->place, a->device);
      }
      close_loader(&ld);
      finish();
    }
}

/* Who places nothing has nothing of CUDA's, and who only plans neither: what the plan says is then
 * what it comes to. */
static void test_no_call(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, ALL_HOST);
    begin(0, 1);
    uint64_t before = cudasim_count().calls;
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    insitu_error err = {0};
    for (int i = 0; i < 6; i++) {
      static float fixed[8 * 60];
      insitu_batch *b = next_or_fail(it);
      assert_int_equal(insitu_batch_wait(b, NULL, &err), INSITU_OK);
      assert_int_equal(insitu_batch_copy_to(b, 0, fixed, sizeof fixed, NULL, &err), INSITU_OK);
      assert_memory_equal(fixed, b->arrays[0].data, sizeof fixed);
      struct dl e = dl_export(b, 1, i % 2, NULL);
      insitu_batch_release_on(&b, NULL);
      dl_delete(e);
    }
    close_loader(&ld);
    close_iter(&it);
    d = places_desc(&p, m, MIXED);
    d->plan_only = 1;
    d->inline_io = 0;
    ld = open_here(d);
    insitu_plan plan;
    id.max_held = 3;
    assert_int_equal(insitu_loader_plan(ld, &id, &plan, &err), INSITU_OK);
    assert_int_equal(insitu_loader_array(ld, 0)->place, INSITU_DEVICE);
    assert_int_equal(insitu_loader_array(ld, 1)->place, INSITU_PINNED);
    assert_int_equal(insitu_loader_array(ld, 3)->place, INSITU_DEVICE);
    close_loader(&ld);
    close_iter(&it);
    assert_int_equal(cudasim_count().calls, before);

    begin(1, 1);
    d->plan_only = 0;
    d->inline_io = modes[m].inline_io;
    id.stream = streams[0];
    ld = open_here(d);
    insitu_plan real;
    assert_int_equal(insitu_loader_plan(ld, &id, &real, &err), INSITU_OK);
    /* tables and bytes in flight depend on how many threads the loader has */
    assert_memory_equal(&real, &plan, offsetof(insitu_plan, table_bytes));
    it = iter_or_fail(ld, &id);
    insitu_stats s = stats_of(ld);
    /* 4 batches of x (4 * 60 * 8 = 1920, in blocks of 256: 2048) and of d (8 * 10 * 8 = 640: 768)
     */
    assert_int_equal(plan.device_bytes, 4 * (2048 + 768));
    assert_int_equal(s.device_bytes, plan.device_bytes);
    assert_int_equal(cudasim_count().device_bytes, plan.device_bytes);
    assert_int_equal(s.memory_promised,
        real.slabs * real.slab_bytes + real.table_bytes + real.inflight_bytes + real.cache_bytes);
    consume(it, 0, 0, NULL);
    s = stats_of(ld);
    assert_true(s.slab_bytes % plan.slab_bytes == 0 && s.slab_bytes > 0 &&
                s.slab_bytes <= plan.slabs * plan.slab_bytes);
    assert_int_equal(s.pinned_bytes, cudasim_count().pinned_bytes);
    assert_true(s.pinned_bytes > 0 && s.pinned_bytes < s.slab_bytes);
    assert_int_equal(s.pinned_bytes % (s.slab_bytes / plan.slab_bytes), 0);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

/* ---- 2. how much memory ---- */

static void test_device_memory(void **state) {
  (void)state;
  for (int real = 0; real < 2; real++) { /* desc.device_budget; the device's own */
    struct places p;
    insitu_loader_desc *d = places_desc(&p, EPOLL, MIXED);
    insitu_plan plan;
    char each[40];
    begin(1, 1);
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
    close_loader(&ld);
    uint64_t n = plan.device_bytes;
    sprintf(each, "%d bytes each", (int)(n / 3));
    for (int less = 0; less < 2; less++) { /* three iterators fit exactly, or the third does not */
      uint64_t room = 3 * n - (uint64_t)less;
      if (real) cudasim_memory(room, 1 << 30);
      else d->device_budget = room;
      ld = open_here(d);
      insitu_iter *it[3];
      for (int i = 0; i < 3 - less; i++) {
        it[i] = iter_or_fail(ld, &id);
        assert_int_equal(stats_of(ld).device_bytes, (uint64_t)(i + 1) * n);
      }
      char words[160];
      sprintf(words,
          "device 0, where %d bytes are left (%d are taken by other iterators and "
          "fixed variables%s)",
          less ? (int)n - 1 : 0, (int)((uint64_t)(3 - less) * n),
          real ? "" : ", and device_budget allows no more");
      refuse_iter(ld, &id, INSITU_E_BUDGET, each);
      refuse_iter(ld, &id, INSITU_E_BUDGET, words);
      refuse_iter(ld, &id, INSITU_E_BUDGET,
          real ? "lower batch_size or max_held" : "or raise device_budget");
      /* what was refused takes nothing */
      assert_int_equal(stats_of(ld).device_bytes, (uint64_t)(3 - less) * n);
      uint64_t promised = stats_of(ld).memory_promised;
      consume(it[0], 0, 2, NULL);
      close_iter(&it[1]); /* and gives it back */
      assert_int_equal(stats_of(ld).device_bytes, (uint64_t)(2 - less) * n);
      it[1] = iter_or_fail(ld, &id);
      assert_int_equal(stats_of(ld).memory_promised, promised);
      consume(it[1], 0, 2, NULL);
      for (int i = 0; i < 3 - less; i++) close_iter(&it[i]);
      assert_int_equal(
          stats_of(ld).device_bytes + stats_of(ld).pinned_bytes + stats_of(ld).slab_bytes, 0);
      id.max_held = 1; /* asks for less */
      it[0] = iter_or_fail(ld, &id);
      assert_int_equal(stats_of(ld).device_bytes, n / 3 * 2);
      id.max_held = 0;
      close_loader(&ld);
      close_iter(&it[0]);
    }
    finish();
  }
}

/* Two devices have a budget each; what a closed iterator's batches still take counts no more. */
static void test_budget_of_each(void **state) {
  (void)state;
  struct places p;
  insitu_loader_desc *d = places_desc(&p, EPOLL, "20 21 21 00");
  begin(2, 1);
  insitu_iter_desc id = all(0);
  insitu_plan plan;
  insitu_loader *ld = open_here(d);
  assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
  close_loader(&ld);
  uint64_t zero = 3 * 2048, one = 3 * (256 + 256); /* y: 8 * 3 * 2 bytes, z: 8 * 3 * 7 */
  assert_int_equal(plan.device_bytes, zero + one);
  d->device_budget = zero;
  ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  assert_int_equal(cudasim_count().bytes_of[0], zero);
  assert_int_equal(cudasim_count().bytes_of[1], one);
  refuse_iter(ld, &id, INSITU_E_BUDGET, "device 0");
  insitu_batch *b = next_or_fail(it);
  close_iter(&it);
  assert_int_equal(stats_of(ld).device_bytes, 0);
  it = iter_or_fail(ld, &id); /* beside the batch */
  struct seen *s = save(b, 0);
  sync_all();
  seen_check(s);
  seen_free(s);
  insitu_batch_release(&b);
  consume(it, 0, 0, NULL);
  close_loader(&ld);
  close_iter(&it);
  finish();
}

/* Page-locked slabs count against memory_budget as others do. */
static void test_memory_budget(void **state) {
  (void)state;
  struct places p;
  insitu_loader_desc *d = places_desc(&p, EPOLL, MIXED);
  begin(1, 1);
  insitu_iter_desc id = all(0);
  insitu_loader *ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  insitu_plan plan;
  assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
  uint64_t needs = stats_of(ld).memory_promised;
  assert_true(plan.slab_bytes >= 2 * 4096); /* a block of each sort */
  close_loader(&ld);
  close_iter(&it);
  d->memory_budget = needs;
  ld = open_here(d);
  it = iter_or_fail(ld, &id);
  consume(it, 0, 0, NULL);
  assert_true(stats_of(ld).memory_bytes_peak <= needs);
  close_loader(&ld);
  d->memory_budget = needs - 1;
  ld = open_here(d);
  refuse_iter(ld, &id, INSITU_E_BUDGET, "memory_budget");
  nothing_left(); /* the device's part had been taken already */
  assert_int_equal(stats_of(ld).device_bytes, 0);
  close_loader(&ld);
  close_iter(&it);
  finish();
}

/* Page-locked memory is taken when it is first used: where there is too little, batches come as far
 * as it reaches. */
static void test_too_little_pinned(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, ALL_DEVICE);
    begin(1, 1);
    insitu_iter_desc id = all(0);
    id.order = INSITU_SEQUENTIAL;
    d->lanes = 1;
    insitu_loader *ld = open_here(d);
    cudasim_memory(1 << 30, ld->geometry.pinned_bytes * 4 - 1);
    insitu_iter *it = iter_or_fail(ld, &id);
    insitu_error err = {0};
    insitu_batch *b = next_or_fail(it), *none;
    struct seen *s = save(b, 0);
    while (insitu_iter_next(it, 20000, &none, NULL) == INSITU_OK) insitu_batch_release(&none);
    for (int i = 0; i < 2; i++) { /* again and again */
      memset(&err, 0, sizeof err);
      assert_int_equal(insitu_iter_next(it, 20000, &none, &err), INSITU_E_NOMEM);
      HAS(err.message, "page-locked memory: out of memory (cudaErrorMemoryAllocation, 2); lower");
    }
    sync_all();
    seen_check(s);
    seen_free(s);
    insitu_batch_release(&b);
    cudasim_memory(1 << 30, 1 << 30);
    assert_int_equal(insitu_iter_set_epoch(it, 0, &err), INSITU_OK);
    assert_int_equal(consume(it, 0, 0, NULL), (SAMPLES - 3 + 7) / 8);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

/* What is uploaded, and when it is there and when not */
static void test_statistics(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    /* x and d on device 1, z on device 0, y page-locked */
    insitu_loader_desc *d = places_desc(&p, m, TWO);
    begin(2, 1);
    choose(1);
    d->hold_epoch = 1;
    insitu_iter_desc id = all(1);
    insitu_loader *ld = open_here(d);
    insitu_stats s = stats_of(ld);
    assert_true(s.uploads + s.uploaded_bytes + s.device_bytes + s.pinned_bytes == 0);
    insitu_iter *it = iter_or_fail(ld, &id);
    uint64_t on[2] = {256, 2048 + 768}; /* of a batch */
    insitu_batch *b = next_or_fail(it);
    /* others are being uploaded: with it, both counters are of the same ones */
    pthread_mutex_lock(&it->lock);
    s = stats_of(ld);
    pthread_mutex_unlock(&it->lock);
    /* those that there are slots for */
    assert_true(s.uploads >= 2 && s.uploads <= 6 && s.uploads % 2 == 0);
    assert_int_equal(s.uploaded_bytes, s.uploads / 2 * (on[0] + on[1]));
    assert_int_equal(s.device_bytes, 3 * (on[0] + on[1]));
    assert_int_equal(cudasim_count().bytes_of[0], 3 * on[0]);
    assert_int_equal(cudasim_count().bytes_of[1], 3 * on[1]);
    insitu_batch_release(&b);
    uint64_t n = 1 + consume(it, 1, 0, NULL);
    s = stats_of(ld);
    assert_int_equal(s.batches, n);
    assert_int_equal(s.uploads, 2 * n);
    assert_int_equal(s.uploaded_bytes, n * (on[0] + on[1]));
    cudasim_counts c = cudasim_count();
    /* one for each batch and device, all from page-locked memory */
    assert_int_equal(c.copies, 2 * n);
    assert_int_equal(c.copy_bytes, s.uploaded_bytes);
    assert_int_equal(c.unpinned_copies + c.foreign_copies, 0);
    assert_int_equal(s.pinned_bytes, c.pinned_bytes);
    assert_int_equal(
        s.slab_bytes / ld->geometry.slab_bytes * ld->geometry.pinned_bytes, s.pinned_bytes);
    insitu_iter *other = iter_or_fail(ld, &id);
    assert_int_equal(stats_of(ld).device_bytes, 6 * (on[0] + on[1]));
    close_iter(&it);
    assert_int_equal(stats_of(ld).device_bytes, 3 * (on[0] + on[1]));
    close_iter(&other);
    s = stats_of(ld);
    assert_int_equal(s.device_bytes + s.pinned_bytes + s.slab_bytes, 0);
    assert_true(s.uploads >= 2 * n);
    assert_int_equal(cudasim_count().device_bytes + cudasim_count().pinned_bytes, 0);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

/* ---- 3. everywhere at once ---- */

/* Arrays of a device follow each other in the order of the variables, each at a multiple of 256. */
static void check_layout(const insitu_batch *b, uint64_t rows) {
  const unsigned char *end[2] = {NULL, NULL};
  for (uint64_t i = 0; i < b->n_arrays; i++) {
    const insitu_array *a = &b->arrays[i];
    assert_int_equal((uintptr_t)a->data % 256, 0);
    assert_int_equal(cudasim_where(a->data), a->place == INSITU_DEVICE   ? a->device
                                             : a->place == INSITU_PINNED ? CUDASIM_PINNED
                                                                         : CUDASIM_NOWHERE);
    if (a->place != INSITU_DEVICE) continue;
    if (end[a->device]) assert_ptr_equal(a->data, end[a->device]);
    end[a->device] = (unsigned char *)a->data + (rows * a->row_bytes + 255) / 256 * 256;
  }
}
static void test_everywhere(void **state) {
  static const char *const places[] = {
      TWO, "21 20 21 20", "20 21 10 00", "11 10 10 00", "31 21 21 31", MIXED, ALL_DEVICE};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 14; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, places[k / 2]);
      int home = k % 2;
      /* all on device 0: its streams */
      if (strstr("20 20 20 20 20 10 00 30", places[k / 2])) home = 0;
      if (!strcmp(places[k / 2], "31 21 21 31")) home = 1;
      begin(2, (uint64_t)k + 1);
      choose(k % 2); /* whatever is current: with several devices the stream's */
      if (k / 2 < 4) choose(home);
      d->hold_epoch = 1;
      insitu_iter_desc id = all(home);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      uint64_t n = 0, devices = ld->geometry.n_devices;
      for (insitu_error err = {0};; n++) {
        insitu_batch *b = NULL;
        insitu_status status = insitu_iter_next(it, 20000, &b, &err);
        same_device();
        if (status == INSITU_END) break;
        if (status) fail_msg("%s: %s", insitu_status_name(status), err.message);
        check_layout(b, 8);
        struct seen *s = save(b, home);
        void *later = n % 2 ? b->arrays[3].data : NULL; /* one by an export */
        struct dl e = {0};
        if (later) e = dl_export(b, 3, n % 4 == 1, streams[home]);
        same_device();
        release_behind_all(&b, home);
        if (later) dl_delete(e);
        same_device();
        sync_all();
        seen_check(s);
        seen_free(s);
      }
      assert_true(n > 3);
      assert_int_equal(cudasim_count().copies, n * devices);
      assert_int_equal(cudasim_count().foreign_copies, 0);
      assert_int_equal(consume(it, home, 0, NULL), n); /* a second epoch */
      close_iter(&it);
      close_loader(&ld);
      finish();
    }
}

/* An export's stream is of the device that was current when it was asked for, whatever is current
 * where it is deleted. */
static void *delete_there(void *arg) {
  dl_delete(*(struct dl *)arg);
  return NULL;
}
static void dl_delete_elsewhere(struct dl e) {
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, delete_there, &e), 0);
  assert_int_equal(pthread_join(t, NULL), 0);
}
static void test_delete_elsewhere(void **state) {
  (void)state;
  for (int null = 0; null < 2; null++) { /* a stream; the default one */
    struct places p;
    insitu_loader_desc *d = places_desc(&p, EPOLL, "20 21 20 21");
    begin(2, 3);
    choose(1);
    insitu_iter_desc id = all(1);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    for (int i = 0; i < 6; i++) {
      int16_t got[24], want[24];
      insitu_batch *b = next_or_fail(it);
      struct dl e = dl_export(b, 1, i % 2, null ? NULL : streams[1]);
      assert_int_equal(dl_tensor(e)->device.device_id, 1);
      uint64_t bytes = b->arrays[1].bytes;
      for (uint64_t r = 0, k = 0; r < b->rows; r++)
        for (int c = 1; c < 4; c++, k++) want[k] = (int16_t)(5 * (b->sample_indices[r] + 1) + c);
      OK(cudaStreamSynchronize(streams[1]));
      insitu_batch_release(&b);
      /* under way when it is deleted */
      OK(cudasim_save(null ? NULL : streams[1], dl_tensor(e)->data, bytes, got));
      dl_delete_elsewhere(e);
      OK(cudaStreamSynchronize(null ? NULL : streams[1]));
      assert_memory_equal(got, want, bytes);
    }
    close_loader(&ld);
    close_iter(&it);
    nothing_left(); /* the default stream was the test's */
    if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
    for (int i = 0; i < n_streams; i++) OK(cudaStreamDestroy(streams[i]));
    n_streams = 0;
  }
}

/* One stream, on device 1, and device 1 alone current: nobody has used device 0. Its number for
 * save and release is 0. */
static void begin_on_one(uint64_t seed) {
  cudasim_reset(2, seed);
  current = -1;
  n_streams = 1;
  choose(1);
  OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  streams[0] = streams[1];
}
static void *release_there(void *arg) {
  insitu_batch_release(arg);
  return NULL;
}
static void release_elsewhere(insitu_batch **b) { /* in a thread that has chosen no device */
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, release_there, b), 0);
  assert_int_equal(pthread_join(t, NULL), 0);
  assert_null(*b);
}
struct both {
  insitu_iter **it;
  insitu_loader **ld;
};
static void *close_there(void *arg) {
  struct both *c = arg;
  insitu_iter_close(c->it);
  insitu_loader_close(c->ld);
  return NULL;
}
static void no_context(int device, const char *when) {
  const char *name = cudasim_context(device);
  if (name) fail_msg("%s: %s made a context on device %d, which nobody uses", when, name, device);
}

/* A device that the program does not use stays as it is: a context takes hundreds of megabytes
 * there. */
static void test_contexts(void **state) {
  static const char *const places[] = {"21 11 00 31", "21 21 21 21", "11 11 11 11", "10 21 00 21"};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 4; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, places[k]);
      begin_on_one((uint64_t)k + 1);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      no_context(0, "open");
      for (int epoch = 0; epoch < 3; epoch++) consume(it, 0, 0, NULL);
      no_context(0, "epochs");
      insitu_batch *b[2] = {next_or_fail(it), next_or_fail(it)};
      struct seen *s[2] = {save(b[0], 0), save(b[1], 0)};
      struct dl e[2] = {dl_export(b[0], 0, 0, streams[1]), {0}};
      if (k % 3) e[1] = dl_export(b[1], 3, 1, streams[1]);
      else e[1] = dl_export(b[1], 2, 1, NULL); /* on the host: no stream is told of its end */
      release_elsewhere(&b[0]);
      no_context(0, "a release");
      dl_delete_elsewhere(e[0]);
      no_context(0, "a deleter");
      insitu_stats stats = stats_of(ld);
      assert_true(stats.batches > 2);
      assert_int_equal(insitu_iter_set_epoch(it, 1, NULL), INSITU_OK);
      no_context(0, "set_epoch");
      consume(it, 0, 2, NULL);
      if (k < 2 || modes[m].inline_io) {
        close_iter(&it);
        close_loader(&ld);
      } else {
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, close_there, &(struct both){&it, &ld}), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
      }
      no_context(0, "closing");
      release_elsewhere(&b[1]);
      dl_delete_elsewhere(e[1]); /* the last one: it frees */
      no_context(0, "what outlived the loader");
      sync_all();
      for (int i = 0; i < 2; i++) {
        seen_check(s[i]);
        seen_free(s[i]);
      }
      finish();
      no_context(0, "the end");
    }
}

/* The current device stays, also where nobody has used it yet; and nobody has used it then but with
 * inline_io, whose uploads and page-locked memory are asked for by the user's thread. */
static void stays(int device, bool inline_io, const char *after) {
  int now = -1;
  OK(cudaGetDevice(&now));
  if (now != device) fail_msg("%s: the current device is %d, it was %d", after, now, device);
  if (!inline_io) no_context(0, after);
}
struct own_calls { /* of a thread that has chosen no device */
  int m, k;
  insitu_state other; /* of larger units */
};
static void *own_calls(void *arg) {
  static const char *const places[] = {"21 11 00 31", "21 21 21 21"};
  const struct own_calls *c = arg;
  bool inline_io = modes[c->m].inline_io;
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};
  struct places p;
  insitu_iter_desc id = all(0);
  insitu_state state;
  id.max_held = 3;
  id.stream = streams[1];
  assert_int_equal(insitu_loader_open(places_desc(&p, c->m, places[c->k]), &ld, &err), INSITU_OK);
  stays(0, false, "insitu_loader_open");
  assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
  stays(0, inline_io, "insitu_iter_open");
  for (int n = 0; n < 8; n++) {
    static unsigned char fixed[4096];
    insitu_status status;
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_END) {}
    assert_int_equal(status, INSITU_OK);
    stays(0, inline_io, "insitu_iter_next");
    state = b->after;
    assert_int_equal(insitu_batch_wait(b, streams[1], &err), INSITU_OK);
    stays(0, inline_io, "insitu_batch_wait");
    if (b->arrays[1].place != INSITU_HOST) {
      assert_int_equal(
          insitu_batch_copy_to(b, 1, fixed, sizeof fixed, streams[1], &err), INSITU_OK);
      stays(0, inline_io, "insitu_batch_copy_to");
    }
    struct dl e = dl_export(b, 1, 1, streams[1]);
    stays(0, inline_io, "insitu_batch_dlpack");
    if (n % 2) insitu_batch_release(&b);
    else insitu_batch_release_on(&b, streams[1]);
    stays(0, inline_io, "insitu_batch_release");
    dl_delete(e);
    stays(0, inline_io, "a DLPack deleter");
  }
  assert_int_equal(insitu_iter_set_epoch(it, 2, &err), INSITU_OK);
  stays(0, inline_io, "insitu_iter_set_epoch");
  assert_int_equal(insitu_iter_restore(it, &state, &err), INSITU_OK);
  stays(0, inline_io, "insitu_iter_restore");
  assert_int_equal(insitu_iter_restore(it, &c->other, &err), INSITU_OK);
  stays(0, inline_io, "insitu_iter_restore of another order");
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_END) {}
  assert_int_equal(status, INSITU_OK);
  struct dl last = dl_export(b, 1, 0, streams[1]);
  if (c->k == 1) insitu_iter_close(&it);
  stays(0, inline_io, "insitu_iter_close");
  insitu_loader_close(&ld);
  stays(0, inline_io, "insitu_loader_close");
  if (it) insitu_iter_close(&it);
  insitu_batch_release(&b);
  dl_delete(last); /* frees what is left */
  stays(0, inline_io, "the last deleter");
  return NULL;
}
static void test_current_device(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 2; k++) {
      pthread_t t;
      struct own_calls calls = {.m = m, .k = k};
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, ALL_HOST);
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
      d->unit_chunks = 2;
      insitu_loader *ld = open_or_fail(d);
      insitu_iter *it = open_iter_or_fail(ld, &id);
      insitu_batch *b = next_batch_or_fail(it);
      calls.other = b->after;
      insitu_batch_release(&b);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      begin_on_one((uint64_t)k + 1);
      current = -1; /* open_here and the others are not for two threads */
      assert_int_equal(pthread_create(&t, NULL, own_calls, &calls), 0);
      assert_int_equal(pthread_join(t, NULL), 0);
      sync_all();
      finish();
    }
}

/* A cudaSetDevice that tells of earlier work has switched all the same. */
static void test_current_device_after_an_error(void **state) {
  struct insitu__device_scope s;
  insitu_error err = {0};
  (void)state;
  begin(2, 1);
  choose(1);
  cudasim_fail(2, cudaErrorUnknown); /* the second call */
  assert_int_equal(insitu__device_enter(&s, 0, &err), INSITU_E_DEVICE);
  assert_non_null(strstr(err.message, "cudaSetDevice"));
  insitu__device_leave(&s);
  same_device();
  current = -1;
  finish();
}

/* desc.alloc and desc.release may leave another device current. */
static void *astray_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  void *p = NULL;
  (void)stream;
  ++*(atomic_int *)user;
  OK(cudaSetDevice(place == INSITU_DEVICE ? device : 1));
  if (place == INSITU_DEVICE) OK(cudaMalloc(&p, bytes));
  else if (place == INSITU_PINNED) OK(cudaHostAlloc(&p, bytes, cudaHostAllocPortable));
  else p = aligned_alloc(align, (bytes + align - 1) / align * align);
  return p;
}
static void astray_release(
    void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  (void)bytes;
  --*(atomic_int *)user;
  OK(cudaSetDevice(place == INSITU_DEVICE ? device : 1));
  if (place == INSITU_DEVICE) OK(cudaFree(memory));
  else if (place == INSITU_PINNED) OK(cudaFreeHost(memory));
  else free(memory);
}
static void test_astray_callbacks(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    atomic_int alive = 0;
    insitu_loader_desc *d = places_desc(&p, m, "21 10 00 21");
    d->alloc = astray_alloc;
    d->release = astray_release;
    d->alloc_user = &alive;
    begin(2, 9);
    choose(0); /* same_device: behind every call it is current */
    insitu_iter_desc id = all(1);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    assert_true(alive > 0);
    assert_true(consume(it, 1, 0, NULL) > 3);
    close_iter(&it);
    close_loader(&ld);
    assert_int_equal(alive, 0);
    finish();
  }
}

/* Page-locked memory that is meant for one device in front of arrays on another: all that is made
 * is of the one that is used, and made when the iterator is opened. */
static void test_pinned_for_another(void **state) {
  static const char *const places[] = {"10 21 00 21", "10 10 21 10", "10 21 21 21"};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 3; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, places[k]);
      begin_on_one((uint64_t)k + 1);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      uint64_t events = cudasim_count().event_creates, n = consume(it, 0, 0, NULL);
      assert_true(n > 3);
      for (int epoch = 0; epoch < 4; epoch++) assert_int_equal(consume(it, 0, 0, NULL), n);
      assert_int_equal(cudasim_count().event_creates, events);
      assert_int_equal(cudasim_count().bytes_of[0], 0);
      assert_int_equal(cudasim_count().foreign_copies, 0);
      no_context(0, "epochs");
      close_loader(&ld);
      close_iter(&it);
      finish();
      no_context(0, "closing");
    }
}

/* NULL is the legacy stream of the device that was current when the iterator was opened, in every
 * thread that releases, and where the program's default streams are those of threads: such a
 * trainer's kernels run on cudaStreamPerThread. */
static void null_elsewhere(cudaStream_t kernels) {
  static const char *const places[] = {"20 21 20 21", "21 21 21 21", "20 21 10 00"};
  EACH_MODE (m)
    for (int k = 0; k < 3; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, places[k]);
      begin(2, (uint64_t)k + 3);
      choose(1);
      insitu_iter_desc id = all(1);
      id.stream = NULL;
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      enum { BATCHES = 12 };
      int16_t got[BATCHES][24], want[BATCHES][24];
      uint64_t bytes[BATCHES];
      for (int i = 0; i < BATCHES; i++) {
        insitu_batch *b = NULL;
        insitu_error err = {0};
        insitu_status status = INSITU_END;
        while (status == INSITU_END) status = insitu_iter_next(it, 20000, &b, &err);
        if (status) fail_msg("%s", err.message);
        bytes[i] = b->arrays[1].bytes;
        for (uint64_t r = 0, e = 0; r < b->rows; r++)
          for (int c = 1; c < 4; c++, e++)
            want[i][e] = (int16_t)(5 * (b->sample_indices[r] + 1) + c);
        /* under way when it is released */
        OK(cudasim_save(kernels, b->arrays[1].data, bytes[i], got[i]));
        OK(cudasim_fill(kernels, b->arrays[1].data, bytes[i], 0xee));
        release_elsewhere(&b);
      }
      OK(cudaStreamSynchronize(kernels));
      for (int i = 0; i < BATCHES; i++) assert_memory_equal(got[i], want[i], bytes[i]);
      close_loader(&ld);
      close_iter(&it);
      nothing_left(); /* the default stream was the test's */
      if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
      for (int i = 0; i < n_streams; i++) OK(cudaStreamDestroy(streams[i]));
      n_streams = 0;
    }
}

static void test_null_elsewhere(void **state) {
  (void)state;
  null_elsewhere(NULL);
  per_thread_build = true;
  null_elsewhere(cudaStreamPerThread);
  per_thread_build = false;
}

/* cudaStreamPerThread: not for an iterator, whose batches any thread may release, and right for
 * what is given in the thread that launches. */
static void test_per_thread_stream(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, "20 21 20 21");
    begin(2, 5);
    choose(1);
    insitu_iter_desc id = all(1);
    insitu_loader *ld = open_here(d);
    insitu_plan plan;
    insitu_error err = {0};
    id.stream = cudaStreamPerThread;
    refuse_iter(ld, &id, INSITU_E_ARG, "cudaStreamPerThread");
    refuse_iter(ld, &id, INSITU_E_ARG, "give a stream of your own, or NULL");
    assert_int_equal(insitu_loader_plan(ld, &id, &plan, &err), INSITU_E_ARG);
    id.stream = streams[1];
    insitu_iter *it = iter_or_fail(ld, &id);
    enum { BATCHES = 12 };
    int16_t got[BATCHES][24], copy[BATCHES][24], want[BATCHES][24];
    uint64_t bytes[BATCHES];
    void *fixed = NULL;
    OK(cudaMalloc(&fixed, sizeof got[0]));
    for (int i = 0; i < BATCHES; i++) {
      insitu_batch *b = NULL;
      insitu_status status = INSITU_END;
      while (status == INSITU_END) status = insitu_iter_next(it, 20000, &b, &err);
      if (status) fail_msg("%s", err.message);
      bytes[i] = b->arrays[1].bytes;
      for (uint64_t r = 0, e = 0; r < b->rows; r++)
        for (int c = 1; c < 4; c++, e++) want[i][e] = (int16_t)(5 * (b->sample_indices[r] + 1) + c);
      assert_int_equal(insitu_batch_wait(b, cudaStreamPerThread, &err), INSITU_OK);
      OK(cudasim_save(cudaStreamPerThread, b->arrays[1].data, bytes[i], got[i]));
      assert_int_equal(
          insitu_batch_copy_to(b, 1, fixed, sizeof got[0], cudaStreamPerThread, &err), INSITU_OK);
      OK(cudasim_save(cudaStreamPerThread, fixed, bytes[i], copy[i]));
      OK(cudasim_fill(cudaStreamPerThread, b->arrays[1].data, bytes[i], 0xee));
      release_on(&b, cudaStreamPerThread);
    }
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    for (int i = 0; i < BATCHES; i++) assert_memory_equal(got[i], want[i], bytes[i]);
    for (int i = 0; i < BATCHES; i++) assert_memory_equal(copy[i], want[i], bytes[i]);
    OK(cudaFree(fixed));
    close_loader(&ld);
    close_iter(&it);
    nothing_left(); /* the threads' streams were the test's */
    if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
    for (int i = 0; i < n_streams; i++) OK(cudaStreamDestroy(streams[i]));
    n_streams = 0;
  }
}

/* Takes batches and gives them back, until next finds none; how many there were. A kernel writes
 * each, if any. */
static uint64_t take_until_stuck(insitu_iter *it, bool copied, bool kernels) {
  insitu_status status = INSITU_OK;
  for (uint64_t n = 0; n < 1000; n++) {
    insitu_batch *b = NULL;
    insitu_error err = {0};
    do status = insitu_iter_next(it, 300, &b, &err);
    while (status == INSITU_END);
    if (status == INSITU_TIMEOUT) return n;
    if (status) fail_msg("%s", err.message);
    /* the copies to the first slots come through: streams[1] alone waits for them */
    if (copied && n < 2) {
      assert_int_equal(insitu_batch_wait(b, streams[1], &err), INSITU_OK);
      OK(cudaStreamSynchronize(streams[1]));
    }
    if (kernels) OK(cudasim_fill(streams[0], b->arrays[1].data, b->arrays[1].bytes, 0xee));
    release_on(&b, streams[0]);
  }
  fail_msg("nothing holds it up");
  return 0;
}
/* What next waits for, where that is neither a read nor a decoder: copies on a bus that stands
 * still, and copies to memory that a trainer's kernels, which do not end, still use. Reads and
 * decoders are no cause, nor is a bus that takes no time. */
static void test_limiting_stage(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int kernels = 0; kernels < 2; kernels++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, "20 20 20 20");
      begin(1, 7);
      OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
      cudasim_delay(kernels ? CUDASIM_NEVER : CUDASIM_AT_ONCE, 0);
      cudasim_bus(!kernels);
      insitu_iter_desc id = all(0);
      id.max_held = 1;
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      assert_true(take_until_stuck(it, kernels, kernels) > 2);
      insitu_stats s = stats_of(ld);
      const int want = kernels ? INSITU_STAGE_CONSUMER : INSITU_STAGE_UPLOAD;
      insitu_batch *none;
      /* until the reads before count for little, on a slow machine */
      for (int k = 0; k < 100 && s.limiting_stage != want; k++) {
        assert_int_equal(insitu_iter_next(it, 100, &none, NULL), INSITU_TIMEOUT);
        s = stats_of(ld);
      }
      assert_int_equal(s.limiting_stage, want);
      assert_true(kernels ? s.upload_stall_s == 0 : s.consumer_stall_s == 0);
      assert_true((kernels ? s.consumer_stall_s : s.upload_stall_s) > 0.25);
      assert_true(s.upload_stall_s + s.consumer_stall_s <= s.stall_s);
      /* a bus that takes no time: nothing more is counted */
      cudasim_delay(CUDASIM_AT_ONCE, 0);
      cudasim_bus(false);
      cudasim_finish();
      insitu_batch *b = next_or_fail(it);
      release_on(&b, streams[0]);
      insitu_stats before = stats_of(ld), after;
      for (int k = 0; k < 20; k++) {
        insitu_status status;
        while ((status = insitu_iter_next(it, 20000, &b, NULL)) == INSITU_END) {}
        assert_int_equal(status, INSITU_OK);
        release_on(&b, streams[0]);
      }
      after = stats_of(ld);
      assert_true(after.upload_stall_s == before.upload_stall_s &&
                  after.consumer_stall_s == before.consumer_stall_s);
      OK(cudaStreamDestroy(streams[1]));
      close_loader(&ld);
      close_iter(&it);
      finish();
    }
}

/* ---- 4. a pool of the user's ---- */

enum { POOL = 256 };
struct pool {
  pthread_mutex_t lock;
  struct {
    void *memory;
    uint64_t bytes;
    int32_t place, device;
    bool taken;
  } block[POOL];
  int n, live, fresh, calls, fail_at; /* fail_at: the call that gives nothing */
  int of[3];                          /* blocks by place */
  uint64_t bytes[3];                  /* live ones */
  bool misalign;
  const char *bad; /* an argument that makes no sense */
};
static int pool_blamed; /* call that was misaligned, and came back */
static void *pool_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  struct pool *p = user;
  int i = 0;
  pthread_mutex_lock(&p->lock);
  p->calls++;
  if (!bytes || align < 256 || (align & (align - 1))) p->bad = "bytes or align";
  if (place < INSITU_HOST || place > INSITU_DEVICE) p->bad = "place";
  if ((stream != NULL) != (place == INSITU_DEVICE)) p->bad = "stream";
  if (place == INSITU_HOST && device) p->bad = "device";
  if (p->calls == p->fail_at || p->bad) {
    pthread_mutex_unlock(&p->lock);
    return NULL;
  }
  while (i < p->n && (p->block[i].taken || p->block[i].bytes != bytes ||
                         p->block[i].place != place || (place && p->block[i].device != device)))
    i++;
  if (i == p->n && i < POOL) {
    void *at = NULL;
    if (place == INSITU_HOST) at = aligned_alloc(align, (bytes + align - 1) / align * align);
    else if (place == INSITU_PINNED) cudaHostAlloc(&at, bytes + 64, cudaHostAllocPortable);
    else {
      int before;
      cudaEvent_t e;
      cudaGetDevice(&before);
      cudaSetDevice(device);
      cudaMalloc(&at, bytes);
      if (cudaEventCreateWithFlags(&e, cudaEventDisableTiming) || cudaEventRecord(e, stream) ||
          cudaEventDestroy(e))
        p->bad = "stream of another device";
      cudaSetDevice(before);
    }
    p->fresh++;
    p->block[p->n].memory = at;
    p->block[p->n].bytes = bytes;
    p->block[p->n].place = place;
    p->block[p->n++].device = device;
  }
  p->block[i].taken = true;
  p->live++;
  p->of[place]++;
  p->bytes[place] += bytes;
  unsigned char *memory = p->block[i].memory;
  bool shift = p->misalign && place == INSITU_PINNED;
  pthread_mutex_unlock(&p->lock);
  return memory + (shift ? 64 : 0);
}
static void pool_release(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  struct pool *p = user;
  int i = 0;
  pthread_mutex_lock(&p->lock);
  if (p->misalign && place == INSITU_PINNED) {
    memory = (unsigned char *)memory - 64;
    pool_blamed++;
  }
  while (i < p->n && p->block[i].memory != memory) i++;
  if (i == p->n || !p->block[i].taken || p->block[i].bytes != bytes || p->block[i].place != place ||
      p->block[i].device != device) {
    p->bad = "release";
  } else {
    p->block[i].taken = false;
    p->live--;
    p->bytes[place] -= bytes;
  }
  pthread_mutex_unlock(&p->lock);
}
static void pool_free(struct pool *p) {
  if (p->bad) fail_msg("%s", p->bad);
  assert_int_equal(p->live, 0);
  for (int i = 0; i < p->n; i++) {
    if (p->block[i].place == INSITU_HOST) free(p->block[i].memory);
    else
      OK(p->block[i].place == INSITU_PINNED ? cudaFreeHost(p->block[i].memory)
                                            : cudaFree(p->block[i].memory));
  }
}
static struct pool pool_for(insitu_loader_desc *d) {
  d->alloc = pool_alloc;
  d->release = pool_release;
  return (struct pool){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static void test_pool(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, TWO);
    struct pool pool = pool_for(d);
    d->alloc_user = &pool;
    begin(2, 1);
    choose(1);
    insitu_iter_desc id = all(1);
    insitu_loader *ld = open_here(d);
    assert_int_equal(pool.calls, 0);
    insitu_batch *b = NULL;
    int made = 0;
    for (int round = 0; round < 3; round++) {
      insitu_iter *it = iter_or_fail(ld, &id);
      consume(it, 1, 0, NULL);
      insitu_stats s = stats_of(ld);
      pthread_mutex_lock(&pool.lock);
      assert_int_equal(pool.bytes[INSITU_DEVICE], s.device_bytes);
      assert_true(pool.bytes[INSITU_PINNED] >= s.pinned_bytes);
      assert_true(pool.bytes[INSITU_HOST] >= s.slab_bytes - s.pinned_bytes);
      if (round == 1) assert_int_equal(pool.fresh, made); /* what came back is used again */
      pthread_mutex_unlock(&pool.lock);
      if (round == 2) b = next_or_fail(it);
      close_iter(&it);
      made = round ? made : pool.fresh + 8;
      assert_true(b ? pool.live > 0 : pool.live == 0);
      made = pool.fresh;
    }
    assert_int_equal(pool.of[INSITU_DEVICE], 3 * 2 * 3);
    assert_int_equal(pool.of[INSITU_HOST], pool.of[INSITU_PINNED]);
    close_loader(&ld);
    struct seen *s = save(b, 1);
    release_behind_all(&b, 1);
    assert_int_equal(pool.live, 0);
    seen_check(s);
    seen_free(s);
    pool_free(&pool);
    finish();
  }
}

/* A thread that holds the pool's own mutex lets a tensor go, while closing gives memory back to the
 * pool. */
struct held_pool {
  struct pool pool;
  pthread_mutex_t mutex;
  atomic_bool closing, locked;
  atomic_int inside; /* calls of desc.release since closing began */
  insitu_batch *batch;
  struct dl tensor; /* without a batch */
};
static void *held_pool_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  struct held_pool *h = user;
  pthread_mutex_lock(&h->mutex);
  void *memory = pool_alloc(&h->pool, bytes, align, place, device, stream);
  pthread_mutex_unlock(&h->mutex);
  return memory;
}
static void held_pool_release(
    void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  struct held_pool *h = user;
  if (h->closing) h->inside++;
  while (h->closing && !h->locked) poll(NULL, 0, 1); /* the other thread comes first */
  pthread_mutex_lock(&h->mutex);
  pool_release(&h->pool, memory, bytes, place, device);
  pthread_mutex_unlock(&h->mutex);
}
static void *let_go_holding(void *arg) {
  struct held_pool *h = arg;
  while (!h->inside) poll(NULL, 0, 1);
  pthread_mutex_lock(&h->mutex);
  h->locked = true;
  if (h->batch) insitu_batch_release_on(&h->batch, streams[0]);
  else dl_delete(h->tensor);
  int inside = h->inside; /* 1: closing waits for the mutex still, and goes on */
  pthread_mutex_unlock(&h->mutex);
  return inside == 1 ? h : NULL;
}
static void test_pool_mutex(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int release = 0; release < 2; release++) { /* a tensor; a batch */
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, MIXED);
      struct held_pool h = {.pool = pool_for(d), .mutex = PTHREAD_MUTEX_INITIALIZER};
      d->alloc = held_pool_alloc;
      d->release = held_pool_release;
      d->alloc_user = &h;
      begin(1, 1);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      consume(it, 0, 2, NULL);
      insitu_batch *b = next_or_fail(it);
      if (!release) {
        h.tensor = dl_export(b, 0, 1, streams[0]);
        release_on(&b, streams[0]);
      }
      h.batch = b;
      pthread_t t;
      void *well;
      alarm(60); /* they would wait for each other */
      assert_int_equal(pthread_create(&t, NULL, let_go_holding, &h), 0);
      h.closing = true;
      close_iter(&it);
      assert_int_equal(pthread_join(t, &well), 0);
      assert_ptr_equal(well, &h);
      alarm(0);
      close_loader(&ld);
      pool_free(&h.pool);
      pthread_mutex_destroy(&h.mutex);
      finish();
    }
}

/* It gives nothing, at every call in turn. */
static void test_pool_refuses(void **state) {
  (void)state;
  EACH_MODE (m) {
    int errors[2] = {0, 0};
    for (int n = 1, more = 1; more; n++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, "20 11 00 21");
      struct pool pool = pool_for(d);
      d->alloc_user = &pool;
      d->hold_epoch = 1;
      pool.fail_at = n;
      begin(2, (uint64_t)n);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = NULL;
      insitu_error err = {0};
      insitu_status status = insitu_iter_open(ld, &id, &it, &err);
      if (!status) {
        for (insitu_batch *b; (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK;) {
          struct seen *s = save(b, 0);
          release_behind_all(&b, 0);
          sync_all();
          seen_check(s);
          seen_free(s);
        }
        more = status != INSITU_END;
        errors[1] += more;
      } else {
        assert_null(it);
        assert_int_equal(pool.live, 0);
        assert_int_equal(cudasim_count().streams, n_streams);
        assert_int_equal(stats_of(ld).device_bytes, 0);
        errors[0]++;
      }
      if (more) {
        assert_int_equal(status, INSITU_E_NOMEM);
        HAS(err.message, "desc.alloc gave nothing for");
        HAS(err.message, it ? " bytes of " : "a device's memory");
        HAS(err.message, "enlarge the pool");
      }
      if (more && it) { /* it has some again */
        assert_int_equal(insitu_iter_set_epoch(it, 0, NULL), INSITU_OK);
        assert_true(consume(it, 0, 0, NULL) > 3);
      }
      close_loader(&ld);
      close_iter(&it);
      pool_free(&pool);
      finish();
    }
    assert_int_equal(errors[0], 6); /* three slots on each of two devices */
    assert_true(errors[1] >= 4);
  }
}

static void test_pool_misaligned(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, MIXED);
    struct pool pool = pool_for(d);
    d->alloc_user = &pool;
    pool.misalign = true;
    pool_blamed = 0;
    begin(1, 1);
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    insitu_batch *b;
    insitu_error err = {0};
    assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_NOMEM);
    HAS(err.message, "no multiple of align");
    HAS(err.message, "correct it");
    assert_true(pool_blamed >= 1);
    close_loader(&ld);
    close_iter(&it);
    pool_free(&pool);
    /* one without the other */
    d->release = NULL;
    refuse_open(d, INSITU_E_ARG, "alloc", "release");
    d->release = pool_release;
    d->alloc = NULL;
    refuse_open(d, INSITU_E_ARG, "alloc", "release");
    /* only device_budget bounds it: what is free on the device is the pool's matter */
    d = places_desc(&p, m, ALL_DEVICE);
    struct pool fine = pool_for(d);
    d->alloc_user = &fine;
    d->device_budget = 1;
    ld = open_here(d);
    refuse_iter(ld, &id, INSITU_E_BUDGET, "where 1 bytes are left");
    close_loader(&ld);
    close_iter(&it);
    pool_free(&fine);
    finish();
  }
}

/* ---- 5. lifetime ---- */

/* Batches and exports outlive their iterator and loader. */
static void test_held_over_close(void **state) {
  static const char *const places[] = {MIXED, ALL_DEVICE, "10 10 00 10", ALL_HOST};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 4; k++) /* release; release_on; an export after the batch; before it */
      for (int how = 0; how < 4; how++) {
        struct places p;
        insitu_loader_desc *d = places_desc(&p, m, places[k]);
        begin(1, (uint64_t)how + 1);
        insitu_iter_desc id = all(0);
        insitu_loader *ld = open_here(d);
        insitu_iter *it = iter_or_fail(ld, &id);
        consume(it, 0, 1, NULL);
        insitu_batch *b[2] = {next_or_fail(it), next_or_fail(it)};
        struct dl e = {0};
        if (how >= 2) e = dl_export(b[0], 0, how == 2, streams[0]);
        close_iter(&it);
        close_loader(&ld);
        uint64_t blocks = cudasim_count().device_blocks;
        assert_int_equal(blocks, k < 2 ? 2 : 0); /* of those that are held */
        struct seen *s[2] = {save(b[0], 0), save(b[1], 0)};
        if (how == 0) {
          OK(cudaStreamSynchronize(streams[0]));
          insitu_batch_release(&b[0]);
        } else release_on(&b[0], streams[0]);
        assert_int_equal(cudasim_count().device_blocks, blocks);
        if (how == 2) {
          release_on(&b[1], streams[0]);
          assert_int_equal(cudasim_count().device_blocks, blocks);
          dl_delete_elsewhere(e);
        } else {
          if (how == 3) dl_delete_elsewhere(e);
          assert_int_equal(cudasim_count().device_blocks, blocks);
          release_on(&b[1], streams[0]);
        }
        nothing_left();
        for (int i = 0; i < 2; i++) {
          seen_check(s[i]);
          seen_free(s[i]);
        }
        finish();
      }
}

/* Holders of a few batches let go in any order, on any thread, before and after the iterator and
 * the loader are closed: what the last ones see is what was delivered, and max_held counts batches
 * that anybody holds. */
enum { HELD = 3, EXPORTS = 6 };
struct holding {
  insitu_batch *b;
  struct seen *was; /* what was delivered */
  struct dl e[EXPORTS];
  uint64_t of[EXPORTS]; /* their arrays */
  int n;
};
static bool holding_any(const struct holding *h) {
  return h->b || h->n;
}
/* The array, as it is now, is what it was. */
static void holding_look(const struct holding *h, uint64_t i, const void *data) {
  insitu_array a = h->was->arrays[i];
  unsigned char *now = malloc(a.bytes + 1);
  a.data = (void *)(uintptr_t)data;
  save_array(&a, 0, now);
  sync_all();
  if (memcmp(now, h->was->arrays[i].data, a.bytes))
    fail_msg("array %d of a held batch changed", (int)i);
  free(now);
}
static void holding_let_go(struct holding *h) {
  uint64_t which = support_below((uint64_t)h->n + 1);
  if (h->b && (which == (uint64_t)h->n || !h->n)) {
    for (uint64_t i = 0; i < VARS; i++) holding_look(h, i, h->b->arrays[i].data);
    if (support_below(2)) insitu_batch_release(&h->b);
    else insitu_batch_release_on(&h->b, streams[0]);
  } else if (h->n) {
    uint64_t k = which % (uint64_t)h->n;
    holding_look(h, h->of[k], dl_tensor(h->e[k])->data);
    if (support_below(2)) dl_delete(h->e[k]);
    else dl_delete_elsewhere(h->e[k]);
    h->e[k] = h->e[--h->n];
    h->of[k] = h->of[h->n];
  }
  if (!holding_any(h)) {
    seen_free(h->was);
    memset(h, 0, sizeof *h);
  }
}
static void walk(int m, uint64_t seed, const char *places) {
  struct places p;
  struct holding h[HELD] = {{0}};
  insitu_loader_desc *d = places_desc(&p, m, places);
  support_random_state = seed * 1000 + 1;
  begin(1, seed);
  insitu_iter_desc id = all(0);
  id.max_held = HELD;
  insitu_loader *ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  for (int step = 0, steps = 10 + (int)support_below(40);
       it || ld || holding_any(&h[0]) || holding_any(&h[1]) || holding_any(&h[2]); step++) {
    struct holding *one = &h[support_below(HELD)];
    if (it && step >= steps && support_below(2)) insitu_iter_close(&it);
    if (ld && !it && support_below(3) == 0) insitu_loader_close(&ld);
    if (!it || support_below(3) == 0) {
      if (holding_any(one)) holding_let_go(one);
    } else if (one->b && one->n < EXPORTS && support_below(2)) {
      one->of[one->n] = support_below(VARS);
      one->e[one->n] = dl_export(one->b, one->of[one->n], support_below(2), streams[0]);
      one->n++;
    } else {
      int held = 0;
      for (int i = 0; i < HELD; i++) held += holding_any(&h[i]);
      insitu_batch *b;
      insitu_error err = {0};
      insitu_status status = insitu_iter_next(it, 20000, &b, &err);
      if (status == INSITU_END) continue;
      assert_int_equal(status, held == HELD ? INSITU_BUSY : INSITU_OK);
      if (status) continue;
      while (holding_any(one)) one = &h[(one - h + 1) % HELD];
      one->b = b;
      one->was = save(b, 0);
      sync_all();
      seen_check(one->was);
    }
  }
  finish();
}
static void test_holders(void **state) {
  static const char *const places[] = {MIXED, ALL_DEVICE, "10 10 10 00", ALL_HOST};
  (void)state;
  EACH_MODE (m)
    for (uint64_t seed = 0; seed < 24; seed++) walk(m, seed, places[seed % 4]);
}

/* Many exports of a few batches, deleted by several threads at once. */
static void *delete_all(void *arg) {
  struct dl *e = arg;
  for (; e->managed; e++) dl_delete(*e);
  return NULL;
}
static void test_deleters_at_once(void **state) {
  enum { THREADS = 4, EACH = 8 };
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, MIXED);
    begin(1, 5);
    insitu_iter_desc id = all(0);
    for (int closed = 0; closed < 2; closed++) {
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      insitu_batch *b[2] = {next_or_fail(it), next_or_fail(it)};
      struct dl e[THREADS][EACH + 1] = {0};
      for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++)
          e[t][i] = dl_export(b[i % 2], (uint64_t)i / 2, t % 2, streams[0]);
      insitu_batch_release(&b[0]);
      insitu_batch_release(&b[1]);
      insitu_batch *none;
      assert_int_equal(insitu_iter_next(it, 0, &none, NULL), INSITU_BUSY);
      if (closed) {
        close_iter(&it);
        close_loader(&ld);
      }
      pthread_t thread[THREADS];
      for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, delete_all, e[t]), 0);
      for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_join(thread[t], NULL), 0);
      if (!closed) consume(it, 0, 3, NULL);
      if (!closed) close_loader(&ld);
      close_iter(&it);
      nothing_left();
    }
    finish();
  }
}

/* A child of fork has nothing to do with its parent's batches, and does them no harm. */
static void test_forked_child(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* it reports what a child must leave alone as leaks */
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, MIXED);
    begin(1, 1);
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    insitu_batch *b[2] = {next_or_fail(it), next_or_fail(it)};
    struct dl e[2] = {dl_export(b[0], 0, true, streams[0]), dl_export(b[1], 1, false, streams[0])};
    sync_all();
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
      insitu_error err = {0};
      void *managed;
      static float fixed[8 * 60];
      uint64_t before = cudasim_count().calls;
      bool ok = insitu_batch_wait(b[0], streams[0], &err) == INSITU_E_FORKED &&
                strstr(err.message, "fork");
      ok = ok &&
           insitu_batch_copy_to(b[0], 0, fixed, sizeof fixed, streams[0], NULL) == INSITU_E_FORKED;
      ok = ok && insitu_batch_dlpack(b[0], 0, 1, streams[0], &managed, NULL) == INSITU_E_FORKED &&
           !managed;
      dl_delete(e[0]);
      dl_delete(e[1]);
      insitu_batch_release(&b[0]);
      insitu_batch_release_on(&b[1], streams[0]);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
      ok = ok && !b[0] && !b[1] && !it && !ld && cudasim_count().calls == before;
      _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
      struct seen *s = save(b[i], 0);
      sync_all();
      seen_check(s);
      seen_free(s);
      insitu_batch_release(&b[i]);
      dl_delete(e[i]);
    }
    consume(it, 0, 3, NULL);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

static void test_misuse(void **state) {
  (void)state;
  struct places p;
  insitu_loader_desc *d = places_desc(&p, EPOLL, MIXED);
  begin(1, 1);
  insitu_iter_desc id = all(0);
  insitu_loader *ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  insitu_batch *b = next_or_fail(it), *null = NULL;
  static float fixed[8 * 60];
  void *managed;
  MISUSE(insitu_batch_wait(NULL, NULL, &err), "wait: the batch is NULL");
  MISUSE(insitu_batch_copy_to(NULL, 0, fixed, sizeof fixed, NULL, &err),
      "copy_to: the batch is NULL", "next gave");
  MISUSE(insitu_batch_copy_to(b, 4, fixed, sizeof fixed, NULL, &err), "no array 4", "has 4");
  MISUSE(
      insitu_batch_copy_to(b, 0, NULL, sizeof fixed, NULL, &err), "array x", "NULL", "1920 bytes");
  MISUSE(insitu_batch_copy_to(b, 0, fixed, sizeof fixed - 1, NULL, &err), "array x", "1920 bytes",
      "insitu_loader_array");
  MISUSE(insitu_batch_dlpack(NULL, 0, 1, NULL, &managed, &err), "dlpack: the batch is NULL");
  assert_null(managed);
  MISUSE(
      insitu_batch_dlpack(b, UINT64_MAX, 0, NULL, &managed, &err), "no array 18446744073709551615");
  assert_null(managed);
  MISUSE(insitu_batch_dlpack(b, 0, 0, NULL, NULL, &err), "managed is NULL");
  for (int versioned = 0; versioned < 2; versioned++) { /* another stream where it is deleted */
    MISUSE(insitu_batch_dlpack(
               b, 2 * (uint64_t)versioned, versioned, cudaStreamPerThread, &managed, &err),
        "cudaStreamPerThread", "a stream of your own");
    assert_null(managed);
  }
  insitu_shape shape;
  /* what it reads comes to dst */
  for (int place = INSITU_PINNED; place <= INSITU_DEVICE_OR_HOST; place++) {
    insitu_variable v = {.path = "x", .place = place};
    MISUSE(
        insitu_read(ld, &v, fixed, sizeof fixed, &shape, &err), "read: place means nothing here");
    MISUSE(insitu_read(ld, &v, NULL, 0, &shape, &err), "read: place means nothing here");
  }
  insitu_batch_release_on(NULL, NULL);
  insitu_batch_release_on(&null, NULL);
  insitu_batch_release(&b);
  b = next_or_fail(it);
  struct dl e[2] = {dl_export(b, 0, false, streams[0]), dl_export(b, 0, true, streams[0])};
  ((DLManagedTensor *)e[0].managed)->deleter(NULL); /* nothing */
  ((DLManagedTensorVersioned *)e[1].managed)->deleter(NULL);
  dl_delete(e[0]);
  dl_delete(e[1]);
  insitu_batch_release(&b);
  close_loader(&ld);
  close_iter(&it);
  /* a stream, and nothing that one could order */
  d = places_desc(&p, EPOLL, ALL_HOST);
  ld = open_here(d);
  it = iter_or_fail(ld, &id);
  b = next_or_fail(it);
  MISUSE(insitu_batch_copy_to(b, 0, fixed, sizeof fixed, streams[0], &err), "array x", "give NULL");
  insitu_batch_release(&b);
  close_loader(&ld);
  close_iter(&it);
  finish();
}

/* ---- 6. DLPack, field by field ---- */

static void test_dlpack(void **state) {
  static const char *const places[] = {TWO, ALL_DEVICE, MIXED, ALL_HOST, "11 11 11 11"};
  (void)state;
  for (int k = 0; k < 5; k++) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, EPOLL, places[k]);
    begin(2, 1);
    int home = k ? 0 : 1;
    choose(home);
    insitu_iter_desc id = all(home);
    id.order = INSITU_SEQUENTIAL; /* the last of 57 anchors is a batch of its own */
    d->world = 3;
    d->batch_size = 19;
    d->lanes = 3;
    for (d->rank = 0; d->rank < 3; d->rank++) {
      d->batch_size = d->rank == 2 ? 20 : 19; /* rank 2 of 3 with 20 rows: 17 */
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      for (uint64_t n = 0;; n++) {
        insitu_batch *b;
        insitu_error err = {0};
        insitu_status status = insitu_iter_next(it, 20000, &b, &err);
        if (status == INSITU_END && n) break;
        if (status) fail_msg("%s", err.message);
        for (uint64_t i = 0; i < 2 * VARS; i++) {
          const insitu_array *a = &b->arrays[i / 2];
          struct dl e = dl_export(b, i / 2, i % 2, streams[home]);
          dl_check(e, b, i / 2,
              a->place == INSITU_DEVICE   ? DL_CUDA
              : a->place == INSITU_PINNED ? DL_CUDA_HOST
                                          : DL_CPU,
              a->place == INSITU_DEVICE ? a->device : 0, places_dl[i / 2].code,
              places_dl[i / 2].bits, places_dl[i / 2].n_inner, places_dl[i / 2].inner);
          assert_int_equal(a->place, insitu_loader_array(ld, i / 2)->place);
          dl_delete(e);
        }
        insitu_batch_release(&b);
      }
      close_loader(&ld);
      close_iter(&it);
    }
    finish();
  }
}

/* ---- 7. fixed addresses, other streams ---- */

/* The way of a graph: one address for every batch, on the device or the host; the batch is released
 * behind the copy. */
static void test_copy_to(void **state) {
  static const char *const places[] = {"20 10 00 20", ALL_DEVICE, ALL_HOST, "10 00 20 10"};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 4; k++)
      for (int to = 0; to < 3; to++) { /* the device, page-locked, plain */
        if (places[k] == ALL_HOST && to < 2) continue;
        struct places p;
        insitu_loader_desc *d = places_desc(&p, m, places[k]);
        begin(1, (uint64_t)k + 1);
        d->hold_epoch = 1;
        insitu_iter_desc id = all(0);
        if (k == 1) id.stream = NULL; /* copy_to orders its own */
        insitu_loader *ld = open_here(d);
        void *fixed[VARS];
        uint64_t cap[VARS];
        for (uint64_t i = 0; i < VARS; i++) {
          cap[i] = insitu_loader_array(ld, i)->bytes;
          if (to == 2) fixed[i] = aligned_alloc(256, (cap[i] + 255) / 256 * 256);
          else
            OK(to ? cudaHostAlloc(&fixed[i], cap[i], cudaHostAllocPortable)
                  : cudaMalloc(&fixed[i], cap[i]));
        }
        insitu_iter *it = iter_or_fail(ld, &id);
        cudaStream_t stream = places[k] == ALL_HOST ? NULL : streams[0];
        struct seen *seen[16];
        uint64_t n = 0;
        insitu_error err = {0};
        for (insitu_batch *b; insitu_iter_next(it, 20000, &b, &err) == INSITU_OK; n++) {
          struct seen *s = seen[n] = seen_new(b);
          for (uint64_t i = 0; i < VARS; i++)
            if (insitu_batch_copy_to(b, i, fixed[i], cap[i], stream, &err))
              fail_msg("%s", err.message);
          same_device();
          release_on(&b, stream);
          for (uint64_t i = 0; i < VARS; i++) {
            if (to == 2 && stream) OK(cudaStreamSynchronize(stream));
            if (to == 2) memcpy(s->arrays[i].data, fixed[i], s->arrays[i].bytes);
            else OK(cudasim_save(stream, fixed[i], s->arrays[i].bytes, s->arrays[i].data));
          }
        }
        if (err.status) fail_msg("%s", err.message);
        sync_all();
        for (uint64_t i = 0; i < n; i++) {
          seen_check(seen[i]);
          seen_free(seen[i]);
        }
        assert_true(n > 3 && n < 16);
        close_loader(&ld);
        close_iter(&it);
        for (int i = 0; i < VARS; i++) {
          if (to == 2) free(fixed[i]);
          else OK(to ? cudaFreeHost(fixed[i]) : cudaFree(fixed[i]));
        }
        if (k == 1) { /* the default stream was asked for */
          assert_true(cudasim_count().default_stream > 0);
          nothing_left();
          if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
          OK(cudaStreamDestroy(streams[0]));
          n_streams = 0;
        } else finish();
      }
}

/* Another stream than the iterator's sees a batch behind insitu_batch_wait, or as a DLPack tensor,
 * and only then. */
static void test_other_stream(void **state) {
  enum { NOT, WAIT, EXPORT, BATCHES = 6 };
  (void)state;
  EACH_MODE (m)
    for (int how = EXPORT; how >= NOT; how--) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, ALL_DEVICE);
      cudaStream_t other;
      begin(1, 3);
      cudasim_delay(CUDASIM_RANDOM, 1);
      OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      struct seen *seen[BATCHES];
      for (int i = 0; i < BATCHES; i++) {
        insitu_error err = {0};
        insitu_batch *b = next_or_fail(it);
        struct dl e[VARS];
        seen[i] = seen_new(b);
        if (how == WAIT) assert_int_equal(insitu_batch_wait(b, other, &err), INSITU_OK);
        if (how == EXPORT) e[0] = dl_export(b, 0, i % 2, other);
        for (uint64_t k = 0; k < VARS; k++)
          OK(cudasim_save(other, b->arrays[k].data, b->arrays[k].bytes, seen[i]->arrays[k].data));
        if (how != EXPORT) release_on(&b, other);
        /* on the iterator's stream, which has done nothing with it: the tensor holds it */
        else insitu_batch_release(&b);
        if (how == EXPORT) dl_delete(e[0]);
      }
      OK(cudaStreamSynchronize(other));
      for (int i = 0; i < BATCHES; i++) {
        if (how != NOT) seen_check(seen[i]);
        seen_free(seen[i]);
      }
      if (how == NOT) assert_true(cudasim_count().races > 0);
      close_loader(&ld);
      close_iter(&it);
      OK(cudaStreamDestroy(other));
      nothing_left();
      if (how != NOT) finish();
      else begin(0, 1);
    }
}

/* Arrays on the host that work of a stream uses, released on it, stay until it has come there. */
struct later {
  struct seen *to;
  insitu_array arrays[VARS]; /* the batch's */
};
/* as what cudaLaunchHostFunc launches */
static void later_copy(void *const *reads, void *const *writes, void *arg) {
  const struct later *l = arg;
  (void)reads, (void)writes;
  for (int i = 0; i < VARS; i++)
    if (l->arrays[i].place != INSITU_DEVICE)
      memcpy(l->to->arrays[i].data, l->arrays[i].data, l->arrays[i].bytes);
}
static void test_host_behind_a_stream(void **state) {
  enum { BATCHES = 12 };
  static const char *const places[] = {"20 20 00 00", "10 20 10 20", MIXED};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 3; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, places[k]);
      struct later l[BATCHES];
      begin(1, (uint64_t)k + 1);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      /* nothing runs yet */
      cudasim_delay(CUDASIM_RANDOM, 0);
      /* much to be done before */
      for (int i = 0; i < 600; i++) OK(cudasim_kernel(streams[0], NULL, 0, NULL, 0, NULL, NULL));
      cudasim_delay(CUDASIM_RANDOM, 2);
      for (int n = 0; n < BATCHES; n++) {
        insitu_batch *b = NULL;
        insitu_error err = {0};
        insitu_status status = INSITU_END;
        while (status == INSITU_END) status = insitu_iter_next(it, 20000, &b, &err);
        if (status) fail_msg("%s", err.message);
        l[n].to = seen_new(b);
        memcpy(l[n].arrays, b->arrays, sizeof l[n].arrays);
        for (uint64_t i = 0; i < VARS; i++)
          if (b->arrays[i].place == INSITU_DEVICE)
            save_array(&b->arrays[i], 0, l[n].to->arrays[i].data);
        OK(cudasim_kernel(streams[0], NULL, 0, NULL, 0, later_copy, &l[n]));
        if (n % 2) release_on(&b, streams[0]);
        else { /* the same by a tensor */ struct dl e = dl_export(b, 0, n % 4, streams[0]);
          release_on(&b, streams[0]);
          dl_delete(e);
        }
      }
      sync_all();
      for (int n = 0; n < BATCHES; n++) {
        seen_check(l[n].to);
        seen_free(l[n].to);
      }
      close_loader(&ld);
      close_iter(&it);
      finish();
    }
}

/* ---- 8. the rest of the loader, with uploads ---- */

static void test_check(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, MIXED);
    begin(1, 1);
    d->check = 1;
    d->hold_epoch = 1;
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    uint64_t n = consume(it, 0, 0, NULL);
    assert_true(stats_of(ld).checked_rows >= n);
    close_loader(&ld);
    close_iter(&it);
    finish();
  }
}

/* To other places while uploads are in flight, holding a batch or not; and a state of batches in
 * host memory goes on here. */
static void test_moves(void **state) {
  (void)state;
  EACH_MODE (m) {
    insitu_state host[3];
    for (int round = 0; round < 9; round++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, round ? round % 2 ? MIXED : ALL_DEVICE : ALL_HOST);
      begin(1, (uint64_t)round + 1);
      if (round % 3 == 0) cudasim_delay(CUDASIM_AT_ONCE, 0);
      else cudasim_delay(CUDASIM_RANDOM, round % 3 == 1 ? 1 : 8);
      insitu_iter_desc id = all(0);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      insitu_error err = {0};
      insitu_state state_after[3];
      int64_t anchor[2];
      for (int i = 0; i < 3; i++) consume(it, 0, 1, &state_after[i]);
      if (!round) memcpy(host, state_after, sizeof host);
      else assert_memory_equal(host, state_after, sizeof host);
      insitu_batch *b = next_or_fail(it), *held = next_or_fail(it);
      anchor[0] = b->sample_indices[0];
      assert_int_equal(b->index, 3);
      insitu_batch_release(&b);
      struct seen *s = save(held, 0); /* under way during what follows */
      assert_int_equal(insitu_iter_set_epoch(it, 2, &err), INSITU_OK);
      same_device();
      b = next_or_fail(it);
      assert_true(b->epoch == 2 && b->index == 0);
      insitu_batch_release(&b);
      consume(it, 0, 2, NULL);
      assert_int_equal(insitu_iter_restore(it, &host[2], &err), INSITU_OK);
      same_device();
      b = next_or_fail(it);
      assert_true(b->epoch == 0 && b->index == 3);
      anchor[1] = b->sample_indices[0];
      assert_int_equal(anchor[0], anchor[1]);
      insitu_batch_release(&b);
      release_on(&held, streams[0]);
      for (int i = 0; i < 6; i++) { /* again and again, without a batch in between */
        assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)i, &err), INSITU_OK);
        if (i % 2) cudasim_step(2);
      }
      assert_true(consume(it, 0, 0, NULL) > 3);
      sync_all();
      seen_check(s);
      seen_free(s);
      close_loader(&ld);
      close_iter(&it);
      finish();
    }
  }
}

/* States of other units, windows and lanes than the desc's defaults, one after the other: the ring
 * grows and shrinks while copies and kernels are under way, and batches are held. */
static void test_other_orders(void **state) {
  (void)state;
  static const struct {
    uint64_t unit, block, lanes;
  } orders[] = {{1, 2, 2}, {2, 12, 1}, {1, 8, 4}, {3, 3, 2}};
  enum { ORDERS = sizeof orders / sizeof *orders };
  static const char *const where[] = {ALL_DEVICE, MIXED, TWO};
  EACH_MODE (m) {
    insitu_state after[ORDERS];
    int64_t anchor[ORDERS];
    for (int round = 0; round < 9; round++) {
      struct places p;
      struct pool pool;
      int home = round % 3 == 2;
      begin(1 + home, (uint64_t)round + 1);
      choose(home);
      if (round % 3 == 0) cudasim_delay(CUDASIM_AT_ONCE, 0);
      else cudasim_delay(CUDASIM_RANDOM, round % 3 == 1 ? 1 : 8);
      for (int k = 0; k < ORDERS && !round; k++) { /* on the host */
        insitu_loader_desc *d = places_desc(&p, m, ALL_HOST);
        d->unit_chunks = orders[k].unit;
        d->block_chunks = orders[k].block;
        d->lanes = orders[k].lanes;
        insitu_iter_desc id = all(home);
        insitu_loader *ld = open_here(d);
        insitu_iter *it = iter_or_fail(ld, &id);
        consume(it, home, 2, &after[k]);
        insitu_batch *b = next_or_fail(it);
        anchor[k] = b->sample_indices[0];
        insitu_batch_release(&b);
        close_loader(&ld);
        close_iter(&it);
      }
      insitu_loader_desc *d = places_desc(&p, m, where[round % 3]);
      d->block_chunks = d->lanes = 0;
      bool pooled = round % 2;
      if (pooled) {
        pool = pool_for(d);
        d->alloc_user = &pool;
      }
      insitu_iter_desc id = all(home);
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      insitu_batch *held = NULL;
      struct seen *seen = NULL;
      for (int turn = 0; turn < 12; turn++) {
        int k = (int)support_below(ORDERS);
        insitu_error err = {0};
        if (!held && support_below(2)) {
          held = next_or_fail(it);
          seen = save(held, home); /* under way during what follows */
        }
        if (insitu_iter_restore(it, &after[k], &err)) fail_msg("%s", err.message);
        same_device();
        insitu_stats stats = stats_of(ld);
        if (pooled) {
          pthread_mutex_lock(&pool.lock);
          assert_int_equal(pool.bytes[INSITU_DEVICE], stats.device_bytes);
          pthread_mutex_unlock(&pool.lock);
        }
        insitu_batch *b = next_or_fail(it);
        assert_true(b->epoch == 0 && b->index == 2);
        assert_int_equal(b->sample_indices[0], anchor[k]);
        struct seen *one = save(b, home);
        release_behind_all(&b, home);
        if (support_below(2)) {
          sync_all();
          seen_check(one);
        } else {
          cudasim_step(2);
          sync_all();
        }
        seen_free(one);
        if (held && support_below(2)) {
          sync_all();
          seen_check(seen);
          seen_free(seen);
          release_behind_all(&held, home);
        }
      }
      assert_true(consume(it, home, 0, NULL) > 0);
      if (held) {
        sync_all();
        seen_check(seen);
        seen_free(seen);
      }
      close_iter(&it);
      if (held) release_behind_all(&held, home);
      insitu_stats stats = stats_of(ld);
      assert_int_equal(stats.device_bytes, 0);
      assert_int_equal(stats.slab_bytes, 0);
      close_loader(&ld);
      if (pooled) pool_free(&pool);
      finish();
    }
  }
}

static void *cancel_soon(void *ld) {
  poll(NULL, 0, 20);
  insitu_loader_cancel(ld);
  return NULL;
}
static void test_cancel(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, ALL_DEVICE);
    begin(1, 1);
    /* what was copied is never seen to be over: slabs run out, and next waits */
    cudasim_delay(CUDASIM_NEVER, 0);
    insitu_iter_desc id = all(0);
    insitu_loader *ld = open_here(d);
    insitu_iter *it = iter_or_fail(ld, &id);
    pthread_t t;
    insitu_batch *b, *held = next_or_fail(it);
    struct seen *s = save(held, 0);
    insitu_error err = {0};
    insitu_status status;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, ld), 0);
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK || status == INSITU_END)
      if (b) release_on(&b, streams[0]);
    assert_int_equal(status, INSITU_CANCELLED);
    assert_int_equal(pthread_join(t, NULL), 0);
    same_device();
    release_on(&held, streams[0]);
    close_loader(&ld);
    close_iter(&it);
    sync_all();
    seen_check(s);
    seen_free(s);
    finish();
  }
}

/* The user's function: elements are negated and the mask turned round, before they are copied. */
static insitu_status turn_round(
    void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  int32_t place = *(const int32_t *)user;
  (void)err;
  if (b->n_arrays != 2 || !keys || b->arrays[0].place != place || b->arrays[1].place != place)
    return INSITU_E_ARG;
  for (uint64_t i = 0; i < b->rows * b->arrays[0].row_bytes / 4; i++)
    ((float *)b->arrays[0].data)[i] *= -1;
  for (uint64_t i = 0; i < b->rows * b->arrays[1].row_bytes; i++)
    ((unsigned char *)b->arrays[1].data)[i] ^= 1;
  return INSITU_OK;
}

/* Bytes of both arrays of each batch of an epoch, whose mask is on a device, too. */
static uint64_t turned(insitu_loader_desc *d, int32_t place, unsigned char *to) {
  int32_t called = place == INSITU_DEVICE ? INSITU_PINNED : place;
  insitu_iter_desc id = all(0);
  uint64_t n = 0;
  ((insitu_variable *)(uintptr_t)d->variables)->place = place;
  d->on_batch_user = &called;
  insitu_loader *ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  for (insitu_error err = {0};;) {
    insitu_batch *b = NULL;
    insitu_status status = insitu_iter_next(it, 20000, &b, &err);
    if (status == INSITU_END) break;
    if (status) fail_msg("%s: %s", insitu_status_name(status), err.message);
    assert_string_equal(b->arrays[1].name, "gone");
    for (uint64_t i = 0; i < 2; i++) {
      assert_int_equal(b->arrays[i].place, place);
      save_array(&b->arrays[i], 0, to + n);
      n += b->arrays[i].bytes;
    }
    release_behind_all(&b, 0);
  }
  sync_all();
  close_iter(&it);
  close_loader(&ld);
  return n;
}

/* A variable with a mask, through on_batch to a device: the bytes that host memory gets. */
static void test_masks_and_calls(void **state) {
  enum { ROWS = 40, WIDE = 30, BYTES = ROWS * WIDE * 5 };
  (void)state;
  struct support_array a = {.name = "a",
      .ndim = 2,
      .shape = {ROWS, WIDE},
      .chunk = {3, 7},
      .absent = 4,
      .fill = "\"NaN\"",
      .dtype = INSITU_F32,
      .format = 3,
      .dims = "[\"time\",\"x\"]"};
  const char *root = support_path("masks");
  static unsigned char host[BYTES], device[BYTES];
  support_make(root, &a);
  EACH_MODE (m) {
    insitu_variable v = {.label = "a", .mask = "gone"};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &v,
        .n_variables = 1,
        .batch_size = 8,
        .lanes = 1,
        .hold_epoch = 1,
        .on_absent_chunk = INSITU_FILL,
        .io = modes[m].io,
        .inline_io = modes[m].inline_io,
        .decode_threads = 2,
        .on_batch = turn_round};
    begin(1, 1);
    assert_int_equal(turned(&d, INSITU_HOST, host), BYTES);
    assert_int_equal(turned(&d, INSITU_DEVICE, device), BYTES);
    assert_memory_equal(host, device, BYTES);
    uint64_t gone = 0;
    for (uint64_t i = 0; i < 8 * WIDE; i++) gone += !host[(uint64_t)8 * WIDE * 4 + i];
    assert_in_range(gone, 1, 8 * WIDE - 1);
    finish();
  }
  support_remove(root);
}

static void test_damaged(void **state) {
  (void)state;
  char path[700], kept[512];
  uint64_t index[4] = {9, 0, 0};
  snprintf(kept, sizeof kept, "%s", places_root);
  snprintf(places_root, sizeof places_root, "%s/damaged", support_dir);
  for (int i = 0; i < 3; i++) support_make(places_root, &places_array[i]);
  support_chunk_path(path, sizeof path, places_root, &places_array[0], index);
  support_write(path, "short", 5);
  EACH_MODE (m)
    for (int k = 0; k < 2; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, k ? MIXED : ALL_DEVICE);
      begin(1, 1);
      d->lanes = 1;
      d->prefetch_depth = 8;
      insitu_iter_desc id = all(0);
      id.order = INSITU_SEQUENTIAL;
      id.max_held = 1;
      insitu_loader *ld = open_here(d);
      insitu_iter *it = iter_or_fail(ld, &id);
      for (int round = 0; round < 2; round++) {
        insitu_error err = {0};
        insitu_batch *b;
        /* the damage is known now, and there was no room for the third and fourth batch on the
         * device */
        poll(NULL, 0, 20);
        assert_int_equal(consume(it, 0, 4, NULL), 4); /* samples 1 to 32; 36 is damaged */
        assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_CORRUPT);
        HAS(err.message, "array x, chunk x/9.0.0");
        assert_int_equal(insitu_iter_next(it, 20000, &b, NULL), INSITU_E_CORRUPT);
        same_device();
        assert_int_equal(insitu_iter_set_epoch(it, 0, NULL), INSITU_OK);
      }
      close_loader(&ld);
      close_iter(&it);
      finish();
    }
  support_remove(places_root);
  snprintf(places_root, sizeof places_root, "%s", kept);
}

/* The evaluation order: every anchor once over the ranks, with batches that are short or empty. */
static void test_evaluation(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 2; k++) {
      int seen[SAMPLES] = {0};
      uint64_t empty = 0;
      begin(1, 1);
      for (int32_t rank = 0; rank < 3; rank++) {
        struct places p;
        insitu_loader_desc *d = places_desc(&p, m, k ? MIXED : ALL_DEVICE);
        d->world = 3;
        d->rank = rank;
        d->lanes = 3;
        /* 55 anchors, 19 for two ranks, 17 for the last one: a batch, and one of 1 or no row */
        d->batch_size = 18;
        d->sample_stop = 58;
        d->hold_epoch = 1;
        insitu_iter_desc id = all(0);
        id.order = INSITU_SEQUENTIAL;
        insitu_loader *ld = open_here(d);
        uint64_t copies = cudasim_count().copies; /* the first epoch's begin with the iterator */
        insitu_iter *it = iter_or_fail(ld, &id);
        for (int epoch = 0; epoch < 2; epoch++) {
          uint64_t some = 0;
          for (uint64_t n = 0;; n++) {
            insitu_batch *b;
            insitu_error err = {0};
            insitu_status status = insitu_iter_next(it, 20000, &b, &err);
            if (status == INSITU_END && n) break;
            if (status) fail_msg("%s", err.message);
            for (uint64_t r = 0; r < b->rows; r++) seen[b->sample_indices[r]]++;
            empty += !b->rows;
            some += b->rows > 0;
            check_layout(b, 18);
            struct seen *s = save(b, 0);
            struct dl e = dl_export(b, 0, epoch, streams[0]);
            assert_int_equal(dl_tensor(e)->shape[0], b->rows);
            dl_delete(e);
            release_on(&b, streams[0]);
            sync_all();
            seen_check(s);
            seen_free(s);
          }
          copies += some;
          assert_int_equal(cudasim_count().copies, copies);
        }
        assert_int_equal(
            stats_of(ld).uploads * (stats_of(ld).device_bytes / 3), stats_of(ld).uploaded_bytes);
        close_loader(&ld);
        close_iter(&it);
      }
      int anchors = 0;
      for (int i = 0; i < SAMPLES; i++) {
        assert_true(seen[i] == 0 || seen[i] == 2);
        anchors += seen[i] / 2;
      }
      assert_int_equal(anchors, 55);
      assert_int_equal(empty, 2); /* an epoch */
      finish();
    }
}

/* ---- 9. what it says of itself ---- */

static void test_describe(void **state) {
  static const char *const word[VARS] = {"device", "pinned", NULL, "device"};
  (void)state;
  struct places p;
  insitu_loader_desc *d = places_desc(&p, EPOLL, "21 10 00 31");
  d->device_budget = 1 << 20;
  begin(2, 1);
  choose(1);
  insitu_iter_desc id = all(1);
  insitu_loader *ld = open_here(d);
  insitu_iter *it = iter_or_fail(ld, &id);
  d->hold_epoch = 1;
  consume(it, 1, 3, NULL);
  close_iter(&it);
  static char text[1 << 16];
  struct insitu__text_json j = {0};
  insitu_error err = {0};
  uint64_t n = insitu_loader_describe(ld, text, sizeof text), got;
  same_device();
  assert_true(n > 0 && n < sizeof text);
  if (insitu__text_json_parse(&j, text, n, "describe", &err)) fail_msg("%s: %s", err.message, text);
  int outputs = insitu__text_json_get(&j, insitu__text_json_get(&j, 0, "arrays"), "outputs");
  int t = insitu__text_json_first(&j, outputs);
  for (int i = 0; i < VARS; i++, t = insitu__text_json_next(&j, t)) {
    char place[20] = "";
    int at = insitu__text_json_get(&j, t, "place"), device = insitu__text_json_get(&j, t, "device");
    assert_int_equal(at >= 0, word[i] != NULL);
    if (at >= 0) assert_true(insitu__text_json_string(&j, at, place, sizeof place) > 0);
    if (at >= 0) assert_string_equal(place, word[i]);
    assert_int_equal(device >= 0, word[i] && word[i][0] == 'd');
    if (device >= 0) assert_true(insitu__text_json_u64(&j, device, &got) && got == 1);
  }
  insitu_stats s = stats_of(ld);
  const struct {
    const char *object, *name;
    uint64_t want;
  } number[] = {{"statistics", "uploads", s.uploads},
      {"statistics", "uploaded_bytes", s.uploaded_bytes}, {"statistics", "pinned_bytes", 0},
      {"statistics", "device_bytes", 0}, {"config", "device_budget", 1 << 20}};
  assert_true(s.uploads >= 3);
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
    int at =
        insitu__text_json_get(&j, insitu__text_json_get(&j, 0, number[i].object), number[i].name);
    if (at < 0 || !insitu__text_json_u64(&j, at, &got) || got != number[i].want)
      fail_msg("%s: %s", number[i].name, text);
  }
  int plan = insitu__text_json_get(&j, insitu__text_json_get(&j, 0, "plan"), "all");
  if (plan >= 0) {
    int at = insitu__text_json_get(&j, plan, "device_bytes");
    assert_true(at >= 0 && insitu__text_json_u64(&j, at, &got) && got == 3 * (2048 + 768));
  }
  insitu__text_json_free(&j);
  close_loader(&ld);
  close_iter(&it);
  finish();
}

/* Fewer steps of z: every element is right, fewer bytes are copied to each device, and what is
 * held, as a batch and as a tensor, stays as it was. */
static void seen_steps(const struct seen *s, uint64_t shown) {
  for (uint64_t i = 0; i < VARS; i++) {
    insitu_variable v = places_variable[i];
    if (v.n_steps) v.n_steps = shown;
    support_check_array(&s->b, i, &v, &places_array[places_of[i]], 0);
  }
}
static void test_steps(void **state) {
  /* bytes of a batch of 32 rows that are copied: of x, y and d, and of z by its steps */
  static const struct {
    const char *place;
    uint64_t devices, others, z[4];
  } cases[] = {{ALL_DEVICE, 1, 7680 + 256 + 2560, {0, 256, 512, 768}},
      {MIXED, 1, 7680 + 2560, {0, 0, 0, 0}}, {TWO, 2, 7680 + 2560, {0, 256, 512, 768}},
      {"21 20 20 10", 2, 7680 + 256, {0, 256, 512, 768}}};
  static const uint64_t shown[] = {3, 1, 2, 3, 2};
  (void)state;
  EACH_MODE (m)
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
      struct places p;
      insitu_loader_desc *d = places_desc(&p, m, cases[k].place);
      d->batch_size = 32;
      d->hold_epoch = 1;
      d->check = m % 2;
      int home = cases[k].place[1] == '1';
      begin(2, m + 1);
      choose(home);
      insitu_loader *ld = open_here(d);
      insitu_iter_desc id = all(home);
      id.max_held = 3;
      insitu_iter *it = iter_or_fail(ld, &id);
      consume(it, home, 0, NULL);
      insitu_stats before = stats_of(ld);
      insitu_batch *held = NULL;
      struct seen *early = NULL;
      struct dl tensor = {0};
      for (size_t e = 0; e < sizeof shown / sizeof *shown; e++) {
        insitu_error err = {0};
        insitu_batch *b;
        if (insitu_iter_set_steps(it, "z", shown[e], &err)) fail_msg("%s", err.message);
        same_device();
        while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
          static unsigned char fixed[32 * 21];
          struct seen *s = save(b, home);
          assert_int_equal(b->arrays[2].shape[1], shown[e]);
          assert_int_equal(b->arrays[2].bytes, 32 * 7 * shown[e]);
          assert_int_equal(
              insitu_batch_copy_to(b, 2, fixed, b->arrays[2].bytes, streams[home], &err),
              INSITU_OK);
          sync_all();
          assert_memory_equal(fixed, s->arrays[2].data, b->arrays[2].bytes);
          seen_steps(s, shown[e]);
          seen_free(s);
          if (e != 1 || held) {
            release_behind_all(&b, home);
            continue;
          }
          held = b;
          early = seen_new(b);
          tensor = dl_export(b, 2, true, streams[home]);
        }
        insitu_stats now = stats_of(ld);
        uint64_t uploads = now.uploads - before.uploads,
                 each = cases[k].others + cases[k].z[shown[e]];
        assert_true(uploads > 0 && uploads % cases[k].devices == 0);
        assert_int_equal(
            now.uploaded_bytes - before.uploaded_bytes, uploads / cases[k].devices * each);
        assert_int_equal(now.device_bytes, before.device_bytes);
        assert_int_equal(now.memory_promised, before.memory_promised);
        before = now;
      }
      const int64_t shape[] = {32, 1, 7};
      assert_memory_equal(dl_tensor(tensor)->shape, shape, sizeof shape);
      assert_memory_equal(held->arrays[2].shape, shape, sizeof shape);
      assert_ptr_equal(dl_tensor(tensor)->data, held->arrays[2].data);
      for (uint64_t i = 0; i < VARS; i++) save_array(&held->arrays[i], home, early->arrays[i].data);
      sync_all();
      seen_steps(early, 1);
      seen_free(early);
      close_iter(&it);
      close_loader(&ld);
      release_behind_all(&held, home);
      sync_all();
      dl_delete(tensor);
      sync_all();
      finish();
    }
}

/* ---- 10. fixed variables ---- */

static const struct support_array fixed_array = {.name = "f",
    .ndim = 2,
    .shape = {9, 50},
    .chunk = {4, 50},
    .dtype = INSITU_F32,
    .format = 2,
    .zstd = true};
enum { FIXED = 9 * 50 };
struct fixed { /* places, and fixed variables behind or between the others */
  struct places p;
  insitu_variable v[VARS + 4];
};
/* places: of the variables that are drawn, then of fixed ones. */
static insitu_loader_desc *fixed_desc(
    struct fixed *f, int m, const char *drawn, const char *fixed) {
  static const char *const names[] = {"f0", "f1", "f2", "f3"};
  insitu_loader_desc *d = places_desc(&f->p, m, drawn);
  int n = 0;
  support_make(places_root, &fixed_array);
  for (size_t k = 0; 3 * k < strlen(fixed); k++) {
    if (k) f->v[n++] = f->p.variable[k - 1];
    f->v[n++] = (insitu_variable){.label = names[k],
        .path = "f",
        .fixed = 1,
        .place = fixed[3 * k] - '0',
        .device = fixed[3 * k + 1] - '0'};
  }
  for (int k = n / 2; k < VARS; k++) f->v[n++] = f->p.variable[k]; /* n is odd */
  d->variables = f->v;
  d->n_variables = (uint64_t)n;
  return d;
}
static void fixed_check(const float *x) {
  for (uint64_t k = 0; k < FIXED; k++)
    if (x[k] != (float)support_value(INSITU_F32, k)) fail_msg("element %d is %g", (int)k, x[k]);
}
/* Kernels copy a batch's fixed arrays to `to`, each on the stream of its device, or for page-locked
 * ones on streams[home]: none of them waits for the batch. */
static void fixed_save(const insitu_batch *b, int home, float to[4][FIXED]) {
  int n = 0;
  for (uint64_t i = 0; i < b->n_arrays; i++)
    if (b->arrays[i].fixed) save_array(&b->arrays[i], home, to[n++]);
}

/* Every place at once: what is uploaded when, what any stream sees, how much there is of it, and
 * that nothing is freed before the streams have used it. */
static void test_fixed(void **state) {
  static const char *const drawn[] = {ALL_HOST, ALL_DEVICE, MIXED, TWO, "11 11 11 11"};
  static const char *const fixed[] = {"00 10 20 21", "21", "20 20", "11", "30 37"};
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 5; k++)
      for (int j = 0; j < 5; j++)
        for (int pooled = 0; pooled < 2; pooled++) {
          struct fixed f;
          insitu_loader_desc *d = fixed_desc(&f, m, drawn[k], fixed[j]);
          struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER};
          if (pooled) {
            pool = pool_for(d);
            d->alloc_user = &pool;
          }
          begin(2, (uint64_t)(k * 5 + j) + 1);
          bool other = j == 1 && (k == 0 || k == 4); /* all that lies on devices lies on device 1 */
          int home = k == 3 || other, n[4] = {0};    /* n: by place */
          choose(home);
          insitu_loader *ld = open_here(d);
          insitu_stats s = stats_of(ld);
          for (uint64_t i = 0; i < d->n_variables; i++)
            if (f.v[i].fixed) n[insitu_loader_array(ld, i)->place]++;
          assert_int_equal(s.uploads, n[INSITU_DEVICE]);
          assert_int_equal(s.uploaded_bytes, (uint64_t)n[INSITU_DEVICE] * FIXED * 4);
          assert_int_equal(s.device_bytes, (uint64_t)n[INSITU_DEVICE] * 2048);
          assert_int_equal(s.pinned_bytes, (uint64_t)n[INSITU_PINNED] * 4096);
          if (!pooled) assert_int_equal(cudasim_count().device_blocks, n[INSITU_DEVICE]);
          insitu_iter_desc id = all(home);
          insitu_plan plan;
          assert_int_equal(insitu_loader_plan(ld, &id, &plan, NULL), INSITU_OK);
          assert_int_equal(plan.fixed_bytes, 4096 * (uint64_t)(n[INSITU_HOST] + n[INSITU_PINNED]));
          insitu_iter *it[2] = {iter_or_fail(ld, &id), iter_or_fail(ld, &id)};
          assert_int_equal(
              stats_of(ld).device_bytes, 2 * plan.device_bytes - (uint64_t)n[INSITU_DEVICE] * 2048);
          float(*seen)[4][FIXED] = calloc(4, sizeof *seen);
          insitu_batch *b, *held = NULL;
          const void *data[2 * VARS] = {NULL};
          for (int i = 0; i < 4; i++) {
            b = next_or_fail(it[i % 2]);
            fixed_save(b, home, seen[i]);
            for (uint64_t a = 0; a < b->n_arrays; a++) {
              if (!b->arrays[a].fixed) continue;
              if (!data[a]) data[a] = b->arrays[a].data;
              assert_ptr_equal(b->arrays[a].data, data[a]);
            }
            if (i == 3) held = b;
            else release_behind_all(&b, home);
          }
          close_iter(&it[0]);
          if (j % 2) close_loader(&ld);
          close_iter(&it[1]);
          if (ld) close_loader(&ld);
          for (uint64_t a = 0; a < held->n_arrays; a++)
            if (held->arrays[a].fixed && held->arrays[a].place)
              assert_non_null(cudasim_alias(held->arrays[a].data));
          release_behind_all(&held, home);
          if (pooled) pool_free(&pool);
          nothing_left();
          sync_all();
          for (int i = 0; i < 4; i++)
            for (int a = 0; a < n[0] + n[1] + n[2]; a++) fixed_check(seen[i][a]);
          free(seen);
          finish();
        }
}

/* Tensors of fixed arrays hold no batch, outlive all else, and are deleted on any thread while
 * their stream still reads them; many of them leave nothing behind. */
static void test_fixed_tensors(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int k = 0; k < 3; k++) {
      struct fixed f;
      insitu_loader_desc *d =
          fixed_desc(&f, m, k ? ALL_DEVICE : ALL_HOST, k < 2 ? "20 10" : "21 00");
      begin(2, (uint64_t)k + 1);
      insitu_loader *ld = open_here(d);
      insitu_iter_desc id = all(0);
      id.max_held = 1;
      insitu_iter *it = iter_or_fail(ld, &id);
      struct dl last[2] = {{NULL, false}, {NULL, false}};
      static float seen[40][FIXED];
      int n = 0, of = k == 2 ? 1 : 0;
      uint64_t events = 0;
      for (int round = 0; round < 20; round++) {
        insitu_batch *b;
        insitu_status status = insitu_iter_next(it, 20000, &b, NULL);
        if (status == INSITU_END) continue;
        assert_int_equal(status, INSITU_OK);
        cudaStream_t stream = streams[of];
        if (of) choose(1); /* the current device is the stream's */
        struct dl e = dl_export_fixed(b, 0, round % 2, stream);
        assert_int_equal(dl_tensor(e)->device.device_type, DL_CUDA);
        assert_int_equal(dl_tensor(e)->device.device_id, of);
        for (int i = 0; i < 2; i++) {
          if (last[i].managed || round < 10 || n % 2) continue;
          last[i] = dl_export_fixed(b, (uint64_t)i * 2, i, stream);
        }
        if (of) choose(0);
        release_on(&b, streams[0]);
        OK(cudasim_save(stream, dl_tensor(e)->data, FIXED * 4, seen[n++]));
        dl_delete_elsewhere(e);
        if (round == 5) sync_all();
        if (round == 7) events = cudasim_count().events;
        if (round > 7) assert_true(cudasim_count().events <= events + 20);
        if (round % 5 == 4) sync_all();
      }
      close_loader(&ld);
      close_iter(&it);
      for (int i = 0; i < 2; i++) {
        assert_non_null(last[i].managed);
        assert_int_equal(dl_tensor(last[i])->shape[1], 50);
      }
      OK(cudasim_save(streams[of], dl_tensor(last[0])->data, FIXED * 4, seen[n++]));
      dl_delete_elsewhere(last[0]);
      if (dl_tensor(last[1])->device.device_type == DL_CPU) fixed_check(dl_tensor(last[1])->data);
      dl_delete_elsewhere(last[1]);
      nothing_left();
      sync_all();
      for (int i = 0; i < n; i++) fixed_check(seen[i]);
      finish();
    }
}

/* Too little memory, and calls that fail while the loader opens: nothing is left. */
static void test_fixed_refused(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct fixed f;
    insitu_loader_desc *d = fixed_desc(&f, m, ALL_HOST, "20 20 21");
    begin(2, 1);
    d->device_budget = 4095;
    refuse_open(d, INSITU_E_BUDGET, "variable f1: it is fixed and takes 2048 bytes",
        "device 0, where 2047 bytes are left, for device_budget allows no more");
    d->device_budget = 4096;
    insitu_loader *ld = open_here(d);
    f.v[1].place = INSITU_DEVICE; /* f1 and x on one device */
    insitu_iter_desc id = all(0);
    close_loader(&ld);
    ld = open_here(d);
    refuse_iter(ld, &id, INSITU_E_BUDGET, "device 0, where 0 bytes are left (4096 are taken");
    close_loader(&ld);
    nothing_left();
    d->device_budget = 0;
    cudasim_memory(2047, 1 << 20);
    refuse_open(d, INSITU_E_BUDGET, "variable f0", "2047 bytes are left; select less");
    cudasim_memory(1 << 20, 1 << 20);
    d = fixed_desc(&f, m, ALL_HOST, "22");
    refuse_open(d, INSITU_E_DEVICE, "variable f0", "no device 2");

    d = fixed_desc(&f, m, ALL_HOST, "20 10 21");
    uint64_t failed = 0;
    for (uint64_t n = 1;; n++) {
      insitu_error err = {0};
      cudasim_fail(n, cudaErrorInvalidValue);
      insitu_status status = insitu_loader_open(d, &ld, &err);
      uint64_t injected = cudasim_count().injected;
      cudasim_fail(0, cudaSuccess);
      if (!status) close_loader(&ld);
      else assert_non_null(strstr(err.message, "variable f"));
      failed += status != 0;
      nothing_left();
      if (injected < n) break;
    }
    assert_true(failed >= 6);
    finish();
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_device),
      cmocka_unit_test(test_ordinals),
      cmocka_unit_test(test_masks),
      cmocka_unit_test(test_no_call),
      cmocka_unit_test(test_device_memory),
      cmocka_unit_test(test_budget_of_each),
      cmocka_unit_test(test_memory_budget),
      cmocka_unit_test(test_too_little_pinned),
      cmocka_unit_test(test_statistics),
      cmocka_unit_test(test_everywhere),
      cmocka_unit_test(test_delete_elsewhere),
      cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_current_device),
      cmocka_unit_test(test_current_device_after_an_error),
      cmocka_unit_test(test_astray_callbacks),
      cmocka_unit_test(test_pinned_for_another),
      cmocka_unit_test(test_null_elsewhere),
      cmocka_unit_test(test_per_thread_stream),
      cmocka_unit_test(test_limiting_stage),
      cmocka_unit_test(test_pool),
      cmocka_unit_test(test_pool_mutex),
      cmocka_unit_test(test_pool_refuses),
      cmocka_unit_test(test_pool_misaligned),
      cmocka_unit_test(test_held_over_close),
      cmocka_unit_test(test_holders),
      cmocka_unit_test(test_deleters_at_once),
      cmocka_unit_test(test_forked_child),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_dlpack),
      cmocka_unit_test(test_copy_to),
      cmocka_unit_test(test_other_stream),
      cmocka_unit_test(test_host_behind_a_stream),
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_moves),
      cmocka_unit_test(test_steps),
      cmocka_unit_test(test_other_orders),
      cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_masks_and_calls),
      cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_describe),
      cmocka_unit_test(test_fixed),
      cmocka_unit_test(test_fixed_tensors),
      cmocka_unit_test(test_fixed_refused),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, places_setup, support_teardown);
}
