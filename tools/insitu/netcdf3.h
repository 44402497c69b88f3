/* The header of a NetCDF classic file: 64-bit offsets and 64-bit data included (CDF-1, CDF-2 and
 * CDF-5; "NetCDF Classic Format Specification", Unidata). It is hostile: every count is compared
 * with the bytes at hand before it is believed. A pure function of (bytes, length); nothing is
 * copied, names and values point into the bytes.
 *
 *   magic, records | dimensions | attributes | variables: each with attributes, type, begin
 *
 * All numbers are big-endian, and names and values are padded to 4 bytes. Fixed variables lie at
 * their `begin`; one record after the other has a part of each record variable. */

enum { NETCDF3_DIMENSIONS = 10, NETCDF3_VARIABLES = 11, NETCDF3_ATTRIBUTES = 12 };
enum { NETCDF3_MAX_LIST = 1 << 20 }; /* dimensions, variables, or attributes of one list */
enum { NETCDF3_CHAR = 2, NETCDF3_FLOAT = 5, NETCDF3_DOUBLE = 6 };

struct netcdf3_name {
  const char *text; /* not terminated */
  uint64_t n;
};
struct netcdf3_attribute {
  struct netcdf3_name name;
  int type;
  uint64_t n; /* values */
  const unsigned char *bytes;
};
struct netcdf3_dimension {
  struct netcdf3_name name;
  uint64_t length; /* of the record dimension: the number of records */
  bool record;
};
struct netcdf3_variable {
  struct netcdf3_name name;
  unsigned ndim;
  uint64_t dim[INSITU__MAX_DIMS]; /* indexes of dimensions */
  struct netcdf3_attribute *attribute;
  int type;
  uint64_t begin, part; /* part: bytes of all of it, or of what one record has of it */
  bool record;
};
struct netcdf3 {
  int version;
  uint64_t records, record_bytes;
  struct netcdf3_dimension *dimension; /* growing arrays */
  struct netcdf3_attribute *attribute;
  struct netcdf3_variable *variable;
};
struct netcdf3_reader {
  const unsigned char *bytes;
  uint64_t n, at;
  bool wide;      /* counts have 8 bytes */
  bool far;       /* places have 8 bytes */
  bool truncated; /* more bytes are needed */
  insitu_error *err;
};

