/* insitu verify: reads and decodes every stored object of the arrays, on all cores. Array after
 * array; the objects of one by as many coroutines as memory allows, each of which reads one and has
 * it decoded on a worker. */

/* Objects of one array that are asked for one after the other, whether they are there or not. Of a
 * larger array the store lists those that are there. Where the store cannot, --max-chunks (this
 * many) bounds what is asked for: some hours at a server. */
enum { VERIFY_ASKED = 100000, VERIFY_MOST = 10000000 };
enum { VERIFY_SHOWN = 100 };    /* bad objects of one array that are listed */
enum { VERIFY_LISTED = 65536 }; /* of one array that a registry lists */
enum { VERIFY_FAR = 64 }; /* reads at once of a remote store, at least: they hide its latency */

struct verify_bad {
  uint64_t number; /* of the object, in C order */
  insitu_error err;
};
struct verify_array {
  const char *path;
  struct insitu__zarr_array z;
  insitu_error err; /* status < 0: cannot be opened */
  uint64_t count, done, absent, n_bad, n_unread, stored, decoded;
  /* objects that are there, by their numbers; a growing array of >>array */
  uint64_t *listed, n_listed;
  bool is_listed;         /* the others of `count` are absent */
  struct verify_bad *bad; /* the first bad and unread ones; a growing array of >>array */
};
struct verify_run { /* the reactor's thread alone, but for what a worker decodes */
  struct tool_archive *archive;
  const char *url;
  struct insitu__codec_scratch *scratch; /* one for each worker */
  unsigned workers;
  struct verify_array *now;
  struct tool_object object;
  /* the next object; bytes for all coroutines; most bytes that an object may have */
  uint64_t next, budget, bound;
  uint64_t finished; /* objects of all arrays */
  struct insitu__reactor_gate gate;
  bool stop, fail_fast, no_memory;
};
struct verify_job { /* one coroutine's object on a worker */
  struct verify_run *run;
  unsigned char *bytes;
  uint64_t n, decoded; /* bytes that were read, and that these must decode to */
  uint64_t index[INSITU__MAX_DIMS];
  insitu_error err;
};

static const char *verify_fail_fast, *verify_max_chunks, *verify_registry, *verify_dim_asked;

static insitu_status verify_discard(
    void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)user, (void)bytes, (void)offset, (void)n, (void)err;
  return INSITU_OK;
}
static void verify_decode(void *arg, unsigned worker) {
  struct verify_job *job = (struct verify_job *)arg;
  struct insitu__codec_sink sink = {.piece = verify_discard, .element = job->run->now->z.itemsize};
  const struct insitu__zarr_array *z = &job->run->now->z;
  struct insitu__codec_shard own;
  struct insitu__codec_chain chain;
  insitu__chain_decode(insitu__zarr_object_codecs(z, job->index, &own, &chain),
      &job->run->scratch[worker], job->bytes, job->n, job->decoded, &sink, &job->err);
}
/* Whether a failed read says nothing of the archive: the store did not give the object, or this
 * machine could not take it. */
static bool verify_is_unread(const insitu_error *err) {
  static const int32_t machine[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EACCES, EPERM, EINTR, EAGAIN,
      ESTALE, ETIMEDOUT, EHOSTDOWN, ENOTCONN};
  switch (err->status) {
  case INSITU_E_HTTP:
  case INSITU_E_AUTH:
  case INSITU_E_CHANGED:
  case INSITU_E_NOMEM: return true;
  case INSITU_E_IO: break;
  default: return false;
  }
  for (size_t i = 0; i < sizeof machine / sizeof *machine; i++)
    if (err->sys_errno == machine[i]) return true;
  return false;
}
static void verify_failed(struct verify_run *run, uint64_t number, const insitu_error *err) {
  struct verify_array *a = run->now;
  if (verify_is_unread(err)) a->n_unread++;
  else a->n_bad++;
  if (INSITU__ARRAY_LEN(a->bad) < (verify_registry ? VERIFY_LISTED : VERIFY_SHOWN) &&
      !INSITU__ARRAY_PUSH(a->bad, (struct verify_bad){number, *err}))
    tool_no_memory();
  if (run->fail_fast) run->stop = true;
}
static void verify_object_await(struct verify_job *job, uint64_t number) {
  struct verify_run *run = job->run;
  struct verify_array *a = run->now;
  char key[INSITU__MAX_KEY];
  uint64_t *index = job->index;
  struct iovec iov = {job->bytes, (size_t)(run->bound + 1)};
  memset(&job->err, 0, sizeof job->err);
  tool_object_index(&a->z, &run->object, number, index);
  job->decoded = tool_object_bytes(&a->z, index);
  if (insitu__zarr_chunk_key(&a->z, index, key, sizeof key) < 0)
    insitu__error_set(
        &job->err, INSITU_E_ARG, "store: the chunk's key is longer than %d bytes", INSITU__MAX_KEY);
  else if (insitu__store_fetch_await(&run->archive->store, key, 0, &iov, 1, NULL, &job->n,
               &job->err) == INSITU_E_NOTFOUND) {
    a->absent++;
    return;
  }
  if (job->err.status == INSITU_OK && job->n > run->bound)
    insitu__error_set(&job->err, INSITU_E_CORRUPT,
        "decode: the object has more than the %" PRIu64
        " bytes that its codecs make at most; " INSITU__CODEC_BAD,
        run->bound);
  if (job->err.status == INSITU_OK)
    insitu__reactor_work_await(&run->archive->reactor, verify_decode, job);
  a->stored += job->n;
  a->decoded += job->decoded;
  if (job->err.status < 0) verify_failed(run, number, &job->err);
}
/* Objects that are asked for. */
static uint64_t verify_asked(const struct verify_array *a) {
  return a->is_listed ? a->n_listed : a->count;
}

