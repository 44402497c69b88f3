/* insitu plan --html: the plan of one split as a page that holds all that it shows. Pictures are
 * inline SVG, so that the page needs no network and no other file. Its colors follow the reader's
 * light or dark setting. */

enum {
  HTML_POINTS = 3000,    /* rows in the picture of the order */
  HTML_FEW = 300,        /* fewer are drawn larger */
  HTML_BINS = 100,       /* bars along an epoch */
  HTML_DECILES = 10,     /* parts of an epoch */
  HTML_RANKS = 16,       /* ranks that are shown one by one */
  HTML_COLUMNS = 960,    /* of the map of the samples */
  HTML_ROWS = 1 << 20,   /* rows of an epoch that are looked at, at most */
  HTML_CHUNKS = 1 << 21, /* chunk reads that are looked at, at most */
  HTML_UNITS = 1 << 18   /* units of a split that the map looks at, at most */
};

/* How far batches vary, as insitu_quality has it: of one part of an epoch, or of one rank. */
struct html_mixing {
  double square;
  uint64_t batches;
};

struct html {
  FILE *to;
  const struct plan *plan;
  const struct plan_cost *cost;
  const insitu_loader_desc *config;
  struct insitu__plan p; /* of the split */
  int split;
  uint64_t batches, seen;  /* of an epoch; of them those that were looked at */
  uint64_t reads, scanned; /* chunk reads that were looked at; batches that they belong to */
  struct {
    float x, y; /* 0 to 1: where it stands in the epoch, and in the split */
    unsigned rank;
  } point[HTML_POINTS];
  unsigned n_points;
  struct html_mixing decile[HTML_DECILES], rank[HTML_RANKS];
  unsigned deciles;                            /* fewer than 10 where an epoch has few batches */
  uint64_t fresh[HTML_BINS], again[HTML_BINS]; /* chunk reads: the first of a chunk, later ones */
  char mark[HTML_COLUMNS]; /* what a column of the map shows: 0, or a letter of html_marks */
  uint64_t listed;         /* samples that the list of absent and bad chunks has */
};

/* ---- what is drawn ---- */

static double html_variance_ratio(const struct html *h, const struct html_mixing *m, double rows) {
  double n = (double)h->p.part->anchors, variance = (n * n - 1) / 12;
  if (!m->batches || n <= rows) return 0;
  return rows * (m->square / (double)m->batches) / variance * (n - 1) / (n - rows);
}

/* The row at a position of the epoch, as its place in the archive among those of the split. */
static bool html_place(
    const struct html *h, const struct insitu__order *o, uint64_t position, double *at) {
  insitu_order_place place;
  uint64_t units[INSITU__MAX_AXES] = {0};
  if (!insitu__order_at(o, position, &place)) return false;
  insitu__split_unit_lines(h->p.part, !h->p.layout.sequential, place.unit, units);
  *at = (double)(insitu__split_before(h->p.part, units) + place.within);
  return true;
}

static unsigned html_rank_of(const struct html *h, uint64_t position) {
  const struct insitu__plan_layout *l = &h->p.layout;
  return (unsigned)(position % l->global_batch % l->lanes * l->world / l->lanes);
}

static void html_mix(struct html_mixing *m, double sum, uint64_t rows) {
  double mean = sum / (double)rows;
  m->square += mean * mean;
  m->batches++;
}

/* Walks the order of epoch 0: points, deciles and ranks. */
static void html_walk_order(struct html *h, const struct insitu__order *o) {
  const struct insitu__plan_layout *l = &h->p.layout;
  uint64_t g = l->global_batch, shown = insitu__base_min(l->world, HTML_RANKS);
  double n = (double)h->p.part->anchors, middle = (n - 1) / 2;
  h->batches = o->batches;
  h->seen = insitu__base_min(o->batches, insitu__base_max(1, HTML_ROWS / g));
  uint64_t all = h->seen * g, next = 0;
  h->deciles = (unsigned)insitu__base_max(1, insitu__base_min(HTML_DECILES, h->seen / 4));

  for (uint64_t batch = 0; batch < h->seen; batch++) {
    double sum = 0, of_rank[HTML_RANKS] = {0};
    uint64_t rows = 0, rank_rows[HTML_RANKS] = {0};
    for (uint64_t i = batch * g; i < (batch + 1) * g; i++) {
      double at;
      if (!html_place(h, o, i, &at)) continue;
      unsigned rank = html_rank_of(h, i);
      sum += at - middle;
      rows++;
      if (rank < shown) of_rank[rank] += at - middle, rank_rows[rank]++;
      if (i < next || h->n_points == HTML_POINTS) continue;
      h->point[h->n_points].x = (float)((double)i / (double)all);
      h->point[h->n_points].y = (float)(n > 1 ? at / (n - 1) : 0);
      h->point[h->n_points++].rank = rank;
      next = (uint64_t)((double)all / HTML_POINTS * h->n_points);
    }
    if (rows == g) html_mix(&h->decile[batch * h->deciles / h->seen], sum, g);
    for (uint64_t r = 0; r < shown; r++)
      if (rank_rows[r] == l->batch) html_mix(&h->rank[r], of_rank[r], l->batch);
  }
}

