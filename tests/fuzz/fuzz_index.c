/* libFuzzer: flat indexes. Input: a byte that says whether the checksum and the length are made to
 * fit; then the file. What is made of it lies inside of the file. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

enum { SEAL = 1 };

/* Makes the checksum right, as far as the tables lie in the file. */
static void seal(uint8_t *file, uint64_t n) {
  static const unsigned each[] = {
      INSITU__REFSTORE_OBJECT, INSITU__REFSTORE_TARGET, INSITU__REFSTORE_ARRAY, 1};
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  insitu__base_store64(file + 16, n);
  for (int i = 0; i < 4; i++) {
    uint64_t at = insitu__base_load64(file + 32 + 16 * i),
             count = insitu__base_load64(file + 40 + 16 * i);
    if (!insitu__refstore_fits(at, count, each[i], n)) return;
    h = insitu__refstore_hash(h, file + at, count * each[i]);
  }
  insitu__base_store64(file + 24, h);
}
static void extents(struct insitu__refstore *r, const uint8_t *file, uint64_t n) {
  static char room[INSITU__MAX_KEY];
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(r->refs.table); k++) {
    const struct insitu__refs_table *t = &r->refs.table[k];
    for (uint64_t i = 0; i < insitu__base_min(t->n, 50); i++) {
      struct insitu__store_extent x = {.room = room};
      struct insitu__refs_hit hit = {.table = t, .number = i};
      uint64_t bytes, inside;
      if (t->kind == INSITU__REFS_PIECES) {
        hit.at[t->piece[0].axis] = t->piece[i].first + i;
        if (insitu__refstore_part(&r->refs, &hit, &x)) continue;
        FUZZ_HOLDS(x.key == room && strlen(room) < sizeof room && x.may_lack);
        continue;
      }
      if (t->kind != INSITU__REFS_FILE) continue;
      uint64_t at = insitu__refstore_page_of(&hit, &bytes, &inside);
      FUZZ_HOLDS(at <= n && bytes <= n - at && inside + INSITU__REFSTORE_ENTRY <= bytes &&
                 bytes <= INSITU__REFSTORE_PAGE);
      struct insitu__refs_entry e = insitu__refstore_load(file + at + inside);
      if (insitu__refstore_extent(r, e, &x)) continue;
      FUZZ_HOLDS(x.base && x.key && (x.n == UINT64_MAX || x.offset + x.n >= x.offset));
      if (e.where >> 40 == INSITU__REFS_INLINE) FUZZ_HOLDS(x.offset <= n && x.n <= n - x.offset);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  struct insitu__refstore r;
  struct insitu__refstore_index x;
  struct insitu__virtual_place place = {.kind = INSITU__TEXT_URL_FILE};
  static const char *const prefix[] = {"/data"};
  insitu_error err = {0};
  char directory[] = "data/in", name[] = "x.insitu";
  if (n < 1 + INSITU__REFSTORE_HEAD || n > 1 << 16) return 0;
  n--;
  uint8_t *file = fuzz_copy(data + 1, n);
  if (data[0] & SEAL) seal(file, n);

  /* a pool whose only place is there already: nothing is opened */
  memset(&r, 0, sizeof r);
  insitu__refs_init(&r.refs);
  r.pool.directory = directory;
  r.pool.prefixes = prefix;
  r.pool.place[0] = &place;
  r.pool.n_place = 1;
  place.root = place.query = name + 8;
  FUZZ_HOLDS(!insitu__virtual_rule_add(&r.pool, INSITU__TEXT_URL_FILE, "", "data", &err));
  r.name = name;
  r.bytes = n;
  r.flat = true;
  insitu_status status = insitu__refstore_head(&x, file, n, &err);
  if (!status) {
    x.objects = file + insitu__base_load64(file + 32);
    x.targets = file + insitu__base_load64(file + 48);
    x.arrays = file + insitu__base_load64(file + 64);
    x.text = file + x.text_at;
    status = insitu__refstore_build(&r, &x, &err);
  }
  FUZZ_HOLDS(status == 0 || err.message[0]);
  if (!status) extents(&r, file, n);
  insitu__mem_free(r.pool.rule[0].root);
  insitu__mem_free(r.pool.rule[0].path);
  INSITU__ARRAY_FREE(r.pool.rule);
  insitu__refs_free(&r.refs);
  free(file);
  return 0;
}
