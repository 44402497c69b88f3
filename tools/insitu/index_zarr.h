/* insitu index: Zarr archives of one schema, joined along an axis. Their chunks stay where they
 * are: the index says which archive has which chunks (struct virtual_piece). Metadata become v3,
 * since its grids can have chunks of any lengths; of v2, codecs become those of the same names. */

/* Where the parts of an array's metadata stand. */
struct index_zarr {
  struct virtual_archive *v;
  struct virtual_file *f;
  struct tool_archive archive;
  insitu_loader *loader; /* reads small arrays */
  const char *url;
  char *where; /* the archive's URL as the index has it */
};

/* The span of a member as a text of its own; NULL: there is none. */
static char *index_span(const struct insitu__text_json *j, int node, const char *name) {
  uint64_t n;
  int token = insitu__text_json_get(j, node, name);
  const char *span = token < 0 ? NULL : insitu__text_json_span(j, token, &n);
  char *text = span ? insitu__mem_text(span, n) : NULL;
  if (span && !text) tool_no_memory();
  return text;
}

/* ---- v2 to v3 ---- */

static bool index_v2_typed(const char *id) {
  static const char *const typed[] = {
      "delta", "fixedscaleoffset", "astype", "quantize", "bitround", "packbits"};
  for (size_t i = 0; i < TOOL_COUNT(typed); i++)
    if (!strcmp(id, typed[i])) return true;
  return false;
}
/* A codec of v2 as one of v3: its id becomes the name, its other keys the configuration. */
static void index_v2_codec(
    struct insitu__text_buffer *b, const struct insitu__text_json *j, int codec, const char *id) {
  bool any = false;
  insitu__text_buffer_printf(
      b, "%s{\"name\":\"numcodecs.%s\",\"configuration\":{", b->n ? "," : "", id);
  for (int t = insitu__text_json_first(j, codec); t >= 0; t = insitu__text_json_next(j, t)) {
    uint64_t n;
    if (insitu__text_json_equals(j, t, "id")) continue;
    const char *span = insitu__text_json_span(j, t, &n);
    insitu__text_buffer_printf(b, "%s%.*s:", any ? "," : "", (int)n, span);
    span = insitu__text_json_span(j, insitu__text_json_value(j, t), &n);
    insitu__text_buffer_bytes(b, span, n);
    any = true;
  }
  insitu__text_buffer_printf(b, "}}");
}
/* The list of codecs: filters of elements, transpose, bytes, filters of bytes, compressor. NULL, or
 * why v3 cannot say it. */
