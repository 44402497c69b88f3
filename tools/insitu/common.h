/* What every subcommand shares: options and help, messages, numbers, a progress bar, JSON output,
 * and an archive opened for inspection. Results go to stdout, everything else to stderr; color and
 * bars only where a person looks on. */
#include "../../examples/08_extension_codecs.c" /* every command decodes with these, too */

/* Exit codes: 0 fine, 1 the archive or the run failed, 2 wrong usage, 3 (plan) opening the
 * configuration would be refused,
 * 4 (verify) not one chunk is stored. */
enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_REFUSED = 3, TOOL_EMPTY = 4 };
enum { TOOL_GO_ON = -1 }; /* of tool_parse: the arguments are read, nothing was printed */

struct tool_option {
  const char *name;       /* without the dashes */
  char letter;            /* 0: has no short form */
  const char *value_name; /* NULL: a flag */
  const char *help;
  const char **value; /* flag: set to "1"; given twice: the last counts */
};
struct tool_command {
  /* details: lines of at most 100 columns, each ended */
  const char *name, *arguments, *summary, *details;
  const struct tool_option *options;
  size_t n_options;
  int (*run)(int argc, char **argv /* positional only */); /* returns the exit code */
};

/* Settings of remote stores: --option KEY=VALUE, as often as needed. A value may be a secret: it is
 * never printed. */
enum { TOOL_MAX_OPTIONS = 64 };
static const char *tool_option_value, *tool_anonymous_value;
static insitu_option tool_store_option[TOOL_MAX_OPTIONS + 1];
static uint64_t tool_n_store_options;
/* Where chunks of references may lie: --virtual-prefix, as often as needed. */
static const char *tool_prefix_value, *tool_prefix[TOOL_MAX_OPTIONS];
static uint64_t tool_n_prefixes;
/* Entries of the table of options of each command that opens archives. */
#define TOOL_STORE_OPTIONS                                                                         \
  {"option", 'O', "KEY=VALUE", "of a remote store, such as region=eu-west-1; may be repeated",     \
      &tool_option_value},                                                                         \
      {"virtual-prefix", 0, "URL", "of references: chunks may lie below it; may be repeated",      \
          &tool_prefix_value},                                                                     \
  {                                                                                                \
    "anonymous", 0, NULL, "of a remote store: send no credentials (skip_signature=true)",          \
        &tool_anonymous_value                                                                      \
  }
#define TOOL_STORE_HELP                                                                            \
  "Remote stores take settings as --option KEY=VALUE: endpoint, region, max_connections and the "  \
  "like;\n"                                                                                        \
  "the manual at the top of insitubatch.h lists them. Credentials are better given by the "        \
  "environment\n"                                                                                  \
  "or a profile file: other users of this machine can see a command's arguments.\n\n"

/* Of every command. */
static const char *tool_json_value, *tool_quiet_value, *tool_help_value;
static bool tool_json, tool_quiet; /* --json, --quiet */
static const struct tool_option tool_global_options[] = {
    {"json", 0, NULL, "print the result as one JSON document", &tool_json_value},
    {"quiet", 'q', NULL, "no progress bar", &tool_quiet_value},
    {"help", 'h', NULL, "this text", &tool_help_value},
};
enum { TOOL_N_GLOBAL = sizeof tool_global_options / sizeof *tool_global_options };
#define TOOL_COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- messages ---- */

static const struct tool_command *tool_current; /* set by main */

/* Text that may come from an archive: control characters, which a terminal would obey, become '?'.
 */
static void tool_put(FILE *to, const char *s, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    /* U+0080 to U+009F */
    bool c1 = (unsigned char)s[i] == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0;
    fputc((unsigned char)s[i] < 0x20 || s[i] == 0x7f || c1 ? '?' : s[i], to);
    i += c1;
  }
}
/* To stdout, filled with spaces to a width in columns. */
static void tool_put_padded(const char *s, int width) {
  tool_put(stdout, s, strlen(s));
  for (; *s; s++) width -= (*s & 0xc0) != 0x80; /* UTF-8: not the bytes that continue a character */
  for (; width > 0; width--) putchar(' ');
}
/* To stdout from a column on, wrapped at spaces to 100 columns; lines but the first begin at
 * `left`. Ends the line. */
