/* Whether samples of different arrays belong together: coordinates of their sample axes that are
 * equal, that differ, that are missing or cannot be compared, and what is read to know that. */
#include "insitubatch.h"
#include "support.h"
#include "modes.h"
#include "server.h"
#include <math.h>

enum { N = 12 };

/* An array of N samples in a group, and beside it, where values are given, its coordinate. */
struct coordinate {
  const double *values;
  int32_t dtype;
  const char *attributes;
};

static void make_array(const char *root, const char *name, int format, const char *dims) {
  const struct support_array a = {.name = name,
      .ndim = 2,
      .shape = {N, 3},
      .chunk = {5, 3},
      .dtype = INSITU_I32,
      .format = format,
      .dims = dims};
  support_make(root, &a);
}
static void make_coordinate(
    const char *root, const char *name, int format, struct coordinate c, uint64_t n) {
  const struct support_array a = {.name = name,
      .ndim = 1,
      .shape = {n},
      .chunk = {7},
      .dtype = c.dtype,
      .format = format,
      .dims = "[\"time\"]",
      .attributes = c.attributes,
      .values = c.values};
  support_make(root, &a);
}
/* Arrays a/x and b/y with their coordinates, in a new archive. */
static const char *make_pair(int format, struct coordinate a, struct coordinate b) {
  static int turn;
  char name[32];
  snprintf(name, sizeof name, "pair%d", turn++);
  const char *root = support_path(name);
  make_array(root, "a/x", format, "[\"time\",\"v\"]");
  make_array(root, "b/y", format, "[\"time\",\"v\"]");
  if (a.values) make_coordinate(root, "a/time", format, a, N);
  if (b.values) make_coordinate(root, "b/time", format, b, N);
  return root;
}

static insitu_variable pair[2] = {{.path = "a/x"}, {.path = "b/y"}};
static insitu_loader_desc of(const char *root) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = pair,
      .n_variables = 2,
      .batch_size = 2,
      .plan_only = 1};
}
static void opens(insitu_loader_desc d) {
  insitu_loader *ld = open_or_fail(&d);
  insitu_loader_close(&ld);
}
static void refused(insitu_loader_desc d, insitu_status want, const char *const *words) {
  insitu_error err;
  insitu_loader *ld = NULL;
  insitu_status got = insitu_loader_open(&d, &ld, &err);
  if (got != want) fail_msg("%s instead of %s", insitu_status_name(got), insitu_status_name(want));
  for (; *words; words++)
    if (!strstr(err.message, *words)) fail_msg("'%s' is not in: %s", *words, err.message);
}
#define REFUSED(d, status, ...) refused(d, status, (const char *const[]){__VA_ARGS__, NULL})

/* a + b * i */
static const double *line(double a, double b) {
  static double values[200][N];
  static int turn;
  double *v = values[turn++ % 200];
  for (int i = 0; i < N; i++) v[i] = a + b * i;
  return v;
}

