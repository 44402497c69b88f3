/* Objects that are replaced while they are read, from a server that breaks bodies off: every case
 * is drawn from a seed. A
 * case has two versions of one object, whose bytes differ everywhere, and for each the validators
 * that the server tells:
 * ETags that are short, longer than any buffer, weak or missing, and dates that are old, of just
 * now or missing. It has a request from which on the server has the second version, and faults:
 * bodies that end at any byte, that are chunked, that
 * have no length, ranges that are ignored. Some cases go through the cache on disk, over several
 * runs.
 *
 * What must hold: a read that succeeds gives bytes of one version alone; all reads of one run are
 * of one version, where
 * anything that the server tells differs between the two; without faults and replacing every read
 * succeeds; and what a cache
 * has is never less than the object. Included by test_http_reads.c, whose server, store and reads
 * these are. */
#ifndef TESTS_FAULTY_H
#define TESTS_FAULTY_H

enum { FAULTY_LARGEST = 240, FAULTY_READS = 3, FAULTY_RUNS = 3 };
struct faulty_version {
  uint64_t n;
  char etag[8100], modified[40]; /* "": none */
  bool weak, young;              /* the ETag is weak; the date is of just now */
};
struct faulty {
  unsigned number;
  uint64_t random;
  struct faulty_version version[2];
  bool cached, chunked, no_length, no_ranges;
  /* the request from which on the server has the second version; UINT_MAX: never */
  unsigned swap_at;
  uint64_t cut, cuts; /* the byte that bodies end at; so many of them */
  int large;          /* bytes beyond a part that a large object has; 0: it is small */
};
static struct { uint64_t right, changed, failed, cases; } faulty_sum;

static uint64_t faulty_below(struct faulty *f, uint64_t n) {
  return server__mix(f->random += 0x9e3779b97f4a7c15) % n;
}
static char faulty_byte(const struct faulty *f, int version, uint64_t at) {
  return (char)((server__mix(f->number * 1000003ull + at) & 0x7f) | (version ? 0x80u : 0));
}
static void faulty_etag(struct faulty *f, struct faulty_version *v, int version) {
  char *to = v->etag;
  uint64_t kind = faulty_below(f, 6);
  v->weak = kind >= 4;
  v->etag[0] = 0;
  if (kind == 0) return;
  uint64_t n = kind == 1 || kind == 4 ? 1 + faulty_below(f, 20)
                                      : 180 + faulty_below(f, kind == 2 ? 30 : 7800);
  if (v->weak) to = stpcpy(to, "W/");
  *to++ = '"';
  /* the version shows in the last character alone; weak ones may be the same */
  for (uint64_t i = 0; i < n; i++) *to++ = (char)('a' + i % 26);
  *to++ = version && !(v->weak && faulty_below(f, 3) == 0) ? 'Y' : 'X';
  strcpy(to, "\"");
}
static void faulty_draw(struct faulty *f, unsigned seed, unsigned number) {
  memset(f, 0, sizeof *f);
  f->number = number;
  f->random = server__mix(seed) ^ server__mix(number + 1);
  f->large = faulty_below(f, 150) ? 0 : 1 + (int)faulty_below(f, 5000);
  for (int k = 0; k < 2; k++) {
    struct faulty_version *v = &f->version[k];
    uint64_t how = faulty_below(f, 4);
    v->n = 1 + faulty_below(f, FAULTY_LARGEST);
    if (f->large) v->n = (uint64_t)INSITU__REMOTE_PART + (uint64_t)f->large;
    if (k && faulty_below(f, 3)) v->n = f->version[0].n;
    /* the same server still, so that the same validators are told, with other values */
    if (k && faulty_below(f, 3)) {
      struct faulty_version *w = &f->version[0];
      *v = (struct faulty_version){.n = v->n, .weak = w->weak, .young = w->young};
      snprintf(v->etag, sizeof v->etag, "%s", w->etag);
      size_t n = strlen(v->etag);
      if (n && !(v->weak && faulty_below(f, 3) == 0)) v->etag[n - 2] = 'Y';
      snprintf(v->modified, sizeof v->modified, "%s", w->modified);
      if (v->modified[0] && !v->young) v->modified[6] = '2';
      continue;
    }
    faulty_etag(f, v, k);
    v->young = how == 1;
    if (how == 1) server__date(time(NULL), v->modified);
    else if (how)
      snprintf(v->modified, sizeof v->modified, "Tue, 1%d Nov 1994 08:12:31 GMT", k + 4);
    if (how == 2) v->modified[6] = k ? '6' : '4';
  }
  f->cached = faulty_below(f, 3) == 0;
  f->chunked = faulty_below(f, 4) == 0;
  f->no_length = !f->chunked && faulty_below(f, 6) == 0;
  f->no_ranges = faulty_below(f, 8) == 0;
  f->swap_at = faulty_below(f, 5) ? (unsigned)faulty_below(f, 6) : UINT_MAX;
  f->cuts = faulty_below(f, 4);
  f->cut = faulty_below(f, f->version[0].n + 8);
  if (f->large && faulty_below(f, 2)) f->cut = faulty_below(f, 2 * (uint64_t)f->large);
}
/* Does anything that a server tells differ between the versions, so that no two answers of them may
 * be taken for one object's? */
