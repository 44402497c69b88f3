/* Rectilinear chunk grids: arrays whose chunks differ in length along any axis, written here, and
 * read whole and in batches. The model lists chunks and units one by one. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "unit_model.h"
#include <blosc.h>

enum { AXES = 4, LONGEST = UNIT_LONGEST, MOST = 20000, ARRAYS = 2, FILL = 9, RUBBISH = -777 };
static const char *const names[AXES] = {"t", "z", "y", "x"};

/* ---- arrays ---- */

/* The chunks of an array along one of its axes: those that hold some of the axis, and others. */
struct cut {
  int n, beyond;                              /* chunks; further ones behind the axis's end */
  int edge[2 * LONGEST], stored[2 * LONGEST]; /* of each: its indexes, its elements */
  int begin[2 * LONGEST + 1];                 /* the first index of each */
  int inner;                                  /* of a shard's chunks; 0: no shards */
};

enum { RAW, ZSTD, BLOSC, CODECS };

struct grid {
  const char *name;
  int n, axis[AXES]; /* the names of its axes */
  int order[AXES];   /* axis order[k] of it is stored k-th slowest */
  struct cut cut[AXES];
  struct cut read[AXES]; /* what one read returns: of shards, their chunks */
  int codec;
  bool padded, sharded, regular; /* regular: it is written as such */
  int absent;                    /* every so many-th object is missing; 0: none */
};

struct world {
  char root[600], manifest[600];
  struct grid grid[ARRAYS];
  int size[AXES];
  int along, n; /* the drawn axes are the names 0 to n - 1 */
  insitu_axis axes[AXES];
  insitu_variable variable[ARRAYS];
  int64_t steps[ARRAYS][3];
  insitu_loader_desc desc;
  int owner[LONGEST]; /* which part an index along `along` belongs to; -1: none */
  struct units units; /* of one part */
};

static int stored_of(const struct cut *c) {
  int most = 0;
  for (int i = 0; i < c->n; i++)
    if (c->stored[i] > most) most = c->stored[i];
  return most;
}

static bool stored_alike(const struct cut *c) {
  for (int i = 1; i < c->n; i++)
    if (c->stored[i] != c->stored[0]) return false;
  return true;
}

/* Whether the library takes the chunks for a regular grid's: see insitu__zarr_is_regular. */
static bool is_regular(const struct cut *c) {
  if (!stored_alike(c) || c->edge[0] != c->stored[0]) return false;
  for (int i = 1; i + 1 < c->n; i++)
    if (c->edge[i] != c->edge[0]) return false;
  return true;
}

/* Draws chunks. kind 0: a regular grid; 1: of any lengths; 2: stored with more elements than they
 * have; 3: stored all alike. */
static void draw_cut(struct cut *c, int size, int kind) {
  int most = 1 + (int)support_below((uint64_t)size), at = 0;
  memset(c, 0, sizeof *c);
  while (at < size) {
    int edge = kind ? 1 + (int)support_below((uint64_t)most) : most;
    if (kind && c->n && support_below(2)) edge = c->edge[c->n - 1]; /* runs */
    c->begin[c->n] = at;
    c->edge[c->n] = edge;
    c->stored[c->n++] = edge + (kind == 2 ? (int)support_below(3) : 0);
    at += edge;
  }
  c->begin[c->n] = at;
  for (int i = 0, all = stored_of(c); kind == 3 && i < c->n; i++) c->stored[i] = all;
  if (kind && !support_below(3)) c->beyond = 1 + (int)support_below(3);
  for (int i = 0; i < c->beyond; i++) c->edge[c->n + i] = c->stored[c->n + i] = 1;
}

static int chunk_of(const struct cut *c, int64_t index) {
  int i = 0;
  while (c->begin[i + 1] <= index) i++;
  return i;
}

/* The chunks of shards: the last one of a shard may have fewer indexes. */
static void draw_inner(struct cut *to, const struct cut *c, int size) {
  *to = *c;
  if (!c->inner) return;
  memset(to, 0, sizeof *to);
  for (int i = 0; i < c->n; i++)
    for (int at = 0; at < c->edge[i] && c->begin[i] + at < size; at += c->inner) {
      to->begin[to->n] = c->begin[i] + at;
      to->edge[to->n] = c->edge[i] - at < c->inner ? c->edge[i] - at : c->inner;
      to->stored[to->n++] = c->inner;
    }
  to->begin[to->n] = to->begin[to->n - 1] + to->edge[to->n - 1];
}

