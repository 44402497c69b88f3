// insitubatch.hpp: insitubatch.h for C++17. Owning handles that move and do not copy, errors as
// exceptions, an epoch as a range, arrays as typed views. A file to copy beside insitubatch.h, and
// to change; examples/03_embed.cpp and examples/17_libtorch.cpp use it. The implementation stays C:
// compiled once into an object of its own, or a library.
//
//     insitu::loader loader(desc);              // or insitu::loader::from_json(text)
//     insitu::iter train = loader.iterate(INSITU_TRAIN);
//     for (insitu::batch batch : train) {       // one epoch; another loop gives the next
//       insitu::view<float> u = batch.values<float>("u");
//       ...
//     }                                         // a batch is released where it ends
//
// Threads: as insitubatch.h says of the functions that stand behind; an exception leaves handles as
// they were.
#ifndef INSITUBATCH_HPP
#define INSITUBATCH_HPP
#include "insitubatch.h"
#include <algorithm>
#include <complex>
#include <cstddef>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace insitu {

// What a call of the library failed with. status: also INSITU_BUSY and INSITU_CANCELLED, where a
// batch was asked for.
class error : public std::runtime_error {
public:
  explicit error(insitu_status failed, const std::string &message, bool again = false)
      : std::runtime_error(std::string(insitu_status_name(failed)) + ": " + message),
        status(failed), retryable(again) {}
  insitu_status status;
  bool retryable; // the same call may work later
};

// Runs a call that takes its insitu_error last, and throws where it fails; gives back what is no
// error: INSITU_OK, INSITU_END, INSITU_TIMEOUT...
template <class Call> insitu_status check(Call call) {
  insitu_error err{};
  insitu_status status = call(&err);
  if (status < 0) throw error(status, err.message, err.retryable != 0);
  return status;
}

// Elements that somebody else owns, like C++20's std::span.
template <class T> class view {
public:
  view(T *first, std::size_t count) : first_(first), count_(count) {}
  T *begin() const {
    return first_;
  }
  T *end() const {
    return first_ + count_;
  }
  T *data() const {
    return first_;
  }
  std::size_t size() const {
    return count_;
  }
  T &operator[](std::size_t i) const {
    return first_[i];
  }

private:
  T *first_;
  std::size_t count_;
};

// The insitu_dtype that C++ calls T.
template <class T> constexpr int32_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return INSITU_BOOL;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return INSITU_C64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return INSITU_C128;
  else if constexpr (std::is_floating_point_v<T> && sizeof(T) == 4) return INSITU_F32;
  else if constexpr (std::is_floating_point_v<T> && sizeof(T) == 8) return INSITU_F64;
  else {
    static_assert(std::is_integral_v<T>, "no array has elements of this type");
    return (std::is_signed_v<T> ? 0 : 1) << 8 | static_cast<int32_t>(8 * sizeof(T));
  }
}

// A batch, which is released where this ends; empty where default-made, moved from or released. It
// may outlive its iterator and its loader.
class batch {
public:
  batch() = default;
  explicit batch(insitu_batch *handle) : handle_(handle) {}
  explicit operator bool() const {
    return handle_ != nullptr;
  }
  insitu_batch *get() const {
    return handle_.get();
  }
  const insitu_batch *operator->() const {
    return handle_.get();
  }

  // Gives it back; with `stream`, once that has used it.
  void release() {
    handle_.reset();
  }
  void release_on(void *stream) {
    insitu_batch *handle = handle_.release();
    insitu_batch_release_on(&handle, stream);
  }

  const insitu_array &array(const char *name) const {
    const insitu_array *found = insitu_batch_find(handle_.get(), name);
    if (!found)
      throw error(INSITU_E_NOTFOUND, std::string("the batch has no array '") + name + "'");
    return *found;
  }

  // All elements of an array on the host, in C order; array(name).shape has its axes.
  template <class T> view<T> values(const char *name) const {
    const insitu_array &a = array(name);
    if (a.dtype != dtype_of<std::remove_cv_t<T>>())
      throw error(INSITU_E_DTYPE, std::string("array '") + name + "' has elements of another type");
    if (a.place == INSITU_DEVICE)
      throw error(INSITU_E_DEVICE, std::string("array '") + name + "' lies on a device");
    return {static_cast<T *>(a.data), static_cast<std::size_t>(a.bytes / sizeof(T))};
  }

