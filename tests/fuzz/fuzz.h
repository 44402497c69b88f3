/* What the libFuzzer targets share. Each target is a pure function of its input, and checks more
 * than the absence of a crash: its first comment says what. `make fuzz` builds and runs them. */
#ifndef FUZZ_H
#define FUZZ_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A statement about the code under test: the input that breaks it is a finding. */
#define FUZZ_HOLDS(condition)                                                                      \
  do                                                                                               \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);               \
      abort();                                                                                     \
    }                                                                                              \
  while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A copy of exactly n bytes, so that the address sanitizer sees the first byte beyond. */
static inline void *fuzz_copy(const void *bytes, size_t n) {
  void *p = malloc(n ? n : 1);
  FUZZ_HOLDS(p);
  if (n) memcpy(p, bytes, n);
  return p;
}

/* a string: n bytes up to the first NUL */
static inline char *fuzz_text(const void *bytes, size_t n) {
  char *p = malloc(n + 1);
  FUZZ_HOLDS(p);
  if (n) memcpy(p, bytes, n);
  p[n] = 0;
  return p;
}

/* an error says what; success says nothing */
static inline void fuzz_status(insitu_status status, const insitu_error *err) {
  FUZZ_HOLDS(status == err->status && (status < 0) == (err->message[0] != 0));
}
#endif