static void tool_wrap(const char *text, size_t left, size_t column) {
  enum { COLUMNS = 100 };
  size_t pending = 0;
  while (*text) { /* a word and the spaces behind it, which are printed with the next word */
    size_t n = strcspn(text, " "), spaces = strspn(text + n, " ");
    if (column + pending + n > COLUMNS && column > left) {
      printf("\n%*s", (int)left, "");
      column = left;
      pending = 0;
    }
    printf("%*s", (int)pending, "");
    tool_put(stdout, text, n);
    column += pending + n;
    pending = spaces;
    text += n + spaces;
  }
  putchar('\n');
}
static void tool_say(const char *format, va_list args) {
  char text[4096];
  fflush(stdout);
  vsnprintf(text, sizeof text, format, args);
  fprintf(stderr, "insitu%s%s: ", tool_current ? " " : "", tool_current ? tool_current->name : "");
  tool_put(stderr, text, strlen(text));
  fputc('\n', stderr);
}
/* Prints "insitu CMD: ..." to stderr; returns TOOL_FAILED. */
__attribute__((format(printf, 1, 2))) static int tool_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tool_say(format, args);
  va_end(args);
  return TOOL_FAILED;
}
/* The same for wrong usage, and says where the help is; returns TOOL_USAGE. */
__attribute__((format(printf, 1, 2))) static int tool_usage_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tool_say(format, args);
  va_end(args);
  if (tool_current)
    fprintf(stderr, "usage: insitu %s %s\n", tool_current->name, tool_current->arguments);
  fprintf(stderr, "Try 'insitu %s%s--help'.\n", tool_current ? tool_current->name : "",
      tool_current ? " " : "");
  return TOOL_USAGE;
}
/* A library error; returns TOOL_FAILED. "order: ..." is not told as "insitu order: order: ...". */
static int tool_fail_error(const insitu_error *err) {
  const char *text = err->message[0] ? err->message : insitu_status_name(err->status);
  size_t n = tool_current ? strlen(tool_current->name) : 0;
  if (n && !strncmp(text, tool_current->name, n) && !strncmp(text + n, ": ", 2)) text += n + 2;
  return tool_fail("%s", text);
}
static void tool_no_memory(void) {
  fprintf(stderr, "insitu: no memory\n");
  exit(TOOL_FAILED);
}
/* zeroed; ends the program when there is no memory */
static void *tool_alloc(uint64_t count, uint64_t size) {
  void *p = insitu__mem_alloc(count, size);
  if (!p) tool_no_memory();
  return p;
}
static char *tool_copy(const char *s) {
  char *p = insitu__mem_text(s, strlen(s));
  if (!p) tool_no_memory();
  return p;
}

/* ---- terminal ---- */

static bool tool_is_terminal(FILE *f) {
  const char *term = getenv("TERM");
  return isatty(fileno(f)) && (!term || strcmp(term, "dumb"));
}
static bool tool_color(FILE *f) { /* https://no-color.org */
  const char *no = getenv("NO_COLOR");
  return tool_is_terminal(f) && !(no && no[0]);
}
enum tool_style { TOOL_PLAIN, TOOL_BOLD, TOOL_DIM, TOOL_GREEN, TOOL_YELLOW, TOOL_RED, TOOL_CYAN };
/* The escape sequence that begins a style on stdout; "" where there is no color. TOOL_PLAIN ends
 * it. */
static const char *tool_style(enum tool_style style) {
  static const char *const code[] = {
      "\33[0m", "\33[1m", "\33[2m", "\33[32m", "\33[33m", "\33[31m", "\33[36m"};
  static int color = -1;
  if (color < 0) color = tool_color(stdout);
  return color ? code[style] : "";
}

/* ---- numbers ---- */

/* "3.2 MiB" in at least 16 characters at `to`; returns it. */
static const char *tool_bytes(char *to, uint64_t n) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double x = (double)n;
  int u = 0;
  while (x >= 1023.95 && u < 6) {
    x /= 1024;
    u++;
  }
  if (u) snprintf(to, 16, x < 9.995 ? "%.2f %s" : x < 99.95 ? "%.1f %s" : "%.0f %s", x, unit[u]);
  else snprintf(to, 16, "%" PRIu64 " B", n);
  return to;
}
/* 12345678 as "12,345,678" in at least 32 characters at `to`; returns it. */
static const char *tool_count(char *to, uint64_t n) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) to[at++] = ',';
    to[at++] = digits[i];
  }
  to[at] = 0;
  return to;
}
/* A whole number, perhaps followed by k, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti (of 1024), and
 * then perhaps by B. */
static bool tool_u64(const char *text, uint64_t *value) {
  return insitu__document_size(text, value);
}
/* An option's number, `otherwise` when it was not given; false after a usage error. */
__attribute__((unused)) static bool tool_option_u64(
    const char *name, const char *text, uint64_t otherwise, uint64_t *value) {
  *value = otherwise;
  if (!text || tool_u64(text, value)) return true;
  tool_usage_error("--%s %s: a whole number is needed, such as 16, 4k or 512Mi", name, text);
  return false;
}

/* ---- options and help ---- */

