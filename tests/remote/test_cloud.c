/* >>cloud: what URLs and options mean, where credentials come from, the requests and listings of
 * each service, what answers teach. Services of credentials are emulated on loopback. Every secret
 * here has MARKER in it: no message, name or description may. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
static atomic_long oom_left = -1; /* allocations until one fails; negative: none does */
/* Memory that is given back may hold no secret: every block is searched then, and one that grows is
 * moved always. */
static void oom_free(void *p) {
  static const char marker[] = "MARKER";
  if (p && memmem(p, malloc_usable_size(p), marker, sizeof marker - 1)) {
    fprintf(stderr, "memory that is freed holds a secret: %.60s\n",
        (const char *)memmem(p, malloc_usable_size(p), marker, 6));
    abort();
  }
  free(p);
}
static void *oom_realloc(void *p, size_t n) {
  if (atomic_load(&oom_left) >= 0 && atomic_fetch_sub(&oom_left, 1) == 0) return NULL;
  char *to = calloc(1, n); /* what it held before is not ours to tell */
  if (to && p) {
    size_t old = malloc_usable_size(p);
    memcpy(to, p, old < n ? old : n);
    oom_free(p);
  }
  return to;
}
#define INSITU_REALLOC(pointer, bytes) oom_realloc(pointer, bytes)
#define INSITU_FREE(pointer) oom_free(pointer)
/* services are asked once, however late this machine lets them answer */
static int near_ms = 60000;
#define INSITU__AUTH_NEAR_TIMEOUT near_ms
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "support.h"
#include "server.h"

#define KEY "keyMARKERid"
#define SECRET "secretMARKER"

/* ---- a root, and what is seen of it ---- */
static struct insitu__reactor reactor;
static struct insitu__http http;
static struct insitu__cloud cloud;
static insitu_error error;

/* key, value, ..., NULL */
static insitu_status open_root(int kind, const char *url, const char *const *pairs) {
  insitu_option option[16];
  uint64_t n = 0;
  for (; pairs && pairs[2 * n]; n++) option[n] = (insitu_option){pairs[2 * n], pairs[2 * n + 1]};
  memset(&error, 0, sizeof error);
  insitu_status status =
      insitu__cloud_open(&cloud, reactor.desc.depth ? &http : NULL, kind, url, option, n, &error);
  assert_int_equal(status, error.status);
  if (strstr(error.message, "MARKER")) fail_msg("a secret is told: %s", error.message);
  return status;
}
#define OPEN(kind, url, ...) open_root(kind, url, (const char *const[]){__VA_ARGS__, NULL})
#define OPEN_BARE(kind, url) open_root(kind, url, NULL)
static void opened(insitu_status status) {
  if (status) fail_msg("%s", error.message);
}
static void refused(insitu_status status, insitu_status want, const char *part) {
  if (status != want || !strstr(error.message, part))
    fail_msg("%d, not %d with '%s': %s", status, want, part, error.message);
}
static void described(const char *part) { /* a member that the description has */
  struct insitu__text_buffer b = {0};
  struct insitu__text_json j;
  insitu__text_buffer_printf(&b, "{");
  insitu__cloud_describe(&cloud, &b);
  insitu__text_buffer_printf(&b, "}");
  assert_false(b.failed);
  assert_int_equal(insitu__text_json_parse(&j, b.text, b.n, "described", NULL), INSITU_OK);
  if (!strstr(b.text, part) || strstr(b.text, "MARKER"))
    fail_msg("'%s' or a secret: %s", part, b.text);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&b);
}
/* its value, NULL: there is none */
static const char *header(const struct insitu__http_request *r, const char *name) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(r->headers); i++)
    if (!strncasecmp(r->headers[i], name, strlen(name)) && r->headers[i][strlen(name)] == ':')
      return r->headers[i] + strlen(name) + 2;
  return NULL;
}
struct asked { /* a request that is made on a coroutine */
  struct insitu__cloud_ask ask;
  struct insitu__http_request request;
  insitu_status status;
  insitu_error error;
  unsigned learned;
  bool lesson;
  struct insitu__reactor_gate *done;
};
static void prepare(void *arg) {
  struct asked *a = arg;
  insitu__http_request_reset(&a->request);
  memset(&a->error, 0, sizeof a->error);
  a->status = insitu__cloud_prepare_await(&cloud, &a->ask, &a->request, &a->error);
  if (a->done) insitu__reactor_gate_open(a->done);
}
static void learn(void *arg) {
  struct asked *a = arg;
  a->lesson = insitu__cloud_learn_await(&cloud, &a->request, &a->learned, &a->error);
}
static void run(void (*fn)(void *), struct asked *a) {
  if (reactor.desc.depth) assert_int_equal(insitu__reactor_call(&reactor, fn, a), INSITU_OK);
  else fn(a); /* nothing waits where nothing is asked */
  if (strstr(a->error.message, "MARKER")) fail_msg("a secret is told: %s", a->error.message);
}
/* The url of a request, which is checked to be made; its headers are there for a look until the
 * next call. */
static struct asked last;
static void ask_read(void) { /* of object k; looks at nothing */
  insitu__http_request_free(&last.request);
  last = (struct asked){.ask = {.what = INSITU__CLOUD_READ, .key = "k"}};
  run(prepare, &last);
}
static const char *url_of(int what, const char *key, const char *range, const char *continuation) {
  insitu__http_request_free(&last.request);
  last = (struct asked){
      .ask = {.what = what, .key = key, .range = range, .continuation = continuation}};
  run(prepare, &last);
  if (last.status) fail_msg("%s", last.error.message);
  return last.request.url;
}
static const char *url_of_read(void) {
  return url_of(INSITU__CLOUD_READ, "k", NULL, NULL);
}
static void close_root(void) {
  insitu__http_request_free(&last.request);
  insitu__cloud_close(&cloud);
}

