/* Archives of references: kerchunk's JSON and flat indexes of an archive give what the archive
 * gives; what is missing, has changed or may not be read is an error that says so; hostile files;
 * and memory that is missing at every place. */
#include "server.h"
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
/* Names that end in .test have the address here. */
static const char *names_address = "127.0.0.1";
int getaddrinfo(
    const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list) {
  int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
  *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  if (!node || !strstr(node, ".test")) return real(node, service, hints, list);
  struct addrinfo plain = *hints;
  plain.ai_flags = AI_NUMERICHOST;
  return real(names_address, service, &plain, list);
}
static atomic_long oom_left = -1; /* allocations until one fails; negative: none does */
static void *oom_realloc(void *p, size_t n) {
  if (atomic_load(&oom_left) >= 0 && atomic_fetch_sub(&oom_left, 1) == 0) return NULL;
  return realloc(p, n);
}
#define INSITU_REALLOC(pointer, bytes) oom_realloc(pointer, bytes)
#define INSITU_FREE(pointer) free(pointer)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "refs.h"
#include "stalled.h"

static struct server *server, *other;
static int setup(void **state) {
  if (support_setup(state)) return -1;
  server = server_start(&(struct server_options){.folder = support_dir});
  other = server_start(&(struct server_options){.folder = support_dir});
  return 0;
}
static int teardown(void **state) {
  refs_forget();
  server_stop(&server);
  server_stop(&other);
  return support_teardown(state);
}

/* ---- what is read ---- */

static const struct support_array kinds[] = {{.name = "x",
                                                 .ndim = 3,
                                                 .shape = {23, 6, 7},
                                                 .chunk = {2, 4, 7},
                                                 .dtype = INSITU_F32,
                                                 .format = 2,
                                                 .zstd = true,
                                                 .absent = 5},
    {.name = "x",
        .ndim = 2,
        .shape = {24, 64},
        .chunk = {2, 32},
        .dtype = INSITU_F32,
        .format = 3,
        .zstd = true,
        .shard = {3, 2},
        .index_crc = true,
        .gap = 100},
    {.name = "x", .ndim = 2, .shape = {40, 9}, .chunk = {4, 9}, .dtype = INSITU_I32, .format = 3},
    /* a few rows of large raw chunks are read, not all of one */
    {.name = "x",
        .ndim = 2,
        .shape = {64, 40000},
        .chunk = {16, 40000},
        .dtype = INSITU_I16,
        .format = 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static insitu_loader_desc desc_of(const char *url, int m) {
  static const insitu_variable v = {.label = "x", .path = "x"};
  return (insitu_loader_desc){.api = INSITU_API,
      .url = url,
      .variables = &v,
      .n_variables = 1,
      .batch_size = 5,
      .on_absent_chunk = INSITU_FILL,
      .log_level = INSITU_LOG_ERROR,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
}
/* Entries of cache_dir whose next use the loader knew at the end of read_all. */
static uint64_t known;
/* All of an archive, once, in random order; its last statistics. */
static insitu_stats read_all(const insitu_loader_desc *d, const struct support_array *a) {
  insitu_error err = {0};
  insitu_loader *ld = open_or_fail(d);
  insitu_iter *it = open_iter_or_fail(
      ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED});
  insitu_stats stats = {0};
  insitu_batch *b;
  insitu_status status;
  uint64_t rows = 0;
  while (!(status = insitu_iter_next(it, 20000, &b, &err))) {
    support_check_array(b, 0, &d->variables[0], a, 0);
    rows += b->rows;
    insitu_batch_release(&b);
  }
  if (status != INSITU_END) fail_msg("%s: %s", d->url, err.message);
  assert_true(rows + 5 > a->shape[0]);
  insitu_loader_stats(ld, &stats, &err);
  insitu_iter_close(&it);
  known = ld->decoded.disk.n_heap; /* nothing is in flight any more */
  insitu_loader_close(&ld);
  return stats;
}
/* The first error of an epoch, or of opening. */
static insitu_status first_error(const insitu_loader_desc *d, insitu_error *err) {
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b;
  memset(err, 0, sizeof *err);
  insitu_status status = insitu_loader_open(d, &ld, err);
  if (status) return status;
  status =
      insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &it, err);
  while (!status && !(status = insitu_iter_next(it, 20000, &b, err))) insitu_batch_release(&b);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
  return status;
}
static void fails(const insitu_loader_desc *d, insitu_status want, const char *says) {
  insitu_error err;
  insitu_status status = first_error(d, &err);
  if (status != want || !strstr(err.message, says))
    fail_msg("%s: %s: '%s', not '%s'", d->url, insitu_status_name(status), err.message, says);
}

/* Makes the archive `kind` at name/a.zarr, and packs its chunks to name/packs. */
static void make(const char *name, const struct support_array *a, unsigned packs) {
  char root[300], to[300];
  snprintf(root, sizeof root, "%s/%s/a.zarr", support_dir, name);
  snprintf(to, sizeof to, "%s/%s/packs", support_dir, name);
  support_make(root, a);
  refs_pack(root, to, packs);
}
static const char *file_of(const char *name, const char *file) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", name, file);
  return support_path(path);
}
/* The array's record of an index: its grid of stored objects. */
static struct refs_array array_of(const struct support_array *a) {
  struct refs_array r = {
      .path = a->name, .ndim = (uint32_t)a->ndim, .keys = a->format == 3 ? 2 : 0};
  for (int d = 0; d < a->ndim; d++)
    r.grid[d] = support_ceil_div(a->shape[d], a->chunk[d] * (a->shard[0] ? a->shard[d] : 1));
  return r;
}
/* What an index tells of the packs at dir: size and time. */
static void pins(const char *dir, const char *base, struct refs_target *t, unsigned n) {
  static char url[8][400];
  for (unsigned i = 0; i < n; i++) {
    char path[600];
    struct stat s;
    snprintf(path, sizeof path, "%s/pack%u", dir, i);
    assert_int_equal(stat(path, &s), 0);
    snprintf(url[i], sizeof url[i], "%s/pack%u", base, i);
    t[i] = (struct refs_target){url[i], NULL, (uint64_t)s.st_size, s.st_mtime};
  }
}
static void write_index(const char *name, const struct support_array *a, unsigned inlined) {
  struct refs_target t[3];
  struct refs_array array = array_of(a);
  pins(file_of(name, "packs"), "packs", t, refs_packs);
  refs_index(t, refs_packs, &array, 1, inlined);
  support_write(file_of(name, "refs.insitu"), refs_file, refs_at);
}

