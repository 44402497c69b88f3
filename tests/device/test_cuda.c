/* Uploads and streams over the simulated CUDA runtime (tests/cudasim): whoever trains sees every
 * byte of every batch in whatever stream it works, however late the device is; nothing is used
 * before it may be, or kept; and errors of any call end in a message. Mutants leave one wait,
 * record or look out, each at zero delay: the findings must show every one. It is no test on a GPU.
 */
#define INSITU_WITH_CUDA
#include "cudasim/cudasim.c"
#include <stdatomic.h>

/* ---- mutants: calls of the header that are left out or spoilt ---- */
enum {
  SOUND,
  NO_READY_WAIT,    /* the consumer's stream does not wait for the copy */
  NO_RELEASED_WAIT, /* the copy does not wait for what released the slot */
  NO_RELEASE,       /* a release is not recorded */
  LATE_COPY,        /* `copied` is recorded before the copy */
  REFILLED_EARLY,   /* a batch's memory on the host is written while it is copied */
  NOT_DRAINED,      /* memory is freed while it is copied */
  NOT_PASSED,       /* or while the consumer uses it */
  DEFAULT_STREAM,   /* copies in the default stream */
  UNPINNED,         /* from memory that is not page-locked */
  LEAK,             /* an event is not destroyed */
  MUTANTS
};
static const char *const mutant_names[] = {"sound", "no ready-wait", "no released-wait",
    "no release", "late copy", "refilled early", "not drained", "not passed", "default stream",
    "unpinned", "leak"};
static atomic_int mutant;
static cudaStream_t consumer, other; /* streams of the trainer */
static struct {
  void *dst;
  const void *src;
  size_t bytes;
  cudaStream_t stream;
} late;

static bool of_consumer(cudaStream_t stream) {
  return stream == consumer || stream == other;
}
static cudaError_t spoilt_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (mutant == (of_consumer(stream) ? NO_READY_WAIT : NO_RELEASED_WAIT)) return cudaSuccess;
  return cudaStreamWaitEvent(stream, event, flags);
}
enum { REFUSE_RELEASE = 1, REFUSE_QUERY = 2 }; /* for a moment, as if the device had an error */
static atomic_int refuse, refused;
static cudaError_t refusal(void) {
  atomic_fetch_add(&refused, 1);
  return cudaErrorInvalidValue;
}
static cudaError_t spoilt_copy(
    void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (mutant == LATE_COPY && !of_consumer(stream)) {
    late.dst = dst, late.src = src, late.bytes = bytes, late.stream = stream;
    return cudaSuccess;
  }
  return cudaMemcpyAsync(dst, src, bytes, kind, mutant == DEFAULT_STREAM ? NULL : stream);
}
static cudaError_t spoilt_record(cudaEvent_t event, cudaStream_t stream) {
  if (mutant == NO_RELEASE && of_consumer(stream)) return cudaSuccess;
  if (refuse & REFUSE_RELEASE && of_consumer(stream)) return refusal();
  cudaError_t error = cudaEventRecord(event, stream);
  if (mutant == LATE_COPY && stream == late.stream && late.bytes)
    error = cudaMemcpyAsync(late.dst, late.src, late.bytes, cudaMemcpyHostToDevice, stream);
  return error;
}
static cudaError_t spoilt_query(cudaEvent_t event) {
  if (refuse & REFUSE_QUERY) return refusal();
  return mutant == REFILLED_EARLY ? cudaSuccess : cudaEventQuery(event);
}
static cudaError_t spoilt_stream_sync(cudaStream_t stream) {
  if (refuse & REFUSE_RELEASE && of_consumer(stream)) return refusal();
  return mutant == NOT_DRAINED ? cudaSuccess : cudaStreamSynchronize(stream);
}
static cudaError_t spoilt_event_sync(cudaEvent_t event) {
  return mutant == NOT_PASSED ? cudaSuccess : cudaEventSynchronize(event);
}
static cudaError_t spoilt_alloc(void **p, size_t bytes, unsigned flags) {
  if (mutant != UNPINNED) return cudaHostAlloc(p, bytes, flags);
  return posix_memalign(p, 4096, bytes) ? cudaErrorMemoryAllocation : cudaSuccess;
}
static cudaError_t spoilt_free(void *p) {
  if (mutant != UNPINNED) return cudaFreeHost(p);
  free(p);
  return cudaSuccess;
}
static cudaError_t spoilt_destroy(cudaEvent_t event) {
  return mutant == LEAK ? cudaSuccess : cudaEventDestroy(event);
}
#define cudaStreamWaitEvent spoilt_wait
#define cudaMemcpyAsync spoilt_copy
#define cudaEventRecord spoilt_record
#define cudaEventQuery spoilt_query
#define cudaStreamSynchronize spoilt_stream_sync
#define cudaEventSynchronize spoilt_event_sync
#define cudaHostAlloc spoilt_alloc
#define cudaFreeHost spoilt_free
#define cudaEventDestroy spoilt_destroy

