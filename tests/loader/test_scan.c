/* insitu_scan: its numbers against two passes in long double, the same bytes with other threads,
 * ranks, orders of merging, after SIGKILL and where rows stay in their files; what a loader does
 * with the file; what is refused. */
#include "insitubatch.h"
#include <blosc.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include "support.h"
#include "modes.h"
#include "gzip.h"

enum { TIME = 2000, LEVEL = 3, LAT = 5, ROW = LEVEL * LAT, BIG = 96 };
#define HAS(text, word)                                                                            \
  do {                                                                                             \
    if (!strstr(text, word)) fail_msg("'%s' does not name '%s'", text, word);                      \
  } while (0)

static double values[TIME * ROW], field[BIG * BIG * 12];
static const insitu_op log_norm[] = {{.kind = INSITU_OP_SHIFT, .a = 1.5}, {.kind = INSITU_OP_NORM}};
static const char *archive;

/* t: a small spread about 280, level 1 about 1e5, some NaN in sample 7 and all of sample 9; flat is
 * the same everywhere. */
static void make_archive(void) {
  static double flat[TIME];
  const char *root = archive = strdup(support_path("scan.zarr"));
  for (uint64_t i = 0; i < TIME * ROW; i++) {
    uint64_t level = i / LAT % LEVEL;
    double x = (double)support_below(1 << 20) / (1 << 20);
    values[i] = (double)(float)(level == 1 ? 1e5 + x : level == 2 ? x - 0.5 : 280 + 10 * x);
  }
  for (uint64_t k = 0; k < 2; k++) values[7 * ROW + k] = NAN;
  for (uint64_t k = 0; k < ROW; k++) values[9 * ROW + k] = NAN;
  for (uint64_t i = 0; i < BIG * BIG * 12; i++)
    field[i] = (double)(float)(exp((double)support_below(4000) / 1000) - 20);
  for (uint64_t i = 0; i < TIME; i++) flat[i] = 4;
  const struct support_array t = {.name = "t",
      .ndim = 3,
      .shape = {TIME, LEVEL, LAT},
      .chunk = {50, 2, LAT},
      .dtype = INSITU_F32,
      .format = 3,
      .zstd = true,
      .values = values,
      .dims = "[\"time\",\"level\",\"lat\"]",
      .attributes = "\"units\":\"K\""};
  struct support_array f = {.name = "flat",
      .ndim = 1,
      .shape = {TIME},
      .chunk = {50},
      .dtype = INSITU_F64,
      .format = 3,
      .values = flat,
      .dims = "[\"time\"]"};
  struct support_array big = {.name = "big",
      .ndim = 3,
      .shape = {12, BIG, BIG},
      .chunk = {1, BIG, BIG},
      .dtype = INSITU_F64,
      .format = 3,
      .values = field,
      .absent = 5,
      .dims = "[\"time\",\"y\",\"x\"]"};
  support_make(root, &t);
  support_make(root, &f);
  support_make(root, &big);
}

static insitu_variable one(const char *path) {
  return (insitu_variable){.label = path, .path = path};
}
static insitu_loader_desc desc_of(const insitu_variable *v, uint64_t n) {
  int m = any_mode();
  return (insitu_loader_desc){.api = INSITU_API,
      .url = archive,
      .variables = v,
      .n_variables = n,
      .sample_dim = "time",
      .io = modes[m].io,
      .decode_threads = 2};
}
static const uint64_t lags[] = {1, 300};
static insitu_scan_desc scan_of(const insitu_loader_desc *d, const char *path) {
  const char *dim = NULL; /* only "t" has levels */
  for (uint64_t i = 0; i < d->n_variables; i++)
    if (!strcmp(d->variables[i].path, "t")) dim = "level";
  return (insitu_scan_desc){
      .api = INSITU_API, .loader = d, .path = path, .dim = dim, .lags = lags, .n_lags = 2};
}
static void scan(const insitu_loader_desc *d, const char *path) {
  insitu_error err;
  insitu_scan_desc s = scan_of(d, path);
  if (insitu_scan(&s, &err)) fail_msg("%s", err.message);
}
static char *slurp(const char *path) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
  fclose(f);
  return text;
}
static void same_files(const char *a, const char *b) {
  char *p = slurp(a), *q = slurp(b);
  if (strcmp(p, q)) fail_msg("%s and %s differ", a, b);
  free(p);
  free(q);
}
/* Number i of the list `key` of a variable at a lag. */
static double number(const char *text, const char *label, int lag, const char *key, int i) {
  char at[200];
  snprintf(at, sizeof at, "{\"variable\": \"%s\", \"lag\": %d,", label, lag);
  const char *p = strstr(text, at);
  assert_non_null(p);
  snprintf(at, sizeof at, "\"%s\": [", key);
  p = strstr(p, at);
  assert_non_null(p);
  p += strlen(at);
  while (i--) p = strpbrk(p, ",") + 1;
  return strncmp(p, " null", 5) && strncmp(p, "null", 4) ? strtod(p, NULL) : (double)NAN;
}
static void near(double got, double want, double scale, const char *what) {
  if (!(fabs(got - want) <= 1e-12 * scale)) fail_msg("%s: %.17g, not %.17g", what, got, want);
}
/* What n numbers have, NaN left out. */
static void expect(
    const char *text, const char *label, int lag, int cell, const double *x, uint64_t n) {
  long double sum = 0, squares = 0;
  double least = INFINITY, most = -INFINITY;
  uint64_t count = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (isnan(x[i])) continue;
    count++;
    sum += x[i];
    least = fmin(least, x[i]);
    most = fmax(most, x[i]);
  }
  long double mean = sum / (long double)count;
  for (uint64_t i = 0; i < n; i++)
    if (!isnan(x[i])) squares += (x[i] - mean) * (x[i] - mean);
  double deviation = (double)sqrtl(squares / (long double)count);
  assert_true(number(text, label, lag, "count", cell) == (double)count);
  assert_true(number(text, label, lag, "missing", cell) == (double)(n - count));
  assert_true(number(text, label, lag, "min", cell) == least);
  assert_true(number(text, label, lag, "max", cell) == most);
  near(
      number(text, label, lag, "mean", cell), (double)mean, fabs((double)mean) + deviation, "mean");
  near(number(text, label, lag, "std", cell), deviation, deviation, "std");
}

