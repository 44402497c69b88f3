/* The file of desc.trace from records that are made by hand: bounds, tracks, times, losses; and
 * what it may be: a pipe whose reader is absent or stops, a name that all others have. */
#define INSITU_TRACE_RECORDS 16
#define INSITU__TIMELINE_STALL_MS 500 /* waited for once; no thread that reads is kept so long */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include <pthread.h>

static struct insitu__text_json doc;
static char *text;

/* Writes the timeline of a loader, and parses it. */
static void write_out(insitu_loader *ld) {
  const char *path = support_path("t.json");
  insitu_error err = {0};
  ld->trace->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  insitu__timeline_write(ld);
  off_t n = lseek(ld->trace->fd, 0, SEEK_END);
  text = calloc(1, (size_t)n + 1);
  assert_int_equal(pread(ld->trace->fd, text, (size_t)n, 0), n);
  if (insitu__text_json_parse(&doc, text, (uint64_t)n, "t.json", &err)) fail_msg("%s", err.message);
}
static void done(insitu_loader *ld) {
  insitu__text_json_free(&doc);
  free(text);
  insitu__trace_free(ld->trace);
}
static uint64_t number(int object, const char *key) {
  uint64_t v = UINT64_MAX;
  assert_true(insitu__text_json_u64(&doc, insitu__text_json_get(&doc, object, key), &v));
  return v;
}
static double real(int object, const char *key) {
  double v = -1;
  assert_true(insitu__text_json_double(&doc, insitu__text_json_get(&doc, object, key), &v));
  return v;
}
/* Event number i of a category; -1: there is none. */
static int event_of(const char *cat, int i) {
  int events = insitu__text_json_get(&doc, 0, "traceEvents");
  INSITU__TEXT_JSON_EACH (t, &doc, events)
    if (insitu__text_json_equals(&doc, insitu__text_json_get(&doc, t, "cat"), cat) && !i--)
      return t;
  return -1;
}

static insitu_loader *loader(void) {
  static insitu_loader ld;
  memset(&ld, 0, sizeof ld);
  ld.opened = 1000;
  ld.config.decode_threads = 2;
  ld.config.rank = 3;
  ld.config.world = 4;
  ld.trace = insitu__trace_new();
  assert_non_null(ld.trace);
  return &ld;
}

/* A ring keeps its last records, and the file says how many are lost. */
static void test_bound(void **state) {
  (void)state;
  insitu_loader *ld = loader();
  for (int i = 0; i < 50; i++) {
    struct insitu__trace_record job = {.at = {2000 + 10 * i, 2005 + 10 * i},
        .n = {(uint64_t)i},
        .kind = INSITU__TRACE_JOB,
        .where = INSITU__TRACE_CALL,
        .worker = 1};
    insitu__trace_add(ld->trace, &job);
    job.kind = INSITU__TRACE_NEXT;
    if (i < 3) insitu__trace_add_user(ld->trace, &job);
  }
  write_out(ld);
  int other = insitu__text_json_get(&doc, 0, "otherData"), e = event_of("work", 0);
  assert_int_equal(number(other, "lost_records"), 34);
  assert_int_equal(number(other, "lost_batches"), 0);
  assert_int_equal(number(insitu__text_json_get(&doc, e, "args"), "batch"), 34);
  assert_true(event_of("work", 15) > 0 && event_of("work", 16) < 0);
  assert_true(event_of("next", 2) > 0 && event_of("next", 3) < 0);
  assert_int_equal(number(e, "pid"), 8 * 3 + 1);
  assert_int_equal(number(e, "tid"), 11);
  assert_true(real(e, "ts") == 1.34 && real(e, "dur") == 0.005);
  done(ld);
}

/* Requests that overlap lie on tracks of their own; a track that is free is taken again. */
static void test_requests(void **state) {
  (void)state;
  static const int64_t times[][3] = {
      {2000, 2100, 3000}, {2500, 2600, 2700}, {2800, 0, 2900}, {3000, 3001, 3002}};
  static const uint64_t tracks[] = {0, 1, 1, 0};
  insitu_loader *ld = loader();
  for (int i = 0; i < 4; i++)
    insitu__trace_add(
        ld->trace, &(struct insitu__trace_record){.at = {times[i][0], times[i][1], times[i][2]},
                       .n = {7, 9},
                       .kind = INSITU__TRACE_REQUEST,
                       .status = 206});
  write_out(ld);
  for (int i = 0; i < 4; i++) assert_int_equal(number(event_of("request", i), "tid"), tracks[i]);
  assert_true(event_of("answer", 2) > 0 && event_of("answer", 3) < 0); /* one had no answer */
  done(ld);
}

/* What was over before the loader opened begins at 0, and what ends before it begins takes no
 * time. */
static void test_times(void **state) {
  (void)state;
  insitu_loader *ld = loader();
  insitu__trace_add_user(ld->trace,
      &(struct insitu__trace_record){.at = {500, 400}, .kind = INSITU__TRACE_NEXT, .track = 2});
  write_out(ld);
  int e = event_of("next", 0);
  assert_true(real(e, "ts") == 0 && real(e, "dur") == 0);
  assert_int_equal(number(e, "tid"), 2002);
  done(ld);
}

