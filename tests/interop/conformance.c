/* Does insitubatch.h read what other implementations wrote? Run by tests/interop/conformance.sh:
 *   conformance --list DIR         prints what there is to read under DIR, one item a line
 *   conformance LIST FOLDER TOOL   reads the items, compares with FOLDER/N.npy (of line N; N.txt
 *                                  says why there is none), made by conformance.py where Python
 *                                  has the libraries, else with what C alone knows; TOOL is the
 *                                  command insitu, for arrays of strings
 * A child process does the reading, so that a crash or a hang costs one item. A line: kind, then
 * fields between tabs:
 *   zarr ROOT PATH SHAPE CHUNK DTYPE REGION   an array; REGION is "" for all of it, start:stop,...
 *   or "-" for none
 *   root ROOT                                 a hierarchy whose arrays cannot be listed
 *   numcodecs ENCODED CONFIG ARRAY            files of one numcodecs fixture
 *   blosc FILE
 *   odd NAME                                  a name or a directory that cannot be looked at */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#pragma GCC diagnostic ignored "-Wunused-function" /* of the tool's helpers, only some are needed */
#include "../../tools/insitu/common.h"
#include "readback.h"
#include <blosc.h>
#include <fts.h>
#include <math.h>
#include <sys/wait.h>

enum {
  MOST_ITEMS = 200000,
  /* of one array: of a larger one, and of one of more than MOST_CHUNKS chunks, only a corner is
   * read */
  MOST_BYTES = 64 << 20,
  MOST_CHUNKS = 20000,
  MOST_CHUNK = 256 << 20, /* of one chunk: larger ones are not read */
  MOST_BATCHED = 4 << 20, /* of an array that is read a second time in batches */
  ITEM_SECONDS = 120
};

/* ---- what there is ---- */

static uint64_t listed;
static bool plain(const char *s) {
  for (; *s; s++)
    if ((unsigned char)*s < ' ') return false;
  return true;
}
static void list(const char *kind, const char *a, const char *b, const char *c) {
  if (listed++ >= MOST_ITEMS) return;
  if (!plain(a) || (b && !plain(b))) {
    printf("odd\t");
    tool_put(stdout, a, strlen(a));
    printf(": a name with control characters\n");
    return;
  }
  printf("%s\t%s", kind, a);
  if (b) printf("\t%s", b);
  if (c) printf("\t%s", c);
  printf("\n");
}
static size_t put_extents(char *to, size_t cap, const uint64_t *extent, unsigned n) {
  size_t used = 0;
  to[0] = 0;
  for (unsigned i = 0; i < n; i++)
    used += (size_t)snprintf(to + used, cap - used, "%s%" PRIu64, i ? "," : "", extent[i]);
  return used;
}
/* The array's geometry, and the region to read: of a large one the last two elements along each
 * axis. */
