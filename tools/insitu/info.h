/* insitu info: what is in an archive, what this build can read of it, and what training from it
 * would take. */
#include "info_gather.h"
#include "info_formats.h"
#include "info_print.h"
#include "info_suggest.h"

/* ---- JSON ---- */

static void info_json_extents(
    struct tool_json_out *j, const char *key, unsigned n, const uint64_t *extent) {
  tool_json_list(j, key);
  for (unsigned i = 0; i < n; i++) tool_json_u64(j, NULL, extent[i]);
  tool_json_end(j);
}
static void info_json_array(
    struct tool_json_out *j, const struct info *f, const struct info_array *a) {
  const struct insitu__text_json *doc = a->node.doc;
  bool v3 = f->archive.group.format == 3;
  tool_json_object(j, NULL);
  tool_json_string(j, "path", a->path);
  tool_json_bool(j, "readable", !a->err.status);
  tool_json_string(j, "status", insitu_status_name(a->err.status));
  if (a->err.status) tool_json_string(j, "refusal", a->err.message);
  tool_json_string(j, "dtype", a->dtype);
  tool_json_string(j, "byte_order", a->itemsize < 2 ? NULL : a->big ? "big" : "little");
  if (a->has_shape) info_json_extents(j, "shape", a->ndim, a->shape);
  tool_json_list(j, "dimensions");
  for (unsigned i = 0; i < a->ndim; i++) tool_json_string(j, NULL, a->dim[i]);
  tool_json_end(j);
  if (a->has_chunk) info_json_extents(j, "chunk_shape", a->ndim, a->sharded ? a->inner : a->chunk);
  if (a->sharded) info_json_extents(j, "shard_shape", a->ndim, a->chunk);
  if (a->rectilinear) tool_json_string(j, "chunk_grid", "rectilinear");
  tool_json_u64(j, "objects", a->objects);
  tool_json_u64(j, "object_bytes", a->object_bytes);
  tool_json_u64(j, "decoded_bytes", a->decoded);
  if (a->sized) {
    tool_json_u64(j, "stored_bytes", a->stored);
    tool_json_u64(j, "stored_objects", a->stored_objects);
    tool_json_bool(j, "stored_complete", !a->cut);
  }
  if (a->stale[0]) tool_json_string(j, "stale", a->stale);
  tool_json_token(j, "fill_value", doc, a->fill);
  if (v3) tool_json_token(j, "codecs", doc, insitu__text_json_get(doc, a->node.node, "codecs"));
  else {
    tool_json_token(j, "filters", doc, insitu__text_json_get(doc, a->node.node, "filters"));
    tool_json_token(j, "compressor", doc, insitu__text_json_get(doc, a->node.node, "compressor"));
    tool_json_token(j, "order", doc, insitu__text_json_get(doc, a->node.node, "order"));
  }
  if (a->n_values) {
    tool_json_object(j, "values");
    tool_json_double(j, "first", a->first);
    tool_json_double(j, "last", a->last);
    tool_json_bool(j, "regular", a->regular);
    tool_json_bool(j, "ordered", a->ordered);
    if (a->regular) tool_json_double(j, "step", a->step);
    tool_json_end(j);
  }
  if (a->dated) {
    insitu_date first, last;
    insitu__time_date(a->units.calendar, a->date[0], &first);
    insitu__time_date(a->units.calendar, a->date[1], &last);
    tool_json_object(j, "dates");
    tool_json_string(j, "first", first.text);
    tool_json_string(j, "last", last.text);
    tool_json_string(j, "calendar", insitu__time_calendars[a->units.calendar]);
    tool_json_bool(j, "regular", a->every != 0);
    if (a->every) tool_json_double(j, "step_seconds", (double)a->every / 1e6);
    tool_json_end(j);
  }
  tool_json_token(j, "attributes", a->node.attributes_doc, a->node.attributes);
  tool_json_end(j);
}
static void info_json_image(struct tool_json_out *out, const struct info *f,
    const struct info_group *g, int image, const char *version) {
  const struct insitu__text_json *j = &g->attributes;
  char path[INSITU__MAX_KEY];
  int axes = insitu__text_json_get(j, image, "axes"),
      datasets = insitu__text_json_get(j, image, "datasets");
  tool_json_object(out, NULL);
  tool_json_token(out, "name", j, insitu__text_json_get(j, image, "name"));
  tool_json_string(out, "version", version[0] ? version : NULL);
  tool_json_token(out, "axes", j, axes);
  tool_json_array(out, "datasets");
  for (int t = insitu__text_json_first(j, datasets); t >= 0; t = insitu__text_json_next(j, t)) {
    const struct info_array *a = info_dataset(f, g, t, path, sizeof path);
    tool_json_object(out, NULL);
    tool_json_string(out, "path", path);
    tool_json_bool(out, "found", a);
    if (a) tool_json_string(out, "dtype", a->dtype);
    if (a && a->has_shape) info_json_extents(out, "shape", a->ndim, a->shape);
    if (a && a->has_chunk)
      info_json_extents(out, "chunk_shape", a->ndim, a->sharded ? a->inner : a->chunk);
    for (size_t i = 0; i < TOOL_COUNT(info_transformation_types); i++)
      tool_json_token(out, info_transformation_types[i], j,
          info_transformation(j, t, info_transformation_types[i]));
    tool_json_end(out);
  }
  tool_json_end(out);
  for (size_t i = 0; i < TOOL_COUNT(info_transformation_types); i++)
    tool_json_token(out, info_transformation_types[i], j,
        info_transformation(j, image, info_transformation_types[i]));
  tool_json_end(out);
}
static void info_json_images(
    struct tool_json_out *out, const struct info *f, const struct info_group *g) {
  char common[32], version[32];
  int list = info_multiscales(g, common, sizeof common);
  if (list < 0) return;
  tool_json_array(out, "multiscales");
  for (int t = insitu__text_json_first(&g->attributes, list); t >= 0;
       t = insitu__text_json_next(&g->attributes, t)) {
    snprintf(version, sizeof version, "%s", common);
    info_image_version(&g->attributes, t, version, sizeof version);
    info_json_image(out, f, g, t, version);
  }
  tool_json_end(out);
}
static void info_json_suggestion(struct tool_json_out *j, const struct info_suggestion *s) {
  const insitu_plan *p = &s->plan;
  tool_json_object(j, "suggestion");
  tool_json_string(j, "sample_dim", s->desc.sample_dim);
  tool_json_list(j, "variables");
  for (uint64_t i = 0; i < s->desc.n_variables - s->n_fixed; i++)
    tool_json_string(j, NULL, s->variables[i].path);
  tool_json_end(j);
  tool_json_list(j, "fixed");
  for (uint64_t i = s->desc.n_variables - s->n_fixed; i < s->desc.n_variables; i++)
    tool_json_string(j, NULL, s->variables[i].path);
  tool_json_end(j);
  tool_json_array(j, "slices");
  for (uint64_t i = 0; i < s->n_slices; i++) {
    tool_json_object(j, NULL);
    tool_json_string(j, "dim", s->slices[i].dim);
    tool_json_i64(j, "axis", s->slices[i].axis);
    tool_json_i64(j, "start", 0);
    tool_json_i64(j, "stop", s->slices[i].stop);
    tool_json_end(j);
  }
  tool_json_end(j);
  tool_json_array(j, "alternatives");
  for (int i = 0; i < s->n_other; i++) tool_json_string(j, NULL, s->other[i]);
  tool_json_end(j);
  if (s->err.status) tool_json_string(j, "error", s->err.message);
  else {
    const struct {
      const char *key;
      uint64_t value;
    } number[] = {{"batch_size", s->config->batch_size}, {"block_chunks", s->config->block_chunks},
        {"unit_chunks", s->config->unit_chunks}, {"prefetch_depth", s->config->prefetch_depth},
        {"max_inflight", s->config->max_inflight}, {"decode_threads", s->config->decode_threads},
        {"memory_budget", s->config->memory_budget}, {"memory_bytes", info_plan_bytes(p)},
        {"slabs", p->slabs}, {"slab_bytes", p->slab_bytes}, {"inflight_bytes", p->inflight_bytes},
        {"table_bytes", p->table_bytes}, {"cache_bytes", p->cache_bytes}, {"train_rows", p->rows},
        {"train_batches", p->batches}, {"reads", p->reads}, {"read_bytes", p->read_bytes}};
    for (size_t i = 0; i < TOOL_COUNT(number); i++)
      tool_json_u64(j, number[i].key, number[i].value);
    tool_json_double(j, "amplification", p->amplification);
    tool_json_double(j, "variance_ratio", p->variance_ratio);
  }
  tool_json_end(j);
}
static void info_json(
    struct info *f, const struct info_axis *axes, const struct info_suggestion *s) {
  struct tool_json_out j = {.to = stdout};
  tool_json_object(&j, NULL);
  tool_json_string(&j, "url", tool_archive_name(&f->archive, f->url));
  tool_json_u64(&j, "zarr_format", (uint64_t)f->archive.group.format);
  tool_json_bool(&j, "consolidated", f->archive.group.nodes >= 0);
  info_formats_json(&j, f);
  if (info_refs(f)) {
    tool_json_u64(&j, "targets", info_targets(info_refs(f)));
    tool_json_u64(&j, "targets_unguarded", info_refs(f)->unguarded);
  }
  const struct insitu__icechunk *ic = insitu__icechunk_of(&f->archive.store);
  if (ic) {
    tool_json_object(&j, "icechunk");
    tool_json_string(&j, "snapshot", ic->name);
    if (ic->ref) tool_json_string(&j, insitu__settings_versions[ic->by], ic->ref);
    tool_json_u64(&j, "version", ic->version);
    tool_json_end(&j);
  }
  if (f->archive.list_error.status)
    tool_json_string(&j, "listing_error", f->archive.list_error.message);
  tool_json_u64(&j, "decoded_bytes", f->decoded);
  if (f->sized) {
    tool_json_u64(&j, "stored_bytes", f->stored);
    tool_json_bool(&j, "stored_complete", !f->cut);
  }
  tool_json_array(&j, "groups");
  for (uint64_t i = 0; i < f->n_groups; i++) {
    const struct info_group *g = &f->groups[i];
    tool_json_object(&j, NULL);
    tool_json_string(&j, "path", g->path);
    tool_json_token(&j, "attributes", &g->attributes, g->text ? 0 : -1);
    info_json_images(&j, f, g);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  tool_json_array(&j, "arrays");
  for (uint64_t i = 0; i < f->n; i++) info_json_array(&j, f, &f->arrays[i]);
  tool_json_end(&j);
  tool_json_array(&j, "sample_axes");
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) {
    tool_json_object(&j, NULL);
    tool_json_string(&j, "dimension", axes[i].dim);
    tool_json_u64(&j, "samples", axes[i].samples);
    tool_json_array(&j, "arrays");
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(axes[i].member); k++) {
      const struct info_array *a = axes[i].member[k];
      unsigned axis = info_sample_axis(a);
      tool_json_object(&j, NULL);
      tool_json_string(&j, "path", a->path);
      tool_json_u64(&j, "axis", axis);
      tool_json_u64(&j, "samples_per_chunk", a->z.chunk[axis]);
      tool_json_u64(&j, "chunks_per_sample", info_chunks_per_sample(a));
      tool_json_u64(&j, "bytes_per_sample", a->decoded / a->shape[axis]);
      tool_json_end(&j);
    }
    tool_json_end(&j);
    tool_json_end(&j);
  }
  tool_json_end(&j);
  if (s) info_json_suggestion(&j, s);
  tool_json_end(&j);
}

