/* Makes the archives that examples 09, 11 and 12 train and evaluate on, and what these examples
 * have to print: summed up here, by the formulas of the values, without the library. Zarr v2,
 * uncompressed, all files written by hand.
 *     make_gallery FOLDER     FOLDER/weather.zarr, forecasts.zarr, cells.zarr, and NAME.expected */
#define _GNU_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *folder;

static void die(const char *path) {
  perror(path);
  exit(1);
}

/* ---- files ---- */
/* Opens a file under the folder, and makes the folders above it. */
static FILE *begin(const char *path) {
  char whole[600];
  snprintf(whole, sizeof whole, "%s/%s", folder, path);
  for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(whole, 0777);
    *slash = '/';
  }
  FILE *f = fopen(whole, "wb");
  if (!f) die(whole);
  return f;
}
static void end(FILE *f, const char *path) {
  if (ferror(f) || fclose(f)) die(path);
}
static void put(const char *path, const void *bytes, size_t n) {
  FILE *f = begin(path);
  fwrite(bytes, 1, n, f);
  end(f, path);
}
static void put_text(const char *path, const char *text) {
  put(path, text, strlen(text));
}

/* ---- arrays ---- */
enum { DIMS = 5 };
struct array {
  const char *path, *attributes; /* attributes: the members of a JSON object, or NULL */
  const char *dtype;             /* as Zarr v2 writes it, such as "<f4" */
  char separator;                /* of the numbers in chunk keys */
  int ndim, shape[DIMS], chunk[DIMS];
  /* writes the element at an index, in the machine's byte order, which must be little-endian */
  void (*element)(const int *at, void *to);
};

static void put_list(FILE *f, const char *name, const int *list, int n) {
  fprintf(f, "  \"%s\": [", name);
  for (int i = 0; i < n; i++) fprintf(f, "%s%d", i ? ", " : "", list[i]);
  fprintf(f, "],\n");
}
static void put_metadata(const struct array *a) {
  char path[300];
  snprintf(path, sizeof path, "%s/.zarray", a->path);
  FILE *f = begin(path);
  fprintf(f, "{\n  \"zarr_format\": 2,\n");
  put_list(f, "shape", a->shape, a->ndim);
  put_list(f, "chunks", a->chunk, a->ndim);
  fprintf(f,
      "  \"dtype\": \"%s\",\n  \"order\": \"C\",\n  \"compressor\": null,\n  \"filters\": null,\n"
      "  \"fill_value\": 0,\n  \"dimension_separator\": \"%c\"\n}\n",
      a->dtype, a->separator);
  end(f, path);
  if (!a->attributes) return;
  snprintf(path, sizeof path, "%s/.zattrs", a->path);
  f = begin(path);
  fprintf(f, "{%s}\n", a->attributes);
  end(f, path);
}

/* One chunk; what hangs over the array's end is zero. */
static void put_chunk(const struct array *a, const int *number, size_t count, size_t item) {
  char path[400];
  unsigned char *bytes = calloc(count, item);
  if (!bytes) die("memory");
  for (size_t i = 0; i < count; i++) {
    int at[DIMS];
    size_t rest = i;
    bool inside = true;
    for (int d = a->ndim; d-- > 0; rest /= (size_t)a->chunk[d]) {
      at[d] = number[d] * a->chunk[d] + (int)(rest % (size_t)a->chunk[d]);
      inside = inside && at[d] < a->shape[d];
    }
    if (inside) a->element(at, bytes + i * item);
  }
  int n = snprintf(path, sizeof path, "%s/", a->path);
  for (int d = 0; d < a->ndim; d++)
    n += snprintf(path + n, sizeof path - (size_t)n, "%.1s%d", d ? &a->separator : "", number[d]);
  put(path, bytes, count * item);
  free(bytes);
}
static void put_array(const struct array *a) {
  size_t count = 1, item = (size_t)(a->dtype[2] - '0');
  int chunks = 1, number[DIMS];
  put_metadata(a);
  for (int d = 0; d < a->ndim; d++) {
    count *= (size_t)a->chunk[d];
    chunks *= (a->shape[d] + a->chunk[d] - 1) / a->chunk[d];
  }
  for (int c = 0; c < chunks; c++) {
    for (int d = a->ndim, rest = c; d-- > 0;) {
      int n = (a->shape[d] + a->chunk[d] - 1) / a->chunk[d];
      number[d] = rest % n;
      rest /= n;
    }
    put_chunk(a, number, count, item);
  }
}

