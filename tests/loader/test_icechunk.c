/* Icechunk repositories of both versions: what tests/data/make_icechunk.py has written reads as its
 * formulas say, by branch, tag and snapshot, whole and in batches, from a directory, from memory
 * and over HTTP; a state belongs to its snapshot; what is missing, damaged or hostile is an
 * error. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
static void *fail_realloc(void *p, size_t bytes);
#define INSITU_REALLOC(p, bytes) fail_realloc(p, bytes)
#define INSITU_FREE(p) free(p)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "server.h"
#include "support.h"
#include "modes.h"
#include "stalled.h"
#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static atomic_int allocations = INT_MAX;
static void *fail_realloc(void *p, size_t bytes) {
  return atomic_fetch_sub(&allocations, 1) <= 0 ? NULL : realloc(p, bytes);
}

static const char *const repositories[] = {TEST_DATA "/icechunk/v1", TEST_DATA "/icechunk/v2"};
enum { FIRST, SECOND, THIRD }; /* the commits of make_icechunk.py */

/* ---- what the arrays hold ---- */
static double t2m_value(int commit, int i, int j, int k) {
  if (commit == THIRD && i < 2) return -1;
  return 1000 * i + 10 * j + k + (commit == SECOND && i >= 22 ? 0.5 : 0);
}
static double hole_value(int commit, int i) {
  int c = i / 4;
  return c == 0 || c == 5 || (c == 3 && commit != SECOND) ? c : 7;
}

static char logged[4096];
static void keep_log(void *user, int32_t level, const char *line) {
  (void)user, (void)level;
  snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", line);
}

static insitu_loader_desc desc_of(const char *url) {
  static insitu_variable some = {.label = "t2m"};
  return (insitu_loader_desc){.api = INSITU_API,
      .url = url,
      .variables = &some,
      .n_variables = 1,
      .inline_io = 1,
      .log = keep_log};
}
static insitu_loader *open_as(const char *url, const char *key, const char *value) {
  insitu_loader_desc d = desc_of(url);
  insitu_option option = {key, value};
  insitu_loader *ld;
  insitu_error err = {0};
  d.options = &option;
  d.n_options = key != NULL;
  if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s: %s", url, err.message);
  return ld;
}
static void read_into(insitu_loader *ld, const char *path, void *to, uint64_t n) {
  insitu_variable v = {.path = path, .label = path, .dtype = INSITU_AS_STORED};
  insitu_shape shape;
  insitu_error err = {0};
  if (insitu_read(ld, &v, to, n, &shape, &err)) fail_msg("%s: %s", path, err.message);
  assert_int_equal(shape.bytes, n);
}

/* Every array of make_icechunk.py, but for the virtual one. */
static void check_arrays(insitu_loader *ld, int commit) {
  static float t2m[24][6][8], hole[24][4];
  static int16_t wind[24][8][8];
  int64_t time[24];
  double scalar = 0;
  read_into(ld, "t2m", t2m, sizeof t2m);
  read_into(ld, "hole", hole, sizeof hole);
  read_into(ld, "group/wind", wind, sizeof wind);
  read_into(ld, "time", time, sizeof time);
  read_into(ld, "scalar", &scalar, sizeof scalar);
  assert_true(scalar == 3.5);
  for (int i = 0; i < 24; i++) {
    assert_int_equal(time[i], i);
    for (int j = 0; j < 6 * 8; j++)
      assert_true(t2m[i][j / 8][j % 8] == (float)t2m_value(commit, i, j / 8, j % 8));
    for (int j = 0; j < 4; j++) assert_true(hole[i][j] == (float)hole_value(commit, i));
    for (int j = 0; j < 64; j++) assert_int_equal(wind[i][j / 8][j % 8], 100 * i + j);
  }
}

/* The snapshot that the resolved configuration names. */
static const char *snapshot_of(const insitu_loader *ld) {
  const insitu_loader_desc *c = insitu_loader_config(ld);
  for (uint64_t i = 0; i < c->n_options; i++)
    if (!strcmp(c->options[i].key, "snapshot")) return c->options[i].value;
  fail_msg("no snapshot in the configuration");
  return NULL;
}

