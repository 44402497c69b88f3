/* What the command insitu draws: the page of `insitu plan --html`, and the pictures of `insitu
 * peek`, whose pixels are read back by a decoder of this test's own. */
#include "insitubatch.h"
#include "support.h"
#include "run_tool.h"
#include <zlib.h>
#define WINDS "examples/data/winds.zarr"

static unsigned count(const char *text, const char *part) {
  unsigned n = 0;
  for (; (text = strstr(text, part)); text++) n++;
  return n;
}

/* ---- the page ---- */

static void test_page(void **state) {
  (void)state;
  char page[300];
  snprintf(page, sizeof page, "%s", support_path("plan.html"));
  assert_int_equal(
      run_tool("plan %s --var x=uwnd,y=uwnd@1 --split train --html %s", WINDS, page), 0);
  assert_string_equal(run_out, "");
  char *text = run_slurp(page);
  assert_int_equal(strncmp(text, "<!doctype html>", 15), 0);
  assert_has(text, "</main></html>\n");
  /* 96 rows are delivered, and each is a dot */
  assert_int_equal(count(text, "h0\" stroke="), 96);
  assert_has(text, "96 samples, 3 batches of 32 rows");
  assert_int_equal(count(text, "<svg "), count(text, "</svg>"));
  assert_int_equal(count(text, "<section"), count(text, "</section>"));
  /* one file: nothing is fetched */
  assert_int_equal(count(text, "http"), 0);
  assert_int_equal(count(text, "<script"), 0);
  assert_int_equal(count(text, "nan"), 0);
  free(text);

  /* of the first split that can be planned; ranks have colors */
  assert_int_equal(
      run_tool("plan %s --var uwnd --world 2 --lanes 2 --batch-size 8 --html %s", WINDS, page), 0);
  text = run_slurp(page);
  assert_has(text, "the split train");
  assert_has(text, "Colors are ranks.");
  assert_has(text, "h0\" stroke=\"var(--blue)\"");
  assert_has(text, "h0\" stroke=\"var(--amber)\"");
  free(text);
}

/* The page, the table and the JSON begin with what limits and the knob to turn. */
static void test_headline(void **state) {
  (void)state;
  static const struct {
    const char *options, *limit, *says;
    int code;
  } plans[] = {{"--var x=uwnd,y=uwnd@1", "nothing", "Nothing in the plan limits it: ", 0},
      {"--var x=uwnd --memory-budget 1Mi", "memory",
          "The split train is limited by memory: it needs ", 3},
      {"--var x=uwnd@-6:1,y=uwnd@1:13 --unit-chunks 1 --block-chunks 2 --batch-size 4", "reads",
          "The split train is limited by chunks that are decoded again: every chunk is ", 0}};
  char page[300], limit[60];
  snprintf(page, sizeof page, "%s", support_path("headline.html"));
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    const char *options = plans[i].options, *says = plans[i].says;
    int code = plans[i].code;
    assert_int_equal(run_tool("plan %s %s --split train --html %s", WINDS, options, page), code);
    char *text = run_slurp(page), *first = strstr(text, "<p>");
    assert_non_null(first);
    assert_int_equal(strncmp(first + 3, says, strlen(says)), 0);
    assert_int_equal(count(text, says), 1);
    free(text);
    assert_int_equal(run_tool("plan %s %s --split train", WINDS, options), code);
    assert_int_equal(strncmp(run_out, "! ", 2), 0);
    assert_int_equal(strncmp(run_out + 2, says, strlen(says)), 0);
    assert_int_equal(run_tool("plan %s %s --split train --json", WINDS, options), code);
    snprintf(limit, sizeof limit, "\"limited_by\": \"%s\"", plans[i].limit);
    assert_has(run_out, limit);
  }

  /* a split that is not large enough for a batch comes first, one that is meant to be empty not */
  assert_int_equal(
      run_tool("plan %s --var uwnd --fractions 0.1,0.5,0.4 --batch-size 16 --html %s", WINDS, page),
      1);
  char *text = run_slurp(page);
  assert_has(text, "<section class=\"card wide head warn\"><p>The split train cannot be read: ");
  free(text);
  assert_int_equal(
      run_tool("plan %s --var uwnd --fractions 0.1,0.5,0.4 --batch-size 16", WINDS), 1);
  assert_int_equal(strncmp(run_out, "! The split train cannot be read: ", 34), 0);
  assert_int_equal(count(run_out, "can be drawn of"), 1);
  assert_int_equal(
      run_tool("plan %s --var uwnd --fractions 0.1,0.5,0.4 --batch-size 16 --json", WINDS), 1);
  assert_has(run_out, "\"limited_by\": \"error\"");
  assert_int_equal(run_tool("plan %s --var uwnd --fractions 0,0,1 --json", WINDS), 0);
  assert_has(run_out, "\"limited_by\": \"nothing\"");
  assert_has(run_out, "\"headline\": \"The split train is given no samples. Nothing in the plan ");
  assert_int_equal(run_tool("plan %s --var uwnd --fractions 1,0,0 --json", WINDS), 0);
  assert_has(run_out, "\"limited_by\": \"nothing\"");
}

