/* Fixed variables: their elements against the arrays' formula and against insitu_read, one address
 * in all batches, who owns them and until when, memory, states, and what is refused. On devices:
 * test_device.c. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "archive.h"
#include "device/dlpack.h"
#include <pthread.h>
#include <stdatomic.h>

#define HAS(text, word)                                                                            \
  do {                                                                                             \
    if (!strstr(text, word)) fail_msg("'%s' does not name '%s'", text, word);                      \
  } while (0)

enum { TIME = 14, LEVEL = 5, LAT = 7, LON = 11 };
static char lines[4096]; /* of the log, with the levels error and warn */
static void keep_line(void *user, int32_t level, const char *line) {
  size_t n = strlen(lines);
  (void)user;
  if (level < 2) snprintf(lines + n, sizeof lines - n, "%s\n", line);
}
static const double lats[LAT] = {60, 40, 20, 0, -20, -40, -60};

/* t and u are drawn; z and m have no axis of samples. */
static struct support_array t = {.name = "t",
                                .ndim = 3,
                                .shape = {TIME, LAT, LON},
                                .dtype = INSITU_I32,
                                .dims = "[\"time\",\"lat\",\"lon\"]"},
                            z = {.name = "z",
                                .ndim = 3,
                                .shape = {LEVEL, LAT, LON},
                                .dtype = INSITU_I16,
                                .dims = "[\"level\",\"lat\",\"lon\"]"},
                            latitude = {.name = "lat",
                                .ndim = 1,
                                .shape = {LAT},
                                .chunk = {3},
                                .dtype = INSITU_F64,
                                .values = lats,
                                .dims = "[\"lat\"]"};

static void make_archive(const char *root) {
  int format = 2 + (int)support_below(2);
  support_layout(&t, format);
  support_layout(&z, format);
  support_make(root, &t);
  support_make(root, &z);
  latitude.format = format;
  support_make(root, &latitude);
}

/* Draws a selection of an axis, by a range or a list of indexes, in either direction: its text and
 * its indexes. */
static int draw(const char *dim, int n, int at[16], char *text) {
  int shown = 0, a = (int)support_below((uint64_t)n), b = (int)support_below((uint64_t)n);
  char *to = text + strlen(text);
  if (support_below(3) == 0) {
    for (; shown < n; shown++) at[shown] = shown;
  } else if (support_below(2)) {
    int step = a > b ? -1 : 1;
    for (int i = a; i != b + step; i += step) at[shown++] = i;
    if (b + step < 0) sprintf(to, "%s=[%d::-1];", dim, a);
    else sprintf(to, "%s=[%d:%d:%d];", dim, a, b + step, step);
  } else {
    sprintf(to, "%s=[%d,%d];", dim, a, b);
    at[shown++] = a;
    at[shown++] = b;
  }
  return shown;
}

/* The fixed array of a batch, against insitu_read of the same variable, bit by bit. */
static void check_read(insitu_loader *ld, const insitu_array *a, insitu_variable v) {
  static unsigned char bytes[TIME * LEVEL * LAT * LON * 8];
  insitu_shape shape;
  insitu_error err = {0};
  if (insitu_read(ld, &v, bytes, sizeof bytes, &shape, &err)) fail_msg("%s", err.message);
  assert_int_equal(shape.ndim, a->ndim);
  assert_int_equal(shape.bytes, a->bytes);
  assert_int_equal(shape.dtype, a->dtype);
  assert_memory_equal(shape.shape, a->shape, (size_t)a->ndim * sizeof *a->shape);
  assert_memory_equal(bytes, a->data, a->bytes);
}

/* What every fixed array is. */
static void check_face(const insitu_array *a) {
  int64_t stride = 1;
  assert_int_equal(a->fixed, 1);
  assert_int_equal(a->row_bytes, 0);
  assert_null(a->channels);
  for (int d = a->ndim; d-- > 0;) {
    assert_int_equal(a->strides[d], stride);
    stride *= a->shape[d];
  }
  assert_int_equal(a->bytes, (uint64_t)stride * (uint64_t)(a->dtype & 0xff) / 8);
  assert_int_equal((uintptr_t)a->data % 256, 0);
}

