/* insitu plan: what an epoch of each split costs, told from metadata alone, and which knob helps
 * where it costs much. */

struct plan_cost { /* of one split */
  insitu_status status;
  insitu_error err;
  insitu_plan plan;
  insitu_quality quality;
  uint64_t delivered, ring_bytes, memory_bytes;
};
/* What a hint is about; the first that a plan has is what limits it most. */
enum plan_about {
  PLAN_MEMORY,
  PLAN_READS,
  PLAN_MIXING,
  PLAN_LEFT_OUT,
  PLAN_TIMES,
  PLAN_NOTE,
  PLAN_ABOUTS
};
static const char *const plan_limits[] = {"memory", "chunks that are decoded again",
    "how little is mixed", "samples that are left out", "gaps in time", "what gave way"};
static const char *const plan_limit_keys[] = {
    "memory", "reads", "mixing", "dropped", "times", "note"};
struct plan_hint {
  enum plan_about about;
  int split; /* which one it tells of; PLAN_SPLITS: all */
  char text[600];
};
enum { PLAN_SPLITS = 4, PLAN_MAX_HINTS = 12, PLAN_HEADLINE = 1100 };
struct plan {
  struct config config;
  insitu_loader *loader;
  struct plan_cost cost[PLAN_SPLITS];
  struct plan_hint hint[PLAN_MAX_HINTS];
  int n_hints;
  enum plan_about about; /* of hints that are told now */
  int split;             /* the same */
  int only;              /* the one split asked for, -1: all */
  bool refused;          /* some split that was asked for does not fit memory_budget */
};

static const char *plan_page, *plan_marks; /* --html, --marks */

static uint64_t plan_memory(const insitu_plan *p) { /* of one iterator and the loader */
  return p->slabs * p->slab_bytes + p->table_bytes + p->fixed_bytes + p->inflight_bytes +
         p->cache_bytes;
}
/* the order asked for holds for the split asked for */
static insitu_iter_desc plan_iter(const struct config *c, int split) {
  insitu_iter_desc d = c->iter;
  if (d.split != split) d.order = INSITU_AUTO;
  d.split = split;
  return d;
}
__attribute__((format(printf, 2, 3))) static void plan_say(
    struct plan *p, const char *format, ...) {
  va_list args;
  if (p->n_hints == PLAN_MAX_HINTS) return;
  va_start(args, format);
  p->hint[p->n_hints].about = p->about;
  p->hint[p->n_hints].split = p->split;
  vsnprintf(p->hint[p->n_hints++].text, sizeof p->hint->text, format, args);
  va_end(args);
}

#include "plan_times.h"

/* What one split would cost with another configuration; false where that cannot be opened or
 * planned. */
static bool plan_try(
    const struct plan *p, const insitu_loader_desc *desc, int split, insitu_plan *out) {
  insitu_loader *ld;
  insitu_iter_desc it = plan_iter(&p->config, split);
  if (insitu_loader_open(desc, &ld, NULL) < 0) return false;
  bool ok = insitu_loader_plan(ld, &it, out, NULL) == INSITU_OK;
  insitu_loader_close(&ld);
  return ok;
}

/* Before a number that is a bound, since windows share chunks that are kept. */
static const char *plan_bound(const insitu_plan *p) {
  return p->assembly == INSITU_GATHER ? "up to " : "";
}

/* What the rule aims at that chooses units by default: see ORDER BY DEFAULT in the manual. */
#define PLAN_DECODED 1.15

/* Larger units until chunks are hardly decoded twice, then longer windows where that mixes too
 * little. */