static atomic_int allocations; /* of the header's */
static void *counted_realloc(void *p, size_t n) {
  atomic_fetch_add(&allocations, 1);
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) counted_realloc(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#undef cudaStreamSynchronize
#undef cudaEventQuery
#include "support.h"
#include "inside.h"
#include "modes.h"

/* ---- the archive ---- */
enum { SAMPLES = 61, X_WIDE = 150, B_WIDE = 33, BATCH = 5, HELD = 2 };
static const struct support_array x = {.name = "x",
                                      .ndim = 2,
                                      .shape = {SAMPLES, X_WIDE},
                                      .chunk = {3, X_WIDE},
                                      .dtype = INSITU_F32,
                                      .format = 2},
                                  b = {.name = "b",
                                      .ndim = 2,
                                      .shape = {SAMPLES, B_WIDE},
                                      .chunk = {4, 20},
                                      .dtype = INSITU_I16,
                                      .format = 2,
                                      .zstd = true};
static const insitu_variable variables[] = {{.label = "now", .path = "x", .place = INSITU_DEVICE},
    {.label = "b", .place = INSITU_PINNED, .dtype = INSITU_F32}, {.label = "host", .path = "b"},
    {.label = "next", .path = "x", .offset = 1, .place = INSITU_DEVICE_OR_HOST}};
enum { VARIABLES = 4 };
static const struct support_array *const arrays[VARIABLES] = {&x, &b, &b, &x};

static int setup(void **state) {
  if (support_setup(state)) return -1;
  support_make(support_path("a"), &x);
  support_make(support_path("a"), &b);
  return 0;
}

/* ---- a trainer ---- */
/* What a kernel read of an array, long before it runs: to be compared when it has. */
struct saved {
  struct saved *next;
  uint64_t variable, rows;
  int64_t anchors[BATCH];
  unsigned char bytes[BATCH * X_WIDE * 4];
};
static struct saved *all_saved;

static const char *wrong_bytes(
    uint64_t variable, uint64_t rows, const int64_t *anchors, const unsigned char *p) {
  static char text[200];
  const struct support_array *a = arrays[variable];
  int32_t dtype = variable == 2 ? INSITU_I16 : INSITU_F32;
  for (uint64_t row = 0; row < rows; row++)
    for (uint64_t k = 0; k < a->shape[1]; k++, p += (dtype & 0xff) / 8) {
      uint64_t at[4] = {(uint64_t)(anchors[row] + variables[variable].offset), k};
      double got = support_get(p, dtype), want = support_expect(a, at);
      if (got == want) continue;
      snprintf(text, sizeof text, "%s row %d element %d: %g, not %g", variables[variable].label,
          (int)row, (int)k, got, want);
      return text;
    }
  return NULL;
}
static void save(const insitu_batch *batch, uint64_t variable, cudaStream_t stream) {
  const insitu_array *a = &batch->arrays[variable];
  struct saved *s = malloc(sizeof *s);
  *s = (struct saved){.next = all_saved, .variable = variable, .rows = batch->rows};
  memcpy(s->anchors, batch->sample_indices, batch->rows * sizeof *s->anchors);
  /* the device has failed */
  if (cudasim_save(stream, a->data, a->bytes, s->bytes) != cudaSuccess) {
    free(s);
    return;
  }
  all_saved = s;
}
/* Whether all that was read was right. Runs what is left, unless the device has failed. */
static const char *check_saved(bool failed) {
  const char *wrong = NULL;
  cudasim_finish();
  for (struct saved *s = all_saved, *next; s; s = next) {
    next = s->next;
    if (!wrong && !failed) wrong = wrong_bytes(s->variable, s->rows, s->anchors, s->bytes);
    free(s);
  }
  all_saved = NULL;
  return wrong;
}

enum { RELEASE, RELEASE_ON, DLPACK, LATER, STYLES };
/* what libtorch and the like would have; DLManagedTensor is private to the header here */
struct tensors {
  struct insitu__public_dlpack_managed *now;
  struct insitu__public_dlpack_versioned *next;
};
static void drop(struct tensors *t) {
  if (t->now) t->now->deleter(t->now);
  if (t->next) t->next->deleter(t->next);
  memset(t, 0, sizeof *t);
}
/* Reads and overwrites a batch in its style and lets it go, without waiting for anything. */
static insitu_status train(insitu_batch *batch, int style, insitu_batch **kept,
    struct tensors *tensors, insitu_error *err) {
  cudaStream_t stream = style == RELEASE || style == LATER ? consumer : other;
  insitu_status status = INSITU_OK;
  for (uint64_t i = 1; i < 3; i++) {
    const char *wrong = wrong_bytes(i, batch->rows, batch->sample_indices, batch->arrays[i].data);
    if (wrong && mutant == SOUND) fail_msg("%s", wrong);
  }
  if (style == RELEASE_ON) status = insitu_batch_wait(batch, stream, err);
  if (style == DLPACK) {
    drop(tensors);
    status = insitu_batch_dlpack(batch, 0, 0, stream, (void **)&tensors->now, err);
    if (!status) status = insitu_batch_dlpack(batch, 3, 1, stream, (void **)&tensors->next, err);
  }
  for (uint64_t i = 0; !status && i < VARIABLES; i++) {
    if (i == 2) continue;
    save(batch, i, stream);
    if (i != 1) cudasim_fill(stream, batch->arrays[i].data, batch->arrays[i].bytes, 0xee);
  }
  if (style == LATER) {
    insitu_batch_release(kept);
    *kept = batch;
  } else if (style == RELEASE_ON || style == DLPACK) {
    insitu_batch_release_on(&batch, other);
  } else {
    insitu_batch_release(&batch);
  }
  return status;
}

/* Streams, loader, iterator, some epochs, all closed. Errors are the caller's to judge. */
struct run {
  int mode, style, epochs;
  bool ahead; /* closed only when a batch has been uploaded that nobody takes */
  uint64_t batches, uploads;
  int steady[2]; /* allocations after two epochs, and at the end */
  uint64_t made[2];
  insitu_status status;
  insitu_error err;
  const char *wrong;
  cudaError_t last; /* what the thread that trains would find as its own */
  enum cudaStreamCaptureMode capture_mode;
};
static uint64_t made(void) { /* whatever a runtime makes */
  cudasim_counts c = cudasim_count();
  return c.stream_creates + c.event_creates + c.mallocs + c.host_allocs;
}
static insitu_loader_desc desc_of(int mode) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = support_path("a"),
      .variables = variables,
      .n_variables = VARIABLES,
      .batch_size = BATCH,
      .block_chunks = 4,
      .prefetch_depth = 3,
      .decode_threads = 2,
      .split = {{.start = 0, .stop = SAMPLES}},
      .log_level = INSITU_LOG_OFF,
      .io = modes[mode].io,
      .inline_io = modes[mode].inline_io};
}
/* Waits until the batch that next would give is uploaded, or will never be. */
static void upload_ahead(insitu_loader *ld, insitu_iter *it) {
  for (bool there = false; !there;) {
    if (ld->config.inline_io) insitu__reactor_run(&ld->reactor, 1000000);
    else poll(NULL, 0, 1);
    pthread_mutex_lock(&it->lock);
    there = it->shared.uploaded > it->shared.next ||
            it->shared.uploaded >= it->shared.first_damaged || it->device.error.status;
    pthread_mutex_unlock(&it->lock);
  }
}
static void run(struct run *r) {
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *batch, *kept = NULL;
  struct tensors tensors = {0};
  insitu_stats stats = {0};
  insitu_loader_desc d = desc_of(r->mode);
  cudasim_catch_faults(true); /* cmocka has its own handler in every test */
  consumer = other = NULL;
  memset(&late, 0, sizeof late);
  if (cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking) ||
      cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking))
    fail_msg("no stream for the trainer");
  insitu_iter_desc i = {.api = INSITU_API, .max_held = HELD, .stream = consumer};
  r->status = insitu_loader_open(&d, &ld, &r->err);
  if (!r->status) support_reserve(ld);
  if (!r->status) r->status = insitu_iter_open(ld, &i, &it, &r->err);
  for (int epoch = 0; !r->status && epoch < r->epochs; epoch++) {
    if (epoch == 2) r->steady[0] = allocations, r->made[0] = made();
    while ((r->status = insitu_iter_next(it, INSITU_FOREVER, &batch, &r->err)) == INSITU_OK) {
      r->batches++;
      r->status = train(batch, r->style, &kept, &tensors, &r->err);
      if (r->status) break;
    }
    if (r->status == INSITU_END) r->status = INSITU_OK;
  }
  r->steady[1] = allocations, r->made[1] = made();
  if (r->ahead && !r->status) upload_ahead(ld, it);
  if (ld) insitu_loader_stats(ld, &stats, NULL);
  r->uploads = stats.uploads;
  if (r->style == LATER) insitu_loader_close(&ld); /* batches and tensors live on */
  drop(&tensors);
  insitu_batch_release(&kept);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  r->last = cudasim_thread(&r->capture_mode);
  /* that stays: what was still to run is dropped, even while closing */
  bool lost = cudaGetLastError() != cudaSuccess;
  r->wrong = check_saved(r->status < 0 || lost);
  cudaStreamDestroy(consumer);
  cudaStreamDestroy(other);
  cudasim_catch_faults(false);
}

