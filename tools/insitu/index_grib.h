/* insitu index: GRIB files, one message a chunk. Of each message only what describes it is read:
 * the sections before the data make a message of their own, without points, whose keys eccodes
 * tells.
 *
 *   messages --parameter, type of level, grid, type of step--> variables
 *     --dates, steps, members, levels--> axes, those with one value left out but for time
 *
 * An inventory beside the file, where it is there, says where messages begin, so that those of a
 * file in a store are fetched many at once; and --match chooses messages by its lines. Else each
 * message's length says where the next one begins. */
#ifdef INSITU_TOOL_ECCODES
#include <eccodes.h>
#include <regex.h>

enum {
  GRIB_MAX_MESSAGES = 1 << 22,
  GRIB_MAX_HEAD = 1 << 20, /* bytes of a message's sections before its data */
  GRIB_USUAL_HEAD = 1024,  /* of most messages: what is fetched ahead */
  GRIB_AXES = 4            /* date, step, member, level */
};
enum { GRIB_DATE, GRIB_STEP, GRIB_MEMBER, GRIB_LEVEL };

struct grib_message {
  uint64_t target, offset, length;
  unsigned variable;
  double at[GRIB_AXES]; /* hours since 1970, hours, number, level */
};
struct grib_variable {
  char name[64], level_type[64], step_type[32], grid[40]; /* grid: the MD5 of its section */
  char units[64], long_name[128], standard_name[128];
  uint64_t rows, columns; /* columns 0: points in no rows */
  bool regular, columns_first, wide;
  uint64_t messages, first; /* first: its first message */
  double *value[GRIB_AXES]; /* growing arrays: the values that occur, sorted */
  char *path;
};
struct grib_grid {
  char id[40];
  double *value[2]; /* growing arrays: latitudes, longitudes of a regular one */
  char *name[2];    /* of its axes */
};
struct grib_scan {
  struct virtual_archive *v;
  struct virtual_file *f;
  struct grib_message *message; /* growing arrays */
  struct grib_variable *variable;
  struct grib_grid *grid;
  struct bytes *b; /* the file at hand */
  uint64_t target;
};

/* ---- messages ---- */

/* The length of GRIB 1 has 24 bits. ECMWF's messages of 8 MiB or more set the highest of them, and
 * then count 120 bytes each, in a way that section 4 corrects; others have bytes there, as the
 * message's end shows. */
static const char *grib_refuse_long(struct grib_scan *s, uint64_t at, uint64_t length) {
  unsigned char end[4];
  if (!(length & 0x800000)) return NULL;
  if (length <= s->b->size - at) {
    if (!bytes_read(s->b, end, 4, at + length - 4)) return s->b->err.message;
    if (!memcmp(end, "7777", 4)) return NULL;
  }
  insitu__error_set(&s->b->err, INSITU_E_UNSUPPORTED,
      "%s: byte %" PRIu64 ": it is a GRIB 1 message of 8 MiB or more, whose length is not "
      "supported; convert it to GRIB 2 (grib_set -s edition=2)",
      s->b->name, at);
  return s->b->err.message;
}
/* The sections before the data of a GRIB 2 message as a message without points; its bytes are
 * *n, and the message's own length *length. NULL, or what is wrong. */
