/* libFuzzer: files of Icechunk repositories. Input: a byte that chooses what the rest is (a
 * FlatBuffer of a manifest, a snapshot or a repo file, or a whole file of these), then that.
 * Nothing is read outside of it; memory stays within a multiple of its length; what a manifest
 * lists is found again by its index, with bytes inside; what a snapshot has is sorted, and its
 * chunks' keys lead to the manifests that cover them. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static void manifest(struct insitu__ice_buffer *b) {
  insitu_error err = {0};
  insitu_status status;
  uint64_t room = 1 << 20;
  struct insitu__ice_manifest *m = insitu__ice_manifest_parse(b, room, &status, &err);
  FUZZ_HOLDS(!m == (status < 0) && (status >= 0 || err.message[0]));
  if (!m) return;

  FUZZ_HOLDS(m->bytes <= room);
  for (uint64_t p = 0; p < m->n_parts; p++) {
    const struct insitu__ice_part *part = &m->part[p];
    FUZZ_HOLDS(part->first + part->n <= m->n_chunks);
    for (uint64_t i = 0; i < part->n; i++) {
      uint32_t index[INSITU__MAX_DIMS] = {0};
      const uint32_t *kept = m->index + part->index;
      uint64_t left = i;
      for (unsigned d = part->n_dims; d-- > 0;) {
        if (!part->dense) index[d] = kept[i * part->n_dims + d];
        else {
          index[d] = kept[d] + (uint32_t)(left % kept[part->n_dims + d]);
          left /= kept[part->n_dims + d];
        }
      }
      const struct insitu__ice_chunk *c =
          insitu__ice_manifest_find(m, part->node, part->n_dims, index, &status);
      FUZZ_HOLDS(c == &m->chunk[part->first + i] && !status);
      uint64_t n = insitu__ice_load48(c->length), kind = n >> 46;
      n &= INSITU__ICE_LENGTH - 1;
      if (kind == INSITU__ICE_INLINE) {
        uint64_t at = insitu__base_load64(c->id);
        FUZZ_HOLDS(at <= m->text.n && n <= m->text.n - at);
      } else if (kind == INSITU__ICE_VIRTUAL) {
        uint64_t number = insitu__base_load32(c->id);
        FUZZ_HOLDS(number < INSITU__ARRAY_LEN(m->target));
        FUZZ_HOLDS(m->target[number].url < m->text.n);
      }
    }
  }
  insitu__ice_manifest_free(m);
}

static void snapshot(struct insitu__ice_buffer *b) {
  struct insitu__ice_tree t = {0};
  insitu_error err = {0};
  unsigned char id[INSITU__ICE_ID];
  insitu_status status = insitu__ice_tree_parse(&t, b, id, &err);
  FUZZ_HOLDS(status >= 0 || err.message[0]);
  for (uint64_t i = 0; !status && i < t.n_objects; i++) {
    const insitu_object *o = t.sorted[i];
    const unsigned char *bytes = o->bytes;
    FUZZ_HOLDS(insitu__store_key_valid(o->key));
    FUZZ_HOLDS(bytes >= b->p && o->n <= b->n && bytes + o->n <= b->p + b->n);
    FUZZ_HOLDS(!i || insitu__store_order(t.sorted[i - 1]->key, o->key) < 0);
  }
  for (uint64_t k = 0; !status && k < t.n_arrays; k++) {
    const struct insitu__ice_array *a = &t.array[k];
    for (uint64_t i = 0; i < insitu__base_min(a->n, 64); i++) {
      const uint32_t *box = t.box + t.cover[a->first + i].box;
      char key[INSITU__MAX_KEY + 256];
      uint32_t index[INSITU__MAX_DIMS];
      int n = snprintf(key, sizeof key, "%s%sc", a->path, a->path[0] ? "/" : "");
      bool empty = false;
      for (unsigned d = 0; d < a->n_dims; d++) {
        n += snprintf(key + n, sizeof key - (size_t)n, "/%u", box[2 * d]);
        empty |= box[2 * d] == box[2 * d + 1];
      }
      if (insitu__ice_chunk_of(&t, key, index) != a) continue; /* a path that ends in numbers */
      uint32_t turn = 0, last = 0, found = 0;
      while (found < 64 && insitu__ice_covers(&t, a, index, &turn)) {
        FUZZ_HOLDS(turn > last);
        last = turn;
        found++;
      }
      FUZZ_HOLDS(found || empty);
    }
  }
  insitu__ice_tree_free(&t);
}

static void repo(struct insitu__ice_buffer *b) {
  struct insitu__ice_container *all = NULL;
  insitu_error err = {0};
  unsigned char id[INSITU__ICE_ID];
  insitu_status status = insitu__ice_repo_online(b, &err);
  FUZZ_HOLDS(status >= 0 || err.message[0]);
  insitu__ice_containers(b, &all);
  insitu__ice_containers_free(&all);
  insitu__ice_yaml((const char *)b->p, b->n, &all);
  insitu__ice_containers_free(&all);
  for (int tag = 0; tag < 2; tag++) {
    insitu__error_clear(&err);
    status = insitu__ice_repo_find(b, tag, tag ? "v1" : "main", id, &err);
    FUZZ_HOLDS(status >= 0 || err.message[0]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n) return 0;
  struct insitu__ice_buffer b = {data + 1, n - 1, false};
  struct insitu__ice_file file = {0};
  static const unsigned type[] = {INSITU__ICE_MANIFEST, INSITU__ICE_SNAPSHOT, INSITU__ICE_REPO};
  unsigned what = data[0] % 3;
  if (data[0] & 4) { /* a whole file */
    insitu_error err = {0};
    file.text = malloc(n);
    memcpy(file.text, data + 1, n - 1);
    file.n = n - 1;
    insitu_status status = insitu__ice_file_open(&file, type[what], 1 << 22, "a limit", &err);
    FUZZ_HOLDS(status >= 0 || err.message[0]);
    b = status < 0 ? (struct insitu__ice_buffer){data, 0, false} : file.b;
  }
  if (what == 0) manifest(&b);
  else if (what == 1) snapshot(&b);
  else repo(&b);
  insitu__ice_file_free(&file);
  return 0;
}