static void draw_grid(struct world *s, int which) {
  struct grid *g = &s->grid[which];
  g->name = which ? "b" : "a";
  g->n = s->n + (int)support_below((uint64_t)(AXES + 1 - s->n));
  if (which && support_below(2)) g->n = s->grid[0].n;
  g->codec = (int)support_below(CODECS);
  g->absent = support_below(3) ? 0 : 3 + (int)support_below(4);
  g->regular = !support_below(5);
  g->sharded = !g->regular && !support_below(4);
  g->padded = g->sharded || (!g->regular && !support_below(3));
  bool ragged = support_below(2); /* shards differ in shape */
  for (int d = 0; d < g->n; d++) g->axis[d] = g->order[d] = d;
  for (int d = g->n; d-- > 1 && support_below(2);) {
    int j = (int)support_below((uint64_t)d + 1), other = g->axis[d];
    g->axis[d] = g->axis[j];
    g->axis[j] = other;
  }
  for (int d = g->n; !g->sharded && d-- > 1 && !support_below(3);) {
    int j = (int)support_below((uint64_t)d + 1), other = g->order[d];
    g->order[d] = g->order[j];
    g->order[j] = other;
  }
  for (int d = 0; d < g->n; d++) {
    struct cut *c = &g->cut[d];
    int kind = g->regular ? 0 : g->sharded ? 3 : g->padded ? 2 + (int)support_below(2) : 1;
    if (!g->regular && !support_below(4)) kind = g->sharded ? 3 : 0;
    draw_cut(c, s->size[g->axis[d]], kind);
    g->read[d] = *c;
    if (!g->sharded) continue;
    int all = stored_of(c), inner = 1 + (int)support_below((uint64_t)all);
    c->inner = inner;
    for (int i = 0; i < c->n; i++) {
      if (ragged) all = c->edge[i];
      c->stored[i] = (all + inner - 1) / inner * inner;
    }
    for (int i = 0; i < c->beyond; i++) c->stored[c->n + i] = inner;
    draw_inner(&g->read[d], c, s->size[g->axis[d]]);
  }
}

/* ---- writing them ---- */

/* Lengths of chunks as JSON: numbers, and pairs of equal ones. */
static void put_lengths(char *to, const int *length, int n, bool one) {
  if (one) {
    sprintf(to, "%d", length[0]);
    return;
  }
  strcpy(to, "[");
  for (int i = 0, k; i < n; i = k) {
    for (k = i + 1; k < n && length[k] == length[i] && support_below(4); k++) continue;
    bool pair = k - i > 1 || !support_below(3);
    sprintf(to + strlen(to), "%s", i ? "," : "");
    sprintf(to + strlen(to), pair ? "[%d,%d]" : "%d", length[i], k - i);
  }
  strcat(to, "]");
}

static bool all_alike(const int *length, int n) {
  for (int i = 1; i < n; i++)
    if (length[i] != length[0]) return false;
  return true;
}

static void put_codec(char *to, int codec) {
  strcat(to, "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}");
  if (codec == ZSTD)
    strcat(to, ",{\"name\":\"zstd\",\"configuration\":{\"level\":1,\"checksum\":false}}");
  if (codec == BLOSC)
    strcat(to, ",{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":3,"
               "\"shuffle\":\"shuffle\",\"typesize\":4,\"blocksize\":0}}");
}

static void put_metadata(const struct world *s, const struct grid *g) {
  char text[16384], path[700], edges[4200] = "", stored[4200] = "", shape[64] = "", dims[64] = "",
                               inner[64] = "", order[64] = "", codecs[1024] = "", grid[9000];
  for (int d = 0; d < g->n; d++) {
    const struct cut *c = &g->cut[d];
    const char *comma = d ? "," : "";
    char one[1024];
    int n = c->n + c->beyond;
    sprintf(shape + strlen(shape), "%s%d", comma, s->size[g->axis[d]]);
    sprintf(dims + strlen(dims), "%s\"%s\"", comma, names[g->axis[d]]);
    sprintf(inner + strlen(inner), "%s%d", comma, c->inner);
    sprintf(order + strlen(order), "%s%d", comma, g->order[d]);
    put_lengths(one, c->edge, n, g->regular || (all_alike(c->edge, n) && support_below(2)));
    sprintf(edges + strlen(edges), "%s%s", comma, one);
    put_lengths(one, c->stored, n, all_alike(c->stored, n) && support_below(2));
    sprintf(stored + strlen(stored), "%s%s", comma, one);
  }
  bool turned = false;
  for (int d = 0; d < g->n; d++) turned = turned || g->order[d] != d;
  if (turned)
    sprintf(codecs, "{\"name\":\"transpose\",\"configuration\":{\"order\":[%s]}},", order);
  if (g->sharded)
    sprintf(codecs,
        "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[%s],\"codecs\":[",
        inner);
  put_codec(codecs, g->codec);
  if (g->sharded)
    strcat(codecs, "],\"index_codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":"
                   "\"little\"}}],\"index_location\":\"end\"}}");
  if (g->regular)
    sprintf(grid, "{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[%s]}}", edges);
  else if (g->padded)
    sprintf(grid,
        "{\"name\":\"rectilinear\",\"configuration\":{\"kind\":\"insitu.padded\","
        "\"chunk_shapes\":[%s],\"stored_shapes\":[%s]}}",
        edges, stored);
  else
    sprintf(grid,
        "{\"name\":\"rectilinear\",\"configuration\":{\"kind\":\"inline\",\"chunk_shapes\":[%s]}}",
        edges);
  sprintf(text,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%s],\"data_type\":\"int32\","
      "\"chunk_grid\":%s,\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":%d,"
      "\"codecs\":[%s],\"dimension_names\":[%s]}",
      shape, grid, FILL, codecs, dims);
  snprintf(path, sizeof path, "%s/%s/zarr.json", s->root, g->name);
  support_write(path, text, strlen(text));
}

/* Whether an object was not written. */
static bool is_absent(const struct grid *g, const int *object) {
  int number = 0;
  for (int d = 0; d < g->n; d++) number = number * 31 + object[d];
  return g->absent && number % g->absent == 0;
}

