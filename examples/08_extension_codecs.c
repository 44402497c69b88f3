/* cc -O2 -I. examples/08_extension_codecs.c -o 08_extension_codecs -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* Codecs of Zarr v3 that only its extensions define, for desc.codecs: scale_offset and cast_value,
 * which together store floats as small integers, and packbits, which stores a range of the bits of
 * each element. See github.com/zarr-developers/zarr-extensions for what they mean.
 *
 * For a program of yours, include this file behind insitubatch.h and give its table to a loader:
 *
 *     #include "insitubatch.h"
 *     #include "examples/08_extension_codecs.c"
 *     ...
 *     desc.codecs = extension_codecs;
 *     desc.n_codecs = EXTENSION_CODECS;
 *
 * By itself it makes a small archive whose temperatures are packed to ten bits, and streams one
 * shuffled epoch of it. Run: ./08_extension_codecs */
#ifndef INSITUBATCH_H
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#define EXTENSION_CODECS_MAIN
#endif
#include "insitubatch.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

/* the upper byte of INSITU_I8 and so on; the lower one holds the bits */
enum { EXTENSION_SIGNED, EXTENSION_UNSIGNED, EXTENSION_FLOAT };

/* One element: whole where its type is an integer, else real. */
typedef union extension_value {
  __int128 whole;
  double real;
} extension_value;

/* What floats of a type are made of. */
typedef struct extension_float {
  int precision; /* bits of the mantissa, the first one included */
  int least;     /* the exponent of the smallest value above 0 */
  double largest;
} extension_float;

static bool extension_is_float(int32_t dtype) {
  return dtype >> 8 == EXTENSION_FLOAT;
}

static bool extension_is_number(int32_t dtype) {
  return dtype && dtype >> 8 <= EXTENSION_FLOAT;
}

/* bytes of an element */
static uint64_t extension_size(int32_t dtype) {
  return (uint64_t)(dtype & 0xff) / 8;
}

static extension_float extension_float_of(int32_t dtype) {
  if (dtype == INSITU_F16) return (extension_float){11, -24, 65504};
  if (dtype == INSITU_F32) return (extension_float){24, -149, 0x1.fffffep127};
  return (extension_float){53, -1074, 0x1.fffffffffffffp1023};
}

/* The least and the largest integer of a type. */
static __int128 extension_least(int32_t dtype) {
  return dtype >> 8 == EXTENSION_SIGNED ? -((__int128)1 << ((dtype & 0xff) - 1)) : 0;
}
static __int128 extension_most(int32_t dtype) {
  return ((__int128)1 << ((dtype & 0xff) - (dtype >> 8 == EXTENSION_SIGNED))) - 1;
}

/* The value of a float16. */
static double extension_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double x = ldexp(exponent ? mantissa + 1024 : mantissa, (exponent ? exponent : 1) - 25);
  if (exponent == 31) x = mantissa ? NAN : INFINITY;
  return bits >> 15 ? -x : x;
}

/* The bits of a float16, of which x is a value. */
static uint16_t extension_half_bits(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  int exponent;

  x = fabs(x);
  if (isnan(x)) return sign | 0x7e00;
  if (isinf(x)) return sign | 0x7c00;
  if (x < 0x1p-14) return sign | (uint16_t)ldexp(x, 24);
  x = frexp(x, &exponent);
  return sign | (uint16_t)((exponent + 14) << 10 | ((int)ldexp(x, 11) - 1024));
}

/* Reads and writes an element. */
static inline extension_value extension_load(int32_t dtype, const unsigned char *p) {
  union {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;
  } x = {0};

  memcpy(&x, p, extension_size(dtype));
  switch (dtype) {
  case INSITU_I8: return (extension_value){.whole = x.i8};
  case INSITU_I16: return (extension_value){.whole = x.i16};
  case INSITU_I32: return (extension_value){.whole = x.i32};
  case INSITU_I64: return (extension_value){.whole = x.i64};
  case INSITU_U8: return (extension_value){.whole = x.u8};
  case INSITU_U16: return (extension_value){.whole = x.u16};
  case INSITU_U32: return (extension_value){.whole = x.u32};
  case INSITU_U64: return (extension_value){.whole = x.u64};
  case INSITU_F16: return (extension_value){.real = extension_half(x.u16)};
  case INSITU_F32: return (extension_value){.real = (double)x.f32};
  default: return (extension_value){.real = x.f64};
  }
}
static inline void extension_store(int32_t dtype, extension_value value, unsigned char *p) {
  uint16_t half;
  float single;

  switch (dtype) {
  case INSITU_F16:
    half = extension_half_bits(value.real);
    memcpy(p, &half, 2);
    break;
  case INSITU_F32:
    single = (float)value.real;
    memcpy(p, &single, 4);
    break;
  case INSITU_F64: memcpy(p, &value.real, 8); break;
  default: memcpy(p, &value.whole, extension_size(dtype)); /* little-endian: the lower bytes */
  }
}

