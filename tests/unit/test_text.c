/* Cores, JSON, growing arrays and buffers, near names, URLs. */
#include <stdlib.h>
static int allocations_left = -1; /* -1: memory never runs out */
static void *limited_realloc(void *p, size_t n) {
  if (allocations_left == 0) return NULL;
  allocations_left -= allocations_left > 0;
  return realloc(p, n);
}
#define INSITU_REALLOC(p, n) limited_realloc(p, n)
#define INSITU_FREE(p) free(p)
#include <sched.h>
static int kernel_places, kernel_cores; /* 0: the real kernel */
static int affinity(pid_t pid, size_t bytes, cpu_set_t *set);
#define sched_getaffinity(pid, bytes, set) affinity(pid, bytes, set)
#include <stdio.h>
static const char *groups; /* what /proc/self/cgroup says; NULL: the real kernel */
static FILE *open_file(const char *path, const char *mode);
#define fopen(path, mode) open_file(path, mode)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#undef sched_getaffinity
#undef fopen
#include <setjmp.h>
#include <cmocka.h>

static int affinity(pid_t pid, size_t bytes, cpu_set_t *set) {
  if (!kernel_places) return sched_getaffinity(pid, bytes, set);
  errno = EINVAL;
  if (bytes * 8 < (size_t)kernel_places) return -1;
  CPU_ZERO_S(bytes, set);
  for (int i = 0; i < kernel_cores; i++) CPU_SET_S(kernel_places - 1 - i, bytes, set);
  return 0;
}
static FILE *open_file(const char *path, const char *mode) {
  const char *text = NULL;
  if (!groups) return fopen(path, mode);
  if (!strcmp(path, "/proc/self/cgroup")) text = groups;
  if (!strcmp(path, "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us")) text = "100000";
  return text ? fmemopen((void *)text, strlen(text), "r") : NULL;
}
/* The limit of a group counts for those in it, not for those in a cpuset of the same name. */
static void control_groups(void **state) {
  static const struct {
    const char *groups;
    uint64_t cores;
  } cases[] = {{"4:cpu,cpuacct:/a/b\n", 1}, {"4:cpuacct,cpu:/a\n", 1}, {"4:cpuset,cpu:/a\n", 1},
      {"5:cpuset:/a\n4:cpu,cpuacct:/\n", UINT64_MAX}, {"5:cpuset:/a\n4:cpu:/a\n", 1},
      {"1:name=systemd:/a\n", UINT64_MAX}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    groups = cases[i].groups;
    assert_int_equal(insitu__mem_cgroup(true), cases[i].cores);
  }
  groups = NULL;
}
/* Machines with more CPU ids than a cpu_set_t has places. */
static void affinities(void **state) {
  (void)state;
  assert_true(insitu__mem_affinity() >= 1);
  for (kernel_places = 64; kernel_places <= 1 << 20; kernel_places *= 4) {
    kernel_cores = kernel_places / 2 + 1;
    assert_int_equal(insitu__mem_affinity(), kernel_cores);
  }
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  kernel_places = 1 << 30; /* no set is long enough */
  assert_int_equal(insitu__mem_affinity(), online);
  kernel_places = 64;
  allocations_left = 0;
  assert_int_equal(insitu__mem_affinity(), online);
  allocations_left = -1;
  kernel_places = 0;
}