static void plan_hint_reads(struct plan *p, int split) {
  const insitu_plan *now = &p->cost[split].plan;
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  insitu_loader_desc d = *c;
  insitu_plan better, best = *now;
  uint64_t units = 0, blocks = c->block_chunks;
  char knob[80] = "";
  for (uint64_t k = 2; k <= 64 && k * c->unit_chunks <= c->block_chunks; k *= 2) {
    d.unit_chunks = k * c->unit_chunks;
    if (!plan_try(p, &d, split, &better)) break;
    if (better.decode_amplification < 0.98 * best.decode_amplification) {
      best = better;
      units = d.unit_chunks;
    }
    if (better.decode_amplification <= PLAN_DECODED) break;
  }
  if (!units) {
    plan_say(p,
        "%s: every chunk is decoded %s%.2f times. Larger unit_chunks do not help here: use fewer "
        "offsets and steps, a larger "
        "block_chunks, or another chunking.",
        insitu__document_split_words[split], plan_bound(now), now->decode_amplification);
    return;
  }
  d.unit_chunks = units;
  for (uint64_t k = 2;
       k <= 64 && best.variance_ratio > 2 && best.variance_ratio > now->variance_ratio; k *= 2) {
    d.block_chunks = k * c->block_chunks;
    if (!plan_try(p, &d, split, &better) || plan_memory(&better) > c->memory_budget) break;
    if (better.variance_ratio > 0.95 * best.variance_ratio) break;
    best = better;
    blocks = d.block_chunks;
  }
  if (blocks != c->block_chunks) snprintf(knob, sizeof knob, " and block_chunks %" PRIu64, blocks);
  if (now->variance_ratio > 0)
    plan_say(p,
        "%s: every chunk is decoded %s%.2f times, because windows reach beyond their chunks. "
        "unit_chunks %" PRIu64 "%s would make it %s%.2f, with a variance ratio of %.2f.",
        insitu__document_split_words[split], plan_bound(now), now->decode_amplification, units,
        knob, plan_bound(&best), best.decode_amplification, best.variance_ratio);
  else
    plan_say(p,
        "%s: every chunk is decoded %s%.2f times, because windows reach beyond their chunks. "
        "unit_chunks %" PRIu64 " would make it %s%.2f.",
        insitu__document_split_words[split], plan_bound(now), now->decode_amplification, units,
        plan_bound(&best), best.decode_amplification);
}
/* Fewer batches ahead, which does not change the order; then smaller windows. */
static void plan_hint_memory(struct plan *p, int split) {
  const insitu_plan *now = &p->cost[split].plan;
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  insitu_loader_desc d = *c;
  insitu_plan smaller = *now;
  char need[32], budget[32], text[32], knob[80];
  tool_bytes(need, plan_memory(now));
  tool_bytes(budget, c->memory_budget);
  while (plan_memory(&smaller) > c->memory_budget) {
    if (d.prefetch_depth > 4) {
      d.prefetch_depth = insitu__base_max(4, d.prefetch_depth / 2);
    } else {
      d.block_chunks /= 2;
      d.lanes = 0;
    }
    if (d.block_chunks < d.unit_chunks || !plan_try(p, &d, split, &smaller)) break;
  }
  if (plan_memory(&smaller) <= c->memory_budget) {
    int n = snprintf(knob, sizeof knob, "prefetch_depth %" PRIu64, d.prefetch_depth);
    if (d.block_chunks != c->block_chunks)
      snprintf(knob + n, sizeof knob - (size_t)n, " and block_chunks %" PRIu64, d.block_chunks);
    plan_say(p,
        "%s: it needs %s of memory and memory_budget is %s, so opening it will be refused. %s "
        "would take %s.",
        insitu__document_split_words[split], need, budget, knob,
        tool_bytes(text, plan_memory(&smaller)));
    return;
  }
  plan_say(p,
      "%s: it needs %s of memory and memory_budget is %s, so opening it will be refused. Raise "
      "memory_budget, or lower batch_size "
      "(%s for each of %" PRIu64 " batches) or max_inflight.",
      insitu__document_split_words[split], need, budget, tool_bytes(text, now->slab_bytes),
      now->slabs);
}
/* Longer windows until batches are mixed. */
static void plan_hint_mixing(struct plan *p, int split) {
  const insitu_plan *now = &p->cost[split].plan;
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  insitu_loader_desc d = *c;
  insitu_plan better, best = *now;
  uint64_t blocks = 0;
  char text[32];
  for (uint64_t k = 2; k <= 1024; k *= 2) {
    d.block_chunks = k * c->block_chunks;
    if (!plan_try(p, &d, split, &better) || plan_memory(&better) > c->memory_budget) break;
    if (better.variance_ratio < 0.95 * best.variance_ratio) {
      best = better;
      blocks = d.block_chunks;
    }
    if (better.variance_ratio <= 1.5) break;
  }
  if (blocks)
    plan_say(p,
        "%s: batches vary %.2f times as much as by an ideal shuffle. block_chunks %" PRIu64
        " would make it %.2f and take %s of memory.",
        insitu__document_split_words[split], now->variance_ratio, blocks, best.variance_ratio,
        tool_bytes(text, plan_memory(&best)));
  else
    plan_say(p,
        "%s: batches vary %.2f times as much as by an ideal shuffle, and more block_chunks do not "
        "help or do not fit; "
        "lower unit_chunks, or raise memory_budget.",
        insitu__document_split_words[split], now->variance_ratio);
}
/* The reasons that leave out much of the split. */
static void plan_hint_drops(struct plan *p, int split) {
  const struct insitu__split_part *part = &p->loader->split.part[split];
  char text[400];
  for (int r = 0; r < INSITU_DROPS; r++)
    if (insitu__plan_dropped_much(part, p->cost[split].plan.dropped, r, text, sizeof text))
      plan_say(p, "%s: %s.", insitu__document_split_words[split], text);
}
static void plan_note(void *to, const char *note) {
  plan_say((struct plan *)to, "%s.", note);
}
/* Iterators over several splits that fit one by one, and not beside each other. */
static void plan_hint_together(struct plan *p) {
  uint64_t budget = insitu_loader_config(p->loader)->memory_budget, bytes = 0, n = 0;
  char need[32], text[32];
  for (int i = 0; p->only < 0 && i < INSITU_ALL; i++) {
    const insitu_plan *c = &p->cost[i].plan;
    if (p->cost[i].status != INSITU_OK) continue;
    if (!n++) bytes = c->fixed_bytes + c->inflight_bytes + c->cache_bytes; /* of the loader */
    bytes += c->slabs * c->slab_bytes + c->table_bytes;
  }
  p->about = PLAN_NOTE;
  if (n > 1 && bytes > budget)
    plan_say(p,
        "iterators over all splits at once need %s of memory, and memory_budget is %s: the last "
        "may be refused. Close each before the next is opened, or raise it.",
        tool_bytes(need, bytes), tool_bytes(text, budget));
}
/* Of each kind the first split that has it: the knobs are the same for all. */
static void plan_hints(struct plan *p) {
  bool reads = false, memory = false;
  uint64_t budget = insitu_loader_config(p->loader)->memory_budget;
  for (int i = 0; i < PLAN_SPLITS; i++) {
    const struct plan_cost *c = &p->cost[i];
    if (c->status != INSITU_OK || (p->only >= 0 ? i != p->only : i == INSITU_ALL)) continue;
    p->split = i;
    p->about = PLAN_READS;
    if (c->plan.decode_amplification > PLAN_DECODED && !reads) plan_hint_reads(p, i);
    p->about = PLAN_MEMORY;
    if (plan_memory(&c->plan) > budget && !memory) plan_hint_memory(p, i);
    p->about = PLAN_MIXING;
    if (c->plan.variance_ratio > 2) plan_hint_mixing(p, i);
    p->about = PLAN_LEFT_OUT;
    plan_hint_drops(p, i);
    reads = reads || c->plan.decode_amplification > PLAN_DECODED;
    memory = memory || plan_memory(&c->plan) > budget;
  }
  p->refused = memory;
  p->split = PLAN_SPLITS;
  plan_hint_times(p);
  if (!memory) plan_hint_together(p);
}