/* ---- rounding ---- */

enum { EXTENSION_EVEN, EXTENSION_AWAY, EXTENSION_ZERO, EXTENSION_UP, EXTENSION_DOWN };

static double extension_round(double x, int rounding) {
  switch (rounding) {
  case EXTENSION_AWAY: return round(x);
  case EXTENSION_ZERO: return trunc(x);
  case EXTENSION_UP: return ceil(x);
  case EXTENSION_DOWN: return floor(x);
  default: return rint(x);
  }
}

/* A double rounded to a float type; infinite where that is above the type's largest value. */
static inline double extension_round_real(double x, int32_t dtype, int rounding) {
  extension_float f = extension_float_of(dtype);
  int exponent;

  if (!isfinite(x) || dtype == INSITU_F64) return x;
  if (dtype == INSITU_F32 && rounding == EXTENSION_EVEN) return (double)(float)x; /* faster */
  frexp(x, &exponent);
  exponent -= f.precision; /* of the last bit */
  if (exponent < f.least) exponent = f.least;
  x = ldexp(extension_round(ldexp(x, -exponent), rounding), exponent);
  return fabs(x) > f.largest ? copysign(INFINITY, x) : x;
}

/* An integer of up to 64 bits and a sign, rounded to a float type. */
static double extension_round_whole(__int128 x, int32_t dtype, int rounding) {
  uint64_t magnitude = (uint64_t)(x < 0 ? -x : x);
  int bits = magnitude ? 64 - __builtin_clzll(magnitude) : 0,
      cut = bits - extension_float_of(dtype).precision;
  if (cut <= 0) return (double)(int64_t)x;

  /* what is cut off, and the bit above it, which decides ties */
  uint64_t low = magnitude & ((UINT64_C(2) << cut) - 1);
  double rest = ldexp((double)low, -cut), above = (double)(magnitude - low);
  rest = ldexp(extension_round(x < 0 ? -rest : rest, rounding), cut);
  return rest + (x < 0 ? -above : above);
}

/* ---- configurations ----
 * The loader has checked that they are JSON: values are only skipped over here. Keys and words are
 * compared as they are written, so that one with an escape (\u0061) is taken for an unknown one. */

static const char *extension_space(const char *p) {
  return p + strspn(p, " \t\r\n");
}

/* Behind a string, a list, an object or another value. */
static const char *extension_behind(const char *p) {
  int depth = 0;

  do {
    if (*p == '"')
      for (p++; *p != '"'; p++) p += *p == '\\';
    if (*p == '[' || *p == '{') depth++;
    if (*p == ']' || *p == '}') depth--;
    p++;
    if (!depth && !strchr("\"]}", p[-1])) p += strcspn(p, " \t\r\n,:]}");
  } while (depth);
  return p;
}

/* The first member or element within a list or an object; NULL: none. */
static const char *extension_first(const char *p) {
  p = extension_space(p + 1);
  return *p == ']' || *p == '}' ? NULL : p;
}

/* The one behind the value at p. */
static const char *extension_next(const char *p) {
  p = extension_space(extension_behind(p));
  return *p == ',' ? extension_space(p + 1) : NULL;
}

/* Of a member its value. */
static const char *extension_member(const char *key) {
  return extension_space(extension_space(extension_behind(key)) + 1);
}

/* Whether a value is that string. */
static bool extension_is(const char *value, const char *text) {
  size_t n = strlen(text);
  return *value == '"' && !strncmp(value + 1, text, n) && value[1 + n] == '"';
}

/* The value of a key of an object; NULL: none, or no object. */
static const char *extension_get(const char *object, const char *key) {
  if (!object || *object != '{') return NULL;
  const char *found = NULL; /* of equal keys the last counts, as in Python */
  for (const char *p = extension_first(object); p; p = extension_next(extension_member(p)))
    if (extension_is(p, key)) found = extension_member(p);
  return found;
}

