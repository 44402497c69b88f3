/* Statistics of a random case: what insitu_scan writes against two passes in long double, the same
 * bytes with other threads and from parts, and loaders that take their numbers from the file. After
 * random_walk.h. */
#ifndef TESTS_RANDOM_SCAN_H
#define TESTS_RANDOM_SCAN_H

enum { MAX_PARTS = 3, MAX_LAGS = 2 };

/* What a cell of the file must hold. vague: numbers that are only nearly known, or beyond what a
 * square in float64 holds. */
struct cell {
  uint64_t n, missing;
  long double mean, deviation;
  double least, most;
  bool vague;
};

/* ---- which numbers ---- */
/* The axis of an array by the name that a scan gets; -1: none, or samples are drawn along it. */
static inline int scan_axis(const struct array *a, const char *dim) {
  for (int d = 0; dim && d < a->ndim; d++) {
    const char *name = a->dims[d] ? a->dims[d] : own_text("%d", d);

    if (!strcmp(name, dim)) return a->drawn[d] ? -1 : d;
  }
  return -1;
}

static inline bool is_open_norm(const insitu_op *op) {
  return op->kind == INSITU_OP_NORM && !op->n && op->a == 0 && op->b == 0;
}

/* How many of a variable's operations are done before its numbers are taken. */
static inline uint64_t scan_ops(const insitu_variable *v) {
  uint64_t k = 0;

  while (k < v->n_ops && !is_open_norm(&v->ops[k])) k++;
  if (k < v->n_ops) return k;
  for (k = 0; k < v->n_ops && v->ops[k].kind != INSITU_OP_NORM;) k++;
  return k;
}

/* What is scanned: each variable at its anchor, in float32 where that has all values. */
static inline struct setup *scan_setup(const struct setup *s) {
  struct setup *scan = own(sizeof *scan);

  *scan = *s;
  scan->n_views = scan->n_variables;
  if (!scan->desc.on_absent_chunk) scan->desc.on_absent_chunk = INSITU_FILL;
  for (int i = 0; i < scan->n_views; i++) {
    struct view *v = &scan->view[i];
    const struct type *t = v->array->type;

    v->v.n_ops = scan_ops(&v->v);
    v->v.offset = 0;
    v->v.n_steps = v->v.halo = 0;
    v->v.into = v->v.mask = NULL;
    bool narrow = !v->v.decode && (t->bytes <= 2 || t->dtype == INSITU_F32);
    v->v.dtype = narrow ? INSITU_F32 : INSITU_F64;
  }
  cut_split(scan);
  return scan;
}

/* Where element k of a view that nothing folds stands along an axis; 0: of none. */
static inline uint64_t place_along(const struct view *v, int axis, uint64_t k) {
  for (int d = v->array->ndim - 1; axis >= 0 && d >= 0; d--) {
    if (d == axis) return k % view_length(v, d);
    k /= view_length(v, d);
  }
  return 0;
}

/* A number of a variable as it is scanned. */
static inline struct span scanned(const struct view *v, const unsigned char *stored, uint64_t k) {
  unsigned char shown[16];
  struct type t = {.kind = KIND_FLOAT, .bytes = dtype_bytes(v->v.dtype)};

  if (v->v.n_ops) return view_computed(v, stored, view_op_place(v, 0, k));
  show_element(v, stored, shown);
  double x = number_of(&t, false, shown).x;
  return (struct span){x, x, false};
}

/* What a variable shows of an anchor, by its number: element k. */
static inline struct span scanned_at(
    const struct setup *scan, const struct view *v, int64_t number, uint64_t k) {
  int64_t index[MAX_AXES];
  uint64_t at[MAX_DIMS];

  space_index(scan->space, number, index);
  view_place(v, index, 0, 0, k, at);
  return scanned(v, array_at(v->array, at), k);
}

/* The cells of a variable over the anchors of a part, or with a lag of the differences between
 * them: two passes. */