static void dates(void **state) {
  (void)state;
  static const char hours[] = "\"units\":\"hours since 1979-01-01\"",
                    minutes[] = "\"units\":\"minutes since 1978-12-31 00:00:00\"",
                    days[] = "\"units\":\"days since 1979-01-01\",\"calendar\":\"standard\"",
                    noleap[] = "\"units\":\"days since 1979-01-01\",\"calendar\":\"noleap\"",
                    months[] = "\"units\":\"months since 1979-01-01\"";
  struct coordinate six = {line(0, 6), INSITU_I32, hours};
  for (int format = 2; format <= 3; format++) {
    opens(of(make_pair(format, six, six)));
    opens(of(make_pair(format, six, (struct coordinate){line(1440, 360), INSITU_I64, minutes})));
    opens(of(make_pair(format, six, (struct coordinate){line(0, 0.25), INSITU_F64, days})));
    opens(of(make_pair(format, (struct coordinate){line(0, 0.25), INSITU_F32, days}, six)));

    /* units of one word are compared as they are, whatever they are */
    struct coordinate monthly = {line(3, 1), INSITU_I16, months};
    opens(of(make_pair(format, monthly, monthly)));

    REFUSED(of(make_pair(format, six, (struct coordinate){line(12, 6), INSITU_I64, hours})),
        INSITU_E_SHAPE, "arrays a/x and b/y", "at index 0", "a/time is 1979-01-01T00:00",
        "b/time is 1979-01-01T12:00", "say in the variables of array b/y", "map = INSITU_BY_INDEX");
    REFUSED(of(make_pair(format, six, (struct coordinate){line(0, 0.5), INSITU_F64, days})),
        INSITU_E_SHAPE, "at index 1", "a/time is 1979-01-01T06:00", "b/time is 1979-01-01T12:00");
    double off[N];
    memcpy(off, six.values, sizeof off);
    off[N - 1] += 1;
    REFUSED(of(make_pair(format, six, (struct coordinate){off, INSITU_I32, hours})), INSITU_E_SHAPE,
        "at index 11", "a/time is 1979-01-03T18:00", "b/time is 1979-01-03T19:00");

    struct coordinate model = {line(0, 1), INSITU_I32, noleap},
                      real = {line(0, 1), INSITU_I32, days};
    REFUSED(of(make_pair(format, real, model)), INSITU_E_SHAPE, "b/time", "noleap", "standard",
        "INSITU_BY_INDEX");
    REFUSED(of(make_pair(format, six, monthly)), INSITU_E_UNSUPPORTED, "b/time",
        "no fixed length; correct it, or match", "INSITU_BY_INDEX");
    struct coordinate plain = {line(0, 6), INSITU_I32, NULL};
    REFUSED(of(make_pair(format, six, plain)), INSITU_E_SHAPE, "b/time", "units are ''", "a/time",
        "hours since 1979-01-01", "INSITU_BY_INDEX");
  }
}

static void numbers(void **state) {
  (void)state;
  struct coordinate whole = {line(-3, 1), INSITU_I64, NULL};
  opens(of(make_pair(2, whole, (struct coordinate){line(-3, 1), INSITU_F32, NULL})));
  opens(of(make_pair(3, (struct coordinate){line(-3, 1), INSITU_I16, NULL}, whole)));
  opens(of(make_pair(3, whole, (struct coordinate){line(-3, 1), INSITU_F64, "\"units\":\"m\""})));
  /* packed: 0.5 * stored - 3 */
  static const char packed[] = "\"scale_factor\":0.5,\"add_offset\":-3";
  opens(of(make_pair(3, whole, (struct coordinate){line(0, 2), INSITU_I16, packed})));

  /* 6 hours are not 6 days, and no sample of one belongs to one of the other */
  struct coordinate hours = {line(0, 6), INSITU_I32, "\"units\":\"hours\""},
                    days = {line(0, 6), INSITU_I32, "\"units\":\"days\""};
  opens(of(make_pair(3, hours, hours)));
  insitu_loader_desc d = of(make_pair(3, hours, days));
  insitu_variable v[2] = {pair[0], pair[1]};
  d.variables = v;
  for (int i = 0; i < 2; i++) {
    REFUSED(d, INSITU_E_SHAPE, "b/time: its units are 'days', and those of a/time are 'hours'",
        "map = INSITU_BY_INDEX");
    v[1].map = INSITU_BY_COORDINATE;
  }
  v[1].map = INSITU_BY_INDEX;
  opens(d);

  double off[N];
  memcpy(off, whole.values, sizeof off);
  off[3] += 0x1p-40;
  REFUSED(of(make_pair(3, whole, (struct coordinate){off, INSITU_F64, NULL})), INSITU_E_SHAPE,
      "at index 3", "a/time is 0", "b/time is 9.0949470177292824e-13");
  off[3] = NAN;
  struct coordinate hole = {off, INSITU_F64, NULL};
  REFUSED(of(make_pair(3, hole, whole)), INSITU_E_SHAPE, "at index 3", "a/time is nan");
  opens(of(make_pair(3, hole, hole)));

  /* float64 holds no neighbours of 2^53: integers do */
  const double wide = 9007199254740992;
  struct coordinate even = {line(wide, 2), INSITU_I64, NULL};
  opens(of(make_pair(3, even, (struct coordinate){line(wide, 2), INSITU_F64, NULL})));
}

