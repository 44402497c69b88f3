/* insitu index: the bytes of a file, on this machine or in a store (http, https, s3, gs, az), which
 * its scan reads from. Scans read a little here and there, and a request to a store takes as long
 * as a megabyte does. So pages of stores are kept:
 *
 *   bytes_read --> page at hand --no--> one request: at least `least` bytes, and twice as many as
 *                                       the request before where reads go on behind that one
 *
 * A file in a store is the same in all of its requests: each has the ETag of the first (If-Match),
 * or its answer is compared with that. A file on this machine is compared once more when its scan
 * ends. The first failure stays: every read after it fails, too, so that no scan takes a failure
 * for something that is not there.
 *
 * Files of one host or bucket share a store, and with it connections, credentials and retries. */

enum {
  BYTES_PAGE = 16 << 10,
  BYTES_PAGES = 2048,   /* of one file that are kept */
  BYTES_MOST = 1 << 20, /* of one request for pages; longer reads go past them */
  BYTES_AT_ONCE = 32,   /* requests of bytes_want */
  BYTES_MAX_TEXT = 64 << 20
};

/* A store and the host or bucket that it is of. */
struct bytes_place {
  char *url;
  insitu_loader_desc desc;
  struct tool_archive archive; /* of which only reactor and store are open */
};
static struct bytes_place **bytes_places;                  /* growing array; bytes_end frees it */
static struct { uint64_t requests, fetched; } bytes_total; /* of all files in stores */

struct bytes_page {
  uint64_t number;
  unsigned char *bytes;
  uint32_t chain, newer, older; /* indexes of pages + 1; 0: none */
};
struct bytes {
  char *name; /* for messages: a URL without what may be a secret */
  int fd;     /* of a file on this machine, else -1 */
  struct stat stat;
  struct bytes_place *place; /* of another */
  char key[INSITU__MAX_KEY];
  uint64_t size;
  int64_t modified;               /* seconds since 1970; INT64_MIN: unknown */
  struct insitu__store_tag first; /* the answer that told the size */
  bool pinned;
  struct bytes_page *page; /* BYTES_PAGES */
  uint32_t table[BYTES_PAGES], newest, oldest, n_pages;
  uint64_t least, next, run; /* bytes; the page behind the last request, and pages of that one */
  uint64_t requests, fetched;
  insitu_error err; /* the first failure */
};

/* ---- stores ---- */

static void bytes_place_close(struct bytes_place *p) {
  tool_archive_close(&p->archive);
  insitu__mem_free(p->url);
  insitu__mem_free(p);
}
/* Closes the stores of URLs with a query, each of which is most likely one file's: signed URLs
 * would need descriptors for each file. No file of theirs is open. */
