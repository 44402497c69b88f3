/* cc -O2 -I. examples/02_train_winds.c -o 02_train_winds -luring -lcurl -llz4 -lzstd -lpthread -lm */
/* Trains a small network that forecasts next month's winds over the globe from this month's,
 * straight from a Zarr archive, and compares it with forecasts that cost nothing: persistence
 * (nothing changes) and climatology (what that month is like on average). Trained on 1982-1989,
 * tuned on 1990, scored on 1991-1992. Run: ./02_train_winds [ARCHIVE] [--ppm FILE]; --ppm draws the
 * last test month. Exit status: 0 if the forecast beats persistence, 1 if not, 2 on any error.
 *
 * insitu_scan reads the train split once for the mean and the standard deviation of each component,
 * and the loader normalises what it decodes. The model works on anomalies, departures from a smooth
 * seasonal cycle, of all grid points and both wind components (n values):
 *   forecast[i] = damp[i] * anomaly[i] + sum_k decode[i][k] * tanh(sum_j encode[j][k] * anomaly[j])
 * How much of an anomaly survives a month is learned for each place; HIDDEN global patterns are
 * learned on top. */
#define _GNU_SOURCE
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { U, V, U_NEXT, V_NEXT, VARIABLES };                      /* the arrays of a batch */
enum { MODEL, PERSISTENCE, CLIMATOLOGY, SMOOTHED, FORECASTS }; /* what is compared */
/* the archive starts in a January: month = anchor % YEAR */
enum { YEAR = 12, HIDDEN = 4, EPOCHS = 20, BATCH = 8 };
/* parameters per value: damp, encode, decode */
enum { PER_VALUE = 1 + 2 * HIDDEN };
static const float RATE = 0.02f, DECAY = 1; /* of the optimiser, AdamW */

struct model {
  /* grid; field = lats * lons; n = 2 * field values, u before v */
  uint64_t lats, lons, field, n;
  /* of u and v in m/s: the batches hold (wind - mean) / deviation, the unit of all below */
  double mean_wind[2], deviation[2];
  /* (YEAR, n): plain monthly means; the same smoothed to two harmonics */
  float *climatology, *seasonal;
  float *weight;                     /* (lats): share of a row's area, averaging 1 */
  float *parameter, *best;           /* (n, PER_VALUE); the parameters of the best epoch so far */
  float *gradient, *mean, *square;   /* of the parameters; Adam's running moments */
  float *anomaly, *truth, *forecast; /* (n): one sample */
  float hidden[HIDDEN];
  uint64_t steps, month; /* month of the truth */
};

static struct model model; /* zero */

struct score {
  double error[FORECASTS][2], weight; /* weighted squared errors of u and v in (m/s)^2 */
};

static void die(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "02_train_winds: ");
  vfprintf(stderr, format, list);
  fprintf(stderr, "\n");
  va_end(list);
  exit(2);
}

/* Every call of the library goes through here. What is neither done nor the end of an epoch ends
 * the program: an error with the library's own words, or INSITU_BUSY, which would mean that batches
 * were not released. */
static insitu_status check(insitu_status status, const insitu_error *err) {
  if (status != INSITU_OK && status != INSITU_END)
    die("%s: %s", insitu_status_name(status), err->message);
  return status;
}

static float *floats(uint64_t n) {
  float *p = calloc(n, sizeof *p);
  if (!p) die("no memory for %" PRIu64 " numbers", n);
  return p;
}

/* Scans the train split, and opens a loader with its statistics. A trainer that runs for days keeps
 * the file, and scans once. */
static void open_normalised(insitu_loader_desc *desc, insitu_loader **loader) {
  insitu_error err = {0};
  char stats[] = "/tmp/02_train_winds.XXXXXX";
  int fd = mkstemp(stats);
  if (fd < 0) die("%s cannot be made", stats);
  close(fd);
  const insitu_scan_desc scan = {.api = INSITU_API, .loader = desc, .path = stats};
  insitu_status status = insitu_scan(&scan, &err);
  desc->stats = stats;
  if (status == INSITU_OK) status = insitu_loader_open(desc, loader, &err);
  desc->stats = NULL;
  unlink(stats);
  check(status, &err);
}

