/* A model of the units of a part that is drawn along several axes: it lists each of them, and every
 * index that they have. */
#ifndef TESTS_UNIT_MODEL_H
#define TESTS_UNIT_MODEL_H
#include "support.h"

enum { UNIT_AXES = 4, UNIT_LONGEST = 16, UNITS = 4096 };

/* The units along one axis, as lists of indexes. */
struct line {
  int n, length[UNIT_LONGEST];
  int64_t at[UNIT_LONGEST][UNIT_LONGEST];
};

/* Units, each by its number along every axis, in the order of a sequential epoch. numbered: of each
 * number that a shuffled epoch deals, which of these units has it. classes: how many units have the
 * same sizes, and the rows of one. The user sets n, the number of axes, and the lines. */
struct units {
  int n;
  struct line line[UNIT_AXES];
  int n_units, n_anchors, n_classes;
  int unit[UNITS][UNIT_AXES], numbered[UNITS];
  uint64_t classes[UNITS][2];
};

static inline bool unit_has(const int *list, int n, int x) {
  for (int i = 0; i < n; i++)
    if (list[i] == x) return true;
  return false;
}

/* The number of a unit's size among the sizes of its line: the size that a group has at most, or
 * where no unit has it the largest, then sizes as they come. */
static inline int unit_size(const struct line *line, int unit) {
  int list[UNIT_LONGEST + 1], n = 1;
  list[0] = 0;
  for (int i = 0; i < line->n; i++)
    if (line->length[i] > list[0]) list[0] = line->length[i];
  for (int i = 0; i < line->n; i++)
    if (!unit_has(list, n, line->length[i])) list[n++] = line->length[i];
  for (int i = 0; i < n; i++)
    if (list[i] == line->length[unit]) return i;
  return -1;
}

static inline int unit_rows(const struct units *u, const int *unit) {
  int n = 1;
  for (int k = 0; k < u->n; k++) n *= u->line[k].length[unit[k]];
  return n;
}

/* The units of class c follow those of the classes before it. sizes: of each axis, how many. */
static inline void unit_list_class(struct units *u, const int *sizes, int c, int *numbered) {
  uint64_t units = 0, rows = 0;
  for (int i = 0; i < u->n_units; i++) {
    int class = 0;
    for (int k = 0; k < u->n; k++) class = class * sizes[k] + unit_size(&u->line[k], u->unit[i][k]);
    if (class != c) continue;
    u->numbered[(*numbered)++] = i;
    rows = (uint64_t)unit_rows(u, u->unit[i]);
    units++;
  }
  u->classes[u->n_classes][0] = units;
  u->classes[u->n_classes++][1] = rows;
}

/* Lists the units that the lines make row-major, and gives them the numbers that a shuffled epoch
 * deals: units whose sizes are the same along every axis follow each other. */
static inline void unit_list(struct units *u) {
  u->n_units = 1;
  u->n_anchors = u->n_classes = 0;
  for (int k = 0; k < u->n; k++) u->n_units *= u->line[k].n;
  assert_true(u->n_units <= UNITS);
  for (int i = 0; i < u->n_units; i++) {
    int rest = i;
    for (int k = u->n; k-- > 0; rest /= u->line[k].n) u->unit[i][k] = rest % u->line[k].n;
    u->n_anchors += unit_rows(u, u->unit[i]);
    u->numbered[i] = i;
  }
  if (u->n == 1) return;
  int numbered = 0, classes = 1, sizes[UNIT_AXES];
  for (int k = 0; k < u->n; k++) {
    sizes[k] = 0;
    for (int i = 0; i < u->line[k].n; i++)
      if (unit_size(&u->line[k], i) >= sizes[k]) sizes[k] = unit_size(&u->line[k], i) + 1;
    classes *= sizes[k];
  }
  for (int c = 0; c < classes; c++) unit_list_class(u, sizes, c, &numbered);
  assert_int_equal(numbered, u->n_units);
}

/* The anchor with number `within` of a unit: row-major over its lists of indexes. */
static inline void unit_anchor(
    const struct units *u, const int *unit, int within, int64_t *anchor) {
  for (int k = u->n; k-- > 0;) {
    const struct line *line = &u->line[k];
    anchor[k] = line->at[unit[k]][within % line->length[unit[k]]];
    within /= line->length[unit[k]];
  }
}

/* What stands at a place of the sequential order. */
static inline void unit_sequential(const struct units *u, int place, int64_t *anchor) {
  int i = 0;
  while (place >= unit_rows(u, u->unit[i])) place -= unit_rows(u, u->unit[i++]);
  unit_anchor(u, u->unit[i], place, anchor);
}

/* What stands at a place of a shuffled epoch, by an order of unit_order. */
static inline void unit_shuffled(
    const struct units *u, const insitu_order *o, uint64_t place, int64_t *anchor) {
  insitu_order_place at;
  assert_int_equal(insitu_order_at(o, place, &at), INSITU_OK);
  unit_anchor(u, u->unit[u->numbered[at.unit]], (int)at.within, anchor);
}

/* The order of a shuffled epoch, by the public functions and the model's list of units. */
static inline insitu_order *unit_order(const struct units *u, const insitu_loader_desc *desc,
    const insitu_plan *plan, uint64_t epoch) {
  static uint64_t irregular[UNITS][2];
  uint64_t n = 0, world = (uint64_t)(desc->world ? desc->world : 1);
  insitu_order_desc d = {.api = INSITU_API,
      .units = (uint64_t)u->n_units,
      .unit_rows = plan->unit_rows,
      .seed = desc->seed,
      .epoch = epoch,
      .global_batch = desc->batch_size * world,
      .lanes = plan->lanes,
      .window = plan->window};
  for (int i = 0; u->n == 1 && i < u->n_units; i++) {
    if ((uint64_t)unit_rows(u, u->unit[i]) >= plan->unit_rows) continue;
    irregular[n][0] = (uint64_t)i;
    irregular[n++][1] = (uint64_t)unit_rows(u, u->unit[i]);
  }
  if (u->n == 1) {
    d.irregular = irregular[0];
    d.n_irregular = n;
  } else {
    d.classes = u->classes[0];
    d.n_classes = (uint64_t)u->n_classes;
  }
  insitu_order *o;
  insitu_error err = {0};
  if (insitu_order_open(&d, &o, &err)) fail_msg("%s", err.message);
  return o;
}
#endif