/* What limits a later split alone is not taken for all of the plan. */
static void test_later_split(void **state) {
  (void)state;
  const char *job = "--var x=uwnd,y=uwnd@1 --batch-size 4 --decode-threads 1 --max-inflight 2";
  const char *says = "Nothing in the plan limits the split train. The split val is limited by "
                     "chunks that are decoded again: every chunk is decoded up to 1.45 times. ";
  assert_int_equal(run_tool("plan %s %s --block-chunks 2 --fractions 0.1,0.9,0", WINDS, job), 0);
  assert_int_equal(strncmp(run_out + 2, says, strlen(says)), 0);
  /* what limits train comes before what limits others more */
  assert_int_equal(run_tool("plan %s %s --block-chunks 1 --fractions 0.5,0.5,0", WINDS, job), 0);
  assert_int_equal(strncmp(run_out + 2, "The split train is limited by ", 30), 0);
  /* each iterator fits, and both at once do not */
  assert_int_equal(
      run_tool("plan %s %s --fractions 0.4,0.4,0.2 --memory-budget 31Mi", WINDS, job), 0);
  assert_has(run_out, "! Little limits it: iterators over all splits at once need ");
  assert_int_equal(
      run_tool("plan %s %s --fractions 0.4,0.4,0.2 --split train --memory-budget 31Mi", WINDS, job),
      0);
  assert_null(strstr(run_out, "at once"));
}

/* Splits that are given nothing have a line; those whose share came to nothing a message. */
static void test_empty_splits(void **state) {
  (void)state;
  assert_int_equal(run_tool("plan %s --var uwnd --fractions 1,0,0", WINDS), 0);
  assert_has(run_out, "\nval, test: no samples, as the split was given\n");
  assert_null(strstr(run_out, "can be drawn of"));
  assert_int_equal(run_tool("plan %s --var uwnd --ranges 0:60,60:80", WINDS), 0);
  assert_has(run_out, "\ntest: no samples, as the split was given\n");
  assert_int_equal(run_tool("plan %s --var uwnd --fractions 0.99,0.01,0", WINDS), 0);
  assert_has(run_out, "! split val: 0 samples can be drawn");
  assert_has(run_out, "\ntest: no samples, as the split was given\n");
  assert_int_equal(run_tool("plan %s --var uwnd --fractions 1,0,0 --split val", WINDS), 1);
  assert_has(run_err, "0 samples can be drawn");
}

/* Windows share chunks that are kept, so that the plan's reads are a bound. */
static void test_bounds(void **state) {
  (void)state;
  const char *text = "{\"url\": \"" WINDS "\", \"variables\": [\"uwnd\"], \"assembly\": \"%s\"}";
  char document[300], page[300];
  snprintf(page, sizeof page, "%s", support_path("bounds.html"));
  for (int i = 0; i < 2; i++) {
    snprintf(document, sizeof document, text, i ? "gather" : "scatter");
    support_write(support_path("assembly.json"), document, strlen(document));
    assert_int_equal(run_tool("plan --config %s", support_path("assembly.json")), 0);
    assert_true(!strstr(run_out, "chunks read, at most ") == !i);
    assert_true(!strstr(run_out, "amplification, at most ") == !i);
    assert_true(!strstr(run_out, "decodes of each, at most ") == !i);
    assert_true(!strstr(run_out, "dedup, at least ") == !i);
    assert_int_equal(
        run_tool("plan --config %s --html %s", support_path("assembly.json"), page), 0);
    char *on_page = run_slurp(page);
    assert_true(!strstr(on_page, "times each chunk is decoded, at most; 1 is best<") == !i);
    assert_true(!strstr(on_page, "chunks read in an epoch by this rank, at most<") == !i);
    assert_true(!strstr(on_page, "<td>chunks read, at most</td>") == !i);
    assert_true(!strstr(on_page, "reads are repeated: windows share chunks that are kept.") == !i);
    assert_has(on_page, "<td>- too few for a last batch</td><td>12</td>");
    free(on_page);
  }
  /* what is not known is no 0 on the page: an ordered split has no variance ratio */
  assert_int_equal(run_tool("plan %s --var uwnd --split val --html %s", WINDS, page), 0);
  char *on_page = run_slurp(page);
  assert_has(on_page, "<td>variance ratio, 1 is ideal</td><td>-</td>");
  assert_null(strstr(on_page, "<td>0.000</td>"));
  free(on_page);
}