static const struct tool_option *tool_find_option(
    const struct tool_command *c, const char *name, size_t n, char letter) {
  for (size_t i = 0; i < c->n_options + TOOL_N_GLOBAL; i++) {
    const struct tool_option *o =
        i < c->n_options ? &c->options[i] : &tool_global_options[i - c->n_options];
    if (name ? strlen(o->name) == n && strncmp(o->name, name, n) == 0
             : o->letter && o->letter == letter)
      return o;
  }
  return NULL;
}
static int tool_unknown_option(
    const struct tool_command *c, const char *given, const char *name, size_t n) {
  const char *names[64];
  char wanted[INSITU__MAX_NEAR_NAME + 1];
  int count = 0;
  snprintf(wanted, sizeof wanted, "%.*s", (int)insitu__base_min(n, INSITU__MAX_NEAR_NAME), name);
  for (size_t i = 0; i < c->n_options && count < 60; i++) names[count++] = c->options[i].name;
  for (size_t i = 0; i < TOOL_N_GLOBAL; i++) names[count++] = tool_global_options[i].name;
  int near = insitu__text_nearest(wanted, names, count);
  int shown = (int)strcspn(given, "="); /* what follows may be a secret */
  if (near >= 0)
    return tool_usage_error(
        "there is no option %.*s; did you mean --%s?", shown, given, names[near]);
  return tool_usage_error("there is no option %.*s", shown, given);
}
/* ends of lines are aligned */
static void tool_help_option(const struct tool_command *c, const struct tool_option *o) {
  char left[64];
  /* it may be another option's in this command */
  bool letter = o->letter && tool_find_option(c, NULL, 0, o->letter) == o;
  snprintf(left, sizeof left, "%c%c%s --%s%s%s", letter ? '-' : ' ', letter ? o->letter : ' ',
      letter ? "," : " ", o->name, o->value_name ? " " : "", o->value_name ? o->value_name : "");
  printf("  %-24s ", left);
  if (strlen(left) > 24) printf("\n%27s", "");
  for (const char *p = o->help; *p; p++) {
    putchar(*p);
    if (*p == '\n') printf("%27s", "");
  }
  putchar('\n');
}
static void tool_help(const struct tool_command *c) {
  printf("%sinsitu %s%s: %s\n\nusage: insitu %s %s\n", tool_style(TOOL_BOLD), c->name,
      tool_style(TOOL_PLAIN), c->summary, c->name, c->arguments);
  if (c->details) printf("\n%s", c->details);
  printf("\noptions:\n");
  for (size_t i = 0; i < c->n_options; i++) tool_help_option(c, &c->options[i]);
  for (size_t i = 0; i < TOOL_N_GLOBAL; i++) tool_help_option(c, &tool_global_options[i]);
}
/* A setting of the remote store. Messages leave the value out. */
static int tool_add_option(const char *text) {
  size_t n = strcspn(text, "=");
  if (!n || !text[n])
    return tool_usage_error("--option: a key and its value are needed, such as region=eu-west-1");
  if (tool_n_store_options == TOOL_MAX_OPTIONS)
    return tool_usage_error("--option: at most %d", TOOL_MAX_OPTIONS);
  char *key = tool_copy(text);
  key[n] = 0;
  tool_store_option[tool_n_store_options++] = (insitu_option){key, text + n + 1};
  return TOOL_GO_ON;
}
/* One "--name", "--name=value", "--name value", "-x" or "-x value" at argv[*i], which moves on to
 * the last word used. */
static int tool_parse_option(const struct tool_command *c, int argc, char **argv, int *i) {
  const char *word = argv[*i], *value = NULL;
  const struct tool_option *o;
  if (word[1] == '-') {
    size_t n = strcspn(word + 2, "=");
    o = tool_find_option(c, word + 2, n, 0);
    if (!o) return tool_unknown_option(c, word, word + 2, n);
    if (word[2 + n]) value = word + 3 + n;
  } else {
    o = tool_find_option(c, NULL, 0, word[1]);
    if (!o) return tool_unknown_option(c, word, word + 1, strlen(word + 1));
    if (word[2]) value = word + 2;
  }
  if (!o->value_name) {
    if (value) return tool_usage_error("--%s takes no value", o->name);
    value = "1";
  } else if (!value) {
    if (*i + 1 >= argc)
      return tool_usage_error("--%s needs a value: --%s %s", o->name, o->name, o->value_name);
    value = argv[++*i];
  }
  *o->value = value;
  if (o->value == &tool_prefix_value) {
    if (tool_n_prefixes == TOOL_MAX_OPTIONS)
      return tool_usage_error("--virtual-prefix: at most %d", TOOL_MAX_OPTIONS);
    tool_prefix[tool_n_prefixes++] = value;
  }
  return o->value == &tool_option_value ? tool_add_option(value) : TOOL_GO_ON;
}
/* Reads the words behind the command's name: options go to their values, the others to the front of
 * argv, *n_positional of them. TOOL_GO_ON, or the exit code after --help or wrong usage. "--" ends
 * the options; "-5" and "-" are no options. */