/* What a waiver does, and where none is needed. */
static void by_index(void **state) {
  (void)state;
  struct coordinate a = {line(0, 1), INSITU_I32, NULL}, b = {line(1, 1), INSITU_I32, NULL},
                    none = {NULL, 0, NULL};
  const char *root = make_pair(3, a, b);
  insitu_variable v[3] = {pair[0], pair[1], pair[1]};
  insitu_loader_desc d = of(root);
  d.variables = v;
  REFUSED(d, INSITU_E_SHAPE, "at index 0", "a/time is 0", "b/time is 1");
  for (int i = 0; i < 2; i++) {
    v[i].map = INSITU_BY_INDEX;
    opens(d);
    v[i].map = 0;
  }
  v[2].label = "again", v[2].map = INSITU_BY_INDEX, d.n_variables = 3;
  REFUSED(d, INSITU_E_ARG, "variables y and again show array b/y", "give both the same");
  v[1].map = INSITU_BY_INDEX;
  opens(d);
  v[1].map = 7;
  REFUSED(d, INSITU_E_ARG, "variable y: map is 7; use 0, INSITU_BY_INDEX");

  opens(of(make_pair(3, none, b)));
  opens(of(make_pair(2, a, none)));

  /* the coordinate of the root is everybody's who has none beside */
  root = make_pair(3, none, none);
  make_coordinate(root, "time", 3, a, N);
  opens(of(root));
  make_coordinate(root, "b/time", 3, b, N);
  REFUSED(of(root), INSITU_E_SHAPE, "coordinate time is 0 and coordinate b/time is 1");
}

/* Three groups: the first array with a coordinate is what the others are compared with. */
static void three(void **state) {
  (void)state;
  struct coordinate a = {line(0, 1), INSITU_I32, NULL}, b = {line(1, 1), INSITU_I32, NULL},
                    none = {NULL, 0, NULL};
  const char *root = make_pair(3, none, a);
  make_array(root, "c/z", 3, "[\"time\",\"v\"]");
  make_array(root, "c/more", 3, "[\"time\",\"v\"]");
  make_coordinate(root, "c/time", 3, b, N);
  insitu_variable v[4] = {pair[0], pair[1], {.path = "c/z"}, {.path = "c/more"}};
  insitu_loader_desc d = of(root);
  d.variables = v, d.n_variables = 4;
  REFUSED(d, INSITU_E_SHAPE, "arrays b/y and c/z", "at index 0");
  v[2].map = INSITU_BY_INDEX; /* its neighbour is compared all the same */
  REFUSED(d, INSITU_E_SHAPE, "arrays b/y and c/more", "at index 0");
  v[3].map = INSITU_BY_INDEX;
  opens(d);
}

/* Arrays side by side whose sample axes have different names have different coordinates. */
static void other_names(void **state) {
  (void)state;
  const char *root = support_path("names");
  make_array(root, "x", 3, "[\"time\",\"v\"]");
  make_array(root, "y", 3, "[\"valid\",\"v\"]");
  make_coordinate(root, "time", 3, (struct coordinate){line(0, 1), INSITU_I32, NULL}, N);
  make_coordinate(root, "valid", 3, (struct coordinate){line(5, 1), INSITU_I32, NULL}, N);
  insitu_variable v[2] = {{.path = "x"}, {.path = "y"}};
  insitu_loader_desc d = of(root);
  d.variables = v;
  REFUSED(d, INSITU_E_SHAPE, "coordinate time is 0 and coordinate valid is 5");
}

