/* insitu scan: statistics of a split, for INSITU_OP_NORM; parts of ranks, joined; and a manifest of
 * what misses too much. */
static const char *scan_out, *scan_dim, *scan_lags, *scan_merge, *scan_exclude, *scan_manifest,
    *scan_checkpoint;

static int scan_progress(void *user, uint64_t done, uint64_t total) {
  (void)user, (void)total;
  tool_progress(done);
  return 0;
}

/* ---- what a file has ---- */

struct scan_file {
  char *text;
  struct insitu__stats stats;
};
static void scan_free(struct scan_file *f) {
  insitu__stats_free(&f->stats);
  insitu__mem_free(f->text);
}
static int scan_read(const char *path, struct scan_file *f) {
  insitu_error err = {0};
  uint64_t n = 0;
  memset(f, 0, sizeof *f);
  int code = config_read_file(path, &f->text, &n);
  if (code) return code;
  if (insitu__stats_init(&f->stats, path, f->text, n, &err) == INSITU_OK) return TOOL_OK;
  return tool_fail_error(&err);
}
static double scan_member(const struct scan_file *f, int entry, const char *key) {
  double x = NAN;
  insitu__text_json_double(&f->stats.json, insitu__text_json_get(&f->stats.json, entry, key), &x);
  return x;
}

/* ---- the table ---- */

static void scan_row(const struct scan_file *f, int entry, int cell, int cells) {
  static const char *const keys[] = {"count", "missing", "mean", "std", "min", "max"};
  const struct insitu__text_json *j = &f->stats.json;
  char label[80] = "", name[120];
  insitu__text_json_string(j, insitu__text_json_get(j, entry, "variable"), label, sizeof label);
  int n = snprintf(name, sizeof name, "%s", label);
  if (cells > 1) n += snprintf(name + n, sizeof name - (size_t)n, "[%d]", cell);
  double lag = scan_member(f, entry, "lag");
  if (lag > 0) snprintf(name + n, sizeof name - (size_t)n, " lag %.0f", lag);
  tool_put_padded(name, 24);
  for (int k = 0; k < 6; k++) {
    double x =
        insitu__stats_number(&f->stats, insitu__text_json_get(j, entry, keys[k]), (uint64_t)cell);
    if (isnan(x)) printf(" %13s", "-");
    else printf(k < 2 ? " %13.0f" : " %13.6g", x);
  }
  printf("\n");
}
static void scan_table(const struct scan_file *f, const char *path) {
  enum { CELLS = 8 };
  const struct insitu__text_json *j = &f->stats.json;
  int missing = insitu__text_json_size(j, insitu__text_json_get(j, 0, "missing"));
  int list = insitu__text_json_get(j, 0, "chunks");
  double absent = 0, bad = 0;
  printf("%s%-24s %13s %13s %13s %13s %13s %13s%s\n", tool_style(TOOL_BOLD), "variable", "count",
      "missing", "mean", "std", "min", "max", tool_style(TOOL_PLAIN));
  for (int e = insitu__text_json_first(j, insitu__text_json_get(j, 0, "statistics")); e >= 0;
       e = insitu__text_json_next(j, e)) {
    int cells = insitu__text_json_size(j, insitu__text_json_get(j, e, "count"));
    for (int c = 0; c < cells && c < CELLS; c++) scan_row(f, e, c, cells);
    if (cells > CELLS) printf("  and %d more indexes\n", cells - CELLS);
  }
  for (int e = insitu__text_json_first(j, list); e >= 0; e = insitu__text_json_next(j, e)) {
    absent += scan_member(f, e, "absent");
    bad += scan_member(f, e, "bad");
  }
  if (absent > 0) printf("%.0f chunk%s absent (the fill value)\n", absent, absent > 1 ? "s" : "");
  if (bad > 0) printf("%.0f chunk%s bad (filled)\n", bad, bad > 1 ? "s" : "");
  if (missing) printf("%d run%s of samples miss elements\n", missing, missing > 1 ? "s" : "");
  printf("%s: give it as desc.stats\n", path);
}

/* ---- the manifest ---- */

