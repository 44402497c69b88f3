/* The cache of remote reads on a local disk: what it serves is what the server has, or had when a
 * loader was opened, whatever happens to its files, to the processes that share it, or to the disk.
 * The server is made up here, and counts what it is asked. */
#include <stdio.h>
#include <stdbool.h>
#include <errno.h>
#include <unistd.h>
#include <time.h>
#include <dirent.h>
#include <sys/stat.h>
/* A look at the moment in which an entry has come to its place and the count is not written yet. */
static void (*renamed)(void);
static int test_renameat(int from, const char *old, int to, const char *name) {
  int rc = renameat(from, old, to, name);
  if (!rc && renamed) renamed();
  return rc;
}
/* How often folders are made and opened: they are system calls. */
static unsigned folders_made, folders_opened;
static int test_mkdirat(int at, const char *name, unsigned mode) {
  __atomic_fetch_add(&folders_made, 1, __ATOMIC_RELAXED);
  return mkdirat(at, name, mode);
}
static DIR *test_fdopendir(int fd) {
  __atomic_fetch_add(&folders_opened, 1, __ATOMIC_RELAXED);
  return fdopendir(fd);
}
#define renameat test_renameat
#define mkdirat test_mkdirat
#define fdopendir test_fdopendir
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include <sys/mount.h>
#include <sys/resource.h>

/* ---- the server ---- */
#ifdef __SANITIZE_THREAD__
enum { SLOW = 10 }; /* so many times */
#elif defined __SANITIZE_ADDRESS__
enum { SLOW = 4 };
#else
enum { SLOW = 1 };
#endif
enum { OBJECTS = 48, LARGEST = 300000, PARTS = 7 };
enum { STRONG, WEAK, NO_TAG, NO_SIZE };
static struct object {
  uint64_t size;
  unsigned version; /* 0: absent */
  int tag;
} objects[OBJECTS];
struct server {
  struct insitu__store store; /* first */
  /* requests; of them, answered with bytes, "unchanged", "not found" */
  unsigned asked, sent, unchanged, absent, broken;
};
static void key_of(unsigned i, char key[64]) {
  snprintf(key, 64, "a/group/c/%u/%u", i / 7, i);
}
/* What an object holds is a stretch of one table: it is copied and compared whole, for a sanitizer
 * makes a loop over bytes slow. */
enum { STARTS = 1 << 18 };
static unsigned char table[STARTS + LARGEST + 100];
static int setup(void **state) {
  uint32_t x = 1;
  for (unsigned k = 0; k < sizeof table; k++) {
    x = x * 1664525u + 1013904223u;
    table[k] = (unsigned char)(x >> 24);
  }
  return support_setup(state);
}
static const unsigned char *bytes_of(unsigned i, unsigned version) {
  return table + (i * 40503u + version * 74755u) % STARTS;
}
static insitu_status server_read_await(struct insitu__store *s, const char *key, uint64_t offset,
    struct iovec *iov, unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got,
    insitu_error *err) {
  struct server *to = (struct server *)(void *)s;
  unsigned i = (unsigned)atoi(strrchr(key, '/') + 1);
  char want[64], etag[64] = "";
  *got = 0;
  insitu__reactor_yield_await(s->reactor);
  to->asked++;
  key_of(i, want);
  if (strcmp(key, want)) to->broken++;
  struct object *o = &objects[i];
  if (!o->version) {
    to->absent++;
    return insitu__error_set(err, INSITU_E_NOTFOUND, "no '%s' at the server", key);
  }
  if (o->tag != NO_TAG)
    snprintf(etag, sizeof etag, "%s\"%u-%u\"", o->tag == WEAK ? "W/" : "", i, o->version);
  if (tag && tag->etag[0] && !strcmp(tag->etag, etag)) {
    to->unchanged++;
    tag->unchanged = true;
    for (unsigned k = 0; k < n_iov; k++) iov[k].iov_base = NULL; /* it is scratch */
    return INSITU_OK;
  }
  if (tag) {
    tag->unchanged = false;
    snprintf(tag->etag, sizeof tag->etag, "%s", etag);
    tag->version = insitu__http_no_version;
    insitu__http_version_etag(&tag->version, etag, strlen(etag));
    if (o->tag != NO_SIZE) tag->version.total = o->size;
    tag->size = o->tag == NO_SIZE ? UINT64_MAX : o->size;
  }
  to->sent++;
  uint64_t n = insitu__store_range(o->size, &offset, iov, n_iov);
  for (unsigned k = 0; *got < n; k++) {
    uint64_t part = insitu__base_min(iov[k].iov_len, n - *got);
    if (iov[k].iov_base) memcpy(iov[k].iov_base, bytes_of(i, o->version) + offset + *got, part);
    iov[k].iov_base = NULL;
    *got += part;
  }
  return INSITU_OK;
}
static const struct insitu__store_ops server_ops = {.read_await = server_read_await};
static void server_reset(int tag) {
  for (unsigned i = 0; i < OBJECTS; i++)
    objects[i] =
        (struct object){100 + support_below(i % 3 ? 6000 : LARGEST), i % 11 == 10 ? 0 : 1, tag};
}

/* ---- a loader: a reactor, a server, a cache ---- */
static const struct insitu__reactor_desc modes[] = {
    {.backend = INSITU__RING_EPOLL, .workers = 2, .io_threads = 2},
    {.backend = INSITU__RING_EPOLL, .inline_mode = true},
    {.backend = INSITU__RING_URING, .workers = 2},
    {.backend = INSITU__RING_URING, .inline_mode = true},
};
static bool usable(const struct insitu__reactor_desc *d) {
  const char *forced = getenv("INSITU_IO");
  struct insitu__reactor r;
  if (forced && strcmp(forced, d->backend == INSITU__RING_URING ? "uring" : "epoll")) return false;
  if (insitu__reactor_open(&r, d, NULL)) return false;
  insitu__reactor_close(&r);
  return true;
}
#define EACH_MODE(m)                                                                               \
  for (unsigned m = 0; m < sizeof modes / sizeof *modes; m++)                                      \
    if (usable(&modes[m]))
static unsigned any_mode(void) {
  return usable(&modes[0]) ? 0 : 2;
}

struct loader {
  struct insitu__reactor reactor;
  struct server server;
  struct insitu__disk disk;
  unsigned lines; /* logged */
  char line[500];
  /* what its coroutines do */
  struct insitu__reactor_gate gate;
  const char *wrong; /* the first thing that was */
  unsigned from, to, parts, at;
  bool frozen; /* versions are those of `was` */
  unsigned was[OBJECTS];
};
static void loader_log(void *user, const char *line) {
  struct loader *l = user;
  l->lines++;
  snprintf(l->line, sizeof l->line, "%s", line);
}
static insitu_status loader_try(struct loader *l, unsigned mode, const char *dir, uint64_t budget,
    bool never, insitu_error *err) {
  memset(l, 0, sizeof *l);
  if (insitu__reactor_open(&l->reactor, &modes[mode], err)) return INSITU_E_NOMEM;
  l->server.store.ops = &server_ops;
  l->server.store.reactor = &l->reactor;
  struct insitu__disk_desc d = {.dir = dir,
      .name = "s3://bucket/root",
      .budget = budget,
      .never = never,
      .log = loader_log,
      .user = l};
  insitu_status status = insitu__disk_open(&l->disk, &l->reactor, &d, err);
  if (status) insitu__reactor_close(&l->reactor);
  return status;
}
static void loader_open(
    struct loader *l, unsigned mode, const char *dir, uint64_t budget, bool never) {
  insitu_error err = {0};
  if (loader_try(l, mode, dir, budget, never, &err)) fail_msg("%s", err.message);
}
static void loader_close(struct loader *l) {
  insitu__reactor_close(&l->reactor);
  insitu__disk_close(&l->disk);
}
#define WRONG_UNLESS(condition)                                                                    \
  do                                                                                               \
    if (!(condition) && !l->wrong) l->wrong = #condition;                                          \
  while (0)

/* One of the reads that are made of each object: whole, longer than it is, a range, tails, and some
 * that end beyond. */
