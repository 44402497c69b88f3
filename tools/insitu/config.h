/* A loader's configuration from a JSON file, from options, or from both: what plan, cat and bench
 * share. Keys are the names of insitu_loader_desc's fields; options are these names with dashes. */

enum config_kind {
  CONFIG_TEXT,
  CONFIG_U64,
  CONFIG_I64,
  CONFIG_I32,
  CONFIG_U32,
  CONFIG_RANK,
  CONFIG_FLAG,
  CONFIG_WORD
};
/* member, option, kind, words, value, help. In the JSON document those of the second list stand in
 * "iterator". */
#define CONFIG_DESC(X)                                                                             \
  X(url, "url", TEXT, NULL, "URL", "the archive")                                                  \
  X(sample_dim, "sample-dim", TEXT, NULL, "NAME", "the axis of samples, by dimension name")        \
  X(sample_axis, "sample-axis", I32, NULL, "N", "the axis of samples, by number (0)")              \
  X(split_axis, "split-axis", I32, NULL, "N",                                                      \
      "of --axes: the number of the one that is split (0)")                                        \
  X(batch_size, "batch-size", U64, NULL, "N", "rows per rank and batch (32)")                      \
  X(seed, "seed", U64, NULL, "N", "of the order and of a shuffled split (0)")                      \
  X(rank, "rank", RANK, NULL, "N|env", "this process (0); env: it and the world from mpirun, ...") \
  X(world, "world", I32, NULL, "N", "... of how many (1)")                                         \
  X(block_chunks, "block-chunks", U64, NULL, "N", "chunks that are mixed together (by a rule)")    \
  X(patches, "patches", U64, NULL, "N", "patches drawn of each sample in an epoch; 0: a grid")     \
  X(unit_chunks, "unit-chunks", U64, NULL, "N",                                                    \
      "chunks that the shuffle moves as one (by a rule)")                                          \
  X(lanes, "lanes", U64, NULL, "N", "equal parts of the order that every batch draws from")        \
  X(sample_start, "sample-start", I64, NULL, "N", "only samples from here ...")                    \
  X(sample_stop, "sample-stop", I64, NULL, "N", "... to here, exclusive")                          \
  X(sample_from, "sample-from", TEXT, NULL, "DATE",                                                \
      "only samples from 1979, 1979-06, 1979-06-01, 1979-06-01T12 ...")                            \
  X(sample_to, "sample-to", TEXT, NULL, "DATE", "... to the end of that")                          \
  X(time_path, "time-path", TEXT, NULL, "PATH",                                                    \
      "the samples' dates (the array named as their axis)")                                        \
  X(coordinates, "coordinates", FLAG, NULL, NULL, "batches carry each row's coordinate and date")  \
  X(split_shuffled, "split-shuffled", FLAG, NULL, NULL, "draw the splits' chunks at random")       \
  X(split_spill, "split-spill", FLAG, NULL, NULL, "let windows read outside their split")          \
  X(split_gap, "split-gap", U64, NULL, "N", "samples left out between splits (0)")                 \
  X(manifest, "manifest", TEXT, NULL, "FILE",                                                      \
      "JSON manifest that decides the split, or excludes samples")                                 \
  X(stats, "stats", TEXT, NULL, "FILE", "statistics for operations \"norm\" without numbers")      \
  X(on_bad_chunk, "on-bad-chunk", WORD, insitu__config_hole_words, "raise|fill",                   \
      "damaged chunks (raise)")                                                                    \
  X(on_absent_chunk, "on-absent-chunk", WORD, insitu__config_hole_words, "raise|fill",             \
      "absent chunks (fill, but raise for NaN)")                                                   \
  X(prefetch_depth, "prefetch-depth", U64, NULL, "N", "batches made ready ahead")                  \
  X(max_inflight, "max-inflight", U64, NULL, "N", "chunks being read or decoded at once")          \
  X(decode_threads, "decode-threads", U64, NULL, "N", "workers (the cores)")                       \
  X(memory_budget, "memory-budget", U64, NULL, "BYTES", "such as 2Gi (half of the memory)")        \
  X(cache_dir, "cache-dir", TEXT, NULL, "DIR", "keeps what a remote store sent")                   \
  X(cache_budget, "cache-budget", U64, NULL, "BYTES", "that it may hold (16Gi)")                   \
  X(cache_decoded, "cache-decoded", FLAG, NULL, NULL, "cache-dir keeps chunks decoded")            \
  X(offline, "offline", FLAG, NULL, NULL, "from cache-dir alone: the store is not asked")          \
  X(cache_memory, "cache-memory", U64, NULL, "BYTES", "keep decoded chunks for later epochs (0)")  \
  X(io, "io", WORD, insitu__config_io_words, "uring|epoll", "backend (the best that works)")       \
  X(inline_io, "inline-io", FLAG, NULL, NULL, "no threads: all work within next")                  \
  X(hold_epoch, "hold-epoch", FLAG, NULL, NULL, "no prefetching across the end of an epoch")
