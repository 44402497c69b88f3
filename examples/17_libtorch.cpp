// cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && c++ -std=c++17 -O2 -I. -isystem /usr/include/torch/csrc/api/include examples/17_libtorch.cpp insitubatch.o -o 17_libtorch -ltorch -ltorch_cpu -lc10 -luring -lcurl -llz4 -lzstd -lpthread
/* Needs <ATen/dlpack.h>: apt-get install libtorch-dev, then make test-libtorch */
// Batches as libtorch's tensors, without a copy, through a dataset that torch::data loads from:
// a small convolutional network learns next month's winds from this month's. The state to resume
// from is saved with the dataset, as torch saves a model. Run: ./17_libtorch [ARCHIVE]. Exit
// status: 0 if the network beats "nothing changes" on the months it was trained on, 1 if not, 2 on
// an error.
// A libtorch from elsewhere: give its include and lib folders in place of the system's.
#include "insitubatch.hpp"
#include <ATen/DLConvertor.h>
#include <cstdio>
#include <cstring>
#include <torch/torch.h>
#include <vector>

// An epoch of an iterator as a torch dataset: each item is one batch, a tensor for each array in
// the order of the desc's outputs. Tensors hold the batch's memory and give it back with their last
// copy, so at most max_held batches can be alive. One loader thread: the library has its own.
class Batches
    : public torch::data::datasets::StatefulDataset<Batches, std::vector<at::Tensor>, std::size_t> {
public:
  explicit Batches(insitu::iter &from) : from_(&from) {}

  // torch asks for "so many examples"; what comes is a batch of the desc's size.
  c10::optional<std::vector<at::Tensor>> get_batch(std::size_t) override {
    insitu::batch batch = from_->next();
    if (!batch) return c10::nullopt;
    after_ = batch.after();
    std::vector<at::Tensor> tensors;
    for (uint64_t i = 0; i < batch->n_arrays; i++) {
      void *managed = nullptr;
      insitu::check([&](insitu_error *err) {
        return insitu_batch_dlpack(batch.get(), i, 0, nullptr, &managed, err);
      });
      tensors.push_back(at::fromDLPack(static_cast<DLManagedTensor *>(managed)));
    }
    return tensors;
  }

  // torch calls it before each epoch; at an epoch's end the iterator stands there already.
  void reset() override {}

  c10::optional<std::size_t> size() const override {
    return c10::nullopt;
  }

  void save(torch::serialize::OutputArchive &archive) const override {
    at::Tensor bytes = torch::empty({sizeof after_}, torch::kUInt8);
    std::memcpy(bytes.data_ptr(), &after_, sizeof after_);
    archive.write("insitu_state", bytes, true);
  }

  void load(torch::serialize::InputArchive &archive) override {
    at::Tensor bytes;
    archive.read("insitu_state", bytes, true);
    if (bytes.numel() != static_cast<int64_t>(sizeof after_))
      throw std::runtime_error("the archive holds no insitu_state");
    std::memcpy(&after_, bytes.data_ptr(), sizeof after_);
    from_->restore(after_);
  }

private:
  insitu::iter *from_;
  insitu_state after_{};
};

// A correction to "nothing changes", of two fields by two 3 x 3 convolutions.
struct Net : torch::nn::Module {
  torch::nn::Conv2d in{nullptr}, out{nullptr};
  Net() {
    in = register_module("in", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 8, 3).padding(1)));
    out = register_module("out", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 2, 3).padding(1)));
    torch::nn::init::zeros_(out->weight);
    torch::nn::init::zeros_(out->bias);
  }
  torch::Tensor forward(const torch::Tensor &x) {
    return x + out(torch::tanh(in(x)));
  }
};

static int run(const std::string &archive) {
  enum { EPOCHS = 4 };
  insitu::loader loader = insitu::loader::from_json(R"({
    "url": ")" + archive + R"(", "batch_size": 8, "seed": 3, "variables": [
      {"label": "u", "path": "uwnd", "into": "x", "dtype": "float32",
       "ops": [{"op": "scale", "by": 0.125}]},
      {"label": "v", "path": "vwnd", "into": "x", "dtype": "float32",
       "ops": [{"op": "scale", "by": 0.125}]},
      {"label": "u_next", "path": "uwnd", "into": "y", "dtype": "float32", "offset": 1,
       "ops": [{"op": "scale", "by": 0.125}]},
      {"label": "v_next", "path": "vwnd", "into": "y", "dtype": "float32", "offset": 1,
       "ops": [{"op": "scale", "by": 0.125}]}]})");
  insitu::iter train = loader.iterate(INSITU_TRAIN);
  auto batches =
      torch::data::make_data_loader(Batches(train), torch::data::DataLoaderOptions().workers(0));

  torch::manual_seed(1);
  Net net;
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.01));
  double learned = 0, unchanged = 0;
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    learned = unchanged = 0;
    for (std::vector<at::Tensor> &batch : *batches) {
      torch::Tensor x = batch[0], y = batch[1];
      optimizer.zero_grad();
      torch::Tensor loss = torch::mse_loss(net.forward(x), y);
      loss.backward();
      optimizer.step();
      learned += loss.item<double>();
      unchanged += torch::mse_loss(x, y).item<double>();
      batch.clear(); // gives the batch back
    }
    std::printf("epoch %d  loss %.4f  nothing changes %.4f\n", epoch + 1, learned, unchanged);
  }

  // A checkpoint between two batches, from which another dataset goes on with the same samples.
  Batches first(train);
  first.get_batch(0);
  torch::serialize::OutputArchive saved;
  first.save(saved);
  at::Tensor want = (*first.get_batch(0))[0].clone();
  std::stringstream file;
  saved.save_to(file);
  torch::serialize::InputArchive read;
  read.load_from(file);
  insitu::iter again = loader.iterate(INSITU_TRAIN);
  Batches second(again);
  second.load(read);
  bool same = torch::equal((*second.get_batch(0))[0], want);
  std::printf(
      "the restored dataset %s\n", same ? "goes on with the same samples" : "LOST ITS PLACE");
  return learned < unchanged && same ? 0 : 1;
}

int main(int argc, char **argv) {
  try {
    return run(argc > 1 ? argv[1] : "examples/data/winds.zarr");
  } catch (const std::exception &e) {
    std::fprintf(stderr, "17_libtorch: %s\n", e.what());
    return 2;
  }
}