static void read_part(struct loader *l, unsigned i, unsigned part) {
  const struct object *o = &objects[i];
  unsigned version = l->frozen ? l->was[i] : o->version;
  uint64_t size = o->size, offset = 0, room = size, got = 77;
  if (part == 1) room = size + 1000;
  if (part == 2) offset = size / 3, room = size / 3 + 3;
  if (part == 3) offset = INSITU__RING_TAIL, room = size / 2 + 10;
  if (part == 4) offset = size / 2, room = size + 7;
  if (part == 5) offset = size - 10, room = 100;
  if (part == 6) offset = INSITU__RING_TAIL, room = size + 5;
  uint64_t from = offset == INSITU__RING_TAIL ? size - insitu__base_min(size, room)
                                              : insitu__base_min(offset, size);
  uint64_t n = insitu__base_min(room, size - from);
  unsigned char *bytes = malloc(room + 1);
  memset(bytes, 0xEE, room + 1);
  struct iovec iov[4] = {{bytes, room / 3}, {bytes + room / 3, 0},
      {bytes + room / 3, room - room / 3}, {NULL, 0}},
               before[4];
  memcpy(before, iov, sizeof iov);
  struct insitu__store_tag tag = {.size = 1};
  insitu_error err = {0};
  char key[64];
  key_of(i, key);
  insitu_status status = insitu__disk_read_await(
      &l->disk, &l->server.store, key, offset, iov, 4, part % 2 ? &tag : NULL, &got, &err);
  WRONG_UNLESS(status == (version ? INSITU_OK : INSITU_E_NOTFOUND) && err.status == status);
  if (status < 0 || l->wrong) {
    WRONG_UNLESS(got == 0);
  } else {
    WRONG_UNLESS(got == n);
    WRONG_UNLESS(!memcmp(bytes, bytes_of(i, version) + from, n));
    WRONG_UNLESS(bytes[room] == 0xEE && (part % 2 == 0 || !tag.unchanged));
    WRONG_UNLESS(part % 2 == 0 || o->tag == NO_SIZE || tag.size == size);
    WRONG_UNLESS(
        part % 2 == 0 || o->tag != STRONG || atoi(strchr(tag.etag, '-') + 1) == (int)version);
  }
  free(bytes);
}
static void epoch_coro(void *arg) { /* several run side by side */
  struct loader *l = arg;
  while (l->at < (l->to - l->from) * l->parts) {
    unsigned k = l->at++;
    read_part(l, l->from + k / l->parts, k % l->parts);
  }
  insitu__reactor_gate_open(&l->gate);
}
static void epoch(void *arg) {
  struct loader *l = arg;
  enum { SIDE_BY_SIDE = 5 };
  insitu__reactor_gate_expect(&l->gate, SIDE_BY_SIDE);
  for (int i = 0; i < SIDE_BY_SIDE; i++)
    if (insitu__reactor_spawn(&l->reactor, epoch_coro, l)) abort();
  insitu__reactor_gate_await(&l->reactor, &l->gate);
}
static void read_range(struct loader *l, unsigned from, unsigned to, unsigned parts) {
  l->from = from;
  l->to = to;
  l->parts = parts;
  l->at = 0;
  if (insitu__reactor_call(&l->reactor, epoch, l)) abort();
}
#define READ(l, from, to, parts)                                                                   \
  do {                                                                                             \
    read_range(l, from, to, parts);                                                                \
    if ((l)->wrong) fail_msg("%s, objects %d to %d", (l)->wrong, (int)(from), (int)(to));          \
    assert_int_equal((l)->server.broken, 0);                                                       \
  } while (0)
static void rest_coro(void *arg) {
  struct loader *l = arg;
  while (l->disk.evicting) insitu__reactor_sleep_await(&l->reactor, 1000000);
}
/* until the removing that a read has begun, and did not wait for, is over */
static void rest(struct loader *l) {
  if (insitu__reactor_call(&l->reactor, rest_coro, l)) abort();
}
static void freeze(struct loader *l) { /* from here on it is to see what there is now */
  for (unsigned i = 0; i < OBJECTS; i++) l->was[i] = objects[i].version;
  l->frozen = true;
}
static unsigned present(void) {
  unsigned n = 0;
  for (unsigned i = 0; i < OBJECTS; i++) n += objects[i].version > 0;
  return n;
}

/* ---- the directory ---- */
static struct { uint64_t files, bytes, charge, temporary; } seen;
static int see(const char *path, const struct stat *s, int kind, struct FTW *f) {
  const char *name = path + f->base;
  if (kind != FTW_F || f->level != 2) return 0;
  bool temporary = f->base > 4 && !strncmp(name - 4, "tmp/", 4);
  /* an entry's second name, for a moment: no file of its own */
  if (temporary && s->st_nlink > 1) return 0;
  seen.files += !temporary;
  seen.temporary += temporary;
  seen.bytes += (uint64_t)s->st_size;
  seen.charge += insitu__disk_charge((uint64_t)s->st_size);
  return 0;
}
static void look(const char *dir) { /* files may come and go meanwhile */
  do memset(&seen, 0, sizeof seen);
  while (nftw(dir, see, 16, FTW_PHYS) && !access(dir, F_OK));
}
static uint64_t counted(const char *dir) {
  char path[600];
  unsigned char bytes[8];
  snprintf(path, sizeof path, "%s/" INSITU__DISK_MARKER, dir);
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0 && pread(fd, bytes, 8, INSITU__DISK_USED) == 8);
  close(fd);
  return insitu__base_load64(bytes);
}
static void assert_within(const char *dir, uint64_t budget) { /* of what look has seen */
  if (seen.charge > counted(dir) || counted(dir) > budget)
    fail_msg("%d files, %d temporary: %d bytes; counted: %d, allowed: %d", (int)seen.files,
        (int)seen.temporary, (int)seen.charge, (int)counted(dir), (int)budget);
}
static char files[4096][600];
static unsigned n_files;
static int list_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s;
  if (kind == FTW_F && f->level == 2 && n_files < 4096) strcpy(files[n_files++], path);
  return 0;
}
static void list_files(const char *dir) {
  n_files = 0;
  assert_int_equal(nftw(dir, list_one, 16, FTW_PHYS), 0);
}
static const char *fresh(const char *name) {
  const char *dir = support_path(name);
  support_remove(dir);
  return dir;
}

/* ---- tests ---- */
static void test_epochs(void **state) {
  (void)state;
  EACH_MODE (m) {
    const char *dir = fresh("epochs");
    struct loader a;
    server_reset(STRONG);
    unsigned absent = OBJECTS - present(), all = present() * PARTS;
    loader_open(&a, m, dir, 0, false);
    READ(&a, 0, OBJECTS, PARTS);
    assert_int_equal(a.server.sent, all);
    /* the first few side by side */
    assert_in_range(a.server.asked, all + absent, all + absent * PARTS);
    unsigned asked = a.server.asked;
    uint64_t misses = a.disk.misses;
    assert_int_equal(misses, asked);
    assert_true(a.disk.hits == 0 && a.disk.written == all);
    READ(&a, 0, OBJECTS, PARTS); /* and nothing is asked any more */
    assert_int_equal(a.server.asked, asked);
    assert_int_equal(a.disk.hits, all);
    assert_int_equal(a.disk.misses, misses);
    uint64_t bytes = a.disk.bytes;
    look(dir);
    assert_true(seen.files == all && seen.temporary == 0 && bytes > 0 && bytes < seen.bytes &&
                seen.charge == counted(dir));
    assert_int_equal(a.lines, 0);
    loader_close(&a);
    /* the next run asks once for each object, side by side perhaps for some parts of it */
    loader_open(&a, m, dir, 0, false);
    READ(&a, 0, OBJECTS, PARTS);
    assert_int_equal(a.server.sent, 0);
    assert_in_range(a.server.unchanged, present(), all);
    asked = a.server.asked;
    READ(&a, 0, OBJECTS, PARTS);
    assert_int_equal(a.server.asked, asked);
    assert_true(a.disk.hits == 2 * all && a.disk.written == 0 && a.disk.bytes == 2 * bytes);
    loader_close(&a);
    /* and one that never asks does not even need the server */
    loader_open(&a, m, dir, 0, true);
    for (unsigned i = 0; i < OBJECTS; i++)
      if (objects[i].version) READ(&a, i, i + 1, PARTS);
    assert_int_equal(a.server.asked, 0);
    loader_close(&a);
  }
}

static void test_one_request_for_each_object(void **state) {
  const char *dir = fresh("ranges");
  struct loader a;
  (void)state;
  server_reset(STRONG);
  loader_open(&a, any_mode(), dir, 0, false);
  READ(&a, 0, OBJECTS, PARTS);
  loader_close(&a);
  loader_open(&a, any_mode(), dir, 0, false);
  for (unsigned p = 1; p <= PARTS; p++) READ(&a, 0, OBJECTS, p == 1 ? 1 : PARTS);
  assert_int_equal(a.server.asked, OBJECTS);
  assert_int_equal(a.server.unchanged, present());
  loader_close(&a);
}

static void test_change(void **state) {
  (void)state;
  EACH_MODE (m) {
    const char *dir = fresh("change");
    struct loader a, b;
    server_reset(STRONG);
    loader_open(&a, m, dir, 0, false);
    READ(&a, 0, OBJECTS, PARTS);
    freeze(&a);
    unsigned asked = a.server.asked;
    for (unsigned i = 0; i < OBJECTS; i += 2) objects[i].version += objects[i].version > 0;
    objects[3].version = 0;
    READ(&a, 0, OBJECTS, PARTS); /* a run goes on with what it has */
    assert_int_equal(a.server.asked, asked);
    loader_close(&a);
    look(dir);
    uint64_t before = seen.files;
    loader_open(&b, m, dir, 0, false);
    READ(&b, 0, OBJECTS, PARTS); /* the next one sees what is new */
    unsigned changed = 0;
    for (unsigned i = 0; i < OBJECTS; i++) changed += objects[i].version == 2;
    assert_int_equal(b.server.sent, changed * PARTS);
    asked = b.server.asked;
    READ(&b, 0, OBJECTS, PARTS);
    assert_int_equal(b.server.asked, asked);
    look(dir);
    assert_true(seen.charge == counted(dir) && seen.temporary == 0);
    /* what is absent now is no more kept, as far as it was asked for */
    assert_true(seen.files < before);
    loader_close(&b);
    /* who never asks sees what was kept last */
    loader_open(&b, m, dir, 0, true);
    freeze(&b);
    for (unsigned i = 0; i < OBJECTS; i++) objects[i].version += objects[i].version > 0;
    for (unsigned i = 0; i < OBJECTS; i++)
      if (objects[i].version) READ(&b, i, i + 1, PARTS);
    assert_int_equal(b.server.asked, 0);
    loader_close(&b);
  }
}