/* Walks what this rank reads in epoch 0. */
static insitu_status html_walk_reads(
    struct html *h, const struct insitu__order *o, insitu_error *err) {
  struct insitu__plan_scan scan;
  struct insitu__plan_set ever;
  insitu_status status = insitu__plan_scan_init(&scan, &h->p, o, err);
  if (status) return status;
  if (!insitu__plan_set_init(&ever, insitu__base_min(h->cost->plan.reads + 1, HTML_CHUNKS))) {
    insitu__plan_scan_free(&scan);
    return insitu__error_set(
        err, INSITU_E_NOMEM, "plan: no memory for the page; give the process more memory");
  }

  while (scan.batch < h->seen && h->reads < HTML_CHUNKS) {
    uint64_t bin = scan.batch * HTML_BINS / h->seen;
    if (insitu__plan_scan_step(&scan) != INSITU__PLAN_TILE) continue;
    const struct insitu__geometry_array *a = &h->p.shown->arrays[scan.array];
    uint64_t tile = insitu__plan_patch_tile(a, scan.chunk, scan.field);
    if (insitu__plan_set_add(&ever, (uint32_t)scan.array, tile)) h->fresh[bin]++;
    else h->again[bin]++;
    h->reads++;
  }
  h->scanned = scan.batch;
  insitu__mem_free(ever.slot);
  insitu__plan_scan_free(&scan);
  return INSITU_OK;
}

/* ---- the map of the samples ---- */

static const struct html_mark {
  char letter;
  const char *words;
} html_marks[] = {{'t', "train"}, {'v', "val"}, {'e', "test"}, {'x', "left out"},
    {'a', "absent chunks"}, {'b', "bad or excluded"}};

static void html_paint(struct html *h, double from, double to, char letter) {
  uint64_t samples = h->plan->loader->geometry.samples;
  if (!samples) return;
  double scale = HTML_COLUMNS / (double)samples;
  uint64_t first = (uint64_t)(from * scale), last = (uint64_t)(to * scale);
  for (uint64_t c = first; c < HTML_COLUMNS && (c == first || c < last); c++) h->mark[c] = letter;
}

static void html_paint_splits(struct html *h) {
  static const char letters[] = {'t', 'v', 'e'};
  const struct insitu__split *s = &h->plan->loader->split;
  unsigned axis = (unsigned)h->config->split_axis;
  memset(h->mark, 'x', sizeof h->mark);
  for (int i = INSITU_TRAIN; i <= INSITU_TEST; i++) {
    const struct insitu__split_part *part = &s->part[i];
    uint64_t step = part->units / HTML_UNITS + 1;
    for (uint64_t unit = 0; unit < part->units; unit += step) {
      struct insitu__split_unit u;
      insitu__split_unit_at(part, false, unit, &u);
      if (!u.none) html_paint(h, (double)u.lo[axis], (double)u.hi[axis], letters[i]);
    }
  }
}

/* The ranges of a list: "excluded" of a manifest, "chunks" of a file of insitu scan. */
static void html_paint_ranges(struct html *h, const struct insitu__text_json *j, int list) {
  for (int e = insitu__text_json_first(j, list); e >= 0; e = insitu__text_json_next(j, e)) {
    double from = NAN, to = NAN, bad = 0, absent = 0;
    insitu__text_json_double(j, insitu__text_json_get(j, e, "start"), &from);
    insitu__text_json_double(j, insitu__text_json_get(j, e, "stop"), &to);
    insitu__text_json_double(j, insitu__text_json_get(j, e, "bad"), &bad);
    insitu__text_json_double(j, insitu__text_json_get(j, e, "absent"), &absent);
    if (!(from >= 0 && to > from && to < 1e18)) continue;
    html_paint(h, from, to, absent > 0 && !(bad > 0) ? 'a' : 'b');
    h->listed += (uint64_t)(to - from);
  }
}

