/* Random archives and configurations against a small independent model of what the manual promises:
 * every element of every batch, the order, the splits, resuming, plans and refusals. A case is a
 * number: the same number is the same case.
 *
 *   build/test_random                     a fixed slice, as the other tests run
 *   build/test_random --seed 7 --n 1000   cases 7 to 1006; -v tells each before it runs
 *
 * A difference prints the case in words, where the difference is, and the command that runs the
 * case again. */
#include "server.h"
#include "insitubatch.h"
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include "random_base.h"
#include "random_archive.h"
#include "random_space.h"
#include "random_map.h"
#include "random_model.h"
#include "random_ops.h"
#include "random_order.h"
#include "random_select.h"
#include "zip.h"
#include "random_case.h"
#include "random_device.h"
#include "random_call.h"
#include "random_config.h"
#include "random_receipt.h"
#include "random_walk.h"
#include "random_scan.h"
#include "random_registry.h"

#ifdef INSITU_WITH_CUDA
enum { SLICE = 100, MAX_SECONDS = 120 };
static const char replay[] = " DEVICES=1";
#else
enum { SLICE = 600, MAX_SECONDS = 120 };
static const char replay[] = "";
#endif

/* ---- opening ---- */
/* Where the cache is too small for any chunk, the loader is opened again without one. */
static insitu_status open_cache(
    const insitu_loader_desc *d, insitu_loader **out, insitu_error *err) {
  insitu_loader_desc again = *d;
  insitu_status status = insitu_loader_open(d, out, err);

  if (status != INSITU_E_BUDGET || !strstr(err->message, "holds no chunk of any array"))
    return status;
  again.cache_memory = 0;
  return insitu_loader_open(&again, out, err);
}

/* Where chunks cannot be kept, the loader is opened again without asking for that. */
static insitu_status open_assembly(const insitu_loader_desc *d, int slot, insitu_error *err) {
  const insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL};
  insitu_loader_desc again = *d;
  insitu_plan plan;
  insitu_error refused;
  insitu_status status = open_cache(d, &loaders[slot], err);

  if (status || d->assembly != INSITU_GATHER) return status;
  if (insitu_loader_plan(loaders[slot], &all, &plan, &refused) != INSITU_E_UNSUPPORTED)
    return status;
  if (!strstr(refused.message, "assembly is INSITU_GATHER")) return status;
  insitu_loader_close(&loaders[slot]);
  again.assembly = 0;
  return open_cache(&again, &loaders[slot], err);
}

static insitu_loader *open_loader(const struct setup *s, const insitu_loader_desc *d, int slot) {
  insitu_error err = {0};
  insitu_status status = open_assembly(d, slot, &err);

  if (status == s->refused) {
    if (status && loaders[slot]) differ("a refused loader is not NULL");
    if (status && (err.status != status || !*err.message)) differ("a refusal without a message");
    return loaders[slot];
  }
  if (status == INSITU_E_BUDGET && d->memory_budget < UINT64_C(1) << 28) return NULL;
  if (s->refused)
    differ("open: %s, not %s (%s): %s", insitu_status_name(status), insitu_status_name(s->refused),
        s->why, err.message);
  differ("open: %s: %s", insitu_status_name(status), err.message);
}

/* Lanes and window of an iterator; false: it must be refused with *status. *lanes: of patches,
 * whose units are not known, the default number of lanes. */
static bool layout(const struct setup *s, int32_t part, int32_t order, uint64_t world,
    uint64_t *lanes, uint64_t *window, insitu_status *status) {
  const struct part *p = &s->split.part[part];

  if (order == INSITU_SEQUENTIAL) {
    *lanes = world;
    *window = 0;
    *status = INSITU_E_SPLIT;
    return p->n;
  }
  *lanes = s->desc.lanes ? s->desc.lanes
           : space_patched(s->space)
               ? *lanes
               : default_lanes(s->global, s->block_chunks, s->unit_chunks, p->units);
  *window = most(1, s->block_chunks / s->unit_chunks / *lanes);
  bool open = !s->desc.lanes && s->window[part];
  if (open && s->window[part] > *window) differ("the window of the plan is too long");
  if (open) *window = s->window[part];
  *status = p->n < s->global ? INSITU_E_SPLIT : INSITU_E_ARG;
  return p->n >= s->global && s->global % *lanes == 0 && *lanes % world == 0;
}

/* Whether an anchor without a partner may lie where something is excluded: it shows nothing there,
 * and whether it counts as excluded is not said. */
static bool drops_overlap(const struct setup *s) {
  bool mapped = false, excludes = false;

  for (int i = 0; i < s->n_views; i++) mapped = mapped || s->view[i].array->partners;
  for (int64_t x = 0; x < s->split.samples; x++) excludes = excludes || s->split.excluded[x];
  return mapped && excludes;
}

