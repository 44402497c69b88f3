/* Samples that are patches: random ones and grids, inside or over the edges, against a model that
 * lists blocks and origins; each element, halos, what is read, and how evenly patches lie. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"
#include <math.h>

enum { Y, X, TIME, CHANNEL, DIMS, LONGEST = 14, ORIGINS = 4096 };
static const char *const dim_names[DIMS] = {"y", "x", "time", "channel"};

/* A configuration, drawn at random. */
struct patched {
  char root[600];
  uint64_t size[DIMS], chunk[2];
  struct support_array array[2];
  int dim[2][DIMS];
  insitu_axis axes[3];
  int desc_of[3];        /* the dimension of each entry of axes */
  int n_axes, n_patched; /* patches along y, or along y and x */
  insitu_variable variable[2];
  int64_t steps[2];
  insitu_loader_desc desc;
  uint64_t halo;

  /* the model: blocks row-major, and of each the first elements along y and x, row-major */
  int n_blocks, first[ORIGINS];
  int64_t origin[ORIGINS][2];
  int n_origins;
  int over_edges; /* rows that showed something outside of their array */
};

static const int fills[2] = {-9, 200}; /* of the arrays */

static void draw_array(struct patched *s, int which, int format) {
  struct support_array *a = &s->array[which];
  static char dims[2][64];
  int order[DIMS] = {Y, X, TIME, CHANNEL};
  *a = (struct support_array){.name = which ? "mask" : "image",
      .dtype = which ? INSITU_U8 : INSITU_I32,
      .fill = which ? "200" : "-9",
      .dims = dims[which]};
  support_shuffle(order, DIMS);
  strcpy(dims[which], "[");
  for (int i = 0; i < DIMS; i++) {
    if (order[i] == CHANNEL && which) continue;
    int d = a->ndim++;
    s->dim[which][d] = order[i];
    a->shape[d] = s->size[order[i]];
    sprintf(dims[which] + strlen(dims[which]), "%s\"%s\"", d ? "," : "", dim_names[order[i]]);
  }
  strcat(dims[which], "]");
  support_layout(a, format);
  for (int d = 0; d < a->ndim; d++) {
    int dim = s->dim[which][d];
    if (s->size[Y] == 60 && dim == Y) a->chunk[d] = 3 + support_below(6);
    if (dim < 2 && a->chunk[d] < 3) a->chunk[d] = a->shape[d] < 3 ? a->shape[d] : 3;
    if (dim < 2 && a->chunk[d] > s->chunk[dim]) s->chunk[dim] = a->chunk[d];
  }
  support_make(s->root, a);
}

static void draw_patched(struct patched *s, const char *root) {
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", root);
  for (int i = 0; i < DIMS; i++) s->size[i] = 1 + support_below(i < 2 ? LONGEST : 5);
  if (support_below(4) == 0) s->size[Y] = 60; /* several blocks of small chunks */
  int format = 2 + (int)support_below(2);
  for (int which = 0; which < 2; which++) draw_array(s, which, format);
  s->n_patched = 1 + (int)support_below(2);
  s->halo = support_below(3) ? 0 : support_below(3);
  bool random = support_below(2);
  int place = (int)support_below((uint64_t)s->n_patched + 1); /* of the sample axis in axes */
  int64_t at = 0;
  for (s->n_axes = 0; s->n_axes <= s->n_patched; s->n_axes++) {
    insitu_axis *axis = &s->axes[s->n_axes];
    int dim = s->n_axes == place ? TIME : (int)at++;
    s->desc_of[s->n_axes] = dim;
    axis->dim = dim_names[dim];
    if (dim == TIME) continue;
    if (!random && support_below(2)) axis->stride = 1 + support_below(5);
    if (support_below(3) == 0) {
      axis->edge = INSITU_FILL;
      axis->patch = 1 + support_below(s->size[dim] + 6);
      if (support_below(3)) continue;
      axis->start = (int64_t)support_below(s->size[dim]);
      axis->stop = axis->start + 1 + (int64_t)support_below(s->size[dim] - (uint64_t)axis->start);
      continue;
    }
    while (2 * s->halo >= s->size[dim]) s->halo--;
    axis->patch = 1 + support_below(s->size[dim] - 2 * s->halo);
    int64_t room = (int64_t)(s->size[dim] - axis->patch);
    if (support_below(3) == 0 && !s->halo) {
      axis->start = (int64_t)support_below((uint64_t)room + 1);
      axis->stop = axis->start + (int64_t)axis->patch +
                   (int64_t)support_below((uint64_t)(room - axis->start) + 1);
    }
  }
  s->variable[0] = (insitu_variable){.label = "image", .halo = s->halo};
  s->variable[1] = (insitu_variable){.label = "mask"};
  if (support_below(2)) {
    s->steps[1] = 1;
    s->variable[1].steps = s->steps;
    s->variable[1].n_steps = 1 + support_below(2);
  }
  int m = any_mode();
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = 2,
      .axes = s->axes,
      .n_axes = (uint64_t)s->n_axes,
      .split_axis = place,
      .patches = random ? 1 + support_below(9) : 0,
      .batch_size = 1 + support_below(4),
      .block_chunks = 1 + support_below(12),
      .unit_chunks = 1 + support_below(2),
      .seed = support_random(),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_OFF,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
}