/* A name of an archive is text on the page, whatever it holds. */
static void test_page_escapes(void **state) {
  (void)state;
  char page[300], link[300], archive[400];
  snprintf(page, sizeof page, "%s", support_path("escape.html"));
  snprintf(link, sizeof link, "%s", support_path("<img src=x>&"));
  assert_non_null(realpath(WINDS, archive));
  assert_int_equal(symlink(archive, link), 0);
  assert_int_equal(run_tool("plan '%s' --var uwnd --html %s", link, page), 0);
  char *text = run_slurp(page);
  assert_int_equal(count(text, "<img"), 0);
  assert_has(text, "&lt;img src=x>&amp;");
  free(text);
}

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void test_page_list(void **state) {
  (void)state;
  char page[300], list[300];
  snprintf(page, sizeof page, "%s", support_path("list.html"));
  snprintf(list, sizeof list, "%s", support_path("list.json"));
  assert_int_equal(run_tool("plan %s --var uwnd --html %s", WINDS, page), 0);
  char *text = run_slurp(page);
  assert_null(strstr(text, "absent chunks"));
  free(text);

  write_text(list, "{\"excluded\": [{\"start\": 10, \"stop\": 14, \"reason\": \"bad\"}],"
                   " \"chunks\": [{\"start\": 60, \"stop\": 61, \"absent\": 1, \"bad\": 0}]}");
  assert_int_equal(run_tool("plan %s --var uwnd --html %s --marks %s", WINDS, page, list), 0);
  text = run_slurp(page);
  assert_has(text, "bad or excluded");
  assert_has(text, "absent chunks");
  assert_has(text, "5 of them are in ");
  free(text);

  /* ranges that make no sense paint nothing */
  write_text(list,
      "{\"excluded\": [{\"start\": -4, \"stop\": 3}, {\"start\": 1e300}, {\"start\": 9, "
      "\"stop\": 1}, 5, \"x\"], \"chunks\": 7}");
  assert_int_equal(run_tool("plan %s --var uwnd --html %s --marks %s", WINDS, page, list), 0);
  text = run_slurp(page);
  assert_has(text, "0 of them are in ");
  free(text);

  write_text(list, "{\"excluded\": [");
  assert_int_equal(run_tool("plan %s --var uwnd --html %s --marks %s", WINDS, page, list), 1);
  assert_has(run_err, "list.json");
  assert_int_equal(run_tool("plan %s --var uwnd --html %s/none/x.html", WINDS, support_dir), 1);
  assert_has(run_err, "none/x.html");
}

/* ---- pictures ---- */

struct picture {
  uint64_t wide, high;
  unsigned char *rgb; /* each row behind a byte that names its filter */
};

static uint64_t word(const unsigned char *p) {
  return (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | p[3];
}

/* Reads what peek writes: one IHDR, one IDAT of 8-bit RGB, one IEND, each with its checksum. */
static struct picture read_png(const char *path) {
  struct picture p = {0};
  unsigned char file[1 << 20];
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t n = fread(file, 1, sizeof file, f);
  fclose(f);
  assert_true(n > 60 && n < sizeof file);
  assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
  static const char *const types[] = {"IHDR", "IDAT", "IEND"};
  size_t at = 8;
  for (int i = 0; i < 3; i++) {
    uint64_t length = word(file + at);
    assert_true(at + 12 + length <= n);
    assert_memory_equal(file + at + 4, types[i], 4);
    assert_int_equal(crc32(0, file + at + 4, (uInt)(4 + length)), word(file + at + 8 + length));
    if (i == 0) {
      p.wide = word(file + at + 8);
      p.high = word(file + at + 12);
      assert_memory_equal(file + at + 16, "\x8\x2\0\0", 5);
      p.rgb = malloc(p.high * (1 + 3 * p.wide));
    } else if (i == 1) {
      uLongf got = p.high * (1 + 3 * p.wide);
      assert_int_equal(uncompress(p.rgb, &got, file + at + 8, length), Z_OK);
      assert_int_equal(got, p.high * (1 + 3 * p.wide));
    }
    at += 12 + length;
  }
  assert_int_equal(at, n);
  return p;
}

static const unsigned char *pixel(const struct picture *p, uint64_t y, uint64_t x) {
  assert_int_equal(p->rgb[y * (1 + 3 * p->wide)], 0);
  return p->rgb + y * (1 + 3 * p->wide) + 1 + 3 * x;
}

static void write_raw(const char *name, const char *head, const void *bytes, size_t n) {
  char path[400];
  snprintf(path, sizeof path, "%s/%s", support_dir, name);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "%s/%s/.zarray", support_dir, name);
  write_text(path, head);
  snprintf(path, sizeof path, "%s/%s/0.0", support_dir, name);
  FILE *f = fopen(path, "wb");
  assert_int_equal(fwrite(bytes, 1, n, f), n);
  fclose(f);
}