static void list_array(struct tool_archive *archive, const char *root, const char *path) {
  static const char kinds[] = "iuf??cb";
  struct insitu__zarr_array a = {0};
  insitu_error err = {0};
  char more[1500] = "\t\t\t", dtype[16] = "?";
  if (tool_archive_array(archive, path, &a, &err) == INSITU_OK) {
    /* products that cannot overflow: >>zarr bounds them */
    uint64_t count = 1, chunks = 1, chunk = a.itemsize;
    unsigned kind = (unsigned)a.dtype >> 8;
    char *at = more;
    for (unsigned i = 0; i < a.ndim; i++) count *= insitu__base_max(a.shape[i], 1);
    if (a.axes == a.ndim && a.kind != INSITU__ZARR_STRING && kind < 7 && kinds[kind] != '?')
      snprintf(dtype, sizeof dtype, "%c%u", kinds[kind], ((unsigned)a.dtype & 0xff) / 8);
    at += put_extents(at, 400, a.shape, a.axes);
    *at++ = '\t';
    at += put_extents(at, 400, a.object.chunk, a.axes);
    at += sprintf(at, "\t%s\t", dtype);
    for (unsigned i = 0; i < a.ndim; i++)
      chunk *= a.chunk[i],
          chunks *= insitu__base_ceil_div(insitu__base_max(a.shape[i], 1), a.chunk[i]);
    bool large = count * a.itemsize > MOST_BYTES || chunks > MOST_CHUNKS;
    if (chunk > MOST_CHUNK) at += sprintf(at, "-");
    else
      for (unsigned i = 0; large && i < a.axes; i++)
        at += sprintf(at, "%s%" PRIu64 ":%" PRIu64, i ? "," : "",
            a.shape[i] - insitu__base_min(a.shape[i], 2), a.shape[i]);
    insitu__zarr_array_free(&a);
  }
  /* where chunks lie in other files no other reader is asked */
  const struct insitu__store *s = &archive->store;
  list(s->base && s->ops != &insitu__zip_ops ? "virtual" : "zarr", root, path, more);
}
/* False: it could not be listed, and the arrays below it are worth a look by themselves. */
static bool list_archive(const char *root) {
  struct tool_archive a;
  insitu_error err = {0};
  if (tool_archive_open_with(root, 0, &a, &err) < 0) {
    list("root", root, NULL, NULL);
    return false;
  }
  bool all = a.list_error.status >= 0;
  for (uint64_t i = 0; all && i < a.n_paths && listed < MOST_ITEMS; i++)
    list_array(&a, root, a.paths[i]);
  if (!all) list("root", root, NULL, NULL);
  tool_archive_close(&a);
  return all;
}
static bool is_file(const char *folder, const char *name) {
  char path[INSITU__MAX_KEY];
  struct stat st;
  return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
         stat(path, &st) == 0 && S_ISREG(st.st_mode);
}
static bool is_folder(const char *folder, const char *name) {
  char path[INSITU__MAX_KEY];
  struct stat st;
  return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
         stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
static bool is_archive(const char *folder) {
  bool icechunk =
      is_folder(folder, "snapshots") && (is_file(folder, "repo") || is_folder(folder, "refs"));
  return icechunk || is_file(folder, "zarr.json") || is_file(folder, ".zgroup") ||
         is_file(folder, ".zarray") || is_file(folder, ".zmetadata");
}
/* Zarr metadata is named somewhere in the file: other zip files, and other JSON, are nobody's
 * business here. */
static bool names_metadata(const char *path, uint64_t n) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  void *p = fd < 0 || !n ? MAP_FAILED : mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
  if (fd >= 0) close(fd);
  if (p == MAP_FAILED) return false;
  bool found =
      memmem(p, n, "zarr.json", 9) || memmem(p, n, ".zarray", 7) || memmem(p, n, ".zgroup", 7);
  munmap(p, n);
  return found;
}
static void list_file(const char *path, const char *name, uint64_t bytes) {
  const char *dot = strrchr(name, '.');
  char config[INSITU__MAX_KEY], array[INSITU__MAX_KEY];
  if (dot && strcmp(dot, ".cdata") == 0) list("blosc", path, NULL, NULL);
  if (dot && strcmp(dot, ".zip") == 0 && names_metadata(path, bytes)) list_archive(path);
  bool refs = dot && (!strcmp(dot, ".json") || !strcmp(dot, ".insitu")) && name[0] != '.';
  if (refs && strcmp(name, "zarr.json") && insitu__refstore_is(path) && names_metadata(path, bytes))
    list_archive(path);
  /* FOLDER/codec.MM/encoded.NN.dat */
  if (!dot || strcmp(dot, ".dat") || strncmp(name, "encoded.", 8)) return;
  int folder = (int)(name - 1 - path), above = folder;
  while (above > 0 && path[above - 1] != '/') above--;
  if (strncmp(path + above, "codec.", 6) || strlen(path) + 32 > sizeof config) return;
  snprintf(config, sizeof config, "%.*s/config.json", folder, path);
  snprintf(array, sizeof array, "%.*sarray.%.*s.npy", above, path, (int)(dot - name - 8), name + 8);
  list("numcodecs", path, config, array);
}
static int list_compare(const FTSENT **a, const FTSENT **b) {
  return strcmp((*a)->fts_name, (*b)->fts_name);
}
static int list_all(char *dir) {
  char *roots[] = {dir, NULL};
  FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, list_compare);
  FTSENT *e;
  struct stat st;
  if (!walk) return tool_fail("%s: %s", dir, strerror(errno));
  while ((e = fts_read(walk)) && listed < MOST_ITEMS) {
    if (e->fts_info == FTS_D && is_archive(e->fts_accpath) && list_archive(e->fts_path))
      fts_set(walk, e, FTS_SKIP);
    const char *name = e->fts_path + e->fts_pathlen - e->fts_namelen;
    if (e->fts_info == FTS_F) list_file(e->fts_path, name, (uint64_t)e->fts_statp->st_size);
    /* a link may be a file or an archive, but leads no further */
    if (e->fts_info == FTS_SL && stat(e->fts_path, &st) == 0) {
      if (S_ISREG(st.st_mode)) list_file(e->fts_path, name, (uint64_t)st.st_size);
      if (S_ISDIR(st.st_mode) && is_archive(e->fts_path)) list_archive(e->fts_path);
    }
    if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR) list("odd", e->fts_path, NULL, NULL);
  }
  fts_close(walk);
  if (listed >= MOST_ITEMS)
    list("odd", "more items than MOST_ITEMS: the rest is left out", NULL, NULL);
  return fflush(stdout) ? TOOL_FAILED : TOOL_OK;
}

