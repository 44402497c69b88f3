/* desc.trace: the file of a run is JSON, its events lie in each other and add up; ranks, faults,
 * forks, paths that loaders share, and what is held when the loader closes. */
#include "server.h"
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct support_array x = {.name = "x",
    .ndim = 3,
    .shape = {60, 3, 5},
    .chunk = {4, 3, 5},
    .dtype = INSITU_F32,
    .format = 2,
    .dims = "[\"time\",\"y\",\"x\"]"};
static const insitu_variable shown[] = {
    {.label = "in", .path = "x"}, {.label = "out", .path = "x", .offset = 1}};
static const insitu_iter_desc train = {.api = INSITU_API, .order = INSITU_SHUFFLED};

static void quiet(void *user, int32_t level, const char *line) {
  (void)user, (void)level, (void)line;
}
static insitu_loader_desc desc_of(const char *root, const char *trace, int m) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = shown,
      .n_variables = 2,
      .batch_size = 8,
      .seed = 5,
      .split = {{.fraction = 1}},
      .trace = trace,
      .log = quiet,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io,
      .decode_threads = 2};
}

/* ---- a file ---- */

struct event {
  uint64_t pid, tid;
  double begin, end;
  char cat[16], name[200];
};
static struct event *events;
static size_t n_events;
static uint64_t lost;

static double real(const struct insitu__text_json *j, int object, const char *key) {
  double v = 0;
  if (!insitu__text_json_double(j, insitu__text_json_get(j, object, key), &v))
    fail_msg("an event has no number '%s'", key);
  return v;
}
static int compare(const void *p, const void *q) {
  const struct event *a = p, *b = q;
  if (a->pid != b->pid) return a->pid < b->pid ? -1 : 1;
  if (a->tid != b->tid) return a->tid < b->tid ? -1 : 1;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->end > b->end ? -1 : a->end < b->end;
}
static char *slurp(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no file %s", path);
  char *text = calloc(1, 1 << 22);
  *n = fread(text, 1, (1 << 22) - 1, f);
  fclose(f);
  return text;
}
/* Reads a timeline: its events, by track and time. */
static void load(const char *path) {
  size_t n;
  char *text = slurp(path, &n);
  struct insitu__text_json j = {0};
  insitu_error err = {0};
  if (insitu__text_json_parse(&j, text, n, path, &err)) fail_msg("%s", err.message);
  int list = insitu__text_json_get(&j, 0, "traceEvents");
  free(events);
  events = calloc((size_t)insitu__text_json_size(&j, list) + 1, sizeof *events);
  n_events = 0;
  INSITU__TEXT_JSON_EACH (t, &j, list) {
    struct event e = {.pid = (uint64_t)real(&j, t, "pid"), .tid = (uint64_t)real(&j, t, "tid")};
    if (!insitu__text_json_equals(&j, insitu__text_json_get(&j, t, "ph"), "X")) continue;
    e.begin = real(&j, t, "ts");
    e.end = e.begin + real(&j, t, "dur");
    insitu__text_json_string(&j, insitu__text_json_get(&j, t, "cat"), e.cat, sizeof e.cat);
    insitu__text_json_string(&j, insitu__text_json_get(&j, t, "name"), e.name, sizeof e.name);
    events[n_events++] = e;
  }
  lost = (uint64_t)real(&j, insitu__text_json_get(&j, 0, "otherData"), "lost_records");
  qsort(events, n_events, sizeof *events, compare);
  insitu__text_json_free(&j);
  free(text);
}
static size_t count(const char *cat) {
  size_t n = 0;
  for (size_t i = 0; i < n_events; i++) n += !strcmp(events[i].cat, cat);
  return n;
}

/* Microseconds that rounding may move an end. */
#define NEAR 0.002

