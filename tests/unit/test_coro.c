/* Coroutines: switching keeps every register and value, stacks are guarded, reused and bounded,
 * misuse is caught.
 * TEST_PLAIN: without cmocka (cross builds). TEST_PAIR=1 and =2: two translation units, each with
 * its own copy, linked into one program. */
#define INSITU_STATIC
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unwind.h>

#ifdef TEST_PLAIN
#define assert_true(x)                                                                             \
  ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_ptr_equal(a, b) assert_true((a) == (b))
#define skip() return
#else
#include <setjmp.h>
#include <cmocka.h>
#endif
/* inside a coroutine: cmocka's asserts would longjmp to another stack */
#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))

#if defined(INSITU__ASAN) || defined(INSITU__TSAN)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#ifdef INSITU__CORO_VALGRIND
#define UNDER_VALGRIND (RUNNING_ON_VALGRIND != 0)
#else
#define UNDER_VALGRIND 0
#endif

static uint64_t next_random(uint64_t *s) { /* splitmix64 */
  uint64_t z = *s += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* Pages of address space in use; 0 where others map at will, so that comparing it always holds. */
static long mapped_pages(void) {
  char text[64] = "";
  if (SANITIZED || UNDER_VALGRIND || getenv("TEST_EMULATED")) return 0;
  int fd = open("/proc/self/statm", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !close(fd));
  return strtol(text, NULL, 10);
}

static struct insitu__coro_pool new_pool(unsigned max_idle) {
  struct insitu__coro_pool pool;
  assert_int_equal(insitu__coro_pool_init(&pool, 0, max_idle, NULL), INSITU_OK);
  return pool;
}

/* Ten integers and ten doubles that live across every suspension: more than there are callee-saved
 * registers of either kind. */
struct mixer {
  struct insitu__coro_pool *pool; /* NULL: the same computation without suspending */
  struct insitu__coro *co;
  uint64_t seed, sum;
  double real;
  unsigned steps, seen, running;
  bool done;
};

static void mix(void *argument) {
  struct mixer *m = (struct mixer *)argument;
  uint64_t s = m->seed, a = s, b = ~s, c = s * 3, d = s * 5, e = s * 7, f = s << 9, g = s >> 7,
           h = s ^ 77, i = s + 11, j = s - 1;
  double p = 1, q = 2, r = 3, t = 4, u = 5, v = 6, w = 7, x = 8, y = 9, z = 10;
  unsigned char local[512];
  memset(local, (int)(s & 255), sizeof local);
  for (unsigned n = 0; n < m->steps; n++) {
    a += b, b ^= c, c += d << 1, d ^= e, e += f, f ^= g >> 3, g += h, h ^= i, i += j, j ^= a + n;
    p += q * .5, q -= r * .25, r += t * .125, t -= u * .5, u += v * .25, v -= w * .5, w += x * .125,
        x -= y * .25, y += z * .5, z -= p * .25;
    m->seen++;
    if (m->pool) insitu__coro_suspend_await(m->pool);
    if (m->pool) CHECK(m->pool->current == m->co);
  }
  for (size_t k = 0; k < sizeof local; k++) CHECK(local[k] == (s & 255));
  m->sum = a ^ b * 3 ^ c * 5 ^ d * 7 ^ e * 11 ^ f * 13 ^ g * 17 ^ h * 19 ^ i * 23 ^ j * 29;
  m->real = p + 2 * q + 3 * r + 4 * t + 5 * u + 6 * v + 7 * w + 8 * x + 9 * y + 10 * z;
  m->done = true;
}

static void test_interleaving(void **state) {
  (void)state;
  enum { COUNT = 100, STEPS = 60 };
  static struct mixer mixers[COUNT];
  struct insitu__coro_pool pool = new_pool(COUNT);
  uint64_t seed = 1;
  /* the driver's own values must survive too */
  uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, a2 = 1, b2 = 2, c2 = 3, d2 = 4, e2 = 5, f2 = 6;
  double x = 1, y = 2, x2 = 1, y2 = 2;
  for (unsigned k = 0; k < COUNT; k++) {
    mixers[k] = (struct mixer){.pool = &pool, .seed = next_random(&seed), .steps = STEPS};
    mixers[k].co = insitu__coro_start(&pool, mix, &mixers[k]);
    assert_true(mixers[k].co);
    assert_int_equal(mixers[k].seen, 0); /* not yet run */
  }
  assert_int_equal(pool.live, COUNT);
  uint64_t turns = 0, passes = 0;
  for (unsigned alive = COUNT; alive; passes++) {
    struct mixer *m = &mixers[next_random(&seed) % COUNT];
    if (m->done) continue;
    unsigned seen = m->seen;
    insitu__coro_resume(m->co);
    assert_ptr_equal(pool.current, NULL);
    if (m->done) alive--;
    else assert_int_equal(m->seen, seen + 1);
    turns++;
    a += b, b ^= c, c += d, d ^= e, e += f, f ^= a, x += y * .5, y -= x * .25;
  }
  assert_int_equal(turns, COUNT * (STEPS + 1));
  for (uint64_t n = 0; n < turns; n++)
    a2 += b2, b2 ^= c2, c2 += d2, d2 ^= e2, e2 += f2, f2 ^= a2, x2 += y2 * .5, y2 -= x2 * .25;
  assert_true(a == a2 && b == b2 && c == c2 && d == d2 && e == e2 && f == f2);
  assert_true(!memcmp(&x, &x2, sizeof x) && !memcmp(&y, &y2, sizeof y));
  for (unsigned k = 0; k < COUNT; k++) {
    struct mixer plain = {.seed = mixers[k].seed, .steps = STEPS};
    mix(&plain);
    assert_true(
        plain.sum == mixers[k].sum && !memcmp(&plain.real, &mixers[k].real, sizeof plain.real));
  }
  assert_int_equal(pool.live, 0);
  insitu__coro_pool_free(&pool);
}

/* The callee-saved registers by name: filled with known values before the switch and compared after
 * it, on both sides. */
/* the compiler needs them for itself */
#if SANITIZED || defined(INSITU_CORO_UCONTEXT) || !defined(__OPTIMIZE__)
#define SWITCH_OUT(co) insitu__coro_suspend_await((co)->pool)
#define SWITCH_IN(co) insitu__coro_resume(co)
#define SAVED_INTEGERS(X)
#define SAVED_REALS(X)
#else /* the bare switch, since the functions around it save what they use themselves */
#define SWITCH_OUT(co) insitu__coro_switch(&(co)->context.sp, (co)->pool->native.sp, NULL)
#define SWITCH_IN(co) insitu__coro_switch(&(co)->pool->native.sp, (co)->context.sp, co)
#if defined(__x86_64__)
#define SAVED_INTEGERS(X) X(rbx, 1) X(r12, 2) X(r13, 3) X(r14, 4) X(r15, 5)
#define SAVED_REALS(X)
#else
#define SAVED_INTEGERS(X)                                                                          \
  X(x19, 1)                                                                                        \
  X(x20, 2) X(x21, 3) X(x22, 4) X(x23, 5) X(x24, 6) X(x25, 7) X(x26, 8) X(x27, 9) X(x28, 10)
#define SAVED_REALS(X) X(d8, 1) X(d9, 2) X(d10, 3) X(d11, 4) X(d12, 5) X(d13, 6) X(d14, 7) X(d15, 8)
#endif
#endif
#define FILL_INTEGER(name, n) register uint64_t in_##name __asm__(#name) = f->value + n;
#define FILL_REAL(name, n) register double in_##name __asm__(#name) = (double)(f->value + n);
#define PIN_INTEGER(name, n) __asm__ volatile("" : "+r"(in_##name));
#define PIN_REAL(name, n) __asm__ volatile("" : "+w"(in_##name));
#define CHECK_INTEGER(name, n) good &= in_##name == f->value + n;
#define CHECK_REAL(name, n) good &= (uint64_t)in_##name == f->value + n;
struct fill {
  struct insitu__coro *co;
  uint64_t value;
  bool inside;
};
/* out of f->co when inside, into it otherwise */
static __attribute__((noinline)) bool switch_filled(struct fill *f) {
  bool good = true;
  SAVED_INTEGERS(FILL_INTEGER)
  SAVED_REALS(FILL_REAL)
  SAVED_INTEGERS(PIN_INTEGER)
  SAVED_REALS(PIN_REAL)
  if (f->inside) SWITCH_OUT(f->co);
  else SWITCH_IN(f->co);
  SAVED_INTEGERS(PIN_INTEGER)
  SAVED_REALS(PIN_REAL)
  SAVED_INTEGERS(CHECK_INTEGER)
  SAVED_REALS(CHECK_REAL)
  return good;
}
static void fill_and_switch(void *argument) {
  struct fill *f = (struct fill *)argument;
  for (int n = 0; n < 100; n++) CHECK(switch_filled(f));
}
static void test_registers(void **state) {
  (void)state;
  struct insitu__coro_pool pool = new_pool(4);
  struct fill inside = {.value = 1000, .inside = true},
              outside = {.value = UINT64_C(0x5555555555555)};
  inside.co = outside.co = insitu__coro_start(&pool, fill_and_switch, &inside);
  for (int n = 0; n < 100; n++) assert_true(switch_filled(&outside));
  insitu__coro_resume(outside.co);
  assert_int_equal(pool.live, 0);
  insitu__coro_pool_free(&pool);
}

struct probe { /* what a coroutine reports about where it runs */
  struct insitu__coro_pool *pool;
  unsigned depth, frames, suspensions;
  int unwound;
  char text[64];
  uintptr_t frame;
  bool done;
};

/* alignment as the ABI wants it; printing doubles uses aligned vector stores */
static void check_entry(void *argument) {
  struct probe *p = (struct probe *)argument;
  _Alignas(32) unsigned char aligned[32];
  unsigned char *volatile hidden = aligned;
  CHECK((uintptr_t)hidden % 32 == 0);
  p->frame = (uintptr_t)__builtin_frame_address(0);
  snprintf(
      p->text, sizeof p->text, "%.3f %.3f %d %d %d %d %d %s", 1.5, -2.25, 1, 2, 3, 4, 5, "end");
}
static void test_entry(void **state) {
  (void)state;
  struct insitu__coro_pool pool = new_pool(4);
  struct probe p = {.pool = &pool};
  struct insitu__coro *co = insitu__coro_start(&pool, check_entry, &p);
  insitu__coro_resume(co);
  assert_true(p.frame % 16 == 0);
  assert_true(p.frame > (uintptr_t)co->low && p.frame < (uintptr_t)co);
#ifdef INSITU__ASAN
  uintptr_t here = (uintptr_t)__builtin_frame_address(0), low = (uintptr_t)pool.native_low;
  assert_true(here > low && here < low + pool.native_bytes);
#endif
  assert_true(!strcmp(p.text, "1.500 -2.250 1 2 3 4 5 end"));
  insitu__coro_pool_free(&pool);
}

static _Unwind_Reason_Code count_frame(struct _Unwind_Context *context, void *argument) {
  struct probe *p = (struct probe *)argument;
  (void)context;
  return ++p->frames > 1000 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}
static void unwind(void *argument) {
  struct probe *p = (struct probe *)argument;
  insitu__coro_suspend_await(p->pool);
  p->unwound = (int)_Unwind_Backtrace(count_frame, p);
}
static void test_backtrace_ends(void **state) {
  (void)state;
  struct insitu__coro_pool pool = new_pool(4);
  struct probe p = {.pool = &pool};
  struct insitu__coro *co = insitu__coro_start(&pool, unwind, &p);
  insitu__coro_resume(co);
  insitu__coro_resume(co);
  assert_int_equal(p.unwound, _URC_END_OF_STACK);
  assert_true(p.frames >= 1 && p.frames <= 5);
  insitu__coro_pool_free(&pool);
}

/* Recursion to within 3 KiB of the guard, suspending at the bottom and on the way back. */
static __attribute__((noinline)) uint64_t descend(struct probe *p, uint64_t seed) {
  volatile uint64_t local[24];
  for (unsigned k = 0; k < 24; k++) local[k] = seed * (k + 1);
  uint64_t left =
               (uint64_t)((uintptr_t)__builtin_frame_address(0) - (uintptr_t)p->pool->current->low),
           below = 0;
  /* the sanitizers' runtimes need more below a suspension */
  uint64_t reserve = SANITIZED ? 24 << 10 : 3 << 10;
  p->depth++;
  if (left > reserve) below = descend(p, seed + 1);
  if (left <= reserve || seed % 16 == 0) p->suspensions++, insitu__coro_suspend_await(p->pool);
  for (unsigned k = 0; k < 24; k++) CHECK(local[k] == seed * (k + 1));
  return below + seed;
}
static void dive(void *argument) {
  struct probe *p = (struct probe *)argument;
  uint64_t sum = descend(p, 1);
  CHECK(sum == (uint64_t)p->depth * (p->depth + 1) / 2);
  p->done = true;
}
static void test_deep_recursion(void **state) {
  (void)state;
  enum { COUNT = 3 };
  struct insitu__coro_pool pool = new_pool(COUNT);
  struct probe p[COUNT];
  struct insitu__coro *co[COUNT];
  for (int k = 0; k < COUNT; k++) {
    p[k] = (struct probe){.pool = &pool};
    co[k] = insitu__coro_start(&pool, dive, &p[k]);
  }
  while (pool.live)
    for (int k = 0; k < COUNT; k++)
      if (!p[k].done) insitu__coro_resume(co[k]);
  for (int k = 0; k < COUNT; k++) assert_true(p[k].depth > 100 && p[k].suspensions > 5);
  insitu__coro_pool_free(&pool);
}

/* Runs misdeed in a forked child, silenced, and returns its wait status. */
static int fate(void (*misdeed)(void)) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    /* the test library's handlers are not wanted here */
    for (int s = 1; s < 32; s++) signal(s, SIG_DFL);
    int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, 2);
    misdeed();
    _exit(0);
  }
  int status = 0;
  assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
  return status;
}

