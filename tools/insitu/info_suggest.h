/* insitu info: what training from an archive would take, and a configuration to begin with. */
/* ---- what training would take ---- */

struct info_axis { /* arrays that share a sample axis */
  const char *dim; /* NULL: unnamed, then it is axis 0 */
  uint64_t samples, decoded;
  struct info_array **member; /* a growing array of >>array */
  unsigned ndim;              /* of the members that a suggestion is made for */
};
struct info_suggestion {
  const struct info_axis *axis;
  insitu_variable variables[INFO_MAX_PLANNED];
  insitu_loader_desc desc; /* what was asked for; the answer is in config and plan */
  const char *shown;       /* its url, without credentials */
  insitu_loader *loader;
  const insitu_loader_desc *config;
  insitu_plan plan;
  insitu_slice slices[INSITU__MAX_DIMS]; /* of every variable */
  uint64_t n_slices;
  uint64_t n_fixed;            /* the last ones of variables, within desc.n_variables */
  uint64_t n_left_out;         /* members beyond INFO_MAX_PLANNED, or that would not fit */
  char other[3][INFO_COLUMNS]; /* what else fits, where whole samples of all variables do not */
  int n_other;
  insitu_error err; /* status < 0: there is no plan */
};

static bool info_is_one_of(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; name && i < n; i++)
    if (strcasecmp(name, names[i]) == 0) return true;
  return false;
}
/* The first that is named like time. Else z: of an image with a single time, or whose first axis is
 * that of colors. Else axis 0. */
static unsigned info_sample_axis(const struct info_array *a) {
  static const char *const times[] = {"t", "date", "step", "sample", "samples"};
  static const char *const colors[] = {"c", "channel", "channels", "band", "bands"};
  int time = -1, z = -1;
  for (unsigned i = a->ndim; i-- > 0;) {
    if (!a->dim[i]) continue;
    bool is_time = strcasestr(a->dim[i], "time") != NULL;
    if (is_time || info_is_one_of(a->dim[i], times, TOOL_COUNT(times))) time = (int)i;
    if (strcasecmp(a->dim[i], "z") == 0 && a->shape[i] > 1) z = (int)i;
  }
  bool colored = a->ndim && info_is_one_of(a->dim[0], colors, TOOL_COUNT(colors));
  if (z >= 0 && (time >= 0 ? a->shape[time] < 2 : colored)) return (unsigned)z;
  return time < 0 ? 0 : (unsigned)time;
}
static const char *info_last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}
/* The words of all "coordinates" attributes (CF conventions, 5): names of arrays that describe
 * others. A growing array. */
