// cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && c++ -std=c++17 -O2 -I. examples/03_embed.cpp insitubatch.o -o 03_embed -luring -lcurl -llz4 -lzstd -lpthread
// Use from C++17: the implementation is C, compiled once into an object; C++ sees declarations
// only. Owning handles, errors as exceptions, typed views, two iterators at once, and a checkpoint
// from which another loader goes on. Run: ./03_embed [ARCHIVE]
#include "insitubatch.h"
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace wind {

struct Error : std::runtime_error {
  explicit Error(const insitu_error &e)
      : std::runtime_error(std::string(insitu_status_name(e.status)) + ": " + e.message) {}
};

// Runs one call of the library, which takes its error last; throws on an error, returns what is
// none (OK, END, TIMEOUT...).
template <class Call> insitu_status check(Call call) {
  insitu_error err{};
  insitu_status status = call(&err);
  if (status < 0) throw Error(err);
  return status;
}

// The library's handles are closed by address: close(&handle).
template <class T, void (*close)(T **)> struct Closer {
  void operator()(T *handle) const noexcept {
    close(&handle);
  }
};
using Loader = std::unique_ptr<insitu_loader, Closer<insitu_loader, insitu_loader_close>>;
/* may end before or after its loader */
using Iter = std::unique_ptr<insitu_iter, Closer<insitu_iter, insitu_iter_close>>;
/* may outlive both */
using Batch = std::unique_ptr<insitu_batch, Closer<insitu_batch, insitu_batch_release>>;

Loader open(const insitu_loader_desc &desc) {
  insitu_loader *loader = nullptr;
  check([&](insitu_error *err) { return insitu_loader_open(&desc, &loader, err); });
  return Loader(loader);
}

Iter iterate(const Loader &loader, int32_t split) {
  insitu_iter_desc desc{};
  desc.api = INSITU_API;
  desc.split = split;
  insitu_iter *iter = nullptr;
  check([&](insitu_error *err) { return insitu_iter_open(loader.get(), &desc, &iter, err); });
  return Iter(iter);
}

// The next batch; empty at the end of an epoch. INSITU_BUSY (too many batches are held) and
// INSITU_CANCELLED are errors here.
Batch next(const Iter &iter) {
  insitu_batch *batch = nullptr;
  insitu_status status = check(
      [&](insitu_error *err) { return insitu_iter_next(iter.get(), INSITU_FOREVER, &batch, err); });
  if (status != INSITU_OK && status != INSITU_END)
    throw std::runtime_error(insitu_status_name(status));
  return Batch(batch);
}

// A typed view that owns nothing, like C++20's std::span: begin, end, size and [].
template <class T> struct View {
  T *first;
  size_t count;
  T *begin() const {
    return first;
  }
  T *end() const {
    return first + count;
  }
  size_t size() const {
    return count;
  }
  T &operator[](size_t i) const {
    return first[i];
  }
};

View<const int64_t> samples(const Batch &batch) {
  return {batch->sample_indices, batch->rows};
}

View<float> values(const Batch &batch, const char *name) {
  const insitu_array *array = insitu_batch_find(batch.get(), name);
  if (!array || array->dtype != INSITU_F32)
    throw std::invalid_argument(std::string("no float array ") + name + " in the batch");
  return {static_cast<float *>(array->data), array->bytes / sizeof(float)};
}

} // namespace wind

static double mean_speed(const wind::Batch &batch) {
  auto u = wind::values(batch, "u");
  double sum = 0;
  for (float x : u) sum += x < 0 ? -x : x;
  return u.size() ? sum / static_cast<double>(u.size()) : 0;
}

static void print(const char *split, const wind::Batch &batch) {
  std::printf("%-5s batch %2d, mean |u| %.2f m/s, months", split, static_cast<int>(batch->index),
      mean_speed(batch));
  for (int64_t month : wind::samples(batch)) std::printf(" %d", static_cast<int>(month));
  std::printf("\n");
}

static int run(const char *archive) {
  insitu_variable variable{};
  variable.label = "u";
  variable.path = "uwnd";
  variable.dtype = INSITU_F32;
  insitu_loader_desc desc{};
  desc.api = INSITU_API;
  desc.url = archive;
  desc.variables = &variable;
  desc.n_variables = 1;
  desc.batch_size = 8;
  desc.seed = 7;

  insitu_state checkpoint{};
  wind::Batch kept; // the one behind the checkpoint
  {
    wind::Loader loader = wind::open(desc);
    wind::Iter train = wind::iterate(loader, INSITU_TRAIN), val = wind::iterate(loader, INSITU_VAL);
    while (wind::Batch batch = wind::next(train)) {
      print("train", batch);
      /* 128 plain bytes: write them beside the weights */
      if (batch->index == 2) checkpoint = batch->after;
      if (batch->index == 3) {
        kept = std::move(batch);
      } else if (batch->index == 5) {
        /* in the middle of the epoch: a look at the other split, out of the same threads and
         * memory */
        while (wind::Batch other = wind::next(val)) print("val", other);
      }
    }
  } // the iterators end, then the loader; a batch that is held stays valid
  if (!kept)
    throw std::runtime_error("the train split has fewer than four batches; give a longer archive");
  std::printf("kept batch %d after close: mean |u| %.2f m/s\n", static_cast<int>(kept->index),
      mean_speed(kept));

  wind::Loader loader = wind::open(desc); // as another process would
  wind::Iter train = wind::iterate(loader, INSITU_TRAIN);
  wind::check(
      [&](insitu_error *err) { return insitu_iter_restore(train.get(), &checkpoint, err); });
  wind::Batch batch = wind::next(train);
  if (!batch) throw std::runtime_error("the epoch is over behind the checkpoint");
  auto s = wind::samples(batch), before = wind::samples(kept);
  bool same = std::equal(s.begin(), s.end(), before.begin(), before.end());
  print("again", batch);
  std::printf(
      "the restored iterator %s\n", same ? "goes on with the same samples" : "LOST ITS PLACE");
  return same ? 0 : 1;
}

int main(int argc, char **argv) {
  try {
    return run(argc > 1 ? argv[1] : "examples/data/winds.zarr");
  } catch (const std::exception &e) {
    std::fprintf(stderr, "03_embed: %s\n", e.what());
    return 2;
  }
}