/* The element at some indexes, as it must be read. */
static int32_t element(const struct world *s, const struct grid *g, const int64_t *at) {
  int object[AXES];
  int32_t flat = 0;
  for (int d = 0; d < g->n; d++) {
    object[d] = chunk_of(&g->cut[d], at[d]);
    flat = flat * s->size[g->axis[d]] + (int32_t)at[d];
  }
  return is_absent(g, object) ? FILL : 100 + flat;
}

/* Encodes n elements. */
static size_t encode(const struct grid *g, const int32_t *from, size_t n, unsigned char *to) {
  if (g->codec == ZSTD) return ZSTD_compress(to, 4 * n + 1024, from, 4 * n, 1);
  if (g->codec == BLOSC)
    return (size_t)blosc_compress_ctx(
        3, BLOSC_SHUFFLE, 4, 4 * n, from, to, 4 * n + 1024, "lz4", 0, 1);
  memcpy(to, from, 4 * n);
  return 4 * n;
}

/* The elements of a box of an object, as it is stored: from element lo on, n of each axis. */
static size_t put_box(const struct world *s, const struct grid *g, const int *object, const int *lo,
    const int *n, int32_t *to) {
  size_t all = 1;
  for (int d = 0; d < g->n; d++) all *= (size_t)n[d];
  for (size_t i = 0; i < all; i++) {
    size_t rest = i;
    int64_t at[AXES];
    bool own = true;
    for (int k = g->n; k-- > 0;) {
      int d = g->order[k], within = lo[d] + (int)(rest % (size_t)n[d]);
      rest /= (size_t)n[d];
      at[d] = g->cut[d].begin[object[d]] + within;
      own = own && within < g->cut[d].edge[object[d]] && at[d] < s->size[g->axis[d]];
    }
    to[i] = own ? element(s, g, at) : RUBBISH;
  }
  return all;
}

static void put_object(const struct world *s, const struct grid *g, const int *object) {
  static int32_t elements[MOST];
  static unsigned char bytes[8 * MOST];
  char path[800];
  int zero[AXES] = {0}, n[AXES], inner[AXES], across[AXES], chunks = 1;
  size_t used = 0;
  snprintf(path, sizeof path, "%s/%s/c", s->root, g->name);
  for (int d = 0; d < g->n; d++) {
    sprintf(path + strlen(path), "/%d", object[d]);
    n[d] = g->cut[d].stored[object[d]];
    inner[d] = g->cut[d].inner;
    across[d] = g->sharded ? n[d] / inner[d] : 1;
    chunks *= across[d];
  }
  if (is_absent(g, object)) return;
  if (!g->sharded) {
    size_t all = put_box(s, g, object, zero, n, elements);
    support_write(path, bytes, encode(g, elements, all, bytes));
    return;
  }
  static unsigned char index[16 * MOST];
  for (int i = 0; i < chunks; i++) {
    int lo[AXES], rest = i;
    for (int d = g->n; d-- > 0; rest /= across[d]) lo[d] = rest % across[d] * inner[d];
    size_t all = put_box(s, g, object, lo, inner, elements);
    size_t got = encode(g, elements, all, bytes + used);
    support_store64(index + 16 * i, used);
    support_store64(index + 16 * i + 8, got);
    used += got;
  }
  memcpy(bytes + used, index, 16 * (size_t)chunks);
  support_write(path, bytes, used + 16 * (size_t)chunks);
}

static void put_array(const struct world *s, const struct grid *g) {
  int object[AXES] = {0}, objects = 1;
  put_metadata(s, g);
  for (int d = 0; d < g->n; d++) objects *= g->cut[d].n;
  for (int i = 0; i < objects; i++) {
    int rest = i;
    for (int d = g->n; d-- > 0; rest /= g->cut[d].n) object[d] = rest % g->cut[d].n;
    put_object(s, g, object);
  }
}

static void put_world(struct world *s) {
  char path[700];
  const char *group = "{\"zarr_format\":3,\"node_type\":\"group\"}";
  support_remove(s->root);
  snprintf(path, sizeof path, "%s/zarr.json", s->root);
  support_write(path, group, strlen(group));
  for (int i = 0; i < ARRAYS; i++) put_array(s, &s->grid[i]);
}

/* ---- whole reads ---- */

