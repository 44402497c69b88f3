/* insitu index: NetCDF classic files, by the header that netcdf3.h reads. */

enum { NETCDF3_MAX_HEADER = 256 << 20 }; /* bytes of a header */

static char netcdf3_kind(int type) {
  if (type == NETCDF3_CHAR) return 'S';
  if (type == NETCDF3_FLOAT || type == NETCDF3_DOUBLE) return 'f';
  return type == 7 || type == 8 || type == 9 || type == 11 ? 'u' : 'i';
}
static char *netcdf3_print_attributes(const struct netcdf3_attribute *list) {
  struct insitu__text_buffer b = {0};
  insitu__text_buffer_printf(&b, "{");
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(list); i++) {
    const struct netcdf3_attribute *a = &list[i];
    unsigned size = netcdf3_type_bytes(a->type);
    if (a->n * size > INDEX_MAX_ATTRIBUTE) continue;
    index_print_key(&b, a->name.text, a->name.n);
    if (a->type == NETCDF3_CHAR) index_print_text(&b, a->bytes, a->n);
    else index_print_list(&b, netcdf3_kind(a->type), size, a->bytes, true, a->n, a->n != 1);
  }
  insitu__text_buffer_printf(&b, "}");
  return virtual_take(&b);
}
static char *netcdf3_copy_name(struct netcdf3_name name) {
  char *text = insitu__mem_text(name.text, name.n);
  if (!text) tool_no_memory();
  return text;
}
/* A variable as rows along its first axis; the last axis of characters becomes their length. */
static void netcdf3_add(struct virtual_archive *v, struct virtual_file *f, const struct netcdf3 *n,
    const struct netcdf3_variable *x, uint64_t target) {
  char *path = netcdf3_copy_name(x->name);
  struct virtual_array *a = virtual_add_array(f, path);
  insitu__mem_free(path);
  a->kind = VIRTUAL_RAW;
  a->target = target;
  a->offset = x->begin;
  a->attributes = netcdf3_print_attributes(x->attribute);
  a->ndim = x->ndim;
  bool text = x->type == NETCDF3_CHAR;
  for (unsigned k = 0; k < a->ndim; k++) {
    const struct netcdf3_dimension *d = &n->dimension[x->dim[k]];
    a->shape[k] = d->length;
    a->dim[k] = netcdf3_copy_name(d->name);
  }
  uint64_t length = 1;
  if (text && a->ndim > x->record) {
    length = a->shape[--a->ndim];
    insitu__mem_free(a->dim[a->ndim]);
    a->dim[a->ndim] = NULL;
  }
  if (text && (!length || length > INSITU__MAX_ELEMENT)) {
    virtual_leave_out(v, f, a->path, "its texts have %" PRIu64 " bytes (1 to %u are supported)",
        length, INSITU__MAX_ELEMENT);
    virtual_drop_last(f);
    return;
  }
  if (text) index_set_text(a, length);
  else index_set_type(a, netcdf3_kind(x->type), netcdf3_type_bytes(x->type), true);
  a->fill = tool_copy(text ? "\"\"" : "0");
  uint64_t rows = a->ndim ? insitu__base_max(1, a->shape[0]) : 1;
  a->stride = x->record ? n->record_bytes : x->part / rows;
  for (unsigned k = 0; k < a->ndim; k++) a->chunk[k] = insitu__base_max(1, a->shape[k]);
}
/* Reads the header, however long it is, into memory that *bytes owns. */
static int netcdf3_open(struct bytes *b, struct netcdf3 *n, void **bytes) {
  bool truncated = true;
  for (uint64_t have = 64 << 10; truncated; have *= 4) {
    insitu_error err = {0};
    have = insitu__base_min(have, insitu__base_min(b->size, NETCDF3_MAX_HEADER));
    insitu__mem_free(*bytes);
    *bytes = tool_alloc(have + 1, 1);
    if (!bytes_read(b, *bytes, have, 0)) return tool_fail_error(&b->err);
    if (netcdf3_parse(n, *bytes, have, b->size, &truncated, &err) < 0)
      return tool_fail("%s: %s", b->name, err.message);
    if (truncated) netcdf3_free(n);
    if (truncated && have == NETCDF3_MAX_HEADER)
      return tool_fail("%s: its header is longer than NETCDF3_MAX_HEADER (%d MiB)", b->name,
          NETCDF3_MAX_HEADER >> 20);
  }
  return TOOL_OK;
}
static int netcdf3_scan(
    struct virtual_archive *v, struct virtual_file *f, struct bytes *b, uint64_t target) {
  struct netcdf3 n = {.version = 0};
  void *bytes = NULL;
  int code = netcdf3_open(b, &n, &bytes);
  for (uint64_t i = 0; code == TOOL_OK && i < INSITU__ARRAY_LEN(n.variable); i++)
    netcdf3_add(v, f, &n, &n.variable[i], target);
  if (code == TOOL_OK) virtual_add_group(f, "", netcdf3_print_attributes(n.attribute));
  if (code == TOOL_OK) code = index_settle(f, b);
  netcdf3_free(&n);
  insitu__mem_free(bytes);
  return code;
}