static uint64_t next_random(uint64_t *s) { /* splitmix64 */
  uint64_t z = *s += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* Asks a value, and all below it, everything. */
static void ask(const struct insitu__text_json *j, int t) {
  char buf[64];
  uint64_t u, span;
  int64_t i;
  double d;
  int members = 0, last = t;
  insitu__text_json_u64(j, t, &u);
  insitu__text_json_i64(j, t, &i);
  insitu__text_json_double(j, t, &d);
  insitu__text_json_string(j, t, buf, 1 + (size_t)(t + 1) % sizeof buf);
  insitu__text_json_get(j, t, "a");
  const char *p = insitu__text_json_span(j, t, &span);
  assert_true(t < 0 ? !p : p == j->text + t && span && t + (int)span <= j->n);
  for (int c = insitu__text_json_first(j, t); c >= 0; c = insitu__text_json_next(j, c)) {
    bool object = insitu__text_json_is_object(j, t);
    int value = object ? insitu__text_json_value(j, c) : c;
    assert_true(c > last && (!object || (insitu__text_json_is_string(j, c) && value > c)));
    ask(j, last = value);
    members++;
  }
  assert_int_equal(members, insitu__text_json_size(j, t));
}
/* Parses a copy of exactly n bytes, so that ASan sees a read past the end. */
static insitu_status check(const char *text, size_t n, insitu_error *err) {
  char *copy = malloc(n ? n : 1);
  struct insitu__text_json j;
  memcpy(copy, text, n);
  insitu_status status = insitu__text_json_parse(&j, copy, n, "document", err);
  ask(&j, -1);
  if (!status) ask(&j, 0);
  insitu__text_json_free(&j);
  free(copy);
  return status;
}

static void grammar(void **state) {
  static const char *const good[] = {"{}", "[]", " [ ] ", "0", "-0", "1.5e+10", "\"\"", "null",
      "NaN", "Infinity", "-Infinity", "[NaN,-Infinity]",
      "{\"a\":{\"b\":[1,{\"c\":[]},{}]},\"a\":2}", "\t\r\n{\"\\u00e9\":\"\\ud83d\\ude00\\/\"}\n",
      "\"\\ud800\"", "[true,false,null]", "\xEF\xBB\xBF{}", "\xEF\xBB\xBF [1]\n"};
  static const struct {
    const char *text, *where;
  } bad[] = {{"", "line 1, column 1"}, {"{", "column 2"}, {"{\"a\":1,}", "column 8"},
      {"[1,]", "column 4"}, {"[,1]", "column 2"}, {"[1 2]", "column 4"}, {"{\"a\" 1}", "column 6"},
      {"{a:1}", "column 2"}, {"{1:2}", "column 2"}, {"01", "column 2"}, {"1.", "column 3"},
      {".5", "column 1"}, {"+1", "column 1"}, {"1e", "column 3"}, {"--1", "column 2"},
      {"-NaN", "column 2"}, {"nul", "column 1"}, {"truee", "column 5"}, {"[}", "column 2"},
      {"{]", "column 2"}, {"]", "column 1"}, {"[]]", "column 3"}, {"{}x", "column 3"},
      {"\"a", "column 3"}, {"\"\\x\"", "column 3"}, {"\"\\u12g4\"", "column 6"},
      {"\"a\nb\"", "column 3"}, {"'a'", "column 1"}, {"[1\n,\n/**/2]", "line 3, column 1"},
      {"infinity", "column 1"}, {"{\"a\":1 \"b\":2}", "column 8"}, {"\"\\", "column 3"},
      {"[1][2]", "column 4"}, {"\xEF\xBB\xBF", "column 4"}, {" \xEF\xBB\xBF{}", "column 2"},
      {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "column 4"}, {"\xEF\xBB{}", "column 1"},
      {"Infinit", "column 1"}};
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    assert_int_equal(check(good[i], strlen(good[i]), NULL), INSITU_OK);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    insitu_error err = {0};
    assert_int_equal(check(bad[i].text, strlen(bad[i].text), &err), INSITU_E_JSON);
    if (!strstr(err.message, bad[i].where)) fail_msg("%s: %s", bad[i].text, err.message);
  }
  assert_int_equal(check("[1\0]", 4, NULL), INSITU_E_JSON);
  assert_int_equal(check("\"\0\"", 3, NULL), INSITU_E_JSON);
  for (int object = 0; object < 2; object++)
    for (int depth = INSITU__MAX_JSON_DEPTH; depth <= INSITU__MAX_JSON_DEPTH + 1; depth++) {
      struct insitu__text_buffer b = {0};
      for (int i = 0; i < depth; i++) insitu__text_buffer_printf(&b, object ? "{\"k\":" : "[");
      insitu__text_buffer_printf(&b, object ? "1" : "");
      for (int i = 0; i < depth; i++) insitu__text_buffer_printf(&b, object ? "}" : "]");
      assert_int_equal(
          check(b.text, b.n, NULL), depth > INSITU__MAX_JSON_DEPTH ? INSITU_E_JSON : INSITU_OK);
      insitu__text_buffer_free(&b);
    }
}

