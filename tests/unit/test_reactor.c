/* The reactor: coroutines over reads, jobs, sleeps and gates, posts from other threads, both
 * backends, threaded and inline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <cmocka.h>
#include <sys/prctl.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
/* a coroutine costs ThreadSanitizer a megabyte and milliseconds */
enum { N_MIXES = 150, SLEEPERS = 60 };
#else
enum { N_MIXES = 2000, SLEEPERS = 300 };
#endif
enum { FILE_BYTES = 300000 };
static char dir_path[] = "/tmp/insitu-test-reactor-XXXXXX";
static int dir_fd;
static unsigned char *content;
static const struct insitu__reactor_desc modes[] = {
    {.backend = INSITU__RING_EPOLL, .workers = 2, .io_threads = 2},
    {.backend = INSITU__RING_EPOLL, .workers = 1},
    {.backend = INSITU__RING_EPOLL},
    {.backend = INSITU__RING_EPOLL, .inline_mode = true, .workers = 3, .io_threads = 3},
    {.backend = INSITU__RING_URING, .workers = 3, .depth = 16},
    {.backend = INSITU__RING_URING, .inline_mode = true},
};
enum { N_MODES = sizeof modes / sizeof *modes };
static bool has_uring;
#define EACH_MODE(d)                                                                               \
  (const struct insitu__reactor_desc *d = modes; d < modes + (has_uring ? N_MODES : 4); d++)

static void open_reactor(struct insitu__reactor *r, const struct insitu__reactor_desc *d) {
  insitu_error err = {0};
  if (insitu__reactor_open(r, d, &err)) fail_msg("%s", err.message);
}
static int setup(void **state) {
  (void)state;
  alarm(280); /* a lost wake would hang; together the tests take long on a busy machine */
  assert_non_null(mkdtemp(dir_path));
  dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  content = malloc(FILE_BYTES);
  for (size_t i = 0; i < FILE_BYTES; i++) content[i] = (unsigned char)(i * 2654435761u >> 13);
  int fd = openat(dir_fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_int_equal(write(fd, content, FILE_BYTES), FILE_BYTES);
  close(fd);
  struct insitu__reactor r;
  has_uring = !insitu__reactor_open(&r, &modes[4], NULL);
  if (has_uring) insitu__reactor_close(&r);
  else print_message("no io_uring here: only the epoll backend is tested\n");
  return 0;
}
static int teardown(void **state) {
  (void)state;
  unlinkat(dir_fd, "file", 0);
  rmdir(dir_path);
  close(dir_fd);
  free(content);
  return 0;
}
/* whose name begins so; NULL: all but the kernel's io_uring workers */
static int count_threads(const char *prefix) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (fgets(name, sizeof name, file))
      n += prefix ? !strncmp(name, prefix, strlen(prefix)) : strncmp(name, "iou-", 4) != 0;
    fclose(file);
  }
  closedir(dir);
  return n;
}
/* Once no reactor's are left, nor the test's own, whose names begin so too: a joined thread leaves
 * the list a little later. */
static int count_threads_alone(void) {
  for (int i = 0; count_threads("insitu-"); i++) {
    if (i > 60000) fail_msg("a thread stays");
    usleep(1000);
  }
  return count_threads(NULL);
}