/* A reader in the server's place: it tells what `tag` says, and leaves the buffers as they are. */
struct reader {
  struct insitu__store_tag tag;
  uint64_t got;
  insitu_status status;
  unsigned calls;
};
static insitu_status reader_await(
    void *arg, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  struct reader *r = arg;
  r->calls++;
  *tag = r->tag;
  *got = r->got;
  if (r->status) insitu__error_set(err, r->status, "none");
  return r->status;
}

/* What one loader serves of an object is of one version. */
static void parts_coro(void *arg) {
  struct loader *l = arg;
  char key[64], bytes[300];
  uint64_t got;
  insitu_error err = {0};
  struct insitu__store_tag tag = {.size = 1};
  struct insitu__store *base = &l->server.store;
  struct iovec iov[3] = {{bytes, 50}, {bytes + 50, 50}, {bytes + 100, 0}};
  objects[1] = objects[2] = (struct object){1000, 1, STRONG};
  key_of(1, key);
  WRONG_UNLESS(
      !insitu__disk_read_await(&l->disk, base, key, 100, iov, 3, NULL, &got, &err) && got == 100);
  objects[1].version = objects[2].version = 2;
  WRONG_UNLESS(
      !insitu__disk_read_await(&l->disk, base, key, 100, iov, 3, NULL, &got, &err) && got == 100);
  WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 200, iov, 3, NULL, &got, &err) ==
               INSITU_E_CHANGED);
  WRONG_UNLESS(strstr(err.message, "a/group/c/0/1") && strstr(err.message, "changed"));
  /* who asks for a change gets the server's answer, and so does who drops bytes */
  uint64_t misses = l->disk.misses, written = l->disk.written;
  unsigned asked = l->server.asked;
  memset(&err, 0, sizeof err);
  strcpy(tag.etag, "\"1-2\"");
  WRONG_UNLESS(!insitu__disk_read_await(&l->disk, base, key, 100, iov, 3, &tag, &got, &err) &&
               tag.unchanged);
  key_of(2, key);
  for (int i = 0; i < 2; i++) {
    iov[0] = (struct iovec){bytes, 50};
    iov[1] = (struct iovec){NULL, 10};
    memset(&tag, 0, sizeof tag);
    WRONG_UNLESS(
        !insitu__disk_read_await(&l->disk, base, key, 100, iov, 2, &tag, &got, &err) && got == 60);
    WRONG_UNLESS(!strcmp(tag.etag, "\"2-2\"") && bytes[49] == (char)bytes_of(2, 2)[149]);
  }
  WRONG_UNLESS(
      l->server.asked == asked + 3 && l->disk.misses == misses && l->disk.written == written);
  /* what somebody else has read is kept, and served */
  struct reader reader = {.tag = tag, .got = 50};
  iov[0] = (struct iovec){bytes, 50};
  for (unsigned i = 0; i < 2; i++) {
    tag = (struct insitu__store_tag){.read_await = reader_await, .reader = &reader};
    WRONG_UNLESS(
        !insitu__disk_read_await(&l->disk, base, key, 100, iov, 1, &tag, &got, &err) && got == 50);
    WRONG_UNLESS(tag.cached == i && bytes[49] == (char)bytes_of(2, 2)[149] && reader.calls == 1);
    memset(bytes, 0, i ? 0 : sizeof bytes);
  }
  key_of(3, key);
  reader = (struct reader){.status = INSITU_E_NOTFOUND};
  tag = (struct insitu__store_tag){.read_await = reader_await, .reader = &reader};
  WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 0, iov, 1, &tag, &got, &err) ==
                   INSITU_E_NOTFOUND &&
               reader.calls == 1);
  WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 9, iov, 1, NULL, &got, &err) ==
                   INSITU_E_NOTFOUND &&
               !got && l->server.asked == asked + 3);
  /* nothing, be it of nothing or beyond the end, is not kept */
  objects[4] = (struct object){0, 1, STRONG};
  written = l->disk.written;
  for (unsigned i = 1; i < 5; i += 3) {
    memset(&err, 0, sizeof err);
    key_of(i, key);
    objects[1].version = 1;
    WRONG_UNLESS(!insitu__disk_read_await(
                     &l->disk, base, key, i == 1 ? 2000 : 0, iov, 1, NULL, &got, &err) &&
                 got == 0);
  }
  WRONG_UNLESS(l->disk.written == written && l->server.asked == asked + 5);
}
static void test_parts(void **state) {
  struct loader l;
  (void)state;
  server_reset(STRONG);
  loader_open(&l, any_mode(), fresh("parts"), 0, false);
  assert_int_equal(insitu__reactor_call(&l.reactor, parts_coro, &l), INSITU_OK);
  if (l.wrong) fail_msg("%s", l.wrong);
  loader_close(&l);
}

/* An entry that still is what the server has belongs to another version than the parts that were
 * served. */
static void turned_coro(void *arg) {
  struct loader *l = arg;
  char key[64], bytes[100];
  uint64_t got;
  insitu_error err = {0};
  struct iovec iov = {bytes, 100};
  key_of(1, key);
  objects[1] = (struct object){1000, l->was[1], STRONG};
  WRONG_UNLESS(!insitu__disk_read_await(
      &l->disk, &l->server.store, key, 100 * l->was[1], &iov, 1, NULL, &got, &err));
  if (l->was[1] == 1) return;
  objects[1].version = 1;
  WRONG_UNLESS(insitu__disk_read_await(&l->disk, &l->server.store, key, 100, &iov, 1, NULL, &got,
                   &err) == INSITU_E_CHANGED);
  WRONG_UNLESS(
      l->server.unchanged == 1 && strstr(err.message, "a/group/c/0/1': it has an ETag again"));
}
/* And one that is gone is not absent, which a loader would show as fill values beside the parts
 * that were served. */
static void removed_coro(void *arg) {
  struct loader *l = arg;
  char key[64], bytes[100];
  uint64_t got;
  struct iovec iov = {bytes, 100};
  struct insitu__store *base = &l->server.store;
  key_of(2, key);
  for (int run = 0; run < 2; run++) {
    insitu_error err[3] = {{0}};
    objects[2] = (struct object){1000, 1, STRONG};
    WRONG_UNLESS(!insitu__disk_read_await(&l->disk, base, key, 100, &iov, 1, NULL, &got, &err[0]));
    objects[2].version = 0;
    WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 200, &iov, 1, NULL, &got, &err[0]) ==
                 INSITU_E_CHANGED);
    WRONG_UNLESS(strstr(err[0].message, "a/group/c/0/2': it was read before"));
    struct reader reader = {.status = INSITU_E_NOTFOUND};
    struct insitu__store_tag tag = {.read_await = reader_await, .reader = &reader};
    WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 300, &iov, 1, &tag, &got, &err[1]) ==
                 INSITU_E_CHANGED);
    WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 200, &iov, 1, NULL, &got, NULL) ==
                 INSITU_E_CHANGED);
    /* as it is kept */
    WRONG_UNLESS(!insitu__disk_read_await(&l->disk, base, key, 100, &iov, 1, NULL, &got, &err[2]));
  }
}
/* Parts without the ETag that others had do not belong to those, unless ETags are not compared. */
static void untagged_coro(void *arg) {
  struct loader *l = arg;
  char key[64], bytes[100];
  uint64_t got;
  insitu_error err = {0};
  struct iovec iov = {bytes, 100};
  struct insitu__store *base = &l->server.store;
  key_of(3, key);
  objects[3] = (struct object){1000, 1, STRONG};
  WRONG_UNLESS(!insitu__disk_read_await(&l->disk, base, key, 100, &iov, 1, NULL, &got, &err));
  objects[3].tag = NO_TAG;
  WRONG_UNLESS(insitu__disk_read_await(&l->disk, base, key, 200, &iov, 1, NULL, &got, &err) ==
               INSITU_E_CHANGED);
  WRONG_UNLESS(strstr(err.message, "a/group/c/0/3': it is not the object that the cache has"));
  insitu__error_clear(&err);
  l->disk.desc.any_etag = true;
  WRONG_UNLESS(!insitu__disk_read_await(&l->disk, base, key, 200, &iov, 1, NULL, &got, &err));
}
static void test_turned_back(void **state) {
  const char *dir = fresh("turned");
  struct loader l;
  (void)state;
  loader_open(&l, any_mode(), dir, 0, false);
  assert_int_equal(insitu__reactor_call(&l.reactor, removed_coro, &l), INSITU_OK);
  assert_int_equal(insitu__reactor_call(&l.reactor, untagged_coro, &l), INSITU_OK);
  if (l.wrong) fail_msg("%s", l.wrong);
  loader_close(&l);
  for (unsigned version = 1; version <= 2; version++) {
    loader_open(&l, any_mode(), dir, 0, false);
    l.was[1] = version;
    assert_int_equal(insitu__reactor_call(&l.reactor, turned_coro, &l), INSITU_OK);
    if (l.wrong) fail_msg("%s", l.wrong);
    loader_close(&l);
  }
}

