/* libFuzzer: split manifests. Input: four characters (gap, chunks of a unit, how reads reach out,
 * spill), then the manifest. The archive is the one that the manifest describes. A manifest that is
 * taken gives disjoint parts of existing chunks, reads back equal when it is printed, and cuts into
 * units that hold each anchor once, as a count over all samples says. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

enum { MOST = 3000 }; /* samples that are counted one by one */

static uint64_t fact(const struct insitu__text_json *j, const char *key, uint64_t most) {
  uint64_t v;
  return insitu__text_json_u64(j, insitu__text_json_get(j, 0, key), &v) && v && v <= most ? v : 7;
}

/* Which part a sample is in by the manifest's lists alone, before the gap; -1: none. */
static void owners(
    const struct insitu__text_json *j, uint64_t samples, uint64_t chunk, int *owner) {
  int lists = insitu__text_json_get(j, 0, "chunks");
  for (uint64_t x = 0; x < samples; x++) owner[x] = -1;
  if (lists < 0) { /* the default fractions of the desc: all of it is train */
    for (uint64_t x = 0; x < samples; x++) owner[x] = 0;
    return;
  }
  for (int p = 0; p < 3; p++) {
    int list = insitu__text_json_get(j, lists, insitu__split_names[p]);
    for (int t = insitu__text_json_first(j, list); t >= 0; t = insitu__text_json_next(j, t)) {
      uint64_t c;
      FUZZ_HOLDS(insitu__text_json_u64(j, t, &c) && c <= (samples - 1) / chunk);
      for (uint64_t x = c * chunk; x < samples && x < (c + 1) * chunk; x++) {
        FUZZ_HOLDS(owner[x] == -1);
        owner[x] = p;
      }
    }
  }
}

/* Which samples the manifest's lists exclude. */
static void exclude(const struct insitu__text_json *j, uint64_t samples, bool *excluded) {
  int beside = insitu__text_json_get(j, 0, "excluded");
  int within = insitu__text_json_get(j, insitu__text_json_get(j, 0, "chunks"), "excluded");
  memset(excluded, 0, samples * sizeof *excluded);
  for (int which = 0; which < 2; which++) {
    int list = which ? within : beside;
    if (list < 0) continue;
    for (int t = insitu__text_json_first(j, list); t >= 0; t = insitu__text_json_next(j, t)) {
      int64_t lo, hi;
      FUZZ_HOLDS(insitu__text_json_i64(j, insitu__text_json_get(j, t, "start"), &lo) &&
                 insitu__text_json_i64(j, insitu__text_json_get(j, t, "stop"), &hi) && lo >= 0 &&
                 lo < hi && hi <= (int64_t)samples);
      for (int64_t x = lo; x < hi; x++) excluded[x] = true;
    }
  }
}

