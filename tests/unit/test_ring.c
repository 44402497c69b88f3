/* The ring: reads over io_uring and over epoll with and without threads, wake-ups, limits, fallback
 * under seccomp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
struct insitu__ring_op;
static int64_t fault(struct insitu__ring_op *op, int64_t got);
#define INSITU_TEST_FAULT(op, got) fault(op, got)
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <cmocka.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { FILE_BYTES = 5 * 1000 * 1000 + 7, SMALL = 10000 };
static char dir_path[] = "/tmp/insitu-test-ring-XXXXXX";
static int dir_fd;
static unsigned char *content;
static const struct insitu__ring_desc backends[] = {
    {.backend = INSITU__RING_EPOLL, .io_threads = 3},
    {.backend = INSITU__RING_EPOLL},
    {.backend = INSITU__RING_URING},
    {.backend = INSITU__RING_URING, .depth = 8, .iowq_max_workers = 2},
};
enum { N_BACKENDS = sizeof backends / sizeof *backends };
static bool has_uring;
#define EACH_BACKEND(d)                                                                            \
  (const struct insitu__ring_desc *d = backends; d < backends + (has_uring ? N_BACKENDS : 2); d++)

static bool under_valgrind(void) {
#ifdef INSITU__CORO_VALGRIND
  return RUNNING_ON_VALGRIND;
#else
  return false;
#endif
}
static uint64_t rng_state = 1;
static uint64_t rng(uint64_t below) {
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (rng_state >> 33) % below;
}
static int open_fds(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}
static void count_done(struct insitu__ring_op *op) {
  if (op->user) ++*(int *)op->user;
}
static struct insitu__ring_op read_op(
    const char *path, uint64_t offset, struct iovec *iov, unsigned n_iov, int *counter) {
  return (struct insitu__ring_op){.dirfd = dir_fd,
      .path = path,
      .offset = offset,
      .iov = iov,
      .n_iov = n_iov,
      .result = 12345,
      .done = count_done,
      .user = counter};
}
static void open_ring(struct insitu__ring *r, const struct insitu__ring_desc *d) {
  insitu_error err = {0};
  if (insitu__ring_open(r, d, &err)) fail_msg("%s", err.message);
}
static int64_t read_one(
    struct insitu__ring *r, const char *path, uint64_t offset, struct iovec *iov, unsigned n_iov) {
  int done = 0;
  struct insitu__ring_op op = read_op(path, offset, iov, n_iov, &done);
  insitu__ring_submit(r, &op);
  while (!done) insitu__ring_wait(r, -1);
  assert_int_equal(done, 1);
  return op.result;
}

static void make_file(const char *name, size_t bytes) {
  int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, content, bytes), bytes);
  close(fd);
}
static int setup(void **state) {
  (void)state;
  alarm(280); /* a lost wake would hang; together the tests take long on a busy machine */
  assert_non_null(mkdtemp(dir_path));
  dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  content = malloc(FILE_BYTES);
  for (size_t i = 0; i < FILE_BYTES; i++) content[i] = (unsigned char)(i * 2654435761u >> 13);
  make_file("large", FILE_BYTES);
  make_file("small", SMALL);
  make_file("empty", 0);
  mkdirat(dir_fd, "dir", 0700);
  struct insitu__ring r;
  has_uring = !insitu__ring_open(&r, &backends[2], NULL);
  if (has_uring) insitu__ring_close(&r);
  else print_message("no io_uring here: only the epoll backend is tested\n");
  return 0;
}
static int teardown(void **state) {
  (void)state;
  for (const char *const *name = (const char *const[]){"large", "small", "empty", NULL}; *name;
       name++)
    unlinkat(dir_fd, *name, 0);
  unlinkat(dir_fd, "dir", AT_REMOVEDIR);
  rmdir(dir_path);
  close(dir_fd);
  free(content);
  return 0;
}

/* Any offset, any split into iovecs, empty ones among them: the bytes of pread, and not one byte
 * beyond. */