static void versions(void **state) {
  static const struct {
    const char *key, *value;
    int commit;
  } as[] = {{NULL, NULL, SECOND}, {"branch", "main", SECOND}, {"branch", "", SECOND},
      {"tag", "v1", FIRST}, {"branch", "dev", THIRD}};
  (void)state;
  for (int r = 0; r < 2; r++)
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
      char id[64], lower[64];
      insitu_loader *ld = open_as(repositories[r], as[i].key, as[i].value);
      check_arrays(ld, as[i].commit);
      snprintf(id, sizeof id, "%s", snapshot_of(ld));
      assert_int_equal(strlen(id), 20);
      insitu_loader_close(&ld);

      ld = open_as(repositories[r], "snapshot", id); /* the same again, whatever the branch does */
      check_arrays(ld, as[i].commit);
      assert_string_equal(snapshot_of(ld), id);
      insitu_loader_close(&ld);
      for (size_t k = 0; k <= strlen(id); k++) lower[k] = (char)tolower(id[k]);
      ld = open_as(repositories[r], "snapshot", lower);
      assert_string_equal(snapshot_of(ld), id);
      insitu_loader_close(&ld);
    }
}

/* ---- batches ---- */
static insitu_variable shown[] = {{.label = "t2m"}, {.label = "wind", .path = "group/wind"},
    {.label = "time", .dtype = INSITU_I64}, {.label = "hole"}};
static insitu_loader_desc batches_of(const char *url) {
  insitu_loader_desc d = desc_of(url);
  d.variables = shown;
  d.n_variables = 4;
  d.batch_size = 4;
  d.seed = 3;
  d.split[0].fraction = 1;
  return d;
}
static void check_batch(const insitu_batch *b, int commit) {
  const float *t2m = b->arrays[0].data, *hole = b->arrays[3].data;
  const int16_t *wind = b->arrays[1].data;
  const int64_t *time = b->arrays[2].data;
  for (uint64_t r = 0; r < b->rows; r++) {
    int i = (int)b->sample_indices[r];
    assert_int_equal(time[r], i);
    for (int j = 0; j < 48; j++)
      assert_true(t2m[48 * r + (uint64_t)j] == (float)t2m_value(commit, i, j / 8, j % 8));
    for (int j = 0; j < 64; j++) assert_int_equal(wind[64 * r + (uint64_t)j], 100 * i + j);
    for (int j = 0; j < 4; j++)
      assert_true(hole[4 * r + (uint64_t)j] == (float)hole_value(commit, i));
  }
}
/* All batches of two epochs; returns how many rows they had. */
static uint64_t check_epochs(insitu_loader *ld, int commit) {
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_TRAIN};
  insitu_iter *it;
  insitu_batch *b;
  insitu_error err = {0};
  uint64_t rows = 0;
  assert_int_equal(insitu_iter_open(ld, &id, &it, NULL), INSITU_OK);
  for (int epoch = 0; epoch < 2; epoch++) {
    insitu_status status;
    while (!(status = insitu_iter_next(it, 20000, &b, &err))) {
      check_batch(b, commit);
      rows += b->rows;
      insitu_batch_release(&b);
    }
    if (status != INSITU_END) fail_msg("%s", err.message);
  }
  insitu_iter_close(&it);
  return rows;
}

static void batches(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++)
    EACH_MODE (m) {
      insitu_loader_desc d = batches_of(repositories[r]);
      insitu_loader *ld;
      insitu_error err = {0};
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      d.check = 1; /* each row is also read by the slow path */
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      assert_int_equal(check_epochs(ld, SECOND), 48);
      insitu_loader_close(&ld);
    }
}

/* Tables come and go where the limit holds one at a time, and are never above it. */
static void eviction(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++)
    EACH_MODE (m) {
      insitu_loader_desc d = batches_of(repositories[r]);
      insitu_loader *ld;
      insitu_error err = {0};
      d.io = modes[m].io;
      d.inline_io = modes[m].inline_io;
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      struct insitu__icechunk *ic = insitu__icechunk_of(&ld->source.store);
      ic->limit = 131072 + 4096; /* a frame of version 1 does not tell its length: 128 KiB */
      assert_int_equal(check_epochs(ld, SECOND), 48);
      assert_true(ic->used <= ic->limit);
      ic->limit = 100;
      insitu__icechunk_take(ic, 0);
      assert_int_equal(ic->used, 0);
      assert_null(ic->newest);
      assert_null(ic->oldest);
      insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_TRAIN};
      insitu_iter *it;
      insitu_batch *b;
      assert_int_equal(insitu_iter_open(ld, &id, &it, NULL), INSITU_OK);
      assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_BUDGET);
      assert_non_null(strstr(err.message, "memory_budget"));
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
}

