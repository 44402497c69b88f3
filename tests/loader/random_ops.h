/* Operations on elements and masks, as the manual has them under OPERATIONS: what they are drawn
 * as, and what they make of an element. After random_model.h. */
#ifndef TESTS_RANDOM_OPS_H
#define TESTS_RANDOM_OPS_H

/* What a number may be. lo and hi are the same but behind LOG1P and ASINH, whose results are right
 * to some units in the last place; all operations behind these keep the order of numbers. */
struct span {
  double lo, hi;
  bool near; /* it came through LOG1P or ASINH */
};

/* ---- arithmetic: each operation is rounded once, none is fused ---- */
static inline bool view_single(const struct view *v) {
  int32_t dtype = value_dtype(v);

  return dtype != INSITU_F64;
}

static inline double op_round(bool single, double x) {
  volatile float f = (float)x;

  return single ? (double)f : x;
}

static inline double op_sum(bool single, double x, double y) {
  volatile double d = x;
  volatile float f = (float)x;

  d = d + y;
  f = f + (float)y;
  return single ? (double)f : d;
}

static inline double op_product(bool single, double x, double y) {
  volatile double d = x;
  volatile float f = (float)x;

  d = d * y;
  f = f * (float)y;
  return single ? (double)f : d;
}

static inline double op_quotient(bool single, double x, double y) {
  volatile double d = x;
  volatile float f = (float)x;

  d = d / y;
  f = f / (float)y;
  return single ? (double)f : d;
}

/* The least number of the type that is not below y; with sign -1 the largest that is not above. */
static inline double op_bound(bool single, long double y, int sign) {
  double d = (double)y;
  float f = (float)y;

  if ((d - y) * sign < 0) d = nextafter(d, sign * (double)INFINITY);
  if (((long double)f - y) * sign < 0) f = nextafterf(f, (float)sign * INFINITY);
  return single ? (double)f : d;
}

/* log1p is right to 1.1 units in the last place, asinh to 1.6. */
static inline struct span op_function(bool single, int32_t kind, double x) {
  long double y = kind == INSITU_OP_LOG1P ? log1pl((long double)x) : asinhl((long double)x);
  long double units = kind == INSITU_OP_LOG1P ? 1.1L : 1.6L;
  int exponent, least = single ? -125 : -1021;

  if (isnan(y)) return (struct span){(double)NAN, (double)NAN, true};
  if (isinf(y) || y == 0) return (struct span){(double)y, (double)y, true};
  frexpl(y, &exponent);
  if (exponent < least) exponent = least;
  units *= ldexpl(1, exponent - (single ? 24 : 53));
  return (struct span){op_bound(single, y - units, 1), op_bound(single, y + units, -1), true};
}

/* ---- an element ---- */
/* Whether the attributes call some number of the array missing. */
static inline bool names_missing(const struct array *a) {
  if (a->type->kind == KIND_BOOL) return false;
  if (a->has_missing || a->has_fill_value) return true;
  return a->format == 2 && strcmp(a->fill_text, "null") != 0;
}

/* What the operations begin with. asks: FILL or a mask look for what the attributes call missing.
 */
static inline double op_begin(const struct view *v, const unsigned char *stored, bool asks) {
  const struct array *a = v->array;
  bool decodes = v->v.decode == INSITU_CF, single = view_single(v);
  struct number n = number_of(a->type, a->is_unsigned && decodes, stored);
  volatile double x = n.x;

  asks = asks && names_missing(a);
  if ((decodes || asks) && is_missing(a, n)) return (double)NAN;
  if (decodes) {
    if (a->has_scale) x = x * a->scale;
    if (a->has_offset) x = x + a->offset;
    return op_round(single, x);
  }
  if (single && !asks && a->type->kind == KIND_INT) return (double)(float)n.i;
  if (single && !asks && a->type->kind == KIND_UINT) return (double)(float)n.u;
  if (a->type->kind == KIND_BOOL) return n.u != 0;
  return op_round(single, x);
}

