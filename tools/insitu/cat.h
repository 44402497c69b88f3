/* insitu cat: a region of an array, or one batch of a configuration, as text, .npy or JSON. */

struct cat_data { /* C order, native byte order */
  const void *bytes;
  uint64_t n_bytes, count; /* elements */
  uint32_t width;          /* code points, or bytes, of an element of strings, else 0 */
  bool bytes_each;         /* of strings: of bytes */
  int32_t ndim, dtype;
  int64_t shape[INSITU__MAX_DIMS + 2];
};
static const char *cat_batch, *cat_array, *cat_out, *cat_npy, *cat_text, *cat_precision, *cat_full,
    *cat_array_path;

static uint32_t cat_item(int32_t dtype) {
  return (uint32_t)(dtype & 0xff) / 8;
}
static uint64_t cat_count(int32_t ndim, const int64_t *shape) {
  uint64_t n = 1;
  for (int32_t i = 0; i < ndim; i++) n *= (uint64_t)shape[i];
  return n;
}

/* ---- a region ---- */

/* Reads a region into memory that insitu__mem_free frees. An exit code. */
static int cat_read(const char *url, const insitu_variable *v, struct cat_data *out) {
  insitu_loader_desc desc = tool_desc(url);
  desc.plan_only = 1;
  insitu_loader *ld = NULL;
  insitu_shape shape;
  insitu_error err = {0};
  insitu_status status = insitu_loader_open(&desc, &ld, &err);
  if (status == INSITU_OK) status = insitu_read(ld, v, NULL, 0, &shape, &err);
  if (status == INSITU_OK && shape.bytes > insitu__mem_total())
    status = insitu__error_set(&err, INSITU_E_NOMEM,
        "array '%.300s': the region has more bytes than this machine's memory; select less with "
        "--slice",
        v->path);
  if (status == INSITU_OK) {
    out->bytes = tool_alloc(insitu__base_max(1, shape.bytes), 1);
    status = insitu_read(ld, v, (void *)(uintptr_t)out->bytes, shape.bytes, NULL, &err);
  }
  insitu_loader_close(&ld);
  if (status < 0) {
    insitu__mem_free((void *)(uintptr_t)out->bytes);
    out->bytes = NULL;
    return tool_fail_error(&err);
  }
  out->n_bytes = shape.bytes;
  out->ndim = shape.ndim;
  out->dtype = shape.dtype;
  memcpy(out->shape, shape.shape, sizeof shape.shape);
  out->count = cat_count(out->ndim, out->shape);
  return TOOL_OK;
}

/* ---- strings ---- */

struct cat_kind { /* what the elements of an array are */
  insitu_loader *ld;
  const char *path;
  int kind;
  bool bytes, chars; /* strings of bytes, of any length (vlen-bytes) or of a fixed one (S) */
};
static void cat_kind_await(void *arg) {
  struct cat_kind *k = (struct cat_kind *)arg;
  struct insitu__zarr_array a;
  if (insitu__group_array_await(&k->ld->source.group, k->path, true, &a, NULL) == INSITU_OK) {
    k->kind = a.kind;
    k->chars = a.kind == INSITU__ZARR_CHAR;
    k->bytes = a.kind == INSITU__ZARR_STRING && a.strings == INSITU__ZARR_VLEN_BYTES;
  }
  insitu__zarr_array_free(&a);
}
/* Whether n bytes are UTF-8, as RFC 3629 defines it. */
static bool cat_is_text(const char *s, uint64_t n) {
  for (const char *end = s + n; s < end;) {
    unsigned char lead = (unsigned char)*s;
    unsigned more = lead < 0x80 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if ((lead >= 0x80 && lead < 0xC0) || lead > 0xF4 || (uint64_t)(end - s) <= more) return false;
    for (unsigned i = 1; i <= more; i++)
      if (((unsigned char)s[i] & 0xC0) != 0x80) return false;
    uint32_t code = insitu__text_code_point(&s);
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  }
  return true;
}
static bool cat_all_text(const insitu_strings *s) {
  for (uint64_t i = 0; i < s->n; i++)
    if (!cat_is_text(s->text[i], s->bytes[i])) return false;
  return true;
}
/* All strings of an array; *out stays NULL where it holds none. An exit code. */
static int cat_read_strings(const char *url, const char *path, insitu_strings **out, bool *bytes) {
  insitu_loader_desc desc = tool_desc(url);
  desc.plan_only = 1;
  insitu_error err = {0};
  struct cat_kind k = {.path = path};
  insitu_status status = insitu_loader_open(&desc, &k.ld, &err);
  *out = NULL;
  if (status == INSITU_OK) insitu__reactor_call(&k.ld->reactor, cat_kind_await, &k);
  if (k.kind == INSITU__ZARR_STRING || k.kind == INSITU__ZARR_CHAR || k.kind == INSITU__ZARR_UCS4)
    status = insitu_read_strings(k.ld, path, out, &err);
  *bytes = k.bytes || (k.chars && *out && !cat_all_text(*out));
  insitu_loader_close(&k.ld);
  return status < 0 ? tool_fail_error(&err) : TOOL_OK;
}

