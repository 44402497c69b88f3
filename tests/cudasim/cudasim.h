/* What tests control the simulated CUDA runtime by, and what it found.
 *
 * Streams are queues that run late: a few random operations at every call into the runtime, all
 * that is needed where the host waits. Whether two operations on the same bytes are ordered (by a
 * stream, by events, by a host that waited) is checked when they are enqueued, with vector clocks:
 * a wait that is missing is found even where it would have made no difference. All host threads
 * count as one: what one of them has learnt is over for all of them. It shows nothing of speed and
 * overlap, and of the real driver only what is written here.
 *
 * Device memory is inaccessible to the host. Pinned memory that an operation reads is read-only,
 * and what one writes inaccessible, until the host has learnt (cudaEventQuery, *Synchronize) that
 * it is over. A system call that writes there fails with EFAULT. */
#ifndef CUDASIM_H
#define CUDASIM_H
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { CUDASIM_DEVICES = 8, CUDASIM_RANGES = 16 }; /* at most; ranges: of each sort in a kernel */

/* ---- setting up ---- */

/* All from the start: memory, streams and events of before are gone, counters 0, nothing injected;
 * random delays of at most 3 steps; 1 GiB on each device, and of pinned memory. No other thread may
 * be inside. A program starts with 1 device and seed 1. */
void cudasim_reset(int devices, uint64_t seed);
void cudasim_memory(size_t device_bytes, size_t pinned_bytes); /* on each device; pinned in all */
/* What every call fails with, as cudaErrorInsufficientDriver; cudaSuccess: none. Without devices it
 * is cudaErrorNoDevice. */
void cudasim_driver(cudaError_t error);

/* RANDOM: 0 to steps operations at each call. AT_ONCE: all that is enqueued. NEVER: only what a
 * host thread waits for in *Synchronize; who polls, polls for ever. */
typedef enum cudasim_when { CUDASIM_RANDOM, CUDASIM_AT_ONCE, CUDASIM_NEVER } cudasim_when;
void cudasim_delay(cudasim_when when, unsigned steps);
/* Copies do not begin, but for those that a host thread waits for in *Synchronize; all else runs as
 * cudasim_delay says. */
void cudasim_bus(bool stands);
void cudasim_step(unsigned steps); /* that many operations now; their order is random */
void cudasim_finish(void);         /* runs all; the host has then waited for all of it */

/* The n-th call from now (1: the next) that can fail fails with that error, once; 0: none. What
 * destroys, frees, synchronises, exchanges the capture mode or makes a device current does its work
 * all the same, as with errors of earlier work. cudaErrorIllegalAddress, ECCUncorrectable,
 * LaunchTimeout, LaunchFailure and ContextIsDestroyed stay: what is enqueued is dropped, and all
 * calls fail with it. Kernels are not counted. */
void cudasim_fail(uint64_t n, cudaError_t error);

/* As if another thread captured a graph in global mode: calls that are then unsafe fail, and are
 * counted, in threads whose own mode is global (the default). */
void cudasim_capture(bool on);
/* That stream is being captured: what waits, records or runs on it fails, and is counted. A capture
 * by
 * cudaStreamBeginCapture takes its copies and fills into a graph; the rest fails all the same, and
 * spoils it. */
void cudasim_capture_stream(cudaStream_t stream, bool on);

/* Catches SIGSEGV: what the host touched is counted, made accessible, and the program goes on;
 * false: no longer. cmocka sets its own handler for each test: call it in the test. */
void cudasim_catch_faults(bool on);

/* ---- consumers ---- */

typedef struct cudasim_range {
  const void *at; /* an address of the device, or pinned */
  size_t bytes;
} cudasim_range;
/* With addresses that the host may use, for the ranges in their order. It runs in any thread that
 * calls the runtime, holding its lock: it may call cudasim_alias, and nothing that waits for other
 * threads. */
typedef void cudasim_fn(void *const *reads, void *const *writes, void *arg);
/* A kernel on a stream, which reads and writes those ranges; fn: NULL for none */
cudaError_t cudasim_kernel(cudaStream_t stream, const cudasim_range *reads, size_t n_reads,
    const cudasim_range *writes, size_t n_writes, cudasim_fn *fn, void *arg);
/* Kernels that read a range into ordinary memory, which must stay there until they are over; that
 * fill one with a byte */
cudaError_t cudasim_save(cudaStream_t stream, const void *from, size_t bytes, void *to);
cudaError_t cudasim_fill(cudaStream_t stream, void *at, size_t bytes, unsigned char byte);
/* Where the host sees that address of device or pinned memory, whatever is in flight; NULL: it is
 * neither, or freed */
void *cudasim_alias(const void *at);
/* The ordinal of the device that it is memory of, or one of these; of freed memory CUDASIM_NOWHERE
 */
enum { CUDASIM_PINNED = -1, CUDASIM_NOWHERE = -2 };
int cudasim_where(const void *at);

/* ---- findings ---- */

typedef struct cudasim_counts {
  /* now */
  uint64_t streams, events, device_blocks, device_bytes, pinned_blocks, pinned_bytes;
  uint64_t bytes_of[CUDASIM_DEVICES]; /* of device_bytes */
  uint64_t graphs;                    /* and those that were instantiated */
  uint64_t pending;                   /* operations that have not run */
  /* so far */
  uint64_t calls, stream_creates, event_creates, mallocs, host_allocs;
  uint64_t frees;              /* cudaFree and cudaFreeHost of memory */
  uint64_t write_combined;     /* of host_allocs */
  uint64_t timing_events;      /* events without cudaEventDisableTiming */
  uint64_t copies, copy_bytes; /* cudaMemcpyAsync */
  uint64_t unpinned_copies;    /* of copies: from or to memory that is not pinned */
  uint64_t foreign_copies;     /* of copies: of memory of another device than the stream's */
  uint64_t kernels;
  /* calls with a default stream (NULL, cudaStreamLegacy, cudaStreamPerThread), kernels excepted */
  uint64_t default_stream;
  uint64_t injected; /* errors */
  uint64_t peak_device_bytes, peak_pinned_bytes;
  /* findings: each a fault of the program under test */
  /* operations on the same bytes that nothing orders, at least one of which writes */
  uint64_t races;
  uint64_t host_writes; /* the host wrote to a pinned source in flight */
  /* the host touched device memory, freed memory, or a pinned destination in flight */
  uint64_t host_touches;
  /* memory freed that the host did not know to be idle, or used when freed */
  uint64_t uses_after_free;
  uint64_t captures; /* calls that are unsafe during a capture */
  uint64_t misuses;  /* handles and addresses that are none, ranges that overrun */
} cudasim_counts;
cudasim_counts cudasim_count(void);
uint64_t cudasim_findings(void); /* all six together */
/* text of the first ones, from 0; NULL: there is none */
const char *cudasim_finding(unsigned number);
/* of that name so far, those that failed included; "cudaMalloc" */
uint64_t cudasim_calls(const char *name);

/* The call that made a device's primary context; NULL: nobody has made one, so the program takes no
 * memory there. cudaSetDevice makes one on the device it names, others on the current one, but for
 * those that only ask. */
const char *cudasim_context(int device);
/* as the driver's cuDevicePrimaryCtxGetState */
int cudasim_context_state(int device, unsigned *flags, int *active);
/* The calling thread's error that cudaGetLastError would give, and forget, and its capture mode. It
 * is no call of CUDA's. */
cudaError_t cudasim_thread(enum cudaStreamCaptureMode *mode);

#ifdef __cplusplus
}
#endif
#endif
