/* insitu doctor: what this machine, and an archive on it, offer to a loader; what to do where they
 * hold it back. */
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

enum doctor_state { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };
static struct { /* where the lines go */
  struct tool_json_out json;
  unsigned warnings, problems;
  /* A remote archive's array whose chunks are read to see how many requests it takes, if any. */
  bool probes;
  char probed[INSITU__MAX_KEY];
  uint64_t rows;   /* of a chunk */
  uint64_t chunks; /* of the array */
} doctor;

/* One line; advice (may be NULL) says what to do. */
__attribute__((format(printf, 4, 5))) static void doctor_line(
    enum doctor_state state, const char *name, const char *advice, const char *format, ...) {
  static const char *const word[] = {"ok", "warning", "problem"};
  static const enum tool_style style[] = {TOOL_GREEN, TOOL_YELLOW, TOOL_RED};
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  doctor.warnings += state == DOCTOR_WARNING;
  doctor.problems += state == DOCTOR_PROBLEM;
  if (tool_json) {
    tool_json_object(&doctor.json, NULL);
    tool_json_string(&doctor.json, "check", name);
    tool_json_string(&doctor.json, "status", word[state]);
    tool_json_string(&doctor.json, "text", text);
    if (advice) tool_json_string(&doctor.json, "advice", advice);
    tool_json_end(&doctor.json);
    return;
  }
  printf("%s%-7s%s  %-10s  ", tool_style(style[state]), word[state], tool_style(TOOL_PLAIN), name);
  tool_wrap(text, 21, 21);
  if (!advice) return;
  printf("%21s%s", "", tool_style(TOOL_CYAN));
  tool_wrap(advice, 21, 21);
  printf("%s", tool_style(TOOL_PLAIN));
}
/* The first line of a small file of the kernel's; "" when there is none. */
static const char *doctor_file(const char *path, char *to, size_t cap) {
  FILE *f = fopen(path, "re");
  to[0] = 0;
  if (f && !fgets(to, (int)cap, f)) to[0] = 0;
  if (f) fclose(f);
  to[strcspn(to, "\n")] = 0;
  return to;
}

/* ---- the machine ---- */

