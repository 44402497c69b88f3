/* cc -std=gnu11 -D_GNU_SOURCE -O2 -I. tools/bench/icechunk_tree.c -o icechunk_tree \
 *   -luring -lcurl -llz4 -lzstd -lm -lpthread
 *
 * icechunk_tree DIRECTORY [CHUNKS [A_MANIFEST]]
 *
 * Writes an Icechunk repository of specification 1 with one array of CHUNKS (10^7) chunks, one
 * sample each, listed by manifests of A_MANIFEST (10^4) chunks, and says what a shuffled epoch of
 * it takes until its first batch is there: milliseconds from insitu_loader_open on, and the most
 * memory that the process had by then beside the batches and what it had before. The chunks lie in
 * 64 files: where they lie is what is measured. */
#define INSITU_IMPLEMENTATION
#include "insitubatch.h"

/* ---- FlatBuffers, from the front to the back ---- */
static unsigned char *bytes;
static uint32_t at;
static void put(const void *p, uint32_t n) {
  memcpy(bytes + at, p, n);
  at += n;
}
static void put16(uint16_t x) {
  put(&x, 2);
}
static void put32(uint32_t x) {
  put(&x, 4);
}
static void put64(uint64_t x) {
  put(&x, 8);
}
/* Lets the offset at `from` lead here. */
static void here(uint32_t from) {
  uint32_t by = at - from;
  memcpy(bytes + from, &by, 4);
}
static uint32_t fields(unsigned n, unsigned size, const uint16_t *place) {
  uint32_t begin = at;
  put16((uint16_t)(4 + 2 * n));
  put16((uint16_t)size);
  for (unsigned i = 0; i < n; i++) put16(place[i]);
  return begin;
}
static void table(uint32_t vtable) {
  put32(at - vtable);
}
static uint32_t later(void) { /* an offset that here() sets */
  put32(0);
  return at - 4;
}

static void id_of(unsigned char id[12], unsigned kind, uint64_t number) {
  memset(id, 0, 12);
  id[0] = (unsigned char)kind;
  for (int i = 0; i < 8; i++) id[11 - i] = (unsigned char)(number >> 8 * i);
}

/* Writes a file of the repository; returns its bytes. */
static uint64_t save(const char *root, const char *folder, const unsigned char *id, int type) {
  char path[4096], name[INSITU__ICE_NAME];
  size_t bound = ZSTD_compressBound(at);
  unsigned char *out = malloc(bound + 39);
  memset(out, ' ', 39);
  memcpy(out, INSITU__ICE_MAGIC, 12);
  out[36] = 1;
  out[37] = (unsigned char)type;
  out[38] = 1;
  size_t n = ZSTD_compress(out + 39, bound, bytes, at, 3) + 39;
  insitu__ice_id_text(id, name);
  snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(out, 1, n, f) != n || fclose(f)) exit((perror(path), 1));
  free(out);
  return n;
}

static uint64_t manifest(const char *root, uint64_t number, uint64_t first, uint64_t n) {
  unsigned char id[12];
  at = 0;
  id_of(id, 2, number);
  uint32_t to_root = later();
  put("Ichk", 4);
  uint32_t of_root = fields(2, 20, (uint16_t[]){4, 16});
  uint32_t of_array = fields(2, 16, (uint16_t[]){4, 12});
  uint32_t of_chunk = fields(5, 28, (uint16_t[]){4, 0, 0, 8, 16});
  here(to_root);
  table(of_root);
  put(id, 12);
  uint32_t arrays = later();
  here(arrays);
  put32(1);
  uint32_t array = later();
  here(array);
  table(of_array);
  put("ARRAY   ", 8);
  uint32_t refs = later();
  here(refs);
  put32((uint32_t)n);
  uint32_t list = at;
  at += 4 * (uint32_t)n;
  for (uint64_t i = 0; i < n; i++) {
    here(list + 4 * (uint32_t)i);
    table(of_chunk);
    uint32_t index = later();
    put64(64);
    id_of(id, 3, (first + i) % 64);
    put(id, 12);
    here(index);
    put32(3);
    put32((uint32_t)(first + i));
    put32(0);
    put32(0);
  }
  id_of(id, 2, number);
  return save(root, "manifests", id, 2);
}

