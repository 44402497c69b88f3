/* The random model test with arrays on devices of the simulated CUDA runtime: test_random.c says
 * how it is run. */
#define INSITU_WITH_CUDA
#include "cudasim/cudasim.c"
#include "../loader/test_random.c"