static void test_reads(void **state) {
  (void)state;
  unsigned char *buffer = malloc(FILE_BYTES + 4096);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      for (int round = 0; round < 120; round++) {
        bool small = round % 2;
        uint64_t file = small ? SMALL : FILE_BYTES, offset = round < 10 ? 0 : rng(file + 100);
        uint64_t want = round % 20 == 0 ? file + 4000
                        : round % 7     ? rng(small ? SMALL : 200000)
                                        : rng(FILE_BYTES);
        if (round == 2) want = INSITU__RING_ASYNC_BYTES;
        if (round == 3) want = SMALL;
        struct iovec iov[40];
        unsigned n = 0;
        uint64_t at = 0;
        for (; at < want && n < 39; n++) {
          uint64_t part = rng(4) ? rng(want - at + 1) : 0;
          iov[n] = (struct iovec){buffer + at, part};
          at += part;
        }
        iov[n++] = (struct iovec){buffer + at, want - at};
        uint64_t expect = offset >= file ? 0 : insitu__base_min(want, file - offset);
        memset(buffer, 0xA5, FILE_BYTES + 4096);
        int64_t got = read_one(&r, small ? "small" : "large", offset, iov, n);
        assert_int_equal(got, expect);
        assert_memory_equal(buffer, content + (offset < file ? offset : 0), expect);
        for (uint64_t i = expect; i < expect + 4096 && i < FILE_BYTES + 4096; i++)
          assert_int_equal(buffer[i], 0xA5);
      }
      insitu__ring_close(&r);
    }
  free(buffer);
}

static void test_many_iovecs(void **state) {
  (void)state;
  static struct iovec iov[3000];
  unsigned char *buffer = malloc(3000 * 1000);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      /* the second runs over the end of the file in the third thousand */
      for (int pass = 0; pass < 2; pass++) {
        uint64_t offset = pass ? FILE_BYTES - 2500 * 1000 - 3 : 11;
        for (size_t i = 0; i < 3000; i++) iov[i] = (struct iovec){buffer + 1000 * i, 1000};
        memset(buffer, 0, 3000 * 1000);
        size_t expect = pass ? 2500 * 1000 + 3 : 3000 * 1000;
        assert_int_equal(read_one(&r, "large", offset, iov, 3000), expect);
        assert_memory_equal(buffer, content + offset, expect);
      }
      insitu__ring_close(&r);
    }
  free(buffer);
}

static void test_errors(void **state) {
  (void)state;
  char byte[2], absolute[64];
  snprintf(absolute, sizeof absolute, "%s/small", dir_path);
  for
    EACH_BACKEND(d) {
      int fds = open_fds();
      struct insitu__ring r;
      open_ring(&r, d);
      int opened = open_fds();
      struct {
        const char *path;
        uint64_t offset;
        int64_t expect;
      } cases[] = {{"missing", 0, -ENOENT}, {"dir", 0, -EISDIR}, {"small/x", 0, -ENOTDIR},
          {"", 0, -ENOENT}, {"small", SMALL, 0}, {"small", UINT64_C(1) << 40, 0},
          {"small", UINT64_C(1) << 63, -EINVAL}, {"empty", 0, 0}, {"small", INSITU__RING_TAIL, 2},
          {"empty", INSITU__RING_TAIL, 0}, {"missing", INSITU__RING_TAIL, -ENOENT},
          {"dir", INSITU__RING_TAIL, -EISDIR}, {"small", SMALL - 1, 1}, {absolute, 0, 2}};
      for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct iovec iov = {byte, 2};
        assert_int_equal(read_one(&r, cases[i].path, cases[i].offset, &iov, 1), cases[i].expect);
      }
      struct iovec nothing[2] = {{NULL, 0}, {NULL, 0}}, bad = {(void *)8, 2};
      assert_int_equal(read_one(&r, "small", 0, NULL, 0), 0);
      assert_int_equal(read_one(&r, "small", 0, nothing, 2), 0);
      assert_int_equal(read_one(&r, "missing", 0, NULL, 0), -ENOENT);
      if (!under_valgrind()) assert_int_equal(read_one(&r, "small", 0, &bad, 1), -EFAULT);
      while (insitu__ring_inflight(&r)) insitu__ring_wait(&r, -1); /* files being closed */
      assert_int_equal(open_fds(), opened);
      insitu__ring_close(&r);
      assert_int_equal(open_fds(), fds);
    }
}