/* Thousands of coroutines, each doing everything in an order of its own. */
struct mix {
  struct insitu__reactor *r;
  struct insitu__reactor_gate *gate;
  uint64_t seed, sum, expect;
  int jobs, wrong;
};
static void mix_job(void *arg, unsigned worker) {
  struct mix *mix = arg;
  if (worker && worker >= mix->r->workers.n) mix->wrong++;
  mix->sum = mix->sum * 31 + 7;
  mix->jobs++;
}
static void mix_coro(void *arg) {
  struct mix *mix = arg;
  unsigned char bytes[3000];
  for (int step = 0; step < 6; step++) {
    mix->seed = mix->seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t value = mix->seed >> 33;
    if (value % 4 == 0) {
      insitu__reactor_work_await(mix->r, mix_job, mix);
      mix->expect = mix->expect * 31 + 7;
    } else if (value % 4 == 1) {
      mix->wrong += !insitu__reactor_sleep_await(mix->r, (int64_t)(value % 3000000));
    } else {
      uint64_t offset = value % FILE_BYTES, n = insitu__base_min(sizeof bytes, FILE_BYTES - offset);
      struct iovec iov[2] = {{bytes, 1000}, {bytes + 1000, 2000}};
      memset(bytes, 0, sizeof bytes);
      bool missing = value % 64 == 3;
      int64_t got = insitu__reactor_read_file_await(
          mix->r, dir_fd, missing ? "missing" : "file", offset, iov, 2);
      if (missing) mix->wrong += got != -ENOENT;
      else mix->wrong += got != (int64_t)n || memcmp(bytes, content + offset, n) != 0;
    }
  }
  if (mix->sum != mix->expect) mix->wrong++;
  insitu__reactor_gate_open(mix->gate);
}
struct mixes {
  struct insitu__reactor *r;
  struct mix *each;
  unsigned n;
};
static void mix_all(void *arg) {
  struct mixes *all = arg;
  struct insitu__reactor_gate gate;
  insitu__reactor_gate_expect(&gate, all->n);
  for (unsigned i = 0; i < all->n; i++) {
    all->each[i] = (struct mix){.r = all->r, .gate = &gate, .seed = i, .sum = i, .expect = i};
    if (insitu__reactor_spawn(all->r, mix_coro, &all->each[i])) abort();
  }
  insitu__reactor_gate_await(all->r, &gate);
}
static void test_mix(void **state) {
  (void)state;
  /* Valgrind, which takes fifty times as long, sees what memory each of them has never set */
  unsigned n = getenv("TEST_VALGRIND") ? N_MIXES / 10 : N_MIXES;
  struct mix *each = calloc(N_MIXES, sizeof *each);
  for
    EACH_MODE (d) {
      struct insitu__reactor r;
      open_reactor(&r, d);
      struct mixes all = {&r, each, n};
      for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(insitu__reactor_call(&r, mix_all, &all), INSITU_OK);
        for (unsigned i = 0; i < n; i++) assert_int_equal(each[i].wrong, 0);
      }
      insitu__reactor_close(&r);
    }
  free(each);
}

/* Posts: each exactly once, on the reactor's thread, in every poster's own order. */
enum { POSTERS = 4, POSTS = 1500 };
struct post {
  struct insitu__reactor_task task;
  int poster, index;
};
static struct post posts[POSTERS][POSTS];
static int posts_next[POSTERS], posts_wrong;
static atomic_int posts_run;
static struct insitu__reactor *post_reactor;
static void post_run(struct insitu__reactor_task *task) {
  struct post *post = (struct post *)(void *)task;
  posts_wrong += posts_next[post->poster]++ != post->index;
  posts_wrong +=
      !pthread_equal(pthread_self(), post_reactor->thread) || post_reactor->coros.current != NULL;
  atomic_fetch_add(&posts_run, 1);
}
static void *post_main(void *arg) {
  int poster = *(int *)arg;
  for (int i = 0; i < POSTS; i++) {
    posts[poster][i] = (struct post){{.fn = post_run}, poster, i};
    insitu__reactor_post(post_reactor, &posts[poster][i].task);
    if (i % 50 == 0)
      for (int spin = 0; spin < 100; spin++) { /* let it fall asleep */
        if (atomic_load(&posts_run) >= i) sched_yield();
      }
  }
  return NULL;
}
static void open_for_posts(struct insitu__reactor *r, const struct insitu__reactor_desc *d) {
  open_reactor(r, d);
  post_reactor = r;
  memset(posts_next, 0, sizeof posts_next);
  atomic_store(&posts_run, 0);
}
static void test_posts(void **state) {
  (void)state;
  for
    EACH_MODE (d) {
      struct insitu__reactor r;
      open_for_posts(&r, d);
      pthread_t threads[POSTERS];
      int index[POSTERS];
      for (int i = 0; i < POSTERS; i++)
        pthread_create(&threads[i], NULL, post_main, (index[i] = i, &index[i]));
      while (d->inline_mode && atomic_load(&posts_run) < POSTERS * POSTS)
        insitu__reactor_run(&r, -1);
      for (int i = 0; i < POSTERS; i++) pthread_join(threads[i], NULL);
      insitu__reactor_close(&r);
      assert_int_equal(atomic_load(&posts_run), POSTERS * POSTS);
      assert_int_equal(posts_wrong, 0);
    }
}

/* One post at a time, the next one when it has run: every one races with the reactor's going to
 * sleep. */
