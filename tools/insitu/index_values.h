/* What the scans of insitu index share: values as JSON, types, and small arrays that are read into
 * the index, since a read of its own for each of their chunks costs more than their bytes. */

static const char *index_match_value; /* --match */

enum {
  INDEX_SMALL = 64 << 10,       /* bytes of an array of at most one axis that goes into the index */
  INDEX_COORDINATE = 16 << 20,  /* of one that has its axis' name */
  INDEX_MAX_ATTRIBUTE = 1 << 20 /* bytes of an attribute's values; longer ones are left out */
};

/* 'i' signed, 'u' unsigned, 'f' float: what an element is. */
static uint64_t index_load(const unsigned char *p, unsigned size, bool big) {
  uint64_t x = 0;
  for (unsigned i = 0; i < size; i++) x |= (uint64_t)p[big ? size - 1 - i : i] << 8 * i;
  return x;
}
static void index_store(unsigned char *p, uint64_t x, unsigned size, bool big) {
  for (unsigned i = 0; i < size; i++) p[big ? size - 1 - i : i] = (unsigned char)(x >> 8 * i);
}
static double index_half(uint64_t x) {
  double sign = x >> 15 ? -1 : 1, m = (double)(x & 0x3ff);
  int e = (int)(x >> 10 & 31);
  if (e == 31) return m > 0 ? (double)NAN : sign * (double)INFINITY;
  return sign * (e ? ldexp(m + 1024, e - 25) : ldexp(m, -24));
}
static double index_float(const unsigned char *p, unsigned size, bool big) {
  uint64_t x = index_load(p, size, big);
  uint32_t low = (uint32_t)x;
  float single;
  double wide;
  memcpy(&single, &low, sizeof single);
  memcpy(&wide, &x, sizeof wide);
  return size == 8 ? wide : size == 4 ? (double)single : index_half(x);
}
static int64_t index_integer(const unsigned char *p, unsigned size, bool big) {
  uint64_t x = index_load(p, size, big);
  unsigned shift = 64 - 8 * size;
  return (int64_t)(x << shift) >> shift;
}
/* One element as JSON; what JSON has no number for becomes the word that Zarr writes. */
static void index_print(
    struct insitu__text_buffer *b, char kind, unsigned size, const unsigned char *p, bool big) {
  if (kind == 'u') insitu__text_buffer_printf(b, "%" PRIu64, index_load(p, size, big));
  if (kind == 'i') insitu__text_buffer_printf(b, "%" PRId64, index_integer(p, size, big));
  if (kind != 'f') return;
  double x = index_float(p, size, big);
  if (isnan(x)) insitu__text_buffer_printf(b, "\"NaN\"");
  else if (isinf(x)) insitu__text_buffer_printf(b, x > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  else insitu__text_buffer_double(b, x);
}
/* One value, or a list of them. */
static void index_print_list(struct insitu__text_buffer *b, char kind, unsigned size,
    const unsigned char *p, bool big, uint64_t n, bool list) {
  if (list) insitu__text_buffer_printf(b, "[");
  for (uint64_t i = 0; i < n; i++) {
    if (i) insitu__text_buffer_printf(b, ",");
    index_print(b, kind, size, p + i * size, big);
  }
  if (list) insitu__text_buffer_printf(b, "]");
}
/* A string of n bytes, without the NULs at its end. */
static void index_print_text(struct insitu__text_buffer *b, const void *bytes, uint64_t n) {
  while (n && !((const char *)bytes)[n - 1]) n--;
  char *text = insitu__mem_text(bytes, n);
  if (!text) tool_no_memory();
  insitu__text_buffer_json_string(b, text);
  insitu__mem_free(text);
}
/* Begins the next member of an object that is being printed. */
static void index_print_key(struct insitu__text_buffer *b, const char *name, uint64_t n) {
  insitu__text_buffer_printf(b, b->n > 1 ? "," : "");
  index_print_text(b, name, n);
  insitu__text_buffer_printf(b, ":");
}
/* data_type of numbers. */
static void index_set_type(struct virtual_array *a, char kind, unsigned size, bool big) {
  int32_t dtype = (kind == 'i' ? 0 : kind == 'u' ? 0x100 : 0x200) | (int32_t)(8 * size);
  struct insitu__text_buffer b = {0};
  insitu__text_buffer_json_string(&b, insitu__dtype_name(dtype));
  insitu__mem_free(a->type);
  a->type = virtual_take(&b);
  a->itemsize = a->scalar = size;
  a->big = big && size > 1;
}
/* data_type of n bytes of text. */
static void index_set_text(struct virtual_array *a, uint64_t n) {
  struct insitu__text_buffer b = {0};
  insitu__text_buffer_printf(&b,
      "{\"name\":\"null_terminated_bytes\",\"configuration\":{\"length_bytes\":%" PRIu64 "}}", n);
  insitu__mem_free(a->type);
  a->type = virtual_take(&b);
  a->itemsize = (uint32_t)n;
  a->scalar = 1;
  a->big = false;
}
/* 'i', 'u', 'f' by the name of a type; 0: no number. */
static char index_kind(const struct virtual_array *a) {
  return !strncmp(a->type, "\"int", 4)     ? 'i'
         : !strncmp(a->type, "\"uint", 5)  ? 'u'
         : !strncmp(a->type, "\"float", 6) ? 'f'
                                           : 0;
}
static const char *index_last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
static bool index_is_coordinate(const struct virtual_array *a) {
  return a->ndim == 1 && a->dim[0] && !strcmp(index_last_name(a->path), a->dim[0]);
}
/* Whether an array's values go into the index. */
static bool index_is_small(const struct virtual_array *a) {
  uint64_t bytes = virtual_bytes(a);
  return a->ndim <= 1 && bytes <= (index_is_coordinate(a) ? INDEX_COORDINATE : INDEX_SMALL);
}
/* Makes an array one chunk of raw bytes, which it owns from here on. */
static void index_set_values(struct virtual_array *a, unsigned char *bytes, uint64_t n) {
  a->kind = VIRTUAL_VALUES;
  a->values = bytes;
  a->n_values = n;
  insitu__mem_free(a->codecs);
  a->codecs = NULL;
  for (unsigned i = 0; i < a->ndim; i++) a->chunk[i] = insitu__base_max(1, a->shape[i]);
}
/* Reads rows of an array that lie apart, those of a store many at once. */
static bool index_read_rows(struct bytes *b, const struct virtual_array *a, unsigned char *to,
    uint64_t rows, uint64_t row) {
  struct bytes_range *range = tool_alloc(rows + 1, sizeof *range);
  bool ok = true;
  for (uint64_t i = 0; i < rows; i++)
    range[i] = (struct bytes_range){a->offset + i * a->stride, row};
  for (uint64_t i = 0, ahead = 0; ok && i < rows; i++) {
    if (i == ahead) ahead += bytes_want(b, range + i, rows - i);
    ok = bytes_read(b, to + i * row, row, range[i].at);
  }
  insitu__mem_free(range);
  return ok;
}
/* Reads the rows of a small array. An exit code. */
static int index_read_values(struct virtual_array *a, struct bytes *b) {
  uint64_t rows = a->ndim ? a->shape[0] : 1, bytes = virtual_bytes(a),
           row = rows ? bytes / rows : 0;
  unsigned char *values = tool_alloc(bytes + 1, 1);
  bool packed = rows <= 1 || a->stride == row;
  if (packed ? bytes_read(b, values, bytes, a->offset) : index_read_rows(b, a, values, rows, row)) {
    index_set_values(a, values, bytes);
    return TOOL_OK;
  }
  insitu__mem_free(values);
  return tool_fail("array '%s': %s", a->path, b->err.message);
}
/* All small arrays of a file that are rows. */
static int index_settle(struct virtual_file *f, struct bytes *b) {
  int code = TOOL_OK;
  for (uint64_t i = 0; code == TOOL_OK && i < INSITU__ARRAY_LEN(f->array); i++) {
    struct virtual_array *a = f->array[i];
    if (a->kind == VIRTUAL_RAW && index_is_small(a)) code = index_read_values(a, b);
  }
  return code;
}
