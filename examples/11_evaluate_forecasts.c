/* cc -O2 -I. examples/11_evaluate_forecasts.c -o 11_evaluate_forecasts -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* How good are forecasts, by lead time? A sample is one forecast at one lead: an index on the axis
 * init and one on the axis lead. Dates choose the forecasts, a stride the leads; an evaluation sees
 * every such sample exactly once. The archive has t (init, lead, station) and what was observed
 * (day, station). Run it on the one that `make gallery` makes:
 * ./11_evaluate_forecasts build/gallery/forecasts.zarr */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <math.h>
enum { DAYS = 60, LEADS = 10, STATIONS = 4 };

int main(int argc, char **argv) {
  const insitu_axis axes[] = {
      {.dim = "init", .from = "2020-01-15", .to = "2020-02"}, {.dim = "lead", .stride = 3}};
  const insitu_variable v = {.label = "forecast", .path = "t"};
  insitu_loader_desc desc = {.api = INSITU_API, .url = argv[1], .variables = &v, .n_variables = 1};
  desc.axes = axes, desc.n_axes = 2;
  desc.coordinates = 1;                                            /* rows know date and lead */
  insitu_iter_desc all = {.api = INSITU_API, .split = INSITU_ALL}; /* every sample, in order */
  const insitu_variable station = {.path = "observed"};
  float truth[DAYS + LEADS][STATIONS];
  int seen[DAYS][LEADS] = {{0}}, n[LEADS] = {0}, rows = 0, again = 0;
  double square[LEADS] = {0};
  int64_t first = INT64_MAX, last = INT64_MIN; /* microseconds */
  const char *calendar = NULL;
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *b;
  insitu_error err;

  insitu_status status = insitu_loader_open(&desc, &loader, &err);
  if (!status) status = insitu_read(loader, &station, truth, sizeof truth, NULL, &err);
  if (!status) status = insitu_iter_open(loader, &all, &iter, &err);
  while (!status && (status = insitu_iter_next(iter, INSITU_FOREVER, &b, &err)) == INSITU_OK) {
    const float(*forecast)[STATIONS] = b->arrays[0].data;
    for (uint64_t row = 0; row < b->rows; row++, rows++) {
      const int64_t *at = &b->axis_indices[2 * row]; /* init and lead, in days here */
      for (int s = 0; s < STATIONS; s++)
        square[at[1]] += pow((double)forecast[row][s] - truth[at[0] + at[1]][s], 2);
      n[at[1]]++;
      again += seen[at[0]][at[1]]++;
      if (b->time_us[row] < first) first = b->time_us[row];
      if (b->time_us[row] > last) last = b->time_us[row];
    }
    calendar = b->calendar;
    insitu_batch_release(&b);
  }

  if (status == INSITU_END) {
    for (int lead = 0; lead < LEADS; lead += 3)
      printf("%d days ahead: %d forecasts, the error is %.2f degrees\n", lead, n[lead],
          sqrt(square[lead] / (n[lead] * STATIONS)));
    insitu_date from, to;
    insitu_date_from_us(first, calendar, &from, &err);
    insitu_date_from_us(last, calendar, &to, &err);
    printf("%d samples from %s to %s, %d of them twice\n", rows, from.text, to.text, again);
  } else {
    fprintf(stderr, "%s: %s\n", insitu_status_name(status), err.message);
  }
  insitu_iter_close(&iter);
  insitu_loader_close(&loader);
  return status != INSITU_END || again;
}
