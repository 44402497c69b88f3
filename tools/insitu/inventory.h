/* The inventory of a GRIB file, FILE.idx, as wgrib2 prints it and NOAA publishes it beside each
 * file: a line for each field,
 *
 *   number:offset:d=2026010100:TMP:850 mb:anl:
 *
 * of which a message with several fields has several with one offset. Offsets never go back. The
 * text is hostile. A pure function of (text, length); lines point into the text. */

struct inventory_line {
  uint64_t offset; /* of the message, in the file */
  const char *text;
  uint64_t n; /* without the line's end */
};

/* The number behind the first colon; false: there is none that ends with another colon. */
static bool inventory_offset(const struct inventory_line *l, uint64_t *offset) {
  const char *p = memchr(l->text, ':', (size_t)l->n), *end = l->text + l->n;
  if (!p || ++p == end || *p == ':') return false;
  for (*offset = 0; p < end && *p != ':'; p++)
    if (!insitu__text_is_digit(*p) || !insitu__base_mul(*offset, 10, offset) ||
        !insitu__base_add(*offset, (uint64_t)(*p - '0'), offset))
      return false;
  return p < end && *offset <= INT64_MAX;
}
/* *line: a growing array of all lines, which the caller frees in any case. Empty lines count for
 * nothing. */
static insitu_status inventory_parse(
    const char *text, uint64_t n, struct inventory_line **line, insitu_error *err) {
  for (uint64_t at = 0; at < n;) {
    const char *end = memchr(text + at, '\n', (size_t)(n - at));
    struct inventory_line l = {.text = text + at};
    uint64_t bytes = end ? (uint64_t)(end - l.text) : n - at, count = INSITU__ARRAY_LEN(*line);
    at += bytes + 1;
    l.n = bytes && l.text[bytes - 1] == '\r' ? bytes - 1 : bytes;
    if (!l.n) continue;
    if (!inventory_offset(&l, &l.offset) || (count && l.offset < (*line)[count - 1].offset))
      return insitu__error_set(err, INSITU_E_FORMAT,
          "'%.*s' is no line of an inventory (number:offset:..., by offsets); remove the file, or "
          "make it again",
          (int)insitu__base_min(60, l.n), l.text);
    if (!INSITU__ARRAY_PUSH(*line, l))
      return insitu__error_set(err, INSITU_E_NOMEM, "no memory for the lines of an inventory");
  }
  return INSITU_OK;
}
