/* insitu index: several files become one along an axis, and rows become chunks.
 *
 *   every array with that axis: the files' chunks, one file behind the other
 *   every other array: the first file's, which the others must have as well
 *
 * What cannot be one array, since its type, codecs or packing differ, is refused by name. Times
 * that count from different dates are converted to the first file's units. */
static const char *index_join_value, *index_rows_value, *index_any_order_value;

struct index_part {
  struct virtual_array *array;
  const char *file; /* its name, for messages */
};

/* ---- attributes ---- */

/* An attribute's value as it stands in a JSON object; its length is *n. NULL: there is none. */
static const char *index_attribute(
    const struct insitu__text_json *j, const char *name, uint64_t *n) {
  int token = insitu__text_json_get(j, 0, name);
  return token < 0 ? NULL : insitu__text_json_span(j, token, n);
}
static bool index_parse(struct insitu__text_json *j, const char *text) {
  insitu_error err = {0};
  memset(j, 0, sizeof *j);
  return text && *text &&
         insitu__text_json_parse(j, text, strlen(text), "attributes", &err) == INSITU_OK;
}
/* Attributes that say what stored values mean must not differ. */
static int index_same_meaning(const struct index_part *a, const struct index_part *b, bool times) {
  static const char *const names[] = {"scale_factor", "add_offset", "_FillValue", "missing_value",
      "_Unsigned", "units", "calendar"};
  struct insitu__text_json x, y;
  bool has_x = index_parse(&x, a->array->attributes), has_y = index_parse(&y, b->array->attributes);
  int code = TOOL_OK;
  for (size_t i = 0; code == TOOL_OK && i < TOOL_COUNT(names) - (times ? 2 : 0); i++) {
    uint64_t m = 0, n = 0;
    const char *p = has_x ? index_attribute(&x, names[i], &m) : NULL;
    const char *q = has_y ? index_attribute(&y, names[i], &n) : NULL;
    if ((!p && !q) || (p && q && m == n && !memcmp(p, q, m))) continue;
    code = tool_fail("array '%s': its attribute '%s' is %.*s in %s and %.*s in %s, so that stored "
                     "values mean different things; index these files apart",
        a->array->path, names[i], p ? (int)insitu__base_min(m, 80) : 7, p ? p : "missing", a->file,
        q ? (int)insitu__base_min(n, 80) : 7, q ? q : "missing", b->file);
  }
  insitu__text_json_free(&x);
  insitu__text_json_free(&y);
  return code;
}
/* Whether two lists of codecs decode alike: how hard a compressor tried makes no difference. */
static bool index_same_codecs(const char *a, const char *b) {
  static const char *const level[] = {"\"level\":", "\"clevel\":"};
  if (!a || !b) return !a && !b;
  while (*a && *a == *b) {
    size_t skip = 0;
    for (size_t i = 0; i < TOOL_COUNT(level); i++)
      if (!strncmp(a, level[i], strlen(level[i])) && !strncmp(b, level[i], strlen(level[i])))
        skip = strlen(level[i]);
    a += skip ? skip : 1;
    b += skip ? skip : 1;
    if (!skip) continue;
    a += strspn(a, "-0123456789");
    b += strspn(b, "-0123456789");
  }
  return !*a && !*b;
}
static int index_refuse(const struct index_part *a, const struct index_part *b, const char *what,
    const char *x, const char *y) {
  return tool_fail("array '%s': its %s is %s in %s and %s in %s; these cannot be one array: index "
                   "them apart, or leave it out with --arrays",
      a->array->path, what, x ? x : "none", a->file, y ? y : "none", b->file);
}
/* Whether b can follow a along an axis; -1: must be the same array. */
static int index_same_schema(
    const struct index_part *a, const struct index_part *b, int axis, bool times) {
  const struct virtual_array *x = a->array, *y = b->array;
  char left[40], right[40];
  if (x->ndim != y->ndim) {
    snprintf(left, sizeof left, "%u", x->ndim);
    snprintf(right, sizeof right, "%u", y->ndim);
    return index_refuse(a, b, "number of axes", left, right);
  }
  for (unsigned k = 0; k < x->ndim; k++) {
    if ((int)k == axis || x->shape[k] == y->shape[k]) continue;
    snprintf(left, sizeof left, "%" PRIu64 " along axis %u", x->shape[k], k);
    snprintf(right, sizeof right, "%" PRIu64, y->shape[k]);
    return index_refuse(a, b, "length", left, right);
  }
  if (strcmp(x->type, y->type)) return index_refuse(a, b, "type", x->type, y->type);
  if (x->kind != y->kind)
    return tool_fail("array '%s' is chunked in one of %s and %s, and contiguous in the other; "
                     "index them apart",
        x->path, a->file, b->file);
  if (x->big != y->big && x->kind != VIRTUAL_VALUES)
    return index_refuse(a, b, "byte order", x->big ? "big" : "little", y->big ? "big" : "little");
  if (!index_same_codecs(x->codecs, y->codecs))
    return index_refuse(a, b, "list of codecs", x->codecs, y->codecs);
  if (!index_same_codecs(x->serializer, y->serializer))
    return index_refuse(a, b, "codec", x->serializer, y->serializer);
  if (strcmp(x->fill, y->fill)) return index_refuse(a, b, "fill value", x->fill, y->fill);
  return index_same_meaning(a, b, times);
}

