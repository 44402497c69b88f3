/* The rows of bench.c over HTTP: an archive of raw chunks behind tests/support/server.h in a
 * process of its own, the loader, and the two bare loops that get the same objects over as many
 * connections into buffers as large as the loader's ring of batches. */
#ifndef TOOLS_BENCH_HTTP_H
#define TOOLS_BENCH_HTTP_H
#include "server.h"

/* curl_multi_poll; curl_multi_socket_action over epoll; recv over epoll */
enum { WIRE_POLL, WIRE_EPOLL, WIRE_RECV, N_WIRES };
static const char *const wire_name[] = {"curl_multi_poll", "curl over epoll", "recv"};
enum { WIRE_HEAD = 2048, WIRE_EVENTS = 256 };

struct http_row {
  const char *name;
  uint64_t ny, nx, samples, batch, connections;
  int64_t latency_ms; /* 0: as fast as it goes */
};
/* 1 MiB and 64 KiB as fast as loopback goes; then 50 ms away, where connections * bytes / latency
 * is well below loopback; and 1,000 requests at once. */
static const struct http_row http_rows[] = {{"http-1MiB", 512, 512, 512, 16, 64, 0},
    {"http-64KiB", 128, 128, 8192, 32, 64, 0}, {"http-1MiB-16-50ms", 512, 512, 512, 16, 16, 50},
    {"http-64KiB-256-50ms", 128, 128, 8192, 64, 256, 50},
    {"http-16KiB-1000-50ms", 64, 64, 32000, 64, 1000, 50}};
enum { N_HTTP = sizeof http_rows / sizeof *http_rows };

struct wire_part { /* a connection */
  struct wire *wire;
  CURL *easy;
  unsigned char *to;
  uint64_t got; /* of the body */
  /* of the recv loop */
  int fd;
  uint64_t n_head, total; /* bytes of the header so far; of the body, UINT64_MAX: not known yet */
  char head[WIRE_HEAD];
};
struct wire { /* a bare loop, on this thread */
  int mode, port, epoll;
  uint64_t n_parts, next, done, chunks, chunk_bytes, slots;
  int64_t timer; /* of curl over epoll, nanoseconds; INT64_MAX: none */
  unsigned char *to;
  CURLM *multi;
  struct wire_part *part;
};

/* ---- curl ---- */