/* ---- which objects are there ---- */

struct verify_listing {
  struct verify_array *array;
  const struct tool_object *object;
  const char *parent; /* of the names being listed */
  char **folder;      /* array: to be listed, and those that were */
};
/* The number of the object with this key; false: it is none of the array's. */
static bool verify_number(const struct verify_listing *l, const char *key, uint64_t *number) {
  const struct insitu__zarr_array *z = &l->array->z;
  char same[INSITU__MAX_KEY];
  uint64_t index[INSITU__MAX_DIMS] = {0}, n = strlen(z->path);
  const char *p = key + n + (n > 0);
  /* "c", and a separator */
  if (z->key_c) p += 1 + (p[0] == 'c' && z->axes);
  for (unsigned i = 0; i < z->axes; i++) {
    if (!insitu__text_is_digit((unsigned char)*p)) return false;
    for (; insitu__text_is_digit((unsigned char)*p); p++)
      if (!insitu__base_mul(index[i], 10, &index[i]) ||
          !insitu__base_add(index[i], (uint64_t)(*p - '0'), &index[i]))
        return false;
    if (index[i] >= l->object->grid[i]) return false;
    if (i + 1 < z->axes && !*p++) return false;
  }
  if (insitu__zarr_chunk_key(z, index, same, sizeof same) < 0 || strcmp(key, same)) return false;
  *number = 0;
  for (unsigned i = 0; i < z->ndim; i++) *number = *number * l->object->grid[i] + index[i];
  return true;
}
static void verify_listed(void *to, const char *name, bool is_directory) {
  struct verify_listing *l = (struct verify_listing *)to;
  char key[INSITU__MAX_KEY];
  uint64_t number;
  if (!insitu__group_join(key, sizeof key, l->parent, name)) return;
  if (is_directory) { /* one that a key may lead through */
    bool part = strcmp(name, "c") == 0 || strspn(name, "0123456789") == strlen(name);
    if (part && l->array->z.separator == '/' && !INSITU__ARRAY_PUSH(l->folder, tool_copy(key)))
      tool_no_memory();
  } else if (verify_number(l, key, &number)) {
    if (!INSITU__ARRAY_PUSH(l->array->listed, number)) tool_no_memory();
    l->array->n_listed++;
  }
}
static int verify_compare_numbers(const void *x, const void *y) {
  uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return (a > b) - (a < b);
}
/* Of an array with many objects: lists those that are there, or says why that cannot be and the
 * array is too large. */
static void verify_list_await(struct verify_run *run) {
  struct verify_array *a = run->now;
  struct verify_listing l = {.array = a, .object = &run->object, .parent = a->z.path};
  insitu_error err = {0};
  uint64_t most = VERIFY_MOST;
  if (a->count <= VERIFY_ASKED) return;
  insitu_status status =
      insitu__store_list_await(&run->archive->store, l.parent, verify_listed, &l, &err);
  for (uint64_t i = 0; status == INSITU_OK && i < INSITU__ARRAY_LEN(l.folder) && !run->stop; i++) {
    l.parent = l.folder[i];
    status = insitu__store_list_await(&run->archive->store, l.parent, verify_listed, &l, &err);
  }
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(l.folder); i++) insitu__mem_free(l.folder[i]);
  INSITU__ARRAY_FREE(l.folder);
  /* no directory: no object was ever written */
  a->is_listed = status == INSITU_OK || status == INSITU_E_NOTFOUND;
  if (a->is_listed) {
    if (a->n_listed)
      qsort(a->listed, (size_t)a->n_listed, sizeof *a->listed, verify_compare_numbers);
    a->absent = a->count - a->n_listed;
    return;
  }
  if (status != INSITU_E_UNSUPPORTED) { /* the store can list, but failed */
    a->err = err;
    return;
  }
  if (verify_max_chunks) tool_u64(verify_max_chunks, &most);
  if (a->count <= most) return;
  insitu__error_set(&a->err, INSITU_E_BUDGET,
      "verify: %" PRIu64 " chunks would have to be asked for one by one, whether they are there or "
      "not, since this store cannot "
      "list them (%.200s); raise --max-chunks (%" PRIu64 "), or name other arrays",
      a->count, err.message, most);
}

