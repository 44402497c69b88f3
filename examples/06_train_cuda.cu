// nvcc -x c -c -O2 -D_GNU_SOURCE -DINSITU_WITH_CUDA -DINSITU_IMPLEMENTATION insitubatch.h -o insitubatch.o && nvcc -std=c++20 -O2 -arch=native -I. examples/06_train_cuda.cu insitubatch.o -o 06_train_cuda -luring -lcurl -llz4 -lzstd -lpthread
// Trains the forecaster of 02_train_winds.c on a GPU: next month's winds over the globe from this
// month's, scored against persistence (nothing changes) on years that it has not seen. Batches
// arrive in device memory while earlier ones are computed on: the host only queues kernels, and
// waits for the device once an epoch, to print the error. Without a device the same functions run
// on the host. Run: ./06_train_cuda [ARCHIVE]. Exit status: 0 if the forecast beats persistence, 1
// if not, 2 on any error. The model works on anomalies, departures from that month's mean over the
// years, of all n grid points and components of the wind: forecast[i] = damp[i] * anomaly[i] +
// sum_k decode[k][i] * tanh(sum_j encode[k][j] * anomaly[j])
#include "insitubatch.h"
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

/* the arrays of a batch, (rows, lat, lon) each */
enum { U, V, U_NEXT, V_NEXT, ARRAYS };
/* the archive starts in a January: month = anchor % YEAR */
enum { YEAR = 12, HIDDEN = 4, EPOCHS = 20, BATCH = 8, PARTS = 128 };
/* parameters of each value */
enum { DAMP = 0, ENCODE = 1, DECODE = ENCODE + HIDDEN, KINDS = DECODE + HIDDEN };
/* RATE, DECAY: of AdamW; UNIT: of anomalies, in m/s */
constexpr float PI = 3.14159265f, RATE = 0.02f, DECAY = 1, UNIT = 2;

// All that a kernel gets, by value. The pointers lead to device memory, or without a device to host
// memory.
struct Work {
  uint64_t lats, lons, field, n;    // grid; field = lats * lons; n = 2 * field values, u before v
  float *climate;                   // (YEAR, n) m/s: of each month of the year: sums, then means
  float *parameter, *mean, *square; // (KINDS, n); Adam's running moments
  /* (BATCH, n) in UNIT: anomaly, that of a month later, what the forecast misses it by */
  float *now, *next, *miss;
  /* (BATCH, HIDDEN, PARTS); (BATCH, HIDDEN): the tanh, the error's slope before it */
  float *part, *hidden, *back;
  float *error, *persistence;         // (n) in (m/s)^2: the sums of an epoch's squared errors
  const float *array[ARRAYS];         // of the batch
  uint64_t index, rows, month[BATCH]; // of the batch
  float months[YEAR];                 // how many are in climate's sums
  /* of this step; the shares that Adam's moments have reached, having started at zero */
  float rate, first, second;
};

// ---- the kernels' bodies: what thread i does ----------------------------------------------------

#define BODY __host__ __device__ static inline

/* array: U or U_NEXT, for both components */
BODY float wind(const Work &w, int array, uint64_t row, uint64_t value) {
  return w.array[array + (value >= w.field)][row * w.field + value % w.field];
}

/* of its grid point, 1 on average: rows go from pole to pole */
BODY float area(const Work &w, uint64_t value) {
  float step = PI / (float)(w.lats - 1);
  return sinf(step * (float)(value % w.field / w.lons)) * tanf(step / 2) * (float)w.lats;
}

// i: value. Every month is the one after another, but for the first.
BODY void add_months(const Work &w, uint64_t i) {
  for (uint64_t row = 0; row < w.rows; row++)
    w.climate[(w.month[row] + 1) % YEAR * w.n + i] += wind(w, U_NEXT, row, i);
}

// i: value. From sums to means; and all parameters stay zero but encode's, which start at random:
// the bits of j, well mixed.
BODY void begin(const Work &w, uint64_t i) {
  for (uint64_t month = 0; month < YEAR; month++) w.climate[month * w.n + i] /= w.months[month];
  for (uint64_t j = ENCODE * w.n + i; j < DECODE * w.n; j += w.n) {
    uint64_t bits = j * 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9u;
    w.parameter[j] = ((float)(bits >> 40) / 8388608 - 1) / sqrtf((float)w.n);
  }
}

