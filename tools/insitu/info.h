/* insitu info: what is in an archive, what this build can read of it, and what training from it
 * would take. */
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
  /* chunk: of the stored object */
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
  bool regular;
  /* dates, where the units are those of time: of the first and the last sample */
  bool dated;
  struct insitu__time_units units;
  /* microseconds; every 0: its first and last chunk hold steps of several lengths */
  int64_t date[2], every;
  insitu_error undated; /* status < 0: why there are none */
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
    uint64_t along = a->chunk[i] ? insitu__base_ceil_div(a->shape[i], a->chunk[i]) : 0;
    if (!insitu__base_mul(a->objects, along, &a->objects)) a->objects = 0;
  }
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
  const struct insitu__text_json *j = &f->archive.group.doc;
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
static void info_sizes(struct info *f) {
  char root[INSITU__MAX_KEY], path[2 * INSITU__MAX_KEY];
  insitu_error err = {0};
  int kind;
  f->sized = !info_no_size &&
             !insitu__store_is_remote(&f->archive.store) && /* whose listings tell names alone */
             insitu__text_url_parse(f->url, &kind, root, sizeof root, &err) == INSITU_OK;
  for (uint64_t i = 0; i < f->n; i++) {
    struct info_array *a = &f->arrays[i];
    f->decoded += a->decoded;
    if (!f->sized) continue;
    if (f->archive.store.base) {
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
    uint64_t at = i * r->object.chunk[0],
             count = insitu__base_min(r->object.chunk[0], r->z->shape[0] - at);
    if (insitu__zarr_chunk_key(r->z, &i, key, sizeof key) < 0) r->status = INSITU_E_ARG;
    else r->status = insitu__store_get_await(&r->info->archive.store, key, limit, &text, &n, &err);
    bool absent = r->status == INSITU_E_NOTFOUND;
    if (absent) r->status = INSITU_OK;
    for (uint64_t k = 0; absent && k < count; k++)
      memcpy(r->piece + k * r->z->itemsize, r->z->fill, r->z->itemsize);
    if (r->status < 0) break;
    if (!absent) {
      r->status = insitu__chain_decode(
          r->object.codecs, &r->scratch, text, n, r->object.bytes, &sink, &err);
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
  int64_t *moment;
  insitu_status status;
};
static void info_dates_await(void *arg) {
  struct info_dates *d = (struct info_dates *)arg;
  d->status = insitu__dates_read_await(
      d->loader, &d->a->z, &d->a->units, d->start, d->stop, d->moment, &d->a->undated);
}
/* Samples [start, stop): their first and last date, and whether all follow each other by a->every,
 * which sample 0 and 1 set. */
static bool info_dates_read(struct info *f, struct info_array *a, uint64_t start, uint64_t stop,
    int64_t *first, int64_t *last) {
  struct info_dates d = {.loader = f->loader, .a = a, .start = start, .stop = stop};
  d.moment = (int64_t *)tool_alloc(stop - start, sizeof *d.moment);
  bool ok = insitu__reactor_call(&f->loader->reactor, info_dates_await, &d) == INSITU_OK &&
            d.status == INSITU_OK;
  if (ok && !start) a->every = stop > 1 ? d.moment[1] - d.moment[0] : 0;
  for (uint64_t i = 1; ok && i < stop - start; i++)
    if (d.moment[i] - d.moment[i - 1] != a->every) a->every = 0;
  if (ok) *first = d.moment[0];
  if (ok) *last = d.moment[stop - start - 1];
  insitu__mem_free(d.moment);
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

/* ---- text ---- */

/* "label  text", the label filled to a width, the text wrapped at spaces to the columns of the
 *         page. */
static void info_line_at(const char *label, int width, const char *text) {
  printf("    %s", tool_style(TOOL_DIM));
  tool_put_padded(label, width);
  printf("%s  ", tool_style(TOOL_PLAIN));
  tool_wrap(text, (size_t)width + 6, insitu__base_max((uint64_t)width, strlen(label)) + 6);
}
static void info_line(const char *label, const char *text) {
  info_line_at(label, 7, text);
}
static void info_join(struct insitu__text_buffer *b, unsigned n, const uint64_t *extent) {
  if (!n) insitu__text_buffer_printf(b, "scalar");
  for (unsigned i = 0; i < n; i++)
    insitu__text_buffer_printf(b, "%s%" PRIu64, i ? " x " : "", extent[i]);
}
static void info_codec_value(
    struct insitu__text_buffer *b, const struct insitu__text_json *j, int token) {
  uint64_t n;
  const char *span = insitu__text_json_span(j, token, &n);
  bool quoted = n > 1 && span[0] == '"';
  for (uint64_t i = quoted; span && i < n - quoted; i++)
    if (span[i] != '\n' &&
        !(span[i] == ' ' && i && (span[i - 1] == ' ' || span[i - 1] == '\n' || span[i - 1] == '[')))
      insitu__text_buffer_bytes(b, &span[i], 1);
}
/* A list of codecs joined by arrows, or one: name(key value, ...). v2 has "id" beside its
 * parameters, v3 "name" and "configuration", whose members may be lists of codecs (sharding). */
static void info_codecs(
    struct insitu__text_buffer *b, const struct insitu__text_json *j, int token) {
  if (insitu__text_json_is_array(j, token)) {
    for (int t = insitu__text_json_first(j, token), i = 0; t >= 0;
         t = insitu__text_json_next(j, t), i++) {
      if (i) insitu__text_buffer_printf(b, " -> ");
      info_codecs(b, j, t);
    }
    return;
  }
  char name[64];
  int id = insitu__text_json_get(j, token, "name"), members = info_configuration(j, token),
      shown = 0;
  if (insitu__text_json_is_string(j, token)) id = token;
  if (id < 0) {
    id = insitu__text_json_get(j, token, "id");
    members = token;
  }
  info_text(j, id, name, sizeof name);
  insitu__text_buffer_printf(b, "%s", name[0] ? name : "?");
  for (int t = insitu__text_json_first(j, members); t >= 0; t = insitu__text_json_next(j, t)) {
    int value = insitu__text_json_value(j, t), first = insitu__text_json_first(j, value);
    if (value == id) continue;
    info_text(j, t, name, sizeof name);
    insitu__text_buffer_printf(b, "%s%s ", shown++ ? ", " : "(", name);
    bool list =
        insitu__text_json_is_array(j, value) && first >= 0 && !insitu__text_json_is_plain(j, first);
    insitu__text_buffer_printf(b, "%s", list ? "[" : "");
    if (list) info_codecs(b, j, value);
    else info_codec_value(b, j, value);
    insitu__text_buffer_printf(b, "%s", list ? "]" : "");
  }
  if (shown) insitu__text_buffer_printf(b, ")");
}
static void info_array_codecs(
    const struct info *f, const struct info_array *a, struct insitu__text_buffer *b) {
  const struct insitu__text_json *j = a->node.doc;
  if (f->archive.group.format == 3) {
    info_codecs(b, j, insitu__text_json_get(j, a->node.node, "codecs"));
    return;
  }
  int filters = insitu__text_json_get(j, a->node.node, "filters");
  int compressor = insitu__text_json_get(j, a->node.node, "compressor");
  bool filtered = insitu__text_json_size(j, filters) > 0,
       compressed = insitu__text_json_is_object(j, compressor);
  if (filtered) info_codecs(b, j, filters);
  if (filtered && compressed) insitu__text_buffer_printf(b, " -> ");
  if (compressed) info_codecs(b, j, compressor);
  if (!filtered && !compressed) insitu__text_buffer_printf(b, "none (raw)");
  if (insitu__text_json_equals(j, insitu__text_json_get(j, a->node.node, "order"), "F"))
    insitu__text_buffer_printf(b, "; Fortran order");
}

static void info_print_attributes(const struct insitu__text_json *j, int attributes) {
  uint64_t width = 7;
  for (int t = insitu__text_json_first(j, attributes); t >= 0; t = insitu__text_json_next(j, t)) {
    uint64_t n;
    insitu__text_json_span(j, t, &n);
    if (!insitu__text_json_equals(j, t, "_ARRAY_DIMENSIONS") && n - 1 <= 24)
      width = insitu__base_max(width, n - 1);
  }
  for (int t = insitu__text_json_first(j, attributes); t >= 0; t = insitu__text_json_next(j, t)) {
    struct insitu__text_buffer b = {.limit = 1 << 20};
    char name[256], label[258];
    uint64_t n;
    info_text(j, t, name, sizeof name);
    if (strcmp(name, "_ARRAY_DIMENSIONS") == 0) continue; /* shown with the shape */
    snprintf(label, sizeof label, ":%s", name);
    const char *span = insitu__text_json_span(j, insitu__text_json_value(j, t), &n);
    uint64_t room = INFO_COLUMNS - 6 - insitu__base_max(width, insitu__base_min(strlen(label), 60));
    bool cut = !info_attributes && n > room;
    /* line ends and indents between values become one space */
    for (uint64_t i = 0; i < n && (!cut || b.n < room - 3); i++) {
      bool space = span[i] == ' ' || span[i] == '\n' || span[i] == '\t' || span[i] == '\r';
      if (!space || (b.n && b.text[b.n - 1] != ' '))
        insitu__text_buffer_bytes(&b, space ? " " : &span[i], 1);
    }
    while (cut && b.n && (b.text[b.n - 1] & 0x80)) b.n--; /* not in the middle of a character */
    if (cut) insitu__text_buffer_printf(&b, "...");
    info_line_at(label, (int)width, b.text ? b.text : "");
    insitu__text_buffer_free(&b);
  }
}

static void info_print_chunk(const struct info_array *a) {
  struct insitu__text_buffer b = {0};
  char text[32];
  uint64_t inner = a->itemsize, per_object = 1;
  if (!a->has_chunk) {
    info_line("chunk", "not a regular grid");
    return;
  }
  for (unsigned i = 0; a->sharded && i < a->ndim; i++) {
    inner *= a->inner[i];
    per_object *= a->inner[i] ? a->chunk[i] / a->inner[i] : 0;
  }
  if (a->sharded) {
    info_join(&b, a->ndim, a->chunk);
    if (a->itemsize) insitu__text_buffer_printf(&b, ", %s", tool_bytes(text, a->object_bytes));
    insitu__text_buffer_printf(
        &b, "; %s object%s", tool_count(text, a->objects), a->objects == 1 ? "" : "s");
    insitu__text_buffer_printf(&b, " of %s chunks", tool_count(text, per_object));
    info_line("shard", b.text);
    insitu__text_buffer_free(&b);
  }
  info_join(&b, a->ndim, a->sharded ? a->inner : a->chunk);
  if (a->itemsize)
    insitu__text_buffer_printf(&b, ", %s", tool_bytes(text, a->sharded ? inner : a->object_bytes));
  if (!a->sharded)
    insitu__text_buffer_printf(
        &b, "; %s chunk%s", tool_count(text, a->objects), a->objects == 1 ? "" : "s");
  if (!a->sharded && a->objects > 1 && a->ndim > 1) {
    insitu__text_buffer_printf(&b, " = ");
    for (unsigned i = 0; i < a->ndim; i++)
      insitu__text_buffer_printf(
          &b, "%s%" PRIu64, i ? " x " : "", insitu__base_ceil_div(a->shape[i], a->chunk[i]));
  }
  info_line("chunk", b.text);
  insitu__text_buffer_free(&b);
}
static void info_print_size(const struct info_array *a) {
  char decoded[16], stored[16], objects[32], all[32] = "", text[200] = "";
  int n = 0;
  if (a->decoded)
    n = snprintf(text, sizeof text, "%s%s", tool_bytes(decoded, a->decoded), a->sized ? ", " : "");
  if (a->sized && n >= 0) {
    if (a->objects) tool_count(all, a->objects);
    n += snprintf(text + n, sizeof text - (size_t)n, "stored%s %s in %s%s%s object%s",
        a->cut ? " at least" : "", tool_bytes(stored, a->stored),
        tool_count(objects, a->stored_objects), a->objects ? " of " : "", all,
        (a->objects ? a->objects : a->stored_objects) == 1 ? "" : "s");
    if (a->decoded && a->stored && !a->cut && a->stored_objects == a->objects)
      snprintf(
          text + n, sizeof text - (size_t)n, ", %.3g to 1", (double)a->decoded / (double)a->stored);
  }
  info_line("size", text);
}
static void info_print_values(const struct info_array *a) {
  char text[200], units[80] = "";
  if (!a->n_values) return;
  int token = insitu__text_json_get(a->node.attributes_doc, a->node.attributes, "units");
  if (token >= 0) info_text(a->node.attributes_doc, token, units, sizeof units);
  int n = snprintf(text, sizeof text, "%.12g", a->first);
  if (a->n_values > 1) n += snprintf(text + n, sizeof text - (size_t)n, " to %.12g", a->last);
  if (units[0]) n += snprintf(text + n, sizeof text - (size_t)n, " %s", units);
  if (a->regular) snprintf(text + n, sizeof text - (size_t)n, ", regular, step %.9g", a->step);
  else if (a->n_values > 1) snprintf(text + n, sizeof text - (size_t)n, ", not regular");
  info_line("values", text);
}
static void info_print_dates(const struct info_array *a) {
  insitu_date first, last;
  char step[32], text[200];
  if (a->undated.status) info_line("dates", a->undated.message);
  if (!a->dated) return;
  insitu__time_date(a->units.calendar, a->date[0], &first);
  insitu__time_date(a->units.calendar, a->date[1], &last);
  snprintf(text, sizeof text, "%s .. %s, %s%s, %s", first.text, last.text,
      a->every ? "every " : "not regular", a->every ? info_step(a->every, step) : "",
      insitu__time_calendars[a->units.calendar]);
  info_line("dates", text);
}
static void info_print_array(const struct info *f, const struct info_array *a) {
  struct insitu__text_buffer b = {0};
  char text[200];
  printf("\n%s", tool_style(TOOL_BOLD));
  tool_put_padded(a->path[0] ? a->path : "/", 0);
  printf("%s  ", tool_style(TOOL_PLAIN));
  insitu__text_buffer_printf(
      &b, "%s%s (", a->dtype[0] ? a->dtype : "?", a->big ? " big-endian" : "");
  for (unsigned i = 0; i < a->ndim; i++)
    insitu__text_buffer_printf(&b, "%s%s%s%" PRIu64, i ? ", " : "", a->dim[i] ? a->dim[i] : "",
        a->dim[i] ? " " : "", a->shape[i]);
  insitu__text_buffer_printf(&b, "%s)", a->has_shape && !a->ndim ? "scalar" : "");
  if (b.n + strlen(a->path) + 2 > INFO_COLUMNS) printf("\n    ");
  tool_put_padded(b.text, 0);
  printf("\n");
  insitu__text_buffer_free(&b);
  if (a->err.status) {
    info_line("REFUSED", a->err.message);
  }
  if (a->node.node < 0) return;
  info_print_chunk(a);
  info_array_codecs(f, a, &b);
  info_line("codecs", b.text);
  insitu__text_buffer_free(&b);
  info_text(a->node.doc, a->fill, text, sizeof text);
  info_line("fill", a->fill < 0 ? "none" : text[0] ? text : "\"\"");
  if (a->decoded || a->sized) info_print_size(a);
  info_print_values(a);
  info_print_dates(a);
  info_print_attributes(a->node.attributes_doc, a->node.attributes);
}

/* columns of the table, bytes of a cell, least columns of a name */
enum { INFO_CELLS = 6, INFO_CELL = 400, INFO_NAME = 24 };
/* A name of the tree, indented by its depth: a group's path, an array's last part. */
static void info_tree_name(const char *path, bool group, char *to, size_t cap) {
  int depth = 0;
  for (const char *p = path; *p; p++) depth += *p == '/';
  const char *last = strrchr(path, '/');
  snprintf(to, cap, "%*s%s%s", 2 * depth, "", last && !group ? last + 1 : path,
      group || !path[0] ? "/" : "");
}
static void info_extents_text(char *to, size_t cap, unsigned n, const uint64_t *extent) {
  size_t at = 0;
  to[0] = 0;
  if (!n) snprintf(to, cap, "scalar");
  for (unsigned i = 0; i < n && at < cap; i++)
    at += (size_t)snprintf(to + at, cap - at, "%s%" PRIu64, i ? "x" : "", extent[i]);
}
/* The cells of an array's line. */
static void info_cells(const struct info_array *a, char cell[INFO_CELLS][INFO_CELL]) {
  info_tree_name(a->path, false, cell[0], INFO_CELL);
  snprintf(cell[1], INFO_CELL, "%s%.24s", a->big ? ">" : "", a->dtype);
  info_extents_text(cell[2], INFO_CELL, a->ndim, a->shape);
  if (a->has_chunk)
    info_extents_text(cell[3], INFO_CELL, a->ndim, a->sharded ? a->inner : a->chunk);
  else snprintf(cell[3], INFO_CELL, "?");
  if (!a->ndim) cell[3][0] = 0;
  cell[4][0] = cell[5][0] = 0;
  if (a->decoded) tool_bytes(cell[4], a->decoded);
  if (a->err.status) snprintf(cell[5], INFO_CELL, "refused");
  else if (a->decoded && a->sized && !a->cut && a->stored && a->stored_objects == a->objects)
    snprintf(cell[5], INFO_CELL, "%.3g:1", (double)a->decoded / (double)a->stored);
}
static void info_print_row(
    char cell[INFO_CELLS][INFO_CELL], const int *width, enum tool_style style) {
  printf("  %s", tool_style(style));
  /* a group's line */
  bool alone = !cell[1][0] && !cell[2][0];
  /* in full below the table */
  if (!alone && strlen(cell[0]) > (size_t)width[0]) snprintf(cell[0] + width[0] - 2, 3, "..");
  tool_put_padded(cell[0], alone ? 0 : width[0]);
  printf("%s", tool_style(TOOL_PLAIN));
  for (int i = 1; i < INFO_CELLS; i++) {
    int last = i;
    while (last < INFO_CELLS && !cell[last][0]) last++;
    if (last == INFO_CELLS) break; /* no spaces at the end of a line */
    printf("  ");
    if (i >= 4)
      for (int k = (int)strlen(cell[i]); k < width[i]; k++) putchar(' ');
    bool more = false;
    for (int k = i + 1; k < INFO_CELLS; k++) more = more || cell[k][0];
    tool_put_padded(cell[i], i < 4 && more ? width[i] : 0);
  }
  printf("\n");
}
static void info_print_tree(const struct info *f) {
  char cell[INFO_CELLS][INFO_CELL];
  static const char *const head[INFO_CELLS] = {"", "type", "shape", "chunk", "size", "ratio"};
  int width[INFO_CELLS] = {0};
  for (uint64_t i = 0; i < f->n; i++) {
    info_cells(&f->arrays[i], cell);
    for (int k = 0; k < INFO_CELLS; k++)
      width[k] = (int)insitu__base_max((uint64_t)width[k], strlen(cell[k]));
  }
  for (int k = 0; k < INFO_CELLS; k++) {
    width[k] = (int)insitu__base_max((uint64_t)width[k], strlen(head[k]));
    snprintf(cell[k], INFO_CELL, "%s", head[k]);
  }
  int others = 0;
  for (int k = 1; k < INFO_CELLS; k++) others += width[k] + 2;
  width[0] = (int)insitu__base_min((uint64_t)width[0],
      (uint64_t)(others + INFO_NAME + 2 < INFO_COLUMNS ? INFO_COLUMNS - 2 - others : INFO_NAME));
  printf("\n");
  if (f->n) info_print_row(cell, width, TOOL_PLAIN);
  for (uint64_t i = 0, g = 0; i < f->n || g < f->n_groups;) {
    bool group = i == f->n || (g < f->n_groups &&
                                  tool_archive_compare(&f->groups[g].path, &f->arrays[i].path) < 0);
    memset(cell, 0, sizeof cell);
    if (group) info_tree_name(f->groups[g].path, true, cell[0], INFO_CELL);
    else info_cells(&f->arrays[i], cell);
    if (!group || f->groups[g].path[0])
      info_print_row(cell, width,
          group                     ? TOOL_CYAN
          : f->arrays[i].err.status ? TOOL_DIM
                                    : TOOL_BOLD);
    if (group) g++;
    else i++;
  }
}
static void info_print_groups(const struct info *f) {
  for (uint64_t i = 0; i < f->n_groups; i++) {
    const struct info_group *g = &f->groups[i];
    if (!insitu__text_json_size(&g->attributes, 0)) continue;
    printf("\n%s", tool_style(TOOL_CYAN));
    tool_put_padded(g->path, 0);
    printf("/%s\n", tool_style(TOOL_PLAIN));
    info_print_attributes(&g->attributes, 0);
  }
}

/* ---- OME-NGFF multiscales ---- */

/* The images of a group: a list, -1 for none (OME-NGFF 0.1 to 0.4: "multiscales", 0.5:
 * "ome"."multiscales"). Their version goes to version. */
static int info_multiscales(const struct info_group *g, char *version, size_t cap) {
  const struct insitu__text_json *j = &g->attributes;
  int ome = g->text ? insitu__text_json_get(j, 0, "ome") : -1;
  int list = g->text ? insitu__text_json_get(j, ome >= 0 ? ome : 0, "multiscales") : -1;
  version[0] = 0;
  if (!insitu__text_json_is_array(j, list)) return -1;
  if (ome >= 0) info_text(j, insitu__text_json_get(j, ome, "version"), version, cap);
  return list;
}
static void info_image_version(
    const struct insitu__text_json *j, int image, char *version, size_t cap) {
  int token = insitu__text_json_get(j, image, "version");
  if (token >= 0) info_text(j, token, version, cap);
}
/* The values of the transformation of this type in a list of them; -1: there is none. */
static int info_transformation(const struct insitu__text_json *j, int object, const char *type) {
  int list = insitu__text_json_get(j, object, "coordinateTransformations");
  for (int t = insitu__text_json_first(j, list); t >= 0; t = insitu__text_json_next(j, t))
    if (insitu__text_json_equals(j, insitu__text_json_get(j, t, "type"), type))
      return insitu__text_json_get(j, t, type);
  return -1;
}
static const char *const info_transformation_types[] = {"scale", "translation"};
static void info_transformations(
    struct insitu__text_buffer *b, const struct insitu__text_json *j, int object) {
  char text[64];
  for (size_t i = 0; i < TOOL_COUNT(info_transformation_types); i++) {
    int list = info_transformation(j, object, info_transformation_types[i]);
    if (list < 0) continue;
    insitu__text_buffer_printf(b, "%s%s", b->n ? "; " : "", info_transformation_types[i]);
    for (int t = insitu__text_json_first(j, list); t >= 0; t = insitu__text_json_next(j, t)) {
      info_text(j, t, text, sizeof text);
      insitu__text_buffer_printf(b, " %s", text);
    }
  }
}
/* The array that an image's dataset names; NULL: there is none of this path. */
static const struct info_array *info_dataset(
    const struct info *f, const struct info_group *g, int dataset, char *path, size_t cap) {
  char name[INSITU__MAX_KEY], whole[2 * INSITU__MAX_KEY];
  const struct insitu__text_json *j = &g->attributes;
  path[0] = 0;
  if (insitu__text_json_string(j, insitu__text_json_get(j, dataset, "path"), name, sizeof name) < 0)
    return NULL;
  snprintf(whole, sizeof whole, "%s/%s", g->path, name);
  if (!insitu__group_normalise(whole, path, cap)) return NULL;
  /* the first member: what tool_archive_compare looks at */
  const struct info_array key = {.path = path};
  return (const struct info_array *)bsearch(
      &key, f->arrays, (size_t)f->n, sizeof key, tool_archive_compare);
}
static void info_print_dataset(const struct info *f, const struct info_group *g, int dataset) {
  char path[INSITU__MAX_KEY], shape[INFO_CELL], chunk[INFO_CELL];
  const struct insitu__text_json *j = &g->attributes;
  const struct info_array *a = info_dataset(f, g, dataset, path, sizeof path);
  struct insitu__text_buffer b = {0};
  if (!a) insitu__text_buffer_printf(&b, "no such array");
  else {
    info_extents_text(shape, sizeof shape, a->ndim, a->shape);
    info_extents_text(chunk, sizeof chunk, a->ndim, a->sharded ? a->inner : a->chunk);
    insitu__text_buffer_printf(&b, "%s %s, chunk %s%s", a->dtype, shape, a->has_chunk ? chunk : "?",
        a->err.status ? ", refused" : "");
  }
  info_transformations(&b, j, dataset);
  info_line(path[0] ? path : "?", b.text);
  insitu__text_buffer_free(&b);
}
static void info_print_image(
    const struct info *f, const struct info_group *g, int image, const char *version) {
  const struct insitu__text_json *j = &g->attributes;
  char name[200] = "";
  struct insitu__text_buffer b = {0};
  int axes = insitu__text_json_get(j, image, "axes"),
      datasets = insitu__text_json_get(j, image, "datasets");
  int token = insitu__text_json_get(j, image, "name");
  if (token >= 0) info_text(j, token, name, sizeof name);
  printf("\n%sImage ", tool_style(TOOL_BOLD));
  tool_put_padded(g->path[0] ? g->path : "/", 0);
  printf("%s  ", tool_style(TOOL_PLAIN));
  if (name[0]) tool_put_padded(name, 0);
  printf("%sOME-NGFF%s%s\n", name[0] ? ", " : "", version[0] ? " " : "", version);
  for (int t = insitu__text_json_first(j, axes); t >= 0; t = insitu__text_json_next(j, t)) {
    static const char *const part[] = {"name", "type", "unit"};
    insitu__text_buffer_printf(&b, "%s", b.n ? ", " : "");
    if (insitu__text_json_is_string(j, t))
      info_text(j, t, name, sizeof name), insitu__text_buffer_printf(&b, "%s", name);
    for (size_t i = 0; i < TOOL_COUNT(part); i++) {
      int word = insitu__text_json_get(j, t, part[i]);
      if (word < 0) continue;
      info_text(j, word, name, sizeof name);
      insitu__text_buffer_printf(&b, "%s%s", i ? " " : "", name);
    }
  }
  if (b.n) info_line("axes", b.text);
  insitu__text_buffer_free(&b);
  for (int t = insitu__text_json_first(j, datasets); t >= 0; t = insitu__text_json_next(j, t))
    info_print_dataset(f, g, t);
  info_transformations(&b, j, image);
  if (b.n) info_line("all", b.text);
  insitu__text_buffer_free(&b);
}
static void info_print_images(const struct info *f) {
  char common[32], version[32];
  for (uint64_t i = 0; i < f->n_groups; i++) {
    const struct info_group *g = &f->groups[i];
    int list = info_multiscales(g, common, sizeof common);
    if (list < 0) continue;
    for (int t = insitu__text_json_first(&g->attributes, list); t >= 0;
         t = insitu__text_json_next(&g->attributes, t)) {
      snprintf(version, sizeof version, "%s", common);
      info_image_version(&g->attributes, t, version, sizeof version);
      info_print_image(f, g, t, version);
    }
  }
}

/* ---- what training would take ---- */

struct info_axis { /* arrays that share a sample axis */
  const char *dim; /* NULL: unnamed, then it is axis 0 */
  uint64_t samples, decoded;
  struct info_array **member; /* a growing array of >>array */
  unsigned ndim;              /* of the members that a suggestion is made for */
};
struct info_suggestion {
  const struct info_axis *axis;
  insitu_variable variables[INFO_MAX_PLANNED];
  insitu_loader_desc desc; /* what was asked for; the answer is in config and plan */
  const char *shown;       /* its url, without credentials */
  insitu_loader *loader;
  const insitu_loader_desc *config;
  insitu_plan plan;
  insitu_slice slices[INSITU__MAX_DIMS]; /* of every variable */
  uint64_t n_slices;
  uint64_t n_left_out;         /* members beyond INFO_MAX_PLANNED, or that would not fit */
  char other[3][INFO_COLUMNS]; /* what else fits, where whole samples of all variables do not */
  int n_other;
  insitu_error err; /* status < 0: there is no plan */
};

/* the first that is named like time, else axis 0 */
static unsigned info_sample_axis(const struct info_array *a) {
  static const char *const names[] = {"t", "date", "step", "sample", "samples"};
  for (unsigned i = 0; i < a->ndim; i++) {
    if (!a->dim[i]) continue;
    if (strcasestr(a->dim[i], "time")) return i;
    for (size_t k = 0; k < TOOL_COUNT(names); k++)
      if (strcasecmp(a->dim[i], names[k]) == 0) return i;
  }
  return 0;
}
static const char *info_last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
/* The words of all "coordinates" attributes (CF conventions, 5): names of arrays that describe
 * others. A growing array. */
static char **info_coordinate_names(const struct info *f) {
  char **names = NULL, text[4096], *rest;
  for (uint64_t i = 0; i < f->n; i++) {
    const struct info_array *a = &f->arrays[i];
    int token = insitu__text_json_get(a->node.attributes_doc, a->node.attributes, "coordinates");
    if (token < 0 || insitu__text_json_string(a->node.attributes_doc, token, text, sizeof text) < 0)
      continue;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
      uint64_t k = 0, n = INSITU__ARRAY_LEN(names);
      while (k < n && strcmp(names[k], word)) k++;
      if (k == n && n < 1000 && !INSITU__ARRAY_PUSH(names, tool_copy(word))) tool_no_memory();
    }
  }
  return names;
}
/* or named as its only dimension */
static bool info_is_coordinate(const struct info_array *a, char *const *names) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(names); i++)
    if (strcmp(names[i], info_last_name(a->path)) == 0) return true;
  return a->ndim == 1 && a->dim[0] && strcmp(a->dim[0], info_last_name(a->path)) == 0;
}
static struct info_axis *info_axes(const struct info *f) {
  struct info_axis *axes = NULL;
  char **coordinates = info_coordinate_names(f);
  for (uint64_t i = 0; i < f->n; i++) {
    struct info_array *a = &f->arrays[i];
    if (a->err.status || !a->ndim || !a->decoded || info_is_coordinate(a, coordinates)) continue;
    unsigned axis = info_sample_axis(a);
    uint64_t k = 0, n = INSITU__ARRAY_LEN(axes);
    for (; k < n; k++)
      if (axes[k].samples == a->shape[axis] &&
          (axes[k].dim && a->dim[axis] ? strcmp(axes[k].dim, a->dim[axis]) == 0
                                       : axes[k].dim == a->dim[axis]))
        break;
    if (k == n && !INSITU__ARRAY_PUSH(
                      axes, (struct info_axis){.dim = a->dim[axis], .samples = a->shape[axis]}))
      tool_no_memory();
    axes[k].decoded += a->decoded;
    if (!INSITU__ARRAY_PUSH(axes[k].member, a)) tool_no_memory();
  }
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axes); k++) {
    uint64_t bytes[INSITU__MAX_DIMS + 1] = {0};
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes[k].member); i++)
      bytes[axes[k].member[i]->ndim] += axes[k].member[i]->decoded;
    for (unsigned d = 1; d <= INSITU__MAX_DIMS; d++)
      if (bytes[d] > bytes[axes[k].ndim]) axes[k].ndim = d;
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(coordinates); i++) insitu__mem_free(coordinates[i]);
  INSITU__ARRAY_FREE(coordinates);
  return axes;
}
static uint64_t info_chunks_per_sample(const struct info_array *a) {
  uint64_t n = 1;
  for (unsigned i = 0; i < a->ndim; i++)
    if (i != info_sample_axis(a)) n *= insitu__base_ceil_div(a->z.shape[i], a->z.chunk[i]);
  return n;
}

