/* Archives of references that a test makes: the chunks of an archive in files packed one behind the
 * other, and the references to them, in JSON or in a flat index. */
#ifndef TESTS_REFS_H
#define TESTS_REFS_H
#include <ftw.h>
#include "refs_text.h"

enum { REFS_MOST = 4096, REFS_GAP = 13 };
struct refs_entry { /* an object of the archive */
  char key[200];
  unsigned char *bytes; /* of metadata; NULL: a chunk */
  uint64_t n, offset;
  unsigned pack; /* which file has it */
};
static struct refs_entry refs_entries[REFS_MOST];
static unsigned refs_n, refs_packs;
static const char *refs_root;

static inline unsigned char *refs_read(const char *path, uint64_t *n) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  fseek(f, 0, SEEK_END);
  *n = (uint64_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(*n + 1);
  assert_int_equal(fread(bytes, 1, *n, f), *n);
  bytes[*n] = 0;
  fclose(f);
  return bytes;
}
static inline int refs_collect(const char *path, const struct stat *s, int kind, struct FTW *f) {
  const char *name = path + f->base;
  (void)s;
  if (kind != FTW_F) return 0;
  assert_true(refs_n < REFS_MOST);
  struct refs_entry *e = &refs_entries[refs_n++];
  snprintf(e->key, sizeof e->key, "%s", path + strlen(refs_root) + 1);
  uint64_t n;
  unsigned char *bytes = refs_read(path, &n);
  e->n = n;
  e->bytes = bytes;
  e->pack = name[0] == '.' || !strcmp(name, "zarr.json") ? UINT32_MAX : 0;
  return 0;
}
static inline int refs_compare(const void *a, const void *b) {
  return strcmp(((const struct refs_entry *)a)->key, ((const struct refs_entry *)b)->key);
}
static inline void refs_forget(void) {
  for (unsigned i = 0; i < refs_n; i++) free(refs_entries[i].bytes);
  refs_n = 0;
}
/* Packs the chunks of the archive at `root` into the files to/pack0 ... to/packN-1. */
static inline void refs_pack(const char *root, const char *to, unsigned packs) {
  refs_forget();
  refs_root = root;
  refs_packs = packs;
  assert_int_equal(nftw(root, refs_collect, 16, FTW_PHYS), 0);
  qsort(refs_entries, refs_n, sizeof *refs_entries, refs_compare);
  for (unsigned p = 0; p < packs; p++) {
    char path[600];
    uint64_t at = REFS_GAP, chunk = 0;
    unsigned char *all = calloc(1, 1 << 24);
    for (unsigned i = 0; i < refs_n; i++) {
      struct refs_entry *e = &refs_entries[i];
      if (e->pack == UINT32_MAX || chunk++ % packs != p) continue;
      assert_true(at + e->n + REFS_GAP < 1 << 24);
      memcpy(all + at, e->bytes, e->n);
      e->pack = p;
      e->offset = at;
      at += e->n + REFS_GAP;
    }
    snprintf(path, sizeof path, "%s/pack%u", to, p);
    support_write(path, all, at);
    free(all);
  }
}

/* ---- JSON ---- */

/* Writes the references: urls begin with `base`, which is a template in version 1. Every
 * `inlined`-th chunk is inline; 0: none is. */
static inline void refs_json(const char *path, const char *base, int version, unsigned inlined) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f, "{");
  if (version) fprintf(f, "\"version\":1,\"templates\":{\"u\":\"%s\"},\"refs\":{", base);
  for (unsigned i = 0, chunk = 0; i < refs_n; i++) {
    const struct refs_entry *e = &refs_entries[i];
    fprintf(f, "%s\n\"%s\": ", i ? "," : "", e->key);
    if (e->pack == UINT32_MAX && i % 2) fwrite(e->bytes, 1, e->n, f); /* as an object */
    else if (e->pack == UINT32_MAX) refs_quote(f, e->bytes, e->n);
    else if (inlined && ++chunk % inlined == 0) refs_base64(f, e->bytes, e->n);
    else
      fprintf(f, "[\"%s/pack%u\", %d, %d]", version ? "{{u}}" : base, e->pack, (int)e->offset,
          (int)e->n);
  }
  fprintf(f, version ? "}}\n" : "}\n");
  assert_int_equal(fclose(f), 0);
}

