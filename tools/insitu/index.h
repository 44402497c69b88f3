/* insitu index: files of other formats as one archive, without a copy of their data. */
static const char *index_out, *index_rename_value, *index_arrays_value, *index_base_value;

enum index_format { INDEX_UNKNOWN, INDEX_HDF5, INDEX_NETCDF3, INDEX_GRIB, INDEX_ZARR };

/* ---- which file is what ---- */

static enum index_format index_format_of(const unsigned char *p, uint64_t n) {
  static const unsigned char hdf5[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  if (n >= 4 && !memcmp(p, "CDF", 3) && (p[3] == 1 || p[3] == 2 || p[3] == 5)) return INDEX_NETCDF3;
  if (n >= 4 && !memcmp(p, "GRIB", 4)) return INDEX_GRIB;
  for (uint64_t at = 0; at + sizeof hdf5 <= n; at = at ? 2 * at : 512)
    if (!memcmp(p + at, hdf5, sizeof hdf5)) return INDEX_HDF5;
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

/* A path below the index's folder as it is seen from there; else absolute, as a URL. */
static char *index_url(const char *path, const char *folder) {
  char whole[PATH_MAX];
  struct insitu__text_buffer b = {0};
  if (index_base_value) {
    const char *base = index_base_value;
    insitu__text_buffer_printf(
        &b, "%s%s%s", base, base[strlen(base) - 1] == '/' ? "" : "/", index_last_name(path));
    return virtual_take(&b);
  }
  if (!realpath(path, whole)) snprintf(whole, sizeof whole, "%s", path);
  size_t n = strlen(folder);
  if (!strncmp(whole, folder, n) && (whole[n] == '/' || n == 1))
    insitu__text_buffer_printf(&b, "%s", whole + n + (whole[n] == '/'));
  else insitu__text_buffer_printf(&b, "file://%s", whole);
  return virtual_take(&b);
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

/* Whether it is to be opened as an archive: a folder, a zip file, or what a URL names. */
static bool index_is_archive(const char *path) {
  struct stat st;
  size_t n = strlen(path);
  if (strstr(path, "://")) return true;
  if (n > 4 && !strcmp(path + n - 4, ".zip")) return true;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
/* Whether a URL names a file of another format by its ending. */
static bool index_is_far_file(const char *url) {
  static const char *const ending[] = {
      ".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5", ".grib", ".grib2", ".grb", ".grb2"};
  size_t n = strlen(url);
  for (size_t i = 0; strstr(url, "://") && i < TOOL_COUNT(ending); i++) {
    size_t m = strlen(ending[i]);
    if (n > m && !strcasecmp(url + n - m, ending[i])) return true;
  }
  return false;
}
static int index_scan_file(struct virtual_archive *v, struct virtual_file *f, const char *path,
    const char *folder, bool *grib) {
  enum { HEAD = 1 << 20 };
  static unsigned char head[HEAD];
  struct stat st;
  if (index_is_far_file(path))
    return tool_fail(
        "%s: files are scanned on this machine only; fetch it, and index the copy with "
        "--base and the URL of its folder",
        path);
  if (index_is_archive(path))
    return index_zarr_scan(
        v, f, path, strstr(path, "://") ? tool_copy(path) : index_url(path, folder));
  f->name = tool_copy(path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tool_fail("%s: %s; check the path", path, strerror(errno));
  bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  uint64_t n = ok ? insitu__base_min(HEAD, (uint64_t)st.st_size) : 0;
  ok = ok && index_read(fd, head, n, 0);
  close(fd);
  if (!ok) return tool_fail("%s: it cannot be read, or is no file", path);
  enum index_format format = index_format_of(head, n);
  if (format == INDEX_UNKNOWN) return index_refuse_format(path, head, n);
  uint64_t target = virtual_add_target(v, index_url(path, folder), (uint64_t)st.st_size,
      index_base_value ? INT64_MIN : (int64_t)st.st_mtime, NULL);
  if (target >= VIRTUAL_MAX_TARGETS) return tool_fail("more than VIRTUAL_MAX_TARGETS files");
  *grib = format == INDEX_GRIB;
  if (*grib) return TOOL_OK; /* all of them together: see index_gribs */
  if (format == INDEX_HDF5) return hdf5_scan(v, f, path, target);
  return netcdf3_scan(v, f, path, target);
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

static void index_print_summary(
    const struct virtual_archive *v, const struct virtual_file *f, uint64_t bytes) {
  uint64_t chunks = 0;
  char size[16], count[32];
  struct tool_json_out j = {.to = stdout};
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++) chunks += f->array[i]->n_refs;
  if (!tool_json) {
    printf("%s: %s, %" PRIu64 " array%s, %s chunks in %" PRIu64 " file%s\n", index_out,
        tool_bytes(size, bytes), INSITU__ARRAY_LEN(f->array),
        INSITU__ARRAY_LEN(f->array) == 1 ? "" : "s", tool_count(count, chunks),
        INSITU__ARRAY_LEN(v->target), INSITU__ARRAY_LEN(v->target) == 1 ? "" : "s");
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(v->target); i++)
      if (!strncmp(v->target[i].url, "file://", 7)) {
        printf(
            "Files outside its folder are read only where desc.virtual_prefixes allows it, such as "
            "%s\n",
            v->target[i].url);
        break;
      }
    return;
  }
  tool_json_object(&j, NULL);
  tool_json_string(&j, "index", index_out);
  tool_json_u64(&j, "bytes", bytes);
  tool_json_u64(&j, "files", INSITU__ARRAY_LEN(v->target));
  tool_json_u64(&j, "chunks", chunks);
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
static int index_finish(struct virtual_archive *v, struct virtual_file *f) {
  int code = TOOL_OK;
  uint64_t bytes = 0;
  for (uint64_t i = 0; code == TOOL_OK && i < INSITU__ARRAY_LEN(f->array); i++)
    code = index_finish_array(v, f->array[i], f->name);
  if (code == TOOL_OK && !INSITU__ARRAY_LEN(f->array))
    code = tool_fail("%s: no array is left to index", f->name);
  if (code != TOOL_OK) return code;
  virtual_add_metadata(v, f);
  code = virtual_write(v, f, index_out, &bytes);
  if (code == TOOL_OK) index_print_summary(v, f, bytes);
  return code;
}
/* Messages of all files make up the variables: there is nothing to join. */
static int index_gribs(
    struct virtual_archive *v, struct virtual_file *file, char **path, uint64_t n, uint64_t gribs) {
  if (gribs < n)
    return tool_fail("some of these files are GRIB, and others are not; index them apart");
  int code = grib_scan(v, &file[0], path, n);
  index_select(&file[0]);
  index_rename(&file[0]);
  return code;
}
static int index_run(int argc, char **argv) {
  struct virtual_archive v = {0};
  char folder[PATH_MAX];
  if (!index_out) return tool_usage_error("--out is missing: the index to write, such as a.insitu");
  if (argc < 1) return tool_usage_error("name the files to index");
  if (index_base_value && !*index_base_value) return tool_usage_error("--base: a URL is needed");
  int code = index_folder(index_out, folder);
  uint64_t n = (uint64_t)argc;
  struct virtual_file *file = tool_alloc(n, sizeof *file);
  uint64_t gribs = 0;
  for (uint64_t i = 0; code == TOOL_OK && i < n; i++) {
    bool grib = false;
    code = index_scan_file(&v, &file[i], argv[i], folder, &grib);
    gribs += grib;
    index_select(&file[i]);
    index_rename(&file[i]);
  }
  if (code == TOOL_OK) code = gribs ? index_gribs(&v, file, argv, n, gribs) : index_join(file, n);
  if (code == TOOL_OK) code = index_finish(&v, &file[0]);
  for (uint64_t i = 0; i < n; i++) virtual_file_free(&file[i]);
  insitu__mem_free(file);
  virtual_archive_free(&v);
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
    {"base", 0, "URL", "where readers find the files, as in s3://bucket/folder", &index_base_value},
    {"any-order", 0, NULL, "let the joined axis go back or overlap", &index_any_order_value}};
static const struct tool_command index_command = {.name = "index",
    .arguments = "FILE ... --out NAME.insitu [options]",
    .summary = "NetCDF, HDF5, GRIB files and Zarr archives as one archive, without a copy",
    .details =
        "Scans files once, and writes where each chunk lies. The index then opens like any "
        "archive, and chunks\n"
        "are read from the files themselves. It has size and time of each file: what has changed "
        "since is\n"
        "refused. Several files are joined along an axis; their lengths may differ.\n\n"
        "examples:\n"
        "  insitu index winds.nc -o winds.insitu\n"
        "  insitu index era5-*.nc -o era5.insitu --arrays t2m,u10\n"
        "  insitu index 19*.zarr --join time -o all.insitu\n"
        "  insitu index a.nc -o a.insitu --base s3://bucket/folder\n",
    .options = index_options,
    .n_options = TOOL_COUNT(index_options),
    .run = index_run};