/* Reads a box of an array with a step along each axis, and compares. */
static void check_read(const struct world *s, insitu_loader *ld, const struct grid *g) {
  static int32_t got[MOST];
  char select[256] = "";
  int64_t start[AXES], step[AXES], at[AXES];
  size_t n[AXES], all = 1;
  for (int d = 0; d < g->n; d++) {
    int size = s->size[g->axis[d]];
    step[d] = support_below(2) ? 1 : 1 + (int64_t)support_below(3);
    start[d] = (int64_t)support_below((uint64_t)size);
    int64_t stop = start[d] + 1 + (int64_t)support_below((uint64_t)(size - start[d]));
    n[d] = (size_t)((stop - start[d] + step[d] - 1) / step[d]);
    bool falls = !support_below(4);
    if (falls) {
      start[d] += (int64_t)(n[d] - 1) * step[d];
      step[d] = -step[d];
      int64_t end = start[d] + (int64_t)n[d] * step[d];
      sprintf(select + strlen(select), "%s%s=[%d:%s%.0d:%d]", d ? ";" : "", names[g->axis[d]],
          (int)start[d], end == 0 ? "0" : "", end > 0 ? (int)end : 0, (int)step[d]);
    } else {
      sprintf(select + strlen(select), "%s%s=[%d:%d:%d]", d ? ";" : "", names[g->axis[d]],
          (int)start[d], (int)stop, (int)step[d]);
    }
    all *= n[d];
  }
  insitu_variable v = {.path = g->name, .select = select};
  insitu_shape shape;
  insitu_error err = {0};
  memset(got, 0, sizeof got);
  if (insitu_read(ld, &v, got, sizeof got, &shape, &err)) fail_msg("%s: %s", select, err.message);
  for (size_t i = 0; i < all; i++) {
    size_t rest = i;
    for (int d = g->n; d-- > 0; rest /= n[d]) at[d] = start[d] + (int64_t)(rest % n[d]) * step[d];
    if (got[i] != element(s, g, at))
      fail_msg(
          "%s of %s: element %d is %d, not %d", select, g->name, (int)i, got[i], element(s, g, at));
  }
}

/* ---- the model of units ---- */

static int axis_of(const struct grid *g, int name) {
  for (int d = 0; d < g->n; d++)
    if (g->axis[d] == name) return d;
  return -1;
}

/* The chunks that groups of a drawn axis are made of: of the first array that has the longest one,
 * and chunks that differ. */
static const struct cut *reference(const struct world *s, int k) {
  const struct cut *found = NULL;
  int longest = 0;
  for (int i = 0; i < ARRAYS; i++) {
    const struct cut *c = &s->grid[i].read[axis_of(&s->grid[i], k)];
    int edge = 0;
    for (int j = 0; j < c->n; j++)
      if (c->edge[j] > edge) edge = c->edge[j];
    if (edge > longest || (edge == longest && is_regular(found))) found = c;
    if (edge > longest) longest = edge;
  }
  return found;
}

static bool may(const struct world *s, int part, int64_t x) {
  const insitu_axis *axis = &s->axes[s->along];
  int64_t size = s->size[s->along], stop = axis->stop ? axis->stop : size;
  if (part == INSITU_ALL ? x < axis->start || x >= stop : s->owner[x] != part) return false;
  for (int which = 0; which < ARRAYS; which++) {
    const insitu_variable *v = &s->variable[which];
    for (uint64_t i = 0; i < (v->n_steps ? v->n_steps : 1); i++) {
      int64_t y = x + v->offset + (v->n_steps ? v->steps[i] : 0);
      if (y < 0 || y >= size) return false;
      if (s->desc.split_spill) continue;
      if (part == INSITU_ALL ? y < axis->start || y >= stop : s->owner[y] != part) return false;
    }
  }
  return true;
}

static void list_line(struct world *s, int k, int part) {
  const insitu_axis *axis = &s->axes[k];
  const struct cut *c = reference(s, k);
  struct line *line = &s->units.line[k];
  int64_t size = s->size[k], stop = axis->stop ? axis->stop : size;
  int stride = axis->stride ? (int)axis->stride : 1, last = -1, least = c->edge[0];
  int tiles = k == s->along ? (int)s->desc.unit_chunks : 1;
  for (int i = 0; i < c->n; i++)
    if (c->edge[i] < least) least = c->edge[i];
  if (is_regular(c)) least = c->edge[0];
  tiles *= stride > tiles * least ? (stride + tiles * least - 1) / (tiles * least) : 1;
  bool hole = true;
  line->n = 0;
  for (int64_t x = axis->start; x < stop; x++) {
    if (k == s->along && !may(s, part, x)) {
      hole = true;
      continue;
    }
    if ((x - axis->start) % stride) continue;
    int group = chunk_of(c, x) / tiles;
    if (hole || group != last) line->length[line->n++] = 0;
    hole = false;
    last = group;
    line->at[line->n - 1][line->length[line->n - 1]++] = x;
  }
}

static void list_part(struct world *s, int part) {
  s->units.n = s->n;
  for (int k = 0; k < s->n; k++) list_line(s, k, part);
  unit_list(&s->units);
}

/* ---- batches ---- */

/* All elements of a row of an array of the batch. */
static void check_row(const struct world *s, const insitu_batch *b, int which, uint64_t row) {
  const insitu_array *a = &b->arrays[which];
  const struct grid *g = &s->grid[which];
  const insitu_variable *v = &s->variable[which];
  const int64_t *anchor = b->axis_indices + row * b->n_axes;
  uint64_t each = 1, n_steps = v->n_steps ? v->n_steps : 1;
  int64_t at[AXES];
  for (int d = 0; d < g->n; d++)
    if (g->axis[d] >= s->n) each *= (uint64_t)s->size[g->axis[d]];
  for (uint64_t k = 0; k < n_steps * each; k++) {
    uint64_t rest = k % each;
    for (int d = g->n; d-- > 0;) {
      int name = g->axis[d];
      at[d] = name < s->n ? anchor[name] : (int64_t)(rest % (uint64_t)s->size[name]);
      if (name >= s->n) rest /= (uint64_t)s->size[name];
      if (name == s->along) at[d] += v->offset + (v->n_steps ? v->steps[k / each] : 0);
    }
    int32_t is = ((const int32_t *)a->data)[row * n_steps * each + k];
    if (is != element(s, g, at))
      fail_msg("%s: row %d (anchor %d), element %d is %d, not %d", a->name, (int)row,
          (int)anchor[0], (int)k, is, element(s, g, at));
  }
}