static void against_two_passes(void **state) {
  (void)state;
  insitu_variable v[] = {one("t"), one("flat")};
  insitu_loader_desc d = desc_of(v, 2);
  const char *path = support_path("reference.json");
  uint64_t train = 1600;
  double *x = malloc(TIME * ROW * sizeof *x);
  scan(&d, path);
  char *text = slurp(path);
  HAS(text, "\"ranges\": [[0, 1600]]");
  HAS(text, "\"units\": \"K\"");
  HAS(text, "{\"start\": 7, \"stop\": 8, \"share\": 0.125}");
  HAS(text, "{\"start\": 9, \"stop\": 10, \"share\": 0.9375}");
  for (int level = 0; level < LEVEL; level++)
    for (int k = 0; k < 3; k++) {
      uint64_t lag = k ? lags[k - 1] : 0, n = 0;
      for (uint64_t t = lag; t < train; t++)
        for (uint64_t i = 0; i < LAT; i++) {
          uint64_t at = t * ROW + (uint64_t)level * LAT + i;
          x[n++] = lag ? values[at] - values[at - lag * ROW] : values[at];
        }
      expect(text, "t", (int)lag, level, x, n);
    }
  assert_true(number(text, "flat", 0, "std", 0) == 0 && number(text, "flat", 0, "mean", 0) == 4);
  double median = strtod(strstr(text, "\"quantiles\": [[") + 15, NULL);
  assert_true(median > 279.9 && median < 280.2); /* the first share: 0.001 */
  free(x);
  free(text);
}

/* Rows of several blocks; absent chunks are zeros, and told. */
static void long_rows(void **state) {
  (void)state;
  insitu_variable v = one("big");
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_scan_desc s = scan_of(&d, support_path("long.json"));
  insitu_error err;
  static double x[BIG * BIG * 12];
  s.split = INSITU_ALL;
  s.n_lags = 0;
  memcpy(x, field, sizeof x);
  for (uint64_t t = 0; t < 12; t++)
    for (uint64_t i = 0; i < BIG * BIG && (t + 1) % 5 == 0; i++) x[t * BIG * BIG + i] = 0;
  if (insitu_scan(&s, &err)) fail_msg("%s", err.message);
  char *text = slurp(s.path);
  uint64_t holes = 0;
  for (const char *p = text; (p = strstr(p, "\"absent\": 1")); p++) holes++;
  assert_true(holes == 2);
  expect(text, "big", 0, 0, x, BIG * BIG * 12);
  free(text);
}

static void any_threads_and_ranks(void **state) {
  (void)state;
  insitu_variable v[] = {one("t"), one("flat")};
  insitu_loader_desc d = desc_of(v, 2);
  char path[16][600], ref[512];
  insitu_error err;
  snprintf(ref, sizeof ref, "%s", support_path("any.json"));
  scan(&d, ref);
  for (int m = 0; m < MODES; m++)
    for (uint64_t threads = 1; mode_usable(m) && threads < 8; threads += threads == 1 ? 1 : 5) {
      d.decode_threads = threads;
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      const char *other = support_path("other.json");
      scan(&d, other);
      same_files(ref, other);
    }
  d.inline_io = 0;
  d.io = modes[any_mode()].io;
  for (int world = 2; world < 8; world += 5) {
    const char *parts[8];
    for (int r = 0; r < world; r++) {
      snprintf(path[r], sizeof path[r], "%s.%d", ref, r);
      d.rank = r;
      d.world = world;
      d.decode_threads = 1 + (uint64_t)r % 3;
      scan(&d, path[r]);
      parts[r] = path[r];
    }
    const char *merged = support_path("merged.json");
    for (int turn = 0; turn < 4; turn++) {
      for (int i = world - 1; i > 0; i--) {
        int k = (int)support_below((uint64_t)i + 1);
        const char *swap = parts[i];
        parts[i] = parts[k];
        parts[k] = swap;
      }
      if (insitu_scan_merge(parts, (uint64_t)world, merged, &err)) fail_msg("%s", err.message);
      same_files(ref, merged);
    }
    assert_int_equal(insitu_scan_merge(parts, (uint64_t)world - 1, merged, &err), INSITU_E_STATE);
    HAS(err.message, "parts are given");
    parts[0] = parts[1];
    assert_int_equal(insitu_scan_merge(parts, (uint64_t)world, merged, &err), INSITU_E_STATE);
    HAS(err.message, "twice");
    parts[0] = archive;
    assert_true(insitu_scan_merge(parts, (uint64_t)world, merged, &err) < 0);
    parts[0] = ref;
    assert_int_equal(insitu_scan_merge(parts, (uint64_t)world, merged, &err), INSITU_E_FORMAT);
  }
}

/* ---- interrupted ---- */

static int die_after;
static int die(void *user, uint64_t done, uint64_t total) {
  (void)user;
  assert_true(done <= total && total <= 1600);
  if (!die_after--) raise(SIGKILL);
  return 0;
}
static void killed(void **state) {
  (void)state;
  insitu_variable v[] = {one("t"), one("flat")};
  insitu_loader_desc d = desc_of(v, 2);
  char ref[512], path[512], part[600];
  snprintf(ref, sizeof ref, "%s", support_path("whole.json"));
  snprintf(path, sizeof path, "%s", support_path("killed.json"));
  snprintf(part, sizeof part, "%s.part", path);
  scan(&d, ref);
  for (int world = 0; world < 3; world += 2) {
    d.world = world;
    int kills = 0, resumed = 0;
    for (int tries = 0;; tries++) {
      assert_true(tries < 100);
      pid_t child = fork();
      if (!child) {
        insitu_scan_desc s = scan_of(&d, path);
        insitu_error err;
        s.checkpoint_s = 1e-9;
        s.progress = die;
        die_after = 2 + tries % 3;
        _exit(insitu_scan(&s, &err) != INSITU_OK);
      }
      int status;
      assert_true(waitpid(child, &status, 0) == child);
      resumed += !access(part, F_OK);
      if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        break;
      }
      assert_true(WTERMSIG(status) == SIGKILL);
      kills++;
    }
    assert_true(kills > 0 && resumed > 0);
    assert_true(access(part, F_OK) != 0);
    if (!world) {
      same_files(ref, path);
      continue;
    }
    char other[512], merged[512];
    insitu_error err;
    snprintf(other, sizeof other, "%s", support_path("second"));
    snprintf(merged, sizeof merged, "%s", support_path("joined.json"));
    d.rank = 1;
    scan(&d, other);
    if (insitu_scan_merge((const char *[]){other, path}, 2, merged, &err))
      fail_msg("%s", err.message);
    same_files(ref, merged);
  }
}

