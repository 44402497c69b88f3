/* Random selections: coordinates of axes, the text of insitu_variable.select, what it shows as the
 * manual says, and variables that are channels of one output. After random_model.h. */
#ifndef TESTS_RANDOM_SELECT_H
#define TESTS_RANDOM_SELECT_H

/* ---- coordinates ---- */
/* The values of a coordinate. Steps are multiples of 1/4, so that every type holds them. */
static inline void draw_values(struct coordinate *c, bool whole) {
  double quantum = whole ? 1 : 0.25, step = quantum * (double)(1 + draw(40));
  uint64_t n = c->n;

  c->longitude = (double)n * quantum <= 360 && chance(35);
  if (c->longitude) {
    double widest = floor(360 / (double)n / quantum) * quantum;

    step = chance(60) ? widest : quantum * (double)(1 + draw((uint64_t)(widest / quantum)));
  }
  c->value = own(n * sizeof *c->value);
  c->gap = step;
  double at = c->longitude ? chance(50) ? 0 : -180 : quantum * (double)draw_from(-100, 100);
  c->slope = chance(60) ? 1 : -1;
  for (uint64_t i = 0; i < n; i++) {
    c->value[c->slope > 0 ? i : n - 1 - i] = at;
    at += step * (c->longitude || chance(60) ? 1 : (double)(1 + draw(3)));
  }
  if (n < 3 || !chance(10)) return;
  c->slope = 0; /* lists alone make sense */
  double first = c->value[0];
  c->value[0] = c->value[1];
  c->value[1] = first;
}

static inline void draw_coordinate(struct archive *ar, const char *name, uint64_t n) {
  static const int kinds[] = {2, 3, 4, 10, 10, 11, 11, 11}; /* int16, 32, 64, float32, 64 */
  struct coordinate *c = &ar->coordinate[ar->n_coordinates];
  struct array *a = &ar->array[archive_arrays(ar)];
  const struct type *t = &types[kinds[draw(8)]];
  const char *group = chance(50) ? ar->group : "";

  if (n > 300) t = &types[10 + draw(2)];
  *a = (struct array){.path = own_text("%s%s%s", group, *group ? "/" : "", name),
      .format = ar->format,
      .type = t,
      .ndim = 1,
      .n_levels = 1,
      .fill_text = "0",
      .dotted = true,
      .big = chance(20)};
  *c = (struct coordinate){.name = name, .array = a, .n = n};
  draw_values(c, t->kind == KIND_INT);
  a->dims[0] = name;
  a->shape[0] = n;
  a->level[0].size[0] = 1 + draw(n);
  draw_codecs(a, &a->level[0], false);
  if (c->longitude) a->attributes = "\"units\":\"degrees_east\",";
  draw_elements(a);
  for (uint64_t i = 0; i < n; i++) {
    float f = (float)c->value[i];
    int64_t whole = (int64_t)c->value[i];
    unsigned char *to = a->data + t->bytes * i;

    if (t->kind == KIND_INT) put_u64(to, (uint64_t)whole, t->bytes, false);
    else if (t->bytes == 4) memcpy(to, &f, 4);
    else memcpy(to, &c->value[i], 8);
  }
  ar->n_coordinates++;
}

static inline const struct coordinate *coordinate_of(const struct archive *ar, const char *name) {
  for (int i = 0; name && i < ar->n_coordinates; i++)
    if (!strcmp(ar->coordinate[i].name, name)) return &ar->coordinate[i];
  return NULL;
}

/* Coordinates of some of the axes but that of the split, whose coordinate is a time. */
static inline void draw_coordinates(struct archive *ar) {
  if (ar->root_is_array || chance(30)) return;
  for (int i = 0; i < ar->n_arrays; i++)
    for (int d = 0; d < ar->array[i].ndim; d++) {
      const char *name = ar->array[i].dims[d];

      if (!name || d == ar->array[i].axis || coordinate_of(ar, name) || !chance(60)) continue;
      draw_coordinate(ar, name, ar->array[i].shape[d]);
    }
}