static insitu_iter *open_iter(insitu_loader *loader, int32_t split, int32_t order) {
  insitu_error err = {0};
  insitu_iter *iter = NULL;
  check(insitu_iter_open(loader,
            &(insitu_iter_desc){.api = INSITU_API, .split = split, .order = order}, &iter, &err),
      &err);
  return iter;
}

/* The next batch, or NULL at the end of an epoch; calling on gives the following epoch. */
static insitu_batch *next_batch(insitu_iter *iter) {
  insitu_error err = {0};
  insitu_batch *batch = NULL;
  check(insitu_iter_next(iter, INSITU_FOREVER, &batch, &err), &err);
  return batch;
}

/* One field of a batch: (lat, lon), normalised. */
static const float *field_of(
    const struct model *m, const insitu_batch *batch, int array, uint64_t row) {
  return (const float *)batch->arrays[array].data + row * m->field;
}

/* ---- the seasons: one pass over the train split, in order ---- */

static void add_month(
    struct model *m, uint64_t month, int component, const float *x, uint64_t *count) {
  float *sum = m->climatology + month * m->n + (uint64_t)component * m->field;
  for (uint64_t i = 0; i < m->field; i++) sum[i] += x[i];
  count[month] += component == 0;
}

/* Keeps the mean and the first two harmonics of the year: eight years are too few for twelve
 * independent monthly means. */
static void smooth_seasons(struct model *m) {
  for (uint64_t to = 0; to < YEAR; to++)
    for (uint64_t from = 0; from < YEAR; from++) {
      double angle = 2 * M_PI * ((double)to - (double)from) / YEAR;
      float share = (float)((1 + 2 * cos(angle) + 2 * cos(2 * angle)) / YEAR);
      for (uint64_t i = 0; i < m->n; i++)
        m->seasonal[to * m->n + i] += share * m->climatology[from * m->n + i];
    }
}

static void learn_climate(struct model *m, insitu_loader *loader) {
  insitu_iter *iter = open_iter(loader, INSITU_TRAIN, INSITU_SEQUENTIAL);
  uint64_t count[YEAR] = {0};
  for (insitu_batch *batch; (batch = next_batch(iter)); insitu_batch_release(&batch))
    for (uint64_t row = 0; row < batch->rows; row++) {
      uint64_t month = (uint64_t)batch->sample_indices[row] % YEAR;
      /* every month is the target of the one before, but for the first */
      for (int c = 0; c < 2; c++) {
        if (batch->index == 0 && row == 0)
          add_month(m, month, c, field_of(m, batch, U + c, row), count);
        add_month(m, (month + 1) % YEAR, c, field_of(m, batch, U_NEXT + c, row), count);
      }
    }
  insitu_iter_close(&iter);
  for (uint64_t k = 0; k < YEAR; k++) {
    if (!count[k]) die("the train split holds no month %" PRIu64 "; it must span a year", k + 1);
    for (uint64_t i = 0; i < m->n; i++) m->climatology[k * m->n + i] /= (float)count[k];
  }
  smooth_seasons(m);
}

/* ---- the network ---- */

static void init_model(struct model *m, const insitu_loader *loader) {
  /* (rows, lat, lon) */
  const insitu_array *u = insitu_loader_array(loader, U), *v = insitu_loader_array(loader, V);
  if (u->ndim != 3 || v->ndim != 3 || u->shape[1] != v->shape[1] || u->shape[2] != v->shape[2] ||
      u->shape[1] < 2)
    die("uwnd and vwnd must both be (time, lat, lon)");
  m->lats = (uint64_t)u->shape[1], m->lons = (uint64_t)u->shape[2];
  m->field = m->lats * m->lons, m->n = 2 * m->field;
  m->climatology = floats(YEAR * m->n), m->seasonal = floats(YEAR * m->n);
  float **all[] = {&m->parameter, &m->best, &m->gradient, &m->mean, &m->square};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = floats(m->n * PER_VALUE);
  m->anomaly = floats(m->n), m->truth = floats(m->n), m->forecast = floats(m->n);
  m->weight = floats(m->lats); /* rows from pole to pole: the cosine of the latitude */
  for (uint64_t y = 0; y < m->lats; y++)
    m->weight[y] = (float)(M_PI / 2 * sin(M_PI * (double)y / (double)(m->lats - 1)));
  uint64_t random = 1;
  /* only encode starts at random: from a fixed seed */
  for (uint64_t i = 0; i < m->n * PER_VALUE; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t which = i % PER_VALUE;
    if (which >= 1 && which <= HIDDEN)
      m->parameter[i] = (float)((double)(random >> 40) / 0x1p23 - 1) / sqrtf((float)m->n);
  }
}