static void test_equal(void **state) {
  (void)state;
  for (int k = 0; k < KINDS; k++) {
    char name[20], key[40];
    snprintf(name, sizeof name, "equal%d", k);
    make(name, &kinds[k], 3);
    refs_json(file_of(name, "refs.json"), "packs", 1, 3);
    refs_json(file_of(name, "flat.json"), "packs", 0, 0);
    write_index(name, &kinds[k], 4);
    static const char *const files[] = {"refs.json", "flat.json", "refs.insitu"};
    for (int f = 0; f < 3; f++) {
      snprintf(key, sizeof key, "%s/%s", name, files[f]);
      EACH_MODE_BY_TURNS (m, k + f) {
        insitu_loader_desc d = desc_of(file_of(name, files[f]), m);
        read_all(&d, &kinds[k]);
        d.url = server_url(server, key);
        d.check = m == any_mode();
        insitu_stats stats = read_all(&d, &kinds[k]);
        assert_true(stats.http_requests > 0);
        assert_true(!d.check || stats.checked_rows > 0);
      }
    }
  }
}
/* Where chunks are large and raw, rows are read and not chunks. */
static void test_parts(void **state) {
  (void)state;
  insitu_loader_desc d = desc_of(file_of("equal3", "flat.json"), any_mode());
  insitu_slice slice = {.axis = 1, .start = 100, .stop = 200};
  insitu_variable v = {.label = "x", .path = "x", .slices = &slice, .n_slices = 1};
  d.assembly = INSITU_SCATTER;
  d.hold_epoch = 1; /* so that no chunk of the next epoch is read */
  d.variables = &v;
  insitu_stats stats = read_all(&d, &kinds[3]);
  if (stats.bytes_read >= 64 * 40000 * 2 / 2) fail_msg("%s: %d", d.url, (int)stats.bytes_read);
  d.url = server_url(server, "equal3/flat.json");
  stats = read_all(&d, &kinds[3]);
  if (stats.bytes_read >= 64 * 40000 * 2 / 2) fail_msg("%s: %d", d.url, (int)stats.bytes_read);
}

/* A file of several pieces, and a member that is longer than one. */
static void test_large(void **state) {
  enum { PAD = 17 << 20 };
  uint64_t n;
  (void)state;
  make("large", &kinds[2], 2);
  refs_json(file_of("large", "refs.json"), "packs", 0, 4);
  char *json = (char *)refs_read(file_of("large", "refs.json"), &n), *all = malloc(PAD + n + 40);
  char *p = all + sprintf(all, "{\"a/pad\":\"");
  memset(p, 'x', PAD);
  sprintf(p + PAD, "\",%s", json + 1);
  support_write(file_of("large", "refs.json"), all, strlen(all));
  free(json);
  free(all);
  insitu_loader_desc d = desc_of(file_of("large", "refs.json"), any_mode());
  read_all(&d, &kinds[2]);
  d.url = server_url(server, "large/refs.json");
  read_all(&d, &kinds[2]);
}

/* The root of a target is kept whole, or the target is refused: of a shorter one others would be,
 * too. */
static void test_long_root(void **state) {
  char url[400], key[INSITU__MAX_KEY];
  struct insitu__virtual_url u;
  int kept = 0;
  (void)state;
  for (int n = 200; n < 350; n++) {
    snprintf(url, sizeof url, "abfss://c@%0*d/k", n - 10, 0);
    bool whole = !insitu__virtual_split(NULL, url, &u, key);
    kept += whole;
    if (whole) assert_true(strlen(u.root) == (size_t)n && !strncmp(u.root, url, (size_t)n));
  }
  assert_in_range(kept, 50, 149);
}

/* A file that is as long as a first read takes has nothing behind it that cache_dir would have to
 * keep. */
static void test_filled(void **state) {
  uint64_t n;
  (void)state;
  make("filled", &kinds[2], 2);
  refs_json(file_of("filled", "refs.json"), "packs", 0, 4);
  char *json = (char *)refs_read(file_of("filled", "refs.json"), &n),
       *all = malloc(INSITU__REFSTORE_PIECE_FAR);
  memset(all, ' ', INSITU__REFSTORE_PIECE_FAR);
  memcpy(all, json, n);
  support_write(file_of("filled", "refs.json"), all, INSITU__REFSTORE_PIECE_FAR);
  free(json);
  free(all);
  insitu_loader_desc d = desc_of(server_url(server, "filled/refs.json"), any_mode());
  d.cache_dir = support_path("filled_cache");
  for (d.offline = 0; d.offline < 2; d.offline++) read_all(&d, &kinds[2]);
}

/* Twelve archives of a length each, in formats and keys of their own, are one. */
static void test_pieces(void **state) {
  struct support_array all = {
      .name = "x", .ndim = 2, .shape = {0, 6}, .chunk = {2, 4}, .dtype = INSITU_F64, .format = 2};
  struct refs_piece pieces[12];
  static double values[1000];
  static char base[12][300];
  (void)state;
  for (int i = 0; i < 1000; i++) values[i] = support_value(INSITU_F64, (uint64_t)i);
  for (int y = 0; y < 12; y++) {
    struct support_array one = all;
    one.shape[0] = 2 + 2 * (uint64_t)(y % 4); /* whole chunks, so that the grid stays regular */
    one.values = values + 6 * all.shape[0];
    snprintf(base[y], sizeof base[y], "years/%d.zarr", y);
    support_make(support_path(base[y]), &one);
    snprintf(base[y], sizeof base[y], y % 2 ? "%d.zarr" : "./%d.zarr/", y);
    pieces[y] = (struct refs_piece){0, 0, all.shape[0] / 2, one.shape[0] / 2, base[y], "x"};
    all.shape[0] += one.shape[0];
  }
  support_metadata(support_path("years/all"), &all);
  refs_forget();
  refs_root = support_path("years/all");
  assert_int_equal(nftw(refs_root, refs_collect, 16, FTW_PHYS), 0);
  struct refs_array array = array_of(&all);
  array.pieces = pieces;
  array.n_pieces = 12;
  refs_index(NULL, 0, &array, 1, 0);
  support_write(support_path("years/all.insitu"), refs_file, refs_at);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(support_path("years/all.insitu"), m);
    read_all(&d, &all);
    d.url = server_url(server, "years/all.insitu");
    read_all(&d, &all);
  }
  /* a chunk that is absent in its archive is absent here */
  assert_int_equal(unlink(support_path("years/5.zarr/x/0.1")), 0);
  insitu_loader_desc d = desc_of(support_path("years/all.insitu"), any_mode());
  d.on_absent_chunk = INSITU_RAISE;
  fails(&d, INSITU_E_ABSENT, "x/");
  d.url = server_url(server, "years/all.insitu");
  fails(&d, INSITU_E_ABSENT, "x/");
  /* one archive is not there any more: that is no absence of chunks */
  char from[300], to[300];
  snprintf(from, sizeof from, "%s", support_path("years/7.zarr"));
  snprintf(to, sizeof to, "%s", support_path("years/moved.zarr"));
  assert_int_equal(rename(from, to), 0);
  d.on_absent_chunk = INSITU_FILL;
  fails(&d, INSITU_E_IO, "was moved or removed");
  d.url = support_path("years/all.insitu");
  fails(&d, INSITU_E_IO, "was moved or removed");
}

/* ---- what is not as it was ---- */