/* The coordinate that the manual finds for an axis; NULL: none, or one of another length. */
static inline const struct coordinate *axis_coordinate(
    const struct archive *ar, const struct array *a, int d) {
  const struct coordinate *c = coordinate_of(ar, a->dims[d]);
  const char *name = c ? strrchr(c->array->path, '/') : NULL, *own_name = strrchr(a->path, '/');

  if (!c || c->n != a->shape[d]) return NULL;
  size_t n = name ? (size_t)(name - c->array->path) : 0;
  size_t beside = own_name ? (size_t)(own_name - a->path) : 0;
  return !n || (n == beside && !strncmp(a->path, c->array->path, n)) ? c : NULL;
}

/* ---- terms: their text, and the indexes that they show ---- */
static inline void show_index(struct shown *s, uint64_t index, const char *name) {
  if (s->n == MAX_SHOWN) return;
  s->name[s->n] = name;
  s->at[s->n++] = index;
}

/* [a:b:s] as Python writes it, of `most_n` indexes at most; a number on its own is a list. */
static inline void say_index_range(struct text *t, struct shown *s, uint64_t n, uint64_t most_n) {
  uint64_t first = draw(n), stride = chance(40) ? 1 : 1 + draw(4), last = draw(n);
  bool back = last < first;
  uint64_t count = least((back ? first - last : last - first) / stride + 1, most_n);
  int64_t step = back ? -(int64_t)stride : (int64_t)stride,
          end = (int64_t)first + (int64_t)(count - 1) * step,
          stop = end + (back            ? -1
                           : chance(50) ? 1
                                        : (int64_t)stride);
  char a[24] = "", b[24] = "", c[24] = "";

  s->listed = false;
  for (uint64_t i = 0; i < count; i++)
    show_index(s, (uint64_t)((int64_t)first + (int64_t)i * step), NULL);
  stop = stop > (int64_t)n ? (int64_t)n : stop;
  bool open_begin = first == (back ? n - 1 : 0) && chance(60);
  bool open_end = back ? stop < 0 : stop == (int64_t)n && chance(60);
  if (!open_begin)
    snprintf(a, sizeof a, "%" PRId64, chance(30) ? (int64_t)first - (int64_t)n : (int64_t)first);
  if (!open_end)
    snprintf(b, sizeof b, "%" PRId64, chance(30) && stop < (int64_t)n ? stop - (int64_t)n : stop);
  if (step != 1 || chance(30)) snprintf(c, sizeof c, ":%" PRId64, step);
  say(t, "[%s:%s%s]", a, b, c);
}

static inline void say_index_list(struct text *t, struct shown *s, uint64_t n, uint64_t most_n) {
  uint64_t count = 1 + draw(least(most_n, 3));

  say(t, "[");
  for (uint64_t i = 0; i < count; i++) {
    uint64_t index = draw(n);
    int64_t said = chance(40) ? (int64_t)index - (int64_t)n : (int64_t)index;

    show_index(s, index, own_text("%" PRId64, said));
    say(t, "%s%" PRId64, i ? "," : "", said);
  }
  say(t, "]");
}

/* A value of the coordinate, or a number near it with a tolerance. */
static inline void say_value(struct text *t, struct shown *s, const struct coordinate *c) {
  uint64_t index = draw(c->n);
  double turn = c->longitude && chance(30) ? chance(50) ? 360 : -360 : 0;
  double away = chance(30) ? (double)draw_from(-3, 3) * c->gap / 8 : 0;
  const char *value = own_text("%.17g", c->value[index] + turn + away);

  if (away != 0 || chance(20)) value = own_text("%s~%.17g", value, fabs(away) + draw(2) * c->gap);
  show_index(s, index, value);
  say(t, "%s", value);
}

/* All values of a range, in the order of its ends; of a longitude also over the ends of the axis.
 * False: there are more of them than most_n, and nothing is said. */