static bool nothing_left(void) {
  cudasim_counts c = cudasim_count();
  return !(c.streams + c.events + c.device_blocks + c.pinned_blocks);
}
/* Of a run: findings, or something that should not be. NULL: none. */
static const char *trouble(void) {
  cudasim_counts c = cudasim_count();
  if (cudasim_findings()) return cudasim_finding(0);
  if (c.default_stream) return "the default stream was used";
  if (c.unpinned_copies) return "a copy from memory that is not page-locked";
  if (c.write_combined) return "write-combined memory";
  if (c.timing_events) return "an event that takes times";
  return nothing_left() ? NULL : "something is left";
}

/* ---- tests ---- */

static void test_epochs(void **state) {
  static const struct {
    cudasim_when when;
    unsigned steps;
  } delays[] = {{CUDASIM_AT_ONCE, 0}, {CUDASIM_RANDOM, 1}, {CUDASIM_RANDOM, 4}};
  (void)state;
  EACH_MODE (m)
    for (int style = 0; style < STYLES; style++)
      for (unsigned delay = 0; delay < 3; delay++) {
        struct run r = {.mode = m, .style = style, .epochs = 3};
        cudasim_reset(1, (uint64_t)(style * 100 + m * 10) + delay);
        cudasim_delay(delays[delay].when, delays[delay].steps);
        run(&r);
        if (r.status) fail_msg("%s, style %d: %s", modes[m].name, style, r.err.message);
        if (r.wrong)
          fail_msg("%s, style %d, delay %d: %s", modes[m].name, style, (int)delay, r.wrong);
        const char *found = trouble();
        if (found) fail_msg("%s, style %d, delay %d: %s", modes[m].name, style, (int)delay, found);
        assert_int_equal(r.batches, 3 * ((SAMPLES - 1) / BATCH));
        /* one of each batch, and those that were made ready in vain */
        assert_in_range(r.uploads, r.batches, r.batches + 4);
        assert_int_equal(cudasim_count().copies, cudasim_calls("cudaMemcpyAsync"));
      }
}

