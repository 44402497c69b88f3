/* The simulated CUDA runtime itself: a correct consumer of double buffers leaves no findings, and
 * each defect is found. */
#include "cudasim/cudasim.c"
#include "cudasim/api_checks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <sys/wait.h>

enum { SEEDS = 8, BATCHES = 12, SLABS = 2, BYTES = 3 * 4096 + 100 };
#define OK(call) assert_int_equal(call, cudaSuccess)

static void no_findings(void) {
  if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
}
static void nothing_left(void) {
  cudasim_counts c = cudasim_count();
  assert_int_equal(
      c.streams + c.events + c.device_blocks + c.device_bytes + c.pinned_blocks + c.pinned_bytes,
      0);
}
static cudaStream_t new_stream(unsigned flags) {
  cudaStream_t s = NULL;
  OK(cudaStreamCreateWithFlags(&s, flags));
  return s;
}
static cudaEvent_t new_event(void) {
  cudaEvent_t e = NULL;
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return e;
}
static char *new_device(size_t bytes) {
  void *p = NULL;
  OK(cudaMalloc(&p, bytes));
  return p;
}
static char *new_pinned(size_t bytes) {
  void *p = NULL;
  OK(cudaHostAlloc(&p, bytes, cudaHostAllocPortable));
  return p;
}

/* ---- double buffers, right and wrong ---- */

typedef enum defect {
  RIGHT,
  NO_READY_WAIT,    /* the consumer does not wait for the copy */
  NO_RELEASED_WAIT, /* the copy does not wait for the consumer */
  RELEASED_EARLY,   /* the consumer's event is recorded before its kernel */
  EARLY_REFILL,     /* the host slab is filled anew before the copy from it is over */
} defect;

static unsigned char value_of(int batch, size_t i) {
  return (unsigned char)(batch * 37 + (int)(i % 251));
}
static size_t wrong_bytes(const unsigned char *got, int batch) {
  size_t n = 0;
  for (size_t i = 0; i < BYTES; i++) n += got[i] != value_of(batch, i);
  return n;
}
/* Batches through pinned slabs and device slots, by the protocol of the loader; batches that the
 * consumer saw wrong bytes of */
static int pipeline(defect d, cudasim_when when) {
  char *slab[SLABS], *slot[SLABS];
  cudaEvent_t copied[SLABS], released[SLABS];
  unsigned char(*seen)[BYTES] = calloc(BATCHES, BYTES);
  int wrong = 0;
  cudasim_delay(when, 3);
  cudaStream_t copies = new_stream(cudaStreamNonBlocking), own = new_stream(cudaStreamNonBlocking);
  for (int i = 0; i < SLABS; i++) {
    slab[i] = new_pinned(BYTES);
    slot[i] = new_device(BYTES);
    copied[i] = new_event();
    released[i] = new_event();
  }
  for (int n = 0; n < BATCHES; n++) {
    int k = n % SLABS;
    if (d != EARLY_REFILL && n % 2 && when != CUDASIM_NEVER)
      while (cudaEventQuery(copied[k]) == cudaErrorNotReady) {}
    else if (d != EARLY_REFILL) OK(cudaEventSynchronize(copied[k]));
    for (size_t i = 0; i < BYTES; i++) slab[k][i] = (char)value_of(n, i);
    if (d != NO_RELEASED_WAIT) OK(cudaStreamWaitEvent(copies, released[k], 0));
    OK(cudaMemcpyAsync(slot[k], slab[k], BYTES, cudaMemcpyHostToDevice, copies));
    OK(cudaEventRecord(copied[k], copies));
    if (d != NO_READY_WAIT) OK(cudaStreamWaitEvent(own, copied[k], 0));
    if (d == RELEASED_EARLY) OK(cudaEventRecord(released[k], own));
    OK(cudasim_save(own, slot[k], BYTES, seen[n]));
    if (d != RELEASED_EARLY) OK(cudaEventRecord(released[k], own));
  }
  OK(cudaStreamSynchronize(own));
  OK(cudaStreamSynchronize(copies));
  for (int n = 0; n < BATCHES; n++) wrong += wrong_bytes(seen[n], n) != 0;
  for (int i = 0; i < SLABS; i++) {
    OK(cudaFreeHost(slab[i]));
    OK(cudaFree(slot[i]));
    OK(cudaEventDestroy(copied[i]));
    OK(cudaEventDestroy(released[i]));
  }
  OK(cudaStreamDestroy(copies));
  OK(cudaStreamDestroy(own));
  free(seen);
  return wrong;
}
static void test_right(void **state) {
  static const cudasim_when whens[] = {CUDASIM_RANDOM, CUDASIM_AT_ONCE, CUDASIM_NEVER};
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++)
    for (size_t w = 0; w < 3; w++) {
      cudasim_reset(1, seed);
      cudasim_catch_faults(true);
      assert_int_equal(pipeline(RIGHT, whens[w]), 0);
      no_findings();
      nothing_left();
      cudasim_counts c = cudasim_count();
      assert_int_equal(c.copies, BATCHES);
      assert_int_equal(c.copy_bytes, BATCHES * BYTES);
      assert_int_equal(c.kernels, BATCHES);
      assert_int_equal(c.mallocs, SLABS);
      assert_int_equal(c.host_allocs, SLABS);
      assert_int_equal(c.peak_pinned_bytes, SLABS * BYTES);
      assert_int_equal(c.event_creates, 2 * SLABS);
      assert_int_equal(
          c.unpinned_copies + c.default_stream + c.timing_events + c.write_combined, 0);
      assert_int_equal(cudasim_calls("cudaMemcpyAsync"), BATCHES);
    }
}
/* Each at zero delay, where the bytes are all right, and at random ones. */
static void expect_defect(defect d, bool faults) {
  int wrong = 0;
  cudasim_reset(1, 1);
  cudasim_catch_faults(true);
  assert_int_equal(pipeline(d, CUDASIM_AT_ONCE), 0);
  cudasim_counts c = cudasim_count();
  assert_true(faults ? c.host_writes && !c.races : c.races && !c.host_writes);
  assert_non_null(cudasim_finding(0));
  assert_non_null(strstr(cudasim_finding(0), faults ? "pinned source in flight" : "race: "));
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    cudasim_reset(1, seed);
    cudasim_catch_faults(true);
    wrong += pipeline(d, CUDASIM_RANDOM);
    assert_true(faults ? cudasim_count().host_writes > 0 : cudasim_count().races > 0);
  }
  assert_true(wrong > 0);
}
static void test_no_ready_wait(void **state) {
  (void)state;
  expect_defect(NO_READY_WAIT, false);
}
static void test_no_released_wait(void **state) {
  (void)state;
  expect_defect(NO_RELEASED_WAIT, false);
}
static void test_released_early(void **state) {
  (void)state;
  expect_defect(RELEASED_EARLY, false);
}
static void test_early_refill(void **state) {
  (void)state;
  expect_defect(EARLY_REFILL, true);
}