/* One try: opens a loader for the plan and plans the train split. */
static insitu_status info_try(struct info_suggestion *s) {
  const insitu_iter_desc iter = {.api = INSITU_API};
  memset(&s->err, 0, sizeof s->err);
  insitu_loader_close(&s->loader);
  insitu_status status = insitu_loader_open(&s->desc, &s->loader, &s->err);
  if (status == INSITU_OK) status = insitu_loader_plan(s->loader, &iter, &s->plan, &s->err);
  s->config = status == INSITU_OK ? insitu_loader_config(s->loader) : NULL;
  return status;
}
static uint64_t info_plan_bytes(const insitu_plan *p) {
  return p->slabs * p->slab_bytes + p->table_bytes + p->inflight_bytes + p->cache_bytes;
}
static void info_log(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}
/* Whether a loader and an iterator of it could be opened. */
static bool info_fits(const struct info_suggestion *s) {
  return s->err.status == INSITU_OK && s->config &&
         info_plan_bytes(&s->plan) <= s->config->memory_budget;
}
/* Less mixing, smaller batches and fewer of them ahead, until the plan fits. */
static bool info_shrink(struct info_suggestion *s) {
  insitu_status status = info_try(s);
  for (int i = 0; i < 40 && !info_fits(s); i++) {
    bool over = status == INSITU_OK;
    if (!over && status != INSITU_E_BUDGET && status != INSITU_E_SPLIT) break;
    /* no ring is smaller */
    if (over && s->desc.batch_size == 1 && 3 * s->plan.slab_bytes > s->config->memory_budget) break;
    if (status != INSITU_E_SPLIT && s->desc.block_chunks != 1)
      s->desc.block_chunks =
          insitu__base_max(1, (s->desc.block_chunks ? s->desc.block_chunks : 64) / 2);
    else if (s->desc.batch_size > 1) s->desc.batch_size /= 2;
    else if (over && s->desc.prefetch_depth != 1)
      s->desc.prefetch_depth = s->desc.prefetch_depth ? 1 : 2;
    else break;
    status = info_try(s);
  }
  return info_fits(s);
}
/* Batches of at most 256 MiB, and of at most an eighth of the samples. */
static void info_batch(struct info_suggestion *s, uint64_t row, uint64_t samples) {
  uint64_t batch = 32;
  while (batch > 1 && (batch * row > UINT64_C(256) << 20 || batch * 8 > samples)) batch /= 2;
  s->desc.batch_size = batch;
  s->desc.block_chunks = s->desc.prefetch_depth = 0;
}
/* Another configuration, to be changed and tried; the loader stays the first one's. */
static void info_variant(const struct info_suggestion *from, struct info_suggestion *s) {
  *s = *from;
  s->loader = NULL;
  s->config = NULL;
  s->desc.variables = s->variables;
}
static void info_set_slices(struct info_suggestion *s) {
  for (uint64_t i = 0; i < s->desc.n_variables; i++) {
    s->variables[i].slices = s->slices;
    s->variables[i].n_slices = s->n_slices;
  }
}
static bool info_is_space(const char *dim) {
  static const char *const names[] = {"lat", "lon", "latitude", "longitude", "x", "y", "z"};
  for (size_t i = 0; dim && i < TOOL_COUNT(names); i++)
    if (strcasecmp(dim, names[i]) == 0) return true;
  return false;
}
/* The longest axis that is neither the sample axis nor sliced yet, one without a place in space
 * before those; -1: none. */