/* ---- output ---- */

enum { CAT_EDGE = 3, CAT_THRESHOLD = 1000, CAT_COLUMNS = 96, CAT_CELL = 80 };

/* precision: significant digits, 0: as few as read back as the same number, of bits 16, 32 or 64.
 */
static int cat_real(char *to, size_t cap, double x, int precision, unsigned bits) {
  int n = 0, most = precision ? precision : bits == 16 ? 5 : bits == 32 ? 9 : 17;
  for (int digits = precision ? precision : 1; digits <= most; digits++) {
    n = snprintf(to, cap, "%.*g", digits, x);
    if (bits == 64 ? strtod(to, NULL) == x : bits == 32 && strtof(to, NULL) == (float)x) break;
  }
  return n;
}
static double cat_half(uint16_t half) {
  int exponent = half >> 10 & 31;
  double m = half & 1023, x;
  if (exponent == 31) x = m > 0 ? (double)NAN : (double)INFINITY;
  else x = exponent ? ldexp(m + 1024, exponent - 25) : ldexp(m, -24);
  return half >> 15 ? -x : x;
}
/* One element as text of less than CAT_CELL characters; its length. */
static int cat_element(char *to, const void *p, int32_t dtype, int precision) {
  unsigned char b[16] = {0};
  uint16_t half;
  float single[2];
  double wide[2];
  uint64_t u;
  unsigned bits = (unsigned)dtype & 0xff, scalar = dtype >> 8 == 5 ? bits / 2 : bits;
  memcpy(b, p, bits / 8);
  memcpy(&u, b, sizeof u);
  memcpy(&half, b, sizeof half);
  memcpy(single, b, sizeof single);
  memcpy(wide, b, sizeof wide);
  switch (dtype >> 8) {
  case 0: return snprintf(to, CAT_CELL, "%" PRId64, (int64_t)(u << (64 - bits)) >> (64 - bits));
  case 1: return snprintf(to, CAT_CELL, "%" PRIu64, u);
  case 6: return snprintf(to, CAT_CELL, "%s", b[0] ? "True" : "False");
  }
  if (dtype == INSITU_BF16) { /* the upper half of a float */
    uint32_t upper = (uint32_t)half << 16;
    memcpy(single, &upper, sizeof upper);
    wide[0] = (double)single[0];
  } else if (scalar == 16) wide[0] = cat_half(half);
  if (scalar == 32) wide[0] = (double)single[0], wide[1] = (double)single[1];
  int n = cat_real(to, CAT_CELL / 2 - 2, wide[0], precision, scalar);
  if (dtype >> 8 != 5) return n;
  if (!signbit(wide[1])) to[n++] = '+';
  n += cat_real(to + n, CAT_CELL / 2 - 2, wide[1], precision, scalar);
  to[n++] = 'j';
  to[n] = 0;
  return n;
}

