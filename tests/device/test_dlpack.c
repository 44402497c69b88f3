/* What placement, DLPack, fixed addresses and a pool of the user's promise in a program without
 * CUDA. */
#include "insitubatch.h"
#include <pthread.h>
#include "support.h"
#include "modes.h"
#include "places.h"
#include "dlpack.h"

static insitu_iter *iter_or_fail(insitu_loader *ld, uint32_t max_held, int32_t order) {
  return open_iter_or_fail(
      ld, &(insitu_iter_desc){
              .api = INSITU_API, .split = INSITU_ALL, .order = order, .max_held = max_held});
}
static struct seen *save(const insitu_batch *b) {
  struct seen *s = seen_new(b);
  for (uint64_t i = 0; i < b->n_arrays; i++)
    memcpy(s->arrays[i].data, b->arrays[i].data, b->arrays[i].bytes);
  return s;
}
static void check(const insitu_batch *b) {
  struct seen *s = save(b);
  seen_check(s);
  seen_free(s);
}

/* ---- placement ---- */

static atomic_int told;
static void log_placed(void *user, int32_t level, const char *line) {
  (void)user;
  if (strstr(line, "plain host memory") && strstr(line, "INSITU_WITH_CUDA") && level == 2)
    atomic_fetch_add(&told, 1);
}
static void test_no_cuda(void **state) {
  (void)state;
  assert_string_equal(insitu_status_name(INSITU_E_DEVICE), "INSITU_E_DEVICE");
  EACH_MODE (m) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, m, "30 10 00 20");
    places_refuse_open(d, INSITU_E_DEVICE, "variable d", "INSITU_WITH_CUDA");
    places_refuse_open(d, INSITU_E_DEVICE, "-lcudart", "INSITU_DEVICE_OR_HOST");
    places_desc(&p, m, "40 00 00 00");
    places_refuse_open(d, INSITU_E_ARG, "variable x", "INSITU_HOST");
    places_desc(&p, m, "30 17 00 30");
    d->log = log_placed;
    d->log_level = INSITU_LOG_INFO;
    atomic_store(&told, 0);
    insitu_loader *ld = open_or_fail(d);
    assert_int_equal(atomic_load(&told), 3);
    insitu_iter *it = iter_or_fail(ld, 0, 0);
    insitu_error err = {0};
    insitu_batch *b = next_batch_or_fail(it);
    for (uint64_t i = 0; i < VARS; i++) {
      assert_true(insitu_loader_array(ld, i)->place == INSITU_HOST &&
                  insitu_loader_array(ld, i)->device == 0);
      assert_true(b->arrays[i].place == INSITU_HOST && b->arrays[i].device == 0);
    }
    assert_int_equal(insitu_batch_wait(b, NULL, &err), INSITU_OK);
    check(b);
    insitu_batch_release_on(&b, NULL);
    assert_null(b);
    insitu_stats s;
    assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
    assert_true(s.uploads + s.uploaded_bytes + s.pinned_bytes + s.device_bytes == 0);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    /* planning takes for granted what is asked for */
    places_desc(&p, m, "20 00 00 00");
    d->plan_only = 1;
    d->inline_io = 0;
    ld = open_or_fail(d);
    insitu_plan plan;
    assert_int_equal(
        insitu_loader_plan(ld, &(insitu_iter_desc){.api = INSITU_API}, &plan, NULL), INSITU_OK);
    assert_int_equal(plan.device_bytes, 3 * 2048);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
}

/* ---- DLPack ---- */