/* ---- what is open stays what it was ---- */
static void told(void **state) {
  static char json[1 << 16];
  (void)state;
  for (int r = 0; r < 2; r++) {
    char want[128];
    insitu_loader_desc d = batches_of(repositories[r]);
    insitu_loader *ld, *again;
    insitu_error err = {0};
    logged[0] = 0;
    d.world = 2;
    d.lanes = 2;
    d.log_level = INSITU_LOG_WARN;
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
    snprintf(want, sizeof want,
        "\"icechunk\": {\"snapshot\": \"%s\", \"branch\": \"main\", \"version\": %d}",
        snapshot_of(ld), r + 1);
    assert_non_null(strstr(json, want));
    snprintf(want, sizeof want, "\"options\": {\"snapshot\": \"%s\"}", snapshot_of(ld));
    assert_non_null(strstr(json, want));
    snprintf(want, sizeof want, "give all of them the option snapshot = %s", snapshot_of(ld));
    assert_non_null(strstr(logged, want));

    /* with what rank 0 hands on there is no warning, and the same snapshot */
    logged[0] = 0;
    d = *insitu_loader_config(ld);
    if (insitu_loader_open(&d, &again, &err)) fail_msg("%s", err.message);
    assert_string_equal(snapshot_of(ld), snapshot_of(again));
    assert_null(strstr(logged, "snapshot"));
    insitu_loader_close(&again);
    if (insitu_loader_open_json(json, NULL, &again, &err)) fail_msg("%s", err.message);
    assert_string_equal(snapshot_of(ld), snapshot_of(again));
    insitu_loader_close(&again);
    insitu_loader_close(&ld);
  }
}

static insitu_state state_of(insitu_loader *ld, insitu_iter **it) {
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_TRAIN};
  insitu_batch *b;
  insitu_state after;
  assert_int_equal(insitu_iter_open(ld, &id, it, NULL), INSITU_OK);
  assert_int_equal(insitu_iter_next(*it, 20000, &b, NULL), INSITU_OK);
  after = b->after;
  insitu_batch_release(&b);
  return after;
}
static void states(void **state) {
  static const char *const key[] = {"tag", "branch"}, *const value[] = {"v1", "main"};
  (void)state;
  for (int r = 0; r < 2; r++) {
    insitu_loader *ld[2];
    insitu_iter *it[2];
    insitu_state after[2];
    char want[128];
    insitu_error err = {0};
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc d = batches_of(repositories[r]);
      insitu_option option = {key[i], value[i]};
      d.options = &option;
      d.n_options = 1;
      if (insitu_loader_open(&d, &ld[i], &err)) fail_msg("%s", err.message);
      after[i] = state_of(ld[i], &it[i]);
    }
    assert_int_equal(insitu_iter_restore(it[0], &after[0], &err), INSITU_OK);
    assert_int_equal(insitu_iter_restore(it[0], &after[1], &err), INSITU_E_STATE);
    snprintf(want, sizeof want, "open it with the option snapshot = %s", snapshot_of(ld[1]));
    assert_non_null(strstr(err.message, want));
    after[1].bytes[6] = 3; /* as of another kind of archive */
    insitu__state_seal(&after[1]);
    assert_int_equal(insitu_iter_restore(it[0], &after[1], &err), INSITU_E_STATE);
    assert_non_null(strstr(err.message, "no Icechunk repository"));
    for (int i = 0; i < 2; i++) {
      insitu_iter_close(&it[i]);
      insitu_loader_close(&ld[i]);
    }
  }
}

