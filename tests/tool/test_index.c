/* The command insitu index: files of other formats are written here, indexed, and every array is
 * read back through the index, whole and in batches, bit for bit; what is hostile, or cannot be one
 * archive, is refused by name. */
#include "server.h"
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "readback.h"
#include "run_tool.h"
#include "index_reader.h"

/* ---- NetCDF classic files ---- */

struct nc {
  unsigned char bytes[1 << 20];
  size_t n;
  int version;
};
static void nc_big(struct nc *f, uint64_t x, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0;) f->bytes[f->n++] = (unsigned char)(x >> 8 * i);
}
static void nc_count(struct nc *f, uint64_t x) {
  nc_big(f, x, f->version == 5 ? 8 : 4);
}
static void nc_pad(struct nc *f) {
  while (f->n % 4) f->bytes[f->n++] = 0;
}
static void nc_text(struct nc *f, const char *text) {
  nc_count(f, strlen(text));
  memcpy(f->bytes + f->n, text, strlen(text));
  f->n += strlen(text);
  nc_pad(f);
}
static void nc_begin(struct nc *f, int version, uint64_t records) {
  memset(f, 0, sizeof *f);
  f->version = version;
  memcpy(f->bytes, "CDF", 3);
  f->bytes[3] = (unsigned char)version;
  f->n = 4;
  nc_count(f, records);
}
static void nc_list(struct nc *f, uint64_t tag, uint64_t n) {
  nc_big(f, n ? tag : 0, 4);
  nc_count(f, n);
}
static void nc_text_attribute(struct nc *f, const char *name, const char *text) {
  nc_text(f, name);
  nc_big(f, 2, 4);
  nc_text(f, text);
}
static void nc_double_attribute(struct nc *f, const char *name, double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  nc_text(f, name);
  nc_big(f, 6, 4);
  nc_count(f, 1);
  nc_big(f, bits, 8);
}
/* The end of a variable's entry; *begin is set once the header's length is known. */
static void nc_variable(struct nc *f, int type, uint64_t bytes, size_t *begin) {
  nc_big(f, (uint64_t)type, 4);
  nc_count(f, bytes);
  *begin = f->n;
  nc_big(f, 0, f->version == 1 ? 4 : 8);
}
static void nc_place(struct nc *f, size_t at) {
  size_t end = f->n;
  f->n = at;
  nc_big(f, end, f->version == 1 ? 4 : 8);
  f->n = end;
}
enum { RECORDS = 7, LATS = 3, LONS = 5, NAME = 6 };
struct winds {
  double time[64];
  int16_t t[64 * LATS * LONS];
  float u[64 * LATS * LONS];
  int8_t mask[LATS * LONS];
  char name[LATS * NAME];
};
/* A file of records: times, packed temperatures (30 bytes, so that they are padded), winds; and two
 * fixed variables. hours: what times count from 2000-01-01 on. */
static void nc_write(const char *path, int version, const char *units, unsigned records,
    double first, struct winds *w) {
  static struct nc f;
  size_t begin[5];
  const char *const dims[] = {"time", "lat", "lon", "len"};
  const uint64_t lengths[] = {0, LATS, LONS, NAME};
  nc_begin(&f, version, records);
  nc_list(&f, 10, 4);
  for (int i = 0; i < 4; i++) {
    nc_text(&f, dims[i]);
    nc_count(&f, lengths[i]);
  }
  nc_list(&f, 12, 1);
  nc_text_attribute(&f, "title", "made \"here\"");
  nc_list(&f, 11, 5);
  const struct {
    const char *name;
    int n, dim[3], type;
    uint64_t bytes;
  } variable[] = {{"time", 1, {0}, 6, 8}, {"mask", 2, {1, 2}, 1, 16}, {"t", 3, {0, 1, 2}, 3, 32},
      {"name", 2, {1, 3}, 2, 20}, {"u", 3, {0, 1, 2}, 5, 60}};
  for (int i = 0; i < 5; i++) {
    nc_text(&f, variable[i].name);
    nc_count(&f, (uint64_t)variable[i].n);
    for (int k = 0; k < variable[i].n; k++) nc_count(&f, (uint64_t)variable[i].dim[k]);
    nc_list(&f, 12, i == 0 ? 1 : i == 2 ? 2 : 0);
    if (i == 0) nc_text_attribute(&f, "units", units);
    if (i == 2) {
      nc_double_attribute(&f, "scale_factor", 0.5);
      nc_double_attribute(&f, "add_offset", 3);
    }
    nc_variable(&f, variable[i].type, variable[i].bytes, &begin[i]);
  }
  nc_place(&f, begin[1]);
  for (int i = 0; i < LATS * LONS; i++)
    nc_big(&f, (uint64_t)(w->mask[i] = (int8_t)(i * 3 - 20)), 1);
  nc_pad(&f);
  nc_place(&f, begin[3]);
  for (int i = 0; i < LATS; i++) {
    snprintf(w->name + i * NAME, NAME, "lat%d", i);
    memcpy(f.bytes + f.n, w->name + i * NAME, NAME);
    f.n += NAME;
  }
  nc_pad(&f);
  for (unsigned r = 0; r < records; r++) {
    uint64_t bits;
    uint32_t low;
    if (!r) nc_place(&f, begin[0]);
    w->time[r] = first + 6.0 * r;
    memcpy(&bits, &w->time[r], 8);
    nc_big(&f, bits, 8);
    if (!r) nc_place(&f, begin[2]);
    for (unsigned i = r * LATS * LONS; i < (r + 1) * LATS * LONS; i++)
      nc_big(&f, (uint16_t)(w->t[i] = (int16_t)(i * 37 - 999)), 2);
    nc_pad(&f);
    if (!r) nc_place(&f, begin[4]);
    for (unsigned i = r * LATS * LONS; i < (r + 1) * LATS * LONS; i++) {
      w->u[i] = (float)i / 3 - (float)first;
      memcpy(&low, &w->u[i], 4);
      nc_big(&f, low, 4);
    }
  }
  support_write(path, f.bytes, f.n);
}

