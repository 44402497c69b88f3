/* insitu info: what is in an archive: metadata, stored bytes, values and dates of coordinates. */
#include <math.h>

enum {
  INFO_COLUMNS = 100,
  INFO_MAX_READ = 1 << 20, /* bytes of a coordinate whose values are looked at */
  INFO_MAX_ASKED = 256,    /* objects of a remote store that are asked for at once */
  INFO_MAX_PLANNED = 40    /* variables of the suggested configuration */
};

static const char *info_attributes, *info_no_size, *info_short, *info_seconds;

struct info_array {
  const char *path;
  struct tool_node node;
  insitu_error err;            /* status < 0: why this build cannot read it */
  struct insitu__zarr_array z; /* when it can */
  /* from the metadata as it stands, whether it can be read or not */
  unsigned ndim; /* 0 also when there is no shape */
  bool has_shape, has_chunk, sharded, big;
  bool rectilinear; /* chunks, or shards, differ in length */
  /* chunk: of the stored object; where they differ, the largest of each axis */
  uint64_t shape[INSITU__MAX_DIMS], chunk[INSITU__MAX_DIMS], inner[INSITU__MAX_DIMS];
  char *dim[INSITU__MAX_DIMS], dtype[48];
  /* itemsize 0: unknown, then the bytes are 0 too */
  uint64_t itemsize, objects, object_bytes, decoded;
  int fill; /* token */
  /* from the directory */
  bool sized, cut; /* cut: not all of it was seen */
  uint64_t stored, stored_objects;
  /* a coordinate's values */
  uint64_t n_values; /* 0: not looked at */
  double first, last, step;
  bool regular, ordered; /* ordered: they rise throughout, or fall throughout */
  /* dates, where the units are those of time: of the first and the last sample */
  bool dated;
  struct insitu__time_units units;
  /* microseconds; every 0: its first and last chunk hold steps of several lengths */
  int64_t date[2], every;
  insitu_error undated; /* status < 0: why there are none */
  /* Where the consolidated metadata differ from the array's own, what these say; else "". */
  char stale[240];
  /* what it is to the others; set by info_roles */
  const char *image; /* the first array of an OME-NGFF image: what to call it; else NULL */
  bool level;        /* a smaller one of an image: another size of the same pixels */
  bool mask;         /* the image is a label image, under "labels" */
  bool fixed;        /* it has no samples: all of its axes are others of the largest sample axis */
};
struct info_group {
  char *path, *text;                   /* text: that of the attributes, NULL for none */
  struct insitu__text_json attributes; /* token 0 of it */
};
struct info {
  struct tool_archive archive;
  const char *url, *below;   /* below: the path that was asked for, "" for all */
  struct info_group *groups; /* sorted; a growing array of >>array */
  struct info_array *arrays;
  uint64_t n_groups, n;
  uint64_t decoded, stored;
  bool sized, cut;
  int64_t deadline;      /* of looking at sizes */
  insitu_loader *loader; /* for dates; NULL until some are wanted */
  /* metadata of the other Zarr format: of how many listed nodes, too; paths that have no others */
  uint64_t n_both;
  char **only_other; /* sorted; a growing array of >>array */
};

/* ---- reading the metadata ---- */

static bool info_extents(
    const struct insitu__text_json *j, int token, unsigned *n, uint64_t *extent) {
  *n = 0;
  if (!insitu__text_json_is_array(j, token) || insitu__text_json_size(j, token) > INSITU__MAX_DIMS)
    return false;
  for (int t = insitu__text_json_first(j, token); t >= 0; t = insitu__text_json_next(j, t))
    if (!insitu__text_json_u64(j, t, &extent[(*n)++])) return false;
  return true;
}
static int info_configuration(const struct insitu__text_json *j, int token) {
  return insitu__text_json_get(j, token, "configuration");
}
/* A string, or any other value as it stands; runs of spaces and line ends as one space, cut short.
 */
