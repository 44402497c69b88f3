/* insitu bench: what was measured, in words, and the command. */

struct bench_verdict {
  double stall_share, share, low, high, cores;
  const char *stage; /* what limits: consumer, read, decode */
  char hint[4][400];
  int n_hints;
  char unsound[240]; /* why the share says nothing; "": it does */
};
__attribute__((format(printf, 2, 3))) static void bench_hint(
    struct bench_verdict *v, const char *format, ...) {
  va_list args;
  if (v->n_hints == (int)TOOL_COUNT(v->hint)) return;
  va_start(args, format);
  vsnprintf(v->hint[v->n_hints++], sizeof v->hint[0], format, args);
  va_end(args);
}
/* A share is no measurement where the bare loop did not read all chunks; nor where other processes
 * took part of the cores, which the loader and the bare loop then did not have alike; nor where it
 * is far above 1, as both decode the same bytes. */
static void bench_sound(
    const struct bench *b, uint64_t n, uint64_t cores, struct bench_verdict *v) {
  double tolerated = 0.1 * (double)cores > 0.2 ? 0.1 * (double)cores : 0.2;
  if (!n) return;
  if (b->unseen)
    snprintf(v->unsound, sizeof v->unsound,
        "%" PRIu64 " of %" PRIu64
        " chunks lie in memory or on a server, which the bare loop does not read",
        b->unseen, b->n_tiles);
  else if (b->others > tolerated)
    snprintf(v->unsound, sizeof v->unsound,
        "other processes kept %.1f of %" PRIu64
        " cores busy during the rounds; measure on a quiet machine",
        b->others, insitu__mem_online());
  else if (v->share > 1.1)
    snprintf(v->unsound, sizeof v->unsound,
        "%.2f: the bare loop has no less to do, so the rounds were disturbed, or the files are not "
        "in the page cache, where the "
        "bare loop waits for each read; measure again",
        v->share);
}
static struct bench_verdict bench_judge(const struct bench *b) {
  struct bench_verdict v = {0};
  const insitu_loader_desc *c = insitu_loader_config(b->ld);
  const struct bench_replay *r = &b->replay;
  uint64_t n = b->n_rounds, cut = bench_cut(n), cores = insitu__mem_cores();
  v.stall_share = r->seconds > 0 ? r->stall / r->seconds : 0;
  v.cores = n ? b->capacity_cpu : r->seconds > 0 ? r->cpu / r->seconds : 0;
  if (n) {
    v.share = n % 2 ? b->share[n / 2] : 0.5 * (b->share[n / 2 - 1] + b->share[n / 2]);
    v.low = b->share[cut];
    v.high = b->share[n - 1 - cut];
  }
  bench_sound(b, n, cores, &v);
  /* Where others take the cores, too, workers that are always busy tell that it is decoding. */
  bool decoding = v.cores > 0.8 * (double)cores || r->stats.decode_busy > 0.8;
  v.stage = v.stall_share < 0.05 ? "consumer" : decoding ? "decode" : "read";
  if (b->machine_busy > 0.9 && v.cores < 0.7 * (double)cores)
    bench_hint(&v, "Other programs keep the cores busy, so times and the share are noisy: compare "
                   "the CPU time a byte.");
  if (b->plan.decode_amplification > 1.15)
    bench_hint(&v,
        "Each chunk is decoded %.2f times: see insitu plan for unit_chunks that make it less.",
        b->plan.decode_amplification);
  if (strcmp(v.stage, "read") == 0 && r->stats.inflight_peak >= c->max_inflight)
    bench_hint(&v,
        "The cores wait for reads while all %" PRIu64
        " chunks in flight are taken: raise max_inflight, to %" PRIu64 " perhaps.",
        c->max_inflight, 4 * c->max_inflight);
  bool sound = n && !v.unsound[0];
  if (strcmp(v.stage, "decode") == 0 && v.cores > 0.8 * (double)cores && sound && v.share >= 0.9)
    bench_hint(&v, "All cores are busy and the bare loop is hardly faster: only more cores, a "
                   "cheaper codec or fewer re-reads help.");
  if (sound && v.high < 0.9 && c->decode_threads < cores && !c->inline_io)
    bench_hint(&v, "decode_threads is %" PRIu64 " and there are %" PRIu64 " cores: raise it.",
        c->decode_threads, cores);
  if (sound && v.high < 0.9 && c->inline_io)
    bench_hint(&v, "inline_io decodes in the consumer's thread alone: without it all cores do.");
  if (v.stall_share > 0.01 && b->compute > 0 &&
      bench_quantile(r->call, r->n_calls, 0.99) > 0.5 * b->compute)
    bench_hint(
        &v, "Some batches come late: raise prefetch_depth (now %" PRIu64 ").", c->prefetch_depth);
  if (n && b->plan.read_bytes > insitu__mem_total())
    bench_hint(&v, "An epoch does not fit the page cache: the bare loop repeats files that are in "
                   "it, so the share is too low.");
  return v;
}
static void bench_print(const struct bench *b, const struct bench_verdict *v) {
  const struct bench_replay *r = &b->replay;
  const insitu_loader_desc *c = insitu_loader_config(b->ld);
  char t[32], u[32];
  double ms[3];
  for (int i = 0; i < 3; i++)
    ms[i] = 1e3 * bench_quantile(r->call, r->n_calls, i == 0 ? 0.5 : i == 1 ? 0.95 : 0.99);
  printf("%s%s%s: %s, %" PRIu64 " variable%s, batches of %" PRIu64 ", %s, %" PRIu64
         " decode threads\n\n",
      tool_style(TOOL_BOLD), b->ld->source.store.url, tool_style(TOOL_PLAIN),
      insitu__document_split_words[b->config.iter.split], c->n_variables,
      c->n_variables == 1 ? "" : "s", c->batch_size, r->stats.io, c->decode_threads);
  printf("%sthe job%s, %.1f s with %.3g ms of computing for each batch\n", tool_style(TOOL_BOLD),
      tool_style(TOOL_PLAIN), r->seconds, 1e3 * b->compute);
  printf("  delivered      %.1f batches/s, %.0f samples/s, %s/s\n", (double)r->batches / r->seconds,
      (double)r->rows / r->seconds, tool_bytes(t, (uint64_t)((double)r->bytes / r->seconds)));
  printf("  waiting        %.1f %% of the time; next: p50 %.3f ms, p95 %.3f ms, p99 %.3f ms\n",
      100 * v->stall_share, ms[0], ms[1], ms[2]);
  printf("  first batch    %.1f ms\n", 1e3 * r->first);
  printf("  reads          %s chunks, %s, decoded %s", tool_count(t, r->stats.reads),
      tool_bytes(u, r->stats.bytes_read), "");
  printf("%s; each is read %s%.2f times an epoch\n", tool_bytes(t, r->stats.bytes_decoded),
      b->plan.assembly == INSITU_GATHER ? "at most " : "", b->plan.amplification);
  if (r->stats.absent_chunks || r->stats.bad_chunks)
    printf("  holes          %" PRIu64 " absent chunks, %" PRIu64 " damaged ones filled\n",
        r->stats.absent_chunks, r->stats.bad_chunks);
  printf("  memory         %s resident at most; promised: %s of batches, %s in flight\n",
      tool_bytes(t, r->peak_rss), tool_bytes(u, b->plan.slabs * b->plan.slab_bytes),
      tool_bytes((char[32]){0}, b->plan.inflight_bytes));
  if (b->n_rounds) {
    printf("\n%sthe limit%s, %" PRIu64 " rounds of each in turns, decoded\n", tool_style(TOOL_BOLD),
        tool_style(TOOL_PLAIN), b->n_rounds);
    uint64_t m = b->n_rounds / 2;
    printf("  bare loop      %s/s, %.3f ns of CPU time a byte\n",
        tool_bytes(t, (uint64_t)b->bare[m]), 1e9 * b->bare_cpu[m]);
    printf("  loader         %s/s, %.3f ns of CPU time a byte\n",
        tool_bytes(t, (uint64_t)b->loader[m]), 1e9 * b->loader_cpu[m]);
    if (v->unsound[0])
      printf("  share          %svoid%s: %s\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN),
          v->unsound);
    else
      printf("  share          %s%.3f%s [%.3f, %.3f]\n",
          tool_style(v->high >= 0.9 ? TOOL_GREEN : TOOL_YELLOW), v->share, tool_style(TOOL_PLAIN),
          v->low, v->high);
  }
  printf("\nlimited by: %s; the job keeps %.1f of %" PRIu64 " cores busy\n", v->stage, v->cores,
      insitu__mem_cores());
  for (int i = 0; i < v->n_hints; i++)
    printf("%s!%s %s\n", tool_style(TOOL_YELLOW), tool_style(TOOL_PLAIN), v->hint[i]);
}
static void bench_print_json(
    const struct bench *b, const struct bench_verdict *v, const struct sweep *sweep) {
  const struct bench_replay *r = &b->replay;
  struct tool_json_out j = {.to = stdout};
  static const double at[] = {0.5, 0.95, 0.99};
  static const char *const name[] = {"next_p50_s", "next_p95_s", "next_p99_s"};
  tool_json_object(&j, NULL);
  tool_json_string(&j, "url", b->ld->source.store.url);
  tool_json_double(&j, "seconds", r->seconds);
  tool_json_double(&j, "compute_s", b->compute);
  tool_json_u64(&j, "batches", r->batches);
  tool_json_u64(&j, "rows", r->rows);
  tool_json_u64(&j, "bytes", r->bytes);
  tool_json_double(&j, "batches_per_s", (double)r->batches / r->seconds);
  tool_json_double(&j, "bytes_per_s", (double)r->bytes / r->seconds);
  tool_json_double(&j, "stall_share", v->stall_share);
  tool_json_double(&j, "first_batch_s", r->first);
  for (int i = 0; i < 3; i++)
    tool_json_double(&j, name[i], bench_quantile(r->call, r->n_calls, at[i]));
  tool_json_u64(&j, "reads", r->stats.reads);
  tool_json_double(&j, "amplification", b->plan.amplification);
  tool_json_u64(&j, "bytes_read", r->stats.bytes_read);
  tool_json_u64(&j, "bytes_decoded", r->stats.bytes_decoded);
  tool_json_u64(&j, "absent_chunks", r->stats.absent_chunks);
  tool_json_u64(&j, "bad_chunks", r->stats.bad_chunks);
  tool_json_u64(&j, "resident_bytes_peak", r->peak_rss);
  tool_json_u64(&j, "slab_bytes_peak", r->stats.slab_bytes_peak);
  tool_json_string(&j, "io", r->stats.io);
  if (b->n_rounds) {
    tool_json_u64(&j, "rounds", b->n_rounds);
    tool_json_double(&j, "bare_bytes_per_s", b->bare[b->n_rounds / 2]);
    tool_json_double(&j, "loader_bytes_per_s", b->loader[b->n_rounds / 2]);
    tool_json_double(&j, "bare_cpu_s_per_byte", b->bare_cpu[b->n_rounds / 2]);
    tool_json_double(&j, "loader_cpu_s_per_byte", b->loader_cpu[b->n_rounds / 2]);
    if (v->unsound[0]) tool_json_null(&j, "share");
    else tool_json_double(&j, "share", v->share);
    tool_json_double(&j, "share_low", v->low);
    tool_json_double(&j, "share_high", v->high);
    tool_json_double(&j, "other_cores_busy", b->others);
    tool_json_string(&j, "void", v->unsound[0] ? v->unsound : NULL);
  }
  if (sweep->n) sweep_json(sweep, &j);
  tool_json_string(&j, "limited_by", v->stage);
  tool_json_double(&j, "cores_busy", v->cores);
  tool_json_array(&j, "hints");
  for (int i = 0; i < v->n_hints; i++) tool_json_string(&j, NULL, v->hint[i]);
  tool_json_end(&j);
  tool_json_end(&j);
}

