/* An HTTP/1.1 origin server for tests and benchmarks, on threads of its own in the process that
 * starts it: objects in memory or in a folder, ranges, conditions, answers of a test's own, and
 * every way in which a server can go wrong, by rules. Loopback only.
 *
 *   struct server *s = server_start(&(struct server_options){.latency_ms = 20});
 *   server_put(s, "a/zarr.json", text, strlen(text));           //
 *   http://127.0.0.1:PORT/a/zarr.json
 *   server_rule(s, (struct server_rule){.key = "a/c/" "*", .fault = SERVER_RESET, .at = 1000,
 *   .count = 3});
 *   ... server_stats(s).waves ...
 *   server_stop(&s);
 *
 * Needs _GNU_SOURCE. Include it before anything that replaces calls of the C library by macros. All
 * functions may be called from any thread. A failure to set up ends the process: there is nothing
 * to test then. */
#ifndef TESTS_SERVER_H
#define TESTS_SERVER_H
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  SERVER_HEADERS = 64,   /* of a request */
  SERVER_HEAD = 1 << 17, /* bytes of a request's head */
  SERVER_BODY = 1 << 28, /* bytes of a request's body */
  SERVER_RULES = 64,     /* at once */
  SERVER_LOG = 1 << 16,  /* requests that are remembered */
  /* bodies from here on go out by sendfile, smaller ones with their header in one call */
  SERVER_SENDFILE = 1 << 15,
  SERVER_SLICE = 1 << 14, /* bytes of a connection's turn, where bandwidth is limited */
  SERVER_EVENTS = 256
};
#define SERVER_ARENA ((uint64_t)1 << 34) /* address space for objects in memory */
#define SERVER_EVER INT64_MAX            /* ms: until server_release, or until the client goes */

/* Where in an answer something happens: a count of body bytes, or one of these. */
enum { SERVER_AT_START = -2, SERVER_AT_HEADER = -1 /* in its middle */ };

struct server;
struct server_header {
  const char *name, *value;
};
struct server_request { /* lives until its answer is made */
  struct server *server;
  const char *method, *target; /* as sent */
  /* decoded, without the '/' at its begin; behind '?' as sent, or "" */
  const char *path, *query;
  struct server_header headers[SERVER_HEADERS];
  unsigned n_headers;
  const char *body; /* n_body bytes and a NUL */
  uint64_t n_body;
  uint64_t connection; /* its number, from 0 */
  uint64_t before;     /* requests that came before, on all connections */
  uint64_t in_flight;  /* requests being answered, this one included */
  uint64_t wave;
};
struct server_answer {
  int status;    /* 0: whatever the object at the path gives */
  char *headers; /* lines that end in \r\n; see server_answer_header */
  char *body;    /* malloc'ed, the server frees it; NULL: empty */
  uint64_t n_body;
  int64_t delay_ms; /* before it begins, besides the latency */
};
/* Answers requests that are not for objects, such as those of a metadata service. Returns whether
 * it did; where not, the object at the path is the answer. Runs on the server's threads; may call
 * server_... but for stop. */
typedef bool (*server_answer_fn)(
    void *user, const struct server_request *q, struct server_answer *a);

struct server_options {
  int threads;        /* 1; with more the hook is called on several at once */
  int port;           /* 0: any that is free */
  const char *folder; /* its files are objects, besides those that are put */
  int64_t latency_ms; /* of every answer */
  uint64_t rate;      /* bytes per second and connection; 0: no limit */
  uint64_t bandwidth; /* bytes per second of all connections together; 0: no limit */
  uint64_t seed;      /* of rules with a probability */
  bool chunked;       /* answers have Transfer-Encoding: chunked and no Content-Length */
  bool no_log;
  server_answer_fn answer;
  void *user;
};

enum server_fault {
  SERVER_NONE,
  SERVER_STATUS, /* status, with text as the error code of S3-like XML; retry_after */
  SERVER_RESET,  /* the connection is reset at `at` */
  SERVER_CLOSE,  /* it is closed cleanly at `at`: a truncated answer */
  SERVER_STALL,  /* nothing more for ms from `at` on; SERVER_AT_START: a delay */
  SERVER_DRIP,   /* `at` bytes (1) every ms (1) milliseconds */
  SERVER_LONGER, /* `at` more bytes than the header says */
  SERVER_LENGTH, /* Content-Length off by `at`; the connection closes behind the body */
  SERVER_RANGE,  /* Content-Range shifted by `at`; or text is its value, "" none */
  SERVER_WHOLE,  /* the whole object and 200 whatever the range */
  /* status (302) to text; a '*' at its end stands for the target without its '/' */
  SERVER_REDIRECT,
  SERVER_ETAG,        /* ETag is text, of up to 8000 characters; "": none */
  SERVER_MODIFIED,    /* Last-Modified is text; "": none */
  SERVER_SWAP,        /* the answer is that of the object at text: the object was replaced by it */
  SERVER_CHANGE,      /* the object gets another version, and the request is answered by it */
  SERVER_GARBAGE,     /* status (200) and `at` bytes of noise as the body */
  SERVER_NOISE,       /* noise instead of a header */
  SERVER_BIG_HEADER,  /* a header of `at` bytes more */
  SERVER_GZIP,        /* Content-Encoding: gzip, of the whole object, and 200 */
  SERVER_HEAD_BODY,   /* an answer to HEAD with `at` bytes of body */
  SERVER_CONTINUE,    /* `at` (1) interim answers of status (100) before it */
  SERVER_LAST,        /* Connection: close, and so it is */
  SERVER_OLD,         /* the answer is of HTTP/1.0, and its connection closes */
  SERVER_CHUNKED,     /* Transfer-Encoding: chunked in chunks of `at` (whole) */
  SERVER_UNTIL_CLOSE, /* no Content-Length: the body ends with the connection */
  SERVER_FLIP,        /* byte `at` of the body is another one */
  SERVER_HEADER,      /* text is one more header line */
  SERVER_TRAILER      /* text is a line behind a chunked body */
};
/* Which requests go wrong, and how. All rules that fit a request apply to it together. */
struct server_rule {
  const char *key, *method; /* a glob for the path ('*' takes slashes, too), a method; NULL: all */
  const char *range;        /* a glob for the value of Range, "" for requests without; NULL: all */
  uint64_t skip, count;     /* of those not the first `skip`; then `count`, 0: all */
  bool each;                /* skip and count are per target, not in all */
  /* 0: 1. Drawn from the seed, target, range and how often that was asked: not from the timing */
  double probability;
  enum server_fault fault;
  int status;
  int64_t at, ms;
  int64_t retry_after; /* seconds; negative: as a date so much later; 0: none */
  const char *text;    /* copied, as the globs are */
};

struct server_statistics {
  uint64_t requests, get, head, put, post, other;
  uint64_t connections, open, open_max; /* accepted; open now, at most */
  uint64_t in_flight, in_flight_max;    /* requests being answered now, at most */
  /* answers sent to their end; not, by rule or because the client went */
  uint64_t answered, broken;
  uint64_t faults;     /* rules applied */
  uint64_t bytes_sent; /* headers included */
  /* Round trips: a request's wave is one more than the highest of those answered completely before
   * it arrived. A server without latency may answer the first of several that were sent together
   * before it sees the others, and count too many. */
  uint64_t waves;
};
struct server_logged {
  const char *head; /* the request's head, as it came */
  int status;       /* of the answer; 0: none */
  uint64_t connection, wave, ns;
};