/* ---- reading ---- */

static void verify_coroutine_await(void *arg) {
  struct verify_run *run = (struct verify_run *)arg;
  struct verify_job job = {.run = run, .bytes = (unsigned char *)insitu__mem_map(run->bound + 1)};
  if (!job.bytes) run->no_memory = run->stop = true;
  while (!run->stop && run->next < verify_asked(run->now)) {
    uint64_t next = run->next++;
    verify_object_await(&job, run->now->is_listed ? run->now->listed[next] : next);
    run->now->done++;
    tool_progress(++run->finished);
  }
  insitu__mem_unmap(job.bytes, run->bound + 1);
  insitu__reactor_gate_open(&run->gate);
}
static void verify_array_await(void *arg) {
  struct verify_run *run = (struct verify_run *)arg;
  verify_list_await(run);
  if (run->now->err.status) return;
  /* what is read, and the scratch it is decoded in */
  uint64_t each = run->bound + 2 * run->object.bytes;
  uint64_t most = insitu__base_max(
      4 * run->workers, insitu__store_is_remote(&run->archive->store) ? VERIFY_FAR : 0);
  unsigned n = (unsigned)insitu__base_min(insitu__base_min(most, verify_asked(run->now)),
      insitu__base_max(1, run->budget / insitu__base_max(1, each)));
  if (!n) return;
  insitu__reactor_gate_expect(&run->gate, n);
  for (unsigned i = 0; i < n; i++) {
    if (insitu__reactor_spawn(&run->archive->reactor, verify_coroutine_await, run) >= 0) continue;
    run->no_memory = run->stop = true;
    insitu__reactor_gate_open(&run->gate);
  }
  insitu__reactor_gate_await(&run->archive->reactor, &run->gate);
}

/* Strings of any length are read as the library reads them, until one chunk of them is bad. */
static void verify_strings(struct verify_run *run) {
  struct verify_array *a = run->now;
  insitu_loader_desc desc = tool_desc(run->url);
  desc.plan_only = 1;
  insitu_error err = {0};
  insitu_loader *ld = NULL;
  insitu_strings *strings = NULL;
  insitu_stats stats = {0};
  if (insitu_loader_open(&desc, &ld, &err) == INSITU_OK)
    insitu_read_strings(ld, a->path, &strings, &err);
  if (ld) insitu_loader_stats(ld, &stats, NULL);
  insitu_strings_free(&strings);
  insitu_loader_close(&ld);
  a->done = stats.reads;
  a->absent = stats.absent_chunks;
  a->stored = stats.bytes_read;
  run->finished += a->done;
  /* they are read in order */
  if (err.status < 0) verify_failed(run, a->done ? a->done - 1 : 0, &err);
}