static const char *grib_head(
    struct grib_scan *s, uint64_t at, unsigned char **head, uint64_t *n, uint64_t *length) {
  unsigned char section[5], start[16];
  uint64_t where = at + 16, room = GRIB_MAX_HEAD;
  unsigned fields = 0;
  if (!bytes_read(s->b, start, 16, at)) return s->b->err.message;
  if (memcmp(start, "GRIB", 4)) return "no message begins there";
  *length = start[7] == 1 ? index_load(start + 4, 3, true) : index_load(start + 8, 8, true);
  const char *why = start[7] == 1 ? grib_refuse_long(s, at, *length) : NULL;
  if (why) return why;
  if (*length < 24 || *length > s->b->size - at) {
    *length = 0;
    return "it is cut off: fetch the file again";
  }
  if (start[7] == 1) { /* of GRIB 1 all is read: its sections say less */
    *head = tool_alloc(*n = *length, 1);
    return bytes_read(s->b, *head, *n, at) ? NULL : s->b->err.message;
  }
  if (start[7] != 2) return "its edition is neither 1 nor 2";
  *head = tool_alloc(room, 1);
  memcpy(*head, start, 16);
  for (*n = 16; where + 4 < at + *length;) {
    uint64_t bytes;
    if (!bytes_read(s->b, section, 5, where)) return s->b->err.message;
    if (!memcmp(section, "7777", 4)) break;
    bytes = index_load(section, 4, true);
    if (bytes < 5 || bytes > at + *length - where) return "a section is longer than the message";
    if (section[4] == 7) fields++;
    if (fields == 0 && section[4] < 6) {
      if (*n + bytes + 32 > room)
        return "its sections before the data are longer than GRIB_MAX_HEAD";
      if (!bytes_read(s->b, *head + *n, bytes, where)) return s->b->err.message;
      *n += bytes;
    }
    where += bytes;
  }
  if (fields != 1) return "it holds several fields, which no chunk can be; split it (grib_copy)";
  static const unsigned char end[] = {0, 0, 0, 6, 6, 255, 0, 0, 0, 5, 7, '7', '7', '7', '7'};
  memcpy(*head + *n, end, sizeof end); /* no bitmap, no data */
  *n += sizeof end;
  index_store(*head + 8, *n, 8, true);
  return NULL;
}
static long grib_long(codes_handle *h, const char *key, long otherwise) {
  long x;
  int missing = codes_is_missing(h, key, &(int){0});
  return !missing && codes_get_long(h, key, &x) == 0 ? x : otherwise;
}
static void grib_text(codes_handle *h, const char *key, char *to, size_t cap) {
  size_t n = cap;
  to[0] = 0;
  if (codes_get_string(h, key, to, &n)) to[0] = 0;
  to[cap - 1] = 0;
}
/* The name of a variable: that of CF, else the short one, else the parameter's number. */
static void grib_name(codes_handle *h, char *to, size_t cap) {
  static const char *const keys[] = {"cfVarName", "shortName"};
  for (size_t i = 0; i < TOOL_COUNT(keys); i++) {
    grib_text(h, keys[i], to, cap);
    if (to[0] && strcmp(to, "unknown") && strcmp(to, "~")) break;
    snprintf(to, cap, "param%ld", grib_long(h, "paramId", 0));
  }
  for (char *p = to; *p; p++)
    if (!insitu__text_is_digit(*p) &&
        !(insitu__text_lower(*p) >= 'a' && insitu__text_lower(*p) <= 'z'))
      *p = '_';
}
/* How the points lie. NULL, or what is wrong. */
static const char *grib_layout(codes_handle *h, struct grib_variable *x) {
  char type[64];
  grib_text(h, "gridType", type, sizeof type);
  long columns = grib_long(h, "Ni", 0), rows = grib_long(h, "Nj", 0),
       points = grib_long(h, "numberOfDataPoints", 0);
  if (columns <= 0) columns = grib_long(h, "Nx", 0);
  if (rows <= 0) rows = grib_long(h, "Ny", 0);
  if (grib_long(h, "alternativeRowScanning", 0))
    return "its rows are stored to and fro, which is not supported";
  if (points <= 0) points = grib_long(h, "numberOfPoints", 0);
  if (points <= 0) return "it has no points";
  if (columns > 0 && rows > 0 && (uint64_t)columns * (uint64_t)rows == (uint64_t)points) {
    x->rows = (uint64_t)rows;
    x->columns = (uint64_t)columns;
    x->columns_first = grib_long(h, "jPointsAreConsecutive", 0) != 0;
    x->regular = (!strcmp(type, "regular_ll") || !strcmp(type, "regular_gg")) && !x->columns_first;
    return NULL;
  }
  x->rows = (uint64_t)points;
  x->columns = 0;
  return NULL;
}
/* The latitudes or longitudes of a regular grid, as its rows or columns go. */
static double *grib_distinct(codes_handle *h, bool latitudes, uint64_t n) {
  double *list = NULL, *all = NULL;
  size_t count = 0;
  const char *key = latitudes ? "latitudes" : "longitudes";
  if (codes_get_size(h, key, &count) || !count || count % n) return NULL;
  all = tool_alloc(count, sizeof *all);
  bool ok = codes_get_double_array(h, key, all, &count) == 0;
  for (uint64_t i = 0; ok && i < n; i++)
    if (!INSITU__ARRAY_PUSH(list, all[latitudes ? i * (count / n) : i])) tool_no_memory();
  insitu__mem_free(all);
  return list;
}
/* Notes the grid of a variable and, where it is regular, its latitudes and longitudes, which the
 * whole message tells. NULL, or what is wrong. */