static void snapshot(
    const char *root, const char *json, uint64_t chunks, uint64_t each, const uint64_t *sizes) {
  uint64_t n = (chunks + each - 1) / each;
  unsigned char id[12];
  char name[INSITU__ICE_NAME], path[4096];
  at = 0;
  id_of(id, 1, 1);
  uint32_t to_root = later();
  put("Ichk", 4);
  uint32_t of_root = fields(7, 24, (uint16_t[]){4, 0, 16, 0, 0, 0, 20});
  uint32_t of_node = fields(5, 28, (uint16_t[]){4, 12, 16, 24, 20});
  uint32_t of_data = fields(3, 12, (uint16_t[]){4, 0, 8});
  uint32_t of_ref = fields(2, 20, (uint16_t[]){4, 16});
  here(to_root);
  table(of_root);
  put(id, 12);
  uint32_t nodes = later(), files = later();
  here(files);
  put32((uint32_t)n);
  for (uint64_t i = 0; i < n; i++) {
    id_of(id, 2, i);
    put(id, 12);
    put32(0);
    put64(sizes[i]);
    put32((uint32_t)(i + 1 < n ? each : chunks - each * (n - 1)));
    put32(0);
  }
  here(nodes);
  put32(2);
  uint32_t node[2] = {later(), later()}, text[2], place[2], data[2];
  for (int i = 0; i < 2; i++) {
    here(node[i]);
    table(of_node);
    put(i ? "ARRAY   " : "GROUP   ", 8);
    place[i] = later();
    text[i] = later();
    data[i] = later();
    put32(i ? 1 : 2);
    const char *of = i ? json : "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}";
    here(place[i]);
    put32(i ? 2 : 1);
    put(i ? "/t\0\0" : "/\0\0\0", 4);
    here(text[i]);
    put32((uint32_t)strlen(of));
    put(of, (uint32_t)strlen(of));
    while (at % 4) put("", 1);
    here(data[i]);
    table(of_data);
    uint32_t shape = later(), refs = later();
    here(shape);
    put32(i ? 3 : 0);
    for (int d = 0; i && d < 3; d++) put64(d ? 4 : chunks), put64(d ? 4 : 1);
    here(refs);
    put32(i ? (uint32_t)n : 0);
    uint32_t list = at;
    at += i ? 4 * (uint32_t)n : 0;
    for (uint64_t k = 0; i && k < n; k++) {
      here(list + 4 * (uint32_t)k);
      table(of_ref);
      id_of(id, 2, k);
      put(id, 12);
      uint32_t extents = later();
      here(extents);
      put32(3);
      put32((uint32_t)(k * each));
      put32((uint32_t)(k + 1 < n ? (k + 1) * each : chunks));
      for (int d = 1; d < 3; d++) put32(0), put32(1);
    }
  }
  id_of(id, 1, 1);
  save(root, "snapshots", id, 1);
  insitu__ice_id_text(id, name);
  snprintf(path, sizeof path, "%s/refs/branch.main/ref.json", root);
  FILE *f = fopen(path, "w");
  if (!f || fprintf(f, "{\"snapshot\":\"%s\"}", name) < 0 || fclose(f)) exit((perror(path), 1));
}

static void write_tree(const char *root, uint64_t chunks, uint64_t each) {
  static const char *const folder[] = {
      "", "/refs", "/refs/branch.main", "/snapshots", "/manifests", "/chunks"};
  char path[4096], json[1024], name[INSITU__ICE_NAME];
  uint64_t n = (chunks + each - 1) / each, *sizes = calloc(n, sizeof *sizes);
  for (int i = 0; i < 6; i++) {
    snprintf(path, sizeof path, "%s%s", root, folder[i]);
    mkdir(path, 0777);
  }
  for (unsigned k = 0; k < 64; k++) {
    unsigned char id[12];
    float values[16];
    id_of(id, 3, k);
    insitu__ice_id_text(id, name);
    snprintf(path, sizeof path, "%s/chunks/%s", root, name);
    for (int i = 0; i < 16; i++) values[i] = (float)k;
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(values, 64, 1, f) != 1 || fclose(f)) exit((perror(path), 1));
  }
  for (uint64_t i = 0; i < n; i++)
    sizes[i] = manifest(root, i, i * each, i + 1 < n ? each : chunks - each * i);
  snprintf(json, sizeof json,
      "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%" PRIu64 ",4,4],"
      "\"data_type\":\"float32\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":"
      "{\"chunk_shape\":[1,4,4]}},\"chunk_key_encoding\":{\"name\":\"default\"},\"fill_value\":0,"
      "\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],"
      "\"attributes\":{}}",
      chunks);
  snapshot(root, json, chunks, each, sizes);
  free(sizes);
}

static double memory(const char *field) {
  char line[256];
  double kib = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, field, strlen(field))) kib = atof(line + strlen(field) + 1);
  if (f) fclose(f);
  return kib / 1024;
}

int main(int argc, char **argv) {
  uint64_t chunks = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000000;
  uint64_t each = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000;
  char probe[4096];
  if (argc < 2 || !chunks || !each)
    return puts("usage: icechunk_tree DIRECTORY [CHUNKS [A_MANIFEST]]"), 2;
  snprintf(probe, sizeof probe, "%s/refs/branch.main/ref.json", argv[1]);
  if (access(probe, R_OK)) {
    bytes = malloc(each * 64 + chunks / each * 128 + 65536);
    write_tree(argv[1], chunks, each);
    puts("written; run it again to measure");
    return 0;
  }

  insitu_variable t = {.label = "t"};
  insitu_loader_desc d = {
      .api = INSITU_API, .url = argv[1], .variables = &t, .n_variables = 1, .batch_size = 32};
  insitu_iter_desc id = {.api = INSITU_API};
  insitu_loader *ld;
  insitu_iter *it;
  insitu_batch *b;
  insitu_error err = {0};
  insitu_stats stats;
  double before = memory("VmRSS:");
  int64_t begin = insitu__base_now();
  if (insitu_loader_open(&d, &ld, &err)) return puts(err.message), 1;
  int64_t opened = insitu__base_now();
  if (insitu_iter_open(ld, &id, &it, &err) || insitu_iter_next(it, -1, &b, &err))
    return puts(err.message), 1;
  int64_t first = insitu__base_now();
  for (uint64_t r = 0; r < b->rows; r++)
    if (((const float *)b->arrays[0].data)[16 * r] != (float)(b->sample_indices[r] % 64)) abort();
  insitu_loader_stats(ld, &stats, NULL);
  printf("%" PRIu64 " chunks in manifests of %" PRIu64 ": open %.0f ms, first batch after %.0f ms; "
         "%.1f MiB more than before at the most, %.1f MiB of them batches\n",
      chunks, each, (double)(opened - begin) / 1e6, (double)(first - begin) / 1e6,
      memory("VmHWM:") - before, (double)stats.slab_bytes_peak / (1 << 20));
  insitu_batch_release(&b);
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  return 0;
}