static struct insitu__coro_pool doomed;
static struct insitu__coro *doomed_co;
static __attribute__((noinline)) unsigned recurse(volatile unsigned *depth) {
  volatile unsigned char local[200];
  local[0] = (unsigned char)++*depth;
  return *depth == UINT_MAX ? 0 : recurse(depth) + local[0];
}
static void overflow(void *argument) {
  (void)argument;
  volatile unsigned depth = 0;
  recurse(&depth);
}
/* steps over a 4 KiB page, not over the guard; touches its lowest bytes only */
static void overflow_by_a_frame(void *argument) {
  (void)argument;
  size_t left = (size_t)((uintptr_t)__builtin_frame_address(0) - (uintptr_t)doomed.current->low);
  volatile unsigned char *frame =
      (volatile unsigned char *)__builtin_alloca(left + (INSITU__CORO_GUARD >> 1));
  frame[0] = 1;
}
static void at_fault(int number, siginfo_t *info, void *context) {
  (void)number, (void)context;
  uintptr_t at = (uintptr_t)info->si_addr, low = (uintptr_t)doomed_co->low;
  _exit(at >= low - doomed.guard_bytes && at < low ? 42 : 43);
}
static void start_doomed(void (*fn)(void *), bool handle) {
  if (insitu__coro_pool_init(&doomed, 0, 4, NULL) ||
      !(doomed_co = insitu__coro_start(&doomed, fn, NULL)))
    _exit(1);
  if (handle) { /* the stack is exhausted: the handler needs another */
    static unsigned char bytes[64 << 10];
    stack_t other = {.ss_sp = bytes, .ss_size = sizeof bytes};
    struct sigaction action = {.sa_sigaction = at_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaltstack(&other, NULL) || sigaction(SIGSEGV, &action, NULL)) _exit(1);
  }
  insitu__coro_resume(doomed_co);
}
static void overflow_and_die(void) {
  start_doomed(overflow, false);
}
static void overflow_and_look(void) {
  start_doomed(overflow, true);
}
static void overflow_by_a_frame_and_look(void) {
  start_doomed(overflow_by_a_frame, true);
}
static void test_guard(void **state) {
  (void)state;
  if (SANITIZED || UNDER_VALGRIND) skip(); /* they report it themselves */
  int status = fate(overflow_and_die);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  status = fate(overflow_and_look);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  status = fate(overflow_by_a_frame_and_look);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void nothing(void *argument) {
  (void)argument;
}
static void suspend_once(void *argument) {
  insitu__coro_suspend_await((struct insitu__coro_pool *)argument);
}
static void test_reuse(void **state) {
  (void)state;
  struct insitu__coro_pool pool = new_pool(2);
  struct insitu__coro *co[4];
  for (int k = 0; k < 4; k++) {
    co[k] = insitu__coro_start(&pool, suspend_once, &pool);
    assert_true(co[k]);
    for (int i = 0; i < k; i++) assert_true(co[i] != co[k]);
    insitu__coro_resume(co[k]);
  }
  assert_true(pool.live == 4 && pool.idle_count == 0);
  for (int k = 0; k < 4; k++) insitu__coro_resume(co[k]);
  /* the last two were unmapped */
  assert_true(pool.live == 0 && pool.idle_count == 2);
  /* last ended, first reused */
  assert_ptr_equal(insitu__coro_start(&pool, nothing, NULL), co[1]);
  assert_ptr_equal(insitu__coro_start(&pool, nothing, NULL), co[0]);
  assert_true(pool.live == 2 && pool.idle_count == 0);
  insitu__coro_resume(co[0]);
  insitu__coro_resume(co[1]);
  assert_int_equal(pool.live, 0);
  insitu__coro_pool_free(&pool);
  assert_true(pool.idle_count == 0 && !pool.idle);
}

/* 100,000 coroutines, started in waves, by the native stack and by each other; mapped stacks stay
 * bounded. */
struct lifetimes {
  struct insitu__coro_pool *pool;
  struct insitu__coro *child;
  uint64_t ended;
};
static void live_and_end(void *argument) {
  struct lifetimes *l = (struct lifetimes *)argument;
  insitu__coro_suspend_await(l->pool);
  l->ended++;
}
static void bear(void *argument) {
  struct lifetimes *l = (struct lifetimes *)argument;
  l->child = insitu__coro_start(l->pool, live_and_end, l);
  live_and_end(l);
}
static void test_lifetimes(void **state) {
  (void)state;
  enum { WAVE = 20, IDLE = 16 };
  long mapped = mapped_pages();
  struct insitu__coro_pool pool = new_pool(IDLE);
  struct lifetimes l = {.pool = &pool};
#ifdef INSITU__TSAN
  uint64_t total = 2000; /* a fiber of its own costs gcc's runtime 0.7 ms */
#else
  uint64_t total = UNDER_VALGRIND ? 10000 : 100000;
#endif
  while (l.ended < total) {
    struct insitu__coro *co[2 * WAVE];
    for (int k = 0; k < WAVE; k++) {
      co[2 * k] = insitu__coro_start(&pool, bear, &l);
      assert_true(co[2 * k]);
      insitu__coro_resume(co[2 * k]);
      co[2 * k + 1] = l.child;
      assert_true(l.child);
      insitu__coro_resume(l.child);
    }
    for (int k = 2 * WAVE; k-- > 0;) insitu__coro_resume(co[k]);
    assert_true(pool.live == 0 && pool.idle_count == IDLE);
  }
  insitu__coro_pool_free(&pool);
  assert_int_equal(mapped_pages(), mapped);
}

/* No memory: for the mapping (address space), then for its second half (private writable bytes). */
static int limit(bool data, const struct rlimit *to) {
  return data ? setrlimit(RLIMIT_DATA, to) : setrlimit(RLIMIT_AS, to);
}
static void exhaust(bool data) {
  struct insitu__coro_pool pool;
  if (insitu__coro_pool_init(&pool, 8 << 20, 2, NULL)) _exit(1);
  struct insitu__coro *first = insitu__coro_start(&pool, suspend_once, &pool);
  if (!first) _exit(2);
  insitu__coro_resume(first);
  struct rlimit before, tight;
  if (data ? getrlimit(RLIMIT_DATA, &before) : getrlimit(RLIMIT_AS, &before)) _exit(9);
  tight = (struct rlimit){1 << 20, before.rlim_max};
  if (limit(data, &tight)) _exit(3);
  long mapped = mapped_pages();
  errno = 0;
  if (insitu__coro_start(&pool, nothing, NULL) || errno != ENOMEM) _exit(4);
  if (mapped_pages() != mapped) _exit(10);
  if (pool.live != 1) _exit(5);
  insitu__coro_resume(first); /* still works, and its stack is reused */
  if (insitu__coro_start(&pool, nothing, NULL) != first) _exit(6);
  if (insitu__coro_start(&pool, nothing, NULL)) _exit(7);
  limit(data, &before);
  struct insitu__coro *second = insitu__coro_start(&pool, nothing, NULL);
  if (!second) _exit(8);
  insitu__coro_resume(second);
  insitu__coro_resume(first);
  insitu__coro_pool_free(&pool);
  _exit(42);
}
static void exhaust_address_space(void) {
  exhaust(false);
}
static void exhaust_data(void) {
  exhaust(true);
}
static void test_no_memory(void **state) {
  (void)state;
  /* they have their own use for the limits, or ignore them */
  if (SANITIZED || UNDER_VALGRIND || getenv("TEST_EMULATED")) skip();
  int status = fate(exhaust_address_space);
  assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 42);
  status = fate(exhaust_data);
  assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 42);
}

