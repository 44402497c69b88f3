/* cc -O2 -I. examples/12_random_patches.c -o 12_random_patches -luring -lcurl -llz4 -lzstd -lpthread */
/* Random patches of a microscope's volume with the mask of each: 16 of every plane, drawn anew in
 * each epoch. The archive is an OME-NGFF image (c, z, y, x) with a mask (z, y, x) in other chunks;
 * its metadata name the axes. The image is shown with 8 pixels more on each side than the mask.
 * Run it on the archive that `make gallery` makes: ./12_random_patches build/gallery/cells.zarr */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

int main(int argc, char **argv) {
  const insitu_axis axes[] = {{.dim = "z"}, {.dim = "y", .patch = 32}, {.dim = "x", .patch = 32}};
  const insitu_variable v[] = {
      {.label = "image", .path = "0", .halo = 8}, {.label = "mask", .path = "labels/cells/0"}};
  insitu_loader_desc desc = {.api = INSITU_API, .url = argv[1], .variables = v, .n_variables = 2};
  desc.axes = axes, desc.n_axes = 3, desc.patches = 16; /* a batch has 32 patches */
  insitu_iter_desc pass = {.api = INSITU_API};          /* the train split, shuffled */
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b;
  insitu_error err;
  if (!insitu_loader_open(&desc, &loader, &err) && !insitu_iter_open(loader, &pass, &iter, &err))
    while (!insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) {
      const uint16_t(*image)[2][48][48] = b->arrays[0].data; /* (rows, c, y, x) */
      const uint8_t *mask = b->arrays[1].data;               /* (rows, y, x) of 32 x 32 */
      double sum[2] = {0}, n[2] = {0};
      for (uint64_t i = 0; i < b->rows * 32 * 32; n[mask[i++]]++)
        sum[mask[i]] += image[i / 1024][0][8 + i / 32 % 32][8 + i % 32];
      printf("batch %d: %d patches; the image is %.0f in cells, %.0f elsewhere\n", (int)b->index,
          (int)b->rows, sum[1] / n[1], sum[0] / n[0]);
      insitu_batch_release(&b);
    }
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return err.status && fprintf(stderr, "%s\n", err.message);
}
