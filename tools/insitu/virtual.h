/* Virtual archives, which hold no chunks of their own: metadata of Zarr v3, and for each chunk
 * where its bytes lie in files of other formats. insitu index and insitu refs make them:
 *
 *   files --scan--> struct virtual_file: arrays, groups --join--> one virtual_file
 *     --virtual_write--> NAME.insitu, the flat index that insitubatch.h opens
 *
 * All multi-byte numbers of the flat index are little-endian, and all places are counted from its
 * first byte:
 *
 *   head | objects | targets | arrays | text and inline bytes | tables of references */

/* ---- the model ---- */

enum {
  VIRTUAL_HEAD = 96,
  VIRTUAL_OBJECT = 32,
  VIRTUAL_TARGET = 48,
  VIRTUAL_ARRAY = 48,
  VIRTUAL_PIECE = 48,
  VIRTUAL_REF = 16
};
#define VIRTUAL_LENGTH_BITS 40
#define VIRTUAL_WHOLE ((UINT64_C(1) << VIRTUAL_LENGTH_BITS) - 1) /* a length: the whole object */
#define VIRTUAL_ABSENT UINT64_C(0xffffff)                        /* a target: the fill value */
#define VIRTUAL_INLINE UINT64_C(0xfffffe)                        /* a target: bytes of the index */
#define VIRTUAL_MAX_TARGETS UINT64_C(0xfffff0)
#define VIRTUAL_MAX_REFS (UINT64_C(1) << 31) /* of one array: 16 bytes each, in memory */
#define VIRTUAL_MAX_HEAP (UINT64_C(1) << 32) /* inline bytes of an index */
#define VIRTUAL_MAX_ARRAYS (1u << 16)

/* A file or object that chunks lie in. */
struct virtual_target {
  char *url;
  uint64_t size;    /* UINT64_MAX: unknown */
  int64_t modified; /* seconds since 1970; INT64_MIN: unknown */
  char *etag;       /* NULL: unknown */
};

/* Where a chunk lies: as the file has it, but that the offset of inline bytes counts from the
 * heap's begin. */
struct virtual_ref {
  uint64_t offset, place; /* place: length | target << 40 */
};

/* Chunks along an axis that are those of an array of a Zarr archive. */
struct virtual_piece {
  uint64_t axis, first, count;
  char *url, *path;
  uint32_t keys; /* how they are named there */
};

/* VALUES: all of a small array, raw; RAW: rows at equal distances in one target; REFS: one
 * reference for each chunk; PIECES: of Zarr archives. */
enum virtual_kind { VIRTUAL_VALUES, VIRTUAL_RAW, VIRTUAL_REFS, VIRTUAL_PIECES };

struct virtual_array {
  char *path; /* without a leading '/' */
  enum virtual_kind kind;
  unsigned ndim;
  uint64_t shape[INSITU__MAX_DIMS], chunk[INSITU__MAX_DIMS];
  char *dim[INSITU__MAX_DIMS]; /* NULL: without a name */

  char *type;                /* data_type of Zarr v3: a JSON value */
  uint32_t itemsize, scalar; /* bytes of an element, and of what a byte order turns round */
  bool big;
  char *codecs;     /* JSON values behind the codec "bytes", each after a comma; NULL: none */
  char *serializer; /* a JSON value in place of the codec "bytes"; NULL: that one */
  char *fill;       /* a JSON value */
  char *attributes; /* a JSON object */

  /* The axis whose chunks differ in length, -1: none; their lengths. padded: they are stored as
   * long as chunk[axis] nevertheless. */
  int axis;
  uint64_t *edge; /* growing array */
  bool padded;