static const char sample[] = "{\"zarr_format\": 2, \"shape\": [0, -17, 1e-3, 1.5E+2, "
                             "18446744073709551615],\n \"fill_value\": NaN, \"x\\\"\\u00e9\": "
                             "[{}, [], \"\\ud83d\\ude00\", true, false, null, -Infinity, {\"a\": "
                             "{\"a\": \"b\"}}], \"a\": \"c\"}";

/* every truncation is refused; every change of a byte is refused or gives a sound document */
static void damage(void **state) {
  char text[sizeof sample];
  uint64_t seed = 1, accepted = 0;
  (void)state;
  assert_int_equal(check(sample, sizeof sample - 1, NULL), INSITU_OK);
  for (size_t n = 0; n < sizeof sample - 1; n++)
    assert_int_equal(check(sample, n, NULL), INSITU_E_JSON);
  for (size_t i = 0; i < sizeof sample - 1; i++)
    for (const char *c = "{}[]\",:\\0-.eNu \n\x01\xff"; *c; c++) {
      memcpy(text, sample, sizeof sample);
      text[i] = *c;
      accepted += check(text, sizeof sample - 1, NULL) == INSITU_OK;
    }
  assert_in_range(accepted, 500, 4000);
  for (int round = 0; round < 20000; round++) { /* short documents of JSON's own characters */
    static const char letters[] = "{}[]\"\",:0123-.eE\\nulltruefalseNaN \n";
    size_t n = next_random(&seed) % 12;
    for (size_t i = 0; i < n; i++) text[i] = letters[next_random(&seed) % (sizeof letters - 1)];
    check(text, n, NULL);
  }
}