static inline struct cell *scan_cells(const struct setup *scan, const struct view *v, int part,
    const char *dim, uint64_t lag, uint64_t *n_cells) {
  const struct part *p = &scan->split.part[part];
  int axis = scan_axis(v->array, dim);
  uint64_t elements = view_elements(v);
  *n_cells = axis < 0 ? 1 : v->shown[axis].n;
  struct cell *cell = own(*n_cells * sizeof *cell);

  for (int pass = 0; pass < 2; pass++) {
    for (uint64_t i = 0; i < p->n * elements; i++) {
      struct cell *c = &cell[place_along(v, axis, i % elements)];
      int64_t number = p->anchor[i / elements], before = number - (int64_t)lag;

      if (before < 0 || !p->due[before]) continue;
      struct span x = scanned_at(scan, v, number, i % elements);
      if (lag) {
        struct span y = scanned_at(scan, v, before, i % elements);
        x.lo -= y.lo;
        x.near = x.near || y.near || fabs(y.lo) > 1e150;
      }
      bool finite = isfinite(x.lo);
      if (pass && finite)
        c->deviation += ((long double)x.lo - c->mean) * ((long double)x.lo - c->mean);
      if (pass) continue;
      c->vague = c->vague || x.near || (finite && fabs(x.lo) > 1e150);
      if (!finite) c->missing++;
      if (!finite) continue;
      if (!c->n || x.lo < c->least) c->least = x.lo;
      if (!c->n || x.lo > c->most) c->most = x.lo;
      c->mean += (long double)x.lo;
      c->n++;
    }
    for (uint64_t k = 0; k < *n_cells; k++) {
      struct cell *c = &cell[k];
      if (c->n && !pass) c->mean /= (long double)c->n;
      if (c->n && pass) c->deviation = sqrtl(c->deviation / (long double)c->n);
      if (c->n && c->least == c->most) c->deviation = 0;
    }
  }
  return cell;
}

/* ---- the file ---- */
static inline char *read_text(const char *path) {
  FILE *f = fopen(path, "rb");
  char *text = own(1 << 20);

  if (!f) differ("there is no file %s", path);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  if (n == (1 << 20) - 1) abort();
  return text;
}

/* The statistics of a variable, or of its differences; NULL: the file has none. */
static inline const char *file_set(const char *text, const char *label, uint64_t lag) {
  return strstr(text, own_text("{\"variable\": \"%s\", \"lag\": %" PRIu64 ",", label, lag));
}

/* Number i of a list of a set; NaN: it is null. */
static inline double file_number(const char *set, const char *key, uint64_t i) {
  const char *name = own_text("\"%s\": [", key), *p = strstr(set, name), *end;

  if (!p) differ("the file has no '%s'", key);
  for (p += strlen(name), end = strchr(p, ']'); i; i--) {
    p = strchr(p, ',');
    if (!p || p > end) differ("the list '%s' is too short", key);
    p++;
  }
  p += strspn(p, " ");
  return strncmp(p, "null", 4) ? strtod(p, NULL) : (double)NAN;
}

static inline bool is_near(double got, long double want, long double scale) {
  return fabsl((long double)got - want) <= 1e-12L * scale;
}

/* The file's numbers of a variable against those of the model. */
static inline void check_cells(
    const struct view *v, const char *set, const struct cell *cell, uint64_t n) {
  for (uint64_t k = 0; k < n; k++) {
    const struct cell *c = &cell[k];
    double count = file_number(set, "count", k), missing = file_number(set, "missing", k),
           mean = file_number(set, "mean", k), deviation = file_number(set, "std", k);

    if (c->vague) continue;
    if (count != (double)c->n || missing != (double)c->missing)
      differ("statistics of '%s', index %d: %g elements and %g missing, not %d and %d", v->v.label,
          (int)k, count, missing, (int)c->n, (int)c->missing);
    if (!c->n && (!isnan(mean) || !isnan(deviation)))
      differ("statistics of '%s', index %d: a mean of nothing", v->v.label, (int)k);
    if (!c->n) continue;
    if (file_number(set, "min", k) != c->least || file_number(set, "max", k) != c->most)
      differ("statistics of '%s', index %d: other ends", v->v.label, (int)k);
    if (!is_near(mean, c->mean, fabsl(c->mean) + c->deviation))
      differ("statistics of '%s', index %d: mean %.17g, not %.17g", v->v.label, (int)k, mean,
          (double)c->mean);
    if (!is_near(deviation, c->deviation, c->deviation + 1e-6L * fabsl(c->mean)) ||
        (c->deviation == 0) != (deviation == 0))
      differ("statistics of '%s', index %d: deviation %.17g, not %.17g", v->v.label, (int)k,
          deviation, (double)c->deviation);
  }
}

