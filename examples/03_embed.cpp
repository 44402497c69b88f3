// cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && c++ -std=c++17 -O2 -I. examples/03_embed.cpp insitubatch.o -o 03_embed -luring -lcurl -llz4 -lzstd -lpthread
// Use from C++17, through examples/insitubatch.hpp: the implementation is C, compiled once into an
// object; C++ sees declarations only. Two iterators at once, a batch that outlives its loader, and
// a checkpoint from which another loader goes on. Run: ./03_embed [ARCHIVE]
#include "insitubatch.hpp"
#include <algorithm>
#include <cstdio>

static double mean_speed(const insitu::batch &batch) {
  insitu::view<float> u = batch.values<float>("u");
  double sum = 0;
  for (float x : u) sum += x < 0 ? -x : x;
  return u.size() ? sum / static_cast<double>(u.size()) : 0;
}

static void print(const char *split, const insitu::batch &batch) {
  std::printf("%-5s batch %2d, mean |u| %.2f m/s, months", split, static_cast<int>(batch->index),
      mean_speed(batch));
  for (int64_t month : batch.samples()) std::printf(" %d", static_cast<int>(month));
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
  insitu::batch kept; // the one behind the checkpoint
  {
    insitu::loader loader(desc);
    insitu::iter train = loader.iterate(INSITU_TRAIN), val = loader.iterate(INSITU_VAL);
    for (insitu::batch batch : train) {
      print("train", batch);
      /* 128 plain bytes: write them beside the weights */
      if (batch->index == 2) checkpoint = batch.after();
      if (batch->index == 3) {
        kept = std::move(batch);
      } else if (batch->index == 5) {
        /* in the middle of the epoch: a look at the other split, out of the same threads and
         * memory */
        for (insitu::batch other : val) print("val", other);
      }
    }
  } // the iterators end, then the loader; a batch that is held stays valid
  if (!kept)
    throw std::runtime_error("the train split has fewer than four batches; give a longer archive");
  std::printf("kept batch %d after close: mean |u| %.2f m/s\n", static_cast<int>(kept->index),
      mean_speed(kept));

  insitu::loader loader(desc); // as another process would
  insitu::iter train = loader.iterate(INSITU_TRAIN);
  train.restore(checkpoint);
  insitu::batch batch = train.next();
  if (!batch) throw std::runtime_error("the epoch is over behind the checkpoint");
  auto s = batch.samples(), before = kept.samples();
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