static int verify_compare(const void *x, const void *y) {
  uint64_t a = ((const struct verify_bad *)x)->number, b = ((const struct verify_bad *)y)->number;
  return (a > b) - (a < b);
}
/* Not an error of the archive: this build cannot decode the array. */
static bool verify_is_refusal(const struct verify_array *a) {
  insitu_status s = a->err.status;
  return s == INSITU_E_CODEC || s == INSITU_E_DTYPE || s == INSITU_E_GRID ||
         s == INSITU_E_UNSUPPORTED;
}
static const char *verify_key(
    const struct verify_array *a, uint64_t number, char *key, size_t cap) {
  uint64_t index[INSITU__MAX_DIMS];
  struct tool_object o = tool_object_of(&a->z);
  tool_object_index(&a->z, &o, number, index);
  return insitu__zarr_chunk_key(&a->z, index, key, cap) < 0 ? "?" : key;
}
/* What was found of an array: in JSON, and at the head of a line. */
struct verify_verdict {
  const char *json, *line;
  enum tool_style style;
};
static struct verify_verdict verify_judge(const struct verify_array *a) {
  if (a->err.status && verify_is_refusal(a))
    return (struct verify_verdict){"skipped", "skip", TOOL_YELLOW};
  if (a->err.status || a->n_bad) return (struct verify_verdict){"bad", "BAD ", TOOL_RED};
  if (a->n_unread) return (struct verify_verdict){"unread", "FAIL", TOOL_RED};
  return (struct verify_verdict){"ok", "ok  ", TOOL_GREEN};
}
static void verify_print(const struct verify_array *a, int width) {
  char count[32], text[32], stored[16], key[INSITU__MAX_KEY];
  struct verify_verdict found = verify_judge(a);
  printf("%s%s%s  ", tool_style(found.style), found.line, tool_style(TOOL_PLAIN));
  tool_put_padded(a->path[0] ? a->path : "/", width + 2);
  if (a->err.status) {
    printf("  ");
    tool_put(stdout, a->err.message, strlen(a->err.message));
    printf("\n");
    return;
  }
  printf("%9s chunk%s  %9s", tool_count(count, a->done), a->done == 1 ? " " : "s",
      tool_bytes(stored, a->stored));
  if (a->absent) printf(", %s absent", tool_count(text, a->absent));
  if (a->n_bad) printf(", %s bad", tool_count(text, a->n_bad));
  if (a->n_unread) printf(", %s not read", tool_count(text, a->n_unread));
  if (a->done < verify_asked(a))
    printf(", stopped before the other %s", tool_count(text, verify_asked(a) - a->done));
  printf("\n");
  uint64_t shown = insitu__base_min(INSITU__ARRAY_LEN(a->bad), VERIFY_SHOWN);
  for (uint64_t i = 0; i < shown; i++) {
    printf("        %s: ", verify_key(a, a->bad[i].number, key, sizeof key));
    tool_put(stdout, a->bad[i].err.message, strlen(a->bad[i].err.message));
    printf("\n");
  }
  if (a->n_bad + a->n_unread > VERIFY_SHOWN)
    printf("        and %s more\n", tool_count(text, a->n_bad + a->n_unread - VERIFY_SHOWN));
}
static void verify_json(struct tool_json_out *j, const struct verify_array *a) {
  char key[INSITU__MAX_KEY];
  tool_json_object(j, NULL);
  tool_json_string(j, "path", a->path);
  tool_json_string(j, "status", verify_judge(a).json);
  if (a->err.status) tool_json_string(j, "cause", a->err.message);
  tool_json_u64(j, "chunks", a->count);
  tool_json_u64(j, "checked", a->done);
  tool_json_u64(j, "absent", a->absent);
  tool_json_u64(j, "bad", a->n_bad);
  tool_json_u64(j, "unread", a->n_unread);
  tool_json_u64(j, "stored_bytes", a->stored);
  tool_json_u64(j, "decoded_bytes", a->decoded);
  tool_json_array(j, "bad_chunks");
  uint64_t shown = insitu__base_min(INSITU__ARRAY_LEN(a->bad), VERIFY_SHOWN);
  for (uint64_t i = 0; i < shown; i++) {
    tool_json_object(j, NULL);
    tool_json_string(j, "key", verify_key(a, a->bad[i].number, key, sizeof key));
    tool_json_string(j, "status", insitu_status_name(a->bad[i].err.status));
    tool_json_string(j, "cause", a->bad[i].err.message);
    tool_json_end(j);
  }
  tool_json_end(j);
  tool_json_end(j);
}

/* ---- the registry ---- */

/* Where samples lie: an axis of the array that --dim names in each, or the first one of the array
 * with most axes. */
struct verify_dim {
  const char *name; /* NULL: the arrays do not name it */
  uint64_t number, length;
  unsigned ndim; /* of arrays that do not name it; 0: of any */
};
/* The axis of samples; -1: the array has none. */
static int verify_axis(const struct verify_array *a, const struct verify_dim *dim) {
  if (a->err.status || a->z.kind == INSITU__ZARR_STRING) return -1;
  for (unsigned d = 0; d < a->z.ndim && dim->name; d++)
    if (a->z.dim[d] && !strcmp(a->z.dim[d], dim->name)) return (int)d;
  if (dim->name || dim->number >= a->z.ndim) return -1;
  return !dim->ndim || a->z.ndim == dim->ndim ? (int)dim->number : -1;
}
/* Finds the axis, and how long it is. In other arrays it may have another length, and samples count
 * otherwise there. */
static struct verify_dim verify_find_dim(const struct verify_array *arrays, uint64_t n) {
  struct verify_dim dim = {.name = verify_dim_asked};
  const struct verify_array *most = NULL;
  for (uint64_t i = 0; i < n && !verify_dim_asked; i++) {
    const struct verify_array *a = &arrays[i];
    if (verify_axis(a, &(struct verify_dim){0}) < 0) continue;
    bool longer = most && a->z.ndim == most->z.ndim && a->z.shape[0] > most->z.shape[0];
    if (!most || a->z.ndim > most->z.ndim || longer) most = a;
  }

  if (most) {
    dim.name = most->z.dim[0];
    dim.ndim = most->z.ndim;
    dim.length = most->z.shape[0];
    return dim;
  }

