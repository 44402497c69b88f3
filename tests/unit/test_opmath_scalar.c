/* The same without vectors: the same hashes. */
#define INSITU_OPS_SCALAR
#include "test_opmath.c"
