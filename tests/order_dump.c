/* Prints the epoch order exactly as `order.py dump` does: units unit_rows seed epoch global_batch lanes window [unit:rows ...].
 */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

int main(int argc, char **argv) {
  uint64_t n[7], (*irregular)[2] = calloc((size_t)argc, sizeof *irregular);
  if (argc < 8 || !irregular) return fprintf(stderr, "usage: order_dump M U seed epoch G L W [unit:rows ...]\n"), 2;
  for (int i = 0; i < 7; i++) n[i] = strtoull(argv[i + 1], NULL, 10);
  for (int i = 8; i < argc; i++) {
    char *end;
    irregular[i - 8][0] = strtoull(argv[i], &end, 10);
    irregular[i - 8][1] = strtoull(end + (*end == ':'), NULL, 10);
  }
  insitu_order_desc d = {.api = INSITU_API,
      .units = n[0],
      .unit_rows = n[1],
      .seed = n[2],
      .epoch = n[3],
      .global_batch = n[4],
      .lanes = n[5],
      .window = n[6],
      .irregular = irregular[0],
      .n_irregular = (uint64_t)(argc - 8)};
  insitu_error err = {0};
  insitu_order *o;
  if (insitu_order_open(&d, &o, &err)) return fprintf(stderr, "%s\n", err.message), 1;
  insitu_order_place p;
  for (uint64_t i = 0; insitu_order_at(o, i, &p) == INSITU_OK; i++)
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, p.unit, p.within, p.lane, p.window);
  insitu_order_close(&o);
  free(irregular);
  return 0;
}