static void test_netcdf3(void **state) {
  static struct winds w;
  struct index_reader r;
  char file[300], index[300];
  (void)state;
  for (int version = 1; version <= 5; version += version == 2 ? 3 : 1) {
    snprintf(file, sizeof file, "%s", support_path("w.nc"));
    snprintf(index, sizeof index, "%s", support_path("w.insitu"));
    nc_write(file, version, "hours since 2000-01-01", RECORDS, 10, &w);
    assert_int_equal(run_tool("index '%s' -o '%s'", file, index), 0);
    assert_has(run_out, "w.insitu: ");
    index_reader_open(&r, index);
    index_expect(&r, "time", w.time, RECORDS * 8);
    index_expect(&r, "t", w.t, RECORDS * LATS * LONS * 2);
    index_expect(&r, "u", w.u, RECORDS * LATS * LONS * 4);
    index_expect(&r, "mask", w.mask, LATS * LONS);
    index_expect(&r, "name", w.name, LATS * NAME);
    assert_has(index_object(&r, "zarr.json"), "made \\\"here\\\"");
    assert_has(index_object(&r, "t/zarr.json"), "\"scale_factor\":0.5");
    assert_has(index_object(&r, "u/zarr.json"), "[\"time\",\"lat\",\"lon\"]");
    assert_int_equal(r.n_inline, 2); /* times, 7 reads of 8 bytes else, and names */
    index_reader_free(&r);
  }
  /* a file that was written again since is refused */
  nc_write(file, 5, "hours since 2000-01-01", RECORDS + 1, 10, &w);
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char *bytes;
  assert_int_equal(readback_read(&(insitu_loader_desc){.url = index},
                       &(insitu_variable){.path = "u"}, 1 << 20, &shape, &bytes, &err),
      INSITU_E_CHANGED);
  assert_has(err.message, "w.nc");
  /* other names, and no more than what was asked for */
  assert_int_equal(
      run_tool("index '%s' -o '%s' --arrays u --rename u=wind,lat=y --json", file, index), 0);
  assert_has(run_out, "\"path\": \"wind\"");
}

/* ---- joining ---- */

static void test_join(void **state) {
  static struct winds part[3], all;
  static const unsigned records[] = {7, 2, 5};
  static const char *const units[] = {
      "hours since 2000-01-01", "days since 2000-01-03", "seconds since 1999-12-31 12:00"};
  /* the same clock: 10, 16, ...; then 60, 66; then 80 on */
  static const double first[] = {10, 60, 80};
  struct index_reader r;
  char file[3][300], index[300];
  unsigned n = 0;
  (void)state;
  snprintf(index, sizeof index, "%s", support_path("all.insitu"));
  for (int i = 0; i < 3; i++) {
    char name[20];
    snprintf(name, sizeof name, "part%d.nc", i);
    snprintf(file[i], sizeof file[i], "%s", support_path(name));
    nc_write(file[i], 2, units[i], records[i], first[i], &part[i]);
    for (unsigned k = 0; k < records[i]; k++, n++) {
      double hours = first[i] + 6.0 * k;
      all.time[n] = i == 0 ? hours : i == 1 ? 24 * hours + 48 : hours / 3600 - 12;
      memcpy(all.u + n * LATS * LONS, part[i].u + k * LATS * LONS, LATS * LONS * 4);
      memcpy(all.t + n * LATS * LONS, part[i].t + k * LATS * LONS, LATS * LONS * 2);
    }
  }
  assert_int_equal(run_tool("index '%s' '%s' '%s' -o '%s'", file[0], file[1], file[2], index), 1);
  assert_has(run_err, "name the files in the order of the axis");
  assert_int_equal(
      run_tool("index '%s' '%s' '%s' -o '%s' --any-order", file[0], file[1], file[2], index), 0);
  index_reader_open(&r, index);
  assert_int_equal(r.n_targets, 3);
  index_expect(&r, "time", all.time, n * 8);
  index_expect(&r, "u", all.u, n * LATS * LONS * 4);
  index_expect(&r, "t", all.t, n * LATS * LONS * 2);
  index_expect(&r, "mask", part[0].mask, LATS * LONS);
  index_reader_free(&r);
}
static void test_join_refused(void **state) {
  static struct winds w;
  char a[300], b[300], index[300];
  (void)state;
  snprintf(a, sizeof a, "%s", support_path("a.nc"));
  snprintf(b, sizeof b, "%s", support_path("b.nc"));
  snprintf(index, sizeof index, "%s", support_path("refused.insitu"));
  nc_write(a, 1, "hours since 2000-01-01", 3, 0, &w);
  nc_write(b, 1, "hours since 2000-01-01", 3, 100, &w);
  size_t n;
  unsigned char *bytes = index_slurp(b, &n);
  /* another scale_factor, 0.25 */
  unsigned char *at = memmem(bytes, n, "\x3f\xe0\0\0\0\0\0\0", 8);
  assert_non_null(at);
  at[1] = 0xd0;
  support_write(b, bytes, n);
  assert_int_equal(run_tool("index '%s' '%s' -o '%s'", a, b, index), 1);
  assert_has(run_err, "'scale_factor' is 0.5 in ");
  assert_has(run_err, " and 0.25 in ");
  assert_int_equal(run_tool("index '%s' '%s' -o '%s' --arrays u", a, b, index), 0);
  at[1] = 0xe0;
  at = memmem(bytes, n, "lon", 3);
  memcpy(at, "lxn", 3);
  support_write(b, bytes, n);
  assert_int_equal(run_tool("index '%s' '%s' -o '%s' --join step", a, b, index), 2);
  assert_has(run_err, "give --join with one of: time, ");
  /* fixed variables must be the same */
  support_write(b, bytes, n);
  at = memmem(bytes, n, "lat0", 4);
  at[3] = '9';
  support_write(b, bytes, n);
  assert_int_equal(run_tool("index '%s' '%s' -o '%s'", a, b, index), 1);
  assert_has(run_err, "array 'name' does not have the joined axis");
  free(bytes);
}

