/* What the random model test stands on: draws, memory that a case owns, and how a difference ends a
 * case. */
#ifndef TESTS_RANDOM_BASE_H
#define TESTS_RANDOM_BASE_H
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- draws: a case is what its number gives ---- */
static uint64_t draw_state;

static inline uint64_t draw_u64(void) {
  uint64_t x = draw_state += UINT64_C(0x9E3779B97F4A7C15);

  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}

/* 0 to n - 1 */
static inline uint64_t draw(uint64_t n) {
  return draw_u64() % n;
}

/* lo to hi, both included */
static inline int64_t draw_from(int64_t lo, int64_t hi) {
  return lo + (int64_t)draw((uint64_t)(hi - lo + 1));
}

static inline bool chance(uint64_t percent) {
  return draw(100) < percent;
}

static inline uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static inline uint64_t ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

/* ---- memory that lives as long as the case: blocks of their own, so that AddressSanitizer sees
 * their ends ---- */
static void **case_block;
static size_t case_blocks, case_cap;

static inline void *own(size_t n) {
  if (case_blocks == case_cap) {
    case_cap = case_cap ? 2 * case_cap : 256;
    case_block = realloc(case_block, case_cap * sizeof *case_block);
  }
  void *p = case_block ? calloc(1, n ? n : 1) : NULL;

  if (!p) abort();
  return case_block[case_blocks++] = p;
}

static inline void disown_all(void) {
  for (size_t i = 0; i < case_blocks; i++) free(case_block[i]);
  case_blocks = 0;
}

/* ---- text ---- */
struct text {
  size_t n;
  char at[1 << 16];
};

__attribute__((format(printf, 2, 3))) static inline void say(
    struct text *t, const char *format, ...) {
  va_list list;

  va_start(list, format);
  int n = vsnprintf(t->at + t->n, sizeof t->at - t->n, format, list);
  va_end(list);
  if (n < 0 || t->n + (size_t)n >= sizeof t->at) abort();
  t->n += (size_t)n;
}

/* "[1,2,3]" */
static inline void say_list(struct text *t, int n, const uint64_t *v) {
  say(t, "[");
  for (int i = 0; i < n; i++) say(t, "%s%" PRIu64, i ? "," : "", v[i]);
  say(t, "]");
}

__attribute__((format(printf, 1, 2))) static inline char *own_text(const char *format, ...) {
  char text[4096];
  va_list list;

  va_start(list, format);
  int n = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (n < 0 || (size_t)n >= sizeof text) abort();
  return strcpy(own((size_t)n + 1), text);
}

/* ---- a difference between library and model ends the case ---- */
static jmp_buf case_end;
static char difference[4096];

__attribute__((noreturn, format(printf, 1, 2))) static inline void differ(const char *format, ...) {
  va_list list;

  va_start(list, format);
  vsnprintf(difference, sizeof difference, format, list);
  va_end(list);
  longjmp(case_end, 1);
}
#endif