/* The share of --exclude. */
static bool scan_share(double *most) {
  uint64_t n = strlen(scan_exclude);
  bool percent = n && scan_exclude[n - 1] == '%';
  if (!insitu__text_double(scan_exclude, n - percent, most) || !(*most >= 0)) return false;
  *most /= percent ? 100 : 1;
  return true;
}
/* Writes the samples that miss a larger share as a manifest of exclusions. An exit code. */
static int scan_exclusions(const struct scan_file *f) {
  const struct insitu__text_json *j = &f->stats.json;
  struct insitu__text_buffer b = {0};
  insitu_error err = {0};
  double most = 0;
  uint64_t runs = 0, samples = 0;
  scan_share(&most); /* scan_run has checked it */
  insitu__text_buffer_printf(&b, "{\"excluded\": [");
  for (int e = insitu__text_json_first(j, insitu__text_json_get(j, 0, "missing")); e >= 0;
       e = insitu__text_json_next(j, e)) {
    double share = scan_member(f, e, "share"), start = scan_member(f, e, "start"),
           stop = scan_member(f, e, "stop");
    if (!(share > most)) continue;
    insitu__text_buffer_printf(&b,
        "%s{\"start\": %.0f, \"stop\": %.0f, \"reason\": \"%.4g %% missing, more than %.4g %%\"}",
        runs++ ? ",\n  " : "\n  ", start, stop, 100 * share, 100 * most);
    samples += (uint64_t)(stop - start);
  }
  insitu__text_buffer_printf(&b, "]}\n");
  if (b.failed) tool_no_memory();
  insitu_status status = insitu__public_write_file("manifest", scan_manifest, b.text, b.n, &err);
  insitu__text_buffer_free(&b);
  if (status) return tool_fail_error(&err);
  if (!tool_json)
    printf("%s: excludes %" PRIu64 " sample%s that miss more than %.4g %%\n", scan_manifest,
        samples, samples == 1 ? "" : "s", 100 * most);
  return TOOL_OK;
}

/* Prints the file, and writes the manifest. */
static int scan_finish(void) {
  struct scan_file f;
  int code = scan_read(scan_out, &f);
  if (code == TOOL_OK && tool_json) fputs(f.text, stdout);
  else if (code == TOOL_OK) scan_table(&f, scan_out);
  if (code == TOOL_OK && scan_exclude) code = scan_exclusions(&f);
  scan_free(&f);
  return code;
}

/* ---- the command ---- */

static bool scan_parse_lags(uint64_t *lags, uint64_t *n) {
  for (const char *p = scan_lags; p;) {
    char word[24];
    size_t length = strcspn(p, ",");
    snprintf(word, sizeof word, "%.*s", (int)insitu__base_min(length, sizeof word - 1), p);
    if (*n == INSITU__SCAN_LAGS || !tool_u64(word, &lags[(*n)++])) return false;
    p = p[length] ? p + length + 1 : NULL;
  }
  return true;
}
/* Where a launcher tells the rank, the world is known now: a part is told from the whole. All ranks
 * have the same arguments then, and each needs a file of its own: *part, FILE.RANK. An exit code.
 */