/* ---- Zarr archives ---- */

enum { ZARR_WIDE = 6 };
/* Archives of these lengths along time, joined; every number through the library. */
static void zarr_join(int format, bool fortran, bool big, const uint64_t *length, int n) {
  static float x[64 * ZARR_WIDE];
  static double time[64];
  char index[300], words[2000] = "", *end = words;
  uint64_t total = 0;
  snprintf(index, sizeof index, "%s", support_path("joined.insitu"));
  for (int i = 0; i < n; i++, total += length[i - 1]) {
    char name[30], root[300], units[60];
    double values[64];
    snprintf(name, sizeof name, "z%d-%d.zarr", format, i);
    snprintf(root, sizeof root, "%s", support_path(name));
    snprintf(units, sizeof units, "\"units\": \"days since 2000-01-%02d\"", (int)total + 1);
    support_remove(root);
    for (uint64_t k = 0; k < length[i]; k++) {
      time[total + k] = (double)(total + k);
      values[k] = (double)k;
      for (uint64_t m = 0; m < ZARR_WIDE; m++)
        x[(total + k) * ZARR_WIDE + m] = (float)support_value(INSITU_F32, k * ZARR_WIDE + m);
    }
    support_make(root, &(struct support_array){.name = "time",
                           .ndim = 1,
                           .shape = {length[i]},
                           .chunk = {length[i]},
                           .dtype = INSITU_F64,
                           .format = format,
                           .dims = "[\"time\"]",
                           .attributes = units,
                           .values = values});
    support_make(root, &(struct support_array){.name = "x",
                           .ndim = 2,
                           .shape = {length[i], ZARR_WIDE},
                           .chunk = {4, 5},
                           .dtype = INSITU_F32,
                           .format = format,
                           .dims = "[\"time\", \"y\"]",
                           .zstd = big,
                           .fortran = fortran,
                           .big = big});
    end += sprintf(end, " '%s'", root);
  }
  char says[60];
  assert_int_equal(run_tool("index %s -o '%s' --json", words, index), 0);
  snprintf(says, sizeof says, "\"files\": 0,\n  \"archives\": %d,", n);
  assert_has(run_out, says);
  assert_int_equal(run_tool("index %s -o '%s'", words, index), 0);
  snprintf(says, sizeof says, " chunks in %d archives\n", n);
  assert_has(run_out, says);
  assert_string_equal(run_err, "");
  const insitu_loader_desc where = {.url = index};
  index_expect_at(&where, "time", time, total * sizeof *time);
  index_expect_at(&where, "x", x, total * ZARR_WIDE * sizeof *x);
}
static void test_zarr(void **state) {
  static const uint64_t whole[] = {8, 4, 5}, any[] = {5, 7, 3, 4, 1};
  (void)state;
  for (int format = 2; format <= 3; format++)
    for (int k = 0; k < 4; k++) {
      zarr_join(format, k & 1, k & 2, whole, 3);
      zarr_join(format, k & 1, k & 2, any, 5);
    }
}

/* ---- references ---- */

static unsigned char records[4096];
static size_t records_n;
static void record(char kind, const void *bytes, size_t n) {
  records[records_n++] = (unsigned char)kind;
  support_store64(records + records_n, n);
  memcpy(records + records_n + 8, bytes, n);
  records_n += 8 + n;
}
/* What stands in for Python writes the records that it would: a row in a file, one inline, one that
 * is absent. */
static void test_refs(void **state) {
  static const char metadata[] = ".zgroup\0{\"zarr_format\":2}";
  static const char array[] =
      "x/.zarray\0{\"zarr_format\":2,\"shape\":[3,4],\"chunks\":[1,4],\"dtype\":\"<i2\",\"order\":"
      "\"C\",\"fill_value\":7,\"filters\":null,\"compressor\":null}";
  const int16_t want[12] = {1, 2, 3, 4, 5, 6, 7, 8, 7, 7, 7, 7};
  unsigned char rows[8 + 64 + 8] = {2};
  char python[300], file[300], index[300], data[20] = "12345";
  (void)state;
  memcpy(data + 5, want, 8);
  snprintf(file, sizeof file, "%s", support_path("x.bin"));
  support_write(file, data, sizeof data);
  snprintf(python, sizeof python, "%s", support_path("python"));
  support_write(python, "#!/bin/sh\ncat \"$3.records\"\n", 28);
  chmod(python, 0755);
  snprintf(index, sizeof index, "%s", support_path("r.insitu"));
  support_store64(rows + 16, 0); /* chunk 0: target 0, offset 5, 8 bytes */
  support_store64(rows + 24, 5);
  support_store64(rows + 32, 8);
  support_store64(rows + 40, 1); /* chunk 1: 8 bytes behind the rows */
  support_store64(rows + 48, (uint64_t)-2);
  support_store64(rows + 64, 8);
  memcpy(rows + 72, want + 4, 8);
  for (int damage = 0; damage < 4; damage++) {
    char name[310];
    records_n = 0;
    record('M', metadata, sizeof metadata - 1);
    if (damage != 1) record('M', array, sizeof array - 1);
    record('A', "x", 1);
    if (damage != 2) record('T', "x.bin", 5);
    record('R', rows, sizeof rows - (damage == 3 ? 1 : 0));
    record('E', "", 0);
    snprintf(name, sizeof name, "%s.records", file);
    support_write(name, records, records_n);
    int code = run_tool("refs '%s' -o '%s' --python '%s'", file, index, python);
    assert_int_equal(code, damage != 0);
    if (damage) assert_has(run_err, "the references are damaged");
    if (damage) continue;
    index_expect_at(&(insitu_loader_desc){.url = index}, "x", want, sizeof want);
  }
  assert_int_equal(run_tool("refs '%s' -o '%s' --python '%s.no'", file, index, python), 1);
  assert_has(run_err, "name one with --python");
}