static void test_fields(void **state) {
  (void)state;
  /* 55 anchors: rank 2 has 17 and, in the second batch, none */
  for (int32_t rank = 0; rank < 3; rank++) {
    struct places p;
    insitu_loader_desc *d = places_desc(&p, EPOLL, "00 00 00 00");
    d->world = 3;
    d->rank = rank;
    d->lanes = 3;
    d->batch_size = 18;
    d->sample_stop = 58;
    insitu_loader *ld = open_or_fail(d);
    insitu_iter *it = iter_or_fail(ld, 0, INSITU_SEQUENTIAL);
    for (uint64_t n = 0; n < 2; n++) {
      insitu_batch *b = next_batch_or_fail(it);
      assert_int_equal(b->rows, n ? rank < 2 : rank < 2 ? 18 : 17);
      for (uint64_t i = 0; i < 2 * VARS; i++) {
        struct dl e = dl_export(b, i / 2, i % 2, NULL);
        dl_check(e, b, i / 2, DL_CPU, 0, places_dl[i / 2].code, places_dl[i / 2].bits,
            places_dl[i / 2].n_inner, places_dl[i / 2].inner);
        dl_delete(e);
      }
      insitu_batch_release(&b);
    }
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
}

/* Every type that an array may have, bool and those without a C type among them; bool is shown as
 * each of the others, too. */
static void test_types(void **state) {
  static const struct {
    const char *name;
    int code, bits;
  } type[] = {{"int8", 0, 8}, {"int16", 0, 16}, {"int32", 0, 32}, {"int64", 0, 64}, {"uint8", 1, 8},
      {"uint16", 1, 16}, {"uint32", 1, 32}, {"uint64", 1, 64}, {"float16", 2, 16},
      {"float32", 2, 32}, {"float64", 2, 64}, {"bfloat16", 4, 16}, {"complex64", 5, 64},
      {"complex128", 5, 128}, {"bool", 6, 8}};
  (void)state;
  const char *root = support_path("types");
  for (size_t k = 0; k < sizeof type / sizeof *type; k++) {
    char path[700], text[600];
    static const unsigned char chunk[16 * 3 * 16];
    snprintf(path, sizeof path, "%s/zarr.json", root);
    snprintf(text, sizeof text,
        "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[16,3],\"data_type\":\"%s\",\"chunk_"
        "grid\":{\"name\":\"regular\","
        "\"configuration\":{\"chunk_shape\":[16,3]}},\"chunk_key_encoding\":{\"name\":\"default\"},"
        "\"fill_value\":%s,"
        "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}]}",
        type[k].name,
        type[k].code == 6   ? "false"
        : type[k].code == 5 ? "[0,0]"
                            : "0");
    support_write(path, text, strlen(text));
    snprintf(path, sizeof path, "%s/c/0/0", root);
    support_write(path, chunk, (size_t)(16 * 3 * type[k].bits / 8));
    enum { REAL = 12 }; /* the first types: they are no complex ones */
    insitu_variable v[REAL + 1] = {{.label = "v", .path = ""}};
    for (int i = 0; i < REAL; i++)
      v[i + 1] = (insitu_variable){
          .label = type[i].name, .path = "", .dtype = type[i].code << 8 | type[i].bits};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = v,
        .n_variables = type[k].code == 6 ? REAL + 1 : 1,
        .batch_size = 4,
        .decode_threads = 1};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = iter_or_fail(ld, 0, 0);
    insitu_batch *b = next_batch_or_fail(it);
    for (int versioned = 0; versioned < 2; versioned++) {
      struct dl e = dl_export(b, 0, versioned, NULL);
      dl_check(e, b, 0, DL_CPU, 0, type[k].code, type[k].bits, 1, (const int64_t[]){3});
      dl_delete(e);
      for (uint64_t i = 1; i < d.n_variables; i++) {
        e = dl_export(b, i, versioned, NULL);
        dl_check(e, b, i, DL_CPU, 0, type[i - 1].code, type[i - 1].bits, 1, (const int64_t[]){3});
        dl_delete(e);
      }
    }
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    support_remove(root);
  }
}

/* ---- lifetime ---- */

static void *delete_there(void *arg) {
  for (struct dl *e = arg; e->managed; e++) dl_delete(*e);
  return NULL;
}

/* An export holds its batch: beyond the batch's release, the iterator and the loader, until a
 * deleter has run on any thread. */