  /* By a number, the arrays with most axes tell the length: a coordinate may be longer. */
  unsigned ndim = 0;
  if (dim.name && tool_u64(dim.name, &dim.number)) dim.name = NULL;
  for (uint64_t i = 0; i < n; i++) {
    const struct insitu__zarr_array *z = &arrays[i].z;
    int axis = verify_axis(&arrays[i], &dim);
    if (axis < 0 || (!dim.name && z->ndim < ndim)) continue;
    if (!dim.name && z->ndim > ndim) dim.length = 0;
    dim.length = insitu__base_max(dim.length, z->shape[axis]);
    ndim = z->ndim;
  }
  return dim;
}
/* The samples of an object: [*start, *stop) of the axis. */
static void verify_samples(
    const struct verify_array *a, int axis, uint64_t number, uint64_t *start, uint64_t *stop) {
  uint64_t index[INSITU__MAX_DIMS];
  struct tool_object o = tool_object_of(&a->z);
  tool_object_index(&a->z, &o, number, index);
  const struct insitu__grid *grid = a->z.object.grid[axis];
  *start = insitu__grid_begin(grid, o.chunk[axis], index[axis]);
  *stop = insitu__base_min(insitu__grid_end(grid, o.chunk[axis], index[axis]), a->z.shape[axis]);
}
/* What finds the inner chunks of a bad shard that are bad: a loader that fills what it cannot read
 * or decode, and counts it. */
struct verify_finder {
  const char *url;
  insitu_loader *loader; /* NULL: not opened yet */
  unsigned char *bytes;
  uint64_t room;
};
/* Whether [start, stop) of the axis in a bad object is bad, or nobody can tell. What lies behind
 * the end of the array is not looked at: no sample shows it. */
static bool verify_part_is_bad(struct verify_finder *f, const struct verify_array *a,
    uint64_t number, int axis, uint64_t start, uint64_t stop) {
  insitu_slice slice[INSITU__MAX_DIMS];
  insitu_variable v = {.label = "part", .path = a->path, .slices = slice, .n_slices = a->z.axes};
  insitu_stats before, after;
  insitu_shape shape;
  for (unsigned k = 0; k < a->z.axes; k++) {
    uint64_t from = start, to = stop;
    if ((int)k != axis) verify_samples(a, (int)k, number, &from, &to);
    slice[k] = (insitu_slice){.axis = (int32_t)k, .start = (int64_t)from, .stop = (int64_t)to};
  }
  if (insitu_read(f->loader, &v, NULL, 0, &shape, NULL) < 0) return true;
  if (shape.bytes > f->room) {
    insitu__mem_free(f->bytes);
    f->room = shape.bytes;
    f->bytes = tool_alloc(f->room, 1);
  }
  insitu_loader_stats(f->loader, &before, NULL);
  if (insitu_read(f->loader, &v, f->bytes, f->room, NULL, NULL) < 0) return true;
  insitu_loader_stats(f->loader, &after, NULL);
  return after.bad_chunks != before.bad_chunks;
}
/* Moves [*start, *stop) to the first samples from *start on that a bad object spoils, before `end`.
 * False: there are none. Of a shard these are the samples of its bad inner chunks. */
