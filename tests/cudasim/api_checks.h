/* The values and signatures of the simulated runtime's declarations. test_cudasim.c compiles this
 * with them; with the real ones cc -fsyntax-only -x c -I DIR tests/cudasim/api_checks.h does, DIR
 * being where the toolkit's cuda_runtime_api.h lies: what is compiled against one is then right
 * with the other. */
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#define HAS(name, value) _Static_assert((int)(name) == (value), #name)
#define TAKES(name, result, ...)                                                                   \
  _Static_assert(_Generic(&name, result(*)(__VA_ARGS__) : 1, default : 0), #name)
HAS(cudaSuccess, 0);
HAS(cudaErrorInvalidValue, 1);
HAS(cudaErrorMemoryAllocation, 2);
HAS(cudaErrorInitializationError, 3);
HAS(cudaErrorInvalidDevicePointer, 17);
HAS(cudaErrorInvalidMemcpyDirection, 21);
HAS(cudaErrorInsufficientDriver, 35);
HAS(cudaErrorDevicesUnavailable, 46);
HAS(cudaErrorNoDevice, 100);
HAS(cudaErrorInvalidDevice, 101);
HAS(cudaErrorECCUncorrectable, 214);
HAS(cudaErrorOperatingSystem, 304);
HAS(cudaErrorInvalidResourceHandle, 400);
HAS(cudaErrorNotReady, 600);
HAS(cudaErrorIllegalAddress, 700);
HAS(cudaErrorLaunchTimeout, 702);
HAS(cudaErrorContextIsDestroyed, 709);
HAS(cudaErrorLaunchFailure, 719);
HAS(cudaErrorNotPermitted, 800);
HAS(cudaErrorNotSupported, 801);
HAS(cudaErrorStreamCaptureUnsupported, 900);
HAS(cudaErrorStreamCaptureInvalidated, 901);
HAS(cudaErrorStreamCaptureIsolation, 905);
HAS(cudaErrorStreamCaptureImplicit, 906);
HAS(cudaErrorUnknown, 999);
HAS(cudaMemcpyHostToHost, 0);
HAS(cudaMemcpyHostToDevice, 1);
HAS(cudaMemcpyDeviceToHost, 2);
HAS(cudaMemcpyDeviceToDevice, 3);
HAS(cudaMemcpyDefault, 4);
HAS(cudaStreamCaptureModeGlobal, 0);
HAS(cudaStreamCaptureModeThreadLocal, 1);
HAS(cudaStreamCaptureModeRelaxed, 2);
HAS(cudaStreamDefault, 0);
HAS(cudaStreamNonBlocking, 1);
HAS(cudaEventDefault, 0);
HAS(cudaEventBlockingSync, 1);
HAS(cudaEventDisableTiming, 2);
HAS(cudaEventWaitDefault, 0);
HAS(cudaHostAllocDefault, 0);
HAS(cudaHostAllocPortable, 1);
HAS(cudaHostAllocMapped, 2);
HAS(cudaHostAllocWriteCombined, 4);
_Static_assert(_Generic((cudaStream_t)0, struct CUstream_st * : 1, default : 0), "cudaStream_t");
_Static_assert(_Generic((cudaEvent_t)0, struct CUevent_st * : 1, default : 0), "cudaEvent_t");
_Static_assert(_Generic((cudaError_t)0, enum cudaError : 1, default : 0), "cudaError_t");
TAKES(cudaGetDeviceCount, cudaError_t, int *);
TAKES(cudaGetDevice, cudaError_t, int *);
TAKES(cudaSetDevice, cudaError_t, int);
TAKES(cudaMemGetInfo, cudaError_t, size_t *, size_t *);
TAKES(cudaStreamCreateWithFlags, cudaError_t, cudaStream_t *, unsigned int);
TAKES(cudaStreamDestroy, cudaError_t, cudaStream_t);
TAKES(cudaStreamSynchronize, cudaError_t, cudaStream_t);
TAKES(cudaStreamWaitEvent, cudaError_t, cudaStream_t, cudaEvent_t, unsigned int);
TAKES(cudaEventCreateWithFlags, cudaError_t, cudaEvent_t *, unsigned int);
TAKES(cudaEventDestroy, cudaError_t, cudaEvent_t);
TAKES(cudaEventRecord, cudaError_t, cudaEvent_t, cudaStream_t);
TAKES(cudaEventQuery, cudaError_t, cudaEvent_t);
TAKES(cudaEventSynchronize, cudaError_t, cudaEvent_t);
TAKES(cudaHostAlloc, cudaError_t, void **, size_t, unsigned int);
TAKES(cudaFreeHost, cudaError_t, void *);
TAKES(cudaMalloc, cudaError_t, void **, size_t);
TAKES(cudaFree, cudaError_t, void *);
TAKES(
    cudaMemcpyAsync, cudaError_t, void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t);
TAKES(cudaGetErrorString, const char *, cudaError_t);
TAKES(cudaGetErrorName, const char *, cudaError_t);
TAKES(cudaGetLastError, cudaError_t, void);
TAKES(cudaThreadExchangeStreamCaptureMode, cudaError_t, enum cudaStreamCaptureMode *);
TAKES(cudaDriverGetVersion, cudaError_t, int *);
TAKES(cudaRuntimeGetVersion, cudaError_t, int *);
TAKES(cudaGetDeviceProperties, cudaError_t, struct cudaDeviceProp *, int);
TAKES(cudaDeviceGetPCIBusId, cudaError_t, char *, int, int);
TAKES(cudaEventElapsedTime, cudaError_t, float *, cudaEvent_t, cudaEvent_t);
TAKES(cudaMemsetAsync, cudaError_t, void *, int, size_t, cudaStream_t);
TAKES(cudaLaunchHostFunc, cudaError_t, cudaStream_t, void (*)(void *), void *);
TAKES(cudaStreamBeginCapture, cudaError_t, cudaStream_t, enum cudaStreamCaptureMode);
TAKES(cudaStreamEndCapture, cudaError_t, cudaStream_t, cudaGraph_t *);
TAKES(
    cudaGraphInstantiateWithFlags, cudaError_t, cudaGraphExec_t *, cudaGraph_t, unsigned long long);
TAKES(cudaGraphLaunch, cudaError_t, cudaGraphExec_t, cudaStream_t);
TAKES(cudaGraphDestroy, cudaError_t, cudaGraph_t);
TAKES(cudaGraphExecDestroy, cudaError_t, cudaGraphExec_t);
#define MEMBER(name, type)                                                                         \
  _Static_assert(_Generic(((struct cudaDeviceProp *)0)->name, type : 1, default : 0), #name)
MEMBER(totalGlobalMem, size_t);
MEMBER(major, int);
MEMBER(minor, int);
MEMBER(asyncEngineCount, int);
_Static_assert(sizeof((struct cudaDeviceProp *)0)->name == 256, "name");