static bool faulty_told(const struct faulty *f) {
  const struct faulty_version *a = &f->version[0], *b = &f->version[1];
  if (a->n != b->n && !f->chunked && !f->no_length) return true;
  if (a->etag[0] && b->etag[0]) {
    const char *x = a->etag + (a->weak ? 2 : 0), *y = b->etag + (b->weak ? 2 : 0);
    if (strcmp(x, y)) return true;
    return a->modified[0] && b->modified[0] && strcmp(a->modified, b->modified);
  }
  if (a->modified[0] && b->modified[0] && strcmp(a->modified, b->modified)) return true;
  return !a->etag[0] != !b->etag[0] || !a->modified[0] != !b->modified[0];
}
static void faulty_rules(const struct faulty *f, const char *key, bool faults) {
  const struct faulty_version *a = &f->version[0], *b = &f->version[1];
  uint64_t at = f->swap_at;
  if (at) {
    server_rule(server,
        (struct server_rule){
            .key = key, .count = at == UINT_MAX ? 0 : at, .fault = SERVER_ETAG, .text = a->etag});
    server_rule(server, (struct server_rule){.key = key,
                            .count = at == UINT_MAX ? 0 : at,
                            .fault = SERVER_MODIFIED,
                            .text = a->modified});
  }
  if (at != UINT_MAX) {
    server_rule(server,
        (struct server_rule){.key = key, .skip = at, .fault = SERVER_ETAG, .text = b->etag});
    server_rule(server, (struct server_rule){
                            .key = key, .skip = at, .fault = SERVER_MODIFIED, .text = b->modified});
    server_rule(server,
        (struct server_rule){.key = key, .skip = at, .fault = SERVER_SWAP, .text = "second"});
  }
  if (f->chunked)
    server_rule(server,
        (struct server_rule){.key = key, .fault = SERVER_CHUNKED, .at = 1 + (int64_t)f->cut / 3});
  if (f->no_length)
    server_rule(server, (struct server_rule){.key = key, .fault = SERVER_UNTIL_CLOSE});
  if (f->no_ranges) server_rule(server, (struct server_rule){.key = key, .fault = SERVER_WHOLE});
  enum server_fault fault = f->number % 2 ? SERVER_CLOSE : SERVER_RESET;
  if (faults && f->cuts)
    server_rule(server,
        (struct server_rule){.key = key, .count = f->cuts, .fault = fault, .at = (int64_t)f->cut});
}
/* Which version the bytes are of, -1: of both, or of none; n bytes, of a read of `room` bytes at
 * offset. *all: there are as many as the object has there. */
