/* make test-gpu */
/* What only a GPU can show: the loader's uploads on the real driver. No kernels, no nvcc: the CUDA
 * runtime alone. Ends with
 * 'N passed, N failed[, N skipped]'; exit status 77 where there is no device, which is then said.
 *
 * EPOCHS. Each byte that a consumer's stream saw equals what a loader without any device delivers.
 *   The stream overwrites a batch behind that, and the host never waits for it; in one epoch it is
 *   slow, as callbacks sleep on it, in the next one fast. Every device, then two at once, every
 *   backend, every way to let a batch go.
 * GRAPHS. A graph copies from an address that insitu_batch_copy_to fills; meanwhile another loader
 * uploads, the captures included. BANDWIDTH. Batches of 1, 8 and 64 MiB that nobody reads, from
 * absent chunks, which are only filled. Rounds of three, in changing
 *   order: the loader with its arrays on the device; the same loader with its arrays on the host; a
 *   bare loop of cudaMemcpyAsync from as many pinned buffers to as many places on the device, which
 *   waits at the end alone. share: the loader's rate over the lesser of the other two, median and
 *   95 % interval; the target is met when the interval reaches it.
 * OVERLAP. A consumer that keeps the device busy for 1.2 times as long as a batch takes to copy (or
 *   to fill, where that is longer): time of a step with the loader over that without. Its memsets
 *   stay in the device's cache: what a copy and a kernel take from each other is not the loader's.
 * The two last only print whether their targets are met.
 *
 *   --commit C   what is tested, to be printed
 *   --rounds N   of bandwidth and overlap (21)       --device N   for these two (0); the others
 *                take every device
 *   --only T     epochs, two, graphs, bandwidth or overlap: that test alone
 *   --small      little data, short naps: only to see it run. Always where the runtime is the
 *                simulated one (tests/cudasim), whose numbers mean nothing. */
#define INSITU_WITH_CUDA
#include <cuda_runtime_api.h>
#ifdef CUDASIM
#include "cudasim/cudasim.c"
#define SIMULATED true
#else
#define SIMULATED false
#endif
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "../../tools/bench/bench_summary.h"
#include <sys/utsname.h>

enum { NO_DEVICE = 77, MOST_ROUNDS = 1001 };
static struct {
  bool small;
  const char *commit, *only;
  uint64_t rounds;
  int device;
} options = {.small = SIMULATED, .commit = "unknown", .rounds = 21};
static int devices, skipped;

static void did(cudaError_t answer, const char *call, int line) {
  if (answer)
    fail_msg("tests/device/gpu.c:%d: %s: %s (%s)", line, call, cudaGetErrorString(answer),
        cudaGetErrorName(answer));
}
#define CUDA(call) did(call, #call, __LINE__)
static void ok(insitu_status status, const insitu_error *err) {
  if (status) fail_msg("%s: %s", insitu_status_name(status), err->message);
}
static double seconds(void) {
  return (double)insitu__base_now() * 1e-9;
}

static uint64_t room_of(uint64_t bytes) {
  return insitu__base_ceil_div(bytes, 256) * 256;
}

static void begin_test(void) {
#ifdef CUDASIM
  cudasim_reset(2, 1);
  cudasim_catch_faults(true); /* cmocka has its own handler in every test */
#endif
}
/* What only the simulated runtime knows */
static void end_test(void) {
#ifdef CUDASIM
  cudasim_finish();
  if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
  cudasim_counts c = cudasim_count();
  assert_int_equal(c.streams + c.events + c.device_blocks + c.pinned_blocks + c.graphs, 0);
#endif
}

/* ---- the archive, and what each batch of it holds ---- */

enum {
  SAMPLES = 61,
  BATCH = 5,
  BATCHES = (SAMPLES - 1) / BATCH,
  EPOCHS = 2,
  VARIABLES = 4,
  FIRST = 0,
  PINNED = 1,
  HOST = 2,
  NEXT = 3
};
static struct support_array x = {.name = "x",
                                .ndim = 2,
                                .shape = {SAMPLES, 20000},
                                .chunk = {3, 20000},
                                .dtype = INSITU_F32,
                                .format = 2},
                            b = {.name = "b",
                                .ndim = 2,
                                .shape = {SAMPLES, 3000},
                                .chunk = {4, 1700},
                                .dtype = INSITU_I16,
                                .format = 2,
                                .zstd = true};
static struct support_array /* whose chunks are read straight into the batch */
    y = {.name = "y",
        .ndim = 2,
        .shape = {SAMPLES, 20000},
        .chunk = {1, 20000},
        .dtype = INSITU_F32,
        .format = 2};
static const struct support_array *const arrays[VARIABLES] = {&x, &b, &b, &y};
static const insitu_variable placed[VARIABLES] = {
    {.label = "now", .path = "x", .place = INSITU_DEVICE},
    {.label = "b", .place = INSITU_PINNED, .dtype = INSITU_F32}, {.label = "host", .path = "b"},
    {.label = "next", .path = "y", .offset = 1, .place = INSITU_DEVICE_OR_HOST}};
static struct expected {
  int64_t anchors[BATCH];
  unsigned char *bytes[VARIABLES];
  uint64_t n[VARIABLES];
} expected[EPOCHS][BATCHES];
static uint64_t batch_bytes; /* of all its arrays */