/* ---- order ---- */

/* two writes of the same bytes, and no more between them */
static bool races(cudaStream_t first, cudaStream_t second) {
  char *p = new_device(64);
  uint64_t before = cudasim_count().races;
  OK(cudasim_fill(first, p, 64, 1));
  OK(cudasim_fill(second, p, 64, 2));
  cudasim_finish();
  if (before == cudasim_count().races) assert_int_equal(*(char *)cudasim_alias(p), 2);
  OK(cudaFree(p));
  return cudasim_count().races != before;
}
static void test_default_streams(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    cudasim_reset(2, seed);
    cudaStream_t blocking = new_stream(cudaStreamDefault), other = new_stream(cudaStreamDefault);
    cudaStream_t free_one = new_stream(cudaStreamNonBlocking);
    assert_false(races(NULL, blocking));
    assert_false(races(blocking, NULL));
    assert_false(races(cudaStreamLegacy, NULL));
    assert_false(races(cudaStreamPerThread, NULL));
    assert_false(races(NULL, cudaStreamPerThread));
    assert_false(races(free_one, free_one));
    assert_true(races(blocking, other));
    assert_true(races(NULL, free_one));
    assert_true(races(free_one, NULL));
    assert_true(races(free_one, cudaStreamPerThread));
    assert_int_equal(cudasim_count().default_stream, 0);
    cudaEvent_t e = new_event();
    OK(cudaEventRecord(e, NULL));
    OK(cudaStreamWaitEvent(cudaStreamPerThread, e, 0));
    OK(cudaStreamSynchronize(cudaStreamLegacy));
    assert_int_equal(cudasim_count().default_stream, 3);
    OK(cudaSetDevice(1)); /* each device has its own */
    assert_int_equal(cudaEventRecord(e, NULL), cudaErrorInvalidResourceHandle);
    char *pinned = new_pinned(64);
    uint64_t before = cudasim_count().races;
    OK(cudasim_fill(blocking, pinned, 64, 1)); /* of device 0 */
    OK(cudasim_fill(NULL, pinned, 64, 2));
    assert_int_equal(cudasim_count().races, before + 1);
  }
}
/* Reads race with writes only; other bytes do not; an event that is recorded anew stands for the
 * later point. */
static void test_ranges_and_events(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event();
  char *p = new_device(256), *pinned = new_pinned(256), out[256];
  OK(cudasim_save(a, p, 256, out));
  OK(cudasim_save(b, p, 256, out));
  OK(cudasim_fill(a, p + 0, 128, 1));
  assert_int_equal(cudasim_count().races, 1); /* with b's read of all */
  cudasim_finish();
  OK(cudasim_fill(a, p, 128, 1));
  OK(cudasim_fill(b, p + 128, 128, 2));
  assert_int_equal(cudasim_count().races, 1);
  OK(cudaEventRecord(e, a));
  OK(cudasim_fill(a, p + 64, 64, 3)); /* after the event */
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(cudasim_save(b, p, 64, out));
  assert_int_equal(cudasim_count().races, 1);
  OK(cudasim_save(b, p, 65, out));
  assert_int_equal(cudasim_count().races, 2);
  OK(cudaEventRecord(e, a));
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(cudasim_save(b, p, 128, out));
  assert_int_equal(cudasim_count().races, 2);
  /* what a stream has waited for goes on to those that wait for it */
  cudaStream_t c = new_stream(cudaStreamNonBlocking);
  OK(cudaEventRecord(e, b));
  OK(cudaStreamWaitEvent(c, e, 0));
  OK(cudasim_fill(c, p, 256, 9));
  assert_int_equal(cudasim_count().races, 2);
  /* pinned memory too, and a copy that stays on the device */
  OK(cudaMemcpyAsync(pinned, p, 256, cudaMemcpyDefault, c));
  OK(cudaMemcpyAsync(p, pinned, 256, cudaMemcpyDefault, a));
  /* what c wrote and read of p, and what it wrote to pinned */
  assert_int_equal(cudasim_count().races, 5);
  cudasim_finish();
  OK(cudasim_fill(a, p + 128, 128, 4));
  OK(cudaMemcpyAsync(p, p + 128, 128, cudaMemcpyDeviceToDevice, a));
  cudasim_finish();
  assert_int_equal(*(char *)cudasim_alias(p + 127), 4);
  assert_int_equal(cudasim_findings(), 5);
}
/* Operations stand for those of before only where that hides nothing. */
static void test_reads_before(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 3);
  cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking),
               c = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event();
  char *p = new_device(256), *q = new_device(256), out[256];
  OK(cudasim_save(a, p, 128, out));
  OK(cudasim_save(b, p, 128, out));
  OK(cudaEventRecord(e, b));
  OK(cudaStreamWaitEvent(c, e, 0));
  OK(cudasim_fill(c, p, 128, 1)); /* after b's read, not after a's */
  assert_int_equal(cudasim_count().races, 1);
  OK(cudasim_save(a, q, 256, out));
  OK(cudaEventRecord(e, a));
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(cudasim_fill(b, q, 64, 1));
  OK(cudasim_fill(c, q + 128, 128, 1)); /* a reads these too */
  assert_int_equal(cudasim_count().races, 2);
  /* a stream that takes the place of one whose work nobody has waited for */
  cudasim_finish();
  OK(cudasim_fill(a, p, 256, 1));
  OK(cudaStreamDestroy(a));
  OK(cudasim_fill(new_stream(cudaStreamNonBlocking), p, 256, 2));
  assert_int_equal(cudasim_count().races, 3);
}
static void test_delays(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  cudaStream_t s = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event();
  char *p = new_device(16);
  OK(cudaEventQuery(e)); /* was never recorded */
  cudasim_delay(CUDASIM_NEVER, 3);
  OK(cudasim_fill(s, p, 16, 7));
  OK(cudaEventRecord(e, s));
  for (int i = 0; i < 100; i++) assert_int_equal(cudaEventQuery(e), cudaErrorNotReady);
  assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
  assert_int_equal(cudaGetLastError(), cudaSuccess);
  assert_int_equal(cudasim_count().pending, 2);
  cudasim_step(1);
  assert_int_equal(cudasim_count().pending, 1);
  assert_int_equal(*(char *)cudasim_alias(p), 7);
  OK(cudaEventSynchronize(e));
  OK(cudaEventQuery(e));
  cudasim_delay(CUDASIM_AT_ONCE, 0);
  OK(cudaEventRecord(e, s));
  assert_int_equal(cudasim_count().pending, 0);
  cudasim_delay(CUDASIM_RANDOM, 1);
  OK(cudaEventRecord(e, s));
  int polls = 0;
  while (cudaEventQuery(e) == cudaErrorNotReady) polls++;
  assert_in_range(polls, 0, 1000);
  /* streams and events that are destroyed with work pending: it is done all the same */
  cudasim_delay(CUDASIM_NEVER, 3);
  OK(cudasim_fill(s, p, 16, 8));
  OK(cudaEventRecord(e, s));
  OK(cudaEventDestroy(e));
  OK(cudaStreamDestroy(s));
  cudasim_finish();
  assert_int_equal(*(char *)cudasim_alias(p), 8);
  OK(cudaFree(p));
  no_findings();
  nothing_left();
}