static int faulty_match(
    const struct faulty *f, uint64_t offset, uint64_t room, uint64_t n, bool *all) {
  int found = -1;
  *all = false;
  for (int k = 1; k >= 0; k--) {
    uint64_t size = f->version[k].n;
    uint64_t from = offset == INSITU__RING_TAIL ? size - insitu__base_min(size, room)
                                                : insitu__base_min(offset, size),
             i = 0;
    while (i < n && ask.to[i] == faulty_byte(f, k, from + i)) i++;
    if (i < n) continue;
    found = found < 0 ? k : found;
    *all = *all || n == insitu__base_min(room, size - from);
  }
  return found;
}
#define FAULTY_HOLDS(condition, ...)                                                               \
  do                                                                                               \
    if (!(condition)) {                                                                            \
      print_error("case %u: ", f->number);                                                         \
      fail_msg(__VA_ARGS__);                                                                       \
    }                                                                                              \
  while (0)
/* The reads of one run, which begins with request `before`. faults: bodies may be broken off in it.
 */
static void faulty_run(struct faulty *f, const char *key, unsigned run, bool faults) {
  bool seen[2] = {false, false}, all;
  for (int i = 0; i < FAULTY_READS; i++) {
    uint64_t largest = insitu__base_max(f->version[0].n, f->version[1].n), n = largest, offset = 0;
    ask.whole = i == 0;
    if (i == 1) offset = faulty_below(f, largest), n = 1 + faulty_below(f, largest);
    if (i == 2) offset = INSITU__RING_TAIL, n = 1 + faulty_below(f, largest);
    if (i && (f->large || f->no_ranges)) break;
    asked(key, offset, n + (i == 0));
    ask.whole = false;
    uint64_t requests = server_stats(server).requests;
    bool swaps = requests > f->swap_at; /* both versions may have been seen */
    bool open_end = f->no_length && faults && f->cuts;
    if (ask.status == INSITU_E_CHANGED) {
      faulty_sum.changed++;
      FAULTY_HOLDS(
          swaps, "run %u, read %d: '%s', and nothing was replaced", run, i, ask.err.message);
      continue;
    }
    if (ask.status) {
      faulty_sum.failed++;
      FAULTY_HOLDS(ask.status == INSITU_E_HTTP && (faults || i == 2), "run %u, read %d: '%s'", run,
          i, ask.err.message);
      continue;
    }
    int version = faulty_match(f, offset, n + (i == 0), ask.got, &all);
    FAULTY_HOLDS(version >= 0, "run %u, read %d: %d bytes of two versions", run, i, (int)ask.got);
    FAULTY_HOLDS(all || open_end, "run %u, read %d: %d bytes are less than the object has", run, i,
        (int)ask.got);
    faulty_sum.right++;
    if (ask.got) seen[version] = true;
  }
  FAULTY_HOLDS(!seen[0] || !seen[1] || !faulty_told(f),
      "run %u: reads of two versions, which the server told apart", run);
}
static void faulty_case(unsigned seed, unsigned number) {
  struct faulty drawn, *f = &drawn;
  const char *key = "case";
  insitu_error err = {0};
  const char *dir = support_path("faulty");
  faulty_draw(f, seed, number);
  server_reset(server);
  char *bytes = malloc((size_t)insitu__base_max(f->version[0].n, f->version[1].n));
  for (int k = 0; k < 2; k++) {
    for (uint64_t i = 0; i < f->version[k].n; i++) bytes[i] = faulty_byte(f, k, i);
    server_put(server, k ? "second" : key, bytes, f->version[k].n);
  }
  free(bytes);
  support_remove(dir);
  if (getenv("FAULTY_SAY"))
    for (int k = 0; k < 2; k++)
      print_message("version %d: %d bytes, ETag '%.40s' of %d, date '%s'\n", k,
          (int)f->version[k].n, f->version[k].etag, (int)strlen(f->version[k].etag),
          f->version[k].modified);
  if (getenv("FAULTY_SAY"))
    print_message("cached %d, chunked %d, no length %d, no ranges %d, another from request %d on, "
                  "%d bodies end at %d\n",
        f->cached, f->chunked, f->no_length, f->no_ranges, (int)f->swap_at, (int)f->cuts,
        (int)f->cut);
  unsigned runs = f->cached ? FAULTY_RUNS : 1;
  for (unsigned run = 0; run < runs; run++) {
    struct insitu__disk disk = {0};
    struct insitu__disk_desc d = {.dir = dir, .name = "http://faulty"};
    bool faults = run + 1 < runs || !f->cached;
    /* a server that has healed, with the version that it had last */
    if (run == 0 || run + 1 == runs) {
      if (run && server_stats(server).requests > f->swap_at) f->swap_at = 0;
      else if (run && f->swap_at != UINT_MAX)
        f->swap_at = f->swap_at > server_stats(server).requests ? UINT_MAX : 0;
      server_reset(server);
      faulty_rules(f, key, faults);
    }
    open_store(EPOLL, NULL, 0);
    if (f->cached && insitu__disk_open(&disk, &reactor, &d, &err)) fail_msg("%s", err.message);
    if (f->cached) {
      store.front = &disk;
      store.front_await = insitu__disk_read_await;
    }
    faulty_run(f, key, run, faults);
    close_store();
    insitu__disk_close(&disk);
  }
  faulty_sum.cases++;
}
/* A body that was cut short, and of whose length nothing told, is not kept: the next run gets all
 * of the object. */