/* ---- refusals ---- */
static void refused(const char *url, const insitu_option *options, uint64_t n, insitu_status want,
    const char *says) {
  insitu_loader_desc d = desc_of(url);
  insitu_loader *ld;
  insitu_error err = {0};
  d.options = options;
  d.n_options = n;
  insitu_status status = insitu_loader_open(&d, &ld, &err);
  if (status != want || !strstr(err.message, says))
    fail_msg("%s: %d, '%s' does not say '%s'", url, status, err.message, says);
}
static void refusals(void **state) {
  static const insitu_option two[] = {{"tag", "v1"}, {"branch", "main"}};
  static const struct {
    insitu_option option;
    insitu_status status;
    const char *says;
  } as[] = {{{"branch", "maim"}, INSITU_E_NOTFOUND, "has no branch 'maim'; did you mean 'main'?"},
      {{"branch", "a/b"}, INSITU_E_NOTFOUND, "has no branch 'a/b'; there are"},
      {{"tag", "v2"}, INSITU_E_NOTFOUND, "has no tag 'v2'; did you mean 'v1'?"},
      {{"tag", "gone"}, INSITU_E_NOTFOUND, "tag 'gone' was deleted"},
      {{"branch", "bare"}, INSITU_E_NOT_ZARR, "snapshot 1CECHNKREP0F1RSTCMT0 has no arrays"},
      {{"snapshot", "VY76P925PRY57WFEK410"}, INSITU_E_NOTFOUND, "there is no snapshot VY76P925"},
      {{"snapshot", "main"}, INSITU_E_ARG, "'main' is no id of a snapshot"},
      {{"snapshot", "VY76P925PRY57WFEK41U"}, INSITU_E_ARG, "is no id"},
      {{"snapshot", "VY76P925PRY57WFEK411"}, INSITU_E_ARG, "is no id"},
      {{"brunch", "main"}, INSITU_E_ARG, "did you mean 'branch'?"}};
  (void)state;
  for (int r = 0; r < 2; r++) {
    for (size_t i = 0; i < sizeof as / sizeof *as; i++)
      refused(repositories[r], &as[i].option, 1, as[i].status, as[i].says);
    refused(repositories[r], two, 2, INSITU_E_ARG, "options name both a tag and a branch");
  }
  support_write(
      support_path("plain/zarr.json"), "{\"zarr_format\": 3, \"node_type\": \"group\"}", 41);
  refused(support_path("plain"), &two[0], 1, INSITU_E_NOTFOUND, "no Icechunk repository");
}

/* ---- repositories in memory ---- */
enum { MOST = 256 };
static insitu_object objects[MOST];
static uint64_t n_objects, root_length;
static int take_file(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)f;
  if (kind != FTW_F) return 0;
  assert_true(n_objects < MOST);
  unsigned char *bytes = malloc((size_t)s->st_size + 1);
  FILE *in = fopen(path, "rb");
  assert_int_equal(fread(bytes, 1, (size_t)s->st_size, in), s->st_size);
  fclose(in);
  objects[n_objects++] = (insitu_object){
      .key = strdup(path + root_length + 1), .bytes = bytes, .n = (uint64_t)s->st_size};
  return 0;
}
static void load(const char *root) {
  n_objects = 0;
  root_length = strlen(root);
  assert_int_equal(nftw(root, take_file, 16, FTW_PHYS), 0);
}
static void drop(void) {
  for (uint64_t i = 0; i < n_objects; i++) {
    free((void *)(uintptr_t)objects[i].key);
    free((void *)(uintptr_t)objects[i].bytes);
  }
  n_objects = 0;
}
static bool is_file(const insitu_object *o, const char *folder) {
  return !strncmp(o->key, folder, strlen(folder));
}
/* Replaces a compressed file by one that is not. */
static void unpack(insitu_object *o) {
  const unsigned char *from = o->bytes;
  unsigned char *to = malloc(1 << 20);
  size_t n = ZSTD_decompress(to + 39, (1 << 20) - 39, from + 39, o->n - 39);
  assert_false(ZSTD_isError(n));
  memcpy(to, from, 38);
  to[38] = 0;
  free((void *)(uintptr_t)o->bytes);
  o->bytes = to;
  o->n = n + 39;
}
/* Replaces all files of the repository by ones that are not compressed; the snapshots tell how long
 * the manifests are. */
