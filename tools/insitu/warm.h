/* insitu warm: fills cache_dir ahead with what a split reads. */
static const char *warm_epochs;

struct warm_result {
  uint64_t rows, of;
  insitu_stats stats;
  bool full;
};

/* Reads epochs until they are through or the cache keeps no more. An exit code. */
static int warm_read(
    insitu_loader *ld, const insitu_iter_desc *pass, uint64_t epochs, struct warm_result *r) {
  insitu_error err = {0};
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  insitu_plan plan;
  insitu_status status = insitu_loader_plan(ld, pass, &plan, &err);
  if (!status) status = insitu_iter_open(ld, pass, &it, &err);
  if (status < 0) return tool_fail_error(&err);

  r->of = plan.rows * epochs;
  tool_progress_begin(r->of, "samples");
  while (epochs && !r->full) {
    status = insitu_iter_next(it, INSITU_FOREVER, &b, &err);
    if (status < 0) break;
    if (status == INSITU_END) {
      epochs--;
      continue;
    }
    r->rows += b->rows;
    insitu_batch_release(&b);
    tool_progress(r->rows);
    insitu_loader_stats(ld, &r->stats, NULL);
    r->full = r->stats.disk_unkept > 0;
  }
  tool_progress_end();
  insitu_iter_close(&it);
  insitu_loader_stats(ld, &r->stats, NULL);
  r->full = r->stats.disk_unkept > 0;
  return status < 0 ? tool_fail_error(&err) : TOOL_OK;
}

static void warm_print(const insitu_loader_desc *d, const struct warm_result *r) {
  char budget[16];
  if (tool_json) {
    printf("{\"rows\": %" PRIu64 ", \"of\": %" PRIu64 ", \"found\": %" PRIu64
           ", \"written\": %" PRIu64 ", \"full\": %s}\n",
        r->rows, r->of, r->stats.disk_hits, r->stats.disk_written, r->full ? "true" : "false");
    return;
  }
  printf("%s: %" PRIu64 " of %" PRIu64 " samples read; %" PRIu64 " entries written, %" PRIu64
         " found there\n",
      d->cache_dir, r->rows, r->of, r->stats.disk_written, r->stats.disk_hits);
  if (r->full)
    printf("The cache is full: cache_budget is %s. Raise it (--cache-budget), or leave it so: what "
           "is not there\nis read from the archive.\n",
        tool_bytes(budget, d->cache_budget));
}

static int warm_run(int argc, char **argv) {
  static struct config c;
  struct warm_result r = {.rows = 0};
  insitu_error err = {0};
  uint64_t epochs = 1;
  insitu_loader *ld = NULL;
  if (argc > 1) return tool_usage_error("one archive is needed, not %d", argc);
  if (warm_epochs && (!tool_u64(warm_epochs, &epochs) || !epochs))
    return tool_usage_error("--epochs %s: give a number, at least 1", warm_epochs);
  int code = config_load(&c, argc ? argv[0] : NULL);
  if (code == TOOL_OK && !c.desc.cache_dir)
    code = tool_usage_error("--cache-dir is missing: the directory to fill");
  if (code == TOOL_OK && c.desc.offline)
    code =
        tool_usage_error("--offline asks the archive for nothing: leave it out to fill the cache");

  if (code == TOOL_OK) { /* what becomes of the values is no question of the cache */
    c.desc.stats = NULL;
    c.desc.cache_memory = 0;
    c.desc.hold_epoch = 1; /* what is prefetched behind the last epoch would count as found */
    for (uint64_t i = 0; i < c.desc.n_variables; i++) {
      insitu_variable *v = (insitu_variable *)(uintptr_t)&c.desc.variables[i];
      v->ops = NULL;
      v->n_ops = 0;
      v->mask = NULL;
    }
    if (insitu_loader_open(&c.desc, &ld, &err) < 0) code = tool_fail_error(&err);
  }
  if (code == TOOL_OK && !insitu__config_caches(ld)) {
    fprintf(stderr,
        "insitu: cache_dir is not used: the archive is local; --cache-decoded keeps its "
        "chunks decoded\n");
    code = TOOL_FAILED;
  }
  if (code == TOOL_OK) code = warm_read(ld, &c.iter, epochs, &r);
  if (code == TOOL_OK) warm_print(insitu_loader_config(ld), &r);
  insitu_loader_close(&ld);
  config_free(&c);
  return code;
}

static const struct tool_option warm_options[] = {
    {"epochs", 0, "N", "as many epochs, from --epoch on (1)", &warm_epochs}, CONFIG_OPTIONS};
static const struct tool_command warm_command = {.name = "warm",
    .arguments = "URL | --config FILE --cache-dir DIR [options]",
    .summary = "fill cache_dir ahead with what a split reads",
    .details = TOOL_STORE_HELP
    "Reads the train split (or --split) in the order of its epochs, and keeps "
    "what it reads in cache_dir: as it\n"
    "was sent, or with --cache-decoded decoded. What is there is checked, and "
    "not read again, so that a call that\n"
    "was killed is just made again. Ends when cache_budget is spent, and says "
    "so. Several may run at once.\n"
    "With the same configuration and offline = 1 a loader then needs no archive.\n\n"
    "examples:\n"
    "  insitu warm s3://bucket/t.zarr --cache-dir /nvme/cache\n"
    "  insitu warm --config train.json --cache-dir /nvme/cache --cache-decoded\n"
    "  insitu warm t.zarr --cache-dir c --cache-decoded --split all\n",
    .options = warm_options,
    .n_options = TOOL_COUNT(warm_options),
    .run = warm_run};
