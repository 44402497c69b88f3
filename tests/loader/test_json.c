/* Configurations as text: insitu_loader_open_json and insitu_iter_open_json. What
 * insitu_loader_describe writes opens as the same loader, wrong texts are refused by the name of
 * the member, credentials are never written, and the text is not needed after the call. test_random
 * opens the descriptions of random configurations. */
#include "insitubatch.h"
#include "support.h"

static char root[1024], manifest[1200];
static const struct support_array t = {.name = "t",
                                      .format = 2,
                                      .ndim = 3,
                                      .shape = {40, 4, 6},
                                      .chunk = {5, 4, 6},
                                      .dtype = INSITU_F32,
                                      .dims = "[\"time\",\"y\",\"x\"]"},
                                  time_axis = {.name = "time",
                                      .format = 2,
                                      .ndim = 1,
                                      .shape = {40},
                                      .chunk = {40},
                                      .dtype = INSITU_I64,
                                      .dims = "[\"time\"]",
                                      .attributes = "\"units\":\"days since 1979-01-01\""};
static double days[40];

static int setup(void **state) {
  if (support_setup(state)) return -1;
  for (int i = 0; i < 40; i++) days[i] = i;
  snprintf(root, sizeof root, "%s", support_path("a.zarr"));
  struct support_array dated = time_axis;
  dated.values = days;
  support_make(root, &t);
  support_make(root, &dated);
  snprintf(manifest, sizeof manifest, "%s", support_path("manifest.json"));
  static const char excluded[] = "{\"excluded\": [{\"start\": 3, \"stop\": 5}]}";
  support_write(manifest, excluded, strlen(excluded));
  return 0;
}

/* ---- descriptions ---- */

/* The "config" of a description; the caller frees it. */
static char *config_of(const insitu_loader *ld) {
  uint64_t cap = insitu_loader_describe(ld, NULL, 0) + 4096;
  char *text = malloc(cap);
  assert_non_null(text);
  assert_in_range(insitu_loader_describe(ld, text, cap), 1, cap - 1);
  char *end = strstr(text, "}, \"origins\": {");
  assert_non_null(end);
  memcpy(end, "}}", 3);
  return text;
}

static insitu_loader *open_json(const char *json, const insitu_loader_desc *base) {
  insitu_loader *ld = NULL;
  insitu_error err = {0};
  if (insitu_loader_open_json(json, base, &ld, &err)) fail_msg("%s\n%s", json, err.message);
  return ld;
}

/* What the loader of a desc says of itself opens, with base, as a loader that says the same. The
 * text; the caller frees it. */
static char *round_trip(const insitu_loader_desc *desc, const insitu_loader_desc *base) {
  insitu_loader *ld = open_or_fail(desc);
  char *first = config_of(ld);
  insitu_loader_close(&ld);
  ld = open_json(first, base);
  char *second = config_of(ld);
  insitu_loader_close(&ld);
  assert_string_equal(first, second);
  free(second);
  return first;
}

static insitu_status nothing(
    void *user, insitu_batch *batch, const uint64_t *keys, insitu_error *err) {
  (void)user;
  (void)batch;
  (void)keys;
  (void)err;
  return INSITU_OK;
}

static const insitu_loader_desc quiet = {.api = INSITU_API, .log_level = INSITU_LOG_OFF};

