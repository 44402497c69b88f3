/* insitu mk: synthetic archives of any layout the library reads, generated chunk by chunk on all
 * cores. The data does not depend on chunking, codec or format: every element is a function of the
 * seed, the array's number and the element's C-order index. */
#include <zlib.h>
#ifdef TOOL_WITH_BLOSC /* link -lblosc; without it there are no chunks by blosc */
#include <blosc.h>
#endif
#include <ftw.h>
#include <math.h>
#include <signal.h>

enum { MK_MAX_ARRAYS = 4096, MK_MAX_THREADS = 256, MK_WAVES = 7, MK_LATTICES = 4 };
/* the last four: coordinates */
enum mk_data { MK_ZEROS, MK_INDEX, MK_WEATHER, MK_NOISE, MK_TIME, MK_LAT, MK_LON, MK_COUNT };
static const char *const mk_data_names[] = {"zeros", "index", "weather", "noise"};
enum mk_codec { MK_RAW, MK_ZSTD, MK_LZ4, MK_GZIP, MK_ZLIB, MK_BLOSC };
static const char *const mk_codec_names[] = {"raw", "zstd", "lz4", "gzip", "zlib", "blosc"};
#ifdef TOOL_WITH_BLOSC
static const char mk_default_codec[] = "blosc";
#else
static const char mk_default_codec[] = "zstd";
#endif
static const char *const mk_blosc_names[] = {"lz4", "zstd", "zlib"};
static const char *const mk_shuffle_names[] = {"noshuffle", "shuffle", "bitshuffle"};

struct mk_array {
  char *path; /* "" for a root that is an array */
  uint64_t number;
  enum mk_data data;
  int format;
  unsigned ndim;
  /* shard: all 0 without */
  uint64_t shape[INSITU__MAX_DIMS], chunk[INSITU__MAX_DIMS], shard[INSITU__MAX_DIMS];
  /* NULL: unnamed */
  char *dim[INSITU__MAX_DIMS];
  const struct insitu__dtype_names *dtype;
  bool sharded, big, fortran, crc32c, index_at_start, index_crc, shuffle_inner;
  enum mk_codec codec;
  int level, shuffle;
  const char *inner; /* blosc's */
  char separator;
  char fill[64]; /* JSON */
  double absent;
  uint64_t seed;
  /* made from the above */
  /* its own metadata read back; of a sharded array, that of its inner chunks */
  struct insitu__zarr_array zarr;
  struct insitu__box turn;           /* from C order, native, to what is stored */
  uint64_t chunk_bytes, chunk_bound; /* decoded, encoded at most */
  uint64_t object[INSITU__MAX_DIMS]; /* elements of what one file holds: the shard, or the chunk */
  uint64_t inner_count, objects;     /* chunks of a shard, or 1; files */
  float *wave;                       /* of weather: cosines and sines along the last axis */
};
struct mk {
  const char *dir;
  bool made_dir; /* it was not there before */
  struct mk_array *arrays;
  uint64_t n_arrays, objects;
  bool consolidated;
  atomic_uint_least64_t next, done, chunks, decoded, stored, absent; /* chunks and bytes of data */
  atomic_uint running;
  atomic_bool failed;
  pthread_mutex_t lock;
  insitu_error err;
};
struct mk_worker {
  struct mk *mk;
  pthread_t id;
  unsigned char *plain, *turned, *shard; /* one chunk in C order; as stored; one shard */
  unsigned char *packed;
  float *row;
  uint64_t plain_bytes, packed_bytes, shard_bytes;
  ZSTD_CCtx *zstd;
};

static uint64_t mk_mix(uint64_t a, uint64_t b) {
  return insitu__order_mix(insitu__order_mix(a + UINT64_C(0x9E3779B97F4A7C15)) ^ b);
}
static double mk_unit(uint64_t bits) { /* [0, 1) */
  return (double)(bits >> 11) * 0x1p-53;
}

/* ---- elements ---- */

/* One scalar of a dtype from a whole number, wrapped so that it is exact: integers modulo their
 * size, floats modulo what their mantissa holds. */
static void mk_put(unsigned char *to, int32_t dtype, uint64_t value) {
  uint16_t half = 0;
  float single = (float)(value & 0xffffff);
  double wide = (double)(value & ((UINT64_C(1) << 53) - 1));
  switch (dtype) {
  case INSITU_BOOL: *to = value & 1; break;
  case INSITU_F16:
  case INSITU_BF16:
    insitu__zarr_half((double)(value & (dtype == INSITU_F16 ? 2047 : 255)), dtype, &half);
    memcpy(to, &half, 2);
    break;
  case INSITU_F32: memcpy(to, &single, 4); break;
  case INSITU_F64: memcpy(to, &wide, 8); break;
  default: memcpy(to, &value, (uint32_t)(dtype & 0xff) / 8);
  }
}
/* floats: uniform in [0, 1), all bits used */
static void mk_put_noise(unsigned char *to, int32_t dtype, uint64_t bits) {
  uint16_t half;
  float single = (float)(bits >> 40) * 0x1p-24f;
  double wide = mk_unit(bits);
  if (dtype == INSITU_F16 || dtype == INSITU_BF16) {
    unsigned used = dtype == INSITU_F16 ? 11 : 8;
    insitu__zarr_half((double)(bits >> (64 - used)) / (1u << used), dtype, &half);
    memcpy(to, &half, 2);
  } else if (dtype == INSITU_F32) memcpy(to, &single, 4);
  else if (dtype == INSITU_F64) memcpy(to, &wide, 8);
  else mk_put(to, dtype, bits >> 7);
}

static int32_t mk_scalar(int32_t dtype) { /* of each half of a complex one */
  return dtype == INSITU_C64 ? INSITU_F32 : dtype == INSITU_C128 ? INSITU_F64 : dtype;
}

/* ---- weather ---- */
/* An eastward wind: westerlies in both halves of the last axis but one, travelling waves, and red
 * noise along the last axis (lattices, the coarse ones strongest). Mantissas are rounded, as packed
 * archives have them. Measured on 721 x 1440 float32: ratio 1.54 by blosc:lz4, 1.80 by blosc:zstd,
 * 1.33 by zstd:3. */
enum { MK_KEEP = 16 };                                          /* mantissa bits */
static const unsigned mk_lattice[MK_LATTICES] = {1, 4, 16, 64}; /* elements from node to node */
static const float mk_weight[MK_LATTICES] = {0.3f, 0.3f, 0.6f, 1.2f};