static char **info_coordinate_names(const struct info *f) {
  char **names = NULL, text[4096], *rest;
  for (uint64_t i = 0; i < f->n; i++) {
    const struct info_array *a = &f->arrays[i];
    int token = insitu__text_json_get(a->node.attributes_doc, a->node.attributes, "coordinates");
    if (token < 0 || insitu__text_json_string(a->node.attributes_doc, token, text, sizeof text) < 0)
      continue;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
      uint64_t k = 0, n = INSITU__ARRAY_LEN(names);
      while (k < n && strcmp(names[k], word)) k++;
      if (k == n && n < 1000 && !INSITU__ARRAY_PUSH(names, tool_copy(word))) tool_no_memory();
    }
  }
  return names;
}
/* or named as its only dimension */
static bool info_is_coordinate(const struct info_array *a, char *const *names) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(names); i++)
    if (strcmp(names[i], info_last_name(a->path)) == 0) return true;
  return a->ndim == 1 && a->dim[0] && strcmp(a->dim[0], info_last_name(a->path)) == 0;
}
static struct info_axis *info_axes(const struct info *f) {
  struct info_axis *axes = NULL;
  char **coordinates = info_coordinate_names(f);
  for (uint64_t i = 0; i < f->n; i++) {
    struct info_array *a = &f->arrays[i];
    if (a->err.status || !a->ndim || !a->decoded || info_is_coordinate(a, coordinates)) continue;
    if (a->level || a->fixed) continue;
    unsigned axis = info_sample_axis(a);
    uint64_t k = 0, n = INSITU__ARRAY_LEN(axes);
    for (; k < n; k++)
      if (axes[k].samples == a->shape[axis] &&
          (axes[k].dim && a->dim[axis] ? strcmp(axes[k].dim, a->dim[axis]) == 0
                                       : axes[k].dim == a->dim[axis]))
        break;
    if (k == n && !INSITU__ARRAY_PUSH(
                      axes, (struct info_axis){.dim = a->dim[axis], .samples = a->shape[axis]}))
      tool_no_memory();
    axes[k].decoded += a->decoded;
    if (!INSITU__ARRAY_PUSH(axes[k].member, a)) tool_no_memory();
  }
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axes); k++) {
    uint64_t bytes[INSITU__MAX_DIMS + 1] = {0};
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes[k].member); i++)
      bytes[axes[k].member[i]->ndim] += axes[k].member[i]->decoded;
    for (unsigned d = 1; d <= INSITU__MAX_DIMS; d++)
      if (bytes[d] > bytes[axes[k].ndim]) axes[k].ndim = d;
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(coordinates); i++) insitu__mem_free(coordinates[i]);
  INSITU__ARRAY_FREE(coordinates);
  return axes;
}
static void info_axes_free(struct info_axis *axes) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) INSITU__ARRAY_FREE(axes[i].member);
  INSITU__ARRAY_FREE(axes);
}
static const struct info_axis *info_largest(const struct info_axis *axes) {
  const struct info_axis *largest = NULL;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++)
    if (!largest || axes[i].decoded > largest->decoded) largest = &axes[i];
  return largest;
}
static bool info_has_dim(const struct info_array *a, const char *dim, uint64_t length) {
  for (unsigned d = 0; d < a->ndim; d++)
    if (a->dim[d] && strcmp(a->dim[d], dim) == 0 && a->shape[d] == length) return true;
  return false;
}
/* Whether each axis of an array is one of the arrays that share a sample axis, but not that one. */
static bool info_is_fixed(const struct info_array *a, const struct info_axis *axis) {
  for (unsigned d = 0; d < a->ndim; d++) {
    bool found = false;
    if (!a->dim[d] || strcmp(a->dim[d], axis->dim) == 0) return false;
    for (uint64_t i = 0; !found && i < INSITU__ARRAY_LEN(axis->member); i++)
      found = info_has_dim(axis->member[i], a->dim[d], a->shape[d]);
    if (!found) return false;
  }
  return true;
}
/* Images of OME-NGFF: which arrays are their full sizes, which are smaller, which are masks. */
static void info_mark_images(const struct info *f) {
  char version[32], path[INSITU__MAX_KEY];
  for (uint64_t i = 0; i < f->n_groups; i++) {
    const struct info_group *g = &f->groups[i];
    const struct insitu__text_json *j = &g->attributes;
    int image = insitu__text_json_first(j, info_multiscales(g, version, sizeof version));
    int datasets = image < 0 ? -1 : insitu__text_json_get(j, image, "datasets");
    bool first = true;
    for (int t = insitu__text_json_first(j, datasets); t >= 0; t = insitu__text_json_next(j, t)) {
      struct info_array *a = (struct info_array *)info_dataset(f, g, t, path, sizeof path);
      if (!a || a->image) continue;
      a->level = !first;
      a->mask = strncmp(g->path, "labels/", 7) == 0 || strstr(g->path, "/labels/");
      if (first) a->image = g->path[0] ? info_last_name(g->path) : "image";
      first = false;
    }
  }
}
/* What arrays are to each other, and the sample axes of those that have one. */
static struct info_axis *info_roles(const struct info *f) {
  info_mark_images(f);
  struct info_axis *axes = info_axes(f);
  const struct info_axis *largest = info_largest(axes);
  uint64_t n = 0;
  for (uint64_t i = 0; largest && largest->dim && i < INSITU__ARRAY_LEN(axes); i++)
    for (uint64_t k = 0; &axes[i] != largest && k < INSITU__ARRAY_LEN(axes[i].member); k++) {
      struct info_array *a = axes[i].member[k];
      a->fixed = info_is_fixed(a, largest);
      n += a->fixed;
    }
  if (!n) return axes;
  info_axes_free(axes);
  return info_axes(f);
}
static uint64_t info_chunks_per_sample(const struct info_array *a) {
  uint64_t n = 1;
  for (unsigned i = 0; i < a->ndim; i++)
    if (i != info_sample_axis(a)) n *= insitu__zarr_tiles(&a->z, i);
  return n;
}

