/* Random Zarr archives for the random model test: every array is kept in memory as it must be read,
 * and written out by this file alone, with the reference compressors. Nothing here comes from the
 * library under test. After random_base.h. */
#ifndef TESTS_RANDOM_ARCHIVE_H
#define TESTS_RANDOM_ARCHIVE_H
#include <blosc.h>
#include <bzlib.h>
#include <lz4.h>
#include <zlib.h>
#include <zstd.h>

enum {
  MAX_DIMS = 5,
  MAX_LEVELS = 3,
  MAX_CODECS = 4,
  MAX_ARRAYS = 16,
  MAX_SHOWN = 1300,
  MAX_AXES = 4
};

/* ---- elements ---- */
enum kind { KIND_BOOL, KIND_INT, KIND_UINT, KIND_FLOAT, KIND_BFLOAT, KIND_COMPLEX };
struct type {
  const char *v2, *v3; /* v2 without its byte order; NULL: format 3 alone has it */
  enum kind kind;
  unsigned bytes;
  int32_t dtype; /* of insitubatch.h */
};
static const struct type types[] = {{"b1", "bool", KIND_BOOL, 1, INSITU_BOOL},
    {"i1", "int8", KIND_INT, 1, INSITU_I8}, {"i2", "int16", KIND_INT, 2, INSITU_I16},
    {"i4", "int32", KIND_INT, 4, INSITU_I32}, {"i8", "int64", KIND_INT, 8, INSITU_I64},
    {"u1", "uint8", KIND_UINT, 1, INSITU_U8}, {"u2", "uint16", KIND_UINT, 2, INSITU_U16},
    {"u4", "uint32", KIND_UINT, 4, INSITU_U32}, {"u8", "uint64", KIND_UINT, 8, INSITU_U64},
    {"f2", "float16", KIND_FLOAT, 2, INSITU_F16}, {"f4", "float32", KIND_FLOAT, 4, INSITU_F32},
    {"f8", "float64", KIND_FLOAT, 8, INSITU_F64}, {NULL, "bfloat16", KIND_BFLOAT, 2, INSITU_BF16},
    {"c8", "complex64", KIND_COMPLEX, 8, INSITU_C64},
    {"c16", "complex128", KIND_COMPLEX, 16, INSITU_C128}};
enum { TYPES = sizeof types / sizeof *types, TYPE_I64 = 4, TYPE_F64 = 11 };

/* ---- bytes that grow ---- */
struct bytes {
  unsigned char *at;
  size_t n;
};

static inline struct bytes bytes_new(size_t n) {
  return (struct bytes){own(n), n};
}

/* Memory with nothing behind it: room was reserved for the worst case. */
static inline struct bytes bytes_exact(const void *at, size_t n) {
  struct bytes b = bytes_new(n);

  if (n) memcpy(b.at, at, n);
  return b;
}

static inline void put_u64(unsigned char *p, uint64_t v, unsigned n, bool big) {
  for (unsigned i = 0; i < n; i++) p[big ? n - 1 - i : i] = (unsigned char)(v >> 8 * i);
}

/* ---- codecs from bytes to bytes ---- */
enum codec_kind {
  CODEC_ZSTD,
  CODEC_LZ4,
  CODEC_BLOSC,
  CODEC_GZIP,
  CODEC_ZLIB,
  CODEC_BZ2,
  CODEC_CRC32C,
  CODEC_CRC32,
  CODEC_ADLER32,
  CODEC_SHUFFLE,
  CODEC_DELTA
};
struct codec {
  enum codec_kind kind;
  int level, shuffle;
  size_t typesize, blocksize;
  const char *cname; /* what is inside blosc; the dtype of a delta filter */
  bool checksum;
};

static inline uint32_t crc32c(const unsigned char *p, size_t n) {
  uint32_t crc = UINT32_MAX;

  for (size_t i = 0; i < n; i++) {
    crc ^= p[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
  }
  return ~crc;
}

static inline struct bytes deflated(struct bytes b, int level, int window_bits) {
  z_stream s = {0};
  size_t cap = b.n + b.n / 4 + 1024;
  unsigned char *out = own(cap);

  s.next_in = b.at;
  s.avail_in = (uInt)b.n;
  s.next_out = out;
  s.avail_out = (uInt)cap;
  if (deflateInit2(&s, level, Z_DEFLATED, window_bits, 8, 0) != Z_OK ||
      deflate(&s, Z_FINISH) != Z_STREAM_END)
    abort();
  cap = s.total_out;
  deflateEnd(&s);
  return bytes_exact(out, cap);
}

static inline struct bytes blosc_packed(const struct codec *c, struct bytes b) {
  unsigned char *out = own(b.n + BLOSC_MAX_OVERHEAD);
  int n = blosc_compress_ctx(c->level, c->shuffle, c->typesize, b.n, b.at, out,
      b.n + BLOSC_MAX_OVERHEAD, c->cname, c->blocksize, 1);

  if (n <= 0) abort();
  return bytes_exact(out, (size_t)n);
}

static inline struct bytes zstd_packed(const struct codec *c, struct bytes b) {
  ZSTD_CCtx *ctx = ZSTD_createCCtx();
  size_t cap = ZSTD_compressBound(b.n);
  unsigned char *out = own(cap);

  ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, c->level);
  ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, c->checksum);
  size_t n = ZSTD_compress2(ctx, out, cap, b.at, b.n);
  ZSTD_freeCCtx(ctx);
  if (ZSTD_isError(n)) abort();
  return bytes_exact(out, n);
}

