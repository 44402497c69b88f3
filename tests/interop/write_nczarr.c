/* Zarr v2 by the netCDF library (NCZarr), uncompressed and little-endian: its filters are plugins
 * that Debian does not ship, and without them it aborts; of big-endian variables version 4.9.0
 * changes the metadata alone. Arguments and what it writes: see cases.py; the index is the same.
 *   cc write_nczarr.c -lnetcdf */
#define _GNU_SOURCE
#include <ftw.h>
#include <netcdf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_ONE_FILE = 20, MOST_DIMS = 4, MOST_ELEMENTS = 4096 };

static const struct {
  nc_type type;
  const char *name;
  size_t bytes;
} types[] = {{NC_BYTE, "i1", 1}, {NC_UBYTE, "u1", 1}, {NC_SHORT, "i2", 2}, {NC_USHORT, "u2", 2},
    {NC_INT, "i4", 4}, {NC_UINT, "u4", 4}, {NC_INT64, "i8", 8}, {NC_UINT64, "u8", 8},
    {NC_FLOAT, "f4", 4}, {NC_DOUBLE, "f8", 8}};
enum { TYPES = sizeof types / sizeof *types };

static uint64_t state;
static FILE *index_file, *expected;
static const char *folder;
static int written, left_out;

static uint64_t rnd(uint64_t below) { /* splitmix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) % below;
}
static int must(int status, const char *what) {
  if (status) fprintf(stderr, "nczarr: %s: %s\n", what, nc_strerror(status));
  return status;
}
static void element(unsigned char *to, int type, int64_t v) {
  float f = (float)v / 8;
  double d = (double)v / 8;
  if (types[type].type == NC_FLOAT) memcpy(to, &f, 4);
  else if (types[type].type == NC_DOUBLE) memcpy(to, &d, 8);
  else memcpy(to, &v, types[type].bytes); /* both supported machines are little-endian */
}

