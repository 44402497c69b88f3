/* A read that does not end before the test lets it. Include this before insitubatch.h. */
#ifndef TESTS_HOLD_H
#define TESTS_HOLD_H
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const char *_Atomic hold_key; /* reads of this object are held; NULL: none */

/* The kernel was interrupted, time and again: the ring reads anew as often as its count of retries
 * is set back. */
static int64_t hold_read(const char *path, int stage, int *retries, int64_t got) {
  const char *key = atomic_load(&hold_key);
  if (stage != 1 || !key || strcmp(path, key)) return got; /* INSITU__RING_STAGE_READ */
  usleep(1000);
  *retries = 0;
  return -EINTR;
}
#define INSITU_TEST_FAULT(op, got) hold_read((op)->path, (op)->stage, &(op)->retries, got)
#endif