/* Arrays of any layout; selections of any axis, also of that of the samples; types;
 * several iterators and epochs. */
static void drawn(void **state) {
  (void)state;
  const char *root = support_path("fixed");
  for (int round = 0; round < support_rounds(60); round++) {
    char select[2][200] = {"", ""};
    int at[2][3][16], n[2][3];
    make_archive(root);
    n[0][0] = draw("level", LEVEL, at[0][0], select[0]);
    n[1][0] = draw("time", TIME, at[1][0], select[1]);
    for (int i = 0; i < 2; i++) {
      n[i][1] = draw("lat", LAT, at[i][1], select[i]);
      n[i][2] = draw("lon", LON, at[i][2], select[i]);
    }
    const struct support_array *of[2] = {&z, &t};
    insitu_variable v[] = {{.label = "orog", .path = "z", .fixed = 1, .select = select[0]},
        {.label = "t", .offset = 1},
        {.label = "first", .path = "t", .fixed = 1, .select = select[1]},
        {.label = "lat", .fixed = 1, .select = "lat=20..-40"}};
    if (support_below(2)) v[0].dtype = INSITU_F32;
    if (support_below(2)) v[2].dtype = INSITU_F64;
    int m = any_mode();
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = v,
        .n_variables = 4,
        .sample_dim = "time",
        .batch_size = 1 + support_below(5),
        .io = modes[m].io,
        .inline_io = (int32_t)support_below(2),
        .check = (int32_t)support_below(2)};
    insitu_loader *ld = open_or_fail(&d);
    const void *data[4] = {NULL};
    for (int pass = 0; pass < 2; pass++) {
      insitu_iter *it = open_iter_or_fail(
          ld, &(insitu_iter_desc){.api = INSITU_API, .split = pass ? INSITU_ALL : INSITU_TRAIN});
      insitu_batch *b;
      insitu_error err = {0};
      int ends = 0;
      while (ends < 2) {
        insitu_status status = insitu_iter_next(it, 20000, &b, &err);
        if (status < 0) fail_msg("%s", err.message);
        ends += status == INSITU_END;
        if (status) continue;
        assert_int_equal(b->n_arrays, 4);
        for (int i = 0; i < 4; i++) {
          const insitu_array *a = &b->arrays[i];
          assert_string_equal(a->name, v[i].label);
          if (i == 1) {
            support_check_array(b, 1, &v[1], &t, 0);
            assert_int_equal(a->fixed, 0);
            continue;
          }
          check_face(a);
          if (!data[i]) data[i] = a->data;
          assert_ptr_equal(a->data, data[i]);
        }
        insitu_batch_release(&b);
      }
      b = next_batch_or_fail(it);
      for (int i = 0; i < 2; i++) {
        const insitu_array *a = &b->arrays[2 * i];
        assert_int_equal(a->ndim, 3);
        for (int k = 0; k < 3; k++) assert_int_equal(a->shape[k], n[i][k]);
        for (int x = 0; x < n[i][0]; x++)
          for (int y = 0; y < n[i][1]; y++)
            for (int w = 0; w < n[i][2]; w++) {
              uint64_t place = (uint64_t)((x * n[i][1] + y) * n[i][2] + w);
              uint64_t index[3] = {
                  (uint64_t)at[i][0][x], (uint64_t)at[i][1][y], (uint64_t)at[i][2][w]};
              support_same(a->data, a->dtype, place, support_expect(of[i], index), select[i]);
            }
        if (!d.inline_io || pass) check_read(ld, a, v[2 * i]);
      }
      assert_int_equal(b->arrays[3].shape[0], 4);
      for (uint64_t k = 0; k < 4; k++)
        support_same(b->arrays[3].data, b->arrays[3].dtype, k, lats[k + 2], "lat");
      insitu_batch_release(&b);
      insitu_iter_close(&it);
    }
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* Arrays without any axis, and of strings of fixed size. */
static void odd_shapes(void **state) {
  (void)state;
  static const float scalar = 2.5f;
  static const char names[] = "abcdef";
  static const int16_t samples[] = {1, 2, 3, 4, 5, 6, 7, 8};
  archive_begin();
  archive_text(".zgroup", "{\"zarr_format\":2}");
  archive_text("s/.zarray",
      "{\"zarr_format\":2,\"shape\":[],\"chunks\":[],\"dtype\":\"<f4\",\"order\":\"C\","
      "\"fill_value\":0,\"filters\":null,\"compressor\":null}");
  archive_add("s/0", &scalar, sizeof scalar);
  archive_text("n/.zarray",
      "{\"zarr_format\":2,\"shape\":[2],\"chunks\":[2],\"dtype\":\"|S3\",\"order\":\"C\","
      "\"fill_value\":null,\"filters\":null,\"compressor\":null}");
  archive_add("n/0", names, 6);
  archive_text("x/.zarray",
      "{\"zarr_format\":2,\"shape\":[8],\"chunks\":[4],\"dtype\":\"<i2\",\"order\":\"C\","
      "\"fill_value\":0,\"filters\":null,\"compressor\":null}");
  archive_add("x/0", samples, 8);
  archive_add("x/1", samples + 4, 8);
  insitu_variable v[] = {{.label = "s", .fixed = 1}, {.label = "n", .fixed = 1}, {.label = "x"},
      {.label = "again", .path = "s", .fixed = 1, .dtype = INSITU_F64}};
  insitu_loader *ld = archive_open(
      (insitu_loader_desc){.variables = v, .n_variables = 4, .batch_size = 2, .check = 1},
      any_mode());
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b = next_batch_or_fail(it);
  const insitu_array *a = b->arrays;
  for (int i = 0; i < 4; i++)
    if (i != 2) check_face(&a[i]);
  assert_int_equal(a[0].ndim, 0);
  assert_int_equal(a[0].bytes, 4);
  assert_memory_equal(a[0].data, &scalar, 4);
  assert_int_equal(a[1].ndim, 2);
  assert_true(a[1].shape[0] == 2 && a[1].shape[1] == 3 && a[1].dtype == INSITU_U8);
  assert_memory_equal(a[1].data, names, 6);
  assert_int_equal(a[3].bytes, 8);
  assert_true(*(const double *)a[3].data == 2.5);
  struct dl e = dl_export_fixed(b, 0, true, NULL);
  assert_int_equal(dl_tensor(e)->ndim, 0);
  dl_delete(e);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
}

/* What packed and missing values become, and absent chunks. */
static void decoded(void **state) {
  (void)state;
  const char *root = support_path("decoded");
  static const double values[] = {1, 2, -9, 4, 5, -9};
  struct support_array
      x = {.name = "x", .ndim = 1, .shape = {20}, .chunk = {4}, .dtype = INSITU_I16, .format = 2},
      p = {.name = "p",
          .ndim = 1,
          .shape = {6},
          .chunk = {2},
          .dtype = INSITU_I16,
          .format = 2,
          .values = values,
          .fill = "7",
          .attributes = "\"scale_factor\":0.5,\"add_offset\":10,\"_FillValue\":-9"},
      nan = {.name = "nan",
          .ndim = 1,
          .shape = {6},
          .chunk = {2},
          .absent = 3,
          .dtype = INSITU_F32,
          .format = 2,
          .fill = "\"NaN\""};
  support_make(root, &x);
  support_make(root, &p);
  support_make(root, &nan);
  insitu_variable v[] = {{.label = "x"}, {.label = "p", .fixed = 1, .decode = INSITU_CF},
      {.label = "nan", .fixed = 1}};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 3,
      .batch_size = 4,
      .check = 1};
  insitu_loader *ld = open_or_fail(&d); /* an absent chunk is its fill value, NaN too */
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b = next_batch_or_fail(it);
  const float *unpacked = b->arrays[1].data, *holes = b->arrays[2].data;
  assert_int_equal(b->arrays[1].dtype, INSITU_F32);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(unpacked[i] != unpacked[i], values[i] == -9);
    if (values[i] != -9) assert_true(unpacked[i] == (float)(values[i] * 0.5 + 10));
    if (i < 4) assert_true(holes[i] == i);
    else assert_true(holes[i] != holes[i]);
  }
  insitu_stats s;
  assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
  assert_int_equal(s.absent_chunks, 1);
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);

  insitu_error err = {0};
  d.on_absent_chunk = INSITU_RAISE;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_ABSENT);
  HAS(err.message, "array nan");
  d.on_absent_chunk = 0;

  support_write(support_path("decoded/p/1"), "short", 3);
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_CORRUPT);
  HAS(err.message, "array p");
  d.on_bad_chunk = INSITU_FILL;
  d.log = keep_line;
  lines[0] = 0;
  ld = open_or_fail(&d);
  assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
  assert_int_equal(s.bad_chunks, 1);
  HAS(lines, "variable p: 1 damaged chunks of this fixed array are filled in all batches");
  insitu_loader_close(&ld);

  /* what cannot be read is not known to be damaged: it would be a hole until the loader closes */
  assert_int_equal(unlink(support_path("decoded/p/1")), 0);
  assert_int_equal(mkdir(support_path("decoded/p/1"), 0700), 0);
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_IO);
  HAS(err.message, "read, array p, chunk p/1: ");
  support_remove(root);
}