static inline struct span op_apply(
    const insitu_op *op, bool single, uint64_t place, struct span x) {
  double a = op_round(single, op->as ? op->as[place] : op->a),
         b = op_round(single, op->bs ? op->bs[place] : op->b), last;

  if (isnan(x.lo)) return op->kind == INSITU_OP_FILL ? (struct span){a, a, false} : x;
  switch (op->kind) {
  case INSITU_OP_NORM:
    x.lo = op_quotient(single, op_sum(single, x.lo, -a), b);
    x.hi = op_quotient(single, op_sum(single, x.hi, -a), b);
    return x;
  case INSITU_OP_SCALE:
    last = op_product(single, a < 0 ? x.lo : x.hi, a);
    x.lo = op_product(single, a < 0 ? x.hi : x.lo, a);
    x.hi = last;
    return x;
  case INSITU_OP_SHIFT:
    x.lo = op_sum(single, x.lo, a);
    x.hi = op_sum(single, x.hi, a);
    return x;
  case INSITU_OP_CLIP:
    x.lo = x.lo < a ? a : x.lo > b ? b : x.lo;
    x.hi = x.hi < a ? a : x.hi > b ? b : x.hi;
    return x;
  case INSITU_OP_LOG1P:
  case INSITU_OP_ASINH:
    if (a == 0) a = 1;
    x.hi = op_function(single, op->kind, op_quotient(single, x.hi, a)).hi;
    x.lo = op_function(single, op->kind, op_quotient(single, x.lo, a)).lo;
    x.near = true;
    return x;
  case INSITU_OP_REPLACE: return x.lo == a ? (struct span){b, b, false} : x;
  default: return x;
  }
}

static inline bool view_asks_missing(const struct view *v) {
  for (uint64_t k = 0; k < v->v.n_ops; k++)
    if (v->v.ops[k].kind == INSITU_OP_FILL) return true;
  return false;
}

/* What a variable's operations make of an element that stands at `place` along their axis. */
static inline struct span view_computed(
    const struct view *v, const unsigned char *stored, uint64_t place) {
  double begin = op_begin(v, stored, view_asks_missing(v));
  struct span x = {begin, begin, false};

  for (uint64_t k = 0; k < v->v.n_ops; k++) x = op_apply(&v->v.ops[k], view_single(v), place, x);
  return x;
}

/* What a mask says of an element. */
static inline bool view_masks(const struct view *v, const unsigned char *stored, uint64_t place) {
  double x = op_begin(v, stored, true);

  if (isnan(x)) return true;
  for (uint64_t k = 0; k < v->v.n_ops && v->v.ops[k].kind == INSITU_OP_REPLACE; k++) {
    const insitu_op *op = &v->v.ops[k];

    if (x == op_round(view_single(v), op->as ? op->as[place] : op->a)) return true;
  }
  return false;
}

/* The place along the axis of the operations' numbers of the k-th element of a channel. */
static inline uint64_t view_op_place(const struct view *v, uint64_t channel, uint64_t k) {
  if (!v->v.n_ops || v->op_axis < 0) return 0;
  for (int order = MAX_DIMS; order > 0; order--) {
    int d = view_folded(v, order);

    if (d < 0) continue;
    if (d == v->op_axis) return channel % v->shown[d].n;
    channel /= v->shown[d].n;
  }
  for (int d = v->array->ndim - 1; d >= 0; d--) {
    if (view_folds(v, d)) continue;
    if (d == v->op_axis) return k % view_length(v, d);
    k /= view_length(v, d);
  }
  return 0;
}

/* A number as bytes of the variable's output. */
static inline void show_computed(const struct view *v, double x, unsigned char *to) {
  if (isnan(x)) x = (double)NAN;
  show_number(view_dtype(v), 0, x, (float)x, to);
}

