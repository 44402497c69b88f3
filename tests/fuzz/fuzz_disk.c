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
static void fix(struct insitu__disk_header *h, uint64_t head, unsigned how) {
  if (how & CRC) h->crc = insitu__disk_header_crc(h, head);
  if (how & STAMP) h->stamp_crc = insitu__disk_stamp_crc(h);
}
static void taken(const struct insitu__disk_header *p, uint64_t head,
    const struct insitu__disk_id *ask, const struct insitu__disk_entry *e) {
  struct insitu__disk_entry again;
  uint8_t *bytes = fuzz_copy((const uint8_t *)p, head);
  struct insitu__disk_header *copy = (struct insitu__disk_header *)bytes;
  FUZZ_HOLDS(!ask->form || e->payload == ask->asked);
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
  bytes[head / 2] ^= 1; /* beyond the stamp */
  FUZZ_HOLDS(!insitu__disk_parse(copy, head + e->payload, ask, &again));
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 2) return 0;
  const uint8_t *bytes = data + 2;
  const struct insitu__disk_header *header = (const struct insitu__disk_header *)bytes;
  uint64_t have = n - 2, texts = sizeof *header;
  struct insitu__disk_id ask = {.name = "s3://bucket/root", .key = "t2m/c/0/0", .asked = 100};
  struct insitu__disk_entry e;
  char *name = NULL, *key = NULL;
  if ((data[0] & NAMES) && have >= texts) {
    name = text_of(bytes, have, texts, header->n_name);
    key = name ? text_of(bytes, have, texts + header->n_name, header->n_key) : NULL;
  }
  if (key) {
    ask.name = name;
    ask.key = key;
  }
  if ((data[0] & RANGE) && have >= texts) {
    ask.form = header->form;
    ask.offset = header->offset;
    ask.asked = header->asked;
  }
  uint64_t head = insitu__disk_header_bytes(ask.name, ask.key);
  struct insitu__disk_header *p =
      (struct insitu__disk_header *)fuzz_copy(bytes, insitu__base_min(have, head));
  if (have >= head) fix(p, head, data[0]);
  bool ok = insitu__disk_parse(p, have < head ? have : head + data[1], &ask, &e);
  FUZZ_HOLDS(!ok || have >= head);
  if (ok) taken(p, head, &ask, &e);
  free(p);
  free(name);
  free(key);
  return 0;
}