/* ---- times ---- */

/* The units of an array's values, where these are times. */
static bool index_times(const struct virtual_array *a, struct insitu__time_units *u) {
  struct insitu__text_json j;
  char units[256] = "", calendar[64] = "";
  insitu_error err = {0};
  bool yes = a->kind == VIRTUAL_VALUES && index_parse(&j, a->attributes);
  if (!yes) return false;
  yes =
      insitu__text_json_string(&j, insitu__text_json_get(&j, 0, "units"), units, sizeof units) > 0;
  int c = insitu__text_json_get(&j, 0, "calendar");
  if (c >= 0 && insitu__text_json_string(&j, c, calendar, sizeof calendar) < 0) yes = false;
  insitu__text_json_free(&j);
  return yes &&
         insitu__time_units(u, a->path, units, *calendar ? calendar : NULL, &err) == INSITU_OK;
}
static double index_value(const struct virtual_array *a, uint64_t i) {
  const unsigned char *p = a->values + i * a->itemsize;
  char kind = index_kind(a);
  if (kind == 'f') return index_float(p, a->itemsize, a->big);
  if (kind == 'u') return (double)index_load(p, a->itemsize, a->big);
  return (double)index_integer(p, a->itemsize, a->big);
}
/* Converts one time from units `from` to units `to`, in place; false: its type cannot hold it. */
static bool index_convert_one(const struct virtual_array *a, unsigned char *p,
    const struct insitu__time_units *from, const struct insitu__time_units *to) {
  unsigned size = a->itemsize;
  char kind = index_kind(a);
  __int128 shift = ((__int128)from->start - to->start) * 1000; /* nanoseconds */
  if (kind == 'f') {
    double old = index_float(p, size, a->big);
    if (!isfinite(old)) return true;
    long double x = ((long double)old * from->unit + (long double)shift) / to->unit;
    double wide = (double)x;
    float single = (float)x;
    uint64_t bits = 0;
    uint32_t low;
    if (size != 8 && size != 4) return false;
    /* a microsecond is what a date can tell */
    if (size == 4 && fabsl(((long double)single - x) * to->unit) > 1000) return false;
    memcpy(&bits, &wide, sizeof wide);
    memcpy(&low, &single, sizeof low);
    index_store(p, size == 8 ? bits : low, size, a->big);
    return true;
  }
  __int128 old = kind == 'u' ? (__int128)index_load(p, size, a->big)
                             : (__int128)index_integer(p, size, a->big);
  __int128 x = old * from->unit + shift, limit = (__int128)1 << (8 * size - (kind == 'i'));
  if (x % to->unit) return false;
  x /= to->unit;
  if (x >= limit || x < (kind == 'i' ? -limit : 0)) return false;
  index_store(p, (uint64_t)x, size, a->big);
  return true;
}
/* All times of b in the units of a. An exit code. */
static int index_convert(const struct index_part *a, const struct index_part *b) {
  struct insitu__time_units to, from;
  struct virtual_array *y = b->array;
  if (!index_times(a->array, &to) || !index_times(y, &from) || !index_kind(y))
    return index_same_meaning(a, b, false);
  if (to.calendar != from.calendar)
    return index_refuse(a, b, "calendar", insitu__time_calendars[to.calendar],
        insitu__time_calendars[from.calendar]);
  if (to.unit == from.unit && to.start == from.start) return TOOL_OK;
  for (uint64_t i = 0; i * y->itemsize < y->n_values; i++)
    if (!index_convert_one(y, y->values + i * y->itemsize, &from, &to))
      return tool_fail("array '%s': time %" PRIu64
                       " of %s cannot be written in the units of %s with "
                       "type %s; write the times of all files in the same units",
          y->path, i, b->file, a->file, y->type);
  return TOOL_OK;
}