static const insitu_axis *axis_of(const struct patched *s, int dim) {
  for (int k = 0; k < s->n_axes; k++)
    if (s->desc_of[k] == dim) return &s->axes[k];
  return NULL;
}

/* Whether a patch may begin at o along y or x. */
static bool valid(const struct patched *s, int dim, int64_t o) {
  const insitu_axis *axis = axis_of(s, dim);
  int64_t size = (int64_t)s->size[dim], stop = axis->stop ? axis->stop : size;
  int64_t n = (int64_t)axis->patch, halo = (int64_t)s->halo;
  int64_t stride = axis->stride ? (int64_t)axis->stride : n;
  int64_t middle = s->desc.patches ? o + n / 2 : o;
  if (axis->edge)
    return middle >= axis->start && middle < stop &&
           (s->desc.patches || (o - axis->start) % stride == 0);
  if (o < axis->start || o + n > stop || o - halo < 0 || o + n + halo > size) return false;
  return s->desc.patches || (o - axis->start) % stride == 0;
}

/* How many elements before the array the first block may begin: whole chunks. */
static int64_t before_array(const struct patched *s, int dim) {
  const insitu_axis *axis = axis_of(s, dim);
  uint64_t chunk = s->chunk[dim];
  if (!axis->edge || !s->desc.patches) return 0;
  return (int64_t)((axis->patch / 2 + chunk - 1) / chunk * chunk);
}

/* From there on, to the last place where a patch may begin. */
static uint64_t places(const struct patched *s, int dim) {
  int64_t before = before_array(s, dim);
  return s->size[dim] + (uint64_t)before - (before ? axis_of(s, dim)->patch / 2 : 0);
}

/* The lengths of blocks: whole chunks, of which patches reach into at most three tenths more. */
static void block_lengths(const struct patched *s, uint64_t block[2]) {
  for (int d = 0; d < s->n_patched; d++) block[d] = s->chunk[d];
  for (;;) {
    double product = 1, most = 1;
    int worst = 0;
    for (int d = 0; d < s->n_patched; d++) {
      const insitu_axis *axis = axis_of(s, d);
      uint64_t stride = axis->stride ? axis->stride : axis->patch;
      uint64_t chunk = s->chunk[d], left = (s->halo + chunk - 1) / chunk;
      uint64_t chunks = left + (axis->patch + s->halo - 1 + chunk - 1) / chunk;
      double more = (double)(chunks * s->chunk[d]) / (double)block[d];
      bool aligned = !s->desc.patches && !s->halo && axis->patch <= stride &&
                     s->chunk[d] % stride == 0 && (uint64_t)axis->start % stride == 0;
      if (aligned || block[d] >= places(s, d)) more = 0;
      product *= 1 + more;
      if (1 + more > most) {
        most = 1 + more;
        worst = d;
      }
    }
    if (product <= 1.3) break;
    uint64_t chunks = block[worst] / (8 * s->chunk[worst]);
    block[worst] += s->chunk[worst] * (chunks ? chunks : 1);
  }
  for (int d = 0; d < s->n_patched; d++) {
    const insitu_axis *axis = axis_of(s, d);
    uint64_t chunks = (places(s, d) + s->chunk[d] - 1) / s->chunk[d];
    uint64_t blocks = chunks / (block[d] / s->chunk[d]);
    if (!blocks) blocks = 1;
    block[d] = (chunks + blocks - 1) / blocks * s->chunk[d];
    uint64_t stride = s->desc.patches ? 1 : axis->stride ? axis->stride : axis->patch;
    if (stride > block[d]) block[d] *= (stride + block[d] - 1) / block[d];
  }
}

