/* Reads archives from one server through the public functions, and compares with the same archives
 * as local directories; then sees that what must be refused is refused, with the right status, and
 * that no message tells a secret. tests/stores/run writes
 * the file that STORES_CONFIG names, a line for each of:
 *   name NAME          of this configuration
 *   url URL            where the archives are: URL/NAME.zarr
 *   folder PATH        the same archives as local directories
 *   secret TEXT        what no message may hold, besides the values of options whose names say that
 *                      they are secret
 *   lists 0            the server does not list what it has
 *   brief 1            two archives are enough
 *   option KEY=VALUE
 *   environment KEY=VALUE   a variable of the environment
 *   wrapper COMMAND    what tests/stores/run runs this program under
 *   refuse NAME|STATUS|HTTP|URL[|KEY=VALUE]...   opening URL/winds.zarr with these options in place
 *                      of those above, or besides them: the status without INSITU_E_, and the HTTP
 *                      status, or 0; several of either are parted by a comma; an empty VALUE takes
 *                      the option away */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#pragma GCC diagnostic ignored "-Wunused-function" /* of the tool's helpers, only some are needed */
#include "../../tools/insitu/common.h"
#include "support.h"

enum { MOST_OPTIONS = 32, MOST_TESTS = 200, LINE = 4096, WAIT_MS = 60000 };

static char name[200], base[LINE], folder[LINE];
static bool lists = true; /* the server lists what it has */
static bool brief;
static insitu_option options[MOST_OPTIONS];
static uint64_t n_options;
static char *secrets[MOST_OPTIONS];
static unsigned n_secrets;

static char *copy(const char *text) {
  char *all = strdup(text);
  assert_non_null(all);
  return all;
}

/* ---- what no message may hold ---- */

static char logged[1 << 16]; /* lines of the log; what comes after that is not looked at */
static pthread_mutex_t logging = PTHREAD_MUTEX_INITIALIZER;

static void keep_line(void *user, int32_t level, const char *line) {
  (void)user, (void)level;
  pthread_mutex_lock(&logging);
  size_t used = strlen(logged);
  snprintf(logged + used, sizeof logged - used, "%s\n", line);
  pthread_mutex_unlock(&logging);
}
static void check_secrets(const char *text) {
  static const char *const never[] = {"Signature=", "sig=", "X-Amz-Signature", "Authorization:"};
  for (unsigned i = 0; i < n_secrets; i++)
    if (strstr(text, secrets[i])) fail_msg("a secret was told: %s", text);
  for (unsigned i = 0; i < sizeof never / sizeof *never; i++)
    if (strstr(text, never[i])) fail_msg("a signature was told: %s", text);
}
static bool is_secret(const char *key) {
  return strstr(key, "secret") || strstr(key, "token") || strstr(key, "account_key") ||
         strstr(key, "password");
}
static void add_secret(const char *text) {
  if (*text && n_secrets < MOST_OPTIONS) secrets[n_secrets++] = copy(text);
}

/* ---- reading ---- */

static void join(char *to, size_t cap, const char *a, const char *b) {
  if (snprintf(to, cap, "%s/%s", a, b) >= (int)cap) fail_msg("%s/%s is too long", a, b);
}
static insitu_loader_desc remote(const char *url) {
  return (insitu_loader_desc){
      .api = INSITU_API, .url = url, .options = options, .n_options = n_options};
}
static insitu_loader *open_loader(insitu_loader_desc d) {
  insitu_loader *ld;
  insitu_error err = {0};
  d.api = INSITU_API;
  d.log_level = INSITU_LOG_DEBUG;
  d.log = keep_line;
  d.on_absent_chunk = INSITU_FILL;
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s: %s", d.url, err.message);
  return ld;
}
static insitu_status read_array(
    insitu_loader *ld, const char *path, insitu_shape *shape, char **bytes, insitu_error *err) {
  insitu_variable v = {.path = path};
  *bytes = NULL;
  insitu_status status = insitu_read(ld, &v, NULL, 0, shape, err);
  if (status) return status;
  *bytes = malloc((size_t)shape->bytes + 1);
  assert_non_null(*bytes);
  return insitu_read(ld, &v, *bytes, shape->bytes, NULL, err);
}
static void compare_array(
    insitu_loader *there, insitu_loader *here, const char *path, uint64_t *bytes) {
  insitu_shape a = {0}, b = {0};
  insitu_error err[2] = {{0}, {0}};
  char *p, *q;
  insitu_status want = read_array(here, path, &b, &q, &err[1]),
                got = read_array(there, path, &a, &p, &err[0]);
  if (got != want)
    fail_msg("%s: %s %s, but of the local one %s %s", path, insitu_status_name(got), err[0].message,
        insitu_status_name(want), err[1].message);
  if (want == INSITU_OK) {
    assert_memory_equal(&a, &b, sizeof a);
    if (memcmp(p, q, (size_t)a.bytes)) fail_msg("%s: its bytes differ", path);
    *bytes += a.bytes;
  }
  free(p);
  free(q);
}
/* Every array that a listing finds, whole. Without consolidated metadata the listing is the
 * store's; a web server has none. */
