/* libFuzzer: the header of an entry of the disk cache. Input: a byte that says what is made to fit
 * (1: name and key, 2: offset and length, 4: the checksum, 8: the stamp's), a byte that says how
 * many bytes of payload follow, and the header. What is taken as a header holds what was asked for,
 * an ETag that may be sent, and comes back when it is written anew. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

enum { NAMES = 1, RANGE = 2, CRC = 4, STAMP = 8 };

/* NULL: no text there */
static char *text_of(const uint8_t *header, uint64_t n, uint64_t at, uint64_t length) {
  if (at > n || length > n - at || memchr(header + at, 0, length)) return NULL;
  return fuzz_text(header + at, length);
}
static void fix(uint8_t *p, uint64_t head, unsigned how) {
  const unsigned from = INSITU__DISK_AT_PAYLOAD_CRC, stamp = INSITU__DISK_AT_STAMP + 16;
  if (how & CRC)
    insitu__base_store32(p + INSITU__DISK_AT_CRC, insitu__comp_crc32c(p + from, head - from));
  if (how & STAMP)
    insitu__base_store32(
        p + stamp, insitu__comp_crc32c(p + INSITU__DISK_AT_CRC, stamp - INSITU__DISK_AT_CRC));
}
static void taken(const uint8_t *p, uint64_t head, const struct insitu__disk_id *ask,
    const struct insitu__disk_entry *e) {
  struct insitu__disk_entry again;
  uint8_t *copy = fuzz_copy(p, head);
  FUZZ_HOLDS(e->payload <= ask->asked && strlen(e->etag) < sizeof e->etag);
  FUZZ_HOLDS(!e->etag[0] || insitu__http_etag_usable(e->etag));
  FUZZ_HOLDS(!strpbrk(e->etag, "\r\n"));
  insitu__disk_header(copy, ask, e);
  memset(&again, 0xEE, sizeof again);
  FUZZ_HOLDS(insitu__disk_parse(copy, head + e->payload, ask, &again));
  FUZZ_HOLDS(again.confirmed == e->confirmed && again.used == e->used &&
             again.version.total == e->version.total && again.crc == e->crc);
  FUZZ_HOLDS(
      again.version.etag == e->version.etag && again.version.modified == e->version.modified);
  FUZZ_HOLDS(again.payload == e->payload && !memcmp(again.etag, e->etag, sizeof e->etag));
  FUZZ_HOLDS(!insitu__disk_parse(copy, head + e->payload + 1, ask, &again));
  struct insitu__disk_id other = *ask;
  other.offset ^= 1;
  FUZZ_HOLDS(!insitu__disk_parse(copy, head + e->payload, &other, &again));
  copy[head / 2] ^= 1; /* beyond the stamp */
  FUZZ_HOLDS(!insitu__disk_parse(copy, head + e->payload, ask, &again));
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 2) return 0;
  const uint8_t *header = data + 2;
  uint64_t have = n - 2, texts = INSITU__DISK_HEADER + INSITU__DISK_ETAG;
  struct insitu__disk_id ask = {.name = "s3://bucket/root", .key = "t2m/c/0/0", .asked = 100};
  struct insitu__disk_entry e;
  char *name = NULL, *key = NULL;
  if ((data[0] & NAMES) && have >= texts) {
    uint64_t length = insitu__base_load32(header + INSITU__DISK_AT_NAME);
    name = text_of(header, have, texts, length);
    key = name ? text_of(header, have, texts + length,
                     insitu__base_load32(header + INSITU__DISK_AT_KEY))
               : NULL;
  }
  if (key) {
    ask.name = name;
    ask.key = key;
  }
  if ((data[0] & RANGE) && have >= texts) {
    ask.offset = insitu__base_load64(header + INSITU__DISK_AT_OFFSET);
    ask.asked = insitu__base_load64(header + INSITU__DISK_AT_ASKED);
  }
  uint64_t head = insitu__disk_header_bytes(ask.name, ask.key);
  uint8_t *p = fuzz_copy(header, insitu__base_min(have, head));
  if (have >= head) fix(p, head, data[0]);
  bool ok = insitu__disk_parse(p, have < head ? have : head + data[1], &ask, &e);
  FUZZ_HOLDS(!ok || have >= head);
  if (ok) taken(p, head, &ask, &e);
  free(p);
  free(name);
  free(key);
  return 0;
}