/* A coordinate that is there and cannot be read or is none is never taken for an absent one. */
static void broken(void **state) {
  (void)state;
  char path[600];
  struct coordinate a = {line(0, 1), INSITU_I32, NULL}, none = {NULL, 0, NULL};
  const char *root = make_pair(3, a, none);
  make_coordinate(root, "b/time", 3, a, N - 1);
  REFUSED(of(root), INSITU_E_SHAPE, "array b/y", "b/time: it has 11 values", "has 12 samples",
      "INSITU_BY_INDEX");

  root = make_pair(3, a, a);
  snprintf(path, sizeof path, "%s/b/time/c/1", root);
  support_write(path, "short", 5);
  REFUSED(of(root), INSITU_E_CORRUPT, "b/y", "b/time", "INSITU_BY_INDEX");
  insitu_loader_desc d = of(root);
  d.on_bad_chunk = INSITU_FILL;
  REFUSED(d, INSITU_E_CORRUPT, "b/time");

  root = make_pair(2, a, a);
  snprintf(path, sizeof path, "%s/b/time/.zarray", root);
  support_write(path, "{", 1);
  REFUSED(of(root), INSITU_E_JSON, "b/y", "coordinate time", "INSITU_BY_INDEX");

  /* two axes make no coordinate */
  root = make_pair(3, a, none);
  make_array(root, "b/time", 3, "[\"time\",\"v\"]");
  opens(of(root));

  root = make_pair(3, a, a);
  d = of(root);
  d.memory_budget = 100; /* not two coordinates of 96 bytes */
  REFUSED(d, INSITU_E_BUDGET, "a/time", "memory_budget");
}

/* A mask beside fields, whose first axis is taken for the samples: it should be fixed. */
static void masks(void **state) {
  (void)state;
  static const char hours[] = "\"units\":\"hours since 1979-01-01\"",
                    degrees[] = "\"units\":\"degrees_north\"";
  for (int coordinates = 0; coordinates < 2; coordinates++)
    for (int fixed = 0; fixed < 2; fixed++) {
      const char *root = support_path(coordinates ? "mask" : "bare_mask");
      struct support_array mask = {.name = "mask",
                               .ndim = 2,
                               .shape = {7, 3},
                               .chunk = {7, 3},
                               .dtype = INSITU_I32,
                               .format = 3,
                               .dims = "[\"lat\",\"v\"]"},
                           lat = {.name = "lat",
                               .ndim = 1,
                               .shape = {7},
                               .chunk = {7},
                               .dtype = INSITU_I32,
                               .format = 3,
                               .dims = "[\"lat\"]",
                               .attributes = degrees};
      make_array(root, "x", 3, "[\"time\",\"v\"]");
      support_make(root, &mask);
      if (coordinates) {
        support_make(root, &lat);
        make_coordinate(root, "time", 3, (struct coordinate){line(0, 6), INSITU_I32, hours}, N);
      }
      insitu_variable v[2] = {{.path = "x"}, {.path = "mask", .fixed = fixed}};
      insitu_loader_desc d = of(root);
      d.variables = v;
      if (fixed) opens(d);
      else
        REFUSED(d, INSITU_E_SHAPE,
            coordinates ? "those of time are 'hours since" : "not both have a coordinate",
            "array mask", "; or say fixed = 1 of its variable");
    }
}

/* Arrays of one length are matched by index where a coordinate cannot be compared; to join them by
 * it is an error. */
static void not_compared(void **state) {
  (void)state;
  static const char strings[] = "{\"zarr_format\":2,\"shape\":[12],\"chunks\":[12],\"dtype\":"
                                "\"|S4\",\"compressor\":null,\"fill_value\":null,\"order\":\"C\","
                                "\"filters\":null}";
  struct coordinate a = {line(0, 1), INSITU_I32, NULL}, none = {NULL, 0, NULL};
  for (int text = 0; text < 3; text++) { /* of a/x, of b/y, of both */
    const char *root = make_pair(2, a, a);
    char path[600];
    for (int i = 0; i < 2; i++) {
      snprintf(path, sizeof path, "%s/%s/time/.zarray", root, i ? "b" : "a");
      if (text == i || text == 2) support_write(path, strings, strlen(strings));
    }
    insitu_variable v[2] = {pair[0], pair[1]};
    insitu_loader_desc d = of(root);
    d.variables = v;
    opens(d);
    v[1].map = INSITU_BY_COORDINATE;
    REFUSED(d, INSITU_E_DTYPE, text == 1 ? "b/time" : "a/time", "INSITU_BY_INDEX");
  }

  /* the root's coordinate belongs to arrays of another length */
  const char *root = make_pair(3, none, a);
  make_coordinate(root, "time", 3, a, N - 1);
  opens(of(root));
}