struct cat_printer {
  const struct cat_data *data;
  int precision, width, column;
  int64_t edge; /* elements shown at either end of an axis; INT64_MAX: all */
  bool measure; /* only finds the width */
};
static void cat_print_axis(struct cat_printer *p, int32_t axis, const unsigned char *at) {
  const struct cat_data *d = p->data;
  char cell[CAT_CELL];
  if (axis == d->ndim) {
    int n = cat_element(cell, at, d->dtype, p->precision);
    if (p->measure && n > p->width) p->width = n;
    if (!p->measure) p->column += printf("%*s", p->width, cell);
    return;
  }
  uint64_t stride = cat_item(d->dtype) * cat_count(d->ndim - axis - 1, d->shape + axis + 1);
  bool last = axis == d->ndim - 1;
  if (!p->measure) p->column += printf("[");
  for (int64_t i = 0; i < d->shape[axis]; i++) {
    bool gap = d->shape[axis] > 2 * p->edge && i == p->edge;
    if (!p->measure && i && (!last || p->column + p->width + 2 > CAT_COLUMNS)) {
      for (int32_t k = axis; !last && k < d->ndim - 1; k++) putchar('\n');
      p->column = printf("%s%*s", last ? "\n" : "", (int)axis + 1, "") - last;
    } else if (!p->measure && i) p->column += printf(" ");
    if (gap) {
      if (!p->measure) p->column += printf("...");
      i = d->shape[axis] - p->edge - 1;
    } else cat_print_axis(p, axis + 1, at + (uint64_t)i * stride);
  }
  if (!p->measure) p->column += printf("]");
}
static void cat_print(const struct cat_data *d, int precision) {
  bool cut = !cat_full && d->count > CAT_THRESHOLD;
  struct cat_printer p = {
      .data = d, .precision = precision, .edge = cut ? CAT_EDGE : INT64_MAX / 2, .measure = true};
  if (d->count) cat_print_axis(&p, 0, (const unsigned char *)d->bytes);
  p.measure = false;
  if (d->count) cat_print_axis(&p, 0, (const unsigned char *)d->bytes);
  else printf("[]");
  printf("\n");
}
static void cat_print_shape(const struct cat_data *d) {
  printf("%s (", insitu__dtype_name(d->dtype));
  for (int32_t i = 0; i < d->ndim; i++) printf("%s%" PRId64, i ? ", " : "", d->shape[i]);
  printf("%s)", d->ndim == 1 ? "," : "");
}
/* members of an open object */
static void cat_json(struct tool_json_out *j, const struct cat_data *d) {
  char cell[CAT_CELL];
  tool_json_string(j, "dtype", insitu__dtype_name(d->dtype));
  tool_json_list(j, "shape");
  for (int32_t i = 0; i < d->ndim; i++) tool_json_i64(j, NULL, d->shape[i]);
  tool_json_end(j);
  tool_json_list(j, "values");
  for (uint64_t i = 0; i < d->count; i++) {
    cat_element(cell, (const unsigned char *)d->bytes + i * cat_item(d->dtype), d->dtype, 0);
    bool number = strcspn(cell, "nfTFj") == strlen(cell);
    tool_json_key(j, NULL);
    if (strcmp(cell, "True") == 0 || strcmp(cell, "False") == 0)
      fputs(cell[0] == 'T' ? "true" : "false", j->to);
    else if (number) fputs(cell, j->to);
    else tool_json_text(j, cell, strlen(cell)); /* NaN, infinities, complex: not JSON */
  }
  tool_json_end(j);
}

