/* What of CUDA's runtime API insitubatch.h uses, and what the simulated one in tests/cudasim declares besides: this compiles with
 * the real headers and with the simulated one, or they differ. tests/cuda/check.sh sees that nothing is missing here. */
#include <cuda_runtime_api.h>

/* Function pointers of another type do not compile with -Werror. */
#define CALL(name, result, ...)                                                                                                  \
  extern result (*const expected_##name)(__VA_ARGS__);                                                                           \
  result (*const expected_##name)(__VA_ARGS__) = name
#define VALUE(name, value) _Static_assert((name) == (value), #name)

CALL(cudaGetDeviceCount, cudaError_t, int *);
CALL(cudaGetDevice, cudaError_t, int *);
CALL(cudaSetDevice, cudaError_t, int);
CALL(cudaMemGetInfo, cudaError_t, size_t *, size_t *);
CALL(cudaStreamCreateWithFlags, cudaError_t, cudaStream_t *, unsigned int);
CALL(cudaStreamDestroy, cudaError_t, cudaStream_t);
CALL(cudaStreamSynchronize, cudaError_t, cudaStream_t);
CALL(cudaStreamWaitEvent, cudaError_t, cudaStream_t, cudaEvent_t, unsigned int);
CALL(cudaEventCreateWithFlags, cudaError_t, cudaEvent_t *, unsigned int);
CALL(cudaEventDestroy, cudaError_t, cudaEvent_t);
CALL(cudaEventRecord, cudaError_t, cudaEvent_t, cudaStream_t);
CALL(cudaEventQuery, cudaError_t, cudaEvent_t);
CALL(cudaEventSynchronize, cudaError_t, cudaEvent_t);
CALL(cudaHostAlloc, cudaError_t, void **, size_t, unsigned int);
CALL(cudaFreeHost, cudaError_t, void *);
CALL(cudaMalloc, cudaError_t, void **, size_t);
CALL(cudaFree, cudaError_t, void *);
CALL(cudaMemcpyAsync, cudaError_t, void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
CALL(cudaGetErrorString, const char *, cudaError_t);
CALL(cudaGetErrorName, const char *, cudaError_t);
CALL(cudaGetLastError, cudaError_t, void);
CALL(cudaThreadExchangeStreamCaptureMode, cudaError_t, enum cudaStreamCaptureMode *);

/* Streams and events are pointers to structs that nobody sees; errors are ints. */
_Static_assert(_Generic((cudaStream_t)0, struct CUstream_st * : 1, default : 0), "cudaStream_t");
_Static_assert(_Generic((cudaEvent_t)0, struct CUevent_st * : 1, default : 0), "cudaEvent_t");
_Static_assert(_Generic((cudaError_t)0, enum cudaError : 1, default : 0) && sizeof(cudaError_t) == sizeof(int), "cudaError_t");
_Static_assert(sizeof(enum cudaMemcpyKind) == sizeof(int) && sizeof(enum cudaStreamCaptureMode) == sizeof(int), "enums");

VALUE(cudaSuccess, 0);
VALUE(cudaErrorInvalidValue, 1);
VALUE(cudaErrorMemoryAllocation, 2);
VALUE(cudaErrorInitializationError, 3);
VALUE(cudaErrorInvalidDevicePointer, 17);
VALUE(cudaErrorInvalidMemcpyDirection, 21);
VALUE(cudaErrorInsufficientDriver, 35);
VALUE(cudaErrorDevicesUnavailable, 46);
VALUE(cudaErrorNoDevice, 100);
VALUE(cudaErrorInvalidDevice, 101);
VALUE(cudaErrorECCUncorrectable, 214);
VALUE(cudaErrorOperatingSystem, 304);
VALUE(cudaErrorInvalidResourceHandle, 400);
VALUE(cudaErrorNotReady, 600);
VALUE(cudaErrorIllegalAddress, 700);
VALUE(cudaErrorLaunchTimeout, 702);
VALUE(cudaErrorContextIsDestroyed, 709);
VALUE(cudaErrorLaunchFailure, 719);
VALUE(cudaErrorNotPermitted, 800);
VALUE(cudaErrorNotSupported, 801);
VALUE(cudaErrorStreamCaptureUnsupported, 900);
VALUE(cudaErrorStreamCaptureInvalidated, 901);
VALUE(cudaErrorStreamCaptureIsolation, 905);
VALUE(cudaErrorStreamCaptureImplicit, 906);
VALUE(cudaErrorUnknown, 999);
VALUE(cudaMemcpyHostToHost, 0);
VALUE(cudaMemcpyHostToDevice, 1);
VALUE(cudaMemcpyDeviceToHost, 2);
VALUE(cudaMemcpyDeviceToDevice, 3);
VALUE(cudaMemcpyDefault, 4);
VALUE(cudaStreamCaptureModeGlobal, 0);
VALUE(cudaStreamCaptureModeThreadLocal, 1);
VALUE(cudaStreamCaptureModeRelaxed, 2);
VALUE(cudaStreamDefault, 0);
VALUE(cudaStreamNonBlocking, 1);
VALUE(cudaEventDefault, 0);
VALUE(cudaEventBlockingSync, 1);
VALUE(cudaEventDisableTiming, 2);
VALUE(cudaEventWaitDefault, 0);
VALUE(cudaHostAllocDefault, 0);
VALUE(cudaHostAllocPortable, 1);
VALUE(cudaHostAllocMapped, 2);
VALUE(cudaHostAllocWriteCombined, 4);