static void bytes_end_queries(void) {
  uint64_t n = INSITU__ARRAY_LEN(bytes_places), kept = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (strchr(bytes_places[i]->url, '?')) bytes_place_close(bytes_places[i]);
    else bytes_places[kept++] = bytes_places[i];
  }
  if (n) insitu__array_header(bytes_places)->length = kept;
}
static void bytes_end(void) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(bytes_places); i++) bytes_place_close(bytes_places[i]);
  INSITU__ARRAY_FREE(bytes_places);
}
static struct bytes_place *bytes_place(const char *url, insitu_error *err) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(bytes_places); i++)
    if (!strcmp(bytes_places[i]->url, url)) return bytes_places[i];
  struct bytes_place *p = tool_alloc(1, sizeof *p);
  p->url = tool_copy(url);
  p->desc = tool_desc(p->url);
  if (tool_archive_store(&p->desc, 0, &p->archive, err) < 0) {
    insitu__mem_free(p->url);
    insitu__mem_free(p);
    return NULL;
  }
  if (!INSITU__ARRAY_PUSH(bytes_places, p)) tool_no_memory();
  return p;
}
static bool bytes_is_remote(const char *path) {
  return strstr(path, "://") && strncasecmp(path, "file://", 7) != 0;
}
/* A URL without its query, which may be a secret; other paths as they are. */
static char *bytes_plain(const char *path) {
  char *plain = tool_copy(path);
  if (!strncasecmp(plain, "http", 4) && bytes_is_remote(plain)) plain[strcspn(plain, "?#")] = 0;
  return plain;
}
/* The store and the key of a URL. */
static struct bytes_place *bytes_find(
    const char *url, char key[INSITU__MAX_KEY], insitu_error *err) {
  struct insitu__virtual_url u;
  struct insitu__text_buffer root = {.secret = true};
  struct bytes_place *p = NULL;
  char shown[400];
  const char *cause = insitu__virtual_split(NULL, url, &u, key);
  bool nothing = !cause && !key[0]; /* an archive may well lie there */
  if (cause || nothing) {
    insitu__error_set(err, nothing ? INSITU_E_NOTFOUND : INSITU_E_ARG, "%s: %s",
        insitu__text_redact(url, shown, sizeof shown), nothing ? "it names no file" : cause);
    return NULL;
  }
  insitu__text_buffer_printf(&root, "%s%s%s", u.root, u.query[0] ? "?" : "", u.query);
  if (root.failed) tool_no_memory();
  p = bytes_place(root.text, err);
  insitu__text_buffer_free(&root);
  return p;
}

/* ---- requests ---- */

/* One range of a file. */
struct bytes_fetch {
  struct bytes *b;
  uint64_t at, n, got;
  unsigned char *to;
  struct insitu__store_tag tag;
  struct insitu__reactor_gate *done; /* NULL: nobody waits */
  insitu_status status;
  insitu_error err;
};
static void bytes_fetch_await(void *arg) {
  struct bytes_fetch *f = arg;
  struct iovec iov = {f->to, (size_t)f->n};
  f->tag.pin = f->b->pinned ? &f->b->first : NULL;
  f->status = insitu__store_fetch_await(
      &f->b->place->archive.store, f->b->key, f->at, &iov, 1, &f->tag, &f->got, &f->err);
  if (f->done) insitu__reactor_gate_open(f->done);
}
/* Notes the failure of a request. False: it failed. */
static bool bytes_fetched(struct bytes *b, const struct bytes_fetch *f) {
  b->requests++;
  b->fetched += f->got;
  if (b->err.status < 0) return false;
  if (f->status < 0) {
    insitu__error_copy(&b->err, &f->err);
    b->err.status = f->status;
  } else if (b->pinned && f->got < f->n) {
    insitu__error_set(&b->err, INSITU_E_CHANGED,
        "%s: it ends at byte %" PRIu64 " of %" PRIu64 ", and so has changed while it was scanned; "
        "index it again",
        b->name, f->at + f->got, b->size);
  }
  return b->err.status >= 0;
}
static bool bytes_fetch(struct bytes *b, struct bytes_fetch *f) {
  f->b = b;
  if (insitu__reactor_call(&b->place->archive.reactor, bytes_fetch_await, f) < 0) tool_no_memory();
  return bytes_fetched(b, f);
}

/* ---- pages ---- */