/* No two events of a track overlap but where one lies in the other. */
static void check_nested(void) {
  for (size_t i = 0; i < n_events; i++)
    for (size_t k = i + 1; k < n_events; k++) {
      const struct event *a = &events[i], *b = &events[k];
      if (a->pid != b->pid || a->tid != b->tid || b->begin >= a->end - NEAR) break;
      if (b->end > a->end + NEAR)
        fail_msg("%s %s [%f %f) and %s %s [%f %f) overlap", a->cat, a->name, a->begin, a->end,
            b->cat, b->name, b->begin, b->end);
    }
}
/* In each chunk: read, decode, place, in that order, and at most once each. */
static void check_chunks(void) {
  static const char *const stages[] = {"read", "decode", "place"};
  for (size_t i = 0; i < n_events; i++) {
    const struct event *c = &events[i];
    double last = c->begin;
    int stage = 0;
    if (strcmp(c->cat, "chunk")) continue;
    for (size_t k = i + 1; k < n_events && strcmp(events[k].cat, "chunk") &&
                           events[k].pid == c->pid && events[k].tid == c->tid;
         k++) {
      while (stage < 3 && strcmp(stages[stage], events[k].cat)) stage++;
      assert_in_range(stage++, 0, 2);
      assert_true(events[k].begin >= last - NEAR);
      last = events[k].end;
    }
    assert_true(last <= c->end + NEAR);
  }
}
/* In each batch: filling, ready, held, one behind the other. */
static void check_batches(void) {
  static const char *const stages[] = {"filling", "ready", "held"};
  for (size_t i = 0; i < n_events; i++) {
    const struct event *b = &events[i];
    double at = b->begin;
    if (strcmp(b->cat, "batch")) continue;
    for (int k = 0; k < 3; k++) {
      const struct event *stage = NULL;
      for (size_t e = 0; e < n_events; e++)
        if (!strcmp(events[e].cat, stages[k]) && events[e].pid == b->pid &&
            events[e].tid == b->tid && events[e].begin >= b->begin - NEAR &&
            events[e].end <= b->end + NEAR)
          stage = &events[e];
      assert_non_null(stage);
      assert_true(stage->begin - at < NEAR && at - stage->begin < NEAR);
      at = stage->end;
    }
    assert_true(at - b->end < NEAR && b->end - at < NEAR);
  }
}

