/* The command insitu: mk, plan, cat, bench, and the configurations they share. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "run_tool.h"

/* ---- what mk --data index writes ---- */

static void put_scalar(unsigned char *to, int32_t dtype, uint64_t v) {
  if (dtype == INSITU_BOOL) *to = v & 1;
  else if (dtype == INSITU_F16) support_put(to, dtype, false, (double)(v % 2048));
  else if (dtype == INSITU_F32) memcpy(to, &(float){(float)(v % (1 << 24))}, 4);
  else if (dtype == INSITU_F64) memcpy(to, &(double){(double)(v % (UINT64_C(1) << 53))}, 8);
  else memcpy(to, &v, (size_t)(dtype & 0xff) / 8); /* little-endian machines */
}
static void put_index(unsigned char *to, int32_t dtype, uint64_t flat) {
  int32_t half = dtype == INSITU_C64 ? INSITU_F32 : INSITU_F64;
  if (dtype >> 8 != 5) put_scalar(to, dtype, flat);
  else {
    put_scalar(to, half, flat);
    put_scalar(to + (dtype & 0xff) / 16, half, flat + 1);
  }
}
/* Reads array `path` of `url` in sequence and compares it; absent chunks (every element `fill`) are
 * counted in *holes. */
static void check_index(
    const char *url, const char *path, int32_t dtype, const unsigned char *fill, uint64_t *holes) {
  insitu_variable v = {.label = "it", .path = path};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 7,
      .inline_io = 1,
      .on_absent_chunk = INSITU_FILL};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  uint64_t flat = 0;
  size_t item = (size_t)(dtype & 0xff) / 8;
  insitu_status s = insitu_loader_open(&d, &ld, &err);
  if (s) fail_msg("%s: %s", url, err.message);
  assert_int_equal(
      insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
      INSITU_OK);
  while ((s = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    assert_int_equal(b->arrays[0].dtype, dtype);
    const unsigned char *p = b->arrays[0].data;
    for (uint64_t k = 0; k < b->arrays[0].bytes / item; k++, flat++, p += item) {
      unsigned char want[16];
      put_index(want, dtype, flat);
      if (memcmp(p, want, item) == 0) continue;
      if (memcmp(p, fill, item))
        fail_msg("%s: element %d is neither its index nor the fill value", url, (int)flat);
      ++*holes;
    }
    insitu_batch_release(&b);
  }
  if (s != INSITU_END) fail_msg("%s: %s", url, err.message);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}

static const struct {
  const char *name;
  int32_t dtype;
} dtypes[] = {{"bool", INSITU_BOOL}, {"int8", INSITU_I8}, {"int16", INSITU_I16},
    {"int32", INSITU_I32}, {"int64", INSITU_I64}, {"uint8", INSITU_U8}, {"uint16", INSITU_U16},
    {"uint32", INSITU_U32}, {"uint64", INSITU_U64}, {"float16", INSITU_F16},
    {"float32", INSITU_F32}, {"float64", INSITU_F64}, {"complex64", INSITU_C64},
    {"complex128", INSITU_C128}};

/* Every dtype, each with another format, byte order, order, codec and separator: what the library
 * reads is what was meant. */
static void test_mk_index(void **state) {
  static const char *const codecs[] = {"raw", "zstd:3", "lz4", "gzip", "zlib:9", "blosc",
      "blosc:zstd:bitshuffle", "blosc:zlib:noshuffle:1"};
  const unsigned char zero[16] = {0};
  (void)state;
  for (int i = 0; i < 4 * (int)(sizeof dtypes / sizeof *dtypes); i++) {
    int k = i % (int)(sizeof dtypes / sizeof *dtypes), format = 2 + i % 2;
    uint64_t holes = 0;
    const char *dir = support_path("index.zarr");
    int code = run_tool("mk %s -f --data index --name g/x,y --format %d --dtype %s --shape 23,5,11 "
                        "--chunks 4,3,11 --endian %s --order %s "
                        "--codec %s --separator %s %s %s",
        dir, format, dtypes[k].name, i % 3 ? "big" : "little", i % 5 < 2 ? "F" : "C", codecs[i % 8],
        i % 7 < 3 ? "/" : ".", i % 4 < 2 ? "--consolidated" : "",
        format == 3 && i % 3 == 0 ? "--crc32c" : "");
    if (code) fail_msg("%s", run_err);
    check_index(dir, i % 2 ? "y" : "g/x", dtypes[k].dtype, zero, &holes);
    assert_int_equal(holes, 0);
  }
}
static void test_mk_absent(void **state) {
  const unsigned char fill[4] = {0xf9, 0xff, 0xff, 0xff}; /* -7 */
  uint64_t holes = 0, none = 0;
  (void)state;
  const char *dir = support_path("absent.zarr");
  assert_int_equal(run_tool("mk %s --dtype int32 --data index --shape 400,3 --chunks 2,3 --absent "
                            "0.25 --fill=-7 --seed 3",
                       dir),
      0);
  check_index(dir, "u", INSITU_I32, fill, &holes);
  assert_in_range(holes, 6 * 25, 6 * 75); /* 200 chunks of 6 elements */
  assert_int_equal(run_tool("mk %s -f --dtype int32 --data index --shape 400,3 --chunks 2,3 "
                            "--absent 0.25 --fill=-7 --seed 3",
                       dir),
      0);
  check_index(dir, "u", INSITU_I32, fill, &none);
  assert_int_equal(none, holes); /* the same seed: the same holes */
}
/* The shard at 1/0 of 8 x 6 elements in inner chunks of 2 x 3, raw: each entry of its index names
 * the chunk's elements. */