/* Arrays a/x of N samples and b/y of another number, with their coordinates. */
static const char *make_uneven(struct coordinate a, struct coordinate b, uint64_t n) {
  static int turn;
  char name[32];
  snprintf(name, sizeof name, "uneven%d", turn++);
  const char *root = support_path(name);
  make_array(root, "a/x", 3, "[\"time\",\"v\"]");
  const struct support_array y = {.name = "b/y",
      .ndim = 2,
      .shape = {n, 3},
      .chunk = {5, 3},
      .dtype = INSITU_I32,
      .format = 3,
      .dims = "[\"time\",\"v\"]"};
  support_make(root, &y);
  if (a.values) make_coordinate(root, "a/time", 3, a, N);
  if (b.values) make_coordinate(root, "b/time", 3, b, n);
  return root;
}

/* Maps that make no sense, and coordinates that none can be made of. */
static void no_map(void **state) {
  (void)state;
  struct coordinate none = {NULL, 0, NULL}, up = {line(0, 1), INSITU_I32, NULL},
                    down = {line(20, -1), INSITU_I32, NULL}, far = {line(100, 1), INSITU_F64, NULL};
  double wild[N] = {0, 1, 2, 2, 3, 4, 5, 6};
  const char *root = make_uneven(up, none, 7);
  insitu_variable v[2] = {pair[0], pair[1]};
  insitu_loader_desc d = of(root);
  d.variables = v;
  REFUSED(d, INSITU_E_SHAPE, "array a/x has 12 samples and array b/y has 7",
      "map = INSITU_BY_INDEX", "rate", "array b/y");
  v[1].map = INSITU_BY_COORDINATE;
  REFUSED(d, INSITU_E_NOTFOUND, "array b/y: map is INSITU_BY_COORDINATE", "no coordinate",
      "INSITU_BY_INDEX");
  v[1].map = INSITU_BY_INDEX;
  opens(d);
  v[1].rate = -2;
  opens(d);
  v[1].map = INSITU_BY_INDEX_FLOOR;
  opens(d);
  v[1].rate = 2;
  REFUSED(d, INSITU_E_ARG, "variable y", "nothing is rounded");
  v[1].map = 0;
  REFUSED(d, INSITU_E_ARG, "variable y: rate is 2", "only with map = INSITU_BY_INDEX");
  v[1].map = INSITU_BY_INDEX, v[1].rate = (INT64_C(1) << 48) + 1;
  REFUSED(d, INSITU_E_ARG, "variable y: rate is 281474976710657");
  v[1].rate = INT64_MIN;
  REFUSED(d, INSITU_E_ARG, "variable y: rate is -9223372036854775808");
  v[1].rate = INT64_C(1) << 48;
  opens(d); /* the first anchor alone has a partner */
  v[1].rate = 0, v[0].map = INSITU_BY_INDEX, v[0].rate = -1;
  REFUSED(d, INSITU_E_ARG, "variable x", "name a variable of another array first");
  v[0].map = INSITU_BY_COORDINATE, v[0].rate = 0;
  REFUSED(d, INSITU_E_ARG, "variable x", "name a variable of another array first");

  opens(of(make_uneven(up, up, 7)));
  opens(of(make_uneven(down, down, 7)));
  REFUSED(of(make_uneven(up, far, 7)), INSITU_E_SHAPE, "no sample of one has a partner",
      "a/time goes from 0 to 11", "b/time from 100 to 106", "INSITU_BY_INDEX");
  REFUSED(of(make_uneven(up, down, 7)), INSITU_E_SHAPE,
      "b/time: its values fall, and those of a/time"
      " rise",
      "INSITU_BY_INDEX");
  REFUSED(of(make_uneven(up, (struct coordinate){wild, INSITU_I32, NULL}, 7)), INSITU_E_FORMAT,
      "b/time: its values neither rise nor fall throughout, see index 3", "INSITU_BY_INDEX");
  REFUSED(of(make_uneven((struct coordinate){wild, INSITU_I32, NULL}, up, 7)), INSITU_E_FORMAT,
      "a/time: its values neither rise nor fall");

  /* of one length: joined where that is said */
  root = make_pair(3, up, (struct coordinate){line(3, 1), INSITU_I64, NULL});
  d = of(root);
  d.variables = v;
  v[0].map = 0;
  v[1] = (insitu_variable){.path = "b/y", .map = INSITU_BY_COORDINATE};
  d.batch_size = 1;
  insitu_loader *ld = open_or_fail(&d);
  insitu_plan plan;
  insitu_error err;
  assert_int_equal(insitu_loader_plan(ld,
                       &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &plan, &err),
      INSITU_OK);
  assert_int_equal(plan.samples, N - 3);
  assert_int_equal(plan.dropped[INSITU_DROP_NO_PARTNER], 3);
  insitu_loader_close(&ld);

  /* one folder has one coordinate, which cannot have two lengths */
  root = support_path("folder");
  make_array(root, "x", 3, "[\"time\",\"v\"]");
  make_coordinate(root, "y", 3, up, 7);
  make_coordinate(root, "time", 3, up, N);
  v[0].path = "x", v[1] = (insitu_variable){.path = "y"};
  d = of(root);
  d.variables = v;
  REFUSED(d, INSITU_E_SHAPE, "array y", "time: it has 12 values", "has 7 samples");
}