static bool verify_next_samples(struct verify_finder *f, const struct verify_array *a,
    uint64_t number, int axis, uint64_t *start, uint64_t *stop, uint64_t end) {
  const struct insitu__grid *grid = a->z.grid[axis];
  uint64_t chunk = a->z.chunk[axis];
  insitu_loader_desc desc = tool_desc(f->url);
  *stop = end;
  if (*start >= end) return false;
  if (!a->z.n_levels || (unsigned)axis >= a->z.axes) return true;
  desc.plan_only = 1;
  desc.on_bad_chunk = desc.on_absent_chunk = INSITU_FILL;
  desc.log_level = INSITU_LOG_OFF;
  if (!f->loader && insitu_loader_open(&desc, &f->loader, NULL) < 0) return true;

  bool found = false;
  for (uint64_t from = *start, to; from < end; from = to) {
    uint64_t edge = insitu__grid_end(grid, chunk, insitu__grid_tile(grid, chunk, from));
    to = insitu__base_min(end, edge);
    bool bad = verify_part_is_bad(f, a, number, axis, from, to);
    if (bad && !found) *start = from;
    if (bad) *stop = to;
    else if (found) break;
    found = found || bad;
  }
  return found;
}
/* Writes what is excluded for a bad object. Returns how many ranges there are. */
static uint64_t verify_write_ranges(struct insitu__text_buffer *b, struct verify_finder *f,
    const struct verify_array *a, uint64_t number, int axis) {
  uint64_t start, stop, end, ranges = 0;
  char key[INSITU__MAX_KEY], reason[160];
  verify_samples(a, axis, number, &start, &end);
  snprintf(reason, sizeof reason, "bad chunk %.140s", verify_key(a, number, key, sizeof key));
  for (; verify_next_samples(f, a, number, axis, &start, &stop, end); start = stop, ranges++) {
    if (b->failed) break;
    insitu__text_buffer_printf(b,
        "%s\n {\"start\": %" PRIu64 ", \"stop\": %" PRIu64 ", \"reason\": ",
        b->text[b->n - 1] == '[' ? "" : ",", start, stop);
    insitu__text_buffer_json_string(b, reason);
    insitu__text_buffer_printf(b, "}");
  }
  return ranges;
}
/* Writes the bad chunks as a manifest, which excludes the samples that they hold. An exit code. */
static int verify_write_registry(const struct verify_array *arrays, uint64_t n, const char *url) {
  struct insitu__text_buffer b = {0}, list = {0};
  struct verify_finder finder = {.url = url};
  uint64_t excluding = 0, chunks = 0, without = 0, behind = 0;
  struct verify_dim dim = verify_find_dim(arrays, n);
  insitu_error err = {0};
  char key[INSITU__MAX_KEY];
  insitu__text_buffer_printf(&b, "{\"excluded\": [");
  for (uint64_t i = 0; i < n; i++) {
    const struct verify_array *a = &arrays[i];
    int axis = verify_axis(a, &dim);
    bool excludes = axis >= 0 && a->z.shape[axis] == dim.length;
    if (a->n_unread)
      return tool_fail("%s: %" PRIu64 " chunk%s could not be read, which says nothing of the "
                       "archive; the registry is not written, try again",
          a->path, a->n_unread, a->n_unread == 1 ? "" : "s");
    if (a->n_bad > VERIFY_LISTED)
      return tool_fail(
          "%s: more than %d bad chunks; the registry is not written", a->path, (int)VERIFY_LISTED);
    for (uint64_t k = 0; k < INSITU__ARRAY_LEN(a->bad); k++, chunks++) {
      verify_key(a, a->bad[k].number, key, sizeof key);
      insitu__text_buffer_printf(&list, "%s\n {\"array\": ", chunks ? "," : "");
      insitu__text_buffer_json_string(&list, a->path);
      insitu__text_buffer_printf(&list, ", \"key\": ");
      insitu__text_buffer_json_string(&list, key);
      insitu__text_buffer_printf(
          &list, ", \"status\": \"%s\", \"cause\": ", insitu_status_name(a->bad[k].err.status));
      insitu__text_buffer_json_string(&list, a->bad[k].err.message);
      insitu__text_buffer_printf(&list, "}");
      without += !excludes;
      if (!excludes) continue;
      if (verify_write_ranges(&b, &finder, a, a->bad[k].number, axis)) excluding++;
      else behind++;
    }
  }
  insitu_loader_close(&finder.loader);
  insitu__mem_free(finder.bytes);
  insitu__text_buffer_printf(&b, "],\n\"bad_chunks\": [");
  if (list.n) insitu__text_buffer_bytes(&b, list.text, list.n);
  insitu__text_buffer_printf(&b, "]}\n");
  if (b.failed || list.failed) tool_no_memory();
  insitu_status status = insitu__public_write_file("registry", verify_registry, b.text, b.n, &err);
  insitu__text_buffer_free(&b);
  insitu__text_buffer_free(&list);
  if (status < 0) return tool_fail_error(&err);
  if (tool_json) return TOOL_OK;
  printf("%s: lists %" PRIu64 " bad chunk%s, and excludes the samples of %" PRIu64 "\n",
      verify_registry, chunks, chunks == 1 ? "" : "s", excluding);
  if (behind)
    printf("Of %" PRIu64
           " only inner chunks behind the array's end are bad, which no sample shows.\n",
        behind);
  if (without)
    printf("The other %" PRIu64
           " lie in arrays without that axis, or with one of another length.\n",
        without);
  return TOOL_OK;
}

struct verify_sum {
  uint64_t arrays, skipped, broken; /* broken: cannot be opened, and should be */
  uint64_t chunks, done, absent, bad, unread, stored;
};
/* There should be chunks, and all of them are absent. */
static bool verify_is_empty(const struct verify_sum *s) {
  return s->chunks && s->absent == s->chunks && !s->broken;
}
static void verify_summary(const struct verify_sum *s, double seconds) {
  char a[32], b[32], bytes[16], rate[16];
  printf("\n%s%s", tool_style(TOOL_BOLD),
      s->bad || s->unread || s->broken || s->arrays == s->skipped || verify_is_empty(s)
          ? tool_style(TOOL_RED)
          : tool_style(TOOL_GREEN));
  if (s->arrays == s->skipped) printf("nothing could be checked");
  else if (verify_is_empty(s))
    printf("not one chunk is stored: the archive was never written, or its chunks are lost");
  else if (s->bad)
    printf("%s of %s chunks %s bad", tool_count(a, s->bad), tool_count(b, s->done),
        s->bad == 1 ? "is" : "are");
  else if (s->unread) printf("no chunk that was read is bad");
  else
    printf("%s chunk%s of %s array%s checked, none is bad", tool_count(a, s->done),
        s->done == 1 ? "" : "s", tool_count(b, s->arrays - s->skipped - s->broken),
        s->arrays - s->skipped - s->broken == 1 ? "" : "s");
  printf("%s", tool_style(TOOL_PLAIN));
  if (s->broken)
    printf("; %s array%s cannot be opened", tool_count(a, s->broken), s->broken == 1 ? "" : "s");
  if (s->unread) printf("; %s could not be read", tool_count(a, s->unread));
  if (s->absent) printf("; %s absent (read as the fill value)", tool_count(a, s->absent));
  if (s->skipped)
    printf("; %s array%s not checked", tool_count(a, s->skipped), s->skipped == 1 ? "" : "s");
  printf(". %s in %.1f s", tool_bytes(bytes, s->stored), seconds);
  if (seconds > 0.05) printf(", %s/s", tool_bytes(rate, (uint64_t)((double)s->stored / seconds)));
  printf(".\n");
  if (s->bad)
    printf("To train all the same, leave these samples out, or open the loader with on_bad_chunk = "
           "INSITU_FILL.\n");
  if (s->unread)
    printf("What could not be read says nothing of the archive: see to the causes above, then run "
           "this again.\n");
}