static void check_shard(const char *dir, bool start, bool crc, bool shuffled) {
  char path[600];
  snprintf(path, sizeof path, "%s/u/c/1/0", dir);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  unsigned char bytes[4096];
  size_t n = fread(bytes, 1, sizeof bytes, f), table = 16 * 8 + (crc ? 4 : 0), covered = table;
  fclose(f);
  assert_in_range(n, table + 8 * 24, sizeof bytes - 1);
  const unsigned char *index = start ? bytes : bytes + n - table;
  if (crc) assert_int_equal(insitu__base_load32(index + 128), insitu__comp_crc32c(index, 128));
  bool ascending = true;
  for (uint64_t i = 0; i < 8; i++) {
    uint64_t offset = insitu__base_load64(index + 16 * i),
             length = insitu__base_load64(index + 16 * i + 8);
    assert_int_equal(length, 24);
    assert_true(offset + length <= n);
    if (i) ascending = ascending && offset > insitu__base_load64(index + 16 * i - 16);
    for (uint64_t k = 0; k < 6; k++) {
      uint64_t y = 8 + i / 2 * 2 + k / 3, x = i % 2 * 3 + k % 3;
      assert_int_equal(insitu__base_load32(bytes + offset + 4 * k), y * 6 + x);
    }
    covered += length;
  }
  assert_int_equal(ascending, !shuffled);
  assert_int_equal(covered < n, shuffled); /* gaps */
}
static void test_mk_shards(void **state) {
  (void)state;
  const char *dir = support_path("shards.zarr");
  for (int i = 0; i < 8; i++) {
    int code = run_tool("mk %s -f --dtype int32 --data index --shape 20,6 --chunks 2,3 --shards "
                        "8,6 --codec raw --index %s --index-crc %s %s",
        dir, i & 1 ? "start" : "end", i & 2 ? "yes" : "no", i & 4 ? "--shuffle-inner" : "");
    if (code) fail_msg("%s", run_err);
    check_shard(dir, i & 1, i & 2, i & 4);
  }
}
/* The data does not depend on chunks, codec or format, and is no constant. */
static void test_mk_weather(void **state) {
  static const char *const how[] = {"--format 2 --chunks 5,8,16 --codec raw",
      "--format 3 --chunks 2,3,5 --codec blosc --order F --endian big"};
  char first[300];
  (void)state;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(
        run_tool("mk %s -f --shape 10,16,32 --seed 5 %s", support_path("w.zarr"), how[i]), 0);
    assert_int_equal(run_tool("cat %s u --slice time=7:8,lat=3:6,lon=13:15 --text --precision full",
                         support_path("w.zarr")),
        0);
    if (i) assert_string_equal(run_out, first);
    snprintf(first, sizeof first, "%s", run_out);
  }
  assert_int_equal(run_tool("cat %s u --slice time=8:9,lat=3:6,lon=13:15 --text --precision full",
                       support_path("w.zarr")),
      0);
  assert_string_not_equal(run_out, first);
}
static void test_mk_coordinates(void **state) {
  (void)state;
  const char *dir = support_path("coords.zarr");
  assert_int_equal(run_tool("mk %s --name a/u --shape 4,3,5,8 --dims time,level,lat,lon", dir), 0);
  assert_int_equal(run_tool("cat %s a/time --text", dir), 0);
  assert_string_equal(run_out, "[ 0  6 12 18]\n");
  assert_int_equal(run_tool("cat %s a/lat --text", dir), 0);
  assert_string_equal(run_out, "[ 72  36   0 -36 -72]\n");
  assert_int_equal(run_tool("cat %s a/lon --text", dir), 0);
  assert_string_equal(run_out, "[  0  45  90 135 180 225 270 315]\n");
  assert_int_equal(run_tool("cat %s a/level --text", dir), 0);
  assert_string_equal(run_out, "[0 1 2]\n");
  assert_int_equal(run_tool("mk %s -f --no-coords", dir), 0);
  assert_int_equal(run_tool("cat %s time", dir), 1);
}
static void test_mk_wrong(void **state) {
  static const struct {
    const char *arguments, *says;
  } wrong[] = {{"--shape 10,x", "positive whole numbers"},
      {"--shape 10,0", "positive whole numbers"},
      {"--shape 18446744073709551615,2", "--shape 18446744073709551615,2: more than an array"},
      {"--shape 4294967296,4294967296,4", "more than an array can have"},
      {"--shape 10,10 --chunks 5", "--chunks has 1 numbers and --shape has 2"},
      {"--codec zstandart", "'zstandart' is unknown"}, {"--codec blosc:lz5", "did you mean 'lz4'?"},
      {"--codec zstd:40", "the level must be 1 to 22"}, {"--codec raw:1", "too many parts"},
      {"--dtype float23", "did you mean 'float16'?"}, {"--format 4", "'4' is unknown"},
      {"--format 2 --shards 8,45,90", "needs --format 3"},
      {"--shards 9,45,90", "no multiple of the inner chunk's 8"},
      {"--index start", "need --shards"}, {"--format 2 --crc32c", "needs --format 3"},
      {"--name a,a", "is there twice"}, {"--name ../a", "no path of an array"},
      {"--name a,,b", "an entry is empty"},
      {"--dtype int8 --fill 300", "--fill 300: no value of this dtype"}, {"--fill x", "no value"},
      {"--absent 2", "from 0 to 1"}, {"--absent x", "from 0 to 1"},
      {"--data weather --dtype int8", "needs a float dtype"},
      {"--shape 10,10 --dims a", "--dims has 1 names"}, {"--shap 3", "did you mean --shape?"},
      {"--shape 4000000,4000000 --chunks 4000000,4000000", "larger than INSITU__MAX_CHUNK"}};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int code = run_tool("mk %s %s", support_path("wrong.zarr"), wrong[i].arguments);
    if (code != 2) fail_msg("%s: exit status %d\n%s", wrong[i].arguments, code, run_err);
    assert_has(run_err, wrong[i].says);
    assert_int_equal(access(support_path("wrong.zarr"), F_OK), -1); /* nothing was made */
  }
  assert_int_equal(run_tool("mk"), 2);
  assert_int_equal(run_tool("mk %s/run.out/x", support_dir), 1); /* below a file */
}
static void test_mk_force(void **state) {
  (void)state;
  const char *dir = support_path("force");
  support_write(support_path("force/precious"), "x", 1);
  assert_int_equal(run_tool("mk %s --force", dir), 1); /* no archive: never touched */
  assert_has(run_err, "other files and no Zarr archive");
  assert_int_equal(access(support_path("force/precious"), F_OK), 0);
  dir = support_path("again.zarr");
  assert_int_equal(run_tool("mk %s --name old --shape 4,4", dir), 0);
  assert_int_equal(run_tool("mk %s --name new --shape 4,4", dir), 1);
  assert_has(run_err, "--force replaces it");
  assert_int_equal(run_tool("mk %s --name new --shape 4,4 --force", dir), 0);
  assert_int_equal(access(support_path("again.zarr/old"), F_OK), -1);
  assert_int_equal(access(support_path("again.zarr/new/zarr.json"), F_OK), 0);
}

/* Starts mk in a child with more to write than it can in the time of this test, and ends it by a
 * signal when it has begun. Returns the signal that ended the child. */
static int end_mk(const char *dir, int number) {
  char tool[600], began[700];
  struct stat info;
  int status, quiet = open("/dev/null", O_WRONLY);
  ssize_t n = readlink("/proc/self/exe", tool, sizeof tool - 20);
  assert_true(n > 0 && quiet >= 0);
  tool[n] = 0;
  strcpy(strrchr(tool, '/'), "/linked/insitu");
  snprintf(began, sizeof began, "%s/u", dir);
  pid_t child = fork();
  if (child == 0) {
    signal(number, SIG_DFL);
    dup2(quiet, 2);
    execl(tool, tool, "mk", dir, "--shape", "1000000,90,180", "--chunks", "1,90,180", (char *)NULL);
    _exit(99);
  }
  close(quiet);
  assert_true(child > 0);
  while (stat(began, &info) && waitpid(child, &status, WNOHANG) == 0) usleep(1000);
  kill(child, number);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  return WTERMSIG(status);
}
static void test_mk_ended(void **state) {
  (void)state;
  char dir[600];
  snprintf(dir, sizeof dir, "%s", support_path("ended.zarr"));
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    assert_int_equal(end_mk(dir, numbers[i]), numbers[i]);
    assert_int_equal(access(dir, F_OK), -1); /* all is removed */
  }

  /* a folder that was there before stays, empty */
  assert_int_equal(mkdir(dir, 0777), 0);
  assert_int_equal(end_mk(dir, SIGINT), SIGINT);
  assert_int_equal(rmdir(dir), 0);

  /* a signal that cannot be caught: what is left is told from other files, and may be replaced */
  assert_int_equal(end_mk(dir, SIGKILL), SIGKILL);
  assert_int_equal(run_tool("mk %s --shape 4,4", dir), 1);
  assert_has(run_err, "part of an archive, from a run that was ended; --force replaces it");
  assert_int_equal(run_tool("mk %s --shape 4,4 --force", dir), 0);
  assert_int_equal(run_tool("info %s", dir), 0);
  assert_int_equal(run_tool("mk %s --shape 4,4", dir), 1);
  assert_has(run_err, "there is an archive already");

  /* a run that failed */
  snprintf(dir, sizeof dir, "%s", support_path("full.zarr"));
  assert_int_equal(
      run_tool_with("ulimit -f 40;", "mk %s --codec raw --shape 64,64,64 --chunks 64,64,64", dir),
      1);
  assert_has(run_err, "File too large");
  assert_int_equal(access(dir, F_OK), -1);
}

/* ---- plan and configurations ---- */

static struct insitu__text_json doc;
static int get(int object, const char *key) {
  int token = insitu__text_json_get(&doc, object, key);
  if (token < 0) fail_msg("no key '%s' in:\n%s", key, run_out);
  return token;
}
static uint64_t number(int object, const char *key) {
  uint64_t value = 0;
  if (!insitu__text_json_u64(&doc, get(object, key), &value))
    fail_msg("'%s' is no whole number in:\n%s", key, run_out);
  return value;
}
static void parse(void) {
  insitu_error err = {0};
  insitu__text_json_free(&doc);
  if (insitu__text_json_parse(&doc, run_out, strlen(run_out), "stdout", &err))
    fail_msg("%s\n%s", err.message, run_out);
}
static const char *archive(void) { /* 200 samples in chunks of 4, made once */
  const char *dir = support_path("t.zarr");
  if (access(dir, F_OK))
    assert_int_equal(
        run_tool(
            "mk %s --name t,u --shape 200,6,5 --chunks 4,6,5 --dtype float32 --data index", dir),
        0);
  return dir;
}