static void doctor_uring(void) {
#ifdef INSITU_NO_URING
  doctor_line(DOCTOR_WARNING, "io_uring", "build without INSITU_NO_URING and link -luring",
      "left out of this program");
#else
  struct insitu__ring ring;
  struct insitu__ring_desc d = {.backend = INSITU__RING_URING};
  insitu_error err = {0};
  char disabled[32];
  if (insitu__ring_open(&ring, &d, &err) == INSITU_OK) {
    unsigned flags = ring.uring.flags;
    doctor_line(DOCTOR_OK, "io_uring", NULL, "works, set up with%s%s%s%s",
#ifdef IORING_SETUP_COOP_TASKRUN
        flags & IORING_SETUP_COOP_TASKRUN ? " COOP_TASKRUN" : "",
#else
        "",
#endif
#ifdef IORING_SETUP_SINGLE_ISSUER
        flags & IORING_SETUP_SINGLE_ISSUER ? " SINGLE_ISSUER" : "",
#else
        "",
#endif
#ifdef IORING_SETUP_DEFER_TASKRUN
        flags & IORING_SETUP_DEFER_TASKRUN ? " DEFER_TASKRUN" : "",
#else
        "",
#endif
        flags ? "" : " no flags: an old kernel");
    insitu__ring_close(&ring);
    return;
  }
  const char *advice =
      "a kernel of 5.15 or later is needed; reads go over epoll and a thread pool, which works too";
  doctor_file("/proc/sys/kernel/io_uring_disabled", disabled, sizeof disabled);
  if (disabled[0] && disabled[0] != '0')
    advice = "it is switched off: sysctl kernel.io_uring_disabled=0 (as root) allows it; epoll "
             "works too";
  else if (err.sys_errno == EPERM || err.sys_errno == EACCES || err.sys_errno == ENOSYS)
    advice = "a container's seccomp profile or an old kernel forbids it (Docker: --security-opt "
             "seccomp=PROFILE that "
             "permits io_uring_setup, io_uring_enter and io_uring_register); epoll works too";
  else if (err.sys_errno == ENOMEM)
    advice = "raise the limit of locked memory (ulimit -l); epoll works too";
  doctor_line(DOCTOR_WARNING, "io_uring", advice, "not to be had: %s", strerror(err.sys_errno));
#endif
}
static void doctor_backend(void) {
  struct insitu__ring ring;
  struct insitu__ring_desc d = {.backend = tool_backend(), .io_threads = 1};
  insitu_error err = {0};
  const char *io = getenv("INSITU_IO");
  if (io && io[0] && strcmp(io, "uring") && strcmp(io, "epoll")) {
    doctor_line(DOCTOR_PROBLEM, "backend", "set INSITU_IO to uring or epoll, or unset it",
        "the environment says INSITU_IO=%s", io);
  } else if (insitu__ring_open(&ring, &d, &err) < 0) {
    doctor_line(DOCTOR_PROBLEM, "backend",
        io && io[0] ? "unset INSITU_IO, or do what the message says" : NULL, "%s", err.message);
  } else {
    doctor_line(DOCTOR_OK, "backend", NULL, "%s%s%s",
        ring.backend == INSITU__RING_URING ? "uring" : "epoll",
        io && io[0] ? ", as INSITU_IO says" : "",
        d.backend == INSITU__RING_AUTO ? ", the best that works" : "");
    insitu__ring_close(&ring);
  }
}
static void doctor_cores(void) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  int mask = (int)insitu__mem_affinity();
  uint64_t quota = insitu__mem_cgroup(true), cores = insitu__mem_cores();
  char limit[64] = "";
  if (quota != UINT64_MAX)
    snprintf(limit, sizeof limit, ", a control group's quota of %" PRIu64, quota);
  const char *advice = NULL;
  if (cores == 1)
    advice = "decoding shares one core with the trainer: give the process two or more";
  doctor_line(advice ? DOCTOR_WARNING : DOCTOR_OK, "cores", advice,
      "%" PRIu64 " for this process (%ld online, an affinity mask of %d%s)", cores, online, mask,
      limit);
}
static void doctor_memory(void) {
  char total[16], limit[40] = "none", available[16], budget[16], line[128];
  uint64_t group = insitu__mem_cgroup(false), all = insitu__mem_total(), kib = 0;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  FILE *f = fopen("/proc/meminfo", "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) break;
  if (f) fclose(f);
  uint64_t machine = (uint64_t)(pages > 0 ? pages : 0) * (uint64_t)(page > 0 ? page : 0);
  if (group < machine) tool_bytes(limit, group);
  bool tight = kib && kib * 1024 < all / 2;
  doctor_line(tight ? DOCTOR_WARNING : DOCTOR_OK, "memory",
      tight ? "the default memory_budget is more than what is free: set it, or free memory" : NULL,
      "%s, %s free; control group limit: %s; default memory_budget %s", tool_bytes(total, machine),
      kib ? tool_bytes(available, kib * 1024) : "?", limit, tool_bytes(budget, all / 2));
}
static void doctor_huge_pages(void) {
  char text[128];
  doctor_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
  const char *open = strchr(text, '[');
  if (!text[0])
    doctor_line(DOCTOR_WARNING, "huge pages", "batches lie in small pages: a little slower",
        "the kernel has none");
  else if (open && strncmp(open, "[never]", 7) == 0)
    doctor_line(DOCTOR_WARNING, "huge pages",
        "as root: echo madvise >/sys/kernel/mm/transparent_hugepage/enabled; batches are then "
        "filled a little faster",
        "transparent huge pages: never");
  else
    doctor_line(DOCTOR_OK, "huge pages", NULL, "transparent huge pages: %.*s",
        open ? (int)strcspn(open + 1, "]") : 1, open ? open + 1 : "?");
}
static void doctor_limit(char *to, size_t cap, rlim_t value) {
  if (value == RLIM_INFINITY) snprintf(to, cap, "unlimited");
  else snprintf(to, cap, "%llu", (unsigned long long)value);
}
static void doctor_limits(void) {
  struct rlimit files = {0, 0}, locked = {0, 0}, threads = {0, 0};
  char f[32], l[32], t[32];
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  getrlimit(RLIMIT_NPROC, &threads);
  doctor_limit(f, sizeof f, files.rlim_cur);
  doctor_limit(l, sizeof l, locked.rlim_cur);
  doctor_limit(t, sizeof t, threads.rlim_cur);
  uint64_t need = insitu__mem_cores() + 20;
  const char *advice = NULL;
  if (files.rlim_cur < 256)
    advice = "raise open files: ulimit -n 1024 (each chunk in flight is an open file)";
  else if (threads.rlim_cur < 4 * need)
    advice = "raise processes: ulimit -u 4096 (workers and readers are threads)";
  doctor_line(advice ? DOCTOR_WARNING : DOCTOR_OK, "limits", advice,
      "open files %s, locked memory %s bytes, processes %s", f, l, t);
}
static void doctor_libraries(void) {
#ifdef IO_URING_VERSION_MAJOR
  char uring[16];
  snprintf(uring, sizeof uring, "%d.%d", io_uring_major_version(), io_uring_minor_version());
#else
  const char *uring = "2.3 or earlier";
#endif
  char more[128] = "";
#ifdef INSITU_WITH_ZLIB
  snprintf(more + strlen(more), sizeof more - strlen(more), ", zlib %s", zlibVersion());
#endif
#ifdef INSITU_WITH_LIBDEFLATE
  snprintf(more + strlen(more), sizeof more - strlen(more), ", libdeflate %s",
      LIBDEFLATE_VERSION_STRING);
#endif
#ifdef INSITU_WITH_BZIP2
  snprintf(more + strlen(more), sizeof more - strlen(more), ", bzip2 %.*s",
      (int)strcspn(BZ2_bzlibVersion(), ","), BZ2_bzlibVersion()); /* behind it stands a date */
#endif
  doctor_line(DOCTOR_OK, "libraries", NULL, "liburing %s, lz4 %s, zstd %s%s", uring,
      LZ4_versionString(), ZSTD_versionString(), more);
}
static void doctor_cpu(void) {
  char model[128] = "", line[256];
  struct insitu__codec_scratch scratch;
  FILE *f = fopen("/proc/cpuinfo", "re");
  while (f && !model[0] && fgets(line, sizeof line, f))
    if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
      snprintf(model, sizeof model, "%.100s", strchr(line, ':') + 2);
  if (f) fclose(f);
  model[strcspn(model, "\n")] = 0;
  insitu__codec_scratch_init(&scratch);
  bool crc = insitu__comp_crc_has_hardware(), avx2 = scratch.avx2;
  insitu__codec_scratch_free(&scratch);
#if defined(__x86_64__)
  const char *advice =
      !avx2 ? "without avx2 unshuffling is slower; a newer processor has it" : NULL;
  const char *shuffle = avx2 ? "unshuffle by avx2" : "unshuffle by sse2";
#else
  const char *advice = NULL, *shuffle = "unshuffle by neon";
  (void)avx2;
#endif
  doctor_line(advice ? DOCTOR_WARNING : DOCTOR_OK, "processor", advice, "%s%s%s, crc32c %s", model,
      model[0] ? "; " : "", shuffle, crc ? "in hardware" : "by table");
}
static void doctor_codecs(void) {
  char in[256] = "", out[256] = "";
  const char *advice = NULL;
  for (int kind = 0; kind <= INSITU__CODEC_COUNT; kind++) {
    bool last = kind == INSITU__CODEC_COUNT;
    if (!last && insitu__chain_methods[kind].flags & INSITU__CODEC_NO_NAME) continue;
    const char *name = last ? "snappy in blosc" : insitu__chain_methods[kind].name;
    const char *lack = last ? INSITU__CODEC_LACK_SNAPPY : insitu__chain_methods[kind].lack;
    char *to = lack ? out : in;
    snprintf(to + strlen(to), sizeof in - strlen(to), "%s%s", to[0] ? ", " : "", name);
    if (!advice) advice = lack;
  }
  doctor_line(advice ? DOCTOR_WARNING : DOCTOR_OK, "codecs", advice, "%s%s%s", in,
      out[0] ? "; not in this build: " : "", out);
}
static void doctor_machine(void) {
  struct utsname u;
  if (uname(&u) == 0) {
    int major = 0, minor = 0;
    sscanf(u.release, "%d.%d", &major, &minor);
    bool old = major < 5 || (major == 5 && minor < 15);
    doctor_line(old ? DOCTOR_WARNING : DOCTOR_OK, "kernel",
        old ? "5.15 or later reads faster" : NULL, "%s %s, %s", u.sysname, u.release, u.machine);
  }
  doctor_uring();
  doctor_backend();
  doctor_cores();
  doctor_memory();
  doctor_huge_pages();
  doctor_limits();
  doctor_libraries();
  doctor_cpu();
  doctor_codecs();
}

/* ---- an archive ---- */

static void doctor_file_system(const char *path) {
  static const struct {
    unsigned long magic;
    const char *name, *advice; /* NULL: a local disk or memory */
  } known[] = {{0xef53, "ext2/3/4", NULL}, {0x58465342, "xfs", NULL}, {0x9123683e, "btrfs", NULL},
      {0x2fc12fc1, "zfs", NULL}, {0xf2f52010, "f2fs", NULL}, {0x01021994, "tmpfs", NULL},
      {0x794c7630, "overlayfs", NULL}, {0x73717368, "squashfs", NULL},
      {0x6969, "NFS",
          "every chunk is an open over the network: chunks of 1 MiB or more, a larger "
          "max_inflight, mount with nconnect=8"},
      {0x0bd00bd0, "Lustre",
          "many small files load its metadata server: chunks of 4 MiB or more, or shards; lfs "
          "setstripe -c 1 on the archive"},
      {0x47504653, "GPFS",
          "an open takes tokens over the network: chunks of 1 MiB or more, a larger max_inflight"},
      {0x19830326, "BeeGFS", "chunks of 1 MiB or more, a larger max_inflight"},
      {0x00c36400, "CephFS", "chunks of 1 MiB or more, a larger max_inflight"},
      {0xff534d42, "CIFS",
          "every chunk is an open over the network: chunks of 1 MiB or more, a larger "
          "max_inflight"},
      {0xfe534d42, "SMB",
          "every chunk is an open over the network: chunks of 1 MiB or more, a larger "
          "max_inflight"},
      {0x65735546, "FUSE",
          "the mount's own process handles every open: if this is a bucket, raise max_inflight"},
      {0x01021997, "9p",
          "a shared folder of a virtual machine is slow to open files: copy the archive to a local "
          "disk"}};
  struct statfs s;
  if (statfs(path, &s)) {
    doctor_line(DOCTOR_WARNING, "disk", NULL, "cannot tell the file system: %s", strerror(errno));
    return;
  }
  for (size_t i = 0; i < TOOL_COUNT(known); i++) {
    if ((unsigned long)s.f_type != known[i].magic) continue;
    doctor_line(
        known[i].advice ? DOCTOR_WARNING : DOCTOR_OK, "disk", known[i].advice, "%s", known[i].name);
    return;
  }
  doctor_line(DOCTOR_OK, "disk", NULL, "a file system of type 0x%lx", (unsigned long)s.f_type);
}

/* decoded bytes of chunks that are worth a warning */
enum { DOCTOR_SMALL = 64 << 10, DOCTOR_SMALL_FAR = 256 << 10 };
struct doctor_chunk { /* one stored object, timed */
  const struct insitu__zarr_array *z;
  struct tool_object object;
  uint64_t index[INSITU__MAX_DIMS];
  char key[INSITU__MAX_KEY];
  uint64_t bytes;
  double open_s, read_s, decode_s;
  insitu_error err; /* of decoding */
};
static insitu_status doctor_discard(
    void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)user, (void)bytes, (void)offset, (void)n, (void)err;
  return INSITU_OK;
}
static double doctor_since(int64_t begun) {
  return (double)(insitu__base_now() - begun) / 1e9;
}
/* Decodes what was read, twice: the first time also takes memory from the system. */
static void doctor_decode(struct doctor_chunk *c, const char *bytes, uint64_t n) {
  struct insitu__codec_scratch scratch;
  struct insitu__codec_shard own;
  struct insitu__codec_chain chain;
  struct insitu__codec_sink sink = {.piece = doctor_discard, .element = c->z->itemsize};
  insitu__codec_scratch_init(&scratch);
  for (int turn = 0; turn < 2; turn++) {
    memset(&c->err, 0, sizeof c->err);
    int64_t begun = insitu__base_now();
    insitu__chain_decode(insitu__zarr_object_codecs(c->z, c->index, &own, &chain), &scratch, bytes,
        n, c->object.bytes, &sink, &c->err);
    c->decode_s = doctor_since(begun);
  }
  insitu__codec_scratch_free(&scratch);
}
/* Opens and reads an object past the page cache where the file system allows, and decodes it. 0, or
 * an errno. */