/* ---- operations that take their numbers from the file ---- */
/* Puts an INSITU_OP_NORM without numbers among a variable's operations. */
static inline bool give_norm(struct setup *s, int i, const char *dim) {
  struct view *v = &s->view[i], before = *v;
  uint64_t n = v->v.n_ops, at = draw(n + 1);
  int axis = scan_axis(v->array, dim);
  insitu_op *list = own((n + 1) * sizeof *list);

  if (v->array->type->kind == KIND_COMPLEX) return false;
  for (uint64_t k = 0; k < n; k++)
    if (v->v.ops[k].n && axis >= 0 && axis != v->op_axis) return false;
  for (uint64_t k = 0; k < n; k++) list[k < at ? k : k + 1] = v->v.ops[k];
  list[at] = (insitu_op){.kind = INSITU_OP_NORM};
  v->v.ops = list;
  v->v.n_ops = n + 1;
  if (!v->v.into && view_refusal(v)) v->v.dtype = s->variable[i].dtype = INSITU_F32;
  if (view_refusal(v) || (v->v.into && value_dtype(v) != value_dtype(&before))) {
    *v = before;
    return false;
  }
  s->variable[i].ops = list;
  s->variable[i].n_ops = n + 1;
  return true;
}

/* Whether a number of the file can be a variable's; *fits: the model can say what it makes. */
static inline bool norm_holds(const struct view *v, double mean, double deviation, bool *fits) {
  bool single = view_single(v);
  double b = op_round(single, deviation);

  if (!isfinite(op_round(single, mean)) || !isfinite(b) || b == 0) *fits = false;
  return isfinite(mean) && isfinite(deviation) && deviation > 0;
}

/* Has the model know the numbers of such operations, and the loader the file. False: the model
 * cannot say what comes of it. */
static inline bool take_norms(struct setup *s, const char *path, const char *dim) {
  const char *text = read_text(path);
  bool fits = true;

  s->desc.stats = path;
  for (int i = 0; i < s->n_variables; i++) {
    struct view *v = &s->view[i];
    int axis = scan_axis(v->array, dim);
    uint64_t n = axis < 0 ? 1 : v->shown[axis].n;
    insitu_op *list = own((v->v.n_ops + 1) * sizeof *list);
    const char *set = file_set(text, v->v.label, 0);

    memcpy(list, v->v.ops ? v->v.ops : list, v->v.n_ops * sizeof *list);
    for (uint64_t k = 0; k < v->v.n_ops; k++) {
      double *as = own(n * 8), *bs = own(n * 8);

      if (!is_open_norm(&list[k])) continue;
      if (!set) return false; /* it has those of a variable that shows the same */
      for (uint64_t c = 0; c < n; c++) {
        as[c] = file_number(set, "mean", c);
        bs[c] = file_number(set, "std", c);
        if (norm_holds(v, as[c], bs[c], &fits)) continue;
        refuse(s, INSITU_E_ARG, "statistics without a deviation");
      }
      list[k].a = as[0];
      list[k].b = bs[0];
      if (axis < 0) continue;
      list[k].as = as;
      list[k].bs = bs;
      list[k].n = n;
      v->op_axis = axis;
    }
    v->v.ops = list; /* the desc's have no numbers */
  }
  place_masks(s);
  return fits || s->refused;
}

/* ---- scanning ---- */
/* What the scan must end with. */
static inline insitu_status scan_expected(const struct setup *scan, int part, bool *either) {
  struct walk w = {.s = scan};
  const struct part *p = &scan->split.part[part];

  if (!p->n) return INSITU_E_SPLIT;
  memcpy(w.view, scan->view, sizeof w.view);
  for (uint64_t i = 0; i < p->n; i++) row_raises(&w, p->anchor[i]);
  *either = w.bad_absent && w.bad_corrupt;
  return w.bad_absent ? INSITU_E_ABSENT : w.bad_corrupt ? INSITU_E_CORRUPT : INSITU_OK;
}

/* Scans with other resources than those of the desc. */
static inline insitu_status scan_with(
    const insitu_loader_desc *d, insitu_scan_desc scan, insitu_error *err) {
  insitu_loader_desc with = *d;

  with.decode_threads = draw(5);
  with.inline_io = chance(30);
  with.prefetch_depth = draw(5);
  with.max_inflight = draw(6);
  with.assembly = INSITU_AUTO;
  with.cache_memory = 0;
  with.check = 0;
  scan.loader = &with;
  return insitu_scan(&scan, err);
}