/* ---- URLs, options, endpoints ---- */
static void test_urls(void **state) {
  (void)state;
  static const struct {
    int kind;
    const char *url, *option[8], *name, *want; /* want: the url of object "a b/c" */
  } cases[] = {
      {INSITU__CLOUD_HTTP, "http://Host.example:80/root/", {NULL}, "http://host.example/root",
          "http://host.example/root/a%20b/c"},
      {INSITU__CLOUD_HTTP, "https://u:pMARKER%40@h:8443/x%2Fy z?sig=sMARKER&a=b", {NULL},
          "https://h:8443/x%2Fy%20z", "https://h:8443/x%2Fy%20z/a%20b/c?sig=sMARKER&a=b"},
      {INSITU__CLOUD_HTTP, "https://[::1]:443", {"bearer_token", "tMARKER"}, "https://[::1]",
          "https://[::1]/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://bucket/p%20 q/", {"skip_signature", "true", "region", ""},
          "s3://bucket/p%20 q", "https://bucket.s3.us-east-1.amazonaws.com/p%2520%20q/a%20b/c"},
      {INSITU__CLOUD_S3, "s3a://dotted.bucket",
          {"AWS_SKIP_SIGNATURE", "1", "aws_region", "eu-west-1"}, "s3a://dotted.bucket",
          "https://s3.eu-west-1.amazonaws.com/dotted.bucket/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://bucket",
          {"skip_signature", "true", "virtual_hosted_style_request", "false"}, "s3://bucket",
          "https://s3.us-east-1.amazonaws.com/bucket/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://bucket", {"skip_signature", "true", "region", "cn-north-1"},
          "s3://bucket", "https://bucket.s3.cn-north-1.amazonaws.com.cn/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://b/p",
          {"skip_signature", "yes", "endpoint", "http://localhost:9000/", "allow_http", "true"},
          "s3://b/p", "http://localhost:9000/b/p/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://b",
          {"skip_signature", "on", "endpoint_url", "https://e.org", "virtual_hosted_style_request",
              "true"},
          "s3://b", "https://b.e.org/a%20b/c"},
      {INSITU__CLOUD_S3, "s3://b",
          {"skip_signature", "on", "aws_endpoint", "https://b.e.org",
              "virtual_hosted_style_request", "true"},
          "s3://b", "https://b.e.org/a%20b/c"},
      {INSITU__CLOUD_GS, "gs://b/p", {"google_skip_signature", "true"}, "gs://b/p",
          "https://storage.googleapis.com/b/p/a%20b/c"},
      {INSITU__CLOUD_AZURE, "az://box/p",
          {"azure_storage_account_name", "acc", "azure_skip_signature", "true"}, "az://box/p",
          "https://acc.blob.core.windows.net/box/p/a%20b/c"},
      {INSITU__CLOUD_AZURE, "abfss://box@acc.dfs.core.windows.net/p", {"skip_signature", "true"},
          "abfss://box@acc.dfs.core.windows.net/p",
          "https://acc.blob.core.windows.net/box/p/a%20b/c"},
      {INSITU__CLOUD_AZURE, "adl://box",
          {"account_name", "acc", "sas_token", "?sv=1&sig=sMARKER%3D"}, "adl://box",
          "https://acc.blob.core.windows.net/box/a%20b/c?sv=1&sig=sMARKER%3D"},
      {INSITU__CLOUD_AZURE, "az://box", {"use_emulator", "true"}, "az://box",
          "http://127.0.0.1:10000/devstoreaccount1/box/a%20b/c"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    opened(open_root(cases[i].kind, cases[i].url, cases[i].option));
    assert_string_equal(cloud.name, cases[i].name);
    assert_string_equal(url_of(INSITU__CLOUD_READ, "a b/c", NULL, NULL), cases[i].want);
    assert_true(cloud.provider->suffix_ranges == (cases[i].kind != INSITU__CLOUD_AZURE));
    described("\"endpoint\": \"http");
    close_root();
  }
}
/* Names by which the cache tells stores apart, one of each pair against the other. */
static void test_whole_names(void **state) {
  (void)state;
  static const struct {
    int kind;
    const char *url, *option[8];
  } cases[] = {{INSITU__CLOUD_S3, "s3://b/p", {"skip_signature", "yes"}},
      {INSITU__CLOUD_S3, "s3://b/p", {"skip_signature", "yes", "region", "cn-north-1"}},
      {INSITU__CLOUD_S3, "s3://b/p", {"skip_signature", "yes", "region", "us-gov-west-1"}},
      {INSITU__CLOUD_S3, "s3://b/p", {"skip_signature", "yes", "endpoint", "https://e.org"}},
      {INSITU__CLOUD_S3, "s3://b/p", {"skip_signature", "yes", "endpoint", "https://e.org/x"}},
      /* a prefix that looks like an endpoint */
      {INSITU__CLOUD_S3, "s3://b/p at https://e.org/b", {"skip_signature", "yes"}},
      {INSITU__CLOUD_S3, "s3://b/p at https://e.org/b, 8", {"skip_signature", "yes"}},
      {INSITU__CLOUD_S3, "s3://b/p at https://e.org/b",
          {"skip_signature", "yes", "endpoint", "https://e.org"}},
      {INSITU__CLOUD_AZURE, "az://b/p", {"account_name", "one", "skip_signature", "true"}},
      {INSITU__CLOUD_AZURE, "az://b/p", {"account_name", "two", "skip_signature", "true"}},
      {INSITU__CLOUD_GS, "gs://b/p", {"skip_signature", "true"}},
      {INSITU__CLOUD_GS, "gs://b/p", {"skip_signature", "true", "endpoint", "https://e.org"}}};
  enum { CASES = sizeof cases / sizeof *cases };
  struct insitu__text_buffer name[CASES] = {{0}};
  for (int i = 0; i < CASES; i++) {
    opened(open_root(cases[i].kind, cases[i].url, cases[i].option));
    assert_true(insitu__cloud_whole_name(&cloud, &name[i]));
    for (int k = 0; k < i; k++)
      if (!strcmp(name[k].text, name[i].text))
        fail_msg("cases %d and %d are both '%s'", k, i, name[i].text);
    close_root();
  }
  /* one name in all regions */
  opened(OPEN(INSITU__CLOUD_S3, "s3://b/p", "skip_signature", "yes", "region", "eu-west-1"));
  struct insitu__text_buffer same = {0};
  assert_true(insitu__cloud_whole_name(&cloud, &same));
  assert_string_equal(same.text, name[0].text);
  insitu__text_buffer_free(&same);
  close_root();
  for (int i = 0; i < CASES; i++) insitu__text_buffer_free(&name[i]);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    int kind;
    const char *url, *option[6], *part;
  } cases[] = {
      {INSITU__CLOUD_HTTP, "http://h/x#f", {NULL}, "%23"},
      {INSITU__CLOUD_HTTP, "http://u:MARKER@/x", {NULL}, "host"},
      {INSITU__CLOUD_HTTP, "http://h:port/x", {NULL}, "port"},
      {INSITU__CLOUD_HTTP, "http://ho st/x", {NULL}, "host"},
      {INSITU__CLOUD_HTTP, "http://h/a\nb", {NULL}, "control character"},
      {INSITU__CLOUD_HTTP, "http://u%zzMARKER@h/", {NULL}, "hexadecimal"},
      {INSITU__CLOUD_HTTP, "http://h/", {"bearer_tokin", "MARKER"}, "did you mean 'bearer_token'?"},
      {INSITU__CLOUD_HTTP, "http://h/", {"connect_timout", "5s"},
          "did you mean 'connect_timeout'?"},
      {INSITU__CLOUD_HTTP, "http://h/", {"bearer_token", "MARKER\r\nX: y"}, "control character"},
      {INSITU__CLOUD_HTTP, "http://h/", {"region", "x"}, "no option 'region'"},
      {INSITU__CLOUD_HTTP, "http://h/", {"connect_timeout", "5x"},
          "option 'connect_timeout': '5x' is no value of it; give a time"},
      {INSITU__CLOUD_S3, "s3://data--use1-az4--x-s3/x", {NULL}, "directory buckets"},
      {INSITU__CLOUD_S3, "s3://", {NULL}, "bucket"},
      {INSITU__CLOUD_S3, "s3://k:MARKER@bucket/x", {NULL}, "no user"},
      {INSITU__CLOUD_S3, "s3://bucket/x?sig=MARKER", {NULL}, "options are no part"},
      {INSITU__CLOUD_S3, "s3://bu cket/x", {NULL}, "no name"},
      {INSITU__CLOUD_S3, "s3://b", {"skip_signature", "maybeMARKER"}, "neither true nor false"},
      {INSITU__CLOUD_S3, "s3://b", {"skip_signature", "1", "endpoint", "http://localhost:1"},
          "allow_http = true"},
      {INSITU__CLOUD_S3, "s3://b", {"skip_signature", "1", "endpoint", "https://u:MARKER@h"},
          "user"},
      {INSITU__CLOUD_S3, "s3://b", {"skip_signature", "1", "endpoint", "localhost:1"},
          "https://host"},
      {INSITU__CLOUD_S3, "s3://b", {"skip_signature", "1", "region", "x.evil.org/"},
          "option 'region'"},
      {INSITU__CLOUD_S3, "s3://b", {"access_key_id", KEY}, "the other"},
      {INSITU__CLOUD_S3, "s3://b", {"acces_key_id", KEY}, "did you mean 'access_key_id'?"},
      {INSITU__CLOUD_S3, "s3://b", {"ec2_metadata_disabled", "true"}, "skip_signature = true"},
      {INSITU__CLOUD_S3, "s3://b", {"endpoint_url_sts", "http://sts.example", "profile", "x"},
          "neither"},
      {INSITU__CLOUD_GS, "gs://b", {"service_account_key", "{MARKER"}, "no JSON"},
      {INSITU__CLOUD_GS, "gs://b", {"service_account_key", "{\"type\":\"external_account\"}"},
          "'external_account'"},
      {INSITU__CLOUD_GS, "gs://b",
          {"service_account_key", "{\"type\":\"authorized_user\",\"client_id\":\"MARKER\"}"},
          "client_secret"},
      {INSITU__CLOUD_GS, "gs://b", {"google_service_account", "/nowhere/x"}, "cannot be read"},
      {INSITU__CLOUD_GS, "gs://b", {"hmac_access_key_id", KEY}, "go together"},
      {INSITU__CLOUD_AZURE, "az://box", {"skip_signature", "1"}, "account_name"},
      {INSITU__CLOUD_AZURE, "az://box", {"skip_signature", "1", "account_name", "Evil.org/"},
          "account_name"},
      {INSITU__CLOUD_AZURE, "az://box", {"account_key", "%%MARKER", "account_name", "a"}, "base64"},
      {INSITU__CLOUD_AZURE, "abfs://box@acc.evil.org/x", {NULL}, "account's host"},
      {INSITU__CLOUD_AZURE, "abfs://box@acc", {NULL}, "account's host"},
      {INSITU__CLOUD_AZURE, "az://box", {"account_name", "a", "tenant_id", "t/../x"}, "tenant_id"},
      {INSITU__CLOUD_AZURE, "az://box",
          {"account_name", "a", "authority_host", "http://login.example"}, "allow_http"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    insitu_status status = open_root(cases[i].kind, cases[i].url, cases[i].option);
    if (!status) fail_msg("case %d was opened", (int)i);
    refused(status, error.status, cases[i].part);
  }
}
static void test_requests(void **state) {
  (void)state;
  opened(OPEN_BARE(INSITU__CLOUD_HTTP, "https://user:p%3aMARKER@h/x"));
  url_of(INSITU__CLOUD_READ, "k", "bytes=0-9", NULL);
  assert_string_equal(header(&last.request, "Authorization"), "Basic dXNlcjpwOk1BUktFUg==");
  assert_string_equal(header(&last.request, "Range"), "bytes=0-9");
  assert_string_equal(last.request.method, "GET");
  last.ask = (struct insitu__cloud_ask){.what = INSITU__CLOUD_LIST, .key = ""};
  run(prepare, &last);
  assert_int_equal(last.status, INSITU_E_UNSUPPORTED);
  close_root();
  opened(OPEN(INSITU__CLOUD_HTTP, "https://u:MARKER@h/x?s=1", "bearer_token", "tMARKER",
      "skip_signature", "true", "ca_bundle", ""));
  assert_string_equal(url_of(INSITU__CLOUD_READ, "k", NULL, NULL), "https://h/x/k?s=1");
  assert_null(header(&last.request, "Authorization"));
  close_root();
  opened(OPEN(INSITU__CLOUD_HTTP, "https://h/x", "bearer_token", "tMARKER"));
  url_of(INSITU__CLOUD_HEAD, "k", NULL, NULL);
  assert_string_equal(header(&last.request, "Authorization"), "Bearer tMARKER");
  assert_string_equal(last.request.method, "HEAD");
  close_root();

  opened(OPEN(INSITU__CLOUD_S3, "s3://b/p+q", "access_key_id", KEY, "secret_access_key", SECRET,
      "session_token", "tMARKER", "request_payer", "requester", "region", "eu-west-3"));
  assert_string_equal(url_of(INSITU__CLOUD_LIST, "a b", NULL, "x=&y"),
      "https://b.s3.eu-west-3.amazonaws.com/"
      "?continuation-token=x%3D%26y&delimiter=%2F&encoding-type=url&list-type=2&prefix=p%2Bq%2Fa%"
      "20b%2F");
  assert_non_null(strstr(header(&last.request, "Authorization"), "Credential=" KEY "/"));
  assert_non_null(strstr(header(&last.request, "Authorization"), "/eu-west-3/s3/aws4_request"));
  assert_string_equal(header(&last.request, "x-amz-security-token"), "tMARKER");
  assert_string_equal(header(&last.request, "x-amz-request-payer"), "requester");
  url_of(INSITU__CLOUD_READ, "k", "bytes=5-", NULL);
  assert_string_equal(header(&last.request, "Range"), "bytes=5-");
  described("\"credentials\": \"options\"");
  close_root();

  opened(OPEN(
      INSITU__CLOUD_GS, "gs://b", "hmac_access_key_id", KEY, "hmac_secret_access_key", SECRET));
  url_of_read();
  assert_non_null(strstr(header(&last.request, "Authorization"), "/auto/s3/aws4_request"));
  close_root();
  opened(OPEN(INSITU__CLOUD_GS, "gs://b/p", "bearer_token", "tMARKER", "user_project", "proj"));
  assert_string_equal(url_of(INSITU__CLOUD_LIST, "", NULL, NULL),
      "https://storage.googleapis.com/b?delimiter=%2F&encoding-type=url&list-type=2&prefix=p%2F");
  assert_string_equal(header(&last.request, "Authorization"), "Bearer tMARKER");
  assert_string_equal(header(&last.request, "x-goog-user-project"), "proj");
  close_root();

  opened(OPEN(INSITU__CLOUD_AZURE, "az://box/p", "account_name", "acc", "account_key", "TUFSS0VS"));
  url_of(INSITU__CLOUD_READ, "k", "bytes=0-9", NULL);
  assert_int_equal(strncmp(header(&last.request, "Authorization"), "SharedKey acc:", 14), 0);
  assert_string_equal(header(&last.request, "x-ms-range"), "bytes=0-9");
  assert_non_null(header(&last.request, "x-ms-date"));
  assert_null(header(&last.request, "Range"));
  assert_string_equal(url_of(INSITU__CLOUD_LIST, "k", NULL, "m/1"),
      "https://acc.blob.core.windows.net/"
      "box?comp=list&delimiter=%2F&marker=m%2F1&prefix=p%2Fk%2F&restype=container");
  close_root();
  opened(OPEN(INSITU__CLOUD_AZURE, "az://box", "account_name", "acc", "sas_token", "sig=sMARKER"));
  assert_non_null(
      strstr(url_of(INSITU__CLOUD_LIST, "", NULL, NULL), "restype=container&sig=sMARKER"));
  assert_null(header(&last.request, "Authorization"));
  close_root();
}

/* ---- environment and profile files ---- */
static void forget_environment(void) {
  static const char *const parts[] = {"AWS_", "GOOGLE_", "AZURE_", "STORAGE_EMULATOR", "IDENTITY_",
      "GCE_", "CLOUDSDK", "_proxy", "_PROXY"};
  char names[256][64];
  unsigned n = 0;
  for (char **e = environ; *e && n < 256; e++)
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
      if (strstr(*e, parts[i]) && strcspn(*e, "=") < sizeof *names && n < 256) {
        snprintf(names[n++], sizeof *names, "%.*s", (int)strcspn(*e, "="), *e);
        break;
      }
  while (n) unsetenv(names[--n]);
  setenv("HOME", support_dir, 1);
}
static void test_environment(void **state) {
  (void)state;
  forget_environment();
  setenv("AWS_ACCESS_KEY_ID", "envMARKERid", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "envMARKER", 1);
  setenv("AWS_SESSION_TOKEN", "envMARKERtoken", 1);
  setenv("AWS_DEFAULT_REGION", "eu-central-1", 1);
  opened(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"));
  assert_non_null(strstr(url_of_read(), "//b.s3.eu-central-1."));
  assert_string_equal(header(&last.request, "x-amz-security-token"), "envMARKERtoken");
  described("\"region_from\": \"environment\"");
  close_root();
  /* keys that are options take nothing of the environment's */
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET));
  url_of_read();
  assert_null(header(&last.request, "x-amz-security-token"));
  assert_non_null(strstr(header(&last.request, "Authorization"), "Credential=" KEY "/"));
  close_root();
  refused(OPEN(INSITU__CLOUD_S3, "s3://b", "environment", "false", "ec2_metadata_disabled", "1"),
      INSITU_E_AUTH, "skip_signature");
  setenv("AWS_REQUEST_PAYER", "MARKER", 1);
  refused(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"), INSITU_E_ARG,
      "environment variable 'AWS_REQUEST_PAYER'");
  forget_environment();
  setenv("GOOGLE_BEARER_TOKEN", "gMARKER", 1);
  opened(OPEN_BARE(INSITU__CLOUD_GS, "gs://b"));
  url_of_read();
  assert_string_equal(header(&last.request, "Authorization"), "Bearer gMARKER");
  close_root();
  forget_environment();
  setenv("STORAGE_EMULATOR_HOST", "localhost:4443", 1);
  opened(OPEN_BARE(INSITU__CLOUD_GS, "gs://b"));
  assert_string_equal(url_of_read(), "http://localhost:4443/b/k");
  assert_null(header(&last.request, "Authorization"));
  close_root();
  forget_environment();
  setenv("AZURE_STORAGE_ACCOUNT_NAME", "acc", 1);
  setenv("AZURE_STORAGE_ACCOUNT_KEY", "TUFSS0VS", 1);
  opened(OPEN(INSITU__CLOUD_AZURE, "az://box", "sas_token", "sig=MARKER"));
  url_of_read();
  assert_null(header(&last.request, "Authorization"));
  close_root();
  forget_environment();
}
static void write_text(const char *name, const char *text) {
  support_write(support_path(name), text, strlen(text));
}
static void test_profiles(void **state) {
  (void)state;
  forget_environment();
  write_text(".aws/credentials",
      "[default]\naws_access_key_id = defMARKERid\naws_secret_access_key = defMARKER\n"
      "[base]\naws_access_key_id=baseMARKERid\naws_secret_access_key=baseMARKER\n");
  write_text(".aws/config",
      "[default]\nregion = eu-north-1\n[profile role]\nrole_arn = arn:aws:iam::1:role/r\n"
      "source_profile = base\nexternal_id = ext\nregion = ap-south-1\n"
      "[profile self]\nrole_arn = arn:1\nsource_profile = self\naws_access_key_id = selfMARKERid\n"
      "aws_secret_access_key = selfMARKER\n[profile loop]\nrole_arn = a\nsource_profile = loop2\n"
      "[profile loop2]\nrole_arn = b\nsource_profile = loop\n[profile sso]\nsso_session = s\n"
      "[profile run]\ncredential_process = /bin/MARKER\n[profile mfa]\nrole_arn = a\nmfa_serial = "
      "1\n"
      "source_profile = base\n[profile none]\nregion = x\n[profile lost]\nrole_arn = "
      "a\nsource_profile = none\n"
      "[profile web]\nrole_arn = arn:web\nweb_identity_token_file = /nowhere\n"
      "[profile far]\nrole_arn = a\ncredential_source = Ec2InstanceMetadata\n");
  opened(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"));
  assert_non_null(strstr(url_of_read(), ".eu-north-1."));
  assert_non_null(strstr(header(&last.request, "Authorization"), "Credential=defMARKERid/"));
  described("\"region_from\": \"profile\", \"credentials\": \"profile\"");
  close_root();
  /* its region is known even so */
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "skip_signature", "true"));
  assert_string_equal(cloud.auth.region, "eu-north-1");
  close_root();
  setenv("AWS_PROFILE", "role", 1);
  opened(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"));
  assert_int_equal(cloud.auth.n_roles, 1);
  assert_string_equal(cloud.auth.role[0].arn, "arn:aws:iam::1:role/r");
  assert_string_equal(cloud.auth.role[0].external, "ext");
  assert_string_equal(cloud.auth.first.id, "baseMARKERid");
  assert_string_equal(cloud.auth.region, "ap-south-1");
  close_root();
  unsetenv("AWS_PROFILE");
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "self"));
  assert_int_equal(cloud.auth.n_roles, 1);
  assert_string_equal(cloud.auth.first.id, "selfMARKERid");
  close_root();
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "web"));
  assert_int_equal(cloud.auth.source, INSITU__AUTH_WEB);
  close_root();
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "far"));
  assert_int_equal(cloud.auth.source, INSITU__AUTH_IMDS);
  close_root();
  setenv("AWS_ACCESS_KEY_ID", "envMARKERid", 1); /* an option outranks the environment */
  setenv("AWS_SECRET_ACCESS_KEY", "envMARKER", 1);
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "base"));
  assert_string_equal(cloud.auth.keys.id, "baseMARKERid");
  close_root();
  static const char *const bad[][2] = {{"loop", "INSITU__MAX_ROLES"}, {"sso", "sso_session"},
      {"run", "credential_process"}, {"mfa", "mfa_serial"}, {"none", "holds no keys"},
      {"lost", "holds no keys"}, {"absent", "neither"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    refused(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", bad[i][0]), INSITU_E_AUTH, bad[i][1]);
  support_remove(support_path(".aws"));
  forget_environment();
}

/* ---- files that cannot be read: never as if they were not there ---- */
enum {
  MISSING,
  IS_FILE_ABOVE,
  IS_DIRECTORY,
  IS_LOOP,
  IS_PIPE,
  TOO_LARGE,
  MALFORMED,
  NO_SECTION,
  STATES
};
static void spoil(const char *name, int how) {
  static char large[INSITU__MAX_SECRET_FILE + 1];
  char path[700];
  snprintf(path, sizeof path, "%s", support_path(name));
  char *slash = strrchr(path, '/');
  support_remove(path);
  *slash = 0;
  support_remove(path);
  if (how == IS_FILE_ABOVE) support_write(path, "x", 1);
  *slash = '/';
  if (how == MISSING || how == IS_FILE_ABOVE) return;
  write_text(name, "[default]\naws_access_key_id MARKER\n");
  if (how == MALFORMED) return;
  unlink(path);
  memset(large, '#', sizeof large);
  if (how == IS_DIRECTORY) assert_int_equal(mkdir(path, 0700), 0);
  if (how == IS_PIPE) assert_int_equal(mkfifo(path, 0600), 0);
  if (how == IS_LOOP) assert_int_equal(symlink(path, path), 0);
  if (how == TOO_LARGE) support_write(path, large, sizeof large);
  if (how == NO_SECTION) write_text(name, "aws_access_key_id = MARKER\n[default]\n");
}
static void test_files_unread(void **state) {
  static const char *const files[] = {".aws/config", ".aws/credentials"};
  static const char *const names[] = {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"};
  static const char *const causes[STATES] = {"No such file", "Not a directory", "Is a directory",
      "symbolic links", "it is a pipe", "INSITU__MAX_SECRET_FILE", "line 2", "line 1"};
  char path[700];
  (void)state;
  forget_environment();
  for (int i = 0; i < 2; i++)
    for (int how = 0; how < STATES; how++)
      for (int named = 0; named < 2; named++) {
        spoil(files[i], how);
        snprintf(path, sizeof path, "%s", support_path(files[i]));
        if (named) setenv(names[i], path, 1);
        insitu_status status = OPEN_BARE(INSITU__CLOUD_S3, "s3://b");
        /* there is no such file, and nobody said that there is one */
        if (how <= IS_FILE_ABOVE && !named) {
          opened(status);
          assert_int_equal(cloud.auth.source, INSITU__AUTH_IMDS);
          close_root();
        } else {
          refused(status, INSITU_E_AUTH, causes[how]);
          refused(status, INSITU_E_AUTH, path);
          if (named && how < MALFORMED) refused(status, INSITU_E_AUTH, names[i]);
          assert_int_equal(error.sys_errno != 0, how <= IS_LOOP);
          /* public data in a region that options do not name: the file may name it, and the
           * endpoint */
          refused(OPEN(INSITU__CLOUD_S3, "s3://b", "skip_signature", "true"), INSITU_E_AUTH, path);
          opened(
              OPEN(INSITU__CLOUD_S3, "s3://b", "skip_signature", "true", "environment", "false"));
          close_root();
          opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET,
              "region", "r", "endpoint", "https://h"));
          close_root();
        }
        unsetenv(names[i]);
        support_remove(path);
        support_remove(support_path(".aws"));
      }
  setenv("AWS_CONFIG_FILE", "/dev/null", 1); /* how one says that there is none */
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  opened(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"));
  close_root();
  forget_environment();
  char far[5000]; /* a path that would be cut off could be another file's */
  memset(far, 'a', sizeof far - 1);
  far[0] = '/';
  far[sizeof far - 1] = 0;
  setenv("HOME", far, 1);
  refused(OPEN_BARE(INSITU__CLOUD_S3, "s3://b"), INSITU_E_AUTH, "too long");
  refused(OPEN_BARE(INSITU__CLOUD_GS, "gs://b"), INSITU_E_AUTH, "too long");
  forget_environment();
  for (int how = 0; how < MALFORMED; how++)
    for (int named = 0; named < 2; named++) {
      static const char file[] = "gcloud/application_default_credentials.json";
      spoil(file, how);
      snprintf(path, sizeof path, "%s", support_path(named ? file : "gcloud"));
      setenv(named ? "GOOGLE_APPLICATION_CREDENTIALS" : "CLOUDSDK_CONFIG", path, 1);
      insitu_status status = OPEN_BARE(INSITU__CLOUD_GS, "gs://b");
      if (how <= IS_FILE_ABOVE && !named) {
        opened(status);
        assert_int_equal(cloud.auth.source, INSITU__AUTH_GOOGLE);
        close_root();
      } else refused(status, INSITU_E_AUTH, causes[how]);
      forget_environment();
      support_remove(support_path(file));
      support_remove(support_path("gcloud"));
    }
}
/* What would be given up silently for other credentials. */
static void test_half_said(void **state) {
  static const struct {
    int kind;
    const char *environment[6], *part;
  } cases[] = {{INSITU__CLOUD_S3, {"AWS_WEB_IDENTITY_TOKEN_FILE", "/t"}, "AWS_ROLE_ARN"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "typo"}, "'typo' (named by AWS_PROFILE)"},
      {INSITU__CLOUD_S3,
          {"AWS_PROFILE", "typo", "AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "b"},
          "'typo'"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "half"}, "not the other"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "lost"}, "'gone' (named by source_profile)"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "control"},
          "aws_secret_access_key holds a control character"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "word"},
          "aws_access_key_id cannot be used: it holds a blank"},
      {INSITU__CLOUD_S3, {"AWS_PROFILE", "nothing"},
          "aws_access_key_id cannot be used: it is empty"},
      {INSITU__CLOUD_AZURE,
          {"AZURE_STORAGE_ACCOUNT", "a", "AZURE_CLIENT_SECRET", "MARKER", "AZURE_CLIENT_ID", "c"},
          "AZURE_CLIENT_SECRET needs client_id and tenant_id"},
      {INSITU__CLOUD_AZURE,
          {"AZURE_STORAGE_ACCOUNT", "a", "AZURE_FEDERATED_TOKEN_FILE", "/t", "AZURE_TENANT_ID",
              "c"},
          "AZURE_FEDERATED_TOKEN_FILE needs"}};
  (void)state;
  forget_environment();
  write_text(".aws/config",
      "[profile half]\naws_access_key_id = idMARKER\n[profile lost]\nrole_arn = a\nsource_profile "
      "= gone\n"
      "[profile control]\naws_access_key_id = MARKER\naws_secret_access_key = a\tMARKER\n"
      "[profile word]\naws_access_key_id = a MARKER\naws_secret_access_key = a\n"
      "[profile nothing]\naws_access_key_id =\naws_secret_access_key = MARKER\n"
      "[profile indented]\n  aws_access_key_id = idMARKER\n  aws_secret_access_key = sMARKER\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int k = 0; k < 6 && cases[i].environment[k]; k += 2)
      setenv(cases[i].environment[k], cases[i].environment[k + 1], 1);
    refused(OPEN_BARE(cases[i].kind, cases[i].kind == INSITU__CLOUD_S3 ? "s3://b" : "az://b"),
        INSITU_E_AUTH, cases[i].part);
    forget_environment();
  }
  refused(OPEN(INSITU__CLOUD_S3, "s3://b", "role_arn", "a"), INSITU_E_AUTH,
      "there is role_arn, and not web_identity_token_file");
  refused(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "typo", "environment", "false"),
      INSITU_E_AUTH, "are not read");
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "profile", "indented"));
  assert_string_equal(cloud.auth.keys.id, "idMARKER");
  close_root();
  support_remove(support_path(".aws"));
}
/* What pasting leaves at a credential's ends, or lines that break a request's head: told where it
 * is, when the store is opened. */