  unsigned char *values; /* VALUES: n_values bytes */
  uint64_t n_values;
  uint64_t target, offset, stride; /* RAW: bytes from one index of axis 0 to the next */
  struct virtual_ref *ref;         /* REFS: n_refs of them, in C order of the grid */
  uint64_t n_refs;
  struct virtual_piece *piece; /* PIECES: growing array */
  uint32_t keys;               /* of its chunks: 0 "i.j", 1 "i/j", 2 "c/i/j", 3 "c.i.j" */
  char *metadata;              /* zarr.json as it stands; NULL: it is made of the members above */
};
struct virtual_group {
  char *path, *attributes; /* a JSON object */
};
/* What a scan found in one file, or the join of several. */
struct virtual_file {
  char *name; /* for messages */
  struct virtual_array **array;
  struct virtual_group *group;
};
/* An object of the index that is given by its bytes. */
struct virtual_object {
  char *key;
  char *bytes;
  uint64_t n;
};
/* What all files of an index share. */
struct virtual_archive {
  struct virtual_target *target;   /* growing array */
  struct virtual_object *object;   /* growing array */
  struct insitu__text_buffer heap; /* inline bytes */
  uint64_t left_out;               /* arrays that could not be described, each with a message */
};

static void virtual_array_free(struct virtual_array *a) {
  for (unsigned i = 0; i < INSITU__MAX_DIMS; i++) insitu__mem_free(a->dim[i]);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(a->piece); i++) {
    insitu__mem_free(a->piece[i].url);
    insitu__mem_free(a->piece[i].path);
  }
  INSITU__ARRAY_FREE(a->piece);
  INSITU__ARRAY_FREE(a->edge);
  char *const text[] = {
      a->path, a->type, a->codecs, a->serializer, a->fill, a->attributes, a->metadata};
  for (size_t i = 0; i < TOOL_COUNT(text); i++) insitu__mem_free(text[i]);
  insitu__mem_free(a->values);
  insitu__mem_free(a->ref);
  insitu__mem_free(a);
}
static void virtual_file_free(struct virtual_file *f) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) virtual_array_free(f->array[i]);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->group); i++) {
    insitu__mem_free(f->group[i].path);
    insitu__mem_free(f->group[i].attributes);
  }
  INSITU__ARRAY_FREE(f->array);
  INSITU__ARRAY_FREE(f->group);
  insitu__mem_free(f->name);
  memset(f, 0, sizeof *f);
}
static void virtual_archive_free(struct virtual_archive *v) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(v->target); i++) {
    insitu__mem_free(v->target[i].url);
    insitu__mem_free(v->target[i].etag);
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(v->object); i++) {
    insitu__mem_free(v->object[i].key);
    insitu__mem_free(v->object[i].bytes);
  }
  INSITU__ARRAY_FREE(v->target);
  INSITU__ARRAY_FREE(v->object);
  insitu__text_buffer_free(&v->heap);
  memset(v, 0, sizeof *v);
}

/* ---- building ---- */