static void test_plan(void **state) {
  (void)state;
  const char *dir = archive();
  assert_int_equal(run_tool("plan %s --var t,u --batch-size 8 --split train --json", dir), 0);
  parse();
  int train = get(get(0, "splits"), "train");
  assert_int_equal(number(train, "samples"), 160);
  assert_int_equal(number(train, "batches"), 20);
  assert_int_equal(number(train, "distinct"), 80);
  assert_int_equal(number(train, "memory_bytes"),
      number(train, "ring_bytes") + number(train, "table_bytes") + number(train, "inflight_bytes"));
  assert_int_equal(insitu__text_json_get(&doc, get(0, "splits"), "val"), -1);
  assert_int_equal(insitu__text_json_size(&doc, get(0, "arrays")), 2);
  assert_int_equal(run_tool("plan %s", dir), 0); /* all arrays of the longest axis, and says so */
  assert_has(run_err, "(--var chooses): t, u");
  assert_has(run_out, "t                (32, 6, 5) float32");
  assert_has(run_out, "together");
  assert_int_equal(
      /* not shuffled: short batches are fine */
      run_tool("plan %s -q --var t --batch-size 150 --split val", dir), 0);
  assert_int_equal(run_tool("plan %s -q --var t --batch-size 170 --split train", dir), 1);
  assert_has(run_err, "split train: 160 samples can be drawn");
}
static void test_plan_hints(void **state) {
  (void)state;
  const char *dir = archive();
  assert_int_equal(
      run_tool("plan %s --var x=t,y=t@4 --unit-chunks 1 --batch-size 8 --split train", dir), 0);
  assert_has(run_out, "unit_chunks ");
  assert_has(run_out, "because windows reach beyond their chunks");
  assert_int_equal(
      run_tool("plan %s --var t --batch-size 8 --block-chunks 1 --split train", dir), 0);
  assert_has(run_out, "times as much as by an ideal shuffle. block_chunks ");
  const char *job =
      "--var t --batch-size 32 --max-inflight 1 --decode-threads 1 --split train --json";
  assert_int_equal(run_tool("plan %s %s --prefetch-depth 64", dir, job), 0);
  parse();
  unsigned long budget = number(get(get(0, "splits"), "train"), "memory_bytes") - 1;
  /* refused at open */
  assert_int_equal(
      run_tool("plan %s %s --prefetch-depth 64 --memory-budget %lu", dir, job, budget), 3);
  assert_has(run_out, "so opening it will be refused. prefetch_depth ");
  int depth = atoi(strstr(run_out, "refused. prefetch_depth ") + 24);
  assert_in_range(depth, 4, 63);
  assert_int_equal(
      run_tool("plan %s %s --prefetch-depth %d --memory-budget %lu", dir, job, depth, budget), 0);
  assert_null(strstr(run_out, "refused")); /* what it says helps */
  assert_int_equal(run_tool("plan %s --var t --batch-size 8 --split train --json", dir), 0);
  parse();
  assert_int_equal(insitu__text_json_size(&doc, get(0, "hints")), 0);
}
/* Fixed variables by an option and in a file: what narrows and converts the others leaves them. */
static void test_fixed(void **state) {
  char text[700];
  (void)state;
  const char *dir = archive();
  assert_int_equal(run_tool("plan %s --var x=t --fixed f=t,t --slice 1=1:3 --dtype float64 "
                            "--batch-size 4 --split all --json",
                       dir),
      0);
  char *option = strdup(run_out);
  assert_has(run_out, "\"shape\": [4, 2, 5]");
  assert_has(run_out, "\"name\": \"f\"");
  assert_has(run_out, ", 6, 5],");
  assert_has(run_out, "\"fixed\": true");
  assert_has(run_out, "\"fixed_bytes\": ");
  assert_true(!strstr(run_out, "\"fixed_bytes\": 0"));
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"variables\": [{\"label\": \"x\", \"path\": \"t\"}, {\"label\": \"f\", "
      "\"path\": \"t\", \"fixed\": true}, {\"path\": \"t\", \"fixed\": 1}], \"batch_size\": 4}",
      dir);
  support_write(support_path("fixed.json"), text, strlen(text));
  assert_int_equal(run_tool("plan -c %s --slice 1=1:3 --dtype float64 --split all --json",
                       support_path("fixed.json")),
      0);
  assert_string_equal(run_out, option);
  free(option);
  assert_int_equal(run_tool("plan -c %s", support_path("fixed.json")), 0);
  assert_has(run_out, "of t, fixed");
  assert_has(run_out, "fixed arrays, of the loader");
  assert_int_equal(run_tool("cat %s --var x=t --fixed f=t --batch 0,0 --array f --json", dir), 0);
  assert_int_equal(run_tool("plan %s --var x=t --fixed f=t@1", dir), 2);
  assert_has(run_err, "--fixed: 'f=t@1' is not LABEL[=PATH]");
  assert_int_equal(run_tool("plan %s --var x=t --fixed f=nothing", dir), 1);
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"variables\": [{\"path\": \"t\", \"fixed\": \"maybe\"}]}", dir);
  support_write(support_path("fixed.json"), text, strlen(text));
  assert_int_equal(run_tool("plan -c %s", support_path("fixed.json")), 2);
  assert_has(run_err, "give true or false");
}
/* A file, the same file as insitu_loader_describe wraps it, and options give the same plan. */
static void test_config(void **state) {
  char text[2000], *first;
  (void)state;
  const char *dir = archive();
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"variables\": [{\"label\": \"x\", \"path\": \"t\", \"dtype\": "
      "\"float64\", \"slices\": [{\"axis\": 1, "
      "\"start\": 1, \"stop\": 3}], \"map\": \"by_index\"}, "
      "{\"label\": \"y\", \"path\": \"t\", \"offset\": 2, \"steps\": "
      "[0, -1], \"map\": \"by_index\"}], \"batch_size\": 4, "
      "\"block_chunks\": 16, \"split\": [0.5, {\"fraction\": 0.5}], \"split_shuffled\": true, "
      "\"seed\": 9, \"sample_dim\": null, "
      "\"memory_budget\": \"1Gi\", \"on_absent_chunk\": \"fill\", \"io\": \"auto\", "
      "\"iterator\": {\"split\": \"val\", \"order\": \"shuffled\"}}",
      dir);
  support_write(support_path("config.json"), text, strlen(text));
  assert_int_equal(run_tool("plan --config %s --json", support_path("config.json")), 0);
  first = strdup(run_out);
  assert_has(first, "\"shape\": [4, 2, 5]");
  assert_has(first, "\"shape\": [4, 2, 6, 5]");
  char wrapped[2200];
  snprintf(wrapped, sizeof wrapped, "{\"origins\": {}, \"config\": %s}", text);
  support_write(support_path("wrapped.json"), wrapped, strlen(wrapped));
  assert_int_equal(run_tool("plan -c -"), 1); /* standard input, which is empty */
  assert_int_equal(run_tool("plan -c %s --json", support_path("wrapped.json")), 0);
  assert_string_equal(run_out, first);
  free(first);
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"batch_size\": 4, \"variables\": [{\"label\": \"x\", \"path\": \"t\", "
      "\"ops\": [{\"op\": \"clip\", \"lo\": -1, \"hi\": \"Infinity\"}, {\"op\": \"shift\", "
      "\"dim\": \"lon\", \"by\": [1, 2, 3, 4, 5]}], \"mask\": \"gone\"}]}",
      dir);
  const char *ops = support_path("ops.json");
  support_write(ops, text, strlen(text));
  assert_int_equal(run_tool("plan -c %s --json", ops), 0);
  assert_has(run_out, "\"name\": \"gone\"");
  assert_int_equal(run_tool("plan -c %s --ops norm=1:0", ops), 1);
  assert_has(run_err, "ops[0] (norm): the standard deviation");
  assert_int_equal(run_tool("plan -c %s --ops norm=1:2,log", ops), 2);
  assert_has(run_err, "--ops: 'log' is not");
  /* options override */
  assert_int_equal(
      run_tool("plan -c %s --json --batch-size 5 --var x=t", support_path("config.json")), 0);
  assert_has(run_out, "\"shape\": [5, 6, 5]");
  assert_int_equal(run_tool("plan %s --var x=t,y=t@2 --dtype float64 --slice 1=1:3 --batch-size 4 "
                            "--fractions 0.5,0.5,0 --json",
                       dir),
      0);
  assert_has(run_out, "\"shape\": [4, 2, 5]");
  assert_has(run_out, "\"dtype\": \"float64\"");
  assert_int_equal(
      run_tool("plan %s --var x=t --dtype bfloat16 --slice 1=1:3 --batch-size 4 --json", dir), 0);
  assert_has(run_out, "\"dtype\": \"bfloat16\"");
  assert_int_equal(run_tool("plan %s --var x=t --dtype byte --json", dir), 2);
  assert_has(run_err, "--dtype byte: give");
  assert_int_equal(
      run_tool("plan %s --var a=t@-2:2,b=t@0:9:4,c=t@6/12/24,d=u@-3 --batch-size 4 --json", dir),
      0);
  assert_has(run_out, "\"shape\": [4, 4, 6, 5]");
  parse();
  /* d looks 3 back, c 24 ahead */
  assert_int_equal(number(get(get(get(0, "splits"), "all"), "dropped"), "archive_edge"), 3 + 24);
  static const char *const wrong_steps[] = {
      "t@", "t@1:", "t@3:1", "t@0:9:0", "t@0:9:1:1", "t@1/", "t@1/x", "t@0:99999999", "@1", "=t"};
  for (size_t i = 0; i < sizeof wrong_steps / sizeof *wrong_steps; i++) {
    if (run_tool("plan %s --var %s", dir, wrong_steps[i]) != 2)
      fail_msg("--var %s: not refused", wrong_steps[i]);
    assert_has(run_err, "@FIRST:STOP[:STRIDE]");
  }
  assert_int_equal(
      run_tool("plan %s --var t --batch-size 4 --ranges 0:40,40:60,60:200 --json", dir), 0);
  parse();
  assert_int_equal(number(get(get(0, "splits"), "test"), "samples"), 140);
}
/* Several axes of samples: options, a configuration and what insitu_loader_describe writes say the
 * same. */