/* A named pipe with and without a writer, a socket and a device are refused, at the beginning and
 * from the end, and never waited for. */
static void test_irregular(void **state) {
  (void)state;
  static const struct {
    const char *path;
    int64_t expect;
  } cases[] = {{"pipe", -ESPIPE}, {"fed", -ESPIPE}, {"dir", -EISDIR}, {"null", -ESPIPE},
      {"zero", -ESPIPE}, {"socket", -ENXIO}};
  char path[64];
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  assert_int_equal(mkfifoat(dir_fd, "pipe", 0600), 0);
  assert_int_equal(mkfifoat(dir_fd, "fed", 0600), 0);
  assert_int_equal(symlinkat("/dev/zero", dir_fd, "zero"), 0);
  assert_int_equal(symlinkat("/dev/null", dir_fd, "null"), 0);
  snprintf(path, sizeof path, "%s/socket", dir_path);
  snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
  int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
      writer = openat(dir_fd, "fed", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  assert_int_equal(bind(sock, (const struct sockaddr *)&name, sizeof name), 0);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int far = 0; far < 3; far++) { /* inline, on a kernel's worker, from the end */
          static char bytes[2 * INSITU__RING_ASYNC_BYTES];
          struct iovec iov = {bytes, far == 1 ? sizeof bytes : 100};
          assert_int_equal(read_one(&r, cases[i].path, far == 2 ? INSITU__RING_TAIL : 0, &iov, 1),
              cases[i].expect);
        }
      assert_int_equal(read_one(&r, "pipe", 0, NULL, 0), -ESPIPE);
      insitu__ring_close(&r);
    }
  close(writer);
  close(sock);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) unlinkat(dir_fd, cases[i].path, 0);
}

/* A file on which somebody holds a lease is waited for until the lease ends; the open that does not
 * wait says EAGAIN of it. */
static void *end_lease(void *fd) {
  usleep(50000);
  fcntl(*(int *)fd, F_SETLEASE, F_UNLCK);
  return NULL;
}
static void test_lease(void **state) {
  (void)state;
  signal(SIGIO, SIG_IGN); /* the kernel's request to end the lease */
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      pthread_t thread;
      char bytes[100];
      struct iovec iov = {bytes, 100};
      int fd = openat(dir_fd, "small", O_RDWR | O_CLOEXEC);
      if (fcntl(fd, F_SETLEASE, F_WRLCK)) {
        print_message("no leases here\n");
        close(fd);
        return;
      }
      open_ring(&r, d);
      pthread_create(&thread, NULL, end_lease, &fd);
      assert_int_equal(read_one(&r, "small", 0, &iov, 1), 100);
      pthread_join(thread, NULL);
      close(fd);
      insitu__ring_close(&r);
    }
}

/* A file of /proc comes in pieces smaller than what was asked for: nothing but the end may end the
 * read. */
static void test_short_reads(void **state) {
  (void)state;
  enum { WANT = 300000 };
  char *expect = calloc(1, WANT), *got = calloc(1, WANT);
  int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
  ssize_t n = 0, first = 0;
  for (ssize_t k; fd >= 0 && n < WANT && (k = pread(fd, expect + n, (size_t)(WANT - n), n)) > 0;
       n += k)
    first = first ? first : k;
  if (fd >= 0) close(fd);
  if (first == n) print_message("no file with short reads here\n");
  else
    for
      EACH_BACKEND(d) {
        struct insitu__ring r;
        open_ring(&r, d);
        struct iovec iov[2] = {{got, 1000}, {got + 1000, WANT - 1000}};
        assert_int_equal(read_one(&r, "/proc/kallsyms", 0, iov, 2), n);
        assert_memory_equal(got, expect, (size_t)n);
        insitu__ring_close(&r);
      }
  free(expect);
  free(got);
}