/* One try: opens a loader for the plan and plans the train split. */
static insitu_status info_try(struct info_suggestion *s) {
  const insitu_iter_desc iter = {.api = INSITU_API};
  memset(&s->err, 0, sizeof s->err);
  insitu_loader_close(&s->loader);
  insitu_status status = insitu_loader_open(&s->desc, &s->loader, &s->err);
  if (status == INSITU_OK) status = insitu_loader_plan(s->loader, &iter, &s->plan, &s->err);
  s->config = status == INSITU_OK ? insitu_loader_config(s->loader) : NULL;
  return status;
}
static uint64_t info_plan_bytes(const insitu_plan *p) {
  return p->slabs * p->slab_bytes + p->table_bytes + p->inflight_bytes + p->cache_bytes +
         p->fixed_bytes;
}
static void info_log(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}
/* Whether a loader and an iterator of it could be opened. */
static bool info_fits(const struct info_suggestion *s) {
  return s->err.status == INSITU_OK && s->config &&
         info_plan_bytes(&s->plan) <= s->config->memory_budget;
}
/* Less mixing, smaller batches and fewer of them ahead, until the plan fits. */
static bool info_shrink(struct info_suggestion *s) {
  insitu_status status = info_try(s);
  for (int i = 0; i < 40 && !info_fits(s); i++) {
    bool over = status == INSITU_OK;
    if (!over && status != INSITU_E_BUDGET && status != INSITU_E_SPLIT) break;
    /* no ring is smaller */
    if (over && s->desc.batch_size == 1 && 3 * s->plan.slab_bytes > s->config->memory_budget) break;
    if (status != INSITU_E_SPLIT && s->desc.block_chunks != 1)
      s->desc.block_chunks =
          insitu__base_max(1, (s->desc.block_chunks ? s->desc.block_chunks : 64) / 2);
    else if (s->desc.batch_size > 1) s->desc.batch_size /= 2;
    else if (over && s->desc.prefetch_depth != 1)
      s->desc.prefetch_depth = s->desc.prefetch_depth ? 1 : 2;
    else break;
    status = info_try(s);
  }
  return info_fits(s);
}
/* Batches of at most 256 MiB, and of at most an eighth of the samples. */
static void info_batch(struct info_suggestion *s, uint64_t row, uint64_t samples) {
  uint64_t batch = 32;
  while (batch > 1 && (batch * row > UINT64_C(256) << 20 || batch * 8 > samples)) batch /= 2;
  s->desc.batch_size = batch;
  s->desc.block_chunks = s->desc.prefetch_depth = 0;
}
/* Another configuration, to be changed and tried; the loader stays the first one's. */
static void info_variant(const struct info_suggestion *from, struct info_suggestion *s) {
  *s = *from;
  s->loader = NULL;
  s->config = NULL;
  s->desc.variables = s->variables;
}
static void info_set_slices(struct info_suggestion *s) {
  for (uint64_t i = 0; i < s->desc.n_variables; i++) {
    s->variables[i].slices = s->slices;
    s->variables[i].n_slices = s->n_slices;
  }
}
static bool info_is_space(const char *dim) {
  static const char *const names[] = {"lat", "lon", "latitude", "longitude", "x", "y", "z"};
  for (size_t i = 0; dim && i < TOOL_COUNT(names); i++)
    if (strcasecmp(dim, names[i]) == 0) return true;
  return false;
}
/* The longest axis that is neither the sample axis nor sliced yet, one without a place in space
 * before those; -1: none. */
static int info_longest(const struct info_array *a, const struct info_suggestion *s) {
  int best = -1;
  for (unsigned d = 0; d < a->ndim && d < a->z.axes; d++) {
    bool taken = d == info_sample_axis(a) || a->shape[d] < 2;
    for (uint64_t i = 0; i < s->n_slices; i++) taken = taken || s->slices[i].axis == (int32_t)d;
    if (taken) continue;
    bool space = info_is_space(a->dim[d]), best_space = best >= 0 && info_is_space(a->dim[best]);
    if (best < 0 || (space == best_space ? a->shape[d] > a->shape[best] : best_space))
      best = (int)d;
  }
  return best;
}
/* A part of each sample: slices along one axis after the other until it fits, whole chunks where
 * they are few enough. */
static bool info_try_slices(
    struct info_suggestion *s, const struct info_array *a, uint64_t row, uint64_t samples) {
  for (int d; !info_fits(s) && (d = info_longest(a, s)) >= 0;) {
    uint64_t budget = s->config ? s->config->memory_budget : 0, length = a->shape[d],
             chunk = a->z.chunk[d];
    uint64_t parts =
        budget ? insitu__base_ceil_div(8 * insitu__base_min(row, UINT64_MAX / 8), budget) : length;
    uint64_t kept = insitu__base_max(1, length / insitu__base_max(2, parts));
    if (kept > chunk) kept = kept / chunk * chunk;
    s->slices[s->n_slices++] =
        (insitu_slice){.dim = a->dim[d], .axis = (int32_t)d, .stop = (int64_t)kept};
    row = insitu__base_max(1, row / length * kept);
    info_set_slices(s);
    info_batch(s, row, samples);
    if (!info_shrink(s) && s->err.status && s->err.status != INSITU_E_BUDGET) return false;
  }
  return info_fits(s);
}
/* The first variables alone, whole. */
static bool info_try_fewer(struct info_suggestion *s, uint64_t row, uint64_t samples) {
  uint64_t all = s->desc.n_variables, each = insitu__base_max(1, row / insitu__base_max(1, all));
  uint64_t n = s->config ? s->config->memory_budget / 8 / each : 1;
  s->desc.n_variables = insitu__base_max(1, insitu__base_min(n, all - (all > 1)));
  s->n_left_out += all - s->desc.n_variables;
  info_batch(s, each * s->desc.n_variables, samples);
  return all > 1 && info_shrink(s);
}
/* Another axis to draw samples along, which has more of them and so smaller ones; the first sample
 * axis stays in each. */
