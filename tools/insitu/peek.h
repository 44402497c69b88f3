/* insitu peek: a field of an array, or the rows of a batch, as a picture (PNG). */
#include <zlib.h>

static const char *peek_out, *peek_range, *peek_up;

enum {
  PEEK_PANELS = 64, /* fields side by side, at most */
  PEEK_SIDE = 1600, /* pixels of the picture's longer side, about */
  PEEK_PANEL = 220, /* a field is enlarged to about so many */
  PEEK_GAP = 4      /* pixels between fields */
};

/* How fields become pixels. */
struct peek {
  uint64_t panels, columns; /* fields, in rows of so many */
  uint64_t high, wide;      /* elements of a field */
  /* Of a field in the picture: pixels, each of which shows the element at pixel * step / zoom. */
  uint64_t tall, broad, step, zoom;
  double low, most;
  bool signs; /* values of both signs: blue to red through white */
};

/* ---- PNG (W3C Portable Network Graphics, third edition) ---- */

static bool peek_chunk(FILE *to, const char *type, const unsigned char *bytes, uint64_t n) {
  unsigned char head[8], tail[4];
  uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)type, 4);
  if (n) crc = crc32_z(crc, bytes, n);
  for (int i = 0; i < 4; i++) {
    head[i] = (unsigned char)(n >> (24 - 8 * i));
    head[4 + i] = (unsigned char)type[i];
    tail[i] = (unsigned char)(crc >> (24 - 8 * i));
  }
  return fwrite(head, 8, 1, to) == 1 && (!n || fwrite(bytes, n, 1, to) == 1) &&
         fwrite(tail, 4, 1, to) == 1;
}

/* rgb: rows of a zero byte (no filter) and three bytes a pixel. */
static int peek_write(const char *path, const unsigned char *rgb, uint64_t high, uint64_t wide) {
  uint64_t n = high * (1 + 3 * wide);
  uLongf packed_n = compressBound(n);
  unsigned char *packed = tool_alloc(packed_n, 1), head[13] = {0};
  for (int i = 0; i < 4; i++) {
    head[i] = (unsigned char)(wide >> (24 - 8 * i));
    head[4 + i] = (unsigned char)(high >> (24 - 8 * i));
  }
  head[8] = 8; /* bits */
  head[9] = 2; /* red, green, blue */
  bool ok = compress2(packed, &packed_n, rgb, n, 6) == Z_OK;
  FILE *to = ok ? fopen(path, "we") : NULL;
  if (ok && !to) {
    insitu__mem_free(packed);
    return tool_fail("%s: %s; name a file that can be written", path, strerror(errno));
  }
  ok = ok && fwrite("\x89PNG\r\n\x1a\n", 8, 1, to) == 1 && peek_chunk(to, "IHDR", head, 13) &&
       peek_chunk(to, "IDAT", packed, packed_n) && peek_chunk(to, "IEND", NULL, 0);
  insitu__mem_free(packed);
  if (to && fclose(to)) ok = false;
  return ok ? TOOL_OK
            : tool_fail("%s: the picture could not be written: %s", path, strerror(errno));
}

/* ---- colors ---- */

/* x from 0 to 1. Both signs: blue, white, red. Else the cubehelix of Green 2011 (Bull. Astr. Soc.
 * India 39, 289), whose lightness rises evenly: start 0.5, -1.5 rotations, hue 1, gamma 1. */
static void peek_color(bool signs, double x, unsigned char out[3]) {
  double rgb[3];
  if (isnan(x)) {
    memset(out, 128, 3);
    return;
  }
  x = x < 0 ? 0 : x > 1 ? 1 : x;
  if (signs) {
    double away = fabs(2 * x - 1), fade = 1 - away;
    rgb[0] = x > 0.5 ? 1 - 0.25 * away : fade;
    rgb[1] = fade;
    rgb[2] = x > 0.5 ? fade : 1 - 0.25 * away;
  } else {
    double angle = 2 * M_PI * (0.5 / 3 + 1 - 1.5 * x), swing = x * (1 - x) / 2;
    double c = cos(angle), s = sin(angle);
    rgb[0] = x + swing * (-0.14861 * c + 1.78277 * s);
    rgb[1] = x + swing * (-0.29227 * c - 0.90649 * s);
    rgb[2] = x + swing * 1.97294 * c;
  }
  for (int i = 0; i < 3; i++)
    out[i] = (unsigned char)(255 * (rgb[i] < 0 ? 0 : rgb[i] > 1 ? 1 : rgb[i]) + 0.5);
}