static float *mk_wave_table(uint64_t n) { /* for each wave n cosines, then n sines */
  float *table = (float *)tool_alloc(2 * MK_WAVES * n, sizeof *table);
  for (unsigned m = 0; m < MK_WAVES; m++)
    for (uint64_t x = 0; x < n; x++) {
      double phase = 6.283185307179586 * (m + 1) * (double)x / (double)n;
      table[2 * m * n + x] = (float)cos(phase);
      table[(2 * m + 1) * n + x] = (float)sin(phase);
    }
  return table;
}
static void mk_lattice_add(
    float *out, uint64_t n, uint64_t x0, unsigned step, float weight, uint64_t seed) {
  for (uint64_t i = 0; i < n;) {
    uint64_t node = (x0 + i) / step, within = (x0 + i) % step;
    float a = (float)(int32_t)(mk_mix(seed, node) >> 32) * 0x1p-31f * weight;
    float b = (float)(int32_t)(mk_mix(seed, node + 1) >> 32) * 0x1p-31f * weight;
    for (; within < step && i < n; within++, i++)
      out[i] += a + (b - a) * (float)within / (float)step;
  }
}
/* n elements along the last axis from index `at`; `flat` is the row's number. */
static void mk_weather(
    const struct mk_array *a, float *out, uint64_t n, const uint64_t *at, uint64_t flat) {
  unsigned last = a->ndim - 1;
  uint64_t nx = a->shape[last], x0 = at[last], ny = last ? a->shape[last - 1] : 1,
           y = last ? at[last - 1] : 0;
  uint64_t t = flat / ny, seed = mk_mix(a->seed, a->number), row = mk_mix(seed, flat);
  double lat = 3.141592653589793 * ((double)y + 0.5) / (double)ny;
  float base = (float)(18 * sin(2 * lat) * sin(2 * lat) - 6);
  for (uint64_t i = 0; i < n; i++) out[i] = base;
  for (unsigned m = 0; m < MK_WAVES; m++) {
    double speed = 0.05 + 0.2 * mk_unit(mk_mix(seed, m)),
           tilt = 4 * mk_unit(mk_mix(seed, 100 + m)) - 2;
    double phase =
        speed * (double)t + tilt * lat + 6.283185307179586 * mk_unit(mk_mix(seed, 200 + m));
    float c = (float)(8.0 / (m + 1) * sin(lat) * cos(phase)),
          s = (float)(8.0 / (m + 1) * sin(lat) * sin(phase));
    const float *cosine = a->wave + 2 * m * nx + x0, *sine = cosine + nx;
    for (uint64_t i = 0; i < n; i++) out[i] += c * cosine[i] - s * sine[i];
  }
  for (unsigned k = 0; k < MK_LATTICES; k++)
    mk_lattice_add(out, n, x0, mk_lattice[k], mk_weight[k], row + k);
  for (uint64_t i = 0; i < n; i++) { /* to nearest even */
    const unsigned drop = 23 - MK_KEEP;
    uint32_t bits;
    memcpy(&bits, &out[i], 4);
    bits = (bits + ((1u << (drop - 1)) - 1) + (bits >> drop & 1)) & ~((1u << drop) - 1);
    memcpy(&out[i], &bits, 4);
  }
}
static void mk_put_float(unsigned char *to, int32_t dtype, float value) { /* a float dtype */
  uint16_t half = 0;
  double wide = value;
  if (dtype == INSITU_F16 || dtype == INSITU_BF16) insitu__zarr_half(value, dtype, &half);
  memcpy(to,
      (dtype & 0xff) == 16  ? (const void *)&half
      : dtype == INSITU_F64 ? (const void *)&wide
                            : (const void *)&value,
      (size_t)(dtype & 0xff) / 8);
}

/* ---- coordinates ---- */

static double mk_coordinate(const struct mk_array *a, uint64_t i) {
  double n = (double)a->shape[0];
  /* middles of cells, from the north */
  if (a->data == MK_LAT) return 90 - 180 * ((double)i + 0.5) / n;
  if (a->data == MK_LON) return 360 * (double)i / n;
  return (double)(a->data == MK_TIME ? 6 * i : i);
}
static const char *mk_attributes(const struct mk_array *a) { /* members of a JSON object */
  switch (a->data) {
  case MK_TIME:
    return "\"standard_name\": \"time\", \"units\": \"hours since 2000-01-01\", \"calendar\": "
           "\"proleptic_gregorian\"";
  case MK_LAT: return "\"standard_name\": \"latitude\", \"units\": \"degrees_north\"";
  case MK_LON: return "\"standard_name\": \"longitude\", \"units\": \"degrees_east\"";
  case MK_WEATHER: return "\"long_name\": \"synthetic wind\", \"units\": \"m s-1\"";
  default: return "";
  }
}

/* ---- chunks ---- */

/* n elements along the last axis from index `at`, of which the first is element `flat` of the array
 * in C order. */
static void mk_row(const struct mk_array *a, float *row, unsigned char *to, uint64_t n,
    const uint64_t *at, uint64_t flat) {
  int32_t dtype = a->dtype->dtype, scalar = mk_scalar(dtype);
  uint32_t item = a->zarr.itemsize, size = insitu__zarr_scalar_size(&a->zarr);
  uint64_t key = mk_mix(a->seed, a->number);
  if (a->data == MK_ZEROS) memset(to, 0, (size_t)(n * item));
  else if (a->data == MK_WEATHER) mk_weather(a, row, n, at, flat / a->shape[a->ndim - 1]);
  for (uint64_t i = 0; a->data != MK_ZEROS && i < n; i++) {
    unsigned char *p = to + i * item;
    if (a->data == MK_WEATHER) mk_put_float(p, dtype, row[i]);
    else if (a->data == MK_INDEX) mk_put(p, scalar, flat + i);
    else if (a->data == MK_NOISE) mk_put_noise(p, scalar, mk_mix(key, flat + i));
    else if (dtype >> 8 == 2) mk_put_float(p, dtype, (float)mk_coordinate(a, at[0] + i));
    else mk_put(p, dtype, (uint64_t)mk_coordinate(a, at[0] + i));
    if (size == item || a->data == MK_WEATHER) continue; /* the imaginary half */
    if (a->data == MK_INDEX) mk_put(p + size, scalar, flat + i + 1);
    else mk_put_noise(p + size, scalar, mk_mix(key + 1, flat + i));
  }
}
/* The decoded bytes of the chunk at `index` (in chunks); what hangs over the array's edge holds the
 * fill value. */
static const unsigned char *mk_chunk(
    const struct mk_array *a, struct mk_worker *w, const uint64_t *index) {
  uint64_t at[INSITU__MAX_DIMS], count[INSITU__MAX_DIMS], stride[INSITU__MAX_DIMS], rows = 1,
                                                                                    flat_row = 0;
  uint32_t item = a->zarr.itemsize;
  unsigned last = a->ndim - 1;
  bool edge = false;
  for (unsigned d = a->ndim; d-- > 0;) {
    at[d] = index[d] * a->chunk[d];
    count[d] = insitu__base_min(a->chunk[d], a->shape[d] - at[d]);
    stride[d] = d == last ? item : stride[d + 1] * a->chunk[d + 1];
    edge = edge || count[d] < a->chunk[d];
    if (d != last) rows *= count[d];
  }
  for (uint64_t i = 0; edge && i < a->chunk_bytes; i += item)
    memcpy(w->plain + i, a->zarr.fill, item);
  for (uint64_t r = 0; r < rows; r++) {
    uint64_t rest = r, offset = 0, here[INSITU__MAX_DIMS];
    here[last] = at[last];
    for (unsigned d = last; d-- > 0;) {
      here[d] = at[d] + rest % count[d];
      offset += rest % count[d] * stride[d];
      rest /= count[d];
    }
    flat_row = 0;
    for (unsigned d = 0; d <= last; d++) flat_row = flat_row * a->shape[d] + here[d];
    mk_row(a, w->row, w->plain + offset, count[last], here, flat_row);
  }
  if (!a->zarr.swap && !a->fortran) return w->plain;
  insitu__box_copy(&a->turn, w->plain, w->turned);
  return w->turned;
}

