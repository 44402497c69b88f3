/* The command insitu on archives behind an HTTP server: every command that opens one, its options,
 * and that no secret is shown. */
#include "server.h"
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "run_tool.h"

/* the sample data; the same without ranges; 50 ms away; with chunks that are denied */
static struct server_child server, flat, away, denied;
static char url[80];

static void forget_ranges(struct server *s, void *user) {
  (void)user;
  server_rule(s, (struct server_rule){.fault = SERVER_WHOLE});
}
static void deny_two(struct server *s, void *user) {
  (void)user;
  server_rule(s,
      (struct server_rule){.key = "winds.zarr/uwnd/3.0.0", .fault = SERVER_STATUS, .status = 403});
  server_rule(s,
      (struct server_rule){.key = "winds.zarr/uwnd/7.0.0", .fault = SERVER_STATUS, .status = 403});
}
static int setup(void **state) {
  const struct server_options o = {.folder = "examples/data", .no_log = true},
                              far = {.folder = "examples/data", .no_log = true, .latency_ms = 50};
  server = server_fork(&o, NULL, NULL);
  flat = server_fork(&o, forget_ranges, NULL);
  away = server_fork(&far, NULL, NULL);
  denied = server_fork(&o, deny_two, NULL);
  snprintf(url, sizeof url, "http://127.0.0.1:%d/winds.zarr", server.port);
  return support_setup(state);
}
static int teardown(void **state) {
  server_kill(&server);
  server_kill(&flat);
  server_kill(&away);
  server_kill(&denied);
  return support_teardown(state);
}
static void no_secret(void) {
  if (strstr(run_out, "hunter2") || strstr(run_err, "hunter2"))
    fail_msg("a secret is shown:\n%s%s", run_out, run_err);
}

static void test_commands(void **state) {
  (void)state;
  assert_int_equal(run_tool("info %s", url), 0);
  assert_has(run_out, "uwnd  float32  132x73x144");
  assert_has(run_out, "Stored bytes: not known");
  assert_null(strstr(run_out, "stored 0 B"));
  assert_has(run_out, "values   -90 to 90"); /* of lat: a chunk was read */
  assert_int_equal(run_tool("info %s --json", url), 0);
  assert_int_equal(run_tool("verify %s", url), 0);
  assert_has(run_out, "47 chunks of 5 arrays checked, none is bad");
  assert_int_equal(run_tool("plan %s", url), 0);
  assert_has(run_out, url);
  assert_int_equal(
      run_tool("cat %s uwnd --slice time=5:6,lat=3:4,lon=7:9 --text --precision full", url), 0);
  char *text = strdup(run_out);
  assert_int_equal(run_tool("cat examples/data/winds.zarr uwnd --slice time=5:6,lat=3:4,lon=7:9 "
                            "--text --precision full"),
      0);
  assert_string_equal(text, run_out);
  free(text);
  assert_int_equal(run_tool("info http://127.0.0.1:%d/none.zarr", server.port), 1);
  assert_int_equal(run_tool("info 'http://127.0.0.1:%d/era5.nc?sig=hunter2'", server.port), 1);
  assert_has(run_err, "by its name it may be an HDF5 or NetCDF-4 file, which cannot be read here");
  no_secret();
}
/* Chunks that a store does not give are not bad: no registry leaves their samples out. */
static void test_verify_unread(void **state) {
  (void)state;
  char registry[600];
  snprintf(registry, sizeof registry, "%s", support_path("registry.json"));
  assert_int_equal(
      run_tool("verify http://127.0.0.1:%d/winds.zarr --registry %s", denied.port, registry), 1);
  assert_has(run_out, "FAIL  uwnd");
  assert_has(run_out, "2 not read");
  assert_has(run_out, "uwnd/7.0.0: ");
  assert_has(run_out, "no chunk that was read is bad; 2 could not be read");
  assert_null(strstr(run_out, "INSITU_FILL"));
  assert_has(run_err, "uwnd: 2 chunks could not be read, which says nothing of the archive");
  assert_int_equal(access(registry, F_OK), -1);
  assert_int_equal(run_tool("verify http://127.0.0.1:%d/winds.zarr uwnd --json", denied.port), 1);
  assert_has(run_out, "\"status\": \"unread\"");
  assert_has(run_out, "\"bad\": 0,\n      \"unread\": 2");
  assert_has(run_out, "\"bad\": 0,\n  \"unread\": 2");
}
/* An archive whose server does not tell what is there: arrays that are named are checked, and of
 * others no registry says that none of their chunks is bad. */