static void test_read(void **state) {
  const char *archive = *state;
  char url[2 * LINE], path[2 * LINE];
  struct tool_archive a, b;
  insitu_error err = {0};
  uint64_t bytes = 0;
  join(url, sizeof url, base, archive);
  join(path, sizeof path, folder, archive);
  insitu_loader_desc d = remote(url);
  if (tool_archive_open_at(&d, 0, &a, &err)) fail_msg("%s: %s", url, err.message);
  if (tool_archive_open_with(path, 0, &b, &err)) fail_msg("%s: %s", path, err.message);
  d.plan_only = 1;
  insitu_loader *there = open_loader(d),
                *here = open_loader((insitu_loader_desc){.url = path, .plan_only = 1});
  assert_true(b.n_paths);
  if (lists || a.group.nodes >= 0) {
    if (a.list_error.status) fail_msg("%s: %s", url, a.list_error.message);
    assert_int_equal(a.n_paths, b.n_paths);
    for (uint64_t i = 0; i < b.n_paths; i++) assert_string_equal(a.paths[i], b.paths[i]);
  } else {
    assert_int_equal(a.list_error.status, INSITU_E_UNSUPPORTED);
  }
  for (uint64_t i = 0; i < b.n_paths; i++) compare_array(there, here, b.paths[i], &bytes);
  assert_true(bytes);
  insitu_loader_close(&there);
  insitu_loader_close(&here);
  tool_archive_close(&a);
  tool_archive_close(&b);
}

static uint64_t compare_epoch(insitu_iter *there, insitu_iter *here, const char *url) {
  insitu_batch *a, *b;
  insitu_error err = {0};
  insitu_status got, want;
  uint64_t rows = 0;
  while ((want = insitu_iter_next(here, WAIT_MS, &b, &err)) == INSITU_OK) {
    got = insitu_iter_next(there, WAIT_MS, &a, &err);
    if (got) fail_msg("%s: %s %s", url, insitu_status_name(got), err.message);
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->sample_indices, b->sample_indices, a->rows * sizeof *a->sample_indices);
    assert_memory_equal(&a->after, &b->after, sizeof a->after);
    for (uint64_t i = 0; i < b->n_arrays; i++) {
      assert_int_equal(a->arrays[i].bytes, b->arrays[i].bytes);
      if (memcmp(a->arrays[i].data, b->arrays[i].data, b->rows * b->arrays[i].row_bytes))
        fail_msg("%s: batch %d: %s differs", url, (int)b->index, b->arrays[i].name);
    }
    rows += b->rows;
    insitu_batch_release(&a);
    insitu_batch_release(&b);
  }
  if (want != INSITU_END) fail_msg("the local one: %s", err.message);
  got = insitu_iter_next(there, WAIT_MS, &a, &err);
  if (got != INSITU_END) fail_msg("%s: %s %s", url, insitu_status_name(got), err.message);
  return rows;
}
/* Two shuffled epochs and one in sequence, of the arrays of two axes and more that share the
 * longest first axis. */