/* Two epochs; the loader's counters. */
static insitu_stats run(const insitu_loader_desc *d, size_t *calls) {
  if (d->trace) unlink(d->trace); /* this process wrote it in another mode */
  insitu_loader *ld = open_or_fail(d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  insitu_stats stats;
  insitu_batch *b;
  *calls = 0;
  for (int ends = 0; ends < 2; ++*calls) {
    insitu_status s = insitu_iter_next(it, 20000, &b, NULL);
    if (s < 0) fail_msg("%s", insitu_status_name(s));
    ends += s == INSITU_END;
    insitu_batch_release(&b);
  }
  insitu_iter_close(&it); /* the chunks of the third epoch are given up or done */
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  insitu_loader_close(&ld);
  return stats;
}
static insitu_status nothing(void *user, insitu_batch *b, const uint64_t *keys, insitu_error *e) {
  (void)user, (void)b, (void)keys, (void)e;
  return INSITU_OK;
}

static void test_events(void **state) {
  (void)state;
  char root[300], path[300];
  snprintf(root, sizeof root, "%s", support_path("events"));
  snprintf(path, sizeof path, "%s", support_path("events.json"));
  for (int kind = 0; kind < 3; kind++) {
    support_layout(&x, 2 + kind % 2);
    x.zstd = kind != 1;
    support_make(root, &x);
    EACH_MODE (m) {
      insitu_loader_desc d = desc_of(root, path, m);
      size_t calls;
      d.assembly = 1 + kind % 2;
      d.cache_memory = kind == 2 ? 1 << 20 : 0;
      d.on_batch = kind ? nothing : NULL;
      insitu_stats s = run(&d, &calls);
      load(path);
      check_nested();
      check_chunks();
      check_batches();
      assert_int_equal(lost, 0);
      assert_true(s.reads > 0);
      assert_int_equal(count("read"), s.reads);
      assert_true(count("chunk") >= s.reads && count("decode") <= count("chunk"));
      assert_int_equal(count("batch"), s.batches);
      assert_int_equal(count("next"), calls);
      if (kind) assert_true(count("work") > s.batches);
    }
    support_remove(root);
  }
}

/* Raw chunks of 5 KiB that a thread reads one after the other share their times, and have some. */
static void test_shared_times(void **state) {
  (void)state;
  enum { CHUNKS = 64, VALUES = 1280 };
  static const float zeros[VALUES];
  static const insitu_variable rows = {.label = "x", .path = ""};
  static const char meta[] =
      "{\"zarr_format\": 2, \"shape\": [64, 1280], \"chunks\": [1, 1280], \"dtype\": \"<f4\", "
      "\"compressor\": null, \"fill_value\": 0, \"order\": \"C\", \"filters\": null}";
  static char keys[CHUNKS][8];
  insitu_object objects[CHUNKS + 1] = {{".zarray", meta, sizeof meta - 1}};
  for (int i = 0; i < CHUNKS; i++) {
    snprintf(keys[i], sizeof keys[i], "%d.0", i);
    objects[i + 1] = (insitu_object){keys[i], zeros, sizeof zeros};
  }
  insitu_loader_desc d = desc_of("memory://rows", support_path("rows.json"), any_mode());
  d.inline_io = 0;
  d.variables = &rows;
  d.n_variables = 1;
  d.objects = objects;
  d.n_objects = CHUNKS + 1;
  size_t calls, ends = 0;
  insitu_stats s = run(&d, &calls);
  load(d.trace);
  check_nested();
  check_chunks();
  check_batches();
  assert_int_equal(count("read"), s.reads);
  for (size_t i = 0; i < n_events; i++) {
    bool first = !strcmp(events[i].cat, "read");
    if (first) assert_true(events[i].end > events[i].begin);
    for (size_t k = 0; first && k < i; k++)
      first = strcmp(events[k].cat, "read") || events[k].begin != events[i].begin;
    ends += first;
  }
  assert_in_range(ends, 2, s.reads - 1);
}

/* Names come from the archive: what JSON has another meaning for is escaped. */
static void test_names(void **state) {
  (void)state;
  char root[300], path[300];
  const insitu_variable odd = {.label = "odd", .path = "q\"\\\x01\xc3\xa4"};
  struct support_array array = x;
  array.name = odd.path;
  snprintf(root, sizeof root, "%s", support_path("names"));
  snprintf(path, sizeof path, "%s", support_path("names.json"));
  support_layout(&array, 2);
  support_make(root, &array);
  insitu_loader_desc d = desc_of(root, path, any_mode());
  size_t calls;
  d.variables = &odd;
  d.n_variables = 1;
  run(&d, &calls);
  load(path);
  size_t found = 0;
  for (size_t i = 0; i < n_events; i++)
    found +=
        !strcmp(events[i].cat, "chunk") && !strncmp(events[i].name, odd.path, strlen(odd.path));
  assert_int_equal(found, count("chunk"));
  support_remove(root);
}

/* How many warnings came of a timeline that is not made. */
static void goes_without(void *user, int32_t level, const char *line) {
  if (level == 1 && strstr(line, "INSITU_TRACE asks for one, and this loader writes none: open"))
    ++*(int *)user;
}
/* INSITU_TRACE, ranks, plans; files that cannot be made, which desc.trace stops at and INSITU_TRACE
 * does not. */
static void test_files(void **state) {
  (void)state;
  char root[300], path[300], second[310];
  struct stat st;
  size_t calls;
  snprintf(root, sizeof root, "%s", support_path("files"));
  snprintf(path, sizeof path, "%s", support_path("files.json"));
  snprintf(second, sizeof second, "%s.1", path);
  support_layout(&x, 2);
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, NULL, any_mode());
  setenv("INSITU_TRACE", path, 1);
  d.world = 2;
  d.rank = 1;
  d.lanes = 4;
  d.batch_size = 4;
  run(&d, &calls);
  assert_int_equal(stat(path, &st), -1);
  load(second);
  for (size_t i = 0; i < n_events; i++) assert_in_range(events[i].pid, 9, 12);
  d.plan_only = 1;
  d.rank = 0;
  insitu_loader *ld = open_or_fail(&d);
  assert_string_equal(insitu_loader_config(ld)->trace, path);
  insitu_loader_close(&ld);
  assert_int_equal(stat(path, &st), -1);
  d.plan_only = 0;

  int told = 0;
  d.log = goes_without;
  d.log_user = &told;
  support_write(path, "precious, and longer than a head", 32);
  char *long_name = calloc(1, 100001);
  memset(long_name, 'n', 100000);
  const char *bad[] = {"/nowhere/t.json", "%d", path, long_name};
  for (int i = 0; i < 4; i++) {
    setenv("INSITU_TRACE", bad[i], 1);
    run(&d, &calls);
    assert_int_equal(told, i + 1);
  }
  free(long_name);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, 32);
  unsetenv("INSITU_TRACE");
  d.trace = "/nowhere/t.json";
  refuse_or_fail(&d, INSITU_E_IO, "timeline /nowhere/t.json: No such file");
  support_remove(root);
}

