/* The ways a loader can run: with threads on each backend (io_uring if this machine has it), and
 * inline. INSITU_IO in the environment leaves the backend that it names. MODES_THREADED leaves
 * inline out. */
#ifndef TESTS_MODES_H
#define TESTS_MODES_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "support.h"
#ifndef INSITU_NO_URING
#include <liburing.h>
#endif
static const struct {
  const char *name;
  int32_t io, inline_io;
} modes[] = {{"uring", INSITU_IO_URING, 0}, {"epoll", INSITU_IO_EPOLL, 0},
    {"inline uring", INSITU_IO_URING, 1}, {"inline epoll", INSITU_IO_EPOLL, 1}};
enum { URING, EPOLL, INLINE_URING, INLINE_EPOLL, MODES };

/* Whether the kernel lets this process have an io_uring. Asked once: a ring is dear to make. */
static inline bool mode_uring(void) {
#ifdef INSITU_NO_URING
  return false;
#else
  static int known; /* 1: it does; -1: it does not */
  if (!known) {
    struct io_uring ring;
    known = io_uring_queue_init(8, &ring, 0) < 0 ? -1 : 1;
    if (known > 0) io_uring_queue_exit(&ring);
  }
  return known > 0;
#endif
}
static inline bool mode_usable(int m) {
  const char *forced = getenv("INSITU_IO");
#ifdef MODES_THREADED
  if (modes[m].inline_io) return false;
#endif
  if (forced && strcmp(forced, modes[m].io == INSITU_IO_URING ? "uring" : "epoll")) return false;
  if (modes[m].io == INSITU_IO_EPOLL) return true;
  return mode_uring();
}
/* For what is no question of modes: the first that works here. Under Valgrind that is epoll. */
static inline int any_mode(void) {
  int m = 0;
  while (!mode_usable(m)) m++;
  return m;
}
/* Whether a loop over modes takes mode m. loop: how many such loops began before it in this
 * process. In a plain run a loop takes all modes. Where code runs slowly, it takes one mode with
 * threads and one inline mode, on different backends, and the next loop takes the other two. With
 * TEST_ALL_MODES in the environment each loop takes all. */
static inline bool mode_in_loop(int m, int loop) {
  bool first = m == URING || m == INLINE_EPOLL;

  if (!mode_usable(m)) return false;
  if (!support_slow() || getenv("TEST_ALL_MODES")) return true;
  for (int other = 0; other < MODES; other++)
    if (!mode_usable(other)) return true;
  return first == (loop % 2 == 0);
}
static inline int mode_loops(void) {
  static int loops;
  return loops++;
}
#define EACH_MODE(m)                                                                               \
  for (int m = 0, m##_loop = mode_loops(); m < MODES; m++)                                         \
    if (mode_in_loop(m, m##_loop))

/* Of a test that goes through many cases in each mode: all modes in a plain run; where code runs
 * slowly, one mode a case, the next case the next mode. */
static inline bool mode_has_turn(int m, int turn) {
  int usable = 0, before = 0;
  if (!mode_usable(m)) return false;
  if (!support_slow()) return true;
  for (int other = 0; other < MODES; other++)
    if (mode_usable(other)) usable++, before += other < m;
  return before == turn % usable;
}
#define EACH_MODE_BY_TURNS(m, turn)                                                                \
  for (int m = 0; m < MODES; m++)                                                                  \
    if (mode_has_turn(m, turn))
#endif