/* ---- memory ---- */

static void test_host_touches(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 3);
  cudasim_catch_faults(true);
  cudaStream_t s = new_stream(cudaStreamNonBlocking);
  size_t page = sim_page();
  volatile char *device = new_device(16), *pinned = new_pinned(2 * page);
  char read = device[3];
  (void)read;
  assert_int_equal(cudasim_count().host_touches, 1);
  assert_non_null(strstr(cudasim_finding(0), "the host touched 3 of block 1 of device 0"));
  pinned[0] = 1; /* nothing in flight */
  assert_int_equal(cudasim_findings(), 1);
  pinned[2 * page] = 1;
  assert_int_equal(cudasim_count().host_touches, 2);
  assert_non_null(strstr(cudasim_finding(1), "past its end"));
  OK(cudaMemcpyAsync((char *)pinned, (char *)device, 16, cudaMemcpyDeviceToHost, s));
  pinned[page] = 1; /* another page */
  assert_int_equal(cudasim_findings(), 2);
  pinned[16] = 1; /* another byte of the page */
  assert_int_equal(cudasim_findings(), 2);
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpyAsync((char *)pinned, (char *)device, 16, cudaMemcpyDeviceToHost, s));
  read = pinned[15];
  assert_int_equal(cudasim_count().host_touches, 3);
  assert_non_null(strstr(cudasim_finding(2), "a destination in flight"));
  OK(cudaStreamSynchronize(s));
  pinned[15] = 2;
  OK(cudaMemcpyAsync((char *)device, (char *)pinned, 16, cudaMemcpyHostToDevice, s));
  read = pinned[15]; /* a source may be read */
  assert_int_equal(cudasim_findings(), 3);
  pinned[15] = 3;
  assert_int_equal(cudasim_count().host_writes, 1);
  pinned[15] = 4; /* the page is open now, until the next operation on that memory */
  assert_int_equal(cudasim_count().host_writes, 1);
  OK(cudaMemcpyAsync((char *)device, (char *)pinned, 16, cudaMemcpyHostToDevice, s));
  pinned[15] = 5;
  assert_int_equal(cudasim_count().host_writes, 2);
  OK(cudaStreamSynchronize(s));
  OK(cudaFree((char *)device));
  OK(cudaFreeHost((char *)pinned));
  pinned[0] = 4;
  assert_int_equal(cudasim_count().host_touches, 4);
  assert_non_null(strstr(cudasim_finding(5), "freed"));
  assert_int_equal(cudasim_findings(), 6);
  cudasim_catch_faults(false);
}
/* What is not caught kills, as on a machine with a device. */
static void test_host_touch_kills(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  volatile char *device = new_device(16);
  pid_t child = fork();
  if (!child) {
    signal(SIGSEGV, SIG_DFL);
    device[0] = 1;
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}
static void test_limits(void **state) {
  size_t free_bytes = 0, total = 0;
  void *p = NULL, *q = NULL;
  (void)state;
  cudasim_reset(2, 1);
  cudasim_memory(10000, 5000);
  OK(cudaMemGetInfo(&free_bytes, &total));
  assert_int_equal(total, 10000);
  assert_int_equal(free_bytes, 10000);
  OK(cudaMalloc(&p, 9000));
  assert_int_equal(cudaMalloc(&q, 1001), cudaErrorMemoryAllocation);
  assert_null(q);
  assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudaMemGetInfo(&free_bytes, &total));
  assert_int_equal(free_bytes, 1000);
  OK(cudaSetDevice(1)); /* another device has its own */
  OK(cudaMalloc(&q, 10000));
  assert_int_equal(cudasim_count().bytes_of[1], 10000);
  assert_int_equal(cudasim_count().device_bytes, 19000);
  OK(cudaFree(p));
  OK(cudaFree(q));
  OK(cudaFree(NULL));
  OK(cudaFreeHost(NULL));
  OK(cudaHostAlloc(&p, 5000, cudaHostAllocPortable | cudaHostAllocWriteCombined));
  assert_int_equal(cudaHostAlloc(&q, 1, cudaHostAllocPortable), cudaErrorMemoryAllocation);
  assert_int_equal(cudasim_count().write_combined, 1);
  assert_int_equal(cudasim_count().pinned_bytes, 5000); /* a leak shows */
  assert_int_equal(cudasim_count().pinned_blocks, 1);
  OK(cudaFreeHost(p));
  nothing_left();
  no_findings();
  assert_int_equal(cudasim_count().frees, 3);
  assert_int_equal(cudasim_count().peak_device_bytes, 19000);
}
static void test_use_after_free(void **state) {
  char out[64];
  (void)state;
  for (int when = CUDASIM_RANDOM; when <= CUDASIM_NEVER; when++) {
    cudasim_reset(1, 1);
    cudasim_delay((cudasim_when)when, 3);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    char *device = new_device(64), *pinned = new_pinned(64);
    OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice, s));
    OK(cudaFreeHost(pinned)); /* nobody knows whether it is over */
    assert_int_equal(cudasim_count().uses_after_free, 1);
    OK(cudaFree(device));
    assert_int_equal(cudasim_count().uses_after_free, 2);
    assert_null(cudasim_alias(device + 1));
    assert_int_equal(cudasim_where(device), CUDASIM_NOWHERE);
    assert_int_equal(cudaFree(device), cudaErrorInvalidValue);
    assert_int_equal(cudasim_count().uses_after_free, 3);
    assert_int_equal(
        cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, s), cudaErrorInvalidValue);
    assert_int_equal(cudasim_count().uses_after_free, 4);
    assert_int_equal(cudasim_save(s, device, 64, out), cudaErrorIllegalAddress);
    assert_int_equal(cudasim_count().uses_after_free, 5);
    cudasim_finish();
    assert_int_equal(cudasim_findings(), 5);
  }
}
static void test_misuse(void **state) {
  char host[64] = {0}, out[64];
  (void)state;
  cudasim_reset(2, 1);
  cudaStream_t s = new_stream(cudaStreamNonBlocking), gone = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event(), old = new_event();
  char *device = new_device(64), *pinned = new_pinned(64);
  OK(cudaStreamDestroy(gone));
  OK(cudaEventDestroy(old));
  new_stream(cudaStreamNonBlocking); /* may take the place, not the handle */
  new_event();
  uint64_t n = 0;
#define BAD(call, error)                                                                           \
  assert_int_equal(call, error), assert_int_equal(cudasim_count().misuses, ++n)
  BAD(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, gone), cudaErrorInvalidResourceHandle);
  BAD(cudaStreamSynchronize(gone), cudaErrorInvalidResourceHandle);
  BAD(cudaStreamDestroy(gone), cudaErrorInvalidResourceHandle);
  BAD(cudaEventRecord(old, s), cudaErrorInvalidResourceHandle);
  BAD(cudaEventQuery(old), cudaErrorInvalidResourceHandle);
  BAD(cudaEventSynchronize(old), cudaErrorInvalidResourceHandle);
  BAD(cudaStreamWaitEvent(s, old, 0), cudaErrorInvalidResourceHandle);
  BAD(cudaEventDestroy(old), cudaErrorInvalidResourceHandle);
  BAD(cudaStreamWaitEvent((cudaStream_t)e, e, 0), cudaErrorInvalidResourceHandle);
  BAD(cudaMemcpyAsync(device, pinned, 65, cudaMemcpyDefault, s), cudaErrorInvalidValue);
  BAD(cudaMemcpyAsync(device + 1, pinned, 64, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
  BAD(cudaMemcpyAsync(pinned, host, 64, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
  BAD(cudaMemcpyAsync(pinned, device, 64, cudaMemcpyHostToDevice, s), cudaErrorInvalidValue);
  BAD(cudaFree(pinned), cudaErrorInvalidValue);
  BAD(cudaFreeHost(device), cudaErrorInvalidValue);
  BAD(cudaFree(device + 1), cudaErrorInvalidValue);
  BAD(cudaFreeHost(host), cudaErrorInvalidValue);
  BAD(cudasim_save(s, host, 64, out), cudaErrorIllegalAddress);
  BAD(cudasim_save(s, device, 65, out), cudaErrorIllegalAddress);
  OK(cudaSetDevice(1));
  cudaStream_t elsewhere = new_stream(cudaStreamNonBlocking);
  BAD(cudasim_save(elsewhere, device, 64, out), cudaErrorIllegalAddress);
  BAD(cudaEventRecord(e, elsewhere), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(e, s)); /* whatever the current device */
  OK(cudaStreamWaitEvent(elsewhere, e, 0));
  OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice, s));
  assert_int_equal(cudasim_count().foreign_copies, 0);
  OK(cudaStreamSynchronize(s));
  /* allowed, and counted */
  OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyHostToDevice, elsewhere));
  assert_int_equal(cudasim_count().foreign_copies, 1);
  assert_int_equal(cudasim_where(device + 63), 0);
  assert_int_equal(cudasim_where(new_device(1)), 1);
  assert_int_equal(cudasim_where(pinned), CUDASIM_PINNED);
  assert_int_equal(cudasim_where(host), CUDASIM_NOWHERE);
  cudaStream_t none = NULL;
  assert_int_equal((uintptr_t)cudaStreamLegacy, 1);
  assert_int_equal((uintptr_t)cudaStreamPerThread, 2);
  assert_int_equal(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
  assert_int_equal(cudaStreamCreateWithFlags(&none, 4), cudaErrorInvalidValue);
  assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
  assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
  assert_int_equal(cudasim_findings(), n);
  cudasim_reset(1, 1);
  n = 0;
  new_event();
  BAD(cudaEventQuery(e), cudaErrorInvalidResourceHandle); /* from before */
}
static void test_unpinned(void **state) {
  char host[64], back[64] = {0};
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 3);
  cudaStream_t s = new_stream(cudaStreamNonBlocking);
  char *device = new_device(64), *pinned = new_pinned(64);
  memset(host, 5, 64);
  OK(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, s));
  memset(host, 6, 64); /* it was taken at the call */
  assert_int_equal(cudasim_count().unpinned_copies, 1);
  OK(cudaMemcpyAsync(back, device, 64, cudaMemcpyDeviceToHost, s)); /* waits */
  assert_int_equal(cudasim_count().unpinned_copies, 2);
  for (int i = 0; i < 64; i++) assert_int_equal(back[i], 5);
  OK(cudaMemcpyAsync(pinned, host, 64, cudaMemcpyHostToHost, s)); /* so does this */
  assert_int_equal(cudasim_count().unpinned_copies, 3);
  for (int i = 0; i < 64; i++) assert_int_equal(pinned[i], 6);
  OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, s));
  assert_int_equal(cudasim_count().unpinned_copies, 3);
  no_findings();
}
/* A source that a sanitizer forbids the program while it is in flight is copied all the same. */
static void test_poisoned_source(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 3);
  cudaStream_t s = new_stream(cudaStreamNonBlocking);
  char *device = new_device(4096), *pinned = new_pinned(4096), *plain = malloc(4096);
  memset(pinned, 3, 4096);
  memset(plain, 4, 4096);