static void check_plan(
    const struct walk *w, insitu_loader *ld, const insitu_iter_desc *id, insitu_plan *plan) {
  const struct part *p = &w->s->split.part[w->part];
  insitu_error err = {0};
  uint64_t either = 0, rows = 0, space = space_each(w->s->space);
  int64_t row[4096];
  bool patched = space_patched(w->s->space);

  for (int k = 0; k < w->s->space->n; k++)
    if (!w->s->space->axis[k].patch) space *= w->s->space->axis[k].n;
  if (insitu_loader_plan(ld, id, plan, &err)) differ("insitu_loader_plan: %s", err.message);
  for (uint64_t b = 0; b < w->e.batches; b++) rows += epoch_batch(&w->e, w->world, w->rank, b, row);
  const struct {
    const char *name;
    uint64_t got, want;
  } at[] = {{"order_version", plan->order_version, 1}, {"samples", plan->samples, p->n},
      {"batches", plan->batches, w->e.batches}, {"rows", plan->rows, rows},
      {"space", plan->space, space}, {"units", plan->units, patched ? plan->units : p->units},
      {"unit_rows", plan->unit_rows, patched ? plan->unit_rows : p->unit_rows},
      {"lanes", plan->lanes, w->e.lanes},
      {"window", plan->window, w->e.window ? w->e.window : plan->window}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    if (at[i].got != at[i].want)
      differ("plan of %s, rank %d of %d: %s is %d, not %d", part_names[w->part], (int)w->rank,
          (int)w->world, at[i].name, (int)at[i].got, (int)at[i].want);
  uint64_t delivered = space;
  bool loose = drops_overlap(w->s);
  for (int r = 0; r < INSITU_DROPS; r++) {
    uint64_t want = p->dropped[r];

    if (loose && r >= INSITU_DROP_EXCLUDED && r <= INSITU_DROP_NO_PARTNER) {
      either += plan->dropped[r] - want; /* modulo 2^64 */
      delivered -= plan->dropped[r];
      continue;
    }
    if (r == INSITU_DROP_TAIL) want = w->order == INSITU_SHUFFLED ? p->n % w->s->global : 0;
    if (plan->dropped[r] != want)
      differ("plan of %s: %s drops %d, not %d", part_names[w->part], insitu_drop_name(r),
          (int)plan->dropped[r], (int)want);
    delivered -= want;
  }
  if (delivered != (w->order == INSITU_SHUFFLED ? w->e.batches * w->s->global : p->n))
    differ("plan of %s: %d are left of the table of drops", part_names[w->part], (int)delivered);
  if (either) differ("plan of %s: excluded, gap and no_partner drop others", part_names[w->part]);
  if (plan->amplification < 1 || plan->reads < plan->distinct)
    differ("plan of %s, rank %d of %d: %d chunks are read, %d different ones: amplification %g",
        part_names[w->part], (int)w->rank, (int)w->world, (int)plan->reads, (int)plan->distinct,
        plan->amplification);
  if (plan->distinct &&
      fabs(plan->amplification * (double)plan->distinct / (double)plan->reads - 1) > 1e-9)
    differ("plan of %s: amplification is %g", part_names[w->part], plan->amplification);
  if (plan->reads && fabs(plan->dedup * (double)plan->reads / (double)plan->wanted - 1) > 1e-9)
    differ("plan of %s: dedup is %g", part_names[w->part], plan->dedup);
  if (plan->span < w->e.span)
    differ("plan of %s: span %d, but a window falls into %d batches", part_names[w->part],
        (int)plan->span, (int)w->e.span);
}

/* The lanes that a plan tells; 1: there is none, for the iterator would be refused. */
static uint64_t planned_lanes(insitu_loader *ld, const insitu_iter_desc *id) {
  insitu_plan plan;

  return insitu_loader_plan(ld, id, &plan, NULL) ? 1 : plan.lanes;
}

/* Opens an iterator of a part and its model; false: it is refused, as the model says. */
static bool walk_open(struct walk *w, const struct setup *s, insitu_loader *ld, int slot,
    int32_t part, int32_t order, uint64_t world, uint64_t rank, uint64_t epoch, insitu_plan *plan) {
  insitu_error err = {0};
  insitu_status want, status;
  uint64_t lanes, window;
  bool usual = order == (part == INSITU_TRAIN ? INSITU_SHUFFLED : INSITU_SEQUENTIAL);
  insitu_iter_desc id = {.api = INSITU_API,
      .split = part,
      .order = usual && chance(50) ? INSITU_AUTO : order,
      .epoch = epoch};

  id.max_held = (uint32_t)draw(MAX_HELD + 1);
  gpus_use(s);
  homes[slot] = draw_home();
  id.stream = gpu_stream(homes[slot]);
  *w = (struct walk){.s = s,
      .slot = slot,
      .part = part,
      .order = order,
      .world = world,
      .rank = rank,
      .epoch = epoch,
      .max_held = id.max_held ? id.max_held : 2};
  memcpy(w->view, s->view, sizeof w->view);
  gpus_choose(homes[slot]);
  lanes = planned_lanes(ld, &id);
  bool fits = layout(s, part, order, world, &lanes, &window, &want);
  status = insitu_iter_open(ld, &id, &iters[slot], &err);
  if (!fits) {
    if (status != want && !(want == INSITU_E_SPLIT && status == INSITU_E_ARG))
      differ("opening %s: %s, not %s: %s", part_names[part], insitu_status_name(status),
          insitu_status_name(want), err.message);
    return false;
  }
  if (status == INSITU_E_BUDGET && s->desc.memory_budget < UINT64_C(1) << 28) return false;
  if (status)
    differ("opening %s, %s, rank %d of %d: %s: %s", part_names[part],
        order == INSITU_SHUFFLED ? "shuffled" : "sequential", (int)rank, (int)world,
        insitu_status_name(status), err.message);
  gpus_after(homes[slot]);
  w->it = iters[slot];
  w->known = known_new(s->view, s->n_views);
  w->summed = true;
  walk_epoch(w, lanes, window);
  check_plan(w, ld, &id, plan);
  return true;
}

/* Batches that are held outlive their iterator. */
static void walk_close(struct walk *w) {
  w->closing = chance(40);
  while (w->n_held && !w->closing) release_one(w);
  gpus_choose(homes[w->slot]);
  insitu_iter_close(&iters[w->slot]);
  gpus_after(homes[w->slot]);
  while (w->n_held) release_one(w);
}

/* moved: by insitu_iter_set_epoch, which forgets what is left out. */
static void walk_next_epoch(struct walk *w, uint64_t epoch, bool moved) {
  bool *out = w->out;

  w->out = w->out_next;
  w->out_next = out;
  memset(out, 0, w->e.batches);
  if (moved) memset(w->out, 0, w->e.batches);
  w->epoch = epoch;
  w->batch = 0;
  w->sum = 0;
  w->summed = true;
  w->failed = w->ended = false;
  walk_epoch(w, w->e.lanes, w->e.window);
}

/* Takes a walk to another epoch, or back to behind the batch that came last, while batches are held
 * and others on their way. */
static void walk_move(struct walk *w) {
  insitu_error err = {0};
  insitu_status status;

  gpus_before(homes[w->slot]);
  if (!w->last.is || chance(50)) {
    uint64_t epoch = draw(4);

    if (insitu_iter_set_epoch(w->it, epoch, &err)) differ("insitu_iter_set_epoch: %s", err.message);
    walk_next_epoch(w, epoch, true);
    return;
  }
  status = insitu_iter_restore(w->it, &w->last.state, &err);
  if (status)
    differ("going back behind batch %d of epoch %d: %s", (int)w->last.batch, (int)w->last.epoch,
        err.message);
  w->epoch = w->last.epoch;
  w->batch = w->last.batch + 1;
  memcpy(w->out, w->last.out, w->e.batches);
  memset(w->out_next, 0, w->e.batches);
  w->sum = w->last.sum;
  w->summed = w->last.summed;
  w->failed = w->ended = false;
  walk_epoch(w, w->e.lanes, w->e.window);
}

/* ---- fewer steps ---- */
/* The steps of an output, all of them; 0: it has none, or not all of its variables have. */
static uint64_t output_steps(const struct setup *s, int output) {
  uint64_t n = UINT64_MAX;

  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output) n = least(n, s->view[i].v.n_steps);
  return n;
}

/* Has the iterator show some of an output's steps, or sees that it refuses to. */
static void walk_steps(struct walk *w) {
  const struct setup *s = w->s;
  int output = (int)draw((uint64_t)s->n_outputs);
  uint64_t all = output_steps(s, output), n = chance(10) ? draw(6) : 1 + draw(all ? all : 1);
  const char *name = NULL;
  insitu_error err = {0};
  insitu_status status, want = INSITU_OK;

  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output)
      name = s->view[i].v.into ? s->view[i].v.into : s->view[i].v.label;
  if (w->failed || (w->batch != w->start && !w->ended) || !n || n > all) want = INSITU_E_ARG;
  if (chance(3)) {
    name = "no such output";
    want = INSITU_E_NOTFOUND;
  }
  if (s->calls && chance(3)) {
    name = "key";
    want = INSITU_E_ARG;
  }
  status = insitu_iter_set_steps(w->it, name, n, &err);
  if (status != want)
    differ("insitu_iter_set_steps(\"%s\", %d) of %d steps: %s, not %s: %s", name, (int)n, (int)all,
        insitu_status_name(status), insitu_status_name(want), err.message);
  if (status) return;
  for (int i = 0; i < s->n_views; i++)
    if (s->view[i].output == output) w->view[i].v.n_steps = n;
  if (!w->ended) walk_epoch(w, w->e.lanes, w->e.window);
}

/* ---- what an epoch reads ---- */
/* The windows of a sequential epoch, whose length the manual leaves to the plan. */
static void sequential_windows(struct walk *w, uint64_t window) {
  const struct part *p = &w->s->split.part[w->part];
  uint64_t *irregular = own(p->units * 16), n = 0, most_windows = p->units + 2;
  insitu_order_desc d = {.api = INSITU_API,
      .sequential = 1,
      .units = p->units,
      .unit_rows = p->unit_rows,
      .global_batch = w->e.global,
      .lanes = w->e.lanes,
      .window = window,
      .irregular = irregular};
  insitu_order *o;
  insitu_error err = {0};

  for (uint64_t u = 0; u < p->units; u++) {
    if (p->rows[u] == d.unit_rows) continue;
    irregular[n++] = u;
    irregular[n++] = p->rows[u];
  }
  d.n_irregular = n / 2;
  if (insitu_order_open(&d, &o, &err)) differ("insitu_order_open: %s", err.message);
  for (uint64_t i = 0; i < w->e.positions; i++) {
    insitu_order_place at;
    insitu_status status = insitu_order_at(o, i, &at);
    int64_t anchor = status ? -1 : p->anchor[p->first[at.unit] + at.within];

    if (anchor != w->e.anchor[i]) {
      insitu_order_close(&o);
      differ("insitu_order_at %d: anchor %d, not %d", (int)i, (int)anchor, (int)w->e.anchor[i]);
    }
    w->e.mixed[i] = status ? 0 : at.lane * most_windows + at.window;
  }
  w->e.n_mixed = w->e.lanes * most_windows;
  insitu_order_close(&o);
}

static bool narrows(const struct view *v) {
  return v->v.n_slices || v->v.select;
}

/* How many chunks may be read a second time: damaged ones, past a cache that has them as they are
 * stored, and past one that keeps them decoded and whole. */
static uint64_t second_reads(const struct setup *s, const struct holes *holes) {
  uint64_t n = s->desc.cache_dir ? holes->bad : 0;

  return n + (s->desc.cache_memory ? holes->bad : 0);
}

/* What the cache of decoded chunks answered in an epoch. Uses are of chunks that some row of a
 * window may show; where none does, nothing is read. */