#define CONFIG_ITER(X)                                                                             \
  X(split, "split", WORD, insitu__document_split_words, "NAME", "train, val, test or all")         \
  X(order, "order", WORD, insitu__document_order_words, "ORDER",                                   \
      "shuffled or sequential (train shuffled, others not)")                                       \
  X(max_held, "max-held", U32, NULL, "N", "batches held at once (2)")                              \
  X(epoch, "epoch", U64, NULL, "N", "first epoch (0)")

#define CONFIG_ENUM_DESC(member, ...) CONFIG_IN_DESC_##member,
#define CONFIG_ENUM_ITER(member, ...) CONFIG_IN_ITER_##member,
enum { CONFIG_DESC(CONFIG_ENUM_DESC) CONFIG_N_DESC };
enum { CONFIG_FIRST_ITER = CONFIG_N_DESC - 1, CONFIG_ITER(CONFIG_ENUM_ITER) CONFIG_N };
static const char *config_given[CONFIG_N]; /* the options */

struct config_field {
  const char *name;
  enum config_kind kind;
  const char *const *words;
  size_t at;
};
#define CONFIG_FIELD_DESC(member, option, kind, words, ...)                                        \
  {#member, CONFIG_##kind, words, offsetof(insitu_loader_desc, member)},
#define CONFIG_FIELD_ITER(member, option, kind, words, ...)                                        \
  {#member, CONFIG_##kind, words, offsetof(insitu_iter_desc, member)},
static const struct config_field config_fields[CONFIG_N] = {
    CONFIG_DESC(CONFIG_FIELD_DESC) CONFIG_ITER(CONFIG_FIELD_ITER)};

static const char *config_file, *config_var, *config_dtype, *config_decode, *config_slice,
    *config_select, *config_ops, *config_fixed, *config_fractions, *config_ranges, *config_samples,
    *config_axes, *config_list;
#define CONFIG_OPTION_DESC(member, option, kind, words, value, help)                               \
  {option, 0, value, help, &config_given[CONFIG_IN_DESC_##member]},
#define CONFIG_OPTION_ITER(member, option, kind, words, value, help)                               \
  {option, 0, value, help, &config_given[CONFIG_IN_ITER_##member]},
/* Entries of a command's table of options. */
#define CONFIG_OPTIONS                                                                             \
  {"config", 'c', "FILE", "JSON configuration, - for stdin; other options override it",            \
      &config_file},                                                                               \
      {"var", 'v', "LIST", "LABEL[=PATH][@...]: @OFFSET, @FIRST:STOP[:STRIDE], @A/B/C",            \
          &config_var},                                                                            \
      {"dtype", 0, "NAME", "convert: bfloat16, float16, float32, float64, int64, bool, ...",       \
          &config_dtype},                                                                          \
      {"decode", 0, "cf", "unpack, and show missing values as NaN, by the CF conventions",         \
          &config_decode},                                                                         \
      {"slice", 0, "LIST", "DIM=START:STOP with commas between; DIM a name or an axis",            \
          &config_slice},                                                                          \
      {"select", 0, "TEXT", "by value or index, as in level=500,850; lat=60..30; x=[0:10]",        \
          &config_select},                                                                         \
      {"ops", 0, "LIST", "on each element, as in fill=0,log1p=0.001,norm=2:3 or clip=-1:1",        \
          &config_ops},                                                                            \
      {"fixed", 0, "LIST", "LABEL[=PATH]: whole arrays without samples, shown in every batch",     \
          &config_fixed},                                                                          \
      {"fractions", 0, "A,B,C", "of train, val, test (0.8,0.1,0.1)", &config_fractions},           \
      {"ranges", 0, "A:B,...", "samples of train, val, test instead; or dates, A..B",              \
          &config_ranges},                                                                         \
      {"samples", 0, "A..B", "only these samples: dates (a year alone: 1979-01), or indices",      \
          &config_samples},                                                                        \
      {"axes", 0, "LIST",                                                                          \
          "axes of samples: NAME, NAME[A:B:STRIDE], NAME[FROM..TO], NAME/PATCH[:fill]",            \
          &config_axes},                                                                           \
      {"list", 0, "FILE", "only these samples: a line each, its index on each axis",               \
          &config_list},                                                                           \
      TOOL_STORE_OPTIONS, CONFIG_DESC(CONFIG_OPTION_DESC) CONFIG_ITER(CONFIG_OPTION_ITER)

struct config_block { /* before what it holds */
  struct config_block *next;
  uint64_t unused; /* keeps 16-byte alignment */
};
struct config {
  insitu_loader_desc desc;
  insitu_iter_desc iter;
  struct config_block *blocks;
  const char *where;                /* the file's name in messages */
  struct insitu__document document; /* what the file says, and the list of samples */
  insitu_error error;               /* of the document */
};

/* zeroed; lives as long as c */
static void *config_keep(struct config *c, uint64_t count, uint64_t size) {
  struct config_block *b = (struct config_block *)tool_alloc(1, sizeof *b + count * size);
  b->next = c->blocks;
  c->blocks = b;
  return b + 1;
}
static char *config_keep_text(struct config *c, const char *s, uint64_t n) {
  return (char *)memcpy(config_keep(c, n + 1, 1), s, (size_t)n);
}
static void config_free(struct config *c) {
  for (struct config_block *b = c->blocks, *next; b; b = next) {
    next = b->next;
    insitu__mem_free(b);
  }
  c->blocks = NULL;
  insitu__document_free(&c->document);
}

/* ---- values ---- */

/* a whole number of n characters, perhaps signed */
static bool config_i64(const char *text, uint64_t n, int64_t *value) {
  char digits[32];
  uint64_t v, negative = n && text[0] == '-';
  if (n && text[0] == '+') text++, n--;
  if (n >= sizeof digits) return false;
  snprintf(digits, sizeof digits, "%.*s", (int)(n - negative), text + negative);
  if (!tool_u64(digits, &v) || v > INT64_MAX) return false;
  *value = negative ? -(int64_t)v : (int64_t)v;
  return true;
}
static bool config_word(const char *const *words, const char *text, int32_t *value) {
  for (int32_t i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) return *value = i, true;
  return false;
}
static bool config_dtype_of(const char *text, int32_t *dtype) {
  *dtype = INSITU_AS_STORED;
  if (strcmp(text, "as_stored") == 0) return true;
  for (int i = 0; i < INSITU__DTYPE_KNOWN; i++)
    if (strcmp(insitu__dtype_known[i].v3, text) == 0)
      return *dtype = insitu__dtype_known[i].dtype, true;
  return false;
}
static int config_bad_dtype(void) {
  return tool_usage_error("--dtype %s: give bfloat16, float16, float32 or float64; of what is no "
                          "float also bool, or integers such as int64",
      config_dtype);
}
static bool config_decode_of(const char *text, int32_t *decode) {
  *decode = INSITU_CF;
  return strcmp(text, "cf") == 0;
}
/* Sets a field from text. On failure a usage error, which names the value as `shown`. */
static bool config_set(struct config *c, const struct config_field *f, void *base,
    const char *shown, const char *text) {
  void *at = (char *)base + f->at;
  int64_t i = 0;
  uint64_t u = 0;
  int32_t word = 0;
  bool ok = true;
  const char *need = "a whole number";
  switch (f->kind) {
  case CONFIG_TEXT: *(const char **)at = config_keep_text(c, text, strlen(text)); break;
  case CONFIG_U64:
    if ((ok = tool_u64(text, &u))) *(uint64_t *)at = u;
    break;
  case CONFIG_U32:
    if ((ok = tool_u64(text, &u) && u <= UINT32_MAX)) *(uint32_t *)at = (uint32_t)u;
    break;
  case CONFIG_I64:
    if ((ok = config_i64(text, strlen(text), &i))) *(int64_t *)at = i;
    break;
  case CONFIG_I32:
    if ((ok = config_i64(text, strlen(text), &i) && i >= INT32_MIN && i <= INT32_MAX))
      *(int32_t *)at = (int32_t)i;
    break;
  case CONFIG_RANK:
    need = "a whole number from 0 on, or env: what started the process tells it";
    if (strcmp(text, "env") == 0 || strcmp(text, "environment") == 0) i = INSITU_RANK_FROM_ENV;
    else ok = config_i64(text, strlen(text), &i) && i >= 0 && i < INSITU__MAX_WORLD;
    if (ok) *(int32_t *)at = (int32_t)i;
    break;
  case CONFIG_FLAG:
    need = "true or false";
    ok = strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "1") == 0 ||
         strcmp(text, "0") == 0;
    *(int32_t *)at = text[0] == 't' || text[0] == '1';
    break;
  case CONFIG_WORD:
    need =
        f->words == insitu__document_split_words ? "train, val, test or all" : "one of its words";
    if ((ok = config_word(f->words, text, &word))) *(int32_t *)at = word;
    if (f->words == insitu__config_hole_words) need = "raise, fill or auto";
    if (f->words == insitu__config_io_words) need = "uring, epoll or auto";
    if (f->words == insitu__document_order_words) need = "shuffled, sequential or auto";
  }
  if (!ok) tool_usage_error("%s: '%.60s' does not fit; give %s", shown, text, need);
  return ok;
}

/* One "DIM=START:STOP", "DIM=INDEX", with either end left out. */
static bool config_parse_slice(struct config *c, const char *text, uint64_t n, insitu_slice *s) {
  const char *equals = (const char *)memchr(text, '=', (size_t)n), *end = text + n;
  if (!equals || equals == text) return false;
  const char *colon = (const char *)memchr(equals, ':', (size_t)(end - equals));
  int64_t axis;
  memset(s, 0, sizeof *s);
  if (config_i64(text, (uint64_t)(equals - text), &axis))
    s->axis = (int32_t)insitu__base_min((uint64_t)axis, INT32_MAX);
  else s->dim = config_keep_text(c, text, (uint64_t)(equals - text));
  const char *start_end = colon ? colon : end;
  if (equals + 1 < start_end &&
      !config_i64(equals + 1, (uint64_t)(start_end - equals - 1), &s->start))
    return false;
  if (!colon) return s->stop = s->start + 1, equals + 1 < end;
  return colon + 1 == end || config_i64(colon + 1, (uint64_t)(end - colon - 1), &s->stop);
}
static uint64_t config_list_length(const char *text) {
  uint64_t n = 1;
  for (; *text; text++) n += *text == ',';
  return n;
}
/* A list of slices; *n of them. NULL after a usage error. */
static insitu_slice *config_parse_slices(struct config *c, const char *text, uint64_t *n) {
  insitu_slice *out = (insitu_slice *)config_keep(c, config_list_length(text), sizeof *out);
  *n = 0;
  for (const char *p = text;; p++) {
    size_t length = strcspn(p, ",");
    if (!config_parse_slice(c, p, length, &out[(*n)++])) {
      tool_usage_error("--slice: '%.*s' is not DIM=START:STOP, such as lat=0:90", (int)length, p);
      return NULL;
    }
    p += length;
    if (!*p) return out;
  }
}
/* What follows the '@' of a variable, n characters: an offset "1"; steps "FIRST:STOP" or
 * "FIRST:STOP:STRIDE", STOP exclusive; or steps "A/B/C". */
static bool config_parse_steps(struct config *c, const char *text, uint64_t n, insitu_variable *v) {
  enum { MOST = 65536 }; /* as the loader takes */
  const char *end = text + n;
  bool range = memchr(text, ':', (size_t)n) != NULL;
  int64_t number[3] = {0, 0, 1}, *steps = NULL;
  uint64_t parts = 1;
  if (config_i64(text, n, &v->offset)) return true;
  for (uint64_t i = 0; i < n; i++) parts += text[i] == (range ? ':' : '/');
  if (range && parts > 3) return false;
  if (!range) v->steps = steps = (int64_t *)config_keep(c, parts, sizeof *steps);
  for (uint64_t i = 0; i < parts; i++) {
    const char *stop = (const char *)memchr(text, range ? ':' : '/', (size_t)(end - text));
    if (!stop) stop = end;
    if (!config_i64(text, (uint64_t)(stop - text), range ? &number[i] : &steps[i])) return false;
    text = stop + (stop < end);
  }
  v->n_steps = parts;
  if (!range) return parts <= MOST;
  if (number[2] <= 0 || number[1] <= number[0] || number[0] < -INSITU__MAX_OFFSET ||
      number[1] > INSITU__MAX_OFFSET)
    return false;
  v->n_steps = (uint64_t)((number[1] - number[0] - 1) / number[2]) + 1;
  if (v->n_steps > MOST) return false;
  v->steps = steps = (int64_t *)config_keep(c, v->n_steps, sizeof *steps);
  for (uint64_t i = 0; i < v->n_steps; i++) steps[i] = number[0] + (int64_t)i * number[2];
  return true;
}
/* "x=t,y=t@1,z=t@0:4" to the desc's variables. fixed: to further ones, which are fixed. */
static bool config_parse_variables(struct config *c, const char *text, bool fixed) {
  uint64_t n = fixed ? c->desc.n_variables : 0;
  insitu_variable *v = (insitu_variable *)config_keep(c, n + config_list_length(text), sizeof *v);
  if (n) memcpy(v, c->desc.variables, (size_t)n * sizeof *v);
  for (const char *p = text;; p++, n++) {
    size_t length = strcspn(p, ",");
    const char *end = p + length, *at = (const char *)memrchr(p, '@', length);
    const char *name_end = at ? at : end,
               *equals = (const char *)memchr(p, '=', (size_t)(name_end - p));
    bool ok = p < name_end && equals != p;
    if (ok && at) ok = !fixed && config_parse_steps(c, at + 1, (uint64_t)(end - at - 1), &v[n]);
    if (!ok) {
      tool_usage_error("--%s: '%.*s' is not LABEL[=PATH]%s", fixed ? "fixed" : "var", (int)length,
          p, fixed ? "" : ", followed by nothing, @OFFSET, @FIRST:STOP[:STRIDE] or @A/B/C");
      return false;
    }
    v[n].fixed = fixed;
    v[n].label = config_keep_text(c, p, (uint64_t)((equals ? equals : name_end) - p));
    if (equals) v[n].path = config_keep_text(c, equals + 1, (uint64_t)(name_end - equals - 1));
    p = end;
    if (!*p) break;
  }
  c->desc.variables = v;
  c->desc.n_variables = n + 1;
  return true;
}
/* "A..B": dates, both inclusive, or with numbers alone indices, A:B; either end may be left out. */
static bool config_parse_range(struct config *c, const char *text, size_t n, const char **from,
    const char **to, int64_t *start, int64_t *stop) {
  const char *dots = (const char *)memmem(text, n, "..", 2);
  if (!dots) return false;
  const char *second = dots + 2;
  size_t n_first = (size_t)(dots - text), n_second = n - n_first - 2;
  int64_t first = 0, last = 0;
  bool numbers = (!n_first || config_i64(text, n_first, &first)) &&
                 (!n_second || config_i64(second, n_second, &last));
  if (numbers && n_first + n_second) return *start = first, *stop = last, true;
  if (n_first) *from = config_keep_text(c, text, n_first);
  if (n_second) *to = config_keep_text(c, second, n_second);
  return n_first + n_second > 0;
}
static bool config_parse_split(struct config *c, const char *text, bool ranges) {
  unsigned n = 0;
  memset(c->desc.split, 0, sizeof c->desc.split);
  for (const char *p = text;; p++, n++) {
    size_t length = strcspn(p, ",");
    const char *colon = (const char *)memchr(p, ':', length);
    char *end = NULL;
    bool ok = n < 3 && length;
    if (ok && ranges)
      ok = memmem(p, length, "..", 2)
               ? config_parse_range(c, p, length, &c->desc.split[n].from, &c->desc.split[n].to,
                     &c->desc.split[n].start, &c->desc.split[n].stop)
               : colon && config_i64(p, (uint64_t)(colon - p), &c->desc.split[n].start) &&
                     config_i64(
                         colon + 1, (uint64_t)(p + length - colon - 1), &c->desc.split[n].stop);
    else if (ok) {
      c->desc.split[n].fraction = strtod(p, &end);
      ok = end == p + length;
    }
    if (!ok) {
      tool_usage_error("--%s %s: give three, such as %s", ranges ? "ranges" : "fractions", text,
          ranges ? "0:700,700:850,850:1000" : "0.8,0.1,0.1");
      return false;
    }
    p += length;
    if (!*p) return true;
  }
}

/* What stands in the brackets behind an axis, n characters: "FROM..TO", dates or indexes, or
 * "START:STOP:STRIDE" as Python writes it, from 0 on. */
static bool config_parse_axis_range(struct config *c, const char *text, size_t n, insitu_axis *a) {
  if (memmem(text, n, "..", 2))
    return config_parse_range(c, text, n, &a->from, &a->to, &a->start, &a->stop);
  int64_t number[3] = {0};
  const char *end = text + n;
  for (int i = 0; i < 3; i++) {
    const char *stop = (const char *)memchr(text, ':', (size_t)(end - text));
    if (!stop) stop = end;
    if (stop > text && !config_i64(text, (uint64_t)(stop - text), &number[i])) return false;
    if (i == 2 && stop > text && number[i] == 0) return false; /* left out, it is the default */
    text = stop + (stop < end);
    if (!i && stop == end) return false; /* a number alone is no range */
  }
  a->start = number[0];
  a->stop = number[1];
  a->stride = (uint64_t)number[2];
  return text == end && number[0] >= 0 && number[1] >= 0 && number[2] >= 0;
}
/* The patch of an axis, as in "256" or "256:fill". */
static bool config_parse_patch(const char *text, size_t n, insitu_axis *a) {
  static const char fill[] = ":fill";
  size_t digits = strspn(text, "0123456789");
  int64_t number;
  if (!config_i64(text, digits, &number) || number <= 0) return false;
  a->patch = (uint64_t)number;
  if (digits == n) return true;
  a->edge = INSITU_FILL;
  return n - digits == strlen(fill) && !strncmp(text + digits, fill, strlen(fill));
}
/* "init[1979-01..1989-12],lead[0:40:2]", the slowest first; "y/256" is an axis with a patch, and
 * "y/256:fill" with one that may hang over its edges. */
static bool config_parse_axes(struct config *c, const char *text) {
  insitu_axis *axes = (insitu_axis *)config_keep(c, config_list_length(text), sizeof *axes);
  uint64_t n = 0;
  for (const char *p = text;; p++, n++) {
    size_t length = strcspn(p, ","), name = strcspn(p, ",[/"), behind = strcspn(p, ",[");
    int64_t number;
    bool range = behind<length, ok = name> 0;
    if (name < behind) ok = ok && config_parse_patch(p + name + 1, behind - name - 1, &axes[n]);
    if (ok && config_i64(p, name, &number))
      axes[n].axis = (int32_t)insitu__base_min((uint64_t)number, INT32_MAX);
    else axes[n].dim = config_keep_text(c, p, name);
    if (range)
      ok = ok && p[length - 1] == ']' &&
           config_parse_axis_range(c, p + behind + 1, length - behind - 2, &axes[n]);
    if (!ok) {
      tool_usage_error("--axes: '%.*s' is not NAME, NAME[START:STOP:STRIDE] or NAME[FROM..TO], "
                       "such as init[1979-01..1989-12],lead[0:40:2], nor NAME/PATCH or "
                       "NAME/PATCH:fill, such as y/256",
          (int)length, p);
      return false;
    }
    p += length;
    if (!*p) break;
  }
  c->desc.axes = axes;
  c->desc.n_axes = n + 1;
  return true;
}

/* ---- operations ---- */

/* --ops: words, each with its numbers: "fill=0,log1p=0.001,norm=2:3". NULL after a usage error. */
static const insitu_op *config_parse_ops(struct config *c, const char *text, uint64_t *n) {
  insitu_op *ops = (insitu_op *)config_keep(c, config_list_length(text), sizeof *ops);
  const char *p = text;
  for (;; p++) {
    size_t length = strcspn(p, ",="), all = strcspn(p, ",");
    insitu_op *op = &ops[(*n)++];
    op->kind = insitu__document_op_kind(p, length);
    bool ok = op->kind && op->kind != INSITU_OP_MISSING;
    if (ok && length < all) {
      char *end;
      op->a = strtod(p + length + 1, &end);
      ok = end > p + length + 1;
      if (ok && *end == ':' && insitu__ops_kinds[op->kind].b) {
        const char *second = end + 1;
        op->b = strtod(second, &end);
        ok = end > second;
      }
      ok = ok && end == p + all;
    }
    if (!ok) {
      tool_usage_error("--ops: '%.*s' is not norm, norm=MEAN:STD, scale=N, shift=N, clip=LO:HI, "
                       "log1p[=N], asinh[=N], fill=N or replace=VALUE:N",
          (int)all, p);
      return NULL;
    }
    p += all;
    if (!*p) return ops;
  }
}
/* ---- the JSON document ---- */

/* Those of the command line stay behind the file's: of settings made twice the last counts. */
static int config_json_options(struct config *c) {
  uint64_t n = c->document.desc.n_options;
  if (n > TOOL_MAX_OPTIONS - tool_n_store_options)
    return tool_usage_error("%s, options: too many; give at most %d", c->where, TOOL_MAX_OPTIONS);
  memmove(tool_store_option + n, tool_store_option,
      (size_t)tool_n_store_options * sizeof *tool_store_option);
  if (n) memcpy(tool_store_option, c->document.desc.options, (size_t)n * sizeof *tool_store_option);
  tool_n_store_options += n;
  return TOOL_OK;
}
/* What is wrong with the document is the user's to mend; but not what the system has refused. */
static int config_fail(struct config *c) {
  if (c->error.status != INSITU_E_ARG) return tool_fail_error(&c->error);
  return tool_usage_error("%s", c->error.message);
}
/* An exit code. */
static int config_json(struct config *c, const char *text, uint64_t n) {
  c->document.desc = c->desc;
  c->document.desc.options = NULL;
  c->document.desc.n_options = 0;
  c->document.iter = c->iter;
  if (insitu__document_read(&c->document, text, n, c->where, &c->error) < 0) return config_fail(c);
  int code = config_json_options(c);
  c->desc = c->document.desc;
  c->desc.options = tool_store_option;
  c->desc.n_options = tool_n_store_options;
  c->iter = c->document.iter;
  return code;
}
/* The list of samples, once the axes are known. An exit code. */
static int config_list_take(struct config *c) {
  struct insitu__document *d = &c->document;
  d->name = config_list ? "--list" : c->where;
  d->err = &c->error;
  if (config_list && !insitu__document_samples_file(d, config_list)) return config_fail(c);
  d->desc.axes = c->desc.axes;
  d->desc.n_axes = c->desc.n_axes;
  d->desc.patches = c->desc.patches;
  if (!insitu__document_samples_end(d, config_list ? config_list : "samples"))
    return config_fail(c);
  c->desc.samples = d->desc.samples;
  c->desc.n_samples = d->desc.n_samples;
  return TOOL_OK;
}
/* The whole of a small file, "-" for stdin. An exit code; insitu__mem_free frees *text. */
static int config_read_file(const char *path, char **text, uint64_t *n) {
  struct insitu__text_buffer b = {0};
  char piece[4096];
  FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
  if (!f) return tool_fail("%s: %s", path, strerror(errno));
  for (size_t got; (got = fread(piece, 1, sizeof piece, f)) > 0;)
    insitu__text_buffer_bytes(&b, piece, got);
  int error = ferror(f) ? errno : 0;
  if (f != stdin) fclose(f);
  if (!error && !b.failed) {
    *text = b.text ? b.text : tool_copy("");
    *n = b.n;
    return TOOL_OK;
  }
  insitu__text_buffer_free(&b);
  return tool_fail(
      "%s: %s", path, error ? strerror(error) : "more than 64 MiB; this is no configuration");
}

/* ---- variables by default ---- */

/* An axis by its name or, where that is NULL, by its number; -1: the array has none. */
static int config_axis(const struct insitu__zarr_array *a, const char *dim, int32_t number) {
  if (!dim) return number >= 0 && number < (int32_t)a->ndim ? number : -1;
  for (unsigned d = 0; d < a->ndim; d++)
    if (a->dim[d] && strcmp(a->dim[d], dim) == 0) return (int)d;
  return -1;
}
/* How many samples an array has; 0: it lacks an axis of samples. */
static uint64_t config_array_samples(const struct config *c, const struct insitu__zarr_array *a) {
  uint64_t n = 1;
  for (uint64_t k = 0; k < insitu__base_max(1, c->desc.n_axes); k++) {
    const insitu_axis *of = c->desc.n_axes ? &c->desc.axes[k] : NULL;
    int axis =
        config_axis(a, of ? of->dim : c->desc.sample_dim, of ? of->axis : c->desc.sample_axis);
    if (axis < 0 || !insitu__base_mul(n, a->shape[axis], &n)) return 0;
  }
  return n;
}
/* Adds the names of an array's dimensions that are not listed yet, for a message: " time, lat". */
static void config_dims(const struct insitu__zarr_array *a, struct insitu__text_buffer *list) {
  for (unsigned d = 0; d < a->axes; d++) {
    char name[INSITU__MAX_DIM_NAME + 2];
    if (!a->dim[d]) continue;
    size_t n = (size_t)snprintf(name, sizeof name, " %s", a->dim[d]);
    bool listed = false;
    for (const char *p = list->text; p && (p = strstr(p, name)); p += n)
      listed = listed || !p[n] || p[n] == ',';
    if (!listed && list->n + n + 1 < list->limit)
      insitu__text_buffer_printf(list, "%s%s", list->n ? "," : "", name);
  }
}
/* All arrays of the longest sample axis; coordinates, which have one axis, only where there is
 * nothing else. */
static int config_all_arrays(struct config *c) {
  struct tool_archive archive;
  int code = tool_archive_open(c->desc.url, &archive);
  if (code) return code;
  uint64_t n = archive.n_paths, longest[2] = {0, 0},
           *length = (uint64_t *)tool_alloc(n + 1, sizeof *length), taken = 0;
  unsigned *rank = (unsigned *)tool_alloc(n + 1, sizeof *rank); /* 0: one axis, 1: more */
  insitu_error first = {0};
  struct insitu__text_buffer dims = {.limit = 400};
  for (uint64_t i = 0; i < n; i++) {
    struct insitu__zarr_array a;
    insitu_error err = {0};
    if (tool_archive_array(&archive, archive.paths[i], &a, &err) < 0) {
      if (!first.status) first = err;
      continue;
    }
    if (a.kind != INSITU__ZARR_STRING) /* no batch holds strings */
      length[i] = config_array_samples(c, &a);
    rank[i] = a.axes > 1;
    longest[rank[i]] = insitu__base_max(longest[rank[i]], length[i]);
    config_dims(&a, &dims);
    insitu__zarr_array_free(&a);
  }
  bool fields = longest[1] > 0;
  insitu_variable *v = (insitu_variable *)config_keep(c, n, sizeof *v);
  for (uint64_t i = 0; i < n && taken < INSITU__MAX_VARIABLES; i++) {
    if (!length[i] || rank[i] != fields || length[i] != longest[fields]) continue;
    v[taken].path = config_keep_text(c, archive.paths[i], strlen(archive.paths[i]));
    v[taken].label = v[taken].path[0] ? v[taken].path : "array";
    taken++;
  }
  c->desc.variables = v;
  c->desc.n_variables = taken;
  if (!taken)
    code =
        first.status     ? tool_fail_error(&first)
        : c->desc.n_axes ? tool_fail("%s: no array has all of the axes; dimensions:%s", c->desc.url,
                               dims.text ? dims.text : " none has a name; give --axes by numbers")
        : c->desc.sample_dim
            ? tool_fail("%s: no array has a dimension '%s'; dimensions:%s", c->desc.url,
                  c->desc.sample_dim, dims.text ? dims.text : " none has a name; use --sample-axis")
            : tool_fail("%s: no array has an axis %d", c->desc.url, (int)c->desc.sample_axis);
  else if (!tool_quiet) {
    fprintf(
        stderr, "Variables: all arrays of %" PRIu64 " samples (--var chooses):", longest[fields]);
    for (uint64_t i = 0; i < taken; i++) fprintf(stderr, "%s %s", i ? "," : "", v[i].label);
    fputc('\n', stderr);
  }
  insitu__mem_free(length);
  insitu__mem_free(rank);
  insitu__text_buffer_free(&dims);
  tool_archive_close(&archive);
  return code;
}

/* ---- the whole ---- */

/* --dtype, --decode, --slice, --select and --ops hold for all variables that are not fixed. */
static int config_views(struct config *c) {
  if (!config_dtype && !config_decode && !config_slice && !config_select && !config_ops)
    return TOOL_OK;
  uint64_t n_slices = 0, n_ops = 0;
  int32_t dtype = INSITU_AS_STORED, decode = 0;
  const insitu_slice *slices =
      config_slice ? config_parse_slices(c, config_slice, &n_slices) : NULL;
  if (config_slice && !slices) return TOOL_USAGE;
  if (config_dtype && !config_dtype_of(config_dtype, &dtype)) return config_bad_dtype();
  if (config_decode && !config_decode_of(config_decode, &decode))
    return tool_usage_error("--decode %s: give cf", config_decode);
  const insitu_op *ops = config_ops ? config_parse_ops(c, config_ops, &n_ops) : NULL;
  if (config_ops && !ops) return TOOL_USAGE;
  insitu_variable *v = (insitu_variable *)config_keep(c, c->desc.n_variables, sizeof *v);
  memcpy(v, c->desc.variables, (size_t)c->desc.n_variables * sizeof *v);
  for (uint64_t i = 0; i < c->desc.n_variables; i++) {
    if (v[i].fixed) continue;
    if (config_dtype) v[i].dtype = dtype;
    if (config_decode) v[i].decode = decode;
    if (ops) v[i].ops = ops;
    if (ops) v[i].n_ops = n_ops;
    if (config_select) v[i].select = config_select;
    if (!slices) continue;
    v[i].slices = slices;
    v[i].n_slices = n_slices;
  }
  c->desc.variables = v;
  return TOOL_OK;
}
static int config_options(struct config *c) {
  char shown[64];
  if (config_var && !config_parse_variables(c, config_var, false)) return TOOL_USAGE;
  if (config_axes && !config_parse_axes(c, config_axes)) return TOOL_USAGE;
  if (config_fractions && !config_parse_split(c, config_fractions, false)) return TOOL_USAGE;
  if (config_ranges && !config_parse_split(c, config_ranges, true)) return TOOL_USAGE;
  if (config_samples &&
      !config_parse_range(c, config_samples, strlen(config_samples), &c->desc.sample_from,
          &c->desc.sample_to, &c->desc.sample_start, &c->desc.sample_stop))
    return tool_usage_error(
        "--samples %s: give dates or indices, such as 1979-01..1999-12-31 or 0..1000",
        config_samples);
  for (int i = 0; i < CONFIG_N; i++) {
    uint64_t k = (uint64_t)snprintf(shown, sizeof shown, "--%s", config_fields[i].name);
    while (k-- > 0) shown[k] = (char)(shown[k] == '_' ? '-' : shown[k]);
    void *base = i < CONFIG_N_DESC ? (void *)&c->desc : (void *)&c->iter;
    if (config_given[i] && !config_set(c, &config_fields[i], base, shown, config_given[i]))
      return TOOL_USAGE;
  }
  int code = config_list_take(c);
  if (code) return code;
  if (!c->desc.url)
    return tool_usage_error(
        "which archive? Give its path, or --config with a file that has a \"url\"");
  code = c->desc.n_variables ? TOOL_OK : config_all_arrays(c);
  if (code == TOOL_OK) code = config_views(c);
  if (code == TOOL_OK && config_fixed && !config_parse_variables(c, config_fixed, true))
    code = TOOL_USAGE;
  return code;
}
/* From the file, then the options, then `url` (NULL: none). An exit code; config_free always. */
static int config_load(struct config *c, const char *url) {
  memset(c, 0, sizeof *c);
  c->desc = tool_desc(NULL);
  c->iter.api = INSITU_API;
  c->where = config_file && strcmp(config_file, "-") ? config_file : "standard input";
  if (config_file) {
    char *text = NULL;
    uint64_t n = 0;
    int code = config_read_file(config_file, &text, &n);
    if (code) return code;
    code = config_json(c, text, n);
    insitu__mem_free(text);
    if (code) return code;
  }
  if (url) c->desc.url = config_keep_text(c, url, strlen(url));
  return config_options(c);
}
