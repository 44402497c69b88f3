/* An array's metadata from their texts, for tests that compile part B: the loader reads them from a
 * store, see insitu__group_array_await. */

/* The texts of .zarray and .zattrs (NULL: none). a is zeroed on error. */
__attribute__((unused)) static insitu_status parse_v2(struct insitu__zarr_array *a,
    const char *path, const char *text, uint64_t n, const char *attributes, uint64_t n_attributes,
    insitu_error *err) {
  char what[320];
  struct insitu__text_json j = {0}, attrs = {0};
  memset(a, 0, sizeof *a);
  snprintf(what, sizeof what, "array '%.280s', .zarray", path);
  insitu_status status = insitu__text_json_parse(&j, text, n, what, err);
  if (status == INSITU_OK && attributes)
    status = insitu__text_json_parse(&attrs, attributes, n_attributes, what, err);
  if (status == INSITU_OK) status = insitu__zarr_read(a, path, 2, &j, 0, &attrs, 0, NULL, err);
  insitu__text_json_free(&j);
  insitu__text_json_free(&attrs);
  return status;
}

/* The text of a zarr.json. a is zeroed on error. */
__attribute__((unused)) static insitu_status parse_v3(struct insitu__zarr_array *a,
    const char *path, const char *text, uint64_t n, insitu_error *err) {
  char what[320];
  struct insitu__text_json j;
  memset(a, 0, sizeof *a);
  snprintf(what, sizeof what, "array '%.280s', zarr.json", path);
  insitu_status status = insitu__text_json_parse(&j, text, n, what, err);
  int attributes = insitu__text_json_get(&j, 0, "attributes");
  if (status == INSITU_OK) status = insitu__zarr_read(a, path, 3, &j, 0, &j, attributes, NULL, err);
  insitu__text_json_free(&j);
  return status;
}
