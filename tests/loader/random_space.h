/* The draw space of a case: the axes that samples are drawn along, those that samples are cut into
 * patches along, and the places of the archive, numbered row-major. After random_archive.h. */
#ifndef TESTS_RANDOM_SPACE_H
#define TESTS_RANDOM_SPACE_H

struct axis {
  const char *dim; /* its name; NULL: axes have numbers alone */
  uint64_t n;      /* indexes that the archive has of it */
  int64_t lo, hi;  /* those that take part */
  uint64_t stride; /* from lo on, every so many of them; of drawn patches 1 */
  uint64_t patch;  /* elements of a patch; 0: samples are drawn along it */
  bool hangs;      /* patches and halos may hang over its ends */
  int64_t below;   /* how far before the axis a patch may begin */
};

struct space {
  struct axis axis[MAX_AXES];
  int n, along;     /* along: the axis of the split, of offsets and of steps */
  uint64_t patches; /* drawn of each sample; 0: all of a grid, where an axis has a patch */
  int64_t halo;     /* the longest of the variables */
  bool listed;      /* by desc.axes; else by sample_dim or sample_axis */
  /* By number: desc.samples has it, a patch of a grid by where it begins, of drawn ones the sample.
   * NULL: there is no list. */
  bool *sampled;
  uint64_t n_sampled;
};

static inline bool space_patched(const struct space *s) {
  for (int k = 0; k < s->n; k++)
    if (s->axis[k].patch) return true;
  return false;
}

/* Places of the whole archive; of a patch, where it may begin. */
static inline uint64_t axis_places(const struct axis *a) {
  return a->n + (uint64_t)a->below;
}

static inline uint64_t space_places(const struct space *s) {
  uint64_t n = 1;

  for (int k = 0; k < s->n; k++) n *= axis_places(&s->axis[k]);
  return n;
}

static inline int64_t space_number(const struct space *s, const int64_t *index) {
  int64_t number = 0;

  for (int k = 0; k < s->n; k++)
    number = number * (int64_t)axis_places(&s->axis[k]) + index[k] + s->axis[k].below;
  return number;
}

static inline void space_index(const struct space *s, int64_t number, int64_t *index) {
  for (int k = s->n; k-- > 0;) {
    index[k] = number % (int64_t)axis_places(&s->axis[k]) - s->axis[k].below;
    number /= (int64_t)axis_places(&s->axis[k]);
  }
}

/* The number of the sample that a patch is cut out of: where its patches would begin at 0. */
static inline int64_t space_sample(const struct space *s, int64_t number) {
  int64_t index[MAX_AXES];

  space_index(s, number, index);
  for (int k = 0; k < s->n; k++)
    if (s->axis[k].patch) index[k] = 0;
  return space_number(s, index);
}

/* Whether a patch may begin at an index of its axis: it lies in the range, and with the longest
 * halo in the archive; or, where it may hang over the ends, it begins in the range, and one that is
 * drawn has its middle there. Of a grid, only every so many do. */
static inline bool axis_begins(const struct space *s, const struct axis *a, int64_t at) {
  int64_t length = (int64_t)a->patch, middle = s->patches ? at + length / 2 : at;

  if (a->hangs)
    return middle >= a->lo && middle < a->hi &&
           (s->patches || (at - a->lo) % (int64_t)a->stride == 0);
  if (at < a->lo || at + length > a->hi) return false;
  if (at - s->halo < 0 || at + length + s->halo > (int64_t)a->n) return false;
  return (at - a->lo) % (int64_t)a->stride == 0;
}

static inline uint64_t axis_begins_count(const struct space *s, const struct axis *a) {
  uint64_t n = 0;

  for (int64_t at = -a->below; at < (int64_t)a->n; at++) n += axis_begins(s, a, at);
  return n;
}

/* Whether some patch may begin at the place. */
static inline bool space_begins(const struct space *s, const int64_t *index) {
  for (int k = 0; k < s->n; k++)
    if (s->axis[k].patch && !axis_begins(s, &s->axis[k], index[k])) return false;
  return true;
}

/* Patches of each sample; 1 without patches. */
static inline uint64_t space_each(const struct space *s) {
  uint64_t n = 1;

  if (s->patches) return s->patches;
  for (int k = 0; k < s->n; k++)
    if (s->axis[k].patch) n *= axis_begins_count(s, &s->axis[k]);
  return n;
}

