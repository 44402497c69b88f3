/* memory://: an archive in memory gives the same batches, bit for bit, as the same archive on disk,
 * and what is no archive in memory is refused by name. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"

/* ---- a directory's files as objects ---- */
enum { OBJECTS = 4096 };
static insitu_object objects[OBJECTS];
static uint64_t n_objects;
static size_t root_length;

static int take_file(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)f;
  if (kind != FTW_F) return 0;
  assert_true(n_objects < OBJECTS);
  /* its exact size, so that a read beyond its end shows */
  void *bytes = malloc((size_t)s->st_size + !s->st_size);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  assert_int_equal(fread(bytes, 1, (size_t)s->st_size, file), s->st_size);
  fclose(file);
  objects[n_objects++] =
      (insitu_object){strdup(path + root_length + 1), bytes, (uint64_t)s->st_size};
  return 0;
}
static void take(const char *root) {
  n_objects = 0;
  root_length = strlen(root);
  assert_int_equal(nftw(root, take_file, 16, FTW_PHYS), 0);
  for (uint64_t i = n_objects; i-- > 1;) { /* in any order */
    uint64_t k = support_below(i + 1);
    insitu_object o = objects[i];
    objects[i] = objects[k];
    objects[k] = o;
  }
}
static void drop(void) {
  for (uint64_t i = 0; i < n_objects; i++) {
    free((void *)(uintptr_t)objects[i].key);
    free((void *)(uintptr_t)objects[i].bytes);
  }
  n_objects = 0;
}

/* ---- bit-equal epochs ---- */
static const int64_t steps[] = {-1, 0, 2};
static const struct {
  struct support_array a;
  insitu_variable v[2];
} cases[] = {
    /* rows read straight into batches, on a worker and not, some twice */
    {{.name = "x",
         .ndim = 3,
         .shape = {40, 30, 40},
         .chunk = {4, 30, 40},
         .dtype = INSITU_F32,
         .format = 2},
        {{.label = "a", .path = "x"}, {.label = "b", .path = "x", .offset = 1}}},
    {{.name = "deep/er/x",
         .ndim = 2,
         .shape = {24, 70000},
         .chunk = {3, 70000},
         .dtype = INSITU_F32,
         .format = 3,
         .absent = 5},
        {{.label = "a", .path = "deep/er/x"}, {.label = "b", .path = "deep/er/x", .offset = -1}}},
    /* through buffers: compressed, column-major, swapped, several fields, absent chunks */
    {{.name = "x",
         .ndim = 3,
         .shape = {50, 9, 7},
         .chunk = {6, 4, 7},
         .dtype = INSITU_I16,
         .format = 3,
         .big = true,
         .fortran = true,
         .zstd = true,
         .absent = 3},
        {{.label = "a", .path = "x", .dtype = INSITU_F32},
            {.label = "b", .path = "x", .steps = steps, .n_steps = 3}}},
    {{.name = "x",
         .ndim = 2,
         .shape = {30, 60000},
         .chunk = {5, 60000},
         .dtype = INSITU_F64,
         .format = 2,
         .zstd = true,
         .absent = 4},
        {{.label = "a", .path = "x"}, {.label = "b", .path = "x", .offset = 2}}},
    {{.name = "x", .ndim = 1, .shape = {300}, .chunk = {7}, .dtype = INSITU_U8, .format = 2},
        {{.label = "a", .path = "x"}, {.label = "b", .path = "x"}}},
};