/* ---- .npy ---- */

struct npy { /* data: as the file has it */
  unsigned char *file;
  const unsigned char *data;
  uint64_t bytes;
  char kind; /* of numpy's dtype; 'V' for structures */
  char descr[32];
  uint64_t item; /* bytes of an element */
  bool swapped, fortran;
  int32_t ndim;
  uint64_t shape[INSITU__MAX_DIMS], count;
};
static unsigned char *slurp(const char *path, uint64_t *n) { /* one more byte, zero */
  FILE *f = fopen(path, "re");
  struct stat st;
  unsigned char *p = NULL;
  if (f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size < MOST_CHUNK)
    p = malloc((size_t)st.st_size + 1);
  if (p) {
    *n = fread(p, 1, (size_t)st.st_size, f);
    p[*n] = 0;
  }
  if (f) fclose(f);
  return p;
}
/* NumPy's format, any version: numpy.lib.format. NULL, or what is wrong. */
static const char *npy_parse(struct npy *a, uint64_t n) {
  const unsigned char *p = a->file;
  if (n < 12 || memcmp(p, "\x93NUMPY", 6)) return "not a .npy file";
  uint64_t start = p[6] == 1 ? 10 : 12,
           length = p[6] == 1 ? (uint64_t)p[8] | (uint64_t)p[9] << 8 : insitu__base_load32(p + 8);
  if (length > n - start || length > 65535) return "a .npy file with a damaged header";
  char *header = (char *)p + start, *s;
  a->data = p + start + length;
  a->bytes = n - start - length;
  header[length - 1] = 0; /* the line's end */
  a->fortran = strstr(header, "'fortran_order': True") != NULL;
  if (!(s = strstr(header, "'shape': ("))) return "a .npy file without a shape";
  a->count = 1;
  for (s += 10; *s && *s != ')' && a->ndim < INSITU__MAX_DIMS; s += strspn(s, ", ")) {
    char *end;
    a->shape[a->ndim] = strtoull(s, &end, 10);
    if (end == s || !insitu__base_mul(a->count, a->shape[a->ndim++], &a->count))
      return "a .npy file with an odd shape";
    s = end;
  }
  if (a->count && a->count <= a->bytes) a->item = a->bytes / a->count;
  a->kind = 'V';
  if ((s = strstr(header, "'descr': '"))) {
    snprintf(a->descr, sizeof a->descr, "%.*s", (int)strcspn(s + 10, "'"), s + 10);
    a->kind = a->descr[0] ? a->descr[1] : 'V';
    a->swapped = a->descr[0] == '>';
  }
  if (a->kind != 'O' && a->bytes != a->count * a->item)
    return "a .npy file whose length does not fit its shape";
  return NULL;
}
static const char *npy_read(const char *path, struct npy *a) {
  uint64_t n = 0;
  memset(a, 0, sizeof *a);
  a->file = slurp(path, &n);
  return a->file ? npy_parse(a, n) : "no such file, or too large";
}
/* The scalars in native order. */
static void npy_native(struct npy *a) {
  uint64_t scalar = a->kind == 'U'                     ? 4
                    : a->kind == 'c'                   ? a->item / 2
                    : a->kind == 'S' || a->kind == 'V' ? 1
                                                       : a->item;
  unsigned char *p = a->file + (a->data - a->file);
  for (uint64_t i = 0; a->swapped && scalar > 1 && i + scalar <= a->bytes; i += scalar)
    for (uint64_t k = 0; k < scalar / 2; k++) {
      unsigned char c = p[i + k];
      p[i + k] = p[i + scalar - 1 - k];
      p[i + scalar - 1 - k] = c;
    }
  a->swapped = false;
}

/* ---- verdicts ---- */

enum verdict { PASSED, FAILED, REFUSED };
static char why[2048];
__attribute__((format(printf, 2, 3))) static enum verdict say(
    enum verdict v, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  return v;
}
static const char *folder, *tool; /* of references; the command */
static uint64_t number;           /* of the item's line, from 1 */