static uint64_t reads_of(insitu_loader *ld) {
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  return stats.reads;
}

/* One epoch of a rank's iterator against the model. reads: of the loader when it was opened. */
static void check_epoch(struct world *s, insitu_loader *ld, insitu_iter *it,
    const insitu_iter_desc *d, uint64_t epoch, int rank, uint64_t reads) {
  insitu_plan plan;
  insitu_error err = {0};
  if (insitu_loader_plan(ld, d, &plan, &err)) fail_msg("%s", err.message);
  assert_int_equal(plan.units, s->units.n_units);
  assert_int_equal(plan.samples, s->units.n_anchors);
  bool shuffled = d->order == INSITU_SHUFFLED;
  insitu_order *o = shuffled ? unit_order(&s->units, &s->desc, &plan, epoch) : NULL;
  uint64_t world = (uint64_t)s->desc.world, per = s->desc.batch_size * world, rows = 0;
  insitu_batch *b;
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++, rows++) {
      int64_t want[AXES];
      const int64_t *anchor = b->axis_indices + row * b->n_axes;
      if (shuffled) {
        /* The global batch's rows go round the lanes, of which a rank has a block. */
        uint64_t lanes = plan.lanes / world, global = row / lanes * plan.lanes + row % lanes;
        unit_shuffled(&s->units, o, b->index * per + global + (uint64_t)rank * lanes, want);
        assert_memory_equal(anchor, want, (size_t)s->n * sizeof *want);
      } else if (world == 1) {
        unit_sequential(&s->units, (int)rows, want);
        assert_memory_equal(anchor, want, (size_t)s->n * sizeof *want);
      }
      for (int which = 0; which < ARRAYS; which++) check_row(s, b, which, row);
    }
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
  if (shuffled) assert_int_equal(rows, plan.batches * s->desc.batch_size);
  if (!shuffled && world == 1) assert_int_equal(rows, plan.samples);
  if (!epoch && !plan.estimated && !s->desc.cache_memory)
    assert_int_equal(reads_of(ld) - reads, plan.reads);
  insitu_order_close(&o);
}

/* Parts by a manifest: each reference chunk belongs to one of them, or to none. */
static void draw_split(struct world *s) {
  const struct cut *c = reference(s, s->along);
  const insitu_axis *axis = &s->axes[s->along];
  int part[2 * LONGEST], longest = 0;
  char lists[3][200] = {"", "", ""}, text[2000], sizes[600] = "";
  for (int i = 0; i < c->n; i++) {
    part[i] = (int)support_below(4) - 1;
    if (part[i] >= 0)
      sprintf(lists[part[i]] + strlen(lists[part[i]]), "%s%d", *lists[part[i]] ? "," : "", i);
    sprintf(sizes + strlen(sizes), "%s[%d,1]", i ? "," : "", c->edge[i]);
    if (c->edge[i] > longest) longest = c->edge[i];
  }
  snprintf(text, sizeof text,
      "{\"n_chunks\":%d,\"sample_chunk_size\":%d,\"n_samples\":%d,\"seed\":0,\"chunks\":{"
      "\"train\":[%s],\"val\":[%s],\"test\":[%s]}%s%s%s}",
      c->n, longest, s->size[s->along], lists[0], lists[1], lists[2],
      is_regular(c) ? "" : ",\"sample_chunk_sizes\":[", is_regular(c) ? "" : sizes,
      is_regular(c) ? "" : "]");
  snprintf(s->manifest, sizeof s->manifest, "%s", support_path("grids.json"));
  support_write(s->manifest, text, strlen(text));
  s->desc.manifest = s->manifest;
  int64_t stop = axis->stop ? axis->stop : s->size[s->along];
  for (int64_t x = 0; x < s->size[s->along]; x++)
    s->owner[x] = x >= axis->start && x < stop ? part[chunk_of(c, x)] : -1;
}

static void draw_world(struct world *s) {
  int m = any_mode();
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", support_path("grids"));
  s->n = 1 + (int)support_below(2);
  s->along = (int)support_below((uint64_t)s->n);
  s->size[0] = 2 + (int)support_below(LONGEST - 1);
  s->size[1] = 1 + (int)support_below(s->n == 2 ? LONGEST : 6);
  for (int k = 2; k < AXES; k++) s->size[k] = 1 + (int)support_below(5);
  for (int i = 0; i < ARRAYS; i++) draw_grid(s, i);
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = ARRAYS,
      .axes = s->axes,
      .n_axes = (uint64_t)s->n,
      .split_axis = s->along,
      .batch_size = 1 + support_below(4),
      .world = 1,
      .unit_chunks = 1 + support_below(3),
      .block_chunks = 1 + support_below(12),
      .seed = support_random(),
      .split_spill = !support_below(4),
      .hold_epoch = 1,
      .check = (int32_t)support_below(2),
      .cache_memory = support_below(3) ? 0 : 1 << 20,
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_ERROR,
      .io = modes[m].io,
      .inline_io = (int32_t)support_below(2)};
  if (support_below(3)) s->desc.cache_memory = 0;
  for (int k = 0; k < s->n; k++) {
    insitu_axis *axis = &s->axes[k];
    axis->dim = names[k];
    if (!support_below(3)) axis->start = (int64_t)support_below((uint64_t)s->size[k]);
    if (!support_below(3))
      axis->stop = axis->start + 1 + (int64_t)support_below((uint64_t)(s->size[k] - axis->start));
    if (!support_below(3)) axis->stride = 1 + support_below(4);
  }
  for (int i = 0; i < ARRAYS; i++) {
    insitu_variable *v = &s->variable[i];
    v->label = s->grid[i].name;
    if (!support_below(3)) v->offset = (int64_t)support_below(5) - 2;
    if (support_below(2)) continue;
    v->n_steps = 1 + support_below(3);
    v->steps = s->steps[i];
    for (uint64_t k = 0; k < v->n_steps; k++)
      s->steps[i][k] = (int64_t)k * (1 + (int64_t)support_below(2));
  }
}

