/* The bare loop that a remote row is measured against: libcurl's multi interface gets all objects
 *   of a list, once, and drops them. bare CONNECTIONS [ACCESS:SECRET REGION] <LIST       LIST:
 *   lines "URL" or "URL FIRST-LAST", the bytes of a range
 * With keys every request is signed as S3 wants. Prints {"seconds": S, "bytes": B, "objects": N};
 * anything but 200 or 206 is an error. */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 4096 };

struct list {
  char **lines;
  size_t n, next;
};
static void die(const char *what) {
  fprintf(stderr, "bare: %s\n", what);
  exit(1);
}
static struct list read_list(void) {
  struct list l = {0};
  char line[LINE];
  size_t room = 0;
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (l.n == room) l.lines = realloc(l.lines, (room = 2 * room + 64) * sizeof *l.lines);
    if (!l.lines || !(l.lines[l.n++] = strdup(line))) die("no memory");
  }
  return l;
}
static size_t drop(char *bytes, size_t size, size_t n, void *total) {
  (void)bytes;
  *(uint64_t *)total += size * n;
  return size * n;
}
static void begin(CURLM *multi, CURL *easy, struct list *l) {
  char *range = strchr(l->lines[l->next], ' ');
  if (range) *range++ = 0;
  curl_easy_setopt(easy, CURLOPT_URL, l->lines[l->next++]);
  curl_easy_setopt(easy, CURLOPT_RANGE, range);
  if (curl_multi_add_handle(multi, easy)) die("curl_multi_add_handle");
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static CURL *prepare(char **argv, struct curl_slist *headers, uint64_t *bytes) {
  CURL *easy = curl_easy_init();
  if (!easy) die("curl_easy_init");
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, bytes);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  if (argv[2] && argv[3]) {
    char provider[LINE];
    snprintf(provider, sizeof provider, "aws:amz:%s:s3", argv[3]);
    curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, provider);
    curl_easy_setopt(easy, CURLOPT_USERPWD, argv[2]);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  }
  return easy;
}
static void finish(CURLM *multi, CURLMsg *m, struct list *l, size_t *done) {
  CURL *easy = m->easy_handle;
  long status = 0;
  if (m->data.result) die(curl_easy_strerror(m->data.result));
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200 && status != 206) {
    fprintf(stderr, "bare: the server answers %ld\n", status);
    exit(1);
  }
  ++*done;
  curl_multi_remove_handle(multi, easy);
  if (l->next < l->n) begin(multi, easy, l);
  else curl_easy_cleanup(easy);
}
int main(int argc, char **argv) {
  if (argc != 2 && argc != 4) die("usage: bare CONNECTIONS [ACCESS:SECRET REGION] <LIST");
  struct list l = read_list();
  uint64_t bytes = 0;
  size_t done = 0;
  long connections = atol(argv[1]);
  curl_global_init(CURL_GLOBAL_ALL);
  CURLM *multi = curl_multi_init();
  if (!multi) die("curl_multi_init");
  curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, connections);
  /* S3 asks for the body's hash in a header of its own, which libcurl adds only in later versions.
   */
  struct curl_slist *headers = curl_slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
  double start = now();
  for (long i = 0; i < connections && l.next < l.n; i++)
    begin(multi, prepare(argv, headers, &bytes), &l);
  while (done < l.n) {
    int running, left;
    if (curl_multi_perform(multi, &running)) die("curl_multi_perform");
    for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));)
      if (m->msg == CURLMSG_DONE) finish(multi, m, &l, &done);
    if (done < l.n && curl_multi_poll(multi, NULL, 0, 1000, NULL)) die("curl_multi_poll");
  }
  printf("{\"seconds\": %.6f, \"bytes\": %" PRIu64 ", \"objects\": %zu}\n", now() - start, bytes,
      done);
  curl_multi_cleanup(multi);
  curl_slist_free_all(headers);
  for (size_t i = 0; i < l.n; i++) free(l.lines[i]);
  free(l.lines);
  return 0;
}
