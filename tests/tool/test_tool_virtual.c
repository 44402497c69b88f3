/* What the command insitu says of archives whose chunks lie in other files: references in JSON, an
 * index of them, and Icechunk repositories of both versions. */
#include "insitubatch.h"
#include "support.h"
#include "run_tool.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

enum { SHAPE = 24, FIELD = 12, CHUNKS = 12 };

/* Writes references to one file, and the same as an archive of files beside it. first: where the
 * first chunk is, instead: NULL, or its bytes in base64. */
static void write_references(const char *first) {
  static const char meta[] = "{\"zarr_format\":2,\"shape\":[24,12],\"chunks\":[2,12],"
                             "\"dtype\":\"<i4\",\"compressor\":null,\"filters\":null,"
                             "\"order\":\"C\",\"fill_value\":0}";
  int32_t values[SHAPE * FIELD];
  char text[4096], name[64], *to = text;
  for (int i = 0; i < SHAPE * FIELD; i++) values[i] = i * 7 - 100;
  support_write(support_path("r/pack"), values, sizeof values);
  to += sprintf(to,
      "{\"version\":1,\"refs\":{\".zgroup\":\"{\\\"zarr_format\\\":2}\",\"x/.zarray\":%s", meta);
  for (int c = 0; c < CHUNKS; c++) {
    if (!c && first) to += sprintf(to, ",\"x/0.0\":\"base64:%s\"", first);
    else to += sprintf(to, ",\"x/%d.0\":[\"pack\",%d,96]", c, c * 96);
    snprintf(name, sizeof name, "plain.zarr/x/%d.0", c);
    support_write(support_path(name), values + c * 24, 96);
  }
  to += sprintf(to, "}}");
  support_write(support_path("r/refs.json"), text, (uint64_t)(to - text));
  support_write(support_path("plain.zarr/.zgroup"), "{\"zarr_format\":2}", 17);
  support_write(support_path("plain.zarr/x/.zarray"), meta, sizeof meta - 1);
}

/* Commands over the archive at url, of which `array` has rows of `chunks` chunks. */
static void commands(const char *url, const char *array, const char *what, const char *prefix) {
  assert_int_equal(run_tool("info '%s' %s", url, prefix), 0);
  assert_has(run_out, what);
  assert_has(run_out, array);
  assert_int_equal(run_tool("plan '%s' --var %s --batch-size 4 %s", url, array, prefix), 0);
  assert_has(run_out, "chunks in flight");
  assert_int_equal(run_tool("verify '%s' %s %s", url, array, prefix), 0);
  assert_has(run_out, "none is bad");
  assert_int_equal(run_tool("doctor '%s' %s", url, prefix), 0);
  assert_has(run_out, "all can be read");
  if (strstr(run_out, "zip file")) fail_msg("%s", run_out);
  int status = run_tool_with("INSITU_CHECK=1",
      "cat '%s' --var %s --batch-size 4 --batch 0,1 --text %s", url, array, prefix);
  if (status) fail_msg("%s: %d: %s", url, status, run_err);
}

static void test_references(void **state) {
  char json[300], index[300], plain[300], *first;
  (void)state;
  write_references(NULL);
  snprintf(json, sizeof json, "%s", support_path("r/refs.json"));
  snprintf(index, sizeof index, "%s", support_path("r/refs.insitu"));
  snprintf(plain, sizeof plain, "%s", support_path("plain.zarr"));
  commands(json, "x", "References to 1 target", "");
  assert_int_equal(run_tool("refs '%s' -o '%s'", json, index), 0);
  /* a directory of something else */
  assert_int_equal(run_tool("refs '%s' -o '%s.no'", support_dir, index), 1);
  assert_non_null(strstr(run_err, "no .zmetadata is in it"));
  assert_null(strstr(run_err, "Traceback"));
  commands(index, "x", "References to 1 target", "");
  assert_int_equal(run_tool("cat '%s' x", plain), 0);
  first = strdup(run_out);
  assert_int_equal(run_tool("cat '%s' x", json), 0);
  assert_string_equal(run_out, first);
  assert_int_equal(run_tool("cat '%s' x", index), 0);
  assert_string_equal(run_out, first);
  free(first);
  /* a file that is too short for what they say */
  support_write(support_path("r/pack"), "short", 5);
  assert_int_equal(run_tool("verify '%s'", json), 1);
  assert_has(run_out, "12 chunks");
}

/* Arrays whose metadata are references, too: in the listing, and not among the stored chunks. */
static void test_metadata_references(void **state) {
  (void)state;
  write_references(NULL);
  static const char refs[] =
      "{\"version\":1,\"refs\":{\".zgroup\":\"{\\\"zarr_format\\\":2}\",\"x/.zarray\":[\"meta\"],"
      "\"x/0.0\":[\"pack\",0,96],\"x/1.0\":[\"pack\",96,96],\"g/.zgroup\":[\"group\"],"
      "\"g/y/0.0\":[\"pack\",0,96],\"g/y/.zarray\":[\"meta\"]}}";
  char *meta = run_slurp(support_path("plain.zarr/x/.zarray"));
  support_write(support_path("r/meta"), meta, strlen(meta));
  free(meta);
  support_write(support_path("r/group"), "{\"zarr_format\":2}", 17);
  support_write(support_path("r/all.json"), refs, sizeof refs - 1);
  assert_int_equal(run_tool("info '%s' --short", support_path("r/all.json")), 0);
  assert_has(run_out, "Zarr v2, 2 arrays, ");
  assert_has(run_out, "(stored 288 B)");
  assert_has(run_out, "\n  x ");
  assert_has(run_out, "\n  g/\n    y ");
  assert_int_equal(run_tool("info '%s' g/y --short", support_path("r/all.json")), 0);
  assert_has(run_out, "1 array, ");

  /* a chunk whose size nothing tells */
  static const char whole[] = "{\".zgroup\":\"{\\\"zarr_format\\\":2}\",\"x/.zarray\":[\"meta\"],"
                              "\"x/0.0\":[\"pack\"]}";
  support_write(support_path("r/whole.json"), whole, sizeof whole - 1);
  assert_int_equal(run_tool("info '%s' --short", support_path("r/whole.json")), 0);
  assert_has(run_out, "references to whole files do not tell their size");
}

static void test_icechunk(void **state) {
  (void)state;
  commands(TEST_DATA "/icechunk/v1", "t2m", "Icechunk repository (specification 1)", "");
  commands(TEST_DATA "/icechunk/v2", "t2m", "Icechunk repository (specification 2)", "");
  assert_int_equal(run_tool("verify '" TEST_DATA "/icechunk/v2' virtual"), 1);
  assert_has(run_out, "--virtual-prefix");
}

/* The bare loop that a loader is compared with reads the same bytes, or the share is void. */
static void test_bench(void **state) {
  char zeros[129];
  (void)state;
  memset(zeros, 'A', 128);
  zeros[128] = 0;
  write_references(zeros);
  const char *url = support_path("r/refs.json");
  if (run_tool("bench '%s' --var x --batch-size 4 --seconds 0.05 --rounds 1 --json", url))
    fail_msg("%s%s", run_out, run_err);
  assert_has(run_out, "\"bare_bytes_per_s\": ");
  if (strstr(run_out, "\"bare_bytes_per_s\": 0,")) fail_msg("%s", run_out);
  assert_has(run_out, "\"share\": null");
  assert_has(run_out, "1 of 10 chunks lie in memory or on a server");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_references),
      cmocka_unit_test(test_metadata_references), cmocka_unit_test(test_icechunk),
      cmocka_unit_test(test_bench)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