static bool bench_number(
    const char *name, const char *text, double otherwise, double most, double *value) {
  char *end = NULL;
  *value = text ? strtod(text, &end) : otherwise;
  if (!text || (end != text && !*end && *value >= 0 && *value <= most)) return true;
  tool_usage_error("--%s %s: a number from 0 to %g is needed", name, text, most);
  return false;
}
static int bench_run(int argc, char **argv) {
  static struct bench b;
  static struct sweep sweep;
  double compute_ms;
  insitu_error err = {0};
  if (argc > 1) return tool_usage_error("one archive is needed, not %d", argc);
  if (!bench_number("seconds", bench_seconds, 5, 1e6, &b.seconds_asked) ||
      !bench_number("compute-ms", bench_compute, 0, 1e6, &compute_ms) ||
      !tool_option_u64("epochs", bench_epochs, 0, &b.epochs_asked) ||
      !tool_option_u64("rounds", bench_rounds, 15, &b.rounds))
    return TOOL_USAGE;
  if (b.rounds > BENCH_MAX_ROUNDS)
    return tool_usage_error("--rounds: at most %d", BENCH_MAX_ROUNDS);
  b.compute = compute_ms / 1e3;
  int code = config_load(&b.config, argc ? argv[0] : NULL);
  if (code == TOOL_OK) {
    insitu_status status = insitu_loader_open(&b.config.desc, &b.ld, &err);
    if (status == INSITU_OK) status = insitu_loader_plan(b.ld, &b.config.iter, &b.plan, &err);
    if (status == INSITU_OK) status = insitu_iter_open(b.ld, &b.config.iter, &b.it, &err);
    if (status < 0) code = tool_fail_error(&err);
  }
  double busy[2], all[2];
  bench_machine(&busy[0], &all[0]);
  if (code == TOOL_OK) code = bench_run_job(&b);
  bool far = b.ld && insitu__store_is_remote(&b.ld->source.store);
  if (code == TOOL_OK && b.rounds) code = bench_prepare(&b);
  if (code == TOOL_OK && b.rounds && !far) code = bench_run_rounds(&b);
  bench_machine(&busy[1], &all[1]);
  b.machine_busy = all[1] > all[0] ? (busy[1] - busy[0]) / (all[1] - all[0]) : 0;
  if (code == TOOL_OK) {
    struct bench_verdict v = bench_judge(&b);
    if (!tool_json) bench_print(&b, &v);
    if (b.rounds && (far || bench_sweep)) code = sweep_run(&b, &sweep);
    if (sweep.n && !tool_json) sweep_print(&sweep);
    if (code == TOOL_OK && tool_json) bench_print_json(&b, &v, &sweep);
  }
  if (b.ring) bench_unprepare(&b);
  insitu_iter_close(&b.it);
  insitu_loader_close(&b.ld);
  insitu__mem_free(b.replay.call);
  bench_free_tiles(&b);
  config_free(&b.config);
  return code;
}