/* Every field that JSON can say. */
static void test_round_trip(void **state) {
  static const int64_t steps[] = {-1, 0, 2}, shape[] = {2, 3};
  static const insitu_slice slices[] = {{.dim = "x", .start = 1, .stop = 5}, {.axis = 1}};
  static const double list[] = {1, -2, 1e30, 0.1}, others[] = {1, 2, 3, 4};
  const insitu_op ops[] = {{.kind = INSITU_OP_REPLACE, .a = -9999, .b = __builtin_nan("")},
      {.kind = INSITU_OP_CLIP, .a = -1.0 / 3, .b = (double)INFINITY},
      {.kind = INSITU_OP_NORM, .dim = "y", .as = list, .bs = others, .n = 4}};
  const insitu_variable vars[] = {
      {.label = "x \"y\"\n", .path = "t", .steps = steps, .n_steps = 3, .dtype = INSITU_BF16},
      {.path = "t", .offset = 1, .slices = slices, .n_slices = 2, .place = INSITU_DEVICE_OR_HOST},
      {.label = "n", .path = "t", .ops = ops, .n_ops = 3, .mask = "gone", .decode = INSITU_CF},
      {.label = "level", .path = "t", .select = "y=[0:2]", .into = "all", .map = INSITU_BY_INDEX},
      {.label = "fixed", .path = "time", .fixed = 1}};
  static const insitu_output outputs[] = {{.label = "wind", .ndim = 2, .shape = shape},
      {.label = "place", .dtype = INSITU_I32, .place = INSITU_DEVICE_OR_HOST, .device = 1}};
  (void)state;
  insitu_variable mapped[5];
  memcpy(mapped, vars, sizeof mapped);
  for (int i = 0; i < 4; i++) mapped[i].map = INSITU_BY_INDEX;
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = root,
      .variables = mapped,
      .n_variables = 5,
      .sample_dim = "time",
      .batch_size = 4,
      .seed = UINT64_MAX,
      .rank = 1,
      .world = 2,
      .block_chunks = 6,
      .unit_chunks = 2,
      .lanes = 2,
      .sample_start = 2,
      .sample_stop = 39,
      .time_path = "time",
      .coordinates = 1,
      .split = {{.fraction = 0.7}, {.fraction = 0.1}, {.fraction = 0.2}},
      .split_shuffled = 1,
      .split_spill = 1,
      .split_gap = 1,
      .manifest = manifest,
      .on_bad_chunk = INSITU_FILL,
      .on_absent_chunk = INSITU_RAISE,
      .prefetch_depth = 5,
      .assembly = INSITU_SCATTER,
      .max_inflight = 7,
      .decode_threads = 2,
      .memory_budget = 1 << 28,
      .device_budget = 1 << 20,
      .cache_dir = "cache",
      .cache_budget = 1 << 20,
      .cache_memory = 1 << 16,
      .io = INSITU_IO_EPOLL,
      .check = 1,
      .receipts = INSITU_RECEIPT_BYTES,
      .hold_epoch = 1,
      .log_level = INSITU_LOG_OFF,
      .on_batch = nothing,
      .on_batch_threads = 1,
      .outputs = outputs,
      .n_outputs = 2};
  insitu_loader_desc base = {.api = INSITU_API, .on_batch = nothing};
  char *text = round_trip(&desc, &base);
  static const char *const says[] = {"\"seed\": 18446744073709551615",
      "\"place\": \"device_or_host\"", "\"device\": 1", "\"with\": \"NaN\"", "\"hi\": \"Infinity\"",
      "\"lo\": -0.333333333333333", "\"op\": \"missing\"", "\"decode\": \"cf\"",
      "\"map\": \"by_index\"", "\"shape\": [2, 3]", "\"log_level\": \"off\"",
      "\"assembly\": \"scatter\"", "\"hold_epoch\": true", "\"plan_only\": false"};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++)
    if (!strstr(text, says[i])) fail_msg("no %s in\n%s", says[i], text);
  insitu_loader *ld;
  insitu_error err;
  assert_int_equal(insitu_loader_open_json(text, NULL, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "on_batch")); /* which JSON cannot say */
  assert_null(ld);
  free(text);
}

/* Dates become indexes, axes and patches stay, and a list of samples is the caller's. */
static void test_round_trip_spaces(void **state) {
  static const insitu_variable v = {.path = "t"};
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 4,
      .inline_io = 1,
      .sample_from = "1979-01-03",
      .sample_to = "1979-02-05",
      .log_level = INSITU_LOG_OFF,
      .split = {{.from = "1979-01-03", .to = "1979-01-20"}, {.from = "1979-01-25"}}};
  (void)state;
  char *text = round_trip(&desc, NULL);
  assert_non_null(strstr(text, "\"sample_start\": 2, \"sample_stop\": 36"));
  free(text);

  const insitu_axis axes[] = {{.dim = "time", .start = 1, .stop = 33, .stride = 3},
      {.dim = "x", .patch = 3, .edge = INSITU_FILL}};
  desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .axes = axes,
      .n_axes = 2,
      .batch_size = 2,
      .plan_only = 1,
      .log_level = INSITU_LOG_OFF};
  free(round_trip(&desc, NULL));
  desc.patches = 5;
  free(round_trip(&desc, NULL));

  static const int64_t samples[] = {4, 7, 1, 30};
  desc = (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = &v,
      .n_variables = 1,
      .samples = samples,
      .n_samples = 4,
      .batch_size = 2,
      .split = {{.fraction = 1}},
      .inline_io = 1,
      .log_level = INSITU_LOG_OFF};
  insitu_loader_desc base = quiet;
  base.samples = samples;
  base.n_samples = 4;
  text = round_trip(&desc, &base);
  insitu_loader *ld;
  insitu_error err;
  base.n_samples = 3;
  assert_int_equal(insitu_loader_open_json(text, &base, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "samples: a description tells how many"));
  free(text);
}

