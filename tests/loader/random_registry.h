/* The registry of bad chunks that `insitu verify --registry` writes of a random archive, and what
 * it must exclude. After random_walk.h. */
#ifndef TESTS_RANDOM_REGISTRY_H
#define TESTS_RANDOM_REGISTRY_H

static char random_tool[600]; /* the command insitu; "": it is not built */

/* It lies in linked/ beside the test's program, or beside the one without a sanitizer. */
static inline void find_tool(const char *program) {
  static const char *const above[] = {"", "../"};
  const char *slash = strrchr(program, '/');
  int folder = slash ? (int)(slash - program) : 0;

  for (int i = 0; slash && i < 2; i++) {
    snprintf(random_tool, sizeof random_tool, "%.*s/%slinked/insitu", folder, program, above[i]);
    if (!access(random_tool, X_OK)) return;
  }
  *random_tool = 0;
}

/* Whether a shard has inner chunks that lie behind the end of its array. The command calls a shard
 * damaged where one of these is, and excludes no sample for it. */
static inline bool has_chunks_behind(const struct array *a) {
  for (int d = 0; a->n_levels > 1 && d < a->ndim; d++) {
    uint64_t shard = a->level[0].size[d], inner = a->level[a->n_levels - 1].size[d];

    if (ceil_div(a->shape[d], shard) * shard >= a->shape[d] + inner) return true;
  }
  return false;
}

/* Whether all arrays have the samples of the only axis, and some have damaged chunks. */
static inline bool has_registry(const struct setup *s) {
  bool bad = false;

  if (!*random_tool || s->refused || s->space->listed || s->place == PLACE_MEMORY) return false;
  if (s->place == PLACE_HTTP && !s->archive.consolidated) return false; /* nothing lists it */
  for (int i = 0; i < s->archive.n_arrays; i++) {
    const struct array *a = &s->archive.array[i];

    if (a->partners) return false;
    bad = bad || a->bad;
  }
  return bad;
}

/* Which samples lie in a damaged chunk of any array: of a shard, an inner chunk that can be read by
 * itself. */
static inline bool *bad_samples(const struct setup *s) {
  bool *bad = own(s->samples);

  for (int i = 0; i < s->archive.n_arrays; i++) {
    const struct array *a = &s->archive.array[i];

    for (uint64_t e = 0; e < array_count(a); e++) {
      uint64_t at[MAX_DIMS], rest = e;

      for (int d = a->ndim - 1; d >= 0; d--) {
        at[d] = rest % a->shape[d];
        rest /= a->shape[d];
      }
      if (!array_bad(a, at)) continue;
      uint64_t size = a->level[array_leaf(a)].size[a->axis], first = at[a->axis] / size * size;
      for (uint64_t x = first; x < least(first + size, s->samples); x++) bad[x] = true;
    }
  }
  return bad;
}

/* Has the command write the registry of the case's archive; its path. */
static inline const char *write_registry(const struct setup *s) {
  const char *path = own_text("%s/registry.json", s->folder), *url = s->desc.url;
  const char *dim = s->desc.sample_dim ? s->desc.sample_dim : own_text("%d", s->desc.sample_axis);
  const char *to = own_text("%s/verify.txt", s->folder);
  bool any = false, behind = false;

  for (int i = 0; i < s->archive.n_arrays; i++)
    behind = behind || (s->archive.array[i].bad && has_chunks_behind(&s->archive.array[i]));
  const bool *bad = bad_samples(s);
  for (uint64_t x = 0; x < s->samples; x++) any = any || bad[x];
  int code = system(own_text(
      "'%s' verify '%s' --dim %s --registry '%s' >'%s' 2>&1", random_tool, url, dim, path, to));
  code = WIFEXITED(code) ? WEXITSTATUS(code) : -1;
  bool may_be_bad = code == 1 && behind;
  if (code != (any ? 1 : 0) && !may_be_bad && (any || code != 4)) /* 4: not one chunk is stored */
    differ("insitu verify --registry ends with %d: %.1500s", code, read_text(to));
  return path;
}

/* The samples that the file excludes. */
static inline void check_registry(const struct setup *s, const char *path, const bool *bad) {
  bool *out = own(s->samples);

  for (const char *p = read_text(path); (p = strstr(p, "{\"start\": ")); p++) {
    long long start, stop;

    if (sscanf(p, "{\"start\": %lld, \"stop\": %lld", &start, &stop) != 2 || start < 0 ||
        start >= stop || stop > (long long)s->samples)
      differ("the registry has an odd range: %.60s", p);
    for (long long x = start; x < stop; x++) out[x] = true;
  }
  for (uint64_t x = 0; x < s->samples; x++)
    if (out[x] != bad[x]) differ("the registry excludes%s sample %d", out[x] ? "" : " not", (int)x);
}
#endif
