/* Runs the command insitu that was built in linked/ beside the test program, and keeps what it
 * printed. Needs support.h. */
#ifndef TESTS_RUN_TOOL_H
#define TESTS_RUN_TOOL_H
static char *run_out, *run_err; /* stdout and stderr of the last run */

static inline char *run_slurp(const char *path) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t n = 0, cap = 1 << 16;
  char *text = malloc(cap);
  for (size_t got; (got = fread(text + n, 1, cap - n - 1, f)) > 0;) {
    n += got;
    if (n + 1 == cap) text = realloc(text, cap *= 2);
  }
  text[n] = 0;
  fclose(f);
  return text;
}
/* The arguments as a shell takes them; returns the exit status. before: variables of the
 * environment, such as "INSITU_IO=epoll". */
__attribute__((format(printf, 2, 3))) static inline int run_tool_with(
    const char *before, const char *format, ...) {
  char tool[600], words[4000], line[6000], out[300], err[300];
  va_list args;
  ssize_t n = readlink("/proc/self/exe", tool, sizeof tool - 1);
  assert_true(n > 0);
  tool[n] = 0;
  *strrchr(tool, '/') = 0;
  va_start(args, format);
  vsnprintf(words, sizeof words, format, args);
  va_end(args);
  snprintf(out, sizeof out, "%.256s/run.out", support_dir);
  snprintf(err, sizeof err, "%.256s/run.err", support_dir);
  snprintf(line, sizeof line, "%s '%s/linked/insitu' %s >'%s' 2>'%s' </dev/null", before, tool,
      words, out, err);
  int status = system(line);
  free(run_out);
  free(run_err);
  run_out = run_slurp(out);
  run_err = run_slurp(err);
  if (!WIFEXITED(status)) fail_msg("insitu %s: killed\n%s", words, run_err);
  return WEXITSTATUS(status);
}
#define run_tool(...) run_tool_with("", __VA_ARGS__)
/* stored bytes are counted to the end, however busy the machine is */
#define ALL_SIZES "--size-seconds 1000"
#define assert_has(text, part)                                                                     \
  do {                                                                                             \
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);                          \
  } while (0)
#endif