/* ---- what is refused ---- */

static void test_refused(void **state) {
  static struct winds w;
  static const struct {
    const char *bytes;
    size_t n;
    const char *says;
  } foreign[] = {{"II*\0....", 8, "TIFF"}, {"\x1f\x8b......", 8, "gunzip"},
      {"PAR1....", 8, "insitu refs"}, {"{\"version\": 1}", 14, "insitu refs"},
      {"\x1f\x8b", 2, "gunzip"}, {"\x1f", 1, "is none of"}, {"", 0, "is none of"},
      {"hello", 5, "is none of NetCDF, HDF5, GRIB and Zarr"}};
  static const struct {
    const char *words, *says;
  } option[] = {{"--unasked", "--unasked: it is of --base"},
      {"--match t2m", "--match chooses messages of GRIB files"},
      {"--base 'https://host/d?sig=hunter2'", "neither a query nor a user"},
      {"--base https://me:hunter2@host/d", "neither a query nor a user"},
      {"--base 's3://bucket/d?key=hunter2'", "give readers what the store asks for as options"},
      {"--base 'az://box/d?sv=1&sig=hunter2'", "sas_token"}};
  char file[300], index[300];
  size_t n;
  (void)state;
  snprintf(file, sizeof file, "%s", support_path("x.nc"));
  snprintf(index, sizeof index, "%s", support_path("x.insitu"));
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    support_write(file, foreign[i].bytes, foreign[i].n);
    assert_int_equal(run_tool("index '%s' -o '%s'", file, index), 1);
    assert_has(run_err, foreign[i].says);
  }
  nc_write(file, 1, "hours since 2000-01-01", 3, 0, &w);
  unsigned char *bytes = index_slurp(file, &n);
  support_write(file, bytes, n - 30);
  assert_int_equal(run_tool("index '%s' -o '%s'", file, index), 1);
  assert_has(run_err, "it is cut off; fetch it again");
  support_write(file, bytes, 100);
  assert_int_equal(run_tool("index '%s' -o '%s'", file, index), 1);
  assert_has(run_err, "the header is cut off");
  memset(bytes + 12, 0x7f, 4); /* two thousand million dimensions */
  support_write(file, bytes, n);
  assert_int_equal(run_tool("index '%s' -o '%s'", file, index), 1);
  assert_has(run_err, "NETCDF3_MAX_LIST");
  assert_int_equal(run_tool("index '%s'", file), 2);
  assert_has(run_err, "--out is missing");
  nc_write(file, 1, "hours since 2000-01-01", 3, 0, &w);
  for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
    assert_int_equal(run_tool("index '%s' -o '%s' %s", file, index, option[i].words), 2);
    assert_has(run_err, option[i].says);
    if (strstr(run_err, "hunter2")) fail_msg("%s", run_err);
  }
  assert_int_equal(run_tool("refs '%s' -o '%s' %s", file, index, option[5].words), 2);
  assert_has(run_err, "sas_token");
  assert_int_equal(run_tool("index '%s.no' -o '%s'", file, index), 1);
  assert_has(run_err, "No such file");
  assert_int_equal(run_tool("index '%s' -o '%s/none/x.insitu'", file, support_dir), 1);
  assert_has(run_err, "make it first");
  free(bytes);
}

/* ---- files in stores ---- */

enum { WIDE_ROWS = 50, WIDE = 2000 };
struct wide {
  double time[WIDE_ROWS];
  float t[WIDE_ROWS * WIDE];
};
/* 400 KB, whose times lie apart. */
static unsigned char *nc_wide(struct wide *w, size_t *n) {
  static struct nc f;
  size_t begin[2];
  nc_begin(&f, 2, WIDE_ROWS);
  nc_list(&f, 10, 2);
  nc_text(&f, "time");
  nc_count(&f, 0);
  nc_text(&f, "x");
  nc_count(&f, WIDE);
  nc_list(&f, 12, 0);
  nc_list(&f, 11, 2);
  for (uint64_t i = 0; i < 2; i++) {
    nc_text(&f, i ? "t" : "time");
    nc_count(&f, i + 1);
    nc_count(&f, 0);
    if (i) nc_count(&f, 1);
    nc_list(&f, 12, 0);
    nc_variable(&f, i ? 5 : 6, i ? 4 * WIDE : 8, &begin[i]);
  }
  for (int r = 0; r < WIDE_ROWS; r++) {
    uint64_t bits;
    uint32_t low;
    w->time[r] = r * 6;
    memcpy(&bits, &w->time[r], 8);
    if (!r) nc_place(&f, begin[0]);
    nc_big(&f, bits, 8);
    if (!r) nc_place(&f, begin[1]);
    for (int i = r * WIDE; i < (r + 1) * WIDE; i++) {
      w->t[i] = (float)i / 3;
      memcpy(&low, &w->t[i], 4);
      nc_big(&f, low, 4);
    }
  }
  *n = f.n;
  return f.bytes;
}
static void expect_same_file(const char *a, const char *b) {
  size_t n, m;
  unsigned char *x = index_slurp(a, &n), *y = index_slurp(b, &m);
  if (n != m || memcmp(x, y, n) != 0) fail_msg("%s and %s differ", a, b);
  free(x);
  free(y);
}
/* Indexes a copy on this machine and the object at "d/NAME": the two indexes are the same, byte for
 * byte. */