static void test_unlisted(void **state) {
  (void)state;
  const struct server_options o = {.folder = "tests/data/stores", .no_log = true};
  struct server_child stores = server_fork(&o, NULL, NULL);
  char archive[100], path[300];
  snprintf(archive, sizeof archive, "http://127.0.0.1:%d/elements.v2.zarr", stores.port);
  snprintf(path, sizeof path, "%s", support_path("unlisted.json"));
  assert_int_equal(run_tool("verify %s raw", archive), 0);
  assert_has(run_out, "of 1 array checked, none is bad");
  assert_int_equal(run_tool("verify %s raw --json", archive), 0);
  assert_has(run_out, "\"ok\": true");
  assert_int_equal(run_tool("verify %s --registry %s", archive, path), 1);
  assert_has(run_err, "does not tell what is there");
  assert_has(run_err, "the registry is not written");
  assert_has(run_out, "nothing could be checked");
  assert_null(strstr(run_out, "has no arrays"));
  assert_int_equal(access(path, F_OK), -1);
  server_kill(&stores);
}

static void test_doctor(void **state) {
  (void)state;
  int code = run_tool("doctor %s", url);
  assert_int_equal(code, 0);
  assert_has(run_out, "HTTP/1.1 to 127.0.0.1");
  assert_has(run_out, "endpoint");
  assert_has(run_out, "on the same connection");
  assert_has(run_out, "ranges      work");
  assert_has(run_out, "not to be had from an HTTP server");
  assert_has(run_out, "Zarr v2, consolidated metadata");
  assert_has(run_out, "uwnd/0.0.0: fetched in");
  assert_has(run_out, "requests");
  assert_has(run_out, "/s with ");
  assert_has(run_out, " in flight");
  assert_int_equal(run_tool("doctor %s -O max_connections=2 --json", url), 0);
  assert_has(run_out, "the options fix 2 in flight");
  assert_int_equal(run_tool("doctor http://127.0.0.1:%d/winds.zarr", flat.port), 0);
  assert_has(run_out, "ignores them and sends whole objects");
  assert_int_equal(run_tool("doctor http://127.0.0.1:%d/none.zarr", server.port), 1);
  assert_has(run_out, "there is no zarr.json");
  assert_int_equal(run_tool("doctor http://127.0.0.1:1/none.zarr -O max_retries=0"), 1);
  assert_has(run_out, "check host and port");
  assert_int_equal(run_tool("doctor s3://bucket/none -O endpoint=http://127.0.0.1:%d -O "
                            "region=mars-1 -O allow_http=true --anonymous",
                       server.port),
      1);
  assert_has(run_out, "region mars-1 (from options)");
  assert_has(run_out, "anonymous");
  assert_int_equal(
      run_tool(
          "doctor s3://bucket/none -O endpoint=http://127.0.0.1:%d -O access_key_id=AKIDEXAMPLE "
          "-O allow_http=true -O secret_access_key=hunter2 --json",
          server.port),
      1);
  no_secret();
}
static void test_options(void **state) {
  (void)state;
  assert_int_equal(
      run_tool("info %s --short --option connect_timeout=3s --option max_connections=2", url), 0);
  assert_int_equal(run_tool("info %s -O hunter2", url), 2); /* perhaps a value alone */
  assert_has(run_err, "region=eu-west-1");
  no_secret();
  assert_int_equal(run_tool("info %s --optoin secret_access_key=hunter2", url), 2);
  assert_has(run_err, "did you mean --option");
  assert_int_equal(run_tool("info %s --optoin=secret_access_key=hunter2", url), 2);
  no_secret();
  assert_int_equal(run_tool("info %s --secret_access_key=hunter2", url), 2);
  no_secret();
  assert_int_equal(run_tool("info %s -O no_such_key=hunter2", url), 1);
  assert_has(run_err, "no_such_key");
  no_secret();
  /* One configuration serves a remote archive and its copy; but a misspelt name is told. */
  assert_int_equal(run_tool("info examples/data/winds.zarr -O region=mars-1"), 0);
  assert_int_equal(
      run_tool("plan examples/data/winds.zarr -O region=mars-1 --cache-dir /nowhere"), 0);
  assert_has(run_out, "cache_dir is not used: the archive is local");
  assert_has(run_out, "options are not used: the archive is local");
  assert_int_equal(run_tool("plan examples/data/winds.zarr --json"), 0);
  assert_null(strstr(run_out, "is not used"));
  assert_int_equal(run_tool("info examples/data/winds.zarr -O regoin=mars-1"), 1);
  assert_has(run_err, "did you mean 'region'?");
  /* --output of cat, and of nothing else */
  assert_int_equal(run_tool("info examples/data/winds.zarr -o region=mars-1"), 2);
  char with[120];
  snprintf(with, sizeof with, "http://127.0.0.1:%d/winds.zarr?sig=hunter2", server.port);
  static const char *const command[] = {"info '%s'", "info '%s' --json", "plan '%s'",
      "plan '%s' --json", "verify '%s' --json", "doctor '%s'", "bench '%s' --rounds 0 --epochs 1"};
  for (size_t i = 0; i < sizeof command / sizeof *command; i++) {
    char words[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(words, sizeof words, command[i], with);
#pragma GCC diagnostic pop
    assert_int_equal(run_tool("%s", words), 0);
    no_secret();
  }
  assert_int_equal(run_tool("cat --help"), 0);
  assert_has(run_out, "-o, --output FILE");
  assert_has(run_out, "-O, --option KEY=VALUE");
}
static void write_text(const char *path, const char *text) {
  support_write(path, text, strlen(text));
}
/* A configuration's options reach its store; those of the command count more. */
static void test_options_of_a_file(void **state) {
  char path[PATH_MAX];
  (void)state;
  snprintf(path, sizeof path, "%s", support_path("train.json"));
  write_text(path, "{\"url\": \"http://127.0.0.1:1/a.zarr\", \"options\": {\"max_retries\": 0, "
                   "\"bearer_token\": \"hunter2\"}}");
  assert_int_equal(run_tool("plan --config %s", path), 1);
  assert_null(strstr(run_err, "attempts"));
  no_secret();
  assert_int_equal(run_tool("plan --config %s -O max_retries=1", path), 1);
  assert_has(run_err, "given up after 2 attempts");
  write_text(path, "{\"options\": {\"max_retrys\": 0, \"bearer_token\": \"hunter2\"}}");
  assert_int_equal(run_tool("plan http://127.0.0.1:1/a.zarr --config %s", path), 1);
  assert_has(run_err, "did you mean 'max_retries'");
  no_secret();
  write_text(path, "{\"options\": [\"hunter2\"]}");
  assert_int_equal(run_tool("plan http://127.0.0.1:1/a.zarr --config %s", path), 2);
  assert_has(run_err, "options: give an object");
  no_secret();
}
static void test_bench(void **state) {
  (void)state;
  assert_int_equal(
      run_tool(
          "bench http://127.0.0.1:%d/winds.zarr --seconds 0.2 --batch-size 4 --rounds 1 --json",
          away.port),
      0);
  assert_has(run_out, "\"knee\": ");
  assert_has(run_out, "\"max_inflight\": 1,");
  assert_has(run_out, "\"raw_bytes_per_s\": ");
  /* Other programs that keep the cores busy do not make a job decode that waits for its server. */
  pid_t burner[8];
  int burners = (int)insitu__base_min(8, insitu__mem_online());
  for (int i = 0; i < burners; i++) {
    burner[i] = fork();
    for (volatile unsigned k = 0; burner[i] == 0; k++) {}
  }
  int code = run_tool(
      "bench http://127.0.0.1:%d/winds.zarr --epochs 4 --batch-size 4 --rounds 0", away.port);
  for (int i = 0; i < burners; i++) {
    kill(burner[i], SIGKILL);
    waitpid(burner[i], NULL, 0);
  }
  assert_int_equal(code, 0);
  assert_has(run_out, "limited by: read; the job keeps ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_commands),
      cmocka_unit_test(test_verify_unread),
      cmocka_unit_test(test_unlisted),
      cmocka_unit_test(test_doctor),
      cmocka_unit_test(test_options),
      cmocka_unit_test(test_options_of_a_file),
      cmocka_unit_test(test_bench),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