/* Lists blocks row-major, and in each the valid first elements row-major. */
static void list_origins(struct patched *s) {
  uint64_t block[2] = {1, 1};
  block_lengths(s, block);
  s->n_blocks = s->n_origins = 0;
  bool two = s->n_patched > 1;
  int64_t high = (int64_t)block[0], wide = (int64_t)block[1];
  int64_t top = -before_array(s, Y), left = two ? -before_array(s, X) : 0;
  int64_t bottom = (int64_t)s->size[Y], right = two ? (int64_t)s->size[X] : 1;
  for (int64_t by = top; by < bottom; by += high)
    for (int64_t bx = left; bx < right; bx += wide) {
      int before = s->n_origins;
      for (int64_t y = by; y < by + high; y++)
        for (int64_t x = bx; x < bx + wide; x++) {
          if (!valid(s, Y, y) || (two && !valid(s, X, x))) continue;
          s->origin[s->n_origins][0] = y;
          s->origin[s->n_origins++][1] = x;
        }
      if (s->n_origins > before) s->first[s->n_blocks++] = before;
    }
  s->first[s->n_blocks] = s->n_origins;
}

static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}
static uint64_t below(uint64_t random, uint64_t n) {
  return (uint64_t)((unsigned __int128)random * n >> 64);
}

/* Where patch number p of a sample begins: of those that are drawn, in a block that its group draws
 * for all samples of a unit. */
static void model_origin(
    const struct patched *s, uint64_t epoch, int64_t sample, uint64_t p, int64_t origin[2]) {
  uint64_t n = s->desc.patches, blocks = (uint64_t)s->n_blocks, rows = 1;
  if (!n) {
    memcpy(origin, s->origin[p], sizeof s->origin[p]);
    return;
  }
  for (int which = 0; which < 2; which++)
    for (int d = 0; d < s->array[which].ndim; d++)
      if (s->dim[which][d] == TIME && s->array[which].chunk[d] > rows)
        rows = s->array[which].chunk[d];
  rows *= s->desc.unit_chunks;
  uint64_t groups = n < blocks ? n : blocks, each = (n + groups - 1) / groups;
  groups = (n + each - 1) / each;
  uint64_t key = mix(mix(mix(s->desc.seed) ^ epoch) ^ 0x7061746368);
  uint64_t unit = mix(key ^ (uint64_t)sample / rows);
  uint64_t begin = below(mix(unit ^ 1), (uint64_t)s->n_origins),
           shift = below(mix(unit ^ 2), groups);
  uint64_t at = ((p / each + shift) % groups * (uint64_t)s->n_origins + begin) / groups;
  int b = 0;
  while (s->first[b + 1] <= (int)at) b++;
  key = mix(mix(key ^ (uint64_t)sample) ^ p);
  /* a block of valid first elements is a box */
  const int64_t *lo = s->origin[s->first[b]], *hi = s->origin[s->first[b + 1] - 1];
  for (int j = 0; j < s->n_patched; j++)
    origin[j] = lo[j] + (int64_t)below(mix(key ^ (uint64_t)j), (uint64_t)(hi[j] - lo[j] + 1));
}

/* An element of an array; one that is outside, or in an absent chunk, is the fill value. */
static double expect(const struct patched *s, int which, const int64_t *at, bool *outside) {
  const struct support_array *a = &s->array[which];
  uint64_t number = 0, place[DIMS];
  for (int d = 0; d < a->ndim; d++) {
    place[d] = (uint64_t)at[d];
    if (at[d] < 0 || place[d] >= a->shape[d]) {
      *outside = true;
      return fills[which];
    }
    number = number * support_ceil_div(a->shape[d], a->chunk[d]) + place[d] / a->chunk[d];
  }
  return support_is_absent(a, number) ? fills[which] : support_expect(a, place);
}

