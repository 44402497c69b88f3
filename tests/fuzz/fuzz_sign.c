/* libFuzzer: what >>sign reads. Input: one byte that says what the rest is: 0 XML, 1 INI, 2 dates,
 * 3 header lines, one a line. XML: starts and ends match and nest, pieces lie within the text, in
 * order, and texts come back when they are escaped and read again. INI: pieces lie within their
 * line, trimmed. A date that is read is written and read again. A header that is taken holds no
 * line break, and who signs it signs the same in any order. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

/* ---- XML ---- */

static void round_trip(const struct insitu__sign_xml *from) {
  struct insitu__text_buffer text = {0}, xml = {0}, again = {0};
  bool ok = insitu__sign_xml_decode(from, &text);
  /* no entity is shorter than what it stands for */
  FUZZ_HOLDS(!text.failed && text.n <= from->value.n);
  if (ok) {
    FUZZ_HOLDS(insitu__text_buffer_printf(&xml, "<t>"));
    for (uint64_t i = 0; i < text.n; i++) {
      unsigned char c = (unsigned char)text.text[i];
      if (c < 0x20 || strchr("<>&\"'", c)) insitu__text_buffer_printf(&xml, "&#x%x;", c);
      else insitu__text_buffer_bytes(&xml, text.text + i, 1);
    }
    FUZZ_HOLDS(insitu__text_buffer_printf(&xml, "</t>"));
    struct insitu__sign_xml x = {.text = xml.text, .n = xml.n};
    FUZZ_HOLDS(insitu__sign_xml_next(&x) == INSITU__SIGN_XML_START &&
               insitu__sign_xml_content(&x, &again));
    FUZZ_HOLDS(insitu__sign_xml_next(&x) == INSITU__SIGN_XML_DONE);
    FUZZ_HOLDS(again.n == text.n && !memcmp(again.text, text.text, text.n));
  }
  insitu__text_buffer_free(&text);
  insitu__text_buffer_free(&xml);
  insitu__text_buffer_free(&again);
}
/* whatever element the text has */
static void find(const char *text, size_t n, const char *name, uint64_t n_name) {
  char *tag = fuzz_text(name, n_name), out[24];
  memset(out, 1, sizeof out);
  if (insitu__sign_xml_find(text, n, tag, out, 16)) FUZZ_HOLDS(strnlen(out, 16) < 16);
  for (int i = 16; i < 24; i++) FUZZ_HOLDS(out[i] == 1);
  free(tag);
}
static void xml(const char *text, size_t n) {
  struct insitu__sign_xml x = {.text = text, .n = n};
  unsigned level = 0, last = INSITU__SIGN_XML_DONE;
  uint64_t at = 0, pieces = 0;
  const char *open[INSITU__MAX_XML_DEPTH];
  uint64_t n_open[INSITU__MAX_XML_DEPTH];
  for (;; pieces++) {
    int piece = insitu__sign_xml_next(&x);
    FUZZ_HOLDS(x.at <= n && x.at >= at && x.level <= INSITU__MAX_XML_DEPTH);
    /* each piece takes a byte or more, but the end of an empty element, whose tag has four */
    FUZZ_HOLDS(pieces <= n);
    if (piece >= INSITU__SIGN_XML_DONE) {
      FUZZ_HOLDS(insitu__sign_xml_next(&x) == piece &&
                 (piece == INSITU__SIGN_XML_BAD || (!level && pieces)));
      break;
    }
    FUZZ_HOLDS(x.at > at || (piece == INSITU__SIGN_XML_END && last == INSITU__SIGN_XML_START));
    at = x.at;
    last = (unsigned)piece;
    if (piece == INSITU__SIGN_XML_TEXT) {
      FUZZ_HOLDS(
          x.depth == level && level && x.value.text > text && x.value.text + x.value.n < text + n);
      round_trip(&x);
      continue;
    }
    FUZZ_HOLDS(x.name.text > text && x.name.text + x.name.n < text + n &&
               !memchr(x.name.text, '>', x.name.n));
    if (piece == INSITU__SIGN_XML_START) {
      open[level] = x.name.text;
      n_open[level++] = x.name.n;
      FUZZ_HOLDS(x.depth == level);
      if (pieces < 4) find(text, n, x.name.text, x.name.n);
    } else {
      FUZZ_HOLDS(level && x.depth == level);
      level--;
      FUZZ_HOLDS(x.name.n == n_open[level] && !memcmp(x.name.text, open[level], x.name.n));
    }
  }
}

/* ---- INI ---- */