/* ---- one array of several files ---- */

/* The values of all parts, one behind the other, in the byte order of the first. */
static int index_join_values(
    struct virtual_array *out, const struct index_part *part, uint64_t n, bool any_order) {
  uint64_t total = 0, at = 0;
  int code = TOOL_OK;
  for (uint64_t i = 1; code == TOOL_OK && i < n; i++) code = index_convert(&part[0], &part[i]);
  if (code != TOOL_OK) return code;
  for (uint64_t i = 0; i < n; i++) total += part[i].array->n_values;
  unsigned char *all = tool_alloc(total + 1, 1);
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_array *a = part[i].array;
    insitu__zarr_copy_swapped(
        all + at, a->values, a->n_values, a->scalar, a->big != part[0].array->big);
    at += a->n_values;
  }
  for (uint64_t i = 1; !any_order && index_is_coordinate(out) && index_kind(out) && i < n; i++) {
    const struct virtual_array *a = part[i - 1].array, *b = part[i].array;
    if (!a->shape[0] || !b->shape[0]) continue;
    double end = index_value(a, a->shape[0] - 1), begin = index_value(b, 0);
    bool down = a->shape[0] > 1 && index_value(a, 0) > end;
    if (down ? begin < end : begin > end) continue;
    insitu__mem_free(all);
    return tool_fail(
        "axis '%s': %s begins at %.17g, and %s before it ends at %.17g; name the files "
        "in the order of the axis, without overlaps, or give --any-order",
        out->path, part[i].file, begin, part[i - 1].file, end);
  }
  insitu__mem_free(out->values);
  index_set_values(out, all, total);
  return TOOL_OK;
}
/* The lengths of a part's chunks along an axis. */
static void index_push_edges(struct virtual_array *out, uint64_t length, uint64_t chunk) {
  for (; length; length -= insitu__base_min(length, chunk))
    if (!INSITU__ARRAY_PUSH(out->edge, insitu__base_min(length, chunk))) tool_no_memory();
}
/* The grid of the joined array: regular where only the last part ends in a shorter chunk. */
static int index_join_grid(
    struct virtual_array *out, const struct index_part *part, uint64_t n, unsigned axis) {
  uint64_t chunk = part[0].array->chunk[axis];
  bool same = true, whole = true, whole_before = true;
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_array *a = part[i].array;
    for (unsigned k = 0; k < out->ndim; k++)
      if (k != axis && a->chunk[k] != part[0].array->chunk[k])
        return tool_fail("array '%s': its chunks have %" PRIu64 " elements along axis %u in %s and "
                         "%" PRIu64 " in %s; index these files apart",
            out->path, part[0].array->chunk[k], k, part[0].file, a->chunk[k], part[i].file);
    same = same && a->chunk[axis] == chunk;
    if (i + 1 < n) whole_before = whole_before && a->shape[axis] % a->chunk[axis] == 0;
    whole = whole && a->shape[axis] % a->chunk[axis] == 0;
  }
  if (same && whole_before) return TOOL_OK;
  if (!same && !whole)
    return tool_fail("array '%s': its chunks have different lengths along the joined axis in these "
                     "files, and some are cut short; index them apart",
        out->path);
  out->axis = (int)axis;
  out->padded = !whole;
  for (uint64_t i = 0; i < n; i++)
    index_push_edges(out, part[i].array->shape[axis], part[i].array->chunk[axis]);
  return TOOL_OK;
}
/* References of all parts in the order of the joined grid. */
static int index_join_refs(
    struct virtual_array *out, const struct index_part *part, uint64_t n, unsigned axis) {
  uint64_t grid[INSITU__MAX_DIMS], total, outer = 1, inner = 1, along = 0;
  virtual_grid(out, grid);
  if (!virtual_grid_product(grid, out->ndim, &total))
    return tool_fail("array '%s': more than VIRTUAL_MAX_REFS chunks", out->path);
  for (unsigned k = 0; k < out->ndim; k++) *(k < axis ? &outer : &inner) *= k == axis ? 1 : grid[k];
  struct virtual_ref *all = tool_alloc(total + 1, sizeof *all);
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_array *a = part[i].array;
    uint64_t mine = insitu__base_ceil_div(a->shape[axis], a->chunk[axis]);
    for (uint64_t o = 0; o < outer && mine * inner != 0; o++)
      memcpy(all + (o * grid[axis] + along) * inner, a->ref + o * mine * inner,
          mine * inner * sizeof *all);
    along += mine;
  }
  insitu__mem_free(out->ref);
  out->ref = all;
  out->n_refs = total;
  return TOOL_OK;
}
static int index_join_pieces(
    struct virtual_array *out, const struct index_part *part, uint64_t n, unsigned axis) {
  uint64_t first = 0;
  struct virtual_piece *all = NULL;
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_array *a = part[i].array;
    uint64_t count = insitu__base_ceil_div(a->shape[axis], a->chunk[axis]);
    for (uint64_t k = 0; count && k < INSITU__ARRAY_LEN(a->piece); k++) {
      struct virtual_piece p = {axis, first, count, tool_copy(a->piece[k].url),
          tool_copy(a->piece[k].path), a->piece[k].keys};
      if (!INSITU__ARRAY_PUSH(all, p)) tool_no_memory();
    }
    first += count;
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(out->piece); i++) {
    insitu__mem_free(out->piece[i].url);
    insitu__mem_free(out->piece[i].path);
  }
  INSITU__ARRAY_FREE(out->piece);
  out->piece = all;
  return TOOL_OK;
}

