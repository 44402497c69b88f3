/* cc -O2 -I. examples/09_forecast_box.c -o 09_forecast_box -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* What a forecaster is trained on: two times in, four times out, two variables at two levels as
 * channels, in a box over the seam of the longitudes, normalised level by level. x is (rows, 4
 * channels, 2 times, 7, 10), y is (rows, 4 channels, 4 times, 7, 10). insitu_scan writes the
 * statistics that they are normalised by to the second argument. Prints how far targets are from
 * the last input, in units of the archive: what a forecast has to beat. Run it on the archive that
 * `make gallery` makes: ./09_forecast_box build/gallery/weather.zarr build/gallery/weather.json */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
#define BOX "level=500,850; lat=60..30; lon=-30..60"
enum { FIELD = 7 * 10 }; /* latitudes and longitudes of the box */

int main(int argc, char **argv) {
  const int64_t in[] = {-1, 0}, out[] = {1, 2, 3, 4};
  const insitu_op norm = {.kind = INSITU_OP_NORM}; /* by desc.stats */
  insitu_variable v[] = {{.label = "t_in", .path = "t", .into = "x", .steps = in, .n_steps = 2},
      {.label = "u_in", .path = "u", .into = "x", .steps = in, .n_steps = 2},
      {.label = "t_out", .path = "t", .into = "y", .steps = out, .n_steps = 4},
      {.label = "u_out", .path = "u", .into = "y", .steps = out, .n_steps = 4}};
  for (int i = 0; i < 4; i++) v[i].select = BOX, v[i].ops = &norm, v[i].n_ops = 1;
  insitu_loader_desc desc = {.api = INSITU_API, .url = argv[1], .variables = v, .n_variables = 4};
  insitu_scan_desc scan = {.api = INSITU_API,
      .loader = &desc,
      .dim = "level",
      .path = argc > 2 ? argv[2] : "09_forecast_box.json"};
  insitu_iter_desc pass = {.api = INSITU_API}; /* the train split, shuffled */
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b;
  insitu_error err;
  double miss[16] = {0}, n = 0, mean, unit[4] = {0};
  insitu_status failed = insitu_scan(&scan, &err);
  desc.stats = scan.path;
  if (!failed) failed = insitu_loader_open(&desc, &loader, &err);
  for (int i = 0; i < 4 && !failed; i++) /* channels: t and u, each at two levels */
    failed = insitu_loader_norm(loader, v[i / 2].label, i % 2, &mean, &unit[i], &err);
  if (!failed && !insitu_iter_open(loader, &pass, &iter, &err))
    while (!insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) {
      const float *x = b->arrays[0].data, *y = b->arrays[1].data;
      for (uint64_t i = 0; i < b->rows * 16 * FIELD; i++, n++)
        miss[i / FIELD % 16] += fabs(y[i] - x[(i / FIELD / 4 * 2 + 1) * FIELD + i % FIELD]);
      insitu_batch_release(&b);
    }
  for (int i = 0; i < 16 && n > 0; i++)
    printf("%s after %2d hours: %.2f from the last input\n",
        insitu_loader_array(loader, 1)->channels[i / 4], i % 4 * 6 + 6,
        unit[i / 4] * miss[i] / (n / 16));
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return err.status && fprintf(stderr, "%s\n", err.message);
}