static int tool_parse(const struct tool_command *c, int argc, char **argv, int *n_positional) {
  int n = 0;
  bool options = true;
  tool_current = c;
  for (int i = 0; i < argc; i++) {
    const char *word = argv[i];
    if (options && strcmp(word, "--") == 0) {
      options = false;
    } else if (options && word[0] == '-' && word[1] && (word[1] < '0' || word[1] > '9')) {
      int code = tool_parse_option(c, argc, argv, &i);
      if (code != TOOL_GO_ON) return code;
    } else argv[n++] = argv[i];
  }
  if (tool_help_value) {
    tool_help(c);
    return TOOL_OK;
  }
  if (tool_anonymous_value)
    tool_store_option[tool_n_store_options++] = (insitu_option){"skip_signature", "true"};
  tool_json = tool_json_value != NULL;
  tool_quiet = tool_quiet_value != NULL;
  *n_positional = n;
  return TOOL_GO_ON;
}

/* ---- progress ---- */

static struct {
  bool on;
  uint64_t total;
  const char *unit;
  int64_t begun, shown; /* monotonic nanoseconds */
} tool_bar;

static void tool_duration(char to[16], double s) {
  if (s < 60) snprintf(to, 16, "%.0fs", s);
  else if (s < 3600) snprintf(to, 16, "%dm%02ds", (int)s / 60, (int)s % 60);
  else
    snprintf(to, 16, "%dh%02dm", (int)(s < 3.6e8 ? s : 3.6e8) / 3600,
        (int)(s < 3.6e8 ? s : 3.6e8) / 60 % 60);
}
/* unit: what is counted, such as "chunks"; "B" counts bytes. Not shown where nobody looks on. */
static void tool_progress_begin(uint64_t total, const char *unit) {
  memset(&tool_bar, 0, sizeof tool_bar);
  tool_bar.on = !tool_json && !tool_quiet && tool_is_terminal(stderr);
  tool_bar.total = total;
  tool_bar.unit = unit;
  tool_bar.begun = tool_bar.shown = insitu__base_now();
}
static void tool_progress(uint64_t done) { /* at most 10 times a second */
  enum { WIDTH = 28 };
  char bar[WIDTH + 1], count[72], rate[32], eta[16] = "?", a[32], b[32];
  int64_t now = tool_bar.on ? insitu__base_now() : 0;
  if (!tool_bar.on || now - tool_bar.shown < 100000000) return;
  tool_bar.shown = now;
  double seconds = (double)(now - tool_bar.begun) / 1e9,
         share = tool_bar.total ? (double)done / (double)tool_bar.total : 0;
  double per_second = (double)done / seconds;
  bool bytes = strcmp(tool_bar.unit, "B") == 0;
  if (share > 1) share = 1;
  for (int i = 0; i < WIDTH; i++) bar[i] = i < (int)(share * WIDTH) ? '#' : '.';
  bar[WIDTH] = 0;
  if (bytes) {
    snprintf(count, sizeof count, "%s of %s", tool_bytes(a, done), tool_bytes(b, tool_bar.total));
    snprintf(rate, sizeof rate, "%s/s", tool_bytes(a, (uint64_t)per_second));
  } else {
    snprintf(count, sizeof count, "%s of %s %.16s", tool_count(a, done),
        tool_count(b, tool_bar.total), tool_bar.unit);
    snprintf(rate, sizeof rate, "%.4g/s", per_second);
  }
  if (done && tool_bar.total >= done)
    tool_duration(eta, (double)(tool_bar.total - done) / per_second);
  fprintf(stderr, "\r[%s] %3.0f%%  %s  %s  %s left \33[K", bar, 100 * share, count, rate, eta);
  fflush(stderr);
}
/* before lines of the result; the next tool_progress draws it anew */
static void tool_progress_clear(void) {
  if (tool_bar.on) fprintf(stderr, "\r\33[K");
  tool_bar.shown = 0;
}
static void tool_progress_end(void) { /* leaves no trace */
  tool_progress_clear();
  tool_bar.on = false;
}

/* ---- JSON output ---- */

struct tool_json_out { /* zero, but for `to`, is an empty document */
  FILE *to;
  unsigned depth;
  struct {
    bool object, line, any; /* line: all on one line; any: has a member */
  } level[INSITU__MAX_JSON_DEPTH + 8];
};

