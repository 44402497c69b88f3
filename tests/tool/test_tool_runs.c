/* The command insitu on what runs leave behind: prove, on receipts and states; trace, on
 * timelines; and --rank env. */
#include "insitubatch.h"
#include "support.h"
#include "run_tool.h"

enum { ROWS = 8, BATCHES = 11 };
static struct support_array x = {.name = "x",
    .ndim = 2,
    .shape = {96, 6},
    .chunk = {4, 6},
    .dtype = INSITU_F32,
    .format = 2,
    .dims = "[\"time\",\"y\"]"};
static const insitu_variable shown[] = {
    {.label = "in", .path = "x"}, {.label = "out", .path = "x", .offset = 1}};
static const insitu_iter_desc train = {.api = INSITU_API};
static const char *root, *config, *path;

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Writes a file into the test's folder; the path. */
static const char *file_of(const char *name, const void *bytes, size_t n) {
  const char *at = support_path(name);
  support_write(at, bytes, n);
  return at;
}

/* An archive, and the configuration that the runs below have. */
static void begin(void) {
  char text[1200];
  if (root) return;
  root = strdup(support_path("x.zarr"));
  support_make(root, &x);
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"batch_size\": %d, \"seed\": 5, \"lanes\": 4, \"block_chunks\": 8, "
      "\"unit_chunks\": 1, \"split\": [{\"fraction\": 1}, {\"fraction\": 0}, {\"fraction\": 0}], "
      "\"variables\": [{\"label\": \"in\", \"path\": \"x\"}, {\"label\": \"out\", \"path\": \"x\", "
      "\"offset\": 1}]}",
      root, ROWS);
  config = strdup(file_of("config.json", text, strlen(text)));
}

static insitu_loader_desc desc_of(int32_t world, int32_t rank) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = shown,
      .n_variables = 2,
      .batch_size = ROWS / (uint64_t)world,
      .world = world,
      .rank = rank,
      .seed = 5,
      .lanes = 4,
      .block_chunks = 8,
      .unit_chunks = 1,
      .split = {{.fraction = 1}},
      .receipts = INSITU_RECEIPT_BYTES,
      .log = quiet,
      .inline_io = 1};
}

/* What a trainer logs of two epochs. skip: batches 3 and 4 of epoch 0 are left out. seed: of epoch
 * 1. *state: behind batch 6. */
static char *log_of(int32_t world, int32_t rank, bool skip, uint64_t seed, insitu_state *state) {
  size_t cap = 1 << 16, n = 0;
  char *text = calloc(1, cap), line[400];
  for (uint64_t e = 0; e < 2; e++) {
    insitu_loader_desc d = desc_of(world, rank);
    insitu_batch *b;
    if (e) d.seed = seed;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &train);
    assert_int_equal(insitu_iter_set_epoch(it, e, NULL), INSITU_OK);
    if (skip && !e) assert_int_equal(insitu_iter_skip(it, 3, 2, NULL), INSITU_OK);
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) {
      assert_true(insitu_batch_receipt(b, line, sizeof line) < 300);
      n += (size_t)snprintf(text + n, cap - n, "epoch %d, loss 0.5\n12:00 train: %s%s\n", (int)e,
          line, b->index % 2 ? "" : " \r");
      if (state && !e && b->index == 6) *state = b->after;
      insitu_batch_release(&b);
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  return text;
}

/* Writes a log to a file of this name. */
static void write_log(const char *name, char *text) {
  path = file_of(name, text, strlen(text));
  free(text);
}