static uint32_t netcdf3_type_bytes(int type) {
  static const unsigned char bytes[] = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
  return type >= 1 && type < (int)INSITU__BASE_COUNT(bytes) ? bytes[type] : 0;
}
static void netcdf3_attributes_free(struct netcdf3_attribute **list) {
  INSITU__ARRAY_FREE(*list);
}
static void netcdf3_free(struct netcdf3 *f) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->variable); i++)
    netcdf3_attributes_free(&f->variable[i].attribute);
  INSITU__ARRAY_FREE(f->variable);
  INSITU__ARRAY_FREE(f->dimension);
  netcdf3_attributes_free(&f->attribute);
}
static insitu_status netcdf3_bad(struct netcdf3_reader *r, const char *what) {
  return insitu__error_set(r->err, INSITU_E_FORMAT,
      "NetCDF header, byte %" PRIu64 ": %s; the file is damaged: fetch or write it again", r->at,
      what);
}
static insitu_status netcdf3_no_memory(struct netcdf3_reader *r) {
  return insitu__error_set(r->err, INSITU_E_NOMEM, "no memory for a NetCDF header");
}
/* The next n bytes; NULL: there are not so many, and the reader stays truncated. */
static const unsigned char *netcdf3_take(struct netcdf3_reader *r, uint64_t n) {
  const unsigned char *p = r->bytes + r->at;
  if (r->truncated || n > r->n - r->at) {
    r->truncated = true;
    return NULL;
  }
  r->at += n;
  return p;
}
static uint64_t netcdf3_number(struct netcdf3_reader *r, unsigned bytes) {
  const unsigned char *p = netcdf3_take(r, bytes);
  uint64_t x = 0;
  for (unsigned i = 0; p && i < bytes; i++) x = x << 8 | p[i];
  return x;
}
static uint64_t netcdf3_count(struct netcdf3_reader *r) {
  return netcdf3_number(r, r->wide ? 8 : 4);
}
/* n bytes and their padding. */
static const unsigned char *netcdf3_padded(struct netcdf3_reader *r, uint64_t n) {
  if (n > UINT64_MAX - 3) {
    r->truncated = true;
    return NULL;
  }
  return netcdf3_take(r, (n + 3) & ~UINT64_C(3));
}
static insitu_status netcdf3_name(struct netcdf3_reader *r, struct netcdf3_name *name) {
  uint64_t n = netcdf3_count(r);
  if (!r->truncated && (!n || n > INSITU__MAX_DIM_NAME))
    return netcdf3_bad(r, "a name is empty, or longer than INSITU__MAX_DIM_NAME");
  const unsigned char *p = netcdf3_padded(r, n);
  for (uint64_t i = 0; p && i < n; i++)
    if (p[i] < ' ' || p[i] == '/' || p[i] == 0x7f)
      return netcdf3_bad(r, "a name has a control character, or '/'");
  *name = (struct netcdf3_name){(const char *)p, n};
  return INSITU_OK;
}
/* The length of a list, 0 where it is absent. */
static insitu_status netcdf3_list(struct netcdf3_reader *r, uint64_t tag, uint64_t *n) {
  uint64_t found = netcdf3_number(r, 4);
  *n = netcdf3_count(r);
  if (r->truncated) return INSITU_OK;
  if (found != tag && (found || *n)) return netcdf3_bad(r, "a list has another tag");
  if (*n > NETCDF3_MAX_LIST) return netcdf3_bad(r, "a list has more than NETCDF3_MAX_LIST entries");
  return INSITU_OK;
}
static insitu_status netcdf3_type(struct netcdf3_reader *r, int *type) {
  uint64_t t = netcdf3_number(r, 4);
  *type = t <= 11 ? (int)t : 0;
  if (r->truncated || (netcdf3_type_bytes(*type) && (r->wide || t <= 6))) return INSITU_OK;
  return netcdf3_bad(r, "an unknown type of values");
}
static insitu_status netcdf3_attributes(struct netcdf3_reader *r, struct netcdf3_attribute **list) {
  uint64_t n;
  insitu_status status = netcdf3_list(r, NETCDF3_ATTRIBUTES, &n);
  for (uint64_t i = 0; !status && !r->truncated && i < n; i++) {
    struct netcdf3_attribute a = {0};
    uint64_t bytes = 0;
    status = netcdf3_name(r, &a.name);
    if (!status) status = netcdf3_type(r, &a.type);
    if (status) return status;
    a.n = netcdf3_count(r);
    if (!insitu__base_mul(a.n, netcdf3_type_bytes(a.type), &bytes)) bytes = UINT64_MAX;
    a.bytes = netcdf3_padded(r, bytes);
    if (!r->truncated && !INSITU__ARRAY_PUSH(*list, a)) return netcdf3_no_memory(r);
  }
  return status;
}
static insitu_status netcdf3_dimensions(struct netcdf3_reader *r, struct netcdf3 *f) {
  uint64_t n;
  bool record = false;
  insitu_status status = netcdf3_list(r, NETCDF3_DIMENSIONS, &n);
  for (uint64_t i = 0; !status && !r->truncated && i < n; i++) {
    struct netcdf3_dimension d = {.length = 0};
    status = netcdf3_name(r, &d.name);
    if (status) return status;
    d.length = netcdf3_count(r);
    d.record = !r->truncated && d.length == 0;
    if (d.record && record) return netcdf3_bad(r, "two record dimensions");
    if (d.length > INT64_MAX) return netcdf3_bad(r, "a dimension of 2^63 or more");
    record = record || d.record;
    if (d.record) d.length = f->records;
    if (!r->truncated && !INSITU__ARRAY_PUSH(f->dimension, d)) return netcdf3_no_memory(r);
  }
  return status;
}
/* The dimensions of a variable, and the bytes of it or of its part of a record. */
static insitu_status netcdf3_shape(
    struct netcdf3_reader *r, const struct netcdf3 *f, struct netcdf3_variable *v) {
  uint64_t ndim = netcdf3_count(r);
  if (!r->truncated && ndim > INSITU__MAX_DIMS)
    return netcdf3_bad(r, "a variable has more axes than INSITU__MAX_DIMS");
  v->ndim = (unsigned)ndim;
  for (unsigned k = 0; !r->truncated && k < v->ndim; k++) {
    v->dim[k] = netcdf3_count(r);
    if (r->truncated) break;
    if (v->dim[k] >= INSITU__ARRAY_LEN(f->dimension))
      return netcdf3_bad(r, "a variable has a dimension that is not in the list");
    bool record = f->dimension[v->dim[k]].record;
    if (record && k) return netcdf3_bad(r, "the record dimension is not a variable's first one");
    v->record = v->record || record;
  }
  return INSITU_OK;
}
static insitu_status netcdf3_variable(
    struct netcdf3_reader *r, const struct netcdf3 *f, struct netcdf3_variable *v) {
  insitu_status status = netcdf3_name(r, &v->name);
  if (!status) status = netcdf3_shape(r, f, v);
  if (!status && !r->truncated) status = netcdf3_attributes(r, &v->attribute);
  if (!status) status = netcdf3_type(r, &v->type);
  if (status) return status;
  netcdf3_count(r); /* vsize: redundant, and too small for large variables */
  v->begin = netcdf3_number(r, r->far ? 8 : 4);
  if (r->truncated) return INSITU_OK;
  v->part = netcdf3_type_bytes(v->type);
  for (unsigned k = v->record; k < v->ndim; k++)
    if (!insitu__base_mul(v->part, f->dimension[v->dim[k]].length, &v->part))
      return netcdf3_bad(r, "a variable has 2^64 bytes or more");
  if (v->part > INT64_MAX || v->begin > INT64_MAX)
    return netcdf3_bad(r, "a variable has, or begins behind, 2^63 bytes");
  return INSITU_OK;
}
/* Bytes of one record: the parts of all record variables, each padded, but of a single one. */
static insitu_status netcdf3_record(struct netcdf3_reader *r, struct netcdf3 *f) {
  uint64_t variables = 0, last = 0;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->variable); i++) {
    const struct netcdf3_variable *v = &f->variable[i];
    if (!v->record) continue;
    variables++;
    last = v->part;
    if (!insitu__base_add(f->record_bytes, (v->part + 3) & ~UINT64_C(3), &f->record_bytes))
      return netcdf3_bad(r, "a record has 2^64 bytes or more");
  }
  if (variables == 1) f->record_bytes = last;
  return INSITU_OK;
}
static insitu_status netcdf3_lists(struct netcdf3_reader *r, struct netcdf3 *f) {
  uint64_t n = 0;
  insitu_status status = netcdf3_dimensions(r, f);
  if (!status && !r->truncated) status = netcdf3_attributes(r, &f->attribute);
  if (!status && !r->truncated) status = netcdf3_list(r, NETCDF3_VARIABLES, &n);
  for (uint64_t i = 0; !status && !r->truncated && i < n; i++) {
    struct netcdf3_variable v = {.ndim = 0};
    status = netcdf3_variable(r, f, &v);
    if (!status && !r->truncated && INSITU__ARRAY_PUSH(f->variable, v)) continue;
    netcdf3_attributes_free(&v.attribute);
    if (!status && !r->truncated) status = netcdf3_no_memory(r);
  }
  return status || r->truncated ? status : netcdf3_record(r, f);
}
/* The record count that is not written while a file grows: as many whole records as there are. */
static insitu_status netcdf3_streaming(
    struct netcdf3_reader *r, struct netcdf3 *f, uint64_t file_bytes) {
  uint64_t first = UINT64_MAX;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->variable); i++)
    if (f->variable[i].record) first = insitu__base_min(first, f->variable[i].begin);
  f->records = 0;
  if (first < file_bytes && f->record_bytes) f->records = (file_bytes - first) / f->record_bytes;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->dimension); i++)
    if (f->dimension[i].record) f->dimension[i].length = f->records;
  (void)r;
  return INSITU_OK;
}
/* All that variables say they have must lie in the file. */
static insitu_status netcdf3_fits(
    struct netcdf3_reader *r, const struct netcdf3 *f, uint64_t file_bytes) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->variable); i++) {
    const struct netcdf3_variable *v = &f->variable[i];
    uint64_t end = v->begin, before = 0;
    if (v->record && !f->records) continue;
    if (v->record && !insitu__base_mul(f->records - 1, f->record_bytes, &before)) end = UINT64_MAX;
    if (end != UINT64_MAX &&
        (!insitu__base_add(end, before, &end) || !insitu__base_add(end, v->part, &end)))
      end = UINT64_MAX;
    if (end <= file_bytes) continue;
    return insitu__error_set(r->err, INSITU_E_FORMAT,
        "variable '%.*s' ends at byte %" PRIu64 ", the file at %" PRIu64
        ": it is cut off; fetch it again",
        (int)v->name.n, v->name.text, end, file_bytes);
  }
  return INSITU_OK;
}
/* Reads the header of a file of file_bytes bytes, of which the first n are at `bytes`, which must
 * outlive *f. *truncated: the header is longer than n, call again with more. netcdf3_free
 * always. */