#define NAMES(list) "\"_ARRAY_DIMENSIONS\": [" list "]"

/* ---- weather: waves of temperature and wind that go east ---- */
enum { TIMES = 205, LEVELS = 4, LATS = 37, LONS = 36, TIMES_OF_CHUNK = 5 };
static const int levels[LEVELS] = {1000, 850, 500, 250};

static float temperature(int time, int level, int lat, int lon) {
  double north = 90 - 5 * lat, east = 10 * lon;
  double wave = sin((3 * east - 11 * time + 40 * level) * M_PI / 180) * cos(north * M_PI / 180);
  return (float)(288 - 15 * level - 0.3 * fabs(north) + (8 - level) * wave);
}
static float eastward(int time, int level, int lat, int lon) {
  double north = 90 - 5 * lat, east = 10 * lon;
  double wave = cos((4 * east - 23 * time + north) * M_PI / 180);
  return (float)((4 + 3 * level) * (sin(2 * fabs(north) * M_PI / 180) + wave));
}
static void put_temperature(const int *at, void *to) {
  *(float *)to = temperature(at[0], at[1], at[2], at[3]);
}
static void put_eastward(const int *at, void *to) {
  *(float *)to = eastward(at[0], at[1], at[2], at[3]);
}
static void put_height(const int *at, void *to) { /* of the ground */
  *(float *)to = (float)(600 * (1 + sin(0.3 * at[0]) * cos(0.2 * at[1])));
}
static void put_six_hours(const int *at, void *to) {
  *(int32_t *)to = 6 * at[0];
}
static void put_level(const int *at, void *to) {
  *(int32_t *)to = levels[at[0]];
}
static void put_lat(const int *at, void *to) {
  *(double *)to = 90 - 5 * at[0];
}
static void put_lon(const int *at, void *to) {
  *(double *)to = 10 * at[0];
}

/* How far the fields at t are from those at t + 1 to t + 4, in the box lat 60..30, lon -30..60, for
 * the samples of train: four fifths of 41 chunks are 33, and t - 1 and t + 4 lie in them. */
static void expect_weather(void) {
  static const int shown[] = {2, 1}; /* levels 500 and 850 */
  FILE *f = begin("09_forecast_box.expected");
  int samples = 33 * TIMES_OF_CHUNK - 5;
  for (int c = 0; c < 4; c++)
    for (int lead = 1; lead <= 4; lead++) {
      float (*field)(int, int, int, int) = c < 2 ? temperature : eastward;
      int level = shown[c % 2];
      double miss = 0;
      for (int t = 1; t <= samples; t++)
        for (int lat = 6; lat <= 12; lat++)
          for (int x = -3; x <= 6; x++) {
            int lon = (x + LONS) % LONS;
            miss += fabs((double)field(t + lead, level, lat, lon) - field(t, level, lat, lon));
          }
      fprintf(f, "%s_out level=%d after %2d hours: %.2f from the last input\n", c < 2 ? "t" : "u",
          levels[level], 6 * lead, miss / (samples * 7 * 10));
    }
  end(f, "09_forecast_box.expected");
}

