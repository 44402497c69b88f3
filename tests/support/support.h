/* What the tests of the loader share: temporary archives whose every element is known by formula,
 * and checks of whole epochs. Needs only the declarations of insitubatch.h: what looks into a
 * loader is in inside.h. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above */
#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>
#include "sixteen.h"

/* ---- random numbers: the same in every run ---- */
static uint64_t support_random_state = 1;
static inline uint64_t support_random(void) { /* splitmix64 */
  uint64_t x = support_random_state++ + UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}
static inline uint64_t support_below(uint64_t n) {
  return support_random() % n;
}
static inline void support_shuffle(int *list, int n) {
  for (int i = n; i-- > 1;) {
    int j = (int)support_below((uint64_t)i + 1), other = list[i];
    list[i] = list[j];
    list[j] = other;
  }
}

/* ---- rounds ---- */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SUPPORT_SANITIZED 1
#else
#define SUPPORT_SANITIZED 0
#endif
/* Whether code runs many times as slowly as in a plain run: under Valgrind, a sanitizer or an
 * emulator. */
static inline bool support_slow(void) {
  return SUPPORT_SANITIZED || getenv("TEST_VALGRIND") || getenv("TEST_EMULATED");
}
/* How many of the N rounds of a plain run a test makes here. At least one. */
static inline int support_rounds(int n) {
  int part = support_slow() ? 4 : 1;
  if (getenv("TEST_VALGRIND")) part = 10;
  return n > part ? n / part : 1;
}