static int doctor_read(int root, struct doctor_chunk *c) {
  int64_t begun = insitu__base_now();
  int fd = openat(root, c->key, O_RDONLY | O_CLOEXEC);
  c->open_s = doctor_since(begun);
  struct stat s;
  if (fd < 0 || fstat(fd, &s)) return errno;
  c->bytes = insitu__base_min(
      (uint64_t)s.st_size, insitu__chain_bound(c->object.codecs, c->object.bytes) + 1);
  char *bytes = (char *)tool_alloc(c->bytes + 1, 1);
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* drops clean pages of the file */
  uint64_t have = 0;
  begun = insitu__base_now();
  for (ssize_t got = 1; got > 0 && have<c->bytes; have += got> 0 ? (uint64_t)got : 0) {
    got = read(fd, bytes + have, (size_t)(c->bytes - have));
    if (got < 0) {
      int error = errno;
      close(fd);
      insitu__mem_free(bytes);
      return error;
    }
  }
  c->read_s = doctor_since(begun);
  close(fd);
  doctor_decode(c, bytes, have);
  insitu__mem_free(bytes);
  return 0;
}
struct doctor_fetch { /* the same of a store that is no directory */
  struct insitu__store *store;
  struct doctor_chunk *chunk;
  insitu_status status;
};
static void doctor_fetch_await(void *arg) {
  struct doctor_fetch *f = (struct doctor_fetch *)arg;
  struct doctor_chunk *c = f->chunk;
  uint64_t cap = insitu__chain_bound(c->object.codecs, c->object.bytes) + 1;
  char *bytes = (char *)tool_alloc(cap, 1);
  struct iovec iov = {bytes, (size_t)cap};
  int64_t begun = insitu__base_now();
  f->status = insitu__store_fetch_await(f->store, c->key, 0, &iov, 1, NULL, &c->bytes, &c->err);
  c->read_s = doctor_since(begun);
  if (f->status == INSITU_OK) doctor_decode(c, bytes, c->bytes);
  insitu__mem_free(bytes);
}
/* 0, ENOENT, or EIO after an error in c->err. */
static int doctor_fetch(struct tool_archive *a, struct doctor_chunk *c) {
  struct doctor_fetch f = {.store = &a->store, .chunk = c};
  memset(&c->err, 0, sizeof c->err);
  if (insitu__reactor_call(&a->reactor, doctor_fetch_await, &f) < 0) tool_no_memory();
  return f.status == INSITU_E_NOTFOUND ? ENOENT : f.status < 0 ? EIO : 0;
}
/* The first stored object of the array, among its first few. */
static void doctor_chunk(struct tool_archive *a, const struct insitu__zarr_array *z) {
  struct doctor_chunk c = {.z = z, .object = tool_object_of(z)};
  bool far = insitu__store_is_remote(&a->store);
  uint64_t n = insitu__base_min(c.object.count, far ? 8 : 64), *index = c.index;
  char stored[16], decoded[16], rate[16];
  int error = ENOENT;
  if (!far && a->store.ops != &insitu__store_file_ops) return; /* not on a disk */
  for (uint64_t i = 0; i < n && error == ENOENT; i++) {
    tool_object_index(z, &c.object, i, index);
    c.object.bytes = tool_object_bytes(z, index);
    if (insitu__zarr_chunk_key(z, index, c.key, sizeof c.key) < 0) return;
    error = far ? doctor_fetch(a, &c) : doctor_read(a->store.dirfd, &c);
  }
  if (error == ENOENT)
    doctor_line(DOCTOR_WARNING, "a chunk",
        "is the archive complete? insitu verify counts what is absent",
        "no chunk of '%s' was found (%" PRIu64 " looked for)", z->path, n);
  else if (error && far) doctor_line(DOCTOR_PROBLEM, "a chunk", NULL, "%s", c.err.message);
  else if (error)
    doctor_line(DOCTOR_PROBLEM, "a chunk",
        "check that this user may read it and that the disk is well", "%s: %s", c.key,
        strerror(error));
  else if (c.err.status)
    doctor_line(DOCTOR_PROBLEM, "a chunk", "insitu verify lists all bad chunks", "%s: %s", c.key,
        c.err.message);
  else {
    if (far && c.object.count > 1 && z->ndim) {
      doctor.probes = true;
      snprintf(doctor.probed, sizeof doctor.probed, "%s", z->path);
      doctor.rows = insitu__base_max(1, insitu__base_min(z->chunk[0], 1u << 20));
      doctor.chunks = c.object.count;
    }
    if (far)
      doctor_line(DOCTOR_OK, "a chunk", NULL, "%s: fetched in %.1f ms, decoded in %.0f us", c.key,
          1e3 * c.read_s, 1e6 * c.decode_s);
    else
      doctor_line(DOCTOR_OK, "a chunk", NULL, "%s: open %.0f us, read %.0f us, decode %.0f us",
          c.key, 1e6 * c.open_s, 1e6 * c.read_s, 1e6 * c.decode_s);
    bool small = c.object.bytes < (far ? DOCTOR_SMALL_FAR : DOCTOR_SMALL) && c.object.count > 16;
    double slow = c.open_s + c.read_s + c.decode_s;
    doctor_line(small ? DOCTOR_WARNING : DOCTOR_OK, "chunk size",
        !small ? NULL
        : far  ? "small chunks cost a request each: 1 to 16 MiB arrive fastest; else raise "
                 "max_inflight (insitu bench finds it)"
               : "small chunks cost an open each: chunks of 256 KiB to 16 MiB read fastest",
        "%s stored, %s decoded, %s/s one after the other", tool_bytes(stored, c.bytes),
        tool_bytes(decoded, c.object.bytes),
        tool_bytes(rate, slow > 0 ? (uint64_t)((double)c.object.bytes / slow) : 0));
  }
}
static void doctor_arrays(struct tool_archive *a) {
  struct insitu__zarr_array best = {0}, z;
  uint64_t readable = 0, most = 0;
  insitu_error first = {0};
  for (uint64_t i = 0; i < a->n_paths; i++) {
    insitu_error err = {0};
    if (tool_archive_array(a, a->paths[i], &z, &err) < 0) {
      if (!first.status) first = err;
      continue;
    }
    struct tool_object o = tool_object_of(&z);
    readable++;
    /* below 2^63: >>zarr bounds both */
    if (z.kind != INSITU__ZARR_STRING && o.count && o.count * o.bytes > most) {
      most = o.count * o.bytes;
      insitu__zarr_array_free(&best);
      best = z;
    } else insitu__zarr_array_free(&z);
  }
  bool none = a->n_paths && !readable;
  if (!a->n_paths && a->list_error.status)
    doctor_line(DOCTOR_WARNING, "arrays", "name them where a path is asked for",
        "not known: the store tells no names");
  else if (!a->n_paths)
    doctor_line(DOCTOR_PROBLEM, "arrays", "check the url", "the archive has none");
  else if (readable == a->n_paths)
    doctor_line(
        DOCTOR_OK, "arrays", NULL, "%" PRIu64 ", all can be read by this build", a->n_paths);
  else
    doctor_line(none ? DOCTOR_PROBLEM : DOCTOR_WARNING, "arrays", "insitu info shows why for each",
        "%" PRIu64 " of %" PRIu64 " can be read; %s", readable, a->n_paths, first.message);
  if (most) doctor_chunk(a, &best);
  insitu__zarr_array_free(&best);
}
#ifndef INSITU_NO_CURL
/* ---- a remote store ---- */