/* Every axis that samples are drawn along is compared; maps are along the split's. */
static void several_axes(void **state) {
  (void)state;
  struct coordinate up = {line(0, 1), INSITU_I32, NULL}, off = {line(1, 1), INSITU_I32, NULL};
  const char *root = make_pair(3, up, up);
  const double leads[] = {0, 6, 12}, others[] = {0, 12, 24};
  make_coordinate(root, "a/v", 3, (struct coordinate){leads, INSITU_I32, NULL}, 3);
  make_coordinate(root, "b/v", 3, (struct coordinate){leads, INSITU_F32, NULL}, 3);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "v"}};
  insitu_variable v[2] = {pair[0], pair[1]};
  insitu_loader_desc d = of(root);
  d.variables = v, d.axes = axes, d.n_axes = 2;
  opens(d);
  make_coordinate(root, "b/v", 3, (struct coordinate){others, INSITU_F32, NULL}, 3);
  REFUSED(d, INSITU_E_SHAPE, "at index 1 coordinate a/v is 6 and coordinate b/v is 12");
  v[1].map = INSITU_BY_INDEX;
  opens(d);
  v[1].rate = 2;
  opens(d);
  make_coordinate(root, "b/v", 3, (struct coordinate){leads, INSITU_F32, NULL}, 3);
  make_coordinate(root, "b/time", 3, off, N);
  v[1].map = INSITU_BY_COORDINATE, v[1].rate = 0;
  opens(d);
  d.split_axis = 1; /* now time is one of the others */
  REFUSED(d, INSITU_E_SHAPE, "at index 0 coordinate a/time is 0 and coordinate b/time is 1");

  /* lengths may differ along one axis alone */
  struct coordinate none = {NULL, 0, NULL};
  d.url = make_uneven(up, none, 7);
  v[1].map = INSITU_BY_INDEX;
  for (int i = 0; i < 2; i++, v[1].map = 0)
    REFUSED(d, INSITU_E_SHAPE, "axes[0] has 12 indexes in array a/x and 7 in array b/y",
        "along one axis alone, which desc.split_axis names");
  d.split_axis = 0;
  REFUSED(d, INSITU_E_SHAPE, "not both have a coordinate", "map = INSITU_BY_INDEX, and rate, in");
  v[1].map = INSITU_BY_INDEX;
  opens(d);
  d.url = make_uneven(up, up, 7);
  v[1].map = 0;
  opens(d);
  const insitu_axis patched[] = {{.dim = "time"}, {.dim = "v", .patch = 2}};
  d.axes = patched;
  opens(d);
}