static insitu_loader_desc describe(const insitu_variable *variables, int m) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = support_path("a"),
      .variables = variables,
      .n_variables = VARIABLES,
      .batch_size = BATCH,
      .block_chunks = 4,
      .prefetch_depth = 3,
      .split = {{.start = 0, .stop = SAMPLES}},
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
}
/* Two epochs by a loader that knows of no device, itself held against the archive's formula */
static void expect_epochs(void) {
  insitu_variable host[VARIABLES];
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch;
  insitu_error err = {0};
  memcpy(host, placed, sizeof host);
  for (int i = 0; i < VARIABLES; i++) host[i].place = INSITU_HOST;
  insitu_loader_desc d = describe(host, INLINE_EPOLL);
  ok(insitu_loader_open(&d, &ld, &err), &err);
  ok(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), &err);
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    for (int k = 0; k < BATCHES; k++) {
      struct expected *e = &expected[epoch][k];
      ok(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), &err);
      memcpy(e->anchors, batch->sample_indices, sizeof e->anchors);
      batch_bytes = 0;
      for (uint64_t i = 0; i < VARIABLES; i++) {
        if (!epoch) support_check_array(batch, i, &host[i], arrays[i], 0);
        e->n[i] = batch->arrays[i].bytes;
        e->bytes[i] = malloc(e->n[i]);
        memcpy(e->bytes[i], batch->arrays[i].data, e->n[i]);
        batch_bytes += room_of(e->n[i]);
      }
      insitu_batch_release(&batch);
    }
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), INSITU_END);
  }
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}

/* ---- a consumer ---- */

/* How its batches are let go, and used before */
enum { RELEASE, RELEASE_ON, DLPACK, COPY_TO, LATER, STYLES };
static const char *const style_names[] = {
    "release", "release_on", "DLPack", "copy_to", "kept beyond close"};
/* what libtorch and the like would have; DLManagedTensor is private to the header here */
struct tensors {
  struct insitu__public_dlpack_managed *first, *pinned;
  struct insitu__public_dlpack_versioned *next;
};
struct seen { /* what a stream copied back, or will have */
  int epoch, batch, variable;
  const unsigned char *bytes;
};
struct consumer {
  cudaStream_t stream, other;      /* the iterator's, another one */
  unsigned char *back;             /* pinned: room for what two epochs copy back */
  unsigned char *scratch, *fixed;  /* on the device, for an array each */
  uint64_t used, room, array_room; /* of back; bytes of scratch and fixed */
  struct seen seen[EPOCHS * BATCHES * VARIABLES];
  int n_seen;
  struct tensors tensors;
};

/* Even epochs are slow: what a stream is given comes long after the uploads, and they must wait for
 * it. Odd ones are not, and begin with streams that are idle: what a stream is given comes at once,
 * and must wait for the uploads. */