static void far_and_near(struct server *s, const char *name, const unsigned char *bytes, size_t n,
    const char *options, char far[300]) {
  char copy[300], near[300], key[40];
  snprintf(key, sizeof key, "d/%s", name);
  snprintf(copy, sizeof copy, "%s", support_path(name));
  snprintf(near, sizeof near, "%s", support_path("near.insitu"));
  snprintf(far, 300, "%s", support_path("far.insitu"));
  support_write(copy, bytes, n);
  server_put(s, key, bytes, n);
  assert_int_equal(run_tool("index '%s' -o '%s' --base %s", copy, near, server_url(s, "d")), 0);
  assert_int_equal(run_tool("index %s -o '%s' %s", server_url(s, key), far, options), 0);
  assert_has(run_out, "desc.virtual_prefixes");
  expect_same_file(near, far);
}
static void test_far(void **state) {
  static struct wide w;
  size_t n;
  unsigned char *bytes = nc_wide(&w, &n), *index;
  char far[300], prefix[80];
  const char *const prefixes[] = {prefix};
  struct server *s = server_start(&(struct server_options){.threads = 1});
  (void)state;
  snprintf(prefix, sizeof prefix, "%s", server_url(s, "d"));
  far_and_near(s, "w.nc", bytes, n, "-v", far);
  assert_has(run_out, "Scanned by 2 requests, ");
  assert_has(run_err, "/d/w.nc: 2 requests, ");
  const insitu_loader_desc where = {
      .url = far, .virtual_prefixes = prefixes, .n_virtual_prefixes = 1};
  index_expect_at(&where, "time", w.time, sizeof w.time);
  index_expect_at(&where, "t", w.t, sizeof w.t);

  /* S3; a name without an ending; a query, which no index has */
  server_put(s, "bucket/w.nc", bytes, n);
  assert_int_equal(run_tool("index s3://bucket/w.nc -o '%s' -O endpoint=http://127.0.0.1:%d -O "
                            "allow_http=true --anonymous",
                       far, s->port),
      0);
  server_put(s, "d/f000", bytes, n);
  assert_int_equal(run_tool("index '%s?sig=hunter2' -o '%s'", server_url(s, "d/f000"), far), 0);
  assert_has(run_err, "its query is left out");
  index = index_slurp(far, &n);
  assert_null(memmem(index, n, "hunter2", 7));
  assert_non_null(memmem(index, n, "/d/f000", 7));
  free(index);

  /* what a scan saw is what is read, or nothing is */
  assert_int_equal(run_tool("index %s -o '%s'", server_url(s, "d/w.nc"), far), 0);
  server_touch(s, "d/w.nc");
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char *got;
  assert_int_equal(
      readback_read(&where, &(insitu_variable){.path = "t"}, 1 << 20, &shape, &got, &err),
      INSITU_E_CHANGED);
  assert_has(err.message, "d/w.nc");
  server_stop(&s);
}
/* What an index may have of an archive's URL; one at the root of a host; what is neither archive
 * nor file. */