static void info_text(const struct insitu__text_json *j, int token, char *to, size_t cap) {
  uint64_t n;
  size_t used = 0;
  if (insitu__text_json_string(j, token, to, cap) >= 0) return;
  const char *span = insitu__text_json_span(j, token, &n);
  for (uint64_t i = 0; i < n && used + 1 < cap; i++) {
    bool space = (unsigned char)span[i] <= ' ';
    if (!space || (used && to[used - 1] != ' ')) to[used++] = space ? ' ' : span[i];
  }
  to[used] = 0;
}
static void info_dims(struct info_array *a, const struct insitu__text_json *j, int names) {
  char name[INSITU__MAX_DIM_NAME];
  unsigned i = 0;
  if (!insitu__text_json_is_array(j, names) || insitu__text_json_size(j, names) != (int)a->ndim)
    return;
  for (int t = insitu__text_json_first(j, names); t >= 0; t = insitu__text_json_next(j, t), i++)
    if (insitu__text_json_string(j, t, name, sizeof name) > 0) a->dim[i] = tool_copy(name);
}
static void info_set_dtype(struct info_array *a, bool v2) { /* a->dtype holds the metadata's word */
  for (int i = 0; i < INSITU__DTYPE_KNOWN; i++) {
    const struct insitu__dtype_names *d = &insitu__dtype_known[i];
    if (v2 && !d->v2[0]) continue;
    if (strcmp(v2 && strchr("<>|", a->dtype[0]) ? a->dtype + 1 : a->dtype, v2 ? d->v2 : d->v3))
      continue;
    a->big = v2 && a->dtype[0] == '>';
    a->itemsize = (uint64_t)(d->dtype & 0xff) / 8;
    snprintf(a->dtype, sizeof a->dtype, "%s", d->v3);
    return;
  }
}
static void info_v2(struct info_array *a) {
  const struct insitu__text_json *j = a->node.doc;
  unsigned n;
  info_text(j, insitu__text_json_get(j, a->node.node, "dtype"), a->dtype, sizeof a->dtype);
  info_set_dtype(a, true);
  a->has_chunk = info_extents(j, insitu__text_json_get(j, a->node.node, "chunks"), &n, a->chunk) &&
                 n == a->ndim;
  const struct insitu__text_json *attributes = a->node.attributes_doc;
  info_dims(
      a, attributes, insitu__text_json_get(attributes, a->node.attributes, "_ARRAY_DIMENSIONS"));
}
static void info_v3(struct info_array *a) {
  const struct insitu__text_json *j = a->node.doc;
  int type = insitu__text_json_get(j, a->node.node, "data_type");
  unsigned n;
  info_text(j, insitu__text_json_is_object(j, type) ? insitu__text_json_get(j, type, "name") : type,
      a->dtype, sizeof a->dtype);
  info_set_dtype(a, false);
  int grid = insitu__text_json_get(j, a->node.node, "chunk_grid");
  a->has_chunk =
      info_extents(
          j, insitu__text_json_get(j, info_configuration(j, grid), "chunk_shape"), &n, a->chunk) &&
      n == a->ndim;
  int codecs = insitu__text_json_get(j, a->node.node, "codecs");
  for (int t = insitu__text_json_first(j, codecs); t >= 0; t = insitu__text_json_next(j, t)) {
    int configuration = info_configuration(j, t), name = insitu__text_json_get(j, t, "name");
    if (insitu__text_json_equals(j, insitu__text_json_get(j, configuration, "endian"), "big") &&
        a->itemsize > 1)
      a->big = true;
    if (insitu__text_json_equals(j, name, "sharding_indexed"))
      a->sharded =
          info_extents(j, insitu__text_json_get(j, configuration, "chunk_shape"), &n, a->inner) &&
          n == a->ndim;
  }
  info_dims(a, j, insitu__text_json_get(j, a->node.node, "dimension_names"));
}
/* The innermost chunks of an array that can be read, along its own axes. */
static void info_inner(struct info_array *a) {
  const struct insitu__zarr_array *z = &a->z;
  unsigned axis[INSITU__MAX_DIMS], outer[INSITU__MAX_DIMS];
  memcpy(axis, z->object.order, sizeof axis);
  for (unsigned i = 0; i < z->n_shards; i++) {
    memcpy(outer, axis, sizeof outer);
    for (unsigned k = 0; k < z->ndim; k++) {
      a->inner[outer[k]] = z->shards[i].inner[k];
      axis[k] = outer[z->shards[i].order[k]];
    }
  }
}
/* How many objects an array has along an axis. */
static uint64_t info_objects(const struct info_array *a, unsigned i) {
  if (a->rectilinear) return insitu__zarr_objects(&a->z, i);
  return a->chunk[i] ? insitu__base_ceil_div(a->shape[i], a->chunk[i]) : 0;
}
static void info_read_array(struct info *f, struct info_array *a, const char *path) {
  a->path = path;
  a->fill = -1;
  insitu_status status = tool_archive_array(&f->archive, path, &a->z, &a->err);
  if (tool_archive_node(&f->archive, path, &a->node, status < 0 ? NULL : &a->err) < 0 ||
      a->node.node < 0)
    return;
  const struct insitu__text_json *j = a->node.doc;
  a->has_shape =
      info_extents(j, insitu__text_json_get(j, a->node.node, "shape"), &a->ndim, a->shape);
  if (!a->has_shape) a->ndim = 0;
  a->fill = insitu__text_json_get(j, a->node.node, "fill_value");
  if (f->archive.group.format == 2) info_v2(a);
  else info_v3(a);
  if (status == INSITU_OK) {
    const struct insitu__zarr_array *z = &a->z;
    info_inner(a);
    for (unsigned i = 0; i < z->axes; i++) {
      if (!a->has_chunk) a->chunk[i] = z->object.chunk[i];
      a->rectilinear = a->rectilinear || z->object.grid[i];
    }
    a->has_chunk = true;
    for (unsigned i = 0; i < a->ndim && i < z->axes; i++)
      if (!a->dim[i] && z->dim[i]) a->dim[i] = tool_copy(z->dim[i]); /* an image's axes */
    if (z->kind != INSITU__ZARR_STRING)
      a->itemsize = z->itemsize * (z->axes < z->ndim ? z->shape[z->axes] : 1);
    if (z->format == 3 && z->unit[0])
      snprintf(a->dtype + strlen(a->dtype), sizeof a->dtype - strlen(a->dtype), "[%s]", z->unit);
  }
  a->decoded = a->has_shape ? a->itemsize : 0;
  a->object_bytes = a->has_chunk ? a->itemsize : 0;
  a->objects = a->has_chunk && a->has_shape;
  for (unsigned i = 0; i < a->ndim; i++) { /* wrong metadata may overflow: then the number is 0 */
    if (!insitu__base_mul(a->decoded, a->shape[i], &a->decoded)) a->decoded = 0;
    if (!insitu__base_mul(a->object_bytes, a->chunk[i], &a->object_bytes)) a->object_bytes = 0;
    uint64_t along = info_objects(a, i);
    if (!insitu__base_mul(a->objects, along, &a->objects)) a->objects = 0;
  }
}

