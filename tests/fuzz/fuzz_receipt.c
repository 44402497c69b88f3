/* libFuzzer: logs that insitu prove reads. Each receipt that is taken writes the same line again,
 * which is taken, too. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "../../tools/insitu/common.h"
#include "../../tools/insitu/config.h"
#include "../../tools/insitu/prove.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct prove_log log = {.receipts = NULL};
  uint64_t line = 0;
  (void)prove_lines(&log, (const char *)data, n, &line);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(log.receipts); i++) {
    struct prove_receipt r = log.receipts[i], again;
    char text[400], running[24] = "null", bytes[24] = "null";
    if (r.has_running) snprintf(running, sizeof running, "\"%016" PRIx64 "\"", r.running);
    if (r.has_bytes) snprintf(bytes, sizeof bytes, "\"%016" PRIx64 "\"", r.bytes);
    int length = snprintf(text, sizeof text,
        "{\"receipt\": 1, \"split\": \"%s\", \"epoch\": %" PRIu64 ", \"batch\": %" PRIu64
        ", \"rank\": %" PRIu64 ", \"world\": %" PRIu64 ", \"rows\": %" PRIu64
        ", \"anchors\": \"%016" PRIx64 "\", \"epoch_anchors\": %s, \"bytes\": %s}",
        insitu__split_names[r.split], r.epoch, r.batch, r.rank, r.world, r.rows, r.anchors, running,
        bytes);
    FUZZ_HOLDS(length > 0 && prove_parse(text, (uint64_t)length, &again));
    r.file = r.line = 0;
    if (!r.has_running) r.running = 0;
    if (!r.has_bytes) r.bytes = 0;
    FUZZ_HOLDS(again.epoch == r.epoch && again.batch == r.batch && again.rank == r.rank);
    FUZZ_HOLDS(again.anchors == r.anchors && again.has_running == r.has_running);
    FUZZ_HOLDS(!r.has_running || again.running == r.running);
    FUZZ_HOLDS(again.has_bytes == r.has_bytes && (!r.has_bytes || again.bytes == r.bytes));
  }
  if (INSITU__ARRAY_LEN(log.receipts)) (void)prove_sort(&log, log.receipts[0].split);
  INSITU__ARRAY_FREE(log.receipts);
  return 0;
}