static bool info_try_axis(
    struct info_suggestion *s, const struct info_array *a, uint64_t row, uint64_t samples) {
  int d = info_longest(a, s);
  if (d < 0 || info_is_space(a->dim[d]) || a->shape[d] <= samples) return false;
  s->desc.sample_dim = a->dim[d];
  s->desc.sample_axis = a->dim[d] ? 0 : d;
  info_batch(s, row / a->shape[d] * samples, a->shape[d]);
  return info_shrink(s);
}
static void info_name_other(
    struct info_suggestion *s, const struct info_suggestion *v, const char *what) {
  char text[16];
  snprintf(s->other[s->n_other++], sizeof s->other[0], "%.70s: %s", what,
      tool_bytes(text, info_plan_bytes(&v->plan)));
}
/* Whole samples of all variables do not fit: slices, fewer variables, another axis, or slices of
 * one variable. The first that fits becomes the suggestion, the others are named. */
static void info_suggest_part(struct info_suggestion *s, const struct info_array *a, uint64_t row) {
  static struct info_suggestion variant, chosen;
  bool any = false;
  uint64_t samples = s->axis->samples, budget = s->config ? s->config->memory_budget : 0,
           all = s->desc.n_variables;
  for (int kind = 0; kind < 4; kind++) {
    char what[INFO_COLUMNS] = "";
    if (kind == 3 && any) break;
    info_variant(s, &variant);
    variant.config = s->config; /* for its memory_budget; info_try sets another */
    bool fits = false;
    if (kind == 0 || kind == 3) {
      if (kind == 3) {
        variant.desc.n_variables = 1;
        variant.n_left_out += all - 1;
      }
      fits = info_try_slices(&variant, a, kind == 3 ? row / all : row, samples);
    } else if (kind == 1) {
      fits = info_try_fewer(&variant, row, samples);
      snprintf(what, sizeof what, "%" PRIu64 " of the %" PRIu64 " variables, whole",
          variant.desc.n_variables, all);
    } else {
      fits = info_try_axis(&variant, a, row, samples);
      snprintf(what, sizeof what, "all variables, sample_dim %.40s",
          variant.desc.sample_dim ? variant.desc.sample_dim : "NULL");
    }
    if (fits && any) info_name_other(s, &variant, what);
    if (!fits || any) {
      insitu_loader_close(&variant.loader);
      continue;
    }
    any = true;
    chosen = variant;
  }
  insitu_loader_close(&s->loader);
  if (!any) {
    char text[16], limit[16];
    uint64_t need = info_plan_bytes(&s->plan);
    s->config = NULL;
    memset(&s->err, 0, sizeof s->err);
    insitu__error_set(&s->err, INSITU_E_BUDGET,
        "no batch of this archive fits the memory: one sample of each variable takes %s, the limit "
        "is %s; raise memory_budget, or "
        "select much less with slices",
        tool_bytes(text, need), tool_bytes(limit, budget));
    return;
  }
  memcpy(chosen.other, s->other, sizeof s->other);
  chosen.n_other = s->n_other;
  *s = chosen;
  s->desc.variables = s->variables;
  info_set_slices(s);
}
/* What to call an array: its name, of an image that of its group; the whole path where another one
 * has that name. */
static const char *info_label(const struct info_axis *axis, const struct info_array *a) {
  const char *name = a->image ? a->image : info_last_name(a->path);
  if (!a->path[0]) return "x";
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axis->member); k++) {
    const struct info_array *other = axis->member[k];
    const char *its = other->image ? other->image : info_last_name(other->path);
    if (other != a && strcmp(its, name) == 0) return a->path;
  }
  return name;
}
/* Fixed arrays of up to an eighth of the memory, behind the variables. */
static void info_add_fixed(const struct info *f, struct info_suggestion *s) {
  uint64_t before = s->desc.n_variables, bytes = 0;
  for (uint64_t i = 0; i < f->n && s->desc.n_variables < INFO_MAX_PLANNED; i++) {
    const struct info_array *a = &f->arrays[i];
    if (!a->fixed || a->decoded > s->config->memory_budget / 8 - bytes) continue;
    bytes += a->decoded;
    s->variables[s->desc.n_variables++] =
        (insitu_variable){.label = info_label(s->axis, a), .path = a->path, .fixed = 1};
  }
  s->n_fixed = s->desc.n_variables - before;
  if (!s->n_fixed || (info_try(s) == INSITU_OK && info_fits(s))) return;
  s->desc.n_variables = before;
  s->n_fixed = 0;
  info_try(s);
}
/* A configuration that opens: planned before it is shown. */
static void info_suggest(
    const struct info *f, const struct info_axis *axis, struct info_suggestion *s) {
  uint64_t row = 0, n = 0;
  const struct info_array *first = NULL;
  memset(s, 0, sizeof *s);
  s->axis = axis;
  s->shown = tool_archive_name(&f->archive, f->url);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axis->member); i++) {
    const struct info_array *a = axis->member[i];
    if (a->ndim != axis->ndim && !a->mask) continue;
    if (n == INFO_MAX_PLANNED) {
      s->n_left_out++;
      continue;
    }
    if (!first) first = a;
    s->variables[n++] = (insitu_variable){.label = info_label(axis, a), .path = a->path};
    row += a->decoded / a->shape[info_sample_axis(a)];
  }
  s->desc = tool_desc(f->url);
  s->desc.variables = s->variables;
  s->desc.n_variables = n;
  s->desc.sample_dim = axis->dim;
  s->desc.plan_only = 1;
  s->desc.log = info_log;
  info_batch(s, row, axis->samples);
  if (!info_shrink(s)) {
    if (first && s->config && (s->err.status == INSITU_OK || s->err.status == INSITU_E_BUDGET))
      info_suggest_part(s, first, row);
    return;
  }
  /* larger units where chunks would be read again and again */
  while (s->plan.amplification > 1.1 && s->desc.unit_chunks < 8) {
    double before = s->plan.amplification;
    uint64_t units = s->desc.unit_chunks;
    s->desc.unit_chunks = units ? 2 * units : 2;
    info_try(s);
    if (info_fits(s) && s->plan.amplification < 0.9 * before) continue;
    s->desc.unit_chunks = units;
    info_try(s);
    break;
  }
  info_add_fixed(f, s);
}