static void test_exports(void **state) {
  (void)state;
  EACH_MODE (m)
    for (int closed = 0; closed < 3; closed++) { /* nothing; the iterator; both */
      struct places p;
      insitu_loader *ld = open_or_fail(places_desc(&p, m, "00 00 00 00"));
      insitu_iter *it = iter_or_fail(ld, 2, INSITU_SHUFFLED);
      insitu_batch *b[2] = {next_batch_or_fail(it), next_batch_or_fail(it)}, *none;
      struct seen *s[2] = {save(b[0]), save(b[1])};
      struct dl e[3][2 * VARS + 1] = {0};
      for (int t = 0; t < 2; t++)
        for (uint64_t i = 0; i < 2 * VARS; i++) e[t][i] = dl_export(b[t], i / 2, i % 2, NULL);
      insitu_batch_release(&b[1]);
      assert_int_equal(insitu_iter_next(it, 0, &none, NULL), INSITU_BUSY);
      insitu_batch_release(&b[0]);
      assert_int_equal(insitu_iter_next(it, 0, &none, NULL), INSITU_BUSY);
      e[2][0] = e[0][2 * VARS - 1]; /* the last holder of batch 0 */
      e[0][2 * VARS - 1].managed = NULL;
      delete_there(e[0]);
      assert_int_equal(insitu_iter_next(it, 0, &none, NULL), INSITU_BUSY);
      if (closed) insitu_iter_close(&it);
      if (closed == 2) insitu_loader_close(&ld);
      for (int t = 0; t < 2; t++)
        for (uint64_t i = 0; i < 2 * VARS; i++) { /* what is left shows what was delivered */
          const struct dl *one = t ? &e[1][i] : &e[2][0];
          uint64_t of = t ? i / 2 : VARS - 1;
          assert_memory_equal(dl_tensor(*one)->data, s[t]->arrays[of].data, s[t]->arrays[of].bytes);
        }
      pthread_t thread[2];
      for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, delete_there, e[t + 1]), 0);
      for (int t = 0; t < 2; t++) assert_int_equal(pthread_join(thread[t], NULL), 0);
      for (int i = 0; !closed && i < 3; i++) { /* both batches are free again */
        b[0] = next_batch_or_fail(it);
        check(b[0]);
        insitu_batch_release(&b[0]);
      }
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      for (int t = 0; t < 2; t++) {
        seen_check(s[t]);
        seen_free(s[t]);
      }
    }
}

/* Holders let go in any order, before and after closing; max_held counts batches that anybody
 * holds. */
enum { HELD = 3, EXPORTS = 5 };
struct holding {
  insitu_batch *b;
  struct seen *was;
  struct dl e[EXPORTS];
  uint64_t of[EXPORTS];
  int n;
};
static void let_go(struct holding *h) {
  if (h->b && (!h->n || support_below(2))) {
    check(h->b);
    insitu_batch_release(&h->b);
  } else {
    int k = (int)support_below((uint64_t)h->n);
    const insitu_array *a = &h->was->arrays[h->of[k]];
    assert_memory_equal(dl_tensor(h->e[k])->data, a->data, a->bytes);
    assert_int_equal(dl_tensor(h->e[k])->shape[0], h->was->b.rows);
    dl_delete(h->e[k]);
    h->e[k] = h->e[--h->n];
    h->of[k] = h->of[h->n];
  }
  if (h->b || h->n) return;
  seen_free(h->was);
  h->was = NULL;
}
static void test_holders(void **state) {
  (void)state;
  EACH_MODE (m)
    for (uint64_t seed = 0; seed < 25; seed++) {
      struct places p;
      struct holding h[HELD] = {{0}};
      support_random_state = seed * 1000 + 1;
      insitu_loader *ld = open_or_fail(places_desc(&p, m, "00 00 00 00"));
      insitu_iter *it = iter_or_fail(ld, HELD, INSITU_SHUFFLED);
      for (int step = 0, steps = 10 + (int)support_below(60);
           it || ld || h[0].was || h[1].was || h[2].was; step++) {
        struct holding *one = &h[support_below(HELD)];
        if (it && step >= steps && support_below(2)) insitu_iter_close(&it);
        /* before its iterator, or after it */
        if (ld && step >= steps && !support_below(3)) insitu_loader_close(&ld);
        if (!it || !ld || !support_below(3)) {
          if (one->was) let_go(one);
        } else if (one->b && one->n < EXPORTS && support_below(2)) {
          one->of[one->n] = support_below(VARS);
          one->e[one->n] = dl_export(one->b, one->of[one->n], support_below(2), NULL);
          one->n++;
        } else {
          bool all = h[0].was && h[1].was && h[2].was;
          insitu_batch *b;
          insitu_status status = insitu_iter_next(it, 20000, &b, NULL);
          if (status == INSITU_END) continue;
          assert_int_equal(status, all ? INSITU_BUSY : INSITU_OK);
          if (status) continue;
          while (one->was) one = &h[(one - h + 1) % HELD];
          one->b = b;
          one->was = save(b);
          seen_check(one->was);
        }
      }
    }
}