static void check_parts(struct world *s) {
  for (int part = INSITU_TRAIN; part <= INSITU_ALL; part++)
    for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
      insitu_iter_desc d = {.api = INSITU_API, .split = part, .order = order};
      insitu_iter *it;
      insitu_error err = {0};
      list_part(s, part);
      int need = order == INSITU_SHUFFLED ? (int)s->desc.batch_size : 1;
      insitu_loader *ld = open_or_fail(&s->desc);
      uint64_t reads = reads_of(ld);
      insitu_status status = insitu_iter_open(ld, &d, &it, &err);
      if (s->units.n_anchors < need) {
        assert_int_equal(status, INSITU_E_SPLIT);
      } else {
        if (status) fail_msg("%s", err.message);
        for (uint64_t epoch = 0; epoch < 2; epoch++)
          check_epoch(s, ld, it, &d, epoch, 0, epoch ? UINT64_MAX : reads);
        insitu_iter_close(&it);
      }
      insitu_loader_close(&ld);
    }
}

static struct world world;

/* Grids, windows, steps, parts, orders: every value and every place. */
static void test_random_grids(void **state) {
  (void)state;
  int rounds = support_rounds(60);
  for (int round = 0; round < rounds; round++) {
    support_random_state = 1 + (uint64_t)round;
    if (getenv("GRIDS_SEED")) support_random_state += strtoull(getenv("GRIDS_SEED"), NULL, 10);
    draw_world(&world);
    put_world(&world);
    insitu_loader_desc plain = {
        .api = INSITU_API, .url = world.root, .plan_only = 1, .on_absent_chunk = INSITU_FILL};
    insitu_loader *ld = open_or_fail(&plain);
    for (int k = 0; k < 6; k++) check_read(&world, ld, &world.grid[k % ARRAYS]);
    insitu_loader_close(&ld);
    draw_split(&world);
    check_parts(&world);
  }
}

/* ---- ranks, states, manifests ---- */

/* A world with one drawn axis of chunks of any lengths. lengths: those of array a, ended by 0. */
static void plain_world(struct world *s, const int *lengths, int size) {
  int m = any_mode();
  memset(s, 0, sizeof *s);
  snprintf(s->root, sizeof s->root, "%s", support_path("plain"));
  s->n = 1;
  s->size[0] = size;
  s->size[1] = 3;
  for (int i = 0; i < ARRAYS; i++) {
    struct grid *g = &s->grid[i];
    g->name = i ? "b" : "a";
    g->n = 2;
    for (int d = 0; d < 2; d++) g->axis[d] = g->order[d] = d;
    g->codec = i ? RAW : ZSTD;
    for (struct cut *c = &g->cut[0]; lengths[c->n]; c->n++) {
      c->edge[c->n] = c->stored[c->n] = lengths[c->n];
      c->begin[c->n + 1] = c->begin[c->n] + lengths[c->n];
    }
    draw_cut(&g->cut[1], 3, i);
    for (int d = 0; d < 2; d++) g->read[d] = g->cut[d];
    s->variable[i].label = g->name;
  }
  s->variable[1].offset = 1;
  s->desc = (insitu_loader_desc){.api = INSITU_API,
      .url = s->root,
      .variables = s->variable,
      .n_variables = ARRAYS,
      .sample_dim = "t",
      .batch_size = 2,
      .world = 1,
      .unit_chunks = 1,
      .block_chunks = 4,
      .split_spill = 1,
      .split = {{.fraction = 0.5}, {.fraction = 0.25}, {.fraction = 0.25}},
      .seed = 5,
      .hold_epoch = 1,
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_ERROR,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  put_world(s);
}

static const int months[] = {4, 1, 5, 2, 3, 5, 1, 3, 0}; /* 24 */

/* What is left of an epoch's anchors from where the iterator stands. */
static int rest_of(insitu_iter *it, int64_t *anchors, insitu_state *after, int stop) {
  insitu_error err = {0};
  insitu_batch *b;
  insitu_status status = INSITU_OK;
  int n = 0, batches = 0;
  while (batches != stop && (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t row = 0; row < b->rows; row++) anchors[n++] = b->sample_indices[row];
    if (after) *after = b->after;
    insitu_batch_release(&b);
    batches++;
  }
  if (status && status != INSITU_END) fail_msg("%s", err.message);
  return n;
}

/* Fractions count chunks along the edges: half of eight chunks are the first 12 samples. Two ranks
 * share an epoch, and a state goes on in another world. */
static void test_ranks_and_states(void **state) {
  insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_TRAIN};
  int64_t all[64], half[2][64], later[64];
  insitu_state after;
  insitu_iter *it;
  insitu_error err = {0};
  (void)state;
  plain_world(&world, months, 24);
  world.desc.batch_size = 4;
  insitu_loader *ld = open_or_fail(&world.desc);
  assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_OK);
  int n = rest_of(it, all, NULL, -1), seen[24] = {0};
  assert_int_equal(n, 12);
  for (int i = 0; i < n; i++) {
    assert_true(all[i] >= 0 && all[i] < 12);
    assert_int_equal(seen[all[i]]++, 0);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  world.desc.batch_size = 2;
  world.desc.world = 2;
  world.desc.lanes = 2;
  for (int rank = 0; rank < 2; rank++) {
    world.desc.rank = rank;
    ld = open_or_fail(&world.desc);
    assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_OK);
    assert_int_equal(rest_of(it, half[rank], &after, 1), 2);
    assert_int_equal(rest_of(it, half[rank] + 2, NULL, -1), 4);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  world.desc.world = 1;
  world.desc.rank = 0;
  world.desc.batch_size = 4;
  ld = open_or_fail(&world.desc);
  assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_OK);
  n = rest_of(it, all, NULL, -1);
  assert_int_equal(n, 12);
  for (int i = 0; i < n; i++) assert_int_equal(all[i], half[i % 2][i / 4 * 2 + i % 4 / 2]);
  if (insitu_iter_restore(it, &after, &err)) fail_msg("%s", err.message);
  assert_int_equal(rest_of(it, later, NULL, -1), 8);
  assert_memory_equal(later, all + 4, 8 * sizeof *later);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* The status of restoring a state under another archive. */