static void test_axes(void **state) {
  (void)state;
  char dir[600], text[2000], *first;
  struct support_array t = {.name = "t",
      .ndim = 3,
      .shape = {12, 6, 4},
      .chunk = {4, 2, 4},
      .dtype = INSITU_I32,
      .format = 3,
      .dims = "[\"init\", \"lead\", \"x\"]"};
  snprintf(dir, sizeof dir, "%s", support_path("axes"));
  support_make(dir, &t);
  assert_int_equal(
      run_tool("plan %s --axes 'init[2:],lead[0:5:2]' --split-axis 1 --fractions 1,0,0 "
               "--batch-size 4 --json",
          dir),
      0);
  assert_has(run_out, "\"axes\": \"init 10 x lead 3\"");
  parse();
  assert_int_equal(number(get(get(0, "splits"), "all"), "delivered"), 30);
  first = strdup(run_out);
  static const char *const same[] = {
      "[{\"dim\": \"init\", \"start\": 2}, {\"dim\": \"lead\", \"stop\": 5, \"stride\": 2}]",
      "[{\"axis\": 0, \"start\": 2, \"stop\": 12, \"stride\": 1, \"dim\": null}, "
      "{\"axis\": 1, \"stop\": 5, \"stride\": 2}]"};
  for (int i = 0; i < 2; i++) {
    snprintf(text, sizeof text,
        "{\"url\": \"%s\", \"axes\": %s, \"split_axis\": 1, \"split\": [1], \"batch_size\": 4}",
        dir, same[i]);
    support_write(support_path("axes.json"), text, strlen(text));
    assert_int_equal(run_tool("plan -c %s --json", support_path("axes.json")), 0);
    assert_string_equal(run_out, first);
  }
  free(first);
  assert_int_equal(run_tool("plan %s --axes init[2..12],lead", dir), 0);
  assert_has(run_out, "axes: init 10 x lead 6; the split is along number 0");
  snprintf(text, sizeof text, "{\"url\": \"%s\", \"axes\": [\"init\", \"lead\"]}", dir);
  support_write(support_path("axes.json"), text, strlen(text));
  assert_int_equal(/* overrides */
      run_tool("plan -c %s --axes 1 --batch-size 4", support_path("axes.json")), 0);
  assert_has(run_out, "axes: lead 6\n");

  const char *batch = "--order sequential --split all --batch-size 3 --batch 0,1";
  assert_int_equal(run_tool("cat %s --axes init[2:],lead[0:5:2] %s --json --text", dir, batch), 0);
  assert_has(run_out, "\"axis_indices\": [[3, 2], [2, 4], [3, 4]]");
  assert_has(run_out, "\"sample_indices\": [3, 2, 3]");
  assert_int_equal(run_tool("cat %s --axes init[2:],lead[0:5:2] %s --text", dir, batch), 0);
  assert_has(run_out, "samples (indexes on the axes)\n[[3 2]\n [2 4]\n [3 4]]");

  static const char *const wrong[] = {"init[2]", "init[2:4", "init[1:2:0]", "init[:-1]", "",
      "init,,lead", "[1:2]", "init[1:2:3:4]", "init[..]"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (run_tool("plan %s --axes '%s'", dir, wrong[i]) != 2)
      fail_msg("--axes %s: not refused", wrong[i]);
    assert_has(run_err, "NAME[START:STOP:STRIDE]");
  }
  /* a single image */
  assert_int_equal(run_tool("plan %s --axes init/2,lead/3,x/4 --batch-size 2", dir), 0);
  assert_has(run_out, "axes: 12 patches\n");
  assert_has(run_out, "split val: all axes have a patch");

  /* lists: a file, and both kinds in a configuration */
  const char *list = support_path("list");
  static const char pairs[] = "# init, lead\n3 2\n\n 2,4\t# late\n11 , 5";
  support_write(list, pairs, strlen(pairs));
  assert_int_equal(
      run_tool("plan %s --axes init,lead --list %s --fractions 1 --batch-size 2 --json", dir, list),
      0);
  assert_has(run_out, "\"axes\": \"init 12 x lead 6, 3 listed\"");
  parse();
  assert_int_equal(number(get(get(get(0, "splits"), "all"), "dropped"), "list"), 12 * 6 - 3);
  first = strdup(run_out);
  for (int i = 0; i < 2; i++) {
    char quoted[620];
    snprintf(quoted, sizeof quoted, "\"%s\"", list);
    snprintf(text, sizeof text,
        "{\"url\": \"%s\", \"axes\": [\"init\", \"lead\"], \"samples\": %s, \"split\": [1], "
        "\"batch_size\": 2}",
        dir, i ? quoted : "[[2, 4], [3, 2], [11, 5]]");
    support_write(support_path("axes.json"), text, strlen(text));
    assert_int_equal(run_tool("plan -c %s --json", support_path("axes.json")), 0);
    assert_string_equal(run_out, first);
  }
  free(first);
  static const struct {
    const char *list, *message;
  } lists[] = {{"1 2\n3\n", "line 2: a sample is longer or shorter"}, {"1 x", "not all whole"},
      {"# none\n", "no sample is listed"}, {"1\n2\n", "a sample has 1 numbers; give 2"}};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    support_write(list, lists[i].list, strlen(lists[i].list));
    assert_int_equal(run_tool("plan %s --axes init,lead --list %s", dir, list), 2);
    assert_has(run_err, lists[i].message);
  }
  for (int i = 0; i < 2; i++) {
    snprintf(text, sizeof text, "{\"url\": \"%s\", \"samples\": %s}", dir, i ? "[[1], 2.5]" : "7");
    support_write(support_path("axes.json"), text, strlen(text));
    assert_int_equal(run_tool("plan -c %s", support_path("axes.json")), 2);
    assert_has(run_err,
        i ? "give each sample as a whole number" : "how many samples were listed, not which");
  }

  /* Patches that hang over the edges: 3 along init, 1 along x. */
  assert_int_equal(
      run_tool("plan %s --axes lead,init/5:fill,x/3:fill[1:] --batch-size 2 --json", dir), 0);
  parse();
  assert_int_equal(number(get(get(0, "splits"), "all"), "samples"), 6 * 3 * 1);
  first = strdup(run_out);
  snprintf(text, sizeof text,
      "{\"url\": \"%s\", \"batch_size\": 2, \"axes\": [\"lead\", "
      "{\"dim\": \"init\", \"patch\": 5, \"edge\": \"fill\"}, "
      "{\"dim\": \"x\", \"patch\": 3, \"edge\": \"fill\", \"start\": 1}]}",
      dir);
  support_write(support_path("axes.json"), text, strlen(text));
  assert_int_equal(run_tool("plan -c %s --json", support_path("axes.json")), 0);
  assert_string_equal(run_out, first);
  free(first);
  static const char *const wrong_patch[] = {"x/3:", "x/3:fil", "x/3:filled", "x/:fill", "x/3fill"};
  for (size_t i = 0; i < sizeof wrong_patch / sizeof *wrong_patch; i++) {
    if (run_tool("plan %s --axes 'lead,%s'", dir, wrong_patch[i]) != 2)
      fail_msg("--axes %s: not refused", wrong_patch[i]);
    assert_has(run_err, "NAME/PATCH:fill");
  }
  assert_int_equal(run_tool("plan %s --axes init,layd", dir), 1);
  assert_has(run_err, "no array has all of the axes; dimensions: init, lead, x");
  assert_int_equal(run_tool("plan %s --axes init,lead --sample-dim init", dir), 1);
  assert_has(run_err, "say it in axes alone");
}
static void test_config_wrong(void **state) {
  static const struct {
    const char *document, *says;
    int code;
  } wrong[] = {
      {"{\"bathc_size\": 3}", "there is no member \"bathc_size\"; did you mean \"batch_size\"?", 2},
      {"{\"iterator\": {\"splt\": \"val\"}}",
          "iterator: there is no member \"splt\"; did you mean \"split\"?", 2},
      {"{\"variables\": [{\"label\": \"x\", \"ofset\": 1}]}",
          "variables[0]: there is no member \"ofset\"; did you mean \"offset\"?", 2},
      {"{\"variables\": [{\"offset\": 1}]}", "variables[0]: it needs a \"path\" or a \"label\"", 2},
      {"{\"variables\": {}}", "variables: '{}' does not fit; give a list", 2},
      {"{\"variables\": [{\"label\": \"x\", \"ops\": [{\"op\": \"mean\"}]}]}",
          "variables[0].ops[0]: it needs an \"op\": norm", 2},
      {"{\"variables\": [{\"label\": \"x\", \"ops\": [{\"op\": \"norm\", \"meam\": 1}]}]}",
          "ops[0]: there is no member \"meam\"; did you mean \"mean\"?", 2},
      {"{\"variables\": [{\"label\": \"x\", \"map\": \"nearest\"}]}",
          "\"by_index\", \"by_index_floor\" or", 2},
      {"{\"variables\": [{\"label\": \"x\", \"slices\": [{\"start\": 1}]}]}",
          "slices[0]: it needs a \"dim\" or an \"axis\"", 2},
      {"{\"axes\": {}}", "give a list", 2},
      {"{\"axes\": [3]}", "axes[0]: '3' does not fit; give an object", 2},
      {"{\"axes\": [{\"start\": 1}]}", "axes[0]: it needs a \"dim\" or an \"axis\"", 2},
      {"{\"axes\": [{\"dim\": \"t\", \"strde\": 2}]}",
          "there is no member \"strde\"; did you mean \"stride\"?", 2},
      {"{\"axes\": [{\"dim\": \"t\", \"stop\": \"x\"}]}",
          "axes[0].stop: '\"x\"' does not fit; give a whole number", 2},
      {"{\"axes\": [{\"dim\": 3}]}", "axes[0].dim: '3' does not fit; give a string", 2},
      {"{\"axes\": [{\"dim\": \"t\", \"edge\": \"filled\"}]}", "give \"inside\" or \"fill\"", 2},
      {"{\"batch_size\": \"many\"}", "batch_size: '\"many\"' does not fit; give a whole number", 2},
      {"{\"batch_size\": [3]}", "give a whole number from 0 on", 2},
      {"{\"io\": \"aio\"}", "io: '\"aio\"' does not fit; give \"auto\", \"uring\" or \"epoll\"", 2},
      {"{\"split_shuffled\": 2}", "give true or false", 2},
      {"{\"split\": [{\"fracton\": 1}]}",
          "split[0]: there is no member \"fracton\"; did you mean \"fraction\"?", 2},
      {"{\"url\"", "not JSON", 1}, {"[]", "give an object", 2}, {"{}", "which archive?", 2},
      {"{\"config\": {\"lane\": 1}}", "did you mean \"lanes\"?", 2}};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    support_write(support_path("wrong.json"), wrong[i].document, strlen(wrong[i].document));
    int code = run_tool("plan --config %s", support_path("wrong.json"));
    if (code != wrong[i].code) fail_msg("%s: exit status %d\n%s", wrong[i].document, code, run_err);
    assert_has(run_err, wrong[i].says);
  }
  assert_int_equal(run_tool("plan --config %s", support_path("nothing.json")), 1);
  assert_int_equal(run_tool("plan %s --var t@x", archive()), 2);
  assert_int_equal(run_tool("plan %s --slice lat", archive()), 2);
  assert_int_equal(run_tool("plan %s --batch-size -3", archive()), 2);
  assert_int_equal(run_tool("plan %s --var nothing", archive()), 1);
  assert_has(run_err, "no array 'nothing'");
}