static double as_double(const char *text, bool *ok) {
  struct insitu__text_json j;
  double d = 0;
  assert_int_equal(insitu__text_json_parse(&j, text, strlen(text), "", NULL), INSITU_OK);
  *ok = insitu__text_json_double(&j, 0, &d);
  insitu__text_json_free(&j);
  return d;
}
static void numbers(void **state) {
  static const struct {
    const char *text;
    int u, i; /* is it one? */
  } integers[] = {{"0", 1, 1}, {"9223372036854775807", 1, 1}, {"9223372036854775808", 1, 0},
      {"18446744073709551615", 1, 0}, {"18446744073709551616", 0, 0},
      {"99999999999999999999999999", 0, 0}, {"-9223372036854775808", 0, 1},
      {"-9223372036854775809", 0, 0}, {"1.0", 0, 0}, {"1e3", 0, 0}, {"\"1\"", 0, 0}, {"true", 0, 0},
      {"NaN", 0, 0}, {"[]", 0, 0}, {"-0", 0, 1}, {"-Infinity", 0, 0}};
  bool ok;
  (void)state;
  for (int locale = 0; locale < 2; locale++) {
    if (locale && !setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
      break; /* where there is one with a decimal comma */
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) {
      struct insitu__text_json j;
      uint64_t u;
      int64_t i;
      assert_int_equal(
          insitu__text_json_parse(&j, integers[k].text, strlen(integers[k].text), "", NULL),
          INSITU_OK);
      assert_int_equal(insitu__text_json_u64(&j, 0, &u), integers[k].u);
      assert_int_equal(insitu__text_json_i64(&j, 0, &i), integers[k].i);
      if (integers[k].u) assert_true(u == strtoull(integers[k].text, NULL, 10));
      if (integers[k].i) assert_true(i == strtoll(integers[k].text, NULL, 10));
      insitu__text_json_free(&j);
    }
    assert_true(as_double("1.5", &ok) == 1.5 && ok);
    assert_true(as_double("-2.5e-3", &ok) == -2.5e-3 && ok);
    assert_true(as_double("1.7976931348623157e308", &ok) == 1.7976931348623157e308 && ok);
    assert_true(as_double("5e-324", &ok) == 5e-324 && ok);
    assert_true(__builtin_isnan(as_double("NaN", &ok)) && ok);
    assert_true(as_double("-Infinity", &ok) < -1e308 && ok);
    static const char *const refused[] = {
        "1e309", "-1e309", "null", "true", "false", "\"1\"", "{}"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
      assert_true((as_double(refused[i], &ok), !ok));
  }
  setlocale(LC_ALL, "C");
  char digits[INSITU__MAX_JSON_NUMBER + 8];
  memset(digits, '1', sizeof digits);
  digits[sizeof digits - 1] = 0;
  as_double(digits, &ok);
  assert_false(ok);
}

static void strings(void **state) {
  static const struct {
    const char *json, *text; /* NULL: no C string */
  } cases[] = {{"\"\"", ""}, {"\"a\\n\\t\\\\\\\"\\/\\b\\f\\r\"", "a\n\t\\\"/\b\f\r"},
      {"\"\\u0041\\u00e9\\u20ac\"", "A\xC3\xA9\xE2\x82\xAC"},
      {"\"\\ud83d\\ude00x\"", "\xF0\x9F\x98\x80x"}, {"\"\\uD800\"", "\xEF\xBF\xBD"},
      {"\"\\udc00a\"", "\xEF\xBF\xBD"
                       "a"},
      {"\"\\ud800\\u0041\"", "\xEF\xBF\xBD"
                             "A"},
      {"\"\\ud800\\ud800\\udc00\"", "\xEF\xBF\xBD\xF0\x90\x80\x80"},
      {"\"\\ud800\\ue000\"", "\xEF\xBF\xBD\xEE\x80\x80"}, {"\"a\\u0000b\"", NULL}, {"1", NULL}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct insitu__text_json j;
    char buf[32];
    assert_int_equal(
        insitu__text_json_parse(&j, cases[i].json, strlen(cases[i].json), "", NULL), INSITU_OK);
    if (cases[i].text) {
      size_t n = strlen(cases[i].text);
      assert_int_equal(insitu__text_json_string(&j, 0, buf, n + 1), n);
      assert_string_equal(buf, cases[i].text);
      assert_int_equal(insitu__text_json_string(&j, 0, buf, n), -1);
      assert_true(insitu__text_json_equals(&j, 0, cases[i].text));
      snprintf(buf, sizeof buf, "%sx", cases[i].text);
      assert_false(insitu__text_json_equals(&j, 0, buf));
      if (n) buf[n - 1] = 0;
      if (n) assert_false(insitu__text_json_equals(&j, 0, buf));
    } else {
      assert_int_equal(insitu__text_json_string(&j, 0, buf, sizeof buf), -1);
      assert_false(insitu__text_json_equals(&j, 0, "a"));
    }
    insitu__text_json_free(&j);
  }
}

static void objects(void **state) {
  struct insitu__text_json j;
  int64_t i;
  (void)state;
  const char *text = "{\"a\":1,\"b\":{\"a\":2,\"c\":[3,[4,5],6]},\"\\u0061\":7}";
  assert_int_equal(insitu__text_json_parse(&j, text, strlen(text), "", NULL), INSITU_OK);
  /* the last of equal keys */
  assert_true(insitu__text_json_i64(&j, insitu__text_json_get(&j, 0, "a"), &i) && i == 7);
  int b = insitu__text_json_get(&j, 0, "b"), c = insitu__text_json_get(&j, b, "c");
  assert_true(insitu__text_json_i64(&j, insitu__text_json_get(&j, b, "a"), &i) && i == 2);
  assert_int_equal(insitu__text_json_get(&j, 0, "c"), -1);
  assert_int_equal(insitu__text_json_get(&j, c, "a"), -1);
  assert_int_equal(insitu__text_json_get(&j, -1, "a"), -1);
  assert_int_equal(insitu__text_json_size(&j, c), 3);
  int last = insitu__text_json_next(&j, insitu__text_json_next(&j, insitu__text_json_first(&j, c)));
  assert_true(insitu__text_json_i64(&j, last, &i) && i == 6);
  assert_int_equal(insitu__text_json_next(&j, last), -1);
  insitu__text_json_free(&j);
  /* a long array of containers: quadratic walking would take minutes */
  struct insitu__text_buffer big = {0};
  int count = 0;
  insitu__text_buffer_printf(&big, "[0");
  for (int k = 0; k < 200000; k++) insitu__text_buffer_printf(&big, ",[1,{\"k\":[]}]");
  insitu__text_buffer_printf(&big, "]");
  assert_int_equal(insitu__text_json_parse(&j, big.text, big.n, "", NULL), INSITU_OK);
  for (int t = insitu__text_json_first(&j, 0); t >= 0; t = insitu__text_json_next(&j, t)) count++;
  assert_int_equal(count, 200001);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&big);
}