static void test_missing(void **state) {
  (void)state;
  make("missing", &kinds[2], 3);
  refs_json(file_of("missing", "refs.json"), "packs", 1, 0);
  write_index("missing", &kinds[2], 0);
  assert_int_equal(unlink(file_of("missing", "packs/pack1")), 0);
  EACH_MODE (m) {
    insitu_loader_desc d = desc_of(file_of("missing", "refs.json"), m);
    fails(&d, INSITU_E_IO, "pack1");
    d.url = file_of("missing", "refs.insitu");
    fails(&d, INSITU_E_IO, "pack1");
    d.url = server_url(server, "missing/refs.json");
    fails(&d, INSITU_E_IO, "pack1");
  }
}
/* A file that is not what the index was made of. */
static void test_changed_before(void **state) {
  char dir[300];
  struct refs_target t[3];
  struct refs_array array = array_of(&kinds[2]);
  int m = any_mode();
  (void)state;
  make("before", &kinds[2], 3);
  snprintf(dir, sizeof dir, "%s", file_of("before", "packs"));
  for (int what = 0; what < 6; what++) {
    pins(dir, "packs", t, 3);
    if (what == 0) t[1].size++;
    if (what == 1) t[1].modified--;
    if (what == 2) t[1].etag = "\"another\""; /* files have none: it is not compared */
    if (what == 3) t[1].size = UINT64_MAX, t[1].modified++;
    if (what == 4) t[1].etag = "another", t[1].size = UINT64_MAX, t[1].modified = INT64_MIN;
    if (what == 5) t[1].size = UINT64_MAX, t[1].modified = INT64_MIN;
    refs_index(t, 3, &array, 1, 0);
    support_write(file_of("before", "refs.insitu"), refs_file, refs_at);
    insitu_loader_desc d = desc_of(file_of("before", "refs.insitu"), m);
    if (what == 2 || what >= 4) read_all(&d, &kinds[2]);
    else fails(&d, INSITU_E_CHANGED, "write the references again");
    d.url = server_url(server, "before/refs.insitu");
    if (what == 5) read_all(&d, &kinds[2]);
    else fails(&d, INSITU_E_CHANGED, "write the references again");
  }
  /* the ETag as the server says it, with and without its quotes */
  unsigned rule = server_rule(server,
      (struct server_rule){.key = "before/packs/*", .fault = SERVER_ETAG, .text = "\"v1\""});
  (void)rule;
  for (int quoted = 0; quoted < 3; quoted++) {
    pins(dir, "packs", t, 3);
    t[0].etag = t[1].etag = t[2].etag = quoted == 2 ? "\"v2\"" : quoted ? "\"v1\"" : "v1";
    refs_index(t, 3, &array, 1, 0);
    support_write(file_of("before", "refs.insitu"), refs_file, refs_at);
    insitu_loader_desc d = desc_of(server_url(server, "before/refs.insitu"), m);
    if (quoted < 2) read_all(&d, &kinds[2]);
    else fails(&d, INSITU_E_CHANGED, "its ETag is another");
  }
  server_reset(server);
}
/* A file that changes while the archive is open, and that nothing guards but its first read. */
static void test_changed_meanwhile(void **state) {
  (void)state;
  make("meanwhile", &kinds[2], 1);
  refs_json(file_of("meanwhile", "refs.json"), "packs", 1, 0);
  for (int far = 0; far < 2; far++)
    EACH_MODE (m) {
      insitu_error err = {0};
      insitu_batch *b;
      insitu_status status;
      insitu_loader_desc d = desc_of(
          far ? server_url(server, "meanwhile/refs.json") : file_of("meanwhile", "refs.json"), m);
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API});
      b = next_batch_or_fail(it);
      insitu_batch_release(&b);
      uint64_t n;
      unsigned char *bytes = refs_read(file_of("meanwhile", "packs/pack0"), &n);
      usleep(20000); /* the clock of files moves on */
      unlink(file_of("meanwhile", "packs/pack0"));
      support_write(file_of("meanwhile", "packs/pack0"), bytes, n);
      struct timespec later[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 2000000000 + 10 * m + far}};
      utimensat(AT_FDCWD, file_of("meanwhile", "packs/pack0"), later, 0);
      free(bytes);
      do {
        status = insitu_iter_next(it, 20000, &b, &err);
        if (!status) insitu_batch_release(&b);
        if (status == INSITU_END) status = INSITU_OK; /* the next epoch */
      } while (!status && err.status >= 0);
      if (status != INSITU_E_CHANGED || !strstr(err.message, "pack0"))
        fail_msg("%s: %s: %s", d.url, insitu_status_name(status), err.message);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
}
/* References to what is not inside their target. */
static void test_outside(void **state) {
  static const struct {
    const char *reference;
    insitu_status status;
    const char *says;
  } cases[] = {{"[\"packs/pack0\",100000000,144]", INSITU_E_CORRUPT, "which ends before"},
      {"[\"packs/pack0\",100,1000000000000]", INSITU_E_CORRUPT, "longer than 144"},
      {"[\"packs/pack0\",9223372036854775000,144]", INSITU_E_CORRUPT, "which ends before"},
      {"[\"packs/pack0\",0,0]", INSITU_E_CORRUPT, "length"},
      {"[\"packs\"]", INSITU_E_IO, "directory"}};
  (void)state;
  make("outside", &kinds[2], 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[400];
    uint64_t n;
    refs_json(file_of("outside", "refs.json"), "packs", 0, 0);
    char *json = (char *)refs_read(file_of("outside", "refs.json"), &n);
    json[n - 2] = 0; /* the brace */
    snprintf(text, sizeof text, ",\"x/c/3/0\":%s}", cases[i].reference);
    char *all = malloc(n + strlen(text) + 1);
    sprintf(all, "%s%s", json, text);
    support_write(file_of("outside", "refs.json"), all, strlen(all));
    free(json);
    free(all);
    for (int far = 0; far < 2; far++) {
      insitu_loader_desc d =
          desc_of(far ? server_url(server, "outside/refs.json") : file_of("outside", "refs.json"),
              any_mode());
      if (far && i == 4) continue; /* the server shows no directories */
      fails(&d, cases[i].status, cases[i].says);
    }
  }
}

/* ---- where targets may lie ---- */