static insitu_status netcdf3_parse(struct netcdf3 *f, const void *bytes, uint64_t n,
    uint64_t file_bytes, bool *truncated, insitu_error *err) {
  struct netcdf3_reader r = {.bytes = bytes, .n = n, .err = err};
  memset(f, 0, sizeof *f);
  *truncated = false;
  const unsigned char *magic = netcdf3_take(&r, 4);
  if (!magic || memcmp(magic, "CDF", 3) || (magic[3] != 1 && magic[3] != 2 && magic[3] != 5))
    return insitu__error_set(
        err, INSITU_E_FORMAT, "no NetCDF classic file: it does not begin with CDF 1, 2 or 5");
  f->version = magic[3];
  r.far = f->version > 1;
  r.wide = f->version == 5;
  f->records = netcdf3_count(&r);
  bool streaming = f->records == (r.wide ? UINT64_MAX : UINT32_MAX);
  if (streaming) f->records = 0;
  if (f->records > INT64_MAX) return netcdf3_bad(&r, "more than 2^63 records");
  insitu_status status = netcdf3_lists(&r, f);
  if (!status && r.truncated && n < file_bytes) {
    *truncated = true;
    return INSITU_OK;
  }
  if (!status && r.truncated) status = netcdf3_bad(&r, "the header is cut off");
  if (!status && streaming) status = netcdf3_streaming(&r, f, file_bytes);
  return status ? status : netcdf3_fits(&r, f, file_bytes);
}