/* ---- rows to chunks ---- */

enum { INDEX_CHUNK = 1 << 20, INDEX_LEAST = 64 << 10, INDEX_MOST = 16 << 20 }; /* bytes */

static uint64_t index_gcd(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}
static uint64_t index_divisor(uint64_t n, uint64_t most) {
  uint64_t best = 1;
  for (uint64_t i = 1; i <= n / i; i++) {
    if (n % i) continue;
    if (i <= most) best = insitu__base_max(best, i);
    if (n / i <= most) best = insitu__base_max(best, n / i);
  }
  return best;
}
/* Chunks of rows: how many along axis 0, and how a row is cut where it is long. */
static int index_cut_shape(struct virtual_array *out, const struct index_part *part, uint64_t n) {
  const struct virtual_array *a = part[0].array;
  uint64_t row = a->itemsize, g = 0, rows = 0, most = 1, longest = 0;
  bool apart = false;
  for (unsigned k = 1; k < a->ndim; k++) row *= a->shape[k];
  for (uint64_t i = 0; i < n; i++) {
    g = index_gcd(g, part[i].array->shape[0]);
    longest = insitu__base_max(longest, part[i].array->shape[0]);
    apart = apart || (part[i].array->stride != row && part[i].array->shape[0] > 1);
  }
  if (index_rows_value && (!tool_u64(index_rows_value, &rows) || !rows))
    return tool_usage_error("--rows %s: a whole number is needed", index_rows_value);
  uint64_t want = rows ? rows : insitu__base_max(1, INDEX_CHUNK / insitu__base_max(1, row));
  if (apart) want = 1; /* records of several variables are interleaved */
  want = insitu__base_max(1, insitu__base_min(want, longest));
  uint64_t fits = index_divisor(insitu__base_max(1, g), want);
  bool regular = rows ? fits == want : fits * row >= INDEX_LEAST || 4 * fits >= want;
  out->chunk[0] = regular ? fits : want;
  for (unsigned k = 1; k < a->ndim; k++) out->chunk[k] = insitu__base_max(1, a->shape[k]);
  if (!regular) {
    out->axis = 0;
    for (uint64_t i = 0; i < n; i++) index_push_edges(out, part[i].array->shape[0], want);
  }
  for (unsigned k = 1; out->chunk[k - 1] == 1 && k < a->ndim && row > INDEX_MOST; k++) {
    uint64_t part_bytes = row / a->shape[k];
    most = insitu__base_max(1, INDEX_CHUNK / insitu__base_max(1, part_bytes));
    out->chunk[k] = index_divisor(a->shape[k], most);
    row = part_bytes;
  }
  return TOOL_OK;
}
/* References to the chunks of rows of all parts. */
static int index_cut(struct virtual_array *out, const struct index_part *part, uint64_t n) {
  int code = index_cut_shape(out, part, n);
  uint64_t grid[INSITU__MAX_DIMS], total, inside = 1, bytes = out->itemsize, at = 0;
  if (code != TOOL_OK) return code;
  virtual_grid(out, grid);
  if (!virtual_grid_product(grid, out->ndim, &total))
    return tool_fail("array '%s': more than VIRTUAL_MAX_REFS chunks; give --rows", out->path);
  for (unsigned k = 1; k < out->ndim; k++) {
    inside *= grid[k];
    bytes *= out->chunk[k];
  }
  struct virtual_ref *ref = tool_alloc(total + 1, sizeof *ref);
  for (uint64_t i = 0; i < n; i++) {
    const struct virtual_array *a = part[i].array;
    for (uint64_t row = 0; row < a->shape[0] && total; row += out->chunk[0]) {
      uint64_t rows = insitu__base_min(out->chunk[0], a->shape[0] - row);
      for (uint64_t k = 0; k < inside; k++)
        ref[at++] =
            virtual_ref(a->offset + row * a->stride + k * bytes * rows, rows * bytes, a->target);
    }
  }
  out->kind = VIRTUAL_REFS;
  out->ref = ref;
  out->n_refs = total;
  return TOOL_OK;
}
/* Values and rows of an array become references. */
static int index_finish_array(
    struct virtual_archive *v, struct virtual_array *a, const char *file) {
  if (a->kind == VIRTUAL_RAW) return index_cut(a, &(struct index_part){a, file}, 1);
  if (a->kind == VIRTUAL_PIECES) {
    uint64_t grid[INSITU__MAX_DIMS];
    virtual_grid(a, grid);
    return virtual_grid_product(grid, a->ndim, &a->n_refs)
               ? TOOL_OK
               : tool_fail("array '%s': more than VIRTUAL_MAX_REFS chunks", a->path);
  }
  if (a->kind != VIRTUAL_VALUES) return TOOL_OK;
  a->n_refs = a->n_values != 0;
  a->ref = tool_alloc(1, sizeof *a->ref);
  if (a->n_refs) a->ref[0] = virtual_inline(v, a->values, a->n_values);
  a->kind = VIRTUAL_REFS;
  return TOOL_OK;
}