static unsigned nap_us[] = {2000, 0, 5000, 1000};
static void nap(void *us) {
  struct timespec t = {.tv_nsec = 1000L * *(unsigned *)us};
  if (t.tv_nsec) nanosleep(&t, NULL);
}
static void slow_down(const insitu_batch *batch, cudaStream_t stream) {
  if (batch->epoch % 2 == 0) CUDA(cudaLaunchHostFunc(stream, nap, &nap_us[batch->index % 4]));
}
static void consumer_wait(struct consumer *c) {
  CUDA(cudaStreamSynchronize(c->stream));
  CUDA(cudaStreamSynchronize(c->other));
}
static void consumer_open(struct consumer *c) {
  void *p = NULL;
  memset(c, 0, sizeof *c);
  c->room = batch_bytes * EPOCHS * BATCHES;
  c->array_room = (uint64_t)BATCH * x.shape[1] * 4;
  CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&c->other, cudaStreamNonBlocking));
  CUDA(cudaHostAlloc(&p, c->room, cudaHostAllocPortable));
  c->back = p;
  CUDA(cudaMalloc(&p, c->array_room));
  c->scratch = p;
  CUDA(cudaMalloc(&p, c->array_room));
  c->fixed = p;
}
static void consumer_close(struct consumer *c) {
  consumer_wait(c);
  CUDA(cudaFreeHost(c->back));
  CUDA(cudaFree(c->scratch));
  CUDA(cudaFree(c->fixed));
  CUDA(cudaStreamDestroy(c->stream));
  CUDA(cudaStreamDestroy(c->other));
}
/* Has a stream copy an array back that lies on its device, and overwrite it then. */
static void look(
    struct consumer *c, const insitu_batch *batch, int variable, void *at, cudaStream_t stream) {
  uint64_t n = batch->arrays[variable].bytes;
  assert_true(c->used + n <= c->room);
  CUDA(cudaMemcpyAsync(c->back + c->used, at, n, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaMemsetAsync(at, 0xee, n, stream));
  c->seen[c->n_seen++] =
      (struct seen){(int)batch->epoch, (int)batch->index, variable, c->back + c->used};
  c->used += room_of(n);
}
static void compare(const unsigned char *got, int epoch, int batch, int variable) {
  const struct expected *e = &expected[epoch][batch];
  if (!memcmp(got, e->bytes[variable], e->n[variable])) return;
  uint64_t at = 0;
  while (got[at] == e->bytes[variable][at]) at++;
  fail_msg("epoch %d batch %d array %s: byte %" PRIu64 " of %" PRIu64 " is %02x, not %02x", epoch,
      batch, placed[variable].label, at, e->n[variable], got[at], e->bytes[variable][at]);
}
/* Waits for both streams and compares what they saw. */
static void consumer_check(struct consumer *c) {
  consumer_wait(c);
  for (int i = 0; i < c->n_seen; i++)
    compare(c->seen[i].bytes, c->seen[i].epoch, c->seen[i].batch, c->seen[i].variable);
}
/* The host's arrays; also where and in which order all lies */
static void check_host(const insitu_batch *batch, int first, int next) {
  assert_in_range(batch->epoch, 0, EPOCHS - 1);
  assert_in_range(batch->index, 0, BATCHES - 1);
  const struct expected *e = &expected[batch->epoch][batch->index];
  const insitu_array *a = batch->arrays;
  assert_int_equal(batch->rows, BATCH);
  assert_memory_equal(batch->sample_indices, e->anchors, sizeof e->anchors);
  for (int i = 0; i < VARIABLES; i++) assert_int_equal(a[i].bytes, e->n[i]);
  assert_true(a[FIRST].place == INSITU_DEVICE && a[FIRST].device == first);
  assert_true(a[NEXT].place == INSITU_DEVICE && a[NEXT].device == next);
  assert_true(a[PINNED].place == INSITU_PINNED && a[HOST].place == INSITU_HOST);
  compare(a[PINNED].data, (int)batch->epoch, (int)batch->index, PINNED);
  compare(a[HOST].data, (int)batch->epoch, (int)batch->index, HOST);
}
static void drop(struct tensors *t) {
  if (t->first) t->first->deleter(t->first);
  if (t->pinned) t->pinned->deleter(t->pinned);
  if (t->next) t->next->deleter(t->next);
  memset(t, 0, sizeof *t);
}
/* Gives a batch's work to a stream, without waiting for anything. */
static void train(struct consumer *c, insitu_batch *batch, int style) {
  cudaStream_t stream = style == RELEASE || style == LATER ? c->stream : c->other;
  struct tensors mine = {0};
  insitu_error err = {0};
  if (style == RELEASE_ON) ok(insitu_batch_wait(batch, stream, &err), &err);
  if (style == DLPACK) {
    ok(insitu_batch_dlpack(batch, FIRST, 0, stream, (void **)&mine.first, &err), &err);
    ok(insitu_batch_dlpack(batch, PINNED, 0, stream, (void **)&mine.pinned, &err), &err);
    ok(insitu_batch_dlpack(batch, NEXT, 1, stream, (void **)&mine.next, &err), &err);
    assert_true(mine.first->tensor.device_type == 2 &&
                mine.first->tensor.device_id == batch->arrays[FIRST].device);
    assert_true(mine.next->tensor.device_type == 2 && mine.pinned->tensor.device_type == 3);
  }
  slow_down(batch, stream);
  for (int i = 0; i < VARIABLES; i++) {
    const insitu_array *a = &batch->arrays[i];
    /* Behind release alone a stream may not use what lies on the host. */
    if (i == HOST || (i == PINNED && (style == RELEASE || style == LATER))) continue;
    if (style == COPY_TO) {
      ok(insitu_batch_copy_to(batch, (uint64_t)i, c->fixed, c->array_room, stream, &err), &err);
      look(c, batch, i, c->fixed, stream);
    } else if (i == PINNED) {
      CUDA(cudaMemcpyAsync(c->scratch, a->data, a->bytes, cudaMemcpyHostToDevice, stream));
      look(c, batch, i, c->scratch, stream);
    } else {
      look(c, batch, i, style == DLPACK && i == NEXT ? mine.next->tensor.data : a->data, stream);
    }
  }
  if (style != DLPACK) return;
  drop(&c->tensors); /* those of the batch before */
  c->tensors = mine;
}

static void run_epochs(int device, int m, int style) {
  insitu_variable variables[VARIABLES];
  struct consumer c;
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch, *kept = NULL;
  insitu_error err = {0};
  insitu_stats stats;
  memcpy(variables, placed, sizeof variables);
  for (int i = 0; i < VARIABLES; i++) variables[i].device = device;
  CUDA(cudaSetDevice(device));
  consumer_open(&c);
  insitu_loader_desc d = describe(variables, m);
  ok(insitu_loader_open(&d, &ld, &err), &err);
  ok(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .stream = c.stream}, &it, &err),
      &err);
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    for (int k = 0; k < BATCHES; k++) {
      ok(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), &err);
      assert_true(batch->epoch == (uint64_t)epoch && batch->index == (uint64_t)k);
      check_host(batch, device, device);
      if (style == LATER) {
        if (kept) train(&c, kept, style);
        insitu_batch_release(&kept);
        kept = batch;
        continue;
      }
      train(&c, batch, style);
      if (style == RELEASE) insitu_batch_release(&batch);
      else insitu_batch_release_on(&batch, c.other);
    }
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), INSITU_END);
    consumer_wait(&c);
  }
  insitu_loader_stats(ld, &stats, NULL);
  assert_true(stats.uploads >= EPOCHS * BATCHES && stats.pinned_bytes && stats.device_bytes);
  insitu_loader_close(&ld); /* batches and tensors live on, and the streams may still be at work */
  insitu_iter_close(&it);
  if (kept) train(&c, kept, style);
  insitu_batch_release(&kept);
  drop(&c.tensors);
  consumer_check(&c);
  assert_int_equal(c.n_seen, EPOCHS * BATCHES * (style == RELEASE || style == LATER ? 2 : 3));
  consumer_close(&c);
}
static void test_epochs(void **state) {
  (void)state;
  begin_test();
  for (int device = 0; device < devices; device++)
    for (int style = 0; style < STYLES; style++) {
      EACH_MODE (m) run_epochs(device, m, style);
      printf("epochs, device %d, %s: right\n", device, style_names[style]);
    }
  end_test();
}