static void test_init(void **state) {
  (void)state;
  struct insitu__coro_pool pool;
  insitu_error err = {0};
  assert_int_equal(insitu__coro_pool_init(&pool, 100, 1, &err), INSITU_E_ARG);
  assert_true(err.status == INSITU_E_ARG && strstr(err.message, "INSITU_CORO_STACK"));
  assert_int_equal(insitu__coro_pool_init(&pool, 32 << 10, 1, NULL), INSITU_E_ARG);
  assert_int_equal(insitu__coro_pool_init(&pool, SIZE_MAX, 1, NULL), INSITU_E_ARG);
  /* rounded up to pages */
  assert_int_equal(insitu__coro_pool_init(&pool, (64 << 10) + 1, 0, NULL), INSITU_OK);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  assert_true(
      pool.stack_bytes > 64 << 10 && pool.stack_bytes % page == 0 && pool.guard_bytes % page == 0);
  struct insitu__coro *co = insitu__coro_start(&pool, nothing, NULL);
  assert_true(co);
  co->low[0] = co->low[(unsigned char *)co - co->low - 1] = 1; /* all of the stack can be written */
  assert_true((uintptr_t)(co + 1) <= (uintptr_t)co->low + pool.stack_bytes);
  insitu__coro_resume(co);
  assert_int_equal(pool.idle_count, 0); /* max_idle is zero */
  insitu__coro_pool_free(&pool);
}