static bool plan_shown(const struct plan *p, int split) {
  return p->only < 0 || split == p->only;
}
/* Whether a range of the desc's split says anything. */
static bool plan_given(const insitu_split_range *s) {
  return s->fraction > 0 || s->start || s->stop || s->from || s->to;
}
/* A split that the desc gives nothing of the archive, beside others that it gives some of. */
static bool plan_empty(const struct plan *p, int split) {
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  if (split == INSITU_ALL || split == p->only || c->manifest) return false;
  if (p->cost[split].status == INSITU_OK || p->loader->split.part[split].anchors) return false;
  const insitu_split_range *s = &p->config.desc.split[split];
  bool given = false;
  for (int i = 0; i < 3; i++) given = given || plan_given(&p->config.desc.split[i]);
  return given && !plan_given(s);
}
/* The first split that should be read and cannot be; -1: there is none. One that was given no
 * samples is meant to be empty. */
static int plan_failed(const struct plan *p) {
  for (int i = 0; i < PLAN_SPLITS; i++)
    if (plan_shown(p, i) && p->cost[i].status < 0 && !plan_empty(p, i) &&
        (i == INSITU_TRAIN || i == p->only || p->loader->split.part[i].anchors))
      return i;
  return -1;
}
/* The split that the headline and the page are about: the first that is shown and can be read. */
static int plan_main(const struct plan *p) {
  for (int i = 0; i < PLAN_SPLITS; i++)
    if (plan_shown(p, i) && p->cost[i].status == INSITU_OK) return i;
  return INSITU_TRAIN;
}
/* Whether a run of this configuration ends at its start. train without a sample of the archive is
 * no such failure unless it is asked for: an evaluation has none. */