/* ---- the command ---- */

static void info_print(
    struct info *f, const struct info_axis *axes, const struct info_suggestion *s) {
  char decoded[16], stored[16], n[32];
  uint64_t refused = 0, stale = 0;
  for (uint64_t i = 0; i < f->n; i++) {
    refused += f->arrays[i].err.status != 0;
    stale += f->arrays[i].stale[0] != 0;
  }
  printf("%s", tool_style(TOOL_BOLD));
  const char *url = tool_archive_name(&f->archive, f->url);
  tool_put_padded(url, 0);
  printf("%s%sZarr v%d%s, %s array%s, %s", tool_style(TOOL_PLAIN), strlen(url) > 40 ? "\n" : "  ",
      f->archive.group.format, f->archive.group.nodes >= 0 ? " consolidated" : "",
      tool_count(n, f->n), f->n == 1 ? "" : "s", tool_bytes(decoded, f->decoded));
  if (f->sized) printf(" (stored %s%s)", f->cut ? "at least " : "", tool_bytes(stored, f->stored));
  printf("\n");
  const struct insitu__icechunk *ic = insitu__icechunk_of(&f->archive.store);
  if (ic) {
    printf("Icechunk repository (specification %u), ", ic->version);
    if (ic->ref) printf("%s ", insitu__settings_versions[ic->by]);
    if (ic->ref) tool_put_padded(ic->ref, 0);
    printf("%ssnapshot %s\n", ic->ref ? ", " : "", ic->name);
  } else if (insitu__store_is_remote(&f->archive.store) && !info_no_size)
    printf("Stored bytes: not known, a remote store tells them one object at a time; insitu verify "
           "counts them as it reads all.\n");
  info_formats_print(f);
  if (info_refs(f)) info_print_targets(info_refs(f));
  if (f->cut && info_refs(f))
    printf(
        "Not all stored bytes were counted: references to whole files do not tell their size.\n");
  else if (f->cut)
    printf("Not all stored bytes were counted: time was up (--size-seconds 60), or a directory "
           "cannot be read.\n");
  if (stale)
    printf("%sThe consolidated metadata of %s array%s are not what the array%s own say: see STALE "
           "below.%s\n",
        tool_style(TOOL_YELLOW), tool_count(n, stale), stale == 1 ? "" : "s",
        stale == 1 ? "'s" : "s'", tool_style(TOOL_PLAIN));
  if (!info_short) info_print_groups(f);
  info_print_tree(f);
  info_print_images(f);
  for (uint64_t i = 0; !info_short && i < f->n; i++) info_print_array(f, &f->arrays[i]);
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(axes); i++) info_print_axis(&axes[i]);
  info_print_fixed(f);
  if (s) info_print_suggestion(f, s);
  if (refused)
    printf("\n%s%s of %" PRIu64 " arrays cannot be read by this build%s%s\n",
        tool_style(TOOL_YELLOW), tool_count(n, refused), f->n,
        info_short ? "; leave --short out to see why" : "; see REFUSED above",
        tool_style(TOOL_PLAIN));
}
static void info_free(struct info *f) {
  for (uint64_t i = 0; i < f->n; i++) {
    insitu__zarr_array_free(&f->arrays[i].z);
    tool_node_free(&f->arrays[i].node);
    for (int k = 0; k < INSITU__MAX_DIMS; k++) insitu__mem_free(f->arrays[i].dim[k]);
  }
  insitu__mem_free(f->arrays);
  for (uint64_t i = 0; i < f->n_groups; i++) {
    insitu__text_json_free(&f->groups[i].attributes);
    insitu__mem_free(f->groups[i].text);
    insitu__mem_free(f->groups[i].path);
  }
  INSITU__ARRAY_FREE(f->groups);
  info_formats_free(f);
  insitu_loader_close(&f->loader);
  tool_archive_close(&f->archive);
}
static int info_gather(struct info *f, uint64_t seconds) {
  insitu_error err = {0};
  struct insitu__zarr_array z;
  if (tool_archive_open(f->url, &f->archive)) return TOOL_FAILED;
  if (f->archive.list_error.status) tool_fail_error(&f->archive.list_error);
  info_find_groups(f);
  info_read_groups(f);
  f->arrays = (struct info_array *)tool_alloc(f->archive.n_paths + 1, sizeof *f->arrays);
  for (uint64_t i = 0; i < f->archive.n_paths; i++)
    if (info_wanted(f, f->archive.paths[i]))
      info_read_array(f, &f->arrays[f->n++], f->archive.paths[i]);
  /* perhaps an array that the listing does not know; else the message names near ones */
  if (!f->n && !f->n_groups) {
    insitu_status status = tool_archive_array(&f->archive, f->below, &z, &err);
    insitu__zarr_array_free(&z);
    if (status == INSITU_E_NOTFOUND || status == INSITU_E_ARG) return tool_fail_error(&err);
    info_read_array(f, &f->arrays[f->n++], f->below);
  }
  for (uint64_t i = 0; i < f->n; i++) info_read_own(f, &f->arrays[i]);
  info_formats_find(f);
  f->deadline = insitu__base_now() + (int64_t)insitu__base_min(seconds, 1u << 30) * 1000000000;
  info_sizes(f);
  if (insitu__store_is_remote(&f->archive.store))
    insitu__reactor_call(&f->archive.reactor, info_ask_await, f);
  for (uint64_t i = 0; i < f->n; i++) info_values(f, &f->arrays[i]);
  for (uint64_t i = 0; i < f->n; i++) info_dates(f, &f->arrays[i]);
  return TOOL_OK;
}
static int info_run(int argc, char **argv) {
  struct info f = {.url = argc ? argv[0] : NULL};
  char below[INSITU__MAX_KEY];
  uint64_t seconds;
  if (argc < 1) return tool_usage_error("the archive is missing");
  if (argc > 2) return tool_usage_error("'%s' is one argument too many", argv[2]);
  if (!tool_option_u64("size-seconds", info_seconds, 3, &seconds)) return TOOL_USAGE;
  if (!insitu__group_normalise(argc > 1 ? argv[1] : "", below, sizeof below))
    return tool_usage_error(
        "'%s' is not a path inside the archive; write names joined by '/'", argv[1]);
  f.below = below;
  int code = info_gather(&f, seconds);
  if (code == TOOL_OK) {
    struct info_axis *axes = info_roles(&f);
    const struct info_axis *largest = info_largest(axes);
    struct info_suggestion suggestion = {0};
    if (largest) info_suggest(&f, largest, &suggestion);
    if (tool_json) info_json(&f, axes, largest ? &suggestion : NULL);
    else info_print(&f, axes, largest ? &suggestion : NULL);
    insitu_loader_close(&suggestion.loader);
    info_axes_free(axes);
    if (f.archive.list_error.status) code = TOOL_FAILED; /* what is shown is not all */
  }
  info_free(&f);
  return code;
}