static uint64_t mk_deflate(
    bool gzip, int level, const unsigned char *from, uint64_t n, unsigned char *to, uint64_t cap) {
  z_stream z = {.next_in = (Bytef *)(uintptr_t)from,
      .avail_in = (uInt)n,
      .next_out = to,
      .avail_out = (uInt)cap};
  if (deflateInit2(&z, level, Z_DEFLATED, 15 + 16 * gzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
  uint64_t got = deflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
  deflateEnd(&z);
  return got;
}
/* The same as mk_encode, by blosc. */
static uint64_t mk_blosc(const struct mk_array *a, const unsigned char *from, unsigned char *to) {
#ifdef TOOL_WITH_BLOSC
  int got = blosc_compress_ctx(a->level, a->shuffle, a->zarr.itemsize, (size_t)a->chunk_bytes, from,
      to, (size_t)a->chunk_bound, a->inner, 0, 1);
  return got > 0 ? (uint64_t)got : 0;
#else
  (void)a, (void)from, (void)to; /* mk_parse_codec refused it */
  return 0;
#endif
}

/* Encodes one chunk to `to`, which has room for chunk_bound bytes; the encoded length, 0 on
 * failure. */
static uint64_t mk_encode(
    const struct mk_array *a, struct mk_worker *w, const unsigned char *from, unsigned char *to) {
  uint64_t n = a->chunk_bytes, cap = a->chunk_bound, got = n;
  switch (a->codec) {
  case MK_RAW: memcpy(to, from, (size_t)n); break;
  case MK_ZSTD:
    got = ZSTD_compressCCtx(w->zstd, to, (size_t)cap, from, (size_t)n, a->level);
    if (ZSTD_isError((size_t)got)) return 0;
    break;
  case MK_LZ4: /* as numcodecs writes it: the decoded length, then a block */
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(n >> 8 * i);
    got = (uint64_t)LZ4_compress_default(
        (const char *)from, (char *)to + 4, (int)n, (int)insitu__base_min(cap - 4, INT_MAX));
    if (!got) return 0;
    got += 4;
    break;
  case MK_GZIP: got = mk_deflate(true, a->level, from, n, to, cap); break;
  case MK_ZLIB: got = mk_deflate(false, a->level, from, n, to, cap); break;
  case MK_BLOSC: got = mk_blosc(a, from, to); break;
  }
  if (got && a->crc32c) {
    uint32_t crc = insitu__comp_crc32c(to, got);
    for (int i = 0; i < 4; i++) to[got++] = (unsigned char)(crc >> 8 * i);
  }
  return got;
}

/* ---- files ---- */

/* the first failure counts */
static void mk_fail(struct mk *mk, const char *path, const char *cause) {
  pthread_mutex_lock(&mk->lock);
  insitu__error_set(&mk->err, INSITU_E_IO, "%s: %s", path, cause);
  pthread_mutex_unlock(&mk->lock);
  atomic_store(&mk->failed, true);
}
/* makes the directories of a path beyond its first `root` bytes */
static void mk_parents(const char *path, uint64_t root) {
  char parent[2 * INSITU__MAX_KEY];
  for (const char *s = strchr(path + root + 1, '/'); s; s = strchr(s + 1, '/')) {
    snprintf(parent, sizeof parent, "%.*s", (int)(s - path), path);
    mkdir(parent, 0777);
  }
}

static volatile sig_atomic_t mk_signal; /* what is to end the run; 0: nothing */
static void mk_on_signal(int number) {
  mk_signal = number;
}
/* From now on a signal that would end the program only sets mk_signal, also the second one:
 * timeout(1) sends two. What the caller ignores (nohup) stays ignored. */
static void mk_catch_signals(void) {
  static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
  for (size_t i = 0; i < TOOL_COUNT(numbers); i++) {
    struct sigaction now, then = {.sa_handler = mk_on_signal};
    if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
      sigaction(numbers[i], &then, NULL);
  }
}

static bool mk_write(struct mk *mk, const char *key, const void *bytes, uint64_t n) {
  char path[2 * INSITU__MAX_KEY];
  snprintf(path, sizeof path, "%s/%s", mk->dir, key);
  int fd = -1;
  for (int attempt = 0; fd < 0 && attempt < 2; attempt++) {
    if (attempt) mk_parents(path, strlen(mk->dir));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 && errno != ENOENT) break;
  }
  bool ok = fd >= 0;
  for (uint64_t done = 0; ok && done < n;) {
    ssize_t w = write(fd, (const char *)bytes + done, (size_t)insitu__base_min(n - done, 1 << 30));
    if (w > 0) done += (uint64_t)w;
    else if (w == 0 || errno != EINTR) ok = false;
  }
  int error = ok ? 0 : errno;
  if (fd >= 0 && close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (!ok) mk_fail(mk, path, strerror(error));
  return ok;
}

/* All inner chunks of the shard at `index`, then or before them the index: for each (offset,
 * length), all ones where the chunk is absent. The bytes of the shard; 0 when every chunk is absent
 * or on failure. */
static uint64_t mk_shard(
    const struct mk_array *a, struct mk_worker *w, const uint64_t *index, uint64_t number) {
  uint64_t table = 16 * a->inner_count + 4 * a->index_crc, n = a->index_at_start ? table : 0,
           present = 0;
  uint64_t *order = (uint64_t *)tool_alloc(a->inner_count, sizeof *order),
           random = mk_mix(a->seed ^ 0x5a4d, number);
  unsigned char *entry = (unsigned char *)tool_alloc(table, 1);
  memset(entry, 0xff, (size_t)table);
  for (uint64_t i = 0; i < a->inner_count; i++) order[i] = i;
  for (uint64_t i = a->inner_count; a->shuffle_inner && i-- > 1;) {
    uint64_t k = mk_mix(random, i) % (i + 1), other = order[k];
    order[k] = order[i];
    order[i] = other;
  }
  for (uint64_t i = 0; i < a->inner_count; i++) {
    uint64_t at[INSITU__MAX_DIMS], rest = order[i];
    bool inside = true;
    for (unsigned d = a->ndim; d-- > 0;) {
      uint64_t side = a->shard[d] / a->chunk[d];
      at[d] = index[d] * side + rest % side;
      rest /= side;
      inside = inside && at[d] * a->chunk[d] < a->shape[d];
    }
    if (!inside) continue;
    if (mk_unit(mk_mix(random ^ 1, order[i])) < a->absent) {
      atomic_fetch_add(&w->mk->absent, 1);
      continue;
    }
    if (a->shuffle_inner) { /* a gap that nobody points to */
      uint64_t gap = mk_mix(random ^ 2, i) % 61;
      memset(w->shard + n, 0xa5, (size_t)gap);
      n += gap;
    }
    uint64_t got = mk_encode(a, w, mk_chunk(a, w, at), w->shard + n);
    if (!got) {
      mk_fail(w->mk, a->path, "a chunk could not be encoded; try another codec or smaller chunks");
      present = 0;
      break;
    }
    insitu__base_store64(entry + 16 * order[i], n);
    insitu__base_store64(entry + 16 * order[i] + 8, got);
    n += got;
    present++;
    atomic_fetch_add(&w->mk->decoded, a->chunk_bytes);
  }
  if (a->index_crc) {
    uint32_t crc = insitu__comp_crc32c(entry, 16 * a->inner_count);
    for (int i = 0; i < 4; i++)
      entry[16 * a->inner_count + (uint64_t)i] = (unsigned char)(crc >> 8 * i);
  }
  memcpy(w->shard + (a->index_at_start ? 0 : n), entry, (size_t)table);
  atomic_fetch_add(&w->mk->chunks, present);
  insitu__mem_free(order);
  insitu__mem_free(entry);
  return present ? n + (a->index_at_start ? 0 : table) : 0;
}
/* Object `number` of an array: its one chunk, or its shard. */
static void mk_object(const struct mk_array *a, struct mk_worker *w, uint64_t number) {
  uint64_t index[INSITU__MAX_DIMS], rest = number, n = 0;
  char key[INSITU__MAX_KEY];
  for (unsigned d = a->ndim; d-- > 0;) {
    uint64_t side = insitu__base_ceil_div(a->shape[d], a->object[d]);
    index[d] = rest % side;
    rest /= side;
  }
  if (mk_unit(mk_mix(mk_mix(a->seed, a->number + 7), number)) < a->absent) {
    atomic_fetch_add(&w->mk->absent, a->inner_count);
    return;
  }
  const unsigned char *bytes = a->sharded ? w->shard : w->packed;
  if (a->sharded) {
    if (!(n = mk_shard(a, w, index, mk_mix(a->number, number)))) return;
  } else {
    n = mk_encode(a, w, mk_chunk(a, w, index), w->packed);
    if (!n) {
      mk_fail(w->mk, a->path, "a chunk could not be encoded; try another codec or smaller chunks");
      return;
    }
    atomic_fetch_add(&w->mk->chunks, 1);
    atomic_fetch_add(&w->mk->decoded, a->chunk_bytes);
  }
  atomic_fetch_add(&w->mk->stored, n);
  if (insitu__zarr_chunk_key(&a->zarr, index, key, sizeof key) < 0)
    mk_fail(w->mk, a->path, "the path is too long");
  else mk_write(w->mk, key, bytes, n);
}
static void *mk_main(void *arg) {
  struct mk_worker *w = (struct mk_worker *)arg;
  struct mk *mk = w->mk;
  for (uint64_t i; !mk_signal && !atomic_load(&mk->failed) &&
                   (i = atomic_fetch_add(&mk->next, 1)) < mk->objects;) {
    uint64_t k = 0;
    while (i >= mk->arrays[k].objects) i -= mk->arrays[k++].objects;
    mk_object(&mk->arrays[k], w, i);
    atomic_fetch_add(&mk->done, 1);
  }
  atomic_fetch_sub(&mk->running, 1);
  return NULL;
}
/* All chunks, on all cores; each thread has room for one chunk, plain and encoded, and one shard.
 */
static void mk_generate(struct mk *mk) {
  unsigned n = (unsigned)insitu__base_min(
      insitu__base_min(insitu__mem_cores(), MK_MAX_THREADS), mk->objects);
  struct mk_worker *workers =
      (struct mk_worker *)tool_alloc(insitu__base_max(n, 1), sizeof *workers);
  uint64_t plain = 1, packed = 1, shard = 1, row = 1;
  for (uint64_t i = 0; i < mk->n_arrays; i++) {
    const struct mk_array *a = &mk->arrays[i];
    plain = insitu__base_max(plain, a->chunk_bytes);
    packed = insitu__base_max(packed, a->chunk_bound);
    row = insitu__base_max(row, a->chunk[a->ndim - 1]);
    if (a->sharded)
      shard = insitu__base_max(shard, a->inner_count * (a->chunk_bound + 16 + 60) + 4);
  }
  tool_progress_begin(mk->objects, "files");
  atomic_store(&mk->running, n);
  for (unsigned i = 0; i < n; i++) {
    struct mk_worker *w = &workers[i];
    *w = (struct mk_worker){
        .mk = mk, .plain_bytes = plain, .packed_bytes = packed, .shard_bytes = shard};
    w->plain = (unsigned char *)insitu__mem_map(plain);
    w->turned = (unsigned char *)insitu__mem_map(plain);
    w->packed = (unsigned char *)insitu__mem_map(packed);
    w->shard = (unsigned char *)insitu__mem_map(shard);
    w->row = (float *)tool_alloc(row, sizeof *w->row);
    w->zstd = ZSTD_createCCtx();
    if (!w->plain || !w->turned || !w->packed || !w->shard || !w->zstd ||
        pthread_create(&w->id, NULL, mk_main, w))
      tool_no_memory();
  }
  while (atomic_load(&mk->running)) {
    poll(NULL, 0, 20);
    tool_progress(atomic_load(&mk->done));
  }
  tool_progress_end();
  for (unsigned i = 0; i < n; i++) {
    struct mk_worker *w = &workers[i];
    pthread_join(w->id, NULL);
    insitu__mem_unmap(w->plain, plain);
    insitu__mem_unmap(w->turned, plain);
    insitu__mem_unmap(w->packed, packed);
    insitu__mem_unmap(w->shard, shard);
    insitu__mem_free(w->row);
    ZSTD_freeCCtx(w->zstd);
  }
  insitu__mem_free(workers);
}

/* ---- metadata ---- */

static void mk_list(struct insitu__text_buffer *b, const uint64_t *v, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    insitu__text_buffer_printf(b, "%s%" PRIu64, i ? ", " : "[", v[i]);
  insitu__text_buffer_printf(b, "%s]", n ? "" : "[");
}
static void mk_dims(struct insitu__text_buffer *b, const struct mk_array *a) {
  for (unsigned d = 0; d < a->ndim; d++) {
    insitu__text_buffer_printf(b, d ? ", " : "[");
    if (a->dim[d]) insitu__text_buffer_json_string(b, a->dim[d]);
    else insitu__text_buffer_printf(b, "null");
  }
  insitu__text_buffer_printf(b, "]");
}
static void mk_compressor_v2(struct insitu__text_buffer *b, const struct mk_array *a) {
  const char *id = mk_codec_names[a->codec];
  switch (a->codec) {
  case MK_RAW: insitu__text_buffer_printf(b, "null"); break;
  case MK_LZ4: insitu__text_buffer_printf(b, "{\"id\": \"lz4\", \"acceleration\": 1}"); break;
  case MK_BLOSC:
    insitu__text_buffer_printf(b,
        "{\"id\": \"blosc\", \"cname\": \"%s\", \"clevel\": %d, \"shuffle\": %d, \"blocksize\": 0}",
        a->inner, a->level, a->shuffle);
    break;
  default: insitu__text_buffer_printf(b, "{\"id\": \"%s\", \"level\": %d}", id, a->level);
  }
}
/* of one chunk */
static void mk_codecs_v3(struct insitu__text_buffer *b, const struct mk_array *a) {
  const char *name = mk_codec_names[a->codec];
  insitu__text_buffer_printf(b, "[");
  if (a->fortran) {
    uint64_t order[INSITU__MAX_DIMS];
    for (unsigned d = 0; d < a->ndim; d++) order[d] = a->ndim - 1 - d;
    insitu__text_buffer_printf(b, "{\"name\": \"transpose\", \"configuration\": {\"order\": ");
    mk_list(b, order, a->ndim);
    insitu__text_buffer_printf(b, "}}, ");
  }
  if (a->dtype->v2[1] == '1' && !a->dtype->v2[2])
    insitu__text_buffer_printf(b, "{\"name\": \"bytes\"}");
  else
    insitu__text_buffer_printf(b, "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"%s\"}}",
        a->big ? "big" : "little");
  switch (a->codec) {
  case MK_RAW: break;
  case MK_BLOSC:
    insitu__text_buffer_printf(b,
        ", {\"name\": \"blosc\", \"configuration\": {\"typesize\": %u, \"cname\": \"%s\", "
        "\"clevel\": %d, \"shuffle\": \"%s\", "
        "\"blocksize\": 0}}",
        (unsigned)(a->dtype->dtype & 0xff) / 8, a->inner, a->level, mk_shuffle_names[a->shuffle]);
    break;
  case MK_LZ4:
    insitu__text_buffer_printf(
        b, ", {\"name\": \"numcodecs.lz4\", \"configuration\": {\"acceleration\": 1}}");
    break;
  default: /* zlib is no codec of the specification */
    insitu__text_buffer_printf(b, ", {\"name\": \"%s%s\", \"configuration\": {\"level\": %d%s}}",
        a->codec == MK_ZLIB ? "numcodecs." : "", name, a->level,
        a->codec == MK_ZSTD ? ", \"checksum\": false" : "");
  }
  insitu__text_buffer_printf(b, "%s]", a->crc32c ? ", {\"name\": \"crc32c\"}" : "");
}
static void mk_array_v3(struct insitu__text_buffer *b, const struct mk_array *a, bool sharded) {
  insitu__text_buffer_printf(b, "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": ");
  mk_list(b, a->shape, a->ndim);
  insitu__text_buffer_printf(b,
      ", \"data_type\": \"%s\", \"chunk_grid\": {\"name\": \"regular\", \"configuration\": "
      "{\"chunk_shape\": ",
      a->dtype->v3);
  mk_list(b, sharded ? a->shard : a->chunk, a->ndim);
  insitu__text_buffer_printf(b,
      "}}, \"chunk_key_encoding\": {\"name\": \"default\", \"configuration\": {\"separator\": "
      "\"%c\"}}, \"fill_value\": %s, "
      "\"codecs\": ",
      a->separator, a->fill);
  if (sharded) {
    insitu__text_buffer_printf(
        b, "[{\"name\": \"sharding_indexed\", \"configuration\": {\"chunk_shape\": ");
    mk_list(b, a->chunk, a->ndim);
    insitu__text_buffer_printf(b, ", \"codecs\": ");
  }
  mk_codecs_v3(b, a);
  if (sharded)
    insitu__text_buffer_printf(b,
        ", \"index_codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": "
        "\"little\"}}%s], \"index_location\": \"%s\"}}]",
        a->index_crc ? ", {\"name\": \"crc32c\"}" : "", a->index_at_start ? "start" : "end");
  if (a->dim[0]) {
    insitu__text_buffer_printf(b, ", \"dimension_names\": ");
    mk_dims(b, a);
  }
  insitu__text_buffer_printf(b, ", \"attributes\": {%s}}", mk_attributes(a));
}
static void mk_array_v2(struct insitu__text_buffer *b, const struct mk_array *a) {
  insitu__text_buffer_printf(b, "{\"zarr_format\": 2, \"shape\": ");
  mk_list(b, a->shape, a->ndim);
  insitu__text_buffer_printf(b, ", \"chunks\": ");
  mk_list(b, a->chunk, a->ndim);
  bool one = a->dtype->v2[1] == '1' && !a->dtype->v2[2];
  insitu__text_buffer_printf(b,
      ", \"dtype\": \"%c%s\", \"order\": \"%c\", \"fill_value\": %s, \"dimension_separator\": "
      "\"%c\", \"filters\": null, "
      "\"compressor\": ",
      one      ? '|'
      : a->big ? '>'
               : '<',
      a->dtype->v2, a->fortran ? 'F' : 'C', a->fill, a->separator);
  mk_compressor_v2(b, a);
  insitu__text_buffer_printf(b, "}");
}
/* false: it has none */
static bool mk_attributes_v2(struct insitu__text_buffer *b, const struct mk_array *a) {
  const char *attributes = mk_attributes(a);
  if (!attributes[0] && !a->dim[0]) return false;
  insitu__text_buffer_printf(b, "{%s%s", attributes, attributes[0] && a->dim[0] ? ", " : "");
  if (a->dim[0]) {
    insitu__text_buffer_printf(b, "\"_ARRAY_DIMENSIONS\": ");
    mk_dims(b, a);
  }
  return insitu__text_buffer_printf(b, "}");
}
/* One document to its file and, where consolidated, into `all`. */
static void mk_document(struct mk *mk, struct insitu__text_buffer *all, const char *path,
    const char *name, struct insitu__text_buffer *text, bool listed_by_path) {
  char key[2 * INSITU__MAX_KEY];
  snprintf(key, sizeof key, "%s%s%s", path, path[0] ? "/" : "", name);
  if (text->failed || all->failed) tool_no_memory();
  insitu__text_buffer_printf(all, all->n ? ", " : "");
  insitu__text_buffer_json_string(all, listed_by_path ? path : key);
  insitu__text_buffer_printf(all, ": %s", text->text);
  insitu__text_buffer_printf(text, "\n");
  mk_write(mk, key, text->text, text->n);
  insitu__text_buffer_free(text);
}
/* Groups above an array that no array before it had, the root excepted. */
static void mk_groups(struct mk *mk, struct insitu__text_buffer *all, uint64_t i) {
  const struct mk_array *a = &mk->arrays[i];
  for (const char *slash = strchr(a->path, '/'); slash; slash = strchr(slash + 1, '/')) {
    char path[INSITU__MAX_KEY];
    struct insitu__text_buffer text = {0};
    uint64_t n = (uint64_t)(slash - a->path), k = 0;
    while (k < i && !(strncmp(mk->arrays[k].path, a->path, n + 1) == 0)) k++;
    if (k < i) continue;
    snprintf(path, sizeof path, "%.*s", (int)n, a->path);
    if (a->format == 3)
      insitu__text_buffer_printf(
          &text, "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {}}");
    else insitu__text_buffer_printf(&text, "{\"zarr_format\": 2}");
    mk_document(mk, all, path, a->format == 3 ? "zarr.json" : ".zgroup", &text, a->format == 3);
  }
}
/* Every array's metadata, the groups above them, and the root's, which comes last: an archive cut
 * short is not taken for one. */
static void mk_metadata(struct mk *mk) {
  struct insitu__text_buffer all = {0}, text = {0};
  int format = mk->arrays[0].format;
  for (uint64_t i = 0; i < mk->n_arrays; i++) {
    const struct mk_array *a = &mk->arrays[i];
    mk_groups(mk, &all, i);
    if (format == 3) mk_array_v3(&text, a, a->sharded);
    else mk_array_v2(&text, a);
    mk_document(mk, &all, a->path, format == 3 ? "zarr.json" : ".zarray", &text, format == 3);
    if (format == 2 && mk_attributes_v2(&text, a))
      mk_document(mk, &all, a->path, ".zattrs", &text, false);
  }
  if (mk->arrays[0].path[0]) {
    if (format == 3) {
      insitu__text_buffer_printf(
          &text, "{\"zarr_format\": 3, \"node_type\": \"group\", \"attributes\": {}");
      if (mk->consolidated)
        insitu__text_buffer_printf(&text,
            ", \"consolidated_metadata\": {\"kind\": \"inline\", \"must_understand\": false, "
            "\"metadata\": {%s}}",
            all.text);
      insitu__text_buffer_printf(&text, "}");
      mk_document(mk, &all, "", "zarr.json", &text, true);
    } else {
      insitu__text_buffer_printf(&text, "{\"zarr_format\": 2}");
      mk_document(mk, &all, "", ".zgroup", &text, false);
      if (mk->consolidated) {
        insitu__text_buffer_printf(
            &text, "{\"zarr_consolidated_format\": 1, \"metadata\": {%s}}\n", all.text);
        if (text.failed) tool_no_memory();
        mk_write(mk, ".zmetadata", text.text, text.n);
      }
    }
  }
  insitu__text_buffer_free(&text);
  insitu__text_buffer_free(&all);
}

/* ---- options ---- */

static const char *mk_format, *mk_name, *mk_shape, *mk_chunks, *mk_shards, *mk_index, *mk_index_crc,
    *mk_shuffle_inner, *mk_dtype, *mk_endian, *mk_order, *mk_codec, *mk_crc32c, *mk_fill,
    *mk_absent, *mk_dim_names, *mk_no_coords, *mk_separator, *mk_consolidated, *mk_seed,
    *mk_data_name, *mk_force;
static const struct tool_option mk_options[] = {
    {"format", 0, "2|3", "of Zarr (3)", &mk_format},
    {"name", 'n', "PATH,...",
        "of the arrays, such as t or era5/u,era5/v (u); / makes the root an array", &mk_name},
    {"shape", 's', "N,N,...", "of each array (512,45,90)", &mk_shape},
    {"chunks", 'c', "N,N,...",
        "of each array; with --shards, the inner chunks (8,45,90: whole but for the first axis)",
        &mk_chunks},
    {"shards", 0, "N,N,...", "v3: put chunks into shards of this shape, a multiple of --chunks",
        &mk_shards},
    {"index", 0, "start|end", "where a shard's index is (end)", &mk_index},
    {"index-crc", 0, "yes|no", "crc32c of a shard's index (yes)", &mk_index_crc},
    {"shuffle-inner", 0, NULL, "chunks lie in their shards in random order, with gaps",
        &mk_shuffle_inner},
    {"dtype", 't', "NAME",
        "bool, int8 ... uint64, float16 ... float64, complex64, complex128 (float32)", &mk_dtype},
    {"endian", 0, "little|big", "byte order (little)", &mk_endian},
    {"order", 0, "C|F", "within a chunk (C); F in v3 is a transpose codec", &mk_order},
    {"codec", 0, "SPEC",
        "raw, zstd[:LEVEL], lz4, gzip[:LEVEL], zlib[:LEVEL] or "
        "blosc[:lz4|zstd|zlib[:SHUFFLE[:LEVEL]]]\n"
        "with SHUFFLE shuffle, bitshuffle or noshuffle (blosc:lz4:shuffle:5)",
        &mk_codec},
    {"crc32c", 0, NULL, "v3: a checksum of each chunk", &mk_crc32c},
    {"fill", 0, "VALUE", "fill value: a number, NaN, Infinity, -Infinity; v2: null (0)", &mk_fill},
    {"absent", 0, "FRACTION",
        "leave out this share of the files, and with --shards of the chunks in each (0)",
        &mk_absent},
    {"dims", 'd', "NAME,...",
        "of the axes; time, lat, lon get coordinate arrays (time,lat,lon with three axes)",
        &mk_dim_names},
    {"no-coords", 0, NULL, "no coordinate arrays", &mk_no_coords},
    {"separator", 0, ". or /", "in chunk keys (v2 ., v3 /)", &mk_separator},
    {"consolidated", 0, NULL, "write consolidated metadata", &mk_consolidated},
    {"seed", 0, "N", "of weather, noise, --absent and --shuffle-inner (0)", &mk_seed},
    {"data", 0, "KIND",
        "weather, index, noise or zeros, see above (weather; index for other than floats)",
        &mk_data_name},
    {"force", 'f', NULL, "replace an archive that is there", &mk_force},
};

/* The index of `text` in a list of names, else `otherwise` when text is NULL, else -1 after a usage
 * error. */
static int mk_choice(
    const char *option, const char *text, const char *const *names, int n, int otherwise) {
  char list[256] = "";
  if (!text) return otherwise;
  for (int i = 0; i < n; i++) {
    if (strcmp(text, names[i]) == 0) return i;
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
  }
  int near = insitu__text_nearest(text, names, n);
  if (near >= 0)
    tool_usage_error(
        "%s: '%s' is unknown; did you mean '%s'? There are: %s", option, text, names[near], list);
  else tool_usage_error("%s: '%s' is unknown; there are: %s", option, text, list);
  return -1;
}
/* Splits a list at commas into copies; INSITU__MAX_DIMS or `most` at most. The number, -1 after a
 * usage error. */
static int mk_split(const char *option, const char *text, char **out, int most) {
  int n = 0;
  for (const char *p = text;; p++) {
    size_t length = strcspn(p, ",");
    if (n == most || !length) {
      tool_usage_error(
          "%s %s: %s", option, text, length ? "too many entries" : "an entry is empty");
      while (n) insitu__mem_free(out[--n]);
      return -1;
    }
    out[n] = insitu__mem_text(p, length);
    if (!out[n++]) tool_no_memory();
    p += length;
    if (!*p) return n;
  }
}
/* their number, -1 after a usage error */
static int mk_extents(const char *option, const char *text, uint64_t *out) {
  char *part[INSITU__MAX_DIMS];
  int n = mk_split(option, text, part, INSITU__MAX_DIMS);
  bool ok = true;
  for (int i = 0; i < n; i++) {
    ok = ok && tool_u64(part[i], &out[i]) && out[i] > 0;
    insitu__mem_free(part[i]);
  }
  if (ok) return n;
  tool_usage_error("%s %s: positive whole numbers are needed, such as 100,721,1440", option, text);
  return -1;
}
static bool mk_parse_codec(struct mk_array *a, const char *spec) {
  char text[64], *part[4] = {NULL}, *save = NULL;
  unsigned n = 0;
  snprintf(text, sizeof text, "%s", spec);
  for (char *p = strtok_r(text, ":", &save); p && n < 4; p = strtok_r(NULL, ":", &save))
    part[n++] = p;
  int codec = mk_choice("--codec", n ? part[0] : "", mk_codec_names, TOOL_COUNT(mk_codec_names), 0);
  if (codec < 0) return false;
  a->codec = (enum mk_codec)codec;
#ifndef TOOL_WITH_BLOSC
  if (a->codec == MK_BLOSC) {
    tool_usage_error("--codec %s: this command was built without libblosc; choose zstd, lz4, gzip, "
                     "zlib or raw, or install libblosc and build it again",
        spec);
    return false;
  }
#endif
  const char *level = a->codec == MK_BLOSC ? part[3] : part[1];
  int most = a->codec == MK_ZSTD ? 22 : 9, least = a->codec == MK_BLOSC ? 0 : 1;
  a->level = a->codec == MK_BLOSC ? 5 : a->codec == MK_GZIP ? 5 : 1;
  a->inner = "lz4";
  a->shuffle = 1;
  if (level) {
    uint64_t v;
    if (!tool_u64(level, &v) || v > (uint64_t)most || v < (uint64_t)least) {
      tool_usage_error("--codec %s: the level must be %d to %d", spec, least, most);
      return false;
    }
    a->level = (int)v;
  }
  if (n > (a->codec == MK_BLOSC ? 4u : a->codec == MK_RAW || a->codec == MK_LZ4 ? 1u : 2u)) {
    tool_usage_error("--codec %s: too many parts", spec);
    return false;
  }
  if (a->codec != MK_BLOSC) return true;
  int inner = mk_choice("--codec blosc", part[1], mk_blosc_names, TOOL_COUNT(mk_blosc_names), 0);
  if (inner < 0 || (a->shuffle = mk_choice("--codec blosc", part[2], mk_shuffle_names,
                        TOOL_COUNT(mk_shuffle_names), 1)) < 0)
    return false;
  a->inner = mk_blosc_names[inner];
  return true;
}
/* The JSON of a fill value: floats with a point, booleans as words, complex ones as pairs. */
static void mk_fill_json(struct mk_array *a, const char *given) {
  static const char *const word[][3] = {{"nan", "\"NaN\"", ""}, {"infinity", "\"Infinity\"", ""},
      {"inf", "\"Infinity\"", ""}, {"-infinity", "\"-Infinity\"", ""},
      {"-inf", "\"-Infinity\"", ""}};
  int32_t dtype = a->dtype->dtype;
  char one[48];
  snprintf(one, sizeof one, "%s", given);
  for (size_t i = 0; i < TOOL_COUNT(word); i++)
    if (strcasecmp(given, word[i][0]) == 0) snprintf(one, sizeof one, "%s", word[i][1]);
  bool number = given[0] == '-' || insitu__text_is_digit((unsigned char)given[0]);
  if (dtype == INSITU_BOOL && number)
    snprintf(one, sizeof one, "%s", strcmp(given, "0") ? "true" : "false");
  else if (dtype >> 8 >= 2 && number && !strpbrk(one, ".eE\""))
    snprintf(one, sizeof one, "%.40s.0", given);
  if (insitu__dtype_is_complex(dtype) && strcmp(one, "null"))
    snprintf(a->fill, sizeof a->fill, "[%s, 0.0]", one);
  else snprintf(a->fill, sizeof a->fill, "%s", one);
}

/* ---- what is asked for ---- */

/* Everything but names and shapes. */
static bool mk_parse_kind(struct mk_array *a) {
  static const char *const formats[] = {"2", "3"}, *const endians[] = {"little", "big"},
                           *const orders[] = {"C", "F"}, *const places[] = {"end", "start"},
                           *const answers[] = {"no", "yes"}, *const separators[] = {".", "/"};
  const char *dtypes[INSITU__DTYPE_KNOWN];
  double absent = 0;
  char *end = NULL;
  for (int i = 0; i < INSITU__DTYPE_KNOWN; i++) dtypes[i] = insitu__dtype_known[i].v3;
  int format = mk_choice("--format", mk_format, formats, 2, 1),
      big = mk_choice("--endian", mk_endian, endians, 2, 0);
  int fortran = mk_choice("--order", mk_order, orders, 2, 0),
      start = mk_choice("--index", mk_index, places, 2, 0);
  int crc = mk_choice("--index-crc", mk_index_crc, answers, 2, 1);
  int separator = mk_choice("--separator", mk_separator, separators, 2, format);
  int dtype = mk_choice("--dtype", mk_dtype, dtypes, INSITU__DTYPE_KNOWN, 10); /* float32 */
  if (format < 0 || big < 0 || fortran < 0 || start < 0 || crc < 0 || separator < 0 || dtype < 0)
    return false;
  a->format = 2 + format;
  a->big = big && (insitu__dtype_known[dtype].dtype & 0xff) > 8;
  a->fortran = fortran;
  a->index_at_start = start;
  a->index_crc = crc;
  a->separator = separators[separator][0];
  a->dtype = &insitu__dtype_known[dtype];
  a->crc32c = mk_crc32c != NULL;
  a->shuffle_inner = mk_shuffle_inner != NULL;
  bool is_float = a->dtype->dtype >> 8 == 2 || a->dtype->dtype == INSITU_BF16;
  int data = mk_choice("--data", mk_data_name, mk_data_names, TOOL_COUNT(mk_data_names),
      is_float ? MK_WEATHER : MK_INDEX);
  if (data < 0 || !mk_parse_codec(a, mk_codec ? mk_codec : mk_default_codec) ||
      !tool_option_u64("seed", mk_seed, 0, &a->seed))
    return false;
  a->data = (enum mk_data)data;
  if (mk_absent) absent = strtod(mk_absent, &end);
  a->absent = absent;
  const char *wrong = a->data == MK_WEATHER && !is_float ? "--data weather needs a float dtype"
                      : mk_absent && (*end || !(absent >= 0 && absent <= 1))
                          ? "--absent needs a number from 0 to 1"
                      : a->format == 2 && !a->dtype->v2[0] ? "this --dtype needs --format 3"
                      : a->format == 2 && a->crc32c        ? "--crc32c needs --format 3"
                      : a->format == 2 && mk_shards        ? "--shards needs --format 3"
                      : !mk_shards && (mk_index || mk_index_crc || mk_shuffle_inner)
                          ? "--index, --index-crc and --shuffle-inner need --shards"
                          : NULL;
  if (wrong) tool_usage_error("%s", wrong);
  else mk_fill_json(a, mk_fill ? mk_fill : "0");
  return !wrong;
}
/* Shape, chunks, shards, names of dimensions: each as many as the shape has. */
static bool mk_parse_shape(struct mk_array *a) {
  int n = mk_extents("--shape", mk_shape ? mk_shape : "512,45,90", a->shape), names = 0;
  if (n < 0) return false;
  a->ndim = (unsigned)n;
  for (unsigned d = 0; d < a->ndim; d++)
    a->chunk[d] = d ? a->shape[d] : insitu__base_min(8, a->shape[d]);
  a->sharded = mk_shards != NULL;
  int chunks = mk_chunks ? mk_extents("--chunks", mk_chunks, a->chunk) : n;
  int shards = mk_shards ? mk_extents("--shards", mk_shards, a->shard) : n;
  if (chunks < 0 || shards < 0) return false;
  if (chunks != n || shards != n) {
    tool_usage_error("--%s has %d numbers and --shape has %d; give one for each axis",
        chunks != n ? "chunks" : "shards", chunks != n ? chunks : shards, n);
    return false;
  }
  const char *given = mk_dim_names ? mk_dim_names : n == 3 ? "time,lat,lon" : NULL;
  if (given) names = mk_split("--dims", given, a->dim, INSITU__MAX_DIMS);
  if (names < 0) return false;
  if (given && names != n) {
    tool_usage_error(
        "--dims has %d names and --shape has %d numbers; give one for each axis", names, n);
    return false;
  }
  for (unsigned d = 0; a->sharded && d < a->ndim; d++)
    if (a->shard[d] % a->chunk[d]) {
      tool_usage_error("--shards: %" PRIu64
                       " on axis %u is no multiple of the inner chunk's %" PRIu64,
          a->shard[d], d, a->chunk[d]);
      return false;
    }
  return true;
}
/* The coordinate array of one dimension: plain, one chunk. */
static void mk_coordinate_array(
    struct mk_array *c, const struct mk_array *of, unsigned axis, const char *path) {
  const char *name = of->dim[axis];
  memset(c, 0, sizeof *c);
  c->format = of->format;
  c->path = tool_copy(path);
  c->data = strcmp(name, "time") == 0                                    ? MK_TIME
            : strcmp(name, "lat") == 0 || strcmp(name, "latitude") == 0  ? MK_LAT
            : strcmp(name, "lon") == 0 || strcmp(name, "longitude") == 0 ? MK_LON
                                                                         : MK_COUNT;
  c->ndim = 1;
  c->shape[0] = c->chunk[0] = of->shape[axis];
  c->dim[0] = tool_copy(name);
  /* float32, int64 */
  c->dtype = &insitu__dtype_known[c->data == MK_LAT || c->data == MK_LON ? 10 : 4];
  c->separator = of->separator;
  mk_fill_json(c, "0");
}
/* What follows from an array's settings; its metadata goes through the library's own parser, which
 * checks it. */
static insitu_status mk_resolve(struct mk_array *a, insitu_error *err) {
  struct insitu__text_buffer text = {0};
  int64_t from[INSITU__MAX_DIMS], to[INSITU__MAX_DIMS];
  if (a->format == 3) mk_array_v3(&text, a, false);
  else mk_array_v2(&text, a);
  if (text.failed) tool_no_memory();
  struct insitu__text_json j;
  insitu_status status = insitu__text_json_parse(&j, text.text, text.n, a->path, err);
  int attributes = a->format == 3 ? insitu__text_json_get(&j, 0, "attributes") : -1;
  if (status == INSITU_OK)
    status = insitu__zarr_read(&a->zarr, a->path, (int)a->format, &j, 0, &j, attributes, NULL, err);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&text);
  if (status < 0) return status;
  uint64_t plain = a->zarr.itemsize, stored = plain;
  for (unsigned d = a->ndim; d-- > 0;) {
    from[d] = (int64_t)plain;
    plain *= a->chunk[d];
    unsigned axis = a->zarr.order[d];
    to[axis] = (int64_t)stored;
    stored *= a->chunk[axis];
  }
  a->chunk_bytes = plain;
  a->chunk_bound = insitu__chain_bound(&a->zarr.codecs, plain);
  a->inner_count = a->objects = 1;
  if (a->codec != MK_RAW && plain >= INT_MAX - 4096)
    return insitu__error_set(err, INSITU_E_ARG,
        "--codec: a compressed chunk has less than 2 GiB; make --chunks smaller");
  uint64_t shard = a->chunk_bound + 76;
  for (unsigned d = 0; d < a->ndim; d++) {
    a->object[d] = a->sharded ? a->shard[d] : a->chunk[d];
    if (!insitu__base_mul(a->inner_count, a->object[d] / a->chunk[d], &a->inner_count) ||
        !insitu__base_mul(
            a->objects, insitu__base_ceil_div(a->shape[d], a->object[d]), &a->objects) ||
        !insitu__base_mul(shard, a->object[d] / a->chunk[d], &shard) || shard > INT64_MAX / 4)
      return insitu__error_set(err, INSITU_E_ARG,
          "--shape, --chunks: more chunks, or larger shards, than can be counted");
  }
  if (a->data == MK_WEATHER) a->wave = mk_wave_table(a->shape[a->ndim - 1]);
  return insitu__box_init(&a->turn, a->ndim, a->chunk, from, to, 0, 0, a->dtype->dtype,
      a->zarr.swap, a->dtype->dtype, err);
}
static void mk_free(struct mk *mk) {
  for (uint64_t i = 0; i < mk->n_arrays; i++) {
    struct mk_array *a = &mk->arrays[i];
    for (unsigned d = 0; d < a->ndim; d++) insitu__mem_free(a->dim[d]);
    insitu__mem_free(a->path);
    insitu__mem_free(a->wave);
    insitu__zarr_array_free(&a->zarr);
  }
  insitu__mem_free(mk->arrays);
}
static bool mk_has_array(const struct mk *mk, const char *path) {
  for (uint64_t i = 0; i < mk->n_arrays; i++)
    if (strcmp(mk->arrays[i].path, path) == 0) return true;
  return false;
}
/* One array for each name, then the coordinates beside them. False after a usage error. */
static bool mk_plan(struct mk *mk) {
  struct mk_array kind = {0};
  static char *name[MK_MAX_ARRAYS];
  char path[INSITU__MAX_KEY];
  bool ok = mk_parse_kind(&kind) && mk_parse_shape(&kind);
  int n = ok ? mk_split("--name", mk_name ? mk_name : "u", name, MK_MAX_ARRAYS) : -1;
  if (n < 0) {
    for (unsigned d = 0; d < INSITU__MAX_DIMS; d++) insitu__mem_free(kind.dim[d]);
    return false;
  }
  mk->arrays = (struct mk_array *)tool_alloc((uint64_t)n * (kind.ndim + 1), sizeof *mk->arrays);
  bool root = n == 1 && strcmp(name[0], "/") == 0;
  for (int i = 0; i < n; i++) {
    struct mk_array *a = &mk->arrays[mk->n_arrays];
    ok =
        ok && (root || (insitu__store_key_valid(name[i]) && strlen(name[i]) < INSITU__MAX_KEY / 2));
    if (!ok) tool_usage_error("--name: '%s' is no path of an array, such as t or era5/t", name[i]);
    else if (mk_has_array(mk, name[i]))
      ok = !tool_usage_error("--name: '%s' is there twice", name[i]);
    if (!ok) break;
    *a = kind;
    a->path = tool_copy(root ? "" : name[i]);
    a->number = (uint64_t)i;
    for (unsigned d = 0; d < kind.ndim; d++)
      a->dim[d] = kind.dim[d] ? tool_copy(kind.dim[d]) : NULL;
    mk->n_arrays++;
  }
  /* beside each array, in its group */
  for (int i = 0; ok && i < n && !mk_no_coords && !root; i++) {
    const char *slash = strrchr(name[i], '/');
    for (unsigned d = 0; d < kind.ndim && kind.dim[d]; d++) {
      snprintf(path, sizeof path, "%.*s%s", (int)(slash ? slash - name[i] + 1 : 0), name[i],
          kind.dim[d]);
      if (mk_has_array(mk, path) || !insitu__store_key_valid(path)) continue;
      if (mk->n_arrays == (uint64_t)n * (kind.ndim + 1)) break;
      mk_coordinate_array(&mk->arrays[mk->n_arrays++], &kind, d, path);
    }
  }
  for (unsigned d = 0; d < kind.ndim; d++) insitu__mem_free(kind.dim[d]);
  for (int i = 0; i < n; i++) insitu__mem_free(name[i]);
  return ok;
}

/* ---- the folder ---- */

static int mk_remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind;
  return at->level ? remove(path) : 0; /* the folder itself stays */
}
/* A file of this name lies in the folder until the archive is whole. */
static const char mk_unfinished[] = ".insitu-mk-unfinished";
static int mk_folder_empty(const char *dir) {
  if (nftw(dir, mk_remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0) return TOOL_OK;
  return tool_fail("%s: %s", dir, strerror(errno));
}
/* Makes the folder, or with --force empties one that holds a Zarr archive, or what a run left that
 * was ended. An exit code. */
static int mk_folder(struct mk *mk) {
  static const char *const marks[] = {"zarr.json", ".zgroup", ".zarray", mk_unfinished};
  const char *dir = mk->dir;
  struct stat info;
  char path[INSITU__MAX_KEY + 32];
  if (strlen(dir) >= INSITU__MAX_KEY)
    return tool_fail("the path is longer than %d bytes", INSITU__MAX_KEY - 1);
  mk->made_dir = mkdir(dir, 0777) == 0;
  if (!mk->made_dir && errno == ENOENT) {
    mk_parents(dir, 0);
    mk->made_dir = mkdir(dir, 0777) == 0;
  }
  if (mk->made_dir) return TOOL_OK;
  if (errno != EEXIST) return tool_fail("%s: %s", dir, strerror(errno));
  DIR *d = opendir(dir);
  if (!d) return tool_fail("%s: %s", dir, strerror(errno));
  bool empty = true, archive = false, unfinished = false;
  for (const struct dirent *e; empty && (e = readdir(d));)
    empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  closedir(d);
  if (empty) return TOOL_OK;
  for (size_t i = 0; i < TOOL_COUNT(marks); i++) {
    snprintf(path, sizeof path, "%s/%s", dir, marks[i]);
    unfinished = stat(path, &info) == 0; /* the last one decides */
    archive = archive || unfinished;
  }
  if (!archive)
    return tool_fail("%s: it holds other files and no Zarr archive; choose another folder", dir);
  if (!mk_force && unfinished)
    return tool_fail(
        "%s: it holds part of an archive, from a run that was ended; --force replaces it", dir);
  if (!mk_force) return tool_fail("%s: there is an archive already; --force replaces it", dir);
  return mk_folder_empty(dir);
}
/* After a failure or a signal: no part of an archive stays. */
static void mk_folder_clear(const struct mk *mk) {
  if (mk_folder_empty(mk->dir) != TOOL_OK) return;
  if (mk->made_dir && rmdir(mk->dir)) tool_fail("%s: %s", mk->dir, strerror(errno));
}
/* Writes the archive; an exit code. A signal ends the program here, when all is removed again. */
static int mk_make(struct mk *mk) {
  char path[INSITU__MAX_KEY + 32];
  snprintf(path, sizeof path, "%s/%s", mk->dir, mk_unfinished);
  mk_catch_signals();
  if (mk_write(mk, mk_unfinished, "", 0)) mk_generate(mk);
  if (!mk_signal && !atomic_load(&mk->failed)) mk_metadata(mk);
  bool whole = !mk_signal && !atomic_load(&mk->failed);
  if (whole && unlink(path)) mk_fail(mk, path, strerror(errno));
  if (whole && !atomic_load(&mk->failed)) return TOOL_OK;
  if (atomic_load(&mk->failed)) tool_fail_error(&mk->err);
  mk_folder_clear(mk);
  if (!mk_signal) return TOOL_FAILED;
  tool_fail("ended by a signal (%s): what was made is removed", strsignal(mk_signal));
  fflush(stdout);
  signal(mk_signal, SIG_DFL);
  raise(mk_signal);
  return TOOL_FAILED;
}

static void mk_report(const struct mk *mk, double seconds) {
  uint64_t decoded = atomic_load(&mk->decoded), stored = atomic_load(&mk->stored),
           chunks = atomic_load(&mk->chunks);
  double ratio = stored ? (double)decoded / (double)stored : 0;
  char a[32], b[32], c[32];
  if (tool_json) {
    struct tool_json_out j = {.to = stdout};
    tool_json_object(&j, NULL);
    tool_json_string(&j, "url", mk->dir);
    tool_json_u64(&j, "arrays", mk->n_arrays);
    tool_json_u64(&j, "chunks", chunks);
    tool_json_u64(&j, "absent", atomic_load(&mk->absent));
    tool_json_u64(&j, "decoded_bytes", decoded);
    tool_json_u64(&j, "stored_bytes", stored);
    tool_json_double(&j, "ratio", ratio);
    tool_json_double(&j, "seconds", seconds);
    tool_json_end(&j);
    return;
  }
  printf("%s: Zarr v%d, %" PRIu64
         " array%s, %s chunks of %s together, stored in %s (ratio %.2f), %.1f s\n",
      mk->dir, mk->arrays[0].format, mk->n_arrays, mk->n_arrays == 1 ? "" : "s",
      tool_count(c, chunks), tool_bytes(a, decoded), tool_bytes(b, stored), ratio, seconds);
}

/* Says which option makes metadata that are refused; an exit code. */
static int mk_refused(const insitu_error *err) {
  if (err->status == INSITU_E_JSON || strstr(err->message, "'fill_value'"))
    return tool_usage_error("--fill %s: no value of this dtype", mk_fill ? mk_fill : "0");
  if (strstr(err->message, "'shape'"))
    return tool_usage_error("--shape %s: more than an array can have", mk_shape);
  return tool_usage_error("%s", err->message);
}
static int mk_run(int argc, char **argv) {
  struct mk mk = {.lock = PTHREAD_MUTEX_INITIALIZER, .consolidated = mk_consolidated != NULL};
  insitu_error err = {0};
  double begin = (double)insitu__base_now();
  if (argc != 1)
    return tool_usage_error(
        argc ? "one folder is needed, not %d" : "where to? Name the folder to make", argc);
  mk.dir = argv[0];
  int code = mk_plan(&mk) ? TOOL_OK : TOOL_USAGE;
  for (uint64_t i = 0; code == TOOL_OK && i < mk.n_arrays; i++) {
    if (mk_resolve(&mk.arrays[i], &err) < 0) code = mk_refused(&err);
    mk.objects += mk.arrays[i].objects;
  }
  if (code == TOOL_OK) code = mk_folder(&mk);
  if (code == TOOL_OK) code = mk_make(&mk);
  if (code == TOOL_OK) mk_report(&mk, ((double)insitu__base_now() - begin) / 1e9);
  mk_free(&mk);
  return code;
}

static const struct tool_command mk_command = {.name = "mk",
    .arguments = "DIR [options]",
    .summary = "make a synthetic archive",
    .details = "Every element depends on its place in the array, the array's number and the seed "
               "alone, so archives that differ\n"
               "in format, chunks or codec hold the same data. Kinds of data:\n"
               "  weather  a wind: waves and red noise, 16 bits of mantissa; fields of 721 x 1440 "
               "float32 compress 1.54 times by\n"
               "           blosc:lz4, 1.80 by blosc:zstd, 1.33 by zstd\n"
               "  index    each element is its own C-order index, wrapped to what the dtype holds "
               "exactly: integers modulo\n"
               "           their size, float16 2^11, float32 2^24, float64 2^53; complex: (index, "
               "index + 1)\n"
               "  noise    random bits; floats uniform in [0, 1)\n"
               "  zeros\n\n"
               "examples:\n"
               "  insitu mk t.zarr --name t,u,v --shape 1000,181,360 --chunks 4,181,360\n"
               "  insitu mk s.zarr --shape 96,721,1440 --chunks 1,721,1440 --shards 24,721,1440 "
               "--codec zstd:3\n"
               "  insitu mk i.zarr --format 2 --dtype int16 --endian big --order F --shape 50,60 "
               "--chunks 7,9 --absent 0.2\n",
    .options = mk_options,
    .n_options = TOOL_COUNT(mk_options),
    .run = mk_run};