static int stop(void *user, uint64_t done, uint64_t total) {
  (void)user, (void)total;
  return done > 0;
}
/* Turns a bit of one byte of a file; at < 0: from its end. */
static void turn_bit(const char *path, long at) {
  FILE *f = fopen(path, "r+b");
  assert_non_null(f);
  assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
  int c = getc(f);
  fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
  putc(c ^ 16, f);
  fclose(f);
}
/* A checkpoint of another scan, one of another version of the library, and a damaged one. */
static void checkpoints(void **state) {
  (void)state;
  insitu_variable v[] = {one("t"), one("flat")};
  insitu_loader_desc d = desc_of(v, 2);
  char path[512], part[600];
  insitu_error err;
  snprintf(path, sizeof path, "%s", support_path("point.json"));
  snprintf(part, sizeof part, "%s.part", path);
  insitu_scan_desc s = scan_of(&d, path);
  s.checkpoint_s = 1e-9;
  s.progress = stop;
  d.decode_threads = 1;
  assert_int_equal(insitu_scan(&s, &err), INSITU_CANCELLED);
  assert_true(access(part, F_OK) == 0 && access(path, F_OK));
  s.n_lags = 1;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_STATE);
  HAS(err.message, "another scan");
  s.n_lags = 2;
  turn_bit(part, 7);
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_STATE);
  HAS(err.message, "another version");
  HAS(err.message, "point.json.part");
  HAS(err.message, "remove it");
  assert_int_equal(insitu_scan_merge((const char *[]){part}, 1, path, &err), INSITU_E_STATE);
  HAS(err.message, "another version");
  turn_bit(part, 7);
  turn_bit(part, 0);
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_FORMAT);
  HAS(err.message, "it is no checkpoint of a scan; remove it, or write to another path");
  assert_int_equal(insitu_scan_merge((const char *[]){part}, 1, path, &err), INSITU_E_FORMAT);
  HAS(err.message, "give what insitu_scan wrote with world > 1");
  turn_bit(part, 0);
  turn_bit(part, -900);
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_CORRUPT);
  HAS(err.message, "scan, checkpoint ");
  HAS(err.message, "damaged; remove it, and scan from the start");
  assert_int_equal(insitu_scan_merge((const char *[]){part}, 1, path, &err), INSITU_E_CORRUPT);
  HAS(err.message, "damaged; remove it, and scan that part again");
  assert_int_equal(unlink(part), 0);
}

/* ---- the loader reads it ---- */

static insitu_status open_with(insitu_loader_desc d, const char *stats, insitu_error *err) {
  insitu_loader *ld = NULL;
  d.stats = stats;
  insitu_status status = insitu_loader_open(&d, &ld, err);
  insitu_loader_close(&ld);
  return status;
}
static void normalised(void **state) {
  (void)state;
  insitu_variable v = one("t");
  v.ops = log_norm;
  v.n_ops = 2;
  v.dtype = INSITU_F32;
  insitu_loader_desc d = desc_of(&v, 1);
  char path[512];
  snprintf(path, sizeof path, "%s", support_path("norm.json"));
  insitu_error err;
  scan(&d, path);
  char *text = slurp(path);
  d.stats = path;
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b = NULL;
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  if (insitu_iter_open(
          ld, &(insitu_iter_desc){.api = INSITU_API, .order = INSITU_SEQUENTIAL}, &it, &err))
    fail_msg("%s", err.message);
  assert_int_equal(insitu_iter_next(it, INSITU_FOREVER, &b, &err), INSITU_OK);
  const float *x = b->arrays[0].data;
  for (uint64_t i = 0; i < b->rows * ROW; i++) {
    int level = (int)(i / LAT % LEVEL);
    double mean = number(text, "t", 0, "mean", level), std = number(text, "t", 0, "std", level);
    float want = ((float)values[i] + 1.5f - (float)mean) / (float)std;
    if (isnan(want) ? !isnan(x[i]) : x[i] != want)
      fail_msg("element %d: %.9g, not %.9g", (int)i, (double)x[i], (double)want);
  }
  insitu_batch_release(&b);
  insitu_iter_close(&it);

  double mean, std;
  for (int level = 0; level < LEVEL; level++) {
    assert_int_equal(insitu_loader_norm(ld, "t", (uint64_t)level, &mean, &std, &err), INSITU_OK);
    assert_true(mean == (double)(float)number(text, "t", 0, "mean", level));
    assert_true(std == (double)(float)number(text, "t", 0, "std", level));
  }
  assert_int_equal(insitu_loader_norm(ld, "t", LEVEL, &mean, &std, &err), INSITU_E_ARG);
  HAS(err.message, "none for index 3");
  assert_int_equal(insitu_loader_norm(ld, "T", 0, &mean, &std, &err), INSITU_E_NOTFOUND);
  HAS(err.message, "did you mean 't'");
  assert_int_equal(insitu_loader_norm(ld, NULL, 0, &mean, &std, &err), INSITU_E_ARG);
  insitu_loader_close(&ld);

  /* one level of it, and those in another order */
  v.select = "level=[2,0]";
  assert_int_equal(open_with(d, path, &err), INSITU_OK);
  v.select = "lat=[0:2]";
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "another selection");
  v.select = NULL;
  v.ops++;
  v.n_ops = 1;
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "other ops");
  HAS(err.message, "'t'");
  v.ops--;
  v.n_ops = 2;
  v.decode = INSITU_CF;
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "decode");
  v.decode = 0;
  assert_true(open_with(d, NULL, &err) < 0);
  HAS(err.message, "desc.stats");
  assert_int_equal(open_with(d, support_path("none.json"), &err), INSITU_E_NOTFOUND);
  d.split[INSITU_TRAIN].fraction = 0.5;
  d.split[INSITU_VAL].fraction = 0.5;
  assert_int_equal(open_with(d, path, &err), INSITU_E_SPLIT);
  HAS(err.message, "val");
  free(text);
}
/* Variables of one array that show other levels each find their own numbers. */
static void other_indexes(void **state) {
  (void)state;
  static const char *const labels[] = {"low", "high"};
  static const int levels[][2] = {{0, 0}, {2, 1}}; /* of each index that a variable shows */
  const insitu_op norm = {.kind = INSITU_OP_NORM};
  insitu_variable v[] = {one("t"), one("t")};
  for (int i = 0; i < 2; i++) v[i].label = labels[i], v[i].ops = &norm, v[i].n_ops = 1;
  v[0].select = "level=[0]";
  v[1].select = "level=[2,1]";
  insitu_loader_desc d = desc_of(v, 2);
  insitu_error err;
  const char *path = support_path("others.json");
  scan(&d, path);
  char *text = slurp(path);
  insitu_loader *ld = NULL;
  d.stats = path;
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
  for (int i = 0; i < 2; i++)
    for (int k = 0; k <= i; k++) {
      double mean, std;
      assert_int_equal(
          insitu_loader_norm(ld, labels[i], (uint64_t)k, &mean, &std, NULL), INSITU_OK);
      assert_true(mean == (double)(float)number(text, labels[i], 0, "mean", k));
      near(mean, levels[i][k] == 0 ? 285 : levels[i][k] == 1 ? 1e5 + 0.5 : 0, 2e11, "mean");
    }
  insitu_loader_close(&ld);
  v[1].select = "level=[0,2]"; /* half of it in each entry */
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "it has no index 0 of axis 1");
  free(text);
}
/* A number that an operation has no use for tells no files apart. */
static void unused_numbers(void **state) {
  (void)state;
  insitu_op ops[] = {{.kind = INSITU_OP_SHIFT, .a = 1.5, .b = 7}, {.kind = INSITU_OP_NORM}};
  insitu_variable v = one("t");
  v.ops = ops;
  v.n_ops = 2;
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_error err;
  const char *path = support_path("unused.json");
  scan(&d, path);
  ops[0].b = 0;
  if (open_with(d, path, &err)) fail_msg("%s", err.message);
  ops[0].a = 2;
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "other ops");
}
static void no_deviation(void **state) {
  (void)state;
  const insitu_op norm = {.kind = INSITU_OP_NORM};
  insitu_variable v[] = {one("flat"), one("t")};
  v[0].ops = &norm;
  v[0].n_ops = 1;
  insitu_loader_desc d = desc_of(v, 1);
  insitu_error err;
  const char *path = support_path("flat.json");
  scan(&d, path);
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "flat");
  HAS(err.message, "index 0");
  HAS(err.message, "deviation is 0");
  d.variables = v + 1;
  v[1].ops = &norm;
  v[1].n_ops = 1;
  assert_int_equal(open_with(d, path, &err), INSITU_E_ARG);
  HAS(err.message, "no statistics of this array");
}
static void refused(void **state) {
  (void)state;
  insitu_variable v = one("t");
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_error err;
  insitu_scan_desc s = scan_of(&d, "/nowhere/at/all.json");
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_IO);
  HAS(err.message, "can be written");
  s = scan_of(&d, "/dev/null");
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_IO);
  s = scan_of(&d, support_path("r.json"));
  s.api = 1;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_API);
  assert_int_equal(insitu_scan(NULL, &err), INSITU_E_ARG);
  s.api = INSITU_API;
  s.lags = (const uint64_t[]){0, 1};
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  s.lags = lags;
  static const char *const no_dims[] = {"levle", "time"};
  for (int i = 0; i < 2; i++) {
    s.dim = no_dims[i];
    assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
    HAS(err.message, "no variable has an axis");
  }
  s.dim = "level";
  s.split = 4;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  s.split = 0;
  d.rank = 3;
  d.world = 2;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  d.rank = d.world = 0;
  static const double no_seconds[] = {-1, __builtin_nan("")};
  for (int i = 0; i < 2; i++) {
    s.checkpoint_s = no_seconds[i];
    assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
    HAS(err.message, "checkpoint_s");
  }
  s.checkpoint_s = 0;
  d.n_variables = UINT64_MAX; /* no list is looked at behind its end */
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  HAS(err.message, "n_variables is 18446744073709551615");
  d.n_variables = 1;
  insitu_axis axis = {.axis = 0};
  d.axes = &axis;
  d.n_axes = UINT64_MAX;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  HAS(err.message, "n_axes is 18446744073709551615");
  d.axes = NULL;
  d.n_axes = 0;
  insitu_op op = {.kind = INSITU_OP_SCALE, .a = 2};
  v.ops = &op;
  v.n_ops = UINT64_MAX;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_ARG);
  HAS(err.message, "n_ops");
  v.n_ops = 0;
  d.memory_budget = 3 << 20;
  assert_true(insitu_scan(&s, &err) < 0);
}