static const char *index_v2_codecs(struct insitu__text_buffer *b, const struct insitu__text_json *j,
    int node, const struct insitu__zarr_array *z, bool big) {
  struct insitu__text_buffer late = {0};
  char id[64];
  const char *why = NULL;
  bool strings = z->kind == INSITU__ZARR_STRING;
  int filters = insitu__text_json_get(j, node, "filters"),
      compressor = insitu__text_json_get(j, node, "compressor");
  for (int t = insitu__text_json_is_array(j, filters) ? insitu__text_json_first(j, filters) : -1;
       t >= 0; t = insitu__text_json_next(j, t)) {
    insitu__text_json_string(j, insitu__text_json_get(j, t, "id"), id, sizeof id);
    if (strings && !strncmp(id, "vlen-", 5)) continue;
    if (!index_v2_typed(id)) index_v2_codec(&late, j, t, id);
    else if (late.n) why = "a filter of elements follows one of bytes, which Zarr v3 cannot have";
    else index_v2_codec(b, j, t, id);
  }
  if (insitu__text_json_is_object(j, compressor)) {
    insitu__text_json_string(j, insitu__text_json_get(j, compressor, "id"), id, sizeof id);
    index_v2_codec(&late, j, compressor, id);
  }
  if (insitu__text_json_equals(j, insitu__text_json_get(j, node, "order"), "F") && z->axes > 1) {
    insitu__text_buffer_printf(
        b, "%s{\"name\":\"transpose\",\"configuration\":{\"order\":[", b->n ? "," : "");
    for (unsigned k = z->axes; k-- > 0;) insitu__text_buffer_printf(b, k ? "%u," : "%u", k);
    insitu__text_buffer_printf(b, "]}}");
  }
  insitu__text_buffer_printf(b, b->n ? "," : "");
  if (z->strings == INSITU__ZARR_JSON2) why = "its strings are json2, which Zarr v3 does not have";
  else if (strings)
    insitu__text_buffer_printf(
        b, "{\"name\":\"%s\"}", z->strings == INSITU__ZARR_VLEN_BYTES ? "vlen-bytes" : "vlen-utf8");
  else
    insitu__text_buffer_printf(
        b, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"%s\"}}", big ? "big" : "little");
  if (late.n) insitu__text_buffer_printf(b, ",%s", late.text);
  if (late.failed) tool_no_memory();
  insitu__text_buffer_free(&late);
  return why;
}
/* data_type of v3. */
static char *index_v2_type(const struct insitu__zarr_array *z, const char *dtype) {
  struct insitu__text_buffer b = {0};
  static const char *const wide[] = {[INSITU__ZARR_RAW] = "raw_bytes",
      [INSITU__ZARR_CHAR] = "null_terminated_bytes",
      [INSITU__ZARR_UCS4] = "fixed_length_utf32"};
  uint64_t scale = strtoull(z->unit, NULL, 10), bytes = strtoull(dtype + 2, NULL, 10);
  const char *unit = z->unit + strspn(z->unit, "0123456789");
  switch (z->kind) {
  case INSITU__ZARR_NUMBER:
    insitu__text_buffer_printf(&b, "\"%s\"", insitu__dtype_name(z->dtype));
    break;
  case INSITU__ZARR_DATE:
  case INSITU__ZARR_DIFFERENCE:
    insitu__text_buffer_printf(&b,
        "{\"name\":\"numpy.%s\",\"configuration\":{\"unit\":\"%s\",\"scale_factor\":%" PRIu64 "}}",
        z->kind == INSITU__ZARR_DATE ? "datetime64" : "timedelta64", *unit ? unit : "generic",
        scale ? scale : 1);
    break;
  case INSITU__ZARR_STRING:
    insitu__text_buffer_printf(
        &b, z->strings == INSITU__ZARR_VLEN_BYTES ? "\"variable_length_bytes\"" : "\"string\"");
    break;
  default:
    insitu__text_buffer_printf(&b,
        "{\"name\":\"%s\",\"configuration\":{\"length_bytes\":%" PRIu64 "}}", wide[z->kind],
        z->kind == INSITU__ZARR_UCS4 ? 4 * bytes : bytes);
  }
  return virtual_take(&b);
}
/* The attributes; v2's fill value is the missing value of CF conventions, v3's is not. */
static char *index_v2_attributes(const char *attributes, const char *fill) {
  struct insitu__text_buffer b = {0};
  struct insitu__text_json j;
  bool has = index_parse(&j, attributes);
  bool add = strcmp(fill, "null") && (!has || insitu__text_json_get(&j, 0, "_FillValue") < 0);
  if (has) insitu__text_json_free(&j);
  const char *rest = has ? strchr(attributes, '{') + 1 : "}";
  if (!add) return tool_copy(has ? attributes : "{}");
  insitu__text_buffer_printf(
      &b, "{\"_FillValue\":%s%s%s", fill, rest[strspn(rest, " \t\r\n")] == '}' ? "" : ",", rest);
  return virtual_take(&b);
}
static const char *index_zarr_v2(struct virtual_array *a, const struct insitu__text_json *j,
    int node, const struct insitu__zarr_array *z) {
  struct insitu__text_buffer codecs = {0};
  char dtype[24] = "";
  insitu__text_json_string(j, insitu__text_json_get(j, node, "dtype"), dtype, sizeof dtype);
  const char *why = index_v2_codecs(&codecs, j, node, z, dtype[0] == '>');
  char *fill = index_span(j, node, "fill_value");
  bool number = z->kind == INSITU__ZARR_NUMBER;
  if (!fill) fill = tool_copy("null");
  a->serializer = virtual_take(&codecs);
  a->type = index_v2_type(z, dtype);
  a->attributes = number ? index_v2_attributes(z->attributes, fill)
                         : tool_copy(z->attributes ? z->attributes : "{}");
  bool none = !strcmp(fill, "null");
  a->fill = none ? tool_copy(number                               ? "0"
                             : z->kind == INSITU__ZARR_DATE       ? "\"NaT\""
                             : z->kind == INSITU__ZARR_DIFFERENCE ? "\"NaT\""
                                                                  : "\"\"")
                 : tool_copy(fill);
  if (none && number && z->dtype == INSITU_BOOL) memcpy(a->fill, "0", 2);
  insitu__mem_free(fill);
  return why;
}
static const char *index_zarr_v3(struct virtual_array *a, const struct insitu__text_json *j,
    int node, const struct insitu__zarr_array *z) {
  char *codecs = index_span(j, node, "codecs");
  size_t n = codecs ? strlen(codecs) : 0;
  a->type = index_span(j, node, "data_type");
  a->fill = index_span(j, node, "fill_value");
  a->attributes = tool_copy(z->attributes ? z->attributes : "{}");
  if (n >= 2) { /* without the list's brackets */
    codecs[n - 1] = 0;
    memmove(codecs, codecs + 1, n - 1);
  }
  a->serializer = codecs;
  return codecs && a->type && a->fill ? NULL : "its metadata are not whole";
}