/* NumPy's format 1.0: numpy.lib.format. An exit code. */
static int cat_write_npy(const struct cat_data *d, const char *path) {
  static const char kind[] = {'i', 'u', 'f', 0, 0, 'c', 'b'};
  if (!kind[d->dtype >> 8])
    return tool_usage_error("a .npy file has no %s: add --dtype float32, or print --text",
        insitu__dtype_name(d->dtype));
  char header[512], shape[400] = "";
  size_t used = 0;
  for (int32_t i = 0; i < d->ndim; i++)
    used += (size_t)snprintf(
        shape + used, sizeof shape - used, "%s%" PRId64, i ? ", " : "", d->shape[i]);
  uint32_t item = cat_item(d->dtype);
  int n = snprintf(header + 10, sizeof header - 10,
      "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (%s%s), }", item == 1 ? '|' : '<',
      d->bytes_each ? 'S'
      : d->width    ? 'U'
                    : kind[d->dtype >> 8],
      d->width ? d->width : (unsigned)item, shape, d->ndim == 1 ? "," : "");
  /* what precedes the data is a multiple of 64 */
  unsigned total = ((unsigned)n + 11 + 63) / 64 * 64;
  memset(header + 10 + n, ' ', total - 10 - (unsigned)n);
  header[total - 1] = '\n';
  memcpy(header, "\x93NUMPY\1\0", 8);
  header[8] = (char)((total - 10) & 0xff);
  header[9] = (char)((total - 10) >> 8);
  FILE *f = path ? fopen(path, "we") : stdout;
  if (!f) return tool_fail("%s: %s", path, strerror(errno));
  bool ok = fwrite(header, 1, total, f) == total &&
            fwrite(d->bytes, 1, (size_t)d->n_bytes, f) == d->n_bytes && fflush(f) == 0;
  int error = errno;
  if (path && fclose(f) != 0) ok = false;
  return ok ? TOOL_OK : tool_fail("%s: %s", path ? path : "standard output", strerror(error));
}
/* Strings of bytes as NumPy's S of their longest, which drops zeros at the end of an element. */
static int cat_write_npy_bytes(const insitu_strings *s, const char *path) {
  uint64_t longest = 1;
  struct cat_data d = {.count = s->n, .ndim = s->ndim, .dtype = INSITU_U8, .bytes_each = true};
  for (uint64_t i = 0; i < s->n; i++) longest = insitu__base_max(longest, s->bytes[i]);
  memcpy(d.shape, s->shape, sizeof s->shape);
  uint64_t all;
  if (!insitu__base_mul(longest, s->n, &all) || longest > UINT32_MAX)
    return tool_fail("the strings take too many bytes as a .npy of fixed size; print --json");
  d.width = (uint32_t)longest;
  d.n_bytes = all;
  char *text = (char *)tool_alloc(insitu__base_max(1, all), 1);
  for (uint64_t i = 0; i < s->n; i++) memcpy(text + i * longest, s->text[i], (size_t)s->bytes[i]);
  d.bytes = text;
  int exit_code = cat_write_npy(&d, path);
  insitu__mem_free(text);
  return exit_code;
}
/* Strings as NumPy's U of their longest: a .npy with an axis of code points inside the elements. */
static int cat_write_npy_strings(const insitu_strings *s, const char *path) {
  uint64_t longest = 1;
  struct cat_data d = {.count = s->n, .ndim = s->ndim, .dtype = INSITU_U32};
  for (uint64_t i = 0; i < s->n; i++) {
    uint64_t n = 0;
    for (const char *p = s->text[i]; p < s->text[i] + s->bytes[i]; n++) insitu__text_code_point(&p);
    longest = insitu__base_max(longest, n);
  }
  memcpy(d.shape, s->shape, sizeof s->shape);
  d.width = (uint32_t)longest;
  d.n_bytes = 4 * longest * s->n;
  uint32_t *code = (uint32_t *)tool_alloc(insitu__base_max(1, longest * s->n), 4);
  for (uint64_t i = 0; i < s->n; i++) {
    uint32_t *to = code + i * longest;
    for (const char *p = s->text[i]; p < s->text[i] + s->bytes[i];)
      *to++ = insitu__text_code_point(&p);
  }
  d.bytes = code;
  int exit_code = cat_write_npy(&d, path);
  insitu__mem_free(code);
  return exit_code;
}
static bool cat_wants_npy(void) {
  return cat_out || cat_npy || (!cat_text && !tool_json && !isatty(STDOUT_FILENO));
}
static bool cat_parse_precision(int *precision) {
  uint64_t n = 6;
  bool full = cat_precision && strcmp(cat_precision, "full") == 0;
  if (full) n = 0;
  else if (cat_precision && (!tool_u64(cat_precision, &n) || n < 1 || n > 17)) {
    tool_usage_error("--precision %s: give significant digits, 1 to 17, or full", cat_precision);
    return false;
  }
  *precision = (int)n;
  return true;
}

/* ---- batches ---- */