/* A state of one loader goes on in another with the same batch. */
static void go_on(insitu_loader *from, insitu_loader *to) {
  const insitu_iter_desc train = {.api = INSITU_API};
  insitu_iter *one, *other;
  insitu_batch *b, *c;
  insitu_error err;
  assert_int_equal(insitu_iter_open(from, &train, &one, &err), INSITU_OK);
  assert_int_equal(insitu_iter_open(to, &train, &other, &err), INSITU_OK);
  assert_int_equal(insitu_iter_next(one, INSITU_FOREVER, &b, &err), INSITU_OK);
  if (insitu_iter_restore(other, &b->after, &err)) fail_msg("%s", err.message);
  insitu_batch_release(&b);
  assert_int_equal(insitu_iter_next(one, INSITU_FOREVER, &b, &err), INSITU_OK);
  assert_int_equal(insitu_iter_next(other, INSITU_FOREVER, &c, &err), INSITU_OK);
  assert_int_equal(b->index, c->index);
  assert_memory_equal(b->sample_indices, c->sample_indices, b->rows * sizeof *b->sample_indices);
  insitu_batch_release(&b);
  insitu_batch_release(&c);
  insitu_iter_close(&one);
  insitu_iter_close(&other);
}

/* A split of few units has fewer lanes than others, and where the rule chooses, shorter windows.
 * What was described keeps them, by its text and by insitu_loader_config, and so do its states. A
 * number of block_chunks that is not the rule's holds as it is. */
static void test_round_trip_orders(void **state) {
  static const struct support_array many = {
      .name = "t", .format = 2, .ndim = 1, .shape = {200}, .chunk = {1}, .dtype = INSITU_F32};
  static const insitu_variable v = {.path = "t"};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = support_path("many.zarr"),
      .variables = &v,
      .n_variables = 1,
      .batch_size = 32,
      .split = {{.fraction = 0.5}, {.fraction = 0.3}, {.fraction = 0.2}},
      .inline_io = 1,
      .log_level = INSITU_LOG_OFF};
  (void)state;
  support_make(desc.url, &many);
  insitu_loader *ld = open_or_fail(&desc);
  char *text = config_of(ld);
  const insitu_loader_desc *config = insitu_loader_config(ld);
  insitu_loader *again[] = {open_json(text, NULL), open_or_fail(config)};
  insitu_plan plan, other;
  for (int i = 0; i < 2; i++) {
    for (int part = INSITU_TRAIN; part <= INSITU_ALL; part++) {
      const insitu_iter_desc shuffled = {
          .api = INSITU_API, .split = part, .order = INSITU_SHUFFLED};
      assert_int_equal(insitu_loader_plan(ld, &shuffled, &plan, NULL), INSITU_OK);
      assert_int_equal(insitu_loader_plan(again[i], &shuffled, &other, NULL), INSITU_OK);
      assert_int_equal(plan.lanes, other.lanes);
      assert_int_equal(plan.window, other.window);
      assert_true(plan.window * plan.lanes < config->block_chunks); /* it is shorter */
    }
    go_on(ld, again[i]);
    go_on(again[i], ld);
    go_on(again[i], again[i]);
    insitu_loader_close(&again[i]);
  }

  insitu_loader_desc given = desc;
  given.block_chunks = config->block_chunks - 1;
  insitu_loader *longer = open_or_fail(&given);
  const insitu_iter_desc val = {.api = INSITU_API, .split = INSITU_VAL, .order = INSITU_SHUFFLED};
  assert_int_equal(insitu_loader_plan(longer, &val, &other, NULL), INSITU_OK);
  assert_int_equal(other.window, given.block_chunks / other.lanes);
  insitu_loader_close(&longer);
  insitu_loader_close(&ld);
  free(text);
}

/* ---- what a text may say, and what base does ---- */

