/* cc -O2 -I. examples/12_random_patches.c -o 12_random_patches -luring -lcurl -llz4 -lzstd -lpthread */
/* Random patches of a microscope's volumes, with the mask of each: 16 of every plane, drawn anew in
 * each epoch. The image is shown with 8 elements more on each side than the mask. The archive is
 * made in memory, with the axes of OME-NGFF: the image (t,c,z,y,x) in chunks of 64 x 64, the mask
 * (t,z,y,x) in planes.
 * Run: ./12_random_patches */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <stdio.h>
enum { T = 2, C = 2, Z = 3, SIDE = 256, CHUNK = 64, N = SIDE / CHUNK, PATCH = 32, HALO = 8 };
enum { IMAGES = T * C * Z * N * N, MASKS = T * Z, WIDE = PATCH + 2 * HALO };

static uint16_t image[IMAGES][CHUNK][CHUNK];
static uint8_t mask[MASKS][SIDE][SIDE];
static char keys[IMAGES + MASKS][32];
static insitu_object objects[IMAGES + MASKS + 4];
static uint64_t n_objects;

static void put(const char *key, const void *bytes, uint64_t n) {
  objects[n_objects++] = (insitu_object){.key = key, .bytes = bytes, .n = n};
}

/* Channel 0 is bright where the mask is 1; channel 1 tells y + x. */
static void make_archive(void) {
  static const char *const meta[4][2] = {
      {"0/.zarray", "{\"zarr_format\":2,\"shape\":[2,2,3,256,256],\"chunks\":[1,1,1,64,64],"
                    "\"dtype\":\"<u2\",\"compressor\":null,\"filters\":null,\"fill_value\":0,"
                    "\"order\":\"C\",\"dimension_separator\":\"/\"}"},
      {"0/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"t\",\"c\",\"z\",\"y\",\"x\"]}"},
      {"labels/0/.zarray",
          "{\"zarr_format\":2,\"shape\":[2,3,256,256],\"chunks\":[1,1,256,256],"
          "\"dtype\":\"|u1\",\"compressor\":null,\"filters\":null,\"fill_value\":0,"
          "\"order\":\"C\",\"dimension_separator\":\"/\"}"},
      {"labels/0/.zattrs", "{\"_ARRAY_DIMENSIONS\":[\"t\",\"z\",\"y\",\"x\"]}"}};
  for (int i = 0; i < 4; i++) put(meta[i][0], meta[i][1], strlen(meta[i][1]));
  for (int i = 0; i < IMAGES; i++) {
    int x = i % N, y = i / N % N, z = i / N / N % Z, c = i / N / N / Z % C, t = i / N / N / Z / C;
    for (int v = 0; v < CHUNK; v++)
      for (int u = 0; u < CHUNK; u++) {
        int py = y * CHUNK + v, px = x * CHUNK + u;
        int cell = (py / 24 + px / 40 + z + t) % 3 == 0;
        if (!c) mask[t * Z + z][py][px] = (uint8_t)cell;
        image[i][v][u] = (uint16_t)(c ? py + px : 100 + 900 * cell);
      }
    snprintf(keys[i], sizeof keys[i], "0/%d/%d/%d/%d/%d", t, c, z, y, x);
    put(keys[i], image[i], sizeof image[i]);
  }
  for (int i = 0; i < MASKS; i++) {
    snprintf(keys[IMAGES + i], sizeof keys[0], "labels/0/%d/%d/0/0", i / Z, i % Z);
    put(keys[IMAGES + i], mask[i], sizeof mask[i]);
  }
}

int main(void) {
  make_archive();
  const insitu_axis axes[] = {
      {.dim = "t"}, {.dim = "z"}, {.dim = "y", .patch = PATCH}, {.dim = "x", .patch = PATCH}};
  const insitu_variable parts[] = {
      {.label = "image", .path = "0", .halo = HALO, .dtype = INSITU_F32},
      {.label = "mask", .path = "labels/0"}};
  const insitu_loader_desc desc = {.api = INSITU_API,
      .url = "memory://cells",
      .objects = objects,
      .n_objects = n_objects,
      .variables = parts,
      .n_variables = 2,
      .axes = axes,
      .n_axes = 4,
      .patches = 16, /* of each plane: batch_size counts patches */
      .batch_size = 24};
  const insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b = NULL;
  insitu_error err = {0};
  uint64_t patches = 0, cells = 0, wrong = 0;

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status) status = insitu_iter_open(loader, &all, &iter, &err);
  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    const float *in = b->arrays[0].data;    /* (rows, c, WIDE, WIDE) */
    const uint8_t *out = b->arrays[1].data; /* (rows, PATCH, PATCH) */
    for (uint64_t row = 0; row < b->rows; row++, patches++)
      for (int64_t y = 0; y < PATCH; y++)
        for (int64_t x = 0; x < PATCH; x++) {
          const int64_t *at = b->axis_indices + 4 * row; /* t, z, and where the patch begins */
          const float *pixel = in + ((int64_t)row * C * WIDE + y + HALO) * WIDE + x + HALO;
          uint8_t cell = out[((int64_t)row * PATCH + y) * PATCH + x];
          cells += cell;
          wrong += pixel[0] != (cell ? 1000 : 100);
          wrong += pixel[WIDE * WIDE] != (float)(at[2] + y + at[3] + x);
        }
    insitu_batch_release(&b);
  }

  if (status < 0) fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  else
    printf("%" PRIu64 " patches, %.0f %% of them cells, %" PRIu64 " pixels at the wrong place\n",
        patches, 100.0 * (double)cells / ((double)patches * PATCH * PATCH), wrong);
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status != INSITU_END || wrong || patches != T * Z * 16;
}