#ifdef __SANITIZE_ADDRESS__
  ASAN_POISON_MEMORY_REGION(pinned, 4096);
  ASAN_POISON_MEMORY_REGION(plain, 4096);
#endif
  OK(cudaMemcpyAsync(device, pinned, 2048, cudaMemcpyHostToDevice, s));
  OK(cudaMemcpyAsync(device + 2048, plain, 2048, cudaMemcpyHostToDevice, s));
  OK(cudaStreamSynchronize(s));
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(plain, 4096);
#endif
  assert_int_equal(((char *)cudasim_alias(device))[2047], 3);
  assert_int_equal(((char *)cudasim_alias(device))[2048], 4);
  free(plain);
}

/* ---- errors ---- */

static void test_no_device(void **state) {
  int n = 77;
  void *p = NULL;
  (void)state;
  for (int driver = 0; driver < 2; driver++) {
    cudaError_t error = driver ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
    cudasim_reset(driver, 1);
    if (driver) cudasim_driver(error);
    assert_int_equal(cudaGetDeviceCount(&n), error);
    assert_int_equal(n, 77);
    assert_int_equal(cudaMalloc(&p, 1), error);
    assert_int_equal(cudaHostAlloc(&p, 1, 0), error);
    assert_int_equal(cudaSetDevice(0), error);
    assert_int_equal(cudaGetLastError(), error);
    assert_string_equal(
        cudaGetErrorName(error), driver ? "cudaErrorInsufficientDriver" : "cudaErrorNoDevice");
    assert_non_null(cudaGetErrorString(error));
    no_findings();
  }
  assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
  cudasim_reset(3, 1);
  OK(cudaGetDeviceCount(&n));
  assert_int_equal(n, 3);
  OK(cudaSetDevice(2));
  OK(cudaGetDevice(&n));
  assert_int_equal(n, 2);
}
/* Every call of a small program fails once: what it then has to give back it can give back, and
 * nothing else fails. */