static int info_longest(const struct info_array *a, const struct info_suggestion *s) {
  int best = -1;
  for (unsigned d = 0; d < a->ndim && d < a->z.axes; d++) {
    bool taken = d == info_sample_axis(a) || a->shape[d] < 2;
    for (uint64_t i = 0; i < s->n_slices; i++) taken = taken || s->slices[i].axis == (int32_t)d;
    if (taken) continue;
    bool space = info_is_space(a->dim[d]), best_space = best >= 0 && info_is_space(a->dim[best]);
    if (best < 0 || (space == best_space ? a->shape[d] > a->shape[best] : best_space))
      best = (int)d;
  }
  return best;
}
/* A part of each sample: slices along one axis after the other until it fits, whole chunks where
 * they are few enough. */
static bool info_try_slices(
    struct info_suggestion *s, const struct info_array *a, uint64_t row, uint64_t samples) {
  for (int d; !info_fits(s) && (d = info_longest(a, s)) >= 0;) {
    uint64_t budget = s->config ? s->config->memory_budget : 0, length = a->shape[d],
             chunk = a->z.chunk[d];
    uint64_t parts =
        budget ? insitu__base_ceil_div(8 * insitu__base_min(row, UINT64_MAX / 8), budget) : length;
    uint64_t kept = insitu__base_max(1, length / insitu__base_max(2, parts));
    if (kept > chunk) kept = kept / chunk * chunk;
    s->slices[s->n_slices++] =
        (insitu_slice){.dim = a->dim[d], .axis = (int32_t)d, .stop = (int64_t)kept};
    row = insitu__base_max(1, row / length * kept);
    info_set_slices(s);
    info_batch(s, row, samples);
    if (!info_shrink(s) && s->err.status && s->err.status != INSITU_E_BUDGET) return false;
  }
  return info_fits(s);
}
/* The first variables alone, whole. */
static bool info_try_fewer(struct info_suggestion *s, uint64_t row, uint64_t samples) {
  uint64_t all = s->desc.n_variables, each = insitu__base_max(1, row / insitu__base_max(1, all));
  uint64_t n = s->config ? s->config->memory_budget / 8 / each : 1;
  s->desc.n_variables = insitu__base_max(1, insitu__base_min(n, all - (all > 1)));
  s->n_left_out += all - s->desc.n_variables;
  info_batch(s, each * s->desc.n_variables, samples);
  return all > 1 && info_shrink(s);
}
/* Another axis to draw samples along, which has more of them and so smaller ones; the first sample
 * axis stays in each. */