static void test_characters(void **state) {
  static const struct {
    int kind;
    const char *variable, *option;
  } cases[] = {{INSITU__CLOUD_S3, "AWS_ACCESS_KEY_ID", "access_key_id"},
      {INSITU__CLOUD_S3, "AWS_SECRET_ACCESS_KEY", "secret_access_key"},
      {INSITU__CLOUD_S3, "AWS_SESSION_TOKEN", "session_token"},
      {INSITU__CLOUD_S3, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "container_authorization_token"},
      {INSITU__CLOUD_GS, "GOOGLE_BEARER_TOKEN", "bearer_token"},
      {INSITU__CLOUD_AZURE, "AZURE_STORAGE_KEY", "master_key"},
      {INSITU__CLOUD_AZURE, "AZURE_STORAGE_SAS_TOKEN", "sas_token"},
      {INSITU__CLOUD_AZURE, "AZURE_STORAGE_TOKEN", "bearer_token"},
      {INSITU__CLOUD_AZURE, "AZURE_CLIENT_SECRET", "client_secret"},
      {INSITU__CLOUD_AZURE, "IDENTITY_HEADER", "identity_header"},
      {INSITU__CLOUD_HTTP, NULL, "bearer_token"}};
  static const char *const bad[] = {
      "aMARKER ", " aMARKER", "aMARKER\r\nX: y", "aMARKER\n", "a\x7fMARKER"};
  static const char *const url[] = {"http://h", "s3://b", "gs://b", "az://b"};
  (void)state;
  forget_environment();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
      char part[100];
      if (cases[i].variable) {
        setenv(cases[i].variable, bad[k], 1);
        snprintf(part, sizeof part, "store, environment variable '%s': ", cases[i].variable);
        refused(OPEN_BARE(cases[i].kind, url[cases[i].kind]), INSITU_E_AUTH, part);
        unsetenv(cases[i].variable);
      }
      snprintf(part, sizeof part, "store, option '%s': ", cases[i].option);
      refused(
          OPEN(cases[i].kind, url[cases[i].kind], cases[i].option, bad[k]), INSITU_E_AUTH, part);
    }
  refused(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", "a MARKER", "secret_access_key", "a"),
      INSITU_E_AUTH, "holds a blank");
  /* a password of MinIO */
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", "a MARKER"));
  close_root();
}
/* Memory that is missing once while a root is opened: an error that says so, or the same
 * credentials. */