/* ---- cat ---- */

static void test_cat_npy(void **state) {
  (void)state;
  const char *out = support_path("region.npy");
  assert_int_equal(run_tool("cat %s t --slice 0=3:13,lat=2:5,2=1:3 -o %s", archive(), out), 0);
  FILE *f = fopen(out, "rb");
  assert_non_null(f);
  unsigned char bytes[1024];
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  assert_int_equal(n, 128 + 10 * 3 * 2 * 4);
  static const char head[] =
      "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3, 2), }";
  assert_memory_equal(bytes, head, sizeof head - 1);
  assert_int_equal(bytes[127], '\n');
  for (size_t i = 0; i < 60; i++) {
    float got;
    memcpy(&got, bytes + 128 + 4 * i, 4);
    size_t t = 3 + i / 6, y = 2 + i / 2 % 3, x = 1 + i % 2;
    assert_true(got == (float)((t * 6 + y) * 5 + x));
  }
}
static void test_cat_text(void **state) {
  (void)state;
  const char *dir = support_path("text.zarr");
  assert_int_equal(run_tool("cat %s t --slice time=0,lat=0:2 --text", archive()), 0);
  assert_string_equal(run_out, "[[[0 1 2 3 4]\n  [5 6 7 8 9]]]\n");
  assert_int_equal(
      run_tool("cat %s t --slice time=0,lat=0:2 --dtype float64 --json", archive()), 0);
  assert_has(run_out, "\"dtype\": \"float64\"");
  assert_has(run_out, "\"values\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]");
  /* 5997 lies between floats of 16 bits, to which it is rounded */
  static const char *const sixteen[][2] = {{"float16", "5996"}, {"bfloat16", "5984"}};
  for (int i = 0; i < 2; i++) {
    char want[64];
    snprintf(want, sizeof want, "\"dtype\": \"%s\"", sixteen[i][0]);
    assert_int_equal(run_tool("cat %s t --slice time=199,lat=5,lon=2 --dtype %s --json", archive(),
                         sixteen[i][0]),
        0);
    assert_has(run_out, want);
    snprintf(want, sizeof want, "\"values\": [%s]", sixteen[i][1]);
    assert_has(run_out, want);
  }
  /* 6000 elements: the ends of each axis */
  assert_int_equal(run_tool("cat %s t --text", archive()), 0);
  assert_has(run_out, "\n\n ...\n\n");
  assert_int_equal(run_tool("mk %s --format 2 --name / --dtype complex64 --data index --shape 3 "
                            "--order F --endian big",
                       dir),
      0);
  assert_int_equal(run_tool("cat %s --text", dir), 0);
  assert_string_equal(run_out, "[0+1j 1+2j 2+3j]\n");
  assert_int_equal(
      run_tool("mk %s -f --dtype bool --shape 2,2 --data index --absent 1 --fill 1", dir), 0);
  assert_int_equal(run_tool("cat %s u --text", dir), 0); /* no chunk at all: the fill value */
  assert_string_equal(run_out, "[[True True]\n [True True]]\n");
  assert_int_equal(
      run_tool("mk %s -f --dtype float16 --shape 2 --data index --absent 1 --fill=-Infinity", dir),
      0);
  assert_int_equal(run_tool("cat %s u --text", dir), 0);
  assert_string_equal(run_out, "[-inf -inf]\n");
  /* full precision reads back */
  assert_int_equal(run_tool("mk %s -f --shape 1,1,2 --seed 1", dir), 0);
  assert_int_equal(run_tool("cat %s u --text -p full", dir), 0);
  float x = strtof(run_out + 3, NULL);
  assert_int_equal(run_tool("cat %s u --npy", dir), 0);
  assert_memory_equal(run_out + 128, &x, 4);
}
/* Batches by number are those that an iterator delivers. */
static void test_cat_batch(void **state) {
  insitu_variable v[2] = {{.label = "x", .path = "t"}, {.label = "y", .path = "u", .offset = 1}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = archive(),
      .variables = v,
      .n_variables = 2,
      .batch_size = 6,
      .seed = 4,
      .inline_io = 1};
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  (void)state;
  for (int split = INSITU_TRAIN; split <= INSITU_VAL; split++) {
    insitu_iter_desc id = {.api = INSITU_API, .split = split, .epoch = 2};
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
    assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_OK);
    while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
      if (b->index % 5 == 0 || b->rows < 6) {
        for (int k = 0; k < 2; k++) {
          int code = run_tool("cat %s --batch 2,%d --var x=t,y=u@1 --batch-size 6 --seed 4 --split "
                              "%s --array %s --npy",
              d.url, (int)b->index, split ? "val" : "train", v[k].label);
          if (code) fail_msg("%s", run_err);
          assert_memory_equal(run_out + 128, b->arrays[k].data, b->arrays[k].bytes);
        }
        assert_int_equal(
            run_tool(
                "cat %s --batch 2,%d --var x=t,y=u@1 --batch-size 6 --seed 4 --split %s --json",
                d.url, (int)b->index, split ? "val" : "train"),
            0);
        parse();
        assert_int_equal(insitu__text_json_size(&doc, get(0, "sample_indices")), b->rows);
        int t = insitu__text_json_first(&doc, get(0, "sample_indices"));
        for (uint64_t r = 0; r < b->rows; r++, t = insitu__text_json_next(&doc, t)) {
          int64_t anchor;
          assert_true(insitu__text_json_i64(&doc, t, &anchor));
          assert_int_equal(anchor, b->sample_indices[r]);
        }
      }
      insitu_batch_release(&b);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  /* what rows are, on request: mk's six hours each from 2000 on */
#define ROWS "cat %s --batch 0,0 --var t --split val --batch-size 2 --coordinates "
  assert_int_equal(run_tool(ROWS "--text --array time_us", archive()), 0);
  assert_has(run_out, "\n  row 1: sample 161, coordinate 966, 2000-02-10T06:00\n");
  assert_has(run_out, "\ntime_us int64 (2,)\n[950140800000000 950162400000000]\n");
  assert_int_equal(run_tool(ROWS "--json", archive()), 0);
  assert_has(run_out, "\"coordinates\": [960, 966]");
  assert_has(run_out, "\"dates\": [\"2000-02-10T00:00\", \"2000-02-10T06:00\"]");
  assert_int_equal(run_tool(ROWS "--npy --array coordinates", archive()), 0);
  assert_memory_equal(run_out + 128, ((double[]){960, 966}), 16);
  assert_int_equal(run_tool("cat %s --batch 0,0 --var t --array coordinates", archive()), 2);
  assert_has(run_err, "the batch has it with --coordinates");
  assert_int_equal(run_tool("cat %s --batch 0,1000 --var t", archive()), 2);
  assert_has(run_err, "an epoch has 5 batches, 0 to 4");
  assert_int_equal(run_tool("cat %s --batch 0 --var t", archive()), 2);
  assert_int_equal(run_tool("cat %s --batch 0,0 --var t,u --npy", archive()), 2);
  assert_has(run_err, "choose with --array");
  assert_int_equal(run_tool("cat %s --batch 0,0 --var t --array z", archive()), 2);
  assert_has(run_err, "the batch has no array 'z'; it has 't'");
}
static void test_cat_wrong(void **state) {
  char path[600];
  (void)state;
  assert_int_equal(run_tool("cat %s tt", archive()), 1);
  assert_has(run_err, "did you mean 't'?");
  assert_int_equal(run_tool("cat %s t --slice lta=0:1", archive()), 1);
  assert_has(run_err, "it has: time lat lon");
  assert_int_equal(run_tool("cat %s t --slice lat=3:9", archive()), 1);
  assert_has(run_err, "slice [3, 9) of axis 1 leaves array t, which has 6 elements");
  assert_int_equal(run_tool("cat %s t --dtype int8", archive()), 1);
  assert_has(run_err, "use INSITU_AS_STORED or one of float16, float64, bfloat16");
  assert_int_equal(run_tool("cat %s t --dtype half", archive()), 2);
  assert_has(run_err, "--dtype half: give bfloat16, float16,");
  assert_int_equal(run_tool("cat %s t --precision 99", archive()), 2);
  assert_int_equal(run_tool("cat"), 2);
  assert_int_equal(run_tool("cat --array_path=%s/t", archive()), 0);
  assert_has(run_out, "/t.zarr/t: float32 (200, 6, 5), 23.4 KiB, from 0 to 5999\n");
  assert_int_equal(run_tool("cat --array_path %s", archive()), 1); /* a group */
  assert_int_equal(
      run_tool("mk %s --format 2 --shape 8,4 --chunks 4,4 --codec zstd", support_path("bad.zarr")),
      0);
  snprintf(path, sizeof path, "%s/u/1.0", support_path("bad.zarr"));
  support_write(path, "rubbish", 7);
  assert_int_equal(run_tool("cat --array_path %s/u", support_path("bad.zarr")), 1);
  assert_has(run_err, "chunk 1.0");
}

