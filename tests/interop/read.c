/* Reads what other implementations wrote (tests/interop/) and compares every byte: each array by
 * insitu_read, and one of eight in batches along one of its axes, in the ways to run in turns. Run
 * by tests/interop/run:
 *   interop FOLDER...      index.txt and expected.bin of one writer each, see
 *                          tests/interop/cases.py */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "readback.h"

enum { ONE_IN_BATCHES = 8 };

static uint64_t passed, failed;

struct entry { /* a line of an index */
  char *name, *store, *path, *dtype, *shape;
  uint64_t offset, bytes;
};

static bool parse(char *line, struct entry *e) {
  char *field[7], *rest = line;
  int n = 0;
  line[strcspn(line, "\n")] = 0;
  while (rest && n < 7) field[n++] = strsep(&rest, "\t");
  if (n < 7) return false;
  *e = (struct entry){field[0], field[1], field[2], field[3], field[4],
      strtoull(field[5], NULL, 10), strtoull(field[6], NULL, 10)};
  return true;
}
static int axes_of(const struct entry *e) {
  int n = e->shape[0] != 0;
  for (const char *s = e->shape; *s; s++) n += *s == ',';
  return n;
}
/* dtype '?': of text and raw bytes, which have an axis more, the last. */
static bool same_geometry(const insitu_shape *is, const struct entry *e) {
  static const char kinds[] = "iuf??cb";
  char text[400] = "", dtype[16] = "?";
  size_t used = 0;
  for (int i = 0; i < axes_of(e); i++)
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%" PRId64, i ? "," : "", is->shape[i]);
  if (is->dtype >> 8 >= 0 && is->dtype >> 8 < 7)
    snprintf(dtype, sizeof dtype, "%c%d", kinds[is->dtype >> 8], (is->dtype & 0xff) / 8);
  if (is->ndim != axes_of(e) && !(e->dtype[0] == '?' && is->ndim == axes_of(e) + 1)) return false;
  return strcmp(text, e->shape) == 0 && (e->dtype[0] == '?' || strcmp(dtype, e->dtype) == 0);
}
/* "" when all is as expected, else what is not. err keeps a status of the library's. */
static const char *check(const char *folder, const struct entry *e, const unsigned char *want,
    uint64_t number, insitu_error *err) {
  static const struct { int32_t io, inline_io; } ways[] = {{0, 0}, {0, 1}, {INSITU_IO_EPOLL, 0}};
  static char what[200];
  char url[INSITU__MAX_KEY];
  unsigned char *got = NULL;
  insitu_shape shape;
  insitu_variable v = {.label = "it", .path = e->path};
  snprintf(url, sizeof url, "%s/%s", folder, e->store);
  insitu_loader_desc where = {
      .url = url, .io = ways[number % 3].io, .inline_io = ways[number % 3].inline_io};
  if (readback_read(&where, &v, 64u << 20, &shape, &got, err) < 0) return err->message;
  what[0] = 0;
  if (!same_geometry(&shape, e))
    snprintf(what, sizeof what, "dtype or shape is not %s (%s): %x, %d axes", e->dtype, e->shape,
        (unsigned)shape.dtype, shape.ndim);
  else if (shape.bytes != e->bytes)
    snprintf(what, sizeof what, "%" PRIu64 " bytes, not %" PRIu64, shape.bytes, e->bytes);
  else if (memcmp(got, want, (size_t)e->bytes)) {
    uint64_t at = 0;
    while (got[at] == want[at]) at++;
    snprintf(what, sizeof what, "byte %" PRIu64 " of %" PRIu64 " is %02x, not %02x", at, e->bytes,
        got[at], want[at]);
  } else if (number % ONE_IN_BATCHES == 0 && axes_of(e) && shape.bytes) {
    int32_t axis = (int32_t)(number / ONE_IN_BATCHES % (uint64_t)axes_of(e));
    if (readback_batches(&where, e->path, &shape, want, axis, err) < 0)
      snprintf(what, sizeof what, "%.190s", err->message);
  }
  free(got);
  return what;
}
static unsigned char *read_expected(const char *folder, uint64_t *n) {
  char path[INSITU__MAX_KEY];
  struct stat st;
  unsigned char *p = NULL;
  snprintf(path, sizeof path, "%s/expected.bin", folder);
  FILE *f = fopen(path, "re");
  if (f && fstat(fileno(f), &st) == 0 && (p = malloc((size_t)st.st_size + 1)))
    *n = fread(p, 1, (size_t)st.st_size, f);
  if (f) fclose(f);
  return p;
}
static bool read_folder(const char *folder) {
  char path[INSITU__MAX_KEY], *line = NULL;
  uint64_t n = 0, number = 0;
  size_t cap = 0;
  unsigned char *expected = read_expected(folder, &n);
  snprintf(path, sizeof path, "%s/index.txt", folder);
  FILE *f = fopen(path, "re");
  if (!f || !expected) {
    fprintf(stderr, "interop: %s: no index.txt or expected.bin\n", folder);
    return false;
  }
  for (; getline(&line, &cap, f) > 0; number++) {
    struct entry e;
    insitu_error err = {0};
    if (!parse(line, &e) || e.offset > n || e.bytes > n - e.offset) {
      fprintf(stderr, "interop: %s: line %" PRIu64 " is no entry\n", path, number + 1);
      return false;
    }
    /* aligned, and its end is seen by sanitizers */
    unsigned char *want = malloc((size_t)e.bytes + 1);
    memcpy(want, expected + e.offset, (size_t)e.bytes);
    const char *what = check(folder, &e, want, number, &err);
    free(want);
    if (!what[0]) passed++;
    else failed++, printf("failed: %s (%s/%s in %s): %s\n", e.name, e.store, e.path, folder, what);
  }
  free(line);
  free(expected);
  fclose(f);
  return true;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: interop FOLDER...\n"), 2;
  for (int i = 1; i < argc; i++)
    if (!read_folder(argv[i])) failed++;
  printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed);
  return failed || !passed;
}
