/* insitu index: files of other formats as one archive, without a copy of their data. */
static const char *index_out, *index_rename_value, *index_arrays_value, *index_base_value,
    *index_unasked_value, *index_verbose_value;

enum index_format { INDEX_UNKNOWN, INDEX_HDF5, INDEX_NETCDF3, INDEX_GRIB };

/* ---- which file is what ---- */

/* By its first bytes; HDF5's may stand behind a block of the user's. head: INDEX_HEAD bytes, of
 * which *n are the file's. */
enum { INDEX_HEAD = 64, INDEX_USER_BLOCK = 1 << 20 };
static enum index_format index_format_of(struct bytes *b, unsigned char *head, uint64_t *n) {
  static const unsigned char hdf5[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  unsigned char magic[sizeof hdf5];
  *n = insitu__base_min(INDEX_HEAD, b->size);
  if (!bytes_read(b, head, *n, 0)) {
    *n = 0;
    return INDEX_UNKNOWN;
  }
  if (*n < 4) return INDEX_UNKNOWN;
  if (!memcmp(head, "CDF", 3) && (head[3] == 1 || head[3] == 2 || head[3] == 5))
    return INDEX_NETCDF3;
  if (!memcmp(head, "GRIB", 4)) return INDEX_GRIB;
  for (uint64_t at = 0; at < INDEX_USER_BLOCK; at = at ? 2 * at : 512) {
    if (b->size < sizeof hdf5 || at > b->size - sizeof hdf5) break;
    if (!bytes_read(b, magic, sizeof magic, at)) break;
    if (!memcmp(magic, hdf5, sizeof hdf5)) return INDEX_HDF5;
  }
  return INDEX_UNKNOWN;
}
/* What is not indexed but known, and what to do with it. */
static int index_refuse_format(const char *name, const unsigned char *p, uint64_t n) {
  static const struct {
    const char *magic;
    size_t n;
    const char *what;
  } known[] = {{"\x0e\x03\x13\x01", 4, "an HDF4 file; convert it (h4toh5, or ncks)"},
      {"II*\0", 4, "a TIFF file; convert it to Zarr or NetCDF (gdal_translate)"},
      {"MM\0*", 4, "a TIFF file; convert it to Zarr or NetCDF (gdal_translate)"},
      {"II+\0", 4, "a BigTIFF file; convert it to Zarr or NetCDF (gdal_translate)"},
      {"PK\3\4", 4, "a zip file; a Zarr archive in one is named as PATH.zip"},
      {"\x1f\x8b", 2, "a gzip file; unpack it first (gunzip)"},
      {"BZh", 3, "a bzip2 file; unpack it first (bunzip2)"},
      {"(\xb5/\xfd", 4, "a zstd file; unpack it first (unzstd)"},
      {"PAR1", 4, "a Parquet file; for kerchunk's, name their directory: insitu refs DIR"},
      {"{", 1, "a JSON file; for references of kerchunk: insitu refs FILE"},
      {"SIMPLE", 6, "a FITS file; convert it to Zarr or NetCDF"},
      {"INSITUIX", 8, "an index already"}};
  for (size_t i = 0; i < TOOL_COUNT(known); i++)
    if (n >= known[i].n && !memcmp(p, known[i].magic, known[i].n))
      return tool_fail("%s is %s", name, known[i].what);
  return tool_fail("%s is none of NetCDF, HDF5, GRIB and Zarr; check the path, or whether the file "
                   "was fetched whole",
      name);
}

/* ---- targets ---- */

/* A path below the index's folder as it is seen from there; else absolute, as a URL. A URL's query
 * may be a secret, and stays out of the index. */
static char *index_url(const char *path, const char *folder) {
  char whole[PATH_MAX];
  struct insitu__text_buffer b = {0};
  char *plain = bytes_plain(path);
  if (index_base_value) {
    const char *base = index_base_value;
    insitu__text_buffer_printf(
        &b, "%s%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/", index_last_name(plain));
  }
  if (index_base_value || bytes_is_remote(path)) {
    if (index_base_value) insitu__mem_free(plain);
    return index_base_value ? virtual_take(&b) : plain;
  }
  insitu__mem_free(plain);
  if (!realpath(path, whole)) snprintf(whole, sizeof whole, "%s", path);
  size_t n = strlen(folder);
  if (!strncmp(whole, folder, n) && (whole[n] == '/' || n == 1))
    insitu__text_buffer_printf(&b, "%s", whole + n + (whole[n] == '/'));
  else insitu__text_buffer_printf(&b, "file://%s", whole);
  return virtual_take(&b);
}
/* Whether a user stands in the URL of a web server. Credentials go into no index, and into no
 * message. */
static bool index_has_user(const char *url) {
  const char *host = strstr(url, "://");
  return host && !strncasecmp(url, "http", 4) && memchr(host + 3, '@', strcspn(host + 3, "/?#"));
}
/* Refuses a base whose text may have a secret, which the index would keep. An exit code. */
static int index_check_base(const char *base) {
  if (!base) return TOOL_OK;
  if (!*base) return tool_usage_error("--base: a URL is needed");
  bool web = !strncasecmp(base, "http", 4);
  if (!bytes_is_remote(base) || (!strpbrk(base, web ? "?#" : "?") && !index_has_user(base)))
    return TOOL_OK;
  return tool_usage_error(
      "--base: neither a query nor a user may stand in it, since the index has it; leave them out, "
      "and give readers what the store asks for as options (such as %s)",
      web ? "bearer_token" : "sas_token, access_key_id, or of the environment");
}
/* Says that a query is not in the index. name: the URL as it may be shown. */
static void index_tell_query(const char *url, const char *name) {
  if (bytes_is_remote(url) && !strncasecmp(url, "http", 4) && strchr(url, '?'))
    fprintf(stderr,
        "insitu index: %s: its query is left out of the index, since it may be a secret\n", name);
}
/* The folder that the index will lie in. */
static int index_folder(const char *out, char folder[PATH_MAX]) {
  char *copy = tool_copy(out), *slash = strrchr(copy, '/');
  if (slash) slash[slash == copy] = 0;
  bool ok = realpath(slash ? copy : ".", folder) != NULL;
  int code = ok ? TOOL_OK : tool_fail("%s: its folder: %s; make it first", out, strerror(errno));
  insitu__mem_free(copy);
  return code;
}

/* ---- one file ---- */

/* What a path names: by its ending or, where that says nothing, by what is there. */
enum index_what { INDEX_FILE, INDEX_ARCHIVE, INDEX_EITHER };
static bool index_ends(const char *path, size_t n, const char *ending) {
  size_t m = strlen(ending);
  return n > m && !strncasecmp(path + n - m, ending, m);
}
static enum index_what index_what(const char *path) {
  static const char *const files[] = {".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5",
      ".grib", ".grib2", ".grb", ".grb2", ".grib1"};
  struct stat st;
  bool remote = bytes_is_remote(path);
  size_t n = remote && !strncasecmp(path, "http", 4) ? strcspn(path, "?#") : strlen(path);
  if (index_ends(path, n, ".zip") || index_ends(path, n, ".zarr")) return INDEX_ARCHIVE;
  if (!remote) return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? INDEX_ARCHIVE : INDEX_FILE;
  if (!strncasecmp(path, "memory:", 7) || !strncasecmp(path, "zip:", 4)) return INDEX_ARCHIVE;
  for (size_t i = 0; i < TOOL_COUNT(files); i++)
    if (index_ends(path, n, files[i])) return INDEX_FILE;
  return path[n - 1] == '/' ? INDEX_ARCHIVE : INDEX_EITHER;
}
/* With --base, where readers find the file: what guards it there. The copy's time does not, and
 * another file may well have its size. */
static int index_ask_base(struct virtual_target *t, struct bytes *copy) {
  enum { BEGIN = 16 << 10 };
  static unsigned char here[BEGIN], there[BEGIN];
  struct bytes b;
  uint64_t n = insitu__base_min(BEGIN, copy->size);
  if (!index_base_value || index_unasked_value || !bytes_is_remote(t->url)) return TOOL_OK;
  insitu_status status = bytes_open(&b, t->url);
  int code = TOOL_OK;
  if (status < 0)
    code = tool_fail("%s: %s. --base is asked what guards the file there; with --unasked its size "
                     "alone does",
        b.name,
        status == INSITU_E_UNSUPPORTED
            ? "its server ignores ranges, or does not tell a file's length"
            : b.err.message);
  else if (b.size != copy->size)
    code = tool_fail("%s has %" PRIu64 " bytes, and its copy %s %" PRIu64 "; fetch it again",
        b.name, b.size, copy->name, copy->size);
  else if (!bytes_read(&b, there, n, 0)) code = tool_fail_error(&b.err);
  else if (!bytes_read(copy, here, n, 0)) code = tool_fail_error(&copy->err);
  else if (memcmp(here, there, (size_t)n))
    code =
        tool_fail("%s and its copy %s are not the same file; fetch it again", b.name, copy->name);
  if (code == TOOL_OK) {
    if (!b.first.etag[0] || b.first.version.weak) t->modified = b.modified;
    if (b.first.etag[0]) t->etag = tool_copy(b.first.etag);
  }
  bytes_close(&b);
  return code;
}
/* The target of a file that was opened. A strong ETag tells all; where there is none, the time
 * does. */
static int index_target(
    struct virtual_archive *v, struct bytes *b, const char *path, const char *folder) {
  bool here = !index_base_value; /* readers find the file where it is scanned */
  bool strong = b->first.etag[0] && !b->first.version.weak;
  uint64_t target = virtual_add_target(v, index_url(path, folder), b->size,
      here && !strong ? b->modified : INT64_MIN,
      here && b->first.etag[0] ? tool_copy(b->first.etag) : NULL);
  if (target >= VIRTUAL_MAX_TARGETS) return tool_fail("more than VIRTUAL_MAX_TARGETS files");
  index_tell_query(path, b->name);
  return index_base_value ? index_ask_base(&v->target[target], b) : TOOL_OK;
}
/* All of the command. */
struct index_run {
  struct virtual_archive v;
  struct virtual_file *file; /* n of them */
  uint64_t n, gribs, archives;
  struct grib_scan grib;
  char folder[PATH_MAX];
};
/* Scans a file that was opened. */
static int index_scan_bytes(
    struct index_run *x, uint64_t i, struct bytes *b, const char *path, enum index_format format) {
  struct virtual_file *f = &x->file[i];
  int code = index_target(&x->v, b, path, x->folder);
  uint64_t target = INSITU__ARRAY_LEN(x->v.target) - 1;
  f->name = tool_copy(b->name);
  if (code != TOOL_OK) return code;
  if (format == INDEX_HDF5) code = hdf5_scan(&x->v, f, b, target);
  if (format == INDEX_NETCDF3) code = netcdf3_scan(&x->v, f, b, target);
  if (format == INDEX_GRIB) { /* messages of all files make the variables of the first */
    x->gribs++;
    code = grib_scan_file(&x->grib, &x->v, &x->file[0], b, path, target);
  }
  if (code == TOOL_OK && bytes_same(b) < 0) code = tool_fail_error(&b->err);
  return code;
}
/* Scans an archive. file: the failure of a try to open it as a file, which is told if this fails,
 * too. */
static int index_scan_archive(
    struct index_run *x, uint64_t i, const char *path, const insitu_error *file) {
  char shown[INSITU__MAX_KEY];
  bool far = bytes_is_remote(path);
  const char *name = far ? insitu__text_redact(path, shown, sizeof shown) : path;
  if (index_has_user(path))
    return tool_fail("%s: credentials stand in it, and no index may have them; give them as "
                     "options",
        name);
  index_tell_query(path, name);
  x->archives++;
  int code = index_zarr_scan(&x->v, &x->file[i], path, name,
      strstr(path, "://") ? bytes_plain(path) : index_url(path, x->folder));
  if (code != TOOL_OK && file->status < 0 && file->status != INSITU_E_NOTFOUND)
    tool_fail("as a file: %s", file->message);
  return code;
}
static int index_scan_file(struct index_run *x, uint64_t i, const char *path) {
  unsigned char head[INDEX_HEAD];
  char local[INSITU__MAX_KEY];
  uint64_t n = 0;
  int kind;
  insitu_error err = {0};
  if (!strncasecmp(path, "file:", 5)) { /* as a path */
    if (insitu__text_url_parse(path, &kind, local, sizeof local, &err) < 0)
      return tool_fail_error(&err);
    path = local;
  }
  struct bytes b = {.fd = -1};
  enum index_what what = index_what(path);
  insitu_status status = what == INDEX_ARCHIVE ? INSITU_OK : bytes_open(&b, path);
  enum index_format format = INDEX_UNKNOWN;
  if (what != INDEX_ARCHIVE && status >= 0) format = index_format_of(&b, head, &n);
  /* a store that may not be listed refuses what is not there */
  bool no_file = status == INSITU_E_NOTFOUND || status == INSITU_E_AUTH || status == INSITU_E_HTTP;
  if (what == INDEX_EITHER && (no_file || (format == INDEX_UNKNOWN && b.err.status >= 0)))
    what = INDEX_ARCHIVE;
  int code = TOOL_OK;
  if (what == INDEX_ARCHIVE) code = index_scan_archive(x, i, path, &b.err);
  else if (b.err.status < 0) code = tool_fail_error(&b.err);
  else if (format == INDEX_UNKNOWN) code = index_refuse_format(b.name, head, n);
  else code = index_scan_bytes(x, i, &b, path, format);
  if (code == TOOL_OK && x->gribs && x->gribs <= i)
    code = tool_fail("some of these files are GRIB, and others are not; index them apart");
  if (b.place && index_verbose_value) {
    char size[16];
    fprintf(stderr, "insitu index: %s: %" PRIu64 " requests, %s of %" PRIu64 " bytes\n", b.name,
        b.requests, tool_bytes(size, b.fetched), b.size);
  }
  bytes_close(&b);
  bytes_end_queries();
  return code;
}

/* ---- names ---- */

/* The new name of an array or axis by --rename OLD=NEW,...; NULL: it keeps its own. */
static char *index_new_name(const char *old) {
  size_t n = strlen(old);
  for (const char *p = index_rename_value; p && *p;) {
    size_t word = strcspn(p, ","), equal = strcspn(p, "=");
    if (equal == n && !strncmp(p, old, n) && equal + 1 < word) {
      char *text = insitu__mem_text(p + equal + 1, word - equal - 1);
      if (!text) tool_no_memory();
      return text;
    }
    p += word + (p[word] == ',');
  }
  return NULL;
}
static void index_rename_one(char **name) {
  char *new_name = *name ? index_new_name(*name) : NULL;
  if (!new_name) return;
  insitu__mem_free(*name);
  *name = new_name;
}
static void index_rename(struct virtual_file *f) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) {
    index_rename_one(&f->array[i]->path);
    for (unsigned k = 0; k < f->array[i]->ndim; k++) index_rename_one(&f->array[i]->dim[k]);
  }
}
static bool index_is_listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; *p;) {
    size_t word = strcspn(p, ",");
    if (word == n && !strncmp(p, name, n)) return true;
    p += word + (p[word] == ',');
  }
  return false;
}
/* Leaves out all arrays that --arrays does not list, but for coordinates of those. */
static void index_select(struct virtual_file *f) {
  uint64_t n = INSITU__ARRAY_LEN(f->array), kept = 0;
  for (uint64_t i = 0; index_arrays_value && i < n; i++) {
    struct virtual_array *a = f->array[i];
    bool keep = index_is_listed(index_arrays_value, a->path);
    for (uint64_t m = 0; index_is_coordinate(a) && !keep && m < n; m++) {
      const struct virtual_array *other = m < i ? NULL : f->array[m];
      for (uint64_t o = 0; m < i && o < kept; o++)
        for (unsigned k = 0; k < f->array[o]->ndim && !keep; k++)
          keep = f->array[o]->dim[k] && !strcmp(f->array[o]->dim[k], a->dim[0]);
      if (!other || !index_is_listed(index_arrays_value, other->path)) continue;
      for (unsigned k = 0; k < other->ndim && !keep; k++)
        keep = other->dim[k] && !strcmp(other->dim[k], a->dim[0]);
    }
    if (keep) f->array[kept++] = a;
    else virtual_array_free(a);
  }
  if (index_arrays_value && n) insitu__array_header(f->array)->length = kept;
}