static void test_cut_short_is_not_kept(void **state) {
  (void)state;
  const char *dir = support_path("cut_short");
  for (int run = 0; run < 3; run++) {
    struct insitu__disk disk = {0};
    insitu_error err = {0};
    server_reset(server);
    server_text(server, "short", "0123456789");
    server_rule(server, (struct server_rule){.fault = SERVER_UNTIL_CLOSE});
    if (!run) server_rule(server, (struct server_rule){.fault = SERVER_CLOSE, .at = 4});
    open_store(EPOLL, NULL, 0);
    if (insitu__disk_open(
            &disk, &reactor, &(struct insitu__disk_desc){.dir = dir, .name = "http://x"}, &err))
      fail_msg("%s", err.message);
    store.front = &disk;
    store.front_await = insitu__disk_read_await;
    ask.whole = true;
    asked("short", 0, 100);
    ask.whole = false;
    if (ask.status) fail_msg("%s", ask.err.message);
    assert_int_equal(ask.got, run ? 10 : 4);
    assert_memory_equal(ask.to, "0123456789", ask.got);
    assert_int_equal(disk.written, 0);
    close_store();
    insitu__disk_close(&disk);
  }
}
/* While an entry is revalidated, a server begins to send another object, breaks off, and then says
 * that the entry still holds. The bytes of that object, which came over those of the entry, are not
 * served. */
static void test_unchanged_behind_other_bytes(void **state) {
  (void)state;
  const char *dir = support_path("unchanged");
  for (int run = 0; run < 2; run++) {
    struct insitu__disk disk = {0};
    insitu_error err = {0};
    server_reset(server);
    server_text(server, "o", "old bytes");
    server_text(server, "new", "NEW BYTES");
    unsigned others = (unsigned)run; /* so many requests find the other object */
    server_rule(
        server, (struct server_rule){.skip = others, .fault = SERVER_ETAG, .text = "\"1\""});
    if (run) {
      server_rule(
          server, (struct server_rule){.count = 1, .fault = SERVER_ETAG, .text = "W/\"2\""});
      server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_SWAP, .text = "new"});
      server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = 4});
    }
    open_store(EPOLL, NULL, 0);
    if (insitu__disk_open(
            &disk, &reactor, &(struct insitu__disk_desc){.dir = dir, .name = "http://x"}, &err))
      fail_msg("%s", err.message);
    store.front = &disk;
    store.front_await = insitu__disk_read_await;
    asked("o", 0, 9);
    if (ask.status) fail_msg("%s", ask.err.message);
    assert_int_equal(ask.got, 9);
    assert_memory_equal(ask.to, "old bytes", 9);
    assert_int_equal(disk.written, 1);
    assert_int_equal(server_stats(server).requests, run ? 3 : 1);
    close_store();
    insitu__disk_close(&disk);
  }
}
/* A body that breaks off at every byte, and goes on from an object that replaced it: every pair of
 * validators. What comes is
 * the new object whole, or told as changed. */