static void unpack_all(void) {
  for (uint64_t i = 0; i < n_objects; i++)
    if (is_file(&objects[i], "repo") || is_file(&objects[i], "manifests/") ||
        is_file(&objects[i], "snapshots/"))
      unpack(&objects[i]);
  for (uint64_t i = 0; i < n_objects; i++) {
    if (!is_file(&objects[i], "snapshots/")) continue;
    unsigned char *p = (unsigned char *)(uintptr_t)objects[i].bytes + 39;
    struct insitu__ice_buffer b = {p, objects[i].n - 39, false};
    struct insitu__ice_table root = insitu__ice_root(&b), info;
    struct insitu__ice_vector one = insitu__ice_vector(&root, 6, 32);
    struct insitu__ice_vector two = insitu__ice_vector(&root, 7, 4);
    for (uint64_t k = 0; k < one.n + two.n; k++) {
      uint64_t id = one.at + 32 * k, size = id + 16;
      char key[64] = "manifests/";
      if (k >= one.n) {
        info = insitu__ice_element(&b, two, k - one.n);
        id = insitu__ice_field(&info, 0, 12);
        size = insitu__ice_field(&info, 1, 8);
      }
      insitu__ice_id_text(p + id, key + 10);
      for (uint64_t m = 0; m < n_objects; m++)
        if (!strcmp(objects[m].key, key)) support_store64(p + size, objects[m].n);
    }
    assert_false(b.damaged);
  }
}
static insitu_status open_memory(insitu_loader **ld, insitu_error *err) {
  insitu_loader_desc d = desc_of("memory://repository");
  insitu_option option = {"branch", "main"};
  d.objects = objects;
  d.n_objects = n_objects;
  d.options = &option;
  d.n_options = 1;
  memset(err, 0, sizeof *err);
  return insitu_loader_open(&d, ld, err);
}
/* Opens the repository and reads all of it. Errors are fine, as long as they say something. */
static insitu_status read_memory(void) {
  static const char *const path[] = {"t2m", "time", "scalar", "hole", "group/wind"};
  static unsigned char to[1 << 14];
  insitu_loader *ld;
  insitu_error err;
  insitu_status status = open_memory(&ld, &err), one;
  for (size_t i = 0; !status && i < sizeof path / sizeof *path; i++) {
    insitu_variable v = {.path = path[i], .label = path[i], .dtype = INSITU_AS_STORED};
    one = insitu_read(ld, &v, to, sizeof to, NULL, &err);
    if (one) status = one;
  }
  if (status && !err.message[0]) fail_msg("an error without words");
  if (err.status && err.status != status) fail_msg("%d, and %s", status, err.message);
  insitu_loader_close(&ld);
  return status;
}

/* Every byte of every FlatBuffer, replaced by others: nothing is read outside of a buffer (which
 * the sanitizers see), nothing hangs, and what is read is values or an error. */
static void hostile(void **state) {
  static const unsigned char other[] = {0xff, 0, 0x80, 1};
  (void)state;
  for (int r = 0; r < 2; r++) {
    load(repositories[r]);
    unpack_all();
    assert_int_equal(read_memory(), INSITU_OK);
    int errors = 0, tries = 0, step = support_slow() ? 307 : 41;
    for (uint64_t i = 0; i < n_objects; i++) {
      insitu_object *o = &objects[i];
      unsigned char *bytes = (unsigned char *)(uintptr_t)o->bytes;
      if (is_file(o, "chunks/") || is_file(o, "config") || is_file(o, "refs/")) continue;
      for (uint64_t at = 0; at < o->n; at += (uint64_t)step, tries++) {
        unsigned char was = bytes[at];
        bytes[at] = other[support_below(4)];
        errors += read_memory() != INSITU_OK;
        bytes[at] = was;
      }
      for (uint64_t n = o->n, cut = 1; cut < n; cut += 1 + n / 4, tries++) {
        o->n = cut;
        errors += read_memory() != INSITU_OK;
        o->n = n;
      }
    }
    assert_true(errors > tries / 20 && errors < tries);
    assert_int_equal(read_memory(), INSITU_OK);
    drop();
  }
}

/* The same with the compressed files: cut short, and with noise in them. */
static void damaged(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    load(repositories[r]);
    for (uint64_t i = 0; i < n_objects; i++) {
      insitu_object *o = &objects[i];
      unsigned char *bytes = (unsigned char *)(uintptr_t)o->bytes;
      if (is_file(o, "chunks/") || is_file(o, "config") || !o->n) continue;
      for (uint64_t n = o->n, cut = 0; cut < n; cut += 1 + n / 4) {
        o->n = cut;
        read_memory();
        o->n = n;
      }
      for (int k = 0; k < support_rounds(4); k++) {
        uint64_t at = support_below(o->n);
        unsigned char was = bytes[at];
        bytes[at] ^= (unsigned char)(1 << support_below(8));
        read_memory();
        bytes[at] = was;
      }
    }
    assert_int_equal(read_memory(), INSITU_OK);
    drop();
  }
}

