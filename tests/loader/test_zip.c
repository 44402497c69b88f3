/* Zip files: an archive in one gives the same batches, bit for bit, as in a directory, however it
 * was packed; every read of a member gives its bytes; and what is damaged, or cannot be read, is an
 * error that names the file and the member. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
static int64_t fault(const char *path, int opening, int64_t got);
static void *fail_realloc(void *p, size_t bytes);
#define INSITU_TEST_FAULT(op, got) fault((op)->path, (op)->stage == INSITU__RING_STAGE_OPEN, got)
#define INSITU_REALLOC(p, bytes) fail_realloc(p, bytes)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "zip.h"

/* ---- faults ---- */
static struct {
  const char *name; /* of the file whose operations fail; NULL: none */
  int64_t error;    /* 0: the file ends there */
  int after;        /* operations that still succeed */
} faulty;
static atomic_int allocations = INT_MAX;

static int64_t fault(const char *path, int opening, int64_t got) {
  if (!faulty.name || strcmp(path, faulty.name) || (opening && !faulty.error) || faulty.after-- > 0)
    return got;
  if (opening && got >= 0) close((int)got);
  return faulty.error;
}
static void *fail_realloc(void *p, size_t bytes) {
  return atomic_fetch_sub(&allocations, 1) <= 0 ? NULL : realloc(p, bytes);
}

/* ---- the store by itself ---- */
struct visit {
  const char *url, *key;
  uint64_t offset, got;
  size_t room[3];
  bool now; /* read_now instead, as often as it takes to know where the member begins */
  insitu_status status;
  insitu_error error;
  char text[1 << 17];
};
static struct insitu__reactor reactor;
static struct visit seen;

static void visit_name(void *to, const char *name, bool is_directory) {
  struct visit *v = to;
  size_t n = strlen(v->text);
  snprintf(v->text + n, sizeof v->text - n, "%s%s ", name, is_directory ? "/" : "");
}
static void visit_await(void *arg) { /* lists where room[0] is 0 */
  struct visit *v = arg;
  struct insitu__store store;
  struct iovec iov[3];
  uint64_t at = 0;
  for (int i = 0; i < 3; i++, at += v->room[i - 1])
    iov[i] = (struct iovec){v->text + at, v->room[i]};
  v->status =
      insitu__source_open_store(&store, &reactor, &(insitu_loader_desc){.url = v->url}, &v->error);
  if (!v->status) v->status = insitu__store_index_await(&store, &v->error);
  if (!v->status && v->now)
    v->status = insitu__store_read_now(&store, v->key, -1, v->offset, iov, 3, 0, &v->got);
  else if (!v->status && v->room[0])
    v->status =
        insitu__store_fetch_await(&store, v->key, v->offset, iov, 3, NULL, &v->got, &v->error);
  else if (!v->status)
    v->status = insitu__store_list_await(&store, v->key, visit_name, v, &v->error);
  insitu__store_close(&store);
}
static insitu_status visit(
    const char *url, const char *key, uint64_t offset, size_t a, size_t b, size_t c) {
  memset(&seen, 0, offsetof(struct visit, text));
  memset(seen.text, 0, a + b + c + 4096);
  seen.url = url;
  seen.key = key;
  seen.offset = offset;
  seen.room[0] = a, seen.room[1] = b, seen.room[2] = c;
  assert_int_equal(insitu__reactor_call(&reactor, visit_await, &seen), INSITU_OK);
  if (seen.status != seen.error.status)
    fail_msg("%s: %d, but %s", key, (int)seen.status, seen.error.message);
  return seen.status;
}
static void refused(insitu_status status, const char *url, const char *key, const char *word) {
  insitu_status got = visit(url, key, 0, 100, 0, 100);
  if (got != status || !strstr(seen.error.message, word) || !strstr(seen.error.message, url))
    fail_msg("%s: %s, not %s, '%s' in: %s", key, insitu_status_name(got),
        insitu_status_name(status), word, seen.error.message);
  if (status != INSITU_E_NOT_ZARR && !strstr(seen.error.message, key))
    fail_msg("'%s' not in: %s", key, seen.error.message);
}
static int open_reactor(void **state) {
  struct insitu__reactor_desc d = {.workers = 1,
      .io_threads = 1,
      .depth = 8,
      .iowq_max_workers = 1,
      .stack_bytes = INSITU_CORO_STACK};
  return support_setup(state) || insitu__reactor_open(&reactor, &d, NULL);
}
static int close_reactor(void **state) {
  insitu__reactor_close(&reactor);
  return support_teardown(state);
}

static unsigned char large[300000]; /* rises, and does not repeat: a piece in a wrong place shows */
static void fill_large(void) {
  for (size_t i = 0; i < sizeof large; i++)
    large[i] = (unsigned char)((i * 2654435761u) >> 13 ^ i >> 9);
}
/* Every range of a small member, and ranges of a large one around the pieces that it is read in. */
static void check_reads(const char *url, const char *small, const char *big) {
  for (uint64_t offset = 0; offset <= 12; offset++)
    for (size_t n = 1; n <= 12; n++) {
      uint64_t want = offset < 10 ? insitu__base_min(n, 10 - offset) : 0;
      assert_int_equal(visit(url, small, offset, 1, 0, n - 1), INSITU_OK);
      assert_int_equal(seen.got, want);
      assert_memory_equal(seen.text, &"0123456789"[insitu__base_min(offset, 10)], want);
      if (offset) continue;
      want = insitu__base_min(n, 10);
      assert_int_equal(visit(url, small, INSITU__RING_TAIL, 1, 0, n - 1), INSITU_OK);
      assert_int_equal(seen.got, want);
      assert_memory_equal(seen.text, &"0123456789"[10 - want], want);
    }
  static const uint64_t at[] = {
      0, 1, 16383, 16384, 65535, 65537, 131072, 299990, 299999, 300000, INSITU__RING_TAIL};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    uint64_t begin = insitu__base_min(at[i], sizeof large - 100000),
             want = insitu__base_min(100000, sizeof large - begin);
    if (at[i] <= sizeof large) want = insitu__base_min(100000, sizeof large - (begin = at[i]));
    assert_int_equal(visit(url, big, at[i], 7, 33000, 66993), INSITU_OK);
    assert_int_equal(seen.got, want);
    assert_memory_equal(seen.text, large + begin, want);
  }
}