/* Byte planes, or differences of little-endian elements of typesize bytes. */
static inline struct bytes filtered(const struct codec *c, struct bytes b) {
  struct bytes out = bytes_new(b.n);
  size_t size = c->typesize, count = b.n / size;
  uint64_t before = 0;

  for (size_t i = 0; i < count; i++) {
    uint64_t x = 0;

    if (c->kind == CODEC_SHUFFLE) {
      for (size_t k = 0; k < size; k++) out.at[k * count + i] = b.at[i * size + k];
      continue;
    }
    memcpy(&x, b.at + i * size, size);
    put_u64(out.at + i * size, x - before, (unsigned)size, false);
    before = x;
  }
  return out;
}

static inline struct bytes encoded(const struct codec *c, struct bytes b) {
  struct bytes out;
  unsigned n;

  switch (c->kind) {
  case CODEC_ZSTD: return zstd_packed(c, b);
  case CODEC_BLOSC: return blosc_packed(c, b);
  case CODEC_GZIP: return deflated(b, c->level, 31);
  case CODEC_ZLIB: return deflated(b, c->level, 15);
  case CODEC_SHUFFLE:
  case CODEC_DELTA: return filtered(c, b);
  case CODEC_LZ4:
    out = bytes_new((size_t)LZ4_compressBound((int)b.n) + 4);
    put_u64(out.at, b.n, 4, false);
    out.n = 4 + (size_t)LZ4_compress_default(
                    (const char *)b.at, (char *)out.at + 4, (int)b.n, (int)out.n - 4);
    return bytes_exact(out.at, out.n);
  case CODEC_BZ2:
    n = (unsigned)(b.n + b.n / 50 + 700);
    out = bytes_new(n);
    if (BZ2_bzBuffToBuffCompress((char *)out.at, &n, (char *)b.at, (unsigned)b.n, 1, 0, 0) != BZ_OK)
      abort();
    return bytes_exact(out.at, n);
  case CODEC_CRC32C:
    out = bytes_new(b.n + 4);
    memcpy(out.at, b.at, b.n);
    put_u64(out.at + b.n, crc32c(b.at, b.n), 4, false);
    return out;
  case CODEC_CRC32:
  case CODEC_ADLER32:
    out = bytes_new(b.n + 4);
    memcpy(out.at + 4, b.at, b.n);
    put_u64(out.at,
        c->kind == CODEC_CRC32 ? crc32(0, b.at, (uInt)b.n) : adler32(1, b.at, (uInt)b.n), 4, false);
    return out;
  }
  abort();
}

static inline void say_codec(struct text *t, const struct codec *c, int format) {
  static const char *const shuffles[] = {"noshuffle", "shuffle", "bitshuffle"};
  static const char *const names[] = {"zstd", "lz4", "blosc", "gzip", "zlib", "bz2", "crc32c",
      "crc32", "adler32", "shuffle", "delta"};
  bool v3 = format == 3, own_name = c->kind == CODEC_ZSTD || c->kind == CODEC_BLOSC ||
                                    c->kind == CODEC_GZIP || c->kind == CODEC_CRC32C;

  if (v3)
    say(t, "{\"name\":\"%s%s\",\"configuration\":{", own_name ? "" : "numcodecs.", names[c->kind]);
  else
    say(t, "{\"id\":\"%s\"%s", names[c->kind],
        c->kind < CODEC_CRC32C || c->kind > CODEC_ADLER32 ? "," : "");
  switch (c->kind) {
  case CODEC_ZSTD:
    say(t, "\"level\":%d", c->level);
    if (v3 || c->checksum) say(t, ",\"checksum\":%s", c->checksum ? "true" : "false");
    break;
  case CODEC_LZ4: say(t, "\"acceleration\":1"); break;
  case CODEC_BLOSC:
    say(t, "\"cname\":\"%s\",\"clevel\":%d,", c->cname, c->level);
    if (v3) say(t, "\"shuffle\":\"%s\",\"typesize\":%d,", shuffles[c->shuffle], (int)c->typesize);
    else say(t, "\"shuffle\":%d,", c->shuffle);
    say(t, "\"blocksize\":%d", (int)c->blocksize);
    break;
  case CODEC_GZIP:
  case CODEC_ZLIB:
  case CODEC_BZ2: say(t, "\"level\":%d", c->level); break;
  case CODEC_SHUFFLE: say(t, "\"elementsize\":%d", (int)c->typesize); break;
  case CODEC_DELTA: say(t, "\"dtype\":\"%s\"", c->cname); break;
  case CODEC_CRC32C:
  case CODEC_CRC32:
  case CODEC_ADLER32: break;
  }
  say(t, v3 ? "}}" : "}");
}

/* ---- arrays ---- */
/* One level of nesting: codecs behind what makes bytes of the level, be it the elements or a shard.
 */
