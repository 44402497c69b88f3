/* test_codec.c with zlib in libdeflate's place. */
#undef INSITU_WITH_LIBDEFLATE
#include "test_codec.c"