static struct virtual_ref virtual_ref(uint64_t offset, uint64_t length, uint64_t target) {
  return (struct virtual_ref){offset, length | target << VIRTUAL_LENGTH_BITS};
}
static uint64_t virtual_target_of(struct virtual_ref r) {
  return r.place >> VIRTUAL_LENGTH_BITS;
}
/* A text that a buffer has gathered, which is emptied. */
static char *virtual_take(struct insitu__text_buffer *b) {
  if (b->failed) tool_no_memory();
  char *text = b->text ? b->text : tool_copy("");
  memset(b, 0, sizeof *b);
  return text;
}
static uint64_t virtual_add_target(
    struct virtual_archive *v, char *url, uint64_t size, int64_t modified, char *etag) {
  if (!INSITU__ARRAY_PUSH(v->target, (struct virtual_target){url, size, modified, etag}))
    tool_no_memory();
  return INSITU__ARRAY_LEN(v->target) - 1;
}
/* Bytes that go into the index itself. */
static struct virtual_ref virtual_inline(struct virtual_archive *v, const void *bytes, uint64_t n) {
  v->heap.limit = VIRTUAL_MAX_HEAP;
  uint64_t at = v->heap.n;
  if (!insitu__text_buffer_bytes(&v->heap, bytes, n)) {
    fprintf(stderr, "insitu: no memory, or more than %" PRIu64 " MiB of inline bytes\n",
        VIRTUAL_MAX_HEAP >> 20);
    exit(TOOL_FAILED);
  }
  return virtual_ref(at, n, VIRTUAL_INLINE);
}
static void virtual_add_object(struct virtual_archive *v, char *key, char *bytes, uint64_t n) {
  if (!INSITU__ARRAY_PUSH(v->object, (struct virtual_object){key, bytes, n})) tool_no_memory();
}
/* A new array of a file, with regular chunks as large as its shape. */
static struct virtual_array *virtual_add_array(struct virtual_file *f, const char *path) {
  struct virtual_array *a = tool_alloc(1, sizeof *a);
  a->path = tool_copy(path);
  a->axis = -1;
  a->keys = 2;
  if (!INSITU__ARRAY_PUSH(f->array, a)) tool_no_memory();
  return a;
}
static void virtual_drop_last(struct virtual_file *f) {
  virtual_array_free(f->array[--insitu__array_header(f->array)->length]);
}
static void virtual_add_group(struct virtual_file *f, const char *path, char *attributes) {
  if (!INSITU__ARRAY_PUSH(f->group, (struct virtual_group){tool_copy(path), attributes}))
    tool_no_memory();
}
static struct virtual_array *virtual_find(const struct virtual_file *f, const char *path) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++)
    if (!strcmp(f->array[i]->path, path)) return f->array[i];
  return NULL;
}
/* Says that an array is no part of the index, and why. */
__attribute__((format(printf, 4, 5))) static void virtual_leave_out(struct virtual_archive *v,
    const struct virtual_file *f, const char *path, const char *format, ...) {
  char why[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  v->left_out++;
  tool_progress_clear();
  tool_fail("%s: array '%s' is left out: %s", f->name, path, why);
}
/* Chunks along each axis. */
static void virtual_grid(const struct virtual_array *a, uint64_t *grid) {
  for (unsigned i = 0; i < a->ndim; i++)
    grid[i] = a->axis == (int)i ? INSITU__ARRAY_LEN(a->edge)
                                : insitu__base_ceil_div(a->shape[i], a->chunk[i]);
}
/* Chunks of a grid; false: more than VIRTUAL_MAX_REFS. */
static bool virtual_grid_product(const uint64_t *grid, unsigned ndim, uint64_t *n) {
  *n = 1;
  for (unsigned i = 0; i < ndim; i++)
    if (!insitu__base_mul(*n, grid[i], n) || *n > VIRTUAL_MAX_REFS) return false;
  return true;
}
/* Bytes of all elements; UINT64_MAX: they overflow. */
static uint64_t virtual_bytes(const struct virtual_array *a) {
  uint64_t n = a->itemsize;
  for (unsigned i = 0; i < a->ndim; i++)
    if (!insitu__base_mul(n, a->shape[i], &n)) return UINT64_MAX;
  return n;
}

/* ---- metadata ---- */

static void virtual_print_list(struct insitu__text_buffer *b, const uint64_t *list, unsigned n) {
  insitu__text_buffer_printf(b, "[");
  for (unsigned i = 0; i < n; i++)
    insitu__text_buffer_printf(b, "%s%" PRIu64, i ? "," : "", list[i]);
  insitu__text_buffer_printf(b, "]");
}
/* The lengths of chunks along an axis, runs of equal ones as [length, count]. */
static void virtual_print_edges(struct insitu__text_buffer *b, const uint64_t *edge) {
  uint64_t n = INSITU__ARRAY_LEN(edge);
  insitu__text_buffer_printf(b, "[");
  for (uint64_t i = 0, k; i < n; i = k) {
    for (k = i + 1; k < n && edge[k] == edge[i]; k++) {}
    insitu__text_buffer_printf(b, i ? "," : "");
    if (k == i + 1) insitu__text_buffer_printf(b, "%" PRIu64, edge[i]);
    else insitu__text_buffer_printf(b, "[%" PRIu64 ",%" PRIu64 "]", edge[i], k - i);
  }
  insitu__text_buffer_printf(b, "]");
}
static void virtual_print_grid(struct insitu__text_buffer *b, const struct virtual_array *a) {
  if (a->axis < 0) {
    insitu__text_buffer_printf(b, "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":");
    virtual_print_list(b, a->chunk, a->ndim);
    insitu__text_buffer_printf(b, "}}");
    return;
  }
  insitu__text_buffer_printf(b,
      "{\"name\":\"rectilinear\",\"configuration\":{\"kind\":\"%s\",\"chunk_shapes\":[",
      a->padded ? "insitu.padded" : "inline");
  for (unsigned i = 0; i < a->ndim; i++) {
    insitu__text_buffer_printf(b, i ? "," : "");
    if (a->axis == (int)i) virtual_print_edges(b, a->edge);
    else insitu__text_buffer_printf(b, "%" PRIu64, a->chunk[i]);
  }
  insitu__text_buffer_printf(b, "]");
  if (a->padded) {
    insitu__text_buffer_printf(b, ",\"stored_shapes\":[");
    for (unsigned i = 0; i < a->ndim; i++)
      if (a->axis == (int)i)
        insitu__text_buffer_printf(b, "%s[[%" PRIu64 ",%" PRIu64 "]]", i ? "," : "", a->chunk[i],
            INSITU__ARRAY_LEN(a->edge));
      else insitu__text_buffer_printf(b, "%s%" PRIu64, i ? "," : "", a->chunk[i]);
    insitu__text_buffer_printf(b, "]");
  }
  insitu__text_buffer_printf(b, "}}");
}
/* zarr.json of an array. */
static void virtual_print_array(struct insitu__text_buffer *b, const struct virtual_array *a) {
  if (a->metadata) {
    insitu__text_buffer_printf(b, "%s", a->metadata);
    return;
  }
  insitu__text_buffer_printf(b, "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":");
  virtual_print_list(b, a->shape, a->ndim);
  insitu__text_buffer_printf(b, ",\"data_type\":%s,\"chunk_grid\":", a->type);
  virtual_print_grid(b, a);
  insitu__text_buffer_printf(b,
      ",\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}},"
      "\"fill_value\":%s,\"codecs\":[",
      a->fill);
  if (a->serializer) insitu__text_buffer_printf(b, "%s", a->serializer);
  else if (a->scalar > 1)
    insitu__text_buffer_printf(
        b, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}", a->big ? "big" : "little");
  else insitu__text_buffer_printf(b, "{\"name\":\"bytes\"}");
  insitu__text_buffer_printf(b, "%s],\"dimension_names\":[", a->codecs ? a->codecs : "");
  for (unsigned i = 0; i < a->ndim; i++) {
    insitu__text_buffer_printf(b, i ? "," : "");
    if (a->dim[i]) insitu__text_buffer_json_string(b, a->dim[i]);
    else insitu__text_buffer_printf(b, "null");
  }
  insitu__text_buffer_printf(
      b, "],\"attributes\":%s}", a->attributes && *a->attributes ? a->attributes : "{}");
}
static void virtual_print_group(struct insitu__text_buffer *b, const char *attributes) {
  insitu__text_buffer_printf(b, "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":%s",
      attributes && *attributes ? attributes : "{}");
}
static const char *virtual_group_attributes(const struct virtual_file *f, const char *path) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->group); i++)
    if (!strcmp(f->group[i].path, path)) return f->group[i].attributes;
  return NULL;
}
/* Adds the groups that arrays lie in and that no scan has told. */
static void virtual_complete_groups(struct virtual_file *f) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) {
    char *path = tool_copy(f->array[i]->path);
    for (char *slash = strrchr(path, '/'); slash; slash = strrchr(path, '/')) {
      *slash = 0;
      if (!virtual_group_attributes(f, path)) virtual_add_group(f, path, tool_copy("{}"));
    }
    insitu__mem_free(path);
  }
}
/* Adds "PATH/zarr.json", and the node to the consolidated metadata. */
static void virtual_add_node(struct virtual_archive *v, struct insitu__text_buffer *all,
    const char *path, struct insitu__text_buffer *node) {
  struct insitu__text_buffer key = {0};
  if (node->failed) tool_no_memory();
  insitu__text_buffer_printf(all, all->n ? "," : "");
  insitu__text_buffer_json_string(all, path);
  insitu__text_buffer_printf(all, ":");
  insitu__text_buffer_bytes(all, node->text, node->n);
  insitu__text_buffer_printf(&key, "%s/zarr.json", path);
  uint64_t n = node->n;
  virtual_add_object(v, virtual_take(&key), virtual_take(node), n);
}
/* The objects of all nodes of Zarr v3. */
static void virtual_add_metadata(struct virtual_archive *v, struct virtual_file *f) {
  struct insitu__text_buffer all = {0}, node = {0};
  virtual_complete_groups(f);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->group); i++) {
    if (!f->group[i].path[0]) continue;
    virtual_print_group(&node, f->group[i].attributes);
    insitu__text_buffer_printf(&node, "}");
    virtual_add_node(v, &all, f->group[i].path, &node);
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) {
    virtual_print_array(&node, f->array[i]);
    virtual_add_node(v, &all, f->array[i]->path, &node);
  }
  virtual_print_group(&node, virtual_group_attributes(f, ""));
  /* where it is longer than a document may be, each node is found by its own object */
  if (!all.failed && all.n + node.n + 100 < INSITU__MAX_META) {
    insitu__text_buffer_printf(&node,
        ",\"consolidated_metadata\":{\"kind\":\"inline\",\"must_understand\":false,\"metadata\":{");
    insitu__text_buffer_bytes(&node, all.text, all.n);
    insitu__text_buffer_printf(&node, "}}");
  }
  insitu__text_buffer_printf(&node, "}");
  uint64_t n = node.n;
  virtual_add_object(v, tool_copy("zarr.json"), virtual_take(&node), n);
  insitu__text_buffer_free(&all);
}