static void test_open_without_memory(void **state) {
  static const struct {
    int kind, source;
    const char *url, *option[8];
  } cases[] = {{INSITU__CLOUD_S3, INSITU__AUTH_STATIC, "s3://b", {NULL}},
      {INSITU__CLOUD_S3, INSITU__AUTH_WEB, "s3://b", {"profile", "web"}},
      {INSITU__CLOUD_S3, INSITU__AUTH_STATIC, "s3://b", {"profile", "role"}},
      {INSITU__CLOUD_GS, INSITU__AUTH_OAUTH, "gs://b", {NULL}},
      {INSITU__CLOUD_AZURE, INSITU__AUTH_STATIC, "az://b",
          {"account_name", "a", "account_key", "TUFSS0VS"}},
      {INSITU__CLOUD_HTTP, INSITU__AUTH_ANONYMOUS, "http://u:pMARKER@h/x?s=MARKER", {NULL}}};
  (void)state;
  forget_environment();
  write_text(".aws/credentials",
      "[default]\naws_access_key_id = defMARKERid\naws_secret_access_key = defMARKER\n"
      "aws_session_token = tMARKER\n");
  write_text(".aws/config",
      "[default]\nregion = eu-north-1\nendpoint_url = https://minio\n[profile role]\nrole_arn = r\n"
      "source_profile = default\n[profile web]\nrole_arn = r\nweb_identity_token_file = /t\n");
  write_text(".config/gcloud/application_default_credentials.json",
      "{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"csMARKER\",\"refresh_"
      "token\":\"rMARKER\"}");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (long at = 0, left = -1; left < 0; at++) {
      atomic_store(&oom_left, at);
      insitu_status status = open_root(cases[i].kind, cases[i].url, cases[i].option);
      left = atomic_exchange(&oom_left, -1);
      if (status != (left < 0 ? INSITU_E_NOMEM : INSITU_OK))
        fail_msg("case %d, allocation %ld: %d: %s", (int)i, at, status, error.message);
      if (status) continue;
      assert_int_equal(cloud.auth.source, cases[i].source);
      if (!i)
        assert_true(!strcmp(cloud.base, "https://b.minio") || !strcmp(cloud.base, "https://minio"));
      if (!i) assert_string_equal(cloud.auth.keys.token, "tMARKER");
      close_root();
    }
  support_remove(support_path(".aws"));
  support_remove(support_path(".config"));
}

/* ---- services that give credentials ---- */
enum { IMDS_TOKEN, IMDS_KEYS, CONTAINER, WEB, ROLE, OAUTH, GOOGLE, MSI, OTHER, SERVICES };
static atomic_int asked_of[SERVICES];
static atomic_int life = 3600;         /* seconds that what they give holds */
static atomic_bool ill, wrong;         /* they refuse; they give nonsense */
static atomic_int late_ms;             /* they answer so much later */
static atomic_int sts_asked, sts_busy; /* requests; those to come that are answered 400 */
static const char *_Atomic sts_code;   /* with this code */
static atomic_bool sts_strict;         /* the signature's time counts */
static struct server *services;

static const char *sent(const struct server_request *q, const char *name) {
  for (unsigned i = 0; i < q->n_headers; i++)
    if (!strcasecmp(q->headers[i].name, name)) return q->headers[i].value;
  return "";
}
/* an answer with the count, and the end */
static bool give(struct server_answer *a, int service, const char *format) {
  char date[40];
  time_t end = time(NULL) + life;
  struct tm tm;
  int n = ++asked_of[service];
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &tm));
  a->delay_ms = late_ms;
  if (ill)
    return server_answer_text(
        a, 403, "{\"error\":\"invalid_grant\",\"error_description\":\"MARKER\"}");
  if (wrong) return server_answer_text(a, 200, "<MARKER>{");
  if (!strcmp(format, "aws"))
    return server_answer_text(a, 200,
        "{\"Code\":\"Success\",\"AccessKeyId\":\"idMARKER%d\",\"SecretAccessKey\":\"sMARKER\","
        "\"Token\":\"tMARKER%d\","
        "\"Expiration\":\"%s\"}",
        n, n, date);
  if (!strcmp(format, "xml"))
    return server_answer_text(a, 200,
        "<R "
        "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/"
        "\"><Result><Credentials><AccessKeyId>idMARKER%d</AccessKeyId>"
        "<SecretAccessKey>sMARKER</SecretAccessKey><SessionToken>tMARKER%d</"
        "SessionToken><Expiration>%s</Expiration>"
        "</Credentials></Result></R>",
        n, n, date);
  if (!strcmp(format, "text"))
    return server_answer_text(
        a, 200, "{\"access_token\":\"bMARKER%d\",\"expires_in\":\"%d\"}", n, (int)life);
  return server_answer_text(a, 200,
      "{\"access_token\":\"bMARKER%d\",\"expires_in\":%d,\"token_type\":\"Bearer\"}", n, (int)life);
}
/* Services of credentials take what was signed within five minutes. */
static bool is_now(int64_t seconds) {
  return llabs(seconds - (int64_t)time(NULL)) < 300;
}
static bool is_dated_now(const char *date) {
  int64_t seconds;
  return insitu__sign_parse_iso(date, &seconds) && is_now(seconds);
}
/* the time of a service account's claim, which stands between two dots */
static bool is_claimed_now(const char *body) {
  char text[1000];
  unsigned char claim[800];
  const char *from = strchr(strstr(body, "&assertion="), '.') + 1;
  unsigned n = (unsigned)strcspn(from, ".");
  snprintf(text, sizeof text, "%.*s===", (int)n, from);
  for (char *c = text; *c; c++) *c = *c == '-' ? '+' : *c == '_' ? '/' : *c;
  text[(n + 3) / 4 * 4] = 0;
  int64_t bytes = insitu__text_base64(text, strlen(text), claim, sizeof claim - 1);
  claim[bytes > 0 ? bytes : 0] = 0;
  const char *iat = strstr((char *)claim, "\"iat\":");
  return iat && is_now(strtoll(iat + 6, NULL, 10));
}
static bool serve_aws(const struct server_request *q, struct server_answer *a) {
  if (!strcmp(q->path, "latest/api/token")) {
    ++asked_of[IMDS_TOKEN];
    bool good = !strcmp(q->method, "PUT") &&
                !strcmp(sent(q, "X-aws-ec2-metadata-token-ttl-seconds"), "21600") && !ill;
    return server_answer_text(a, good ? 200 : 403, good ? "imdsMARKER" : "no");
  }
  if (!strncmp(q->path, "latest/meta-data/iam/security-credentials/", 42)) {
    if (strcmp(sent(q, "X-aws-ec2-metadata-token"), "imdsMARKER") != 0)
      return server_answer_text(a, 401, "no token");
    if (!q->path[42]) return server_answer_text(a, 200, "the role\n");
    return !strcmp(q->path + 42, "the role") ? give(a, IMDS_KEYS, "aws")
                                             : server_answer_text(a, 404, "no role");
  }
  if (!strcmp(q->path, "ecs"))
    return !strcmp(sent(q, "Authorization"), "ecsMARKER") ? give(a, CONTAINER, "aws")
                                                          : server_answer_text(a, 401, "token");
  if (strncmp(q->path, "sts", 3) != 0) return false;
  ++sts_asked;
  if (sts_strict && strstr(q->body, "Action=AssumeRole&") && !is_dated_now(sent(q, "x-amz-date")))
    return server_answer_text(a, 403, "<E><Error><Code>SignatureDoesNotMatch</Code></Error></E>");
  if (sts_busy > 0 && sts_busy-- > 0)
    return server_answer_text(
        a, 400, "<E><Error><Type>Sender</Type><Code>%s</Code></Error></E>", sts_code);
  if (strstr(q->body, "Action=AssumeRoleWithWebIdentity&")) {
    if (strstr(q->body, "&WebIdentityToken=web%2BMARKER")) return give(a, WEB, "xml");
    return server_answer_text(
        a, 400, "<E><Error><Code>InvalidIdentityToken</Code><Message>MARKER</Message></Error></E>");
  }
  bool good = strstr(q->body, "Action=AssumeRole&") && strstr(q->body, "&ExternalId=ext") &&
              strstr(sent(q, "Authorization"), "/sts/aws4_request");
  return good ? give(a, ROLE, "xml")
              : server_answer_text(a, 403, "<E><Error><Code>AccessDenied</Code></Error></E>");
}
/* Objects of a bucket in a region of its own, for the credentials that are given now. */
static atomic_int current;
static bool serve_object(const struct server_request *q, struct server_answer *a) {
  char token[32];
  snprintf(token, sizeof token, "tMARKER%d", (int)current);
  if (strcmp(sent(q, "x-amz-security-token"), token) != 0)
    return server_answer_text(
        a, 400, "<Error><Code>ExpiredToken</Code><Token-0>MARKER</Token-0></Error>");
  if (!strstr(sent(q, "Authorization"), "/eu-west-2/s3/"))
    return server_answer_text(a, 400,
        "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-2</Region></Error>");
  return false;
}
static bool serve(void *user, const struct server_request *q, struct server_answer *a) {
  (void)user;
  if (!strncmp(q->path, "b/", 2)) return serve_object(q, a);
  if (serve_aws(q, a)) return true;
  if (!strcmp(q->path, "token")) {
    bool user_token =
        strstr(q->body, "refresh_token=refMARKER") && strstr(q->body, "client_secret=csMARKER");
    const char *claim = strstr(q->body, "&assertion=ey"),
               *dot = claim ? strstr(claim, ".ey") : NULL;
    bool signature = dot && strstr(q->body, "jwt-bearer") && strchr(dot + 1, '.') &&
                     strlen(strchr(dot + 1, '.')) == 343;
    if (signature && sts_strict && !is_claimed_now(q->body))
      return server_answer_text(a, 400, "{\"error\":\"invalid_grant\"}");
    return user_token || signature ? give(a, OAUTH, "number") : server_answer_text(a, 401, "{}");
  }
  if (!strcmp(q->path, "tenant/oauth2/v2.0/token")) {
    bool secret = strstr(q->body, "client_secret=csMARKER"),
         federated = strstr(q->body, "client_assertion=web%2BMARKER");
    return (secret || federated) && strstr(q->body, "storage.azure.com")
               ? give(a, OAUTH, "number")
               : server_answer_text(a, 401, "{}");
  }
  if (!strcmp(q->path, "computeMetadata/v1/instance/service-accounts/default/token"))
    return strcmp(sent(q, "Metadata-Flavor"), "Google") ? server_answer_text(a, 403, "flavor")
                                                        : give(a, GOOGLE, "number");
  if (!strcmp(q->path, "metadata/identity/oauth2/token"))
    return strcmp(sent(q, "Metadata"), "true") ? server_answer_text(a, 400, "{}")
                                               : give(a, MSI, "text");
  if (!strcmp(q->path, "msi"))
    return strcmp(sent(q, "X-IDENTITY-HEADER"), "hMARKER") ? server_answer_text(a, 400, "{}")
                                                           : give(a, MSI, "text");
  ++asked_of[OTHER];
  return false;
}
static int asked_in_all(void) {
  int n = 0;
  for (int i = 0; i < SERVICES; i++) n += asked_of[i];
  return n;
}