/* Axes with a patch are compared as well: other grids of one length do not go together. */
static void patches(void **state) {
  (void)state;
  struct coordinate up = {line(0, 1), INSITU_I32, NULL};
  const char *root = make_pair(3, up, up);
  const double lats[] = {0.1, 0.2, 0.7}, others[] = {0.1, 0.2, 0.7000001};
  make_coordinate(root, "a/v", 3, (struct coordinate){lats, INSITU_F64, NULL}, 3);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "v", .patch = 2}};
  insitu_variable v[2] = {pair[0], pair[1]};
  insitu_loader_desc d = of(root);
  d.variables = v, d.axes = axes, d.n_axes = 2, d.patches = 1;
  opens(d);
  make_coordinate(root, "b/v", 3, (struct coordinate){lats, INSITU_F64, NULL}, 3);
  opens(d);
  make_coordinate(root, "b/v", 3, (struct coordinate){lats, INSITU_F32, NULL}, 3);
  opens(d); /* the same numbers, rounded */
  make_coordinate(root, "b/v", 3, (struct coordinate){others, INSITU_F32, NULL}, 3);
  for (int patched = 0; patched < 2; patched++) {
    const insitu_axis index[] = {{.dim = "time"}, {.dim = "v"}};
    d.axes = patched ? axes : index, d.patches = (uint64_t)patched;
    REFUSED(d, INSITU_E_SHAPE, "arrays a/x and b/y", "at index 2 coordinate a/v is 0.69999",
        "or say in the variables of array b/y what belongs together: samples with equal indexes");
    v[1].map = INSITU_BY_COORDINATE; /* joins along time alone */
    REFUSED(d, INSITU_E_SHAPE, "at index 2 coordinate a/v is 0.69999");
    v[1].map = INSITU_BY_INDEX;
    opens(d);
    v[1].map = 0;
  }
  make_coordinate(root, "b/v", 3, (struct coordinate){others, INSITU_F64, NULL}, 3);
  REFUSED(d, INSITU_E_SHAPE, "at index 2 coordinate a/v is 0.69999");

  /* what cannot be compared there is no hindrance to join along time */
  static const char strings[] = "{\"zarr_format\":2,\"shape\":[3],\"chunks\":[3],\"dtype\":"
                                "\"|S4\",\"compressor\":null,\"fill_value\":null,\"order\":\"C\","
                                "\"filters\":null}";
  char path[600];
  root = make_pair(2, up, up);
  make_coordinate(root, "a/v", 2, (struct coordinate){lats, INSITU_F64, NULL}, 3);
  make_coordinate(root, "b/v", 2, (struct coordinate){lats, INSITU_F64, NULL}, 3);
  snprintf(path, sizeof path, "%s/b/v/.zarray", root);
  support_write(path, strings, strlen(strings));
  d.url = root;
  v[1].map = INSITU_BY_COORDINATE;
  opens(d);
}

/* Requests that opening an archive takes. */
static uint64_t requests(insitu_loader_desc d) {
  insitu_loader *ld = open_or_fail(&d);
  insitu_error err;
  insitu_stats stats;
  assert_int_equal(insitu_loader_stats(ld, &stats, &err), INSITU_OK);
  insitu_loader_close(&ld);
  return stats.http_requests;
}

/* Nothing is asked for where arrays share a coordinate, or it is waived. */
static void remote(void **state) {
  (void)state;
  struct server *server = server_start(&(struct server_options){.folder = support_dir});
  for (int format = 2; format <= 3; format++) {
    char url[300], name[32];
    struct coordinate a = {line(0, 1), INSITU_I32, NULL};
    const char *root = make_pair(format, a, a);
    make_array(root, "a/y", format, "[\"time\",\"v\"]");
    snprintf(name, sizeof name, "%s", strrchr(root, '/') + 1);
    snprintf(url, sizeof url, "%s/%s", server_url(server, ""), name);
    insitu_variable v[2] = {{.path = "a/x"}, {.path = "a/y"}};
    insitu_loader_desc d = of(url);
    d.variables = v;
    uint64_t shared = requests(d);
    v[0].map = v[1].map = INSITU_BY_INDEX;
    assert_int_equal(requests(d), shared);

    v[1].path = "b/y";
    uint64_t waived = requests(d);
    v[0].map = v[1].map = 0;
    uint64_t compared = requests(d);
    /* for each coordinate: metadata, once to know and once to read; two chunks; and the metadata of
     * the root's, which is asked for with the others */
    uint64_t metadata = format == 2 ? 2 : 1;
    assert_int_equal(compared - waived, 2 * (2 * metadata + 2) + metadata);
  }
  server_stop(&server);
}