static void info_print_c_string(const char *s) {
  struct insitu__text_buffer b = {0};
  for (; *s; s++) insitu__text_buffer_printf(&b, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
  putchar('"');
  tool_put_padded(b.text ? b.text : "", 0);
  putchar('"');
  insitu__text_buffer_free(&b);
}
static void info_print_desc(const struct info_suggestion *s) {
  const insitu_loader_desc *c = s->config;
  printf("\n");
  if (s->n_slices) printf("  insitu_slice slices[] = {");
  for (uint64_t i = 0; i < s->n_slices; i++) {
    printf("%s{.", i ? ", " : "");
    if (s->slices[i].dim) {
      printf("dim = ");
      info_print_c_string(s->slices[i].dim);
    } else printf("axis = %d", (int)s->slices[i].axis);
    printf(", .stop = %" PRId64 "}", s->slices[i].stop);
  }
  if (s->n_slices) printf("};\n");
  printf("  insitu_variable variables[] = {\n");
  for (uint64_t i = 0; i < s->desc.n_variables; i++) {
    const insitu_variable *v = &s->variables[i];
    printf("      {.label = ");
    info_print_c_string(v->label);
    if (strcmp(v->label, v->path)) {
      printf(", .path = ");
      info_print_c_string(v->path);
    }
    if (s->n_slices) printf(", .slices = slices, .n_slices = %" PRIu64, s->n_slices);
    if (v->fixed) printf(", .fixed = 1");
    printf("},\n");
  }
  if (s->n_left_out) printf("      /* and %" PRIu64 " more */\n", s->n_left_out);
  printf("  };\n  insitu_loader_desc desc = {.api = INSITU_API,\n      .url = ");
  info_print_c_string(s->shown);
  if (s->desc.n_options)
    printf(",\n      .options = options, /* as given to this command: none is repeated here */\n   "
           "   .n_options = %" PRIu64,
        s->desc.n_options);
  printf(
      ",\n      .variables = variables,\n      .n_variables = %" PRIu64 ",\n", s->desc.n_variables);
  if (c->sample_dim) {
    printf("      .sample_dim = ");
    info_print_c_string(c->sample_dim);
    printf(",\n");
  }
  printf("      .batch_size = %" PRIu64 ",\n      .block_chunks = %" PRIu64 "", c->batch_size,
      c->block_chunks);
  if (!c->sample_dim && c->sample_axis) printf(",\n      .sample_axis = %d", (int)c->sample_axis);
  if (c->unit_chunks > 1) printf(",\n      .unit_chunks = %" PRIu64, c->unit_chunks);
  if (s->desc.prefetch_depth) printf(",\n      .prefetch_depth = %" PRIu64, c->prefetch_depth);
  printf("};\n");
}
/* Whether a name can stand in --var, --sample-dim or --select, and in a shell, as it is. */
static bool info_is_plain(const char *name) {
  return name && *name && *name != '-' &&
         strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") ==
             strlen(name);
}
/* The coordinate of a dimension that all variables of the suggestion have but fixed ones, if its
 * values were looked at: the array of that name at the root. */
static const struct info_array *info_coordinate_of(
    const struct info *f, const struct info_suggestion *s, const char *dim) {
  const struct info_array *found = NULL;
  for (uint64_t i = 0; i < f->n; i++) {
    const struct info_array *a = &f->arrays[i];
    if (!a->err.status && a->ndim == 1 && a->n_values > 1 && !strcmp(a->path, dim)) found = a;
  }
  for (uint64_t k = 0; found && k < s->desc.n_variables - s->n_fixed; k++)
    for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->axis->member); i++) {
      const struct info_array *a = s->axis->member[i];
      if (strcmp(a->path, s->variables[k].path) == 0 && !info_has_dim(a, dim, found->shape[0]))
        return NULL;
    }
  return found;
}
/* The array of the first variable. */
static const struct info_array *info_first(const struct info_suggestion *s) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->axis->member); i++)
    if (!strcmp(s->axis->member[i]->path, s->variables[0].path)) return s->axis->member[i];
  return NULL;
}
/* A part of each axis that has a coordinate, as a text for --select without a space: half of
 * one in space, both ends of others, such as levels. Empty: there is none. */