static void test_replaced(void **state) {
  (void)state;
  enum { N = 9 };
  char longer[8000], other[8000];
  memset(longer, 'l', sizeof longer);
  longer[0] = longer[7998] = '"';
  longer[7999] = 0;
  memcpy(other, longer, sizeof longer);
  other[7997] = 'm';
  const struct {
    const char *name, *etag[2], *modified[2];
  } kinds[] = {{"none", {"", ""}, {"", ""}}, {"short", {"\"1\"", "\"2\""}, {"", ""}},
      {"long", {longer, other}, {"", ""}}, {"weak", {"W/\"1\"", "W/\"2\""}, {"", ""}},
      {"weak, the same", {"W/\"1\"", "W/\"1\""}, {"", ""}},
      {"date", {"", ""}, {"Tue, 15 Nov 1994 08:12:31 GMT", "Tue, 15 Nov 1994 08:12:32 GMT"}},
      {"no date", {"", ""}, {"x", "y"}}, {"young date", {"", ""}, {NULL, NULL}}};
  const int n_kinds = sizeof kinds / sizeof *kinds;
  unsigned anew = 0, changed = 0;
  server_reset(server);
  server_put(server, "o", "old bytes", N);
  server_put(server, "new", "NEW BYTES", N);
  open_store(EPOLL, NULL, 0);
  for (int i = 0; i < n_kinds * n_kinds; i++)
    for (int cut = 0; cut <= N; cut++) {
      int a = i / n_kinds, b = i % n_kinds;
      char key[40]; /* of its own: the store knows objects again */
      snprintf(key, sizeof key, "o%d-%d", i, cut);
      server_reset(server);
      server_put(server, key, "old bytes", N);
      server_rule(
          server, (struct server_rule){.count = 1, .fault = SERVER_ETAG, .text = kinds[a].etag[0]});
      if (kinds[a].modified[0])
        server_rule(
            server, (struct server_rule){
                        .count = 1, .fault = SERVER_MODIFIED, .text = kinds[a].modified[0]});
      server_rule(server, (struct server_rule){.count = 1, .fault = SERVER_CLOSE, .at = cut});
      server_rule(
          server, (struct server_rule){.skip = 1, .fault = SERVER_ETAG, .text = kinds[b].etag[1]});
      if (kinds[b].modified[1])
        server_rule(server, (struct server_rule){
                                .skip = 1, .fault = SERVER_MODIFIED, .text = kinds[b].modified[1]});
      server_rule(server, (struct server_rule){.skip = 1, .fault = SERVER_SWAP, .text = "new"});
      asked(key, 0, N);
      const char *want = cut == N ? "old bytes" : "NEW BYTES";
      if (ask.status && ask.status != INSITU_E_CHANGED) fail_msg("%s", ask.err.message);
      if (!ask.status && (ask.got != N || memcmp(ask.to, want, N)))
        fail_msg("%s, then %s, broken off at %d: '%.*s'", kinds[a].name, kinds[b].name, cut,
            (int)ask.got, ask.to);
      if (cut == 0 || cut == N) assert_int_equal(ask.status, INSITU_OK);
      anew += !ask.status;
      changed += ask.status != 0;
    }
  close_store();
  assert_true(anew > changed && changed > 0);
}
/* FAULTY_N cases of the seed FAULTY_SEED; FAULTY_ONLY: this one alone; FAULTY_SAY=1 tells what they
 * are. */
static void test_faulty(void **state) {
  (void)state;
  const char *n = getenv("FAULTY_N"), *seed = getenv("FAULTY_SEED"), *only = getenv("FAULTY_ONLY");
  unsigned first = only ? (unsigned)atoi(only) : 0,
           last = only ? first : (unsigned)(n ? atoi(n) : support_rounds(300)) - 1;
  for (unsigned i = first; i <= last; i++) faulty_case(seed ? (unsigned)atoi(seed) : 1, i);
  print_message("%d cases: %d reads right, %d told as changed, %d failed\n", (int)faulty_sum.cases,
      (int)faulty_sum.right, (int)faulty_sum.changed, (int)faulty_sum.failed);
  assert_true(only || faulty_sum.right > faulty_sum.cases / 2);
}
#endif