/* One batch on two devices, each array used on its own device's stream; the iterator's stream waits
 * for the other one. */
static void run_two(int first, int second, int m) {
  insitu_variable variables[VARIABLES];
  struct consumer near, far;
  cudaEvent_t done;
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch;
  insitu_error err = {0};
  memcpy(variables, placed, sizeof variables);
  variables[FIRST].device = variables[PINNED].device = first;
  variables[NEXT].device = second;
  CUDA(cudaSetDevice(second));
  consumer_open(&far);
  CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  CUDA(cudaSetDevice(first));
  consumer_open(&near);
  insitu_loader_desc d = describe(variables, m);
  ok(insitu_loader_open(&d, &ld, &err), &err);
  ok(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .stream = near.stream}, &it, &err),
      &err);
  for (int k = 0; k < EPOCHS * BATCHES; k++) {
    insitu_status status = insitu_iter_next(it, INSITU_FOREVER, &batch, &err);
    if (status == INSITU_END) {
      consumer_wait(&near), consumer_wait(&far);
      status = insitu_iter_next(it, INSITU_FOREVER, &batch, &err);
    }
    ok(status, &err);
    check_host(batch, first, second);
    slow_down(batch, near.stream);
    look(&near, batch, FIRST, batch->arrays[FIRST].data, near.stream);
    CUDA(cudaSetDevice(second));
    ok(insitu_batch_wait(batch, far.stream, &err), &err);
    slow_down(batch, far.stream);
    look(&far, batch, NEXT, batch->arrays[NEXT].data, far.stream);
    CUDA(cudaEventRecord(done, far.stream));
    CUDA(cudaSetDevice(first));
    CUDA(cudaStreamWaitEvent(near.stream, done, 0));
    insitu_batch_release(&batch);
  }
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  consumer_check(&near);
  consumer_check(&far);
  consumer_close(&near);
  CUDA(cudaEventDestroy(done));
  CUDA(cudaSetDevice(second));
  consumer_close(&far);
  CUDA(cudaSetDevice(first));
}
static void test_two(void **state) {
  (void)state;
  if (devices < 2) {
    printf("two devices at once: skipped, there is one\n");
    skipped++;
    skip();
  }
  begin_test();
  EACH_MODE (m) {
    run_two(0, 1, m);
    run_two(1, 0, m);
  }
  printf("two devices at once: right\n");
  end_test();
}

/* ---- graphs ---- */

struct background { /* a loader that uploads all the time, in a thread of its own */
  int device, mode;
  cudaStream_t stream;
  insitu_loader *_Atomic loader;
  atomic_bool open, stop; /* open: or it failed */
  insitu_status status;
  insitu_error err;
};
static void *upload_all_the_time(void *arg) {
  struct background *g = arg;
  insitu_variable variables[VARIABLES];
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch;
  memcpy(variables, placed, sizeof variables);
  for (int i = 0; i < VARIABLES; i++) variables[i].device = g->device;
  insitu_loader_desc d = describe(variables, g->mode);
  cudaSetDevice(g->device);
  g->status = insitu_loader_open(&d, &ld, &g->err);
  if (!g->status)
    g->status = insitu_iter_open(
        ld, &(insitu_iter_desc){.api = INSITU_API, .stream = g->stream}, &it, &g->err);
  atomic_store(&g->loader, ld);
  atomic_store(&g->open, true);
  while (g->status >= 0 && !atomic_load(&g->stop)) {
    g->status = insitu_iter_next(it, INSITU_FOREVER, &batch, &g->err);
    if (g->status == INSITU_OK) insitu_batch_release(&batch);
  }
  while (!atomic_load(&g->stop)) sched_yield(); /* who looks at its statistics is done then */
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return NULL;
}
static uint64_t uploads_of(struct background *g) {
  insitu_stats stats = {0};
  insitu_loader *ld = atomic_load(&g->loader);
  if (ld) insitu_loader_stats(ld, &stats, NULL);
  return stats.uploads;
}
/* Captures a copy from the fixed address and what overwrites it; three uploads of the other loader
 * fall into it. */