static void test_far_archives(void **state) {
  static const char metadata[] =
      "{\"zarr_format\":3,\"node_type\":\"group\",\"consolidated_metadata\":{\"kind\":"
      "\"inline\",\"must_understand\":false,\"metadata\":{\"x\":{\"zarr_format\":3,\"node_type\":"
      "\"array\",\"shape\":[90000,9],\"data_type\":\"float32\",\"chunk_grid\":{"
      "\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[9000,9]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\","
      "\"configuration\":{\"separator\":\"/\"}},\"fill_value\":0,\"codecs\":[{\"name\":\"bytes\","
      "\"configuration\":{\"endian\":\"little\"}}],\"attributes\":{}}}}}";
  char out[300];
  struct server *s = server_start(&(struct server_options){.threads = 1});
  size_t n;
  (void)state;
  snprintf(out, sizeof out, "%s", support_path("x.insitu"));
  server_text(s, "a.zarr/zarr.json", metadata);
  assert_int_equal(run_tool("index '%s?sig=hunter2' -o '%s'", server_url(s, "a.zarr"), out), 0);
  assert_has(run_err, "/a.zarr?***: its query is left out");
  if (strstr(run_err, "hunter2")) fail_msg("%s", run_err);
  unsigned char *index = index_slurp(out, &n);
  assert_null(memmem(index, n, "hunter2", 7));
  assert_non_null(memmem(index, n, "/a.zarr", 7));
  free(index);
  assert_int_equal(
      run_tool("index http://me:hunter2@127.0.0.1:%d/a.zarr -o '%s'", s->port, out), 1);
  assert_has(run_err, "credentials stand in it, and no index may have them");
  if (strstr(run_err, "hunter2")) fail_msg("%s", run_err);

  assert_int_equal(run_tool("index http://127.0.0.1:%d -o '%s'", s->port, out), 1);
  assert_has(run_err, "no Zarr metadata");
  server_text(s, "zarr.json", metadata);
  if (run_tool("index http://127.0.0.1:%d -o '%s'", s->port, out)) fail_msg("%s", run_err);
  server_rule(s, (struct server_rule){.key = "d/f000", .fault = SERVER_STATUS, .status = 403});
  assert_int_equal(run_tool("index %s -o '%s'", server_url(s, "d/f000"), out), 1);
  assert_has(run_err, "no Zarr metadata");
  assert_has(run_err, "as a file: ");
  assert_has(run_err, "HTTP 403");
  server_stop(&s);
}
/* Files that cannot be scanned by ranges, or are not what they were: what to do. */
static void test_far_refused(void **state) {
  static struct wide w;
  static const struct {
    struct server_rule rule;
    const char *says;
  } cases[] = {{{.fault = SERVER_CHANGE, .skip = 1, .count = 1}, "it changed while it was read"},
      {{.fault = SERVER_WHOLE}, "its server ignores ranges"},
      {{.fault = SERVER_STATUS, .status = 403}, "HTTP 403"},
      {{.fault = SERVER_CHUNKED, .at = 999}, NULL},
      {{.fault = SERVER_RESET, .at = 1000, .count = 1}, NULL}};
  size_t n;
  unsigned char *bytes = nc_wide(&w, &n);
  char out[300], copy[300], url[100];
  struct server *s = server_start(&(struct server_options){.threads = 1});
  (void)state;
  snprintf(out, sizeof out, "%s", support_path("x.insitu"));
  snprintf(copy, sizeof copy, "%s", support_path("w.nc"));
  snprintf(url, sizeof url, "%s", server_url(s, "d/w.nc"));
  server_put(s, "d/w.nc", bytes, n);
  support_write(copy, bytes, n);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    server_rule(s, cases[i].rule);
    int code = run_tool("index %s -o '%s' -O max_retries=1", url, out);
    assert_int_equal(code, cases[i].says != NULL);
    if (cases[i].says) assert_has(run_err, cases[i].says);
    if (cases[i].says) assert_has(run_err, "d/w.nc");
    server_reset(s);
  }
  assert_int_equal(run_tool("index %s -o '%s'", server_url(s, "d/none.nc"), out), 1);
  assert_has(run_err, "object 'd/none.nc': no such object");
  server_text(s, "d/login.nc", "<!DOCTYPE html><title>Log in</title>");
  assert_int_equal(run_tool("index %s -o '%s'", server_url(s, "d/login.nc"), out), 1);
  assert_has(run_err, "a page for people, and no file");
  assert_int_equal(run_tool("index http://127.0.0.1:1/a.nc -o '%s' -O max_retries=0", out), 1);
  assert_has(run_err, "check host and port");
  assert_int_equal(run_tool("index %s -o '%s'", server_url(s, "d/none"), out), 1);
  assert_has(run_err, "no Zarr metadata");

  /* --base is asked, and has what the copy is of */
  unlink(out);
  server_put(s, "d/w.nc", bytes, n - 9000);
  assert_int_equal(run_tool("index %s -o '%s'", url, out), 1);
  assert_has(run_err, "it is cut off; fetch it again");
  assert_int_equal(run_tool("index '%s' -o '%s' --base %s", copy, out, server_url(s, "d")), 1);
  assert_has(run_err, "and its copy ");
  bytes[100] ^= 1;
  server_put(s, "d/w.nc", bytes, n);
  assert_int_equal(run_tool("index '%s' -o '%s' --base %s", copy, out, server_url(s, "d")), 1);
  assert_has(run_err, "are not the same file");
  server_delete(s, "d/w.nc");
  assert_int_equal(run_tool("index '%s' -o '%s' --base %s", copy, out, server_url(s, "d")), 1);
  assert_has(run_err, "with --unasked its size alone does");
  server_put(s, "d/w.nc", bytes, n);
  server_rule(s, (struct server_rule){.fault = SERVER_WHOLE});
  assert_int_equal(run_tool("index '%s' -o '%s' --base %s", copy, out, server_url(s, "d")), 1);
  assert_has(run_err, "its server ignores ranges, or does not tell a file's length. --base is");
  server_reset(s);
  server_delete(s, "d/w.nc");
  assert_int_equal(access(out, F_OK), -1); /* no index was written by any of these */
  assert_int_equal(
      run_tool("index '%s' -o '%s' --base %s --unasked", copy, out, server_url(s, "d")), 0);
  assert_has(run_out, "Of 1 of its 1 files the size alone is known");
  server_stop(&s);
}

/* ---- HDF5 ---- */

#ifdef INSITU_TOOL_HDF5
#define H5_USE_110_API
#include <hdf5.h>