static void test_without_etag(void **state) {
  (void)state;
  for (int tag = WEAK; tag <= NO_SIZE; tag++) {
    const char *dir = fresh("untagged");
    struct loader a;
    server_reset(tag);
    unsigned all = present() * PARTS;
    for (int run = 0; run < 2; run++) { /* kept for the run, and read anew in the next */
      loader_open(&a, any_mode(), dir, 0, false);
      READ(&a, 0, OBJECTS, PARTS);
      assert_int_equal(a.server.sent, run && tag == NO_SIZE ? 0 : all);
      assert_int_equal(a.server.unchanged > 0, run && tag == NO_SIZE);
      unsigned asked = a.server.asked;
      READ(&a, 0, OBJECTS, PARTS);
      assert_int_equal(a.server.asked, asked);
      loader_close(&a);
      for (unsigned i = 0; i < OBJECTS && tag != NO_SIZE; i++)
        objects[i].version += objects[i].version > 0;
    }
    look(dir);
    assert_true(seen.files == all && seen.charge == counted(dir));
  }
}

/* what one has asked for, one that was opened earlier need not ask again */
static void test_shared(void **state) {
  const char *dir = fresh("shared");
  struct loader a, b, c;
  (void)state;
  server_reset(STRONG);
  loader_open(&a, any_mode(), dir, 0, false);
  READ(&a, 0, OBJECTS, 1);
  loader_close(&a);
  loader_open(&a, any_mode(), dir, 0, false);
  loader_open(&b, any_mode(), dir, 0, false);
  READ(&b, 0, OBJECTS, 1);
  assert_int_equal(b.server.unchanged, present());
  READ(&a, 0, OBJECTS, 1);
  /* absent ones are remembered by each for itself */
  assert_int_equal(a.server.asked, OBJECTS - present());
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* files' clocks are coarse */
  loader_open(&c, any_mode(), dir, 0, false);
  READ(&c, 0, OBJECTS, 1);
  assert_int_equal(c.server.unchanged, present());
  loader_close(&a);
  loader_close(&b);
  loader_close(&c);
}

static void *user_main(void *arg) {
  struct loader *l = arg;
  for (int i = 0; i < (SLOW > 1 ? 2 : 6); i++) read_range(l, 0, OBJECTS, PARTS);
  return NULL;
}
static void test_two_loaders(void **state) {
  const char *dir = fresh("two");
  struct loader l[2];
  pthread_t thread[2];
  (void)state;
  enum { BUDGET = 3 << 20 };
  server_reset(STRONG);
  for (int i = 0; i < 2; i++) loader_open(&l[i], any_mode(), dir, BUDGET, false);
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, user_main, &l[i]), 0);
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < 2; i++) {
    if (l[i].wrong) fail_msg("%s", l[i].wrong);
    /* nobody waits long for the other one, which a busy machine may have stopped while it counted
     */
    if (l[i].disk.failed) assert_non_null(strstr(l[i].line, strerror(EAGAIN)));
  }
  look(dir);
  assert_within(dir, BUDGET);
  assert_int_equal(seen.temporary, 0);
  for (int i = 0; i < 2; i++) loader_close(&l[i]);
  loader_open(&l[0], any_mode(), dir, BUDGET, false);
  /* what could not be given back then is counted no more */
  assert_int_equal(seen.charge, counted(dir));
  loader_close(&l[0]);
}

static insitu_status first_byte_await(struct loader *l, unsigned i) {
  char key[64], byte;
  insitu_error err = {0};
  struct iovec iov = {&byte, 1};
  uint64_t got;
  key_of(i, key);
  return insitu__disk_read_await(&l->disk, &l->server.store, key, 0, &iov, 1, NULL, &got, &err);
}
static void one_byte_coro(void *arg) {
  struct loader *l = arg;
  for (unsigned i = 0; i < OBJECTS; i++)
    if (objects[i].version) WRONG_UNLESS(!first_byte_await(l, i));
}
static void gone_coro(void *arg) {
  struct loader *l = arg;
  for (unsigned i = 0; i < OBJECTS; i++) {
    if (objects[i].version != 2) continue;
    objects[i].version = 0;
    WRONG_UNLESS(first_byte_await(l, i) == INSITU_E_NOTFOUND);
  }
}
/* While another process has the lock of the count for too long, no entry goes; and bytes that
 * cannot be given back are given back later. */
static void test_given_back_late(void **state) {
  (void)state;
  /* with the next use of the count; when the loader is closed */
  for (int again = 0; again < 2; again++) {
    const char *dir = fresh("late");
    char path[700];
    struct loader l, other;
    server_reset(STRONG);
    loader_open(&l, any_mode(), dir, 0, false);
    loader_open(&other, any_mode(), dir, 0, false); /* so that nobody counts anew */
    if (insitu__reactor_call(&l.reactor, one_byte_coro, &l)) abort();
    uint64_t all = counted(dir);
    loader_close(&l);
    loader_open(&l, any_mode(), dir, 0, false);
    for (unsigned i = 0; i < 6; i++) objects[i].version = 2;
    uint64_t used; /* as by a write that fails then */
    assert_int_equal(insitu__disk_reserve(&l.disk, NULL, 5 * INSITU__DISK_BLOCK, &used), 0);
    assert_true(used == all + 5 * INSITU__DISK_BLOCK && counted(dir) == used);
    snprintf(path, sizeof path, "%s/" INSITU__DISK_MARKER, dir);
    int marker = open(path, O_RDWR);
    assert_true(marker >= 0 && insitu__disk_lock(marker, F_WRLCK, INSITU__DISK_LOCK_USED, false));
    if (insitu__reactor_call(&l.reactor, gone_coro, &l)) abort();
    assert_null(l.wrong);
    insitu__disk_give_back(&l.disk, 5 * INSITU__DISK_BLOCK);
    look(dir);
    assert_true(counted(dir) == used && seen.charge == all); /* nothing could be removed */
    close(marker);
    if (again) READ(&l, 6, 7, PARTS);
    loader_close(&l);
    look(dir);
    assert_int_equal(seen.charge, counted(dir));
    loader_close(&other);
  }
}

/* A folder is made once, and at opening those are listed alone that are there. */
static void test_folders(void **state) {
  (void)state;
  const char *dir = fresh("folders");
  struct loader l;
  server_reset(STRONG);
  folders_made = folders_opened = 0;
  loader_open(&l, any_mode(), dir, 0, false);
  assert_int_equal(folders_made, 1);   /* tmp */
  assert_int_equal(folders_opened, 4); /* the directory twice, and tmp to empty and to count it */
  READ(&l, 0, OBJECTS, PARTS);
  loader_close(&l);

  list_files(dir);
  unsigned char named[256] = {0};
  for (unsigned i = 0; i < n_files; i++) named[strtoul(files[i] + strlen(dir) + 1, NULL, 16)] = 1;
  unsigned folders = 0;
  for (int i = 0; i < 256; i++) folders += named[i];
  assert_true(folders_made >= 1 + folders && folders_made < n_files);
  for (unsigned i = 0; i < n_files; i++) assert_int_equal(unlink(files[i]), 0);

  folders_made = folders_opened = 0;
  loader_open(&l, any_mode(), dir, 0, false);
  READ(&l, 0, OBJECTS, PARTS);
  loader_close(&l);
  assert_int_equal(folders_made, 0);
  assert_int_equal(folders_opened, 3 + folders);
}

/* Makes a file of one block in the place of an entry. */
static void make_entry(struct loader *l, const char *dir, const uint64_t name[2]) {
  char path[700], place[INSITU__DISK_PATH];
  uint64_t used;
  insitu__disk_name_path(name, place);
  snprintf(path, sizeof path, "%s/%s", dir, place);
  support_write(path, "x", 1);
  assert_int_equal(insitu__disk_reserve(&l->disk, NULL, INSITU__DISK_BLOCK, &used), 0);
}
static bool has_entry(struct loader *l, const uint64_t name[2]) {
  char place[INSITU__DISK_PATH];
  insitu__disk_name_path(name, place);
  return insitu__disk_charge_of(&l->disk, place);
}
/* For an entry that comes, those go that are used last, of any rank; none does where all that may
 * go make no room, nor for one that another rank wrote meanwhile. */