static void test_members(void **state) {
  struct zip z = {0};
  char url[300];
  (void)state;
  fill_large();
  for (int form = 0; form < 8; form++) { /* something before it, a comment, ZIP64 */
    if (form & 1) memcpy(zip_grow(&z, 1000), large, 1000);
    z.begin = z.n;
    for (int options = 0; options < 16; options++) {
      char small[20], big[20];
      snprintf(small, sizeof small, "d%d/small", options);
      snprintf(big, sizeof big, "d%d/big", options);
      zip_add(&z, small, "0123456789", 10, options);
      zip_add(&z, big, large, sizeof large, options);
    }
    zip_add(&z, "d1/none", "", 0, ZIP_DEFLATE);
    zip_add(&z, "d0/none", NULL, 0, 0);
    zip_finish(
        &z, form & 2 ? "a comment with PK\5\6 in it, and 20 more bytes of it" : "", form & 4);
    snprintf(url, sizeof url, "%s", support_path("members.zip"));
    zip_write(&z, url);
    zip_free(&z);
    for (int options = 0; options < 16; options++) {
      char small[20], big[20];
      snprintf(small, sizeof small, "d%d/small", options);
      snprintf(big, sizeof big, "d%d/big", options);
      if (form == 0) check_reads(url, small, big);
      assert_int_equal(visit(url, big, 1, 100000, 0, 0), INSITU_OK);
      assert_memory_equal(seen.text, large + 1, 100000);
    }
    for (int i = 0; i < 2; i++) {
      assert_int_equal(visit(url, i ? "d1/none" : "d0/none", 0, 5, 0, 5), INSITU_OK);
      assert_int_equal(seen.got, 0);
    }
  }
}