/* What the shape is in the array's own document, where that is another than the consolidated one's.
 * Programs that append without consolidating leave the old one: readers see the samples of then. */
static void info_read_own(struct info *f, struct info_array *a) {
  const struct insitu__store *s = &f->archive.store;
  const char *name = f->archive.group.format == 3 ? "zarr.json" : ".zarray";
  uint64_t shape[INSITU__MAX_DIMS];
  unsigned n;
  insitu_error err = {0};
  struct tool_node own = {0};
  if (f->archive.group.nodes < 0 || !a->has_shape || insitu__store_is_remote(s)) return;
  insitu_status status = tool_node_read(&f->archive, a->path, name, 0, &own, &err);
  if (status == INSITU_OK) {
    int token = insitu__text_json_get(&own.own[0], 0, "shape");
    bool whole = info_extents(&own.own[0], token, &n, shape);
    if (!whole || n != a->ndim || memcmp(shape, a->shape, n * sizeof *shape)) {
      char text[120];
      info_text(&own.own[0], token, text, sizeof text);
      snprintf(a->stale, sizeof a->stale,
          "its own %s has the shape %s, and the consolidated metadata are older: consolidate again",
          name, token < 0 ? "of no array" : text);
    }
  } else if (status != INSITU_E_NOTFOUND) { /* as in archives that have no other metadata */
    snprintf(a->stale, sizeof a->stale, "its own %s cannot be compared: %.160s", name, err.message);
  }
  tool_node_free(&own);
}