static void test_many_in_flight(void **state) {
  (void)state;
  enum { N = 2000, BYTES = 700 };
  struct insitu__ring_op *ops = calloc(N, sizeof *ops);
  struct iovec *iov = calloc(N, sizeof *iov);
  unsigned char *buffer = calloc(N, BYTES);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      struct insitu__ring_desc desc = *d;
      desc.depth = 8;
      open_ring(&r, &desc);
      int done = 0;
      memset(buffer, 0, (size_t)N * BYTES);
      for (size_t i = 0; i < N; i++) {
        iov[i] = (struct iovec){buffer + i * BYTES, BYTES};
        ops[i] = read_op(i % 50 ? "large" : "missing", i * BYTES, &iov[i], 1, &done);
        insitu__ring_submit(&r, &ops[i]);
      }
      assert_int_equal(done, 0);
      assert_int_equal(insitu__ring_inflight(&r), N);
      while (done < N) assert_true(insitu__ring_wait(&r, -1) >= 0);
      for (size_t i = 0; i < N; i++) {
        assert_int_equal(ops[i].result, i % 50 ? BYTES : -ENOENT);
        if (i % 50) assert_memory_equal(buffer + i * BYTES, content + i * BYTES, BYTES);
      }
      insitu__ring_close(&r);
    }
  free(ops);
  free(iov);
  free(buffer);
}

static void test_no_descriptors(void **state) {
  (void)state;
  struct rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      char bytes[100];
      struct iovec iov = {bytes, 100};
      setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, old.rlim_max});
      int64_t result = read_one(&r, "small", 0, &iov, 1);
      setrlimit(RLIMIT_NOFILE, &old);
      assert_int_equal(result, -EMFILE);
      iov = (struct iovec){bytes, 100};
      assert_int_equal(read_one(&r, "small", 0, &iov, 1), 100);
      insitu__ring_close(&r);
    }
  setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, old.rlim_max});
  insitu_error err = {0};
  struct insitu__ring r;
  assert_int_equal(insitu__ring_open(&r, &backends[0], &err), INSITU_E_IO);
  setrlimit(RLIMIT_NOFILE, &old);
  assert_int_equal(err.sys_errno, EMFILE);
  assert_non_null(strstr(err.message, "ulimit -n"));
}

/* Callbacks submit the next operation; close waits for what is left and calls back. */
struct chain {
  struct insitu__ring *ring;
  struct insitu__ring_op op;
  struct iovec iov;
  char bytes[64];
  int left, done;
};
static void chain_next(struct insitu__ring_op *op) {
  struct chain *chain = op->user;
  assert_int_equal(op->result, 64);
  chain->done++;
  if (!chain->left--) return;
  chain->iov = (struct iovec){chain->bytes, 64};
  op->iov = &chain->iov;
  op->n_iov = 1;
  op->offset = (uint64_t)chain->left;
  insitu__ring_submit(chain->ring, op);
}
static void test_chains_and_close(void **state) {
  (void)state;
  static struct chain chains[30];
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      for (int i = 0; i < 30; i++) {
        struct chain *chain = &chains[i];
        *chain = (struct chain){.ring = &r, .left = 20};
        chain->iov = (struct iovec){chain->bytes, 64};
        chain->op = read_op("small", 5, &chain->iov, 1, NULL);
        chain->op.done = chain_next;
        chain->op.user = chain;
        insitu__ring_submit(&r, &chain->op);
      }
      insitu__ring_flush(&r);
      insitu__ring_wait(&r, 0);
      insitu__ring_close(&r);
      for (int i = 0; i < 30; i++) assert_int_equal(chains[i].done, 21);
    }
}