static cudaGraphExec_t capture(
    struct consumer *c, uint64_t bytes, enum cudaStreamCaptureMode mode, struct background *g) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  uint64_t wanted;
  double until = seconds() + 120;
  CUDA(cudaStreamBeginCapture(c->stream, mode));
  CUDA(cudaMemcpyAsync(c->scratch, c->fixed, bytes, cudaMemcpyDeviceToDevice, c->stream));
  for (wanted = uploads_of(g) + 3; uploads_of(g) < wanted && seconds() < until;) usleep(100);
  bool uploaded = uploads_of(g) >= wanted;
  CUDA(cudaMemsetAsync(c->fixed, 0xee, bytes, c->stream));
  CUDA(cudaStreamEndCapture(c->stream, &graph));
  CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  if (!uploaded) fail_msg("no upload during a capture");
  return exec;
}
static void run_graphs(int device, int m) {
  insitu_variable variables[VARIABLES];
  struct consumer c;
  struct background g = {.device = device, .mode = m};
  pthread_t thread;
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch;
  insitu_error err = {0};
  cudaGraphExec_t execs[EPOCHS] = {NULL};
  memcpy(variables, placed, sizeof variables);
  for (int i = 0; i < VARIABLES; i++) variables[i].device = device;
  CUDA(cudaSetDevice(device));
  consumer_open(&c);
  CUDA(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
  insitu_loader_desc d = describe(variables, m);
  ok(insitu_loader_open(&d, &ld, &err), &err);
  ok(insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .stream = c.stream}, &it, &err),
      &err);
  assert_int_equal(pthread_create(&thread, NULL, upload_all_the_time, &g), 0);
  while (!atomic_load(&g.open)) usleep(100);
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    execs[epoch] = capture(&c, expected[0][0].n[FIRST],
        epoch ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal, &g);
    for (int k = 0; k < BATCHES; k++) {
      ok(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), &err);
      check_host(batch, device, device);
      slow_down(batch, c.stream);
      int variable = k % 3 == 2 ? NEXT : FIRST;
      ok(insitu_batch_copy_to(batch, (uint64_t)variable, c.fixed, c.array_room, c.stream, &err),
          &err);
      CUDA(cudaGraphLaunch(execs[epoch], c.stream));
      look(&c, batch, variable, c.scratch, c.stream);
      insitu_batch_release(&batch);
    }
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &batch, &err), INSITU_END);
    consumer_wait(&c);
  }
  atomic_store(&g.stop, true);
  pthread_join(thread, NULL);
  if (g.status < 0) fail_msg("the loader in the background: %s", g.err.message);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  consumer_check(&c);
  for (int epoch = 0; epoch < EPOCHS; epoch++) CUDA(cudaGraphExecDestroy(execs[epoch]));
  CUDA(cudaStreamSynchronize(g.stream));
  CUDA(cudaStreamDestroy(g.stream));
  consumer_close(&c);
}
static void test_graphs(void **state) {
  (void)state;
  begin_test();
  for (int device = 0; device < devices; device++) {
    EACH_MODE (m) run_graphs(device, m);
    printf("graphs, device %d: right, captured in global and relaxed mode while another loader "
           "uploads\n",
        device);
  }
  end_test();
}

/* ---- bandwidth and overlap ---- */

enum { ROWS = 16, MOST_SLABS = 80 };
static const float filled = 1.5f;
struct load { /* a loader of filled batches, on the device or not */
  char metadata[400];
  insitu_object objects[2];
  insitu_loader *loader;
  insitu_iter *iter;
  cudaStream_t stream;
  uint64_t slabs, slots, warm; /* warm: batches until what lay ready is gone */
};

static insitu_batch *load_next(struct load *l) {
  insitu_error err = {0};
  insitu_batch *batch = NULL;
  insitu_status status = insitu_iter_next(l->iter, INSITU_FOREVER, &batch, &err);
  if (status == INSITU_END) status = insitu_iter_next(l->iter, INSITU_FOREVER, &batch, &err);
  ok(status, &err);
  return batch;
}
static void load_open(struct load *l, uint64_t bytes, int32_t place, int device) {
  /* Rows of a batch come from one chunk at 1 MiB, from several above. */
  uint64_t width = bytes / ROWS / 4, chunk = insitu__base_max(1, ((uint64_t)1 << 20) / (width * 4)),
           samples = ROWS * 4096;
  insitu_variable v = {.label = "x", .place = place, .device = device};
  insitu_error err = {0};
  insitu_plan plan;
  memset(l, 0, sizeof *l);
  snprintf(l->metadata, sizeof l->metadata,
      "{\"zarr_format\":2,\"shape\":[%" PRIu64 ",%" PRIu64 "],\"chunks\":[%" PRIu64 ",%" PRIu64
      "],\"dtype\":\"<f4\",\"order\":\"C\",\"fill_value\":%g,\"filters\":null,\"compressor\":null}",
      samples, width, insitu__base_min(chunk, ROWS), width, (double)filled);
  l->objects[0] = (insitu_object){".zgroup", "{\"zarr_format\":2}", 17};
  l->objects[1] = (insitu_object){"x/.zarray", l->metadata, strlen(l->metadata)};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = "memory://",
      .objects = l->objects,
      .n_objects = 2,
      .variables = &v,
      .n_variables = 1,
      .batch_size = ROWS,
      .lanes = 1,
      .split = {{.fraction = 1}},
      .log_level = INSITU_LOG_OFF};
  if (place == INSITU_DEVICE) CUDA(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
  insitu_iter_desc i = {.api = INSITU_API, .order = INSITU_SEQUENTIAL, .stream = l->stream};
  ok(insitu_loader_open(&d, &l->loader, &err), &err);
  ok(insitu_loader_plan(l->loader, &i, &plan, &err), &err);
  ok(insitu_iter_open(l->loader, &i, &l->iter, &err), &err);
  l->slabs = plan.slabs;
  l->slots = place == INSITU_DEVICE ? plan.device_bytes / bytes : 0;
  l->warm = l->slabs + l->slots;
  assert_in_range(l->slabs, 1, MOST_SLABS);
  insitu_batch *batch = load_next(l); /* the first, and that all of it is there */
  float *seen = malloc(bytes);
  assert_int_equal(batch->arrays[0].bytes, bytes);
  if (place == INSITU_DEVICE) {
    CUDA(cudaMemcpyAsync(seen, batch->arrays[0].data, bytes, cudaMemcpyDeviceToHost, l->stream));
    CUDA(cudaStreamSynchronize(l->stream));
  } else {
    memcpy(seen, batch->arrays[0].data, bytes);
  }
  for (uint64_t k = 0; k < bytes / 4; k++)
    if (seen[k] != filled)
      fail_msg("element %" PRIu64 " of a filled batch is %g", k, (double)seen[k]);
  free(seen);
  insitu_batch_release(&batch);
}
/* Until it has made ready what it can, and takes nothing from others */
static void load_settle(struct load *l) {
  insitu_stats stats = {0};
  for (uint64_t before = 0, same = 0; same < 3;) {
    usleep(1000);
    insitu_loader_stats(l->loader, &stats, NULL);
    same = stats.reads + stats.uploads == before ? same + 1 : 0;
    before = stats.reads + stats.uploads;
  }
}
static void load_close(struct load *l) {
  insitu_iter_close(&l->iter);
  insitu_loader_close(&l->loader);
  if (l->stream) CUDA(cudaStreamDestroy(l->stream));
}
/* Seconds of n batches, at full speed: those that lay ready are taken before. */
static double load_round(struct load *l, uint64_t n) {
  double begin = 0;
  for (uint64_t k = 0; k < l->warm + n; k++) {
    insitu_batch *batch = load_next(l);
    insitu_batch_release(&batch);
    if (k + 1 != l->warm && k + 1 != l->warm + n) continue;
    if (l->stream) CUDA(cudaStreamSynchronize(l->stream)); /* it waits for the batch's copy */
    if (k + 1 == l->warm) begin = seconds();
  }
  double end = seconds();
  load_settle(l);
  return end - begin;
}