/* The ways to credentials: options, of which "@NAME" is a file in the temporary folder, and "%"
 * stands for the services' url. */
static const struct way {
  const char *name;
  int kind, service;
  const char *option[16];
} ways[] = {
    {"imds", INSITU__CLOUD_S3, IMDS_KEYS, {"metadata_endpoint", "%"}},
    {"container", INSITU__CLOUD_S3, CONTAINER,
        {"container_credentials_full_uri", "%/ecs", "container_authorization_token", "ecsMARKER"}},
    {"container, file", INSITU__CLOUD_S3, CONTAINER,
        {"container_credentials_full_uri", "%/ecs", "container_authorization_token_file", "@ecs"}},
    {"web", INSITU__CLOUD_S3, WEB,
        {"role_arn", "arn:r", "web_identity_token_file", "@web", "endpoint_url_sts", "%/sts/"}},
    {"role", INSITU__CLOUD_S3, ROLE, {"profile", "role", "endpoint_url_sts", "%/sts"}},
    {"refresh token", INSITU__CLOUD_GS, OAUTH, {"application_credentials", "@user.json"}},
#ifdef INSITU_WITH_OPENSSL
    {"service account", INSITU__CLOUD_GS, OAUTH, {"google_service_account", "@service.json"}},
#endif
    {"google", INSITU__CLOUD_GS, GOOGLE, {"metadata_host", "%"}},
    {"client secret", INSITU__CLOUD_AZURE, OAUTH,
        {"client_id", "c", "client_secret", "csMARKER", "tenant_id", "tenant", "authority_host",
            "%"}},
    {"federated", INSITU__CLOUD_AZURE, OAUTH,
        {"client_id", "c", "federated_token_file", "@web", "tenant_id", "tenant", "authority_host",
            "%"}},
    {"managed identity", INSITU__CLOUD_AZURE, MSI, {"msi_endpoint", "%", "client_id", "c"}},
    {"app service", INSITU__CLOUD_AZURE, MSI,
        {"identity_endpoint", "%/msi", "identity_header", "hMARKER"}},
};
enum { WAYS = sizeof ways / sizeof *ways };
static insitu_status open_way(const struct way *w) {
  static char text[16][700];
  static const char *const url[] = {"", "s3://b", "gs://b", "az://b"};
  const char *option[20];
  int n = 0;
  for (; w->option[n]; n++) {
    option[n] = text[n];
    if (w->option[n][0] == '@')
      snprintf(text[n], sizeof text[n], "%s", support_path(w->option[n] + 1));
    else if (w->option[n][0] == '%')
      snprintf(text[n], sizeof text[n], "http://127.0.0.1:%d%s", services->port, w->option[n] + 1);
    else option[n] = w->option[n];
  }
  if (w->kind == INSITU__CLOUD_AZURE) {
    option[n++] = "account_name";
    option[n++] = "acc";
  }
  option[n] = NULL;
  for (int i = 0; i < SERVICES; i++) asked_of[i] = 0;
  life = 3600;
  ill = wrong = false;
  return open_root(w->kind, url[w->kind], option);
}
/* a request has the n-th credentials */
static void holds(const struct asked *a, const struct way *w, int n) {
  char want[40];
  if (a->status) fail_msg("%s: %s", w->name, a->error.message);
  const char *authorization = header(&a->request, "Authorization"),
             *token = header(&a->request, "x-amz-security-token");
  const char *got = w->kind == INSITU__CLOUD_S3 ? token : authorization;
  snprintf(want, sizeof want, w->kind == INSITU__CLOUD_S3 ? "tMARKER%d" : "Bearer bMARKER%d", n);
  if (!authorization || !got || strcmp(got, want) != 0)
    fail_msg("%s: %s, not %s", w->name, got ? got : "nothing", want);
}
#ifdef INSITU_WITH_OPENSSL
#include <openssl/rsa.h>
static void write_service_account(void) {
  struct insitu__text_buffer b = {.secret = true};
  static EVP_PKEY *key; /* one for all tests: it takes seconds under Valgrind */
  if (!key) key = EVP_RSA_gen(2048);
  assert_non_null(key);
  BIO *out = BIO_new(BIO_s_mem());
  char *pem;
  assert_int_equal(PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
  int n = (int)BIO_get_mem_data(out, &pem);
  insitu__text_buffer_printf(&b,
      "{\"type\":\"service_account\",\"client_email\":\"a@b\",\"private_key_id\":\"kMARKER\","
      "\"token_uri\":"
      "\"http://127.0.0.1:%d/token\",\"private_key\":\"",
      services->port);
  for (int i = 0; i < n; i++) insitu__text_buffer_printf(&b, pem[i] == '\n' ? "\\n" : "%c", pem[i]);
  insitu__text_buffer_printf(&b, "\"}");
  support_write(support_path("service.json"), b.text, b.n);
  insitu__text_buffer_free(&b);
  BIO_free(out);
}
#endif
static void start(void) {
  insitu_error err = {0};
  struct insitu__reactor_desc d = {
      .backend = INSITU__RING_EPOLL, .depth = 64, .workers = 1, .io_threads = 1};
  forget_environment();
  services = server_start(&(struct server_options){.answer = serve});
  assert_int_equal(insitu__reactor_open(&reactor, &d, &err), INSITU_OK);
  assert_int_equal(insitu__http_open(&http, &reactor, &err), INSITU_OK);
  write_text("web", "web+MARKER\n");
  write_text("ecs", "ecsMARKER\n");
  char user[400];
  snprintf(user, sizeof user,
      "{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"csMARKER\",\"refresh_"
      "token\":\"refMARKER\","
      "\"token_uri\":\"http://127.0.0.1:%d/token\"}",
      services->port);
  write_text("user.json", user);
#ifdef INSITU_WITH_OPENSSL
  write_service_account();
#endif
  write_text(".aws/credentials",
      "[base]\naws_access_key_id=baseMARKERid\naws_secret_access_key=baseMARKER\n");
  write_text(".aws/config",
      "[profile role]\nrole_arn = arn:r\nsource_profile = base\nexternal_id = ext\n");
}
static void stop(void) {
  insitu__http_request_free(&last.request);
  insitu__reactor_close(&reactor);
  insitu__http_close(&http);
  memset(&reactor, 0, sizeof reactor);
  server_stop(&services);
  support_remove(support_path(".aws"));
}

enum { MANY = 50 };
static struct asked many[MANY];
static void prepare_many(void *arg) { /* all at once */
  struct insitu__reactor_gate done;
  (void)arg;
  insitu__reactor_gate_expect(&done, MANY);
  for (unsigned i = 0; i < MANY; i++) {
    many[i].done = &done;
    many[i].ask = (struct insitu__cloud_ask){.what = INSITU__CLOUD_READ, .key = "k"};
    if (insitu__reactor_spawn(&reactor, prepare, &many[i])) abort();
  }
  insitu__reactor_gate_await(&reactor, &done);
}
static void test_way(const struct way *w) {
  opened(open_way(w));
  assert_int_equal(asked_in_all(), 0); /* nothing is sent before the first request */
  assert_int_equal(insitu__reactor_call(&reactor, prepare_many, NULL), INSITU_OK);
  for (int k = 0; k < MANY; k++) holds(&many[k], w, 1);
  assert_int_equal(asked_of[w->service], 1); /* one for all */
  assert_int_equal(asked_of[IMDS_TOKEN], w->service == IMDS_KEYS);
  described("credentials_expire_in_s");
  /* due soon: renewed; where that fails, they serve on, and are not asked for again at once */
  cloud.auth.keys.renew = 0;
  url_of_read();
  holds(&last, w, 2);
  ill = true;
  cloud.auth.keys.renew = 0;
  for (int k = 0; k < 3; k++) {
    url_of_read();
    holds(&last, w, 2);
  }
  assert_int_equal(asked_of[w->service == IMDS_KEYS ? IMDS_TOKEN : w->service], 3);
  /* over: an error for all */
  cloud.auth.keys.expires = 1;
  assert_int_equal(insitu__reactor_call(&reactor, prepare_many, NULL), INSITU_OK);
  for (int k = 0; k < MANY; k++) {
    assert_int_equal(many[k].status, INSITU_E_AUTH);
    assert_int_equal(many[k].error.http_status, 403);
    assert_null(strstr(many[k].error.message, "MARKER"));
    insitu__http_request_free(&many[k].request);
  }
  ill = false;
  url_of_read(); /* and then again */
  close_root();
}
static void test_ways(void **state) {
  (void)state;
  start();
  for (int i = 0; i < WAYS; i++) {
    bool near = ways[i].service != WEB && ways[i].service != ROLE && ways[i].service != OAUTH;
    /* this machine's services are not asked by a proxy */
    if (near) setenv("http_proxy", "http://127.0.0.1:1", 1);
    test_way(&ways[i]);
    unsetenv("http_proxy");
  }
  /* short-lived ones serve for half their time; those that come too late are asked for at every
   * request */
  opened(open_way(&ways[0]));
  life = 100;
  for (int k = 0; k < 3; k++) {
    url_of_read();
    holds(&last, &ways[0], 1);
  }
  close_root();
  opened(open_way(&ways[0]));
  life = -5;
  for (int k = 1; k < 4; k++) {
    url_of_read();
    holds(&last, &ways[0], k);
  }
  close_root();
  stop();
}
static void test_ways_refused(void **state) {
  (void)state;
  start();
  for (int i = 0; i < 2 * WAYS; i++) {
    const struct way *w = &ways[i / 2];
    bool bad = i & 1, near = w->service == IMDS_KEYS || w->service == GOOGLE || w->service == MSI;
    opened(open_way(w));
    ill = !bad;
    wrong = bad;
    ask_read();
    assert_int_equal(last.status, INSITU_E_AUTH);
    assert_int_equal(last.error.status, INSITU_E_AUTH);
    if (last.error.http_status != (bad ? 0 : 403))
      fail_msg("%s: %d: %s", w->name, last.error.http_status, last.error.message);
    if (near) assert_non_null(strstr(last.error.message, "skip_signature = true"));
    if (!bad && w->service == OAUTH) assert_non_null(strstr(last.error.message, "invalid_grant"));
    close_root();
  }
  /* a file that is not there, a token that is wrong, a host that is none of a container's */
  opened(open_way(&ways[3]));
  assert_true(!insitu__settings_put(
      &cloud.auth.set.value[INSITU__SETTINGS_TOKEN_FILE], "/nowhere/x", NULL));
  ask_read();
  assert_non_null(strstr(last.error.message, "/nowhere/x"));
  close_root();
  opened(open_way(&ways[3]));
  write_text("web", "otherMARKER");
  ask_read();
  assert_non_null(strstr(last.error.message, "HTTP 400 InvalidIdentityToken"));
  close_root();
  static const char *const elsewhere[] = {"http://192.0.2.1/x", "http://169.254.170.2/x#y"};
  for (int i = 0; i < 2; i++) {
    opened(OPEN(INSITU__CLOUD_S3, "s3://b", "container_credentials_full_uri", elsewhere[i],
        "container_authorization_token", "MARKER"));
    ask_read();
    assert_int_equal(last.status, INSITU_E_AUTH);
    assert_non_null(strstr(last.error.message, "loopback"));
    close_root();
  }
  stop();
}
/* A service of this machine must be reached soon; its answer may be late, but EC2's. */
static void test_late(void **state) {
  static const char *const names[] = {"container", "google", "managed identity", "imds"};
  (void)state;
  start();
  near_ms = 1000;
  for (int i = 0; i < 4; i++) {
    const struct way *w = ways;
    while (strcmp(w->name, names[i])) w++;
    opened(open_way(w));
    late_ms = i < 3 ? 2500 : 30000;
    ask_read();
    if (i < 3) holds(&last, w, 1);
    else assert_int_equal(last.status, INSITU_E_AUTH);
    close_root();
  }
  late_ms = 0;
  near_ms = 60000;
  stop();
}
/* STS says with 400 what passes: too many requests, or that it did not reach the identity's
 * provider. What does not pass is asked for once. */
static void test_sts_busy(void **state) {
  static const struct {
    const char *code;
    int busy, asked; /* requests until there are credentials; 0: there are none, after one */
  } cases[] = {{"Throttling", 1, 2}, {"ThrottlingException", 1, 2}, {"RequestLimitExceeded", 2, 3},
      {"IDPCommunicationError", 2, 3}, {"MalformedPolicyDocument", 1, 0},
      {"ExpiredTokenException", 1, 0}};
  (void)state;
  start();
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    const struct way *w = &ways[i % 2 ? 3 : 4];
    opened(open_way(w));
    sts_code = cases[i / 2].code;
    sts_busy = cases[i / 2].busy;
    sts_asked = 0;
    ask_read();
    assert_int_equal(sts_asked, cases[i / 2].asked ? cases[i / 2].asked : 1);
    if (cases[i / 2].asked) holds(&last, w, 1);
    else assert_non_null(strstr(last.error.message, sts_code));
    sts_busy = 0;
    close_root();
  }
  stop();
}
/* A clock that is wrong is corrected by that of the service that refuses what it dates. */
static void test_sts_clock(void **state) {
  static const int64_t off[] = {3600, -3600, 400 * 86400};
  (void)state;
  start();
  for (int i = 0; i < WAYS; i++)
    for (size_t k = 0; k < sizeof off / sizeof *off; k++) {
      opened(open_way(&ways[i]));
      sts_strict = true;
      cloud.auth.skew = off[k];
      ask_read();
      holds(&last, &ways[i], 1);
      bool dates = ways[i].service == ROLE || !strcmp(ways[i].name, "service account");
      int64_t left = cloud.auth.skew - (dates ? 0 : off[k]);
      if (llabs(left) > 60) fail_msg("%s: %lld s", ways[i].name, (long long)left);
      close_root();
    }
  /* one that refuses for another reason is asked once, and tells nothing of clocks */
  opened(open_way(&ways[4]));
  ill = true;
  sts_asked = 0;
  ask_read();
  assert_int_equal(last.status, INSITU_E_AUTH);
  assert_int_equal(sts_asked, 1);
  assert_int_equal(cloud.auth.skew, 0);
  close_root();
  sts_strict = false;
  stop();
}
/* The pause behind a failed renewal is not of that clock: when it is set back, the pause is as
 * long as before. */