/* Opens and closes a loader with a timeline. */
static void brief(insitu_loader_desc *d) {
  insitu_loader *ld = open_or_fail(d);
  insitu_loader_close(&ld);
}
static void listens(void *user, int32_t level, const char *line) {
  if (level == 1 && strstr(line, "timeline: another loader writes")) ++*(int *)user;
}
/* %r, %p; a path that several loaders name: at once, one after another, and in other processes. */
static void test_shared_path(void **state) {
  (void)state;
  char root[300], path[300], want[400];
  struct stat st;
  int told = 0;
  snprintf(root, sizeof root, "%s", support_path("shared"));
  support_layout(&x, 2);
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, path, any_mode());
  d.log = listens;
  d.log_user = &told;
  d.world = 4;
  d.rank = 3;
  d.lanes = 4;
  d.batch_size = 2;
  snprintf(path, sizeof path, "%s-%%r-%%p%%%%", support_path("named"));
  brief(&d);
  snprintf(want, sizeof want, "%s-3-%d%%", support_path("named"), (int)getpid());
  load(want);
  snprintf(path, sizeof path, "%s-%%d", support_path("named"));
  refuse_or_fail(&d, INSITU_E_ARG, "trace has %d; give %r");
  d.rank = 0;

  /* at once: the second has a file of its own; when it comes later, too */
  snprintf(path, sizeof path, "%s", support_path("shared.json"));
  assert_int_equal(told, 0);
  insitu_loader *first = open_or_fail(&d);
  brief(&d);
  snprintf(want, sizeof want, "%s-2", path);
  load(want);
  assert_int_equal(told, 1);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, 0);
  insitu_loader_close(&first);
  load(path);
  brief(&d);
  snprintf(want, sizeof want, "%s-3", path);
  load(want);
  assert_int_equal(told, 2);

  /* another process comes to the first file while it is held, and replaces it when it is not */
  assert_int_equal(stat(path, &st), 0);
  ino_t inode = st.st_ino;
  size_t n;
  char *before = slurp(path, &n);
  pid_t child = fork();
  if (!child) {
    brief(&d);
    _exit(told != 2);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_ino, inode);
  char *after = slurp(path, &n), process[40];
  assert_string_not_equal(before, after);
  snprintf(process, sizeof process, "\"process\": \"%d-", (int)child);
  assert_non_null(strstr(after, process));
  free(before);
  free(after);

  /* one that was cut off is replaced, however little there is of it */
  static const char head[] = "{\"traceEvents\": [\n{\"ph\"";
  for (n = 0; n < sizeof head; n++) {
    support_write(path, head, n);
    brief(&d);
    load(path);
  }

  /* a file that is something else stays */
  support_write(path, "{\"trace\"", 8);
  refuse_or_fail(&d, INSITU_E_ARG, "is there and is no timeline; name another");
  support_write(path, "precious, and longer than a head", 32);
  refuse_or_fail(&d, INSITU_E_ARG, "is there and is no timeline; name another");
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, 32);
  d.trace = "/dev/null";
  brief(&d);
  support_remove(root);
}

#ifndef INSITU_NO_CURL
/* Requests are those that the loader counts; no part of a url is in the file. */
static void test_requests(void **state) {
  (void)state;
  char root[300], path[300], url[400];
  snprintf(root, sizeof root, "%s", support_path("requests"));
  snprintf(path, sizeof path, "%s", support_path("requests.json"));
  support_layout(&x, 2);
  support_make(root, &x);
  struct server *server = server_start(&(struct server_options){.folder = root});
  snprintf(url, sizeof url, "http://someone:hidden@127.0.0.1:%d/?sig=SIGNED", server->port);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(url, path, m);
    size_t calls, n;
    d.hold_epoch = 1; /* no request is given up */
    insitu_stats s = run(&d, &calls);
    load(path);
    check_nested();
    check_chunks();
    assert_true(s.http_requests > 0 && s.retries == 0);
    assert_int_equal(count("request"), s.http_requests);
    assert_int_equal(count("answer"), s.http_requests);
    char *text = slurp(path, &n);
    static const char *const secrets[] = {"someone", "hidden", "SIGNED", "127.0.0.1", "http:"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
      assert_null(strstr(text, secrets[i]));
    free(text);
  }
  server_stop(&server);
  support_remove(root);
}
#endif

/* A child that closes its parent's loader writes nothing; a batch may outlive the loader. */
static void test_fork(void **state) {
  (void)state;
  char root[300], path[300];
  struct stat st;
  snprintf(root, sizeof root, "%s", support_path("fork"));
  snprintf(path, sizeof path, "%s", support_path("fork.json"));
  support_layout(&x, 2);
  support_make(root, &x);
  insitu_loader_desc d = desc_of(root, path, any_mode());
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it = open_iter_or_fail(ld, &train);
  insitu_batch *b = next_batch_or_fail(it);
  pid_t child = fork();
  if (!child) {
    insitu_loader_close(&ld);
    insitu_batch_release(&b);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, 0);
  insitu_loader_close(&ld);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  load(path);
  check_nested();
  assert_int_equal(count("next"), 1);
  assert_int_equal(count("batch"), 0);
  support_remove(root);
  free(events);
  events = NULL;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_events),
      cmocka_unit_test(test_shared_times), cmocka_unit_test(test_names),
      cmocka_unit_test(test_files), cmocka_unit_test(test_shared_path),
#ifndef INSITU_NO_CURL
      cmocka_unit_test(test_requests),
#endif
      cmocka_unit_test(test_fork)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