static inline bool say_value_range(
    struct text *t, struct shown *s, const struct coordinate *c, uint64_t most_n) {
  double lo = c->value[draw(c->n)], hi = c->value[draw(c->n)], off = chance(50) ? c->gap / 4 : 0;
  bool turned = chance(40);
  uint64_t n = 0, *rank = own(c->n * 8);

  if (lo > hi && c->longitude && chance(60)) lo -= 360;
  else if (lo > hi) {
    double x = lo;

    lo = hi;
    hi = x;
  }
  lo -= off;
  hi += off;
  if (c->longitude && hi - lo >= 360) return false;
  if (lo >= hi) turned = false; /* of one value there is no order */
  for (uint64_t i = 0; i < c->n; i++) {
    double x = c->value[i];

    if (c->longitude) x = lo + fmod(x - lo + 1440, 360);
    if (x < lo || x > hi) continue;
    uint64_t k = n++; /* sorted by the value, in the text's direction */
    for (; k > 0; k--) {
      double other = c->value[rank[k - 1]];

      if (c->longitude) other = lo + fmod(other - lo + 1440, 360);
      if (turned ? other > x : other < x) break;
      rank[k] = rank[k - 1];
    }
    rank[k] = i;
  }
  if (n > most_n) return false;
  s->listed = false;
  for (uint64_t k = 0; k < n; k++) show_index(s, rank[k], NULL);
  double turn = c->longitude && hi < 180 && chance(20) ? 360 : 0;
  say(t, "%.17g..%.17g", (turned ? hi : lo) + turn, (turned ? lo : hi) + turn);
  return true;
}

/* ---- an axis ---- */
enum fold { ANY, LISTED, RANGED };

/* What is shown of an axis and its text, behind the "=". want: so many indexes, not 0 with RANGED;
 * 0: any. */
static inline struct shown draw_terms(
    struct text *t, uint64_t n, const struct coordinate *c, enum fold fold, uint64_t want) {
  uint64_t most_n = want ? want : fold == LISTED ? 3 : MAX_SHOWN;
  struct shown s = {
      .listed = true, .at = own(MAX_SHOWN * 8), .name = own(MAX_SHOWN * sizeof *s.name)};

  for (int terms = 0; terms < 2 * MAX_SHOWN && s.n < most_n; terms++) {
    bool range = fold == RANGED ? s.listed || chance(60) : fold == ANY && chance(50);
    bool value = c && chance(75);
    size_t before = t->n;

    if (terms && !want && !chance(30)) break;
    if (terms) say(t, chance(70) ? "," : " , ");
    if (range && value && c->slope && say_value_range(t, &s, c, most_n - s.n)) continue;
    if (range) say_index_range(t, &s, n, most_n - s.n);
    else if (value) say_value(t, &s, c);
    else say_index_list(t, &s, n, most_n - s.n);
    if (t->n == before) break;
  }
  return s;
}

/* What select shows of an axis; its item goes to *item. */
static inline void draw_item(const struct archive *ar, struct view *v, int d, const char **item,
    enum fold fold, uint64_t want) {
  struct text *t = own(sizeof *t);
  const struct array *a = v->array;
  const struct coordinate *c = a->drawn[d] ? NULL : axis_coordinate(ar, a, d);

  if (a->dims[d]) say(t, "%s%s", chance(20) ? " " : "", a->dims[d]);
  else say(t, "%d", d);
  say(t, chance(80) ? "=" : " = ");
  v->shown[d] = draw_terms(t, a->shape[d], c, fold, want);
  *item = own_text("%s", t->at);
}

/* Puts the items of axes into the text, in any order. */
static inline void join_items(struct view *v, const char *const item[MAX_DIMS]) {
  struct text *t = own(sizeof *t);
  int turn = (int)draw(MAX_DIMS), order = 0;
  bool back = chance(50);

  for (int i = 0; i < MAX_DIMS; i++) {
    int d = (back ? MAX_DIMS - 1 - i + turn : i + turn) % MAX_DIMS;

    if (!item[d]) continue;
    say(t, "%s%s", order ? chance(50) ? ";" : "; " : "", item[d]);
    v->shown[d].order = ++order;
  }
  if (order && chance(20)) say(t, ";");
  if (order) v->v.select = own_text("%s", t->at);
}