static void test_injected(void **state) {
  uint64_t n = 0;
  (void)state;
  for (bool more = true; more;) {
    int failed = 0;
    void *device = NULL, *pinned = NULL;
    cudaStream_t s = NULL;
    cudaEvent_t e = NULL;
    cudasim_reset(1, 1);
    cudasim_fail(++n, cudaErrorUnknown);
    failed += cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaErrorUnknown;
    failed += cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaErrorUnknown;
    failed += cudaMalloc(&device, 64) == cudaErrorUnknown;
    failed += cudaHostAlloc(&pinned, 64, 0) == cudaErrorUnknown;
    if (device && pinned && s)
      failed += cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, s) == cudaErrorUnknown;
    if (e && s) failed += cudaEventRecord(e, s) == cudaErrorUnknown;
    if (e && s) failed += cudaStreamWaitEvent(s, e, 0) == cudaErrorUnknown;
    if (e) failed += cudaEventQuery(e) == cudaErrorUnknown;
    if (e) failed += cudaEventSynchronize(e) == cudaErrorUnknown;
    if (s) failed += cudaStreamSynchronize(s) == cudaErrorUnknown;
    failed += cudaFree(device) == cudaErrorUnknown;
    failed += cudaFreeHost(pinned) == cudaErrorUnknown;
    if (e) failed += cudaEventDestroy(e) == cudaErrorUnknown;
    if (s) failed += cudaStreamDestroy(s) == cudaErrorUnknown;
    more = cudasim_count().injected != 0;
    assert_int_equal(failed, more);
    assert_int_equal(cudaGetLastError(), failed ? cudaErrorUnknown : cudaErrorNotReady * (n != 15));
    no_findings();
    nothing_left();
  }
  assert_int_equal(n, 15);
}
static void test_sticky(void **state) {
  void *p = NULL;
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 3);
  cudaStream_t s = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event();
  char *device = new_device(64), *pinned = new_pinned(64), *alias = cudasim_alias(device);
  memset(pinned, 1, 64);
  OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, s));
  OK(cudasim_save(s, device, 64, alias)); /* never runs */
  cudasim_fail(1, cudaErrorIllegalAddress);
  assert_int_equal(cudaEventRecord(e, s), cudaErrorIllegalAddress);
  assert_int_equal(cudasim_count().pending, 0);
  assert_int_equal((unsigned char)alias[0], 0xa5);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(cudaMalloc(&p, 1), cudaErrorIllegalAddress);
    assert_int_equal(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
  }
  assert_int_equal(cudasim_save(s, device, 64, alias), cudaErrorIllegalAddress);
  pinned[0] = 2; /* nothing is in flight any more */
  assert_int_equal(cudaEventDestroy(e), cudaErrorIllegalAddress);
  assert_int_equal(cudaStreamDestroy(s), cudaErrorIllegalAddress);
  assert_int_equal(cudaFree(device), cudaErrorIllegalAddress);
  assert_int_equal(cudaFreeHost(pinned), cudaErrorIllegalAddress);
  no_findings();
  nothing_left();
  assert_int_equal(cudasim_count().injected, 1);
}
static void test_captures(void **state) {
  void *p = NULL;
  char host[64] = {0};
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)state;
  cudasim_reset(1, 1);
  cudaStream_t s = new_stream(cudaStreamNonBlocking), blocking = new_stream(cudaStreamDefault);
  cudaEvent_t e = new_event();
  char *device = new_device(64), *pinned = new_pinned(64);
  cudasim_capture(true);
  uint64_t n = 0;
