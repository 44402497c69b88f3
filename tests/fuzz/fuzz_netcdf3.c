/* The header of a NetCDF classic file: whatever it holds, it is read or refused with a cause. What
 * is read points into the bytes, and every variable lies in the file. Where less of the file is at
 * hand, more bytes are asked for. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"
#include "tools/insitu/netcdf3.h"

static void inside(const void *p, uint64_t n, const uint8_t *data, size_t size) {
  const uint8_t *at = p;
  FUZZ_HOLDS(at >= data && n <= size && (uint64_t)(at - data) <= size - n);
}
static void attributes(const struct netcdf3_attribute *list, const uint8_t *data, size_t size) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(list); i++) {
    inside(list[i].name.text, list[i].name.n, data, size);
    inside(list[i].bytes, list[i].n * netcdf3_type_bytes(list[i].type), data, size);
  }
}
static void variable(const struct netcdf3 *f, const struct netcdf3_variable *v, uint64_t file) {
  uint64_t end = v->begin + v->part, bytes = netcdf3_type_bytes(v->type);
  for (unsigned k = 0; k < v->ndim; k++) {
    FUZZ_HOLDS(v->dim[k] < INSITU__ARRAY_LEN(f->dimension));
    if (!f->dimension[v->dim[k]].record) bytes *= f->dimension[v->dim[k]].length;
  }
  FUZZ_HOLDS(bytes == v->part);
  if (v->record && !f->records) return;
  if (v->record) end += (f->records - 1) * f->record_bytes;
  FUZZ_HOLDS(end <= file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 2) return 0;
  uint64_t file = n - 2 + ((uint64_t)data[0] << (data[1] & 31)); /* the header is not all of it */
  uint8_t *bytes = fuzz_copy(data + 2, n - 2);
  struct netcdf3 f;
  insitu_error err = {0};
  bool truncated = false;
  insitu_status status = netcdf3_parse(&f, bytes, n - 2, file, &truncated, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS(!truncated || (status == INSITU_OK && n - 2 < file));
  for (uint64_t i = 0; !status && !truncated && i < INSITU__ARRAY_LEN(f.variable); i++) {
    inside(f.variable[i].name.text, f.variable[i].name.n, bytes, n - 2);
    attributes(f.variable[i].attribute, bytes, n - 2);
    variable(&f, &f.variable[i], file);
  }
  if (!status && !truncated) attributes(f.attribute, bytes, n - 2);
  netcdf3_free(&f);
  free(bytes);
  return 0;
}
