/* libFuzzer: references in JSON. Input: a byte that says how large pieces are, then the text. In
 * pieces and at once it is read alike: the same objects, entries and urls, or the same refusal. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

struct read {
  struct insitu__refs refs;
  struct insitu__kerchunk kerchunk;
  insitu_status status;
};
static void read_text(struct read *r, const uint8_t *text, uint64_t n, uint64_t piece) {
  uint64_t done = 0, end = 0, used;
  insitu_error err = {0};
  memset(r, 0, sizeof *r);
  insitu__refs_init(&r->refs);
  insitu__kerchunk_init(&r->kerchunk, &r->refs);
  do {
    end = insitu__base_min(end + piece, n);
    uint8_t *copy = fuzz_copy(text + done, end - done);
    r->status =
        insitu__kerchunk_feed(&r->kerchunk, (const char *)copy, end - done, end == n, &used, &err);
    free(copy);
    FUZZ_HOLDS(used <= end - done);
    done += used;
  } while (!r->status && end < n);
  FUZZ_HOLDS(r->status == 0 || err.message[0]);
  if (!r->status) FUZZ_HOLDS(insitu__refs_finish(&r->refs));
}
static void read_end(struct read *r) {
  insitu__kerchunk_free(&r->kerchunk);
  insitu__refs_free(&r->refs);
}
static struct insitu__refs_entry entry_of(const struct insitu__refs_table *t, uint64_t i) {
  return t->kind == INSITU__REFS_DENSE ? t->entry[i] : t->cell[i].entry;
}
/* Every object and every entry is found by its key, and lies inside of what was read. */
static void look_up(struct read *r) {
  struct insitu__refs_hit hit;
  for (uint64_t i = 0; i < r->refs.n_objects; i++) {
    const insitu_object *o = r->refs.sorted[i];
    FUZZ_HOLDS(insitu__store_key_valid(o->key));
    FUZZ_HOLDS(insitu__refs_look_up(&r->refs, o->key, &hit) && hit.object == o);
    FUZZ_HOLDS((const char *)o->bytes + o->n <= r->refs.bytes.text + r->refs.bytes.n);
  }
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(r->refs.table); k++) {
    const struct insitu__refs_table *t = &r->refs.table[k];
    for (uint64_t i = 0; i < t->n; i++) {
      char key[2 * INSITU__MAX_KEY];
      uint64_t at[INSITU__MAX_DIMS], rest = i;
      struct insitu__refs_entry e = entry_of(t, i);
      if (t->kind == INSITU__REFS_SPARSE) insitu__refs_unpack(t, t->cell[i].place, at);
      else
        for (unsigned d = t->ndim; d-- > 0; rest /= t->grid[d]) at[d] = rest % t->grid[d];
      int n = snprintf(key, sizeof key, "%s", r->refs.text.text + t->prefix);
      for (unsigned d = 0; d < t->ndim; d++)
        n += snprintf(key + n, 32, "%.1s%" PRIu64, d ? &t->separator : "", at[d]);
      if (n >= INSITU__MAX_KEY) continue;
      FUZZ_HOLDS(insitu__refs_look_up(&r->refs, key, &hit));
      if (hit.object || hit.table != t) continue;
      FUZZ_HOLDS(hit.number == i);
      uint64_t target = e.where >> 40, bytes = e.where & INSITU__REFS_LENGTH;
      FUZZ_HOLDS(target >= INSITU__MAX_REFS_TARGETS || target < INSITU__ARRAY_LEN(r->kerchunk.url));
      if (target == INSITU__REFS_INLINE)
        FUZZ_HOLDS(e.offset <= r->refs.bytes.n && bytes <= r->refs.bytes.n - e.offset);
    }
  }
}
/* The urls, expanded, and what becomes of them in an archive on a server and in a local one. */
static void urls(struct read *r) {
  static char key[INSITU__MAX_KEY];
  struct insitu__virtual pool = {0};
  struct insitu__virtual_url u;
  struct insitu__text_buffer url = {.limit = 2 * INSITU__MAX_KEY};
  insitu_error err = {0};
  FUZZ_HOLDS(insitu__text_buffer_reserve(&url, url.limit));
  char directory[] = "a/b";
  pool.directory = directory;
  FUZZ_HOLDS(!insitu__virtual_rule_add(&pool, INSITU__TEXT_URL_HTTP, "http://h", "", &err));
  FUZZ_HOLDS(!insitu__virtual_rule_add(&pool, INSITU__TEXT_URL_S3, "s3://b", "p", &err));
  FUZZ_HOLDS(!insitu__virtual_rule_add(&pool, INSITU__TEXT_URL_FILE, "", "data/x", &err));
  for (uint32_t i = 0; i < INSITU__ARRAY_LEN(r->kerchunk.url); i++) {
    uint64_t rule;
    url.n = 0;
    url.failed = false;
    if (insitu__kerchunk_url(&r->kerchunk, i, &url)) continue;
    FUZZ_HOLDS(url.n < INSITU__MAX_KEY);
    memset(&err, 0, sizeof err);
    if (insitu__virtual_check(&pool, url.n ? url.text : "", &u, key, &rule, &err)) continue;
    /* what is allowed lies inside of its rule, whatever the text was */
    FUZZ_HOLDS(insitu__store_key_valid(key));
    FUZZ_HOLDS(rule != 1 ||
               (!strcmp(u.root, "s3://b") && !strncmp(key, "p", 1) && (key[1] == '/' || !key[1])));
    FUZZ_HOLDS(rule != 2 || (u.kind == INSITU__TEXT_URL_FILE && !strncmp(key, "data/x", 6) &&
                                (key[6] == '/' || !key[6])));
    FUZZ_HOLDS(rule || !strcmp(u.root, "http://h"));
    insitu__virtual_cut(&pool, rule, &u);
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(pool.rule); i++) {
    insitu__mem_free(pool.rule[i].root);
    insitu__mem_free(pool.rule[i].path);
  }
  INSITU__ARRAY_FREE(pool.rule);
  insitu__text_buffer_free(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n || n > 1 << 16) return 0;
  struct read once, pieces;
  read_text(&once, data + 1, n - 1, n);
  read_text(&pieces, data + 1, n - 1, 1 + data[0] % 61u);
  FUZZ_HOLDS(once.status == pieces.status);
  if (!once.status) {
    FUZZ_HOLDS(once.refs.n_objects == pieces.refs.n_objects);
    FUZZ_HOLDS(INSITU__ARRAY_LEN(once.refs.table) == INSITU__ARRAY_LEN(pieces.refs.table));
    FUZZ_HOLDS(INSITU__ARRAY_LEN(once.kerchunk.url) == INSITU__ARRAY_LEN(pieces.kerchunk.url));
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(once.refs.table); k++) {
      const struct insitu__refs_table *a = &once.refs.table[k], *b = &pieces.refs.table[k];
      FUZZ_HOLDS(a->n == b->n && a->kind == b->kind && a->ndim == b->ndim);
      for (uint64_t i = 0; i < a->n; i++) FUZZ_HOLDS(entry_of(a, i).where == entry_of(b, i).where);
    }
    look_up(&once);
    urls(&pieces);
  }
  read_end(&once);
  read_end(&pieces);
  return 0;
}