static bool info_wanted(const struct info *f, const char *path) {
  size_t n = strlen(f->below);
  return n == 0 || (strncmp(path, f->below, n) == 0 && (path[n] == '/' || path[n] == 0));
}
static void info_add_group(struct info *f, const char *path, size_t n) {
  if (f->n_groups == TOOL_MAX_NODES) {
    tool_archive_too_many(&f->archive, "groups");
    return;
  }
  char *copy = insitu__mem_text(path, n);
  if (!copy || !INSITU__ARRAY_PUSH(f->groups, (struct info_group){.path = copy})) tool_no_memory();
  f->n_groups++;
}
/* The root, the groups above the arrays, and those that a consolidated document names. */
static void info_find_groups(struct info *f) {
  const struct insitu__text_json *j = &f->archive.group.root.j;
  int nodes = f->archive.group.nodes;
  char path[INSITU__MAX_KEY];
  if (!f->archive.group.is_array) info_add_group(f, "", 0);
  for (uint64_t i = 0; i < f->archive.n_paths; i++)
    for (const char *slash = strchr(f->archive.paths[i], '/'); slash;
         slash = strchr(slash + 1, '/'))
      info_add_group(f, f->archive.paths[i], (size_t)(slash - f->archive.paths[i]));
  for (int t = nodes < 0 ? -1 : insitu__text_json_first(j, nodes); t >= 0;
       t = insitu__text_json_next(j, t)) {
    int type = insitu__text_json_get(j, insitu__text_json_value(j, t), "node_type");
    int64_t n = insitu__text_json_string(j, t, path, sizeof path);
    if (f->archive.group.format == 3 && n > 0 && insitu__text_json_equals(j, type, "group"))
      info_add_group(f, path, (size_t)n);
    if (f->archive.group.format == 2 && n > 8 && !strcmp(path + n - 8, "/.zgroup"))
      info_add_group(f, path, (size_t)n - 8);
  }
  if (f->n_groups) qsort(f->groups, (size_t)f->n_groups, sizeof *f->groups, tool_archive_compare);
  uint64_t kept = 0;
  for (uint64_t i = 0; i < f->n_groups; i++) {
    bool same = kept && strcmp(f->groups[kept - 1].path, f->groups[i].path) == 0;
    if (same || !info_wanted(f, f->groups[i].path)) insitu__mem_free(f->groups[i].path);
    else f->groups[kept++] = f->groups[i];
  }
  f->n_groups = kept;
}
static void info_read_groups(struct info *f) {
  for (uint64_t i = 0; i < f->n_groups; i++) {
    struct info_group *g = &f->groups[i];
    insitu_error err = {0};
    insitu_status status = tool_archive_attributes(&f->archive, g->path, &g->text, &err);
    if (status == INSITU_OK && g->text)
      status = insitu__text_json_parse(&g->attributes, g->text, strlen(g->text), g->path, &err);
    if (status < 0) tool_fail_error(&err);
  }
}

/* ---- stored bytes ---- */

/* Files below a directory that are no metadata; false when time is up, or a directory cannot be
 * read. */
