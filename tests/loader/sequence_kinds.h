/* The archives of test_sequences: every element is known by formula, some chunks are absent, some
 * damaged. Each lies in a folder, in a zip file, in memory and on a server. After server.h,
 * insitubatch.h and support.h. */
#ifndef TESTS_SEQUENCE_KINDS_H
#define TESTS_SEQUENCE_KINDS_H
#include <math.h>
#include "zip.h"

enum { TIME = 60, LAT = 5, LON = 6, KINDS = 6, OBJECTS = 700 };

/* Elements that a damaged chunk holds; hi[0] is 0: there are none. */
struct box {
  uint64_t lo[3], hi[3];
};
struct kind {
  struct support_array a;
  uint64_t n_steps;
  int64_t steps[6];
  double fill;
  struct box damaged;
  /* filled in by kinds_make */
  char folder[300], zip[300], refs[300];
  insitu_object object[OBJECTS];
  uint64_t n_objects;
};

#define ARRAY(...)                                                                                 \
  {                                                                                                \
    .name = "a", .ndim = 3, .shape = {TIME, LAT, LON}, .dims = "[\"time\",\"lat\",\"lon\"]",       \
    __VA_ARGS__                                                                                    \
  }
static struct kind kinds[KINDS] = {
    /* raw rows, read straight into batches */
    {.a = ARRAY(.chunk = {4, LAT, LON}, .dtype = INSITU_F32, .format = 2)},
    /* inner chunks of shards, some absent */
    {.a = ARRAY(.chunk = {5, 2, 4}, .shard = {2, 2, 1}, .dtype = INSITU_I16, .format = 3,
         .zstd = true, .index_crc = true, .absent = 7),
        .n_steps = 3,
        .steps = {-2, 0, 3}},
    /* windows that overlap, so that chunks are kept; big-endian, column-major */
    {.a = ARRAY(.chunk = {3, LAT, 4}, .dtype = INSITU_F64, .format = 2, .zstd = true, .big = true,
         .fortran = true),
        .n_steps = 6,
        .steps = {-3, -2, -1, 0, 1, 2}},
    /* a damaged chunk */
    {.a = ARRAY(.chunk = {4, LAT, 3}, .dtype = INSITU_I32, .format = 3, .zstd = true, .fill = "7"),
        .n_steps = 2,
        .steps = {0, 2},
        .fill = 7,
        .damaged = {{16, 0, 3}, {20, LAT, LON}}},
    /* a damaged inner chunk */
    {.a = ARRAY(.chunk = {3, LAT, LON}, .shard = {4, 1, 1}, .dtype = INSITU_F32, .format = 3,
         .zstd = true),
        .damaged = {{24, 0, 0}, {27, LAT, LON}}},
    /* absent chunks that are NaN, which is an error unless the loader is to fill */
    {.a = ARRAY(.chunk = {2, LAT, LON}, .dtype = INSITU_F32, .format = 3, .fill = "\"NaN\"",
         .absent = 13),
        .fill = NAN},
};

/* ---- what an element is ---- */
static inline bool kind_is_damaged(const struct kind *k, const uint64_t *at) {
  for (int d = 0; d < 3; d++)
    if (at[d] < k->damaged.lo[d] || at[d] >= k->damaged.hi[d]) return false;
  return true;
}
static inline bool kind_is_absent(const struct kind *k, const uint64_t *at) {
  uint64_t number = 0;

  for (int d = 0; d < 3; d++)
    number = number * support_ceil_div(k->a.shape[d], k->a.chunk[d]) + at[d] / k->a.chunk[d];
  return support_is_absent(&k->a, number);
}
static inline double kind_value(const struct kind *k, const uint64_t *at) {
  if (kind_is_absent(k, at) || kind_is_damaged(k, at)) return k->fill;
  return support_value(k->a.dtype, (at[0] * LAT + at[1]) * LON + at[2]);
}
/* Part of a field, which may hang over its edges: where it begins, and its lengths. */
struct part {
  int64_t lo[2], n[2];
};
static const struct part whole_field = {{0, 0}, {LAT, LON}};
/* The place of element i of a part of a sample; false: it lies outside the array. */
static inline bool part_place(struct part p, int64_t sample, int64_t i, uint64_t *at) {
  int64_t y = p.lo[0] + i / p.n[1], x = p.lo[1] + i % p.n[1];

  at[0] = (uint64_t)sample;
  at[1] = (uint64_t)y;
  at[2] = (uint64_t)x;
  return y >= 0 && x >= 0 && y < LAT && x < LON;
}
/* Whether a part of one sample has elements of which `is` tells. */
static inline bool part_has(const struct kind *k, struct part p, int64_t sample,
    bool (*is)(const struct kind *, const uint64_t *)) {
  uint64_t at[3];

  for (int64_t i = 0; i < p.n[0] * p.n[1]; i++)
    if (part_place(p, sample, i, at) && is(k, at)) return true;
  return false;
}