/* 1: N.npy is there, 0: nothing is, -1: N.txt says why not. */
static bool independent; /* the item was compared with what another implementation makes of it */
static int reference(struct npy *a, char text[300]) {
  char path[INSITU__MAX_KEY];
  uint64_t n;
  snprintf(path, sizeof path, "%s/%" PRIu64 ".npy", folder, number);
  memset(a, 0, sizeof *a);
  text[0] = 0;
  if (access(path, F_OK) == 0) {
    const char *bad = npy_read(path, a);
    if (!bad) return 1;
    snprintf(text, 300, "%s", bad);
    return -1;
  }
  snprintf(path, sizeof path, "%s/%" PRIu64 ".txt", folder, number);
  unsigned char *t = slurp(path, &n);
  if (!t) return 0;
  snprintf(text, 300, "%.299s", (char *)t);
  free(t);
  return -1;
}
static bool is_refusal(insitu_status s) {
  return s == INSITU_E_CODEC || s == INSITU_E_DTYPE || s == INSITU_E_GRID ||
         s == INSITU_E_UNSUPPORTED;
}
/* What an error of ours means, by what the reference says. */
static enum verdict error_verdict(const insitu_error *err, int have, const char *text) {
  const char *name = insitu_status_name(err->status);
  /* INSITU_E_ARG: a target lies where no prefix allows it, and nobody is asked for one here */
  if (is_refusal(err->status) || err->status == INSITU_E_ARG)
    return say(REFUSED, "%s: %s", name, err->message);
  if (have < 0)
    return say(
        REFUSED, "%s: %s (the reference does not read it either: %s)", name, err->message, text);
  return say(FAILED, "%s: %s", name, err->message);
}
static bool is_nan(const unsigned char *p, uint64_t size) { /* a float as wide as size */
  uint64_t bits = 0, exponent = size == 2   ? 0x7c00
                                : size == 4 ? 0x7f800000
                                            : UINT64_C(0x7ff0000000000000);
  memcpy(&bits, p, (size_t)size);
  return (bits & exponent) == exponent &&
         (bits & (exponent >> 1 | ((exponent & -exponent) - 1)) & ~exponent) != 0;
}
/* The first scalar that differs, NaNs being equal to each other in floats; UINT64_MAX: none. */
static uint64_t differs_at(
    const unsigned char *a, const unsigned char *b, uint64_t bytes, uint64_t scalar, bool floats) {
  if (bytes == 0 || memcmp(a, b, (size_t)bytes) == 0) return UINT64_MAX;
  for (uint64_t i = 0; i + scalar <= bytes; i += scalar)
    if (memcmp(a + i, b + i, (size_t)scalar) &&
        !(floats && is_nan(a + i, scalar) && is_nan(b + i, scalar)))
      return i / scalar;
  return UINT64_MAX;
}
static enum verdict compare(
    const unsigned char *got, uint64_t bytes, const struct npy *want, const char *with) {
  bool floats = (want->kind == 'f' || want->kind == 'c') && want->item != 3;
  uint64_t scalar = want->kind == 'c' ? want->item / 2 : insitu__base_max(want->item, 1);
  if (bytes != want->bytes)
    return say(FAILED, "%" PRIu64 " bytes, %s has %" PRIu64 " ('%s')", bytes, with, want->bytes,
        want->descr);
  uint64_t at = differs_at(got, want->data, bytes, scalar, floats && scalar <= 8);
  if (at == UINT64_MAX) return PASSED;
  char here[33], there[33];
  for (uint64_t i = 0; i < insitu__base_min(scalar, 16); i++) {
    sprintf(here + 2 * i, "%02x", got[at * scalar + i]);
    sprintf(there + 2 * i, "%02x", want->data[at * scalar + i]);
  }
  return say(FAILED, "number %" PRIu64 " is %s, of %s %s ('%s', bytes in memory's order)", at, here,
      with, there, want->descr);
}
/* Two arrays of text, whatever their width. */
static enum verdict compare_text(const struct npy *got, const struct npy *want) {
  if (got->count != want->count || got->kind != want->kind)
    return say(FAILED, "%" PRIu64 " of '%s', the reference has %" PRIu64 " of '%s'", got->count,
        got->descr, want->count, want->descr);
  for (uint64_t i = 0; i < got->count; i++)
    for (uint64_t k = 0; k < insitu__base_max(got->item, want->item); k++) {
      int a = k < got->item ? got->data[i * got->item + k] : 0,
          b = k < want->item ? want->data[i * want->item + k] : 0;
      if (a != b)
        return say(FAILED, "text %" PRIu64 " differs from the reference's in byte %" PRIu64, i, k);
    }
  return PASSED;
}

/* ---- numcodecs ---- */