#ifndef NDEBUG
static void resume_inside(void *argument) {
  insitu__coro_resume((struct insitu__coro *)argument);
}
static void nest(void) {
  struct insitu__coro_pool pool = new_pool(2);
  insitu__coro_resume(
      insitu__coro_start(&pool, resume_inside, insitu__coro_start(&pool, nothing, NULL)));
}
static void suspend_outside(void) {
  struct insitu__coro_pool pool = new_pool(2);
  insitu__coro_suspend_await(&pool);
}
static void free_live(void) {
  struct insitu__coro_pool pool = new_pool(2);
  insitu__coro_resume(insitu__coro_start(&pool, suspend_once, &pool));
  insitu__coro_pool_free(&pool);
}
static void resume_ended(void) {
  struct insitu__coro_pool pool = new_pool(2);
  struct insitu__coro *co = insitu__coro_start(&pool, nothing, NULL);
  (void)insitu__coro_start(&pool, nothing, NULL);
  insitu__coro_resume(co);
  insitu__coro_resume(co);
}
static void *resume_here(void *argument) {
  insitu__coro_resume((struct insitu__coro *)argument);
  return NULL;
}
static void change_thread(void) {
  struct insitu__coro_pool pool = new_pool(2);
  pthread_t thread;
  if (!pthread_create(&thread, NULL, resume_here, insitu__coro_start(&pool, nothing, NULL)))
    pthread_join(thread, NULL);
}
static void round_otherwise(void *argument) {
#if defined(__x86_64__)
  uint32_t controls;
  __asm__ volatile("stmxcsr %0" : "=m"(controls));
  controls |= 1 << 13; /* round down */
  __asm__ volatile("ldmxcsr %0" : : "m"(controls));
#else
  uint64_t controls;
  __asm__ volatile("mrs %0, fpcr" : "=r"(controls));
  controls |= 1 << 23;
  __asm__ volatile("msr fpcr, %0" : : "r"(controls));
#endif
  insitu__coro_suspend_await((struct insitu__coro_pool *)argument);
}
static void change_rounding(void) {
  struct insitu__coro_pool pool = new_pool(2);
  insitu__coro_resume(insitu__coro_start(&pool, round_otherwise, &pool));
}
static void change_rounding_outside(void) {
  struct insitu__coro_pool pool = new_pool(2);
  struct insitu__coro *co = insitu__coro_start(&pool, suspend_once, &pool);
  insitu__coro_resume(co);
#if defined(__x86_64__)
  uint16_t controls;
  __asm__ volatile("fnstcw %0" : "=m"(controls));
  controls ^= 1 << 10;
  __asm__ volatile("fldcw %0" : : "m"(controls));
#else
  uint64_t controls;
  __asm__ volatile("mrs %0, fpcr" : "=r"(controls));
  controls |= 1 << 24;
  __asm__ volatile("msr fpcr, %0" : : "r"(controls));
#endif
  insitu__coro_resume(co);
}
static void test_misuse(void **state) {
  (void)state;
  void (*const misdeeds[])(void) = {nest, suspend_outside, free_live, resume_ended, change_thread,
#ifndef INSITU_CORO_UCONTEXT /* which switches them, whether one wants it or not */
      change_rounding, change_rounding_outside
#endif
  };
  for (size_t k = 0; k < sizeof misdeeds / sizeof *misdeeds; k++) {
    if (UNDER_VALGRIND && k >= 5) break; /* it emulates no floating point controls */
    int status = fate(misdeeds[k]);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
      fprintf(stderr, "misdeed %zu: status %#x\n", k, (unsigned)status);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  }
}
#endif