/* ---- owners ---- */

static void make_small(const char *root) {
  t.format = z.format = latitude.format = 3;
  t.zstd = z.zstd = true;
  t.big = z.big = t.fortran = z.fortran = false;
  t.absent = z.absent = 0;
  memset(t.shard, 0, sizeof t.shard);
  memset(z.shard, 0, sizeof z.shard);
  memcpy(t.chunk, (uint64_t[]){2, LAT, LON}, sizeof t.chunk[0] * 3);
  memcpy(z.chunk, (uint64_t[]){2, 3, LON}, sizeof z.chunk[0] * 3);
  support_make(root, &t);
  support_make(root, &z);
  support_make(root, &latitude);
}
static insitu_loader_desc small(const char *root, insitu_variable v[3]) {
  v[0] = (insitu_variable){.label = "t"};
  v[1] = (insitu_variable){.label = "z", .fixed = 1};
  v[2] = (insitu_variable){.label = "lat", .fixed = 1, .dtype = INSITU_F32};
  int m = any_mode();
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = v,
      .n_variables = 3,
      .sample_dim = "time",
      .batch_size = 4,
      .io = modes[m].io,
      .prefetch_depth = 2};
}
static void check_z(const void *data) {
  for (uint64_t k = 0; k < LEVEL * LAT * LON; k++)
    assert_int_equal(((const int16_t *)data)[k], support_value(INSITU_I16, k));
}