static int html_paint_list(struct html *h, const char *path) {
  struct insitu__text_json j;
  insitu_error err = {0};
  char *text = NULL;
  uint64_t n = 0;
  int code = config_read_file(path, &text, &n);
  if (code) return code;
  if (insitu__text_json_parse(&j, text, n, path, &err) < 0) {
    insitu__mem_free(text);
    return tool_fail_error(&err);
  }
  int chunks = insitu__text_json_get(&j, 0, "chunks");
  html_paint_ranges(h, &j, insitu__text_json_get(&j, 0, "excluded"));
  html_paint_ranges(h, &j, insitu__text_json_get(&j, chunks, "excluded"));
  html_paint_ranges(h, &j, chunks);
  insitu__text_json_free(&j);
  insitu__mem_free(text);
  return TOOL_OK;
}

/* ---- writing ---- */

static void html_text(const struct html *h, const char *text) { /* escaped */
  for (; *text; text++)
    if (*text == '<') fputs("&lt;", h->to);
    else if (*text == '&') fputs("&amp;", h->to);
    else if (*text == '"') fputs("&quot;", h->to);
    else fputc(*text, h->to);
}

static const char html_head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>\n"
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b1f27;--soft:#596273;"
    "--line:#d9dee7;--blue:#2a6fdb;--amber:#c96a00;--green:#1f8a4c;--red:#cf2f3c;--violet:#7a4fd0;"
    "--grey:#aab2bf}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1b2029;--ink:#e8ebf1;"
    "--soft:#9aa5b8;--line:#333b49;--blue:#6ba4ff;--amber:#f0a04b;--green:#4fc47f;--red:#ff6b76;"
    "--violet:#b191ff;--grey:#59657a}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);"
    "font:15px/1.5 system-ui,sans-serif}main{max-width:1500px;margin:0 auto;padding:20px}\n"
    "h1{font-size:1.35rem;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:1rem;margin:0 0 8px}"
    "p{margin:6px 0}.soft{color:var(--soft)}\n"
    ".grid{display:grid;gap:16px;margin-top:16px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr))}.wide{grid-column:1/-1}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;"
    "min-width:0}\n"
    ".facts{display:grid;gap:10px;grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}"
    ".fact b{display:block;font-size:1.45rem;font-weight:600;line-height:1.25}"
    ".fact span{color:var(--soft);font-size:.86rem}\n"
    ".head{border-left:6px solid var(--green)}.head p{margin:0;font-size:1.12rem;font-weight:600}"
    ".head.warn{border-left-color:var(--amber)}"
    ".ends{display:flex;justify-content:space-between;margin-top:2px}"
    ".dots{height:clamp(170px,26vw,400px)}.dots path{vector-effect:non-scaling-stroke}"
    ".dots path+path{stroke-width:3.4px;stroke-linecap:round;opacity:.8}"
    ".dots.few path+path{stroke-width:6px}\n"
    ".bad b{color:var(--amber)}.good b{color:var(--green)}"
    "ul{margin:6px 0;padding-left:20px}li{margin:4px 0}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}svg text{fill:var(--soft);"
    "font-size:12px;paint-order:stroke;stroke:var(--card);stroke-width:4px}"
    ".axis{stroke:var(--line)}table{border-collapse:collapse;width:100%}"
    "td{padding:3px 8px 3px 0;border-top:1px solid var(--line)}td+td{text-align:right;"
    "font-variant-numeric:tabular-nums}@media(max-width:560px){svg text{font-size:25px}}\n"
    ".key{display:inline-block;width:11px;height:11px;border-radius:3px;margin:0 5px 0 12px}\n"
    "</style>\n";

