/* For bench-against: one version of the header as a shared object, which exports bench_side. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "bench_side.h"

static void *open_side(const struct row *r, const char *where, const struct options *o) {
  struct side *s = (struct side *)take(1, sizeof *s);
  bool readable = side_open(s, r, where, o, true);
  errno = 0;
  must(readable, "a version cannot read this row");
  return s;
}
static struct cost round_side(void *side) {
  return side_round((struct side *)side);
}
static void close_side(void *side) {
  side_close((struct side *)side);
  free(side);
}

__attribute__((visibility("default")))
const struct side_version bench_side = {open_side, round_side, close_side};