static int scan_launched(struct config *c, char **part) {
  struct insitu__text_buffer b = {0};
  insitu_error err = {0};
  const char *launcher;
  if (c->desc.rank != INSITU_RANK_FROM_ENV || c->desc.world) return TOOL_OK;
  if (insitu__launch_find(&c->desc.rank, &c->desc.world, &launcher, &err))
    return tool_fail_error(&err);
  if (c->desc.world <= 1) return TOOL_OK;
  insitu__text_buffer_printf(&b, "%s.%d", scan_out, (int)c->desc.rank);
  if (b.failed) tool_no_memory();
  *part = b.text;
  return TOOL_OK;
}
static int scan_run(int argc, char **argv) {
  static struct config c;
  insitu_error err = {0};
  uint64_t lags[INSITU__SCAN_LAGS];
  insitu_scan_desc s = {.api = INSITU_API,
      .loader = &c.desc,
      .dim = scan_dim,
      .lags = lags,
      .path = scan_out,
      .progress = scan_progress};
  if (!scan_out) return tool_usage_error("--out is missing: the file to write");
  if (!scan_exclude != !scan_manifest)
    return tool_usage_error("--exclude and --manifest-out need each other");
  double share;
  if (scan_exclude && !scan_share(&share))
    return tool_usage_error(
        "--exclude %s: give a share of elements, such as 5%% or 0.05", scan_exclude);
  if (!scan_parse_lags(lags, &s.n_lags))
    return tool_usage_error(
        "--lags %s: give up to %d numbers of samples, such as 1,4", scan_lags, INSITU__SCAN_LAGS);
  if (scan_checkpoint &&
      (!insitu__text_double(scan_checkpoint, strlen(scan_checkpoint), &s.checkpoint_s) ||
          !(s.checkpoint_s > 0)))
    return tool_usage_error("--checkpoint %s: give seconds, more than 0", scan_checkpoint);
  if (scan_merge && !argc) return tool_usage_error("--merge: name the parts to join");
  if (scan_merge) {
    if (insitu_scan_merge((const char *const *)argv, (uint64_t)argc, scan_out, &err) < 0)
      return tool_fail_error(&err);
    return scan_finish();
  }
  if (argc > 1) return tool_usage_error("one archive is needed, not %d", argc);
  int code = config_load(&c, argc ? argv[0] : NULL);
  insitu_loader *ld = NULL;
  char *part = NULL;
  if (code == TOOL_OK) code = scan_launched(&c, &part);
  if (part) s.path = part;
  if (code == TOOL_OK && c.desc.world > 1 && scan_exclude) {
    config_free(&c);
    insitu__mem_free(part);
    return tool_usage_error("a part of a scan excludes nothing; give --exclude with --merge");
  }
  if (code == TOOL_OK) {
    s.split = c.iter.split;
    insitu_loader_desc plan = c.desc;
    plan.plan_only = 1;
    plan.stats = NULL;
    plan.on_batch = NULL;
    plan.outputs = NULL;
    plan.n_outputs = 0;
    for (uint64_t i = 0; i < plan.n_variables; i++) /* what NORM needs is what the scan finds */
      ((insitu_variable *)(uintptr_t)plan.variables)[i].n_ops =
          insitu__stats_before(&plan.variables[i]);
    if (insitu_loader_open(&plan, &ld, &err) < 0) code = tool_fail_error(&err);
  }
  if (code == TOOL_OK) {
    uint64_t n = ld->split.part[s.split].anchors,
             world = (uint64_t)insitu__base_max(1, (uint64_t)c.desc.world);
    tool_progress_begin(n / world, "samples");
    insitu_loader_close(&ld);
    insitu_status status = insitu_scan(&s, &err);
    tool_progress_end();
    if (status) code = status < 0 ? tool_fail_error(&err) : TOOL_FAILED;
    else if (world > 1) printf("%s: a part; join all with insitu scan --merge\n", s.path);
    else code = scan_finish();
  }
  config_free(&c);
  insitu__mem_free(part);
  return code;
}

static const struct tool_option scan_options[] = {
    {"out", 'o', "FILE", "the file of statistics to write", &scan_out},
    {"dim", 0, "NAME", "numbers for each index of this axis, such as level", &scan_dim},
    {"lags", 0, "LIST", "also of differences x[t + lag] - x[t], as in 1,4", &scan_lags},
    {"merge", 0, NULL, "join the parts of ranks, named instead of an archive", &scan_merge},
    {"exclude", 0, "SHARE", "with --manifest-out: samples that miss more, such as 5%",
        &scan_exclude},
    {"manifest-out", 0, "FILE", "a manifest of what --exclude finds", &scan_manifest},
    {"checkpoint", 0, "S", "seconds between checkpoints (30)", &scan_checkpoint}, CONFIG_OPTIONS};
static const struct tool_command scan_command = {.name = "scan",
    .arguments = "URL | --config FILE | --merge PART ... --out FILE [options]",
    .summary = "statistics of a split: mean, std, missing; for normalisation",
    .details =
        TOOL_STORE_HELP "Reads the train split (or --split) once, in the order of the archive, and "
                        "writes count, missing, mean,\n"
                        "standard deviation, least, most and quantiles as JSON, which desc.stats "
                        "reads. A scan that was killed\n"
                        "goes on where it was when it is called again. With --world N each --rank "
                        "writes a part;\n"
                        "with --rank env it is FILE.RANK.\n\n"
                        "examples:\n"
                        "  insitu scan t.zarr --out t.json\n"
                        "  insitu scan --config train.json --dim level --lags 1,4 -o stats.json\n"
                        "  insitu scan t.zarr -o part1 --rank 1 --world 8\n"
                        "  insitu scan --merge part0 part1 -o t.json\n"
                        "  mpirun -n 2 insitu scan t.zarr -o part --rank env\n"
                        "  insitu scan t.zarr -o t.json --exclude 5% --manifest-out m.json\n",
    .options = scan_options,
    .n_options = TOOL_COUNT(scan_options),
    .run = scan_run};