/* A range of indexes, as insitu_slice has it. */
static inline void draw_slice(struct view *v, int d) {
  const struct array *a = v->array;
  uint64_t lo = draw(a->shape[d]), hi = lo + 1 + draw(a->shape[d] - lo);
  insitu_slice *slice = &v->slice[v->v.n_slices++];
  bool twice = false;

  v->shown[d] = shown_range(lo, hi);
  *slice = (insitu_slice){.axis = d, .start = (int64_t)lo, .stop = (int64_t)hi};
  if (hi == a->shape[d] && chance(50)) slice->stop = 0;
  if (!a->dims[0] || !chance(50)) return;
  for (int e = 0; e < a->ndim; e++) twice = twice || (e != d && !strcmp(a->dims[e], a->dims[d]));
  if (twice) return;
  slice->dim = a->dims[d];
  slice->axis = 0;
}

/* What a variable shows of each axis, by slices and by select. */
static inline void draw_selection(const struct archive *ar, struct view *v) {
  const struct array *a = v->array;
  const char *item[MAX_DIMS] = {0};
  bool by_text = chance(50);

  v->v.slices = v->slice;
  v->v.n_slices = 0;
  v->v.select = NULL;
  for (int d = 0; d < a->ndim; d++) {
    v->shown[d] = shown_range(0, a->shape[d]);
    if (a->drawn[d] || !chance(by_text ? 55 : 35)) continue;
    if (by_text && chance(80)) draw_item(ar, v, d, &item[d], ANY, 0);
    else draw_slice(v, d);
  }
  join_items(v, item);
  view_finish(v);
}

/* ---- channels ---- */
/* A variable that becomes channels: `kept` of its axes stay, with these lengths. */
static inline void draw_channels(
    const struct archive *ar, struct view *v, int kept, const uint64_t *length) {
  const struct array *a = v->array;
  const char *item[MAX_DIMS] = {0};
  int left = array_fields(a), k = 0;

  v->v.n_slices = 0;
  v->v.select = NULL;
  for (int d = 0; d < a->ndim; d++) {
    v->shown[d] = shown_range(0, a->shape[d]);
    if (a->drawn[d]) continue;
    bool keep = k < kept && (left == kept - k || chance(50));
    bool whole = keep && length[k] == a->shape[d];
    left--;
    if (!keep) draw_item(ar, v, d, &item[d], LISTED, 0);
    else if (!whole || chance(50)) draw_item(ar, v, d, &item[d], RANGED, length[k]);
    k += keep;
  }
  join_items(v, item);
  view_finish(v);
}

/* One dtype for all of them: that of the arrays, or one that some of them say. False: none fits. */
static inline bool draw_common_dtype(struct view *const *view, int n) {
  static const int32_t dtypes[] = {
      INSITU_F32, INSITU_F64, INSITU_F16, INSITU_BF16, INSITU_I64, INSITU_BOOL, INSITU_U32};
  bool same = true;

  for (int i = 0; i < n; i++) view[i]->v.dtype = 0;
  for (int i = 1; i < n; i++) same = same && view_dtype(view[i]) == view_dtype(view[0]);
  if (same && chance(60)) return true;
  for (int tries = 0; tries < 20; tries++) {
    int32_t dtype = dtypes[draw(sizeof dtypes / sizeof *dtypes)];
    bool fits = true;

    for (int i = 0; i < n; i++) {
      view[i]->v.dtype = dtype;
      fits = fits && !view_refusal(view[i]);
    }
    if (fits) return true;
  }
  for (int i = 0; i < n; i++) view[i]->v.dtype = 0;
  return same;
}

/* What is shown of any of an array's axes, that of the samples as well, by text or by slices. How
 * many elements that are. */