struct bare { /* the same copies, and nothing else */
  cudaStream_t stream;
  void *buffers[MOST_SLABS], *slots[MOST_SLABS];
  uint64_t n_buffers, n_slots, bytes;
};
static void bare_open(struct bare *r, uint64_t bytes, uint64_t n_buffers, uint64_t n_slots) {
  *r = (struct bare){.n_buffers = n_buffers, .n_slots = n_slots, .bytes = bytes};
  CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  for (uint64_t i = 0; i < n_buffers; i++) {
    CUDA(cudaHostAlloc(&r->buffers[i], bytes, cudaHostAllocPortable));
    memset(r->buffers[i], 1, bytes);
  }
  for (uint64_t i = 0; i < n_slots; i++) CUDA(cudaMalloc(&r->slots[i], bytes));
}
static void bare_close(struct bare *r) {
  for (uint64_t i = 0; i < r->n_buffers; i++) CUDA(cudaFreeHost(r->buffers[i]));
  for (uint64_t i = 0; i < r->n_slots; i++) CUDA(cudaFree(r->slots[i]));
  CUDA(cudaStreamDestroy(r->stream));
}
static double bare_round(struct bare *r, uint64_t n) {
  double begin = seconds();
  for (uint64_t k = 0; k < n; k++)
    CUDA(cudaMemcpyAsync(r->slots[k % r->n_slots], r->buffers[k % r->n_buffers], r->bytes,
        cudaMemcpyHostToDevice, r->stream));
  CUDA(cudaStreamSynchronize(r->stream));
  return seconds() - begin;
}

static const uint64_t sizes[] = {(uint64_t)1 << 20, (uint64_t)8 << 20, (uint64_t)64 << 20};
static uint64_t size_of(unsigned i) { /* of a batch */
  return options.small ? sizes[i] >> 6 : sizes[i];
}
static const char *met(bool reached) {
  return options.small ? "too small to tell" : reached ? "met" : "missed";
}

static void run_bandwidth(int device, unsigned size) {
  static double share[MOST_ROUNDS], of_bare[MOST_ROUNDS], wall[3][MOST_ROUNDS];
  uint64_t bytes = size_of(size),
           n = options.small ? 4 : insitu__base_max(64, ((uint64_t)1 << 30) / bytes);
  double target = size ? 0.95 : 0.90, gb = (double)(bytes * n) * 1e-9;
  struct load on_device, on_host;
  struct bare bare;
  CUDA(cudaSetDevice(device));
  load_open(&on_device, bytes, INSITU_DEVICE, device);
  load_open(&on_host, bytes, INSITU_HOST, 0);
  bare_open(&bare, bytes, on_device.slabs, on_device.slots);
  for (uint64_t round = 0; round <= options.rounds; round++) {
    /* the first is done again: it found caches and clocks cold */
    uint64_t k = round ? round - 1 : 0;
    for (uint64_t turn = 0; turn < 3; turn++) switch ((round + turn) % 3) {
      case 0: wall[0][k] = bare_round(&bare, n); break;
      case 1: wall[1][k] = load_round(&on_host, n); break;
      default: wall[2][k] = load_round(&on_device, n);
      }
    share[k] = fmax(wall[0][k], wall[1][k]) / wall[2][k];
    of_bare[k] = wall[0][k] / wall[2][k];
  }
  struct summary s = summarise(share, options.rounds), o = summarise(of_bare, options.rounds), b0,
                 h, l;
  b0 = summarise(wall[0], options.rounds), h = summarise(wall[1], options.rounds),
  l = summarise(wall[2], options.rounds);
  if (SIMULATED)
    printf("bandwidth, device %d, %" PRIu64 " KiB: ran, SIMULATED\n", device, bytes >> 10);
  else
    printf("bandwidth, device %d, %" PRIu64
           " KiB: copies %.2f GB/s, loader on the host %.2f, on the device %.2f; share %.3f "
           "[%.3f, %.3f], of the copies %.3f [%.3f, %.3f]; target %.2f: %s\n",
        device, bytes >> 10, gb / b0.mid, gb / h.mid, gb / l.mid, s.mid, s.low, s.high, o.mid,
        o.low, o.high, target, met(s.high >= target));
  load_close(&on_device);
  load_close(&on_host);
  bare_close(&bare);
}
static void test_bandwidth(void **state) {
  (void)state;
  begin_test();
  for (unsigned i = 0; i < 3; i++) run_bandwidth(options.device, i);
  end_test();
}