// i: row and value.
BODY void anomalies(const Work &w, uint64_t i) {
  uint64_t row = i / w.n, at = i % w.n, month = w.month[row];
  w.now[i] = (wind(w, U, row, at) - w.climate[month * w.n + at]) / UNIT;
  w.next[i] = (wind(w, U_NEXT, row, at) - w.climate[(month + 1) % YEAR * w.n + at]) / UNIT;
}

// Two sums over the globe: forwards of encode * anomaly; backwards of decode * what the forecast
// misses. i: row, hidden unit and part: of the PARTS of a sum, each takes every PARTS-th value, and
// squash adds them.
template <int kind> BODY void sum_part(const Work &w, uint64_t i) {
  const float *x = (kind == ENCODE ? w.now : w.miss) + i / PARTS / HIDDEN * w.n;
  const float *parameter = w.parameter + (kind + i / PARTS % HIDDEN) * w.n;
  float sum = 0;
  for (uint64_t at = i % PARTS; at < w.n; at += PARTS) sum += x[at] * parameter[at];
  w.part[i] = sum;
}
// i: row and hidden unit.
template <int kind> BODY void squash(const Work &w, uint64_t i) {
  float sum = 0;
  for (uint64_t k = 0; k < PARTS; k++) sum += w.part[i * PARTS + k];
  if (kind == ENCODE) w.hidden[i] = tanhf(sum);
  else w.back[i] = sum * (1 - w.hidden[i] * w.hidden[i]);
}

// i: value. Each row's forecast, and persistence, against what came.
BODY void compare(const Work &w, uint64_t i) {
  if (w.index == 0) w.error[i] = w.persistence[i] = 0; // an epoch begins
  for (uint64_t row = 0; row < w.rows; row++) {
    float forecast = w.parameter[DAMP * w.n + i] * w.now[row * w.n + i];
    for (int k = 0; k < HIDDEN; k++)
      forecast += w.parameter[(DECODE + k) * w.n + i] * w.hidden[row * HIDDEN + k];
    float miss = forecast - w.next[row * w.n + i],
          change = wind(w, U_NEXT, row, i) - wind(w, U, row, i);
    w.miss[row * w.n + i] = area(w, i) * miss;
    w.error[i] += area(w, i) * miss * miss * UNIT * UNIT;
    w.persistence[i] += area(w, i) * change * change;
  }
}

// i: kind and value. The gradient of half the squared error, then a step of Adam with decoupled
// weight decay.
BODY void learn(const Work &w, uint64_t i) {
  uint64_t kind = i / w.n, at = i % w.n;
  float g = 0;
  for (uint64_t row = 0; row < w.rows; row++) {
    const float *hidden = w.hidden + row * HIDDEN, *back = w.back + row * HIDDEN;
    float now = w.now[row * w.n + at], miss = w.miss[row * w.n + at];
    g += (kind == DAMP       ? miss * now
             : kind < DECODE ? back[kind - ENCODE] * now
                             : miss * hidden[kind - DECODE]) /
         (float)w.rows;
  }
  w.mean[i] += 0.1f * (g - w.mean[i]);
  w.square[i] += 0.01f * (g * g - w.square[i]);
  if (kind != DAMP) w.parameter[i] *= 1 - w.rate * DECAY;
  /* encode sums over n */
  float rate = kind == DAMP    ? w.rate
               : kind < DECODE ? 0.2f * w.rate / sqrtf((float)w.n)
                               : 0.2f * w.rate;
  w.parameter[i] -= rate * (w.mean[i] / w.first) / (sqrtf(w.square[i] / w.second) + 1e-8f);
}

// ---- running them -------------------------------------------------------------------------------

static bool on_device;
static cudaStream_t stream; // of all kernels; the loader hands its batches over to it

