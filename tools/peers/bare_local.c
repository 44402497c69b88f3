/* The bare loop that a local row is measured against: what any loader has to do at least. Threads
 *   take the chunks of an archive in a shuffled order, read each whole, decode it by c-blosc, and
 *   copy each of its samples to the batches that show it.
 *
 *   bare_local THREADS SAMPLES BYTES SHOWN BATCH <LIST
 *     SAMPLES of BYTES bytes in a chunk; SHOWN: how many times a sample is shown, 2 for pairs;
 *     BATCH: samples in a batch. LIST: lines "FILE OFFSET LENGTH", a stored chunk each.
 *
 * Nothing plans, nothing waits, no batch is handed over, and no order is kept: copies go to
 * BATCHES batches in turns. Prints {"seconds": S, "samples": N}; starting the threads and touching
 * memory for the first time are part of the seconds. */
#include <blosc.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 4096, BATCHES = 4, MOST_THREADS = 64 };

struct chunk {
  char *file;
  uint64_t offset, length;
};
static struct {
  struct chunk *chunk; /* shuffled */
  uint64_t n, most;    /* most: bytes of the longest one, stored */
  uint64_t samples, bytes, shown, places;
  char *batches; /* places samples */
  atomic_uint_least64_t next, place;
} all;

static void die(const char *what) {
  fprintf(stderr, "bare_local: ");
  perror(what);
  exit(1);
}
static void *map(uint64_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}
static void read_list(void) {
  char line[LINE], file[LINE];
  uint64_t room = 0;
  while (fgets(line, sizeof line, stdin)) {
    struct chunk c;
    if (sscanf(line, "%4095s %" SCNu64 " %" SCNu64, file, &c.offset, &c.length) != 3) die(line);
    if (all.n == room) {
      room = 2 * room + 64;
      all.chunk = (struct chunk *)realloc(all.chunk, room * sizeof *all.chunk);
      if (!all.chunk) die("realloc");
    }
    c.file = strdup(file);
    if (!c.file) die("strdup");
    if (c.length > all.most) all.most = c.length;
    all.chunk[all.n++] = c;
  }
  if (!all.n) die("LIST");
}
static void shuffle(void) {
  srandom(1);
  for (uint64_t i = all.n - 1; i; i--) {
    uint64_t k = (uint64_t)random() % (i + 1);
    struct chunk c = all.chunk[i];
    all.chunk[i] = all.chunk[k];
    all.chunk[k] = c;
  }
}
static void read_chunk(const struct chunk *c, char *to) {
  int fd = open(c->file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) die(c->file);
  for (uint64_t done = 0; done < c->length;) {
    ssize_t got = pread(fd, to + done, c->length - done, (off_t)(c->offset + done));
    if (got <= 0) die(c->file);
    done += (uint64_t)got;
  }
  close(fd);
}
static void *work(void *unused) {
  uint64_t bytes = all.samples * all.bytes, i;
  char *stored = (char *)map(all.most), *decoded = (char *)map(bytes);
  while ((i = atomic_fetch_add(&all.next, 1)) < all.n) {
    read_chunk(&all.chunk[i], stored);
    if (blosc_decompress_ctx(stored, decoded, bytes, 1) != (int)bytes) die("blosc_decompress_ctx");
    for (uint64_t k = 0; k < all.samples * all.shown; k++) {
      uint64_t place = atomic_fetch_add(&all.place, 1) % all.places;
      memcpy(all.batches + place * all.bytes, decoded + k / all.shown * all.bytes, all.bytes);
    }
  }
  return unused;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
int main(int argc, char **argv) {
  pthread_t thread[MOST_THREADS];
  if (argc != 6) {
    fprintf(stderr, "usage: bare_local THREADS SAMPLES BYTES SHOWN BATCH <LIST\n");
    return 2;
  }
  uint64_t threads = strtoull(argv[1], NULL, 10);
  if (threads < 1 || threads > MOST_THREADS) die("THREADS");
  all.samples = strtoull(argv[2], NULL, 10);
  all.bytes = strtoull(argv[3], NULL, 10);
  all.shown = strtoull(argv[4], NULL, 10);
  all.places = BATCHES * all.shown * strtoull(argv[5], NULL, 10);
  if (!all.samples || !all.bytes || !all.places) die("SAMPLES, BYTES, SHOWN or BATCH");
  read_list();
  shuffle();

  double start = now();
  all.batches = (char *)map(all.places * all.bytes);
  for (uint64_t i = 0; i < threads; i++)
    if (pthread_create(&thread[i], NULL, work, NULL)) die("pthread_create");
  for (uint64_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  printf("{\"seconds\": %.6f, \"samples\": %" PRIu64 "}\n", now() - start, all.n * all.samples);
  return 0;
}