static void *post_alone(void *arg) {
  static struct post alone;
  for (int i = 0; i < *(int *)arg; i++) {
    alone = (struct post){{.fn = post_run}, 0, i};
    insitu__reactor_post(post_reactor, &alone.task);
    for (int spin = 0; atomic_load(&posts_run) <= i; spin++)
      if (spin > i % 300) sched_yield();
  }
  return NULL;
}
static void test_post_wakes(void **state) {
  (void)state;
  for
    EACH_MODE (d) {
      struct insitu__reactor r;
      open_for_posts(&r, d);
      int n = 3000;
      pthread_t thread;
      pthread_create(&thread, NULL, post_alone, &n);
      while (d->inline_mode && atomic_load(&posts_run) < n) insitu__reactor_run(&r, -1);
      pthread_join(thread, NULL);
      insitu__reactor_close(&r);
      assert_int_equal(posts_wrong, 0);
    }
}

static int call_threads, call_workers, call_reactors;
static void call_count(void *arg) {
  (void)arg;
  call_threads = count_threads(NULL);
  call_workers = count_threads("insitu-work-");
  call_reactors = count_threads("insitu-reactor");
}
static void test_threads(void **state) {
  (void)state;
  for
    EACH_MODE (d) {
      int before = count_threads_alone();
      struct insitu__reactor r;
      open_reactor(&r, d);
      insitu__reactor_call(&r, call_count, NULL);
      if (d->inline_mode) assert_int_equal(call_threads, before);
      assert_int_equal(call_workers, d->inline_mode ? 0 : d->workers);
      assert_int_equal(call_reactors, !d->inline_mode);
      insitu__reactor_close(&r);
      assert_int_equal(count_threads_alone(), before);
    }
}

/* Close while coroutines are reading, working and sleeping: all come to their end, the long sleeps
 * at once. */
static atomic_int flight_left;
static void flight_job(void *arg, unsigned worker) {
  (void)arg, (void)worker;
  usleep(500);
}
static void flight_coro(void *arg) {
  struct insitu__reactor *r = arg;
  static int kind;
  int mine = kind++ % 3;
  char byte[70000];
  memset(byte, 0, sizeof byte);
  struct iovec iov = {byte, mine == 1 ? 70000 : 100};
  if (mine == 0) insitu__reactor_work_await(r, flight_job, NULL);
  if (mine == 1) insitu__reactor_read_file_await(r, dir_fd, "file", 0, &iov, 1);
  if (mine == 2 && insitu__reactor_sleep_await(r, INT64_MAX)) abort();
  atomic_fetch_sub(&flight_left, 1);
}
static void flight_start(void *arg) {
  for (int i = 0; i < 90; i++) {
    if (insitu__reactor_spawn(arg, flight_coro, arg)) abort();
    atomic_fetch_add(&flight_left, 1);
  }
}
static void test_close_in_flight(void **state) {
  (void)state;
  for
    EACH_MODE (d)
      for (int pass = 0; pass < 4; pass++) {
        struct insitu__reactor r;
        struct insitu__reactor_desc desc = *d;
        desc.stack_bytes = 512 << 10;
        open_reactor(&r, &desc);
        insitu__reactor_call(&r, flight_start, &r);
        if (pass > 1) usleep(1000);
        insitu__reactor_close(&r);
        assert_int_equal(atomic_load(&flight_left), 0);
      }
}

