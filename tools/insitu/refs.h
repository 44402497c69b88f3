/* insitu refs: references that others wrote, kerchunk's and VirtualiZarr's, as a flat index.
 * Parquet has to be converted; JSON opens as it is, but an index of it opens at once, and takes no
 * memory for chunks. */
#include <spawn.h>
#include <sys/wait.h>

static const char *refs_out, *refs_python_value, *refs_base_value;

enum { REFS_MAX_RECORD = 1 << 30 }; /* bytes */
struct refs_read {
  struct virtual_archive v;
  struct virtual_file f;
  struct virtual_array *array; /* that rows are of */
  const char *folder;          /* of the index */
  FILE *from;
  unsigned char *record; /* the payload of the last one, terminated */
  uint64_t n, cap;
};

static int refs_damaged(const char *what) {
  return tool_fail("the references are damaged: %s; write them again", what);
}

/* ---- arrays ---- */

/* Lists of numbers in metadata: shape and chunks. */
static bool refs_extents(const struct insitu__text_json *j, int list, uint64_t *out, unsigned *n) {
  *n = 0;
  if (!insitu__text_json_is_array(j, list)) return false;
  for (int t = insitu__text_json_first(j, list); t >= 0; t = insitu__text_json_next(j, t))
    if (*n == INSITU__MAX_DIMS || !insitu__text_json_u64(j, t, &out[(*n)++])) return false;
  return true;
}
/* How the chunks of an array of v2 or v3 are named and lie. */
static bool refs_describe(struct virtual_array *a, const struct insitu__text_json *j, bool v2) {
  unsigned n;
  int chunks = insitu__text_json_get(j, 0, "chunks"),
      keys = insitu__text_json_get(j, 0, "chunk_key_encoding"), separator;
  a->keys = 0;
  if (!v2) {
    int grid = insitu__text_json_get(j, 0, "chunk_grid");
    if (!insitu__text_json_equals(j, insitu__text_json_get(j, grid, "name"), "regular"))
      return false;
    grid = insitu__text_json_get(j, grid, "configuration");
    chunks = insitu__text_json_get(j, grid, "chunk_shape");
    separator =
        insitu__text_json_get(j, insitu__text_json_get(j, keys, "configuration"), "separator");
    bool plain = insitu__text_json_equals(j, insitu__text_json_get(j, keys, "name"), "v2");
    bool dot = insitu__text_json_equals(j, separator, ".") || (plain && separator < 0);
    a->keys = plain ? (dot ? 0 : 1) : (dot ? 3 : 2);
  } else {
    separator = insitu__text_json_get(j, 0, "dimension_separator");
    a->keys = insitu__text_json_equals(j, separator, "/");
  }
  if (!refs_extents(j, insitu__text_json_get(j, 0, "shape"), a->shape, &a->ndim) ||
      !refs_extents(j, chunks, a->chunk, &n) || n != a->ndim)
    return false;
  for (unsigned k = 0; k < n; k++)
    if (!a->chunk[k]) return false;
  return true;
}
static const struct virtual_object *refs_object(
    const struct refs_read *r, const char *path, const char *name) {
  char key[INSITU__MAX_KEY];
  snprintf(key, sizeof key, "%s%s%s", path, path[0] ? "/" : "", name);
  for (uint64_t i = INSITU__ARRAY_LEN(r->v.object); i-- > 0;)
    if (!strcmp(r->v.object[i].key, key)) return &r->v.object[i];
  return NULL;
}
/* Begins an array. An exit code. */
static int refs_array(struct refs_read *r) {
  const char *path = (const char *)r->record;
  const struct virtual_object *o = refs_object(r, path, ".zarray");
  struct insitu__text_json j;
  insitu_error err = {0};
  uint64_t grid[INSITU__MAX_DIMS];
  bool v2 = o != NULL;
  if (!o) o = refs_object(r, path, "zarr.json");
  if (!o || virtual_find(&r->f, path)) return refs_damaged("an array without metadata, or twice");
  if (insitu__text_json_parse(&j, o->bytes, o->n, o->key, &err) < 0) return tool_fail_error(&err);
  struct virtual_array *a = r->array = virtual_add_array(&r->f, path);
  bool ok = refs_describe(a, &j, v2);
  insitu__text_json_free(&j);
  if (ok) virtual_grid(a, grid);
  if (!ok || !virtual_grid_product(grid, a->ndim, &a->n_refs))
    return tool_fail("array '%s': shape and chunks in its metadata are damaged, its grid is not "
                     "regular, or it has more than VIRTUAL_MAX_REFS chunks",
        path);
  a->kind = VIRTUAL_REFS;
  a->ref = tool_alloc(a->n_refs + 1, sizeof *a->ref);
  for (uint64_t i = 0; i < a->n_refs; i++) a->ref[i] = virtual_ref(0, 0, VIRTUAL_ABSENT);
  return TOOL_OK;
}
/* Places of chunks. kerchunk's size 0 at offset 0 means a whole file. */
static int refs_rows(struct refs_read *r) {
  uint64_t n = r->n >= 8 ? index_load(r->record, 8, false) : 0, at = 8 + 32 * n;
  if (!r->array || n > REFS_MAX_RECORD / 32 || at > r->n) return refs_damaged("a record of rows");
  for (uint64_t i = 0; i < n; i++) {
    const unsigned char *p = r->record + 8 + 32 * i;
    uint64_t chunk = index_load(p, 8, false), target = index_load(p + 8, 8, false),
             offset = index_load(p + 16, 8, false), size = index_load(p + 24, 8, false);
    if (chunk >= r->array->n_refs) continue; /* tables are filled up to a round length */
    if (target == (uint64_t)-2) {
      if (size > r->n - at) return refs_damaged("inline bytes");
      r->array->ref[chunk] = virtual_inline(&r->v, r->record + at, size);
      at += size;
      continue;
    }
    if (target >= INSITU__ARRAY_LEN(r->v.target) || size >= VIRTUAL_WHOLE || offset > INT64_MAX)
      return refs_damaged("a reference with an impossible target, offset or size");
    if (!size) size = VIRTUAL_WHOLE;
    r->array->ref[chunk] = virtual_ref(offset, size, target);
  }
  return TOOL_OK;
}
/* A target; a file that is here is pinned to its size and time. */
static int refs_target(struct refs_read *r) {
  struct insitu__text_buffer b = {0};
  const char *url = (const char *)r->record;
  uint64_t size = UINT64_MAX;
  int64_t modified = INT64_MIN;
  char path[PATH_MAX];
  struct stat st;
  bool whole = url[0] == '/', scheme = strstr(url, "://") != NULL;
  if (INSITU__ARRAY_LEN(r->v.target) >= VIRTUAL_MAX_TARGETS)
    return tool_fail("more than VIRTUAL_MAX_TARGETS targets");
  if (refs_base_value && !whole && !scheme)
    insitu__text_buffer_printf(&b, "%s%s", refs_base_value,
        refs_base_value[strlen(refs_base_value) - 1] == '/' ? "" : "/");
  insitu__text_buffer_printf(&b, "%s%s", whole ? "file://" : "", url);
  char *name = virtual_take(&b);
  if (!strncmp(name, "file://", 7)) snprintf(path, sizeof path, "%s", name + 7);
  else snprintf(path, sizeof path, "%s/%s", r->folder, name);
  if (!strstr(path, "://") && stat(path, &st) == 0) {
    size = (uint64_t)st.st_size;
    modified = (int64_t)st.st_mtime;
  }
  virtual_add_target(&r->v, name, size, modified, NULL);
  return TOOL_OK;
}
static int refs_metadata(struct refs_read *r) {
  size_t n = strlen((const char *)r->record);
  if (n >= r->n || !n) return refs_damaged("metadata without a key");
  if (!strcmp((const char *)r->record, ".zmetadata")) return TOOL_OK; /* made anew */
  char *bytes = insitu__mem_text((const char *)r->record + n + 1, r->n - n - 1);
  if (!bytes) tool_no_memory();
  virtual_add_object(&r->v, tool_copy((const char *)r->record), bytes, r->n - n - 1);
  return TOOL_OK;
}