static void check_cache(struct walk *w, const insitu_loader_desc *d, const struct reads *r,
    const insitu_stats *opened, const insitu_stats *now, bool again) {
  uint64_t hits = now->cache_hits - opened->cache_hits,
           misses = now->cache_misses - opened->cache_misses, reads = now->reads - opened->reads;

  if (!d->cache_memory && hits + misses) differ("hits of a cache that nobody asked for");
  w->idle += again ? hits + misses : 0; /* how many of them is not known */
  if (!d->cache_memory || again) return;
  if (hits + misses < r->reads)
    differ("%d hits and %d misses of the cache, but %d uses of chunks", (int)hits, (int)misses,
        (int)r->reads);
  if (reads + hits < r->reads)
    differ("%d chunks were read and %d found, of %d", (int)reads, (int)hits, (int)r->reads);
  if (d->cache_memory < CACHE_ROOM || d->memory_budget < UINT64_C(1) << 28) return;
  /* Where no row shows some of a chunk, a use leaves nothing to one that waits for it. What that
   * one reads is not kept, and is read once more in this epoch or a later one. What was prefetched
   * of an epoch that then began anew may have left chunks that the epoch itself does not show. */
  w->idle += hits + misses - r->reads;
  if (reads + w->idle < r->cached || reads > r->cached + w->idle + second_reads(w->s, &r->holes))
    differ("%d chunks were read, not %d: there is room for all in the cache", (int)reads,
        (int)r->cached);
}

/* opened: before the epoch. again: what was prefetched of it was read once more. */
static void check_reads(struct walk *w, insitu_loader *ld, const insitu_plan *plan,
    const insitu_stats *opened, bool again) {
  const struct setup *s = w->s;
  insitu_stats st;
  insitu_error err = {0};
  bool exact = true;

  bool patched = space_patched(s->space), kept = plan->assembly == INSITU_GATHER;
  if (w->order == INSITU_SEQUENTIAL && !patched) sequential_windows(w, plan->window);
  struct reads r = epoch_reads(&w->e, w->world, w->rank, w->view, s->n_views, &w->known), first;
  struct epoch e = w->e;
  if (w->order == INSITU_SHUFFLED && !patched) /* a plan is of epoch 0, and of all steps */
    e = epoch_of(s, w->part, w->order, 0, w->e.lanes, w->e.window);
  first = patched ? r : epoch_reads(&e, w->world, w->rank, s->view, s->n_views, NULL);
  for (int i = 0; i < s->n_views; i++)
    for (int k = 0; k < i && !s->view[i].is_mask; k++) /* a mask has the selection of another */
      exact = exact && (s->view[i].array != s->view[k].array ||
                           (!narrows(&s->view[i]) && !narrows(&s->view[k])));
  if (insitu_loader_stats(ld, &st, &err)) differ("insitu_loader_stats: %s", err.message);
  if (patched) { /* windows are the library's own: each chunk is read, and as often as planned */
    uint64_t got = st.reads - opened->reads;
    bool planned =
        !plan->estimated && !w->epoch && exact && !again && !insitu_loader_config(ld)->cache_memory;

    if (got < r.reads && !insitu_loader_config(ld)->cache_memory)
      differ("%d chunks were read of %d that are shown", (int)got, (int)r.reads);
    for (int i = 0; i < s->n_views; i++)
      planned = planned && w->view[i].v.n_steps == s->view[i].v.n_steps;
    r.reads = got;
    r.holes.absent = st.absent_chunks - opened->absent_chunks;
    r.holes.bad = st.bad_chunks - opened->bad_chunks;
    if (planned && (got < plan->reads || got > plan->reads + second_reads(s, &r.holes)))
      differ("%d chunks were read, %d planned", (int)got, (int)plan->reads);
    first = (struct reads){.reads = plan->reads,
        .bytes = plan->read_bytes,
        .wanted = plan->wanted,
        .distinct = plan->distinct};
  }
  bool cache = insitu_loader_config(ld)->cache_memory;
  if (!patched && !kept) check_cache(w, insitu_loader_config(ld), &r, opened, &st, again);
  uint64_t batches = plan->slabs * plan->slab_bytes, maps = 0;
  for (int i = 0; i < s->archive.n_arrays; i++) /* 32 bytes for each run of samples */
    if (s->archive.array[i].partners) maps += 32 * (s->samples + 1);
  uint64_t memory =
      batches + plan->table_bytes + plan->fixed_bytes + plan->inflight_bytes + plan->cache_bytes;
  /* What was prefetched may have come upon an absent chunk, whose dates are then read for its
   * message: within the budget. */
  bool told = again && s->desc.on_absent_chunk != INSITU_FILL;
  uint64_t peak = told ? insitu_loader_config(ld)->memory_budget : st.memory_promised;
  const struct {
    const char *name;
    uint64_t got, want;
    bool most; /* want is the most */
  } at[] = {{"rows delivered", st.rows - opened->rows, r.rows, false},
      {"batches delivered", st.batches - opened->batches, plan->batches, false},
      {"chunks to be read", kept || cache ? 0 : r.reads, st.reads - opened->reads, true},
      {"chunks read", st.reads - opened->reads,
          again ? UINT64_MAX : r.reads + second_reads(s, &r.holes), true},
      {"chunks planned", first.reads, plan->reads, !exact},
      {"bytes planned", first.bytes, plan->read_bytes, !exact},
      {"chunks wanted", first.wanted, plan->wanted, !exact},
      {"different chunks planned", first.distinct, plan->distinct, !exact},
      {"absent chunks", st.absent_chunks - opened->absent_chunks,
          again ? UINT64_MAX : r.holes.absent, again || kept},
      {"bad chunks", st.bad_chunks - opened->bad_chunks, again ? UINT64_MAX : r.holes.bad,
          again || kept},
      {"bytes of batches", st.slab_bytes_peak, batches, true},
      {"bytes promised", memory, st.memory_promised, true},
      {"bytes promised at most", st.memory_promised, memory + maps, true},
      {"bytes at most", st.memory_bytes_peak, most(peak, opened->memory_bytes_peak), true},
      {"bytes in all", st.memory_promised, insitu_loader_config(ld)->memory_budget, true}};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    if (at[i].most ? at[i].got > at[i].want : at[i].got != at[i].want)
      differ("an epoch of %s, rank %d of %d: %s: %d, not %d", part_names[w->part], (int)w->rank,
          (int)w->world, at[i].name, (int)at[i].got, (int)at[i].want);
}

/* How often on_batch was called for an epoch: for each batch that has rows. */
static void check_calls(const struct walk *w, const insitu_loader *ld, bool again) {
  struct calls *c = w->s->calls;
  uint64_t threads = insitu_loader_config(ld)->on_batch_threads, want = 0;
  int64_t row[4096];

  for (uint64_t b = 0; b < w->e.batches; b++)
    want += epoch_batch(&w->e, w->world, w->rank, b, row) > 0;
  uint64_t done = atomic_exchange(&c->done, 0);
  if (again ? done < want : done != want)
    differ("%d calls of on_batch, not %d", (int)done, (int)want);
  if (atomic_load(&c->most) > threads)
    differ("%d calls at once, not %d", (int)atomic_load(&c->most), (int)threads);
  if (atomic_load(&c->odd)) differ("a call of on_batch saw an odd batch");
}

/* ---- the case ---- */
/* Numbers of a list in a manifest, to the owner of their chunks; how many. */
static uint64_t adopt_list(struct setup *s, const char *text, int part) {
  char name[16];
  uint64_t n = 0;

  snprintf(name, sizeof name, "\"%s\":", part_names[part]);
  const char *p = strstr(text, name);
  p = p ? strchr(p, '[') : NULL;
  if (!p) differ("the manifest has no list %s", name);
  uint64_t ref = reference(s);
  for (p++; *p != ']'; n++) {
    char *end;
    uint64_t c = strtoull(p, &end, 10), last = least((c + 1) * ref, s->samples);

    if (end == p || c >= s->split.n_ref) differ("the manifest's list %s is odd", name);
    for (uint64_t x = c * ref; x < last; x++) {
      if (s->split.owner[x] != NOBODY) differ("the manifest has chunk %d twice", (int)c);
      s->split.owner[x] = (signed char)part;
    }
    for (p = end; *p == ',' || *p == ' '; p++) {}
  }
  return n;
}

