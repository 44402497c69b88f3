/* tests/support/server.h as a process of its own: for benchmarks, and for hands.
 *
 *   server [-p PORT] [-t THREADS] [-l LATENCY_MS] [-r BYTES_PER_S] FOLDER   serves it; prints its
 *   port, and ends with its stdin server -g PORT/KEY [-c CONNECTIONS] [-s SECONDS]
 *   how fast a bare receiver gets an object from there
 */
#include "server.h"

/* bytes of its body */
static uint64_t load_object(int fd, const char *request, char *buffer, uint64_t cap) {
  uint64_t got = 0, total = UINT64_MAX, n_head = 0;
  if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0) server__die("send");
  while (got < total) {
    ssize_t n = recv(fd, buffer + (n_head ? 0 : got), n_head ? cap : cap - got - 1, 0);
    if (n <= 0) server__die("recv");
    got += (uint64_t)n;
    if (n_head) continue;
    char *end = memmem(buffer, got, "\r\n\r\n", 4);
    buffer[got] = 0;
    char *length = strcasestr(buffer, "\ncontent-length:");
    if (!end || !length || strncmp(buffer, "HTTP/1.1 200", 12)) server__die("no such answer");
    n_head = (uint64_t)(end - buffer) + 4;
    total = n_head + strtoull(length + 16, NULL, 10);
  }
  return total - n_head;
}
struct load {
  pthread_t thread;
  const char *key;
  int port, connections;
  int64_t until;
  uint64_t objects, bytes;
};
/* One request on each of its connections, then their answers one after the other: the server works
 * on all meanwhile. */
static void *load_run(void *user) {
  struct load *l = user;
  struct sockaddr_in address = {.sin_family = AF_INET,
      .sin_port = htons((uint16_t)l->port),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int *fd = server__alloc(NULL, (uint64_t)l->connections * sizeof *fd),
      epoll = epoll_create1(EPOLL_CLOEXEC);
  uint64_t *left = server__alloc(NULL, (uint64_t)l->connections * sizeof *left), cap = 1 << 18;
  char request[2000], *buffer = server__alloc(NULL, cap);
  snprintf(request, sizeof request, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", l->key);
  for (int i = 0; i < l->connections; i++) {
    fd[i] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd[i], (struct sockaddr *)&address, sizeof address)) server__die("connect");
    uint64_t n = load_object(fd[i], request, buffer, cap);
    if (!i) l->bytes = n;
    struct epoll_event e = {EPOLLIN, {.u32 = (uint32_t)i}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd[i], &e);
    left[i] = 0;
    if (send(fd[i], request, strlen(request), MSG_NOSIGNAL) < 0) server__die("send");
  }
  struct epoll_event events[64];
  while (server__now() < l->until) {
    int n = epoll_wait(epoll, events, 64, 1000);
    for (int k = 0; k < n; k++) {
      uint32_t i = events[k].data.u32;
      ssize_t got = recv(fd[i], buffer, cap, MSG_DONTWAIT);
      if (got <= 0) server__die("recv");
      if (!left[i]) { /* the header comes in one piece */
        char *end = memmem(buffer, (uint64_t)got, "\r\n\r\n", 4);
        if (!end) server__die("no header");
        left[i] = l->bytes + (uint64_t)(end - buffer) + 4;
      }
      left[i] -= (uint64_t)got;
      if (left[i]) continue;
      l->objects++;
      if (send(fd[i], request, strlen(request), MSG_NOSIGNAL) < 0) server__die("send");
    }
  }
  for (int i = 0; i < l->connections; i++) close(fd[i]);
  close(epoll);
  free(fd), free(left), free(buffer);
  return NULL;
}
static int load(const char *target, int connections, double seconds, int threads) {
  struct load *l = server__alloc(NULL, (uint64_t)threads * sizeof *l);
  const char *slash = strchr(target, '/');
  uint64_t objects = 0;
  int64_t begin = server__now();
  for (int i = 0; i < threads; i++) {
    l[i] = (struct load){.key = slash ? slash + 1 : "",
        .port = atoi(target),
        .connections = connections / threads,
        .until = begin + (int64_t)(seconds * 1e9)};
    if (pthread_create(&l[i].thread, NULL, load_run, &l[i])) server__die("pthread_create");
  }
  for (int i = 0; i < threads; i++) {
    pthread_join(l[i].thread, NULL);
    objects += l[i].objects;
  }
  seconds = (double)(server__now() - begin) / 1e9;
  printf("%.0f objects/s, %.2f GB/s\n", (double)objects / seconds,
      (double)(objects * l[0].bytes) / seconds / 1e9);
  free(l);
  return 0;
}
int main(int argc, char **argv) {
  struct server_options options = {.no_log = true};
  const char *target = NULL;
  int connections = 16, letter;
  double seconds = 2;
  while ((letter = getopt(argc, argv, "p:t:l:r:g:c:s:")) > 0) {
    if (letter == 'p') options.port = atoi(optarg);
    else if (letter == 't') options.threads = atoi(optarg);
    else if (letter == 'l') options.latency_ms = atoi(optarg);
    else if (letter == 'r') options.rate = strtoull(optarg, NULL, 10);
    else if (letter == 'g') target = optarg;
    else if (letter == 'c') connections = atoi(optarg);
    else if (letter == 's') seconds = atof(optarg);
    else return 2;
  }
  if (target) return load(target, connections, seconds, options.threads ? options.threads : 1);
  if (optind + 1 != argc) {
    fprintf(stderr, "usage: server [-p PORT] [-t THREADS] [-l LATENCY_MS] [-r BYTES_PER_S] FOLDER\n"
                    "       server -g PORT/KEY [-c CONNECTIONS] [-s SECONDS] [-t THREADS]\n");
    return 2;
  }
  options.folder = argv[optind];
  struct server *s = server_start(&options);
  char byte;
  printf("%d\n", s->port);
  fflush(stdout);
  while (read(0, &byte, 1) > 0 || errno == EINTR) {}
  server_stop(&s);
  return 0;
}