/* The arrays that tell what rows are, all of the batch's that there are; their number. */
static uint64_t cat_rows(const insitu_batch *b, struct cat_data out[4], const char *names[4]) {
  const struct {
    const char *name;
    const void *at;
    int32_t dtype;
    uint64_t columns;
  } of[] = {{"sample_indices", b->sample_indices, INSITU_I64, 1},
      {"axis_indices", b->n_axes > 1 ? b->axis_indices : NULL, INSITU_I64, b->n_axes},
      {"coordinates", b->coordinates, INSITU_F64, b->n_axes},
      {"time_us", b->time_us, INSITU_I64, 1}};
  uint64_t n = 0;
  for (size_t i = 0; i < TOOL_COUNT(of); i++) {
    if (!of[i].at) continue;
    names[n] = of[i].name;
    out[n++] = (struct cat_data){.bytes = of[i].at,
        .n_bytes = 8 * b->rows * of[i].columns,
        .count = b->rows * of[i].columns,
        .ndim = of[i].columns > 1 ? 2 : 1,
        .dtype = of[i].dtype,
        .shape = {(int64_t)b->rows, (int64_t)of[i].columns}};
  }
  return n;
}
/* The date of a row, empty where the batch has none. */
static const char *cat_date(const insitu_batch *b, uint64_t row, insitu_date *date) {
  date->text[0] = 0;
  if (b->time_us) insitu_date_from_us(b->time_us[row], b->calendar, date, NULL);
  return date->text;
}
/* A list of what rows are in JSON: of numbers or, with several axes, of a list for each row. */
static void cat_json_rows(struct tool_json_out *j, const char *name, const struct cat_data *d) {
  uint64_t columns = d->ndim > 1 ? (uint64_t)d->shape[1] : 1;
  tool_json_list(j, name);
  for (uint64_t i = 0; i < d->count; i++) {
    if (d->ndim > 1 && i % columns == 0) tool_json_list(j, NULL);
    if (d->dtype == INSITU_F64) tool_json_double(j, NULL, ((const double *)d->bytes)[i]);
    else tool_json_i64(j, NULL, ((const int64_t *)d->bytes)[i]);
    if (d->ndim > 1 && i % columns == columns - 1) tool_json_end(j);
  }
  tool_json_end(j);
}
/* A row's coordinates, in words. */
static void cat_print_row(const insitu_batch *b, uint64_t row) {
  uint64_t n = b->n_axes;
  insitu_date date;
  printf("  row %" PRIu64 ": sample", row);
  for (uint64_t k = 0; k < n; k++) printf(" %" PRId64, b->axis_indices[row * n + k]);
  printf(", coordinate");
  for (uint64_t k = 0; k < n; k++) printf(" %.15g", b->coordinates[row * n + k]);
  printf("%s%s\n", b->time_us ? ", " : "", cat_date(b, row, &date));
}
/* --array names nothing of the batch: tells what there is. */
static int cat_no_array(const insitu_batch *b) {
  char known[400] = "";
  size_t at = 0;
  bool kept =
      !b->coordinates && (!strcmp(cat_array, "coordinates") || !strcmp(cat_array, "time_us"));
  if (kept) return tool_usage_error("--array %s: the batch has it with --coordinates", cat_array);
  for (uint64_t i = 0; i < b->n_arrays && at < sizeof known; i++)
    at += (size_t)snprintf(
        known + at, sizeof known - at, "%s'%.80s'", i ? ", " : "", b->arrays[i].name);
  return tool_usage_error("--array: the batch has no array '%s'; it has %s", cat_array, known);
}
static int cat_print_batch(const insitu_batch *b, const insitu_iter *it, int precision) {
  struct cat_data rows[4], one;
  const char *names[4];
  uint64_t n_rows = cat_rows(b, rows, names);
  bool found = !cat_array;
  int code = TOOL_OK;
  insitu_date date;
  struct tool_json_out j = {.to = stdout};
  if (cat_wants_npy() && !cat_array && b->n_arrays > 1)
    return tool_usage_error(
        "a batch of %" PRIu64
        " arrays does not go into one .npy: choose with --array, or print --text",
        b->n_arrays);
  if (tool_json && !cat_wants_npy()) {
    tool_json_object(&j, NULL);
    tool_json_u64(&j, "epoch", b->epoch);
    tool_json_u64(&j, "batch", b->index);
    tool_json_u64(&j, "batches", it->batches);
    for (uint64_t i = 0; i < n_rows; i++)
      if (strcmp(names[i], "time_us")) cat_json_rows(&j, names[i], &rows[i]);
    if (b->time_us) tool_json_list(&j, "dates");
    for (uint64_t i = 0; b->time_us && i < b->rows; i++)
      tool_json_string(&j, NULL, cat_date(b, i, &date));
    if (b->time_us) tool_json_end(&j);
    if (b->calendar) tool_json_string(&j, "calendar", b->calendar);
    tool_json_object(&j, "arrays");
  } else if (!cat_wants_npy()) {
    printf("batch %" PRIu64 " of %" PRIu64 ", epoch %" PRIu64 ", %" PRIu64 " rows, samples ",
        b->index, it->batches, b->epoch, b->rows);
    if (b->n_axes > 1) printf("(indexes on the axes)\n");
    cat_print(&rows[b->n_axes > 1], precision);
    for (uint64_t i = 0; b->coordinates && i < b->rows; i++) cat_print_row(b, i);
  }
  /* what rows are: by name only */
  for (uint64_t i = 0; i < b->n_arrays + n_rows && code == TOOL_OK; i++) {
    const insitu_array *a = i < b->n_arrays ? &b->arrays[i] : NULL;
    const char *name = a ? a->name : names[i - b->n_arrays];
    if (cat_array ? strcmp(cat_array, name) : !a) continue;
    if (a) {
      one = (struct cat_data){
          .bytes = a->data, .n_bytes = a->bytes, .ndim = a->ndim, .dtype = a->dtype};
      memcpy(one.shape, a->shape, (size_t)a->ndim * sizeof *a->shape);
      one.count = cat_count(a->ndim, a->shape);
    } else one = rows[i - b->n_arrays];
    found = true;
    if (cat_wants_npy()) code = cat_write_npy(&one, cat_out);
    else if (tool_json) {
      tool_json_object(&j, name);
      cat_json(&j, &one);
      tool_json_end(&j);
    } else {
      printf("\n%s%s%s ", tool_style(TOOL_BOLD), name, tool_style(TOOL_PLAIN));
      cat_print_shape(&one);
      printf("\n");
      cat_print(&one, precision);
    }
  }
  while (j.depth) tool_json_end(&j);
  return code || found ? code : cat_no_array(b);
}
/* Batch I of epoch E, reading no batch before it but what is prefetched while the iterator opens.
 */
