/* insitu info: an archive as text: arrays, groups, images. */
/* ---- text ---- */

/* The targets of references, and how many of them may be replaced without anybody noticing before
 * they are read. */
static uint64_t info_targets(const struct insitu__refstore *r) {
  return INSITU__ARRAY_LEN(r->refs.target) + (r->null_target != UINT64_MAX);
}
static void info_print_targets(const struct insitu__refstore *r) {
  char n[32], unguarded[32];
  uint64_t targets = info_targets(r);
  tool_count(unguarded, r->unguarded);
  if (targets) printf("References to %s target%s", tool_count(n, targets), targets == 1 ? "" : "s");
  if (r->unguarded)
    printf(": of %s no size, ETag or time is known, so that nothing guards %s until it is read",
        r->unguarded == targets ? "all" : unguarded, targets == 1 ? "it" : "each");
  if (targets) printf(".\n");
  if (r->refs.n_pieces)
    printf("Arrays are made of %s parts of arrays of other archives, which nothing guards.\n",
        tool_count(n, r->refs.n_pieces));
}
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
    info_line("chunk", "no grid that is known");
    return;
  }
  for (unsigned i = 0; a->sharded && i < a->ndim; i++) {
    inner *= a->inner[i];
    per_object *= a->inner[i] ? a->chunk[i] / a->inner[i] : 0;
  }
  if (a->sharded) {
    if (a->rectilinear) insitu__text_buffer_printf(&b, "up to ");
    info_join(&b, a->ndim, a->chunk);
    if (a->itemsize) insitu__text_buffer_printf(&b, ", %s", tool_bytes(text, a->object_bytes));
    insitu__text_buffer_printf(
        &b, "; %s object%s", tool_count(text, a->objects), a->objects == 1 ? "" : "s");
    insitu__text_buffer_printf(&b, " of %s chunks", tool_count(text, per_object));
    info_line("shard", b.text);
    insitu__text_buffer_free(&b);
  }
  if (a->rectilinear && !a->sharded) insitu__text_buffer_printf(&b, "up to ");
  info_join(&b, a->ndim, a->sharded ? a->inner : a->chunk);
  if (a->itemsize)
    insitu__text_buffer_printf(&b, ", %s", tool_bytes(text, a->sharded ? inner : a->object_bytes));
  if (!a->sharded)
    insitu__text_buffer_printf(
        &b, "; %s chunk%s", tool_count(text, a->objects), a->objects == 1 ? "" : "s");
  if (!a->sharded && a->objects > 1 && a->ndim > 1) {
    insitu__text_buffer_printf(&b, " = ");
    for (unsigned i = 0; i < a->ndim; i++)
      insitu__text_buffer_printf(&b, "%s%" PRIu64, i ? " x " : "", info_objects(a, i));
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
    bool more = a->objects && a->stored_objects > a->objects; /* such as what an editor left */
    const char *of = a->objects ? " of " : "";
    if (more) of = " files; it has ";
    n += snprintf(text + n, sizeof text - (size_t)n, "stored%s %s in %s%s%s object%s",
        a->cut ? " at least" : "", tool_bytes(stored, a->stored),
        tool_count(objects, a->stored_objects), of, all,
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
  else if (a->n_values > 1)
    snprintf(text + n, sizeof text - (size_t)n, ", not regular%s",
        a->ordered ? "" : ", neither rising nor falling throughout");
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
  if (a->stale[0]) info_line("STALE", a->stale);
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
