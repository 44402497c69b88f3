/* libFuzzer: states to resume from. Input: byte 0 says whether the checksum is made to fit again,
 * which of unit_chunks, block_chunks and lanes the desc gives, and whether the good state is of
 * version 4, with a digest and batches that are left out; then 128 bytes that are xor-ed into it. A
 * state is taken exactly if every field that decides the order is the iterator's own, or one that
 * the desc leaves open and an iterator can have, and if its place exists. Where the desc gives
 * block_chunks without lanes, a window may also be as short as the rule makes it. The desc that the
 * state makes plans the units, lanes and windows of the state, and writes the same state. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static struct insitu__geometry geometry;
static insitu_loader ld;
static insitu_iter it;

/* An iterator whose desc gives some of unit_chunks, block_chunks and lanes. */
static void set_up(unsigned given) {
  static struct insitu__geometry_interval *segment;
  insitu_loader_desc *c = &ld.config;
  geometry.hash_geometry = 0x1111, geometry.hash_variables = 0x2222;
  geometry.chunk = 12, geometry.samples = 48000, geometry.n_axes = geometry.n_drawn = 1;
  memset(c, 0, sizeof *c);
  if (given & 1) c->unit_chunks = 2;
  if (given & 2) c->block_chunks = 512;
  if (given & 4) c->lanes = 4;
  insitu__config_origin_init(&ld);
  c->unit_chunks = 2, c->block_chunks = 512; /* the defaults */
  c->batch_size = 8, c->world = 4, c->seed = 42;
  if (!segment) {
    struct insitu__geometry_interval all = {0, 48000};
    if (!INSITU__ARRAY_PUSH(segment, all)) abort();
  }
  ld.rule.rows = 24;
  it.loader = &ld, it.split = INSITU_VAL, it.batches = 1500;
  struct insitu__split_part *part = &ld.split.part[INSITU_VAL];
  insitu__split_units_free(part);
  ld.split.unit_rows = 24;
  part->n_lines = 1;
  part->irregular = NULL;
  part->line[0] = (struct insitu__split_line){.segments = segment, .group = 24, .stride = 1};
  insitu__split_hash(part);
  if (insitu__split_product(part, NULL)) abort();
  insitu_loader_desc as = *c;
  as.lanes = 4;
  if (insitu__plan_init(&it.plan, &geometry, &ld.split, INSITU_VAL, INSITU_SHUFFLED, &as, NULL) !=
      INSITU_OK)
    abort();
}

static uint64_t word(const insitu_state *s, int at) {
  return insitu__base_load64(s->bytes + at);
}

/* Whether a state's units, lanes and windows can be taken where the desc gives some of them. */
static bool can_be(const insitu_state *s, unsigned given) {
  __extension__ typedef unsigned __int128 wide;
  uint64_t rows = word(s, INSITU__STATE_UNIT), lanes = word(s, INSITU__STATE_LANES),
           window = word(s, INSITU__STATE_WINDOW);
  if (!rows || rows % 12 || rows / 12 > 1 << 20 || !lanes || 32 % lanes || lanes % 4 || !window)
    return false;
  if ((wide)window * lanes * (rows / 12) > (wide)1 << 40) return false;
  if (given & 1 && rows != 24) return false;
  if (given & 4 && lanes != 4) return false;
  uint64_t units = 512 / (rows / 12), mixed = units ? units / lanes : 0;
  if (!mixed) mixed = 1;
  bool least = !(given & 4) && window == insitu__rule_mixing(32, lanes, rows, mixed);
  return !(given & 2) || window == mixed || least;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  insitu_state good, bad;
  insitu_loader_desc as;
  insitu_error err = {0};
  if (n < 1) return 0;
  unsigned given = data[0] >> 1;
  set_up(given);
  it.shared.receipt = (struct insitu__receipt_run){3, 0x1234, given & 8};
  it.shared.skips = (struct insitu__receipt_skips){.epoch = 3};
  if (given & 8) insitu__receipt_skip(&it.shared.skips, 3, 300, 700);
  insitu__state_write(&it, 3, 17, &good);
  bad = good;
  for (size_t i = 0; i < sizeof bad.bytes && i + 1 < n; i++) bad.bytes[i] ^= data[i + 1];
  if (data[0] & 1)
    insitu__base_store64(
        bad.bytes + INSITU__STATE_CHECK, insitu__geometry_hash(0, bad.bytes, INSITU__STATE_CHECK));
  struct insitu__state_stored has, model;
  insitu_status status = insitu__state_check(&it, &bad, &as, &has, &err);
  fuzz_status(status, &err);
  bool mine =
      word(&bad, INSITU__STATE_CHECK) == insitu__geometry_hash(0, bad.bytes, INSITU__STATE_CHECK);
  mine = mine && (bad.bytes[6] == 3 || bad.bytes[6] == 4) && insitu__state_open(&bad, &model);
  if (mine && bad.bytes[6] == 3)
    mine = !word(&bad, INSITU__STATE_RESERVED) && !word(&bad, INSITU__STATE_RESERVED + 8);
  static const int same[] = {INSITU__STATE_MAGIC, INSITU__STATE_GEOMETRY, INSITU__STATE_VARIABLES,
      INSITU__STATE_SPLIT, INSITU__STATE_SEED, INSITU__STATE_GLOBAL, INSITU__STATE_PASS};
  insitu__state_plain(&it, 3, 17, &good);
  for (size_t i = 0; mine && i < sizeof same / sizeof *same; i++)
    mine = word(&model.plain, same[i]) == word(&good, same[i]);
  uint64_t epoch = 0, next = 0;
  if (mine) {
    epoch = word(&model.plain, INSITU__STATE_EPOCH);
    next = word(&model.plain, INSITU__STATE_NEXT);
    mine = can_be(&model.plain, given) && epoch < INSITU__MAX_EPOCH && next <= it.batches;
    for (unsigned i = 0; i < model.skips.n; i++) {
      const struct insitu__receipt_range *r = &model.skips.range[i];
      mine = mine && r->first < r->end && r->end <= it.batches;
      mine = mine && (!i || r[-1].end < r->first);
    }
  }
  FUZZ_HOLDS(status == (mine ? INSITU_OK : INSITU_E_STATE));
  if (status != INSITU_OK) return 0;
  struct insitu__pass_move m = {.it = &it, .epoch = epoch, .batch = next};
  FUZZ_HOLDS(insitu__pass_change_plan(&m, &as, &err) == INSITU_OK);
  if (m.other) insitu__pass_swap(&it.plan, &m.other->plan, sizeof it.plan);
  it.shared.receipt = has.receipt;
  it.shared.skips = has.skips;
  insitu__state_write(&it, epoch, next, &good);
  memcpy(good.bytes + INSITU__STATE_SAMPLES, bad.bytes + INSITU__STATE_SAMPLES, 8);
  insitu__base_store64(
      good.bytes + INSITU__STATE_CHECK, insitu__geometry_hash(0, good.bytes, INSITU__STATE_CHECK));
  FUZZ_HOLDS(!memcmp(&good, &bad, sizeof good));
  struct insitu__order o; /* its memory is within what a desc can ask for */
  if (!insitu__plan_order(&it.plan, epoch, &o, &err)) insitu__order_free(&o);
  insitu__mem_free(m.other);
  insitu__pass_units_settle(&m, false);
  return 0;
}