/* Quoted. A byte that is not UTF-8, as names of files may have, becomes U+FFFD. */
static void tool_json_text(struct tool_json_out *j, const char *s, uint64_t n) {
  fputc('"', j->to);
  for (uint64_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i], next[5] = {0};
    memcpy(next, s + i, (size_t)insitu__base_min(4, n - i));
    unsigned bytes = insitu__text_utf8(next);
    if (bytes != 1) {
      if (bytes) fwrite(next, 1, bytes, j->to);
      else fputs("\\ufffd", j->to);
      i += bytes ? bytes - 1 : 0;
      continue;
    }
    if (c == '"' || c == '\\') fprintf(j->to, "\\%c", c);
    else if (c == '\n') fputs("\\n", j->to);
    else if (c < 0x20 || c == 0x7f) fprintf(j->to, "\\u%04x", c);
    else fputc(c, j->to);
  }
  fputc('"', j->to);
}
/* comma, line end, indent and key; NULL in an array */
static void tool_json_key(struct tool_json_out *j, const char *key) {
  if (j->depth) {
    bool line = j->level[j->depth - 1].line;
    if (j->level[j->depth - 1].any) fputs(line ? ", " : ",", j->to);
    j->level[j->depth - 1].any = true;
    if (!line) fprintf(j->to, "\n%*s", (int)(2 * j->depth), "");
  }
  if (!key) return;
  tool_json_text(j, key, strlen(key));
  fputs(": ", j->to);
}
static void tool_json_open(struct tool_json_out *j, const char *key, bool object, bool line) {
  tool_json_key(j, key);
  fputc(object ? '{' : '[', j->to);
  assert(j->depth < INSITU__MAX_JSON_DEPTH + 8);
  j->level[j->depth].object = object;
  j->level[j->depth].line = line || (j->depth && j->level[j->depth - 1].line);
  j->level[j->depth].any = false;
  j->depth++;
}
/* key: NULL for the document itself and inside an array. _list is an array on one line. */
static void tool_json_object(struct tool_json_out *j, const char *key) {
  tool_json_open(j, key, true, false);
}
static void tool_json_array(struct tool_json_out *j, const char *key) {
  tool_json_open(j, key, false, false);
}
static void tool_json_list(struct tool_json_out *j, const char *key) {
  tool_json_open(j, key, false, true);
}
/* of the innermost object or array; the document ends its line */
static void tool_json_end(struct tool_json_out *j) {
  j->depth--;
  if (j->level[j->depth].any && !j->level[j->depth].line)
    fprintf(j->to, "\n%*s", (int)(2 * j->depth), "");
  fputc(j->level[j->depth].object ? '}' : ']', j->to);
  if (!j->depth) fputc('\n', j->to);
}
static void tool_json_null(struct tool_json_out *j, const char *key) {
  tool_json_key(j, key);
  fputs("null", j->to);
}
/* NULL becomes null */
static void tool_json_string(struct tool_json_out *j, const char *key, const char *value) {
  if (!value) {
    tool_json_null(j, key);
    return;
  }
  tool_json_key(j, key);
  tool_json_text(j, value, strlen(value));
}
static void tool_json_u64(struct tool_json_out *j, const char *key, uint64_t value) {
  tool_json_key(j, key);
  fprintf(j->to, "%" PRIu64, value);
}
static void tool_json_i64(struct tool_json_out *j, const char *key, int64_t value) {
  tool_json_key(j, key);
  fprintf(j->to, "%" PRId64, value);
}
/* NaN and infinities become null */
static void tool_json_double(struct tool_json_out *j, const char *key, double value) {
  char text[40];
  if (__builtin_isnan(value) || __builtin_isinf(value)) {
    tool_json_null(j, key);
    return;
  }
  tool_json_key(j, key);
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
  fputs(text, j->to);
}
static void tool_json_bool(struct tool_json_out *j, const char *key, bool value) {
  tool_json_key(j, key);
  fputs(value ? "true" : "false", j->to);
}
/* A value of a parsed document, as it stands; NaN and infinities, which are not JSON, become
 * strings. */
static void tool_json_token(
    struct tool_json_out *j, const char *key, const struct insitu__text_json *doc, int token) {
  uint64_t n;
  const char *span = insitu__text_json_span(doc, token, &n);
  if (!span) {
    tool_json_null(j, key);
    return;
  }
  bool object = insitu__text_json_is_object(doc, token);
  if (!object && !insitu__text_json_is_array(doc, token)) {
    bool word = span[0] == 'N' || span[0] == 'I' || (span[0] == '-' && span[1] == 'I');
    tool_json_key(j, key);
    fprintf(j->to, word ? "\"%.*s\"" : "%.*s", (int)n, span);
    return;
  }
  tool_json_open(j, key, object, !object);
  for (int t = insitu__text_json_first(doc, token); t >= 0; t = insitu__text_json_next(doc, t)) {
    if (!object) {
      tool_json_token(j, NULL, doc, t);
      continue;
    }
    span = insitu__text_json_span(doc, t, &n); /* the key with its quotes: copied as it stands */
    tool_json_key(j, NULL);
    fprintf(j->to, "%.*s: ", (int)n, span);
    unsigned depth = j->depth; /* the value follows its key: no comma, no line end */
    bool any = j->level[depth - 1].any, line = j->level[depth - 1].line;
    j->level[depth - 1].any = false;
    j->level[depth - 1].line = true;
    tool_json_token(j, NULL, doc, insitu__text_json_value(doc, t));
    j->level[depth - 1].any = any;
    j->level[depth - 1].line = line;
  }
  tool_json_end(j);
}