/* Every call with an iterator whose loader is closed. */
static void refuses_all(insitu_iter *it, const insitu_state *resume) {
  insitu_batch *b = (insitu_batch *)&b;
  int64_t anchor = -7;
  insitu_error err[4] = {{0}};
  assert_int_equal(insitu_iter_next(it, 0, &b, &err[0]), INSITU_E_ARG);
  assert_int_equal(insitu_iter_set_epoch(it, 1, &err[1]), INSITU_E_ARG);
  assert_int_equal(insitu_iter_restore(it, resume, &err[2]), INSITU_E_ARG);
  assert_int_equal(insitu_iter_locate(it, 0, 0, 0, &anchor, &err[3]), INSITU_E_ARG);
  assert_true(!b && anchor == -7);
  for (int i = 0; i < 4; i++)
    HAS(err[i].message, "the loader of this iterator was closed; close the iterator as well");
}

/* A loader, two of its iterators, a held batch, a tensor of that, and a tensor of a batch that was
 * released: they end in each of the 720 orders. What is held can be read meanwhile, and an iterator
 * without its loader refuses every call. */
static void test_closing_orders(void **state) {
  (void)state;
  for (int order = 0; order < 720; order++) {
    enum { LOADER, FIRST, SECOND, BATCH, TENSOR, OTHER, THINGS };
    int left[THINGS] = {LOADER, FIRST, SECOND, BATCH, TENSOR, OTHER}, m = order % MODES;
    if (!mode_usable(m)) continue;
    struct places p;
    insitu_loader *ld = open_or_fail(places_desc(&p, m, "00 00 00 00"));
    insitu_iter *it[2] = {
        iter_or_fail(ld, 2, INSITU_SHUFFLED), iter_or_fail(ld, 2, INSITU_SEQUENTIAL)};
    insitu_batch *b = next_batch_or_fail(it[0]), *gone = next_batch_or_fail(it[0]);
    insitu_state resume = b->after;
    struct seen *was[2] = {save(b), save(gone)};
    struct dl e[2] = {dl_export(b, 0, order & 1, NULL), dl_export(gone, 1, order & 2, NULL)};
    bool there[2] = {true, true};
    insitu_batch_release(&gone);
    for (int n = THINGS, rest = order; n > 0; rest /= n--) {
      int what = left[rest % n];
      left[rest % n] = left[n - 1];
      if (what == LOADER) insitu_loader_close(&ld);
      else if (what == FIRST || what == SECOND) insitu_iter_close(&it[what - FIRST]);
      else if (what == BATCH) insitu_batch_release(&b);
      else dl_delete(e[what - TENSOR]), there[what - TENSOR] = false;
      if (b) check(b);
      for (int i = 0; i < 2; i++) {
        const insitu_array *a = &was[i]->arrays[i];
        if (there[i]) assert_memory_equal(dl_tensor(e[i])->data, a->data, a->bytes);
        if (it[i] && !ld) refuses_all(it[i], &resume);
      }
      if (it[1] && ld && n == THINGS) { /* the others do not mind */
        insitu_batch *more = next_batch_or_fail(it[1]);
        insitu_batch_release(&more);
      }
    }
    assert_true(!ld && !it[0] && !it[1] && !b && !there[0] && !there[1]);
    insitu_iter_close(&it[0]); /* NULL by now */
    for (int i = 0; i < 2; i++) seen_free(was[i]);
  }
}