/* A picture begins, of wide x high units. */
static void html_svg(const struct html *h, int wide, int high, const char *what) {
  fprintf(h->to, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", wide, high, what);
}

static void html_key(const struct html *h, const char *color, const char *words) {
  fprintf(h->to, "<span class=\"key\" style=\"background:var(--%s)\"></span>%s", color, words);
}

static void html_fact(
    const struct html *h, const char *value, const char *words, const char *judged) {
  fprintf(h->to, "<div class=\"fact %s\"><b>%s</b><span>%s</span></div>\n", judged, value, words);
}

static void html_write_head(const struct html *h) {
  const insitu_plan *p = &h->cost->plan;
  char text[64], other[32], budget[32];
  fputs(html_head, h->to);
  fputs("<title>insitu plan: ", h->to);
  html_text(h, h->plan->loader->source.store.url);
  fputs("</title>\n<main>\n<h1>", h->to);
  html_text(h, h->plan->loader->source.store.url);
  fprintf(h->to,
      "</h1>\n<p class=\"soft\">an epoch of the split %s: %s samples, %s batches of %" PRIu64
      " rows%s</p>\n",
      insitu__document_split_words[h->split], tool_count(text, h->cost->delivered),
      tool_count(other, p->batches), h->config->batch_size,
      h->config->world > 1 ? " on each rank" : "");
  int first = plan_first_hint(h->plan);
  char headline[PLAN_HEADLINE];
  bool fine = plan_failed(h->plan) < 0 && (first < 0 || h->plan->hint[first].about == PLAN_NOTE);
  fprintf(h->to, "<div class=\"grid\"><section class=\"card wide head %s\"><p>",
      fine ? "fine" : "warn");
  html_text(h, plan_headline(h->plan, headline, sizeof headline));
  fputs("</p></section>\n<section class=\"card wide\"><div class=\"facts\">\n", h->to);

  bool bound = plan_known(h->cost) == PLAN_AT_MOST;
  snprintf(text, sizeof text, "%.2f", p->decode_amplification);
  html_fact(h, text,
      bound ? "times each chunk is decoded, at most; 1 is best"
            : "times each chunk is decoded; 1 is best",
      p->decode_amplification > PLAN_DECODED ? "bad" : "good");
  if (p->variance_ratio > 0) {
    snprintf(text, sizeof text, "%.2f", p->variance_ratio);
    html_fact(h, text, "times as uneven as an ideal shuffle; 1 is best",
        p->variance_ratio > 2 ? "bad" : "good");
  } else {
    html_fact(h, "in order", "samples are not shuffled", "");
  }
  uint64_t memory = h->cost->memory_bytes;
  snprintf(text, sizeof text, "of %s that memory_budget allows",
      tool_bytes(budget, h->config->memory_budget));
  html_fact(h, tool_bytes(other, memory), text, memory > h->config->memory_budget ? "bad" : "good");
  html_fact(h, tool_bytes(other, p->read_bytes), "decoded in an epoch by this rank, at most", "");
  static const char *const read[] = {"chunks read in an epoch by this rank",
      "chunks read in an epoch by this rank, at most",
      "chunks read in an epoch by this rank, about"};
  html_fact(h, tool_count(other, p->reads), read[plan_known(h->cost)], "");
  snprintf(text, sizeof text, "%" PRIu64 " x %" PRIu64, p->lanes, p->window);
  html_fact(h, text, "lanes x units that are mixed at a time", "");
  fputs("</div></section>\n", h->to);
}

/* What is told behind the headline. */
static void html_write_hints(const struct html *h) {
  int first = plan_first_hint(h->plan);
  if (h->plan->n_hints < (first < 0 ? 1 : 2)) return;
  fputs("<section class=\"card wide\"><h2>Also, and what gave way</h2>\n<ul>\n", h->to);
  for (int i = 0; i < h->plan->n_hints; i++) {
    if (i == first) continue;
    fputs("<li>", h->to);
    html_text(h, h->plan->hint[i].text);
    fputs("</li>\n", h->to);
  }
  fputs("</ul>\n</section>\n", h->to);
}

static const char *const html_colors[] = {"blue", "amber", "green", "violet", "red", "grey"};

/* "the first n of m batches", where not all were looked at. */
static void html_part(const struct html *h, uint64_t seen) {
  if (seen < h->batches)
    fprintf(h->to, " Of the first %" PRIu64 " of %" PRIu64 " batches.", seen, h->batches);
}

static void html_write_order(const struct html *h) {
  fputs("<section class=\"card wide\"><h2>Order of epoch 0</h2>\n", h->to);
  /* Stretched to the page; dots and words keep their size. */
  fprintf(h->to,
      "<p class=\"soft\">end of the split</p>\n<svg class=\"%s\" viewBox=\"0 0 1000 400\" "
      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"where in the archive the rows of an "
      "epoch come from\">\n<path class=\"axis\" d=\"M0,0V400H1000\" fill=\"none\"/>\n",
      h->n_points < HTML_FEW ? "dots few" : "dots");
  for (unsigned i = 0; i < h->n_points; i++)
    fprintf(h->to, "<path d=\"M%.1f,%.1fh0\" stroke=\"var(--%s)\"/>\n",
        6 + 988 * (double)h->point[i].x, 394 - 388 * (double)h->point[i].y,
        html_colors[h->point[i].rank % TOOL_COUNT(html_colors)]);
  fputs("</svg>\n<p class=\"soft ends\"><span>its begin; first batch</span><span>last batch</span>"
        "</p>\n<p class=\"soft\">Each dot is a row: from left to right as it is delivered, from "
        "bottom to top as the archive has it. An even cloud is well mixed; steps are windows that "
        "hold too little.",
      h->to);
  if (h->config->world > 1) fputs(" Colors are ranks.", h->to);
  html_part(h, h->seen);
  fputs("</p></section>\n", h->to);
}

/* Bars with a line at the ideal, 1. */
static void html_bars(const struct html *h, const struct html_mixing *m, unsigned n, double rows,
    const char *unit, const char *label) {
  double most = 2;
  for (unsigned i = 0; i < n; i++) most = fmax(most, html_variance_ratio(h, &m[i], rows));
  html_svg(h, 640, 200, label);
  double wide = fmin(560.0 / n, 112), scale = 140 / most;
  for (unsigned i = 0; i < n; i++) {
    double v = html_variance_ratio(h, &m[i], rows);
    fprintf(h->to,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" "
        "fill=\"var(--%s)\"><title>%s %u: %.2f over %" PRIu64 " batches</title></rect>\n",
        60 + wide * i + 3, 170 - v * scale, wide - 6, v * scale, v > 2 ? "amber" : "blue", unit,
        i + 1, v, m[i].batches);
  }
  fprintf(h->to,
      "<line x1=\"60\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--ink)\" "
      "stroke-width=\"1.5\" stroke-dasharray=\"5 4\"/><text x=\"52\" y=\"%.1f\" "
      "text-anchor=\"end\">ideal</text>\n",
      60 + wide * n, 170 - scale, 170 - scale, 174 - scale);
  for (unsigned i = 0; i < n; i++) { /* over the line */
    double v = html_variance_ratio(h, &m[i], rows), x = 60 + wide * (i + .5);
    fprintf(h->to,
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f</text>"
        "<text x=\"%.1f\" y=\"192\" text-anchor=\"middle\">%u</text>\n",
        x, 165 - v * scale, v, x, i + 1);
  }
  fputs("</svg>\n", h->to);
}

static void html_write_mixing(const struct html *h) {
  if (h->p.layout.sequential) return;
  fputs("<section class=\"card\"><h2>Mixing over the epoch</h2>\n", h->to);
  html_bars(h, h->decile, h->deciles, (double)h->p.layout.global_batch, "part",
      "variance ratio of batches over the epoch");
  fputs("<p class=\"soft\">How much the mean position of global batches varies, beside an ideal "
        "shuffle. A part of few batches varies by chance.</p></section>\n",
      h->to);

  unsigned ranks = (unsigned)insitu__base_min(h->p.layout.world, HTML_RANKS);
  fputs("<section class=\"card\"><h2>Mixing by rank</h2>\n", h->to);
  html_bars(h, h->rank, ranks, (double)h->p.layout.batch, "rank, counted from 1,",
      "variance ratio of batches by rank");
  fprintf(h->to, "<p class=\"soft\">The same of each rank's own batches%s.</p></section>\n",
      h->p.layout.world > HTML_RANKS ? ", of the first 16 ranks" : "");
}

static void html_write_reads(const struct html *h) {
  uint64_t most = 1, again = 0;
  unsigned bins = (unsigned)insitu__base_min(HTML_BINS, insitu__base_max(1, h->seen));
  for (unsigned i = 0; i < HTML_BINS; i++) {
    most = insitu__base_max(most, h->fresh[i] + h->again[i]);
    again += h->again[i];
  }
  fputs("<section class=\"card\"><h2>Chunk reads over the epoch</h2>\n", h->to);
  html_svg(h, 640, 200, "chunks that are read over the epoch");
  double wide = 560.0 / HTML_BINS * (HTML_BINS / (double)bins), scale = 150 / (double)most;
  for (unsigned k = 0; k < bins; k++) { /* where an epoch has fewer batches than bars, one each */
    uint64_t i = bins < HTML_BINS ? k * (uint64_t)HTML_BINS / bins : k;
    double x = 60 + wide * k;
    double fresh = scale * (double)h->fresh[i], later = scale * (double)h->again[i];
    fprintf(h->to,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"var(--blue)\"/>"
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"var(--amber)\"/>\n",
        x, 170 - fresh, wide * .85, fresh, x, 170 - fresh - later, wide * .85, later);
  }
  fprintf(h->to,
      "<line class=\"axis\" x1=\"60\" y1=\"170\" x2=\"620\" y2=\"170\"/>"
      "<text x=\"52\" y=\"26\" text-anchor=\"end\">%" PRIu64 "</text>"
      "<text x=\"60\" y=\"193\">first batch</text>"
      "<text x=\"620\" y=\"193\" text-anchor=\"end\">last</text>\n</svg>\n<p class=\"soft\">",
      most);
  html_key(h, "blue", "for the first time");
  html_key(h, "amber", "again, for another window");
  bool bound = plan_known(h->cost) == PLAN_AT_MOST;
  fprintf(h->to, "<br>%s%" PRIu64 " of %" PRIu64 " reads are repeated%s.", bound ? "At most " : "",
      again, h->reads, bound ? ": windows share chunks that are kept" : "");
  html_part(h, h->scanned);
  fputs("</p></section>\n", h->to);
}

static void html_write_memory(const struct html *h) {
  const insitu_plan *p = &h->cost->plan;
  const struct {
    const char *words;
    uint64_t bytes;
  } part[] = {{"batches", p->slabs * p->slab_bytes}, {"kept chunks", p->kept_bytes},
      {"tables", p->table_bytes - p->kept_bytes}, {"fixed arrays", p->fixed_bytes},
      {"chunks in flight", p->inflight_bytes}, {"indexes, caches", p->cache_bytes}};
  uint64_t budget = h->config->memory_budget;
  /* The bar is the budget, or where little of it is taken, four times what is taken. */
  uint64_t taken = h->cost->memory_bytes, shown = insitu__base_min(budget, 4 * taken);
  double whole = (double)insitu__base_max(1, insitu__base_max(shown, taken)), x = 60;
  char text[32];
  fputs("<section class=\"card\"><h2>Memory</h2>\n", h->to);
  html_svg(h, 640, 84, "memory of the iterator and the loader beside memory_budget");
  fputs("<rect x=\"60\" y=\"10\" width=\"560\" height=\"40\" rx=\"4\" fill=\"var(--line)\"/>\n",
      h->to);
  for (size_t i = 0; i < TOOL_COUNT(part); i++) {
    double wide = 560 * (double)part[i].bytes / whole;
    fprintf(h->to,
        "<rect x=\"%.2f\" y=\"10\" width=\"%.2f\" height=\"40\" fill=\"var(--%s)\">"
        "<title>%s: %s</title></rect>\n",
        x, wide, html_colors[i], part[i].words, tool_bytes(text, part[i].bytes));
    x += wide;
  }
  double limit = 60 + 560 * (double)insitu__base_min(budget, (uint64_t)whole) / whole;
  fprintf(h->to,
      "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"4\" y2=\"56\" stroke=\"var(--ink)\"/>"
      "<text x=\"%.1f\" y=\"72\" text-anchor=\"end\">%smemory_budget: %s</text></svg>\n<table>\n",
      limit, limit, limit, shown < budget ? "a part of " : "", tool_bytes(text, budget));
  for (size_t i = 0; i < TOOL_COUNT(part); i++) {
    fputs("<tr><td>", h->to);
    html_key(h, html_colors[i], part[i].words);
    if (!i) fprintf(h->to, ": %" PRIu64 " in the ring", p->slabs);
    fprintf(h->to, "</td><td>%s</td></tr>\n", tool_bytes(text, part[i].bytes));
  }
  fputs("</table></section>\n", h->to);
}

static void html_write_map(const struct html *h, const char *list) {
  static const char *const colors[] = {"blue", "violet", "green", "line", "amber", "red"};
  bool seen[TOOL_COUNT(html_marks)] = {false};
  char text[32];
  fputs("<section class=\"card wide\"><h2>Samples of the archive</h2>\n", h->to);
  fprintf(h->to,
      "<svg viewBox=\"0 0 %d 46\" preserveAspectRatio=\"none\" style=\"height:56px\" role=\"img\" "
      "aria-label=\"which split each sample belongs to\">\n",
      HTML_COLUMNS);
  for (int c = 0, end; c < HTML_COLUMNS; c = end) {
    size_t k = 0;
    for (end = c; end < HTML_COLUMNS && h->mark[end] == h->mark[c];) end++;
    while (html_marks[k].letter != h->mark[c]) k++;
    seen[k] = true;
    fprintf(h->to, "<rect x=\"%d\" y=\"0\" width=\"%d\" height=\"46\" fill=\"var(--%s)\"/>\n", c,
        end - c, colors[k]);
  }
  fputs("</svg>\n<p class=\"soft\">", h->to);
  for (size_t k = 0; k < TOOL_COUNT(html_marks); k++)
    if (seen[k]) html_key(h, colors[k], html_marks[k].words);
  fprintf(h->to, "<br>From the first to the last of %s along the axis of the split.",
      tool_count(text, h->plan->loader->geometry.samples));
  if (list) {
    fprintf(h->to, " %s of them are in ", tool_count(text, h->listed));
    html_text(h, list);
    fputs(".", h->to);
  }
  fputs("</p></section>\n", h->to);
}

/* Why samples are left out. */
static void html_write_drops(const struct html *h) {
  char text[32];
  for (int r = 0; r < INSITU_DROPS; r++)
    if (h->cost->plan.dropped[r])
      fprintf(h->to, "<tr><td>- %s</td><td>%s</td></tr>\n", insitu__split_drops[r].words,
          tool_count(text, h->cost->plan.dropped[r]));
}

static void html_write_table(const struct html *h) {
  char text[32];
  fputs("<section class=\"card wide\"><h2>All numbers</h2><table>\n", h->to);
  for (size_t r = 0; r < TOOL_COUNT(plan_rows); r++) {
    const struct plan_row *row = &plan_rows[r];
    const void *at = (const char *)h->cost + row->at;
    if (row->kind == PLAN_DROPS) {
      html_write_drops(h);
      continue;
    }
    if (row->kind == PLAN_TITLE) {
      fprintf(h->to, "<tr><td colspan=\"2\"><b>%s</b></td></tr>\n", row->label);
      continue;
    }
    if (row->kind == PLAN_BYTES) tool_bytes(text, *(const uint64_t *)at);
    else if (row->kind == PLAN_COUNT) tool_count(text, *(const uint64_t *)at);
    else if (*(const double *)at > 0) snprintf(text, sizeof text, "%.3f", *(const double *)at);
    else snprintf(text, sizeof text, "-");
    fprintf(h->to, "<tr><td>%s</td><td>%s</td></tr>\n", plan_label(row, plan_known(h->cost)), text);
  }
  fputs("</table></section></div></main></html>\n", h->to);
}

/* Writes the page of the first split that is shown. list: absent and bad chunks, or NULL. */
static int html_write(const struct plan *plan, const char *path, const char *list) {
  static struct html h;
  insitu_error err = {0};
  struct insitu__order o;
  h.plan = plan;
  h.config = insitu_loader_config(plan->loader);
  h.split = plan_main(plan);
  h.cost = &plan->cost[h.split];
  if (h.cost->status) return tool_fail_error(&h.cost->err);

  insitu_iter_desc desc = plan_iter(&plan->config, h.split);
  insitu_status status = insitu__pass_plan(plan->loader, &desc, &h.p, &err);
  if (!status) status = insitu__plan_order(&h.p, 0, &o, &err);
  if (status) return tool_fail_error(&err);
  html_walk_order(&h, &o);
  status = html_walk_reads(&h, &o, &err);
  insitu__order_free(&o);
  if (status) return tool_fail_error(&err);

  html_paint_splits(&h);
  int code = list ? html_paint_list(&h, list) : TOOL_OK;
  if (code) return code;
  h.to = fopen(path, "we");
  if (!h.to) return tool_fail("%s: %s; give a file that can be written", path, strerror(errno));
  html_write_head(&h);
  html_write_hints(&h);
  html_write_order(&h);
  html_write_mixing(&h);
  html_write_reads(&h);
  html_write_memory(&h);
  html_write_map(&h, list);
  html_write_table(&h);
  bool failed = ferror(h.to) != 0;
  if (fclose(h.to)) failed = true;
  if (failed) return tool_fail("%s: %s; the page is not whole", path, strerror(errno));
  return TOOL_OK;
}