/* A listed object that is missing is an error, and no hole. */
static void missing(void **state) {
  static const struct {
    const char *folder;
    insitu_status status;
    const char *says;
  } gone[] = {{"manifests/", INSITU_E_IO, "which snapshot"}, {"chunks/", INSITU_E_IO, "chunks/"}};
  static float t2m[24][6][8];
  (void)state;
  for (int r = 0; r < 2; r++)
    for (size_t g = 0; g < sizeof gone / sizeof *gone; g++) {
      insitu_variable v = {.path = "t2m", .label = "t2m", .dtype = INSITU_AS_STORED};
      insitu_loader *ld;
      insitu_error err;
      uint64_t n = 0;
      load(repositories[r]);
      for (uint64_t i = 0; i < n_objects; i++) {
        if (is_file(&objects[i], gone[g].folder)) {
          free((void *)(uintptr_t)objects[i].key);
          free((void *)(uintptr_t)objects[i].bytes);
        } else objects[n++] = objects[i];
      }
      n_objects = n;
      assert_int_equal(open_memory(&ld, &err), INSITU_OK);
      assert_int_equal(insitu_read(ld, &v, t2m, sizeof t2m, NULL, &err), gone[g].status);
      if (!strstr(err.message, gone[g].says)) fail_msg("%s", err.message);
      insitu_loader_close(&ld);
      drop();
    }
}

/* Without memory for any one allocation opening or reading fails as such. */
static void no_memory(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    load(repositories[r]);
    bool done = false;
    for (int n = 0; !done; n += n < 40 ? 1 : support_slow() ? 23 : 5) {
      atomic_store(&allocations, n);
      insitu_status status = read_memory();
      done = atomic_load(&allocations) > 0;
      atomic_store(&allocations, INT_MAX);
      if (!done && status != INSITU_OK && status != INSITU_E_NOMEM)
        fail_msg("allocation %d: %s", n, insitu_status_name(status));
    }
    drop();
  }
}

/* ---- virtual chunks ---- */
/* The files that make_icechunk.py's virtual chunks lie in. Other runs of this test write the same:
 * each file is there at once, and with the same bytes. */
#define VIRTUAL "/tmp/insitu-test-virtual/"
static void put_virtual(const char *name) {
  int16_t numbers[400];
  char path[256], other[300];
  for (int i = 0; i < 400; i++) numbers[i] = (int16_t)i;
  snprintf(path, sizeof path, VIRTUAL "%s", name);
  snprintf(other, sizeof other, "%s.%d", path, (int)getpid());
  if (!access(path, R_OK)) return;
  support_write(other, numbers, sizeof numbers);
  assert_int_equal(rename(other, path), 0);
}
static insitu_status read_virtual(const char *url, const char *prefix, const char *path,
    int16_t *to, uint64_t n, insitu_error *err) {
  insitu_loader_desc d = desc_of(url);
  insitu_variable v = {.path = path, .label = path};
  insitu_loader *ld;
  d.virtual_prefixes = &prefix;
  d.n_virtual_prefixes = prefix != NULL;
  memset(err, 0, sizeof *err);
  if (insitu_loader_open(&d, &ld, err)) fail_msg("%s: %s", url, err->message);
  insitu_status status = insitu_read(ld, &v, to, n, NULL, err);
  insitu_loader_close(&ld);
  return status;
}
static void virtual_chunks(void **state) {
  static const char *const path[] = {"virtual", "many"};
  static const uint64_t n[] = {80, 400};
  int16_t got[400];
  insitu_error err;
  (void)state;
  put_virtual("numbers.bin");
  for (int i = 0; i < 100; i++) {
    char name[100];
    snprintf(name, sizeof name, "many/with-a-name-that-is-long-enough/number-%03d.bin", i);
    put_virtual(name);
  }

  for (int r = 0; r < 2; r++) {
    for (int k = 0; k < 2; k++) {
      memset(got, 0, sizeof got);
      if (read_virtual(repositories[r], VIRTUAL, path[k], got, 2 * n[k], &err))
        fail_msg("%s", err.message);
      for (uint64_t i = 0; i < n[k]; i++) assert_int_equal(got[i], i);
      insitu_status status = read_virtual(repositories[r], NULL, path[k], got, 2 * n[k], &err);
      assert_int_equal(status, INSITU_E_ARG);
      assert_non_null(strstr(err.message, "virtual_prefixes"));
    }
    insitu_status status = read_virtual(repositories[r], VIRTUAL, "stale", got, 8, &err);
    assert_int_equal(status, INSITU_E_CHANGED);
    assert_non_null(strstr(err.message, "modified since"));
  }
}