/* The whole description opens, too; base stands behind the text; the text is not needed then. */
static void test_base(void **state) {
  static const insitu_option options[] = {{"region", "here"}};
  static const insitu_variable v = {.path = "t"};
  const insitu_loader_desc base = {.api = INSITU_API,
      .url = "nowhere",
      .variables = &v,
      .n_variables = 1,
      .batch_size = 3,
      .seed = 5,
      .options = options,
      .n_options = 1,
      .log_level = INSITU_LOG_OFF};
  char json[2048];
  (void)state;
  snprintf(json, sizeof json,
      "{\"url\": \"%s\", \"batch_size\": 5, \"seed\": null, \"memory_budget\": \"256Mi\", "
      "\"inline_io\": 1, \"options\": {\"region\": \"there\", \"max_retries\": 3, \"hedge\": true, "
      "\"secret_access_key\": \"hunter2\", \"proxy_url\": \"http://u:hunter2@proxy\", "
      "\"access_key_id\": \"hunter2\", \"account_name\": \"alice\"}, \"split\": [0.5, 0.5]}",
      root);
  char *text = strdup(json);
  insitu_loader *ld = open_json(text, &base);
  memset(text, 'x', strlen(text));
  free(text);
  const insitu_loader_desc *c = insitu_loader_config(ld);
  assert_int_equal(c->batch_size, 5);
  assert_int_equal(c->seed, 5);
  assert_int_equal(c->memory_budget, 256 << 20);
  assert_int_equal(c->n_options, 8);
  assert_string_equal(c->options[0].value, "here");
  assert_string_equal(c->options[1].value, "there"); /* it counts, since it is the last */
  assert_string_equal(c->variables[0].path, "t");
  assert_true(c->split[1].fraction == 0.5 && c->split[2].fraction == 0);
  uint64_t n = insitu_loader_describe(ld, NULL, 0) + 1000;
  text = malloc(n);
  insitu_loader_describe(ld, text, n);
  assert_null(strstr(text, "hunter2"));
  assert_null(strstr(text, "here\", \"options"));
  assert_non_null(strstr(text, "\"options\": {\"region\": \"there\", \"max_retries\": \"3\", "
                               "\"hedge\": \"true\", \"account_name\": \"alice\"}"));
  insitu_loader_close(&ld);
  ld = open_json(text, NULL);
  assert_int_equal(insitu_loader_config(ld)->seed, 5);
  insitu_loader_close(&ld);
  free(text);

  snprintf(json, sizeof json,
      "{\"url\": \"%s\", \"variables\": [\"t\"], \"samples\": [3, 9, [4]], \"split\": [1], "
      "\"batch_size\": 1, \"inline_io\": true}",
      root);
  ld = open_json(json, &quiet);
  insitu_plan plan;
  assert_int_equal(insitu_loader_plan(ld, &(insitu_iter_desc){.api = INSITU_API}, &plan, NULL), 0);
  assert_int_equal(plan.samples, 3);
  insitu_loader_close(&ld);
  support_write(support_path("list.txt"), "# first\n3\n 9 # late\n", 20);
  snprintf(json, sizeof json,
      "{\"url\": \"%s\", \"variables\": [\"t\"], \"samples\": \"%s\", \"split\": [1], "
      "\"batch_size\": 1, \"inline_io\": true}",
      root, support_path("list.txt"));
  ld = open_json(json, &quiet);
  assert_int_equal(insitu_loader_plan(ld, &(insitu_iter_desc){.api = INSITU_API}, &plan, NULL), 0);
  assert_int_equal(plan.samples, 2);
  insitu_loader_close(&ld);
  insitu_error err;
  support_write(support_path("list.txt"), "3\n4\0 5\n", 7); /* 4 alone would be another list */
  assert_int_equal(insitu_loader_open_json(json, &quiet, &ld, &err), INSITU_E_ARG);
  assert_non_null(strstr(err.message, "line 2: a sample is not all whole numbers"));
}

