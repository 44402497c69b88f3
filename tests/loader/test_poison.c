/* Debugging builds: a batch's memory is filled before its rows arrive, and nobody can read a batch
 * that was given back. */
#define INSITU_DEBUG
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "modes.h"

static struct support_array array = {
    .name = "x", .ndim = 2, .shape = {50, 24}, .chunk = {4, 24}, .dtype = INSITU_F32, .format = 2};
static const insitu_variable vars[] = {{.label = "x"}, {.label = "y", .path = "x"}};

static insitu_loader *open_both(const char *root, int m, insitu_iter **it) {
  insitu_error err = {0};
  insitu_loader *ld;
  insitu_loader_desc d = {.api = INSITU_API,
      .url = root,
      .variables = vars,
      .n_variables = 2,
      .batch_size = 8,
      .prefetch_depth = 2,
      .decode_threads = 1,
      .io = modes[m].io,
      .inline_io = modes[m].inline_io};
  if (insitu_loader_open(&d, &ld, &err) ||
      insitu_iter_open(
          ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL, .max_held = 1}, it, &err))
    fail_msg("%s", err.message);
  return ld;
}

/* All of a batch's memory but its rows and their indices is the pattern, in first and in reused
 * slabs. */
static void test_a_batch_starts_as_the_pattern(void **state) {
  (void)state;
  const char *root = support_path("pattern");
  support_make(root, &array);
  EACH_MODE (m) {
    insitu_iter *it = NULL;
    insitu_batch *b;
    uint64_t unwritten = 0, batches = 0;
    insitu_loader *ld = open_both(root, m, &it);
    for (int epoch = 0; epoch < 3; epoch++)
      for (; insitu_iter_next(it, 20000, &b, NULL) == INSITU_OK; batches++) {
        struct insitu__loader_slab *slab = (struct insitu__loader_slab *)(void *)b;
        for (uint64_t i = 0; i < it->slab_bytes; i++) {
          const unsigned char *at = slab->memory + i;
          bool row = at >= (const unsigned char *)b->sample_indices &&
                     at < (const unsigned char *)(b->sample_indices + b->rows);
          for (uint64_t k = 0; k < b->n_arrays; k++) {
            const unsigned char *data = b->arrays[k].data;
            row = row || (at >= data && at < data + b->arrays[k].bytes);
          }
          if (!row) unwritten++;
          if (!row && *at != 0xA5)
            fail_msg("batch %d: byte %d is %02x", (int)b->index, (int)i, *at);
        }
        support_check_array(b, 0, &vars[0], &array, 0);
        insitu_batch_release(&b);
      }
    assert_int_equal(batches, 21);
    assert_true(unwritten > 3 * 2 * 6 * 96); /* the last batch of an epoch has 2 of 8 rows */
    insitu_loader_close(&ld);
    insitu_iter_close(&it);
  }
  support_remove(root);
}

/* ---- reading what was given back ---- */
enum { RELEASED, THROWN_AWAY, WAYS };

static const volatile unsigned char *give_back(
    insitu_loader *ld, insitu_iter *it, insitu_batch *b, int way) {
  const volatile unsigned char *data = b->arrays[1].data;
  /* from here on no slab is placed again */
  insitu__reactor_call(&ld->reactor, insitu__pass_unlist_await, it);
  if (way == RELEASED) {
    insitu_batch_release(&b);
    return data;
  }
  struct insitu__loader_slab *slab =
      it->ring[it->shared.next % it->n_ring]; /* on its way, or ready */
  insitu__reactor_call(
      &ld->reactor, insitu__pass_move_await, &(struct insitu__pass_move){.it = it, .epoch = 5});
  return slab->memory;
}

/* In a forked child: reads a batch before and after it is given back, and tells through the pipe
 * how far it came. */
static void child(const char *root, int m, int way, int fd) {
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_loader *ld = open_both(root, m, &it);
  if (insitu_iter_next(it, 20000, &b, NULL)) _exit(7);
  unsigned char read = *(const volatile unsigned char *)b->arrays[1].data;
  if (write(fd, &read, 1) != 1) _exit(7);
  const volatile unsigned char *gone = give_back(ld, it, b, way);
  if (write(fd, &read, 1) != 1) _exit(7);
  read = *gone; /* the report comes here */
  if (write(fd, &read, 1) != 1) _exit(7);
  _exit(0);
}

static void test_reading_a_released_batch_is_reported(void **state) {
  (void)state;
#ifndef INSITU__ASAN
  print_message("skipped: needs AddressSanitizer\n");
  skip();
#endif
  const char *root = support_path("released"), *log = support_path("report");
  support_make(root, &array);
  EACH_MODE (m)
    for (int way = 0; way < WAYS; way++) {
      int fd[2], status;
      char told[8], report[4096] = "";
      assert_int_equal(pipe(fd), 0);
      pid_t pid = fork();
      assert_true(pid >= 0);
      if (!pid) {
        if (!freopen(log, "w", stderr)) _exit(7);
        child(root, m, way, fd[1]);
      }
      close(fd[1]);
      assert_int_equal(waitpid(pid, &status, 0), pid);
      assert_int_equal(read(fd[0], told, sizeof told), 2); /* up to the report, no further */
      close(fd[0]);
      assert_true(WIFSIGNALED(status) ||
                  (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 7));
      FILE *f = fopen(log, "r");
      assert_non_null(f);
      assert_true(fread(report, 1, sizeof report - 1, f) > 0);
      fclose(f);
      assert_non_null(strstr(report, "use-after-poison"));
    }
  support_remove(root);
}

/* Memory that goes back to the system is nobody's secret: what is mapped there next may be read. */
static void test_unmapped_memory_is_clean(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    unsigned char *p = insitu__mem_map(1 << 16);
    assert_non_null(p);
    insitu__mem_hide(p, 1 << 16);
    insitu__mem_unmap(p, 1 << 16);
    volatile unsigned char *q =
        mmap(p, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(q, p);
    assert_int_equal(q[1 << 15], 0);
    munmap(p, 1 << 16);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_batch_starts_as_the_pattern),
      cmocka_unit_test(test_reading_a_released_batch_is_reported),
      cmocka_unit_test(test_unmapped_memory_is_clean),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