/* ---- numbers ---- */
static inline uint64_t support_ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}
static inline void support_store64(unsigned char *to, uint64_t x) { /* little-endian */
  for (int i = 0; i < 8; i++) to[i] = (unsigned char)(x >> 8 * i);
}
static inline void support_store32(unsigned char *to, uint32_t x) {
  for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> 8 * i);
}
static inline uint32_t support_crc32c(const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint32_t crc = 0xffffffff;
  while (n--) {
    crc ^= *p++;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

/* ---- files ---- */
static char support_dir[256];

static inline int support_remove_one(
    const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)kind, (void)f;
  return remove(path);
}
static inline void support_remove(const char *path) {
  nftw(path, support_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
static inline int support_setup(void **state) {
  const char *tmp = getenv("TMPDIR");
  (void)state;
  /* thousands of small files: in memory where possible */
  if (!tmp) tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
  snprintf(support_dir, sizeof support_dir, "%.200s/insitu-test-XXXXXX", tmp);
  return mkdtemp(support_dir) ? 0 : -1;
}
static inline int support_teardown(void **state) {
  (void)state;
  support_remove(support_dir);
  return 0;
}
/* A path below the temporary folder; a few may be in use at once. */
static inline const char *support_path(const char *name) {
  static char path[8][512];
  static int turn;
  char *p = path[turn++ % 8];
  int n = snprintf(p, sizeof path[0], "%s/%s", support_dir, name);
  assert_in_range(n, 0, sizeof path[0] - 1);
  return p;
}
/* Writes a file, and makes the folders that it lies in where they are not there. */
static inline void support_write(const char *path, const void *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  if (!f && errno == ENOENT) {
    char parent[512];
    for (const char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
      snprintf(parent, sizeof parent, "%.*s", (int)(s - path), path);
      mkdir(parent, 0777);
    }
    f = fopen(path, "wb");
  }
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

/* ---- archives ---- */
struct support_array {
  const char *name;
  int ndim;
  uint64_t shape[4], chunk[4];
  int32_t dtype; /* INSITU_I8, U8, I16, I32, I64, F16, F32, F64 */
  int format;    /* 2 or 3 */
  bool big, fortran, zstd;
  const char *fill;              /* JSON; default 0 */
  const char *dims, *attributes; /* names, as a JSON list; the members of a JSON object */
  const double *values;          /* of a flat C-order index; NULL: support_value */
  int absent;                    /* every so many-th chunk is not written; 0: all are */
  /* format 3 only */
  uint64_t shard[4];           /* chunks of a shard along each axis; 0: not sharded */
  bool index_first, index_crc; /* its index */
  /* bytes of rubbish behind each of its chunks, which then come in another order */
  uint64_t gap;
};

/* The element at a flat C-order index: small enough for every dtype to hold it exactly. */
static inline uint64_t support_most(int32_t dtype) { /* values are below it */
  return dtype == INSITU_U8    ? 251
         : dtype == INSITU_F16 ? 2003
         : dtype == INSITU_I16 ? 32003
                               : 16777213;
}
static inline double support_value(int32_t dtype, uint64_t flat) {
  return (double)(flat % support_most(dtype));
}
static inline void support_put(unsigned char *p, int32_t dtype, bool big, double x) {
  union {
    uint8_t u8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint16_t h;
    float f;
    double d;
    unsigned char b[8];
  } u = {.d = 0};
  size_t n = (size_t)(dtype & 0xff) / 8;
  if (dtype == INSITU_U8) u.u8 = (uint8_t)x;
  else if (dtype == INSITU_I8) u.u8 = (uint8_t)(int8_t)x;
  else if (dtype == INSITU_I64) u.i64 = (int64_t)x;
  else if (dtype == INSITU_I16) u.i16 = (int16_t)x;
  else if (dtype == INSITU_I32) u.i32 = (int32_t)x;
  else if (dtype == INSITU_F32) u.f = (float)x;
  else if (dtype == INSITU_F64) u.d = x;
  else { /* binary16 of a whole number below 2048: exact */ unsigned e = 0;
    while (x >= (2u << e)) e++;
    u.h = x < 1 ? 0 : (uint16_t)((e + 15) << 10 | (unsigned)((x / (1u << e) - 1) * 1024));
  }
  for (size_t i = 0; i < n; i++) p[i] = u.b[big ? n - 1 - i : i];
}
static inline double support_get(const void *p, int32_t dtype) {
  if (dtype == INSITU_U8) return *(const uint8_t *)p;
  if (dtype == INSITU_I8) return *(const int8_t *)p;
  if (dtype == INSITU_BOOL) return *(const uint8_t *)p;
  if (dtype == INSITU_U16) return *(const uint16_t *)p;
  if (dtype == INSITU_U32) return *(const uint32_t *)p;
  if (dtype == INSITU_U64) return (double)*(const uint64_t *)p;
  if (dtype == INSITU_I64) return (double)*(const int64_t *)p;
  if (dtype == INSITU_I16) return *(const int16_t *)p;
  if (dtype == INSITU_I32) return *(const int32_t *)p;
  if (dtype == INSITU_F32) return *(const float *)p;
  if (dtype == INSITU_F64) return *(const double *)p;
  return sixteen_value(*(const uint16_t *)p, dtype);
}
/* A value as a dtype shows it. */
static inline double support_as(int32_t dtype, double x) {
  if (dtype == INSITU_BOOL) return x != 0;
  if (dtype == INSITU_F32) return (double)(float)x;
  if (dtype != INSITU_F16 && dtype != INSITU_BF16) return x;
  return sixteen_value(sixteen_bits(x, dtype), dtype);
}
static inline const char *support_dtype_name(const struct support_array *a, char *to) {
  static const struct {
    int32_t dtype;
    const char *v2, *v3;
  } name[] = {{INSITU_I8, "i1", "int8"}, {INSITU_I64, "i8", "int64"}, {INSITU_U8, "u1", "uint8"},
      {INSITU_I16, "i2", "int16"}, {INSITU_I32, "i4", "int32"}, {INSITU_F16, "f2", "float16"},
      {INSITU_F32, "f4", "float32"}, {INSITU_F64, "f8", "float64"}};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    if (name[i].dtype == a->dtype)
      sprintf(to, "%s%s",
          a->format == 3 ? ""
          : a->big       ? ">"
                         : "<",
          a->format == 3 ? name[i].v3 : name[i].v2);
  return to;
}
static inline char *support_list(char *to, int n, const uint64_t *v) {
  char *p = to + sprintf(to, "[");
  for (int i = 0; i < n; i++) p += sprintf(p, "%s%" PRIu64, i ? "," : "", v[i]);
  sprintf(p, "]");
  return to;
}
static inline void support_metadata(const char *root, const struct support_array *a) {
  char path[700], text[6000], names[300] = "", members[2000] = "", dtype[16], shape[100],
                              chunk[100], order[100];
  uint64_t reversed[4];
  for (int d = 0; d < a->ndim; d++) reversed[d] = (uint64_t)(a->ndim - 1 - d);
  support_dtype_name(a, dtype);
  support_list(shape, a->ndim, a->shape);
  support_list(chunk, a->ndim, a->chunk);
  char inner[100], outer[700] = "", end[300] = "";
  memcpy(inner, chunk, sizeof inner);
  if (a->shard[0]) {
    uint64_t extent[4];
    for (int d = 0; d < a->ndim; d++) extent[d] = a->chunk[d] * a->shard[d];
    support_list(chunk, a->ndim, extent);
    snprintf(outer, sizeof outer,
        "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":%s,\"codecs\":[", inner);
    snprintf(end, sizeof end,
        "],\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}%s],"
        "\"index_location\":\"%s\"}}",
        a->index_crc ? ",{\"name\":\"crc32c\"}" : "", a->index_first ? "start" : "end");
  }
  if (a->dims)
    snprintf(names, sizeof names, ",\"%s\":%s",
        a->format == 3 ? "dimension_names" : "_ARRAY_DIMENSIONS", a->dims);
  if (a->attributes)
    snprintf(
        members, sizeof members, a->format == 3 ? ",\"attributes\":{%s}" : ",%s", a->attributes);
  if (a->format == 3) {
    snprintf(path, sizeof path, "%s/zarr.json", root);
    support_write(path, "{\"zarr_format\":3,\"node_type\":\"group\"}", 37);
    snprintf(path, sizeof path, "%s/%s/zarr.json", root, a->name);
    snprintf(text, sizeof text,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":%s,\"data_type\":\"%s\",\"chunk_"
        "grid\":{\"name\":\"regular\","
        "\"configuration\":{\"chunk_shape\":%s}},\"chunk_key_encoding\":{\"name\":\"default\"},"
        "\"fill_value\":%s,"
        "\"codecs\":[%s%s%s%s{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}%s%s]%s%s}",
        shape, dtype, chunk, a->fill ? a->fill : "0", outer,
        a->fortran ? "{\"name\":\"transpose\",\"configuration\":{\"order\":" : "",
        a->fortran ? support_list(order, a->ndim, reversed) : "", a->fortran ? "}}," : "",
        a->big ? "big" : "little",
        a->zstd ? ",{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":true}}" : "",
        end, names, members);
  } else {
    snprintf(path, sizeof path, "%s/.zgroup", root);
    support_write(path, "{\"zarr_format\":2}", 17);
    snprintf(path, sizeof path, "%s/%s/.zattrs", root, a->name);
    snprintf(text, sizeof text, "{\"\":0%s%s}", names, members);
    if (a->dims || a->attributes) support_write(path, text, strlen(text));
    snprintf(path, sizeof path, "%s/%s/.zarray", root, a->name);
    snprintf(text, sizeof text,
        "{\"zarr_format\":2,\"shape\":%s,\"chunks\":%s,\"dtype\":\"%s\",\"order\":\"%s\",\"fill_"
        "value\":%s,\"filters\":null,"
        "\"compressor\":%s}",
        shape, chunk, dtype, a->fortran ? "F" : "C", a->fill ? a->fill : "0",
        a->zstd ? "{\"id\":\"zstd\",\"level\":1}" : "null");
  }
  support_write(path, text, strlen(text));
}
static inline void support_chunk_path(char *path, size_t cap, const char *root,
    const struct support_array *a, const uint64_t *index) {
  int n = snprintf(path, cap, "%s/%s/%s", root, a->name, a->format == 3 ? "c" : "");
  for (int d = 0; d < a->ndim; d++)
    n += snprintf(path + n, cap - (size_t)n, "%s%" PRIu64,
        a->format == 3 ? "/"
        : d            ? "."
                       : "",
        index[d]);
}
/* The decoded bytes of one chunk; what hangs over the array's edge is rubbish on purpose. */
static inline size_t support_chunk(
    const struct support_array *a, const uint64_t *index, unsigned char *to) {
  size_t item = (size_t)(a->dtype & 0xff) / 8, count = 1;
  int fast = a->fortran ? 0 : a->ndim - 1; /* the axis whose elements lie side by side */
  uint64_t stride = 1;                     /* between those in the flat order */
  for (int d = 0; d < a->ndim; d++) count *= a->chunk[d];
  for (int d = fast + 1; d < a->ndim; d++) stride *= a->shape[d];
  for (size_t i = 0; i < count; i += a->chunk[fast]) {
    uint64_t at[4], rest = i, flat = 0, whole;
    bool inside = true;
    for (int k = a->ndim - 1; k >= 0; k--) {
      int d = a->fortran ? a->ndim - 1 - k : k;
      at[d] = rest % a->chunk[d];
      rest /= a->chunk[d];
    }
    for (int d = 0; d < a->ndim; d++) {
      uint64_t x = index[d] * a->chunk[d] + at[d];
      inside = inside && x < a->shape[d];
      flat = flat * a->shape[d] + x;
    }
    whole = inside ? a->shape[fast] - index[fast] * a->chunk[fast] : 0;
    for (uint64_t x = 0; x < a->chunk[fast]; x++, flat += stride) {
      double value = x >= whole ? 77 : a->values ? a->values[flat] : support_value(a->dtype, flat);
      /* most are of these two, and one store is what a sanitizer checks fast */
      if (a->dtype == INSITU_F32 && !a->big) ((float *)(void *)to)[i + x] = (float)value;
      else if (a->dtype == INSITU_I32 && !a->big) ((int32_t *)(void *)to)[i + x] = (int32_t)value;
      else support_put(to + (i + x) * item, a->dtype, a->big, value);
    }
  }
  return count * item;
}
static inline bool support_is_absent(const struct support_array *a, uint64_t number) {
  return a->absent && number % (uint64_t)a->absent == (uint64_t)a->absent - 1;
}
/* A chunk as it is stored, for the caller to free; NULL: it is absent. */
static inline unsigned char *support_encoded(
    const struct support_array *a, const uint64_t *index, size_t *n) {
  uint64_t number = 0, bytes = 8;
  bool outside = false;
  for (int d = 0; d < a->ndim; d++) {
    uint64_t grid = support_ceil_div(a->shape[d], a->chunk[d]);
    outside = outside || index[d] >= grid;
    number = number * grid + index[d];
    bytes *= a->chunk[d];
  }
  if (outside || support_is_absent(a, number)) return NULL;
  unsigned char *raw = malloc(bytes), *packed = malloc(ZSTD_compressBound(bytes));
  *n = support_chunk(a, index, raw);
  if (!a->zstd) memcpy(packed, raw, *n);
  else *n = ZSTD_compress(packed, ZSTD_compressBound(bytes), raw, *n, 1);
  free(raw);
  return packed;
}
/* A shard: its chunks, last first where there are gaps, and their index; *n is 0 when all are
 * absent. */
static inline unsigned char *support_shard(
    const struct support_array *a, const uint64_t *shard, size_t *n) {
  uint64_t entries = 1;
  for (int d = 0; d < a->ndim; d++) entries *= a->shard[d];
  size_t index_bytes = 16 * entries + (a->index_crc ? 4 : 0), at = a->index_first ? index_bytes : 0;
  unsigned char *index = malloc(index_bytes), *out = calloc(1, index_bytes);
  bool any = false;
  memset(index, 0xff, index_bytes);
  for (uint64_t i = 0; i < entries; i++) {
    uint64_t e = a->gap ? entries - 1 - i : i, rest = e, chunk[4];
    size_t got = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
      chunk[d] = shard[d] * a->shard[d] + rest % a->shard[d];
      rest /= a->shard[d];
    }
    unsigned char *one = support_encoded(a, chunk, &got);
    if (!one) continue;
    out = realloc(out, at + got + a->gap + index_bytes);
    memcpy(out + at, one, got);
    memset(out + at + got, 0xee, a->gap);
    support_store64(index + 16 * e, at);
    support_store64(index + 16 * e + 8, got);
    at += got + a->gap;
    free(one);
    any = true;
  }
  uint32_t crc = support_crc32c(index, 16 * entries);
  if (a->index_crc) memcpy(index + 16 * entries, &crc, 4);
  memcpy(out + (a->index_first ? 0 : at), index, index_bytes);
  free(index);
  *n = any ? at + (a->index_first ? 0 : index_bytes) : 0;
  return out;
}
static inline void support_make(const char *root, const struct support_array *a) {
  uint64_t grid[4], objects = 1;
  support_metadata(root, a);
  for (int d = 0; d < a->ndim; d++) {
    grid[d] = support_ceil_div(a->shape[d], a->chunk[d] * (a->shard[0] ? a->shard[d] : 1));
    objects *= grid[d];
  }
  for (uint64_t c = 0; c < objects; c++) {
    uint64_t index[4], rest = c;
    char path[700];
    size_t n = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
      index[d] = rest % grid[d];
      rest /= grid[d];
    }
    unsigned char *object =
        a->shard[0] ? support_shard(a, index, &n) : support_encoded(a, index, &n);
    support_chunk_path(path, sizeof path, root, a, index);
    if (object && n) support_write(path, object, n);
    free(object);
  }
}
/* Draws how an array of this shape is stored: chunks and, of format 3, shards; order, bytes,
 * compression; and whether chunks are absent. */