static struct bytes_page *bytes_page_at(struct bytes *b, uint32_t index) {
  return &b->page[index - 1];
}
static uint32_t *bytes_page_slot(struct bytes *b, uint64_t number) {
  return &b->table[insitu__order_mix(number) % BYTES_PAGES];
}
static void bytes_page_unlink(struct bytes *b, struct bytes_page *p) {
  *(p->newer ? &bytes_page_at(b, p->newer)->older : &b->newest) = p->older;
  *(p->older ? &bytes_page_at(b, p->older)->newer : &b->oldest) = p->newer;
}
/* Makes it the page that was used last. */
static void bytes_page_link(struct bytes *b, uint32_t index) {
  struct bytes_page *p = bytes_page_at(b, index);
  p->newer = 0;
  p->older = b->newest;
  *(b->newest ? &bytes_page_at(b, b->newest)->newer : &b->oldest) = index;
  b->newest = index;
}
/* A page that is at hand; NULL: it is not. */
static const unsigned char *bytes_page_find(struct bytes *b, uint64_t number, bool used) {
  uint32_t i = *bytes_page_slot(b, number);
  while (i && bytes_page_at(b, i)->number != number) i = bytes_page_at(b, i)->chain;
  if (i && used) {
    bytes_page_unlink(b, bytes_page_at(b, i));
    bytes_page_link(b, i);
  }
  return i ? bytes_page_at(b, i)->bytes : NULL;
}
/* Keeps a page of n bytes, in the place of the one that was not used for the longest time. */
static void bytes_page_keep(
    struct bytes *b, uint64_t number, const unsigned char *from, uint64_t n) {
  uint32_t i = b->n_pages + 1, *slot;
  if (bytes_page_find(b, number, true)) return;
  if (!b->page) b->page = tool_alloc(BYTES_PAGES, sizeof *b->page);
  if (b->n_pages < BYTES_PAGES) {
    bytes_page_at(b, i)->bytes = tool_alloc(BYTES_PAGE, 1);
    b->n_pages++;
  } else {
    i = b->oldest;
    slot = bytes_page_slot(b, bytes_page_at(b, i)->number);
    while (*slot != i) slot = &bytes_page_at(b, *slot)->chain;
    *slot = bytes_page_at(b, i)->chain;
    bytes_page_unlink(b, bytes_page_at(b, i));
  }
  struct bytes_page *p = bytes_page_at(b, i);
  memcpy(p->bytes, from, (size_t)n);
  p->number = number;
  slot = bytes_page_slot(b, number);
  p->chain = *slot;
  *slot = i;
  bytes_page_link(b, i);
}
static void bytes_keep(struct bytes *b, const struct bytes_fetch *f) {
  for (uint64_t at = 0; at < f->got; at += BYTES_PAGE)
    bytes_page_keep(
        b, (f->at + at) / BYTES_PAGE, f->to + at, insitu__base_min(BYTES_PAGE, f->got - at));
}
/* How many pages from `page` on are not at hand, `most` at most. */
static uint64_t bytes_missing(struct bytes *b, uint64_t page, uint64_t most) {
  uint64_t n = 0, end = insitu__base_ceil_div(b->size, BYTES_PAGE);
  while (n < most && page + n < end && !bytes_page_find(b, page + n, false)) n++;
  return n;
}
/* Fetches a page and those behind it that the read up to page `last` needs, or will need. */
static bool bytes_load(struct bytes *b, uint64_t page, uint64_t last) {
  static unsigned char room[BYTES_MOST];
  uint64_t most = BYTES_MOST / BYTES_PAGE, least = insitu__base_ceil_div(b->least, BYTES_PAGE);
  b->run = page == b->next ? insitu__base_min(most, 2 * b->run) : 1;
  uint64_t n = insitu__base_max(last - page + 1, insitu__base_max(least, b->run));
  struct bytes_fetch f = {.at = page * BYTES_PAGE, .to = room};
  n = bytes_missing(b, page, insitu__base_min(n, most));
  f.n = insitu__base_min(n * BYTES_PAGE, b->size - f.at);
  b->run = n;
  b->next = page + n;
  if (!bytes_fetch(b, &f)) return false;
  bytes_keep(b, &f);
  return true;
}

/* ---- reads ---- */