/* A string member of the configuration; "" where there is none. */
static void config_string(const struct insitu__text_json *j, const char *key, char out[64]) {
  int token = insitu__text_json_get(j, 0, key);
  if (token < 0 || !insitu__text_json_is_string(j, token) ||
      insitu__text_json_string(j, token, out, 64) < 0)
    out[0] = 0;
}
static double config_number(const struct insitu__text_json *j, const char *key, double otherwise) {
  double x;
  int token = insitu__text_json_get(j, 0, key);
  return token >= 0 && insitu__text_json_double(j, token, &x) ? x : otherwise;
}
static double real_at(const unsigned char *p, char kind, uint64_t size) {
  float f;
  double d;
  int64_t i = 0;
  if (kind == 'f' && size == 2) {
    uint16_t h;
    memcpy(&h, p, 2);
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(m + 1024, e - 25)
                       : ldexp(m, -24);
    return h >> 15 ? -x : x;
  }
  if (kind == 'f' && size == 4) return memcpy(&f, p, 4), (double)f;
  if (kind == 'f') return memcpy(&d, p, 8), d;
  memcpy(&i, p, (size_t)size);
  if (kind == 'i') i = (int64_t)((uint64_t)i << (64 - 8 * size)) >> (64 - 8 * size);
  return kind == 'u' ? (double)(uint64_t)i : (double)i;
}
/* A lossy codec without numcodecs at hand: within the precision that its configuration names. */
static enum verdict compare_lossy(const unsigned char *got, uint64_t bytes, const struct npy *want,
    const char *id, const struct insitu__text_json *j) {
  char narrow[64];
  config_string(j, strcmp(id, "astype") == 0 ? "encode_dtype" : "astype", narrow);
  bool half = strcmp(narrow + 1, "f2") == 0, single = strcmp(narrow + 1, "f4") == 0;
  double relative = half ? 0x1p-10 : single ? 0x1p-23 : 0x1p-50, absolute = 0;
  if (strcmp(id, "quantize") == 0) absolute = pow(10, -config_number(j, "digits", 0));
  if (strcmp(id, "fixedscaleoffset") == 0) absolute = 0.51 / config_number(j, "scale", 1);
  if (strcmp(id, "bitround") == 0) relative = pow(2, -config_number(j, "keepbits", 0));
  if (bytes != want->bytes)
    return say(FAILED, "%" PRIu64 " bytes, the original has %" PRIu64, bytes, want->bytes);
  for (uint64_t i = 0; i < want->count; i++) {
    double a = real_at(got + i * want->item, want->kind, want->item),
           b = real_at(want->data + i * want->item, want->kind, want->item);
    if (a == b || (isnan(a) && isnan(b)) || (half && isinf(a) && fabs(b) > 65504)) continue;
    if (!(fabs(a - b) <= absolute + relative * (1000 + fabs(b))))
      return say(FAILED,
          "number %" PRIu64 " is %.17g, the original %.17g: further away than the codec rounds", i,
          a, b);
  }
  return PASSED;
}
/* An archive of one chunk in memory: the encoded file, and metadata that names its codec. A filter
 * that names the type it gives is a filter of an array of that type; all others are compressors of
 * bytes. */
static enum verdict decode_numcodecs(const struct insitu__text_json *j, const char *config,
    const unsigned char *encoded, uint64_t n_encoded, struct npy *array) {
  static const char *const lossy[] = {"astype", "quantize", "fixedscaleoffset", "bitround"};
  char id[64], dtype[64], meta[8192], text[300];
  insitu_shape shape;
  insitu_error err = {0};
  unsigned char *got = NULL;
  struct npy want;
  bool filter, inexact = false, objects = array->kind == 'O';
  config_string(j, "id", id);
  config_string(j, strcmp(id, "astype") == 0 ? "decode_dtype" : "dtype", dtype);
  if (strcmp(id, "packbits") == 0) snprintf(dtype, sizeof dtype, "|b1");
  if (strcmp(id, "bitround") == 0) snprintf(dtype, sizeof dtype, "%s", array->descr);
  if (objects) snprintf(dtype, sizeof dtype, "|O");
  for (size_t i = 0; i < TOOL_COUNT(lossy); i++) inexact = inexact || strcmp(id, lossy[i]) == 0;
  filter = dtype[0] != 0;
  if (!filter) snprintf(dtype, sizeof dtype, "|u1");
  else npy_native(array);
  uint64_t count = filter ? array->count : array->bytes;
  int n = snprintf(meta, sizeof meta,
      "{\"zarr_format\": 2, \"shape\": [%" PRIu64 "], \"chunks\": [%" PRIu64
      "], \"dtype\": \"%s\", \"fill_value\": null, "
      "\"order\": \"C\", \"compressor\": %s, \"filters\": %s%s%s}",
      count, insitu__base_max(count, 1), dtype, filter ? "null" : config, filter ? "[" : "",
      filter ? config : "null", filter ? "]" : "");
  if (n < 0 || n >= (int)sizeof meta)
    return say(REFUSED, "a configuration of more than %d bytes", (int)sizeof meta);
  insitu_object objects_of[] = {{".zarray", meta, (uint64_t)n}, {"0", encoded, n_encoded}};
  insitu_loader_desc where = {.url = "memory://", .objects = objects_of, .n_objects = 2};
  insitu_variable v = {.label = "it", .path = ""};
  int have = reference(&want, text);
  insitu_status status = readback_read(&where, &v, MOST_CHUNK, &shape, &got, &err);
  enum verdict verdict;
  if (status < 0) verdict = error_verdict(&err, have, text);
  else if (have > 0) verdict = compare(got, shape.bytes, &want, "numcodecs");
  else if (objects)
    verdict = say(REFUSED, "pickled objects: only numcodecs can tell what they are");
  else if (inexact) verdict = compare_lossy(got, shape.bytes, array, id, j);
  else verdict = compare(got, shape.bytes, array, "the original");
  free(got);
  free(want.file);
  return verdict;
}
static enum verdict check_numcodecs(
    const char *encoded_path, const char *config_path, const char *array_path) {
  struct npy array;
  struct insitu__text_json j = {0};
  uint64_t n = 0, n_config = 0;
  insitu_error err = {0};
  enum verdict verdict;
  unsigned char *encoded = slurp(encoded_path, &n), *config = slurp(config_path, &n_config);
  const char *bad = npy_read(array_path, &array);
  if (bad) verdict = say(REFUSED, "%s: %s", array_path, bad);
  else if (!encoded || !config) verdict = say(REFUSED, "it or its config.json cannot be read");
  else if (insitu__text_json_parse(&j, (char *)config, n_config, config_path, &err) < 0)
    verdict = say(REFUSED, "%s", err.message);
  else {
    independent = true;
    verdict = decode_numcodecs(&j, (char *)config, encoded, n, &array);
  }
  insitu__text_json_free(&j);
  free(encoded);
  free(config);
  free(array.file);
  return verdict;
}