#define UNSAFE(call, error)                                                                        \
  assert_int_equal(call, error), assert_int_equal(cudasim_count().captures, ++n)
  UNSAFE(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaHostAlloc(&p, 64, 0), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaFree(device), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaFreeHost(pinned), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaEventQuery(e), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaEventSynchronize(e), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
  UNSAFE(
      cudaMemcpyAsync(device, host, 64, cudaMemcpyDefault, s), cudaErrorStreamCaptureUnsupported);
  OK(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, s)); /* these are safe */
  OK(cudaEventRecord(e, s));
  OK(cudaStreamWaitEvent(blocking, e, 0));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, cudaStreamCaptureModeGlobal);
  OK(cudaEventSynchronize(e));
  OK(cudaMalloc(&p, 64));
  OK(cudaFree(p));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, cudaStreamCaptureModeRelaxed);
  cudasim_capture(false);
  OK(cudaEventQuery(e));
  cudasim_capture_stream(blocking, true);
  UNSAFE(cudaEventRecord(e, blocking), cudaErrorStreamCaptureIsolation);
  UNSAFE(cudaStreamWaitEvent(blocking, e, 0), cudaErrorStreamCaptureIsolation);
  UNSAFE(cudaMemcpyAsync(device, pinned, 64, cudaMemcpyDefault, blocking),
      cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaStreamSynchronize(blocking), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudasim_fill(blocking, device, 64, 1), cudaErrorStreamCaptureUnsupported);
  UNSAFE(cudaEventRecord(e, NULL), cudaErrorStreamCaptureImplicit);
  OK(cudaEventRecord(e, s));
  cudasim_capture_stream(blocking, false);
  OK(cudaEventRecord(e, blocking));
  assert_int_equal(cudasim_findings(), n);
}

/* ---- threads ---- */

struct shared {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int filled, taken; /* batches */
  char *slab[SLABS], *slot[SLABS];
  cudaEvent_t copied[SLABS], released[SLABS];
  cudaStream_t copies, consumer;
  unsigned char seen[BATCHES][BYTES];
};
/* what it polls orders the other thread's refill, through the program's own lock */
static void *uploads(void *arg) {
  struct shared *sh = arg;
  OK(cudaSetDevice(1));
  for (int n = 0; n < BATCHES; n++) {
    int k = n % SLABS;
    pthread_mutex_lock(&sh->lock);
    while (sh->filled <= n) pthread_cond_wait(&sh->changed, &sh->lock);
    pthread_mutex_unlock(&sh->lock);
    OK(cudaStreamWaitEvent(sh->copies, sh->released[k], 0));
    OK(cudaMemcpyAsync(sh->slot[k], sh->slab[k], BYTES, cudaMemcpyHostToDevice, sh->copies));
    OK(cudaEventRecord(sh->copied[k], sh->copies));
    OK(cudaStreamWaitEvent(sh->consumer, sh->copied[k], 0));
    OK(cudasim_save(sh->consumer, sh->slot[k], BYTES, sh->seen[n]));
    OK(cudaEventRecord(sh->released[k], sh->consumer));
    while (cudaEventQuery(sh->copied[k]) == cudaErrorNotReady) {}
    pthread_mutex_lock(&sh->lock);
    sh->taken++;
    pthread_cond_broadcast(&sh->changed);
    pthread_mutex_unlock(&sh->lock);
  }
  return NULL;
}
/* A captured copy and fill run when they are launched, and race like others; what is unsafe or no
 * copy spoils a capture. */