/* ---- private ---- */
struct server__object {
  char *key;
  uint64_t hash, offset, n, content;
  time_t modified;
  bool present;
};
struct server__count {
  uint64_t hash, n;
};
struct server__twist { /* what rules make of an answer; text is a copy */
  int status, redirect, interim_status, garbage;
  char *code, *location, *etag, *modified, *swap, *range_value, *header, *trailer;
  bool whole, gzip, last, old, until_close, noise, flips, reset, drips;
  int64_t length_off, range_off, flip, chunk, extra, interim, retry_after, head_body, n_garbage;
  int64_t cut_at, stall_at, stall_ms, drip, drip_ms; /* cut_at, stall_at: INT64_MAX: none */
  uint64_t big;
};
struct server__answer {
  struct server_answer own; /* its body is the answer's, where there is one */
  /* the object: n bytes at body, or in fd from offset on, or both */
  const char *body;
  uint64_t n, total, first, offset;
  int fd;
  bool close_fd, exists;
  char etag[8200];
  time_t modified;
};
struct server__connection {
  struct server__connection *before, *after; /* of its worker */
  struct server__worker *worker;
  int fd;
  uint64_t number, wave, heap;
  enum { SERVER__IDLE, SERVER__WAITING, SERVER__SENDING } state;
  bool readable, writable, last, told_continue, broken;
  char *in;
  uint64_t n_in, cap_in;
  /* the answer: the header, then the body */
  char *head, *owned;
  uint64_t n_head, total, sent;
  const char *body;
  int body_fd;
  bool close_fd;
  uint64_t body_offset, cut_at, stall_at, drip, drip_at;
  uint64_t booked; /* bytes of the answer whose turn has come */
  bool reset;
  int64_t stall_ns, drip_ns, wake; /* INT64_MAX: not by time */
};
struct server__worker {
  struct server *server;
  pthread_t thread;
  int epoll, timer, event;
  struct server__connection *connections, **heap;
  uint64_t n_heap, cap_heap, released;
};
struct server__rule {
  struct server_rule rule;
  uint64_t seen, hits;
};
struct server {
  struct server_options options;
  pthread_mutex_t lock;
  int listener, port, folder, memory;
  char *arena;
  uint64_t n_arena, cap_arena;
  struct server__object *objects;
  uint64_t n_objects, cap_objects;
  struct server__count *counts;
  uint64_t n_counts, cap_counts;
  struct server__rule rules[SERVER_RULES];
  unsigned n_rules;
  struct server_statistics stats;
  uint64_t wave_done, n_log;
  struct server_logged *log;
  int64_t busy_until; /* when all bytes that have a turn are sent */
  atomic_int_least64_t latency_ns;
  atomic_uint_least64_t release;
  atomic_bool stop;
  struct server__worker *workers;
  int n_workers;
};