/* Every wrong text is refused by the name of what is wrong. */
static void test_refused(void **state) {
  static const struct {
    const char *json, *says;
    insitu_status status;
  } wrong[] = {{"{\"url\": ", "configuration, line 1, column 9: not JSON", INSITU_E_JSON},
      {"[1]", "configuration: '[1]' does not fit; give an object", INSITU_E_ARG},
      {"{}", "url is empty", INSITU_E_ARG},
      {"{\"batchsize\": 1}", "no member \"batchsize\"; did you mean \"batch_size\"?", INSITU_E_ARG},
      {"{\"zzzzzzz\": 1}", "no member \"zzzzzzz\"; see the manual", INSITU_E_ARG},
      {"{\"config\": {\"sed\": 1}}", "did you mean \"seed\"?", INSITU_E_ARG},
      {"{\"seed\": 1, \"seed\": 2}", "seed: it stands twice", INSITU_E_ARG},
      {"{\"seed\": -1}", "seed: '-1' does not fit; give a whole number from 0 on", INSITU_E_ARG},
      {"{\"seed\": 1.5}", "seed: '1.5'", INSITU_E_ARG},
      {"{\"seed\": 18446744073709551616}", "seed: '18446744073709551616'", INSITU_E_ARG},
      {"{\"batch_size\": \"16Xi\"}",
          "batch_size: '\"16Xi\"' does not fit; give a whole number from 0 on, as in 64, \"64k\"",
          INSITU_E_ARG},
      {"{\"rank\": 2147483648}", "rank: '2147483648'", INSITU_E_ARG},
      {"{\"sample_start\": true}", "sample_start: 'true' does not fit; give a whole number",
          INSITU_E_ARG},
      {"{\"coordinates\": \"yes\"}", "coordinates: '\"yes\"' does not fit; give true or false",
          INSITU_E_ARG},
      {"{\"coordinates\": 2}", "coordinates: '2' does not fit; give true or false", INSITU_E_ARG},
      {"{\"url\": 3}", "url: '3' does not fit; give a string", INSITU_E_ARG},
      {"{\"url\": \"a\\u0000b\"}", "url: a string holds U+0000", INSITU_E_ARG},
      {"{\"on_bad_chunk\": \"skip\"}", "give \"auto\", \"raise\" or \"fill\"", INSITU_E_ARG},
      {"{\"log_level\": 2}", "give \"auto\", \"error\", \"warn\", \"info\", \"debug\" or \"off\"",
          INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"steps\": [1, 2.5]}]}",
          "variables[0].steps: '2.5' does not fit; give whole numbers", INSITU_E_ARG},
      {"{\"variables\": [\"a\", {\"path\": \"t\", \"dtype\": \"f4\"}]}",
          "variables[1].dtype: '\"f4\"' does not fit; give \"as_stored\"", INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"place\": \"gpu\"}]}",
          "give \"host\", \"pinned\", \"device\" or \"device_or_host\"", INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"map\": \"\"}]}",
          "give \"by_index\", \"by_index_floor\" or", INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"ops\": [{\"op\": \"norm\", \"mean\": [1, 2], "
       "\"std\": [1]}]}]}",
          "variables[0].ops[0].std: '[1]' does not fit; give a number, or a list as long",
          INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"ops\": [{\"op\": \"fill\", \"wit\": 0}]}]}",
          "did you mean \"with\"?", INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"slices\": [{\"dim\": null, \"start\": 1}]}]}",
          "variables[0].slices[0]: it needs a \"dim\" or an \"axis\"", INSITU_E_ARG},
      {"{\"variables\": [{\"path\": \"t\", \"slices\": [{\"axis\": null, \"start\": 1}]}]}",
          "variables[0].slices[0]: it needs a \"dim\" or an \"axis\"", INSITU_E_ARG},
      {"{\"axes\": [{\"axis\": null}]}", "axes[0]: it needs a \"dim\" or an \"axis\"",
          INSITU_E_ARG},
      {"{\"outputs\": [{\"shape\": 3}]}", "outputs[0].shape: '3' does not fit; give a list",
          INSITU_E_ARG},
      {"{\"axes\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}", "axes: it has 9 elements; give at most 8",
          INSITU_E_ARG},
      {"{\"split\": [1, 2, 3, 4]}", "split: '[1, 2, 3, 4]' does not fit; give a list of at most",
          INSITU_E_ARG},
      {"{\"split\": [\"all\"]}", "split[0]: '\"all\"' does not fit; give an object", INSITU_E_ARG},
      {"{\"options\": {\"region\": [\"hunter2\"]}}", "options.region: give a number, a word",
          INSITU_E_ARG},
      {"{\"samples\": []}", "give at least one sample", INSITU_E_ARG},
      {"{\"samples\": [[1, 2], [3]]}", "samples[1]: '[3]'", INSITU_E_ARG},
      {"{\"samples\": [[1, 2]]}", "samples: a sample has 2 numbers; give 1", INSITU_E_ARG},
      {"{\"samples\": \"/nothing/at/all\"}", "samples: /nothing/at/all: No such file",
          INSITU_E_NOTFOUND},
      {"{\"iterator\": {\"split\": \"dev\"}}",
          "iterator.split: '\"dev\"' does not fit; give \"train\", \"val\", \"test\" or \"all\"",
          INSITU_E_ARG}};
  insitu_loader *ld;
  insitu_error err;
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    insitu_status status = insitu_loader_open_json(wrong[i].json, &quiet, &ld, &err);
    if (status != wrong[i].status || !strstr(err.message, wrong[i].says) || ld)
      fail_msg("%s\n%d %s", wrong[i].json, (int)status, err.message);
  }
  assert_int_equal(insitu_loader_open_json(NULL, NULL, &ld, &err), INSITU_E_ARG);
  assert_int_equal(insitu_loader_open_json("{}", NULL, NULL, NULL), INSITU_E_ARG);
  insitu_loader_desc old = {.api = INSITU_API - 1};
  assert_int_equal(insitu_loader_open_json("{}", &old, &ld, &err), INSITU_E_API);
}