static void test_pause(void **state) {
  (void)state;
  start();
  opened(open_way(&ways[0]));
  url_of_read();
  ill = true;
  cloud.auth.keys.renew = 0;
  url_of_read(); /* in vain */
  int64_t left = cloud.auth.pause - insitu__base_now();
  assert_true(left > 0 && left <= INT64_C(1000000000) * INSITU__AUTH_PAUSE);
  ill = false;
  cloud.auth.skew = -86400;
  url_of_read();
  holds(&last, &ways[0], 1);
  cloud.auth.pause -= left; /* it is over */
  url_of_read();
  holds(&last, &ways[0], 2);
  close_root();
  stop();
}
/* Memory that is missing once while credentials are asked for: an error that says so and no other,
 * or the credentials. */
static long oom_from, oom_rest;
static void prepare_without_memory(void *arg) { /* on its coroutine, which there is memory for */
  atomic_store(&oom_left, oom_from);
  prepare(arg);
  oom_rest = atomic_exchange(&oom_left, -1);
}
static void test_ways_without_memory(void **state) {
  (void)state;
  start();
  for (int i = 0; i < WAYS; i++)
    for (oom_from = 0, oom_rest = -1; oom_rest < 0; oom_from++) {
      long at = oom_from;
      opened(open_way(&ways[i]));
      insitu__http_request_free(&last.request);
      last = (struct asked){.ask = {.what = INSITU__CLOUD_READ, .key = "k"}};
      run(prepare_without_memory, &last);
      if (last.status != INSITU_OK && last.status != INSITU_E_NOMEM)
        fail_msg("%s, allocation %ld: %d: %s", ways[i].name, at, last.status, last.error.message);
      close_root();
    }
  stop();
}
static void test_ends(void **state) { /* when a token is over, as services write it */
  static const struct {
    const char *text;
    int64_t expires; /* -1: refused */
  } cases[] = {{"\"expires_in\":100", 1100}, {"\"expires_in\":\"100\"", 1100},
      {"\"expires_in\":-5", 1000}, {"\"expires_in\":\"soon\"", -1}, {"\"expires_in\":[]", -1},
      {"\"expires_on\":\"1586984735\"", 1586984735}, {"\"expires_on\":1586984735", 1586984735},
      {"\"expires_in\":\"100\",\"expires_on\":\"1586984735\"", 1100},
      {"\"expires_in\":null,\"expires_on\":5000", 5000},
      {"\"expires_on\":\"-9223372036854775807\"", 0}, /* long ago */
      {"\"expires_on\":\"09/14/2017 00:00:00 AM +00:00\"", -1},
      {"\"expires_on\":\"09/14/2017 12:00:01 AM +00:00\"", 1505347201},
      {"\"expires_on\":\"9/14/2017 1:05:09 PM +00:00\"", 1505394309},
      {"\"expires_on\":\"9/14/2017 13:05:09 +00:00\"", 1505394309},
      {"\"expires_on\":\"2017-09-14T13:05:09Z\"", 1505394309},
      {"\"expires_on\":\"9/14/2017 13:05:09 PM +00:00\"", -1},
      {"\"expires_on\":\"9/14/2017 13:05:09\"", -1},
      {"\"expires_on\":\"14/9/2017 13:05:09 +00:00\"", -1},
      {"\"expires_on\":\"2/30/2017 13:05:09 +00:00\"", -1}, {"\"expires_on\":\"\"", -1},
      {"\"expires_on\":1e9", -1}, {"\"token_type\":\"Bearer\"", INSITU__AUTH_FOREVER}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct insitu__auth_keys k = {0};
    char text[200];
    snprintf(text, sizeof text, "{\"access_token\":\"t\",%s}", cases[i].text);
    insitu_status status = insitu__auth_keys_json(text, strlen(text), 1000, &k);
    if (status != (cases[i].expires < 0 ? INSITU_E_AUTH : INSITU_OK))
      fail_msg("%s: %d", text, status);
    if (!status && k.expires != cases[i].expires) fail_msg("%s: %lld", text, (long long)k.expires);
    insitu__auth_wipe_keys(&k);
  }
}
/* Reads of objects, through the store: credentials and the region are learnt once for all of them.
 */
static struct insitu__store store;
static struct read {
  insitu_status status;
  insitu_error error;
  uint64_t got;
  char bytes[8];
  struct insitu__reactor_gate *done;
} reads[MANY];
static void read_one(void *arg) {
  struct read *r = arg;
  struct iovec iov = {r->bytes, sizeof r->bytes};
  r->status = insitu__store_fetch_await(&store, "obj", 2, &iov, 1, NULL, &r->got, &r->error);
  insitu__reactor_gate_open(r->done);
}
static void read_many(void *arg) {
  struct insitu__reactor_gate done;
  (void)arg;
  insitu__reactor_gate_expect(&done, MANY);
  for (int i = 0; i < MANY; i++) {
    reads[i] = (struct read){.done = &done};
    if (insitu__reactor_spawn(&reactor, read_one, &reads[i])) abort();
  }
  insitu__reactor_gate_await(&reactor, &done);
}
static void test_reads(void **state) {
  (void)state;
  start();
  char url[100];
  snprintf(url, sizeof url, "http://127.0.0.1:%d", services->port);
  const insitu_option option[] = {
      {"endpoint", url}, {"allow_http", "true"}, {"metadata_endpoint", url}};
  const insitu_loader_desc desc = {
      .api = INSITU_API, .url = "s3://b", .options = option, .n_options = 3};
  server_text(services, "b/obj", "0123456789abcdef");
  for (int i = 0; i < SERVICES; i++) asked_of[i] = 0;
  life = 3600;
  ill = wrong = false;
  memset(&error, 0, sizeof error);
  opened(insitu__source_open_store(&store, &reactor, &desc, &error));
  for (current = 1; current < 4; current++) {
    ill = current == 3;
    assert_int_equal(insitu__reactor_call(&reactor, read_many, NULL), INSITU_OK);
    assert_int_equal(asked_of[IMDS_KEYS], ill ? 2 : current);
    for (int i = 0; i < MANY; i++) {
      if (strstr(reads[i].error.message, "MARKER"))
        fail_msg("a secret is told: %s", reads[i].error.message);
      if (reads[i].status != (ill ? INSITU_E_AUTH : INSITU_OK))
        fail_msg("%d: %s", reads[i].status, reads[i].error.message);
      if (!ill) assert_memory_equal(reads[i].bytes, "23456789", 8);
    }
  }
  assert_int_equal(asked_of[IMDS_TOKEN], 3); /* the one in vain was for all, too */
  insitu__reactor_close(&reactor);
  insitu__store_close(&store);
  insitu__http_close(&http);
  memset(&reactor, 0, sizeof reactor);
  server_stop(&services);
  support_remove(support_path(".aws"));
}
/* A server that sends back what it was sent, or what it could have kept: nothing of it gets into a
 * message. */