static void make_weather(void) {
  static const struct array arrays[] = {
      {"weather.zarr/t", NAMES("\"time\", \"level\", \"lat\", \"lon\"") ", \"units\": \"K\"", "<f4",
          '.', 4, {TIMES, LEVELS, LATS, LONS}, {TIMES_OF_CHUNK, 1, LATS, LONS / 2},
          put_temperature},
      {"weather.zarr/u", NAMES("\"time\", \"level\", \"lat\", \"lon\"") ", \"units\": \"m s-1\"",
          "<f4", '.', 4, {TIMES, LEVELS, LATS, LONS}, {TIMES_OF_CHUNK, 1, LATS, LONS / 2},
          put_eastward},
      {"weather.zarr/orography", NAMES("\"lat\", \"lon\"") ", \"units\": \"m\"", "<f4", '.', 2,
          {LATS, LONS}, {LATS, LONS}, put_height},
      {"weather.zarr/time", NAMES("\"time\"") ", \"units\": \"hours since 2020-01-01\"", "<i4", '.',
          1, {TIMES}, {TIMES}, put_six_hours},
      {"weather.zarr/level", NAMES("\"level\"") ", \"units\": \"hPa\"", "<i4", '.', 1, {LEVELS},
          {LEVELS}, put_level},
      {"weather.zarr/lat", NAMES("\"lat\"") ", \"units\": \"degrees_north\"", "<f8", '.', 1, {LATS},
          {LATS}, put_lat},
      {"weather.zarr/lon", NAMES("\"lon\"") ", \"units\": \"degrees_east\"", "<f8", '.', 1, {LONS},
          {LONS}, put_lon}};
  put_text("weather.zarr/.zgroup", "{\"zarr_format\": 2}\n");
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) put_array(&arrays[i]);
  expect_weather();
}

/* ---- forecasts: of each day, for ten days ahead; and what was observed ---- */
enum { DAYS = 60, LEADS = 10, STATIONS = 4 };

static float observed(int day, int station) {
  return (float)(15 + 8 * sin(0.1 * day + station));
}
static float forecast(int init, int lead, int station) { /* a forecast gets worse by the day */
  uint32_t random = (uint32_t)(init * 40 + lead * 4 + station) * 2654435761u;
  random = (random ^ random >> 15) * 2246822519u;
  return observed(init + lead, station) + (float)((1 + lead) * (random / 4294967296.0 - 0.5));
}
static void put_forecast(const int *at, void *to) {
  *(float *)to = forecast(at[0], at[1], at[2]);
}
static void put_observed(const int *at, void *to) {
  *(float *)to = observed(at[0], at[1]);
}
static void put_index(const int *at, void *to) {
  *(int32_t *)to = at[0];
}
static void put_day(const int *at, void *to) {
  *(int32_t *)to = 24 * at[0];
}

/* Every third lead of the forecasts from January 15 (day 14) to February 29 (day 59). */
static void expect_forecasts(void) {
  FILE *f = begin("11_evaluate_forecasts.expected");
  for (int lead = 0; lead < LEADS; lead += 3) {
    double square = 0;
    for (int init = 14; init < DAYS; init++)
      for (int s = 0; s < STATIONS; s++)
        square += pow((double)forecast(init, lead, s) - observed(init + lead, s), 2);
    fprintf(f, "%d days ahead: %d forecasts, the error is %.2f degrees\n", lead, DAYS - 14,
        sqrt(square / ((DAYS - 14) * STATIONS)));
  }
  fprintf(f, "%d samples from 2020-01-15T00:00 to 2020-02-29T00:00, 0 of them twice\n",
      (DAYS - 14) * 4);
  end(f, "11_evaluate_forecasts.expected");
}

static void make_forecasts(void) {
  static const struct array arrays[] = {
      {"forecasts.zarr/t", NAMES("\"init\", \"lead\", \"station\"") ", \"units\": \"degC\"", "<f4",
          '.', 3, {DAYS, LEADS, STATIONS}, {5, 5, STATIONS}, put_forecast},
      {"forecasts.zarr/observed", NAMES("\"day\", \"station\"") ", \"units\": \"degC\"", "<f4", '.',
          2, {DAYS + LEADS, STATIONS}, {DAYS + LEADS, STATIONS}, put_observed},
      {"forecasts.zarr/init", NAMES("\"init\"") ", \"units\": \"days since 2020-01-01\"", "<i4",
          '.', 1, {DAYS}, {DAYS}, put_index},
      {"forecasts.zarr/lead", NAMES("\"lead\"") ", \"units\": \"hours\"", "<i4", '.', 1, {LEADS},
          {LEADS}, put_day},
      {"forecasts.zarr/station", NAMES("\"station\""), "<i4", '.', 1, {STATIONS}, {STATIONS},
          put_index}};
  put_text("forecasts.zarr/.zgroup", "{\"zarr_format\": 2}\n");
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) put_array(&arrays[i]);
  expect_forecasts();
}

