/* What tests of caches and assemblies share: two loaders of one archive must give the same. The
 * archive has two arrays, chunked, stored and left out at random. Variables show them by steps,
 * with conversions and selections. TWINS_TIME: samples of the archive. */
#ifndef TESTS_TWINS_H
#define TESTS_TWINS_H
#include "support.h"
#include "modes.h"
#ifndef TWINS_TIME
#define TWINS_TIME 96
#endif

enum { TIME = TWINS_TIME, LAT = 6, LON = 7 };
static struct support_array t = {.name = "t",
                                .ndim = 3,
                                .shape = {TIME, LAT, LON},
                                .dtype = INSITU_F32,
                                .dims = "[\"time\",\"lat\",\"lon\"]"},
                            s = {.name = "s",
                                .ndim = 3,
                                .shape = {LAT, TIME, LON},
                                .dtype = INSITU_I16,
                                .fill = "7",
                                .dims = "[\"lat\",\"time\",\"lon\"]"};
static const int64_t in[] = {-2, -1, 0, 1}, odd[] = {3, -1, 3};

/* whole: no chunk is left out */
static inline const char *make_archive(const char *name, bool whole) {
  const char *root = support_path(name);
  struct support_array *both[2] = {&t, &s};
  int format = 2 + (int)support_below(2);
  for (int i = 0; i < 2; i++) {
    struct support_array *a = both[i];
    bool sharded = format == 3 && support_below(2);
    a->format = format;
    a->zstd = support_below(2);
    a->big = format == 2 && support_below(2);
    a->fortran = support_below(3) == 0;
    a->absent = whole || support_below(3) ? 0 : 2 + (int)support_below(5);
    for (int d = 0; d < 3; d++) a->chunk[d] = 1 + support_below(a->shape[d] / 2);
    for (int d = 0; d < 3; d++) a->shard[d] = sharded ? 1 + support_below(3) : 0;
    support_make(root, a);
  }
  char path[600];
  const char *group =
      format == 2 ? "{\"zarr_format\":2}" : "{\"zarr_format\":3,\"node_type\":\"group\"}";
  snprintf(path, sizeof path, "%s/%s", root, format == 2 ? ".zgroup" : "zarr.json");
  support_write(path, group, strlen(group));
  return root;
}

/* What does not change the order is drawn for each loader. */
static inline void draw_resources(insitu_loader_desc *d) {
  int m;
  do m = (int)support_below(MODES);
  while (!mode_usable(m));
  d->io = modes[m].io;
  d->inline_io = modes[m].inline_io;
  d->prefetch_depth = support_below(7);
  d->max_inflight = support_below(7);
  d->decode_threads = support_below(4);
  d->hold_epoch = (int32_t)support_below(2);
}

static inline insitu_stats stats_of(const insitu_loader *ld) {
  insitu_stats st;
  assert_int_equal(insitu_loader_stats(ld, &st, NULL), INSITU_OK);
  return st;
}

/* Two batches are the same, down to the bytes and the state behind them. */
static inline void same(const insitu_batch *a, const insitu_batch *b) {
  assert_int_equal(a->index, b->index);
  assert_int_equal(a->epoch, b->epoch);
  assert_int_equal(a->rows, b->rows);
  assert_memory_equal(a->sample_indices, b->sample_indices, a->rows * sizeof(int64_t));
  assert_memory_equal(&a->after, &b->after, sizeof a->after);
  for (uint64_t o = 0; o < a->n_arrays; o++) {
    assert_int_equal(a->arrays[o].bytes, b->arrays[o].bytes);
    if (memcmp(a->arrays[o].data, b->arrays[o].data, a->arrays[o].bytes) != 0)
      fail_msg(
          "epoch %d, batch %d: array %s differs", (int)a->epoch, (int)a->index, a->arrays[o].name);
  }
}

/* Whatever the next call gives is the same of both, an error's message too; the status. names: of
 * the two loaders, for what differs. The batches are held. */
static inline insitu_status step(
    const char *const names[2], insitu_iter *const it[2], insitu_batch *b[2]) {
  insitu_error err[2];
  insitu_status status[2];
  for (int i = 0; i < 2; i++) status[i] = insitu_iter_next(it[i], 20000, &b[i], &err[i]);
  if (status[0] != status[1])
    fail_msg("%s %s %s, %s %s %s", names[0], insitu_status_name(status[0]), err[0].message,
        names[1], insitu_status_name(status[1]), err[1].message);
  if (status[0] == INSITU_OK) same(b[0], b[1]);
  if (status[0] < 0) assert_string_equal(err[0].message, err[1].message);
  return status[0];
}
#endif