/* Nanoseconds of processor time: a busy machine does not count. */
static int64_t processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What a document takes beside its text is bounded by the text, whatever it is made of; and the
 * walk over its members stays fast. Blanks stand before the value, so that places in it are not
 * those in the text. */
static void structure(void **state) {
  enum { BYTES = 3000000, DEPTH = INSITU__MAX_JSON_DEPTH - 1, LONG = INSITU__TEXT_LONG };
  /* nest: lists inside each other around a string */
  char nest[2 * DEPTH + LONG + 2], text[LONG + 8], number[LONG + 8];
  const struct {
    const char *unit;
    double most; /* bytes beside each byte of text */
  } kinds[] = {
      {"0,", 0}, {"{\"k\":[]},", 0}, {"\"\\\"\",", 0}, {text, 0.1}, {number, 0.1}, {nest, 2}};
  (void)state;
  snprintf(text, sizeof text, "\"%0*d\",", LONG, 0);
  snprintf(number, sizeof number, "1%0*d,", LONG, 0);
  snprintf(nest, sizeof nest, "%0*d\"%0*d\"%0*d,", DEPTH, 0, LONG - 3, 0, DEPTH, 0);
  memset(nest, '[', DEPTH);
  memset(nest + DEPTH + LONG - 1, ']', DEPTH);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    struct insitu__text_buffer b = {0};
    struct insitu__text_json j;
    int members = 0, n = 1;
    uint64_t span;
    insitu__text_buffer_printf(&b, " \n[");
    for (; b.n < BYTES; n++) insitu__text_buffer_bytes(&b, kinds[i].unit, strlen(kinds[i].unit));
    insitu__text_buffer_printf(&b, "7 ] ");
    assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "document", NULL), INSITU_OK);
    if (j.n_list * sizeof *j.list > 8 + (uint64_t)(kinds[i].most * (double)b.n))
      fail_msg("%s: %d long values", kinds[i].unit, (int)j.n_list);
    int64_t begin = processor_time(), last = 0;
    for (int t = insitu__text_json_first(&j, 0); t >= 0;
         t = insitu__text_json_next(&j, t), members++)
      if (members == n - 1) insitu__text_json_i64(&j, t, &last);
    assert_int_equal(members, n);
    assert_int_equal(last, 7);
    /* 20 ms, or seconds under Valgrind; a walk that is quadratic takes hours */
    assert_true(processor_time() - begin < INT64_C(60000000000));
    assert_ptr_equal(insitu__text_json_span(&j, 0, &span), b.text + 2);
    assert_int_equal(span, b.n - 3);
    ask(&j, insitu__text_json_first(&j, 0));
    insitu__text_json_free(&j);
    insitu__text_buffer_free(&b);
  }
}

/* An index gives for every name what the walk gives: the last of equal keys, whatever escapes they
 * are written with. */
