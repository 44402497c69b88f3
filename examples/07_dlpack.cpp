// cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && c++ -std=c++17 -O2 -I. examples/07_dlpack.cpp insitubatch.o -o 07_dlpack -luring -lcurl -llz4 -lzstd -lpthread
// Batches as DLPack tensors, as libtorch, JAX, TVM or CuPy take them, without a copy. DLPack is a
// few structs, declared here as its specification has them: neither its header nor CUDA is needed.
// Tensors share the batch's memory and hold it: some are kept while more batches come, and after
// the loader is closed. Computes the mean wind speed over the globe for each month of the year.
// Run: ./07_dlpack [ARCHIVE]. Exit status: 0 if all agrees with the archive read at once, 1 if not,
// 2 on any error.  libtorch, for an array on the host or on a device (stream:
// at::cuda::getCurrentCUDAStream()): void *managed; insitu_batch_dlpack(batch, 0, 0, stream,
// &managed, &err); at::Tensor tensor = at::fromDLPack(static_cast<DLManagedTensor *>(managed)); //
// calls the deleter when its last copy ends
#include "insitubatch.h"
#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

// ---- DLPack 1.0 ---------------------------------------------------------------------------------

enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code, bits; // code 0: int, 1: unsigned, 2: float
  uint16_t lanes;
};
struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides; // strides in elements
  uint64_t byte_offset;
};
struct DLPackVersion {
  uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(DLManagedTensorVersioned *self);
  uint64_t flags; // 1: read only, 2: a copy was made
  DLTensor dl_tensor;
};

// ---- a consumer ---------------------------------------------------------------------------------

static void check(insitu_status status, const insitu_error &err) {
  /* INSITU_BUSY would mean that too many batches are held */
  if (status == INSITU_OK || status == INSITU_END) return;
  throw std::runtime_error(std::string(insitu_status_name(status)) + ": " + err.message);
}

// Owns what was exported, as any framework's tensor does; can be moved, not copied.
class Tensor {
  DLManagedTensorVersioned *managed = nullptr;

public:
  Tensor(insitu_batch *batch, uint64_t array, void *stream = nullptr) {
    insitu_error err{};
    void *exported = nullptr;
    check(insitu_batch_dlpack(batch, array, 1, stream, &exported, &err), err);
    managed = static_cast<DLManagedTensorVersioned *>(exported);
    const DLTensor &t = managed->dl_tensor;
    if (managed->version.major != 1 || t.device.device_type == kDLCUDA || t.ndim != 3 ||
        t.dtype.code != 2 || t.dtype.bits != 32 || t.dtype.lanes != 1) {
      managed->deleter(managed); // the destructor does not run after this
      throw std::runtime_error("not a float32 tensor (time, lat, lon) that the host can read");
    }
  }
  Tensor(Tensor &&other) noexcept : managed(std::exchange(other.managed, nullptr)) {}
  Tensor &operator=(Tensor &&other) noexcept {
    std::swap(managed, other.managed);
    return *this;
  }
  ~Tensor() {
    if (managed && managed->deleter) managed->deleter(managed);
  }
  int64_t size(int axis) const {
    return managed->dl_tensor.shape[axis];
  }
  float operator()(int64_t time, int64_t lat, int64_t lon) const {
    const DLTensor &t = managed->dl_tensor;
    const float *first =
        reinterpret_cast<const float *>(static_cast<const char *>(t.data) + t.byte_offset);
    return first[time * t.strides[0] + lat * t.strides[1] + lon * t.strides[2]];
  }
};

constexpr int YEAR = 12;
using Months = std::array<double, YEAR>;

// Mean wind speed over the globe in one month, by area: rows go from pole to pole. u and v: what
// gives a value at (lat, lon).
template <class Field> static double mean_speed(int64_t lats, int64_t lons, Field u, Field v) {
  double sum = 0, areas = 0;
  for (int64_t lat = 0; lat < lats; lat++) {
    double area =
        std::sin(3.14159265358979 * static_cast<double>(lat) / static_cast<double>(lats - 1));
    for (int64_t lon = 0; lon < lons; lon++) sum += area * std::hypot(u(lat, lon), v(lat, lon));
    areas += area * static_cast<double>(lons);
  }
  return sum / areas;
}