/* Opens the arrays: those named, or all. Their number, or UINT64_MAX after a message. */
static uint64_t verify_open(
    struct tool_archive *archive, int argc, char **argv, struct verify_array **out) {
  uint64_t n = argc > 1 ? (uint64_t)argc - 1 : archive->n_paths;
  *out = (struct verify_array *)tool_alloc(insitu__base_max(n, 1), sizeof **out);
  for (uint64_t i = 0; i < n; i++) {
    struct verify_array *a = &(*out)[i];
    a->path = argc > 1 ? (strcmp(argv[i + 1], "/") ? argv[i + 1] : "") : archive->paths[i];
    insitu_status status = tool_archive_array(archive, a->path, &a->z, &a->err);
    if (status < 0 && argc > 1) {
      tool_fail_error(&a->err);
      return UINT64_MAX;
    }
    if (status >= 0) a->count = tool_object_of(&a->z).count;
  }
  return n;
}
/* Metadata may claim any number of chunks. */
static uint64_t verify_add(uint64_t a, uint64_t b) {
  return insitu__base_add(a, b, &a) ? a : UINT64_MAX;
}
static void verify_all(struct verify_run *run, struct verify_array *arrays, uint64_t n,
    struct verify_sum *sum, struct tool_json_out *j) {
  int width = 1;
  for (uint64_t i = 0; i < n; i++) {
    int length = (int)insitu__base_min(strlen(arrays[i].path), 48);
    width = length > width ? length : width;
  }
  for (uint64_t i = 0; i < n && !run->stop; i++) {
    struct verify_array *a = run->now = &arrays[i];
    bool refused = a->err.status && verify_is_refusal(a);
    if (!a->err.status && a->z.kind == INSITU__ZARR_STRING) verify_strings(run);
    else if (!a->err.status) {
      run->object = tool_object_of(&a->z);
      run->bound = insitu__chain_bound(run->object.codecs, run->object.bytes);
      run->next = 0;
      if (insitu__reactor_call(&run->archive->reactor, verify_array_await, run) < 0)
        run->no_memory = run->stop = true;
      if (a->bad) qsort(a->bad, (size_t)INSITU__ARRAY_LEN(a->bad), sizeof *a->bad, verify_compare);
    }
    *sum = (struct verify_sum){sum->arrays + 1, sum->skipped + refused,
        sum->broken + (a->err.status && !refused), verify_add(sum->chunks, a->count),
        sum->done + a->done, verify_add(sum->absent, a->absent), sum->bad + a->n_bad,
        sum->unread + a->n_unread, sum->stored + a->stored};
    if (run->fail_fast && sum->broken) run->stop = true;
    tool_progress_clear();
    if (tool_json) verify_json(j, a);
    else verify_print(a, width);
  }
}
static int verify_run(int argc, char **argv) {
  struct tool_archive archive;
  struct verify_run run = {.archive = &archive,
      .url = argc ? argv[0] : NULL,
      .workers = (unsigned)insitu__mem_cores(),
      .fail_fast = verify_fail_fast};
  struct verify_sum sum = {0};
  struct verify_array *arrays;
  struct tool_json_out j = {.to = stdout};
  insitu_error err = {0};
  uint64_t most;
  if (argc < 1) return tool_usage_error("the archive is missing");
  if (verify_max_chunks && !tool_u64(verify_max_chunks, &most))
    return tool_usage_error("--max-chunks %s: give a number", verify_max_chunks);
  if (verify_registry && verify_fail_fast)
    return tool_usage_error("--registry lists all bad chunks; leave --fail-fast out");
  if (verify_dim_asked && !verify_registry) return tool_usage_error("--dim needs --registry");
  if (verify_registry && insitu__public_writable("registry", verify_registry, &err) < 0)
    return tool_fail_error(&err);
  if (tool_archive_open_with(argv[0], run.workers, &archive, &err) < 0)
    return tool_fail_error(&err);
  /* whoever names arrays needs no list of them */
  bool listed = argc > 1 || !archive.list_error.status;
  if (!listed) tool_fail_error(&archive.list_error);
  run.budget = insitu__base_min(UINT64_C(2) << 30, insitu__mem_total() / 4);
  run.scratch = (struct insitu__codec_scratch *)tool_alloc(run.workers, sizeof *run.scratch);
  for (unsigned i = 0; i < run.workers; i++) insitu__codec_scratch_init(&run.scratch[i]);
  uint64_t n = verify_open(&archive, argc, argv, &arrays), total = 0;
  bool opened = n != UINT64_MAX;
  int code = TOOL_FAILED;
  if (!opened) n = argc > 1 ? (uint64_t)argc - 1 : 0;
  for (uint64_t i = 0; i < n; i++) total = verify_add(total, arrays[i].count);
  if (opened) {
    int64_t begun = insitu__base_now();
    if (tool_json) {
      tool_json_object(&j, NULL);
      tool_json_string(&j, "url", tool_archive_name(&archive, argv[0]));
      tool_json_array(&j, "arrays");
    }
    tool_progress_begin(total, "chunks");
    verify_all(&run, arrays, n, &sum, &j);
    tool_progress_end();
    double seconds = (double)(insitu__base_now() - begun) / 1e9;
    bool ok = !sum.bad && !sum.unread && !sum.broken && !run.no_memory && listed &&
              (sum.arrays > sum.skipped || !n);
    bool empty = ok && verify_is_empty(&sum);
    if (tool_json) {
      tool_json_end(&j);
      tool_json_u64(&j, "chunks", sum.chunks);
      tool_json_u64(&j, "checked", sum.done);
      tool_json_u64(&j, "absent", sum.absent);
      tool_json_u64(&j, "bad", sum.bad);
      tool_json_u64(&j, "unread", sum.unread);
      tool_json_double(&j, "seconds", seconds);
      tool_json_bool(&j, "ok", ok && !empty);
      tool_json_end(&j);
    } else if (n || !listed) verify_summary(&sum, seconds);
    else printf("the archive has no arrays\n");
    if (run.no_memory)
      tool_fail("no memory for a chunk of %" PRIu64 " bytes; the check is not complete", run.bound);
    code = empty ? TOOL_EMPTY : ok ? TOOL_OK : TOOL_FAILED;
    bool whole = !run.no_memory && !run.stop && listed;
    if (verify_registry && !whole)
      tool_fail("the check is not complete; the registry is not written");
    if (verify_registry && (!whole || verify_write_registry(arrays, n, run.url)))
      code = TOOL_FAILED;
  }
  for (uint64_t i = 0; i < n; i++) {
    insitu__zarr_array_free(&arrays[i].z);
    INSITU__ARRAY_FREE(arrays[i].bad);
    INSITU__ARRAY_FREE(arrays[i].listed);
  }
  insitu__mem_free(arrays);
  tool_archive_close(&archive);
  for (unsigned i = 0; i < run.workers; i++) insitu__codec_scratch_free(&run.scratch[i]);
  insitu__mem_free(run.scratch);
  return code;
}