/* Sets anomaly, truth and forecast. */
static void forward(struct model *m, const insitu_batch *batch, uint64_t row) {
  uint64_t month = (uint64_t)batch->sample_indices[row] % YEAR;
  m->month = (month + 1) % YEAR;
  float sum[HIDDEN] = {0};
  for (uint64_t c = 0; c < 2; c++) {
    const float *x = field_of(m, batch, U + (int)c, row),
                *y = field_of(m, batch, U_NEXT + (int)c, row);
    const float *now = m->seasonal + month * m->n + c * m->field,
                *next = m->seasonal + m->month * m->n + c * m->field;
    for (uint64_t i = 0; i < m->field; i++) {
      m->anomaly[c * m->field + i] = x[i] - now[i];
      m->truth[c * m->field + i] = y[i] - next[i];
    }
  }
  for (uint64_t i = 0; i < m->n; i++) {
    const float *encode = m->parameter + i * PER_VALUE + 1;
    for (int k = 0; k < HIDDEN; k++) sum[k] += encode[k] * m->anomaly[i];
  }
  for (int k = 0; k < HIDDEN; k++) m->hidden[k] = tanhf(sum[k]);
  for (uint64_t i = 0; i < m->n; i++) {
    const float *damp = m->parameter + i * PER_VALUE, *decode = damp + 1 + HIDDEN;
    float f = *damp * m->anomaly[i];
    for (int k = 0; k < HIDDEN; k++) f += decode[k] * m->hidden[k];
    m->forecast[i] = f;
  }
}

/* Adds the gradient of half the weighted squared error of one sample; returns the error. */
static double backward(struct model *m) {
  float back[HIDDEN] = {0};
  double loss = 0;
  for (uint64_t i = 0; i < m->n; i++) {
    const float *decode = m->parameter + i * PER_VALUE + 1 + HIDDEN;
    float *g = m->gradient + i * PER_VALUE, weight = m->weight[i % m->field / m->lons],
          miss = m->forecast[i] - m->truth[i];
    loss += (double)(weight * miss * miss);
    g[0] += weight * miss * m->anomaly[i];
    for (int k = 0; k < HIDDEN; k++) {
      g[1 + HIDDEN + k] += weight * miss * m->hidden[k];
      back[k] += weight * miss * decode[k];
    }
  }
  for (int k = 0; k < HIDDEN; k++) back[k] *= 1 - m->hidden[k] * m->hidden[k];
  for (uint64_t i = 0; i < m->n; i++)
    for (int k = 0; k < HIDDEN; k++)
      m->gradient[i * PER_VALUE + 1 + (uint64_t)k] += back[k] * m->anomaly[i];
  return loss;
}

/* One step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), then clears the
 * gradient. */
static void step(struct model *m, uint64_t rows, float rate) {
  m->steps++;
  float first = 1 - powf(0.9f, (float)m->steps), second = 1 - powf(0.99f, (float)m->steps);
  for (uint64_t i = 0; i < m->n * PER_VALUE; i++) {
    float g = m->gradient[i] / (float)rows;
    m->mean[i] += 0.1f * (g - m->mean[i]);
    m->square[i] += 0.01f * (g * g - m->square[i]);
    /* encode sums over n values: its steps are smaller by that much */
    uint64_t which = i % PER_VALUE;
    float r = which == 0 ? rate : which <= HIDDEN ? 0.2f * rate / sqrtf((float)m->n) : 0.2f * rate;
    if (which) m->parameter[i] *= 1 - rate * DECAY;
    m->parameter[i] -= r * (m->mean[i] / first) / (sqrtf(m->square[i] / second) + 1e-8f);
    m->gradient[i] = 0;
  }
}

/* ---- scores ---- */