/* ---- making them ---- */
static struct kind *kind_keeping; /* for nftw */
static inline int kind_keep_object(
    const char *path, const struct stat *s, int type, struct FTW *f) {
  struct kind *k = kind_keeping;
  (void)f;
  if (type != FTW_F) return 0;
  unsigned char *bytes = malloc((size_t)s->st_size + 1);
  FILE *in = fopen(path, "rb");
  assert_true(bytes && in && k->n_objects < OBJECTS);
  assert_int_equal(fread(bytes, 1, (size_t)s->st_size, in), s->st_size);
  fclose(in);
  k->object[k->n_objects++] =
      (insitu_object){strdup(path + strlen(k->folder) + 1), bytes, (uint64_t)s->st_size};
  return 0;
}
/* Spoils the first bytes of the chunk that holds the box, or of its shard. */
static inline void kind_damage(const struct kind *k) {
  uint64_t index[4];
  char path[700];

  for (int d = 0; d < 3; d++)
    index[d] = k->damaged.lo[d] / k->a.chunk[d] / (k->a.shard[d] ? k->a.shard[d] : 1);
  support_chunk_path(path, sizeof path, k->folder, &k->a, index);
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fwrite("spoilt", 1, 6, f), 6);
  assert_int_equal(fclose(f), 0);
}
/* References to all objects, as kerchunk writes them: metadata stand in the file. */
static inline void kind_refer(struct kind *k) {
  const char *name = strrchr(k->folder, '/') + 1;
  FILE *f = fopen(k->refs, "w");

  assert_non_null(f);
  fprintf(f, "{\"version\": 1, \"refs\": {");
  for (uint64_t i = 0; i < k->n_objects; i++) {
    const insitu_object *o = &k->object[i];
    const char *text = o->bytes;

    fprintf(f, "%s\"%s\": ", i ? ", " : "", o->key);
    if (!strstr(o->key, ".z") && !strstr(o->key, "zarr.json")) {
      fprintf(f, "[\"%s/%s\"]", name, o->key);
      continue;
    }
    fprintf(f, "\"");
    for (uint64_t n = 0; n < o->n; n++) fprintf(f, text[n] == '"' ? "\\\"" : "%c", text[n]);
    fprintf(f, "\"");
  }
  fprintf(f, "}}");
  assert_int_equal(fclose(f), 0);
}
static inline void kinds_make(void) {
  static double hours[TIME];
  const struct support_array time = {.name = "time",
      .ndim = 1,
      .shape = {TIME},
      .chunk = {25},
      .dtype = INSITU_I64,
      .dims = "[\"time\"]",
      .attributes = "\"units\":\"hours since 2000-01-01\"",
      .values = hours};
  const struct support_array mask = {.name = "mask",
      .ndim = 2,
      .shape = {LAT, LON},
      .chunk = {LAT, 4},
      .dtype = INSITU_I16,
      .dims = "[\"lat\",\"lon\"]"};

  for (int i = 0; i < TIME; i++) hours[i] = 6 * i;
  for (int i = 0; i < KINDS; i++) {
    struct kind *k = &kinds[i];
    struct support_array of[] = {k->a, time, mask};
    struct zip z = {.options = i % 2 ? ZIP_DEFLATE : 0};

    snprintf(k->folder, sizeof k->folder, "%s/k%d", support_dir, i);
    snprintf(k->zip, sizeof k->zip, "%s/k%d.zip", support_dir, i);
    snprintf(k->refs, sizeof k->refs, "%s/k%d.json", support_dir, i);
    for (int n = 0; n < 3; n++) {
      of[n].format = k->a.format;
      support_make(k->folder, &of[n]);
    }
    if (k->damaged.hi[0]) kind_damage(k);
    zip_folder(&z, k->folder, "");
    zip_finish(&z, "", false);
    zip_write(&z, k->zip);
    zip_free(&z);
    kind_keeping = k;
    assert_int_equal(nftw(k->folder, kind_keep_object, 16, FTW_PHYS), 0);
    kind_refer(k);
  }
}
static inline void kinds_free(void) {
  for (int i = 0; i < KINDS; i++)
    for (; kinds[i].n_objects; kinds[i].n_objects--) {
      insitu_object *o = &kinds[i].object[kinds[i].n_objects - 1];

      free((char *)(uintptr_t)o->key);
      free((void *)(uintptr_t)o->bytes);
    }
}
#endif