static void same_epochs(insitu_loader *disk, insitu_loader *memory, int32_t split) {
  insitu_iter_desc id = {.api = INSITU_API, .split = split};
  insitu_error err = {0};
  insitu_iter *it[2];
  insitu_batch *b[2];
  assert_int_equal(insitu_iter_open(disk, &id, &it[0], &err), INSITU_OK);
  assert_int_equal(insitu_iter_open(memory, &id, &it[1], &err), INSITU_OK);
  uint64_t rows = 0;
  for (int ends = 0; ends < 2;) {
    insitu_status s = insitu_iter_next(it[0], 20000, &b[0], &err),
                  t = insitu_iter_next(it[1], 20000, &b[1], &err);
    if (err.status) fail_msg("%s", err.message);
    assert_int_equal(s, t);
    if (s == INSITU_END) ends++;
    if (s == INSITU_END) continue;
    assert_int_equal(s, INSITU_OK);
    assert_memory_equal(&b[0]->after, &b[1]->after, sizeof b[0]->after);
    assert_memory_equal(b[0]->sample_indices, b[1]->sample_indices, b[0]->rows * sizeof(int64_t));
    for (uint64_t i = 0; i < b[0]->n_arrays; i++)
      assert_memory_equal(b[0]->arrays[i].data, b[1]->arrays[i].data, b[0]->arrays[i].bytes);
    rows += b[0]->rows;
    insitu_batch_release(&b[0]);
    insitu_batch_release(&b[1]);
  }
  assert_true(rows > 0);
  insitu_iter_close(&it[0]);
  insitu_iter_close(&it[1]);
}

static void test_same_as_on_disk(void **state) {
  (void)state;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *root = support_path("same");
    support_make(root, &cases[c].a);
    take(root);
    EACH_MODE (m) {
      if (getenv("TEST_VALGRIND") && (c + (size_t)m / 2) % 2) continue; /* in turns */
      insitu_error err = {0};
      insitu_loader *disk, *memory;
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = cases[c].v,
          .n_variables = 2,
          .batch_size = 4,
          .block_chunks = 4,
          .seed = c,
          .decode_threads = 2,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      assert_int_equal(insitu_loader_open(&d, &disk, &err), INSITU_OK);
      d.url = m % 2 ? "memory://" : "memory://any/name/";
      d.objects = objects;
      d.n_objects = n_objects;
      if (insitu_loader_open(&d, &memory, &err)) fail_msg("%s", err.message);
      assert_ptr_equal(insitu_loader_config(memory)->objects, objects); /* borrowed */
      same_epochs(disk, memory, INSITU_TRAIN);
      same_epochs(disk, memory, INSITU_ALL);
      insitu_stats s[2];
      assert_int_equal(insitu_loader_stats(disk, &s[0], &err), INSITU_OK);
      assert_int_equal(insitu_loader_stats(memory, &s[1], &err), INSITU_OK);
      assert_int_equal(s[0].absent_chunks > 0, cases[c].a.absent > 0);
      assert_int_equal(s[1].absent_chunks > 0, cases[c].a.absent > 0);
      insitu_loader_close(&disk);
      insitu_loader_close(&memory);
    }
    drop();
    support_remove(root);
  }
}

/* ---- listing and reading by key ---- */
struct visit {
  insitu_loader_desc desc;
  const char *key;
  uint64_t offset, room[3], got;
  insitu_status status;
  insitu_error error;
  char text[4096];
};
static struct insitu__reactor reactor;

static void visit_name(void *to, const char *name, bool is_directory) {
  struct visit *v = to;
  size_t n = strlen(v->text);
  snprintf(v->text + n, sizeof v->text - n, "%s%s ", name, is_directory ? "/" : "");
}
static void visit_list(void *arg) {
  struct visit *v = arg;
  struct insitu__store store;
  v->status = insitu__source_open_store(&store, &reactor, &v->desc, &v->error);
  if (!v->status) v->status = insitu__store_list_await(&store, v->key, visit_name, v, &v->error);
  insitu__store_close(&store);
}
static void visit_read(void *arg) {
  struct visit *v = arg;
  struct insitu__store store;
  struct iovec iov[3];
  uint64_t at = 0;
  for (int i = 0; i < 3; i++, at += v->room[i - 1])
    iov[i] = (struct iovec){v->text + at, v->room[i]};
  v->status = insitu__source_open_store(&store, &reactor, &v->desc, &v->error);
  if (!v->status)
    v->status =
        insitu__store_fetch_await(&store, v->key, v->offset, iov, 3, NULL, &v->got, &v->error);
  insitu__store_close(&store);
}
#define O(key, text)                                                                               \
  { key, text, sizeof text - 1 }