static bool info_try_axis(
    struct info_suggestion *s, const struct info_array *a, uint64_t row, uint64_t samples) {
  int d = info_longest(a, s);
  if (d < 0 || info_is_space(a->dim[d]) || a->shape[d] <= samples) return false;
  s->desc.sample_dim = a->dim[d];
  s->desc.sample_axis = a->dim[d] ? 0 : d;
  info_batch(s, row / a->shape[d] * samples, a->shape[d]);
  return info_shrink(s);
}
static void info_name_other(
    struct info_suggestion *s, const struct info_suggestion *v, const char *what) {
  char text[16];
  snprintf(s->other[s->n_other++], sizeof s->other[0], "%s: %s", what,
      tool_bytes(text, info_plan_bytes(&v->plan)));
}
/* Whole samples of all variables do not fit: slices, fewer variables, another axis, or slices of
 * one variable. The first that fits becomes the suggestion, the others are named. */
static void info_suggest_part(struct info_suggestion *s, const struct info_array *a, uint64_t row) {
  static struct info_suggestion variant, chosen;
  bool any = false;
  uint64_t samples = s->axis->samples, budget = s->config ? s->config->memory_budget : 0,
           all = s->desc.n_variables;
  for (int kind = 0; kind < 4; kind++) {
    char what[INFO_COLUMNS] = "";
    if (kind == 3 && any) break;
    info_variant(s, &variant);
    variant.config = s->config; /* for its memory_budget; info_try sets another */
    bool fits = false;
    if (kind == 0 || kind == 3) {
      if (kind == 3) {
        variant.desc.n_variables = 1;
        variant.n_left_out += all - 1;
      }
      fits = info_try_slices(&variant, a, kind == 3 ? row / all : row, samples);
    } else if (kind == 1) {
      fits = info_try_fewer(&variant, row, samples);
      snprintf(what, sizeof what, "%" PRIu64 " of the %" PRIu64 " variables, whole",
          variant.desc.n_variables, all);
    } else {
      fits = info_try_axis(&variant, a, row, samples);
      snprintf(what, sizeof what, "all variables, sample_dim %.40s",
          variant.desc.sample_dim ? variant.desc.sample_dim : "NULL");
    }
    if (fits && any) info_name_other(s, &variant, what);
    if (!fits || any) {
      insitu_loader_close(&variant.loader);
      continue;
    }
    any = true;
    chosen = variant;
  }
  insitu_loader_close(&s->loader);
  if (!any) {
    char text[16], limit[16];
    uint64_t need = info_plan_bytes(&s->plan);
    s->config = NULL;
    memset(&s->err, 0, sizeof s->err);
    insitu__error_set(&s->err, INSITU_E_BUDGET,
        "no batch of this archive fits the memory: one sample of each variable takes %s, the limit "
        "is %s; raise memory_budget, or "
        "select much less with slices",
        tool_bytes(text, need), tool_bytes(limit, budget));
    return;
  }
  memcpy(chosen.other, s->other, sizeof s->other);
  chosen.n_other = s->n_other;
  *s = chosen;
  s->desc.variables = s->variables;
  info_set_slices(s);
}
/* A configuration that opens: planned before it is shown. */
static void info_suggest(
    const struct info *f, const struct info_axis *axis, struct info_suggestion *s) {
  uint64_t row = 0, n = 0;
  const struct info_array *first = NULL;
  memset(s, 0, sizeof *s);
  s->axis = axis;
  s->shown = tool_archive_name(&f->archive, f->url);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axis->member); i++) {
    const struct info_array *a = axis->member[i];
    if (a->ndim != axis->ndim) continue;
    if (n == INFO_MAX_PLANNED) {
      s->n_left_out++;
      continue;
    }
    if (!first) first = a;
    /* another array of the same name in another group: then the whole path is the label */
    bool twice = false;
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axis->member); k++)
      twice = twice || (k != i && strcmp(info_last_name(axis->member[k]->path),
                                      info_last_name(a->path)) == 0);
    s->variables[n++] = (insitu_variable){.label = !a->path[0] ? "x"
                                                   : twice     ? a->path
                                                               : info_last_name(a->path),
        .path = a->path};
    row += a->decoded / a->shape[info_sample_axis(a)];
  }
  s->desc = tool_desc(f->url);
  s->desc.variables = s->variables;
  s->desc.n_variables = n;
  s->desc.sample_dim = axis->dim;
  s->desc.plan_only = 1;
  s->desc.log = info_log;
  info_batch(s, row, axis->samples);
  if (!info_shrink(s)) {
    if (first && s->config && (s->err.status == INSITU_OK || s->err.status == INSITU_E_BUDGET))
      info_suggest_part(s, first, row);
    return;
  }
  /* larger units where chunks would be read again and again */
  while (s->plan.amplification > 1.1 && s->desc.unit_chunks < 8) {
    double before = s->plan.amplification;
    uint64_t units = s->desc.unit_chunks;
    s->desc.unit_chunks = units ? 2 * units : 2;
    info_try(s);
    if (info_fits(s) && s->plan.amplification < 0.9 * before) continue;
    s->desc.unit_chunks = units;
    info_try(s);
    break;
  }
}