/* ---- fields ---- */

static double peek_value(const struct cat_data *d, uint64_t i) {
  const unsigned char *at = (const unsigned char *)d->bytes + i * cat_item(d->dtype);
  if (d->dtype == INSITU_F32) { /* the usual one; the others go through their text */
    float x;
    memcpy(&x, at, 4);
    return (double)x;
  }
  return cat_number(at, d->dtype);
}

static bool peek_find_range(const struct cat_data *d, struct peek *p, uint64_t *nan) {
  p->low = INFINITY;
  p->most = -INFINITY;
  for (uint64_t i = 0; i < p->panels * p->high * p->wide; i++) {
    double x = peek_value(d, i);
    if (isnan(x)) ++*nan;
    if (!isfinite(x)) continue;
    p->low = fmin(p->low, x);
    p->most = fmax(p->most, x);
  }
  if (!peek_range) return p->low <= p->most;
  char *end, *last;
  p->low = strtod(peek_range, &end);
  p->most = strtod(*end == ':' ? end + 1 : end, &last);
  return *end == ':' && last > end + 1 && !*last && p->low < p->most;
}

/* How large fields are drawn, and how they lie. */
static void peek_lay(struct peek *p) {
  p->columns = (uint64_t)ceil(sqrt((double)p->panels * (double)p->high / (double)p->wide));
  p->columns = insitu__base_min(insitu__base_max(p->columns, 1), p->panels);
  uint64_t rows = (p->panels + p->columns - 1) / p->columns;
  uint64_t longest = insitu__base_max(p->wide * p->columns, p->high * rows);
  p->step = (longest + PEEK_SIDE - 1) / PEEK_SIDE;
  p->zoom = 1;
  if (p->step == 1)
    while (insitu__base_max(p->high, p->wide) * p->zoom < PEEK_PANEL &&
           longest * (p->zoom + 1) <= PEEK_SIDE)
      p->zoom++;
  p->tall = (p->high + p->step - 1) / p->step * p->zoom;
  p->broad = (p->wide + p->step - 1) / p->step * p->zoom;
}

static void peek_draw(
    const struct cat_data *d, const struct peek *p, unsigned char *rgb, uint64_t row_bytes) {
  double span = p->most - p->low, low = p->low;
  if (p->signs) {
    low = -fmax(-p->low, p->most);
    span = -2 * low;
  }
  for (uint64_t k = 0; k < p->panels; k++) {
    uint64_t top = k / p->columns * (p->tall + PEEK_GAP),
             left = k % p->columns * (p->broad + PEEK_GAP);
    for (uint64_t y = 0; y < p->tall; y++)
      for (uint64_t x = 0; x < p->broad; x++) {
        uint64_t row = y / p->zoom * p->step, column = x / p->zoom * p->step;
        if (peek_up) row = p->high - 1 - row;
        double v = peek_value(d, (k * p->high + row) * p->wide + column);
        peek_color(p->signs, span > 0 ? (v - low) / span : v - v + 0.5,
            rgb + (top + y) * row_bytes + 1 + 3 * (left + x));
      }
  }
}