static bool plan_fails(const struct plan *p) {
  int failed = plan_failed(p);
  if (failed < 0) return false;
  return failed == p->only || p->loader->split.part[failed].left[INSITU_DROP_OTHER_SPLIT];
}
/* Hints with smaller numbers come first: what is refused, then what limits the main split, then
 * what limits others. */
static int plan_rank(const struct plan *p, const struct plan_hint *h) {
  bool other = h->split != PLAN_SPLITS && h->split != plan_main(p);
  return h->about + (other && h->about != PLAN_MEMORY ? PLAN_NOTE : 0) +
         (h->about == PLAN_NOTE ? PLAN_NOTE : 0);
}
/* The hint that tells what limits most; -1: there is none, or a split cannot be read, which limits
 * more. */
static int plan_first_hint(const struct plan *p) {
  int first = -1;
  if (plan_failed(p) >= 0) return -1;
  for (int i = 0; i < p->n_hints; i++)
    if (first < 0 || plan_rank(p, &p->hint[i]) < plan_rank(p, &p->hint[first])) first = i;
  return first;
}
/* What comes before a sentence about one split, where it could be taken for the whole plan. */
static void plan_headline_begin(const struct plan *p, int split, char *to, size_t cap) {
  int first = plan_main(p);
  *to = 0;
  if (split < PLAN_SPLITS && split != first && p->hint[plan_first_hint(p)].about != PLAN_MEMORY)
    snprintf(
        to, cap, "Nothing in the plan limits the split %s. ", insitu__document_split_words[first]);
  else if (plan_shown(p, INSITU_TRAIN) && plan_empty(p, INSITU_TRAIN))
    snprintf(to, cap, "The split train is given no samples. ");
}
/* The first sentence about a plan: what limits it and which knob to turn. */
static const char *plan_headline(const struct plan *p, char *to, size_t cap) {
  int first = plan_first_hint(p), failed = plan_failed(p);
  int split = first < 0 ? PLAN_SPLITS : p->hint[first].split;
  const char *text = first < 0 ? "" : p->hint[first].text, *words = NULL;
  if (failed >= 0) { /* "split train: 3 samples ..." */
    words = insitu__document_split_words[failed];
    text = p->cost[failed].err.message;
    size_t n = strlen(words);
    if (!strncmp(text, "split ", 6) && !strncmp(text + 6, words, n) &&
        !strncmp(text + 6 + n, ": ", 2))
      text += 8 + n;
    snprintf(to, cap, "The split %s cannot be read: %s", words, text);
    return to;
  }

  plan_headline_begin(p, split, to, cap);
  size_t n = strlen(to);
  to += n;
  cap -= n;
  if (first < 0)
    snprintf(to, cap,
        "Nothing in the plan limits it: chunks are decoded about once, batches are well mixed, and "
        "the memory fits. What remains is how fast the store and the decoder are: run insitu bench "
        "with the same configuration.");
  else if (p->hint[first].about == PLAN_NOTE) snprintf(to, cap, "Little limits it: %s", text);
  else if (split < PLAN_SPLITS) { /* "train: it needs ..." */
    words = insitu__document_split_words[split];
    snprintf(to, cap, "The split %s is limited by %s: %s", words, plan_limits[p->hint[first].about],
        text + strlen(words) + 2);
  } else snprintf(to, cap, "Limited by %s: %s", plan_limits[p->hint[first].about], text);
  return to - n;
}

/* ---- printing ---- */