/* ---- archives ---- */

/* An archive opened for inspection. Coroutines run through insitu__reactor_call on `reactor`:
 * inline, on the calling thread, or with workers on the reactor's own. */
struct tool_archive {
  struct insitu__reactor reactor;
  struct insitu__store store;
  struct insitu__group group;
  struct insitu__chain_hooks hooks; /* of the codecs that tool_desc names */
  bool running;
  char **paths; /* of all arrays, sorted; a growing array of >>array */
  uint64_t n_paths;
  insitu_error list_error; /* status < 0: not all arrays could be listed */
};

/* What every loader and store of a command begins with. */
static insitu_loader_desc tool_desc(const char *url) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = url,
      .codecs = extension_codecs,
      .n_codecs = EXTENSION_CODECS,
      .options = tool_store_option,
      .n_options = tool_n_store_options,
      .virtual_prefixes = tool_prefix,
      .n_virtual_prefixes = tool_n_prefixes};
}
static int tool_backend(void) { /* as the loader takes it */
  const char *io = getenv("INSITU_IO");
  return io && strcmp(io, "uring") == 0   ? INSITU__RING_URING
         : io && strcmp(io, "epoll") == 0 ? INSITU__RING_EPOLL
                                          : INSITU__RING_AUTO;
}
static void tool_archive_close(struct tool_archive *a) { /* a zeroed one is fine */
  if (a->running) insitu__reactor_close(&a->reactor);
  insitu__group_free(&a->group);
  insitu__chain_hooks_free(&a->hooks);
  insitu__store_close(&a->store);
  for (uint64_t i = 0; i < a->n_paths; i++) insitu__mem_free(a->paths[i]);
  INSITU__ARRAY_FREE(a->paths);
  memset(a, 0, sizeof *a);
}

struct tool_archive_call {
  struct tool_archive *archive;
  const char *path, *name;
  struct insitu__zarr_array *array;
  char *text;
  uint64_t n;
  insitu_error *err;
  insitu_status status;
};
static insitu_status tool_archive_run(struct tool_archive_call *call, void (*fn)(void *arg)) {
  if (insitu__reactor_call(&call->archive->reactor, fn, call) == INSITU_OK) return call->status;
  return insitu__error_set(call->err, INSITU_E_NOMEM, "no memory for a coroutine");
}
/* Arrays, and groups, of one archive that are looked at. Each takes 6 KB of memory, and 30 bytes of
 * metadata can claim one. */
enum { TOOL_MAX_NODES = 1 << 16 };
/* Says once that there are more. */
static void tool_archive_too_many(struct tool_archive *a, const char *what) {
  insitu__error_set(&a->list_error, INSITU_E_UNSUPPORTED,
      "store '%.400s': more than %d %s (TOOL_MAX_NODES): the others are left out; give a path "
      "below the archive's root",
      a->store.url, TOOL_MAX_NODES, what);
}
static void tool_archive_add(void *to, const char *path) {
  struct tool_archive *a = (struct tool_archive *)to;
  if (a->n_paths == TOOL_MAX_NODES) {
    tool_archive_too_many(a, "arrays");
    return;
  }
  if (!INSITU__ARRAY_PUSH(a->paths, tool_copy(path))) tool_no_memory();
  a->n_paths++;
}
static void tool_archive_open_await(void *arg) {
  struct tool_archive_call *call = (struct tool_archive_call *)arg;
  struct tool_archive *a = call->archive;
  call->status = insitu__group_open_await(&a->group, &a->store, call->err);
  a->hooks = (struct insitu__chain_hooks){.codec = extension_codecs, .n = EXTENSION_CODECS};
  a->group.hooks = &a->hooks;
  if (call->status == INSITU_OK)
    insitu__group_names_await(&a->group, tool_archive_add, a, &a->list_error);
  if (call->status == INSITU_OK)
    insitu__group_prefetch_await(&a->group, (const char *const *)a->paths, a->n_paths);
}
/* The archive's name for people: without credentials and query. */
__attribute__((unused)) static const char *tool_archive_name(
    const struct tool_archive *a, const char *url) {
  return a->store.url ? a->store.url : url;
}
/* as in a tree: what is in a group follows it at once */
static int tool_archive_compare(const void *x, const void *y) {
  const unsigned char *a = *(const unsigned char *const *)x, *b = *(const unsigned char *const *)y;
  while (*a && *a == *b) a++, b++;
  return (*a == '/' ? 1 : *a) - (*b == '/' ? 1 : *b);
}
/* The store that where->url names, with its options; nothing is read yet. With `workers` > 0 the
 * reactor has its own thread and so many workers. An insitu status; a is closed on error. */
