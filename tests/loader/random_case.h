/* A case of the random model test: a random archive in a random place, a configuration of it, and
 * what the manual says must come of it. After random_model.h, zip.h and server.h. */
#ifndef TESTS_RANDOM_CASE_H
#define TESTS_RANDOM_CASE_H
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_VIEWS = 4, MAX_WORLD = 4 };
enum place { PLACE_FOLDER, PLACE_MEMORY, PLACE_ZIP, PLACE_HTTP, PLACE_HTTP_ZIP };
enum split_kind { SPLIT_DEFAULT, SPLIT_FRACTIONS, SPLIT_RANGES, SPLIT_DATES, SPLIT_MANIFEST };

struct setup {
  uint64_t number;
  struct archive archive;
  uint64_t samples;
  enum place place;
  struct view view[MAX_VIEWS];
  insitu_variable variable[MAX_VIEWS];
  int n_views, n_outputs;  /* without the fixed one */
  struct view fixed;       /* the last variable, any box of an array; its `array` is NULL: none */
  insitu_loader_desc desc; /* without rank */
  insitu_option option[1];
  insitu_object *objects;
  uint64_t global, unit_chunks, block_chunks; /* resolved */
  enum split_kind kind;
  struct split split;
  bool spread; /* shuffled by chunks: the library's manifest says which */
  /* the coordinate */
  enum calendar calendar;
  int64_t *seconds;
  bool falls, hard_date; /* hard_date: the coordinate is not found by itself */
  insitu_status refused; /* of insitu_loader_open */
  const char *why;       /* in words */
  char folder[300];      /* what the case wrote */
};

static char random_dir[256];
static struct server *random_server;

/* ---- files ---- */
static inline int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)kind, (void)f;
  return remove(path);
}