/* A pool per thread, both fed from one locked list: what ThreadSanitizer has to understand. */
struct shared {
  pthread_mutex_t lock;
  uint64_t jobs, done;
};
struct worker {
  struct insitu__coro_pool pool;
  struct shared *shared;
};
static void take_jobs(void *argument) {
  struct worker *w = (struct worker *)argument;
  for (;;) {
    pthread_mutex_lock(&w->shared->lock);
    bool taken = w->shared->jobs > 0;
    w->shared->jobs -= taken;
    pthread_mutex_unlock(&w->shared->lock);
    if (!taken) return;
    insitu__coro_suspend_await(&w->pool);
    pthread_mutex_lock(&w->shared->lock);
    w->shared->done++;
    pthread_mutex_unlock(&w->shared->lock);
  }
}
static void *work(void *argument) {
  struct worker *w = (struct worker *)argument;
  struct insitu__coro *co[8];
  for (int round = 0; round < 3; round++) { /* the later rounds reuse the stacks */
    if (round) {
      pthread_mutex_lock(&w->shared->lock);
      w->shared->jobs += 100;
      pthread_mutex_unlock(&w->shared->lock);
    }
    for (int k = 0; k < 8; k++) CHECK((co[k] = insitu__coro_start(&w->pool, take_jobs, w)));
    while (w->pool.live)
      for (int k = 0; k < 8; k++)
        if (co[k]->state == INSITU__CORO_SUSPENDED) insitu__coro_resume(co[k]);
  }
  return NULL;
}
static void test_threads(void **state) {
  (void)state;
  struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .jobs = 1000};
  struct worker workers[2];
  pthread_t threads[2];
  for (int k = 0; k < 2; k++) {
    /* made here, used there */
    workers[k] = (struct worker){.pool = new_pool(8), .shared = &shared};
    assert_int_equal(pthread_create(&threads[k], NULL, work, &workers[k]), 0);
  }
  for (int k = 0; k < 2; k++) {
    pthread_join(threads[k], NULL);
    insitu__coro_pool_free(&workers[k].pool);
  }
  assert_int_equal(shared.jobs, 0);
  assert_int_equal(shared.done, 1000 + 2 * 2 * 100);
}

