/* Which samples of another array belong to the anchors, along the axis of the split: by the rules
 * of the manual, looked up for every single index. After random_archive.h. */
#ifndef TESTS_RANDOM_MAP_H
#define TESTS_RANDOM_MAP_H

struct partners {
  const char *words; /* how the array is matched */
  int32_t map;       /* what its variables say */
  int64_t rate;
  int64_t anchors, indexes; /* of the first array, of this one */
  /* By anchor: its partner, or -1. The first index that does not lie before it. By index: the
   * anchor that owns it, which is the last one that does not lie behind it; the first anchor owns
   * what lies before it. */
  int64_t *of, *place, *owner;
  /* num indexes last den anchors; of fewer than three joined samples as many. 0: they lie in
   * several ways, and the library says what a reference chunk is. */
  int64_t num, den;
};

static inline struct partners *partners_new(int64_t anchors, int64_t indexes) {
  struct partners *p = own(sizeof *p);

  *p = (struct partners){.anchors = anchors, .indexes = indexes};
  p->of = own((uint64_t)anchors * 8);
  p->place = own((uint64_t)anchors * 8);
  p->owner = own((uint64_t)indexes * 8);
  return p;
}

/* By a rate n: the samples [a * n, b * n) belong to the anchors [a, b); below 0, the anchors [a *
 * -n, b * -n) belong to the samples [a, b). */
static inline struct partners *partners_by_rate(
    int64_t anchors, int64_t indexes, int64_t rate, bool floor) {
  struct partners *p = partners_new(anchors, indexes);
  int64_t many = rate < 0 ? -rate : 1, each = rate > 0 ? rate : 1;

  p->map = floor ? INSITU_BY_INDEX_FLOOR : INSITU_BY_INDEX;
  p->rate = rate;
  p->num = each;
  p->den = many;
  for (int64_t a = 0; a < anchors; a++) {
    bool divides = a % many == 0;

    p->of[a] = (divides || floor) && a / many * each < indexes ? a / many * each : -1;
    p->place[a] = (a + many - 1) / many * each;
  }
  for (int64_t y = 0; y < indexes; y++)
    p->owner[y] = y / each * many < anchors ? y / each * many : anchors - 1;
  return p;
}

/* By coordinates, which rise (or fall) throughout: seconds of the anchors and of the indexes. */
static inline struct partners *partners_joined(
    const int64_t *anchor, int64_t anchors, const int64_t *index, int64_t indexes, bool falls) {
  struct partners *p = partners_new(anchors, indexes);
  int64_t sign = falls ? -1 : 1, before = -1, step = 0, rise = 0;
  uint64_t joined = 0;
  bool regular = true;

  p->map = 0;
  for (int64_t a = 0; a < anchors; a++) {
    p->of[a] = -1;
    for (int64_t y = 0; y < indexes; y++) {
      if (sign * index[y] < sign * anchor[a]) p->place[a] = y + 1;
      if (index[y] == anchor[a]) p->of[a] = y;
    }
  }
  for (int64_t y = 0; y < indexes; y++)
    for (int64_t a = 0; a < anchors; a++)
      if (sign * anchor[a] <= sign * index[y]) p->owner[y] = a;
  for (int64_t a = 0; a < anchors; a++) { /* how far neighbours lie apart */
    if (p->of[a] < 0) continue;
    if (before >= 0 && step) regular = regular && a - before == step;
    if (before >= 0 && step) regular = regular && p->of[a] - p->of[before] == rise;
    if (before >= 0 && !step) {
      step = a - before;
      rise = p->of[a] - p->of[before];
    }
    before = a;
    joined++;
  }
  bool plain = regular && (step == 1 || rise == 1);
  p->den = joined < 3 ? 1 : plain ? step : 0;
  p->num = joined < 3 ? 1 : plain ? rise : 0;
  return p;
}

/* Anchors with a partner. */
static inline uint64_t partners_shared(const struct partners *p) {
  uint64_t n = 0;

  for (int64_t a = 0; a < p->anchors; a++) n += p->of[a] >= 0;
  return n;
}

/* The anchors that `rows` indexes last. */
static inline uint64_t partners_last(const struct partners *p, uint64_t rows) {
  return most(1, rows * (uint64_t)p->den / (uint64_t)p->num);
}

/* The array's index on the axis of the split at an anchor with index x there; where it has no
 * partner, its place. */
static inline int64_t array_partner(const struct array *a, int64_t x) {
  if (!a->partners) return x;
  return a->partners->of[x] >= 0 ? a->partners->of[x] : a->partners->place[x];
}

static inline bool array_has_partner(const struct array *a, int64_t x) {
  return !a->partners || a->partners->of[x] >= 0;
}

/* The anchor, on the axis of the split, that an index of the array belongs to; -1: the array has no
 * such index. */
static inline int64_t array_owner(const struct array *a, int64_t y) {
  if (y < 0 || y >= (int64_t)a->shape[a->axis]) return -1;
  return a->partners ? a->partners->owner[y] : y;
}
#endif