/* ---- iterators ---- */

static void test_iterators(void **state) {
  char json[2048];
  insitu_error err;
  insitu_iter *it;
  insitu_batch *b = NULL;
  (void)state;
  snprintf(json, sizeof json,
      "{\"url\": \"%s\", \"variables\": [\"t\"], \"batch_size\": 4, \"inline_io\": true, "
      "\"iterator\": {\"split\": \"all\", \"order\": \"sequential\", \"epoch\": 3}}",
      root);
  insitu_loader *ld = open_json(json, &quiet);
  const insitu_iter_desc from_9 = {.api = INSITU_API, .split = INSITU_ALL, .epoch = 9};
  const struct {
    const char *json;
    const insitu_iter_desc *base;
    uint64_t epoch, rows;
    bool first; /* the first batch begins with sample 0 */
  } good[] = {{json, NULL, 3, 4, true}, {NULL, &from_9, 9, 4, true},
      {"{\"epoch\": 2}", &from_9, 2, 4, true},
      {"{\"split\": \"train\", \"max_held\": 3}", NULL, 0, 4, false},
      {"{\"iterator\": {\"split\": \"all\"}}", NULL, 0, 4, true}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    if (insitu_iter_open_json(ld, good[i].json, good[i].base, &it, &err))
      fail_msg("%s", err.message);
    assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_OK);
    assert_int_equal(b->epoch, good[i].epoch);
    assert_int_equal(b->rows, good[i].rows);
    if (good[i].first) assert_int_equal(b->sample_indices[0], 0);
    insitu_batch_release(&b);
    insitu_iter_close(&it);
  }
  static const struct {
    const char *json, *says;
  } wrong[] = {{"{\"splt\": 1}", "no member \"splt\"; did you mean \"split\"?"},
      {"{\"iterator\": {\"max_held\": -1}}", "iterator.max_held: '-1'"},
      {"{\"url\": \"x\"}", "no member \"url\""}, {"{\"order\": 1}", "give \"auto\", \"shuffled\""},
      {"{\"epoch\": 1048576}", "epoch 1048576"}, {"3", "give an object"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(insitu_iter_open_json(ld, wrong[i].json, NULL, &it, &err), INSITU_E_ARG);
    if (!strstr(err.message, wrong[i].says)) fail_msg("%s: %s", wrong[i].json, err.message);
    assert_null(it);
  }
  assert_int_equal(insitu_iter_open_json(ld, "{", NULL, &it, &err), INSITU_E_JSON);
  const insitu_iter_desc old = {.api = INSITU_API + 1};
  assert_int_equal(insitu_iter_open_json(ld, "{}", &old, &it, &err), INSITU_E_API);
  assert_int_equal(insitu_iter_open_json(NULL, "{}", NULL, &it, &err), INSITU_E_ARG);
  insitu_loader_close(&ld);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_round_trip_spaces), cmocka_unit_test(test_round_trip_orders),
      cmocka_unit_test(test_base), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_iterators)};
  return cmocka_run_group_tests(tests, setup, support_teardown);
}