#ifdef TEST_PLAIN
struct CMUnitTest {
  const char *name;
  void (*run)(void **);
};
#define cmocka_unit_test(f)                                                                        \
  { #f, f }
#endif
static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_interleaving),
    cmocka_unit_test(test_registers),
    cmocka_unit_test(test_entry),
    cmocka_unit_test(test_backtrace_ends),
    cmocka_unit_test(test_deep_recursion),
    cmocka_unit_test(test_guard),
    cmocka_unit_test(test_reuse),
    cmocka_unit_test(test_lifetimes),
    cmocka_unit_test(test_no_memory),
    cmocka_unit_test(test_init),
#ifndef NDEBUG
    cmocka_unit_test(test_misuse),
#endif
    cmocka_unit_test(test_threads),
};

int insitu_test_coro_other_unit(void);
#if TEST_PAIR + 0 == 2
int insitu_test_coro_other_unit(void) {
#else
int main(void) {
#endif
#ifdef TEST_PLAIN
  for (size_t k = 0; k < sizeof tests / sizeof *tests; k++) {
    printf("%s\n", tests[k].name);
    fflush(stdout);
    tests[k].run(NULL);
  }
  printf("%zu tests passed\n", sizeof tests / sizeof *tests);
  int failed = 0;
#else
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
#endif
#if TEST_PAIR + 0 == 1
  failed += insitu_test_coro_other_unit();
#endif
  return failed;
}