/* The same from parts, in any order. */
static inline void scan_parts(
    const struct setup *s, const insitu_loader_desc *d, insitu_scan_desc scan, const char *want) {
  const char *part[MAX_PARTS], *path = own_text("%s/merged.json", s->folder);
  uint64_t world = 2 + draw(MAX_PARTS - 1), first = draw(world);
  insitu_loader_desc of = *d;
  insitu_error err = {0};

  of.world = (int32_t)world;
  for (uint64_t r = 0; r < world; r++) {
    of.rank = (int32_t)((r + first) % world);
    scan.path = part[r] = own_text("%s/part%d", s->folder, of.rank);
    insitu_status status = scan_with(&of, scan, &err);
    if (status == INSITU_E_BUDGET && d->memory_budget <= UINT64_C(1) << 28) return;
    if (status) differ("scanning part %d: %s", (int)of.rank, err.message);
  }
  if (insitu_scan_merge(part, world, path, &err)) differ("merging: %s", err.message);
  if (strcmp(read_text(path), want))
    differ("%d parts give\n%s\nnot\n%s", (int)world, read_text(path), want);
}

/* The samples with missing elements: runs of them with one share. */
static inline void check_missing(const struct setup *scan, int part, const char *text) {
  const struct part *p = &scan->split.part[part];
  const char *at = strstr(text, "\"missing\": [\n"), *end;
  uint64_t *missing = own(scan->samples * 8), *all = own(scan->samples * 8);

  for (int i = 0; i < scan->n_variables; i++) {
    const struct view *v = &scan->view[i];

    if (!file_set(text, v->v.label, 0)) continue;
    for (uint64_t a = 0; a < p->n; a++)
      for (uint64_t k = 0; k < view_elements(v); k++) {
        struct span x = scanned_at(scan, v, p->anchor[a], k);
        if (x.near) return;
        all[p->anchor[a]]++;
        missing[p->anchor[a]] += !isfinite(x.lo);
      }
  }
  end = at ? strstr(at, "}]") : NULL;
  while (at && end && (at = strstr(at, "{\"start\": ")) && at < end) {
    long long start, stop;
    double share;

    if (sscanf(at, "{\"start\": %lld, \"stop\": %lld, \"share\": %lf}", &start, &stop, &share) != 3)
      differ("the list of missing elements is odd: %.200s", at);
    for (long long x = start; x < stop; x++) {
      if (x < 0 || x >= (long long)scan->samples || !missing[x])
        differ("sample %lld misses nothing, but the file says so", x);
      if ((double)missing[x] / (double)all[x] != share)
        differ(
            "sample %lld misses %.17g, not %.17g", x, share, (double)missing[x] / (double)all[x]);
      missing[x] = 0;
    }
    at++;
  }
  for (uint64_t x = 0; x < scan->samples; x++)
    if (missing[x]) differ("the file does not tell that sample %d misses something", (int)x);
}

/* The statistics of a case and a part. False: there are none. */
static inline bool scan_case(const struct setup *s, const insitu_loader_desc *d, int part,
    const char *dim, const char *path) {
  struct setup *scan = scan_setup(s);
  insitu_scan_desc desc = {.api = INSITU_API, .split = part, .dim = dim, .path = path};
  insitu_error err = {0};
  bool either = false, has = !dim;
  uint64_t lags[MAX_LAGS];

  if (s->space->n == 1 && chance(50)) {
    desc.lags = lags;
    desc.n_lags = 1 + draw(MAX_LAGS);
    lags[0] = 1 + draw(3);
    lags[1] = lags[0] + 1 + draw(chance(50) ? 4 : s->samples);
  }

  insitu_status want = scan_expected(scan, part, &either), status = scan_with(d, desc, &err);
  for (int i = 0; i < s->n_variables; i++) has = has || scan_axis(s->view[i].array, dim) >= 0;
  if (!has && want != INSITU_E_SPLIT) want = INSITU_E_ARG;
  if (status == INSITU_E_BUDGET && d->memory_budget <= UINT64_C(1) << 28) return false;
  if (status != want && !(either && status == INSITU_E_CORRUPT))
    differ("scanning %s: %s, not %s: %s", part_names[part], insitu_status_name(status),
        insitu_status_name(want), err.message);
  if (status) return false;
  const char *text = read_text(path);
  for (int i = 0; i < s->n_variables; i++) {
    const struct view *v = &scan->view[i];

    for (uint64_t k = 0; k <= desc.n_lags; k++) {
      uint64_t n, lag = k ? lags[k - 1] : 0;
      const char *set = file_set(text, v->v.label, lag);

      if (!set && !i) differ("the file has no statistics of the first variable");
      if (!set) continue;
      struct cell *cell = scan_cells(scan, v, part, dim, lag, &n);
      check_cells(v, set, cell, n);
    }
  }
  if (s->space->n == 1) check_missing(scan, part, text);
  if (chance(40)) scan_parts(s, d, desc, text);
  return true;
}
#endif