/* ---- cells: an OME-NGFF image of two sizes, and a mask beside it ---- */
enum { COLORS = 2, PLANES = 16, SIDE = 256 };

static bool is_cell(int z, int y, int x) {
  return (y / 24 + x / 40 + z) % 3 == 0;
}
/* The first color is bright where the mask is 1; the second tells y + x. */
static void put_image(const int *at, void *to) {
  int cell = is_cell(at[1], at[2], at[3]);
  *(uint16_t *)to = (uint16_t)(at[0] ? at[2] + at[3] : 100 + 900 * cell);
}
static void put_small(const int *at, void *to) {
  put_image((const int[]){at[0], at[1], 2 * at[2], 2 * at[3]}, to);
}
static void put_mask(const int *at, void *to) {
  *(uint8_t *)to = is_cell(at[0], at[1], at[2]);
}

#define AXIS(name, type) "{\"name\": \"" name "\", \"type\": \"" type "\"}"
#define SPACE AXIS("z", "space") ", " AXIS("y", "space") ", " AXIS("x", "space")
#define SCALED(path, scale)                                                                        \
  "{\"path\": \"" path "\", \"coordinateTransformations\": "                                       \
  "[{\"type\": \"scale\", \"scale\": [" scale "]}]}"

/* Samples of train are 12 planes, since four fifths of 8 chunks are 6, of 2 planes each. */
static void make_cells(void) {
  static const struct array arrays[] = {
      {"cells.zarr/0", NULL, "<u2", '/', 4, {COLORS, PLANES, SIDE, SIDE}, {1, 1, 64, 64},
          put_image},
      {"cells.zarr/1", NULL, "<u2", '/', 4, {COLORS, PLANES, SIDE / 2, SIDE / 2}, {1, 1, 64, 64},
          put_small},
      {"cells.zarr/labels/cells/0", NULL, "|u1", '/', 3, {PLANES, SIDE, SIDE}, {2, 128, 128},
          put_mask}};
  put_text("cells.zarr/.zgroup", "{\"zarr_format\": 2}\n");
  put_text("cells.zarr/.zattrs", "{\"multiscales\": [{\"version\": \"0.4\", \"axes\": [" AXIS(
                                     "c", "channel") ", " SPACE "],\n \"datasets\": [" SCALED("0",
                                     "1, 1, 0.5, 0.5") ",\n " SCALED("1", "1, 1, 1, 1") "]}]}\n");
  put_text("cells.zarr/labels/.zgroup", "{\"zarr_format\": 2}\n");
  put_text("cells.zarr/labels/.zattrs", "{\"labels\": [\"cells\"]}\n");
  put_text("cells.zarr/labels/cells/.zgroup", "{\"zarr_format\": 2}\n");
  put_text("cells.zarr/labels/cells/.zattrs",
      "{\"image-label\": {\"version\": \"0.4\"},\n \"multiscales\": [{\"version\": \"0.4\", "
      "\"axes\": [" SPACE "],\n \"datasets\": [" SCALED("0", "1, 0.5, 0.5") "]}]}\n");
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) put_array(&arrays[i]);

  FILE *f = begin("12_random_patches.expected");
  for (int batch = 0; batch < 12 * 16 / 32; batch++)
    fprintf(f, "batch %d: 32 patches; the image is 1000 in cells, 100 elsewhere\n", batch);
  end(f, "12_random_patches.expected");
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_gallery FOLDER\n");
    return 2;
  }
  folder = argv[1];
  make_weather();
  make_forecasts();
  make_cells();
  return 0;
}