/* Without waiting: what is stored, once the page cache has it; never what is deflated. */
static void test_now(void **state) {
  struct zip z = {0};
  (void)state;
  zip_add(&z, "stored", large, 1000, ZIP_EXTRA);
  zip_add(&z, "deflated", large, 1000, ZIP_DEFLATE);
  zip_finish(&z, "", false);
  const char *url = support_path("now.zip");
  zip_write(&z, url);
  zip_free(&z);
  static const struct {
    size_t room[3];
    uint64_t offset, got;
  } cases[] = {{{1000, 0, 0}, 0, 1000}, {{1001, 0, 0}, 0, 1000}, {{600, 400, 1}, 0, 1000},
      {{600, 400, 0}, 0, 1000}, {{600, 300, 5}, 0, 905}, {{600, 300, 500}, 0, 1000},
      {{3, 4, 5}, 990, 10}, {{3, 4, 5}, 1000, 0}, {{3, 4, 5}, 1001, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(&seen, 0, sizeof seen);
    seen = (struct visit){.url = url, .key = "stored", .offset = cases[i].offset, .now = true};
    memcpy(seen.room, cases[i].room, sizeof seen.room);
    for (int turn = 0; turn < 2; turn++)
      assert_int_equal(insitu__reactor_call(&reactor, visit_await, &seen), INSITU_OK);
    /* this kernel or file system knows no such reads */
    if (!i && seen.status == INSITU_TIMEOUT) skip();
    assert_int_equal(seen.status, INSITU_OK);
    assert_int_equal(seen.got, cases[i].got);
    assert_memory_equal(seen.text, large + insitu__base_min(cases[i].offset, 1000), seen.got);
  }
  seen = (struct visit){.url = url, .key = "deflated", .room = {10}, .now = true};
  assert_int_equal(insitu__reactor_call(&reactor, visit_await, &seen), INSITU_OK);
  assert_int_equal(seen.status, INSITU_TIMEOUT);
  seen = (struct visit){.url = url, .key = "absent", .room = {10}, .now = true};
  assert_int_equal(insitu__reactor_call(&reactor, visit_await, &seen), INSITU_OK);
  assert_int_equal(seen.status, INSITU_TIMEOUT);
}

static void test_names(void **state) {
  struct zip z = {0};
  char url[300], part[400];
  (void)state;
  static const char *const none[] = {"d/", "../up", "/abs", "d//e", "d/./e", "", "d/../e"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) zip_add(&z, none[i], "x", 1, 0);
  zip_add(&z, "zarr.json", "first", 5, 0);
  zip_add(&z, "d/e/f", "f", 1, 0);
  zip_add(&z, "d/\xc3\xa9", "e", 1, 0);
  zip_add(&z, "d-e", "-", 1, 0);
  zip_add(&z, "zarr.json", "second, longer", 14, ZIP_DEFLATE);
  zip_add(&z, "d/\x82", "cp437", 5, 0);
  zip_add(&z, "zarr.json", "third", 5, 0);
  zip_add(&z, "d/nul", "n", 1, 0); /* becomes a NUL in a name: cut there it would be another one */
  z.directory[z.n_directory - 2] = 0;
  zip_finish(&z, "", false);
  snprintf(url, sizeof url, "%s", support_path("names.zip"));
  zip_write(&z, url);
  zip_free(&z);
  assert_int_equal(visit(url, "", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "d/ d-e zarr.json ");
  assert_int_equal(visit(url, "d", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "e/ \x82 \xc3\xa9 ");
  assert_int_equal(visit(url, "d/e", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "f ");
  assert_int_equal(visit(url, "zarr.json", 0, 20, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "third");
  assert_int_equal(visit(url, "d/\x82", 0, 20, 0, 0), INSITU_OK);
  assert_int_equal(seen.got, 5);
  refused(INSITU_E_NOTFOUND, url, "d/e", "No such file");
  refused(INSITU_E_NOTFOUND, url, "d/n", "No such file");
  assert_int_equal(visit(url, "../up", 0, 1, 0, 0), INSITU_E_ARG);
  assert_int_equal(visit(url, "x", 0, 0, 0, 0), INSITU_E_NOTFOUND);
  /* the archive may begin below */
  snprintf(part, sizeof part, "%s/d", url);
  assert_int_equal(visit(part, "", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "e/ \x82 \xc3\xa9 ");
  snprintf(part, sizeof part, "zip://%s//d/e/", url);
  assert_int_equal(visit(part, "f", 0, 5, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "f");
  snprintf(part, sizeof part, "%s/d-", url);
  assert_int_equal(visit(part, "f", 0, 5, 0, 0), INSITU_E_NOTFOUND);
  assert_non_null(strstr(seen.error.message, "no directory 'd-'"));
  snprintf(part, sizeof part, "%s/d/../d", url);
  assert_int_equal(visit(part, "f", 0, 5, 0, 0), INSITU_E_ARG);
}

/* Some tools write ./ in front of each name. Of members that then have one key the last counts. */
static void test_dots(void **state) {
  struct zip z = {0};
  char url[300], part[400];
  (void)state;
  static const char *const none[] = {"./", "./../up", ".//abs", "./d//e", "./.", "./d/./e"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) zip_add(&z, none[i], "x", 1, 0);
  zip_add(&z, "./zarr.json", "first", 5, 0);
  zip_add(&z, "zarr.json", "second", 6, 0);
  zip_add(&z, "d/c", "third", 5, 0);
  zip_add(&z, "./d/c", "fourth, longer", 14, ZIP_DEFLATE);
  zip_add(&z, "././d/e", "e", 1, 0);
  zip_finish(&z, "", false);
  snprintf(url, sizeof url, "%s", support_path("dots.zip"));
  zip_write(&z, url);
  zip_free(&z);
  assert_int_equal(visit(url, "", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "d/ zarr.json ");
  assert_int_equal(visit(url, "d", 0, 0, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "c e ");
  assert_int_equal(visit(url, "zarr.json", 0, 20, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "second");
  assert_int_equal(visit(url, "d/c", 0, 20, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "fourth, longer");
  snprintf(part, sizeof part, "%s/d", url);
  assert_int_equal(visit(part, "e", 0, 20, 0, 0), INSITU_OK);
  assert_string_equal(seen.text, "e");
}

/* ---- bytes that are none of the zip file ---- */

static void add_bytes(struct zip *z, const void *bytes, size_t n) {
  unsigned char *to = zip_grow(z, n);
  if (n) memcpy(to, bytes, n);
}
/* A zip file with member "a"; behind it stand n bytes, which begin with `first`. */
static struct zip followed(const char *comment, bool wide, size_t n, const char *first) {
  struct zip z = {0};
  zip_add(&z, "a", "0123456789", 10, wide ? ZIP_WIDE : 0);
  zip_finish(&z, comment, wide);
  unsigned char *to = zip_grow(&z, n);
  memcpy(to, first, strnlen(first, n));
  return z;
}
static void check_followed(struct zip z, const char *name, bool good) {
  const char *url = support_path("followed.zip");
  zip_write(&z, url);
  zip_free(&z);
  insitu_status status = visit(url, "a", 0, 20, 0, 0);
  if (status != (good ? INSITU_OK : INSITU_E_NOT_ZARR))
    fail_msg("%s: %s, %s", name, insitu_status_name(status), seen.error.message);
  if (good) assert_string_equal(seen.text, "0123456789");
  else assert_non_null(strstr(seen.error.message, "not a whole zip file"));
}
static void test_followed(void **state) {
  (void)state;
  static const size_t behind[] = {1, 3, 4, 21, 22, 23, 512, 65535, 65536, 70000};
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
    for (int wide = 0; wide < 2; wide++)
      check_followed(followed("", wide, behind[i], "padding"), "padded", behind[i] <= 65535);
  check_followed(followed("a comment", false, 100, ""), "behind a comment", true);
  struct zip z = followed("a comment", false, 0, "");
  z.n -= 4;
  check_followed(z, "a comment that is cut off", true);

  /* the last end record counts alone, also one that is not all there */
  check_followed(followed("", false, 100, "PK\5\6"), "no end record", false);
  check_followed(followed("", false, 5, "PK\5\6"), "the beginning of one", false);
  check_followed(followed("PK\5\6 comment", false, 9, ""), "a signature in the comment", false);

  /* bytes on both sides, in which nothing tells where the zip file begins */
  struct zip inner = followed("", false, 0, "");
  z = (struct zip){0};
  add_bytes(&z, "in front", 8);
  add_bytes(&z, inner.bytes, inner.n);
  add_bytes(&z, "behind", 6);
  check_followed(z, "on both sides", false);

  /* cut off behind a zip file that is a member: its members are not those of the whole */
  z = (struct zip){0};
  zip_add(&z, "inner.zip", inner.bytes, inner.n, 0);
  zip_add(&z, "b", "more", 4, 0);
  zip_finish(&z, "", false);
  z.n -= 30;
  check_followed(z, "a member", false);

  /* one that was cut off while a second directory was written behind the first */
  z = followed("", false, 0, "");
  struct zip second = followed("", false, 0, "");
  add_bytes(&z, second.bytes, second.n - 10);
  zip_free(&second);
  check_followed(z, "an older directory", false);
  zip_free(&inner);
}

static void test_urls(void **state) {
  struct zip z = {0};
  char url[600];
  (void)state;
  zip_add(&z, "a/k", "value", 5, 0);
  zip_finish(&z, "", false);
  zip_write(&z, support_path("a b.zip"));
  assert_int_equal(chdir(support_dir), 0);
  static const char *const good[] = {"%s/a b.zip/a", "file://%s/a%%20b.zip/a",
      "zip://%s/a%%20b.zip/a", "ZIP://%s/a%%20b.zip///a/"};
  for (size_t i = 0; i < 6; i++) {
    if (i < 4) snprintf(url, sizeof url, good[i], support_dir);
    else strcpy(url, i == 4 ? "a b.zip/a" : "zip://a%20b.zip/a");
    assert_int_equal(visit(url, "k", 0, 9, 0, 0), INSITU_OK);
    assert_string_equal(seen.text, "value");
  }
  support_write(support_path("text"), "PK\5\6 and more", 13);
  support_write(support_path("empty"), "", 0);
  refused(INSITU_E_NOT_ZARR, "text", "k", "it is a file");
  refused(INSITU_E_NOT_ZARR, "empty", "k", "it is a file");
  refused(INSITU_E_NOTFOUND, "zip://text/k", "k", "'text' is a file");
  static const char *const missing[] = {
      "none.zip", "zip://none.zip", "none.zip/a", "zip://none/a b.zip", "zip://", "zip:///"};
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(visit(missing[i], "k", 0, 9, 0, 0), INSITU_E_NOTFOUND);
    assert_non_null(strstr(seen.error.message, "check the url"));
  }
  snprintf(url, sizeof url, "zip://%s", support_dir);
  assert_int_equal(visit(url, "k", 0, 9, 0, 0), INSITU_E_NOTFOUND); /* a directory */
  assert_int_equal(visit("zip://%zz", "k", 0, 9, 0, 0), INSITU_E_ARG);
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_int_equal(visit("pipe", "k", 0, 9, 0, 0), INSITU_E_NOT_ZARR);
  zip_free(&z);
}

/* The only top-level directory is the root, unless the root has metadata; its name may stand before
 * paths too. */
static void test_folder(void **state) {
  static const struct {
    const char *names[5], *root;
    bool unwrapped;
  } cases[] = {{{"a.zarr/zarr.json", "a.zarr/x/c"}, "x/ zarr.json ", true},
      {{"a.zarr/.zgroup", "README", "__MACOSX/a.zarr/._x", ".DS_Store", "a.zarr/x/0"},
          ".zgroup x/ ", true},
      {{"a.zarr/a.zarr/.zgroup", "a.zarr/x/0"}, "a.zarr/ x/ ", true},
      {{"zarr.json", "a.zarr/x/c"}, "a.zarr/ zarr.json ", false},
      {{".zgroup", "a.zarr/x/c"}, "a.zarr/ .zgroup ", false},
      {{".zarray", "a.zarr/x"}, "a.zarr/ .zarray ", false},
      {{".zmetadata", "a.zarr/x"}, "a.zarr/ .zmetadata ", false},
      {{"a.zarr/x", "b.zarr/x"}, "a.zarr/ b.zarr/ ", false},
      {{"a.zarr/x", "a.zarr-/x"}, "a.zarr/ a.zarr-/ ", false}, {{"x", "y"}, "x y ", false},
      {{NULL}, "", false}};
  char url[300];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct zip z = {0};
    for (int k = 0; k < 5 && cases[i].names[k]; k++)
      zip_add(&z, cases[i].names[k], cases[i].names[k], strlen(cases[i].names[k]), 0);
    zip_finish(&z, "", false);
    snprintf(url, sizeof url, "%s", support_path("folder.zip"));
    zip_write(&z, url);
    zip_free(&z);
    assert_int_equal(visit(url, "", 0, 0, 0, 0), INSITU_OK);
    assert_int_equal(strlen(seen.text), strlen(cases[i].root));
    /* in the order of the names' bytes */
    for (const char *word = cases[i].root; *word; word += strcspn(word, " ") + 1) {
      char name[40];
      snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " ") + 1, word);
      assert_non_null(strstr(seen.text, name));
    }
    for (int k = 0; k < 5 && cases[i].names[k]; k++) {
      const char *name = cases[i].names[k];
      bool in = strncmp(name, "a.zarr/", 7) == 0;
      assert_int_equal(
          visit(url, name, 0, 4, 0, 0), !cases[i].unwrapped || in ? INSITU_OK : INSITU_E_NOTFOUND);
      if (!cases[i].unwrapped) continue;
      assert_int_equal(visit(url, in ? name + 7 : "a.zarr/none", 0, 4, 0, 0),
          in ? INSITU_OK : INSITU_E_NOTFOUND);
      if (in) assert_memory_equal(seen.text, "a.za", 4);
    }
  }
}

/* ---- what cannot be read ---- */

/* A zip file of two members "a" and "b"; the tests change bytes of it. */
static struct zip two(int options) {
  struct zip z = {0};
  zip_add(&z, "a", "0123456789", 10, options);
  zip_add(&z, "b", large, 1000, options);
  return z;
}
/* bytes of a member of that name without extra fields in the directory, and before its data */
enum { ENTRY = 47, LOCAL = 31 };
static void test_refused(void **state) {
  static const struct {
    size_t at; /* in the directory */
    int bytes;
    uint64_t value;
    int options;
    insitu_status status;
    const char *word;
  } entry[] = {{8, 2, 1, 0, INSITU_E_UNSUPPORTED, "encrypted"},
      {8, 2, 0x2001, ZIP_DEFLATE, INSITU_E_UNSUPPORTED, "encrypted"},
      {10, 2, 12, 0, INSITU_E_CODEC, "12 (bzip2)"}, {10, 2, 93, 0, INSITU_E_CODEC, "93 (zstd)"},
      {10, 2, 77, 0, INSITU_E_CODEC, "77 (unknown)"},
      {10, 2, 8, 0, INSITU_E_CORRUPT, "not its local header"},
      {10, 2, 0, ZIP_DEFLATE, INSITU_E_CORRUPT, "said to have 10"},
      {24, 4, 9, 0, INSITU_E_CORRUPT, "said to have 9"},
      {24, 4, 11, 0, INSITU_E_CORRUPT, "said to have 11"},
      {20, 4, UINT32_MAX, 0, INSITU_E_CORRUPT, "said to have 10"},
      {24, 4, 9, ZIP_DEFLATE, INSITU_E_CORRUPT, "more data"},
      {24, 4, 11, ZIP_DEFLATE, INSITU_E_CORRUPT, "the end of the data"},
      {20, 4, 5, ZIP_DEFLATE, INSITU_E_CORRUPT, "end before the deflated data"},
      {20, 4, 0, ZIP_DEFLATE, INSITU_E_CORRUPT, "end before the deflated data"},
      {20, 4, 1000, ZIP_DEFLATE, INSITU_E_CORRUPT, "reach into another member"},
      {16, 4, 77, ZIP_DEFLATE, INSITU_E_CORRUPT, "CRC32"},
      {42, 4, 1, 0, INSITU_E_CORRUPT, "local header"},
      {42, 4, 41, 0, INSITU_E_CORRUPT, "local header"},
      {42, 4, 1 << 20, 0, INSITU_E_CORRUPT, "outside the file"},
      {42, 4, UINT32_MAX, 0, INSITU_E_CORRUPT, "outside the file"},
      {42, 4, 31 + 10, 0, INSITU_E_CORRUPT, "reaches into another member"}}; /* the header of b */
  char url[300];
  (void)state;
  snprintf(url, sizeof url, "%s", support_path("refused.zip"));
  for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
    struct zip z = two(entry[i].options);
    zip_put(z.directory + entry[i].at, entry[i].value, entry[i].bytes);
    zip_finish(&z, "", false);
    zip_write(&z, url);
    zip_free(&z);
    refused(entry[i].status, url, "a", entry[i].word);
    /* both begin there: neither is believed */
    if (entry[i].at == 42 && entry[i].value == 31 + 10) continue;
    assert_int_equal(visit(url, "b", 0, 1000, 0, 0), INSITU_OK); /* the other is well */
    assert_memory_equal(seen.text, large, 1000);
  }
  static const struct {
    size_t at; /* in the file; where it says LAST, bytes before its end */
    int bytes;
    uint64_t value;
    insitu_status status;
    const char *word;
  } other[] = {{0, 4, 0x04034b51, INSITU_E_CORRUPT, "local header"},
      {8, 2, 8, INSITU_E_CORRUPT, "local header"}, {26, 2, 2, INSITU_E_CORRUPT, "local header"},
      {28, 2, 1, INSITU_E_CORRUPT, "reach into"}, {28, 2, 0xffff, INSITU_E_CORRUPT, "reach into"}};
  for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
    struct zip z = two(0);
    zip_finish(&z, "", false);
    zip_put(z.bytes + other[i].at, other[i].value, other[i].bytes);
    zip_write(&z, url);
    zip_free(&z);
    refused(other[i].status, url, "a", other[i].word);
    assert_int_equal(visit(url, "b", 0, 1000, 0, 0), INSITU_OK);
  }
  static const struct {
    size_t at; /* from the file's end */
    int bytes;
    uint64_t value;
    insitu_status status;
    const char *word;
  } end[] = {{18, 2, 1, INSITU_E_UNSUPPORTED, "several parts"},
      {16, 2, 1, INSITU_E_UNSUPPORTED, "several parts"},
      {12, 2, 3, INSITU_E_CORRUPT, "its end record says 3"},
      {10, 4, 2 * ENTRY - 1, INSITU_E_CORRUPT, "is none"},
      {10, 4, UINT32_MAX, INSITU_E_UNSUPPORTED, "INSITU__MAX_DIRECTORY"},
      {10, 4, 1 << 20, INSITU_E_CORRUPT, "outside the file"},
      {6, 4, 1 << 20, INSITU_E_CORRUPT, "outside the file"},
      {22, 4, 0, INSITU_E_NOT_ZARR, "not a whole zip file"},
      {22 + ENTRY, 4, 0, INSITU_E_CORRUPT, "entry 1 of"}};
  for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
    struct zip z = two(0);
    zip_finish(&z, "", false);
    zip_put(z.bytes + z.n - end[i].at, end[i].value, end[i].bytes);
    zip_write(&z, url);
    zip_free(&z);
    assert_int_equal(visit(url, "b", 0, 1000, 0, 0), end[i].status);
    if (!strstr(seen.error.message, end[i].word))
      fail_msg("'%s' not in: %s", end[i].word, seen.error.message);
  }
  static const struct {
    size_t at; /* in the ZIP64 end record */
    int bytes;
    uint64_t value;
    insitu_status status;
    const char *word;
  } wide[] = {{0, 4, 0, INSITU_E_CORRUPT, "no ZIP64 end record"},
      {16, 4, 1, INSITU_E_UNSUPPORTED, "several parts"},
      {20, 4, 1, INSITU_E_UNSUPPORTED, "several parts"},
      {72, 4, 2, INSITU_E_UNSUPPORTED, "several parts"},
      {32, 8, 3, INSITU_E_CORRUPT, "its end record says 3"},
      {32, 8, UINT64_MAX, INSITU_E_UNSUPPORTED, "INSITU__MAX_MEMBERS"},
      {40, 8, UINT64_MAX, INSITU_E_UNSUPPORTED, "INSITU__MAX_DIRECTORY"},
      {48, 8, UINT64_MAX, INSITU_E_CORRUPT, "outside the file"}};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
    struct zip z = two(0);
    zip_finish(&z, "", true);
    zip_put(z.bytes + z.n - 98 + wide[i].at, wide[i].value, wide[i].bytes);
    zip_write(&z, url);
    zip_free(&z);
    assert_int_equal(visit(url, "b", 0, 1000, 0, 0), wide[i].status);
    if (!strstr(seen.error.message, wide[i].word))
      fail_msg("'%s' not in: %s", wide[i].word, seen.error.message);
  }
  struct zip z = two(0); /* a would reach into the directory, and b lies far behind the file */
  zip_put(zip_put(z.directory + 20, 1045, 4), 1045, 4);
  zip_put(z.directory + ENTRY + 42, 1 << 20, 4);
  zip_finish(&z, "", false);
  zip_write(&z, url);
  zip_free(&z);
  refused(INSITU_E_CORRUPT, url, "a", "or the central directory");
  z = two(ZIP_WIDE);
  zip_put(z.directory + ENTRY + 2, 16, 2); /* a ZIP64 field without the offset */
  zip_finish(&z, "", true);
  zip_write(&z, url);
  zip_free(&z);
  assert_int_equal(visit(url, "b", 0, 1000, 0, 0), INSITU_E_CORRUPT);
  assert_non_null(strstr(seen.error.message, "entry 0"));
}

/* A range before the damage is fine; one that reaches the end has the checksum to answer to. */
static void test_crc(void **state) {
  struct zip z = two(ZIP_DEFLATE);
  const char *url = support_path("crc.zip");
  (void)state;
  z.directory[ENTRY + 16] ^= 1; /* of b */
  zip_finish(&z, "", false);
  zip_write(&z, url);
  zip_free(&z);
  assert_int_equal(visit(url, "b", 0, 999, 0, 0), INSITU_OK);
  assert_memory_equal(seen.text, large, 999);
  assert_int_equal(visit(url, "b", 0, 1000, 0, 0), INSITU_E_CORRUPT);
  assert_int_equal(visit(url, "b", 999, 1, 0, 0), INSITU_E_CORRUPT);
  assert_int_equal(visit(url, "b", INSITU__RING_TAIL, 2, 0, 0), INSITU_E_CORRUPT);
  /* b said to end after 10 of its 1000 bytes, with their checksum: no more than that is inflated */
  z = two(ZIP_DEFLATE);
  zip_put(z.directory + ENTRY + 16, crc32(0, large, 10), 4);
  zip_put(z.directory + ENTRY + 24, 10, 4);
  zip_finish(&z, "", false);
  zip_write(&z, url);
  zip_free(&z);
  assert_int_equal(visit(url, "b", 0, 9, 0, 0), INSITU_OK);
  assert_int_equal(visit(url, "b", 0, 10, 0, 0), INSITU_E_CORRUPT);
  assert_non_null(strstr(seen.error.message, "more data after 10 of 10"));
}

/* Every byte of a small zip file changed in several ways, and the file cut at every length: an
 * error, or what was there. The key that is read stands first in the file, its own bytes aside. */
static void test_damage(void **state) {
  static const unsigned char change[] = {0x01, 0x80, 0xff, 0x10};
  (void)state;
  for (int form = 0; form < 4; form++) {
    struct zip z = two(form & 1 ? ZIP_DEFLATE | ZIP_EXTRA : ZIP_WIDE);
    const char *url = support_path("damage.zip");
    zip_finish(&z, "", form & 2);
    int failed = 0, fine = 0;
    for (size_t at = 0; at < z.n; at++)
      for (int k = 0; k < 4; k++) {
        z.bytes[at] ^= change[k];
        zip_write(&z, url);
        z.bytes[at] ^= change[k];
        insitu_status status = visit(url, "a", 0, 10, 0, 5);
        bool right = !status && seen.got == 10 && !memcmp(seen.text, "0123456789", 10);
        /* its extra field's length, its name and its bytes */
        bool shifted = !(form & 1) && at >= 28 && at < LOCAL + 10;
        if (!status && !right && !shifted)
          fail_msg("form %d: byte %d ^ %d gives wrong bytes", form, (int)at, change[k]);
        failed += status < 0;
        fine += right;
      }
    assert_true(failed > 100 && fine > 100);
    for (size_t n = 0; n < z.n; n++) {
      struct zip cut = {.bytes = z.bytes, .n = n};
      zip_write(&cut, url);
      assert_true(visit(url, "a", 0, 10, 0, 5) < 0);
    }
    zip_free(&z);
  }
}

/* More members than 16 bits count, with ZIP64 and without, whose directory lies far before the end
 * of the file. */
static void test_many(void **state) {
  (void)state;
  for (int wide = support_slow(); wide < 2; wide++) {
    struct zip z = {0};
    char key[40], url[300];
    for (int i = 0; i < 70000; i++) {
      snprintf(key, sizeof key, "x/%d", i * 7919 % 70000);
      zip_add(&z, key, key, strlen(key), i % 100 == 0 ? ZIP_WIDE : 0);
    }
    zip_finish(&z, "", wide);
    snprintf(url, sizeof url, "%s/x", support_path("many.zip"));
    zip_write(&z, support_path("many.zip"));
    zip_free(&z);
    for (int i = 0; i < 70000; i += 6999) {
      snprintf(key, sizeof key, "x/%d", i);
      assert_int_equal(visit(url, key + 2, 0, 40, 0, 0), INSITU_OK);
      assert_string_equal(seen.text, key);
    }
    assert_int_equal(visit(url, "70000", 0, 40, 0, 0), INSITU_E_NOTFOUND);
  }
}

/* What the system refuses names file and member, and is never an absent chunk: not even that the
 * file has gone. */
static void test_faults(void **state) {
  static const int64_t errors[] = {-EIO, -ENOENT, -EACCES, 0};
  char url[300];
  (void)state;
  for (int options = 0; options < 2; options++) {
    struct zip z = two(options);
    zip_finish(&z, "", false);
    snprintf(url, sizeof url, "%s", support_path("fault.zip"));
    zip_write(&z, url);
    zip_free(&z);
    for (size_t e = 0; e < 4; e++)
      for (int n = 0;; n++) {
        faulty.error = errors[e];
        faulty.after = n;
        faulty.name = "fault.zip";
        insitu_status status = visit(url, "b", 0, 1000, 0, 0);
        faulty.name = NULL;
        if (!status) {
          assert_memory_equal(seen.text, large, 1000);
          /* of the end, of the local header and the data, which a deflated member has in one */
          int reads = options ? 2 : 3;
          assert_int_equal(n, faulty.error ? 2 * reads : reads); /* each with an open */
          break;
        }
        assert_true(status == INSITU_E_IO || (status == INSITU_E_NOTFOUND && n < 2));
        assert_non_null(strstr(seen.error.message, "fault.zip"));
        if (n >= (errors[e] ? 2 : 1)) assert_non_null(strstr(seen.error.message, "member 'b'"));
        assert_int_equal(seen.error.sys_errno, -errors[e]);
      }
    for (int n = 0;; n++) { /* no memory, at each of the requests */
      atomic_store(&allocations, n);
      memset(&seen, 0, offsetof(struct visit, text));
      seen.url = url;
      seen.key = "b";
      seen.room[0] = 1000;
      insitu_status called = insitu__reactor_call(&reactor, visit_await, &seen);
      atomic_store(&allocations, INT_MAX);
      if (!called && !seen.status) break;
      if (!called) assert_int_equal(seen.status, INSITU_E_NOMEM);
      assert_true(n < 40);
    }
  }
}

/* ---- archives ---- */
static const struct support_array arrays[] = {{.name = "raw",
                                                  .ndim = 2,
                                                  .shape = {53, 130},
                                                  .chunk = {4, 130},
                                                  .dtype = INSITU_F32,
                                                  .format = 2,
                                                  .absent = 5},
    {.name = "group/packed",
        .ndim = 2,
        .shape = {53, 9},
        .chunk = {5, 4},
        .dtype = INSITU_I16,
        .format = 2,
        .zstd = true},
    {.name = "raw",
        .ndim = 2,
        .shape = {53, 1030},
        .chunk = {4, 1030},
        .dtype = INSITU_F32,
        .format = 3},
    {.name = "end",
        .ndim = 2,
        .shape = {53, 9},
        .chunk = {2, 3},
        .shard = {4, 2},
        .dtype = INSITU_F32,
        .format = 3,
        .zstd = true},
    {.name = "start",
        .ndim = 2,
        .shape = {53, 130},
        .chunk = {2, 130},
        .shard = {5, 1},
        .dtype = INSITU_F32,
        .format = 3,
        .absent = 4,
        .index_first = true,
        .index_crc = true,
        .gap = 3}};
enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

/* An epoch of each of the arrays of one format, shuffled, side by side, with every element checked,
 * and one by insitu_read. */
static void check_archive(
    const char *url, int format, int mode, const char *folder, insitu_stats *stats) {
  insitu_variable v[N_ARRAYS];
  const struct support_array *a[N_ARRAYS];
  char path[N_ARRAYS][100];
  uint64_t n = 0, rows = 0;
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_iter *it = NULL;
  insitu_batch *b;
  for (int i = 0; i < N_ARRAYS; i++) {
    if (arrays[i].format != format) continue;
    a[n] = &arrays[i];
    snprintf(path[n], sizeof path[n], "%s%s", folder, arrays[i].name);
    v[n] = (insitu_variable){.label = arrays[i].name, .path = path[n]};
    n++;
  }
  insitu_loader_desc d = {.api = INSITU_API,
      .url = url,
      .variables = v,
      .n_variables = n,
      .batch_size = 5,
      .block_chunks = 4,
      .hold_epoch = 1,
      .io = modes[mode].io,
      .inline_io = modes[mode].inline_io,
      .decode_threads = 2};
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s: %s", url, err.message);
  if (insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err))
    fail_msg("%s", err.message);
  insitu_status status;
  while ((status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK) {
    for (uint64_t i = 0; i < n; i++) support_check_array(b, i, &v[i], a[i], 0);
    rows += b->rows;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", url, err.message);
  assert_int_equal(rows, 53);
  for (uint64_t i = 0; i < n; i++) {
    insitu_shape shape;
    assert_int_equal(insitu_read(ld, &v[i], NULL, 0, &shape, &err), INSITU_OK);
    unsigned char *all = malloc(shape.bytes);
    if (insitu_read(ld, &v[i], all, shape.bytes, NULL, &err)) fail_msg("%s", err.message);
    for (uint64_t k = 0, at[2]; k < a[i]->shape[0] * a[i]->shape[1]; k++) {
      at[0] = k / a[i]->shape[1];
      at[1] = k % a[i]->shape[1];
      assert_true(support_get(all + k * (uint64_t)(a[i]->dtype & 0xff) / 8, a[i]->dtype) ==
                  support_expect(a[i], at));
    }
    free(all);
  }
  assert_int_equal(insitu_loader_stats(ld, stats, &err), INSITU_OK);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}
static void test_archives(void **state) {
  char folder[300], url[300], part[400];
  insitu_stats stats, files;
  (void)state;
  for (int format = 2; format <= 3; format++) {
    snprintf(folder, sizeof folder, "%s/v%d.zarr", support_dir, format);
    for (int i = 0; i < N_ARRAYS; i++)
      if (arrays[i].format == format) support_make(folder, &arrays[i]);
    check_archive(folder, format, EPOLL, "", &files);
    /* stored, deflated; both with all else */
    for (int options = 0; options < 16; options += options == 1 ? 13 : 1) {
      struct zip z = {.options = options};
      zip_folder(&z, folder, options & ZIP_STREAM ? "a.zarr/" : "");
      zip_finish(&z, "", options & ZIP_WIDE);
      snprintf(url, sizeof url, "%s", support_path("archive.zip"));
      zip_write(&z, url);
      zip_free(&z);
      EACH_MODE (m) {
        check_archive(url, format, m, "", &stats);
        assert_int_equal(stats.reads, files.reads);
        assert_int_equal(stats.absent_chunks, files.absent_chunks);
        /* of shards, gaps between chunks come and go */
        if (format == 2) assert_int_equal(stats.bytes_read, files.bytes_read);
      }
      if (!(options & ZIP_STREAM)) continue;
      check_archive(url, format, EPOLL, "a.zarr/", &stats);
      snprintf(part, sizeof part, "zip://%s/a.zarr", url);
      check_archive(part, format, EPOLL, "", &stats);
    }
  }
}

/* A damaged member is a bad chunk, and one that is not there an absent one. */
static void test_holes(void **state) {
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {40, 130},
      .chunk = {4, 130},
      .dtype = INSITU_F32,
      .format = 2};
  char folder[300], url[300];
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_stats stats;
  (void)state;
  snprintf(folder, sizeof folder, "%s/holes.zarr", support_dir);
  support_make(folder, &a);
  assert_int_equal(remove(support_path("holes.zarr/x/3.0")), 0);
  struct zip z = {.options = ZIP_DEFLATE};
  zip_folder(&z, folder, "");
  unsigned char *p = memmem(z.directory, z.n_directory, "x/5.0", 5);
  p[16 - 46] ^= 1; /* its CRC32 */
  zip_finish(&z, "", false);
  snprintf(url, sizeof url, "%s", support_path("holes.zip"));
  zip_write(&z, url);
  zip_free(&z);
  insitu_variable v = {.label = "x"};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = url, .plan_only = 1, .log_level = INSITU_LOG_OFF};
  float *all = malloc(40 * 130 * 4);
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
  assert_int_equal(insitu_read(ld, &v, all, 40 * 130 * 4, NULL, &err), INSITU_E_CORRUPT);
  assert_non_null(strstr(err.message, "holes.zip"));
  assert_non_null(strstr(err.message, "member 'x/5.0'"));
  insitu_loader_close(&ld);
  memset(&err, 0, sizeof err);
  d.on_bad_chunk = INSITU_FILL;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
  assert_int_equal(insitu_read(ld, &v, all, 40 * 130 * 4, NULL, &err), INSITU_OK);
  for (int i = 0; i < 40 * 130; i++)
    assert_true(all[i] ==
                (i / 520 == 3 || i / 520 == 5 ? 0 : (float)support_value(INSITU_F32, (uint64_t)i)));
  assert_int_equal(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
  assert_int_equal(stats.absent_chunks, 1);
  assert_int_equal(stats.bad_chunks, 1);
  insitu_loader_close(&ld);
  free(all);
}

/* Where a zip file in a remote store lies: names of buckets stand as they are, those of http urls
 * are decoded. */
static void test_remote_names(void **state) {
  static const struct {
    const char *url, *name, *root, *shown;
  } cases[] = {{"s3://b/d/a%41.zip/x%20y/", "a%41.zip", "x%20y", "s3://b/d/a%41.zip/x%20y"},
      {"http://u:secret@h/d/a%41.zip/x%20y?secret", "aA.zip", "x y", "http://h/d/aA.zip/x y"},
      {"http://h/a.zip", "a.zip", "", "http://h/a.zip"}};
  static const insitu_option options[] = {{"environment", "false"}, {"skip_signature", "true"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_loader_desc d = {
        .api = INSITU_API, .url = cases[i].url, .options = options, .n_options = 2};
    insitu_error err = {0};
    struct insitu__store s;
    assert_int_equal(
        insitu__source_open_store(&s, NULL, &d, &err), INSITU_OK); /* nothing is asked yet */
    assert_string_equal(insitu__zip_of(&s)->name, cases[i].name);
    assert_string_equal(insitu__zip_of(&s)->root, cases[i].root);
    assert_string_equal(s.url, cases[i].shown);
    insitu__store_close(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_members),
      cmocka_unit_test(test_now),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_dots),
      cmocka_unit_test(test_followed),
      cmocka_unit_test(test_urls),
      cmocka_unit_test(test_folder),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_crc),
      cmocka_unit_test(test_damage),
      cmocka_unit_test(test_many),
      cmocka_unit_test(test_faults),
      cmocka_unit_test(test_archives),
      cmocka_unit_test(test_holes),
      cmocka_unit_test(test_remote_names),
  };
  return cmocka_run_group_tests(tests, open_reactor, close_reactor);
}