/* Gives the batch that --batch names to `show`, whose exit code it returns. */
static int cat_run_batch(const char *url,
    int (*show)(const insitu_batch *b, const insitu_iter *it, int precision), int precision) {
  struct config c;
  insitu_error err = {0};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_state state;
  uint64_t epoch = 0, index = 0;
  char text[32];
  const char *comma = strchr(cat_batch, ',');
  snprintf(text, sizeof text, "%.*s",
      (int)(comma ? insitu__base_min((uint64_t)(comma - cat_batch), 31) : 0), cat_batch);
  if (!comma || !tool_u64(text, &epoch) || !tool_u64(comma + 1, &index))
    return tool_usage_error("--batch %s: give EPOCH,BATCH, such as 0,12", cat_batch);
  int code = config_load(&c, url);
  if (code) {
    config_free(&c);
    return code;
  }
  c.desc.prefetch_depth = 1; /* does not change the order */
  c.desc.hold_epoch = 1;
  c.iter.epoch = epoch;
  insitu_status status = insitu_loader_open(&c.desc, &ld, &err);
  if (status == INSITU_OK) status = insitu_iter_open(ld, &c.iter, &it, &err);
  if (status == INSITU_OK && index >= it->batches) {
    code = tool_usage_error("--batch %s: an epoch has %" PRIu64 " batches, 0 to %" PRIu64,
        cat_batch, it->batches, it->batches - 1);
  } else if (status == INSITU_OK) {
    insitu__state_write(it, epoch, index, &state);
    if (index) status = insitu_iter_restore(it, &state, &err);
    if (status == INSITU_OK) status = insitu_iter_next(it, INSITU_FOREVER, &b, &err);
    if (status == INSITU_OK) code = show(b, it, precision);
    insitu_batch_release(&b);
  }
  if (status < 0) code = tool_fail_error(&err);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  config_free(&c);
  return code;
}

/* ---- regions ---- */

