/* The inventory of a GRIB file, a line for each field: FILE.idx as wgrib2 prints it and NOAA
 * publishes it, and the .index beside each file of ECMWF's open data,
 *
 *   number:offset:d=2026010100:TMP:850 mb:anl:
 *   {"date": "20260101", ..., "param": "2t", "_offset": 0, "_length": 609046}
 *
 * A message with several fields has several lines with one offset. Offsets of the first kind never
 * go back, those of the second may. The text is hostile. A pure function of (text, length); lines
 * point into the text. */

struct inventory_line {
  uint64_t offset; /* of the message, in the file */
  const char *text;
  uint64_t n; /* without the line's end */
};

/* The offset of a line: behind the first colon, up to another one; of JSON behind "_offset". False:
 * there is none. */
static bool inventory_offset(const struct inventory_line *l, uint64_t *offset) {
  static const char name[] = "\"_offset\"";
  const char *p = l->text, *end = l->text + l->n;
  bool json = *p == '{';
  p = json ? memmem(p, (size_t)l->n, name, sizeof name - 1) : memchr(p, ':', (size_t)l->n);
  if (!p) return false;
  p += json ? sizeof name - 1 : 0;
  while (p < end && *p == ' ') p++;
  if (p == end || *p++ != ':') return false;
  while (json && p < end && *p == ' ') p++;
  if (p == end || !insitu__text_is_digit(*p)) return false;
  for (*offset = 0; p < end && insitu__text_is_digit(*p); p++)
    if (!insitu__base_mul(*offset, 10, offset) ||
        !insitu__base_add(*offset, (uint64_t)(*p - '0'), offset))
      return false;
  return p < end && (json || *p == ':') && *offset <= INT64_MAX;
}
static int inventory_compare(const void *a, const void *b) {
  const struct inventory_line *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->text < y->text ? -1 : x->text > y->text;
}
/* *line: a growing array of all lines, which the caller frees in any case. Empty lines count for
 * nothing. */
static insitu_status inventory_parse(
    const char *text, uint64_t n, struct inventory_line **line, insitu_error *err) {
  bool json = n && text[0] == '{';
  for (uint64_t at = 0; at < n;) {
    const char *end = memchr(text + at, '\n', (size_t)(n - at));
    struct inventory_line l = {.text = text + at};
    uint64_t bytes = end ? (uint64_t)(end - l.text) : n - at, count = INSITU__ARRAY_LEN(*line);
    at += bytes + 1;
    l.n = bytes && l.text[bytes - 1] == '\r' ? bytes - 1 : bytes;
    if (!l.n) continue;
    if ((*l.text == '{') != json || !inventory_offset(&l, &l.offset) ||
        (!json && count && l.offset < (*line)[count - 1].offset))
      return insitu__error_set(err, INSITU_E_FORMAT,
          "'%.*s' is no line of an inventory (number:offset:..., by offsets); remove the file, or "
          "make it again",
          (int)insitu__base_min(60, l.n), l.text);
    if (!INSITU__ARRAY_PUSH(*line, l))
      return insitu__error_set(err, INSITU_E_NOMEM, "no memory for the lines of an inventory");
  }
  if (json) qsort(*line, (size_t)INSITU__ARRAY_LEN(*line), sizeof **line, inventory_compare);
  return INSITU_OK;
}
