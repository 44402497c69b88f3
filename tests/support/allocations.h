/* Counts what a program allocates: its malloc, calloc and realloc take the place of the C
 * library's. For one file of a program, and not for sanitizers' builds, which replace them too. */
#ifndef TESTS_ALLOCATIONS_H
#define TESTS_ALLOCATIONS_H
#include <stdatomic.h>
#include <stddef.h>

static atomic_int allocations;
void *__libc_malloc(size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_calloc(size_t n, size_t m);
void *malloc(size_t n) {
  atomic_fetch_add(&allocations, 1);
  return __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
  atomic_fetch_add(&allocations, 1);
  return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
  atomic_fetch_add(&allocations, 1);
  return __libc_realloc(p, n);
}
#endif