static const struct tool_option verify_options[] = {
    {"fail-fast", 'f', NULL, "stop at the first bad chunk", &verify_fail_fast},
    {"max-chunks", 0, "N",
        "chunks of one array to ask a store for that cannot list them (10000000)",
        &verify_max_chunks},
    {"registry", 0, "FILE", "write the bad chunks, as a manifest that excludes their samples",
        &verify_registry},
    {"dim", 0, "NAME", "with --registry: the sample axis (of the array with most axes: 0)",
        &verify_dim_asked},
    TOOL_STORE_OPTIONS,
};
static const struct tool_command verify_command = {.name = "verify",
    .arguments = "URL [PATH ...] [OPTIONS]",
    .summary = "read and decode every chunk; list the bad ones",
    .details = "  URL   a Zarr v2 or v3 archive: a directory, a zip file, or file://, zip://, "
               "http(s)://, s3://,\n"
               "        gs://, az://\n"
               "  PATH  arrays to check; without any, all are\n\n"
               "Reads on all cores, in bounded memory. A chunk is bad when the disk cannot read "
               "it, or it has the\n"
               "wrong length, a wrong checksum or does not decode; raw chunks without a "
               "checksum are only as sure\n"
               "as their length. A chunk that the store does not give (no connection, no "
               "permission), or for which\n"
               "this machine has no memory or file number left, is not bad but could not be "
               "read: that says nothing\n"
               "of the archive. An absent chunk stands for the fill value and is only counted. "
               "Of an array with\n"
               "more than 100,000 chunks the store lists those that are there. Arrays that this "
               "build cannot decode\n"
               "are skipped, unless named. Exit status 1 when anything is bad or could not be "
               "read, or nothing\n"
               "could be checked; 4 when not one chunk is stored.\n\n" TOOL_STORE_HELP
               "examples: insitu verify winds.zarr\n"
               "          insitu verify winds.zarr uwnd --fail-fast\n",
    .options = verify_options,
    .n_options = TOOL_COUNT(verify_options),
    .run = verify_run};
