/* Archives in memory that a test writes out object by object. */
#ifndef TESTS_ARCHIVE_H
#define TESTS_ARCHIVE_H
static insitu_object archive_objects[64];
static uint64_t archive_n;
static unsigned char archive_pool[1 << 16];
static size_t archive_pool_n;

static inline void archive_begin(void) {
  archive_n = archive_pool_n = 0;
}
static inline void *archive_keep(const void *bytes, size_t n) {
  assert_true(archive_pool_n + n <= sizeof archive_pool);
  memcpy(archive_pool + archive_pool_n, bytes, n);
  archive_pool_n += n;
  return archive_pool + archive_pool_n - n;
}
static inline void archive_add(const char *key, const void *bytes, size_t n) {
  assert_true(archive_n < 64);
  archive_objects[archive_n++] = (insitu_object){key, archive_keep(bytes, n), n};
}
static inline void archive_text(const char *key, const char *text) {
  archive_add(key, text, strlen(text));
}
/* Opens what was added; plan_only without variables. */
static inline insitu_loader *archive_open(insitu_loader_desc desc, int m) {
  insitu_loader *ld;
  insitu_error err = {0};
  desc.api = INSITU_API;
  desc.url = "memory://";
  desc.objects = archive_objects;
  desc.n_objects = archive_n;
  desc.io = modes[m].io;
  desc.inline_io = modes[m].inline_io;
  desc.plan_only = !desc.n_variables;
  if (insitu_loader_open(&desc, &ld, &err)) fail_msg("%s", err.message);
  return ld;
}
#endif