/* Looked for, in this order: the first that is there serves for the other questions. */
static const char *const doctor_keys[] = {"zarr.json", ".zmetadata", ".zgroup", ".zarray"};

struct doctor_ask { /* one request, as a read makes it, but without retries */
  struct insitu__remote *remote;
  struct insitu__cloud_ask ask;
  struct insitu__http_request request;
  struct insitu__http_timing timing;
  insitu_status status;
  insitu_error err;
};
static void doctor_ask_await(void *arg) {
  struct doctor_ask *q = (struct doctor_ask *)arg;
  struct insitu__http_request *r = &q->request;
  for (unsigned learned = 0;;) {
    insitu__http_request_reset(r);
    r->timing = &q->timing;
    r->text.limit = INSITU__MAX_META;
    q->status = insitu__cloud_prepare_await(&q->remote->cloud, &q->ask, r, &q->err);
    if (q->status == INSITU_OK) q->status = insitu__http_await(q->remote->http, r, &q->err);
    bool odd = q->status == INSITU_OK && r->answer.status >= 300 && r->answer.status != 404;
    if (!odd || !insitu__cloud_learn_await(&q->remote->cloud, r, &learned, &q->err)) return;
  }
}
static void doctor_send(struct tool_archive *a, struct doctor_ask *q) {
  q->remote = insitu__remote_of(insitu__store_base(&a->store));
  q->status = INSITU_OK;
  memset(&q->err, 0, sizeof q->err);
  if (insitu__reactor_call(&a->reactor, doctor_ask_await, q) < 0) tool_no_memory();
}
static void doctor_reset(struct doctor_ask *q) {
  insitu__http_request_free(&q->request);
  memset(q, 0, sizeof *q);
}
static const char *doctor_version(long version) {
  return version == CURL_HTTP_VERSION_1_0   ? "HTTP/1.0"
         : version == CURL_HTTP_VERSION_1_1 ? "HTTP/1.1"
         : version == CURL_HTTP_VERSION_2_0 ? "HTTP/2"
         : version == CURL_HTTP_VERSION_3   ? "HTTP/3"
                                            : "HTTP";
}
/* A member of what insitu__cloud_describe says, "" where it says nothing. */
static const char *doctor_member(
    const struct insitu__text_json *j, const char *name, char *to, size_t cap) {
  if (insitu__text_json_string(j, insitu__text_json_get(j, 0, name), to, cap) < 0) to[0] = 0;
  return to;
}
/* Where requests go, and as whom. */
static void doctor_identity(const struct insitu__cloud *c) {
  struct insitu__text_buffer b = {0};
  struct insitu__text_json j = {0};
  char endpoint[600], region[64], from[64], credentials[128];
  uint64_t expires = 0; /* seconds */
  insitu__text_buffer_printf(&b, "{");
  insitu__cloud_describe(c, &b);
  insitu__text_buffer_printf(&b, "}");
  if (b.failed || insitu__text_json_parse(&j, b.text, b.n, "store", NULL) < 0) tool_no_memory();
  doctor_member(&j, "endpoint", endpoint, sizeof endpoint);
  doctor_member(&j, "region", region, sizeof region);
  doctor_member(&j, "region_from", from, sizeof from);
  doctor_member(&j, "credentials", credentials, sizeof credentials);
  int token = insitu__text_json_get(&j, 0, "credentials_expire_in_s");
  if (token >= 0 && !insitu__text_json_u64(&j, token, &expires)) expires = 0;
  doctor_line(DOCTOR_OK, "endpoint", NULL, "%s%s%s%s%s%s", endpoint, region[0] ? ", region " : "",
      region, from[0] ? " (from " : "", !strcmp(from, "server") ? "the server" : from,
      from[0] ? ")" : "");
  char lasting[64] = "";
  if (expires) snprintf(lasting, sizeof lasting, ", for another %" PRIu64 " s", expires);
  doctor_line(DOCTOR_OK, "identity", NULL, "%s%s", credentials, lasting);
  insitu__text_json_free(&j);
  insitu__text_buffer_free(&b);
}
static void doctor_timing(
    const struct insitu__http_timing *cold, const struct insitu__http_timing *warm, bool https) {
  char secured[40] = "";
  if (cold->secured > cold->connected)
    snprintf(secured, sizeof secured, ", TLS %.1f ms", 1e-3 * (double)cold->secured);
  doctor_line(DOCTOR_OK, "connection", NULL, "%s to %s%s", doctor_version(cold->version),
      cold->address,
      https ? ", TLS, certificate verified unless allow_invalid_certificates is set"
            : ", not encrypted");
  doctor_line(DOCTOR_OK, "first", NULL,
      "connected after %.1f ms%s, first byte after %.1f ms, all after %.1f ms",
      1e-3 * (double)cold->connected, secured, 1e-3 * (double)cold->first,
      1e-3 * (double)cold->total);
  double ms = 1e-3 * (double)warm->first;
  bool slow = ms > 200;
  doctor_line(slow || !warm->reused ? DOCTOR_WARNING : DOCTOR_OK, "next",
      !warm->reused
          ? "the server closes connections: each request connects anew; allow keep-alive on it"
      : slow ? "far away, or busy: insitu bench finds the max_inflight that hides it; train nearer "
               "to the data"
             : NULL,
      "%s, first byte after %.1f ms",
      warm->reused ? "on the same connection" : "on another connection", ms);
}
/* A request that failed, or was refused: what it was, and what to do. */
static void doctor_refused(const struct doctor_ask *q, const char *what) {
  char code[64], id[INSITU__HTTP_ID + 16] = "";
  const struct insitu__http_answer *answer = &q->request.answer;
  if (q->status < 0) {
    doctor_line(DOCTOR_PROBLEM, what, NULL, "%s", q->err.message);
    return;
  }
  const struct insitu__cloud *cloud = &q->remote->cloud;
  bool known = insitu__auth_code(&q->request, code, sizeof code) == INSITU_OK;
  const char *told = known && insitu__auth_quotable(&cloud->auth, &q->request, code) ? code : "";
  if (answer->id[0] && insitu__auth_quotable(&cloud->auth, &q->request, answer->id))
    snprintf(id, sizeof id, " (request %s)", answer->id);
  bool moved = answer->status / 100 == 3 && answer->location;
  doctor_line(DOCTOR_PROBLEM, what,
      moved ? "give the url that it leads to" : insitu__cloud_advice(cloud, answer->status, code),
      "HTTP %d%s%s%s", answer->status, told[0] ? " " : "", told, id);
}
static void doctor_ranges(struct tool_archive *a, const char *key) {
  struct doctor_ask q = {.ask = {.what = INSITU__CLOUD_READ, .key = key, .range = "bytes=1-2"}};
  q.request.first = 1;
  q.request.bytes = 2;
  doctor_send(a, &q);
  int status = q.request.answer.status;
  if (status == 206 && q.status == INSITU_OK) doctor_line(DOCTOR_OK, "ranges", NULL, "work");
  else if (status == 200)
    doctor_line(DOCTOR_WARNING, "ranges",
        "shards, zip files and large chunks need them: another server, or no proxy between",
        "the server ignores them and sends whole objects");
  else doctor_refused(&q, "ranges");
  doctor_reset(&q);
}
struct doctor_listing {
  struct insitu__store *store;
  uint64_t names;
  insitu_status status;
  insitu_error err;
};
static void doctor_name(void *to, const char *name, bool is_directory) {
  (void)name, (void)is_directory;
  ((struct doctor_listing *)to)->names++;
}
static void doctor_list_await(void *arg) {
  struct doctor_listing *l = (struct doctor_listing *)arg;
  l->status = insitu__store_list_await(l->store, "", doctor_name, l, &l->err);
}
static void doctor_list(struct tool_archive *a) {
  struct doctor_listing l = {.store = &a->store};
  if (insitu__reactor_call(&a->reactor, doctor_list_await, &l) < 0) tool_no_memory();
  if (l.status == INSITU_OK)
    doctor_line(DOCTOR_OK, "listing", NULL, "works: %" PRIu64 " names at the root", l.names);
  else if (insitu__remote_of(insitu__store_base(&a->store))->cloud.auth.set.kind ==
           INSITU__CLOUD_HTTP)
    doctor_line(DOCTOR_OK, "listing", NULL,
        "not to be had from an HTTP server: consolidated metadata takes its place");
  else
    doctor_line(DOCTOR_WARNING, "listing", "allow listing, or consolidate the metadata", "%s",
        l.err.message);
}