/* The number of the word that a key holds, 0 where it is absent; -1: none of n words. */
static int extension_word(const char *value, const char *const *words, int n) {
  for (int i = 0; value && i < n; i++)
    if (words[i] && extension_is(value, words[i])) return i;
  return value ? -1 : 0;
}

/* A real number: in digits, one of the strings that stand for what JSON cannot write, or the bits
 * of the type in hexadecimal. Digits are read in the C locale: a program that sets LC_NUMERIC to
 * another one opens the loader under uselocale. */
static bool extension_real(const char *p, int32_t dtype, double *out) {
  char *end;

  if (extension_is(p, "NaN")) *out = NAN;
  else if (extension_is(p, "Infinity") || extension_is(p, "+Infinity")) *out = INFINITY;
  else if (extension_is(p, "-Infinity")) *out = -INFINITY;
  else if (!strncmp(p, "\"0x", 3)) {
    uint64_t bits = strtoull(p + 1, &end, 16);
    if (*end != '"' || (uint64_t)(end - p - 3) != 2 * extension_size(dtype)) return false;
    *out = extension_load(dtype, (const unsigned char *)&bits).real;
  } else {
    *out = strtod(p, &end);
    if (end != extension_behind(p)) return false;
  }
  *out = extension_round_real(*out, dtype, EXTENSION_EVEN);
  return true;
}

/* A value of that type. */
static bool extension_number(const char *p, int32_t dtype, extension_value *out) {
  char *end;
  double real;

  if (extension_is_float(dtype)) return extension_real(p, dtype, &out->real);

  errno = 0;
  out->whole = *p == '-' ? strtoll(p, &end, 10) : (__int128)strtoull(p, &end, 10);
  if (errno || end != extension_behind(p)) { /* "-9999.0" is an integer, too */
    if (*p == '"' || !extension_real(p, INSITU_F64, &real)) return false;
    if (!(fabs(real) < 0x1p63) || real != trunc(real)) return false;
    out->whole = (__int128)real;
  }
  return out->whole >= extension_least(dtype) && out->whole <= extension_most(dtype);
}