/* The largest numbers, and a name that JSON must escape; a file of more than is written at once. */
static void test_numbers(void **state) {
  (void)state;
  static struct insitu__geometry_array array;
  insitu_loader *ld = loader();
  char path[] = "a\"\x01\xff/b", lines[16];
  array.zarr.path = path;
  ld->geometry.arrays = &array;
  ld->config.decode_threads = 20000;
  const struct insitu__trace_record chunk = {.at = {1000, 1000, INT64_MAX, INT64_MAX},
      .n = {0, 0, UINT64_MAX, 10},
      .worker = INSITU__TRACE_NOBODY,
      .track = UINT32_MAX,
      .status = INT32_MIN};
  insitu__trace_add(ld->trace, &chunk);
  write_out(ld);
  assert_true(strlen(text) > INSITU__TIMELINE_BUFFER);
  int e = event_of("chunk", 0), args = insitu__text_json_get(&doc, e, "args");
  assert_true(
      insitu__text_json_string(&doc, insitu__text_json_get(&doc, e, "name"), lines, 16) > 0);
  assert_string_equal(lines, "a\"\x01\xef\xbf\xbd/b/0");
  assert_int_equal(number(e, "tid"), UINT32_MAX);
  assert_int_equal(number(args, "batch"), UINT64_MAX);
  assert_int_equal(number(args, "bytes"), 10);
  assert_true(real(args, "status") == INT32_MIN);
  assert_true(real(event_of("read", 0), "dur") == (double)(INT64_MAX - 1000) / 1000);
  done(ld);
}

/* ---- what the file may be ---- */

static char told[2000]; /* the last line of the log */
static void listens(void *user, int32_t level, const char *line) {
  (void)user;
  assert_int_equal(level, 1); /* a warning */
  snprintf(told, sizeof told, "%s", line);
}
/* A loader whose timeline is at a path, and has some 20 KB. */
static insitu_loader *loader_at(const char *path) {
  insitu_loader *ld = loader();
  insitu_error err = {0};
  insitu__trace_free(ld->trace);
  ld->trace = NULL;
  ld->config.rank = 0;
  ld->config.decode_threads = 200;
  ld->config.trace = path;
  ld->config.log = listens;
  ld->config.log_level = INSITU_LOG_WARN;
  told[0] = 0;
  if (insitu__timeline_init(ld, &ld->trace, &err)) fail_msg("%s", err.message);
  return ld;
}
static char *pipe_of(void) {
  static char path[300];
  snprintf(path, sizeof path, "%s", support_path("pipe"));
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  return path;
}
static void *drains(void *arg) {
  int fd = *(int *)arg;
  char *all = calloc(1, 1 << 20);
  size_t n = 0;
  for (ssize_t got; (got = read(fd, all + n, (1 << 20) - 1 - n)) > 0;) n += (size_t)got;
  close(fd);
  return all;
}

/* A pipe gets all of it, however little it holds, while somebody reads. One that nobody reads, or
 * whose reader stops, holds up neither open nor close, and the log tells. */
static void test_pipe(void **state) {
  (void)state;
  const char *path = pipe_of();
  insitu_loader *ld = loader_at(path);
  insitu__timeline_write(ld);
  insitu__trace_free(ld->trace);
  assert_non_null(strstr(told, "could not be written: nobody reads the pipe; start the reader"));

  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ld = loader_at(path);
  assert_true(fcntl(fd, F_SETPIPE_SZ, 4096) == 4096);
  insitu__timeline_write(ld);
  insitu__trace_free(ld->trace);
  assert_non_null(strstr(told, "the reader of the pipe took nothing for 0.5 s"));
  close(fd);

  pthread_t reader;
  void *all;
  ld = loader_at(path);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  assert_true(fcntl(fd, F_SETPIPE_SZ, 4096) == 4096);
  assert_int_equal(pthread_create(&reader, NULL, drains, &fd), 0);
  insitu__timeline_write(ld);
  insitu__trace_free(ld->trace);
  assert_int_equal(pthread_join(reader, &all), 0);
  assert_string_equal(told, "");
  insitu_error err = {0};
  assert_true(strlen(all) > 3 * 4096);
  if (insitu__text_json_parse(&doc, all, strlen(all), "pipe", &err)) fail_msg("%s", err.message);
  insitu__text_json_free(&doc);
  free(all);
}

/* Where timelines of this process have all names, a loader goes without one. */
static void test_no_name(void **state) {
  (void)state;
  char path[300], name[320], process[INSITU__TIMELINE_PROCESS], line[200];
  snprintf(path, sizeof path, "%s", support_path("many"));
  insitu__timeline_process(process);
  snprintf(line, sizeof line, "{\"traceEvents\": [\n], \"process\": \"%s\"}}\n", process);
  for (int i = 1; i < INSITU__TIMELINE_LOADERS; i++) {
    snprintf(name, sizeof name, i > 1 ? "%s-%d" : "%s", path, i);
    support_write(name, line, strlen(line));
  }
  insitu_loader *ld = loader_at(path);
  assert_non_null(ld->trace);
  insitu__timeline_write(ld);
  insitu__trace_free(ld->trace);
  assert_non_null(strstr(told, "many-999"));
  ld = loader_at(path);
  assert_null(ld->trace);
  assert_non_null(strstr(told, "writes none, since "));
  assert_non_null(strstr(told, "many and 998 beside it are of loaders of this run; name a file"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bound), cmocka_unit_test(test_requests),
      cmocka_unit_test(test_times), cmocka_unit_test(test_numbers), cmocka_unit_test(test_pipe),
      cmocka_unit_test(test_no_name)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