/* Sleepers wake in the order of their deadlines and not before them; gates. */
struct sleeper {
  struct insitu__reactor *r;
  struct insitu__reactor_gate *gate;
  int64_t ns;
  int *early;
};
static void sleeper_coro(void *arg) {
  struct sleeper *sleeper = arg;
  int64_t start = insitu__base_now();
  bool slept = insitu__reactor_sleep_await(sleeper->r, sleeper->ns);
  if (!slept || insitu__base_now() - start < sleeper->ns) ++*sleeper->early;
  insitu__reactor_gate_open(sleeper->gate);
}
static void gate_waiter(void *arg) {
  struct sleeper *sleeper = arg;
  insitu__reactor_gate_await(sleeper->r, sleeper->gate);
  --*sleeper->early;
}
static void sleep_all(void *arg) {
  struct insitu__reactor *r = arg;
  static struct sleeper sleepers[SLEEPERS];
  struct insitu__reactor_gate gate, none, single = {0};
  int early = 0, waiting = 5;
  insitu__reactor_gate_expect(&gate, SLEEPERS);
  insitu__reactor_gate_expect(&none, 0);
  insitu__reactor_gate_await(r, &none);
  for (int i = 0; i < SLEEPERS; i++) {
    sleepers[i] = (struct sleeper){r, &gate, i * 7919 % SLEEPERS * 100000, &early};
    if (insitu__reactor_spawn(r, sleeper_coro, &sleepers[i])) abort();
  }
  insitu__reactor_gate_await(r, &gate);
  insitu__reactor_gate_open(&gate); /* once more does no harm */
  insitu__reactor_gate_await(r, &gate);
  if (early) abort();
  struct sleeper waiter = {r, &single, 0, &waiting};
  for (int i = 0; i < 5; i++)
    if (insitu__reactor_spawn(r, gate_waiter, &waiter)) abort();
  insitu__reactor_sleep_await(r, 0);
  insitu__reactor_sleep_await(r, 1000000);
  if (waiting != 5) abort();
  insitu__reactor_gate_open(&single);
  insitu__reactor_sleep_await(r, 1000000);
  if (waiting) abort();
}
static void test_sleeps_and_gates(void **state) {
  (void)state;
  for
    EACH_MODE (d) {
      struct insitu__reactor r;
      open_reactor(&r, d);
      int64_t start = insitu__base_now();
      assert_int_equal(insitu__reactor_call(&r, sleep_all, &r), INSITU_OK);
      assert_true(insitu__base_now() - start >= (SLEEPERS - 1) * 100000);
      insitu__reactor_close(&r);
    }
}

/* The heap of timers against a sorted order. */
static void test_timers(void **state) {
  (void)state;
  struct insitu__reactor r;
  open_reactor(&r, &modes[3]);
  assert_true(insitu__reactor_reserve(&r, 1000));
  uint64_t seed = 5;
  for (int round = 0; round < 20; round++) {
    int n = 1 + round * 50;
    for (int i = 0; i < n; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      insitu__reactor_timer_add(&r, (int64_t)(seed >> 54), NULL);
    }
    for (int64_t last = -1; r.n_timers; insitu__reactor_timer_pop(&r)) {
      assert_true(r.timers[0].deadline >= last);
      last = r.timers[0].deadline;
    }
  }
  insitu__reactor_close(&r);
}

/* Patient jobs, alone and among others: each is told of, whoever owes the wake. */
static atomic_int patient_left;
static void patient_job(void *arg, unsigned worker) {
  (void)arg, (void)worker;
}
static void patient_coro(void *arg) {
  static int kind;
  int mine = kind++;
  for (int k = 0; k < 20; k++)
    insitu__reactor_work_as_await(arg, patient_job, NULL, (mine + k) % 4 != 0);
  atomic_fetch_sub(&patient_left, 1);
}
static void patient_start(void *arg) {
  for (int n = atomic_load(&patient_left); n > 0; n--)
    if (insitu__reactor_spawn(arg, patient_coro, arg)) abort();
}
static void test_patient(void **state) {
  (void)state;
  for
    EACH_MODE (d)
      for (int n = 1; n <= 9; n += 4) {
        struct insitu__reactor r;
        open_reactor(&r, d);
        atomic_store(&patient_left, n);
        insitu__reactor_call(&r, patient_start, &r);
        while (atomic_load(&patient_left)) {
          if (d->inline_mode) insitu__reactor_run(&r, -1);
          else usleep(200);
        }
        insitu__reactor_close(&r);
      }
}

/* The pump runs when another thread wakes the reactor, and after what it started has ended. */
struct pump {
  struct insitu__reactor *r;
  atomic_int wanted, running, finished;
};
static void pump_coro(void *arg) {
  struct pump *pump = arg;
  insitu__reactor_work_await(pump->r, flight_job, NULL);
  atomic_fetch_sub(&pump->running, 1);
  atomic_fetch_add(&pump->finished, 1);
}
static void pump_fn(void *arg) {
  struct pump *pump = arg;
  while (atomic_load(&pump->wanted) && atomic_load(&pump->running) < 2) {
    atomic_fetch_sub(&pump->wanted, 1);
    atomic_fetch_add(&pump->running, 1);
    if (insitu__reactor_spawn(pump->r, pump_coro, pump)) abort();
  }
}
static void *pump_want(void *arg) {
  struct pump *pump = arg;
  prctl(PR_SET_NAME, "insitu-want");
  for (int i = 0; i < 10; i++) {
    atomic_fetch_add(&pump->wanted, 3);
    insitu__reactor_wake(pump->r);
    usleep(300);
  }
  return NULL;
}
static void test_pump(void **state) {
  (void)state;
  for
    EACH_MODE (d) {
      struct insitu__reactor r;
      struct pump pump = {.r = &r};
      struct insitu__reactor_desc desc = *d;
      desc.pump = pump_fn;
      desc.pump_arg = &pump;
      open_reactor(&r, &desc);
      pthread_t thread;
      pthread_create(&thread, NULL, pump_want, &pump);
      while (atomic_load(&pump.finished) < 30) {
        if (d->inline_mode) insitu__reactor_run(&r, -1);
        else usleep(200);
      }
      pthread_join(thread, NULL);
      insitu__reactor_close(&r);
    }
}