/* The type that a word of Zarr v3 names; 0: none that is known here. */
static int32_t extension_type(const char *value) {
  static const struct {
    const char *name;
    int32_t dtype;
  } types[] = {{"int8", INSITU_I8}, {"int16", INSITU_I16}, {"int32", INSITU_I32},
      {"int64", INSITU_I64}, {"uint8", INSITU_U8}, {"uint16", INSITU_U16}, {"uint32", INSITU_U32},
      {"uint64", INSITU_U64}, {"float16", INSITU_F16}, {"float32", INSITU_F32},
      {"float64", INSITU_F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (extension_is(value, types[i].name)) return types[i].dtype;
  return 0;
}

/* ---- what the codecs share ---- */

enum { EXTENSION_MAP = 64 }; /* the most entries of a scalar_map */

/* One codec of an array, as open makes it of its configuration. */
typedef struct extension_state {
  int32_t from, to; /* types of the stored and of the decoded elements; from 0: packed bits */

  bool scales; /* scale_offset */
  extension_value scale, offset;

  int rounding, range, n; /* cast_value; its map: key[i] becomes value[i] */
  extension_value key[EXTENSION_MAP], value[EXTENSION_MAP];

  int padding; /* packbits: where the count of padding bits is: EXTENSION_PAD_NONE, ... */
  bool high_first;
  int first_bit, bits;
} extension_state;

/* The configuration of a codec; NULL: it has none. */
static const char *extension_configuration(const char *config) {
  return extension_get(extension_space(config), "configuration");
}

/* Refuses what the codec cannot do, or what a chunk holds. */
__attribute__((format(printf, 3, 4))) static insitu_status extension_fail(
    insitu_error *err, insitu_status status, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(err->message, sizeof err->message, format, values);
  va_end(values);
  return status;
}

/* Refuses a configuration for the value of a key. */
static insitu_status extension_bad(
    insitu_error *err, insitu_status status, const char *config, const char *key, const char *why) {
  const char *value = extension_get(extension_configuration(config), key);
  int n = value ? (int)(extension_behind(value) - value) : 0;

  return extension_fail(err, status, "configuration key '%s'%s%.*s: %s", key, value ? " = " : "",
      n < 80 ? n : 80, value ? value : "", why);
}

/* Refuses a configuration that is no object. */
static insitu_status extension_check_object(insitu_error *err, const char *config) {
  const char *object = extension_configuration(config);
  if (!object || *object == '{' || !strncmp(object, "null", 4)) return INSITU_OK;
  return extension_fail(err, INSITU_E_FORMAT, "its configuration must be an object");
}

/* Refuses keys other than n known ones: the specifications call metadata with such keys invalid. */
static insitu_status extension_check_keys(
    insitu_error *err, const char *config, const char *const *known, int n) {
  const char *object = extension_configuration(config);
  const char *p = object && *object == '{' ? extension_first(object) : NULL;

  for (; p; p = extension_next(extension_member(p)))
    if (extension_word(p, known, n) < 0)
      return extension_fail(err, INSITU_E_CODEC, "configuration key '%.*s': an unknown key",
          (int)(extension_behind(p) - p - 2), p + 1);
  return extension_check_object(err, config);
}

/* Keeps what an open has read. */
static insitu_status extension_keep(const extension_state *made, void **state, insitu_error *err) {
  extension_state *kept = malloc(sizeof *kept);
  if (!kept) return extension_fail(err, INSITU_E_NOMEM, "no memory for its configuration");
  *kept = *made;
  *state = kept;
  return INSITU_OK;
}

/* ---- scale_offset: stored / scale + offset, in the type of the elements ---- */

static insitu_status extension_open_scale(
    void *user, const char *config, insitu_codec_place *place, void **state, insitu_error *err) {
  static const char *const keys[] = {"offset", "scale"};
  extension_state s = {.from = place->dtype, .to = place->dtype, .scales = true};
  bool real = extension_is_float(place->dtype);
  (void)user;

  insitu_status status = extension_check_keys(err, config, keys, 2);
  if (status < 0) return status;
  if (!place->elements || !extension_is_number(place->dtype))
    return extension_fail(err, INSITU_E_CODEC, "only real numbers can be scaled");

  for (int k = 0; k < 2; k++) {
    extension_value *to = k ? &s.scale : &s.offset;
    const char *value = extension_get(extension_configuration(config), keys[k]);
    bool ok = !value || extension_number(value, place->dtype, to);

    if (!value && real) to->real = k;
    else if (!value) to->whole = k;
    if (ok && real) ok = isfinite(to->real) && !(k && to->real == 0);
    else if (ok) ok = !(k && to->whole == 0);
    if (!ok)
      return extension_bad(err, INSITU_E_FORMAT, config, keys[k],
          k ? "a finite number of the array's type, and not 0, is needed"
            : "a finite number of the array's type is needed");
  }
  place->stored = place->dtype;
  return extension_keep(&s, state, err);
}

/* Undoes the scaling of one element; false: the result has no value of the type. */
static inline bool extension_unscale(const extension_state *s, extension_value *v) {
  if (!extension_is_float(s->to)) { /* the quotient must be whole */
    __int128 rest = v->whole % s->scale.whole;
    v->whole = v->whole / s->scale.whole + s->offset.whole;
    return !rest && v->whole >= extension_least(s->to) && v->whole <= extension_most(s->to);
  }

  /* each operation is rounded to the type; that it is computed as double does not change a bit */
  double was = v->real;
  v->real = extension_round_real(v->real / s->scale.real, s->to, EXTENSION_EVEN);
  v->real = extension_round_real(v->real + s->offset.real, s->to, EXTENSION_EVEN);
  return isfinite(v->real) || !isfinite(was);
}

/* ---- cast_value: elements of one type, stored as those of another ---- */

enum {
  EXTENSION_REFUSE,
  EXTENSION_CLAMP,
  EXTENSION_WRAP
}; /* what to do with a value out of the type's range */

/* Reads scalar_map.decode: pairs of a stored value and a decoded one. */
static insitu_status extension_read_map(const char *config, extension_state *s, insitu_error *err) {
  const char *map = extension_get(extension_configuration(config), "scalar_map"),
             *list = extension_get(map, "decode");

  if (map && *map != '{')
    return extension_bad(err, INSITU_E_FORMAT, config, "scalar_map", "an object is needed");
  if (list && *list != '[')
    return extension_bad(
        err, INSITU_E_FORMAT, config, "scalar_map", "'decode' must be a list of pairs");

  for (const char *p = list ? extension_first(list) : NULL; p; p = extension_next(p), s->n++) {
    const char *key = *p == '[' ? extension_first(p) : NULL,
               *value = key ? extension_next(key) : NULL;
    if (s->n == EXTENSION_MAP)
      return extension_bad(err, INSITU_E_UNSUPPORTED, config, "scalar_map",
          "more entries than EXTENSION_MAP of examples/08_extension_codecs.c");
    if (!value || extension_next(value) || !extension_number(key, s->from, &s->key[s->n]) ||
        !extension_number(value, s->to, &s->value[s->n]))
      return extension_bad(err, INSITU_E_FORMAT, config, "scalar_map",
          "'decode' must be a list of pairs, a value of data_type and one of the array's type");
  }
  return INSITU_OK;
}

static insitu_status extension_open_cast(
    void *user, const char *config, insitu_codec_place *place, void **state, insitu_error *err) {
  static const char *const keys[] = {"data_type", "rounding", "out_of_range", "scalar_map"};
  static const char *const roundings[] = {
      "nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative"};
  static const char *const ranges[] = {NULL, "clamp", "wrap"};
  const char *object = extension_configuration(config), *type = extension_get(object, "data_type");
  extension_state s = {.to = place->dtype,
      .rounding = extension_word(extension_get(object, "rounding"), roundings, 5),
      .range = extension_word(extension_get(object, "out_of_range"), ranges, 3)};
  (void)user;

  insitu_status status = extension_check_keys(err, config, keys, 4);
  if (status < 0) return status;
  if (!place->elements || !extension_is_number(place->dtype))
    return extension_fail(err, INSITU_E_CODEC, "only real numbers can be cast");
  if (!type || *type != '"')
    return extension_bad(err, INSITU_E_FORMAT, config, "data_type", "a data type is needed");
  place->stored = s.from = extension_type(type);
  if (!s.from)
    return extension_bad(err, INSITU_E_CODEC, config, "data_type",
        "this type is not supported here (integers and floats are)");

  if (s.rounding < 0 || s.range < 0)
    return extension_bad(err, INSITU_E_FORMAT, config, s.rounding < 0 ? "rounding" : "out_of_range",
        "not a word that the specification knows there");
  if (s.range == EXTENSION_WRAP && extension_is_float(s.from))
    return extension_bad(err, INSITU_E_FORMAT, config, "out_of_range", "floats do not wrap");
  status = extension_read_map(config, &s, err);
  return status < 0 ? status : extension_keep(&s, state, err);
}

/* Replaces an element that the map names; false: it does not. */
static inline bool extension_map(const extension_state *s, extension_value *v) {
  bool real = extension_is_float(s->from);

  for (int i = 0; i < s->n; i++) {
    if (real && v->real != s->key[i].real && !(isnan(v->real) && isnan(s->key[i].real))) continue;
    if (!real && v->whole != s->key[i].whole) continue;
    *v = s->value[i];
    return true;
  }
  return false;
}

/* Casts one element; false: it is out of range, or no number. */
static inline bool extension_cast(const extension_state *s, extension_value *v) {
  bool from_float = extension_is_float(s->from);

  if (extension_is_float(s->to)) {
    double x = from_float ? extension_round_real(v->real, s->to, s->rounding)
                          : extension_round_whole(v->whole, s->to, s->rounding);
    bool out = fabs(x) > extension_float_of(s->to).largest && !(from_float && isinf(v->real));
    v->real = out ? copysign(INFINITY, x) : x;
    return !out || s->range == EXTENSION_CLAMP;
  }

  if (from_float) {
    double x = extension_round(v->real, s->rounding);
    if (!isfinite(x)) return false;
    v->whole = fabs(x) < 0x1p64 ? (__int128)x : (__int128)(x < 0 ? -0x1p64 : 0x1p64);
  }
  __int128 least = extension_least(s->to), most = extension_most(s->to);
  if ((v->whole >= least && v->whole <= most) || s->range == EXTENSION_WRAP) return true;
  v->whole = v->whole < least ? least : most;
  return s->range == EXTENSION_CLAMP;
}

/* ---- the decoder of scale_offset and cast_value ---- */

static insitu_status extension_decode(void *user, const char *config, const void *src, uint64_t n,
    void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  const extension_state *s = user;
  uint64_t from = extension_size(s->from), to = extension_size(s->to), count = n / from;
  bool scales = s->scales;
  (void)config;
  if (n % from || count > cap / to)
    return extension_fail(
        err, INSITU_E_CORRUPT, "%llu bytes are not the elements of a chunk", (unsigned long long)n);

  for (uint64_t i = 0; i < count; i++) {
    extension_value v = extension_load(s->from, (const unsigned char *)src + i * from);
    bool ok = scales ? extension_unscale(s, &v) : extension_map(s, &v) || extension_cast(s, &v);
    if (!ok)
      return extension_fail(err, INSITU_E_CORRUPT,
          "element %llu has no value of the decoded type: the stored chunk is damaged",
          (unsigned long long)i);
    extension_store(s->to, v, (unsigned char *)dst + i * to);
  }
  *got = count * to;
  return INSITU_OK;
}

/* ---- packbits: a range of the bits of each element, one element after the other ---- */

enum { EXTENSION_PAD_NONE, EXTENSION_PAD_FIRST, EXTENSION_PAD_LAST };

/* The number of a bit that a key holds: at most `most`, `absent` where it is absent; -1: none. */
static int extension_bit(const char *value, int absent, int most) {
  extension_value bit;

  if (!value || !strncmp(value, "null", 4)) return absent;
  return extension_number(value, INSITU_U8, &bit) && bit.whole <= most ? (int)bit.whole : -1;
}

static insitu_status extension_open_pack(
    void *user, const char *config, insitu_codec_place *place, void **state, insitu_error *err) {
  static const char *const places[] = {"none", "first_byte", "last_byte"};
  const char *object = extension_configuration(config);
  bool numcodecs = place->format == 2; /* which packs bool alone, in one way */
  int32_t dtype = numcodecs ? INSITU_BOOL : place->dtype;
  int width = dtype == INSITU_BOOL ? 1 : dtype & 0xff;
  int last = extension_bit(extension_get(object, "last_bit"), width - 1, width - 1);
  extension_state s = {.to = dtype,
      .high_first = numcodecs,
      .first_bit = extension_bit(extension_get(object, "first_bit"), 0, width - 1),
      .padding = extension_word(extension_get(object, "padding_encoding"), places, 3)};
  (void)user;

  insitu_status status = numcodecs ? INSITU_OK : extension_check_object(err, config);
  if (status < 0) return status;
  if (numcodecs) s.padding = EXTENSION_PAD_FIRST;
  if (!numcodecs && !place->elements)
    return extension_fail(
        err, INSITU_E_CODEC, "\"packbits\" is not supported after 'bytes': it works on elements");
  if (dtype != INSITU_BOOL && !extension_is_number(dtype))
    return extension_fail(
        err, INSITU_E_CODEC, "bfloat16 and complex numbers are not supported in it");
  if (s.padding < 0)
    return extension_bad(err, INSITU_E_FORMAT, config, "padding_encoding",
        "not a word that the specification knows there");
  if (s.first_bit < 0 || last < 0)
    return extension_bad(err, INSITU_E_FORMAT, config, s.first_bit < 0 ? "first_bit" : "last_bit",
        "not the number of a bit of the elements");
  if (last < s.first_bit)
    return extension_bad(
        err, INSITU_E_FORMAT, config, "last_bit", "it must not be less than first_bit");
  s.bits = last - s.first_bit + 1;
  return extension_keep(&s, state, err);
}

static insitu_status extension_decode_pack(void *user, const char *config, const void *src,
    uint64_t n, void *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  const extension_state *s = user;
  const unsigned char *p = src;
  uint64_t size = extension_size(s->to), bits = (uint64_t)s->bits, count = cap / size, padding = 0,
           stored = n * 8;
  (void)config;

  if (s->padding != EXTENSION_PAD_NONE) {
    if (!n) return extension_fail(err, INSITU_E_CORRUPT, "its count of padding bits is missing");
    padding = s->padding == EXTENSION_PAD_FIRST ? *p++ : p[n - 1];
    stored -= 8;
    if (padding > 7 || padding > stored)
      return extension_fail(err, INSITU_E_CORRUPT, "its count of padding bits is wrong");
    count = (stored - padding) / bits;
  } else if (stored >= count * bits) padding = (8 - count * bits % 8) % 8;
  if (count * bits + padding != stored || count > cap / size)
    return extension_fail(err, INSITU_E_CORRUPT, "wrong chunk length: the stored chunk is damaged");

  for (uint64_t i = 0, at = 0; i < count; i++) {
    uint64_t value = 0, eight;
    if (bits <= 57 && !s->high_first && at / 8 + 8 <= stored / 8) { /* eight bytes hold all of it */
      memcpy(&eight, p + at / 8, 8);
      value = eight >> at % 8 & ((UINT64_C(1) << bits) - 1);
      at += bits;
    } else
      for (uint64_t k = 0; k < bits; k++, at++)
        value |= (uint64_t)(p[at / 8] >> (s->high_first ? 7 - at % 8 : at % 8) & 1) << k;
    if (s->to >> 8 == EXTENSION_SIGNED)
      value = (uint64_t)((int64_t)(value << (64 - bits)) >> (64 - bits));
    value <<= s->first_bit;
    memcpy((unsigned char *)dst + i * size, &value, size);
  }
  *got = count * size;
  return INSITU_OK;
}

/* ---- the table for desc.codecs ---- */

enum { EXTENSION_CODECS = 3 };
static const insitu_codec extension_codecs[EXTENSION_CODECS] = {{.name = "scale_offset",
                                                                    .decode = extension_decode,
                                                                    .open = extension_open_scale,
                                                                    .close = free},
    {.name = "cast_value", .decode = extension_decode, .open = extension_open_cast, .close = free},
    {.name = "packbits",
        .decode = extension_decode_pack,
        .open = extension_open_pack,
        .close = free}};

/* ---- by itself ---- */
#ifdef EXTENSION_CODECS_MAIN

/* a small field of temperatures every hour, in kelvin */
enum { HOURS = 48, POINTS = 12, TEN_BITS = (POINTS * 10 + 7) / 8 };

/* stored: (kelvin - 223) * 8, an integer of ten bits */
static const char metadata[] =
    "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [48, 12],"
    " \"data_type\": \"float32\","
    " \"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": [1, 12]}},"
    " \"chunk_key_encoding\": {\"name\": \"default\"}, \"fill_value\": 0, \"codecs\": ["
    "{\"name\": \"scale_offset\", \"configuration\": {\"offset\": 223, \"scale\": 8}},"
    "{\"name\": \"cast_value\", \"configuration\": {\"data_type\": \"uint16\"}},"
    "{\"name\": \"packbits\", \"configuration\": {\"last_bit\": 9}}]}";