static insitu_status restored(const int *lengths, int size, const insitu_state *state) {
  insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_TRAIN};
  insitu_iter *it;
  insitu_error err = {0};
  plain_world(&world, lengths, size);
  world.desc.split[0] = (insitu_split_range){.stop = 13};
  world.desc.split[1] = world.desc.split[2] = (insitu_split_range){.stop = 0};
  insitu_loader *ld = open_or_fail(&world.desc);
  assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_OK);
  insitu_status status = insitu_iter_restore(it, state, &err);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return status;
}

/* A state knows where chunks lie, as far as its part reaches: what is appended changes nothing. */
static void test_states_of_grids(void **state) {
  static const int longer[] = {4, 1, 5, 2, 3, 5, 1, 3, 2, 4, 0}; /* 30 */
  static const int moved[] = {1, 4, 5, 2, 3, 5, 1, 3, 0};        /* inside the part */
  static const int behind[] = {4, 1, 5, 2, 3, 1, 5, 3, 0};       /* behind it */
  static const int even[] = {5, 5, 5, 5, 5, 0};
  insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_TRAIN};
  int64_t anchors[64];
  insitu_state after;
  insitu_iter *it;
  insitu_error err = {0};
  (void)state;
  plain_world(&world, months, 24);
  world.desc.split[0] = (insitu_split_range){.stop = 13};
  world.desc.split[1] = world.desc.split[2] = (insitu_split_range){.stop = 0};
  insitu_loader *ld = open_or_fail(&world.desc);
  assert_int_equal(insitu_iter_open(ld, &d, &it, &err), INSITU_OK);
  rest_of(it, anchors, &after, 1);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  assert_int_equal(restored(months, 24, &after), INSITU_OK);
  assert_int_equal(restored(longer, 30, &after), INSITU_OK);
  assert_int_equal(restored(behind, 24, &after), INSITU_OK);
  assert_int_equal(restored(moved, 24, &after), INSITU_E_STATE);
  assert_int_equal(restored(even, 25, &after), INSITU_E_STATE);
}

/* A manifest has the lengths of chunks, and is refused by an archive that has others. */
static void test_manifests(void **state) {
  static const int moved[] = {1, 4, 5, 2, 3, 5, 1, 3, 0};
  static const int even[] = {5, 5, 5, 5, 5, 0};
  insitu_loader *ld;
  insitu_error err = {0};
  char path[600], text[2000];
  (void)state;
  plain_world(&world, months, 24);
  world.desc.split_shuffled = 1;
  snprintf(path, sizeof path, "%s", support_path("saved.json"));
  ld = open_or_fail(&world.desc);
  if (insitu_manifest_save(ld, path, &err)) fail_msg("%s", err.message);
  insitu_loader_close(&ld);
  FILE *f = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  assert_non_null(strstr(text, "\"n_chunks\": 8, \"sample_chunk_size\": 5, \"n_samples\": 24"));
  assert_non_null(strstr(text, "\"sample_chunk_sizes\": [[4, 1], [1, 1], [5, 1], [2, 1]"));
  world.desc.manifest = path;
  ld = open_or_fail(&world.desc);
  insitu_loader_close(&ld);
  for (int i = 0; i < 2; i++) {
    plain_world(&world, i ? even : moved, 24);
    world.desc.manifest = path;
    assert_int_equal(insitu_loader_open(&world.desc, &ld, &err), INSITU_E_SPLIT);
  }
  assert_non_null(strstr(err.message, "n_chunks"));
}