/* ---- bench ---- */

static void test_bench(void **state) {
  (void)state;
  double share = 0;
  assert_int_equal(
      run_tool("bench %s --var x=t,y=t@1 --batch-size 8 --epochs 2 --rounds 3 --json", archive()),
      0);
  parse();
  /* without the first: the clock begins with it */
  assert_int_equal(number(0, "batches"), 2 * 19 - 1);
  assert_int_equal(number(0, "rows"), 8 * number(0, "batches"));
  assert_int_equal(number(0, "bytes"), 8 * 2 * 30 * 4 * number(0, "batches"));
  assert_in_range(number(0, "reads"), 80, UINT32_MAX);
  assert_int_equal(number(0, "rounds"), 3);
  /* the machine may be busy with other tests */
  bool sound = insitu__text_json_is_null(&doc, get(0, "void"));
  assert_true(insitu__text_json_is_null(&doc, get(0, "share")) == !sound);
  assert_true(
      insitu__text_json_double(&doc, get(0, sound ? "share" : "share_low"), &share) && share > 0);
  /* A share that was measured beside other work is void. */
  pid_t burner[8];
  int burners = (int)insitu__base_min(8, insitu__mem_online());
  for (int i = 0; i < burners; i++) {
    burner[i] = fork();
    for (volatile unsigned k = 0; burner[i] == 0; k++) {}
  }
  assert_int_equal(run_tool("bench %s --var t --epochs 1 --rounds 3", archive()), 0);
  for (int i = 0; i < burners; i++) {
    kill(burner[i], SIGKILL);
    waitpid(burner[i], NULL, 0);
  }
  assert_has(run_out, "share          void: other processes kept ");
  assert_int_equal(run_tool("bench %s --var t --epochs 1 --rounds 0 --inline-io", archive()), 0);
  assert_has(run_out, "limited by:");
  assert_null(strstr(run_out, "the limit"));
  assert_int_equal(run_tool("bench --like %s", support_path("nothing.json")), 1);
  assert_int_equal(run_tool("bench %s --seconds soon", archive()), 2);
  assert_int_equal(run_tool("bench %s --var t --batch-size 1000 --seconds 1", archive()), 1);
  /* a damaged chunk */
  assert_int_equal(run_tool("bench %s --epochs 1 --rounds 1", support_path("bad.zarr")), 1);
}