static atomic_int fault_fails; /* so many stages more fail */
static atomic_bool fault_cold; /* reads say EAGAIN while the descriptor has O_NONBLOCK */
static atomic_int cold_reads;  /* that said EAGAIN */
static int64_t fault(struct insitu__ring_op *op, int64_t got) {
  if (atomic_load(&fault_cold) && op->stage == INSITU__RING_STAGE_READ &&
      (fcntl(op->fd, F_GETFL) & O_NONBLOCK)) {
    atomic_fetch_add(&cold_reads, 1);
    return -EAGAIN;
  }
  if (atomic_load(&fault_fails) <= 0) return got;
  if (op->stage == INSITU__RING_STAGE_OPEN && got >= 0) close((int)got);
  return atomic_fetch_sub(&fault_fails, 1) % 3 ? -EAGAIN : -EINTR;
}
static void test_again(void **state) { /* EAGAIN and EINTR are tried again, not forever */
  (void)state;
  for
    EACH_BACKEND(d)
  for (int fails = INSITU__RING_RETRIES - 1; fails <= INSITU__RING_RETRIES; fails++) {
    struct insitu__ring r;
    open_ring(&r, d);
    char bytes[10];
    int fds = open_fds();
    struct iovec iov = {bytes, 10};
    atomic_store(&fault_fails, fails);
    assert_int_equal(
        read_one(&r, "small", 0, &iov, 1), fails < INSITU__RING_RETRIES ? 10 : -EAGAIN);
    assert_int_equal(atomic_load(&fault_fails), 0);
    while (insitu__ring_inflight(&r)) insitu__ring_wait(&r, -1);
    assert_int_equal(open_fds(), fds);
    insitu__ring_close(&r);
  }
}

/* A file whose bytes are not in memory is read again, once, without O_NONBLOCK. */
static void test_cold(void **state) {
  (void)state;
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      char bytes[10];
      struct iovec iov = {bytes, 10};
      atomic_store(&cold_reads, 0);
      atomic_store(&fault_cold, true);
      assert_int_equal(read_one(&r, "small", 0, &iov, 1), 10);
      atomic_store(&fault_cold, false);
      assert_int_equal(atomic_load(&cold_reads), 1);
      insitu__ring_close(&r);
    }
}

static void test_timeout(void **state) {
  (void)state;
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      int64_t start, took = INT64_MAX;
      /* a busy machine may stop us, not each time */
      for (int tries = 0; took >= 1000000000 && tries < 100; tries++) {
        start = insitu__base_now();
        assert_int_equal(insitu__ring_wait(&r, 0), 0);
        took = insitu__base_now() - start;
      }
      assert_true(took < 1000000000);
      start = insitu__base_now();
      assert_int_equal(insitu__ring_wait(&r, 20 * 1000 * 1000), 0);
      assert_true(insitu__base_now() - start >= 20 * 1000 * 1000);
      insitu__ring_close(&r);
    }
}

/* A wake before the wait counts; wakes of an awake ring cost no system call; one wait uses them up.
 */
static void test_wake_before_wait(void **state) {
  (void)state;
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      uint64_t count;
      open_ring(&r, d);
      for (int i = 0; i < 3; i++) {
        insitu__ring_wake(&r);
        insitu__ring_wake(&r);
        assert_int_equal(read(r.event_fd, &count, sizeof count), -1);
        assert_int_equal(insitu__ring_wait(&r, -1), 0);
      }
      int64_t start = insitu__base_now();
      insitu__ring_wait(&r, 10 * 1000 * 1000);
      assert_true(insitu__base_now() - start >= 10 * 1000 * 1000);
      insitu__ring_wake(&r);
      insitu__ring_ack(&r);
      start = insitu__base_now();
      insitu__ring_wait(&r, 10 * 1000 * 1000);
      assert_true(insitu__base_now() - start >= 10 * 1000 * 1000);
      insitu__ring_close(&r);
    }
}