static size_t wire_write(char *bytes, size_t size, size_t n, void *user) {
  struct wire_part *p = (struct wire_part *)user;
  n *= size;
  if (n > p->wire->chunk_bytes - p->got) return 0;
  memcpy(p->to + p->got, bytes, n);
  p->got += n;
  return n;
}
static int wire_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known) {
  struct wire *w = (struct wire *)user;
  struct epoll_event e = {0};
  (void)easy;
  e.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
  e.data.fd = fd;
  if (what == CURL_POLL_REMOVE) {
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    curl_multi_assign(w->multi, fd, NULL);
  } else {
    must(epoll_ctl(w->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
    curl_multi_assign(w->multi, fd, w);
  }
  return 0;
}
static int wire_timer(CURLM *multi, long ms, void *user) {
  (void)multi;
  ((struct wire *)user)->timer = ms < 0 ? INT64_MAX : insitu__base_now() + ms * INT64_C(1000000);
  return 0;
}
static bool wire_next(struct wire *w, struct wire_part *p) {
  if (w->next == w->chunks) return false;
  p->to = w->to + w->next % w->slots * w->chunk_bytes;
  p->got = 0;
  w->next++;
  return true;
}
static void wire_start(struct wire *w, struct wire_part *p) {
  char url[120], key[64];
  uint64_t chunk = w->next;
  if (!wire_next(w, p)) return;
  snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", w->port, file_key(chunk, key));
  curl_easy_setopt(p->easy, CURLOPT_URL, url);
  must(curl_multi_add_handle(w->multi, p->easy) == CURLM_OK, "curl_multi_add_handle");
}
static void wire_finished(struct wire *w) {
  int left;
  for (CURLMsg *m; (m = curl_multi_info_read(w->multi, &left));) {
    char *user = NULL;
    long status = 0;
    CURL *easy = m->easy_handle;
    errno = 0;
    must(m->data.result == CURLE_OK, "a bare request");
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    struct wire_part *p = (struct wire_part *)(void *)user;
    must(status == 200 && p->got == w->chunk_bytes, "a bare answer");
    curl_multi_remove_handle(w->multi, easy);
    w->done++;
    wire_start(w, p);
  }
}
static void wire_curl_poll(struct wire *w) {
  for (int running; w->done < w->chunks;) {
    curl_multi_perform(w->multi, &running);
    wire_finished(w);
    if (w->done < w->chunks) curl_multi_poll(w->multi, NULL, 0, 1000, NULL);
  }
}
static void wire_curl_epoll(struct wire *w) {
  struct epoll_event events[WIRE_EVENTS];
  for (int running; w->done < w->chunks;) {
    int64_t wait =
        w->timer == INT64_MAX ? 1000 : (w->timer - insitu__base_now() + 999999) / 1000000;
    int n = epoll_wait(w->epoll, events, WIRE_EVENTS,
        wait < 0      ? 0
        : wait > 1000 ? 1000
                      : (int)wait);
    for (int i = 0; i < n; i++)
      curl_multi_socket_action(w->multi, events[i].data.fd,
          (events[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
              (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
              (events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0),
          &running);
    if (w->timer <= insitu__base_now()) {
      w->timer = INT64_MAX;
      curl_multi_socket_action(w->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    wire_finished(w);
  }
}

/* ---- recv ---- */

static void wire_send(struct wire *w, struct wire_part *p) {
  char text[200], key[64];
  uint64_t chunk = w->next;
  if (!wire_next(w, p)) return;
  p->n_head = 0;
  p->total = UINT64_MAX;
  int n = snprintf(text, sizeof text, "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n",
      file_key(chunk, key));
  must(send(p->fd, text, (size_t)n, MSG_NOSIGNAL) == n, "send");
}
/* Part of a header: once it is whole, what follows it is the body's. */
static void wire_head(struct wire *w, struct wire_part *p) {
  ssize_t n = recv(p->fd, p->head + p->n_head, WIRE_HEAD - 1 - p->n_head, MSG_DONTWAIT);
  must(n > 0, "recv");
  p->n_head += (uint64_t)n;
  p->head[p->n_head] = 0;
  char *end = (char *)memmem(p->head, p->n_head, "\r\n\r\n", 4),
       *length = strcasestr(p->head, "\ncontent-length:");
  if (!end) return;
  errno = 0;
  must(!strncmp(p->head, "HTTP/1.1 200", 12) && length && length < end, "a bare answer");
  p->total = strtoull(length + 16, NULL, 10);
  p->got = p->n_head - (uint64_t)(end + 4 - p->head);
  must(p->total == w->chunk_bytes && p->got <= p->total, "a bare answer's length");
  memcpy(p->to, end + 4, p->got);
}
static void wire_recv(struct wire *w) {
  struct epoll_event events[WIRE_EVENTS];
  while (w->done < w->chunks) {
    int n = epoll_wait(w->epoll, events, WIRE_EVENTS, 1000);
    for (int i = 0; i < n; i++) {
      struct wire_part *p = (struct wire_part *)events[i].data.ptr;
      if (p->total == UINT64_MAX) wire_head(w, p);
      if (p->total == UINT64_MAX) continue;
      if (p->got < p->total) {
        ssize_t got = recv(p->fd, p->to + p->got, p->total - p->got, MSG_DONTWAIT);
        must(got > 0 || (got < 0 && errno == EAGAIN), "recv");
        p->got += got > 0 ? (uint64_t)got : 0;
      }
      if (p->got < p->total) continue;
      w->done++;
      wire_send(w, p);
    }
  }
}

/* ---- either ---- */

static void wire_open_curl(struct wire *w) {
  curl_socket_callback on_socket = wire_socket;
  curl_multi_timer_callback on_timer = wire_timer;
  curl_write_callback on_body = wire_write;
  must((w->multi = curl_multi_init()) != NULL, "curl_multi_init");
  curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)(2 * w->n_parts));
  if (w->mode == WIRE_EPOLL) {
    curl_multi_setopt(w->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(w->multi, CURLMOPT_SOCKETDATA, w);
    curl_multi_setopt(w->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(w->multi, CURLMOPT_TIMERDATA, w);
  }
  for (uint64_t i = 0; i < w->n_parts; i++) {
    struct wire_part *p = &w->part[i];
    must((p->easy = curl_easy_init()) != NULL, "curl_easy_init");
    curl_easy_setopt(p->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(p->easy, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(p->easy, CURLOPT_PRIVATE, p);
    curl_easy_setopt(p->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(p->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(p->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(p->easy, CURLOPT_BUFFERSIZE, INSITU__HTTP_BUFFER);
  }
}
static void wire_open_recv(struct wire *w) {
  struct sockaddr_in address = {.sin_family = AF_INET,
      .sin_port = htons((uint16_t)w->port),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (uint64_t i = 0; i < w->n_parts; i++) {
    struct wire_part *p = &w->part[i];
    struct epoll_event e = {.events = EPOLLIN, .data = {.ptr = p}};
    must((p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, "socket");
    must(connect(p->fd, (struct sockaddr *)(void *)&address, sizeof address) == 0, "connect");
    must(epoll_ctl(w->epoll, EPOLL_CTL_ADD, p->fd, &e) == 0, "epoll_ctl");
  }
}
static void wire_open(struct wire *w, int mode, int port, const struct row *r, uint64_t connections,
    uint64_t ring_bytes) {
  *w = (struct wire){.mode = mode,
      .port = port,
      .n_parts = connections,
      .chunks = row_chunks(r),
      .chunk_bytes = chunk_bytes(r),
      .timer = INT64_MAX};
  w->slots = insitu__base_max(connections, ring_bytes / w->chunk_bytes);
  w->to = (unsigned char *)map(w->slots * w->chunk_bytes);
  w->part = (struct wire_part *)take(connections, sizeof *w->part);
  for (uint64_t i = 0; i < connections; i++) w->part[i].wire = w;
  must((w->epoll = epoll_create1(EPOLL_CLOEXEC)) >= 0, "epoll_create1");
  if (mode == WIRE_RECV) wire_open_recv(w);
  else wire_open_curl(w);
}
static struct cost wire_round(struct wire *w) { /* all chunks, in order */
  double wall = seconds(), cpu = cpu_seconds();
  w->next = w->done = 0;
  for (uint64_t i = 0; i < w->n_parts; i++)
    (w->mode == WIRE_RECV ? wire_send : wire_start)(w, &w->part[i]);
  if (w->mode == WIRE_RECV) wire_recv(w);
  else if (w->mode == WIRE_POLL) wire_curl_poll(w);
  else wire_curl_epoll(w);
  return (struct cost){seconds() - wall, cpu_seconds() - cpu};
}
static void wire_close(struct wire *w) {
  for (uint64_t i = 0; i < w->n_parts; i++) {
    if (w->mode == WIRE_RECV) close(w->part[i].fd);
    else curl_easy_cleanup(w->part[i].easy);
  }
  if (w->multi) curl_multi_cleanup(w->multi);
  close(w->epoll);
  munmap(w->to, w->slots * w->chunk_bytes);
  free(w->part);
}

/* ---- a row ---- */

struct http_result {
  /* of the limit, of the bare recv loop on the same server */
  struct summary share, far;
  struct summary ours, curl, recv, our_cpu, curl_cpu; /* seconds of a round */
  /* bytes per second: with latency; else 0, and curl is the limit */
  double limit;
  double way[2]; /* seconds of each way of curl */
  int mode;
  insitu_stats stats;
};

/* The faster way to drive curl here, by the least of several rounds each, in turns. */
static int http_calibrate(struct wire *w, double least[2]) {
  least[0] = least[1] = 1e9;
  for (int i = 0; i < 6; i++)
    for (int m = 0; m < 2; m++) {
      double wall = wire_round(&w[m]).wall;
      if (i && wall < least[m]) least[m] = wall;
    }
  return least[WIRE_EPOLL] < least[WIRE_POLL] ? WIRE_EPOLL : WIRE_POLL;
}

static struct row http_archive(const struct http_row *h) {
  struct row r = {.codec = RAW,
      .threads = 2,
      .chunk = 1,
      .ny = h->ny,
      .nx = h->nx,
      .batch = h->batch,
      .samples = h->samples,
      .per_shard = 1};
  snprintf(r.name, sizeof r.name, "%s", h->name);
  return r;
}
static struct server_child http_serve(const char *dir, int64_t latency_ms) {
  struct server_options o = {.folder = dir, .latency_ms = latency_ms, .no_log = true};
  return server_fork(&o, NULL, NULL);
}
static void http_side(struct side *s, const struct http_row *h, const struct row *r, int port,
    const struct options *o) {
  struct options own = *o;
  char url[64];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
  if (!own.inflight) own.inflight = h->connections;
  errno = 0;
  must(side_open(s, r, url, &own, true), "the loader cannot read over http");
}

static struct http_result http_measure(
    const struct http_row *h, const struct row *r, const char *dir, const struct options *o) {
  static double share[MAX_ROUNDS], far[MAX_ROUNDS], wall[4][MAX_ROUNDS], cpu[2][MAX_ROUNDS];
  static struct wire w[2], distant, bare;
  static struct side side;
  struct http_result out = {.limit = 0};
  struct server_child near = http_serve(dir, 0),
                      away = h->latency_ms ? http_serve(dir, h->latency_ms) : near;
  http_side(&side, h, r, away.port, o);
  for (int m = 0; m < 2; m++) wire_open(&w[m], m, near.port, r, h->connections, side.ring_bytes);
  out.mode = http_calibrate(w, out.way);
  wire_close(&w[!out.mode]);
  struct wire *limit = &w[out.mode];
  wire_open(&bare, WIRE_RECV, away.port, r, h->connections, side.ring_bytes);
  if (h->latency_ms) wire_open(&distant, out.mode, away.port, r, h->connections, side.ring_bytes);
  /* seconds of an epoch */
  double by_latency = (double)h->latency_ms * 1e-3 * (double)row_chunks(r) / (double)h->connections;
  for (int i = 0; i < (h->latency_ms ? 1 : 3); i++) side_round(&side), wire_round(&bare);
  for (uint64_t i = 0; i < o->rounds; i++) {
    struct cost got[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    for (uint64_t turn = 0; turn < 4; turn++) {
      uint64_t k = i % 2 ? 3 - turn : turn;
      if (k == 0) got[0] = side_round(&side);
      if (k == 1) got[1] = wire_round(limit);
      if (k == 2) got[2] = wire_round(&bare);
      if (k == 3 && h->latency_ms) got[3] = wire_round(&distant);
    }
    share[i] = fmax(by_latency, got[1].wall) / got[0].wall;
    far[i] = got[2].wall / got[0].wall;
    for (int k = 0; k < 4; k++) wall[k][i] = got[k].wall;
    cpu[0][i] = got[0].cpu, cpu[1][i] = h->latency_ms ? got[3].cpu : got[1].cpu;
  }
  check(insitu_loader_stats(side.loader, &out.stats, NULL), &(insitu_error){0});
  wire_close(limit);
  wire_close(&bare);
  if (h->latency_ms) wire_close(&distant);
  side_close(&side);
  server_kill(&near);
  if (h->latency_ms) server_kill(&away);
  out.share = summarise(share, o->rounds);
  out.far = summarise(far, o->rounds);
  out.ours = summarise(wall[0], o->rounds);
  struct summary loopback = summarise(wall[1], o->rounds);
  if (h->latency_ms) out.limit = (double)r->bytes / fmax(by_latency, loopback.mid);
  out.curl = h->latency_ms ? summarise(wall[3], o->rounds) : loopback;
  out.recv = summarise(wall[2], o->rounds);
  out.our_cpu = summarise(cpu[0], o->rounds);
  out.curl_cpu = summarise(cpu[1], o->rounds);
  return out;
}

/* ---- a server with a slow tail ---- */

/* One answer in a hundred begins TAIL_MS later, whatever it is asked for, as with an object store
 * some of whose machines are busy. */
enum { TAIL_MS = 2000, TAIL_ROUNDS = 9, TAIL_ONE_IN = 100 };
static const struct http_row tail_row = {"hedge-64KiB-tail", 128, 128, 512, 32, 64, 0};

struct tail_result {
  struct summary gain;     /* the plain loader's time over the hedging one's */
  struct summary wall[2];  /* seconds of an epoch: plain, hedging */
  double requests, hedges; /* of an epoch of the hedging one */
};

static void tail_rule(struct server *s, void *user) {
  (void)user;
  server_rule(s, (struct server_rule){.key = "f/*.0.0",
                     .probability = 1.0 / TAIL_ONE_IN,
                     .fault = SERVER_STALL,
                     .at = SERVER_AT_START,
                     .ms = TAIL_MS});
}

/* Epochs of the plain loader and of one that hedges, in turns. */
static struct tail_result tail_measure(
    const struct row *r, const char *dir, const struct options *o) {
  static struct side side[2];
  double wall[2][TAIL_ROUNDS], gain[TAIL_ROUNDS];
  struct tail_result out = {.requests = 0};
  struct server_options serve = {.folder = dir, .no_log = true};
  struct server_child server = server_fork(&serve, tail_rule, NULL);
  struct options own = *o;
  insitu_stats before, after;
  uint64_t n = insitu__base_min(o->rounds, TAIL_ROUNDS);
  for (int hedge = 0; hedge < 2; hedge++) {
    own.hedge = hedge;
    http_side(&side[hedge], &tail_row, r, server.port, &own);
    side_round(&side[hedge]); /* it learns how late the others are */
  }
  check(insitu_loader_stats(side[1].loader, &before, NULL), &(insitu_error){0});
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t turn = 0; turn < 2; turn++)
      wall[(i + turn) % 2][i] = side_round(&side[(i + turn) % 2]).wall;
    gain[i] = wall[0][i] / wall[1][i];
  }
  check(insitu_loader_stats(side[1].loader, &after, NULL), &(insitu_error){0});
  out.requests = (double)(after.http_requests - before.http_requests) / (double)n;
  out.hedges = (double)(after.hedges - before.hedges) / (double)n;
  for (int hedge = 0; hedge < 2; hedge++) {
    side_close(&side[hedge]);
    out.wall[hedge] = summarise(wall[hedge], n);
  }
  server_kill(&server);
  out.gain = summarise(gain, n);
  return out;
}

static void http_profile(
    const struct http_row *h, const struct row *r, const char *dir, const struct options *o) {
  static struct side side;
  static struct wire w;
  struct server_child server = http_serve(dir, h->latency_ms);
  struct cost sum = {0, 0};
  insitu_stats stats;
  http_side(&side, h, r, server.port, o);
  if (o->bare) wire_open(&w, WIRE_EPOLL, server.port, r, h->connections, side.ring_bytes);
  side_round(&side);
  for (uint64_t i = 0; i < o->rounds; i++) {
    struct cost one = o->bare ? wire_round(&w) : side_round(&side);
    sum.wall += one.wall;
    sum.cpu += one.cpu;
  }
  check(insitu_loader_stats(side.loader, &stats, NULL), &(insitu_error){0});
  printf("%s, %s: %.3f GB/s, %.4f s and %.4f cpu s an epoch; %s, %" PRIu64
         " chunks in flight at most, %" PRIu64 " bytes of batches\n",
      r->name, o->bare ? wire_name[w.mode] : "loader",
      1e-9 * (double)(r->bytes * o->rounds) / sum.wall, sum.wall / (double)o->rounds,
      sum.cpu / (double)o->rounds, stats.io, stats.inflight_peak, stats.slab_bytes_peak);
  if (o->bare) wire_close(&w);
  side_close(&side);
  server_kill(&server);
}
#endif