static void within(const struct insitu__sign_ini *x, struct insitu__sign_span s, const char *from) {
  FUZZ_HOLDS(s.text >= from && s.text + s.n <= x->text + x->at && !memchr(s.text, '\n', s.n));
}
static void ini(const char *text, size_t n) {
  struct insitu__sign_ini x = {.text = text, .n = n};
  uint64_t at = 0;
  int piece;
  for (; (piece = insitu__sign_ini_piece(&x)) < INSITU__SIGN_INI_DONE; at = x.at) {
    FUZZ_HOLDS(x.at > at && x.at <= n && x.name.n);
    if (piece == INSITU__SIGN_INI_SECTION) continue;
    char *name = fuzz_text(x.name.text, x.name.n), *key = fuzz_text(x.key.text, x.key.n),
         *kind = fuzz_text(x.kind.text, x.kind.n);
    struct insitu__sign_span value;
    FUZZ_HOLDS(x.key.n);
    within(&x, x.kind, text);
    within(&x, x.name, text);
    within(&x, x.key, text + at);
    within(&x, x.value, x.key.text + x.key.n + 1);
    struct insitu__sign_span trimmed = insitu__sign_trim(x.value.text, x.value.text + x.value.n);
    FUZZ_HOLDS(trimmed.n == x.value.n);
    if (strlen(name) == x.name.n && strlen(key) == x.key.n && strlen(kind) == x.kind.n)
      FUZZ_HOLDS(insitu__sign_ini_find(text, n, kind, name, key, &value) && value.n < n);
    free(name);
    free(key);
    free(kind);
  }
  FUZZ_HOLDS((insitu__sign_ini_bad_line(text, n) != 0) == (piece == INSITU__SIGN_INI_BAD));
  FUZZ_HOLDS(piece == INSITU__SIGN_INI_BAD || x.at == n);
}

/* ---- dates ---- */

static void again(int64_t seconds) {
  char http[30], basic[17];
  int64_t back;
  insitu__sign_http_date(seconds, http);
  insitu__sign_iso_basic(seconds, basic);
  FUZZ_HOLDS(strlen(http) == 29 && strlen(basic) == 16);
  /* an offset may lead out of the years */
  if (seconds < INT64_C(-62135596800) || seconds > INT64_C(253402300799)) return;
  FUZZ_HOLDS(insitu__sign_parse_http_date(http, &back) && back == seconds);
  FUZZ_HOLDS(insitu__sign_parse_iso(basic, &back) && back == seconds);
}
static void dates(const char *text, size_t n) {
  char http[30], *copy = fuzz_text(text, n);
  int64_t seconds;
  if (insitu__sign_parse_http_date(copy, &seconds)) {
    insitu__sign_http_date(seconds, http);
    FUZZ_HOLDS(!strcmp(http, copy));
    again(seconds);
  }
  if (insitu__sign_parse_iso(copy, &seconds)) again(seconds);
  if (n >= 8) again((int64_t)insitu__base_load64(text));
  free(copy);
}

/* ---- headers ---- */

static bool sign(bool azure, const struct insitu__sign_aws *k, struct insitu__sign_day *day,
    const char *query, const char *const *line, unsigned lines, struct insitu__text_buffer *out) {
  const unsigned char *key = (const unsigned char *)"key";
  if (azure)
    return insitu__sign_azure("account", key, 3, "GET", "/c", query, line, lines, out) == INSITU_OK;
  return insitu__sign_v4(day, k, "GET", "host", "/", "", line, lines, INSITU__SIGN_EMPTY, 0, out) ==
         INSITU_OK;
}
static void headers(const char *text, size_t n) {
  char *copy = fuzz_text(text, n), *rest = copy, *part;
  const char *line[INSITU__MAX_SIGN_ITEMS], *back[INSITU__MAX_SIGN_ITEMS];
  unsigned lines = 0;
  bool twice = false;
  while (lines < INSITU__MAX_SIGN_ITEMS && (part = strsep(&rest, "\n"))) {
    for (unsigned i = 0; i < lines; i++) {
      size_t name = strcspn(part, ":");
      twice = twice || (name == strcspn(line[i], ":") && !strncasecmp(part, line[i], name));
    }
    line[lines++] = part;
  }
  for (unsigned i = 0; i < lines; i++) back[i] = line[lines - 1 - i];
  struct insitu__sign_aws k = {"AKIA", "secret", lines ? line[0] : "region", "s3"};
  struct insitu__sign_day day = {0};
  for (int azure = 0; azure < 2; azure++) {
    struct insitu__text_buffer a = {0}, b = {0};
    const char *query = lines ? line[0] : "";
    bool ok = sign(azure, &k, &day, query, line, lines, &a),
         also = sign(azure, &k, &day, query, back, lines, &b);
    FUZZ_HOLDS(ok == also && (twice || !ok || !strcmp(a.text, b.text)));
    FUZZ_HOLDS(ok ? !strpbrk(a.text, "\r\n") : !a.n && !b.n);
    insitu__text_buffer_free(&a);
    insitu__text_buffer_free(&b);
  }
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static void (*const read[])(const char *, size_t) = {xml, ini, dates, headers};
  if (!n) return 0;
  char *copy = fuzz_copy(data + 1, n - 1);
  read[data[0] % 4](copy, n - 1);
  free(copy);
  return 0;
}