static bool info_walk(int fd, int64_t deadline, uint64_t *bytes, uint64_t *files) { /* closes fd */
  DIR *dir = fdopendir(fd);
  bool in_time = true;
  if (!dir) {
    close(fd);
    return false;
  }
  while (in_time) {
    struct stat s;
    errno = 0; /* readdir gives NULL at the end and for an error */
    const struct dirent *entry = readdir(dir);
    if (!entry) {
      in_time = !errno;
      break;
    }
    if (entry->d_name[0] == '.' || strcmp(entry->d_name, "zarr.json") == 0) continue;
    if (insitu__store_entry_is_directory(dirfd(dir), entry)) {
      int below =
          openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      in_time = below >= 0 && info_walk(below, deadline, bytes, files);
    } else if (fstatat(dirfd(dir), entry->d_name, &s, 0) == 0) {
      *bytes += (uint64_t)s.st_size;
      ++*files;
    }
    if (insitu__base_now() > deadline) in_time = false;
  }
  closedir(dir);
  return in_time;
}
/* What the members of a zip file below an array take in it. */
static void info_sizes_zip(const struct info *f, struct info_array *a) {
  const struct insitu__store *s = &f->archive.store;
  uint64_t n = strlen(a->path);
  for (uint64_t i = insitu__store_object_first(s, a->path); i < s->n_objects; i++) {
    const char *key = s->object[i]->key, *name = strrchr(key, '/');
    if (strncmp(key, a->path, n) || (n && key[n] != '/')) break;
    name = name ? name + 1 : key;
    if (name[0] == '.' || strcmp(name, "zarr.json") == 0) continue;
    a->stored += ((const struct insitu__zip_member *)(const void *)s->object[i])->stored;
    a->stored_objects++;
  }
  a->sized = true;
}
/* Of an archive of references what they are; NULL: it is none. */
static const struct insitu__refstore *info_refs(const struct info *f) {
  const struct insitu__store *s = &f->archive.store;
  return s->ops == &insitu__refstore_ops ? insitu__refstore_of(s) : NULL;
}
/* Counts the bytes of an array's chunks; false: these stand in an index, which is not read for
 * this. */
static bool info_sizes_refs(const struct insitu__refs *r, struct info_array *a) {
  uint64_t n = strlen(a->path);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(r->table); i++) {
    const struct insitu__refs_table *t = &r->table[i];
    const char *prefix = r->text.text + t->prefix;
    if (n && (strncmp(prefix, a->path, n) || prefix[n] != '/')) continue;
    const char *name = strrchr(prefix, '/');
    name = name ? name + 1 : prefix;
    if (!t->ndim && (name[0] == '.' || strcmp(name, "zarr.json") == 0)) continue; /* metadata */
    if (t->kind != INSITU__REFS_DENSE && t->kind != INSITU__REFS_SPARSE) return false;
    for (uint64_t k = 0; k < t->n; k++) {
      uint64_t where = t->kind == INSITU__REFS_DENSE ? t->entry[k].where : t->cell[k].entry.where;
      uint64_t bytes = where & INSITU__REFS_LENGTH;
      if (where >> 40 == INSITU__REFS_ABSENT) continue;
      a->cut |= bytes == INSITU__REFS_LENGTH; /* a whole object: its size is not known */
      a->stored += bytes == INSITU__REFS_LENGTH ? 0 : bytes;
      a->stored_objects++;
    }
  }
  return true;
}
static void info_sizes(struct info *f) {
  char root[INSITU__MAX_KEY], path[2 * INSITU__MAX_KEY];
  insitu_error err = {0};
  int kind;
  const struct insitu__store *s = &f->archive.store;
  const struct insitu__refs *refs = info_refs(f) ? &info_refs(f)->refs : NULL;
  f->sized = !info_no_size && !(refs && info_refs(f)->flat) &&
             !insitu__icechunk_of(s) &&               /* where sizes stand in all manifests */
             (refs || !insitu__store_is_remote(s)) && /* whose listings tell names alone */
             insitu__text_url_parse(f->url, &kind, root, sizeof root, &err) == INSITU_OK;
  for (uint64_t i = 0; i < f->n; i++) {
    struct info_array *a = &f->arrays[i];
    f->decoded += a->decoded;
    if (!f->sized) continue;
    if (refs) {
      a->sized = info_sizes_refs(refs, a);
      f->stored += a->stored;
      f->cut = f->cut || a->cut || !a->sized;
      continue;
    }
    if (s->base) {
      info_sizes_zip(f, a);
      f->stored += a->stored;
      continue;
    }
    snprintf(path, sizeof path, "%s/%s", root, a->path);
    errno = EAGAIN; /* no time to open it */
    int fd = insitu__base_now() > f->deadline ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool missing = fd < 0 && errno == ENOENT; /* not one chunk was written */
    a->sized = fd >= 0 || missing;
    a->cut = !missing && (fd < 0 || !info_walk(fd, f->deadline, &a->stored, &a->stored_objects));
    f->stored += a->stored;
    f->cut = f->cut || a->cut;
  }
}