/* What insitu_scan_merge is given instead of parts. */
static void no_parts(void **state) {
  (void)state;
  insitu_variable v = one("t");
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_error err;
  char whole[512], path[512];
  snprintf(whole, sizeof whole, "%s", support_path("whole.json"));
  snprintf(path, sizeof path, "%s", support_path("no_parts.json"));
  scan(&d, whole);
  const char *const parts[] = {whole}, *const none[] = {NULL};
  assert_int_equal(insitu_scan_merge(NULL, 1, path, &err), INSITU_E_ARG);
  assert_int_equal(insitu_scan_merge(parts, 0, path, &err), INSITU_E_ARG);
  assert_int_equal(insitu_scan_merge(parts, 1, "", &err), INSITU_E_ARG);
  assert_int_equal(insitu_scan_merge(none, 1, path, &err), INSITU_E_ARG);
  HAS(err.message, "parts[0] is NULL");
  assert_int_equal(insitu_scan_merge(parts, 1, path, &err), INSITU_E_FORMAT);
  HAS(err.message, "it is no part of a scan");
  assert_int_not_equal(access(path, F_OK), 0);
}

/* on_batch never sees the arrays of a scan, and dtype changes nothing. */
static insitu_status never(void *user, insitu_batch *b, const uint64_t *keys, insitu_error *err) {
  (void)user, (void)b, (void)keys, (void)err;
  return INSITU_E_ARG;
}
static void of_the_output(void **state) {
  (void)state;
  insitu_variable v[] = {one("t"), one("flat")};
  const insitu_output extra = {.label = "extra", .dtype = INSITU_F32};
  insitu_loader_desc d = desc_of(v, 2);
  char ref[512], path[512];
  snprintf(ref, sizeof ref, "%s", support_path("plain.json"));
  snprintf(path, sizeof path, "%s", support_path("output.json"));
  scan(&d, ref);
  d.on_batch = never;
  d.outputs = &extra;
  d.n_outputs = 1;
  v[0].dtype = v[1].dtype = INSITU_F16;
  scan(&d, path);
  same_files(ref, path);
}
/* Subnormal numbers are zero: what -ffast-math sets at a program's start. */
static void flush_to_zero(bool on) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(on ? 0x9fc0 : 0x1f80);
#else
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)on << 24));
#endif
}
static bool flushes(void) {
  volatile double x = 0x1p-1022;
  x /= 2;
  return x == 0;
}
/* A scan does not mind the caller's floating-point controls, and leaves them as they were. */
static void caller_flushes(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* its arithmetic has no such controls */
  static double x[40];
  const char *root = archive;
  for (int i = 0; i < 40; i++) x[i] = 0x1p-1030 * (i - 7);
  const struct support_array a = {.name = "small",
      .ndim = 1,
      .shape = {40},
      .chunk = {8},
      .dtype = INSITU_F64,
      .format = 3,
      .values = x,
      .dims = "[\"time\"]"};
  support_make(archive = support_path("small.zarr"), &a);
  insitu_variable v = one("small");
  insitu_loader_desc d = desc_of(&v, 1);
  char ref[512], path[512], part[2][528], merged[512];
  snprintf(ref, sizeof ref, "%s", support_path("kept.json"));
  snprintf(path, sizeof path, "%s", support_path("flushed.json"));
  snprintf(merged, sizeof merged, "%s", support_path("flushed.merged"));
  d.decode_threads = 1; /* the caller's thread measures */
  insitu_scan_desc s = scan_of(&d, ref);
  insitu_error err;
  s.n_lags = 1;
  assert_int_equal(insitu_scan(&s, &err), INSITU_OK);
  flush_to_zero(true);
  s.path = path;
  insitu_status status = insitu_scan(&s, &err);
  bool still = flushes();
  flush_to_zero(false);
  assert_int_equal(status, INSITU_OK);
  assert_true(still);
  same_files(ref, path);

  d.world = 2;
  for (d.rank = 0; d.rank < 2; d.rank++) {
    snprintf(part[d.rank], sizeof part[0], "%s.%d", path, d.rank);
    s.path = part[d.rank];
    assert_int_equal(insitu_scan(&s, &err), INSITU_OK);
  }
  flush_to_zero(true);
  status = insitu_scan_merge((const char *[]){part[0], part[1]}, 2, merged, &err);
  still = flushes();
  flush_to_zero(false);
  assert_int_equal(status, INSITU_OK);
  assert_true(still);
  same_files(ref, merged);
  archive = root;
}
/* Each index of dim has sums of about 6 KB, which memory_budget must have room for. */
static void long_dim(void **state) {
  (void)state;
  enum { LONG = 3000 };
  static double x[2 * LONG];
  const char *root = archive;
  for (int i = 0; i < 2 * LONG; i++) x[i] = i % LONG;
  const struct support_array a = {.name = "t",
      .ndim = 2,
      .shape = {2, LONG},
      .chunk = {1, LONG},
      .dtype = INSITU_F32,
      .format = 3,
      .values = x,
      .dims = "[\"time\",\"level\"]"};
  support_make(archive = support_path("wide.zarr"), &a);
  insitu_variable v = one("t");
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_scan_desc s = scan_of(&d, support_path("wide.json"));
  insitu_error err;
  s.split = INSITU_ALL;
  s.n_lags = 0;
  d.memory_budget = 32 << 20;
  assert_int_equal(insitu_scan(&s, &err), INSITU_E_BUDGET);
  HAS(err.message, "memory_budget");
  HAS(err.message, "indexes of dim");
  d.memory_budget = 256 << 20;
  if (insitu_scan(&s, &err)) fail_msg("%s", err.message);
  char *text = slurp(s.path);
  assert_true(number(text, "t", 0, "mean", LONG - 1) == LONG - 1);
  free(text);
  archive = root;
}
/* More ranks than samples, with lags. */
static void empty_ranks(void **state) {
  (void)state;
  enum { WORLD = 14 };
  insitu_variable v = one("big");
  insitu_loader_desc d = desc_of(&v, 1);
  char ref[512], path[WORLD][528], merged[512];
  const char *parts[WORLD];
  insitu_error err;
  snprintf(ref, sizeof ref, "%s", support_path("few.json"));
  snprintf(merged, sizeof merged, "%s", support_path("few.merged"));
  scan(&d, ref);
  d.world = WORLD;
  for (int r = 0; r < WORLD; r++) {
    snprintf(path[r], sizeof path[r], "%s.%d", ref, r);
    d.rank = r;
    scan(&d, path[r]);
    parts[r] = path[r];
  }
  if (insitu_scan_merge(parts, WORLD, merged, &err)) fail_msg("%s", err.message);
  same_files(ref, merged);
}
/* A file whose ranges are gone or malformed may have seen any sample. */
static void bad_ranges(void **state) {
  (void)state;
  static const char *const bad[] = {"[[-1,2000]]", "[]", "[[5]]", "[[0,9],7]", "7"};
  static const int64_t listed[] = {3, 4, 90};
  const insitu_op norm = {.kind = INSITU_OP_NORM};
  insitu_variable v = one("t");
  v.ops = &norm;
  v.n_ops = 1;
  insitu_loader_desc d = desc_of(&v, 1);
  insitu_error err;
  char path[512];
  snprintf(path, sizeof path, "%s", support_path("ranges.json"));
  scan(&d, path);
  assert_int_equal(open_with(d, path, &err), INSITU_OK);
  d.samples = listed; /* ranges of listed samples are told, too */
  d.n_samples = 3;
  insitu_scan_desc all = scan_of(&d, path);
  all.split = INSITU_ALL;
  all.n_lags = 0;
  if (insitu_scan(&all, &err)) fail_msg("%s", err.message);
  if (open_with(d, path, &err) == INSITU_E_FORMAT) fail_msg("%s", err.message);
  d.samples = NULL;
  d.n_samples = 0;
  scan(&d, path);
  char *text = slurp(path), *at = strstr(text, "[[0, 1600]]");
  assert_non_null(at);
  for (int i = 0; i < 5; i++) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, bad[i], at + strlen("[[0, 1600]]"));
    fclose(f);
    assert_int_equal(open_with(d, path, &err), INSITU_E_FORMAT);
    HAS(err.message, "ranges");
  }
  free(text);
}