static bool bytes_read_file(struct bytes *b, void *to, uint64_t n, uint64_t at) {
  for (uint64_t got = 0; got < n;) {
    ssize_t k = pread(b->fd, (char *)to + got, (size_t)(n - got), (off_t)(at + got));
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) {
      insitu__error_set(&b->err, INSITU_E_IO, "%s: byte %" PRIu64 ": %s", b->name, at + got,
          k < 0 ? strerror(errno) : "it ends there, and so has changed; index it again");
      return false;
    }
    got += (uint64_t)k;
  }
  b->fetched += n;
  b->requests += n > 0;
  return true;
}
/* Reads n bytes. False: it failed, b->err says why. */
static bool bytes_read(struct bytes *b, void *to, uint64_t n, uint64_t at) {
  uint64_t end;
  if (b->err.status < 0) return false;
  if (!insitu__base_add(at, n, &end) || end > b->size) {
    insitu__error_set(&b->err, INSITU_E_CORRUPT,
        "%s: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 " are needed: it is cut off; fetch it "
        "again",
        b->name, at, at + n, b->size);
    return false;
  }
  if (!b->place) return bytes_read_file(b, to, n, at);
  if (n > BYTES_MOST) return bytes_fetch(b, &(struct bytes_fetch){.at = at, .n = n, .to = to});
  for (uint64_t got = 0; got < n;) {
    uint64_t page = (at + got) / BYTES_PAGE, skip = (at + got) % BYTES_PAGE;
    uint64_t part = insitu__base_min(BYTES_PAGE - skip, n - got);
    const unsigned char *bytes = bytes_page_find(b, page, true);
    if (!bytes && !bytes_load(b, page, (end - 1) / BYTES_PAGE)) return false;
    if (!bytes) bytes = bytes_page_find(b, page, true);
    memcpy((char *)to + got, bytes + skip, (size_t)part);
    got += part;
  }
  return true;
}

/* Ranges that will be read soon, in the order of the file. */
struct bytes_range {
  uint64_t at, n;
};
struct bytes_wanted {
  struct bytes *b;
  struct bytes_fetch *fetch; /* growing array */
};
static void bytes_want_await(void *arg) {
  struct bytes_wanted *w = arg;
  struct insitu__store *s = &w->b->place->archive.store;
  uint64_t n = INSITU__ARRAY_LEN(w->fetch);
  if (s->ops->widen) s->ops->widen(s, BYTES_AT_ONCE);
  for (uint64_t at = 0; at < n; at += BYTES_AT_ONCE) {
    uint64_t some = insitu__base_min(BYTES_AT_ONCE, n - at);
    struct insitu__reactor_gate gate = {.open = false};
    insitu__reactor_gate_expect(&gate, (unsigned)some);
    for (uint64_t i = at; i < at + some; i++) {
      w->fetch[i].done = &gate;
      if (insitu__reactor_spawn(s->reactor, bytes_fetch_await, &w->fetch[i])) tool_no_memory();
    }
    insitu__reactor_gate_await(s->reactor, &gate);
  }
}
/* Adds the pages of one range that are not at hand, from page *behind on; how many they are. */
static uint64_t bytes_want_range(
    struct bytes_wanted *w, const struct bytes_range *range, uint64_t *behind) {
  struct bytes *b = w->b;
  uint64_t page = insitu__base_max(range->at / BYTES_PAGE, *behind), end, pages = 0;
  if (!insitu__base_add(range->at, range->n, &end)) return 0;
  end = insitu__base_ceil_div(insitu__base_min(end, b->size), BYTES_PAGE);
  while (page < end) {
    uint64_t n = INSITU__ARRAY_LEN(w->fetch);
    uint64_t missing = bytes_missing(b, page, insitu__base_min(end - page, BYTES_PAGES / 2));
    struct bytes_fetch f = {.b = b, .at = page * BYTES_PAGE}, *last = n ? &w->fetch[n - 1] : NULL;
    if (missing) f.n = insitu__base_min(missing * BYTES_PAGE, b->size - f.at);
    page += insitu__base_max(1, missing);
    pages += missing;
    if (f.n && last && last->at + last->n == f.at && last->n + f.n <= BYTES_MOST) last->n += f.n;
    else if (f.n && !INSITU__ARRAY_PUSH(w->fetch, f)) tool_no_memory();
  }
  *behind = insitu__base_max(*behind, end);
  return pages;
}
/* Fetches ranges, many at once and neighbours by one request, as far as half of the pages hold
 * them; returns how many they were. Failures are noted, and the next read tells them. */
