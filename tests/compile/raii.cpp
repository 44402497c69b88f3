/* What examples/insitubatch.hpp promises: handles move and do not copy, errors are exceptions with
 * the library's words, a range-for is one epoch, views have types. tests/compile/compile_checks.sh
 * builds and runs it: raii ARCHIVE. */
#include "../../examples/insitubatch.hpp"
#include <cstdio>
#include <cstring>

static int failed;
#define CHECK(is)                                                                                  \
  ((is) ? (void)0 : (void)(failed++, std::fprintf(stderr, "line %d: not %s\n", __LINE__, #is)))

template <class T> constexpr bool owns() {
  return !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
         std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
}
static_assert(owns<insitu::loader>() && owns<insitu::iter>() && owns<insitu::batch>(), "");
static_assert(
    insitu::dtype_of<float>() == INSITU_F32 && insitu::dtype_of<double>() == INSITU_F64, "");
static_assert(
    insitu::dtype_of<int8_t>() == INSITU_I8 && insitu::dtype_of<uint64_t>() == INSITU_U64, "");
static_assert(insitu::dtype_of<bool>() == INSITU_BOOL, "");
static_assert(insitu::dtype_of<std::complex<float>>() == INSITU_C64, "");

/* The status that a call throws; 0: it does not. */
template <class Call> insitu_status thrown(Call call, const char *words) {
  try {
    call();
  } catch (const insitu::error &e) {
    CHECK(std::strstr(e.what(), words));
    return e.status;
  }
  return 0;
}

int main(int argc, char **argv) {
  const std::string url = argc > 1 ? argv[1] : "examples/data/winds.zarr";
  const std::string text = R"({"variables": [{"label": "u", "path": "uwnd", "dtype": "float32"}],
                               "batch_size": 8, "url": ")";
  CHECK(thrown([] { insitu::loader::from_json("{\"urll\": 1}"); }, "url") == INSITU_E_ARG);
  CHECK(thrown([&] { insitu::loader::from_json(text + "nowhere\"}"); }, "nowhere") ==
        INSITU_E_NOTFOUND);

  insitu::loader loader = insitu::loader::from_json(text + url + "\"}");
  CHECK(loader.describe().find("\"batch_size\"") != std::string::npos);
  insitu::iter train = loader.iterate(INSITU_TRAIN);
  uint64_t batches[2] = {0, 0};
  for (uint64_t epoch = 0; epoch < 2; epoch++)
    for (insitu::batch batch : train) {
      CHECK(batch->epoch == epoch && batch->index == batches[epoch]);
      CHECK(batch.samples().size() == 8);
      CHECK(batch.values<float>("u").size() == batch->arrays[0].bytes / 4);
      CHECK(thrown([&] { batch.values<double>("u"); }, "another type") == INSITU_E_DTYPE);
      CHECK(thrown([&] { batch.array("v"); }, "'v'") == INSITU_E_NOTFOUND);
      batches[epoch]++;
    }
  CHECK(batches[0] > 1 && batches[0] == batches[1]);

  train.set_epoch(0);
  insitu::batch held = train.next(), other = train.next();
  CHECK(held && other);
  CHECK(thrown([&] { train.next(); }, "release") == INSITU_BUSY);
  insitu_state after = held.after();
  held = std::move(other);
  CHECK(held->index == 1 && !other);
  held.release();
  train.restore(after);
  CHECK(train.next()->index == 1);
  return failed != 0;
}