  // What the rows show: see insitu_batch.sample_indices.
  view<const int64_t> samples() const {
    return {handle_->sample_indices, static_cast<std::size_t>(handle_->rows)};
  }

  // The state to go on from behind this batch: 128 bytes to write beside the weights.
  const insitu_state &after() const {
    return handle_->after;
  }

private:
  struct closer {
    void operator()(insitu_batch *handle) const noexcept {
      insitu_batch_release(&handle);
    }
  };
  std::unique_ptr<insitu_batch, closer> handle_;
};

// An iterator over a split. Each range-for goes to the end of an epoch; the next one is the next
// epoch.
class iter {
public:
  explicit iter(insitu_iter *handle) : handle_(handle) {}
  insitu_iter *get() const {
    return handle_.get();
  }

  // The next batch; an empty one at the end of an epoch.
  batch next(int64_t timeout_ms = INSITU_FOREVER) {
    insitu_batch *found = nullptr;
    insitu_status status =
        check([&](insitu_error *err) { return insitu_iter_next(get(), timeout_ms, &found, err); });
    if (status != INSITU_OK && status != INSITU_END)
      throw error(
          status, status == INSITU_BUSY ? "release a batch that is held first" : "no batch came");
    return batch(found);
  }

  void set_epoch(uint64_t epoch) {
    check([&](insitu_error *err) { return insitu_iter_set_epoch(get(), epoch, err); });
  }
  void restore(const insitu_state &state) {
    check([&](insitu_error *err) { return insitu_iter_restore(get(), &state, err); });
  }

  // A range of batches that are taken as the loop comes to them: `for (insitu::batch b : train)`.
  class cursor {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = batch;
    using difference_type = std::ptrdiff_t;
    using pointer = batch *;
    using reference = batch &&;
    cursor() = default;
    explicit cursor(iter *of) : of_(of), at_(of->next()) {}
    batch &&operator*() {
      return std::move(at_);
    }
    cursor &operator++() {
      at_.release(); // the next one may be in its memory
      at_ = of_->next();
      ended_ = !at_;
      return *this;
    }
    bool operator!=(const cursor &) const { // only ever compared with the end
      return !ended_;
    }

  private:
    iter *of_ = nullptr;
    batch at_;
    bool ended_ = !at_;
  };
  cursor begin() {
    return cursor(this);
  }
  cursor end() {
    return {};
  }

private:
  struct closer {
    void operator()(insitu_iter *handle) const noexcept {
      insitu_iter_close(&handle);
    }
  };
  std::unique_ptr<insitu_iter, closer> handle_;
};

// An archive that is open for training. Iterators may end before or after it.
class loader {
public:
  explicit loader(const insitu_loader_desc &desc) {
    insitu_loader *opened = nullptr;
    check([&](insitu_error *err) { return insitu_loader_open(&desc, &opened, err); });
    handle_.reset(opened);
  }
  static loader from_json(const std::string &text, const insitu_loader_desc *base = nullptr) {
    insitu_loader *opened = nullptr;
    check([&](insitu_error *err) {
      return insitu_loader_open_json(text.c_str(), base, &opened, err);
    });
    return loader(opened);
  }
  insitu_loader *get() const {
    return handle_.get();
  }

  iter iterate(const insitu_iter_desc &desc) {
    insitu_iter *opened = nullptr;
    check([&](insitu_error *err) { return insitu_iter_open(get(), &desc, &opened, err); });
    return iter(opened);
  }
  iter iterate(int32_t split, int32_t order = INSITU_AUTO) {
    insitu_iter_desc desc{};
    desc.api = INSITU_API;
    desc.split = split;
    desc.order = order;
    return iterate(desc);
  }

  // Everything that is known of it, as JSON.
  std::string describe() const {
    std::string text(insitu_loader_describe(get(), nullptr, 0) + 4096, '\0');
    uint64_t length = insitu_loader_describe(get(), &text[0], text.size());
    text.resize(std::min<uint64_t>(length, text.size() - 1));
    return text;
  }

private:
  explicit loader(insitu_loader *opened) : handle_(opened) {}
  struct closer {
    void operator()(insitu_loader *handle) const noexcept {
      insitu_loader_close(&handle);
    }
  };
  std::unique_ptr<insitu_loader, closer> handle_;
};

} // namespace insitu
#endif