static int setup(void **state) {
  return support_setup(state);
}
static int teardown(void **state) {
  insitu__text_json_free(&doc);
  free(run_out);
  free(run_err);
  return support_teardown(state);
}
static void samples_are(int first, int last) { /* of the batch that was printed as JSON */
  char want[300];
  int n = snprintf(want, sizeof want, "\"sample_indices\": [%d", first);
  for (int k = first + 1; k <= last; k++)
    n += snprintf(want + n, sizeof want - (size_t)n, ", %d", k);
  snprintf(want + n, sizeof want - (size_t)n, "]");
  /* lists may be broken */
  for (char *end; (end = strchr(run_out, '\n'));) memmove(end, end + 1, strlen(end));
  assert_has(run_out, want);
}
/* Types of variable length have no decoded size; datetime64 has its unit in the type. */
static void test_info_elements(void **state) {
  double days[4] = {0, 1, 2, 3};
  char root[512], file[600];
  static const char metadata[] =
      "{\"zarr_format\":2,\"shape\":[4],\"chunks\":[4],\"dtype\":\"<M8[D]\",\"order\":\"C\","
      "\"fill_value\":null,\"compressor\":null,\"filters\":null}";
  struct support_array t = {.name = "t",
      .ndim = 1,
      .shape = {4},
      .chunk = {4},
      .dtype = INSITU_I64,
      .format = 2,
      .values = days};
  (void)state;
  assert_int_equal(run_tool("info tests/data/stores/elements.v3.zarr " ALL_SIZES), 0);
  assert_has(run_out, "variable_length_bytes   3x2    2x2\n"); /* neither cut nor with a ratio */
  assert_has(run_out, "size     stored 69 B in 2 of 2 objects\n");
  assert_int_equal(
      run_tool("info tests/data/stores/extensions.v3.zarr unknown_grid " ALL_SIZES), 0);
  assert_has(run_out, "stored 48 B in 1 object\n");
  snprintf(root, sizeof root, "%s", support_path("days.zarr"));
  snprintf(file, sizeof file, "%s/t/.zarray", root);
  support_make(root, &t);
  support_write(file, metadata, sizeof metadata - 1);
  assert_int_equal(run_tool("info %s", root), 0);
  assert_has(
      run_out, "dates    1970-01-01T00:00 .. 1970-01-04T00:00, every 1 d, proleptic_gregorian\n");
}
/* Windows count samples: where these are not as far apart as elsewhere, the plan says so. */
static void test_plan_gaps(void **state) {
  (void)state;
  double hours[60];
  char root[512];
  snprintf(root, sizeof root, "%s", support_path("gaps.zarr"));
  struct support_array a = {.name = "p",
                           .ndim = 2,
                           .shape = {60, 2},
                           .chunk = {7, 2},
                           .dtype = INSITU_F32,
                           .dims = "[\"time\",\"y\"]"},
                       t = {.name = "time",
                           .ndim = 1,
                           .shape = {60},
                           .chunk = {13},
                           .dtype = INSITU_I32,
                           .dims = "[\"time\"]",
                           .attributes = "\"units\":\"hours since 1979-03-01\"",
                           .values = hours};
  static const struct {
    const char *options, *says; /* NULL: of gaps nothing */
  } cases[] = {
      {"--var x=p,y=p@1",
          "! Limited by gaps in time: windows count samples, not hours. Samples are 6 h apart, but "
          "not at 2 of 59 places, the first between samples 29 and 30 (1979-03-08T06:00 and "
          "1980-03-08T12:00)"},
      {"--var p@-1:2", "not at 2 of 59 places"}, {"--var p@1", NULL}, {"--var p", NULL},
      {"--var x=p,y=p@1 --samples 0..30", NULL},
      {"--var x=p,y=p@1 --samples 30..60",
          "not at 1 of 29 places, the first between samples 40 and 41 "},
      {"--axes time --var x=p,y=p@1", "not at 2 of 59 places"}};
  for (int i = 0; i < 60; i++) hours[i] = 6 * i + (i < 30 ? 0 : 366 * 24) - (i < 41 ? 0 : 6);
  support_make(root, &a);
  support_make(root, &t);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(
        run_tool("plan %s --batch-size 2 --fractions 1 %s", root, cases[i].options), 0);
    if (cases[i].says) assert_has(run_out, cases[i].says);
    else assert_null(strstr(run_out, "apart"));
  }
  assert_int_equal(
      run_tool("plan %s --batch-size 2 --fractions 1 --var x=p,y=p@1 --json", root), 0);
  assert_has(run_out, "\"limited_by\": \"times\"");
  /* what was written twice is seen in the middle, too, and said by insitu info */
  assert_int_equal(run_tool("info %s time --json", root), 0);
  assert_has(run_out, "\"ordered\": false");
  assert_int_equal(run_tool("info %s time", root), 0);
  assert_has(run_out, "not regular, neither rising nor falling");

  /* the first and the last chunk are regular, and so is the whole by its ends */
  for (int i = 0; i < 60; i++) hours[i] = 6 * (i == 30 ? 2 : i);
  support_make(root, &t);
  assert_int_equal(run_tool("info %s time", root), 0);
  assert_has(run_out, "dates    1979-03-01T00:00 .. 1979-03-15T18:00, not regular, standard");

  /* months, and time that goes back */
  for (int i = 0; i < 60; i++) hours[59 - i] = 24 * (30 * i + i / 2 - 2 * (i / 12));
  support_make(root, &t);
  assert_int_equal(run_tool("plan %s --batch-size 2 --var x=p,y=p@1", root), 0);
  assert_null(strstr(run_out, "apart"));

  /* a coordinate that is there and cannot be read is no coordinate without gaps */
  char chunk[600];
  snprintf(chunk, sizeof chunk, "%s/time/0", root);
  support_write(chunk, "short", 5);
  assert_int_equal(run_tool("plan %s --batch-size 2 --var x=p,y=p@1", root), 0);
  assert_has(run_out, "the dates of the samples are not known: ");
  assert_int_equal(run_tool("plan %s --batch-size 2 --var p", root), 0);
  assert_null(strstr(run_out, "not known"));
}
/* Decoding and dates, by options, by configuration file and in insitu info. */
static void test_cf(void **state) {
  char root[512], config[512];
  double hours[60];
  (void)state;
  snprintf(root, sizeof root, "%s", support_path("cf.zarr"));
  snprintf(config, sizeof config, "%s", support_path("cf.json"));
  struct support_array a = {.name = "g/p",
      .ndim = 2,
      .shape = {60, 2},
      .chunk = {7, 2},
      .dtype = INSITU_I16,
      .format = 2,
      .dims = "[\"time\",\"y\"]",
      .attributes = "\"scale_factor\":0.5,\"_FillValue\":5"};
  struct support_array t = {.name = "time",
      .ndim = 1,
      .shape = {60},
      .chunk = {13},
      .dtype = INSITU_I32,
      .format = 2,
      .dims = "[\"time\"]",
      .attributes = "\"units\":\"hours since 1979-02-25\",\"calendar\":\"noleap\"",
      .values = hours};
  for (int i = 0; i < 60; i++) hours[i] = 6 * i;
  support_make(root, &a);
  support_make(root, &t);
  assert_int_equal(run_tool("cat %s g/p --slice 0=2:4 --decode cf --text", root), 0);
  assert_has(run_out, "2 nan");
  assert_has(run_out, "3 3.5");
  assert_int_equal(run_tool("cat %s g/p --decode netcdf", root), 2);
  assert_has(run_err, "--decode netcdf: give cf");
  assert_int_equal(run_tool("info %s", root), 0);
  assert_has(run_out, "1979-02-25T00:00 .. 1979-03-11T18:00, every 6 h, noleap");
  assert_int_equal(run_tool("info %s time --json", root), 0);
  assert_has(run_out, "\"first\": \"1979-02-25T00:00\"");
  assert_has(run_out, "\"step_seconds\": 21600");
  hours[59]++;
  support_make(root, &t);
  assert_int_equal(run_tool("info %s time", root), 0);
  assert_has(run_out, "1979-03-11T19:00, not regular, noleap");
  t.attributes = "\"units\":\"months since 1979-02-25\"";
  support_make(root, &t);
  assert_int_equal(run_tool("info %s time", root), 0);
  assert_has(run_out, "months and years have no fixed length");
  t.attributes = "\"units\":\"hours since 1979-02-25\",\"calendar\":\"noleap\"";
  support_make(root, &t);
  static const struct {
    const char *options;
    int first, last; /* of all samples */
  } one[] = {{"--samples 1979-02-28..1979-03-01", 12, 19}, {"--samples 1979-03-10..", 52, 59},
      {"--samples 4..8", 4, 7}, {"--samples ..8", 0, 7}, {"--sample-from 1979-03-11T07", 58, 59},
      {"--time-path time --sample-to 1979-02-25", 0, 3}};
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    assert_int_equal(run_tool("cat %s --batch 0,0 --var g/p --split all --batch-size 20 --json %s",
                         root, one[i].options),
        0);
    samples_are(one[i].first, one[i].last);
  }
  assert_int_equal(run_tool("plan %s --var g/p --samples 1979", root), 2);
  assert_has(run_err, "--samples 1979: give dates or indices");
  assert_int_equal(run_tool("plan %s --var g/p --samples 1985-01..", root), 1);
  assert_has(run_err, "go from 1979-02-25T00:00");
  assert_int_equal(
      run_tool("cat %s --batch 0,0 --var g/p --split val --batch-size 4 --json --ranges "
               "..1979-03-02,1979-03-03..1979-03-03,30:60",
          root),
      0);
  samples_are(24, 27);
  FILE *f = fopen(config, "w");
  assert_non_null(f);
  fprintf(f,
      "{\"url\": \"%s\", \"variables\": [{\"label\": \"x\", \"path\": \"g/p\", \"decode\": "
      "\"cf\"}], \"batch_size\": 4, "
      "\"sample_from\": \"1979-03\", \"split\": [{\"to\": \"1979-03-05\"}, {\"from\": "
      "\"1979-03-06\"}]}",
      root);
  fclose(f);
  assert_int_equal(run_tool("cat --config %s --batch 0,0 --split val --json", config), 0);
  assert_has(run_out, "\"float32\"");
  samples_are(36, 39);
}