static void test_train(void **state) {
  const char *archive = *state;
  char url[2 * LINE], path[2 * LINE];
  insitu_variable v[8] = {{0}};
  uint64_t n = 0;
  int64_t longest = 0;
  struct tool_archive list;
  insitu_error err = {0};
  insitu_stats stats;
  join(url, sizeof url, base, archive);
  join(path, sizeof path, folder, archive);
  if (tool_archive_open_with(path, 0, &list, &err)) fail_msg("%s: %s", path, err.message);
  insitu_loader *here = open_loader((insitu_loader_desc){.url = path, .plan_only = 1});
  for (uint64_t i = 0; i < list.n_paths; i++) {
    insitu_shape s;
    assert_int_equal(
        insitu_read(here, &(insitu_variable){.path = list.paths[i]}, NULL, 0, &s, &err), INSITU_OK);
    if (s.ndim < 2 || s.shape[0] < longest) continue;
    if (s.shape[0] > longest) n = 0;
    longest = s.shape[0];
    if (n < 8) v[n++] = (insitu_variable){.label = list.paths[i], .path = list.paths[i]};
  }
  insitu_loader_close(&here);
  insitu_loader_desc d = remote(url);
  d.variables = v;
  d.n_variables = n;
  d.batch_size = 8;
  d.block_chunks = 8;
  insitu_loader *there = open_loader(d);
  d.url = path;
  d.options = NULL;
  d.n_options = 0;
  here = open_loader(d);
  for (int32_t order = INSITU_SHUFFLED; order <= INSITU_SEQUENTIAL; order++) {
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = order};
    insitu_iter *a, *b;
    if (insitu_iter_open(there, &id, &a, &err) || insitu_iter_open(here, &id, &b, &err))
      fail_msg("%s: %s", url, err.message);
    for (int epoch = 0; epoch < (order == INSITU_SHUFFLED ? 2 : 1); epoch++)
      assert_true(compare_epoch(a, b, url));
    insitu_iter_close(&a);
    insitu_iter_close(&b);
  }
  assert_int_equal(insitu_loader_stats(there, &stats, &err), INSITU_OK);
  assert_true(stats.http_requests && stats.bytes_fetched);
  const char *io = getenv("INSITU_IO");
  if (io) assert_string_equal(stats.io, io);
  insitu_loader_close(&there);
  insitu_loader_close(&here);
  tool_archive_close(&list);
  check_secrets(logged);
}

/* ---- what must be refused ---- */

struct refusal {
  char *name, *status, *http, *url;
  insitu_option options[MOST_OPTIONS];
  uint64_t n;
};
static void set_option(insitu_option *list, uint64_t *n, const char *text) { /* KEY=VALUE */
  const char *value = strchr(text, '=');
  uint64_t at = 0;
  assert_non_null(value);
  char *key = strndup(text, (size_t)(value++ - text));
  assert_non_null(key);
  if (is_secret(key)) add_secret(value);
  while (at < *n && strcmp(list[at].key, key)) at++;
  if (*value) {
    assert_true(at < MOST_OPTIONS);
    list[at] = (insitu_option){key, copy(value)};
    if (at == *n) ++*n;
  } else {
    if (at < *n) memmove(list + at, list + at + 1, (size_t)(--*n - at) * sizeof *list);
    free(key);
  }
}
static bool in_list(const char *list, const char *word) { /* words parted by commas */
  size_t n = strlen(word);
  for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
    if ((p == list || p[-1] == ',') && (!p[n] || p[n] == ',')) return true;
  return false;
}
static void test_refused(void **state) {
  struct refusal *r = *state;
  char url[2 * LINE], http[16];
  insitu_error err = {0};
  insitu_loader *ld;
  join(url, sizeof url, r->url, "winds.zarr");
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .options = r->options,
      .n_options = r->n,
      .plan_only = 1,
      .log_level = INSITU_LOG_DEBUG,
      .log = keep_line};
  insitu_status status = insitu_loader_open(&d, &ld, &err);
  if (!status) insitu_loader_close(&ld);
  print_message("             %s: %s\n", insitu_status_name(status), err.message);
  if (status >= 0 || !in_list(r->status, insitu_status_name(status) + strlen("INSITU_E_")))
    fail_msg("%s, not %s: %s", insitu_status_name(status), r->status, err.message);
  assert_int_equal(err.status, status);
  snprintf(http, sizeof http, "%d", err.http_status);
  if (!in_list(r->http, http)) fail_msg("HTTP %s, not %s: %s", http, r->http, err.message);
  assert_true(strlen(err.message) > 20);
  check_secrets(err.message);
  check_secrets(logged);
  for (uint64_t i = 0; i < r->n; i++) /* nor keys' names where they stand for somebody */
    if (!strcmp(r->options[i].key, "access_key_id") && strstr(err.message, r->options[i].value))
      fail_msg("%s", err.message);
}