static void *delete_elsewhere(void *arg) {
  struct dl *e = arg;
  check_z(dl_tensor(*e)->data);
  dl_delete(*e);
  return NULL;
}
/* Loader, iterators, batch and tensors go in every order; the tensors by another thread. */
static void owners(void **state) {
  (void)state;
  const char *root = support_path("owners");
  make_small(root);
  enum { LOADER, ITER, OTHER, BATCH, TENSOR, SECOND, THINGS };
  /* 13 divides no factorial: each thing goes first and last in some of the orders */
  for (int order = 0; order < 720; order += support_slow() ? 13 : 1) {
    int left[THINGS] = {LOADER, ITER, OTHER, BATCH, TENSOR, SECOND};
    insitu_variable v[3];
    insitu_loader_desc d = small(root, v);
    d.inline_io = 0;
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL, .max_held = 1};
    insitu_iter *it[2] = {open_iter_or_fail(ld, &pass), open_iter_or_fail(ld, &pass)};
    insitu_batch *b = next_batch_or_fail(it[0]), *gone;
    struct dl e[2] = {dl_export_fixed(b, 1, order & 1, NULL), {NULL, false}};
    insitu_batch_release(&b); /* the tensor holds no batch: the next one comes */
    gone = next_batch_or_fail(it[0]);
    e[1] = dl_export_fixed(gone, 1, order & 2, NULL);
    insitu_batch_release(&gone);
    b = next_batch_or_fail(it[1]);
    const void *data = b->arrays[1].data;
    bool there[2] = {true, true};
    for (int n = THINGS, rest = order; n > 0; rest /= n--) {
      int what = left[rest % n];
      left[rest % n] = left[n - 1];
      if (what == LOADER) insitu_loader_close(&ld);
      else if (what == ITER || what == OTHER) insitu_iter_close(&it[what - ITER]);
      else if (what == BATCH) insitu_batch_release(&b);
      else {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, delete_elsewhere, &e[what - TENSOR]), 0);
        pthread_join(thread, NULL);
        there[what - TENSOR] = false;
      }
      if (b || there[0] || there[1]) check_z(data);
      for (int i = 0; i < 2; i++)
        if (there[i]) assert_ptr_equal(dl_tensor(e[i])->data, data);
      if (b) assert_ptr_equal(b->arrays[1].data, data);
    }
  }
  support_remove(root);
}