/* ---- rows that stay in their files ---- */

enum { Y = 200, X = 800, LEFT = 4, HALF = 512 << 10 }; /* HALF: bytes that are read at once */
static double shown[LEFT * Y * X];
static const char *left_root;

/* Rows of one and a ragged piece, or two of float64. In sample 1 elements are missing on both sides
 * of where a piece of float32, of float64, and of a part of a row ends; in sample 2 more than a
 * block of them; in sample 3 all. */
static const struct support_array left_arrays[] = {
    {.name = "raw", .chunk = {4, Y, X}, .dtype = INSITU_F32},
    {.name = "parts", .chunk = {4, Y / 2, X}, .dtype = INSITU_F32},
    {.name = "uneven", .chunk = {4, 120, X}, .dtype = INSITU_F32},
    {.name = "shard", .chunk = {2, Y, X}, .dtype = INSITU_F32, .shard = {2, 1, 1}},
    {.name = "big", .chunk = {4, Y, X}, .dtype = INSITU_F32, .big = true},
    {.name = "wide", .chunk = {2, Y, X}, .dtype = INSITU_F64}};
enum { RAW, LEFT_ARRAYS = 6 };

static void make_left(int i) {
  struct support_array a = left_arrays[i];
  a.ndim = 3;
  a.format = 3;
  a.values = shown;
  a.dims = "[\"time\",\"y\",\"x\"]";
  memcpy(a.shape, (uint64_t[]){LEFT, Y, X}, 3 * sizeof *a.shape);
  support_make(left_root, &a);
}
static void make_left_archive(void) {
  const uint64_t row = Y * X;
  left_root = strdup(support_path("left.zarr"));
  for (uint64_t i = 0; i < LEFT * row; i++)
    shown[i] = (double)(float)(1000 + 50 * sin((double)i * 1e-4) +
                               (double)support_below(1 << 20) / (1 << 20));
  for (uint64_t end = HALF / 8; end <= HALF / 4; end += HALF / 8)
    for (uint64_t k = end - 2; k < end + 3; k++) shown[row + k] = NAN;
  for (uint64_t k = row / 2 - 1; k <= row / 2; k++) shown[row + k] = NAN;
  for (uint64_t k = 9; k < 9000; k++) shown[2 * row + k] = NAN;
  for (uint64_t k = 0; k < row; k++) shown[3 * row + k] = NAN;
  for (int i = 0; i < LEFT_ARRAYS; i++) make_left(i);
}
/* Receipts look at all bytes of batches, so that nothing stays in files. */
static insitu_loader_desc left_desc(const insitu_variable *v, bool plain) {
  insitu_loader_desc d = desc_of(v, 1);
  d.url = left_root;
  d.receipts = plain ? INSITU_RECEIPT_BYTES : 0;
  return d;
}
static insitu_status left_scan(
    const insitu_loader_desc *d, const char *dim, const char *path, insitu_error *err) {
  return insitu_scan(
      &(insitu_scan_desc){
          .api = INSITU_API, .loader = d, .path = path, .dim = dim, .split = INSITU_ALL},
      err);
}