static inline void support_layout(struct support_array *a, int format) {
  a->format = format;
  a->zstd = support_below(2);
  a->big = support_below(2);
  a->fortran = support_below(2);
  a->absent = support_below(3) ? 0 : 3;
  bool sharded = format == 3 && support_below(2);
  for (int d = 0; d < a->ndim; d++) {
    a->chunk[d] = 1 + support_below(a->shape[d]);
    a->shard[d] = sharded ? 1 + support_below(3) : 0;
  }
}
/* What the array shows at an index of its shape, absent chunks included (their fill is 0). */
static inline double support_expect(const struct support_array *a, const uint64_t *at) {
  uint64_t flat = 0, number = 0;
  for (int d = 0; d < a->ndim; d++) {
    flat = flat * a->shape[d] + at[d];
    number = number * support_ceil_div(a->shape[d], a->chunk[d]) + at[d] / a->chunk[d];
  }
  return support_is_absent(a, number) ? 0 : support_value(a->dtype, flat);
}

/* ---- loaders ---- */
static inline insitu_loader *open_or_fail(const insitu_loader_desc *d) {
  insitu_error err = {0};
  insitu_loader *ld = NULL;
  if (insitu_loader_open(d, &ld, &err))
    fail_msg("%s: %s", insitu_status_name(err.status), err.message);
  return ld;
}
/* Open refuses the desc with this status, and with these words in its message. */
static inline void refuse_or_fail(
    const insitu_loader_desc *d, insitu_status want, const char *says) {
  insitu_error err = {0};
  insitu_loader *ld = NULL;
  insitu_status status = insitu_loader_open(d, &ld, &err);
  if (status != want || !strstr(err.message, says))
    fail_msg("%s: '%s', not '%s'", insitu_status_name(status), err.message, says);
  assert_null(ld);
}
static inline insitu_iter *open_iter_or_fail(insitu_loader *ld, const insitu_iter_desc *d) {
  insitu_error err = {0};
  insitu_iter *it = NULL;
  if (insitu_iter_open(ld, d, &it, &err))
    fail_msg("%s: %s", insitu_status_name(err.status), err.message);
  return it;
}
static inline insitu_batch *next_batch_or_fail(insitu_iter *it) {
  insitu_error err = {0};
  insitu_batch *b = NULL;
  insitu_status s = insitu_iter_next(it, 20000, &b, &err);
  if (s) fail_msg("%s: %s", insitu_status_name(s), err.message);
  return b;
}