/* ---- blosc ---- */

static bool blosc_has(unsigned format) { /* is the compressor in this libblosc? */
  static const char *const names[] = {"blosclz", "lz4", "snappy", "zlib", "zstd"};
  return format < TOOL_COUNT(names) && strstr(blosc_list_compressors(), names[format]);
}
static enum verdict check_blosc(const char *path) {
  static const char compressor[] =
      "{\"id\": \"blosc\", \"cname\": \"lz4\", \"clevel\": 5, \"shuffle\": 1, \"blocksize\": 0}";
  uint64_t n = 0;
  size_t bytes = 0;
  char meta[512];
  insitu_shape shape;
  insitu_error err = {0};
  unsigned char *got = NULL, *want = NULL, *chunk = slurp(path, &n);
  enum verdict verdict;
  if (!chunk || n < 16) {
    free(chunk);
    return say(REFUSED, "not a blosc chunk: %" PRIu64 " bytes", n);
  }
  independent = true;
  uint64_t said = insitu__base_load32(chunk + 4);
  bool valid = blosc_cbuffer_validate(chunk, (size_t)n, &bytes) == 0 && bytes <= MOST_CHUNK;
  want = said && said <= MOST_CHUNK ? malloc((size_t)said) : NULL;
  bool known = valid && want && blosc_decompress_ctx(chunk, want, (size_t)said, 1) == (int)said;
  /* c-blosc's own files hold int32 0, 1, 2, ... */
  if (valid && !known && want && said == 4000000 && !blosc_has(chunk[2] >> 5)) {
    for (uint32_t i = 0; i < 1000000; i++) memcpy(want + 4 * i, &i, 4);
    known = true;
  }
  int length = snprintf(meta, sizeof meta,
      "{\"zarr_format\": 2, \"shape\": [%" PRIu64 "], \"chunks\": [%" PRIu64
      "], \"dtype\": \"|u1\", \"fill_value\": null, "
      "\"order\": \"C\", \"compressor\": %s, \"filters\": null}",
      said, insitu__base_max(said, 1), compressor);
  insitu_object objects[] = {{".zarray", meta, (uint64_t)length}, {"0", chunk, n}};
  insitu_loader_desc where = {.url = "memory://", .objects = objects, .n_objects = 2};
  insitu_variable v = {.label = "it", .path = ""};
  insitu_status status = readback_read(&where, &v, MOST_CHUNK, &shape, &got, &err);
  struct npy is = {.data = want, .bytes = said, .item = 1, .descr = "bytes"};
  if (status < 0) verdict = error_verdict(&err, known ? 1 : -1, "libblosc does not decompress it");
  else if (!known) verdict = say(FAILED, "libblosc does not decompress it, and insitubatch.h does");
  else verdict = compare(got, shape.bytes, &is, "libblosc");
  free(got);
  free(want);
  free(chunk);
  return verdict;
}

