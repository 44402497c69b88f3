/* A case of the random model test: what it holds, a random archive in a random place, and random
 * variables. random_config.h has the rest of the configuration. After random_select.h,
 * random_order.h, zip.h and server.h. */
#ifndef TESTS_RANDOM_CASE_H
#define TESTS_RANDOM_CASE_H
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WORLD = 4 };
enum place {
  PLACE_FOLDER,
  PLACE_MEMORY,
  PLACE_ZIP,
  PLACE_REFS,
  PLACE_HTTP, /* here and below: far */
  PLACE_HTTP_ZIP,
  PLACE_HTTP_REFS
};
enum split_kind { SPLIT_DEFAULT, SPLIT_FRACTIONS, SPLIT_RANGES, SPLIT_DATES, SPLIT_MANIFEST };

struct setup {
  uint64_t number;
  struct archive archive;
  struct space *space;
  uint64_t samples; /* along the axis of the split */
  enum place place;
  struct view view[MAX_VIEWS]; /* of the variables, then of their masks */
  insitu_variable variable[MAX_VARIABLES];
  /* Without what is fixed. Arrays of masks come behind all others. */
  int n_variables, n_views, n_unmasked, n_outputs;
  struct view fixed;       /* the last variable, any box of an array; its `array` is NULL: none */
  struct view fixed_mask;  /* `array` NULL: it has none */
  insitu_loader_desc desc; /* without rank */
  insitu_axis axes[MAX_AXES];
  insitu_option option[1];
  struct calls *calls; /* on_batch; NULL: there is none */
  insitu_object *objects;
  uint64_t global, unit_chunks, block_chunks; /* resolved */
  /* of each part, where the rule decides lanes and windows; 0: it cannot be drawn */
  uint64_t window[4];
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

/* Samples of a reference chunk along the axis of the split. */
static inline uint64_t reference(const struct setup *s) {
  return s->split.ref[s->space->along];
}

static inline struct splitter splitter_of(const struct setup *s) {
  return (struct splitter){.space = s->space,
      .view = s->view,
      .n_views = s->n_views,
      .gap = s->desc.split_gap,
      .unit_chunks = s->unit_chunks,
      .spill = s->desc.split_spill};
}

/* Cuts the split again, after something changed that decides it. */
static inline void cut_split(struct setup *s) {
  struct splitter by = splitter_of(s);

  split_finish(&s->split, &by);
}

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

#include "random_refs.h"

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
  if (s->place == PLACE_REFS || s->place == PLACE_HTTP_REFS) {
    write_refs(ar, s->folder);
    s->desc.url = own_text("%s/refs.json", s->folder);
    if (s->place == PLACE_HTTP_REFS)
      s->desc.url =
          own_text("http://127.0.0.1:%d/c%" PRIu64 "/refs.json", random_server->port, s->number);
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

/* The array of n times, given in seconds. */
static inline void draw_time(struct setup *s, struct array *a, const char *name, const char *group,
    const int64_t *seconds, uint64_t n) {
  static const struct {
    const char *name;
    int64_t seconds;
  } units[] = {{"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"h", 3600}, {"days", 86400},
      {"day", 86400}};
  static const char *const calendars[][2] = {
      {"standard", "proleptic_gregorian"}, {"noleap", "365_day"}, {"360_day", "360_day"}};
  struct archive *ar = &s->archive;
  int unit = (int)draw(6);
  struct level *l = &a->level[0];
  struct date since;

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
  a->shape[0] = n;
  l->size[0] = 1 + draw(n);
  draw_codecs(a, l, false);
  since = date_of(
      s->calendar, seconds[0] / 86400 * 86400 - draw_from(0, 900) * 86400, (int)draw_from(2, 5));
  const char *calendar = calendars[s->calendar][draw(2)];
  bool say_calendar = s->calendar != CALENDAR_STANDARD || chance(60);
  a->attributes = own_text("\"units\":\"%s since %s\",%s%s%s", units[unit].name, since.text,
      say_calendar ? "\"calendar\":\"" : "", say_calendar ? calendar : "",
      say_calendar ? "\"," : "");
  draw_elements(a);
  for (uint64_t i = 0; i < n; i++) {
    double x = (double)(seconds[i] - since.begin) / (double)units[unit].seconds;
    int64_t whole = (int64_t)x;

    memcpy(a->data + 8 * i, a->type->kind == KIND_INT ? (void *)&whole : (void *)&x, 8);
  }
}

/* ---- arrays with samples of their own ---- */
/* The times of an array that is joined to the anchors: of these every so many, with holes; times
 * between them; and some before the first and behind the last. How many. */
static inline uint64_t draw_joined(const struct setup *s, int64_t *to) {
  uint64_t n = 0, every = chance(50) ? 1 : 1 + draw(6), first = draw(every),
           most_n = 4 * s->samples;
  uint64_t from = chance(60) ? 0 : draw(s->samples),
           end = chance(60) ? 0 : draw(s->samples / 2 + 1);
  int64_t between = chance(60) ? 1 : 2 + (int64_t)draw(5),
          before = chance(60) ? 0 : draw_from(1, 5);
  bool holes = chance(30);
  int64_t *sorted = own(s->samples * 8);

  for (uint64_t i = 0; i < s->samples; i++)
    sorted[i] = s->seconds[s->falls ? s->samples - 1 - i : i];
  for (; before > 0; before--) to[n++] = sorted[from] - before * 3600;
  for (uint64_t i = from; i < s->samples - end && n + 8 < most_n; i++) {
    int64_t gap = i + 1 < s->samples ? sorted[i + 1] - sorted[i] : 86400;

    if (i % every == first && !(holes && chance(15))) to[n++] = sorted[i];
    for (int64_t k = 1; k < between && gap % (between * 3600) == 0; k++)
      to[n++] = sorted[i] + gap / between * k;
  }
  for (uint64_t i = 0; s->falls && i < n / 2; i++) {
    int64_t t = to[i];

    to[i] = to[n - 1 - i];
    to[n - 1 - i] = t;
  }
  return n;
}

/* How an array's samples belong to the anchors; NULL: sample by sample. */
static inline struct partners *draw_partners(const struct setup *s, const int64_t **seconds) {
  int64_t anchors = (int64_t)s->samples, rate = draw_from(2, 7);

  *seconds = NULL;
  if (chance(50)) return NULL;
  if (s->seconds && !s->hard_date && chance(60)) {
    int64_t *times = own((4 * s->samples + 16) * 8);
    uint64_t n = draw_joined(s, times);
    struct partners *p = partners_joined(s->seconds, anchors, times, (int64_t)n, s->falls);
    bool same = n == s->samples && partners_shared(p) == n;

    if (!partners_shared(p)) return NULL;
    *seconds = times;
    if (chance(50) || (n == s->samples && !same)) p->map = INSITU_BY_COORDINATE;
    return p;
  }
  int64_t fair = chance(50)   ? anchors * rate
                 : chance(50) ? (int64_t)ceil_div(s->samples, (uint64_t)rate)
                              : anchors;
  int64_t indexes = chance(50) ? fair : draw_from(1, fair + 3);
  if (fair < anchors) return partners_by_rate(anchors, indexes, -rate, chance(50));
  return partners_by_rate(anchors, indexes, fair > anchors ? rate : chance(50) ? 0 : 1, false);
}

/* ---- the draw space ---- */
/* One axis by its name or number, or a list of axes. */
static inline void draw_axes(struct setup *s) {
  struct space *space = s->space = own(sizeof *space);
  static const char *const names[] = {"time", "t", "z"};
  bool listed = s->number % 3;

  s->samples = chance(60) ? 20 + draw(70) : chance(40) ? 1 + draw(20) : 90 + draw(170);
  if (listed) {
    draw_space(space, s->samples);
    s->samples = space->axis[space->along].n;
    return;
  }
  *space = (struct space){.n = 1};
  space->axis[0] =
      (struct axis){.dim = names[draw(3)], .n = s->samples, .hi = (int64_t)s->samples, .stride = 1};
}

/* Which of an array's axes those of the space are: their own numbers, or any. */
static inline void draw_positions(struct array *a, const struct space *space, const int *position) {
  int ndim = space->n;

  for (int k = 0; position && k < space->n; k++)
    if (position[k] >= ndim) ndim = position[k] + 1;
  ndim += (int)draw((space->n > 2 ? MAX_DIMS : 4) + 1 - (uint64_t)ndim);
  for (int k = 0; k < space->n; k++) {
    int d = position ? position[k] : (int)draw((uint64_t)ndim);

    while (a->drawn[d]) d = (d + 1) % ndim;
    a->drawn[d] = k + 1;
    a->shape[d] = space->axis[k].n;
    if (k == space->along) a->axis = d;
  }
  a->ndim = ndim;
}

static inline void draw_archive(struct setup *s) {
  static const char *const dims[] = {"y", "x", "level", "band", "number"};
  static const char *const names[] = {"t2m", "u", "deep/v", "w"};
  struct archive *ar = &s->archive;
  struct space *space;
  bool by_name = chance(55), named = by_name || chance(40);
  int n_dims = 0, tries = 0;

  draw_axes(s);
  space = s->space;
  /* Numbers of the axes in every array; by name they may be others in each. */
  struct array first = {0};
  int position[MAX_AXES];
  draw_positions(&first, space, chance(70) && space->n == 1 ? (int[]){0} : NULL);
  for (int d = 0; d < first.ndim; d++)
    if (first.drawn[d]) position[first.drawn[d] - 1] = d;
  ar->format = 2 + (int)draw(2);
  ar->n_arrays = chance(45) ? 1 : chance(65) ? 2 : 3;
  ar->root_is_array = chance(4);
  bool damaged = chance(25);
  s->desc.on_bad_chunk = chance(damaged ? 80 : 30) ? INSITU_FILL : INSITU_AUTO;
  if (ar->root_is_array) ar->n_arrays = 1;
  ar->group = !ar->root_is_array && chance(20) ? "g" : "";
  ar->consolidated = chance(50);
  bool timed = named && !ar->root_is_array && chance(60);
  if (timed) draw_seconds(s);
  s->hard_date = timed && chance(25);
  for (int i = 0; i < ar->n_arrays; i++) {
    struct array *a = &ar->array[i];

    *a = (struct array){.format = ar->format};
    a->path =
        ar->root_is_array ? "" : own_text("%s%s%s", ar->group, *ar->group ? "/" : "", names[i]);
    draw_positions(a, space, by_name && chance(40) ? NULL : position);
    if (i) a->partners = draw_partners(s, &a->seconds);
    if (a->partners) a->shape[a->axis] = (uint64_t)a->partners->indexes;
    if (a->seconds) a->path = own_text("%s%sm%d/v", ar->group, *ar->group ? "/" : "", i);
    draw_array(a, a->ndim);
    a->bad = damaged ? 1 + (unsigned)draw(30) : 0;
    a->bad_ends = s->desc.on_bad_chunk == INSITU_FILL;
    uint64_t chunks = 1, stored = 1;
    for (int d = 0; d < a->ndim; d++) {
      chunks *= ceil_div(a->shape[d], a->level[a->n_levels - 1].size[d]);
      stored *= ceil_div(a->shape[d], a->level[0].size[d]);
    }
    if (chunks > 400 || stored > 150 || array_count(a) > 60000) { /* too slow */
      if (++tries > 200) abort();
      i--;
      continue;
    }
    for (int d = 0; named && d < a->ndim; d++)
      a->dims[d] = a->drawn[d] ? space->axis[a->drawn[d] - 1].dim : dims[n_dims++ % 5];
    draw_elements(a);
    if (a->type->kind != KIND_BOOL && a->type->kind != KIND_COMPLEX && chance(30)) draw_packing(a);
  }
  const char *sample = space->axis[space->along].dim;
  if (space->listed) draw_ranges_of_axes(space);
  if (space->listed) say_axes(space, s->axes, by_name ? NULL : position);
  else if (by_name) s->desc.sample_dim = sample;
  else s->desc.sample_axis = position[0];
  if (timed) { /* beside the first array, or at the root */
    ar->time = &ar->array[ar->n_arrays];
    draw_time(s, ar->time, s->hard_date ? "clock" : sample, chance(50) ? ar->group : "", s->seconds,
        s->samples);
  }
  for (int i = 0; i < ar->n_arrays; i++) {
    const struct array *a = &ar->array[i];
    const char *group = own_text("%.*s", (int)(strlen(a->path) - 2), a->path);

    if (!a->seconds) continue;
    draw_time(s, &ar->array[ar->n_arrays + 1 + ar->n_times++], sample, group, a->seconds,
        a->shape[a->axis]);
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

/* The views of masks, and where all of them are in a batch. */
static inline void place_masks(struct setup *s) {
  s->n_unmasked = place_views(s->view, s->n_variables);
  s->n_views = s->n_variables;
  for (int i = 0; i < s->n_variables; i++)
    if (s->view[i].v.mask) s->view[s->n_views++] = mask_view(&s->view[i]);
  s->n_outputs = place_views(s->view, s->n_views);
}

/* Of variables whose selections are drawn: their operations, and masks. Channels of one output may
 * share theirs. */
static inline void draw_numbers(struct setup *s) {
  bool shared = chance(60);

  for (int i = 0; i < s->n_variables; i++) {
    struct view *v = &s->view[i];

    draw_ops(v, false);
    if (v->v.mask && v->v.into && shared) v->v.mask = "mx";
    s->variable[i].ops = v->v.ops;
    s->variable[i].n_ops = v->v.n_ops;
    s->variable[i].mask = v->v.mask;
  }
  place_masks(s);
}

static inline void draw_views(struct setup *s) {
  struct archive *ar = &s->archive;
  int64_t reach = chance(50) ? 0 : chance(70) ? 3 : 12;

  s->n_variables = ar->n_arrays + (int)draw((uint64_t)(MAX_VARIABLES - ar->n_arrays) + 1);
  if (chance(30)) s->n_variables = 1;
  for (int i = 0; i < s->n_variables; i++) {
    struct view *v = &s->view[i];
    const struct array *a = v->array =
        &ar->array[i < ar->n_arrays ? i : (int)draw((uint64_t)ar->n_arrays)];

    v->space = s->space;
    v->v = (insitu_variable){.label = own_text("v%d", i), .path = a->path};
    if (s->space->halo && chance(60)) v->v.halo = 1 + draw((uint64_t)s->space->halo);
    if (a->partners) {
      v->v.map = a->partners->map;
      v->v.rate = a->partners->rate;
    }
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
    draw_computing(v, own_text("m%d", i));
    bool odd = a->type->kind == KIND_COMPLEX ? chance(2) : chance(40);
    if (a->packed ? chance(60) : chance(2)) v->v.decode = INSITU_CF;
    if (odd) draw_dtype(v);
    s->variable[i] = v->v;
  }
  s->space->halo = 0;
  for (int i = 0; i < s->n_variables; i++)
    if ((int64_t)s->view[i].v.halo > s->space->halo) s->space->halo = (int64_t)s->view[i].v.halo;
  draw_into(ar, s->view, s->n_variables, s->variable);
  draw_numbers(s);
  for (int i = 0; i < s->n_views; i++) {
    insitu_status refusal = view_refusal(&s->view[i]);

    if (!refusal || s->refused) continue;
    s->refused = refusal;
    s->why = "a conversion that there is not";
  }
  s->desc.variables = s->variable;
  s->desc.n_variables = (uint64_t)s->n_variables;
}

/* Sometimes a fixed variable besides; none where an absent or damaged chunk of it is an error of
 * open. */
static inline void draw_fixed(struct setup *s) {
  struct view *v = &s->fixed;
  struct archive *ar = &s->archive;
  struct holes holes = {0};

  if (s->refused || !chance(30)) return;
  const struct array *a = v->array = &ar->array[draw((uint64_t)ar->n_arrays)];
  v->space = s->space;
  v->v = (insitu_variable){.label = "fixed", .path = a->path, .fixed = 1};
  draw_box(v);
  draw_computing(v, "fixed_mask");
  draw_ops(v, true);
  if (a->packed && chance(60)) v->v.decode = INSITU_CF;
  if (a->type->kind != KIND_COMPLEX && chance(40)) draw_dtype(v);
  struct chunk_set chunks = chunk_set(a);
  chunk_set_add(&chunks, v, NULL, 0, 1, &holes);
  bool raises = (holes.absent && s->desc.on_absent_chunk == INSITU_RAISE) ||
                (holes.bad && s->desc.on_bad_chunk != INSITU_FILL);
  if (v->v.mask) s->fixed_mask = mask_view(v);
  if (raises || view_refusal(v) || (v->v.mask && view_refusal(&s->fixed_mask)))
    v->array = s->fixed_mask.array = NULL;
}

#endif
