/* libFuzzer: Zarr metadata; make fuzz builds and runs it. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  const char *text = (const char *)data;
  struct insitu__zarr_array a;
  insitu_error err = {0};
  for (int kind = 0; kind < 3; kind++) { /* v2, v3, v2 attributes */
    const char *plain = "{\"zarr_format\":2,\"shape\":[1,2],\"chunks\":[1,2],\"dtype\":\"<f4\",\"order\":\"C\"}";
    memset(&err, 0, sizeof err);
    insitu_status status = kind == 0   ? insitu__zarr_parse_v2(&a, "a", text, n, NULL, 0, &err)
                           : kind == 1 ? insitu__zarr_parse_v3(&a, "a", text, n, &err)
                                       : insitu__zarr_parse_v2(&a, "a", plain, strlen(plain), text, n, &err);
    if (status != err.status || (status < 0) != (err.message[0] != 0)) abort();
    if (status == INSITU_OK) {
      char key[64];
      uint64_t index[INSITU__MAX_DIMS] = {0}, bytes = a.itemsize, axes = 0;
      for (unsigned d = 0; d < a.ndim; d++) bytes *= a.chunk[d], axes |= UINT64_C(1) << a.order[d], index[d] = a.shape[d];
      if (a.ndim > INSITU__MAX_DIMS || !bytes || bytes > INSITU__MAX_CHUNK || axes + 1 != UINT64_C(1) << a.ndim) abort();
      insitu__zarr_chunk_key(&a, index, key, sizeof key);
    }
    insitu__zarr_array_free(&a);
  }
  struct insitu__text_json j;
  if (insitu__text_json_parse(&j, text, n, "fuzz", NULL) == INSITU_OK)
    for (int t = 0; t < j.n; t++) {
      uint64_t u;
      int64_t i;
      double d;
      char buf[16];
      insitu__text_json_u64(&j, t, &u);
      insitu__text_json_i64(&j, t, &i);
      insitu__text_json_double(&j, t, &d);
      insitu__text_json_string(&j, t, buf, sizeof buf);
      int count = 0;
      for (int c = insitu__text_json_first(&j, t); c >= 0; c = insitu__text_json_next(&j, t, c)) count++;
      if (count != insitu__text_json_size(&j, t)) abort();
    }
  insitu__text_json_free(&j);
  return 0;
}
