/* A small writer of zip files, into memory. */
#ifndef TESTS_ZIP_H
#define TESTS_ZIP_H
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* of a member: ZIP64 fields, a data descriptor, others */
enum { ZIP_DEFLATE = 1, ZIP_WIDE = 2, ZIP_STREAM = 4, ZIP_EXTRA = 8 };
struct zip {
  unsigned char *bytes, *directory; /* members; entries of the central directory */
  size_t n, cap, n_directory, cap_directory, members;
  size_t begin; /* of the archive: what stands before is no part of it */
  int options;  /* of zip_folder */
};

static inline unsigned char *zip_room(unsigned char **at, size_t *used, size_t *cap, size_t n) {
  if (*used + n > *cap) {
    *cap = 2 * (*used + n);
    *at = realloc(*at, *cap);
    if (!*at) abort();
  }
  *used += n;
  return n ? memset(*at + *used - n, 0, n) : *at;
}
/* little-endian; what is behind it */
static inline unsigned char *zip_put(unsigned char *p, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
  return p + bytes;
}
static inline unsigned char *zip_grow(struct zip *z, size_t n) {
  return zip_room(&z->bytes, &z->n, &z->cap, n);
}
/* From the version needed to the names' lengths, which both headers have. */
static inline unsigned char *zip_common(unsigned char *p, int options, uint32_t crc,
    uint64_t stored, uint64_t size, size_t name, size_t extra) {
  p = zip_put(p, 20, 2);
  p = zip_put(p, options & ZIP_STREAM ? 8 : 0, 2);
  p = zip_put(p, options & ZIP_DEFLATE ? 8 : 0, 2);
  p = zip_put(p, 0x50210000, 4); /* the first of January 2020 */
  p = zip_put(p, crc, 4);
  p = zip_put(p, stored, 4);
  p = zip_put(p, size, 4);
  p = zip_put(p, name, 2);
  return zip_put(p, extra, 2);
}
static inline void zip_add(
    struct zip *z, const char *key, const void *bytes, size_t size, int options) {
  size_t name = strlen(key), header = z->n - z->begin, stored = size,
         wide = options & ZIP_WIDE ? 28 : 0;
  size_t local_extra = options & ZIP_EXTRA ? 9 : 0, extra = wide + (options & ZIP_EXTRA ? 13 : 0);
  uint32_t crc = (uint32_t)crc32(0, bytes, (uInt)size);
  unsigned char *packed = malloc(size + size / 8 + 1024), *p;
  if (size) memcpy(packed, bytes, size);
  if (options & ZIP_DEFLATE) {
    z_stream s = {0};
    s.next_in = (unsigned char *)(uintptr_t)bytes;
    s.avail_in = (uInt)size;
    s.next_out = packed;
    s.avail_out = (uInt)(size + size / 8 + 1024);
    if (deflateInit2(&s, 6, Z_DEFLATED, -15, 8, 0) != Z_OK || deflate(&s, Z_FINISH) != Z_STREAM_END)
      abort();
    stored = s.total_out;
    deflateEnd(&s);
  }
  p = zip_put(zip_grow(z, 30 + name + local_extra + stored), 0x04034b50, 4);
  bool later = options & ZIP_STREAM;
  p = zip_common(
      p, options, later ? 0 : crc, later ? 0 : stored, later ? 0 : size, name, local_extra);
  memcpy(p, key, name);
  if (local_extra) zip_put(zip_put(p + name, 0x5455, 2), 5, 2);
  memcpy(p + name + local_extra, packed, stored);
  free(packed);
  if (later) { /* the data descriptor */
    p = zip_put(zip_grow(z, 16), 0x08074b50, 4);
    zip_put(zip_put(zip_put(p, crc, 4), stored, 4), size, 4);
  }
  p = zip_room(&z->directory, &z->n_directory, &z->cap_directory, 46 + name + extra);
  p = zip_put(zip_put(p, 0x02014b50, 4), 0x31e, 2);
  p = zip_common(
      p, options, crc, wide ? UINT32_MAX : stored, wide ? UINT32_MAX : size, name, extra);
  p = zip_put(zip_put(p, 0, 8), 0, 2); /* comment, disk, attributes */
  p = zip_put(p, wide ? UINT32_MAX : header, 4);
  memcpy(p, key, name);
  p += name;
  if (options & ZIP_EXTRA) p = zip_put(zip_put(zip_put(p, 0x5455, 2), 9, 2), 0, 8) + 1;
  if (wide)
    zip_put(zip_put(zip_put(zip_put(zip_put(p, 1, 2), 24, 2), size, 8), stored, 8), header, 8);
  z->members++;
}
static inline void zip_finish(struct zip *z, const char *comment, bool wide) {
  size_t at = z->n - z->begin, end = at + z->n_directory;
  if (z->n_directory) memcpy(zip_grow(z, z->n_directory), z->directory, z->n_directory);
  if (wide) {
    unsigned char *p = zip_put(zip_put(zip_grow(z, 76), 0x06064b50, 4), 44, 8);
    p = zip_put(zip_put(p, 45, 2), 45, 2);
    p = zip_put(p, 0, 8); /* disks */
    p = zip_put(zip_put(p, z->members, 8), z->members, 8);
    p = zip_put(zip_put(p, z->n_directory, 8), at, 8);
    p = zip_put(zip_put(p, 0x07064b50, 4), 0, 4);
    zip_put(zip_put(p, end, 8), 1, 4);
  }
  unsigned char *p = zip_put(zip_grow(z, 22 + strlen(comment)), 0x06054b50, 4);
  p = zip_put(p, 0, 4);
  p = zip_put(zip_put(p, wide ? 0xffff : z->members, 2), wide ? 0xffff : z->members, 2);
  p = zip_put(zip_put(p, wide ? UINT32_MAX : z->n_directory, 4), wide ? UINT32_MAX : at, 4);
  memcpy(zip_put(p, strlen(comment), 2), comment, strlen(comment));
}
static inline void zip_free(struct zip *z) {
  free(z->bytes);
  free(z->directory);
  memset(z, 0, sizeof *z);
}
static inline void zip_write(const struct zip *z, const char *path) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(z->bytes, 1, z->n, f) != z->n || fclose(f)) abort();
}

static struct zip *zip_folder_to;
static const char *zip_folder_prefix;
static size_t zip_folder_skip;
static inline int zip_folder_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
  char name[600];
  (void)f;
  if (strlen(path) < zip_folder_skip) return 0; /* the folder itself */
  snprintf(name, sizeof name, "%s%s%s", zip_folder_prefix, path + zip_folder_skip,
      kind == FTW_D ? "/" : "");
  if (kind == FTW_D) {
    zip_add(zip_folder_to, name, "", 0, 0);
    return 0;
  }
  unsigned char *bytes = malloc((size_t)s->st_size + 1);
  FILE *in = fopen(path, "rb");
  if (!bytes || !in || fread(bytes, 1, (size_t)s->st_size, in) != (size_t)s->st_size || fclose(in))
    abort();
  zip_add(zip_folder_to, name, bytes, (size_t)s->st_size, zip_folder_to->options);
  free(bytes);
  return 0;
}
/* All files of a folder, with its directories, below `prefix` ("", or with a slash at its end). */
static inline void zip_folder(struct zip *z, const char *folder, const char *prefix) {
  zip_folder_to = z;
  zip_folder_prefix = prefix;
  zip_folder_skip = strlen(folder) + 1;
  if (nftw(folder, zip_folder_one, 16, FTW_PHYS)) abort();
}
#endif