static double cat_number(const void *p, int32_t dtype) { /* for the summary */
  char cell[CAT_CELL];
  cat_element(cell, p, dtype, 0);
  return cell[0] == 'T' ? 1 : cell[0] == 'F' ? 0 : strtod(cell, NULL);
}
/* "float32 (3, 4), 48 B, from 0 to 11" */
static void cat_print_summary(const struct cat_data *d, const char *name) {
  char text[32];
  uint64_t nan = 0;
  double least = INFINITY, most = -INFINITY;
  for (uint64_t i = 0; i < d->count; i++) {
    double x = cat_number((const unsigned char *)d->bytes + i * cat_item(d->dtype), d->dtype);
    if (isnan(x)) nan++;
    else {
      least = x < least ? x : least;
      most = x > most ? x : most;
    }
  }
  printf("%s: ", name);
  cat_print_shape(d);
  printf(", %s", tool_bytes(text, d->n_bytes));
  if (least <= most) printf(", from %.9g to %.9g", least, most);
  if (nan) printf(", %" PRIu64 " NaN", nan);
  printf("\n");
}
/* Bytes need be no text: in JSON they are base64, in text they are escaped as in Python. */
static void cat_base64(struct tool_json_out *j, const char *s, uint64_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  fputc('"', j->to);
  for (uint64_t i = 0; i < n; i += 3) {
    uint32_t bits = 0;
    for (uint64_t k = 0; k < 3; k++) bits = bits << 8 | (i + k < n ? (unsigned char)s[i + k] : 0);
    for (uint64_t k = 0; k < 4; k++)
      fputc(k > 1 && i + k > n ? '=' : digits[bits >> (18 - 6 * k) & 63], j->to);
  }
  fputc('"', j->to);
}
static void cat_escaped(const char *s, uint64_t n) {
  printf("b\"");
  for (uint64_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\') printf("\\%c", c);
    else if (c < 0x20 || c > 0x7e) printf("\\x%02x", c);
    else putchar(c);
  }
  printf("\"");
}
/* As JSON, one string to a line; all of them, or the ends. */
static int cat_strings(const insitu_strings *s, const char *url, bool bytes) {
  struct tool_json_out j = {.to = stdout};
  if (cat_array_path) {
    printf("%s: %" PRIu64 " strings\n", url, s->n);
    return TOOL_OK;
  }
  if (cat_wants_npy())
    return bytes ? cat_write_npy_bytes(s, cat_out) : cat_write_npy_strings(s, cat_out);
  if (tool_json) {
    tool_json_object(&j, NULL);
    tool_json_string(&j, "dtype", bytes ? "bytes" : "string");
    if (bytes) tool_json_string(&j, "encoding", "base64");
    tool_json_list(&j, "shape");
    for (int32_t i = 0; i < s->ndim; i++) tool_json_i64(&j, NULL, s->shape[i]);
    tool_json_end(&j);
    tool_json_list(&j, "values");
  }
  for (uint64_t i = 0; i < s->n; i++) {
    if (tool_json) tool_json_key(&j, NULL);
    else if (!cat_full && s->n > CAT_THRESHOLD && i == CAT_EDGE) {
      printf("...\n");
      i = s->n - CAT_EDGE;
    }
    if (bytes && tool_json) cat_base64(&j, s->text[i], s->bytes[i]);
    else if (bytes) cat_escaped(s->text[i], s->bytes[i]);
    else tool_json_text(&j, s->text[i], s->bytes[i]);
    if (!tool_json) putchar('\n');
  }
  while (j.depth) tool_json_end(&j);
  return TOOL_OK;
}
/* Reads the region that the options name, as cat_read. */
static int cat_read_region(const char *url, const char *path, struct cat_data *d) {
  struct config c = {0}; /* keeps the slices */
  insitu_variable v = {.label = path, .path = path, .select = config_select};
  if (config_slice && !(v.slices = config_parse_slices(&c, config_slice, &v.n_slices))) {
    config_free(&c);
    return TOOL_USAGE;
  }
  if (config_dtype && !config_dtype_of(config_dtype, &v.dtype)) {
    config_free(&c);
    return config_bad_dtype();
  }
  if (config_decode && !config_decode_of(config_decode, &v.decode)) {
    config_free(&c);
    return tool_usage_error("--decode %s: give cf", config_decode);
  }
  int code = cat_read(url, &v, d);
  config_free(&c);
  return code;
}
static int cat_run_region(const char *url, const char *path, int precision) {
  insitu_strings *strings = NULL;
  if (!config_slice && !config_select && !config_dtype) {
    bool bytes;
    int text = cat_read_strings(url, path, &strings, &bytes);
    if (strings) text = cat_strings(strings, url, bytes);
    bool done = text || strings;
    insitu_strings_free(&strings);
    if (done) return text;
  }
  struct cat_data d = {0};
  int code = cat_read_region(url, path, &d);
  if (code == TOOL_OK && cat_array_path) cat_print_summary(&d, url);
  else if (code == TOOL_OK && cat_wants_npy()) code = cat_write_npy(&d, cat_out);
  else if (code == TOOL_OK && tool_json) {
    struct tool_json_out j = {.to = stdout};
    tool_json_object(&j, NULL);
    cat_json(&j, &d);
    tool_json_end(&j);
  } else if (code == TOOL_OK) cat_print(&d, precision);
  insitu__mem_free((void *)(uintptr_t)d.bytes);
  return code;
}
static int cat_run(int argc, char **argv) {
  int precision;
  if (!cat_parse_precision(&precision)) return TOOL_USAGE;
  if (cat_batch)
    return argc > 1 ? tool_usage_error("--batch takes no path: use --var")
                    : cat_run_batch(argc ? argv[0] : NULL, cat_print_batch, precision);
  if (cat_array_path)
    return argc ? tool_usage_error("--array_path takes no other path")
                : cat_run_region(cat_array_path, "", precision);
  if (argc < 1 || argc > 2)
    return tool_usage_error(argc ? "an archive and the path of one array are needed"
                                 : "which archive, and which array?");
  return cat_run_region(argv[0], argc == 2 ? argv[1] : "", precision);
}