static void test_peek(void **state) {
  (void)state;
  const float values[2][3] = {{-2, 0, 1}, {NAN, 2, -1}};
  write_raw("signs.zarr",
      "{\"zarr_format\": 2, \"shape\": [2, 3], \"chunks\": [2, 3], \"dtype\": \"<f4\", "
      "\"compressor\": null, \"filters\": null, \"order\": \"C\", \"fill_value\": 0}",
      values, sizeof values);
  char png[300], archive[300];
  snprintf(png, sizeof png, "%s", support_path("signs.png"));
  snprintf(archive, sizeof archive, "%s", support_path("signs.zarr"));
  assert_int_equal(run_tool("peek %s -o %s", archive, png), 0);
  assert_has(run_out, "colors from -2 to 2, 1 NaN in grey");
  struct picture p = read_png(png);
  uint64_t zoom = p.wide / 3; /* small fields are enlarged, by one number in both directions */
  assert_true(zoom > 50 && p.wide == 3 * zoom && p.high == 2 * zoom);
  static const unsigned char want[2][3][3] = {{{0, 0, 191}, {255, 255, 255}, {223, 128, 128}},
      {{128, 128, 128}, {191, 0, 0}, {128, 128, 223}}};
  for (uint64_t y = 0; y < p.high; y++)
    for (uint64_t x = 0; x < p.wide; x++)
      assert_memory_equal(pixel(&p, y, x), want[y / zoom][x / zoom], 3);
  free(p.rgb);

  /* the first row at the bottom; a range of one's own, of positive values: dark to light */
  assert_int_equal(run_tool("peek %s -o %s --up --range 0:2", archive, png), 0);
  p = read_png(png);
  assert_memory_equal(pixel(&p, 0, 0), want[1][0], 3);
  static const unsigned char black[3] = {0, 0, 0}, white[3] = {255, 255, 255};
  assert_memory_equal(pixel(&p, 0, p.wide - 1), black, 3); /* -1 */
  assert_memory_equal(pixel(&p, 0, p.wide / 2), white, 3); /* 2 */
  assert_memory_equal(pixel(&p, p.high - 1, 0), black, 3); /* -2 */
  free(p.rgb);
}

static void test_peek_fields(void **state) {
  (void)state;
  char png[300];
  snprintf(png, sizeof png, "%s", support_path("winds.png"));
  assert_int_equal(run_tool("peek %s uwnd --select 'time=[0:3]' -o %s", WINDS, png), 0);
  assert_has(run_out, "(3, 73, 144)");
  assert_has(run_out, "3 of 3 fields");
  struct picture p = read_png(png);
  assert_true(p.wide >= 144 && p.high >= 73);
  free(p.rgb);
  assert_int_equal(
      run_tool("peek %s --var x=uwnd,y=uwnd@1 --batch-size 4 --batch 0,1 -a y -o %s", WINDS, png),
      0);
  assert_has(run_out, "y: float32 (4, 73, 144)");
  free(read_png(png).rgb);
  /* a line is a field of one row */
  assert_int_equal(run_tool("peek %s lat -o %s", WINDS, png), 0);
  p = read_png(png);
  assert_int_equal(p.wide % 73, 0);
  free(p.rgb);
}

static void test_peek_wrong(void **state) {
  (void)state;
  assert_int_equal(run_tool("peek %s uwnd", WINDS), 2);
  assert_has(run_err, "-o FILE is missing");
  assert_int_equal(run_tool("peek %s uwnd -o %s/none/x.png", WINDS, support_dir), 1);
  assert_has(run_err, "none/x.png");
  assert_int_equal(run_tool("peek %s uwnd -o x.jpg", WINDS), 2);
  assert_has(run_err, "the picture is a PNG; name it .png");
  assert_int_equal(run_tool("peek %s uwnd -o x.png --range 5", WINDS), 2);
  assert_has(run_err, "LOW:HIGH");
  assert_int_equal(run_tool("peek %s --var uwnd --batch 0,0 -a v -o x.png", WINDS), 2);
  assert_has(run_err, "no such array");
  assert_int_equal(access("x.png", F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_page),
      cmocka_unit_test(test_headline),
      cmocka_unit_test(test_empty_splits),
      cmocka_unit_test(test_later_split),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_page_escapes),
      cmocka_unit_test(test_page_list),
      cmocka_unit_test(test_peek),
      cmocka_unit_test(test_peek_fields),
      cmocka_unit_test(test_peek_wrong),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