struct variable {
  char name[64], words[64], shape_text[64];
  int type, ndim, id, dims[MOST_DIMS];
  size_t shape[MOST_DIMS], chunk[MOST_DIMS], count;
  int filled;
  int64_t fill;
};
static struct variable draw(uint64_t seed, int number) {
  struct variable v = {.ndim = 0};
  state = seed * 1000003 + (uint64_t)number;
  v.type = number % TYPES;
  v.ndim = (int)rnd(MOST_DIMS + 1);
  v.count = 1;
  if (!v.ndim) strcpy(v.shape_text, "1"); /* a scalar is stored as an axis of one */
  size_t side = v.ndim < 2 ? 2000 : v.ndim == 2 ? 50 : v.ndim == 3 ? 13 : 7, used = 0;
  for (int i = 0; i < v.ndim; i++) {
    v.shape[i] = 1 + rnd(side);
    v.chunk[i] = 1 + rnd(v.shape[i]);
    if (v.shape[i] / v.chunk[i] > 3) v.chunk[i] = (v.shape[i] + 3) / 4;
    v.count *= v.shape[i];
    used += (size_t)snprintf(
        v.shape_text + used, sizeof v.shape_text - used, "%s%zu", i ? "," : "", v.shape[i]);
  }
  v.filled = rnd(4) != 0;
  v.fill = (int64_t)rnd(100);
  snprintf(v.name, sizeof v.name, "nczarr-%04d", number);
  return v;
}
static int define(int group, struct variable *v, int plain) {
  unsigned char fill[8];
  char name[80];
  int status = 0;
  for (int i = 0; !status && i < v->ndim; i++) {
    snprintf(name, sizeof name, "%s_%d", v->name, i);
    status = must(nc_def_dim(group, name, v->shape[i], &v->dims[i]), name);
  }
  if (!status)
    status =
        must(nc_def_var(group, v->name, types[v->type].type, v->ndim, v->dims, &v->id), v->name);
  if (!status && v->ndim)
    status = must(nc_def_var_chunking(group, v->id, NC_CHUNKED, v->chunk), "chunking");
  element(fill, v->type, v->fill);
  if (!status && v->filled) status = must(nc_def_var_fill(group, v->id, 0, fill), "fill");
  snprintf(v->words, sizeof v->words, "%s-%s", types[v->type].name, plain ? "zarr" : "nczarr");
  return status;
}
/* All of it, or its first half along the first axis: the rest is the fill value then. */
static int put(int group, struct variable *v, const char *store, const char *path) {
  static unsigned char data[8 * MOST_ELEMENTS];
  size_t bytes = types[v->type].bytes, start[MOST_DIMS] = {0}, count[MOST_DIMS], half = v->count;
  int64_t value = 0;
  if (v->count > MOST_ELEMENTS) return 1;
  memcpy(count, v->shape, sizeof count);
  if (v->filled && v->ndim && v->shape[0] > 1 && rnd(3) == 0) {
    count[0] = v->shape[0] / 2;
    half = v->count / v->shape[0] * count[0];
  }
  for (size_t i = 0; i < v->count; i++) {
    value += (int64_t)rnd(9) - 4;
    element(data + i * bytes, v->type, i < half ? value : v->fill);
  }
  int status =
      must(v->ndim ? nc_put_vara(group, v->id, start, count, data) : nc_put_var(group, v->id, data),
          "put");
  if (status) return status;
  fprintf(index_file, "%s-%s\t%s\t%s%s\t%s\t%s\t%ld\t%zu\n", v->name, v->words, store, path,
      v->name, types[v->type].name, v->shape_text, ftell(expected), v->count * bytes);
  fwrite(data, bytes, v->count, expected);
  written++;
  return 0;
}
/* One store with the cases [first, last). */
static int write_store(uint64_t seed, int first, int last, const char *only) {
  struct variable v[IN_ONE_FILE];
  char url[4096], store[32];
  int nc, group, plain = first / IN_ONE_FILE % 2, n = 0;
  snprintf(store, sizeof store, "%03d.zarr", first / IN_ONE_FILE);
  snprintf(url, sizeof url, "file://%s/%s#mode=%s,file", folder, store, plain ? "zarr" : "nczarr");
  if (must(nc_create(url, NC_NETCDF4 | NC_CLOBBER, &nc), url)) return 1;
  group = nc;
  if (first / IN_ONE_FILE % 4 >= 2 && must(nc_def_grp(nc, "group", &group), "group")) return 1;
  for (int i = first; i < last; i++) {
    struct variable *one = &v[n];
    *one = draw(seed, i);
    if (only[0] && strncmp(only, one->name, strlen(one->name)) &&
        strncmp(one->name, only, strlen(only)))
      continue;
    if (define(group, one, plain)) left_out++;
    else n++;
  }
  int status = must(nc_enddef(nc), "enddef");
  for (int i = 0; i < n && !status; i++)
    left_out += put(group, &v[i], store, group == nc ? "" : "group/") != 0;
  return must(nc_close(nc), "close") || status;
}
static int drop(const char *path, const struct stat *st, int kind, struct FTW *walk) {
  (void)st, (void)kind, (void)walk;
  return remove(path);
}
int main(int argc, char **argv) {
  char path[4096], real[4096];
  if (argc != 4 && argc != 5)
    return fprintf(stderr, "usage: write_nczarr FOLDER SEED COUNT [ONLY]\n"), 2;
  nftw(argv[1], drop, 16, FTW_DEPTH | FTW_PHYS);
  if (mkdir(argv[1], 0777) || !realpath(argv[1], real)) return perror(argv[1]), 1;
  folder = real;
  snprintf(path, sizeof path, "%.4000s/index.txt", folder);
  index_file = fopen(path, "w");
  snprintf(path, sizeof path, "%.4000s/expected.bin", folder);
  expected = fopen(path, "wb");
  if (!index_file || !expected) return perror(path), 1;
  int count = atoi(argv[3]);
  for (int i = 0; i < count; i += IN_ONE_FILE)
    write_store(strtoull(argv[2], NULL, 10), i, i + IN_ONE_FILE < count ? i + IN_ONE_FILE : count,
        argc == 5 ? argv[4] : "");
  if (fclose(index_file) || fclose(expected)) return perror(folder), 1;
  printf("nczarr: %d arrays written, %d left out\n", written, left_out);
  return 0;
}