/* Where the pump gives way, the thread sleeps with SCHED_BATCH, else with the usual policy. One
 * that was opened with another policy keeps that. */
struct way;
struct way_task {
  struct insitu__reactor_task task; /* first */
  struct way *way;
};
struct way {
  struct insitu__reactor *r;
  bool gives_way;
  int policy[4];
  atomic_bool done;
};
static void way_pump(void *arg) {
  struct way *way = arg;
  way->r->gives_way = way->gives_way;
}
static void way_coro(void *arg) {
  struct way *way = arg;
  for (int i = 0; i < 4; i++) {
    way->gives_way = i % 2;
    /* A sleep that is over before the thread came to wait changes nothing. */
    for (int tries = 0; tries < 100; tries++) {
      (void)insitu__reactor_sleep_await(way->r, 100000);
      way->policy[i] = sched_getscheduler(0);
      if ((way->policy[i] == SCHED_BATCH) == way->gives_way) break;
    }
  }
  atomic_store(&way->done, true);
}
static void way_start(struct insitu__reactor_task *task) {
  struct way *way = ((struct way_task *)(void *)task)->way;
  if (insitu__reactor_spawn(way->r, way_coro, way)) abort();
}
static void way_run(struct way *way) {
  struct insitu__reactor r;
  struct insitu__reactor_desc desc = modes[0];
  struct way_task task = {.task = {.fn = way_start}, .way = way};
  desc.pump = way_pump;
  desc.pump_arg = way;
  way->r = &r;
  open_reactor(&r, &desc);
  insitu__reactor_post(&r, &task.task);
  while (!atomic_load(&way->done)) usleep(200);
  insitu__reactor_close(&r);
}
static void test_gives_way(void **state) {
  const struct sched_param none = {0};
  struct way usual = {.gives_way = false}, chosen = {.gives_way = false};
  (void)state;
  if (pthread_setschedparam(pthread_self(), SCHED_BATCH, &none)) skip(); /* it is forbidden here */
  assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none), 0);
  way_run(&usual);
  for (int i = 0; i < 4; i++) assert_int_equal(usual.policy[i], i % 2 ? SCHED_BATCH : SCHED_OTHER);

  assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_BATCH, &none), 0);
  way_run(&chosen);
  assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none), 0);
  for (int i = 0; i < 4; i++) assert_int_equal(chosen.policy[i], SCHED_BATCH);
}

static void *call_many(void *arg) {
  static int dummy;
  prctl(PR_SET_NAME, "insitu-call");
  for (int i = 0; i < 200; i++)
    if (insitu__reactor_call(arg, call_count, &dummy)) abort();
  return NULL;
}
static void test_calls_and_failures(void **state) {
  (void)state;
  struct insitu__reactor r;
  open_reactor(&r, &modes[0]);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, call_many, &r);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  insitu__reactor_close(&r);
  /* an open that fails leaves no thread behind */
  for (int inline_mode = 0; inline_mode < 2; inline_mode++) {
    insitu_error err = {0};
    int before = count_threads_alone();
    struct insitu__reactor_desc bad = {.stack_bytes = 1, .workers = 2, .inline_mode = inline_mode};
    assert_int_equal(insitu__reactor_open(&r, &bad, &err), INSITU_E_ARG);
    assert_int_equal(err.status, INSITU_E_ARG);
    assert_true(strlen(err.message) > 0);
    assert_int_equal(count_threads_alone(), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_mix),
      cmocka_unit_test(test_posts),
      cmocka_unit_test(test_post_wakes),
      cmocka_unit_test(test_close_in_flight),
      cmocka_unit_test(test_sleeps_and_gates),
      cmocka_unit_test(test_timers),
      cmocka_unit_test(test_patient),
      cmocka_unit_test(test_pump),
      cmocka_unit_test(test_gives_way),
      cmocka_unit_test(test_calls_and_failures),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
