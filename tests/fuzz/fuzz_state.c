/* libFuzzer: states to resume from. Input: byte 0 says whether the checksum is made to fit again;
 * then 128 bytes that are xor-ed into a good state. A state is taken exactly if every field is the
 * iterator's own and its place exists; then writing that place gives the same 128 bytes. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static struct insitu__geometry geometry;
  static struct insitu__split split;
  static insitu_iter it;
  insitu_state good, bad;
  insitu_error err = {0};
  geometry.hash_geometry = 0x1111, geometry.hash_variables = 0x2222, split.hash = 0x3333,
  split.unit_rows = 24;
  it.plan.geometry = &geometry, it.plan.split = &split, it.split = INSITU_VAL, it.batches = 100;
  it.plan.layout.seed = 42, it.plan.layout.lanes = 4, it.plan.layout.window = 64,
  it.plan.layout.global_batch = 32;
  if (n < 1) return 0;
  insitu__pass_state(&it, 3, 17, &good);
  bad = good;
  for (size_t i = 0; i < sizeof bad.bytes && i + 1 < n; i++) bad.bytes[i] ^= data[i + 1];
  if (data[0] & 1)
    insitu__base_store64(bad.bytes + INSITU__PASS_STATE_CHECK,
        insitu__geometry_hash(0, bad.bytes, INSITU__PASS_STATE_CHECK));
  insitu_status status = insitu__pass_state_check(&it, &bad, &err);
  fuzz_status(status, &err);
  uint64_t epoch = insitu__base_load64(bad.bytes + INSITU__PASS_STATE_EPOCH),
           next = insitu__base_load64(bad.bytes + INSITU__PASS_STATE_NEXT);
  bool whole = insitu__base_load64(bad.bytes + INSITU__PASS_STATE_CHECK) ==
               insitu__geometry_hash(0, bad.bytes, INSITU__PASS_STATE_CHECK);
  bool mine = !memcmp(bad.bytes, good.bytes, INSITU__PASS_STATE_EPOCH) &&
              epoch < INSITU__MAX_EPOCH && next <= it.batches;
  for (int i = INSITU__PASS_STATE_RESERVED; i < INSITU__PASS_STATE_CHECK; i++)
    mine = mine && !bad.bytes[i];
  FUZZ_HOLDS(status == (whole && mine ? INSITU_OK : INSITU_E_STATE));
  if (status == INSITU_OK) {
    insitu__pass_state(&it, epoch, next, &good);
    FUZZ_HOLDS(!memcmp(&good, &bad, sizeof good));
  }
  return 0;
}