/* Cells end within pieces (y), or are all over the row (x). */
static void left_in_files(void **state) {
  (void)state;
  static const char *const dims[] = {NULL, "y", "x"};
  static const uint64_t threads[] = {1, 2, 7};
  char ref[512], path[512];
  insitu_error err;
  int turn = 0;
  snprintf(ref, sizeof ref, "%s", support_path("read.json"));
  snprintf(path, sizeof path, "%s", support_path("left.json"));
  for (int i = 0; i < LEFT_ARRAYS; i++)
    for (int k = 0; k < (i % 2 ? 2 : 3); k++) {
      insitu_variable v = one(left_arrays[i].name);
      insitu_loader_desc plain = left_desc(&v, true), d = left_desc(&v, false);
      if (left_scan(&plain, dims[k], ref, &err)) fail_msg("%s", err.message);
      do {
        int m = turn % MODES;
        if (mode_usable(m)) d.io = modes[m].io;
        d.inline_io = mode_usable(m) && modes[m].inline_io;
        d.decode_threads = threads[turn % 3];
        d.memory_budget = turn % 5 == 4 ? 96 << 20 : 0; /* no room for pieces of many threads */
        if (left_scan(&d, dims[k], path, &err)) fail_msg("%s", err.message);
        same_files(ref, path);
      } while (++turn % 3 && i == RAW);
      if (k) continue;
      char *text = slurp(path);
      expect(text, left_arrays[i].name, 0, 0, shown, LEFT * Y * X);
      free(text);
    }
}

/* Whether this process has a file of the array open. */
static bool left_open(const char *name) {
  char link[64], to[1024], part[64];
  snprintf(part, sizeof part, "left.zarr/%s/c", name);
  for (int fd = 0; fd < 200; fd++) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, to, sizeof to - 1);
    if (n < 0) continue;
    to[n] = 0;
    if (strstr(to, part)) return true;
  }
  return false;
}
/* RESOLVE_CACHED and RWF_NOWAIT: without these a loader never leaves anything in a file. On tmpfs
 * reads need no such flag. */
static bool left_usable(const char *path) {
  const uint64_t how[3] = {O_RDONLY | O_CLOEXEC, 0, 0x20};
  char byte;
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how);
  if (fd < 0) return false;
  struct statfs fs;
  bool memory = !fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC;
  ssize_t n = preadv2(fd, &(struct iovec){&byte, 1}, 1, 0, memory ? 0 : RWF_NOWAIT);
  close(fd);
  return n == 1;
}
static const char *left_name;
static char left_file[512];
static bool left_seen;
/* Waits until rows are left in a file of the array, where this machine lets a loader leave them. */
static int look(void *user, uint64_t done, uint64_t total) {
  (void)user, (void)done, (void)total;
  bool usable = left_usable(left_file);
  for (int i = 0; i < 20000 && usable && !left_seen; i++) {
    left_seen = left_open(left_name);
    if (!left_seen) usleep(100);
  }
  return 0;
}
/* The same, and then cuts the file within their second piece. */
static int cut(void *user, uint64_t done, uint64_t total) {
  look(user, done, total);
  assert_int_equal(left_seen, left_usable(left_file));
  if (truncate(left_file, HALF + 5000)) fail_msg("%s", strerror(errno));
  return 0;
}
/* A file that becomes shorter while it is measured is what it is to those who read it later: an
 * error, or a chunk that is filled. */
static void cut_short(void **state) {
  (void)state;
  insitu_variable v = one("raw");
  insitu_error err, other;
  char ref[512], path[512];
  snprintf(ref, sizeof ref, "%s", support_path("cut.read.json"));
  snprintf(path, sizeof path, "%s", support_path("cut.json"));
  snprintf(left_file, sizeof left_file, "%s/raw/c/0/0/0", left_root);
  left_name = "raw";
  if (!left_usable(left_file)) skip(); /* a loader may have read the file before it is cut */
  for (int fill = 0; fill < 2; fill++) {
    insitu_loader_desc plain = left_desc(&v, true), d = left_desc(&v, false);
    insitu_scan_desc s = {
        .api = INSITU_API, .loader = &d, .path = path, .split = INSITU_ALL, .progress = cut};
    left_seen = false;
    d.on_bad_chunk = plain.on_bad_chunk = fill ? INSITU_FILL : 0;
    insitu_status status = insitu_scan(&s, &err);
    insitu_status want = left_scan(&plain, NULL, ref, &other);
    assert_int_equal(status, want);
    assert_int_equal(status, fill ? INSITU_OK : INSITU_E_CORRUPT);
    if (!fill) assert_string_equal(err.message, other.message);
    else same_files(ref, path);
    char *text = fill ? slurp(path) : strdup("\"bad\": 1");
    HAS(text, "\"bad\": 1");
    free(text);
    make_left(RAW);
  }
  insitu_loader_desc d = left_desc(&v, false); /* nor is one that is too long */
  if (truncate(left_file, LEFT * Y * X * 4 + 1)) fail_msg("%s", strerror(errno));
  assert_int_equal(left_scan(&d, NULL, path, &err), INSITU_E_CORRUPT);
  make_left(RAW);
}

/* Rows of a chunk, of parts of a row and of wide elements are left. Others are read, for which
 * their file is open, too, but not for long; and a shard's is open for reads of its index. */
static void which_are_left(void **state) {
  (void)state;
  char path[512];
  insitu_error err;
  snprintf(path, sizeof path, "%s", support_path("which.json"));
  snprintf(left_file, sizeof left_file, "%s/raw/c/0/0/0", left_root);
  for (int i = 0; i < LEFT_ARRAYS; i++) {
    if (left_arrays[i].big || left_arrays[i].shard[0]) continue;
    insitu_variable v = one(left_arrays[i].name);
    insitu_loader_desc d = left_desc(&v, false);
    insitu_scan_desc s = {
        .api = INSITU_API, .loader = &d, .path = path, .split = INSITU_ALL, .progress = look};
    left_name = left_arrays[i].name;
    left_seen = false;
    if (insitu_scan(&s, &err)) fail_msg("%s", err.message);
    if (left_seen != left_usable(left_file)) fail_msg("%s", left_name);
  }
}

/* Ranks, and what goes on after SIGKILL. */
static void left_and_killed(void **state) {
  (void)state;
  insitu_variable v = one("wide");
  insitu_loader_desc plain = left_desc(&v, true), d = left_desc(&v, false);
  char ref[512], path[2][528], part[600];
  insitu_error err;
  snprintf(ref, sizeof ref, "%s", support_path("left.ref"));
  for (int r = 0; r < 2; r++) snprintf(path[r], sizeof path[r], "%s.%d", ref, r);
  snprintf(part, sizeof part, "%s.part", path[0]);
  if (left_scan(&plain, "y", ref, &err)) fail_msg("%s", err.message);
  pid_t child = fork();
  if (!child) {
    insitu_scan_desc s = {.api = INSITU_API,
        .loader = &d,
        .path = path[0],
        .dim = "y",
        .split = INSITU_ALL,
        .checkpoint_s = 1e-9,
        .progress = die};
    d.decode_threads = 1;
    die_after = 1;
    _exit(insitu_scan(&s, &err) != INSITU_OK);
  }
  int status;
  assert_true(waitpid(child, &status, 0) == child);
  assert_true(WIFSIGNALED(status) && access(part, F_OK) == 0);
  if (left_scan(&d, "y", path[0], &err)) fail_msg("%s", err.message);
  same_files(ref, path[0]);
  d.world = 2;
  for (d.rank = 0; d.rank < 2; d.rank++)
    if (left_scan(&d, "y", path[d.rank], &err)) fail_msg("%s", err.message);
  if (insitu_scan_merge((const char *[]){path[1], path[0]}, 2, part, &err))
    fail_msg("%s", err.message);
  same_files(ref, part);
}