static struct insitu__ring *wake_ring;
static atomic_int wake_sent, wake_seen;
static atomic_bool wake_stop;
static void *wake_pinger(
    /* every wake answers the last one, at every possible moment of the sleeper's going to sleep */
    void *arg) {
  for (int i = 1; i <= *(int *)arg; i++) {
    for (int spin = i % 97; spin; spin--) atomic_load(&wake_seen);
    atomic_store_explicit(&wake_sent, i, memory_order_relaxed);
    insitu__ring_wake(wake_ring);
    while (atomic_load_explicit(&wake_seen, memory_order_relaxed) < i) sched_yield();
  }
  return NULL;
}
static void *wake_noise(void *arg) {
  (void)arg;
  for (; !atomic_load(&wake_stop); sched_yield()) insitu__ring_wake(wake_ring);
  return NULL;
}
static void test_wake_race(void **state) {
  (void)state;
  for
    EACH_BACKEND(d)
  for (int noise = 0; noise < 2; noise++) {
    struct insitu__ring r;
    open_ring(&r, d);
    wake_ring = &r;
    int n = noise ? 2000 : 10000;
    atomic_store(&wake_sent, 0), atomic_store(&wake_seen, 0), atomic_store(&wake_stop, false);
    pthread_t pinger, noisy;
    pthread_create(&pinger, NULL, wake_pinger, &n);
    if (noise) pthread_create(&noisy, NULL, wake_noise, NULL);
    for (int seen = 0; seen < n;) {
      insitu__ring_wait(&r, -1);
      seen = atomic_load_explicit(&wake_sent, memory_order_relaxed);
      atomic_store_explicit(&wake_seen, seen, memory_order_relaxed);
    }
    pthread_join(pinger, NULL);
    atomic_store(&wake_stop, true);
    if (noise) pthread_join(noisy, NULL);
    insitu__ring_close(&r);
  }
}

static void wake_handler(int signal) {
  (void)signal;
  atomic_fetch_add(&wake_sent, 1);
  insitu__ring_wake(wake_ring);
}
/* the handler runs on this thread: the sleeper sees no EINTR */
static void *wake_raise(void *arg) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  for (int i = 1; i <= *(int *)arg; i++) {
    pthread_kill(pthread_self(), SIGUSR1);
    while (atomic_load(&wake_seen) < i) sched_yield();
  }
  return NULL;
}
static void test_wake_from_signal(void **state) {
  (void)state;
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  struct sigaction action = {.sa_handler = wake_handler, .sa_flags = SA_RESTART}, before;
  sigaction(SIGUSR1, &action, &before);
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      wake_ring = &r;
      atomic_store(&wake_sent, 0), atomic_store(&wake_seen, 0);
      int n = 500;
      pthread_t thread;
      pthread_create(&thread, NULL, wake_raise, &n);
      while (atomic_load(&wake_seen) < n) {
        insitu__ring_wait(&r, -1);
        atomic_store(&wake_seen, atomic_load(&wake_sent));
      }
      pthread_join(thread, NULL);
      insitu__ring_close(&r);
    }
  sigaction(SIGUSR1, &before, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Answers system calls first..last with an error from here on when their first argument is above
 * min_arg. For a child only. */
static bool forbid(unsigned first, unsigned last, unsigned min_arg, unsigned error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 4),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, min_arg, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
enum { NR_SETUP = 425, NR_ENTER, NR_REGISTER, NO_SECCOMP = 77 };
static int in_child(int (*fn)(int), int arg) { /* exit status, or 1000 + signal */
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    _exit(fn(arg));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
#define CHECK(condition)                                                                           \
  if (!(condition)) return __LINE__ % 200 + 1
static int child_forbidden(int arg) {
  int error = arg & 0xff;
  if (!forbid(arg >> 8 ? NR_REGISTER : NR_SETUP, NR_REGISTER, 0, (unsigned)error))
    return NO_SECCOMP;
  struct insitu__ring r;
  insitu_error err = {0};
  char bytes[10];
  struct iovec iov = {bytes, 10};
  CHECK(!insitu__ring_open(&r, &(struct insitu__ring_desc){.io_threads = 2}, &err));
  CHECK(r.backend == INSITU__RING_EPOLL);
  CHECK(read_one(&r, "small", 0, &iov, 1) == 10 && !memcmp(bytes, content, 10));
  insitu__ring_close(&r);
  int fds = open_fds();
  CHECK(insitu__ring_open(&r, &(struct insitu__ring_desc){.backend = INSITU__RING_URING}, &err) ==
        INSITU_E_UNSUPPORTED);
  CHECK(open_fds() == fds);
  CHECK(err.status == INSITU_E_UNSUPPORTED && err.sys_errno);
#ifndef INSITU_NO_URING
  CHECK(err.sys_errno == error && strstr(err.message, strerror(error)));
  CHECK(strstr(err.message, "INSITU_IO=epoll") &&
        strstr(err.message, arg >> 8 ? "PROBE" : "io_uring_setup"));
#endif
  return 0;
}
static void test_fallback(void **state) {
  (void)state;
  if (under_valgrind()) skip(); /* io_uring is refused for another reason */
  const int cases[] = {EPERM, ENOSYS, ENOMEM, EMFILE, EINVAL, 1 << 8 | EINVAL, 1 << 8 | EPERM};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i] >> 8 && !has_uring) continue;
    int status = in_child(child_forbidden, cases[i]);
    if (status == NO_SECCOMP) skip();
    assert_int_equal(status, 0);
  }
}