static int eighths(int hour, int point) {
  return 400 + 20 * point + hour % 24 * 5;
}

int main(void) {
  static insitu_object objects[1 + HOURS] = {{"zarr.json", metadata, sizeof metadata - 1}};
  static char keys[HOURS][16];
  static unsigned char chunks[HOURS][TEN_BITS];
  for (int hour = 0; hour < HOURS; hour++) {
    for (int bit = 0; bit < POINTS * 10; bit++)
      chunks[hour][bit / 8] |=
          (unsigned char)((eighths(hour, bit / 10) >> bit % 10 & 1) << bit % 8);
    snprintf(keys[hour], sizeof keys[hour], "c/%d/0", hour);
    objects[1 + hour] = (insitu_object){keys[hour], chunks[hour], TEN_BITS};
  }

  const insitu_variable t2m = {.label = "t2m", .path = ""}; /* the archive's root is the array */
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://packed", /* of an archive on disk: its path */
      .objects = objects,
      .n_objects = 1 + HOURS,
      .codecs = extension_codecs,
      .n_codecs = EXTENSION_CODECS,
      .variables = &t2m,
      .n_variables = 1,
      .batch_size = 6};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *batch = NULL;
  insitu_error err = {0};
  int wrong = 0;
  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status)
    status = insitu_iter_open(
        loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN}, &iter, &err);

  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    const float *kelvin = batch->arrays[0].data;
    printf("batch %d:", (int)batch->index);
    for (uint64_t row = 0; row < batch->rows; row++, kelvin += POINTS) {
      int hour = (int)batch->sample_indices[row];
      printf(" hour %d %.3f K", hour, (double)kelvin[0]);
      for (int i = 0; i < POINTS; i++) wrong += kelvin[i] != 223 + (float)eighths(hour, i) / 8;
    }
    printf("\n");
    insitu_batch_release(&batch);
  }

  if (status != INSITU_END) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  if (wrong) fprintf(stderr, "%d temperatures are not those that were packed\n", wrong);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status != INSITU_END || wrong;
}
#endif