/* All elements of a row of an array. */
static void check_row(struct patched *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_array *a = &b->arrays[which];
  const struct support_array *stored = &s->array[which];
  const insitu_variable *v = &s->variable[which];
  uint64_t n_steps = v->n_steps ? v->n_steps : 1, each = 1, extent[DIMS];
  int64_t index[DIMS] = {0}, at[DIMS];
  bool outside = false;
  int shown = v->n_steps ? 2 : 1;
  for (int k = 0; k < s->n_axes; k++)
    index[s->desc_of[k]] = b->axis_indices[row * b->n_axes + (uint64_t)k];
  for (int d = 0; d < stored->ndim; d++) {
    int dim = s->dim[which][d];
    const insitu_axis *axis = axis_of(s, dim);
    extent[d] = axis && axis->patch ? axis->patch + 2 * v->halo : stored->shape[d];
    if (dim == TIME) continue;
    assert_int_equal(a->shape[shown++], extent[d]);
    each *= extent[d];
  }
  assert_int_equal(a->ndim, shown);
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = stored->ndim; d-- > 0;) {
      int dim = s->dim[which][d];
      const insitu_axis *axis = axis_of(s, dim);
      if (dim == TIME) {
        at[d] = index[TIME] + (int64_t)(k / each);
        continue;
      }
      at[d] = (int64_t)(rest % extent[d]);
      if (axis && axis->patch) at[d] += index[dim] - (int64_t)v->halo;
      rest /= extent[d];
    }
    double want = expect(s, which, at, &outside);
    support_same(a->data, a->dtype, row * n_steps * each + k, want, a->name);
  }
  s->over_edges += outside;
}

/* An epoch: every sample has each of its patches once, and they begin where the model says. */
static void check_epoch(struct patched *s, insitu_loader *ld, insitu_iter *it,
    const insitu_iter_desc *d, uint64_t epoch, uint64_t reads) {
  insitu_plan plan;
  insitu_error err = {0};
  insitu_stats after;
  static unsigned char seen[8][ORIGINS];
  uint64_t each = s->desc.patches ? s->desc.patches : (uint64_t)s->n_origins, rows = 0;
  uint64_t drawn = d->order == INSITU_SEQUENTIAL ? 0 : epoch;
  memset(seen, 0, sizeof seen);
  if (insitu_loader_plan(ld, d, &plan, &err)) fail_msg("%s", err.message);
  insitu_batch *b;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->n_axes, s->n_axes);
    for (uint64_t row = 0; row < b->rows; row++, rows++) {
      const int64_t *index = b->axis_indices + row * b->n_axes;
      int64_t located[3], at[DIMS] = {0};
      assert_int_equal(b->sample_indices[row], index[0]);
      assert_int_equal(insitu_iter_locate(it, epoch, b->index, row, located, &err), INSITU_OK);
      assert_memory_equal(located, index, b->n_axes * sizeof *index);
      for (int k = 0; k < s->n_axes; k++) at[s->desc_of[k]] = index[k];
      uint64_t p = 0;
      for (; p < each; p++) {
        int64_t origin[2] = {0};
        model_origin(s, drawn, at[TIME], p, origin);
        bool same = origin[0] == at[Y] && (s->n_patched == 1 || origin[1] == at[X]);
        if (same && !seen[at[TIME]][p]) break;
      }
      if (p == each)
        fail_msg("sample %d has no patch left at %d, %d", (int)at[TIME], (int)at[Y], (int)at[X]);
      seen[at[TIME]][p] = 1;
      for (int which = 0; which < 2; which++) check_row(s, b, which, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  assert_int_equal(rows, plan.rows);
  uint64_t samples = s->size[TIME] - (s->variable[1].n_steps == 2);
  assert_int_equal(plan.samples, samples * each);
  if (d->order == INSITU_SEQUENTIAL) assert_int_equal(rows, plan.samples);
  assert_int_equal(insitu_loader_stats(ld, &after, NULL), INSITU_OK);
  if (!epoch && !plan.estimated) assert_int_equal(after.reads - reads, plan.reads);
}

static void drawn_patches(void **state) {
  (void)state;
  static struct patched s;
  char root[600];
  snprintf(root, sizeof root, "%s", support_path("patches"));
  int checked = 0, over_edges = 0;
  for (int round = 0; round < support_rounds(200); round++) {
    draw_patched(&s, root);
    list_origins(&s);
    insitu_loader *ld;
    insitu_error err = {0};
    insitu_status status = insitu_loader_open(&s.desc, &ld, &err);
    if (!s.n_origins) {
      assert_int_equal(status, INSITU_E_SPLIT);
      support_remove(root);
      continue;
    }
    if (status) fail_msg("%s", err.message);
    for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
      insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_ALL, .order = order};
      insitu_stats before;
      insitu_iter *it;
      assert_int_equal(insitu_loader_stats(ld, &before, NULL), INSITU_OK);
      status = insitu_iter_open(ld, &d, &it, &err);
      if (status == INSITU_E_SPLIT) continue;
      if (status) fail_msg("%s", err.message);
      for (uint64_t epoch = 0; epoch < 2; epoch++) check_epoch(&s, ld, it, &d, epoch, before.reads);
      checked++;
      insitu_iter_close(&it);
    }
    over_edges += s.over_edges;
    insitu_loader_close(&ld);
    support_remove(root);
  }
  assert_true(checked > 10);
  assert_true(over_edges > 100);
}

