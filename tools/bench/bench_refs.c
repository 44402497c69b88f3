/* How long an archive of many references takes to open, and how much memory:
 *   cc -O2 -D_GNU_SOURCE -I. tools/bench/bench_refs.c -o bench_refs -luring -lcurl -llz4 -lzstd \
 *     -lpthread -lm
 *   ./bench_refs [REFERENCES [TARGETS [DIRECTORY]]]
 * It writes kerchunk's JSON with 2 million references (or as many as were asked for) to 1000
 * targets into the directory (/tmp), opens it in a process of its own as a loader does, and prints
 * seconds and the most memory that was resident. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"
#include <sys/resource.h>
#include <sys/wait.h>

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* A field of 10 x 10 chunks at each of n / 100 times. kerchunk sorts keys as text. */
static void write_references(const char *path, uint64_t n, uint64_t targets) {
  uint64_t times = n / 100, digits = 1;
  FILE *f = fopen(path, "w");
  if (!f) exit(1);
  fprintf(f,
      "{\"version\":1,\"templates\":{\"u\":\"s3://bucket/era5/reanalysis\"},\"refs\":{\".zgroup\":"
      "\"{\\\"zarr_format\\\":2}\",\"t2m/.zarray\":\"{\\\"zarr_format\\\":2,\\\"shape\\\":[%" PRIu64
      ",720,1440],\\\"chunks\\\":[1,72,144],\\\"dtype\\\":\\\"<f4\\\",\\\"compressor\\\":{\\\"id\\"
      "\":\\\"zstd\\\"},\\\"fill_value\\\":0,\\\"order\\\":\\\"C\\\",\\\"filters\\\":null}\"",
      times);
  while (digits < times) digits *= 10;
  /* the order of texts: 0, 1, 10, 100, 101, ... */
  for (uint64_t first = 0, t = 0; first < 10; first++)
    for (uint64_t scale = 1; scale <= digits; scale *= 10)
      for (uint64_t k = 0; k < scale && (t = first * scale + k) < times; k++) {
        if (!first && scale > 1) continue;
        for (uint64_t c = 0; c < 100; c++)
          fprintf(f,
              ",\n\"t2m/%" PRIu64 ".%d.%d\": [\"{{u}}/t2m_%06" PRIu64 ".nc\", %" PRIu64 ", %" PRIu64
              "]",
              t, (int)(c / 10), (int)(c % 10), t * targets / times, 30000 + t * 100000 + c * 20000,
              20000 + t % 977);
      }
  fprintf(f, "}}\n");
  if (fclose(f)) exit(1);
}
int main(int argc, char **argv) {
  uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;
  uint64_t targets = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
  const char *const prefix[] = {"s3://bucket/era5"};
  const insitu_option options[] = {{"skip_signature", "true"}};
  char path[500];
  snprintf(path, sizeof path, "%s/bench-refs-%d.json", argc > 3 ? argv[3] : "/tmp", (int)getpid());
  write_references(path, n, targets);
  struct stat file = {0};
  stat(path, &file);
  for (int round = 0; round < 3; round++) {
    pid_t child = fork();
    if (!child) {
      const insitu_variable v = {.label = "x", .path = "t2m"};
      insitu_loader_desc d = {.api = INSITU_API,
          .url = path,
          .variables = &v,
          .n_variables = 1,
          .virtual_prefixes = prefix,
          .n_virtual_prefixes = 1,
          .options = options,
          .n_options = 1,
          .plan_only = 1};
      insitu_error err = {0};
      insitu_loader *ld = NULL;
      double begin = seconds();
      if (insitu_loader_open(&d, &ld, &err)) {
        fprintf(stderr, "%s\n", err.message);
        _exit(1);
      }
      double taken = seconds() - begin, cpu;
      struct rusage u;
      getrusage(RUSAGE_SELF, &u);
      cpu = (double)u.ru_utime.tv_sec + 1e-6 * (double)u.ru_utime.tv_usec +
            (double)u.ru_stime.tv_sec + 1e-6 * (double)u.ru_stime.tv_usec;
      printf("%" PRIu64 " references in %.0f MB: open %.2f s (%.2f s of CPU), %.0f MB resident\n",
          n, (double)file.st_size / 1e6, taken, cpu, (double)u.ru_maxrss / 1e3);
      insitu_loader_close(&ld);
      exit(0);
    }
    int status = 1;
    if (waitpid(child, &status, 0) < 0 || status) break;
  }
  unlink(path);
  return 0;
}
