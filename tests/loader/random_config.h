/* The rest of a random case: its split, order and resources, what must be refused, and the case in
 * words. After random_case.h. */
#ifndef TESTS_RANDOM_CONFIG_H
#define TESTS_RANDOM_CONFIG_H

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
    own_range(s, p, (int64_t)least(before * reference(s), s->samples),
        (int64_t)least(end * reference(s), s->samples));
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
      s->split.n_ref, reference(s), s->samples, chance(50) ? "null" : "7");
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
        s, p, (int64_t)(c * reference(s)), (int64_t)least((c + 1) * reference(s), s->samples));
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

/* The range of the axis that the split is along. */
static inline void draw_base(struct setup *s) {
  int64_t n = (int64_t)s->samples;
  insitu_axis *axis = s->space->listed ? &s->axes[s->space->along] : NULL;

  s->split.lo = 0;
  s->split.hi = n;
  if (!chance(25)) return;
  if (s->archive.time && chance(50)) {
    int64_t a = draw_from(0, n - 1), b = draw_from(0, n - 1), lo, hi;
    bool swap = s->falls ? a < b : a > b;
    struct date *from = chance(30) ? NULL : draw_date(s, swap ? b : a),
                *to = chance(30) ? NULL : draw_date(s, swap ? a : b);

    if ((!from && !to) || !dated_range(s, from, to, &lo, &hi)) return;
    *(axis ? &axis->from : &s->desc.sample_from) = from ? from->text : NULL;
    *(axis ? &axis->to : &s->desc.sample_to) = to ? to->text : NULL;
    s->split.lo = lo;
    s->split.hi = hi;
    return;
  }
  s->split.lo = draw_from(0, n - 1);
  s->split.hi = draw_from(s->split.lo + 1, n);
  *(axis ? &axis->start : &s->desc.sample_start) = s->split.lo;
  *(axis ? &axis->stop : &s->desc.sample_stop) = s->split.hi == n && chance(50) ? 0 : s->split.hi;
}

/* The library's reference chunk, where the samples of an array lie in several ways among the
 * anchors: the manifest has it. */
static inline uint64_t ask_reference(const struct setup *s) {
  insitu_loader_desc d = s->desc;
  insitu_variable *v = own(sizeof s->variable);
  insitu_loader *ld = NULL;
  insitu_error err = {0};
  const char *path = own_text("%s/reference.json", s->folder);
  char *text = own(4096);

  for (int i = 0; i < s->n_variables; i++) {
    v[i].label = own_text("v%d", i);
    v[i].path = s->view[i].array->path;
    v[i].map = s->variable[i].map;
    v[i].rate = s->variable[i].rate;
  }
  d.api = INSITU_API;
  d.variables = v;
  d.plan_only = 1;
  d.log_level = INSITU_LOG_OFF;
  insitu_status status = insitu_loader_open(&d, &ld, &err);
  if (!status) status = insitu_manifest_save(ld, path, &err);
  insitu_loader_close(&ld);
  if (status) differ("asking for the reference chunk: %s", err.message);
  FILE *f = fopen(path, "r");
  if (!f || !fread(text, 1, 4095, f) || fclose(f)) abort();
  const char *size = strstr(text, "\"sample_chunk_size\":");
  if (!size) differ("the manifest has no sample_chunk_size");
  return strtoull(size + 20, NULL, 10);
}