static void info_print_c_string(const char *s) {
  struct insitu__text_buffer b = {0};
  for (; *s; s++) insitu__text_buffer_printf(&b, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
  putchar('"');
  tool_put_padded(b.text ? b.text : "", 0);
  putchar('"');
  insitu__text_buffer_free(&b);
}
static void info_print_desc(const struct info_suggestion *s) {
  const insitu_loader_desc *c = s->config;
  printf("\n");
  if (s->n_slices) printf("  insitu_slice slices[] = {");
  for (uint64_t i = 0; i < s->n_slices; i++) {
    printf("%s{.", i ? ", " : "");
    if (s->slices[i].dim) {
      printf("dim = ");
      info_print_c_string(s->slices[i].dim);
    } else printf("axis = %d", (int)s->slices[i].axis);
    printf(", .stop = %" PRId64 "}", s->slices[i].stop);
  }
  if (s->n_slices) printf("};\n");
  printf("  insitu_variable variables[] = {\n");
  for (uint64_t i = 0; i < s->desc.n_variables; i++) {
    const insitu_variable *v = &s->variables[i];
    printf("      {.label = ");
    info_print_c_string(v->label);
    if (strcmp(v->label, v->path)) {
      printf(", .path = ");
      info_print_c_string(v->path);
    }
    if (s->n_slices) printf(", .slices = slices, .n_slices = %" PRIu64, s->n_slices);
    printf("},\n");
  }
  if (s->n_left_out) printf("      /* and %" PRIu64 " more */\n", s->n_left_out);
  printf("  };\n  insitu_loader_desc desc = {.api = INSITU_API,\n      .url = ");
  info_print_c_string(s->shown);
  if (s->desc.n_options)
    printf(",\n      .options = options, /* as given to this command: none is repeated here */\n   "
           "   .n_options = %" PRIu64,
        s->desc.n_options);
  printf(
      ",\n      .variables = variables,\n      .n_variables = %" PRIu64 ",\n", s->desc.n_variables);
  if (c->sample_dim) {
    printf("      .sample_dim = ");
    info_print_c_string(c->sample_dim);
    printf(",\n");
  }
  printf("      .batch_size = %" PRIu64 ",\n      .block_chunks = %" PRIu64 "", c->batch_size,
      c->block_chunks);
  if (!c->sample_dim && c->sample_axis) printf(",\n      .sample_axis = %d", (int)c->sample_axis);
  if (c->unit_chunks > 1) printf(",\n      .unit_chunks = %" PRIu64, c->unit_chunks);
  if (s->desc.prefetch_depth) printf(",\n      .prefetch_depth = %" PRIu64, c->prefetch_depth);
  printf("};\n");
}
static void info_print_suggestion(const struct info_suggestion *s) {
  char a[16], b[16], c[16], d[16], text[400];
  const insitu_plan *p = &s->plan;
  printf("\n%sTo train on %s%s%s\n", tool_style(TOOL_BOLD),
      s->desc.n_variables == 1 ? "it" : "them", s->n_left_out ? " (the first of them)" : "",
      tool_style(TOOL_PLAIN));
  if (s->err.status) {
    info_line("no plan", s->err.message);
    return;
  }
  snprintf(text, sizeof text,
      "batch_size %" PRIu64 " (%s a batch), block_chunks %" PRIu64 ", unit_chunks %" PRIu64
      ", prefetch_depth %" PRIu64 ", max_inflight %" PRIu64 ", decode_threads %" PRIu64,
      s->config->batch_size, tool_bytes(a, p->slab_bytes), s->config->block_chunks,
      s->config->unit_chunks, s->config->prefetch_depth, s->config->max_inflight,
      s->config->decode_threads);
  info_line("knobs", text);
  for (uint64_t i = 0, n = 0; i < s->n_slices; i++) {
    const char *dim = s->slices[i].dim;
    n += (uint64_t)snprintf(text + n, sizeof text - n, "%s%.60s 0:%" PRId64, i ? ", " : "",
        dim ? dim : "an axis", s->slices[i].stop);
    if (n >= 200 || i + 1 == s->n_slices) {
      info_line("slices", text);
      break;
    }
  }
  snprintf(text, sizeof text,
      "%s = %" PRIu64 " batches of %s + %s in flight + %s tables%s%s; the limit is %s",
      tool_bytes(a, info_plan_bytes(p)), p->slabs, tool_bytes(b, p->slab_bytes),
      tool_bytes(c, p->inflight_bytes), tool_bytes(d, p->table_bytes),
      p->cache_bytes ? " + shard indexes in " : "",
      p->cache_bytes ? tool_bytes((char[16]){0}, p->cache_bytes) : "",
      tool_bytes((char[16]){0}, s->config->memory_budget));
  info_line("memory", text);
  if (s->n_slices || s->n_other)
    info_line("why", "whole samples of all variables do not fit the memory");
  for (int i = 0; i < s->n_other; i++) info_line("or", s->other[i]);
  snprintf(text, sizeof text,
      "%" PRIu64 " train sample%s in %" PRIu64 " batch%s; %s%" PRIu64 " reads of %" PRIu64
      " chunks (amplification %.2f), %s decoded",
      p->rows, p->rows == 1 ? "" : "s", p->batches, p->batches == 1 ? "" : "es",
      p->estimated ? "about " : "", p->reads, p->distinct, p->amplification,
      tool_bytes(a, p->read_bytes));
  info_line("epoch", text);
  if (p->variance_ratio > 0) {
    snprintf(text, sizeof text, "variance ratio of batch means %.2f%s", p->variance_ratio,
        p->variance_ratio < 1.5
            ? " (1 is an ideal shuffle)"
            : " (1 is an ideal shuffle; a larger block_chunks mixes more and takes more memory)");
    info_line("mixing", text);
  }
  info_print_desc(s);
}
static void info_print_axis(const struct info_axis *x) {
  char samples[32];
  int width = 5;
  uint64_t n = INSITU__ARRAY_LEN(x->member);
  for (uint64_t i = 0; i < n; i++)
    width =
        (int)insitu__base_max((uint64_t)width, insitu__base_min(44, strlen(x->member[i]->path)));
  printf("\n%sSample axis ", tool_style(TOOL_BOLD));
  tool_put_padded(x->dim ? x->dim : "0", 0);
  printf("%s: %s sample%s\n", tool_style(TOOL_PLAIN), tool_count(samples, x->samples),
      x->samples == 1 ? "" : "s");
  printf("    %-*s  %13s  %13s  %12s  %12s\n", width, "", "samples/chunk", "chunks/sample",
      "bytes/sample", "bytes/chunk");
  for (uint64_t i = 0; i < n; i++) {
    const struct info_array *a = x->member[i];
    unsigned axis = info_sample_axis(a);
    uint64_t chunk = a->z.itemsize;
    char sample[16], whole[16], per[32];
    for (unsigned k = 0; k < a->z.ndim; k++) chunk *= a->z.chunk[k];
    printf("    ");
    tool_put_padded(a->path[0] ? a->path : "/", width);
    printf("  %13" PRIu64 "  %13s  %12s  %12s\n", a->z.chunk[axis],
        tool_count(per, info_chunks_per_sample(a)), tool_bytes(sample, a->decoded / a->shape[axis]),
        tool_bytes(whole, chunk));
  }
}

/* ---- JSON ---- */

static void info_json_extents(
    struct tool_json_out *j, const char *key, unsigned n, const uint64_t *extent) {
  tool_json_list(j, key);
  for (unsigned i = 0; i < n; i++) tool_json_u64(j, NULL, extent[i]);
  tool_json_end(j);
}
static void info_json_array(
    struct tool_json_out *j, const struct info *f, const struct info_array *a) {
  const struct insitu__text_json *doc = a->node.doc;
  bool v3 = f->archive.group.format == 3;
  tool_json_object(j, NULL);
  tool_json_string(j, "path", a->path);
  tool_json_bool(j, "readable", !a->err.status);
  tool_json_string(j, "status", insitu_status_name(a->err.status));
  if (a->err.status) tool_json_string(j, "refusal", a->err.message);
  tool_json_string(j, "dtype", a->dtype);
  tool_json_string(j, "byte_order", a->itemsize < 2 ? NULL : a->big ? "big" : "little");
  if (a->has_shape) info_json_extents(j, "shape", a->ndim, a->shape);
  tool_json_list(j, "dimensions");
  for (unsigned i = 0; i < a->ndim; i++) tool_json_string(j, NULL, a->dim[i]);
  tool_json_end(j);
  if (a->has_chunk) info_json_extents(j, "chunk_shape", a->ndim, a->sharded ? a->inner : a->chunk);
  if (a->sharded) info_json_extents(j, "shard_shape", a->ndim, a->chunk);
  tool_json_u64(j, "objects", a->objects);
  tool_json_u64(j, "object_bytes", a->object_bytes);
  tool_json_u64(j, "decoded_bytes", a->decoded);
  if (a->sized) {
    tool_json_u64(j, "stored_bytes", a->stored);
    tool_json_u64(j, "stored_objects", a->stored_objects);
    tool_json_bool(j, "stored_complete", !a->cut);
  }
  tool_json_token(j, "fill_value", doc, a->fill);
  if (v3) tool_json_token(j, "codecs", doc, insitu__text_json_get(doc, a->node.node, "codecs"));
  else {
    tool_json_token(j, "filters", doc, insitu__text_json_get(doc, a->node.node, "filters"));
    tool_json_token(j, "compressor", doc, insitu__text_json_get(doc, a->node.node, "compressor"));
    tool_json_token(j, "order", doc, insitu__text_json_get(doc, a->node.node, "order"));
  }
  if (a->n_values) {
    tool_json_object(j, "values");
    tool_json_double(j, "first", a->first);
    tool_json_double(j, "last", a->last);
    tool_json_bool(j, "regular", a->regular);
    if (a->regular) tool_json_double(j, "step", a->step);
    tool_json_end(j);
  }
  if (a->dated) {
    insitu_date first, last;
    insitu__time_date(a->units.calendar, a->date[0], &first);
    insitu__time_date(a->units.calendar, a->date[1], &last);
    tool_json_object(j, "dates");
    tool_json_string(j, "first", first.text);
    tool_json_string(j, "last", last.text);
    tool_json_string(j, "calendar", insitu__time_calendars[a->units.calendar]);
    tool_json_bool(j, "regular", a->every != 0);
    if (a->every) tool_json_double(j, "step_seconds", (double)a->every / 1e6);
    tool_json_end(j);
  }
  tool_json_token(j, "attributes", a->node.attributes_doc, a->node.attributes);
  tool_json_end(j);
}
static void info_json_image(struct tool_json_out *out, const struct info *f,
    const struct info_group *g, int image, const char *version) {
  const struct insitu__text_json *j = &g->attributes;
  char path[INSITU__MAX_KEY];
  int axes = insitu__text_json_get(j, image, "axes"),
      datasets = insitu__text_json_get(j, image, "datasets");
  tool_json_object(out, NULL);
  tool_json_token(out, "name", j, insitu__text_json_get(j, image, "name"));
  tool_json_string(out, "version", version[0] ? version : NULL);
  tool_json_token(out, "axes", j, axes);
  tool_json_array(out, "datasets");
  for (int t = insitu__text_json_first(j, datasets); t >= 0; t = insitu__text_json_next(j, t)) {
    const struct info_array *a = info_dataset(f, g, t, path, sizeof path);
    tool_json_object(out, NULL);
    tool_json_string(out, "path", path);
    tool_json_bool(out, "found", a);
    if (a) tool_json_string(out, "dtype", a->dtype);
    if (a && a->has_shape) info_json_extents(out, "shape", a->ndim, a->shape);
    if (a && a->has_chunk)
      info_json_extents(out, "chunk_shape", a->ndim, a->sharded ? a->inner : a->chunk);
    for (size_t i = 0; i < TOOL_COUNT(info_transformation_types); i++)
      tool_json_token(out, info_transformation_types[i], j,
          info_transformation(j, t, info_transformation_types[i]));
    tool_json_end(out);
  }
  tool_json_end(out);
  for (size_t i = 0; i < TOOL_COUNT(info_transformation_types); i++)
    tool_json_token(out, info_transformation_types[i], j,
        info_transformation(j, image, info_transformation_types[i]));
  tool_json_end(out);
}
static void info_json_images(
    struct tool_json_out *out, const struct info *f, const struct info_group *g) {
  char common[32], version[32];
  int list = info_multiscales(g, common, sizeof common);
  if (list < 0) return;
  tool_json_array(out, "multiscales");
  for (int t = insitu__text_json_first(&g->attributes, list); t >= 0;
       t = insitu__text_json_next(&g->attributes, t)) {
    snprintf(version, sizeof version, "%s", common);
    info_image_version(&g->attributes, t, version, sizeof version);
    info_json_image(out, f, g, t, version);
  }
  tool_json_end(out);
}
static void info_json_suggestion(struct tool_json_out *j, const struct info_suggestion *s) {
  const insitu_plan *p = &s->plan;
  tool_json_object(j, "suggestion");
  tool_json_string(j, "sample_dim", s->desc.sample_dim);
  tool_json_list(j, "variables");
  for (uint64_t i = 0; i < s->desc.n_variables; i++)
    tool_json_string(j, NULL, s->variables[i].path);
  tool_json_end(j);
  tool_json_array(j, "slices");
  for (uint64_t i = 0; i < s->n_slices; i++) {
    tool_json_object(j, NULL);
    tool_json_string(j, "dim", s->slices[i].dim);
    tool_json_i64(j, "axis", s->slices[i].axis);
    tool_json_i64(j, "start", 0);
    tool_json_i64(j, "stop", s->slices[i].stop);
    tool_json_end(j);
  }
  tool_json_end(j);
  tool_json_array(j, "alternatives");
  for (int i = 0; i < s->n_other; i++) tool_json_string(j, NULL, s->other[i]);
  tool_json_end(j);
  if (s->err.status) tool_json_string(j, "error", s->err.message);
  else {
    const struct {
      const char *key;
      uint64_t value;
    } number[] = {{"batch_size", s->config->batch_size}, {"block_chunks", s->config->block_chunks},
        {"unit_chunks", s->config->unit_chunks}, {"prefetch_depth", s->config->prefetch_depth},
        {"max_inflight", s->config->max_inflight}, {"decode_threads", s->config->decode_threads},
        {"memory_budget", s->config->memory_budget}, {"memory_bytes", info_plan_bytes(p)},
        {"slabs", p->slabs}, {"slab_bytes", p->slab_bytes}, {"inflight_bytes", p->inflight_bytes},
        {"table_bytes", p->table_bytes}, {"cache_bytes", p->cache_bytes}, {"train_rows", p->rows},
        {"train_batches", p->batches}, {"reads", p->reads}, {"read_bytes", p->read_bytes}};
    for (size_t i = 0; i < TOOL_COUNT(number); i++)
      tool_json_u64(j, number[i].key, number[i].value);
    tool_json_double(j, "amplification", p->amplification);
    tool_json_double(j, "variance_ratio", p->variance_ratio);
  }
  tool_json_end(j);
}
static void info_json(
    struct info *f, const struct info_axis *axes, const struct info_suggestion *s) {
  struct tool_json_out j = {.to = stdout};
  tool_json_object(&j, NULL);
  tool_json_string(&j, "url", tool_archive_name(&f->archive, f->url));
  tool_json_u64(&j, "zarr_format", (uint64_t)f->archive.group.format);
  tool_json_bool(&j, "consolidated", f->archive.group.nodes >= 0);
  if (f->archive.list_error.status)
    tool_json_string(&j, "listing_error", f->archive.list_error.message);
  tool_json_u64(&j, "decoded_bytes", f->decoded);
  if (f->sized) {
    tool_json_u64(&j, "stored_bytes", f->stored);
    tool_json_bool(&j, "stored_complete", !f->cut);
  }
  tool_json_array(&j, "groups");
  for (uint64_t i = 0; i < f->n_groups; i++) {
    const struct info_group *g = &f->groups[i];
    tool_json_object(&j, NULL);
    tool_json_string(&j, "path", g->path);
    tool_json_token(&j, "attributes", &g->attributes, g->text ? 0 : -1);
    info_json_images(&j, f, g);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  tool_json_array(&j, "arrays");
  for (uint64_t i = 0; i < f->n; i++) info_json_array(&j, f, &f->arrays[i]);
  tool_json_end(&j);
  tool_json_array(&j, "sample_axes");
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) {
    tool_json_object(&j, NULL);
    tool_json_string(&j, "dimension", axes[i].dim);
    tool_json_u64(&j, "samples", axes[i].samples);
    tool_json_array(&j, "arrays");
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axes[i].member); k++) {
      const struct info_array *a = axes[i].member[k];
      unsigned axis = info_sample_axis(a);
      tool_json_object(&j, NULL);
      tool_json_string(&j, "path", a->path);
      tool_json_u64(&j, "axis", axis);
      tool_json_u64(&j, "samples_per_chunk", a->z.chunk[axis]);
      tool_json_u64(&j, "chunks_per_sample", info_chunks_per_sample(a));
      tool_json_u64(&j, "bytes_per_sample", a->decoded / a->shape[axis]);
      tool_json_end(&j);
    }
    tool_json_end(&j);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  if (s) info_json_suggestion(&j, s);
  tool_json_end(&j);
}