static inline void remove_all(const char *path) {
  nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void write_file(const char *path, const void *bytes, size_t n) {
  char parent[600];
  FILE *f = fopen(path, "wb");

  for (const char *s = path + strlen(random_dir) + 1; !f && (s = strchr(s, '/')); s++) {
    snprintf(parent, sizeof parent, "%.*s", (int)(s - path), path);
    mkdir(parent, 0777);
  }
  if (!f) f = fopen(path, "wb");
  if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

/* Puts the archive into its place, and the place into the configuration. */
static inline void place_archive(struct setup *s) {
  struct archive *ar = &s->archive;
  char path[600];
  struct zip z = {0};
  int options = chance(50) ? ZIP_DEFLATE : 0;
  const char *top = chance(30) ? "top/" : "", *inside = *top && chance(50) ? "/top" : "";

  snprintf(s->folder, sizeof s->folder, "%s/c%" PRIu64, random_dir, s->number);
  mkdir(s->folder, 0777);
  if (s->place == PLACE_MEMORY) {
    s->objects = own(ar->n_objects * sizeof *s->objects);
    for (size_t i = 0; i < ar->n_objects; i++)
      s->objects[i] =
          (insitu_object){ar->object[i].key, ar->object[i].bytes.at, ar->object[i].bytes.n};
    s->desc.objects = s->objects;
    s->desc.n_objects = ar->n_objects;
    s->desc.url = chance(50) ? "memory://" : "memory://any";
    return;
  }
  if (s->place == PLACE_ZIP || s->place == PLACE_HTTP_ZIP) {
    for (size_t i = 0; i < ar->n_objects; i++) {
      int extra =
          (chance(5) ? ZIP_WIDE : 0) | (chance(5) ? ZIP_STREAM : 0) | (chance(5) ? ZIP_EXTRA : 0);

      zip_add(&z, own_text("%s%s", top, ar->object[i].key), ar->object[i].bytes.at,
          ar->object[i].bytes.n, options | extra);
    }
    zip_finish(&z, chance(10) ? "a comment" : "", chance(10));
    snprintf(path, sizeof path, "%s/a.zip", s->folder);
    zip_write(&z, path);
    zip_free(&z);
    if (s->place == PLACE_ZIP) s->desc.url = own_text("%s%s", path, inside);
    else
      s->desc.url = own_text(
          "http://127.0.0.1:%d/c%" PRIu64 "/a.zip%s", random_server->port, s->number, inside);
    return;
  }
  for (size_t i = 0; i < ar->n_objects; i++) {
    snprintf(path, sizeof path, "%s/a/%s", s->folder, ar->object[i].key);
    write_file(path, ar->object[i].bytes.at, ar->object[i].bytes.n);
  }
  if (s->place == PLACE_HTTP)
    s->desc.url = own_text("http://127.0.0.1:%d/c%" PRIu64 "/a", random_server->port, s->number);
  else s->desc.url = own_text("%s%s/a", chance(20) ? "file://" : "", s->folder);
}

/* ---- the archive ---- */
static inline void draw_packing(struct array *a) {
  static const double scales[] = {0.01, 0.5, 2, 0.1, 1e-3, -3};
  bool integer = a->type->kind == KIND_INT || a->type->kind == KIND_UINT;
  uint64_t n = array_count(a);

  a->packed = true;
  a->has_scale = chance(70);
  a->has_offset = chance(60);
  a->has_missing = chance(40);
  a->has_fill_value = chance(40);
  a->is_unsigned = a->type->kind == KIND_INT && chance(20);
  a->scale = scales[draw(6)];
  a->offset = (double)draw_from(-500, 500) / 4;
  for (int k = 0; k < 2; k++) {
    unsigned char bytes[16] = {0};

    a->missing[k] = (double)draw_from(0, 100);
    if (integer) put_u64(bytes, (uint64_t)a->missing[k], a->type->bytes, false);
    if (!integer || !(k ? a->has_fill_value : a->has_missing)) continue;
    for (uint64_t i = 0; i < n; i++) {
      uint64_t at[MAX_DIMS], rest = i;

      for (int d = a->ndim - 1; d >= 0; d--) {
        at[d] = rest % a->shape[d];
        rest /= a->shape[d];
      }
      if (!a->is_absent[array_chunk_of(a, at)] && chance(10))
        memcpy(array_at(a, at), bytes, a->type->bytes);
    }
  }
}

/* The time of each sample: rises or falls throughout. */
static inline void draw_seconds(struct setup *s) {
  static const int64_t steps[] = {3600, 6 * 3600, 86400, 5 * 86400, 31 * 86400};
  int64_t step = steps[draw(5)];
  bool regular = chance(70);

  s->calendar = chance(70) ? CALENDAR_STANDARD : chance(50) ? CALENDAR_NOLEAP : CALENDAR_360;
  s->falls = chance(35);
  s->seconds = own(s->samples * 8);
  int64_t at =
      days_of(s->calendar, draw_from(1930, 2030), (int)draw_from(1, 12), (int)draw_from(1, 28)) *
          86400 +
      draw_from(0, 3) * 6 * 3600;
  for (uint64_t i = 0; i < s->samples; i++) {
    s->seconds[s->falls ? s->samples - 1 - i : i] = at;
    at += regular ? step : step * draw_from(1, 4);
  }
}

static inline void draw_time(struct setup *s, const char *name, const char *group) {
  static const struct {
    const char *name;
    int64_t seconds;
  } units[] = {{"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"h", 3600}, {"days", 86400},
      {"day", 86400}};
  static const char *const calendars[][2] = {
      {"standard", "proleptic_gregorian"}, {"noleap", "365_day"}, {"360_day", "360_day"}};
  struct archive *ar = &s->archive;
  struct array *a = ar->time = &ar->array[ar->n_arrays];
  int unit = (int)draw(6);
  struct level *l = &a->level[0];
  struct date since;

  draw_seconds(s);
  *a = (struct array){.path = own_text("%s%s%s", group, *group ? "/" : "", name),
      .format = ar->format,
      .ndim = 1,
      .n_levels = 1,
      .fill_text = "0",
      .dotted = true,
      .absent = 0};
  a->type = &types[units[unit].seconds > 3600 || chance(40) ? TYPE_F64 : TYPE_I64];
  a->big = chance(20);
  a->dims[0] = name;
  a->shape[0] = s->samples;
  l->size[0] = 1 + draw(s->samples);
  draw_codecs(a, l, false);
  since = date_of(
      s->calendar, s->seconds[0] / 86400 * 86400 - draw_from(0, 900) * 86400, (int)draw_from(2, 5));
  const char *calendar = calendars[s->calendar][draw(2)];
  bool say_calendar = s->calendar != CALENDAR_STANDARD || chance(60);
  a->attributes = own_text("\"units\":\"%s since %s\",%s%s%s", units[unit].name, since.text,
      say_calendar ? "\"calendar\":\"" : "", say_calendar ? calendar : "",
      say_calendar ? "\"," : "");
  draw_elements(a);
  for (uint64_t i = 0; i < s->samples; i++) {
    double x = (double)(s->seconds[i] - since.begin) / (double)units[unit].seconds;
    int64_t whole = (int64_t)x;

    memcpy(a->data + 8 * i, a->type->kind == KIND_INT ? (void *)&whole : (void *)&x, 8);
  }
}

static inline void draw_archive(struct setup *s) {
  static const char *const dims[] = {"y", "x", "level", "band", "number"};
  static const char *const axes[] = {"time", "t", "z"};
  static const char *const names[] = {"t2m", "u", "deep/v", "w"};
  struct archive *ar = &s->archive;
  bool by_name = chance(55), named = by_name || chance(40);
  const char *sample = axes[draw(3)];
  int axis = chance(70) ? 0 : (int)draw(3), n_dims = 0;

  ar->format = 2 + (int)draw(2);
  s->samples = chance(60) ? 20 + draw(70) : chance(40) ? 1 + draw(20) : 90 + draw(170);
  ar->n_arrays = chance(45) ? 1 : chance(65) ? 2 : 3;
  ar->root_is_array = chance(4);
  if (ar->root_is_array) ar->n_arrays = 1;
  ar->group = !ar->root_is_array && chance(20) ? "g" : "";
  ar->consolidated = chance(50);
  for (int i = 0; i < ar->n_arrays; i++) {
    struct array *a = &ar->array[i];

    *a = (struct array){.format = ar->format, .axis = by_name && chance(40) ? (int)draw(3) : axis};
    a->path =
        ar->root_is_array ? "" : own_text("%s%s%s", ar->group, *ar->group ? "/" : "", names[i]);
    draw_array(a, s->samples, a->axis + 1 + (int)draw((uint64_t)(4 - a->axis)));
    uint64_t chunks = 1, stored = 1;
    for (int d = 0; d < a->ndim; d++) {
      chunks *= ceil_div(a->shape[d], a->level[a->n_levels - 1].size[d]);
      stored *= ceil_div(a->shape[d], a->level[0].size[d]);
    }
    if (chunks > 400 || stored > 150 || array_count(a) > 60000) { /* too slow */
      i--;
      continue;
    }
    for (int d = 0; named && d < a->ndim; d++)
      a->dims[d] = d == a->axis ? sample : dims[n_dims++ % 5];
    draw_elements(a);
    if (a->type->kind != KIND_BOOL && a->type->kind != KIND_COMPLEX && chance(30)) draw_packing(a);
  }
  if (by_name) s->desc.sample_dim = sample;
  else s->desc.sample_axis = axis;
  if (named && !ar->root_is_array && chance(60)) {
    s->hard_date = chance(25);
    /* beside the first array, or at the root */
    draw_time(s, s->hard_date ? "clock" : sample, chance(50) ? ar->group : "");
  }
  draw_coordinates(ar);
  write_archive(ar);
}

/* ---- the variables ---- */
/* A conversion, seldom one that is refused. */
static inline void draw_dtype(struct view *v) {
  static const int32_t dtypes[] = {INSITU_BOOL, INSITU_I8, INSITU_I16, INSITU_I32, INSITU_I64,
      INSITU_U8, INSITU_U16, INSITU_U32, INSITU_U64, INSITU_F16, INSITU_BF16, INSITU_F32,
      INSITU_F64};
  bool any = chance(1);

  for (int tries = 0; tries < 100; tries++) {
    v->v.dtype = dtypes[draw(sizeof dtypes / sizeof *dtypes)];
    if (any || !view_refusal(v)) return;
  }
}

static inline void draw_views(struct setup *s) {
  struct archive *ar = &s->archive;
  int64_t reach = chance(50) ? 0 : chance(70) ? 3 : 12;

  s->n_views = ar->n_arrays + (int)draw((uint64_t)(MAX_VIEWS - ar->n_arrays) + 1);
  if (chance(30)) s->n_views = 1;
  for (int i = 0; i < s->n_views; i++) {
    struct view *v = &s->view[i];
    const struct array *a = v->array =
        &ar->array[i < ar->n_arrays ? i : (int)draw((uint64_t)ar->n_arrays)];

    v->v = (insitu_variable){.label = own_text("v%d", i), .path = a->path};
    if (i == 0 && *a->path && chance(20)) {
      v->v.label = a->path;
      v->v.path = NULL;
    }
    if (reach && chance(70)) v->v.offset = draw_from(-reach, reach);
    if (chance(25)) {
      v->v.steps = v->step;
      v->v.n_steps = 1 + draw(4);
      for (uint64_t k = 0; k < v->v.n_steps; k++) v->step[k] = reach ? draw_from(-reach, reach) : 0;
    }
    draw_selection(ar, v);
    bool odd = a->type->kind == KIND_COMPLEX ? chance(2) : chance(40);
    if (a->packed ? chance(60) : chance(2)) v->v.decode = INSITU_CF;
    if (odd) draw_dtype(v);
    s->variable[i] = v->v;
  }
  draw_into(ar, s->view, s->n_views, s->variable);
  s->n_outputs = place_views(s->view, s->n_views);
  for (int i = 0; i < s->n_views; i++) {
    insitu_status refusal = view_refusal(&s->view[i]);

    if (!refusal || s->refused) continue;
    s->refused = refusal;
    s->why = "a conversion that there is not";
  }
  s->desc.variables = s->variable;
  s->desc.n_variables = (uint64_t)s->n_views;
}

/* Sometimes a fixed variable besides; none where an absent chunk of it is an error of open. */
static inline void draw_fixed(struct setup *s) {
  struct view *v = &s->fixed;
  struct archive *ar = &s->archive;
  uint64_t absent = 0;

  if (s->refused || !chance(30)) return;
  const struct array *a = v->array = &ar->array[draw((uint64_t)ar->n_arrays)];
  v->v = (insitu_variable){.label = "fixed", .path = a->path, .fixed = 1};
  draw_box(v);
  if (a->packed && chance(60)) v->v.decode = INSITU_CF;
  if (a->type->kind != KIND_COMPLEX && chance(40)) draw_dtype(v);
  struct chunk_set chunks = chunk_set(a);
  chunk_set_add(&chunks, v, -1, 1, &absent);
  bool raises = absent && s->desc.on_absent_chunk == INSITU_RAISE;
  if (raises || view_refusal(v)) v->array = NULL;
}

/* ---- the split ---- */
static inline void own_range(struct setup *s, int p, int64_t lo, int64_t hi) {
  for (int64_t x = lo; x < hi; x++) s->split.owner[x] = (signed char)p;
}

static inline void split_fractions(struct setup *s) {
  double sum = 0;
  uint64_t before = 0;

  for (int p = 0; p < 3; p++) {
    sum += s->kind == SPLIT_DEFAULT ? p ? 0.1 : 0.8 : s->desc.split[p].fraction;
    uint64_t end = fraction_end(sum, s->split.n_ref);
    own_range(s, p, (int64_t)least(before * s->split.ref, s->samples),
        (int64_t)least(end * s->split.ref, s->samples));
    before = end;
  }
}

static inline void draw_fractions(struct setup *s) {
  uint64_t left = 16;

  for (int p = 0; p < 3; p++) {
    uint64_t n = p == 0 ? 4 + draw(13) : draw(left + 1);

    s->desc.split[p].fraction = (double)n / 16;
    left -= n;
  }
}

/* Disjoint ranges in any order, neighbours or not. */
static inline void draw_ranges(struct setup *s) {
  int64_t at = s->split.lo;
  int turn = (int)draw(3);

  for (int k = 0; k < 3; k++) {
    int p = (turn + k) % 3;
    int64_t lo = chance(60) ? at : draw_from(at, s->split.hi), hi = draw_from(lo, s->split.hi);

    if (hi == lo || (k && chance(15))) continue;
    s->desc.split[p].start = lo;
    s->desc.split[p].stop = hi == (int64_t)s->samples && lo && chance(30) ? 0 : hi;
    own_range(s, p, lo, hi);
    at = hi;
  }
}

/* The samples from the begin of one date to the end of another; either may be NULL. False: there
 * are none. */
static inline bool dated_range(const struct setup *s, const struct date *from,
    const struct date *to, int64_t *lo, int64_t *hi) {
  *lo = *hi = -1;
  for (int64_t x = 0; x < (int64_t)s->samples; x++) {
    if ((from && s->seconds[x] < from->begin) || (to && s->seconds[x] >= to->end)) continue;
    if (*lo < 0) *lo = x;
    *hi = x + 1;
  }
  return *lo >= 0;
}

static inline struct date *draw_date(const struct setup *s, int64_t sample) {
  struct date *d = own(sizeof *d);
  int64_t seconds = s->seconds[sample];

  if (chance(10)) seconds += chance(50) ? 86400 * 40 : -86400 * 40;
  *d = date_of(s->calendar, seconds, (int)draw(6));
  return d;
}

/* Ranges by date, with open ends, cut at dates in the order of time. */
static inline void draw_dates(struct setup *s) {
  int64_t last = (int64_t)s->samples - 1, cut[4] = {s->falls ? last : 0};
  bool given = false;

  for (int k = 1; k < 4; k++) { /* samples in the order of time */
    int64_t at = draw_from(0, last);

    cut[k] = s->falls ? last - at : at;
  }
  for (int a = 0; a < 4; a++)
    for (int b = a + 1; b < 4; b++)
      if (s->falls ? cut[b] > cut[a] : cut[b] < cut[a]) {
        int64_t t = cut[a];

        cut[a] = cut[b];
        cut[b] = t;
      }
  int turn = (int)draw(3), n = 1 + (int)draw(3);
  for (int k = 0; k < n; k++) {
    int p = (turn + k) % 3;
    struct date *from = k == 0 && chance(50) ? NULL : draw_date(s, cut[k]);
    struct date *to = k == n - 1 && chance(50) ? NULL : draw_date(s, cut[k + 1]);
    int64_t lo, hi;

    if (!from && !to) continue;
    if (!dated_range(s, from, to, &lo, &hi)) continue; /* it would be refused */
    if (!from && !s->falls) lo = s->split.lo;          /* an open end is that of what takes part */
    if (!from && s->falls) hi = s->split.hi;
    if (!to && !s->falls) hi = s->split.hi;
    if (!to && s->falls) lo = s->split.lo;
    bool free = lo < hi && lo >= s->split.lo && hi <= s->split.hi; /* nor may it leave that */
    for (int64_t x = lo; x < hi; x++) free = free && s->split.owner[x] == NOBODY;
    if (!free) continue;
    s->desc.split[p].from = from ? from->text : NULL;
    s->desc.split[p].to = to ? to->text : NULL;
    own_range(s, p, lo, hi);
    given = true;
  }
  if (given) return;
  s->kind = SPLIT_DEFAULT;
  split_fractions(s);
}

/* Ranges that the manifest excludes, as a member of an object. */
static inline void draw_excluded(struct setup *s, struct text *t) {
  uint64_t n = draw(4);

  say(t, "\"excluded\":[");
  for (uint64_t i = 0; i < n; i++) {
    int64_t lo = draw_from(0, (int64_t)s->samples - 1),
            hi = draw_from(lo + 1, (int64_t)least((uint64_t)lo + 9, s->samples));

    say(t, "%s{\"start\":%" PRId64 ",\"stop\":%" PRId64 "%s}", i ? "," : "", lo, hi,
        chance(50) ? "" : ",\"reason\":\"cloud\"");
    for (int64_t x = lo; x < hi; x++) s->split.excluded[x] = true;
  }
  say(t, "]");
}

/* A manifest that excludes samples, beside whatever decides the split. */
static inline void draw_exclusions(struct setup *s) {
  struct text *t = own(sizeof *t);

  say(t, "{");
  draw_excluded(s, t);
  say(t, "}");
  s->desc.manifest = own_text("%s/excluded.json", s->folder);
  write_file(s->desc.manifest, t->at, t->n);
}

static inline void draw_manifest(struct setup *s) {
  struct text *t = own(sizeof *t);
  static const char *const names[] = {"train", "val", "test"};

  say(t,
      "{\"n_chunks\":%" PRIu64 ",\"sample_chunk_size\":%" PRIu64 ",\"n_samples\":%" PRIu64
      ",\"seed\":%s,\"chunks\":{",
      s->split.n_ref, s->split.ref, s->samples, chance(50) ? "null" : "7");
  signed char *of = own(s->split.n_ref);
  uint64_t run = 0, cut = draw(s->split.n_ref + 1);
  bool sparse = chance(25); /* every other chunk, the parts one behind the other */
  int p = 0;
  for (uint64_t c = 0; c < s->split.n_ref; c++) {
    if (!run--) {
      run = draw(8);
      p = chance(50) ? 0 : (int)draw(4) - 1;
    }
    if (sparse) p = c % 2 ? NOBODY : c >= cut;
    of[c] = (signed char)p;
    own_range(
        s, p, (int64_t)(c * s->split.ref), (int64_t)least((c + 1) * s->split.ref, s->samples));
  }
  for (int k = 0; k < 3; k++) {
    bool first = true, back = chance(20);

    say(t, "%s\"%s\":[", k ? "," : "", names[k]);
    for (uint64_t i = 0; i < s->split.n_ref; i++) {
      uint64_t c = back ? s->split.n_ref - 1 - i : i;

      if (of[c] != k) continue;
      say(t, "%s%" PRIu64, first ? "" : ",", c);
      first = false;
    }
    say(t, "]");
  }
  unsigned where = (unsigned)draw(4); /* inside chunks, beside it, or nowhere */
  if (where == 0) say(t, ",");
  if (where == 0) draw_excluded(s, t);
  say(t, "}");
  if (where == 1) say(t, ",");
  if (where == 1) draw_excluded(s, t);
  say(t, "}");
  s->desc.manifest = own_text("%s/manifest.json", s->folder);
  write_file(s->desc.manifest, t->at, t->n);
}

static inline void draw_base(struct setup *s) {
  int64_t n = (int64_t)s->samples;

  s->split.lo = 0;
  s->split.hi = n;
  if (!chance(25)) return;
  if (s->archive.time && chance(50)) {
    int64_t a = draw_from(0, n - 1), b = draw_from(0, n - 1), lo, hi;
    bool swap = s->falls ? a < b : a > b;
    struct date *from = chance(30) ? NULL : draw_date(s, swap ? b : a),
                *to = chance(30) ? NULL : draw_date(s, swap ? a : b);

    if ((!from && !to) || !dated_range(s, from, to, &lo, &hi)) return;
    s->desc.sample_from = from ? from->text : NULL;
    s->desc.sample_to = to ? to->text : NULL;
    s->split.lo = lo;
    s->split.hi = hi;
    return;
  }
  s->desc.sample_start = s->split.lo = draw_from(0, n - 1);
  s->split.hi = draw_from(s->split.lo + 1, n);
  s->desc.sample_stop = s->split.hi == n && chance(50) ? 0 : s->split.hi;
}

/* By chance or because of the configuration, what decides the split. */
static inline void draw_split(struct setup *s) {
  struct split *sp = &s->split;

  sp->samples = (int64_t)s->samples;
  sp->owner = own(s->samples);
  sp->kept = own(s->samples);
  sp->excluded = own(s->samples);
  memset(sp->owner, NOBODY, s->samples);
  for (int i = 0; i < s->n_views; i++) {
    const struct array *a = s->view[i].array;

    sp->ref = most(sp->ref, a->level[array_leaf(a)].size[a->axis]);
  }
  sp->n_ref = ceil_div(s->samples, sp->ref);
  draw_base(s);
  s->kind = (enum split_kind)draw(5);
  if (s->kind == SPLIT_DATES && !s->archive.time) s->kind = SPLIT_DEFAULT;
  if (s->kind == SPLIT_FRACTIONS) draw_fractions(s);
  if (s->kind == SPLIT_DEFAULT || s->kind == SPLIT_FRACTIONS) split_fractions(s);
  if (s->kind == SPLIT_RANGES) draw_ranges(s);
  if (s->kind == SPLIT_DATES) draw_dates(s);
  if (s->kind == SPLIT_MANIFEST) draw_manifest(s);
  bool none = true;
  for (int64_t x = 0; x < sp->samples; x++) none = none && sp->owner[x] == NOBODY;
  if (none && s->kind == SPLIT_RANGES) { /* all zero: the default fractions */
    s->kind = SPLIT_DEFAULT;
    split_fractions(s);
  }
  s->spread = s->kind <= SPLIT_FRACTIONS && chance(30);
  s->desc.split_shuffled = s->spread;
  s->desc.split_gap = chance(75) ? 0 : 1 + draw(5);
  s->desc.split_spill = chance(25);
  if (s->kind != SPLIT_MANIFEST && chance(20)) draw_exclusions(s);
  if (s->hard_date) s->desc.time_path = s->archive.time->path;
  s->desc.coordinates = s->archive.time && s->samples % 2;
}

/* ---- the rest of the configuration ---- */
static inline void draw_order(struct setup *s) {
  static const uint64_t lanes[] = {1, 2, 3, 4, 6, 8};

  s->desc.world = chance(50) ? (int32_t)draw(2) : (int32_t)draw_from(2, MAX_WORLD);
  uint64_t world = s->desc.world ? (uint64_t)s->desc.world : 1;
  s->desc.batch_size = chance(3) ? 0 : 1 + draw(chance(50) ? 4 : 12);
  if (world > 1 || chance(40)) {
    uint64_t l = world * lanes[draw(6)];

    s->desc.lanes = l;
    s->desc.batch_size = l / world * (1 + draw(3));
    if (chance(3)) s->desc.batch_size++; /* perhaps refused */
    if (chance(10)) s->desc.lanes = 0;
  }
  s->global = (s->desc.batch_size ? s->desc.batch_size : 32) * world;
  s->desc.seed = chance(20) ? draw_u64() : draw(100);
  s->desc.block_chunks = chance(30) ? 0 : 1 + draw(16);
  s->desc.unit_chunks = chance(60) ? 0 : 1 + draw(4);
  s->block_chunks = s->desc.block_chunks ? s->desc.block_chunks : 64;
  s->unit_chunks = s->desc.unit_chunks ? s->desc.unit_chunks : 1;
}

static inline void draw_resources(struct setup *s) {
  insitu_loader_desc *d = &s->desc;
  const char *forced = getenv("INSITU_IO");

  d->api = INSITU_API;
  d->prefetch_depth = chance(40) ? 0 : 1 + draw(5);
  d->max_inflight = chance(40) ? 0 : 1 + draw(8);
  d->decode_threads = draw(4);
  d->memory_budget = UINT64_C(1) << (chance(90) ? 28 : 20 + draw(6));
  d->io = chance(50) ? INSITU_IO_URING : INSITU_IO_EPOLL;
  if (forced) d->io = !strcmp(forced, "epoll") ? INSITU_IO_EPOLL : INSITU_IO_URING;
  d->inline_io = chance(50);
  d->hold_epoch = chance(60);
  d->check = chance(5);
  d->log_level = INSITU_LOG_OFF;
  d->on_absent_chunk = chance(60) ? INSITU_FILL : chance(60) ? INSITU_AUTO : INSITU_RAISE;
  d->on_bad_chunk = chance(30) ? INSITU_FILL : INSITU_AUTO;
  if (s->place < PLACE_HTTP) return;
  if (chance(40)) {
    d->cache_dir = own_text("%s/cache", s->folder);
    mkdir(d->cache_dir, 0777);
  }
  if (chance(30)) {
    s->option[0] = chance(50) ? (insitu_option){"cache_validate", "false"}
                              : (insitu_option){"max_connections", "3"};
    d->options = s->option;
    d->n_options = 1;
  }
}

static inline void refuse(struct setup *s, insitu_status status, const char *why) {
  s->refused = status;
  s->why = why;
}

/* A selection that insitu_loader_open must refuse. */
static inline void refuse_selection(struct setup *s, insitu_variable *v, const struct array *a) {
  int d = a->ndim > 1 ? (a->axis + 1 + (int)draw((uint64_t)a->ndim - 1)) % a->ndim : -1;
  const char *name = d < 0 ? "none" : a->dims[d] ? a->dims[d] : own_text("%d", d);
  const char *sample = a->dims[a->axis] ? a->dims[a->axis] : own_text("%d", a->axis);
  const struct coordinate *c = d < 0 ? NULL : axis_coordinate(&s->archive, a, d);
  insitu_slice *slice = own(sizeof *slice);

  switch (draw(8)) {
  case 0:
    v->n_slices = 0;
    v->select = own_text("%s=[0]", sample);
    refuse(s, INSITU_E_ARG, "a selection of the sample axis");
    break;
  case 1:
    v->n_slices = 0;
    v->select = "no_such_dimension=[0]";
    refuse(s, INSITU_E_NOTFOUND, "a selection of a dimension that is not there");
    break;
  case 2:
    v->n_slices = 0;
    v->select = d < 0 || chance(50) ? "level" : own_text("%s=[0", name);
    refuse(s, INSITU_E_ARG, "a selection that is not written so");
    break;
  case 3:
    if (d < 0) return;
    v->n_slices = 0;
    v->select = own_text("%s=[0];%s=[0]", name, name);
    if (chance(50)) {
      v->select = own_text("%s=[0]", name);
      *slice = (insitu_slice){.axis = d, .stop = 1};
      v->slices = slice;
      v->n_slices = 1;
    }
    refuse(s, INSITU_E_ARG, "a dimension that is named twice");
    break;
  case 4:
    if (d < 0) return;
    v->n_slices = 0;
    v->select = own_text(
        "%s=[%" PRId64 "]", name, chance(50) ? (int64_t)a->shape[d] : -1 - (int64_t)a->shape[d]);
    refuse(s, INSITU_E_SHAPE, "an index outside of its axis");
    break;
  case 5:
    if (!c) return;
    v->n_slices = 0;
    v->select = own_text("%s=%.17g%s", name, c->value[draw(c->n)] + c->gap / 4,
        chance(50) ? "" : own_text("~%.17g", c->gap / 8));
    refuse(s, INSITU_E_NOTFOUND, "a value that is not there");
    break;
  case 6:
    v->into = s->variable[draw((uint64_t)s->n_views)].label;
    if (v->into == v->label) v->into = "";
    refuse(s, INSITU_E_ARG, "into is empty, or the label of another variable");
    break;
  default:
    if (s->n_views < 2 || s->view[0].array->type != s->view[1].array->type) return;
    for (int i = 0; i < 2; i++) {
      s->variable[i].dtype = s->variable[i].decode = 0;
      s->variable[i].into = "y";
      s->variable[i].steps = s->view[i].step;
      s->variable[i].n_steps = 1 + (uint64_t)i;
    }
    refuse(s, INSITU_E_SHAPE, "channels of unequal shapes");
  }
}

/* Something that insitu_loader_open must refuse. */
static inline void draw_refusal(struct setup *s) {
  insitu_loader_desc *d = &s->desc;
  insitu_variable *v = &s->variable[draw((uint64_t)s->n_views)];
  const struct array *a = NULL;
  insitu_slice *slice = own(2 * sizeof *slice);

  for (int i = 0; i < s->n_views; i++)
    if (v == &s->variable[i]) a = s->view[i].array;
  if (chance(40)) {
    refuse_selection(s, v, a);
    return;
  }
  switch (draw(14)) {
  case 0:
    v->path = "no/such/array";
    refuse(s, INSITU_E_NOTFOUND, "no such array");
    break;
  case 1: /* of an array that has numbers which int16 has not */
    if (v->into || a->type->kind == KIND_BOOL || a->type->bytes == 1) return;
    if (a->type->dtype == INSITU_I16 && !v->decode) return;
    v->dtype = INSITU_I16;
    refuse(s, INSITU_E_DTYPE, "a conversion to int16");
    break;
  case 2:
    d->rank = d->world > 1 ? d->world : 1;
    refuse(s, INSITU_E_ARG, "a rank that the world does not have");
    break;
  case 3:
    d->sample_dim = "no_such_axis";
    refuse(s, INSITU_E_NOTFOUND, "no such sample axis");
    break;
  case 4:
    d->sample_dim = NULL;
    d->sample_axis = MAX_DIMS + 1;
    refuse(s, INSITU_E_SHAPE, "a sample axis that no array has");
    break;
  case 5:
    *slice = (insitu_slice){.axis = a->axis, .stop = 1};
    v->slices = slice;
    v->n_slices = 1;
    refuse(s, INSITU_E_ARG, "a slice of the sample axis");
    break;
  case 6:
    if (a->ndim == 1) return;
    slice->axis = a->axis == 0;
    slice->start = draw_from(0, (int64_t)a->shape[slice->axis] - 1);
    slice->stop = (int64_t)a->shape[slice->axis] + 1;
    v->slices = slice;
    v->n_slices = 1;
    refuse(s, INSITU_E_SHAPE, "a slice that leaves its array");
    break;
  case 7:
    v->offset = chance(50) ? INT64_MIN : INT64_C(1) << 50;
    refuse(s, INSITU_E_ARG, "an offset beyond all samples");
    break;
  case 8:
    d->sample_from = d->sample_to = NULL;
    d->sample_start = 0;
    d->sample_stop = (int64_t)s->samples + 1;
    refuse(s, INSITU_E_SPLIT, "samples beyond the archive");
    break;
  case 9:
    memset(d->split, 0, sizeof d->split);
    d->manifest = NULL;
    d->split[0].fraction = 0.75;
    d->split[2].fraction = 0.5;
    refuse(s, INSITU_E_ARG, "fractions of more than all");
    break;
  case 10:
    if (s->samples < 3 || s->split.lo || s->split.hi < (int64_t)s->samples) return;
    memset(d->split, 0, sizeof d->split);
    d->manifest = NULL;
    d->split[1].stop = 2;
    d->split[2].start = 1;
    d->split[2].stop = 3;
    refuse(s, INSITU_E_SPLIT, "ranges that share a sample");
    break;
  case 11:
    d->api = chance(50) ? 0 : INSITU_API + 1;
    refuse(s, INSITU_E_API, "another version of the interface");
    break;
  case 12:
    if (s->n_views < 2) return;
    s->variable[1].label = s->variable[0].label;
    refuse(s, INSITU_E_ARG, "two variables of one label");
    break;
  default:
    d->manifest = own_text("%s/no-such-manifest.json", s->folder);
    memset(d->split, 0, sizeof d->split);
    d->split_shuffled = 0;
    refuse(s, INSITU_E_NOTFOUND, "no such manifest");
  }
}

static inline void draw_case(struct setup *s, uint64_t number) {
  unsigned where;

  s->number = number;
  draw_state = number * UINT64_C(0xD1342543DE82EF95) + 1;
  draw_archive(s);
  where = (unsigned)draw(100);
  s->place = where < 40   ? PLACE_FOLDER
             : where < 65 ? PLACE_MEMORY
             : where < 80 ? PLACE_ZIP
             : where < 92 ? PLACE_HTTP
                          : PLACE_HTTP_ZIP;
  place_archive(s);
  draw_views(s);
  draw_order(s);
  draw_split(s);
  draw_resources(s);
  split_finish(
      &s->split, s->view, s->n_views, s->desc.split_gap, s->desc.split_spill, s->unit_chunks);
  if (!s->refused && chance(5)) draw_refusal(s);
  draw_fixed(s);
}

/* ---- in words ---- */
static inline void tell_array(FILE *f, const struct array *a) {
  struct text *t = own(sizeof *t);

  if (a->format == 3) say_v3(t, a);
  else say_v2(t, a);
  fprintf(f, "  array '%s': sample axis %d, %u %% of its chunks absent, %s\n", a->path, a->axis,
      a->absent, t->at);
  t->n = 0;
  say_attributes(t, a);
  fprintf(f, "    attributes %s\n", t->at);
}

static inline void tell_case(FILE *f, const struct setup *s) {
  static const char *const places[] = {
      "folder", "memory", "zip file", "HTTP", "zip file over HTTP"};
  static const char *const kinds[] = {
      "by default", "by fractions", "by ranges", "by dates", "by manifest"};
  static const char *const parts[] = {"train", "val", "test", "all"};
  const insitu_loader_desc *d = &s->desc;

  fprintf(f, "  Zarr v%d in a %s (%s), %d objects, %sconsolidated; %d samples\n", s->archive.format,
      places[s->place], d->url, (int)s->archive.n_objects, s->archive.consolidated ? "" : "not ",
      (int)s->samples);
  for (int i = 0; i < archive_arrays(&s->archive); i++) tell_array(f, &s->archive.array[i]);
  for (int i = 0; i < s->n_views; i++) {
    const insitu_variable *v = &s->variable[i];

    fprintf(f, "  variable '%s' of '%s': offset %d, steps [", v->label, s->view[i].array->path,
        (int)v->offset);
    for (uint64_t k = 0; k < v->n_steps; k++) fprintf(f, " %d", (int)v->steps[k]);
    fprintf(f, " ], dtype 0x%x, decode %d", (unsigned)v->dtype, v->decode);
    for (uint64_t k = 0; k < v->n_slices; k++)
      fprintf(f, ", %s %d [%d, %d)", v->slices[k].dim ? v->slices[k].dim : "axis",
          v->slices[k].axis, (int)v->slices[k].start, (int)v->slices[k].stop);
    if (v->select) fprintf(f, ", select '%s'", v->select);
    if (v->into) fprintf(f, ", into '%s'", v->into);
    fprintf(f, "\n");
  }
  fprintf(f,
      "  sample_dim %s, sample_axis %d, batch_size %d, world %d, lanes %d, block_chunks %d, "
      "unit_chunks %d, seed %" PRIu64 "\n",
      d->sample_dim ? d->sample_dim : "NULL", d->sample_axis, (int)d->batch_size, d->world,
      (int)d->lanes, (int)d->block_chunks, (int)d->unit_chunks, d->seed);
  fprintf(f, "  split %s%s, gap %d, %s; samples [%d, %d) from %s to %s, time axis %s%s",
      kinds[s->kind], d->split_shuffled ? ", shuffled" : "", (int)d->split_gap,
      d->split_spill ? "windows may spill" : "no window spills", (int)s->split.lo, (int)s->split.hi,
      d->sample_from ? d->sample_from : "-", d->sample_to ? d->sample_to : "-",
      !s->seconds ? "none"
      : s->falls  ? "falls"
                  : "rises",
      d->time_path ? ", by time_path" : "");
  for (int p = 0; p < 3; p++)
    fprintf(f, "; %s %g [%d, %d) from %s to %s", parts[p], d->split[p].fraction,
        (int)d->split[p].start, (int)d->split[p].stop, d->split[p].from ? d->split[p].from : "-",
        d->split[p].to ? d->split[p].to : "-");
  fprintf(f, "\n  reference chunks of %d; anchors", (int)s->split.ref);
  for (int p = 0; p < 4; p++) {
    fprintf(
        f, " %s %d in %d units", parts[p], (int)s->split.part[p].n, (int)s->split.part[p].units);
    for (int r = 0; r < INSITU_DROPS; r++)
      if (s->split.part[p].dropped[r])
        fprintf(f, ", %s drops %d", insitu_drop_name(r), (int)s->split.part[p].dropped[r]);
    if (p < 3) fprintf(f, ";");
  }
  fprintf(f,
      "\n  prefetch_depth %d, max_inflight %d, decode_threads %d, memory_budget %" PRIu64
      ", io %d, inline_io %d, hold_epoch %d, check %d, on_absent_chunk %d, cache_dir %s, option "
      "%s\n",
      (int)d->prefetch_depth, (int)d->max_inflight, (int)d->decode_threads, d->memory_budget, d->io,
      d->inline_io, d->hold_epoch, d->check, d->on_absent_chunk,
      d->cache_dir ? d->cache_dir : "none", d->n_options ? s->option[0].key : "none");
  if (s->refused) fprintf(f, "  to be refused: %s\n", s->why);
}
#endif