static void test_graphs(void **state) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t exec = NULL;
  void *p = NULL;
  unsigned char seen[64];
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_NEVER, 0);
  cudaStream_t s = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
  cudaEvent_t e = new_event();
  char *from = new_device(64), *to = new_device(64);
  OK(cudaMemsetAsync(from, 7, 64, s));
  OK(cudaMemsetAsync(to, 1, 64, s));
  OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  OK(cudaMemcpyAsync(to, from, 64, cudaMemcpyDeviceToDevice, s));
  OK(cudaMemsetAsync(from, 9, 64, s));
  assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaErrorInvalidValue);
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudasim_save(s, to, 64, seen));
  OK(cudaStreamSynchronize(s));
  assert_int_equal(seen[63], 1);
  for (int i = 0; i < 2; i++) {
    OK(cudaGraphLaunch(exec, s));
    OK(cudasim_save(s, to, 64, seen));
    OK(cudaStreamSynchronize(s));
    assert_int_equal(seen[63], i ? 9 : 7);
  }
  no_findings();
  OK(cudasim_fill(other, from, 64, 3));
  OK(cudaGraphLaunch(exec, s));
  assert_true(cudasim_count().races > 0);
  assert_int_equal(cudasim_findings(), cudasim_count().races);
  OK(cudaGraphExecDestroy(exec));
  cudasim_finish();
  for (int i = 0; i < 4; i++) { /* 3: in relaxed mode, which forbids others nothing */
    uint64_t captures = cudasim_count().captures;
    OK(cudaStreamBeginCapture(
        s, i == 3 ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal));
    if (i == 0) assert_int_equal(cudaEventRecord(e, s), cudaErrorStreamCaptureIsolation);
    if (i == 1) assert_int_equal(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported);
    if (i == 2)
      assert_int_equal(cudaLaunchHostFunc(s, free, NULL), cudaErrorStreamCaptureUnsupported);
    if (i == 3) OK(cudaEventQuery(e));
    assert_int_equal(cudasim_count().captures, captures + (i < 3));
    assert_int_equal(
        cudaStreamEndCapture(s, &graph), i < 3 ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    assert_true((graph != NULL) == (i == 3));
  }
  assert_int_equal(cudasim_count().graphs, 1);
  OK(cudaGraphDestroy(graph));
  assert_int_equal(cudasim_count().graphs, 0);
  assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorInvalidValue);
}
static void count_up(void *n) {
  ++*(int *)n;
}
/* Fills, host functions and times: all in their stream's order */
static void test_rest(void **state) {
  int n = 0, version = -1;
  float ms = -1;
  char text[16];
  struct cudaDeviceProp properties;
  cudaEvent_t begin, end;
  (void)state;
  cudasim_reset(2, 1);
  cudasim_delay(CUDASIM_NEVER, 0);
  cudaStream_t s = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
  char *device = new_device(64), *pinned = new_pinned(64);
  OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
  OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  OK(cudaEventRecord(begin, s));
  OK(cudaMemsetAsync(device, 5, 64, s));
  OK(cudaLaunchHostFunc(s, count_up, &n));
  OK(cudaMemcpyAsync(pinned, device, 64, cudaMemcpyDeviceToHost, s));
  OK(cudaEventRecord(end, s));
  assert_int_equal(n, 0);
  assert_int_equal(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  OK(cudaStreamSynchronize(s));
  assert_int_equal(n, 1);
  assert_int_equal(pinned[63], 5);
  OK(cudaEventElapsedTime(&ms, begin, end));
  assert_true(ms > 0 && ms < 1);
  assert_int_equal(cudaEventElapsedTime(&ms, begin, new_event()), cudaErrorInvalidResourceHandle);
  no_findings();
  OK(cudaMemsetAsync(device, 6, 64, s));
  OK(cudaMemsetAsync(device, 7, 64, other));
  assert_int_equal(cudasim_count().races, 1);
  assert_int_equal(cudaMemsetAsync(text, 7, 1, s), cudaErrorInvalidValue);
  assert_int_equal(cudasim_count().misuses, 1);
  OK(cudaRuntimeGetVersion(&version));
  assert_int_equal(version, 0); /* no real one's */
  OK(cudaGetDeviceProperties(&properties, 1));
  assert_non_null(strstr(properties.name, "SIMULATED"));
  assert_int_equal(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
  OK(cudaDeviceGetPCIBusId(text, sizeof text, 1));
  assert_string_equal(text, "ffff:ff:01.0");
}
static void test_threads(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct shared *sh = calloc(1, sizeof *sh);
    pthread_t thread;
    int device = 77;
    cudasim_reset(2, seed);
    cudasim_catch_faults(true);
    pthread_mutex_init(&sh->lock, NULL);
    pthread_cond_init(&sh->changed, NULL);
    OK(cudaSetDevice(1));
    sh->copies = new_stream(cudaStreamNonBlocking);
    sh->consumer = new_stream(cudaStreamNonBlocking);
    for (int k = 0; k < SLABS; k++) {
      sh->slab[k] = new_pinned(BYTES);
      sh->slot[k] = new_device(BYTES);
      sh->copied[k] = new_event();
      sh->released[k] = new_event();
    }
    OK(cudaSetDevice(0));
    pthread_create(&thread, NULL, uploads, sh);
    for (int n = 0; n < BATCHES; n++) {
      pthread_mutex_lock(&sh->lock);
      while (sh->taken < n - SLABS + 1) pthread_cond_wait(&sh->changed, &sh->lock);
      pthread_mutex_unlock(&sh->lock);
      for (size_t i = 0; i < BYTES; i++) sh->slab[n % SLABS][i] = (char)value_of(n, i);
      pthread_mutex_lock(&sh->lock);
      sh->filled++;
      pthread_cond_broadcast(&sh->changed);
      pthread_mutex_unlock(&sh->lock);
    }
    pthread_join(thread, NULL);
    OK(cudaGetLastError()); /* the other thread's are its own, and so is its device */
    OK(cudaGetDevice(&device));
    assert_int_equal(device, 0);
    OK(cudaStreamSynchronize(sh->consumer));
    for (int n = 0; n < BATCHES; n++) assert_int_equal(wrong_bytes(sh->seen[n], n), 0);
    no_findings();
    pthread_mutex_destroy(&sh->lock);
    pthread_cond_destroy(&sh->changed);
    free(sh);
  }
}
static void *fills_own(void *p) {
  OK(cudasim_fill(cudaStreamPerThread, p, 64, 1));
  return NULL;
}
/* that stands still: what does not come behind a copy runs all the same */
static void test_bus(void **state) {
  char *pinned;
  void *p, *q;
  cudaStream_t copies, kernels;
  cudaEvent_t before, after;
  (void)state;
  cudasim_reset(1, 1);
  cudasim_delay(CUDASIM_AT_ONCE, 0);
  cudasim_bus(true);
  OK(cudaHostAlloc((void **)&pinned, 64, cudaHostAllocPortable));
  memset(pinned, 7, 64);
  OK(cudaMalloc(&p, 64));
  OK(cudaMalloc(&q, 64));
  OK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&after, cudaEventDisableTiming));
  OK(cudaEventRecord(before, copies));
  OK(cudaMemcpyAsync(p, pinned, 64, cudaMemcpyHostToDevice, copies));
  OK(cudaEventRecord(after, copies));
  OK(cudasim_fill(kernels, q, 64, 5));
  OK(cudaEventQuery(before));
  assert_int_equal(cudaEventQuery(after), cudaErrorNotReady);
  (void)cudaGetLastError();
  assert_int_equal(*(char *)cudasim_alias(q), 5);
  OK(cudaStreamSynchronize(copies)); /* who waits for a copy has it */
  OK(cudaEventQuery(after));
  assert_int_equal(*(char *)cudasim_alias(p), 7);
  OK(cudaMemcpyAsync(q, pinned, 64, cudaMemcpyHostToDevice, copies));
  assert_int_equal(*(char *)cudasim_alias(q), 5);
  cudasim_bus(false);
  cudasim_finish();
  assert_int_equal(*(char *)cudasim_alias(q), 7);
  cudasim_reset(1, 1);
}
static void test_stream_per_thread(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  pthread_t thread;
  char *p = new_device(64);
  fills_own(p);
  fills_own(p);
  assert_int_equal(cudasim_count().races, 0);
  pthread_create(&thread, NULL, fills_own, p);
  pthread_join(thread, NULL);
  assert_int_equal(cudasim_count().races, 1);
}
static void *writes_pages(void *at) {
  size_t page = sim_page();
  for (size_t i = 0; i < 8; i++) ((volatile char *)at)[i * page] = 1;
  return NULL;
}
/* Threads that write to sources in flight while another one learns that they are over: nobody
 * hangs. */