static const char *grib_note_grid(
    struct grib_scan *s, const struct grib_variable *x, uint64_t at, uint64_t length) {
  struct grib_grid g = {.name = {NULL, NULL}};
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->grid); i++)
    if (!strcmp(s->grid[i].id, x->grid)) return NULL;
  snprintf(g.id, sizeof g.id, "%s", x->grid);
  if (x->regular) {
    unsigned char *bytes = tool_alloc(length, 1);
    bool ok = bytes_read(s->b, bytes, length, at);
    codes_handle *h = ok ? codes_handle_new_from_message(NULL, bytes, length) : NULL;
    for (int k = 0; h && k < 2; k++)
      g.value[k] = grib_distinct(h, k == 0, k == 0 ? x->rows : x->columns);
    if (h) codes_handle_delete(h);
    insitu__mem_free(bytes);
    if (!ok) return s->b->err.message;
  }
  if (!INSITU__ARRAY_PUSH(s->grid, g)) tool_no_memory();
  return NULL;
}
/* The variable that a message is of, found or added. NULL, or what is wrong. */
static const char *grib_variable(
    struct grib_scan *s, codes_handle *h, uint64_t at, uint64_t length, unsigned *number) {
  struct grib_variable x = {.rows = 0};
  grib_name(h, x.name, sizeof x.name);
  grib_text(h, "typeOfLevel", x.level_type, sizeof x.level_type);
  grib_text(h, "stepType", x.step_type, sizeof x.step_type);
  grib_text(h, "md5GridSection", x.grid, sizeof x.grid);
  if (!x.name[0] || !x.grid[0]) return "eccodes does not know its parameter or its grid";
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->variable); i++) {
    const struct grib_variable *y = &s->variable[i];
    if (strcmp(x.name, y->name) || strcmp(x.level_type, y->level_type) ||
        strcmp(x.step_type, y->step_type) || strcmp(x.grid, y->grid))
      continue;
    *number = (unsigned)i;
    return NULL;
  }
  const char *why = grib_layout(h, &x);
  if (!why) why = grib_note_grid(s, &x, at, length);
  if (why) return why;
  if (INSITU__ARRAY_LEN(s->variable) >= 4096) return "more than 4096 variables";
  grib_text(h, "units", x.units, sizeof x.units);
  grib_text(h, "name", x.long_name, sizeof x.long_name);
  grib_text(h, "cfName", x.standard_name, sizeof x.standard_name);
  *number = (unsigned)INSITU__ARRAY_LEN(s->variable);
  if (!INSITU__ARRAY_PUSH(s->variable, x)) tool_no_memory();
  return NULL;
}
/* Date and step in hours. False: there is no such date. */
static bool grib_times(codes_handle *h, double *date, double *step) {
  long day = grib_long(h, "dataDate", 0), clock = grib_long(h, "dataTime", -1);
  struct insitu__time_date d = {.year = day / 10000,
      .month = (int)(day / 100 % 100),
      .day = (int)(day % 100),
      .hour = (int)(clock / 100),
      .minute = (int)(clock % 100),
      .parts = 5};
  int64_t from, to;
  if (day <= 0 || clock < 0 || d.month < 1 || d.month > 12 || d.day < 1 || d.day > 31) return false;
  if (!insitu__time_period(INSITU__TIME_PROLEPTIC, &d, &from, &to)) return false;
  codes_set_long(h, "stepUnits", 1); /* hours, where the step is whole ones */
  double minutes = 0;
  *date = (double)from / 3.6e9;
  *step = (double)grib_long(h, "endStep", 0);
  if (codes_set_long(h, "stepUnits", 0) == 0 && codes_get_double(h, "endStep", &minutes) == 0)
    *step = minutes / 60;
  return true;
}
static void grib_note(double **list, double x) {
  for (uint64_t i = INSITU__ARRAY_LEN(*list); i-- > 0;)
    if ((*list)[i] == x) return;
  if (!INSITU__ARRAY_PUSH(*list, x)) tool_no_memory();
}
/* Reads the message at `at`. NULL, or what is wrong; *length: where the next one begins. */
static const char *grib_read(struct grib_scan *s, uint64_t at, uint64_t *length) {
  unsigned char *head = NULL;
  struct grib_message m = {.target = s->target, .offset = at};
  uint64_t n = 0;
  *length = 0;
  const char *why = grib_head(s, at, &head, &n, length);
  codes_handle *h = why ? NULL : codes_handle_new_from_message_copy(NULL, head, n);
  if (!why && !h) why = "eccodes cannot read it";
  m.length = *length;
  if (!why) why = grib_variable(s, h, at, m.length, &m.variable);
  if (!why && !grib_times(h, &m.at[GRIB_DATE], &m.at[GRIB_STEP])) why = "its date is none";
  if (!why) {
    struct grib_variable *x = &s->variable[m.variable];
    m.at[GRIB_MEMBER] = (double)grib_long(h, "perturbationNumber", 0);
    double level = 0;
    if (codes_get_double(h, "level", &level)) level = 0;
    m.at[GRIB_LEVEL] = level;
    for (int i = 0; i < GRIB_AXES; i++) grib_note(&x->value[i], m.at[i]);
    if (!x->messages++) x->first = INSITU__ARRAY_LEN(s->message);
    x->wide = x->wide || grib_long(h, "bitsPerValue", 0) > 32 ||
              m.length > 4 * x->rows * insitu__base_max(1, x->columns) + (64 << 10);
    if (!INSITU__ARRAY_PUSH(s->message, m)) tool_no_memory();
  }
  if (h) codes_handle_delete(h);
  insitu__mem_free(head);
  return why;
}
/* Reads FILE.idx or, where that is not there, the .index in place of FILE's ending. */
static insitu_status grib_beside(
    const char *path, bool json, char **text, uint64_t *n, insitu_error *err) {
  static const char *const endings[] = {".grib2", ".grib", ".grb2", ".grb"};
  struct insitu__text_buffer b = {.secret = true}; /* a query may be */
  bool query = bytes_is_remote(path) && !strncasecmp(path, "http", 4);
  size_t whole = query ? strcspn(path, "?#") : strlen(path), cut = whole;
  for (size_t i = 0; json && cut == whole && i < TOOL_COUNT(endings); i++)
    if (whole > 6 &&
        !strncasecmp(path + whole - strlen(endings[i]), endings[i], strlen(endings[i])))
      cut -= strlen(endings[i]);
  if (json && cut == whole) return INSITU_E_NOTFOUND;
  insitu__text_buffer_printf(
      &b, "%.*s%s%s", (int)cut, path, json ? ".index" : ".idx", path + whole);
  if (b.failed) tool_no_memory();
  insitu_status status = bytes_text(b.text, text, n, err);
  insitu__text_buffer_free(&b);
  return status;
}
/* The lines of an inventory. A file without one has none; what else keeps one from being read is
 * told, and no more than that. */