/* One epoch of an iterator: the errors of all forecasts. Leaves the last sample in the model, for
 * draw. */
static struct score evaluate(struct model *m, insitu_iter *iter) {
  struct score s = {0};
  for (insitu_batch *batch; (batch = next_batch(iter)); insitu_batch_release(&batch))
    for (uint64_t row = 0; row < batch->rows; row++) {
      forward(m, batch, row);
      const float *mean = m->climatology + m->month * m->n;
      for (uint64_t i = 0; i < m->n; i++) {
        uint64_t c = i / m->field, at = i % m->field;
        float now = field_of(m, batch, U + (int)c, row)[at],
              next = field_of(m, batch, U_NEXT + (int)c, row)[at];
        float miss[FORECASTS] = {
            m->forecast[i] - m->truth[i], now - next, mean[i] - next, -m->truth[i]};
        for (int f = 0; f < FORECASTS; f++)
          s.error[f][c] += (double)(m->weight[at / m->lons] * miss[f] * miss[f]) * m->deviation[c] *
                           m->deviation[c];
        s.weight += (double)m->weight[at / m->lons] / 2; /* of one component */
      }
    }
  return s;
}

/* Area-weighted RMSE in m/s of one component, or of both (c = 2). */
static double rmse(const struct score *s, int forecast, int c) {
  const double *e = s->error[forecast];
  return sqrt((c < 2 ? e[c] : (e[0] + e[1]) / 2) / s->weight);
}

static void print_table(const struct score *s) {
  static const char *const names[] = {
      "this model", "persistence", "climatology", "its smooth form"};
  printf("\nRMSE in m/s, test     u       v    both   model is better by\n");
  for (int f = 0; f < FORECASTS; f++) {
    printf("%-15s  %6.3f  %6.3f  %6.3f", names[f], rmse(s, f, 0), rmse(s, f, 1), rmse(s, f, 2));
    if (f != MODEL) printf("   %.1f %%", 100 * (1 - rmse(s, MODEL, 2) / rmse(s, f, 2)));
    printf("\n");
  }
}

static void print_loader(const insitu_loader *loader) {
  insitu_error err = {0};
  insitu_plan plan;
  insitu_stats stats;
  check(insitu_loader_plan(
            loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_TRAIN}, &plan, &err),
      &err);
  check(insitu_loader_stats(loader, &stats, &err), &err);
  printf("\nloader (io %s): %" PRIu64 " batches from %" PRIu64 " chunk reads, ", stats.io,
      stats.batches, stats.reads);
  printf("%.0f MB read, %.0f MB decoded\n", (double)stats.bytes_read / 1e6,
      (double)stats.bytes_decoded / 1e6);
  printf("  train: %.2f reads of each chunk per epoch; %.2f uses of each read\n",
      plan.amplification, plan.dedup);
  printf("  time:  first batch after %.0f ms; the trainer waited %.3f s in all\n",
      stats.first_batch_s * 1e3, stats.stall_s);
  printf("  peak:  %.1f MB of batches, %" PRIu64 " chunks in flight\n",
      (double)stats.slab_bytes_peak / 1e6, stats.inflight_peak);
}

/* The eastward wind of the last sample, truth above forecast: red blows east, blue west, full
 * colour at 12 m/s. Binary PPM. */
static void draw(const struct model *m, const char *path) {
  FILE *f = fopen(path, "wb");
  if (!f) die("%s cannot be written", path);
  /* 3 x 3 pixels per grid point */
  fprintf(f, "P6 %" PRIu64 " %" PRIu64 " 255\n", 3 * m->lons, 6 * m->lats);
  for (uint64_t y = 0; y < 6 * m->lats; y++)
    for (uint64_t x = 0; x < 3 * m->lons; x++) {
      /* the archive's first row is the south pole */
      uint64_t i = (m->lats - 1 - y % (3 * m->lats) / 3) * m->lons + x / 3;
      float x = m->seasonal[m->month * m->n + i] + (y < 3 * m->lats ? m->truth[i] : m->forecast[i]);
      float wind = (float)(x * m->deviation[0] + m->mean_wind[0]),
            fade = 255 * (1 - fminf(fabsf(wind) / 12, 1));
      fputc(wind > 0 ? 255 : (int)fade, f), fputc((int)fade, f),
          fputc(wind < 0 ? 255 : (int)fade, f);
    }
  if (fclose(f)) die("%s cannot be written", path);
}