static void info_select_text(
    const struct info *f, const struct info_suggestion *s, char *to, size_t cap) {
  const struct info_array *a = info_first(s);
  size_t n = 0;
  to[0] = 0;
  for (unsigned d = 0; a && d < a->ndim && n + 40 < cap; d++) {
    const char *dim = a->dim[d];
    bool drawn = d == info_sample_axis(a) || !info_is_plain(dim) || strlen(dim) > 10;
    const struct info_array *c = drawn ? NULL : info_coordinate_of(f, s, dim);
    if (!c || !isfinite(c->first) || !isfinite(c->last) || c->first == c->last) continue;
    double half = c->first + (c->last - c->first) / 2;
    if (c->regular) half = c->first + c->step * (double)((c->n_values - 1) / 2);
    bool space = info_is_space(dim);
    n += (size_t)snprintf(to + n, cap - n, "%s%s=%.9g%s%.9g", n ? ";" : "", dim, c->first,
        space ? ".." : ",", space ? half : c->last);
  }
}
/* One command, over several lines where it is long. `more` goes on where `words` ends. */
static void info_print_command(
    const char *before, const char *command, const char *words, const char *more) {
  struct insitu__text_buffer b = {0};
  int column = printf("%s  insitu %s", before, command);
  insitu__text_buffer_printf(&b, "%s%s", words, more);
  for (const char *at = b.text; !b.failed && *at;) {
    while (*at == ' ') at++;
    int n = (int)strcspn(at, " ");
    if (*at == '-' && at[n] && at[n + 1] != '-') /* an option and its value stay together */
      n += 1 + (int)strcspn(at + n + 1, " ");
    if (column + n + 3 > INFO_COLUMNS) column = printf(" \\\n     ") - 3;
    column += printf(" %.*s", n, at);
    at += n;
  }
  printf("\n");
  insitu__text_buffer_free(&b);
}
/* What all commands begin with: archive and variables. False: a name cannot stand in one. */
static bool info_command_words(const struct info_suggestion *s, struct insitu__text_buffer *b) {
  bool plain = info_is_plain(s->shown) && !s->desc.n_options;
  insitu__text_buffer_printf(b, "%s", s->shown);
  for (uint64_t i = 0; i < s->desc.n_variables; i++) {
    const insitu_variable *v = &s->variables[i];
    bool begins = !i || v->fixed != v[-1].fixed;
    plain = plain && info_is_plain(v->label) && info_is_plain(v->path);
    insitu__text_buffer_printf(
        b, "%s%s", begins ? v->fixed ? " --fixed " : " --var " : ",", v->label);
    if (strcmp(v->label, v->path)) insitu__text_buffer_printf(b, "=%s", v->path);
  }
  return plain && !b->failed;
}
/* Another way to draw samples of the same variables: by several axes, or patches. */
struct info_way {
  const char *what;
  insitu_axis axes[INSITU__MAX_DIMS];
  uint64_t n_axes, patches;
};
/* Whether it opens, and fits the memory. */
static bool info_try_way(const struct info_suggestion *s, const struct info_way *way) {
  static struct info_suggestion variant;
  info_variant(s, &variant);
  variant.desc.sample_dim = NULL;
  variant.desc.sample_axis = 0;
  variant.desc.axes = way->axes;
  variant.desc.n_axes = way->n_axes;
  variant.desc.patches = way->patches;
  variant.desc.batch_size = 16;
  variant.desc.block_chunks = variant.desc.unit_chunks = variant.desc.prefetch_depth = 0;
  bool fits = info_try(&variant) == INSITU_OK && info_fits(&variant);
  insitu_loader_close(&variant.loader);
  return fits;
}
static void info_print_way(const struct info_suggestion *s, const char *words,
    const struct info_way *way, const char *batch) {
  struct insitu__text_buffer b = {0};
  bool plain = true;
  for (uint64_t i = 0; i < way->n_axes; i++) {
    const insitu_axis *axis = &way->axes[i];
    plain = plain && info_is_plain(axis->dim) && !strchr(axis->dim, '/');
    insitu__text_buffer_printf(&b, "%s%s", i ? "," : " --axes ", axis->dim);
    if (axis->patch) insitu__text_buffer_printf(&b, "/%" PRIu64, axis->patch);
  }
  if (way->patches) insitu__text_buffer_printf(&b, " --patches %" PRIu64, way->patches);
  insitu__text_buffer_printf(&b, " --batch-size 16");
  if (plain && !b.failed && way->n_axes > 1 && info_try_way(s, way)) {
    printf("\n  # %s\n", way->what);
    info_print_command("", "plan", words, b.text);
    insitu__text_buffer_printf(&b, "%s", batch);
    if (!b.failed) info_print_command("", "cat", words, b.text);
  }
  insitu__text_buffer_free(&b);
}
/* Samples along every axis that is like one of samples: forecasts by init and lead, members,
 * planes of an image. And patches of its pictures. */
