/* A random archive as references: metadata inline, chunks in packs, in files of their own, or
 * inline too. random_case.h includes this file behind its write_file. */
#ifndef TESTS_RANDOM_REFS_H
#define TESTS_RANDOM_REFS_H
#include "refs_text.h"

enum { RANDOM_PACKS = 3 };

static inline bool is_metadata(const char *key) {
  const char *slash = strrchr(key, '/'), *name = slash ? slash + 1 : key;

  return name[0] == '.' || !strcmp(name, "zarr.json");
}

/* Writes the references of the objects to `folder`/refs.json, and all that they name beside it. */
static inline void write_refs(const struct archive *ar, const char *folder) {
  bool templates = chance(50);
  const char *base = templates ? "{{u}}" : "packs";
  struct bytes pack[RANDOM_PACKS];
  size_t room = 0;

  for (size_t i = 0; i < ar->n_objects; i++) room += ar->object[i].bytes.n + 20;
  for (int p = 0; p < RANDOM_PACKS; p++) pack[p] = (struct bytes){own(room), draw(20)};
  FILE *f = fopen(own_text("%s/refs.json", folder), "w");
  if (!f) abort();
  fputs(templates ? "{\"version\":1,\"templates\":{\"u\":\"packs\"},\"refs\":{" : "{", f);
  for (size_t i = 0; i < ar->n_objects; i++) {
    const struct object *o = &ar->object[i];
    struct bytes *p = &pack[draw(RANDOM_PACKS)];

    fprintf(f, "%s\n\"%s\":", i ? "," : "", o->key);
    if (is_metadata(o->key) && chance(50)) fwrite(o->bytes.at, 1, o->bytes.n, f);
    else if (is_metadata(o->key)) refs_quote(f, o->bytes.at, o->bytes.n);
    else if (chance(10)) refs_base64(f, o->bytes.at, o->bytes.n);
    else if (chance(15)) {
      write_file(own_text("%s/packs/o%d", folder, (int)i), o->bytes.at, o->bytes.n);
      fprintf(f, "[\"%s/o%d\"]", base, (int)i);
    } else {
      fprintf(f, "[\"%s/p%d\",%zu,%zu]", base, (int)(p - pack), p->n, o->bytes.n);
      if (o->bytes.n) memcpy(p->at + p->n, o->bytes.at, o->bytes.n);
      p->n += o->bytes.n + draw(20);
    }
  }
  fputs(templates ? "}}\n" : "}\n", f);
  if (fclose(f)) abort();
  for (int p = 0; p < RANDOM_PACKS; p++)
    write_file(own_text("%s/packs/p%d", folder, p), pack[p].at, pack[p].n);
}
#endif