/* How many requests in flight the store takes is measured with some numbers of them, in turn: for
 * so many seconds or bytes each. Fewer chunks than the lowest number show nothing. */
enum { DOCTOR_LEVELS = 4, DOCTOR_FEWEST = 4, DOCTOR_LEVEL = 64 << 20 };
#define DOCTOR_LEVEL_S 2.5

struct doctor_level {
  uint64_t n;  /* requests in flight, at most */
  double rate; /* bytes a second */
};

/* The array's chunks one by one in a random order; with n requests in flight, or 0: as many as a
 * job has by default. */
static insitu_status doctor_open(
    const char *url, uint64_t n, insitu_loader **ld, insitu_error *err) {
  const insitu_variable v = {.label = "x", .path = doctor.probed};
  insitu_loader_desc d = tool_desc(url);

  d.variables = &v;
  d.n_variables = 1;
  d.prefetch_depth = 64;
  d.batch_size = doctor.rows * insitu__base_max(1, n / 32);
  d.block_chunks = d.unit_chunks = d.lanes = 1;
  d.max_inflight = n;
  d.split[0].fraction = 1;
  d.on_absent_chunk = INSITU_FILL;
  d.log_level = INSITU_LOG_OFF;
  return insitu_loader_open(&d, ld, err);
}