struct work { /* of the device, by one launch */
  cudaStream_t stream;
  cudaEvent_t begin, end;
  void *memory;
  cudaGraphExec_t exec;
};
enum { WORK_BYTES = 1 << 20 };
static void work_make(struct work *w, uint64_t memsets) {
  cudaGraph_t graph = NULL;
  if (w->exec) CUDA(cudaGraphExecDestroy(w->exec));
  CUDA(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeRelaxed));
  for (uint64_t k = 0; k < memsets; k++)
    CUDA(cudaMemsetAsync(w->memory, (int)k, WORK_BYTES, w->stream));
  CUDA(cudaStreamEndCapture(w->stream, &graph));
  CUDA(cudaGraphInstantiateWithFlags(&w->exec, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaGraphLaunch(w->exec, w->stream)); /* the first one is slower */
  CUDA(cudaStreamSynchronize(w->stream));
}
/* Milliseconds of a step, alone or with a batch for each */
static double work_steps(struct work *w, struct load *l, uint64_t n) {
  float ms = 0;
  /* what lay ready is gone, and the loader at its pace */
  for (uint64_t k = 0; l && k < l->warm; k++) {
    insitu_batch *batch = load_next(l);
    CUDA(cudaGraphLaunch(w->exec, w->stream));
    insitu_batch_release(&batch);
  }
  CUDA(cudaEventRecord(w->begin, w->stream));
  for (uint64_t k = 0; k < n; k++) {
    insitu_batch *batch = l ? load_next(l) : NULL;
    CUDA(cudaGraphLaunch(w->exec, w->stream));
    insitu_batch_release(&batch);
  }
  CUDA(cudaEventRecord(w->end, w->stream));
  CUDA(cudaEventSynchronize(w->end));
  CUDA(cudaEventElapsedTime(&ms, w->begin, w->end));
  if (l) load_settle(l);
  return (double)ms / (double)n;
}
static void run_overlap(int device, unsigned size) {
  static double ratio[MOST_ROUNDS], alone[MOST_ROUNDS];
  const uint64_t probe = options.small ? 8 : 256, most = options.small ? 8 : 16384,
                 target_steps = options.small ? 3 : 50;
  uint64_t bytes = size_of(size);
  struct load on_device, on_host;
  struct bare bare;
  struct work w = {0};
  CUDA(cudaSetDevice(device));
  load_open(&on_host, bytes, INSITU_HOST, 0);
  load_open(&on_device, bytes, INSITU_DEVICE, device);
  bare_open(&bare, bytes, on_device.slabs, on_device.slots);
  w.stream = on_device.stream;
  CUDA(cudaMalloc(&w.memory, WORK_BYTES));
  CUDA(cudaEventCreateWithFlags(&w.begin, cudaEventDefault));
  CUDA(cudaEventCreateWithFlags(&w.end, cudaEventDefault));
  bare_round(&bare, target_steps);
  double copy = 1e3 * bare_round(&bare, target_steps) / (double)target_steps;
  double fill = 1e3 * load_round(&on_host, target_steps) / (double)target_steps;
  work_make(&w, probe);
  double one = work_steps(&w, NULL, 8) / (double)probe, wanted = 1.2 * fmax(copy, fill) / one;
  uint64_t memsets = wanted < (double)most ? (uint64_t)fmax(1, ceil(wanted)) : most;
  work_make(&w, memsets);
  work_steps(&w, &on_device, target_steps);
  for (uint64_t round = 0; round < options.rounds; round++) {
    double with = 0;
    for (uint64_t turn = 0; turn < 2; turn++)
      if ((round + turn) % 2) alone[round] = work_steps(&w, NULL, target_steps);
      else with = work_steps(&w, &on_device, target_steps);
    ratio[round] = with / alone[round];
  }
  struct summary r = summarise(ratio, options.rounds), a = summarise(alone, options.rounds);
  if (SIMULATED)
    printf("overlap, device %d, %" PRIu64 " KiB: ran, SIMULATED\n", device, bytes >> 10);
  else
    printf("overlap, device %d, %" PRIu64 " KiB: a copy %.3f ms, the loader on the host %.3f, "
           "compute alone %.3f; step with the loader "
           "%.3f [%.3f, %.3f] of compute alone; target 1.03: %s%s\n",
        device, bytes >> 10, copy, fill, a.mid, r.mid, r.low, r.high, met(r.low <= 1.03),
        a.mid < fmax(copy, fill) ? " (compute is SHORTER than a copy: it tells nothing)" : "");
  CUDA(cudaGraphExecDestroy(w.exec));
  CUDA(cudaEventDestroy(w.begin));
  CUDA(cudaEventDestroy(w.end));
  CUDA(cudaStreamSynchronize(w.stream));
  CUDA(cudaFree(w.memory));
  load_close(&on_device);
  load_close(&on_host);
  bare_close(&bare);
}
static void test_overlap(void **state) {
  (void)state;
  begin_test();
  for (unsigned i = 1; i < 3; i++) run_overlap(options.device, i);
  end_test();
}