struct level {
  uint64_t size[MAX_DIMS]; /* of its chunks, along the array's own axes */
  int order[MAX_DIMS];     /* its transpose; the identity: none is written */
  bool transposed;
  struct codec codec[MAX_CODECS];
  int n_codecs;
  bool index_first, index_crc, index_big; /* of a shard */
};
struct partners;
struct array {
  const char *path, *dims[MAX_DIMS]; /* dims[0] NULL: none has a name */
  const struct type *type;
  int ndim, axis;                  /* axis: of several sample axes, that of the split */
  const struct partners *partners; /* of the anchors; NULL: samples of one index */
  const int64_t *seconds;          /* of a joined array, the times of its samples */
  int drawn[MAX_DIMS];             /* which axis of the draw space it is, counted from 1; 0: none */
  uint64_t shape[MAX_DIMS];
  int format, n_levels;                        /* levels beyond the first: shards */
  bool big, fortran, dotted, v2_keys, dot_key; /* dotted: '.' in keys; dot_key: and it is named */
  struct level level[MAX_LEVELS];
  const char *fill_text; /* JSON */
  unsigned char fill[16];
  bool fill_is_nan;
  /* CF attributes */
  bool packed, has_scale, has_offset, has_missing, has_fill_value, is_unsigned;
  double scale, offset;
  double missing[2];      /* missing_value, _FillValue */
  const char *attributes; /* more members of the attributes, as JSON, each with a comma behind it */
  unsigned absent;        /* percent of the chunks that are not stored */
  bool *is_absent;        /* by the number of the innermost chunk in C order */
  uint64_t n_chunks, chunks[MAX_DIMS];
  /* By the number of a chunk of each level, from the one that one read returns to the innermost:
   * known when they are written. */
  bool *not_stored[MAX_LEVELS];
  unsigned bad;  /* percent of the stored chunks and shards that are damaged */
  bool bad_ends; /* some of them are cut off, which a loader sees that decodes whole chunks */
  /* By the number of a chunk of each level, down to the one that one read returns: what is stored
   * of it is damaged. Known when it is written. */
  bool *is_bad[MAX_LEVELS];
  bool *is_empty; /* whether some damaged chunk has no byte left: caches keep no such chunk */
  /* in C order and native byte order; what is absent or damaged holds the fill */
  unsigned char *data;
};

static inline uint64_t array_count(const struct array *a) {
  uint64_t n = 1;

  for (int d = 0; d < a->ndim; d++) n *= a->shape[d];
  return n;
}

/* Axes that are none of the draw space. */
static inline int array_fields(const struct array *a) {
  int n = 0;

  for (int d = 0; d < a->ndim; d++) n += !a->drawn[d];
  return n;
}

/* The chunk that one read returns: that of the last level. A codec around a shard makes it that of
 * the outermost such level. */
static inline int array_leaf(const struct array *a) {
  for (int l = 0; l + 1 < a->n_levels; l++)
    if (a->level[l].n_codecs) return l;
  return a->n_levels - 1;
}

static inline unsigned char *array_at(const struct array *a, const uint64_t *at) {
  uint64_t flat = 0;

  for (int d = 0; d < a->ndim; d++) flat = flat * a->shape[d] + at[d];
  return a->data + flat * a->type->bytes;
}

/* Whether the place lies in the array; numbers below 0 have wrapped. */
static inline bool array_has(const struct array *a, const uint64_t *at) {
  for (int d = 0; d < a->ndim; d++)
    if (at[d] >= a->shape[d]) return false;
  return true;
}

/* The number of the chunk of a level that holds an element. */
static inline uint64_t array_number(const struct array *a, int level, const uint64_t *at) {
  const struct level *l = &a->level[level];
  uint64_t number = 0;

  for (int d = 0; d < a->ndim; d++)
    number = number * ceil_div(a->shape[d], l->size[d]) + at[d] / l->size[d];
  return number;
}

/* Of the innermost level. */
static inline uint64_t array_chunk_of(const struct array *a, const uint64_t *at) {
  return array_number(a, a->n_levels - 1, at);
}

/* Whether an element cannot be read, because a chunk that holds it is damaged, or a shard around
 * that. */
static inline bool array_bad(const struct array *a, const uint64_t *at) {
  for (int l = 0; a->bad && l <= array_leaf(a); l++)
    if (a->is_bad[l][array_number(a, l, at)]) return true;
  return false;
}

/* The outermost level, from the one that one read returns, whose chunk with this element is not
 * stored; -1: all of them are, or nobody can tell since a shard around them is damaged. */
static inline int array_absent_level(const struct array *a, const uint64_t *at) {
  if (array_bad(a, at)) return -1;
  for (int l = array_leaf(a); l < a->n_levels; l++)
    if (a->not_stored[l][array_number(a, l, at)]) return l;
  return -1;
}

/* ---- writing ---- */
struct object {
  char *key;
  struct bytes bytes;
};
/* The values of an axis, as an array of the archive. */
struct coordinate {
  const char *name;
  const struct array *array;
  double *value, gap; /* gap: the least of two neighbours */
  uint64_t n;
  int slope; /* 1: they rise, -1: they fall, 0: neither */
  bool longitude;
};

struct archive {
  int format, n_arrays;
  struct array array[MAX_ARRAYS + 1]; /* behind n_arrays: coordinates */
  struct array *time;
  int n_times; /* arrays behind it: times of arrays in groups of their own */
  struct coordinate coordinate[MAX_ARRAYS];
  int n_coordinates; /* their arrays are the last ones */
  const char *group; /* "" or the name of a group around all arrays but the coordinate */
  bool consolidated, root_is_array;
  struct object *object;
  size_t n_objects, cap_objects;
};

static inline void add_object(struct archive *ar, const char *key, struct bytes b) {
  if (ar->n_objects == ar->cap_objects) {
    size_t cap = ar->cap_objects ? 2 * ar->cap_objects : 64;
    struct object *more = own(cap * sizeof *more);

    if (ar->n_objects) memcpy(more, ar->object, ar->n_objects * sizeof *more);
    ar->object = more;
    ar->cap_objects = cap;
  }
  ar->object[ar->n_objects++] = (struct object){own_text("%s", key), b};
}

/* Elements of a chunk whose first one is at origin, in C order along the axes perm; what hangs over
 * the edge is rubbish. */