/* Whether an output shows an element that operations or a mask made of a stored one; *want: what it
 * should be, or about that. */
static inline bool shows_computed(const struct view *v, const unsigned char *stored, uint64_t place,
    const unsigned char *got, unsigned char *want) {
  static const struct type floats[] = {{.kind = KIND_FLOAT, .bytes = 2},
      {.kind = KIND_FLOAT, .bytes = 4}, {.kind = KIND_FLOAT, .bytes = 8},
      {.kind = KIND_BFLOAT, .bytes = 2}};
  int32_t dtype = view_dtype(v);
  const struct type *t = &floats[dtype == INSITU_BF16  ? 3
                                 : dtype == INSITU_F16 ? 0
                                 : dtype == INSITU_F32 ? 1
                                                       : 2];
  unsigned char last[16];

  if (v->is_mask) {
    *want = view_masks(v, stored, place);
    return *got == *want;
  }
  struct span x = view_computed(v, stored, place);
  show_computed(v, x.lo, want);
  if (!x.near || isnan(x.lo)) return !memcmp(got, want, dtype_bytes(dtype));
  show_computed(v, x.hi, last);
  double number = number_of(t, false, got).x;
  return number >= number_of(t, false, want).x && number <= number_of(t, false, last).x;
}

/* Whether operations make NaN of the array's fill value, at any index. */
static inline bool computes_nan_of_fill(const struct view *v) {
  uint64_t places = v->op_axis < 0 ? 1 : v->shown[v->op_axis].n;

  for (uint64_t i = 0; i < places; i++)
    if (isnan(view_computed(v, v->array->fill, i).lo)) return true;
  return false;
}

/* ---- drawing ---- */
static inline double draw_op_number(void) {
  static const double scales[] = {0.25, 1, 0.1, 1e-3, 300};

  return (double)draw_from(-80, 80) * scales[draw(5)];
}

/* A number that some element of the array has. */
static inline double draw_op_value(const struct view *v) {
  const struct array *a = v->array;
  double x = op_begin(v, a->data + draw(array_count(a)) * a->type->bytes, false);

  return isnan(x) ? 0 : x;
}

/* The numbers of an operation. */
static inline void draw_op_numbers(const struct view *v, int32_t kind, double *a, double *b) {
  *a = draw_op_number();
  *b = draw_op_number();
  switch (kind) {
  case INSITU_OP_NORM: *b = fabs(*b) + 0.25; return;
  case INSITU_OP_SCALE:
    if (*a == 0) *a = 3;
    return;
  case INSITU_OP_CLIP:
    *b = *a + fabs(*b);
    if (chance(10)) *a = -(double)INFINITY;
    if (chance(10)) *b = (double)INFINITY;
    return;
  case INSITU_OP_LOG1P:
  case INSITU_OP_ASINH: *a = fabs(*a) + 1e-3; return;
  case INSITU_OP_REPLACE:
    if (chance(80)) *a = draw_op_value(v);
    if (chance(40)) *b = (double)NAN;
    return;
  default: return;
  }
}

/* The operations of a variable, v.n_ops of them, after its selection. any_axis: it is read without
 * samples, so that the numbers' axis may be any. */