/* ---- Zarr ---- */

/* Arrays of strings are no numbers: the command writes them as .npy. False: it refuses too. */
static bool text_of(const char *root, const char *path, struct npy *out) {
  char file[INSITU__MAX_KEY];
  int status;
  snprintf(file, sizeof file, "%s/text.npy", folder);
  pid_t child = fork();
  if (child == 0) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, 1);
    dup2(null, 2);
    execl(tool, tool, "cat", root, path, "-o", file, (char *)NULL);
    _exit(127);
  }
  if (child < 0 || waitpid(child, &status, 0) < 0 || status) return false;
  return npy_read(file, out) == NULL;
}
static uint64_t parse_region(char *text, insitu_slice *slice) {
  uint64_t n = 0;
  for (char *s = text, *end; *s && n < INSITU__MAX_DIMS; s = *end ? end + 1 : end, n++) {
    slice[n] = (insitu_slice){.axis = (int32_t)n, .start = strtoll(s, &end, 10)};
    slice[n].stop = *end ? strtoll(end + 1, &end, 10) : 0;
  }
  return n;
}
static enum verdict compare_array(const char *root, const char *path, const insitu_shape *shape,
    const unsigned char *got, const struct npy *want) {
  /* ours have an axis inside such elements */
  bool wide = want->kind == 'U' || want->kind == 'S' || want->kind == 'V';
  bool same = shape->ndim == want->ndim + wide;
  for (int32_t i = 0; same && i < want->ndim; i++)
    same = (uint64_t)shape->shape[i] == want->shape[i];
  struct npy text;
  if (!same) return say(FAILED, "another shape than the reference's");
  if (wide && shape->bytes != want->bytes && text_of(root, path, &text)) {
    enum verdict verdict = compare_text(&text, want);
    free(text.file);
    return verdict;
  }
  return compare(got, shape->bytes, want, "the reference");
}
static enum verdict check_zarr(char **field, int fields) {
  const char *root = field[1], *path = fields > 2 ? field[2] : "";
  insitu_slice slices[INSITU__MAX_DIMS];
  insitu_variable v = {.label = "it", .path = path, .slices = slices};
  insitu_loader_desc where = {.url = root, .check = 1};
  insitu_error err = {0};
  insitu_shape shape;
  unsigned char *got = NULL;
  struct npy want, text = {0};
  char reason[300];
  enum verdict verdict = PASSED;
  int have = reference(&want, reason);
  /* of elements with an axis inside, that one is none to draw samples along */
  bool axes = fields > 3 && field[3][0];
  independent = have > 0;
  if (fields > 6) v.n_slices = parse_region(field[6], slices);
  if (have < 0 && strncmp(reason, "differs: ", 9) == 0)
    return say(FAILED, "the metadata %s", reason);
  insitu_status status = readback_read(&where, &v, 2u * MOST_BYTES, &shape, &got, &err);
  if (status == INSITU_E_DTYPE && text_of(root, path, &text))
    verdict = have > 0 ? compare_text(&text, &want) : PASSED;
  else if (status < 0) verdict = error_verdict(&err, have, reason);
  else if (have > 0) verdict = compare_array(root, path, &shape, got, &want);
  if (status == INSITU_OK && verdict == PASSED && axes && shape.bytes &&
      shape.bytes <= MOST_BATCHED && !v.n_slices) {
    status = readback_batches(&where, path, &shape, got, 0, &err);
    if (status < 0 && !is_refusal(status)) verdict = say(FAILED, "in batches: %s", err.message);
  }
  free(got);
  free(want.file);
  free(text.file);
  return verdict;
}
static enum verdict check_root(const char *root) {
  struct tool_archive a;
  insitu_error err = {0};
  struct npy none;
  char reason[300];
  int have = reference(&none, reason);
  insitu_status status = tool_archive_open_with(root, 0, &a, &err);
  if (status == INSITU_OK) err = a.list_error;
  if (status == INSITU_OK) tool_archive_close(&a);
  return err.status < 0 ? error_verdict(&err, have, reason)
                        : say(FAILED, "its arrays could not be listed, and now they can");
}

/* ---- all of them ---- */