static void test_forked_child(void **state) {
  (void)state;
  if (getenv("TEST_VALGRIND")) skip(); /* it reports what a child must leave alone as leaks */
  EACH_MODE (m) {
    struct places p;
    insitu_loader *ld = open_or_fail(places_desc(&p, m, "00 00 00 00"));
    insitu_iter *it = iter_or_fail(ld, 2, INSITU_SHUFFLED);
    insitu_batch *b = next_batch_or_fail(it);
    struct dl e[2] = {dl_export(b, 0, true, NULL), dl_export(b, 1, false, NULL)};
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
      insitu_error err = {0};
      void *managed;
      static float fixed[8 * 60];
      bool ok = insitu_batch_wait(b, NULL, &err) == INSITU_E_FORKED && strstr(err.message, "fork");
      ok = ok && insitu_batch_copy_to(b, 0, fixed, sizeof fixed, NULL, NULL) == INSITU_E_FORKED;
      ok = ok && insitu_batch_dlpack(b, 0, 1, NULL, &managed, NULL) == INSITU_E_FORKED && !managed;
      dl_delete(e[0]);
      dl_delete(e[1]);
      insitu_batch_release_on(&b, NULL);
      _exit(ok && !b ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check(b);
    dl_delete(e[0]);
    insitu_batch_release(&b);
    dl_delete(e[1]);
    b = next_batch_or_fail(it);
    check(b);
    insitu_batch_release(&b);
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
}

/* ---- fixed addresses, and misuse ---- */

static void test_copy_to(void **state) {
  (void)state;
  EACH_MODE (m) {
    struct places p;
    insitu_loader *ld = open_or_fail(places_desc(&p, m, "00 00 00 00"));
    insitu_iter *it = iter_or_fail(ld, 1, INSITU_SEQUENTIAL);
    uint64_t n = 0;
    insitu_batch *b;
    for (; insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK; n++) {
      struct seen *s = seen_new(b);
      for (uint64_t i = 0; i < VARS; i++) {
        insitu_error err = {0};
        uint64_t full = insitu_loader_array(ld, i)->bytes, bytes = b->arrays[i].bytes;
        unsigned char *fixed = malloc(full + 1);
        memset(fixed, 0xEE, full + 1);
        assert_int_equal(
            insitu_batch_copy_to(b, i, fixed, n % 2 ? full : bytes, NULL, &err), INSITU_OK);
        assert_int_equal(fixed[bytes], 0xEE); /* not a byte more than the rows that there are */
        memcpy(s->arrays[i].data, fixed, bytes);
        assert_int_equal(insitu_batch_copy_to(b, i, fixed, bytes - 1, NULL, &err), INSITU_E_ARG);
        HAS(err.message, places_variable[i].label);
        free(fixed);
      }
      insitu_batch_release(&b);
      seen_check(s);
      seen_free(s);
    }
    assert_int_equal(n, 8); /* the last one has a row */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
}

static void test_misuse(void **state) {
  (void)state;
  struct places p;
  insitu_loader *ld = open_or_fail(places_desc(&p, EPOLL, "00 00 00 00"));
  insitu_iter *it = iter_or_fail(ld, 1, INSITU_SHUFFLED);
  insitu_batch *b = next_batch_or_fail(it), *null = NULL;
  static float fixed[8 * 60];
  void *managed;
  int stream;
  MISUSE(insitu_batch_wait(NULL, NULL, &err), "wait: the batch is NULL");
  MISUSE(insitu_batch_copy_to(NULL, 0, fixed, sizeof fixed, NULL, &err),
      "copy_to: the batch is NULL", "next gave");
  MISUSE(insitu_batch_copy_to(b, 4, fixed, sizeof fixed, NULL, &err), "no array 4", "has 4");
  MISUSE(
      insitu_batch_copy_to(b, 0, NULL, sizeof fixed, NULL, &err), "array x", "NULL", "1920 bytes");
  MISUSE(insitu_batch_copy_to(b, 0, fixed, sizeof fixed - 1, NULL, &err), "array x", "1920 bytes",
      "insitu_loader_array");
  MISUSE(insitu_batch_copy_to(b, 0, fixed, sizeof fixed, &stream, &err), "array x", "give NULL");
  MISUSE(insitu_batch_dlpack(NULL, 0, 1, NULL, &managed, &err), "dlpack: the batch is NULL");
  assert_null(managed);
  MISUSE(
      insitu_batch_dlpack(b, UINT64_MAX, 0, NULL, &managed, &err), "no array 18446744073709551615");
  assert_null(managed);
  MISUSE(insitu_batch_dlpack(b, 0, 0, NULL, NULL, &err), "managed is NULL");
  insitu_batch_release_on(NULL, NULL);
  insitu_batch_release_on(&null, NULL);
  struct dl e[2] = {dl_export(b, 0, false, NULL), dl_export(b, 0, true, NULL)};
  ((DLManagedTensor *)e[0].managed)->deleter(NULL); /* nothing */
  ((DLManagedTensorVersioned *)e[1].managed)->deleter(NULL);
  dl_delete(e[0]);
  dl_delete(e[1]);
  check(b);
  insitu_batch_release(&b);
  b = next_batch_or_fail(it); /* of max_held 1 */
  insitu_batch_release(&b);
  insitu_loader_close(&ld);
  insitu_iter_close(&it);
}

/* ---- a pool of the user's ---- */

struct pool {
  atomic_int calls, live;
  atomic_uint_least64_t bytes;
  int fail_at;
  bool shift;
  atomic_int bad;
};
static void *pool_alloc(
    void *user, uint64_t bytes, uint64_t align, int32_t place, int32_t device, void *stream) {
  struct pool *p = user;
  if (place != INSITU_HOST || device || stream || !bytes || align < 256 || (align & (align - 1)))
    atomic_fetch_add(&p->bad, 1);
  if (atomic_fetch_add(&p->calls, 1) + 1 == p->fail_at) return NULL;
  atomic_fetch_add(&p->live, 1);
  atomic_fetch_add(&p->bytes, bytes);
  unsigned char *at = aligned_alloc(align, (bytes + 2 * align - 1) / align * align);
  return at + (p->shift ? 128 : 0);
}
static void pool_release(void *user, void *memory, uint64_t bytes, int32_t place, int32_t device) {
  struct pool *p = user;
  if (place != INSITU_HOST || device || bytes > atomic_load(&p->bytes))
    atomic_fetch_add(&p->bad, 1);
  atomic_fetch_sub(&p->live, 1);
  atomic_fetch_sub(&p->bytes, bytes);
  free((unsigned char *)memory - (p->shift ? 128 : 0));
}
static void test_pool(void **state) {
  (void)state;
  EACH_MODE (m) {
    int errors = 0;
    for (int n = 0, more = 1; more; n++) { /* n: the call that gives nothing; 0: none does */
      struct places p;
      struct pool pool = {.fail_at = n};
      insitu_loader_desc *d = places_desc(&p, m, "00 10 00 30");
      d->alloc = pool_alloc;
      d->release = pool_release;
      d->alloc_user = &pool;
      d->hold_epoch = 1;
      insitu_loader *ld = open_or_fail(d);
      insitu_iter *it = iter_or_fail(ld, 0, INSITU_SHUFFLED);
      insitu_status status;
      insitu_error err = {0};
      insitu_batch *b, *held = NULL;
      for (; (status = insitu_iter_next(it, 20000, &b, &err)) == INSITU_OK;
           held ? insitu_batch_release(&b) : (void)(held = b))
        check(b);
      insitu_stats s;
      assert_int_equal(insitu_loader_stats(ld, &s, NULL), INSITU_OK);
      assert_int_equal(atomic_load(&pool.bytes), s.slab_bytes);
      more = status != INSITU_END || !n;
      if (status != INSITU_END) {
        assert_int_equal(status, INSITU_E_NOMEM);
        HAS(err.message, "desc.alloc gave nothing for");
        HAS(err.message, "host memory; enlarge the pool");
        errors++;
        assert_int_equal(insitu_iter_set_epoch(it, 0, NULL), INSITU_OK); /* it has some again */
        while ((status = insitu_iter_next(it, 20000, &b, NULL)) == INSITU_OK) {
          check(b);
          insitu_batch_release(&b);
        }
        assert_int_equal(status, INSITU_END);
      }
      insitu_loader_close(&ld);
      insitu_iter_close(&it);
      if (held) {
        check(held);
        assert_int_equal(atomic_load(&pool.live), 1);
        insitu_batch_release(&held);
      }
      assert_int_equal(atomic_load(&pool.live), 0);
      assert_int_equal(atomic_load(&pool.bytes), 0);
      assert_int_equal(atomic_load(&pool.bad), 0);
    }
    assert_true(errors >= 3);
    struct places p;
    struct pool pool = {.shift = true};
    insitu_loader_desc *d = places_desc(&p, m, "00 00 00 00");
    d->alloc = pool_alloc;
    places_refuse_open(d, INSITU_E_ARG, "alloc", "release");
    d->release = pool_release;
    d->alloc_user = &pool;
    insitu_loader *ld = open_or_fail(d);
    insitu_iter *it = iter_or_fail(ld, 0, INSITU_SHUFFLED);
    insitu_batch *b;
    insitu_error err = {0};
    assert_int_equal(insitu_iter_next(it, 20000, &b, &err), INSITU_E_NOMEM);
    HAS(err.message, "no multiple of align");
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
    assert_int_equal(atomic_load(&pool.live), 0);
    d->alloc = NULL;
    places_refuse_open(d, INSITU_E_ARG, "alloc", "release");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_cuda),
      cmocka_unit_test(test_fields),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_exports),
      cmocka_unit_test(test_holders),
      cmocka_unit_test(test_closing_orders),
      cmocka_unit_test(test_forked_child),
      cmocka_unit_test(test_copy_to),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_pool),
  };
  return cmocka_run_group_tests(tests, places_setup, support_teardown);
}