enum { H5_ROWS = 11, H5_A = 6, H5_B = 10, H5_N = H5_ROWS * H5_A * H5_B };
struct h5_case {
  const char *name;
  bool shuffle, deflate, fletcher, zstd, big, noise, latest, unlimited;
};
static size_t h5_zstd(unsigned flags, size_t n_values, const unsigned *values, size_t n,
    size_t *room, void **buffer) {
  (void)n_values, (void)values;
  size_t bound = flags & H5Z_FLAG_REVERSE ? 1 << 20 : ZSTD_compressBound(n);
  void *to = malloc(bound);
  size_t got = flags & H5Z_FLAG_REVERSE ? ZSTD_decompress(to, bound, *buffer, n)
                                        : ZSTD_compress(to, bound, *buffer, n, 1);
  if (ZSTD_isError(got) || (!(flags & H5Z_FLAG_REVERSE) && got >= n)) {
    free(to); /* an optional filter that does not shrink a chunk is skipped */
    return 0;
  }
  free(*buffer);
  *buffer = to;
  *room = bound;
  return got;
}
static void h5_attribute(hid_t at, const char *name, const char *text) {
  hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(type, strlen(text));
  hid_t a = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(a, type, text) >= 0);
  H5Aclose(a);
  H5Tclose(type);
  H5Sclose(space);
}
static void h5_dataset(hid_t file, const struct h5_case *c, const int32_t *x) {
  const hsize_t shape[] = {H5_ROWS, H5_A, H5_B}, chunk[] = {4, 5, 10};
  const hsize_t most[] = {H5S_UNLIMITED, c->latest ? H5S_UNLIMITED : H5_A, H5_B};
  hid_t space = H5Screate_simple(3, shape, c->unlimited ? most : NULL),
        create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 3, chunk);
  if (c->shuffle) H5Pset_shuffle(create);
  if (c->deflate) H5Pset_deflate(create, 3);
  if (c->zstd) H5Pset_filter(create, 32015, H5Z_FLAG_OPTIONAL, 0, NULL);
  if (c->fletcher) H5Pset_fletcher32(create);
  hid_t set = H5Dcreate2(file, c->name, c->big ? H5T_STD_I32BE : H5T_STD_I32LE, space, H5P_DEFAULT,
      create, H5P_DEFAULT);
  assert_true(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
  h5_attribute(set, "units", "K");
  H5Dclose(set);
  H5Pclose(create);
  H5Sclose(space);
}
static void test_hdf5_filters(void **state) {
  static const struct h5_case cases[] = {{.name = "plain"}, {.name = "gz", .deflate = true},
      {.name = "sh", .shuffle = true}, {.name = "fl", .fletcher = true},
      {.name = "shgz", .shuffle = true, .deflate = true},
      {.name = "shgzfl", .shuffle = true, .deflate = true, .fletcher = true},
      {.name = "shfl", .shuffle = true, .fletcher = true}, {.name = "zstd", .zstd = true},
      {.name = "shzstdfl", .shuffle = true, .zstd = true, .fletcher = true},
      {.name = "noise", .zstd = true, .shuffle = true, .fletcher = true, .noise = true},
      {.name = "big", .big = true, .deflate = true, .shuffle = true},
      {.name = "grows", .deflate = true, .unlimited = true}};
  const H5Z_class2_t zstd = {.version = H5Z_CLASS_T_VERS,
      .id = 32015,
      .encoder_present = 1,
      .decoder_present = 1,
      .name = "zstd",
      .filter = h5_zstd};
  static int32_t x[2][H5_N];
  struct index_reader r;
  char path[300], index[300];
  (void)state;
  H5Zregister(&zstd);
  for (int i = 0; i < H5_N; i++) {
    x[0][i] = i / 7 * 3;
    x[1][i] = (int32_t)support_random();
  }
  snprintf(path, sizeof path, "%s", support_path("f.h5"));
  snprintf(index, sizeof index, "%s", support_path("f.insitu"));
  for (int latest = 0; latest < 2; latest++) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
    if (latest) H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    if (latest) H5Pset_userblock(create, 512);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, create, access);
    h5_attribute(file, "title", "filters");
    hid_t group = H5Gcreate2(file, "in", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      struct h5_case c = cases[i];
      c.latest = latest;
      h5_dataset(i % 2 ? group : file, &c, x[c.noise]);
    }
    H5Gclose(group);
    H5Fclose(file);
    H5Pclose(access);
    H5Pclose(create);
    assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 0);
    assert_string_equal(run_err, "");
    index_reader_open(&r, index);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      char name[40];
      snprintf(name, sizeof name, "%s%s", i % 2 ? "in/" : "", cases[i].name);
      index_expect(&r, name, x[cases[i].noise], sizeof x[0]);
    }
    assert_true(r.n_inline > 0); /* noise, which zstd left as it was */
    assert_has(index_object(&r, "in/gz/zarr.json"), "{\"units\":\"K\"}");
    index_reader_free(&r);
  }
}
static void h5_write(hid_t file, const char *name, hid_t stored, hid_t memory, int ndim,
    const hsize_t *shape, hid_t create, const void *x) {
  hid_t space = ndim < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(ndim, shape, NULL);
  hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, create, H5P_DEFAULT);
  assert_true(set >= 0);
  if (x) assert_true(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
  H5Dclose(set);
  H5Sclose(space);
}
static void test_hdf5_layouts(void **state) {
  static float x[300 * 1000], back[40 * 50];
  const hsize_t large[] = {300, 1000}, small[] = {40, 50}, chunk[] = {15, 50}, few[] = {3, 4};
  const double one = 3.25;
  const char words[3][4] = {"ab", "cdef", ""};
  const hsize_t three = 3, start[] = {20, 10}, count[] = {5, 6};
  struct index_reader r;
  char path[300], index[300];
  (void)state;
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)i * 0.25f;
  snprintf(path, sizeof path, "%s", support_path("l.h5"));
  snprintf(index, sizeof index, "%s", support_path("l.insitu"));
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t compact = H5Pcreate(H5P_DATASET_CREATE), holes = H5Pcreate(H5P_DATASET_CREATE);
  hid_t text = H5Tcopy(H5T_C_S1), string = H5Tcopy(H5T_C_S1), szip = H5Pcreate(H5P_DATASET_CREATE),
        lzf = H5Pcreate(H5P_DATASET_CREATE);
  float fill = -1.5f, two = 2;
  H5Tset_size(text, 4);
  H5Tset_size(string, H5T_VARIABLE);
  H5Pset_layout(compact, H5D_COMPACT);
  H5Pset_chunk(holes, 2, chunk);
  H5Pset_deflate(holes, 1);
  H5Pset_fill_value(holes, H5T_NATIVE_FLOAT, &fill);
  H5Pset_chunk(szip, 2, chunk);
  H5Pset_nbit(szip);
  H5Pset_chunk(lzf, 2, chunk);
  H5Pset_filter(
      lzf, 32000, H5Z_FLAG_OPTIONAL, 0, NULL); /* h5py's: the library has no such filter */
  h5_write(file, "rows", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, 2, large, H5P_DEFAULT, x);
  h5_write(file, "compact", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, few, compact, x);
  h5_write(file, "unwritten", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, small, H5P_DEFAULT, NULL);
  h5_write(file, "one", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, -1, NULL, H5P_DEFAULT, &one);
  h5_write(file, "words", text, text, 1, &three, H5P_DEFAULT, words);
  h5_write(file, "holes", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, small, holes, NULL);
  h5_write(file, "bits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, small, szip, x);
  h5_write(file, "quick", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, small, lzf, NULL);
  const char *any[] = {"a", "b", "c"};
  h5_write(file, "strings", string, string, 1, &three, H5P_DEFAULT, any);
  hid_t set = H5Dopen2(file, "holes", H5P_DEFAULT), space = H5Dget_space(set),
        memory = H5Screate_simple(2, count, NULL);
  float block[30];
  for (int i = 0; i < 30; i++) block[i] = two;
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
  assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, block) >= 0);
  assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
  H5Dclose(set);
  H5Sclose(space);
  H5Sclose(memory);
  H5Pclose(compact);
  H5Pclose(holes);
  H5Pclose(szip);
  H5Pclose(lzf);
  H5Tclose(text);
  H5Tclose(string);
  H5Lcreate_hard(file, "/", file, "ring", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 0);
  assert_has(run_err, "array 'bits' is left out: its filter 5 (nbit) is not decoded here");
  assert_has(run_err, "(h5repack -f SHUF -f GZIP=4 OLD NEW)");
  assert_has(run_err, "array 'quick' is left out: its filter 32000 (lzf) is not decoded here");
  assert_has(run_err, "NEW; HDF5_PLUGIN_PATH needs the filter's plugin)");
  assert_has(run_err, "array 'strings' is left out: strings of variable length");
  index_reader_open(&r, index);
  index_expect(&r, "rows", x, sizeof x);
  index_expect(&r, "compact", x, sizeof(float) * 12);
  index_expect(&r, "holes", back, sizeof back);
  index_expect(&r, "one", &one, sizeof one);
  index_expect(&r, "words", words, sizeof words);
  memset(back, 0, sizeof back);
  index_expect(&r, "unwritten", back, sizeof back);
  assert_has(index_object(&r, "holes/zarr.json"), "\"fill_value\":-1.5");
  assert_has(index_object(&r, "rows/zarr.json"), "\"chunk_shape\":[150,1000]");
  assert_int_equal(r.n_absent, 1 + 2);
  index_reader_free(&r);
  /* a file that ends early */
  size_t n;
  unsigned char *bytes = index_slurp(path, &n);
  support_write(path, bytes, n / 2);
  assert_int_equal(run_tool("index '%s' -o '%s'", path, index), 1);
  free(bytes);
}
/* Chunks, groups and small arrays of a file in a store; a request that fails in the midst of it is
 * told, and no array is missing for it. */