static const insitu_object few[] = {O("b", "0123456789"), O("a/z", "z"), O("a-b/x", ""),
    O("a", "object and directory"), O("a/b/d", "d"), O("a/b-c", "bc"), O("a/b/c", "c"),
    O("a/b", "b"), O("a!", "!"), O("A/\xc3\xa9/x", "x"), O("a/b/c0/d", "deep")};

static const struct visit *visit(void (*fn)(void *), const char *key) {
  static struct visit v;
  v = (struct visit){
      .desc = {.url = "memory://m", .objects = few, .n_objects = sizeof few / sizeof *few},
      .key = key};
  v.room[0] = 3;
  v.room[2] = 5;
  assert_int_equal(insitu__reactor_call(&reactor, fn, &v), INSITU_OK);
  assert_int_equal(v.status, v.error.status);
  return &v;
}

static void test_listing(void **state) {
  static const struct {
    const char *prefix, *names;
  } want[] = {{"", "A/ a a/ a! a-b/ b "}, {"a", "b b/ b-c z "}, {"a/b", "c c0/ d "},
      {"a/b/c0", "d "}, {"A", "\xc3\xa9/ "}, {"a-b", "x "}};
  (void)state;
  struct insitu__reactor_desc d = {.workers = 1,
      .io_threads = 1,
      .depth = 8,
      .iowq_max_workers = 1,
      .stack_bytes = INSITU_CORO_STACK};
  assert_int_equal(insitu__reactor_open(&reactor, &d, NULL), INSITU_OK);
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const struct visit *v = visit(visit_list, want[i].prefix);
    assert_int_equal(v->status, INSITU_OK);
    assert_string_equal(v->text, want[i].names);
  }
  assert_int_equal(visit(visit_list, "b")->status, INSITU_E_NOTFOUND); /* an object */
  assert_int_equal(visit(visit_list, "c")->status, INSITU_E_NOTFOUND);
  assert_int_equal(visit(visit_list, "a/")->status, INSITU_E_ARG);
  assert_int_equal(visit(visit_list, "../a")->status, INSITU_E_ARG);
  /* reads: filled buffers, an end in the middle of one, beyond the end, nothing there */
  const struct visit *v = visit(visit_read, "b");
  assert_int_equal(v->got, 8);
  assert_string_equal(v->text, "01234567");
  assert_int_equal(visit(visit_read, "a/b-c")->got, 2);
  assert_int_equal(visit(visit_read, "a-b/x")->got, 0);
  assert_int_equal(visit(visit_read, "a-b/x")->status, INSITU_OK);
  static const char *const none[] = {"a/b/", "..", "", "/b"}, *const absent[] = {
                                                                  "a-b", "bb", "B", "zz", "a/b/c0"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_int_equal(visit(visit_read, none[i])->status, INSITU_E_ARG);
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
    v = visit(visit_read, absent[i]);
    assert_int_equal(v->status, INSITU_E_NOTFOUND);
    assert_non_null(strstr(v->error.message, "memory://m"));
  }
  struct visit far = {.desc = v->desc, .key = "b", .offset = 8, .room = {1, 0, 9}};
  assert_int_equal(insitu__reactor_call(&reactor, visit_read, &far), INSITU_OK);
  assert_int_equal(far.got, 2);
  assert_string_equal(far.text, "89");
  static const uint64_t beyond[] = {10, 11, INT64_MAX};
  for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
    far.offset = beyond[i];
    assert_int_equal(insitu__reactor_call(&reactor, visit_read, &far), INSITU_OK);
    assert_int_equal(far.status, INSITU_OK);
    assert_int_equal(far.got, 0);
  }
  static const uint64_t room[] = {1, 10, 12}, tail[] = {1, 10, 10};
  for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
    struct visit end = {
        .desc = v->desc, .key = "b", .offset = INSITU__RING_TAIL, .room = {room[i], 0, 0}};
    assert_int_equal(insitu__reactor_call(&reactor, visit_read, &end), INSITU_OK);
    assert_int_equal(end.got, tail[i]);
    assert_memory_equal(end.text, &"0123456789"[10 - tail[i]], tail[i]);
  }
  insitu__reactor_close(&reactor);
}

