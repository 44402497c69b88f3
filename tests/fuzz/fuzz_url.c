/* libFuzzer: URLs and keys. Input: a URL. What the parser takes equals a plain reading of it; a
 * path that is written as a file URL with every byte escaped comes back; a valid key never leaves
 * the root. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include "fuzz.h"

static int digit(char c) { /* -1: none */
  const char *digits = "0123456789abcdef",
             *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* The path of a file URL (rest: behind "file:"), or NULL; the result is malloc'ed. */
static char *plain_reading(const char *rest) {
  if (!strncmp(rest, "//", 2)) {
    rest += 2;
    if (!strncasecmp(rest, "localhost/", 10)) rest += 9;
  }
  if (rest[0] != '/') return NULL;
  char *path = malloc(strlen(rest) + 1);
  FUZZ_HOLDS(path);
  size_t n = 0;
  for (; *rest; rest++) {
    int c = (unsigned char)*rest;
    if (c == '%') {
      c = digit(rest[1]) < 0 || digit(rest[2]) < 0 ? 0 : digit(rest[1]) * 16 + digit(rest[2]);
      rest += 2;
    }
    if (!c) {
      free(path);
      return NULL;
    }
    path[n++] = (char)c;
  }
  path[n] = 0;
  return path;
}

static void round_trip(const char *path) { /* an absolute path */
  char *url = malloc(8 + 3 * strlen(path) + 1), *back = malloc(strlen(path) + 1);
  int kind;
  insitu_error err = {0};
  FUZZ_HOLDS(url && back);
  strcpy(url, "file:///");
  for (size_t i = 1; path[i]; i++)
    snprintf(url + 8 + 3 * (i - 1), 4, "%%%02X", (unsigned char)path[i]);
  FUZZ_HOLDS(insitu__text_url_parse(url, &kind, back, strlen(path) + 1, &err) == INSITU_OK &&
             !strcmp(path, back));
  FUZZ_HOLDS(insitu__text_url_parse(url, &kind, back, strlen(path), &err) == INSITU_E_ARG);
  free(url);
  free(back);
}

static void key(const char *text) {
  bool valid = strlen(text) < INSITU__MAX_KEY;
  char *copy = fuzz_text(text, strlen(text)), *rest = copy, *part;
  while ((part = strsep(&rest, "/")))
    valid = valid && *part && strcmp(part, ".") && strcmp(part, "..");
  FUZZ_HOLDS(insitu__store_key_valid(text) == valid);
  free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *url = fuzz_text(data, n), *path = malloc(n + 1);
  int kind;
  insitu_error err = {0};
  FUZZ_HOLDS(path);
  insitu_status status = insitu__text_url_parse(url, &kind, path, strlen(url) + 1, &err);
  fuzz_status(status, &err);
  FUZZ_HOLDS((status == INSITU_E_ARG || status == INSITU_E_UNSUPPORTED) == (status != INSITU_OK));
  if (!strncasecmp(url, "file:/", 6)) {
    char *want = plain_reading(url + 5);
    FUZZ_HOLDS((status == INSITU_OK) == (want != NULL) && (!want || !strcmp(want, path)));
    free(want);
  } else if (!strstr(url, "://")) { /* no scheme: the path as it stands */
    FUZZ_HOLDS(url[0] ? status == INSITU_OK && !strcmp(url, path) : status == INSITU_E_ARG);
  }
  FUZZ_HOLDS(status != INSITU_OK ||
             (kind == INSITU__TEXT_URL_MEMORY) == !strncasecmp(url, "memory://", 9));
  FUZZ_HOLDS(
      status != INSITU_OK || (kind == INSITU__TEXT_URL_ZIP) == !strncasecmp(url, "zip://", 6));
  if (status == INSITU_OK && kind != INSITU__TEXT_URL_MEMORY && path[0] == '/') round_trip(path);
  key(url);
  free(url);
  free(path);
  return 0;
}