/* An array of planes. */
static struct support_array planes(int format, const uint64_t shape[3], const uint64_t chunk[3]) {
  struct support_array a = {.name = "a",
      .ndim = 3,
      .dtype = INSITU_U8,
      .format = format,
      .dims = "[\"time\",\"y\",\"x\"]"};
  memcpy(a.shape, shape, 3 * sizeof *shape);
  memcpy(a.chunk, chunk, 3 * sizeof *chunk);
  return a;
}
static insitu_loader_desc patches_of(
    const char *root, const insitu_variable *v, uint64_t n, const insitu_axis axes[3]) {
  return (insitu_loader_desc){
      .api = INSITU_API, .url = root, .variables = v, .n_variables = n, .axes = axes, .n_axes = 3};
}
static const insitu_iter_desc shuffled = {
    .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};

/* Over epochs every origin is as likely as any other for every patch: chi-square. */
static void even(void **state) {
  (void)state;
  const char *root = support_path("even");
  struct support_array a = planes(3, (uint64_t[]){3, 11, 13}, (uint64_t[]){2, 4, 5});
  support_make(root, &a);
  enum { WIDE = 12, HIGH = 9, EPOCHS = 4000, PATCHES = 3 };
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 3}, {.dim = "x", .patch = 2}};
  insitu_variable v = {.label = "a"};
  insitu_loader_desc d = patches_of(root, &v, 1, axes);
  d.patches = PATCHES;
  d.batch_size = 3 * PATCHES;
  d.seed = 5;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &shuffled);
  static double seen[HIGH][WIDE];
  insitu_error err = {0};
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
    for (uint64_t row = 0; row < 3 * PATCHES; row++) {
      int64_t index[3];
      assert_int_equal(insitu_iter_locate(it, epoch, 0, row, index, &err), INSITU_OK);
      assert_true(index[1] >= 0 && index[1] < HIGH && index[2] >= 0 && index[2] < WIDE);
      seen[index[1]][index[2]]++;
    }
  double mean = EPOCHS * 3.0 * PATCHES / (HIGH * WIDE), sum = 0;
  for (int y = 0; y < HIGH; y++)
    for (int x = 0; x < WIDE; x++) sum += (seen[y][x] - mean) * (seen[y][x] - mean) / mean;
  /* 107 degrees of freedom: above 165 in 3 cases of 10,000; spread patches stay below the mean */
  if (sum > 165) fail_msg("chi-square is %g", sum);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Patches of half a chunk's length, four and more for each chunk, inside and over the edges: chunks
 * are read little more than once, and all that an epoch reads is what its patches touch. */
