/* libFuzzer: chunks of strings (vlen-utf8, vlen-bytes, json2) and base64. Input: the number of
 * strings, then the chunk. What vlen gives is what a plain reading of it gives; json2 gives as many
 * strings as asked for or fails; base64 is what encodes back. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

struct seen {
  const uint8_t *at; /* vlen: where the next string is */
  uint64_t next;
};

static insitu_status emit_vlen(void *to, uint64_t number, const char *text, uint64_t n) {
  struct seen *s = (struct seen *)to;
  FUZZ_HOLDS(number == s->next++);
  FUZZ_HOLDS((const uint8_t *)text == s->at + 4 && n == insitu__base_load32(s->at));
  s->at += 4 + n;
  return INSITU_OK;
}
static insitu_status emit_json(void *to, uint64_t number, const char *text, uint64_t n) {
  struct seen *s = (struct seen *)to;
  FUZZ_HOLDS(number == s->next++);
  for (uint64_t i = 0; i < n; i++) s->at += text[i] == 0; /* every byte can be read */
  return number == 1000 ? INSITU_E_NOMEM : INSITU_OK;
}

static void base64(const uint8_t *data, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *text = fuzz_text(data, n);
  uint8_t *out = malloc(n + 1);
  int64_t got = insitu__text_base64(text, strlen(text), out, n);
  for (int64_t i = 0; i < got; i += 3) { /* the digits again, but for bits that padding drops */
    uint32_t bits = (uint32_t)out[i] << 16;
    if (i + 1 < got) bits |= (uint32_t)out[i + 1] << 8;
    if (i + 2 < got) bits |= out[i + 2];
    for (int k = 0; k < 4; k++) {
      char c = text[i / 3 * 4 + k];
      if (i + k - 1 < got - (k == 1) && (i + 3 <= got))
        FUZZ_HOLDS(c == digits[bits >> (18 - 6 * k) & 63]);
    }
  }
  free(out);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 1) return 0;
  insitu_error err = {0};
  uint64_t count = data[0];
  uint8_t *exact = fuzz_copy(data + 1, n - 1);
  struct seen s = {exact + 4, 0};
  insitu_status status = insitu__zarr_vlen(exact, n - 1, count, emit_vlen, &s, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS(status < 0 || (s.next == count && s.at == exact + n - 1));
  s = (struct seen){exact, 0};
  memset(&err, 0, sizeof err);
  status = insitu__zarr_json2(exact, n - 1, count, emit_json, &s, &err);
  FUZZ_HOLDS(status < 0 || s.next == count);
  free(exact);
  base64(data, n);
  return 0;
}