static inline void draw_ops(struct view *v, bool any_axis) {
  const struct array *a = v->array;
  insitu_op *list = own(v->v.n_ops * sizeof *list);
  bool near = false;

  v->v.ops = v->v.n_ops ? list : NULL;
  v->op_axis = -1;
  int axis = (int)draw((uint64_t)a->ndim);
  if ((any_axis || !a->drawn[axis]) && chance(70)) v->op_axis = axis;
  for (uint64_t k = 0; k < v->v.n_ops; k++) {
    insitu_op *op = &list[k];

    op->kind = !k && chance(20) ? INSITU_OP_REPLACE : 1 + (int32_t)draw(8);
    /* what does not keep the order of numbers that are only nearly known, or has an end that they
     * may lie on both sides of */
    if (near && op->kind == INSITU_OP_LOG1P) op->kind = INSITU_OP_ASINH;
    if (near && op->kind == INSITU_OP_REPLACE) op->kind = INSITU_OP_SHIFT;
    near = near || op->kind == INSITU_OP_LOG1P || op->kind == INSITU_OP_ASINH;
    draw_op_numbers(v, op->kind, &op->a, &op->b);
    bool divides = op->kind == INSITU_OP_LOG1P || op->kind == INSITU_OP_ASINH;
    if (divides && chance(30)) op->a = 0;
    if (v->op_axis < 0 || !chance(50)) continue;
    uint64_t n = v->shown[axis].n;
    double *as = own(n * sizeof *as), *bs = own(n * sizeof *bs);
    bool two = op->kind == INSITU_OP_NORM || op->kind == INSITU_OP_CLIP;
    for (uint64_t i = 0; i < n; i++) draw_op_numbers(v, op->kind, &as[i], &bs[i]);
    op->dim = a->dims[axis] ? a->dims[axis] : own_text("%d", axis);
    op->n = n;
    op->as = as;
    if (two || (op->kind == INSITU_OP_REPLACE && chance(70))) op->bs = bs;
  }
}

/* Whether a variable has operations, and a mask: their number and a name for now. */
static inline void draw_computing(struct view *v, const char *mask) {
  bool complex = v->array->type->kind == KIND_COMPLEX;

  v->v.ops = NULL;
  v->v.n_ops = 0;
  v->v.mask = NULL;
  if (chance(complex ? 1 : 25)) v->v.n_ops = 1 + draw(4);
  if (chance(complex ? 1 : v->v.n_ops ? 40 : 10)) v->v.mask = mask;
}

/* The view of the output that a variable's `mask` names. With `into` its channels are called after
 * the mask and the variable. */
static inline struct view mask_view(const struct view *v) {
  struct view mask = *v;

  mask.is_mask = true;
  mask.v.mask = NULL;
  mask.v.path = v->v.path ? v->v.path : v->v.label;
  mask.v.label = v->v.into ? own_text("%s %s", v->v.mask, v->v.label) : v->v.mask;
  mask.v.into = v->v.into ? v->v.mask : NULL;
  return mask;
}

/* What insitu_read must be asked for, to tell what a view that is a mask shows as missing. */
static inline insitu_variable mask_read(struct view *mask) {
  insitu_variable v = mask->v;
  uint64_t n = 0;
  insitu_op *list = own((v.n_ops + 1) * sizeof *list);

  for (; n < v.n_ops && v.ops[n].kind == INSITU_OP_REPLACE; n++) {
    list[n] = v.ops[n];
    list[n].b = (double)NAN;
    list[n].bs = NULL;
  }
  list[n] = (insitu_op){.kind = INSITU_OP_MISSING, .a = view_single(mask) ? 32 : 64};
  v.ops = list;
  v.n_ops = n + 1;
  v.dtype = chance(50) ? 0 : INSITU_U8;
  return v;
}

/* ---- in words ---- */
static inline void tell_ops(FILE *f, const insitu_variable *v) {
  static const char *const names[] = {
      "none", "norm", "scale", "shift", "clip", "log1p", "asinh", "fill", "replace", "missing"};

  for (uint64_t k = 0; k < v->n_ops; k++) {
    const insitu_op *op = &v->ops[k];

    fprintf(f, "%s %s", k ? "," : ", ops", names[op->kind]);
    if (op->dim) fprintf(f, " by '%s'", op->dim);
    for (uint64_t i = 0; i < (op->n ? op->n : 1); i++)
      fprintf(f, " %.17g %.17g", op->as ? op->as[i] : op->a, op->bs ? op->bs[i] : op->b);
  }
  if (v->mask) fprintf(f, ", mask '%s'", v->mask);
}
#endif