static int grib_inventory(
    struct grib_scan *s, const char *path, char **text, struct inventory_line **line) {
  insitu_error err = {0}, other = {0};
  uint64_t n;
  insitu_status status = grib_beside(path, false, text, &n, &err);
  bool none = status == INSITU_E_NOTFOUND || status == INSITU_E_AUTH || status == INSITU_E_HTTP;
  insitu_status json = none ? grib_beside(path, true, text, &n, &other) : INSITU_E_NOTFOUND;
  if (none && json != INSITU_E_NOTFOUND) {
    status = json;
    err = other;
    none = status == INSITU_E_AUTH || status == INSITU_E_HTTP;
  }
  if (none) {
    if (index_match_value)
      return tool_fail("%s: --match chooses by the lines of its inventory FILE.idx or .index: %s",
          s->b->name, err.message[0] ? err.message : "there is none");
    if (status != INSITU_E_NOTFOUND)
      tool_fail("%s: its inventory is not used: %s", s->b->name, err.message);
    return TOOL_OK;
  }
  if (status < 0) return tool_fail_error(&err);
  status = inventory_parse(*text, n, line, &err);
  if (!status && !INSITU__ARRAY_LEN(*line))
    status = insitu__error_set(&err, INSITU_E_FORMAT, "it is empty; remove it");
  return status < 0 ? tool_fail("the inventory of %s: %s", s->b->name, err.message) : TOOL_OK;
}
/* Leaves the lines that --match does not match out, and all but one of each message. */
static int grib_choose(struct grib_scan *s, struct inventory_line *line) {
  uint64_t n = INSITU__ARRAY_LEN(line), kept = 0;
  regex_t match;
  int error = regcomp(&match, index_match_value ? index_match_value : "", REG_EXTENDED | REG_NOSUB);
  if (error) {
    char why[200];
    regerror(error, &match, why, sizeof why);
    return tool_usage_error("--match '%s': %s", index_match_value, why);
  }
  for (uint64_t i = 0; i < n; i++) {
    char *text = insitu__mem_text(line[i].text, line[i].n);
    if (!text) tool_no_memory();
    bool wanted = !index_match_value || !regexec(&match, text, 0, NULL, 0);
    insitu__mem_free(text);
    if (wanted && (!kept || line[i].offset != line[kept - 1].offset)) line[kept++] = line[i];
  }
  regfree(&match);
  if (n) insitu__array_header(line)->length = kept;
  if (n && !kept)
    return tool_fail(
        "%s: no line of its inventory matches --match '%s'", s->b->name, index_match_value);
  return TOOL_OK;
}
/* Reads the message at `at`; *length: of it. An exit code. */
static int grib_message(struct grib_scan *s, uint64_t at, bool inventory, uint64_t *length) {
  const char *other = inventory ? "; its inventory may be of another file" : "";
  if (at >= s->b->size || s->b->size - at <= 16)
    return tool_fail("%s: byte %" PRIu64 ": the file ends before%s", s->b->name, at, other);
  const char *why = grib_read(s, at, length);
  if (s->b->err.status < 0) return tool_fail_error(&s->b->err);
  if (why && !*length) return tool_fail("%s: byte %" PRIu64 ": %s%s", s->b->name, at, why, other);
  if (why)
    virtual_leave_out(s->v, s->f, s->b->name, "the message at byte %" PRIu64 ": %s", at, why);
  if (INSITU__ARRAY_LEN(s->message) > GRIB_MAX_MESSAGES)
    return tool_fail("more than GRIB_MAX_MESSAGES messages; index fewer files at once");
  return TOOL_OK;
}
/* Whether no message begins at `at`, where an inventory that is whole would name it. next: what it
 * names then, or the file's end. An exit code. */