static void reads(void **state) {
  (void)state;
  const char *root = support_path("reads");
  struct support_array a = planes(2, (uint64_t[]){5, 640, 640}, (uint64_t[]){1, 32, 32});
  a.zstd = true;
  support_make(root, &a);
  insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 16}, {.dim = "x", .patch = 16}};
  insitu_variable v = {.label = "a"};
  insitu_loader_desc d = patches_of(root, &v, 1, axes);
  d.batch_size = 64;
  d.block_chunks = 8;
  d.hold_epoch = 1;
  for (int round = 0; round < 4; round++) {
    bool grid = round % 2;
    d.patches = grid ? 0 : 4 * 20 * 20;
    axes[1].edge = axes[2].edge = round / 2 ? INSITU_FILL : 0;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &shuffled);
    insitu_batch *b;
    insitu_error err = {0};
    insitu_plan plan;
    insitu_stats stats;
    assert_int_equal(insitu_loader_plan(ld, &shuffled, &plan, &err), INSITU_OK);
    while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) insitu_batch_release(&b);
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    assert_int_equal(plan.estimated, 0);
    assert_int_equal(stats.reads, plan.reads);
    assert_int_equal(stats.reads - stats.rereads, plan.distinct);
    double most = grid ? 1.0 : 1.3; /* a grid that is aligned with chunks reads none twice */
    if (plan.amplification > most)
      fail_msg("round %d: amplification %g: %d reads of %d, units %d of %d, lanes %d, window %d",
          round, plan.amplification, (int)plan.reads, (int)plan.distinct, (int)plan.units,
          (int)plan.unit_rows, (int)plan.lanes, (int)plan.window);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  support_remove(root);
}

/* What a pass shows of one row: its place, and the first element of each array. */
struct shown {
  int64_t index[3];
  double first[2];
};

/* The rest of an epoch from this iterator, appended to `to`. */
static int rest_of(insitu_iter *it, struct shown *to, int n) {
  insitu_batch *b;
  insitu_error err = {0};
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, n++) {
      memcpy(to[n].index, b->axis_indices + row * 3, sizeof to[n].index);
      for (int i = 0; i < 2; i++) {
        const insitu_array *a = &b->arrays[i];
        to[n].first[i] = support_get((const char *)a->data + row * a->row_bytes, a->dtype);
      }
      assert_non_null(b->coordinates);
      const double *at = b->coordinates + row * 3; /* of patches along x there are none */
      assert_true(at[0] == 10.0 * (double)to[n].index[0] && isnan(at[2]));
      assert_true(at[1] == 90 - 4.5 * (double)to[n].index[1]);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  return n;
}

/* Ranks share an epoch; a pass resumes in the middle of it, also with the units of the state; shown
 * steps change nothing else. Drawn patches and a grid. */