static inline struct bytes write_elements(
    const struct array *a, const uint64_t *origin, const uint64_t *size, const int *perm) {
  size_t item = a->type->bytes, part = a->type->kind == KIND_COMPLEX ? item / 2 : item, count = 1;

  for (int d = 0; d < a->ndim; d++) count *= size[d];
  struct bytes b = bytes_new(count * item);
  for (size_t i = 0; i < count; i++) {
    uint64_t at[MAX_DIMS], rest = i;
    bool inside = true;

    for (int k = a->ndim - 1; k >= 0; k--) {
      int d = perm[k];

      at[d] = origin[d] + rest % size[d];
      rest /= size[d];
      inside = inside && at[d] < a->shape[d];
    }
    unsigned char *to = b.at + i * item;
    if (!inside) {
      memset(to, a->type->kind == KIND_BOOL ? 1 : 0x5a, item);
      continue;
    }
    const unsigned char *from = array_at(a, at);
    for (size_t k = 0; k < item; k++)
      to[k] = from[a->big ? k / part * part + part - 1 - k % part : k];
  }
  return b;
}

static inline struct bytes write_level(
    const struct array *a, int level, const uint64_t *origin, const int *outer, bool *absent);

/* ---- damage ---- */
static inline bool is_damaged(const struct array *a) {
  return a->bad && chance(a->bad);
}

/* A stored chunk with damage that shows whatever of the chunk is decoded: the head of what a
 * compressor wrote, a byte under a checksum, or nothing at all of what has neither. */
static inline void damage_chunk(const struct array *a, const struct level *l, struct bytes *b) {
  const struct codec *last = l->n_codecs ? &l->codec[l->n_codecs - 1] : NULL;

  if (b->n && a->bad_ends && chance(50)) {
    b->n = draw(b->n);
    return;
  }
  switch (last ? last->kind : CODEC_SHUFFLE) {
  case CODEC_SHUFFLE:
  case CODEC_DELTA: b->n = 0; return;
  case CODEC_CRC32C:
  case CODEC_CRC32:
  case CODEC_ADLER32: b->at[draw(b->n)] ^= (unsigned char)(1 + draw(255)); return;
  default: memset(b->at, 0xff, 4);
  }
}

/* A shard whose index cannot be read. */
static inline void damage_shard(const struct level *l, struct bytes *shard, uint64_t index_bytes) {
  uint64_t index = l->index_first ? 0 : shard->n - index_bytes;

  if (l->index_crc && chance(50))
    shard->at[index + draw(index_bytes)] ^= (unsigned char)(1 + draw(255));
  else shard->n = draw(index_bytes);
}

/* Cuts off a shard somewhere behind its index: its chunks that reach beyond are damaged. begins:
 * where each of the n chunks begins in the array, MAX_DIMS indexes. */
static inline void cut_shard(const struct array *a, int level, struct bytes *shard,
    uint64_t index_bytes, const struct bytes *part, const uint64_t *offset, const uint64_t *begins,
    uint64_t n) {
  shard->n = index_bytes + draw(shard->n - index_bytes + 1);
  for (uint64_t i = 0; i < n; i++) {
    const uint64_t *origin = begins + i * MAX_DIMS;
    bool whole = !part[i].at || offset[i] + part[i].n <= shard->n;

    if (whole || !array_has(a, origin)) continue;
    if (offset[i] >= shard->n) *a->is_empty = true;
    a->is_bad[level + 1][array_number(a, level + 1, origin)] = true;
  }
}

/* A shard: its chunks in a random order, now and then with bytes between them that belong to none,
 * and their index. */
static inline struct bytes write_shard(
    const struct array *a, int level, const uint64_t *origin, const int *perm, bool *absent) {
  const struct level *l = &a->level[level], *inner = l + 1;
  uint64_t count[MAX_DIMS], n = 1, at = 0;

  for (int k = 0; k < a->ndim; k++) n *= count[k] = l->size[perm[k]] / inner->size[perm[k]];
  struct bytes *part = own(n * sizeof *part);
  uint64_t *sequence = own(n * sizeof *sequence), *offset = own(n * sizeof *offset), total = 0;
  uint64_t index_bytes = 16 * n + (l->index_crc ? 4 : 0);
  uint64_t *begins = own(n * MAX_DIMS * sizeof *begins);
  *absent = true;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t *first = begins + i * MAX_DIMS, rest = i;
    bool none;

    for (int k = a->ndim - 1; k >= 0; k--) {
      first[perm[k]] = origin[perm[k]] + rest % count[k] * inner->size[perm[k]];
      rest /= count[k];
    }
    part[i] = write_level(a, level + 1, first, perm, &none);
    if (none) part[i] = (struct bytes){NULL, 0};
    else *absent = false;
    total += part[i].n;
    sequence[i] = i;
  }
  if (*absent && !chance(10)) return (struct bytes){NULL, 0};
  *absent = false;
  if (chance(50))
    for (uint64_t i = n; i > 1; i--) {
      uint64_t j = draw(i), t = sequence[i - 1];

      sequence[i - 1] = sequence[j];
      sequence[j] = t;
    }
  uint64_t gap = chance(30) ? 1 + draw(40) : 0;
  struct bytes out = bytes_new(index_bytes + total + n * gap);
  if (l->index_first) at = index_bytes;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t e = sequence[i];

    if (!part[e].at) continue;
    memcpy(out.at + at, part[e].at, part[e].n);
    offset[e] = at;
    at += part[e].n;
    memset(out.at + at, 0xee, gap);
    at += gap;
  }
  unsigned char *index = out.at + (l->index_first ? 0 : at);
  for (uint64_t i = 0; i < n; i++) {
    put_u64(index + 16 * i, part[i].at ? offset[i] : UINT64_MAX, 8, l->index_big);
    put_u64(index + 16 * i + 8, part[i].at ? part[i].n : UINT64_MAX, 8, l->index_big);
  }
  if (l->index_crc) put_u64(index + 16 * n, crc32c(index, 16 * n), 4, false);
  out.n = l->index_first ? at : at + index_bytes;
  bool damaged = level < array_leaf(a) && array_has(a, origin) && is_damaged(a);
  bool cuts = l->index_first && level + 1 == array_leaf(a); /* of a shard within, some is there */
  if (damaged && cuts && a->bad_ends && chance(50)) {
    cut_shard(a, level, &out, index_bytes, part, offset, begins, n);
  } else if (damaged) {
    damage_shard(l, &out, index_bytes);
    if (!out.n) *a->is_empty = true;
    a->is_bad[level][array_number(a, level, origin)] = true;
  }
  return bytes_exact(out.at, out.n);
}