/* ---- records ---- */

/* All records up to the last. An exit code. */
static int refs_records(struct refs_read *r) {
  unsigned char head[9];
  int code = TOOL_OK;
  while (code == TOOL_OK) {
    if (fread(head, 1, sizeof head, r->from) != sizeof head) return TOOL_FAILED; /* it said why */
    r->n = index_load(head + 1, 8, false);
    if (r->n > REFS_MAX_RECORD) return refs_damaged("a record of more than REFS_MAX_RECORD bytes");
    if (r->n >= r->cap) {
      insitu__mem_free(r->record);
      r->cap = 2 * r->n + 4096;
      r->record = tool_alloc(r->cap, 1);
    }
    if (fread(r->record, 1, r->n, r->from) != r->n) return TOOL_FAILED;
    r->record[r->n] = 0;
    switch (head[0]) {
    case 'T': code = refs_target(r); break;
    case 'M': code = refs_metadata(r); break;
    case 'A': code = refs_array(r); break;
    case 'R': code = refs_rows(r); break;
    case 'E': return TOOL_OK;
    default: return refs_damaged("an unknown record");
    }
  }
  return code;
}
/* Runs Python on the references, and reads what it writes. An exit code. */
static int refs_run_python(struct refs_read *r, char *source) {
  static char dash_c[] = "-c";
  char *python = tool_copy(refs_python_value ? refs_python_value : "python3");
  char *program = tool_copy(refs_python);
  char *arguments[] = {python, dash_c, program, source, NULL};
  posix_spawn_file_actions_t actions;
  int end[2], status = 0, code;
  pid_t child;
  if (pipe2(end, O_CLOEXEC)) return tool_fail("a pipe: %s", strerror(errno));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, end[1], STDOUT_FILENO);
  int error = posix_spawnp(&child, python, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(end[1]);
  r->from = error ? NULL : fdopen(end[0], "rb");
  if (!r->from) {
    close(end[0]);
    code = tool_fail("%s: %s; install Python 3, or name one with --python", python,
        strerror(error ? error : errno));
  } else {
    code = refs_records(r);
    fclose(r->from);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (code == TOOL_OK && status) code = TOOL_FAILED;
    if (code != TOOL_OK) tool_fail("%s was not read to its end", source);
  }
  insitu__mem_free(python);
  insitu__mem_free(program);
  return code;
}