/* Reads with a loader as a job does, epoch after epoch, and tells the bytes a second: of the second
 * half of the time, where that is not over before, since a server that is asked too much at once
 * answers well at first. */
static insitu_status doctor_read_on(
    insitu_loader *ld, uint64_t epoch, double *rate, insitu_error *err) {
  insitu_iter_desc pass = {
      .api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SHUFFLED, .epoch = epoch};
  insitu_iter *it = NULL;
  insitu_batch *b;
  insitu_stats st = {0};
  double took = 0, since = 0;
  int64_t begun = insitu__base_now();
  insitu_status status = insitu_loader_stats(ld, &st, err);
  uint64_t first = st.bytes_fetched, from = first; /* metadata */

  if (!status) status = insitu_iter_open(ld, &pass, &it, err);
  while (status >= 0 && took < DOCTOR_LEVEL_S && st.bytes_fetched - first < DOCTOR_LEVEL) {
    status = insitu_iter_next(it, 50, &b, err);
    if (!status) insitu_batch_release(&b);
    took = doctor_since(begun);
    if (status >= 0) status = insitu_loader_stats(ld, &st, err);
    if (since > 0 || took < DOCTOR_LEVEL_S / 2) continue;
    since = took;
    from = st.bytes_fetched;
  }
  insitu_iter_close(&it);
  if (took < DOCTOR_LEVEL_S) {
    since = 0;
    from = first;
  }
  *rate = took > since ? (double)(st.bytes_fetched - from) / (took - since) : 0;
  return status;
}