static void indexes(void **state) {
  static const char *const objects[] = {"{}", "{\"a\":1}",
      "{\"b\":1,\"a\":2,\"b\":3,\"\\u0062\":{\"b\":0},\"\":4,\"ab\":5}",
      "{\"a\\u0000b\":1,\"\\ud83d\\ude00\":2,\"\xF0\x9F\x98\x80\":3,\"\\ud83d\":4,\"a\":5}"};
  static const char *const names[] = {
      "", "a", "b", "ab", "c", "B", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD", "a\\u0000b", "aa"};
  struct insitu__text_json j;
  (void)state;
  for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
    struct insitu__text_index x = {0};
    assert_int_equal(
        insitu__text_json_parse(&j, objects[i], strlen(objects[i]), "", NULL), INSITU_OK);
    assert_true(insitu__text_index_init(&x, &j, 0));
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
      assert_int_equal(
          insitu__text_index_get(&x, &j, names[k]), insitu__text_json_get(&j, 0, names[k]));
    insitu__text_index_free(&x);
    insitu__text_json_free(&j);
  }
  struct insitu__text_buffer b = {0}; /* each of many: quadratic time would be minutes */
  insitu__text_buffer_printf(&b, "{\"\":0");
  for (int i = 0; i < 100000; i++)
    insitu__text_buffer_printf(&b, ",\"%d\":%d", i * 7919 % 100000, i);
  insitu__text_buffer_printf(&b, "}");
  struct insitu__text_index x = {0};
  assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "", NULL), INSITU_OK);
  assert_true(insitu__text_index_init(&x, &j, 0));
  for (int i = 0; i < 100000; i++) {
    char name[12];
    int64_t value;
    snprintf(name, sizeof name, "%d", i * 7919 % 100000);
    assert_true(
        insitu__text_json_i64(&j, insitu__text_index_get(&x, &j, name), &value) && value == i);
  }
  insitu__text_index_free(&x);
  allocations_left = 0;
  assert_false(insitu__text_index_init(&x, &j, 0));
  allocations_left = -1;
  insitu__text_index_free(&x);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&b);
}

static void buffers(void **state) {
  uint64_t seed = 7;
  (void)state;
  for (int round = 0; round < 2000; round++) { /* what is written is read back */
    struct insitu__text_buffer b = {0};
    struct insitu__text_json j;
    char text[40], back[sizeof text];
    size_t n = next_random(&seed) % sizeof text;
    for (size_t i = 0; i < n; i++) text[i] = (char)(1 + next_random(&seed) % 127);
    if (n) text[n - 1] = 0;
    else text[0] = 0;
    assert_true(insitu__text_buffer_json_string(&b, text));
    assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "", NULL), INSITU_OK);
    assert_int_equal(insitu__text_json_string(&j, 0, back, sizeof back), strlen(text));
    assert_string_equal(back, text);
    insitu__text_json_free(&j);
    insitu__text_buffer_free(&b);
  }
  struct insitu__text_buffer b = {.limit = 10};
  assert_true(insitu__text_buffer_printf(&b, "%d", 12345));
  assert_true(insitu__text_buffer_bytes(&b, "67890", 5));
  assert_false(insitu__text_buffer_printf(&b, "x"));
  assert_true(b.failed && b.n == 10 && strcmp(b.text, "1234567890") == 0);
  assert_false(insitu__text_buffer_bytes(&b, "", 0)); /* failure sticks */
  insitu__text_buffer_free(&b);
  allocations_left = 1;
  while (insitu__text_buffer_printf(&b, "%0100d", 1)) {}
  assert_true(b.failed && b.n == 200); /* 256 bytes, then no more */
  allocations_left = -1;
  insitu__text_buffer_free(&b);
  allocations_left = 0;
  assert_int_equal(check("[1]", 3, NULL), INSITU_E_NOMEM);
  allocations_left = -1;
}