/* A target that is missing is an error; one in a repository in memory is refused. */
static void virtual_missing(void **state) {
  int16_t got[80];
  insitu_error err;
  insitu_loader *ld;
  insitu_variable v = {.path = "virtual", .label = "virtual"};
  (void)state;
  put_virtual("numbers.bin");
  load(repositories[0]);
  unpack_all();
  for (uint64_t i = 0; i < n_objects; i++) {
    unsigned char *at = (unsigned char *)(uintptr_t)objects[i].bytes, *end = at + objects[i].n;
    while (is_file(&objects[i], "manifests/") &&
           (at = memmem(at, (size_t)(end - at), "numbers.bin", 11)))
      memcpy(at, "lumbe/s.bin", 11);
    char path[200];
    snprintf(path, sizeof path, "lost/%s", objects[i].key);
    support_write(support_path(path), objects[i].bytes, objects[i].n);
  }
  assert_int_equal(open_memory(&ld, &err), INSITU_OK);
  assert_int_equal(insitu_read(ld, &v, got, sizeof got, NULL, &err), INSITU_E_UNSUPPORTED);
  insitu_loader_close(&ld);
  drop();
  const char *url = support_path("lost");
  insitu_status status = read_virtual(url, VIRTUAL, "virtual", got, sizeof got, &err);
  assert_int_equal(status, INSITU_E_IO);
  assert_non_null(strstr(err.message, "lumbe/s.bin"));
  /* Nor is one absent where its prefix's directory is missing. */
  status = read_virtual(url, VIRTUAL "lumbe", "virtual", got, sizeof got, &err);
  assert_int_equal(status, INSITU_E_IO);
}

/* ---- over HTTP, which has no listing ---- */
static void over_http(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    struct server *s = server_start(&(struct server_options){.folder = repositories[r]});
    char url[64];
    insitu_loader *ld;
    insitu_error err = {0};
    insitu_option options[2] = {{"tag", "v1"}, {"environment", "false"}};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
    insitu_loader_desc d = batches_of(url);
    d.options = options;
    d.n_options = 2;
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    check_arrays(ld, FIRST);
    assert_int_equal(check_epochs(ld, FIRST), 48);
    insitu_loader_close(&ld);
    options[0] = (insitu_option){"branch", "maim"};
    refused(url, options, 2, INSITU_E_NOTFOUND, "has no branch 'maim'");

    /* A manifest that a server does not give is an error, and read again when it is back. */
    server_rule(
        s, (struct server_rule){.key = "manifests/*", .fault = SERVER_STATUS, .status = 403});
    options[0].value = "main";
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    static float t2m[24][6][8];
    insitu_variable v = {.path = "t2m", .label = "t2m", .dtype = INSITU_AS_STORED};
    assert_int_equal(insitu_read(ld, &v, t2m, sizeof t2m, NULL, &err), INSITU_E_AUTH);
    if (!strstr(err.message, "manifest ")) fail_msg("%s", err.message);
    server_reset(s);
    check_arrays(ld, SECOND);
    insitu_loader_close(&ld);

    /* What is not there has an answer of its own, which is nothing's content: where the other
     * version has its files, and where the snapshot lists a manifest or a chunk. */
    const char *const lost[] = {"manifests/*", "chunks/*"};
    const char *const says[] = {"is not there", "no such object"};
    for (unsigned k = 0; k < 2; k++) {
      server_rule(s, (struct server_rule){.key = r ? "refs/*" : "repo",
                         .fault = SERVER_STATUS,
                         .status = 404,
                         .text = "NoSuchKey"});
      server_rule(
          s, (struct server_rule){
                 .key = lost[k], .fault = SERVER_STATUS, .status = 404, .text = "NoSuchKey"});
      if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
      assert_int_equal(insitu_read(ld, &v, t2m, sizeof t2m, NULL, &err), INSITU_E_IO);
      if (!strstr(err.message, says[k])) fail_msg("%s", err.message);
      server_reset(s);
      check_arrays(ld, SECOND);
      insitu_loader_close(&ld);
    }
    server_stop(&s);
  }
}

/* Manifests of one array whose extents overlap: a chunk is where one of them has it, and they are
 * looked into in the order of the snapshot's list. */