/* ---- chunks with codecs that stay in their files ---- */

enum { SHUFFLED, BITS, UNSHUFFLED, STORED, ZSTD, GZIP, PLAIN, CODECS };
/* An array of three axes. STORED: blosc that compresses nothing. */
struct coded {
  int codec;
  uint64_t shape[3], chunk[3];
  size_t block; /* bytes of blosc's blocks, or so; 0: blosc chooses */
  bool wide, big;
  uint64_t absent; /* chunks that are not written: each whose number is a multiple; 0: none */
};
static double coded_value(uint64_t i) {
  if (i % 50021 == 7 || (i / 9000) % 41 == 5) return NAN;
  return (double)(i % 65536) / 8192 - 4 + (double)(i * 2654435761u % 4096) / 4096;
}
/* What the chunk with these indexes decodes to. */
static unsigned char *coded_plain(const struct coded *c, const uint64_t *index, size_t *n) {
  size_t item = c->wide ? 8 : 4, i = 0;
  unsigned char *to = calloc(c->chunk[0] * c->chunk[1] * c->chunk[2], item);
  for (uint64_t z = 0; z < c->chunk[0]; z++)
    for (uint64_t y = 0; y < c->chunk[1]; y++, i += c->chunk[2]) {
      uint64_t at[2] = {index[0] * c->chunk[0] + z, index[1] * c->chunk[1] + y};
      uint64_t from = index[2] * c->chunk[2], n_inside = c->shape[2] - from;
      uint64_t flat = (at[0] * c->shape[1] + at[1]) * c->shape[2] + from;
      if (at[0] >= c->shape[0] || at[1] >= c->shape[1]) continue;
      for (uint64_t x = 0; x < c->chunk[2] && x < n_inside; x++) {
        double value = coded_value(flat + x);
        if (c->big)
          support_put(to + (i + x) * item, c->wide ? INSITU_F64 : INSITU_F32, true, value);
        else if (c->wide) ((double *)(void *)to)[i + x] = value;
        else ((float *)(void *)to)[i + x] = (float)value;
      }
    }
  *n = i * item;
  return to;
}
static size_t coded_pack(const struct coded *c, const void *plain, size_t n, void *to, size_t cap) {
  static const int filters[] = {BLOSC_SHUFFLE, BLOSC_BITSHUFFLE, BLOSC_NOSHUFFLE, BLOSC_SHUFFLE};
  size_t got = n;
  if (c->codec <= STORED)
    got = (size_t)blosc_compress_ctx(c->codec == STORED ? 0 : 5, filters[c->codec], c->wide ? 8 : 4,
        n, plain, to, cap, c->codec == BITS ? "zstd" : "lz4", c->block, 1);
  else if (c->codec == GZIP) got = gzip_pack(plain, n, to, cap);
  else if (c->codec == ZSTD) {
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
    got = ZSTD_compress2(z, to, cap, plain, n);
    ZSTD_freeCCtx(z);
  } else memcpy(to, plain, n);
  return got;
}
static void make_coded(const struct coded *c, const char *name) {
  static const char *const codecs[CODECS] = {[ZSTD] = "zstd\",\"configuration\":{\"level\":1,"
                                                      "\"checksum\":true}",
      [GZIP] = "gzip\",\"configuration\":{\"level\":1}"};
  char path[700], text[1500], codec[200] = "";
  uint64_t grid[3], number = 0, index[3];
  if (c->codec <= STORED)
    snprintf(codec, sizeof codec,
        ",{\"name\":\"blosc\",\"configuration\":{\"cname\":\"lz4\",\"clevel\":5,\"shuffle\":"
        "\"shuffle\",\"typesize\":%d,\"blocksize\":0}}",
        c->wide ? 8 : 4);
  else if (codecs[c->codec]) snprintf(codec, sizeof codec, ",{\"name\":\"%s}", codecs[c->codec]);
  snprintf(text, sizeof text,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%d,%d,%d],\"data_type\":\"float%d\","
      "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[%d,%d,%d]}},"
      "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0.5,\"codecs\":[{\"name\":"
      "\"bytes\",\"configuration\":{\"endian\":\"%s\"}}%s],\"dimension_names\":[\"time\",\"y\","
      "\"x\"]}",
      (int)c->shape[0], (int)c->shape[1], (int)c->shape[2], c->wide ? 64 : 32, (int)c->chunk[0],
      (int)c->chunk[1], (int)c->chunk[2], c->big ? "big" : "little", codec);
  snprintf(path, sizeof path, "rm -rf '%s/%s'", left_root, name);
  assert_int_equal(system(path), 0);
  snprintf(path, sizeof path, "%s/%s/zarr.json", left_root, name);
  support_write(path, text, strlen(text));
  for (int d = 0; d < 3; d++) grid[d] = (c->shape[d] + c->chunk[d] - 1) / c->chunk[d];
  for (index[0] = 0; index[0] < grid[0]; index[0]++)
    for (index[1] = 0; index[1] < grid[1]; index[1]++)
      for (index[2] = 0; index[2] < grid[2]; index[2]++, number++) {
        size_t n;
        if (c->absent && number % c->absent == 0) continue;
        unsigned char *plain = coded_plain(c, index, &n), *packed = malloc(n + n / 8 + 65536);
        n = coded_pack(c, plain, n, packed, n + n / 8 + 65536);
        snprintf(path, sizeof path, "%s/%s/c/%d/%d/%d", left_root, name, (int)index[0],
            (int)index[1], (int)index[2]);
        support_write(path, packed, n);
        free(plain);
        free(packed);
      }
}