/* ---- patches and lists ---- */

/* Boxes along axes whose chunks differ in length: every value, and every patch of a grid once. */
static void check_patches(struct world *s) {
  insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
  insitu_axis axes[] = {
      {.dim = "t"}, {.dim = "z", .patch = 1 + support_below((uint64_t)s->size[1])}};
  const struct grid *g = &s->grid[0];
  uint64_t patch = axes[1].patch, rows = 0;
  insitu_variable v = {.label = "a"};
  insitu_error err = {0};
  insitu_iter *it;
  insitu_batch *b;
  insitu_status status;
  s->desc.variables = &v;
  s->desc.n_variables = 1;
  s->desc.axes = axes;
  s->desc.n_axes = 2;
  s->desc.split_axis = 0;
  s->desc.patches = support_below(2) ? 3 : 0;
  s->desc.manifest = NULL;
  s->desc.batch_size = 1;
  s->desc.cache_memory = 0;
  insitu_loader *ld = open_or_fail(&s->desc);
  if (insitu_iter_open(ld, &d, &it, &err)) fail_msg("%s", err.message);
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    const int64_t *anchor = b->axis_indices;
    const int32_t *data = b->arrays[0].data;
    int64_t at[AXES];
    uint64_t n = 1;
    for (int k = 1; k < b->arrays[0].ndim; k++) n *= (uint64_t)b->arrays[0].shape[k];
    for (uint64_t i = 0; i < n; i++) {
      uint64_t rest = i;
      for (int e = g->n; e-- > 0;) {
        int name = g->axis[e];
        uint64_t length = name == 1 ? patch : (uint64_t)s->size[name];
        at[e] = anchor[0];
        if (name == 0) continue;
        at[e] = (int64_t)(rest % length) + (name == 1 ? anchor[1] : 0);
        rest /= length;
      }
      assert_int_equal(data[i], element(s, g, at));
    }
    rows++;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s", err.message);
  uint64_t each = s->desc.patches ? 3 : (uint64_t)s->size[1] / patch;
  assert_int_equal(rows, (uint64_t)s->size[0] * each);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

static void test_patches(void **state) {
  (void)state;
  int rounds = support_rounds(30);
  for (int round = 0; round < rounds; round++) {
    support_random_state = 100 + (uint64_t)round;
    if (getenv("GRIDS_SEED")) support_random_state += strtoull(getenv("GRIDS_SEED"), NULL, 10);
    draw_world(&world);
    if (world.n == 1 && world.grid[0].n < 2) continue;
    put_world(&world);
    check_patches(&world);
  }
}

/* Lists of samples: their cells are chunks along the edges. */
static void check_list(struct world *s) {
  insitu_iter_desc d = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
  int64_t list[LONGEST * LONGEST * 2];
  int space = 1, n = 0, found = 0;
  insitu_error err = {0};
  insitu_iter *it;
  insitu_batch *b;
  insitu_status status;
  for (int k = 0; k < s->n; k++) {
    space *= s->size[k];
    s->axes[k].start = s->axes[k].stop = 0;
    s->axes[k].stride = 0;
  }
  for (int i = 0; i < space; i++) {
    if (support_below(3) && n) continue;
    for (int k = s->n, rest = i; k-- > 0; rest /= s->size[k])
      list[n * s->n + k] = rest % s->size[k];
    n++;
  }
  for (int i = 0; i < ARRAYS; i++) {
    s->variable[i].offset = 0;
    s->variable[i].n_steps = 0;
    s->variable[i].steps = NULL;
  }
  s->desc.samples = list;
  s->desc.n_samples = (uint64_t)n;
  s->desc.manifest = NULL;
  s->desc.batch_size = 1;
  insitu_loader *ld = open_or_fail(&s->desc);
  for (int order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++, found = 0) {
    bool seen[LONGEST * LONGEST] = {false};
    d.order = order;
    if (insitu_iter_open(ld, &d, &it, &err)) fail_msg("%s", err.message);
    while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
      for (uint64_t row = 0; row < b->rows; row++, found++) {
        const int64_t *anchor = b->axis_indices + row * b->n_axes;
        int which = -1;
        for (int i = 0; i < n && which < 0; i++)
          if (!memcmp(anchor, list + i * s->n, (size_t)s->n * sizeof *anchor)) which = i;
        assert_true(which >= 0 && !seen[which]);
        seen[which] = true;
        for (int i = 0; i < ARRAYS; i++) check_row(s, b, i, row);
      }
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s: %s", insitu_status_name(status), err.message);
    assert_int_equal(found, n);
    insitu_iter_close(&it);
  }
  insitu_loader_close(&ld);
}

static void test_lists(void **state) {
  (void)state;
  int rounds = support_rounds(30);
  for (int round = 0; round < rounds; round++) {
    support_random_state = 200 + (uint64_t)round;
    if (getenv("GRIDS_SEED")) support_random_state += strtoull(getenv("GRIDS_SEED"), NULL, 10);
    draw_world(&world);
    put_world(&world);
    check_list(&world);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grids),
      cmocka_unit_test(test_ranks_and_states), cmocka_unit_test(test_states_of_grids),
      cmocka_unit_test(test_manifests), cmocka_unit_test(test_patches),
      cmocka_unit_test(test_lists)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