static int peek_data(const struct cat_data *d, const char *name) {
  struct peek p = {.high = 1, .wide = 1};
  uint64_t fields, nan = 0;
  char shape[200] = "";
  if (d->width || d->dtype == INSITU_C64 || d->dtype == INSITU_C128)
    return tool_fail("%s: no numbers that a picture could show; see insitu cat", name);
  if (!d->count || !d->ndim)
    return tool_fail("%s: it has no field; name an array with at least one axis", name);
  p.wide = (uint64_t)d->shape[d->ndim - 1];
  if (d->ndim > 1) p.high = (uint64_t)d->shape[d->ndim - 2];
  fields = d->count / p.high / p.wide;
  p.panels = insitu__base_min(fields, PEEK_PANELS);
  if (!peek_find_range(d, &p, &nan)) {
    if (peek_range) return tool_usage_error("--range %s: give LOW:HIGH, as in 250:310", peek_range);
    p.low = p.most = 0; /* all is NaN */
  }
  p.signs = p.low < 0 && p.most > 0;
  peek_lay(&p);

  uint64_t rows = (p.panels + p.columns - 1) / p.columns;
  uint64_t tall = rows * (p.tall + PEEK_GAP) - PEEK_GAP,
           broad = p.columns * (p.broad + PEEK_GAP) - PEEK_GAP, row_bytes = 1 + 3 * broad;
  unsigned char *rgb = tool_alloc(tall * row_bytes, 1);
  memset(rgb, 255, tall * row_bytes);
  for (uint64_t y = 0; y < tall; y++) rgb[y * row_bytes] = 0;
  peek_draw(d, &p, rgb, row_bytes);
  int code = peek_write(peek_out, rgb, tall, broad);
  insitu__mem_free(rgb);
  if (code) return code;

  for (int32_t k = 0, at = 0; k < d->ndim; k++)
    at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%" PRId64, k ? ", " : "", d->shape[k]);
  printf("%s: %s (%s), colors from %.6g to %.6g", name, insitu__dtype_name(d->dtype), shape, p.low,
      p.most);
  if (nan) printf(", %" PRIu64 " NaN in grey", nan);
  printf("\n%s: %" PRIu64 " x %" PRIu64 " pixels", peek_out, broad, tall);
  if (fields > 1) printf(", %" PRIu64 " of %" PRIu64 " fields", p.panels, fields);
  if (p.step > 1) printf(", one element of %" PRIu64 " along each axis", p.step);
  printf("\n");
  return TOOL_OK;
}

static int peek_batch(const insitu_batch *b, const insitu_iter *it, int precision) {
  (void)it, (void)precision;
  const insitu_array *a = &b->arrays[0];
  if (cat_array) a = insitu_batch_find(b, cat_array);
  if (!a) return tool_usage_error("--array %s: the batch has no such array", cat_array);
  struct cat_data d = {.bytes = a->data,
      .n_bytes = a->bytes,
      .count = cat_count(a->ndim, a->shape),
      .ndim = a->ndim,
      .dtype = a->dtype};
  memcpy(d.shape, a->shape, (size_t)a->ndim * sizeof *d.shape);
  return peek_data(&d, a->name);
}

static int peek_run(int argc, char **argv) {
  if (!peek_out) return tool_usage_error("-o FILE is missing: where to write the picture");
  const char *dot = strrchr(peek_out, '.');
  if (dot && !strchr(dot, '/') && strcasecmp(dot, ".png"))
    return tool_usage_error("-o %s: the picture is a PNG; name it .png", peek_out);
  if (cat_batch)
    return argc > 1 ? tool_usage_error("--batch takes no path: use --var")
                    : cat_run_batch(argc ? argv[0] : NULL, peek_batch, 0);
  if (argc < 1 || argc > 2)
    return tool_usage_error(argc ? "an archive and the path of one array are needed"
                                 : "which archive, and which array?");
  struct cat_data d = {0};
  int code = cat_read_region(argv[0], argc == 2 ? argv[1] : "", &d);
  if (code == TOOL_OK) code = peek_data(&d, argc == 2 ? argv[1] : argv[0]);
  insitu__mem_free((void *)(uintptr_t)d.bytes);
  return code;
}

static const struct tool_option peek_options[] = {
    {"output", 'o', "FILE", "the picture to write, a .png", &peek_out},
    {"batch", 'b', "E,I", "batch I of epoch E of a configuration, instead of a region", &cat_batch},
    {"array", 'a', "LABEL", "of the batch: this array (the first one)", &cat_array},
    {"range", 0, "LOW:HIGH", "the values that the colors span (least to most)", &peek_range},
    {"up", 0, NULL, "the first row at the bottom, as of rising latitudes", &peek_up},
    CONFIG_OPTIONS};
static const struct tool_command peek_command = {.name = "peek",
    .arguments = "URL PATH -o FILE [--select TEXT] | [URL] --batch E,I -o FILE",
    .summary = "a picture of a field, or of a batch",
    .details =
        "The last two axes are a field; others stand side by side, at most 64 of them. "
        "Values of both signs are blue\n"
        "and red, others go from dark to light; NaN is grey. Of large fields every so many "
        "elements are shown.\n\n"
        "examples:\n"
        "  insitu peek t.zarr t --select 'time=[0]; level=500' -o t.png --up\n"
        "  insitu peek t.zarr --var x=t,y=t@1 --batch-size 8 --batch 0,3 --array y -o y.png\n",
    .options = peek_options,
    .n_options = TOOL_COUNT(peek_options),
    .run = peek_run};