/* The library alone says which chunks a shuffled split draws: in its manifest. Each part has as
 * many as without. */
static void adopt_split(struct setup *s, const insitu_loader_desc *d) {
  insitu_loader_desc only = *d;
  insitu_loader *ld;
  insitu_error err = {0};
  const char *path = own_text("%s/spread.json", s->folder);
  char *text = own(1 << 16);
  uint64_t want[3] = {0};

  if (!s->spread) return;
  only.plan_only = 1;
  only.memory_budget = 0;
  only.manifest = NULL; /* chunks that it excludes would be in no list */
  if (!(ld = open_loader(s, &only, 0))) return;
  if (insitu_manifest_save(ld, path, &err)) differ("insitu_manifest_save: %s", err.message);
  insitu_loader_close(&loaders[0]);
  FILE *f = fopen(path, "r");
  if (!f || !fread(text, 1, (1 << 16) - 1, f) || fclose(f)) abort();
  memset(s->split.owner, NOBODY, s->samples);
  split_fractions(s);
  for (uint64_t c = 0; c < s->split.n_ref; c++)
    if (s->split.owner[c * reference(s)] != NOBODY) want[s->split.owner[c * reference(s)]]++;
  memset(s->split.owner, NOBODY, s->samples);
  for (int p = 0; p < 3; p++)
    if (adopt_list(s, text, p) != want[p])
      differ("the manifest does not give %s %d chunks", part_names[p], (int)want[p]);
  cut_split(s);
}

static insitu_loader_desc desc_of(const struct setup *s, uint64_t world, uint64_t rank) {
  insitu_loader_desc d = s->desc;

  d.rank = s->refused && d.rank ? d.rank : (int32_t)rank;
  if (world > 1 || d.world) d.world = (int32_t)world;
  d.batch_size = s->global / world;
  if (!s->fixed.array || s->refused) return d;
  insitu_variable *all = own((d.n_variables + 1) * sizeof *all);
  memcpy(all, d.variables, d.n_variables * sizeof *all);
  all[d.n_variables++] = s->fixed.v;
  d.variables = all;
  return d;
}

/* Any box of an array, now: insitu_read. alone: nothing else reads meanwhile, so that statistics
 * can be compared. */
static void check_read(const struct setup *s, insitu_loader *ld, bool alone) {
  struct view v = s->view[draw((uint64_t)s->n_views)];
  const struct array *a = v.array;
  insitu_error err = {0};
  insitu_shape shape;
  insitu_stats before, after;
  struct holes holes = {0};
  uint64_t n;

  v.v.offset = 0;
  v.v.halo = 0;
  v.v.map = 0;
  v.v.rate = 0;
  v.v.n_steps = 0;
  v.v.into = v.v.mask = NULL;
  v.v.place = v.v.device = 0;
  n = draw_box(&v);
  draw_ops(&v, true);
  insitu_variable asked = v.is_mask ? mask_read(&v) : v.v;
  unsigned item = dtype_bytes(view_dtype(&v));
  unsigned char *got = own(n * item);
  if (insitu_loader_stats(ld, &before, NULL)) differ("no statistics");
  insitu_status status = insitu_read(ld, &asked, got, n * item, &shape, &err);
  if (status == INSITU_E_BUDGET && s->desc.memory_budget < UINT64_C(1) << 28) return;
  if (!status) check_box(&v, got, "insitu_read");
  struct chunk_set chunks = chunk_set(a);
  uint64_t reads = chunk_set_add(&chunks, &v, NULL, 0, 1, &holes);
  bool absent = holes.absent && s->desc.on_absent_chunk == INSITU_RAISE,
       bad = holes.bad && s->desc.on_bad_chunk != INSITU_FILL;
  if (absent || bad) {
    if (!(absent && status == INSITU_E_ABSENT) && !(bad && status == INSITU_E_CORRUPT))
      differ("insitu_read of an absent or damaged chunk: %s", insitu_status_name(status));
    return;
  }
  if (status)
    differ("insitu_read of '%s', select '%s': %s: %s", v.v.label, v.v.select ? v.v.select : "",
        insitu_status_name(status), err.message);
  if (shape.ndim != a->ndim || shape.bytes != n * item || shape.dtype != view_dtype(&v))
    differ("insitu_read: another shape");
  if (insitu_loader_stats(ld, &after, NULL)) differ("no statistics");
  /* a chunk is read once for each run of indexes that it holds */
  alone = alone && !v.v.select;
  if (alone && after.absent_chunks - before.absent_chunks != holes.absent)
    differ("insitu_read counts %d absent chunks, not %d",
        (int)(after.absent_chunks - before.absent_chunks), (int)holes.absent);
  if (alone && after.bad_chunks - before.bad_chunks != holes.bad)
    differ("insitu_read counts %d damaged chunks, not %d",
        (int)(after.bad_chunks - before.bad_chunks), (int)holes.bad);
  uint64_t got_reads = after.reads - before.reads;
  if (alone && (got_reads < reads || got_reads > reads + second_reads(s, &holes)))
    differ("insitu_read counts %d chunks, not %d", (int)got_reads, (int)reads);
}

/* The numbers of a variable's INSITU_OP_NORM. */
static void check_norm(const struct setup *s, const insitu_loader *ld) {
  const struct view *v = &s->view[draw((uint64_t)s->n_variables)];
  const insitu_op *op = NULL;
  uint64_t index = draw(4);
  double mean = 0, deviation = 0;
  insitu_error err;

  for (uint64_t k = v->v.n_ops; k-- > 0;)
    if (v->v.ops[k].kind == INSITU_OP_NORM) op = &v->v.ops[k];
  insitu_status status = insitu_loader_norm(ld, v->v.label, index, &mean, &deviation, &err);
  insitu_status want = op ? INSITU_OK : INSITU_E_NOTFOUND;
  if (op && op->n > 1 && index >= op->n) want = INSITU_E_ARG;
  if (status != want)
    differ("insitu_loader_norm of '%s', index %d: %s, not %s", v->v.label, (int)index,
        insitu_status_name(status), insitu_status_name(want));
  if (status) return;
  bool single = view_single(v);
  if (mean != op_round(single, op->n ? op->as[op->n > 1 ? index : 0] : op->a) ||
      deviation != op_round(single, op->n ? op->bs[op->n > 1 ? index : 0] : op->b))
    differ("insitu_loader_norm of '%s', index %d: %.17g and %.17g", v->v.label, (int)index, mean,
        deviation);
}

/* Another iterator of the same loader, some steps each in turns. */
static void run_beside(struct setup *s, insitu_loader *ld, struct walk *w) {
  struct walk other;
  insitu_plan plan;
  int32_t part = (int32_t)draw(4), order = chance(50) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  bool more = true;

  if (!walk_open(&other, s, ld, 1, part, order, w->world, w->rank, draw(3), &plan)) return;
  for (uint64_t n = draw(60); n && more; n--) more = walk_step(chance(50) ? w : &other);
  if (chance(50)) walk_close(&other);
}

/* Desc fields of iterators that make no sense. */
static void refuse_iterators(insitu_loader *ld) {
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_status want = INSITU_E_ARG, status;

  switch (draw(4)) {
  case 0: id.split = 4 + (int32_t)draw(3); break;
  case 1: id.split = -1; break;
  case 2: id.order = 3; break;
  default: id.api = 0; want = INSITU_E_API;
  }
  status = insitu_iter_open(ld, &id, &iters[2], NULL);
  if (status != want)
    differ("an iterator that makes no sense: %s, not %s", insitu_status_name(status),
        insitu_status_name(want));
  if (iters[2]) differ("a refused iterator is not NULL");
}

/* Whether all that the rank's epoch shows must be in cache_dir now. */
static bool is_kept(const struct walk *w, const insitu_stats *opened) {
  const struct setup *s = w->s;
  insitu_stats st;
  bool steps = true;

  if (!s->desc.cache_dir || s->place < PLACE_HTTP || w->failed) return false;
  for (int i = 0; i < s->n_views; i++)
    steps = steps && w->view[i].v.n_steps == s->view[i].v.n_steps;
  if (insitu_loader_stats(loaders[0], &st, NULL)) differ("no statistics");
  for (int i = 0; i < s->archive.n_arrays; i++)
    if (*s->archive.array[i].is_empty) return false;
  if (s->desc.cache_decoded && st.bad_chunks) return false; /* damaged chunks are not decoded */
  return steps && st.disk_unkept == opened->disk_unkept;
}