/* ---- files ---- */

/* Which axis of an array is joined, by its name or, where it has none, its number; -1: none. */
static int index_joined_axis(const struct virtual_array *a, const char *join) {
  uint64_t number;
  for (unsigned k = 0; k < a->ndim; k++)
    if (a->dim[k] && !strcmp(a->dim[k], join)) return (int)k;
  if (tool_u64(join, &number) && number < a->ndim && !a->dim[number]) return (int)number;
  return -1;
}
static int index_join_array(
    struct virtual_array *out, struct index_part *part, uint64_t n, unsigned axis, bool any_order) {
  bool times = out->kind == VIRTUAL_VALUES;
  uint64_t length = part[0].array->shape[axis];
  int code = TOOL_OK;
  for (uint64_t i = 1; code == TOOL_OK && i < n; i++) {
    code = index_same_schema(&part[0], &part[i], (int)axis, times);
    if (!insitu__base_add(length, part[i].array->shape[axis], &length))
      return tool_fail("array '%s': its joined axis overflows", out->path);
  }
  if (code != TOOL_OK) return code;
  /* out is the first part: its own length is still needed */
  struct virtual_array first = *part[0].array;
  part[0].array = &first;
  first.edge = NULL;
  out->shape[axis] = length;
  switch (out->kind) {
  case VIRTUAL_VALUES:
    if (axis)
      return tool_fail("array '%s' is small, and its axis '%s' is not the first; leave it out with "
                       "--arrays",
          out->path, out->dim[axis] ? out->dim[axis] : "?");
    out->values = NULL;
    code = index_join_values(out, part, n, any_order);
    insitu__mem_free(first.values);
    return code;
  case VIRTUAL_RAW:
    if (axis)
      return tool_fail("array '%s' is contiguous, and its axis '%s' is not the first; index the "
                       "files apart, or leave it out with --arrays",
          out->path, out->dim[axis] ? out->dim[axis] : "?");
    return index_cut(out, part, n);
  case VIRTUAL_REFS: out->ref = NULL; break;
  case VIRTUAL_PIECES: break;
  }
  code = index_join_grid(out, part, n, axis);
  bool refs = out->kind == VIRTUAL_REFS;
  if (code == TOOL_OK)
    code = refs ? index_join_refs(out, part, n, axis) : index_join_pieces(out, part, n, axis);
  if (refs) insitu__mem_free(first.ref);
  return code;
}
/* An array without the joined axis is the first file's; the others must not say otherwise. */
static int index_common_array(struct index_part *part, uint64_t n) {
  const struct virtual_array *a = part[0].array;
  for (uint64_t i = 1; i < n; i++) {
    const struct virtual_array *b = part[i].array;
    int code = index_same_schema(&part[0], &part[i], -1, false);
    if (code != TOOL_OK) return code;
    if (a->kind == VIRTUAL_VALUES &&
        (a->n_values != b->n_values || memcmp(a->values, b->values, a->n_values)))
      return tool_fail("array '%s' does not have the joined axis, and its values differ between %s "
                       "and %s; index these files apart, or leave it out with --arrays",
          a->path, part[0].file, part[i].file);
  }
  return TOOL_OK;
}
/* The axis to join along: as the user says, else the one called time. */
static int index_choose_axis(const struct virtual_file *f, const char **join) {
  *join = index_join_value ? index_join_value : "time";
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++)
    if (index_joined_axis(f->array[i], *join) >= 0) return TOOL_OK;
  struct insitu__text_buffer names = {0};
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->array); i++)
    for (unsigned k = 0; k < f->array[i]->ndim; k++) {
      const char *name = f->array[i]->dim[k];
      if (!name || (names.text && strstr(names.text, name)) || names.n > 300) continue;
      insitu__text_buffer_printf(&names, "%s%s", names.n ? ", " : "", name);
    }
  int code =
      tool_usage_error("several files are joined along an axis, and no array of %s has an axis "
                       "'%s'; give --join with one of: %s",
          f->name, *join, names.text ? names.text : "0 (its axes have no names)");
  insitu__text_buffer_free(&names);
  return code;
}
/* Joins n files: the first one becomes all of them. An exit code. */
static int index_join(struct virtual_file *file, uint64_t n) {
  const char *join;
  struct virtual_file *f = &file[0];
  struct index_part *part = tool_alloc(n, sizeof *part);
  int code = n > 1 ? index_choose_axis(f, &join) : TOOL_OK;
  for (uint64_t i = 0; n > 1 && code == TOOL_OK && i < INSITU__ARRAY_LEN(f->array); i++) {
    struct virtual_array *a = f->array[i];
    for (uint64_t k = 0; k < n; k++) {
      part[k] = (struct index_part){virtual_find(&file[k], a->path), file[k].name};
      if (!part[k].array)
        code = tool_fail("%s has an array '%s', and %s has none; leave it out with --arrays",
            f->name, a->path, file[k].name);
      if (code != TOOL_OK) break;
    }
    if (code != TOOL_OK) break;
    int axis = index_joined_axis(a, join);
    code = axis < 0 ? index_common_array(part, n)
                    : index_join_array(a, part, n, (unsigned)axis, index_any_order_value != NULL);
  }
  insitu__mem_free(part);
  return code;
}