static insitu_status check(insitu_status status, const char *message) {
  if (status == INSITU_OK || status == INSITU_END) return status;
  std::fprintf(stderr, "06_train_cuda: %s: %s\n", insitu_status_name(status), message);
  std::exit(2);
}
static void check(cudaError_t error) {
  check(error ? INSITU_E_DEVICE : INSITU_OK, cudaGetErrorString(error));
}

template <void (*body)(const Work &, uint64_t)>
__global__ void kernel(const Work w, uint64_t threads) {
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < threads) body(w, i);
}
template <void (*body)(const Work &, uint64_t)> static void run(const Work &w, uint64_t threads) {
  if (on_device) kernel<body><<<(unsigned)(threads / 256 + 1), 256, 0, stream>>>(w, threads);
  if (on_device) return check(cudaGetLastError());
  for (uint64_t i = 0; i < threads; i++) body(w, i);
}

static float *zeros(uint64_t n) { // until the program ends
  void *p = on_device ? nullptr : std::calloc(n, sizeof(float));
  if (on_device) check(cudaMalloc(&p, n * sizeof(float)));
  if (on_device) check(cudaMemsetAsync(p, 0, n * sizeof(float), stream));
  return check(p ? INSITU_OK : INSITU_E_NOMEM, "no memory"), static_cast<float *>(p);
}

/* here alone the host waits for the device */
static double rmse(const Work &w, const float *squares, uint64_t rows) {
  std::vector<float> copy(w.n);
  if (on_device)
    check(
        cudaMemcpyAsync(copy.data(), squares, w.n * sizeof(float), cudaMemcpyDeviceToHost, stream));
  if (on_device) check(cudaStreamSynchronize(stream));
  else copy.assign(squares, squares + w.n);
  double sum = 0;
  for (float x : copy) sum += x;
  return std::sqrt(sum / (double)(w.n * rows));
}

static insitu_iter *open_iter(insitu_loader *loader, int32_t split, int32_t order) {
  insitu_error err{};
  insitu_iter *iter = nullptr;
  insitu_iter_desc desc{.api = INSITU_API, .split = split, .order = order, .stream = stream};
  check(insitu_iter_open(loader, &desc, &iter, &err), err.message);
  return iter;
}

// One epoch: step queues what is to be done with a batch. Returns the rows. The batch goes back at
// once: its memory is filled anew when the stream has done what was queued before, and nobody waits
// for that here.
template <class Step> static uint64_t each_batch(insitu_iter *iter, Work &w, Step step) {
  insitu_error err{};
  insitu_batch *batch = nullptr;
  uint64_t rows = 0;
  while (check(insitu_iter_next(iter, INSITU_FOREVER, &batch, &err), err.message) == INSITU_OK) {
    for (int a = 0; a < ARRAYS; a++) w.array[a] = static_cast<const float *>(batch->arrays[a].data);
    /* on the host */
    for (uint64_t row = 0; row < batch->rows; row++)
      w.month[row] = (uint64_t)batch->sample_indices[row] % YEAR;
    w.index = batch->index, rows += w.rows = batch->rows;
    step();
    insitu_batch_release(&batch);
  }
  return rows;
}

static void forecast(const Work &w) {
  run<anomalies>(w, w.rows * w.n);
  run<sum_part<ENCODE>>(w, w.rows * HIDDEN * PARTS);
  run<squash<ENCODE>>(w, w.rows * HIDDEN);
  run<compare>(w, w.n);
}

static Work prepare(insitu_loader *loader) {
  const insitu_array *u = insitu_loader_array(loader, U), *v = insitu_loader_array(loader, V);
  bool same = u->ndim == 3 && v->ndim == 3 && u->shape[1] > 1 && u->shape[1] == v->shape[1] &&
              u->shape[2] == v->shape[2];
  check(same ? INSITU_OK : INSITU_E_SHAPE, "uwnd and vwnd must both be (time, lat, lon)");
  on_device = u->place == INSITU_DEVICE; // known before anything is read
  cudaDeviceProp device{};
  if (on_device) check(cudaGetDeviceProperties(&device, u->device));
  if (on_device) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf(
      "%s\n", on_device ? device.name : "no device: the same kernels' bodies run on the host");
  Work w{.lats = (uint64_t)u->shape[1], .lons = (uint64_t)u->shape[2]};
  w.field = w.lats * w.lons, w.n = 2 * w.field;
  w.climate = zeros(YEAR * w.n), w.part = zeros(BATCH * HIDDEN * PARTS);
  w.parameter = zeros(KINDS * w.n), w.mean = zeros(KINDS * w.n), w.square = zeros(KINDS * w.n);
  w.now = zeros(BATCH * w.n), w.next = zeros(BATCH * w.n), w.miss = zeros(BATCH * w.n);
  w.hidden = zeros(BATCH * HIDDEN), w.back = zeros(BATCH * HIDDEN), w.error = zeros(w.n),
  w.persistence = zeros(w.n);
  return w;
}