static void test_room(void **state) {
  (void)state;
  enum { BUDGET = 40 * INSITU__DISK_BLOCK };
  static const uint64_t name[4][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}};
  const char *dir = fresh("room");
  struct loader l;
  struct insitu__disk_slot slot = {.rank = 1, .late = {{{3, 3}, 40}, {{9, 9}, 90}}};
  struct insitu__disk_read *r = calloc(1, sizeof *r);
  const struct insitu__disk_lates late = {10, {{{1, 1}, 20}, {{2, 2}, 30}, {{3, 3}, 5}}};
  uint64_t used;
  server_reset(STRONG);
  loader_open(&l, any_mode(), dir, BUDGET, false);
  insitu__disk_join(&l.disk, 1, 0, 2);
  r->use = (struct insitu__disk_use){.next = 1, .run = 5, .ranks = 2};
  insitu__disk_name_path((const uint64_t[2]){7, 7}, r->path);
  for (int i = 0; i < 4; i++) make_entry(&l, dir, name[i]);
  assert_int_equal(insitu__disk_reserve(&l.disk, NULL, 0, &used), 0);
  uint64_t rest = BUDGET - used;
  assert_int_equal(insitu__disk_reserve(&l.disk, NULL, rest, &used), 0);

  r->late = late;
  assert_int_equal(insitu__disk_reserve(&l.disk, r, INSITU__DISK_BLOCK, &used), 0);
  assert_true(!has_entry(&l, name[1]) && has_entry(&l, name[0]) && has_entry(&l, name[2]));
  assert_true(!r->late.entry[1].next && r->late.entry[0].next == 20);
  r->late = late;
  assert_int_equal(insitu__disk_reserve(&l.disk, r, 2 * INSITU__DISK_BLOCK, &used), -1);
  assert_true(has_entry(&l, name[0]) && has_entry(&l, name[2]));
  assert_true(!r->late.entry[1].next && r->late.entry[0].next == 20);

  /* what another rank tells of; a slot of another run tells nothing */
  for (int same = 0; same < 2; same++) {
    slot.run = r->use.run + !same;
    off_t at = insitu__disk_slot_at(&l.disk, 1);
    assert_true(pwrite(l.disk.ranksfd, &slot, sizeof slot, at) == sizeof slot);
    r->late = late;
    int status = insitu__disk_reserve(&l.disk, r, 2 * INSITU__DISK_BLOCK, &used);
    assert_int_equal(status, same ? 0 : -1);
    assert_true(has_entry(&l, name[0]) == !same && has_entry(&l, name[2]) == !same);
  }
  assert_true(has_entry(&l, name[3]));
  insitu__disk_give_back(&l.disk, INSITU__DISK_BLOCK);
  insitu__disk_name_path(name[3], r->path);
  r->none = true;
  uint64_t before = counted(dir);
  assert_int_equal(insitu__disk_reserve(&l.disk, r, INSITU__DISK_BLOCK, &used), 0);
  assert_true(r->twice && counted(dir) == before);
  free(r);
  loader_close(&l);
}

/* Many ranks of a node tell each other: each is heard by turns, and those that have one slot are
 * not taken for each other. What an earlier run left is gone. */
static void test_many_ranks(void **state) {
  (void)state;
  enum { RANKS = 1100, OTHERS = 200 };
  const char *dir = fresh("ranks");
  struct loader l;
  struct insitu__disk_slot slot[INSITU__DISK_LOOKS];
  struct insitu__disk_read *r = calloc(1, sizeof *r);
  bool heard[RANKS] = {false};
  loader_open(&l, any_mode(), dir, 1 << 20, false);
  insitu__disk_join(&l.disk, 1, 0, RANKS);
  r->use = (struct insitu__disk_use){.next = 1, .run = 5, .first = 7, .ranks = OTHERS};
  l.disk.job = INSITU__DISK_SLOTS - 50; /* so that slots go on at the first one */
  for (uint64_t rank = 0; rank < RANKS; rank++) {
    l.disk.rank = rank;
    r->late.entry[0] = (struct insitu__disk_late){{rank, 1}, 100};
    insitu__disk_tell(&l.disk, r);
  }
  for (int turn = 0; turn < (OTHERS + INSITU__DISK_LOOKS - 1) / INSITU__DISK_LOOKS; turn++) {
    uint64_t n = insitu__disk_hear(&l.disk, &r->use, slot);
    assert_int_equal(n, INSITU__DISK_LOOKS);
    for (uint64_t i = 0; i < n; i++) {
      assert_true(slot[i].rank < RANKS && slot[i].late[0].name[0] == slot[i].rank);
      heard[slot[i].rank] = true;
    }
  }
  for (uint64_t rank = 0; rank < OTHERS; rank++) {
    bool over = 7 + rank < RANKS - INSITU__DISK_SLOTS; /* another wrote there later */
    assert_true(heard[7 + rank + (over ? INSITU__DISK_SLOTS : 0)]);
  }

  /* where they are: not known of those of another run, nor of what is torn */
  uint64_t at[OTHERS];
  for (l.disk.rank = 7; l.disk.rank < 7 + OTHERS; l.disk.rank++)
    insitu__disk_tell_place(&l.disk, 5 + (l.disk.rank == 9), 1000 + l.disk.rank);
  uint64_t torn = 1;
  off_t half = (off_t)(insitu__disk_slot_of(&l.disk, 11) * sizeof(struct insitu__disk_place));
  assert_true(pwrite(l.disk.ranksfd, &torn, sizeof torn, half) == sizeof torn);
  insitu__disk_places(&l.disk, 5, 7, OTHERS, at);
  for (uint64_t i = 0; i < OTHERS; i++)
    assert_true(at[i] == (i == 2 || i == 4 ? UINT64_MAX : 1007 + i));

  l.disk.rank = 8;
  assert_int_equal(insitu__disk_hear(&l.disk, &(struct insitu__disk_use){.ranks = 1}, slot), 0);
  close(l.disk.ranksfd);
  insitu__disk_join(&l.disk, 1, 8, RANKS);
  struct insitu__disk_use two = {.run = 5, .first = 8, .ranks = 2};
  assert_int_equal(insitu__disk_hear(&l.disk, &two, slot), 2);
  assert_int_equal(slot[0].run, 0);
  free(r);
  loader_close(&l);
}

static void give_up(const insitu_error *err) { /* in a child */
  fprintf(stderr, "%s\n", err->message);
  _exit(3);
}
static bool is_open(int gate) { /* the other end of a pipe */
  struct pollfd p = {.fd = gate};
  return poll(&p, 1, 0) == 0;
}
/* In a child: so many rounds, and more until the gate is closed; -1: there is none. */
static void hammer(
    const char *dir, uint64_t budget, unsigned mode, uint64_t seed, int rounds, int gate) {
  struct loader l;
  insitu_error err = {0};
  support_random_state = seed;
  for (int round = 0; round < rounds || (gate >= 0 && is_open(gate)); round++) {
    if (loader_try(&l, mode, dir, budget, false, &err)) give_up(&err);
    for (int i = 0; i < 30; i++) {
      unsigned from = (unsigned)support_below(OBJECTS);
      read_range(&l, from, from + 1, PARTS);
      if (l.wrong) _exit(2);
    }
    loader_close(&l);
  }
}
/* kill knows pids that mean everybody: a failed fork must not become one. */
static pid_t start_child(void) {
  pid_t child = fork();
  if (child >= 0) return child;
  perror("fork");
  abort();
}
static void signal_child(pid_t child, int signal) {
  if (child <= 1 || kill(child, signal)) abort();
}
/* The sum of all files stays within the budget, at every moment that somebody looks. */
static void test_budget(void **state) {
  const char *dir = fresh("budget");
  struct loader l;
  (void)state;
  enum { BUDGET = 1 << 20, CHILDREN = 4, ENOUGH = 20 };
  server_reset(STRONG);
  uint64_t evicted = 0;
  /* An eviction that a loader's close overtakes removes nothing. On a busy machine that happens in
   * all rounds: later rounds wait before they close. */
  int rounds = SLOW > 1 ? 8 : 20;
  for (int round = 0; round < rounds || (!evicted && round < 60); round++) {
    loader_open(&l, round & 1 ? any_mode() + 1 : any_mode(), dir, BUDGET, false);
    for (unsigned i = 0; i < OBJECTS; i += 5) {
      READ(&l, i, i + 1, PARTS);
      /* and there are files to be removed perhaps, so no sum */
      assert_true(counted(dir) <= BUDGET);
    }
    unsigned half = OBJECTS / 2 * (unsigned)(round & 1);
    READ(&l, half, half + OBJECTS / 2, PARTS);
    for (int look = 0; round >= rounds && !atomic_load(&l.disk.evicted) && look < 500; look++)
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    insitu__reactor_close(&l.reactor); /* its workers remove files, perhaps until now */
    evicted += l.disk.evicted;
    insitu__disk_close(&l.disk);
    look(dir);
    assert_true(seen.charge == counted(dir) && seen.charge > BUDGET / 2 && seen.temporary == 0);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* files' clocks are coarse */
  }
  assert_true(evicted > 0);
  pid_t child[CHILDREN];
  /* closed once there were enough looks: a busy machine may stop this process for longer than
   * all rounds take */
  int gate[2];
  assert_int_equal(pipe(gate), 0);
  for (int i = 0; i < CHILDREN; i++) {
    child[i] = start_child();
    if (child[i]) continue;
    close(gate[1]);
    hammer(dir, BUDGET, any_mode() + (unsigned)i % 2, (uint64_t)i + 1, SLOW > 1 ? 3 : 12, gate[0]);
    _exit(0);
  }
  close(gate[0]);
  int left = CHILDREN, looks = 0;
  /* all stopped at once, wherever they are, so that one moment is seen */
  for (int status; left;) {
    /* then they are left alone: on a busy machine they would never come to their end */
    bool stop = looks < 250;
    for (int i = 0; i < CHILDREN; i++)
      if (child[i] && stop) signal_child(child[i], SIGSTOP);
    for (int i = 0; i < CHILDREN; i++) {
      if (!child[i]) continue;
      assert_int_equal(waitpid(child[i], &status, stop ? WUNTRACED : 0), child[i]);
      if (WIFSTOPPED(status)) continue;
      child[i] = 0;
      left--;
      assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    look(dir);
    if (left) assert_within(dir, BUDGET);
    looks += left > 1;
    if (looks == ENOUGH && gate[1] >= 0) gate[1] = (close(gate[1]), -1);
    for (int i = 0; i < CHILDREN; i++)
      if (child[i]) signal_child(child[i], SIGCONT);
    /* longer and longer */
    nanosleep(&(struct timespec){.tv_nsec = (long)support_below(3000000) + looks * 200000}, NULL);
  }
  assert_true(looks >= ENOUGH);
  look(dir);
  assert_within(dir, BUDGET);
  assert_int_equal(seen.temporary, 0);
  loader_open(&l, any_mode(), dir, BUDGET, false);
  /* whoever did not get the lock in time, to give back what it counted */
  assert_int_equal(seen.charge, counted(dir));
  loader_close(&l);
}

/* Ranks of a node open a cache that is not there yet, all at once. */
static void test_made_at_once(void **state) {
  enum { CHILDREN = 4 };
  struct loader l;
  insitu_error err = {0};
  (void)state;
  for (int round = 0; round < 300 / SLOW; round++) {
    const char *dir = fresh("made_at_once");
    pid_t child[CHILDREN];
    int gate[2], status;
    char byte;
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < CHILDREN; i++) {
      child[i] = start_child();
      if (child[i]) continue;
      close(gate[1]);
      while (read(gate[0], &byte, 1) < 0) continue; /* until it opens */
      if (loader_try(&l, any_mode(), dir, 1 << 20, false, &err)) give_up(&err);
      loader_close(&l);
      _exit(0);
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < CHILDREN; i++) {
      waitpid(child[i], &status, 0);
      assert_true(WIFEXITED(status));
      assert_int_equal(WEXITSTATUS(status), 0);
    }
  }
}