/* A chunk of a level as it is stored; outer: the axes in the order in which the level around it has
 * them. */
static inline struct bytes write_level(
    const struct array *a, int level, const uint64_t *origin, const int *outer, bool *absent) {
  const struct level *l = &a->level[level];
  struct bytes b;
  int perm[MAX_DIMS];

  for (int k = 0; k < a->ndim; k++) perm[k] = outer[l->order[k]];
  if (level + 1 < a->n_levels) {
    b = write_shard(a, level, origin, perm, absent);
  } else {
    bool inside = true;

    for (int d = 0; d < a->ndim; d++) inside = inside && origin[d] < a->shape[d];
    *absent = inside ? a->is_absent[array_chunk_of(a, origin)] : level == 0 || chance(80);
    if (!*absent) b = write_elements(a, origin, l->size, perm);
  }
  if (level >= array_leaf(a)) {
    bool inside = true;

    for (int d = 0; d < a->ndim; d++) inside = inside && origin[d] < a->shape[d];
    if (inside) a->not_stored[level][array_number(a, level, origin)] = *absent;
  }
  if (*absent) return (struct bytes){NULL, 0};
  for (int i = 0; i < l->n_codecs; i++) b = encoded(&l->codec[i], b);
  if (level != array_leaf(a) || !array_has(a, origin) || !is_damaged(a)) return b;
  damage_chunk(a, l, &b);
  a->is_bad[level][array_number(a, level, origin)] = true;
  if (!b.n) *a->is_empty = true;
  return bytes_exact(b.at, b.n);
}

static inline void say_transpose(struct text *t, const struct array *a, const struct level *l) {
  uint64_t order[MAX_DIMS];

  if (!l->transposed) return;
  for (int d = 0; d < a->ndim; d++) order[d] = (uint64_t)l->order[d];
  say(t, "{\"name\":\"transpose\",\"configuration\":{\"order\":");
  say_list(t, a->ndim, order);
  say(t, "}},");
}