static insitu_status tool_archive_store(
    const insitu_loader_desc *where, unsigned workers, struct tool_archive *a, insitu_error *err) {
  struct insitu__reactor_desc d = {.backend = tool_backend(),
      .inline_mode = workers == 0,
      .workers = workers,
      .io_threads = (unsigned)insitu__base_min(16, insitu__base_max(4, 2 * workers)),
      .depth = 256,
      .stack_bytes = 256 << 10};
  memset(a, 0, sizeof *a);
  insitu_status status = insitu__reactor_open(&a->reactor, &d, err);
  if (status < 0) return status;
  a->running = true;
  status = insitu__source_open_store(&a->store, &a->reactor, where, err);
  if (status < 0) tool_archive_close(a);
  return status;
}
/* The same, and what is in it. */
static insitu_status tool_archive_open_at(
    const insitu_loader_desc *where, unsigned workers, struct tool_archive *a, insitu_error *err) {
  struct tool_archive_call call = {.archive = a, .err = err};
  insitu_status status = tool_archive_store(where, workers, a, err);
  if (status < 0) return status;
  status = tool_archive_run(&call, tool_archive_open_await);
  if (status < 0) tool_archive_close(a);
  else if (a->n_paths) qsort(a->paths, (size_t)a->n_paths, sizeof *a->paths, tool_archive_compare);
  return status;
}
static insitu_status tool_archive_open_with(
    const char *url, unsigned workers, struct tool_archive *a, insitu_error *err) {
  const insitu_loader_desc desc = tool_desc(url);
  return tool_archive_open_at(&desc, workers, a, err);
}
/* Inline. 0, or TOOL_FAILED after a message. */
__attribute__((unused)) static int tool_archive_open(const char *url, struct tool_archive *a) {
  insitu_error err = {0};
  return tool_archive_open_with(url, 0, a, &err) < 0 ? tool_fail_error(&err) : 0;
}

static void tool_archive_array_await(void *arg) {
  struct tool_archive_call *call = (struct tool_archive_call *)arg;
  call->status =
      insitu__group_array_await(&call->archive->group, call->path, true, call->array, call->err);
}
/* Opens one array; insitu__zarr_array_free frees it. An insitu status. */
static insitu_status tool_archive_array(
    struct tool_archive *a, const char *path, struct insitu__zarr_array *out, insitu_error *err) {
  struct tool_archive_call call = {.archive = a, .path = path, .array = out, .err = err};
  return tool_archive_run(&call, tool_archive_array_await);
}

static void tool_archive_get_await(void *arg) {
  struct tool_archive_call *call = (struct tool_archive_call *)arg;
  call->status = insitu__group_fetch_await(
      &call->archive->store, call->path, call->name, &call->text, &call->n, call->err);
}
/* A small object "path/name"; insitu__mem_free frees *text. INSITU_E_NOTFOUND leaves err untouched.
 */
static insitu_status tool_archive_get(struct tool_archive *a, const char *path, const char *name,
    char **text, uint64_t *n, insitu_error *err) {
  struct tool_archive_call call = {.archive = a, .path = path, .name = name, .err = err};
  insitu_status status = tool_archive_run(&call, tool_archive_get_await);
  *text = call.text;
  *n = call.n;
  return status;
}

static void tool_archive_attributes_await(void *arg) {
  struct tool_archive_call *call = (struct tool_archive_call *)arg;
  call->status =
      insitu__group_attributes_await(&call->archive->group, call->path, &call->text, call->err);
}
/* The text of a node's attributes, NULL for none; insitu__mem_free frees it. */
static insitu_status tool_archive_attributes(
    struct tool_archive *a, const char *path, char **text, insitu_error *err) {
  struct tool_archive_call call = {.archive = a, .path = path, .err = err};
  insitu_status status = tool_archive_run(&call, tool_archive_attributes_await);
  *text = call.text;
  return status;
}

/* The metadata of a group or array as it stands: token `node` of `doc` (-1: it has none) and
 * `attributes` of `attributes_doc` (-1: none). */
