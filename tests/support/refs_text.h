/* Writes bytes as references in JSON hold them inline: as a text, or in base64. */
#ifndef TESTS_REFS_TEXT_H
#define TESTS_REFS_TEXT_H
#include <stdint.h>
#include <stdio.h>

static inline void refs_quote(FILE *f, const unsigned char *p, uint64_t n) {
  fputc('"', f);
  for (uint64_t i = 0; i < n; i++)
    if (p[i] == '"' || p[i] == '\\') fprintf(f, "\\%c", p[i]);
    else if (p[i] < 0x20) fprintf(f, "\\u%04x", p[i]);
    else fputc(p[i], f);
  fputc('"', f);
}
static inline void refs_base64(FILE *f, const unsigned char *p, uint64_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  fprintf(f, "\"base64:");
  for (uint64_t i = 0; i < n; i += 3) {
    unsigned bits = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                    (i + 2 < n ? p[i + 2] : 0u);
    fputc(digits[bits >> 18], f);
    fputc(digits[bits >> 12 & 63], f);
    fputc(i + 1 < n ? digits[bits >> 6 & 63] : '=', f);
    fputc(i + 2 < n ? digits[bits & 63] : '=', f);
  }
  fputc('"', f);
}
#endif