/* The same epoch again, from cache_dir alone. */
static void run_offline(struct setup *s, const struct run *run, uint64_t rank) {
  insitu_loader_desc d = desc_of(s, run->world, rank);
  insitu_plan plan;
  struct walk w;

  d.offline = 1;
  insitu_loader *ld = open_loader(s, &d, 0);
  if (ld && walk_open(&w, s, ld, 0, run->part, run->order, run->world, rank, run->epoch, &plan)) {
    while (walk_step(&w)) {}
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

/* Which batches all ranks of a run leave out. */
static void draw_skips(struct run *run) {
  if (!run->n_batches || !chance(30)) return;
  run->n_skips = 1 + (unsigned)draw(MAX_SKIPS);
  for (unsigned i = 0; i < run->n_skips; i++)
    run->skip[i] = draw_skip(draw(run->n_batches), run->n_batches);
  for (unsigned i = 1; i < run->n_skips; i++)
    run->skip[i].at = most(run->skip[i].at, run->skip[i - 1].at);
}

static void check_skipped(const struct walk *w, insitu_loader *ld) {
  insitu_stats st;

  if (insitu_loader_stats(ld, &st, NULL)) differ("no statistics");
  if (st.skipped != w->n_out)
    differ("%d batches are left out, not %d", (int)st.skipped, (int)w->n_out);
}

/* A rank's epochs of one part. */
static void run_rank(struct setup *s, struct run *run, uint64_t rank) {
  insitu_loader_desc d = desc_of(s, run->world, rank);
  insitu_loader *ld = open_loader(s, &d, 0);
  struct walk w;
  insitu_plan plan;
  insitu_stats opened = {0};
  insitu_error err = {0};
  uint64_t epoch = run->epoch;

  run->whole = false;
  if (!ld) return;
  if (chance(5)) refuse_iterators(ld);
  if (chance(20)) check_norm(s, ld);
  if (s->calls) atomic_store(&s->calls->done, 0);
  if (insitu_loader_stats(ld, &opened, NULL)) differ("no statistics"); /* the coordinate was read */
  if (!walk_open(&w, s, ld, 0, run->part, run->order, run->world, rank, epoch, &plan)) {
    insitu_loader_close(&loaders[0]);
    return;
  }
  run->lanes = w.e.lanes;
  run->window = w.e.window;
  run->n_batches = w.e.batches;
  w.run = run;
  if (!run->after) {
    run->after = own((w.e.batches + 1) * sizeof *run->after);
    draw_skips(run);
  }
  bool again = chance(30);
  if (again) walk_steps(&w);
  while (walk_step(&w))
    if (chance(1)) walk_steps(&w);
  run->whole = !w.failed;
  bool kept = !again && !run->n_skips && is_kept(&w, &opened);
  w.run = NULL;
  check_skipped(&w, ld);
  while (w.n_held) release_one(&w);
  bool counts = d.hold_epoch && !w.failed && !d.check && !run->n_skips;
  if (counts) check_reads(&w, ld, &plan, &opened, again);
  if (s->calls && !run->n_skips && d.hold_epoch && !w.failed) check_calls(&w, ld, again);
  if (chance(30)) walk_steps(&w);
  if (counts && chance(30)) { /* nothing of the next epoch is prefetched */
    if (insitu_loader_stats(ld, &opened, NULL)) differ("no statistics");
    walk_next_epoch(&w, ++epoch, false);
    if (chance(30)) walk_steps(&w);
    while (walk_step(&w)) {}
    while (w.n_held) release_one(&w);
    if (!w.failed) check_reads(&w, ld, &plan, &opened, false);
  }
  w.skips = chance(50);
  if (chance(50)) {
    bool moved = w.failed || chance(40);
    if (moved) {
      epoch = draw(5);
      if (insitu_iter_set_epoch(w.it, epoch, &err))
        differ("insitu_iter_set_epoch: %s", err.message);
    } else {
      epoch++;
    }
    walk_next_epoch(&w, epoch, moved);
    if (chance(30)) walk_steps(&w);
    for (uint64_t n = draw(20); n && walk_step(&w); n--) {}
    if (chance(30)) run_beside(s, ld, &w);
    if (chance(30)) check_read(s, ld, false);
  }
  for (uint64_t n = chance(40) ? 1 + draw(5) : 0; n; n--) {
    walk_move(&w);
    for (uint64_t k = draw(6); k && walk_step(&w); k--) {}
  }
  if (chance(80)) { /* else with the loader */
    walk_close(&w);
    if (!iters[1] && chance(30)) check_read(s, ld, true);
  }
  insitu_loader_close(&loaders[0]);
  w.closing = true;
  while (w.n_held) release_one(&w);
  let_go();
  if (kept && chance(50)) run_offline(s, run, rank);
}

/* ---- resuming ---- */
/* Other selections, labels and dtypes of the same samples: a state holds for them as well. */
static void select_anew(struct setup *s) {
  for (int i = 0; i < s->n_variables; i++) {
    struct view *v = &s->view[i];

    if (v->v.into) {
      v->v.dtype = 0; /* each has its own again */
      v->v.into = NULL;
    }
    if (!v->v.path) v->v.path = v->v.label;
    v->v.label = own_text("again%d", i);
    draw_selection(&s->archive, v);
    draw_computing(v, own_text("masked%d", i));
    if (v->array->type->kind == KIND_COMPLEX) v->v.n_ops = 0, v->v.mask = NULL;
    if (v->array->type->kind != KIND_COMPLEX && chance(30)) v->v.dtype = INSITU_F32;
    if (view_refusal(v)) v->v.dtype = 0;
    s->variable[i] = v->v;
  }
  draw_numbers(s);
  s->desc.variables = s->variable;
}

/* The block_chunks that the rule chooses with these units where the desc gives none; 0: none. */
static uint64_t rule_block(const insitu_loader_desc *d, uint64_t unit_chunks) {
  insitu_loader_desc open = *d;
  insitu_loader *ld;
  insitu_error err;

  open.unit_chunks = unit_chunks;
  open.block_chunks = 0;
  if (open_cache(&open, &ld, &err)) return 0;
  uint64_t block_chunks = insitu_loader_config(ld)->block_chunks;
  insitu_loader_close(&ld);
  return block_chunks;
}

/* Takes over the units and windows that the rule fills in, which tests/unit/test_rule.c is about.
 * What a desc gives, it keeps; but block_chunks that are the rule's count as left to it. A desc
 * that is refused has none. */
static void settle(struct setup *s, uint64_t world) {
  insitu_loader_desc d = desc_of(s, world, 0);
  insitu_loader *ld;
  insitu_error err;

  bool given = d.unit_chunks && d.block_chunks, chosen = !d.block_chunks;
  memset(s->window, 0, sizeof s->window);
  if (given && d.lanes) return;
  d.plan_only = 1;
  d.memory_budget = 0;
  d.assembly = 0;
  d.log_level = INSITU_LOG_OFF;
  if (open_cache(&d, &ld, &err)) return;
  const insitu_loader_desc *c = insitu_loader_config(ld);
  if (d.unit_chunks && c->unit_chunks != d.unit_chunks) differ("unit_chunks of the desc is lost");
  if (d.block_chunks && c->block_chunks != d.block_chunks)
    differ("block_chunks of the desc is lost");
  s->unit_chunks = c->unit_chunks;
  s->block_chunks = c->block_chunks;
  if (!chosen && !d.lanes) chosen = rule_block(&d, c->unit_chunks) == d.block_chunks;
  for (int32_t p = INSITU_TRAIN; p <= INSITU_ALL && !d.lanes && chosen; p++) {
    insitu_iter_desc id = {.api = INSITU_API, .split = p, .order = INSITU_SHUFFLED};
    insitu_plan plan = {.window = 0};
    insitu_status status = insitu_loader_plan(ld, &id, &plan, NULL);
    s->window[p] = status ? 0 : plan.window;
  }
  insitu_loader_close(&ld);
  if (!given) cut_split(s);
}

/* The same setup with its own defaults; perhaps with a desc that leaves units, windows and lanes
 * open, or some of them. */
static struct setup *leave_open(const struct setup *s, uint64_t world, bool leave) {
  struct setup *open = own(sizeof *open);

  *open = *s;
  if (leave && chance(70)) open->desc.unit_chunks = 0;
  if (leave && chance(70)) open->desc.block_chunks = 0;
  if (leave && chance(70)) open->desc.lanes = 0;
  settle(open, world);
  return open;
}

/* Goes on behind a state, and tells the one behind the batch that came last; false: it is not
 * known. */
static bool resume_from(struct setup *s, struct run *run, const struct saved *from, uint64_t k,
    uint64_t world, struct saved *last, uint64_t *last_batch) {
  struct setup *opened = leave_open(s, world, chance(50));
  uint64_t rank = draw(world);
  insitu_loader_desc d = desc_of(opened, world, rank);
  insitu_loader *ld = open_loader(opened, &d, 0);
  insitu_error err = {0};
  insitu_plan plan;
  struct walk w;

  if (!ld) return false;
  if (!walk_open(&w, opened, ld, 0, run->part, run->order, world, rank, draw(3), &plan)) {
    insitu_loader_close(&loaders[0]);
    return false;
  }
  if (chance(40)) walk_steps(&w); /* the state does not know of it */
  w.skips = chance(30);
  for (uint64_t i = draw(4); i && walk_step(&w); i--) {}
  insitu_status status = insitu_iter_restore(w.it, &from->state, &err);
  if (status == INSITU_E_BUDGET && d.memory_budget < UINT64_C(1) << 28) {
    while (walk_step(&w)) {} /* it is as it was */
    walk_close(&w);
    insitu_loader_close(&loaders[0]);
    return false;
  }
  if (status)
    differ("restoring behind batch %d of epoch %d at world size %d, after %d: %s", (int)k,
        (int)run->epoch, (int)world, (int)run->world, err.message);
  w.s = s;
  w.before = run;
  w.epoch = run->epoch;
  w.failed = w.ended = false;
  w.batch = k + 1; /* behind the last one comes the end */
  w.out = own(run->n_batches + 1);
  w.out_next = own(run->n_batches + 1);
  memcpy(w.out, from->out, run->n_batches);
  w.sum = from->sum;
  w.summed = from->summed;
  w.last.is = false;
  w.skips = chance(30);
  walk_epoch(&w, run->lanes, run->window);
  check_positions(&w, run);
  if (chance(40)) walk_steps(&w);
  for (uint64_t n = chance(40) ? draw(8) : UINT64_MAX; n && walk_step(&w); n--)
    *last_batch = w.batch - 1;
  *last = w.last;
  check_skipped(&w, ld);
  w.before = NULL;
  if (!w.failed && w.ended && chance(30)) {
    walk_next_epoch(&w, w.epoch + 1, false);
    walk_step(&w);
  }
  walk_close(&w);
  insitu_loader_close(&loaders[0]);
  return last->is;
}

/* Goes on behind a batch, at a world size and with resources that need not be those of the run that
 * gave the state, and perhaps with units, windows and lanes that only the state knows; then perhaps
 * behind a state of that iterator, and so on. */
static void resume(const struct setup *saved, struct run *run) {
  uint64_t sizes[64], n = 0, k = draw(run->n_batches);

  while (!run->after[k].is) k = (k + 1) % run->n_batches;
  struct saved from = run->after[k];
  for (uint64_t r = 1; r <= run->lanes && n < 64; r++)
    if (run->lanes % r == 0) sizes[n++] = r;
  do {
    struct setup *s = own(sizeof *s);
    uint64_t world = run->world;

    *s = *saved;
    if (chance(40)) select_anew(s);
    if (chance(50)) s->fixed.array = s->fixed_mask.array = NULL; /* a state does not know of it */
    if (run->order == INSITU_SHUFFLED) {
      world = sizes[draw(n)];
      s->desc.lanes = run->lanes; /* where its default is another one */
      /* beside lanes, block_chunks leaves no window to the rule */
      if (most(1, s->block_chunks / s->unit_chunks / run->lanes) != run->window)
        s->desc.block_chunks = 0;
    }
    s->desc.prefetch_depth = draw(5);
    s->desc.max_inflight = draw(6);
    s->desc.cache_memory = 0;
    if (chance(40)) draw_cache(s);
    if (chance(30)) draw_receipts(&s->desc);
    s->desc.inline_io = chance(50);
    if (s->global % world) return;
    if (!resume_from(s, run, &from, k, world, &from, &k)) return;
  } while (chance(50));
}

/* A sequential epoch of another number of ranks has the same sequence, cut into other parts. */
static void check_parts(struct setup *s, const struct run *run) {
  uint64_t world = 1 + draw(MAX_WORLD), rank = draw(world), n = s->split.part[run->part].n;
  uint64_t q = ceil_div(n, run->lanes);
  insitu_loader_desc d = desc_of(s, world, rank);
  insitu_plan plan;
  struct walk w;

  if (s->global % world) return;
  insitu_loader *ld = open_loader(s, &d, 0);
  if (ld && walk_open(&w, s, ld, 0, run->part, run->order, world, rank, run->epoch, &plan)) {
    uint64_t part = ceil_div(n, world);

    for (uint64_t i = 0; i < part && rank * part + i < n; i++) {
      uint64_t at = rank * part + i, old = at % q * run->lanes + at / q;

      if (w.e.anchor[i * world + rank] != run->global[old])
        differ("sequence %d of %d ranks: anchor %s, of %d ranks %s", (int)at, (int)world,
            number_words(s->space, w.e.anchor[i * world + rank]), (int)run->world,
            number_words(s->space, run->global[old]));
    }
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

static bool same_anchors(const struct part *a, const struct part *b) {
  return a->n == b->n && !memcmp(a->anchor, b->anchor, a->n * sizeof *a->anchor);
}

/* A manifest that gives one chunk to another split. */
static bool move_a_chunk(struct setup *s) {
  static const char *const names[] = {"train", "val", "test"};
  struct text *t = own(sizeof *t);
  uint64_t ref = reference(s), moved = draw(s->split.n_ref);
  signed char *owner = own(s->samples);
  bool whole = s->kind == SPLIT_DEFAULT || s->kind == SPLIT_FRACTIONS || s->kind == SPLIT_MANIFEST;

  if (!whole || s->split.lo || s->split.hi < (int64_t)s->samples) return false;
  memcpy(owner, s->split.owner, s->samples);
  int to = (int)draw(4) - 1;
  if (chance(50)) { /* the last one of a part to the next part */
    int from = (int)draw(2);

    for (uint64_t c = 0; c < s->split.n_ref; c++)
      if (owner[c * ref] == from) moved = c;
    to = from + 1;
  }
  for (uint64_t x = moved * ref; x < least((moved + 1) * ref, s->samples); x++)
    owner[x] = (signed char)to;
  s->split.owner = owner;
  s->split.excluded = own(s->samples);
  say(t,
      "{\"n_chunks\":%" PRIu64 ",\"sample_chunk_size\":%" PRIu64 ",\"n_samples\":%" PRIu64
      ",\"seed\":null,\"chunks\":{",
      s->split.n_ref, ref, s->samples);
  for (int p = 0; p < 3; p++) {
    bool first = true;

    say(t, "%s\"%s\":[", p ? "," : "", names[p]);
    for (uint64_t c = 0; c < s->split.n_ref; c++) {
      if (owner[c * ref] != p) continue;
      say(t, "%s%" PRIu64, first ? "" : ",", c);
      first = false;
    }
    say(t, "]");
  }
  say(t, "}}");
  memset(s->desc.split, 0, sizeof s->desc.split);
  s->desc.split_shuffled = 0;
  s->desc.manifest = own_text("%s/moved.json", s->folder);
  write_file(s->desc.manifest, t->at, t->n);
  return true;
}

/* Gives a setup a draw space of its own, which may be changed. */
static void own_space(struct setup *s) {
  struct space *space = own(sizeof *space);

  *space = *s->space;
  s->space = space;
  s->desc.axes = s->axes;
  for (int i = 0; i < s->n_views; i++) s->view[i].space = space;
}

/* Takes the last sample from the list. */
static void drop_listed(struct setup *s) {
  const struct space *old = s->space;
  int64_t index[MAX_AXES] = {0};
  uint64_t columns = 0, column = 0;

  for (int k = 0; k < old->n; k++) columns += !(old->patches && old->axis[k].patch);
  const int64_t *row = s->desc.samples + --s->desc.n_samples * columns;
  for (int k = 0; k < old->n; k++)
    if (!(old->patches && old->axis[k].patch)) index[k] = row[column++];
  s->space->sampled = memcpy(own(space_places(old)), old->sampled, space_places(old));
  s->space->sampled[space_number(old, index)] = false;
}

/* Whether the list names a patch of a grid that is none any more. */
static bool lists_no_patch(const struct space *s) {
  int64_t index[MAX_AXES];
  if (!s->sampled || s->patches) return false;
  for (uint64_t i = 0; i < space_places(s); i++) {
    space_index(s, (int64_t)i, index);
    if (s->sampled[i] && !space_begins(s, index)) return true;
  }
  return false;
}

/* Another draw space; NULL: there is nothing to change. */
static const char *change_space(struct setup *s) {
  int k = (int)draw((uint64_t)s->space->n);

  if (!s->space->listed) return NULL;
  own_space(s);
  struct axis *a = &s->space->axis[k];
  switch (draw(5)) {
  case 4:
    if (s->desc.n_samples < 2) return NULL;
    drop_listed(s);
    return "a list";
  case 0:
    if (!s->space->patches) return NULL;
    s->desc.patches = ++s->space->patches;
    return "the number of patches";
  case 1: {
    struct space before = *s->space;
    bool moves = false;
    s->space->halo++;
    /* Patches that may hang over the edges stay where they are, and so may those on a stride: the
     * order is then the same, and so are the states. */
    for (int j = 0; j < s->space->n; j++) {
      const struct axis *other = &s->space->axis[j];
      if (!other->patch) continue;
      if (!axis_begins_count(s->space, other)) return NULL;
      for (int64_t at = -other->below; at < (int64_t)other->n; at++)
        moves = moves || axis_begins(&before, other, at) != axis_begins(s->space, other, at);
    }
    if (!moves || lists_no_patch(s->space)) return NULL; /* open refuses such a list */
    s->variable[0].halo = s->view[0].v.halo = (uint64_t)s->space->halo;
    if (s->view[0].v.into) return NULL; /* its shape must be that of others */
    return "the longest halo";
  }
  case 2:
    if (a->patch || k == s->space->along) return NULL;
    s->axes[k].stride = ++a->stride;
    return "a stride";
  default:
    if (a->patch || k == s->space->along || a->hi - a->lo < 2) return NULL;
    if (chance(50)) s->axes[k].start = ++a->lo;
    else s->axes[k].stop = --a->hi;
    return "the range of an axis";
  }
}

/* Another rate of an array that is matched by one; NULL: there is none. */
static const char *change_rate(struct setup *s) {
  int i = (int)draw((uint64_t)s->n_views);
  const struct array *a = s->view[i].array;
  const struct partners *p = a->partners;
  struct array *other = own(sizeof *other);

  if (!p || !p->map || p->map == INSITU_BY_COORDINATE) return NULL;
  int64_t rate = p->rate < 0 ? p->rate - 1 : p->rate > 1 ? p->rate + 1 : 2;
  *other = *a;
  other->partners = partners_by_rate(p->anchors, p->indexes, rate, p->map == INSITU_BY_INDEX_FLOOR);
  for (int k = 0; k < s->n_views; k++) {
    if (s->view[k].array != a) continue;
    s->view[k].array = other;
    s->view[k].v.rate = rate;
    if (k < s->n_variables) s->variable[k].rate = rate;
  }
  for (int k = 0; k < s->n_views; k++) { /* a reference chunk of another length says it as well */
    const struct array *b = s->view[k].array;
    uint64_t size = b->level[array_leaf(b)].size[b->axis];

    if (b->partners && !b->partners->den) return NULL;
    if (b->partners) size = partners_last(b->partners, size);
    uint64_t *ref = &s->split.ref[s->space->along];
    *ref = k ? most(*ref, size) : size;
  }
  return s->kind == SPLIT_RANGES || s->kind == SPLIT_DATES ? "a rate" : NULL;
}

/* A configuration that differs in something that the order or the batches depend on must refuse the
 * state. */
static void refuse_state(struct setup *s, const struct run *run) {
  struct setup *other = own(sizeof *other);
  insitu_error err = {0};
  insitu_plan plan;
  struct walk w;
  const char *what = NULL;
  uint64_t lanes = run->lanes, window;
  insitu_status status;

  *other = *s;
  switch (draw(9)) {
  case 0: /* a sequential order has none, but patches are drawn by it */
    if (run->order == INSITU_SEQUENTIAL && !s->space->patches) return;
    other->desc.seed++;
    if (!s->spread) what = "seed";
    break;
  case 1:
    other->desc.unit_chunks = ++other->unit_chunks;
    if (run->order == INSITU_SHUFFLED) what = "unit_chunks";
    break;
  case 2:
    other->variable[0].offset++;
    other->view[0].v.offset++;
    what = "the offset of a variable";
    break;
  case 3:
  case 4:
    if (move_a_chunk(other)) what = "the split";
    break;
  case 5: what = change_rate(other); break;
  case 6:
  case 7: what = change_space(other); break;
  default: other->desc.split_gap++; what = "split_gap";
  }
  if (!what) return;
  place_masks(other); /* they show what their variables do */
  other->desc.variables = other->variable;
  cut_split(other);
  settle(other, run->world);
  bool by_split = !strcmp(what, "the split") || !strcmp(what, "split_gap");
  /* what the other parts have decides nothing */
  bool same = same_anchors(&other->split.part[run->part], &s->split.part[run->part]);
  bool by_axis = !strcmp(what, "a stride") || !strcmp(what, "the range of an axis");
  if ((by_axis || !strcmp(what, "a list")) && same)
    return; /* of anchors that are the same the manual says nothing */
  same = same && by_split;
  /* with a stride units end at what lies between anchors, too: two splits of the same anchors may
   * have other units */
  if (same && s->space->axis[s->space->along].stride > 1) return;
  if (!layout(other, run->part, run->order, run->world, &lanes, &window, &status)) return;
  insitu_loader_desc d = desc_of(other, run->world, 0);
  insitu_loader *ld = open_loader(other, &d, 0);
  if (ld && walk_open(&w, other, ld, 0, run->part, run->order, run->world, 0, 0, &plan)) {
    uint64_t k = draw(run->n_batches);
    while (!run->after[k].is) k = (k + 1) % run->n_batches;
    status = insitu_iter_restore(w.it, &run->after[k].state, &err);
    if (status != (same ? INSITU_OK : INSITU_E_STATE))
      differ("a state of another configuration (%s): %s %s", what, insitu_status_name(status),
          err.message);
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

/* The "config" of a loader's description; the caller frees it. */
static char *config_of(const insitu_loader *ld) {
  uint64_t cap = insitu_loader_describe(ld, NULL, 0) + 4096;
  char *text = malloc(cap), *end = NULL;

  if (!text || insitu_loader_describe(ld, text, cap) >= cap) differ("no description");
  end = strstr(text, "}, \"origins\": {");
  if (!end) differ("no origins in %.400s", text);
  memcpy(end, "}}", 3);
  return text;
}

/* What a loader says of its configuration opens as a loader that says the same. */
static void describe_again(const struct setup *s, const insitu_loader_desc *d) {
  insitu_loader *ld = open_loader(s, d, 0);
  insitu_loader_desc base = {.api = INSITU_API,
      .objects = d->objects,
      .n_objects = d->n_objects,
      .samples = d->samples,
      .n_samples = d->n_samples,
      .on_batch = d->on_batch,
      .on_batch_user = d->on_batch_user,
      .log_level = INSITU_LOG_OFF};
  insitu_error err = {0};

  if (!ld) return;
  char *first = config_of(ld);
  insitu_loader_close(&loaders[0]);
  if (insitu_loader_open_json(first, &base, &loaders[0], &err))
    differ("%s: its own description does not open: %s", first, err.message);
  char *second = config_of(loaders[0]);
  insitu_loader_close(&loaders[0]);
  if (strcmp(first, second)) differ("described as\n%s\nand, opened again, as\n%s", first, second);
  free(first);
  free(second);
}

/* ---- statistics ---- */
/* The same case with operations that take their numbers from a scan of its train split. */
static void run_statistics(const struct setup *given) {
  struct setup *s = own(sizeof *s);
  int part = chance(75) ? INSITU_TRAIN : (int)draw(4), some = 0;
  const char *dim = NULL, *path = own_text("%s/stats.json", given->folder);

  *s = *given;
  for (int i = 0; i < s->n_variables; i++)
    if (s->view[i].array->type->kind == KIND_COMPLEX) return;
  if (space_patched(s->space) || s->desc.n_samples > 4000) return;
  if (chance(60)) {
    const struct array *a = s->view[draw((uint64_t)s->n_variables)].array;
    int d = (int)draw((uint64_t)a->ndim);

    dim = a->dims[d] ? a->dims[d] : own_text("%d", d);
    if (chance(2)) dim = "no such axis";
  }
  for (int i = 0; i < s->n_variables; i++)
    if (chance(70)) some += give_norm(s, i, dim);
  place_masks(s);
  s->desc.variables = s->variable;
  insitu_loader_desc d = desc_of(s, 1, 0);
  if (!scan_case(s, &d, part, dim, path) || part != INSITU_TRAIN) return;
  if (some && chance(20)) {
    s->refused = INSITU_E_ARG;
    s->why = "operations without numbers";
    open_loader(s, &d, 0);
    s->refused = INSITU_OK;
  }
  if (!take_norms(s, path, dim)) return;
  if (!s->refused) settle(s, 1);
  d = desc_of(s, 1, 0);
  if (s->refused) {
    open_loader(s, &d, 0);
    return;
  }
  if (chance(30)) describe_again(s, &d);
  insitu_loader *ld = open_loader(s, &d, 0);
  insitu_plan plan;
  struct walk w;
  if (!ld) return;
  check_norm(s, ld);
  if (walk_open(&w, s, ld, 0, (int32_t)draw(4), (int32_t)(1 + draw(2)), 1, 0, draw(3), &plan)) {
    while (walk_step(&w)) {}
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

/* ---- the registry of bad chunks ---- */
/* The same archive with its registry as the manifest: no epoch meets a damaged chunk. */
static void run_registry(const struct setup *given) {
  struct setup *s = own(sizeof *s);
  insitu_plan plan;
  struct walk w;

  if (!has_registry(given)) return;
  *s = *given;
  s->desc.manifest = write_registry(s);
  s->desc.on_bad_chunk = INSITU_AUTO;
  s->desc.split_shuffled = s->spread = false;
  memset(s->desc.split, 0, sizeof s->desc.split);
  s->kind = SPLIT_DEFAULT;
  s->fixed.array = s->fixed_mask.array = NULL;
  s->split.excluded = bad_samples(s);
  s->split.owner = memset(own(s->samples), NOBODY, s->samples);
  s->split.kept = own(s->samples);
  split_fractions(s);
  cut_split(s);
  settle(s, 1);
  check_registry(s, s->desc.manifest, s->split.excluded);
  insitu_loader_desc d = desc_of(s, 1, 0);
  insitu_loader *ld = open_loader(s, &d, 0);
  int32_t order = chance(50) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  if (ld &&
      walk_open(&w, s, ld, 0, chance(50) ? INSITU_ALL : INSITU_TRAIN, order, 1, 0, 0, &plan)) {
    if (w.bad_corrupt) differ("a sample that is not excluded has a damaged chunk");
    while (walk_step(&w)) {}
    walk_close(&w);
  }
  insitu_loader_close(&loaders[0]);
}

static void run_case(struct setup *s) {
  struct run run = {.world = s->desc.world ? (uint64_t)s->desc.world : 1, .epoch = draw(3)};
  insitu_loader_desc d = desc_of(s, run.world, 0);
  bool whole = true;

  run.part = chance(60) ? INSITU_TRAIN : (int32_t)draw(4);
  run.order = chance(run.part == INSITU_TRAIN ? 80 : 40) ? INSITU_SHUFFLED : INSITU_SEQUENTIAL;
  run.seen = own(space_places(s->space) * 8);
  if (s->refused) {
    open_loader(s, &d, 0);
    return;
  }
  settle(s, run.world);
  adopt_split(s, &d);
  if (s->number % 4 == 0) describe_again(s, &d);
  if (s->number % 5 == 0) run_statistics(s);
  if (s->number % 2) run_registry(s);
  for (uint64_t r = 0; r < run.world; r++) {
    run_rank(s, &run, r);
    whole = whole && run.whole;
  }
  bool saved = false;
  for (uint64_t b = 0; b < run.n_batches; b++) saved = saved || run.after[b].is;
  if (!whole) return;
  const struct part *p = &s->split.part[run.part];
  uint64_t n = 0, want = run.order == INSITU_SHUFFLED ? p->n / s->global * s->global : p->n;
  for (uint64_t i = 0; i < space_places(s->space); i++) n += run.seen[i];
  want -= run.left;
  if (n != want)
    differ("%s: %d of %d anchors came in an epoch, not %d", part_names[run.part], (int)n, (int)p->n,
        (int)want);
  if (saved && chance(50)) resume(s, &run);
  if (saved && chance(25)) refuse_state(s, &run);
  if (chance(30) && run.order == INSITU_SEQUENTIAL) check_parts(s, &run);
}

/* ---- running cases ---- */
static struct setup *now;

static void tell_end(const char *what) {
  fprintf(stderr, "case %" PRIu64 ": %s\n", now->number, what);
  tell_case(stderr, now);
  fprintf(stderr, "  again: make test-random SEED=%" PRIu64 " N=1%s\n", now->number, replay);
}

static void on_signal(int number) {
  signal(number, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  tell_end(number == SIGALRM ? "it hangs" : "it crashed");
  alarm(5); /* clearing up may hang, too */
  remove_all(random_dir);
  raise(number);
}

/* True: model and library agree. */
static bool one_case(uint64_t number, bool verbose) {
  struct setup s = {0};
  volatile bool good = true;

  now = &s;
  alarm(MAX_SECONDS);
  if (!setjmp(case_end)) {
    gpus_begin(number);
    draw_case(&s, number);
    if (verbose) {
      printf("case %" PRIu64 "\n", number);
      tell_case(stdout, &s);
      fflush(stdout);
    }
    run_case(&s);
    let_go();
    gpus_end();
  } else {
    good = false;
    tell_end(difference);
    gpus_quiet();
    let_go();
  }
  remove_all(s.folder);
  disown_all();
  alarm(0);
  return good;
}

static uint64_t run_cases(uint64_t seed, uint64_t n, bool verbose) {
  uint64_t bad = 0;

  for (uint64_t i = 0; i < n && bad < 20; i++) bad += !one_case(seed + i, verbose);
  return bad;
}

static void begin(void) {
  const char *tmp = getenv("TMPDIR");

  if (!tmp) tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
  snprintf(random_dir, sizeof random_dir, "%.200s/insitu-random-XXXXXX", tmp);
  if (!mkdtemp(random_dir)) abort();
  random_server = server_start(&(struct server_options){.folder = random_dir, .no_log = true});
  signal(SIGALRM, on_signal);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  signal(SIGSEGV, on_signal);
  signal(SIGABRT, on_signal);
  signal(SIGFPE, on_signal);
#endif
}

static void end(void) {
  server_stop(&random_server);
  remove_all(random_dir);
  free(case_block);
}

static void test_slice(void **state) {
  (void)state;
  begin();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  uint64_t n = SLICE / 4;
#else
  uint64_t n = getenv("TEST_VALGRIND") ? 20 : SLICE;
#endif
  uint64_t bad = run_cases(1, n, false);
  end();
  assert_int_equal(bad, 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_slice)};
  uint64_t seed = 1, n = SLICE;
  bool verbose = false;

  find_tool(argv[0]);
  if (argc < 2) return cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-v")) verbose = true;
    else if (i + 1 < argc && !strcmp(argv[i], "--seed")) seed = strtoull(argv[++i], NULL, 10);
    else if (i + 1 < argc && !strcmp(argv[i], "--n")) n = strtoull(argv[++i], NULL, 10);
    else return fprintf(stderr, "usage: test_random [--seed S] [--n N] [-v]\n"), 2;
  }
  begin();
  uint64_t bad = run_cases(seed, n, verbose);
  end();
  printf("cases %" PRIu64 " to %" PRIu64 ": %" PRIu64 " differ\n", seed, seed + n - 1, bad);
  return bad != 0;
}