static int grib_unlisted(struct grib_scan *s, uint64_t at, uint64_t next) {
  unsigned char magic[4];
  if (index_match_value || next > s->b->size || at >= next || next - at <= 16) return TOOL_OK;
  if (!bytes_read(s->b, magic, 4, at)) return tool_fail_error(&s->b->err);
  if (memcmp(magic, "GRIB", 4)) return TOOL_OK;
  return tool_fail("%s: its inventory leaves out the message at byte %" PRIu64
                   "; remove it, or make it again",
      s->b->name, at);
}
/* The messages that an inventory names. An exit code. */
static int grib_listed(struct grib_scan *s, const struct inventory_line *line) {
  uint64_t n = INSITU__ARRAY_LEN(line), length = 0;
  struct bytes_range *range = tool_alloc(n, sizeof *range);
  int code = grib_unlisted(s, 0, line[0].offset);
  for (uint64_t i = 0; i < n; i++) range[i] = (struct bytes_range){line[i].offset, GRIB_USUAL_HEAD};
  for (uint64_t i = 0, ahead = 0; code == TOOL_OK && i < n; i++) {
    if (i == ahead) ahead += bytes_want(s->b, range + i, n - i);
    code = grib_message(s, line[i].offset, true, &length);
    if (code == TOOL_OK)
      code = grib_unlisted(s, line[i].offset + length, i + 1 < n ? line[i + 1].offset : s->b->size);
    tool_progress(line[i].offset);
  }
  insitu__mem_free(range);
  return code;
}
/* All messages of a file, of which v's last target is. An exit code. */
static int grib_scan_file(struct grib_scan *s, struct virtual_archive *v, struct virtual_file *f,
    struct bytes *b, const char *path, uint64_t target) {
  struct inventory_line *line = NULL;
  char *text = NULL;
  uint64_t length = 0;
  s->v = v;
  s->f = f;
  s->b = b;
  s->target = target;
  int code = grib_inventory(s, path, &text, &line);
  if (code == TOOL_OK) code = grib_choose(s, line);
  tool_progress_begin(b->size, "B");
  if (code == TOOL_OK && line) code = grib_listed(s, line);
  for (uint64_t at = 0; code == TOOL_OK && !line && at + 16 < b->size; at += length) {
    code = grib_message(s, at, false, &length);
    tool_progress(at);
  }
  tool_progress_end();
  INSITU__ARRAY_FREE(line);
  insitu__mem_free(text);
  return code;
}

/* ---- arrays ---- */