static uint64_t bytes_want(struct bytes *b, const struct bytes_range *range, uint64_t n) {
  struct bytes_wanted w = {.b = b};
  uint64_t i, pages = 0, behind = 0;
  if (!b->place || b->err.status < 0) return n;
  for (i = 0; i < n && pages < BYTES_PAGES / 2; i++)
    pages += bytes_want_range(&w, &range[i], &behind);
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(w.fetch); k++)
    w.fetch[k].to = tool_alloc(w.fetch[k].n, 1);
  if (w.fetch && insitu__reactor_call(&b->place->archive.reactor, bytes_want_await, &w) < 0)
    tool_no_memory();
  for (uint64_t k = 0; k < INSITU__ARRAY_LEN(w.fetch); k++) {
    if (bytes_fetched(b, &w.fetch[k])) bytes_keep(b, &w.fetch[k]);
    insitu__mem_free(w.fetch[k].to);
  }
  INSITU__ARRAY_FREE(w.fetch);
  return i;
}

/* ---- whole files ---- */

/* Whether these first bytes are those of HTML: of a list, or of a page to log in. */
static bool bytes_is_page(const unsigned char *bytes, uint64_t n) {
  if (n >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) bytes += 3, n -= 3; /* the mark of UTF-8 */
  while (n && *bytes && strchr(" \r\n\t", *bytes)) bytes++, n--;
  return (n >= 9 && !strncasecmp((const char *)bytes, "<!doctype", 9)) ||
         (n >= 5 && !strncasecmp((const char *)bytes, "<html", 5));
}
/* The first request of a file in a store: its first bytes, and what tells it from others. */
static insitu_status bytes_open_far(struct bytes *b, const char *url) {
  static unsigned char room[64 << 10];
  struct bytes_fetch f = {.n = sizeof room, .to = room};
  b->place = bytes_find(url, b->key, &b->err);
  if (!b->place) return b->err.status;
  if (!bytes_fetch(b, &f)) return b->err.status;
  b->first = f.tag;
  b->first.pin = NULL;
  b->pinned = true;
  if (bytes_is_page(room, f.got))
    return insitu__error_set(&b->err, INSITU_E_NOTFOUND,
        "%s: its server answers with a page for people, and no file; check the URL, and whether "
        "one has to log in",
        b->name);
  b->size = f.tag.size;
  if (b->size == UINT64_MAX) b->size = f.tag.version.total;
  if (f.tag.no_ranges && f.got >= b->size && f.got < f.n)
    b->first.no_ranges = false; /* all of it */
  if (b->first.no_ranges)
    return insitu__error_set(&b->err, INSITU_E_UNSUPPORTED,
        "%s: its server ignores ranges, and sends the whole file for each of them; fetch it, and "
        "index the copy with --base and the URL of its folder",
        b->name);
  if (b->size == UINT64_MAX)
    return insitu__error_set(&b->err, INSITU_E_UNSUPPORTED,
        "%s: its server does not tell its length; fetch it, and index the copy with --base and "
        "the URL of its folder",
        b->name);
  if (f.tag.version.modified) b->modified = (int64_t)f.tag.version.modified;
  bytes_keep(b, &f);
  b->next = insitu__base_ceil_div(f.got, BYTES_PAGE);
  b->run = 1;
  return INSITU_OK;
}
/* Opens a file. INSITU_E_NOTFOUND: there is none; the other errors are in b->err, too.
 * bytes_close in any case. */