/* What is done to left_file once it is left, by `see`; its size is left_bytes. */
enum { NOTHING, CUT_SHORT, TURN, FAIL_READS, HURTS };
static int left_hurt; /* -1: it was done */
static atomic_int failing, failed;
/* Before the first batch: waits until the file is left. */
static int see(void *user, uint64_t done, uint64_t total) {
  if (left_hurt < 0) return 0;
  look(user, done, total);
  if (left_seen != left_usable(left_file))
    fail_msg("rows of %s are not left in its files", left_name);
  int fd = open(left_file, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  off_t n = lseek(fd, 0, SEEK_END);
  if (left_hurt == CUT_SHORT) assert_int_equal(ftruncate(fd, n / 2), 0);
  if (left_hurt == TURN) { /* where blosc's second block starts; the last byte of zstd's sum */
    assert_int_equal(pwrite(fd, "\377\377\377\377", 4, 20), 4);
    assert_int_equal(pwrite(fd, "\1\2\3\4", 4, n - 4), 4);
  }
  close(fd);
  if (left_hurt == FAIL_READS && left_seen) atomic_store(&failing, 1);
  left_hurt = -1;
  return 0;
}
/* Stands before the C library's: reads of files of left.zarr fail while `failing` is set. */
ssize_t pread(int fd, void *to, size_t n, off_t at) {
  char link[64], name[1024] = "";
  if (atomic_load(&failing)) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "left.zarr")) {
      atomic_store(&failing, 0);
      atomic_fetch_add(&failed, 1);
      errno = EIO;
      return -1;
    }
  }
  return (ssize_t)syscall(SYS_pread64, fd, to, n, at);
}
static insitu_status coded_scan(
    const insitu_loader_desc *d, int hurt, const char *path, insitu_error *err) {
  insitu_scan_desc s = {
      .api = INSITU_API, .loader = d, .path = path, .split = INSITU_ALL, .progress = see};
  left_hurt = hurt;
  left_seen = false;
  return insitu_scan(&s, err);
}
/* 4 rows of 312 KiB are a batch, and one of 4 rows of 2.25 MiB: a thread takes four of these. What
 * becomes wrong meanwhile is what it is to those who read it later; a read that fails is repeated
 * by the loader. */
static void coded_and_hurt(void **state) {
  (void)state;
  char ref[512], path[512];
  insitu_variable v = one("coded");
  insitu_error err, other;
  snprintf(ref, sizeof ref, "%s", support_path("coded.read.json"));
  snprintf(path, sizeof path, "%s", support_path("coded.json"));
  snprintf(left_file, sizeof left_file, "%s/coded/c/0/0/0", left_root);
  left_name = "coded";
  for (int codec = 0; codec < CODECS; codec++)
    for (int hurt = 0; hurt < HURTS; hurt++) {
      /* a third of the pairs: each codec and each hurt is in some of them */
      if (support_slow() && (codec + hurt) % 3) continue;
      for (int fill = 0; fill < (hurt == CUT_SHORT || hurt == TURN ? 2 : 1); fill++) {
        uint64_t x = (codec + hurt) % 4 == 1 && codec < PLAIN ? 147456 : 20000;
        struct coded c = {.codec = codec, .shape = {5, 4, x}, .chunk = {4, 4, x}, .block = 1 << 16};
        insitu_loader_desc plain = left_desc(&v, true), d = left_desc(&v, false);
        plain.on_bad_chunk = d.on_bad_chunk = fill ? INSITU_FILL : 0;
        d.decode_threads = 1 + (uint64_t)hurt;
        make_coded(&c, "coded");
        /* else the loader may have read the file before it is changed */
        if ((hurt == CUT_SHORT || hurt == TURN) && !left_usable(left_file)) continue;
        atomic_store(&failed, 0);
        insitu_status status = coded_scan(&d, hurt, path, &err);
        bool left = left_seen;
        assert_int_equal(atomic_load(&failed), left && hurt == FAIL_READS);
        insitu_status want = left_scan(&plain, NULL, ref, &other);
        if (status != want) fail_msg("%d %d: %s; %s", codec, hurt, err.message, other.message);
        if (status) assert_string_equal(err.message, other.message);
        else same_files(ref, path);
        bool harmless = hurt == NOTHING || hurt == FAIL_READS ||
                        (hurt == TURN && codec != SHUFFLED && codec != BITS &&
                            codec != UNSHUFFLED && codec != ZSTD && codec != GZIP);
        assert_int_equal(status != INSITU_OK, !harmless && !fill);
        unlink(path);
      }
    }
}
/* Any geometry: the same bytes whoever decodes. */
static void coded_as_read(void **state) {
  (void)state;
  char ref[512], path[512];
  insitu_variable v = one("coded");
  insitu_error err;
  snprintf(ref, sizeof ref, "%s", support_path("any.read.json"));
  snprintf(path, sizeof path, "%s", support_path("any.json"));
  for (int i = 1; i < 36; i += support_slow() ? 2 : 1) {
    struct coded c = {.codec = i % CODECS, .wide = support_below(3) == 0};
    bool narrow = i % 5 == 4; /* many short strips for each index of x */
    uint64_t y = narrow ? 3000 : 1 + support_below(5),
             bytes = (64 << 10) + support_below(400 << 10);
    uint64_t x = bytes / y / (c.wide ? 8 : 4) + 1;
    c.big = support_below(8) == 0;
    c.absent = support_below(4) ? 0 : 2 + support_below(2);
    c.block = support_below(3) ? (16 << 10) + support_below(1 << 20) : 0;
    memcpy(c.shape, (uint64_t[]){1 + support_below(9), y, x}, sizeof c.shape);
    memcpy(c.chunk, (uint64_t[]){1 + support_below(4), y, x}, sizeof c.chunk);
    if (i % 6 == 5) c.chunk[1] = 1 + support_below(y);
    bool large = i % 12 == 3;
    if (large) c.shape[0] = 6, c.chunk[0] = 4, c.shape[2] = c.chunk[2] = x * 6;
    make_coded(&c, "coded");
    insitu_loader_desc plain = left_desc(&v, true), d = left_desc(&v, false);
    const char *dim = narrow && !large ? "x" : support_below(2) && !narrow ? "y" : NULL;
    int m = (int)support_below(MODES);
    if (mode_usable(m)) d.io = modes[m].io;
    d.inline_io = mode_usable(m) && modes[m].inline_io;
    d.decode_threads = 1 + support_below(4);
    if (support_below(4) == 0) d.memory_budget = 400 << 20; /* room for small chunks alone */
    if (left_scan(&plain, dim, ref, &err)) fail_msg("%d: %s", i, err.message);
    if (left_scan(&d, dim, path, &err)) fail_msg("%d: %s", i, err.message);
    same_files(ref, path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(against_two_passes),
      cmocka_unit_test(long_rows), cmocka_unit_test(any_threads_and_ranks),
      cmocka_unit_test(killed), cmocka_unit_test(checkpoints), cmocka_unit_test(normalised),
      cmocka_unit_test(other_indexes), cmocka_unit_test(unused_numbers),
      cmocka_unit_test(no_deviation), cmocka_unit_test(of_the_output),
      cmocka_unit_test(caller_flushes), cmocka_unit_test(long_dim), cmocka_unit_test(empty_ranks),
      cmocka_unit_test(bad_ranges), cmocka_unit_test(left_in_files), cmocka_unit_test(cut_short),
      cmocka_unit_test(which_are_left), cmocka_unit_test(left_and_killed),
      cmocka_unit_test(coded_and_hurt), cmocka_unit_test(coded_as_read), cmocka_unit_test(refused),
      cmocka_unit_test(no_parts)};
  void *none = NULL;
  support_setup(&none);
  make_archive();
  make_left_archive();
  return cmocka_run_group_tests(tests, NULL, support_teardown);
}