/* Bytes of any length need be no text: base64 in JSON, escaped in text, S in a .npy. Fixed ones are
 * so where they are no text. */
static void test_cat_bytes(void **state) {
  static const char *const metadata[] = {
      "{\"zarr_format\":2,\"shape\":[3],\"chunks\":[3],\"dtype\":\"|O\",\"fill_value\":null,"
      "\"order\":\"C\",\"compressor\":null,"
      "\"filters\":[{\"id\":\"vlen-bytes\"}]}",
      "{\"zarr_format\":2,\"shape\":[3],\"chunks\":[3],\"dtype\":\"|S3\",\"fill_value\":null,"
      "\"order\":\"C\",\"compressor\":null,"
      "\"filters\":null}"};
  static const char vlen[] = "\3\0\0\0\3\0\0\0a\"\\\3\0\0\0\xff\0\1\0\0\0\0",
                    fixed[] = "a\"\\\xff\0\1\0\0\0";
  char path[400], root[300];
  (void)state;
  for (int i = 0; i < 3; i++) { /* the last: fixed ones that are text */
    snprintf(root, sizeof root, "%s", support_path("bytes"));
    snprintf(path, sizeof path, "%s/.zarray", root);
    support_write(path, metadata[i > 0], strlen(metadata[i > 0]));
    snprintf(path, sizeof path, "%s/0", root);
    if (!i) support_write(path, vlen, sizeof vlen - 1);
    else support_write(path, i == 1 ? fixed : "abcd\xc3\xa9\0\0\0", 9);
    assert_int_equal(run_tool("cat %s '' --json", root), 0);
    parse();
    assert_true(insitu__text_json_equals(&doc, get(0, "dtype"), i < 2 ? "bytes" : "string"));
    int first = insitu__text_json_first(&doc, get(0, "values"));
    assert_true(insitu__text_json_equals(&doc, first, i < 2 ? "YSJc" : "abc"));
    assert_true(insitu__text_json_equals(
        &doc, insitu__text_json_next(&doc, first), i < 2 ? "/wAB" : "d\xc3\xa9"));
    assert_int_equal(run_tool("cat %s '' --text", root), 0);
    assert_string_equal(run_out,
        i < 2 ? "b\"a\\\"\\\\\"\nb\"\\xff\\x00\\x01\"\nb\"\"\n" : "\"abc\"\n\"d\xc3\xa9\"\n\"\"\n");
    assert_int_equal(run_tool("cat %s '' -o %s/bytes.npy", root, support_dir), 0);
    snprintf(path, sizeof path, "%s/bytes.npy", support_dir);
    char npy[300];
    FILE *f = fopen(path, "re");
    size_t n = fread(npy, 1, sizeof npy, f);
    fclose(f);
    npy[n < 60 ? n : 60] = 0;
    assert_has(npy + 10, i < 2 ? "'|S3'" : "'<U3'");
    if (i < 2) assert_memory_equal(npy + n - 9, fixed, 9);
    support_remove(root);
  }
}

/* ---- scan ---- */

static void scans(void **state) {
  (void)state;
  const char *d = support_dir;
  assert_int_equal(
      run_tool("mk '%s/scan.zarr' --shape 40,6,5 --chunks 4,6,5 --name t --data index", d), 0);
  assert_int_equal(run_tool("scan '%s/scan.zarr' -o '%s/s.json' --exclude 5%% --manifest-out "
                            "'%s/m.json' --lags 1",
                       d, d, d),
      0);
  assert_has(run_out, "t lag 1");
  assert_has(run_out, "excludes 0 samples");
  for (int rank = 0; rank < 2; rank++)
    assert_int_equal(
        run_tool("scan '%s/scan.zarr' -o '%s/p%d' --rank %d --world 2 --lags 1", d, d, rank, rank),
        0);
  assert_int_equal(run_tool("scan --merge '%s/p1' '%s/p0' -o '%s/two.json' -q", d, d, d), 0);
  char command[1000];
  snprintf(command, sizeof command, "cmp '%.250s/s.json' '%.250s/two.json'", d, d);
  assert_int_equal(system(command), 0);
  assert_int_equal(run_tool("scan '%s/scan.zarr' -o /nowhere/s.json", d), 1);
  assert_has(run_err, "can be written");
  static const struct {
    const char *options, *said;
  } wrong[] = {{"", "--out"}, {"-o s --exclude abc --manifest-out m", "give a share of elements"},
      {"-o s --exclude 5%% --manifest-out m --world 2", "with --merge"},
      {"-o s --checkpoint -5", "more than 0"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[300];
    snprintf(line, sizeof line, "scan '%%s/scan.zarr' %s", wrong[i].options);
    assert_int_equal(run_tool(line, d), 2);
    assert_has(run_err, wrong[i].said);
  }
  assert_int_equal(run_tool("scan --merge -o '%s/x.json'", d), 2);
  assert_has(run_err, "name the parts");
  assert_int_equal(run_tool("scan '%s/scan.zarr' -o '%s/x.json' --dim levle", d, d), 1);
  assert_has(run_err, "no variable has an axis levle");
}

/* ---- warm ---- */

static void warms(void **state) {
  (void)state;
  const char *d = support_dir;
  assert_int_equal(
      run_tool("mk '%s/warm.zarr' --shape 80,64,64 --chunks 4,64,64 --name t --data index", d), 0);
  assert_int_equal(
      run_tool("warm '%s/warm.zarr' --var t --cache-dir '%s/wc' --cache-decoded", d, d), 0);
  assert_has(run_out, "64 of 64 samples read");
  assert_has(run_out, " entries written, 0 found there");
  assert_false(strstr(run_out, "full") != NULL);
  assert_int_equal(run_tool("warm '%s/warm.zarr' --var t --cache-dir '%s/full' --cache-decoded "
                            "--cache-budget 700Ki --split all --epochs 2",
                       d, d),
      0);
  assert_has(run_out, "The cache is full");
  assert_int_equal(run_tool("warm '%s/warm.zarr' --var t --cache-dir '%s/wc' --cache-decoded "
                            "--json",
                       d, d),
      0);
  assert_has(run_out, "\"full\": false");
  assert_int_equal(run_tool("warm '%s/warm.zarr' --var t --cache-dir '%s/wc'", d, d), 1);
  assert_has(run_err, "--cache-decoded");
  assert_int_equal(run_tool("warm '%s/warm.zarr' --var t", d), 2);
  assert_has(run_err, "--cache-dir is missing");
  assert_int_equal(run_tool("warm '%s/warm.zarr' --var t --cache-dir c --epochs 0", d), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(scans), cmocka_unit_test(warms),
      cmocka_unit_test(test_mk_ended), cmocka_unit_test(test_mk_index),
      cmocka_unit_test(test_mk_absent), cmocka_unit_test(test_cat_bytes),
      cmocka_unit_test(test_mk_shards), cmocka_unit_test(test_mk_weather),
      cmocka_unit_test(test_mk_coordinates), cmocka_unit_test(test_mk_wrong),
      cmocka_unit_test(test_mk_force), cmocka_unit_test(test_plan),
      cmocka_unit_test(test_plan_hints), cmocka_unit_test(test_plan_gaps),
      cmocka_unit_test(test_fixed), cmocka_unit_test(test_config), cmocka_unit_test(test_axes),
      cmocka_unit_test(test_config_wrong), cmocka_unit_test(test_cat_npy),
      cmocka_unit_test(test_cat_text), cmocka_unit_test(test_cat_batch),
      cmocka_unit_test(test_cat_wrong), cmocka_unit_test(test_info_elements),
      cmocka_unit_test(test_cf), cmocka_unit_test(test_bench)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