static void overlapping(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    insitu_loader *ld = open_as(repositories[r], "branch", "main");
    struct insitu__icechunk *ic = insitu__icechunk_of(&ld->source.store);
    unsigned several = 0;
    for (uint64_t i = 0; i < ic->tree.n_arrays; i++) {
      struct insitu__ice_array *a = &ic->tree.array[i];
      for (uint64_t k = 0; k < a->n && a->n_dims; k++) {
        struct insitu__ice_cover *c = &ic->tree.cover[a->first + k];
        for (unsigned d = 0; d < a->n_dims; d++) {
          ic->tree.box[c->box + 2 * d] = 0;
          ic->tree.box[c->box + 2 * d + 1] = UINT32_MAX;
        }
        c->from = 0;
        c->most = UINT32_MAX;
      }
      uint32_t index[INSITU__MAX_DIMS] = {0}, turn = 0;
      uint64_t found = 0, last = 0;
      for (struct insitu__ice_entry *e; (e = insitu__ice_covers(&ic->tree, a, index, &turn));
           found++) {
        assert_true(turn > last);
        last = turn;
      }
      assert_int_equal(found, a->n);
      several += a->n > 1;
    }
    assert_true(several > 0);
    check_arrays(ld, SECOND);
    check_arrays(ld, SECOND);
    insitu_loader_close(&ld);
  }
}

/* Iterators and loaders close while a manifest, and those who wait for it, get no answer. */
static void stalled(void **state) {
  insitu_option options[] = {{"stall_timeout", "60m"}, {"retry_timeout", "60m"}};
  (void)state;
  for (int r = 0; r < 2; r++) {
    struct server *s = server_start(&(struct server_options){.folder = repositories[r]});
    char url[64];
    insitu_loader *ld;
    insitu_error err = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
    insitu_loader_desc d = batches_of(url);
    d.inline_io = 0;
    d.n_variables = 1;
    d.options = options;
    d.n_options = 2;
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    unsigned rule = server_rule(s,
        (struct server_rule){
            .key = "manifests/*", .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
    close_while_stalled(&ld, s, rule, (insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN});
    server_release(s);
    server_stop(&s);
  }
}

/* Requests: what opening takes, each manifest once, each chunk once. */
static void requests(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    struct server *s = server_start(&(struct server_options){.folder = repositories[r]});
    char url[64];
    insitu_option option = {"environment", "false"};
    insitu_loader *ld;
    insitu_error err = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
    insitu_loader_desc d = batches_of(url);
    d.n_variables = 1;
    d.hold_epoch = 1; /* else the next epoch's requests come while those of this one are counted */
    d.options = &option;
    d.n_options = 1;
    if (insitu_loader_open(&d, &ld, &err)) fail_msg("%s", err.message);
    /* four names of Zarr's at once; repo and refs/ at once; the snapshot */
    uint64_t opened = server_stats(s).requests;
    assert_int_equal(opened, 4 + 2 + 1);
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_TRAIN};
    insitu_iter *it;
    insitu_batch *b;
    assert_int_equal(insitu_iter_open(ld, &id, &it, NULL), INSITU_OK);
    while (!insitu_iter_next(it, 20000, &b, &err)) insitu_batch_release(&b);
    assert_int_equal(server_seen(s, "GET /manifests/"), 3); /* those of t2m */
    assert_int_equal(server_seen(s, "GET /chunks/"), 12);
    assert_int_equal(server_stats(s).requests, opened + 3 + 12);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
    server_stop(&s);
  }
}

/* cache_decoded: chunks of a repository are kept as they are stored, and a note says so. */
static void cached(void **state) {
  (void)state;
  struct server *s = server_start(&(struct server_options){.folder = repositories[0]});
  static char url[64], json[1 << 20];
  snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
  insitu_loader_desc d = batches_of(url);
  d.options = &(insitu_option){"environment", "false"};
  d.n_options = 1;
  d.cache_dir = support_path("cache");
  d.cache_decoded = 1;
  for (int run = 0; run < 2; run++) {
    insitu_stats stats;
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(check_epochs(ld, SECOND), 48);
    assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
    assert_non_null(strstr(json, "keeps chunks as they are stored: they lie in other files"));
    assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
    if (run) assert_true(stats.disk_hits >= 12);
    insitu_loader_close(&ld);
  }
  server_stop(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(versions), cmocka_unit_test(batches),
      cmocka_unit_test(eviction), cmocka_unit_test(told), cmocka_unit_test(states),
      cmocka_unit_test(refusals), cmocka_unit_test(hostile), cmocka_unit_test(damaged),
      cmocka_unit_test(missing), cmocka_unit_test(virtual_chunks),
      cmocka_unit_test(virtual_missing), cmocka_unit_test(no_memory), cmocka_unit_test(over_http),
      cmocka_unit_test(overlapping), cmocka_unit_test(stalled), cmocka_unit_test(requests),
      cmocka_unit_test(cached)};
  cmocka_set_test_filter(getenv("TEST_FILTER"));
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