/* ---- the flat index ---- */

struct virtual_writer {
  struct insitu__text_buffer records, text; /* of the tables between head and text; the text */
  uint64_t text_at, heap_at, refs_at;
};

static void virtual_u64(struct insitu__text_buffer *b, uint64_t x) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(x >> 8 * i);
  insitu__text_buffer_bytes(b, bytes, 8);
}
static void virtual_u32(struct insitu__text_buffer *b, uint64_t x) {
  unsigned char bytes[4];
  for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(x >> 8 * i);
  insitu__text_buffer_bytes(b, bytes, 4);
}
/* Appends to the text; where it lies in the file. */
static uint64_t virtual_text(struct virtual_writer *w, const void *bytes, uint64_t n) {
  uint64_t at = w->text_at + w->text.n;
  insitu__text_buffer_bytes(&w->text, bytes, n);
  return at;
}
static void virtual_align(struct virtual_writer *w) {
  static const char zero[8];
  insitu__text_buffer_bytes(&w->text, zero, (8 - (w->text_at + w->text.n) % 8) % 8);
}
static int virtual_compare_objects(const void *x, const void *y) {
  return strcmp(((const struct virtual_object *)x)->key, ((const struct virtual_object *)y)->key);
}
static int virtual_compare_arrays(const void *x, const void *y) {
  return strcmp(
      (*(struct virtual_array *const *)x)->path, (*(struct virtual_array *const *)y)->path);
}
static void virtual_write_target(struct virtual_writer *w, const struct virtual_target *t) {
  uint64_t url_n = strlen(t->url), etag_n = t->etag ? strlen(t->etag) : 0;
  virtual_u64(&w->records, virtual_text(w, t->url, url_n));
  virtual_u32(&w->records, url_n);
  virtual_u32(&w->records, etag_n);
  virtual_u64(&w->records, virtual_text(w, t->etag, etag_n));
  virtual_u64(&w->records, t->size);
  virtual_u64(&w->records, (uint64_t)t->modified);
  virtual_u64(&w->records, 0);
}
static uint64_t virtual_write_pieces(struct virtual_writer *w, const struct virtual_array *a) {
  uint64_t n = INSITU__ARRAY_LEN(a->piece);
  struct insitu__text_buffer records = {0};
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_piece *p = &a->piece[i];
    uint64_t url_n = strlen(p->url), path_n = strlen(p->path);
    virtual_u32(&records, p->axis);
    virtual_u32(&records, p->keys);
    virtual_u64(&records, p->first);
    virtual_u64(&records, p->count);
    virtual_u64(&records, virtual_text(w, p->url, url_n));
    virtual_u32(&records, url_n);
    virtual_u32(&records, path_n);
    virtual_u64(&records, virtual_text(w, p->path, path_n));
  }
  if (records.failed) tool_no_memory();
  virtual_align(w);
  uint64_t at = virtual_text(w, records.text, records.n);
  insitu__text_buffer_free(&records);
  return at;
}
/* An array's record; *refs_at moves on behind its table. */
static void virtual_write_array(
    struct virtual_writer *w, const struct virtual_array *a, uint64_t *refs_at) {
  uint64_t grid[INSITU__MAX_DIMS], path_n = strlen(a->path);
  uint64_t path_at = virtual_text(w, a->path, path_n);
  bool pieces = a->kind == VIRTUAL_PIECES;
  virtual_grid(a, grid);
  virtual_align(w);
  uint64_t grid_at = w->text_at + w->text.n;
  for (unsigned i = 0; i < a->ndim; i++) virtual_u64(&w->text, grid[i]);
  virtual_u64(&w->records, path_at);
  virtual_u32(&w->records, path_n);
  virtual_u32(&w->records, a->ndim);
  virtual_u64(&w->records, grid_at);
  virtual_u64(&w->records, pieces ? virtual_write_pieces(w, a) : *refs_at);
  virtual_u32(&w->records, a->keys);
  virtual_u32(&w->records, pieces);
  virtual_u64(&w->records, pieces ? INSITU__ARRAY_LEN(a->piece) : a->n_refs);
  if (!pieces) *refs_at += a->n_refs * VIRTUAL_REF;
}
/* FNV-1a, 64 bits, continued. */
static uint64_t virtual_hash(uint64_t h, const void *bytes, uint64_t n) {
  const unsigned char *p = bytes;
  for (uint64_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  return h;
}
/* Everything before the heap, at `front`; where the references begin, and the file ends. */
static void virtual_layout(const struct virtual_archive *v, const struct virtual_file *f,
    struct virtual_writer *w, struct insitu__text_buffer *front) {
  uint64_t objects = INSITU__ARRAY_LEN(v->object), targets = INSITU__ARRAY_LEN(v->target),
           arrays = INSITU__ARRAY_LEN(f->array), refs = 0, strings = 0;
  memset(w, 0, sizeof *w);
  w->records.limit = w->text.limit = front->limit = VIRTUAL_MAX_HEAP;
  w->text_at =
      VIRTUAL_HEAD + objects * VIRTUAL_OBJECT + targets * VIRTUAL_TARGET + arrays * VIRTUAL_ARRAY;
  for (uint64_t i = 0; i < objects; i++) {
    uint64_t key_n = strlen(v->object[i].key);
    virtual_u64(&w->records, virtual_text(w, v->object[i].key, key_n));
    virtual_u32(&w->records, key_n);
    virtual_u32(&w->records, 0);
    virtual_u64(&w->records, virtual_text(w, v->object[i].bytes, v->object[i].n));
    virtual_u64(&w->records, v->object[i].n);
  }
  for (uint64_t i = 0; i < targets; i++) virtual_write_target(w, &v->target[i]);
  uint64_t records = w->records.n; /* those of arrays hold places behind the text: made twice */
  for (int round = 0; round < 2; round++) {
    if (round == 0) strings = w->text.n;
    w->records.n = records;
    w->text.n = strings;
    refs = w->refs_at;
    for (uint64_t i = 0; i < arrays; i++) virtual_write_array(w, f->array[i], &refs);
    virtual_align(w);
    w->heap_at = w->text_at + w->text.n;
    w->refs_at = (w->heap_at + v->heap.n + 15) & ~UINT64_C(15);
  }
  if (w->records.failed || w->text.failed) tool_no_memory();
  uint64_t h = virtual_hash(UINT64_C(0xcbf29ce484222325), w->records.text, w->records.n);
  h = virtual_hash(h, w->text.text, w->text.n);
  h = virtual_hash(h, v->heap.text, v->heap.n);
  insitu__text_buffer_bytes(front, "INSITUIX", 8);
  virtual_u32(front, 1);
  virtual_u32(front, 0);
  virtual_u64(front, refs);
  virtual_u64(front, h);
  const uint64_t table[][2] = {{VIRTUAL_HEAD, objects},
      {VIRTUAL_HEAD + objects * VIRTUAL_OBJECT, targets},
      {VIRTUAL_HEAD + objects * VIRTUAL_OBJECT + targets * VIRTUAL_TARGET, arrays},
      {w->text_at, w->text.n + v->heap.n}};
  for (int i = 0; i < 4; i++) {
    virtual_u64(front, table[i][0]);
    virtual_u64(front, table[i][1]);
  }
  insitu__text_buffer_bytes(front, w->records.text, w->records.n);
  insitu__text_buffer_bytes(front, w->text.text, w->text.n);
  if (front->failed) tool_no_memory();
}
/* The references of all arrays, inline ones with their places in the file. */
static bool virtual_write_refs(FILE *to, const struct virtual_file *f, uint64_t heap_at) {
  enum { BLOCK = 4096 };
  static unsigned char block[BLOCK * VIRTUAL_REF];
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) {
    const struct virtual_array *a = f->array[i];
    for (uint64_t at = 0; a->kind != VIRTUAL_PIECES && at < a->n_refs;) {
      uint64_t n = insitu__base_min(BLOCK, a->n_refs - at);
      for (uint64_t k = 0; k < n; k++, at++) {
        struct virtual_ref r = a->ref[at];
        if (virtual_target_of(r) == VIRTUAL_INLINE) r.offset += heap_at;
        for (int byte = 0; byte < 8; byte++) {
          block[k * VIRTUAL_REF + (uint64_t)byte] = (unsigned char)(r.offset >> 8 * byte);
          block[k * VIRTUAL_REF + 8 + (uint64_t)byte] = (unsigned char)(r.place >> 8 * byte);
        }
      }
      if (fwrite(block, VIRTUAL_REF, n, to) != n) return false;
    }
  }
  return true;
}
/* Writes the flat index. *bytes: how long it is. An exit code. */
static int virtual_write(
    struct virtual_archive *v, struct virtual_file *f, const char *path, uint64_t *bytes) {
  static const char zero[16];
  struct virtual_writer w;
  struct insitu__text_buffer front = {0};
  char other[INSITU__MAX_KEY + 32];
  if (strlen(path) > INSITU__MAX_KEY) return tool_usage_error("--out: the path is too long");
  if (v->object)
    qsort(v->object, (size_t)INSITU__ARRAY_LEN(v->object), sizeof *v->object,
        virtual_compare_objects);
  if (f->array)
    qsort(f->array, (size_t)INSITU__ARRAY_LEN(f->array), sizeof *f->array, virtual_compare_arrays);
  virtual_layout(v, f, &w, &front);
  uint64_t pad = w.refs_at - w.heap_at - v->heap.n;
  FILE *to = insitu__public_temporary(path, other, sizeof other);
  bool ok = to && fwrite(front.text, 1, front.n, to) == front.n;
  ok = ok && (!v->heap.n || fwrite(v->heap.text, 1, v->heap.n, to) == v->heap.n);
  ok = ok && fwrite(zero, 1, pad, to) == pad && virtual_write_refs(to, f, w.heap_at);
  ok = ok && fflush(to) == 0 && fsync(fileno(to)) == 0;
  int error = errno;
  *bytes = ok ? (uint64_t)ftello(to) : 0;
  if (to && fclose(to) && ok) {
    error = errno;
    ok = false;
  }
  if (ok && rename(other, path)) {
    error = errno;
    ok = false;
  }
  if (!ok && to) unlink(other);
  insitu__text_buffer_free(&front);
  insitu__text_buffer_free(&w.records);
  insitu__text_buffer_free(&w.text);
  return ok ? TOOL_OK
            : tool_fail("%s: %s; choose a path that can be written", path, strerror(error));
}