/* ---- the machine ---- */

static void print_file(const char *what, const char *form, const char *name) {
  char path[256], line[160] = "";
  snprintf(path, sizeof path, form, name);
  FILE *f = fopen(path, "re");
  if (!f) return;
  if (fgets(line, sizeof line, f)) printf("%s%.*s", what, (int)strcspn(line, "\n"), line);
  fclose(f);
}
static void print_version(const char *what, int version) { /* 12090: 12.9 */
  printf("%s %d.%d", what, version / 1000, version % 1000 / 10);
}
static void print_machine(void) {
  struct utsname u;
  int driver = 0, runtime = 0;
  uname(&u);
  CUDA(cudaDriverGetVersion(&driver));
  CUDA(cudaRuntimeGetVersion(&runtime));
  if (SIMULATED) printf("SIMULATED runtime: no GPU is tested, no time means anything\n");
  printf("commit %s, %s %s, %" PRIu64 " cores; ", options.commit, u.sysname, u.release,
      insitu__mem_cores());
  print_version("CUDA driver", driver);
  print_version(", runtime", runtime);
  print_file("; ", "%s", "/proc/driver/nvidia/version");
  printf("\n");
  for (int device = 0; device < devices; device++) {
    struct cudaDeviceProp p;
    char bus[32] = "";
    CUDA(cudaGetDeviceProperties(&p, device));
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    /* as /sys has it */
    for (char *c = bus; *c; c++) *c = (char)(*c >= 'A' && *c <= 'F' ? *c + 'a' - 'A' : *c);
    printf("device %d: %s, compute capability %d.%d, %.1f GB, %d copy engines, PCIe %s", device,
        p.name, p.major, p.minor, (double)p.totalGlobalMem * 1e-9, p.asyncEngineCount, bus);
    /* slower while idle */
    print_file(", link now ", "/sys/bus/pci/devices/%s/current_link_speed", bus);
    print_file(" x", "/sys/bus/pci/devices/%s/current_link_width", bus);
    print_file(", at most ", "/sys/bus/pci/devices/%s/max_link_speed", bus);
    print_file(" x", "/sys/bus/pci/devices/%s/max_link_width", bus);
    printf("\n");
  }
}

static int setup(void **state) {
  if (support_setup(state)) return -1;
  support_make(support_path("a"), &x);
  support_make(support_path("a"), &b);
  support_make(support_path("a"), &y);
  expect_epochs();
  return 0;
}
static int teardown(void **state) {
  for (int epoch = 0; epoch < EPOCHS; epoch++)
    for (int k = 0; k < BATCHES; k++)
      for (int i = 0; i < VARIABLES; i++) free(expected[epoch][k].bytes[i]);
  return support_teardown(state);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {{"epochs", test_epochs, NULL, NULL, NULL},
      {"two", test_two, NULL, NULL, NULL}, {"graphs", test_graphs, NULL, NULL, NULL},
      {"bandwidth", test_bandwidth, NULL, NULL, NULL}, {"overlap", test_overlap, NULL, NULL, NULL}};
  int n = sizeof tests / sizeof *tests;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--small")) {
      options.small = true;
    } else if (!strcmp(argv[i], "--commit")) {
      options.commit = value, i++;
    } else if (!strcmp(argv[i], "--only")) {
      options.only = value, i++;
    } else if (!strcmp(argv[i], "--device")) {
      options.device = atoi(value), i++;
    } else if (!strcmp(argv[i], "--rounds")) {
      options.rounds = strtoull(value, NULL, 10), i++;
    } else {
      fprintf(stderr, "%s: no such option; the first comment of tests/device/gpu.c tells them\n",
          argv[i]);
      return 2;
    }
  }
  if (options.small) {
    x.shape[1] = x.chunk[1] = y.shape[1] = y.chunk[1] = 150, b.shape[1] = 33, b.chunk[1] = 20,
    options.rounds = 3;
    for (int i = 0; i < 4; i++) nap_us[i] /= 100;
  }
  if (options.rounds < 1 || options.rounds > MOST_ROUNDS) options.rounds = 21;
  setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef CUDASIM
  cudasim_reset(2, 1);
#endif
  cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer || !devices) {
    printf("skipped: no CUDA device: %s\n0 passed, 0 failed, %d skipped\n",
        answer ? cudaGetErrorString(answer) : "none is there", n);
    return NO_DEVICE;
  }
  if (options.device < 0 || options.device >= devices) {
    fprintf(stderr, "--device %d: there are %d\n", options.device, devices);
    return 2;
  }
  print_machine();
  if (options.only) {
    int chosen = 0;
    while (chosen < n && strcmp(tests[chosen].name, options.only)) chosen++;
    if (chosen == n) fprintf(stderr, "--only %s: there is no such test\n", options.only);
    if (chosen == n) return 2;
    cmocka_set_test_filter(options.only);
    n = 1;
  }
  int failed = cmocka_run_group_tests(tests, setup, teardown);
  if (SIMULATED) printf("SIMULATED runtime: no GPU was tested\n");
  if (skipped) printf("%d passed, %d failed, %d skipped\n", n - failed - skipped, failed, skipped);
  else printf("%d passed, %d failed\n", n - failed, failed);
  return failed != 0;
}