/* The process that makes it is killed, or gives up, before it is made, while others wait: one of
 * them makes it. */
static void test_not_made(void **state) {
  enum { CHILDREN = 4 };
  struct loader l;
  insitu_error err = {0};
  char path[700];
  (void)state;
  for (int round = 0; round < 50 / SLOW; round++) {
    const char *dir = fresh("not_made");
    pid_t child[CHILDREN];
    int status;
    snprintf(path, sizeof path, "%s/" INSITU__DISK_MARKER, dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    int marker = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(marker >= 0 && insitu__disk_lock(marker, F_WRLCK, INSITU__DISK_LOCK_OPEN, false));
    for (int i = 0; i < CHILDREN; i++) {
      child[i] = start_child();
      if (child[i]) continue;
      close(marker); /* the lock is the parent's all the same */
      if (loader_try(&l, any_mode(), dir, 1 << 20, false, &err)) give_up(&err);
      loader_close(&l);
      _exit(0);
    }
    /* so that they wait: if some do not yet, less is shown */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    close(marker);
    for (int i = 0; i < CHILDREN; i++) {
      waitpid(child[i], &status, 0);
      assert_true(WIFEXITED(status));
      assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(counted(dir), 0);
  }
}

/* Who was not used for longest goes first; what a running loader has used stays. */
static void set_age(const char *path, int seconds) {
  struct timespec now, t[2];
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= seconds;
  t[0] = t[1] = now;
  assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}
static const char *path_of(struct loader *l, const char *dir, unsigned i) { /* of part 0 */
  static char path[600];
  char key[64], name[INSITU__DISK_PATH];
  key_of(i, key);
  insitu__disk_path(&(struct insitu__disk_id){l->disk.name, key, 0, objects[i].size, 0}, name);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return path;
}
static void test_oldest_first(void **state) {
  const char *dir = fresh("lru");
  struct loader l;
  (void)state;
  enum { EACH = 60000, CHARGE = 15 * 4096, N = 20, BUDGET = N * CHARGE };
  server_reset(STRONG);
  for (unsigned i = 0; i < OBJECTS; i++) objects[i] = (struct object){EACH, 1, STRONG};
  loader_open(&l, any_mode(), dir, BUDGET, false);
  READ(&l, 0, N - 1, 1);
  assert_int_equal(counted(dir), (N - 1) * CHARGE);
  unsigned age[N];
  for (unsigned i = 0; i < N - 1; i++) age[i] = i;
  for (unsigned i = 0; i < N - 1; i++) { /* of any age, but this one was used since */
    unsigned k = (unsigned)support_below(N - 1), t = age[i];
    age[i] = age[k];
    age[k] = t;
  }
  for (unsigned i = 0; i < N - 1; i++) set_age(path_of(&l, dir, i), 1000 + 100 * (int)age[i]);
  loader_close(&l);
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* files' clocks are coarse */
  loader_open(&l, any_mode(), dir, BUDGET, false);
  unsigned oldest = 0, next = 0;
  for (unsigned i = 0; i < N - 1; i++) {
    if (age[i] == N - 2) oldest = i;
    if (age[i] == N - 3) next = i;
  }
  READ(&l, oldest, oldest + 1, 1); /* it is the youngest now */
  READ(&l, N, N + 1, 1);           /* fits; but from here on some must go, down to 7/8 */
  rest(&l);
  loader_close(&l);
  unsigned gone = 0;
  loader_open(&l, any_mode(), dir, BUDGET, false);
  for (unsigned i = 0; i < N - 1; i++) {
    bool there = !access(path_of(&l, dir, i), F_OK);
    gone += !there;
    if (i == oldest) assert_true(there);
    else assert_int_equal(there, age[i] < N - 2 - 3);
  }
  assert_true(gone == 3 && access(path_of(&l, dir, next), F_OK));
  assert_int_equal(counted(dir), (N - gone) * CHARGE);
  /* more than fits, again and again: what came first stays, and is served. Twice: what is older may
   * be removed late. */
  for (int i = 0; i < 2; i++) {
    READ(&l, 0, OBJECTS, 1);
    rest(&l);
  }
  uint64_t hits = l.disk.hits, kept = counted(dir) / CHARGE;
  assert_true(kept >= N - 2);
  for (int i = 0; i < 3; i++) READ(&l, 0, OBJECTS, 1);
  assert_int_equal(l.disk.hits - hits, 3 * kept);
  /* one that takes more than an eighth is not kept at all */
  loader_close(&l);
  loader_open(&l, any_mode(), dir, BUDGET, false);
  objects[0].size = BUDGET / 8;
  READ(&l, 0, 1, 1);
  assert_int_equal(l.disk.written, 0);
  loader_close(&l);
  /* a smaller budget at the next opening */
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  loader_open(&l, any_mode(), dir, BUDGET / 2, false);
  assert_true(counted(dir) <= BUDGET / 2 - BUDGET / 16);
  look(dir);
  assert_int_equal(seen.charge, counted(dir));
  loader_close(&l);
}

/* A process that is killed at any moment, while it writes and removes, leaves a cache that serves
 * right bytes and counts right. */
static void test_killed(void **state) {
  const char *dir = fresh("killed"), *kills = getenv("DISK_KILLS");
  struct loader l;
  (void)state;
  enum { BUDGET = 1 << 20 };
  int status, n = kills ? atoi(kills) : 200 / SLOW, alive = 0;
  server_reset(STRONG);
  for (int i = 0; i < n; i++) {
    pid_t child[2];
    for (int c = 0; c < 2; c++) {
      child[c] = start_child();
      if (child[c]) continue;
      hammer(dir, BUDGET, any_mode() + (unsigned)c, (uint64_t)(2 * i + c), 1000, -1);
      _exit(4);
    }
    for (seen.files = i != 0; !seen.files; look(dir))
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = (long)support_below(i & 1 ? 4000000 : SLOW * 20000000)},
        NULL);
    for (int c = 0; c < 2; c++) {
      signal_child(child[c], SIGKILL);
      waitpid(child[c], &status, 0);
      if (WIFEXITED(status))
        fail_msg("a child ended with %d before it was killed", WEXITSTATUS(status));
      assert_int_equal(WTERMSIG(status), SIGKILL);
    }
    look(dir);
    if (!access(dir, F_OK)) assert_within(dir, BUDGET);
    if (i % 8) continue;
    loader_open(&l, any_mode(), dir, BUDGET, i & 8);
    look(dir);
    assert_true(seen.temporary == 0 && seen.charge == counted(dir));
    for (unsigned k = 0; k < OBJECTS; k++)
      if (objects[k].version) READ(&l, k, k + 1, PARTS);
    alive += l.disk.hits > 0;
    assert_int_equal(l.disk.failed, 0);
    loader_close(&l);
  }
  assert_true(alive > 0);
}