/* ---- the command ---- */

static void info_print(
    struct info *f, const struct info_axis *axes, const struct info_suggestion *s) {
  char decoded[16], stored[16], n[32];
  uint64_t refused = 0;
  for (uint64_t i = 0; i < f->n; i++) refused += f->arrays[i].err.status != 0;
  printf("%s", tool_style(TOOL_BOLD));
  const char *url = tool_archive_name(&f->archive, f->url);
  tool_put_padded(url, 0);
  printf("%s%sZarr v%d%s, %s array%s, %s", tool_style(TOOL_PLAIN), strlen(url) > 40 ? "\n" : "  ",
      f->archive.group.format, f->archive.group.nodes >= 0 ? " consolidated" : "",
      tool_count(n, f->n), f->n == 1 ? "" : "s", tool_bytes(decoded, f->decoded));
  if (f->sized) printf(" (stored %s%s)", f->cut ? "at least " : "", tool_bytes(stored, f->stored));
  printf("\n");
  if (insitu__store_is_remote(&f->archive.store) && !info_no_size)
    printf("Stored bytes: not known, a remote store tells them one object at a time; insitu verify "
           "counts them as it reads all.\n");
  if (f->cut)
    printf("Not all stored bytes were counted: time was up (--size-seconds 60), or a directory "
           "cannot be read.\n");
  if (!info_short) info_print_groups(f);
  info_print_tree(f);
  info_print_images(f);
  for (uint64_t i = 0; !info_short && i < f->n; i++) info_print_array(f, &f->arrays[i]);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) info_print_axis(&axes[i]);
  if (s) info_print_suggestion(s);
  if (refused)
    printf("\n%s%s of %" PRIu64 " arrays cannot be read by this build%s%s\n",
        tool_style(TOOL_YELLOW), tool_count(n, refused), f->n,
        info_short ? "; leave --short out to see why" : "; see REFUSED above",
        tool_style(TOOL_PLAIN));
}
static void info_free(struct info *f) {
  for (uint64_t i = 0; i < f->n; i++) {
    insitu__zarr_array_free(&f->arrays[i].z);
    tool_node_free(&f->arrays[i].node);
    for (int k = 0; k < INSITU__MAX_DIMS; k++) insitu__mem_free(f->arrays[i].dim[k]);
  }
  insitu__mem_free(f->arrays);
  for (uint64_t i = 0; i < f->n_groups; i++) {
    insitu__text_json_free(&f->groups[i].attributes);
    insitu__mem_free(f->groups[i].text);
    insitu__mem_free(f->groups[i].path);
  }
  INSITU__ARRAY_FREE(f->groups);
  insitu_loader_close(&f->loader);
  tool_archive_close(&f->archive);
}
static int info_gather(struct info *f, uint64_t seconds) {
  insitu_error err = {0};
  struct insitu__zarr_array z;
  if (tool_archive_open(f->url, &f->archive)) return TOOL_FAILED;
  if (f->archive.list_error.status) tool_fail_error(&f->archive.list_error);
  info_find_groups(f);
  info_read_groups(f);
  f->arrays = (struct info_array *)tool_alloc(f->archive.n_paths + 1, sizeof *f->arrays);
  for (uint64_t i = 0; i < f->archive.n_paths; i++)
    if (info_wanted(f, f->archive.paths[i]))
      info_read_array(f, &f->arrays[f->n++], f->archive.paths[i]);
  /* perhaps an array that the listing does not know; else the message names near ones */
  if (!f->n && !f->n_groups) {
    insitu_status status = tool_archive_array(&f->archive, f->below, &z, &err);
    insitu__zarr_array_free(&z);
    if (status == INSITU_E_NOTFOUND || status == INSITU_E_ARG) return tool_fail_error(&err);
    info_read_array(f, &f->arrays[f->n++], f->below);
  }
  f->deadline = insitu__base_now() + (int64_t)insitu__base_min(seconds, 1u << 30) * 1000000000;
  info_sizes(f);
  if (insitu__store_is_remote(&f->archive.store))
    insitu__reactor_call(&f->archive.reactor, info_ask_await, f);
  for (uint64_t i = 0; i < f->n; i++) info_values(f, &f->arrays[i]);
  for (uint64_t i = 0; i < f->n; i++) info_dates(f, &f->arrays[i]);
  return TOOL_OK;
}
static int info_run(int argc, char **argv) {
  struct info f = {.url = argc ? argv[0] : NULL};
  char below[INSITU__MAX_KEY];
  uint64_t seconds;
  if (argc < 1) return tool_usage_error("the archive is missing");
  if (argc > 2) return tool_usage_error("'%s' is one argument too many", argv[2]);
  if (!tool_option_u64("size-seconds", info_seconds, 3, &seconds)) return TOOL_USAGE;
  if (!insitu__group_normalise(argc > 1 ? argv[1] : "", below, sizeof below))
    return tool_usage_error(
        "'%s' is not a path inside the archive; write names joined by '/'", argv[1]);
  f.below = below;
  int code = info_gather(&f, seconds);
  if (code == TOOL_OK) {
    struct info_axis *axes = info_axes(&f);
    const struct info_axis *largest = NULL;
    struct info_suggestion suggestion = {0};
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++)
      if (!largest || axes[i].decoded > largest->decoded) largest = &axes[i];
    if (largest) info_suggest(&f, largest, &suggestion);
    if (tool_json) info_json(&f, axes, largest ? &suggestion : NULL);
    else info_print(&f, axes, largest ? &suggestion : NULL);
    insitu_loader_close(&suggestion.loader);
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) INSITU__ARRAY_FREE(axes[i].member);
    INSITU__ARRAY_FREE(axes);
    if (f.archive.list_error.status) code = TOOL_FAILED; /* what is shown is not all */
  }
  info_free(&f);
  return code;
}