static void train(struct model *m, insitu_loader *loader) {
  insitu_iter *iter = open_iter(loader, INSITU_TRAIN, INSITU_SHUFFLED),
              *val = open_iter(loader, INSITU_VAL, INSITU_SEQUENTIAL);
  double lowest = INFINITY;
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    float rate = RATE * (float)(1 + cos(M_PI * epoch / EPOCHS)) / 2;
    double loss = 0;
    uint64_t rows = 0;
    for (insitu_batch *batch; (batch = next_batch(iter)); insitu_batch_release(&batch)) {
      for (uint64_t row = 0; row < batch->rows; row++) {
        forward(m, batch, row);
        loss += backward(m) / (double)m->n;
      }
      step(m, batch->rows, rate);
      rows += batch->rows;
      if (isatty(STDERR_FILENO))
        fprintf(stderr, "epoch %2d of %d: %3" PRIu64 " samples\r", epoch + 1, EPOCHS, rows);
    }
    struct score s = evaluate(m, val);
    bool better = rmse(&s, MODEL, 2) < lowest;
    if (better) {
      lowest = rmse(&s, MODEL, 2);
      memcpy(m->best, m->parameter, m->n * PER_VALUE * sizeof *m->best);
    }
    printf("epoch %2d  train loss %.4f  val RMSE %.4f m/s%s\n", epoch + 1, loss / (double)rows,
        rmse(&s, MODEL, 2), better ? " *" : "");
  }
  memcpy(m->parameter, m->best, m->n * PER_VALUE * sizeof *m->best);
  insitu_iter_close(&val);
  insitu_iter_close(&iter);
}

int main(int argc, char **argv) {
  const char *archive = "examples/data/winds.zarr", *ppm = NULL;
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--ppm") && i + 1 < argc) ppm = argv[++i];
    else if (argv[i][0] != '-') archive = argv[i];
    else die("usage: 02_train_winds [ARCHIVE] [--ppm FILE]");
  /* four views of two arrays: each chunk is read and decoded once for all, and normalised by the
   * numbers of desc.stats */
  const insitu_op norm = {.kind = INSITU_OP_NORM};
  insitu_variable variables[VARIABLES] = {[U] = {.label = "u", .path = "uwnd"},
      [V] = {.label = "v", .path = "vwnd"},
      [U_NEXT] = {.label = "u_next", .path = "uwnd", .offset = 1},
      [V_NEXT] = {.label = "v_next", .path = "vwnd", .offset = 1}};
  for (int i = 0; i < VARIABLES; i++)
    variables[i].dtype = INSITU_F32, variables[i].ops = &norm, variables[i].n_ops = 1;
  insitu_loader_desc desc = {.api = INSITU_API,
      .url = archive,
      .variables = variables,
      .n_variables = VARIABLES,
      .sample_dim = "time",
      .batch_size = BATCH,
      /* so that one window mixes the whole split, and each chunk is decoded once an epoch */
      .lanes = 1,
      /* of eleven years, in order */
      .split = {{.fraction = 8.0 / 11}, {.fraction = 1.0 / 11}, {.fraction = 2.0 / 11}}};
  insitu_error err = {0};
  insitu_loader *loader = NULL;
  struct model *m = &model;
  open_normalised(&desc, &loader);
  check(insitu_loader_norm(loader, "u", 0, &m->mean_wind[0], &m->deviation[0], &err), &err);
  check(insitu_loader_norm(loader, "v", 0, &m->mean_wind[1], &m->deviation[1], &err), &err);
  init_model(m, loader);
  learn_climate(m, loader);
  train(m, loader);
  insitu_iter *test = open_iter(loader, INSITU_TEST, INSITU_SEQUENTIAL);
  struct score s = evaluate(m, test);
  print_table(&s);
  print_loader(loader);
  if (ppm) draw(m, ppm);
  insitu_iter_close(&test);
  insitu_loader_close(&loader);
  return rmse(&s, MODEL, 2) < rmse(&s, PERSISTENCE, 2) ? 0 : 1;
}