/* A process that is killed when its entry has replaced another, and before the count is written:
 * the entry is good, the count is too high by what was replaced, and the next one alone puts it
 * right. */
static int not_renamed(void **state) {
  (void)state;
  renamed = NULL;
  return 0;
}
static void die(void) {
  kill(getpid(), SIGKILL);
}
static void test_killed_renaming(void **state) {
  const char *dir = fresh("renaming");
  struct loader l, other;
  int status;
  (void)state;
  server_reset(STRONG);
  loader_open(&l, any_mode(), dir, 0, false);
  READ(&l, 0, 1, 1);
  loader_close(&l);
  uint64_t before = counted(dir);
  assert_true(before > 0);
  int go[2]; /* the child begins before this process has threads, and waits for the other loader */
  char byte = 0;
  assert_int_equal(pipe2(go, O_CLOEXEC), 0);
  pid_t child = start_child();
  if (!child) {
    if (read(go[0], &byte, 1) != 1) _exit(2);
    objects[0].version = 2;
    loader_open(&l, any_mode(), dir, 0, false);
    renamed = die;
    read_range(&l, 0, 1, 1);
    _exit(1);
  }
  loader_open(&other, any_mode(), dir, 0, false); /* so that nobody counts anew */
  assert_int_equal(write(go[1], &byte, 1), 1);
  waitpid(child, &status, 0);
  close(go[0]);
  close(go[1]);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  look(dir);
  assert_true(seen.files == 1 && seen.temporary == 0 && seen.charge == before);
  assert_int_equal(counted(dir), 2 * before);
  objects[0].version = 2;
  READ(&other, 0, 1, 1); /* the lock went with the process */
  assert_true(other.server.asked == 0 && other.disk.hits == 1);
  loader_close(&other);
  loader_open(&l, any_mode(), dir, 0, false);
  look(dir);
  assert_true(seen.files == 1 && counted(dir) == before && seen.charge == before);
  loader_close(&l);
}

/* What an entry replaces is given back, be it smaller or larger. */
static void same_range_coro(void *arg) {
  struct loader *l = arg;
  static char bytes[50000];
  struct iovec iov = {bytes, sizeof bytes};
  insitu_error err = {0};
  char key[64];
  uint64_t got;
  key_of(0, key);
  WRONG_UNLESS(
      !insitu__disk_read_await(&l->disk, &l->server.store, key, 0, &iov, 1, NULL, &got, &err) &&
      got == insitu__base_min(objects[0].size, sizeof bytes));
}
static void test_replaced(void **state) {
  const char *dir = fresh("replaced");
  struct loader l;
  (void)state;
  static const uint64_t size[] = {50000, 9000, 90000, 100};
  server_reset(STRONG);
  for (unsigned i = 0; i < 4; i++) {
    objects[0] = (struct object){size[i], i + 1, STRONG};
    loader_open(&l, any_mode(), dir, 0, false);
    READ(&l, 0, 1, 1);
    /* one range, whatever there is of it */
    if (insitu__reactor_call(&l.reactor, same_range_coro, &l)) abort();
    if (l.wrong) fail_msg("%s", l.wrong);
    look(dir);
    assert_true(seen.temporary == 0 && seen.charge == counted(dir));
    loader_close(&l);
  }
}

/* No damaged file is ever served, nor one of something else. */
static void damage(const char *path, const char *other) {
  struct stat info;
  char byte;
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0 && !fstat(fd, &info));
  off_t at = (off_t)support_below((uint64_t)info.st_size), head = (off_t)support_below(300);
  switch (support_below(7)) {
  case 0: assert_int_equal(ftruncate(fd, at), 0); break;
  case 1: assert_int_equal(ftruncate(fd, info.st_size + 1 + at), 0); break;
  case 2: /* zeros, as after a power loss */
    assert_int_equal(ftruncate(fd, at), 0);
    assert_int_equal(ftruncate(fd, info.st_size), 0);
    break;
  case 3: assert_int_equal(rename(path, other), 0); break;
  case 4: at = head < info.st_size ? head : at; /* fall through */
  default:
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (char)(byte ^ 1 << support_below(8));
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  }
  close(fd);
}
static void test_damaged(void **state) {
  const char *dir = fresh("damaged");
  struct loader l;
  (void)state;
  server_reset(STRONG);
  unsigned bad = 0;
  for (int round = 0; round < 40 / SLOW; round++) {
    /* those that do not ask must see it too */
    loader_open(&l, round & 1 ? any_mode() + 1 : any_mode(), dir, 0, round & 2);
    for (unsigned i = 0; i < OBJECTS; i++)
      if (objects[i].version) READ(&l, i, i + 1, PARTS);
    bad += l.server.sent;
    loader_close(&l);
    list_files(dir);
    assert_int_equal(n_files, present() * PARTS);
    for (unsigned i = 0; i < n_files; i++)
      if (!access(files[i], F_OK)) damage(files[i], files[support_below(n_files)]);
  }
  assert_true(bad > 40 / SLOW * present());
}

/* In a child, which then reads; its exit status: 0 is right. */
static int in_child(void (*fn)(const char *dir), const char *dir) {
  int status;
  pid_t child = start_child();
  if (!child) {
    fn(dir);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
#define CHILD_HOLDS(condition)                                                                     \
  do                                                                                               \
    if (!(condition)) {                                                                            \
      print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
      _exit(9);                                                                                    \
    }                                                                                              \
  while (0)
/* no file may be longer than 8 KiB: writing fails with EFBIG */
static void full_file(const char *dir) {
  struct loader l;
  insitu_error err = {0};
  CHILD_HOLDS(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){8192, 8192}));
  CHILD_HOLDS(!loader_try(&l, any_mode(), dir, 0, false, &err));
  read_range(&l, 0, OBJECTS, PARTS);
  l.disk.write_again = 0;
  read_range(&l, 0, OBJECTS, PARTS);
  CHILD_HOLDS(
      !l.wrong && l.disk.failed >= 2 && l.lines == 1 && strstr(l.line, "cannot be written"));
  loader_close(&l);
  look(dir);
  CHILD_HOLDS(seen.temporary == 0 && seen.charge == counted(dir));
}
static void full_disk(const char *dir) {
  struct loader l;
  insitu_error err = {0};
  CHILD_HOLDS(!loader_try(&l, any_mode(), dir, 0, false, &err));
  for (int i = 0; i < 4; i++) {
    read_range(&l, 0, OBJECTS, PARTS);
    l.disk.write_again = 0;
  }
  CHILD_HOLDS(!l.wrong && l.disk.failed >= 2 && l.lines == 1 && strstr(l.line, "No space left"));
  CHILD_HOLDS(l.disk.hits > 0 && l.disk.written > 0);
  loader_close(&l);
  look(dir);
  CHILD_HOLDS(seen.temporary == 0 && seen.charge == counted(dir));
}
static void test_full(void **state) {
  const char *dir = fresh("full");
  (void)state;
  server_reset(STRONG);
  assert_int_equal(in_child(full_file, dir), 0);
  const char *mounted = fresh("tmpfs");
  assert_int_equal(mkdir(mounted, 0700), 0);
  if (mount("tmpfs", mounted, "tmpfs", 0, "size=1m,mode=0700")) {
    print_message("no right to mount: the test of a full disk is left to that of a limit\n");
    return;
  }
  int status = in_child(full_disk, mounted);
  /* whoever looks around on the machine may just stand in it */
  assert_int_equal(umount2(mounted, MNT_DETACH), 0);
  assert_int_equal(status, 0);
}
enum { NO_WAY_IN = 77 }; /* as the other user: a folder above is closed to it */
static void read_only(const char *dir) {
  struct loader l;
  insitu_error err = {0};
  if (!geteuid()) CHILD_HOLDS(!setgid(65534) && !setuid(65534));
  if (access(dir, R_OK | X_OK)) _exit(NO_WAY_IN);
  CHILD_HOLDS(!loader_try(&l, any_mode(), dir, 0, false, &err));
  CHILD_HOLDS(l.disk.read_only && l.lines == 1);
  for (int i = 0; i < 3; i++) read_range(&l, 0, OBJECTS, 1);
  CHILD_HOLDS(!l.wrong && l.server.sent == 3 && l.server.unchanged == present() - 1 &&
              l.disk.written == 0 && l.lines == 1);
  loader_close(&l);
}
static int open_up(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)f;
  return chmod(path, kind == FTW_F ? 0444 : 0555);
}
static int close_down(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)f;
  return chmod(path, kind == FTW_F ? 0600 : 0700);
}
static void test_read_only(void **state) {
  const char *dir = fresh("readonly");
  struct loader l;
  (void)state;
  server_reset(STRONG);
  loader_open(&l, any_mode(), dir, 0, false);
  READ(&l, 0, OBJECTS, 1);
  loader_close(&l);
  objects[1].version++; /* and this one cannot be kept */
  assert_int_equal(chmod(support_dir, 0755), 0);
  assert_int_equal(nftw(dir, open_up, 16, FTW_PHYS), 0);
  int status = in_child(read_only, dir);
  assert_int_equal(nftw(dir, close_down, 16, FTW_PHYS), 0);
  if (status == NO_WAY_IN) {
    print_message("%s is closed to other users: skipped\n", dir);
    skip();
  }
  assert_int_equal(status, 0);
}