static insitu_status bytes_open(struct bytes *b, const char *path) {
  char shown[INSITU__MAX_KEY];
  memset(b, 0, sizeof *b);
  b->fd = -1;
  b->modified = INT64_MIN;
  b->least = BYTES_PAGE;
  if (bytes_is_remote(path)) {
    char *plain = bytes_plain(path);
    b->name = tool_copy(insitu__text_redact(plain, shown, sizeof shown));
    insitu__mem_free(plain);
    return bytes_open_far(b, path);
  }
  b->name = tool_copy(path);
  b->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (b->fd < 0)
    return insitu__error_set(&b->err, errno == ENOENT ? INSITU_E_NOTFOUND : INSITU_E_IO,
        "%s: %s; check the path", b->name, strerror(errno));
  if (fstat(b->fd, &b->stat) || !S_ISREG(b->stat.st_mode))
    return insitu__error_set(&b->err, INSITU_E_IO, "%s: it cannot be read, or is no file", b->name);
  b->size = (uint64_t)b->stat.st_size;
  b->modified = (int64_t)b->stat.st_mtime;
  return INSITU_OK;
}
/* Whether no read failed, and the file is still the one that was opened; b->err. */
static insitu_status bytes_same(struct bytes *b) {
  struct stat now;
  if (b->err.status < 0 || b->place) return b->err.status;
  if (stat(b->name, &now) == 0 && now.st_dev == b->stat.st_dev && now.st_ino == b->stat.st_ino &&
      now.st_size == b->stat.st_size && now.st_mtim.tv_sec == b->stat.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == b->stat.st_mtim.tv_nsec)
    return INSITU_OK;
  return insitu__error_set(&b->err, INSITU_E_CHANGED,
      "%s: it changed while it was scanned; index it again when it is whole", b->name);
}
/* A zeroed one is fine, with fd -1. */
static void bytes_close(struct bytes *b) {
  if (b->fd >= 0) close(b->fd);
  if (b->place) {
    bytes_total.requests += b->requests;
    bytes_total.fetched += b->fetched;
  }
  for (uint32_t i = 0; i < b->n_pages; i++) insitu__mem_free(b->page[i].bytes);
  insitu__mem_free(b->page);
  insitu__mem_free(b->name);
  memset(b, 0, sizeof *b);
  b->fd = -1;
}

/* A small object beside a file in a store. */
struct bytes_text {
  struct bytes_place *place;
  char key[INSITU__MAX_KEY];
  char *text;
  uint64_t n;
  insitu_status status;
  insitu_error *err;
};
static void bytes_text_await(void *arg) {
  struct bytes_text *t = arg;
  t->status = insitu__store_get_await(
      &t->place->archive.store, t->key, BYTES_MAX_TEXT, &t->text, &t->n, t->err);
}
/* All of the text at a path, NUL-terminated; insitu__mem_free frees it. INSITU_E_NOTFOUND: there is
 * none. */
static insitu_status bytes_text(const char *path, char **text, uint64_t *n, insitu_error *err) {
  struct bytes_text t = {.err = err};
  struct bytes b;
  *text = NULL;
  if (bytes_is_remote(path)) {
    t.place = bytes_find(path, t.key, err);
    if (!t.place) return err->status;
    if (insitu__reactor_call(&t.place->archive.reactor, bytes_text_await, &t) < 0) tool_no_memory();
    *text = t.text;
    *n = t.n;
    bytes_total.requests++;
    bytes_total.fetched += t.n;
    if (t.status < 0 || !bytes_is_page((const unsigned char *)t.text, t.n)) return t.status;
    insitu__mem_free(t.text);
    *text = NULL;
    return insitu__error_set(err, INSITU_E_NOTFOUND,
        "'%.300s': its server answers with a page for people, and no file", t.key);
  }
  insitu_status status = bytes_open(&b, path);
  if (status >= 0 && b.size > BYTES_MAX_TEXT)
    status = insitu__error_set(&b.err, INSITU_E_UNSUPPORTED,
        "%s: more than BYTES_MAX_TEXT (%d MiB)", b.name, BYTES_MAX_TEXT >> 20);
  if (status >= 0) {
    *n = b.size;
    *text = tool_alloc(b.size + 1, 1);
    if (!bytes_read(&b, *text, b.size, 0)) status = b.err.status;
  }
  if (status < 0) {
    insitu__error_copy(err, &b.err);
    insitu__mem_free(*text);
    *text = NULL;
  }
  bytes_close(&b);
  return status;
}