/* ---- drawing ---- */
/* The axes, without ranges. Along that of the split there are `samples`, or fewer. */
static inline void draw_space(struct space *s, uint64_t samples) {
  static const char *const names[] = {"time", "t", "z", "lead", "member"};
  static const char *const patched[] = {"py", "px"};
  int drawn = chance(50) ? 1 : 2 + (int)draw(2), turn = (int)draw(5), patches = 0;

  if (drawn < 3 && chance(50)) patches = 1 + (int)draw(2);
  s->listed = true;
  s->n = drawn + patches;
  unsigned is_patch = 0;
  for (int left = patches; left;) {
    int k = (int)draw((uint64_t)s->n);

    if (is_patch >> k & 1) continue;
    is_patch |= 1u << k;
    left--;
  }
  int sample = 0, patch = 0;
  int along = (int)draw((uint64_t)drawn);
  for (int k = 0; k < s->n; k++) {
    struct axis *a = &s->axis[k];

    if (is_patch >> k & 1) {
      *a = (struct axis){.dim = patched[patch++], .n = 1 + draw(chance(50) ? 6 : 14), .stride = 1};
      a->patch = 1 + draw(a->n);
    } else {
      if (sample == along) s->along = k;
      *a = (struct axis){.dim = names[(sample + turn) % 5],
          .n = sample == along ? samples : 1 + draw(chance(70) ? 5 : 8),
          .stride = 1};
      if (sample == along && s->n > 1) a->n = 1 + samples % 30;
      sample++;
    }
    a->hi = (int64_t)a->n;
  }
}

/* Ranges and strides of all axes but the range of the split's, whose dates may give it; how many
 * patches, and the margin around them that some variable has. */
static inline void draw_ranges_of_axes(struct space *s) {
  if (space_patched(s)) {
    s->patches = chance(50) ? 1 + draw(6) : 0;
    s->halo = chance(40) ? 0 : 1 + (int64_t)draw(2);
  }
  for (int k = 0; k < s->n; k++) {
    struct axis *a = &s->axis[k];
    int64_t n = (int64_t)a->n;

    if (!a->patch) {
      a->stride = chance(65) ? 1 : 1 + draw(5);
      if (k == s->along || chance(60)) continue;
      a->lo = draw_from(0, n - 1);
      a->hi = draw_from(a->lo + 1, n);
      continue;
    }
    a->hangs = chance(40);
    if (a->hangs && chance(30)) a->patch += draw(6);
    if (a->hangs && s->patches) a->below = (int64_t)a->patch / 2;
    while (!a->hangs && s->halo && 2 * s->halo + (int64_t)a->patch > n) {
      if (a->patch > 1) a->patch--;
      else s->halo--;
    }
    a->stride = s->patches ? 1 : chance(50) ? a->patch : 1 + draw(5);
    if (chance(60)) continue;
    a->lo = draw_from(0, a->hangs ? n - 1 : n - (int64_t)a->patch);
    a->hi = draw_from(a->lo + (a->hangs ? 1 : (int64_t)a->patch), n);
    if (!axis_begins_count(s, a)) a->lo = 0, a->hi = n;
  }
  for (int k = 0; k < s->n; k++) { /* a patch or a halo became shorter: no range may be empty */
    struct axis *a = &s->axis[k];

    if (!a->patch || axis_begins_count(s, a)) continue;
    a->lo = 0;
    a->hi = (int64_t)a->n;
    if (!axis_begins_count(s, a)) a->stride = 1;
  }
}

/* A list of some of the samples, in any order; of some that do not take part as well. Rows of
 * *columns numbers. */
static inline int64_t *draw_list(struct space *s, uint64_t *columns) {
  uint64_t places = space_places(s), percent = 5 + draw(95), n = 0;
  int64_t *rows = own(places * MAX_AXES * 8), *order = own(places * 8);

  s->sampled = own(places);
  *columns = 0;
  for (int k = 0; k < s->n; k++) *columns += !(s->patches && s->axis[k].patch);
  for (uint64_t i = 0; i < places; i++) {
    int64_t index[MAX_AXES];

    space_index(s, (int64_t)i, index);
    bool names = s->patches ? space_sample(s, (int64_t)i) == (int64_t)i : space_begins(s, index);
    if (names && chance(percent)) order[n++] = (int64_t)i;
  }
  for (uint64_t i = 0; i < n; i++) {
    uint64_t j = i + draw(n - i), column = 0;
    int64_t number = order[j], index[MAX_AXES];

    order[j] = order[i];
    s->sampled[number] = true;
    space_index(s, number, index);
    for (int k = 0; k < s->n; k++)
      if (!(s->patches && s->axis[k].patch)) rows[i * *columns + column++] = index[k];
  }
  s->n_sampled = n;
  return rows;
}

/* What desc.axes says of the space. Dates of the split's axis are set by their owner. */
static inline void say_axes(const struct space *s, insitu_axis *axes, const int *position) {
  for (int k = 0; k < s->n; k++) {
    const struct axis *a = &s->axis[k];
    insitu_axis *to = &axes[k];

    to->dim = position ? NULL : a->dim;
    to->axis = position ? position[k] : 0;
    to->patch = a->patch;
    to->edge = a->hangs ? INSITU_FILL : 0;
    to->stride = a->stride;
    bool usual = a->patch ? a->stride == a->patch : a->stride == 1;
    if (s->patches && a->patch) to->stride = 0;
    else if (usual && chance(50)) to->stride = 0;
    if (k == s->along) continue; /* its range may be one of dates */
    to->start = a->lo;
    to->stop = a->hi == (int64_t)a->n && chance(50) ? 0 : a->hi;
  }
}
#endif