int main(int argc, char **argv) {
  const char *const labels[ARRAYS] = {"u", "v", "u_next", "v_next"}, *const paths[ARRAYS] = {"uwnd",
                                                                         "vwnd", "uwnd", "vwnd"};
  const int32_t place = INSITU_DEVICE_OR_HOST;
  insitu_variable vars[ARRAYS];
  for (int a = 0; a < ARRAYS; a++)
    vars[a] = {.label = labels[a],
        .path = paths[a],
        .offset = a / U_NEXT,
        .dtype = INSITU_F32,
        .place = place};
  insitu_loader_desc desc{
      .api = INSITU_API, .url = argc > 1 ? argv[1] : "examples/data/winds.zarr"};
  desc.variables = vars, desc.n_variables = ARRAYS, desc.sample_dim = "time",
  desc.batch_size = BATCH, desc.lanes = 1;
  /* of eleven years */
  desc.split[0].fraction = 8.0 / 11, desc.split[1].fraction = 1.0 / 11,
  desc.split[2].fraction = 2.0 / 11;
  insitu_error err{};
  insitu_loader *loader = nullptr;
  check(insitu_loader_open(&desc, &loader, &err), err.message);
  Work w = prepare(loader);

  insitu_iter *past = open_iter(loader, INSITU_TRAIN, INSITU_SEQUENTIAL);
  each_batch(past, w, [&] {
    for (uint64_t row = 0; row < w.rows; row++) w.months[(w.month[row] + 1) % YEAR]++;
    run<add_months>(w, w.n);
  });
  insitu_iter_close(&past);
  run<begin>(w, w.n);
  insitu_iter *train = open_iter(loader, INSITU_TRAIN, INSITU_SHUFFLED);
  for (int epoch = 1, steps = 0; epoch <= EPOCHS; epoch++) {
    w.rate = RATE * (1 + cosf(PI * (float)(epoch - 1) / (float)EPOCHS)) / 2;
    uint64_t rows = each_batch(train, w, [&] {
      steps++, w.first = 1 - powf(0.9f, (float)steps), w.second = 1 - powf(0.99f, (float)steps);
      forecast(w);
      run<sum_part<DECODE>>(w, w.rows * HIDDEN * PARTS);
      run<squash<DECODE>>(w, w.rows * HIDDEN);
      run<learn>(w, KINDS * w.n);
    });
    std::printf("epoch %2d  train RMSE %.4f m/s\n", epoch, rmse(w, w.error, rows));
  }

  insitu_iter *test = open_iter(loader, INSITU_TEST, INSITU_SEQUENTIAL);
  uint64_t rows = each_batch(test, w, [&] { forecast(w); });
  double model = rmse(w, w.error, rows), persistence = rmse(w, w.persistence, rows);
  std::printf("test RMSE %.3f m/s, persistence %.3f: better by %.1f %%\n", model, persistence,
      100 - 100 * model / persistence);
  insitu_stats stats;
  check(insitu_loader_stats(loader, &stats, &err), err.message);
  std::printf("%" PRIu64 " batches, %" PRIu64
              " uploads of %.1f MB in all; %.1f %% of the time was spent waiting for batches\n",
      stats.batches, stats.uploads, (double)stats.uploaded_bytes / 1e6, 100 * stats.stall_share);
  insitu_iter_close(&train);
  insitu_iter_close(&test);
  insitu_loader_close(&loader);
  return model < persistence ? 0 : 1;
}