static inline void server__die(const char *what) {
  perror(what);
  exit(99);
}
static inline void *server__alloc(void *p, uint64_t bytes) {
  p = realloc(p, bytes ? bytes : 1);
  if (!p) server__die("server: memory");
  return p;
}
static inline char *server__copy(const char *text) {
  return text ? strcpy(server__alloc(NULL, strlen(text) + 1), text) : NULL;
}
static inline int64_t server__now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline uint64_t server__mix(uint64_t x) { /* the finalizer of splitmix64 */
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
static inline uint64_t server__hash(uint64_t seed, const void *bytes, uint64_t n) {
  const unsigned char *p = bytes;
  uint64_t h = seed ^ n * 0x9e3779b97f4a7c15, word;
  for (; n >= 8; p += 8, n -= 8) {
    memcpy(&word, p, 8);
    h = (h ^ word) * 0xff51afd7ed558ccd;
    h ^= h >> 29;
  }
  word = 0;
  memcpy(&word, p, n);
  return server__mix(h ^ word);
}
static inline uint64_t *server__counter(struct server *s, uint64_t hash) {
  if (2 * s->n_counts >= s->cap_counts) {
    struct server__count *old = s->counts;
    uint64_t cap = s->cap_counts;
    s->cap_counts = cap ? 2 * cap : 1024;
    s->counts = server__alloc(NULL, s->cap_counts * sizeof *s->counts);
    memset(s->counts, 0, s->cap_counts * sizeof *s->counts);
    s->n_counts = 0;
    for (uint64_t i = 0; i < cap; i++)
      if (old[i].hash) *server__counter(s, old[i].hash) = old[i].n;
    free(old);
  }
  if (!hash) hash = 1;
  uint64_t i = hash & (s->cap_counts - 1);
  while (s->counts[i].hash && s->counts[i].hash != hash) i = (i + 1) & (s->cap_counts - 1);
  if (!s->counts[i].hash) s->counts[i].hash = hash, s->n_counts++;
  return &s->counts[i].n;
}
static inline uint64_t *server__version(struct server *s, const char *key) {
  return server__counter(s, server__hash(77, key, strlen(key)));
}
static inline struct server__object *server__find(struct server *s, const char *key) {
  uint64_t hash = server__hash(1, key, strlen(key));
  if (!s->cap_objects) return NULL;
  for (uint64_t i = hash & (s->cap_objects - 1); s->objects[i].key;
       i = (i + 1) & (s->cap_objects - 1))
    if (s->objects[i].hash == hash && !strcmp(s->objects[i].key, key)) return &s->objects[i];
  return NULL;
}
static inline struct server__object *server__make(struct server *s, const char *key) {
  struct server__object *o = server__find(s, key);
  if (o) return o;
  if (2 * s->n_objects >= s->cap_objects) {
    struct server__object *old = s->objects;
    uint64_t cap = s->cap_objects;
    s->cap_objects = cap ? 2 * cap : 1024;
    s->objects = server__alloc(NULL, s->cap_objects * sizeof *o);
    memset(s->objects, 0, s->cap_objects * sizeof *o);
    for (uint64_t i = 0; i < cap; i++)
      if (old[i].key) {
        uint64_t at = old[i].hash & (s->cap_objects - 1);
        while (s->objects[at].key) at = (at + 1) & (s->cap_objects - 1);
        s->objects[at] = old[i];
      }
    free(old);
  }
  uint64_t hash = server__hash(1, key, strlen(key)), i = hash & (s->cap_objects - 1);
  while (s->objects[i].key) i = (i + 1) & (s->cap_objects - 1);
  s->objects[i] = (struct server__object){.key = server__copy(key), .hash = hash};
  s->n_objects++;
  return &s->objects[i];
}

/* ---- objects ---- */
/* An object in memory, or another content for it. The bytes are copied. */
static inline void server_put(struct server *s, const char *key, const void *bytes, uint64_t n) {
  pthread_mutex_lock(&s->lock);
  struct server__object *o = server__make(s, key);
  while (s->n_arena + n > s->cap_arena) {
    s->cap_arena = s->cap_arena ? 2 * s->cap_arena : 1 << 20;
    if (s->cap_arena > SERVER_ARENA || ftruncate(s->memory, (off_t)s->cap_arena))
      server__die("server: too many bytes");
  }
  if (n) memcpy(s->arena + s->n_arena, bytes, n);
  *o = (struct server__object){
      o->key, o->hash, s->n_arena, n, server__hash(2, bytes, n), time(NULL), true};
  s->n_arena = (s->n_arena + n + 4095) & ~(uint64_t)4095;
  pthread_mutex_unlock(&s->lock);
}
static inline void server_text(struct server *s, const char *key, const char *text) {
  server_put(s, key, text, strlen(text));
}
static inline void server_delete(struct server *s, const char *key) {
  pthread_mutex_lock(&s->lock);
  struct server__object *o = server__find(s, key);
  if (o) o->present = false;
  pthread_mutex_unlock(&s->lock);
}
/* Gives an object another version, and so another ETag, its bytes unchanged. */
static inline void server_touch(struct server *s, const char *key) {
  pthread_mutex_lock(&s->lock);
  ++*server__version(s, key);
  pthread_mutex_unlock(&s->lock);
}
/* Calls each with every object in memory. The server stands still meanwhile: each may not call it.
 */
static inline void server_each(
    struct server *s, void (*each)(void *user, const char *key, uint64_t n), void *user) {
  pthread_mutex_lock(&s->lock);
  for (uint64_t i = 0; i < s->cap_objects; i++)
    if (s->objects[i].key && s->objects[i].present) each(user, s->objects[i].key, s->objects[i].n);
  pthread_mutex_unlock(&s->lock);
}
/* "http://127.0.0.1:PORT/KEY"; a few may be in use at once. */
static inline const char *server_url(const struct server *s, const char *key) {
  static char url[8][600];
  static int turn;
  char *p = url[turn++ % 8];
  snprintf(p, sizeof url[0], "http://127.0.0.1:%d/%s", s->port, key);
  return p;
}

/* ---- rules, statistics, log ---- */
static inline unsigned server_rule(struct server *s, struct server_rule rule) {
  rule.key = server__copy(rule.key), rule.method = server__copy(rule.method);
  rule.range = server__copy(rule.range), rule.text = server__copy(rule.text);
  pthread_mutex_lock(&s->lock);
  if (s->n_rules == SERVER_RULES) server__die("server: too many rules");
  unsigned number = s->n_rules++;
  s->rules[number] = (struct server__rule){.rule = rule};
  pthread_mutex_unlock(&s->lock);
  return number;
}
/* How often it was applied. */
static inline uint64_t server_hits(struct server *s, unsigned rule) {
  pthread_mutex_lock(&s->lock);
  uint64_t n = s->rules[rule].hits;
  pthread_mutex_unlock(&s->lock);
  return n;
}
static inline void server__drop_rules(struct server *s) {
  for (unsigned i = 0; i < s->n_rules; i++) {
    struct server_rule *r = &s->rules[i].rule;
    free((char *)r->key), free((char *)r->method), free((char *)r->range), free((char *)r->text);
  }
  s->n_rules = 0;
}
static inline struct server_statistics server_stats(struct server *s) {
  pthread_mutex_lock(&s->lock);
  struct server_statistics stats = s->stats;
  pthread_mutex_unlock(&s->lock);
  return stats;
}
/* Nothing is left of its clients: no connection is open or waits to be accepted, no request is
 * being answered, and the descriptors that they took are closed. */
static inline bool server_is_idle(struct server *s) {
  struct pollfd waiting = {.fd = s->listener, .events = POLLIN};
  pthread_mutex_lock(&s->lock);
  bool idle = !s->stats.open && !s->stats.in_flight && poll(&waiting, 1, 0) == 0;
  pthread_mutex_unlock(&s->lock);
  return idle;
}
static inline uint64_t server_logged(struct server *s, uint64_t from,
    void (*each)(void *user, const struct server_logged *l),
    /* calls each with the requests from number `from` on that are remembered; returns how many
     * came so far */
    void *user) {
  pthread_mutex_lock(&s->lock);
  uint64_t n = s->n_log, i = n > SERVER_LOG ? n - SERVER_LOG : 0;
  if (each)
    for (i = i < from ? from : i; i < n; i++) each(user, &s->log[i % SERVER_LOG]);
  pthread_mutex_unlock(&s->lock);
  return n;
}
struct server__needle {
  const char *text;
  uint64_t n;
};
static inline void server__needle(void *user, const struct server_logged *l) {
  struct server__needle *needle = user;
  needle->n += strcasestr(l->head, needle->text) != NULL;
}
/* How many of the remembered requests have the text somewhere in their head. */
static inline uint64_t server_seen(struct server *s, const char *text) {
  struct server__needle needle = {text, 0};
  server_logged(s, 0, server__needle, &needle);
  return needle.n;
}
/* Forgets rules, versions, statistics and the log; objects and connections stay. */
static inline void server_reset(struct server *s) {
  pthread_mutex_lock(&s->lock);
  server__drop_rules(s);
  for (uint64_t i = 0; s->log && i < SERVER_LOG; i++) {
    free((char *)s->log[i].head);
    s->log[i].head = NULL;
  }
  if (s->cap_counts) memset(s->counts, 0, s->cap_counts * sizeof *s->counts);
  uint64_t open = s->stats.open, in_flight = s->stats.in_flight;
  s->n_counts = s->n_log = s->wave_done = 0;
  s->stats = (struct server_statistics){
      .open = open, .open_max = open, .in_flight = in_flight, .in_flight_max = in_flight};
  pthread_mutex_unlock(&s->lock);
}
/* Ends every delay and stall of now, those for ever, too. */
static inline void server_release(struct server *s) {
  atomic_fetch_add(&s->release, 1);
  for (int i = 0; i < s->n_workers; i++)
    if (write(s->workers[i].event, &(uint64_t){1}, 8) != 8) server__die("server: eventfd");
}
static inline void server_latency(struct server *s, int64_t ms) {
  atomic_store(&s->latency_ns, ms == SERVER_EVER ? INT64_MAX : ms * 1000000);
}

/* ---- requests ---- */
/* The value of a header, or NULL. */
static inline const char *server_request_header(const struct server_request *q, const char *name) {
  for (unsigned i = 0; i < q->n_headers; i++)
    if (!strcasecmp(q->headers[i].name, name)) return q->headers[i].value;
  return NULL;
}
/* The decoded value of a parameter of the query in to, or NULL. */
static inline char *server_request_query(
    const struct server_request *q, const char *name, char *to, uint64_t cap) {
  for (const char *p = q->query; *p;) {
    uint64_t n = strcspn(p, "&"), n_name = strcspn(p, "=&"), got = 0;
    if (n_name == strlen(name) && !memcmp(p, name, n_name)) {
      for (const char *v = p + n_name + (n_name < n); v < p + n && got + 1 < cap; v++) {
        unsigned byte = (unsigned char)*v;
        if (*v == '+') byte = ' ';
        if (*v == '%' && sscanf(v + 1, "%2x", &byte) == 1) v += 2;
        to[got++] = (char)byte;
      }
      to[got] = 0;
      return to;
    }
    p += n + (p[n] == '&');
  }
  return NULL;
}
__attribute__((format(printf, 2, 3))) static inline void server_answer_header(
    struct server_answer *a, const char *format, ...) {
  char line[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  uint64_t n = a->headers ? strlen(a->headers) : 0;
  a->headers = server__alloc(a->headers, n + strlen(line) + 3);
  sprintf(a->headers + n, "%s\r\n", line);
}
/* A whole answer of text, true for the hook to return. */
__attribute__((format(printf, 3, 4))) static inline bool server_answer_text(
    struct server_answer *a, int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  free(a->body);
  int n = vasprintf(&a->body, format, args);
  va_end(args);
  if (n < 0) server__die("server: memory");
  a->status = status;
  a->n_body = (uint64_t)n;
  return true;
}
/* cuts the head up in place */
static inline bool server__parse(struct server_request *q, char *head) {
  char *line = strtok_r(head, "\r\n", &head), *save = NULL;
  if (!line) return false;
  q->method = strtok_r(line, " ", &save);
  q->target = strtok_r(NULL, " ", &save);
  if (!q->target || strncmp(save, "HTTP/1.", 7)) return false;
  while ((line = strtok_r(NULL, "\r\n", &head))) {
    char *colon = strchr(line, ':');
    if (!colon || q->n_headers == SERVER_HEADERS) return false;
    *colon = 0;
    uint64_t n = strlen(colon + 1);
    while (n && colon[n] == ' ') colon[n--] = 0;
    q->headers[q->n_headers++] = (struct server_header){line, colon + 1 + strspn(colon + 1, " \t")};
  }
  return true;
}
/* path and query of the target */
static inline void server__decode(struct server_request *q, char *to) {
  const char *p = q->target + strspn(q->target, "/");
  char *out = to;
  for (; *p && *p != '?'; p++) {
    unsigned byte = (unsigned char)*p;
    if (*p == '%' && sscanf(p + 1, "%2x", &byte) == 1) p += 2;
    *out++ = (char)byte;
  }
  *out = 0;
  q->path = to;
  q->query = *p ? p + 1 : p;
}

/* ---- answers ---- */
static inline void server__date(time_t t, char *to) {
  struct tm tm;
  static const char names[] = "SunMonTueWedThuFriSatJanFebMarAprMayJunJulAugSepOctNovDec";
  gmtime_r(&t, &tm);
  snprintf(to, 40, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", names + 3 * tm.tm_wday, tm.tm_mday,
      names + 21 + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
static inline void server__error(struct server__answer *a, int status, const char *code) {
  server_answer_text(&a->own, status,
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>so says the "
      "rule</Message>"
      "<RequestId>TEST0123</RequestId></Error>",
      code);
  server_answer_header(&a->own, "Content-Type: application/xml");
  server_answer_header(&a->own, "x-amz-request-id: TEST0123");
}
/* Whether a list of entity tags ("*", or quoted ones) has this one. */
static inline bool server__tagged(const char *list, const char *etag) {
  return *list == '*' || (*etag && strstr(list, etag));
}
static inline bool server__range(
    const char *text, uint64_t total, uint64_t *first, uint64_t *last, bool *satisfiable) {
  char *end;
  if (strncmp(text, "bytes=", 6) || strchr(text, ',')) return false;
  text += 6;
  *satisfiable = true;
  if (*text == '-') {
    uint64_t n = strtoull(text + 1, &end, 10);
    if (!isdigit((unsigned char)text[1]) || *end) return false;
    *satisfiable = n && total;
    *first = n < total ? total - n : 0, *last = total - 1;
    return true;
  }
  if (!isdigit((unsigned char)*text)) return false;
  *first = strtoull(text, &end, 10);
  if (*end++ != '-') return false;
  *last = isdigit((unsigned char)*end) ? strtoull(end, &end, 10) : UINT64_MAX;
  if (*end || *last < *first) return false;
  *satisfiable = *first < total;
  if (*last >= total) *last = total - 1;
  return true;
}
/* Finds the object: its bytes, its tag, when it changed. */
static inline void server__object(
    struct server *s, const struct server_request *q, struct server__answer *a) {
  struct stat st;
  pthread_mutex_lock(&s->lock);
  struct server__object *o = server__find(s, q->path);
  uint64_t version = *server__version(s, q->path);
  if (o && o->present) {
    a->n = o->n, a->fd = s->memory, a->body = s->arena + o->offset, a->offset = o->offset;
    a->exists = true, a->modified = o->modified;
    snprintf(a->etag, sizeof a->etag, "\"%016" PRIx64, o->content);
  }
  pthread_mutex_unlock(&s->lock);
  if (!a->exists && s->folder >= 0 && !strstr(q->path, "..") && *q->path && *q->path != '/' &&
      strlen(q->path) < 4096) {
    int fd = openat(s->folder, q->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
      a->fd = fd, a->close_fd = a->exists = true, a->n = (uint64_t)st.st_size,
      a->modified = st.st_mtime;
      snprintf(a->etag, sizeof a->etag, "\"%" PRIx64 "-%" PRIx64,
          (uint64_t)st.st_mtim.tv_nsec ^ (uint64_t)st.st_mtime, a->n);
    } else if (fd >= 0) close(fd);
  }
  if (a->exists) {
    uint64_t n = strlen(a->etag);
    if (version) n += (uint64_t)snprintf(a->etag + n, sizeof a->etag - n, "-v%" PRIu64, version);
    snprintf(a->etag + n, sizeof a->etag - n, "\"");
    a->total = a->n;
  }
}

/* An answer by the object, conditions and ranges as RFC 9110 has them. */
static inline void server__get(struct server *s, const struct server_request *q,
    const struct server__twist *t, struct server__answer *a) {
  const char *range = server_request_header(q, "Range"),
             *match = server_request_header(q, "If-Match");
  const char *none_match = server_request_header(q, "If-None-Match"),
             *if_range = server_request_header(q, "If-Range");
  uint64_t first, last;
  bool satisfiable;
  struct server_request other = *q;
  if (t->swap) other.path = t->swap;
  server__object(s, &other, a);
  if (!a->exists) {
    server__error(a, 404, "NoSuchKey");
    return;
  }
  if (t->etag) snprintf(a->etag, sizeof a->etag, "%s", t->etag);
  if (!range) range = server_request_header(q, "x-ms-range");
  if (match && !server__tagged(match, a->etag)) server__error(a, 412, "PreconditionFailed");
  else if (none_match && server__tagged(none_match, a->etag)) a->own.status = 304, a->n = 0;
  else if (range && !strcmp(q->method, "GET") && !t->whole && !t->gzip &&
           (!if_range || !strcmp(if_range, a->etag)) &&
           server__range(range, a->total, &first, &last, &satisfiable)) {
    if (satisfiable) a->own.status = 206, a->first = first, a->n = last - first + 1;
    else {
      server__error(a, 416, "InvalidRange");
      server_answer_header(&a->own, "Content-Range: bytes */%" PRIu64, a->total);
    }
  } else a->own.status = 200;
}
static inline void server__evaluate(struct server *s, const struct server_request *q,
    const struct server__twist *t, struct server__answer *a) {
  char date[40];
  a->fd = -1;
  if (t->status) {
    server__error(a, t->status, t->code ? t->code : "InternalError");
    server__date(time(NULL) - t->retry_after, date);
    if (t->retry_after > 0) server_answer_header(&a->own, "Retry-After: %" PRId64, t->retry_after);
    if (t->retry_after < 0) server_answer_header(&a->own, "Retry-After: %s", date);
  } else if (t->redirect) {
    uint64_t n = strlen(t->location);
    bool star = n && t->location[n - 1] == '*';
    server_answer_text(&a->own, t->redirect, "elsewhere");
    server_answer_header(&a->own, "Location: %.*s%s", (int)(n - star), t->location,
        star ? q->target + strspn(q->target, "/") : "");
  } else if (t->garbage) {
    a->own.status = t->garbage, a->own.n_body = (uint64_t)t->n_garbage,
    a->own.body = server__alloc(NULL, a->own.n_body);
    for (uint64_t i = 0; i < a->own.n_body; i++) a->own.body[i] = (char)server__mix(i + 1);
  } else if (s->options.answer && s->options.answer(s->options.user, q, &a->own) && a->own.status) {
  } else if (!strcmp(q->method, "GET") || !strcmp(q->method, "HEAD")) server__get(s, q, t, a);
  else if (!strcmp(q->method, "PUT")) {
    const char *none_match = server_request_header(q, "If-None-Match");
    server__object(s, q, a);
    if (none_match && a->exists) server__error(a, 412, "PreconditionFailed");
    else {
      if (a->close_fd) close(a->fd);
      memset(a, 0, sizeof *a);
      server_put(s, q->path, q->body, q->n_body);
      server__object(s, q, a);
      server_answer_text(&a->own, 200, "%s", "");
    }
  } else server__error(a, 405, "MethodNotAllowed");
  if (a->own.body || !a->exists || a->own.status >= 300) { /* not the object's bytes */
    if (a->close_fd) close(a->fd);
    a->close_fd = false, a->fd = -1;
    a->body = a->own.body, a->n = a->own.n_body;
  } else a->body = a->body ? a->body + a->first : NULL, a->offset += a->first;
}
/* The body in memory of its own, with room for extra bytes behind it. */
static inline char *server__own(struct server__answer *a, uint64_t extra) {
  char *copy = server__alloc(NULL, a->n + extra);
  if (a->body && a->n) memcpy(copy, a->body, a->n);
  for (uint64_t got = 0; !a->body && got < a->n;) {
    ssize_t n = pread(a->fd, copy + got, a->n - got, (off_t)(a->offset + got));
    if (n <= 0) server__die("server: the folder's files may not change");
    got += (uint64_t)n;
  }
  if (a->close_fd) close(a->fd);
  free(a->own.body);
  a->close_fd = false, a->fd = -1;
  a->body = a->own.body = copy;
  return copy;
}
static inline void server__gzip(struct server__answer *a) { /* RFC 1952, blocks that are stored */
  uint64_t n = a->n, at = 10;
  const unsigned char *p = (unsigned char *)server__own(a, 0);
  unsigned char *out = server__alloc(NULL, n + 5 * (n / 65535 + 1) + 18);
  uint32_t crc = ~(uint32_t)0;
  memcpy(out, "\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  for (uint64_t done = 0; done < n || !done;) {
    uint64_t one = n - done < 65535 ? n - done : 65535;
    out[at++] = done + one == n;
    out[at++] = one & 255, out[at++] = (unsigned char)(one >> 8), out[at++] = ~one & 255,
    out[at++] = (unsigned char)(~one >> 8);
    memcpy(out + at, p + done, one);
    at += one, done += one;
    if (!n) break;
  }
  for (uint64_t i = 0; i < n; i++) {
    crc ^= p[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  for (int i = 0; i < 4; i++) out[at++] = (unsigned char)(~crc >> 8 * i);
  for (int i = 0; i < 4; i++) out[at++] = (unsigned char)(n >> 8 * i);
  free(a->own.body);
  a->body = a->own.body = (char *)out;
  a->n = at;
}
/* RFC 9112, section 7.1 */
static inline void server__chunked(struct server__answer *a, uint64_t chunk, const char *trailer) {
  uint64_t n = a->n, at = 0, room = trailer ? strlen(trailer) + 2 : 0;
  if (!chunk || chunk > n) chunk = n ? n : 1;
  char *plain = server__own(a, 0), *out = server__alloc(NULL, n + 24 * (n / chunk + 2) + room);
  for (uint64_t done = 0; done < n;) {
    uint64_t one = n - done < chunk ? n - done : chunk;
    at += (uint64_t)sprintf(out + at, "%" PRIx64 "\r\n", one);
    memcpy(out + at, plain + done, one);
    at += one, done += one;
    at += (uint64_t)sprintf(out + at, "\r\n");
  }
  at += (uint64_t)sprintf(out + at, "0\r\n%s%s\r\n", trailer ? trailer : "", trailer ? "\r\n" : "");
  free(plain);
  a->body = a->own.body = out;
  a->n = at;
}
static inline const char *server__reason(int status) {
  static const struct {
    int status;
    const char *text;
  } reason[] = {{200, "OK"}, {206, "Partial Content"}, {304, "Not Modified"}, {403, "Forbidden"},
      {404, "Not Found"}, {412, "Precondition Failed"}, {416, "Range Not Satisfiable"},
      {429, "Too Many Requests"}, {500, "Internal Server Error"}, {503, "Slow Down"}};
  for (uint64_t i = 0; i < sizeof reason / sizeof *reason; i++)
    if (reason[i].status == status) return reason[i].text;
  return "As It Is";
}
/* The header into c, and the body as it will be sent. */
static inline void server__render(struct server__connection *c, struct server__answer *a,
    const struct server__twist *t, bool is_head) {
  char date[40], *head;
  uint64_t cap = 8192 + t->big + strlen(a->etag) + (a->own.headers ? strlen(a->own.headers) : 0) +
                 (uint64_t)t->interim * 40,
           n = 0, length;
  bool object = a->exists && a->own.status < 300, partial = a->own.status == 206 && a->exists;
  bool chunked =
      (c->worker->server->options.chunked || t->chunk) && !is_head && a->own.status != 304;
  if (t->gzip && object && !is_head) server__gzip(a);
  if (t->flips && a->n && !is_head) server__own(a, 0)[(uint64_t)t->flip % a->n] ^= 0x55;
  length = (uint64_t)((int64_t)a->n + t->length_off);
  c->last = c->last || t->last || t->until_close || t->length_off;
  head = c->head = server__alloc(NULL, cap);
  for (int64_t i = 0; i < t->interim; i++)
    n += (uint64_t)sprintf(head + n, "HTTP/1.1 %d Soon\r\n\r\n", t->interim_status);
  if (t->noise)
    for (; n < 64; n++) head[n] = (char)(server__mix(n + 1) | 0x80);
  server__date(time(NULL), date);
  n += (uint64_t)sprintf(head + n, "HTTP/1.%d %d %s\r\nServer: insitu-test\r\nDate: %s\r\n",
      !t->old, a->own.status, server__reason(a->own.status), date);
  if (a->exists && a->own.status < 400) {
    server__date(a->modified, date);
    const char *modified = t->modified ? t->modified : date;
    if (*a->etag) n += (uint64_t)sprintf(head + n, "ETag: %s\r\n", a->etag);
    if (*modified) n += (uint64_t)sprintf(head + n, "Last-Modified: %.100s\r\n", modified);
    n += (uint64_t)sprintf(head + n, "Accept-Ranges: bytes\r\n");
  }
  if (t->range_value && object) {
    if (*t->range_value)
      n += (uint64_t)sprintf(head + n, "Content-Range: %.1000s\r\n", t->range_value);
  } else if (partial)
    n += (uint64_t)sprintf(head + n, "Content-Range: bytes %" PRId64 "-%" PRId64 "/%" PRIu64 "\r\n",
        (int64_t)a->first + t->range_off, (int64_t)(a->first + a->n) - 1 + t->range_off, a->total);
  if (t->gzip && object) n += (uint64_t)sprintf(head + n, "Content-Encoding: gzip\r\n");
  if (a->own.headers) n += (uint64_t)sprintf(head + n, "%s", a->own.headers);
  if (t->header) n += (uint64_t)sprintf(head + n, "%.4000s\r\n", t->header);
  if (t->big) {
    n += (uint64_t)sprintf(head + n, "X-Big: ");
    memset(head + n, 'x', t->big);
    n += t->big;
    n += (uint64_t)sprintf(head + n, "\r\n");
  }
  if (chunked) n += (uint64_t)sprintf(head + n, "Transfer-Encoding: chunked\r\n");
  else if (!t->until_close && a->own.status != 304)
    n += (uint64_t)sprintf(head + n, "Content-Length: %" PRIu64 "\r\n", length);
  n += (uint64_t)sprintf(head + n, "%s\r\n", c->last ? "Connection: close\r\n" : "");
  if (chunked) server__chunked(a, (uint64_t)t->chunk, t->trailer);
  if (is_head || a->own.status == 304) a->n = 0;
  uint64_t extra = (uint64_t)(is_head ? t->head_body : t->extra);
  if (extra) memset(server__own(a, extra) + a->n, 'z', extra), a->n += extra;
  c->n_head = n;
}
/* bytes sent at a place of the body */
static inline uint64_t server__place(const struct server__connection *c, int64_t at) {
  if (at == INT64_MAX) return UINT64_MAX;
  if (at == SERVER_AT_START) return 0;
  return at < 0                                ? c->n_head / 2
         : c->n_head + (uint64_t)at < c->total ? c->n_head + (uint64_t)at
                                               : c->total;
}

/* ---- rules applied ---- */
static inline void server__set(char **to, const char *text) {
  free(*to);
  *to = server__copy(text ? text : "");
}
static inline void server__apply(struct server *s, const struct server_rule *r,
    const struct server_request *q, struct server__twist *t) {
  switch (r->fault) {
  case SERVER_NONE: break;
  case SERVER_STATUS:
    t->status = r->status, t->retry_after = r->retry_after;
    if (r->text) server__set(&t->code, r->text);
    break;
  case SERVER_RESET:
  case SERVER_CLOSE: t->cut_at = r->at, t->reset = r->fault == SERVER_RESET; break;
  case SERVER_STALL: t->stall_at = r->at, t->stall_ms = r->ms; break;
  case SERVER_DRIP: t->drip = r->at ? r->at : 1, t->drip_ms = r->ms ? r->ms : 1; break;
  case SERVER_LONGER: t->extra = r->at; break;
  case SERVER_LENGTH: t->length_off = r->at; break;
  case SERVER_RANGE:
    t->range_off = r->at;
    if (r->text) server__set(&t->range_value, r->text);
    break;
  case SERVER_WHOLE: t->whole = true; break;
  case SERVER_REDIRECT:
    t->redirect = r->status ? r->status : 302;
    server__set(&t->location, r->text);
    break;
  case SERVER_ETAG: server__set(&t->etag, r->text); break;
  case SERVER_MODIFIED: server__set(&t->modified, r->text); break;
  case SERVER_SWAP: server__set(&t->swap, r->text); break;
  case SERVER_CHANGE: ++*server__version(s, q->path); break;
  case SERVER_GARBAGE: t->garbage = r->status ? r->status : 200, t->n_garbage = r->at; break;
  case SERVER_NOISE: t->noise = true; break;
  case SERVER_BIG_HEADER: t->big = (uint64_t)r->at; break;
  case SERVER_GZIP: t->gzip = true; break;
  case SERVER_HEAD_BODY: t->head_body = r->at; break;
  case SERVER_CONTINUE:
    t->interim = r->at ? r->at : 1, t->interim_status = r->status ? r->status : 100;
    break;
  case SERVER_LAST: t->last = true; break;
  case SERVER_OLD: t->last = t->old = true; break;
  case SERVER_CHUNKED: t->chunk = r->at ? r->at : INT64_MAX; break;
  case SERVER_UNTIL_CLOSE: t->until_close = true; break;
  case SERVER_FLIP: t->flips = true, t->flip = r->at; break;
  case SERVER_HEADER: server__set(&t->header, r->text); break;
  case SERVER_TRAILER: server__set(&t->trailer, r->text); break;
  }
}
/* locked */
static inline void server__rules(
    struct server *s, const struct server_request *q, struct server__twist *t) {
  const char *range = server_request_header(q, "Range");
  uint64_t target = server__hash(3, q->target, strlen(q->target));
  uint64_t asked = server__hash(target, range ? range : "-", range ? strlen(range) : 1);
  *t = (struct server__twist){.cut_at = INT64_MAX, .stall_at = INT64_MAX};
  for (unsigned i = 0; i < s->n_rules; i++) {
    struct server__rule *one = &s->rules[i];
    const struct server_rule *r = &one->rule;
    if ((r->key && fnmatch(r->key, q->path, 0)) || (r->method && strcmp(r->method, q->method)) ||
        (r->range && fnmatch(r->range, range ? range : "", 0)))
      continue;
    uint64_t *times = server__counter(s, server__mix((r->each ? target : asked) + i + 1));
    uint64_t seen = r->each ? *times : one->seen;
    one->seen++, ++*times;
    if (seen < r->skip || (r->count && seen - r->skip >= r->count)) continue;
    if (r->probability > 0 &&
        (double)(server__mix(server__mix(s->options.seed + i) ^ server__mix(asked + 31 * *times)) >>
                 11) *
                0x1p-53 >=
            r->probability)
      continue;
    one->hits++;
    s->stats.faults++;
    server__apply(s, r, q, t);
  }
}
static inline void server__untwist(struct server__twist *t) {
  free(t->code), free(t->location), free(t->etag), free(t->modified), free(t->swap),
      free(t->range_value);
  free(t->header), free(t->trailer);
}

/* ---- connections, each handled by its worker alone ---- */
static inline void server__swap(struct server__worker *w, uint64_t a, uint64_t b) {
  struct server__connection *x = w->heap[a];
  w->heap[a] = w->heap[b], w->heap[b] = x;
  w->heap[a]->heap = a, w->heap[b]->heap = b;
}
/* restores the heap, the next to wake at its top */
static inline void server__sift(struct server__worker *w, uint64_t i) {
  for (; i && w->heap[i]->wake < w->heap[(i - 1) / 2]->wake; i = (i - 1) / 2)
    server__swap(w, i, (i - 1) / 2);
  for (;;) {
    uint64_t least = i;
    for (uint64_t k = 2 * i + 1; k <= 2 * i + 2 && k < w->n_heap; k++)
      if (w->heap[k]->wake < w->heap[least]->wake) least = k;
    if (least == i) return;
    server__swap(w, i, least);
    i = least;
  }
}
static inline void server__wake_at(struct server__connection *c, int64_t when) {
  c->wake = when;
  server__sift(c->worker, c->heap);
}
static inline int64_t server__later(int64_t ns) { /* from now, without wrapping */
  int64_t now = server__now();
  return ns > INT64_MAX - now ? INT64_MAX : now + ns;
}
static inline int64_t server__ns(int64_t ms) {
  return ms > INT64_MAX / 2000000 ? INT64_MAX / 2 : ms * 1000000;
}
/* of an answer, sent or not */
static inline void server__end(struct server__connection *c, bool whole) {
  struct server *s = c->worker->server;
  pthread_mutex_lock(&s->lock);
  s->stats.in_flight--;
  s->stats.bytes_sent += c->sent;
  *(whole ? &s->stats.answered : &s->stats.broken) += 1;
  if (whole && c->wave > s->wave_done) s->wave_done = c->wave;
  pthread_mutex_unlock(&s->lock);
  if (c->close_fd) close(c->body_fd);
  free(c->head);
  free(c->owned);
  c->head = c->owned = NULL;
  c->close_fd = false;
  c->state = SERVER__IDLE;
}
static inline void server__drop(struct server__connection *c, bool reset) {
  struct server__worker *w = c->worker;
  if (c->state != SERVER__IDLE) server__end(c, false);
  if (reset)
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
  /* A child of the program's, between fork and exec, still holds the socket. Without this call,
   * events of the connection would come after it is freed. */
  epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
  close(c->fd); /* before it is counted as gone: who counts descriptors waits for that */
  pthread_mutex_lock(&w->server->lock);
  w->server->stats.open--;
  pthread_mutex_unlock(&w->server->lock);
  if (c->before) c->before->after = c->after;
  else w->connections = c->after;
  if (c->after) c->after->before = c->before;
  uint64_t at = c->heap;
  server__swap(w, at, w->n_heap - 1);
  w->n_heap--;
  if (at < w->n_heap) server__sift(w, at);
  free(c->in);
  free(c);
}
/* locked */
static inline void server__log(
    struct server *s, const char *head, const struct server_request *q, int status) {
  struct server_logged *l = &s->log[s->n_log++ % SERVER_LOG];
  free((char *)l->head);
  *l = (struct server_logged){head, status, q->connection, q->wave, (uint64_t)server__now()};
}
/* Makes the answer to a request. head: a copy, n_head of c->in are it, n_body follow. */
static inline void server__answer(
    struct server__connection *c, char *head, const char *body, uint64_t n_body) {
  struct server *s = c->worker->server;
  struct server_request q = {.server = s, .body = body, .n_body = n_body, .connection = c->number};
  struct server__answer a = {.fd = -1};
  struct server__twist t;
  char *logged = s->log ? server__copy(head) : NULL, *path;
  if (!server__parse(&q, head)) q.method = q.target = "", c->last = true;
  q.path = path = server__alloc(NULL, strlen(q.target) + 1);
  server__decode(&q, path);
  pthread_mutex_lock(&s->lock);
  q.before = s->stats.requests++;
  q.wave = c->wave = s->wave_done + 1;
  q.in_flight = ++s->stats.in_flight;
  if (q.in_flight > s->stats.in_flight_max) s->stats.in_flight_max = q.in_flight;
  if (q.wave > s->stats.waves) s->stats.waves = q.wave;
  *(!strcmp(q.method, "GET")      ? &s->stats.get
      : !strcmp(q.method, "HEAD") ? &s->stats.head
      : !strcmp(q.method, "PUT")  ? &s->stats.put
      : !strcmp(q.method, "POST") ? &s->stats.post
                                  : &s->stats.other) += 1;
  server__rules(s, &q, &t);
  pthread_mutex_unlock(&s->lock);
  if (*q.method) server__evaluate(s, &q, &t, &a);
  else server__error(&a, 400, "BadRequest"), a.body = a.own.body, a.n = a.own.n_body;
  const char *connection = server_request_header(&q, "Connection");
  c->last = c->last || (connection && !strcasecmp(connection, "close"));
  server__render(c, &a, &t, !strcmp(q.method, "HEAD"));
  c->body = a.body, c->body_fd = a.fd, c->close_fd = a.close_fd, c->body_offset = a.offset,
  c->owned = a.own.body;
  c->sent = c->booked = 0, c->total = c->n_head + a.n;
  c->reset = t.reset, c->cut_at = server__place(c, t.cut_at),
  c->stall_at = server__place(c, t.stall_at);
  c->stall_ns = server__ns(t.stall_ms);
  c->drip = (uint64_t)t.drip, c->drip_ns = t.drip_ms * 1000000;
  if (!t.drip && s->options.rate) c->drip = s->options.rate / 500 + 1, c->drip_ns = 2000000;
  c->drip_at = c->drip ? c->drip : UINT64_MAX;
  pthread_mutex_lock(&s->lock);
  if (s->log) server__log(s, logged, &q, t.noise || t.cut_at < 0 ? 0 : a.own.status);
  pthread_mutex_unlock(&s->lock);
  free(a.own.headers);
  free(path);
  server__untwist(&t);
  int64_t delay = atomic_load(&s->latency_ns), more = server__ns(a.own.delay_ms);
  delay = delay > INT64_MAX - more ? INT64_MAX : delay + more;
  c->state = delay ? SERVER__WAITING : SERVER__SENDING;
  if (delay) server__wake_at(c, delay == INT64_MAX ? delay : server__later(delay));
}
/* Takes the next request out of what was received; false: it is not whole. */
static inline bool server__take(struct server__connection *c) {
  if (!c->n_in) return false;
  c->in[c->n_in] = 0;
  char *end = memmem(c->in, c->n_in, "\r\n\r\n", 4);
  if (!end && c->n_in < SERVER_HEAD) return false;
  uint64_t n_head = end ? (uint64_t)(end - c->in) + 4 : c->n_in, n_body = 0;
  char *head = memcpy(server__alloc(NULL, n_head + 1), c->in, n_head), *length, *expect;
  head[n_head] = 0;
  length = strcasestr(head, "\ncontent-length:"), expect = strcasestr(head, "\nexpect:");
  if (length) n_body = strtoull(length + 16, NULL, 10);
  if (n_body > SERVER_BODY || strcasestr(head, "\ntransfer-encoding:"))
    n_body = 0, c->last = true, *head = 0;
  if (c->n_in - n_head < n_body) {
    if (expect && !c->told_continue) send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
    c->told_continue = true;
    free(head);
    return false;
  }
  char keep = c->in[n_head + n_body];
  c->in[n_head + n_body] = 0;
  server__answer(c, head, c->in + n_head, n_body);
  c->in[n_head + n_body] = keep;
  memmove(c->in, c->in + n_head + n_body, c->n_in -= n_head + n_body);
  c->told_continue = false;
  free(head);
  return true;
}
/* Sends up to `limit` of the answer; false: the socket takes no more, or is broken. */
static inline bool server__send(struct server__connection *c, uint64_t limit) {
  while (c->sent < limit) {
    uint64_t at = c->sent - c->n_head, left = limit - c->sent;
    ssize_t n;
    bool by_file = c->body_fd >= 0 && (!c->body || limit - c->n_head > SERVER_SENDFILE);
    if (c->sent < c->n_head) {
      uint64_t head = c->n_head - c->sent < left ? c->n_head - c->sent : left;
      struct iovec iov[2] = {
          {c->head + c->sent, head}, {(void *)(uintptr_t)c->body, by_file ? 0 : left - head}};
      struct msghdr msg = {.msg_iov = iov, .msg_iovlen = iov[1].iov_len ? 2 : 1};
      n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | (by_file && left > head ? MSG_MORE : 0));
    } else if (by_file) {
      off_t offset = (off_t)(c->body_offset + at);
      n = sendfile(c->fd, c->body_fd, &offset, left); /* its SIGPIPE is blocked */
      if (!n) errno = EIO, n = -1;                    /* the file became shorter */
    } else n = send(c->fd, c->body + at, left, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno == EAGAIN) c->writable = false;
      else c->broken = true;
      return false;
    }
    c->sent += (uint64_t)n;
  }
  return true;
}
static inline bool server__receive(struct server__connection *c) { /* false: nothing there */
  if (c->cap_in - c->n_in < 4096)
    c->in = server__alloc(c->in, (c->cap_in = 2 * c->cap_in + 8192) + 1);
  ssize_t n;
  do n = recv(c->fd, c->in + c->n_in, c->cap_in - c->n_in, 0);
  while (n < 0 && errno == EINTR);
  if (n > 0) c->n_in += (uint64_t)n;
  else if (n < 0 && errno == EAGAIN) c->readable = false;
  else c->broken = true;
  return n > 0;
}
/* Waits for the turn of the answer's next bytes. */
static inline void server__book(struct server__connection *c) {
  struct server *s = c->worker->server;
  uint64_t n = c->total - c->booked < SERVER_SLICE ? c->total - c->booked : SERVER_SLICE;
  int64_t now = server__now(), late = 5000000; /* ns of turns that a late worker makes up for */
  pthread_mutex_lock(&s->lock);
  if (s->busy_until < now - late) s->busy_until = now - late;
  s->busy_until += (int64_t)((double)n * 1e9 / (double)s->options.bandwidth);
  server__wake_at(c, s->busy_until);
  pthread_mutex_unlock(&s->lock);
  c->booked += n;
  c->state = SERVER__WAITING;
}
/* As far as it goes. The connection may be gone afterwards. */
static inline void server__go(struct server__connection *c) {
  while (!c->broken) {
    if (c->state == SERVER__WAITING) return;
    if (c->state == SERVER__IDLE) {
      if (server__take(c)) continue;
      if (!c->readable || !server__receive(c)) {
        if (c->broken) break;
        return;
      }
      continue;
    }
    uint64_t limit = c->total;
    if (c->worker->server->options.bandwidth) {
      if (c->sent == c->booked) {
        server__book(c);
        continue;
      }
      limit = c->booked;
    }
    if (c->cut_at < limit) limit = c->cut_at;
    if (c->stall_at < limit) limit = c->stall_at;
    if (c->drip_at < limit) limit = c->drip_at;
    if (c->sent < limit && !c->writable) return;
    if (!server__send(c, limit)) continue;
    if (c->sent == c->stall_at) {
      c->stall_at = UINT64_MAX;
      c->state = SERVER__WAITING;
      server__wake_at(c, c->stall_ns >= INT64_MAX / 2 ? INT64_MAX : server__later(c->stall_ns));
    } else if (c->sent == c->cut_at) {
      server__drop(c, c->reset);
      return;
    } else if (c->sent == c->total) {
      server__end(c, true);
      c->broken = c->last;
    } else if (c->sent == c->drip_at) {
      c->drip_at += c->drip;
      c->state = SERVER__WAITING;
      server__wake_at(c, server__later(c->drip_ns));
    }
  }
  server__drop(c, false);
}

/* ---- workers ---- */
static inline void server__accept(struct server__worker *w) {
  struct server *s = w->server;
  for (;;) {
    /* nobody sees a connection that neither waits nor is counted: server_is_idle */
    pthread_mutex_lock(&s->lock);
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    uint64_t number = s->stats.connections;
    if (fd >= 0) {
      s->stats.connections++;
      if (++s->stats.open > s->stats.open_max) s->stats.open_max = s->stats.open;
    }
    pthread_mutex_unlock(&s->lock);
    if (fd < 0) return; /* none there, or no descriptor: those that wait come with the next event */
    struct server__connection *c = server__alloc(NULL, sizeof *c);
    *c = (struct server__connection){.worker = w,
        .fd = fd,
        .number = number,
        .after = w->connections,
        .body_fd = -1,
        .wake = INT64_MAX,
        .heap = w->n_heap};
    if (w->connections) w->connections->before = c;
    w->connections = c;
    if (w->n_heap == w->cap_heap)
      w->heap = server__alloc(
          w->heap, (w->cap_heap = 2 * w->cap_heap + 64) * sizeof(struct server__connection *));
    w->heap[w->n_heap++] = c;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    /* Measured with 1 MiB objects: 3.3 GB/s; 1.8 with what the kernel takes by itself, which is
     * more than caches hold. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){1 << 18}, sizeof(int));
    struct epoll_event e = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = c}};
    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e)) server__die("server: epoll_ctl");
  }
}
static inline void server__due(struct server__worker *w) { /* those whose time has come */
  int64_t now = server__now();
  while (w->n_heap && w->heap[0]->wake <= now) {
    struct server__connection *c = w->heap[0];
    server__wake_at(c, INT64_MAX);
    c->state = SERVER__SENDING;
    server__go(c);
  }
}
static inline void server__released(struct server__worker *w) {
  uint64_t release = atomic_load(&w->server->release);
  if (release == w->released) return;
  w->released = release;
  for (struct server__connection *c = w->connections; c; c = c->after)
    if (c->state == SERVER__WAITING) server__wake_at(c, 0);
}
static inline void server__arm(struct server__worker *w) {
  struct itimerspec when = {0};
  if (w->n_heap && w->heap[0]->wake != INT64_MAX) {
    int64_t t = w->heap[0]->wake > 0 ? w->heap[0]->wake : 1;
    when.it_value = (struct timespec){t / 1000000000, t % 1000000000};
  }
  timerfd_settime(w->timer, TFD_TIMER_ABSTIME, &when, NULL);
}
static inline void *server__run(void *user) {
  struct server__worker *w = user;
  struct epoll_event events[SERVER_EVENTS];
  uint64_t ticks;
  int64_t armed = INT64_MAX;
  while (!atomic_load(&w->server->stop)) {
    int n = epoll_wait(w->epoll, events, SERVER_EVENTS, -1);
    for (int i = 0; i < n; i++) {
      struct server__connection *c = events[i].data.ptr;
      if (!c) server__accept(w);
      else if ((void *)c == &w->timer || (void *)c == &w->event) {
        if (read(*(int *)(void *)c, &ticks, 8) < 0 && errno != EAGAIN) server__die("server: read");
        armed = INT64_MAX;
      } else {
        if (events[i].events & EPOLLIN) c->readable = true;
        if (events[i].events & EPOLLOUT) c->writable = true;
        if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) c->broken = true;
        server__go(c);
      }
    }
    server__released(w);
    server__due(w);
    int64_t next = w->n_heap ? w->heap[0]->wake : INT64_MAX;
    if (next != armed) server__arm(w);
    armed = next;
  }
  while (w->connections) server__drop(w->connections, false);
  return NULL;
}
static inline void server__watch(struct server__worker *w, int fd, uint32_t events, void *p) {
  struct epoll_event e = {events, {.ptr = p}};
  if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e)) server__die("server: epoll_ctl");
}
static inline struct server *server_start(const struct server_options *options) {
  struct server *s = server__alloc(NULL, sizeof *s);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof address;
  sigset_t all, before;
  memset(s, 0, sizeof *s);
  if (options) s->options = *options;
  pthread_mutex_init(&s->lock, NULL);
  server_latency(s, s->options.latency_ms);
  s->folder = s->options.folder ? open(s->options.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (s->options.folder && s->folder < 0) server__die(s->options.folder);
  s->memory = memfd_create("server", MFD_CLOEXEC);
  s->arena =
      mmap(NULL, SERVER_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->memory, 0);
  if (s->memory < 0 || s->arena == MAP_FAILED) server__die("server: memory");
  if (!s->options.no_log) s->log = server__alloc(NULL, SERVER_LOG * sizeof *s->log);
  if (s->log) memset(s->log, 0, SERVER_LOG * sizeof *s->log);
  s->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  address.sin_port = htons((uint16_t)s->options.port);
  if (s->options.port) setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (bind(s->listener, (struct sockaddr *)&address, n) || listen(s->listener, 4096) ||
      getsockname(s->listener, (struct sockaddr *)&address, &n))
    server__die("server: listen");
  s->port = ntohs(address.sin_port);
  s->n_workers = s->options.threads > 0 ? s->options.threads : 1;
  s->workers = server__alloc(NULL, (uint64_t)s->n_workers * sizeof *s->workers);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < s->n_workers; i++) {
    struct server__worker *w = &s->workers[i];
    *w = (struct server__worker){.server = s,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
        .event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    server__watch(w, s->listener, EPOLLIN | EPOLLEXCLUSIVE, NULL);
    server__watch(w, w->timer, EPOLLIN, &w->timer);
    server__watch(w, w->event, EPOLLIN, &w->event);
    if (pthread_create(&w->thread, NULL, server__run, w)) server__die("server: pthread_create");
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return s;
}
/* Closes every connection. */
static inline void server_stop(struct server **server) {
  struct server *s = *server;
  if (!s) return;
  *server = NULL;
  atomic_store(&s->stop, true);
  server_release(s);
  for (int i = 0; i < s->n_workers; i++) {
    struct server__worker *w = &s->workers[i];
    pthread_join(w->thread, NULL);
    close(w->epoll), close(w->timer), close(w->event);
    free(w->heap);
  }
  close(s->listener), close(s->memory);
  if (s->folder >= 0) close(s->folder);
  munmap(s->arena, SERVER_ARENA);
  for (uint64_t i = 0; i < s->cap_objects; i++) free(s->objects[i].key);
  for (uint64_t i = 0; s->log && i < SERVER_LOG; i++) free((char *)s->log[i].head);
  server__drop_rules(s);
  free(s->objects), free(s->counts), free(s->log), free(s->workers);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

/* ---- a server in a process of its own, for killing it, and for low limits of descriptors here
 * ---- */
struct server_child {
  pid_t pid;
  int port, life; /* the child ends when this descriptor is closed */
};
/* Forks; the child calls setup (rules, objects) and serves until server_kill, or until this process
 * ends. To be called before this process has threads. */
static inline struct server_child server_fork(
    const struct server_options *options, void (*setup)(struct server *s, void *user), void *user) {
  struct server_child child;
  int ready[2], life[2];
  char byte;
  if (pipe2(ready, O_CLOEXEC) || pipe2(life, O_CLOEXEC)) server__die("server: pipe");
  child.pid = fork();
  if (child.pid < 0) server__die("server: fork");
  if (!child.pid) {
    close(life[1]);
    struct server *s = server_start(options);
    if (setup) setup(s, user);
    if (write(ready[1], &s->port, sizeof s->port) != sizeof s->port) _exit(1);
    while (read(life[0], &byte, 1) < 0) {}
    _exit(0);
  }
  close(ready[1]), close(life[0]);
  child.life = life[1];
  if (read(ready[0], &child.port, sizeof child.port) != sizeof child.port)
    server__die("server: the child ended");
  close(ready[0]);
  return child;
}
/* At once, as kill -9 does. Once more is fine. */
static inline void server_kill(struct server_child *child) {
  if (child->pid <= 0) return; /* which to kill would mean a group, or everybody */
  kill(child->pid, SIGKILL);
  while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {}
  child->pid = 0;
  close(child->life);
}
#endif