static int child_scarce(int arg) { /* little lockable memory: only small queues are to be had */
  if (!forbid(NR_SETUP, NR_SETUP, (unsigned)arg, ENOMEM)) return NO_SECCOMP;
  struct insitu__ring r;
  char bytes[10];
  struct iovec iov = {bytes, 10};
  CHECK(!insitu__ring_open(&r, &(struct insitu__ring_desc){.backend = INSITU__RING_URING}, NULL));
  CHECK(read_one(&r, "small", 0, &iov, 1) == 10);
  insitu__ring_close(&r);
  return 0;
}
static void test_scarce_memory(void **state) {
  (void)state;
  int status = has_uring ? in_child(child_scarce, 16) : NO_SECCOMP;
  if (status == NO_SECCOMP) skip();
  assert_int_equal(status, 0);
}

static struct insitu__ring *fork_ring;
static int child_touches(int arg) {
  (void)arg;
  close(2); /* the assertion's text */
  insitu__ring_wait(fork_ring, 0);
  return 0;
}
static int child_leaves(int arg) {
  return arg;
}
static void test_fork(void **state) {
  (void)state;
#ifdef NDEBUG
  skip(); /* it is an assertion */
#endif
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      open_ring(&r, d);
      fork_ring = &r;
      char bytes[10];
      for (int i = 0; i < 2; i++) {
        struct iovec iov = {bytes, 10};
        assert_int_equal(in_child(i ? child_touches : child_leaves, 0), i ? 1000 + SIGABRT : 0);
        assert_int_equal(read_one(&r, "small", 0, &iov, 1), 10);
      }
      insitu__ring_close(&r);
    }
}

/* ---- sockets ---- */

static void count_ready(struct insitu__ring_poll *poll, unsigned events) {
  char byte;
  assert_true(events & POLLIN);
  assert_int_equal(read(poll->fd, &byte, 1), 1);
  ++*(int *)poll->user;
}
/* Readiness is told as long as it lasts, and only while it is wanted. */
static void test_poll(void **state) {
  (void)state;
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      int ends[2], ready = 0;
      open_ring(&r, d);
      assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
      struct insitu__ring_poll *p = insitu__ring_poll_open(&r, ends[0], count_ready, &ready);
      insitu__ring_poll_want(&r, p, POLLIN);
      assert_int_equal(write(ends[1], "abc", 3), 3);
      while (ready < 3) insitu__ring_wait(&r, -1);
      insitu__ring_poll_want(&r, p, 0);
      insitu__ring_wait(&r, 0);
      assert_int_equal(write(ends[1], "d", 1), 1);
      for (int i = 0; i < 10; i++) insitu__ring_wait(&r, 0);
      assert_int_equal(ready, 3);
      insitu__ring_poll_want(&r, p, POLLIN);
      while (ready < 4) insitu__ring_wait(&r, -1);
      insitu__ring_poll_close(&r, p);
      while (insitu__ring_inflight(&r)) insitu__ring_wait(&r, -1);
      assert_ptr_equal(r.spare, p);
      close(ends[0]);
      struct insitu__ring_poll *again =
          /* its memory, and nothing else */
          insitu__ring_poll_open(&r, ends[1], count_ready, &ready);
      assert_ptr_equal(again, p);
      assert_true(again->fd == ends[1] && !again->want && !again->armed && !again->events);
      assert_false(again->closed || again->leaving || again->changed || again->fired);
      insitu__ring_poll_close(&r, again);
      insitu__ring_close(&r);
      close(ends[1]);
    }
}
/* An event that the ring has not heard of, and whose byte somebody else has read, when the poll is
 * closed or wants something else: the kernel arms such a poll again. */