/* By chance or because of the configuration, what decides the split. */
static inline void draw_split(struct setup *s) {
  struct split *sp = &s->split;
  bool asks = false;

  sp->samples = (int64_t)s->samples;
  sp->owner = own(s->samples);
  sp->kept = own(s->samples);
  sp->excluded = own(s->samples);
  memset(sp->owner, NOBODY, s->samples);
  for (int i = 0; i < s->n_views; i++) {
    const struct array *a = s->view[i].array;

    for (int d = 0; d < a->ndim; d++) {
      uint64_t size = a->level[array_leaf(a)].size[d];

      if (d == a->axis && a->partners && a->partners->den) size = partners_last(a->partners, size);
      asks = asks || (a->partners && !a->partners->den);
      if (a->drawn[d]) sp->ref[a->drawn[d] - 1] = most(sp->ref[a->drawn[d] - 1], size);
    }
  }
  if (asks) sp->ref[s->space->along] = ask_reference(s);
  sp->n_ref = ceil_div(s->samples, reference(s));
  draw_base(s);
  s->space->axis[s->space->along].lo = sp->lo;
  s->space->axis[s->space->along].hi = sp->hi;
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

/* A list of the samples that take part. */
static inline void draw_samples(struct setup *s) {
  uint64_t columns;

  if (!s->space->listed || !chance(25)) return;
  s->desc.samples = draw_list(s->space, &columns);
  s->desc.n_samples = s->space->n_sampled;
  if (s->desc.n_samples) return;
  s->desc.samples = NULL; /* no list: all take part */
  s->space->sampled = NULL;
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
  if (space_patched(s->space) && !s->desc.lanes && chance(70)) s->desc.lanes = world;
  if (s->desc.lanes && s->desc.batch_size * world % s->desc.lanes && chance(90))
    s->desc.batch_size = s->desc.lanes / world;
  s->global = (s->desc.batch_size ? s->desc.batch_size : 32) * world;
  s->desc.seed = chance(20) ? draw_u64() : draw(100);
  s->desc.block_chunks = chance(30) ? 0 : 1 + draw(16);
  s->desc.unit_chunks = chance(60) ? 0 : 1 + draw(4);
  s->block_chunks = s->desc.block_chunks ? s->desc.block_chunks : 64;
  s->unit_chunks = s->desc.unit_chunks ? s->desc.unit_chunks : 1;
}

/* Room for all chunks of a case, decoded. */
#define CACHE_ROOM (UINT64_C(64) << 20)

/* A cache of decoded chunks, where some are kept: else open refuses it. */
static inline void draw_cache(struct setup *s) {
  uint64_t room = chance(50) ? CACHE_ROOM : UINT64_C(4096) << draw(8);

  for (int i = 0; i < s->n_variables; i++)
    if (chunks_are_kept(s->view[i].array)) s->desc.cache_memory = room;
}

static inline void draw_resources(struct setup *s) {
  insitu_loader_desc *d = &s->desc;
  const char *forced = getenv("INSITU_IO");

  d->api = INSITU_API;
  d->prefetch_depth = chance(40) ? 0 : 1 + draw(5);
  d->assembly = (int32_t)draw(3);
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
  if (chance(s->place < PLACE_HTTP ? 15 : 40)) {
    d->cache_dir = own_text("%s/cache", s->folder);
    d->cache_decoded = chance(50);
    mkdir(d->cache_dir, 0777);
  }
  if (chance(35)) draw_cache(s);
  if (s->place < PLACE_HTTP) return;
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
  int d = a->ndim > array_fields(a) && array_fields(a) ? (int)draw((uint64_t)a->ndim) : -1;
  while (d >= 0 && a->drawn[d]) d = (d + 1) % a->ndim;
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
    if (v->into) return; /* its dtype may be that of others */
    int other = (int)draw((uint64_t)s->n_variables);
    if (s->variable[other].into) return; /* its label names no output */
    v->into = s->variable[other].label;
    if (v->into == v->label) v->into = "";
    refuse(s, INSITU_E_ARG, "into is empty, or the label of another variable");
    break;
  default:
    if (s->n_variables < 2 || s->view[0].array->type != s->view[1].array->type) return;
    for (int i = 0; i < 2; i++) {
      s->variable[i].dtype = s->variable[i].decode = 0;
      s->variable[i].n_ops = 0;
      s->variable[i].mask = NULL;
      s->variable[i].into = "y";
      s->variable[i].steps = s->view[i].step;
      s->variable[i].n_steps = 1 + (uint64_t)i;
    }
    refuse(s, INSITU_E_SHAPE, "channels of unequal shapes");
  }
}