static int grib_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static uint64_t grib_find(const double *list, double x) {
  const double *at = bsearch(&x, list, (size_t)INSITU__ARRAY_LEN(list), sizeof *list, grib_compare);
  return (uint64_t)(at - list);
}
/* A coordinate along one axis, the name of which is returned. One with other values than an array
 * of that name gets a number behind its name. */
static char *grib_coordinate(
    struct grib_scan *s, const char *name, const double *value, const char *attributes) {
  uint64_t n = INSITU__ARRAY_LEN(value);
  char path[100];
  for (int i = 1;; i++) {
    snprintf(path, sizeof path, i > 1 ? "%s_%d" : "%s", name, i);
    const struct virtual_array *old = virtual_find(s->f, path);
    if (!old) break;
    if (old->ndim == 1 && old->n_values == 8 * n && !memcmp(old->values, value, 8 * n))
      return tool_copy(path);
  }
  struct virtual_array *a = virtual_add_array(s->f, path);
  a->ndim = 1;
  a->shape[0] = a->chunk[0] = n;
  a->dim[0] = tool_copy(path);
  index_set_type(a, 'f', 8, false);
  a->fill = tool_copy("\"NaN\"");
  a->attributes = tool_copy(attributes);
  unsigned char *bytes = tool_alloc(n + 1, 8);
  memcpy(bytes, value, 8 * n);
  index_set_values(a, bytes, 8 * n);
  return tool_copy(path);
}
/* A coordinate of all points: the messages tell it, as the values. */
static void grib_all_points(struct grib_scan *s, const struct grib_variable *x, const char *name,
    char *const dim[2], const char *attributes) {
  const struct grib_message *m = &s->message[x->first];
  struct insitu__text_buffer b = {0};
  char path[100];
  for (int i = 1; i < 100; i++) {
    snprintf(path, sizeof path, i > 1 ? "%s_%d" : "%s", name, i);
    if (!virtual_find(s->f, path)) break;
  }
  struct virtual_array *a = virtual_add_array(s->f, path);
  a->ndim = x->columns ? 2 : 1;
  a->shape[0] = a->chunk[0] = x->columns_first ? x->columns : x->rows;
  if (x->columns) a->shape[1] = a->chunk[1] = x->columns_first ? x->rows : x->columns;
  for (unsigned k = 0; k < a->ndim; k++) a->dim[k] = tool_copy(dim[k]);
  index_set_type(a, 'f', 8, false);
  insitu__text_buffer_printf(
      &b, "{\"name\":\"grib\",\"configuration\":{\"var\":\"%s\",\"dtype\":\"float64\"}}", name);
  a->serializer = virtual_take(&b);
  a->fill = tool_copy("\"NaN\"");
  a->attributes = tool_copy(attributes);
  a->kind = VIRTUAL_REFS;
  a->n_refs = 1;
  a->ref = tool_alloc(1, sizeof *a->ref);
  a->ref[0] = virtual_ref(m->offset, m->length, m->target);
}
/* Names and coordinates of a grid's axes, made when the first variable needs them. */
static const struct grib_grid *grib_grid(struct grib_scan *s, const struct grib_variable *x) {
  static const char *const attributes[] = {
      "{\"units\":\"degrees_north\",\"standard_name\":\"latitude\"}",
      "{\"units\":\"degrees_east\",\"standard_name\":\"longitude\"}"};
  static const char *const points[] = {"latitude", "longitude"};
  struct grib_grid *g = s->grid;
  while (strcmp(g->id, x->grid)) g++; /* grib_note_grid has noted all */
  if (g->name[0]) return g;
  for (int k = 0; k < 2; k++)
    if (g->value[k]) g->name[k] = grib_coordinate(s, points[k], g->value[k], attributes[k]);
  if (!g->name[0] || !g->name[1]) {
    static const char *const two[] = {"y", "x"};
    uint64_t number = (uint64_t)(g - s->grid);
    for (int k = 0; k < 2; k++) {
      struct insitu__text_buffer b = {0};
      insitu__mem_free(g->name[k]);
      insitu__text_buffer_printf(&b, number ? "%s_%" PRIu64 : "%s",
          !x->columns ? "values" : two[x->columns_first ? 1 - k : k], number + 1);
      g->name[k] = virtual_take(&b);
    }
    for (int k = 0; k < 2; k++) grib_all_points(s, x, points[k], g->name, attributes[k]);
  }
  return g;
}
static char *grib_attributes(const struct grib_variable *x) {
  struct insitu__text_buffer b = {0};
  const char *const pair[][2] = {{"units", x->units}, {"long_name", x->long_name},
      {"standard_name", x->standard_name}, {"GRIB_typeOfLevel", x->level_type},
      {"GRIB_stepType", x->step_type}};
  insitu__text_buffer_printf(&b, "{");
  for (size_t i = 0; i < TOOL_COUNT(pair); i++) {
    if (!pair[i][1][0] || !strcmp(pair[i][1], "unknown")) continue;
    index_print_key(&b, pair[i][0], strlen(pair[i][0]));
    index_print_text(&b, pair[i][1], strlen(pair[i][1]));
  }
  if (INSITU__ARRAY_LEN(x->value[GRIB_LEVEL]) == 1) {
    index_print_key(&b, "GRIB_level", 10);
    insitu__text_buffer_double(&b, x->value[GRIB_LEVEL][0]);
  }
  insitu__text_buffer_printf(&b, "}");
  return virtual_take(&b);
}
/* Which axes a variable has: time is the date or, of one forecast, the valid time. */
static unsigned grib_axes(
    struct grib_scan *s, const struct grib_variable *x, int axis[GRIB_AXES], char *dim[GRIB_AXES]) {
  static const char *const hours =
      "{\"units\":\"hours since 1970-01-01\",\"calendar\":\"proleptic_gregorian\","
      "\"standard_name\":\"time\"}";
  unsigned n = 0;
  bool forecast = INSITU__ARRAY_LEN(x->value[GRIB_DATE]) == 1,
       steps = INSITU__ARRAY_LEN(x->value[GRIB_STEP]) > 1;
  double *valid = NULL;
  const double *from = x->value[forecast ? GRIB_STEP : GRIB_DATE];
  double add = x->value[forecast ? GRIB_DATE : GRIB_STEP][0];
  if (!forecast && steps) add = 0; /* dates and steps: time is the date */
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(from); i++)
    if (!INSITU__ARRAY_PUSH(valid, from[i] + add)) tool_no_memory();
  axis[n] = forecast ? GRIB_STEP : GRIB_DATE;
  dim[n++] = grib_coordinate(s, "time", valid, hours);
  INSITU__ARRAY_FREE(valid);
  if (!forecast && steps) {
    axis[n] = GRIB_STEP;
    dim[n++] = grib_coordinate(s, "step", x->value[GRIB_STEP], "{\"units\":\"hours\"}");
  }
  if (INSITU__ARRAY_LEN(x->value[GRIB_MEMBER]) > 1) {
    axis[n] = GRIB_MEMBER;
    dim[n++] = grib_coordinate(s, "number", x->value[GRIB_MEMBER], "{}");
  }
  if (INSITU__ARRAY_LEN(x->value[GRIB_LEVEL]) > 1) {
    axis[n] = GRIB_LEVEL;
    dim[n++] =
        grib_coordinate(s, x->level_type[0] ? x->level_type : "level", x->value[GRIB_LEVEL], "{}");
  }
  return n;
}
/* References of all messages of a variable. False after a message. */
static bool grib_refs(struct grib_scan *s, const struct grib_variable *x, unsigned number,
    struct virtual_array *a, const int *axis, unsigned n) {
  uint64_t grid[INSITU__MAX_DIMS];
  virtual_grid(a, grid);
  if (!virtual_grid_product(grid, a->ndim, &a->n_refs)) {
    virtual_leave_out(s->v, s->f, a->path, "more than VIRTUAL_MAX_REFS chunks");
    return false;
  }
  a->kind = VIRTUAL_REFS;
  a->ref = tool_alloc(a->n_refs, sizeof *a->ref);
  for (uint64_t i = 0; i < a->n_refs; i++) a->ref[i] = virtual_ref(0, 0, VIRTUAL_ABSENT);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->message); i++) {
    const struct grib_message *m = &s->message[i];
    uint64_t at = 0;
    if (m->variable != number) continue;
    for (unsigned k = 0; k < n; k++)
      at = at * grid[k] + grib_find(x->value[axis[k]], m->at[axis[k]]);
    if (virtual_target_of(a->ref[at]) != VIRTUAL_ABSENT) {
      virtual_leave_out(s->v, s->f, a->path,
          "two messages have the same date, step, member and level (bytes %" PRIu64 " and %" PRIu64
          "); index fewer files at once, or split them by another key",
          a->ref[at].offset, m->offset);
      return false;
    }
    a->ref[at] = virtual_ref(m->offset, m->length, m->target);
  }
  return true;
}
/* A name that no other variable has: with the type of level, then that of step, then a number. */
static void grib_path(const struct grib_scan *s, const struct grib_variable *x, char path[200]) {
  unsigned same[3] = {0};
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->variable); i++) {
    const struct grib_variable *y = &s->variable[i];
    if (strcmp(x->name, y->name)) continue;
    same[0]++;
    if (strcmp(x->level_type, y->level_type)) continue;
    same[1]++;
    same[2] += !strcmp(x->step_type, y->step_type) && y < x;
  }
  int n = snprintf(path, 200, "%s", x->name);
  if (same[0] > 1) n += snprintf(path + n, 200 - (size_t)n, "_%s", x->level_type);
  if (same[0] > 1 && same[1] > 1) n += snprintf(path + n, 200 - (size_t)n, "_%s", x->step_type);
  if (same[2]) snprintf(path + n, 200 - (size_t)n, "_%u", same[2] + 1);
}
static void grib_add(struct grib_scan *s, unsigned number) {
  struct grib_variable *x = &s->variable[number];
  struct insitu__text_buffer b = {0};
  char path[210], *dim[GRIB_AXES] = {NULL};
  int axis[GRIB_AXES];
  grib_path(s, x, path);
  for (int i = 0; i < GRIB_AXES; i++)
    qsort(x->value[i], (size_t)INSITU__ARRAY_LEN(x->value[i]), sizeof(double), grib_compare);
  unsigned n = grib_axes(s, x, axis, dim);
  const struct grib_grid *g = grib_grid(s, x);
  if (virtual_find(s->f, path)) strcat(path, "_data"); /* a coordinate is called so */
  struct virtual_array *a = virtual_add_array(s->f, path);
  for (unsigned k = 0; k < n; k++) {
    a->dim[k] = dim[k];
    a->shape[k] = INSITU__ARRAY_LEN(x->value[axis[k]]);
    a->chunk[k] = 1;
  }
  a->ndim = n + 1 + (x->columns > 0);
  a->dim[n] = tool_copy(g->name[0]);
  a->shape[n] = a->chunk[n] = x->columns_first ? x->columns : x->rows;
  if (x->columns) {
    a->dim[n + 1] = tool_copy(g->name[1]);
    a->shape[n + 1] = a->chunk[n + 1] = x->columns_first ? x->rows : x->columns;
  }
  index_set_type(a, 'f', x->wide ? 8 : 4, false);
  insitu__text_buffer_printf(&b,
      "{\"name\":\"grib\",\"configuration\":{\"var\":\"%s\",\"dtype\":\"%s\"}}", x->name,
      x->wide ? "float64" : "float32");
  a->serializer = virtual_take(&b);
  a->fill = tool_copy("\"NaN\"");
  a->attributes = grib_attributes(x);
  if (!grib_refs(s, x, number, a, axis, n)) virtual_drop_last(s->f);
}
static void grib_free(struct grib_scan *s) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->variable); i++)
    for (int k = 0; k < GRIB_AXES; k++) INSITU__ARRAY_FREE(s->variable[i].value[k]);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->grid); i++)
    for (int k = 0; k < 2; k++) {
      insitu__mem_free(s->grid[i].name[k]);
      INSITU__ARRAY_FREE(s->grid[i].value[k]);
    }
  INSITU__ARRAY_FREE(s->variable);
  INSITU__ARRAY_FREE(s->message);
  INSITU__ARRAY_FREE(s->grid);
}
/* All messages of all files make one set of variables. */
static void grib_scan_end(struct grib_scan *s) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->variable); i++)
    if (s->variable[i].messages) grib_add(s, (unsigned)i);
}
#else
struct grib_scan {
  char none;
};
static int grib_scan_file(struct grib_scan *s, struct virtual_archive *v, struct virtual_file *f,
    struct bytes *b, const char *path, uint64_t target) {
  (void)s, (void)v, (void)f, (void)path, (void)target;
  (void)inventory_parse, (void)bytes_text;
  return tool_fail(
      "%s is a GRIB file, and this insitu was built without eccodes; install it (apt-get "
      "install libeccodes-dev, dnf install eccodes-devel) and run make tools",
      b->name);
}
static void grib_scan_end(struct grib_scan *s) {
  (void)s;
}
static void grib_free(struct grib_scan *s) {
  (void)s;
}
#endif
