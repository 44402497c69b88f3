/* The memory promise: over 10^4 batches the resident memory of a process is flat, and stays within
 * what insitu_plan
 * names (slabs, tables, chunks in flight) and a constant. Each configuration runs in a child of its
 * own. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "inside.h"

enum {
  BATCHES = 10000,
  /* KiB beyond the promise: code and data of the program and its libraries first touched after the
   * baseline (some 2 MiB), the stacks of up to 8 threads (some 20 KiB each), malloc's arenas (one
   * for each thread that allocates, some 200 KiB each), the rings shared with the kernel, metadata
   * and the split. Some 3 MiB when measured, and a quarter of what is promised without a decoder:
   * there, rings of half as much again do not pass. */
  CONSTANT = 8 << 10,
  GROWTH = 1 << 10 /* KiB, from a tenth of the way to its end */
};

static long status_kib(const char *key) {
  char line[256];
  long kib = -1;
  FILE *f = fopen("/proc/self/status", "re");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, key, strlen(key))) kib = strtol(line + strlen(key), NULL, 10);
  if (f) fclose(f);
  return kib;
}
/* The peak since the last reset. Without VmHWM, or where it cannot be reset, the highest of the
 * samples that are taken here. */
static struct {
  bool sampled;
  long peak;
} rss;
static void rss_reset(void) {
  int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  rss.sampled = fd < 0 || write(fd, "5", 1) != 1 || status_kib("VmHWM:") < 0;
  if (fd >= 0) close(fd);
  rss.peak = 0;
}
static long rss_peak(void) {
  long now = status_kib(rss.sampled ? "VmRSS:" : "VmHWM:");
  if (now > rss.peak) rss.peak = now;
  return rss.peak;
}

/* ---- configurations ---- */
static const int64_t window[] = {-6, -3, 0};
static const struct config {
  const char *name;
  struct support_array a;
  insitu_variable v[2];
  uint64_t n_variables, batch_size, block_chunks, prefetch_depth;
  int32_t inline_io, iterators;
} configs[] = {
    /* rows read straight into batches, by two iterators in turns */
    {"two iterators",
        {.name = "x",
            .ndim = 2,
            .shape = {512, 8192},
            .chunk = {4, 8192},
            .dtype = INSITU_F32,
            .format = 2},
        {{.label = "x"}}, 1, 8, 16, 64, 0, 2},
    {"compressed",
        {.name = "x",
            .ndim = 3,
            .shape = {1280, 16, 128},
            .chunk = {10, 16, 128},
            .dtype = INSITU_F32,
            .format = 3,
            .fortran = true,
            .zstd = true},
        {{.label = "x"}}, 1, 8, 12, 512, 0, 1},
    {"offsets and large windows",
        {.name = "x",
            .ndim = 2,
            .shape = {2000, 600},
            .chunk = {5, 600},
            .dtype = INSITU_F32,
            .format = 2,
            .big = true},
        {{.label = "now", .path = "x", .steps = window, .n_steps = 3},
            {.label = "next", .path = "x", .offset = 12}},
        2, 16, 200, 160, 0, 1},
    {"inline",
        {.name = "x",
            .ndim = 2,
            .shape = {2560, 1024},
            .chunk = {8, 1024},
            .dtype = INSITU_F32,
            .format = 2,
            .zstd = true},
        {{.label = "x"}}, 1, 16, 16, 512, 1, 1},
    {"tiny rows",
        {.name = "x",
            .ndim = 1,
            .shape = {50000},
            .chunk = {500},
            .dtype = INSITU_I16,
            .format = 2},
        {{.label = "x", .dtype = INSITU_F32}}, 1, 64, 32, 16, 0, 1},
};

struct result { /* KiB */
  long baseline, tenth, end, promise;
  uint64_t batches;
  bool sampled;
  char error[256];
};

static void run(const struct config *c, const char *root, struct result *r) {
  insitu_error err = {0};
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = c->v,
      .n_variables = c->n_variables,
      .batch_size = c->batch_size,
      .block_chunks = c->block_chunks,
      .prefetch_depth = c->prefetch_depth,
      .decode_threads = 2,
      .max_inflight = 8,
      .inline_io = c->inline_io};
  insitu_loader *ld;
  insitu_iter *it[2] = {NULL, NULL};
  insitu_batch *b;
  uint64_t promise = 0, every = 0, sum = 0;
  rss_reset();
  r->sampled = rss.sampled;
  r->baseline = status_kib("VmRSS:");
  if (insitu_loader_open(&d, &ld, &err)) goto failed;
  for (int i = 0; i < c->iterators; i++) {
    insitu_iter_desc id = {.api = INSITU_API, .split = i ? INSITU_ALL : INSITU_TRAIN};
    insitu_plan p;
    if (insitu_iter_open(ld, &id, &it[i], &err) || insitu_loader_plan(ld, &id, &p, &err))
      goto failed;
    promise += p.slabs * p.slab_bytes + p.table_bytes + (i ? 0 : p.inflight_bytes);
  }
  r->promise = (long)(promise >> 10);
  while (r->batches < BATCHES) {
    insitu_status s =
        insitu_iter_next(it[every++ % (uint64_t)c->iterators], INSITU_FOREVER, &b, &err);
    if (s == INSITU_END) continue;
    if (s) goto failed;
    for (uint64_t i = 3; i < b->arrays[0].bytes; i += 512)
      sum += ((const unsigned char *)b->arrays[0].data)[i];
    insitu_batch_release(&b);
    for (int i = 0; i < c->iterators && r->batches < BATCHES / 10 && r->batches % 100 == 0; i++)
      support_fill_up(ld, it[i]);
    if (++r->batches == BATCHES / 10) r->tenth = rss_peak();
    if (r->sampled && r->batches % 64 == 0) rss_peak();
  }
  r->end = rss_peak();
  insitu_loader_close(&ld);
  snprintf(r->error, sizeof r->error, "%s", sum ? "" : "the batches hold nothing but zeros");
  return;
failed:
  snprintf(r->error, sizeof r->error, "%.250s", err.message);
}

static void test_promise(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  print_message("skipped: sanitizers keep memory of their own\n");
  skip();
#endif
  if (getenv("TEST_VALGRIND") || getenv("INSITU_CHECK")) {
    print_message("skipped: Valgrind keeps memory of its own, and INSITU_CHECK allocates beside "
                  "the promise\n");
    skip();
  }
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    const struct config *c = &configs[i];
    const char *root = support_path("promise");
    struct result *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    assert_true(r != MAP_FAILED);
    support_make(root, &c->a);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
      run(c, root, r);
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    print_message(
        "%s: %ld KiB before, %ld more after a tenth, %ld at the end%s; promised %ld and %d\n",
        c->name, r->baseline, r->tenth - r->baseline, r->end - r->baseline,
        r->sampled ? " (sampled)" : "", r->promise, (int)CONSTANT);
    if (r->error[0]) fail_msg("%s: %s", c->name, r->error);
    assert_int_equal(r->batches, BATCHES);
    assert_true(r->baseline > 0 && r->tenth >= r->baseline && r->promise > 0);
    if (r->end - r->tenth > GROWTH) fail_msg("%s: it grows", c->name);
    if (r->end - r->baseline > r->promise + CONSTANT)
      fail_msg("%s: the promise is broken", c->name);
    munmap(r, sizeof *r);
    support_remove(root);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_promise)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