/* How the mapping that holds an address may be used, such as "r--p"; "": nothing is mapped. */
static const char *mapping(const void *p) {
  static char how[8];
  char line[600];
  unsigned long from, to;
  FILE *f = fopen("/proc/self/maps", "r");
  assert_non_null(f);
  how[0] = 0;
  while (fgets(line, sizeof line, f) && !how[0]) {
    char found[8];
    if (sscanf(line, "%lx-%lx %7s", &from, &to, found) == 3 && (uintptr_t)p >= from &&
        (uintptr_t)p < to)
      strcpy(how, found);
  }
  fclose(f);
  return how;
}

struct pool {
  atomic_int live, calls, bad;
  int refuse; /* so many bytes are refused */
};
static void *pool_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  struct pool *p = user;
  if (place != INSITU_HOST || device || stream) p->bad++;
  if (p->refuse && bytes == (uint64_t)p->refuse) return NULL;
  p->live++;
  p->calls++;
  return aligned_alloc(align, bytes);
}
static void pool_release(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  struct pool *p = user;
  if (place != INSITU_HOST || device || !bytes) p->bad++;
  p->live--;
  free(memory);
}

/* Memory of the system's may not be written, that of a pool may; both are given back. */
static void memory(void **state) {
  (void)state;
  const char *root = support_path("memory");
  make_small(root);
  insitu_variable v[3];
  insitu_loader_desc d = small(root, v);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
  insitu_iter *it = open_iter_or_fail(ld, &pass);
  insitu_batch *b = next_batch_or_fail(it);
  const void *data[2] = {b->arrays[1].data, b->arrays[2].data};
  for (int i = 0; i < 2; i++) assert_string_equal(mapping(data[i]), "r--p");
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  for (int i = 0; i < 2; i++) assert_string_equal(mapping(data[i]), "r--p");
  insitu_batch_release(&b);

  struct pool pool = {.live = 0};
  d.alloc = pool_alloc;
  d.release = pool_release;
  d.alloc_user = &pool;
  ld = open_or_fail(&d);
  assert_int_equal(pool.live, 2);
  it = open_iter_or_fail(ld, &pass);
  b = next_batch_or_fail(it);
  check_z(b->arrays[1].data);
  struct dl e = dl_export_fixed(b, 1, true, NULL);
  insitu_batch_release(&b);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  assert_int_equal(pool.live, 2);
  check_z(dl_tensor(e)->data);
  dl_delete(e);
  assert_int_equal(pool.live, 0);
  assert_int_equal(pool.bad, 0);
  insitu_error err = {0};
  pool.refuse = (int)sysconf(_SC_PAGESIZE); /* z takes one page, lat another */
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_NOMEM);
  HAS(err.message, "variable z: desc.alloc gave nothing for");
  assert_int_equal(pool.live, 0);
  support_remove(root);
}