static const struct tool_option bench_options[] = {
    {"seconds", 's', "S", "run the job so long (5)", &bench_seconds},
    {"epochs", 'e', "N", "run it for so many epochs instead", &bench_epochs},
    {"compute-ms", 0, "MS", "time that the consumer takes for each batch (0)", &bench_compute},
    {"busy", 0, NULL, "the consumer keeps its core busy meanwhile; without it waits, as for a GPU",
        &bench_busy},
    {"rounds", 0, "N", "of loader and bare loop, in turns (15); 0 leaves the limit out",
        &bench_rounds},
    {"sweep", 0, NULL, "then max_inflight 1, 2, 4, ... to find the knee: of remote stores always",
        &bench_sweep},
    {"like", 0, "FILE", "the same as --config", &config_file}, CONFIG_OPTIONS};
static const struct tool_command bench_command = {.name = "bench",
    .arguments = "URL | --like FILE [options]",
    .summary = "run a job's loader, and compare it with the limit",
    .details =
        "First the job: batches of the configuration, each byte of which a consumer looks at. "
        "Then, in turns, the\n"
        "loader without a consumer and the bare loop on the same files: open, read and decode on "
        "all cores into buffers\n"
        "as large as the ring of batches. The share is the loader's throughput over the bare "
        "loop's: the median of the\n"
        "rounds, with an interval that covers it with 95 %. It is void where other processes kept "
        "a tenth of the\n"
        "cores busy meanwhile, where it is above 1.1: both have the same bytes to decode; and of "
        "an archive whose\n"
        "chunks lie, in part, in memory or on a server.\n\n"
        "Of a remote store it is instead the loader with max_inflight 1, 2, 4, ... 256, until more "
        "does not help, in\n"
        "turns with a bare libcurl loop that gets the same objects over as many connections. The "
        "knee is the\n"
        "smallest max_inflight within 5 % of the best.\n\n" TOOL_STORE_HELP "examples:\n"
        "  insitu bench t.zarr --var x=t,y=t@1 --batch-size 16\n"
        "  insitu bench --like train.json --compute-ms 40 --epochs 2\n"
        "  insitu bench t.zarr --rounds 0 --seconds 30 --io epoll --json\n",
    .options = bench_options,
    .n_options = TOOL_COUNT(bench_options),
    .run = bench_run};