/* Once the rings are full nothing is made or allocated any more. */
static void test_steady(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct run r = {.mode = m, .style = RELEASE_ON, .epochs = 6};
    cudasim_reset(1, 7);
    run(&r);
    assert_int_equal(r.status, INSITU_OK);
    assert_int_equal(r.made[0], r.made[1]);
    assert_int_equal(r.steady[0], r.steady[1]);
  }
}

/* At zero delay, where nothing else would show them. */
static void test_mutants(void **state) {
  (void)state;
  for (int which = 0; which < MUTANTS; which++) {
    bool caught = false;
    EACH_MODE (m)
      for (int style = 0; style < STYLES; style++) {
        if (which == NO_RELEASE && style == DLPACK) continue;
        cudasim_reset(1, 1);
        cudasim_delay(CUDASIM_AT_ONCE, 0);
        mutant = which;
        struct run r = {.mode = m, .style = style, .epochs = 2, .ahead = true};
        run(&r);
        mutant = SOUND;
        caught |= r.status < 0 || r.wrong || trouble();
      }
    if (caught != (which != SOUND))
      fail_msg("the mutant '%s' is %scaught", mutant_names[which], caught ? "" : "not ");
  }
}

/* Every call fails once: with an error that passes, and with one that stays. */
static void test_errors(void **state) {
  static const cudaError_t errors[] = {
      cudaErrorMemoryAllocation, cudaErrorLaunchFailure, cudaErrorIllegalAddress};
  (void)state;
  for (unsigned e = 0; e < sizeof errors / sizeof *errors; e++)
    EACH_MODE_BY_TURNS (m, (int)e) {
      uint64_t failed = 0, ended = 0;
      for (uint64_t n = 1;; n += 1 + n / 16) {
        struct run r = {.mode = m, .style = (int)(n % STYLES), .epochs = 2};
        cudasim_reset(1, n);
        cudasim_delay(CUDASIM_RANDOM, 4);
        cudasim_fail(n + 2, errors[e]); /* behind the trainer's own streams */
        run(&r);
        bool hit = cudasim_count().injected > 0;
        cudasim_fail(0, cudaSuccess);
        if (r.wrong)
          fail_msg(
              "%s, %s at call %d: %s", modes[m].name, cudaGetErrorName(errors[e]), (int)n, r.wrong);
        if (!nothing_left())
          fail_msg("%s, %s at call %d: something is left", modes[m].name,
              cudaGetErrorName(errors[e]), (int)n);
        if (r.last || r.capture_mode != cudaStreamCaptureModeGlobal)
          fail_msg("%s, %s at call %d: the trainer is left with %s, capture mode %d", modes[m].name,
              cudaGetErrorName(errors[e]), (int)n, cudaGetErrorName(r.last), (int)r.capture_mode);
        /* it passes: nothing is used too early after it */
        if (errors[e] == cudaErrorMemoryAllocation && cudasim_findings())
          fail_msg("%s, error at call %d: %s", modes[m].name, (int)n, cudasim_finding(0));
        if (r.status && r.status != INSITU_E_DEVICE && r.status != INSITU_E_NOMEM)
          fail_msg("%s, error at call %d: %s: %s", modes[m].name, (int)n,
              insitu_status_name(r.status), r.err.message);
        if (r.status) assert_non_null(strstr(r.err.message, cudaGetErrorString(errors[e])));
        failed += r.status < 0;
        if (!hit) {
          ended++;
          assert_int_equal(r.status, INSITU_OK);
          break;
        }
      }
      assert_true(failed > 10 && ended == 1);
    }
}