static void test_prove(void **state) {
  (void)state;
  begin();
  write_log("a.log", log_of(1, 0, false, 5, NULL));
  if (run_tool("prove %s -c %s", path, config)) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "22 batches of epochs 0 to 1 are as the configuration has them");
  assert_int_equal(run_tool("prove %s -c %s --seed 6", path, config), 1);
  assert_has(run_out, "a.log:2: the run went another way at batch 0 of epoch 0: its samples");
  assert_int_equal(run_tool("prove %s -c %s --skip 1:9:1", path, config), 1);
  assert_has(run_out, "batch 9 of epoch 1: it was delivered, and --skip leaves it out");
  write_log("b.log", log_of(1, 0, false, 6, NULL)); /* another way from epoch 1 on */
  assert_int_equal(run_tool("prove %s -c %s", path, config), 1);
  assert_has(run_out, "at batch 0 of epoch 1");
  assert_int_equal(run_tool("prove %s -c %s --json", path, config), 1);
  assert_has(run_out, "\"epoch\": 1");
}

static void test_prove_ranks(void **state) {
  (void)state;
  begin();
  char two[2][300];
  for (int r = 0; r < 2; r++) {
    write_log(r ? "rank1.log" : "rank0.log", log_of(2, r, true, 5, NULL));
    snprintf(two[r], sizeof two[r], "%s", path);
  }
  if (run_tool("prove %s %s -c %s --skip 0:3:2 --batch-size 4", two[0], two[1], config))
    fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "20 batches of epochs 0 to 1");
  assert_has(run_out, "2 batches were left out");
  assert_int_equal(run_tool("prove %s -c %s --batch-size 4", two[0], config), 1);
  assert_has(run_out, "at batch 5 of epoch 0: the run left out batches 3 to 4, which --skip does");
  assert_int_equal(run_tool("prove %s -c %s --batch-size 4 --skip 0:3:1", two[0], config), 1);
  assert_has(run_out, "the run left out batches 4 to 4");
  assert_int_equal(run_tool("prove %s -c %s", two[0], config), 1); /* another global batch */
  write_log("one.log", log_of(1, 0, false, 5, NULL));
  char both[600];
  snprintf(both, sizeof both, "%s %s", two[0], two[1]); /* bytes add up to those of a world of 1 */
  if (run_tool("prove %s --against %s", both, path)) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "20 batches");
  assert_has(run_out, "2 batches have no receipt in one of the logs");
}

/* Replaces the first `from` behind `after` in a log. */
static void plant(char *text, const char *after, const char *from, const char *to) {
  char *at = strstr(text, after);
  assert_non_null(at);
  at = strstr(at, from);
  assert_non_null(at);
  memcpy(at, to, strlen(to));
}
static void test_prove_planted(void **state) {
  (void)state;
  begin();
  write_log("good.log", log_of(1, 0, false, 5, NULL));
  char good[300];
  snprintf(good, sizeof good, "%s", path);
  char *text = log_of(1, 0, false, 5, NULL);
  plant(text, "\"epoch\": 1, \"batch\": 7", "\"bytes\": \"", "\"bytes\": \"0123456789abcdef");
  write_log("bytes.log", text);
  assert_int_equal(run_tool("prove %s -c %s", path, config), 0); /* bytes are not derived */
  assert_int_equal(run_tool("prove %s --against %s", path, good), 1);
  assert_has(run_out, "at batch 7 of epoch 1: it has the samples of");
  text = log_of(1, 0, false, 5, NULL);
  plant(text, "\"epoch\": 0, \"batch\": 4", "\"anchors\": \"", "\"anchors\": \"0123456789abcdef");
  write_log("anchors.log", text);
  assert_int_equal(run_tool("prove %s -c %s", path, config), 1);
  assert_has(run_out, "anchors.log:10: the run went another way at batch 4 of epoch 0");
  text = log_of(1, 0, false, 5, NULL);
  plant(text, "\"epoch\": 0, \"batch\": 4", "\"epoch_anchors\": \"",
      "\"epoch_anchors\": \"0123456789abcdef");
  write_log("running.log", text);
  assert_int_equal(run_tool("prove %s -c %s", path, config), 1);
  assert_has(run_out, "a batch before it was another one, or left out");
  text = log_of(1, 0, false, 5, NULL);
  plant(text, "\"epoch\": 0, \"batch\": 4", "\"batch\": 4", "\"batch\": x");
  write_log("broken.log", text);
  assert_int_equal(run_tool("prove %s -c %s", path, config), 1);
  assert_has(run_err, "broken.log:10: this line is no receipt");
  assert_int_equal(run_tool("prove %s -c %s --split all", good, config), 1);
  assert_has(run_err, "there is no receipt of split all");

  /* epochs that one of two logs has alone */
  text = log_of(1, 0, false, 5, NULL);
  char *second = strstr(text, "\"epoch\": 1");
  assert_non_null(second);
  while (second[-1] != '\n') second--;
  write_log("second.log", strdup(second));
  char later[300];
  snprintf(later, sizeof later, "%s", path);
  *second = 0;
  write_log("first.log", text);
  assert_int_equal(run_tool("prove %s --against %s", path, good), 0);
  assert_has(run_out, "11 batches");
  assert_has(run_out, "11 batches have no receipt in one of the logs");
  assert_int_equal(run_tool("prove %s --against %s", path, later), 1);
  assert_has(run_err, "the logs have no batch in common");
  assert_int_equal(run_tool("prove"), 2);
  assert_int_equal(run_tool("prove %s -c %s --skip 1:2", good, config), 2);
  assert_int_equal(run_tool("prove /nowhere -c %s", config), 1);
}