/* ---- what is refused ---- */
static void refuse(const insitu_loader_desc *d, insitu_status want, const char *word) {
  insitu_error err = {0};
  insitu_loader *ld = (insitu_loader *)&err;
  insitu_status got = insitu_loader_open(d, &ld, &err);
  if (got != want || !strstr(err.message, word))
    fail_msg("%s '%s', not %s with '%s'", insitu_status_name(got), err.message,
        insitu_status_name(want), word);
  assert_null(ld);
}

static void test_refused(void **state) {
  static const char group[] = "{\"zarr_format\":2}",
                    array[] = "{\"zarr_format\":2,\"shape\":[9],\"chunks\":[3],\"dtype\":\"<i4\","
                              "\"order\":\"C\",\"fill_value\":0,"
                              "\"filters\":null,\"compressor\":null}";
  static char chunk[12], large[INSITU__MAX_KEY + 1];
  static const char *const keys[] = {"..", "/a", "", "a//b", "a/../b", "./a", "a/.", "a/", large};
  insitu_object set[6] = {O(".zgroup", group), O("x/.zarray", array), {"x/0", chunk, 12},
      {"x/1", chunk, 12}, {"x/2", chunk, 12}, O("", "")};
  insitu_variable x = {.label = "x"};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = "memory://",
      .objects = set,
      .n_objects = 6,
      .variables = &x,
      .n_variables = 1,
      .batch_size = 3};
  (void)state;
  memset(large, 'k', sizeof large - 1);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    set[5].key = keys[i];
    refuse(&d, INSITU_E_ARG, "is not a key");
  }
  set[5].key = NULL;
  refuse(&d, INSITU_E_ARG, "objects[5] has no key");
  set[5] = (insitu_object){"y", NULL, 1};
  refuse(&d, INSITU_E_ARG, "objects[5] has no bytes");
  set[5] = (insitu_object){"x/1", chunk, 3};
  refuse(&d, INSITU_E_ARG, "'x/1' twice");
  set[5] = (insitu_object){"y", NULL, 0};
  d.url = support_path("nothing");
  refuse(&d, INSITU_E_ARG, "memory:// alone");
  d.objects = NULL; /* forgotten half-way */
  refuse(&d, INSITU_E_ARG, "memory:// alone");
  d.url = "memory://";
  refuse(&d, INSITU_E_ARG, "desc.objects");
  d.objects = set;
  d.n_objects = 0;
  refuse(&d, INSITU_E_ARG, "desc.objects");
  d.n_objects = UINT64_MAX;
  refuse(&d, INSITU_E_ARG, "desc.objects");
  d.n_objects = 6;
  d.url = "memory:x";
  refuse(&d, INSITU_E_ARG, "memory:// alone"); /* a plain path */
  d.url = "memory://m";
  x.label = "xx";
  refuse(&d, INSITU_E_NOTFOUND, "'x'"); /* the names come from a listing */
  x.label = "x";
  set[1].n = 0; /* objects without bytes: metadata, then a chunk */
  refuse(&d, INSITU_E_JSON, "x");
  set[1].n = sizeof array - 1;
  set[0].key = "z";
  set[1].key = "z/y";
  refuse(&d, INSITU_E_NOT_ZARR, "memory://m");
  set[0].key = ".zgroup";
  set[1].key = "x/.zarray";
  for (int bytes = 0; bytes < 2; bytes++) {
    insitu_error err = {0};
    insitu_loader *ld;
    insitu_iter *it = NULL;
    insitu_batch *b;
    set[3] = (insitu_object){"x/1", bytes ? chunk : NULL, 0};
    assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
    assert_int_equal(insitu_iter_open(ld,
                         &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
        INSITU_OK);
    assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_OK);
    insitu_batch_release(&b);
    assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_CORRUPT);
    assert_non_null(strstr(err.message, "x/1"));
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
}

