/* A reader of the flat index (NAME.insitu) that shares nothing with the library's: it checks every
 * record, and gives all chunks as objects in memory. Needs support.h. */
#ifndef TESTS_INDEX_READER_H
#define TESTS_INDEX_READER_H

struct index_reader {
  const char *path;
  unsigned char *bytes;
  size_t n;
  insitu_object *object;
  uint64_t n_objects, n_targets, n_inline, n_absent;
  void *own[4096]; /* what free() frees */
  unsigned n_own;
};

static inline void *index_keep(struct index_reader *r, void *p) {
  assert_true(r->n_own < 4096);
  return r->own[r->n_own++] = p;
}
static inline uint64_t index_u64(const struct index_reader *r, uint64_t at) {
  uint64_t x = 0;
  assert_true(at + 8 <= r->n);
  for (int i = 8; i-- > 0;) x = x << 8 | r->bytes[at + (uint64_t)i];
  return x;
}
static inline uint32_t index_u32(const struct index_reader *r, uint64_t at) {
  assert_true(at + 4 <= r->n);
  return (uint32_t)r->bytes[at] | (uint32_t)r->bytes[at + 1] << 8 |
         (uint32_t)r->bytes[at + 2] << 16 | (uint32_t)r->bytes[at + 3] << 24;
}
static inline char *index_text(struct index_reader *r, uint64_t at, uint64_t n) {
  assert_true(at >= 96 && n <= r->n && at <= r->n - n);
  char *text = index_keep(r, calloc(1, n + 1));
  memcpy(text, r->bytes + at, n);
  return text;
}
static inline unsigned char *index_slurp(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s: %s", path, strerror(errno));
  fseek(f, 0, SEEK_END);
  *n = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(*n + 1);
  assert_int_equal(fread(bytes, 1, *n, f), *n);
  fclose(f);
  return bytes;
}
static inline void index_add(struct index_reader *r, char *key, const void *bytes, uint64_t n) {
  r->object = realloc(r->object, (r->n_objects + 1) * sizeof *r->object);
  r->object[r->n_objects++] = (insitu_object){key, bytes, n};
}
/* The bytes of target number t, with the size and time that the index has. */
static inline const unsigned char *index_target(struct index_reader *r, uint64_t at, size_t *n) {
  char *url = index_text(r, index_u64(r, at), index_u32(r, at + 8)), path[1024];
  struct stat st;
  if (!strncmp(url, "file://", 7)) snprintf(path, sizeof path, "%.1000s", url + 7);
  else snprintf(path, sizeof path, "%.500s/%.500s", support_dir, url);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, index_u64(r, at + 24));
  assert_int_equal(st.st_mtime, (int64_t)index_u64(r, at + 32));
  return index_keep(r, index_slurp(path, n));
}
static inline void index_key(
    char *key, size_t cap, const char *path, const uint64_t *at, unsigned ndim) {
  size_t n = (size_t)snprintf(key, cap, "%s/c", path);
  for (unsigned k = 0; k < ndim; k++) n += (size_t)snprintf(key + n, cap - n, "/%" PRIu64, at[k]);
}
static inline void index_array(struct index_reader *r, uint64_t record, uint64_t targets,
    const unsigned char **bytes, const size_t *sizes) {
  char *path = index_text(r, index_u64(r, record), index_u32(r, record + 8));
  unsigned ndim = index_u32(r, record + 12);
  uint64_t grid[32], total = 1, refs = index_u64(r, record + 24), n = index_u64(r, record + 40);
  for (unsigned k = 0; k < ndim; k++)
    total *= grid[k] = index_u64(r, index_u64(r, record + 16) + 8 * k);
  assert_int_equal(index_u32(r, record + 32), 2);
  assert_int_equal(index_u32(r, record + 36), 0);
  assert_int_equal(n, total);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t offset = index_u64(r, refs + 16 * i), place = index_u64(r, refs + 16 * i + 8), at[32];
    uint64_t length = place & (((uint64_t)1 << 40) - 1), target = place >> 40, rest = i;
    char *key = index_keep(r, malloc(600));
    for (unsigned k = ndim; k-- > 0; rest /= grid[k]) at[k] = rest % grid[k];
    index_key(key, 600, path, at, ndim);
    r->n_absent += target == 0xffffff;
    r->n_inline += target == 0xfffffe;
    if (target == 0xffffff) continue;
    const unsigned char *base = r->bytes;
    uint64_t have = r->n;
    if (target != 0xfffffe) {
      assert_true(target < targets);
      base = bytes[target];
      have = sizes[target];
    }
    assert_true(offset <= have && length <= have - offset);
    index_add(r, key, base + offset, length);
  }
}
/* Reads the index at a path. index_reader_free frees it. */
static inline void index_reader_open(struct index_reader *r, const char *path) {
  memset(r, 0, sizeof *r);
  r->path = path;
  r->bytes = index_slurp(path, &r->n);
  assert_true(r->n >= 96 && !memcmp(r->bytes, "INSITUIX\1\0\0\0\0\0\0\0", 16));
  assert_int_equal(index_u64(r, 16), r->n);
  uint64_t table[4][2], h = UINT64_C(0xcbf29ce484222325);
  for (unsigned i = 0; i < 4; i++)
    for (unsigned k = 0; k < 2; k++) table[i][k] = index_u64(r, 32 + 16 * i + 8 * k);
  for (uint64_t i = 96; i < table[3][0] + table[3][1]; i++)
    h = (h ^ r->bytes[i]) * UINT64_C(0x100000001b3);
  assert_int_equal(index_u64(r, 24), h);
  const char *before = "";
  for (uint64_t i = 0; i < table[0][1]; i++) {
    uint64_t at = table[0][0] + 32 * i, n = index_u64(r, at + 24);
    char *key = index_text(r, index_u64(r, at), index_u32(r, at + 8));
    assert_true(strcmp(before, key) < 0);
    index_add(r, key, index_text(r, index_u64(r, at + 16), n), n);
    before = key;
  }
  const unsigned char *bytes[64];
  size_t sizes[64];
  r->n_targets = table[1][1];
  assert_true(r->n_targets <= 64);
  for (uint64_t i = 0; i < r->n_targets; i++)
    bytes[i] = index_target(r, table[1][0] + 48 * i, &sizes[i]);
  for (uint64_t i = 0; i < table[2][1]; i++)
    index_array(r, table[2][0] + 48 * i, r->n_targets, bytes, sizes);
}
static inline void index_reader_free(struct index_reader *r) {
  for (unsigned i = 0; i < r->n_own; i++) free(r->own[i]);
  free(r->object);
  free(r->bytes);
}
/* The text of an object; "" where there is none. */
static inline const char *index_object(const struct index_reader *r, const char *key) {
  for (uint64_t i = 0; i < r->n_objects; i++)
    if (!strcmp(r->object[i].key, key)) return r->object[i].bytes;
  return "";
}
/* Compares an array, read whole and in batches along its first axis, with n native bytes. */
static inline void index_expect_at(
    const insitu_loader_desc *at, const char *path, const void *want, size_t n) {
  insitu_loader_desc where = *at;
  insitu_variable v = {.path = path};
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char *bytes;
  if (readback_read(&where, &v, 1 << 30, &shape, &bytes, &err))
    fail_msg("%s: %s", path, err.message);
  if (shape.bytes != n) fail_msg("%s: %" PRIu64 " bytes, not %zu", path, shape.bytes, n);
  for (size_t i = 0; i < n; i++)
    if (bytes[i] != ((const unsigned char *)want)[i]) fail_msg("%s: byte %zu differs", path, i);
  if (shape.ndim && readback_batches(&where, path, &shape, want, 0, &err))
    fail_msg("%s: %s", path, err.message);
  free(bytes);
}
/* The same through this reader, and through the library's. */
static inline void index_expect(
    const struct index_reader *r, const char *path, const void *want, size_t n) {
  index_expect_at(
      &(insitu_loader_desc){
          .url = "memory://index", .objects = r->object, .n_objects = r->n_objects},
      path, want, n);
  index_expect_at(&(insitu_loader_desc){.url = r->path}, path, want, n);
}
#endif
