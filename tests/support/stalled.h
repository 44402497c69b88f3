/* What ends promptly although a server never answers: see close_while_stalled. Before it:
 * insitubatch.h, server.h, support.h. */
#ifndef STALLED_H
#define STALLED_H
#include <sched.h>
#include <unistd.h>

/* Opens two iterators of a loader with its own reactor thread; the reads of the first one meet the
 * server's rule, which stalls for ever, and the second one waits for the same bytes. Closes the
 * second one while the first one's read is in flight, then that one, then the loader. */
static inline void close_while_stalled(
    insitu_loader **ld, struct server *s, unsigned rule, insitu_iter_desc desc) {
  insitu_iter *it[2];
  insitu_batch *b;
  insitu_error err = {0};
  alarm(60); /* in place of a hang */
  for (int i = 0; i < 2; i++) {
    if (insitu_iter_open(*ld, &desc, &it[i], &err)) fail_msg("%s", err.message);
    while (!i && !server_hits(s, rule)) sched_yield();
    assert_int_equal(insitu_iter_next(it[i], i ? 10 : 0, &b, &err), INSITU_TIMEOUT);
  }
  uint64_t hits = server_hits(s, rule);
  insitu_iter_close(&it[1]);
  assert_true(server_stats(s).in_flight > 0);
  assert_int_equal(server_hits(s, rule), hits);
  insitu_iter_close(&it[0]);
  insitu_loader_close(ld);
  alarm(0);
}
#endif