/* The device refuses for a moment, when all of an epoch has been delivered: the next epoch can be
 * had all the same. */
static void test_next_epoch(void **state) {
  enum { BATCHES = (SAMPLES - 1) / BATCH };
  static const char *const ways[] = {"release, next tells", "release, next is not asked", "query"};
  (void)state;
  EACH_MODE (m)
    for (int way = 0; way < 3; way++)
      for (uint64_t epoch = 1; epoch < 3; epoch++) { /* the one that comes, another one */
        insitu_loader_desc d = desc_of(m);
        insitu_loader *ld = NULL;
        insitu_iter *it = NULL;
        insitu_batch *batch, *kept = NULL;
        struct tensors tensors = {0};
        insitu_error err = {0};
        cudasim_reset(1, epoch);
        cudasim_catch_faults(true);
        if (cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking))
          fail_msg("no stream for the trainer");
        insitu_iter_desc i = {.api = INSITU_API, .max_held = HELD, .stream = consumer};
        insitu_status status = insitu_loader_open(&d, &ld, &err);
        if (!status) status = insitu_iter_open(ld, &i, &it, &err);
        refused = 0;
        for (int n = 0; !status && n < BATCHES; n++) {
          status = insitu_iter_next(it, 20000, &batch, &err);
          refuse = n < BATCHES - 1 ? 0 : way == 2 ? REFUSE_QUERY : REFUSE_RELEASE;
          if (!status) status = train(batch, RELEASE, &kept, &tensors, &err);
        }
        if (status) fail_msg("%s: %s", modes[m].name, err.message);
        /* inline nobody looks */
        for (int wait = 0; way == 2 && !refused && wait < 200; wait++) poll(NULL, 0, 1);
        refuse = 0;
        if (way < 2) assert_true(refused > 1);
        if (way == 0) {
          assert_int_equal(insitu_iter_next(it, 20000, &batch, &err), INSITU_END);
          assert_int_equal(insitu_iter_next(it, 20000, &batch, &err), INSITU_E_DEVICE);
          assert_non_null(strstr(err.message, "releasing a batch on its stream"));
        }
        /* what was refused orders nothing */
        if (cudaStreamSynchronize(consumer)) fail_msg("the trainer cannot wait");
        for (int again = 0; again < 2; again++) {
          memset(&err, 0, sizeof err);
          status = insitu_iter_set_epoch(it, epoch, &err);
          int n = 0;
          while (!status && (status = insitu_iter_next(it, 20000, &batch, &err)) == INSITU_OK) {
            if (batch->epoch != epoch || batch->index != (uint64_t)n++)
              fail_msg("%s: another batch", ways[way]);
            status = train(batch, RELEASE, &kept, &tensors, &err);
          }
          if (status != INSITU_END)
            fail_msg("%s, %s, epoch %d: %s", modes[m].name, ways[way], (int)epoch, err.message);
          assert_int_equal(n, BATCHES);
        }
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        const char *wrong = check_saved(false);
        if (wrong) fail_msg("%s, %s: %s", modes[m].name, ways[way], wrong);
        cudaStreamDestroy(consumer);
        wrong = trouble();
        if (wrong) fail_msg("%s, %s: %s", modes[m].name, ways[way], wrong);
        cudasim_catch_faults(false);
      }
}

/* Somebody else captures a graph all the time: nothing that the loader does may spoil it. */
static void test_capture(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct run r = {.mode = m, .style = RELEASE, .epochs = 2};
    cudasim_reset(1, 3);
    cudasim_capture(true);
    run(&r);
    cudasim_capture(false);
    if (r.status) fail_msg("%s: %s", modes[m].name, r.err.message);
    if (cudasim_findings()) fail_msg("%s", cudasim_finding(0));
    assert_int_equal(cudasim_count().captures, 0);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_epochs), cmocka_unit_test(test_steady),
      cmocka_unit_test(test_mutants), cmocka_unit_test(test_errors),
      cmocka_unit_test(test_next_epoch), cmocka_unit_test(test_capture)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, setup, support_teardown);
}
