/* libFuzzer: configurations of codecs, and filters on any bytes, those of
 * examples/08_extension_codecs.c as well. Input: byte 0 the format and place, and whether these
 * come before the built-in ones, byte 1 the type of the elements there, byte 2 the sink's element,
 * bytes 3-4 the decoded size, then the codec's JSON, a NUL, and the chunk. What decodes comes in
 * order, once, inside its bounds; pieces and places give the same bytes; and the encoded size is
 * the one foretold. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "examples/08_extension_codecs.c"
#include "fuzz.h"
#include "fuzz_sink.h"

static void chunk(
    const struct insitu__codec_chain *chain, const uint8_t *data, const uint8_t *bytes, size_t n) {
  uint8_t *out;
  uint64_t decoded = (uint64_t)data[3] | (uint64_t)data[4] << 8;
  uint8_t *src = fuzz_copy(bytes, n);
  if (fuzz_deliver(chain, src, n, decoded, 1 + (data[2] & 15), data[2] & 0x40, &out) == INSITU_OK) {
    const struct insitu__codec *c = &chain->codec[0];
    if (c->kind >= INSITU__CODEC_SHUFFLE && (c->kind != INSITU__CODEC_USER || c->from.dtype))
      FUZZ_HOLDS(insitu__chain_bound(chain, decoded) == n);
    else FUZZ_HOLDS(chain->n == 1);
  }
  free(out);
  free(src);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const int32_t types[] = {0, INSITU_BOOL, INSITU_I8, INSITU_I16, INSITU_I32, INSITU_I64,
      INSITU_U8, INSITU_U16, INSITU_U32, INSITU_U64, INSITU_F16, INSITU_F32, INSITU_F64};
  if (n < 6) return 0;
  struct insitu__filter_context at = {.format = 2 + (data[0] & 1), .array = data[0] >> 1 & 1};
  at.type.dtype = types[data[1] % (sizeof types / sizeof *types)];
  at.item = at.type.dtype ? insitu__codec_type_size(at.type) : 16;
  char *text = fuzz_text(data + 5, n - 5);
  size_t length = strlen(text), behind = length + 6 < n ? length + 6 : n;
  struct insitu__text_json j;
  struct insitu__codec_chain chain = {.n = 1};
  insitu_error err = {0};
  if (insitu__text_json_parse(&j, text, length, "codec", NULL) == INSITU_OK) {
    struct insitu__chain_hooks hooks = {.codec = extension_codecs, .n = EXTENSION_CODECS};
    bool found = false;
    insitu_status status = INSITU_OK;
    if (!(data[0] & 4))
      status = insitu__chain_find_user(&hooks, &j, 0, &at, &chain.codec[0], &found, &err);
    if (!found) status = insitu__chain_read(&j, 0, &at, &chain.codec[0], &err);
    fuzz_status(status, &err);
    if (status == INSITU_OK) {
      FUZZ_HOLDS(chain.codec[0].name);
      if (insitu__codec_is_identity(&chain.codec[0])) chain.n = 0;
      chunk(&chain, data, data + behind, n - behind);
      insitu__codec_free(&chain.codec[0]);
    }
    insitu__chain_hooks_free(&hooks);
    insitu__text_json_free(&j);
  }
  free(text);
  return 0;
}