/* An operation that insitu_loader_open must refuse. */
static inline void refuse_ops(struct setup *s, insitu_variable *v, const struct array *a) {
  static const double one[] = {1, 1};
  insitu_op *op = own(sizeof *op);

  if (v->into || a->type->kind == KIND_COMPLEX) return;
  v->dtype = INSITU_F32;
  v->ops = op;
  v->n_ops = 1;
  v->mask = NULL;
  switch (draw(8)) {
  case 0:
    op->kind = INSITU_OP_SCALE;
    refuse(s, INSITU_E_ARG, "a scale of 0");
    break;
  case 1:
    *op = (insitu_op){.kind = INSITU_OP_NORM, .a = 1};
    refuse(s, INSITU_E_ARG, "a standard deviation of 0");
    break;
  case 2:
    *op = (insitu_op){.kind = INSITU_OP_CLIP, .a = 1, .b = 0.5};
    refuse(s, INSITU_E_ARG, "a range that ends before it begins");
    break;
  case 3:
    op->kind = chance(50) ? 0 : INSITU_OP_MISSING + 1;
    refuse(s, INSITU_E_ARG, "no kind of operation");
    break;
  case 4:
    op->kind = INSITU_OP_MISSING;
    refuse(s, INSITU_E_ARG, "a mask that no variable names");
    break;
  case 5:
    *op = (insitu_op){.kind = INSITU_OP_SHIFT, .dim = "no_such_axis", .as = one, .n = 2};
    refuse(s, INSITU_E_NOTFOUND, "numbers of no axis");
    break;
  case 6:
    *op = (insitu_op){.kind = INSITU_OP_SHIFT, .a = 1};
    v->dtype = chance(50) ? INSITU_I32 : INSITU_BOOL;
    refuse(s, INSITU_E_DTYPE, "operations that make no float");
    break;
  default:
    op->kind = INSITU_OP_FILL;
    v->mask = chance(50) ? "" : v->label;
    if (!v->mask) return;
    refuse(s, INSITU_E_ARG, "a mask that is empty, or another output");
  }
}

/* A list of samples that insitu_loader_open must refuse. */
static inline void refuse_list(struct setup *s) {
  const struct space *space = s->space;
  uint64_t columns = 0, n = s->desc.n_samples;

  for (int k = 0; k < space->n; k++) columns += !(space->patches && space->axis[k].patch);
  int64_t *rows = own((n + 1) * columns * 8), column = (int64_t)draw(columns), at = 0;
  memcpy(rows, s->desc.samples, n * columns * 8);
  s->desc.samples = rows;
  for (int k = 0; k < space->n; k++) {
    if (space->patches && space->axis[k].patch) continue;
    if (at++ == column) rows[column] = chance(50) ? -1 : (int64_t)space->axis[k].n;
  }
  refuse(s, INSITU_E_ARG, "a listed sample that the archive has not");
}