static void counted(const struct insitu__split *s, const insitu_loader_desc *d,
    const struct insitu__text_json *j, const struct insitu__geometry *g) {
  const struct insitu__geometry_array *a = &g->arrays[0];
  uint64_t samples = g->samples;
  static int owner[MOST], kept[MOST];
  static bool excluded[MOST];
  owners(j, samples, g->chunk, owner);
  exclude(j, samples, excluded);
  for (uint64_t x = 0; x < samples; x++)
    if (excluded[x]) owner[x] = -1;
  /* gap samples behind another part's last one are nobody's */
  for (uint64_t x = 0; x < samples; x++) {
    kept[x] = owner[x];
    for (uint64_t y = x; kept[x] >= 0 && y-- > 0 && x - y <= d->split_gap;)
      if (owner[y] >= 0 && owner[y] != owner[x]) kept[x] = -1;
  }
  for (int p = 0; p < 4; p++) {
    uint64_t anchors = 0, units = 0, last = UINT64_MAX;
    for (uint64_t x = 0; x < samples; x++) {
      bool mine = p == INSITU_ALL || kept[x] == p, inside = !excluded[x];
      for (uint64_t i = 0; i < a->n_views; i++) {
        int64_t y = (int64_t)x + a->views[i].delta;
        inside = inside && y >= 0 && y < (int64_t)samples && !excluded[y] &&
                 (d->split_spill || p == INSITU_ALL || kept[y] == p);
      }
      struct insitu__split_unit u, same;
      int64_t at = (int64_t)x;
      insitu__split_find(&s->part[p], &at, &u);
      FUZZ_HOLDS(u.lo[0] <= at && at < u.hi[0] && !u.none == (mine && inside));
      if (u.none) continue;
      FUZZ_HOLDS(u.unit[0] == (u.lo[0] == at ? units : last) &&
                 u.lo[0] / (int64_t)s->unit_rows == (u.hi[0] - 1) / (int64_t)s->unit_rows);
      insitu__split_unit_at(&s->part[p], true, u.unit[0], &same);
      FUZZ_HOLDS(same.lo[0] == u.lo[0] && same.hi[0] == u.hi[0]);
      units += u.lo[0] == at;
      last = u.unit[0];
      anchors++;
    }
    FUZZ_HOLDS(s->part[p].anchors == anchors && s->part[p].units == units &&
               s->part[p].left[INSITU_DROP_SPLIT_EDGE] == anchors);
  }
}

static void printed(
    const struct insitu__split *s, const insitu_loader_desc *d, const struct insitu__geometry *g) {
  struct insitu__split again = {0};
  struct insitu__text_buffer b = {0};
  insitu__split_print(s, &b, g, 5);
  FUZZ_HOLDS(!b.failed);
  FUZZ_HOLDS(insitu__split_init(&again, d, b.text, b.n, g, NULL) == INSITU_OK);
  for (int p = 0; p < INSITU__SPLIT_PARTS; p++) FUZZ_HOLDS(again.part[p].hash == s->part[p].hash);
  insitu__split_free(&again);
  insitu__text_buffer_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 4) return 0;
  static const int64_t reach[8][3] = {
      {0}, {-1, 0, 1}, {0, 1, 2}, {-2, -1, 0}, {0, 5, 30}, {-7, 3, 4}, {-1000, 0, 0}, {1, 1, 1}};
  insitu_loader_desc d = {.manifest = "m.json",
      .split_gap = data[0] & 15,
      .unit_chunks = 1 + (data[1] & 3),
      .split[0].fraction = 1,
      .split_spill = data[3] & 1};
  struct insitu__geometry_view views[3] = {{0}};
  struct insitu__geometry_array array = {.views = views, .n_views = data[2] & 7 ? 3 : 1};
  struct insitu__geometry g = {.arrays = &array,
      .n_arrays = 1,
      .samples = 7,
      .chunk = 7,
      .n_axes = 1,
      .n_drawn = 1,
      .axes = {{.samples = 7, .chunk = 7}}};
  for (int i = 0; i < 3; i++) views[i].delta = reach[data[2] & 7][i];
  char *text = fuzz_copy(data + 4, n - 4);
  struct insitu__text_json j = {0};
  insitu_error err = {0};
  if (insitu__text_json_parse(&j, text, n - 4, "m.json", NULL) == INSITU_OK) {
    g.samples = g.axes[0].samples = fact(&j, "n_samples", INSITU__MAX_SAMPLES);
    g.chunk = fact(&j, "sample_chunk_size", INSITU__MAX_CHUNK);
  }
  struct insitu__split s = {0};
  insitu_status status = insitu__split_init(&s, &d, text, n - 4, &g, &err);
  fuzz_status(status, &err);
  if (status == INSITU_OK && g.samples <= MOST) counted(&s, &d, &j, &g);
  /* without lists all chunks are train: too many to write are refused */
  if (status == INSITU_OK && (s.listed || g.samples <= MOST)) printed(&s, &d, &g);
  insitu__split_free(&s);
  insitu__text_json_free(&j);
  free(text);
  return 0;
}