/* ---- values of coordinates ---- */

struct info_read { /* a whole array on its way into memory */
  struct info *info;
  const struct insitu__zarr_array *z;
  struct tool_object object;
  struct insitu__codec_scratch scratch;
  unsigned char *whole, *piece; /* all objects in turn; the one being decoded */
  insitu_status status;
};
static insitu_status info_piece(
    void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)err;
  memcpy((unsigned char *)user + offset, bytes, (size_t)n);
  return INSITU_OK;
}
static void info_read_await(void *arg) {
  struct info_read *r = (struct info_read *)arg;
  char key[INSITU__MAX_KEY], *text;
  uint64_t n, limit = insitu__chain_bound(r->object.codecs, r->object.bytes);
  struct insitu__codec_sink sink = {
      .user = r->piece, .piece = info_piece, .element = r->z->itemsize};
  for (uint64_t i = 0; i < r->object.count && r->status == INSITU_OK; i++) {
    insitu_error err = {0};
    const struct insitu__grid *grid = r->z->object.grid[0];
    uint64_t length = r->object.chunk[0], at = insitu__grid_begin(grid, length, i);
    uint64_t count = insitu__base_min(insitu__grid_edge(grid, length, i), r->z->shape[0] - at);
    if (insitu__zarr_chunk_key(r->z, &i, key, sizeof key) < 0) r->status = INSITU_E_ARG;
    else r->status = insitu__store_get_await(&r->info->archive.store, key, limit, &text, &n, &err);
    bool absent = r->status == INSITU_E_NOTFOUND;
    if (absent) r->status = INSITU_OK;
    for (uint64_t k = 0; absent && k < count; k++)
      memcpy(r->piece + k * r->z->itemsize, r->z->fill, r->z->itemsize);
    if (r->status < 0) break;
    if (!absent) {
      struct insitu__codec_shard own;
      struct insitu__codec_chain chain;
      r->status = insitu__chain_decode(insitu__zarr_object_codecs(r->z, &i, &own, &chain),
          &r->scratch, text, n, tool_object_bytes(r->z, &i), &sink, &err);
      insitu__mem_free(text);
      unsigned char *p = r->piece;
      for (uint64_t k = 0; r->z->swap && k < count; k++, p += r->z->itemsize)
        for (uint32_t b = 0; b < r->z->itemsize / 2; b++) {
          unsigned char c = p[b];
          p[b] = p[r->z->itemsize - 1 - b];
          p[r->z->itemsize - 1 - b] = c;
        }
    }
    memcpy(r->whole + at * r->z->itemsize, r->piece, (size_t)(count * r->z->itemsize));
  }
}
static double info_half(const unsigned char *p) {
  uint16_t h;
  memcpy(&h, p, 2);
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double x = exponent == 31
                 ? (mantissa ? NAN : INFINITY)
                 : ldexp(mantissa + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
  return h >> 15 ? -x : x;
}
static double info_bfloat(const unsigned char *p) { /* the upper half of a float */
  uint16_t h;
  memcpy(&h, p, 2);
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}
static double info_element(const unsigned char *p, int32_t dtype) {
#define INFO_CASE(code, type)                                                                      \
  case code: {                                                                                     \
    type x;                                                                                        \
    memcpy(&x, p, sizeof x);                                                                       \
    return (double)x;                                                                              \
  }
  switch (dtype) {
    INFO_CASE(INSITU_I8, int8_t)
    INFO_CASE(INSITU_I16, int16_t)
    INFO_CASE(INSITU_I32, int32_t)
    INFO_CASE(INSITU_I64, int64_t)
    INFO_CASE(INSITU_U8, uint8_t)
    INFO_CASE(INSITU_U16, uint16_t)
    INFO_CASE(INSITU_U32, uint32_t)
    INFO_CASE(INSITU_U64, uint64_t)
    INFO_CASE(INSITU_F32, float)
    INFO_CASE(INSITU_F64, double)
  case INSITU_BF16: return info_bfloat(p);
  }
#undef INFO_CASE
  return info_half(p);
}
/* Whether n values rise throughout, or fall throughout. */
static bool info_ordered(const unsigned char *values, uint64_t n, int32_t dtype, uint64_t bytes) {
  bool rise = true, fall = true;
  for (uint64_t i = 1; i < n; i++) {
    double before = info_element(values + (i - 1) * bytes, dtype);
    double after = info_element(values + i * bytes, dtype);
    rise = rise && before < after;
    fall = fall && before > after;
  }
  return rise || fall;
}
/* First and last value of a one-dimensional array of numbers, and whether its steps are equal (to a
 * few units in the last place of its type). */
static bool info_has_values(const struct info_array *a) {
  if (a->err.status || a->z.kind != INSITU__ZARR_NUMBER || a->z.ndim != 1 || !a->z.shape[0] ||
      a->z.dtype == INSITU_BOOL || insitu__dtype_is_complex(a->z.dtype))
    return false;
  struct tool_object o = tool_object_of(&a->z);
  return a->z.shape[0] * a->z.itemsize <= INFO_MAX_READ && o.bytes <= 64 * INFO_MAX_READ &&
         o.count <= 4096;
}
static void info_values(struct info *f, struct info_array *a) {
  struct info_read r = {.info = f, .z = &a->z};
  if (!info_has_values(a)) return;
  r.object = tool_object_of(&a->z);
  uint64_t bytes = a->z.shape[0] * a->z.itemsize, n = a->z.shape[0];
  r.whole = (unsigned char *)tool_alloc(bytes, 1);
  r.piece = (unsigned char *)tool_alloc(r.object.bytes, 1);
  insitu__codec_scratch_init(&r.scratch);
  if (insitu__reactor_call(&f->archive.reactor, info_read_await, &r) == INSITU_OK &&
      r.status == INSITU_OK) {
    a->n_values = n;
    a->first = info_element(r.whole, a->z.dtype);
    a->last = info_element(r.whole + (n - 1) * a->z.itemsize, a->z.dtype);
    a->step = n > 1 ? (a->last - a->first) / (double)(n - 1) : 0;
    double ulp = a->z.dtype == INSITU_F16    ? 0x1p-10
                 : a->z.dtype == INSITU_BF16 ? 0x1p-7
                 : a->z.dtype == INSITU_F32  ? 0x1p-23
                                             : 0x1p-48;
    double slack = 4 * ulp * fmax(fabs(a->first), fabs(a->last));
    a->regular = n > 1 && a->step != 0;
    for (uint64_t i = 0; i < n && a->regular; i++)
      if (!(fabs(info_element(r.whole + i * a->z.itemsize, a->z.dtype) -
                 (a->first + (double)i * a->step)) <= slack))
        a->regular = false;
    a->ordered = info_ordered(r.whole, n, a->z.dtype, a->z.itemsize);
  }
  insitu__codec_scratch_free(&r.scratch);
  insitu__mem_free(r.whole);
  insitu__mem_free(r.piece);
}

/* Of a remote store: asks for all that info_values will read at once, so that it takes one round
 * trip. */
static void info_ask_await(void *arg) {
  struct info *f = (struct info *)arg;
  char key[INSITU__MAX_KEY], **keys = NULL;
  for (uint64_t i = 0; i < f->n; i++) {
    const struct insitu__zarr_array *z = &f->arrays[i].z;
    struct tool_object o = tool_object_of(z);
    bool small = info_has_values(&f->arrays[i]) && o.bytes <= INFO_MAX_READ;
    for (uint64_t k = 0; small && k < o.count && INSITU__ARRAY_LEN(keys) < INFO_MAX_ASKED; k++)
      if (insitu__zarr_chunk_key(z, &k, key, sizeof key) >= 0 &&
          !INSITU__ARRAY_PUSH(keys, tool_copy(key)))
        tool_no_memory();
  }
  insitu__store_prefetch_await(
      &f->archive.store, (const char *const *)keys, INSITU__ARRAY_LEN(keys), 2 * INFO_MAX_READ);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(keys); i++) insitu__mem_free(keys[i]);
  INSITU__ARRAY_FREE(keys);
}

