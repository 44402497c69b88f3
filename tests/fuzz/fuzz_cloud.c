/* libFuzzer: what servers, users' files and URLs tell of remote roots. Input: one byte (what the
 * rest is), then a listing page, an error body, credentials as JSON or XML, a profile file, a key
 * file of Google's, or a URL. Names of listings are keys one level below their prefix; a code can
 * be shown; credentials can stand in a header; a region that was learnt leaves the host Amazon's; a
 * URL that is taken gives requests to its own host, and a name without user and query. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static void opened(struct insitu__cloud *c, int kind, const char *url, const char *key,
    const char *value, const char *more) {
  const insitu_option option[] = {
      {"environment", "false"}, {key, value}, {more, "acc"}, {"secret_access_key", "s"}};
  FUZZ_HOLDS(insitu__cloud_open(c, NULL, kind, url, option,
                 kind == INSITU__CLOUD_HTTP
                     ? 1
                     : 2u + (more != NULL) + (more && !strcmp(more, "access_key_id")),
                 NULL) == INSITU_OK);
}
static void emit(void *to, const char *name, bool is_directory) {
  (void)to, (void)is_directory;
  FUZZ_HOLDS(name[0] && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..") &&
             strlen(name) < INSITU__MAX_KEY);
}
static void listing(int kind, const char *text, size_t n) {
  struct insitu__cloud c;
  struct insitu__text_buffer next = {0};
  insitu_error err = {0};
  opened(&c, kind, kind == INSITU__CLOUD_S3 ? "s3://b/p" : "az://b/p", "skip_signature", "true",
      kind == INSITU__CLOUD_S3 ? NULL : "account_name");
  fuzz_status(insitu__cloud_list_page(&c, "a", text, n, emit, NULL, &next, &err), &err);
  FUZZ_HOLDS(next.failed || strlen(next.text) == next.n || err.status);
  insitu__text_buffer_free(&next);
  insitu__cloud_close(&c);
}
static void answer(const char *text, size_t n) {
  struct insitu__cloud c;
  struct insitu__http_request r = {.answer = {.status = n & 1 ? 400 : 301, .date = -1}};
  char code[64];
  unsigned learned = 0;
  opened(&c, INSITU__CLOUD_S3, "s3://b", "region", "eu-west-1", "access_key_id");
  FUZZ_HOLDS(insitu__text_buffer_bytes(&r.text, text, n));
  FUZZ_HOLDS(insitu__auth_code(&r, code, sizeof code) == INSITU_OK);
  for (const char *p = code; *p; p++) FUZZ_HOLDS(*p > 0x20 && *p < 0x7f && *p != '"' && *p != '<');
  FUZZ_HOLDS(insitu__cloud_advice(&c, 403, code)[0]);
  bool again = insitu__cloud_learn_await(&c, &r, &learned, NULL);
  const char *tail = strstr(c.base, ".amazonaws.com");
  FUZZ_HOLDS(
      again == (learned > 0) && !strncmp(c.base, "https://b.s3.", 13) && tail &&
      strspn(c.base + 13, "abcdefghijklmnopqrstuvwxyz0123456789-") + 13 == (size_t)(tail - c.base));
  insitu__http_request_free(&r);
  insitu__cloud_close(&c);
}
static void printable(const char *text) {
  for (const char *p = text; p && *p; p++) FUZZ_HOLDS((unsigned char)*p >= 0x20 && *p != 0x7f);
}
static void keys(bool json, const char *text, size_t n) {
  struct insitu__auth_keys k = {0};
  if ((json ? insitu__auth_keys_json : insitu__auth_keys_xml)(text, n, 1000000, &k) == INSITU_OK) {
    FUZZ_HOLDS((k.id && k.secret) || (k.token && k.token[0]));
    FUZZ_HOLDS(k.renew <= k.expires || k.expires <= 1000000);
    printable(k.id);
    printable(k.secret);
    printable(k.token);
  }
  insitu__auth_wipe_keys(&k);
}
static void profile(char *text, size_t n) {
  struct insitu__auth c = {.set = {.kind = INSITU__CLOUD_S3}};
  char path[] = "config";
  struct insitu__auth_files f = {.config = {path, text, n}};
  insitu_error err = {0};
  fuzz_status(insitu__auth_profile(&c, &f, true, &err), &err);
  FUZZ_HOLDS(c.n_roles <= INSITU__MAX_ROLES);
  printable(c.keys.id);
  printable(c.set.value[INSITU__SETTINGS_REGION]);
  insitu__auth_close(&c);
}
static void google(const char *text, size_t n) {
  struct insitu__auth c = {.set = {.kind = INSITU__CLOUD_GS}};
  insitu_error err = {0};
  fuzz_status(insitu__auth_google_json(&c, text, n, "key", &err), &err);
  printable(c.set.value[INSITU__SETTINGS_REFRESH]);
  insitu__auth_close(&c);
}
static void url(int kind, const char *text) {
  struct insitu__cloud c;
  struct insitu__http_request r = {.method = NULL};
  struct insitu__cloud_ask ask = {.what = INSITU__CLOUD_READ, .key = "a b"};
  const insitu_option option[] = {
      {"environment", "false"}, {"skip_signature", "true"}, {"account_name", "acc"}};
  insitu_error err = {0};
  insitu_status status = insitu__cloud_open(&c, NULL, kind, text, option,
      kind == INSITU__CLOUD_HTTP    ? 1
      : kind == INSITU__CLOUD_AZURE ? 3
                                    : 2,
      &err);
  fuzz_status(status, &err);
  if (status) return;
  FUZZ_HOLDS(insitu__cloud_prepare_await(&c, &ask, &r, &err) == INSITU_OK);
  FUZZ_HOLDS(!strncmp(r.url, c.base, strlen(c.base)) && strchr("/?", r.url[strlen(c.base)]) &&
             strstr(r.url, "/a%20b"));
  FUZZ_HOLDS(!strchr(strstr(c.base, "://") + 3, '@') && !strchr(strstr(c.base, "://") + 3, '/') &&
             !strchr(c.base, '%'));
  FUZZ_HOLDS(!strpbrk(c.name, "?#"));
  printable(r.url);
  insitu__http_request_free(&r);
  insitu__cloud_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!n) return 0;
  static const char *const scheme[] = {"http://", "s3://", "gs://", "az://"};
  char *text = fuzz_copy(data + 1, n - 1), *whole = fuzz_text(data + 1, n - 1);
  switch (data[0] & 15) {
  case 0: listing(INSITU__CLOUD_S3, text, n - 1); break;
  case 1: listing(INSITU__CLOUD_AZURE, text, n - 1); break;
  case 2: answer(text, n - 1); break;
  case 3: keys(true, text, n - 1); break;
  case 4: keys(false, text, n - 1); break;
  case 5: profile(whole, n - 1); break;
  case 6: google(whole, n - 1); break;
  default: {
    int kind = data[0] & 3;
    char *full = malloc(strlen(whole) + 8);
    FUZZ_HOLDS(full);
    sprintf(full, "%s%s", scheme[kind], whole);
    url(kind, full);
    free(full);
  }
  }
  free(text);
  free(whole);
  return 0;
}
