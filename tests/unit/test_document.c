/* Reading a configuration from JSON, without opening it: memory that cannot be had at any place,
 * sizes with units, numbers in every locale, and lists that are too long. */
#include <stddef.h>
#include <stdlib.h>
static long allow = -1; /* allocations that are left; below 0: all */
static inline void *some(void *p, size_t n) {
  if (allow == 0) return NULL;
  if (allow > 0) allow--;
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) some(p, n)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"

static const char whole[] =
    "{\"url\": \"a\", \"variables\": [\"t\", {\"path\": \"u\", \"steps\": [1, 2], \"slices\": "
    "[{\"dim\": \"x\"}], \"ops\": [{\"op\": \"clip\", \"lo\": [0.5, -1.25e-3], \"dim\": \"x\"}]}], "
    "\"axes\": [\"time\", {\"dim\": \"x\", \"patch\": 2}], \"outputs\": [{\"label\": \"w\", "
    "\"shape\": [2]}], \"options\": {\"region\": \"r\", \"hedge\": true}, \"samples\": [[1, 2], "
    "[3, 4]], \"split\": [{\"fraction\": 0.5, \"from\": \"1979\"}], \"iterator\": {\"epoch\": 3}}";

static insitu_status read_text(struct insitu__document *d, const char *text, insitu_error *err) {
  memset(d, 0, sizeof *d);
  memset(err, 0, sizeof *err);
  insitu_status status = insitu__document_read(d, text, strlen(text), "test", err);
  if (!status && !insitu__document_samples_end(d, "samples")) status = d->status;
  return status;
}

/* Each failure is one of memory, and leaves nothing behind. */
static void test_no_memory(void **state) {
  struct insitu__document d;
  insitu_error err;
  insitu_status status = INSITU_E_NOMEM;
  long n = 0;
  (void)state;
  for (; status; n++) {
    allow = n;
    status = read_text(&d, whole, &err);
    allow = -1;
    if (status && status != INSITU_E_NOMEM) fail_msg("%ld: %s", n, err.message);
    if (status) assert_non_null(strstr(err.message, "no memory"));
    if (!status) {
      assert_int_equal(d.desc.n_samples, 2);
      assert_int_equal(d.desc.samples[3], 4);
      assert_int_equal(d.iter.epoch, 3);
      assert_string_equal(d.desc.options[1].value, "true");
    }
    insitu__document_free(&d);
  }
  assert_in_range(n, 10, 1000);
}

static void test_sizes(void **state) {
  static const struct {
    const char *text;
    uint64_t value;
  } good[] = {{"0", 0}, {"17", 17}, {"4k", 4000}, {"4K", 4000}, {"4Ki", 4096}, {"2MB", 2000000},
      {"2MiB", 2 << 20}, {"1Gi", 1 << 30}, {"16TiB", UINT64_C(1) << 44},
      {"18446744073709551615", UINT64_MAX}, {"9B", 9}};
  static const char *const wrong[] = {"", "-1", "k", "1x", "1kk", "1 k", "1i",
      "18446744073709551616", "18446744073T", "1kB ", "0x1"};
  uint64_t v;
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    if (!insitu__document_size(good[i].text, &v)) fail_msg("%s", good[i].text);
    assert_int_equal(v, good[i].value);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    if (insitu__document_size(wrong[i], &v)) fail_msg("'%s' is taken", wrong[i]);
}

/* Numbers have a point, whatever the program's locale. */
static void test_locale(void **state) {
  static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
  struct insitu__document d;
  insitu_error err;
  (void)state;
  for (int i = 0; i < 3; i++) {
    struct insitu__text_buffer b = {0};
    if (!setlocale(LC_ALL, locales[i])) continue;
    assert_int_equal(read_text(&d, whole, &err), INSITU_OK);
    const insitu_op *op = d.desc.variables[1].ops;
    assert_true(op->n == 2 && op->as[0] == 0.5 && op->as[1] == -1.25e-3);
    insitu__document_write_ops(&b, &d.desc.variables[1]);
    assert_non_null(strstr(b.text, "\"lo\": [0.5, -0.00125]"));
    insitu__text_buffer_free(&b);
    insitu__document_free(&d);
  }
  setlocale(LC_ALL, "C");
}

/* No list is longer than what a loader takes, and none is allocated before it is counted. */
static void test_long(void **state) {
  static const struct {
    const char *head, *tail;
    int n;
  } lists[] = {{"{\"variables\": [", "]}", INSITU__MAX_VARIABLES + 1},
      {"{\"outputs\": [", "]}", INSITU__MAX_VARIABLES + 1},
      {"{\"variables\": [{\"steps\": [", "]}]}", INSITU__MAX_STEPS + 1},
      {"{\"variables\": [{\"slices\": [", "]}]}", INSITU__MAX_DIMS + 1},
      {"{\"variables\": [{\"ops\": [", "]}]}", INSITU__OPS_LIST + 1}};
  struct insitu__document d;
  insitu_error err;
  (void)state;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    struct insitu__text_buffer b = {0};
    insitu__text_buffer_printf(&b, "%s", lists[i].head);
    for (int k = 0; k < lists[i].n; k++) insitu__text_buffer_printf(&b, k ? ",1" : "1");
    insitu__text_buffer_printf(&b, "%s", lists[i].tail);
    assert_int_equal(read_text(&d, b.text, &err), INSITU_E_ARG);
    if (!strstr(err.message, "elements; give at most")) fail_msg("%s", err.message);
    insitu__document_free(&d);
    insitu__text_buffer_free(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory), cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_locale), cmocka_unit_test(test_long)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