static void test_prefixes(void **state) {
  char url[300], elsewhere[300], dir[300];
  const char *prefix[2];
  int m = any_mode();
  (void)state;
  make("prefix/in", &kinds[2], 1);
  make("prefix/out", &kinds[2], 1);
  snprintf(dir, sizeof dir, "%s/prefix/out/packs", support_dir);
  snprintf(elsewhere, sizeof elsewhere, "%s", server_url(other, "prefix/out/packs"));
  const struct {
    const char *base;
    bool far, fine;
    const char *prefix, *says;
  } cases[] = {{"packs", false, true, NULL, NULL}, {"./packs/../packs", false, true, NULL, NULL},
      {"../out/packs", false, false, NULL, "outside its directory"},
      {"../out/packs", false, true, dir, NULL}, {dir, false, false, NULL, "add '"},
      {dir, false, true, dir, NULL}, {"file:///etc", false, false, NULL, "outside its directory"},
      {"/../../etc", false, false, NULL, "leads out of its root"},
      {elsewhere, false, false, NULL, "another host"}, {elsewhere, false, true, elsewhere, NULL},
      {"packs", true, true, NULL, NULL}, {"../in/packs", true, true, NULL, NULL},
      {"../../../packs", true, false, NULL, "leads out of its root"},
      {"file:///etc", true, false, NULL, "on this machine"},
      {"/etc", true, false, NULL, "on this machine"}, {dir, true, true, dir, NULL},
      {elsewhere, true, false, NULL, "on another host or in another bucket"},
      {elsewhere, true, true, elsewhere, NULL},
      {"s3://bucket/packs", true, false, NULL, "add 's3://bucket/packs' to virtual_prefixes"},
      {"s3://bucket/packs", false, false, "s3://bucket/pack", "another host"},
      {"http://169.254.169.254/latest", true, false, NULL, "tells credentials"},
      {"http://2852039166/latest", true, false, NULL, "tells credentials"},
      {"http://0xA9FEA9FE/latest", true, false, NULL, "tells credentials"},
      {"http://0251.0376.0251.0376/x", false, false, NULL, "tells credentials"},
      {"http://[::ffff:169.254.169.254]/x", true, false, NULL, "tells credentials"},
      {"http://[fe80::1]/x", true, false, NULL, "tells credentials"},
      {"http://[fd00:ec2::254]/x", true, false, NULL, "tells credentials"},
      {"http://[fd00:c1::a9fe:a9fe]/x", true, false, NULL, "tells credentials"},
      {"http://[fd00:42::42]/x", true, false, NULL, "tells credentials"},
      {"http://[fd00:a9fe:a9fe::1]/x", true, false, NULL, "tells credentials"},
      {"http://[fd00:100::100:200]/x", true, false, NULL, "tells credentials"},
      {"http://[2002:a9fe:a9fe::1]/x", true, false, NULL, "tells credentials"},
      {"http://[64:ff9b:1::a9fe:a9fe]/x", true, false, NULL, "tells credentials"},
      {"http://[64:ff9b:1:a9fe:a9:fe00::]/x", true, false, NULL, "tells credentials"},
      {"http://[64:ff9b:1::808:808]/x", true, false, NULL, "another host"},
      {"http://Metadata.google.internal./x", true, false, NULL, "tells credentials"},
      {"http://100.100.100.200/x", true, false, NULL, "tells credentials"},
      {"http://u:p@127.0.0.1/x", true, false, NULL, "credentials stand in it"},
      {"gopher://x/y", true, false, NULL, "no url"},
      {"memory://x", true, false, NULL, "targets are"},
      {"packs", false, false, "http://169.254.169.254/", "no archive may ask"},
      {"packs", false, false, "ftp://x/", "virtual_prefixes"},
      {"packs", false, false, "http://h/x?y=z", "no query"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    refs_json(file_of("prefix/in", "refs.json"), cases[i].base, (int)i % 2, 0);
    snprintf(url, sizeof url, "%s",
        cases[i].far ? server_url(server, "prefix/in/refs.json")
                     : file_of("prefix/in", "refs.json"));
    insitu_loader_desc d = desc_of(url, m);
    prefix[0] = cases[i].prefix;
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = cases[i].prefix != NULL;
    insitu_error err = {0};
    insitu_loader *ld = NULL;
    insitu_status status = insitu_loader_open(&d, &ld, &err);
    insitu_loader_close(&ld);
    bool good = cases[i].fine ? !status : status < 0 && strstr(err.message, cases[i].says);
    if (!good)
      fail_msg("%s, %s, prefix %s: %s: %s", url, cases[i].base,
          cases[i].prefix ? cases[i].prefix : "-", insitu_status_name(status), err.message);
    if (cases[i].fine) read_all(&d, &kinds[2]);
    assert_null(strstr(err.message, "u:p"));
  }
}
/* A prefix that names one file allows no other one beside it, in whatever order they come. */
static void test_one_file(void **state) {
  char base[300], file[320];
  const char *prefix[] = {file};
  (void)state;
  make("single/in", &kinds[2], 2);
  make("single/out", &kinds[2], 2);
  for (int far = 0; far < 2; far++) {
    snprintf(base, sizeof base, "%s",
        far ? server_url(other, "single/out/packs") : file_of("single/out", "packs"));
    snprintf(file, sizeof file, "%s/pack0", base);
    refs_json(file_of("single/in", "refs.json"), base, 0, 0);
    insitu_loader_desc d = desc_of(file_of("single/in", "refs.json"), any_mode());
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = 1;
    fails(&d, INSITU_E_ARG, "pack1");
    snprintf(file, sizeof file, "%s", base);
    read_all(&d, &kinds[2]);
  }
}
/* References without a url mean the one target that the user names. */
static void test_null(void **state) {
  uint64_t n;
  const char *prefix[] = {file_of("null", "packs/pack0"), file_of("null", "packs/pack0")};
  (void)state;
  make("null", &kinds[2], 1);
  refs_json(file_of("null", "refs.json"), "packs", 0, 0);
  char *json = (char *)refs_read(file_of("null", "refs.json"), &n), *p = json;
  while ((p = strstr(p, "\"packs/pack0\""))) memcpy(p, "null         ", 13);
  support_write(file_of("null", "refs.json"), json, n);
  free(json);
  insitu_loader_desc d = desc_of(file_of("null", "refs.json"), any_mode());
  fails(&d, INSITU_E_ARG, "give its url, alone");
  d.virtual_prefixes = prefix;
  d.n_virtual_prefixes = 1;
  read_all(&d, &kinds[2]);
  d.n_virtual_prefixes = 2;
  fails(&d, INSITU_E_ARG, "give its url, alone");
}
/* Other hosts see no credentials of the archive's own, and the options that are none. */
static void test_credentials(void **state) {
  char elsewhere[300], url[400];
  const char *prefix[] = {elsewhere};
  insitu_option options[] = {
      {"bearer_token", "sesame"}, {"allow_http", "true"}, {"user_agent", "tester"}};
  (void)state;
  make("secret", &kinds[2], 1);
  snprintf(elsewhere, sizeof elsewhere, "%s", server_url(other, "secret/packs"));
  for (int user = 0; user < 2; user++) {
    server_reset(server);
    server_reset(other);
    refs_json(file_of("secret", "refs.json"), elsewhere, 1, 0);
    snprintf(url, sizeof url, "http://%s%s?key=sesame", user ? "me:sesame@" : "",
        server_url(server, "secret/refs.json") + 7);
    insitu_loader_desc d = desc_of(url, any_mode());
    d.options = options + user;
    d.n_options = (uint64_t)(3 - user);
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = 1;
    read_all(&d, &kinds[2]);
    assert_true(server_seen(server, "key=sesame") > 0);
    assert_true(server_seen(server, "Authorization:") > 0);
    assert_true(server_seen(other, "GET ") > 0);
    assert_int_equal(server_seen(other, "sesame"), 0);
    assert_int_equal(server_seen(other, "Authorization"), 0);
    /* on the archive's own host they go along */
    server_reset(server);
    refs_json(file_of("secret", "refs.json"), "packs", 1, 0);
    read_all(&d, &kinds[2]);
    assert_true(server_seen(server, "packs/pack0?key=sesame") > 0);
  }
}

/* Signs the urls of references, each in one of `ways`, and adds `more`, signed otherwise. */
static void sign(const char *path, unsigned ways, unsigned more, const char *base) {
  uint64_t n;
  char *json = (char *)refs_read(path, &n), *p = json;
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fprintf(f, "{");
  for (unsigned i = 0; i < more; i++)
    fprintf(f, "\"y/c/%u\":[\"%s/pack0?sig=t0ken%u\",0,9],", i, base, ways + i);
  for (unsigned i = 0;; i++) {
    char *q = memmem(p + 1, (size_t)(json + n - p - 1), "/pack0\"", 7);
    if (!q) break;
    fwrite(p + 1, 1, (size_t)(q + 5 - p), f);
    fprintf(f, "?sig=t0ken%u", i % ways);
    p = q + 5;
  }
  fwrite(p + 1, 1, (size_t)(json + n - p - 1), f);
  assert_int_equal(fclose(f), 0);
  free(json);
}
/* Each signature is a store of its own, sends its own query, and ends with the archive, in the
 * middle of reads too. There are INSITU__MAX_PLACES of them at most, and no message tells one. */
static void test_signed(void **state) {
  enum { WAYS = 3 };
  char base[300];
  const char *prefix[] = {base};
  insitu_error err = {0};
  (void)state;
  make("signed", &kinds[2], 1);
  snprintf(base, sizeof base, "%s", server_url(other, "signed/packs"));
  insitu_loader_desc d = desc_of(file_of("signed", "refs.json"), any_mode());
  d.virtual_prefixes = prefix;
  d.n_virtual_prefixes = 1;
  for (int far = 0; far < 2; far++) {
    server_reset(other);
    refs_json(file_of("signed", "refs.json"), base, 0, 0);
    sign(file_of("signed", "refs.json"), WAYS, far ? INSITU__MAX_PLACES : 0, base);
    if (far) {
      fails(&d, INSITU_E_UNSUPPORTED, "INSITU__MAX_PLACES");
      first_error(&d, &err);
      assert_null(strstr(err.message, "t0ken"));
      assert_int_equal(server_stats(other).requests, 0);
      continue;
    }
    read_all(&d, &kinds[2]);
    for (int i = 0; i < WAYS; i++) {
      char query[40];
      snprintf(query, sizeof query, "packs/pack0?sig=t0ken%d ", i);
      assert_true(server_seen(other, query) > 0);
    }
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
    insitu_iter *it = NULL;
    if (insitu_iter_open(ld, &id, &it, &err)) fail_msg("%s", err.message);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
}

/* A target's server may send a read on to where targets may lie, and nowhere else: no other host is
 * asked then, and none that tells credentials in any case. What the user named may be anywhere. */
static void test_redirects(void **state) {
  char there[300], away[300], to[300];
  const char *prefix[] = {away, there};
  const struct {
    const char *to; /* NULL: away */
    uint64_t prefixes;
    bool own, fine; /* own: the references are sent on, else the targets */
    const char *says;
  } cases[] = {{NULL, 0, false, false, "add 'http://127.0.0.1:"}, {NULL, 1, false, true, NULL},
      {NULL, 0, true, true, NULL}, {there, 0, false, true, NULL},
      {"http://169.254.169.254/latest", 1, false, false, "tells credentials"},
      {"http://169.254.169.254/latest", 1, true, false, "tells credentials"},
      {"http://x@[fd00:ec2::254]/latest", 1, false, false, "tells credentials"},
      {"http://x@metadata.google.internal./", 1, false, false, "tells credentials"},
      {"http://0x7f.1:1/x", 1, false, false, "may not lie there"},
      {"http://u:secr3t@127.0.0.1:1/x?sig=secr3t", 1, false, false, "credentials stand in it"},
      {"https://cdn.test/d/x?sig=secr3t", 0, false, false, "add 'https://cdn.test/d'"}};
  (void)state;
  make("moved", &kinds[2], 1);
  snprintf(away, sizeof away, "%s", server_url(other, "moved/packs"));
  snprintf(there, sizeof there, "%s", server_url(server, "moved/copy"));
  refs_json(file_of("moved", "refs.json"), "packs", 0, 0);
  snprintf(to, sizeof to, "%s/moved", support_dir);
  assert_int_equal(chdir(to), 0);
  assert_int_equal(symlink("packs", "copy"), 0);
  assert_int_equal(chdir("/"), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    server_reset(server);
    server_reset(other);
    snprintf(to, sizeof to, "%s", cases[i].to ? cases[i].to : away);
    if (!cases[i].to || cases[i].to == there) strcat(to, "/pack0");
    if (cases[i].own && !cases[i].to)
      snprintf(to, sizeof to, "%s", server_url(other, "moved/refs.json"));
    server_rule(server, (struct server_rule){.key = cases[i].own ? "*refs.json" : "*packs/pack0",
                            .fault = SERVER_REDIRECT,
                            .text = to});
    insitu_option o[] = {{"bearer_token", "secr3t"}, {"allow_http", "true"}};
    insitu_loader_desc d = desc_of(server_url(server, "moved/refs.json"), any_mode());
    d.options = o;
    d.n_options = 2;
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = cases[i].prefixes;
    if (cases[i].fine) read_all(&d, &kinds[2]);
    else {
      insitu_error err;
      fails(&d, INSITU_E_ARG, cases[i].says);
      first_error(&d, &err);
      assert_non_null(strstr(err.message, "a redirect to 'http"));
      assert_null(strstr(err.message, "secr3t"));
      assert_int_equal(server_stats(other).requests, 0);
    }
    assert_true(server_seen(server, "secr3t") > 0);
    assert_int_equal(server_seen(other, "secr3t"), 0);
  }
}
/* A server of targets sends to no other place of its own either than where these may lie. */
static void test_redirects_within(void **state) {
  char base[300], to[300];
  const char *prefix[] = {base};
  (void)state;
  make("within", &kinds[2], 1);
  snprintf(base, sizeof base, "%s", server_url(other, "within/packs"));
  refs_json(file_of("within", "refs.json"), base, 0, 0);
  snprintf(to, sizeof to, "%s/within/private", support_dir);
  assert_int_equal(symlink("packs", to), 0);
  snprintf(to, sizeof to, "%s/within/packs/again0", support_dir);
  assert_int_equal(symlink("pack0", to), 0);
  for (int fine = 0; fine < 2; fine++) {
    server_reset(other);
    snprintf(to, sizeof to, "%s",
        server_url(other, fine ? "within/packs/again0" : "within/private/pack0"));
    server_rule(
        other, (struct server_rule){.key = "*packs/pack0", .fault = SERVER_REDIRECT, .text = to});
    insitu_loader_desc d = desc_of(file_of("within", "refs.json"), any_mode());
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = 1;
    if (fine) read_all(&d, &kinds[2]);
    else fails(&d, INSITU_E_ARG, "may not lie there");
    assert_int_equal(server_seen(other, "private") > 0, 0);
    assert_int_equal(server_seen(other, "again0") > 0, fine);
  }
  server_reset(other);
}
/* The name of a target's server may be looked up to an address that no archive may ask: nothing is
 * sent there. This machine is asked by such a name where a prefix names it. */
static void test_addresses(void **state) {
  static const struct {
    const char *address, *says;
  } cases[] = {{"169.254.169.254", "tells credentials"}, {"fd00:ec2::254", "tells credentials"},
      {"::ffff:169.254.170.2", "tells credentials"}, {"127.0.0.1", "an address of this machine"},
      {"::1", "an address of this machine"}, {"0.0.0.0", "an address of this machine"}};
  char base[300];
  const char *prefix[] = {base, "http://localhost"};
  (void)state;
  make("named", &kinds[2], 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(base, sizeof base, "http://data%zu.test:%d/named/packs", i, server->port);
    refs_json(file_of("named", "refs.json"), base, 0, 0);
    names_address = cases[i].address;
    insitu_loader_desc d = desc_of(file_of("named", "refs.json"), any_mode());
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = 1;
    server_reset(server);
    fails(&d, INSITU_E_ARG, cases[i].says);
    assert_int_equal(server_stats(server).requests, 0);
    d.n_virtual_prefixes = 2;
    if (i < 3) fails(&d, INSITU_E_ARG, cases[i].says);
    else if (i == 3) read_all(&d, &kinds[2]);
  }
  names_address = "127.0.0.1";
}
/* Nor may targets use a connection to such an address that the archive's own reads have opened. */
static void test_addresses_shared(void **state) {
  char url[300];
  const char *prefix[] = {"http://localhost"};
  (void)state;
#if LIBCURL_VERSION_NUM < 0x075000
  print_message("skipped: curl before 7.80 cannot ask what address a connection has\n");
  skip();
#endif
  make("shared", &kinds[2], 1);
  refs_json(file_of("shared", "refs.json"), "packs", 1, 0);
  snprintf(url, sizeof url, "http://shared.test:%d/shared/refs.json", server->port);
  insitu_loader_desc d = desc_of(url, any_mode());
  d.virtual_prefixes = prefix;
  for (int named = 0; named < 2; named++) {
    d.n_virtual_prefixes = named;
    server_reset(server);
    if (named) read_all(&d, &kinds[2]);
    else fails(&d, INSITU_E_ARG, "an address of this machine");
    assert_true(server_seen(server, "refs.json") > 0);
    assert_int_equal(server_seen(server, "pack0") > 0, named);
  }
}

/* A part of the file tells what all of it takes: as much more as the size that the server told is
 * larger, and where that makes no number, the largest. */
static void test_budget_told(void **state) {
  enum { HAVE = 1 << 20, DONE = 1 << 16 };
  static const struct {
    uint64_t size;
    const char *says;
  } cases[] = {{UINT64_MAX, "about 1048576 "}, {DONE - 1, "about 1048576 "},
      {DONE, "about 1048576 "}, {3 * DONE, "raise memory_budget to 3538944 "},
      {INT64_MAX, "about 9223372036854775807 "},
      {UINT64_MAX - 1, "raise memory_budget to 10376293541461622782 "}};
  struct insitu__refstore r = {.first = {.size = 0}};
  struct insitu__kerchunk k = {.raw = {.cap = HAVE}};
  insitu_loader_desc d = {.memory_budget = HAVE};
  struct insitu__store s = {.own = &r, .desc = &d};
  insitu_error err = {0};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    r.first.size = cases[i].size;
    d.memory_budget = HAVE;
    assert_int_equal(insitu__refstore_fit(&s, &k, DONE, &err), INSITU_OK);
    d.memory_budget--;
    insitu__error_clear(&err);
    assert_int_equal(insitu__refstore_fit(&s, &k, DONE, &err), INSITU_E_BUDGET);
    if (!strstr(err.message, cases[i].says)) fail_msg("%s", err.message);
  }
}

/* What is no place of references says what to give. */
static void test_places(void **state) {
  static const char *const urls[] = {
      "reference://", "Reference::s3://b/x.json", "reference://a.json"};
  (void)state;
  for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
    insitu_loader_desc d = desc_of(urls[i], any_mode());
    fails(&d, INSITU_E_UNSUPPORTED, "give the path or URL of the references");
  }
  insitu_loader_desc d = desc_of(support_path("nowhere/x.json"), any_mode());
  fails(&d, INSITU_E_NOTFOUND, "no such file of references");
  d.url = support_path("nowhere/x.INSITU");
  fails(&d, INSITU_E_NOTFOUND, "no such file of references");
  d.url = support_path("nowhere/x");
  fails(&d, INSITU_E_NOTFOUND, "no such directory or zip file");
}