/* The list of a level's codecs; outer as in write_level. */
static inline void say_level(struct text *t, const struct array *a, int level, const int *outer) {
  const struct level *l = &a->level[level];
  int perm[MAX_DIMS];

  for (int k = 0; k < a->ndim; k++) perm[k] = outer[l->order[k]];
  say(t, "[");
  say_transpose(t, a, l);
  if (level + 1 < a->n_levels) {
    uint64_t inner[MAX_DIMS];

    for (int k = 0; k < a->ndim; k++) inner[k] = a->level[level + 1].size[perm[k]];
    say(t, "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":");
    say_list(t, a->ndim, inner);
    say(t, ",\"codecs\":");
    say_level(t, a, level + 1, perm);
    say(t, ",\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}%s]",
        l->index_big ? "big" : "little", l->index_crc ? ",{\"name\":\"crc32c\"}" : "");
    if (l->index_first || chance(50))
      say(t, ",\"index_location\":\"%s\"", l->index_first ? "start" : "end");
    say(t, "}}");
  } else if (a->type->bytes == 1 && chance(50)) {
    say(t, "{\"name\":\"bytes\"}");
  } else {
    say(t, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}", a->big ? "big" : "little");
  }
  for (int i = 0; i < l->n_codecs; i++) {
    say(t, ",");
    say_codec(t, &l->codec[i], 3);
  }
  say(t, "]");
}

static inline void say_attributes(struct text *t, const struct array *a) {
  say(t, "{");
  if (a->format == 2 && a->dims[0]) {
    say(t, "\"_ARRAY_DIMENSIONS\":[");
    for (int d = 0; d < a->ndim; d++) say(t, "%s\"%s\"", d ? "," : "", a->dims[d]);
    say(t, "],");
  }
  if (a->has_scale) say(t, "\"scale_factor\":%.17g,", a->scale);
  if (a->has_offset) say(t, "\"add_offset\":%.17g,", a->offset);
  if (a->has_missing) say(t, "\"missing_value\":%.17g,", a->missing[0]);
  if (a->has_fill_value) say(t, "\"_FillValue\":%.17g,", a->missing[1]);
  if (a->is_unsigned) say(t, "\"_Unsigned\":\"true\",");
  if (a->attributes) say(t, "%s", a->attributes);
  say(t, "\"note\":\"drawn\"}");
}

static inline void say_v3(struct text *t, const struct array *a) {
  int identity[MAX_DIMS];

  for (int d = 0; d < MAX_DIMS; d++) identity[d] = d;
  say(t, "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":");
  say_list(t, a->ndim, a->shape);
  say(t,
      ",\"data_type\":\"%s\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_"
      "shape\":",
      a->type->v3);
  say_list(t, a->ndim, a->level[0].size);
  say(t, "}},\"chunk_key_encoding\":{\"name\":\"%s\"", a->v2_keys ? "v2" : "default");
  if (a->dotted != a->v2_keys || a->dot_key)
    say(t, ",\"configuration\":{\"separator\":\"%s\"}", a->dotted ? "." : "/");
  say(t, "},\"fill_value\":%s,\"codecs\":", a->fill_text);
  say_level(t, a, 0, identity);
  if (a->dims[0]) {
    say(t, ",\"dimension_names\":[");
    for (int d = 0; d < a->ndim; d++) say(t, "%s\"%s\"", d ? "," : "", a->dims[d]);
    say(t, "]");
  }
  say(t, ",\"attributes\":");
  say_attributes(t, a);
  say(t, "}");
}

static inline void say_v2(struct text *t, const struct array *a) {
  const struct level *l = &a->level[0];
  int n = l->n_codecs, filters = n && l->codec[n - 1].kind < CODEC_CRC32C ? n - 1 : n;

  say(t, "{\"zarr_format\":2,\"shape\":");
  say_list(t, a->ndim, a->shape);
  say(t, ",\"chunks\":");
  say_list(t, a->ndim, l->size);
  say(t, ",\"dtype\":\"%s%s\",\"order\":\"%s\",\"fill_value\":%s,\"filters\":",
      a->type->bytes == 1 ? "|"
      : a->big            ? ">"
                          : "<",
      a->type->v2, a->fortran ? "F" : "C", a->fill_text);
  if (filters) {
    say(t, "[");
    for (int i = 0; i < filters; i++) {
      if (i) say(t, ",");
      say_codec(t, &l->codec[i], 2);
    }
    say(t, "]");
  } else {
    say(t, "null");
  }
  say(t, ",\"compressor\":");
  if (filters < n) say_codec(t, &l->codec[n - 1], 2);
  else say(t, "null");
  if (!a->dotted || a->dot_key) say(t, ",\"dimension_separator\":\"%s\"", a->dotted ? "." : "/");
  say(t, "}");
}

static inline void write_chunks(struct archive *ar, const struct array *a) {
  uint64_t grid[MAX_DIMS], objects = 1;
  int identity[MAX_DIMS];

  for (int d = 0; d < MAX_DIMS; d++) identity[d] = d;
  for (int d = 0; d < a->ndim; d++) objects *= grid[d] = ceil_div(a->shape[d], a->level[0].size[d]);
  for (uint64_t c = 0; c < objects; c++) {
    uint64_t index[MAX_DIMS], origin[MAX_DIMS], rest = c;
    char key[300];
    bool absent;

    for (int d = a->ndim - 1; d >= 0; d--) {
      index[d] = rest % grid[d];
      rest /= grid[d];
      origin[d] = index[d] * a->level[0].size[d];
    }
    struct bytes b = write_level(a, 0, origin, identity, &absent);
    if (absent) continue;
    const char *dot = a->dotted ? "." : "/";
    int n = snprintf(key, sizeof key, "%s%s", a->path, *a->path ? "/" : "");
    if (a->format == 3 && !a->v2_keys) n += snprintf(key + n, sizeof key - (size_t)n, "c%s", dot);
    for (int d = 0; d < a->ndim; d++)
      n += snprintf(key + n, sizeof key - (size_t)n, "%s%" PRIu64, d ? dot : "", index[d]);
    add_object(ar, key, b);
  }
}

/* What is shown of damaged chunks, where that is no error. */
static inline void fill_bad(const struct array *a) {
  uint64_t count = array_count(a), at[MAX_DIMS];

  for (uint64_t i = 0; a->bad && i < count; i++) {
    uint64_t rest = i;

    for (int d = a->ndim - 1; d >= 0; d--) {
      at[d] = rest % a->shape[d];
      rest /= a->shape[d];
    }
    if (array_bad(a, at)) memcpy(array_at(a, at), a->fill, a->type->bytes);
  }
}

static inline int archive_arrays(const struct archive *ar) {
  return ar->n_arrays + (ar->time != NULL) + ar->n_times + ar->n_coordinates;
}

/* All objects of the archive. */
static inline void write_archive(struct archive *ar) {
  struct text *all = own(sizeof *all), *one = own(sizeof *one);
  bool first = true;
  bool grouped = *ar->group != 0;
  const char *group =
      ar->format == 3 ? "{\"zarr_format\":3,\"node_type\":\"group\"}" : "{\"zarr_format\":2}";

  if (grouped) {
    char *key = own_text("%s/%s", ar->group, ar->format == 3 ? "zarr.json" : ".zgroup");

    add_object(ar, key, bytes_exact(group, strlen(group)));
    if (ar->format == 3) say(all, "\"%s\":%s", ar->group, group);
    else say(all, "\"%s\":%s", key, group);
    first = false;
  }
  for (int i = 0; i < archive_arrays(ar); i++) {
    const struct array *a = &ar->array[i];
    const char *slash = *a->path ? "/" : "";

    one->n = 0;
    if (ar->format == 3) {
      say_v3(one, a);
      add_object(ar, own_text("%s%szarr.json", a->path, slash), bytes_exact(one->at, one->n));
      say(all, "%s\"%s\":%s", first ? "" : ",", a->path, one->at);
    } else {
      say_v2(one, a);
      add_object(ar, own_text("%s%s.zarray", a->path, slash), bytes_exact(one->at, one->n));
      say(all, "%s\"%s%s.zarray\":%s", first ? "" : ",", a->path, slash, one->at);
      one->n = 0;
      say_attributes(one, a);
      add_object(ar, own_text("%s%s.zattrs", a->path, slash), bytes_exact(one->at, one->n));
      say(all, ",\"%s%s.zattrs\":%s", a->path, slash, one->at);
    }
    first = false;
    write_chunks(ar, a);
    fill_bad(a);
  }
  if (ar->root_is_array) return;
  one->n = 0;
  if (ar->format == 2) {
    add_object(ar, ".zgroup", bytes_exact(group, strlen(group)));
    if (!ar->consolidated) return;
    say(one, "{\"zarr_consolidated_format\":1,\"metadata\":{\".zgroup\":%s,%s}}", group, all->at);
    add_object(ar, ".zmetadata", bytes_exact(one->at, one->n));
    return;
  }
  say(one, "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}");
  if (ar->consolidated)
    say(one,
        ",\"consolidated_metadata\":{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{%"
        "s}}",
        all->at);
  say(one, "}");
  add_object(ar, "zarr.json", bytes_exact(one->at, one->n));
}

/* ---- drawing ---- */
static inline uint64_t draw_bits(const struct type *t) {
  static const double specials[] = {0, 1, 2.5, 1e30, 65504};
  double x = chance(90) ? (double)draw_from(-4000, 4000) / 8 : specials[draw(5)];
  uint64_t bits = 0;
  float f;

  switch (t->kind) {
  case KIND_BOOL: return draw(2);
  case KIND_INT:
  case KIND_UINT: return chance(70) ? (uint64_t)draw_from(-100, 3000) : draw_u64();
  case KIND_BFLOAT:
    f = (float)x;
    memcpy(&bits, &f, 4);
    return bits >> 16;
  case KIND_FLOAT:
  case KIND_COMPLEX:
    /* finite ones, or any */
    if (t->bytes == 2) return chance(90) ? draw(0x7c00) | draw(2) << 15 : draw_u64();
    if (t->kind == KIND_COMPLEX ? t->bytes == 8 : t->bytes == 4) {
      if (chance(5)) return draw_u64();
      f = (float)x * (chance(50) ? 1.1f : 1);
      memcpy(&bits, &f, 4);
      return bits;
    }
    if (chance(5)) return draw_u64();
    if (chance(50)) x *= 1.1;
    memcpy(&bits, &x, 8);
    return bits;
  }
  return 0;
}

static inline void draw_element(const struct type *t, unsigned char *to) {
  unsigned part = t->kind == KIND_COMPLEX ? t->bytes / 2 : t->bytes;

  for (unsigned i = 0; i < t->bytes; i += part) put_u64(to + i, draw_bits(t), part, false);
}

/* The fill value as JSON and as bytes. */
static inline void draw_fill(struct array *a) {
  const struct type *t = a->type;
  static const float floats[] = {0, 1, -2.5f, 1024};
  double x = (double)floats[draw(4)];
  float f = (float)x;
  uint16_t half[4] = {0, 0x3c00, 0xc100, 0x6400};
  uint32_t bits;
  int64_t i = t->kind == KIND_INT ? draw_from(-128, 127) : (int64_t)draw(256);
  unsigned what = (unsigned)draw(10);

  if (a->format == 2 && what == 0) {
    a->fill_text = "null";
    return;
  }
  switch (t->kind) {
  case KIND_BOOL:
    a->fill[0] = (unsigned char)draw(2);
    a->fill_text = a->fill[0] ? "true" : "false";
    return;
  case KIND_INT:
  case KIND_UINT:
    put_u64(a->fill, (uint64_t)i, t->bytes, false);
    a->fill_text = own_text("%" PRId64, i);
    return;
  case KIND_COMPLEX:
    if (t->bytes == 8) memcpy(a->fill, &f, 4);
    else memcpy(a->fill, &x, 8);
    a->fill_text = a->format == 3 ? own_text("[%.9g,0.0]", x) : "0.0";
    if (a->format == 2) memset(a->fill, 0, 16);
    return;
  case KIND_FLOAT:
  case KIND_BFLOAT: break;
  }
  a->fill_is_nan = what < 4;
  if (a->fill_is_nan) x = (double)NAN, f = NAN;
  if (t->bytes == 8) {
    uint64_t wide = UINT64_C(0x7ff8000000000000);

    if (!a->fill_is_nan) memcpy(&wide, &x, 8);
    put_u64(a->fill, wide, 8, false);
  } else {
    memcpy(&bits, &f, 4);
    if (a->fill_is_nan) bits = 0x7fc00000;
    if (t->kind == KIND_BFLOAT) put_u64(a->fill, bits >> 16, 2, false);
    else if (t->bytes == 4) put_u64(a->fill, bits, 4, false);
    else {
      uint16_t h = 0x7e00;

      for (int k = 0; k < 4; k++)
        if (!a->fill_is_nan && (double)floats[k] == x) h = half[k];
      put_u64(a->fill, h, 2, false);
    }
  }
  a->fill_text = a->fill_is_nan ? "\"NaN\"" : own_text("%.9g", x);
}

static inline void draw_codecs(const struct array *a, struct level *l, bool around_shard) {
  static const char *const inside[] = {"lz4", "lz4hc", "zstd", "zlib", "blosclz", "snappy"};
  static const char *const deltas[] = {"<i1", "<i2", "<i4", "<i8"};
  unsigned what = (unsigned)draw(20);

  l->n_codecs = 0;
  if (around_shard && !chance(15)) return;
  if (a->format == 2 && a->type->kind != KIND_COMPLEX && chance(12)) {
    struct codec *c = &l->codec[l->n_codecs++];
    unsigned width = a->type->bytes == 1   ? 0
                     : a->type->bytes == 2 ? 1
                     : a->type->bytes == 4 ? 2
                                           : 3;

    *c = (struct codec){.kind = CODEC_SHUFFLE, .typesize = a->type->bytes};
    if (chance(50) && a->type->kind == KIND_INT && !a->big)
      *c = (struct codec){.kind = CODEC_DELTA,
          .typesize = a->type->bytes,
          .cname = a->type->bytes == 1 ? "|i1" : deltas[width]};
    else if (chance(30)) c->kind = chance(50) ? CODEC_CRC32 : CODEC_ADLER32;
  }
  struct codec *c = &l->codec[l->n_codecs];
  if (what >= 5) l->n_codecs++;
  if (what >= 13)
    *c = (struct codec){.kind = CODEC_BLOSC,
        .cname = inside[draw(6)],
        .level = (int)draw(10),
        .shuffle = (int)draw(3),
        .typesize = around_shard ? 1 : a->type->bytes,
        .blocksize = chance(70) ? 0 : (size_t)64 << draw(6)};
  else if (what >= 9)
    *c = (struct codec){.kind = CODEC_ZSTD, .level = (int)draw(4), .checksum = chance(30)};
  else if (what == 8) *c = (struct codec){.kind = CODEC_LZ4};
  else if (what == 7) *c = (struct codec){.kind = CODEC_GZIP, .level = (int)draw(10)};
  else if (what == 6) *c = (struct codec){.kind = CODEC_ZLIB, .level = (int)draw(10)};
  else if (what == 5) *c = (struct codec){.kind = CODEC_BZ2, .level = 1};
  if (a->format == 3 && chance(20)) l->codec[l->n_codecs++] = (struct codec){.kind = CODEC_CRC32C};
}

/* An array whose path, axes of the draw space and their lengths are there. */
static inline void draw_array(struct array *a, int ndim) {
  a->ndim = ndim;
  do a->type = &types[draw(TYPES)];
  while (a->format == 2 && !a->type->v2);
  a->big = a->type->bytes > 1 && chance(30);
  a->n_levels = a->format == 2 || !chance(45) ? 1 : chance(15) ? 3 : 2;
  a->absent = chance(60) ? 0 : chance(80) ? (unsigned)draw(40) : 100;
  struct level *leaf = &a->level[a->n_levels - 1];
  int n_drawn = 0;
  for (int d = 0; d < ndim; d++) {
    static const uint64_t sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 10, 16};
    bool sample = d == a->axis;

    if (!a->drawn[d]) a->shape[d] = 1 + draw(ndim > 3 ? 4 : 8);
    leaf->size[d] = sample ? sizes[draw(10)] : a->shape[d] / 2 + 1 + draw(a->shape[d]);
    if (!sample && a->drawn[d]) leaf->size[d] = 1 + draw(a->shape[d]);
    if (sample && chance(5)) leaf->size[d] = a->shape[d] + draw(3);
    if (!sample && chance(20)) leaf->size[d] = 1 + draw(2);
    n_drawn += a->drawn[d] != 0;
  }
  if (chance(4) && ndim > 1 && n_drawn == 1) { /* rows that blosc cuts into blocks */
    int d = a->axis == ndim - 1 ? ndim - 2 : ndim - 1;

    a->shape[d] = 300 + draw(900);
    leaf->size[d] = a->shape[d] / 3 + draw(a->shape[d]);
    leaf->size[a->axis] = least(leaf->size[a->axis], 4);
    for (int e = 0; e < ndim; e++)
      if (e != d && e != a->axis) a->shape[e] = 1;
  }
  for (int l = 0; l < a->n_levels; l++)
    for (int d = 0; d < ndim; d++) a->level[l].order[d] = d;
  for (int l = a->n_levels - 2; l >= 0; l--)
    for (int d = 0; d < ndim; d++)
      a->level[l].size[d] = a->level[l + 1].size[d] * (1 + draw(d == a->axis ? 4 : 2));
  if (a->format == 2) {
    a->fortran = chance(30);
    for (int d = 0; a->fortran && d < ndim; d++) leaf->order[d] = ndim - 1 - d;
  }
  for (int l = 0; l < a->n_levels; l++) {
    struct level *v = &a->level[l];

    if (a->format == 3 && chance(l + 1 < a->n_levels ? 10 : 30)) {
      v->transposed = true;
      for (int i = ndim - 1; i > 0; i--) {
        int j = (int)draw((uint64_t)i + 1), t = v->order[i];

        v->order[i] = v->order[j];
        v->order[j] = t;
      }
    }
    draw_codecs(a, v, l + 1 < a->n_levels);
    v->index_first = chance(40);
    v->index_crc = chance(70);
    v->index_big = chance(10);
  }
  draw_fill(a);
  a->v2_keys = a->format == 3 && chance(20);
  a->dotted = a->format == 2 || a->v2_keys ? chance(60) : chance(20);
  a->dot_key = chance(50);
}

/* Fills the array: elements drawn, the fill in chunks that are absent. */
static inline void draw_elements(struct array *a) {
  const struct level *leaf = &a->level[a->n_levels - 1];
  uint64_t count = array_count(a);
  unsigned item = a->type->bytes;

  a->n_chunks = 1;
  for (int d = 0; d < a->ndim; d++)
    a->n_chunks *= a->chunks[d] = ceil_div(a->shape[d], leaf->size[d]);
  a->is_absent = own(a->n_chunks);
  a->is_empty = own(1);
  for (int l = 0; l < a->n_levels; l++) {
    a->not_stored[l] = own(a->n_chunks);
    a->is_bad[l] = own(a->n_chunks);
  }
  for (uint64_t i = 0; i < a->n_chunks; i++) a->is_absent[i] = chance(a->absent);
  a->data = own(count * item);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t at[MAX_DIMS], rest = i;

    for (int d = a->ndim - 1; d >= 0; d--) {
      at[d] = rest % a->shape[d];
      rest /= a->shape[d];
    }
    if (a->is_absent[array_chunk_of(a, at)]) memcpy(a->data + i * item, a->fill, item);
    else draw_element(a->type, a->data + i * item);
  }
}
#endif