static void info_print_ways(
    const struct info *f, const struct info_suggestion *s, const char *words) {
  static const char *const names[] = {"init", "init_time", "reference_time",
      "forecast_reference_time", "lead", "lead_time", "leadtime", "step", "prediction_timedelta",
      "forecast_period", "number", "member", "ensemble", "realization", "t", "z"};
  const struct info_array *a = info_first(s);
  if (!a || !s->config->sample_dim) return;
  struct info_way several = {.what = "samples along several axes: each row is one index on each"};
  for (unsigned d = 0; d < a->ndim; d++) {
    bool drawn = d == info_sample_axis(a) || info_is_one_of(a->dim[d], names, TOOL_COUNT(names));
    if (drawn && a->shape[d] > 1) several.axes[several.n_axes++].dim = a->dim[d];
  }
  bool told = several.n_axes && info_coordinate_of(f, s, several.axes[0].dim);
  info_print_way(s, words, &several,
      told ? " --split all --coordinates --batch 0,0 --text" : " --split all --batch 0,0 --text");
  if (!a->image) return;
  struct info_way patches = several;
  patches.what = "random patches, drawn anew in each epoch: each row is one";
  patches.patches = 16;
  for (unsigned d = 0; d < a->ndim; d++) {
    bool plane = a->dim[d] && (!strcasecmp(a->dim[d], "y") || !strcasecmp(a->dim[d], "x"));
    if (!plane || a->shape[d] < 2) continue;
    uint64_t patch = 256;
    while (patch > 1 && patch * 2 > a->shape[d]) patch /= 2;
    patches.axes[patches.n_axes++] = (insitu_axis){.dim = a->dim[d], .patch = patch};
  }
  if (patches.n_axes > several.n_axes) info_print_way(s, words, &patches, " --batch 0,0 --text");
}
/* The suggestion as command lines, which work as they stand; nothing where a name cannot be
 * written in one. */