/* Iterators and loaders close while a page of the index, and those who wait for it, get no answer.
 * Where the first reader of a page goes, the next one reads it. */
static void test_stalled(void **state) {
  static const insitu_option patient[] = {{"stall_timeout", "60m"}, {"retry_timeout", "60m"}};
  (void)state;
  make("stalled", &kinds[2], 1);
  write_index("stalled", &kinds[2], 0);
  server_reset(server);
  insitu_loader_desc d =
      desc_of(server_url(server, "stalled/refs.insitu"), mode_usable(URING) ? URING : EPOLL);
  d.options = patient;
  d.n_options = 2;
  insitu_loader *ld = open_or_fail(&d);
  unsigned rule = server_rule(server,
      (struct server_rule){
          .key = "*refs.insitu", .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
  close_while_stalled(
      &ld, server, rule, (insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});

  server_release(server);
  server_reset(server);
  rule = server_rule(server, (struct server_rule){.key = "*refs.insitu",
                                 .skip = 5,
                                 .count = 1,
                                 .fault = SERVER_STALL,
                                 .at = SERVER_AT_START,
                                 .ms = SERVER_EVER});
  ld = open_or_fail(&d); /* head, objects, targets, arrays, text: then the page */
  insitu_iter *first =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  while (!server_hits(server, rule)) sched_yield();
  insitu_iter *next =
      open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
  insitu_batch *b;
  insitu_error err = {0};
  assert_int_equal(insitu_iter_next(next, 10, &b, &err), INSITU_TIMEOUT);
  insitu_iter_close(&first);
  assert_int_equal(insitu_iter_next(next, 20000, &b, &err), INSITU_OK);
  support_check_array(b, 0, &d.variables[0], &kinds[2], 0);
  insitu_batch_release(&b);
  insitu_iter_close(&next);
  insitu_loader_close(&ld);
  server_release(server);
  server_reset(server);
}

/* Iterators close while the index of a shard, or a chunk that is kept decoded, and those who wait
 * for it, get no answer. */
static void test_waits(void **state) {
  static const insitu_option patient[] = {{"stall_timeout", "60m"}, {"retry_timeout", "60m"}};
  struct support_array a = {.name = "x",
      .ndim = 2,
      .shape = {20, 9},
      .chunk = {4, 9},
      .shard = {5, 1},
      .dtype = INSITU_I32,
      .format = 3};
  (void)state;
  for (int decoded = 0; decoded < 2; decoded++) {
    const char *name = decoded ? "waits1.zarr" : "waits0.zarr";
    if (decoded) a.chunk[0] = 20, a.shard[0] = a.shard[1] = 0;
    support_make(support_path(name), &a);
    server_reset(server);
    insitu_loader_desc d = desc_of(server_url(server, name), mode_usable(URING) ? URING : EPOLL);
    d.options = patient;
    d.n_options = 2;
    d.cache_memory = decoded ? 1 << 20 : 0;
    insitu_loader *ld = open_or_fail(&d);
    unsigned rule = server_rule(server,
        (struct server_rule){
            .key = "*/c/*", .fault = SERVER_STALL, .at = SERVER_AT_START, .ms = SERVER_EVER});
    close_while_stalled(
        &ld, server, rule, (insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
    server_release(server);
    server_reset(server);
  }
}

/* References in memory count in memory_budget. */
static void test_budget(void **state) {
  enum { MORE = 20000 };
  uint64_t n, inflight[2];
  (void)state;
  make("budget", &kinds[2], 1);
  refs_json(file_of("budget", "refs.json"), "packs", 0, 0);
  char *json = (char *)refs_read(file_of("budget", "refs.json"), &n);
  char *text = malloc(n + MORE * 40), *to = text + n - 2; /* before the brace */
  memcpy(text, json, n);
  for (int i = 0; i < MORE; i++) to += sprintf(to, ",\"y/c/%d\":[\"packs/pack0\",%d,9]", i, i);
  strcpy(to, "}");
  support_write(file_of("budget", "more.json"), text, strlen(text));
  free(json);
  free(text);

  for (int more = 0; more < 2; more++) {
    insitu_loader_desc d =
        desc_of(more ? file_of("budget", "more.json") : file_of("budget", "refs.json"), any_mode());
    d.max_inflight = 1;
    insitu_loader *ld = open_or_fail(&d);
    insitu_plan plan;
    insitu_error err = {0};
    insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL};
    if (insitu_loader_plan(ld, &id, &plan, &err)) fail_msg("%s", err.message);
    inflight[more] = plan.inflight_bytes;
    insitu_loader_close(&ld);
    if (!more) continue;
    d.memory_budget = inflight[1] - 1;
    fails(&d, INSITU_E_BUDGET, "references ");
    d.memory_budget = MORE * 16;
    fails(&d, INSITU_E_BUDGET, "its references take about");
    fails(&d, INSITU_E_BUDGET, "`insitu refs`");
  }
  assert_in_range(inflight[1] - inflight[0], MORE * 16, MORE * 40);
}

/* ---- the cache on disk ---- */

static void test_cache(void **state) {
  char elsewhere[300];
  const char *prefix[] = {elsewhere};
  const insitu_option options[] = {{"cache_validate", "false"}};
  (void)state;
  make("cached", &kinds[2], 2);
  snprintf(elsewhere, sizeof elsewhere, "%s", server_url(other, "cached/packs"));
  refs_json(file_of("cached", "refs.json"), elsewhere, 1, 0);
  for (int way = 0; way < 3; way++) {
    bool far = way > 0, decoded = way == 2; /* which changes nothing: such chunks are kept stored */
    insitu_loader_desc d = desc_of(
        far ? server_url(server, "cached/refs.json") : file_of("cached", "refs.json"), any_mode());
    d.virtual_prefixes = prefix;
    d.n_virtual_prefixes = 1;
    d.cache_dir = file_of("cached", decoded ? "decoded" : far ? "far" : "near");
    d.cache_decoded = decoded;
    d.options = options;
    d.n_options = 1;
    insitu_stats stats = read_all(&d, &kinds[2]);
    assert_true(stats.disk_misses >= 10);
    assert_true(known >= 10); /* of each chunk, when it is used next */
    server_reset(other);
    stats = read_all(&d, &kinds[2]);
    assert_true(stats.disk_hits >= 10);
    assert_int_equal(server_seen(other, "GET "), 0);
  }
}
/* The table of cache_dir's entries stays within memory_budget, or the loader goes without it. */
static void test_cache_table(void **state) {
  (void)state;
  make("table", &kinds[2], 1);
  insitu_loader_desc d = desc_of(file_of("table", "a.zarr"), any_mode());
  d.cache_dir = file_of("table", "cache");
  d.cache_decoded = 1;
  d.cache_budget = 1 << 16;
  d.max_inflight = 64;
  d.decode_threads = 1;
  d.prefetch_depth = 1;
  uint64_t most = 0;
  for (uint64_t less = 0; less < 2; less++) {
    for (int i = 0; i < 2; i++) {
      if (i) d.memory_budget = most - less;
      else d.memory_budget = 0;
      insitu_loader *ld = open_or_fail(&d);
      const struct insitu__loader_footprint *f = &ld->footprint;
      uint64_t takes = f->inflight_bytes + f->cache_bytes;
      if (i) assert_true(takes <= d.memory_budget);
      else most = takes;
      assert_int_equal(f->disk_entries > 0, !i || !less);
      insitu_loader_close(&ld);
    }
  }
}

/* ---- indexes that are damaged ---- */

static void test_damaged(void **state) {
  static const struct {
    unsigned at, bytes; /* of the head, or with `from` of a table */
    int from;           /* -1: the head; 0 to 2: the first record of a table */
    uint64_t value;
    bool sealed;
    const char *says;
  } cases[] = {{8, 4, -1, 2, false, "another version"}, {12, 4, -1, 1, false, "another version"},
      {16, 8, -1, 7, false, "its head says"}, {24, 8, -1, 7, false, "checksum"},
      {32, 8, -1, 1 << 30, false, "a table"}, {40, 8, -1, UINT64_MAX, false, "INSITU__MAX_LIST"},
      {40, 8, -1, 1 << 20, false, "a table"}, {56, 8, -1, 0xFFFFFD, false, "a table"},
      {56, 8, -1, 0xFFFFFE, false, "INSITU__MAX_REFS_TARGETS"},
      {72, 8, -1, 1u << 18, false, "INSITU__MAX_REFS_TABLES"},
      {80, 8, -1, UINT64_MAX, false, "a table"},
      {88, 8, -1, UINT64_MAX, false, "INSITU__MAX_REFS_TEXT"}, {0, 8, 0, 0, true, "an object"},
      {0, 8, 0, UINT64_MAX - 3, true, "an object"}, {8, 4, 0, UINT32_MAX, true, "an object"},
      {24, 8, 0, UINT64_MAX, true, "an object"}, {16, 8, 0, 1 << 20, true, "an object"},
      {8, 4, 1, 5000, true, "a target"}, {12, 4, 1, UINT32_MAX, true, "a target"},
      {12, 4, 2, 17, true, "an array"}, {12, 4, 2, UINT32_MAX, true, "an array"},
      {16, 8, 2, UINT64_MAX - 8, true, "an array"}, {32, 4, 2, 4, true, "an array"},
      {36, 4, 2, 2, true, "an array"}, {36, 4, 2, 1, true, "pieces"},
      {40, 8, 2, 11, true, "the table of an array's chunks"},
      {24, 8, 2, UINT64_MAX - 100, true, "the table of an array's chunks"}};
  static unsigned char whole[1 << 16];
  struct refs_target t[3];
  struct refs_array array = array_of(&kinds[2]);
  int m = any_mode();
  (void)state;
  make("damaged", &kinds[2], 3);
  pins(file_of("damaged", "packs"), "packs", t, 3);
  refs_index(t, 3, &array, 1, 0);
  uint64_t n = refs_at;
  assert_true(n < sizeof whole);
  memcpy(whole, refs_file, n);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t from = 0;
    memcpy(refs_file, whole, n);
    refs_at = n;
    if (cases[i].from >= 0) memcpy(&from, whole + 32 + 16 * cases[i].from, 8);
    memcpy(refs_file + from + cases[i].at, &cases[i].value, cases[i].bytes);
    if (cases[i].sealed) refs_seal();
    support_write(file_of("damaged", "refs.insitu"), refs_file, n);
    insitu_loader_desc d = desc_of(file_of("damaged", "refs.insitu"), m);
    insitu_error err;
    insitu_status status = first_error(&d, &err);
    if (status >= 0 || !strstr(err.message, cases[i].says))
      fail_msg("case %d: %s: '%s'", (int)i, insitu_status_name(status), err.message);
  }
  /* two objects with the same bytes, which are all of the text; so many that memory would end */
  uint64_t first, text, bytes;
  memcpy(refs_file, whole, n);
  memcpy(&first, whole + 32, 8);
  memcpy(&text, whole + 80, 8);
  memcpy(&bytes, whole + 88, 8);
  support_store64(refs_file + first + 16, text);
  support_store64(refs_file + first + 24, bytes);
  refs_at = n;
  refs_seal();
  support_write(file_of("damaged", "refs.insitu"), refs_file, n);
  insitu_loader_desc twice = desc_of(file_of("damaged", "refs.insitu"), m);
  fails(&twice, INSITU_E_CORRUPT, "an object");
  /* cut short, at every length of the head and at some beyond */
  for (uint64_t cut = 0; cut < n; cut += cut < 100 ? 1 : 97) {
    support_write(file_of("damaged", "refs.insitu"), whole, cut);
    insitu_loader_desc d = desc_of(file_of("damaged", "refs.insitu"), m);
    insitu_error err;
    insitu_status status = first_error(&d, &err);
    if (status >= 0 || !err.message[0]) fail_msg("cut at %d: %d", (int)cut, (int)status);
  }
  /* entries of targets that are not there, of lengths that make no sense */
  static const uint64_t entries[][2] = {{0, UINT64_C(3) << 40 | 10}, {UINT64_MAX, 144},
      {INT64_MAX, 144}, {1 << 30, UINT64_C(0xFFFFFE) << 40 | 144},
      {0, UINT64_C(0xFFFFFE) << 40 | ((UINT64_C(1) << 40) - 1)}};
  uint64_t refs;
  memcpy(&refs, whole + 64, 8);
  memcpy(&refs, whole + refs + 24, 8);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    memcpy(refs_file, whole, n);
    memcpy(refs_file + refs + 16 * 4, entries[i], 16);
    support_write(file_of("damaged", "refs.insitu"), refs_file, n);
    insitu_loader_desc d = desc_of(file_of("damaged", "refs.insitu"), m);
    fails(&d, INSITU_E_CORRUPT, "makes no sense");
  }
}

/* ---- memory that is missing ---- */

static void test_no_memory(void **state) {
  const char *urls[4];
  (void)state;
  make("oom", &kinds[1], 2);
  refs_json(file_of("oom", "refs.json"), "packs", 1, 3);
  write_index("oom", &kinds[1], 3);
  urls[0] = file_of("oom", "refs.json");
  urls[1] = file_of("oom", "refs.insitu");
  urls[2] = server_url(server, "oom/refs.json");
  urls[3] = server_url(server, "oom/refs.insitu");
  for (int u = 0; u < 4; u++) {
    int m = mode_usable(INLINE_EPOLL) ? INLINE_EPOLL : any_mode();
    insitu_loader_desc d = desc_of(urls[u], m);
    bool more = true;
    for (long at = 0; more; at += 1 + at / (support_slow() ? 6 : 20)) {
      insitu_error err;
      atomic_store(&oom_left, at);
      alarm(60); /* a hang ends the test */
      insitu_status status = first_error(&d, &err);
      alarm(0);
      more = atomic_exchange(&oom_left, -1) < 0;
      if (status != INSITU_END && (status >= 0 || !err.message[0]))
        fail_msg("%s, allocation %ld: %d", urls[u], at, (int)status);
      if (status < 0 && status != INSITU_E_NOMEM)
        fail_msg(
            "%s, allocation %ld: %s: %s", urls[u], at, insitu_status_name(status), err.message);
    }
  }
}

int main(void) {
  cmocka_set_test_filter(getenv("TEST_FILTER"));
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal), cmocka_unit_test(test_parts),
      cmocka_unit_test(test_large), cmocka_unit_test(test_long_root), cmocka_unit_test(test_filled),
      cmocka_unit_test(test_pieces), cmocka_unit_test(test_missing),
      cmocka_unit_test(test_changed_before), cmocka_unit_test(test_changed_meanwhile),
      cmocka_unit_test(test_outside), cmocka_unit_test(test_prefixes),
      cmocka_unit_test(test_one_file), cmocka_unit_test(test_null),
      cmocka_unit_test(test_credentials), cmocka_unit_test(test_signed),
      cmocka_unit_test(test_redirects), cmocka_unit_test(test_redirects_within),
      cmocka_unit_test(test_addresses), cmocka_unit_test(test_addresses_shared),
      cmocka_unit_test(test_stalled), cmocka_unit_test(test_budget),
      cmocka_unit_test(test_budget_told), cmocka_unit_test(test_places),
      cmocka_unit_test(test_cache), cmocka_unit_test(test_cache_table),
      cmocka_unit_test(test_waits), cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