/* Closing while chunks are being copied and decoded: nothing may be read from the objects once
 * close has returned. */
static void test_close_while_reading(void **state) {
  (void)state;
  for (int c = 1; c < 4; c += 2) {
    const char *root = support_path("close");
    support_make(root, &cases[c].a);
    EACH_MODE (m)
      for (int round = 0; round < 3 * support_rounds(4); round++) {
        take(root);
        insitu_error err = {0};
        insitu_loader *ld;
        insitu_iter *it = NULL;
        insitu_batch *b = NULL;
        insitu_loader_desc d = {.api = INSITU_API,
            .url = "memory://",
            .objects = objects,
            .n_objects = n_objects,
            .variables = cases[c].v,
            .n_variables = 2,
            .batch_size = 4,
            .decode_threads = 2,
            .io = modes[m].io,
            .inline_io = modes[m].inline_io};
        assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
        assert_int_equal(
            insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &it, &err), INSITU_OK);
        if (round % 3 == 1) assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_OK);
        if (round % 3 == 2) insitu_iter_close(&it);
        insitu_loader_close(&ld);
        insitu_iter_close(&it);
        drop();
        insitu_batch_release(&b);
      }
    support_remove(root);
  }
}

/* A path so long that its metadata has a key and its chunks have none: an error, or holes, and no
 * endless wait. */
static void test_long_keys(void **state) {
  (void)state;
  static char path[4096], meta[4200];
  static float whole[16 * 128];
  const char *root = "{\"zarr_format\":3,\"node_type\":\"group\"}",
             *array =
                 "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[16,2,2,2,2,2,2,2],\"data_"
                 "type\":\"float32\","
                 "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[1,2,2,2,"
                 "2,2,2,2]}},"
                 "\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":7,"
                 "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}]}";
  memset(path, 'a', 4079);
  for (size_t i = 199; i < 4078; i += 200) path[i] = '/';
  snprintf(meta, sizeof meta, "%s/zarr.json", path);
  const insitu_object o[] = {{"zarr.json", root, strlen(root)}, {meta, array, strlen(array)}};
  const insitu_variable v = {.label = "x", .path = path};
  for (int32_t on_bad = INSITU_RAISE; on_bad <= INSITU_FILL; on_bad++)
    EACH_MODE (m) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = "memory://m",
          .objects = o,
          .n_objects = 2,
          .variables = &v,
          .n_variables = 1,
          .batch_size = 4,
          .on_bad_chunk = on_bad,
          .io = modes[m].io,
          .inline_io = modes[m].inline_io};
      insitu_status want = on_bad == INSITU_FILL ? INSITU_OK : INSITU_E_FORMAT;
      insitu_error err = {0};
      insitu_loader *ld;
      insitu_iter *it = NULL;
      insitu_batch *b;
      d.log_level = INSITU_LOG_OFF;
      assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_OK);
      assert_int_equal(insitu_iter_open(ld,
                           &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, &err),
          INSITU_OK);
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), want);
      for (int i = 0; b && i < 4 * 128; i++)
        assert_true(((const float *)b->arrays[0].data)[i] == 7);
      insitu_batch_release(&b);
      assert_int_equal(insitu_read(ld, &v, whole, sizeof whole, NULL, NULL), want);
      for (int i = 0; !want && i < 16 * 128; i++) assert_true(whole[i] == 7);
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_long_keys),
      cmocka_unit_test(test_same_as_on_disk),
      cmocka_unit_test(test_listing),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_close_while_reading),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
