/* The ways a loader can run: with threads on each backend (io_uring if this machine has it), and
 * inline. INSITU_IO in the environment leaves the backend that it names. MODES_THREADED leaves
 * inline out. */
#ifndef TESTS_MODES_H
#define TESTS_MODES_H
static const struct {
  const char *name;
  int32_t io, inline_io;
} modes[] = {{"uring", INSITU_IO_URING, 0}, {"epoll", INSITU_IO_EPOLL, 0},
    {"inline uring", INSITU_IO_URING, 1}, {"inline epoll", INSITU_IO_EPOLL, 1}};
enum { URING, EPOLL, INLINE_URING, INLINE_EPOLL, MODES };

static inline bool mode_usable(int m) {
  const char *forced = getenv("INSITU_IO");
  struct insitu__ring r;
  struct insitu__ring_desc d = {.backend = INSITU__RING_URING, .depth = 8};
#ifdef MODES_THREADED
  if (modes[m].inline_io) return false;
#endif
  if (forced && strcmp(forced, modes[m].io == INSITU_IO_URING ? "uring" : "epoll")) return false;
  if (modes[m].io == INSITU_IO_EPOLL) return true;
  if (insitu__ring_open(&r, &d, NULL)) return false;
  insitu__ring_close(&r);
  return true;
}
/* For what is no question of modes: the first that works here. Under Valgrind that is epoll. */
static inline int any_mode(void) {
  int m = 0;
  while (!mode_usable(m)) m++;
  return m;
}
#define EACH_MODE(m)                                                                               \
  for (int m = 0; m < MODES; m++)                                                                  \
    if (mode_usable(m))
#endif