static const struct tool_option cat_options[] = {
    {"batch", 'b', "E,I", "batch I of epoch E of a configuration, instead of a region", &cat_batch},
    {"array", 'a', "LABEL",
        "only this array of the batch; or sample_indices, axis_indices, coordinates, time_us",
        &cat_array},
    {"output", 'o', "FILE", "write a .npy file", &cat_out},
    {"npy", 0, NULL, "write .npy to standard output (the default where that is no terminal)",
        &cat_npy},
    {"text", 0, NULL, "print text (the default on a terminal)", &cat_text},
    {"precision", 'p', "N", "significant digits of text (6), or full: as many as tell values apart",
        &cat_precision},
    {"full", 0, NULL, "text: all elements, not only the ends of long axes", &cat_full},
    {"array_path", 0, "DIR",
        "read all of the array that DIR is, print a line; for conformance suites", &cat_array_path},
    CONFIG_OPTIONS};
static const struct tool_command cat_command = {.name = "cat",
    .arguments = "URL PATH [--select TEXT] | [URL] --batch E,I [--config FILE]",
    .summary = "print a region of an array, or a batch",
    .details = "A region keeps all its axes, in C order and native byte order. Absent chunks show "
               "the fill value. Strings\n"
               "of bytes (vlen-bytes; S where it is no UTF-8) are base64 in JSON, with \"dtype\": "
               "\"bytes\", escaped as\n"
               "in Python in text, and |S in a .npy, which drops zeros at the end of each; all "
               "other strings are\n"
               "text, and <U in a .npy. A batch is\n"
               "the one that a training run with this configuration gets: the options below the "
               "first eight describe it.\n\n"
               "examples:\n"
               "  insitu cat t.zarr t --slice time=0:2,lat=10:20 --text\n"
               "  insitu cat t.zarr t --select 'time=[0]; level=500; lat=60..30' --text\n"
               "  insitu cat t.zarr lat -o lat.npy\n"
               "  insitu cat t.zarr --var x=t,y=t@1 --batch-size 8 --batch 0,3 --array y -o y.npy\n"
               "  insitu cat --config train.json --batch 2,0 --text\n",
    .options = cat_options,
    .n_options = TOOL_COUNT(cat_options),
    .run = cat_run};
