/* insitu info: metadata of the other Zarr format in the same folder. The library reads zarr.json
 * (v3) of a root that has it, else v2, and then of all nodes the root's format alone. Looked at are
 * the nodes that are listed, and the folders beside them. Of a server only the root's metadata are
 * asked for. */

struct info_formats { /* a search under way */
  struct info *info;
  const char *group; /* whose folders are being looked at */
  char **folder;     /* these; an array of >>array */
  insitu_error err;  /* status < 0: why not all could be looked at */
};
static int info_formats_other(const struct info *f) {
  return f->archive.group.format == 3 ? 2 : 3;
}
static bool info_formats_root_v2(const struct info *f) {
  return f->archive.group.format == 3;
}
/* Whether the archive lists this group or array. */
static bool info_formats_listed(const struct info *f, const char *path) {
  const struct tool_archive *a = &f->archive;
  if (a->n_paths &&
      bsearch(&path, a->paths, (size_t)a->n_paths, sizeof *a->paths, tool_archive_compare))
    return true;
  const struct info_group key = {.path = (char *)(uintptr_t)path};
  return f->n_groups &&
         bsearch(&key, f->groups, (size_t)f->n_groups, sizeof *f->groups, tool_archive_compare);
}
static void info_formats_folder(void *to, const char *name, bool is_directory) {
  struct info_formats *s = (struct info_formats *)to;
  char path[INSITU__MAX_KEY - 16];
  if (!is_directory || name[0] == '.') return;
  if (!insitu__group_join(path, sizeof path, s->group, name)) return;
  if (!info_formats_listed(s->info, path) && !INSITU__ARRAY_PUSH(s->folder, tool_copy(path)))
    tool_no_memory();
}
/* Whether the folder of a path has metadata of the other format. */
static bool info_formats_probe_await(struct info_formats *s, const char *path) {
  int kind = INSITU__GROUP_NOTHING;
  insitu_error err = {0};
  insitu_status status = insitu__group_probe_await(
      &s->info->archive.store, path, info_formats_other(s->info), &kind, &err);
  if (status < 0 && !insitu__group_hidden(status) && !s->err.status) s->err = err;
  return kind != INSITU__GROUP_NOTHING;
}
static void info_formats_await(void *arg) {
  struct info_formats *s = (struct info_formats *)arg;
  struct info *f = s->info;
  const struct insitu__store *store = &f->archive.store;
  if (insitu__icechunk_of(store)) return; /* v3 throughout */
  if (insitu__store_is_remote(store)) {
    if (info_formats_root_v2(f)) f->n_both = info_formats_probe_await(s, "");
    return;
  }
  for (uint64_t i = 0; i < f->n; i++) f->n_both += info_formats_probe_await(s, f->arrays[i].path);
  for (uint64_t i = 0; i < f->n_groups; i++) {
    insitu_error err = {0};
    s->group = f->groups[i].path;
    f->n_both += info_formats_probe_await(s, s->group);
    insitu_status status = insitu__store_list_await(
        (struct insitu__store *)(uintptr_t)store, s->group, info_formats_folder, s, &err);
    bool unknown = status < 0 && status != INSITU_E_NOTFOUND && status != INSITU_E_UNSUPPORTED;
    if (unknown && !s->err.status) s->err = err;
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->folder); i++) {
    char *path = s->folder[i];
    if (!info_formats_probe_await(s, path)) insitu__mem_free(path);
    else if (!INSITU__ARRAY_PUSH(f->only_other, path)) tool_no_memory();
  }
  INSITU__ARRAY_FREE(s->folder);
}
/* Finds them. What cannot be looked at is said, since it may hold some. */
static void info_formats_find(struct info *f) {
  struct info_formats s = {.info = f};
  if (insitu__reactor_call(&f->archive.reactor, info_formats_await, &s) < 0) tool_no_memory();
  if (s.err.status) tool_fail_error(&s.err);
  uint64_t n = INSITU__ARRAY_LEN(f->only_other);
  if (n) qsort(f->only_other, (size_t)n, sizeof *f->only_other, tool_archive_compare);
}
static void info_formats_free(struct info *f) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->only_other); i++)
    insitu__mem_free(f->only_other[i]);
  INSITU__ARRAY_FREE(f->only_other);
}

static void info_formats_json(struct tool_json_out *j, const struct info *f) {
  if (!f->n_both && !INSITU__ARRAY_LEN(f->only_other)) return;
  tool_json_object(j, "other_format");
  tool_json_u64(j, "zarr_format", (uint64_t)info_formats_other(f));
  tool_json_u64(j, "nodes_of_both", f->n_both);
  tool_json_array(j, "not_listed");
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(f->only_other); i++)
    tool_json_string(j, NULL, f->only_other[i]);
  tool_json_end(j);
  tool_json_end(j);
}
static void info_formats_print(const struct info *f) {
  enum { SHOWN = 8 };
  uint64_t n = INSITU__ARRAY_LEN(f->only_other);
  int other = info_formats_other(f), format = f->archive.group.format;
  struct insitu__text_buffer b = {0};
  char count[32];
  if (!f->n_both && !n) return;
  insitu__text_buffer_printf(
      &b, "Metadata of Zarr v%d lie here, too: this archive is read as v%d.", other, format);
  if (f->n_both)
    insitu__text_buffer_printf(&b, " %s of its groups and arrays %s both formats.",
        tool_count(count, f->n_both), f->n_both == 1 ? "has" : "have");
  if (n) {
    insitu__text_buffer_printf(&b, " Of v%d alone, and not listed: ", other);
    for (uint64_t i = 0; i < n && i < SHOWN; i++)
      insitu__text_buffer_printf(&b, "%s%s", i ? ", " : "", f->only_other[i]);
    if (n > SHOWN) insitu__text_buffer_printf(&b, " and %s more", tool_count(count, n - SHOWN));
    insitu__text_buffer_printf(&b, "; to read one, open its own folder as the url.");
  }
  if (f->n_both && other == 2)
    insitu__text_buffer_printf(&b,
        " A folder that has both is read as v3; to read it as v2, remove zarr.json from it, or "
        "from a copy.");
  else if (f->n_both)
    insitu__text_buffer_printf(
        &b, " To read v3 of one that has both, open its own folder as the url.");
  if (b.failed) tool_no_memory();
  printf("%s", tool_style(TOOL_YELLOW));
  tool_wrap(b.text, 0, 0);
  printf("%s", tool_style(TOOL_PLAIN));
  insitu__text_buffer_free(&b);
}