static const struct tool_option info_options[] = {
    {"short", 's', NULL, "no attributes and no details: tree, sample axes, suggestion",
        &info_short},
    {"attributes", 'a', NULL, "attributes in full (default: one line each)", &info_attributes},
    {"no-size", 0, NULL, "do not count stored bytes", &info_no_size},
    {"size-seconds", 0, "N", "count stored bytes for at most N seconds (3)", &info_seconds},
    TOOL_STORE_OPTIONS,
};
static const struct tool_command info_command = {.name = "info",
    .arguments = "URL [PATH] [OPTIONS]",
    .summary = "what is in an archive, and what training from it would take",
    .details =
        "  URL   a Zarr v2 or v3 archive: a directory, a zip file, or file://, zip://, "
        "http(s)://, s3://,\n"
        "        gs://, az://\n"
        "  PATH  only this array, or this group and all below it\n\n"
        "Shows groups and arrays with their shapes, types, chunks, codecs and attributes;\n"
        "OME-NGFF images with their axes, and the shape and scale of each resolution; which\n"
        "arrays this build cannot read, and why; which arrays share a sample axis and how it\n"
        "is chunked, and which have none; a configuration to begin with, with the memory and\n"
        "the reads that it would take; and command lines that work as they stand. Reads\n"
        "metadata, and of the data only small coordinates, and both ends of those of time.\n"
        "Sizes are decoded bytes; ratio is decoded to stored; what a remote store holds in\n"
        "bytes is not counted.\n\n" TOOL_STORE_HELP "examples: insitu info winds.zarr\n"
        "          insitu info winds.zarr uwnd --attributes\n"
        "          insitu info winds.zarr --json | jq '.arrays[].path'\n",
    .options = info_options,
    .n_options = TOOL_COUNT(info_options),
    .run = info_run};