static void test_prove_state(void **state) {
  (void)state;
  begin();
  insitu_state s;
  free(log_of(1, 0, true, 5, &s));
  path = file_of("s.state", &s, sizeof s);
  if (run_tool("prove %s -c %s", path, config)) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "epoch 0, 7 of 11 batches are over");
  assert_has(run_out, "left out: batches 3 to 4");
  assert_has(run_out, "its samples are those of the configuration");
  assert_int_equal(run_tool("prove %s -c %s --json", path, config), 0);
  assert_has(run_out, "\"same\": true");
  assert_int_equal(run_tool("prove %s -c %s --seed 6", path, config), 1);
  assert_has(run_err, "another value of seed");
  s.bytes[100] ^= 1;
  path = file_of("s.state", &s, sizeof s);
  assert_int_equal(run_tool("prove %s -c %s", path, config), 1);
  assert_has(run_err, "checksum");
}

/* What a number of the JSON that was printed is. */
static double number(const char *key) {
  char name[64];
  snprintf(name, sizeof name, "\"%s\": ", key);
  const char *at = strstr(run_out, name);
  if (!at) fail_msg("no %s in:\n%s", name, run_out);
  return atof(at + strlen(name));
}
static void test_trace(void **state) {
  (void)state;
  begin();
  char file[300];
  snprintf(file, sizeof file, "%s", support_path("t.json"));
  insitu_loader_desc d = desc_of(1, 0);
  insitu_stats stats;
  insitu_batch *b;
  d.trace = file;
  d.hold_epoch = 1;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  if (run_tool("trace %s", file)) fail_msg("%s%s", run_out, run_err);
  static const char *const says[] = {"the consumer waits", "workers are busy", "chunks in flight",
      "read", "decode", "is filled", "slowest chunks", "longest waits"};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++) assert_has(run_out, says[i]);
  /* the first sentence: what limits, where the time went, and a knob */
  char *line_end = strchr(run_out, '\n');
  assert_int_equal(strncmp(run_out, "Limited by ", 11), 0);
  if (line_end) *line_end = 0;
  assert_has(run_out, ". The trainer waited ");
  assert_int_equal(run_tool("trace %s --json", file), 0);
  assert_has(run_out, "\"limited_by\": ");
  assert_true(number("chunks") == (double)stats.reads);
  assert_true(number("batches") == BATCHES && number("requests") == 0);
  assert_true(number("consumer_waits") > 0 && number("consumer_waits") <= 1);
  assert_true(number("lost_records") == 0);

  static const char *const bad[][2] = {{"", "trace"}, {"{}", "no timeline of this library"},
      {"{\"traceEvents\": [], \"otherData\": {\"insitubatch\": 2}}", "no timeline of this"},
      {"{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1, \"dur\": -1, \"cat\": \"next\", "
       "\"name\": \"next\"}], \"otherData\": {\"insitubatch\": 1}}",
          "an event has no time"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *at = file_of("bad.json", bad[i][0], strlen(bad[i][0]));
    assert_int_equal(run_tool("trace %s", at), 1);
    assert_has(run_err, bad[i][1]);
  }
  /* ranks 1 and 0, in that order: each is told, and the longest waits of all */
  snprintf(file, sizeof file, "%s", support_path("t-%r.json"));
  for (int rank = 0; rank < 2; rank++) {
    d = desc_of(2, rank);
    d.trace = file;
    ld = open_or_fail(&d);
    it = open_iter_or_fail(ld, &train);
    while (insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  char second[300];
  snprintf(second, sizeof second, "%s", support_path("t-1.json"));
  snprintf(file, sizeof file, "%s", support_path("t-0.json"));
  if (run_tool("trace %s %s", second, file)) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, " of 2 waited longest, ");
  assert_has(run_out, "timelines of 2 of 2 ranks\n");
  assert_true(strstr(run_out, "t-0.json") < strstr(run_out, "t-1.json"));
  assert_has(run_out, "  rank 0, ");
  assert_has(run_out, "  rank 1, ");
  if (run_tool("trace %s %s", second, second)) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "timelines of 1 of 2 ranks: the others are missing");
  assert_int_equal(run_tool("trace %s %s --json", second, file), 0);
  assert_has(run_out, "\"timelines\": [");
  assert_has(run_out, "\"headline\": \"Rank ");
  assert_int_equal(run_tool("trace %s %s", file, support_path("bad.json")), 1);
  assert_int_equal(run_tool("trace %s %s --json", file, support_path("bad.json")), 1);
  assert_string_equal(run_out, "");
  const char *none = "{\"traceEvents\": [], \"otherData\": {\"insitubatch\": 1}}";
  assert_int_equal(run_tool("trace %s", file_of("none.json", none, strlen(none))), 0);
  assert_has(run_out, "no call of insitu_iter_next");
  assert_int_equal(run_tool("trace"), 2);
  assert_int_equal(run_tool("trace %s --top 1000", file), 2);
}