/* One loader, not two: an image and its mask whose axes have other numbers, chunked otherwise, show
 * one plane in each row. */
static void image_and_mask(void **state) {
  (void)state;
  enum { Z = 23, Y = 4, X = 5 };
  for (int format = 2; format <= 3; format++) {
    const char *root = support_path(format == 2 ? "image2" : "image3");
    struct support_array image = {.name = "image",
                             .ndim = 4,
                             .shape = {2, Z, Y, X},
                             .chunk = {1, 1, Y, X},
                             .dtype = INSITU_I32,
                             .format = format,
                             .dims = "[\"c\",\"z\",\"y\",\"x\"]"},
                         mask = {.name = "labels/mask",
                             .ndim = 3,
                             .shape = {Z, Y, X},
                             .chunk = {4, 3, X},
                             .dtype = INSITU_I32,
                             .format = format,
                             .dims = "[\"z\",\"y\",\"x\"]"};
    support_make(root, &image);
    support_make(root, &mask);
    insitu_variable v[2] = {{.path = "image"}, {.path = "labels/mask"}};
    insitu_loader_desc d = of(root);
    d.variables = v, d.sample_dim = "z", d.plan_only = 0;
    EACH_MODE (m) {
      d.io = modes[m].io, d.inline_io = modes[m].inline_io;
      insitu_loader *ld = open_or_fail(&d);
      insitu_iter *it =
          open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL});
      insitu_batch *b;
      insitu_error err = {0};
      uint64_t seen = 0;
      while (insitu_iter_next(it, 20000, &b, &err) == INSITU_OK) {
        support_check_array(b, 0, &v[0], &image, 1);
        support_check_array(b, 1, &v[1], &mask, 0);
        seen += b->rows;
        insitu_batch_release(&b);
      }
      assert_int_equal(err.status, 0);
      assert_int_equal(seen, Z);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }

    /* by number alone the axes are others */
    d.sample_dim = NULL;
    REFUSED(d, INSITU_E_SHAPE, "array image has 2 samples and array labels/mask has 23");
  }
}

/* The memory of a map (of two runs: without partners, and with them) is told by its name, and
 * counts where chunks in flight need the rest. */
static void map_bytes(void **state) {
  (void)state;
  struct coordinate a = {line(0, 1), INSITU_I32, NULL}, b = {line(3, 1), INSITU_I32, NULL};
  insitu_variable v[2] = {pair[0], pair[1]};
  v[1].map = INSITU_BY_COORDINATE;
  insitu_loader_desc d = of(make_pair(3, a, b));
  d.variables = v;
  d.plan_only = 0;
  d.inline_io = 1;
  static char json[1 << 16];
  insitu_stats stats;
  d.max_inflight = 4;
  insitu_loader *ld = open_or_fail(&d);
  assert_true(insitu_loader_describe(ld, json, sizeof json) < sizeof json);
  const char *memory = strstr(json, "\"memory\": {");
  assert_non_null(memory);
  assert_non_null(strstr(memory, "\"slabs\": 0, "));
  if (!strstr(memory, "\"coordinates\": 0, \"maps\": 64, ")) fail_msg("%s", memory);
  assert_int_equal(insitu_loader_stats(ld, &stats, NULL), INSITU_OK);
  insitu_loader_close(&ld);

  d.memory_budget = stats.memory_promised - 1;
  REFUSED(d, INSITU_E_BUDGET, "maps of samples 64 bytes", "raise memory_budget");
  d.memory_budget++;
  opens(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dates), cmocka_unit_test(map_bytes),
      cmocka_unit_test(numbers), cmocka_unit_test(by_index), cmocka_unit_test(three),
      cmocka_unit_test(other_names), cmocka_unit_test(broken), cmocka_unit_test(masks),
      cmocka_unit_test(not_compared), cmocka_unit_test(no_map), cmocka_unit_test(several_axes),
      cmocka_unit_test(patches), cmocka_unit_test(remote), cmocka_unit_test(image_and_mask)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