struct tool_node {
  const struct insitu__text_json *doc, *attributes_doc;
  int node, attributes;
  struct insitu__text_json own[2]; /* what it owns when the archive is not consolidated */
  char *text[2];
};
static void tool_node_free(struct tool_node *n) {
  for (int i = 0; i < 2; i++) {
    insitu__text_json_free(&n->own[i]);
    insitu__mem_free(n->text[i]);
  }
  memset(n, 0, sizeof *n);
}
static insitu_status tool_node_read(struct tool_archive *a, const char *path, const char *name,
    int slot, struct tool_node *n, insitu_error *err) {
  uint64_t bytes;
  char what[320];
  insitu_status status = tool_archive_get(a, path, name, &n->text[slot], &bytes, err);
  if (status < 0) return status;
  snprintf(what, sizeof what, "'%.280s', %s", path, name);
  return insitu__text_json_parse(&n->own[slot], n->text[slot], bytes, what, err);
}
static bool tool_node_consolidated(struct tool_archive *a, const char *path, struct tool_node *n) {
  const struct insitu__text_json *j = &a->group.root.j;
  char key[INSITU__MAX_KEY];
  if (a->group.nodes < 0) return false;
  n->doc = n->attributes_doc = j;
  if (a->group.format == 3) {
    n->node = path[0] ? insitu__text_index_get(&a->group.index, j, path) : 0;
    n->attributes = insitu__text_json_get(j, n->node, "attributes");
    return n->node >= 0;
  }
  if (!insitu__group_join(key, sizeof key, path, ".zarray")) return false;
  n->node = insitu__text_index_get(&a->group.index, j, key);
  if (insitu__group_join(key, sizeof key, path, ".zgroup") && n->node < 0)
    n->node = insitu__text_index_get(&a->group.index, j, key);
  if (insitu__group_join(key, sizeof key, path, ".zattrs"))
    n->attributes = insitu__text_index_get(&a->group.index, j, key);
  return n->node >= 0;
}
/* INSITU_OK also where there is no metadata at all (a directory between groups of v2).
 * tool_node_free always. */
static insitu_status tool_archive_node(
    struct tool_archive *a, const char *path, struct tool_node *n, insitu_error *err) {
  memset(n, 0, sizeof *n);
  n->node = n->attributes = -1;
  if (tool_node_consolidated(a, path, n)) return INSITU_OK;
  n->doc = &n->own[0];
  n->attributes_doc = a->group.format == 3 ? &n->own[0] : &n->own[1];
  n->node = n->attributes = -1;
  insitu_status status =
      tool_node_read(a, path, a->group.format == 3 ? "zarr.json" : ".zarray", 0, n, err);
  if (status == INSITU_E_NOTFOUND && a->group.format == 2)
    status = tool_node_read(a, path, ".zgroup", 0, n, err);
  if (status < 0) return status == INSITU_E_NOTFOUND ? INSITU_OK : status;
  n->node = 0;
  if (a->group.format == 3) {
    n->attributes = insitu__text_json_get(n->doc, 0, "attributes");
    return INSITU_OK;
  }
  status = tool_node_read(a, path, ".zattrs", 1, n, err);
  if (status == INSITU_OK) n->attributes = 0;
  return status == INSITU_E_NOTFOUND ? INSITU_OK : status;
}

/* How a whole stored object (a chunk, or a shard) decodes, and which part of the array it holds.
 * The one place that knows. */
struct tool_object {
  const uint64_t *chunk; /* its shape; where they differ, the largest of each axis */
  const struct insitu__codec_chain *codecs;
  uint64_t grid[INSITU__MAX_DIMS], count; /* objects along each axis, in all */
  uint64_t bytes;                         /* decoded, of the largest: see tool_object_bytes */
};
static struct tool_object tool_object_of(const struct insitu__zarr_array *z) {
  struct tool_object o = {
      .chunk = z->object.chunk, .codecs = &z->object.codecs, .count = 1, .bytes = z->itemsize};
  for (unsigned i = 0; i < z->ndim; i++) {
    o.grid[i] = insitu__zarr_objects(z, i);
    o.count *= o.grid[i]; /* cannot overflow: >>zarr bounds the array's bytes */
    o.bytes *= o.chunk[i];
  }
  return o;
}
/* The decoded bytes of the object at an index. */
static uint64_t tool_object_bytes(const struct insitu__zarr_array *z, const uint64_t *index) {
  uint64_t extent[INSITU__MAX_DIMS], bytes = z->itemsize;
  insitu__zarr_object_extents(z, index, extent);
  for (unsigned i = 0; i < z->ndim; i++) bytes *= extent[i];
  return bytes;
}
/* The index of the n-th object in C order. */
static void tool_object_index(
    const struct insitu__zarr_array *z, const struct tool_object *o, uint64_t n, uint64_t *index) {
  for (unsigned i = z->ndim; i-- > 0; n /= o->grid[i]) index[i] = n % o->grid[i];
}