/* Tells which of n numbers of requests is best: the lowest that brings nine tenths of the most.
 * all: the last is what a job has by default. */
static void doctor_tell_requests(const struct doctor_level *l, unsigned n, bool all) {
  const struct doctor_level *most = l + n - 1;
  double best = 0;
  unsigned knee = 0;
  char rate[16], last[16], advice[80];

  for (unsigned i = 0; i < n; i++) best = l[i].rate > best ? l[i].rate : best;
  while (l[knee].rate < 0.9 * best) knee++;
  tool_bytes(rate, (uint64_t)l[knee].rate);
  tool_bytes(last, (uint64_t)(knee == n - 1 && n > 1 ? l[n - 2].rate : most->rate));
  snprintf(advice, sizeof advice, "set the option max_connections to %" PRIu64, l[knee].n);

  if (n == 1)
    doctor_line(DOCTOR_OK, "requests", NULL, "%s/s with %" PRIu64 " in flight", rate, l->n);
  else if (most->rate < 0.5 * best)
    doctor_line(DOCTOR_WARNING, "requests", advice,
        "%s/s with %" PRIu64 " in flight, and %s/s with %" PRIu64
        ": the server is slower with many at once",
        rate, l[knee].n, last, most->n);
  else if (knee < n - 1)
    doctor_line(DOCTOR_OK, "requests", NULL,
        "%s/s with %" PRIu64 " in flight, %s/s with %" PRIu64 ": more are no faster", rate,
        l[knee].n, last, most->n);
  else
    doctor_line(DOCTOR_OK, "requests",
        all ? "more may be faster: set max_inflight and the option max_connections higher" : NULL,
        "%s/s with %" PRIu64 " in flight; with %" PRIu64 " it is %s/s", rate, most->n, l[n - 2].n,
        last);
}

/* The bytes a second with one number of requests in flight, of an epoch; adds to *throttled how
 * often the server asked to slow down. */
static insitu_status doctor_measure(const char *url, struct doctor_level *l, uint64_t epoch,
    uint64_t *throttled, insitu_error *err) {
  insitu_loader *ld = NULL;
  insitu_stats st;
  insitu_status status = doctor_open(url, l->n, &ld, err);

  if (!status) status = doctor_read_on(ld, epoch, &l->rate, err);
  if (!status) status = insitu_loader_stats(ld, &st, err);
  if (!status) *throttled += st.throttled;
  insitu_loader_close(&ld);
  return status;
}

/* Measures as many numbers of requests in flight as there are below `most`, and that one. all: it
 * is what a job has by default. */
static insitu_status doctor_levels(
    const char *url, uint64_t most, bool all, uint64_t *throttled, insitu_error *err) {
  struct doctor_level level[DOCTOR_LEVELS] = {{0}};
  uint64_t k = DOCTOR_FEWEST;

  for (unsigned n = 0;; k *= 4) {
    level[n].n = n == DOCTOR_LEVELS - 1 || 2 * k > most ? most : k;
    insitu_status status = doctor_measure(url, &level[n], n, throttled, err);
    if (status < 0) return status;
    if (level[n++].n < most) continue;
    doctor_tell_requests(level, n, all);
    return INSITU_OK;
  }
}

/* How many requests in flight the store takes. */
static void doctor_requests(const char *url) {
  insitu_loader *ld = NULL;
  insitu_error err = {0};
  insitu_status status = doctor_open(url, 0, &ld, &err);

  if (status < 0) {
    doctor_line(DOCTOR_WARNING, "requests", NULL, "not measured: %s", err.message);
    return;
  }
  const struct insitu__tune *t = insitu__store_tune(&ld->source.store);
  uint64_t usual = (uint64_t)t->most, most = insitu__base_min(usual, doctor.chunks);
  uint64_t throttled = 0;
  bool fixed = !t->on;
  insitu_loader_close(&ld);

  if (fixed) {
    struct doctor_level one = {0};
    char rate[16];
    status = doctor_measure(url, &one, 0, &throttled, &err);
    tool_bytes(rate, (uint64_t)one.rate);
    if (status >= 0)
      doctor_line(
          DOCTOR_OK, "requests", NULL, "%s/s; the options fix %" PRIu64 " in flight", rate, usual);
  } else if (most < DOCTOR_FEWEST) {
    doctor_line(DOCTOR_OK, "requests", NULL,
        "not measured: %" PRIu64 " chunks do not show how many at once are best", doctor.chunks);
  } else {
    status = doctor_levels(url, most, most == usual, &throttled, &err);
  }
  if (status < 0) doctor_line(DOCTOR_WARNING, "requests", NULL, "not measured: %s", err.message);
  if (throttled)
    doctor_line(DOCTOR_WARNING, "slowed", "set max_inflight lower, or ask for a higher quota",
        "the server asked %" PRIu64 " times to slow down", throttled);
}