/* ---- the configuration ---- */

static struct CMUnitTest tests[MOST_TESTS];
static size_t n_tests;

static void add_test(const char *kind, const char *what, CMUnitTestFunction fn, void *state) {
  char label[500];
  assert_true(n_tests < MOST_TESTS);
  snprintf(label, sizeof label, "%.100s: %s %.200s", name, kind, what);
  tests[n_tests++] =
      (struct CMUnitTest){.name = copy(label), .test_func = fn, .initial_state = state};
}
static void add_refusal(char *line) {
  struct refusal *r = calloc(1, sizeof *r);
  char *rest = line;
  if (!r) exit(1);
  r->name = copy(strsep(&rest, "|"));
  r->status = copy(rest ? strsep(&rest, "|") : "");
  r->http = copy(rest ? strsep(&rest, "|") : "");
  r->url = copy(rest ? strsep(&rest, "|") : "");
  r->n = n_options;
  memcpy(r->options, options, sizeof options);
  while (rest) set_option(r->options, &r->n, strsep(&rest, "|"));
  add_test("refuses", r->name, test_refused, r);
}
static void set_environment(char *text) { /* KEY=VALUE */
  char *value = strchr(text, '=');
  if (!value) exit((fprintf(stderr, "no value: %s\n", text), 1));
  *value++ = 0;
  if (setenv(text, value, 1)) exit(1);
}
static void take_line(char *line) {
  char *value = strchr(line, ' ');
  if (!value) exit((fprintf(stderr, "no value: %s\n", line), 1));
  *value++ = 0;
  if (!strcmp(line, "name")) snprintf(name, sizeof name, "%s", value);
  else if (!strcmp(line, "url")) snprintf(base, sizeof base, "%s", value);
  else if (!strcmp(line, "folder")) snprintf(folder, sizeof folder, "%s", value);
  else if (!strcmp(line, "lists")) lists = atoi(value);
  else if (!strcmp(line, "brief")) brief = atoi(value);
  else if (!strcmp(line, "secret")) add_secret(value);
  else if (!strcmp(line, "option")) set_option(options, &n_options, value);
  else if (!strcmp(line, "environment")) set_environment(value);
  else if (!strcmp(line, "refuse")) add_refusal(value);
  else if (strcmp(line, "wrapper")) exit((fprintf(stderr, "what is %s?\n", line), 1));
}

int main(void) {
  static const char *const read[] = {
      "groups.v2.zarr", "groups.v3.zarr", "sharded.v3.zarr", "train.v2.zarr"};
  static const char *const train[] = {"winds.zarr", "train.v2.zarr", "train.v3.zarr", "made.zarr"};
  const char *path = getenv("STORES_CONFIG");
  char line[LINE];
  FILE *f = path ? fopen(path, "r") : NULL;
  if (!f) return fprintf(stderr, "STORES_CONFIG names no file; see tests/stores/run\n"), 1;
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = 0;
    take_line(line);
  }
  fclose(f);
  for (unsigned i = 0; i < (brief ? 1 : sizeof read / sizeof *read); i++)
    add_test("reads", read[i], test_read, (void *)read[i]);
  for (unsigned i = 0; i < (brief ? 1 : sizeof train / sizeof *train); i++)
    add_test("trains from", train[i], test_train, (void *)train[i]);
  return _cmocka_run_group_tests(name, tests, n_tests, NULL, NULL);
}
