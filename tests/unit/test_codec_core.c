/* test_codec.c with none of the libraries that macros bring: what they would decode is refused by
 * name. */
#undef INSITU_WITH_ZLIB
#undef INSITU_WITH_LIBDEFLATE
#undef INSITU_WITH_BZIP2
#undef INSITU_WITH_SNAPPY
#include "test_codec.c"
