/* libFuzzer: CF time and CF attributes. Input: one byte (a dtype), 8 bytes (a value), then units,
 * calendar, a date and an array's attributes, each up to a NUL. What is taken as units has a
 * reference date; a moment that is printed is read back as the same; a period does not end before
 * it begins; attributes that are taken hold finite factors and few missing values. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static void round_trip(int calendar, int64_t moment) {
  char text[INSITU__TIME_TEXT];
  struct insitu__time_date d;
  int64_t from, to;
  insitu__time_print(calendar, moment, text);
  FUZZ_HOLDS(strlen(text) < sizeof text);
  if (moment > 190000 * 360 * INSITU__TIME_DAY || moment < -190000 * 360 * INSITU__TIME_DAY)
    return; /* beyond, years are too long */
  FUZZ_HOLDS(insitu__time_parse(text, &d) && insitu__time_period(calendar, &d, &from, &to));
  FUZZ_HOLDS(from == moment && to > from);
}

static void values(const struct insitu__time_units *u, int64_t bits) {
  int64_t moment;
  double x;
  memcpy(&x, &bits, sizeof x);
  if (insitu__time_from_int(u, 0, &moment)) FUZZ_HOLDS(moment == u->start);
  if (insitu__time_from_int(u, bits, &moment)) round_trip(u->calendar, moment);
  if (insitu__time_from_double(u, x, &moment)) round_trip(u->calendar, moment);
}

static void date(const char *text) {
  struct insitu__time_date d;
  if (!insitu__time_parse(text, &d)) return;
  for (int c = INSITU__TIME_STANDARD; c <= INSITU__TIME_360_DAY; c++) {
    int64_t from, to;
    if (!insitu__time_period(c, &d, &from, &to)) continue;
    FUZZ_HOLDS(to >= from && (to > from || !insitu__time_exists(c, d.year, d.month, d.day)));
    round_trip(c, from);
  }
}

static void attributes(unsigned char kind, char *text) {
  struct insitu__zarr_array z = {
      .path = (char *)(uintptr_t) "x", .format = 2 + (kind >> 7), .has_fill = kind >> 6 & 1};
  struct insitu__cf cf;
  insitu_error err = {0};
  insitu__zarr_set_dtype(&z, insitu__dtype_known[kind % INSITU__DTYPE_KNOWN].dtype);
  z.attributes = text;
  insitu_status status = insitu__cf_init(&cf, &z, &err);
  fuzz_status(status, &err);
  if (status) return;
  FUZZ_HOLDS(
      cf.n_missing <= INSITU__CF_MISSING && cf.scale - cf.scale == 0 && cf.offset - cf.offset == 0);
  FUZZ_HOLDS((cf.dtype & 0xff) == (z.dtype & 0xff) && (cf.dtype == z.dtype || z.dtype >> 8 < 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 9) return 0;
  char *part[4];
  const uint8_t *at = data + 9, *end = data + n;
  for (int i = 0; i < 4; i++) { /* each in memory of its own: the sanitizer sees a step beyond */
    size_t length = i < 3 ? strnlen((const char *)at, (size_t)(end - at)) : (size_t)(end - at);
    char *text = fuzz_text(at, length);
    part[i] = fuzz_text(text, strlen(text));
    free(text);
    at += length + (at + length < end);
  }
  struct insitu__time_units u;
  insitu_error err = {0};
  insitu_status status = insitu__time_units(&u, "x", part[0], part[1][0] ? part[1] : NULL, &err);
  fuzz_status(status, &err);
  if (!status) values(&u, (int64_t)insitu__base_load64(data + 1));
  date(part[2]);
  attributes(data[0], part[3]);
  for (int i = 0; i < 4; i++) free(part[i]);
  return 0;
}