static void arrays(void **state) {
  struct pair {
    uint64_t a;
    char b;
  } *array = NULL;
  (void)state;
  assert_int_equal(INSITU__ARRAY_LEN(array), 0);
  for (uint64_t i = 0; i < 100000; i++)
    assert_true(INSITU__ARRAY_PUSH(array, (struct pair){i, (char)i}));
  assert_int_equal(INSITU__ARRAY_LEN(array), 100000);
  for (uint64_t i = 0; i < 100000; i++) assert_true(array[i].a == i && array[i].b == (char)i);
  uint64_t full = INSITU__ARRAY_LEN(array);
  allocations_left = 0; /* the room that is left is used, then pushing fails and harms nothing */
  while (INSITU__ARRAY_PUSH(array, (struct pair){full, 0})) full++;
  assert_int_equal(full, 131072);
  assert_int_equal(INSITU__ARRAY_LEN(array), full);
  assert_true(array[full - 1].a == full - 1 && array[0].a == 0);
  allocations_left = -1;
  assert_true(INSITU__ARRAY_PUSH(array, (struct pair){1, 1}));
  INSITU__ARRAY_FREE(array);
  assert_null(array);
  allocations_left = 0;
  assert_false(INSITU__ARRAY_PUSH(array, (struct pair){1, 1}));
  assert_null(array);
  allocations_left = -1;
  void *huge = NULL;
  assert_false(insitu__array_grow(&huge, UINT64_MAX / 2));
}

static void near_names(void **state) {
  static const char *const names[] = {"2m_temperature", "geopotential", NULL,
      "total_precipitation_6hr", "u", "v", "latitude", "longitude"};
  static const struct {
    const char *name;
    int want;
  } cases[] = {{"2m_temprature", 0}, {"GEOPOTENTIAL", 1}, {"geopotental", 1}, {"lattitude", 6},
      {"longitudes", 7}, {"precipitation", -1}, {"w", -1}, {"", -1}, {"u", 4}, {"temperature", 0},
      {"specific_humidity", -1}};
  char longer[300];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(
        insitu__text_nearest(cases[i].name, names, sizeof names / sizeof *names), cases[i].want);
  memset(longer, 'a', sizeof longer);
  for (size_t n = 120; n < 140; n++) {
    longer[n] = 0;
    const char *same = longer;
    assert_int_equal(insitu__text_nearest(longer, &same, 1), n <= INSITU__MAX_NEAR_NAME ? 0 : -1);
    longer[n] = 'a';
  }
}

static void urls(void **state) {
  static const struct {
    const char *url, *path;
    insitu_status status;
  } cases[] = {{"/data/era5.zarr", "/data/era5.zarr", 0}, {"era5.zarr", "era5.zarr", 0},
      {"./a%20b", "./a%20b", 0}, {"file:///a%20b%2Fc", "/a b/c", 0},
      {"FILE://localhost/a", "/a", 0}, {"file:/a", "/a", 0}, {"file://host/a", "", INSITU_E_ARG},
      {"file:///a%2", "", INSITU_E_ARG}, {"file:///a%", "", INSITU_E_ARG},
      {"file:///a%00b", "", INSITU_E_ARG}, {"file:///%zz", "", INSITU_E_ARG},
      {"", "", INSITU_E_ARG}, {"ftp://host/key", "ftp", INSITU_E_UNSUPPORTED},
      {"s3x://bucket/key", "s3x", INSITU_E_UNSUPPORTED}, {"a:b", "a:b", 0}, {"memory://", "", 0},
      {"Memory://a%20b/", "a b/", 0}, {"memory:/a", "memory:/a", 0},
      {"memory://%zz", "", INSITU_E_ARG}, {"memory", "memory", 0},
      {"memorys://a", "memorys", INSITU_E_UNSUPPORTED}, {"12:30:00Z://x", "12:30:00Z://x", 0},
      {"zip:///a%20b.zip/c", "/a b.zip/c", 0}, {"ZIP://a.zip", "a.zip", 0}, {"zip:/a", "zip:/a", 0},
      {"zip://%zz", "", INSITU_E_ARG}, {"zips://a", "zips", INSITU_E_UNSUPPORTED}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[32];
    int kind = -1;
    insitu_error err = {0};
    insitu_status status = insitu__text_url_parse(cases[i].url, &kind, path, sizeof path, &err);
    if (status != cases[i].status) fail_msg("%s: %d %s", cases[i].url, status, err.message);
    if (status == INSITU_OK) assert_string_equal(path, cases[i].path);
    if (status == INSITU_OK)
      assert_int_equal(kind, !strncasecmp(cases[i].url, "memory://", 9) ? INSITU__TEXT_URL_MEMORY
                             : strncasecmp(cases[i].url, "zip://", 6)   ? INSITU__TEXT_URL_FILE
                                                                        : INSITU__TEXT_URL_ZIP);
    else assert_non_null(strstr(err.message, cases[i].path));
    assert_null(strstr(err.message, "secret"));
  }
  char path[8];
  int kind;
  assert_int_equal(insitu__text_url_parse("1234567", &kind, path, sizeof path, NULL), INSITU_OK);
  assert_int_equal(
      insitu__text_url_parse("12345678", &kind, path, sizeof path, NULL), INSITU_E_ARG);
}