/* A process of a run: takes an epoch, `loaders` times, with a timeline that the environment asks
 * for. It begins once a byte comes from the pipe, and so at the same time as the others. */
static pid_t run_process(const insitu_loader_desc *d, int loaders, const int go[2]) {
  char byte;
  pid_t child = fork();
  if (child) return child;
  close(go[1]);
  int code = read(go[0], &byte, 1) != 0;
  for (int i = 0; i < loaders && !code; i++) {
    insitu_loader *ld = NULL;
    insitu_iter *it = NULL;
    insitu_batch *b;
    code = insitu_loader_open(d, &ld, NULL) || insitu_iter_open(ld, &train, &it, NULL);
    while (!code && insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  _exit(code);
}
/* Timelines of processes that run at once under one name: each rank's, and each loader's, is told
 * by its rank, in whatever order they are given; and those of another run stand out. */
static void test_trace_processes(void **state) {
  (void)state;
  begin();
  static const int loaders[] = {2, 1};
  char names[4][300], order[1300];
  int go[2], status;
  pid_t child[2];
  insitu_loader_desc d[2] = {desc_of(2, 0), desc_of(2, 1)};
  for (int i = 0; i < 4; i++)
    snprintf(names[i], sizeof names[i], "%s%s", support_path("all.json"),
        ((const char *[]){"", "-2", ".1", "-3"})[i]);

  setenv("INSITU_TRACE", names[0], 1);
  assert_int_equal(pipe(go), 0);
  for (int rank = 0; rank < 2; rank++) child[rank] = run_process(&d[rank], loaders[rank], go);
  close(go[1]);
  close(go[0]);
  for (int rank = 0; rank < 2; rank++) {
    assert_int_equal(waitpid(child[rank], &status, 0), child[rank]);
    assert_int_equal(status, 0);
  }
  unsetenv("INSITU_TRACE");
  assert_int_equal(access(names[3], F_OK), -1);

  double chunks = 0;
  for (int i = 0; i < 3; i++) {
    if (run_tool("trace %s --json", names[i])) fail_msg("%s%s", run_out, run_err);
    assert_true(number("rank") == (i == 2) && number("world") == 2 && number("chunks") > 0);
    assert_true(number("batches") == BATCHES);
    chunks += number("chunks");
  }
  if (run_tool("trace %s %s %s", names[2], names[1], names[0])) fail_msg("%s%s", run_out, run_err);
  snprintf(order, sizeof order, "  together: %.0f chunks, ", chunks);
  assert_has(run_out, order);
  snprintf(order, sizeof order, ", %d batches; timelines of 2 of 2 ranks\n", 3 * BATCHES);
  assert_has(run_out, order);
  char *first = strstr(run_out, "all.json\n"), *second = strstr(run_out, "all.json-2\n"),
       *third = strstr(run_out, "all.json.1\n");
  assert_true(second && second < first && first < third); /* of a rank as they were given */
  assert_null(strstr(run_out, "give the timelines of one run"));

  d[0] = desc_of(1, 0);
  d[0].trace = names[3];
  insitu_loader *ld = open_or_fail(&d[0]);
  insitu_loader_close(&ld);
  if (run_tool("trace %s %s", names[2], names[3])) fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "they are of runs of 1 to 2 ranks: give the timelines of one run");
}

/* --rank env: rank and world are the launcher's; the library's errors. */
static void test_rank_env(void **state) {
  (void)state;
  begin();
  static const struct {
    const char *variables, *more;
    int code;
    const char *out, *err;
  } runs[] = {
      {"RANK=1 WORLD_SIZE=2", "--batch-size 4", 0, "on each of 2 ranks (this is rank 1)", ""},
      {"PMI_RANK=0 PMI_SIZE=4", "--batch-size 2", 0, "on each of 4 ranks (this is rank 0)", ""},
      {"", "", 1, "", "no launcher tells rank and number of ranks"},
      {"RANK=1 WORLD_SIZE=2", "--world 2", 1, "", "world is 2; the launcher tells world as well"},
      {"RANK=2 WORLD_SIZE=2", "", 1, "", "no rank below a number of ranks: RANK=2, WORLD_SIZE=2"},
      {"RANK=1 WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2", "", 1, "", "two launchers disagree"}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    char before[100];
    snprintf(before, sizeof before, "env -i %s", runs[i].variables);
    int code = run_tool_with(before, "plan --config %s --rank env %s", config, runs[i].more);
    if (code != runs[i].code) fail_msg("%s: %d\n%s%s", before, code, run_out, run_err);
    assert_has(run_out, runs[i].out);
    assert_has(run_err, runs[i].err);
  }
  assert_int_equal(run_tool("plan --config %s --rank -1", config), 2);
  assert_int_equal(run_tool("plan --config %s --rank environs", config), 2);

  /* a scan of a rank is a part */
  char part[300];
  snprintf(part, sizeof part, "%s", support_path("part"));
  assert_int_equal(run_tool_with("env -i RANK=0 WORLD_SIZE=2",
                       "scan --config %s --rank env -o %s --exclude 5%% --manifest-out %s", config,
                       part, support_path("m.json")),
      2);
  assert_has(run_err, "a part of a scan excludes nothing");
  assert_int_equal(run_tool_with("env -i RANK=0 WORLD_SIZE=2", "scan --config %s --rank env -o %s",
                       config, part),
      0);
  assert_has(run_out, "/part.0: a part; join all");
  assert_int_equal(access(support_path("part.0"), F_OK), 0);
  assert_int_equal(access(part, F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_prove),
      cmocka_unit_test(test_prove_ranks), cmocka_unit_test(test_prove_planted),
      cmocka_unit_test(test_prove_state), cmocka_unit_test(test_trace),
      cmocka_unit_test(test_trace_processes), cmocka_unit_test(test_rank_env)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