/* ---- the command ---- */

/* What readers have to allow, and what guards the files. */
static void index_print_targets(const struct virtual_archive *v) {
  uint64_t n = INSITU__ARRAY_LEN(v->target), by_size = 0;
  const char *outside = NULL;
  for (uint64_t i = n; i-- > 0;) {
    const struct virtual_target *t = &v->target[i];
    by_size += t->size != UINT64_MAX && !t->etag && t->modified == INT64_MIN;
    if (strstr(t->url, "://")) outside = t->url;
  }
  if (outside)
    printf("Files outside its folder are read only where desc.virtual_prefixes allows it, such as "
           "%s\n",
        outside);
  if (by_size)
    printf("Of %" PRIu64 " of its %" PRIu64 " files the size alone is known where readers find "
           "them: another file of that size is not noticed.\n",
        by_size, n);
}
/* Where the chunks lie: "in 2 files and 1 archive". Of neither, the index holds their bytes. */
static void index_print_where(uint64_t files, uint64_t archives) {
  printf(" in %s", files || archives ? "" : "the index");
  if (files) printf("%" PRIu64 " file%s", files, files == 1 ? "" : "s");
  if (files && archives) printf(" and ");
  if (archives) printf("%" PRIu64 " archive%s", archives, archives == 1 ? "" : "s");
  printf("\n");
}
/* archives: how many are indexed, beside the files that v names. */
static void index_print_summary(const struct virtual_archive *v, const struct virtual_file *f,
    uint64_t archives, uint64_t bytes) {
  uint64_t chunks = 0, files = INSITU__ARRAY_LEN(v->target);
  char size[16], count[32];
  struct tool_json_out j = {.to = stdout};
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) chunks += f->array[i]->n_refs;
  if (!tool_json) {
    printf("%s: %s, %" PRIu64 " array%s, %s chunks", index_out, tool_bytes(size, bytes),
        INSITU__ARRAY_LEN(f->array), INSITU__ARRAY_LEN(f->array) == 1 ? "" : "s",
        tool_count(count, chunks));
    index_print_where(files, archives);
    if (bytes_total.requests)
      printf("Scanned by %" PRIu64 " requests, %s\n", bytes_total.requests,
          tool_bytes(size, bytes_total.fetched));
    index_print_targets(v);
    return;
  }
  tool_json_object(&j, NULL);
  tool_json_string(&j, "index", index_out);
  tool_json_u64(&j, "bytes", bytes);
  tool_json_u64(&j, "files", files);
  tool_json_u64(&j, "archives", archives);
  tool_json_u64(&j, "chunks", chunks);
  tool_json_u64(&j, "requests", bytes_total.requests);
  tool_json_u64(&j, "bytes_fetched", bytes_total.fetched);
  tool_json_u64(&j, "left_out", v->left_out);
  tool_json_array(&j, "arrays");
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) {
    const struct virtual_array *a = f->array[i];
    tool_json_object(&j, NULL);
    tool_json_string(&j, "path", a->path);
    tool_json_list(&j, "shape");
    for (unsigned k = 0; k < a->ndim; k++) tool_json_u64(&j, NULL, a->shape[k]);
    tool_json_end(&j);
    tool_json_list(&j, "chunk");
    for (unsigned k = 0; k < a->ndim; k++) tool_json_u64(&j, NULL, a->chunk[k]);
    tool_json_end(&j);
    tool_json_bool(&j, "regular", a->axis < 0);
    tool_json_u64(&j, "chunks", a->n_refs);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  tool_json_end(&j);
}
static int index_finish(struct index_run *x, struct virtual_file *f) {
  int code = TOOL_OK;
  uint64_t bytes = 0;
  for (uint64_t i = 0; code == TOOL_OK && i < INSITU__ARRAY_LEN(f->array); i++)
    code = index_finish_array(&x->v, f->array[i], f->name);
  if (code == TOOL_OK && !INSITU__ARRAY_LEN(f->array))
    code = tool_fail("%s: no array is left to index", f->name);
  if (code != TOOL_OK) return code;
  virtual_add_metadata(&x->v, f);
  code = virtual_write(&x->v, f, index_out, &bytes);
  if (code == TOOL_OK) index_print_summary(&x->v, f, x->archives, bytes);
  return code;
}
static int index_run(int argc, char **argv) {
  if (!index_out) return tool_usage_error("--out is missing: the index to write, such as a.insitu");
  if (argc < 1) return tool_usage_error("name the files to index");
  if (index_unasked_value && !index_base_value)
    return tool_usage_error("--unasked: it is of --base");
  int code = index_check_base(index_base_value);
  if (code != TOOL_OK) return code;
  struct index_run *x = tool_alloc(1, sizeof *x);
  code = index_folder(index_out, x->folder);
  x->n = (uint64_t)argc;
  x->file = tool_alloc(x->n, sizeof *x->file);
  for (uint64_t i = 0; code == TOOL_OK && i < x->n; i++) {
    code = index_scan_file(x, i, argv[i]);
    if (x->gribs) continue;
    index_select(&x->file[i]);
    index_rename(&x->file[i]);
  }
  if (code == TOOL_OK && index_match_value && !x->gribs)
    code = tool_usage_error("--match chooses messages of GRIB files, and none is one");
  if (code == TOOL_OK && x->gribs) {
    grib_scan_end(&x->grib);
    index_select(&x->file[0]);
    index_rename(&x->file[0]);
  } else if (code == TOOL_OK) code = index_join(x->file, x->n);
  if (code == TOOL_OK) code = index_finish(x, &x->file[0]);
  grib_free(&x->grib);
  for (uint64_t i = 0; i < x->n; i++) virtual_file_free(&x->file[i]);
  insitu__mem_free(x->file);
  virtual_archive_free(&x->v);
  bytes_end();
  insitu__mem_free(x);
  return code;
}