static inline uint64_t draw_box(struct view *v) {
  static const struct archive no_coordinates; /* their reads would be counted as well */
  const struct array *a = v->array;
  const char *terms[MAX_DIMS] = {0};
  bool by_text = chance(40);
  uint64_t n = 1;

  v->v.select = NULL;
  v->v.slices = v->slice;
  v->v.n_slices = 0;
  for (int d = 0; d < a->ndim; d++) {
    v->shown[d] = shown_range(0, a->shape[d]);
    if (chance(by_text ? 60 : 0)) {
      draw_item(&no_coordinates, v, d, &terms[d], ANY, 0);
    } else if (chance(70)) {
      uint64_t lo = chance(50) ? 0 : draw(a->shape[d]);
      uint64_t hi = chance(50) ? a->shape[d] : lo + 1 + draw(a->shape[d] - lo);

      v->shown[d] = shown_range(lo, hi);
      v->slice[v->v.n_slices++] =
          (insitu_slice){.axis = d, .start = (int64_t)lo, .stop = (int64_t)hi};
    }
    n *= v->shown[d].n;
  }
  join_items(v, terms);
  view_finish(v);
  return n;
}

/* Whether two variables have equal shapes, channels apart. */
static inline bool same_shape(const struct view *a, const struct view *b) {
  int d = 0, e = 0;

  for (;; d++, e++) {
    while (d < a->array->ndim && (view_samples(a, d) || view_folds(a, d))) d++;
    while (e < b->array->ndim && (view_samples(b, e) || view_folds(b, e))) e++;
    if (d == a->array->ndim || e == b->array->ndim) break;
    if (view_length(a, d) != view_length(b, e)) return false;
  }
  return d == a->array->ndim && e == b->array->ndim;
}

/* Some of the variables become channels of one output. */
static inline void draw_into(
    const struct archive *ar, struct view *view, int n_views, insitu_variable *said) {
  struct view *in[MAX_DIMS];
  uint64_t length[MAX_DIMS];
  int n = 0, kept = MAX_DIMS;

  if (!chance(n_views > 1 ? 30 : 10)) return;
  for (int i = 0; i < n_views; i++)
    if (chance(75)) in[n++] = &view[i];
  for (int i = 0; i < n; i++)
    kept = (int)least((uint64_t)kept, (uint64_t)array_fields(in[i]->array));
  bool fits = n && draw_common_dtype(in, n);
  for (int i = 0; i < n; i++) said[in[i] - view].dtype = in[i]->v.dtype;
  if (!fits) return;
  kept = (int)draw((uint64_t)kept + 1);
  for (int k = 0; k < kept; k++) length[k] = 1 + draw(6);
  int speaker = (int)draw((uint64_t)n);
  for (int i = 0; i < n; i++) {
    struct view *v = in[i];

    v->v.into = "x";
    v->v.n_steps = in[0]->v.n_steps;
    v->v.steps = v->v.n_steps ? v->step : NULL;
    draw_channels(ar, v, kept, length);
    said[v - view] = v->v;
  }
  for (int i = 1; i < n; i++) fits = fits && same_shape(in[0], in[i]); /* patches may differ */
  for (int i = 0; i < n; i++) {
    struct view *v = in[i];

    if (!fits) said[v - view].into = v->v.into = NULL;
    else if (i != speaker) said[v - view].dtype = 0;
  }
}

/* Which array of the batch a variable is in, and where; how many there are. */
static inline int place_views(struct view *view, int n_views) {
  int n = 0;

  for (int i = 0; i < n_views; i++) {
    struct view *v = &view[i];

    v->output = -1;
    v->channel = 0;
    for (int k = 0; v->v.into && k < i; k++) {
      if (!view[k].v.into || strcmp(view[k].v.into, v->v.into)) continue;
      v->output = view[k].output;
      v->channel = view[k].channel + view_channels(&view[k]);
    }
    if (v->output < 0) v->output = n++;
  }
  return n;
}

/* The name of a channel of a variable, as in "t_in level=500". */
static inline const char *channel_name(const struct view *v, uint64_t channel) {
  const char *name = "";

  for (int order = MAX_DIMS; order > 0; order--) {
    int d = view_folded(v, order);

    if (d < 0) continue;
    const char *item = v->shown[d].name[channel % v->shown[d].n];
    channel /= v->shown[d].n;
    if (v->array->dims[d]) name = own_text(" %s=%s%s", v->array->dims[d], item, name);
    else name = own_text(" %d=%s%s", d, item, name);
  }
  return own_text("%s%s", v->v.label, name);
}
#endif