/* The indexes of the second batch of train. *first is the state behind the first batch: where it is
 * empty it is filled, else the pass begins there. */
static inline void second_batch(const insitu_loader_desc *d, insitu_state *first, int64_t *to) {
  static const insitu_state none;
  insitu_error err = {0};
  insitu_loader *ld = open_or_fail(d);
  insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
  insitu_batch *b;
  if (!memcmp(first, &none, sizeof none)) {
    b = next_batch_or_fail(it);
    *first = b->after;
    insitu_batch_release(&b);
  } else if (insitu_iter_restore(it, first, &err)) {
    fail_msg("%s", err.message);
  }
  b = next_batch_or_fail(it);
  memcpy(to, b->sample_indices, b->rows * sizeof *to);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* ---- checks ---- */
/* Element k of what lies at data; of says in a message what it is of. */
static inline void support_same(
    const void *data, int32_t dtype, uint64_t k, double want, const char *of) {
  double got = support_get((const char *)data + k * (uint64_t)(dtype & 0xff) / 8, dtype);
  if (got != support_as(dtype, want))
    fail_msg("%s: element %d is %g, not %g", of, (int)k, got, want);
}
/* Of n elements of an output, one behind the other, the first that is not what the array has at
 * flat and, each time, stride further; n: all are. */
static inline uint64_t support_differs(const void *data, int32_t dtype,
    const struct support_array *a, uint64_t flat, uint64_t stride, uint64_t n) {
  uint64_t most = support_most(a->dtype), x = flat % most, k = 0;
  stride %= most;
  for (; k < n; k++) {
    if (dtype == INSITU_I32   ? ((const int32_t *)data)[k] != (int32_t)x
        : dtype == INSITU_F32 ? ((const float *)data)[k] != (float)x
                              : support_get((const char *)data + k * (uint64_t)(dtype & 0xff) / 8,
                                    dtype) != support_as(dtype, (double)x))
      break;
    x += stride;
    if (x >= most) x -= most;
  }
  return k;
}
/* Every element of one output of a batch. axis: the sample axis of a. Elements along the last of
 * the other axes are looked at as far as a chunk goes. */
static inline void support_check_array(const insitu_batch *b, uint64_t i, const insitu_variable *v,
    const struct support_array *a, int axis) {
  const insitu_array *out = &b->arrays[i];
  uint64_t lo[4] = {0}, hi[4], steps = v->n_steps ? v->n_steps : 1, per_row = 1, stride = 1,
           item = (uint64_t)(out->dtype & 0xff) / 8;
  int last = axis == a->ndim - 1 ? axis - 1 : a->ndim - 1; /* -1: there is no other axis */
  memcpy(hi, a->shape, sizeof hi);
  for (uint64_t k = 0; k < v->n_slices; k++) {
    lo[v->slices[k].axis] = (uint64_t)v->slices[k].start;
    if (v->slices[k].stop) hi[v->slices[k].axis] = (uint64_t)v->slices[k].stop;
  }
  for (int d = 0; d < a->ndim; d++)
    if (d != axis) per_row *= hi[d] - lo[d];
  for (int d = last + 1; d < a->ndim; d++) stride *= a->shape[d];
  assert_int_equal((uintptr_t)out->data % 256, 0);
  assert_int_equal(out->bytes, b->rows * steps * per_row * item);
  assert_int_equal(out->shape[0], b->rows);
  const unsigned char *p = out->data;
  for (uint64_t row = 0; row < b->rows; row++)
    for (uint64_t s = 0; s < steps; s++)
      for (uint64_t k = 0, n; k < per_row; k += n, p += n * item) {
        uint64_t at[4], rest = k, flat = 0, number = 0;
        for (int d = a->ndim - 1; d >= 0; d--) {
          if (d == axis) continue;
          at[d] = lo[d] + rest % (hi[d] - lo[d]);
          rest /= hi[d] - lo[d];
        }
        at[axis] = (uint64_t)(b->sample_indices[row] + v->offset + (v->n_steps ? v->steps[s] : 0));
        assert_true(at[axis] < a->shape[axis]);
        n = last < 0 ? 1 : a->chunk[last] - at[last] % a->chunk[last];
        if (last >= 0 && n > hi[last] - at[last]) n = hi[last] - at[last];
        for (int d = 0; d < a->ndim; d++) {
          flat = flat * a->shape[d] + at[d];
          number = number * support_ceil_div(a->shape[d], a->chunk[d]) + at[d] / a->chunk[d];
        }
        bool absent = support_is_absent(a, number); /* its fill is 0 */
        if (absent) flat = 0;
        uint64_t wrong = support_differs(p, out->dtype, a, flat, absent ? 0 : stride, n);
        if (wrong < n)
          fail_msg("array %s row %d anchor %d element %d: %g, not %g", a->name, (int)row,
              (int)b->sample_indices[row], (int)(k + wrong),
              support_get(p + wrong * item, out->dtype),
              support_as(out->dtype, support_value(a->dtype, flat + wrong * stride)));
      }
}
#endif