static void plan_print_head(const struct plan *p) {
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  const insitu_array *a;
  char text[32];
  uint64_t bytes = 0;
  printf("%s%s%s\n", tool_style(TOOL_BOLD), p->loader->source.store.url, tool_style(TOOL_PLAIN));
  for (uint64_t i = 0; (a = insitu_loader_array(p->loader, i)); i++) {
    const insitu_variable *v = c->variables;
    while (strcmp(v->into ? v->into : v->label, a->name) != 0) v++;
    printf("  %-16s ", a->name);
    for (int32_t k = 0; k < a->ndim; k++) printf("%s%" PRId64, k ? ", " : "(", a->shape[k]);
    printf(") %s", insitu__dtype_name(a->dtype));
    if (!v->into && v->path && strcmp(v->path, v->label)) printf(" of %s", v->path);
    if (!v->into && v->offset) printf(", %+" PRId64 " samples", v->offset);
    printf("%s\n", a->fixed ? ", fixed" : "");
    for (int64_t k = 0; a->channels && k < a->shape[1]; k++)
      printf("    %-16" PRId64 "%s\n", k, a->channels[k]);
    if (!a->fixed) bytes += a->bytes;
  }
  if (c->n_axes) {
    char space[400];
    printf("  axes: %s", insitu__describe_space(p->loader, space, sizeof space));
    bool samples = p->loader->geometry.n_drawn > 0; /* else a single image, which is not split */
    if (c->n_axes > 1 && samples) printf("; the split is along number %d", (int)c->split_axis);
    printf("\n");
  }
  printf("  one batch: %" PRIu64 " samples, %s", c->batch_size, tool_bytes(text, bytes));
  if (c->world > 1) printf(" on each of %d ranks (this is rank %d)", (int)c->world, (int)c->rank);
  printf("\n\n");
}
enum plan_kind { PLAN_TITLE, PLAN_COUNT, PLAN_BYTES, PLAN_RATIO, PLAN_DROPS };
#define PLAN_ROW(label, kind, member)                                                              \
  { label, #member, PLAN_##kind, offsetof(struct plan_cost, member) }
static const struct plan_row {
  const char *label, *key;
  enum plan_kind kind;
  size_t at;
} plan_rows[] = {{"an epoch", NULL, PLAN_TITLE, 0},
    PLAN_ROW("samples of the archive", COUNT, plan.space), PLAN_ROW("", DROPS, plan.dropped),
    PLAN_ROW("delivered", COUNT, delivered), PLAN_ROW("batches", COUNT, plan.batches),
    PLAN_ROW("rows of this rank", COUNT, plan.rows),
    PLAN_ROW("samples that can be drawn", COUNT, plan.samples), {"reading", NULL, PLAN_TITLE, 0},
    PLAN_ROW("chunks read", COUNT, plan.reads), PLAN_ROW("different chunks", COUNT, plan.distinct),
    PLAN_ROW("amplification: reads of each", RATIO, plan.amplification),
    PLAN_ROW("decodes of each, in parts", RATIO, plan.decode_amplification),
    PLAN_ROW("dedup: uses of each read", RATIO, plan.dedup),
    PLAN_ROW("cache_memory finds, epochs 1-5", RATIO, plan.hit_rate),
    PLAN_ROW("cache_memory finds, later on", RATIO, plan.late_hit_rate),
    PLAN_ROW("share found in cache_dir", RATIO, plan.disk_hit_rate),
    PLAN_ROW("decoded, if whole", BYTES, plan.read_bytes), {"mixing", NULL, PLAN_TITLE, 0},
    PLAN_ROW("units that are moved", COUNT, plan.units),
    PLAN_ROW("samples of a unit", COUNT, plan.unit_rows), PLAN_ROW("lanes", COUNT, plan.lanes),
    PLAN_ROW("units of a lane's window", COUNT, plan.window),
    PLAN_ROW("batches a window reaches into", COUNT, plan.span),
    PLAN_ROW("variance ratio, 1 is ideal", RATIO, plan.variance_ratio),
    PLAN_ROW("the same, measured", RATIO, quality.variance_ratio),
    PLAN_ROW("gap of neighbours, 1 is ideal", RATIO, quality.gap_score),
    {"memory", NULL, PLAN_TITLE, 0}, PLAN_ROW("batches in the ring", COUNT, plan.slabs),
    PLAN_ROW("one batch", BYTES, plan.slab_bytes), PLAN_ROW("all of them", BYTES, ring_bytes),
    PLAN_ROW("tables", BYTES, plan.table_bytes),
    PLAN_ROW("of these, for kept chunks", BYTES, plan.kept_bytes),
    PLAN_ROW("batches, if rows are scattered", BYTES, plan.scatter_bytes),
    PLAN_ROW("and kept chunks, if gathered", BYTES, plan.gather_bytes),
    PLAN_ROW("fixed arrays, of the loader", BYTES, plan.fixed_bytes),
    PLAN_ROW("chunks in flight, of the loader", BYTES, plan.inflight_bytes),
    PLAN_ROW("indexes, coordinates, caches", BYTES, plan.cache_bytes),
    PLAN_ROW("together, of one iterator", BYTES, memory_bytes)};

static void plan_print_cell(const struct plan_row *row, const struct plan_cost *c) {
  char text[32] = "-";
  const void *at = (const char *)c + row->at;
  if (c->status != INSITU_OK) snprintf(text, sizeof text, "-");
  else if (row->kind == PLAN_BYTES) tool_bytes(text, *(const uint64_t *)at);
  else if (row->kind == PLAN_COUNT) tool_count(text, *(const uint64_t *)at);
  else if (*(const double *)at > 0) snprintf(text, sizeof text, "%.2f", *(const double *)at);
  printf(" %13s", text);
}
/* What is known of the numbers of reads: estimated, or bounds, since windows share chunks that are
 * kept. */
enum plan_known { PLAN_EXACT, PLAN_AT_MOST, PLAN_ABOUT };
static enum plan_known plan_known(const struct plan_cost *c) {
  if (c->status != INSITU_OK) return PLAN_EXACT;
  if (c->plan.estimated) return PLAN_ABOUT;
  return c->plan.assembly == INSITU_GATHER ? PLAN_AT_MOST : PLAN_EXACT;
}
/* The label of a row, as far as its numbers are known. */
static const char *plan_label(const struct plan_row *row, enum plan_known known) {
  static const struct {
    size_t at;
    const char *label[3];
  } labels[] = {{offsetof(struct plan_cost, plan.reads),
                    {NULL, "chunks read, at most", "chunks read, about"}},
      {offsetof(struct plan_cost, plan.distinct), {NULL, NULL, "different chunks, about"}},
      {offsetof(struct plan_cost, plan.amplification),
          {NULL, "amplification, at most", "amplification, about"}},
      {offsetof(struct plan_cost, plan.decode_amplification), {NULL, "decodes of each, at most"}},
      {offsetof(struct plan_cost, plan.dedup), {NULL, "dedup, at least", "dedup, about"}}};
  for (size_t i = 0; row->kind != PLAN_TITLE && i < TOOL_COUNT(labels); i++)
    if (labels[i].at == row->at && labels[i].label[known]) return labels[i].label[known];
  return row->label;
}
/* The same of all splits that are shown. */
static enum plan_known plan_known_of_all(const struct plan *p) {
  enum plan_known known = PLAN_EXACT;
  for (int i = 0; i < PLAN_SPLITS; i++)
    if (plan_shown(p, i) && plan_known(&p->cost[i]) > known) known = plan_known(&p->cost[i]);
  return known;
}
/* One line for each reason that leaves samples out of a split that is shown. */
static void plan_print_drops(const struct plan *p, const struct plan_row *row) {
  for (size_t r = 0; r < INSITU_DROPS; r++) {
    const char *words = insitu__split_drops[r].words;
    struct plan_row reason = {words, NULL, PLAN_COUNT, row->at + r * sizeof(uint64_t)};
    bool any = false;
    for (int i = 0; i < PLAN_SPLITS; i++)
      any =
          any || (plan_shown(p, i) && p->cost[i].status == INSITU_OK && p->cost[i].plan.dropped[r]);
    if (!any) continue;
    printf("  - %-30s", words);
    for (int i = 0; i < PLAN_SPLITS; i++)
      if (plan_shown(p, i)) plan_print_cell(&reason, &p->cost[i]);
    printf("\n");
  }
}
/* Such splits in one line. */
static void plan_print_empty(const struct plan *p) {
  int n = 0;
  for (int i = 0; i < PLAN_SPLITS; i++)
    if (plan_shown(p, i) && i != plan_failed(p) && plan_empty(p, i))
      printf("%s%s", n++ ? ", " : "\n", insitu__document_split_words[i]);
  if (n) printf(": no samples, as the split was given\n");
}
static void plan_print(const struct plan *p) {
  char text[32], headline[PLAN_HEADLINE];
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  printf("%s!%s %s\n\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN),
      plan_headline(p, headline, sizeof headline));
  plan_print_head(p);
  for (size_t r = 0; r < TOOL_COUNT(plan_rows); r++) {
    const struct plan_row *row = &plan_rows[r];
    bool title = row->kind == PLAN_TITLE;
    if (row->kind == PLAN_DROPS) {
      plan_print_drops(p, row);
      continue;
    }
    const char *label = plan_label(row, plan_known_of_all(p));
    printf("%s%s", title ? tool_style(TOOL_BOLD) : "  ", label);
    if (!title || r == 0) printf("%*s", (int)(34 - strlen(label) - (title ? 0 : 2)), "");
    for (int i = 0; i < PLAN_SPLITS; i++) {
      if (!plan_shown(p, i)) continue;
      if (!title) plan_print_cell(row, &p->cost[i]);
      else if (r == 0) printf(" %13s", insitu__document_split_words[i]);
    }
    printf("%s\n", title ? tool_style(TOOL_PLAIN) : "");
  }
  printf("  memory_budget, for all iterators  %13s\n", tool_bytes(text, c->memory_budget));
  for (int i = 0; i < PLAN_SPLITS; i++) {
    if (!plan_shown(p, i) || p->cost[i].status == INSITU_OK || i == plan_failed(p)) continue;
    if (plan_empty(p, i)) continue;
    printf("\n%s!%s %s\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN), p->cost[i].err.message);
  }
  plan_print_empty(p);
  for (int i = 0; i < p->n_hints; i++)
    if (i != plan_first_hint(p))
      printf("\n%s!%s %s\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN), p->hint[i].text);
}
static void plan_json_drops(struct tool_json_out *j, const uint64_t dropped[INSITU_DROPS]) {
  tool_json_object(j, "dropped");
  for (int r = 0; r < INSITU_DROPS; r++)
    if (dropped[r]) tool_json_u64(j, insitu_drop_name(r), dropped[r]);
  tool_json_end(j);
}
static void plan_print_json(const struct plan *p) {
  struct tool_json_out j = {.to = stdout};
  const insitu_loader_desc *c = insitu_loader_config(p->loader);
  const insitu_array *a;
  tool_json_object(&j, NULL);
  tool_json_string(&j, "url", p->loader->source.store.url);
  tool_json_u64(&j, "batch_size", c->batch_size);
  tool_json_u64(&j, "block_chunks", c->block_chunks);
  tool_json_u64(&j, "unit_chunks", c->unit_chunks);
  tool_json_u64(&j, "memory_budget", c->memory_budget);
  if (c->n_axes) {
    char space[400];
    tool_json_string(&j, "axes", insitu__describe_space(p->loader, space, sizeof space));
  }
  tool_json_array(&j, "arrays");
  for (uint64_t i = 0; (a = insitu_loader_array(p->loader, i)); i++) {
    tool_json_object(&j, NULL);
    tool_json_string(&j, "name", a->name);
    tool_json_string(&j, "dtype", insitu__dtype_name(a->dtype));
    tool_json_list(&j, "shape");
    for (int32_t k = 0; k < a->ndim; k++) tool_json_i64(&j, NULL, a->shape[k]);
    tool_json_end(&j);
    if (a->fixed) tool_json_bool(&j, "fixed", true);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  tool_json_object(&j, "splits");
  for (int i = 0; i < PLAN_SPLITS; i++) {
    const struct plan_cost *cost = &p->cost[i];
    if (!plan_shown(p, i)) continue;
    tool_json_object(&j, insitu__document_split_words[i]);
    if (cost->status != INSITU_OK) tool_json_string(&j, "error", cost->err.message);
    for (size_t r = 0; cost->status == INSITU_OK && r < TOOL_COUNT(plan_rows); r++) {
      const struct plan_row *row = &plan_rows[r];
      const void *at = (const char *)cost + row->at;
      if (row->kind == PLAN_TITLE) continue;
      if (row->kind == PLAN_DROPS) {
        plan_json_drops(&j, cost->plan.dropped);
        continue;
      }
      /* those of quality: measured_... */
      const char *key = strncmp(row->key, "plan.", 5) ? row->key : row->key + 5;
      char measured[64];
      snprintf(
          measured, sizeof measured, "measured_%s", strncmp(key, "quality.", 8) ? "" : key + 8);
      if (strncmp(key, "quality.", 8) == 0) key = measured;
      if (row->kind == PLAN_RATIO) tool_json_double(&j, key, *(const double *)at);
      else tool_json_u64(&j, key, *(const uint64_t *)at);
    }
    tool_json_end(&j);
  }
  tool_json_end(&j);
  int first = plan_first_hint(p);
  char headline[PLAN_HEADLINE];
  const char *limit = first < 0 ? "nothing" : plan_limit_keys[p->hint[first].about];
  tool_json_string(&j, "limited_by", plan_failed(p) >= 0 ? "error" : limit);
  tool_json_string(&j, "headline", plan_headline(p, headline, sizeof headline));
  tool_json_array(&j, "hints");
  for (int i = 0; i < p->n_hints; i++) tool_json_string(&j, NULL, p->hint[i].text);
  tool_json_end(&j);
  tool_json_end(&j);
}

static void plan_cost(const struct plan *p, int split, struct plan_cost *c) {
  insitu_iter_desc d = plan_iter(&p->config, split);
  c->status = insitu_loader_plan(p->loader, &d, &c->plan, &c->err);
  if (c->status) return;
  c->delivered = c->plan.space;
  for (int r = 0; r < INSITU_DROPS; r++) c->delivered -= c->plan.dropped[r];
  c->ring_bytes = c->plan.slabs * c->plan.slab_bytes;
  c->memory_bytes = plan_memory(&c->plan);
  if (c->plan.variance_ratio > 0)
    c->status = insitu_loader_quality(p->loader, &d, &c->quality, &c->err);
}

#include "plan_html.h"

static int plan_run(int argc, char **argv) {
  static struct plan p;
  insitu_error err = {0};
  if (argc > 1) return tool_usage_error("one archive is needed, not %d", argc);
  int code = config_load(&p.config, argc ? argv[0] : NULL);
  if (code == TOOL_OK) {
    p.config.desc.plan_only = 1;
    p.only = config_given[CONFIG_IN_ITER_split] ? p.config.iter.split : -1;
    if (insitu_loader_open(&p.config.desc, &p.loader, &err) < 0) code = tool_fail_error(&err);
  }
  if (code == TOOL_OK) {
    bool any = false;
    for (int i = 0; i < PLAN_SPLITS; i++) {
      plan_cost(&p, i, &p.cost[i]);
      any = any || (p.cost[i].status == INSITU_OK && (p.only < 0 || i == p.only));
    }
    plan_hints(&p);
    p.about = PLAN_NOTE;
    insitu__config_notes(p.loader, plan_note, &p);
    if (plan_fails(&p)) code = TOOL_FAILED;
    if (p.refused) code = TOOL_REFUSED;
    if (tool_json) plan_print_json(&p);
    else if (any && !plan_page) plan_print(&p);
    if (any && plan_page) {
      int wrote = html_write(&p, plan_page, plan_marks);
      code = wrote ? wrote : code;
    }
    if (!any)
      code = tool_json ? TOOL_FAILED
                       : tool_fail_error(&p.cost[p.only < 0 ? INSITU_TRAIN : p.only].err);
  }
  insitu_loader_close(&p.loader);
  config_free(&p.config);
  return code;
}

static const struct tool_option plan_options[] = {
    {"html", 0, "FILE", "write a page with pictures: order, mixing, reads, memory, samples",
        &plan_page},
    {"marks", 0, "FILE",
        "with --html: mark its samples; of insitu verify --registry or insitu scan", &plan_marks},
    CONFIG_OPTIONS};
static const struct tool_command plan_command = {.name = "plan",
    .arguments = "URL | --config FILE [options]",
    .summary = "what an epoch would cost: samples, reads, memory, mixing",
    .details = TOOL_STORE_HELP
    "Reads the metadata, and the coordinate where dates select or windows count along it, but\n"
    "no other chunk. Where chunks are read more than 1.15 times, the memory does not fit, or\n"
    "batches vary more than twice as much as by an ideal shuffle, it says so first, which knob to\n"
    "turn and what that would give. What insitu_iter_skip leaves out of an epoch is not known to\n"
    "it, and counts; insitu prove STATE lists it. Without --var, the variables are all arrays of\n"
    "the longest axis of samples.\n\n"
    "The exit status is 3 where opening the configuration, or an iterator over a split that is\n"
    "shown, would be refused because it does not fit memory_budget, and 1 where it would be\n"
    "refused for another reason, such as too few samples for a batch. Splits that are given no\n"
    "samples, as by --fractions 1,0,0, are no reason.\n\n"
    "A configuration holds the fields of insitu_loader_desc by their names; what\n"
    "insitu_loader_describe prints is one as well:\n"
    "  {\"url\": \"t.zarr\", \"batch_size\": 16, \"variables\": [{\"label\": "
    "\"x\", \"path\": \"t\"},\n"
    "   {\"label\": \"y\", \"path\": \"t\", \"offset\": 1}], \"split\": "
    "[{\"fraction\": 0.8}, {\"fraction\": 0.2}],\n"
    "   \"iterator\": {\"split\": \"train\", \"order\": \"shuffled\"}}\n\n"
    "examples:\n"
    "  insitu plan t.zarr\n"
    "  insitu plan t.zarr --var x=t,y=t@1 --batch-size 16 --block-chunks 256\n"
    "  insitu plan t.zarr --var history=t@-3:1,future=t@6/12/24\n"
    "  insitu plan --config train.json --world 8 --json\n"
    "  insitu plan t.zarr --split train --html plan.html\n",
    .options = plan_options,
    .n_options = TOOL_COUNT(plan_options),
    .run = plan_run};