/* Something that insitu_loader_open must refuse. */
static inline void draw_refusal(struct setup *s) {
  insitu_loader_desc *d = &s->desc;
  insitu_variable *v = &s->variable[draw((uint64_t)s->n_variables)];
  const struct array *a = NULL;
  insitu_slice *slice = own(2 * sizeof *slice);

  for (int i = 0; i < s->n_variables; i++)
    if (v == &s->variable[i]) a = s->view[i].array;
  if (chance(40)) {
    refuse_selection(s, v, a);
    return;
  }
  if (chance(20)) {
    refuse_ops(s, v, a);
    return;
  }
  if (d->n_samples && chance(20)) {
    refuse_list(s);
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
    if (s->space->listed) {
      int k = (int)draw((uint64_t)s->space->n);

      s->axes[k].dim = "no_such_axis";
      s->axes[k].axis = 0;
      refuse(s, INSITU_E_NOTFOUND, "no such axis of the draw space");
      break;
    }
    d->sample_dim = "no_such_axis";
    refuse(s, INSITU_E_NOTFOUND, "no such sample axis");
    break;
  case 4:
    if (s->space->listed) {
      d->sample_stop = 1;
      refuse(s, INSITU_E_ARG, "a range of the sample axis beside a list of axes");
      break;
    }
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
    if (!array_fields(a)) return;
    while (a->drawn[slice->axis]) slice->axis++;
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
    if (s->space->listed) {
      int k = (int)draw((uint64_t)s->space->n);

      s->axes[k].from = s->axes[k].to = NULL;
      s->axes[k].start = 0;
      s->axes[k].stop = (int64_t)s->space->axis[k].n + 1;
      refuse(s, INSITU_E_SPLIT, "an axis beyond the archive");
      break;
    }
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
    if (s->n_variables < 2) return;
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

static inline void draw_receipts(insitu_loader_desc *d) {
  d->receipts = chance(60) ? 0 : chance(50) ? INSITU_RECEIPT_ANCHORS : INSITU_RECEIPT_BYTES;
}

/* ---- places ---- */
static inline void draw_place(int gpus, int32_t *place, int32_t *device) {
  *place = (int32_t)draw(4);
  *device = *place && gpus ? (int32_t)draw((uint64_t)gpus) : 0;
  if (*place && *place != INSITU_DEVICE && chance(10)) *device = (int32_t)draw(8);
  if (!gpus && *place == INSITU_DEVICE) *place = INSITU_DEVICE_OR_HOST;
}

/* Where the arrays of batches are to lie, where there are devices. */
static inline void draw_places(struct setup *s) {
  int32_t place[MAX_VIEWS], device[MAX_VIEWS];
  int gpus = gpus_there();

  if (gpus < 0 || s->refused) return;
  bool all = chance(60); /* variables of one output say it all */
  for (int i = 0; i < s->n_unmasked; i++) draw_place(gpus, &place[i], &device[i]);
  for (int i = 0; i < s->n_variables; i++) {
    struct view *v = &s->view[i];
    bool first = true;

    for (int k = 0; k < i; k++) first = first && s->view[k].output != v->output;
    v->v.place = place[v->output];
    v->v.device = device[v->output];
    if (!first && !all) continue; /* another variable says it */
    s->variable[i].place = v->v.place;
    s->variable[i].device = v->v.device;
  }
  place_masks(s);
  if (s->fixed.array) draw_place(gpus, &s->fixed.v.place, &s->fixed.v.device);
  if (s->fixed_mask.array) s->fixed_mask = mask_view(&s->fixed);
  for (int i = 0; s->calls && i < CALL_OUTPUTS; i++)
    draw_place(gpus, &s->calls->output[i].place, &s->calls->output[i].device);
  if (!chance(3)) return;
  s->variable[0].place = INSITU_DEVICE;
  s->variable[0].device = gpus + (int32_t)draw(3);
  for (int i = 1; i < s->n_variables; i++)
    if (s->view[i].output == s->view[0].output) s->variable[i].place = s->variable[i].device = 0;
  refuse(s, INSITU_E_DEVICE, "a device that is not there");
}

static inline void draw_case(struct setup *s, uint64_t number) {
  unsigned where;

  s->number = number;
  draw_state = number * UINT64_C(0xD1342543DE82EF95) + 1;
  draw_archive(s);
  if (s->space->listed) {
    s->desc.axes = s->axes;
    s->desc.n_axes = (uint64_t)s->space->n;
    s->desc.split_axis = s->space->along;
    s->desc.patches = s->space->patches;
  }
  where = (unsigned)draw(100);
  s->place = where < 35   ? PLACE_FOLDER
             : where < 55 ? PLACE_MEMORY
             : where < 68 ? PLACE_ZIP
             : where < 78 ? PLACE_REFS
             : where < 88 ? PLACE_HTTP
             : where < 94 ? PLACE_HTTP_ZIP
                          : PLACE_HTTP_REFS;
  place_archive(s);
  draw_views(s);
  draw_order(s);
  draw_split(s);
  draw_samples(s);
  draw_resources(s);
  draw_call(s);
  draw_receipts(&s->desc);
  cut_split(s);
  if (!s->refused && chance(5)) draw_refusal(s);
  draw_fixed(s);
  draw_places(s);
}

/* ---- in words ---- */
static inline void tell_array(FILE *f, const struct array *a) {
  struct text *t = own(sizeof *t);

  if (a->format == 3) say_v3(t, a);
  else say_v2(t, a);
  fprintf(f, "  array '%s': sample axis %d, %u %% of its chunks absent, %u %% damaged, %s\n",
      a->path, a->axis, a->absent, a->bad, t->at);
  t->n = 0;
  say_attributes(t, a);
  fprintf(f, "    attributes %s\n", t->at);
  if (!a->partners) return;
  fprintf(f,
      "    %d of %d anchors have partners among its %d samples:", (int)partners_shared(a->partners),
      (int)a->partners->anchors, (int)a->partners->indexes);
  for (int64_t x = 0; x < a->partners->anchors; x++)
    if (a->partners->of[x] >= 0) fprintf(f, " %d-%d", (int)x, (int)a->partners->of[x]);
  fprintf(f, "\n");
}

static inline void tell_case(FILE *f, const struct setup *s) {
  static const char *const places[] = {"folder", "memory", "zip file", "references", "HTTP",
      "zip file over HTTP", "references over HTTP"};
  static const char *const kinds[] = {
      "by default", "by fractions", "by ranges", "by dates", "by manifest"};
  static const char *const parts[] = {"train", "val", "test", "all"};
  const insitu_loader_desc *d = &s->desc;

  fprintf(f, "  Zarr v%d in a %s (%s), %d objects, %sconsolidated; %d samples\n", s->archive.format,
      places[s->place], d->url, (int)s->archive.n_objects, s->archive.consolidated ? "" : "not ",
      (int)s->samples);
  for (int i = 0; i < archive_arrays(&s->archive); i++) tell_array(f, &s->archive.array[i]);
  for (int i = 0; i < s->n_variables; i++) {
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
    if (v->map) fprintf(f, ", map %d", v->map);
    if (v->rate) fprintf(f, ", rate %d", (int)v->rate);
    if (v->halo) fprintf(f, ", halo %d", (int)v->halo);
    tell_ops(f, v);
    fprintf(f, "\n");
  }
  for (int k = 0; s->space->listed && k < s->space->n; k++) {
    const insitu_axis *a = &d->axes[k];

    fprintf(f, "  axis '%s' %d of %d: [%d, %d) from %s to %s, stride %d, patch %d%s\n",
        a->dim ? a->dim : "", a->axis, (int)s->space->axis[k].n, (int)a->start, (int)a->stop,
        a->from ? a->from : "-", a->to ? a->to : "-", (int)a->stride, (int)a->patch,
        k == d->split_axis ? ", that of the split" : "");
  }
  if (d->n_samples) fprintf(f, "  %d samples are listed\n", (int)d->n_samples);
  if (space_patched(s->space))
    fprintf(f, "  patches %d: %d of each sample\n", (int)d->patches, (int)space_each(s->space));
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
  fprintf(f, "\n  reference chunks of %d; anchors", (int)reference(s));
  for (int p = 0; p < 4; p++) {
    fprintf(
        f, " %s %d in %d units", parts[p], (int)s->split.part[p].n, (int)s->split.part[p].units);
    for (int r = 0; r < INSITU_DROPS; r++)
      if (s->split.part[p].dropped[r])
        fprintf(f, ", %s drops %d", insitu_drop_name(r), (int)s->split.part[p].dropped[r]);
    if (p < 3) fprintf(f, ";");
  }
  fprintf(f,
      "\n  assembly %d, prefetch_depth %d, max_inflight %d, decode_threads %d, memory_budget "
      "%" PRIu64
      ", io %d, inline_io %d, hold_epoch %d, check %d, on_absent_chunk %d, on_bad_chunk %d, "
      "cache_dir %s, cache_decoded %d, cache_memory %" PRIu64 ", option %s, receipts %d\n",
      d->assembly, (int)d->prefetch_depth, (int)d->max_inflight, (int)d->decode_threads,
      d->memory_budget, d->io, d->inline_io, d->hold_epoch, d->check, d->on_absent_chunk,
      d->on_bad_chunk, d->cache_dir ? d->cache_dir : "none", d->cache_decoded, d->cache_memory,
      d->n_options ? s->option[0].key : "none", d->receipts);
  if (s->calls)
    fprintf(f, "  on_batch, on_batch_threads %d%s\n", (int)d->on_batch_threads,
        s->calls->flips ? ", in place" : "");
  if (s->refused) fprintf(f, "  to be refused: %s\n", s->why);
}
#endif