static const struct tool_option index_options[] = {
    {"out", 'o', "FILE", "the index to write, such as winds.insitu", &index_out},
    {"join", 'j', "AXIS", "the axis along which several files are joined (time)",
        &index_join_value},
    {"arrays", 'a', "LIST", "only these arrays, and the coordinates of their axes",
        &index_arrays_value},
    {"rename", 0, "LIST", "new names of arrays and axes, as in UWND=uwnd,TIME=time",
        &index_rename_value},
    {"rows", 0, "N", "rows in a chunk of contiguous data (about 1 MiB)", &index_rows_value},
    {"match", 0, "REGEX",
        "of GRIB: only messages whose line in FILE.idx matches, as in ':TMP:2 m '",
        &index_match_value},
    {"base", 0, "URL", "where readers find the files, as in s3://bucket/folder", &index_base_value},
    {"unasked", 0, NULL, "do not ask --base what guards the files there: their sizes alone do",
        &index_unasked_value},
    {"any-order", 0, NULL, "let the joined axis go back or overlap", &index_any_order_value},
    {"verbose", 'v', NULL, "requests and bytes of each file in a store, to stderr",
        &index_verbose_value},
    TOOL_STORE_OPTIONS};
static const struct tool_command index_command = {.name = "index",
    .arguments = "FILE ... --out NAME.insitu [options]",
    .summary = "NetCDF, HDF5, GRIB files and Zarr archives as one archive, without a copy",
    .details =
        "Scans files once, and writes where each chunk lies. The index then opens like any "
        "archive, and chunks\n"
        "are read from the files themselves. Files lie on this machine or in a store (http, https, "
        "s3, gs, az),\n"
        "of which only what describes the data is read, by ranges. The index has size and ETag or "
        "time of each\n"
        "file: what has changed since is refused. With --base and copies on this machine, size and "
        "ETag are those\n"
        "that the URL tells. Several files are joined along an axis; their lengths may differ. Of "
        "GRIB the\n"
        "inventory FILE.idx (NOAA) or NAME.index (ECMWF) is used where it lies beside "
        "FILE.\n\n" TOOL_STORE_HELP "examples:\n"
        "  insitu index winds.nc -o winds.insitu\n"
        "  insitu index era5-*.nc -o era5.insitu --arrays t2m,u10\n"
        "  insitu index 19*.zarr --join time -o all.insitu\n"
        "  insitu index s3://bucket/era5/2020.nc s3://bucket/era5/2021.nc -o era5.insitu\n"
        "  insitu index https://host/gfs.t00z.pgrb2.0p25.f000 -o t2m.insitu --match ':TMP:2 m '\n"
        "  insitu index a.nc -o a.insitu --base s3://bucket/folder\n",
    .options = index_options,
    .n_options = TOOL_COUNT(index_options),
    .run = index_run};