static void test_hdf5_far(void **state) {
  enum { ROWS = 300, COLUMNS = 64 };
  static int32_t x[ROWS * COLUMNS];
  const hsize_t shape[] = {ROWS, COLUMNS}, chunk[] = {1, COLUMNS};
  char path[300], far[300], prefix[80];
  const char *const prefixes[] = {prefix};
  size_t n;
  (void)state;
  for (size_t i = 0; i < ROWS * COLUMNS; i++) x[i] = (int32_t)support_random();
  snprintf(path, sizeof path, "%s", support_path("a.h5"));
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
        space = H5Screate_simple(2, shape, NULL), create = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(create, 2, chunk);
  H5Pset_deflate(create, 1);
  for (int i = 0; i < 3; i++) {
    const char *const names[] = {"a", "b", "c"};
    hid_t group = H5Gcreate2(file, names[i], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t set = H5Dcreate2(group, "x", H5T_STD_I32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    h5_attribute(set, "units", "K");
    H5Dclose(set);
    H5Gclose(group);
  }
  H5Pclose(create);
  H5Sclose(space);
  H5Fclose(file);
  unsigned char *bytes = index_slurp(path, &n);
  struct server *s = server_start(&(struct server_options){.threads = 1});
  snprintf(prefix, sizeof prefix, "%s", server_url(s, "d"));
  far_and_near(s, "a.h5", bytes, n, "", far);
  const insitu_loader_desc where = {
      .url = far, .virtual_prefixes = prefixes, .n_virtual_prefixes = 1};
  index_expect_at(&where, "b/x", x, sizeof x);
  for (uint64_t skip = 1; skip < 3; skip++) {
    server_rule(
        s, (struct server_rule){.fault = SERVER_STATUS, .status = 500, .skip = skip, .count = 1});
    assert_int_equal(
        run_tool("index %s/a.h5 -o '%s' -O max_retries=0 --arrays a/x,b/x,c/x", prefix, far), 1);
    assert_has(run_err, "object 'd/a.h5': HTTP 500");
    assert_null(strstr(run_err, "is left out"));
    server_reset(s);
  }
  server_put(s, "d/a.h5", bytes, n / 2);
  assert_int_equal(run_tool("index %s/a.h5 -o '%s'", prefix, far), 1);
  assert_has(run_err, "the file is damaged or cut off");
  free(bytes);
  server_stop(&s);
}
#else
static void test_hdf5_far(void **state) {
  (void)state;
  skip(); /* without the HDF5 library */
}
static void test_hdf5_filters(void **state) {
  char path[300];
  (void)state;
  snprintf(path, sizeof path, "%s", support_path("f.h5"));
  support_write(path, "\x89HDF\r\n\x1a\n", 8);
  assert_int_equal(run_tool("index '%s' -o '%s.insitu'", path, path), 1);
  assert_has(run_err, "apt-get install libhdf5-dev");
}
static void test_hdf5_layouts(void **state) {
  (void)state;
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_netcdf3, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_join, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_join_refused, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_zarr, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_refs, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_refused, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_far, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_far_refused, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_far_archives, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_hdf5_filters, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_hdf5_layouts, support_setup, support_teardown),
      cmocka_unit_test_setup_teardown(test_hdf5_far, support_setup, support_teardown)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