static void test_poll_stolen(void **state) {
  (void)state;
  for
    EACH_BACKEND(d) {
      struct insitu__ring r;
      int ends[2], ready = 0;
      char byte;
      open_ring(&r, d);
      for (int i = 0; i < 8; i++) {
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        struct insitu__ring_poll *p = insitu__ring_poll_open(&r, ends[0], count_ready, &ready);
        insitu__ring_poll_want(&r, p, POLLIN);
        insitu__ring_wait(&r, 0);
        assert_int_equal(write(ends[1], "a", 1), 1);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        if (i % 2) { /* it stays, and is still told of what comes */
          insitu__ring_poll_want(&r, p, 0);
          insitu__ring_flush(&r);
          insitu__ring_poll_want(&r, p, POLLIN);
          assert_int_equal(write(ends[1], "b", 1), 1);
          int before = ready;
          while (ready == before) insitu__ring_wait(&r, -1);
        }
        insitu__ring_poll_close(&r, p);
        close(ends[0]);
        while (insitu__ring_inflight(&r)) insitu__ring_wait(&r, -1);
        assert_int_equal(read(ends[1], &byte, 1), 0); /* the other side sees the end */
        close(ends[1]);
      }
      insitu__ring_close(&r);
    }
}

static void *stack_of_thread(void *arg) {
  pthread_attr_t own;
  assert_int_equal(pthread_getattr_np(pthread_self(), &own), 0);
  assert_int_equal(pthread_attr_getstacksize(&own, (size_t *)arg), 0);
  pthread_attr_destroy(&own);
  return NULL;
}
/* musl gives threads 128 KiB; where a C library gives more, that stays. */
static void test_stack(void **state) {
  (void)state;
  pthread_attr_t before, small;
  pthread_t thread;
  size_t bytes = 0;
  assert_int_equal(pthread_getattr_default_np(&before), 0);
  assert_int_equal(pthread_attr_init(&small), 0);
  static const size_t defaults[] = {128u << 10, 3u << 20};
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(pthread_attr_setstacksize(&small, defaults[i]), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(insitu__ring_thread(&thread, "insitu-test", stack_of_thread, &bytes), 0);
    pthread_join(thread, NULL);
    assert_true(bytes >= (i ? defaults[i] : INSITU__RING_STACK));
  }
  assert_int_equal(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&small);
  pthread_attr_destroy(&before);
}

/* Where the address space is limited, a thread that does not start may want room for its stack. */
static void test_no_thread(void **state) {
  (void)state;
  struct rlimit old, some;
  assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
  some = old;
  some.rlim_cur = UINT64_C(1) << 46; /* more than a sanitizer takes */
  if (old.rlim_cur == RLIM_INFINITY) assert_null(strstr(insitu__ring_no_thread(), "ulimit -v"));
  assert_int_equal(setrlimit(RLIMIT_AS, &some), 0);
  assert_non_null(strstr(insitu__ring_no_thread(), "ulimit -v"));
  assert_non_null(strstr(insitu__ring_no_thread(), "ulimit -u"));
  assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads),
      cmocka_unit_test(test_many_iovecs),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_irregular),
      cmocka_unit_test(test_lease),
      cmocka_unit_test(test_short_reads),
      cmocka_unit_test(test_many_in_flight),
      cmocka_unit_test(test_no_descriptors),
      cmocka_unit_test(test_chains_and_close),
      cmocka_unit_test(test_again),
      cmocka_unit_test(test_cold),
      cmocka_unit_test(test_timeout),
      cmocka_unit_test(test_wake_before_wait),
      cmocka_unit_test(test_wake_race),
      cmocka_unit_test(test_wake_from_signal),
      cmocka_unit_test(test_fallback),
      cmocka_unit_test(test_scarce_memory),
      cmocka_unit_test(test_fork),
      cmocka_unit_test(test_stack),
      cmocka_unit_test(test_no_thread),
      cmocka_unit_test(test_poll),
      cmocka_unit_test(test_poll_stolen),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