static void test_faults_of_threads(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    pthread_t threads[4];
    cudasim_reset(1, seed);
    cudasim_catch_faults(true);
    cudaStream_t s = new_stream(cudaStreamNonBlocking);
    size_t bytes = 8 * sim_page();
    char *device = new_device(bytes), *pinned = new_pinned(bytes);
    OK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, s));
    for (size_t t = 0; t < 4; t++) pthread_create(&threads[t], NULL, writes_pages, pinned + t);
    pthread_join(threads[0], NULL); /* this one finds the first copy in flight */
    for (int i = 0; i < 20; i++) {
      OK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, s));
      OK(cudaStreamSynchronize(s));
    }
    for (size_t t = 1; t < 4; t++) pthread_join(threads[t], NULL);
    assert_true(cudasim_count().host_writes > 0);
    assert_int_equal(cudasim_findings(), cudasim_count().host_writes);
    for (size_t i = 0; i < 8 * 4; i++) assert_int_equal(pinned[i / 4 * sim_page() + i % 4], 1);
  }
}
static void test_fork(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  new_stream(cudaStreamNonBlocking);
  pid_t child = fork();
  if (!child) {
    int n;
    _exit(cudaGetDeviceCount(&n) == cudaErrorInitializationError ? 17 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 17);
}
/* What makes a device's context: not what only asks. */
static void test_contexts(void **state) {
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  unsigned flags;
  int n, active;
  (void)state;
  cudasim_reset(3, 1);
  OK(cudaGetDeviceCount(&n));
  OK(cudaGetDevice(&n));
  OK(cudaGetLastError());
  assert_null(cudasim_context(0));
  assert_int_equal(cudaSetDevice(3), cudaErrorInvalidDevice);
  OK(cudaSetDevice(1));
  assert_string_equal(cudasim_context(1), "cudaSetDevice");
  assert_null(cudasim_context(0));
  cudaEvent_t e = new_event();
  OK(cudaEventRecord(e, new_stream(cudaStreamNonBlocking)));
  /* a thread is on device 0 from the start, as this one after a reset */
  for (int i = 0; i < 2; i++) {
    OK(cudasim_context_state(i, &flags, &active));
    assert_int_equal(active, i);
  }
  assert_int_equal(cudasim_context_state(-1, &flags, &active), cudaErrorInvalidDevice);
  cudasim_reset(2, 1);
  assert_null(cudasim_context(1));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_string_equal(cudasim_context(0), "cudaThreadExchangeStreamCaptureMode");
  assert_int_equal(mode, cudaStreamCaptureModeGlobal);
  OK(cudasim_thread(&mode));
  assert_int_equal(mode, cudaStreamCaptureModeRelaxed);
  mode = cudaStreamCaptureModeGlobal;
  cudasim_fail(1, cudaErrorMemoryAllocation); /* it is exchanged all the same */
  assert_int_equal(cudaThreadExchangeStreamCaptureMode(&mode), cudaErrorMemoryAllocation);
  assert_int_equal(cudasim_thread(&mode), cudaErrorMemoryAllocation);
  assert_int_equal(mode, cudaStreamCaptureModeGlobal);
  assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudasim_thread(&mode));
  OK(cudaSetDevice(1));
  /* the first one */
  assert_string_equal(cudasim_context(0), "cudaThreadExchangeStreamCaptureMode");
}
/* Streams that come and go use slots again, once the host knows that they are idle. */
static void test_many_streams(void **state) {
  (void)state;
  cudasim_reset(1, 1);
  char *p = new_device(64);
  for (int i = 0; i < 1000; i++) {
    cudaStream_t s = new_stream(cudaStreamNonBlocking), other = new_stream(cudaStreamNonBlocking);
    OK(cudasim_fill(s, p, 64, (unsigned char)i));
    if (i % 100 == 99) OK(cudasim_fill(other, p, 64, (unsigned char)i));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamSynchronize(other));
    OK(cudaStreamDestroy(s));
    OK(cudaStreamDestroy(other));
  }
  assert_int_equal(cudasim_count().races, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_right),
      cmocka_unit_test(test_no_ready_wait), cmocka_unit_test(test_no_released_wait),
      cmocka_unit_test(test_released_early), cmocka_unit_test(test_early_refill),
      cmocka_unit_test(test_default_streams), cmocka_unit_test(test_ranges_and_events),
      cmocka_unit_test(test_reads_before), cmocka_unit_test(test_delays),
      cmocka_unit_test(test_host_touches), cmocka_unit_test(test_host_touch_kills),
      cmocka_unit_test(test_limits), cmocka_unit_test(test_use_after_free),
      cmocka_unit_test(test_misuse), cmocka_unit_test(test_unpinned),
      cmocka_unit_test(test_poisoned_source), cmocka_unit_test(test_no_device),
      cmocka_unit_test(test_injected), cmocka_unit_test(test_sticky),
      cmocka_unit_test(test_captures), cmocka_unit_test(test_graphs), cmocka_unit_test(test_rest),
      cmocka_unit_test(test_threads), cmocka_unit_test(test_stream_per_thread),
      cmocka_unit_test(test_bus), cmocka_unit_test(test_faults_of_threads),
      cmocka_unit_test(test_fork), cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_many_streams)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
