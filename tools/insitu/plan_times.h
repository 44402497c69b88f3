/* insitu plan: windows count samples, not hours. Where samples are missing or out of order, such as
 * between the summers of a seasonal archive, windows show other times than elsewhere. */

/* A coordinate of more chunks is not read: far away, each is a request. */
enum { PLAN_TIMES_CHUNKS = 4096 };

struct plan_times {
  insitu_loader *loader;
  insitu_status status;
  insitu_error err;
  bool is_time;
  struct insitu__loader_coordinate at;
};
/* Reads the dates of the samples, where they have some. */
static void plan_times_await(void *arg) {
  struct plan_times *t = (struct plan_times *)arg;
  const struct insitu__dates_need *need = &insitu__dates_selection;
  unsigned along = t->loader->geometry.along;
  struct insitu__zarr_array z;
  t->status = insitu__dates_find_await(t->loader, need, along, &z, &t->err);
  t->is_time =
      !t->status && insitu__dates_is_time(&z) && tool_object_of(&z).count <= PLAN_TIMES_CHUNKS;
  insitu__zarr_array_free(&z);
  if (!t->is_time) return;
  t->status = insitu__dates_coordinate_await(t->loader, need, along, &z, &t->at, &t->err);
  insitu__zarr_array_free(&z);
}
/* Whether some window shows more than one sample, or variables show samples beside each other. */
static bool plan_has_windows(const insitu_loader_desc *c) {
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (uint64_t i = 0; i < c->n_variables; i++) {
    const insitu_variable *v = &c->variables[i];
    for (uint64_t k = 0; !v->fixed && k < insitu__base_max(1, v->n_steps); k++) {
      int64_t shown = v->offset + (v->n_steps ? v->steps[k] : 0);
      if (shown < least) least = shown;
      if (shown > most) most = shown;
    }
  }
  return least < most;
}
static int plan_compare_steps(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}
/* The step that half of all neighbours in [start, stop) have at most. */
static int64_t plan_usual_step(
    const struct insitu__loader_coordinate *c, uint64_t start, uint64_t stop) {
  uint64_t n = stop - start - 1;
  int64_t *step = (int64_t *)tool_alloc(n, sizeof *step);
  for (uint64_t i = 0; i < n; i++)
    step[i] = insitu__dates_at(c, start + i + 1) - insitu__dates_at(c, start + i);
  qsort(step, (size_t)n, sizeof *step, plan_compare_steps);
  int64_t usual = step[n / 2];
  insitu__mem_free(step);
  return usual;
}
/* Months and years differ by less than a half. */
static bool plan_odd_step(int64_t step, int64_t usual) {
  if (usual < 0) {
    step = -step;
    usual = -usual;
  }
  return step <= usual / 2 || step > usual + usual / 2;
}
static void plan_say_gaps(
    struct plan *p, const struct insitu__loader_coordinate *c, uint64_t start, uint64_t stop) {
  uint64_t odd = 0, first = 0;
  char text[32];
  insitu_date date[2];
  int64_t usual = plan_usual_step(c, start, stop);
  for (uint64_t i = start; i + 1 < stop; i++) {
    if (!plan_odd_step(insitu__dates_at(c, i + 1) - insitu__dates_at(c, i), usual)) continue;
    if (!odd++) first = i;
  }
  if (!odd) return;
  for (uint64_t i = 0; i < 2; i++)
    insitu__time_date(c->units.calendar, insitu__dates_at(c, first + i), &date[i]);
  plan_say(p,
      "windows count samples, not hours. Samples are %s apart, but not at %" PRIu64 " of %" PRIu64
      " places, the first between samples %" PRIu64 " and %" PRIu64
      " (%s and %s). Windows across such a place show other times than all others: leave their "
      "anchors out by --list, or the samples by the manifest.",
      usual ? info_step(usual < 0 ? -usual : usual, text) : "mostly no time", odd, stop - start - 1,
      first, first + 1, date[0].text, date[1].text);
}
static void plan_hint_times(struct plan *p) {
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  struct plan_times t = {.loader = p->loader};
  uint64_t start = (uint64_t)c->sample_start, stop = (uint64_t)c->sample_stop;
  if (!p->loader->geometry.n_drawn || !plan_has_windows(c)) return;
  if (c->n_axes) {
    start = (uint64_t)c->axes[c->split_axis].start;
    stop = (uint64_t)c->axes[c->split_axis].stop;
  }
  stop = stop ? insitu__base_min(stop, p->loader->geometry.samples) : p->loader->geometry.samples;
  if (start + 2 > stop) return;
  t.status = insitu__reactor_call(&p->loader->reactor, plan_times_await, &t);
  if (!t.is_time) return;
  p->about = PLAN_TIMES;
  if (t.err.status < 0) plan_say(p, "the dates of the samples are not known: %s.", t.err.message);
  else plan_say_gaps(p, &t.at, start, stop);
  insitu__dates_coordinate_free(p->loader, &t.at);
}