static void refused(const char *dir, const char *why) {
  struct loader l;
  insitu_error err = {0};
  assert_true(loader_try(&l, any_mode(), dir, 0, false, &err) < 0);
  if (!strstr(err.message, why)) fail_msg("'%s' is not in '%s'", why, err.message);
  assert_true(!l.disk.reactor && err.status < 0);
}
static void test_refused(void **state) {
  char path[700];
  struct loader l;
  (void)state;
  const char *dir = fresh("refused");
  snprintf(path, sizeof path, "%s/thesis.tex", dir);
  support_write(path, "x", 1);
  refused(dir, "not empty");
  assert_int_equal(access(path, F_OK), 0);
  refused(path, "Not a directory");
  snprintf(path, sizeof path, "%s/a/b", dir);
  refused(path, "No such file");
  dir = fresh("marked");
  snprintf(path, sizeof path, "%s/" INSITU__DISK_MARKER, dir);
  support_write(path, "something else, and long enough to be a marker", 46);
  refused(dir, "another version");
  dir = fresh("open");
  assert_true(!mkdir(dir, 0700) && !chmod(dir, 0777));
  refused(dir, "others may write");
  assert_int_equal(chmod(dir, 0700), 0);
  loader_open(&l, any_mode(), dir, 0, false);
  loader_close(&l);
  /* a process that was killed before it had written the marker; and files that are none of ours
   * stay */
  snprintf(path, sizeof path, "%s/" INSITU__DISK_MARKER, dir);
  assert_int_equal(truncate(path, 0), 0);
  snprintf(path, sizeof path, "%s/00/notes.txt", dir);
  support_write(path, "x", 1);
  loader_open(&l, any_mode(), dir, 0, false);
  assert_int_equal(counted(dir), 0);
  loader_close(&l);
  assert_int_equal(access(path, F_OK), 0);
}

/* All folders and entries go away under a loader, as under one who clears old things from /tmp:
 * they are made again. */
static void test_cleared(void **state) {
  char path[700];
  (void)state;
  EACH_MODE (m) {
    const char *dir = fresh("cleared");
    struct loader l;
    server_reset(STRONG);
    loader_open(&l, m, dir, 0, false);
    for (uint64_t all = present(), round = 1; round < 4; round++) {
      READ(&l, 0, OBJECTS, 1);
      assert_true(l.server.sent == round * all && l.disk.written == round * all);
      READ(&l, 0, OBJECTS, 1);
      assert_int_equal(l.disk.hits, round * all);
      for (int i = -1; i < 256; i++) {
        snprintf(path, sizeof path, i < 0 ? "%s/tmp" : "%s/%02x", dir, i);
        support_remove(path);
      }
      look(dir);
      assert_int_equal(seen.files, 0);
    }
    assert_true(l.disk.failed == 0 && l.lines == 0);
    loader_close(&l);
  }
}

/* The directory goes away under a loader, and a file stands where a folder should. */
static void test_vanished(void **state) {
  const char *dir = fresh("vanished");
  char path[700];
  struct loader l;
  (void)state;
  server_reset(STRONG);
  loader_open(&l, any_mode(), dir, 0, false);
  READ(&l, 0, OBJECTS, PARTS);
  support_remove(dir);
  for (int i = 0; i < 3; i++) {
    l.disk.write_again = 0;
    READ(&l, 0, OBJECTS, 1);
  }
  assert_true(l.disk.failed > 0 && l.lines == 1);
  loader_close(&l);
  for (unsigned i = 0; i < 256; i++) {
    snprintf(path, sizeof path, "%s/%02x", dir, i);
    if (i % 2) support_write(path, "x", 1);
  }
  refused(dir, "not empty");
  support_remove(dir);
  loader_open(&l, any_mode(), dir, 0, false);
  for (unsigned i = 1; i < 256; i += 2) {
    snprintf(path, sizeof path, "%s/%02x", dir, i);
    support_write(path, "x", 1);
  }
  for (int i = 0; i < 3; i++) {
    l.disk.write_again = 0;
    READ(&l, 0, OBJECTS, PARTS);
  }
  assert_true(l.disk.failed > 0 && l.lines == 1);
  loader_close(&l);
}

static void test_header(void **state) {
  (void)state;
  unsigned char bytes[700];
  struct insitu__disk_header *header = (struct insitu__disk_header *)bytes;
  struct insitu__disk_id ask = {"s3://b", "x/0.0", 12, 1000, 0}, other;
  struct insitu__disk_entry e, got;
  memset(&e, 0, sizeof e);
  e.confirmed = 5, e.used = 6, e.payload = 58, e.crc = 0x12345678;
  e.version.total = 70, e.version.modified = 1700000000, e.version.settled = true;
  strcpy(e.etag, "\"abc\"");
  insitu__http_version_etag(&e.version, e.etag, 5);
  uint64_t head = insitu__disk_header_bytes(ask.name, ask.key), n = head + e.payload;
  assert_true(head < sizeof bytes);
  insitu__disk_header(header, &ask, &e);
  memset(&got, 0, sizeof got);
  assert_true(insitu__disk_parse(header, n, &ask, &got));
  assert_memory_equal(&e, &got, sizeof e);
  for (int i = 0; i < 4; i++) {
    other = ask;
    if (i == 0) other.name = "s3://c";
    if (i == 1) other.key = "x/0.1";
    if (i == 2) other.offset++;
    if (i == 3) other.asked++;
    assert_false(insitu__disk_parse(header, n, &other, &got));
  }
  other = (struct insitu__disk_id){"s3://bx", "/0.0", 12, 1000, 0};
  assert_false(insitu__disk_parse(header, n, &other, &got));
  assert_false(insitu__disk_parse(header, n - 1, &ask, &got));
  assert_false(insitu__disk_parse(header, n + 1, &ask, &got));
  assert_false(insitu__disk_parse(header, head - 1, &ask, &got));
  /* each bit counts; in the stamp, it only makes the entry one to be asked for */
  for (uint64_t i = 0; i < head * 8; i++) {
    bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    bool stamp =
        i / 8 >= INSITU__DISK_AT_STAMP && i / 8 < INSITU__DISK_AT_STAMP + INSITU__DISK_STAMP;
    assert_int_equal(insitu__disk_parse(header, n, &ask, &got), stamp);
    assert_true(!stamp || (got.confirmed == INT64_MIN && got.used == INT64_MIN));
    bytes[i / 8] ^= (unsigned char)(1 << i % 8);
  }
  assert_true(insitu__http_etag_usable("\"a\"") && !insitu__http_etag_usable("") &&
              !insitu__http_etag_usable("W/\"a\"") && !insitu__http_etag_usable("a b"));
  assert_true(!insitu__http_etag_usable("a\r\nb") && insitu__http_etag_usable("0x8D4"));
  char path[2][INSITU__DISK_PATH];
  insitu__disk_path(&ask, path[0]);
  /* stays the same over releases */
  assert_string_equal(path[0], "96/72471862e7ddf138239b149edb8241");
  assert_true(path[0][2] == '/' && strlen(path[0]) == INSITU__DISK_PATH - 1);
  for (int i = 0; i < 6; i++) {
    other = ask;
    if (i == 0) other.name = "s3://c";
    if (i == 1) other.key = "x/0.1";
    if (i == 2) other.offset++;
    if (i == 3) other.asked++;
    if (i == 4) other = (struct insitu__disk_id){"s3://bx", "/0.0", 12, 1000, 0};
    if (i == 5) other.key = "x/0.0\1";
    insitu__disk_path(&other, path[1]);
    assert_string_not_equal(path[0], path[1]);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_header),
      cmocka_unit_test(test_epochs),
      cmocka_unit_test(test_one_request_for_each_object),
      cmocka_unit_test(test_change),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_turned_back),
      cmocka_unit_test(test_without_etag),
      cmocka_unit_test(test_shared),
      cmocka_unit_test(test_two_loaders),
      cmocka_unit_test(test_given_back_late),
      cmocka_unit_test(test_budget),
      cmocka_unit_test(test_made_at_once),
      cmocka_unit_test(test_not_made),
      cmocka_unit_test(test_oldest_first),
      cmocka_unit_test(test_killed),
      cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_full),
      cmocka_unit_test(test_read_only),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_cleared),
      cmocka_unit_test(test_vanished),
      cmocka_unit_test_teardown(test_killed_renaming, not_renamed),
      cmocka_unit_test(test_replaced),
      cmocka_unit_test(test_folders),
      cmocka_unit_test(test_room),
      cmocka_unit_test(test_many_ranks),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, setup, support_teardown);
}
