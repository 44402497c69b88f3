/* libFuzzer: timelines that insitu trace sums up: no figure of one that is taken is negative or
 * none, however odd its events are. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "../../tools/insitu/common.h"
#include "../../tools/insitu/config.h"
#include "../../tools/insitu/trace.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *text = malloc(n + 1);
  struct trace_sum s;
  insitu_error err = {0};
  if (!text) return 0;
  memcpy(text, data, n);
  text[n] = 0;
  if (trace_parse(text, n, "fuzz", &s, &err)) {
    struct trace_shares r = trace_shares(&s);
    FUZZ_HOLDS(r.wall > 0 && r.waits >= 0 && r.busy >= 0 && r.flight >= 0 && r.reads >= 0);
    FUZZ_HOLDS(r.first >= 0 && trace_limit(&s, &r).word);
    for (int k = -1; k < TRACE_STAGES; k++) {
      struct trace_spread spread = trace_spread_of(s.chunks, k);
      FUZZ_HOLDS(spread.median >= 0 && spread.median <= spread.late && spread.late <= spread.most);
    }
  }
  trace_free(&s);
  free(text);
  return 0;
}