static enum verdict check(char *line) {
  char *field[8], *rest = line;
  int n = 0;
  while (rest && n < 8) field[n++] = strsep(&rest, "\t");
  why[0] = 0;
  independent = false;
  if ((strcmp(field[0], "zarr") == 0 || strcmp(field[0], "virtual") == 0) && n > 2) {
    if (n > 6 && field[6][0] == '-')
      return say(REFUSED, "its chunks are larger than MOST_CHUNK: it is not read here");
    return check_zarr(field, n);
  }
  if (strcmp(field[0], "root") == 0 && n > 1) return check_root(field[1]);
  if (strcmp(field[0], "numcodecs") == 0 && n > 3)
    return check_numcodecs(field[1], field[2], field[3]);
  if (strcmp(field[0], "blosc") == 0 && n > 1) return check_blosc(field[1]);
  return say(REFUSED, "it cannot be looked at");
}
static void child_run(char **lines, uint64_t first, uint64_t n, int to) {
  FILE *f = fdopen(to, "w");
  for (uint64_t i = first; i < n; i++) {
    char *copy = tool_copy(lines[i]);
    number = i + 1;
    int verdict = (int)check(copy);
    insitu__mem_free(copy);
    for (char *s = why; *s; s++)
      if ((unsigned char)*s < ' ') *s = ' ';
    fprintf(f, "%d%d%s\n", verdict, independent, why);
    fflush(f);
  }
}
/* One result into line; false: the child is gone or hangs. */
static bool next_result(int from, FILE *f, char *line, size_t cap) {
  struct pollfd p = {.fd = from, .events = POLLIN};
  return poll(&p, 1, ITEM_SECONDS * 1000) > 0 && fgets(line, (int)cap, f);
}
static void print_item(const char *line, const char *verdict, const char *reason) {
  char *copy = tool_copy(line), *rest = copy;
  strsep(&rest, "\t"); /* the kind */
  const char *name = strsep(&rest, "\t"), *path = NULL;
  if (!strncmp(line, "zarr\t", 5) || !strncmp(line, "virtual\t", 8)) path = strsep(&rest, "\t");
  printf("%s: %s%s%s: ", verdict, name ? name : "", path && path[0] ? "/" : "", path ? path : "");
  tool_put(stdout, reason, strlen(reason));
  printf("\n");
  insitu__mem_free(copy);
}
static int check_all(char **lines, uint64_t n) {
  uint64_t count[3] = {0}, at = 0, compared = 0;
  char line[2100];
  while (at < n) {
    int pair[2];
    fflush(stdout);
    if (pipe2(pair, O_CLOEXEC)) return tool_fail("pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) return tool_fail("fork: %s", strerror(errno));
    if (child == 0) {
      child_run(lines, at, n, pair[1]);
      fflush(stdout);
      _exit(0);
    }
    close(pair[1]);
    FILE *f = fdopen(pair[0], "r");
    setvbuf(f, NULL, _IONBF, 0); /* or poll would not see what was read ahead */
    for (; at < n && next_result(pair[0], f, line, sizeof line); at++) {
      line[strcspn(line, "\n")] = 0;
      int verdict = line[0] == '0' ? PASSED : line[0] == '1' ? FAILED : REFUSED;
      count[verdict]++;
      compared += verdict == PASSED && line[1] == '1';
      if (verdict != PASSED)
        print_item(lines[at], verdict == FAILED ? "failed" : "refused", line + 2);
    }
    int status = 0;
    if (at < n) kill(child, SIGKILL);
    waitpid(child, &status, 0);
    fclose(f);
    if (at < n) {
      count[FAILED]++;
      print_item(lines[at++], "failed", "the reader crashed, or took more than ITEM_SECONDS");
    }
  }
  printf("%" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64
         " refused; of those that passed %" PRIu64
         " equal what another implementation reads, %" PRIu64 " were read by this one alone\n",
      count[PASSED], count[FAILED], count[REFUSED], compared, count[PASSED] - compared);
  return count[FAILED] ? TOOL_FAILED : TOOL_OK;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--list") == 0) return list_all(argv[2]);
  if (argc != 4) return tool_fail("usage: conformance --list DIR | conformance LIST FOLDER TOOL");
  uint64_t n = 0, cap = 1024;
  char **lines = tool_alloc(cap, sizeof *lines), *line = NULL;
  size_t size = 0;
  FILE *f = fopen(argv[1], "re");
  if (!f) return tool_fail("%s: %s", argv[1], strerror(errno));
  while (getline(&line, &size, f) > 0) {
    line[strcspn(line, "\n")] = 0;
    if (n == cap && !(lines = insitu__mem_realloc(lines, (cap *= 2) * sizeof *lines)))
      tool_no_memory();
    lines[n++] = tool_copy(line);
  }
  fclose(f);
  free(line);
  folder = argv[2];
  tool = argv[3];
  int code = check_all(lines, n);
  for (uint64_t i = 0; i < n; i++) insitu__mem_free(lines[i]);
  insitu__mem_free(lines);
  return fflush(stdout) ? TOOL_FAILED : code;
}