static void info_print_commands(const struct info *f, const struct info_suggestion *s) {
  struct insitu__text_buffer b = {0}, knobs = {0};
  char select[80], more[120];
  bool plain = info_command_words(s, &b);
  if (s->config->sample_dim) {
    plain = plain && info_is_plain(s->config->sample_dim);
    insitu__text_buffer_printf(&knobs, " --sample-dim %s", s->config->sample_dim);
  } else if (s->config->sample_axis) {
    insitu__text_buffer_printf(&knobs, " --sample-axis %d", (int)s->config->sample_axis);
  }
  insitu__text_buffer_printf(&knobs, " --batch-size %" PRIu64 " --block-chunks %" PRIu64,
      s->config->batch_size, s->config->block_chunks);
  if (s->config->unit_chunks > 1)
    insitu__text_buffer_printf(&knobs, " --unit-chunks %" PRIu64, s->config->unit_chunks);
  if (plain && !knobs.failed && !s->n_slices && !s->n_left_out) {
    struct insitu__text_buffer whole = {0};
    insitu__text_buffer_printf(&whole, "%s%s", b.text, knobs.text);
    info_select_text(f, s, select, sizeof select);
    snprintf(more, sizeof more, " --select '%s'", select);
    if (!whole.failed) {
      info_print_command("\n", "plan", whole.text, "");
      if (select[0]) info_print_command("", "plan", whole.text, more);
      info_print_command("", "cat", whole.text, " --batch 0,0 --text");
    }
    insitu__text_buffer_free(&whole);
    info_print_ways(f, s, b.text);
  }
  insitu__text_buffer_free(&b);
  insitu__text_buffer_free(&knobs);
}
static void info_print_suggestion(const struct info *f, const struct info_suggestion *s) {
  char a[16], b[16], c[16], d[16], text[400];
  const insitu_plan *p = &s->plan;
  printf("\n%sTo train on %s%s%s\n", tool_style(TOOL_BOLD),
      s->desc.n_variables == 1 ? "it" : "them", s->n_left_out ? " (the first of them)" : "",
      tool_style(TOOL_PLAIN));
  if (s->err.status) {
    info_line("no plan", s->err.message);
    return;
  }
  snprintf(text, sizeof text,
      "batch_size %" PRIu64 " (%s a batch), block_chunks %" PRIu64 ", unit_chunks %" PRIu64
      ", prefetch_depth %" PRIu64 ", max_inflight %" PRIu64 ", decode_threads %" PRIu64,
      s->config->batch_size, tool_bytes(a, p->slab_bytes), s->config->block_chunks,
      s->config->unit_chunks, s->config->prefetch_depth, s->config->max_inflight,
      s->config->decode_threads);
  info_line("knobs", text);
  for (uint64_t i = 0, n = 0; i < s->n_slices; i++) {
    const char *dim = s->slices[i].dim;
    n += (uint64_t)snprintf(text + n, sizeof text - n, "%s%.60s 0:%" PRId64, i ? ", " : "",
        dim ? dim : "an axis", s->slices[i].stop);
    if (n >= 200 || i + 1 == s->n_slices) {
      info_line("slices", text);
      break;
    }
  }
  snprintf(text, sizeof text,
      "%s = %" PRIu64 " batches of %s + %s in flight + %s tables%s%s%s%s; the limit is %s",
      tool_bytes(a, info_plan_bytes(p)), p->slabs, tool_bytes(b, p->slab_bytes),
      tool_bytes(c, p->inflight_bytes), tool_bytes(d, p->table_bytes),
      p->cache_bytes ? " + shard indexes in " : "",
      p->cache_bytes ? tool_bytes((char[16]){0}, p->cache_bytes) : "",
      p->fixed_bytes ? " + fixed arrays in " : "",
      p->fixed_bytes ? tool_bytes((char[16]){0}, p->fixed_bytes) : "",
      tool_bytes((char[16]){0}, s->config->memory_budget));
  info_line("memory", text);
  if (s->n_slices || s->n_other)
    info_line("why", "whole samples of all variables do not fit the memory");
  for (int i = 0; i < s->n_other; i++) info_line("or", s->other[i]);
  snprintf(text, sizeof text,
      "%" PRIu64 " train sample%s in %" PRIu64 " batch%s; %s%" PRIu64 " reads of %" PRIu64
      " chunks (amplification %.2f), %s decoded",
      p->rows, p->rows == 1 ? "" : "s", p->batches, p->batches == 1 ? "" : "es",
      p->estimated ? "about " : "", p->reads, p->distinct, p->amplification,
      tool_bytes(a, p->read_bytes));
  info_line("epoch", text);
  if (p->variance_ratio > 0) {
    snprintf(text, sizeof text, "variance ratio of batch means %.2f%s", p->variance_ratio,
        p->variance_ratio < 1.5
            ? " (1 is an ideal shuffle)"
            : " (1 is an ideal shuffle; a larger block_chunks mixes more and takes more memory)");
    info_line("mixing", text);
  }
  info_print_desc(s);
  info_print_commands(f, s);
}
static void info_print_axis(const struct info_axis *x) {
  char samples[32];
  int width = 5;
  uint64_t n = INSITU__ARRAY_LEN(x->member);
  for (uint64_t i = 0; i < n; i++)
    width =
        (int)insitu__base_max((uint64_t)width, insitu__base_min(44, strlen(x->member[i]->path)));
  printf("\n%sSample axis ", tool_style(TOOL_BOLD));
  tool_put_padded(x->dim ? x->dim : "0", 0);
  printf("%s: %s sample%s\n", tool_style(TOOL_PLAIN), tool_count(samples, x->samples),
      x->samples == 1 ? "" : "s");
  printf("    %-*s  %13s  %13s  %12s  %12s\n", width, "", "samples/chunk", "chunks/sample",
      "bytes/sample", "bytes/chunk");
  for (uint64_t i = 0; i < n; i++) {
    const struct info_array *a = x->member[i];
    unsigned axis = info_sample_axis(a);
    uint64_t chunk = a->z.itemsize;
    char sample[16], whole[16], per[32];
    for (unsigned k = 0; k < a->z.ndim; k++) chunk *= a->z.chunk[k];
    printf("    ");
    tool_put_padded(a->path[0] ? a->path : "/", width);
    printf("  %13" PRIu64 "  %13s  %12s  %12s\n", a->z.chunk[axis],
        tool_count(per, info_chunks_per_sample(a)), tool_bytes(sample, a->decoded / a->shape[axis]),
        tool_bytes(whole, chunk));
  }
}
/* Arrays that have no samples, but whose axes those with samples have. */
static void info_print_fixed(const struct info *f) {
  bool any = false;
  for (uint64_t i = 0; i < f->n; i++) {
    const struct info_array *a = &f->arrays[i];
    char size[16];
    if (!a->fixed) continue;
    if (!any)
      printf("\n%sWithout samples%s: fixed variables, which every batch shows whole\n",
          tool_style(TOOL_BOLD), tool_style(TOOL_PLAIN));
    printf("    ");
    tool_put_padded(a->path, 0);
    printf(" (");
    for (unsigned d = 0; d < a->ndim; d++) {
      printf("%s", d ? ", " : "");
      tool_put_padded(a->dim[d], 0);
    }
    printf(")  %s\n", tool_bytes(size, a->decoded));
    any = true;
  }
}