/* However a url is mistyped, what a message shows of it holds no secret, and a path stays a path.
 */
static void test_redact(void **state) {
  static const char *const cases[][2] = {
      {"zip://http://h/a.zip?sig=SECRET", "zip://http://h/a.zip?***"},
      {"http:/user:SECRET@h/a", "http:/***@h/a"}, {"http://user:SECRET@h/a", "http://***@h/a"},
      {"https;//user:SECRET@h/a", "https;//***@h/a"},
      {"http:\\\\user:SECRET@h/a", "http:\\\\***@h/a"}, {"http//user:SECRET@h/a", "***@h/a"},
      {"user:SECRET@h/a", "***@h/a"}, {"SECRET@h/a", "***@h/a"},
      {"http:user:SE/CR@ET@h", "http:***@h"}, {" http://u:SECRET@h", " http://***@h"},
      {"\"http://u:SECRET@h\"", "\"http://***@h\""}, {"h/a.zip?sig=SECRET", "h/a.zip?***"},
      {"/h/a.zip?sig=SECRET", "/h/a.zip?***"}, {"s3:/b?X-Amz-Signature=SECRET", "s3:/b?***"},
      {"http://h/a#access_token=SECRET", "http://h/a?***"}, {"http://h/a?SECRET", "http://h/a?***"},
      {"zip://http%3A//u:SECRET%40h/a%3Fsig%3DSECRET", "zip://***@h/a?***"},
      {"htp://u:SECRET@h", "htp://***@h"}, {"zip://u:SECRET@h/a.zip", "zip://***@h/a.zip"},
      {"file://http://u:SECRET@h/a", "file://***@h/a"},
      {"memory://http://u:SECRET@h/?k=SECRET", "memory://***@h/?***"},
      {"http:SECRET@", "http:***@"}, {"u:SECRET:p@h?x=SECRET@y", "***@h?***"},
      {"/data/a@b/c?d.zarr", "/data/a@b/c?d.zarr"}, {"./a@b", "./a@b"}, {"~/a@b", "~/a@b"},
      {"../a@b", "../a@b"}, {"file:///data/a@b", "file:///data/a@b"},
      {"zip:///data/a@b.zip/c", "zip:///data/a@b.zip/c"}, {"data/era5.zarr", "data/era5.zarr"},
      {"zippy/x", "zippy/x"}, {"s3data/a?b", "s3data/a?b"}, {"/data/http:x", "/data/http:x"},
      {"", ""}, {"100%", "100%"}, {"memory://x", "memory://x"}};
  char out[100], tight[12];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_string_equal(insitu__text_redact(cases[i][0], out, sizeof out), cases[i][1]);
    if (strstr(out, "SEC") || strstr(out, "CR") || strstr(out, "ET"))
      fail_msg("'%s': '%s'", cases[i][0], out);
    assert_int_equal(strncmp(insitu__text_redact(cases[i][0], tight, sizeof tight), cases[i][1],
                         sizeof tight - 1),
        0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(grammar), cmocka_unit_test(damage),
      cmocka_unit_test(numbers), cmocka_unit_test(strings), cmocka_unit_test(objects),
      cmocka_unit_test(affinities), cmocka_unit_test(control_groups), cmocka_unit_test(structure),
      cmocka_unit_test(indexes), cmocka_unit_test(buffers), cmocka_unit_test(arrays),
      cmocka_unit_test(near_names), cmocka_unit_test(urls), cmocka_unit_test(test_redact)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
