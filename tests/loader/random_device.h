/* Where the arrays of a random case lie, and how what lies on a device is seen and given back: on
 * simulated devices where the test is built with CUDA, else in host memory alone. After
 * random_case.h. */
#ifndef TESTS_RANDOM_DEVICE_H
#define TESTS_RANDOM_DEVICE_H

/* Where the loader must put what a variable asks for: without such a device some fall back. */
struct spot {
  int32_t place, device;
};

static inline uint64_t hash_bytes(const void *at, uint64_t n) {
  const unsigned char *p = at;
  uint64_t h = UINT64_C(0xcbf29ce484222325);

  for (uint64_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}

static inline uint64_t hash_batch(const insitu_batch *b) {
  uint64_t h = 0;

  for (uint64_t i = 0; i < b->n_arrays; i++)
    h = order_mix(h ^ hash_bytes(b->arrays[i].data, b->arrays[i].bytes));
  return h;
}

#ifdef INSITU_WITH_CUDA
#include "../device/dlpack.h"
enum { MAX_GPUS = 3, MAX_LATE = 64, MAX_TENSORS = 8 };

/* The machine of the case: devices, and a stream of the trainer's on each. used: those whose
 * streams may use a batch. */
static struct {
  int n;
  cudaStream_t stream[MAX_GPUS];
  bool used[MAX_GPUS];
} gpus;

/* Copies of batches that kernels still write, and what they must then hold; twin: another copy of
 * one array, through a tensor of it, or NULL. */
static struct late {
  insitu_batch *copy;
  uint64_t hash, array;
  void *twin;
} late[MAX_LATE];
static int n_late;

/* Tensors that outlive their batches. */
static struct dl tensor[MAX_TENSORS];
static int n_tensors;

static inline void cuda_ok(cudaError_t error, const char *what) {
  if (error) differ("%s: %s", what, cudaGetErrorName(error));
}
#define CUDA_OK(call) cuda_ok(call, #call)

/* ---- the machine ---- */
/* A stream of the trainer's: that of a device, or from MAX_GPUS on its default stream. */
static inline int gpu_of(int home) {
  return home % MAX_GPUS;
}
static inline cudaStream_t gpu_stream(int home) {
  return gpus.n && home < MAX_GPUS ? gpus.stream[home] : NULL;
}
static inline void gpus_begin(uint64_t number) {
  draw_state = number;
  gpus.n = (int)(number % 16 == 0 ? 0 : 1 + draw(MAX_GPUS));
  n_late = 0;
  cudasim_reset(gpus.n, number);
  if (!gpus.n && chance(50)) cudasim_driver(cudaErrorInsufficientDriver);
  cudasim_delay(chance(15) ? CUDASIM_AT_ONCE : CUDASIM_RANDOM, 1 + (unsigned)draw(6));
  for (int i = gpus.n; i-- > 0;) { /* device 0 is then the current one */
    CUDA_OK(cudaSetDevice(i));
    CUDA_OK(cudaStreamCreateWithFlags(&gpus.stream[i], cudaStreamNonBlocking));
  }
}

/* Makes the device of a stream the current one. */
static inline void gpus_choose(int home) {
  if (gpus.n) CUDA_OK(cudaSetDevice(gpu_of(home)));
}

/* Waits for all that the trainer does, and looks at what it saw. */
static inline void gpus_sync(int home) {
  int n = n_late;

  for (int i = 0; i < gpus.n; i++) CUDA_OK(cudaStreamSynchronize(gpus.stream[i]));
  for (int i = 0; i < gpus.n; i++) {
    gpus_choose(i);
    CUDA_OK(cudaStreamSynchronize(NULL));
  }
  gpus_choose(home);
  n_late = 0;
  for (int i = 0; i < n; i++) {
    const insitu_batch *b = late[i].copy;
    const insitu_array *a = &b->arrays[late[i].array];

    if (hash_batch(b) != late[i].hash)
      differ("batch %d of epoch %d changed while it was held", (int)b->index, (int)b->epoch);
    if (late[i].twin && memcmp(late[i].twin, a->data, a->bytes))
      differ(
          "batch %d of epoch %d, '%s': its tensor differs", (int)b->index, (int)b->epoch, a->name);
  }
}

/* A difference ended the case: nothing may be written to its memory any more. */
static inline void gpus_quiet(void) {
  cudasim_bus(false);
  cudasim_finish();
  n_late = gpus.n = 0;
}

/* All loaders are closed: nothing is left, and nothing was wrong. */
static inline void gpus_end(void) {
  cudasim_counts c = cudasim_count();

  if (cudasim_findings()) differ("%s", cudasim_finding(0));
  if (c.streams != (uint64_t)gpus.n || c.events || c.device_blocks || c.pinned_blocks)
    differ("%d streams, %d events, %d blocks of devices, %d of pinned memory are left",
        (int)c.streams - gpus.n, (int)c.events, (int)c.device_blocks, (int)c.pinned_blocks);
  if (c.write_combined || c.timing_events) differ("write-combined memory, or events with timing");
  for (int i = 0; i < gpus.n; i++) CUDA_OK(cudaStreamDestroy(gpus.stream[i]));
}

static inline int gpus_there(void) {
  return gpus.n;
}

/* One that may use the batches. */
static inline int draw_home(void) {
  int home = gpus.n ? (int)draw((uint64_t)gpus.n) : 0;

  while (gpus.n && !gpus.used[home]) home = (home + 1) % gpus.n;
  return home + (chance(15) ? MAX_GPUS : 0);
}

/* Before a call of an iterator with that stream. */
static inline void gpus_before(int home) {
  if (!gpus.n) return;
  gpus_choose(home);
  cudasim_bus(chance(10));
  if (chance(20)) cudasim_step((unsigned)draw(8));
  if (chance(10)) gpus_sync(home);
}
/* Something waits: what does not need the host goes on. */
static inline void gpus_go_on(void) {
  cudasim_bus(false);
}
static inline void gpus_after(int home) {
  int now = -1;

  if (!gpus.n) return;
  CUDA_OK(cudaGetDevice(&now));
  if (now != gpu_of(home)) differ("a call made device %d the current one", now);
}

static inline struct spot spot_of(int32_t place, int32_t device) {
  struct spot at = {place == INSITU_DEVICE_OR_HOST ? INSITU_DEVICE : place, device};

  return place && device < gpus.n ? at : (struct spot){INSITU_HOST, 0};
}

static inline int gpu_use(int32_t place, int32_t device) {
  struct spot at = spot_of(place, device);

  if (at.place != INSITU_DEVICE || gpus.used[at.device]) return 0;
  gpus.used[at.device] = true;
  return 1;
}

/* Finds the devices that a setup's batches lie on; where there is none, any stream will do. */
static inline void gpus_use(const struct setup *s) {
  int n = 0;

  memset(gpus.used, 0, sizeof gpus.used);
  for (int i = 0; i < s->n_views; i++) n += gpu_use(s->view[i].v.place, s->view[i].v.device);
  if (s->fixed.array) n += gpu_use(s->fixed.v.place, s->fixed.v.device);
  for (uint64_t i = 0; i < s->desc.n_outputs; i++)
    n += gpu_use(s->desc.outputs[i].place, s->desc.outputs[i].device);
  for (int i = 0; !n && i < gpus.n; i++) gpus.used[i] = true;
}

/* ---- what a batch shows ---- */
/* The stream on which an array is used. */
static inline cudaStream_t array_stream(const insitu_array *a, int home) {
  if (a->place == INSITU_DEVICE && gpu_of(home) != a->device) return gpus.stream[a->device];
  return gpu_stream(home);
}

/* Has the trainer's other streams wait for a batch. */
static inline void batch_wait(const insitu_batch *b, int home) {
  insitu_error err = {0};

  for (int i = 0; i < gpus.n; i++) {
    if (i == home || !gpus.used[i]) continue;
    gpus_choose(i);
    if (insitu_batch_wait(b, gpus.stream[i], &err)) differ("insitu_batch_wait: %s", err.message);
    gpus_after(i);
  }
  gpus_choose(home);
}

/* A copy of an array into memory of the case, that may be there only after gpus_sync. */
static inline void *array_copy(const insitu_batch *b, uint64_t i, int home, bool now) {
  const insitu_array *a = &b->arrays[i];
  cudaStream_t stream = array_stream(a, home);
  insitu_error err = {0};
  unsigned char *to = own(a->bytes + 256);

  to += 256 - (uintptr_t)to % 256;
  if (!a->bytes) return to;
  if (a->place == INSITU_HOST || (a->place == INSITU_PINNED && now && chance(50)))
    return memcpy(to, a->data, a->bytes);
  if (a->place == INSITU_DEVICE) gpus_choose(a->device);
  if (!chance(25)) CUDA_OK(cudasim_save(stream, a->data, a->bytes, to));
  else if (insitu_batch_copy_to(b, i, to, a->bytes, stream, &err))
    differ("insitu_batch_copy_to: %s", err.message);
  gpus_choose(home);
  return to;
}

static inline insitu_batch *batch_copy(const insitu_batch *b, int home, bool now) {
  insitu_batch *copy = memcpy(own(sizeof *copy), b, sizeof *b);
  insitu_array *arrays = own(b->n_arrays * sizeof *arrays);

  if (gpus.n) batch_wait(b, home);
  for (uint64_t i = 0; i < b->n_arrays; i++) {
    arrays[i] = b->arrays[i];
    arrays[i].data = array_copy(b, i, home, now);
  }
  copy->arrays = arrays;
  return copy;
}

/* A batch as the host sees it. */
static inline insitu_batch *batch_shown(insitu_batch *b, int home) {
  insitu_batch *shown = batch_copy(b, home, true);

  for (uint64_t i = 0; i < b->n_arrays; i++)
    if ((uintptr_t)b->arrays[i].data % 256) differ("'%s' is not aligned", b->arrays[i].name);
  gpus_sync(home);
  return shown;
}

/* ---- giving back ---- */
/* Has one stream of the trainer's wait for all others. */
static inline void join_streams(int on) {
  for (int i = 0; i < MAX_GPUS + gpus.n; i++) {
    cudaEvent_t event;

    if (i == on || gpu_of(i) >= gpus.n) continue;
    gpus_choose(i);
    CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_OK(cudaEventRecord(event, gpu_stream(i)));
    gpus_choose(on);
    CUDA_OK(cudaStreamWaitEvent(gpu_stream(on), event, 0));
    CUDA_OK(cudaEventDestroy(event));
  }
}

struct give {
  insitu_batch **batch;
  int on;
  bool plain;
};

static inline void *give_back(void *arg) {
  struct give *g = arg;

  gpus_choose(g->on);
  if (g->plain) insitu_batch_release(g->batch);
  else insitu_batch_release_on(g->batch, gpu_stream(g->on));
  return NULL;
}

/* Exports an array of a batch as a tensor, and has its stream read it. */
static inline struct dl tensor_of(insitu_batch *b, uint64_t i, int home, void **twin) {
  const insitu_array *a = &b->arrays[i];
  cudaStream_t stream = array_stream(a, home);
  struct dl t = {NULL, chance(50)};
  insitu_error err = {0};

  *twin = own(a->bytes);
  if (a->place == INSITU_DEVICE) gpus_choose(a->device);
  if (insitu_batch_dlpack(b, i, t.versioned, stream, &t.managed, &err))
    differ("insitu_batch_dlpack: %s", err.message);
  if (dl_tensor(t)->data != a->data) differ("a tensor of '%s' lies elsewhere", a->name);
  if (a->place == INSITU_HOST && a->bytes) memcpy(*twin, a->data, a->bytes);
  else if (a->bytes) CUDA_OK(cudasim_save(stream, dl_tensor(t)->data, a->bytes, *twin));
  gpus_choose(home);
  return t;
}

static inline void drop_tensors(void) {
  while (n_tensors) dl_delete(tensor[--n_tensors]);
}

/* Gives a batch back while the device still reads and overwrites it; its bytes are looked at
 * later. */
static inline void batch_give(insitu_batch **b, int home, uint64_t hash, bool last) {
  insitu_batch *copy = batch_copy(*b, home, false);
  struct late seen = {copy, hash, draw(copy->n_arrays), NULL};
  bool exports = n_tensors < MAX_TENSORS && chance(15), stays = last && chance(50);
  int on = gpus.n && chance(40) ? draw_home() : home;
  struct give give = {b, on, on == home && chance(70)};
  pthread_t thread;

  if (exports) tensor[n_tensors++] = tensor_of(*b, seen.array, home, &seen.twin);
  for (uint64_t i = 0; i < copy->n_arrays; i++) {
    const insitu_array *a = &(*b)->arrays[i];

    if (!a->bytes || a->fixed || !chance(50)) continue;
    if (a->place == INSITU_HOST) memset(a->data, 0xcc, a->bytes);
    else CUDA_OK(cudasim_fill(array_stream(a, home), a->data, a->bytes, 0xcc));
  }
  if (gpus.n) join_streams(on);
  if (n_late == MAX_LATE) gpus_sync(home);
  late[n_late++] = seen;
  if (exports && !stays && chance(50)) dl_delete(tensor[--n_tensors]), exports = false;
  if (!chance(15)) give_back(&give);
  else if (pthread_create(&thread, NULL, give_back, &give) || pthread_join(thread, NULL)) abort();
  gpus_after(on);
  if (exports && !stays) dl_delete(tensor[--n_tensors]);
  gpus_after(on);
}

#else

static inline void gpus_begin(uint64_t number) {
  (void)number;
}
static inline void gpus_sync(int home) {
  (void)home;
}
static inline void gpus_quiet(void) {}
static inline void gpus_end(void) {}
static inline void gpus_choose(int home) {
  (void)home;
}
static inline void gpus_before(int home) {
  (void)home;
}
static inline void gpus_go_on(void) {}
static inline void gpus_after(int home) {
  (void)home;
}
static inline void drop_tensors(void) {}
static inline int draw_home(void) {
  return 0;
}
static inline void *gpu_stream(int home) {
  (void)home;
  return NULL;
}
static inline void gpus_use(const struct setup *s) {
  (void)s;
}
/* -1: there is nothing to place arrays on */
static inline int gpus_there(void) {
  return -1;
}
static inline struct spot spot_of(int32_t place, int32_t device) {
  (void)place;
  (void)device;
  return (struct spot){INSITU_HOST, 0};
}
static inline insitu_batch *batch_shown(insitu_batch *b, int home) {
  (void)home;
  return b;
}

/* Gives a held batch back: until now nothing may have written to it. What is written then must
 * disturb nothing. last: its iterator gives no more. */
static inline void batch_give(insitu_batch **b, int home, uint64_t hash, bool last) {
  (void)home;
  (void)last;
  if (hash_batch(*b) != hash)
    differ("batch %d of epoch %d changed while it was held", (int)(*b)->index, (int)(*b)->epoch);
  for (uint64_t i = 0; i < (*b)->n_arrays; i++)
    if ((*b)->arrays[i].bytes && !(*b)->arrays[i].fixed && chance(50))
      memset((*b)->arrays[i].data, 0xcc, (*b)->arrays[i].bytes);
  insitu_batch_release(b);
}
#endif

static inline void check_place(const insitu_array *out, int32_t place, int32_t device) {
  struct spot want = spot_of(place, device);

  if (out->place != want.place || out->device != want.device)
    differ("'%s', wished at %d of %d, lies at %d of device %d, not %d of %d", out->name, place,
        device, out->place, out->device, want.place, want.device);
}
#endif