/* ---- arrays ---- */

/* Reads all of a small array of numbers into the index, in the machine's byte order. */
static bool index_zarr_values(struct index_zarr *x, struct virtual_array *a, insitu_error *err) {
  const insitu_variable variable = {.label = "values", .path = a->path};
  uint64_t n = virtual_bytes(a);
  insitu_loader_desc d = tool_desc(x->url);
  d.plan_only = 1;
  if (!x->loader && insitu_loader_open(&d, &x->loader, err) < 0) return false;
  unsigned char *values = tool_alloc(n + 1, 1);
  if (n && insitu_read(x->loader, &variable, values, n, NULL, err) < 0) {
    insitu__mem_free(values);
    return false;
  }
  index_set_values(a, values, n);
  insitu__mem_free(a->serializer);
  a->serializer = NULL;
  a->big = false; /* only little-endian machines are supported */
  return true;
}
/* Fills in an array whose metadata were read. NULL, or what is wrong with it. */
static const char *index_zarr_describe(struct index_zarr *x, struct virtual_array *a,
    const struct insitu__zarr_array *z, const struct tool_node *node, insitu_error *err) {
  a->ndim = z->axes;
  a->kind = VIRTUAL_PIECES;
  a->itemsize = z->itemsize ? z->itemsize : 1;
  a->scalar = insitu__dtype_size(z->dtype);
  for (unsigned k = z->axes; k < z->ndim; k++) a->itemsize *= (uint32_t)z->shape[k];
  for (unsigned k = 0; k < a->ndim; k++) {
    a->shape[k] = z->shape[k];
    a->chunk[k] = z->object.chunk[k];
    if (z->dim[k]) a->dim[k] = tool_copy(z->dim[k]);
  }
  const char *why = z->format == 2 ? index_zarr_v2(a, node->doc, node->node, z)
                                   : index_zarr_v3(a, node->doc, node->node, z);
  if (why) return why;
  if (z->kind == INSITU__ZARR_NUMBER && index_kind(a) && index_is_small(a)) {
    if (index_zarr_values(x, a, err)) return NULL;
    return err->message;
  }
  if (!a->ndim) return "it is a single value, and no number";
  uint64_t grid[INSITU__MAX_DIMS];
  virtual_grid(a, grid);
  struct virtual_piece p = {.axis = 0, .count = grid[0], .url = tool_copy(x->where)};
  p.path = tool_copy(a->path);
  p.keys = z->key_c ? (z->separator == '/' ? 2 : 3) : (z->separator == '/' ? 1 : 0);
  if (!INSITU__ARRAY_PUSH(a->piece, p)) tool_no_memory();
  return NULL;
}
static void index_zarr_array(struct index_zarr *x, const char *path) {
  struct insitu__zarr_array z = {.format = 0};
  struct tool_node node;
  insitu_error err = {0};
  struct virtual_array *a = virtual_add_array(x->f, path);
  const char *why = NULL;
  memset(&node, 0, sizeof node);
  if (tool_archive_array(&x->archive, path, &z, &err) < 0 ||
      tool_archive_node(&x->archive, path, &node, &err) < 0)
    why = err.message;
  else why = index_zarr_describe(x, a, &z, &node, &err);
  if (why) {
    virtual_leave_out(x->v, x->f, path, "%s", why);
    virtual_drop_last(x->f);
  }
  tool_node_free(&node);
  insitu__zarr_array_free(&z);
}
/* name: the URL without what may be a secret. */
static int index_zarr_scan(struct virtual_archive *v, struct virtual_file *f, const char *url,
    const char *name, char *where) {
  struct index_zarr x = {.v = v, .f = f, .url = url, .where = where};
  char *attributes = NULL;
  insitu_error err = {0};
  f->name = tool_copy(name);
  int code = tool_archive_open(url, &x.archive);
  if (code == TOOL_OK && x.archive.list_error.status < 0)
    code = tool_fail_error(&x.archive.list_error);
  if (code == TOOL_OK && tool_archive_attributes(&x.archive, "", &attributes, &err) == INSITU_OK)
    virtual_add_group(f, "", attributes ? attributes : tool_copy("{}"));
  for (uint64_t i = 0; code == TOOL_OK && i < x.archive.n_paths; i++)
    index_zarr_array(&x, x.archive.paths[i]);
  tool_archive_close(&x.archive);
  insitu_loader_close(&x.loader);
  insitu__mem_free(where);
  return code;
}
