/* Reads arrays of archives that tests/interop/write_*.py had made, whole and in batches along
 * their first axis, in order and shuffled, and compares them with what other libraries read.
 * Usage: files FOLDER
 * FOLDER/list has an archive, an array and the file with its bytes in each line, and perhaps an
 * option and its value, with a tab between them. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "readback.h"

static insitu_option option; /* of the archive; key NULL: none */
/* The folder: what an archive refers to lies there, and not always below the archive. */
static char prefix[PATH_MAX];
static const char *const prefixes[] = {prefix};

static unsigned char *slurp(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  unsigned char *bytes = NULL;
  if (!f || fseek(f, 0, SEEK_END)) return NULL;
  *n = (size_t)ftell(f);
  rewind(f);
  bytes = malloc(*n + 1);
  if (bytes && fread(bytes, 1, *n, f) != *n) *n = 0;
  fclose(f);
  return bytes;
}
/* One epoch, shuffled: every row once, with the bytes that it has in the whole array. */
static insitu_status shuffled(const char *url, const char *path, const insitu_shape *shape,
    const unsigned char *want, insitu_error *err) {
  insitu_variable v = {.label = "it", .path = path};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 1,
      .on_absent_chunk = INSITU_FILL,
      .options = &option,
      .n_options = option.key != NULL,
      .virtual_prefixes = prefixes,
      .n_virtual_prefixes = 1,
      .log_level = INSITU_LOG_OFF};
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b;
  uint64_t length = (uint64_t)shape->shape[0], row = shape->bytes / length, sum = 0, rows = 0;
  bool equal = true;
  insitu_status status = insitu_loader_open(&d, &ld, err);
  if (!status) status = insitu_iter_open(ld, &id, &it, err);
  while (!status && (status = insitu_iter_next(it, 60000, &b, err)) == INSITU_OK) {
    const unsigned char *p = b->arrays[0].data;
    for (uint64_t r = 0; r < b->rows; r++, rows++) {
      uint64_t at = (uint64_t)b->sample_indices[r];
      sum += at;
      equal = equal && at < length && !memcmp(p + r * row, want + at * row, row);
    }
    insitu_batch_release(&b);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  if (status < 0) return status;
  if (equal && rows == length && sum == length * (length - 1) / 2) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CHECK, "a shuffled epoch differs");
}
static insitu_status compare(
    const char *url, const char *path, const unsigned char *want, size_t n, insitu_error *err) {
  insitu_loader_desc where = {.url = url,
      .options = &option,
      .n_options = option.key != NULL,
      .virtual_prefixes = prefixes,
      .n_virtual_prefixes = 1};
  insitu_shape shape;
  unsigned char *bytes;
  insitu_status status =
      readback_read(&where, &(insitu_variable){.path = path}, 1 << 30, &shape, &bytes, err);
  if (status) return status;
  if (shape.bytes != n)
    status = insitu__error_set(err, INSITU_E_CHECK, "%" PRIu64 " bytes, not %zu", shape.bytes, n);
  for (size_t i = 0; !status && i < n; i++)
    if (bytes[i] != want[i]) status = insitu__error_set(err, INSITU_E_CHECK, "byte %zu differs", i);
  free(bytes);
  bool rows = shape.ndim > 0 && shape.shape[0] > 1;
  if (!status && rows) status = readback_batches(&where, path, &shape, want, 0, err);
  if (!status && rows) status = shuffled(url, path, &shape, want, err);
  return status;
}

int main(int argc, char **argv) {
  char list[1000], line[1000];
  uint64_t passed = 0, failed = 0;
  if (argc != 2 || !realpath(argv[1], prefix)) return 2;
  snprintf(list, sizeof list, "%.900s/list", argv[1]);
  FILE *f = fopen(list, "r");
  if (!f) return 2;
  while (fgets(line, sizeof line, f)) {
    char *save, *index = strtok_r(line, "\t\n", &save), *array = strtok_r(NULL, "\t\n", &save),
                *file = strtok_r(NULL, "\t\n", &save), url[2000], path[2000];
    insitu_error err = {0};
    size_t n = 0;
    if (!index || !array || !file) continue;
    option.key = strtok_r(NULL, "\t\n", &save);
    option.value = option.key ? strtok_r(NULL, "\t\n", &save) : NULL;
    if (!option.value) option.key = NULL;
    snprintf(url, sizeof url, "%.900s/%.900s", argv[1], index);
    snprintf(path, sizeof path, "%.900s/%.900s", argv[1], file);
    unsigned char *want = slurp(path, &n);
    if (want && compare(url, array, want, n, &err) == INSITU_OK) passed++;
    else {
      failed++;
      printf("failed: %s %s: %s\n", index, array, err.message);
    }
    free(want);
  }
  fclose(f);
  printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
  return failed != 0;
}