static char echo_id[200], echo_code[200];
static bool echo(void *user, const struct server_request *q, struct server_answer *a) {
  (void)user, (void)q;
  if (echo_id[0]) server_answer_header(a, "x-amz-request-id: %s", echo_id);
  return server_answer_text(a, 403, "<Error><Code>%s</Code></Error>", echo_code);
}
static void test_echo(void **state) {
  static const struct {
    const char *id, *code, *part; /* part: NULL: none of them is told */
  } cases[] = {
      {"4442587FB7D0A2F9", "AccessDenied", "HTTP 403 AccessDenied (request 4442587FB7D0A2F9)"},
      {"a/B+c=:.-_9", "SlowDown", "HTTP 403 SlowDown (request a/B+c=:.-_9)"},
      {"", "Odd", "HTTP 403 Odd;"}, {KEY, KEY, NULL}, {"x-" KEY "-x", "Code-" SECRET, NULL},
      {"tokenMARKERtoken", "xtokenMARKER", NULL}, {"okenMARKERto", "okenMARK", NULL},
      {"a b", "secretMA", NULL}, {"a\"b", "c d", NULL}, {"a<b>", "", NULL}};
  (void)state;
  struct insitu__reactor_desc d = {
      .backend = INSITU__RING_EPOLL, .depth = 64, .workers = 1, .io_threads = 1};
  struct read r;
  char url[100];
  forget_environment();
  memset(&error, 0, sizeof error);
  struct server *server = server_start(&(struct server_options){.answer = echo});
  assert_int_equal(insitu__reactor_open(&reactor, &d, &error), INSITU_OK);
  snprintf(url, sizeof url, "http://127.0.0.1:%d", server->port);
  const insitu_option option[] = {{"endpoint", url}, {"allow_http", "true"}, {"access_key_id", KEY},
      {"secret_access_key", SECRET}, {"session_token", "tokenMARKERtoken"}, {"max_retries", "0"},
      {"region", "r"}};
  const insitu_loader_desc desc = {
      .api = INSITU_API, .url = "s3://b", .options = option, .n_options = 7};
  opened(insitu__source_open_store(&store, &reactor, &desc, &error));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct insitu__reactor_gate done;
    snprintf(echo_id, sizeof echo_id, "%s", cases[i].id);
    snprintf(echo_code, sizeof echo_code, "%s", cases[i].code);
    insitu__reactor_gate_expect(&done, 1);
    r = (struct read){.done = &done};
    assert_int_equal(insitu__reactor_call(&reactor, read_one, &r), INSITU_OK);
    assert_int_equal(r.status, INSITU_E_AUTH);
    const char *part = cases[i].part ? cases[i].part : "HTTP 403; ";
    if (!strstr(r.error.message, part)) fail_msg("not '%s': %s", part, r.error.message);
  }
  insitu__reactor_close(&reactor);
  insitu__store_close(&store);
  memset(&reactor, 0, sizeof reactor);
  server_stop(&server);
  /* the secrets of the other kinds, and a signed url that a redirect led to */
  struct insitu__http_request q = {.url = "https://h/x?X-Amz-Signature=0123456789abcdef"};
  memset(&error, 0, sizeof error);
  opened(OPEN_BARE(INSITU__CLOUD_HTTP, "https://user:passMARKERword@h/x?sig=queryMARKER"));
  assert_true(insitu__auth_quotable(&cloud.auth, &q, "BlobNotFound"));
  assert_false(insitu__auth_quotable(&cloud.auth, &q, "passMARKERword"));
  assert_false(insitu__auth_quotable(&cloud.auth, &q, "dXNlcjpwYXNzTUFSS0VSd29yZA=="));
  assert_false(insitu__auth_quotable(&cloud.auth, &q, "queryMARKER"));
  assert_false(insitu__auth_quotable(&cloud.auth, &q, "89abcdef"));
  close_root();
  opened(OPEN(INSITU__CLOUD_GS, "gs://b", "bearer_token", "bearerMARKER"));
  assert_false(insitu__auth_quotable(&cloud.auth, &q, "earerMARKE"));
  close_root();
}
static void test_anonymous(void **state) { /* no service is asked, whatever the environment says */
  (void)state;
  static const char *const names[] = {"AWS_EC2_METADATA_SERVICE_ENDPOINT",
      "AWS_CONTAINER_CREDENTIALS_FULL_URI", "GCE_METADATA_HOST", "IDENTITY_ENDPOINT",
      "AWS_ENDPOINT_URL_STS"};
  static const char *const root[] = {"", "s3://b", "gs://b", "az://b"};
  char url[100];
  start();
  snprintf(url, sizeof url, "http://127.0.0.1:%d", services->port);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) setenv(names[i], url, 1);
  setenv("AWS_ROLE_ARN", "r", 1);
  setenv("AWS_WEB_IDENTITY_TOKEN_FILE", support_path("web"), 1);
  for (int i = 0; i < SERVICES; i++) asked_of[i] = 0;
  for (int kind = INSITU__CLOUD_S3; kind <= INSITU__CLOUD_AZURE; kind++) {
    const char *const option[] = {
        "skip_signature", "true", kind == INSITU__CLOUD_AZURE ? "account_name" : NULL, "acc", NULL};
    opened(open_root(kind, root[kind], option));
    url_of_read();
    assert_null(header(&last.request, "Authorization"));
    last.request.answer.status = 403;
    run(learn, &last);
    assert_false(last.lesson);
    assert_non_null(strstr(insitu__cloud_advice(&cloud, 403, ""), "not public"));
    described("\"credentials\": \"anonymous\"");
    close_root();
  }
  assert_int_equal(asked_in_all(), 0);
  forget_environment();
  stop();
}