/* ---- budget, plan, statistics, descriptions ---- */

static void budget(void **state) {
  (void)state;
  const char *root = support_path("budget");
  make_small(root);
  insitu_variable v[3];
  insitu_loader_desc d = small(root, v);
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  insitu_iter_desc pass = {.api = INSITU_API, .split = INSITU_ALL};
  insitu_stats s[2];
  insitu_plan plan[3];
  for (int i = 0; i < 2; i++) { /* without and with fixed variables */
    d.n_variables = i ? 3 : 1;
    insitu_loader *ld = open_or_fail(&d);
    assert_int_equal(insitu_loader_stats(ld, &s[i], NULL), INSITU_OK);
    assert_int_equal(insitu_loader_plan(ld, &pass, &plan[i], NULL), INSITU_OK);
    char json[20000];
    assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
    if (i) {
      char words[80];
      sprintf(words, "\"slabs\": 0, \"tables\": 0, \"fixed\": %d", (int)(2 * page));
      HAS(json, words);
      HAS(json, "\"path\": \"z\", \"offset\": 0, \"dtype\": \"as_stored\"");
      HAS(json, "\"slices\": [], \"fixed\": true}");
      HAS(json, "\"name\": \"z\", \"dtype\": \"int16\", \"shape\": [5, 7, 11], \"fixed\": true");
      HAS(json, "{\"path\": \"z\", \"shape\": [5, 7, 11], \"chunks\": [2, 3, 11]");
    }
    insitu_loader_close(&ld);
  }
  assert_int_equal(s[1].memory_promised - s[0].memory_promised, 2 * page);
  assert_true(s[1].memory_bytes_peak >= s[0].memory_bytes_peak + 2 * page);
  assert_int_equal(s[0].reads, 0);
  assert_int_equal(s[1].reads, 3 * 3 + 3); /* chunks of z and of lat */
  assert_int_equal(plan[0].fixed_bytes, 0);
  assert_int_equal(plan[1].fixed_bytes, 2 * page);
  plan[2] = plan[1];
  plan[2].fixed_bytes = 0;
  plan[2].table_bytes = plan[0].table_bytes; /* structs of arrays */
  assert_memory_equal(&plan[2], &plan[0], sizeof plan[0]);

  d.plan_only = 1; /* nothing is loaded */
  insitu_loader *ld = open_or_fail(&d);
  insitu_plan planned;
  assert_int_equal(insitu_loader_plan(ld, &pass, &planned, NULL), INSITU_OK);
  assert_int_equal(planned.fixed_bytes, 2 * page);
  const insitu_array *a = insitu_loader_array(ld, 1);
  assert_null(a->data);
  assert_true(
      a->fixed == 1 && a->ndim == 3 && a->row_bytes == 0 && a->bytes == 2 * LEVEL * LAT * LON);
  assert_int_equal(a->shape[0], LEVEL);
  assert_int_equal(insitu_loader_array(ld, 0)->fixed, 0);
  insitu_stats none;
  assert_int_equal(insitu_loader_stats(ld, &none, NULL), INSITU_OK);
  assert_int_equal(none.reads, 0);
  insitu_loader_close(&ld);
  d.plan_only = 0;

  /* a budget that all but the last page of it fits into */
  insitu_error err = {0};
  struct support_array large = z;
  large.name = "large";
  memcpy(large.shape, (uint64_t[]){64, 64, 64}, sizeof large.shape[0] * 3);
  support_make(root, &large);
  v[1] = (insitu_variable){.label = "much", .path = "large", .fixed = 1};
  d.memory_budget = s[0].memory_promised + 64 * 64 * 64 * 2 - 1;
  d.max_inflight = 4;
  d.n_variables = 1;
  ld = open_or_fail(&d);
  assert_int_equal(insitu_loader_stats(ld, &none, NULL), INSITU_OK);
  insitu_loader_close(&ld);
  d.memory_budget = none.memory_promised + 64 * 64 * 64 * 2 - 1;
  d.n_variables = 2;
  assert_int_equal(insitu_loader_open(&d, &ld, &err), INSITU_E_BUDGET);
  HAS(err.message, "variable much: it is fixed and takes 524288 bytes, 524287 of memory_budget");
  d.memory_budget += 1 << 20;
  ld = open_or_fail(&d);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* Fixed variables decide neither order nor state. */
static void states(void **state) {
  (void)state;
  const char *root = support_path("states");
  make_small(root);
  insitu_variable v[3];
  insitu_loader_desc d = small(root, v);
  d.split[0].fraction = 1;
  d.batch_size = 2;
  static const int n[] = {3, 1, 2, 3}; /* the last one has another one */
  insitu_state saved = {{0}};
  int64_t second[4][2];
  for (int i = 0; i < 4; i++) {
    d.n_variables = (uint64_t)n[i];
    if (i == 3) v[1] = (insitu_variable){.label = "other", .path = "lat", .fixed = 1};
    second_batch(&d, &saved, second[i]);
    assert_memory_equal(second[i], second[0], sizeof second[0]);
  }
  support_remove(root);
}

/* An iterator that shows fewer steps of another output, and more again. */
static void fewer_steps(void **state) {
  (void)state;
  const char *root = support_path("steps");
  make_small(root);
  static const int64_t steps[] = {0, 1, 2};
  insitu_variable v[3];
  insitu_loader_desc d = small(root, v);
  insitu_variable all[] = {v[1], {.label = "t", .steps = steps, .n_steps = 3}, v[2]};
  d.variables = all;
  d.check = 1;
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  const void *data = NULL;
  static const uint64_t n[] = {3, 1, 2, 3};
  for (int i = 0; i < 4; i++) {
    insitu_error err = {0};
    assert_int_equal(insitu_iter_set_epoch(it, (uint64_t)i, &err), INSITU_OK);
    if (insitu_iter_set_steps(it, "t", n[i], &err)) fail_msg("%s", err.message);
    assert_int_equal(insitu_iter_set_steps(it, "z", 1, &err), INSITU_E_ARG);
    insitu_batch *b = next_batch_or_fail(it);
    insitu_variable shown = all[1];
    shown.n_steps = n[i];
    support_check_array(b, 1, &shown, &t, 0);
    check_face(&b->arrays[0]);
    check_face(&b->arrays[2]);
    check_z(b->arrays[0].data);
    if (i) assert_ptr_equal(b->arrays[0].data, data);
    data = b->arrays[0].data;
    insitu_batch_release(&b);
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  support_remove(root);
}

/* insitu_batch_copy_to, insitu_batch_find and the flag of DLPack. */
static void handed_over(void **state) {
  (void)state;
  const char *root = support_path("handed");
  make_small(root);
  insitu_variable v[3];
  insitu_loader_desc d = small(root, v);
  insitu_loader *ld = open_or_fail(&d);
  insitu_iter *it =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b = next_batch_or_fail(it);
  const insitu_array *a = insitu_batch_find(b, "z");
  assert_ptr_equal(a, &b->arrays[1]);
  int16_t copy[LEVEL * LAT * LON];
  insitu_error err = {0};
  assert_int_equal(insitu_batch_copy_to(b, 1, copy, sizeof copy, NULL, &err), INSITU_OK);
  check_z(copy);
  assert_int_equal(insitu_batch_copy_to(b, 1, copy, sizeof copy - 1, NULL, &err), INSITU_E_ARG);
  struct dl e = dl_export_fixed(b, 1, true, NULL), plain = dl_export_fixed(b, 1, false, NULL);
  const DLTensor *dl = dl_tensor(e);
  assert_ptr_equal(dl->data, a->data);
  assert_int_equal(dl->ndim, 3);
  assert_memory_equal(dl->shape, a->shape, 3 * sizeof *a->shape);
  assert_memory_equal(dl->strides, a->strides, 3 * sizeof *a->shape);
  assert_true(dl->device.device_type == DL_CPU && dl->dtype.code == DL_INT && dl->dtype.bits == 16);
  struct dl other = dl_export(b, 0, true, NULL); /* which may be written */
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  assert_int_equal(dl->shape[2], LON); /* the batch's structs are gone, but for `other` */
  dl_delete(other);
  assert_int_equal(dl->shape[2], LON);
  check_z(dl->data);
  dl_delete(e);
  check_z(dl_tensor(plain)->data);
  dl_delete(plain);
  support_remove(root);
}

static void refused(void **state) {
  (void)state;
  const char *root = support_path("refused");
  make_small(root);
  struct support_array empty = z;
  empty.name = "empty";
  empty.shape[1] = 0;
  support_metadata(root, &empty);
  static const int64_t steps[] = {0};
  static const insitu_slice slice[] = {{.axis = 0, .start = 1, .stop = 6}};
  static const struct {
    insitu_variable v[2];
    insitu_status status;
    const char *says;
  } cases[] = {{{{.label = "z", .fixed = 2}}, INSITU_E_ARG, "fixed is 2; use 0, or 1"},
      {{{.label = "z", .fixed = -1}}, INSITU_E_ARG, "fixed is -1"},
      {{{.label = "z", .fixed = 1}}, INSITU_E_ARG, "all variables are fixed"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .offset = 1}}, INSITU_E_ARG,
          "variable z: a fixed variable has no samples"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .steps = steps, .n_steps = 1}}, INSITU_E_ARG,
          "variable z: a fixed variable has no samples"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .map = INSITU_BY_INDEX}}, INSITU_E_ARG,
          "variable z: a fixed variable has no samples"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .into = "x"}}, INSITU_E_ARG,
          "variable z: a fixed variable has no rows"},
      {{{.label = "t"}, {.label = "t", .fixed = 1}}, INSITU_E_ARG, "two variables have the label"},
      {{{.label = "t", .into = "z"}, {.label = "z", .fixed = 1}}, INSITU_E_ARG,
          "label of another variable"},
      {{{.label = "t"}, {.label = "nothing", .fixed = 1}}, INSITU_E_NOTFOUND, "nothing"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .select = "lat=61"}}, INSITU_E_NOTFOUND,
          "variable z"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .select = "depth=[0]"}}, INSITU_E_NOTFOUND,
          "no dimension is called 'depth'"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .slices = slice, .n_slices = 1}}, INSITU_E_SHAPE,
          "leaves array z"},
      {{{.label = "t"}, {.label = "empty", .fixed = 1}}, INSITU_E_SHAPE, "has no elements"},
      {{{.label = "t"}, {.label = "z", .fixed = 1, .dtype = INSITU_C64}}, INSITU_E_DTYPE,
          "cannot be converted"},
      /* without the word it is a variable as any other, which has no such axis */
      {{{.label = "t"}, {.label = "z"}}, INSITU_E_NOTFOUND, "no dimension is called 'time'"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int plan = 0; plan < 2; plan++) {
      insitu_loader_desc d = {.api = INSITU_API,
          .url = root,
          .variables = cases[i].v,
          .n_variables = 1 + (cases[i].v[1].label != NULL),
          .sample_dim = "time",
          .plan_only = plan};
      refuse_or_fail(&d, cases[i].status, cases[i].says);
    }
  support_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(odd_shapes),
      cmocka_unit_test(decoded), cmocka_unit_test(owners), cmocka_unit_test(memory),
      cmocka_unit_test(budget), cmocka_unit_test(states), cmocka_unit_test(fewer_steps),
      cmocka_unit_test(handed_over), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