static const struct tool_option info_options[] = {
    {"short", 's', NULL, "no attributes and no details: tree, sample axes, suggestion",
        &info_short},
    {"attributes", 'a', NULL, "attributes in full (default: one line each)", &info_attributes},
    {"no-size", 0, NULL, "do not count stored bytes", &info_no_size},
    {"size-seconds", 0, "N", "count stored bytes for at most N seconds (3)", &info_seconds},
    TOOL_STORE_OPTIONS,
};
static const struct tool_command info_command = {.name = "info",
    .arguments = "URL [PATH] [OPTIONS]",
    .summary = "what is in an archive, and what training from it would take",
    .details = "  URL   a Zarr v2 or v3 archive: a directory, a zip file, or file://, zip://, "
               "http(s)://, s3://,\n"
               "        gs://, az://\n"
               "  PATH  only this array, or this group and all below it\n\n"
               "Shows groups and arrays with their shapes, types, chunks, codecs and attributes; "
               "OME-NGFF images\n"
               "with their axes, and the shape and scale of each resolution; which arrays this\n"
               "build cannot read, and why; which arrays share a sample axis and how it is "
               "chunked; and a\n"
               "configuration to begin with, with the memory and the reads that it would take. "
               "Reads metadata, and\n"
               "of the data only small coordinates, and both ends of those of time. Sizes are "
               "decoded bytes; ratio\n"
               "is decoded to stored; what a remote store holds in bytes is not "
               "counted.\n\n" TOOL_STORE_HELP "examples: insitu info winds.zarr\n"
               "          insitu info winds.zarr uwnd --attributes\n"
               "          insitu info winds.zarr --json | jq '.arrays[].path'\n",
    .options = info_options,
    .n_options = TOOL_COUNT(info_options),
    .run = info_run};