static void passes(void **state) {
  (void)state;
  const char *root = support_path("passes");
  double times[6];
  for (int i = 0; i < 6; i++) times[i] = 10 * i;
  struct support_array a = planes(3, (uint64_t[]){6, 20, 24}, (uint64_t[]){2, 8, 8}),
                       time = {.name = "time",
                           .ndim = 1,
                           .shape = {6},
                           .chunk = {6},
                           .dtype = INSITU_F64,
                           .format = 3,
                           .dims = "[\"time\"]",
                           .values = times};
  a.dtype = INSITU_I32;
  support_make(root, &a);
  support_make(root, &time);
  double latitudes[20];
  for (int i = 0; i < 20; i++) latitudes[i] = 90 - 4.5 * i;
  struct support_array y = time;
  y.name = "y", y.shape[0] = 20, y.dims = "[\"y\"]", y.values = latitudes;
  support_make(root, &y);
  y = a, y.name = "x"; /* several axes make no coordinate */
  support_make(root, &y);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "y", .patch = 4}, {.dim = "x", .patch = 6}};
  static const int64_t steps[] = {0, 1};
  insitu_variable v[] = {{.label = "in", .path = "a", .halo = 2},
      {.label = "out", .path = "a", .steps = steps, .n_steps = 2}};
  insitu_loader_desc d = patches_of(root, v, 2, axes);
  d.batch_size = d.lanes = 4;
  d.coordinates = 1;
  d.seed = 9;
  insitu_iter_desc pass = shuffled;
  pass.epoch = 1;
  for (int grid = 0; grid < 2; grid++) {
    static struct shown whole[500], other[500];
    insitu_error err = {0};
    insitu_batch *b;
    d.patches = grid ? 0 : 11;
    d.unit_chunks = 2;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &pass);
    int n = rest_of(it, whole, 0);
    assert_true(n >= 24);

    /* The same order goes on behind any batch, in a loader that leaves the units to the state. */
    assert_int_equal(insitu_iter_set_epoch(it, 1, &err), INSITU_OK);
    insitu_state after;
    for (int i = 0; i < 3; i++) {
      b = next_batch_or_fail(it);
      after = b->after;
      insitu_batch_release(&b);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    d.unit_chunks = 0;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &pass);
    assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_OK);
    assert_int_equal(insitu_iter_set_steps(it, "out", 1, &err), INSITU_OK);
    assert_int_equal(rest_of(it, other, 12), n);
    assert_memory_equal(whole + 12, other + 12, (size_t)(n - 12) * sizeof *whole);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);

    /* Two ranks: rows 0 1 and 2 3 of each batch. */
    d.unit_chunks = 2;
    d.batch_size = 2;
    d.world = 2;
    for (d.rank = 0; d.rank < 2; d.rank++) {
      ld = open_or_fail(&d);
      it = open_iter_or_fail(ld, &pass);
      int rows = rest_of(it, other, 0);
      assert_int_equal(rows, n / 2);
      for (int i = 0; i < rows; i++)
        assert_memory_equal(&other[i], &whole[i / 2 * 4 + d.rank * 2 + i % 2], sizeof *other);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
    d.batch_size = 4;
    d.rank = d.world = 0;

    /* Another patch is another draw space. */
    insitu_axis larger[3];
    memcpy(larger, axes, sizeof larger);
    larger[2].patch = 7;
    d.axes = larger;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &pass);
    assert_int_equal(insitu_iter_restore(it, &after, &err), INSITU_E_STATE);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    d.axes = axes;
  }
  support_remove(root);
}

/* What makes no sense is refused with words. */
static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  struct support_array a = planes(2, (uint64_t[]){6, 20, 24}, (uint64_t[]){2, 8, 8});
  support_make(root, &a);
  struct {
    insitu_axis axes[3];
    uint64_t patches, halo;
    int32_t split_axis;
    insitu_status status;
    const char *says;
  } cases[] = {
      {{{.dim = "time"}, {.dim = "y", .patch = 21}}, 0, 0, 0, INSITU_E_SHAPE, "does not fit"},
      {{{.dim = "time"}, {.dim = "y", .patch = 18}}, 2, 2, 0, INSITU_E_SHAPE, "a halo of 2"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .start = 14}}, 2, 0, 0, INSITU_E_SPLIT,
          "no patch of 8 within [14, 20)"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .start = 3, .stop = 11}}, 2, 4, 0, INSITU_E_SPLIT,
          "with a halo of 4"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .stride = 4}}, 2, 0, 0, INSITU_E_ARG,
          "leave one of the two out"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8, .from = "2000"}}, 2, 0, 0, INSITU_E_ARG,
          "give start and stop"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8}}, 2, 0, 1, INSITU_E_ARG, "split_axis is an axis"},
      {{{.dim = "x", .patch = 3}, {.dim = "y", .patch = 8}}, 2, 0, 1, INSITU_E_ARG,
          "all axes have"},
      {{{.dim = "time"}, {.dim = "y"}}, 2, 0, 0, INSITU_E_ARG, "patches is set"},
      {{{.dim = "time"}, {.dim = "y"}}, 0, 1, 0, INSITU_E_ARG, "halo is set"},
      {{{.dim = "time"}, {.dim = "y", .patch = 8}}, (1 << 27) + 1, 0, 0, INSITU_E_ARG,
          "at most 134217728"},
      {{{.dim = "time"}, {.dim = "y", .patch = UINT64_MAX}}, 1, 0, 0, INSITU_E_ARG, "2^48"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_variable v = {.label = "a", .halo = cases[i].halo};
    insitu_loader_desc d = patches_of(root, &v, 1, cases[i].axes);
    d.n_axes = 2;
    d.split_axis = cases[i].split_axis;
    d.patches = cases[i].patches;
    refuse_or_fail(&d, cases[i].status, cases[i].says);
  }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_patches), cmocka_unit_test(even),
      cmocka_unit_test(reads), cmocka_unit_test(passes), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