/* ---- dates ---- */

struct info_dates { /* a piece of a coordinate on its way into memory */
  insitu_loader *loader;
  struct info_array *a;
  uint64_t start, stop;
  struct insitu__loader_coordinate at;
  insitu_status status;
};
static void info_dates_await(void *arg) {
  struct info_dates *d = (struct info_dates *)arg;
  d->status = insitu__dates_read_await(
      d->loader, &d->a->z, false, d->start, d->stop, &d->at, &d->a->undated);
}
/* Samples [start, stop): their first and last date, and whether all follow each other by a->every,
 * which sample 0 and 1 set. */
static bool info_dates_read(struct info *f, struct info_array *a, uint64_t start, uint64_t stop,
    int64_t *first, int64_t *last) {
  struct info_dates d = {.loader = f->loader, .a = a, .start = start, .stop = stop};
  d.at = (struct insitu__loader_coordinate){.bits = (uint64_t *)tool_alloc(stop - start, 8),
      .dtype = insitu__dates_dtype(&a->z, false),
      .dated = true,
      .units = a->units};
  bool ok = insitu__reactor_call(&f->loader->reactor, info_dates_await, &d) == INSITU_OK &&
            d.status == INSITU_OK;
  int64_t before = ok ? insitu__dates_at(&d.at, 0) : 0;
  if (ok) *first = *last = before;
  if (!start) a->every = ok && stop > 1 ? insitu__dates_at(&d.at, 1) - before : 0;
  for (uint64_t i = 1; ok && i < stop - start; i++, before = *last) {
    *last = insitu__dates_at(&d.at, i);
    if (*last - before != a->every) a->every = 0;
  }
  insitu__mem_free(d.at.bits);
  return ok;
}
/* Reads the first and the last chunk of a coordinate of time. */
static void info_dates(struct info *f, struct info_array *a) {
  char units[256];
  int token = insitu__text_json_get(a->node.attributes_doc, a->node.attributes, "units");
  uint64_t n = a->shape[0];
  int64_t other;
  if (a->err.status || a->z.ndim != 1 || !n || a->z.dtype >> 8 > 2) return;
  if (a->z.kind != INSITU__ZARR_DATE &&
      (insitu__text_json_string(a->node.attributes_doc, token, units, sizeof units) < 0 ||
          !strcasestr(units, " since ")))
    return;
  if (insitu__dates_units(&a->z, &a->units, &a->undated) < 0) return;
  insitu_loader_desc desc = tool_desc(f->url);
  desc.plan_only = 1;
  if (!f->loader && insitu_loader_open(&desc, &f->loader, &a->undated) < 0) return;
  uint64_t chunk = insitu__base_min(n, a->z.chunk[0]), last = (n - 1) / chunk * chunk;
  a->dated = info_dates_read(f, a, 0, insitu__base_max(chunk, insitu__base_min(n, 2)), &a->date[0],
                 &a->date[1]) &&
             (!last || info_dates_read(f, a, last, n, &other, &a->date[1]));
  int64_t all;
  if (!a->dated || __builtin_mul_overflow(a->every, (int64_t)n - 1, &all) ||
      all != a->date[1] - a->date[0])
    a->every = 0;
  if (a->n_values && !a->regular) a->every = 0; /* between the first and the last chunk */
}
/* "6 h" */
static const char *info_step(int64_t every, char text[32]) {
  static const struct {
    const char *name;
    int64_t us;
  } unit[] = {{"d", INSITU__TIME_DAY}, {"h", 3600000000}, {"min", 60000000}, {"s", 1000000},
      {"ms", 1000}, {"us", 1}};
  size_t i = 0;
  while (every % unit[i].us) i++;
  snprintf(text, 32, "%" PRId64 " %s", every / unit[i].us, unit[i].name);
  return text;
}