struct Year {
  Tensor u, v; // of one batch, which both hold
  Months speeds() const {
    Months months{};
    for (int64_t month = 0; month < YEAR; month++) {
      auto of = [month](const Tensor &t) {
        return [&t, month](int64_t lat, int64_t lon) { return t(month, lat, lon); };
      };
      months[static_cast<size_t>(month)] = mean_speed(u.size(1), u.size(2), of(u), of(v));
    }
    return months;
  }
};

// The same from the arrays as a whole, for comparison: the mean over all years.
static Months read_at_once(insitu_loader *loader) {
  insitu_error err{};
  insitu_shape shape{};
  std::vector<float> wind[2];
  for (int c = 0; c < 2; c++) {
    insitu_variable variable{};
    variable.path = c ? "vwnd" : "uwnd";
    variable.dtype = INSITU_F32;
    check(insitu_read(loader, &variable, nullptr, 0, &shape, &err), err);
    wind[c].resize(shape.bytes / sizeof(float));
    check(insitu_read(loader, &variable, wind[c].data(), shape.bytes, nullptr, &err), err);
  }
  int64_t months = shape.shape[0], lats = shape.shape[1], lons = shape.shape[2];
  Months mean{};
  for (int64_t month = 0; month < months; month++) {
    auto of = [=](const float *all) {
      return [=](int64_t lat, int64_t lon) { return all[(month * lats + lat) * lons + lon]; };
    };
    double speed = mean_speed(lats, lons, of(wind[0].data()), of(wind[1].data()));
    mean[static_cast<size_t>(month % YEAR)] += speed * YEAR / static_cast<double>(months);
  }
  return mean;
}

static int run(const char *archive) {
  insitu_variable variables[2] = {};
  variables[0].path = "uwnd", variables[1].path = "vwnd";
  for (insitu_variable &variable : variables)
    variable.label = variable.path, variable.dtype = INSITU_F32;
  insitu_loader_desc desc{};
  desc.api = INSITU_API, desc.url = archive, desc.sample_dim = "time";
  desc.variables = variables, desc.n_variables = 2;
  desc.batch_size = YEAR, desc.lanes = 1; // a batch is a year: the archive starts in a January
  insitu_iter_desc all{};
  all.api = INSITU_API, all.split = INSITU_ALL, all.order = INSITU_SEQUENTIAL;
  all.max_held = 4; // three that are kept, one at work: a tensor holds its batch
  insitu_error err{};
  insitu_loader *loader = nullptr;
  insitu_iter *iter = nullptr;
  check(insitu_loader_open(&desc, &loader, &err), err);
  std::vector<std::pair<Year, Months>> kept; // and what was computed from it then
  Months expected = read_at_once(loader), sum{}, mean{};
  check(insitu_iter_open(loader, &all, &iter, &err), err);
  insitu_batch *batch = nullptr;
  insitu_status status;
  int years = 0;
  for (; (status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK; years++) {
    Year year{Tensor(batch, 0), Tensor(batch, 1)};
    insitu_batch_release(&batch); // the tensors hold it now
    if (year.u.size(0) != YEAR) throw std::runtime_error("the archive must hold whole years");
    Months speeds = year.speeds();
    for (size_t k = 0; k < YEAR; k++) sum[k] += speeds[k];
    if (years % 4 == 0) kept.emplace_back(std::move(year), speeds);
  }
  check(status, err);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader); // what the kept tensors hold stays

  int wrong = 0;
  for (size_t k = 0; k < YEAR; k++) {
    mean[k] = sum[k] / years;
    wrong += !(std::fabs(mean[k] - expected[k]) < 1e-9);
    std::printf("month %2d  %.3f m/s\n", static_cast<int>(k) + 1, mean[k]);
  }
  for (const auto &[year, then] : kept) wrong += year.speeds() != then;
  std::printf(
      "%d years; batches, what is kept of them after close, and the archive read at once %s\n",
      years, wrong ? "DIFFER" : "agree");
  return wrong ? 1 : 0;
}

int main(int argc, char **argv) {
  try {
    return run(argc > 1 ? argv[1] : "examples/data/winds.zarr");
  } catch (const std::exception &e) {
    std::fprintf(stderr, "07_dlpack: %s\n", e.what());
    return 2;
  }
}