/* False: nothing of it can be read. */
static bool doctor_remote(struct tool_archive *a) {
  struct doctor_ask q = {.remote = NULL};
  struct insitu__http_timing cold = {0}, warm;
  const char *found = NULL;
  for (size_t i = 0; i < TOOL_COUNT(doctor_keys) && !found; i++) {
    doctor_reset(&q);
    q.ask = (struct insitu__cloud_ask){.what = INSITU__CLOUD_READ, .key = doctor_keys[i]};
    doctor_send(a, &q);
    /* now it is known where a region and credentials come from */
    if (!i) doctor_identity(&insitu__remote_of(insitu__store_base(&a->store))->cloud);
    if (q.status < 0 || (q.request.answer.status != 200 && q.request.answer.status != 404)) {
      doctor_refused(&q, "request");
      doctor_reset(&q);
      return false;
    }
    if (!i) cold = q.timing;
    if (q.request.answer.status == 200) found = doctor_keys[i];
  }
  doctor_reset(&q);
  q.ask =
      (struct insitu__cloud_ask){.what = INSITU__CLOUD_READ, .key = found ? found : doctor_keys[0]};
  doctor_send(a, &q);
  warm = q.timing;
  doctor_reset(&q);
  doctor_timing(&cold, &warm,
      !strncmp(insitu__remote_of(insitu__store_base(&a->store))->cloud.base, "https:", 6));
  doctor_list(a);
  if (found) doctor_ranges(a, found);
  else
    doctor_line(DOCTOR_PROBLEM, "metadata",
        "check the path in the url: it names the folder that holds zarr.json, .zgroup or .zarray",
        "the server answers, but there is no zarr.json, .zmetadata, .zgroup or .zarray");
  return found != NULL;
}
#endif

static void doctor_archive(const char *url) {
  struct tool_archive a;
  const insitu_loader_desc desc = tool_desc(url);
  insitu_error err = {0};
  char path[INSITU__MAX_KEY];
  if (!tool_json) printf("\n");
  int kind;
  if (insitu__text_url_parse(url, &kind, path, sizeof path, NULL) == INSITU_OK &&
      kind < INSITU__TEXT_URL_HTTP && access(path, F_OK) == 0)
    doctor_file_system(path);
  if (tool_archive_store(&desc, 0, &a, &err) < 0) {
    doctor_line(DOCTOR_PROBLEM, "store", NULL, "%s", err.message);
    return;
  }
#ifndef INSITU_NO_CURL
  if (insitu__store_is_remote(&a.store) && !doctor_remote(&a)) {
    tool_archive_close(&a);
    return;
  }
#endif
  tool_archive_close(&a);
  int64_t begun = insitu__base_now();
  if (tool_archive_open_with(url, 0, &a, &err) < 0) {
    doctor_line(DOCTOR_PROBLEM, "archive", NULL, "%s", err.message);
    return;
  }
  double ms = 1e3 * doctor_since(begun);
  bool consolidated = a.group.nodes >= 0,
       slow = !consolidated && !a.group.is_array && (a.n_paths > 50 || ms > 500);
  doctor_line(slow ? DOCTOR_WARNING : DOCTOR_OK, "archive",
      slow
          ? "consolidate the metadata once (zarr.consolidate_metadata): opening then reads one file"
          : NULL,
      "Zarr v%d, %s, opened in %.1f ms", a.group.format,
      a.group.is_array ? "one array"
      : consolidated   ? "consolidated metadata"
                       : "metadata not consolidated",
      ms);
  if (a.store.ops == &insitu__zip_ops) {
    bool deflated = insitu__zip_of(&a.store)->index.largest > 0;
    doctor_line(deflated ? DOCTOR_WARNING : DOCTOR_OK, "zip file",
        deflated ? "pack chunks as they are (zip -0): reads of a deflated member begin at its "
                   "start, and inflate what is compressed"
                 : NULL,
        "%" PRIu64 " objects, %s", a.store.n_objects,
        deflated ? "some of them deflated" : "stored as they are");
  }
  if (a.list_error.status && !insitu__store_is_remote(&a.store))
    doctor_line(DOCTOR_PROBLEM, "listing", NULL, "%s", a.list_error.message);
  doctor_arrays(&a);
  tool_archive_close(&a);
#ifndef INSITU_NO_CURL
  if (doctor.probes) doctor_requests(url);
#endif
}

static int doctor_run(int argc, char **argv) {
  if (argc > 1) return tool_usage_error("'%s' is one argument too many", argv[1]);
  doctor.json.to = stdout;
  if (tool_json) {
    tool_json_object(&doctor.json, NULL);
    tool_json_array(&doctor.json, "checks");
  }
  doctor_machine();
  if (argc) doctor_archive(argv[0]);
  if (tool_json) {
    tool_json_end(&doctor.json);
    tool_json_u64(&doctor.json, "warnings", doctor.warnings);
    tool_json_u64(&doctor.json, "problems", doctor.problems);
    tool_json_bool(&doctor.json, "ok", !doctor.problems);
    tool_json_end(&doctor.json);
  } else if (doctor.problems + doctor.warnings)
    printf("\n%u problem%s, %u warning%s\n", doctor.problems, doctor.problems == 1 ? "" : "s",
        doctor.warnings, doctor.warnings == 1 ? "" : "s");
  else printf("\nAll is well%s.\n", argc ? "" : "; insitu doctor ARCHIVE looks at an archive too");
  return doctor.problems ? TOOL_FAILED : TOOL_OK;
}

static const struct tool_option doctor_options[] = {TOOL_STORE_OPTIONS};
static const struct tool_command doctor_command = {.name = "doctor",
    .arguments = "[URL] [OPTIONS]",
    .options = doctor_options,
    .n_options = TOOL_COUNT(doctor_options),
    .summary = "what this machine offers, and what holds a loader back",
    .details = "  URL   an archive to look at too: its file system, or its server (endpoint, "
               "region, credentials,\n"
               "        times of a request, ranges, listing), its metadata, one chunk's read and "
               "decode, and\n"
               "        how many requests in flight a server takes: for that up to 10 s and 256 "
               "MiB are read\n\n"
               "Each line is ok, a warning (it works, but not at its best) or a problem, with what "
               "to do. Exit\n"
               "status 1 when there is a problem.\n\n" TOOL_STORE_HELP "examples: insitu doctor\n"
               "          insitu doctor s3://bucket/era5.zarr --anonymous -O region=us-east-1\n"
               "          INSITU_IO=epoll insitu doctor winds.zarr\n",
    .run = doctor_run};