/* ---- the flat index ---- */

struct refs_target {
  const char *url, *etag;
  uint64_t size;
  int64_t modified;
};
struct refs_piece {
  uint32_t axis, keys;
  uint64_t first, count;
  const char *base, *path;
};
struct refs_array {
  const char *path;
  uint32_t ndim, keys;
  uint64_t grid[4];
  const struct refs_piece *pieces; /* NULL: entries */
  uint64_t n_pieces;
};
static unsigned char refs_file[1 << 22];
static uint64_t refs_at;

static inline uint64_t refs_put(const void *bytes, uint64_t n) {
  assert_true(refs_at + n < sizeof refs_file);
  memcpy(refs_file + refs_at, bytes, n);
  refs_at += n;
  return refs_at - n;
}
static inline uint64_t refs_fnv(uint64_t h, const unsigned char *p, uint64_t n) {
  while (n--) h = (h ^ *p++) * UINT64_C(0x100000001b3);
  return h;
}
/* Writes the checksum and the length anew. */
static inline void refs_seal(void) {
  static const unsigned each[] = {32, 48, 48, 1};
  uint64_t h = UINT64_C(0xcbf29ce484222325), at, n;
  for (int i = 0; i < 4; i++) {
    memcpy(&at, refs_file + 32 + 16 * i, 8);
    memcpy(&n, refs_file + 40 + 16 * i, 8);
    h = refs_fnv(h, refs_file + at, n * each[i]);
  }
  support_store64(refs_file + 24, h);
  support_store64(refs_file + 16, refs_at);
}
/* The entry of a chunk, by its key. */
static inline const struct refs_entry *refs_chunk(const char *key) {
  for (unsigned i = 0; i < refs_n; i++)
    if (refs_entries[i].pack != UINT32_MAX && !strcmp(refs_entries[i].key, key))
      return &refs_entries[i];
  return NULL;
}
static inline void refs_chunk_key(
    char *to, const struct refs_array *a, uint64_t number, uint64_t *at) {
  static const char *const before[] = {"", "", "c/", "c."};
  for (unsigned d = a->ndim; d-- > 0;) {
    at[d] = number % a->grid[d];
    number /= a->grid[d];
  }
  to += sprintf(to, "%s/%s", a->path, before[a->keys]);
  for (unsigned d = 0; d < a->ndim; d++)
    to += sprintf(to, "%s%d", d ? (a->keys == 0 || a->keys == 3 ? "." : "/") : "", (int)at[d]);
}
/* Makes the index of what was packed in refs_file; every `inlined`-th chunk is inline. */
static inline void refs_index(const struct refs_target *targets, uint64_t n_targets,
    const struct refs_array *arrays, uint64_t n_arrays, unsigned inlined) {
  uint64_t objects = 0, head = 96, refs = 0, text;
  for (unsigned i = 0; i < refs_n; i++) objects += refs_entries[i].pack == UINT32_MAX;
  memset(refs_file, 0, sizeof refs_file);
  uint64_t at[3] = {head, head + objects * 32, head + objects * 32 + n_targets * 48};
  text = refs_at = at[2] + n_arrays * 48;
  unsigned char *o = refs_file + at[0];
  for (unsigned i = 0; i < refs_n; i++) {
    const struct refs_entry *e = &refs_entries[i];
    if (e->pack != UINT32_MAX) continue;
    support_store64(o, refs_put(e->key, strlen(e->key)));
    support_store32(o + 8, (uint32_t)strlen(e->key));
    support_store64(o + 16, refs_put(e->bytes, e->n));
    support_store64(o + 24, e->n);
    o += 32;
  }
  for (uint64_t i = 0; i < n_targets; i++) {
    const struct refs_target *t = &targets[i];
    unsigned char *p = refs_file + at[1] + 48 * i;
    support_store64(p, refs_put(t->url, strlen(t->url)));
    support_store32(p + 8, (uint32_t)strlen(t->url));
    if (t->etag) support_store32(p + 12, (uint32_t)strlen(t->etag));
    support_store64(p + 16, t->etag ? refs_put(t->etag, strlen(t->etag)) : text);
    support_store64(p + 24, t->size);
    support_store64(p + 32, (uint64_t)t->modified);
  }
  for (uint64_t i = 0; i < n_arrays; i++) {
    const struct refs_array *a = &arrays[i];
    unsigned char *p = refs_file + at[2] + 48 * i, grid[32];
    for (unsigned d = 0; d < a->ndim; d++) support_store64(grid + 8 * d, a->grid[d]);
    support_store64(p, refs_put(a->path, strlen(a->path)));
    support_store32(p + 8, (uint32_t)strlen(a->path));
    support_store32(p + 12, a->ndim);
    support_store64(p + 16, refs_put(grid, 8 * a->ndim));
    support_store32(p + 32, a->keys);
    support_store32(p + 36, a->pieces != NULL);
    if (!a->pieces) continue;
    unsigned char records[48 * 16] = {0};
    for (uint64_t k = 0; k < a->n_pieces; k++) {
      const struct refs_piece *piece = &a->pieces[k];
      unsigned char *r = records + 48 * k;
      support_store32(r, piece->axis);
      support_store32(r + 4, piece->keys);
      support_store64(r + 8, piece->first);
      support_store64(r + 16, piece->count);
      support_store64(r + 24, refs_put(piece->base, strlen(piece->base)));
      support_store32(r + 32, (uint32_t)strlen(piece->base));
      support_store32(r + 36, (uint32_t)strlen(piece->path));
      support_store64(r + 40, refs_put(piece->path, strlen(piece->path)));
    }
    support_store64(p + 24, refs_put(records, 48 * a->n_pieces));
    support_store64(p + 40, a->n_pieces);
  }
  memcpy(refs_file, "INSITUIX", 8);
  support_store32(refs_file + 8, 1);
  const uint64_t count[3] = {objects, n_targets, n_arrays};
  for (int i = 0; i < 3; i++) {
    support_store64(refs_file + 32 + 16 * i, at[i]);
    support_store64(refs_file + 40 + 16 * i, count[i]);
  }
  support_store64(refs_file + 80, text);
  support_store64(refs_file + 88, refs_at - text);

  for (uint64_t i = 0, chunk = 0; i < n_arrays; i++) {
    const struct refs_array *a = &arrays[i];
    uint64_t n = 1, place[4];
    for (unsigned d = 0; d < a->ndim; d++) n *= a->grid[d];
    if (a->pieces) continue;
    refs = refs_at;
    refs_at += 16 * n;
    support_store64(refs_file + at[2] + 48 * i + 24, refs);
    support_store64(refs_file + at[2] + 48 * i + 40, n);
    for (uint64_t k = 0; k < n; k++) {
      char key[300];
      refs_chunk_key(key, a, k, place);
      const struct refs_entry *e = refs_chunk(key);
      uint64_t where = UINT64_C(0xFFFFFF) << 40, offset = 0;
      if (e && inlined && ++chunk % inlined == 0) {
        offset = refs_put(e->bytes, e->n);
        where = UINT64_C(0xFFFFFE) << 40 | e->n;
      } else if (e) {
        offset = e->offset;
        where = (uint64_t)e->pack << 40 | e->n;
      }
      support_store64(refs_file + refs + 16 * k, offset);
      support_store64(refs_file + refs + 16 * k + 8, where);
    }
  }
  refs_seal();
}
#endif