/* ---- what answers teach ---- */
static bool taught(int status, const char *body) {
  insitu__text_buffer_free(&last.request.text);
  insitu__text_buffer_printf(&last.request.text, "%s", body);
  last.request.answer.status = status;
  run(learn, &last);
  return last.lesson;
}
static void test_region(void **state) {
  (void)state;
  forget_environment();
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET));
  url_of_read();
  last.request.answer.date = -1;
  assert_true(taught(
      400, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"));
  /* made before it was learnt */
  assert_true(taught(400, "<Error><Region>eu-west-1</Region></Error>"));
  assert_non_null(strstr(url_of_read(), "//b.s3.eu-west-1."));
  assert_non_null(strstr(header(&last.request, "Authorization"), "/eu-west-1/s3/"));
  described("\"region_from\": \"server\"");
  assert_false(taught(400, "<Error><Region>eu-west-1</Region></Error>"));
  assert_false(taught(301, "<Error><Region>evil.org/</Region></Error>"));
  strcpy(last.request.answer.region, "us-west-2");
  assert_true(taught(301, ""));
  assert_string_equal(cloud.base, "https://b.s3.us-west-2.amazonaws.com");
  int lessons = 0; /* a server that names another one each time is not followed for ever */
  do
    snprintf(
        last.request.answer.region, sizeof last.request.answer.region, "us-east-%d", ++lessons);
  while (lessons < 20 && taught(301, ""));
  assert_true(lessons < 20);
  close_root();
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "skip_signature", "1", "endpoint", "https://h"));
  url_of_read();
  assert_true(taught(400, "<Error><Region>eu-west-1</Region></Error>"));
  assert_string_equal(cloud.base, "https://h"); /* the user's own endpoint stays */
  close_root();
}
/* once, which is no matter for the next one */
static void test_requests_without_memory(void **state) {
  (void)state;
  forget_environment();
  for (long at = 0, left = -1; left < 0; at++) {
    opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET));
    atomic_store(&oom_left, at);
    ask_read();
    left = atomic_exchange(&oom_left, -1);
    assert_int_equal(last.status, left < 0 ? INSITU_E_NOMEM : INSITU_OK);
    assert_string_equal(url_of(INSITU__CLOUD_LIST, "", NULL, NULL),
        "https://b.s3.us-east-1.amazonaws.com/?delimiter=%2F&encoding-type=url&list-type=2");
    assert_string_equal(url_of_read(), "https://b.s3.us-east-1.amazonaws.com/k");
    close_root();
  }
}
/* what was known stays, and may be learnt later */
static void test_region_without_memory(void **state) {
  (void)state;
  forget_environment();
  for (int own = 0; own < 2; own++)
    for (long at = 0, left = -1; left < 0; at++) {
      if (own)
        opened(OPEN(INSITU__CLOUD_S3, "s3://b", "skip_signature", "1", "endpoint", "https://h",
            "virtual_hosted_style_request", "true"));
      else
        opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET));
      url_of_read();
      insitu__text_buffer_printf(&last.request.text, "<Error><Region>eu-west-1</Region></Error>");
      last.request.answer.status = 400;
      atomic_store(&oom_left, at);
      run(learn, &last);
      left = atomic_exchange(&oom_left, -1);
      bool learnt = last.lesson;
      assert_true(learnt || left < 0);
      assert_non_null(strstr(url_of_read(), own      ? "//b.h/"
                                            : learnt ? "//b.s3.eu-west-1."
                                                     : "//b.s3.us-east-1."));
      assert_int_equal(taught(400, "<Error><Region>eu-west-1</Region></Error>"), !learnt);
      close_root();
    }
}
static void test_clock(void **state) {
  (void)state;
  const time_t later = time(NULL) + 86400 * 400;
  char year[16];
  forget_environment();
  opened(OPEN(INSITU__CLOUD_S3, "s3://b", "access_key_id", KEY, "secret_access_key", SECRET));
  url_of_read();
  last.request.answer.date = later;
  assert_false(taught(200, ""));
  assert_true(taught(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"));
  snprintf(year, sizeof year, "%d", 1900 + gmtime(&later)->tm_year);
  url_of_read();
  assert_int_equal(strncmp(header(&last.request, "x-amz-date"), year, 4), 0);
  last.request.answer.date = later;
  assert_false(taught(403, "<Error><Code>AccessDenied</Code></Error>"));
  close_root();
  opened(OPEN(INSITU__CLOUD_AZURE, "az://box/p", "account_name", "acc", "account_key", "TUFSS0VS"));
  url_of_read();
  last.request.answer.date = later;
  assert_true(taught(403, "<Error><Code>AuthenticationFailed</Code></Error>"));
  /* made before that */
  assert_true(taught(403, "<Error><Code>AuthenticationFailed</Code></Error>"));
  assert_true(taught(403, ""));
  url_of_read();
  last.request.answer.date = later;
  assert_false(taught(403, "<Error><Code>AuthenticationFailed</Code></Error>"));
  close_root();
}
static void test_expired(void **state) {
  (void)state;
  start();
  opened(open_way(&ways[0]));
  url_of_read();
  last.request.answer.date = -1;
  assert_false(taught(403, "<Error><Code>AccessDenied</Code></Error>"));
  assert_int_equal(asked_of[IMDS_KEYS], 1);
  assert_true(taught(400, "<Error><Code>ExpiredToken</Code></Error>"));
  assert_int_equal(asked_of[IMDS_KEYS], 2);
  /* made with the old ones */
  assert_true(taught(400, "<Error><Code>ExpiredToken</Code></Error>"));
  assert_int_equal(asked_of[IMDS_KEYS], 2);
  url_of_read();
  holds(&last, &ways[0], 2);
  ill = true;
  last.request.answer.date = -1;
  assert_false(taught(403, "<Error><Code>InvalidToken</Code></Error>"));
  assert_int_equal(last.error.status, INSITU_E_AUTH);
  close_root();
  opened(open_way(&ways[7]));
  url_of_read();
  assert_true(taught(401, ""));
  url_of_read();
  holds(&last, &ways[7], 2);
  close_root();
  opened(OPEN(INSITU__CLOUD_GS, "gs://b", "bearer_token", "MARKER"));
  url_of_read();
  assert_false(taught(401, "")); /* there are no others */
  close_root();
  stop();
}
static void test_codes(void **state) {
  (void)state;
  static const struct {
    const char *body, *want;
  } cases[] = {{"<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>m</Message></Error>",
                   "NoSuchKey"},
      {"<Error><Code>No Such\nKey</Code></Error>", ""}, {"<html><body>404</body>", ""},
      {"{\"error\":\"invalid_grant\",\"error_description\":\"x\"}", "invalid_grant"},
      {"{\"error\":{\"code\":404,\"status\":\"NOT_FOUND\"}}", "NOT_FOUND"},
      {"{\"code\":\"Failed\"}", "Failed"}, {"{\"error\":{}}", ""}, {"nothing", ""}, {"", ""}};
  char code[64];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct insitu__http_request r = {.method = NULL};
    insitu__text_buffer_printf(&r.text, "%s", cases[i].body);
    assert_int_equal(insitu__auth_code(&r, code, sizeof code), INSITU_OK);
    assert_string_equal(code, cases[i].want);
    atomic_store(&oom_left, 0); /* unknown for want of memory is not unknown */
    insitu_status status = insitu__auth_code(&r, code, sizeof code);
    atomic_store(&oom_left, -1);
    assert_true(status == INSITU_E_NOMEM ? !code[0] : !strcmp(code, cases[i].want));
    strcpy(r.answer.code, "BlobNotFound");
    assert_int_equal(insitu__auth_code(&r, code, sizeof code), INSITU_OK);
    assert_string_equal(code, "BlobNotFound");
    insitu__http_request_free(&r);
  }
  assert_non_null(strstr(insitu__cloud_advice(&cloud, 429, ""), "slow down: lower max_inflight"));
  assert_non_null(strstr(insitu__cloud_advice(&cloud, 503, "SlowDown"), "lower max_inflight"));
  assert_non_null(strstr(insitu__cloud_advice(&cloud, 500, "InternalError"), "overloaded or ill"));
  assert_string_equal(insitu__cloud_advice(&cloud, 501, ""), "check the server");
  assert_string_equal(insitu__cloud_advice(&cloud, 404, ""), "check the url");
  assert_true(insitu__cloud_is_missing("") && insitu__cloud_is_missing("NoSuchKey") &&
              insitu__cloud_is_missing("BlobNotFound"));
  assert_false(
      insitu__cloud_is_missing("NoSuchBucket") || insitu__cloud_is_missing("ContainerNotFound"));
}

/* ---- listings ---- */
static char listed[1000];
static void list_name(void *to, const char *name, bool is_directory) {
  (void)to;
  snprintf(listed + strlen(listed), sizeof listed - strlen(listed), "%s%s ", name,
      is_directory ? "/" : "");
}
static void test_listings(void **state) {
  (void)state;
  static const struct {
    int kind;
    const char *page, *want, *next; /* want NULL: refused */
  } cases[] = {
      {INSITU__CLOUD_S3,
          "<ListBucketResult "
          "xmlns='x'><Prefix>p/a/</Prefix><IsTruncated>true</IsTruncated><Contents><Key>p/a/</"
          "Key></Contents>"
          "<Contents><ETag>&quot;1&quot;</ETag><Key>p/a/zarr.json</Key><Owner><ID>x</ID></Owner></"
          "Contents><Contents><Key>p/a/"
          "x&amp;+%20</Key></Contents><CommonPrefixes><Prefix>p/a/c/</Prefix></CommonPrefixes>"
          "<NextContinuationToken>t&amp;1==</NextContinuationToken></ListBucketResult>",
          "zarr.json x&+%20 c/ ", "t&1=="},
      {INSITU__CLOUD_S3,
          "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</"
          "IsTruncated><NextContinuationToken>no"
          "</NextContinuationToken><Contents><Key>p%2Fa/b+c%2B%20d</Key></Contents></"
          "ListBucketResult>",
          "b c+ d ", ""},
      {INSITU__CLOUD_S3, "<ListBucketResult/>", "", ""},
      /* an answer to the first version of the request, which goes on otherwise */
      {INSITU__CLOUD_S3,
          "<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>p/a/b</NextMarker>"
          "<Contents><Key>p/a/b</Key></Contents></ListBucketResult>",
          NULL, ""},
      {INSITU__CLOUD_S3,
          "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken/>"
          "</ListBucketResult>",
          NULL, ""},
      {INSITU__CLOUD_S3,
          "<ListBucketResult><CommonPrefixes><Prefix>p/a/../</Prefix></CommonPrefixes></"
          "ListBucketResult>",
          "", ""},
      {INSITU__CLOUD_S3,
          "<ListBucketResult><Contents><Key>q/a/b</Key></Contents></ListBucketResult>", NULL, ""},
      {INSITU__CLOUD_S3,
          "<ListBucketResult><Contents><Key>p/a/b/c</Key></Contents></ListBucketResult>", NULL, ""},
      {INSITU__CLOUD_S3, "<ListBucketResult><Contents><Key>p/a/b</Key>", NULL, ""},
      {INSITU__CLOUD_S3, "<html><body>ok</body></html>", NULL, ""},
      {INSITU__CLOUD_S3, "", NULL, ""},
      {INSITU__CLOUD_AZURE,
          "\xef\xbb\xbf<?xml version=\"1.0\"?><EnumerationResults "
          "ContainerName=\"b\"><Prefix>p/a/</Prefix><Blobs><Blob><Name>p/a/z"
          "</Name><Properties><Name>no</Name></Properties></Blob><BlobPrefix><Name>p/a/c+/</Name></"
          "BlobPrefix></Blobs>"
          "<NextMarker>m!1</NextMarker></EnumerationResults>",
          "z c+/ ", "m!1"},
      {INSITU__CLOUD_AZURE, "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>", "",
          ""},
      {INSITU__CLOUD_AZURE, "<ListBucketResult/>", NULL, ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const option[] = {"skip_signature", "1",
        cases[i].kind == INSITU__CLOUD_AZURE ? "account_name" : NULL, "acc", NULL};
    opened(open_root(
        cases[i].kind, cases[i].kind == INSITU__CLOUD_AZURE ? "az://b/p" : "s3://b/p", option));
    struct insitu__text_buffer next = {0};
    listed[0] = 0;
    memset(&error, 0, sizeof error);
    insitu_status status = insitu__cloud_list_page(
        &cloud, "a", cases[i].page, strlen(cases[i].page), list_name, NULL, &next, &error);
    if ((status == INSITU_OK) != (cases[i].want != NULL)) fail_msg("%d: %s", (int)i, error.message);
    if (cases[i].want) assert_string_equal(listed, cases[i].want);
    if (cases[i].want) assert_string_equal(next.text, cases[i].next);
    else assert_int_equal(error.status, INSITU_E_HTTP);
    insitu__text_buffer_free(&next);
    close_root();
    if (!cases[i].want) continue;
    /* a page that there is no memory for is no bad one */
    for (long at = 0, left = -1; left < 0; at++) {
      opened(open_root(
          cases[i].kind, cases[i].kind == INSITU__CLOUD_AZURE ? "az://b/p" : "s3://b/p", option));
      memset(&error, 0, sizeof error);
      listed[0] = 0;
      atomic_store(&oom_left, at);
      status = insitu__cloud_list_page(
          &cloud, "a", cases[i].page, strlen(cases[i].page), list_name, NULL, &next, &error);
      left = atomic_exchange(&oom_left, -1);
      assert_int_equal(status, left < 0 ? INSITU_E_NOMEM : INSITU_OK);
      insitu__text_buffer_free(&next);
      close_root();
    }
  }
}
/* Pages without a name, each with the token of the next one. */
static atomic_int pages;  /* that were asked for */
static int pages_in_all;  /* the last one has no token */
static int pages_to_name; /* each so many pages there is one with a name */
static bool serve_pages(void *user, const struct server_request *q, struct server_answer *a) {
  (void)user, (void)q;
  int n = ++pages;
  char name[80] = "", next[80] = "";
  if (n % pages_to_name == 0)
    snprintf(name, sizeof name, "<Contents><Key>name%d</Key></Contents>", n);
  if (n < pages_in_all)
    snprintf(next, sizeof next, "<NextContinuationToken>t%d</NextContinuationToken>", n);
  return server_answer_text(a, 200, "<ListBucketResult>%s%s</ListBucketResult>", name, next);
}
static void list_all(void *arg) {
  *(insitu_status *)arg = insitu__store_list_await(&store, "", list_name, NULL, &error);
}
static void test_endless_listing(void **state) {
  static const struct {
    int in_all, to_name, asked;
    const char *want; /* NULL: refused */
  } cases[] = {{INSITU__MAX_BARE_PAGES, INT_MAX, INSITU__MAX_BARE_PAGES, ""},
      {3 * INSITU__MAX_BARE_PAGES, INT_MAX, INSITU__MAX_BARE_PAGES, NULL},
      {3 * INSITU__MAX_BARE_PAGES, INSITU__MAX_BARE_PAGES, 3 * INSITU__MAX_BARE_PAGES,
          "name1000 name2000 name3000 "}};
  (void)state;
  forget_environment();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct server *s = server_start(&(struct server_options){.answer = serve_pages});
    const insitu_option option[] = {{"endpoint", server_url(s, "")}, {"allow_http", "true"},
        {"skip_signature", "true"}, {"region", "us-east-1"}};
    const insitu_loader_desc desc = {
        .api = INSITU_API, .url = "s3://b", .options = option, .n_options = 4};
    struct insitu__reactor_desc d = {
        .backend = INSITU__RING_EPOLL, .depth = 64, .workers = 1, .io_threads = 1};
    insitu_status status = INSITU_OK;
    pages_in_all = cases[i].in_all;
    pages_to_name = cases[i].to_name;
    pages = 0;
    listed[0] = 0;
    memset(&error, 0, sizeof error);
    assert_int_equal(insitu__reactor_open(&reactor, &d, &error), INSITU_OK);
    opened(insitu__source_open_store(&store, &reactor, &desc, &error));
    assert_int_equal(insitu__reactor_call(&reactor, list_all, &status), INSITU_OK);
    assert_int_equal(pages, cases[i].asked);
    if (cases[i].want) opened(status);
    else refused(status, INSITU_E_HTTP, "INSITU__MAX_BARE_PAGES");
    if (cases[i].want) assert_string_equal(listed, cases[i].want);
    insitu__reactor_close(&reactor);
    insitu__store_close(&store);
    memset(&reactor, 0, sizeof reactor);
    server_stop(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_urls),
      cmocka_unit_test(test_whole_names),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_requests),
      cmocka_unit_test(test_environment),
      cmocka_unit_test(test_profiles),
      cmocka_unit_test(test_files_unread),
      cmocka_unit_test(test_half_said),
      cmocka_unit_test(test_characters),
      cmocka_unit_test(test_open_without_memory),
      cmocka_unit_test(test_ways),
      cmocka_unit_test(test_ways_refused),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_sts_busy),
      cmocka_unit_test(test_sts_clock),
      cmocka_unit_test(test_pause),
      cmocka_unit_test(test_ways_without_memory),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_reads),
      cmocka_unit_test(test_echo),
      cmocka_unit_test(test_anonymous),
      cmocka_unit_test(test_region),
      cmocka_unit_test(test_requests_without_memory),
      cmocka_unit_test(test_region_without_memory),
      cmocka_unit_test(test_clock),
      cmocka_unit_test(test_expired),
      cmocka_unit_test(test_codes),
      cmocka_unit_test(test_listings),
      cmocka_unit_test(test_endless_listing),
  };
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