/* ---- the command ---- */

/* .zmetadata of all objects of v2, so that arrays are listed without a search. */
static void refs_consolidate(struct refs_read *r) {
  struct insitu__text_buffer b = {0};
  uint64_t n = INSITU__ARRAY_LEN(r->v.object), used = 0;
  insitu__text_buffer_printf(&b, "{\"zarr_consolidated_format\":1,\"metadata\":{");
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_object *o = &r->v.object[i];
    if (strncmp(index_last_name(o->key), ".z", 2) != 0) continue;
    insitu__text_buffer_printf(&b, used++ ? "," : "");
    insitu__text_buffer_json_string(&b, o->key);
    insitu__text_buffer_printf(&b, ":");
    insitu__text_buffer_bytes(&b, o->bytes, o->n);
  }
  insitu__text_buffer_printf(&b, "}}");
  uint64_t bytes = b.n;
  if (used && !b.failed)
    virtual_add_object(&r->v, tool_copy(".zmetadata"), virtual_take(&b), bytes);
  else insitu__text_buffer_free(&b);
}
/* A directory that kerchunk wrote has its metadata in one file. 0, or TOOL_FAILED after a message.
 */
static int refs_check(const char *source) {
  struct stat st;
  char *path = NULL;
  if (access(source, R_OK) || stat(source, &st))
    return tool_fail("%s: %s; check the path", source, strerror(errno));
  if (!S_ISDIR(st.st_mode)) return TOOL_OK;
  if (asprintf(&path, "%s/.zmetadata", source) < 0) tool_no_memory();
  int error = access(path, F_OK) ? errno : 0;
  free(path);
  if (!error) return TOOL_OK;
  if (error != ENOENT) return tool_fail("%s: %s; check the path", source, strerror(error));
  return tool_fail("%s: no .zmetadata is in it, which references in Parquet have; name the "
                   "directory that kerchunk or VirtualiZarr wrote, or its JSON file",
      source);
}
static int refs_run(int argc, char **argv) {
  struct refs_read r = {.array = NULL};
  char folder[PATH_MAX];
  uint64_t bytes = 0;
  if (!refs_out) return tool_usage_error("--out is missing: the index to write, such as a.insitu");
  if (argc != 1) return tool_usage_error("name one directory of Parquet, or one JSON file");
  if (strstr(argv[0], "://"))
    return tool_usage_error("%s: only local references are read; fetch them first", argv[0]);
  int code = index_check_base(refs_base_value);
  if (code != TOOL_OK) return code;
  code = refs_check(argv[0]);
  if (code != TOOL_OK) return code;
  code = index_folder(refs_out, folder);
  r.folder = folder;
  r.f.name = tool_copy(argv[0]);
  if (code == TOOL_OK) code = refs_run_python(&r, argv[0]);
  if (code == TOOL_OK && !INSITU__ARRAY_LEN(r.f.array))
    code = tool_fail("%s: it has no array", argv[0]);
  if (code == TOOL_OK) {
    refs_consolidate(&r);
    code = virtual_write(&r.v, &r.f, refs_out, &bytes);
  }
  index_out = refs_out;
  if (code == TOOL_OK) index_print_summary(&r.v, &r.f, 0, bytes);
  insitu__mem_free(r.record);
  virtual_file_free(&r.f);
  virtual_archive_free(&r.v);
  return code;
}

static const struct tool_option refs_options[] = {
    {"out", 'o', "FILE", "the index to write, such as goes.insitu", &refs_out},
    {"base", 0, "URL", "where targets without a scheme lie, as in s3://bucket/folder",
        &refs_base_value},
    {"python", 0, "PATH", "a Python 3 with pyarrow or fastparquet (python3)", &refs_python_value}};
static const struct tool_command refs_command = {.name = "refs",
    .arguments = "DIRECTORY | FILE.json --out NAME.insitu [options]",
    .summary = "references of kerchunk or VirtualiZarr (Parquet, JSON) as an index",
    .details = "Reads references once, and writes them as an index that opens at once and takes no "
               "memory for\n"
               "chunks. Parquet is read by Python with pyarrow or fastparquet. JSON opens without "
               "that, too.\n"
               "Targets that are files here are pinned to size and time; others as they are first "
               "seen in a run.\n\n"
               "examples:\n"
               "  insitu refs goes.parq -o goes.insitu\n"
               "  insitu refs refs.json -o refs.insitu --base s3://bucket/folder\n",
    .options = refs_options,
    .n_options = TOOL_COUNT(refs_options),
    .run = refs_run};
