/* insitubatch.h: shuffled, split-aware training batches straight out of Zarr archives, from C.
 *
 * An existing Zarr archive goes in; ready batches in host memory come out, in an order that is exact, resumable and the same at
 * every world size, inside a memory bound that you set, with no converted copy of the data. This release reads local
 * directories (file://), zip files (zip://) and objects in memory (memory://).
 *
 *     #define _GNU_SOURCE
 *     #define INSITU_IMPLEMENTATION   // in one .c file; every other file only includes the header
 *     #include "insitubatch.h"
 *
 *     insitu_variable vars[] = {{.label = "x", .path = "uwnd"}, {.label = "y", .path = "uwnd", .offset = 1}};
 *     insitu_loader_desc desc = {.api = INSITU_API, .url = "winds.zarr", .variables = vars, .n_variables = 2, .batch_size = 16};
 *     insitu_error err = {0};
 *     insitu_loader *loader;
 *     insitu_iter *train;
 *     if (insitu_loader_open(&desc, &loader, &err) ||
 *         insitu_iter_open(loader, &(insitu_iter_desc){.api = INSITU_API}, &train, &err))
 *       return fprintf(stderr, "%s\n", err.message), 1;
 *     for (int epoch = 0; epoch < 10; epoch++) {
 *       insitu_batch *batch;
 *       insitu_status status;
 *       while ((status = insitu_iter_next(train, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
 *         step(batch->arrays[0].data, batch->arrays[1].data, batch->rows);
 *         insitu_batch_release(&batch);
 *       }
 *       if (status != INSITU_END) return fprintf(stderr, "%s\n", err.message), 1;
 *     }
 *     insitu_loader_close(&loader);
 *
 *     cc -O2 train.c -luring -lcurl -llz4 -lzstd -lpthread
 *
 * 1. WORDS
 *   sample axis      the axis that samples are drawn along, usually time; any axis of the arrays may be it
 *   anchor           a sample's index on it; a variable is read at anchor + offset
 *   chunk            what one read returns: a stored chunk, or an inner chunk of a shard
 *   reference chunk  samples of the coarsest chunk along the sample axis among the variables
 *   unit             what the shuffle moves whole: unit_chunks reference chunks
 *   window           units of one lane that are mixed together; block_chunks sets it
 *   lane             one of `lanes` equal parts of an epoch's order; every batch takes the same number of rows from each
 *   split            train, val, test (or all): which anchors
 *   slab             the memory of one batch
 *
 * 2. HOW IT WORKS
 *   The order of an epoch is a pure function of desc, geometry, split, seed and epoch. So each chunk is read when a batch soon
 *   to be delivered first needs it, decoded once, and every row of it goes directly to its place in each batch that wants it,
 *   including batches a whole window ahead. A slab whose rows have all arrived is delivered, strictly in order. Raw chunks are
 *   read by the kernel into the batch itself. Chunks that wait for a disk are read by the reactor, many at once; small ones that
 *   the page cache holds by the decoding threads, without waiting. What an archive and a configuration cost is known before any
 *   data is read: see insitu_loader_plan.
 *
 * 3. MEMORY
 *   An iterator owns (prefetch_depth + span - 1 + max_held) slabs, where span is how many batches a window reaches into, and
 *   tables of the chunks in its windows; a loader owns max_inflight chunk buffers and coroutine stacks, decode_threads times
 *   decode scratch, and indexes of shards (in a sixteenth of memory_budget, but at least one for each chunk in flight);
 *   insitu_read takes what it needs while it runs.
 *   insitu_plan names all of these in bytes; what does not fit memory_budget is refused when it is opened. Beside it stands a
 *   split of scattered chunks: under 200 bytes for each piece of it. Nothing is allocated once the rings are full.
 *
 * 4. THREADS
 *   One reactor thread runs all waiting as coroutines over io_uring, or over epoll and a small read pool where io_uring is
 *   forbidden; decode_threads workers decode, and read what the page cache holds. Own threads are named insitu-*, block all
 *   signals but those of faults and install no handlers. There is no global state: several loaders live side by side. Each
 *   function says which threads may call it. The log function and decoders of desc.codecs run on loader threads and inside your
 *   calls, perhaps several at once, and may not call the loader. With inline_io or plan_only there is no thread at all: all work
 *   happens inside the calls of the thread that opened the loader. A forked child may not use its parent's loader
 *   (INSITU_E_FORKED) and may open its own.
 *
 * 5. ERRORS
 *   Every call that can fail returns a status and takes an insitu_error of yours, or NULL. An error belongs to the batch that
 *   it damages; earlier batches are delivered first, then insitu_iter_next returns it every time until insitu_iter_set_epoch or
 *   insitu_iter_restore. Only an object that does not exist is an absent chunk; every other failure to read or decode is an
 *   error, or with on_bad_chunk = INSITU_FILL a counted and logged hole.
 *
 * 6. FORMATS AND STORES
 *   Zarr v2 and v3, consolidated or not, nested groups, both byte orders, C and F order. Elements: bool, integers, float16/32/64,
 *   bfloat16, complex; datetime64, timedelta64 (as int64); S, U and raw bytes of fixed size (bytes or code points, along one more
 *   axis, the last); strings of any length, which insitu_read_strings reads and no batch holds.
 *   Codecs: blosc (version 1: lz4, zstd, blosclz, zlib, snappy inside; byte and bit shuffle), zstd, lz4, gzip, zlib, bz2; checksums
 *   crc32c, crc32, adler32, fletcher32; the filters shuffle, delta, fixedscaleoffset, quantize, bitround, astype and packbits as
 *   numcodecs decodes them (with numpy 2's promotion), v3's transpose, and scale_offset, cast_value and packbits as zarr-extensions
 *   specifies them; your own (desc.codecs). Those that take another library are there with its macro, see 7. Sharding, nested too:
 *   inner chunks are read by themselves, neighbours at once, unless a codec lies around the shard, which is then read whole. All
 *   else is refused by name when it is opened, but what is inside blosc, which only a chunk tells, when it is decoded. With
 *   inline_io the decoders convert in your thread's floating-point environment: flush to zero or another rounding changes their
 *   results.
 *   CF conventions, where a variable asks (decode = INSITU_CF): NaN where the stored value equals _FillValue, missing_value (up to
 *   4) or, as in xarray, the fill_value of a Zarr v2 array without a _FillValue; else stored * scale_factor + add_offset, in
 *   float64, each operation rounded once, and then to the output's type: the same bits on every machine, every NaN the same quiet
 *   one. INSITU_AS_STORED then means float32 for integers of up to 16 bits and floats of up to 32, else float64. _Unsigned is
 *   honoured; valid_min, valid_max and valid_range are not applied. An absent chunk is its fill value decoded, usually NaN.
 *   Dates select samples (sample_from and sample_to; from and to of a split) as in xarray: both ends are inclusive, and an end
 *   covers all of the year, month, day, hour, minute or second that it names. They are looked up when a loader is opened, in the
 *   coordinate of the sample axis, which is read whole and must rise or fall throughout. It is datetime64, or its units are "<unit>
 *   since <date>", from weeks to nanoseconds, and its calendar standard (gregorian), proleptic_gregorian, julian, noleap (365_day),
 *   all_leap (366_day) or 360_day; standard and julian have no year 0. A day that the calendar leaves out, such as February 29 in
 *   noleap, holds no sample and stands where it would be. Dates beyond the coordinate's ends are cut to them; a range without any
 *   sample is refused.
 *   Archives are read from directories (a path or file://), from your own memory (memory://, with desc.objects), and from zip
 *   files: a path or URL that names one, or zip://; what follows the file's name is the archive's place in it. Members may be
 *   stored, which are read like files once their place is known (one small read more, the first time), or with
 *   INSITU_WITH_ZLIB deflated, whose every read inflates from the member's beginning: store shards without (zip -0). Where no place
 *   is given and all lies in one top-level directory, that is the root. A zip file must not change while it is open.
 *
 * 7. CONFIGURATION (define before the #include that implements)
 *   INSITU_IMPLEMENTATION   bring the implementation, in one file of the program
 *   INSITU_STATIC           make every function static; several files may then each hold a copy
 *   INSITU_DEF              your own linkage for the public functions
 *   INSITU_WITH_LIBDEFLATE  gzip, zlib (inside blosc, too), crc32 and adler32 by libdeflate; link -ldeflate
 *   INSITU_WITH_ZLIB        the same by zlib, at half the speed: used where libdeflate is not defined; and deflated
 *      members of zip files; link -lz
 *   INSITU_WITH_BZIP2       bz2; link -lbz2
 *   INSITU_WITH_SNAPPY      snappy inside blosc; link -lsnappy
 *   INSITU_WITH_OPENSSL     service accounts of Google Cloud (RS256); link -lcrypto
 *   INSITU_NO_URING         no io_uring and no liburing; reads go through the epoll backend
 *   INSITU_REALLOC(p, n), INSITU_FREE(p)   your allocator for everything but what is mapped (batches, chunk buffers,
 *      indexes of shards, stacks) and what zstd, libdeflate (once for each decoding thread) and liburing allocate; any thread
 *   INSITU_CORO_STACK       bytes of a coroutine's stack (64 KiB; untouched pages cost nothing)
 *   INSITU_CORO_UCONTEXT    switch coroutines by ucontext instead of assembly: about 20 times slower
 *   INSITU_VALGRIND         tell Valgrind of coroutine stacks (a few instructions per stack); on by itself without NDEBUG
 *   INSITU_WATCHDOG_S       seconds (30) without a finished chunk after which a warning names the oldest one in flight
 *   NDEBUG                  leaves out assertions of this header's own invariants
 *   INSITU_DEBUG            fill a batch's memory with 0xA5 before its rows arrive. AddressSanitizer does it too, and then reports
 *      any access to a released batch
 *   Environment, read when a loader is opened; nothing else of it is:
 *   INSITU_IO=uring|epoll   the backend, where desc.io does not say
 *   INSITU_LOG=off|error|warn|info|debug   what is logged, where desc.log_level does not say
 *   INSITU_CHECK=1          desc.check = 1: one row of every batch, and one of each variable of an iterator's first batch, are read
 *      again before delivery: whole stored objects, element by element, with none of the code that filled the batch. A difference
 *      is INSITU_E_CHECK, a bug of this library. Slow, and outside memory_budget; insitu_stats.checked_rows counts
 *
 * 8. CONTENTS
 *   Part A, declarations: C11 and C++, needs no macro and no other header.
 *   Part B, implementation, each section below the ones it uses:
 *   >>platform   what it runs on, system headers
 *   >>limits     named bounds on what files may ask for
 *   >>base       arithmetic, byte order, clock
 *   >>error      filling an insitu_error
 *   >>memory     allocation, mapped pages, what this process may use
 *   >>array      growing arrays (stb_ds)
 *   >>text       JSON (jsmn), writing text, near names, URLs
 *   >>time       CF time: units, calendars, dates
 *   >>order      the epoch order: permutation, lanes, windows
 *   >>coro       stackful coroutines
 *   >>ring       io_uring, and the epoll backend
 *   >>reactor    the loop, workers, timers, gates
 *   >>http       requests, by libcurl
 *   >>sign       SHA-256, request signatures, dates, XML and INI of cloud services
 *   >>cloud      endpoints, options and credentials of remote stores
 *   >>codec      blosc, zstd, lz4, gzip, zlib, bz2, checksums, filters, yours, shards
 *   >>store      where objects live: local directories, memory, remote stores, zip files
 *   >>zarr       metadata, chunk keys, strings, groups
 *   >>cf         CF conventions: packed and missing values
 *   >>geometry   arrays, variables, how a batch is laid out
 *   >>box        the N-D copy and conversion kernel
 *   >>split      train, val, test; units; manifests
 *   >>plan       what is read when, where rows go, cost, shuffle quality
 *   >>cache      indexes of shards, each read once
 *   >>loader     chunks on their way, slabs, iterators, insitu_read, strings, dates, statistics and log, desc.check
 *   >>public     the functions of part A
 *
 * License: MIT, see the end of the file. */
#ifndef INSITUBATCH_H
#define INSITUBATCH_H
#include <stdint.h>

#ifndef INSITU_DEF /* linkage of the public functions */
#ifdef INSITU_STATIC
#define INSITU_DEF static __attribute__((unused))
#else
#define INSITU_DEF extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== part A: declarations ==== */

enum {
  INSITU_API = 1,      /* version of the structs below: goes into the api field of every desc */
  INSITU_FOREVER = -1, /* timeout_ms of insitu_iter_next */
  INSITU_AUTO = 0      /* what zero means in every enum field of a desc: the documented default */
};

/* ---- status and error ---- */
/* 0: done. > 0: not an error, the insitu_error is untouched. < 0: an error; on an iterator it is sticky. */
typedef int32_t insitu_status;
enum {
  INSITU_OK = 0,
  INSITU_END = 1,             /* the epoch is over; the next call of insitu_iter_next begins the following one */
  INSITU_TIMEOUT = 2,         /* no batch within timeout_ms; call again */
  INSITU_BUSY = 3,            /* you hold max_held batches: release one, then call again */
  INSITU_CANCELLED = 4,       /* insitu_loader_cancel was called */
  INSITU_E_API = -1,          /* desc.api is 0 or newer than this implementation */
  INSITU_E_ARG = -2,          /* an argument or a desc field makes no sense */
  INSITU_E_BUDGET = -3,       /* the configuration cannot fit memory_budget */
  INSITU_E_NOMEM = -4,        /* the system gave no memory or thread */
  INSITU_E_NOTFOUND = -5,     /* no such path, array or dimension */
  INSITU_E_NOT_ZARR = -6,     /* the path exists and holds no Zarr metadata */
  INSITU_E_JSON = -7,         /* a metadata document or manifest is not JSON */
  INSITU_E_FORMAT = -8,       /* it is JSON, but not what the Zarr specification allows */
  INSITU_E_CODEC = -9,        /* a codec this build cannot decode */
  INSITU_E_DTYPE = -10,       /* a data type, or a conversion, this build cannot batch */
  INSITU_E_GRID = -11,        /* a chunk grid other than the regular one */
  INSITU_E_UNSUPPORTED = -12, /* any other feature this build does not know */
  INSITU_E_SHAPE = -13,       /* the variables do not fit together, or a selection leaves its array */
  INSITU_E_SPLIT = -14,       /* the split holds no batch, or a manifest does not fit the archive */
  /* a chunk has the wrong length, a bad checksum or does not decode (of a raw chunk: as far as it was read); or a zip file is
   * damaged */
  INSITU_E_CORRUPT = -15,
  INSITU_E_ABSENT = -16,       /* a chunk is absent, and its fill value is NaN or on_absent_chunk says raise */
  INSITU_E_IO = -17,           /* the system refused a read; see sys_errno */
  INSITU_E_STATE = -18,        /* an insitu_state of another configuration, or not a state */
  INSITU_E_WRONG_THREAD = -19, /* inline_io: only the thread that opened the loader may call */
  INSITU_E_FORKED = -20,       /* a forked child uses its parent's loader */
  INSITU_E_CHECK = -21,        /* desc.check: a row that was to be delivered differs from what the slow path reads */
  INSITU_E_HTTP = -22,   /* a server could not be reached, or its answer makes no sense, after all retries; see http_status */
  INSITU_E_AUTH = -23,   /* credentials are missing, wrong or expired, or do not allow it (401, 403) */
  INSITU_E_CHANGED = -24 /* an object is not the one that was read before: its ETag or size changed */
};

/* Caller-owned; zero it before use. The first error stays until you zero it. Layout fixed for ever. Credentials never appear. */
typedef struct insitu_error {
  int32_t status;      /* an INSITU_E_... */
  int32_t sys_errno;   /* errno of the system call that failed, or 0 */
  int32_t http_status; /* of the server's last answer, or 0 */
  int32_t retryable;   /* 1: a transient fault that outlasted all retries; the same call may work later */
  char message[1008];  /* rank, stage, array, chunk: cause; what to do. Credentials and query strings are left out */
} insitu_error;

/* The name of a status, such as "INSITU_E_CORRUPT". [any thread] */
INSITU_DEF const char *insitu_status_name(insitu_status status);

/* ---- what to read ---- */
/* Data types: DLPack type code << 8 | bits. */
enum {
  INSITU_AS_STORED = 0,
  INSITU_I8 = 0x008,
  INSITU_I16 = 0x010,
  INSITU_I32 = 0x020,
  INSITU_I64 = 0x040,
  INSITU_U8 = 0x108,
  INSITU_U16 = 0x110,
  INSITU_U32 = 0x120,
  INSITU_U64 = 0x140,
  INSITU_F16 = 0x210,
  INSITU_F32 = 0x220,
  INSITU_F64 = 0x240,
  INSITU_BF16 = 0x410, /* the upper half of a float32 */
  INSITU_C64 = 0x540,
  INSITU_C128 = 0x580,
  INSITU_BOOL = 0x608
};

/* A half-open range on one axis of a stored array, the sample axis excepted. */
typedef struct insitu_slice {
  const char *dim;     /* the axis by dimension name; or NULL, and */
  int32_t axis;        /* its number in the stored array */
  int64_t start, stop; /* elements [start, stop); stop 0: to the end */
} insitu_slice;

/* One output of a batch: a labelled view of a stored array. Several variables may share an array; each of its chunks is then read
 * and decoded once per window for all of them. Shape in the batch: (rows[, n_steps], the other axes in stored order, sliced), C
 * order; behind these, elements of S, U and raw types have an axis of their own, of INSITU_U8 or, of U, INSITU_U32. */
typedef struct insitu_variable {
  const char *label;    /* name in the batch */
  const char *path;     /* array in the archive, "group/array"; NULL: label; "": the archive's root is the array */
  int64_t offset;       /* read at anchor + offset, in samples */
  const int64_t *steps; /* optional: read at anchor + offset + steps[i] for each i, giving the axis of n_steps */
  uint64_t n_steps;
  int32_t dtype;              /* INSITU_AS_STORED (byte order made native), INSITU_F32 or INSITU_F64: converted in the copy */
  int32_t decode;             /* INSITU_CF: packed and missing values by the array's attributes; see FORMATS in the manual */
  const insitu_slice *slices; /* optional */
  uint64_t n_slices;
} insitu_variable;

/* ---- the loader's configuration ---- */
enum { INSITU_CF = 1 };                                                     /* insitu_variable.decode */
enum { INSITU_TRAIN = 0, INSITU_VAL = 1, INSITU_TEST = 2, INSITU_ALL = 3 }; /* splits */
enum { INSITU_IO_URING = 1, INSITU_IO_EPOLL = 2 };   /* desc.io; AUTO: $INSITU_IO (uring, epoll), else the best that works */
enum { INSITU_RAISE = 1, INSITU_FILL = 2 };          /* on_bad_chunk, on_absent_chunk */
enum { INSITU_SHUFFLED = 1, INSITU_SEQUENTIAL = 2 }; /* iter_desc.order; AUTO: train shuffled, others sequential */
/* desc.log_level, one more than the last level that is logged; AUTO: $INSITU_LOG (off, error, warn, info, debug), else warnings.
 * info: a line at open and one per finished epoch; debug: one per chunk read. */
enum { INSITU_LOG_OFF = -1, INSITU_LOG_ERROR = 1, INSITU_LOG_WARN = 2, INSITU_LOG_INFO = 3, INSITU_LOG_DEBUG = 4 };

/* Either fractions of the reference chunks (one array's coarsest chunks along the sample axis), in the order train, val, test; or
 * sample-exact ranges, by index or by date. All three all zero: fractions 0.8, 0.1, 0.1. */
typedef struct insitu_split_range {
  double fraction;
  int64_t start, stop;   /* samples [start, stop) */
  const char *from, *to; /* the same by date, as sample_from and sample_to; NULL: to that end */
} insitu_split_range;

/* An object of an archive in memory, such as "t2m/.zarray" or "t2m/0.0". */
typedef struct insitu_object {
  const char *key;   /* relative to the archive's root */
  const void *bytes; /* n of them; n = 0: any pointer */
  uint64_t n;
} insitu_object;

/* A codec of yours: it stands in for one that this library does not know, or knows in another way; but never for v3's bytes,
 * transpose and sharding_indexed, nor for what makes strings of any length. */
typedef struct insitu_codec {
  const char *name; /* Zarr v2: the id; v3: the name */
  /* Decodes the n bytes at src into dst, which has room for cap: what they decode to at most. *got: how many were written. In v2,
   * and in v3 behind the codec that makes bytes, it gives the bytes that it encoded; in v3 at that codec's own place elements in
   * native byte order and C order. config: the codec's JSON object as text (its name in quotes where v3 has no more); it lives as
   * long as the loader. An error status and message end up in the batch's error, with the name of array and chunk. Runs on the
   * decoding threads, several at once, and may not call the loader. */
  insitu_status (*decode)(
      void *user, const char *config, const void *src, uint64_t n, void *dst, uint64_t cap, uint64_t *got, insitu_error *err);
  void *user;
  /* Bytes of the largest encoded chunk, up to 2^32; 0: those of a decoded one, an eighth more, and 64 KiB. */
  uint64_t max_encoded;
} insitu_codec;

/* A setting of the store that desc.url names, such as {"region", "eu-west-1"}; see STORES in the manual. Unknown keys are
 * refused. */
typedef struct insitu_option {
  const char *key, *value;
} insitu_option;

/* Zero means default everywhere; insitu_loader_config returns the resolved values. Everything is copied at open but objects, their
 * keys and their bytes: they must stay as they are until the loader is closed. */
typedef struct insitu_loader_desc {
  uint32_t api;                 /* INSITU_API */
  const char *url;              /* a path, file:// or zip:// URL of a Zarr v2 or v3 group or array; or memory://, and any name */
  const insitu_object *objects; /* memory:// only: the archive, in any order */
  uint64_t n_objects;
  const insitu_option *options; /* of a remote store */
  uint64_t n_options;
  const char *cache_dir;      /* local directory that keeps what a remote store sent, for later epochs and runs; NULL: none */
  uint64_t cache_budget;      /* bytes that it may hold (16 GiB) */
  const insitu_codec *codecs; /* yours: looked up before the ones that are built in */
  uint64_t n_codecs;
  const insitu_variable *variables; /* at least one, but with plan_only */
  uint64_t n_variables;
  const char *sample_dim; /* the sample axis by dimension name, such as "time"; or NULL, and */
  int32_t sample_axis;    /* its number, the same in every array (default 0) */
  uint64_t batch_size;    /* rows per rank and batch (32) */
  uint64_t seed;          /* of the order and of a shuffled split */
  int32_t rank, world;    /* this process of how many (0 of 1); never from the environment */
  /* order: with the geometry and the split, these alone decide which sample comes when */
  uint64_t block_chunks; /* reference chunks that are mixed together, over all lanes and ranks (64) */
  uint64_t unit_chunks;  /* reference chunks that the shuffle moves as one (1); more: fewer re-reads with offsets */
  uint64_t lanes;        /* default: largest divisor of the global batch that is <= block_chunks / unit_chunks and <= units / 8 */
  /* split */
  int64_t sample_start, sample_stop; /* only samples [start, stop) take part; stop 0: to the end */
  /* The same by date: only samples from the begin of sample_from to the end of sample_to, "1979", "1979-06", "1979-06-01" or
   * "1979-06-01T12", either NULL: to that end; see FORMATS in the manual. insitu_loader_config has start and stop instead. */
  const char *sample_from, *sample_to;
  /* Their coordinate (the array named as the sample axis, beside the first variable's or at the root). */
  const char *time_path;
  insitu_split_range split[3];
  int32_t split_shuffled; /* fractions: draw the chunks at random (by seed) instead of contiguously */
  int32_t split_spill;    /* let windows read samples outside their split; default: such anchors are dropped, counted */
  uint64_t split_gap;     /* samples left out between two neighbouring splits */
  const char *manifest;   /* path of a JSON manifest that decides the split instead */
  /* holes */
  int32_t on_bad_chunk;    /* INSITU_RAISE (default), or INSITU_FILL: fill value, counted and logged */
  int32_t on_absent_chunk; /* INSITU_RAISE, INSITU_FILL; default: fill, but raise where the fill value is NaN */
  /* resources: they never change the order */
  uint64_t prefetch_depth; /* batches made ready ahead of next (32 MiB of them, at least 4, at most 64) */
  uint64_t max_inflight;   /* chunks being read or decoded at once (32, fewer above 1 MiB each, more up to 64 KiB each) */
  uint64_t decode_threads; /* default: the cores this process may use */
  uint64_t memory_budget;  /* bytes, over all iterators; default: half of the memory this process may use */
  int32_t io;              /* INSITU_IO_URING, INSITU_IO_EPOLL */
  int32_t inline_io;       /* no thread at all: the reactor and the decoders run inside insitu_iter_next */
  int32_t plan_only;       /* no thread, no batch memory: for plans and insitu_read, which needs no variables; no iterators */
  int32_t check;           /* read rows of each batch again in another way and compare; see INSITU_CHECK in the manual */
  int32_t hold_epoch;      /* begin an epoch only when next is called after END; default: prefetch it while one drains */
  int32_t log_level;       /* INSITU_LOG_... */
  void (*log)(void *user, int32_t level, const char *line); /* level 0 error to 3 debug; NULL: to stderr, on rank 0 only */
  void *log_user;
} insitu_loader_desc;

typedef struct insitu_iter_desc {
  uint32_t api;      /* INSITU_API */
  int32_t split;     /* INSITU_TRAIN, INSITU_VAL, INSITU_TEST, INSITU_ALL */
  int32_t order;     /* INSITU_SHUFFLED, INSITU_SEQUENTIAL */
  uint32_t max_held; /* batches you may hold at once (2) */
  uint64_t epoch;    /* first epoch */
} insitu_iter_desc;

/* ---- batches ---- */
/* Where to resume: version, hashes of geometry, variables and split, seed, epoch, next global batch, lanes, window, unit, global
 * batch, all little-endian. Equal on every rank; fwrite it as it is. A shuffled one may be restored at another world size
 * with the same global batch. */
typedef struct insitu_state {
  unsigned char bytes[96];
} insitu_state;

/* Library-owned. C order; strides in elements. */
typedef struct insitu_array {
  const char *name;
  void *data;                /* 256-byte aligned */
  uint64_t bytes, row_bytes; /* of all rows, of one */
  const int64_t *shape, *strides;
  int32_t ndim, dtype;
} insitu_array;

/* Yours, writable, from next to release, closing the iterator or loader in between included. All it points to dies with it. */
typedef struct insitu_batch {
  uint64_t epoch, index; /* index within the epoch; the same on every rank */
  uint64_t rows;         /* batch_size, or fewer (even 0) in the last batch of a sequential epoch */
  uint64_t n_arrays;
  const insitu_array *arrays;    /* in the order of desc.variables */
  const int64_t *sample_indices; /* (rows): the anchors */
  insitu_state after;            /* restore this to go on behind this batch */
} insitu_batch;

/* ---- what is known before reading ---- */
/* What one epoch of a split costs. Counts are of this rank unless they say global. */
typedef struct insitu_plan {
  uint32_t order_version, estimated;        /* estimated 1: the reads were extrapolated from evenly spaced windows */
  uint64_t samples;                         /* global: anchors of the split */
  uint64_t batches, rows;                   /* per epoch */
  uint64_t dropped_edge;                    /* global: anchors whose window leaves the split or the archive */
  uint64_t dropped_tail;                    /* global: anchors dropped each epoch to fill the last batch (shuffled only) */
  uint64_t units, unit_rows, lanes, window; /* global: units; rows of a full one; lanes; units of one lane's window */
  uint64_t span;                            /* T: batches that one window's rows can fall into */
  uint64_t reads,
      distinct; /* chunks read per epoch, re-reads included (at most: exact unless slices of one array differ); different ones */
  uint64_t read_bytes;        /* decoded bytes of reads */
  uint64_t wanted;            /* chunk reads if every variable and step read for itself */
  double amplification;       /* reads / distinct: 1 means that nothing is read twice */
  double dedup;               /* wanted / reads: what sharing chunks among variables and steps saves */
  uint64_t slabs, slab_bytes; /* ring of batches: how many; bytes of one */
  uint64_t table_bytes;       /* the iterator's bookkeeping */
  uint64_t inflight_bytes;    /* encoded chunks, decode scratch and coroutine stacks of the whole loader */
  uint64_t cache_bytes;       /* indexes of shards that the whole loader keeps */
  double variance_ratio;      /* expected, see insitu_quality; 1 is an ideal shuffle; 0: sequential */
} insitu_plan;

/* Measured over one epoch's order (its first 2^20 rows at most). */
typedef struct insitu_quality {
  double variance_ratio; /* B Var(batch mean of source rank) / sigma^2 * (n - 1)/(n - B); iid: 1 */
  double gap_score;      /* mean |difference of source rank| of neighbours in delivery order over n / 3; iid: 1 */
  uint64_t adjacent;     /* neighbours in delivery order that are neighbours in the archive; iid: about 2 */
  uint64_t rows;
} insitu_quality;

/* What limits the loader. NONE: no batch was delivered yet. CONSUMER: under 5 % of the time is spent inside next. DECODE: else, and
 * the workers are busy for more than 80 % of theirs. READ: else. */
enum { INSITU_STAGE_NONE = 0, INSITU_STAGE_CONSUMER = 1, INSITU_STAGE_READ = 2, INSITU_STAGE_DECODE = 3 };
/* "none", "consumer", "read", "decode". [any thread] */
INSITU_DEF const char *insitu_stage_name(int32_t stage);

/* Since the loader was opened: of all iterators; reads, requests and bytes of insitu_read as well. */
typedef struct insitu_stats {
  uint64_t batches, rows; /* delivered */
  uint64_t reads;         /* chunks read or found absent */
  uint64_t rereads;       /* of them, those that another window of this rank and epoch, one that begins earlier, reads as well */
  uint64_t requests;      /* reads of the store for them: fewer where neighbours in a shard are read at once */
  uint64_t index_reads, index_bytes; /* besides: indexes of shards */
  uint64_t bytes_read, bytes_decoded;
  /* of a remote store: requests sent, retries and hedges included; of them retries; answers that asked to slow down (429, 503);
   * second requests for an answer that was late; bytes of bodies that arrived */
  uint64_t http_requests, retries, throttled, hedges, bytes_fetched;
  uint64_t disk_hits, disk_misses, disk_bytes; /* of cache_dir: reads it answered, reads it did not, bytes it gave */
  uint64_t absent_chunks, bad_chunks;          /* filled */
  uint64_t slab_bytes, slab_bytes_peak;        /* batch memory now and at most */
  uint64_t memory_bytes_peak;                  /* batches and chunk buffers in use, tables, decode scratch and stacks: at most */
  uint64_t memory_promised;                    /* what open iterators and chunks in flight may take, out of memory_budget */
  uint64_t inflight_peak;                      /* chunks in flight at most */
  uint64_t checked_rows;                       /* one variable and step each; see desc.check */
  double stall_s, stall_share;                 /* time spent inside next; its share of the time since next was first called */
  double first_batch_s;                        /* from opening the loader to the first batch */
  double next_p50_s, next_p95_s, next_p99_s,
      next_max_s; /* time inside next, of calls that gave a batch; within 4 % but for max */
  /* share of the workers' time spent at work, cached reads included, since next was first called (inline_io: of time in next) */
  double decode_busy;
  int32_t limiting_stage; /* INSITU_STAGE_... */
  char io[8];             /* "uring" or "epoll" */
} insitu_stats;

/* ---- loader: [any] thread unless marked ---- */
typedef struct insitu_loader insitu_loader;
typedef struct insitu_iter insitu_iter;
/* Opens the archive and reads its metadata, and the coordinate where dates select. On error *out is NULL. */
INSITU_DEF insitu_status insitu_loader_open(const insitu_loader_desc *desc, insitu_loader **out, insitu_error *err);
/* Closes its iterators, cancels what is in flight and joins its threads; waits for reads the kernel cannot cancel. Batches you
 * hold stay valid. [one thread, no other call at the same time] NULL is fine. */
INSITU_DEF void insitu_loader_close(insitu_loader **loader);
/* Every insitu_iter_next, insitu_read and insitu_read_strings returns INSITU_CANCELLED from now on. Also from a signal handler. */
INSITU_DEF void insitu_loader_cancel(insitu_loader *loader);
/* The configuration with its defaults resolved, but for what depends on the iterator (lanes: see insitu_plan); lives as long as
 * the loader. */
INSITU_DEF const insitu_loader_desc *insitu_loader_config(const insitu_loader *loader);
/* Output i as it will be in a full batch, data NULL; NULL past the last. */
INSITU_DEF const insitu_array *insitu_loader_array(const insitu_loader *loader, uint64_t i);
/* What an epoch of the iterator that desc describes would cost. Reads no chunk and allocates no batch. */
INSITU_DEF insitu_status insitu_loader_plan(
    const insitu_loader *loader, const insitu_iter_desc *desc, insitu_plan *out, insitu_error *err);
/* How well its epoch desc->epoch is shuffled. */
INSITU_DEF insitu_status insitu_loader_quality(
    const insitu_loader *loader, const insitu_iter_desc *desc, insitu_quality *out, insitu_error *err);
/* Never waits. */
INSITU_DEF insitu_status insitu_loader_stats(const insitu_loader *loader, insitu_stats *out, insitu_error *err);
/* Shape of what insitu_read gives, C order. */
typedef struct insitu_shape {
  int32_t ndim, dtype;
  int64_t shape[16];
  uint64_t bytes;
} insitu_shape;
/* Reads a whole array of the archive, or a box of it, now: coordinates, orography, masks. Of variable count path (or label), slices
 * (here on any axis), dtype and decode; offset and steps must be zero. dst NULL: only tells the shape, which may be NULL
 * otherwise. Chunks are read and decoded side by side, in memory that is taken from memory_budget meanwhile. An absent chunk is
 * its fill value, NaN too, unless on_absent_chunk is INSITU_RAISE; on_bad_chunk applies. Works beside open iterators and with
 * plan_only. [one thread at a time; with inline_io or plan_only the one that opened] */
INSITU_DEF insitu_status insitu_read(insitu_loader *loader, const insitu_variable *variable, void *dst, uint64_t dst_bytes,
    insitu_shape *shape, insitu_error *err);
/* Strings in C order. All of it is yours until insitu_strings_free. */
typedef struct insitu_strings {
  uint64_t n;
  const char *const *text; /* NUL-terminated: UTF-8, or what bytes the archive has */
  const uint64_t *bytes;   /* of each, the NUL not counted: there may be others inside */
  int64_t shape[16];
  int32_t ndim;
} insitu_strings;
/* Reads a whole array of strings: of any length (vlen-utf8, vlen-bytes, json2), or of fixed size (S, U, r*; the zeros at the end
 * of S and U are cut). For names and coordinates: chunk after chunk, up to 2^24 strings and 1 GiB, which memory_budget does not
 * count. An absent chunk is its fill value, unless on_absent_chunk is INSITU_RAISE. *out is NULL on error. [as insitu_read] */
INSITU_DEF insitu_status insitu_read_strings(insitu_loader *loader, const char *path, insitu_strings **out, insitu_error *err);
/* Frees it and sets *strings to NULL; strings and *strings may be NULL. [any thread] */
INSITU_DEF void insitu_strings_free(insitu_strings **strings);
/* All that is known of the loader as one JSON object: "config" (the desc, resolved, by the names of its fields, but for api,
 * objects, options, codecs, dates, plan_only and those of the log), "origins" (where each value with a default comes from),
 * "arrays" ("outputs" and "stored"), "plan" (of every split), "memory", "statistics".
 * Returns its length like snprintf and writes at most cap bytes, the NUL included; json may be NULL with cap 0. The length
 * changes with the statistics: leave room. 0: the handle is NULL or a parent's, memory is short, or it has more than 64 MiB.
 * Reads nothing, but planning a large archive takes as long as insitu_loader_plan for each split. */
INSITU_DEF uint64_t insitu_loader_describe(const insitu_loader *loader, char *json, uint64_t cap);
/* Writes the split as JSON (keys n_chunks, sample_chunk_size, n_samples, chunks{train,val,test}, seed), by atomic rename.
 * Chunk-aligned splits only. */
INSITU_DEF insitu_status insitu_manifest_save(const insitu_loader *loader, const char *path, insitu_error *err);

/* ---- iterator: one thread at a time unless marked; several may be open at once ---- */
/* Takes its batch memory from memory_budget. Prefetching starts at once. */
INSITU_DEF insitu_status insitu_iter_open(
    insitu_loader *loader, const insitu_iter_desc *desc, insitu_iter **out, insitu_error *err);
/* Batches you hold stay valid; they no longer count against memory_budget. */
INSITU_DEF void insitu_iter_close(insitu_iter **iter);
/* The next batch, in order. timeout_ms 0 polls, INSITU_FOREVER waits. OK, END, TIMEOUT, BUSY, CANCELLED, or a sticky error that
 * belongs to the batch it damaged: the batches before it are delivered first. */
INSITU_DEF insitu_status insitu_iter_next(insitu_iter *iter, int64_t timeout_ms, insitu_batch **out, insitu_error *err);
/* Goes to the start of an epoch and clears an error. At the boundary before that epoch, what is prefetched of it is kept. */
INSITU_DEF insitu_status insitu_iter_set_epoch(insitu_iter *iter, uint64_t epoch, insitu_error *err);
/* Goes on behind the batch that carried this state. E_STATE names the field that differs. */
INSITU_DEF insitu_status insitu_iter_restore(insitu_iter *iter, const insitu_state *state, insitu_error *err);
/* The anchor that row `row` of batch `batch` of this rank shows in an epoch. Pure, but sets up the epoch's order at every call:
 * for whole epochs use insitu_order_open. [any thread] */
INSITU_DEF insitu_status insitu_iter_locate(
    const insitu_iter *iter, uint64_t epoch, uint64_t batch, uint64_t row, int64_t *anchor, insitu_error *err);

/* ---- batch: [any] thread ---- */
INSITU_DEF const insitu_array *insitu_batch_find(const insitu_batch *batch, const char *name); /* NULL if there is none */
INSITU_DEF void insitu_batch_release(insitu_batch **batch);

/* ---- order: which anchor stands where in an epoch ----
 * The order that the loader delivers, as pure arithmetic: no store, no thread, no memory that grows with the epoch. Use it to
 * audit a shuffle, to reproduce the order in other code, or to plan reads. order_version 1: the same desc gives the same order in
 * every release and on every machine.
 * The shuffle moves units (runs of unit_rows anchors; irregular ones hold fewer). Position p is row p % global_batch of batch
 * p / global_batch and belongs to lane p % lanes. window units of a lane are mixed together. The epoch's last
 * anchors % global_batch are dropped.
 * sequential: every anchor exactly once, unmixed; each lane is one contiguous range of ceil(anchors / lanes), in order. The last
 * lanes may hold fewer or none, so that some positions of a batch are empty. seed and epoch then change nothing. */
enum { INSITU_ORDER_VERSION = 1 };
typedef struct insitu_order insitu_order; /* immutable: every function but close may be called from any thread at any time */
typedef struct insitu_order_desc {
  uint32_t api;                 /* INSITU_API */
  uint32_t sequential;          /* 0: shuffled, 1: the evaluation order */
  uint64_t units, unit_rows;    /* units * unit_rows is at most 2^61 */
  uint64_t seed, epoch;         /* any value */
  uint64_t global_batch, lanes; /* rows of a batch over all ranks; lanes divides it and is at most 2^20 */
  uint64_t window;              /* units of one lane's window */
  const uint64_t *irregular;    /* n_irregular pairs (unit, anchors it holds), units strictly ascending; copied by open */
  uint64_t n_irregular;
} insitu_order_desc;
typedef struct insitu_order_place {
  uint64_t unit, within; /* the anchor: the within-th of its unit */
  uint64_t lane, window; /* the lane that delivers it, and the index of its window in that lane */
} insitu_order_place;

/* INSITU_E_API, INSITU_E_ARG (err says which and why) or INSITU_E_NOMEM; *out is then NULL. Uses O(lanes + n_irregular). */
INSITU_DEF insitu_status insitu_order_open(const insitu_order_desc *desc, insitu_order **out, insitu_error *err);
/* Batches in the epoch; positions run from 0 to batches * global_batch - 1. */
INSITU_DEF uint64_t insitu_order_batches(const insitu_order *order);
/* What stands at a position. INSITU_END: nothing, the position's lane has run out (sequential only); INSITU_E_ARG: there is no
 * such position. *out is written on INSITU_OK alone. */
INSITU_DEF insitu_status insitu_order_at(const insitu_order *order, uint64_t position, insitu_order_place *out);
/* Where the within-th anchor of a unit stands: the inverse of insitu_order_at. INSITU_END: it is among the dropped ones of this
 * epoch; INSITU_E_ARG: no such anchor. *position is written on INSITU_OK alone. */
INSITU_DEF insitu_status insitu_order_where(const insitu_order *order, uint64_t unit, uint64_t within, uint64_t *position);
/* Frees it and sets *order to NULL; order and *order may be NULL. */
INSITU_DEF void insitu_order_close(insitu_order **order);
#ifdef __cplusplus
}
#endif
#endif /* INSITUBATCH_H */

#ifdef INSITU_IMPLEMENTATION
#ifndef INSITU_IMPLEMENTATION_ONCE
#define INSITU_IMPLEMENTATION_ONCE

/* >>platform --------------------------------------------------------------------------------------------------------------- */
#if !defined(_GNU_SOURCE)
#error "insitubatch.h: the file with INSITU_IMPLEMENTATION needs -D_GNU_SOURCE, or to define it before its first #include"
#endif
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "insitubatch.h: Linux on x86-64 or aarch64 only"
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <zstd.h>
#include <lz4.h>

/* >>limits ----------------------------------------------------------------------------------------------------------------- */
/* What metadata, chunks, manifests and descs may ask for at most. Each is far above what real archives and trainers use; they
 * keep damaged or hostile input from taking memory or time without bound. */
#define INSITU__MAX_DIMS 16
#define INSITU__MAX_CODECS 8         /* of one array's chain */
#define INSITU__MAX_SCALAR_MAP 64    /* entries of a cast_value's scalar_map */
#define INSITU__MAX_KEY 4096         /* bytes of an object's key or a path, its end included */
#define INSITU__MAX_META (64u << 20) /* bytes of one metadata document or manifest */
#define INSITU__MAX_JSON_DEPTH 64
#define INSITU__MAX_JSON_TOKENS (1u << 24)      /* strings, numbers, words and containers of one document */
#define INSITU__MAX_JSON_NUMBER 512             /* characters of one number or word */
#define INSITU__MAX_NEAR_NAME 128               /* longer names are not compared */
#define INSITU__MAX_LIST (1u << 20)             /* entries of one directory that a listing takes */
#define INSITU__MAX_OBJECTS (UINT64_C(1) << 32) /* of a memory store: 8 bytes each */
#define INSITU__MAX_MEMBERS (1u << 24)          /* of a zip file: 80 bytes each, and the name */
#define INSITU__MAX_DIRECTORY (1u << 30)        /* bytes of a zip file's central directory */
#define INSITU__MAX_DIM_NAME 256                /* bytes of a dimension's name, its end included */
#define INSITU__MAX_ELEMENT (1u << 16)          /* bytes of one element: fixed-size strings and raw bytes */
#define INSITU__MAX_FILL 1024                   /* bytes of a fill value that is not zero */
#define INSITU__MAX_STRINGS (UINT64_C(1) << 24) /* of an array */
#define INSITU__MAX_STRING_BYTES (1u << 30)     /* of all strings of an array */
#define INSITU__MAX_STRING_CHUNK (64u << 20)    /* bytes of one of its objects, stored or decoded */
#define INSITU__MAX_NODES 10000                 /* directories that a listing of the arrays of an unconsolidated archive visits */
#define INSITU__MAX_ROOT_SEARCH 512             /* directories searched for any metadata when the root has none */
#define INSITU__MAX_CHUNK                                                                                                        \
  (UINT64_C(1) << 31) /* decoded bytes of one stored chunk, of a shard's inner chunk where those are read */
#define INSITU__MAX_SCRATCH                                                                                                      \
  (UINT64_C(1) << 44)              /* bytes that one encoded chunk, or decoding it, may take: no sum of these wraps */
#define INSITU__MAX_SHARD_LEVELS 4 /* shards inside shards */
#define INSITU__MAX_SHARD_CHUNKS (UINT64_C(1) << 22) /* inner chunks of one shard: 16 bytes of index each */
#define INSITU__MAX_VARIABLES 1024
#define INSITU__MAX_USER_CODECS 256
#define INSITU__MAX_OPTIONS 256
#define INSITU__MAX_CONNECTIONS 4096
#define INSITU__MAX_HOSTS 8                    /* whose addresses are remembered */
#define INSITU__MAX_HEADERS (256u << 10)       /* bytes of a response's headers */
#define INSITU__MAX_STEPS (1u << 16)           /* of one variable */
#define INSITU__MAX_FIELDS (UINT64_C(1) << 24) /* chunks side by side across the sample axis */
#define INSITU__MAX_SAMPLES (INT64_C(1) << 48)
#define INSITU__MAX_COORDINATE (UINT64_C(1) << 26) /* samples that dates are looked up in: 8 bytes each, while a loader opens */
#define INSITU__MAX_OFFSET (INT64_C(1) << 40)      /* samples from the anchor, either way */
#define INSITU__MAX_LISTED_CHUNKS (UINT64_C(1) << 27) /* of a shuffled split or a manifest: 16 bytes each */
#define INSITU__MAX_LANES (UINT64_C(1) << 20)         /* 16 bytes each */
/* Anchors of an epoch (counted as if no unit were short) and rows of a global batch. With it every sum in >>order fits 63 bits
 * and half of a Feistel word fits 31, which insitu__order_round needs. */
#define INSITU__MAX_ORDER (UINT64_C(1) << 61)
#define INSITU__MAX_BATCH (UINT64_C(1) << 20) /* rows of a rank's batch */
#define INSITU__MAX_WORLD (1 << 20)
#define INSITU__MAX_EPOCH (UINT64_C(1) << 20)
#define INSITU__MAX_HELD (1u << 16)
#define INSITU__MAX_INFLIGHT (1u << 16)
#define INSITU__MAX_DEPTH (1u << 20) /* prefetch_depth */
#define INSITU__MAX_SIGN_ITEMS 64    /* headers, or parameters of the query, of a signed request */
#define INSITU__MAX_XML_DEPTH 32     /* elements within elements of an answer */
#define INSITU__MAX_PEM (1u << 16)   /* bytes of a private key's text */
#define INSITU__MAX_RSA 16384        /* bits of an RSA key: what libcrypto takes at most */

/* >>base ------------------------------------------------------------------------------------------------------------------- */
static inline uint64_t insitu__base_min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}
static inline uint64_t insitu__base_max(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}
static inline uint64_t insitu__base_ceil_div(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}
static inline bool insitu__base_mul(uint64_t a, uint64_t b, uint64_t *out) { /* false on overflow */
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool insitu__base_add(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}
static inline uint16_t insitu__base_load16(const void *p) { /* little-endian, like the next two */
  const unsigned char *b = (const unsigned char *)p;
  return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t insitu__base_load32(const void *p) {
  const unsigned char *b = (const unsigned char *)p;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t insitu__base_load64(const void *p) {
  return insitu__base_load32(p) | (uint64_t)insitu__base_load32((const unsigned char *)p + 4) << 32;
}
static inline void insitu__base_store64(void *p, uint64_t v) {
  for (int i = 0; i < 8; i++) ((unsigned char *)p)[i] = (unsigned char)(v >> 8 * i);
}
/* Round to nearest even, subnormals kept: what conversions are specified in. A program's start-up code (-ffast-math) may have
 * set something else, and threads inherit it. Defaults of MXCSR (Intel SDM volume 1, 11.6.4) and FPCR (Arm ARM). */
static inline void insitu__base_float(void) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(0x1f80);
#else
  __asm__ volatile("msr fpcr, xzr");
#endif
}
static inline int64_t insitu__base_now(void) { /* monotonic nanoseconds */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* >>error ------------------------------------------------------------------------------------------------------------------ */
/* Writes the message unless err is NULL or holds an earlier error, and returns status, so that `return insitu__error_set(...)`
 * reads well. */
__attribute__((format(printf, 3, 4))) static insitu_status insitu__error_set(
    insitu_error *err, insitu_status status, const char *format, ...) {
  if (!err || err->status < 0) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  err->status = status;
  return status;
}
/* Lets insitu__error_set write it anew. */
static void insitu__error_clear(insitu_error *err) {
  err->status = err->sys_errno = err->http_status = err->retryable = 0;
}
/* What caused an error that err is about to tell: all but its text. Before insitu__error_set. */
static void insitu__error_cause(insitu_error *err, const insitu_error *cause) {
  if (!err || err->status < 0) return;
  err->sys_errno = cause->sys_errno;
  err->http_status = cause->http_status;
  err->retryable = cause->retryable;
}

/* >>memory ----------------------------------------------------------------------------------------------------------------- */
#ifndef INSITU_REALLOC
#define INSITU_REALLOC(pointer, bytes) realloc(pointer, bytes)
#define INSITU_FREE(pointer) free(pointer)
#endif
static void *insitu__mem_realloc(void *p, uint64_t bytes) { /* NULL on failure (p stays valid) or when bytes is not a size_t */
  return bytes > PTRDIFF_MAX ? NULL : INSITU_REALLOC(p, (size_t)(bytes ? bytes : 1));
}
static void *insitu__mem_alloc(uint64_t count, uint64_t size) { /* zeroed; NULL on overflow or failure */
  uint64_t bytes;
  if (!insitu__base_mul(count, size, &bytes)) return NULL;
  void *p = insitu__mem_realloc(NULL, bytes);
  return p ? memset(p, 0, (size_t)bytes) : NULL;
}
static void insitu__mem_free(void *p) {
  if (p) INSITU_FREE(p);
}
static char *insitu__mem_text(const char *s, uint64_t n) { /* a NUL-terminated copy of n bytes */
  char *p = (char *)insitu__mem_realloc(NULL, n + 1);
  if (p) {
    memcpy(p, s, (size_t)n);
    p[n] = 0;
  }
  return p;
}
/* Fresh zeroed pages for batches and chunk buffers, in huge pages where the system gives them; untouched pages cost nothing. A
 * forked child does not get them: a copy-on-write of pages that a device or the kernel writes to would split parent and child.
 * NULL on failure. */
static void *insitu__mem_map(uint64_t bytes) {
  if (bytes > PTRDIFF_MAX) return NULL;
  void *p = mmap(NULL, (size_t)insitu__base_max(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  if (bytes >= (2u << 20)) (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* only a wish */
  (void)madvise(p, (size_t)insitu__base_max(bytes, 1), MADV_DONTFORK);
  return p;
}
#if defined(__SANITIZE_ADDRESS__)
#define INSITU__MEM_ASAN
#elif defined(__has_feature) /* clang says it this way */
#if __has_feature(address_sanitizer)
#define INSITU__MEM_ASAN
#endif
#endif
#ifdef INSITU__MEM_ASAN
#include <sanitizer/asan_interface.h>
#endif
/* From here to insitu__mem_fresh or insitu__mem_unmap AddressSanitizer reports whoever reads or writes it (what the kernel writes
 * goes unseen); nothing in other builds. */
static void insitu__mem_hide(void *p, uint64_t bytes) {
#ifdef INSITU__MEM_ASAN
  ASAN_POISON_MEMORY_REGION(p, (size_t)bytes);
#else
  (void)p, (void)bytes;
#endif
}
/* Before mapped memory is put to a new use: debugging builds fill it, so that a byte that is then not written shows. */
static void insitu__mem_fresh(void *p, uint64_t bytes) {
#ifdef INSITU__MEM_ASAN
  ASAN_UNPOISON_MEMORY_REGION(p, (size_t)bytes);
#endif
#if defined(INSITU__MEM_ASAN) || defined(INSITU_DEBUG)
  memset(p, 0xA5, (size_t)bytes);
#else
  (void)p, (void)bytes;
#endif
}
static void insitu__mem_unmap(void *p, uint64_t bytes) {
  if (!p) return;
#ifdef INSITU__MEM_ASAN
  ASAN_UNPOISON_MEMORY_REGION(p, (size_t)bytes); /* the next mapping there is somebody else's */
#endif
  munmap(p, (size_t)insitu__base_max(bytes, 1));
}

/* One number of a cgroup file, or of its second word; UINT64_MAX for "max" and for no such file. */
static uint64_t insitu__mem_cgroup_read(const char *path, int word) {
  char text[64] = "", *end = text;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return UINT64_MAX;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  if (word) end += strcspn(text, " ");
  while (*end == ' ') end++;
  if (*end < '0' || *end > '9') return UINT64_MAX;
  return strtoull(end, NULL, 10);
}

/* The least value that the control groups of this process set, from its own group up to the root: a memory limit in bytes, or
 * with cpu a quota in cores, rounded up. UINT64_MAX: none. Both hierarchies, v2 and v1 (Documentation/admin-guide/cgroup-v2.rst,
 * cgroup-v1). */
static uint64_t insitu__mem_cgroup(bool cpu) {
  char line[1024], path[1200];
  uint64_t least = UINT64_MAX;
  FILE *f = fopen("/proc/self/cgroup", "re");
  while (f && fgets(line, sizeof line, f)) {
    char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    bool v2 = !kinds[1], v1 = !v2 && strstr(kinds + 1, cpu ? "cpu" : "memory");
    for (char *slash = group + strlen(group); (v1 || v2) && slash; slash = strrchr(group, '/')) {
      *slash = 0;
      snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/%s",
          v2    ? ""
          : cpu ? "/cpu"
                : "/memory",
          group, v2 ? (cpu ? "cpu.max" : "memory.max") : (cpu ? "cpu.cfs_quota_us" : "memory.limit_in_bytes"));
      uint64_t limit = insitu__mem_cgroup_read(path, 0), period = 100000; /* microseconds: the kernel's default */
      if (cpu && limit != UINT64_MAX) {
        if (v2) period = insitu__mem_cgroup_read(path, 1);
        limit = period && period != UINT64_MAX ? insitu__base_max(1, insitu__base_ceil_div(limit, period)) : UINT64_MAX;
      }
      least = insitu__base_min(least, limit);
    }
  }
  if (f) fclose(f);
  return least;
}
/* Bytes of memory this process may use: the machine's or its control group's. */
static uint64_t insitu__mem_total(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
  return insitu__base_min(machine, insitu__mem_cgroup(false));
}
/* Cores this process may use: its affinity mask, and its control group's quota. */
static uint64_t insitu__mem_cores(void) {
  cpu_set_t set;
  uint64_t mask = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
  return insitu__base_max(1, insitu__base_min(mask, insitu__mem_cgroup(true)));
}

/* >>array ------------------------------------------------------------------------------------------------------------------ */
/* Growing arrays for cold paths (metadata, names, manifests): element pointers that start as NULL. Owns nothing; any thread, one
 * at a time per array; nothing suspends. The growth rule and the header before element 0 are stb_ds's. stb_ds does not check its
 * reallocation, so the block is enlarged and checked here first and stb_ds is then handed that very block: its STBDS_REALLOC
 * gives back what it got. The include below leaves no trace: every name is private to this header, every macro of a user who has
 * stb_ds.h too is restored, and its functions, external by themselves, become static (all system headers that it includes are
 * included before). */
#include <assert.h> /* for stb_ds.h */
/* What a user may have set. Restored below, with directives: a _Pragma is not seen by -E -dM. */
#pragma push_macro("STB_DS_IMPLEMENTATION")
#pragma push_macro("STBDS_NO_SHORT_NAMES")
#pragma push_macro("STBDS_REALLOC")
#pragma push_macro("STBDS_FREE")
#pragma push_macro("STBDS_ASSERT")
#pragma push_macro("STBDS_UNIT_TESTS")
#pragma push_macro("STBDS_STATISTICS")
#pragma push_macro("STBDS_INTERNAL_SMALL_BUCKET")
#pragma push_macro("STBDS_INTERNAL_BUCKET_START")
#pragma push_macro("STBDS_SIPHASH_2_4")
#pragma push_macro("INCLUDE_STB_DS_H")
#ifdef INCLUDE_STB_DS_H
#define INSITU__ARRAY_USER_HAS_STB /* its macros, equal to those defined here, then stay */
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"
#pragma GCC diagnostic ignored "-Wpedantic"
#undef STB_DS_IMPLEMENTATION
#undef STBDS_NO_SHORT_NAMES
#undef STBDS_REALLOC
#undef STBDS_FREE
#undef STBDS_ASSERT
#undef STBDS_UNIT_TESTS
#undef STBDS_STATISTICS
#undef STBDS_INTERNAL_SMALL_BUCKET
#undef STBDS_INTERNAL_BUCKET_START
#undef STBDS_SIPHASH_2_4
#undef INCLUDE_STB_DS_H
#define STB_DS_IMPLEMENTATION
#define STBDS_NO_SHORT_NAMES
#define STBDS_REALLOC(context, block, bytes) ((void)(bytes), (void *)(block))
#define STBDS_FREE(context, block) ((void)(block))
#define extern static
#define stbds_rand_seed insitu__array_stb_rand_seed
#define stbds_hash_bytes insitu__array_stb_hash_bytes
#define stbds_hash_string insitu__array_stb_hash_string
#define stbds_string_arena insitu__array_stb_string_arena
#define stbds_stralloc insitu__array_stb_stralloc
#define stbds_strreset insitu__array_stb_strreset
#define stbds_unit_tests insitu__array_stb_unit_tests
#define stbds_arrgrowf insitu__array_stb_arrgrowf
#define stbds_arrfreef insitu__array_stb_arrfreef
#define stbds_hmfree_func insitu__array_stb_hmfree_func
#define stbds_hmget_key insitu__array_stb_hmget_key
#define stbds_hmget_key_ts insitu__array_stb_hmget_key_ts
#define stbds_hmput_default insitu__array_stb_hmput_default
#define stbds_hmput_key insitu__array_stb_hmput_key
#define stbds_hmdel_key insitu__array_stb_hmdel_key
#define stbds_shmode_func insitu__array_stb_shmode_func
#define stbds_array_header insitu__array_stb_header
#define stbds_string_block insitu__array_stb_string_block
#define STBDS_SH_NONE INSITU__ARRAY_STB_SH_NONE
#define STBDS_SH_DEFAULT INSITU__ARRAY_STB_SH_DEFAULT
#define STBDS_SH_STRDUP INSITU__ARRAY_STB_SH_STRDUP
#define STBDS_SH_ARENA INSITU__ARRAY_STB_SH_ARENA
#define stbds_hash_bucket insitu__array_stb_hash_bucket
#define stbds_hash_index insitu__array_stb_hash_index
#define stbds_hash_seed insitu__array_stb_hash_seed
#define stbds_probe_position insitu__array_stb_probe_position
#define stbds_log2 insitu__array_stb_log2
#define stbds_make_hash_index insitu__array_stb_make_hash_index
#define stbds_siphash_bytes insitu__array_stb_siphash_bytes
#define stbds_is_key_equal insitu__array_stb_is_key_equal
#define stbds_hm_find_slot insitu__array_stb_hm_find_slot
#define stbds_strdup insitu__array_stb_strdup
#include <stb/stb_ds.h>
static void insitu__array_stb_unit_tests(void) { /* declared there, defined only under a macro that stays unset here */
}
#undef extern
#undef stbds_rand_seed
#undef stbds_hash_bytes
#undef stbds_hash_string
#undef stbds_string_arena
#undef stbds_stralloc
#undef stbds_strreset
#undef stbds_unit_tests
#undef stbds_arrgrowf
#undef stbds_arrfreef
#undef stbds_hmfree_func
#undef stbds_hmget_key
#undef stbds_hmget_key_ts
#undef stbds_hmput_default
#undef stbds_hmput_key
#undef stbds_hmdel_key
#undef stbds_shmode_func
#undef stbds_array_header
#undef stbds_string_block
#undef STBDS_SH_NONE
#undef STBDS_SH_DEFAULT
#undef STBDS_SH_STRDUP
#undef STBDS_SH_ARENA
#undef stbds_hash_bucket
#undef stbds_hash_index
#undef stbds_hash_seed
#undef stbds_probe_position
#undef stbds_log2
#undef stbds_make_hash_index
#undef stbds_siphash_bytes
#undef stbds_is_key_equal
#undef stbds_hm_find_slot
#undef stbds_strdup
#ifndef INSITU__ARRAY_USER_HAS_STB /* all that stb_ds.h 0.67 defines, as the preprocessor reports it */
#undef STBDS_ASSERT_WAS_UNDEFINED
#undef STBDS_ADDRESSOF
#undef STBDS_ALIGN_FWD
#undef STBDS_ARR_TO_HASH
#undef STBDS_BUCKET_LENGTH
#undef STBDS_BUCKET_SHIFT
#undef STBDS_CACHE_LINE_SIZE
#undef STBDS_HASH_DELETED
#undef STBDS_HASH_EMPTY
#undef STBDS_HASH_TO_ARR
#undef STBDS_HAS_LITERAL_ARRAY
#undef STBDS_HAS_TYPEOF
#undef STBDS_HM_BINARY
#undef STBDS_HM_STRING
#undef STBDS_INDEX_EMPTY
#undef STBDS_INDEX_IN_USE
#undef STBDS_NOTUSED
#undef STBDS_OFFSETOF
#undef STBDS_ROTATE_LEFT
#undef STBDS_ROTATE_RIGHT
#undef STBDS_SIPHASH_C_ROUNDS
#undef STBDS_SIPHASH_D_ROUNDS
#undef STBDS_SIZE_T_BITS
#undef STBDS_STRING_ARENA_BLOCKSIZE_MAX
#undef STBDS_STRING_ARENA_BLOCKSIZE_MIN
#undef stbds_arraddn
#undef stbds_arraddnindex
#undef stbds_arraddnoff
#undef stbds_arraddnptr
#undef stbds_arrcap
#undef stbds_arrdel
#undef stbds_arrdeln
#undef stbds_arrdelswap
#undef stbds_arrfree
#undef stbds_arrgrow
#undef stbds_arrgrowf_wrapper
#undef stbds_arrinsn
#undef stbds_arrlast
#undef stbds_arrlen
#undef stbds_arrlenu
#undef stbds_arrmaybegrow
#undef stbds_arrpop
#undef stbds_arrpush
#undef stbds_arrput
#undef stbds_arrsetcap
#undef stbds_arrsetlen
#undef stbds_header
#undef stbds_hmdefault
#undef stbds_hmdefaults
#undef stbds_hmdel
#undef stbds_hmdel_key_wrapper
#undef stbds_hmfree
#undef stbds_hmget
#undef stbds_hmget_key_ts_wrapper
#undef stbds_hmget_ts
#undef stbds_hmgeti
#undef stbds_hmgeti_ts
#undef stbds_hmgetp
#undef stbds_hmgetp_null
#undef stbds_hmgetp_ts
#undef stbds_hmgets
#undef stbds_hmlen
#undef stbds_hmlenu
#undef stbds_hmput_default_wrapper
#undef stbds_hmput_key_wrapper
#undef stbds_hmputs
#undef stbds_load_32_or_64
#undef stbds_pshdel
#undef stbds_pshget
#undef stbds_pshgeti
#undef stbds_pshput
#undef stbds_sh_new_arena
#undef stbds_sh_new_strdup
#undef stbds_shdefault
#undef stbds_shdefaults
#undef stbds_shdel
#undef stbds_shfree
#undef stbds_shget
#undef stbds_shgeti
#undef stbds_shgetp
#undef stbds_shgetp_null
#undef stbds_shgets
#undef stbds_shlen
#undef stbds_shlenu
#undef stbds_shput
#undef stbds_shputi
#undef stbds_shputs
#undef stbds_temp
#undef stbds_temp_key
#undef stbds_hmget_key_wrapper
#undef STBDS_SIPROUND
#undef stbds_shmode_func_wrapper
#undef STBDS_BUCKET_MASK
#undef STBDS_INDEX_DELETED
#undef stbds_arrins
#undef STBDS_STATS
#undef stbds_hmput
#undef stbds_hash_table
#endif
#undef INSITU__ARRAY_USER_HAS_STB
#pragma pop_macro("STB_DS_IMPLEMENTATION")
#pragma pop_macro("STBDS_NO_SHORT_NAMES")
#pragma pop_macro("STBDS_REALLOC")
#pragma pop_macro("STBDS_FREE")
#pragma pop_macro("STBDS_ASSERT")
#pragma pop_macro("STBDS_UNIT_TESTS")
#pragma pop_macro("STBDS_STATISTICS")
#pragma pop_macro("STBDS_INTERNAL_SMALL_BUCKET")
#pragma pop_macro("STBDS_INTERNAL_BUCKET_START")
#pragma pop_macro("STBDS_SIPHASH_2_4")
#pragma pop_macro("INCLUDE_STB_DS_H")
#pragma GCC diagnostic pop

static insitu__array_stb_header *insitu__array_header(const void *array) { /* array is not NULL */
  return (insitu__array_stb_header *)(uintptr_t)array - 1;
}
static uint64_t insitu__array_length(const void *array) {
  return array ? insitu__array_header(array)->length : 0;
}
/* Makes room for one more element of `size` bytes in the array whose pointer is stored at `slot`; false: no memory, array as
 * before. */
static bool insitu__array_grow(void *slot, uint64_t size) {
  void *array;
  memcpy(&array, slot, sizeof array); /* a memcpy, because the pointer there is of any type */
  uint64_t capacity = array ? insitu__array_header(array)->capacity : 0, bytes;
  if (array && insitu__array_header(array)->length < capacity) return true;
  capacity = capacity >= 2 ? 2 * capacity : 4; /* the capacity that stb_ds settles on when asked for it */
  if (!insitu__base_mul(capacity, size, &bytes) || !insitu__base_add(bytes, sizeof(insitu__array_stb_header), &bytes))
    return false;
  insitu__array_stb_header *block =
      (insitu__array_stb_header *)insitu__mem_realloc(array ? insitu__array_header(array) : NULL, bytes);
  if (!block) return false;
  if (!array) memset(block, 0, sizeof *block);
  array = insitu__array_stb_arrgrowf(block + 1, (size_t)size, 0, (size_t)capacity);
  memcpy(slot, &array, sizeof array);
  return true;
}
static void insitu__array_free(void *array) {
  if (array) insitu__mem_free(insitu__array_header(array));
}
/* INSITU__ARRAY_PUSH(array, value): false when there was no memory; the array is then as before. */
#define INSITU__ARRAY_PUSH(array, ...)                                                                                           \
  (insitu__array_grow(&(array), sizeof *(array)) && ((array)[insitu__array_header(array)->length++] = (__VA_ARGS__), true))
#define INSITU__ARRAY_LEN(array) insitu__array_length(array)
#define INSITU__ARRAY_FREE(array) (insitu__array_free(array), (void)((array) = NULL))

/* >>text ------------------------------------------------------------------------------------------------------------------- */
/* URL and JSON text: reading (a strict grammar check, then jsmn's tokens), writing into a bounded buffer, near names for
 * messages. Pure functions over memory that the caller owns; any thread; nothing suspends. */
#include <locale.h>  /* newlocale: numbers are read in the C locale whatever the program's is */
#include <strings.h> /* strncasecmp */

/* jsmn.h, included under private names; every macro and name of a user who has it too is restored. */
#pragma push_macro("JSMN_H")
#pragma push_macro("JSMN_API")
#pragma push_macro("JSMN_STATIC")
#pragma push_macro("JSMN_HEADER")
#pragma push_macro("JSMN_STRICT")
#pragma push_macro("JSMN_PARENT_LINKS")
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsign-compare"
#undef JSMN_H
#undef JSMN_API
#undef JSMN_STATIC
#undef JSMN_HEADER
#undef JSMN_STRICT
#undef JSMN_PARENT_LINKS
#define JSMN_STATIC
#define JSMN_PARENT_LINKS
#define jsmntype_t insitu__text_jsmn_type
#define jsmnerr insitu__text_jsmn_error
#define jsmntok_t insitu__text_jsmn_token
#define jsmn_parser insitu__text_jsmn_parser
#define jsmn_init insitu__text_jsmn_init
#define jsmn_parse insitu__text_jsmn_parse
#define jsmn_alloc_token insitu__text_jsmn_alloc_token
#define jsmn_fill_token insitu__text_jsmn_fill_token
#define jsmn_parse_primitive insitu__text_jsmn_parse_primitive
#define jsmn_parse_string insitu__text_jsmn_parse_string
#define JSMN_UNDEFINED INSITU__TEXT_JSMN_UNDEFINED
#define JSMN_OBJECT INSITU__TEXT_JSMN_OBJECT
#define JSMN_ARRAY INSITU__TEXT_JSMN_ARRAY
#define JSMN_STRING INSITU__TEXT_JSMN_STRING
#define JSMN_PRIMITIVE INSITU__TEXT_JSMN_PRIMITIVE
#define JSMN_ERROR_NOMEM INSITU__TEXT_JSMN_ERROR_NOMEM
#define JSMN_ERROR_INVAL INSITU__TEXT_JSMN_ERROR_INVAL
#define JSMN_ERROR_PART INSITU__TEXT_JSMN_ERROR_PART
#include <jsmn.h>
#undef jsmntype_t
#undef jsmnerr
#undef jsmntok_t
#undef jsmn_parser
#undef jsmn_init
#undef jsmn_parse
#undef jsmn_alloc_token
#undef jsmn_fill_token
#undef jsmn_parse_primitive
#undef jsmn_parse_string
#undef JSMN_UNDEFINED
#undef JSMN_OBJECT
#undef JSMN_ARRAY
#undef JSMN_STRING
#undef JSMN_PRIMITIVE
#undef JSMN_ERROR_NOMEM
#undef JSMN_ERROR_INVAL
#undef JSMN_ERROR_PART
#pragma pop_macro("JSMN_H")
#pragma pop_macro("JSMN_API")
#pragma pop_macro("JSMN_STATIC")
#pragma pop_macro("JSMN_HEADER")
#pragma pop_macro("JSMN_STRICT")
#pragma pop_macro("JSMN_PARENT_LINKS")
#pragma GCC diagnostic pop

/* -- grammar -- */

struct insitu__text_scan { /* the strict check: a cursor and where the containers are open */
  const char *text;
  uint64_t n, at, tokens;
  uint64_t is_object; /* bit d: the container at depth d is an object */
  unsigned depth;
  const char *cause; /* NULL: no error */
};
_Static_assert(INSITU__MAX_JSON_DEPTH <= 64, "one bit of is_object per level");

static bool insitu__text_scan_fail(struct insitu__text_scan *s, const char *cause) { /* keeps s->at as the position */
  s->cause = cause;
  return false;
}
static int insitu__text_scan_peek(const struct insitu__text_scan *s) { /* -1 at the end */
  return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}
static bool insitu__text_is_digit(int c) {
  return c >= '0' && c <= '9';
}
static int insitu__text_hex(int c) { /* -1: not a hexadecimal digit */
  if (insitu__text_is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
static bool insitu__text_scan_string(struct insitu__text_scan *s) { /* at the opening quote */
  for (s->at++;; s->at++) {
    int c = insitu__text_scan_peek(s);
    if (c < 0) return insitu__text_scan_fail(s, "the text ends inside a string");
    if (c < 0x20) return insitu__text_scan_fail(s, "a control character inside a string");
    if (c == '"') break;
    if (c != '\\') continue;
    s->at++;
    c = insitu__text_scan_peek(s);
    if (c < 0) return insitu__text_scan_fail(s, "the text ends inside a string");
    if (c == 0 || !strchr("\"\\/bfnrtu", c)) return insitu__text_scan_fail(s, "an unknown escape in a string");
    for (int i = 0; c == 'u' && i < 4; i++) {
      s->at++;
      if (insitu__text_hex(insitu__text_scan_peek(s)) < 0) return insitu__text_scan_fail(s, "\\u needs four hexadecimal digits");
    }
  }
  s->at++;
  return true;
}
static bool insitu__text_scan_digits(struct insitu__text_scan *s) { /* one or more */
  if (!insitu__text_is_digit(insitu__text_scan_peek(s))) return insitu__text_scan_fail(s, "a digit is missing in a number");
  while (insitu__text_is_digit(insitu__text_scan_peek(s))) s->at++;
  return true;
}
static bool insitu__text_scan_word(struct insitu__text_scan *s, const char *word) {
  uint64_t n = strlen(word);
  if (s->n - s->at < n || memcmp(s->text + s->at, word, n)) return insitu__text_scan_fail(s, "a value is expected here");
  s->at += n;
  return true;
}
static bool insitu__text_scan_number(struct insitu__text_scan *s) { /* at the sign or first digit */
  if (insitu__text_scan_peek(s) == '-') s->at++;
  if (insitu__text_scan_peek(s) == 'I') return insitu__text_scan_word(s, "Infinity");
  if (insitu__text_scan_peek(s) == '0') {
    s->at++;
    if (insitu__text_is_digit(insitu__text_scan_peek(s))) return insitu__text_scan_fail(s, "a number begins with 0");
  } else if (!insitu__text_scan_digits(s)) return false;
  if (insitu__text_scan_peek(s) == '.') {
    s->at++;
    if (!insitu__text_scan_digits(s)) return false;
  }
  int c = insitu__text_scan_peek(s);
  if (c != 'e' && c != 'E') return true;
  s->at++;
  c = insitu__text_scan_peek(s);
  if (c == '+' || c == '-') s->at++;
  return insitu__text_scan_digits(s);
}
static bool insitu__text_scan_scalar(struct insitu__text_scan *s) {
  int c = insitu__text_scan_peek(s);
  switch (c) {
  case -1: return insitu__text_scan_fail(s, "the text ends where a value is expected");
  case '"': return insitu__text_scan_string(s);
  case 't': return insitu__text_scan_word(s, "true");
  case 'f': return insitu__text_scan_word(s, "false");
  case 'n': return insitu__text_scan_word(s, "null");
  case 'N': return insitu__text_scan_word(s, "NaN"); /* not JSON, but what Python's json module writes by default */
  case 'I': return insitu__text_scan_word(s, "Infinity");
  }
  if (c == '-' || insitu__text_is_digit(c)) return insitu__text_scan_number(s);
  return insitu__text_scan_fail(s, "a value is expected here");
}
static void insitu__text_scan_space(struct insitu__text_scan *s) {
  while (s->at < s->n && (s->text[s->at] == ' ' || s->text[s->at] == '\n' || s->text[s->at] == '\t' || s->text[s->at] == '\r'))
    s->at++;
}
static bool insitu__text_scan_open(struct insitu__text_scan *s, bool object) {
  if (s->depth == INSITU__MAX_JSON_DEPTH) return insitu__text_scan_fail(s, "nested too deeply (INSITU__MAX_JSON_DEPTH)");
  uint64_t bit = UINT64_C(1) << s->depth++;
  s->is_object = object ? s->is_object | bit : s->is_object & ~bit;
  s->at++;
  return true;
}
/* The whole document; counts the tokens that jsmn will make. */
static bool insitu__text_scan_document(struct insitu__text_scan *s) {
  enum { VALUE, FIRST, KEY, AFTER } state = VALUE;
  for (;;) {
    insitu__text_scan_space(s);
    int c = insitu__text_scan_peek(s);
    bool in_object = s->depth && (s->is_object >> (s->depth - 1) & 1);
    bool closes = s->depth && c == (in_object ? '}' : ']');
    if ((state == FIRST || state == AFTER) && closes) {
      s->depth--;
      s->at++;
      state = AFTER;
    } else if (state == AFTER) {
      if (s->depth == 0) return c < 0 || insitu__text_scan_fail(s, "more text follows the value");
      if (c != ',')
        return insitu__text_scan_fail(s, c < 0       ? "the text ends inside an array or object"
                                         : in_object ? "',' or '}' is expected here"
                                                     : "',' or ']' is expected here");
      s->at++;
      state = in_object ? KEY : VALUE;
    } else {
      if (++s->tokens > INSITU__MAX_JSON_TOKENS) return insitu__text_scan_fail(s, "too many values (INSITU__MAX_JSON_TOKENS)");
      if (state == KEY || (state == FIRST && in_object)) {
        if (c != '"')
          return insitu__text_scan_fail(s, c < 0 ? "the text ends inside an object" : "a quoted key is expected here");
        if (!insitu__text_scan_string(s)) return false;
        insitu__text_scan_space(s);
        if (insitu__text_scan_peek(s) != ':') return insitu__text_scan_fail(s, "':' is expected after a key");
        s->at++;
        state = VALUE;
      } else if (c == '{' || c == '[') {
        if (!insitu__text_scan_open(s, c == '{')) return false;
        state = FIRST;
      } else {
        if (!insitu__text_scan_scalar(s)) return false;
        state = AFTER;
      }
    }
  }
}

/* -- documents -- */

struct insitu__text_json_token {
  insitu__text_jsmn_token jsmn; /* a string's range is without its quotes; a key's only child is its value */
  int skip;                     /* the token after this one and all below it */
};
struct insitu__text_json {
  const char *text; /* borrowed: the caller keeps it until _free */
  uint64_t bytes;
  struct insitu__text_json_token *token; /* token 0 is the document's value */
  int n;
};

static void insitu__text_json_free(struct insitu__text_json *j) {
  insitu__mem_free(j->token);
  memset(j, 0, sizeof *j);
}
static insitu_status insitu__text_json_error(const struct insitu__text_scan *s, const char *what, insitu_error *err) {
  uint64_t line = 1, column = 1;
  for (uint64_t i = 0; i < s->at && i < s->n; i++) {
    column = s->text[i] == '\n' ? 1 : column + 1;
    line += s->text[i] == '\n';
  }
  return insitu__error_set(err, INSITU_E_JSON,
      "%s, line %" PRIu64 ", column %" PRIu64 ": not JSON: %s; check that the file is whole", what, line, column, s->cause);
}
/* jsmn needs its tokens side by side, so it fills the front of the block, which is then spread out from its end. */
static bool insitu__text_json_tokens(struct insitu__text_json *j, unsigned n) {
  insitu__text_jsmn_parser parser;
  insitu__text_jsmn_token *packed = (insitu__text_jsmn_token *)(void *)j->token;
  insitu__text_jsmn_init(&parser);
  if (insitu__text_jsmn_parse(&parser, j->text, (size_t)j->bytes, packed, n) != (int)n) return false;
  for (int i = (int)n - 1; i >= 0; i--) {
    insitu__text_jsmn_token token;
    memcpy(&token, packed + i, sizeof token);
    memcpy(&j->token[i].jsmn, &token, sizeof token);
    j->token[i].skip = i + 1;
  }
  for (int i = (int)n - 1; i > 0; i--) { /* children come after their parent */
    struct insitu__text_json_token *parent = &j->token[j->token[i].jsmn.parent];
    if (parent->skip < j->token[i].skip) parent->skip = j->token[i].skip;
  }
  j->n = (int)n;
  return true;
}
/* Borrows text; `what` names the document in messages. */
static insitu_status insitu__text_json_parse(
    struct insitu__text_json *j, const char *text, uint64_t n, const char *what, insitu_error *err) {
  memset(j, 0, sizeof *j);
  if (n > INSITU__MAX_META)
    return insitu__error_set(err, INSITU_E_JSON, "%s: %" PRIu64 " bytes are more than INSITU__MAX_META (%u); define it larger",
        what, n, INSITU__MAX_META);
  struct insitu__text_scan scan = {.text = text, .n = n};
  if (!insitu__text_scan_document(&scan)) return insitu__text_json_error(&scan, what, err);
  j->text = text;
  j->bytes = n;
  j->token = (struct insitu__text_json_token *)insitu__mem_alloc(scan.tokens, sizeof *j->token);
  if (!j->token)
    return insitu__error_set(
        err, INSITU_E_NOMEM, "%s: no memory for %" PRIu64 " JSON values; give the process more memory", what, scan.tokens);
  if (insitu__text_json_tokens(j, (unsigned)scan.tokens)) return INSITU_OK;
  insitu__text_json_free(j);
  return insitu__error_set(
      err, INSITU_E_JSON, "%s: not JSON: jsmn and the grammar check disagree; please report the document", what);
}

static bool insitu__text_json_is(const struct insitu__text_json *j, int token, insitu__text_jsmn_type type) {
  return token >= 0 && token < j->n && j->token[token].jsmn.type == type;
}
static bool insitu__text_json_is_string(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is(j, token, INSITU__TEXT_JSMN_STRING);
}
static bool insitu__text_json_is_object(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is(j, token, INSITU__TEXT_JSMN_OBJECT);
}
static bool insitu__text_json_is_array(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is(j, token, INSITU__TEXT_JSMN_ARRAY);
}
/* The text of a value; a string's with its quotes. NULL when token is -1. */
static const char *insitu__text_json_span(const struct insitu__text_json *j, int token, uint64_t *n) {
  *n = 0;
  if (token < 0 || token >= j->n) return NULL;
  const insitu__text_jsmn_token *t = &j->token[token].jsmn;
  int quotes = t->type == INSITU__TEXT_JSMN_STRING;
  *n = (uint64_t)(t->end - t->start + 2 * quotes);
  return j->text + t->start - quotes;
}
static bool insitu__text_json_is_word(const struct insitu__text_json *j, int token, const char *word) {
  uint64_t n;
  const char *span = insitu__text_json_span(j, token, &n);
  return span && n == strlen(word) && memcmp(span, word, n) == 0;
}
static bool insitu__text_json_is_null(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is_word(j, token, "null");
}
static bool insitu__text_json_is_true(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is_word(j, token, "true");
}
static bool insitu__text_json_is_false(const struct insitu__text_json *j, int token) {
  return insitu__text_json_is_word(j, token, "false");
}

/* Iteration: `for (t = _first(j, c); t >= 0; t = _next(j, c, t))`. In an object t is a key and _value(j, t) its value. */
static int insitu__text_json_first(const struct insitu__text_json *j, int container) {
  if (!insitu__text_json_is_object(j, container) && !insitu__text_json_is_array(j, container)) return -1;
  return j->token[container].jsmn.size ? container + 1 : -1;
}
static int insitu__text_json_next(const struct insitu__text_json *j, int container, int current) {
  int next = j->token[current].skip;
  return next < j->token[container].skip ? next : -1;
}
static int insitu__text_json_value(const struct insitu__text_json *j, int key) {
  return key >= 0 && key + 1 < j->n ? key + 1 : -1;
}
static int insitu__text_json_size(const struct insitu__text_json *j, int token) { /* elements or members; 0 for a scalar */
  return insitu__text_json_is_object(j, token) || insitu__text_json_is_array(j, token) ? j->token[token].jsmn.size : 0;
}

static unsigned insitu__text_json_unit(const char **p) { /* the 16-bit unit after "\u", whose digits were checked */
  unsigned unit = 0;
  for (int i = 0; i < 4; i++) unit = unit << 4 | (unsigned)insitu__text_hex((unsigned char)*(*p)++);
  return unit;
}
/* A code point below 2^21 as UTF-8; returns its bytes. */
static unsigned insitu__text_put_code(uint32_t code, char out[4]) {
  unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; /* continuation bytes */
  static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
  out[0] = (char)(lead[more] | code >> 6 * more);
  for (unsigned i = 1; i <= more; i++) out[i] = (char)(0x80 | (code >> 6 * (more - i) & 0x3F));
  return more + 1;
}
/* Decodes one character of a string's inside into UTF-8 and returns its bytes. Half a surrogate pair becomes U+FFFD. */
static unsigned insitu__text_json_char(const char **p, const char *end, char out[4]) {
  static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
  out[0] = *(*p)++;
  if (out[0] != '\\') return 1;
  char c = *(*p)++;
  if (c != 'u') {
    out[0] = means[strchr(plain, c) - plain];
    return 1;
  }
  unsigned code = insitu__text_json_unit(p);
  if (code >= 0xD800 && code < 0xDC00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
    const char *low_at = *p + 2;
    unsigned low = insitu__text_json_unit(&low_at);
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      *p = low_at;
    }
  }
  if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
  return insitu__text_put_code(code, out);
}
/* The code point at *p, which is not at its end, and goes behind it; a byte that begins none stands for itself. */
static uint32_t insitu__text_code_point(const char **p) {
  unsigned char lead = (unsigned char)*(*p)++;
  unsigned more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  uint32_t code = more ? lead & (0x3Fu >> more) : lead;
  for (; more && ((unsigned char)**p & 0xC0) == 0x80; more--) code = code << 6 | ((unsigned char)*(*p)++ & 0x3F);
  return code;
}
/* RFC 4648 base64 with padding; the length, or -1 when it is not that or does not fit cap. */
static int64_t insitu__text_base64(const char *text, uint64_t n, unsigned char *out, uint64_t cap) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint64_t used = 0;
  if (n % 4) return -1;
  for (uint64_t i = 0; i < n; i += 4) {
    unsigned pad = i + 4 < n || text[i + 3] != '=' ? 0 : text[i + 2] == '=' ? 2 : 1;
    uint32_t bits = 0;
    for (unsigned k = 0; k < 4; k++) {
      const char *digit = k < 4 - pad && text[i + k] ? strchr(digits, text[i + k]) : NULL;
      if (!digit && k < 4 - pad) return -1;
      bits = bits << 6 | (digit ? (uint32_t)(digit - digits) : 0);
    }
    if (cap - used < 3 - pad || bits & ((1u << 8 * pad) - 1)) return -1; /* bits beyond the last byte are zero */
    for (unsigned k = 0; k < 3 - pad; k++) out[used++] = (unsigned char)(bits >> (16 - 8 * k));
  }
  return (int64_t)used;
}
/* Decodes into buf, NUL-terminated, and returns the length; -1: not a string, or does not fit. */
static int64_t insitu__text_json_bytes(const struct insitu__text_json *j, int token, char *buf, uint64_t cap) {
  if (!insitu__text_json_is_string(j, token) || cap == 0) return -1;
  const char *p = j->text + j->token[token].jsmn.start, *end = j->text + j->token[token].jsmn.end;
  uint64_t n = 0;
  while (p < end) {
    char c[4];
    unsigned bytes = insitu__text_json_char(&p, end, c);
    if (cap - n <= bytes) return -1;
    memcpy(buf + n, c, bytes);
    n += bytes;
  }
  buf[n] = 0;
  return (int64_t)n;
}
/* The same, and -1 for one that holds U+0000, which no C string can. */
static int64_t insitu__text_json_string(const struct insitu__text_json *j, int token, char *buf, uint64_t cap) {
  int64_t n = insitu__text_json_bytes(j, token, buf, cap);
  return n > 0 && memchr(buf, 0, (size_t)n) ? -1 : n;
}
static bool insitu__text_json_equals(const struct insitu__text_json *j, int token, const char *literal) {
  if (!insitu__text_json_is_string(j, token)) return false;
  const char *p = j->text + j->token[token].jsmn.start, *end = j->text + j->token[token].jsmn.end;
  uint64_t left = strlen(literal);
  while (p < end) {
    char c[4];
    unsigned bytes = insitu__text_json_char(&p, end, c);
    if (bytes > left || memcmp(literal, c, bytes)) return false;
    literal += bytes;
    left -= bytes;
  }
  return left == 0;
}
/* The value of a key, -1 when there is none or `object` is no object. Of equal keys the last counts, as in Python. */
static int insitu__text_json_get(const struct insitu__text_json *j, int object, const char *key) {
  int found = -1;
  if (!insitu__text_json_is_object(j, object)) return -1;
  for (int t = insitu__text_json_first(j, object); t >= 0; t = insitu__text_json_next(j, object, t))
    if (insitu__text_json_equals(j, t, key)) found = insitu__text_json_value(j, t);
  return found;
}

static bool insitu__text_json_u64(const struct insitu__text_json *j, int token, uint64_t *value) { /* digits only */
  if (!insitu__text_json_is(j, token, INSITU__TEXT_JSMN_PRIMITIVE)) return false;
  uint64_t n, v = 0;
  const char *p = insitu__text_json_span(j, token, &n);
  for (uint64_t i = 0; i < n; i++)
    if (!insitu__text_is_digit(p[i]) || !insitu__base_mul(v, 10, &v) || !insitu__base_add(v, (uint64_t)(p[i] - '0'), &v))
      return false;
  *value = v;
  return true;
}
static bool insitu__text_json_i64(const struct insitu__text_json *j, int token, int64_t *value) { /* digits and a sign only */
  if (!insitu__text_json_is(j, token, INSITU__TEXT_JSMN_PRIMITIVE)) return false;
  uint64_t n;
  int64_t v = 0;
  const char *p = insitu__text_json_span(j, token, &n);
  bool negative = p[0] == '-';
  if (n == negative) return false;
  for (uint64_t i = negative; i < n; i++) {
    if (!insitu__text_is_digit(p[i]) || __builtin_mul_overflow(v, INT64_C(10), &v)) return false;
    int64_t digit = negative ? '0' - p[i] : p[i] - '0';
    if (__builtin_add_overflow(v, digit, &v)) return false;
  }
  *value = v;
  return true;
}
/* A number, NaN, Infinity or -Infinity; a finite number too large for a double is refused. */
static bool insitu__text_json_double(const struct insitu__text_json *j, int token, double *value) {
  char buf[INSITU__MAX_JSON_NUMBER];
  uint64_t n;
  if (!insitu__text_json_is(j, token, INSITU__TEXT_JSMN_PRIMITIVE)) return false;
  const char *p = insitu__text_json_span(j, token, &n);
  if (n >= sizeof buf || p[0] == 't' || p[0] == 'f' || p[0] == 'n') return false;
  bool negative = p[0] == '-';
  if (p[0] == 'N' || p[negative] == 'I') {
    *value = p[0] == 'N' ? __builtin_nan("") : negative ? -__builtin_inf() : __builtin_inf();
    return true;
  }
  memcpy(buf, p, n);
  buf[n] = 0;
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!c_locale) return false;
  char *end;
  double v = strtod_l(buf, &end, c_locale);
  freelocale(c_locale);
  if (*end || __builtin_isinf(v)) return false;
  *value = v;
  return true;
}

/* -- writing -- */

struct insitu__text_buffer { /* zero is an empty one */
  char *text;                /* NUL-terminated once anything was written */
  uint64_t n, cap, limit;    /* limit: most bytes that it may hold; 0 = INSITU__MAX_META */
  bool failed;               /* no memory, or past the limit: sticky, later writes do nothing */
};

static void insitu__text_buffer_free(struct insitu__text_buffer *b) {
  insitu__mem_free(b->text);
  memset(b, 0, sizeof *b);
}
static bool insitu__text_buffer_reserve(struct insitu__text_buffer *b, uint64_t more) { /* room for `more` bytes and a NUL */
  uint64_t need, limit = b->limit ? b->limit : INSITU__MAX_META;
  if (b->failed || !insitu__base_add(b->n, more, &need) || need > limit) return !(b->failed = true);
  if (need < b->cap) return true;
  uint64_t cap = insitu__base_max(insitu__base_min(2 * b->cap, limit) + 1, insitu__base_max(need + 1, 256));
  char *text = (char *)insitu__mem_realloc(b->text, cap);
  if (!text) return !(b->failed = true);
  b->text = text;
  b->cap = cap;
  return true;
}
static bool insitu__text_buffer_bytes(struct insitu__text_buffer *b, const void *bytes, uint64_t n) {
  if (!insitu__text_buffer_reserve(b, n)) return false;
  if (n) memcpy(b->text + b->n, bytes, n);
  b->n += n;
  b->text[b->n] = 0;
  return true;
}
__attribute__((format(printf, 2, 3))) static bool insitu__text_buffer_printf(
    struct insitu__text_buffer *b, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, again);
  va_end(again);
  bool ok = n >= 0 && insitu__text_buffer_reserve(b, (uint64_t)n);
  if (ok) {
    vsnprintf(b->text + b->n, (size_t)n + 1, format, args);
    b->n += (uint64_t)n;
  } else b->failed = true;
  va_end(args);
  return ok;
}
/* Bytes of the UTF-8 character that p begins with, 0 if it is none (Unicode 15, table 3-7). p ends in a NUL. */
static unsigned insitu__text_utf8(const unsigned char *p) {
  unsigned n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
  for (unsigned i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
  bool beyond = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f); /* surrogates; past U+10FFFF */
  return overlong || beyond ? 0 : n;
}
/* Quotes s. A byte that is not UTF-8 becomes U+FFFD: JSON has no way to say it. */
static bool insitu__text_buffer_json_string(struct insitu__text_buffer *b, const char *s) {
  insitu__text_buffer_bytes(b, "\"", 1);
  for (unsigned n; *s; s += n ? n : 1) {
    unsigned char c = (unsigned char)*s;
    n = insitu__text_utf8((const unsigned char *)s);
    if (c == '"' || c == '\\') insitu__text_buffer_printf(b, "\\%c", c);
    else if (c < 0x20 || c == 0x7f) insitu__text_buffer_printf(b, "\\u%04x", c);
    else if (n) insitu__text_buffer_bytes(b, s, n);
    else insitu__text_buffer_bytes(b, "\\ufffd", 6);
  }
  return insitu__text_buffer_bytes(b, "\"", 1);
}
/* The shortest decimal that reads back as x, with a point whatever the program's locale writes; null if x is not finite. */
static bool insitu__text_buffer_double(struct insitu__text_buffer *b, double x) {
  char text[64];
  if (!__builtin_isfinite(x)) return insitu__text_buffer_bytes(b, "null", 4);
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (digits == 17 || strtod(text, NULL) == x) break;
  }
  for (const char *p = text; *p;) {
    uint64_t n = strspn(p, "+-0123456789e"), point = strcspn(p + n, "0123456789");
    insitu__text_buffer_bytes(b, p, n);
    if (point) insitu__text_buffer_bytes(b, ".", 1);
    p += n + point;
  }
  return !b->failed;
}

/* A struct's member as JSON. FLAG: an int32 as true or false; WORD: an int32 that words names; TEXT: a char *; CHARS: a char[];
 * NONE: written otherwise. */
enum {
  INSITU__TEXT_U64,
  INSITU__TEXT_I64,
  INSITU__TEXT_U32,
  INSITU__TEXT_I32,
  INSITU__TEXT_DOUBLE,
  INSITU__TEXT_FLAG,
  INSITU__TEXT_WORD,
  INSITU__TEXT_TEXT,
  INSITU__TEXT_CHARS,
  INSITU__TEXT_NONE
};
struct insitu__text_field {
  const char *name;
  uint64_t at; /* offset in the struct */
  int kind;
  const char *const *words;
};
static void insitu__text_buffer_field(
    struct insitu__text_buffer *b, const char *separator, const struct insitu__text_field *f, const void *base) {
  const void *at = (const char *)base + f->at;
  insitu__text_buffer_printf(b, "%s\"%s\": ", separator, f->name);
  switch (f->kind) {
  case INSITU__TEXT_U64: insitu__text_buffer_printf(b, "%" PRIu64, *(const uint64_t *)at); break;
  case INSITU__TEXT_I64: insitu__text_buffer_printf(b, "%" PRId64, *(const int64_t *)at); break;
  case INSITU__TEXT_U32: insitu__text_buffer_printf(b, "%" PRIu32, *(const uint32_t *)at); break;
  case INSITU__TEXT_I32: insitu__text_buffer_printf(b, "%" PRId32, *(const int32_t *)at); break;
  case INSITU__TEXT_DOUBLE: insitu__text_buffer_double(b, *(const double *)at); break;
  case INSITU__TEXT_FLAG: insitu__text_buffer_printf(b, "%s", *(const int32_t *)at ? "true" : "false"); break;
  case INSITU__TEXT_WORD: insitu__text_buffer_json_string(b, f->words[*(const int32_t *)at]); break;
  case INSITU__TEXT_TEXT: insitu__text_buffer_json_string(b, *(const char *const *)at); break;
  case INSITU__TEXT_CHARS: insitu__text_buffer_json_string(b, (const char *)at); break;
  }
}

/* -- near names -- */

/* Edit distance (insert, delete, replace), letters' case aside; both at most INSITU__MAX_NEAR_NAME long. */
static unsigned insitu__text_distance(const char *a, const char *b) {
  unsigned row[INSITU__MAX_NEAR_NAME + 1], n = (unsigned)strlen(b);
  for (unsigned k = 0; k <= n; k++) row[k] = k;
  for (unsigned i = 0; a[i]; i++) {
    unsigned diagonal = row[0];
    row[0] = i + 1;
    for (unsigned k = 0; k < n; k++) {
      int ca = a[i] >= 'A' && a[i] <= 'Z' ? a[i] + 32 : a[i], cb = b[k] >= 'A' && b[k] <= 'Z' ? b[k] + 32 : b[k];
      unsigned best = diagonal + (ca != cb);
      diagonal = row[k + 1];
      if (diagonal + 1 < best) best = diagonal + 1;
      if (row[k] + 1 < best) best = row[k] + 1;
      row[k + 1] = best;
    }
  }
  return row[n];
}
/* The index of the name most like `name`, -1 when none is within a third of its length (at least one, never all of it). */
static int insitu__text_nearest(const char *name, const char *const *names, int n) {
  uint64_t length = strlen(name);
  if (length == 0 || length > INSITU__MAX_NEAR_NAME) return -1;
  unsigned limit = (unsigned)insitu__base_max(length / 3, length > 1), nearest = UINT_MAX;
  int found = -1;
  for (int i = 0; i < n; i++) {
    if (!names[i] || strlen(names[i]) > INSITU__MAX_NEAR_NAME) continue;
    unsigned distance = insitu__text_distance(name, names[i]);
    if (distance <= limit && distance < nearest) {
      nearest = distance;
      found = i;
    }
  }
  return found;
}

/* -- URLs -- */

static uint64_t insitu__text_url_scheme(const char *url) { /* the letters before "://" (or "file:/"), 0 for a plain path */
  uint64_t n = 0;
  while ((url[n] >= 'a' && url[n] <= 'z') || (url[n] >= 'A' && url[n] <= 'Z') ||
         (n && (insitu__text_is_digit(url[n]) || url[n] == '+' || url[n] == '-' || url[n] == '.')))
    n++;
  if (url[n] != ':' || url[n + 1] != '/') return 0;
  return url[n + 2] == '/' || (n == 4 && strncasecmp(url, "file", 4) == 0) ? n : 0;
}
/* The remote ones are the last. */
enum {
  INSITU__TEXT_URL_FILE,
  INSITU__TEXT_URL_MEMORY,
  INSITU__TEXT_URL_ZIP,
  INSITU__TEXT_URL_HTTP,
  INSITU__TEXT_URL_S3,
  INSITU__TEXT_URL_GS,
  INSITU__TEXT_URL_AZURE
};
/* What kind of place a URL names, -1 for a scheme that is not known. A plain path is a file's. */
static int insitu__text_url_kind(const char *url, uint64_t scheme) {
  static const struct {
    const char *name;
    int kind;
  } known[] = {{"file", INSITU__TEXT_URL_FILE}, {"memory", INSITU__TEXT_URL_MEMORY}, {"zip", INSITU__TEXT_URL_ZIP},
      {"http", INSITU__TEXT_URL_HTTP}, {"https", INSITU__TEXT_URL_HTTP}, {"s3", INSITU__TEXT_URL_S3},
      {"s3a", INSITU__TEXT_URL_S3}, {"gs", INSITU__TEXT_URL_GS}, {"gcs", INSITU__TEXT_URL_GS}, {"az", INSITU__TEXT_URL_AZURE},
      {"azure", INSITU__TEXT_URL_AZURE}, {"abfs", INSITU__TEXT_URL_AZURE}, {"abfss", INSITU__TEXT_URL_AZURE},
      {"adl", INSITU__TEXT_URL_AZURE}};
  if (!scheme) return INSITU__TEXT_URL_FILE;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (scheme == strlen(known[i].name) && strncasecmp(url, known[i].name, scheme) == 0) return known[i].kind;
  return -1;
}
/* The kind of a URL and the path in it: of a plain path (taken as it is) or a file URL (file:///a%20b, file://localhost/a,
 * file:/a) the local path, of a remote one nothing, of memory://name the name, of zip:///a.zip/b and zip://a.zip/b the path of the
 * file and what follows. */
static insitu_status insitu__text_url_parse(const char *url, int *kind, char *path, uint64_t cap, insitu_error *err) {
  uint64_t scheme = insitu__text_url_scheme(url), n = 0;
  *kind = insitu__text_url_kind(url, scheme);
  if (!url[0]) return insitu__error_set(err, INSITU_E_ARG, "url: it is empty; give a directory, a zip file or a file:// URL");
  if (*kind < 0)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "url: the scheme '%.*s' is not supported; give a local path, a URL of file, zip, http, https, s3, gs or az, or memory:// "
        "with objects",
        (int)insitu__base_min(scheme, 32), url);
  path[0] = 0;
  if (*kind >= INSITU__TEXT_URL_HTTP) return INSITU_OK;
  const char *p = url + (scheme ? scheme + 1 : 0);
  if (*kind == INSITU__TEXT_URL_MEMORY || *kind == INSITU__TEXT_URL_ZIP) p += 2;
  else if (scheme && p[1] == '/') {
    p += 2;
    if (strncasecmp(p, "localhost/", 10) == 0) p += 9;
    if (*p != '/')
      return insitu__error_set(err, INSITU_E_ARG,
          "url '%s': a file URL holds an absolute path, file:///directory; give a plain path for a relative one", url);
  }
  for (; *p; p++) {
    char c = *p;
    if (scheme && c == '%') {
      int high = insitu__text_hex((unsigned char)p[1]), low = high < 0 ? -1 : insitu__text_hex((unsigned char)p[2]);
      if (low < 0 || high + low == 0)
        return insitu__error_set(
            err, INSITU_E_ARG, "url '%s': %% needs two hexadecimal digits, not 00; write %%25 for a percent sign", url);
      c = (char)(high * 16 + low);
      p += 2;
    }
    if (n + 1 >= cap) return insitu__error_set(err, INSITU_E_ARG, "url: the path is longer than %" PRIu64 " bytes", cap - 1);
    path[n++] = c;
  }
  path[n] = 0;
  return INSITU_OK;
}

/* >>time ------------------------------------------------------------------------------------------------------------------- */
/* CF time (cfconventions.org, 4.4): units such as "hours since 1900-01-01", calendars and dates. Pure functions; nothing
 * suspends. A moment is a number of microseconds since 1970-01-01T00:00 UTC, counted in days of 24 hours of its calendar; leap
 * seconds are unknown. In the standard calendar 1582-10-04 (Julian) is followed by 1582-10-15 (Gregorian). Years are astronomical,
 * 0 precedes 1; but as text those of standard and julian have no 0, as in cftime. */

#define INSITU__TIME_DAY INT64_C(86400000000)          /* microseconds */
#define INSITU__TIME_YEARS 199000                      /* of a date at most, either way: they fit an int64, with room to spare */
#define INSITU__TIME_MOST INT64_C(6311520000000000000) /* microseconds of a moment, either way: 200000 Julian years */
#define INSITU__TIME_TEXT 48                           /* bytes that insitu__time_print may need */

enum {
  INSITU__TIME_STANDARD,
  INSITU__TIME_PROLEPTIC,
  INSITU__TIME_JULIAN,
  INSITU__TIME_NOLEAP,
  INSITU__TIME_ALL_LEAP,
  INSITU__TIME_360_DAY
};
static const char *const insitu__time_calendars[] = {
    "standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day", "gregorian", "365_day", "366_day"};
/* Days of 400 years. */
static const int64_t insitu__time_days[] = {146097, 146097, 146100, 146000, 146400, 144000};

struct insitu__time_units {
  int calendar;
  int64_t unit;  /* nanoseconds */
  int64_t start; /* the reference date, a moment */
};
struct insitu__time_date { /* as it is written */
  int64_t year, zone;      /* zone: microseconds east of UTC */
  int month, day, hour, minute, second, microsecond;
  int parts; /* how many of year, month, day, hour, minute, second and fraction are given */
};

static int64_t insitu__time_floor(int64_t a, int64_t b) { /* b > 0 */
  return a / b - (a % b < 0);
}

/* ---- calendars ---- */

static int insitu__time_calendar(const char *name) { /* -1: unknown */
  static const int alias[] = {INSITU__TIME_STANDARD, INSITU__TIME_NOLEAP, INSITU__TIME_ALL_LEAP};
  for (int i = 0; i < 9; i++)
    if (!strcasecmp(name, insitu__time_calendars[i])) return i < 6 ? i : alias[i - 6];
  return -1;
}
/* Which of the others counts a date of the standard calendar. */
static int insitu__time_rule(int calendar, int64_t year, int month, int day) {
  if (calendar != INSITU__TIME_STANDARD) return calendar;
  bool julian = year < 1582 || (year == 1582 && (month < 10 || (month == 10 && day < 15)));
  return julian ? INSITU__TIME_JULIAN : INSITU__TIME_PROLEPTIC;
}
static int insitu__time_month_days(int rule, int64_t year, int month) {
  static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (rule == INSITU__TIME_360_DAY) return 30;
  bool leap = rule == INSITU__TIME_ALL_LEAP;
  if (rule == INSITU__TIME_JULIAN) leap = year % 4 == 0;
  if (rule == INSITU__TIME_PROLEPTIC) leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  return days[month - 1] + (month == 2 && leap);
}
/* Number of a year's first day: 0 is 1970-01-01, of the Gregorian calendar where the Julian one is asked for. */
static int64_t insitu__time_year_day(int rule, int64_t year) {
  int64_t before = year - 1; /* years of the epoch that are over */
  switch (rule) {
  case INSITU__TIME_360_DAY: return 360 * (year - 1970);
  case INSITU__TIME_NOLEAP: return 365 * (year - 1970);
  case INSITU__TIME_ALL_LEAP: return 366 * (year - 1970);
  case INSITU__TIME_JULIAN: return 365 * year + insitu__time_floor(before, 4) - 719529;
  default:
    return 365 * year + insitu__time_floor(before, 4) - insitu__time_floor(before, 100) + insitu__time_floor(before, 400) -
           719527;
  }
}
static int64_t insitu__time_day(int calendar, int64_t year, int month, int day) { /* its number; month is 1 to 12 */
  int rule = insitu__time_rule(calendar, year, month, day);
  int64_t n = insitu__time_year_day(rule, year) + day - 1;
  for (int m = 1; m < month; m++) n += insitu__time_month_days(rule, year, m);
  return n;
}
static bool insitu__time_exists(int calendar, int64_t year, int month, int day) {
  if (calendar == INSITU__TIME_STANDARD && year == 1582 && month == 10 && day > 4 && day < 15) return false;
  return day <= insitu__time_month_days(insitu__time_rule(calendar, year, month, day), year, month);
}
static bool insitu__time_without_0(int calendar) { /* -1 precedes 1 in its dates as text */
  return calendar == INSITU__TIME_STANDARD || calendar == INSITU__TIME_JULIAN;
}
static void insitu__time_from_day(int calendar, int64_t n, struct insitu__time_date *d) {
  int rule = calendar;
  if (calendar == INSITU__TIME_STANDARD) rule = n < -141427 ? INSITU__TIME_JULIAN : INSITU__TIME_PROLEPTIC; /* 1582-10-15 */
  d->year = 1970 + insitu__time_floor(n * 400, insitu__time_days[rule]); /* within a year or two */
  while (insitu__time_year_day(rule, d->year) > n) d->year--;
  while (insitu__time_year_day(rule, d->year + 1) <= n) d->year++;
  n -= insitu__time_year_day(rule, d->year);
  for (d->month = 1; n >= insitu__time_month_days(rule, d->year, d->month); d->month++)
    n -= insitu__time_month_days(rule, d->year, d->month);
  d->day = (int)n + 1;
}

/* ---- dates as text ---- */

static bool insitu__time_digits(const char **p, unsigned most, int64_t *out) { /* one to `most` of them, and no more */
  unsigned n = 0;
  for (*out = 0; insitu__text_is_digit(**p); (*p)++, n++) {
    if (n == most) return false;
    *out = *out * 10 + (**p - '0');
  }
  return n > 0;
}
static bool insitu__time_part(const char **p, int least, int most, int *out) {
  int64_t n;
  if (!insitu__time_digits(p, 2, &n) || n < least || n > most) return false;
  *out = (int)n;
  return true;
}
static void insitu__time_space(const char **p) {
  while (**p == ' ') (*p)++;
}
/* "12", "12:00", "12:00:00", "0:0:0.0" */
static bool insitu__time_parse_clock(const char **p, struct insitu__time_date *d) {
  d->parts = 4;
  if (!insitu__time_part(p, 0, 23, &d->hour)) return false;
  if (**p != ':') return true;
  ++*p;
  d->parts = 5;
  if (!insitu__time_part(p, 0, 59, &d->minute)) return false;
  if (**p != ':') return true;
  ++*p;
  d->parts = 6;
  if (!insitu__time_part(p, 0, 59, &d->second)) return false;
  if (**p != '.') return true;
  ++*p;
  d->parts = 7;
  int scale = 100000;
  if (!insitu__text_is_digit(**p)) return false;
  for (; insitu__text_is_digit(**p); ++*p, scale /= 10) d->microsecond += (**p - '0') * scale; /* the 7th digit counts 0 */
  return true;
}
/* "", "Z", "UTC", "+01:00", "-5" */
static bool insitu__time_parse_zone(const char **p, struct insitu__time_date *d) {
  int hour, minute = 0, sign = **p == '-' ? -1 : 1;
  int64_t n;
  if (**p == 'Z' || **p == 'z') return ++*p, true;
  if (!strncasecmp(*p, "UTC", 3) || !strncasecmp(*p, "GMT", 3)) return *p += 3, true;
  if (**p != '+' && **p != '-') return true;
  ++*p;
  const char *begin = *p;
  if (!insitu__time_digits(p, 4, &n)) return false;
  bool together = *p - begin > 2; /* "+0530" */
  hour = (int)(together ? n / 100 : n);
  if (together) minute = (int)(n % 100);
  else if (**p == ':') {
    ++*p;
    if (!insitu__time_part(p, 0, 59, &minute)) return false;
  }
  d->zone = sign * (hour * 60 + minute) * INT64_C(60000000);
  return hour < 24 && minute < 60;
}
/* A date, or its first parts. What it says of the calendar is not checked here. */
static bool insitu__time_parse(const char *p, struct insitu__time_date *d) {
  *d = (struct insitu__time_date){.month = 1, .day = 1, .parts = 1};
  insitu__time_space(&p);
  bool negative = *p == '-';
  if (*p == '-' || *p == '+') p++;
  if (!insitu__time_digits(&p, 6, &d->year) || d->year > INSITU__TIME_YEARS) return false;
  if (negative) d->year = -d->year;
  if (*p == '-') {
    p++;
    d->parts = 2;
    if (!insitu__time_part(&p, 1, 12, &d->month)) return false;
    if (*p == '-') {
      p++;
      d->parts = 3;
      if (!insitu__time_part(&p, 1, 31, &d->day)) return false;
    }
  }
  if (d->parts == 3) {
    const char *clock = p;
    if (*clock == 'T' || *clock == 't') clock++;
    else insitu__time_space(&clock);
    if (clock > p && (insitu__text_is_digit(*clock) || *p == 'T' || *p == 't')) {
      p = clock;
      if (!insitu__time_parse_clock(&p, d)) return false;
    }
  }
  insitu__time_space(&p);
  if (!insitu__time_parse_zone(&p, d)) return false;
  insitu__time_space(&p);
  return !*p;
}
/* The moments [*from, *to) that a date covers: its year, month, day, hour, minute, second or microsecond. Of a day that the
 * calendar leaves out (February 29 where no year has it, the 30th of February or a 31st of model calendars, the ten days of
 * October 1582) nothing, where it would be: *from and *to are the following midnight. False: no calendar has the day in that year,
 * or this one has no year 0. */
static bool insitu__time_period(int calendar, const struct insitu__time_date *written, int64_t *from, int64_t *to) {
  struct insitu__time_date date = *written, *d = &date;
  if (insitu__time_without_0(calendar) && d->year <= 0 && !d->year++) return false;
  bool exists = insitu__time_exists(calendar, d->year, d->month, d->day);
  int64_t day = insitu__time_day(calendar, d->year, d->month, d->day);
  if (!exists && calendar == INSITU__TIME_STANDARD && d->year == 1582 && d->month == 10) {
    day = insitu__time_day(calendar, 1582, 10, 15);
  } else if (!exists) {
    int days = insitu__time_month_days(INSITU__TIME_ALL_LEAP, d->year, d->month);
    if (calendar < INSITU__TIME_NOLEAP || d->day > (d->month == 2 ? 30 : days)) return false;
    day = insitu__time_day(calendar, d->year, d->month, insitu__time_month_days(calendar, d->year, d->month)) + 1;
  }
  static const int64_t lasts[] = {0, 0, 0, INSITU__TIME_DAY, 3600000000, 60000000, 1000000, 1};
  *from = *to = day * INSITU__TIME_DAY - d->zone;
  if (!exists) return true;
  *from += ((d->hour * 60 + d->minute) * INT64_C(60) + d->second) * 1000000 + d->microsecond;
  *to = *from + lasts[d->parts];
  if (d->parts < 3) {
    int64_t year = d->year + (d->parts == 1 || d->month == 12);
    *to = insitu__time_day(calendar, year, d->parts == 1 || d->month == 12 ? 1 : d->month + 1, 1) * INSITU__TIME_DAY - d->zone;
  }
  return true;
}
/* "1979-01-01T00:00", with seconds and fractions where there are any. */
static const char *insitu__time_print(int calendar, int64_t moment, char out[INSITU__TIME_TEXT]) {
  struct insitu__time_date d;
  int64_t day = insitu__time_floor(moment, INSITU__TIME_DAY), rest = moment - day * INSITU__TIME_DAY;
  insitu__time_from_day(calendar, day, &d);
  if (insitu__time_without_0(calendar) && d.year <= 0) d.year--;
  int n = snprintf(out, INSITU__TIME_TEXT, "%s%04d-%02d-%02dT%02d:%02d", d.year < 0 ? "-" : "",
      (int)(d.year < 0 ? -d.year : d.year), d.month, d.day, (int)(rest / 3600000000), (int)(rest / 60000000 % 60));
  if (rest % 60000000) n += snprintf(out + n, INSITU__TIME_TEXT - (size_t)n, ":%02d", (int)(rest / 1000000 % 60));
  if (rest % 1000000) snprintf(out + n, INSITU__TIME_TEXT - (size_t)n, ".%06d", (int)(rest % 1000000));
  return out;
}

/* ---- units ---- */

static int64_t insitu__time_unit(const char *name, uint64_t n) { /* nanoseconds; 0: unknown, -1: a month or a year */
  static const struct {
    const char *names; /* each with a space behind it */
    int64_t unit;
  } unit[] = {{"nanoseconds nanosecond nanosecs nanosec nsecs nsec ns ", 1},
      {"microseconds microsecond microsecs microsec usecs usec us ", 1000},
      {"milliseconds millisecond millisecs millisec msecs msec ms ", 1000000}, {"seconds second secs sec s ", 1000000000},
      {"minutes minute mins min ", INT64_C(60000000000)}, {"hours hour hrs hr h ", INT64_C(3600000000000)},
      {"days day d ", INT64_C(86400000000000)}, {"weeks week ", INT64_C(604800000000000)},
      {"months month years year yrs yr common_years common_year ", -1}};
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    for (const char *at = unit[i].names, *end; *at; at = end + 1) {
      end = strchr(at, ' ');
      if ((uint64_t)(end - at) == n && !strncasecmp(at, name, (size_t)n)) return unit[i].unit;
    }
  return 0;
}
/* From the attributes units and calendar of what `what` names; calendar NULL: standard. */
static insitu_status insitu__time_units(
    struct insitu__time_units *u, const char *what, const char *units, const char *calendar, insitu_error *err) {
  struct insitu__time_date d;
  int64_t to;
  *u = (struct insitu__time_units){.calendar = calendar ? insitu__time_calendar(calendar) : INSITU__TIME_STANDARD};
  if (u->calendar < 0)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "%s: calendar '%.60s' is not known (standard, proleptic_gregorian, julian, noleap, all_leap and 360_day are); select "
        "samples by index",
        what, calendar);
  const char *p = units;
  insitu__time_space(&p);
  uint64_t n = strcspn(p, " ");
  u->unit = insitu__time_unit(p, n);
  const char *since = p + n;
  insitu__time_space(&since);
  if (strncasecmp(since, "since ", 6))
    return insitu__error_set(err, INSITU_E_FORMAT,
        "%s: units '%.80s' are not '<unit> since <date>', such as 'hours since 1900-01-01'; select samples by index", what,
        units);
  if (u->unit <= 0)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED, "%s: units '%.80s': %s; select samples by index", what, units,
        u->unit ? "months and years have no fixed length"
                : "the unit is not known (weeks, days, hours, minutes, seconds, milliseconds, microseconds, nanoseconds are)");
  if (!insitu__time_parse(since + 6, &d) || !insitu__time_period(u->calendar, &d, &u->start, &to) || u->start == to)
    return insitu__error_set(err, INSITU_E_FORMAT,
        "%s: units '%.80s': the reference date is none of calendar %s; correct it, or select samples by index", what, units,
        insitu__time_calendars[u->calendar]);
  return INSITU_OK;
}
/* What numpy's datetime64[unit], of `count` units a step, counts; false: years, months, generic or below nanoseconds. */
static bool insitu__time_datetime64(struct insitu__time_units *u, const char *unit, int64_t count) {
  static const struct {
    char name[3];
    int64_t unit;
  } known[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"m", INT64_C(60000000000)},
      {"h", INT64_C(3600000000000)}, {"D", INT64_C(86400000000000)}, {"W", INT64_C(604800000000000)}};
  *u = (struct insitu__time_units){.calendar = INSITU__TIME_PROLEPTIC};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(unit, known[i].name)) return count > 0 && !__builtin_mul_overflow(known[i].unit, count, &u->unit);
  return false;
}
static bool insitu__time_within(const struct insitu__time_units *u, int64_t since, int64_t *moment) {
  return !__builtin_add_overflow(u->start, since, moment) && *moment <= INSITU__TIME_MOST && *moment >= -INSITU__TIME_MOST;
}
/* The moment of a value of a coordinate; parts of a microsecond are cut off, of floats rounded. False: no date (NaN, NaT), or one
 * out of range. */
static bool insitu__time_from_int(const struct insitu__time_units *u, int64_t value, int64_t *moment) {
  bool whole = u->unit % 1000 == 0;
  int64_t since;
  if (value == INT64_MIN || __builtin_mul_overflow(value, whole ? u->unit / 1000 : u->unit, &since)) return false;
  return insitu__time_within(u, whole ? since : insitu__time_floor(since, 1000), moment);
}
static bool insitu__time_from_double(const struct insitu__time_units *u, double value, int64_t *moment) {
  if (!(value > -0x1p62 && value < 0x1p62)) return false;
  int64_t whole = (int64_t)value, since;
  double rest = (value - (double)whole) * (double)u->unit / 1000; /* exact but for the last rounding: part of a unit */
  if (__builtin_mul_overflow(whole, u->unit, &since)) {
    if (u->unit % 1000 || __builtin_mul_overflow(whole, u->unit / 1000, &since)) return false;
  } else {
    rest += (double)(since % 1000) / 1000;
    since /= 1000;
  }
  int64_t more = (int64_t)(rest < 0 ? rest - 0.5 : rest + 0.5);
  return !__builtin_add_overflow(since, more, &since) && insitu__time_within(u, since, moment);
}

/* >>order ------------------------------------------------------------------------------------------------------------------ */
/* The epoch order, order_version 1: which anchor stands at which position, both ways, by integer arithmetic alone.
 * State: a struct insitu__order, O(lanes + irregular units) bytes; it is constant between init, reset and free, so any thread may
 * read it. Nothing here suspends or does IO; only init allocates.
 *
 * rank      a unit's place in the shuffled sequence of units
 * sequence  all anchors of the epoch in the order of those ranks, before windows mix them; an anchor's number in it is written a
 * index     an anchor's place within its lane after mixing; position = index * lanes + lane
 * short     a unit with fewer anchors than unit_rows */

/* The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline uint64_t insitu__order_mix(uint64_t x) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return x ^ x >> 31;
}
static inline uint64_t insitu__order_key(const uint64_t *words, int n) {
  uint64_t h = 0;
  for (int i = 0; i < n; i++) h = insitu__order_mix(h ^ words[i]);
  return h;
}

/* Division by a number fixed at init, as a multiplication: with inverse = floor((2^64 - 1) / by) the high word of x * inverse is
 * the quotient or one less, for every x. */
struct insitu__order_divisor {
  uint64_t by, inverse;
};
static inline struct insitu__order_divisor insitu__order_divisor(uint64_t by) {
  struct insitu__order_divisor d = {by, UINT64_MAX / by};
  return d;
}
static inline uint64_t insitu__order_divide(const struct insitu__order_divisor *d, uint64_t x) {
  __extension__ typedef unsigned __int128 wide;
  uint64_t quotient = (uint64_t)((wide)x * d->inverse >> 64);
  return quotient + (x - quotient * d->by >= d->by);
}

/* A keyed bijection of [0, n), n <= INSITU__MAX_ORDER. Below 64 it is a Fisher-Yates shuffle in tables, else a Feistel network of
 * 8 rounds over the next power of two, walked along its cycle until it is back below n (less than two steps on average). */
enum insitu__order_kind { INSITU__ORDER_IDENTITY, INSITU__ORDER_TABLE, INSITU__ORDER_FEISTEL };
struct insitu__order_perm {
  uint64_t n;
  enum insitu__order_kind kind;
  uint8_t right_bits, left_shift, right_shift; /* shifts: 64 - bits of that half */
  union {
    struct {
      uint8_t forward[64], backward[64];
    } table;
    uint64_t keys[8];
  } u;
};

static inline void insitu__order_perm_identity(struct insitu__order_perm *p, uint64_t n) {
  p->n = n;
  p->kind = INSITU__ORDER_IDENTITY;
}

static void insitu__order_perm_init(struct insitu__order_perm *p, uint64_t n, uint64_t key) {
  uint64_t h = insitu__order_mix(key); /* mix(h ^ i) is then the key of the words (key, i) */
  p->n = n;
  if (n < 64) {
    p->kind = INSITU__ORDER_TABLE;
    uint8_t *t = p->u.table.forward;
    for (uint64_t i = 0; i < n; i++) t[i] = (uint8_t)i;
    for (uint64_t i = n; i-- > 1;) {
      uint64_t j = insitu__order_mix(h ^ i) % (i + 1);
      uint8_t swap = t[i];
      t[i] = t[j];
      t[j] = swap;
    }
    for (uint64_t i = 0; i < n; i++) p->u.table.backward[t[i]] = (uint8_t)i;
    return;
  }
  p->kind = INSITU__ORDER_FEISTEL;
  unsigned bits = 64 - (unsigned)__builtin_clzll(n - 1), left = bits / 2, right = bits - left;
  p->right_bits = (uint8_t)right;
  p->left_shift = (uint8_t)(64 - left);
  p->right_shift = (uint8_t)(64 - right);
  for (uint64_t i = 0; i < 8; i++) p->u.keys[i] = insitu__order_mix(h ^ i);
}

/* mix(x) >> shift. Halves have at most 31 bits, so shift is at least 33; mix's last step, x ^ x >> 31, changes only bits 0 to 32
 * and is left out. The eight rounds depend on each other, so each cycle less counts eightfold. */
static inline uint64_t insitu__order_round(uint64_t x, unsigned shift) {
  x += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  return (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB) >> shift;
}

static inline uint64_t insitu__order_perm_fwd(const struct insitu__order_perm *p, uint64_t x) {
  if (p->kind == INSITU__ORDER_TABLE) return p->u.table.forward[x];
  if (p->kind == INSITU__ORDER_IDENTITY) return x;
  const uint64_t *k = p->u.keys, mask = (UINT64_C(1) << p->right_bits) - 1;
  do {
    uint64_t left = x >> p->right_bits, right = x & mask;
    for (int i = 0; i < 8; i += 2) {
      left ^= insitu__order_round(right ^ k[i], p->left_shift);
      right ^= insitu__order_round(left ^ k[i + 1], p->right_shift);
    }
    x = left << p->right_bits | right;
  } while (x >= p->n);
  return x;
}

static inline uint64_t insitu__order_perm_bwd(const struct insitu__order_perm *p, uint64_t x) {
  if (p->kind == INSITU__ORDER_TABLE) return p->u.table.backward[x];
  if (p->kind == INSITU__ORDER_IDENTITY) return x;
  const uint64_t *k = p->u.keys, mask = (UINT64_C(1) << p->right_bits) - 1;
  do {
    uint64_t left = x >> p->right_bits, right = x & mask;
    for (int i = 6; i >= 0; i -= 2) {
      right ^= insitu__order_round(left ^ k[i + 1], p->right_shift);
      left ^= insitu__order_round(right ^ k[i], p->left_shift);
    }
    x = left << p->right_bits | right;
  } while (x >= p->n);
  return x;
}

struct insitu__order_irregular {
  uint64_t unit, rows; /* anchors the unit holds; rows == unit_rows is legal and means nothing */
};
struct insitu__order_desc {
  uint64_t units, unit_rows, seed, epoch, global_batch, lanes, window;
  bool sequential;
  const struct insitu__order_irregular *irregular; /* strictly ascending by unit */
  uint64_t n_irregular;
};
struct insitu__order_lane {
  uint64_t first; /* rank of the unit that holds the lane's first anchor */
  uint64_t head;  /* units of its first window: staggered, so that lanes open their windows at different times */
};
struct insitu__order_short {
  uint64_t rank;
  uint64_t end; /* one past the unit's last anchor in the sequence */
};
struct insitu__order {
  uint64_t units, unit_rows, seed, epoch, global_batch, lanes, window;
  bool sequential;
  uint64_t anchors;               /* of the epoch, dropped ones included */
  uint64_t batches;               /* positions: batches * global_batch */
  uint64_t lane_anchors;          /* lane l holds [l * lane_anchors, (l + 1) * lane_anchors) of the sequence */
  uint64_t key;                   /* of (seed, epoch) */
  struct insitu__order_perm perm; /* rank -> unit */
  struct insitu__order_divisor by_rows, by_lanes, by_window, by_lane_anchors;
  struct insitu__order_lane *lane;
  struct insitu__order_irregular *irregular;  /* the short units, by unit */
  struct insitu__order_short *shorts, *spare; /* the same by rank; room to sort them */
  uint64_t n_short;
};
struct insitu__order_place {
  uint64_t unit, within, lane, window;
};
struct insitu__order_window {
  uint64_t lane, index, begin, end; /* holds [begin, end) of the sequence; index counts the lane's windows */
  uint64_t offset;                  /* begin as an index in the lane: its rows are the indexes [offset, offset + end - begin) */
  uint64_t short_begin, short_end;  /* the short units among its own */
  struct insitu__order_perm mixer;
};

/* In shorts[lo, hi): the first whose rank is not below rank, or hi. */
static inline uint64_t insitu__order_short_at(const struct insitu__order *o, uint64_t rank, uint64_t lo, uint64_t hi) {
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (o->shorts[mid].rank < rank) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
/* In shorts[lo, hi): the first that ends beyond anchor a of the sequence, or hi. */
static inline uint64_t insitu__order_short_beyond(const struct insitu__order *o, uint64_t a, uint64_t lo, uint64_t hi) {
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (o->shorts[mid].end <= a) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
/* How many anchors the first i short units lack. Adding what the units before an anchor lack turns its number in the sequence
 * into rank * unit_rows + within. */
static inline uint64_t insitu__order_lack(const struct insitu__order *o, uint64_t i) {
  return i ? (o->shorts[i - 1].rank + 1) * o->unit_rows - o->shorts[i - 1].end : 0;
}
/* First anchor, in the sequence, of the unit at a rank; anchors at rank == units. */
static inline uint64_t insitu__order_rank_begin(const struct insitu__order *o, uint64_t rank) {
  return rank * o->unit_rows - insitu__order_lack(o, insitu__order_short_at(o, rank, 0, o->n_short));
}
/* Rank of the unit that holds anchor a of the sequence. */
static inline uint64_t insitu__order_rank_of(const struct insitu__order *o, uint64_t a) {
  return insitu__order_divide(&o->by_rows, a + insitu__order_lack(o, insitu__order_short_beyond(o, a, 0, o->n_short)));
}
/* First anchor, in the sequence, of a unit: its within-th anchor is this + within. */
static inline uint64_t insitu__order_unit_begin(const struct insitu__order *o, uint64_t unit) {
  return insitu__order_rank_begin(o, insitu__order_perm_bwd(&o->perm, unit));
}
static inline uint64_t insitu__order_lane_begin(const struct insitu__order *o, uint64_t lane) {
  return insitu__base_min(lane * o->lane_anchors, o->anchors);
}
/* One past the lane's last anchor in the sequence. Only in the sequential order may the last lanes hold fewer or none. */
static inline uint64_t insitu__order_lane_end(const struct insitu__order *o, uint64_t lane) {
  return insitu__base_min((lane + 1) * o->lane_anchors, o->anchors);
}
/* Anchors the lane delivers in the epoch. */
static inline uint64_t insitu__order_rows(const struct insitu__order *o, uint64_t lane) {
  return insitu__order_lane_end(o, lane) - insitu__order_lane_begin(o, lane);
}

/* Sorts shorts by rank: radix 256, in place but for spare; a rank has at most 61 bits and usually fewer than 32. */
static void insitu__order_sort(struct insitu__order *o) {
  unsigned bits = o->units > 1 ? 64 - (unsigned)__builtin_clzll(o->units - 1) : 0;
  for (unsigned shift = 0; shift < bits; shift += 8) {
    uint64_t place[256] = {0}, sum = 0;
    for (uint64_t i = 0; i < o->n_short; i++) place[o->shorts[i].rank >> shift & 255]++;
    for (int d = 0; d < 256; d++) {
      uint64_t count = place[d];
      place[d] = sum;
      sum += count;
    }
    for (uint64_t i = 0; i < o->n_short; i++) o->spare[place[o->shorts[i].rank >> shift & 255]++] = o->shorts[i];
    struct insitu__order_short *sorted = o->spare;
    o->spare = o->shorts;
    o->shorts = sorted;
  }
}

/* Turns to another epoch; allocates nothing and cannot fail. Windows of the old epoch are void. */
static void insitu__order_reset(struct insitu__order *o, uint64_t epoch) {
  uint64_t words[2] = {o->seed, epoch}, lack = 0;
  o->epoch = epoch;
  o->key = insitu__order_key(words, 2);
  if (o->sequential) insitu__order_perm_identity(&o->perm, o->units);
  else insitu__order_perm_init(&o->perm, o->units, o->key);
  for (uint64_t i = 0; i < o->n_short; i++) {
    o->shorts[i].rank = insitu__order_perm_bwd(&o->perm, o->irregular[i].unit);
    o->shorts[i].end = o->irregular[i].rows; /* until sorted */
  }
  insitu__order_sort(o);
  for (uint64_t i = 0; i < o->n_short; i++) {
    uint64_t rows = o->shorts[i].end;
    o->shorts[i].end = o->shorts[i].rank * o->unit_rows - lack + rows;
    lack += o->unit_rows - rows;
  }
  for (uint64_t l = 0; l < o->lanes; l++) /* ceil(window * (l + 1) / lanes) without overflow: lanes * lanes is below 2^41 */
    o->lane[l].head = o->window / o->lanes * (l + 1) + insitu__base_ceil_div(o->window % o->lanes * (l + 1), o->lanes);
  for (uint64_t l = 0; l < o->lanes; l++)
    o->lane[l].first = insitu__order_rows(o, l) ? insitu__order_rank_of(o, insitu__order_lane_begin(o, l)) : o->units;
}

static insitu_status insitu__order_check(const struct insitu__order_desc *d, insitu_error *err) {
  uint64_t anchors;
  if (!d->units || !d->unit_rows || !d->global_batch || !d->lanes || !d->window)
    return insitu__error_set(err, INSITU_E_ARG,
        "order: units %" PRIu64 ", unit_rows %" PRIu64 ", global_batch %" PRIu64 ", lanes %" PRIu64 ", window %" PRIu64
        ": none may be zero; set it to at least 1",
        d->units, d->unit_rows, d->global_batch, d->lanes, d->window);
  if (!insitu__base_mul(d->units, d->unit_rows, &anchors) || anchors > INSITU__MAX_ORDER)
    return insitu__error_set(err, INSITU_E_ARG,
        "order: %" PRIu64 " units of %" PRIu64 " rows: more than 2^61 anchors; draw from a smaller range", d->units,
        d->unit_rows);
  if (d->global_batch > INSITU__MAX_ORDER)
    return insitu__error_set(
        err, INSITU_E_ARG, "order: global_batch %" PRIu64 ": more than 2^61 rows; use smaller batches", d->global_batch);
  if (d->lanes > INSITU__MAX_LANES)
    return insitu__error_set(
        err, INSITU_E_ARG, "order: lanes %" PRIu64 ": at most %" PRIu64 "; use fewer lanes", d->lanes, INSITU__MAX_LANES);
  if (d->global_batch % d->lanes) {
    uint64_t fit = insitu__base_min(d->lanes, d->global_batch);
    while (d->global_batch % fit) fit--;
    return insitu__error_set(err, INSITU_E_ARG,
        "order: lanes %" PRIu64 " does not divide global_batch %" PRIu64
        "; the next smaller number of lanes that does is %" PRIu64,
        d->lanes, d->global_batch, fit);
  }
  if (d->n_irregular && !d->irregular)
    return insitu__error_set(
        err, INSITU_E_ARG, "order: n_irregular %" PRIu64 " but irregular is NULL; pass the list", d->n_irregular);
  for (uint64_t i = 0; i < d->n_irregular; i++) {
    const struct insitu__order_irregular *r = d->irregular + i;
    if (r->unit >= d->units || r->rows > d->unit_rows)
      return insitu__error_set(err, INSITU_E_ARG,
          "order: irregular[%" PRIu64 "] = unit %" PRIu64 " with %" PRIu64 " rows: there are %" PRIu64
          " units of at most %" PRIu64 " rows; correct the entry",
          i, r->unit, r->rows, d->units, d->unit_rows);
    if (i && r->unit <= r[-1].unit)
      return insitu__error_set(err, INSITU_E_ARG,
          "order: irregular[%" PRIu64 "] = unit %" PRIu64 " follows unit %" PRIu64 "; list each unit once, ascending", i, r->unit,
          r[-1].unit);
  }
  return INSITU_OK;
}

static void insitu__order_free(struct insitu__order *o) { /* a zeroed or freed one is fine */
  insitu__mem_free(o->lane);
  insitu__mem_free(o->irregular);
  insitu__mem_free(o->shorts);
  insitu__mem_free(o->spare);
  memset(o, 0, sizeof *o);
}

/* Room for n_short short units; false when out of memory. */
static bool insitu__order_allocate(struct insitu__order *o) {
  o->lane = (struct insitu__order_lane *)insitu__mem_alloc(o->lanes, sizeof *o->lane);
  if (!o->lane) return false;
  if (!o->n_short) return true;
  o->irregular = (struct insitu__order_irregular *)insitu__mem_alloc(o->n_short, sizeof *o->irregular);
  o->shorts = (struct insitu__order_short *)insitu__mem_alloc(o->n_short, sizeof *o->shorts);
  o->spare = (struct insitu__order_short *)insitu__mem_alloc(o->n_short, sizeof *o->spare);
  return o->irregular && o->shorts && o->spare;
}

/* Copies what it needs of d. On an error *o is zeroed. */
static insitu_status insitu__order_init(struct insitu__order *o, const struct insitu__order_desc *d, insitu_error *err) {
  memset(o, 0, sizeof *o);
  insitu_status status = insitu__order_check(d, err);
  if (status) return status;
  o->units = d->units;
  o->unit_rows = d->unit_rows;
  o->seed = d->seed;
  o->global_batch = d->global_batch;
  o->lanes = d->lanes;
  o->window = d->window;
  o->sequential = d->sequential;
  o->anchors = d->units * d->unit_rows;
  for (uint64_t i = 0; i < d->n_irregular; i++) {
    o->n_short += d->irregular[i].rows < d->unit_rows;
    o->anchors -= d->unit_rows - d->irregular[i].rows;
  }
  uint64_t share = d->global_batch / d->lanes; /* rows of a lane in one batch */
  if (d->sequential) {
    o->lane_anchors = insitu__base_ceil_div(o->anchors, d->lanes);
    o->batches = insitu__base_ceil_div(o->lane_anchors, share);
  } else {
    o->batches = o->anchors / d->global_batch;
    o->lane_anchors = o->batches * share;
  }
  o->by_rows = insitu__order_divisor(o->unit_rows);
  o->by_lanes = insitu__order_divisor(o->lanes);
  o->by_window = insitu__order_divisor(o->window);
  o->by_lane_anchors = insitu__order_divisor(insitu__base_max(o->lane_anchors, 1));
  if (!insitu__order_allocate(o)) {
    insitu__order_free(o);
    return insitu__error_set(err, INSITU_E_NOMEM,
        "order: no memory for %" PRIu64 " lanes and %" PRIu64 " irregular units; use fewer lanes or free memory", d->lanes,
        d->n_irregular);
  }
  for (uint64_t i = 0, n = 0; i < d->n_irregular; i++)
    if (d->irregular[i].rows < d->unit_rows) o->irregular[n++] = d->irregular[i];
  insitu__order_reset(o, d->epoch);
  return INSITU_OK;
}

/* T: at most so many consecutive batches hold rows of one window. */
static uint64_t insitu__order_span(const struct insitu__order *o) {
  uint64_t rows;
  if (!insitu__base_mul(o->window, o->unit_rows, &rows)) rows = UINT64_MAX;
  uint64_t steps = insitu__base_ceil_div(rows - 1, o->global_batch / o->lanes);
  return steps < o->batches ? steps + 1 : o->batches;
}

/* The lane's window that holds the unit at a rank, but for its mixer; the lane must hold at least one of that unit's anchors. */
static void insitu__order_window_range(
    const struct insitu__order *o, struct insitu__order_window *w, uint64_t lane, uint64_t rank) {
  uint64_t first = o->lane[lane].first, units = o->lane[lane].head;
  w->lane = lane;
  w->index = 0;
  if (rank - first >= units) {
    uint64_t later = insitu__order_divide(&o->by_window, rank - first - units);
    w->index = 1 + later;
    first += units + later * o->window;
    units = o->window;
  }
  uint64_t last = units < o->units - first ? first + units : o->units; /* one past the last rank */
  w->short_begin = insitu__order_short_at(o, first, 0, o->n_short);
  w->short_end = insitu__order_short_at(o, last, w->short_begin, insitu__base_min(o->n_short, w->short_begin + (last - first)));
  uint64_t lane_begin = insitu__order_lane_begin(o, lane);
  w->begin = insitu__base_max(first * o->unit_rows - insitu__order_lack(o, w->short_begin), lane_begin);
  w->end = insitu__base_min(last * o->unit_rows - insitu__order_lack(o, w->short_end), insitu__order_lane_end(o, lane));
  w->offset = w->begin - lane_begin;
}

/* The same with its mixer. */
static void insitu__order_window_find(
    const struct insitu__order *o, struct insitu__order_window *w, uint64_t lane, uint64_t rank) {
  insitu__order_window_range(o, w, lane, rank);
  if (o->sequential) insitu__order_perm_identity(&w->mixer, w->end - w->begin);
  else insitu__order_perm_init(&w->mixer, w->end - w->begin, insitu__order_mix(insitu__order_mix(o->key ^ lane) ^ w->index));
}

/* The lane's window that holds anchor a of the sequence, ready for _at and _where; the lane must hold a. */
static inline void insitu__order_window_init(
    const struct insitu__order *o, struct insitu__order_window *w, uint64_t lane, uint64_t a) {
  insitu__order_window_find(o, w, lane, insitu__order_rank_of(o, a));
}

/* What stands at an index of the window's lane; the index must lie in the window. */
static inline void insitu__order_window_at(
    const struct insitu__order *o, const struct insitu__order_window *w, uint64_t index, struct insitu__order_place *place) {
  uint64_t a = w->begin + insitu__order_perm_fwd(&w->mixer, index - w->offset);
  a += insitu__order_lack(o, insitu__order_short_beyond(o, a, w->short_begin, w->short_end));
  uint64_t rank = insitu__order_divide(&o->by_rows, a);
  place->unit = insitu__order_perm_fwd(&o->perm, rank);
  place->within = a - rank * o->unit_rows;
  place->lane = w->lane;
  place->window = w->index;
}

/* At which index of the window's lane anchor a of the sequence stands; false when the window does not hold it. */
static inline bool insitu__order_window_where(
    const struct insitu__order *o, const struct insitu__order_window *w, uint64_t a, uint64_t *index_in_lane) {
  (void)o;
  if (a < w->begin || a >= w->end) return false;
  *index_in_lane = w->offset + insitu__order_perm_bwd(&w->mixer, a - w->begin);
  return true;
}

/* What stands at a position; false when nothing does: beyond the last batch, or where a sequential lane has run out. */
static bool insitu__order_at(const struct insitu__order *o, uint64_t position, struct insitu__order_place *place) {
  if (position >= o->batches * o->global_batch) return false;
  uint64_t index = insitu__order_divide(&o->by_lanes, position), lane = position - index * o->lanes;
  if (index >= insitu__order_rows(o, lane)) return false;
  struct insitu__order_window w;
  insitu__order_window_init(o, &w, lane, insitu__order_lane_begin(o, lane) + index);
  insitu__order_window_at(o, &w, index, place);
  return true;
}

/* Where the within-th anchor of a unit stands; false when it is among the epoch's dropped ones. The unit must hold it. */
static bool insitu__order_where(const struct insitu__order *o, uint64_t unit, uint64_t within, uint64_t *position) {
  uint64_t rank = insitu__order_perm_bwd(&o->perm, unit), a = insitu__order_rank_begin(o, rank) + within, index;
  uint64_t lane = insitu__order_divide(&o->by_lane_anchors, a);
  if (!o->batches || lane >= o->lanes) return false;
  struct insitu__order_window w;
  insitu__order_window_find(o, &w, lane, rank);
  if (!insitu__order_window_where(o, &w, a, &index)) return false;
  *position = index * o->lanes + lane;
  return true;
}

struct insitu_order {
  struct insitu__order order;
};

INSITU_DEF insitu_status insitu_order_open(const insitu_order_desc *desc, insitu_order **out, insitu_error *err) {
  _Static_assert(sizeof(struct insitu__order_irregular) == 2 * sizeof(uint64_t), "a pair of the public list is one entry");
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "order: out is NULL; pass the address of a handle");
  *out = NULL;
  if (!desc) return insitu__error_set(err, INSITU_E_ARG, "order: desc is NULL; pass a filled one");
  if (!desc->api || desc->api > INSITU_API)
    return insitu__error_set(err, INSITU_E_API,
        "order: desc.api is %" PRIu32 ", this library knows 1 to %d; set it to INSITU_API and build both from one header",
        desc->api, INSITU_API);
  if (desc->sequential > 1)
    return insitu__error_set(err, INSITU_E_ARG, "order: sequential %" PRIu32 "; set it to 0 or 1", desc->sequential);
  struct insitu__order_desc d = {desc->units, desc->unit_rows, desc->seed, desc->epoch, desc->global_batch, desc->lanes,
      desc->window, desc->sequential == 1, (const struct insitu__order_irregular *)desc->irregular, desc->n_irregular};
  insitu_order *o = (insitu_order *)insitu__mem_alloc(1, sizeof *o);
  if (!o) return insitu__error_set(err, INSITU_E_NOMEM, "order: no memory for a handle; free memory");
  insitu_status status = insitu__order_init(&o->order, &d, err);
  if (status) insitu__mem_free(o);
  else *out = o;
  return status;
}

INSITU_DEF uint64_t insitu_order_batches(const insitu_order *order) {
  return order ? order->order.batches : 0;
}

INSITU_DEF insitu_status insitu_order_at(const insitu_order *order, uint64_t position, insitu_order_place *out) {
  if (!order || !out || position >= order->order.batches * order->order.global_batch) return INSITU_E_ARG;
  struct insitu__order_place p;
  if (!insitu__order_at(&order->order, position, &p)) return INSITU_END;
  out->unit = p.unit;
  out->within = p.within;
  out->lane = p.lane;
  out->window = p.window;
  return INSITU_OK;
}

INSITU_DEF insitu_status insitu_order_where(const insitu_order *order, uint64_t unit, uint64_t within, uint64_t *position) {
  if (!order || !position || unit >= order->order.units) return INSITU_E_ARG;
  const struct insitu__order *o = &order->order;
  uint64_t rank = insitu__order_perm_bwd(&o->perm, unit);
  if (within >= insitu__order_rank_begin(o, rank + 1) - insitu__order_rank_begin(o, rank)) return INSITU_E_ARG;
  return insitu__order_where(o, unit, within, position) ? INSITU_OK : INSITU_END;
}

INSITU_DEF void insitu_order_close(insitu_order **order) {
  if (!order || !*order) return;
  insitu__order_free(&(*order)->order);
  insitu__mem_free(*order);
  *order = NULL;
}

/* >>coro ------------------------------------------------------------------------------------------------------------------- */
/* Stackful coroutines: code that waits for the reactor reads top to bottom. State: one pool of stacks, no globals.
   Thread: a pool and its coroutines belong to the thread that calls start while none is live, until none is live again; a
   coroutine never changes thread (compilers keep the addresses of thread-locals across a switch). Only insitu__coro_suspend_await
   suspends. Rules inside a coroutine: keep locals small (INSITU_CORO_STACK), leave the rounding mode and the other floating point
   controls alone (they are not switched; asserted without NDEBUG, for about 20 ns per switch), do not rely on errno across a
   suspension, never longjmp, throw or pthread_exit out of it. In inline mode a signal handler of the user's runs on the
   coroutine's stack unless it asked for SA_ONSTACK.

   INSITU_CORO_STACK      bytes of a stack, its control block included; only touched pages become resident
   INSITU_CORO_UCONTEXT   switch with swapcontext instead of assembly: about 100 times slower (two system calls for the signal
   mask per switch), for processors without an assembly switch (chosen there by itself) and for active shadow stacks
   INSITU_VALGRIND        tell Valgrind about the stacks in NDEBUG builds too: some instructions when a stack is mapped or
   unmapped, nothing per switch; without it memcheck takes a switch for an enormous stack frame */
#include <assert.h>
#if !defined(INSITU_CORO_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define INSITU_CORO_UCONTEXT
#endif
#ifdef INSITU_CORO_UCONTEXT
#include <ucontext.h>
#endif

#ifdef INSITU__MEM_ASAN
#define INSITU__CORO_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define INSITU__CORO_TSAN 1
#endif
#if defined(__has_feature) /* clang says it this way */
#if __has_feature(thread_sanitizer) && !defined(INSITU__CORO_TSAN)
#define INSITU__CORO_TSAN 1
#endif
#if __has_feature(safe_stack) || __has_feature(shadow_call_stack)
#error "insitubatch.h: coroutines do not switch the second stack of -fsanitize=safe-stack or shadow-call-stack; build without it"
#endif
#endif
#ifdef INSITU__CORO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef INSITU__CORO_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__has_include) && (defined(INSITU_VALGRIND) || !defined(NDEBUG))
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define INSITU__CORO_VALGRIND 1
#endif
#endif

#ifndef INSITU_CORO_STACK
#if defined(INSITU__CORO_ASAN) || defined(INSITU__CORO_TSAN)
#define INSITU_CORO_STACK (256u << 10) /* instrumented frames, and the sanitizers' reports, need more */
#else
#define INSITU_CORO_STACK (64u << 10)
#endif
#endif
#define INSITU__CORO_STACK_MIN (16u << 10)
#define INSITU__CORO_STACK_MAX (1u << 30)
#define INSITU__CORO_GUARD (64u << 10) /* more than any frame: one with a path buffer could step over a single 4 KiB page */

struct insitu__coro_context {
#ifdef INSITU_CORO_UCONTEXT
  ucontext_t machine;
#else
  void *sp; /* the callee-saved registers lie on the stack from here up */
#endif
};
struct insitu__coro_pool {
  uint32_t live, peak; /* coroutines started and not yet ended, and the highest value that ever had */
  uint32_t idle_count, max_idle;
  struct insitu__coro *idle;    /* stacks to reuse, the last ended first: its pages are the warmest */
  struct insitu__coro *current; /* NULL while the thread's native stack runs */
  size_t guard_bytes, stack_bytes;
  struct insitu__coro_context native;
  pthread_t owner; /* valid while live > 0 */
#ifdef INSITU__CORO_ASAN
  const void *native_low;
  size_t native_bytes;
  void *native_fake;
#endif
#ifdef INSITU__CORO_TSAN
  void *native_fiber;
#endif
};
enum insitu__coro_state { INSITU__CORO_IDLE, INSITU__CORO_SUSPENDED, INSITU__CORO_RUNNING, INSITU__CORO_ENDED };
/* The control block: the highest bytes of its stack's mapping. Overflow runs the other way, into the guard. */
struct insitu__coro {
  struct insitu__coro_context context;
  struct insitu__coro_pool *pool;
  struct insitu__coro *next; /* in pool->idle */
  void (*fn)(void *);
  void *arg;
  unsigned char *low; /* the lowest byte of the stack; the guard ends here */
  enum insitu__coro_state state;
#ifdef INSITU__CORO_ASAN
  void *fake;
#endif
#ifdef INSITU__CORO_TSAN
  void *fiber;
#endif
#ifdef INSITU__CORO_VALGRIND
  unsigned valgrind_id;
#endif
};

/* Unwind information inside asm is an error when the compiler writes none (-fno-asynchronous-unwind-tables), hence the macro. */
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define INSITU__CORO_CFI(directive) ".cfi_" directive "\n\t"
#else
#define INSITU__CORO_CFI(directive) ""
#endif
/* The compiler must assume the ABI of a switch, not conclude from a body in which it sees no register used (gcc: noipa), and must
   not put instrumentation or a stack protector into a function that has no frame. */
#ifdef __clang__
#define INSITU__CORO_OPAQUE noinline, no_instrument_function, no_profile_instrument_function, no_stack_protector
#else
#define INSITU__CORO_OPAQUE noipa, no_instrument_function, no_profile_instrument_function, no_stack_protector
#endif

/* clang-format off */
#if !defined(INSITU_CORO_UCONTEXT) && defined(__x86_64__)
/* Saves the callee-saved registers on this stack and its pointer in *save, then continues at `load`, where the same was done
 * or insitu__coro_prepare pretended so. `arg` arrives as first argument at an entry. It ends in a jump, since no call predicts
 * where a ret would go, and notrack, since a return address has no endbr64. A naked static function, unlike a global label,
 * may exist in many units under LTO. */
static __attribute__((naked, used, INSITU__CORO_OPAQUE)) void insitu__coro_switch(__attribute__((unused)) void **save,
    __attribute__((unused)) void *load, __attribute__((unused)) void *arg) {
  __asm__ volatile("endbr64\n\t"
                   "subq $48, %rsp\n\t" INSITU__CORO_CFI("adjust_cfa_offset 48")
                   "movq %rbp, 40(%rsp)\n\t" INSITU__CORO_CFI("rel_offset %rbp, 40")
                   "movq %rbx, 32(%rsp)\n\t" INSITU__CORO_CFI("rel_offset %rbx, 32")
                   "movq %r12, 24(%rsp)\n\t" INSITU__CORO_CFI("rel_offset %r12, 24")
                   "movq %r13, 16(%rsp)\n\t" INSITU__CORO_CFI("rel_offset %r13, 16")
                   "movq %r14, 8(%rsp)\n\t" INSITU__CORO_CFI("rel_offset %r14, 8")
                   "movq %r15, (%rsp)\n\t" INSITU__CORO_CFI("rel_offset %r15, 0")
                   "movq %rsp, (%rdi)\n\t"
                   "movq %rsi, %rsp\n\t" /* the other stack has the same layout: the unwind rules above stay true */
                   "movq %rdx, %rdi\n\t"
                   "movq (%rsp), %r15\n\t"
                   "movq 8(%rsp), %r14\n\t"
                   "movq 16(%rsp), %r13\n\t"
                   "movq 24(%rsp), %r12\n\t"
                   "movq 32(%rsp), %rbx\n\t"
                   "movq 40(%rsp), %rbp\n\t"
                   "movq 48(%rsp), %rcx\n\t"
                   "addq $56, %rsp\n\t"
                   "notrack jmp *%rcx");
}
#define INSITU__CORO_FRAME 8 /* words prepared below the control block: six registers, the entry, a return address of zero */
#define INSITU__CORO_FRAME_ENTRY 6
#define INSITU__CORO_LAST_FRAME INSITU__CORO_CFI("undefined %rip")
#elif !defined(INSITU_CORO_UCONTEXT) && defined(__aarch64__)
/* As on x86-64, but gcc has no naked functions here: the asm claims every register, so the compiler saves x19-x28, x30 and
 * d8-d15 on this stack around it; x29 cannot be claimed and is saved by hand. Ends in ret, which needs no landing pad (BTI). */
static __attribute__((INSITU__CORO_OPAQUE)) void insitu__coro_switch(void **save, void *load, void *arg) {
  register void *x0 __asm__("x0") = arg;
  register void **x1 __asm__("x1") = save;
  register void *x2 __asm__("x2") = load;
  __asm__ volatile("adr x9, 1f\n\t"
                   "stp x29, x9, [sp, #-16]!\n\t"
                   "mov x10, sp\n\t"
                   "str x10, [x1]\n\t"
                   "mov sp, x2\n\t"
                   "ldp x29, x9, [sp], #16\n\t"
                   "mov x30, xzr\n\t" /* the return address that an entry finds */
                   "ret x9\n"
                   "1:"
                   : "+r"(x0), "+r"(x1), "+r"(x2)
                   :
                   : "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19",
                   "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
                   "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22",
                   "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
}
#define INSITU__CORO_FRAME 2 /* x29, the entry */
#define INSITU__CORO_FRAME_ENTRY 1
#define INSITU__CORO_LAST_FRAME INSITU__CORO_CFI("undefined x30")
#else
#define INSITU__CORO_LAST_FRAME ""
#endif
/* clang-format on */

/* The floating point controls (rounding, flush to zero, precision), without the sticky flags; 0 where nothing is asserted. */
static inline uint64_t insitu__coro_fp_controls(void) {
#if !defined(NDEBUG) && defined(__x86_64__)
  uint32_t mxcsr;
  uint16_t x87;
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
  return (uint64_t)x87 << 32 | (mxcsr & ~0x3fu);
#elif !defined(NDEBUG) && defined(__aarch64__)
  uint64_t fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return 0;
#endif
}

/* Whether the processor checks returns against a shadow stack, which the assembly does not switch. It can be active only in a
   program built for it (-fcf-protection). */
static bool insitu__coro_shadow_stack(void) {
#if !defined(INSITU_CORO_UCONTEXT) && defined(__x86_64__) && defined(__CET__) && (__CET__ & 2)
  uint64_t pointer = 0;
  __asm__ volatile("rdsspq %0" : "+r"(pointer)); /* does nothing when there is none */
  return pointer != 0;
#else
  return false;
#endif
}

static void insitu__coro_swap(struct insitu__coro_context *from, struct insitu__coro_context *to, void *arg) {
  uint64_t fp_controls = insitu__coro_fp_controls();
#ifdef INSITU_CORO_UCONTEXT
  (void)arg;
  if (swapcontext(&from->machine, &to->machine)) abort(); /* only a corrupt context fails: there is no stack to return on */
#else
  insitu__coro_switch(&from->sp, to->sp, arg);
#endif
  assert(fp_controls == insitu__coro_fp_controls() && "code on the other stack changed the floating point controls");
  (void)fp_controls;
}

/* From the running coroutine to the native stack; comes back with the next resume, never when the coroutine has ended. */
static void insitu__coro_leave(struct insitu__coro *co) {
  struct insitu__coro_pool *pool = co->pool;
#ifdef INSITU__CORO_ASAN
  __sanitizer_start_switch_fiber(co->state == INSITU__CORO_ENDED ? NULL : &co->fake, pool->native_low, pool->native_bytes);
#endif
#ifdef INSITU__CORO_TSAN
  __tsan_switch_to_fiber(pool->native_fiber, 0);
#endif
  insitu__coro_swap(&co->context, &pool->native, NULL);
#ifdef INSITU__CORO_ASAN
  __sanitizer_finish_switch_fiber(co->fake, &pool->native_low, &pool->native_bytes);
#endif
}

/* The bottom frame of every coroutine, entered by a switch: there is nothing to return to. */
static void insitu__coro_main(struct insitu__coro *co) {
  __asm__ volatile(INSITU__CORO_LAST_FRAME); /* backtraces end here */
#ifdef INSITU__CORO_ASAN
  __sanitizer_finish_switch_fiber(NULL, &co->pool->native_low, &co->pool->native_bytes);
#endif
  co->fn(co->arg);
  co->state = INSITU__CORO_ENDED;
  insitu__coro_leave(co);
  abort(); /* an ended coroutine was resumed */
}

#ifdef INSITU_CORO_UCONTEXT
static void insitu__coro_main_halves(unsigned high, unsigned low) { /* makecontext passes ints only */
  insitu__coro_main((struct insitu__coro *)((uintptr_t)high << 16 << 16 | low));
}
#endif

static void insitu__coro_prepare(struct insitu__coro *co) { /* makes the next switch to co enter insitu__coro_main(co) */
#ifdef INSITU_CORO_UCONTEXT
  uintptr_t bits = (uintptr_t)co;
  if (getcontext(&co->context.machine)) abort(); /* it has no failure on Linux */
  co->context.machine.uc_stack.ss_sp = co->low;
  co->context.machine.uc_stack.ss_size = (size_t)((unsigned char *)co - co->low);
  co->context.machine.uc_link = NULL;
  makecontext(&co->context.machine, (void (*)(void))insitu__coro_main_halves, 2, (unsigned)(bits >> 16 >> 16), (unsigned)bits);
#else
  uintptr_t *frame = (uintptr_t *)(void *)co - INSITU__CORO_FRAME;
  memset(frame, 0, INSITU__CORO_FRAME * sizeof *frame);
  frame[INSITU__CORO_FRAME_ENTRY] = (uintptr_t)&insitu__coro_main;
  co->context.sp = frame;
#endif
}

static struct insitu__coro *insitu__coro_map(struct insitu__coro_pool *pool) { /* NULL on no memory, errno says why */
  size_t bytes = pool->guard_bytes + pool->stack_bytes;
  unsigned char *base =
      (unsigned char *)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return NULL;
  unsigned char *low = base + pool->guard_bytes;
  if (mprotect(low, pool->stack_bytes, PROT_READ | PROT_WRITE)) { /* fails at vm.max_map_count: a stack is two mappings */
    int cause = errno;
    munmap(base, bytes);
    errno = cause;
    return NULL;
  }
  uintptr_t top = (uintptr_t)low + pool->stack_bytes - sizeof(struct insitu__coro);
  struct insitu__coro *co = (struct insitu__coro *)(top & ~(uintptr_t)63); /* a line of its own, and the ABIs' 16 bytes */
  co->pool = pool;
  co->low = low;
#ifdef INSITU__CORO_VALGRIND
  co->valgrind_id = VALGRIND_STACK_REGISTER(low, (unsigned char *)co);
#endif
  return co;
}

static void insitu__coro_unmap(struct insitu__coro *co) {
  struct insitu__coro_pool *pool = co->pool;
#ifdef INSITU__CORO_VALGRIND
  VALGRIND_STACK_DEREGISTER(co->valgrind_id);
#endif
  int failed = munmap(co->low - pool->guard_bytes, pool->guard_bytes + pool->stack_bytes);
  assert(!failed);
  (void)failed;
}

static void insitu__coro_retire(struct insitu__coro *co) { /* on the native stack, after co has ended */
  struct insitu__coro_pool *pool = co->pool;
#ifdef INSITU__CORO_ASAN
  /* The last frames never returned and left their red zones poisoned, for the stack's next user or the address range's. */
  __asan_unpoison_memory_region(co->low, (size_t)((unsigned char *)co - co->low));
#endif
#ifdef INSITU__CORO_TSAN
  __tsan_destroy_fiber(co->fiber);
#endif
  co->state = INSITU__CORO_IDLE;
  pool->live--;
  if (pool->idle_count >= pool->max_idle) {
    insitu__coro_unmap(co);
    return;
  }
  co->next = pool->idle;
  pool->idle = co;
  pool->idle_count++;
}

__attribute__((unused)) static inline bool insitu__coro_owned(const struct insitu__coro_pool *pool) { /* by the calling thread */
  return pool->live && pthread_equal(pool->owner, pthread_self());
}

/* stack_bytes: of one stack, 0 for INSITU_CORO_STACK, rounded up to pages. max_idle: the stacks kept mapped for reuse. Maps none
 * yet. */
static insitu_status insitu__coro_pool_init(
    struct insitu__coro_pool *pool, size_t stack_bytes, unsigned max_idle, insitu_error *err) {
  memset(pool, 0, sizeof *pool);
  if (!stack_bytes) stack_bytes = INSITU_CORO_STACK;
  if (stack_bytes < INSITU__CORO_STACK_MIN || stack_bytes > INSITU__CORO_STACK_MAX)
    return insitu__error_set(err, INSITU_E_ARG,
        "coroutines: a stack of %zu bytes is outside of %u to %u; set INSITU_CORO_STACK within", stack_bytes,
        INSITU__CORO_STACK_MIN, INSITU__CORO_STACK_MAX);
  if (insitu__coro_shadow_stack())
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "coroutines: this process runs with a shadow stack (CET), which the assembly switch does not follow; build with "
        "-DINSITU_CORO_UCONTEXT, or with -fcf-protection=branch");
  long page = sysconf(_SC_PAGESIZE); /* 4 KiB, on aarch64 up to 64 KiB */
  assert(page > 0 && !(page & (page - 1)));
  size_t mask = (size_t)page - 1;
  pool->guard_bytes = (INSITU__CORO_GUARD + mask) & ~mask;
  pool->stack_bytes = (stack_bytes + mask) & ~mask;
  pool->max_idle = max_idle;
  return INSITU_OK;
}

static void insitu__coro_pool_free(struct insitu__coro_pool *pool) {
  assert(!pool->live && !pool->current && "coroutines are still suspended");
  while (pool->idle) {
    struct insitu__coro *co = pool->idle;
    pool->idle = co->next;
    insitu__coro_unmap(co);
  }
  pool->idle_count = 0;
}

static struct insitu__coro *insitu__coro_current(const struct insitu__coro_pool *pool) { /* NULL on the native stack */
  return pool->current;
}

/* A coroutine that will call fn(arg) at its first resume; may be called from another coroutine. NULL on no memory, errno says
 * why. */
static struct insitu__coro *insitu__coro_start(struct insitu__coro_pool *pool, void (*fn)(void *), void *arg) {
  assert(!pool->live || insitu__coro_owned(pool));
  struct insitu__coro *co = pool->idle;
  if (co) {
    assert(co->state == INSITU__CORO_IDLE);
    pool->idle = co->next;
    pool->idle_count--;
  } else if (!(co = insitu__coro_map(pool))) {
    return NULL;
  }
  if (!pool->live++) pool->owner = pthread_self();
  if (pool->live > pool->peak) pool->peak = pool->live;
  co->next = NULL;
  co->fn = fn;
  co->arg = arg;
  co->state = INSITU__CORO_SUSPENDED;
#ifdef INSITU__CORO_TSAN
  co->fiber = __tsan_create_fiber(0);
#endif
  insitu__coro_prepare(co);
  return co;
}

/* Runs co, from the native stack, until it suspends or ends. co is gone when its function has returned. */
static void insitu__coro_resume(struct insitu__coro *co) {
  struct insitu__coro_pool *pool = co->pool;
  assert(insitu__coro_owned(pool) && "coroutines never change thread");
  assert(!pool->current && "only the native stack may resume");
  assert(co->state == INSITU__CORO_SUSPENDED);
  pool->current = co;
  co->state = INSITU__CORO_RUNNING;
#ifdef INSITU__CORO_ASAN
  __sanitizer_start_switch_fiber(&pool->native_fake, co->low, (size_t)((unsigned char *)co - co->low));
#endif
#ifdef INSITU__CORO_TSAN
  pool->native_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(co->fiber, 0);
#endif
  insitu__coro_swap(&pool->native, &co->context, co);
#ifdef INSITU__CORO_ASAN
  __sanitizer_finish_switch_fiber(pool->native_fake, NULL, NULL);
#endif
  pool->current = NULL;
  if (co->state == INSITU__CORO_ENDED) insitu__coro_retire(co);
}

/* From within the running coroutine: returns at its next resume. */
static void insitu__coro_suspend_await(struct insitu__coro_pool *pool) {
  struct insitu__coro *co = pool->current;
  assert(co && co->state == INSITU__CORO_RUNNING && "the native stack cannot suspend");
  assert(insitu__coro_owned(pool) && "coroutines never change thread");
  assert((uintptr_t)__builtin_frame_address(0) > (uintptr_t)co->low && (uintptr_t)__builtin_frame_address(0) < (uintptr_t)co);
  co->state = INSITU__CORO_SUSPENDED;
  insitu__coro_leave(co);
}

/* >>ring ------------------------------------------------------------------------------------------------------------------- */
/* Asynchronous file reads and readiness of sockets, over io_uring or, where that is forbidden, over epoll and a few threads that
   call preadv.
   State: one struct insitu__ring, which must not move while open. It belongs to the thread that opened it (io_uring is set up for
   a single submitter); only insitu__ring_wake may be called from elsewhere, and even from a signal handler. Nothing here suspends
   a coroutine: insitu__ring_wait blocks its thread and runs the `done` callbacks of finished operations and the `ready` callbacks
   of sockets on it. Callbacks may submit and change what is polled, not wait. A forked child must not touch a ring: its submissions
   would land in the parent's. */
#include <assert.h> /* own asserts */
#ifndef INSITU_NO_URING
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-qual"
#include <liburing.h>
#pragma GCC diagnostic pop
#endif

#define INSITU__RING_IOV 1024        /* iovecs of one readv: the kernel's UIO_MAXIOV */
#define INSITU__RING_DEPTH 256u      /* default entries of the submission queue */
#define INSITU__RING_MAX_DEPTH 4096u /* beyond this a queue only costs memory */
#define INSITU__RING_MAX_THREADS 256u
#define INSITU__RING_RETRIES 100        /* EINTR or EAGAIN in a row before one of them is reported */
#define INSITU__RING_ASYNC_BYTES 65536u /* an inline read copies inside submit; from 16-32 KiB on a kernel worker is cheaper */

#ifndef INSITU_TEST_FAULT /* a test may change what the kernel answered to a stage of op: see insitu__ring_step */
#define INSITU_TEST_FAULT(op, got) (got)
#endif

enum { INSITU__RING_AUTO, INSITU__RING_URING, INSITU__RING_EPOLL };
enum { INSITU__RING_READ_FILE = 1 };
enum { INSITU__RING_STAGE_OPEN, INSITU__RING_STAGE_READ };
enum { INSITU__RING_AWAKE, INSITU__RING_SLEEPING, INSITU__RING_WOKEN };
/* user_data that is no address of an operation; POLL is added to the address of a poll */
enum { INSITU__RING_DATA_WAKE = 1, INSITU__RING_DATA_CLOSE = 2, INSITU__RING_DATA_NOTHING = 3, INSITU__RING_DATA_POLL = 4 };

#define INSITU__RING_TAIL UINT64_MAX /* as an offset: as many bytes from the file's end as the iovecs hold */

/* READ_FILE opens path relative to dirfd, reads from offset until the iovecs are full or the file ends, and closes: result is the
   number of bytes, or -errno. With nothing to fill it only opens and closes. path and iov must live until done; the ring consumes
   iov (advances its entries). From submit until done is called the operation belongs to the ring. */
struct insitu__ring_op {
  int code, dirfd;
  const char *path;
  uint64_t offset;
  struct iovec *iov;
  unsigned n_iov;
  int64_t result;
  void (*done)(struct insitu__ring_op *op);
  void *user;
  struct insitu__ring_op *next;
  /* the ring's own */
  int stage, fd, retries;
  bool force_async, was_short;
  uint64_t asked; /* bytes of the read in flight */
};

struct insitu__ring_list {
  struct insitu__ring_op *first, *last;
};

/* A socket whose readiness somebody wants to know: level-triggered, as long as it is wanted. */
struct insitu__ring_poll {
  int fd;
  unsigned want, armed; /* POLLIN, POLLOUT: what is wanted; what the kernel was asked for */
  unsigned events;      /* what it said, until ready is called */
  bool closed, leaving; /* nobody's any more; the kernel was told to forget it */
  bool changed, fired;  /* in the ring's list of that name */
  void (*ready)(struct insitu__ring_poll *poll, unsigned events);
  void *user;
  struct insitu__ring_poll *next_changed, *next_fired;
};

struct insitu__ring_desc {
  int backend;    /* INSITU__RING_AUTO: io_uring if the kernel lets us, else epoll, without a word */
  unsigned depth; /* submission queue entries, 0: 256; 16 times as many operations may be in the kernel, the others queue here */
  unsigned io_threads;       /* of the epoll backend; 0: no threads, every insitu__ring_wait runs one operation itself */
  unsigned iowq_max_workers; /* bound of the kernel's worker threads for regular files, 0: the kernel's default */
};

struct insitu__ring {
  int backend, event_fd, epoll_fd;
  pid_t pid;
  atomic_int state;                          /* AWAKE, SLEEPING, WOKEN: only a wake that finds SLEEPING pays for a system call */
  unsigned ops, closes;                      /* the caller's operations not yet done; files being closed */
  unsigned polls, leaving;                   /* polls that have memory; those that only the kernel still knows */
  struct insitu__ring_poll *changed, *fired; /* to be told to the kernel; whose ready is to be called */
  struct insitu__ring_list queued, finished; /* not yet handed over; done is to be called */
#ifndef INSITU_NO_URING
  struct io_uring uring;
  struct insitu__ring_list staged; /* operations whose next stage has to be submitted: they go before queued ones */
  unsigned in_kernel, max_in_kernel;
  bool wake_armed;
#endif
  unsigned n_threads, n_idle; /* the epoll backend's threads, and under lock: those asleep */
  pthread_t *threads;
  pthread_mutex_t lock;
  pthread_cond_t work;
  bool stop;                            /* under lock, like the next two */
  struct insitu__ring_list todo, ended; /* for the threads; from them */
};

static void insitu__ring_push(struct insitu__ring_list *list, struct insitu__ring_op *op) {
  op->next = NULL;
  if (list->first) list->last->next = op;
  else list->first = op;
  list->last = op;
}
static struct insitu__ring_op *insitu__ring_pop(struct insitu__ring_list *list) {
  struct insitu__ring_op *op = list->first;
  if (op) list->first = op->next;
  return op;
}
static void insitu__ring_append(struct insitu__ring_list *to, struct insitu__ring_list *from) { /* leaves from empty */
  if (!from->first) return;
  if (to->first) to->last->next = from->first;
  else to->first = from->first;
  to->last = from->last;
  from->first = NULL;
}

/* Starts a thread that blocks every signal but those a fault raises in itself (a blocked one would kill without the program's own
 * report). */
static int insitu__ring_thread(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  sigset_t all, old;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(thread, NULL, fn, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!rc) pthread_setname_np(*thread, name);
  return rc;
}

/* Drops n bytes and then empty entries from the front of the iovecs; false when nothing is left to fill. */
static bool insitu__ring_advance(struct insitu__ring_op *op, uint64_t n) {
  while (op->n_iov && n >= op->iov->iov_len) {
    n -= op->iov->iov_len;
    op->iov++;
    op->n_iov--;
  }
  if (!op->n_iov) return false;
  op->iov->iov_base = (char *)op->iov->iov_base + n;
  op->iov->iov_len -= (size_t)n;
  return true;
}
static unsigned insitu__ring_batch(struct insitu__ring_op *op) { /* iovecs of the next read; op->asked becomes their bytes */
  unsigned n = op->n_iov < INSITU__RING_IOV ? op->n_iov : INSITU__RING_IOV;
  op->asked = 0;
  for (unsigned i = 0; i < n; i++) op->asked += op->iov[i].iov_len;
  return n;
}
/* With the file open: finds the offset of a read from its end. 0 or -errno. No stat but for these: on a shared file system the open
 * has just brought the attributes. */
static int insitu__ring_tail(struct insitu__ring_op *op) {
  struct stat info;
  uint64_t bytes = 0;
  if (op->offset != INSITU__RING_TAIL) return 0;
  if (fstat(op->fd, &info)) return -errno;
  for (unsigned i = 0; i < op->n_iov; i++) bytes += op->iov[i].iov_len;
  op->offset = (uint64_t)info.st_size - insitu__base_min(bytes, (uint64_t)info.st_size);
  return 0;
}
/* Takes what a stage of op brought: a descriptor, bytes, or -errno. False when the operation is complete. */
static bool insitu__ring_step(struct insitu__ring_op *op, int64_t got) {
  got = INSITU_TEST_FAULT(op, got);
  if ((got == -EINTR || got == -EAGAIN) && ++op->retries < INSITU__RING_RETRIES) {
    op->force_async = true; /* blocking in a worker is the kernel's own answer to EAGAIN */
    return true;
  }
  if (got < 0) {
    op->result = got;
    return false;
  }
  op->retries = 0;
  if (op->stage == INSITU__RING_STAGE_OPEN) {
    op->fd = (int)got;
    op->stage = INSITU__RING_STAGE_READ;
    op->force_async = false;
    op->result = insitu__ring_tail(op);
    return !op->result && insitu__ring_advance(op, 0);
  }
  op->result += got;
  op->offset += (uint64_t)got;
  op->was_short = (uint64_t)got < op->asked;
  return got && insitu__ring_advance(op, (uint64_t)got);
}

static void insitu__ring_poll_change(struct insitu__ring *r, struct insitu__ring_poll *p) {
  if (p->changed) return;
  p->changed = true;
  p->next_changed = r->changed;
  r->changed = p;
}
static void insitu__ring_poll_fire(struct insitu__ring *r, struct insitu__ring_poll *p, unsigned events) {
  p->events |= events;
  if (p->fired) return;
  p->fired = true;
  p->next_fired = r->fired;
  r->fired = p;
}
/* Frees a closed poll that neither the kernel nor a list knows any more. */
static void insitu__ring_poll_drop(struct insitu__ring *r, struct insitu__ring_poll *p) {
  if (!p->closed || p->armed || p->changed || p->fired) return;
  r->polls--;
  r->leaving--;
  insitu__mem_free(p);
}

/* Operations whose done is still to come, files being closed and polls that were not closed or that the kernel has not let go. */
static unsigned insitu__ring_inflight(const struct insitu__ring *r) {
  return r->ops + r->closes + r->polls;
}
static int insitu__ring_dispatch_polls(struct insitu__ring *r) { /* sockets that were ready */
  int n = 0;
  struct insitu__ring_poll *list = r->fired;
  r->fired = NULL;
  for (struct insitu__ring_poll *p = list, *next; p; p = next) {
    next = p->next_fired;
    unsigned events = p->events;
    p->fired = false;
    p->events = 0;
    if (p->closed) {
      insitu__ring_poll_drop(r, p);
      continue;
    }
    if (r->backend == INSITU__RING_URING && !p->armed) insitu__ring_poll_change(r, p); /* it was asked for one event */
    p->ready(p, events);
    n++;
  }
  return n;
}
static int insitu__ring_dispatch(struct insitu__ring *r) { /* operations done, sockets ready */
  int n = insitu__ring_dispatch_polls(r);
  struct insitu__ring_list list = r->finished; /* what a callback finishes waits for the next round */
  r->finished.first = NULL;
  for (struct insitu__ring_op *op; (op = insitu__ring_pop(&list)); n++) {
    r->ops--;
    op->done(op);
  }
  return n;
}

/* Any thread, any signal handler. The wait in progress, or else the next one, returns. */
static void insitu__ring_wake(struct insitu__ring *r) {
  if (atomic_exchange_explicit(&r->state, INSITU__RING_WOKEN, memory_order_acq_rel) != INSITU__RING_SLEEPING) return;
  int saved = errno;
  uint64_t one = 1;
  ssize_t n =
      write(r->event_fd, &one, sizeof one); /* can only fail when the counter is full, and then the sleeper wakes anyway */
  (void)n;
  errno = saved;
}
/* Forgets a wake, for an owner who looks at everything a wake can mean after this call and before it waits. */
static void insitu__ring_ack(struct insitu__ring *r) {
  atomic_exchange_explicit(&r->state, INSITU__RING_AWAKE, memory_order_acq_rel);
}
static bool insitu__ring_sleep(struct insitu__ring *r) { /* false: a wake came, don't block */
  int expected = INSITU__RING_AWAKE;
  return atomic_compare_exchange_strong_explicit(
      &r->state, &expected, INSITU__RING_SLEEPING, memory_order_acq_rel, memory_order_acquire);
}
static bool insitu__ring_rise(struct insitu__ring *r) { /* true: a wake came */
  return atomic_exchange_explicit(&r->state, INSITU__RING_AWAKE, memory_order_acq_rel) == INSITU__RING_WOKEN;
}
static void insitu__ring_drain_event(struct insitu__ring *r) {
  uint64_t count;
  ssize_t n = read(r->event_fd, &count, sizeof count); /* non-blocking: empty is fine */
  (void)n;
}

/* ---- io_uring. Stages OPEN, READ (as often as needed), and a close that nobody waits for. */
#ifndef INSITU_NO_URING
static void insitu__ring_uring_prep(struct io_uring_sqe *sqe, struct insitu__ring_op *op) {
  if (op->stage == INSITU__RING_STAGE_OPEN) {
    io_uring_prep_openat(sqe, op->dirfd, op->path, O_RDONLY | O_CLOEXEC, 0);
  } else {
    unsigned n = insitu__ring_batch(op);
    io_uring_prep_readv(sqe, op->fd, op->iov, n, op->offset);
    /* After a short read comes the end of the file, nearly always: not worth a worker. */
    if (op->force_async || (op->asked >= INSITU__RING_ASYNC_BYTES && !op->was_short)) sqe->flags |= IOSQE_ASYNC;
  }
  io_uring_sqe_set_data(sqe, op);
}

/* An entry of the submission queue; a full queue is submitted first. NULL when the kernel takes nothing more just now. */
static struct io_uring_sqe *insitu__ring_uring_sqe(struct insitu__ring *r) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
  if (sqe) return sqe;
  io_uring_submit(&r->uring);
  return io_uring_get_sqe(&r->uring);
}

/* One change of a poll into the submission queue; false when that is full. An event that is on its way is not lost: what is armed
 * is forgotten first, and its completion tells what came. */
static bool insitu__ring_uring_poll(struct insitu__ring *r, struct insitu__ring_poll *p) {
  unsigned want = p->closed ? 0 : p->want;
  if (p->armed == want || p->leaving) return true;
  struct io_uring_sqe *sqe = insitu__ring_uring_sqe(r);
  if (!sqe) return false;
  uint64_t data = (uint64_t)(uintptr_t)p | INSITU__RING_DATA_POLL;
  if (p->armed) {
    io_uring_prep_poll_remove(sqe, data);
    io_uring_sqe_set_data64(sqe, INSITU__RING_DATA_NOTHING);
    p->leaving = true;
  } else {
    io_uring_prep_poll_add(sqe, p->fd, want);
    io_uring_sqe_set_data64(sqe, data);
    p->armed = want;
  }
  r->in_kernel++;
  return true;
}

static void insitu__ring_uring_fill(struct insitu__ring *r) { /* queued operations -> submission queue */
  struct io_uring_sqe *sqe;
  for (struct insitu__ring_poll *p; (p = r->changed); insitu__ring_poll_drop(r, p)) {
    if (!insitu__ring_uring_poll(r, p)) return;
    r->changed = p->next_changed;
    p->changed = false;
  }
  if (!r->wake_armed) {
    if (!(sqe = insitu__ring_uring_sqe(r))) return;
    io_uring_prep_poll_add(sqe, r->event_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, INSITU__RING_DATA_WAKE);
    r->wake_armed = true;
  }
  for (;;) { /* a staged operation already has its place in the completion queue */
    bool staged = r->staged.first != NULL;
    if (!staged && (!r->queued.first || r->in_kernel >= r->max_in_kernel)) return;
    if (!(sqe = insitu__ring_uring_sqe(r))) return;
    insitu__ring_uring_prep(sqe, insitu__ring_pop(staged ? &r->staged : &r->queued));
    r->in_kernel += !staged;
  }
}

static void insitu__ring_uring_finish(struct insitu__ring *r, struct insitu__ring_op *op) {
  if (op->fd >= 0) {
    /* Through the ring, since closing may ask a server. When the queue is full an ordinary close is no worse than a submit. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    if (sqe) {
      io_uring_prep_close(sqe, op->fd);
      io_uring_sqe_set_data64(sqe, INSITU__RING_DATA_CLOSE);
      r->in_kernel++;
      r->closes++;
    } else {
      close(op->fd);
    }
    op->fd = -1;
  }
  r->in_kernel--;
  insitu__ring_push(&r->finished, op);
}

static void insitu__ring_uring_polled(struct insitu__ring *r, struct insitu__ring_poll *p, int got) {
  r->in_kernel--;
  p->armed = 0;
  p->leaving = false;
  if (p->closed) {
    insitu__ring_poll_drop(r, p);
  } else if (got == -ECANCELED) {
    insitu__ring_poll_change(r, p); /* what is wanted has changed */
  } else {
    insitu__ring_poll_fire(r, p, got < 0 ? POLLERR : (unsigned)got);
  }
}

static bool insitu__ring_uring_reap(struct insitu__ring *r) { /* true: the eventfd was written */
  bool woken = false;
  unsigned head, n = 0;
  struct io_uring_cqe *cqe;
  io_uring_for_each_cqe(&r->uring, head, cqe) {
    uint64_t data = cqe->user_data;
    n++;
    if (data == INSITU__RING_DATA_WAKE) {
      insitu__ring_drain_event(r);
      r->wake_armed = false;
      woken = true;
    } else if (data == INSITU__RING_DATA_CLOSE) {
      r->in_kernel--;
      r->closes--;
    } else if (data == INSITU__RING_DATA_NOTHING) {
      r->in_kernel--;
    } else if (data & INSITU__RING_DATA_POLL) {
      insitu__ring_uring_polled(r, (struct insitu__ring_poll *)(uintptr_t)(data - INSITU__RING_DATA_POLL), cqe->res);
    } else {
      struct insitu__ring_op *op = (struct insitu__ring_op *)(uintptr_t)data;
      if (insitu__ring_step(op, cqe->res)) insitu__ring_push(&r->staged, op);
      else insitu__ring_uring_finish(r, op);
    }
  }
  io_uring_cq_advance(&r->uring, n);
  return woken;
}

static int insitu__ring_uring_enter(struct insitu__ring *r, int64_t timeout) { /* submits, waits for one completion; -errno */
  struct io_uring_cqe *cqe;
  if (!timeout) {
    if (io_uring_sq_ready(&r->uring)) return io_uring_submit_and_get_events(&r->uring);
    io_uring_peek_cqe(&r->uring, &cqe); /* enters the kernel only when that has completions to hand over */
    return 0;
  }
  struct __kernel_timespec limit = {.tv_sec = timeout / 1000000000, .tv_nsec = timeout % 1000000000};
  return io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, timeout < 0 ? NULL : &limit, NULL);
}

static int insitu__ring_uring_wait(struct insitu__ring *r, int64_t timeout) {
  int64_t deadline = timeout > 0 ? insitu__base_now() + timeout : 0, left = timeout;
  for (;;) {
    bool woken = false;
    insitu__ring_uring_fill(r);
    if (!r->wake_armed) left = 0; /* nobody could wake us */
    if (left && (r->finished.first || r->fired || io_uring_cq_ready(&r->uring))) left = 0;
    if (left && !insitu__ring_sleep(r)) left = 0;
    int rc = insitu__ring_uring_enter(r, left);
    if (insitu__ring_rise(r)) woken = true;
    bool closing = r->closes || r->leaving;
    if (insitu__ring_uring_reap(r)) woken = true;
    if (closing && !insitu__ring_inflight(r)) woken = true; /* the last one: who waits for an empty ring has it now */
    int n = insitu__ring_dispatch(r);
    if (n || woken || !timeout) return n;
    /* EAGAIN, EBUSY: the kernel lacks memory for requests. Anything else (a seccomp filter set after opening) can only be waited
       out, since the kernel may still write to the buffers of what it holds. Neither may spin. */
    if (rc < 0 && rc != -ETIME && rc != -EINTR) poll(NULL, 0, 1);
    left = timeout;
    if (timeout > 0 && (left = deadline - insitu__base_now()) <= 0) return 0;
  }
}

/* 0, or -errno with the missing thing in *what. Kernels before 6.1, 5.19 and 5.15 lack one kind of flags each. */
static int insitu__ring_uring_setup(struct io_uring *uring, unsigned depth, const char **what) {
  static const unsigned modes[] = {
      IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};
  int rc = -EINVAL;
  for (size_t mode = 0; mode < sizeof modes / sizeof *modes && rc == -EINVAL; mode++) {
    for (unsigned sq = depth, cq = 16 * depth;;) { /* locked memory may be scarce: 64 KiB refuse 4096 completions */
      struct io_uring_params params = {.flags = modes[mode] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP, .cq_entries = cq};
      rc = io_uring_queue_init_params(sq, uring, &params);
      if (rc != -ENOMEM) break;
      if (cq > 2 * sq) cq /= 2;
      else if (sq > 8) sq /= 2;
      else break;
    }
  }
  *what = "io_uring_setup";
  if (rc < 0) return rc;
  static const uint8_t needed[] = {IORING_OP_OPENAT, IORING_OP_READV, IORING_OP_READ, IORING_OP_CLOSE, IORING_OP_POLL_ADD,
      IORING_OP_POLL_REMOVE, IORING_OP_ASYNC_CANCEL};
  enum { N_OPS = 128 }; /* the kernel lists no more than it knows */
  _Alignas(struct io_uring_probe) char memory[sizeof(struct io_uring_probe) + N_OPS * sizeof(struct io_uring_probe_op)] = {0};
  struct io_uring_probe *probe = (struct io_uring_probe *)(void *)memory;
  *what = "an io_uring that tells what it can do (IORING_REGISTER_PROBE)";
  rc = io_uring_register_probe(uring, probe, N_OPS);
  *what = rc < 0 ? *what : "an io_uring with the features NODROP and EXT_ARG";
  unsigned features = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
  if (rc >= 0 && (uring->features & features) != features) rc = -EOPNOTSUPP;
  for (size_t i = 0; rc >= 0 && i < sizeof needed; i++) {
    *what = "an io_uring that can open, read, close, poll and cancel";
    if (!io_uring_opcode_supported(probe, needed[i])) rc = -EOPNOTSUPP;
  }
  if (rc < 0) io_uring_queue_exit(uring);
  return rc < 0 ? rc : 0;
}

static int insitu__ring_uring_open(struct insitu__ring *r, const struct insitu__ring_desc *d, const char **what) {
  unsigned depth = d->depth ? d->depth : INSITU__RING_DEPTH;
  if (depth > INSITU__RING_MAX_DEPTH) depth = INSITU__RING_MAX_DEPTH;
#ifdef INSITU__CORO_VALGRIND
  *what = "way to wait in io_uring under Valgrind, which would stop every other thread meanwhile";
  if (RUNNING_ON_VALGRIND) return -EOPNOTSUPP;
#endif
  int rc = insitu__ring_uring_setup(&r->uring, depth, what);
  if (rc < 0) return rc;
  /* Each of these only helps. A child that touches the ring after all crashes instead of disturbing the parent. */
  io_uring_ring_dontfork(&r->uring);
  io_uring_register_ring_fd(&r->uring);
  unsigned workers[2] = {
      d->iowq_max_workers, 0}; /* of bounded work (regular files); of unbounded work, which we have little of */
  if (d->iowq_max_workers) io_uring_register_iowq_max_workers(&r->uring, workers);
  r->max_in_kernel = r->uring.cq.ring_entries - 1; /* completions never overflow; one place is the wake-up's */
  return 0;
}
#endif

/* ---- epoll: threads (or the waiting thread itself) run the same operation with blocking calls. */
static void insitu__ring_blocking(struct insitu__ring_op *op) {
  int64_t got;
  do {
    if (op->stage == INSITU__RING_STAGE_OPEN) got = openat(op->dirfd, op->path, O_RDONLY | O_CLOEXEC);
    else got = preadv(op->fd, op->iov, (int)insitu__ring_batch(op), (off_t)op->offset);
  } while (insitu__ring_step(op, got < 0 ? -errno : got));
  if (op->fd >= 0) close(op->fd);
  op->fd = -1;
}

static void *insitu__ring_thread_main(void *arg) {
  struct insitu__ring *r = (struct insitu__ring *)arg;
  pthread_mutex_lock(&r->lock);
  for (;;) {
    struct insitu__ring_op *op = insitu__ring_pop(&r->todo);
    if (op) {
      pthread_mutex_unlock(&r->lock);
      insitu__ring_blocking(op);
      pthread_mutex_lock(&r->lock);
      insitu__ring_push(&r->ended, op);
      pthread_mutex_unlock(&r->lock);
      insitu__ring_wake(r);
      pthread_mutex_lock(&r->lock);
    } else if (r->stop) {
      break;
    } else {
      r->n_idle++;
      pthread_cond_wait(&r->work, &r->lock);
      r->n_idle--;
    }
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

static void insitu__ring_epoll_flush(struct insitu__ring *r) {
  unsigned n = 0;
  if (!r->n_threads || !r->queued.first) return;
  for (struct insitu__ring_op *op = r->queued.first; op; op = op->next) n++;
  pthread_mutex_lock(&r->lock);
  insitu__ring_append(&r->todo, &r->queued);
  if (n > r->n_idle) n = r->n_idle;
  pthread_mutex_unlock(&r->lock);
  while (n--) pthread_cond_signal(&r->work);
}

static int insitu__ring_epoll_collect(struct insitu__ring *r) { /* operations done */
  if (r->n_threads && r->ops) {
    pthread_mutex_lock(&r->lock);
    insitu__ring_append(&r->finished, &r->ended);
    pthread_mutex_unlock(&r->lock);
  }
  return insitu__ring_dispatch(r);
}

static void insitu__ring_epoll_polls(struct insitu__ring *r) { /* tells the kernel what has changed */
  for (struct insitu__ring_poll *p; (p = r->changed); insitu__ring_poll_drop(r, p)) {
    unsigned want = p->closed ? 0 : p->want;
    struct epoll_event event = {.events = want, .data.ptr = p};
    r->changed = p->next_changed;
    p->changed = false;
    if (p->armed == want) continue;
    int rc = epoll_ctl(r->epoll_fd, !want ? EPOLL_CTL_DEL : p->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, p->fd, &event);
    p->armed = want;
    if (rc && want) insitu__ring_poll_fire(r, p, POLLERR); /* its owner finds out what is wrong with the socket */
  }
}

/* Looks at sockets and the eventfd for at most ms milliseconds; true when the eventfd was written. */
static bool insitu__ring_epoll_look(struct insitu__ring *r, int ms) {
  struct epoll_event event[64];
  bool woken = false;
  int n = epoll_wait(r->epoll_fd, event, sizeof event / sizeof *event, ms);
  for (int i = 0; i < n; i++) {
    struct insitu__ring_poll *p = (struct insitu__ring_poll *)event[i].data.ptr;
    if (p) insitu__ring_poll_fire(r, p, event[i].events);
    else woken = true;
  }
  if (woken) insitu__ring_drain_event(r);
  return woken;
}

static int insitu__ring_epoll_wait(struct insitu__ring *r, int64_t timeout) {
  int64_t deadline = timeout > 0 ? insitu__base_now() + timeout : 0, left = timeout;
  insitu__ring_epoll_flush(r);
  insitu__ring_epoll_polls(r);
  if (!timeout && r->polls) insitu__ring_epoll_look(r, 0);
  struct insitu__ring_op *op = r->n_threads ? NULL : insitu__ring_pop(&r->queued);
  if (op) { /* one only, so that the caller can use what was read while it is in the cache */
    insitu__ring_blocking(op);
    insitu__ring_push(&r->finished, op);
  }
  for (;;) {
    int n = insitu__ring_epoll_collect(r);
    if (n) return n;
    bool woken = false;
    insitu__ring_epoll_polls(r);
    if (left && !r->fired && insitu__ring_sleep(r)) {
      int64_t ms = left < 0 ? -1 : (left - 1) / 1000000 + 1;
      woken = insitu__ring_epoll_look(r, ms > INT_MAX ? INT_MAX : (int)ms);
    }
    if (insitu__ring_rise(r)) woken = true;
    n = insitu__ring_epoll_collect(r);
    if (n || woken || !timeout) return n;
    left = timeout;
    if (timeout > 0 && (left = deadline - insitu__base_now()) <= 0) return 0;
  }
}

static void insitu__ring_epoll_close(struct insitu__ring *r) {
  if (r->threads) {
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_mutex_unlock(&r->lock);
    pthread_cond_broadcast(&r->work);
    for (unsigned i = 0; i < r->n_threads; i++) pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    insitu__mem_free(r->threads);
  }
  if (r->epoll_fd >= 0) close(r->epoll_fd);
}

static insitu_status insitu__ring_epoll_open(struct insitu__ring *r, unsigned n_threads, insitu_error *err) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (r->epoll_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->event_fd, &event)) {
    if (err && !err->status) err->sys_errno = errno;
    return insitu__error_set(
        err, INSITU_E_IO, "open: cannot make an epoll instance: %m; raise the limit of open files (ulimit -n)");
  }
  if (!n_threads) return INSITU_OK;
  if (n_threads > INSITU__RING_MAX_THREADS) n_threads = INSITU__RING_MAX_THREADS;
  r->threads = (pthread_t *)insitu__mem_alloc(n_threads, sizeof *r->threads);
  if (!r->threads) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for %u I/O threads; use fewer", n_threads);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->work, NULL);
  for (; r->n_threads < n_threads; r->n_threads++) {
    char name[16];
    snprintf(name, sizeof name, "insitu-io-%u", r->n_threads);
    int rc = insitu__ring_thread(&r->threads[r->n_threads], name, insitu__ring_thread_main, r);
    if (!rc) continue;
    errno = rc;
    if (err && !err->status) err->sys_errno = rc;
    return insitu__error_set(err, INSITU_E_NOMEM,
        "open: cannot start I/O thread %u of %u: %m; raise the limit of threads (ulimit -u, the "
        "cgroup's pids.max) or use fewer",
        r->n_threads + 1, n_threads);
  }
  return INSITU_OK;
}

/* ---- what the reactor uses */
static const char *insitu__ring_backend_name(const struct insitu__ring *r) {
  return r->backend == INSITU__RING_URING ? "uring" : "epoll";
}

/* Never fails and never calls done: the operation is handed over by the next flush or wait. */
static void insitu__ring_submit(struct insitu__ring *r, struct insitu__ring_op *op) {
  assert(op->code == INSITU__RING_READ_FILE && op->path && op->done);
  op->result = 0;
  op->stage = INSITU__RING_STAGE_OPEN;
  op->fd = -1;
  op->retries = 0;
  op->force_async = op->was_short = false;
  r->ops++;
  if (op->offset > INT64_MAX && op->offset != INSITU__RING_TAIL) {
    op->result = -EINVAL;
    insitu__ring_push(&r->finished, op);
  } else {
    insitu__ring_push(&r->queued, op);
  }
}

/* A poll for a socket, which wants nothing yet; NULL on no memory. `ready` is called while what is wanted is there. */
static struct insitu__ring_poll *insitu__ring_poll_open(
    struct insitu__ring *r, int fd, void (*ready)(struct insitu__ring_poll *poll, unsigned events), void *user) {
  struct insitu__ring_poll *p = (struct insitu__ring_poll *)insitu__mem_alloc(1, sizeof *p);
  if (!p) return NULL;
  memset(p, 0, sizeof *p);
  p->fd = fd;
  p->ready = ready;
  p->user = user;
  r->polls++;
  return p;
}
static void insitu__ring_poll_want(struct insitu__ring *r, struct insitu__ring_poll *p, unsigned want) { /* POLLIN, POLLOUT */
  p->want = want;
  if (p->want != p->armed) insitu__ring_poll_change(r, p);
}
/* Before the socket is closed: ready is not called any more, and what the kernel holds of the socket it gives back by the next
 * wait, so that the other side sees the end. */
static void insitu__ring_poll_close(struct insitu__ring *r, struct insitu__ring_poll *p) {
  p->closed = true;
  r->leaving++;
  if (r->backend == INSITU__RING_EPOLL && p->armed) {
    epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    p->armed = 0;
  }
  if (p->armed) insitu__ring_poll_change(r, p);
  insitu__ring_poll_drop(r, p);
}

/* Hands over what is queued and does not wait. */
static void insitu__ring_flush(struct insitu__ring *r) {
  assert(r->pid == getpid());
#ifndef INSITU_NO_URING
  if (r->backend == INSITU__RING_URING) {
    insitu__ring_uring_fill(r);
    if (io_uring_sq_ready(&r->uring)) io_uring_submit(&r->uring);
    return;
  }
#endif
  insitu__ring_epoll_flush(r);
}

/* Flushes, then waits until an operation is done, somebody wakes the ring, or timeout nanoseconds have passed (0: looks only;
   negative: no limit). Returns the number of done callbacks it ran. */
static int insitu__ring_wait(struct insitu__ring *r, int64_t timeout) {
  assert(r->pid == getpid());
  if (timeout > INT64_MAX / 2) timeout = -1; /* a century: the deadline would overflow */
#ifndef INSITU_NO_URING
  if (r->backend == INSITU__RING_URING) return insitu__ring_uring_wait(r, timeout);
#endif
  return insitu__ring_epoll_wait(r, timeout);
}

/* Waits for all that is in flight (the kernel may be writing to the caller's buffers), then frees. Nobody may wake the ring any
 * more. */
static void insitu__ring_close(struct insitu__ring *r) {
  assert(r->pid == getpid());
  while (insitu__ring_inflight(r)) insitu__ring_wait(r, -1);
  assert(!r->queued.first && !r->finished.first);
#ifndef INSITU_NO_URING
  if (r->backend == INSITU__RING_URING) {
    assert(!r->in_kernel && !r->staged.first);
    io_uring_queue_exit(&r->uring);
  }
#endif
  insitu__ring_epoll_close(r);
  close(r->event_fd);
  memset(r, 0, sizeof *r);
}

static insitu_status insitu__ring_open(struct insitu__ring *r, const struct insitu__ring_desc *d, insitu_error *err) {
  memset(r, 0, sizeof *r);
  r->epoll_fd = -1;
  r->pid = getpid();
  r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (r->event_fd < 0) {
    if (err && !err->status) err->sys_errno = errno;
    return insitu__error_set(err, INSITU_E_IO, "open: cannot make an eventfd: %m; raise the limit of open files (ulimit -n)");
  }
  if (d->backend != INSITU__RING_EPOLL) {
    const char *what = "the io_uring backend, which INSITU_NO_URING left out of this program";
    int rc = -ENOSYS;
#ifndef INSITU_NO_URING
    rc = insitu__ring_uring_open(r, d, &what);
    r->backend = INSITU__RING_URING;
    if (!rc) return INSITU_OK;
#endif
    if (d->backend == INSITU__RING_URING) {
      close(r->event_fd);
      if (err && !err->status) err->sys_errno = -rc;
      errno = -rc;
      return insitu__error_set(err, INSITU_E_UNSUPPORTED,
          "open: io_uring was asked for, but there is no %s: %m; allow it (kernel.io_uring_disabled = 0, a seccomp profile "
          "that permits io_uring_setup, io_uring_enter and io_uring_register), or set INSITU_IO=epoll or nothing",
          what);
    }
  }
  r->backend = INSITU__RING_EPOLL;
  insitu_status status = insitu__ring_epoll_open(r, d->io_threads, err);
  if (status < 0) {
    insitu__ring_epoll_close(r);
    close(r->event_fd);
  }
  return status;
}

/* >>reactor ---------------------------------------------------------------------------------------------------------------- */
/* One thread that owns a ring and runs coroutines, and workers for what takes processor time.
   State: one struct insitu__reactor, which must not move while open. Threaded: insitu__reactor_open starts the reactor's thread
   and the workers. Inline: there is no thread; the opener drives everything with insitu__reactor_run, and jobs run there too.
   "Reactor thread" below is the thread that runs the loop. From any thread: post, wake, call. A wake may come from a signal
   handler, and so may a post. Coroutines suspend in the functions ending in _await, which only they may call; tasks, the pump and
   jobs of inline mode run on the native stack. */

#define INSITU__REACTOR_MAX_WORKERS 1024u
#define INSITU__REACTOR_MAX_IDLE 1024u /* stacks kept for reuse */
#define INSITU__REACTOR_ROUNDS 8       /* of tasks, pump and coroutines before the kernel is looked at again */

struct insitu__reactor;
struct insitu__reactor_task { /* runs once on the reactor thread; the caller's memory, free to go when fn is called */
  void (*fn)(struct insitu__reactor_task *task);
  struct insitu__reactor_task *next;
};
struct insitu__reactor_job {        /* lives on its coroutine's stack */
  struct insitu__reactor_task task; /* brings it home */
  struct insitu__reactor_job *next;
  struct insitu__reactor *reactor;
  struct insitu__coro *co;
  void (*fn)(void *arg, unsigned worker);
  void *arg;
};
struct insitu__reactor_jobs {
  struct insitu__reactor_job *first, *last;
};
struct insitu__reactor_wait { /* lives on its coroutine's stack */
  struct insitu__reactor *reactor;
  struct insitu__coro *co;
  struct insitu__reactor_wait *next;
};
/* Where coroutines wait for an event. All zero: closed until the first open; see insitu__reactor_gate_expect. Once open it stays
 * open. */
struct insitu__reactor_gate {
  unsigned left; /* opens to come besides the last one */
  bool open;
  struct insitu__reactor_wait *first, *last;
};
struct insitu__reactor_timer {
  int64_t deadline; /* of insitu__base_now */
  struct insitu__coro *co;
};
/* Something else that the loop drives, on its native stack: see insitu__reactor_attach. */
struct insitu__reactor_source {
  bool (*turn)(struct insitu__reactor_source *source); /* in every round; whether it did something */
  void (*end)(struct insitu__reactor_source *source);  /* no coroutine is left, and the ring is about to be closed */
  int64_t deadline; /* of insitu__base_now: when a turn is wanted at the latest; INT64_MAX: not */
  struct insitu__reactor_source *next;
};
struct insitu__reactor_worker {
  struct insitu__reactor *reactor;
  unsigned index;
  pthread_t id;
};

struct insitu__reactor_desc {
  int backend; /* INSITU__RING_... */
  bool inline_mode;
  unsigned workers, io_threads, depth,
      iowq_max_workers; /* the last three: see struct insitu__ring_desc. Inline mode has no threads */
  size_t stack_bytes;   /* of a coroutine */
  void (*pump)(
      void *arg); /* called in every round of the loop, before it sleeps; what it changes for others it announces with a wake */
  void *pump_arg;
};

struct insitu__reactor {
  struct insitu__reactor_desc desc;
  struct insitu__ring ring;
  _Atomic(struct insitu__reactor_task *) posted; /* newest first */
  atomic_bool ending;
  pthread_t thread; /* the reactor thread */
  /* the reactor thread only */
  struct insitu__coro_pool coros;
  bool closing;
  uint32_t capacity;                    /* of the next two: at least the number of live coroutines, so that pushing never fails */
  struct insitu__coro **ready;          /* a ring buffer, capacity is a power of two */
  struct insitu__reactor_timer *timers; /* a binary heap, the earliest first */
  uint32_t ready_head, n_ready, n_timers;
  struct insitu__reactor_jobs new_jobs; /* not yet given to the workers */
  struct insitu__reactor_source *sources;
  /* under lock */
  pthread_mutex_t lock;
  pthread_cond_t work, news; /* for idle workers; for callers of open and call */
  struct insitu__reactor_jobs jobs;
  unsigned n_idle;
  bool stop, started;
  insitu_status status; /* of starting */
  insitu_error error;
  struct insitu__reactor_worker *workers;
  unsigned n_workers;         /* running; constant once open has returned */
  atomic_uint_least64_t busy; /* nanoseconds spent in jobs */
};

/* ---- any thread */
static void insitu__reactor_wake(struct insitu__reactor *r) {
  insitu__ring_wake(&r->ring);
}
static void insitu__reactor_post(struct insitu__reactor *r, struct insitu__reactor_task *task) {
  struct insitu__reactor_task *head = atomic_load_explicit(&r->posted, memory_order_relaxed);
  do task->next = head;
  while (!atomic_compare_exchange_weak_explicit(&r->posted, &head, task, memory_order_acq_rel, memory_order_relaxed));
  insitu__ring_wake(&r->ring);
}

/* ---- reactor thread */
static void insitu__reactor_ready(struct insitu__reactor *r, struct insitu__coro *co) {
  assert(r->n_ready < r->capacity);
  r->ready[(r->ready_head + r->n_ready++) & (r->capacity - 1)] = co;
}

static bool insitu__reactor_reserve(struct insitu__reactor *r, uint32_t n) { /* room for n live coroutines; false on no memory */
  if (n <= r->capacity) return true;
  uint32_t capacity = r->capacity ? r->capacity : 64;
  while (capacity < n) {
    if (capacity > UINT32_MAX / 2) return false;
    capacity *= 2;
  }
  struct insitu__reactor_timer *timers =
      (struct insitu__reactor_timer *)insitu__mem_realloc(r->timers, (uint64_t)capacity * sizeof *timers);
  if (timers) r->timers = timers;
  struct insitu__coro **ready =
      timers ? (struct insitu__coro **)insitu__mem_alloc(capacity, sizeof(struct insitu__coro *)) : NULL;
  if (!ready) return false;
  for (uint32_t i = 0; i < r->n_ready; i++) ready[i] = r->ready[(r->ready_head + i) & (r->capacity - 1)];
  insitu__mem_free(r->ready);
  r->ready = ready;
  r->ready_head = 0;
  r->capacity = capacity;
  return true;
}

/* Starts a coroutine that will run fn(arg), soon but not within this call. From a task, the pump, a done callback or a coroutine.
 */
static insitu_status insitu__reactor_spawn(struct insitu__reactor *r, void (*fn)(void *arg), void *arg) {
  assert(pthread_equal(r->thread, pthread_self()));
  if (!insitu__reactor_reserve(r, r->coros.live + 1)) return INSITU_E_NOMEM;
  struct insitu__coro *co = insitu__coro_start(&r->coros, fn, arg);
  if (!co) return INSITU_E_NOMEM;
  insitu__reactor_ready(r, co);
  return INSITU_OK;
}

static void insitu__reactor_timer_add(struct insitu__reactor *r, int64_t deadline, struct insitu__coro *co) {
  assert(r->n_timers < r->capacity);
  uint32_t i = r->n_timers++;
  for (uint32_t up; i && r->timers[up = (i - 1) / 2].deadline > deadline; i = up) r->timers[i] = r->timers[up];
  r->timers[i].deadline = deadline;
  r->timers[i].co = co;
}
static struct insitu__coro *insitu__reactor_timer_pop(struct insitu__reactor *r) {
  struct insitu__coro *co = r->timers[0].co;
  struct insitu__reactor_timer last = r->timers[--r->n_timers];
  uint32_t i = 0;
  for (uint32_t down; (down = 2 * i + 1) < r->n_timers; i = down) {
    if (down + 1 < r->n_timers && r->timers[down + 1].deadline < r->timers[down].deadline) down++;
    if (r->timers[down].deadline >= last.deadline) break;
    r->timers[i] = r->timers[down];
  }
  r->timers[i] = last;
  return co;
}

/* ---- coroutines */
struct insitu__reactor_read {
  struct insitu__ring_op op; /* its address is also this struct's */
  struct insitu__reactor *reactor;
  struct insitu__coro *co;
};
static void insitu__reactor_read_done(struct insitu__ring_op *op) {
  struct insitu__reactor_read *read = (struct insitu__reactor_read *)op->user;
  insitu__reactor_ready(read->reactor, read->co);
}
/* Bytes read, or -errno; consumes iov. See struct insitu__ring_op. */
static int64_t insitu__reactor_read_file_await(
    struct insitu__reactor *r, int dirfd, const char *path, uint64_t offset, struct iovec *iov, unsigned n_iov) {
  struct insitu__reactor_read read = {.reactor = r, .co = insitu__coro_current(&r->coros)};
  read.op.code = INSITU__RING_READ_FILE;
  read.op.dirfd = dirfd;
  read.op.path = path;
  read.op.offset = offset;
  read.op.iov = iov;
  read.op.n_iov = n_iov;
  read.op.done = insitu__reactor_read_done;
  read.op.user = &read;
  insitu__ring_submit(&r->ring, &read.op);
  insitu__coro_suspend_await(&r->coros);
  return read.op.result;
}

static void insitu__reactor_job_push(
    struct insitu__reactor_jobs *list, struct insitu__reactor_job *first, struct insitu__reactor_job *last) {
  if (list->first) list->last->next = first;
  else list->first = first;
  list->last = last;
}
static void insitu__reactor_job_done(struct insitu__reactor_task *task) {
  struct insitu__reactor_job *job = (struct insitu__reactor_job *)(void *)task;
  insitu__reactor_ready(job->reactor, job->co);
}
/* Runs fn(arg, worker) on a worker thread, worker < n_workers, or without workers on the loop's native stack with worker = 0. */
static void insitu__reactor_work_await(struct insitu__reactor *r, void (*fn)(void *arg, unsigned worker), void *arg) {
  struct insitu__reactor_job job = {
      .task.fn = insitu__reactor_job_done, .reactor = r, .co = insitu__coro_current(&r->coros), .fn = fn, .arg = arg};
  insitu__reactor_job_push(&r->new_jobs, &job, &job);
  insitu__coro_suspend_await(&r->coros);
}

/* Waits ns nanoseconds, at least one turn of the loop. False when it ended early because the reactor closes: give up. */
static bool insitu__reactor_sleep_await(struct insitu__reactor *r, int64_t ns) {
  int64_t now = insitu__base_now(), deadline = ns > INT64_MAX - now ? INT64_MAX : now + (ns > 0 ? ns : 0);
  insitu__reactor_timer_add(r, deadline, insitu__coro_current(&r->coros));
  insitu__coro_suspend_await(&r->coros);
  return !r->closing || insitu__base_now() >= deadline;
}

/* Lets everything run first that is ready now. */
static void insitu__reactor_yield_await(struct insitu__reactor *r) {
  insitu__reactor_ready(r, insitu__coro_current(&r->coros));
  insitu__coro_suspend_await(&r->coros);
}

static void insitu__reactor_gate_open(struct insitu__reactor_gate *gate) {
  if (gate->left) {
    gate->left--;
    return;
  }
  gate->open = true;
  struct insitu__reactor_wait *wait = gate->first;
  gate->first = NULL;
  for (struct insitu__reactor_wait *next; wait; wait = next) {
    next = wait->next;
    insitu__reactor_ready(wait->reactor, wait->co);
  }
}
static void insitu__reactor_gate_expect(
    struct insitu__reactor_gate *gate, unsigned opens) { /* makes a new gate that so many opens open */
  memset(gate, 0, sizeof *gate);
  gate->open = !opens;
  gate->left = opens ? opens - 1 : 0;
}
static void insitu__reactor_gate_await(
    struct insitu__reactor *r, struct insitu__reactor_gate *gate) { /* returns at once from an open one */
  if (gate->open) return;
  struct insitu__reactor_wait wait = {.reactor = r, .co = insitu__coro_current(&r->coros)};
  if (gate->first) gate->last->next = &wait;
  else gate->first = &wait;
  gate->last = &wait;
  insitu__coro_suspend_await(&r->coros);
}

/* ---- the loop */
static bool insitu__reactor_run_tasks(struct insitu__reactor *r) {
  if (!atomic_load_explicit(&r->posted, memory_order_relaxed)) return false;
  struct insitu__reactor_task *task = atomic_exchange_explicit(&r->posted, NULL, memory_order_acq_rel), *oldest = NULL;
  for (struct insitu__reactor_task *next; task; task = next) {
    next = task->next;
    task->next = oldest;
    oldest = task;
  }
  for (struct insitu__reactor_task *next; oldest; oldest = next) {
    next = oldest->next;
    oldest->fn(oldest);
  }
  return true;
}

static void insitu__reactor_fire_timers(struct insitu__reactor *r) {
  int64_t now = r->n_timers ? insitu__base_now() : 0;
  while (r->n_timers && (r->closing || r->timers[0].deadline <= now)) insitu__reactor_ready(r, insitu__reactor_timer_pop(r));
}

static bool insitu__reactor_run_ready(struct insitu__reactor *r) { /* those that are ready now, once each */
  uint32_t n = r->n_ready;
  for (uint32_t i = 0; i < n; i++) {
    struct insitu__coro *co = r->ready[r->ready_head];
    r->ready_head = (r->ready_head + 1) & (r->capacity - 1);
    r->n_ready--;
    insitu__coro_resume(co);
  }
  return n > 0;
}

static void insitu__reactor_job_run(struct insitu__reactor_job *job, unsigned worker) {
  int64_t begin = insitu__base_now();
  job->fn(job->arg, worker);
  atomic_fetch_add_explicit(&job->reactor->busy, (uint64_t)(insitu__base_now() - begin), memory_order_relaxed);
}

static bool insitu__reactor_start_jobs(struct insitu__reactor *r) { /* true when a job was run here */
  struct insitu__reactor_job *job = r->new_jobs.first;
  if (!job) return false;
  if (!r->n_workers) { /* one, after what can go on without us has been started */
    insitu__ring_flush(&r->ring);
    r->new_jobs.first = job->next;
    insitu__reactor_job_run(job, 0);
    insitu__reactor_ready(r, job->co);
    return true;
  }
  unsigned n = 0;
  for (; job; job = job->next) n++;
  pthread_mutex_lock(&r->lock);
  insitu__reactor_job_push(&r->jobs, r->new_jobs.first, r->new_jobs.last);
  if (n > r->n_idle) n = r->n_idle;
  pthread_mutex_unlock(&r->lock);
  r->new_jobs.first = NULL;
  while (n--) pthread_cond_signal(&r->work);
  return false;
}

/* From the reactor thread: the source, which is the caller's, stays attached until its end is called. */
static void insitu__reactor_attach(struct insitu__reactor *r, struct insitu__reactor_source *source) {
  source->deadline = INT64_MAX;
  source->next = r->sources;
  r->sources = source;
}
static bool insitu__reactor_run_sources(struct insitu__reactor *r) {
  bool any = false;
  for (struct insitu__reactor_source *source = r->sources; source; source = source->next) any |= source->turn(source);
  return any;
}

/* Everything that can be done without waiting. False when nothing was done. */
static bool insitu__reactor_turn(struct insitu__reactor *r) {
  bool any = false;
  for (int round = 0; round < INSITU__REACTOR_ROUNDS; round++) {
    bool progress = insitu__reactor_run_tasks(r);
    if (r->desc.pump) r->desc.pump(r->desc.pump_arg);
    insitu__reactor_fire_timers(r);
    progress |= insitu__reactor_run_sources(r);
    progress |= insitu__reactor_run_ready(r);
    if (r->n_workers) insitu__reactor_start_jobs(r);
    if (!progress) break;
    any = true;
  }
  if (!r->n_workers) any |= insitu__reactor_start_jobs(r);
  return any;
}

static bool insitu__reactor_pending(struct insitu__reactor *r) { /* is there work that no completion or wake will announce? */
  return r->n_ready || (!r->n_workers && r->new_jobs.first) || atomic_load_explicit(&r->posted, memory_order_relaxed);
}
static int64_t insitu__reactor_limit(struct insitu__reactor *r, int64_t timeout) { /* how long the ring may wait */
  int64_t first = r->n_timers ? r->timers[0].deadline : INT64_MAX;
  for (struct insitu__reactor_source *source = r->sources; source; source = source->next)
    if (source->deadline < first) first = source->deadline;
  if (first == INT64_MAX) return timeout;
  int64_t left = first - insitu__base_now();
  if (left < 0) left = 0;
  return timeout < 0 || left < timeout ? left : timeout;
}

/* One iteration, for inline mode on the opener's thread. Waits (at most timeout nanoseconds, negative: without limit) only if
   there was nothing to do, so a caller can look after every call whether what it needs has come. */
static void insitu__reactor_run(struct insitu__reactor *r, int64_t timeout) {
  assert(r->desc.inline_mode && pthread_equal(r->thread, pthread_self()) && !insitu__coro_current(&r->coros));
  bool any = insitu__reactor_turn(r);
  insitu__ring_wait(&r->ring, any || insitu__reactor_pending(r) ? 0 : insitu__reactor_limit(r, timeout));
}

static bool insitu__reactor_drained(struct insitu__reactor *r) {
  return !r->coros.live && !atomic_load_explicit(&r->posted, memory_order_relaxed);
}

static insitu_status insitu__reactor_start(struct insitu__reactor *r, insitu_error *err) { /* on the reactor thread */
  const struct insitu__reactor_desc *d = &r->desc;
  struct insitu__ring_desc ring = {d->backend, d->depth, d->inline_mode ? 0 : d->io_threads, d->iowq_max_workers};
  insitu_status status = insitu__coro_pool_init(&r->coros, d->stack_bytes, INSITU__REACTOR_MAX_IDLE, err);
  if (status < 0) return status;
  status = insitu__ring_open(&r->ring, &ring, err);
  if (status < 0) insitu__coro_pool_free(&r->coros);
  return status;
}
static void insitu__reactor_end(struct insitu__reactor *r) { /* on the reactor thread, nobody else uses r any more */
  for (struct insitu__reactor_source *source = r->sources, *next; source; source = next) {
    next = source->next; /* the source may be gone afterwards */
    source->end(source);
  }
  insitu__ring_close(&r->ring);
  insitu__coro_pool_free(&r->coros);
  insitu__mem_free(r->ready);
  insitu__mem_free(r->timers);
}

/* ---- threads */
static void *insitu__reactor_worker_main(void *arg) {
  struct insitu__reactor_worker *worker = (struct insitu__reactor_worker *)arg;
  struct insitu__reactor *r = worker->reactor;
  insitu__base_float();
  pthread_mutex_lock(&r->lock);
  for (;;) {
    struct insitu__reactor_job *job = r->jobs.first;
    if (job) {
      r->jobs.first = job->next;
      pthread_mutex_unlock(&r->lock);
      insitu__reactor_job_run(job, worker->index);
      insitu__reactor_post(r, &job->task); /* the coroutine may go on now: job is gone */
      pthread_mutex_lock(&r->lock);
    } else if (r->stop) {
      break;
    } else {
      r->n_idle++;
      pthread_cond_wait(&r->work, &r->lock);
      r->n_idle--;
    }
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

static void insitu__reactor_join_workers(struct insitu__reactor *r) {
  pthread_mutex_lock(&r->lock);
  r->stop = true;
  pthread_mutex_unlock(&r->lock);
  pthread_cond_broadcast(&r->work);
  for (unsigned i = 0; i < r->n_workers; i++) pthread_join(r->workers[i].id, NULL);
  insitu__mem_free(r->workers);
  r->workers = NULL;
}

static insitu_status insitu__reactor_start_workers(struct insitu__reactor *r, insitu_error *err) {
  unsigned n = r->desc.workers < INSITU__REACTOR_MAX_WORKERS ? r->desc.workers : INSITU__REACTOR_MAX_WORKERS;
  if (!n) return INSITU_OK;
  r->workers = (struct insitu__reactor_worker *)insitu__mem_alloc(n, sizeof *r->workers);
  if (!r->workers) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for %u workers; use fewer decode_threads", n);
  for (; r->n_workers < n; r->n_workers++) {
    struct insitu__reactor_worker *worker = &r->workers[r->n_workers];
    char name[24];
    worker->reactor = r;
    worker->index = r->n_workers;
    snprintf(name, sizeof name, "insitu-work-%u", worker->index % 1000); /* the kernel takes 15 characters */
    int rc = insitu__ring_thread(&worker->id, name, insitu__reactor_worker_main, worker);
    if (!rc) continue;
    errno = rc;
    if (err && !err->status) err->sys_errno = rc;
    return insitu__error_set(err, INSITU_E_NOMEM,
        "open: cannot start worker %u of %u: %m; raise the limit of threads (ulimit -u, the cgroup's pids.max) or use fewer "
        "decode_threads",
        r->n_workers + 1, n);
  }
  return INSITU_OK;
}

static void *insitu__reactor_main(void *arg) {
  struct insitu__reactor *r = (struct insitu__reactor *)arg;
  insitu_status status = insitu__reactor_start(r, &r->error);
  pthread_mutex_lock(&r->lock);
  r->thread = pthread_self();
  r->status = status;
  r->started = true;
  pthread_mutex_unlock(&r->lock);
  pthread_cond_broadcast(&r->news);
  if (status < 0) return NULL;
  for (;;) {
    insitu__ring_ack(&r->ring); /* all that a wake can mean is looked at below */
    r->closing = atomic_load_explicit(&r->ending, memory_order_acquire);
    bool more = insitu__reactor_turn(r); /* perhaps all rounds were used up, and the pump has not seen the last one's outcome */
    if (r->closing && insitu__reactor_drained(r)) break;
    insitu__ring_wait(&r->ring, more || insitu__reactor_pending(r) ? 0 : insitu__reactor_limit(r, -1));
  }
  /* Whoever still wakes us (a worker after its last job, the closer) must be through with it before its eventfd is closed. */
  insitu__reactor_join_workers(r);
  pthread_mutex_lock(&r->lock);
  pthread_mutex_unlock(&r->lock);
  insitu__reactor_end(r);
  return NULL;
}

/* ---- the owner */
static void insitu__reactor_destroy(struct insitu__reactor *r) {
  pthread_cond_destroy(&r->news);
  pthread_cond_destroy(&r->work);
  pthread_mutex_destroy(&r->lock);
}

/* The caller has told its coroutines to finish. Ends every sleep, runs until no coroutine is live and no task is left, joins and
   frees. What can make it wait is a read that the kernel cannot cancel, or a job. */
static void insitu__reactor_close(struct insitu__reactor *r) {
  if (r->desc.inline_mode) {
    r->closing = true;
    while (!insitu__reactor_drained(r)) insitu__reactor_run(r, -1);
    insitu__reactor_end(r);
  } else {
    pthread_t thread = r->thread;
    pthread_mutex_lock(&r->lock);
    atomic_store_explicit(&r->ending, true, memory_order_release);
    insitu__reactor_wake(r);
    pthread_mutex_unlock(&r->lock);
    pthread_join(thread, NULL);
  }
  insitu__reactor_destroy(r);
}

static insitu_status insitu__reactor_open(struct insitu__reactor *r, const struct insitu__reactor_desc *d, insitu_error *err) {
  memset(r, 0, sizeof *r);
  r->desc = *d;
  atomic_init(&r->posted, NULL);
  atomic_init(&r->busy, 0);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->work, NULL);
  pthread_cond_init(&r->news, NULL);
  insitu_status status;
  if (d->inline_mode) {
    r->thread = pthread_self();
    status = insitu__reactor_start(r, err);
    if (status < 0) insitu__reactor_destroy(r);
    return status;
  }
  pthread_t thread;
  status = insitu__reactor_start_workers(r, err); /* first, so that the reactor finds their number settled */
  int rc = status < 0 ? 0 : insitu__ring_thread(&thread, "insitu-reactor", insitu__reactor_main, r);
  if (rc) {
    errno = rc;
    if (err && !err->status) err->sys_errno = rc;
    status = insitu__error_set(err, INSITU_E_NOMEM,
        "open: cannot start the reactor's thread: %m; raise the limit of threads (ulimit -u, the cgroup's pids.max)");
  }
  if (status >= 0) {
    pthread_mutex_lock(&r->lock);
    while (!r->started) pthread_cond_wait(&r->news, &r->lock);
    status = r->status;
    pthread_mutex_unlock(&r->lock);
    if (status >= 0) return status;
    pthread_join(thread, NULL);
    if (err && err->status >= 0) *err = r->error;
  }
  insitu__reactor_join_workers(r);
  insitu__reactor_destroy(r);
  return status;
}

struct insitu__reactor_callee { /* lives on the caller's stack */
  struct insitu__reactor_task task;
  struct insitu__reactor *reactor;
  void (*fn)(void *arg);
  void *arg;
  bool returned; /* under lock */
  insitu_status status;
};
static void insitu__reactor_call_return(struct insitu__reactor_callee *call, insitu_status status) {
  struct insitu__reactor *r = call->reactor;
  pthread_mutex_lock(&r->lock);
  call->status = status;
  call->returned = true;
  pthread_cond_broadcast(&r->news); /* under lock: call, and with it the right to use r, may be gone afterwards */
  pthread_mutex_unlock(&r->lock);
}
static void insitu__reactor_call_coro(void *arg) {
  struct insitu__reactor_callee *call = (struct insitu__reactor_callee *)arg;
  call->fn(call->arg);
  insitu__reactor_call_return(call, INSITU_OK);
}
static void insitu__reactor_call_task(struct insitu__reactor_task *task) {
  struct insitu__reactor_callee *call = (struct insitu__reactor_callee *)(void *)task;
  if (insitu__reactor_spawn(call->reactor, insitu__reactor_call_coro, call) < 0)
    insitu__reactor_call_return(call, INSITU_E_NOMEM);
}
/* Runs fn(arg) in a coroutine and returns when it has returned; NOMEM when none could be started. Not from the reactor's thread,
   but in inline mode from nowhere else, and not from a coroutine. */
static insitu_status insitu__reactor_call(struct insitu__reactor *r, void (*fn)(void *arg), void *arg) {
  struct insitu__reactor_callee call = {.task.fn = insitu__reactor_call_task, .reactor = r, .fn = fn, .arg = arg};
  if (r->desc.inline_mode) {
    insitu__reactor_call_task(&call.task);
    while (!call.returned) insitu__reactor_run(r, -1);
    return call.status;
  }
  assert(!pthread_equal(r->thread, pthread_self()));
  insitu__reactor_post(r, &call.task);
  pthread_mutex_lock(&r->lock);
  while (!call.returned) pthread_cond_wait(&r->news, &r->lock);
  pthread_mutex_unlock(&r->lock);
  return call.status;
}
/* >>http ------------------------------------------------------------------------------------------------------------------- */
/* HTTP requests by libcurl: one multi handle, whose sockets and timer the reactor's loop drives.
   State: one struct insitu__http per remote store, which must not move from insitu__http_open to insitu__http_close. All of it
   belongs to the reactor thread, but for the counters. curl runs on that thread's native stack, never on a coroutine's: an _await
   function queues its request and suspends until a turn of the loop has finished it. A body goes from curl's buffer to where the
   request wants it, once its status line and headers have been found right, and nowhere else. Here, one request is one attempt,
   insitu__http_call_await excepted; who sends it decides what follows. */
#ifndef INSITU_NO_CURL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <curl/curl.h>
#pragma GCC diagnostic pop
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>

#define INSITU__HTTP_BUFFER (128 * 1024L) /* bytes that curl receives at once: 64 to 256 KiB are best on loopback */
#define INSITU__HTTP_SAID 4096            /* bytes of an error answer's body that are kept */
/* A server that answers a range with the whole object: so many bytes before the range are received and dropped, not more. */
#define INSITU__HTTP_SKIP (1u << 20)
#define INSITU__HTTP_CONNECTIONS 64
#define INSITU__HTTP_ADDRESSES 16           /* of one host that are used */
#define INSITU__HTTP_RESOLVED 60000000000   /* nanoseconds that a host's addresses are used */
#define INSITU__HTTP_PAUSE 100000000        /* nanoseconds: first pause before a retry, and */
#define INSITU__HTTP_PAUSE_SLOW 1000000000  /* where the server asked to slow down */
#define INSITU__HTTP_PAUSE_MOST 10000000000 /* longest pause that the server did not ask for */
#define INSITU__HTTP_NAP 100000000          /* nanoseconds of a pause after which it is looked whether to give up */
#define INSITU__HTTP_HEDGE 500000000        /* nanoseconds without an answer before a second request is worth it, at least */
#define INSITU__HTTP_LATENCIES 64           /* latest times to a first byte that the rule for second requests looks at */
enum { INSITU__HTTP_ETAG = 192, INSITU__HTTP_ID = 128 };

/* How requests are sent. Zero members mean defaults, which insitu__http_open puts in. */
struct insitu__http_desc {
  uint64_t connections;              /* requests under way at once (see insitu__http_connections) */
  int64_t connect_ms, stall_ms;      /* to connect (5 s); without stall_bytes in each second (20 s) */
  uint64_t stall_bytes;              /* (1024) */
  unsigned retries;                  /* after a first attempt (10) */
  int64_t retry_ms;                  /* in which no further attempt begins (180 s) */
  int version;                       /* 1: HTTP/1.1; 2: HTTP/2 where the server knows it */
  const char *proxy, *no_proxy, *ca; /* borrowed; NULL: curl's environment variables, and the system's certificates */
  const char *agent;                 /* borrowed: User-Agent */
  bool no_retries, insecure, hedge, isolated,
      any_etag; /* isolated: no proxy of the environment; any_etag: changed objects are not noticed */
};

/* One response, valid after the await. */
struct insitu__http_answer {
  int status;                                        /* 0: none came */
  uint64_t length;                                   /* Content-Length; UINT64_MAX: not told */
  bool has_range;                                    /* Content-Range: */
  uint64_t first, last, total;                       /* total UINT64_MAX: not told; of "bytes *" first is 1 and last 0 */
  int64_t date, retry_after;                         /* seconds since 1970, and from now; -1: not told */
  bool encoded;                                      /* Content-Encoding other than identity */
  char etag[INSITU__HTTP_ETAG], id[INSITU__HTTP_ID]; /* the latter: the service's name for this request */
  char code[64], region[32];                         /* x-ms-error-code, x-amz-bucket-region */
  char *location;                                    /* NULL: none */
};

struct insitu__http_transfer;
/* Zero it, fill the first part, insitu__http_await, look at the rest, insitu__http_request_free. It must not move meanwhile. */
struct insitu__http_request {
  const char *method;                 /* NULL: GET */
  const char *url;                    /* sent byte for byte */
  struct insitu__text_buffer own_url; /* where url may be kept */
  char **headers;                     /* "Name: value", see insitu__http_header */
  const void *body;                   /* n_body bytes of a PUT or POST, borrowed */
  uint64_t n_body;
  struct iovec *iov; /* where the body of 200 and 206 goes: changed; NULL: to text. A NULL base drops bytes */
  unsigned n_iov;
  uint64_t first, bytes; /* the range that a Range header asks for; bytes 0: none; first INSITU__RING_TAIL: the last bytes */
  int64_t connect_ms, stall_ms; /* 0: as the desc says */
  bool fresh;                   /* no connection that was used before */
  const bool *give_up;          /* NULL, or once it is true the request ends as cancelled: see insitu__http_sweep */
  /* out */
  struct insitu__text_buffer text; /* the body of a request without iov (set text.limit), or what an error answer says */
  struct insitu__http_answer answer;
  uint64_t placed; /* bytes that went to iov */
  bool transient;  /* it failed, and another attempt may not */
  bool unsent;     /* nothing was sent: no connection came about */
  /* the engine's own */
  struct insitu__http_request *next;
  struct insitu__http_transfer *sent, *twin, *winner; /* winner: of the two, whose body is taken */
  struct insitu__coro *co;
  uint64_t skip;
  int64_t began;
  int failure; /* INSITU__HTTP_... below */
  CURLcode result;
  char *cause; /* curl's text */
};
/* Why a response was not taken to its end. */
enum {
  INSITU__HTTP_FINE,
  INSITU__HTTP_FULL,  /* no failure: the object has more than there is room for */
  INSITU__HTTP_RANGE, /* not the range that was asked for */
  INSITU__HTTP_WHOLE, /* the whole object instead of a range */
  INSITU__HTTP_LONG,  /* more bytes than announced, or than text.limit */
  INSITU__HTTP_ENCODED,
  INSITU__HTTP_MEMORY,
  INSITU__HTTP_CANCELLED
};

struct insitu__http_transfer { /* a curl handle: idle, or under way for a request */
  struct insitu__http *http;
  struct insitu__http_request *request;
  struct insitu__http_transfer *next, **link; /* in the list of those under way; next alone: in that of idle ones */
  CURL *easy;
  struct curl_slist *headers, *resolve;
  struct insitu__http_answer answer;
  uint64_t header_bytes;
  int64_t began;
  bool begun; /* headers are complete, and this response is the request's */
  char error[CURL_ERROR_SIZE];
};

struct insitu__http_socket {
  struct insitu__ring_poll *poll;
  struct insitu__http_socket *next, **link;
};

struct insitu__http_host { /* addresses of a name */
  char name[256];          /* and port: "host:port" */
  int64_t until;           /* of insitu__base_now */
  unsigned n, turn;        /* turn: which address goes first next time */
  bool asking;
  struct insitu__reactor_gate *gate; /* of those who wait for the answer */
  char address[INSITU__HTTP_ADDRESSES][INET6_ADDRSTRLEN + 2];
};

struct insitu__http {
  struct insitu__reactor_source source; /* first */
  struct insitu__http_desc desc;
  struct insitu__reactor *reactor;
  bool attached, curl;
  bool sweep; /* some requests are to be given up */
  CURLM *multi;
  int64_t timer; /* when curl wants to be called; INT64_MAX: not */
  bool news;     /* curl may have finished transfers */
  struct insitu__http_socket *sockets;
  struct insitu__http_request *first, *last; /* queued */
  struct insitu__http_transfer *active, *idle;
  uint64_t under_way;
  double most;    /* requests under way at once, */
  double limit;   /* and of these now: falls when the server asks to slow down, and rises again */
  int64_t slowed; /* when it fell last */
  struct insitu__http_host host[INSITU__MAX_HOSTS];
  uint64_t random;
  int64_t latency[INSITU__HTTP_LATENCIES];
  unsigned n_latency;
  /* counters: relaxed */
  atomic_uint_least64_t n_requests, n_retries, n_throttled, n_hedges, n_bytes, n_connections, peak;
};

static void insitu__http_count(atomic_uint_least64_t *counter, uint64_t n) {
  atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* -- options -- */

/* "5", "1.5s", "200ms", "2m": milliseconds. */
static bool insitu__http_duration(const char *text, int64_t *ms) {
  char *end;
  if (!insitu__text_is_digit(*text)) return false;
  double value = strtod(text, &end), unit = !*end || !strcmp(end, "s") ? 1000
                                            : !strcmp(end, "ms")       ? 1
                                            : !strcmp(end, "m")        ? 60000
                                                                       : 0;
  if (unit == 0 || value * unit > 1e9) return false;
  *ms = (int64_t)(value * unit + 0.5);
  return true;
}
static bool insitu__http_number(const char *text, uint64_t most, uint64_t *value) {
  uint64_t n = 0;
  if (!*text) return false;
  for (; *text; text++) {
    if (!insitu__text_is_digit(*text) || (n = n * 10 + (uint64_t)(*text - '0')) > most) return false;
  }
  *value = n;
  return true;
}
/* true, 1, yes, on and their opposites. */
static bool insitu__http_flag(const char *text, bool *value) {
  static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcasecmp(text, words[i])) return (*value = i & 1), true;
  return false;
}

/* What all remote stores know. */
static const char *const insitu__http_options[] = {"connect_timeout", "stall_timeout", "stall_bytes", "retry_timeout",
    "max_retries", "max_connections", "http_version", "proxy_url", "proxy_excludes", "ca_bundle", "user_agent",
    "allow_invalid_certificates", "hedge", "ignore_etag"};
enum { INSITU__HTTP_OPTIONS = sizeof insitu__http_options / sizeof *insitu__http_options };
/* Takes an option of that list, whose text must stay; false: it is none of them. *status: OK, or what is wrong with its value. */
static bool insitu__http_option(
    struct insitu__http_desc *d, const char *key, const char *value, insitu_error *err, insitu_status *status) {
  int at = 0;
  uint64_t number;
  bool ok = true;
  while (at < INSITU__HTTP_OPTIONS && strcmp(insitu__http_options[at], key)) at++;
  *status = INSITU_OK;
  switch (at) {
  case 0: ok = insitu__http_duration(value, &d->connect_ms) && d->connect_ms; break;
  case 1: ok = insitu__http_duration(value, &d->stall_ms) && d->stall_ms; break;
  case 2: ok = insitu__http_number(value, 1u << 30, &d->stall_bytes) && d->stall_bytes; break;
  case 3: ok = insitu__http_duration(value, &d->retry_ms) && d->retry_ms; break;
  case 4:
    ok = insitu__http_number(value, 1000, &number);
    d->retries = ok ? (unsigned)number : 0;
    d->no_retries = ok && !number;
    break;
  case 5: ok = insitu__http_number(value, INSITU__MAX_CONNECTIONS, &d->connections) && d->connections; break;
  case 6:
    ok = !strcmp(value, "1.1") || !strcmp(value, "2");
    d->version = value[0] - '0';
    break;
  case 7: d->proxy = value; break;
  case 8: d->no_proxy = value; break;
  case 9: d->ca = value; break;
  case 10: d->agent = value; break;
  case 11: ok = insitu__http_flag(value, &d->insecure); break;
  case 12: ok = insitu__http_flag(value, &d->hedge); break;
  case 13: ok = insitu__http_flag(value, &d->any_etag); break;
  default: return false;
  }
  if (!ok)
    *status = insitu__error_set(err, INSITU_E_ARG, "option %s: '%.100s' is no value of it; give %s", key, value,
        at == 6                         ? "1.1 or 2"
        : at >= 11                      ? "true or false"
        : at == 2 || at == 4 || at == 5 ? "a number"
                                        : "a time such as 5s or 500ms");
  return true;
}

/* -- headers -- */

/* Adds "Name: value" to a request. False: no memory. */
__attribute__((format(printf, 2, 3))) static bool insitu__http_header(struct insitu__http_request *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  char *line = n < 0 ? NULL : (char *)insitu__mem_alloc((uint64_t)n + 1, 1);
  if (!line) return false;
  va_start(args, format);
  vsnprintf(line, (size_t)n + 1, format, args);
  va_end(args);
  if (INSITU__ARRAY_PUSH(r->headers, line)) return true;
  insitu__mem_free(line);
  return false;
}
static void insitu__http_answer_free(struct insitu__http_answer *a) {
  insitu__mem_free(a->location);
  memset(a, 0, sizeof *a);
}
/* Frees what a request owns, and makes it ready to be filled again: its destination and limits stay. */
static void insitu__http_request_reset(struct insitu__http_request *r) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(r->headers); i++) {
    explicit_bzero(r->headers[i], strlen(r->headers[i])); /* credentials */
    insitu__mem_free(r->headers[i]);
  }
  INSITU__ARRAY_FREE(r->headers);
  if (r->own_url.text) explicit_bzero(r->own_url.text, (size_t)r->own_url.n);
  insitu__text_buffer_free(&r->own_url);
  uint64_t limit = r->text.limit;
  insitu__text_buffer_free(&r->text);
  r->text.limit = limit;
  insitu__http_answer_free(&r->answer);
  insitu__mem_free(r->cause);
  r->cause = NULL;
}
static void insitu__http_request_free(struct insitu__http_request *r) {
  insitu__http_request_reset(r);
  memset(r, 0, sizeof *r);
}

static void insitu__http_answer_init(struct insitu__http_answer *a) {
  insitu__http_answer_free(a);
  a->length = a->total = UINT64_MAX;
  a->date = a->retry_after = -1;
}
static bool insitu__http_digits(const char **p, uint64_t *value) {
  uint64_t n = 0;
  const char *begin = *p;
  for (; insitu__text_is_digit(**p); ++*p)
    if (!insitu__base_mul(n, 10, &n) || !insitu__base_add(n, (uint64_t)(**p - '0'), &n)) return false;
  *value = n;
  return *p > begin;
}
/* "bytes 0-9/100", "bytes 0-9/ *", "bytes * /100" (without the blanks): RFC 9110, 14.4. */
static bool insitu__http_content_range(const char *text, struct insitu__http_answer *a) {
  if (strncasecmp(text, "bytes ", 6)) return false;
  const char *p = text + 6;
  uint64_t first = 1, last = 0, total = UINT64_MAX;
  if (*p == '*') {
    p++;
  } else {
    if (!insitu__http_digits(&p, &first) || *p++ != '-' || !insitu__http_digits(&p, &last)) return false;
    if (first > last || last == UINT64_MAX) return false;
  }
  if (*p++ != '/') return false;
  if (*p == '*') p++;
  else if (!insitu__http_digits(&p, &total)) return false;
  if (*p || (first <= last && last >= total)) return false;
  a->first = first;
  a->last = last;
  a->total = total;
  return a->has_range = true;
}
/* A header line without its end, NUL-terminated. False: no memory. */
static bool insitu__http_take_header(struct insitu__http_answer *a, char *line) {
  char *value = strchr(line, ':');
  if (!value) return true;
  size_t name = (size_t)(value - line);
  for (value++; *value == ' ' || *value == '\t';) value++;
  for (size_t n = strlen(value); n && (value[n - 1] == ' ' || value[n - 1] == '\t');) value[--n] = 0;
  const struct {
    const char *name;
    char *text;
    size_t cap;
  } texts[] = {{"etag", a->etag, sizeof a->etag}, {"x-amz-request-id", a->id, sizeof a->id},
      {"x-ms-request-id", a->id, sizeof a->id}, {"x-guploader-uploadid", a->id, sizeof a->id},
      {"x-ms-error-code", a->code, sizeof a->code}, {"x-amz-bucket-region", a->region, sizeof a->region}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (name == strlen(texts[i].name) && !strncasecmp(line, texts[i].name, name)) { /* one that does not fit is as none */
      if (strlen(value) < texts[i].cap) memcpy(texts[i].text, value, strlen(value) + 1);
      return true;
    }
  const char *p = value;
  if (name == 14 && !strncasecmp(line, "content-length", name)) {
    if (!insitu__http_digits(&p, &a->length) || *p) a->length = UINT64_MAX;
  } else if (name == 13 && !strncasecmp(line, "content-range", name)) {
    insitu__http_content_range(value, a);
  } else if (name == 16 && !strncasecmp(line, "content-encoding", name)) {
    a->encoded = *value && strcasecmp(value, "identity");
  } else if (name == 4 && !strncasecmp(line, "date", name)) {
    a->date = curl_getdate(value, NULL);
  } else if (name == 11 && !strncasecmp(line, "retry-after", name)) {
    uint64_t seconds;
    if (insitu__http_digits(&p, &seconds) && !*p) a->retry_after = (int64_t)insitu__base_min(seconds, 1u << 20);
    else {
      int64_t until = curl_getdate(value, NULL), now = (int64_t)time(NULL);
      a->retry_after = until < 0 ? -1 : until > now ? until - now : 0;
    }
  } else if (name == 8 && !strncasecmp(line, "location", name)) {
    insitu__mem_free(a->location);
    a->location = insitu__mem_text(value, strlen(value));
    return a->location != NULL;
  }
  return true;
}

/* -- curl's callbacks: they note, and start nothing -- */

static void insitu__http_set_long(CURL *easy, CURLoption option, long value) {
  curl_easy_setopt(easy, option, value);
}
static void insitu__http_set_text(CURL *easy, CURLoption option, const char *value) {
  curl_easy_setopt(easy, option, value);
}
static void insitu__http_set_pointer(CURL *easy, CURLoption option, void *value) {
  curl_easy_setopt(easy, option, value);
}

static void insitu__http_polled(struct insitu__ring_poll *poll, unsigned events) {
  struct insitu__http *h = (struct insitu__http *)poll->user;
  int running, mask = (events & (POLLIN | POLLHUP) ? CURL_CSELECT_IN : 0) | (events & POLLOUT ? CURL_CSELECT_OUT : 0) |
                      (events & (POLLERR | POLLNVAL) ? CURL_CSELECT_ERR : 0);
  h->news = true;
  curl_multi_socket_action(h->multi, poll->fd, mask, &running);
}
static void insitu__http_socket_close(struct insitu__http *h, struct insitu__http_socket *s) {
  insitu__ring_poll_close(&h->reactor->ring, s->poll);
  *s->link = s->next;
  if (s->next) s->next->link = s->link;
  insitu__mem_free(s);
}
static struct insitu__http_socket *insitu__http_socket_open(struct insitu__http *h, curl_socket_t fd) {
  struct insitu__http_socket *s = (struct insitu__http_socket *)insitu__mem_alloc(1, sizeof *s);
  if (!s) return NULL;
  s->poll = insitu__ring_poll_open(&h->reactor->ring, fd, insitu__http_polled, h);
  if (!s->poll) {
    insitu__mem_free(s);
    return NULL;
  }
  s->next = h->sockets;
  s->link = &h->sockets;
  if (s->next) s->next->link = &s->next;
  h->sockets = s;
  return s;
}
static int insitu__http_on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *mine) {
  struct insitu__http *h = (struct insitu__http *)user;
  struct insitu__http_socket *s = (struct insitu__http_socket *)mine;
  (void)easy;
  if (what == CURL_POLL_REMOVE) {
    curl_multi_assign(h->multi, fd, NULL);
    if (s) insitu__http_socket_close(h, s);
    return 0;
  }
  if (!s) {
    s = insitu__http_socket_open(h, fd);
    if (!s) return -1;
    curl_multi_assign(h->multi, fd, s);
  }
  insitu__ring_poll_want(&h->reactor->ring, s->poll, (what & CURL_POLL_IN ? POLLIN : 0) | (what & CURL_POLL_OUT ? POLLOUT : 0));
  return 0;
}
static int insitu__http_on_timer(CURLM *multi, long ms, void *user) {
  struct insitu__http *h = (struct insitu__http *)user;
  (void)multi;
  h->timer = ms < 0 ? INT64_MAX : insitu__base_now() + ms * INT64_C(1000000);
  return 0;
}

/* Notes why the rest of a response is not wanted; curl then ends the transfer. */
static size_t insitu__http_refuse(struct insitu__http_request *r, int failure) {
  r->failure = failure;
  return 0;
}
/* Whether a response, whose headers are complete, is what was asked for; how much of its body is to be dropped first. */
static int insitu__http_judge(struct insitu__http_request *r) {
  const struct insitu__http_answer *a = &r->answer;
  if (a->status != 200 && a->status != 206) return INSITU__HTTP_FINE;
  if (a->encoded && r->iov) return INSITU__HTTP_ENCODED;
  if (!r->bytes) return a->status == 206 ? INSITU__HTTP_RANGE : INSITU__HTTP_FINE;
  bool tail = r->first == INSITU__RING_TAIL;
  if (a->status == 206) {
    if (!a->has_range || a->first > a->last || a->last - a->first >= r->bytes) return INSITU__HTTP_RANGE;
    if (tail) return a->total != UINT64_MAX && a->last + 1 == a->total ? INSITU__HTTP_FINE : INSITU__HTTP_RANGE;
    bool whole = a->last - a->first + 1 == r->bytes || a->total == UINT64_MAX || a->last + 1 == a->total;
    return a->first == r->first && whole ? INSITU__HTTP_FINE : INSITU__HTTP_RANGE;
  }
  if (tail && a->length == UINT64_MAX) return INSITU__HTTP_WHOLE;
  r->skip = tail ? a->length - insitu__base_min(r->bytes, a->length) : r->first;
  return r->skip > INSITU__HTTP_SKIP ? INSITU__HTTP_WHOLE : INSITU__HTTP_FINE;
}
/* The first of a request's transfers whose headers are complete gives its body: from now on the other is nobody's. */
static bool insitu__http_begin(struct insitu__http_transfer *t) {
  struct insitu__http_request *r = t->request;
  if (t->begun) return true;
  if (r->winner) return false;
  struct insitu__http *h = t->http;
  t->begun = true;
  r->winner = t;
  r->answer = t->answer;
  t->answer.location = NULL;
  h->latency[h->n_latency++ % INSITU__HTTP_LATENCIES] = insitu__base_now() - t->began;
  r->failure = insitu__http_judge(r);
  return !r->failure;
}
static size_t insitu__http_on_header(char *line, size_t size, size_t n, void *user) {
  struct insitu__http_transfer *t = (struct insitu__http_transfer *)user;
  char copy[8192]; /* longer ones are none of those we want */
  n *= size;
  t->header_bytes += n;
  if (t->header_bytes > INSITU__MAX_HEADERS) return insitu__http_refuse(t->request, INSITU__HTTP_LONG);
  if (n > 5 && !memcmp(line, "HTTP/", 5)) { /* the status line; informational answers come before the real one */
    insitu__http_answer_init(&t->answer);
    for (size_t i = 5; i + 3 < n; i++)
      if (line[i] == ' ') {
        t->answer.status = atoi(line + i + 1);
        break;
      }
    return n;
  }
  size_t length = n;
  while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) length--;
  if (length >= sizeof copy) return n;
  memcpy(copy, line, length);
  copy[length] = 0;
  return insitu__http_take_header(&t->answer, copy) ? n : insitu__http_refuse(t->request, INSITU__HTTP_MEMORY);
}
/* Puts bytes where the request wants them; false when there is no room for all. */
static bool insitu__http_place(struct insitu__http_request *r, const char *bytes, uint64_t n) {
  uint64_t drop = insitu__base_min(n, r->skip);
  r->skip -= drop;
  bytes += drop;
  n -= drop;
  while (n && r->n_iov) {
    uint64_t part = insitu__base_min(n, r->iov->iov_len);
    if (r->iov->iov_base && part) {
      memcpy(r->iov->iov_base, bytes, (size_t)part);
      r->iov->iov_base = (char *)r->iov->iov_base + part;
    }
    r->iov->iov_len -= (size_t)part;
    r->placed += part;
    bytes += part;
    n -= part;
    if (!r->iov->iov_len) r->iov++, r->n_iov--;
  }
  return !n;
}
static size_t insitu__http_on_body(char *bytes, size_t size, size_t n, void *user) {
  struct insitu__http_transfer *t = (struct insitu__http_transfer *)user;
  struct insitu__http_request *r = t->request;
  const struct insitu__http_answer *a = &r->answer;
  n *= size;
  if (!insitu__http_begin(t)) return 0;
  insitu__http_count(&t->http->n_bytes, n);
  if (a->status != 200 && a->status != 206) {
    uint64_t keep = r->text.n < INSITU__HTTP_SAID ? insitu__base_min(n, INSITU__HTTP_SAID - r->text.n) : 0;
    return insitu__text_buffer_bytes(&r->text, bytes, keep) ? n : insitu__http_refuse(r, INSITU__HTTP_MEMORY);
  }
  if (!r->iov) {
    if (insitu__text_buffer_bytes(&r->text, bytes, n)) return n;
    return insitu__http_refuse(r, r->text.n + n > r->text.limit ? INSITU__HTTP_LONG : INSITU__HTTP_MEMORY);
  }
  if (insitu__http_place(r, bytes, n)) return n;
  return insitu__http_refuse(r, a->status == 206 ? INSITU__HTTP_LONG : INSITU__HTTP_FULL);
}

/* -- transfers -- */

static void insitu__http_idle(struct insitu__http_transfer *t) { /* takes one that is under way out */
  struct insitu__http *h = t->http;
  curl_multi_remove_handle(h->multi, t->easy);
  curl_easy_reset(t->easy);
  curl_slist_free_all(t->headers);
  curl_slist_free_all(t->resolve);
  insitu__http_answer_free(&t->answer);
  *t->link = t->next;
  if (t->next) t->next->link = t->link;
  t->headers = t->resolve = NULL;
  t->request = NULL;
  t->next = h->idle;
  h->idle = t;
  h->under_way--;
}
static void insitu__http_free(struct insitu__http_transfer *t) {
  curl_easy_cleanup(t->easy);
  insitu__mem_free(t);
}
static bool insitu__http_lines(struct curl_slist **list, const char *line) {
  struct curl_slist *longer = curl_slist_append(*list, line);
  if (longer) *list = longer;
  return longer != NULL;
}
/* The addresses of the request's host, another one first each time, so that connections spread over them. */
static bool insitu__http_addresses(struct insitu__http *h, struct insitu__http_transfer *t, const char *host) {
  for (unsigned i = 0; i < INSITU__MAX_HOSTS; i++) {
    struct insitu__http_host *known = &h->host[i];
    if (!known->n || strcmp(known->name, host)) continue;
    char line[sizeof known->name + 2 + INSITU__HTTP_ADDRESSES * sizeof *known->address];
    int n = snprintf(line, sizeof line, "%s", known->name);
    for (unsigned k = 0; k < known->n; k++)
      n += snprintf(line + n, sizeof line - (size_t)n, "%s%s", k ? "," : ":", known->address[(k + known->turn) % known->n]);
    known->turn++;
    return insitu__http_lines(&t->resolve, line);
  }
  return true;
}
/* "host:port" of a url that curl understands; "" when it is an address, or curl resolves it by itself. */
static void insitu__http_host_of(const struct insitu__http *h, const char *url, char *out, size_t cap) {
  char *host = NULL, *port = NULL;
  unsigned char address[16];
  CURLU *u = curl_url();
  out[0] = 0;
  if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_HOST, &host, 0) &&
      !curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) && host[0] != '[' && inet_pton(AF_INET, host, address) != 1 &&
      strcasecmp(host, "localhost"))
    snprintf(out, cap, "%s:%s", host, port);
  if (strlen(out) + 1 >= cap) out[0] = 0;
  curl_free(host);
  curl_free(port);
  curl_url_cleanup(u);
  (void)h;
}
static void insitu__http_options_set(struct insitu__http_transfer *t) {
  struct insitu__http_request *r = t->request;
  const struct insitu__http_desc *d = &t->http->desc;
  CURL *e = t->easy;
  curl_write_callback on_header = insitu__http_on_header, on_body = insitu__http_on_body;
  int64_t connect = r->connect_ms ? r->connect_ms : d->connect_ms, stall = r->stall_ms ? r->stall_ms : d->stall_ms;
  insitu__http_set_text(e, CURLOPT_URL, r->url);
  insitu__http_set_long(e, CURLOPT_PATH_AS_IS, 1);
  insitu__http_set_long(e, CURLOPT_NOSIGNAL, 1);
  insitu__http_set_long(e, CURLOPT_BUFFERSIZE, INSITU__HTTP_BUFFER);
  insitu__http_set_long(e, CURLOPT_CONNECTTIMEOUT_MS, (long)connect);
  insitu__http_set_long(e, CURLOPT_LOW_SPEED_LIMIT, (long)d->stall_bytes);
  insitu__http_set_long(e, CURLOPT_LOW_SPEED_TIME, (long)((stall + 999) / 1000));
  insitu__http_set_long(e, CURLOPT_HTTP_VERSION, d->version == 2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1);
  insitu__http_set_long(e, CURLOPT_PIPEWAIT, d->version == 2);
  insitu__http_set_long(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1);
  insitu__http_set_long(e, CURLOPT_FRESH_CONNECT, r->fresh || t == r->twin);
#if LIBCURL_VERSION_NUM >= 0x075500
  insitu__http_set_text(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  insitu__http_set_long(e, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  if (d->proxy || d->isolated) insitu__http_set_text(e, CURLOPT_PROXY, d->proxy ? d->proxy : "");
  if (d->no_proxy) insitu__http_set_text(e, CURLOPT_NOPROXY, d->no_proxy);
  if (d->ca) insitu__http_set_text(e, CURLOPT_CAINFO, d->ca);
  if (d->insecure) insitu__http_set_long(e, CURLOPT_SSL_VERIFYPEER, 0);
  if (d->insecure) insitu__http_set_long(e, CURLOPT_SSL_VERIFYHOST, 0);
  insitu__http_set_text(e, CURLOPT_USERAGENT, d->agent);
  insitu__http_set_text(e, CURLOPT_ACCEPT_ENCODING, r->iov ? NULL : ""); /* texts only: bytes arrive as they are stored */
  insitu__http_set_pointer(e, CURLOPT_HTTPHEADER, t->headers);
  insitu__http_set_pointer(e, CURLOPT_RESOLVE, t->resolve);
  insitu__http_set_pointer(e, CURLOPT_PRIVATE, t);
  insitu__http_set_pointer(e, CURLOPT_ERRORBUFFER, t->error);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  insitu__http_set_pointer(e, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
  insitu__http_set_pointer(e, CURLOPT_WRITEDATA, t);
  if (r->method && !strcmp(r->method, "HEAD")) insitu__http_set_long(e, CURLOPT_NOBODY, 1);
  else if (r->method && strcmp(r->method, "GET")) {
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
    insitu__http_set_pointer(e, CURLOPT_POSTFIELDS, (void *)(uintptr_t)(r->body ? r->body : ""));
    insitu__http_set_text(e, CURLOPT_CUSTOMREQUEST, r->method);
  }
}
/* Begins a transfer for the request; NULL: no memory. */
static struct insitu__http_transfer *insitu__http_start(struct insitu__http *h, struct insitu__http_request *r, bool twin) {
  struct insitu__http_transfer *t = h->idle;
  char host[300];
  if (t) h->idle = t->next;
  else if ((t = (struct insitu__http_transfer *)insitu__mem_alloc(1, sizeof *t))) {
    memset(t, 0, sizeof *t);
    t->easy = curl_easy_init();
    if (!t->easy) {
      insitu__mem_free(t);
      t = NULL;
    }
  }
  if (!t) return NULL;
  t->http = h;
  t->request = r;
  t->begun = false;
  t->header_bytes = 0;
  t->error[0] = 0;
  t->began = insitu__base_now();
  insitu__http_answer_init(&t->answer);
  if (twin) r->twin = t;
  else r->sent = t;
  bool ok = true;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(r->headers); i++) ok = ok && insitu__http_lines(&t->headers, r->headers[i]);
  if (r->n_body) ok = ok && insitu__http_lines(&t->headers, "Expect:"); /* no waiting for 100 Continue */
  insitu__http_host_of(h, r->url, host, sizeof host);
  if (host[0]) ok = ok && insitu__http_addresses(h, t, host);
  insitu__http_options_set(t);
  t->next = h->active;
  t->link = &h->active;
  if (t->next) t->next->link = &t->next;
  h->active = t;
  h->under_way++;
  insitu__http_count(&h->n_requests, 1);
  uint64_t peak = atomic_load_explicit(&h->peak, memory_order_relaxed);
  if (h->under_way > peak) atomic_store_explicit(&h->peak, h->under_way, memory_order_relaxed);
  if (ok && curl_multi_add_handle(h->multi, t->easy) == CURLM_OK) return t;
  insitu__http_idle(t);
  return NULL;
}
/* The request is over: takes both its transfers out and lets its coroutine go on. */
static void insitu__http_finish(struct insitu__http *h, struct insitu__http_request *r) {
  if (r->sent) insitu__http_idle(r->sent);
  if (r->twin) insitu__http_idle(r->twin);
  r->sent = r->twin = NULL;
  insitu__reactor_ready(h->reactor, r->co);
}
/* curl is through with a transfer. */
static void insitu__http_ended(struct insitu__http *h, struct insitu__http_transfer *t, CURLcode result) {
  struct insitu__http_request *r = t->request;
  bool other = r->sent == t ? r->twin != NULL : r->sent != NULL;
  if (result == CURLE_OK && !r->winner) insitu__http_begin(t); /* an answer without a body */
  if (r->winner != t && other) {                               /* the other transfer is still good for an answer, or gives it */
    if (r->sent == t) r->sent = NULL;
    else r->twin = NULL;
    insitu__http_idle(t);
    return;
  }
  long connections = 0;
  curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connections);
  insitu__http_count(&h->n_connections, connections > 0 ? (uint64_t)connections : 0);
  curl_off_t pretransfer = 0;
  curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer);
  r->unsent = !pretransfer;
  r->result = result;
  if (result)
    r->cause = insitu__mem_text(
        t->error[0] ? t->error : curl_easy_strerror(result), strlen(t->error[0] ? t->error : curl_easy_strerror(result)));
  insitu__http_finish(h, r);
}

/* -- the loop's turn -- */

static bool insitu__http_multi(struct insitu__http *h) { /* makes it at the first request */
  if (h->multi) return true;
  curl_socket_callback on_socket = insitu__http_on_socket;
  curl_multi_timer_callback on_timer = insitu__http_on_timer;
  h->multi = curl_multi_init();
  if (!h->multi) return false;
  curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
  curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer);
  curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
  curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)(2 * h->most)); /* or curl closes warm ones */
  curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, h->desc.version == 2 ? CURLPIPE_MULTIPLEX : CURLPIPE_NOTHING);
  return true;
}
/* How long an answer may take before it counts as late: three times what 95 % of the latest took. */
static int64_t insitu__http_late(const struct insitu__http *h) {
  int64_t sorted[INSITU__HTTP_LATENCIES];
  unsigned n = h->n_latency < INSITU__HTTP_LATENCIES ? h->n_latency : INSITU__HTTP_LATENCIES;
  for (unsigned i = 0; i < n; i++) {
    unsigned at = i;
    for (; at && sorted[at - 1] > h->latency[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = h->latency[i];
  }
  int64_t late = n ? 3 * sorted[(n * 95 - 1) / 100] : 0;
  return late > INSITU__HTTP_HEDGE ? late : INSITU__HTTP_HEDGE;
}
/* Sends second requests for late answers, at most one in twenty; when to look again. */
static int64_t insitu__http_hedge(struct insitu__http *h) {
  int64_t next = INT64_MAX, now = insitu__base_now(), late = insitu__http_late(h);
  for (struct insitu__http_transfer *t = h->active, *following; t; t = following) {
    following = t->next;
    struct insitu__http_request *r = t->request;
    if (t->begun || r->twin || r->winner || r->n_body || t != r->sent) continue;
    if (atomic_load(&h->n_hedges) * 20 > atomic_load(&h->n_requests)) break;
    if (t->began + late > now) next = next < t->began + late ? next : t->began + late;
    else if (insitu__http_start(h, r, true)) insitu__http_count(&h->n_hedges, 1);
  }
  return next;
}
static void insitu__http_queue(struct insitu__http *h, struct insitu__http_request *r) {
  r->next = NULL;
  if (h->first) h->last->next = r;
  else h->first = r;
  h->last = r;
}
static void insitu__http_fail(struct insitu__http *h, struct insitu__http_request *r, int failure) {
  r->failure = failure;
  insitu__http_finish(h, r);
}
/* Ends the requests that nobody waits for any more: all when the reactor closes. */
static void insitu__http_sweep(struct insitu__http *h) {
  struct insitu__http_request *queued = h->first, *next;
  bool all = h->reactor->closing;
  h->sweep = false;
  for (struct insitu__http_transfer *t = h->active; t;) {
    bool ends = all || (t->request->give_up && *t->request->give_up);
    if (ends) insitu__http_fail(h, t->request, INSITU__HTTP_CANCELLED);
    t = ends ? h->active : t->next; /* one request may have two transfers */
  }
  h->first = NULL;
  for (; queued; queued = next) {
    next = queued->next;
    if (all || (queued->give_up && *queued->give_up)) insitu__http_fail(h, queued, INSITU__HTTP_CANCELLED);
    else insitu__http_queue(h, queued);
  }
}
static bool insitu__http_turn(struct insitu__reactor_source *source) {
  struct insitu__http *h = (struct insitu__http *)(void *)source;
  bool any = h->sweep || (h->reactor->closing && (h->active || h->first));
  int running, left;
  if (any) insitu__http_sweep(h);
  if (h->timer != INT64_MAX && h->timer <= insitu__base_now()) {
    h->timer = INT64_MAX; /* curl sets it anew */
    h->news = true;
    curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
  }
  for (struct insitu__http_request *r; (r = h->first) && (double)h->under_way < h->limit; any = true) {
    h->first = r->next;
    if (!insitu__http_multi(h) || !insitu__http_start(h, r, false)) insitu__http_fail(h, r, INSITU__HTTP_MEMORY);
    h->news = true; /* curl may have failed at once */
  }
  if (h->news) {
    h->news = false;
    for (CURLMsg *m; h->multi && (m = curl_multi_info_read(h->multi, &left)); any = true) {
      char *transfer = NULL;
      CURLcode result = m->data.result;
      curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &transfer);
      insitu__http_ended(h, (struct insitu__http_transfer *)(void *)transfer, result);
    }
  }
  int64_t hedge = h->desc.hedge && h->active ? insitu__http_hedge(h) : INT64_MAX;
  source->deadline = h->timer < hedge ? h->timer : hedge;
  return any;
}
static void insitu__http_end(struct insitu__reactor_source *source) { /* no coroutine is left, and so no request */
  struct insitu__http *h = (struct insitu__http *)(void *)source;
  assert(!h->active && !h->first);
  for (struct insitu__http_transfer *t = h->idle, *next; t; t = next) {
    next = t->next;
    insitu__http_free(t);
  }
  h->idle = NULL;
  if (h->multi) curl_multi_cleanup(h->multi);
  h->multi = NULL;
  while (h->sockets) insitu__http_socket_close(h, h->sockets);
}

/* -- names to addresses: on a worker, since curl's own way can block the loop while it gives up -- */

struct insitu__http_lookup { /* lives on the asking coroutine's stack; the worker owns it during the call */
  struct insitu__http_host *host;
};
static void insitu__http_lookup(void *arg, unsigned worker) {
  struct insitu__http_host *host = ((struct insitu__http_lookup *)arg)->host;
  struct addrinfo hints, *list = NULL;
  char name[sizeof host->name];
  (void)worker;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  memcpy(name, host->name, sizeof name);
  *strrchr(name, ':') = 0;
  host->n = 0;
  if (getaddrinfo(name, NULL, &hints, &list)) return; /* curl asks again, and tells why */
  for (struct addrinfo *a = list; a && host->n < INSITU__HTTP_ADDRESSES; a = a->ai_next) {
    char text[INET6_ADDRSTRLEN];
    const void *from = a->ai_family == AF_INET    ? (const void *)&((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr
                       : a->ai_family == AF_INET6 ? (const void *)&((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_addr
                                                  : NULL;
    if (from && inet_ntop(a->ai_family, from, text, sizeof text))
      snprintf(host->address[host->n++], sizeof *host->address, a->ai_family == AF_INET6 ? "[%s]" : "%s", text);
  }
  freeaddrinfo(list);
}
static void insitu__http_resolve_await(struct insitu__http *h, const char *url) {
  char name[sizeof h->host->name];
  struct insitu__http_host *host = NULL, *oldest = NULL;
  static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}; /* curl's */
  bool proxy = h->desc.proxy != NULL;
  for (size_t i = 0; i < sizeof proxies / sizeof *proxies && !h->desc.isolated; i++) proxy = proxy || getenv(proxies[i]);
  insitu__http_host_of(h, url, name, sizeof name);
  if (!name[0] || proxy) return; /* the proxy resolves */
  for (unsigned i = 0; i < INSITU__MAX_HOSTS && !host; i++) {
    struct insitu__http_host *one = &h->host[i];
    if (!strcmp(one->name, name)) host = one;
    else if (!one->asking && (!oldest || one->until < oldest->until)) oldest = one;
  }
  if (!host && !oldest) return;
  if (host && host->asking) {
    insitu__reactor_gate_await(h->reactor, host->gate);
    return;
  }
  if (host && insitu__base_now() < host->until) return;
  struct insitu__reactor_gate gate;
  struct insitu__http_lookup lookup = {host ? host : oldest};
  insitu__reactor_gate_expect(&gate, 1);
  host = lookup.host;
  memcpy(host->name, name, sizeof name);
  host->asking = true;
  host->gate = &gate;
  insitu__reactor_work_await(h->reactor, insitu__http_lookup, &lookup);
  host->until = insitu__base_now() + (host->n ? INSITU__HTTP_RESOLVED : 0);
  host->asking = false;
  host->gate = NULL;
  insitu__reactor_gate_open(&gate);
}

/* -- one request -- */

/* scheme://host:port of a url, for messages: no user, no path, no query. */
static void insitu__http_origin(const char *url, char *out, size_t cap) {
  char *scheme = NULL, *host = NULL, *port = NULL;
  CURLU *u = curl_url();
  if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
      !curl_url_get(u, CURLUPART_HOST, &host, 0)) {
    bool told = !curl_url_get(u, CURLUPART_PORT, &port, 0);
    snprintf(out, cap, "%s://%s%s%s", scheme, host, told ? ":" : "", told ? port : "");
  } else {
    snprintf(out, cap, "a url that is none");
  }
  curl_free(scheme);
  curl_free(host);
  curl_free(port);
  curl_url_cleanup(u);
}
static bool insitu__http_transient_status(int status) { /* as object_store and the AWS SDKs: RFC 9110 and 6585 */
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}
static bool insitu__http_transient(CURLcode code) {
  switch (code) {
  case CURLE_COULDNT_RESOLVE_PROXY:
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_CONNECT:
  case CURLE_HTTP2:
  case CURLE_HTTP2_STREAM:
  case CURLE_PARTIAL_FILE:
  case CURLE_OPERATION_TIMEDOUT:
  case CURLE_SSL_CONNECT_ERROR:
  case CURLE_GOT_NOTHING:
  case CURLE_SEND_ERROR:
  case CURLE_RECV_ERROR: return true;
  default: return false;
  }
}
static const char *insitu__http_advice(CURLcode code) {
  switch (code) {
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_RESOLVE_PROXY: return "check the host's name, and that this machine can resolve it";
  case CURLE_COULDNT_CONNECT: return "check host and port, and that a server listens there";
  case CURLE_OPERATION_TIMEDOUT: return "the server or the network is slow; see the options connect_timeout and stall_timeout";
  case CURLE_PEER_FAILED_VERIFICATION:
  case CURLE_SSL_CACERT_BADFILE: return "give the certificate authority with the option ca_bundle";
  default: return "check the server and the network";
  }
}
static insitu_status insitu__http_failed(const struct insitu__http_request *r, insitu_error *err) {
  static const char *const said[] = {[INSITU__HTTP_RANGE] = "it sent another range than the one asked for (or none)",
      [INSITU__HTTP_WHOLE] = "it ignores ranges: it sent the whole object; this server cannot serve parts of objects",
      [INSITU__HTTP_LONG] = "it sent more than it announced, or more than such an answer may have",
      [INSITU__HTTP_ENCODED] = "it sent the object compressed (Content-Encoding); store it without, ranges of it mean nothing",
      [INSITU__HTTP_MEMORY] = "no memory for the request; give the process more memory"};
  char origin[300];
  if (r->failure == INSITU__HTTP_CANCELLED) return INSITU_CANCELLED;
  insitu__http_origin(r->url, origin, sizeof origin);
  if (err && err->status >= 0) err->http_status = r->answer.status, err->retryable = r->transient;
  if (r->failure && r->failure != INSITU__HTTP_FULL)
    return insitu__error_set(
        err, r->failure == INSITU__HTTP_MEMORY ? INSITU_E_NOMEM : INSITU_E_HTTP, "%s: %s", origin, said[r->failure]);
  return insitu__error_set(err, INSITU_E_HTTP, "%s: %.300s; %s", origin, r->cause ? r->cause : curl_easy_strerror(r->result),
      insitu__http_advice(r->result));
}

/* Sends it, once. INSITU_OK when an answer came, whatever its status, and its body is where it belongs; INSITU_CANCELLED when the
 * reactor or the store closes. Otherwise r->transient tells whether another attempt may help, and what has arrived stays placed. */
static insitu_status insitu__http_await(struct insitu__http *h, struct insitu__http_request *r, insitu_error *err) {
  if (!h->attached) {
    insitu__reactor_attach(h->reactor, &h->source);
    h->attached = true;
  }
  insitu__http_resolve_await(h, r->url);
  insitu__http_answer_init(&r->answer);
  r->winner = r->sent = r->twin = NULL;
  r->failure = INSITU__HTTP_FINE;
  r->result = CURLE_OK;
  r->skip = 0;
  r->transient = r->unsent = false;
  r->co = insitu__coro_current(&h->reactor->coros);
  insitu__http_queue(h, r);
  insitu__coro_suspend_await(&h->reactor->coros);
  if (r->failure == INSITU__HTTP_FULL || (!r->failure && !r->result)) return INSITU_OK;
  r->transient = r->failure == INSITU__HTTP_RANGE || (!r->failure && insitu__http_transient(r->result));
  return insitu__http_failed(r, err);
}

/* -- retries -- */

struct insitu__http_retry { /* all zero before the first attempt */
  unsigned tries;
  int64_t began, pause;
};
static uint64_t insitu__http_random(struct insitu__http *h, uint64_t below) {
  return insitu__order_mix(h->random++) % below;
}
/* Asked to slow down: half as many requests at once, at most once a second; each answer then adds a little. */
static void insitu__http_throttled(struct insitu__http *h) {
  int64_t now = insitu__base_now();
  insitu__http_count(&h->n_throttled, 1);
  if (now - h->slowed < INSITU__HTTP_PAUSE_SLOW) return;
  h->slowed = now;
  h->limit = h->limit > 2 ? h->limit / 2 : 1;
}
static void insitu__http_served(struct insitu__http *h) {
  if (h->limit < h->most) h->limit += 1 / h->limit;
}
/* Waits before the next attempt: decorrelated jitter (a random time up to three times the last, from a base), or what the server
 * asked for. False when no more attempts are due, or the store closes. */
static bool insitu__http_pause_await(
    struct insitu__http *h, struct insitu__http_retry *retry, const struct insitu__http_request *r) {
  int status = r->answer.status;
  bool slow = status == 429 || status == 503;
  int64_t now = insitu__base_now(), base = slow ? INSITU__HTTP_PAUSE_SLOW : INSITU__HTTP_PAUSE;
  if (slow) insitu__http_throttled(h);
  if (h->desc.no_retries || retry->tries >= h->desc.retries) return false;
  int64_t from = retry->pause > base ? retry->pause : base,
          pause = base + (int64_t)insitu__http_random(h, (uint64_t)(3 * from - base) + 1);
  if (pause > INSITU__HTTP_PAUSE_MOST) pause = INSITU__HTTP_PAUSE_MOST;
  retry->pause = pause;
  if (r->answer.retry_after >= 0 && slow)
    pause = r->answer.retry_after * INT64_C(1000000000) + (int64_t)insitu__http_random(h, (uint64_t)base);
  if (now + pause - retry->began > h->desc.retry_ms * 1000000) return false;
  for (int64_t left = pause; left > 0; left -= INSITU__HTTP_NAP)
    if ((r->give_up && *r->give_up) ||
        !insitu__reactor_sleep_await(h->reactor, left < INSITU__HTTP_NAP ? left : INSITU__HTTP_NAP))
      return false;
  retry->tries++;
  insitu__http_count(&h->n_retries, 1);
  return !r->give_up || !*r->give_up;
}
/* A small request whose whole answer is wanted, for services of credentials: `tries` attempts. INSITU_OK whenever an answer came
 * that is not a transient failure, or the last one. timeout_ms bounds connecting, and silence. */
static insitu_status insitu__http_call_await(
    struct insitu__http *h, struct insitu__http_request *r, unsigned tries, int64_t timeout_ms, insitu_error *err) {
  r->connect_ms = r->stall_ms = timeout_ms;
  for (unsigned i = 1;; i++) {
    insitu_error once = {0};
    struct insitu__http_answer none = {0};
    insitu__http_answer_free(&r->answer);
    r->answer = none;
    r->text.n = 0;
    insitu__mem_free(r->cause);
    r->cause = NULL;
    insitu_status status = insitu__http_await(h, r, &once);
    bool again = status == INSITU_OK ? insitu__http_transient_status(r->answer.status) : status < 0 && r->transient;
    if (!again || i >= tries || !insitu__reactor_sleep_await(h->reactor, INSITU__HTTP_PAUSE << i)) {
      if (status >= 0) return status;
      insitu__error_cause(err, &once);
      return insitu__error_set(err, status, "%s", once.message);
    }
    insitu__http_count(&h->n_retries, 1);
  }
}

/* -- opening -- */

static insitu_status insitu__http_open(struct insitu__http *h, struct insitu__reactor *reactor, insitu_error *err) {
  memset(h, 0, sizeof *h);
  if (curl_global_init(CURL_GLOBAL_DEFAULT)) /* counts its calls; since 7.84 from any thread */
    return insitu__error_set(err, INSITU_E_NOMEM, "open: libcurl cannot start; give the process more memory");
  h->curl = true;
  h->reactor = reactor;
  h->source.turn = insitu__http_turn;
  h->source.end = insitu__http_end;
  h->timer = INT64_MAX;
  h->random = (uint64_t)insitu__base_now() ^ (uint64_t)(uintptr_t)h;
  h->desc = (struct insitu__http_desc){.connect_ms = 5000,
      .stall_ms = 20000,
      .stall_bytes = 1024,
      .retries = 10,
      .retry_ms = 180000,
      .version = 1,
      .agent = "insitubatch"};
  h->most = h->limit = INSITU__HTTP_CONNECTIONS;
  return INSITU_OK;
}
/* So many requests at once, unless the options say another number: at most half of the descriptors that this process may open. */
static void insitu__http_connections(struct insitu__http *h, uint64_t n) {
  struct rlimit files = {1024, 1024};
  getrlimit(RLIMIT_NOFILE, &files);
  n = h->desc.connections ? h->desc.connections : insitu__base_max(n, INSITU__HTTP_CONNECTIONS);
  n = insitu__base_min(n, insitu__base_max(files.rlim_cur / 2, 16));
  h->most = h->limit = (double)n;
  if (h->multi) curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)(2 * n));
}
static void insitu__http_close(struct insitu__http *h) { /* after the reactor; a zeroed one is fine */
  if (h->curl) curl_global_cleanup();
  memset(h, 0, sizeof *h);
}
#endif

/* >>sign ------------------------------------------------------------------------------------------------------------------- */
/* What requests to cloud services are signed with, and the dates, XML and INI that come along. Pure functions over memory that the
 * caller owns, no state; any thread; nothing suspends. All text is hostile: services' answers, users' files. Names and values of
 * headers are checked before they are signed: no line break gets into a request. Nothing here writes a secret anywhere but into the
 * header line that carries it. */
#ifdef INSITU_WITH_OPENSSL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-qual"
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#pragma GCC diagnostic pop
#endif

/* -- SHA-256 (FIPS 180-4), HMAC (RFC 2104) -- */

struct insitu__sign_sha256 {
  uint32_t h[8];
  uint64_t n; /* bytes so far */
  unsigned char block[64];
};

/* The first 32 bits of the fractions of the cube roots of the first 64 primes: FIPS 180-4, 4.2.2. */
static const uint32_t insitu__sign_constant[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d,
    0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624,
    0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t insitu__sign_rotate(uint32_t x, unsigned n) {
  return x >> n | x << (32 - n);
}
/* One round; its caller turns the names, so that nothing is moved. */
#define INSITU__SIGN_ROUND(a, b, c, d, e, f, g, h, i)                                                                            \
  h += (insitu__sign_rotate(e, 6) ^ insitu__sign_rotate(e, 11) ^ insitu__sign_rotate(e, 25)) + (((f ^ g) & e) ^ g) +             \
       insitu__sign_constant[i] + w[(i) % 16];                                                                                   \
  d += h;                                                                                                                        \
  h += (insitu__sign_rotate(a, 2) ^ insitu__sign_rotate(a, 13) ^ insitu__sign_rotate(a, 22)) + (((a | b) & c) | (a & b))
static void insitu__sign_sha256_plain(uint32_t state[8], const unsigned char *p) {
  uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (unsigned i = 0; i < 16; i++) w[i] = __builtin_bswap32(insitu__base_load32(p + 4 * i));
  for (unsigned i = 0; i < 64; i += 16) {
    for (unsigned k = 0; i && k < 16; k++) {
      uint32_t x = w[(k + 1) % 16], y = w[(k + 14) % 16];
      w[k] += (insitu__sign_rotate(x, 7) ^ insitu__sign_rotate(x, 18) ^ x >> 3) + w[(k + 9) % 16] +
              (insitu__sign_rotate(y, 17) ^ insitu__sign_rotate(y, 19) ^ y >> 10);
    }
    for (unsigned k = i; k < i + 16; k += 8) {
      INSITU__SIGN_ROUND(a, b, c, d, e, f, g, h, k);
      INSITU__SIGN_ROUND(h, a, b, c, d, e, f, g, k + 1);
      INSITU__SIGN_ROUND(g, h, a, b, c, d, e, f, k + 2);
      INSITU__SIGN_ROUND(f, g, h, a, b, c, d, e, k + 3);
      INSITU__SIGN_ROUND(e, f, g, h, a, b, c, d, k + 4);
      INSITU__SIGN_ROUND(d, e, f, g, h, a, b, c, k + 5);
      INSITU__SIGN_ROUND(c, d, e, f, g, h, a, b, k + 6);
      INSITU__SIGN_ROUND(b, c, d, e, f, g, h, a, k + 7);
    }
  }
  const uint32_t end[8] = {a, b, c, d, e, f, g, h};
  for (unsigned i = 0; i < 8; i++) state[i] += end[i];
}
#if defined(__x86_64__)
typedef int insitu__sign_four __attribute__((vector_size(16)));
/* The same by the processor's own instructions (Intel SDM volume 2, SHA256RNDS2): four rounds a turn. */
__attribute__((target("sha,sse4.1"))) static void insitu__sign_sha256_wide(uint32_t h[8], const unsigned char *p) {
  insitu__sign_four w[4], constant, high = {(int)h[5], (int)h[4], (int)h[1], (int)h[0]},
                                    low = {(int)h[7], (int)h[6], (int)h[3], (int)h[2]};
  const insitu__sign_four from_high = high, from_low = low;
  for (unsigned i = 0; i < 16; i++) {
    insitu__sign_four *now = &w[i % 4], last = w[(i + 3) % 4];
    if (i < 4) {
      for (unsigned k = 0; k < 4; k++) (*now)[k] = (int)__builtin_bswap32(insitu__base_load32(p + 16 * i + 4 * k));
    } else {
      insitu__sign_four before = __builtin_shufflevector(w[(i + 2) % 4], last, 1, 2, 3, 4);
      *now = __builtin_ia32_sha256msg2(__builtin_ia32_sha256msg1(*now, w[(i + 1) % 4]) + before, last);
    }
    memcpy(&constant, insitu__sign_constant + 4 * i, sizeof constant);
    constant += *now;
    low = __builtin_ia32_sha256rnds2(low, high, constant);
    high = __builtin_ia32_sha256rnds2(high, low, __builtin_shufflevector(constant, constant, 2, 3, 2, 3));
  }
  high += from_high;
  low += from_low;
  for (int i = 0; i < 2; i++) {
    h[1 - i] = (uint32_t)high[2 + i];
    h[5 - i] = (uint32_t)high[i];
    h[3 - i] = (uint32_t)low[2 + i];
    h[7 - i] = (uint32_t)low[i];
  }
}
static bool insitu__sign_has_sha(void) {
#if defined(__SHA__)
  return true;
#elif defined(__clang__) /* clang 14 does not know the word, and asking the processor itself costs as much as it saves */
  return false;
#else
  return __builtin_cpu_supports("sha");
#endif
}
#endif
static void insitu__sign_sha256_block(uint32_t h[8], const unsigned char *p) {
#if defined(__x86_64__)
  if (insitu__sign_has_sha()) {
    insitu__sign_sha256_wide(h, p);
    return;
  }
#endif
  insitu__sign_sha256_plain(h, p);
}
static void insitu__sign_sha256_init(struct insitu__sign_sha256 *s) {
  static const uint32_t start[8] = {
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}; /* 5.3.3 */
  memcpy(s->h, start, sizeof s->h);
  s->n = 0;
}
static void insitu__sign_sha256_add(struct insitu__sign_sha256 *s, const void *p, uint64_t n) {
  const unsigned char *at = (const unsigned char *)p;
  uint64_t used = s->n % 64;
  s->n += n;
  if (used) {
    uint64_t more = insitu__base_min(64 - used, n);
    if (more) memcpy(s->block + used, at, more);
    if (used + more < 64) return;
    insitu__sign_sha256_block(s->h, s->block);
    at += more;
    n -= more;
  }
  for (; n >= 64; at += 64, n -= 64) insitu__sign_sha256_block(s->h, at);
  if (n) memcpy(s->block, at, n);
}
static void insitu__sign_sha256_end(struct insitu__sign_sha256 *s, unsigned char out[32]) {
  static const unsigned char padding[64] = {0x80};
  unsigned char bits[8];
  uint64_t n = s->n;
  for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(n * 8 >> (56 - 8 * i));
  insitu__sign_sha256_add(s, padding, 1 + (119 - n % 64) % 64); /* up to 8 bytes before the end of a block */
  insitu__sign_sha256_add(s, bits, 8);
  for (unsigned i = 0; i < 32; i++) out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
static void insitu__sign_sha256(const void *p, uint64_t n, unsigned char out[32]) {
  struct insitu__sign_sha256 s;
  insitu__sign_sha256_init(&s);
  insitu__sign_sha256_add(&s, p, n);
  insitu__sign_sha256_end(&s, out);
}
static void insitu__sign_hmac(const void *key, uint64_t n_key, const void *p, uint64_t n, unsigned char out[32]) {
  unsigned char inner[64] = {0}, outer[64];
  struct insitu__sign_sha256 s;
  if (n_key > 64) insitu__sign_sha256(key, n_key, inner);
  else if (n_key) memcpy(inner, key, n_key);
  for (int i = 0; i < 64; i++) {
    outer[i] = inner[i] ^ 0x5c;
    inner[i] ^= 0x36;
  }
  insitu__sign_sha256_init(&s);
  insitu__sign_sha256_add(&s, inner, 64);
  insitu__sign_sha256_add(&s, p, n);
  insitu__sign_sha256_end(&s, out);
  insitu__sign_sha256_init(&s);
  insitu__sign_sha256_add(&s, outer, 64);
  insitu__sign_sha256_add(&s, out, 32);
  insitu__sign_sha256_end(&s, out);
}

/* -- hexadecimal, base64 (RFC 4648), percent escapes (RFC 3986) -- */

static void insitu__sign_hex(const void *p, uint64_t n, char *out) { /* 2 n digits, lower case, and a NUL */
  for (uint64_t i = 0; i < n; i++) {
    unsigned char byte = ((const unsigned char *)p)[i];
    *out++ = "0123456789abcdef"[byte >> 4];
    *out++ = "0123456789abcdef"[byte & 15];
  }
  *out = 0;
}
/* Appends; digits: the 64, and behind them what pads, if anything. */
static bool insitu__sign_base64_by(const char *digits, const void *p, uint64_t n, struct insitu__text_buffer *out) {
  const unsigned char *at = (const unsigned char *)p;
  for (; n; at += n < 3 ? n : 3, n -= n < 3 ? n : 3) {
    uint32_t bits = (uint32_t)at[0] << 16 | (n > 1 ? (uint32_t)at[1] << 8 : 0) | (n > 2 ? at[2] : 0);
    char four[4] = {
        digits[bits >> 18], digits[bits >> 12 & 63], digits[n > 1 ? bits >> 6 & 63 : 64], digits[n > 2 ? bits & 63 : 64]};
    insitu__text_buffer_bytes(out, four, digits[64] || n > 2 ? 4 : n + 1);
  }
  return insitu__text_buffer_bytes(out, "", 0);
}
static bool insitu__sign_base64(const void *p, uint64_t n, struct insitu__text_buffer *out) {
  return insitu__sign_base64_by("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", p, n, out);
}
static bool insitu__sign_unreserved(int c) { /* RFC 3986, 2.3 */
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || insitu__text_is_digit(c) || c == '-' || c == '.' || c == '_' ||
         c == '~';
}
/* Appends text with every byte but the unreserved ones (and slashes, where they are kept) as %XX: the one form that services
 * compute signatures of. The buffer's limit must allow three bytes for each. */
static bool insitu__sign_escape(struct insitu__text_buffer *out, const char *text, uint64_t n, bool keep_slash) {
  if (n > INSITU__MAX_META || !insitu__text_buffer_reserve(out, 3 * n)) return !(out->failed = true);
  for (uint64_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    bool plain = insitu__sign_unreserved(c) || (keep_slash && c == '/');
    out->text[out->n++] = plain ? text[i] : '%';
    if (plain) continue;
    out->text[out->n++] = "0123456789ABCDEF"[c >> 4];
    out->text[out->n++] = "0123456789ABCDEF"[c & 15];
  }
  out->text[out->n] = 0;
  return true;
}
/* Appends text with %XX decoded; a plus sign is one. False: a percent sign without its digits, or no memory. */
static bool insitu__sign_unescape(struct insitu__text_buffer *out, const char *text, uint64_t n) {
  insitu__text_buffer_bytes(out, "", 0);
  for (uint64_t i = 0; i < n; i++) {
    char c = text[i];
    if (c == '%') {
      int high = n - i > 2 ? insitu__text_hex((unsigned char)text[i + 1]) : -1;
      int low = high < 0 ? -1 : insitu__text_hex((unsigned char)text[i + 2]);
      if (low < 0) return false;
      c = (char)(high * 16 + low);
      i += 2;
    }
    insitu__text_buffer_bytes(out, &c, 1);
  }
  return !out->failed;
}

/* -- queries -- */

struct insitu__sign_pair { /* of a query, not escaped */
  const char *key, *value;
};
static int insitu__sign_compare_escaped(const char *a, const char *b) { /* as strcmp of what insitu__sign_escape makes of them */
  for (;; a++, b++) {
    int ca = (unsigned char)*a, cb = (unsigned char)*b;
    if (ca == cb && ca) continue;
    /* a percent sign stands before all unreserved characters, and the end of a text before that */
    return (ca && insitu__sign_unreserved(ca) ? ca + 256 : ca) - (cb && insitu__sign_unreserved(cb) ? cb + 256 : cb);
  }
}
/* Appends "key=value&key=value", escaped, in the order that signatures want; sorts the n pairs (a few) to that end. */
__attribute__((unused)) static bool insitu__sign_query(
    struct insitu__text_buffer *out, struct insitu__sign_pair *pair, unsigned n) {
  for (unsigned i = 1; i < n; i++)
    for (unsigned k = i; k; k--) {
      int order = insitu__sign_compare_escaped(pair[k - 1].key, pair[k].key);
      if (order < 0 || (!order && insitu__sign_compare_escaped(pair[k - 1].value, pair[k].value) <= 0)) break;
      struct insitu__sign_pair swap = pair[k];
      pair[k] = pair[k - 1];
      pair[k - 1] = swap;
    }
  insitu__text_buffer_bytes(out, "", 0);
  for (unsigned i = 0; i < n; i++) {
    if (i) insitu__text_buffer_bytes(out, "&", 1);
    insitu__sign_escape(out, pair[i].key, strlen(pair[i].key), false);
    insitu__text_buffer_bytes(out, "=", 1);
    insitu__sign_escape(out, pair[i].value, strlen(pair[i].value), false);
  }
  return !out->failed;
}

/* -- dates -- */

static const char *const insitu__sign_days[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"}; /* 1970-01-01 was a Thursday */
static const char *const insitu__sign_months[] = {
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

/* Seconds since 1970 to a date of the years 1 to 9999, beyond which it stays at their ends; returns the day's number. */
static int64_t insitu__sign_date(int64_t seconds, struct insitu__time_date *d) {
  const int64_t first = INT64_C(-62135596800), last = INT64_C(253402300799);
  seconds = seconds < first ? first : seconds > last ? last : seconds;
  int64_t day = insitu__time_floor(seconds, 86400);
  int rest = (int)(seconds - day * 86400);
  insitu__time_from_day(INSITU__TIME_PROLEPTIC, day, d);
  d->hour = rest / 3600;
  d->minute = rest / 60 % 60;
  d->second = rest % 60;
  return day;
}
__attribute__((unused)) static void insitu__sign_http_date(
    int64_t seconds, char out[30]) { /* "Tue, 15 Nov 1994 08:12:31 GMT": RFC 9110, 5.6.7 */
  struct insitu__time_date d;
  int64_t day = insitu__sign_date(seconds, &d);
  int weekday = (int)(day - 7 * insitu__time_floor(day, 7));
  snprintf(out, 30, "%s, %02u %s %04u %02u:%02u:%02u GMT", insitu__sign_days[weekday], (unsigned)d.day % 100,
      insitu__sign_months[d.month - 1], (unsigned)d.year % 10000, (unsigned)d.hour % 100, (unsigned)d.minute % 100,
      (unsigned)d.second % 100);
}
static void insitu__sign_iso_basic(int64_t seconds, char out[17]) { /* "20130524T000000Z" */
  struct insitu__time_date d;
  insitu__sign_date(seconds, &d);
  snprintf(out, 17, "%04u%02u%02uT%02u%02u%02uZ", (unsigned)d.year % 10000, (unsigned)d.month % 100, (unsigned)d.day % 100,
      (unsigned)d.hour % 100, (unsigned)d.minute % 100, (unsigned)d.second % 100);
}
static bool insitu__sign_number(const char **p, unsigned digits, int least, int most, int *out) { /* exactly so many digits */
  *out = 0;
  for (; digits; digits--, (*p)++) {
    if (!insitu__text_is_digit(**p)) return false;
    *out = *out * 10 + (**p - '0');
  }
  return *out >= least && *out <= most;
}
static bool insitu__sign_literal(const char **p, const char *literal) {
  uint64_t n = strlen(literal);
  if (strncmp(*p, literal, n)) return false;
  *p += n;
  return true;
}
static bool insitu__sign_clock(const char **p, const char *separator, struct insitu__time_date *d) { /* "08:12:31", "081231" */
  return insitu__sign_number(p, 2, 0, 23, &d->hour) && insitu__sign_literal(p, separator) &&
         insitu__sign_number(p, 2, 0, 59, &d->minute) && insitu__sign_literal(p, separator) &&
         insitu__sign_number(p, 2, 0, 59, &d->second);
}
static bool insitu__sign_seconds(const struct insitu__time_date *d, int64_t *day, int64_t *seconds) { /* false: no such day */
  if (!insitu__time_exists(INSITU__TIME_PROLEPTIC, d->year, d->month, d->day)) return false;
  *day = insitu__time_day(INSITU__TIME_PROLEPTIC, d->year, d->month, d->day);
  *seconds = *day * 86400 + d->hour * 3600 + d->minute * 60 + d->second;
  return true;
}
/* RFC 9110's IMF-fixdate alone, which every server sends today; the weekday must be the date's. */
__attribute__((unused)) static bool insitu__sign_parse_http_date(const char *p, int64_t *seconds) {
  struct insitu__time_date d = {0};
  int weekday = 0, year;
  int64_t day, found;
  while (weekday < 7 && strncmp(p, insitu__sign_days[weekday], 3) != 0) weekday++;
  if (weekday == 7) return false;
  p += 3;
  if (!insitu__sign_literal(&p, ", ") || !insitu__sign_number(&p, 2, 1, 31, &d.day) || !insitu__sign_literal(&p, " "))
    return false;
  while (d.month < 12 && strncmp(p, insitu__sign_months[d.month], 3) != 0) d.month++;
  if (d.month++ == 12) return false;
  p += 3;
  if (!insitu__sign_literal(&p, " ") || !insitu__sign_number(&p, 4, 1, 9999, &year) || !insitu__sign_literal(&p, " ") ||
      !insitu__sign_clock(&p, ":", &d) || !insitu__sign_literal(&p, " GMT") || *p)
    return false;
  d.year = year;
  if (!insitu__sign_seconds(&d, &day, &found) || day - 7 * insitu__time_floor(day, 7) != weekday) return false;
  *seconds = found;
  return true;
}
/* "20130524T000000Z" or "2013-05-24T00:00:00Z", which may have a fraction (cut off) and an offset such as +01:00 for the Z. */
__attribute__((unused)) static bool insitu__sign_parse_iso(const char *p, int64_t *seconds) {
  struct insitu__time_date d = {0};
  int year, hour = 0, minute = 0;
  int64_t day, found;
  if (!insitu__sign_number(&p, 4, 1, 9999, &year)) return false;
  const char *dash = *p == '-' ? "-" : "", *colon = *p == '-' ? ":" : "";
  d.year = year;
  if (!insitu__sign_literal(&p, dash) || !insitu__sign_number(&p, 2, 1, 12, &d.month) || !insitu__sign_literal(&p, dash) ||
      !insitu__sign_number(&p, 2, 1, 31, &d.day) || !insitu__sign_literal(&p, "T") || !insitu__sign_clock(&p, colon, &d))
    return false;
  if (*dash && *p == '.') {
    if (!insitu__text_is_digit(*++p)) return false;
    while (insitu__text_is_digit(*p)) p++;
  }
  int sign = *p == '-' ? -1 : 1;
  if (*dash && (*p == '+' || *p == '-')) {
    p++;
    if (!insitu__sign_number(&p, 2, 0, 23, &hour) || !insitu__sign_literal(&p, ":") ||
        !insitu__sign_number(&p, 2, 0, 59, &minute))
      return false;
  } else if (!insitu__sign_literal(&p, "Z")) return false;
  if (*p || !insitu__sign_seconds(&d, &day, &found)) return false;
  *seconds = found - sign * (hour * 3600 + minute * 60);
  return true;
}

/* -- what both kinds of signatures sort: headers, query parameters -- */

struct insitu__sign_item { /* borrowed */
  const char *name, *value;
  uint64_t n_name, n_value;
};
struct insitu__sign_items {
  unsigned n;
  struct insitu__sign_item item[INSITU__MAX_SIGN_ITEMS];
};

static char insitu__sign_lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}
static int insitu__sign_compare_names(const struct insitu__sign_item *a, const struct insitu__sign_item *b) { /* case aside */
  for (uint64_t i = 0; i < a->n_name && i < b->n_name; i++) {
    int order = (unsigned char)insitu__sign_lower(a->name[i]) - (unsigned char)insitu__sign_lower(b->name[i]);
    if (order) return order;
  }
  return (a->n_name > b->n_name) - (a->n_name < b->n_name);
}
static bool insitu__sign_is_named(const struct insitu__sign_item *item, const char *name) { /* case aside */
  return item->n_name == strlen(name) && strncasecmp(item->name, name, item->n_name) == 0;
}
/* Puts it where it belongs by its name, behind those of the same name; false: there are too many. */
static bool insitu__sign_insert(struct insitu__sign_items *s, struct insitu__sign_item item) {
  if (s->n == INSITU__MAX_SIGN_ITEMS) return false;
  unsigned at = s->n++;
  for (; at && insitu__sign_compare_names(&s->item[at - 1], &item) > 0; at--) s->item[at] = s->item[at - 1];
  s->item[at] = item;
  return true;
}
static bool insitu__sign_insert_text(struct insitu__sign_items *s, const char *name, const char *value) {
  return insitu__sign_insert(s, (struct insitu__sign_item){name, value, strlen(name), strlen(value)});
}
/* The parts of "Name: value", trimmed; false for anything else, a control character among it. */
static bool insitu__sign_header(const char *line, struct insitu__sign_item *item) {
  *item = (struct insitu__sign_item){.name = line, .n_name = strcspn(line, ":")};
  for (const char *p = line; *p; p++)
    if ((unsigned char)*p < 0x20 || *p == 0x7f) return false;
  for (uint64_t i = 0; i < item->n_name; i++)
    if (!insitu__sign_unreserved(line[i])) return false;
  if (!item->n_name || !line[item->n_name]) return false;
  item->value = line + item->n_name + 1;
  item->value += strspn(item->value, " ");
  item->n_value = strlen(item->value);
  while (item->n_value && item->value[item->n_value - 1] == ' ') item->n_value--;
  return true;
}
static void insitu__sign_put_lower(struct insitu__text_buffer *out, const char *text, uint64_t n) {
  if (!insitu__text_buffer_reserve(out, n)) return;
  for (uint64_t i = 0; i < n; i++) out->text[out->n++] = insitu__sign_lower(text[i]);
  out->text[out->n] = 0;
}
static bool insitu__sign_visible(const char *text) { /* one word of ASCII: nothing that could break a header line or a scope */
  for (const char *p = text; *p; p++)
    if (*p <= 0x20 || *p >= 0x7f) return false;
  return *text != 0;
}

/* -- Signature Version 4 (docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html) -- */

#define INSITU__SIGN_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* SHA-256 of no bytes */
#define INSITU__SIGN_UNSIGNED "UNSIGNED-PAYLOAD"

struct insitu__sign_aws { /* or a Google HMAC key: the same signatures, with service s3 and any region */
  const char *access_key, *secret_key;
  const char *session_token;    /* NULL: none */
  const char *region, *service; /* service: s3, or one whose path is "/", such as sts: others escape paths twice */
};
struct insitu__sign_day {        /* the signing key of one day, region, service and secret; all zero: none yet */
  unsigned char of[32], key[32]; /* of: the hash of what it was made from */
};

/* scope: "20130524/us-east-1/s3/aws4_request" */
static bool insitu__sign_day_key(struct insitu__sign_day *day, const struct insitu__sign_aws *k, const char *scope) {
  unsigned char of[32], key[32];
  struct insitu__sign_sha256 s;
  struct insitu__text_buffer secret = {0};
  insitu__sign_sha256_init(&s);
  insitu__sign_sha256_add(&s, scope, strlen(scope) + 1);
  insitu__sign_sha256_add(&s, k->secret_key, strlen(k->secret_key));
  insitu__sign_sha256_end(&s, of);
  if (!memcmp(of, day->of, sizeof of)) return true;
  if (!insitu__text_buffer_printf(&secret, "AWS4%s", k->secret_key)) return false;
  insitu__sign_hmac(secret.text, secret.n, scope, 8, key); /* the date, then region, service and aws4_request */
  insitu__text_buffer_free(&secret);
  for (const char *at = scope + 9, *end; *at; at = end + (*end != 0)) {
    end = at + strcspn(at, "/");
    insitu__sign_hmac(key, sizeof key, at, (uint64_t)(end - at), key);
  }
  memcpy(day->of, of, sizeof of);
  memcpy(day->key, key, sizeof key);
  return true;
}
/* Those that a proxy may change, or that the transfer sets by itself. */
static bool insitu__sign_unsigned(const struct insitu__sign_item *item) {
  static const char *const name[] = {"accept-encoding", "authorization", "connection", "content-length", "expect", "host",
      "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-amzn-trace-id"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    if (insitu__sign_is_named(item, name[i])) return true;
  return false;
}
/* The canonical request to out, the signed names to names. */
static bool insitu__sign_canonical(struct insitu__text_buffer *out, struct insitu__text_buffer *names,
    const struct insitu__sign_items *s, const char *method, const char *path, const char *query, const char *payload_hash) {
  insitu__text_buffer_printf(out, "%s\n%s\n%s\n", method, path, query);
  for (unsigned i = 0; i < s->n; i++) {
    const struct insitu__sign_item *item = &s->item[i];
    bool again = i && !insitu__sign_compare_names(item - 1, item);
    if (!again) {
      if (i) insitu__text_buffer_bytes(names, ";", 1);
      insitu__sign_put_lower(names, item->name, item->n_name);
      insitu__sign_put_lower(out, item->name, item->n_name);
    }
    insitu__text_buffer_bytes(out, again ? "," : ":", 1);
    for (uint64_t from = 0, to; from < item->n_value; from = to) { /* runs of spaces are one */
      for (to = from + 1; to < item->n_value && (item->value[to] != ' ' || item->value[to - 1] != ' ');) to++;
      insitu__text_buffer_bytes(out, item->value + from, to - from);
      while (to < item->n_value && item->value[to] == ' ') to++;
    }
    if (i + 1 == s->n || insitu__sign_compare_names(item, item + 1)) insitu__text_buffer_bytes(out, "\n", 1);
  }
  insitu__text_buffer_printf(out, "\n%s\n%s", names->text ? names->text : "", payload_hash);
  return !out->failed && !names->failed;
}
/* The value of Authorization to out. */
static bool insitu__sign_v4_value(struct insitu__text_buffer *out, struct insitu__sign_day *day, const struct insitu__sign_aws *k,
    const char *stamp, const struct insitu__text_buffer *canonical, const char *names) {
  struct insitu__text_buffer scope = {0}, text = {0};
  unsigned char hash[32];
  char hex[65];
  insitu__sign_sha256(canonical->text, canonical->n, hash);
  insitu__sign_hex(hash, sizeof hash, hex);
  bool ok = insitu__text_buffer_printf(&scope, "%.8s/%s/%s/aws4_request", stamp, k->region, k->service) &&
            insitu__text_buffer_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope.text, hex) &&
            insitu__sign_day_key(day, k, scope.text);
  if (ok) {
    insitu__sign_hmac(day->key, sizeof day->key, text.text, text.n, hash);
    insitu__sign_hex(hash, sizeof hash, hex);
    ok = insitu__text_buffer_printf(
        out, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", k->access_key, scope.text, names, hex);
  }
  insitu__text_buffer_free(&scope);
  insitu__text_buffer_free(&text);
  return ok;
}
/* Signs a request: gives `add` the header lines that it then needs, x-amz-date, x-amz-content-sha256 (of service s3),
 * x-amz-security-token (if there is one) and Authorization. host (with its port, if that is not the scheme's own), path and query
 * (both escaped; the query as insitu__sign_query writes it, "" for none) are the exact bytes that go out. headers: "Name: value"
 * lines; all are signed but those that change on the way. payload_hash: of the body, in hexadecimal, or INSITU__SIGN_UNSIGNED. now:
 * seconds since 1970. cached: one for each set of credentials, kept by the caller. False: no memory, too many headers, or a header
 * or credential with characters that do not belong there; nothing was added then. */
__attribute__((unused)) static bool insitu__sign_v4(struct insitu__sign_day *cached, const struct insitu__sign_aws *k,
    const char *method, const char *host, const char *path, const char *query, const char *const *headers, unsigned n_headers,
    const char *payload_hash, int64_t now, void (*add)(void *to, const char *header_line), void *to) {
  struct insitu__text_buffer out = {0}, names = {0}, line = {0};
  struct insitu__sign_items s = {.n = 0};
  struct insitu__sign_item item;
  const char *own[3][2] = {{"x-amz-date", NULL}, {"x-amz-content-sha256", NULL}, {"x-amz-security-token", k->session_token}};
  char stamp[17];
  insitu__sign_iso_basic(now, stamp);
  own[0][1] = stamp;
  if (!strcmp(k->service, "s3")) own[1][1] = payload_hash;
  bool ok = insitu__sign_visible(k->access_key) && insitu__sign_visible(k->region) && insitu__sign_visible(host) &&
            insitu__sign_visible(path) && (!*query || insitu__sign_visible(query)) && !strchr(k->region, '/') &&
            insitu__sign_insert_text(&s, "host", host);
  for (unsigned i = 0; ok && i < 3; i++)
    ok = !own[i][1] || (insitu__sign_visible(own[i][1]) && insitu__sign_insert_text(&s, own[i][0], own[i][1]));
  for (unsigned i = 0; ok && i < n_headers; i++)
    ok = insitu__sign_header(headers[i], &item) && (insitu__sign_unsigned(&item) || insitu__sign_insert(&s, item));
  ok = ok && insitu__sign_canonical(&out, &names, &s, method, path, query, payload_hash) &&
       insitu__text_buffer_printf(&line, "Authorization: ") && insitu__sign_v4_value(&line, cached, k, stamp, &out, names.text);
  for (unsigned i = 0; ok && i < 3; i++) {
    if (!own[i][1]) continue;
    out.n = 0;
    ok = insitu__text_buffer_printf(&out, "%s: %s", own[i][0], own[i][1]);
    if (ok) add(to, out.text);
  }
  if (ok) add(to, line.text);
  insitu__text_buffer_free(&out);
  insitu__text_buffer_free(&names);
  insitu__text_buffer_free(&line);
  return ok;
}

/* -- Shared Key of Azure's Blob service (learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key) -- */

/* "\nname:value,value" of each parameter, sorted, values decoded. */
static bool insitu__sign_azure_query(struct insitu__text_buffer *out, const char *query) {
  struct insitu__sign_items s = {.n = 0};
  for (const char *at = query, *end; *at; at = end + (*end != 0)) {
    end = at + strcspn(at, "&");
    uint64_t n = (uint64_t)(end - at), n_name = strcspn(at, "=&"), skip = n_name + (n_name < n);
    struct insitu__sign_item item = {at, at + skip, n_name, n - skip};
    if (n && !insitu__sign_insert(&s, item)) return false;
  }
  bool ok = true;
  for (unsigned i = 0; ok && i < s.n; i++) {
    const struct insitu__sign_item *item = &s.item[i];
    bool again = i && !insitu__sign_compare_names(item - 1, item);
    if (!again) insitu__text_buffer_bytes(out, "\n", 1);
    if (!again) insitu__sign_put_lower(out, item->name, item->n_name);
    insitu__text_buffer_bytes(out, again ? "," : ":", 1);
    ok = insitu__sign_unescape(out, item->value, item->n_value);
  }
  return ok;
}
/* What is signed. */
static bool insitu__sign_azure_text(struct insitu__text_buffer *out, const char *account, const char *method, const char *path,
    const char *query, const struct insitu__sign_items *s, const char *content_length) {
  static const char *const plain[] = {"content-encoding", "content-language", "content-length", "content-md5", "content-type",
      "date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"};
  insitu__text_buffer_printf(out, "%s\n", method);
  for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
    if (k == 2 && strcmp(content_length, "0") != 0) insitu__text_buffer_printf(out, "%s", content_length);
    for (unsigned i = 0; k != 2 && i < s->n; i++)
      if (insitu__sign_is_named(&s->item[i], plain[k])) insitu__text_buffer_bytes(out, s->item[i].value, s->item[i].n_value);
    insitu__text_buffer_bytes(out, "\n", 1);
  }
  for (unsigned i = 0; i < s->n; i++) {
    const struct insitu__sign_item *item = &s->item[i];
    if (item->n_name < 5 || strncasecmp(item->name, "x-ms-", 5) != 0) continue;
    insitu__sign_put_lower(out, item->name, item->n_name);
    insitu__text_buffer_bytes(out, ":", 1);
    insitu__text_buffer_bytes(out, item->value, item->n_value);
    insitu__text_buffer_bytes(out, "\n", 1);
  }
  insitu__text_buffer_printf(out, "/%s%s", account, path);
  return insitu__sign_azure_query(out, query) && !out->failed;
}
/* Appends the value of Authorization, "SharedKey account:signature". key: decoded. path and query are the exact bytes that go out:
 * "/container/key", escaped, behind "/account" where the host does not name the account; "restype=container&comp=list" or "".
 * headers: all of the request, "Name: value"; x-ms-date and x-ms-version (2015-02-21 or later) must be among them. content_length:
 * "" or "0" for none. False: no memory, too many headers, or one (or the query) with characters that do not belong there. */
__attribute__((unused)) static bool insitu__sign_azure(const char *account, const unsigned char *key, uint64_t n_key,
    const char *method, const char *path, const char *query, const char *const *headers, unsigned n_headers,
    const char *content_length, struct insitu__text_buffer *authorization) {
  struct insitu__text_buffer text = {0};
  struct insitu__sign_items s = {.n = 0};
  struct insitu__sign_item item;
  unsigned char hash[32];
  bool ok = insitu__sign_visible(account) && insitu__sign_visible(path) && (!*query || insitu__sign_visible(query));
  for (unsigned i = 0; ok && i < n_headers; i++) ok = insitu__sign_header(headers[i], &item) && insitu__sign_insert(&s, item);
  ok = ok && insitu__sign_azure_text(&text, account, method, path, query, &s, content_length);
  if (ok) {
    insitu__sign_hmac(key, n_key, text.text, text.n, hash);
    ok = insitu__text_buffer_printf(authorization, "SharedKey %s:", account) &&
         insitu__sign_base64(hash, sizeof hash, authorization);
  }
  insitu__text_buffer_free(&text);
  return ok;
}

/* -- RS256 (RFC 7518, 3.3): how a service account of Google Cloud signs -- */

#ifdef INSITU_WITH_OPENSSL
static bool insitu__sign_base64url(const void *p, uint64_t n, struct insitu__text_buffer *out) { /* without padding */
  return insitu__sign_base64_by("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", p, n, out);
}
static int insitu__sign_no_password(char *out, int cap, int writing, void *user) { /* else libcrypto would ask on the terminal */
  (void)out, (void)cap, (void)writing, (void)user;
  return -1;
}
static EVP_PKEY *insitu__sign_rsa_key(const char *pem, uint64_t n) { /* NULL: it is none */
  BIO *text = n <= INSITU__MAX_PEM ? BIO_new_mem_buf(pem, (int)n) : NULL;
  EVP_PKEY *key = text ? PEM_read_bio_PrivateKey(text, NULL, insitu__sign_no_password, NULL) : NULL;
  if (key && (!EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_get_bits(key) > INSITU__MAX_RSA)) {
    EVP_PKEY_free(key);
    key = NULL;
  }
  BIO_free(text);
  return key;
}
/* Appends the JSON web token: text, which is "header.claims" in base64url, and its signature. pem: an RSA key, not encrypted. */
__attribute__((unused)) static insitu_status insitu__sign_rs256(
    const char *pem, uint64_t n, const char *text, struct insitu__text_buffer *out, insitu_error *err) {
  unsigned char signature[INSITU__MAX_RSA / 8];
  size_t n_signature = sizeof signature;
  ERR_set_mark(); /* what the program has in this thread's queue of errors stays there */
  EVP_PKEY *key = insitu__sign_rsa_key(pem, n);
  EVP_MD_CTX *context = key ? EVP_MD_CTX_new() : NULL;
  bool ok = context && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
            EVP_DigestSign(context, signature, &n_signature, (const unsigned char *)text, strlen(text)) == 1;
  bool was_key = key != NULL;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  ERR_pop_to_mark();
  if (!was_key)
    return insitu__error_set(err, INSITU_E_AUTH,
        "service account: private_key is no RSA key in PEM without a password; take the key file as the cloud's console gave it");
  if (!ok)
    return insitu__error_set(err, INSITU_E_AUTH, "service account: libcrypto could not sign with private_key; make another key");
  if (insitu__text_buffer_printf(out, "%s.", text) && insitu__sign_base64url(signature, n_signature, out)) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_NOMEM, "service account: no memory for a token; give the process more memory");
}
#endif

/* -- XML: as much as listings and error messages of services hold -- */

enum {
  INSITU__SIGN_XML_START, /* name: the element's; an empty element has an end, too */
  INSITU__SIGN_XML_TEXT,  /* see insitu__sign_xml_decode; an element may have several */
  INSITU__SIGN_XML_END,   /* name again */
  INSITU__SIGN_XML_DONE,  /* the root has ended, and so has the text */
  INSITU__SIGN_XML_BAD    /* not well-formed, cut off, a DOCTYPE, or deeper than INSITU__MAX_XML_DEPTH; it stays so */
};
struct insitu__sign_xml { /* set text and n, all else zero */
  const char *text;       /* borrowed; UTF-8 */
  uint64_t n, at;
  unsigned depth;   /* of the element that started or ended, or that the text is in; the root has 1 */
  const char *name; /* local: without the prefix of a namespace */
  uint64_t n_name;
  const char *value; /* of a text, as it stands there */
  uint64_t n_value;
  bool is_cdata;
  /* its own */
  unsigned level; /* of open elements */
  bool had_root, ends_now, is_bad;
  const char *open[INSITU__MAX_XML_DEPTH]; /* their whole names */
  uint64_t n_open[INSITU__MAX_XML_DEPTH];
};

static bool insitu__sign_xml_begins(const struct insitu__sign_xml *x, const char *literal) {
  uint64_t n = strlen(literal);
  return x->n - x->at >= n && !memcmp(x->text + x->at, literal, n);
}
static bool insitu__sign_xml_past(struct insitu__sign_xml *x, const char *literal) { /* goes behind its next place; false: none */
  const char *found = (const char *)memmem(x->text + x->at, (size_t)(x->n - x->at), literal, strlen(literal));
  if (found) x->at = (uint64_t)(found - x->text) + strlen(literal);
  return found != NULL;
}
static bool insitu__sign_xml_is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
static bool insitu__sign_xml_space(struct insitu__sign_xml *x) { /* whether there was any */
  uint64_t from = x->at;
  while (x->at < x->n && insitu__sign_xml_is_space(x->text[x->at])) x->at++;
  return x->at > from;
}
static bool insitu__sign_xml_word(struct insitu__sign_xml *x, const char **name, uint64_t *n) { /* a qualified name */
  *name = x->text + x->at;
  *n = 0;
  for (; x->at < x->n; x->at++, ++*n) {
    unsigned char c = (unsigned char)x->text[x->at];
    bool first = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || c >= 0x80;
    if (!first && (!*n || !(insitu__text_is_digit(c) || c == '-' || c == '.'))) break;
  }
  return *n > 0;
}
static void insitu__sign_xml_local(struct insitu__sign_xml *x, const char *name, uint64_t n) {
  const char *colon = (const char *)memchr(name, ':', (size_t)n);
  x->name = colon ? colon + 1 : name;
  x->n_name = n - (uint64_t)(x->name - name);
}
static bool insitu__sign_xml_attributes(struct insitu__sign_xml *x) { /* passes over them, up to the end of the tag */
  const char *name;
  uint64_t n;
  while (insitu__sign_xml_space(x) && insitu__sign_xml_word(x, &name, &n)) {
    insitu__sign_xml_space(x);
    if (!insitu__sign_xml_begins(x, "=")) return false;
    x->at++;
    insitu__sign_xml_space(x);
    char quote[2] = {x->at < x->n ? x->text[x->at] : 0, 0};
    if (quote[0] != '"' && quote[0] != '\'') return false;
    uint64_t from = ++x->at;
    if (!insitu__sign_xml_past(x, quote) || memchr(x->text + from, '<', (size_t)(x->at - from))) return false;
  }
  return true;
}
static int insitu__sign_xml_fail(struct insitu__sign_xml *x) {
  x->is_bad = true;
  return INSITU__SIGN_XML_BAD;
}
static int insitu__sign_xml_close(struct insitu__sign_xml *x) { /* the innermost element */
  x->depth = x->level--;
  insitu__sign_xml_local(x, x->open[x->level], x->n_open[x->level]);
  return INSITU__SIGN_XML_END;
}
static int insitu__sign_xml_tag(struct insitu__sign_xml *x) { /* behind '<' */
  const char *name;
  uint64_t n;
  bool ends = insitu__sign_xml_begins(x, "/");
  x->at += ends;
  if (!insitu__sign_xml_word(x, &name, &n)) return insitu__sign_xml_fail(x);
  if (ends) {
    insitu__sign_xml_space(x);
    if (!x->level || n != x->n_open[x->level - 1] || memcmp(name, x->open[x->level - 1], n) || !insitu__sign_xml_begins(x, ">"))
      return insitu__sign_xml_fail(x);
    x->at++;
    return insitu__sign_xml_close(x);
  }
  if (x->level == INSITU__MAX_XML_DEPTH || (x->had_root && !x->level) || !insitu__sign_xml_attributes(x))
    return insitu__sign_xml_fail(x);
  x->ends_now = insitu__sign_xml_begins(x, "/");
  x->at += x->ends_now;
  if (!insitu__sign_xml_begins(x, ">")) return insitu__sign_xml_fail(x);
  x->at++;
  x->open[x->level] = name;
  x->n_open[x->level] = n;
  x->depth = ++x->level;
  x->had_root = true;
  insitu__sign_xml_local(x, name, n);
  return INSITU__SIGN_XML_START;
}
/* The next piece, an INSITU__SIGN_XML_...; comments and processing instructions are passed over. Allocates nothing. */
static int insitu__sign_xml_next(struct insitu__sign_xml *x) {
  if (x->is_bad) return INSITU__SIGN_XML_BAD;
  if (x->ends_now) {
    x->ends_now = false;
    return insitu__sign_xml_close(x);
  }
  if (!x->at && insitu__sign_xml_begins(x, "\xef\xbb\xbf")) x->at = 3; /* the byte order mark, which Azure writes */
  for (;;) {
    uint64_t from = x->at;
    x->is_cdata = false;
    if (x->at == x->n) return x->had_root && !x->level ? INSITU__SIGN_XML_DONE : insitu__sign_xml_fail(x);
    if (insitu__sign_xml_begins(x, "<!--")) {
      x->at += 4;
      if (!insitu__sign_xml_past(x, "-->")) return insitu__sign_xml_fail(x);
      continue;
    }
    if (insitu__sign_xml_begins(x, "<?")) {
      if (!insitu__sign_xml_past(x, "?>")) return insitu__sign_xml_fail(x);
      continue;
    }
    if (x->level && insitu__sign_xml_begins(x, "<![CDATA[")) {
      from = x->at += 9;
      if (!insitu__sign_xml_past(x, "]]>")) return insitu__sign_xml_fail(x);
      x->n_value = x->at - 3 - from;
      x->is_cdata = true;
    } else if (x->text[x->at] == '<') {
      x->at++;
      return insitu__sign_xml_tag(x); /* "<!DOCTYPE" is no name, and so refused */
    } else if (!x->level) {
      if (!insitu__sign_xml_space(x)) return insitu__sign_xml_fail(x);
      continue;
    } else {
      const char *end = (const char *)memchr(x->text + from, '<', (size_t)(x->n - from));
      if (!end) return insitu__sign_xml_fail(x);
      x->at = (uint64_t)(end - x->text);
      x->n_value = x->at - from;
    }
    x->value = x->text + from;
    x->depth = x->level;
    return INSITU__SIGN_XML_TEXT;
  }
}
/* The character that an entity stands for, and goes behind it; 0: none that XML knows by itself, or no character. Control
 * characters pass, though XML 1.0 has none: S3 writes those of a key so. */
static uint32_t insitu__sign_xml_entity(const char **p, const char *end) { /* at the ampersand */
  static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"};
  uint64_t n = (uint64_t)(end - *p);
  for (int i = 0; i < 5; i++) {
    uint64_t length = strlen(known[i]);
    if (n < length || memcmp(*p, known[i], length)) continue;
    *p += length;
    return (unsigned char)"<>&\"'"[i];
  }
  if (n < 4 || (*p)[1] != '#') return 0;
  const char *at = *p + 2;
  unsigned base = *at == 'x' ? 16 : 10, digits = 0;
  uint32_t code = 0;
  for (at += base == 16; at < end && *at != ';'; at++, digits++) {
    int digit = insitu__text_hex((unsigned char)*at);
    if (digit < 0 || digit >= (int)base) return 0;
    code = code * base + (uint32_t)digit;
    if (code > 0x10ffff) return 0;
  }
  if (at == end || !digits || (code >= 0xd800 && code < 0xe000)) return 0;
  *p = at + 1;
  return code;
}
/* Appends what a text says: entities decoded (but in CDATA), ends of lines as '\n'. False: an unknown entity, a control character
 * that stands there as it is, or no memory. */
static bool insitu__sign_xml_decode(const struct insitu__sign_xml *x, struct insitu__text_buffer *out) {
  const char *p = x->value, *end = p + x->n_value;
  insitu__text_buffer_bytes(out, "", 0);
  while (p < end) {
    char c[4] = {*p};
    unsigned n = 1;
    if (*p == '&' && !x->is_cdata) {
      uint32_t code = insitu__sign_xml_entity(&p, end);
      if (!code) return false;
      n = insitu__text_put_code(code, c);
    } else if ((unsigned char)*p < 0x20 && !insitu__sign_xml_is_space(*p)) {
      return false;
    } else {
      if (*p == '\r') c[0] = '\n';
      p += *p == '\r' && end - p > 1 && p[1] == '\n' ? 2 : 1;
    }
    insitu__text_buffer_bytes(out, c, n);
  }
  return !out->failed;
}
/* After a start: appends the texts of the element, not those of elements within, and goes behind its end. */
static bool insitu__sign_xml_content(struct insitu__sign_xml *x, struct insitu__text_buffer *out) {
  unsigned depth = x->depth;
  insitu__text_buffer_bytes(out, "", 0);
  for (;;) {
    int piece = insitu__sign_xml_next(x);
    if (piece == INSITU__SIGN_XML_END && x->depth == depth) return !out->failed;
    if (piece == INSITU__SIGN_XML_BAD || piece == INSITU__SIGN_XML_DONE) return false;
    if (piece == INSITU__SIGN_XML_TEXT && x->depth == depth && !insitu__sign_xml_decode(x, out)) return false;
  }
}
static bool insitu__sign_xml_is(const struct insitu__sign_xml *x, const char *name) {
  return x->n_name == strlen(name) && !memcmp(x->name, name, x->n_name);
}
/* The text of the first element of that local name, wherever it is; what follows it may be cut off. False: there is none, or no
 * room for it. */
__attribute__((unused)) static bool insitu__sign_xml_find(const char *text, uint64_t n, const char *tag, char *out, size_t cap) {
  struct insitu__sign_xml x = {.text = text, .n = n};
  struct insitu__text_buffer b = {.limit = cap};
  int piece;
  do piece = insitu__sign_xml_next(&x);
  while (piece < INSITU__SIGN_XML_DONE && (piece != INSITU__SIGN_XML_START || !insitu__sign_xml_is(&x, tag)));
  bool ok = piece == INSITU__SIGN_XML_START && insitu__sign_xml_content(&x, &b) && b.n < cap; /* a text has no NUL */
  if (ok) memcpy(out, b.text, b.n + 1);
  insitu__text_buffer_free(&b);
  return ok;
}

/* -- INI: ~/.aws/config, ~/.aws/credentials (docs.aws.amazon.com/sdkref/latest/guide/file-format.html) -- */

struct insitu__sign_span {
  const char *text;
  uint64_t n;
};
struct insitu__sign_ini { /* set text and n, all else zero */
  const char *text;       /* borrowed */
  uint64_t n, at;
  /* of a property; [profile x] is of kind "profile" and name "x", [x] of kind "" and name "x" */
  struct insitu__sign_span kind, name, key, value;
  bool in_section; /* its own */
};

static struct insitu__sign_span insitu__sign_trim(const char *from, const char *to) {
  while (from < to && (*from == ' ' || *from == '\t')) from++;
  while (from < to && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r')) to--;
  return (struct insitu__sign_span){from, (uint64_t)(to - from)};
}
static bool insitu__sign_span_is(struct insitu__sign_span s, const char *text) { /* case aside */
  return s.n == strlen(text) && strncasecmp(s.text, text, s.n) == 0;
}
static bool insitu__sign_ini_section(struct insitu__sign_ini *x, struct insitu__sign_span line) { /* "[profile x]" */
  const char *close = (const char *)memchr(line.text, ']', (size_t)line.n);
  if (!close) return false;
  struct insitu__sign_span inside = insitu__sign_trim(line.text + 1, close);
  uint64_t word = 0;
  while (word < inside.n && inside.text[word] != ' ' && inside.text[word] != '\t') word++;
  x->kind = (struct insitu__sign_span){inside.text, word < inside.n ? word : 0};
  x->name = insitu__sign_trim(inside.text + x->kind.n, inside.text + inside.n);
  if (x->name.n > 1 && (*x->name.text == '"' || *x->name.text == '\'') && x->name.text[x->name.n - 1] == *x->name.text) {
    x->name.text++;
    x->name.n -= 2;
  }
  return x->name.n > 0;
}
/* "key = value", without a comment behind it: one begins at a '#' or ';' that follows a space. */
static bool insitu__sign_ini_property(struct insitu__sign_ini *x, struct insitu__sign_span line) {
  const char *equals = (const char *)memchr(line.text, '=', (size_t)line.n), *end = line.text + line.n;
  if (!equals) return false;
  x->key = insitu__sign_trim(line.text, equals);
  for (const char *p = equals + 1; p < end; p++)
    if ((*p == '#' || *p == ';') && (p[-1] == ' ' || p[-1] == '\t')) end = p;
  x->value = insitu__sign_trim(equals + 1, end);
  return x->key.n > 0;
}
/* The next property of a section; false: there is none. Indented lines belong to nested properties, which are passed over, like
 * lines that are nothing known and those of a section without a proper name. */
static bool insitu__sign_ini_next(struct insitu__sign_ini *x) {
  while (x->at < x->n) {
    const char *from = x->text + x->at;
    const char *to = (const char *)memchr(from, '\n', (size_t)(x->n - x->at)), *end = to ? to : x->text + x->n;
    x->at += (uint64_t)(end - from) + (to != NULL);
    struct insitu__sign_span line = insitu__sign_trim(from, end);
    if (!line.n || *from == ' ' || *from == '\t' || *from == '#' || *from == ';') continue;
    if (*from == '[') x->in_section = insitu__sign_ini_section(x, line);
    else if (x->in_section && insitu__sign_ini_property(x, line)) return true;
  }
  return false;
}
/* The value of a key in the sections of that kind and name; the last one counts. False: there is none, it holds a control character
 * or has no room. */
__attribute__((unused)) static bool insitu__sign_ini_find(
    const char *text, uint64_t n, const char *kind, const char *name, const char *key, char *out, size_t cap) {
  struct insitu__sign_ini x = {.text = text, .n = n};
  struct insitu__sign_span found = {0};
  while (insitu__sign_ini_next(&x))
    if (insitu__sign_span_is(x.kind, kind) && x.name.n == strlen(name) && !memcmp(x.name.text, name, x.name.n) &&
        insitu__sign_span_is(x.key, key))
      found = x.value;
  if (!found.text || found.n >= cap) return false;
  for (uint64_t i = 0; i < found.n; i++)
    if ((unsigned char)found.text[i] < 0x20 && found.text[i] != '\t') return false;
  memcpy(out, found.text, found.n);
  out[found.n] = 0;
  return true;
}

/* >>cloud ------------------------------------------------------------------------------------------------------------------ */
#ifndef INSITU_NO_CURL
enum { INSITU__CLOUD_HTTP, INSITU__CLOUD_S3, INSITU__CLOUD_GS, INSITU__CLOUD_AZURE };
enum { INSITU__CLOUD_READ, INSITU__CLOUD_HEAD, INSITU__CLOUD_LIST };
enum { INSITU__CLOUD_FINAL, INSITU__CLOUD_AGAIN };
struct insitu__cloud {
  int kind;
  char *url;
};
struct insitu__cloud_ask {
  int what;
  const char *key, *range, *if_match, *if_none_match, *continuation;
};
static insitu_status insitu__cloud_open(struct insitu__cloud *c, struct insitu__http *h, int kind, const char *url,
    const insitu_option *options, uint64_t n_options, insitu_error *err) {
  insitu_status status;
  c->kind = kind;
  if (kind != INSITU__CLOUD_HTTP) return insitu__error_set(err, INSITU_E_UNSUPPORTED, "url: not yet");
  for (uint64_t i = 0; i < n_options; i++) {
    if (!insitu__http_option(&h->desc, options[i].key, options[i].value, err, &status))
      return insitu__error_set(err, INSITU_E_ARG, "option '%.100s': unknown", options[i].key);
    if (status < 0) return status;
  }
  c->url = insitu__mem_text(url, strlen(url));
  return c->url ? INSITU_OK : insitu__error_set(err, INSITU_E_NOMEM, "store: no memory");
}
static void insitu__cloud_close(struct insitu__cloud *c) {
  insitu__mem_free(c->url);
}
static const char *insitu__cloud_name(const struct insitu__cloud *c) {
  return c->url;
}
static bool insitu__cloud_has_suffix(const struct insitu__cloud *c) {
  return c->kind != INSITU__CLOUD_AZURE;
}
static insitu_status insitu__cloud_prepare_await(
    struct insitu__cloud *c, const struct insitu__cloud_ask *ask, struct insitu__http_request *r, insitu_error *err) {
  uint64_t n = strlen(c->url);
  while (n && c->url[n - 1] == '/') n--;
  insitu__text_buffer_printf(&r->own_url, "%.*s/%s", (int)n, c->url, ask->key);
  r->url = r->own_url.text;
  if (ask->what == INSITU__CLOUD_HEAD) r->method = "HEAD";
  bool ok = !r->own_url.failed;
  if (ask->range) ok = ok && insitu__http_header(r, "Range: %s", ask->range);
  if (ask->if_match) ok = ok && insitu__http_header(r, "If-Match: %s", ask->if_match);
  if (ask->if_none_match) ok = ok && insitu__http_header(r, "If-None-Match: %s", ask->if_none_match);
  return ok ? INSITU_OK : insitu__error_set(err, INSITU_E_NOMEM, "store: no memory");
}
static int insitu__cloud_learn_await(
    struct insitu__cloud *c, struct insitu__http_request *r, unsigned *learned, insitu_error *err) {
  (void)c, (void)r, (void)learned, (void)err;
  return INSITU__CLOUD_FINAL;
}
static const char *insitu__cloud_code(const struct insitu__http_request *r, char *buf, size_t cap) {
  (void)r;
  snprintf(buf, cap, "%s", r->answer.code);
  return buf;
}
static bool insitu__cloud_is_missing(const char *code) {
  return !code[0];
}
static const char *insitu__cloud_advice(const struct insitu__cloud *c, int status, const char *code) {
  (void)c, (void)status, (void)code;
  return "check the url and the credentials";
}
static insitu_status insitu__cloud_list_page(struct insitu__cloud *c, const char *prefix, const char *text, uint64_t n,
    void (*emit)(void *to, const char *name, bool is_directory), void *to, struct insitu__text_buffer *continuation,
    insitu_error *err) {
  (void)c, (void)prefix, (void)text, (void)n, (void)emit, (void)to, (void)continuation;
  return insitu__error_set(err, INSITU_E_UNSUPPORTED, "store: no listing");
}
#endif

/* >>codec ------------------------------------------------------------------------------------------------------------------ */
/* Turns stored chunks into decoded bytes: blosc1, zstd, numcodecs lz4, gzip, zlib, bz2, checksums, filters, the user's codecs and
 * shards; and reads their configurations.
 * State: struct insitu__codec_scratch, one per worker, reused; nothing else. Any thread may call, one at a time per scratch.
 * Nothing here suspends. Every byte of a chunk is hostile: no length is believed before it is compared with the bytes at hand,
 * and the known decoded size is a hard cap on what a stage may write. */
#ifdef INSITU_WITH_ZLIB
#include <zlib.h>
#endif
#ifdef INSITU_WITH_LIBDEFLATE
#include <libdeflate.h>
#endif
#ifdef INSITU_WITH_BZIP2
#include <bzlib.h>
#endif
#ifdef INSITU_WITH_SNAPPY
#include <snappy-c.h>
#endif
#if defined(__aarch64__)
#include <sys/auxv.h> /* getauxval: has the CPU the crc32 instructions? */
#endif

#define INSITU__CODEC_PIECE (32u << 10) /* bytes handed over at once from a blosc block: the size of a usual L1 data cache */
#define INSITU__CODEC_STRIP (16u << 10) /* bytes that a bit unshuffle keeps between its two steps: half of that */
#define INSITU__CODEC_SKEW 64           /* bytes between planes, so that planes of 2^k bytes do not share one cache set */
#define INSITU__CODEC_COPY 2048         /* bytes of one memcpy, see insitu__codec_copy */
#define INSITU__CODEC_BAD "the stored chunk is damaged: write it again from its source"

/* What each library brings, and how to have it: NULL where this build does. Where both are there, libdeflate goes before zlib. */
#define INSITU__CODEC_LACK(macro, flag) "define " macro " beside INSITU_IMPLEMENTATION, and link with " flag
#if defined(INSITU_WITH_ZLIB) || defined(INSITU_WITH_LIBDEFLATE)
#define INSITU__CODEC_HAS_DEFLATE
#define INSITU__CODEC_LACK_DEFLATE NULL /* gzip, zlib, zlib inside blosc, crc32, adler32 */
#else
#define INSITU__CODEC_LACK_DEFLATE INSITU__CODEC_LACK("INSITU_WITH_ZLIB or INSITU_WITH_LIBDEFLATE", "-lz or -ldeflate")
#endif
#ifdef INSITU_WITH_BZIP2
#define INSITU__CODEC_LACK_BZIP2 NULL
#define INSITU__CODEC_BUNZIP (4u << 20) /* memory of one bzip2 stream: 64 kB, and 4 bytes of each of 900 000 (decompress.c) */
#else
#define INSITU__CODEC_LACK_BZIP2 INSITU__CODEC_LACK("INSITU_WITH_BZIP2", "-lbz2")
#define INSITU__CODEC_BUNZIP 0
#endif
#ifdef INSITU_WITH_SNAPPY
#define INSITU__CODEC_LACK_SNAPPY NULL /* snappy inside blosc */
#else
#define INSITU__CODEC_LACK_SNAPPY INSITU__CODEC_LACK("INSITU_WITH_SNAPPY", "-lsnappy")
#endif

enum {
  INSITU__CODEC_BLOSC,
  INSITU__CODEC_ZSTD,
  INSITU__CODEC_LZ4,
  INSITU__CODEC_CRC32C,
  INSITU__CODEC_GZIP,
  INSITU__CODEC_ZLIB,
  INSITU__CODEC_BZ2,
  INSITU__CODEC_CRC32,
  INSITU__CODEC_ADLER32,
  INSITU__CODEC_FLETCHER32,
  INSITU__CODEC_SHARD,
  INSITU__CODEC_SHUFFLE,
  INSITU__CODEC_PACKBITS, /* from here codecs of elements */
  INSITU__CODEC_DELTA,
  INSITU__CODEC_SCALE, /* fixedscaleoffset, scale_offset */
  INSITU__CODEC_CAST,  /* astype, quantize, bitround, cast_value */
  INSITU__CODEC_TRANSPOSE,
  INSITU__CODEC_USER /* one of desc.codecs */
};

struct insitu__codec_type { /* of the elements that a filter works on */
  int32_t dtype;            /* INSITU_..., but no complex one; 0: none */
  bool swap;                /* in the other byte order */
};
union insitu__codec_value { /* an element: of a signed type, an unsigned one (and bool), a float */
  int64_t i;
  uint64_t u;
  double d;
};
enum { INSITU__CODEC_NEAREST, INSITU__CODEC_AWAY, INSITU__CODEC_TO_ZERO, INSITU__CODEC_UP, INSITU__CODEC_DOWN }; /* rounding */
enum { INSITU__CODEC_REFUSE, INSITU__CODEC_CLAMP, INSITU__CODEC_WRAP };                                          /* range */
struct insitu__codec_cast { /* cast_value (zarr-extensions) */
  int rounding, range;
  unsigned n; /* scalar_map.decode: from[i] becomes to[i] */
  union insitu__codec_value from[INSITU__MAX_SCALAR_MAP], to[INSITU__MAX_SCALAR_MAP];
};
struct insitu__codec_layout { /* a transpose: axis k of what is stored is axis order[k] of the decoded shape */
  unsigned ndim, order[INSITU__MAX_DIMS];
  uint32_t item; /* bytes of an element */
  uint64_t shape[INSITU__MAX_DIMS];
};
enum { INSITU__CODEC_PAD_NONE, INSITU__CODEC_PAD_FIRST, INSITU__CODEC_PAD_LAST }; /* where packbits tells its padding */

struct insitu__codec {
  int kind;
  const struct insitu__codec_shard *shard; /* of INSITU__CODEC_SHARD, the array's */
  const char *name;                        /* as metadata and messages have it */
  bool sum_first;                          /* of a checksum: stored before the bytes that it is of, not behind them */
  struct insitu__codec_type from, to;      /* of a filter: elements as it finds them and as it leaves them */
  uint32_t size;                           /* shuffle: bytes of an element */
  bool exact;                              /* SCALE in the type of its elements, which must hold every result: scale_offset */
  union insitu__codec_value scale, offset; /* doubles unless exact */
  bool high_first;                         /* packbits: the first element is a byte's highest bit */
  uint8_t pad, first_bit, bits;            /* packbits: INSITU__CODEC_PAD_...; of each element, bits from first_bit on */
  struct insitu__codec_cast *cast;         /* cast_value's rules, owned; NULL: as numpy casts */
  struct insitu__codec_layout *layout;     /* of TRANSPOSE, owned */
  const insitu_codec *user;                /* of USER */
  const char *config;                      /* and its JSON; struct insitu__codec_hooks keeps it */
};
struct insitu__codec_chain { /* in decode order: codec[0] sees the stored bytes; n = 0 is raw */
  int n;
  struct insitu__codec codec[INSITU__MAX_CODECS];
};

/* sharding_indexed (Zarr v3, "Sharding codec"): a chunk stored as a grid of inner chunks and an index of where each of them lies.
 * Axes are the shard's own, slowest first: a transpose before it has already been applied. */
struct insitu__codec_shard {
  unsigned ndim;
  uint32_t item;                                             /* bytes of an element */
  uint64_t chunk[INSITU__MAX_DIMS], inner[INSITU__MAX_DIMS]; /* elements; inner divides chunk */
  uint64_t bytes, inner_bytes;                               /* decoded */
  uint64_t bound;                                            /* encoded at most */
  uint64_t entries;                                          /* inner chunks */
  bool index_first, index_crc, index_big;                    /* where the index lies, its checksum, its byte order */
  unsigned order[INSITU__MAX_DIMS];                          /* order[k]: the axis stored k-th slowest in an inner chunk */
  unsigned char fill[16];                                    /* an element of an absent inner chunk, as stored */
  const unsigned char *wide_fill;                            /* if not NULL: that along the whole last axis, instead */
  struct insitu__codec_chain codecs;                         /* of an inner chunk */
};

/* Where decoded bytes go. direct (may be NULL) returns the final address of the decoded range [offset, offset + bytes), or
 * NULL when that range is not contiguous there; it may be asked again for parts of a range it refused. Bytes it gave an
 * address for are written there and not reported again; after a failed decode they are undefined. All others arrive through
 * piece, so that both together cover [0, decoded) once, in ascending order. Pieces and the ranges asked for start at multiples
 * of element (bytes; 0 is taken as 1); what piece points to dies when it returns. A status below zero from piece ends the
 * decode with it. */
struct insitu__codec_sink {
  void *user;
  void *(*direct)(void *user, uint64_t offset, uint64_t bytes);
  insitu_status (*piece)(void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err);
  uint32_t element;
};

struct insitu__codec_buffer {
  void *base;  /* what was allocated */
  uint8_t *at; /* aligned to 64 bytes in it */
  uint64_t size;
};
struct insitu__codec_scratch {
  struct insitu__codec_buffer stage[2]; /* whole results of stages, in turns */
  struct insitu__codec_buffer planes;   /* one decompressed blosc block */
  struct insitu__codec_buffer piece;    /* INSITU__CODEC_PIECE decoded bytes, then the strip of a bit unshuffle */
  struct insitu__codec_buffer cell;     /* one decoded inner chunk of a shard */
  struct insitu__codec_buffer bunzip;   /* what libbz2 asks for */
  struct insitu__codec_scratch *inner;  /* for decoding those */
  ZSTD_DCtx *zstd;
#if defined(INSITU_WITH_LIBDEFLATE)
  struct libdeflate_decompressor *deflate;
#elif defined(INSITU_WITH_ZLIB)
  z_stream zlib;
  bool zlib_ready;
#endif
  bool avx2;
};

/* ---- names ---- */

static insitu_status insitu__codec_unknown(const char *name, insitu_error *err) {
  char shown[64]; /* the name comes from a file: shortened, and only printable */
  size_t n = 0;
  for (; name[n] && n < sizeof shown - 1; n++) shown[n] = name[n] >= ' ' && name[n] <= '~' ? name[n] : '?';
  shown[n] = 0;
  return insitu__error_set(err, INSITU_E_CODEC,
      "codec \"%s\": not known here; blosc, zstd, lz4, gzip, zlib, bz2, checksums and numcodecs' filters are: write the array with "
      "these, or bring its decoder in desc.codecs",
      shown);
}

static const struct {
  const char *name;
  int kind;
  const char *lack; /* what to do to have it, NULL where this build does */
  bool sum_first;   /* where the checksum is stored unless the configuration says */
} insitu__codec_known[] = {{"blosc", INSITU__CODEC_BLOSC, NULL, false}, {"zstd", INSITU__CODEC_ZSTD, NULL, false},
    {"lz4", INSITU__CODEC_LZ4, NULL, false}, {"crc32c", INSITU__CODEC_CRC32C, NULL, false},
    {"gzip", INSITU__CODEC_GZIP, INSITU__CODEC_LACK_DEFLATE, false},
    {"zlib", INSITU__CODEC_ZLIB, INSITU__CODEC_LACK_DEFLATE, false}, {"bz2", INSITU__CODEC_BZ2, INSITU__CODEC_LACK_BZIP2, false},
    {"crc32", INSITU__CODEC_CRC32, INSITU__CODEC_LACK_DEFLATE, true},
    {"adler32", INSITU__CODEC_ADLER32, INSITU__CODEC_LACK_DEFLATE, true}, {"fletcher32", INSITU__CODEC_FLETCHER32, NULL, false},
    {"shuffle", INSITU__CODEC_SHUFFLE, NULL, false}, {"packbits", INSITU__CODEC_PACKBITS, NULL, false},
    {"delta", INSITU__CODEC_DELTA, NULL, false}, {"fixedscaleoffset", INSITU__CODEC_SCALE, NULL, false},
    {"scale_offset", INSITU__CODEC_SCALE, NULL, false}, {"astype", INSITU__CODEC_CAST, NULL, false},
    {"quantize", INSITU__CODEC_CAST, NULL, false}, {"bitround", INSITU__CODEC_CAST, NULL, false},
    {"cast_value", INSITU__CODEC_CAST, NULL, false}};

/* Takes v2 ids and v3 names, with or without the prefix "numcodecs.". */
static insitu_status insitu__codec_from_name(const char *name, struct insitu__codec *out, insitu_error *err) {
  const char *bare = strncmp(name, "numcodecs.", 10) ? name : name + 10;
  for (size_t i = 0; i < sizeof insitu__codec_known / sizeof *insitu__codec_known; i++) {
    if (strcmp(bare, insitu__codec_known[i].name)) continue;
    if (insitu__codec_known[i].lack)
      return insitu__error_set(err, INSITU_E_CODEC, "codec \"%s\": not in this build: %s", bare, insitu__codec_known[i].lack);
    *out = (struct insitu__codec){
        .kind = insitu__codec_known[i].kind, .name = insitu__codec_known[i].name, .sum_first = insitu__codec_known[i].sum_first};
    return INSITU_OK;
  }
  return insitu__codec_unknown(name, err);
}

/* ---- configurations ---- */

static uint32_t insitu__codec_type_size(struct insitu__codec_type type) {
  return (uint32_t)(type.dtype & 0xff) / 8;
}
static bool insitu__codec_is_float(int32_t dtype) {
  return dtype >> 8 == 2;
}
static bool insitu__codec_is_signed(int32_t dtype) {
  return dtype >> 8 == 0;
}
static bool insitu__codec_same_type(struct insitu__codec_type a, struct insitu__codec_type b) {
  return a.dtype == b.dtype && (a.swap == b.swap || insitu__codec_type_size(a) == 1);
}

/* numpy's "<f4", "f4", "|b1", "float32" and "<M8[ns]", which is an int64; and the names of Zarr v3. */
static bool insitu__codec_type_parse(const char *text, struct insitu__codec_type *out) {
  static const struct {
    const char *name; /* in front of bits; one letter: of bytes */
    int32_t code;
    unsigned sizes; /* that exist, in bytes, one bit each */
  } known[] = {{"bool", 6, 1 << 1}, {"uint", 1, 0x116}, {"int", 0, 0x116}, {"float", 2, 0x114}, {"b", 6, 1 << 1}, {"u", 1, 0x116},
      {"i", 0, 0x116}, {"f", 2, 0x114}, {"M", 0, 1 << 8}, {"m", 0, 1 << 8}};
  bool big = text[0] == '>';
  if (*text && strchr("<>|=", *text)) text++;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    size_t letters = strlen(known[k].name);
    if (strncmp(text, known[k].name, letters)) continue;
    uint64_t n = 0;
    const char *p = text + letters;
    for (; insitu__text_is_digit((unsigned char)*p) && n < 1000; p++) n = 10 * n + (uint64_t)(*p - '0');
    if (k == 0) n = 8; /* "bool" */
    if (letters > 1 && n % 8) return false;
    if (letters > 1) n /= 8;
    if (known[k].sizes == 1 << 8 && *p == '[') p += strcspn(p, "]") + (strchr(p, ']') != NULL);
    if (*p || n > 8 || !(known[k].sizes >> n & 1)) return false;
    *out = (struct insitu__codec_type){known[k].code << 8 | (int32_t)n * 8, big && n > 1};
    return true;
  }
  return false;
}

struct insitu__codec_context {    /* where a codec stands in an array's metadata */
  int format;                     /* Zarr's: 2 or 3 */
  bool array;                     /* format 3: before the codec that makes bytes */
  uint32_t item;                  /* format 3: bytes of an element there */
  struct insitu__codec_type type; /* and its type, which is in native order; none: a complex one */
};
struct insitu__codec_reading { /* one configuration under way */
  const struct insitu__text_json *j;
  int config; /* the object that has the keys, -1: none */
  const char *name;
  bool prefix; /* it began with "numcodecs." */
  const struct insitu__codec_context *at;
  struct insitu__codec *out;
  insitu_error *err;
};

static insitu_status insitu__codec_bad(
    const struct insitu__codec_reading *r, insitu_status status, const char *key, const char *cause) {
  uint64_t n;
  const char *value = insitu__text_json_span(r->j, insitu__text_json_get(r->j, r->config, key), &n);
  return insitu__error_set(r->err, status, "codec \"%.64s\", configuration key '%s'%s%.*s: %s; %s", r->name, key,
      value ? " = " : "", (int)insitu__base_min(n, 80), value ? value : "", cause,
      status == INSITU_E_FORMAT ? "the metadata is damaged or its writer wrong" : "leave this array out or convert it");
}
/* An element type by key. Left as it is when the key is absent or null and may be; in format 3 elements are in native order. */
static insitu_status insitu__codec_read_type(
    const struct insitu__codec_reading *r, const char *key, bool required, struct insitu__codec_type *type) {
  char text[32];
  int token = insitu__text_json_get(r->j, r->config, key);
  if (!required && (token < 0 || insitu__text_json_is_null(r->j, token))) return INSITU_OK;
  if (!insitu__text_json_is_string(r->j, token)) return insitu__codec_bad(r, INSITU_E_FORMAT, key, "a data type is needed");
  if (insitu__text_json_string(r->j, token, text, sizeof text) < 0 || !insitu__codec_type_parse(text, type))
    return insitu__codec_bad(r, INSITU_E_CODEC, key, "this type is not supported here (bool, integers and floats are)");
  if (r->at->format == 3) type->swap = false;
  return INSITU_OK;
}
/* The two types of a numcodecs filter. The one it decodes to must in format 3 be that of the array there. */
static insitu_status insitu__codec_read_types(const struct insitu__codec_reading *r, const char *to, const char *from) {
  struct insitu__codec *c = r->out;
  bool v2 = r->at->format == 2;
  if (!v2) c->to = r->at->type;
  insitu_status status = insitu__codec_read_type(r, to, v2, &c->to);
  if (status == INSITU_OK && !v2 && c->to.dtype != r->at->type.dtype)
    return insitu__codec_bad(r, INSITU_E_FORMAT, to, "the array has another type there");
  if (status == INSITU_OK && !c->to.dtype)
    return insitu__error_set(r->err, INSITU_E_CODEC,
        "codec \"%.64s\": complex numbers are not supported in it; leave this array out or convert it", r->name);
  c->from = c->to;
  return status == INSITU_OK ? insitu__codec_read_type(r, from, !strcmp(from, "encode_dtype"), &c->from) : status;
}
static insitu_status insitu__codec_read_integer(
    const struct insitu__codec_reading *r, const char *key, uint64_t most, uint64_t absent, uint64_t *value) {
  int token = insitu__text_json_get(r->j, r->config, key);
  *value = absent;
  if (token < 0 || insitu__text_json_is_null(r->j, token)) return INSITU_OK;
  if (insitu__text_json_u64(r->j, token, value) && *value <= most) return INSITU_OK;
  return insitu__codec_bad(r, INSITU_E_FORMAT, key, "not an integer that makes sense there");
}
/* The number of the word that a key holds, absent: 0. */
static insitu_status insitu__codec_read_word(
    const struct insitu__codec_reading *r, const char *key, const char *const *words, int n, int *number) {
  int token = insitu__text_json_get(r->j, r->config, key);
  *number = 0;
  if (token < 0) return INSITU_OK;
  for (int i = 0; i < n; i++)
    if (words[i] && insitu__text_json_equals(r->j, token, words[i])) {
      *number = i;
      return INSITU_OK;
    }
  return insitu__codec_bad(r, INSITU_E_FORMAT, key, "not a word that the specification knows there");
}

static inline float insitu__codec_half(uint16_t h) { /* IEEE 754-2008 binary16, exact */
  uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
  float f;
  if (bits >= 0x7c00u << 13) bits |= 0x7f800000;
  memcpy(&f, &bits, sizeof f);
  if (bits < 0x7f800000) f *= 0x1p112f; /* the exponents' biases differ by 127 - 15 */
  return h & 0x8000 ? -f : f;
}
static bool insitu__codec_read_hex(
    const struct insitu__text_json *j, int token, int32_t dtype, union insitu__codec_value *value) { /* "0x7fc00000" */
  char text[20];
  uint64_t bits = 0;
  int64_t n = insitu__text_json_string(j, token, text, sizeof text);
  if (n != 2 + (dtype & 0xff) / 4 || text[0] != '0' || text[1] != 'x') return false;
  for (const char *p = text + 2; *p; p++) {
    int digit = insitu__text_hex((unsigned char)*p);
    if (digit < 0) return false;
    bits = bits << 4 | (uint64_t)digit;
  }
  uint32_t word = (uint32_t)bits;
  float single;
  memcpy(&single, &word, sizeof single);
  if (dtype == INSITU_F64) memcpy(&value->d, &bits, sizeof bits);
  else value->d = (double)(dtype == INSITU_F32 ? single : insitu__codec_half((uint16_t)bits));
  return true;
}
/* A scalar as Zarr v3 writes fill values. Floats of any width are exact in a double. */
static bool insitu__codec_read_scalar(
    const struct insitu__text_json *j, int token, int32_t dtype, union insitu__codec_value *value) {
  unsigned bits = (unsigned)dtype & 0xff;
  if (insitu__codec_is_float(dtype)) {
    if (insitu__text_json_equals(j, token, "NaN")) value->d = __builtin_nan("");
    else if (insitu__text_json_equals(j, token, "Infinity") || insitu__text_json_equals(j, token, "+Infinity"))
      value->d = __builtin_inf();
    else if (insitu__text_json_equals(j, token, "-Infinity")) value->d = -__builtin_inf();
    else if (insitu__text_json_is_string(j, token)) return insitu__codec_read_hex(j, token, dtype, value);
    else if (!insitu__text_json_double(j, token, &value->d)) return false;
    if (bits == 32) value->d = (double)(float)value->d;
    return true;
  }
  if (insitu__codec_is_signed(dtype))
    return insitu__text_json_i64(j, token, &value->i) &&
           (bits == 64 || (value->i >= -(INT64_C(1) << (bits - 1)) && value->i < INT64_C(1) << (bits - 1)));
  return insitu__text_json_u64(j, token, &value->u) && (bits == 64 || value->u >> bits == 0);
}

static insitu_status insitu__codec_read_packbits(const struct insitu__codec_reading *r) {
  static const char *const places[] = {"none", "first_byte", "last_byte"}; /* by INSITU__CODEC_PAD_... */
  struct insitu__codec *c = r->out;
  if (r->at->format == 2 || r->prefix) { /* numcodecs */
    if (r->at->format == 3 && r->at->type.dtype != INSITU_BOOL)
      return insitu__error_set(
          r->err, INSITU_E_FORMAT, "codec \"%.64s\": it packs bool alone; the metadata is damaged or its writer wrong", r->name);
    c->from = (struct insitu__codec_type){INSITU_U8, false};
    c->to = (struct insitu__codec_type){INSITU_BOOL, false};
    c->pad = INSITU__CODEC_PAD_FIRST;
    c->high_first = true;
    c->bits = 1;
    return INSITU_OK;
  }
  uint64_t width = r->at->type.dtype == INSITU_BOOL ? 1 : r->at->type.dtype & 0xff, first = 0, last = 0;
  int place = 0;
  if (!r->at->type.dtype)
    return insitu__error_set(r->err, INSITU_E_CODEC,
        "codec \"%.64s\": complex numbers are not supported in it; leave this array out or convert it", r->name);
  insitu_status status = insitu__codec_read_word(r, "padding_encoding", places, 3, &place);
  if (status == INSITU_OK) status = insitu__codec_read_integer(r, "first_bit", width - 1, 0, &first);
  if (status == INSITU_OK) status = insitu__codec_read_integer(r, "last_bit", width - 1, width - 1, &last);
  if (status == INSITU_OK && last < first)
    return insitu__codec_bad(r, INSITU_E_FORMAT, "last_bit", "it must not be less than first_bit");
  c->from = (struct insitu__codec_type){INSITU_U8, false};
  c->to = r->at->type;
  c->pad = (uint8_t)place;
  c->first_bit = (uint8_t)first;
  c->bits = (uint8_t)(last - first + 1);
  return status;
}

/* A key that the specification of these codecs does not know makes their metadata invalid. */
static insitu_status insitu__codec_only(const struct insitu__codec_reading *r, const char *const *known, int n) {
  for (int t = insitu__text_json_first(r->j, r->config); t >= 0; t = insitu__text_json_next(r->j, r->config, t)) {
    char key[64];
    int i = 0;
    while (i < n && !insitu__text_json_equals(r->j, t, known[i])) i++;
    if (i < n) continue;
    if (insitu__text_json_string(r->j, t, key, sizeof key) < 0) snprintf(key, sizeof key, "(unprintable)");
    return insitu__codec_bad(r, INSITU_E_CODEC, key, "an unknown key");
  }
  return INSITU_OK;
}

static insitu_status insitu__codec_read_scale_offset(const struct insitu__codec_reading *r) {
  static const char *const keys[] = {"offset", "scale"};
  struct insitu__codec *c = r->out;
  int32_t dtype = r->at->type.dtype;
  insitu_status status = insitu__codec_only(r, keys, 2);
  if (status < 0) return status;
  if (!dtype || dtype == INSITU_BOOL)
    return insitu__error_set(
        r->err, INSITU_E_CODEC, "codec \"%.64s\": only real numbers can be scaled; leave this array out or convert it", r->name);
  c->from = c->to = r->at->type;
  c->exact = true;
  for (int k = 0; k < 2; k++) {
    union insitu__codec_value *value = k ? &c->scale : &c->offset;
    int token = insitu__text_json_get(r->j, r->config, keys[k]);
    if (insitu__codec_is_float(dtype)) value->d = k;
    else value->i = k;
    if (token < 0) continue;
    bool ok = insitu__codec_read_scalar(r->j, token, dtype, value);
    if (ok && insitu__codec_is_float(dtype)) ok = __builtin_isfinite(value->d) && !(k && value->d == 0);
    else if (ok) ok = !(k && value->i == 0);
    if (!ok)
      return insitu__codec_bad(r, INSITU_E_FORMAT, keys[k],
          k ? "a finite number of the array's type, and not 0, is needed" : "a finite number of the array's type is needed");
  }
  return INSITU_OK;
}
static insitu_status insitu__codec_read_fixedscaleoffset(const struct insitu__codec_reading *r) {
  struct insitu__codec *c = r->out;
  insitu_status status = insitu__codec_read_types(r, "dtype", "astype");
  if (status < 0) return status;
  static const char *const keys[] = {"offset", "scale"};
  for (int k = 0; k < 2; k++) {
    double *value = k ? &c->scale.d : &c->offset.d;
    if (!insitu__text_json_double(r->j, insitu__text_json_get(r->j, r->config, keys[k]), value) || !__builtin_isfinite(*value) ||
        (k && *value == 0))
      return insitu__codec_bad(
          r, INSITU_E_FORMAT, keys[k], k ? "a finite number other than 0 is needed" : "a finite number is needed");
  }
  return INSITU_OK;
}

/* scalar_map.decode of a cast_value: pairs of an encoded value and a decoded one; the first of equal ones counts. */
static insitu_status insitu__codec_read_map(const struct insitu__codec_reading *r, struct insitu__codec_cast *cast) {
  int map = insitu__text_json_get(r->j, r->config, "scalar_map"), list = insitu__text_json_get(r->j, map, "decode");
  if (map >= 0 && !insitu__text_json_is_object(r->j, map))
    return insitu__codec_bad(r, INSITU_E_FORMAT, "scalar_map", "an object is needed");
  if (list < 0) return INSITU_OK;
  if (!insitu__text_json_is_array(r->j, list))
    return insitu__codec_bad(r, INSITU_E_FORMAT, "scalar_map", "'decode' must be a list of pairs");
  for (int t = insitu__text_json_first(r->j, list); t >= 0; t = insitu__text_json_next(r->j, list, t), cast->n++) {
    int from = insitu__text_json_first(r->j, t);
    if (cast->n == INSITU__MAX_SCALAR_MAP)
      return insitu__codec_bad(r, INSITU_E_UNSUPPORTED, "scalar_map", "more entries than INSITU__MAX_SCALAR_MAP");
    if (!insitu__text_json_is_array(r->j, t) || insitu__text_json_size(r->j, t) != 2 ||
        !insitu__codec_read_scalar(r->j, from, r->out->from.dtype, &cast->from[cast->n]) ||
        !insitu__codec_read_scalar(r->j, insitu__text_json_next(r->j, t, from), r->out->to.dtype, &cast->to[cast->n]))
      return insitu__codec_bad(
          r, INSITU_E_FORMAT, "scalar_map", "'decode' must be a list of pairs, a value of data_type and one of the array's type");
  }
  return INSITU_OK;
}
static insitu_status insitu__codec_read_cast_value(const struct insitu__codec_reading *r) {
  static const char *const keys[] = {"data_type", "rounding", "out_of_range", "scalar_map"};
  static const char *const roundings[] = {
      "nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative"}; /* by INSITU__CODEC_NEAREST ... */
  static const char *const ranges[] = {NULL, "clamp", "wrap"};                                 /* by INSITU__CODEC_REFUSE ... */
  struct insitu__codec *c = r->out;
  insitu_status status = insitu__codec_only(r, keys, 4);
  if (status == INSITU_OK) status = insitu__codec_read_type(r, "data_type", true, &c->from);
  if (status < 0) return status;
  c->to = r->at->type;
  if (!c->to.dtype || c->to.dtype == INSITU_BOOL || c->from.dtype == INSITU_BOOL)
    return insitu__error_set(
        r->err, INSITU_E_CODEC, "codec \"%.64s\": only real numbers can be cast; leave this array out or convert it", r->name);
  c->cast = (struct insitu__codec_cast *)insitu__mem_alloc(1, sizeof *c->cast);
  if (!c->cast)
    return insitu__error_set(r->err, INSITU_E_NOMEM, "codec \"%.64s\": no memory; give the process more memory", r->name);
  status = insitu__codec_read_word(r, "rounding", roundings, 5, &c->cast->rounding);
  if (status == INSITU_OK) status = insitu__codec_read_word(r, "out_of_range", ranges, 3, &c->cast->range);
  if (status == INSITU_OK) status = insitu__codec_read_map(r, c->cast);
  if (status == INSITU_OK && c->cast->range == INSITU__CODEC_WRAP && insitu__codec_is_float(c->from.dtype))
    status = insitu__codec_bad(r, INSITU_E_FORMAT, "out_of_range", "floats do not wrap");
  if (status == INSITU_OK && c->cast->range == INSITU__CODEC_WRAP && insitu__codec_is_float(c->to.dtype))
    c->cast->range = INSITU__CODEC_REFUSE; /* says how to encode; no integer is beyond a float32 */
  return status;
}

static insitu_status insitu__codec_read_filter(const struct insitu__codec_reading *r) {
  struct insitu__codec *c = r->out;
  uint64_t size = 0;
  insitu_status status = INSITU_OK;
  if (!strcmp(r->name, "shuffle")) { /* numcodecs' own default is 4; zarr-python's for format 3 the array's element */
    status = insitu__codec_read_integer(r, "elementsize", INSITU__MAX_CHUNK, r->at->format == 2 ? 4 : r->at->item, &size);
    c->size = (uint32_t)size;
    return status;
  }
  if (!strcmp(r->name, "packbits")) return insitu__codec_read_packbits(r);
  if (!strcmp(r->name, "delta")) return insitu__codec_read_types(r, "dtype", "astype");
  if (!strcmp(r->name, "astype")) return insitu__codec_read_types(r, "decode_dtype", "encode_dtype");
  if (!strcmp(r->name, "fixedscaleoffset")) return insitu__codec_read_fixedscaleoffset(r);
  if (!strcmp(r->name, "scale_offset")) return insitu__codec_read_scale_offset(r);
  if (!strcmp(r->name, "cast_value")) return insitu__codec_read_cast_value(r);
  if (!strcmp(r->name, "quantize")) {
    status = insitu__codec_read_types(r, "dtype", "astype");
    if (status == INSITU_OK && (!insitu__codec_is_float(c->from.dtype) || !insitu__codec_is_float(c->to.dtype)))
      status = insitu__codec_bad(r, INSITU_E_FORMAT, "dtype", "it and astype must be floats");
    return status;
  }
  c->from = c->to = r->at->type; /* bitround: nothing to undo */
  return INSITU_OK;
}

static void insitu__codec_free(struct insitu__codec *c) {
  insitu__mem_free(c->cast);
  insitu__mem_free(c->layout);
  c->cast = NULL;
  c->layout = NULL;
}
/* Nothing is to be done for it. */
static bool insitu__codec_is_nothing(const struct insitu__codec *c) {
  if (c->kind == INSITU__CODEC_SHUFFLE) return c->size <= 1;
  return c->kind == INSITU__CODEC_CAST && (!c->cast || !c->cast->n) && insitu__codec_same_type(c->from, c->to);
}

/* A codec from its JSON: in format 2 an object with an id and the keys of its configuration; in format 3 an object with a name
 * and perhaps a configuration, or the name alone. On success insitu__codec_free frees what it owns. */
static insitu_status insitu__codec_read(const struct insitu__text_json *j, int token, const struct insitu__codec_context *at,
    struct insitu__codec *out, insitu_error *err) {
  char name[64];
  bool object = insitu__text_json_is_object(j, token);
  int key = object ? insitu__text_json_get(j, token, at->format == 2 ? "id" : "name") : token;
  if ((at->format == 2 && !object) || insitu__text_json_string(j, key, name, sizeof name) <= 0)
    return insitu__error_set(err, INSITU_E_FORMAT, "codec: %s is needed; the metadata is damaged or its writer wrong",
        at->format == 2 ? "an object with an 'id'" : "a name of at most 63 bytes, or an object with one");
  insitu_status status = insitu__codec_from_name(name, out, err);
  if (status < 0) return status;
  bool prefix = !strncmp(name, "numcodecs.", 10);
  struct insitu__codec_reading r = {
      .j = j, .name = prefix ? name + 10 : name, .prefix = prefix, .at = at, .out = out, .err = err};
  r.config = at->format == 2 ? token : insitu__text_json_get(j, token, "configuration");
  bool elements = out->kind >= INSITU__CODEC_PACKBITS;
  bool own = !strcmp(r.name, "scale_offset") || !strcmp(r.name, "cast_value"); /* specified for Zarr v3 */
  if (own && (prefix || at->format == 2)) return insitu__codec_unknown(name, err);
  if (at->format == 3 && elements != at->array)
    return insitu__error_set(err, INSITU_E_CODEC,
        "codec \"%s\" is not supported %s 'bytes', it works on %s; leave this array out or convert it", name,
        elements ? "after" : "before", elements ? "elements" : "bytes");
  if (r.config >= 0 && !insitu__text_json_is_object(j, r.config) && !insitu__text_json_is_null(j, r.config))
    return insitu__error_set(err, INSITU_E_FORMAT,
        "codec \"%s\": its configuration must be an object; the metadata is damaged or its writer wrong", name);
  int location = insitu__text_json_get(j, r.config, "location"); /* of numcodecs' checksums */
  if (location >= 0) out->sum_first = insitu__text_json_equals(j, location, "start");
  if (location >= 0 && !out->sum_first && !insitu__text_json_equals(j, location, "end"))
    return insitu__codec_bad(&r, INSITU_E_FORMAT, "location", "\"start\" or \"end\" is needed");
  if (out->kind < INSITU__CODEC_SHUFFLE) return INSITU_OK;
  status = insitu__codec_read_filter(&r);
  if (status < 0) insitu__codec_free(out);
  return status;
}

/* ---- the user's codecs ---- */

struct insitu__codec_hooks { /* of a loader */
  const insitu_codec *codec;
  uint64_t n;
  char **config; /* array: the JSON of codecs that were read, each once; kept to the end, for the user may keep them too */
};
static void insitu__codec_hooks_free(struct insitu__codec_hooks *hooks) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(hooks->config); i++) insitu__mem_free(hooks->config[i]);
  INSITU__ARRAY_FREE(hooks->config);
}
static const char *insitu__codec_hooks_keep(
    struct insitu__codec_hooks *hooks, const char *text, uint64_t n) { /* NULL: no memory */
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(hooks->config); i++)
    if (strlen(hooks->config[i]) == n && !memcmp(hooks->config[i], text, (size_t)n)) return hooks->config[i];
  char *copy = insitu__mem_text(text, n);
  if (copy && INSITU__ARRAY_PUSH(hooks->config, copy)) return copy;
  insitu__mem_free(copy);
  return NULL;
}
/* Whether the codec at a token is one of the user's; out then describes it. hooks may be NULL. */
static insitu_status insitu__codec_hook(struct insitu__codec_hooks *hooks, const struct insitu__text_json *j, int token,
    int format, struct insitu__codec *out, bool *found, insitu_error *err) {
  int name = insitu__text_json_is_object(j, token) ? insitu__text_json_get(j, token, format == 2 ? "id" : "name") : token;
  uint64_t n;
  *found = false;
  for (uint64_t i = 0; hooks && i < hooks->n; i++) {
    if (!insitu__text_json_equals(j, name, hooks->codec[i].name)) continue;
    const char *text = insitu__text_json_span(j, token, &n);
    *out = (struct insitu__codec){.kind = INSITU__CODEC_USER, .user = &hooks->codec[i], .name = hooks->codec[i].name};
    out->config = insitu__codec_hooks_keep(hooks, text, n);
    *found = true;
    if (out->config) return INSITU_OK;
    return insitu__error_set(
        err, INSITU_E_NOMEM, "codec \"%.64s\": no memory for its configuration; give the process more memory", out->name);
  }
  return INSITU_OK;
}

/* Of 4 bytes beside the others, which it leaves as they are. */
static bool insitu__codec_is_checksum(int kind) {
  return kind == INSITU__CODEC_CRC32C || kind == INSITU__CODEC_CRC32 || kind == INSITU__CODEC_ADLER32 ||
         kind == INSITU__CODEC_FLETCHER32;
}

/* ---- sizes ---- */

static uint64_t insitu__codec_add(uint64_t a, uint64_t b) { /* saturating */
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t insitu__codec_shard_index_bytes(const struct insitu__codec_shard *shard) {
  return 16 * shard->entries + (shard->index_crc ? 4 : 0);
}

static uint64_t insitu__codec_bound_one(const struct insitu__codec *codec, uint64_t n) {
  if (insitu__codec_is_checksum(codec->kind)) return insitu__codec_add(n, 4);
  switch (codec->kind) {
  case INSITU__CODEC_BLOSC:
    return insitu__codec_add(n, n / 16 + 24); /* header; start and length of blocks of at least 128 bytes that did not shrink */
  case INSITU__CODEC_SHARD: return codec->shard->bound;
  case INSITU__CODEC_SHUFFLE:
  case INSITU__CODEC_TRANSPOSE: return n;
  case INSITU__CODEC_PACKBITS:
  case INSITU__CODEC_DELTA:
  case INSITU__CODEC_SCALE:
  case INSITU__CODEC_CAST: {
    uint64_t elements = insitu__base_ceil_div(n, insitu__codec_type_size(codec->to)), bytes;
    bool packed = codec->kind == INSITU__CODEC_PACKBITS;
    if (!insitu__base_mul(elements, packed ? codec->bits : insitu__codec_type_size(codec->from), &bytes)) return UINT64_MAX;
    return packed ? insitu__base_ceil_div(bytes, 8) + (codec->pad != INSITU__CODEC_PAD_NONE) : bytes;
  }
  case INSITU__CODEC_USER: return codec->user->max_encoded ? codec->user->max_encoded : insitu__codec_add(n, n / 8 + (64u << 10));
  case INSITU__CODEC_LZ4: return insitu__codec_add(n, n / 255 + 16 + 4); /* LZ4_COMPRESSBOUND in lz4.h, and the size */
  case INSITU__CODEC_ZSTD:
    return insitu__codec_add(n, n / 256 + n / 64 + 64 + 4096); /* ZSTD_COMPRESSBOUND in zstd.h; room for frames */
  default: /* deflateBound's most cautious case in deflate.c, above the 1 % and 600 bytes of bzip2's manual; room for members */
    return insitu__codec_add(n, n / 8 + n / 64 + 4096);
  }
}

/* The most bytes that an encoder of codec[from ...] writes for `decoded` bytes; saturates. */
static uint64_t insitu__codec_bound_from(const struct insitu__codec_chain *chain, int from, uint64_t decoded) {
  for (int i = chain->n - 1; i >= from; i--) decoded = insitu__codec_bound_one(&chain->codec[i], decoded);
  return decoded;
}

static uint64_t insitu__codec_bound(const struct insitu__codec_chain *chain, uint64_t decoded) {
  return insitu__codec_bound_from(chain, 0, decoded);
}

/* ---- scratch ---- */

struct insitu__codec_needs { /* bytes of each buffer for one chain */
  uint64_t stage[2], planes, piece, cell, bunzip;
  uint64_t inner; /* what the scratch of a shard's inner chunks takes in all */
  bool zstd, deflate;
};

/* An upper bound of the heap that a scratch reserved for this chain holds, for the memory plan. Pages are touched only as far
 * as a chunk needs them: a blosc chunk of usual layout touches one of its blocks, not the whole chunk. */
static uint64_t insitu__codec_scratch_bytes(const struct insitu__codec_needs *need) {
  uint64_t sum = 512u << 10; /* a ZSTD_DCtx (96 kB in zstd 1.5.4), an inflate state (40 kB at most), alignment */
  sum = insitu__codec_add(sum, insitu__codec_add(need->stage[0], need->stage[1]));
  sum = insitu__codec_add(sum, insitu__codec_add(need->planes, need->piece));
  sum = insitu__codec_add(sum, insitu__codec_add(need->cell, need->bunzip));
  return insitu__codec_add(sum, need->inner);
}

static struct insitu__codec_needs insitu__codec_needs(const struct insitu__codec_chain *chain, uint64_t decoded) {
  struct insitu__codec_needs need = {.zstd = false};
  int turn = 0;
  for (int i = 0; i < chain->n; i++) {
    int kind = chain->codec[i].kind;
    if (insitu__codec_is_checksum(kind)) continue; /* works in place */
    uint64_t out = insitu__codec_bound_from(chain, i + 1, decoded);
    need.stage[turn] = insitu__base_max(need.stage[turn], insitu__base_max(out, 64));
    turn ^= 1;
    if (kind == INSITU__CODEC_SHARD) {
      const struct insitu__codec_shard *shard = chain->codec[i].shard;
      struct insitu__codec_needs inner = insitu__codec_needs(&shard->codecs, shard->inner_bytes);
      need.cell = insitu__base_max(need.cell, shard->inner_bytes);
      need.inner = insitu__base_max(need.inner, insitu__codec_scratch_bytes(&inner));
      continue;
    }
    if (kind >= INSITU__CODEC_SHUFFLE) {
      need.piece = insitu__base_max(need.piece, INSITU__CODEC_PIECE);
      continue;
    }
    need.zstd |= kind == INSITU__CODEC_ZSTD || kind == INSITU__CODEC_BLOSC;
    need.deflate |= kind == INSITU__CODEC_GZIP || kind == INSITU__CODEC_ZLIB || kind == INSITU__CODEC_BLOSC;
    if (kind == INSITU__CODEC_BZ2) need.bunzip = INSITU__CODEC_BUNZIP;
    if (kind != INSITU__CODEC_BLOSC) continue;
    need.planes = insitu__base_max(need.planes, insitu__codec_add(out, 16 * 2 * INSITU__CODEC_SKEW));
    need.piece = INSITU__CODEC_PIECE + 256 + 2 * INSITU__CODEC_STRIP + 256 * INSITU__CODEC_SKEW;
  }
  return need;
}

/* Widens *need to what another chain needs as well: a scratch serves all chains of a loader. */
static void insitu__codec_needs_add(struct insitu__codec_needs *need, const struct insitu__codec_chain *chain, uint64_t decoded) {
  struct insitu__codec_needs more = insitu__codec_needs(chain, decoded);
  for (int i = 0; i < 2; i++) need->stage[i] = insitu__base_max(need->stage[i], more.stage[i]);
  need->planes = insitu__base_max(need->planes, more.planes);
  need->piece = insitu__base_max(need->piece, more.piece);
  need->cell = insitu__base_max(need->cell, more.cell);
  need->bunzip = insitu__base_max(need->bunzip, more.bunzip);
  need->inner = insitu__codec_add(need->inner, more.inner); /* its parts may come from both */
}

static void insitu__codec_scratch_init(struct insitu__codec_scratch *s) {
  memset(s, 0, sizeof *s);
#if defined(__x86_64__)
  s->avx2 = __builtin_cpu_supports("avx2") != 0;
#endif
}

static void insitu__codec_scratch_free(struct insitu__codec_scratch *s) {
  insitu__mem_free(s->stage[0].base);
  insitu__mem_free(s->stage[1].base);
  insitu__mem_free(s->planes.base);
  insitu__mem_free(s->piece.base);
  insitu__mem_free(s->cell.base);
  insitu__mem_free(s->bunzip.base);
  if (s->inner) insitu__codec_scratch_free(s->inner);
  insitu__mem_free(s->inner);
  ZSTD_freeDCtx(s->zstd);
#if defined(INSITU_WITH_LIBDEFLATE)
  libdeflate_free_decompressor(s->deflate);
#elif defined(INSITU_WITH_ZLIB)
  if (s->zlib_ready) inflateEnd(&s->zlib);
#endif
  insitu__codec_scratch_init(s);
}

static insitu_status insitu__codec_grow(struct insitu__codec_buffer *b, uint64_t bytes, insitu_error *err) {
  if (bytes <= b->size) return INSITU_OK;
  insitu__mem_free(b->base); /* contents never outlive a decode */
  b->base = insitu__mem_realloc(NULL, insitu__codec_add(bytes, 64));
  b->size = b->base ? bytes : 0;
  b->at = b->base ? (uint8_t *)(((uintptr_t)b->base + 63) & ~(uintptr_t)63) : NULL;
  if (b->base) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_NOMEM, "decode: no memory for %" PRIu64 " bytes of scratch; lower decode_threads", bytes);
}

#ifdef INSITU_WITH_ZLIB /* used by >>store, too */
static void *insitu__codec_zlib_alloc(void *user, unsigned items, unsigned size) {
  (void)user;
  return insitu__mem_alloc(items, size);
}
static void insitu__codec_zlib_free(void *user, void *p) {
  (void)user;
  insitu__mem_free(p);
}
#endif

/* Grows the scratch so that decoding chunks of this chain and size allocates nothing. */
static insitu_status insitu__codec_scratch_reserve(
    struct insitu__codec_scratch *s, const struct insitu__codec_chain *chain, uint64_t decoded, insitu_error *err) {
  struct insitu__codec_needs need = insitu__codec_needs(chain, decoded);
  insitu_status status;
  if ((status = insitu__codec_grow(&s->stage[0], need.stage[0], err)) < 0) return status;
  if ((status = insitu__codec_grow(&s->stage[1], need.stage[1], err)) < 0) return status;
  if ((status = insitu__codec_grow(&s->planes, need.planes, err)) < 0) return status;
  if ((status = insitu__codec_grow(&s->piece, need.piece, err)) < 0) return status;
  if ((status = insitu__codec_grow(&s->cell, need.cell, err)) < 0) return status;
  if ((status = insitu__codec_grow(&s->bunzip, need.bunzip, err)) < 0) return status;
  if (need.zstd && !s->zstd && !(s->zstd = ZSTD_createDCtx())) /* libzstd's shared library takes no allocator */
    return insitu__error_set(err, INSITU_E_NOMEM, "decode: no memory for a zstd context; lower decode_threads");
#if defined(INSITU_WITH_LIBDEFLATE) /* its allocator could only be set for the whole process */
  if (need.deflate && !s->deflate && !(s->deflate = libdeflate_alloc_decompressor()))
    return insitu__error_set(err, INSITU_E_NOMEM, "decode: no memory for an inflate state; lower decode_threads");
#elif defined(INSITU_WITH_ZLIB)
  if (need.deflate && !s->zlib_ready) {
    s->zlib.zalloc = insitu__codec_zlib_alloc;
    s->zlib.zfree = insitu__codec_zlib_free;
    if (inflateInit2(&s->zlib, 15) != Z_OK)
      return insitu__error_set(err, INSITU_E_NOMEM, "decode: no memory for an inflate state; lower decode_threads");
    s->zlib_ready = true;
  }
#endif
  if (need.inner && !s->inner) {
    s->inner = (struct insitu__codec_scratch *)insitu__mem_alloc(1, sizeof *s->inner);
    if (!s->inner) return insitu__error_set(err, INSITU_E_NOMEM, "decode: no memory to decode a shard; lower decode_threads");
    insitu__codec_scratch_init(s->inner);
  }
  return INSITU_OK;
}

/* ---- crc32c (Castagnoli, RFC 3720 appendix B.4), reflected, polynomial 0x82f63b78 ---- */

static uint32_t insitu__codec_crc_table(uint32_t crc, const uint8_t *p, uint64_t n) {
  static const uint32_t nibble[16] = {0, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
      0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
  for (; n; n--) {
    crc ^= *p++;
    crc = crc >> 4 ^ nibble[crc & 15];
    crc = crc >> 4 ^ nibble[crc & 15];
  }
  return crc;
}

#define INSITU__CODEC_CRC_LEAST 32 /* words of each part, from where on three of them are faster than one */
#if defined(__x86_64__)
#define INSITU__CODEC_CRC_TARGET __attribute__((target("sse4.2")))
#define INSITU__CODEC_CRC8(crc, word) (crc = __builtin_ia32_crc32di(crc, word))
#define INSITU__CODEC_CRC1(crc, byte) (crc = __builtin_ia32_crc32qi((uint32_t)crc, byte))
static bool insitu__codec_crc_has_hardware(void) {
  return __builtin_cpu_supports("sse4.2") != 0;
}
#else
#define INSITU__CODEC_CRC_TARGET
#define INSITU__CODEC_CRC8(crc, word) __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word))
#define INSITU__CODEC_CRC1(crc, byte) __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)(byte)))
static bool insitu__codec_crc_has_hardware(void) {
  return (getauxval(AT_HWCAP) & 1u << 7) != 0; /* HWCAP_CRC32 in asm/hwcap.h */
}
#endif

/* The product of two polynomials over GF(2), reduced by the crc instruction: of reflected words a and b it is a * b * x^33 mod P,
 * so x^e is stored as x^(e - 33). Each factor is taken apart into four with every fourth bit: at most 8 bits meet in a column of
 * their integer product then, whose carries end in the three columns that are cleared. */
INSITU__CODEC_CRC_TARGET static inline uint32_t insitu__codec_crc_times(uint32_t a, uint32_t b) {
  const uint32_t one = 0x11111111; /* spelled out: gcc -O2 leaves loops rolled */
  uint64_t a0 = a & one, a1 = a & one << 1, a2 = a & one << 2, a3 = a & one << 3, out = 0;
  uint64_t b0 = b & one, b1 = b & one << 1, b2 = b & one << 2, b3 = b & one << 3, ones = UINT64_C(0x1111111111111111);
  uint64_t product = (a0 * b0 ^ a1 * b3 ^ a2 * b2 ^ a3 * b1) & ones;
  product |= (a0 * b1 ^ a1 * b0 ^ a2 * b3 ^ a3 * b2) & ones << 1;
  product |= (a0 * b2 ^ a1 * b1 ^ a2 * b0 ^ a3 * b3) & ones << 2;
  product |= (a0 * b3 ^ a1 * b2 ^ a2 * b1 ^ a3 * b0) & ones << 3;
  INSITU__CODEC_CRC8(out, product);
  return (uint32_t)out;
}

/* x^(64 * words), words in [1, 2^24) */
INSITU__CODEC_CRC_TARGET static uint32_t insitu__codec_crc_power(uint64_t words) {
  /* [k]: x^(64 * 2^k); x^31 first, then each is the one before times itself */
  static const uint32_t power[] = {0x00000001, 0x493c7d27, 0xba4fc28e, 0x9e4addf8, 0x0d3b6092, 0xb9e02b86, 0xdd7e3b0c, 0x170076fa,
      0xa51b6135, 0x82f89c77, 0x54a86326, 0x1dc403cc, 0x5ae703ab, 0xc5013a36, 0xac2ac6dd, 0x9b4615a9, 0x688d1c61, 0xf6af14e6,
      0xb6ffe386, 0xb717425b, 0x478b0d30, 0x54cc62e5, 0x7b2102ee, 0x8a99adef};
  uint32_t out = power[__builtin_ctzll(words)];
  while ((words &= words - 1)) out = insitu__codec_crc_times(out, power[__builtin_ctzll(words)]);
  return out;
}

/* The instruction takes 3 cycles, and one can begin in each: three parts of the bytes go side by side. */
INSITU__CODEC_CRC_TARGET static uint32_t insitu__codec_crc_hardware(uint32_t crc, const uint8_t *p, uint64_t n) {
  uint64_t a = crc;
  while (n >= 24 * INSITU__CODEC_CRC_LEAST) {
    uint64_t words = insitu__base_min(n / 24, (1u << 24) - 1), part = 8 * words, b = 0, c = 0;
    for (const uint8_t *end = p + part; p < end; p += 8) {
      INSITU__CODEC_CRC8(a, insitu__base_load64(p));
      INSITU__CODEC_CRC8(b, insitu__base_load64(p + part));
      INSITU__CODEC_CRC8(c, insitu__base_load64(p + 2 * part));
    }
    uint32_t shift = insitu__codec_crc_power(words);
    a = insitu__codec_crc_times(insitu__codec_crc_times((uint32_t)a, shift) ^ (uint32_t)b, shift) ^ c;
    p += 2 * part;
    n -= 3 * part;
  }
  for (; n >= 8; n -= 8, p += 8) INSITU__CODEC_CRC8(a, insitu__base_load64(p));
  for (; n; n--, p++) INSITU__CODEC_CRC1(a, *p);
  return (uint32_t)a;
}
#undef INSITU__CODEC_CRC_TARGET
#undef INSITU__CODEC_CRC8
#undef INSITU__CODEC_CRC1

static uint32_t insitu__codec_crc32c(const void *bytes, uint64_t n) {
  const uint8_t *p = (const uint8_t *)bytes;
  return ~(insitu__codec_crc_has_hardware() ? insitu__codec_crc_hardware(~0u, p, n) : insitu__codec_crc_table(~0u, p, n));
}

/* ---- byte and bit unshuffle ---- */

/* Interleaving the first half of g vectors with the second half, byte by byte, rotates the address (plane, element) of every
 * byte left by one bit. After log2(g) rounds it reads (element, plane): g planes have become elements of g bytes. Wide vectors
 * do this in each 16-byte lane by itself; a last exchange of lanes puts that right. All is spelled out, because gcc -O2 leaves
 * small loops rolled and then keeps the vectors in memory (decodes up to 25 % slower). */
typedef uint8_t insitu__codec_v16 __attribute__((vector_size(16)));
typedef uint64_t insitu__codec_v2 __attribute__((vector_size(16)));

#define INSITU__CODEC_LO(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INSITU__CODEC_HI(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define INSITU__CODEC_PAIR(L, H, w, v, k, half) (w[2 * (k)] = L(v[k], v[(k) + (half)]), w[2 * (k) + 1] = H(v[k], v[(k) + (half)]))
#define INSITU__CODEC_ROUND2(L, H, w, v) INSITU__CODEC_PAIR(L, H, w, v, 0, 1)
#define INSITU__CODEC_ROUND4(L, H, w, v) (INSITU__CODEC_PAIR(L, H, w, v, 0, 2), INSITU__CODEC_PAIR(L, H, w, v, 1, 2))
#define INSITU__CODEC_ROUND8(L, H, w, v)                                                                                         \
  (INSITU__CODEC_PAIR(L, H, w, v, 0, 4), INSITU__CODEC_PAIR(L, H, w, v, 1, 4), INSITU__CODEC_PAIR(L, H, w, v, 2, 4),             \
      INSITU__CODEC_PAIR(L, H, w, v, 3, 4))
#define INSITU__CODEC_ROUND16(L, H, w, v)                                                                                        \
  (INSITU__CODEC_PAIR(L, H, w, v, 0, 8), INSITU__CODEC_PAIR(L, H, w, v, 1, 8), INSITU__CODEC_PAIR(L, H, w, v, 2, 8),             \
      INSITU__CODEC_PAIR(L, H, w, v, 3, 8), INSITU__CODEC_PAIR(L, H, w, v, 4, 8), INSITU__CODEC_PAIR(L, H, w, v, 5, 8),          \
      INSITU__CODEC_PAIR(L, H, w, v, 6, 8), INSITU__CODEC_PAIR(L, H, w, v, 7, 8))
/* Leaves the result in v; w is the other register set. g is a constant 2, 4, 8 or 16 wherever this is used. */
#define INSITU__CODEC_ROUNDS(L, H, v, w, g)                                                                                      \
  do {                                                                                                                           \
    if ((g) == 2) INSITU__CODEC_ROUND2(L, H, w, v), v[0] = w[0], v[1] = w[1];                                                    \
    else if ((g) == 4) INSITU__CODEC_ROUND4(L, H, w, v), INSITU__CODEC_ROUND4(L, H, v, w);                                       \
    else if ((g) == 8)                                                                                                           \
      INSITU__CODEC_ROUND8(L, H, w, v), INSITU__CODEC_ROUND8(L, H, v, w), INSITU__CODEC_ROUND8(L, H, w, v),                      \
          memcpy(v, w, 8 * sizeof *v);                                                                                           \
    else                                                                                                                         \
      INSITU__CODEC_ROUND16(L, H, w, v), INSITU__CODEC_ROUND16(L, H, v, w), INSITU__CODEC_ROUND16(L, H, w, v),                   \
          INSITU__CODEC_ROUND16(L, H, v, w);                                                                                     \
  } while (0)

/* do_one(k) for k in [0, g) */
#define INSITU__CODEC_EACH(do_one, g)                                                                                            \
  do {                                                                                                                           \
    do_one(0), do_one(1);                                                                                                        \
    if ((g) >= 4) do_one(2), do_one(3);                                                                                          \
    if ((g) >= 8) do_one(4), do_one(5), do_one(6), do_one(7);                                                                    \
    if ((g) >= 16) do_one(8), do_one(9), do_one(10), do_one(11), do_one(12), do_one(13), do_one(14), do_one(15);                 \
  } while (0)
/* do_one(k) for even k in [0, g) */
#define INSITU__CODEC_EVEN(do_one, g)                                                                                            \
  do {                                                                                                                           \
    do_one(0);                                                                                                                   \
    if ((g) >= 4) do_one(2);                                                                                                     \
    if ((g) >= 8) do_one(4), do_one(6);                                                                                          \
    if ((g) >= 16) do_one(8), do_one(10), do_one(12), do_one(14);                                                                \
  } while (0)
#define INSITU__CODEC_LOAD(k) memcpy(&v[k], plane[k] + i, sizeof *v)
#define INSITU__CODEC_STORE(k) memcpy(out + 16 * (k), &v[k], 16)
#define INSITU__CODEC_STORE2(k)                                                                                                  \
  (w[0] = INSITU__CODEC_LOWER(v[k], v[(k) + 1]), w[1] = INSITU__CODEC_UPPER(v[k], v[(k) + 1]),                                   \
      memcpy(out + 16 * (k), &w[0], 32), memcpy(out + 16 * (g + (k)), &w[1], 32))

/* Elements [i, i + 16) of g planes to 16 · g bytes. */
static inline __attribute__((always_inline)) void insitu__codec_merge16(
    uint8_t *out, const uint8_t *const *plane, uint64_t i, int g) {
  insitu__codec_v16 v[16], w[16];
  INSITU__CODEC_EACH(INSITU__CODEC_LOAD, g);
  INSITU__CODEC_ROUNDS(INSITU__CODEC_LO, INSITU__CODEC_HI, v, w, g);
  INSITU__CODEC_EACH(INSITU__CODEC_STORE, g);
}

#if defined(__x86_64__)
typedef uint8_t insitu__codec_v32 __attribute__((vector_size(32)));
#define INSITU__CODEC_LO2(a, b)                                                                                                  \
  __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52,  \
      21, 53, 22, 54, 23, 55)
#define INSITU__CODEC_HI2(a, b)                                                                                                  \
  __builtin_shufflevector(a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59,    \
      28, 60, 29, 61, 30, 62, 31, 63)
#define INSITU__CODEC_LOWER(a, b)                                                                                                \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41,    \
      42, 43, 44, 45, 46, 47)
#define INSITU__CODEC_UPPER(a, b)                                                                                                \
  __builtin_shufflevector(a, b, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 48, 49, 50, 51, 52, 53, 54, 55,  \
      56, 57, 58, 59, 60, 61, 62, 63)

/* Elements [i, i + 32) of g planes to 32 · g bytes. */
__attribute__((target("avx2"), always_inline)) static inline void insitu__codec_merge32(
    uint8_t *out, const uint8_t *const *plane, uint64_t i, int g) {
  insitu__codec_v32 v[16], w[16];
  INSITU__CODEC_EACH(INSITU__CODEC_LOAD, g);
  INSITU__CODEC_ROUNDS(INSITU__CODEC_LO2, INSITU__CODEC_HI2, v, w, g);
  INSITU__CODEC_EVEN(INSITU__CODEC_STORE2, g);
}

/* The multiple of 32 elements of 2, 4, 8 or 16 bytes in [first, first + count); returns how many were done. */
__attribute__((target("avx2"))) static uint64_t insitu__codec_unshuffle_avx2(
    uint8_t *dst, const uint8_t *const *plane, uint32_t size, uint64_t first, uint64_t count) {
  uint64_t i = 0;
  switch (size) {
  case 2:
    for (; count - i >= 32; i += 32) insitu__codec_merge32(dst + 2 * i, plane, first + i, 2);
    break;
  case 4:
    for (; count - i >= 32; i += 32) insitu__codec_merge32(dst + 4 * i, plane, first + i, 4);
    break;
  case 8:
    for (; count - i >= 32; i += 32) insitu__codec_merge32(dst + 8 * i, plane, first + i, 8);
    break;
  case 16:
    for (; count - i >= 32; i += 32) insitu__codec_merge32(dst + 16 * i, plane, first + i, 16);
    break;
  default: break;
  }
  return i;
}
#undef INSITU__CODEC_LO2
#undef INSITU__CODEC_HI2
#undef INSITU__CODEC_LOWER
#undef INSITU__CODEC_UPPER
#endif

/* Bytes [k, k + g) of 16 elements of any size: merged aside, then spread with the stride of an element. */
static inline __attribute__((always_inline)) void insitu__codec_spread16(
    uint8_t *dst, const uint8_t *const *plane, uint32_t size, uint64_t i, int g) {
  uint8_t tile[16 * 16];
  insitu__codec_merge16(tile, plane, i, g);
  for (int e = 0; e < 16; e++) memcpy(dst + (uint64_t)e * size, tile + e * g, (size_t)g);
}

/* Gathers elements [first, first + count) of `size` bytes from one plane per byte to dst. */
static void insitu__codec_unshuffle(
    uint8_t *dst, const uint8_t *const *plane, uint32_t size, uint64_t first, uint64_t count, bool avx2) {
  uint64_t i = 0;
#if defined(__x86_64__)
  if (avx2) i = insitu__codec_unshuffle_avx2(dst, plane, size, first, count);
#endif
  (void)avx2;
  for (; count - i >= 16; i += 16) {
    uint8_t *to = dst + i * size;
    uint64_t from = first + i;
    uint32_t k = 0;
    if (size == 2) insitu__codec_merge16(to, plane, from, 2), k = 2;
    else if (size == 4) insitu__codec_merge16(to, plane, from, 4), k = 4;
    else if (size == 8) insitu__codec_merge16(to, plane, from, 8), k = 8;
    for (; size - k >= 16; k += 16) insitu__codec_spread16(to + k, plane + k, size, from, 16);
    if (size - k >= 8) insitu__codec_spread16(to + k, plane + k, size, from, 8), k += 8;
    if (size - k >= 4) insitu__codec_spread16(to + k, plane + k, size, from, 4), k += 4;
    if (size - k >= 2) insitu__codec_spread16(to + k, plane + k, size, from, 2), k += 2;
    for (int e = 0; k < size && e < 16; e++) to[(uint64_t)e * size + k] = plane[k][from + (uint64_t)e];
  }
  for (; i < count; i++)
    for (uint32_t k = 0; k < size; k++) dst[i * size + k] = plane[k][first + i];
}

/* Transposes 8 by 8 bits in each 64-bit word: three rounds that swap blocks of 1, 2 and 4 bits across the diagonal. */
static inline insitu__codec_v2 insitu__codec_transpose(insitu__codec_v2 x) {
  insitu__codec_v2 t = (x ^ x >> 7) & UINT64_C(0x00aa00aa00aa00aa);
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & UINT64_C(0x0000cccc0000cccc);
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & UINT64_C(0x00000000f0f0f0f0);
  return x ^ t ^ t << 28;
}

/* One byte plane from its 8 bit rows of row bytes each: bytes [8 · first, 8 · (first + count)) of the plane to out. */
static void insitu__codec_unbit_plane(uint8_t *out, const uint8_t *rows, uint64_t row, uint64_t first, uint64_t count) {
  const uint8_t *r[8];
  for (unsigned k = 0; k < 8; k++) r[k] = rows + k * row;
  uint64_t i = 0;
  for (; count - i >= 16; i += 16) {
    uint8_t tile[128];
    insitu__codec_merge16(tile, r, first + i, 8);
    for (int k = 0; k < 128; k += 16) {
      insitu__codec_v2 x;
      memcpy(&x, tile + k, 16);
      x = insitu__codec_transpose(x);
      memcpy(out + 8 * i + (unsigned)k, &x, 16);
    }
  }
  for (; i < count; i++) {
    uint8_t eight[16] = {0};
    for (int k = 0; k < 8; k++) eight[k] = r[k][first + i];
    insitu__codec_v2 x;
    memcpy(&x, eight, 16);
    x = insitu__codec_transpose(x);
    memcpy(out + 8 * i, &x, 8);
  }
}

/* As insitu__codec_unshuffle for planes of bits: all elements of a plane, first and count are multiples of 8. */
static void insitu__codec_unbitshuffle(struct insitu__codec_scratch *s, uint8_t *dst, const uint8_t *const *plane, uint32_t size,
    uint64_t all, uint64_t first, uint64_t count) {
  uint64_t most = insitu__base_max(INSITU__CODEC_STRIP / size / 128 * 128, 128), stride = most + INSITU__CODEC_SKEW;
  uint8_t *strip = s->piece.at + INSITU__CODEC_PIECE + 256;
  const uint8_t *bytes[256];
  for (uint32_t k = 0; k < size; k++) bytes[k] = strip + k * stride;
  for (uint64_t i = 0; i < count; i += most) {
    uint64_t n = insitu__base_min(most, count - i);
    for (uint32_t k = 0; k < size; k++)
      insitu__codec_unbit_plane(size == 1 ? dst + i : strip + k * stride, plane[k], all / 8, (first + i) / 8, n / 8);
    if (size > 1) insitu__codec_unshuffle(dst + i * size, bytes, size, 0, n, s->avx2);
  }
}
#undef INSITU__CODEC_LO
#undef INSITU__CODEC_HI
#undef INSITU__CODEC_PAIR
#undef INSITU__CODEC_ROUND2
#undef INSITU__CODEC_ROUND4
#undef INSITU__CODEC_ROUND8
#undef INSITU__CODEC_ROUND16
#undef INSITU__CODEC_ROUNDS
#undef INSITU__CODEC_EACH
#undef INSITU__CODEC_EVEN
#undef INSITU__CODEC_LOAD
#undef INSITU__CODEC_STORE
#undef INSITU__CODEC_STORE2

/* ---- compressors: n bytes at src to at most cap bytes at dst, *got of them ---- */

/* Several frames may follow each other, skippable ones between; the content size may be absent. Frames are walked here because a
 * shared libzstd may also accept the formats of its old versions, whose decoders get no testing today. */
static insitu_status insitu__codec_zstd(
    ZSTD_DCtx *zstd, const uint8_t *src, uint64_t n, uint8_t *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  *got = 0;
  for (uint64_t at = 0; at < n;) {
    uint32_t magic = n - at < 8 ? 0 : insitu__base_load32(src + at);
    if (magic >> 4 == 0x184d2a5) { /* skippable frame: RFC 8878, 3.1.2 */
      uint64_t skip = UINT64_C(8) + insitu__base_load32(src + at + 4);
      if (skip > n - at)
        return insitu__error_set(err, INSITU_E_CORRUPT, "zstd: a skippable frame is cut short; " INSITU__CODEC_BAD);
      at += skip;
      continue;
    }
    if (magic != 0xfd2fb528)
      return insitu__error_set(
          err, INSITU_E_CORRUPT, "zstd: no frame at byte %" PRIu64 " of %" PRIu64 "; " INSITU__CODEC_BAD, at, n);
    size_t frame = ZSTD_findFrameCompressedSize(src + at, (size_t)(n - at));
    unsigned long long size = ZSTD_getFrameContentSize(src + at, (size_t)(n - at));
    if (size < ZSTD_CONTENTSIZE_ERROR && size > cap - *got)
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "zstd: wrong chunk length: the frames hold %llu bytes or more, expected %" PRIu64 "; " INSITU__CODEC_BAD, size, cap);
    size_t wrote = ZSTD_isError(frame) ? frame : ZSTD_decompressDCtx(zstd, dst + *got, (size_t)(cap - *got), src + at, frame);
    if (ZSTD_isError(wrote))
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "zstd: %s in the frame at byte %" PRIu64 " of %" PRIu64 " (%" PRIu64 " bytes expected); " INSITU__CODEC_BAD,
          ZSTD_getErrorName(wrote), at, n, cap);
    at += frame;
    *got += wrote;
  }
  return INSITU_OK;
}

/* numcodecs lz4: the decoded size as a little-endian u32, then one raw block. */
static insitu_status insitu__codec_lz4(
    const uint8_t *src, uint64_t n, uint8_t *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  if (n < 4 || n - 4 > INT_MAX)
    return insitu__error_set(err, INSITU_E_CORRUPT, "lz4: %" PRIu64 " stored bytes; " INSITU__CODEC_BAD, n);
  *got = insitu__base_load32(src);
  if (*got > cap || *got > INT_MAX)
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "lz4: wrong chunk length: got %" PRIu64 " bytes, expected %" PRIu64 "; " INSITU__CODEC_BAD, *got, cap);
  if (LZ4_decompress_safe((const char *)src + 4, (char *)dst, (int)(n - 4), (int)*got) != (int)*got)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "lz4: a block that does not decode to its %" PRIu64 " bytes; " INSITU__CODEC_BAD, *got);
  return INSITU_OK;
}

/* gzip (RFC 1952: members follow each other, zeros may pad the end) or one zlib stream (RFC 1950). */
#if defined(INSITU_WITH_LIBDEFLATE)
static insitu_status insitu__codec_inflate(struct insitu__codec_scratch *s, bool gzip, const uint8_t *src, uint64_t n,
    uint8_t *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  const char *name = gzip ? "gzip" : "zlib";
  uint64_t at = 0;
  *got = 0;
  do {
    size_t in = 0, out = 0;
    enum libdeflate_result rc = (gzip ? libdeflate_gzip_decompress_ex : libdeflate_zlib_decompress_ex)(
        s->deflate, src + at, (size_t)(n - at), dst + *got, (size_t)(cap - *got), &in, &out);
    if (rc != LIBDEFLATE_SUCCESS)
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "%s: %s the stream at byte %" PRIu64 " of %" PRIu64 " (%" PRIu64 " bytes expected in all); " INSITU__CODEC_BAD, name,
          rc == LIBDEFLATE_INSUFFICIENT_SPACE ? "wrong chunk length, too long in" : "bad or missing bytes in", at, n, cap);
    at += in;
    *got += out;
    while (gzip && at < n && !src[at]) at++;
  } while (gzip && at < n);
  if (at == n) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_CORRUPT, "zlib: %" PRIu64 " bytes after the end of the stream; " INSITU__CODEC_BAD, n - at);
}
#elif defined(INSITU_WITH_ZLIB)
static insitu_status insitu__codec_inflate(struct insitu__codec_scratch *s, bool gzip, const uint8_t *src, uint64_t n,
    uint8_t *dst, uint64_t cap, uint64_t *got, insitu_error *err) {
  const char *name = gzip ? "gzip" : "zlib";
  z_stream *z = &s->zlib;
  if (n > UINT32_MAX || cap > UINT32_MAX)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "%s: more than 4 GiB in one chunk: write the array with smaller chunks", name);
  z->next_in = (Bytef *)(uintptr_t)src; /* zlib only reads it; its type lacks the const */
  z->avail_in = (uInt)n;
  z->next_out = dst;
  z->avail_out = (uInt)cap;
  do {
    if (inflateReset2(z, gzip ? 16 + 15 : 15) != Z_OK)
      return insitu__error_set(err, INSITU_E_CODEC, "%s: zlib refuses to start: check which zlib is linked", name);
    int rc = inflate(z, Z_FINISH);
    if (rc != Z_STREAM_END)
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "%s: %s; %" PRIu64 " of %" PRIu64 " stored bytes gave %" PRIu64 " of %" PRIu64 "; " INSITU__CODEC_BAD, name,
          rc == Z_NEED_DICT ? "a dictionary is needed"
          : z->msg ? z->msg
          : z->avail_in ? "wrong chunk length, too long"
                        : "cut short",
          n - z->avail_in, n, cap - z->avail_out, cap);
    while (gzip && z->avail_in && !*z->next_in) z->next_in++, z->avail_in--;
  } while (gzip && z->avail_in);
  if (z->avail_in)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "zlib: %u bytes after the end of the stream; " INSITU__CODEC_BAD, z->avail_in);
  *got = cap - z->avail_out;
  return INSITU_OK;
}
#endif

#ifdef INSITU_WITH_BZIP2
static void *insitu__codec_bunzip_alloc(void *user, int items, int size) { /* from the front of what is left */
  struct insitu__codec_buffer *left = (struct insitu__codec_buffer *)user;
  uint64_t bytes = insitu__base_ceil_div((uint64_t)items * (uint64_t)size, 64) * 64;
  if (items < 0 || size < 0 || bytes > left->size) return NULL;
  left->size -= bytes;
  left->at += bytes;
  return left->at - bytes;
}
static void insitu__codec_bunzip_free(void *user, void *p) {
  (void)user, (void)p;
}

/* bzip2: streams follow each other. The library takes its memory anew for each of them: from the scratch. */
static insitu_status insitu__codec_bunzip(struct insitu__codec_scratch *s, const uint8_t *src, uint64_t n, uint8_t *dst,
    uint64_t cap, uint64_t *got, insitu_error *err) {
  if (n > UINT32_MAX || cap > UINT32_MAX)
    return insitu__error_set(err, INSITU_E_CORRUPT, "bz2: more than 4 GiB in one chunk: write the array with smaller chunks");
  bz_stream z = {.next_in = (char *)(uintptr_t)src, .avail_in = (unsigned)n, .next_out = (char *)dst, .avail_out = (unsigned)cap};
  do {
    struct insitu__codec_buffer left = s->bunzip;
    z.bzalloc = insitu__codec_bunzip_alloc;
    z.bzfree = insitu__codec_bunzip_free;
    z.opaque = &left;
    int rc = BZ2_bzDecompressInit(&z, 0, 0);
    if (rc == BZ_OK) rc = BZ2_bzDecompress(&z);
    BZ2_bzDecompressEnd(&z);
    if (rc != BZ_STREAM_END)
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "bz2: %s; %" PRIu64 " of %" PRIu64 " stored bytes gave %" PRIu64 " of %" PRIu64 "; " INSITU__CODEC_BAD,
          rc == BZ_DATA_ERROR_MAGIC ? "no bzip2 stream"
          : rc != BZ_OK             ? "bad bytes"
          : z.avail_in              ? "wrong chunk length, too long"
                                    : "cut short",
          n - z.avail_in, n, cap - z.avail_out, cap);
  } while (z.avail_in);
  *got = cap - z.avail_out;
  return INSITU_OK;
}
#endif

/* ---- checksums ---- */

/* Fletcher's sums of big-endian 16-bit words modulo 65535, as HDF5 takes them: an odd byte is the upper half of a word, and 65535
 * stands for 0 unless all words were 0. */
static uint32_t insitu__codec_fletcher32(const uint8_t *p, uint64_t n) {
  uint64_t low = 0, high = 0;
  while (n) {
    uint64_t part = insitu__base_min(n, 1u << 20), i = 0; /* even, and neither sum can reach 2^64 in it */
    for (; i + 1 < part; i += 2) low += (uint64_t)p[i] << 8 | p[i + 1], high += low;
    if (i < part) low += (uint64_t)p[i] << 8, high += low;
    low = low ? (low - 1) % 65535 + 1 : 0;
    high = high ? (high - 1) % 65535 + 1 : 0;
    p += part;
    n -= part;
  }
  return (uint32_t)(high << 16 | low);
}

/* Whether the n bytes at src are a checksum and what it is of. */
static insitu_status insitu__codec_checksum(
    const struct insitu__codec *codec, const uint8_t *src, uint64_t n, insitu_error *err) {
  const char *name = codec->name;
  if (n < 4)
    return insitu__error_set(err, INSITU_E_CORRUPT, "%s: %" PRIu64 " bytes hold no checksum; " INSITU__CODEC_BAD, name, n);
  const uint8_t *of = codec->sum_first ? src + 4 : src;
  uint32_t is, stored = insitu__base_load32(codec->sum_first ? src : src + n - 4);
  n -= 4;
  switch (codec->kind) {
  case INSITU__CODEC_CRC32C: is = insitu__codec_crc32c(of, n); break;
  case INSITU__CODEC_FLETCHER32: is = insitu__codec_fletcher32(of, n); break;
#if defined(INSITU_WITH_LIBDEFLATE)
  case INSITU__CODEC_CRC32: is = libdeflate_crc32(0, of, (size_t)n); break;
  case INSITU__CODEC_ADLER32: is = libdeflate_adler32(1, of, (size_t)n); break;
#elif defined(INSITU_WITH_ZLIB)
  case INSITU__CODEC_CRC32: is = (uint32_t)crc32_z(0, of, (size_t)n); break;
  case INSITU__CODEC_ADLER32: is = (uint32_t)adler32_z(1, of, (size_t)n); break;
#endif
  default: return insitu__error_set(err, INSITU_E_CODEC, "decode: checksum %s is not in this build: rebuild with it", name);
  }
  if (is == stored) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_CORRUPT, "%s: the checksum is %08" PRIx32 ", stored is %08" PRIx32 "; " INSITU__CODEC_BAD, name, is, stored);
}

/* ---- blosc1 ---- */

/* In small calls a 4 MiB chunk was copied 4 to 13 % faster than in one call (glibc 2.36, Zen 3, cold destination); with 1 KiB each
 * a warm one of 64 KiB took 10 % longer than with 2 KiB. */
static void insitu__codec_copy(uint8_t *dst, const uint8_t *src, uint64_t n) {
  for (uint64_t at = 0; at < n; at += INSITU__CODEC_COPY)
    memcpy(dst + at, src + at, (size_t)insitu__base_min(INSITU__CODEC_COPY, n - at));
}

enum { INSITU__CODEC_PLAIN, INSITU__CODEC_BYTES, INSITU__CODEC_BITS }; /* filter */
enum {                                                                 /* format in flags >> 5 */
  INSITU__CODEC_INNER_BLOSCLZ,
  INSITU__CODEC_INNER_LZ4,
  INSITU__CODEC_INNER_SNAPPY,
  INSITU__CODEC_INNER_ZLIB,
  INSITU__CODEC_INNER_ZSTD
};

struct insitu__codec_blosc { /* a checked header: everything about the layout comes from it, nothing from metadata */
  const uint8_t *src;
  uint32_t n, nbytes, blocksize, blocks, size; /* size: bytes of an element */
  int filter, inner;
  bool memcpyed, may_split;
};

static insitu_status insitu__codec_blosc_inner(int inner, insitu_error *err) {
  if (inner > INSITU__CODEC_INNER_ZSTD)
    return insitu__error_set(err, INSITU_E_CORRUPT, "blosc: unknown inner codec %d; " INSITU__CODEC_BAD, inner);
  const char *snappy = inner == INSITU__CODEC_INNER_SNAPPY ? INSITU__CODEC_LACK_SNAPPY : NULL;
  const char *zlib = inner == INSITU__CODEC_INNER_ZLIB ? INSITU__CODEC_LACK_DEFLATE : NULL;
  if (!snappy && !zlib) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_CODEC, "blosc: inner codec %s is not in this build: %s", snappy ? "snappy" : "zlib", snappy ? snappy : zlib);
}

static insitu_status insitu__codec_blosc_open(struct insitu__codec_blosc *b, const uint8_t *src, uint64_t n, insitu_error *err) {
  if (n < 16 || n > INT32_MAX)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "blosc: %" PRIu64 " stored bytes, the header alone has 16; " INSITU__CODEC_BAD, n);
  if (src[0] > 2 && src[0] < 8) /* c-blosc2 has written 3 to 5 so far */
    return insitu__error_set(
        err, INSITU_E_CODEC, "blosc: format %d is blosc2: write the array again with blosc, zstd or lz4", src[0]);
  uint32_t flags = src[2], stored = insitu__base_load32(src + 12);
  *b = (struct insitu__codec_blosc){.src = src, .n = (uint32_t)n, .nbytes = insitu__base_load32(src + 4)};
  b->blocksize = insitu__base_load32(src + 8);
  b->size = src[3];
  b->memcpyed = (flags & 2) != 0;
  b->may_split = !(flags & 0x10);
  b->inner = (int)(flags >> 5);
  b->filter = flags & 1 && b->size > 1 ? INSITU__CODEC_BYTES : flags & 4 ? INSITU__CODEC_BITS : INSITU__CODEC_PLAIN;
  if (src[0] != 2 || !b->size || b->nbytes > INT32_MAX || flags & 8 || (flags & 5) == 5)
    return insitu__error_set(err, INSITU_E_CORRUPT, "blosc: a header that no blosc1 writes; " INSITU__CODEC_BAD);
  if (stored != n)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "blosc: %" PRIu64 " bytes are stored, the header says %" PRIu32 "; " INSITU__CODEC_BAD, n, stored);
  if (!b->nbytes) return INSITU_OK;
  if (b->memcpyed) {
    if (b->nbytes == n - 16) return INSITU_OK;
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "blosc: a plain chunk of %" PRIu32 " bytes in %" PRIu64 " stored; " INSITU__CODEC_BAD, b->nbytes, n);
  }
  b->blocks = b->blocksize ? (uint32_t)insitu__base_ceil_div(b->nbytes, b->blocksize) : UINT32_MAX;
  if (16 + (uint64_t)b->blocks * 4 > n)
    return insitu__error_set(err, INSITU_E_CORRUPT, "blosc: no room for the starts of the blocks; " INSITU__CODEC_BAD);
  return insitu__codec_blosc_inner(b->inner, err);
}

/* `length` bytes from `distance` before op to op, where `room` bytes may be written: 16 at a time, as far as that leaves room. */
static inline void insitu__codec_blosclz_repeat(uint8_t *op, uint64_t distance, uint64_t length, uint64_t room) {
  uint8_t few[16];
  uint64_t narrow = room - length < sizeof few ? insitu__base_min(length, sizeof few) : 0;
  uint8_t *last = op + (length - narrow), *from = op - distance, *narrow_from = last - distance;
  if (distance == 1) {
    memset(op, *from, (size_t)length);
    return;
  }
  length -= narrow;
  for (; distance < sizeof few && distance < length; distance *= 2) { /* a short pattern: write it twice as long */
    memcpy(few, from, sizeof few);
    memcpy(op, few, sizeof few);
    op += distance;
    length -= distance;
  }
  for (uint64_t i = 0; i < length; i += sizeof few) {
    memcpy(few, from + i, sizeof few);
    memcpy(op + i, few, sizeof few);
  }
  for (uint64_t i = 0; i < narrow; i++) last[i] = narrow_from[i];
}

/* blosc's own compressor: literals and matches in turns. A control byte below 32 stands before control + 1 literals. Of others the
 * upper three bits are a match's length - 2, where 7 is continued by bytes that are added, up to the first that is not 255; the
 * lower five and one byte more are its distance - 1, to which two bytes are added (the upper one first) where all of these bits
 * are set. The very first control byte is one of literals, whatever its upper bits. Returns the decoded length, or UINT64_MAX. */
static uint64_t insitu__codec_blosclz(const uint8_t *src, uint64_t n, uint8_t *dst, uint64_t cap) {
  const uint8_t *ip = src, *end = src + n;
  uint8_t *op = dst, *stop = dst + cap;
  for (uint32_t control = n ? *ip++ & 31 : 0; n; control = *ip++) {
    if (control < 32) {
      uint64_t run = control + 1;
      if (run > (uint64_t)(end - ip) || run > (uint64_t)(stop - op)) return UINT64_MAX;
      if (end - ip >= 32 && stop - op >= 32) memcpy(op, ip, 32); /* of a fixed length: without a call */
      else memcpy(op, ip, (size_t)run);
      op += run;
      ip += run;
    } else {
      uint64_t length = (control >> 5) + 2, distance = (control & 31) << 8, more = length == 9 ? 255 : 0;
      while (more == 255) {
        if (ip == end) return UINT64_MAX;
        more = *ip++;
        length += more;
      }
      if (ip == end) return UINT64_MAX;
      distance += *ip++;
      if (distance == 0x1fff) {
        if (end - ip < 2) return UINT64_MAX;
        distance += (uint64_t)ip[0] << 8 | ip[1];
        ip += 2;
      }
      distance++;
      if (distance > (uint64_t)(op - dst) || length > (uint64_t)(stop - op)) return UINT64_MAX;
      insitu__codec_blosclz_repeat(op, distance, length, (uint64_t)(stop - op));
      op += length;
    }
    if (ip == end) return (uint64_t)(op - dst);
  }
  return UINT64_MAX;
}

/* One compressed run (a split, or a whole block) at *at: decompressed to dst, or used in place where it is stored plain. */
static insitu_status insitu__codec_blosc_run(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint64_t *at,
    uint32_t bytes, uint8_t *dst, const uint8_t **where, insitu_error *err) {
  uint64_t got = 0, n = b->n - *at < 4 ? UINT64_MAX : insitu__base_load32(b->src + *at);
  if (n == UINT64_MAX || !n || n > b->n - *at - 4)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "blosc: a run at byte %" PRIu64 " ends outside the chunk; " INSITU__CODEC_BAD, *at);
  const uint8_t *src = b->src + *at + 4;
  *at += 4 + n;
  *where = n == bytes ? src : dst;
  if (n == bytes) return INSITU_OK;
  insitu_status status = INSITU_OK;
  int lz4;
  switch (b->inner) {
  case INSITU__CODEC_INNER_BLOSCLZ: got = insitu__codec_blosclz(src, n, dst, bytes); break;
  case INSITU__CODEC_INNER_LZ4:
    lz4 = LZ4_decompress_safe((const char *)src, (char *)dst, (int)n, (int)bytes);
    got = lz4 < 0 ? UINT64_MAX : (uint64_t)lz4;
    break;
#ifdef INSITU_WITH_SNAPPY
  case INSITU__CODEC_INNER_SNAPPY: {
    size_t length = bytes;
    got = snappy_uncompress((const char *)src, (size_t)n, (char *)dst, &length) == SNAPPY_OK ? length : UINT64_MAX;
    break;
  }
#endif
#ifdef INSITU__CODEC_HAS_DEFLATE
  case INSITU__CODEC_INNER_ZLIB: status = insitu__codec_inflate(s, false, src, n, dst, bytes, &got, err); break;
#endif
  default: status = insitu__codec_zstd(s->zstd, src, n, dst, bytes, &got, err); break;
  }
  if (status < 0) return status;
  if (got == bytes) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CORRUPT,
      "blosc: a run at byte %" PRIu64 " does not decode to its %" PRIu32 " bytes; " INSITU__CODEC_BAD, *at - 4 - n, bytes);
}

/* Elements [first, first + count) of a filtered block from its planes. */
static void insitu__codec_blosc_unfilter(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint8_t *dst,
    const uint8_t *const *plane, uint64_t all, uint64_t first, uint64_t count) {
  if (b->filter == INSITU__CODEC_BITS) insitu__codec_unbitshuffle(s, dst, plane, b->size, all, first, count);
  else insitu__codec_unshuffle(dst, plane, b->size, first, count, s->avx2);
}

/* The runs of a block, filtered or not, that starts at byte `at`. With to, they are put there one after the other. Without,
 * each is where run[k] says afterwards: in the chunk itself or in s->planes. */
static insitu_status insitu__codec_blosc_runs(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint64_t at,
    uint32_t bytes, uint32_t runs, uint8_t *to, const uint8_t **run, insitu_error *err) {
  uint32_t each = bytes / runs;
  /* a cache set is chosen by address bits 6 to 11: an odd multiple of 64 bytes between planes spreads them over all sets */
  uint64_t stride = to || runs == 1 ? each : ((each / INSITU__CODEC_SKEW + 1) | 1) * (uint64_t)INSITU__CODEC_SKEW;
  if (bytes % runs) return insitu__error_set(err, INSITU_E_CORRUPT, "blosc: a block that cannot be split; " INSITU__CODEC_BAD);
  for (uint32_t k = 0; k < runs; k++) {
    uint8_t *dst = (to ? to : s->planes.at) + k * stride;
    insitu_status status = insitu__codec_blosc_run(s, b, &at, each, dst, &run[k], err);
    if (status < 0) return status;
    if (to && run[k] != dst) insitu__codec_copy(dst, run[k], each);
  }
  return INSITU_OK;
}

/* A block without a filter: straight to its place, or handed over whole. */
static insitu_status insitu__codec_blosc_plain(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint64_t at,
    uint64_t offset, uint32_t bytes, uint32_t runs, uint8_t *to, const struct insitu__codec_sink *sink, insitu_error *err) {
  const uint8_t *run[16];
  insitu_status status = insitu__codec_blosc_runs(s, b, at, bytes, runs, to || runs == 1 ? to : s->planes.at, run, err);
  return status < 0 || to ? status : sink->piece(sink->user, runs == 1 ? run[0] : s->planes.at, offset, bytes, err);
}

static uint64_t insitu__codec_lcm(uint64_t a, uint64_t b) { /* of numbers below 2^32 */
  uint64_t x = a, y = b;
  while (y) {
    uint64_t r = x % y;
    x = y;
    y = r;
  }
  return a / x * b;
}

/* Bytes that pieces of a filtered block are a multiple of: whole elements, theirs and ours, and whole bytes of bit rows. */
static uint64_t insitu__codec_blosc_unit(const struct insitu__codec_blosc *b, uint32_t element) {
  return insitu__codec_lcm((uint64_t)b->size * (b->filter == INSITU__CODEC_BITS ? 8 : 1), element);
}

/* Decodes block i to `to`, or where the sink wants it. */
static insitu_status insitu__codec_blosc_block(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint32_t i,
    uint8_t *to, const struct insitu__codec_sink *sink, insitu_error *err) {
  uint64_t offset = (uint64_t)i * b->blocksize, at = insitu__base_load32(b->src + 16 + 4 * (uint64_t)i);
  uint32_t bytes = (uint32_t)insitu__base_min(b->blocksize, b->nbytes - offset), all = bytes / b->size;
  /* MAX_SPLITS 16 and MIN_BUFFERSIZE 128 in c-blosc's blosc.c; a shorter last block is never split */
  bool split = b->may_split && b->size <= 16 && all >= 128 && bytes == b->blocksize;
  uint32_t runs = split ? b->size : 1;
  if (at < 16 || at > b->n)
    return insitu__error_set(err, INSITU_E_CORRUPT, "blosc: block %" PRIu32 " starts outside the chunk; " INSITU__CODEC_BAD, i);
  if (!to && sink->direct) to = (uint8_t *)sink->direct(sink->user, offset, bytes);
  if (b->filter == INSITU__CODEC_PLAIN || !all || (b->filter == INSITU__CODEC_BITS && all % 8))
    return insitu__codec_blosc_plain(s, b, at, offset, bytes, runs, to, sink, err);

  const uint8_t *plane[256];
  insitu_status status = insitu__codec_blosc_runs(s, b, at, bytes, runs, NULL, plane, err);
  if (status < 0) return status;
  for (uint32_t k = 1; runs == 1 && k < b->size; k++) plane[k] = plane[0] + (uint64_t)k * all;
  uint32_t rest = bytes - all * b->size; /* never shuffled; only unsplit blocks have it */
  const uint8_t *tail = plane[0] + (bytes - rest);
  uint64_t unit = to ? 1 : insitu__codec_blosc_unit(b, sink->element ? sink->element : 1);
  uint64_t step = to ? all : INSITU__CODEC_PIECE / unit * unit / b->size;
  for (uint64_t first = 0; first < all; first += step) {
    uint64_t count = insitu__base_min(step, all - first), n = count * b->size, more = first + count == all ? rest : 0;
    uint64_t where = offset + first * b->size;
    void *direct = to || !sink->direct ? NULL : sink->direct(sink->user, where, n + more);
    uint8_t *dst = to ? to : direct ? (uint8_t *)direct : s->piece.at;
    insitu__codec_blosc_unfilter(s, b, dst, plane, all, first, count);
    if (more) memcpy(dst + n, tail, (size_t)more);
    if (dst == s->piece.at && (status = sink->piece(sink->user, dst, where, n + more, err)) < 0) return status;
  }
  return INSITU_OK;
}

/* To `to` if given, else to the sink; spare holds nbytes. The caller has checked nbytes and that the chunk is not stored
 * plain. */
static insitu_status insitu__codec_blosc_blocks(struct insitu__codec_scratch *s, const struct insitu__codec_blosc *b, uint8_t *to,
    uint8_t *spare, const struct insitu__codec_sink *sink, insitu_error *err) {
  bool whole = false;
  if (!to) { /* pieces must start at multiples of the sink's element: where blocks do not, put the chunk together first */
    uint32_t element = sink->element ? sink->element : 1;
    whole = (b->blocks > 1 && b->blocksize % element) || insitu__codec_blosc_unit(b, element) > INSITU__CODEC_PIECE;
    if (whole) to = spare;
  }
  for (uint32_t i = 0; i < b->blocks; i++) {
    insitu_status status = insitu__codec_blosc_block(s, b, i, to ? to + (uint64_t)i * b->blocksize : NULL, sink, err);
    if (status < 0) return status;
  }
  return whole ? sink->piece(sink->user, to, 0, b->nbytes, err) : INSITU_OK;
}

/* ---- chains ---- */

static insitu_status insitu__codec_wrong_length(const char *stage, uint64_t got, uint64_t expected, insitu_error *err) {
  return insitu__error_set(err, INSITU_E_CORRUPT,
      "%s: wrong chunk length: got %" PRIu64 " bytes, expected %" PRIu64 "; " INSITU__CODEC_BAD, stage, got, expected);
}

/* ---- filters: from elements that were made easier to compress back to what they were ---- */
/* Elements go in blocks through registers and L1: loaded in native order as 64 bits, float or double, computed with, stored.
 * Additions and divisions only, so that no compiler can contract them: results are the same bits everywhere. */

#define INSITU__CODEC_BLOCK 256
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define INSITU__CODEC_LOOPS                                                                                                      \
  __attribute__((optimize("O3"))) /* gcc's -O2 leaves these loops scalar, which costs a factor of 2 to 5 */
#else
#define INSITU__CODEC_LOOPS
#endif

union insitu__codec_block {
  int64_t i[INSITU__CODEC_BLOCK];
  uint64_t u[INSITU__CODEC_BLOCK];
  float f[INSITU__CODEC_BLOCK];
  double d[INSITU__CODEC_BLOCK];
};
enum { INSITU__CODEC_SIGNED, INSITU__CODEC_UNSIGNED, INSITU__CODEC_FLOAT, INSITU__CODEC_DOUBLE }; /* what a block holds */
static int insitu__codec_class(int32_t dtype) { /* float16 is computed with as float */
  if (insitu__codec_is_float(dtype)) return dtype == INSITU_F64 ? INSITU__CODEC_DOUBLE : INSITU__CODEC_FLOAT;
  return insitu__codec_is_signed(dtype) ? INSITU__CODEC_SIGNED : INSITU__CODEC_UNSIGNED;
}

/* The nearest float of 16 bits, `fraction` of them (10: binary16, 7: bfloat16), ties to even; too large: infinity; of a NaN the
 * upper bits. */
static uint16_t insitu__codec_to_16(double value, unsigned fraction) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  int most = (1 << (14 - fraction)) - 1, least = 1 - most; /* exponents */
  uint16_t sign = (uint16_t)(bits >> 63 << 15);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1), rounded = (uint64_t)(2 * most + 1) << fraction,
           nan = mantissa >> (52 - fraction);
  if (exponent == 1024 && mantissa) rounded |= nan ? nan : 1;
  else if (exponent < least - 1 - (int)fraction) rounded = 0; /* below that even rounding up gives zero */
  else if (exponent <= most) {
    unsigned shift = 52 - fraction + (exponent >= least ? 0 : (unsigned)(least - exponent));
    mantissa |= UINT64_C(1) << 52;
    uint64_t rest = mantissa & ((UINT64_C(1) << shift) - 1), tie = UINT64_C(1) << (shift - 1);
    rounded = mantissa >> shift;
    rounded += rest > tie || (rest == tie && (rounded & 1));
    if (exponent > least) rounded += (uint64_t)(exponent - least) << fraction; /* the mantissa's top bit is the exponent's 1 */
  }
  return (uint16_t)(sign | rounded);
}
static uint16_t insitu__codec_to_half(double value) {
  return insitu__codec_to_16(value, 10);
}
static inline float insitu__codec_round_half(float x) {
  return insitu__codec_half(insitu__codec_to_half((double)x));
}

static inline uint8_t insitu__codec_swap8(uint8_t x) {
  return x;
}
#define INSITU__CODEC_LOAD(code, type, raw, flip, member)                                                                        \
  case code:                                                                                                                     \
    for (uint64_t k = 0; k < n; k++) {                                                                                           \
      raw bits;                                                                                                                  \
      type x;                                                                                                                    \
      memcpy(&bits, src + k * sizeof bits, sizeof bits);                                                                         \
      if (t.swap) bits = flip(bits);                                                                                             \
      memcpy(&x, &bits, sizeof x);                                                                                               \
      b->member[k] = x;                                                                                                          \
    }                                                                                                                            \
    break;
INSITU__CODEC_LOOPS static void insitu__codec_load(
    struct insitu__codec_type t, const uint8_t *src, uint64_t n, union insitu__codec_block *b) {
  switch (t.dtype) {
    INSITU__CODEC_LOAD(INSITU_I8, int8_t, uint8_t, insitu__codec_swap8, i)
    INSITU__CODEC_LOAD(INSITU_I16, int16_t, uint16_t, __builtin_bswap16, i)
    INSITU__CODEC_LOAD(INSITU_I32, int32_t, uint32_t, __builtin_bswap32, i)
    INSITU__CODEC_LOAD(INSITU_I64, int64_t, uint64_t, __builtin_bswap64, i)
    INSITU__CODEC_LOAD(INSITU_U8, uint8_t, uint8_t, insitu__codec_swap8, u)
    INSITU__CODEC_LOAD(INSITU_U16, uint16_t, uint16_t, __builtin_bswap16, u)
    INSITU__CODEC_LOAD(INSITU_U32, uint32_t, uint32_t, __builtin_bswap32, u)
    INSITU__CODEC_LOAD(INSITU_U64, uint64_t, uint64_t, __builtin_bswap64, u)
    INSITU__CODEC_LOAD(INSITU_F32, float, uint32_t, __builtin_bswap32, f)
    INSITU__CODEC_LOAD(INSITU_F64, double, uint64_t, __builtin_bswap64, d)
  case INSITU_F16:
    for (uint64_t k = 0; k < n; k++) {
      uint16_t h;
      memcpy(&h, src + 2 * k, 2);
      b->f[k] = insitu__codec_half(t.swap ? __builtin_bswap16(h) : h);
    }
    break;
  default: /* bool */
    for (uint64_t k = 0; k < n; k++) b->u[k] = src[k] != 0;
  }
}
#define INSITU__CODEC_STORE(code, type, raw, flip, member)                                                                       \
  case code:                                                                                                                     \
    for (uint64_t k = 0; k < n; k++) {                                                                                           \
      type x = (type)b->member[k];                                                                                               \
      raw bits;                                                                                                                  \
      memcpy(&bits, &x, sizeof bits);                                                                                            \
      if (t.swap) bits = flip(bits);                                                                                             \
      memcpy(dst + k * sizeof bits, &bits, sizeof bits);                                                                         \
    }                                                                                                                            \
    break;
/* Integers lose their upper bits. is: what b holds; of a float16 it may be double. */
INSITU__CODEC_LOOPS static void insitu__codec_store(
    struct insitu__codec_type t, const union insitu__codec_block *b, int is, uint64_t n, uint8_t *dst) {
  switch (t.dtype) {
    INSITU__CODEC_STORE(INSITU_I8, uint8_t, uint8_t, insitu__codec_swap8, u)
    INSITU__CODEC_STORE(INSITU_I16, uint16_t, uint16_t, __builtin_bswap16, u)
    INSITU__CODEC_STORE(INSITU_I32, uint32_t, uint32_t, __builtin_bswap32, u)
    INSITU__CODEC_STORE(INSITU_I64, uint64_t, uint64_t, __builtin_bswap64, u)
    INSITU__CODEC_STORE(INSITU_U8, uint8_t, uint8_t, insitu__codec_swap8, u)
    INSITU__CODEC_STORE(INSITU_U16, uint16_t, uint16_t, __builtin_bswap16, u)
    INSITU__CODEC_STORE(INSITU_U32, uint32_t, uint32_t, __builtin_bswap32, u)
    INSITU__CODEC_STORE(INSITU_U64, uint64_t, uint64_t, __builtin_bswap64, u)
    INSITU__CODEC_STORE(INSITU_F32, float, uint32_t, __builtin_bswap32, f)
    INSITU__CODEC_STORE(INSITU_F64, double, uint64_t, __builtin_bswap64, d)
  case INSITU_F16:
    for (uint64_t k = 0; k < n; k++) {
      uint16_t h = insitu__codec_to_half(is == INSITU__CODEC_DOUBLE ? b->d[k] : (double)b->f[k]);
      if (t.swap) h = __builtin_bswap16(h);
      memcpy(dst + 2 * k, &h, 2);
    }
    break;
  default: /* bool */
    for (uint64_t k = 0; k < n; k++) dst[k] = b->u[k] != 0;
  }
}
#undef INSITU__CODEC_LOAD
#undef INSITU__CODEC_STORE

/* A float as an integer: truncated, its lower bits taken. What does not fit the type that is computed with (int32 up to 32 bits,
 * but int64 for uint32) or is no number has no defined value in C; here as in numpy on x86-64 without vectors: the least value
 * of that type, and 0 for a uint64 that is too large. */
static uint64_t insitu__codec_truncate(double x, int32_t dtype) {
  bool narrow = (dtype & 0xff) < 32 || dtype == INSITU_I32;
  if (narrow) return x > -0x1.00000002p31 && x < 0x1p31 ? (uint64_t)(int64_t)x : (uint64_t)INT32_MIN;
  if (x >= -0x1p63 && x < 0x1p63) return (uint64_t)(int64_t)x;
  if (dtype == INSITU_U64 && x >= 0x1p63) return x < 0x1p64 ? (uint64_t)x : 0;
  return UINT64_C(1) << 63;
}
/* n elements of class `is` in *a as numpy casts them to dtype; the result's class, in *a again. */
INSITU__CODEC_LOOPS static int insitu__codec_convert(union insitu__codec_block *a, int is, int32_t dtype, uint64_t n) {
  union insitu__codec_block b;
  int to = insitu__codec_class(dtype);
  bool from_float = is >= INSITU__CODEC_FLOAT;
  if (is == to && dtype != INSITU_BOOL) return is;
  if (dtype == INSITU_F16 && is == INSITU__CODEC_DOUBLE) return is;
  if (to <= INSITU__CODEC_UNSIGNED && !from_float) return to; /* the same 64 bits; bool is told from zero when it is stored */
#define INSITU__CODEC_EACH(result, value)                                                                                        \
  for (uint64_t k = 0; k < n; k++) b.result[k] = value
  if (dtype == INSITU_BOOL && is == INSITU__CODEC_FLOAT) INSITU__CODEC_EACH(u, a->f[k] != 0);
  else if (dtype == INSITU_BOOL) INSITU__CODEC_EACH(u, a->d[k] != 0);
  else if (to <= INSITU__CODEC_UNSIGNED && is == INSITU__CODEC_FLOAT)
    INSITU__CODEC_EACH(u, insitu__codec_truncate((double)a->f[k], dtype));
  else if (to <= INSITU__CODEC_UNSIGNED) INSITU__CODEC_EACH(u, insitu__codec_truncate(a->d[k], dtype));
  else if (to == INSITU__CODEC_DOUBLE && is == INSITU__CODEC_FLOAT) INSITU__CODEC_EACH(d, (double)a->f[k]);
  else if (to == INSITU__CODEC_DOUBLE && is == INSITU__CODEC_SIGNED) INSITU__CODEC_EACH(d, (double)a->i[k]);
  else if (to == INSITU__CODEC_DOUBLE) INSITU__CODEC_EACH(d, (double)a->u[k]);
  else if (is == INSITU__CODEC_DOUBLE) INSITU__CODEC_EACH(f, (float)a->d[k]);
  else if (is == INSITU__CODEC_SIGNED) INSITU__CODEC_EACH(f, (float)a->i[k]);
  else INSITU__CODEC_EACH(f, (float)a->u[k]);
#undef INSITU__CODEC_EACH
  memcpy(a, &b, n * (to == INSITU__CODEC_FLOAT ? sizeof *b.f : sizeof *b.d));
  return to;
}

/* The type in which numpy adds elements of two types (numpy.result_type). */
static int32_t insitu__codec_promote(int32_t a, int32_t b) {
  if (a == INSITU_BOOL || a == b) return b;
  if (b == INSITU_BOOL) return a;
  int32_t wide = (a & 0xff) > (b & 0xff) ? a & 0xff : b & 0xff;
  if (insitu__codec_is_float(a) && insitu__codec_is_float(b)) return 0x200 | wide;
  if (insitu__codec_is_float(a) || insitu__codec_is_float(b)) {
    int32_t real = insitu__codec_is_float(a) ? a : b, other = (insitu__codec_is_float(a) ? b : a) & 0xff;
    int32_t least = other == 8 ? INSITU_F16 : other == 16 ? INSITU_F32 : INSITU_F64;
    return real > least ? real : least;
  }
  if (insitu__codec_is_signed(a) == insitu__codec_is_signed(b)) return (a & 0x100) | wide;
  int32_t natural = insitu__codec_is_signed(a) ? b : a, integer = insitu__codec_is_signed(a) ? a : b;
  if ((integer & 0xff) > (natural & 0xff)) return integer;
  return natural == INSITU_U64 ? INSITU_F64 : (natural & 0xff) * 2;
}

struct insitu__codec_flow { /* what a filter carries from one range of a chunk to the next */
  uint64_t u;
  float f;
  double d;
};
static struct insitu__codec_flow insitu__codec_flow(void) {
  return (struct insitu__codec_flow){0, -0.0f, -0.0}; /* -0 + x is x, -0 included */
}
/* numpy.cumsum of elements of c->from into an array of c->to: summed in the type that both are promoted to. */
INSITU__CODEC_LOOPS static int insitu__codec_sum(
    const struct insitu__codec *c, struct insitu__codec_flow *flow, union insitu__codec_block *b, uint64_t n) {
  int32_t dtype = insitu__codec_promote(c->to.dtype, c->from.dtype);
  int is = insitu__codec_convert(b, insitu__codec_class(c->from.dtype), dtype, n);
  if (dtype == INSITU_BOOL)
    for (uint64_t k = 0; k < n; k++) b->u[k] = flow->u |= b->u[k];
  else if (is <= INSITU__CODEC_UNSIGNED) {
    uint64_t kept = c->to.dtype == INSITU_BOOL ? UINT64_MAX >> (64 - (dtype & 0xff)) : UINT64_MAX;
    for (uint64_t k = 0; k < n; k++) b->u[k] = (flow->u += b->u[k]) & kept;
  } else if (is == INSITU__CODEC_DOUBLE)
    for (uint64_t k = 0; k < n; k++) b->d[k] = flow->d += b->d[k];
  else if (dtype == INSITU_F16)
    for (uint64_t k = 0; k < n; k++) b->f[k] = flow->f = insitu__codec_round_half(flow->f + b->f[k]);
  else
    for (uint64_t k = 0; k < n; k++) b->f[k] = flow->f += b->f[k];
  return is;
}

/* numcodecs' enc / scale + offset, in the type that numpy 2 computes it in: that of float elements, else double. */
INSITU__CODEC_LOOPS static int insitu__codec_scale(const struct insitu__codec *c, union insitu__codec_block *b, uint64_t n) {
  bool half = c->from.dtype == INSITU_F16;
  int is = insitu__codec_class(c->from.dtype);
  if (is != INSITU__CODEC_FLOAT) {
    double scale = c->scale.d, offset = c->offset.d;
    insitu__codec_convert(b, is, INSITU_F64, n);
    for (uint64_t k = 0; k < n; k++) b->d[k] = b->d[k] / scale + offset;
    return INSITU__CODEC_DOUBLE;
  }
  float scale = half ? insitu__codec_half(insitu__codec_to_half(c->scale.d)) : (float)c->scale.d;
  float offset = half ? insitu__codec_half(insitu__codec_to_half(c->offset.d)) : (float)c->offset.d;
  if (half)
    for (uint64_t k = 0; k < n; k++) b->f[k] = insitu__codec_round_half(insitu__codec_round_half(b->f[k] / scale) + offset);
  else
    for (uint64_t k = 0; k < n; k++) b->f[k] = b->f[k] / scale + offset;
  return is;
}
/* scale_offset of integers: the quotient must be whole, and the sum fit the type. */
INSITU__CODEC_LOOPS static bool insitu__codec_scale_integers(
    const struct insitu__codec *c, union insitu__codec_block *b, uint64_t n) {
  unsigned bits = (unsigned)c->to.dtype & 0xff;
  bool ok = true;
  if (insitu__codec_is_signed(c->to.dtype)) {
    int64_t scale = c->scale.i, most = (int64_t)(UINT64_MAX >> (65 - bits));
    for (uint64_t k = 0; k < n; k++) {
      int64_t x = b->i[k];
      if (scale != 1) { /* a division by -1 may overflow, and leaves nothing */
        bool whole = scale == -1 ? x != INT64_MIN : x % scale == 0;
        x = !whole ? 0 : scale == -1 ? -x : x / scale;
        ok = ok && whole && x <= most;
      }
      ok = !__builtin_add_overflow(x, c->offset.i, &x) && ok && x <= most && x >= -most - 1;
      b->i[k] = x;
    }
    return ok;
  }
  for (uint64_t k = 0; k < n; k++) {
    uint64_t x = b->u[k];
    if (c->scale.u != 1) {
      ok = ok && x % c->scale.u == 0;
      x /= c->scale.u;
    }
    ok = insitu__base_add(x, c->offset.u, &x) && ok && (bits == 64 || x >> bits == 0);
    b->u[k] = x;
  }
  return ok;
}
/* scale_offset of floats: in their own type, and what is finite stays so. */
INSITU__CODEC_LOOPS static bool insitu__codec_scale_floats(
    const struct insitu__codec *c, union insitu__codec_block *b, uint64_t n) {
  union insitu__codec_block before;
  bool ok = true;
  memcpy(&before, b, n * (c->to.dtype == INSITU_F64 ? sizeof *b->d : sizeof *b->f));
  if (insitu__codec_scale(c, b, n) == INSITU__CODEC_DOUBLE)
    for (uint64_t k = 0; k < n; k++) ok = ok && (__builtin_isfinite(b->d[k]) || !__builtin_isfinite(before.d[k]));
  else
    for (uint64_t k = 0; k < n; k++) ok = ok && (__builtin_isfinite(b->f[k]) || !__builtin_isfinite(before.f[k]));
  return ok;
}

/* -- cast_value -- */

/* x, which is no value of the float type, to one of its neighbours there: below <= x <= above. */
static double insitu__codec_pick(int rounding, double x, double below, double above, double nearest) {
  switch (rounding) {
  case INSITU__CODEC_AWAY:
    if (x - below != above - x) return nearest;
    return x < 0 ? below : above;
  case INSITU__CODEC_TO_ZERO: return x < 0 ? above : below;
  case INSITU__CODEC_UP: return above;
  case INSITU__CODEC_DOWN: return below;
  default: return nearest;
  }
}
/* The float after x, a value of the type, in a direction: the bits of the magnitude count up. */
static double insitu__codec_next(double x, int32_t dtype, bool up) {
  bool half = dtype == INSITU_F16;
  float single = (float)x;
  uint32_t bits, sign = half ? 0x8000 : 0x80000000;
  memcpy(&bits, &single, sizeof bits);
  if (half) bits = insitu__codec_to_half(x);
  if ((bits & (sign - 1)) == 0) bits = up ? 1 : sign | 1;
  else bits += ((bits & sign) != 0) == up ? UINT32_MAX : 1;
  memcpy(&single, &bits, sizeof single);
  return (double)(half ? insitu__codec_half((uint16_t)bits) : single);
}
/* A double as a value of a narrower float type. Above the largest value the grid is thought to go on for one step, so that rounding
 * decides what is out of range. */
static double insitu__codec_narrow(double x, int32_t dtype, int rounding) {
  double largest = dtype == INSITU_F32 ? 0x1.fffffep127 : 65504, beyond = dtype == INSITU_F32 ? 0x1p128 : 65536, magnitude;
  if (!__builtin_isfinite(x) || dtype == INSITU_F64) return x;
  magnitude = __builtin_fabs(x);
  double nearest = dtype == INSITU_F32 ? (double)(float)x : (double)insitu__codec_half(insitu__codec_to_half(x));
  if (magnitude >= beyond) return x;
  if (magnitude > largest) {
    double edge = x < 0 ? -largest : largest, next = x < 0 ? -beyond : beyond;
    nearest = __builtin_isfinite(nearest) ? edge : next;
    return insitu__codec_pick(rounding, x, x < 0 ? next : edge, x < 0 ? edge : next, nearest);
  }
  if (nearest == x) return x;
  bool over = nearest > x;
  double other = insitu__codec_next(nearest, dtype, !over);
  return insitu__codec_pick(rounding, x, over ? other : nearest, over ? nearest : other, nearest);
}
static double insitu__codec_whole(double x, int rounding) { /* x rounded to an integer */
  if (__builtin_fabs(x) >= 0x1p52) return x;
  double below = (double)(int64_t)x;
  if (below == x) return x;
  below -= below > x;
  double above = below + 1, nearest = x - below < above - x ? below : x - below > above - x ? above : below;
  if (x - below == above - x && (int64_t)below % 2) nearest = above;
  return insitu__codec_pick(rounding, x, below, above, nearest);
}
/* An integer (negative: it is signed, bits hold an int64) as a double, rounded to dtype. */
static double insitu__codec_integer(uint64_t bits, bool negative, int32_t dtype, int rounding) {
  uint64_t magnitude = negative ? 0 - bits : bits, low;
  unsigned shift = magnitude ? 64 - (unsigned)__builtin_clzll(magnitude) : 0;
  if (shift <= 53) return insitu__codec_narrow(negative ? -(double)magnitude : (double)magnitude, dtype, rounding);
  shift -= 53;
  low = magnitude & ((UINT64_C(1) << shift) - 1);
  magnitude >>= shift;
  if (dtype != INSITU_F64) { /* any 53rd bit that is set keeps the rest apart from a tie */
    double x = (double)(magnitude | (low != 0)) * (double)(UINT64_C(1) << shift);
    return insitu__codec_narrow(negative ? -x : x, dtype, rounding);
  }
  uint64_t tie = UINT64_C(1) << (shift - 1);
  bool up = low > tie || (low == tie && ((magnitude & 1) || rounding == INSITU__CODEC_AWAY));
  if (rounding == INSITU__CODEC_TO_ZERO) up = false;
  if (rounding == INSITU__CODEC_UP) up = low && !negative;
  if (rounding == INSITU__CODEC_DOWN) up = low && negative;
  double x = (double)(magnitude + up) * (double)(UINT64_C(1) << shift);
  return negative ? -x : x;
}

/* One element; false: the rules have no value for it. */
static bool insitu__codec_cast_one(const struct insitu__codec *c, union insitu__codec_value *v) {
  const struct insitu__codec_cast *rule = c->cast;
  bool from_float = insitu__codec_is_float(c->from.dtype), from_signed = insitu__codec_is_signed(c->from.dtype);
  for (unsigned i = 0; i < rule->n; i++) {
    double x = rule->from[i].d;
    if (from_float ? v->d == x || (__builtin_isnan(x) && __builtin_isnan(v->d)) : v->u == rule->from[i].u) {
      *v = rule->to[i];
      return true;
    }
  }
  if (insitu__codec_is_float(c->to.dtype)) {
    double largest = c->to.dtype == INSITU_F32 ? 0x1.fffffep127 : c->to.dtype == INSITU_F16 ? 65504 : 0x1.fffffffffffffp1023;
    double x = from_float ? insitu__codec_narrow(v->d, c->to.dtype, rule->rounding)
                          : insitu__codec_integer(v->u, from_signed && v->i < 0, c->to.dtype, rule->rounding);
    bool out = __builtin_fabs(x) > largest && !(from_float && __builtin_isinf(x));
    v->d = !out ? x : x < 0 ? -__builtin_inf() : __builtin_inf();
    return !out || rule->range == INSITU__CODEC_CLAMP;
  }
  unsigned bits = (unsigned)c->to.dtype & 0xff;
  bool to_signed = insitu__codec_is_signed(c->to.dtype), negative = from_signed && v->i < 0, huge = false;
  uint64_t most = UINT64_MAX >> (64 - bits + to_signed), magnitude = negative ? 0 - v->u : v->u;
  if (from_float) {
    if (!__builtin_isfinite(v->d)) return false;
    double x = insitu__codec_whole(v->d, rule->rounding);
    negative = x < 0;
    huge = __builtin_fabs(x) >= 0x1p64;
    magnitude = huge ? 0 : (uint64_t)__builtin_fabs(x);
  }
  bool over = huge || magnitude > most + (negative && to_signed) || (negative && magnitude && !to_signed);
  if (over && rule->range != INSITU__CODEC_CLAMP) return false; /* floats do not wrap, integers take the other way */
  if (over) magnitude = !negative ? most : to_signed ? most + 1 : 0;
  v->u = negative ? 0 - magnitude : magnitude;
  return true;
}
static bool insitu__codec_cast_block(const struct insitu__codec *c, union insitu__codec_block *b, uint64_t n, int *is) {
  int from = insitu__codec_class(c->from.dtype), to = insitu__codec_class(c->to.dtype);
  for (uint64_t i = n; i-- > 0;) { /* from the last: a float may become 64 bits, in their place */
    union insitu__codec_value v;
    if (from == INSITU__CODEC_FLOAT) v.d = (double)b->f[i];
    else v.u = b->u[i];
    if (!insitu__codec_cast_one(c, &v)) return false;
    if (to != INSITU__CODEC_FLOAT) b->u[i] = v.u;
    else if (from == INSITU__CODEC_FLOAT) b->f[i] = (float)v.d;
    else b->d[i] = v.d;
  }
  *is = to == INSITU__CODEC_FLOAT && from != INSITU__CODEC_FLOAT ? INSITU__CODEC_DOUBLE : to;
  if (*is == to || c->to.dtype == INSITU_F16) return true;
  *is = insitu__codec_convert(b, *is, c->to.dtype, n); /* exact: they are values of the type */
  return true;
}
/* Every value of `from` is one of `to`, or is wrapped: an ordinary cast does it, but for the map. */
static bool insitu__codec_cast_simple(const struct insitu__codec *c) {
  if (!c->cast) return true;
  bool from_float = insitu__codec_is_float(c->from.dtype), to_float = insitu__codec_is_float(c->to.dtype);
  unsigned from = (unsigned)c->from.dtype & 0xff, to = (unsigned)c->to.dtype & 0xff;
  if (!from_float && !to_float && c->cast->range == INSITU__CODEC_WRAP) return true;
  if (from_float != to_float) return to_float && from <= (to == 64 ? 32u : to == 32 ? 16u : 8u);
  if (from_float || insitu__codec_is_signed(c->from.dtype) == insitu__codec_is_signed(c->to.dtype)) return from <= to;
  return insitu__codec_is_signed(c->to.dtype) && from < to;
}

/* Replaces what scalar_map names. was: the elements before they were cast. */
INSITU__CODEC_LOOPS static void insitu__codec_map(
    const struct insitu__codec *c, const union insitu__codec_block *was, union insitu__codec_block *b, uint64_t n) {
  int from = insitu__codec_class(c->from.dtype), to = insitu__codec_class(c->to.dtype);
  for (unsigned i = c->cast->n; i-- > 0;) { /* the first of equal ones counts */
    union insitu__codec_value is = c->cast->from[i], becomes = c->cast->to[i];
    bool nan = from >= INSITU__CODEC_FLOAT && __builtin_isnan(is.d);
    for (uint64_t k = 0; k < n; k++) {
      double x = from == INSITU__CODEC_FLOAT ? (double)was->f[k] : was->d[k];
      bool hit = from <= INSITU__CODEC_UNSIGNED ? was->u[k] == is.u : nan ? x != x : x == is.d;
      if (hit && to == INSITU__CODEC_FLOAT) b->f[k] = (float)becomes.d;
      else if (hit) b->u[k] = becomes.u;
    }
  }
}

/* -- ranges of elements -- */

/* Elements [first, first + n) of DELTA, SCALE or CAST; each range goes on where the one before ended. */
static insitu_status insitu__codec_compute(const struct insitu__codec *c, struct insitu__codec_flow *flow, const uint8_t *src,
    uint64_t first, uint64_t n, uint8_t *dst, insitu_error *err) {
  uint64_t from = insitu__codec_type_size(c->from), to = insitu__codec_type_size(c->to);
  bool simple = insitu__codec_cast_simple(c);
  for (uint64_t at = 0; at < n; at += INSITU__CODEC_BLOCK) {
    union insitu__codec_block b, was;
    uint64_t count = insitu__base_min(INSITU__CODEC_BLOCK, n - at);
    int is = insitu__codec_class(c->from.dtype);
    bool ok = true;
    insitu__codec_load(c->from, src + (first + at) * from, count, &b);
    if (c->kind == INSITU__CODEC_DELTA) is = insitu__codec_sum(c, flow, &b, count);
    else if (c->kind == INSITU__CODEC_SCALE && !c->exact) is = insitu__codec_scale(c, &b, count);
    else if (c->kind == INSITU__CODEC_SCALE && insitu__codec_is_float(c->to.dtype)) ok = insitu__codec_scale_floats(c, &b, count);
    else if (c->kind == INSITU__CODEC_SCALE) ok = insitu__codec_scale_integers(c, &b, count);
    else if (!simple) ok = insitu__codec_cast_block(c, &b, count, &is);
    else if (c->cast && c->cast->n) was = b;
    if (!ok)
      return insitu__error_set(err, INSITU_E_CORRUPT,
          "%s: an element from number %" PRIu64 " on has no value of the decoded type; " INSITU__CODEC_BAD, c->name, first + at);
    if (simple) is = insitu__codec_convert(&b, is, c->to.dtype, count);
    if (simple && c->cast && c->cast->n) insitu__codec_map(c, &was, &b, count);
    insitu__codec_store(c->to, &b, is, count, dst + at * to);
  }
  return INSITU_OK;
}

/* Elements [first, first + n) of packed bits, which are `bytes` at src. */
INSITU__CODEC_LOOPS static void insitu__codec_unpack(
    const struct insitu__codec *c, const uint8_t *src, uint64_t bytes, uint64_t first, uint64_t n, uint8_t *dst) {
  uint64_t i = 0, size = insitu__codec_type_size(c->to);
  if (c->pad == INSITU__CODEC_PAD_FIRST) src++, bytes--;
  bool boolean = c->to.dtype == INSITU_BOOL;
  for (; boolean && first % 8 == 0 && n - i >= 8; i += 8) { /* bit 7 - k of a byte to byte k, or bit k */
    uint64_t eight = src[(first + i) / 8] * UINT64_C(0x8040201008040201) >> 7 & UINT64_C(0x0101010101010101);
    if (!c->high_first) eight = __builtin_bswap64(eight);
    insitu__base_store64(dst + i, eight);
  }
  for (; i < n; i++) {
    uint64_t value = 0, at = (first + i) * c->bits;
    bool window =
        c->bits <= 57 && !c->high_first && at / 8 + 8 <= bytes; /* eight bytes hold it, wherever in the first it begins */
    if (window) value = insitu__base_load64(src + at / 8) >> at % 8 & ((UINT64_C(1) << c->bits) - 1);
    for (unsigned k = 0; !window && k < c->bits; k++, at++) {
      unsigned shift = c->high_first ? 7 - (unsigned)(at % 8) : (unsigned)(at % 8);
      value |= (uint64_t)(src[at / 8] >> shift & 1) << k;
    }
    unsigned above = 64 - c->bits;
    if (insitu__codec_is_signed(c->to.dtype)) value = (uint64_t)((int64_t)(value << above) >> above);
    value <<= c->first_bit;
    memcpy(dst + i * size, &value, (size_t)size); /* both supported machines are little-endian */
  }
}

/* Elements [first, first + n) from their byte planes. */
static void insitu__codec_unshuffle_any(
    const uint8_t *src, uint64_t all, uint32_t size, uint64_t first, uint64_t n, uint8_t *dst, bool avx2) {
  const uint8_t *plane[256];
  if (size > 256) {
    for (uint32_t k = 0; k < size; k++)
      for (uint64_t i = 0; i < n; i++) dst[i * size + k] = src[k * all + first + i];
    return;
  }
  for (uint32_t k = 0; k < size; k++) plane[k] = src + k * all;
  insitu__codec_unshuffle(dst, plane, size, first, n, avx2);
}

/* Stored axes back in the array's own order, element by element. */
INSITU__CODEC_LOOPS static void insitu__codec_untranspose(
    const struct insitu__codec_layout *t, const uint8_t *src, uint8_t *dst) {
  uint64_t stride[INSITU__MAX_DIMS], at[INSITU__MAX_DIMS] = {0}, bytes = t->item, from = 0;
  unsigned last = t->ndim - 1;
  for (unsigned k = t->ndim; k-- > 0;) {
    stride[t->order[k]] = bytes;
    bytes *= t->shape[t->order[k]];
  }
  for (uint64_t to = 0; to < bytes;) {
    uint64_t step = stride[last];
    for (uint64_t i = 0; i < t->shape[last]; i++, to += t->item) {
      const uint8_t *p = src + from + i * step;
      if (t->item == 4) memcpy(dst + to, p, 4);
      else if (t->item == 8) memcpy(dst + to, p, 8);
      else if (t->item == 2) memcpy(dst + to, p, 2);
      else memcpy(dst + to, p, t->item);
    }
    for (unsigned d = last; d-- > 0;) {
      from += stride[d];
      if (++at[d] < t->shape[d]) break;
      from -= stride[d] * t->shape[d];
      at[d] = 0;
    }
  }
}

static bool insitu__codec_is_filter(int kind) {
  return kind >= INSITU__CODEC_SHUFFLE && kind <= INSITU__CODEC_TRANSPOSE;
}
static uint32_t insitu__codec_filter_item(const struct insitu__codec *c) { /* bytes of what it decodes one by one */
  return c->kind == INSITU__CODEC_SHUFFLE     ? c->size
         : c->kind == INSITU__CODEC_TRANSPOSE ? c->layout->item
                                              : insitu__codec_type_size(c->to);
}
/* What n bytes decode to, at most `most`. */
static insitu_status insitu__codec_filter_size(
    const struct insitu__codec *c, const uint8_t *src, uint64_t n, uint64_t most, uint64_t *got, insitu_error *err) {
  uint64_t from = insitu__codec_type_size(c->from), to = insitu__codec_filter_item(c), whole = from, bytes = most;
  *got = n;
  if (c->kind == INSITU__CODEC_SHUFFLE || c->kind == INSITU__CODEC_TRANSPOSE) whole = to;
  if (n % whole)
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "%s: %" PRIu64 " bytes are no whole number of elements of %" PRIu64 "; " INSITU__CODEC_BAD, c->name, n, whole);
  if (c->kind == INSITU__CODEC_TRANSPOSE) {
    for (unsigned k = 0; k < c->layout->ndim; k++) to *= c->layout->shape[k]; /* of a chunk: cannot overflow */
    if (n != to) return insitu__codec_wrong_length(c->name, n, to, err);
  } else if (c->kind == INSITU__CODEC_PACKBITS) {
    uint64_t bits = n * 8 - (n && c->pad ? 8 : 0), count = most / to, pad = 0;
    if (c->pad && n) pad = src[c->pad == INSITU__CODEC_PAD_FIRST ? 0 : n - 1];
    if ((c->pad && !n) || pad > insitu__base_min(bits, 7))
      return insitu__error_set(err, INSITU_E_CORRUPT, "%s: its count of padding bits is wrong; " INSITU__CODEC_BAD, c->name);
    if (c->pad) count = (bits - pad) / c->bits;
    *got = bytes = count * to;
    if (insitu__codec_bound_one(c, bytes) != n || (c->pad && count * c->bits + pad != bits))
      return insitu__codec_wrong_length(c->name, n, insitu__codec_bound_one(c, bytes), err);
  } else if (c->kind != INSITU__CODEC_SHUFFLE) *got = n / from * to;
  return *got <= most ? INSITU_OK : insitu__codec_wrong_length(c->name, *got, most, err);
}
/* Elements [first, first + n), all of them for a transpose, from the `bytes` at src. */
static insitu_status insitu__codec_filter_range(const struct insitu__codec_scratch *s, const struct insitu__codec *c,
    struct insitu__codec_flow *flow, const uint8_t *src, uint64_t bytes, uint64_t first, uint64_t n, uint8_t *dst,
    insitu_error *err) {
  switch (c->kind) {
  case INSITU__CODEC_SHUFFLE: insitu__codec_unshuffle_any(src, bytes / c->size, c->size, first, n, dst, s->avx2); break;
  case INSITU__CODEC_PACKBITS: insitu__codec_unpack(c, src, bytes, first, n, dst); break;
  case INSITU__CODEC_TRANSPOSE: insitu__codec_untranspose(c->layout, src, dst); break;
  default: return insitu__codec_compute(c, flow, src, first, n, dst, err);
  }
  return INSITU_OK;
}
static insitu_status insitu__codec_filter(const struct insitu__codec_scratch *s, const struct insitu__codec *c,
    const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap, uint64_t *got, insitu_error *err) {
  struct insitu__codec_flow flow = insitu__codec_flow();
  insitu_status status = insitu__codec_filter_size(c, src, n, cap, got, err);
  if (status < 0 || !*got) return status;
  return insitu__codec_filter_range(s, c, &flow, src, n, 0, *got / insitu__codec_filter_item(c), to, err);
}
/* A filter as the last stage: pieces go to their places while they are in the cache. */
static insitu_status insitu__codec_filter_last(struct insitu__codec_scratch *s, const struct insitu__codec *c, const uint8_t *src,
    uint64_t n, uint8_t *spare, uint64_t decoded, const struct insitu__codec_sink *sink, insitu_error *err) {
  struct insitu__codec_flow flow = insitu__codec_flow();
  uint64_t got, item = insitu__codec_filter_item(c), unit = insitu__codec_lcm(item, sink->element ? sink->element : 1);
  insitu_status status = insitu__codec_filter_size(c, src, n, decoded, &got, err);
  if (status < 0) return status;
  if (got != decoded) return insitu__codec_wrong_length(c->name, got, decoded, err);
  if (!decoded) return INSITU_OK;
  uint8_t *whole = sink->direct ? (uint8_t *)sink->direct(sink->user, 0, decoded) : NULL;
  bool direct = whole != NULL;
  if (!direct && (unit > INSITU__CODEC_PIECE || c->kind == INSITU__CODEC_TRANSPOSE)) whole = spare;
  uint64_t step = whole ? decoded : INSITU__CODEC_PIECE / unit * unit;
  for (uint64_t at = 0; at < decoded; at += step) {
    uint64_t bytes = insitu__base_min(step, decoded - at);
    uint8_t *to = whole ? whole : sink->direct ? (uint8_t *)sink->direct(sink->user, at, bytes) : NULL;
    bool there = to && to != spare;
    if (!to) to = s->piece.at;
    status = insitu__codec_filter_range(s, c, &flow, src, n, at / item, bytes / item, to, err);
    if (status >= 0 && !there) status = sink->piece(sink->user, to, at, bytes, err);
    if (status < 0) return status;
  }
  return INSITU_OK;
}

/* ---- the user's codecs ---- */

static insitu_status insitu__codec_user(
    const struct insitu__codec *c, const uint8_t *src, uint64_t n, uint8_t *to, uint64_t cap, uint64_t *got, insitu_error *err) {
  insitu_error cause = {0};
  *got = 0;
  insitu_status status = c->user->decode(c->user->user, c->config, src, n, to, cap, got, &cause);
  if (status == INSITU_OK && *got <= cap) return INSITU_OK;
  if (status == INSITU_OK)
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "codec \"%.64s\" of desc.codecs: it says that it wrote %" PRIu64 " bytes where %" PRIu64
        " have room: correct it, memory may be overwritten",
        c->name, *got, cap);
  /* not found and absent would make a hole of a chunk that is there */
  bool known = status < 0 && status >= INSITU_E_CHANGED && status != INSITU_E_NOTFOUND && status != INSITU_E_ABSENT;
  cause.message[sizeof cause.message - 1] = 0;
  insitu__error_cause(err, &cause);
  return insitu__error_set(err, known ? status : INSITU_E_CORRUPT, "codec \"%.64s\" of desc.codecs: %.700s", c->name,
      cause.message[0] ? cause.message : "it failed without a message; let its decode fill the error");
}

/* ---- stages ---- */

/* One stage that writes memory, except blosc. */
static insitu_status insitu__codec_stage(struct insitu__codec_scratch *s, int kind, const uint8_t *src, uint64_t n, uint8_t *to,
    uint64_t cap, uint64_t *got, insitu_error *err) {
  switch (kind) {
  case INSITU__CODEC_ZSTD: return insitu__codec_zstd(s->zstd, src, n, to, cap, got, err);
  case INSITU__CODEC_LZ4: return insitu__codec_lz4(src, n, to, cap, got, err);
#ifdef INSITU_WITH_BZIP2
  case INSITU__CODEC_BZ2: return insitu__codec_bunzip(s, src, n, to, cap, got, err);
#endif
#ifdef INSITU__CODEC_HAS_DEFLATE
  case INSITU__CODEC_GZIP: return insitu__codec_inflate(s, true, src, n, to, cap, got, err);
  case INSITU__CODEC_ZLIB: return insitu__codec_inflate(s, false, src, n, to, cap, got, err);
#endif
  default: return insitu__error_set(err, INSITU_E_CODEC, "decode: codec number %d is not in this build: rebuild with it", kind);
  }
}

/* Bytes that are already decoded, to the sink. */
static insitu_status insitu__codec_emit(
    const uint8_t *src, uint64_t n, const struct insitu__codec_sink *sink, insitu_error *err) {
  if (!n) return INSITU_OK;
  void *to = sink->direct ? sink->direct(sink->user, 0, n) : NULL;
  if (!to) return sink->piece(sink->user, src, 0, n, err);
  insitu__codec_copy((uint8_t *)to, src, n);
  return INSITU_OK;
}

/* A blosc stage: inside a chain (sink NULL) at most `most` bytes to `to`; as the last one exactly `most` to the sink, `to` is
 * spare. */
static insitu_status insitu__codec_blosc(struct insitu__codec_scratch *s, const uint8_t *src, uint64_t n, uint8_t *to,
    uint64_t most, const struct insitu__codec_sink *sink, uint64_t *got, insitu_error *err) {
  struct insitu__codec_blosc b;
  insitu_status status = insitu__codec_blosc_open(&b, src, n, err);
  if (status < 0) return status;
  *got = b.nbytes;
  if (b.nbytes > most || (sink && b.nbytes < most)) return insitu__codec_wrong_length("blosc", b.nbytes, most, err);
  if (b.memcpyed && sink) return insitu__codec_emit(src + 16, b.nbytes, sink, err);
  if (b.memcpyed) insitu__codec_copy(to, src + 16, b.nbytes);
  if (b.memcpyed || !b.nbytes) return INSITU_OK;
  uint8_t *direct = !sink ? to : sink->direct ? (uint8_t *)sink->direct(sink->user, 0, most) : NULL;
  return insitu__codec_blosc_blocks(s, &b, direct, to, sink, err);
}

/* A stage inside a chain: at most cap bytes to `to`. */
static insitu_status insitu__codec_run(struct insitu__codec_scratch *s, const struct insitu__codec *codec, const uint8_t *src,
    uint64_t n, uint8_t *to, uint64_t cap, uint64_t *got, insitu_error *err) {
  if (codec->kind == INSITU__CODEC_BLOSC) return insitu__codec_blosc(s, src, n, to, cap, NULL, got, err);
  if (codec->kind == INSITU__CODEC_USER) return insitu__codec_user(codec, src, n, to, cap, got, err);
  if (insitu__codec_is_filter(codec->kind)) return insitu__codec_filter(s, codec, src, n, to, cap, got, err);
  return insitu__codec_stage(s, codec->kind, src, n, to, cap, got, err);
}

/* The last stage: its result goes to the sink. */
static insitu_status insitu__codec_last(struct insitu__codec_scratch *s, const struct insitu__codec *codec, const uint8_t *src,
    uint64_t n, uint8_t *spare, uint64_t decoded, const struct insitu__codec_sink *sink, insitu_error *err) {
  uint64_t got = 0;
  if (codec->kind == INSITU__CODEC_BLOSC) return insitu__codec_blosc(s, src, n, spare, decoded, sink, &got, err);
  if (insitu__codec_is_filter(codec->kind)) return insitu__codec_filter_last(s, codec, src, n, spare, decoded, sink, err);
  void *direct = sink->direct && decoded ? sink->direct(sink->user, 0, decoded) : NULL;
  uint8_t *to = direct ? (uint8_t *)direct : spare;
  insitu_status status = insitu__codec_run(s, codec, src, n, to, decoded, &got, err);
  if (status < 0) return status;
  if (got != decoded) return insitu__codec_wrong_length("decode", got, decoded, err);
  return direct || !decoded ? INSITU_OK : sink->piece(sink->user, to, 0, decoded, err);
}

/* ---- shards ---- */

/* Checks an index as stored. n: its bytes, checksum included. */
static insitu_status insitu__codec_shard_index(
    const struct insitu__codec_shard *shard, const void *index, uint64_t n, insitu_error *err) {
  if (n != insitu__codec_shard_index_bytes(shard))
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "shard: %" PRIu64 " bytes are too few for its index of %" PRIu64 "; " INSITU__CODEC_BAD, n,
        insitu__codec_shard_index_bytes(shard));
  const struct insitu__codec crc = {.kind = INSITU__CODEC_CRC32C, .name = "crc32c"};
  return shard->index_crc ? insitu__codec_checksum(&crc, (const uint8_t *)index, n, err) : INSITU_OK;
}

/* Where inner chunk `number` lies in the shard, of which at most `limit` bytes exist; *bytes is UINT64_MAX when it is absent. */
static insitu_status insitu__codec_shard_entry(const struct insitu__codec_shard *shard, const void *index, uint64_t number,
    uint64_t limit, uint64_t *offset, uint64_t *bytes, insitu_error *err) {
  const uint8_t *at = (const uint8_t *)index + 16 * number;
  uint64_t end;
  *offset = insitu__base_load64(at);
  *bytes = insitu__base_load64(at + 8);
  if (shard->index_big) {
    *offset = __builtin_bswap64(*offset);
    *bytes = __builtin_bswap64(*bytes);
  }
  if (*offset == UINT64_MAX && *bytes == UINT64_MAX) return INSITU_OK;
  if (insitu__base_add(*offset, *bytes, &end) && end <= limit && end <= INT64_MAX) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CORRUPT,
      "shard: its index says that inner chunk %" PRIu64 " lies at %" PRIu64 " with %" PRIu64
      " bytes, which is outside of it; " INSITU__CODEC_BAD,
      number, *offset, *bytes);
}

/* Puts inner chunk `number` to its place in the decoded shard, element by element; cell NULL: the fill value. */
static void insitu__codec_shard_place(
    const struct insitu__codec_shard *shard, uint64_t number, const uint8_t *cell, uint8_t *to) {
  uint64_t at[INSITU__MAX_DIMS], elements = shard->inner_bytes / shard->item;
  for (unsigned k = shard->ndim; k-- > 0;) {
    uint64_t n = shard->chunk[k] / shard->inner[k];
    at[k] = number % n * shard->inner[k];
    number /= n;
  }
  for (uint64_t i = 0; i < elements; i++) {
    uint64_t rest = i, within[INSITU__MAX_DIMS], flat = 0;
    for (unsigned k = shard->ndim; k-- > 0;) {
      unsigned axis = shard->order[k];
      within[axis] = rest % shard->inner[axis];
      rest /= shard->inner[axis];
    }
    for (unsigned k = 0; k < shard->ndim; k++) flat = flat * shard->chunk[k] + at[k] + within[k];
    const unsigned char *fill = shard->wide_fill ? shard->wide_fill + within[shard->ndim - 1] * shard->item : shard->fill;
    memcpy(to + flat * shard->item, cell ? cell + i * shard->item : fill, shard->item);
  }
}

static void *insitu__codec_memory_direct(void *user, uint64_t offset, uint64_t bytes) {
  (void)bytes;
  return (uint8_t *)user + offset;
}
static insitu_status insitu__codec_memory_piece(void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  (void)err;
  memcpy((uint8_t *)user + offset, bytes, (size_t)n);
  return INSITU_OK;
}
/* A sink that puts the decoded bytes at `to`. */
static struct insitu__codec_sink insitu__codec_memory(void *to) {
  return (struct insitu__codec_sink){to, insitu__codec_memory_direct, insitu__codec_memory_piece, 1};
}

typedef insitu_status insitu__codec_decoder(const struct insitu__codec_chain *chain, struct insitu__codec_scratch *s,
    const void *bytes, uint64_t n, uint64_t decoded, const struct insitu__codec_sink *sink, insitu_error *err);

/* Decodes a whole shard to shard->bytes bytes at `to`: what codecs around it force, and what nobody is in a hurry for; >>loader
 * reads inner chunks by themselves. decode is insitu__codec_decode. */
static insitu_status insitu__codec_shard(struct insitu__codec_scratch *s, const struct insitu__codec_shard *shard,
    insitu__codec_decoder *decode, const uint8_t *src, uint64_t n, uint8_t *to, insitu_error *err) {
  uint64_t index_bytes = insitu__codec_shard_index_bytes(shard), least = insitu__base_min(n, index_bytes);
  const uint8_t *index = shard->index_first ? src : src + (n - least);
  insitu_status status = insitu__codec_shard_index(shard, index, least, err);
  for (uint64_t i = 0; status >= 0 && i < shard->entries; i++) {
    uint64_t offset, bytes;
    status = insitu__codec_shard_entry(shard, index, i, n, &offset, &bytes, err);
    bool absent = bytes == UINT64_MAX;
    struct insitu__codec_sink sink = insitu__codec_memory(s->cell.at);
    if (status >= 0 && !absent) status = decode(&shard->codecs, s->inner, src + offset, bytes, shard->inner_bytes, &sink, err);
    if (status >= 0) insitu__codec_shard_place(shard, i, absent ? NULL : s->cell.at, to);
  }
  return status;
}

/* Decodes the n bytes at `bytes`, which must give exactly `decoded` bytes, into the sink. Stages before the last go to the two
 * scratch buffers in turns; checksums only shorten the bytes they see. */
static insitu_status insitu__codec_decode(const struct insitu__codec_chain *chain, struct insitu__codec_scratch *s,
    const void *bytes, uint64_t n, uint64_t decoded, const struct insitu__codec_sink *sink, insitu_error *err) {
  const uint8_t *src = (const uint8_t *)bytes;
  insitu_status status = insitu__codec_scratch_reserve(s, chain, decoded, err);
  if (status < 0) return status;
  int turn = 0;
  for (int i = 0; i < chain->n; i++) {
    int kind = chain->codec[i].kind;
    if (insitu__codec_is_checksum(kind)) {
      if ((status = insitu__codec_checksum(&chain->codec[i], src, n, err)) < 0) return status;
      if (chain->codec[i].sum_first) src += 4;
      n -= 4;
      continue;
    }
    uint8_t *to = s->stage[turn].at;
    turn ^= 1;
    if (kind == INSITU__CODEC_SHARD) { /* makes bytes of an array: nothing but the array comes after it */
      if (i != chain->n - 1 || chain->codec[i].shard->bytes != decoded)
        return insitu__codec_wrong_length("shard", chain->codec[i].shard->bytes, decoded, err);
      status = insitu__codec_shard(s, chain->codec[i].shard, insitu__codec_decode, src, n, to, err);
      return status < 0 ? status : insitu__codec_emit(to, decoded, sink, err);
    }
    if (i == chain->n - 1) return insitu__codec_last(s, &chain->codec[i], src, n, to, decoded, sink, err);
    uint64_t cap = insitu__codec_bound_from(chain, i + 1, decoded), got = 0;
    if ((status = insitu__codec_run(s, &chain->codec[i], src, n, to, cap, &got, err)) < 0) return status;
    src = to;
    n = got;
  }
  if (n != decoded) return insitu__codec_wrong_length("decode", n, decoded, err);
  return insitu__codec_emit(src, n, sink, err);
}

/* Decodes to a length that only the stored bytes know, at most `most` bytes, no shard. *out points to them, into the stored bytes
 * or, until its next use, into the scratch. */
static insitu_status insitu__codec_decode_unknown(const struct insitu__codec_chain *chain, struct insitu__codec_scratch *s,
    const void *bytes, uint64_t n, uint64_t most, const uint8_t **out, uint64_t *got, insitu_error *err) {
  const uint8_t *src = (const uint8_t *)bytes;
  insitu_status status = insitu__codec_scratch_reserve(s, chain, most, err);
  int turn = 0;
  for (int i = 0; i < chain->n && status >= 0; i++) {
    int kind = chain->codec[i].kind;
    uint64_t wrote = 0;
    uint8_t *to = s->stage[turn].at;
    if (insitu__codec_is_checksum(kind)) {
      status = insitu__codec_checksum(&chain->codec[i], src, n, err);
      if (chain->codec[i].sum_first) src += 4;
      n -= 4;
      continue;
    }
    status = insitu__codec_run(s, &chain->codec[i], src, n, to, insitu__codec_bound_from(chain, i + 1, most), &wrote, err);
    turn ^= 1;
    src = to;
    n = wrote;
  }
  *out = src;
  *got = n;
  return status;
}

/* >>store ------------------------------------------------------------------------------------------------------------------ */
/* Where objects live, behind one small interface, and three stores: a local directory, the user's memory, and a zip file, which is
 * an object of another store. A store owns its root descriptor or its index, and its URL text; it is opened before the reactor's
 * coroutines use it (insitu__store_open, then insitu__store_index_await on one of them) and closed after them. All _await
 * functions run on coroutines of the store's reactor and suspend; any number may be under way at once. Only "no such object" is
 * INSITU_E_NOTFOUND: everything else that keeps an object from being read is INSITU_E_IO, so that a permission or a broken disk
 * never looks like an absent chunk. */

struct insitu__store {
  const struct insitu__store_ops *ops; /* NULL: not open */
  struct insitu__reactor *reactor;
  int dirfd;                    /* file store: the root directory, O_PATH */
  int nowait;                   /* file store: flags of a read that must not wait for a disk */
  atomic_bool never_now;        /* file store: the kernel or the file system knows no such reads */
  const insitu_object **object; /* memory store, zip store: by insitu__store_order */
  uint64_t n_objects;
  struct insitu__store_zip *zip;       /* zip store */
  struct insitu__store_remote *remote; /* remote store */
  struct insitu__store_memo **memo;    /* array: see insitu__store_prefetch_await */
  char *url;                           /* as the user gave it */
};
/* What a remote store tells of the object that was read, and may be asked. */
struct insitu__store_tag {
  char etag[192];      /* in: not "": read nothing if it still is the object's; out: the object's, "" where there is none */
  uint64_t size;       /* out: of the whole object; UINT64_MAX: not told */
  bool unchanged;      /* out: nothing was read, the ETag still holds */
  const bool *give_up; /* in: NULL, or once it is true, on the reactor's thread, no further attempt is made */
};
struct insitu__store_ops {
  /* Reads from `offset` until the buffers are full or the object ends; *got bytes were read. INSITU__RING_TAIL reads as many bytes
   * from the object's end as the buffers hold. iov is scratch: it may be changed; in a remote store, a NULL base drops bytes. tag
   * may be NULL, and is left as it is by stores that know nothing of it. */
  insitu_status (*read_await)(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov, unsigned n_iov,
      struct insitu__store_tag *tag, uint64_t *got, insitu_error *err);
  /* The same on any thread, without waiting for a disk or a network: INSITU_TIMEOUT where that would be needed, and instead of any
   * error: then read_await is to be asked. A read of exactly `expected` bytes is not asked for more. NULL: never possible. */
  insitu_status (*read_now)(struct insitu__store *s, const char *key, uint64_t offset, const struct iovec *iov, unsigned n_iov,
      uint64_t expected, uint64_t *got);
  /* One level below prefix ("" is the root), sorted by name; emit runs on the caller's coroutine once all names are known. */
  insitu_status (*list_await)(struct insitu__store *s, const char *prefix,
      void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err);
  void (*close)(struct insitu__store *s);
  /* A whole object of at most `limit` bytes, NUL-terminated, in memory that is the caller's. NULL: by read_await. */
  insitu_status (*get_await)(
      struct insitu__store *s, const char *key, uint64_t limit, char **text, uint64_t *n, insitu_error *err);
};

/* A key is a relative path of named parts: nothing in metadata can make it leave the root. */
static bool insitu__store_key_valid(const char *key) {
  if (strlen(key) >= INSITU__MAX_KEY) return false;
  for (const char *part = key;;) {
    uint64_t n = strcspn(part, "/");
    if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.')) return false;
    if (!part[n]) return true;
    part += n + 1;
  }
}
static insitu_status insitu__store_check_key(const char *key, insitu_error *err) {
  if (insitu__store_key_valid(key)) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_ARG,
      "store: '%.256s' is not a key: its parts must be names (not '.', '..' or nothing) and fewer than %d bytes", key,
      INSITU__MAX_KEY);
}
static const char *insitu__store_advice(int error) {
  return error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n), or lower max_inflight"
                                            : "check that this user may read it and that the disk is well";
}
static insitu_status insitu__store_failed(const struct insitu__store *s, const char *key, int error, insitu_error *err) {
  char text[128];
  const char *cause = strerror_r(error, text, sizeof text); /* the GNU form: returns the text */
  bool fresh = err && err->status >= 0;
  insitu_status status = error == ENOENT || error == ENOTDIR ? INSITU_E_NOTFOUND : INSITU_E_IO;
  insitu__error_set(err, status, "store '%.400s', object '%.400s': %s; %s", s->url, key, cause,
      status == INSITU_E_NOTFOUND ? "check the name" : insitu__store_advice(error));
  if (fresh) err->sys_errno = error;
  return status;
}

/* -- local directories -- */

static insitu_status insitu__store_file_read_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  (void)tag;
  *got = 0;
  insitu_status status = insitu__store_check_key(key, err);
  if (status < 0) return status;
  int64_t n = insitu__reactor_read_file_await(s->reactor, s->dirfd, key, offset, iov, n_iov);
  if (n < 0) return insitu__store_failed(s, key, (int)-n, err);
  *got = (uint64_t)n;
  return INSITU_OK;
}

/* What the kernel has in its caches (RESOLVE_CACHED: Linux 5.12; RWF_NOWAIT: 4.14, on most local file systems; on tmpfs reads
 * know no such flag and need none). */
static insitu_status insitu__store_file_read_now(struct insitu__store *s, const char *key, uint64_t offset,
    const struct iovec *iov, unsigned n_iov, uint64_t expected, uint64_t *got) {
  struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_CACHED};
  uint64_t all = 0;
  *got = 0;
  for (unsigned i = 0; i < n_iov; i++) all += iov[i].iov_len;
  if (atomic_load_explicit(&s->never_now, memory_order_relaxed) || !insitu__store_key_valid(key)) return INSITU_TIMEOUT;
  int fd = (int)syscall(SYS_openat2, s->dirfd, key, &how, sizeof how);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL))
    atomic_store_explicit(&s->never_now, true, memory_order_relaxed);
  if (fd < 0) return INSITU_TIMEOUT;
  ssize_t n = preadv2(fd, iov, (int)n_iov, (off_t)offset, s->nowait);
  if (n < 0 && errno == EOPNOTSUPP) atomic_store_explicit(&s->never_now, true, memory_order_relaxed);
  char beyond; /* a short read means the end of the file, or the end of what is cached */
  struct iovec probe = {&beyond, 1};
  bool whole = n >= 0 && ((uint64_t)n == all || (uint64_t)n == expected ||
                             preadv2(fd, &probe, 1, (off_t)(offset + (uint64_t)n), s->nowait) == 0);
  syscall(SYS_close, fd); /* as it was opened: ThreadSanitizer, which follows descriptors, must see both or neither */
  *got = n > 0 ? (uint64_t)n : 0;
  return whole ? INSITU_OK : INSITU_TIMEOUT;
}

struct insitu__store_listing { /* lives on the listing coroutine's stack; the worker owns it during the call */
  int dirfd, error;
  const char *prefix;
  uint64_t count;
  struct insitu__text_buffer names; /* per entry: 'd' or 'f', name, NUL */
};
static bool insitu__store_entry_is_directory(int fd, const struct dirent *entry) {
  struct stat info;
  if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) return entry->d_type == DT_DIR;
  return fstatat(fd, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}
static void insitu__store_file_list(void *arg, unsigned worker) { /* on a worker: the calls block */
  struct insitu__store_listing *l = (struct insitu__store_listing *)arg;
  (void)worker;
  int fd = openat(l->dirfd, l->prefix[0] ? l->prefix : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  if (!dir) {
    l->error = errno;
    if (fd >= 0) close(fd);
    return;
  }
  l->names.limit = (uint64_t)INSITU__MAX_LIST * 64;
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(dir);
    if (!entry) {
      l->error = errno;
      break;
    }
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (l->count++ == INSITU__MAX_LIST) l->error = E2BIG;
    else if (!insitu__text_buffer_bytes(&l->names, insitu__store_entry_is_directory(fd, entry) ? "d" : "f", 1) ||
             !insitu__text_buffer_bytes(&l->names, entry->d_name, strlen(entry->d_name) + 1))
      l->error = ENOMEM;
    if (l->error) break;
  }
  closedir(dir);
}
static int insitu__store_compare(const void *a, const void *b) { /* names, past their type letter */
  return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}
/* Tells `count` names, sorted; UINT64_MAX: memory was short before. */
static insitu_status insitu__store_emit(struct insitu__store *s, const char *prefix, const struct insitu__text_buffer *all,
    uint64_t count, void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err) {
  char **names = count == UINT64_MAX ? NULL : (char **)insitu__mem_alloc(count, sizeof *names);
  if (!names)
    return insitu__error_set(err, INSITU_E_NOMEM,
        "store '%.400s', directory '%.400s': no memory for its names; give the process more memory", s->url, prefix);
  char *at = all->text;
  for (uint64_t i = 0; i < count; i++, at += strlen(at) + 1) names[i] = at;
  if (count) qsort(names, (size_t)count, sizeof *names, insitu__store_compare);
  for (uint64_t i = 0; i < count; i++) emit(to, names[i] + 1, names[i][0] == 'd');
  insitu__mem_free(names);
  return INSITU_OK;
}
static insitu_status insitu__store_file_list_await(struct insitu__store *s, const char *prefix,
    void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err) {
  insitu_status status = prefix[0] ? insitu__store_check_key(prefix, err) : INSITU_OK;
  if (status < 0) return status;
  struct insitu__store_listing l = {.dirfd = s->dirfd, .prefix = prefix};
  insitu__reactor_work_await(s->reactor, insitu__store_file_list, &l);
  if (l.error == E2BIG)
    status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.400s', directory '%.400s': more than INSITU__MAX_LIST (%u) entries; name the arrays, or "
        "consolidate the metadata",
        s->url, prefix, INSITU__MAX_LIST);
  else if (l.error && l.error != ENOMEM) status = insitu__store_failed(s, prefix, l.error, err);
  else status = insitu__store_emit(s, prefix, &l.names, l.error ? UINT64_MAX : l.count, emit, to, err);
  insitu__text_buffer_free(&l.names);
  return status;
}

static void insitu__store_file_close(struct insitu__store *s) {
  close(s->dirfd);
}
static const struct insitu__store_ops insitu__store_file_ops = {
    insitu__store_file_read_await, insitu__store_file_read_now, insitu__store_file_list_await, insitu__store_file_close, NULL};

/* -- memory -- */

/* Bytes of one read from which a worker copies them, so that the reactor thread goes on meanwhile. Measured on 2 cores: a worker is
 * asked and has answered in 9 us, and 128 KiB are copied in 8. */
#define INSITU__STORE_COPY (128u << 10)

/* By the bytes of their keys, a slash before all others: so what lies below a directory follows its name at once, and the names of
 * a directory come out sorted. */
static int insitu__store_order(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  unsigned x = *a == '/' ? 1 : *a ? (unsigned char)*a + 1u : 0, y = *b == '/' ? 1 : *b ? (unsigned char)*b + 1u : 0;
  return (x > y) - (x < y);
}
static int insitu__store_compare_objects(const void *a, const void *b) {
  return insitu__store_order((*(const insitu_object *const *)a)->key, (*(const insitu_object *const *)b)->key);
}
/* The number of the first object that is not before key. */
static uint64_t insitu__store_object_first(const struct insitu__store *s, const char *key) {
  uint64_t lo = 0, hi = s->n_objects;
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (insitu__store_order(s->object[mid]->key, key) < 0) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
static const insitu_object *insitu__store_object(const struct insitu__store *s, const char *key) { /* NULL: there is none */
  uint64_t at = insitu__store_object_first(s, key);
  return at < s->n_objects && !strcmp(s->object[at]->key, key) ? s->object[at] : NULL;
}
/* How many bytes a read of an object of `size` bytes gives; *offset becomes the first of them. */
static uint64_t insitu__store_range(uint64_t size, uint64_t *offset, const struct iovec *iov, unsigned n_iov) {
  uint64_t room = 0;
  for (unsigned i = 0; i < n_iov; i++) room += iov[i].iov_len;
  if (*offset == INSITU__RING_TAIL) *offset = size - insitu__base_min(room, size);
  *offset = insitu__base_min(*offset, size);
  return insitu__base_min(room, size - *offset);
}

struct insitu__store_copy { /* lives on the reading coroutine's stack; the worker owns it during the call */
  const unsigned char *from;
  uint64_t n;
  const struct iovec *to;
};
static void insitu__store_memory_copy(void *arg, unsigned worker) {
  const struct insitu__store_copy *c = (const struct insitu__store_copy *)arg;
  (void)worker;
  const unsigned char *from = c->from;
  uint64_t left = c->n;
  for (const struct iovec *to = c->to; left; to++) {
    uint64_t n = insitu__base_min(left, to->iov_len);
    if (n) memcpy(to->iov_base, from, (size_t)n);
    from += n;
    left -= n;
  }
}
/* What a read copies; false when there is no such object. */
static bool insitu__store_memory_range(const struct insitu__store *s, const char *key, uint64_t offset, const struct iovec *iov,
    unsigned n_iov, struct insitu__store_copy *copy) {
  const insitu_object *o = insitu__store_object(s, key);
  if (!o) return false;
  uint64_t n = insitu__store_range(o->n, &offset, iov, n_iov);
  *copy = (struct insitu__store_copy){(const unsigned char *)o->bytes + offset, n, iov};
  return true;
}
static insitu_status insitu__store_memory_read_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  struct insitu__store_copy copy;
  (void)tag;
  *got = 0;
  insitu_status status = insitu__store_check_key(key, err);
  if (status < 0) return status;
  if (!insitu__store_memory_range(s, key, offset, iov, n_iov, &copy)) return insitu__store_failed(s, key, ENOENT, err);
  *got = copy.n;
  if (copy.n < INSITU__STORE_COPY) insitu__store_memory_copy(&copy, 0);
  else insitu__reactor_work_await(s->reactor, insitu__store_memory_copy, &copy);
  return INSITU_OK;
}
static insitu_status insitu__store_memory_read_now(struct insitu__store *s, const char *key, uint64_t offset,
    const struct iovec *iov, unsigned n_iov, uint64_t expected, uint64_t *got) {
  struct insitu__store_copy copy;
  (void)expected;
  if (!insitu__store_memory_range(s, key, offset, iov, n_iov, &copy)) return INSITU_TIMEOUT;
  *got = copy.n;
  insitu__store_memory_copy(&copy, 0);
  return INSITU_OK;
}

static insitu_status insitu__store_object_list_await(struct insitu__store *s, const char *prefix,
    void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err) {
  char name[INSITU__MAX_KEY];
  const char *last = ""; /* the directory told last, its slash included */
  insitu_status status = prefix[0] ? insitu__store_check_key(prefix, err) : INSITU_OK;
  if (status < 0) return status;
  uint64_t skip = strlen(prefix), last_n = 0, found = 0;
  for (uint64_t i = insitu__store_object_first(s, prefix); i < s->n_objects; i++) {
    const char *key = s->object[i]->key;
    if (strncmp(key, prefix, skip)) break;
    if (skip && key[skip] != '/') { /* the object of that name comes first */
      if (key[skip]) break;
      continue;
    }
    const char *part = key + skip + (skip != 0);
    uint64_t n = strcspn(part, "/");
    found++;
    if (part[n] && n + 1 == last_n && !memcmp(part, last, (size_t)last_n)) continue;
    if (part[n]) {
      last = part;
      last_n = n + 1;
    }
    memcpy(name, part, (size_t)n);
    name[n] = 0;
    emit(to, name, part[n] != 0);
  }
  return found || !skip ? INSITU_OK : insitu__store_failed(s, prefix, ENOENT, err);
}

static void insitu__store_memory_close(struct insitu__store *s) {
  insitu__mem_free(s->object);
}
static const struct insitu__store_ops insitu__store_memory_ops = {insitu__store_memory_read_await, insitu__store_memory_read_now,
    insitu__store_object_list_await, insitu__store_memory_close, NULL};

/* -- opening -- */

static insitu_status insitu__store_ask_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  return s->ops->read_await(s, key, offset, iov, n_iov, tag, got, err);
}
static insitu_status insitu__store_read_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, uint64_t *got, insitu_error *err) {
  return insitu__store_ask_await(s, key, offset, iov, n_iov, NULL, got, err);
}
static insitu_status insitu__store_read_now(struct insitu__store *s, const char *key, uint64_t offset, const struct iovec *iov,
    unsigned n_iov, uint64_t expected, uint64_t *got) {
  return s->ops->read_now ? s->ops->read_now(s, key, offset, iov, n_iov, expected, got) : INSITU_TIMEOUT;
}
struct insitu__store_memo { /* a whole object that was asked for ahead of time; on its coroutine's behalf it must not move */
  struct insitu__store *store;
  struct insitu__reactor_gate *done;
  uint64_t limit, n;
  char *text;
  insitu_status status;
  insitu_error error;
  char key[];
};
static void insitu__store_forget(struct insitu__store *s) { /* what was asked for and not fetched */
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->memo); i++) {
    insitu__mem_free(s->memo[i]->text);
    insitu__mem_free(s->memo[i]);
  }
  INSITU__ARRAY_FREE(s->memo);
}
static void insitu__store_close(struct insitu__store *s) { /* a zeroed store is fine */
  insitu__store_forget(s);
  if (s->ops) s->ops->close(s);
  insitu__mem_free(s->url);
  memset(s, 0, sizeof *s);
}
/* Blocks for as long as the file system takes to look the root up. */
static insitu_status insitu__store_file_open(struct insitu__store *s, const char *path, insitu_error *err) {
  char text[128];
  struct stat info;
  int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), error = fd < 0 ? errno : 0;
  if (error == ENOTDIR && stat(path, &info) == 0)
    return insitu__error_set(
        err, INSITU_E_NOT_ZARR, "store '%.800s': it is a file; give the directory that holds the archive", path);
  if (error) {
    bool fresh = err && err->status >= 0;
    bool missing = error == ENOENT || error == ENOTDIR;
    insitu_status status = insitu__error_set(err, missing ? INSITU_E_NOTFOUND : INSITU_E_IO, "store '%.800s': %s; %s", path,
        missing ? "no such directory or zip file" : strerror_r(error, text, sizeof text),
        missing ? "check the url" : insitu__store_advice(error));
    if (fresh) err->sys_errno = error;
    return status;
  }
  s->ops = &insitu__store_file_ops;
  s->dirfd = fd;
  struct statfs fs;
  s->nowait = fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC ? 0 : RWF_NOWAIT;
  return INSITU_OK;
}
/* Sorts the objects' addresses; what is no set of objects is refused. */
static insitu_status insitu__store_memory_open(struct insitu__store *s, const insitu_loader_desc *desc, insitu_error *err) {
  uint64_t n = desc->n_objects;
  if (!desc->objects || !n || n > INSITU__MAX_OBJECTS)
    return insitu__error_set(err, INSITU_E_ARG,
        "store '%.400s': a memory:// archive needs 1 to 2^32 objects, it has %" PRIu64 "; set desc.objects and desc.n_objects",
        s->url, desc->objects ? n : 0);
  const insitu_object **object = (const insitu_object **)insitu__mem_alloc(n, sizeof *object);
  if (!object)
    return insitu__error_set(err, INSITU_E_NOMEM, "store '%.400s': no memory for an index of %" PRIu64 " objects", s->url, n);
  s->ops = &insitu__store_memory_ops; /* closing frees the index from here on */
  s->object = object;
  s->n_objects = n;
  for (uint64_t i = 0; i < n; i++) {
    const insitu_object *o = object[i] = &desc->objects[i];
    if (!o->key || (o->n && !o->bytes))
      return insitu__error_set(err, INSITU_E_ARG, "store '%.400s': desc.objects[%" PRIu64 "] has no %s; give both key and bytes",
          s->url, i, o->key ? "bytes" : "key");
    insitu_status status = insitu__store_check_key(o->key, err);
    if (status < 0) return status;
  }
  qsort(object, (size_t)n, sizeof *object, insitu__store_compare_objects);
  for (uint64_t i = 1; i < n; i++)
    if (!strcmp(object[i - 1]->key, object[i]->key))
      return insitu__error_set(
          err, INSITU_E_ARG, "store '%.400s': desc.objects has '%.400s' twice; give each object once", s->url, object[i]->key);
  return INSITU_OK;
}

/* -- remote stores -- */

/* HTTP servers, S3, Google Cloud Storage and Azure: >>cloud knows where and how to ask, >>http sends, and here each read is seen
 * through: retries, what was received of a body is not asked for again, redirects, and what an answer means. */
#ifndef INSITU_NO_CURL
#define INSITU__STORE_REDIRECTS 5
#define INSITU__STORE_LEARNED 4            /* attempts that only teach something: a region, a clock, new credentials */
#define INSITU__STORE_SEEN (1u << 20)      /* places of the table of ETags: 16 bytes each, mapped when they are used */
#define INSITU__STORE_TRANSFER (32u << 10) /* bytes that curl takes for a transfer beside its buffer, without TLS, about */
/* A read of more bytes is made of several requests side by side: one connection to an object store gives 50 to 100 MB/s. As large as
 * the AWS CLI's parts. */
#define INSITU__STORE_PART (8u << 20)
#define INSITU__STORE_PARTS 32 /* of one read, at most: then larger ones */
#define INSITU__STORE_PROBES 8 /* places that are looked at for one object */

struct insitu__store_seen { /* what was read of an object: another ETag later means that it has changed */
  uint64_t key, etag;       /* hashes; 0: free */
};
struct insitu__store_remote {
  struct insitu__http http;
  struct insitu__cloud cloud;
  struct insitu__store_seen *seen;
};

struct insitu__store_fetch { /* one read on its way; lives on its coroutine's stack */
  struct insitu__store *store;
  const char *key, *continuation;
  int what; /* INSITU__CLOUD_... */
  struct insitu__http_request request;
  struct insitu__http_retry retry;
  struct insitu__store_tag *tag;
  uint64_t offset, bytes;       /* the range; bytes 0: all */
  uint64_t had;                 /* of them, what earlier attempts brought */
  char etag[INSITU__HTTP_ETAG]; /* of the body whose beginning has arrived */
  bool pinned;                  /* or of the object that this must be a part of */
  char *moved;                  /* where a redirect sends us */
  unsigned redirects, learned;
  bool shorter; /* out: the object ends before the range */
};

static uint64_t insitu__store_hash(const char *text) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (; *text; text++) hash = insitu__order_mix(hash ^ (unsigned char)*text);
  return hash ? hash : 1;
}
/* Compares an object's ETag with what was seen before, and notes it. False: it has changed. */
static bool insitu__store_same(struct insitu__store_remote *m, const char *key, const char *etag) {
  uint64_t hash = insitu__store_hash(key), value = insitu__store_hash(etag);
  struct insitu__store_seen *place = NULL;
  if (!etag[0]) return true;
  for (unsigned i = 0; i < INSITU__STORE_PROBES; i++) {
    struct insitu__store_seen *s = &m->seen[(hash + i) % INSITU__STORE_SEEN];
    if (s->key == hash) return s->etag == value;
    if (!s->key && !place) place = s;
  }
  if (!place)
    place = &m->seen[(hash + value % INSITU__STORE_PROBES) % INSITU__STORE_SEEN]; /* the table is full: one is forgotten */
  *place = (struct insitu__store_seen){hash, value};
  return true;
}
static bool insitu__store_was_there(struct insitu__store_remote *m, const char *key) {
  uint64_t hash = insitu__store_hash(key);
  for (unsigned i = 0; i < INSITU__STORE_PROBES; i++)
    if (m->seen[(hash + i) % INSITU__STORE_SEEN].key == hash) return true;
  return false;
}

static insitu_status insitu__store_fetch_failed(
    const struct insitu__store_fetch *f, insitu_status status, const char *cause, const char *advice, insitu_error *err) {
  const struct insitu__http_request *r = &f->request;
  if (err && err->status >= 0) err->http_status = r->answer.status;
  return insitu__error_set(err, status, "store '%.300s', object '%.300s': %.300s%s%.100s%s; %s", f->store->url, f->key, cause,
      r->answer.id[0] ? " (request " : "", r->answer.id, r->answer.id[0] ? ")" : "", advice);
}
/* An answer that is no success: what it means. */
static insitu_status insitu__store_fetch_refused(const struct insitu__store_fetch *f, insitu_error *err) {
  char code[64], cause[160], tries[48] = "";
  const struct insitu__http_request *r = &f->request;
  int http = r->answer.status;
  insitu__cloud_code(r, code, sizeof code);
  bool transient = insitu__http_transient_status(http);
  if (f->retry.tries) snprintf(tries, sizeof tries, ", after %u attempts", f->retry.tries + 1);
  snprintf(cause, sizeof cause, "HTTP %d%s%s%s", http, code[0] ? " " : "", code, tries);
  if (err && err->status >= 0) err->retryable = transient;
  return insitu__store_fetch_failed(f, http == 401 || http == 403 ? INSITU_E_AUTH : INSITU_E_HTTP, cause,
      transient ? "the server is overloaded or ill; try again later, or with a lower max_inflight"
                : insitu__cloud_advice(&f->store->remote->cloud, http, code),
      err);
}

/* Turns the request to where a redirect sent us. Another host gets the range and the conditions, and nothing that proves who
 * asks. */
static insitu_status insitu__store_fetch_move(struct insitu__store_fetch *f, insitu_error *err) {
  struct insitu__http_request *r = &f->request;
  char here[300], there[300];
  insitu__http_origin(r->url, here, sizeof here);
  insitu__http_origin(f->moved, there, sizeof there);
  bool other = strcasecmp(here, there) != 0;
  for (uint64_t i = 0; other && i < INSITU__ARRAY_LEN(r->headers); i++) {
    char *h = r->headers[i];
    if (!strncasecmp(h, "range:", 6) || !strncasecmp(h, "if-", 3)) continue;
    explicit_bzero(h, strlen(h));
    snprintf(h, 2, ";"); /* what curl leaves out: a header without a name */
  }
  if (other && !strncmp(here, "https:", 6) && strncmp(there, "https:", 6))
    return insitu__store_fetch_failed(
        f, INSITU_E_HTTP, "a redirect from https to http", "give the url that it leads to, if you trust the way there", err);
  r->own_url.n = 0;
  insitu__text_buffer_printf(&r->own_url, "%s", f->moved);
  r->url = r->own_url.text;
  return r->own_url.failed ? insitu__store_fetch_failed(f, INSITU_E_NOMEM, "no memory", "give the process more memory", err)
                           : INSITU_OK;
}
/* Fills the request anew, for what is still missing. */
static insitu_status insitu__store_fetch_prepare_await(struct insitu__store_fetch *f, insitu_error *err) {
  struct insitu__http_request *r = &f->request;
  char range[64];
  bool tail = f->offset == INSITU__RING_TAIL && !f->had;
  struct insitu__cloud_ask ask = {.what = f->what, .key = f->key, .continuation = f->continuation};
  insitu__http_request_reset(r);
  r->first = tail ? INSITU__RING_TAIL : f->offset + f->had;
  r->bytes = f->bytes ? f->bytes - f->had : 0;
  if (tail) snprintf(range, sizeof range, "bytes=-%" PRIu64, r->bytes);
  else snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, r->first, r->first + r->bytes - 1);
  if (r->bytes) ask.range = range;
  if ((f->had || f->pinned) && f->etag[0] && strncmp(f->etag, "W/", 2)) ask.if_match = f->etag; /* a weak one never matches */
  if (!f->had && f->tag && f->tag->etag[0]) ask.if_none_match = f->tag->etag;
  insitu_status status = insitu__cloud_prepare_await(&f->store->remote->cloud, &ask, r, err);
  return status < 0 || !f->moved ? status : insitu__store_fetch_move(f, err);
}
/* Takes a redirect's target; false when it is none that is followed. */
static bool insitu__store_fetch_redirect(struct insitu__store_fetch *f) {
  struct insitu__http_request *r = &f->request;
  int http = r->answer.status;
  char *target = NULL;
  if (f->store->remote->cloud.kind != INSITU__CLOUD_HTTP || !r->answer.location || f->redirects++ >= INSITU__STORE_REDIRECTS ||
      (http != 301 && http != 302 && http != 303 && http != 307 && http != 308))
    return false;
  CURLU *u = curl_url();
  if (u && !curl_url_set(u, CURLUPART_URL, r->url, 0) && !curl_url_set(u, CURLUPART_URL, r->answer.location, 0) &&
      !curl_url_get(u, CURLUPART_URL, &target, 0) &&
      (!strncasecmp(target, "http://", 7) || !strncasecmp(target, "https://", 8))) {
    insitu__mem_free(f->moved);
    f->moved = insitu__mem_text(target, strlen(target));
  } else {
    insitu__mem_free(f->moved);
    f->moved = NULL;
  }
  curl_free(target);
  curl_url_cleanup(u);
  return f->moved != NULL;
}
/* Waits for another attempt, which begins where the first one began; false: there is none. */
static bool insitu__store_fetch_again_await(struct insitu__store_fetch *f) {
  insitu__mem_free(f->moved);
  f->moved = NULL;
  f->redirects = 0;
  return insitu__http_pause_await(&f->store->remote->http, &f->retry, &f->request);
}
/* Notes what a broken transfer has brought of the range. */
static void insitu__store_fetch_keep(struct insitu__store_fetch *f) {
  const struct insitu__http_answer *a = &f->request.answer;
  if (f->request.placed == f->had) return;
  if (f->offset == INSITU__RING_TAIL) {
    f->offset = a->status == 206 ? a->first : a->length - insitu__base_min(f->bytes, a->length);
    f->bytes = insitu__base_min(f->bytes, (a->status == 206 ? a->total : a->length) - f->offset);
  }
  f->had = f->request.placed;
  memcpy(f->etag, a->etag, sizeof f->etag);
}
/* A whole answer has come: checks that it belongs to what was read before. */
static insitu_status insitu__store_fetch_take(struct insitu__store_fetch *f, insitu_error *err) {
  struct insitu__store_remote *m = f->store->remote;
  const struct insitu__http_answer *a = &f->request.answer;
  insitu__http_served(&m->http);
  bool other = (f->had || f->pinned) && f->etag[0] && strcmp(f->etag, a->etag);
  if (!m->http.desc.any_etag && (other || (f->what == INSITU__CLOUD_READ && !insitu__store_same(m, f->key, a->etag))))
    return insitu__store_fetch_failed(f, INSITU_E_CHANGED, "it is not the object that was read before (its ETag changed)",
        "the archive must not change while it is open; open it again once it is complete", err);
  if (f->tag) {
    memcpy(f->tag->etag, a->etag, sizeof f->tag->etag);
    f->tag->size = a->status == 206 ? a->total : f->request.failure ? UINT64_MAX : a->length;
  }
  return INSITU_OK;
}
enum { INSITU__STORE_AGAIN = 1 };
/* What an attempt has brought: INSITU_OK, an error, or INSITU__STORE_AGAIN. */
static insitu_status insitu__store_fetch_judge_await(struct insitu__store_fetch *f, insitu_error *err) {
  struct insitu__store_remote *m = f->store->remote;
  struct insitu__http_request *r = &f->request;
  const struct insitu__http_answer *a = &r->answer;
  char code[64];
  switch (a->status) {
  case 200:
  case 206:
    if (!r->bytes || !r->iov || a->status == 200 || r->placed == f->had + (a->last - a->first + 1))
      return insitu__store_fetch_take(f, err);
    insitu__store_fetch_keep(f); /* its length was not told, or wrong */
    if (insitu__store_fetch_again_await(f)) return INSITU__STORE_AGAIN;
    return insitu__store_fetch_failed(f, INSITU_E_HTTP, "its body ends early, in every attempt", "check the server", err);
  case 304:
    if (!f->tag) break;
    f->tag->unchanged = true;
    return INSITU_OK;
  case 412:
    return insitu__store_fetch_failed(f, INSITU_E_CHANGED, "it changed while it was read (its ETag is another)",
        "the archive must not change while it is open; open it again once it is complete", err);
  case 416:
    if (r->bytes && a->has_range && a->first > a->last && (f->offset == INSITU__RING_TAIL || a->total <= r->first))
      return INSITU_OK;
    break;
  case 404:
  case 410:
    if (f->what == INSITU__CLOUD_READ && insitu__store_was_there(m, f->key)) {
      if (insitu__store_fetch_again_await(f)) return INSITU__STORE_AGAIN;
      return insitu__store_fetch_failed(f, INSITU_E_CHANGED, "it was read before, and is not there any more",
          "the archive must not change while it is open", err);
    }
    if (!insitu__cloud_is_missing(insitu__cloud_code(r, code, sizeof code))) break;
    return insitu__store_fetch_failed(f, INSITU_E_NOTFOUND, "no such object", "check the name", err);
  default: break;
  }
  if (insitu__store_fetch_redirect(f)) return INSITU__STORE_AGAIN;
  if (f->learned < INSITU__STORE_LEARNED && insitu__cloud_learn_await(&m->cloud, r, &f->learned, err) == INSITU__CLOUD_AGAIN)
    return INSITU__STORE_AGAIN;
  if (err && err->status < 0) return err->status; /* new credentials were not to be had */
  if (insitu__http_transient_status(a->status) && insitu__store_fetch_again_await(f)) return INSITU__STORE_AGAIN;
  return insitu__store_fetch_refused(f, err);
}
/* Sees a read through. */
static insitu_status insitu__store_fetch_await(struct insitu__store_fetch *f, insitu_error *err) {
  struct insitu__store_remote *m = f->store->remote;
  f->retry.began = insitu__base_now();
  for (;;) {
    insitu_error once;
    insitu__error_clear(&once);
    insitu_status status = insitu__store_fetch_prepare_await(f, err);
    if (status < 0) return status;
    status = insitu__http_await(&m->http, &f->request, &once);
    if (status == INSITU_CANCELLED)
      return insitu__store_fetch_failed(f, INSITU_E_HTTP, "given up", "the loader is being closed", err);
    if (status == INSITU_OK) {
      status = insitu__store_fetch_judge_await(f, err);
      if (status != INSITU__STORE_AGAIN) return status;
      continue;
    }
    insitu__store_fetch_keep(f);
    if (f->request.transient && insitu__store_fetch_again_await(f)) continue;
    char tries[32] = "";
    if (f->retry.tries) snprintf(tries, sizeof tries, "after %u attempts", f->retry.tries + 1);
    insitu__error_cause(err, &once);
    return insitu__error_set(err, status, "store '%.300s', object '%.300s': %.400s%s%s", f->store->url, f->key, once.message,
        tries[0] ? "; given up " : "", tries);
  }
}
static void insitu__store_fetch_end(struct insitu__store_fetch *f) {
  insitu__http_request_free(&f->request);
  insitu__mem_free(f->moved);
}

static insitu_status insitu__store_remote_size_await(
    struct insitu__store *s, const char *key, uint64_t *size, insitu_error *err) {
  struct insitu__store_fetch f = {.store = s, .key = key, .what = INSITU__CLOUD_HEAD};
  insitu_status status = insitu__store_fetch_await(&f, err);
  *size = f.request.answer.length;
  if (status >= 0 && *size == UINT64_MAX)
    status = insitu__store_fetch_failed(&f, INSITU_E_HTTP, "the server does not tell its length", "check the server", err);
  insitu__store_fetch_end(&f);
  return status;
}
struct insitu__store_part { /* of a large read */
  struct insitu__store_fetch fetch;
  struct insitu__reactor_gate *done;
  insitu_status status;
  insitu_error error;
};
static void insitu__store_part_await(void *arg) {
  struct insitu__store_part *part = (struct insitu__store_part *)arg;
  part->status = insitu__store_fetch_await(&part->fetch, &part->error);
  insitu__reactor_gate_open(part->done);
}
/* Moves the next n bytes of *from to `to`; how many entries they are. */
static unsigned insitu__store_cut(struct iovec **from, struct iovec *to, uint64_t n) {
  unsigned count = 0;
  while (n) {
    uint64_t bytes = insitu__base_min(n, (*from)->iov_len);
    to[count++] = (struct iovec){(*from)->iov_base, (size_t)bytes};
    if ((*from)->iov_base) (*from)->iov_base = (char *)(*from)->iov_base + bytes;
    (*from)->iov_len -= (size_t)bytes;
    if (!(*from)->iov_len) ++*from;
    n -= bytes;
  }
  return count;
}
/* The first part of a read has arrived, and the object goes on: fetches its next `rest` bytes, side by side. */
static insitu_status insitu__store_rest_await(
    struct insitu__store_fetch *first, uint64_t rest, uint64_t *got, insitu_error *err) {
  struct insitu__store *s = first->store;
  uint64_t each = insitu__base_max(INSITU__STORE_PART, insitu__base_ceil_div(rest, INSITU__STORE_PARTS));
  uint64_t n = insitu__base_ceil_div(rest, each), at = first->offset + first->request.placed;
  struct insitu__reactor_gate gate;
  struct insitu__store_part *part = (struct insitu__store_part *)insitu__mem_alloc(n, sizeof *part);
  struct iovec *from = first->request.iov;
  struct iovec *iov = (struct iovec *)insitu__mem_alloc(n + first->request.n_iov, sizeof *iov), *next = iov;
  insitu_status status = part && iov ? INSITU_OK : INSITU_E_NOMEM;
  if (status) insitu__store_fetch_failed(first, status, "no memory for its parts", "give the process more memory", err);
  if (!status) insitu__reactor_gate_expect(&gate, (unsigned)n);
  for (uint64_t i = 0; !status && i < n; i++) {
    struct insitu__store_part *p = &part[i];
    memset(p, 0, sizeof *p);
    p->done = &gate;
    p->fetch = (struct insitu__store_fetch){
        .store = s, .key = first->key, .what = INSITU__CLOUD_READ, .offset = at + i * each, .pinned = true};
    memcpy(p->fetch.etag, first->request.answer.etag, sizeof p->fetch.etag);
    p->fetch.bytes = insitu__base_min(each, rest - i * each);
    p->fetch.request.give_up = first->request.give_up;
    p->fetch.request.iov = next;
    p->fetch.request.n_iov = insitu__store_cut(&from, next, p->fetch.bytes);
    next += p->fetch.request.n_iov;
  }
  for (uint64_t i = 0; !status && i < n; i++)
    if (insitu__reactor_spawn(s->reactor, insitu__store_part_await, &part[i])) insitu__store_part_await(&part[i]);
  if (!status) insitu__reactor_gate_await(s->reactor, &gate);
  for (uint64_t i = 0; part && iov && i < n; i++) {
    if (part[i].status < 0 && !status) {
      status = part[i].status;
      if (err && err->status >= 0) *err = part[i].error;
    }
    *got += part[i].fetch.request.placed;
    insitu__store_fetch_end(&part[i].fetch);
  }
  insitu__mem_free(part);
  insitu__mem_free(iov);
  return status;
}
static insitu_status insitu__store_remote_read_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  struct insitu__store_fetch f = {.store = s, .key = key, .what = INSITU__CLOUD_READ, .tag = tag, .offset = offset};
  const struct insitu__http_answer *a = &f.request.answer;
  uint64_t size, room = 0;
  *got = 0;
  insitu_status status = insitu__store_check_key(key, err);
  if (status < 0) return status;
  for (unsigned i = 0; i < n_iov; i++) room += iov[i].iov_len;
  if (tag) tag->unchanged = false;
  f.request.give_up = tag ? tag->give_up : NULL;
  if (!room || (offset == INSITU__RING_TAIL && !insitu__cloud_has_suffix(&s->remote->cloud))) {
    status = insitu__store_remote_size_await(s, key, &size, err);
    if (status < 0) return status;
    room = insitu__store_range(size, &offset, iov, n_iov);
    if (!room) return INSITU_OK;
    f.offset = offset;
  }
  f.bytes = offset == INSITU__RING_TAIL ? room : insitu__base_min(room, INSITU__STORE_PART);
  f.request.iov = iov;
  f.request.n_iov = n_iov;
  status = insitu__store_fetch_await(&f, err);
  *got = status < 0 ? 0 : f.request.placed;
  if (status >= 0 && f.bytes < room && a->status == 206 && a->total != UINT64_MAX && a->total > offset + *got)
    status = insitu__store_rest_await(&f, insitu__base_min(room, a->total - offset) - *got, got, err);
  insitu__store_fetch_end(&f);
  return status;
}
static insitu_status insitu__store_remote_get_await(
    struct insitu__store *s, const char *key, uint64_t limit, char **text, uint64_t *n, insitu_error *err) {
  struct insitu__store_fetch f = {.store = s, .key = key, .what = INSITU__CLOUD_READ};
  *text = NULL;
  *n = 0;
  insitu_status status = insitu__store_check_key(key, err);
  if (status < 0) return status;
  f.request.text.limit = limit;
  status = insitu__store_fetch_await(&f, err);
  if (status >= 0 && !f.request.text.text && !insitu__text_buffer_bytes(&f.request.text, "", 0)) status = INSITU_E_NOMEM;
  if (status >= 0) {
    *text = f.request.text.text;
    *n = f.request.text.n;
    f.request.text.text = NULL;
  }
  insitu__store_fetch_end(&f);
  return status;
}

struct insitu__store_page {         /* names of a listing */
  struct insitu__text_buffer names; /* per entry: 'd' or 'f', name, NUL */
  uint64_t count;
};
static void insitu__store_page_add(void *to, const char *name, bool is_directory) {
  struct insitu__store_page *p = (struct insitu__store_page *)to;
  insitu__text_buffer_bytes(&p->names, is_directory ? "d" : "f", 1);
  insitu__text_buffer_bytes(&p->names, name, strlen(name) + 1);
  p->count++;
}
static insitu_status insitu__store_remote_list_await(struct insitu__store *s, const char *prefix,
    void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err) {
  struct insitu__store_page page = {.names.limit = (uint64_t)INSITU__MAX_LIST * 64};
  struct insitu__text_buffer next = {0};
  insitu_status status = prefix[0] ? insitu__store_check_key(prefix, err) : INSITU_OK;
  if (status >= 0 && s->remote->cloud.kind == INSITU__CLOUD_HTTP)
    status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.400s': an HTTP server does not tell what is there; consolidate the metadata, or name the arrays", s->url);
  for (bool more = status >= 0; more;) {
    struct insitu__store_fetch f = {
        .store = s, .key = prefix, .what = INSITU__CLOUD_LIST, .continuation = next.n ? next.text : NULL};
    status = insitu__store_fetch_await(&f, err);
    next.n = 0;
    if (status >= 0)
      status = insitu__cloud_list_page(&s->remote->cloud, prefix, f.request.text.text ? f.request.text.text : "",
          f.request.text.n, insitu__store_page_add, &page, &next, err);
    insitu__store_fetch_end(&f);
    if (status >= 0 && (page.count > INSITU__MAX_LIST || page.names.failed || next.failed))
      status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
          "store '%.400s', prefix '%.400s': more than INSITU__MAX_LIST (%u) names, or memory is short; name the arrays, or "
          "consolidate the metadata",
          s->url, prefix, INSITU__MAX_LIST);
    more = status >= 0 && next.n;
  }
  if (status >= 0) status = insitu__store_emit(s, prefix, &page.names, page.count, emit, to, err);
  insitu__text_buffer_free(&page.names);
  insitu__text_buffer_free(&next);
  return status;
}
static void insitu__store_remote_close(struct insitu__store *s) {
  struct insitu__store_remote *m = s->remote;
  insitu__cloud_close(&m->cloud);
  insitu__http_close(&m->http);
  if (m->seen) insitu__mem_unmap(m->seen, INSITU__STORE_SEEN * sizeof *m->seen);
  insitu__mem_free(m);
}
/* What waits for a server in vain is to look at its tag's give_up. Reactor thread. */
static void insitu__store_remote_sweep(struct insitu__store *s) {
  s->remote->http.sweep = true;
}
static void insitu__store_remote_stats(const struct insitu__store *s, insitu_stats *out) {
  const struct insitu__http *h = &s->remote->http;
  out->http_requests = atomic_load_explicit(&h->n_requests, memory_order_relaxed);
  out->retries = atomic_load_explicit(&h->n_retries, memory_order_relaxed);
  out->throttled = atomic_load_explicit(&h->n_throttled, memory_order_relaxed);
  out->hedges = atomic_load_explicit(&h->n_hedges, memory_order_relaxed);
  out->bytes_fetched = atomic_load_explicit(&h->n_bytes, memory_order_relaxed);
}
static const struct insitu__store_ops insitu__store_remote_ops = {insitu__store_remote_read_await, NULL,
    insitu__store_remote_list_await, insitu__store_remote_close, insitu__store_remote_get_await};
/* No request is sent yet. */
static insitu_status insitu__store_remote_open(
    struct insitu__store *s, int kind, const insitu_loader_desc *desc, insitu_error *err) {
  struct insitu__store_remote *m = (struct insitu__store_remote *)insitu__mem_alloc(1, sizeof *m);
  if (m) memset(m, 0, sizeof *m);
  if (!m) return insitu__error_set(err, INSITU_E_NOMEM, "store: no memory to open it; give the process more memory");
  s->ops = &insitu__store_remote_ops; /* closing frees all from here on */
  s->remote = m;
  insitu_status status = insitu__http_open(&m->http, s->reactor, err);
  if (status >= 0) status = insitu__cloud_open(&m->cloud, &m->http, kind, desc->url, desc->options, desc->n_options, err);
  if (status < 0) return status;
  insitu__mem_free(s->url); /* for messages: without credentials and query */
  s->url = insitu__mem_text(insitu__cloud_name(&m->cloud), strlen(insitu__cloud_name(&m->cloud)));
  m->seen = (struct insitu__store_seen *)insitu__mem_map(INSITU__STORE_SEEN * sizeof *m->seen);
  if (s->url && m->seen) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_NOMEM, "store: no memory to open it; give the process more memory");
}
#endif

/* -- zip files -- */

/* A zip file (APPNOTE.TXT 6.3.10) that is an object of another store. Its index is the central directory, read once; what the local
 * headers repeat of it is not looked at. Names are keys byte for byte, in whatever encoding; directories and names that are no
 * keys are left out; of several members with one name the last counts, which is how zarr-python replaces one. A stored member's
 * bytes are read straight to their place: one read more, of the local header, finds them the first time. A deflated one is
 * inflated from its beginning by every read, a piece at a time. */

#define INSITU__STORE_PIECE (64u << 10)  /* bytes of a deflated member that are read at once */
#define INSITU__STORE_SKIP (16u << 10)   /* inflated bytes before a range that are dropped at once */
#define INSITU__STORE_WINDOW (48u << 10) /* bytes that an inflate state takes at most (zlib 1.2.13: 40 KiB) */
#define INSITU__STORE_NOW 8              /* buffers that a read without waiting may copy, to end it within one */
enum { INSITU__STORE_STORED = 0, INSITU__STORE_DEFLATED = 8 }; /* methods */
enum { INSITU__STORE_LOCAL = 30, INSITU__STORE_CENTRAL = 46, INSITU__STORE_END = 22, INSITU__STORE_END64 = 56 + 20 }; /* bytes */

struct insitu__store_member {
  insitu_object object;        /* its key, no bytes, its size; the key is NULL for what is no object */
  uint64_t header, stored;     /* where its local header lies in the file; its bytes there */
  uint64_t limit;              /* its bytes end here at the latest: the next member begins, or the directory */
  atomic_uint_least64_t start; /* where its bytes begin; 0: the local header has not been read */
  uint32_t crc;
  uint16_t method, flags, name; /* name: its bytes */
};
struct insitu__store_end {     /* what the records at the file's end say of the central directory */
  uint64_t at, bytes, members; /* at: in the file */
  uint64_t before;             /* bytes of something else before the archive, which its offsets do not count */
  bool zip64;
};
struct insitu__store_index {
  struct insitu__store_member *member; /* all */
  const insitu_object **object;        /* of them, the objects below the root, by insitu__store_order */
  uint64_t n_members, n_objects;
  char *names, *folder; /* folder: the top-level directory that was taken for the root, or NULL */
  bool deflated;        /* there are such members */
};
#ifdef INSITU_WITH_ZLIB
struct insitu__store_inflater {
  struct insitu__store_inflater *next;
  z_stream z;
  uint64_t skip, wanted, total, size; /* bytes to drop first; to deliver then; inflated so far; in all */
  struct iovec *iov;
  uint32_t crc, want_crc;
  bool done;
  insitu_error error;
  unsigned char piece[INSITU__STORE_PIECE], dropped[INSITU__STORE_SKIP];
};
#endif
struct insitu__store_zip {
  struct insitu__store base;
  char *name, *root; /* the file's key in base; the path of the archive's root in it, "" for all */
  uint64_t bytes;    /* of the file */
  struct insitu__store_index index;
#ifdef INSITU_WITH_ZLIB
  struct insitu__store_inflater *idle; /* the reactor thread's */
#endif
};

#define INSITU__STORE_BAD "the zip file is damaged, or not all of it is there: copy or write it again"

/* Finds the central directory. tail: the last n bytes of a file of `file` bytes, all or as many as the records can take. */
static insitu_status insitu__store_zip_end(
    const unsigned char *tail, uint64_t n, uint64_t file, struct insitu__store_end *end, insitu_error *err) {
  uint64_t at = n < INSITU__STORE_END ? 0 : n - INSITU__STORE_END + 1, offset;
  while (at && (insitu__base_load32(tail + at - 1) != 0x06054b50 ||
                   at - 1 + INSITU__STORE_END + insitu__base_load16(tail + at - 1 + 20) != n))
    at--;
  if (!at--)
    return insitu__error_set(err, INSITU_E_NOT_ZARR,
        "it is a file, and not a whole zip file; give the directory that holds the archive, or a zip file of it");
  const unsigned char *p = tail + at;
  bool parts = insitu__base_load16(p + 4) || insitu__base_load16(p + 6);
  end->zip64 = at >= INSITU__STORE_END64 && insitu__base_load32(p - 20) == 0x07064b50;
  end->members = insitu__base_load16(p + 10);
  end->bytes = insitu__base_load32(p + 12);
  offset = insitu__base_load32(p + 16);
  if (end->zip64) {
    p -= INSITU__STORE_END64;
    at -= INSITU__STORE_END64;
    if (insitu__base_load32(p) != 0x06064b50)
      return insitu__error_set(err, INSITU_E_CORRUPT, "no ZIP64 end record before its locator; " INSITU__STORE_BAD);
    parts = insitu__base_load32(p + 16) || insitu__base_load32(p + 20) || insitu__base_load32(p + 72) > 1;
    end->members = insitu__base_load64(p + 32);
    end->bytes = insitu__base_load64(p + 40);
    offset = insitu__base_load64(p + 48);
  }
  if (parts)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED, "the zip file is one of several parts; join them (zip -s 0 --out)");
  if (end->bytes > INSITU__MAX_DIRECTORY || end->members > INSITU__MAX_MEMBERS)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "its central directory has %" PRIu64 " members in %" PRIu64
        " bytes, INSITU__MAX_MEMBERS (%u) and INSITU__MAX_DIRECTORY (%u) are the most; unpack it",
        end->members, end->bytes, INSITU__MAX_MEMBERS, INSITU__MAX_DIRECTORY);
  uint64_t stop = file - n + at; /* where the directory ends */
  if (end->bytes > stop || offset > stop - end->bytes)
    return insitu__error_set(err, INSITU_E_CORRUPT, "its central directory lies outside the file; " INSITU__STORE_BAD);
  end->at = stop - end->bytes;
  end->before = end->at - offset;
  return INSITU_OK;
}

/* The values that an entry keeps in its ZIP64 field, for want of room. */
static bool insitu__store_zip_wide(const unsigned char *extra, uint64_t n, uint64_t *size, uint64_t *stored, uint64_t *header) {
  uint64_t *value[] = {size, stored, header};
  while (n >= 4) {
    uint64_t length = insitu__base_load16(extra + 2), at = 4;
    if (length > n - 4) return true; /* not a list of fields: some writers pad with other bytes */
    if (insitu__base_load16(extra) == 1) {
      for (int i = 0; i < 3; i++) {
        if (*value[i] != UINT32_MAX) continue;
        if (length + 4 - at < 8) return false;
        *value[i] = insitu__base_load64(extra + at);
        at += 8;
      }
      return true;
    }
    extra += 4 + length;
    n -= 4 + length;
  }
  return true;
}
/* Length of the directory's entry at p, of which n bytes are there; 0: it is none. */
static uint64_t insitu__store_zip_entry(const unsigned char *p, uint64_t n) {
  if (n < INSITU__STORE_CENTRAL || insitu__base_load32(p) != 0x02014b50) return 0;
  uint64_t length =
      (uint64_t)INSITU__STORE_CENTRAL + insitu__base_load16(p + 28) + insitu__base_load16(p + 30) + insitu__base_load16(p + 32);
  return length > n ? 0 : length;
}
/* Reads an entry; its name goes to *names, which moves on. */
static bool insitu__store_zip_member(
    const unsigned char *p, const struct insitu__store_end *end, const char *root, struct insitu__store_member *m, char **names) {
  uint64_t n = insitu__base_load16(p + 28), skip = strlen(root);
  char *name = *names;
  m->flags = insitu__base_load16(p + 8);
  m->method = insitu__base_load16(p + 10);
  m->crc = insitu__base_load32(p + 16);
  m->stored = insitu__base_load32(p + 20);
  m->object.n = insitu__base_load32(p + 24);
  m->name = (uint16_t)n;
  m->header = insitu__base_load32(p + 42);
  atomic_init(&m->start, 0);
  if (!insitu__store_zip_wide(p + INSITU__STORE_CENTRAL + n, insitu__base_load16(p + 30), &m->object.n, &m->stored, &m->header) ||
      !insitu__base_add(m->header, end->before, &m->header))
    return false;
  memcpy(name, p + INSITU__STORE_CENTRAL, (size_t)n);
  name[n] = 0;
  *names += n + 1;
  if (skip && (strncmp(name, root, skip) || name[skip++] != '/')) return true;
  if (strlen(name) == n && insitu__store_key_valid(name + skip)) m->object.key = name + skip;
  return true;
}

static int insitu__store_compare_headers(const void *a, const void *b) {
  const struct insitu__store_member *x = *(const struct insitu__store_member *const *)a,
                                    *y = *(const struct insitu__store_member *const *)b;
  return (x->header > y->header) - (x->header < y->header);
}
static int insitu__store_compare_members(const void *a, const void *b) { /* of one name, the one that comes later last */
  int order = insitu__store_compare_objects(a, b);
  const char *x = *(const char *const *)a, *y = *(const char *const *)b; /* addresses */
  return order ? order : (x > y) - (x < y);
}
/* What lies in a directory of this name, instead of everything. */
static void insitu__store_zip_enter(struct insitu__store_index *x, const char *folder, uint64_t n) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < x->n_objects; i++) {
    insitu_object *o = &x->member[(const struct insitu__store_member *)(const void *)x->object[i] - x->member].object;
    if (strncmp(o->key, folder, n) || o->key[n] != '/') continue;
    o->key += n + 1;
    x->object[kept++] = o;
  }
  x->n_objects = kept;
}
/* A folder that was packed from its parent: the only top-level directory becomes the root if that has no metadata. What macOS
 * adds does not count. */
static bool insitu__store_zip_unwrap(struct insitu__store_index *x) {
  static const char *const metadata[] = {"zarr.json", ".zmetadata", ".zgroup", ".zarray"};
  const char *folder = NULL;
  uint64_t n = 0;
  for (uint64_t i = 0; i < x->n_objects; i++) {
    const char *key = x->object[i]->key;
    uint64_t top = strcspn(key, "/");
    for (size_t k = 0; k < sizeof metadata / sizeof *metadata; k++)
      if (!strcmp(key, metadata[k])) return true;
    if (!key[top] || !strncmp(key, "__MACOSX/", 9)) continue;
    if (folder && (top != n || memcmp(folder, key, (size_t)n))) return true;
    folder = key;
    n = top;
  }
  if (!folder) return true;
  x->folder = insitu__mem_text(folder, n);
  if (x->folder) insitu__store_zip_enter(x, x->folder, n);
  return x->folder;
}

static void insitu__store_index_free(struct insitu__store_index *x) {
  insitu__mem_free(x->member);
  insitu__mem_free(x->object);
  insitu__mem_free(x->names);
  insitu__mem_free(x->folder);
  memset(x, 0, sizeof *x);
}
/* The members below `root` of a central directory, its n = end->bytes bytes at p. insitu__store_index_free in any case. */
static insitu_status insitu__store_zip_index(const unsigned char *p, uint64_t n, const struct insitu__store_end *end,
    const char *root, struct insitu__store_index *x, insitu_error *err) {
  uint64_t at = 0, names = 0;
  memset(x, 0, sizeof *x);
  for (uint64_t length; at < n; at += length, x->n_members++) {
    if (!(length = insitu__store_zip_entry(p + at, n - at)) || x->n_members == INSITU__MAX_MEMBERS)
      return insitu__error_set(
          err, INSITU_E_CORRUPT, "entry %" PRIu64 " of its central directory is none; " INSITU__STORE_BAD, x->n_members);
    names += insitu__base_load16(p + at + 28) + 1u;
  }
  if (end->zip64 ? x->n_members != end->members : (uint16_t)x->n_members != end->members) /* without ZIP64 some count on from 0 */
    return insitu__error_set(err, INSITU_E_CORRUPT,
        "%" PRIu64 " members in its central directory, its end record says %" PRIu64 "; " INSITU__STORE_BAD, x->n_members,
        end->members);
  x->member = (struct insitu__store_member *)insitu__mem_alloc(x->n_members, sizeof *x->member);
  x->object = (const insitu_object **)insitu__mem_alloc(x->n_members, sizeof *x->object);
  char *name = x->names = (char *)insitu__mem_alloc(names, 1);
  if (!x->member || !x->object || !x->names)
    return insitu__error_set(err, INSITU_E_NOMEM, "no memory for an index of its %" PRIu64 " members", x->n_members);
  at = 0;
  for (uint64_t i = 0; i < x->n_members; i++, at += insitu__store_zip_entry(p + at, n - at)) {
    if (!insitu__store_zip_member(p + at, end, root, &x->member[i], &name))
      return insitu__error_set(
          err, INSITU_E_CORRUPT, "entry %" PRIu64 " of its central directory makes no sense; " INSITU__STORE_BAD, i);
    x->object[i] = &x->member[i].object;
    x->deflated = x->deflated || x->member[i].method == INSITU__STORE_DEFLATED;
  }
  if (x->n_members) qsort(x->object, (size_t)x->n_members, sizeof *x->object, insitu__store_compare_headers);
  uint64_t limit = end->at;
  for (uint64_t i = x->n_members; i-- > 0;) {
    struct insitu__store_member *m = &x->member[(const struct insitu__store_member *)(const void *)x->object[i] - x->member];
    m->limit = limit;
    limit = insitu__base_min(limit, m->header); /* one that lies outside bounds no other */
  }
  for (uint64_t i = 0; i < x->n_members; i++)
    if (x->member[i].object.key) x->object[x->n_objects++] = &x->member[i].object;
  uint64_t found = x->n_objects, kept = 0;
  if (found) qsort(x->object, (size_t)found, sizeof *x->object, insitu__store_compare_members);
  for (uint64_t i = 0; i < found; i++)
    if (i + 1 == found || strcmp(x->object[i]->key, x->object[i + 1]->key)) x->object[kept++] = x->object[i];
  x->n_objects = kept;
  if (root[0] && !kept)
    return insitu__error_set(err, INSITU_E_NOTFOUND,
        "the zip file has no directory '%.300s'; give its whole path inside the file, as unzip -l lists it", root);
  if (!root[0] && !insitu__store_zip_unwrap(x)) return insitu__error_set(err, INSITU_E_NOMEM, "no memory for a name");
  return INSITU_OK;
}
/* Where a member's bytes begin, from its local header. */
static insitu_status insitu__store_zip_local(
    const unsigned char *p, const struct insitu__store_member *m, uint64_t *start, insitu_error *err) {
  if (insitu__base_load32(p) != 0x04034b50 || insitu__base_load16(p + 8) != m->method || insitu__base_load16(p + 26) != m->name)
    return insitu__error_set(
        err, INSITU_E_CORRUPT, "what lies there is not its local header, or that of another member; " INSITU__STORE_BAD);
  *start = m->header + INSITU__STORE_LOCAL + m->name + insitu__base_load16(p + 28);
  if (*start <= m->limit && m->stored <= m->limit - *start) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CORRUPT,
      "its %" PRIu64 " bytes reach into another member or the central directory; " INSITU__STORE_BAD, m->stored);
}
/* Refuses what cannot be read, before any of it is. */
static insitu_status insitu__store_zip_check(const struct insitu__store_member *m, insitu_error *err) {
  static const struct {
    uint16_t method;
    const char *name;
  } known[] = {{1, "shrink"}, {6, "implode"}, {9, "deflate64"}, {12, "bzip2"}, {14, "lzma"}, {93, "zstd"}, {95, "xz"}};
  const char *name = "unknown";
  if (m->flags & 1) return insitu__error_set(err, INSITU_E_UNSUPPORTED, "it is encrypted; write the zip file without a password");
#ifdef INSITU_WITH_ZLIB
  if (m->method == INSITU__STORE_DEFLATED) return INSITU_OK;
#else
  if (m->method == INSITU__STORE_DEFLATED)
    return insitu__error_set(err, INSITU_E_CODEC,
        "it is deflated, which this build cannot read: define INSITU_WITH_ZLIB beside INSITU_IMPLEMENTATION, and link with -lz");
#endif
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].method == m->method) name = known[i].name;
  if (m->method != INSITU__STORE_STORED)
    return insitu__error_set(
        err, INSITU_E_CODEC, "its compression method %u (%s) is not known; write it stored (zip -0)", m->method, name);
  if (m->stored == m->object.n) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CORRUPT,
      "it is stored as it is, in %" PRIu64 " bytes, and said to have %" PRIu64 "; " INSITU__STORE_BAD, m->stored, m->object.n);
}

/* Says which file, and which member unless that is NULL, a cause befell. That the file itself is not there is no member's
 * absence. */
static insitu_status insitu__store_zip_failed(
    const struct insitu__store *s, const char *key, const insitu_error *cause, insitu_error *err) {
  bool gone = key && cause->status == INSITU_E_NOTFOUND;
  insitu_status status = gone ? INSITU_E_IO : cause->status;
  insitu__error_cause(err, cause);
  insitu__error_set(err, status, "store '%.250s'%s%.250s%s: %.480s", s->url, key ? ", member '" : "", key ? key : "",
      key ? "'" : "", cause->message);
  return status;
}
/* The member of this key, by its path with or without the folder that was taken for the root; NULL: there is none. */
static struct insitu__store_member *insitu__store_zip_find(const struct insitu__store *s, const char *key) {
  const struct insitu__store_index *x = &s->zip->index;
  const insitu_object *o = insitu__store_object(s, key);
  uint64_t n = !o && x->folder ? strlen(x->folder) : 0;
  if (n && !strncmp(key, x->folder, n) && key[n] == '/') o = insitu__store_object(s, key + n + 1);
  return o ? &x->member[(const struct insitu__store_member *)(const void *)o - x->member] : NULL;
}
/* Exactly n bytes of the file. */
static insitu_status insitu__store_zip_base_await(
    struct insitu__store *s, uint64_t offset, struct iovec *iov, unsigned n_iov, uint64_t n, insitu_error *err) {
  uint64_t got;
  struct insitu__store *base = &s->zip->base;
  insitu_status status = insitu__store_read_await(base, s->zip->name, offset, iov, n_iov, &got, err);
  if (status < 0 || got == n) return status;
  return insitu__error_set(err, INSITU_E_IO, "the zip file became shorter while it was open; it must not change, open it again");
}
static insitu_status insitu__store_zip_start_await(struct insitu__store *s, struct insitu__store_member *m, insitu_error *err) {
  unsigned char header[INSITU__STORE_LOCAL];
  uint64_t start = 0;
  struct iovec iov = {header, sizeof header};
  if (atomic_load_explicit(&m->start, memory_order_relaxed)) return INSITU_OK;
  insitu_status status = INSITU_OK;
  if (m->header > m->limit || m->limit - m->header < sizeof header)
    status = insitu__error_set(err, INSITU_E_CORRUPT,
        "its local header lies outside the file, or reaches into another member or the central directory; " INSITU__STORE_BAD);
  if (!status) status = insitu__store_zip_base_await(s, m->header, &iov, 1, sizeof header, err);
  if (!status) status = insitu__store_zip_local(header, m, &start, err);
  if (!status) atomic_store_explicit(&m->start, start, memory_order_relaxed);
  return status;
}
/* Ends the buffers after n bytes and says how many that leaves. */
static unsigned insitu__store_trim(struct iovec *iov, uint64_t n) {
  unsigned i = 0;
  for (; n; i++) {
    iov[i].iov_len = (size_t)insitu__base_min(iov[i].iov_len, n);
    n -= iov[i].iov_len;
  }
  return i;
}

#ifdef INSITU_WITH_ZLIB
/* Inflates what there is of the piece. On a worker. */
static void insitu__store_zip_inflate(void *arg, unsigned worker) {
  struct insitu__store_inflater *f = (struct insitu__store_inflater *)arg;
  z_stream *z = &f->z;
  unsigned char beyond;
  (void)worker;
  for (;;) {
    bool past = f->total == f->size, drop = !past && f->skip; /* past: only the end of the stream may still come */
    while (!past && !drop && f->wanted && !f->iov->iov_len) f->iov++;
    if (!past && !drop && !f->wanted) {
      f->done = true; /* what follows is not wanted */
      return;
    }
    uint64_t room = past ? 1 : drop ? insitu__base_min(f->skip, sizeof f->dropped) : insitu__base_min(f->iov->iov_len, f->wanted);
    unsigned char *to = past ? &beyond : drop ? f->dropped : (unsigned char *)f->iov->iov_base;
    z->next_out = to;
    z->avail_out = (uInt)insitu__base_min(room, 1u << 30);
    int rc = inflate(z, Z_NO_FLUSH);
    uint64_t n = (uint64_t)(z->next_out - to);
    if (past && n) rc = Z_DATA_ERROR;
    if (!past) {
      f->crc = (uint32_t)crc32(f->crc, to, (uInt)n);
      f->total += n;
      if (drop) f->skip -= n;
      else {
        f->wanted -= n;
        f->iov->iov_base = to + n;
        f->iov->iov_len -= (size_t)n;
      }
    }
    f->done = rc == Z_STREAM_END;
    if (f->done && f->total == f->size && f->crc == f->want_crc) return;
    if (rc == Z_MEM_ERROR) insitu__error_set(&f->error, INSITU_E_NOMEM, "no memory to inflate it; lower max_inflight");
    if (f->done || (rc != Z_OK && rc != Z_BUF_ERROR)) {
      insitu__error_set(&f->error, INSITU_E_CORRUPT, "%s after %" PRIu64 " of %" PRIu64 " inflated bytes; " INSITU__STORE_BAD,
          past && n           ? "more data"
          : f->done           ? f->total == f->size ? "a wrong CRC32" : "the end of the data"
          : rc == Z_NEED_DICT ? "a dictionary is needed"
          : z->msg            ? z->msg
                              : "no deflated data",
          f->total, f->size);
      return;
    }
    if (!n && !z->avail_in) return;
  }
}
static struct insitu__store_inflater *insitu__store_inflater_take(struct insitu__store_zip *zip) {
  struct insitu__store_inflater *f = zip->idle;
  if (f) {
    zip->idle = f->next;
    return inflateReset(&f->z) == Z_OK ? f : NULL;
  }
  f = (struct insitu__store_inflater *)insitu__mem_alloc(1, sizeof *f);
  if (!f) return NULL;
  f->z.zalloc = insitu__codec_zlib_alloc;
  f->z.zfree = insitu__codec_zlib_free;
  if (inflateInit2(&f->z, -15) == Z_OK) return f; /* no header: bare deflate */
  insitu__mem_free(f);
  return NULL;
}
/* n bytes at `offset` of a deflated member. */
static insitu_status insitu__store_zip_inflate_await(struct insitu__store *s, const struct insitu__store_member *m,
    uint64_t offset, struct iovec *iov, uint64_t n, insitu_error *err) {
  struct insitu__store_inflater *f = insitu__store_inflater_take(s->zip);
  uint64_t start = atomic_load_explicit(&m->start, memory_order_relaxed), at = 0;
  insitu_status status = INSITU_OK;
  if (!f) return insitu__error_set(err, INSITU_E_NOMEM, "no memory to inflate it; lower max_inflight");
  f->skip = offset;
  f->wanted = n;
  f->total = 0;
  f->size = m->object.n;
  f->iov = iov;
  f->crc = 0;
  f->want_crc = m->crc;
  f->done = false;
  f->error.status = 0;
  while (!status && !f->done) {
    uint64_t more = insitu__base_min(sizeof f->piece, m->stored - at);
    struct iovec piece = {f->piece, (size_t)more};
    if (!more)
      status = insitu__error_set(
          err, INSITU_E_CORRUPT, "its %" PRIu64 " bytes end before the deflated data does; " INSITU__STORE_BAD, m->stored);
    else status = insitu__store_zip_base_await(s, start + at, &piece, 1, more, err);
    if (status < 0) break;
    at += more;
    f->z.next_in = f->piece;
    f->z.avail_in = (uInt)more;
    insitu__reactor_work_await(s->reactor, insitu__store_zip_inflate, f);
    if (f->error.status) status = insitu__error_set(err, f->error.status, "%s", f->error.message);
  }
  f->next = s->zip->idle;
  s->zip->idle = f;
  return status;
}
#endif
/* Bytes that one read may take besides its buffers. */
static uint64_t insitu__store_read_bytes(const struct insitu__store *s) {
#ifdef INSITU_WITH_ZLIB
  if (s->zip && s->zip->index.deflated) return sizeof(struct insitu__store_inflater) + INSITU__STORE_WINDOW;
#endif
#ifndef INSITU_NO_CURL
  if (s->remote) return INSITU__HTTP_BUFFER + INSITU__STORE_TRANSFER;
#endif
  (void)s;
  return 0;
}

static insitu_status insitu__store_zip_read_await(struct insitu__store *s, const char *key, uint64_t offset, struct iovec *iov,
    unsigned n_iov, struct insitu__store_tag *tag, uint64_t *got, insitu_error *err) {
  insitu_error cause;
  (void)tag;
  insitu__error_clear(&cause);
  *got = 0;
  insitu_status status = insitu__store_check_key(key, err);
  if (status < 0) return status;
  struct insitu__store_member *m = insitu__store_zip_find(s, key);
  if (!m) return insitu__store_failed(s, key, ENOENT, err);
  uint64_t n = insitu__store_range(m->object.n, &offset, iov, n_iov);
  status = insitu__store_zip_check(m, &cause);
  if (!status) status = insitu__store_zip_start_await(s, m, &cause);
#ifdef INSITU_WITH_ZLIB
  if (!status && n && m->method == INSITU__STORE_DEFLATED) status = insitu__store_zip_inflate_await(s, m, offset, iov, n, &cause);
#endif
  if (!status && n && m->method == INSITU__STORE_STORED)
    status = insitu__store_zip_base_await(s, m->start + offset, iov, insitu__store_trim(iov, n), n, &cause);
  if (status < 0) return insitu__store_zip_failed(s, key, &cause, err);
  *got = n;
  return INSITU_OK;
}
static insitu_status insitu__store_zip_read_now(struct insitu__store *s, const char *key, uint64_t offset,
    const struct iovec *iov, unsigned n_iov, uint64_t expected, uint64_t *got) {
  struct insitu__store *base = &s->zip->base;
  struct insitu__store_member *m = insitu__store_zip_find(s, key);
  struct iovec part[INSITU__STORE_NOW];
  insitu_error cause = {.status = INSITU_E_IO}; /* nothing is written to it */
  (void)expected;
  if (!m || m->method != INSITU__STORE_STORED || insitu__store_zip_check(m, &cause)) return INSITU_TIMEOUT;
  uint64_t start = atomic_load_explicit(&m->start, memory_order_relaxed),
           n = insitu__store_range(m->object.n, &offset, iov, n_iov);
  if (!start) {
    unsigned char header[INSITU__STORE_LOCAL];
    struct iovec to = {header, sizeof header};
    if (m->header > m->limit || m->limit - m->header < sizeof header ||
        insitu__store_read_now(base, s->zip->name, m->header, &to, 1, sizeof header, got) || *got != sizeof header ||
        insitu__store_zip_local(header, m, &start, &cause))
      return INSITU_TIMEOUT;
    atomic_store_explicit(&m->start, start, memory_order_relaxed);
  }
  unsigned whole = 0; /* buffers that it fills */
  uint64_t left = n;
  while (left && iov[whole].iov_len <= left) left -= iov[whole++].iov_len;
  if (left) {
    if (whole >= INSITU__STORE_NOW) return INSITU_TIMEOUT;
    memcpy(part, iov, (whole + 1) * sizeof *part);
    part[whole].iov_len = (size_t)left;
    iov = part;
    whole++;
  }
  *got = 0;
  if (n && (insitu__store_read_now(base, s->zip->name, start + offset, iov, whole, n, got) || *got != n)) return INSITU_TIMEOUT;
  return INSITU_OK;
}
static void insitu__store_zip_close(struct insitu__store *s) {
  struct insitu__store_zip *zip = s->zip;
#ifdef INSITU_WITH_ZLIB
  for (struct insitu__store_inflater *f = zip->idle, *next; f; f = next) {
    next = f->next;
    inflateEnd(&f->z);
    insitu__mem_free(f);
  }
#endif
  insitu__store_index_free(&zip->index);
  insitu__store_close(&zip->base);
  insitu__mem_free(zip->name);
  insitu__mem_free(zip->root);
  insitu__mem_free(zip);
}
static const struct insitu__store_ops insitu__store_zip_ops = {
    insitu__store_zip_read_await, insitu__store_zip_read_now, insitu__store_object_list_await, insitu__store_zip_close, NULL};

struct insitu__store_indexing { /* lives on its coroutine's stack */
  const unsigned char *directory;
  const struct insitu__store_end *end;
  const char *root;
  struct insitu__store_index *index;
  insitu_status status;
  insitu_error *err;
};
static void insitu__store_zip_index_job(void *arg, unsigned worker) {
  struct insitu__store_indexing *job = (struct insitu__store_indexing *)arg;
  (void)worker;
  job->status = insitu__store_zip_index(job->directory, job->end->bytes, job->end, job->root, job->index, job->err);
}
/* Reads the end of the file, which mostly holds its directory too, else that as well. */
static insitu_status insitu__store_zip_index_await(struct insitu__store *s, insitu_error *err) {
  struct insitu__store_zip *zip = s->zip;
  struct insitu__store_end end;
  insitu_error cause = {0};
  uint64_t n = insitu__base_min(zip->bytes, UINT16_MAX + INSITU__STORE_END + INSITU__STORE_END64);
  unsigned char *tail = (unsigned char *)insitu__mem_realloc(NULL, n), *directory = NULL;
  insitu_status status = INSITU_OK;
  struct iovec iov = {tail, (size_t)n};
  if (!tail) status = insitu__error_set(&cause, INSITU_E_NOMEM, "no memory to read its end");
  if (!status) status = insitu__store_zip_base_await(s, INSITU__RING_TAIL, &iov, 1, n, &cause);
  if (!status) status = insitu__store_zip_end(tail, n, zip->bytes, &end, &cause);
  if (status == INSITU_E_NOT_ZARR && zip->root[0]) {
    cause.status = 0;
    status = insitu__error_set(
        &cause, INSITU_E_NOTFOUND, "no such directory: '%.300s' is a file, and not a whole zip file; check the url", zip->name);
  }
  bool inside = !status && end.at >= zip->bytes - n;
  if (!status && !inside) {
    directory = (unsigned char *)insitu__mem_realloc(NULL, end.bytes);
    iov = (struct iovec){directory, (size_t)end.bytes};
    if (!directory)
      status = insitu__error_set(&cause, INSITU_E_NOMEM, "no memory for %" PRIu64 " bytes of its directory", end.bytes);
    else status = insitu__store_zip_base_await(s, end.at, &iov, 1, end.bytes, &cause);
  }
  if (!status) {
    struct insitu__store_indexing job = {
        inside ? tail + (end.at - (zip->bytes - n)) : directory, &end, zip->root, &zip->index, INSITU_OK, &cause};
    insitu__reactor_work_await(s->reactor, insitu__store_zip_index_job, &job);
    status = job.status;
    s->object = zip->index.object;
    s->n_objects = zip->index.n_objects;
  }
  insitu__mem_free(tail);
  insitu__mem_free(directory);
  return status < 0 ? insitu__store_zip_failed(s, NULL, &cause, err) : status;
}
/* Does the path, or the beginning of it, name a regular file? *n: the length of that. */
static bool insitu__store_zip_split(const char *path, uint64_t *n, uint64_t *bytes) {
  char part[INSITU__MAX_KEY];
  struct stat info;
  *n = strlen(path);
  memcpy(part, path, *n + 1);
  for (;;) {
    while (*n > 1 && part[*n - 1] == '/') --*n;
    part[*n] = 0;
    if (stat(part, &info) == 0) break;
    while (*n && part[*n - 1] != '/') --*n;
    if (errno != ENOTDIR || !*n) return false; /* only below a file is something of this kind */
  }
  *bytes = (uint64_t)info.st_size;
  return S_ISREG(info.st_mode);
}
/* The file is the first n bytes of path; its directory is the base store. */
static insitu_status insitu__store_zip_open(
    struct insitu__store *s, const char *path, uint64_t n, uint64_t bytes, insitu_error *err) {
  char text[INSITU__MAX_KEY];
  uint64_t name = n, end = strlen(path);
  struct insitu__store_zip *zip = (struct insitu__store_zip *)insitu__mem_alloc(1, sizeof *zip);
  const char *root = path + n;
  while (name && path[name - 1] != '/') name--;
  while (*root == '/') root++;
  while (path + end > root && path[end - 1] == '/') end--;
  snprintf(text, sizeof text, "%.*s", name ? (int)name : 1, name ? path : ".");
  if (zip) {
    s->ops = &insitu__store_zip_ops; /* closing frees all from here on */
    s->zip = zip;
    zip->bytes = bytes;
    zip->name = insitu__mem_text(path + name, n - name);
    zip->root = insitu__mem_text(root, (uint64_t)(path + end - root));
    zip->base.reactor = s->reactor;
    zip->base.url = insitu__mem_text(text, strlen(text));
  }
  if (!zip || !zip->name || !zip->root || !zip->base.url)
    return insitu__error_set(err, INSITU_E_NOMEM, "store '%.400s': no memory to open it; give the process more memory", s->url);
  insitu_status status = zip->root[0] ? insitu__store_check_key(zip->root, err) : INSITU_OK;
  return status < 0 ? status : insitu__store_file_open(&zip->base, text, err);
}

/* -- any -- */

/* Opens what desc's url, objects and n_objects name, so far as it can without reading. s is zeroed on error. */
static insitu_status insitu__store_open(
    struct insitu__store *s, struct insitu__reactor *reactor, const insitu_loader_desc *desc, insitu_error *err) {
  char path[INSITU__MAX_KEY];
  int kind;
  uint64_t n, bytes;
  memset(s, 0, sizeof *s);
  insitu_status status = insitu__text_url_parse(desc->url, &kind, path, sizeof path, err);
  if (status < 0) return status;
  if (kind != INSITU__TEXT_URL_MEMORY && (desc->objects || desc->n_objects))
    return insitu__error_set(err, INSITU_E_ARG,
        "store '%.400s': desc.objects goes with the url memory:// alone; change the url, or leave objects out", path);
  if (kind < INSITU__TEXT_URL_HTTP && desc->n_options)
    return insitu__error_set(err, INSITU_E_ARG, "store '%.400s': options are for remote stores; leave desc.options out", path);
  s->url = insitu__mem_text(desc->url, strlen(desc->url));
  if (!s->url)
    return insitu__error_set(err, INSITU_E_NOMEM, "store '%.800s': no memory to open it; give the process more memory", path);
  s->reactor = reactor;
#ifndef INSITU_NO_CURL
  if (kind >= INSITU__TEXT_URL_HTTP) status = insitu__store_remote_open(s, kind - INSITU__TEXT_URL_HTTP, desc, err);
  else
#else
  if (kind >= INSITU__TEXT_URL_HTTP)
    status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "url: this program was built with INSITU_NO_CURL, which leaves remote stores out; build it without");
  else
#endif
      if (kind == INSITU__TEXT_URL_MEMORY)
    status = insitu__store_memory_open(s, desc, err);
  else if (insitu__store_zip_split(path, &n, &bytes)) status = insitu__store_zip_open(s, path, n, bytes, err);
  else if (kind == INSITU__TEXT_URL_FILE) status = insitu__store_file_open(s, path, err);
  else
    status = insitu__error_set(err, INSITU_E_NOTFOUND,
        "store '%.400s': '%.400s' is no file; check the url, and leave zip:// out before a directory", desc->url, path);
  if (status < 0) insitu__store_close(s);
  return status;
}
/* What opening has to read, before anything else is asked: a zip file's index. */
static insitu_status insitu__store_index_await(struct insitu__store *s, insitu_error *err) {
  return s->zip ? insitu__store_zip_index_await(s, err) : INSITU_OK;
}
/* Reads whose tag says so end soon, without their bytes. Reactor thread. */
static void insitu__store_sweep(struct insitu__store *s) {
#ifndef INSITU_NO_CURL
  if (s->remote) insitu__store_remote_sweep(s);
#endif
  (void)s;
}
/* So many reads will be under way at once. Reactor thread. */
static void insitu__store_expect(struct insitu__store *s, uint64_t reads) {
#ifndef INSITU_NO_CURL
  if (s->remote) insitu__http_connections(&s->remote->http, reads);
#endif
  (void)s, (void)reads;
}
static void insitu__store_stats(const struct insitu__store *s, insitu_stats *out) {
#ifndef INSITU_NO_CURL
  if (s->remote) insitu__store_remote_stats(s, out);
#endif
  (void)s, (void)out;
}
static insitu_status insitu__store_list_await(struct insitu__store *s, const char *prefix,
    void (*emit)(void *to, const char *name, bool is_directory), void *to, insitu_error *err) {
  return s->ops->list_await(s, prefix, emit, to, err);
}
static insitu_status insitu__store_get_whole_await(
    struct insitu__store *s, const char *key, uint64_t limit, char **text, uint64_t *n, insitu_error *err) {
  char *buf = NULL;
  uint64_t have = 0, cap = 0, got;
  *text = NULL;
  *n = 0;
  if (s->ops->get_await) return s->ops->get_await(s, key, limit, text, n, err);
  for (;;) {
    cap = cap ? 2 * cap : 16384; /* most metadata is smaller */
    cap = insitu__base_min(cap, limit + 1);
    char *larger = (char *)insitu__mem_realloc(buf, cap + 1);
    insitu_status status = INSITU_OK;
    if (!larger)
      status = insitu__error_set(
          err, INSITU_E_NOMEM, "store, object '%.400s': no memory for %" PRIu64 " bytes; give the process more memory", key, cap);
    else {
      buf = larger;
      struct iovec iov = {buf + have, (size_t)(cap - have)};
      status = insitu__store_read_await(s, key, have, &iov, 1, &got, err);
    }
    if (status < 0) {
      insitu__mem_free(buf);
      return status;
    }
    have += got;
    if (have < cap) break;
    if (have > limit) {
      insitu__mem_free(buf);
      return insitu__error_set(err, INSITU_E_UNSUPPORTED,
          "store '%.400s', object '%.400s': longer than %" PRIu64 " bytes; this is more than metadata may "
          "have",
          s->url, key, limit);
    }
  }
  buf[have] = 0;
  *text = buf;
  *n = have;
  return INSITU_OK;
}

static void insitu__store_memo_await(void *arg) {
  struct insitu__store_memo *m = (struct insitu__store_memo *)arg;
  m->status = insitu__store_get_whole_await(m->store, m->key, m->limit, &m->text, &m->n, &m->error);
  insitu__reactor_gate_open(m->done);
}
static struct insitu__store_memo *insitu__store_memo_find(struct insitu__store *s, const char *key) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->memo); i++)
    if (!strcmp(s->memo[i]->key, key)) return s->memo[i];
  return NULL;
}
/* Of a remote store: asks for these objects all at once, so that each insitu__store_get_await of one of them, once, does not wait
 * for a round trip of its own. Errors are told by that, too. What memory is missing for is not asked for. */
static void insitu__store_prefetch_await(struct insitu__store *s, const char *const *keys, uint64_t n, uint64_t limit) {
  if (!s->remote) return;
  struct insitu__reactor_gate gate;
  uint64_t first = INSITU__ARRAY_LEN(s->memo), asked = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t length = strlen(keys[i]) + 1;
    if (insitu__store_memo_find(s, keys[i])) continue;
    struct insitu__store_memo *m = (struct insitu__store_memo *)insitu__mem_alloc(1, sizeof *m + length);
    if (!m) break;
    m->store = s;
    m->done = &gate;
    m->limit = limit;
    m->n = 0;
    m->text = NULL;
    m->status = INSITU_TIMEOUT;
    memset(&m->error, 0, sizeof m->error);
    memcpy(m->key, keys[i], length);
    if (INSITU__ARRAY_PUSH(s->memo, m)) continue;
    insitu__mem_free(m);
    break;
  }
  uint64_t last = INSITU__ARRAY_LEN(s->memo);
  insitu__reactor_gate_expect(&gate, (unsigned)(last - first));
  for (uint64_t i = first; i < last; i++)
    if (insitu__reactor_spawn(s->reactor, insitu__store_memo_await, s->memo[i])) insitu__reactor_gate_open(&gate);
    else asked++;
  if (asked) insitu__reactor_gate_await(s->reactor, &gate);
}
/* A whole small object of at most `limit` bytes, NUL-terminated, in memory that is the caller's. */
static insitu_status insitu__store_get_await(
    struct insitu__store *s, const char *key, uint64_t limit, char **text, uint64_t *n, insitu_error *err) {
  struct insitu__store_memo *m = insitu__store_memo_find(s, key);
  if (!m || m->status == INSITU_TIMEOUT || m->n > limit) return insitu__store_get_whole_await(s, key, limit, text, n, err);
  insitu_status status = m->status;
  *text = m->text;
  *n = m->n;
  if (status < 0 && err && err->status >= 0) *err = m->error;
  m->status = INSITU_TIMEOUT; /* fetched: a second time it is asked for again */
  m->text = NULL;
  return status;
}

/* >>zarr ------------------------------------------------------------------------------------------------------------------- */
/* Zarr v2 and v3 metadata: what an array looks like, where its chunks are, and how a hierarchy is found. The parsers and the
 * chunk keys are pure; a group owns the text of its root's document and borrows its store, which must outlive it; an array owns
 * its names alone and outlives its group. The _await functions suspend in the store and run on coroutines of its reactor; once a
 * group is open they only read it, so several may run side by side. */

#define INSITU__ZARR_SHOWN 8 /* arrays named in the message about one that does not exist */

enum { INSITU__ZARR_KEYS_V2 = 1, INSITU__ZARR_KEYS_DEFAULT = 2 }; /* "0.0"; "c/0/0" */

/* What an element is. Those with characters or bytes inside (raw, S, U) are scalars of INSITU_U8 or INSITU_U32 along one more
 * axis, the last. Dates and differences are INSITU_I64. A string has any length: such arrays go into no batch. */
enum {
  INSITU__ZARR_NUMBER,
  INSITU__ZARR_RAW,        /* r*, V */
  INSITU__ZARR_CHAR,       /* S: bytes, zeros at the end */
  INSITU__ZARR_UCS4,       /* U: code points, zeros at the end */
  INSITU__ZARR_DATE,       /* datetime64 */
  INSITU__ZARR_DIFFERENCE, /* timedelta64 */
  INSITU__ZARR_STRING
};
/* How strings are stored: vlen-utf8; numcodecs json2; vlen-bytes, as vlen-utf8 but with a fill value in base64. */
enum { INSITU__ZARR_VLEN = 1, INSITU__ZARR_JSON2 = 2, INSITU__ZARR_VLEN_BYTES = 3 };

struct insitu__zarr_object { /* one stored object, whole */
  uint64_t chunk[INSITU__MAX_DIMS];
  unsigned order[INSITU__MAX_DIMS];  /* order[k]: the axis stored k-th slowest inside it; C order is 0, 1, 2, ... */
  struct insitu__codec_chain codecs; /* in decode order */
};
struct insitu__zarr_level { /* a shard whose inner chunks can be read by themselves */
  const struct insitu__codec_shard *shard;
  unsigned axis[INSITU__MAX_DIMS]; /* of the array, for each of the shard's */
};
struct insitu__zarr_array {
  char *path;          /* "" for the root */
  int format;          /* 2 or 3 */
  unsigned ndim, axes; /* axes: without the one inside an element, which chunk keys do not tell */
  uint64_t shape[INSITU__MAX_DIMS];
  struct insitu__zarr_object object;
  struct insitu__codec_shard *shards; /* INSITU__MAX_SHARD_LEVELS of them, n_shards used; NULL: not sharded */
  unsigned n_shards;
  /* What one read returns: an inner chunk of the innermost of these levels, or with none of them the whole object. */
  struct insitu__zarr_level level[INSITU__MAX_SHARD_LEVELS]; /* outermost first */
  unsigned n_levels;
  uint64_t chunk[INSITU__MAX_DIMS];
  unsigned order[INSITU__MAX_DIMS];
  struct insitu__codec_chain codecs;
  char *dim[INSITU__MAX_DIMS]; /* NULL: unnamed */
  char *attributes;            /* the user's own, as JSON text; NULL: none */
  int kind;                    /* INSITU__ZARR_NUMBER, ... */
  int strings;                 /* of INSITU__ZARR_STRING: INSITU__ZARR_VLEN, ... */
  char unit[12];               /* of dates and differences: "ns", "25s"; "" when there is none */
  int32_t dtype;
  uint32_t itemsize; /* of a scalar of dtype; while metadata are read: of an element */
  bool swap;         /* each stored scalar (each half of a complex one) is in the other byte order */
  bool has_fill;     /* false: null, undefined, fill is zero */
  bool fill_is_nan;
  unsigned char fill[16]; /* one element, native byte order */
  unsigned char
      *wide_fill;  /* of elements with an axis inside, and strings: native order and, behind it, as stored; NULL: zeros */
  uint64_t wide_n; /* its bytes, once */
  char separator;
  int key_style;
};

static void insitu__zarr_chain_free(struct insitu__codec_chain *chain) {
  for (int i = 0; i < chain->n; i++) insitu__codec_free(&chain->codec[i]);
}
static void insitu__zarr_array_free(struct insitu__zarr_array *a) {
  insitu__zarr_chain_free(&a->object.codecs);
  for (unsigned i = 0; i < a->n_shards; i++) insitu__zarr_chain_free(&a->shards[i].codecs);
  insitu__mem_free(a->path);
  for (unsigned i = 0; i < INSITU__MAX_DIMS; i++) insitu__mem_free(a->dim[i]);
  insitu__mem_free(a->attributes);
  insitu__mem_free(a->wide_fill);
  insitu__mem_free(a->shards);
  memset(a, 0, sizeof *a);
}

/* -- parsing: pieces that v2 and v3 share -- */

struct insitu__zarr_reader { /* one array's metadata under way */
  const struct insitu__text_json *j;
  int node; /* the object that describes the array */
  struct insitu__zarr_array *a;
  insitu_error *err;
  unsigned *order; /* of what the codecs being read describe: the object, or a shard's inner chunk */
  struct insitu__codec_chain *codecs;
  struct insitu__codec_hooks *hooks; /* NULL: none */
};
static struct insitu__zarr_reader insitu__zarr_reader(const struct insitu__text_json *j, int node, struct insitu__zarr_array *a,
    struct insitu__codec_hooks *hooks, insitu_error *err) {
  return (struct insitu__zarr_reader){j, node, a, err, a->object.order, &a->object.codecs, hooks};
}

/* "array 'p', metadata key 'k' = value: cause", value cut short; token -1 when there is none to show. */
static insitu_status insitu__zarr_bad(
    const struct insitu__zarr_reader *r, insitu_status status, const char *key, int token, const char *cause) {
  char value[128];
  uint64_t n, used = 0;
  const char *span = insitu__text_json_span(r->j, token, &n);
  for (uint64_t i = 0; i < n && used < 120; i++) { /* spaces and line ends as one space */
    char c = (unsigned char)span[i] <= ' ' ? ' ' : span[i];
    if (c != ' ' || !used || value[used - 1] != ' ') value[used++] = c;
  }
  snprintf(value + used, sizeof value - used, "%s", used == 120 ? "..." : "");
  return insitu__error_set(r->err, status, "array '%.300s', metadata key '%s'%s%s: %s; %s", r->a->path, key, span ? " = " : "",
      value, cause,
      status == INSITU_E_FORMAT ? "the metadata is damaged or its writer wrong" : "leave this array out or convert it");
}
static insitu_status insitu__zarr_nomem(const struct insitu__zarr_reader *r) {
  return insitu__error_set(
      r->err, INSITU_E_NOMEM, "array '%.300s': no memory for its metadata; give the process more memory", r->a->path);
}
static insitu_status insitu__zarr_codec_refused(const struct insitu__zarr_reader *r, const char *name, const char *why) {
  return insitu__error_set(
      r->err, INSITU_E_CODEC, "array '%.300s': codec '%.100s' %s; leave this array out or convert it", r->a->path, name, why);
}
static int insitu__zarr_get(const struct insitu__zarr_reader *r, const char *key) {
  return insitu__text_json_get(r->j, r->node, key);
}
static insitu_status insitu__zarr_extents(
    const struct insitu__zarr_reader *r, const char *key, int token, uint64_t least, unsigned *n, uint64_t *extent) {
  if (!insitu__text_json_is_array(r->j, token))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, key, token, "a list of integers is needed");
  if (insitu__text_json_size(r->j, token) > INSITU__MAX_DIMS)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, key, token, "more dimensions than INSITU__MAX_DIMS");
  *n = 0;
  for (int t = insitu__text_json_first(r->j, token); t >= 0; t = insitu__text_json_next(r->j, token, t), ++*n)
    if (!insitu__text_json_u64(r->j, t, &extent[*n]) || extent[*n] < least || extent[*n] > INT64_MAX)
      return insitu__zarr_bad(
          r, INSITU_E_FORMAT, key, token, least ? "each must be a positive integer" : "each must be an integer, 0 or more");
  return INSITU_OK;
}
static insitu_status insitu__zarr_chunk_extents(const struct insitu__zarr_reader *r, const char *key, int token) {
  unsigned n;
  insitu_status status = insitu__zarr_extents(r, key, token, 1, &n, r->a->object.chunk);
  if (status == INSITU_OK && n != r->a->ndim)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, key, token, "as many as 'shape' has are needed");
  return status;
}
static bool insitu__zarr_is_wide(int kind) { /* elements with an axis inside */
  return kind == INSITU__ZARR_RAW || kind == INSITU__ZARR_CHAR || kind == INSITU__ZARR_UCS4;
}
/* Makes the inside of an element the last axis: of the array, of its chunks and of its shards. */
static insitu_status insitu__zarr_widen(const struct insitu__zarr_reader *r) {
  struct insitu__zarr_array *a = r->a;
  uint32_t scalar = (uint32_t)(a->dtype & 0xff) / 8, width = a->itemsize / scalar;
  unsigned axis = a->axes = a->ndim;
  if (!insitu__zarr_is_wide(a->kind)) return INSITU_OK;
  if (axis == INSITU__MAX_DIMS)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "shape", insitu__text_json_get(r->j, r->node, "shape"),
        "INSITU__MAX_DIMS dimensions, and one more inside the elements");
  a->ndim++;
  a->itemsize = scalar;
  a->shape[axis] = a->object.chunk[axis] = width;
  a->object.order[axis] = axis;
  for (unsigned i = 0; i < a->n_shards; i++) {
    struct insitu__codec_shard *shard = &a->shards[i];
    shard->ndim++;
    shard->item = scalar;
    shard->chunk[axis] = shard->inner[axis] = width;
    shard->order[axis] = axis;
    shard->wide_fill = a->wide_fill ? a->wide_fill + a->wide_n : NULL;
  }
  return INSITU_OK;
}
/* Finds out what one read returns, and checks its bytes and the array's. The last step of reading metadata. */
static insitu_status insitu__zarr_layout(const struct insitu__zarr_reader *r) {
  struct insitu__zarr_array *a = r->a;
  insitu_status status = insitu__zarr_widen(r);
  if (status < 0) return status;
  memcpy(a->chunk, a->object.chunk, sizeof a->chunk);
  memcpy(a->order, a->object.order, sizeof a->order);
  a->codecs = a->object.codecs;
  while (a->codecs.n == 1 && a->codecs.codec[0].kind == INSITU__CODEC_SHARD) { /* with codecs around it, it is decoded whole */
    const struct insitu__codec_shard *shard = a->codecs.codec[0].shard;
    struct insitu__zarr_level *level = &a->level[a->n_levels++];
    level->shard = shard;
    memcpy(level->axis, a->order, sizeof a->order);
    for (unsigned k = 0; k < a->ndim; k++) {
      a->chunk[level->axis[k]] = shard->inner[k];
      a->order[k] = level->axis[shard->order[k]];
    }
    a->codecs = shard->codecs;
  }
  for (int i = 0; a->kind == INSITU__ZARR_STRING && i < a->codecs.n; i++) /* a whole shard of them has no known length */
    if (a->codecs.codec[i].kind == INSITU__CODEC_SHARD)
      return insitu__zarr_codec_refused(r, "sharding_indexed", "is not supported for strings inside another codec");
  uint64_t array = a->itemsize, chunk = a->itemsize;
  bool fits = true, chunk_fits = true;
  for (unsigned i = 0; i < a->ndim; i++) {
    fits = fits && insitu__base_mul(array, insitu__base_max(a->shape[i], 1), &array);
    chunk_fits = chunk_fits && insitu__base_mul(chunk, a->chunk[i], &chunk);
  }
  if (!fits || array > INT64_MAX)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "shape", insitu__zarr_get(r, "shape"), "the array would have 2^63 bytes or more");
  if (!chunk_fits || chunk > INSITU__MAX_CHUNK)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, a->format == 2 ? "chunks" : "chunk_grid",
        insitu__zarr_get(r, a->format == 2 ? "chunks" : "chunk_grid"), "a chunk is larger than INSITU__MAX_CHUNK");
  struct insitu__codec_needs need = insitu__codec_needs(&a->codecs, chunk);
  if (insitu__base_max(insitu__codec_bound(&a->codecs, chunk), insitu__codec_scratch_bytes(&need)) > INSITU__MAX_SCRATCH)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, a->format == 2 ? "filters" : "codecs",
        insitu__zarr_get(r, a->format == 2 ? "filters" : "codecs"),
        "an encoded chunk, or decoding it, may take more than INSITU__MAX_SCRATCH");
  return INSITU_OK;
}
/* Names of dimensions; false when the value is not a list of ndim strings or nulls. */
static bool insitu__zarr_dim_names(
    const struct insitu__zarr_reader *r, const struct insitu__text_json *j, int token, bool *no_memory) {
  char name[INSITU__MAX_DIM_NAME];
  unsigned i = 0;
  if (!insitu__text_json_is_array(j, token) || insitu__text_json_size(j, token) != (int)r->a->axes) return false;
  for (int t = insitu__text_json_first(j, token); t >= 0; t = insitu__text_json_next(j, token, t), i++) {
    if (insitu__text_json_is_null(j, t)) continue;
    int64_t n = insitu__text_json_string(j, t, name, sizeof name);
    if (n < 0) return false;
    r->a->dim[i] = insitu__mem_text(name, (uint64_t)n);
    if (!r->a->dim[i]) return !(*no_memory = true);
  }
  return true;
}

/* Keeps the text of the attributes, token of j; those that are no object are the user's own affair. */
static insitu_status insitu__zarr_keep_attributes(
    const struct insitu__zarr_reader *r, const struct insitu__text_json *j, int token) {
  uint64_t n;
  if (!insitu__text_json_is_object(j, token)) return INSITU_OK;
  const char *text = insitu__text_json_span(j, token, &n);
  r->a->attributes = insitu__mem_text(text, n);
  return r->a->attributes ? INSITU_OK : insitu__zarr_nomem(r);
}

struct insitu__zarr_dtype {
  char v2[4];
  const char *v3;
  int32_t dtype;
};
static const struct insitu__zarr_dtype insitu__zarr_dtypes[] = {
    {"b1", "bool", INSITU_BOOL},
    {"i1", "int8", INSITU_I8},
    {"i2", "int16", INSITU_I16},
    {"i4", "int32", INSITU_I32},
    {"i8", "int64", INSITU_I64},
    {"u1", "uint8", INSITU_U8},
    {"u2", "uint16", INSITU_U16},
    {"u4", "uint32", INSITU_U32},
    {"u8", "uint64", INSITU_U64},
    {"f2", "float16", INSITU_F16},
    {"f4", "float32", INSITU_F32},
    {"f8", "float64", INSITU_F64},
    {"", "bfloat16", INSITU_BF16}, /* v2 has none */
    {"c8", "complex64", INSITU_C64},
    {"c16", "complex128", INSITU_C128},
};
enum { INSITU__ZARR_DTYPES = sizeof insitu__zarr_dtypes / sizeof insitu__zarr_dtypes[0] };

static void insitu__zarr_set_dtype(struct insitu__zarr_array *a, int32_t dtype) {
  a->dtype = dtype;
  a->itemsize = (uint32_t)(dtype & 0xff) / 8;
}
/* Elements of `bytes` bytes with an axis inside; false when there can be none such. */
static bool insitu__zarr_set_wide(struct insitu__zarr_array *a, int kind, uint64_t bytes) {
  a->kind = kind;
  a->dtype = kind == INSITU__ZARR_UCS4 ? INSITU_U32 : INSITU_U8;
  a->itemsize = (uint32_t)bytes;
  return bytes && bytes <= INSITU__MAX_ELEMENT && (kind != INSITU__ZARR_UCS4 || bytes % 4 == 0);
}
static bool insitu__zarr_is_complex(int32_t dtype) {
  return dtype == INSITU_C64 || dtype == INSITU_C128;
}
static uint32_t insitu__zarr_scalar_size(const struct insitu__zarr_array *a) { /* what a byte order turns round */
  uint32_t size = (uint32_t)(a->dtype & 0xff) / 8;
  return insitu__zarr_is_complex(a->dtype) ? size / 2 : size;
}
static void insitu__zarr_set_endian(struct insitu__zarr_array *a, bool big) {
  a->swap = insitu__zarr_scalar_size(a) > 1 && big != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* -- fill values -- */

/* The nearest float of 16 bits; false when a finite value is too large for one. */
static bool insitu__zarr_half(double value, int32_t dtype, uint16_t *half) {
  *half = insitu__codec_to_16(value, dtype == INSITU_BF16 ? 7 : 10);
  return (*half & 0x7fff) < (dtype == INSITU_BF16 ? 0x7f80 : 0x7c00) || !__builtin_isfinite(value);
}
static bool insitu__zarr_fill_float(double value, int32_t dtype, uint32_t size, unsigned char *out) {
  float single = (float)value;
  uint16_t half = dtype == INSITU_BF16 ? 0x7fc0 : 0x7e00;
  uint32_t nan32 = 0x7fc00000;
  uint64_t nan64 = UINT64_C(0x7ff8000000000000);
  bool is_nan = __builtin_isnan(value);
  if (size == 2) {
    if (!is_nan && !insitu__zarr_half(value, dtype, &half)) return false;
    memcpy(out, &half, 2);
  } else if (size == 4) {
    if (__builtin_isinf(single) && !__builtin_isinf(value)) return false;
    memcpy(out, is_nan ? (const void *)&nan32 : (const void *)&single, 4);
  } else memcpy(out, is_nan ? (const void *)&nan64 : (const void *)&value, 8);
  return true;
}
static bool insitu__zarr_fill_store(uint64_t bits, uint32_t size, unsigned char *out) { /* the low `size` bytes, native order */
  uint8_t b = (uint8_t)bits;
  uint16_t h = (uint16_t)bits;
  uint32_t w = (uint32_t)bits;
  memcpy(out,
      size == 1   ? (const void *)&b
      : size == 2 ? (const void *)&h
      : size == 4 ? (const void *)&w
                  : (const void *)&bits,
      size);
  return true;
}
static bool insitu__zarr_fill_integer(
    const struct insitu__text_json *j, int token, int32_t dtype, uint32_t size, unsigned char *out) {
  unsigned bits = size * 8;
  bool is_signed = dtype >> 8 == 0;
  uint64_t u;
  int64_t i;
  double d;
  if (insitu__text_json_i64(j, token, &i)) u = (uint64_t)i;
  else if (!is_signed && insitu__text_json_u64(j, token, &u)) i = 0; /* above INT64_MAX, only 64 bits hold it */
  else if (insitu__text_json_double(j, token, &d) && d >= -0x1p63 && d < 0x1p63 &&
           (double)(int64_t)d == d) { /* "0.0", "-9999.0" */
    i = (int64_t)d;
    u = (uint64_t)i;
  } else return false;
  if (is_signed && bits < 64 && (i < -(INT64_C(1) << (bits - 1)) || i >= INT64_C(1) << (bits - 1))) return false;
  if (!is_signed && (i < 0 || (bits < 64 && u >> bits))) return false;
  return insitu__zarr_fill_store(u, size, out);
}
static bool insitu__zarr_fill_hex(
    const struct insitu__text_json *j, int token, uint32_t size, unsigned char *out) { /* "0x7fc00000" */
  char text[20];
  uint64_t bits = 0;
  int64_t n = insitu__text_json_string(j, token, text, sizeof text);
  if (n != 2 + 2 * (int64_t)size || text[0] != '0' || text[1] != 'x') return false;
  for (const char *p = text + 2; *p; p++) {
    int digit = insitu__text_hex((unsigned char)*p);
    if (digit < 0) return false;
    bits = bits << 4 | (uint64_t)digit;
  }
  return insitu__zarr_fill_store(bits, size, out);
}
/* One scalar of `size` bytes: an element, or half of a complex one. */
static bool insitu__zarr_fill_scalar(const struct insitu__zarr_reader *r, int token, uint32_t size, unsigned char *out) {
  double d;
  const struct insitu__text_json *j = r->j;
  if (r->a->dtype == INSITU_BOOL) {
    uint64_t u = insitu__text_json_is_true(j, token);
    if (!u && !insitu__text_json_is_false(j, token) && (!insitu__text_json_u64(j, token, &u) || u > 1)) return false;
    return insitu__zarr_fill_store(u, 1, out);
  }
  if (r->a->dtype >> 8 < 2) return insitu__zarr_fill_integer(j, token, r->a->dtype, size, out);
  if (insitu__text_json_equals(j, token, "NaN")) d = __builtin_nan("");
  else if (insitu__text_json_equals(j, token, "Infinity")) d = __builtin_inf();
  else if (insitu__text_json_equals(j, token, "-Infinity")) d = -__builtin_inf();
  else if (r->a->format == 3 && insitu__text_json_is_string(j, token)) return insitu__zarr_fill_hex(j, token, size, out);
  else if (!insitu__text_json_double(j, token, &d)) return false;
  return insitu__zarr_fill_float(d, r->a->dtype, size, out);
}
static bool insitu__zarr_scalar_is_nan(const unsigned char *p, int32_t dtype, uint32_t size) {
  uint16_t half;
  float single;
  double wide;
  memcpy(&half, p, 2);
  memcpy(&single, p, 4);
  memcpy(&wide, p, 8);
  return size == 2   ? (half & 0x7fff) > (dtype == INSITU_BF16 ? 0x7f80 : 0x7c00)
         : size == 4 ? __builtin_isnan(single)
                     : __builtin_isnan(wide);
}
/* Raw bytes and byte strings: base64, or a list of bytes. The bytes, or -1. */
static int64_t insitu__zarr_fill_bytes(const struct insitu__zarr_reader *r, int token, unsigned char *out, uint64_t cap) {
  uint64_t n, byte;
  int64_t used = 0;
  const char *text = insitu__text_json_span(r->j, token, &n);
  if (insitu__text_json_is_string(r->j, token)) return n < 2 ? -1 : insitu__text_base64(text + 1, n - 2, out, cap);
  if (!insitu__text_json_is_array(r->j, token)) return -1;
  for (int t = insitu__text_json_first(r->j, token); t >= 0; t = insitu__text_json_next(r->j, token, t)) {
    if ((uint64_t)used == cap || !insitu__text_json_u64(r->j, t, &byte) || byte > 255) return -1;
    out[used++] = (unsigned char)byte;
  }
  return used;
}
/* Characters as code points in native order, the rest of out zero; false when they are too many. */
static bool insitu__zarr_fill_ucs4(const char *text, unsigned char *out, uint64_t cap) {
  for (uint64_t used = 0; *text; used += 4) {
    uint32_t code = insitu__text_code_point(&text);
    if (used + 4 > cap) return false;
    memcpy(out + used, &code, 4);
  }
  return true;
}
/* Of strings and of elements with an axis inside. Writers give 0 where a string is meant to be empty. */
static insitu_status insitu__zarr_fill_wide(const struct insitu__zarr_reader *r, int token) {
  struct insitu__zarr_array *a = r->a;
  uint64_t span, zero, cap = a->kind == INSITU__ZARR_STRING ? 0 : a->itemsize;
  bool any = false, ok = true;
  int64_t n = 0; /* of a string of any length */
  insitu__text_json_span(r->j, token, &span);
  if (insitu__text_json_u64(r->j, token, &zero) && !zero) return INSITU_OK;
  char *text = (char *)insitu__mem_alloc(span + 1, 1);
  unsigned char *fill = a->wide_fill = (unsigned char *)insitu__mem_alloc(cap ? 2 * cap : span + 1, 1);
  if (!text || !fill) {
    insitu__mem_free(text);
    return insitu__zarr_nomem(r);
  }
  memset(fill, 0, (size_t)(cap ? 2 * cap : span + 1));
  a->wide_n = cap;
  if (a->kind == INSITU__ZARR_RAW || a->kind == INSITU__ZARR_CHAR) ok = insitu__zarr_fill_bytes(r, token, fill, cap) >= 0;
  else if (a->kind == INSITU__ZARR_UCS4)
    ok = insitu__text_json_string(r->j, token, text, span + 1) >= 0 && insitu__zarr_fill_ucs4(text, fill, cap);
  else {
    n = a->strings == INSITU__ZARR_VLEN_BYTES ? insitu__zarr_fill_bytes(r, token, fill, span + 1)
                                              : insitu__text_json_bytes(r->j, token, (char *)fill, span + 1);
    ok = n >= 0;
    a->wide_n = ok ? (uint64_t)n : 0;
    any = n > 0;
  }
  insitu__mem_free(text);
  for (uint64_t i = 0; i < a->wide_n; i++) any = any || fill[i];
  uint32_t scalar = (uint32_t)(a->dtype & 0xff) / 8;
  for (uint64_t i = 0; i < cap; i++) fill[cap + i] = fill[a->swap ? i / scalar * scalar + (scalar - 1 - i % scalar) : i];
  if (!ok) return insitu__zarr_bad(r, INSITU_E_FORMAT, "fill_value", token, "not a value of this array's dtype");
  if (any && cap > INSITU__MAX_FILL)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "fill_value", token, "it is not zero and longer than INSITU__MAX_FILL");
  if (!any) {
    insitu__mem_free(fill);
    a->wide_fill = NULL;
    a->wide_n = 0;
  }
  return INSITU_OK;
}
static insitu_status insitu__zarr_fill(const struct insitu__zarr_reader *r, int token) {
  struct insitu__zarr_array *a = r->a;
  uint32_t size = insitu__zarr_scalar_size(a);
  memset(a->fill, 0, sizeof a->fill);
  a->has_fill = token >= 0 && !insitu__text_json_is_null(r->j, token);
  if (!a->has_fill) return INSITU_OK;
  if (a->kind == INSITU__ZARR_STRING || insitu__zarr_is_wide(a->kind)) return insitu__zarr_fill_wide(r, token);
  if ((a->kind == INSITU__ZARR_DATE || a->kind == INSITU__ZARR_DIFFERENCE) && insitu__text_json_equals(r->j, token, "NaT")) {
    insitu__zarr_fill_store(UINT64_C(1) << 63, 8, a->fill);
    return INSITU_OK;
  }
  bool pair = insitu__zarr_is_complex(a->dtype) && insitu__text_json_is_array(r->j, token), ok = true;
  if (pair) {
    int re = insitu__text_json_first(r->j, token);
    ok = insitu__text_json_size(r->j, token) == 2 && insitu__zarr_fill_scalar(r, re, size, a->fill) &&
         insitu__zarr_fill_scalar(r, insitu__text_json_next(r->j, token, re), size, a->fill + size);
  } else ok = insitu__zarr_fill_scalar(r, token, size, a->fill);
  if (!ok) return insitu__zarr_bad(r, INSITU_E_FORMAT, "fill_value", token, "not a value of this array's dtype");
  a->fill_is_nan = a->dtype >> 8 >= 2 && a->dtype != INSITU_BOOL &&
                   (insitu__zarr_scalar_is_nan(a->fill, a->dtype, size) ||
                       (pair && insitu__zarr_scalar_is_nan(a->fill + size, a->dtype, size)));
  return INSITU_OK;
}

/* One fill element as it is stored. */
static void insitu__zarr_store_fill(const struct insitu__zarr_array *a, unsigned char out[16]) {
  uint32_t scalar = insitu__zarr_scalar_size(a);
  if (insitu__zarr_is_wide(a->kind)) memset(out, 0, 16);
  else
    for (uint32_t i = 0; i < a->itemsize; i++) out[i] = a->fill[a->swap ? i / scalar * scalar + (scalar - 1 - i % scalar) : i];
}
/* The fill value as *n scalars that repeat along the last axis. */
static const unsigned char *insitu__zarr_fill_pattern(const struct insitu__zarr_array *a, uint64_t *n) {
  *n = a->wide_fill ? a->wide_n / a->itemsize : 1;
  return a->wide_fill ? a->wide_fill : a->fill;
}

/* -- codecs -- */

/* Reads the codec at a token: the user's, or one of this library's. */
static insitu_status insitu__zarr_read_codec(
    const struct insitu__zarr_reader *r, int token, const struct insitu__codec_context *at, struct insitu__codec *out) {
  insitu_error cause = {0};
  bool found;
  insitu_status status = insitu__codec_hook(r->hooks, r->j, token, at->format, out, &found, &cause);
  if (status == INSITU_OK && !found) status = insitu__codec_read(r->j, token, at, out, &cause);
  if (status < 0) return insitu__error_set(r->err, status, "array '%.300s': %.600s", r->a->path, cause.message);
  return INSITU_OK;
}
/* Appends a codec to the decode chain, which then owns what it does, or frees it. */
static insitu_status insitu__zarr_add_codec(const struct insitu__zarr_reader *r, struct insitu__codec *codec) {
  struct insitu__codec_chain *chain = r->codecs;
  if (chain->n == INSITU__MAX_CODECS || insitu__codec_is_nothing(codec)) {
    bool nothing = insitu__codec_is_nothing(codec);
    insitu__codec_free(codec);
    if (nothing) return INSITU_OK;
    return insitu__error_set(r->err, INSITU_E_UNSUPPORTED,
        "array '%.300s': more codecs than INSITU__MAX_CODECS (%d); leave this array out", r->a->path, INSITU__MAX_CODECS);
  }
  chain->codec[chain->n++] = *codec;
  return INSITU_OK;
}

/* Takes the codec of that name if it makes strings. */
static bool insitu__zarr_string_codec(const struct insitu__zarr_reader *r, const char *name) {
  const char *bare = strncmp(name, "numcodecs.", 10) ? name : name + 10;
  if (!strcmp(bare, "vlen-utf8")) r->a->strings = INSITU__ZARR_VLEN;
  else if (!strcmp(bare, "vlen-bytes")) r->a->strings = INSITU__ZARR_VLEN_BYTES;
  else if (!strcmp(bare, "json2")) r->a->strings = INSITU__ZARR_JSON2;
  return r->a->strings != 0;
}

/* -- v2 -- */

/* NumPy's letters and what follows: S7, U13, V4, M8[ns], m8[25s], O. False: no such type. */
static bool insitu__zarr_v2_other(struct insitu__zarr_array *a, const char *text) {
  bool date = !strncmp(text, "M8", 2), difference = !strncmp(text, "m8", 2);
  uint64_t n = 0;
  if (!strcmp(text, "O")) {
    a->kind = INSITU__ZARR_STRING;
    insitu__zarr_set_dtype(a, INSITU_U8);
    return true;
  }
  if (date || difference) {
    size_t length = strlen(text);
    insitu__zarr_set_dtype(a, INSITU_I64);
    a->kind = date ? INSITU__ZARR_DATE : INSITU__ZARR_DIFFERENCE;
    if (length == 2) return true;
    if (text[2] != '[' || text[length - 1] != ']' || length - 4 >= sizeof a->unit) return false;
    memcpy(a->unit, text + 3, length - 4);
    return true;
  }
  for (const char *p = text + 1; *p; p++) {
    if (*p < '0' || *p > '9' || n > INSITU__MAX_ELEMENT) return false;
    n = 10 * n + (uint64_t)(*p - '0');
  }
  if (text[0] == 'S') return insitu__zarr_set_wide(a, INSITU__ZARR_CHAR, n);
  if (text[0] == 'V') return insitu__zarr_set_wide(a, INSITU__ZARR_RAW, n);
  return text[0] == 'U' && insitu__zarr_set_wide(a, INSITU__ZARR_UCS4, 4 * n);
}
static insitu_status insitu__zarr_v2_dtype(const struct insitu__zarr_reader *r) {
  char text[24];
  int token = insitu__zarr_get(r, "dtype");
  if (token < 0) return insitu__zarr_bad(r, INSITU_E_FORMAT, "dtype", token, "it is missing");
  if (insitu__text_json_is_array(r->j, token))
    return insitu__zarr_bad(r, INSITU_E_DTYPE, "dtype", token, "structured types are not supported");
  int64_t n = insitu__text_json_string(r->j, token, text, sizeof text);
  if (!insitu__text_json_is_string(r->j, token))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "dtype", token, "a string is needed");
  bool known = false;
  if (n > 0 && !strcmp(text, "bfloat16")) { /* tensorstore's zarr driver writes it so, little-endian */
    insitu__zarr_set_dtype(r->a, INSITU_BF16);
    insitu__zarr_set_endian(r->a, false);
    return INSITU_OK;
  }
  if (n > 1 && strchr("<>|", text[0])) {
    for (int i = 0; !known && i < INSITU__ZARR_DTYPES; i++) {
      known = !strcmp(text + 1, insitu__zarr_dtypes[i].v2);
      if (known) insitu__zarr_set_dtype(r->a, insitu__zarr_dtypes[i].dtype);
    }
    known = known || insitu__zarr_v2_other(r->a, text + 1);
  }
  if (!known)
    return insitu__zarr_bad(r, INSITU_E_DTYPE, "dtype", token,
        "this type is not supported (numbers, datetime64, timedelta64, and S, U and V of fixed size are)");
  if (text[0] == '|' && insitu__zarr_scalar_size(r->a) > 1)
    return insitu__zarr_bad(r, INSITU_E_DTYPE, "dtype", token, "a type of several bytes needs a byte order, '<' or '>'");
  insitu__zarr_set_endian(r->a, text[0] == '>');
  return INSITU_OK;
}
static insitu_status insitu__zarr_v2_codec(const struct insitu__zarr_reader *r, const char *key, int token) {
  char name[64];
  struct insitu__codec codec;
  struct insitu__codec_context at = {.format = 2};
  if (insitu__text_json_string(r->j, insitu__text_json_get(r->j, token, "id"), name, sizeof name) <= 0)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, key, token, "an object with an 'id' is needed");
  if (r->a->strings) return insitu__zarr_bad(r, INSITU_E_FORMAT, key, token, "a codec of strings must be the first filter");
  if (r->a->kind == INSITU__ZARR_STRING && insitu__zarr_string_codec(r, name)) return INSITU_OK;
  insitu_status status = insitu__zarr_read_codec(r, token, &at, &codec);
  return status < 0 ? status : insitu__zarr_add_codec(r, &codec);
}
static bool insitu__zarr_is_typed(const struct insitu__codec *c) {
  return c->kind >= INSITU__CODEC_PACKBITS && c->kind <= INSITU__CODEC_CAST;
}
/* Elements as a filter leaves them must be as long as the next one takes them, or as the array's. Of the same length they may be
 * of another type, as a delta of the bits of floats has it. */
static insitu_status insitu__zarr_v2_fit(const struct insitu__zarr_reader *r) {
  for (int i = 0; i < r->codecs->n; i++) {
    const struct insitu__codec *c = &r->codecs->codec[i], *next = i + 1 < r->codecs->n ? c + 1 : NULL;
    if (!insitu__zarr_is_typed(c) || (next && !insitu__zarr_is_typed(next))) continue;
    uint32_t size = insitu__codec_type_size(c->to), wants = insitu__zarr_scalar_size(r->a);
    if (next) wants = insitu__codec_type_size(next->from);
    if (size == wants || (next && next->kind == INSITU__CODEC_PACKBITS)) continue;
    return insitu__error_set(r->err, INSITU_E_CODEC,
        "array '%.300s': codec '%s' gives elements of %u bytes, and %s%s has %u; leave this array out or convert it", r->a->path,
        c->name, (unsigned)size, next ? "codec " : "the array", next ? next->name : "", (unsigned)wants);
  }
  return INSITU_OK;
}
static insitu_status insitu__zarr_v2_codecs(
    const struct insitu__zarr_reader *r) { /* decode: the compressor, then filters from the last */
  int filter[INSITU__MAX_CODECS], n = 0;
  int compressor = insitu__zarr_get(r, "compressor"), filters = insitu__zarr_get(r, "filters");
  insitu_status status = INSITU_OK;
  if (compressor >= 0 && !insitu__text_json_is_null(r->j, compressor))
    status = insitu__zarr_v2_codec(r, "compressor", compressor);
  if (status < 0 || filters < 0 || insitu__text_json_is_null(r->j, filters)) return status;
  if (!insitu__text_json_is_array(r->j, filters))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "filters", filters, "a list or null is needed");
  if (insitu__text_json_size(r->j, filters) > INSITU__MAX_CODECS)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "filters", filters, "more than INSITU__MAX_CODECS");
  for (int t = insitu__text_json_first(r->j, filters); t >= 0; t = insitu__text_json_next(r->j, filters, t)) filter[n++] = t;
  while (status == INSITU_OK && n > 0) status = insitu__zarr_v2_codec(r, "filters", filter[--n]);
  return status < 0 ? status : insitu__zarr_v2_fit(r);
}
static insitu_status insitu__zarr_v2_objects(const struct insitu__zarr_reader *r) { /* once the codecs are known */
  for (unsigned i = 0; r->a->strings == INSITU__ZARR_JSON2 && i < r->a->ndim; i++)
    r->order[i] = i; /* nested lists, also of "F" */
  if (r->a->kind != INSITU__ZARR_STRING || r->a->strings) return INSITU_OK;
  return insitu__zarr_bad(r, INSITU_E_DTYPE, "dtype", insitu__zarr_get(r, "dtype"),
      "objects without a filter that makes strings of them (vlen-utf8, vlen-bytes, json2)");
}
static insitu_status insitu__zarr_v2_layout(const struct insitu__zarr_reader *r) { /* order, separator */
  struct insitu__zarr_array *a = r->a;
  int order = insitu__zarr_get(r, "order"), separator = insitu__zarr_get(r, "dimension_separator");
  bool fortran = insitu__text_json_equals(r->j, order, "F");
  if (!fortran && !insitu__text_json_equals(r->j, order, "C"))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "order", order, "\"C\" or \"F\" is needed");
  for (unsigned i = 0; i < a->ndim; i++) r->order[i] = fortran ? a->ndim - 1 - i : i;
  a->key_style = INSITU__ZARR_KEYS_V2;
  a->separator = insitu__text_json_equals(r->j, separator, "/") ? '/' : '.';
  if (separator >= 0 && a->separator == '.' && !insitu__text_json_equals(r->j, separator, "."))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "dimension_separator", separator, "\".\" or \"/\" is needed");
  return INSITU_OK;
}
static insitu_status insitu__zarr_begin(struct insitu__zarr_reader *r, const char *path, int format) {
  memset(r->a, 0, sizeof *r->a);
  r->a->format = format;
  r->a->path = insitu__mem_text(path, strlen(path));
  if (!r->a->path)
    return insitu__error_set(
        r->err, INSITU_E_NOMEM, "array '%.300s': no memory for its metadata; give the process more memory", path);
  uint64_t version;
  int token = insitu__zarr_get(r, "zarr_format");
  if (!insitu__text_json_is_object(r->j, r->node))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "", r->node, "an object is needed");
  if (!insitu__text_json_u64(r->j, token, &version) || version != (uint64_t)format)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "zarr_format", token, format == 2 ? "2 is needed here" : "3 is needed here");
  return INSITU_OK;
}
static insitu_status insitu__zarr_end(const struct insitu__zarr_reader *r, insitu_status status) {
  if (status < 0) insitu__zarr_array_free(r->a);
  return status;
}
/* From an already parsed .zarray object; attributes (a document and its object's token, or NULL) name the dimensions and are
 * kept as text. They are the user's own, so those of another form than xarray's leave the dimensions unnamed. a is written whole,
 * zeroed on error. */
static insitu_status insitu__zarr_from_v2(struct insitu__zarr_array *a, const char *path, const struct insitu__text_json *j,
    int node, const struct insitu__text_json *attributes, int attributes_node, struct insitu__codec_hooks *hooks,
    insitu_error *err) {
  struct insitu__zarr_reader r = insitu__zarr_reader(j, node, a, hooks, err);
  bool no_memory = false;
  insitu_status status = insitu__zarr_begin(&r, path, 2);
  if (status == INSITU_OK) status = insitu__zarr_extents(&r, "shape", insitu__zarr_get(&r, "shape"), 0, &a->ndim, a->shape);
  if (status == INSITU_OK) status = insitu__zarr_chunk_extents(&r, "chunks", insitu__zarr_get(&r, "chunks"));
  if (status == INSITU_OK) status = insitu__zarr_v2_dtype(&r);
  if (status == INSITU_OK) status = insitu__zarr_v2_layout(&r);
  if (status == INSITU_OK) status = insitu__zarr_v2_codecs(&r);
  if (status == INSITU_OK) status = insitu__zarr_v2_objects(&r);
  if (status == INSITU_OK) status = insitu__zarr_fill(&r, insitu__zarr_get(&r, "fill_value"));
  if (status == INSITU_OK) status = insitu__zarr_layout(&r);
  int names = attributes ? insitu__text_json_get(attributes, attributes_node, "_ARRAY_DIMENSIONS") : -1;
  if (status == INSITU_OK && names >= 0 && !insitu__zarr_dim_names(&r, attributes, names, &no_memory)) {
    for (unsigned i = 0; i < a->ndim; i++) {
      insitu__mem_free(a->dim[i]);
      a->dim[i] = NULL;
    }
    if (no_memory) status = insitu__zarr_nomem(&r);
  }
  if (status == INSITU_OK && attributes) status = insitu__zarr_keep_attributes(&r, attributes, attributes_node);
  return insitu__zarr_end(&r, status);
}

/* -- v3 -- */

/* The name of an extension (a string, or an object with a name) and its configuration's token, -1 when it has none. */
static bool insitu__zarr_extension(const struct insitu__zarr_reader *r, int token, char *name, uint64_t cap, int *configuration) {
  *configuration = insitu__text_json_get(r->j, token, "configuration");
  if (insitu__text_json_is_object(r->j, token)) token = insitu__text_json_get(r->j, token, "name");
  return insitu__text_json_string(r->j, token, name, cap) > 0;
}
static bool insitu__zarr_may_ignore(const struct insitu__text_json *j, int token) { /* an extension that says so */
  return insitu__text_json_is_false(j, insitu__text_json_get(j, token, "must_understand"));
}
/* The first key that is not known and must be understood, -1 when there is none. */
static int insitu__zarr_unknown_key(const struct insitu__text_json *j, int node, const char *const *known, int n) {
  for (int t = insitu__text_json_first(j, node); t >= 0; t = insitu__text_json_next(j, node, t)) {
    int i = 0;
    while (i < n && !insitu__text_json_equals(j, t, known[i])) i++;
    if (i == n && !insitu__zarr_may_ignore(j, insitu__text_json_value(j, t))) return t;
  }
  return -1;
}
static insitu_status insitu__zarr_v3_keys(const struct insitu__zarr_reader *r) {
  static const char *const known[] = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding",
      "fill_value", "codecs", "attributes", "dimension_names", "storage_transformers", "consolidated_metadata"};
  int key = insitu__zarr_unknown_key(r->j, r->node, known, (int)(sizeof known / sizeof known[0]));
  if (key >= 0) {
    char name[128];
    if (insitu__text_json_string(r->j, key, name, sizeof name) < 0) snprintf(name, sizeof name, "(unprintable)");
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, name, insitu__text_json_value(r->j, key),
        "an unknown extension that does not say must_understand: false");
  }
  int transformers = insitu__zarr_get(r, "storage_transformers");
  if (transformers >= 0 && (!insitu__text_json_is_array(r->j, transformers) || insitu__text_json_size(r->j, transformers)))
    return insitu__zarr_bad(
        r, INSITU_E_UNSUPPORTED, "storage_transformers", transformers, "storage transformers are not supported");
  return INSITU_OK;
}
/* The extension types of the Zarr registry that are known here, and the core's r*. False: none of them. */
static bool insitu__zarr_v3_other(const struct insitu__zarr_reader *r, const char *name, int configuration) {
  static const struct {
    const char *name;
    int kind;
  } known[] = {{"string", INSITU__ZARR_STRING}, {"bytes", INSITU__ZARR_STRING}, {"variable_length_bytes", INSITU__ZARR_STRING},
      {"numpy.datetime64", INSITU__ZARR_DATE}, {"numpy.timedelta64", INSITU__ZARR_DIFFERENCE}, {"raw_bytes", INSITU__ZARR_RAW},
      {"null_terminated_bytes", INSITU__ZARR_CHAR}, {"fixed_length_utf32", INSITU__ZARR_UCS4}};
  struct insitu__zarr_array *a = r->a;
  uint64_t bytes = 0, scale = 1;
  char unit[8] = "";
  if (name[0] == 'r' && insitu__text_is_digit((unsigned char)name[1])) {
    for (const char *p = name + 1; *p; p++) {
      if (!insitu__text_is_digit((unsigned char)*p) || bytes > 8 * INSITU__MAX_ELEMENT) return false;
      bytes = 10 * bytes + (uint64_t)(*p - '0');
    }
    return bytes % 8 == 0 && insitu__zarr_set_wide(a, INSITU__ZARR_RAW, bytes / 8);
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) a->kind = known[i].kind;
  if (insitu__zarr_is_wide(a->kind))
    return insitu__text_json_u64(r->j, insitu__text_json_get(r->j, configuration, "length_bytes"), &bytes) &&
           insitu__zarr_set_wide(a, a->kind, bytes);
  insitu__zarr_set_dtype(a, a->kind == INSITU__ZARR_STRING ? INSITU_U8 : INSITU_I64);
  if (a->kind == INSITU__ZARR_STRING || a->kind == INSITU__ZARR_NUMBER) return a->kind == INSITU__ZARR_STRING;
  int factor = insitu__text_json_get(r->j, configuration, "scale_factor");
  if (insitu__text_json_string(r->j, insitu__text_json_get(r->j, configuration, "unit"), unit, sizeof unit) < 0 ||
      (factor >= 0 && (!insitu__text_json_u64(r->j, factor, &scale) || !scale || scale > INT32_MAX)))
    return false;
  if (!strcmp(unit, "generic")) unit[0] = 0;
  int n = scale == 1 ? snprintf(a->unit, sizeof a->unit, "%s", unit)
                     : snprintf(a->unit, sizeof a->unit, "%" PRIu64 "%s", scale, unit);
  return n >= 0 && n < (int)sizeof a->unit;
}
static insitu_status insitu__zarr_v3_dtype(const struct insitu__zarr_reader *r) {
  char name[64];
  int configuration, token = insitu__zarr_get(r, "data_type");
  if (token < 0) return insitu__zarr_bad(r, INSITU_E_FORMAT, "data_type", token, "it is missing");
  if (!insitu__zarr_extension(r, token, name, sizeof name, &configuration))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "data_type", token, "a name is needed");
  for (int i = 0; i < INSITU__ZARR_DTYPES; i++)
    if (strcmp(name, insitu__zarr_dtypes[i].v3) == 0) {
      insitu__zarr_set_dtype(r->a, insitu__zarr_dtypes[i].dtype);
      return INSITU_OK;
    }
  if (insitu__zarr_v3_other(r, name, configuration)) return INSITU_OK;
  return insitu__zarr_bad(r, INSITU_E_DTYPE, "data_type", token,
      "this type is not supported (numbers, numpy.datetime64, numpy.timedelta64, raw bytes, and byte and utf32 strings of fixed "
      "size are)");
}
static insitu_status insitu__zarr_v3_grid(const struct insitu__zarr_reader *r) {
  char name[64];
  int configuration, grid = insitu__zarr_get(r, "chunk_grid");
  if (!insitu__zarr_extension(r, grid, name, sizeof name, &configuration))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "chunk_grid", grid, "an object with a name is needed");
  if (strcmp(name, "regular"))
    return insitu__zarr_bad(r, INSITU_E_GRID, "chunk_grid", grid, "only the 'regular' grid is supported");
  return insitu__zarr_chunk_extents(r, "chunk_shape", insitu__text_json_get(r->j, configuration, "chunk_shape"));
}
static insitu_status insitu__zarr_v3_chunk_keys(const struct insitu__zarr_reader *r) {
  char name[64];
  int configuration, encoding = insitu__zarr_get(r, "chunk_key_encoding");
  if (!insitu__zarr_extension(r, encoding, name, sizeof name, &configuration))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "chunk_key_encoding", encoding, "an object with a name is needed");
  bool is_default = strcmp(name, "default") == 0;
  if (!is_default && strcmp(name, "v2"))
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "chunk_key_encoding", encoding, "only 'default' and 'v2' are supported");
  int separator = insitu__text_json_get(r->j, configuration, "separator");
  r->a->key_style = is_default ? INSITU__ZARR_KEYS_DEFAULT : INSITU__ZARR_KEYS_V2;
  r->a->separator = is_default ? '/' : '.';
  if (insitu__text_json_equals(r->j, separator, "/")) r->a->separator = '/';
  else if (insitu__text_json_equals(r->j, separator, ".")) r->a->separator = '.';
  else if (separator >= 0)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "chunk_key_encoding", encoding, "the separator must be \".\" or \"/\"");
  return INSITU_OK;
}
struct insitu__zarr_codecs { /* what a list of codecs holds */
  int shard, configuration;  /* the sharding codec's tokens, or -1 */
  bool is_bytes;
  int late[INSITU__MAX_CODECS], n_late; /* bytes -> bytes codecs, collected because decoding runs from the last */
  /* Codecs of elements, in encoding order. Those that work on each by itself may stand on either side of a transpose, which the
   * copy into the batch then undoes, and of a shard: they go into its inner chunks. Before one that works on them in their order
   * is decoded, the transposes behind it are undone by a codec. */
  struct insitu__codec early[INSITU__MAX_CODECS];
  int n_early;
  struct insitu__codec_type type;     /* of elements behind those codecs; none: complex, bfloat16, text, raw */
  const char *ordered;                /* the last one that works on elements in their order, NULL: none so far */
  bool flat;                          /* and which made one axis of them all */
  struct insitu__codec_layout behind; /* the transposes behind that one */
};
static struct insitu__codec_type insitu__zarr_type(const struct insitu__zarr_array *a) {
  bool plain = !insitu__zarr_is_complex(a->dtype) && a->dtype != INSITU_BF16 && !insitu__zarr_is_wide(a->kind);
  return (struct insitu__codec_type){plain ? a->dtype : 0, false};
}
static uint32_t insitu__zarr_type_size(const struct insitu__zarr_reader *r, const struct insitu__zarr_codecs *c) {
  return c->type.dtype ? insitu__codec_type_size(c->type) : r->a->itemsize;
}
static insitu_status insitu__zarr_v3_early(
    const struct insitu__zarr_reader *r, struct insitu__zarr_codecs *c, struct insitu__codec *codec) {
  if (insitu__codec_is_nothing(codec)) {
    insitu__codec_free(codec);
    return INSITU_OK;
  }
  if (c->n_early == INSITU__MAX_CODECS) {
    insitu__codec_free(codec);
    return insitu__error_set(r->err, INSITU_E_UNSUPPORTED,
        "array '%.300s': more codecs than INSITU__MAX_CODECS (%d); leave this array out", r->a->path, INSITU__MAX_CODECS);
  }
  c->early[c->n_early++] = *codec;
  return INSITU_OK;
}
/* Makes a codec of the transposes behind an ordered codec, if they change anything. */
static insitu_status insitu__zarr_v3_untranspose(const struct insitu__zarr_reader *r, struct insitu__zarr_codecs *c) {
  struct insitu__codec codec = {.kind = INSITU__CODEC_TRANSPOSE, .name = "transpose"};
  struct insitu__codec_layout *t = &c->behind;
  uint64_t shape[INSITU__MAX_DIMS];
  bool changes = false;
  for (unsigned k = 0; c->ordered && k < t->ndim; k++) changes = changes || t->order[k] != k;
  if (!changes) return INSITU_OK;
  codec.layout = (struct insitu__codec_layout *)insitu__mem_alloc(1, sizeof *codec.layout);
  if (!codec.layout) return insitu__zarr_nomem(r);
  *codec.layout = *t;
  codec.layout->item = insitu__zarr_type_size(r, c);
  memcpy(shape, t->shape, sizeof shape);
  for (unsigned k = 0; k < t->ndim; k++) t->shape[k] = shape[t->order[k]];
  for (unsigned k = 0; k < t->ndim; k++) t->order[k] = k;
  return insitu__zarr_v3_early(r, c, &codec);
}
/* A codec of elements, or one of the user's or packbits in the place of 'bytes'. */
static insitu_status insitu__zarr_v3_elements(const struct insitu__zarr_reader *r, int token, struct insitu__zarr_codecs *c) {
  const struct insitu__codec_shard *outer = r->a->n_shards ? &r->a->shards[r->a->n_shards - 1] : NULL;
  struct insitu__codec_context at = {.format = 3, .array = true, .item = insitu__zarr_type_size(r, c), .type = c->type};
  struct insitu__codec codec;
  insitu_status status = insitu__zarr_read_codec(r, token, &at, &codec);
  if (status < 0) return status;
  bool packed = codec.kind == INSITU__CODEC_PACKBITS, numcodecs = packed && codec.high_first;
  c->is_bytes = codec.kind == INSITU__CODEC_USER || (packed && !numcodecs);
  bool ordered = packed || codec.kind == INSITU__CODEC_DELTA;
  if (c->is_bytes || ordered) status = insitu__zarr_v3_untranspose(r, c);
  if (status < 0) {
    insitu__codec_free(&codec);
    return status;
  }
  if (insitu__zarr_is_typed(&codec)) c->type = codec.from;
  c->type.swap = false;
  if (ordered && !c->ordered) { /* its elements are in this order, which the copy into the batch undoes */
    c->behind.ndim = r->a->ndim;
    for (unsigned k = 0; k < r->a->ndim; k++) {
      c->behind.shape[k] = outer ? outer->inner[r->order[k]] : r->a->object.chunk[r->order[k]];
      c->behind.order[k] = k;
    }
  }
  if (ordered) c->ordered = codec.name;
  c->flat = c->flat || numcodecs;
  return insitu__zarr_v3_early(r, c, &codec);
}
/* Transposes follow one another: axis k of what this one stores is axis permutation[k] of what it was given. */
static insitu_status insitu__zarr_v3_transpose(
    const struct insitu__zarr_reader *r, int codec, int configuration, struct insitu__zarr_codecs *c) {
  unsigned permuted[INSITU__MAX_DIMS], n = 0, *before = c->ordered ? c->behind.order : r->order;
  uint64_t axis, seen = 0;
  int order = insitu__text_json_get(r->j, configuration, "order");
  if (c->flat) return insitu__zarr_codec_refused(r, "transpose", "cannot follow 'packbits', which leaves one axis alone");
  if (insitu__text_json_equals(r->j, order, "C")) return INSITU_OK; /* as drafts of the specification had it */
  bool fortran = insitu__text_json_equals(r->j, order, "F");
  for (; fortran && n < r->a->ndim; n++) permuted[n] = before[r->a->ndim - 1 - n];
  for (int t = insitu__text_json_is_array(r->j, order) ? insitu__text_json_first(r->j, order) : -1; t >= 0;
       t = insitu__text_json_next(r->j, order, t), n++) {
    if (n >= r->a->ndim || !insitu__text_json_u64(r->j, t, &axis) || axis >= r->a->ndim || (seen >> axis & 1))
      return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the transpose's order must be a permutation of the axes");
    seen |= UINT64_C(1) << axis;
    permuted[n] = before[axis];
  }
  if (n != r->a->ndim || (!fortran && !insitu__text_json_is_array(r->j, order)))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the transpose's order must be a permutation of the axes");
  memcpy(before, permuted, n * sizeof permuted[0]);
  return INSITU_OK;
}
static insitu_status insitu__zarr_v3_bytes(
    const struct insitu__zarr_reader *r, int codec, int configuration, struct insitu__zarr_codecs *c) {
  int endian = insitu__text_json_get(r->j, configuration, "endian"), typed = c->n_early - 1;
  uint32_t size = c->type.dtype ? insitu__codec_type_size(c->type) : insitu__zarr_scalar_size(r->a);
  bool big = insitu__text_json_equals(r->j, endian, "big");
  if (!big && !insitu__text_json_equals(r->j, endian, "little") &&
      !(size == 1 && (endian < 0 || insitu__text_json_is_null(r->j, endian))))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the bytes codec needs an endian, \"little\" or \"big\"");
  while (typed >= 0 && !insitu__zarr_is_typed(&c->early[typed])) typed--;
  if (typed < 0) insitu__zarr_set_endian(r->a, big);
  else c->early[typed].from.swap = size > 1 && big != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__); /* the array's are native then */
  return insitu__zarr_v3_untranspose(r, c);
}
/* The index of a shard: bytes, and a checksum if wanted; a shard reader must know its length beforehand. */
static insitu_status insitu__zarr_v3_shard_index(
    const struct insitu__zarr_reader *r, int codec, int configuration, struct insitu__codec_shard *shard) {
  int location = insitu__text_json_get(r->j, configuration, "index_location");
  int codecs = insitu__text_json_get(r->j, configuration, "index_codecs"), number = 0;
  shard->index_first = insitu__text_json_equals(r->j, location, "start");
  if (location >= 0 && !shard->index_first && !insitu__text_json_equals(r->j, location, "end"))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the shard's index_location must be \"start\" or \"end\"");
  if (!insitu__text_json_is_array(r->j, codecs))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "a shard needs a list of index_codecs");
  for (int t = insitu__text_json_first(r->j, codecs); t >= 0; t = insitu__text_json_next(r->j, codecs, t), number++) {
    char name[64];
    int inner, endian;
    if (!insitu__zarr_extension(r, t, name, sizeof name, &inner))
      return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "each of the shard's index_codecs needs a name");
    endian = insitu__text_json_get(r->j, inner, "endian");
    bool bytes = number == 0 && (strcmp(name, "bytes") == 0 || strcmp(name, "endian") == 0);
    if (bytes) shard->index_big = insitu__text_json_equals(r->j, endian, "big");
    if (bytes && !shard->index_big && !insitu__text_json_equals(r->j, endian, "little"))
      return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the shard's index needs an endian, \"little\" or \"big\"");
    if (!bytes && (number != 1 || strcmp(name, "crc32c")))
      return insitu__zarr_codec_refused(r, name, "is not supported in a shard's index_codecs (bytes, then crc32c are)");
    shard->index_crc = number == 1;
  }
  if (number) return INSITU_OK;
  return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "the shard's index_codecs lack 'bytes'");
}

/* Begins the array's next shard: its grid of inner chunks within what r describes. */
static insitu_status insitu__zarr_v3_shard(
    const struct insitu__zarr_reader *r, int codec, int configuration, struct insitu__codec_shard **out) {
  struct insitu__zarr_array *a = r->a;
  const struct insitu__codec_shard *outer = a->n_shards ? &a->shards[a->n_shards - 1] : NULL;
  unsigned n;
  if (a->n_shards == INSITU__MAX_SHARD_LEVELS)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "codecs", codec, "more shards inside shards than INSITU__MAX_SHARD_LEVELS");
  if (!a->shards) {
    a->shards = (struct insitu__codec_shard *)insitu__mem_alloc(INSITU__MAX_SHARD_LEVELS, sizeof *a->shards);
    if (!a->shards) return insitu__zarr_nomem(r);
  }
  struct insitu__codec_shard *shard = *out = &a->shards[a->n_shards++];
  insitu_status status = insitu__zarr_extents(
      r, "codecs: sharding_indexed: chunk_shape", insitu__text_json_get(r->j, configuration, "chunk_shape"), 1, &n, shard->inner);
  if (status < 0) return status;
  shard->ndim = a->ndim;
  shard->item = a->itemsize;
  shard->bytes = shard->inner_bytes = a->itemsize;
  shard->entries = 1;
  bool divides = n == a->ndim, fits = true;
  for (unsigned k = 0; divides && k < n; k++) {
    shard->order[k] = k;
    shard->chunk[k] = outer ? outer->inner[r->order[k]] : a->object.chunk[r->order[k]];
    divides = shard->chunk[k] % shard->inner[k] == 0;
    fits = fits && insitu__base_mul(shard->bytes, shard->chunk[k], &shard->bytes) &&
           insitu__base_mul(shard->inner_bytes, shard->inner[k], &shard->inner_bytes);
    shard->entries *= fits ? shard->chunk[k] / shard->inner[k] : 1;
  }
  if (!divides)
    return insitu__zarr_bad(
        r, INSITU_E_FORMAT, "codecs", codec, "the shard's chunk_shape must divide the shard, axis by axis (after a transpose)");
  if (!fits || shard->bytes > INT64_MAX || shard->entries > INSITU__MAX_SHARD_CHUNKS)
    return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "codecs", codec,
        fits && shard->bytes <= INT64_MAX ? "a shard has more inner chunks than INSITU__MAX_SHARD_CHUNKS"
                                          : "a shard would have 2^63 bytes or more");
  return insitu__zarr_v3_shard_index(r, codec, configuration, shard);
}

/* One codec in encoding order. */
static insitu_status insitu__zarr_v3_codec(const struct insitu__zarr_reader *r, int codec, struct insitu__zarr_codecs *c) {
  char name[64];
  int configuration;
  if (!insitu__zarr_extension(r, codec, name, sizeof name, &configuration))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec, "each needs a name");
  bool shard = strcmp(name, "sharding_indexed") == 0, transpose = strcmp(name, "transpose") == 0;
  bool bytes = strcmp(name, "bytes") == 0 || strcmp(name, "endian") == 0;
  bool strings = r->a->kind == INSITU__ZARR_STRING && !c->is_bytes && insitu__zarr_string_codec(r, name);
  if (c->is_bytes) {
    if (bytes || transpose || shard)
      return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codec,
          "it works on arrays and comes after 'bytes' or 'sharding_indexed', which made bytes of them");
    if (c->n_late == INSITU__MAX_CODECS)
      return insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "codecs", codec, "more than INSITU__MAX_CODECS");
    c->late[c->n_late++] = codec;
    return INSITU_OK;
  }
  if (transpose) return insitu__zarr_v3_transpose(r, codec, configuration, c);
  c->is_bytes = bytes || shard || strings;
  if (strings) return INSITU_OK;
  if (!shard && r->a->kind == INSITU__ZARR_STRING)
    return insitu__zarr_codec_refused(r, name, "makes no strings (vlen-utf8 and vlen-bytes do)");
  if (!c->is_bytes) return insitu__zarr_v3_elements(r, codec, c);
  if (bytes) return insitu__zarr_v3_bytes(r, codec, configuration, c);
  if (c->ordered)
    return insitu__zarr_codec_refused(
        r, c->ordered, "is not supported before 'sharding_indexed' (among the shard's codecs it is)");
  c->shard = codec;
  c->configuration = configuration;
  return INSITU_OK;
}
/* One list of codecs: the array's, or that of a shard's inner chunks. */
static insitu_status insitu__zarr_v3_codec_list(const struct insitu__zarr_reader *r, int codecs, struct insitu__zarr_codecs *c) {
  insitu_status status = INSITU_OK;
  if (!insitu__text_json_is_array(r->j, codecs))
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codecs, "a list is needed");
  for (unsigned i = 0; i < r->a->ndim; i++) r->order[i] = i;
  for (int t = insitu__text_json_first(r->j, codecs); t >= 0 && status == INSITU_OK; t = insitu__text_json_next(r->j, codecs, t))
    status = insitu__zarr_v3_codec(r, t, c);
  if (status == INSITU_OK && !c->is_bytes)
    return insitu__zarr_bad(r, INSITU_E_FORMAT, "codecs", codecs, "none of them makes bytes of the array ('bytes')");
  while (status == INSITU_OK && c->n_late > 0) {
    struct insitu__codec_context at = {.format = 3, .item = insitu__zarr_type_size(r, c)};
    struct insitu__codec codec;
    status = insitu__zarr_read_codec(r, c->late[--c->n_late], &at, &codec);
    if (status == INSITU_OK) status = insitu__zarr_add_codec(r, &codec);
  }
  while (status == INSITU_OK && c->shard < 0 && c->n_early > 0) status = insitu__zarr_add_codec(r, &c->early[--c->n_early]);
  return status;
}
static insitu_status insitu__zarr_v3_codecs(const struct insitu__zarr_reader *r) {
  struct insitu__zarr_reader at = *r;
  struct insitu__zarr_array *a = r->a;
  struct insitu__zarr_codecs c = {.type = insitu__zarr_type(a)};
  int list = insitu__zarr_get(r, "codecs");
  for (bool more = true; more;) {
    struct insitu__codec_shard *shard = NULL;
    c.shard = -1;
    c.is_bytes = false;
    insitu_status status = insitu__zarr_v3_codec_list(&at, list, &c);
    more = c.shard >= 0;
    if (status == INSITU_OK && more && at.codecs->n == INSITU__MAX_CODECS)
      status = insitu__zarr_bad(r, INSITU_E_UNSUPPORTED, "codecs", c.shard, "more than INSITU__MAX_CODECS");
    if (status == INSITU_OK && more) status = insitu__zarr_v3_shard(&at, c.shard, c.configuration, &shard);
    if (status < 0) {
      while (c.n_early > 0) insitu__codec_free(&c.early[--c.n_early]);
      return status;
    }
    if (!more) break;
    at.codecs->codec[at.codecs->n++] =
        (struct insitu__codec){.kind = INSITU__CODEC_SHARD, .shard = shard, .name = "sharding_indexed"};
    at.order = shard->order;
    at.codecs = &shard->codecs;
    list = insitu__text_json_get(r->j, c.configuration, "codecs");
  }
  for (unsigned i = a->n_shards; i-- > 0;) { /* what the inner ones decide */
    struct insitu__codec_shard *shard = &a->shards[i];
    uint64_t bound = insitu__codec_bound(&shard->codecs, shard->inner_bytes), index = insitu__codec_shard_index_bytes(shard);
    bool fits = insitu__base_mul(bound, shard->entries, &bound);
    shard->bound = fits ? insitu__codec_add(bound, insitu__codec_add(index, bound / 8)) : UINT64_MAX; /* an eighth: gaps */
  }
  return INSITU_OK;
}
static insitu_status insitu__zarr_v3_names(const struct insitu__zarr_reader *r) {
  bool no_memory = false;
  int names = insitu__zarr_get(r, "dimension_names");
  if (names < 0 || insitu__text_json_is_null(r->j, names) || insitu__zarr_dim_names(r, r->j, names, &no_memory)) return INSITU_OK;
  if (no_memory) return insitu__zarr_nomem(r);
  return insitu__zarr_bad(
      r, INSITU_E_FORMAT, "dimension_names", names, "a list with a name or null for each dimension is needed");
}
/* From an already parsed zarr.json of an array, or its copy in consolidated metadata. a is written whole, zeroed on error. */
static insitu_status insitu__zarr_from_v3(struct insitu__zarr_array *a, const char *path, const struct insitu__text_json *j,
    int node, struct insitu__codec_hooks *hooks, insitu_error *err) {
  struct insitu__zarr_reader r = insitu__zarr_reader(j, node, a, hooks, err);
  insitu_status status = insitu__zarr_begin(&r, path, 3);
  int type = insitu__zarr_get(&r, "node_type"), fill = insitu__zarr_get(&r, "fill_value");
  if (status == INSITU_OK && !insitu__text_json_equals(j, type, "array"))
    status = insitu__zarr_bad(&r, INSITU_E_FORMAT, "node_type", type, "\"array\" is needed here");
  if (status == INSITU_OK) status = insitu__zarr_v3_keys(&r);
  if (status == INSITU_OK) status = insitu__zarr_extents(&r, "shape", insitu__zarr_get(&r, "shape"), 0, &a->ndim, a->shape);
  if (status == INSITU_OK) status = insitu__zarr_v3_grid(&r);
  if (status == INSITU_OK) status = insitu__zarr_v3_dtype(&r);
  if (status == INSITU_OK) status = insitu__zarr_v3_chunk_keys(&r);
  if (status == INSITU_OK && fill < 0) status = insitu__zarr_bad(&r, INSITU_E_FORMAT, "fill_value", fill, "it is missing");
  if (status == INSITU_OK) status = insitu__zarr_v3_codecs(&r);
  if (status == INSITU_OK) status = insitu__zarr_fill(&r, fill);
  for (unsigned i = 0; status == INSITU_OK && i < a->n_shards; i++) insitu__zarr_store_fill(a, a->shards[i].fill);
  if (status == INSITU_OK) status = insitu__zarr_layout(&r);
  if (status == INSITU_OK) status = insitu__zarr_v3_names(&r);
  if (status == INSITU_OK) status = insitu__zarr_keep_attributes(&r, j, insitu__zarr_get(&r, "attributes"));
  return insitu__zarr_end(&r, status);
}

/* -- whole documents -- */

static insitu_status insitu__zarr_parse_v2(struct insitu__zarr_array *a, const char *path, const char *text, uint64_t n,
    const char *attributes, uint64_t n_attributes, struct insitu__codec_hooks *hooks, insitu_error *err) {
  char what[320];
  struct insitu__text_json j = {0}, attrs = {0};
  memset(a, 0, sizeof *a);
  snprintf(what, sizeof what, "array '%.280s', .zarray", path);
  insitu_status status = insitu__text_json_parse(&j, text, n, what, err);
  snprintf(what, sizeof what, "array '%.280s', .zattrs", path);
  if (status == INSITU_OK && attributes) status = insitu__text_json_parse(&attrs, attributes, n_attributes, what, err);
  if (status == INSITU_OK) status = insitu__zarr_from_v2(a, path, &j, 0, attributes ? &attrs : NULL, 0, hooks, err);
  insitu__text_json_free(&j);
  insitu__text_json_free(&attrs);
  return status;
}
/* For tests and the command insitu: the loader looks into a zarr.json first, see insitu__zarr_array_v3_await. */
__attribute__((unused)) static insitu_status insitu__zarr_parse_v3(
    struct insitu__zarr_array *a, const char *path, const char *text, uint64_t n, insitu_error *err) {
  char what[320];
  struct insitu__text_json j;
  memset(a, 0, sizeof *a);
  snprintf(what, sizeof what, "array '%.280s', zarr.json", path);
  insitu_status status = insitu__text_json_parse(&j, text, n, what, err);
  if (status == INSITU_OK) status = insitu__zarr_from_v3(a, path, &j, 0, NULL, err);
  insitu__text_json_free(&j);
  return status;
}

/* -- strings -- */

/* The strings of one decoded chunk, `count` of them, one after the other. A status below zero from emit ends it. */
typedef insitu_status insitu__zarr_emit_string(void *to, uint64_t number, const char *text, uint64_t n);

/* numcodecs vlen-utf8 and vlen-bytes: a count, then length and bytes of each; all u32, little-endian. */
static insitu_status insitu__zarr_vlen(
    const uint8_t *bytes, uint64_t n, uint64_t count, insitu__zarr_emit_string *emit, void *to, insitu_error *err) {
  uint64_t at = 4;
  if (n < 4 || insitu__base_load32(bytes) != count)
    return insitu__error_set(err, INSITU_E_CORRUPT, "vlen: %" PRIu32 " strings, expected %" PRIu64 "; " INSITU__CODEC_BAD,
        n < 4 ? 0 : insitu__base_load32(bytes), count);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t length = n - at < 4 ? UINT64_MAX : insitu__base_load32(bytes + at);
    if (length == UINT64_MAX || length > n - at - 4)
      return insitu__error_set(
          err, INSITU_E_CORRUPT, "vlen: string %" PRIu64 " ends outside of the chunk; " INSITU__CODEC_BAD, i);
    insitu_status status = emit(to, i, (const char *)bytes + at + 4, length);
    if (status < 0) return status;
    at += 4 + length;
  }
  if (at == n) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CORRUPT, "vlen: %" PRIu64 " bytes after the last string; " INSITU__CODEC_BAD, n - at);
}
/* numcodecs json2: a list, nested like the chunk, with NumPy's type and the shape behind its last element. */
static insitu_status insitu__zarr_json2(
    const uint8_t *bytes, uint64_t n, uint64_t count, insitu__zarr_emit_string *emit, void *to, insitu_error *err) {
  struct insitu__text_json j = {0};
  insitu_status status = insitu__text_json_parse(&j, (const char *)bytes, n, "json2", err);
  if (status < 0) return status;
  int items = insitu__text_json_size(&j, 0) - 2, t = insitu__text_json_first(&j, 0), end = t;
  uint64_t found = 0, span;
  char *text = (char *)insitu__mem_alloc(n + 1, 1);
  if (!text) status = insitu__error_set(err, INSITU_E_NOMEM, "json2: no memory for strings; give the process more memory");
  for (int i = 0; i < items && end >= 0; i++) end = insitu__text_json_next(&j, 0, end);
  if (status >= 0 && (!insitu__text_json_is_array(&j, 0) || items < 0 || end < 0))
    status = insitu__error_set(err, INSITU_E_CORRUPT, "json2: not a list with a type and a shape at its end; " INSITU__CODEC_BAD);
  for (; status >= 0 && t < end; t++) { /* tokens are in the order of the text: those inside a list follow it */
    if (insitu__text_json_is_array(&j, t)) continue;
    int64_t length = insitu__text_json_bytes(&j, t, text, n + 1);
    const char *value = length < 0 ? insitu__text_json_span(&j, t, &span) : text;
    if (length < 0 && insitu__text_json_is_object(&j, t)) found = count; /* refused below */
    if (found == count) break;
    status = emit(to, found++, value, length < 0 ? span : (uint64_t)length);
  }
  if (status >= 0 && (t < end || found != count))
    status = insitu__error_set(err, INSITU_E_CORRUPT, "json2: not the chunk's %" PRIu64 " values; " INSITU__CODEC_BAD, count);
  insitu__mem_free(text);
  insitu__text_json_free(&j);
  return status;
}

/* -- chunk keys -- */

/* The object that holds chunk `index` (one number per axis): its key from the store's root. The length, or INSITU_E_ARG when cap
 * is too small. */
static int64_t insitu__zarr_chunk_key(const struct insitu__zarr_array *a, const uint64_t *index, char *buf, size_t cap) {
  uint64_t n = strlen(a->path);
  if (cap < n + (n > 0) + 2) return INSITU_E_ARG; /* at least one character and an end */
  memcpy(buf, a->path, n);
  if (n) buf[n++] = '/';
  bool lead = a->key_style == INSITU__ZARR_KEYS_DEFAULT;
  if (lead) buf[n++] = 'c';
  else if (a->axes == 0) buf[n++] = '0';
  for (unsigned i = 0; i < a->axes; i++) {
    char digits[20];
    unsigned d = 0;
    for (uint64_t v = index[i]; d == 0 || v; v /= 10) digits[d++] = (char)('0' + v % 10);
    if (cap - n < d + (lead || i) + 1) return INSITU_E_ARG;
    if (lead || i) buf[n++] = a->separator;
    while (d) buf[n++] = digits[--d];
  }
  buf[n] = 0;
  return (int64_t)n;
}

/* The object that holds the chunk at `tile` of the array's grid: its place in the grid of objects, and its number there. */
static uint64_t insitu__zarr_object_of(const struct insitu__zarr_array *a, const uint64_t *tile, uint64_t *object) {
  uint64_t number = 0;
  for (unsigned d = 0; d < a->ndim; d++) {
    object[d] = tile[d] * a->chunk[d] / a->object.chunk[d];
    number = number * insitu__base_ceil_div(a->shape[d], a->object.chunk[d]) + object[d];
  }
  return number;
}
/* Appends to an object's key, for messages, which of its inner chunks the chunk at `tile` is. */
static void insitu__zarr_name_inner(const struct insitu__zarr_array *a, const uint64_t *tile, char *key, size_t cap) {
  size_t n = strlen(key);
  for (unsigned d = 0; a->n_levels && d < a->axes && n < cap; d++) {
    uint64_t within = tile[d] % insitu__base_max(1, a->object.chunk[d] / a->chunk[d]);
    n += (size_t)snprintf(key + n, cap - n, "%s%" PRIu64, d ? "." : ", inner chunk ", within);
  }
}

/* -- hierarchies -- */

struct insitu__zarr_group { /* an opened root */
  struct insitu__store *store;
  int format;                        /* 2 or 3, of every node below */
  bool is_array;                     /* the root is itself an array */
  char *text;                        /* the root's zarr.json or .zmetadata, NULL when there is none */
  struct insitu__text_json doc;      /* of text */
  int nodes;                         /* the object of consolidated nodes in doc, -1: not consolidated */
  struct insitu__codec_hooks *hooks; /* the user's codecs, borrowed; NULL: none */
};

static void insitu__zarr_group_free(struct insitu__zarr_group *g) {
  insitu__text_json_free(&g->doc);
  insitu__mem_free(g->text);
  memset(g, 0, sizeof *g);
}
/* Writes "path/name" ("name" at the root); false when it does not fit. */
static bool insitu__zarr_join(char *buf, size_t cap, const char *path, const char *name) {
  int n = snprintf(buf, cap, "%s%s%s", path, path[0] ? "/" : "", name);
  return n >= 0 && (size_t)n < cap;
}
/* A metadata object, or INSITU_E_NOTFOUND with err untouched. */
static insitu_status insitu__zarr_fetch_await(
    struct insitu__store *store, const char *path, const char *name, char **text, uint64_t *n, insitu_error *err) {
  char key[INSITU__MAX_KEY];
  *text = NULL;
  if (!insitu__zarr_join(key, sizeof key, path, name))
    return insitu__error_set(
        err, INSITU_E_ARG, "array '%.300s': its path is longer than %d bytes; shorten it", path, INSITU__MAX_KEY);
  bool fresh = err && err->status >= 0;
  insitu_status status = insitu__store_get_await(store, key, INSITU__MAX_META, text, n, err);
  if (status == INSITU_E_NOTFOUND && fresh) memset(err, 0, sizeof *err);
  return status;
}
static insitu_status insitu__zarr_exists_await(
    struct insitu__store *store, const char *path, const char *name, insitu_error *err) {
  char *text;
  uint64_t n;
  insitu_status status = insitu__zarr_fetch_await(store, path, name, &text, &n, err);
  insitu__mem_free(text);
  return status;
}
/* Parses the text that g took over. */
static insitu_status insitu__zarr_root_json(
    struct insitu__zarr_group *g, const char *name, char *text, uint64_t n, insitu_error *err) {
  char what[320];
  g->text = text;
  snprintf(what, sizeof what, "store '%.280s', %s", g->store->url, name);
  return insitu__text_json_parse(&g->doc, text, n, what, err);
}
static insitu_status insitu__zarr_root_v3(struct insitu__zarr_group *g, insitu_error *err) {
  static const char *const known[] = {"zarr_format", "node_type", "attributes", "consolidated_metadata"};
  const struct insitu__text_json *j = &g->doc;
  uint64_t version;
  g->format = 3;
  g->is_array = insitu__text_json_equals(j, insitu__text_json_get(j, 0, "node_type"), "array");
  if (!insitu__text_json_u64(j, insitu__text_json_get(j, 0, "zarr_format"), &version) || version != 3)
    return insitu__error_set(err, INSITU_E_FORMAT,
        "store '%.500s', zarr.json: \"zarr_format\" must be 3; this is not Zarr v3 metadata", g->store->url);
  if (g->is_array) return INSITU_OK; /* checked when the array is opened */
  if (!insitu__text_json_equals(j, insitu__text_json_get(j, 0, "node_type"), "group"))
    return insitu__error_set(err, INSITU_E_FORMAT,
        "store '%.500s', zarr.json: \"node_type\" must be \"group\" or \"array\"; the metadata is damaged", g->store->url);
  int unknown = insitu__zarr_unknown_key(j, 0, known, 4);
  if (unknown >= 0) {
    uint64_t n;
    const char *key = insitu__text_json_span(j, unknown, &n);
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.500s', zarr.json: key %.*s is an unknown extension that does not say must_understand: "
        "false; it cannot be read",
        g->store->url, (int)insitu__base_min(n, 120), key);
  }
  int consolidated = insitu__text_json_get(j, 0, "consolidated_metadata");
  int nodes = insitu__text_json_get(j, consolidated, "metadata");
  if (consolidated < 0 || insitu__text_json_is_null(j, consolidated)) return INSITU_OK;
  if (insitu__text_json_equals(j, insitu__text_json_get(j, consolidated, "kind"), "inline") &&
      insitu__text_json_is_object(j, nodes))
    g->nodes = nodes;
  else if (!insitu__zarr_may_ignore(j, consolidated))
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.500s', zarr.json: \"consolidated_metadata\" is not of the kind \"inline\"; consolidate it anew", g->store->url);
  return INSITU_OK;
}
static insitu_status insitu__zarr_root_v2(struct insitu__zarr_group *g, insitu_error *err) { /* .zmetadata */
  uint64_t version;
  g->format = 2;
  if (!insitu__text_json_u64(&g->doc, insitu__text_json_get(&g->doc, 0, "zarr_consolidated_format"), &version) || version != 1)
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.500s', .zmetadata: \"zarr_consolidated_format\" must be 1; consolidate it anew", g->store->url);
  g->nodes = insitu__text_json_get(&g->doc, 0, "metadata");
  if (!insitu__text_json_is_object(&g->doc, g->nodes))
    return insitu__error_set(
        err, INSITU_E_FORMAT, "store '%.500s', .zmetadata: \"metadata\" must be an object; consolidate it anew", g->store->url);
  g->is_array = insitu__text_json_get(&g->doc, g->nodes, ".zarray") >= 0;
  return INSITU_OK;
}

/* Breadth-first over the directories of an archive without consolidated metadata. */
struct insitu__zarr_walk {
  char **directory;   /* array: what is still to be visited, and what was */
  const char *parent; /* of the names being listed */
  bool no_memory;
};
static void insitu__zarr_walk_free(struct insitu__zarr_walk *w) {
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(w->directory); i++) insitu__mem_free(w->directory[i]);
  INSITU__ARRAY_FREE(w->directory);
}
static void insitu__zarr_walk_add(void *to, const char *name, bool is_directory) { /* a name from the store's listing */
  struct insitu__zarr_walk *w = (struct insitu__zarr_walk *)to;
  uint64_t n = strlen(w->parent), more = strlen(name);
  if (!is_directory || name[0] == '.' || w->no_memory || n + more + 16 >= INSITU__MAX_KEY) return; /* 16: "/.zmetadata" */
  if (INSITU__ARRAY_LEN(w->directory) > INSITU__MAX_NODES) return;                                 /* one more than is visited */
  char *path = (char *)insitu__mem_alloc(n + more + 2, 1);
  if (path) insitu__zarr_join(path, (size_t)(n + more + 2), w->parent, name);
  if (path && INSITU__ARRAY_PUSH(w->directory, path)) return;
  insitu__mem_free(path);
  w->no_memory = true;
}
enum { INSITU__ZARR_NOTHING = 0, INSITU__ZARR_V2_ARRAY, INSITU__ZARR_V2_GROUP, INSITU__ZARR_V3_ARRAY, INSITU__ZARR_V3_GROUP };
/* What one directory is, by its metadata objects; format 0 looks for both. An unreadable zarr.json counts as a group. */
static insitu_status insitu__zarr_probe_await(
    struct insitu__store *store, const char *path, int format, int *kind, insitu_error *err) {
  char *text;
  uint64_t n;
  *kind = INSITU__ZARR_NOTHING;
  if (format != 2) {
    insitu_status status = insitu__zarr_fetch_await(store, path, "zarr.json", &text, &n, err);
    if (status == INSITU_OK) {
      struct insitu__text_json j;
      status = insitu__text_json_parse(&j, text, n, path, NULL);
      *kind = status == INSITU_OK && insitu__text_json_equals(&j, insitu__text_json_get(&j, 0, "node_type"), "array")
                  ? INSITU__ZARR_V3_ARRAY
                  : INSITU__ZARR_V3_GROUP;
      insitu__text_json_free(&j);
      insitu__mem_free(text);
      return INSITU_OK;
    }
    if (status != INSITU_E_NOTFOUND) return status;
  }
  if (format == 3) return INSITU_OK;
  insitu_status status = insitu__zarr_exists_await(store, path, ".zarray", err);
  if (status == INSITU_OK) *kind = INSITU__ZARR_V2_ARRAY;
  if (status != INSITU_E_NOTFOUND) return status;
  status = insitu__zarr_exists_await(store, path, ".zgroup", err);
  if (status == INSITU_OK) *kind = INSITU__ZARR_V2_GROUP;
  return status == INSITU_E_NOTFOUND ? INSITU_OK : status;
}
/* Visits up to `limit` directories. With format 0 it stops at the first that has metadata and gives its kind in *found; otherwise
 * it emits the arrays of that format. */
static insitu_status insitu__zarr_walk_await(struct insitu__store *store, int format, uint64_t limit, int *found,
    void (*emit)(void *to, const char *path), void *to, insitu_error *err) {
  struct insitu__zarr_walk w = {NULL, "", false};
  insitu_status status = insitu__store_list_await(store, "", insitu__zarr_walk_add, &w, err);
  uint64_t at = 0;
  *found = INSITU__ZARR_NOTHING;
  for (; status == INSITU_OK && at < limit && at < INSITU__ARRAY_LEN(w.directory); at++) {
    int kind;
    w.parent = w.directory[at]; /* the text stays where it is when the array grows */
    status = insitu__zarr_probe_await(store, w.parent, format, &kind, err);
    if (status < 0) break;
    if (format == 0 && kind) {
      *found = kind;
      break;
    }
    if (kind == INSITU__ZARR_V2_ARRAY || kind == INSITU__ZARR_V3_ARRAY) emit(to, w.parent);
    else {
      status = insitu__store_list_await(store, w.parent, insitu__zarr_walk_add, &w, err);
      if (status == INSITU_E_NOTFOUND && err) memset(err, 0, sizeof *err); /* removed since its name was listed */
      if (status == INSITU_E_NOTFOUND) status = INSITU_OK;
    }
  }
  if (status == INSITU_OK && w.no_memory)
    status = insitu__error_set(
        err, INSITU_E_NOMEM, "store '%.500s': no memory to list its arrays; give the process more memory", store->url);
  if (status == INSITU_OK && format && at < INSITU__ARRAY_LEN(w.directory))
    status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "store '%.500s': more than %" PRIu64 " directories; consolidate the metadata", store->url, limit);
  insitu__zarr_walk_free(&w);
  return status;
}

static insitu_status insitu__zarr_find_root_await(struct insitu__zarr_group *g, insitu_error *err) {
  static const char *const names[] = {"zarr.json", ".zmetadata", ".zgroup", ".zarray"};
  char *text;
  uint64_t n;
  insitu__store_prefetch_await(g->store, names, sizeof names / sizeof *names, INSITU__MAX_META);
  insitu_error refused = {0}; /* some stores say so of objects that are not there, to those who may not list */
  insitu_status status = insitu__zarr_fetch_await(g->store, "", "zarr.json", &text, &n, &refused);
  if (status == INSITU_OK) status = insitu__zarr_root_json(g, "zarr.json", text, n, err);
  if (status == INSITU_OK) return insitu__zarr_root_v3(g, err);
  if (status == INSITU_E_NOTFOUND || status == INSITU_E_AUTH) {
    status = insitu__zarr_fetch_await(g->store, "", ".zmetadata", &text, &n, &refused);
    if (status == INSITU_OK) status = insitu__zarr_root_json(g, ".zmetadata", text, n, err);
    if (status == INSITU_OK) return insitu__zarr_root_v2(g, err);
  }
  int kind = INSITU__ZARR_NOTHING;
  if (status == INSITU_E_NOTFOUND || status == INSITU_E_AUTH) {
    status = insitu__zarr_probe_await(g->store, "", 2, &kind, &refused);
    if (status == INSITU_OK && kind == INSITU__ZARR_NOTHING)
      status = insitu__zarr_walk_await(g->store, 0, INSITU__MAX_ROOT_SEARCH, &kind, NULL, NULL, &refused);
    else g->is_array = kind == INSITU__ZARR_V2_ARRAY;
  }
  if (kind == INSITU__ZARR_NOTHING && refused.status && refused.status != INSITU_E_UNSUPPORTED) {
    if (err && err->status >= 0) *err = refused;
    return refused.status;
  }
  if (status < 0 && status != INSITU_E_UNSUPPORTED) return status; /* that one: it cannot be listed */
  if (kind == INSITU__ZARR_NOTHING)
    return insitu__error_set(err, INSITU_E_NOT_ZARR,
        "store '%.500s': no Zarr metadata: neither zarr.json (v3) nor .zmetadata, .zgroup or .zarray (v2), "
        "here or in a directory below; check the url",
        g->store->url);
  g->format = kind <= INSITU__ZARR_V2_GROUP ? 2 : 3;
  return INSITU_OK;
}
/* Finds out what the root of a store is. g is zeroed on error. */
static insitu_status insitu__zarr_open_await(struct insitu__zarr_group *g, struct insitu__store *store, insitu_error *err) {
  memset(g, 0, sizeof *g);
  g->store = store;
  g->nodes = -1;
  insitu_status status = insitu__store_index_await(store, err);
  if (status == INSITU_OK) status = insitu__zarr_find_root_await(g, err);
  if (status < 0) insitu__zarr_group_free(g);
  return status;
}

/* Every array's path: in a consolidated document's order, else breadth-first and sorted within a directory. Paths emitted before
 * an error stand. */
static insitu_status insitu__zarr_names_await(
    struct insitu__zarr_group *g, void (*emit)(void *to, const char *path), void *to, insitu_error *err) {
  int found;
  if (g->is_array) {
    emit(to, "");
    return INSITU_OK;
  }
  if (g->nodes < 0) return insitu__zarr_walk_await(g->store, g->format, INSITU__MAX_NODES, &found, emit, to, err);
  const struct insitu__text_json *j = &g->doc;
  for (int t = insitu__text_json_first(j, g->nodes); t >= 0; t = insitu__text_json_next(j, g->nodes, t)) {
    char path[INSITU__MAX_KEY];
    int64_t n = insitu__text_json_string(j, t, path, sizeof path);
    if (g->format == 2) {
      if (n < 9 || strcmp(path + n - 8, "/.zarray")) continue;
      path[n - 8] = 0;
    } else if (n < 0 ||
               !insitu__text_json_equals(j, insitu__text_json_get(j, insitu__text_json_value(j, t), "node_type"), "array"))
      continue;
    emit(to, path);
  }
  return INSITU_OK;
}

struct insitu__zarr_names { /* gathers for a message */
  char **name;              /* array */
};
static void insitu__zarr_names_add(void *to, const char *path) { /* no memory: the message names fewer */
  struct insitu__zarr_names *names = (struct insitu__zarr_names *)to;
  if (INSITU__ARRAY_LEN(names->name) >= INSITU__MAX_NODES) return;
  char *copy = insitu__mem_text(path, strlen(path));
  if (copy && !INSITU__ARRAY_PUSH(names->name, copy)) insitu__mem_free(copy);
}
/* The array with this last part in its path, else the one with the nearest path, else -1. */
static int insitu__zarr_nearest(const char *path, char **name, int n) {
  const char *last = strrchr(path, '/');
  last = last ? last + 1 : path;
  for (int i = 0; i < n && last[0]; i++) {
    const char *other = strrchr(name[i], '/');
    if (strcmp(other ? other + 1 : name[i], last) == 0) return i;
  }
  return insitu__text_nearest(path, (const char *const *)name, n);
}
static insitu_status insitu__zarr_not_found_await(struct insitu__zarr_group *g, const char *path, insitu_error *err) {
  struct insitu__zarr_names names = {NULL};
  struct insitu__text_buffer text = {.limit = 700};
  if (err && err->status >= 0) insitu__zarr_names_await(g, insitu__zarr_names_add, &names, NULL);
  int n = (int)INSITU__ARRAY_LEN(names.name), near = n ? insitu__zarr_nearest(path, names.name, n) : -1;
  if (g->is_array) insitu__text_buffer_printf(&text, "the root is itself an array; give the path \"\"");
  else if (n == 0) insitu__text_buffer_printf(&text, "the archive has no arrays; check the url");
  else {
    if (near >= 0) insitu__text_buffer_printf(&text, "did you mean '%.80s'? ", names.name[near]);
    insitu__text_buffer_printf(&text, "%d array%s:", n, n == 1 ? " is there" : "s are there");
    for (int i = 0; i < n && i < INSITU__ZARR_SHOWN; i++)
      insitu__text_buffer_printf(&text, "%s '%.60s'", i ? "," : "", names.name[i]);
    if (n > INSITU__ZARR_SHOWN) insitu__text_buffer_printf(&text, ", ...");
  }
  insitu__error_set(err, INSITU_E_NOTFOUND, "store '%.120s': no array '%.100s'; %s", g->store->url, path,
      text.text ? text.text : "check the name");
  for (int i = 0; i < n; i++) insitu__mem_free(names.name[i]);
  INSITU__ARRAY_FREE(names.name);
  insitu__text_buffer_free(&text);
  return INSITU_E_NOTFOUND;
}

/* INSITU_E_NOTFOUND with err untouched: the consolidated document does not have it. */
static insitu_status insitu__zarr_array_consolidated(
    struct insitu__zarr_group *g, const char *path, struct insitu__zarr_array *a, insitu_error *err) {
  const struct insitu__text_json *j = &g->doc;
  if (g->format == 3) {
    int node = path[0] ? insitu__text_json_get(j, g->nodes, path) : j->n ? 0 : -1;
    if (!insitu__text_json_equals(j, insitu__text_json_get(j, node, "node_type"), "array")) return INSITU_E_NOTFOUND;
    return insitu__zarr_from_v3(a, path, j, node, g->hooks, err);
  }
  char key[INSITU__MAX_KEY];
  if (!insitu__zarr_join(key, sizeof key, path, ".zarray")) return INSITU_E_NOTFOUND;
  int node = insitu__text_json_get(j, g->nodes, key);
  if (node < 0) return INSITU_E_NOTFOUND;
  insitu__zarr_join(key, sizeof key, path, ".zattrs"); /* as long as the key before */
  return insitu__zarr_from_v2(a, path, j, node, j, insitu__text_json_get(j, g->nodes, key), g->hooks, err);
}
static insitu_status insitu__zarr_array_v2_await(
    struct insitu__zarr_group *g, const char *path, struct insitu__zarr_array *a, insitu_error *err) {
  char *text, *attributes = NULL;
  uint64_t n, n_attributes = 0;
  insitu_status status = insitu__zarr_fetch_await(g->store, path, ".zarray", &text, &n, err);
  if (status == INSITU_OK) {
    insitu_error refused = {0}; /* as in insitu__zarr_find_root_await: the array itself may be read */
    status = insitu__zarr_fetch_await(g->store, path, ".zattrs", &attributes, &n_attributes, &refused);
    if (status < 0 && status != INSITU_E_NOTFOUND && status != INSITU_E_AUTH && err && err->status >= 0) *err = refused;
    if (status == INSITU_OK || status == INSITU_E_NOTFOUND || status == INSITU_E_AUTH)
      status = insitu__zarr_parse_v2(a, path, text, n, attributes, n_attributes, g->hooks, err);
  }
  insitu__mem_free(text);
  insitu__mem_free(attributes);
  return status;
}
static insitu_status insitu__zarr_array_v3_await(
    struct insitu__zarr_group *g, const char *path, struct insitu__zarr_array *a, insitu_error *err) {
  char *text, what[320];
  uint64_t n;
  insitu_status status = insitu__zarr_fetch_await(g->store, path, "zarr.json", &text, &n, err);
  if (status < 0) return status;
  struct insitu__text_json j;
  snprintf(what, sizeof what, "array '%.280s', zarr.json", path);
  status = insitu__text_json_parse(&j, text, n, what, err);
  if (status == INSITU_OK) {
    bool group = insitu__text_json_equals(&j, insitu__text_json_get(&j, 0, "node_type"), "group");
    status = group ? INSITU_E_NOTFOUND : insitu__zarr_from_v3(a, path, &j, 0, g->hooks, err);
  }
  insitu__text_json_free(&j);
  insitu__mem_free(text);
  return status;
}
/* Strips slashes at the ends, folds repeated ones; false when a part is "." or ".." or the path is too long. */
static bool insitu__zarr_normalise(const char *path, char *out, size_t cap) {
  size_t n = 0;
  for (const char *p = path; *p; p++) {
    if (*p == '/' && (n == 0 || out[n - 1] == '/')) continue;
    if (n + 1 >= cap) return false;
    out[n++] = *p;
  }
  if (n && out[n - 1] == '/') n--;
  out[n] = 0;
  return n == 0 || insitu__store_key_valid(out);
}
/* Opens an array by its path ("" is a root that is an array): from the consolidated document, else from its own objects, so that
 * an array added since the metadata was consolidated is found too. */
static insitu_status insitu__zarr_array_await(
    struct insitu__zarr_group *g, const char *given, struct insitu__zarr_array *a, insitu_error *err) {
  char path[INSITU__MAX_KEY - 16]; /* room for "/.zmetadata" */
  memset(a, 0, sizeof *a);
  if (!insitu__zarr_normalise(given, path, sizeof path))
    return insitu__error_set(
        err, INSITU_E_ARG, "array '%.300s': not a path inside the archive; write names joined by '/'", given);
  insitu_status status = INSITU_E_NOTFOUND;
  if (g->nodes >= 0) status = insitu__zarr_array_consolidated(g, path, a, err);
  if (status != INSITU_E_NOTFOUND) return status;
  status = g->format == 3 ? insitu__zarr_array_v3_await(g, path, a, err) : insitu__zarr_array_v2_await(g, path, a, err);
  if (status != INSITU_E_NOTFOUND) return status;
  status = insitu__zarr_exists_await(g->store, path, g->format == 3 ? ".zarray" : "zarr.json", err);
  if (status == INSITU_E_NOTFOUND) return insitu__zarr_not_found_await(g, path, err);
  if (status < 0) return status;
  return insitu__error_set(err, INSITU_E_FORMAT,
      "array '%.300s': it has Zarr v%d metadata and lies in a Zarr v%d archive ('%.300s'); open its own directory as "
      "the url",
      path, g->format == 3 ? 2 : 3, g->format, g->store->url);
}

/* Of a remote store: asks for the metadata of these arrays at once, those that are not in the consolidated document. */
static void insitu__zarr_prefetch_await(struct insitu__zarr_group *g, const char *const *paths, uint64_t n_paths) {
  static const char *const names[] = {"zarr.json", ".zarray", ".zattrs"};
  char path[INSITU__MAX_KEY - 16], key[INSITU__MAX_KEY], **keys = NULL;
  if (!g->store->remote) return;
  for (uint64_t i = 0; i < n_paths; i++) {
    struct insitu__zarr_array known = {0};
    bool there = !insitu__zarr_normalise(paths[i], path, sizeof path) ||
                 (g->nodes >= 0 && insitu__zarr_array_consolidated(g, path, &known, NULL) != INSITU_E_NOTFOUND);
    insitu__zarr_array_free(&known);
    for (int k = g->format == 3 ? 0 : 1; !there && k < (g->format == 3 ? 1 : 3); k++) {
      char *copy = insitu__zarr_join(key, sizeof key, path, names[k]) ? insitu__mem_text(key, strlen(key)) : NULL;
      if (copy && !INSITU__ARRAY_PUSH(keys, copy)) insitu__mem_free(copy);
    }
  }
  uint64_t n = INSITU__ARRAY_LEN(keys);
  insitu__store_prefetch_await(g->store, (const char *const *)keys, n, INSITU__MAX_META);
  for (uint64_t i = 0; i < n; i++) insitu__mem_free(keys[i]);
  INSITU__ARRAY_FREE(keys);
}

/* The attributes of the node at `path` ("" is the root), a group or an array, as the text of a JSON object that is the caller's;
 * NULL when it has none, or is not there. */
static insitu_status insitu__zarr_attributes_await(
    struct insitu__zarr_group *g, const char *path, char **text, insitu_error *err) {
  char key[INSITU__MAX_KEY], what[320];
  const char *name = g->format == 3 ? "zarr.json" : ".zattrs", *span;
  char *document = NULL;
  uint64_t n;
  struct insitu__text_json own = {0};
  const struct insitu__text_json *j = &g->doc;
  int node = path[0] && g->nodes >= 0 && g->format == 3 ? insitu__text_json_get(j, g->nodes, path) : -1;
  insitu_status status = INSITU_OK;
  *text = NULL;
  if (g->format == 3 && !path[0] && j->n) node = 0;
  if (g->format == 2 && g->nodes >= 0 && insitu__zarr_join(key, sizeof key, path, name))
    node = insitu__text_json_get(j, g->nodes, key);
  if (node < 0) { /* not consolidated, or added since */
    status = insitu__zarr_fetch_await(g->store, path, name, &document, &n, err);
    if (status == INSITU_E_NOTFOUND) return INSITU_OK;
    snprintf(what, sizeof what, "'%.280s', %s", path, name);
    if (status == INSITU_OK) status = insitu__text_json_parse(&own, document, n, what, err);
    j = &own;
    node = 0;
  }
  if (status == INSITU_OK && g->format == 3) node = insitu__text_json_get(j, node, "attributes");
  if (status == INSITU_OK && insitu__text_json_is_object(j, node)) {
    span = insitu__text_json_span(j, node, &n);
    *text = insitu__mem_text(span, n);
    if (!*text)
      status =
          insitu__error_set(err, INSITU_E_NOMEM, "'%.300s': no memory for its attributes; give the process more memory", path);
  }
  insitu__text_json_free(&own);
  insitu__mem_free(document);
  return status;
}

/* >>cf --------------------------------------------------------------------------------------------------------------------- */
/* CF conventions in the attributes of an array (cfconventions.org, 2.5.1 and 8.1): packed and missing values. Pure; a
 * description is plain data, written once and then only read. */

#define INSITU__CF_MISSING 5 /* _FillValue, and at most four of missing_value */

struct insitu__cf {
  int32_t dtype;        /* of the stored values: _Unsigned may change their sign */
  double scale, offset; /* 1 and -0.0, where there is none: they change nothing, not even a -0.0 */
  unsigned n_missing;
  unsigned char missing[INSITU__CF_MISSING][8]; /* of the stored type, native byte order */
};
struct insitu__cf_reader {
  const struct insitu__text_json *j; /* the attributes, an object; or nothing */
  const struct insitu__zarr_array *z;
  struct insitu__cf *cf;
  insitu_error *err;
};

static insitu_status insitu__cf_bad(const struct insitu__cf_reader *r, const char *name, int token, const char *cause) {
  uint64_t n;
  const char *span = insitu__text_json_span(r->j, token, &n);
  return insitu__error_set(r->err, INSITU_E_FORMAT,
      "array '%.300s', attribute '%s' = %.*s: %s; correct it, or leave decode = INSITU_CF out and decode yourself", r->z->path,
      name, (int)insitu__base_min(n, 120), span ? span : "", cause);
}
/* The value of an attribute, the only element of a list instead of the list; -1: there is none, or it is null. */
static int insitu__cf_get(const struct insitu__cf_reader *r, const char *name) {
  int token = insitu__text_json_get(r->j, 0, name);
  if (insitu__text_json_is_array(r->j, token) && insitu__text_json_size(r->j, token) == 1)
    token = insitu__text_json_first(r->j, token);
  return insitu__text_json_is_null(r->j, token) ? -1 : token;
}
static insitu_status insitu__cf_number(const struct insitu__cf_reader *r, const char *name, double *out) {
  int token = insitu__cf_get(r, name);
  double x;
  if (token < 0) return INSITU_OK;
  if (!insitu__text_json_double(r->j, token, &x) || __builtin_isnan(x) || __builtin_isinf(x))
    return insitu__cf_bad(r, name, token, "a finite number is needed");
  *out = x;
  return INSITU_OK;
}
/* One value, into the stored type. */
static bool insitu__cf_value(const struct insitu__cf_reader *r, int token, unsigned char out[8]) {
  struct insitu__zarr_array like = {.format = 2, .dtype = r->z->dtype};
  struct insitu__zarr_reader as = {.j = r->j, .a = &like};
  unsigned char wide[8]; /* base64 of a little-endian float64: how xarray writes a float _FillValue into Zarr v3 */
  char text[16];
  if (insitu__zarr_fill_scalar(&as, token, r->z->itemsize, out)) return true;
  like.dtype = r->cf->dtype; /* an unsigned value, written as such */
  if (like.dtype != r->z->dtype) return insitu__zarr_fill_scalar(&as, token, r->z->itemsize, out);
  if (like.dtype >> 8 < 2 || insitu__text_json_string(r->j, token, text, sizeof text) != 12 ||
      insitu__text_base64(text, 12, wide, sizeof wide) != sizeof wide)
    return false;
  uint64_t bits = insitu__base_load64(wide);
  double x;
  memcpy(&x, &bits, sizeof x);
  return insitu__zarr_fill_float(x, like.dtype, r->z->itemsize, out);
}
/* Adds the values of an attribute, at most `most`. */
static insitu_status insitu__cf_missing(const struct insitu__cf_reader *r, const char *name, int most) {
  int token = insitu__cf_get(r, name), list = insitu__text_json_is_array(r->j, token);
  if (token < 0) return INSITU_OK;
  if (list && (!insitu__text_json_size(r->j, token) || insitu__text_json_size(r->j, token) > most))
    return insitu__cf_bad(r, name, token, most == 1 ? "one value is needed" : "one to four values are needed");
  for (int t = list ? insitu__text_json_first(r->j, token) : token; t >= 0;
       t = list ? insitu__text_json_next(r->j, token, t) : -1)
    if (!insitu__cf_value(r, t, r->cf->missing[r->cf->n_missing++]))
      return insitu__cf_bad(r, name, token, "not a value of this array's dtype");
  return INSITU_OK;
}
static insitu_status insitu__cf_unsigned(const struct insitu__cf_reader *r) {
  int token = insitu__cf_get(r, "_Unsigned");
  bool yes = insitu__text_json_equals(r->j, token, "true") || insitu__text_json_is_true(r->j, token);
  if (token < 0) return INSITU_OK;
  if (!yes && !insitu__text_json_equals(r->j, token, "false") && !insitu__text_json_is_false(r->j, token))
    return insitu__cf_bad(r, "_Unsigned", token, "\"true\" or \"false\" is needed");
  if (r->z->dtype >> 8 < 2) r->cf->dtype = (yes ? 0x100 : 0) | (r->z->dtype & 0xff); /* of integers only */
  return INSITU_OK;
}
static const char *insitu__cf_dtype(int32_t dtype) {
  for (int i = 0; i < INSITU__ZARR_DTYPES; i++)
    if (insitu__zarr_dtypes[i].dtype == dtype) return insitu__zarr_dtypes[i].v3;
  return "unknown";
}
/* From the attributes of an array. */
static insitu_status insitu__cf_init(struct insitu__cf *cf, const struct insitu__zarr_array *z, insitu_error *err) {
  struct insitu__text_json j = {0};
  struct insitu__cf_reader r = {&j, z, cf, err};
  char what[320];
  memset(cf, 0, sizeof *cf);
  cf->dtype = z->dtype;
  cf->scale = 1;
  cf->offset = -0.0;
  if (z->dtype >> 8 > 2 && z->dtype != INSITU_BF16)
    return insitu__error_set(err, INSITU_E_DTYPE,
        "array '%.300s': CF conventions do not say how to decode %s; leave decode = INSITU_CF out", z->path,
        insitu__cf_dtype(z->dtype));
  snprintf(what, sizeof what, "array '%.280s', attributes", z->path);
  insitu_status status = z->attributes ? insitu__text_json_parse(&j, z->attributes, strlen(z->attributes), what, err) : INSITU_OK;
  if (!status) status = insitu__cf_unsigned(&r);
  if (!status) status = insitu__cf_number(&r, "scale_factor", &cf->scale);
  if (!status) status = insitu__cf_number(&r, "add_offset", &cf->offset);
  if (!status) status = insitu__cf_missing(&r, "_FillValue", 1);
  if (!status && !cf->n_missing && z->format == 2 && z->has_fill) memcpy(cf->missing[cf->n_missing++], z->fill, 8);
  if (!status) status = insitu__cf_missing(&r, "missing_value", INSITU__CF_MISSING - 1);
  insitu__text_json_free(&j);
  return status;
}

/* >>geometry --------------------------------------------------------------------------------------------------------------- */
/* From metadata and the desc's variables to what the planner needs: which arrays are read, along which axis samples lie, which
 * box of each field a variable selects, and where its bytes lie in a batch row. Owns its copies. Built on the opening thread,
 * read-only afterwards.
 *
 * A "view" is one (variable, step): a row of it shows the sample anchor + delta of its array. A "field" is one tile of the
 * non-sample axes: a stored chunk is named by (array, chunk number along the sample axis, field number). */
#define INSITU__GEOMETRY_ALIGN 256 /* bytes between the arrays of a batch: what CUDA and AVX-512 like */

struct insitu__geometry_view {
  uint32_t variable;
  int64_t delta; /* samples from the anchor */
  uint64_t dst;  /* bytes from the row's begin in the variable's block */
};

struct insitu__geometry_variable {
  char *label;
  uint32_t array;
  int32_t dtype;
  bool decoded; /* by cf */
  struct insitu__cf cf;
  uint64_t n_steps;
  uint64_t lo[INSITU__MAX_DIMS], hi[INSITU__MAX_DIMS];                /* the box, in elements, per stored axis */
  uint64_t tile_lo[INSITU__MAX_DIMS], tile_hi[INSITU__MAX_DIMS];      /* the chunks that hold it */
  int64_t dst_stride[INSITU__MAX_DIMS];                               /* bytes, per stored axis */
  uint64_t step_bytes, row_bytes, block;                              /* block: bytes from the slab's begin */
  int64_t shape[INSITU__MAX_DIMS + 1], strides[INSITU__MAX_DIMS + 1]; /* public; strides in elements */
  int32_t ndim;
};

struct insitu__geometry_array {
  struct insitu__zarr_array zarr;
  unsigned axis;                      /* the sample axis */
  uint64_t samples, rows, chunks;     /* along it: elements, elements of one chunk, chunks */
  uint64_t tile_lo[INSITU__MAX_DIMS]; /* grid of the fields that some variable wants: first chunk and number, per stored axis */
  uint64_t tile_n[INSITU__MAX_DIMS];
  uint64_t fields;                   /* product of tile_n */
  uint64_t stride[INSITU__MAX_DIMS]; /* bytes within a decoded chunk, per stored axis */
  uint64_t chunk_bytes, bound;       /* decoded; encoded at most */
  bool sample_slowest;               /* rows follow each other in the chunk: what streaming decode needs */
  struct insitu__geometry_view *views;
  uint64_t n_views;
};

struct insitu__geometry {
  struct insitu__geometry_array *arrays;
  struct insitu__geometry_variable *variables;
  uint64_t n_arrays, n_variables;
  uint64_t samples, chunk; /* of the sample axis; reference chunk: the coarsest chunking among the arrays */
  int64_t *deltas;         /* ascending, distinct */
  uint64_t n_deltas;
  uint64_t parts;               /* pieces a row is made of: what a batch counts down */
  uint64_t slab_bytes, indices; /* one batch; where its sample indices lie */
  uint64_t hash_geometry, hash_variables;
};

static uint64_t insitu__geometry_hash(uint64_t h, const void *bytes, uint64_t n) {
  const unsigned char *b = (const unsigned char *)bytes;
  for (uint64_t i = 0; i < n; i++) h = insitu__order_mix(h ^ b[i]);
  return insitu__order_mix(h ^ n);
}

static uint64_t insitu__geometry_hash_word(uint64_t h, uint64_t word) {
  unsigned char bytes[8]; /* little-endian: a state is good on every machine */
  insitu__base_store64(bytes, word);
  return insitu__geometry_hash(h, bytes, sizeof bytes);
}

static void insitu__geometry_free(struct insitu__geometry *g) {
  for (uint64_t i = 0; g->arrays && i < g->n_arrays; i++) {
    insitu__zarr_array_free(&g->arrays[i].zarr);
    insitu__mem_free(g->arrays[i].views);
  }
  for (uint64_t i = 0; g->variables && i < g->n_variables; i++) insitu__mem_free(g->variables[i].label);
  insitu__mem_free(g->arrays);
  insitu__mem_free(g->variables);
  insitu__mem_free(g->deltas);
  memset(g, 0, sizeof *g);
}

static const char *insitu__geometry_path(const insitu_variable *v) {
  return v->path ? v->path : v->label;
}

/* The number of the axis called dim, or with dim NULL the number given, checked. */
static insitu_status insitu__geometry_axis(
    const struct insitu__zarr_array *z, const char *dim, int32_t number, unsigned *out, insitu_error *err) {
  if (!dim) {
    if (number < 0 || (unsigned)number >= z->axes)
      return insitu__error_set(err, INSITU_E_SHAPE,
          "array %s: there is no axis %d, the array has %u; correct axis or sample_axis", z->path, (int)number, z->axes);
    *out = (unsigned)number;
    return INSITU_OK;
  }
  char known[256] = "";
  size_t at = 0;
  for (unsigned d = 0; d < z->axes; d++) {
    if (z->dim[d] && !strcmp(z->dim[d], dim)) {
      *out = d;
      return INSITU_OK;
    }
    int n = snprintf(known + at, sizeof known - at, " %.40s", z->dim[d] ? z->dim[d] : "(unnamed)");
    at = insitu__base_min(sizeof known - 1, at + (size_t)n);
  }
  return insitu__error_set(err, INSITU_E_NOTFOUND,
      "array %s: no dimension is called '%.80s'; it has:%s; name one of these, or give the axis number", z->path, dim, known);
}

/* Bytes from one element to the next along each axis of a decoded chunk; returns those of the chunk. Cannot overflow: >>zarr
 * bounds a chunk by INSITU__MAX_CHUNK. */
static uint64_t insitu__geometry_strides(const struct insitu__zarr_array *z, uint64_t stride[INSITU__MAX_DIMS]) {
  uint64_t bytes = z->itemsize;
  for (unsigned k = z->ndim; k-- > 0;) {
    stride[z->order[k]] = bytes;
    bytes *= z->chunk[z->order[k]];
  }
  return bytes;
}

/* Strides of a decoded chunk, which axis is slowest in it, and the length of its sample axis. */
static insitu_status insitu__geometry_array_init(
    struct insitu__geometry_array *a, const insitu_loader_desc *desc, insitu_error *err) {
  const struct insitu__zarr_array *z = &a->zarr;
  insitu_status s = insitu__geometry_axis(z, desc->sample_dim, desc->sample_axis, &a->axis, err);
  if (s) return s;
  a->samples = z->shape[a->axis];
  a->rows = z->chunk[a->axis];
  a->chunks = insitu__base_ceil_div(a->samples, a->rows);
  if (a->samples > (uint64_t)INSITU__MAX_SAMPLES)
    return insitu__error_set(err, INSITU_E_SHAPE,
        "open, array %s: %" PRIu64 " samples are more than this build's limit of 2^48; choose "
        "another sample axis",
        z->path, a->samples);
  a->chunk_bytes = insitu__geometry_strides(z, a->stride);
  a->bound = insitu__codec_bound(&z->codecs, a->chunk_bytes);
  unsigned slowest = 0; /* the first axis in storage order that is longer than 1, or the sample axis */
  while (z->order[slowest] != a->axis && z->chunk[z->order[slowest]] == 1) slowest++;
  a->sample_slowest = z->order[slowest] == a->axis;
  return INSITU_OK;
}

/* The box that slices select: [lo, hi) along each axis. sample: the axis that none may name, or -1. */
static insitu_status insitu__geometry_slices(const struct insitu__zarr_array *z, const insitu_variable *desc, int sample,
    uint64_t lo[INSITU__MAX_DIMS], uint64_t hi[INSITU__MAX_DIMS], insitu_error *err) {
  const char *label = desc->label ? desc->label : z->path;
  memset(lo, 0, INSITU__MAX_DIMS * sizeof *lo);
  memcpy(hi, z->shape, sizeof z->shape);
  for (uint64_t i = 0; i < desc->n_slices; i++) {
    const insitu_slice *c = &desc->slices[i];
    unsigned axis = 0;
    insitu_status s = insitu__geometry_axis(z, c->dim, c->axis, &axis, err);
    if (s) return s;
    if ((int)axis == sample)
      return insitu__error_set(err, INSITU_E_ARG,
          "variable %s: a slice names the sample axis %u of array %s; use sample_start and "
          "sample_stop, or the split, to select samples",
          label, axis, z->path);
    int64_t stop = c->stop ? c->stop : (int64_t)z->shape[axis];
    if (c->start < 0 || stop <= c->start || (uint64_t)stop > z->shape[axis])
      return insitu__error_set(err, INSITU_E_SHAPE,
          "variable %s: slice [%" PRId64 ", %" PRId64 ") of axis %u leaves array %s, which "
          "has %" PRIu64 " elements there; correct start and stop",
          label, c->start, stop, axis, z->path, z->shape[axis]);
    lo[axis] = (uint64_t)c->start;
    hi[axis] = (uint64_t)stop;
  }
  return INSITU_OK;
}

/* The box of a variable: whole fields, narrowed by its slices. */
static insitu_status insitu__geometry_box(
    struct insitu__geometry_variable *v, const struct insitu__geometry_array *a, const insitu_variable *desc, insitu_error *err) {
  const struct insitu__zarr_array *z = &a->zarr;
  insitu_status status = insitu__geometry_slices(z, desc, (int)a->axis, v->lo, v->hi, err);
  if (status) return status;
  for (unsigned d = 0; d < z->ndim; d++) {
    if (d == a->axis) continue;
    if (v->hi[d] <= v->lo[d])
      return insitu__error_set(err, INSITU_E_SHAPE,
          "open, variable %s: axis %u of array %s has no elements; leave the variable out", v->label, d, z->path);
    v->tile_lo[d] = v->lo[d] / z->chunk[d];
    v->tile_hi[d] = (v->hi[d] - 1) / z->chunk[d] + 1;
  }
  return INSITU_OK;
}

static uint32_t insitu__geometry_itemsize(int32_t dtype) { /* bytes; bool is 8 bits too */
  return (uint32_t)(dtype & 0xff) / 8;
}

/* The type that a variable is converted to, and if it is to be decoded, how. */
static insitu_status insitu__geometry_dtype(
    const struct insitu__zarr_array *z, const insitu_variable *desc, struct insitu__cf *cf, int32_t *out, insitu_error *err) {
  bool convertible = z->dtype != INSITU_C64 && z->dtype != INSITU_C128 && !insitu__zarr_is_wide(z->kind);
  *out = desc->dtype ? desc->dtype : z->dtype;
  if (z->kind == INSITU__ZARR_STRING)
    return insitu__error_set(err, INSITU_E_DTYPE,
        "variable %s: array %s holds strings of any length, which no batch can; leave it out, or read it with insitu_read_strings",
        desc->label ? desc->label : z->path, z->path);
  if (desc->decode && desc->decode != INSITU_CF)
    return insitu__error_set(err, INSITU_E_ARG, "variable %s: decode is %d; use 0 or INSITU_CF",
        desc->label ? desc->label : z->path, (int)desc->decode);
  if (desc->decode && convertible) {
    insitu_status status = insitu__cf_init(cf, z, err);
    if (status) return status;
    bool narrow = z->itemsize <= 2 || z->dtype == INSITU_F32;
    if (!desc->dtype) *out = narrow ? INSITU_F32 : INSITU_F64;
  }
  if (desc->decode && (!convertible || (*out != INSITU_F32 && *out != INSITU_F64)))
    return insitu__error_set(err, INSITU_E_DTYPE,
        "variable %s: decode = INSITU_CF makes float32 or float64 of real numbers, array %s is of other elements or dtype asks "
        "for another type; leave decode out",
        desc->label ? desc->label : z->path, z->path);
  if ((*out == z->dtype && !desc->decode) || (convertible && (*out == INSITU_F32 || *out == INSITU_F64))) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_DTYPE,
      "variable %s: array %s cannot be converted from dtype 0x%x to 0x%x; use "
      "INSITU_AS_STORED, or INSITU_F32 or INSITU_F64 for real numbers",
      desc->label ? desc->label : z->path, z->path, (unsigned)z->dtype, (unsigned)desc->dtype);
}

/* Shape, strides and bytes of one row. */
static insitu_status insitu__geometry_layout(
    struct insitu__geometry_variable *v, const struct insitu__geometry_array *a, const insitu_variable *desc, insitu_error *err) {
  const struct insitu__zarr_array *z = &a->zarr;
  insitu_status status = insitu__geometry_dtype(z, desc, &v->cf, &v->dtype, err);
  v->decoded = desc->decode != 0;
  if (status) return status;
  uint64_t item = insitu__geometry_itemsize(v->dtype), bytes = item;
  v->n_steps = desc->n_steps ? desc->n_steps : 1;
  v->ndim = 1 + (desc->n_steps ? 1 : 0) + (int32_t)z->ndim - 1;
  int32_t out = v->ndim;
  for (unsigned d = z->ndim; d-- > 0;) {
    if (d == a->axis) continue;
    out--;
    v->shape[out] = (int64_t)(v->hi[d] - v->lo[d]);
    v->strides[out] = (int64_t)(bytes / item);
    v->dst_stride[d] = (int64_t)bytes;
    if (!insitu__base_mul(bytes, v->hi[d] - v->lo[d], &bytes) || bytes > PTRDIFF_MAX) goto large;
  }
  v->step_bytes = bytes;
  if (desc->n_steps) {
    v->shape[1] = (int64_t)desc->n_steps;
    v->strides[1] = (int64_t)(bytes / item);
    if (!insitu__base_mul(bytes, desc->n_steps, &bytes) || bytes > PTRDIFF_MAX) goto large;
  }
  v->row_bytes = bytes;
  v->strides[0] = (int64_t)(bytes / item);
  return INSITU_OK;
large:
  return insitu__error_set(err, INSITU_E_SHAPE,
      "open, variable %s: one row has more bytes than memory can address; select less with slices", v->label);
}

static int insitu__geometry_compare(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

/* The grid of fields that some variable wants, and the views, of every array. */
static insitu_status insitu__geometry_views(struct insitu__geometry *g, const insitu_loader_desc *desc, insitu_error *err) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < g->n_variables; i++) {
    struct insitu__geometry_variable *v = &g->variables[i];
    struct insitu__geometry_array *a = &g->arrays[v->array];
    bool first = a->n_views == 0;
    a->n_views += v->n_steps;
    total += v->n_steps;
    for (unsigned d = 0; d < a->zarr.ndim; d++) {
      uint64_t hi = insitu__base_max(first ? 0 : a->tile_lo[d] + a->tile_n[d], v->tile_hi[d]);
      a->tile_lo[d] = first ? v->tile_lo[d] : insitu__base_min(a->tile_lo[d], v->tile_lo[d]);
      a->tile_n[d] = hi - a->tile_lo[d];
    }
  }
  g->deltas = (int64_t *)insitu__mem_alloc(total, sizeof *g->deltas);
  bool ok = g->deltas != NULL;
  for (uint64_t i = 0; i < g->n_arrays; i++) {
    struct insitu__geometry_array *a = &g->arrays[i];
    a->tile_n[a->axis] = 1;
    a->fields = 1;
    for (unsigned d = 0; d < a->zarr.ndim; d++)
      if (!insitu__base_mul(a->fields, a->tile_n[d], &a->fields) || a->fields > INSITU__MAX_FIELDS)
        return insitu__error_set(
            err, INSITU_E_SHAPE, "open, array %s: one sample has more than 2^24 chunks; select fewer with slices", a->zarr.path);
    a->views = (struct insitu__geometry_view *)insitu__mem_alloc(a->n_views, sizeof *a->views);
    ok = ok && a->views;
    a->n_views = 0;
  }
  if (!ok) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the views of the variables; use fewer steps");
  for (uint64_t i = 0; i < g->n_variables; i++) {
    struct insitu__geometry_variable *v = &g->variables[i];
    struct insitu__geometry_array *a = &g->arrays[v->array];
    for (uint64_t k = 0; k < v->n_steps; k++) {
      int64_t delta = desc->variables[i].offset + (desc->variables[i].n_steps ? desc->variables[i].steps[k] : 0);
      a->views[a->n_views++] = (struct insitu__geometry_view){.variable = (uint32_t)i, .delta = delta, .dst = k * v->step_bytes};
      g->deltas[g->n_deltas++] = delta;
    }
  }
  qsort(g->deltas, g->n_deltas, sizeof *g->deltas, insitu__geometry_compare);
  uint64_t n = 0;
  for (uint64_t i = 0; i < g->n_deltas; i++)
    if (!i || g->deltas[i] != g->deltas[n - 1]) g->deltas[n++] = g->deltas[i];
  g->n_deltas = n;
  return INSITU_OK;
}

/* Places the variables' blocks in a slab of `rows` rows, sample indices last. */
static insitu_status insitu__geometry_slab(struct insitu__geometry *g, uint64_t rows, insitu_error *err) {
  uint64_t at = 0, bytes = 0;
  bool ok = true;
  g->parts = 0;
  for (uint64_t i = 0; i < g->n_variables; i++) {
    struct insitu__geometry_variable *v = &g->variables[i];
    uint64_t fields = v->n_steps;
    for (unsigned d = 0; d < g->arrays[v->array].zarr.ndim; d++)
      if (d != g->arrays[v->array].axis) ok = ok && insitu__base_mul(fields, v->tile_hi[d] - v->tile_lo[d], &fields);
    v->shape[0] = (int64_t)rows;
    v->block = at;
    ok = ok && insitu__base_mul(rows, v->row_bytes, &bytes) && bytes < PTRDIFF_MAX &&
         insitu__base_add(at, bytes + (INSITU__GEOMETRY_ALIGN - 1), &at) && insitu__base_add(g->parts, fields, &g->parts);
    at &= ~(uint64_t)(INSITU__GEOMETRY_ALIGN - 1);
  }
  g->indices = at;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE); /* a slab is a mapping of its own */
  ok = ok && insitu__base_mul(rows, sizeof(int64_t), &bytes) && insitu__base_add(at, bytes, &bytes) && bytes < PTRDIFF_MAX / 2;
  g->slab_bytes = insitu__base_ceil_div(bytes, page) * page;
  ok = ok && insitu__base_mul(rows, g->parts, &bytes) && bytes < PTRDIFF_MAX;
  if (ok) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_BUDGET, "open: a batch of %" PRIu64 " rows has more bytes than memory can address; lower batch_size", rows);
}

static uint64_t insitu__geometry_hash_cf(uint64_t h, const struct insitu__cf *cf) {
  const double number[2] = {cf->scale, cf->offset};
  for (int i = 0; i < 2; i++) {
    uint64_t bits;
    memcpy(&bits, &number[i], sizeof bits);
    h = insitu__geometry_hash_word(h, bits);
  }
  return insitu__geometry_hash(insitu__geometry_hash_word(h, (uint64_t)cf->dtype), cf->missing, 8 * cf->n_missing);
}

static void insitu__geometry_hashes(struct insitu__geometry *g, const insitu_loader_desc *desc) {
  g->hash_geometry = insitu__geometry_hash_word(insitu__geometry_hash_word(0, g->samples), g->chunk);
  for (uint64_t i = 0; i < g->n_variables; i++) {
    const insitu_variable *v = &desc->variables[i];
    const char *path = insitu__geometry_path(v);
    uint64_t h = insitu__geometry_hash(g->hash_variables, v->label, strlen(v->label));
    h = insitu__geometry_hash(h, path, strlen(path));
    h = insitu__geometry_hash_word(h, (uint64_t)v->offset);
    for (uint64_t k = 0; k < v->n_steps; k++) h = insitu__geometry_hash_word(h, (uint64_t)v->steps[k]);
    h = insitu__geometry_hash_word(h, (uint64_t)g->variables[i].dtype);
    if (v->decode) h = insitu__geometry_hash_cf(h, &g->variables[i].cf);
    for (int32_t d = 1; d < g->variables[i].ndim; d++) h = insitu__geometry_hash_word(h, (uint64_t)g->variables[i].shape[d]);
    for (unsigned d = 0; d < g->arrays[g->variables[i].array].zarr.ndim; d++)
      h = insitu__geometry_hash_word(h, g->variables[i].lo[d]);
    g->hash_variables = h;
  }
}

/* What a desc's variables can get wrong without looking at any array. */
static insitu_status insitu__geometry_check(const insitu_loader_desc *desc, insitu_error *err) {
  if (!desc->n_variables && desc->plan_only) return INSITU_OK;
  if (!desc->variables || !desc->n_variables || desc->n_variables > INSITU__MAX_VARIABLES)
    return insitu__error_set(
        err, INSITU_E_ARG, "open: n_variables is %" PRIu64 "; give 1 to %d variables", desc->n_variables, INSITU__MAX_VARIABLES);
  for (uint64_t i = 0; i < desc->n_variables; i++) {
    const insitu_variable *v = &desc->variables[i];
    if (!v->label || !*v->label)
      return insitu__error_set(
          err, INSITU_E_ARG, "open: variable %" PRIu64 " has no label; give it the name it shall have in the batch", i);
    if ((v->n_steps && !v->steps) || v->n_steps > INSITU__MAX_STEPS || (v->n_slices && !v->slices))
      return insitu__error_set(err, INSITU_E_ARG, "open, variable %s: %s", v->label,
          v->n_slices && !v->slices ? "n_slices is set and slices is NULL; set both"
                                    : "steps is NULL or n_steps is over 65536; correct them");
    for (uint64_t k = 0; k < (v->n_steps ? v->n_steps : 1); k++) {
      int64_t step = v->n_steps ? v->steps[k] : 0;
      if (v->offset > INSITU__MAX_OFFSET || v->offset < -INSITU__MAX_OFFSET || step > INSITU__MAX_OFFSET ||
          step < -INSITU__MAX_OFFSET)
        return insitu__error_set(
            err, INSITU_E_ARG, "open, variable %s: an offset of more than 2^40 samples; correct offset or steps", v->label);
    }
    for (uint64_t k = 0; k < i; k++)
      if (!strcmp(desc->variables[k].label, v->label))
        return insitu__error_set(err, INSITU_E_ARG, "open: two variables are labelled '%s'; give each its own label", v->label);
  }
  return INSITU_OK;
}

/* Builds everything but the slab layout. open_array_await fills a zarr_array for a path; it is called once for each distinct
 * path. */
static insitu_status insitu__geometry_init_await(struct insitu__geometry *g, const insitu_loader_desc *desc,
    insitu_status (*open_array_await)(void *arg, const char *path, struct insitu__zarr_array *out, insitu_error *err), void *arg,
    insitu_error *err) {
  g->arrays = (struct insitu__geometry_array *)insitu__mem_alloc(desc->n_variables, sizeof *g->arrays);
  g->variables = (struct insitu__geometry_variable *)insitu__mem_alloc(desc->n_variables, sizeof *g->variables);
  if (!g->arrays || !g->variables)
    return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the variables; give the process more memory");
  for (uint64_t i = 0; i < desc->n_variables; i++) {
    struct insitu__geometry_variable *v = &g->variables[i];
    const insitu_variable *want = &desc->variables[i];
    uint64_t known = 0; /* the first variable that reads the same array */
    while (strcmp(insitu__geometry_path(&desc->variables[known]), insitu__geometry_path(want)) != 0) known++;
    v->label = insitu__mem_text(want->label, strlen(want->label));
    g->n_variables = i + 1;
    if (!v->label)
      return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the variables; give the process more memory");
    insitu_status s = INSITU_OK;
    if (known < i) {
      v->array = g->variables[known].array;
    } else {
      v->array = (uint32_t)g->n_arrays++;
      s = open_array_await(arg, insitu__geometry_path(want), &g->arrays[v->array].zarr, err);
      if (!s) s = insitu__geometry_array_init(&g->arrays[v->array], desc, err);
    }
    if (!s) s = insitu__geometry_box(v, &g->arrays[v->array], want, err);
    if (!s) s = insitu__geometry_layout(v, &g->arrays[v->array], want, err);
    if (s) return s;
  }
  g->samples = g->arrays[0].samples;
  for (uint64_t i = 0; i < g->n_arrays; i++) {
    if (g->arrays[i].samples != g->samples)
      return insitu__error_set(err, INSITU_E_SHAPE,
          "open: array %s has %" PRIu64 " samples and array %s has %" PRIu64 "; variables of one "
          "loader need sample axes of one length: check sample_dim and sample_axis, or open two loaders",
          g->arrays[0].zarr.path, g->samples, g->arrays[i].zarr.path, g->arrays[i].samples);
    g->chunk = insitu__base_max(g->chunk, g->arrays[i].rows);
  }
  insitu_status s = insitu__geometry_views(g, desc, err);
  if (!s) insitu__geometry_hashes(g, desc);
  return s;
}

/* Whether variable v needs field number f of its array; if so, where in the grid that is. */
static bool insitu__geometry_field(const struct insitu__geometry_array *a, const struct insitu__geometry_variable *v, uint64_t f,
    uint64_t tile[INSITU__MAX_DIMS]) {
  bool wanted = true;
  for (unsigned d = a->zarr.ndim; d-- > 0;) {
    tile[d] = a->tile_lo[d] + f % a->tile_n[d];
    f /= a->tile_n[d];
    if (v && d != a->axis) wanted = wanted && tile[d] >= v->tile_lo[d] && tile[d] < v->tile_hi[d];
  }
  return wanted;
}

/* >>box -------------------------------------------------------------------------------------------------------------------- */
/* Copies the part of a decoded tile that one batch row wants (an N-D strided box) to the row's place in its slab, with byte swap
 * and conversion to float32 or float64 in the same pass. Owns no state: a box is plain data, written once by insitu__box_init
 * and then only read, so every function may run on any thread, and none suspends or allocates. Results are the same bits on
 * every machine in the default floating-point environment (round to nearest even, subnormals kept): each conversion rounds once,
 * and a NaN keeps its sign and the leading bits of its payload, made quiet; without conversion bits never change. */

/* A block of a transposed plane is turned in a stage of 8 KiB, a quarter of the smallest L1 cache of today's machines, by rows
 * of 32 elements (two cache lines of float32). Planes with a side under 8 go by runs along the other: a stage costs a call for
 * each row. */
#define INSITU__BOX_STAGE 8192
#define INSITU__BOX_SIDE 32
#define INSITU__BOX_SHORT 8
#define INSITU__BOX_NONE UINT32_MAX
#define INSITU__BOX_INLINE static inline __attribute__((always_inline))

/* Copies n elements; ss and ds are the strides in bytes from one to the next. Neither address need be aligned. */
typedef void insitu__box_run(const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds);

#define INSITU__BOX_BLOCK 128 /* elements that are decoded at once: 1 KiB, which stays in the L1 cache */

struct insitu__box;
/* Decodes n numbers, a multiple of 32 and at most INSITU__BOX_BLOCK, in place; word: their bits if they are integers of 64. */
typedef void insitu__box_unpack(const struct insitu__box *b, double *restrict x, const uint64_t *restrict word, uint64_t n);

struct insitu__box_dim {
  uint64_t count;
  int64_t src_stride, dst_stride; /* bytes, > 0 */
};

struct insitu__box {
  struct insitu__box_dim dim[INSITU__MAX_DIMS]; /* by descending source stride; each of 2 or more, or the only one */
  uint64_t extent[INSITU__MAX_DIMS + 1];        /* bytes of source that dims d and following span; extent[ndim] is one element */
  uint32_t ndim, turn; /* turn: the dim of the smallest destination stride, INSITU__BOX_NONE if that is the last */
  int32_t src_dtype, dst_dtype;
  uint32_t src_item, dst_item; /* bytes of an element */
  uint64_t total;              /* elements; 0: nothing is copied */
  uint64_t src_offset;         /* bytes from the row's source base to the first element */
  uint64_t dst_offset;         /* bytes from the row's place in the slab to the first element */
  uint64_t src_begin, src_end; /* bytes of source touched, relative to the row's source base */
  bool plain;                  /* neither conversion nor swap: bytes go as they are */
  bool src_contiguous;         /* one run in the source */
  bool contiguous;             /* plain, and one run in source and destination */
  bool square;                 /* blocks of a transposed plane can be turned by insitu__box_turn4 or 8 */
  insitu__box_run *run, *move; /* the kernel; the plain copy of destination elements */
  /* Decoding: run converts to float64 then, `word` copies the bits of 64-bit integers, put converts to the destination. */
  const struct insitu__cf *cf; /* NULL: none */
  insitu__box_run *word, *put;
  insitu__box_unpack *unpack;
  double missing[INSITU__CF_MISSING];
};

typedef uint8_t insitu__box_b8;
typedef uint16_t insitu__box_b16 __attribute__((aligned(1), may_alias));
typedef uint32_t insitu__box_b32 __attribute__((aligned(1), may_alias));
typedef uint64_t insitu__box_b64 __attribute__((aligned(1), may_alias));
typedef struct {
  uint64_t half[2];
} __attribute__((packed, aligned(1), may_alias)) insitu__box_b128;
typedef float insitu__box_f32 __attribute__((aligned(1), may_alias));
typedef double insitu__box_f64 __attribute__((aligned(1), may_alias));

INSITU__BOX_INLINE float insitu__box_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
INSITU__BOX_INLINE double insitu__box_double(uint64_t bits) {
  double f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
/* binary16 to binary32, exact. Exponents: 15 is binary16's bias, 127 binary32's. Selects by masks, for gcc makes branches of
 * conditional expressions here and then does not vectorise. */
INSITU__BOX_INLINE float insitu__box_half(uint32_t h) {
  uint32_t magnitude = (h & 0x7fff) << 13, normal = magnitude + ((127 - 15) << 23), tiny;
  uint32_t is_tiny = 0u - (magnitude < 0x00800000), is_special = 0u - (magnitude >= 0x0f800000),
           is_nan = 0u - (magnitude > 0x0f800000);
  normal += is_special & ((255 - 143) << 23); /* the exponent of infinity and NaN, 31, became 143 and must be 255 */
  normal |= is_nan & 0x00400000;              /* quiet */
  /* A subnormal is f * 2^-14: the number (1 + f) * 2^-14 less 2^-14, a difference without rounding. */
  float difference = insitu__box_float(magnitude + (113u << 23)) - insitu__box_float(113u << 23);
  memcpy(&tiny, &difference, sizeof tiny);
  return insitu__box_float((tiny & is_tiny) | (normal & ~is_tiny) | (h & 0x8000) << 16);
}

INSITU__BOX_INLINE float insitu__box_bfloat(uint32_t h) { /* bfloat16 to binary32, exact */
  uint32_t is_nan = 0u - ((h & 0x7fff) > 0x7f80);
  return insitu__box_float(h << 16 | (is_nan & 0x00400000)); /* quiet */
}

/* The loop of one kernel: U is the source's bits, D what is stored, SWAP(u) and VALUE(u) expressions of those bits. The
 * contiguous case goes in blocks of a constant count because gcc 12 vectorises only such loops at -O2, and 32 of them because it
 * unrolls up to 16. */
#define INSITU__BOX_LOOP(name, U, D, SWAP, VALUE)                                                                                \
  INSITU__BOX_INLINE void insitu__box_loop_##name(                                                                               \
      const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds, bool swap) {           \
    if (ss == (int64_t)sizeof(U) && ds == (int64_t)sizeof(D)) {                                                                  \
      for (; n >= 32; n -= 32, src += 32 * sizeof(U), dst += 32 * sizeof(D)) {                                                   \
        for (unsigned k = 0; k < 32; k++) {                                                                                      \
          U u = ((const U *)src)[k];                                                                                             \
          if (swap) u = SWAP(u);                                                                                                 \
          ((D *)dst)[k] = VALUE(u);                                                                                              \
        }                                                                                                                        \
      }                                                                                                                          \
    }                                                                                                                            \
    for (; n; n--, src += ss, dst += ds) {                                                                                       \
      U u = *(const U *)src;                                                                                                     \
      if (swap) u = SWAP(u);                                                                                                     \
      *(D *)dst = VALUE(u);                                                                                                      \
    }                                                                                                                            \
  }
/* x86-64 gets each kernel twice, since its baseline (SSE2) has neither a byte shuffle nor the wide conversions; AVX2 has. */
#if defined(__x86_64__)
#define INSITU__BOX_WIDE(name, loop, swap)                                                                                       \
  __attribute__((target("avx2"))) static void insitu__box_wide_##name(                                                           \
      const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds) {                      \
    insitu__box_loop_##loop(src, dst, n, ss, ds, swap);                                                                          \
  }
#else
#define INSITU__BOX_WIDE(name, loop, swap)
#endif
#define INSITU__BOX_RUN(name, loop, swap)                                                                                        \
  static void insitu__box_run_##name(                                                                                            \
      const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds) {                      \
    insitu__box_loop_##loop(src, dst, n, ss, ds, swap);                                                                          \
  }                                                                                                                              \
  INSITU__BOX_WIDE(name, loop, swap)
#define INSITU__BOX_SAME(u) (u)

/* Copies of elements of 2^k bytes, as they are and swapped. */
#define INSITU__BOX_COPY(bits, SWAP)                                                                                             \
  INSITU__BOX_LOOP(copy##bits, insitu__box_b##bits, insitu__box_b##bits, SWAP, INSITU__BOX_SAME)                                 \
  static void insitu__box_run_copy##bits(                                                                                        \
      const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds) {                      \
    if (ss == bits / 8 && ds == bits / 8) memcpy(dst, src, (size_t)n *(bits / 8));                                               \
    else insitu__box_loop_copy##bits(src, dst, n, ss, ds, false);                                                                \
  }
INSITU__BOX_COPY(8, INSITU__BOX_SAME)
INSITU__BOX_COPY(16, __builtin_bswap16)
INSITU__BOX_COPY(32, __builtin_bswap32)
INSITU__BOX_COPY(64, __builtin_bswap64)
INSITU__BOX_COPY(128, INSITU__BOX_SAME) /* an element of 16 bytes is a complex number, swapped by halves below */
INSITU__BOX_RUN(swap16, copy16, true)
INSITU__BOX_RUN(swap32, copy32, true)
INSITU__BOX_RUN(swap64, copy64, true)

/* Complex elements: each half is swapped by itself, so a contiguous run is one of twice as many halves. */
#define INSITU__BOX_PAIR(prefix, bits)                                                                                           \
  static void insitu__box_##prefix##_pair##bits(                                                                                 \
      const unsigned char *restrict src, unsigned char *restrict dst, uint64_t n, int64_t ss, int64_t ds) {                      \
    if (ss == bits / 4 && ds == bits / 4) {                                                                                      \
      insitu__box_##prefix##_swap##bits(src, dst, 2 * n, bits / 8, bits / 8);                                                    \
      return;                                                                                                                    \
    }                                                                                                                            \
    for (; n; n--, src += ss, dst += ds) insitu__box_loop_copy##bits(src, dst, 2, bits / 8, bits / 8, true);                     \
  }
INSITU__BOX_PAIR(run, 32)
INSITU__BOX_PAIR(run, 64)
#if defined(__x86_64__)
INSITU__BOX_PAIR(wide, 32)
INSITU__BOX_PAIR(wide, 64)
#endif

/* Conversions. A bool is any byte; all but 0 are 1, as in C. */
#define INSITU__BOX_BOOL(u) ((u) != 0)
#define INSITU__BOX_I8(u) (int8_t)(u)
#define INSITU__BOX_I16(u) (int16_t)(u)
#define INSITU__BOX_I32(u) (int32_t)(u)
#define INSITU__BOX_I64(u) (int64_t)(u)
#define INSITU__BOX_SOURCES(X)                                                                                                   \
  X(BOOL, bool, 8, INSITU__BOX_SAME, INSITU__BOX_BOOL)                                                                           \
  X(I8, i8, 8, INSITU__BOX_SAME, INSITU__BOX_I8)                                                                                 \
  X(U8, u8, 8, INSITU__BOX_SAME, INSITU__BOX_SAME)                                                                               \
  X(I16, i16, 16, __builtin_bswap16, INSITU__BOX_I16)                                                                            \
  X(U16, u16, 16, __builtin_bswap16, INSITU__BOX_SAME)                                                                           \
  X(F16, f16, 16, __builtin_bswap16, insitu__box_half)                                                                           \
  X(BF16, bf16, 16, __builtin_bswap16, insitu__box_bfloat)                                                                       \
  X(I32, i32, 32, __builtin_bswap32, INSITU__BOX_I32)                                                                            \
  X(U32, u32, 32, __builtin_bswap32, INSITU__BOX_SAME)                                                                           \
  X(F32, f32, 32, __builtin_bswap32, insitu__box_float)                                                                          \
  X(I64, i64, 64, __builtin_bswap64, INSITU__BOX_I64)                                                                            \
  X(U64, u64, 64, __builtin_bswap64, INSITU__BOX_SAME)                                                                           \
  X(F64, f64, 64, __builtin_bswap64, insitu__box_double)
#define INSITU__BOX_CONVERT(dtype, name, bits, SWAP, VALUE)                                                                      \
  INSITU__BOX_LOOP(name##_f32, insitu__box_b##bits, insitu__box_f32, SWAP, (float)VALUE)                                         \
  INSITU__BOX_LOOP(name##_f64, insitu__box_b##bits, insitu__box_f64, SWAP, (double)VALUE)                                        \
  INSITU__BOX_RUN(name##_f32, name##_f32, false)                                                                                 \
  INSITU__BOX_RUN(name##_f64, name##_f64, false)                                                                                 \
  INSITU__BOX_RUN(name##_f32_swap, name##_f32, true)                                                                             \
  INSITU__BOX_RUN(name##_f64_swap, name##_f64, true)
INSITU__BOX_SOURCES(INSITU__BOX_CONVERT)

/* Selects the kernel; NULL when there is none. wide: the machine has AVX2 (of no effect but on x86-64). */
static insitu__box_run *insitu__box_kernel(int32_t src, int32_t dst, bool swap, bool wide) {
#if defined(__x86_64__)
#define INSITU__BOX_PICK(name) (wide ? insitu__box_wide_##name : insitu__box_run_##name)
#else
#define INSITU__BOX_PICK(name) ((void)wide, insitu__box_run_##name)
#endif
#define INSITU__BOX_CASE(dtype, name, bits, SWAP, VALUE)                                                                         \
  case INSITU_##dtype:                                                                                                           \
    if (dst == INSITU_F32) return swap ? INSITU__BOX_PICK(name##_f32_swap) : INSITU__BOX_PICK(name##_f32);                       \
    if (dst == INSITU_F64) return swap ? INSITU__BOX_PICK(name##_f64_swap) : INSITU__BOX_PICK(name##_f64);                       \
    return NULL;
  if (src == dst) {
    switch (src) {
    case INSITU_BOOL:
    case INSITU_I8:
    case INSITU_U8: return insitu__box_run_copy8;
    case INSITU_I16:
    case INSITU_U16:
    case INSITU_F16:
    case INSITU_BF16: return swap ? INSITU__BOX_PICK(swap16) : insitu__box_run_copy16;
    case INSITU_I32:
    case INSITU_U32:
    case INSITU_F32: return swap ? INSITU__BOX_PICK(swap32) : insitu__box_run_copy32;
    case INSITU_I64:
    case INSITU_U64:
    case INSITU_F64: return swap ? INSITU__BOX_PICK(swap64) : insitu__box_run_copy64;
    case INSITU_C64: return swap ? INSITU__BOX_PICK(pair32) : insitu__box_run_copy64;
    case INSITU_C128: return swap ? INSITU__BOX_PICK(pair64) : insitu__box_run_copy128;
    default: return NULL;
    }
  }
  switch (src) {
    INSITU__BOX_SOURCES(INSITU__BOX_CASE)
  default: return NULL;
  }
}

/* stored * scale + offset, NaN where stored is missing, and only one NaN. The product goes over the whole block before the sum,
 * with the block in memory in between, so that no compiler makes one rounding of the two, whatever its flags. Masks instead of
 * conditions: see insitu__box_half. */
INSITU__BOX_INLINE void insitu__box_unpack_loop(
    const struct insitu__box *b, double *restrict x, const uint64_t *restrict word, uint64_t n) {
  const double scale = b->cf->scale, offset = b->cf->offset;
  uint64_t gone[INSITU__BOX_BLOCK];
  memset(gone, 0, sizeof gone);
  for (unsigned m = 0; m < b->cf->n_missing; m++) {
    const double number = b->missing[m];
    uint64_t bits;
    memcpy(&bits, b->cf->missing[m], sizeof bits);
    for (uint64_t i = 0; b->word && i < n; i += 32)
      for (unsigned k = 0; k < 32; k++) gone[i + k] |= UINT64_C(0) - (uint64_t)(word[i + k] == bits);
    for (uint64_t i = 0; !b->word && i < n; i += 32)
      for (unsigned k = 0; k < 32; k++) gone[i + k] |= UINT64_C(0) - (uint64_t)(x[i + k] == number);
  }
  for (uint64_t i = 0; i < n; i += 32)
    for (unsigned k = 0; k < 32; k++) x[i + k] *= scale;
  __asm__ volatile("" : : "r"(x) : "memory");
  for (uint64_t i = 0; i < n; i += 32)
    for (unsigned k = 0; k < 32; k++) {
      const double sum = x[i + k] + offset;
      uint64_t bits;
      memcpy(&bits, &sum, sizeof bits);
      uint64_t nan = gone[i + k] | (UINT64_C(0) - (uint64_t)((int64_t)(bits & INT64_MAX) > INT64_C(0x7ff0000000000000)));
      bits = (bits & ~nan) | (UINT64_C(0x7ff8000000000000) & nan);
      memcpy(&x[i + k], &bits, sizeof bits);
    }
}
static void insitu__box_unpack_base(const struct insitu__box *b, double *restrict x, const uint64_t *restrict word, uint64_t n) {
  insitu__box_unpack_loop(b, x, word, n);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void insitu__box_unpack_wide(
    const struct insitu__box *b, double *restrict x, const uint64_t *restrict word, uint64_t n) {
  insitu__box_unpack_loop(b, x, word, n);
}
#endif
/* The kernel of a box that decodes. load and word: those of the source, which insitu__box_fill has in native byte order. */
static void insitu__box_decode(const struct insitu__box *b, insitu__box_run *load, insitu__box_run *word,
    const unsigned char *src, unsigned char *dst, uint64_t n, int64_t ss, int64_t ds) {
  double x[INSITU__BOX_BLOCK];
  uint64_t bits[INSITU__BOX_BLOCK];
  for (uint64_t some; n; n -= some, src += (int64_t)some * ss, dst += (int64_t)some * ds) {
    some = insitu__base_min(n, INSITU__BOX_BLOCK);
    uint64_t whole = (some + 31) / 32 * 32;
    memset(x + some, 0, (size_t)(whole - some) * sizeof *x);
    memset(bits + some, 0, (size_t)(whole - some) * sizeof *bits);
    load(src, (unsigned char *)x, some, ss, sizeof *x);
    if (word) word(src, (unsigned char *)bits, some, ss, sizeof *bits);
    b->unpack(b, x, bits, whole);
    b->put((const unsigned char *)x, dst, some, sizeof *x, ds);
  }
}
static inline void insitu__box_apply(
    const struct insitu__box *b, const unsigned char *src, unsigned char *dst, uint64_t n, int64_t ss, int64_t ds) {
  if (b->cf) insitu__box_decode(b, b->run, b->word, src, dst, n, ss, ds);
  else b->run(src, dst, n, ss, ds);
}
#undef INSITU__BOX_LOOP
#undef INSITU__BOX_WIDE
#undef INSITU__BOX_RUN
#undef INSITU__BOX_SAME
#undef INSITU__BOX_COPY
#undef INSITU__BOX_PAIR
#undef INSITU__BOX_BOOL
#undef INSITU__BOX_I8
#undef INSITU__BOX_I16
#undef INSITU__BOX_I32
#undef INSITU__BOX_I64
#undef INSITU__BOX_SOURCES
#undef INSITU__BOX_CONVERT
#undef INSITU__BOX_PICK
#undef INSITU__BOX_CASE

static bool insitu__box_wide(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

static const char *insitu__box_dtype(int32_t dtype) {
  switch (dtype) {
  case INSITU_AS_STORED: return "as stored";
  case INSITU_BOOL: return "bool";
  case INSITU_I8: return "int8";
  case INSITU_I16: return "int16";
  case INSITU_I32: return "int32";
  case INSITU_I64: return "int64";
  case INSITU_U8: return "uint8";
  case INSITU_U16: return "uint16";
  case INSITU_U32: return "uint32";
  case INSITU_U64: return "uint64";
  case INSITU_F16: return "float16";
  case INSITU_F32: return "float32";
  case INSITU_F64: return "float64";
  case INSITU_BF16: return "bfloat16";
  case INSITU_C64: return "complex64";
  case INSITU_C128: return "complex128";
  default: return "unknown";
  }
}

static insitu_status insitu__box_bad(insitu_error *err, const char *side, const char *cause) {
  return insitu__error_set(
      err, INSITU_E_ARG, "copy: the %s of a box %s; this is a bug of insitubatch: please report it", side, cause);
}

/* Appends one dimension in its place by descending source stride. */
static void insitu__box_insert(struct insitu__box *b, struct insitu__box_dim dim) {
  unsigned at = b->ndim++;
  for (; at && b->dim[at - 1].src_stride < dim.src_stride; at--) b->dim[at] = b->dim[at - 1];
  b->dim[at] = dim;
}

/* Joins each dimension with the following one where the two are one run in source and destination. */
static void insitu__box_merge(struct insitu__box *b) {
  unsigned kept = 0;
  for (unsigned d = 1; d < b->ndim; d++) {
    struct insitu__box_dim *a = &b->dim[kept], in = b->dim[d];
    uint64_t src, dst;
    if (insitu__base_mul(in.count, (uint64_t)in.src_stride, &src) && src == (uint64_t)a->src_stride &&
        insitu__base_mul(in.count, (uint64_t)in.dst_stride, &dst) && dst == (uint64_t)a->dst_stride) {
      a->count *= in.count; /* cannot overflow: the span of the two was checked, and it holds as many elements */
      a->src_stride = in.src_stride;
      a->dst_stride = in.dst_stride;
    } else {
      b->dim[++kept] = in;
    }
  }
  b->ndim = kept + 1;
}

/* Checks that the dimensions nest in the source (each step passes all that the inner dimensions span; so ascending order of
 * source bytes is the order of indices, which pieces rely on), that all offsets fit, and fills extent and total. */
static insitu_status insitu__box_measure(struct insitu__box *b, insitu_error *err) {
  uint64_t dst_end = b->dst_item, span;
  b->extent[b->ndim] = b->src_item;
  b->total = 1;
  for (unsigned d = b->ndim; d--;) {
    const struct insitu__box_dim *dim = &b->dim[d];
    if (dim->src_stride <= 0 || (uint64_t)dim->src_stride < b->extent[d + 1])
      return insitu__box_bad(err, "source", "overlaps itself");
    if (dim->dst_stride < (int64_t)b->dst_item) return insitu__box_bad(err, "destination", "overlaps itself");
    if (!insitu__base_mul(dim->count - 1, (uint64_t)dim->src_stride, &span) ||
        !insitu__base_add(span, b->extent[d + 1], &b->extent[d]))
      return insitu__box_bad(err, "source", "is larger than memory");
    if (!insitu__base_mul(dim->count - 1, (uint64_t)dim->dst_stride, &span) || !insitu__base_add(span, dst_end, &dst_end))
      return insitu__box_bad(err, "destination", "is larger than memory");
    b->total *= dim->count; /* at most extent[d] */
  }
  b->src_begin = b->src_offset;
  if (!insitu__base_add(b->src_offset, b->extent[0], &b->src_end) || b->src_end > PTRDIFF_MAX)
    return insitu__box_bad(err, "source", "is larger than memory");
  if (!insitu__base_add(b->dst_offset, dst_end, &dst_end) || dst_end > PTRDIFF_MAX)
    return insitu__box_bad(err, "destination", "is larger than memory");
  return INSITU_OK;
}

/* After merging: the flags, and the dimension to transpose with. */
static void insitu__box_derive(struct insitu__box *b) {
  const struct insitu__box_dim *last = &b->dim[b->ndim - 1];
  b->src_contiguous = b->ndim == 1 && last->src_stride == (int64_t)b->src_item;
  b->contiguous = b->src_contiguous && b->plain && last->dst_stride == (int64_t)b->dst_item;
  unsigned least = b->ndim - 1;
  for (unsigned d = 0; d + 1 < b->ndim; d++) {
    if (b->dim[d].dst_stride < b->dim[least].dst_stride) least = d;
  }
  b->turn = least == b->ndim - 1 ? INSITU__BOX_NONE : least;
  b->square = (b->dst_item == 4 || b->dst_item == 8) && b->dim[least].dst_stride == (int64_t)b->dst_item;
}

/* Describes the copy of one row. Strides are in bytes, one for each dimension of count[]; those of dimensions of one element do
 * not matter. Offsets are bytes to the first element, from the row's source base and from the row's place in the slab. swap: the
 * source is not in native byte order. dst_dtype: INSITU_AS_STORED or the source's, or INSITU_F32 or INSITU_F64 for any source
 * that is not complex. */
static insitu_status insitu__box_init(struct insitu__box *b, unsigned ndim, const uint64_t *count, const int64_t *src_stride,
    const int64_t *dst_stride, uint64_t src_offset, uint64_t dst_offset, int32_t src_dtype, bool swap, int32_t dst_dtype,
    insitu_error *err) {
  memset(b, 0, sizeof *b);
  if (ndim > INSITU__MAX_DIMS)
    return insitu__error_set(err, INSITU_E_SHAPE, "copy: %u dimensions, the limit is %d: select fewer", ndim, INSITU__MAX_DIMS);
  b->src_dtype = src_dtype;
  b->dst_dtype = dst_dtype == INSITU_AS_STORED ? src_dtype : dst_dtype;
  b->run = insitu__box_kernel(src_dtype, b->dst_dtype, swap, insitu__box_wide());
  if (!b->run)
    return insitu__error_set(err, INSITU_E_DTYPE,
        "copy: no conversion from %s (0x%x) to %s (0x%x); ask for the dtype as stored, or for float32 or float64 of a real array",
        insitu__box_dtype(src_dtype), (unsigned)src_dtype, insitu__box_dtype(b->dst_dtype), (unsigned)b->dst_dtype);
  b->move = insitu__box_kernel(b->dst_dtype, b->dst_dtype, false, false);
  b->src_item = ((uint32_t)src_dtype & 0xff) / 8;
  b->dst_item = ((uint32_t)b->dst_dtype & 0xff) / 8;
  b->plain = src_dtype == b->dst_dtype && !(swap && b->src_item > 1);
  b->src_offset = b->src_begin = b->src_end = src_offset;
  b->dst_offset = dst_offset;
  b->turn = INSITU__BOX_NONE;
  for (unsigned d = 0; d < ndim; d++) {
    if (count[d] == 0) return INSITU_OK; /* total is 0 */
  }
  for (unsigned d = 0; d < ndim; d++) {
    if (count[d] > 1) insitu__box_insert(b, (struct insitu__box_dim){count[d], src_stride[d], dst_stride[d]});
  }
  if (!b->ndim) insitu__box_insert(b, (struct insitu__box_dim){1, b->src_item, b->dst_item});
  insitu_status status = insitu__box_measure(b, err);
  if (status != INSITU_OK) {
    b->total = 0;
    return status;
  }
  insitu__box_merge(b);
  status = insitu__box_measure(b, err);
  insitu__box_derive(b);
  return status;
}

/* Makes a box that was just initialised decode its source, which swap tells as insitu__box_init was told; its destination is
 * float32 or float64. cf must live as long as the box. */
static void insitu__box_cf(struct insitu__box *b, const struct insitu__cf *cf, bool swap) {
  bool wide = insitu__box_wide();
  b->cf = cf;
  b->src_dtype = cf->dtype;
  b->plain = b->contiguous = false;
  b->run = insitu__box_kernel(cf->dtype, INSITU_F64, swap, wide);
  b->word = cf->dtype == INSITU_I64 || cf->dtype == INSITU_U64 ? insitu__box_kernel(cf->dtype, cf->dtype, swap, wide) : NULL;
  b->put = insitu__box_kernel(INSITU_F64, b->dst_dtype, false, wide);
  b->unpack = insitu__box_unpack_base;
#if defined(__x86_64__)
  if (wide) b->unpack = insitu__box_unpack_wide;
#endif
  insitu__box_kernel(cf->dtype, INSITU_F64, false, false)(
      &cf->missing[0][0], (unsigned char *)b->missing, cf->n_missing, sizeof cf->missing[0], sizeof *b->missing);
}

/* Transpose nb rows of na elements, contiguous in both and multiples of 4: row i begins at src + i * sb, and element a of all
 * rows goes to dst + a * da. Written out, for gcc does not unroll loops over vectors at -O2. */
static void insitu__box_turn4(
    const unsigned char *restrict src, unsigned char *restrict dst, uint64_t nb, uint64_t na, int64_t sb, int64_t da) {
  typedef uint32_t v4 __attribute__((vector_size(16)));
  for (uint64_t a = 0; a < na; a += 4, src += 16, dst += 4 * da) {
    const unsigned char *from = src;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < nb; i += 4, from += 4 * sb, to += 16) {
      v4 r0, r1, r2, r3;
      memcpy(&r0, from, 16);
      memcpy(&r1, from + sb, 16);
      memcpy(&r2, from + 2 * sb, 16);
      memcpy(&r3, from + 3 * sb, 16);
      v4 low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
      v4 low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
      r0 = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
      r1 = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
      r2 = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
      r3 = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
      memcpy(to, &r0, 16);
      memcpy(to + da, &r1, 16);
      memcpy(to + 2 * da, &r2, 16);
      memcpy(to + 3 * da, &r3, 16);
    }
  }
}
static void insitu__box_turn8(
    const unsigned char *restrict src, unsigned char *restrict dst, uint64_t nb, uint64_t na, int64_t sb, int64_t da) {
  typedef uint64_t v2 __attribute__((vector_size(16)));
  for (uint64_t a = 0; a < na; a += 2, src += 16, dst += 2 * da) {
    const unsigned char *from = src;
    unsigned char *to = dst;
    for (uint64_t i = 0; i < nb; i += 2, from += 2 * sb, to += 16) {
      v2 r0, r1;
      memcpy(&r0, from, 16);
      memcpy(&r1, from + sb, 16);
      v2 c0 = __builtin_shufflevector(r0, r1, 0, 2), c1 = __builtin_shufflevector(r0, r1, 1, 3);
      memcpy(to, &c0, 16);
      memcpy(to + da, &c1, 16);
    }
  }
}

/* One block of a plane, of nb elements along dimension `turn` and na along the last, at most INSITU__BOX_STAGE bytes of
 * destination. The rows of source are converted to a compact stage, and columns of that go to the destination, so that each
 * cache line of both sides is touched once and strides of a power of two, whose lines evict each other, do no harm. */
static void insitu__box_block(
    const struct insitu__box *b, uint64_t nb, uint64_t na, const unsigned char *src, unsigned char *dst) {
  const struct insitu__box_dim *in = &b->dim[b->ndim - 1], *out = &b->dim[b->turn];
  if (na < INSITU__BOX_SHORT && na <= nb) {
    for (; na; na--, src += in->src_stride, dst += in->dst_stride)
      insitu__box_apply(b, src, dst, nb, out->src_stride, out->dst_stride);
    return;
  }
  if (nb < INSITU__BOX_SHORT) {
    for (; nb; nb--, src += out->src_stride, dst += out->dst_stride)
      insitu__box_apply(b, src, dst, na, in->src_stride, in->dst_stride);
    return;
  }
  __attribute__((aligned(64))) unsigned char stage[INSITU__BOX_STAGE];
  int64_t item = b->dst_item, row = (int64_t)na * item;
  for (uint64_t i = 0; i < nb; i++)
    insitu__box_apply(b, src + (int64_t)i * out->src_stride, stage + (int64_t)i * row, na, in->src_stride, item);
  uint64_t qa = 0, qb = 0; /* turned by whole squares */
  if (b->square) {
    qa = na & ~UINT64_C(3);
    qb = nb & ~UINT64_C(3);
    if (item == 4) insitu__box_turn4(stage, dst, qb, qa, row, in->dst_stride);
    else insitu__box_turn8(stage, dst, qb, qa, row, in->dst_stride);
  }
  for (uint64_t a = qb < nb ? 0 : qa; a < na; a++) {
    uint64_t done = a < qa ? qb : 0;
    b->move(stage + (int64_t)a * item + (int64_t)done * row, dst + (int64_t)a * in->dst_stride + (int64_t)done * out->dst_stride,
        nb - done, row, out->dst_stride);
  }
}

/* A plane whose last dimension is not the one that lies closest in the destination. Where one side is short, blocks are longer
 * along the other. */
static void insitu__box_plane(
    const struct insitu__box *b, uint64_t nb, uint64_t na, const unsigned char *src, unsigned char *dst) {
  const struct insitu__box_dim *in = &b->dim[b->ndim - 1], *out = &b->dim[b->turn];
  const uint64_t area = INSITU__BOX_STAGE / b->dst_item;
  uint64_t step_a = insitu__base_min(na, INSITU__BOX_SIDE), step_b = insitu__base_min(nb, area / step_a);
  step_a = insitu__base_min(na, insitu__base_max(step_a, area / step_b));
  for (uint64_t a = 0; a < na; a += step_a) {
    for (uint64_t i = 0; i < nb; i += step_b) {
      insitu__box_block(b, insitu__base_min(step_b, nb - i), insitu__base_min(step_a, na - a),
          src + (int64_t)a * in->src_stride + (int64_t)i * out->src_stride,
          dst + (int64_t)a * in->dst_stride + (int64_t)i * out->dst_stride);
    }
  }
}

/* Copies dimension d and those inside it, n of dimension d; src and dst point to the first element. turns: the count along
 * dimension `turn` once that has been passed, else 0. Calls itself once a dimension, at most INSITU__MAX_DIMS deep. */
static void insitu__box_walk(
    const struct insitu__box *b, unsigned d, uint64_t n, uint64_t turns, const unsigned char *src, unsigned char *dst) {
  unsigned last = b->ndim - 1;
  if (d == b->turn) {
    turns = n;
    n = b->dim[++d].count; /* turn is never the last */
  }
  const struct insitu__box_dim *dim = &b->dim[d], *in = &b->dim[last];
  if (d == last && turns) {
    insitu__box_plane(b, turns, n, src, dst);
  } else if (d == last) {
    insitu__box_apply(b, src, dst, n, in->src_stride, in->dst_stride);
  } else if (d + 1 == last && !turns) {
    for (; n; n--, src += dim->src_stride, dst += dim->dst_stride)
      insitu__box_apply(b, src, dst, in->count, in->src_stride, in->dst_stride);
  } else {
    for (; n; n--, src += dim->src_stride, dst += dim->dst_stride) insitu__box_walk(b, d + 1, dim[1].count, turns, src, dst);
  }
}

/* Copies the box from the row's source base to the row's place in the slab. */
static void insitu__box_copy(const struct insitu__box *b, const void *src_row_base, void *dst_row_base) {
  if (!b->total) return;
  insitu__box_walk(b, 0, b->dim[0].count, 0, (const unsigned char *)src_row_base + b->src_offset,
      (unsigned char *)dst_row_base + b->dst_offset);
}

/* Copies what lies in source bytes [begin, end) of dimension d and those inside it, whose first element is at source byte 0 of
 * these and at dst; src is where byte `begin` lies. An element counts when all its bytes are inside. At most the first and the
 * last index of a dimension are cut and looked into; those between are copied whole. */
static void insitu__box_cut(
    const struct insitu__box *b, unsigned d, uint64_t begin, uint64_t end, const unsigned char *src, unsigned char *dst) {
  const struct insitu__box_dim *dim = &b->dim[d];
  uint64_t stride = (uint64_t)dim->src_stride, inner = b->extent[d + 1];
  end = insitu__base_min(end, b->extent[d]);
  if (begin >= end) return;
  uint64_t first = insitu__base_ceil_div(begin, stride);         /* the first index that begins inside */
  uint64_t stop = end >= inner ? (end - inner) / stride + 1 : 0; /* one past the last that ends inside */
  bool deeper = d + 1 < b->ndim;
  if (deeper && begin % stride && begin % stride < inner) { /* index first - 1 begins before */
    uint64_t at = (first - 1) * stride;
    insitu__box_cut(b, d + 1, begin - at, end - at, src, dst + (int64_t)(first - 1) * dim->dst_stride);
  }
  if (first < stop)
    insitu__box_walk(b, d, stop - first, 0, src + (first * stride - begin), dst + (int64_t)first * dim->dst_stride);
  if (deeper && stop >= first && stop * stride < end) /* index stop ends after */
    insitu__box_cut(b, d + 1, 0, end - stop * stride, src + (stop * stride - begin), dst + (int64_t)stop * dim->dst_stride);
}

/* Copies the elements in source bytes [piece_begin, piece_end) relative to the row's source base, of which piece holds the
 * first; elements outside the box are skipped. No piece may cut an element; in ascending order or not, pieces that cover the row
 * do the same as insitu__box_copy. */
static void insitu__box_copy_part(
    const struct insitu__box *b, const void *piece, uint64_t piece_begin, uint64_t piece_end, void *dst_row_base) {
  if (!b->total || piece_end <= b->src_begin) return;
  const unsigned char *src = (const unsigned char *)piece;
  unsigned char *dst = (unsigned char *)dst_row_base + b->dst_offset;
  if (piece_begin < b->src_begin) {
    src += b->src_begin - piece_begin;
    piece_begin = b->src_begin;
  }
  insitu__box_cut(b, 0, piece_begin - b->src_begin, piece_end - b->src_begin, src, dst);
}

/* The address that source bytes [begin, end), relative to the row's source base, go to as they are and in one stretch; NULL when
 * they do not, or are not all of the box. */
static void *insitu__box_direct(const struct insitu__box *b, void *dst_row_base, uint64_t begin, uint64_t end) {
  if (!b->total || !b->plain || begin >= end || begin < b->src_begin || end > b->src_end) return NULL;
  unsigned char *dst = (unsigned char *)dst_row_base + b->dst_offset;
  begin -= b->src_begin;
  end -= b->src_begin;
  for (unsigned d = 0; d < b->ndim; d++) {
    const struct insitu__box_dim *dim = &b->dim[d];
    if (dim->src_stride == (int64_t)b->src_item && dim->dst_stride == dim->src_stride)
      return dst + begin; /* only the last can be so */
    uint64_t i = begin / (uint64_t)dim->src_stride, at = i * (uint64_t)dim->src_stride;
    begin -= at;
    end -= at;
    if (end > b->extent[d + 1]) return NULL;
    dst += (int64_t)i * dim->dst_stride;
  }
  return dst + begin; /* within one element */
}

/* Writes n dimensions of fill; pattern holds `bytes` bytes of repeated elements. */
static void insitu__box_paint(const struct insitu__box_dim *dim, unsigned n, const unsigned char *pattern, size_t bytes,
    unsigned item, unsigned char *dst) {
  if (n) {
    for (uint64_t i = 0; i < dim->count; i++)
      insitu__box_paint(dim + 1, n - 1, pattern, bytes, item, dst + (int64_t)i * dim->dst_stride);
    return;
  }
  uint64_t left = dim->count * item; /* the innermost, contiguous: dst_stride is item */
  for (; left > bytes; left -= bytes, dst += bytes) memcpy(dst, pattern, bytes);
  memcpy(dst, pattern, (size_t)left);
}

/* Writes one value to the whole box: n elements (at most INSITU__MAX_FILL) of the source dtype in native byte order that repeat
 * along the innermost axis. n over 1 goes with boxes that hold that axis whole and do not convert. */
static void insitu__box_fill(const struct insitu__box *b, const unsigned char *fill, uint64_t n_fill, void *dst_row_base) {
  if (!b->total) return;
  struct insitu__box_dim dim[INSITU__MAX_DIMS + 1]; /* by descending destination stride, then the run of the innermost */
  unsigned n = 0;
  for (unsigned d = 0; d < b->ndim; d++) {
    unsigned at = n++;
    for (; at && dim[at - 1].dst_stride < b->dim[d].dst_stride; at--) dim[at] = dim[at - 1];
    dim[at] = b->dim[d];
  }
  dim[n] = (struct insitu__box_dim){1, 0, b->dst_item};
  /* dim[n] stays a contiguous run, within the span that insitu__box_init checked: the product cannot overflow. */
  while (n && dim[n - 1].dst_stride == dim[n].dst_stride * (int64_t)dim[n].count) {
    n--;
    dim[n].count *= dim[n + 1].count;
    dim[n].dst_stride = b->dst_item;
  }
  unsigned char pattern[INSITU__MAX_FILL]; /* a multiple of every element size; long enough to hide the calls of memcpy */
  uint64_t repeat = insitu__base_min(dim[n].count, sizeof pattern / b->dst_item / n_fill * n_fill);
  insitu__box_run *native = insitu__box_kernel(b->src_dtype, b->cf ? INSITU_F64 : b->dst_dtype, false, false);
  if (n_fill > 1)
    for (uint64_t i = 0; i < repeat; i++) memcpy(pattern + i * b->dst_item, fill + i % n_fill * b->src_item, b->dst_item);
  else if (b->cf) insitu__box_decode(b, native, b->word ? insitu__box_run_copy64 : NULL, fill, pattern, repeat, 0, b->dst_item);
  else native(fill, pattern, repeat, 0, b->dst_item);
  insitu__box_paint(dim, n, pattern, (size_t)repeat * b->dst_item, b->dst_item, (unsigned char *)dst_row_base + b->dst_offset);
}
#undef INSITU__BOX_INLINE

/* >>split ------------------------------------------------------------------------------------------------------------------ */
/* Which anchors are train, val, test, and how they are cut into the units that the shuffle moves. Pure; built on the opening
 * thread, read-only afterwards. Everything is intervals, so that 10^9 samples cost no more than 100.
 *
 * A part's "range" is what the split gives it; its "segments" are the anchors of the range whose reads all stay inside: the
 * intersection of the range with itself shifted by every delta. A unit is the piece of a segment within one group of unit_rows
 * samples of the archive. */
#define INSITU__SPLIT_PARTS 4 /* train, val, test, all */

struct insitu__split_interval {
  int64_t lo, hi; /* [lo, hi) */
};

struct insitu__split_list {
  struct insitu__split_interval *at; /* ascending, disjoint; a growing array of >>array */
};

struct insitu__split_part {
  struct insitu__split_list chunks; /* reference chunks, before sub-range and gap: what a manifest holds */
  struct insitu__split_list range, segments;
  uint64_t *unit_first, *anchor_first; /* per segment, and one more: units and anchors before it */
  uint64_t units, anchors, dropped;    /* dropped: anchors of range that are in no segment */
  struct insitu__order_irregular *irregular;
  uint64_t n_irregular;
};

struct insitu__split {
  struct insitu__split_part part[INSITU__SPLIT_PARTS];
  uint64_t unit_rows;
  bool by_chunks; /* decided by chunks: can be saved as a manifest */
  uint64_t hash;
};

static const char *const insitu__split_names[INSITU__SPLIT_PARTS] = {"train", "val", "test", "all"};

static uint64_t insitu__split_count(const struct insitu__split_list *l) {
  return INSITU__ARRAY_LEN(l->at);
}

/* Appends [lo, hi), which must not begin before the last one; joins neighbours. */
static bool insitu__split_add(struct insitu__split_list *l, int64_t lo, int64_t hi) {
  uint64_t n = insitu__split_count(l);
  if (hi <= lo) return true;
  if (n && l->at[n - 1].hi >= lo) {
    if (hi > l->at[n - 1].hi) l->at[n - 1].hi = hi;
    return true;
  }
  struct insitu__split_interval i = {lo, hi};
  return INSITU__ARRAY_PUSH(l->at, i);
}

/* into = a intersected with (b shifted by -delta). */
static bool insitu__split_meet(
    struct insitu__split_list *into, const struct insitu__split_list *a, const struct insitu__split_list *b, int64_t delta) {
  uint64_t i = 0, j = 0, n = insitu__split_count(a), m = insitu__split_count(b);
  while (i < n && j < m) {
    int64_t lo = b->at[j].lo - delta, hi = b->at[j].hi - delta;
    int64_t from = a->at[i].lo > lo ? a->at[i].lo : lo, to = a->at[i].hi < hi ? a->at[i].hi : hi;
    if (!insitu__split_add(into, from, to)) return false;
    if (a->at[i].hi < hi) i++;
    else j++;
  }
  return true;
}

static uint64_t insitu__split_total(const struct insitu__split_list *l) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < insitu__split_count(l); i++) n += (uint64_t)(l->at[i].hi - l->at[i].lo);
  return n;
}

static void insitu__split_free(struct insitu__split *s) {
  for (int p = 0; p < INSITU__SPLIT_PARTS; p++) {
    struct insitu__split_part *q = &s->part[p];
    INSITU__ARRAY_FREE(q->chunks.at);
    INSITU__ARRAY_FREE(q->range.at);
    INSITU__ARRAY_FREE(q->segments.at);
    INSITU__ARRAY_FREE(q->irregular);
    insitu__mem_free(q->unit_first);
    insitu__mem_free(q->anchor_first);
  }
  memset(s, 0, sizeof *s);
}

static int insitu__split_compare(const void *x, const void *y) {
  uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
  return (a > b) - (a < b);
}

/* Chunk numbers in any order to a list of intervals; *twice is a number that occurs twice, or UINT64_MAX. */
static bool insitu__split_from_chunks(struct insitu__split_list *l, uint64_t *chunk, uint64_t n, uint64_t *twice) {
  qsort(chunk, (size_t)n, sizeof *chunk, insitu__split_compare);
  *twice = UINT64_MAX;
  for (uint64_t i = 0; i < n; i++) {
    if (i && chunk[i] == chunk[i - 1]) *twice = chunk[i];
    if (!insitu__split_add(l, (int64_t)chunk[i], (int64_t)chunk[i] + 1)) return false;
  }
  return true;
}

/* Chunks of the three parts by fractions. Cuts lie at floor(chunks * sum of fractions + 1/2). */
static insitu_status insitu__split_by_fraction(
    struct insitu__split *s, const insitu_loader_desc *desc, uint64_t chunks, insitu_error *err) {
  double f[3] = {desc->split[0].fraction, desc->split[1].fraction, desc->split[2].fraction}, sum = 0;
  for (int p = 0; p < 3; p++) {
    if (!(f[p] >= 0 && f[p] <= 1))
      return insitu__error_set(
          err, INSITU_E_ARG, "open: split fraction %g of %s is not between 0 and 1; correct it", f[p], insitu__split_names[p]);
    sum += f[p];
  }
  if (sum > 1 + 1e-9)
    return insitu__error_set(err, INSITU_E_ARG, "open: the split fractions add up to %g; they may add up to 1", sum);
  struct insitu__order_perm perm;
  uint64_t words[3] = {desc->seed, UINT64_C(0x73706c6974), chunks}, cut = 0; /* "split": keeps this draw apart from the epochs' */
  insitu__order_perm_init(&perm, chunks, insitu__order_key(words, 3));
  if (desc->split_shuffled && chunks > INSITU__MAX_LISTED_CHUNKS)
    return insitu__error_set(err, INSITU_E_ARG,
        "open: split_shuffled draws from at most 2^27 chunks, this archive has %" PRIu64 "; use a contiguous split", chunks);
  sum = 0;
  for (int p = 0; p < 3; p++) {
    sum += f[p];
    uint64_t end = insitu__base_min(chunks, (uint64_t)((double)chunks * sum + 0.5)), twice;
    bool ok = true;
    if (desc->split_shuffled) {
      uint64_t *drawn = (uint64_t *)insitu__mem_alloc(end - cut, sizeof *drawn);
      for (uint64_t i = cut; drawn && i < end; i++) drawn[i - cut] = insitu__order_perm_fwd(&perm, i);
      ok = drawn && insitu__split_from_chunks(&s->part[p].chunks, drawn, end - cut, &twice);
      insitu__mem_free(drawn);
    } else {
      ok = insitu__split_add(&s->part[p].chunks, (int64_t)cut, (int64_t)end);
    }
    if (!ok) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the split; use a contiguous one");
    cut = end;
  }
  return INSITU_OK;
}

/* Chunks of one part from the list in a manifest. */
static insitu_status insitu__split_manifest_part(struct insitu__split_list *l, const struct insitu__text_json *j, int list,
    uint64_t chunks, const char *path, const char *name, insitu_error *err) {
  uint64_t n = (uint64_t)insitu__text_json_size(j, list), k = 0, twice = UINT64_MAX;
  if (!insitu__text_json_is_array(j, list) || n > INSITU__MAX_LISTED_CHUNKS)
    return insitu__error_set(
        err, INSITU_E_SPLIT, "open, manifest %s: chunks.%s is no list of at most 2^27 chunk numbers; correct it", path, name);
  uint64_t *chunk = (uint64_t *)insitu__mem_alloc(n, sizeof *chunk);
  if (!chunk)
    return insitu__error_set(
        err, INSITU_E_NOMEM, "open, manifest %s: no memory for %" PRIu64 " chunk numbers; give the process more memory", path, n);
  insitu_status s = INSITU_OK;
  for (int t = insitu__text_json_first(j, list); !s && t >= 0; t = insitu__text_json_next(j, list, t), k++)
    if (!insitu__text_json_u64(j, t, &chunk[k]) || chunk[k] >= chunks)
      s = insitu__error_set(err, INSITU_E_SPLIT,
          "open, manifest %s: entry %" PRIu64 " of chunks.%s is no chunk number below %" PRIu64
          "; write the manifest anew for this archive",
          path, k, name, chunks);
  if (!s && !insitu__split_from_chunks(l, chunk, n, &twice))
    s = insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the split; give the process more memory");
  if (!s && twice != UINT64_MAX)
    s = insitu__error_set(
        err, INSITU_E_SPLIT, "open, manifest %s: chunk %" PRIu64 " is listed twice in chunks.%s; correct it", path, twice, name);
  insitu__mem_free(chunk);
  return s;
}

/* The split from the text of a manifest, as this header or the Python package of the same name writes it. */
static insitu_status insitu__split_from_manifest(struct insitu__split *s, const char *path, const char *text, uint64_t n,
    uint64_t samples, uint64_t chunk, insitu_error *err) {
  struct insitu__text_json j = {0};
  insitu_status status = insitu__text_json_parse(&j, text, n, path, err);
  const struct {
    const char *key;
    uint64_t want;
  } fact[] = {{"n_samples", samples}, {"sample_chunk_size", chunk}, {"n_chunks", insitu__base_ceil_div(samples, chunk)}};
  for (size_t i = 0; !status && i < sizeof fact / sizeof *fact; i++) {
    uint64_t got;
    if (!insitu__text_json_u64(&j, insitu__text_json_get(&j, 0, fact[i].key), &got))
      status = insitu__error_set(
          err, INSITU_E_SPLIT, "open, manifest %s: %s is missing or no number; write the manifest anew", path, fact[i].key);
    else if (got != fact[i].want)
      status = insitu__error_set(err, INSITU_E_SPLIT,
          "open, manifest %s: %s is %" PRIu64 " and the archive has %" PRIu64
          "; use the manifest of this archive, or write it anew",
          path, fact[i].key, got, fact[i].want);
  }
  int lists = status ? -1 : insitu__text_json_get(&j, 0, "chunks");
  for (int p = 0; !status && p < 3; p++)
    status = insitu__split_manifest_part(&s->part[p].chunks, &j, insitu__text_json_get(&j, lists, insitu__split_names[p]),
        insitu__base_ceil_div(samples, chunk), path, insitu__split_names[p], err);
  for (int p = 0; !status && p < 3; p++)
    for (int q = 0; !status && q < p; q++) {
      struct insitu__split_list both = {0};
      if (!insitu__split_meet(&both, &s->part[p].chunks, &s->part[q].chunks, 0))
        status = insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the split");
      else if (insitu__split_count(&both))
        status = insitu__error_set(err, INSITU_E_SPLIT, "open, manifest %s: chunk %" PRId64 " is in both %s and %s; correct it",
            path, both.at[0].lo, insitu__split_names[q], insitu__split_names[p]);
      INSITU__ARRAY_FREE(both.at);
    }
  insitu__text_json_free(&j);
  return status;
}

/* Ranges from chunks: in samples, within the sub-range [base.lo, base.hi). */
static bool insitu__split_ranges(struct insitu__split *s, struct insitu__split_interval base, uint64_t chunk) {
  bool ok = true;
  for (int p = 0; p < 3; p++)
    for (uint64_t i = 0; i < insitu__split_count(&s->part[p].chunks); i++) {
      struct insitu__split_interval c = s->part[p].chunks.at[i];
      int64_t lo = c.lo * (int64_t)chunk, hi = c.hi * (int64_t)chunk;
      ok = ok && insitu__split_add(&s->part[p].range, lo > base.lo ? lo : base.lo, hi < base.hi ? hi : base.hi);
    }
  return ok;
}

/* Sample-exact ranges given by the user. */
static insitu_status insitu__split_exact(
    struct insitu__split *s, const insitu_loader_desc *desc, struct insitu__split_interval base, insitu_error *err) {
  for (int p = 0; p < 3; p++) {
    const insitu_split_range *r = &desc->split[p];
    int64_t stop = r->stop || !r->start ? r->stop : base.hi; /* all zero: no such part */
    if (r->fraction != 0)
      return insitu__error_set(err, INSITU_E_ARG,
          "open: the split gives a fraction for %s and a range elsewhere; use one kind for all three", insitu__split_names[p]);
    if (!r->start && !stop) continue;
    if (r->start < base.lo || stop <= r->start || stop > base.hi)
      return insitu__error_set(err, INSITU_E_SPLIT,
          "open: split %s [%" PRId64 ", %" PRId64 ") is empty or leaves the samples [%" PRId64 ", %" PRId64
          "); correct start and stop",
          insitu__split_names[p], r->start, stop, base.lo, base.hi);
    for (int q = 0; q < p; q++)
      if (insitu__split_count(&s->part[q].range) && r->start < s->part[q].range.at[0].hi && stop > s->part[q].range.at[0].lo)
        return insitu__error_set(err, INSITU_E_SPLIT, "open: the ranges of %s and %s share samples; make them disjoint",
            insitu__split_names[q], insitu__split_names[p]);
    if (!insitu__split_add(&s->part[p].range, r->start, stop))
      return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the split; give the process more memory");
  }
  return INSITU_OK;
}

/* Leaves `gap` samples between neighbours of different parts, cut from the begin of the later one. */
static bool insitu__split_gap(struct insitu__split *s, int64_t gap) {
  uint64_t next[3] = {0};
  int64_t last_hi[3] = {0}; /* where each part's latest range so far ended */
  bool any[3] = {false}, ok = true;
  struct insitu__split_list cut[3] = {{0}};
  while (ok) {
    int p = -1;
    for (int q = 0; q < 3; q++)
      if (next[q] < insitu__split_count(&s->part[q].range) &&
          (p < 0 || s->part[q].range.at[next[q]].lo < s->part[p].range.at[next[p]].lo))
        p = q;
    if (p < 0) break;
    struct insitu__split_interval i = s->part[p].range.at[next[p]++];
    for (int q = 0; q < 3; q++)
      if (q != p && any[q] && i.lo < last_hi[q] + gap) i.lo = last_hi[q] + gap;
    last_hi[p] = i.hi;
    any[p] = true;
    ok = insitu__split_add(&cut[p], i.lo, i.hi);
  }
  for (int p = 0; p < 3; p++) {
    INSITU__ARRAY_FREE(s->part[p].range.at);
    s->part[p].range = cut[p];
  }
  return ok;
}

/* Segments, units and short units of one part. inside: where reads may go. */
static bool insitu__split_cut(struct insitu__split_part *p, const struct insitu__split_list *inside, const int64_t *delta,
    uint64_t n_delta, uint64_t unit_rows) {
  bool ok = true;
  for (uint64_t i = 0; i < insitu__split_count(&p->range); i++)
    ok = ok && insitu__split_add(&p->segments, p->range.at[i].lo, p->range.at[i].hi);
  for (uint64_t d = 0; ok && d < n_delta; d++) {
    struct insitu__split_list narrower = {0};
    ok = insitu__split_meet(&narrower, &p->segments, inside, delta[d]);
    INSITU__ARRAY_FREE(p->segments.at);
    p->segments = narrower;
  }
  uint64_t n = insitu__split_count(&p->segments);
  p->unit_first = (uint64_t *)insitu__mem_alloc(n + 1, sizeof *p->unit_first);
  p->anchor_first = (uint64_t *)insitu__mem_alloc(n + 1, sizeof *p->anchor_first);
  if (!ok || !p->unit_first || !p->anchor_first) return false;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t lo = (uint64_t)p->segments.at[i].lo, hi = (uint64_t)p->segments.at[i].hi, first = lo / unit_rows,
             last = (hi - 1) / unit_rows;
    p->unit_first[i] = p->units;
    p->anchor_first[i] = p->anchors;
    for (uint64_t g = first; ok && g <= last; g = g == last ? g + 1 : last) { /* only the ends can be short */
      uint64_t rows = insitu__base_min(hi, (g + 1) * unit_rows) - insitu__base_max(lo, g * unit_rows);
      struct insitu__order_irregular u = {p->units + g - first, rows};
      ok = rows == unit_rows || INSITU__ARRAY_PUSH(p->irregular, u);
    }
    p->units += last - first + 1;
    p->anchors += hi - lo;
  }
  p->unit_first[n] = p->units;
  p->anchor_first[n] = p->anchors;
  p->n_irregular = INSITU__ARRAY_LEN(p->irregular);
  p->dropped = insitu__split_total(&p->range) - p->anchors;
  return ok;
}

/* Everything from the desc. manifest: its text, or NULL. samples and chunk: of the sample axis. */
static insitu_status insitu__split_init(struct insitu__split *s, const insitu_loader_desc *desc, const char *manifest,
    uint64_t manifest_bytes, uint64_t samples, uint64_t chunk, const int64_t *delta, uint64_t n_delta, insitu_error *err) {
  struct insitu__split_interval base = {desc->sample_start, desc->sample_stop ? desc->sample_stop : (int64_t)samples};
  if (base.lo < 0 || base.hi > (int64_t)samples || base.hi <= base.lo)
    return insitu__error_set(err, INSITU_E_SPLIT,
        "open: samples [%" PRId64 ", %" PRId64 ") are none of the archive's %" PRIu64
        "; correct sample_start and sample_stop, or give dates as sample_from and sample_to",
        base.lo, base.hi, samples);
  bool exact = false;
  for (int p = 0; p < 3; p++) exact = exact || desc->split[p].start || desc->split[p].stop;
  s->by_chunks = manifest || !exact;
  s->unit_rows = chunk * desc->unit_chunks;
  uint64_t chunks = insitu__base_ceil_div(samples, chunk);
  insitu_status status = manifest ? insitu__split_from_manifest(s, desc->manifest, manifest, manifest_bytes, samples, chunk, err)
                         : exact  ? insitu__split_exact(s, desc, base, err)
                                  : insitu__split_by_fraction(s, desc, chunks, err);
  if (status) return status;
  struct insitu__split_list archive = {0};
  bool ok = (!s->by_chunks || insitu__split_ranges(s, base, chunk)) &&
            insitu__split_add(&s->part[INSITU_ALL].range, base.lo, base.hi) && insitu__split_gap(s, (int64_t)desc->split_gap) &&
            insitu__split_add(&archive, 0, (int64_t)samples);
  for (int p = 0; ok && p < INSITU__SPLIT_PARTS; p++)
    ok = insitu__split_cut(&s->part[p], desc->split_spill ? &archive : &s->part[p].range, delta, n_delta, s->unit_rows);
  INSITU__ARRAY_FREE(archive.at);
  if (!ok) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the split; use contiguous parts");
  for (int p = 0; p < INSITU__SPLIT_PARTS; p++)
    for (uint64_t i = 0; i < insitu__split_count(&s->part[p].segments); i++)
      s->hash = insitu__order_mix(
          insitu__order_mix(s->hash ^ (uint64_t)s->part[p].segments.at[i].lo) ^ (uint64_t)s->part[p].segments.at[i].hi);
  return INSITU_OK;
}

/* The last segment with first[i] <= x, where first ascends and first[0] is 0. */
static uint64_t insitu__split_segment(const uint64_t *first, uint64_t n, uint64_t x) {
  uint64_t lo = 0, hi = n;
  while (hi - lo > 1) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (first[mid] <= x) lo = mid;
    else hi = mid;
  }
  return lo;
}

/* First anchor of a unit; its others follow. */
static int64_t insitu__split_unit_anchor(const struct insitu__split *s, const struct insitu__split_part *p, uint64_t unit) {
  uint64_t i = insitu__split_segment(p->unit_first, insitu__split_count(&p->segments), unit);
  uint64_t lo = (uint64_t)p->segments.at[i].lo;
  return (int64_t)insitu__base_max(lo, (lo / s->unit_rows + unit - p->unit_first[i]) * s->unit_rows);
}

struct insitu__split_unit {
  uint64_t unit, segment;
  int64_t lo, hi; /* its anchors; or, with unit UINT64_MAX, anchors that belong to none */
};

/* The unit that holds an anchor, or the hole around it. */
static struct insitu__split_unit insitu__split_find(
    const struct insitu__split *s, const struct insitu__split_part *p, int64_t anchor) {
  uint64_t lo = 0, hi = insitu__split_count(&p->segments), n = hi;
  while (lo < hi) { /* the first segment that ends beyond anchor */
    uint64_t mid = lo + (hi - lo) / 2;
    if (p->segments.at[mid].hi <= anchor) lo = mid + 1;
    else hi = mid;
  }
  struct insitu__split_unit u = {
      UINT64_MAX, lo, lo ? p->segments.at[lo - 1].hi : INT64_MIN, lo < n ? p->segments.at[lo].lo : INT64_MAX};
  if (lo == n || p->segments.at[lo].lo > anchor) return u;
  struct insitu__split_interval g = p->segments.at[lo];
  int64_t rows = (int64_t)s->unit_rows, group = anchor / rows;
  u.unit = p->unit_first[lo] + (uint64_t)(group - g.lo / rows);
  u.lo = g.lo > group * rows ? g.lo : group * rows;
  u.hi = g.hi < (group + 1) * rows ? g.hi : (group + 1) * rows;
  return u;
}

/* The split as the JSON text of a manifest. */
static void insitu__split_print(
    const struct insitu__split *s, struct insitu__text_buffer *b, uint64_t samples, uint64_t chunk, uint64_t seed) {
  insitu__text_buffer_printf(b,
      "{\"n_chunks\": %" PRIu64 ", \"sample_chunk_size\": %" PRIu64 ", \"n_samples\": %" PRIu64 ", \"seed\": %" PRIu64
      ", \"chunks\": {",
      insitu__base_ceil_div(samples, chunk), chunk, samples, seed);
  for (int p = 0; p < 3; p++) {
    insitu__text_buffer_printf(b, "%s\"%s\": [", p ? ", " : "", insitu__split_names[p]);
    const char *comma = "";
    for (uint64_t i = 0; i < insitu__split_count(&s->part[p].chunks); i++)
      for (int64_t c = s->part[p].chunks.at[i].lo; c < s->part[p].chunks.at[i].hi && !b->failed; c++, comma = ", ")
        insitu__text_buffer_printf(b, "%s%" PRId64, comma, c);
    insitu__text_buffer_printf(b, "]");
  }
  insitu__text_buffer_printf(b, "}}\n");
}

/* >>plan ------------------------------------------------------------------------------------------------------------------- */
/* What is read when, and where each decoded row goes. Pure: a scan walks one rank's rows in delivery order and names each stored
 * chunk at its first touch within its (lane, window); a map turns any sample of such a chunk back into (batch, row). A scan
 * belongs to the reactor thread; layouts, orders and maps are constant while chunks are in flight, so workers read them freely.
 * Allocates only at init. */
#define INSITU__PLAN_EXACT_UNITS (UINT64_C(1) << 17) /* units walked by insitu__plan_count; more: extrapolated */
#define INSITU__PLAN_SAMPLED_WINDOWS 1024
#define INSITU__PLAN_QUALITY_ROWS (UINT64_C(1) << 20)
#define INSITU__PLAN_MAX_SET (UINT64_C(1) << 26) /* distinct chunks of one lane's window: 16 bytes each, twice */

struct insitu__plan_layout {
  uint64_t batch, global_batch;           /* rows of a rank's batch, of a global one */
  uint64_t lanes, rank_lanes, first_lane; /* this rank owns lanes [first_lane, first_lane + rank_lanes) */
  uint64_t lane_rows;                     /* rows of one lane in one batch */
  uint64_t window;                        /* units of one lane's window */
  uint64_t seed;
  uint64_t world;
  bool sequential;
};

/* Everything that decides a pass, shared by its scan, its workers and insitu_iter_locate. */
struct insitu__plan {
  const struct insitu__geometry *geometry;
  const struct insitu__split *split;
  const struct insitu__split_part *part;
  struct insitu__plan_layout layout;
};

/* The largest divisor of n that is at most `most`. */
static uint64_t insitu__plan_divisor(uint64_t n, uint64_t most) {
  uint64_t best = 1;
  for (uint64_t d = 1; d * d <= n; d++) {
    if (n % d) continue;
    if (d <= most && d > best) best = d;
    if (n / d <= most && n / d > best) best = n / d;
  }
  return best;
}

static insitu_status insitu__plan_lanes(
    struct insitu__plan *p, const insitu_loader_desc *desc, uint64_t window_units, insitu_error *err) {
  struct insitu__plan_layout *l = &p->layout;
  uint64_t world = (uint64_t)desc->world;
  l->lanes = desc->lanes
                 ? desc->lanes
                 : insitu__plan_divisor(l->global_batch, insitu__base_min(window_units, insitu__base_max(1, p->part->units / 8)));
  if (l->global_batch % l->lanes)
    return insitu__error_set(err, INSITU_E_ARG,
        "iterator: lanes %" PRIu64 " does not divide the global batch of %" PRIu64
        " rows (batch_size x world); set lanes to a divisor, for instance %" PRIu64,
        l->lanes, l->global_batch, insitu__plan_divisor(l->global_batch, l->lanes));
  if (l->lanes % world) {
    uint64_t more = world * (l->lanes / world + 1); /* the next number that world and batch accept; the batch itself is one */
    while (l->global_batch % more) more += world;
    return insitu__error_set(err, INSITU_E_ARG,
        "iterator: %" PRIu64 " lanes cannot be shared by a world of %" PRIu64 "; set lanes to %" PRIu64
        " on every rank (and at every world size you compare), or use a world size that divides %" PRIu64,
        l->lanes, world, more, l->lanes);
  }
  l->window = insitu__base_max(1, window_units / l->lanes);
  return INSITU_OK;
}

/* Resolves the layout of one split's order. order: INSITU_SHUFFLED or INSITU_SEQUENTIAL. */
static insitu_status insitu__plan_init(struct insitu__plan *p, const struct insitu__geometry *g, const struct insitu__split *s,
    int part, int order, const insitu_loader_desc *desc, insitu_error *err) {
  struct insitu__plan_layout *l = &p->layout;
  uint64_t world = (uint64_t)desc->world, window_units = insitu__base_max(1, desc->block_chunks / desc->unit_chunks);
  memset(p, 0, sizeof *p);
  p->geometry = g;
  p->split = s;
  p->part = &s->part[part];
  l->sequential = order == INSITU_SEQUENTIAL;
  l->seed = desc->seed;
  l->world = world;
  l->batch = desc->batch_size;
  l->global_batch = desc->batch_size * world; /* cannot overflow: both are bounded by the desc's check */
  uint64_t need = l->sequential ? 1 : l->global_batch;
  if (p->part->anchors < need)
    return insitu__error_set(err, INSITU_E_SPLIT,
        "split %s: %" PRIu64 " samples can be drawn (%" PRIu64
        " more were dropped because their windows leave the split), a batch "
        "needs %" PRIu64 " (batch_size %" PRIu64 " x world %" PRIu64 "); the archive has %" PRIu64 " reference chunks of %" PRIu64
        " samples to split: give this split more of them, or lower batch_size",
        insitu__split_names[part], p->part->anchors, p->part->dropped, need, l->batch, world,
        insitu__base_ceil_div(g->samples, g->chunk), g->chunk);
  if (l->sequential) { /* windows overlap by the span of the offsets: long enough that this re-reads at most a quarter */
    uint64_t span = (uint64_t)(g->deltas[g->n_deltas - 1] - g->deltas[0]);
    uint64_t least = 4 * insitu__base_ceil_div(span, s->unit_rows);
    l->lanes = world;
    l->window = insitu__base_min(window_units, insitu__base_max(1, least));
  } else {
    insitu_status status = insitu__plan_lanes(p, desc, window_units, err);
    if (status) return status;
  }
  l->rank_lanes = l->lanes / world;
  l->first_lane = (uint64_t)desc->rank * l->rank_lanes;
  l->lane_rows = l->global_batch / l->lanes;
  return INSITU_OK;
}

static insitu_status insitu__plan_order(
    const struct insitu__plan *p, uint64_t epoch, struct insitu__order *out, insitu_error *err) {
  const struct insitu__plan_layout *l = &p->layout;
  struct insitu__order_desc d = {.units = p->part->units,
      .unit_rows = p->split->unit_rows,
      .seed = l->seed,
      .epoch = epoch,
      .global_batch = l->global_batch,
      .lanes = l->lanes,
      .window = l->window,
      .sequential = l->sequential,
      .irregular = p->part->irregular,
      .n_irregular = p->part->n_irregular};
  return insitu__order_init(out, &d, err);
}

/* Rows of this rank in a batch of the epoch. */
static uint64_t insitu__plan_rows(const struct insitu__plan *p, const struct insitu__order *o, uint64_t batch) {
  const struct insitu__plan_layout *l = &p->layout;
  if (!l->sequential) return l->batch;
  uint64_t rows = insitu__order_rows(o, l->first_lane), before = batch * l->batch;
  return before >= rows ? 0 : insitu__base_min(l->batch, rows - before);
}

/* ---- from a position to what must be read ---- */

/* The chunks a window has touched: an open-addressed hash set that is emptied by counting `turn` up. */
struct insitu__plan_set {
  struct insitu__plan_set_slot {
    uint64_t chunk;
    uint32_t group, turn;
  } * slot;
  uint64_t mask;
  uint32_t turn;
};

static uint64_t insitu__plan_set_slots(uint64_t most) { /* at most half of them are ever taken */
  uint64_t n = 16;
  while (n < 2 * most) n *= 2;
  return n;
}

static bool insitu__plan_set_init(struct insitu__plan_set *s, uint64_t most) {
  uint64_t n = insitu__plan_set_slots(most);
  s->mask = n - 1;
  s->turn = 1;
  s->slot = (struct insitu__plan_set_slot *)insitu__mem_alloc(n, sizeof *s->slot);
  return s->slot != NULL;
}

static void insitu__plan_set_clear(struct insitu__plan_set *s) {
  if (++s->turn) return;
  memset(s->slot, 0, (s->mask + 1) * sizeof *s->slot);
  s->turn = 1;
}

/* True when (group, chunk) was not in the set; it is now. */
static bool insitu__plan_set_add(struct insitu__plan_set *s, uint32_t group, uint64_t chunk) {
  uint64_t i = insitu__order_mix(chunk ^ (uint64_t)group << 56) & s->mask;
  for (; s->slot[i].turn == s->turn; i = (i + 1) & s->mask)
    if (s->slot[i].chunk == chunk && s->slot[i].group == group) return false;
  s->slot[i] = (struct insitu__plan_set_slot){chunk, group, s->turn};
  return true;
}

/* At most how many different chunks one lane's window touches. */
static uint64_t insitu__plan_touched(const struct insitu__plan *p, const struct insitu__order *o) {
  uint64_t units = insitu__base_min(p->layout.window, insitu__base_min(p->part->units, o->lane_anchors)), most = 0, n;
  for (uint64_t i = 0; i < p->geometry->n_arrays; i++) {
    const struct insitu__geometry_array *a = &p->geometry->arrays[i];
    bool ok = insitu__base_mul(a->n_views, (p->split->unit_rows - 1) / a->rows + 2, &n) && insitu__base_mul(n, units, &n) &&
              insitu__base_add(most, n, &most);
    if (!ok) return UINT64_MAX;
  }
  return most;
}

struct insitu__plan_lane {
  struct insitu__order_window window;
  struct insitu__plan_set set;
};

enum insitu__plan_event { INSITU__PLAN_ROW, INSITU__PLAN_TILE, INSITU__PLAN_BATCH };

/* A cursor over one epoch of one rank. */
struct insitu__plan_scan {
  const struct insitu__plan *plan;
  const struct insitu__order *order;
  struct insitu__plan_lane *lane;    /* rank_lanes of them */
  uint64_t batch, row;               /* the row being scanned */
  int64_t anchor;                    /* what it shows */
  struct insitu__plan_lane *current; /* whose row it is */
  uint64_t next_array, next_view;    /* the view of it to look at next */
  uint64_t array, chunk, field;      /* the chunk touched last, and how many of its fields were named */
  bool row_open, tile_open;          /* views, or fields, are left */
};

/* Bytes that insitu__plan_scan_init takes; UINT64_MAX: more than it would. */
static uint64_t insitu__plan_scan_bytes(const struct insitu__plan *p, const struct insitu__order *o) {
  uint64_t touched = insitu__plan_touched(p, o);
  if (touched > INSITU__PLAN_MAX_SET) return UINT64_MAX;
  return p->layout.rank_lanes *
         (sizeof(struct insitu__plan_lane) + insitu__plan_set_slots(touched) * sizeof(struct insitu__plan_set_slot));
}

static void insitu__plan_scan_free(struct insitu__plan_scan *s) {
  for (uint64_t i = 0; s->lane && i < s->plan->layout.rank_lanes; i++) insitu__mem_free(s->lane[i].set.slot);
  insitu__mem_free(s->lane);
  s->lane = NULL;
}

/* Moves the cursor to a batch of an epoch, whose order the caller readied. */
static void insitu__plan_scan_seek(struct insitu__plan_scan *s, const struct insitu__order *o, uint64_t batch) {
  s->order = o;
  s->batch = batch;
  s->row = 0;
  s->row_open = s->tile_open = false;
  for (uint64_t i = 0; i < s->plan->layout.rank_lanes; i++) s->lane[i].window.begin = s->lane[i].window.end = 0;
}

static insitu_status insitu__plan_scan_init(
    struct insitu__plan_scan *s, const struct insitu__plan *p, const struct insitu__order *o, insitu_error *err) {
  uint64_t touched = insitu__plan_touched(p, o);
  memset(s, 0, sizeof *s);
  s->plan = p;
  s->lane = (struct insitu__plan_lane *)insitu__mem_alloc(p->layout.rank_lanes, sizeof *s->lane);
  bool ok = s->lane && touched <= INSITU__PLAN_MAX_SET;
  for (uint64_t i = 0; ok && i < p->layout.rank_lanes; i++) ok = insitu__plan_set_init(&s->lane[i].set, touched);
  if (!ok) {
    insitu__plan_scan_free(s);
    return insitu__error_set(err, INSITU_E_NOMEM,
        "iterator: no memory for windows of %" PRIu64 " units in %" PRIu64 " lanes; lower block_chunks", p->layout.window,
        p->layout.rank_lanes);
  }
  insitu__plan_scan_seek(s, o, 0);
  return INSITU_OK;
}

/* Finds the anchor at (batch, row); opens the lane's next window when the row lies beyond the present one. */
static void insitu__plan_scan_row(struct insitu__plan_scan *s) {
  const struct insitu__plan *p = s->plan;
  const struct insitu__plan_layout *l = &p->layout;
  s->current = &s->lane[s->row % l->rank_lanes];
  uint64_t lane = l->first_lane + s->row % l->rank_lanes, index = s->batch * l->lane_rows + s->row / l->rank_lanes;
  struct insitu__order_window *w = &s->current->window;
  if (index - w->offset >= w->end - w->begin) { /* also when index lies before it, and after a seek, which empties it */
    insitu__order_window_init(s->order, w, lane, insitu__order_lane_begin(s->order, lane) + index);
    insitu__plan_set_clear(&s->current->set);
  }
  struct insitu__order_place place;
  insitu__order_window_at(s->order, w, index, &place);
  s->anchor = insitu__split_unit_anchor(p->split, p->part, place.unit) + (int64_t)place.within;
  s->next_array = s->next_view = 0;
  s->row_open = true;
}

/* The next field of the touched chunk that some variable wants. */
static bool insitu__plan_scan_field(struct insitu__plan_scan *s) {
  const struct insitu__geometry *g = s->plan->geometry;
  const struct insitu__geometry_array *a = &g->arrays[s->array];
  uint64_t tile[INSITU__MAX_DIMS];
  while (++s->field < a->fields) { /* begins at UINT64_MAX */
    for (uint64_t v = 0; v < a->n_views; v++)
      if (insitu__geometry_field(a, &g->variables[a->views[v].variable], s->field, tile)) return true;
  }
  return false;
}

/* Looks at the row's next view; opens its chunk if the window touches it for the first time. */
static void insitu__plan_scan_touch(struct insitu__plan_scan *s) {
  const struct insitu__geometry_array *a = &s->plan->geometry->arrays[s->next_array];
  s->array = s->next_array;
  s->chunk = (uint64_t)(s->anchor + a->views[s->next_view].delta) / a->rows;
  s->field = UINT64_MAX;
  s->tile_open = insitu__plan_set_add(&s->current->set, (uint32_t)s->array, s->chunk);
  if (++s->next_view == a->n_views) {
    s->next_view = 0;
    s->next_array++;
  }
}

/* One step of the scan. ROW: row s->row of batch s->batch shows s->anchor. TILE: read (s->array, s->chunk, s->field) for the
 * window of s->current. BATCH: the batch before s->batch is scanned; the caller must not step past the epoch's last. */
static enum insitu__plan_event insitu__plan_scan_step(struct insitu__plan_scan *s) {
  for (;;) {
    if (s->tile_open) {
      if (insitu__plan_scan_field(s)) return INSITU__PLAN_TILE;
      s->tile_open = false;
    }
    if (s->row_open) {
      if (s->next_array < s->plan->geometry->n_arrays) {
        insitu__plan_scan_touch(s);
        continue;
      }
      s->row_open = false;
      s->row++;
    }
    if (s->row == insitu__plan_rows(s->plan, s->order, s->batch)) {
      s->batch++;
      s->row = 0;
      return INSITU__PLAN_BATCH;
    }
    insitu__plan_scan_row(s);
    return INSITU__PLAN_ROW;
  }
}

/* The last batch that a row of the window falls into. */
static uint64_t insitu__plan_last_batch(const struct insitu__plan *p, const struct insitu__order_window *w) {
  return (w->offset + (w->end - w->begin) - 1) / p->layout.lane_rows;
}

/* ---- from a chunk back to the rows that want it ---- */

/* Where the rows of one window are; unit is the one looked at last, so that neighbouring anchors cost one permutation each. */
struct insitu__plan_map {
  const struct insitu__plan *plan;
  const struct insitu__order *order;
  const struct insitu__order_window *window;
  struct insitu__split_unit unit;
  uint64_t sequence; /* of the unit's first anchor */
};

static void insitu__plan_map_init(struct insitu__plan_map *m, const struct insitu__plan *p, const struct insitu__order *o,
    const struct insitu__order_window *w) {
  memset(m, 0, sizeof *m);
  m->plan = p;
  m->order = o;
  m->window = w;
}

/* Batch and row (of this rank) that show the anchor; false when the window does not hold it. */
static bool insitu__plan_map_find(struct insitu__plan_map *m, int64_t anchor, uint64_t *batch, uint64_t *row) {
  const struct insitu__plan_layout *l = &m->plan->layout;
  if (anchor < m->unit.lo || anchor >= m->unit.hi) {
    m->unit = insitu__split_find(m->plan->split, m->plan->part, anchor);
    if (m->unit.unit != UINT64_MAX) m->sequence = insitu__order_unit_begin(m->order, m->unit.unit);
  }
  uint64_t index;
  if (m->unit.unit == UINT64_MAX ||
      !insitu__order_window_where(m->order, m->window, m->sequence + (uint64_t)(anchor - m->unit.lo), &index))
    return false;
  *batch = index / l->lane_rows;
  *row = index % l->lane_rows * l->rank_lanes + (m->window->lane - l->first_lane);
  return true;
}

/* Whether all anchors [lo, hi) lie in the unit looked at last, and that in the window: what most chunks are. */
static bool insitu__plan_map_holds(const struct insitu__plan_map *m, int64_t lo, int64_t hi) {
  uint64_t at = m->sequence + (uint64_t)(lo - m->unit.lo);
  return m->unit.unit != UINT64_MAX && lo >= m->unit.lo && hi <= m->unit.hi && at >= m->window->begin &&
         at + (uint64_t)(hi - lo) <= m->window->end;
}

/* Whether a window of this rank that comes before w holds one of the anchors [lo, hi): one that begins earlier in its lane, or as
 * early in a lower lane. Nothing is drawn from the mixers, so that a unit costs one permutation. */
static bool insitu__plan_before(
    const struct insitu__plan *p, const struct insitu__order *o, const struct insitu__order_window *w, int64_t lo, int64_t hi) {
  const struct insitu__plan_layout *l = &p->layout;
  for (struct insitu__split_unit u; lo < hi; lo = u.hi) {
    u = insitu__split_find(p->split, p->part, lo);
    if (u.unit == UINT64_MAX) continue;
    uint64_t rank = insitu__order_perm_bwd(&o->perm, u.unit), begin = insitu__order_rank_begin(o, rank);
    uint64_t at = begin + (uint64_t)(lo - u.lo), end = begin + (uint64_t)((u.hi < hi ? u.hi : hi) - u.lo);
    while (at < end) { /* a unit that a lane's end cuts goes on in the next lane */
      if (at >= w->begin && at < w->end) {
        at = w->end;
        continue;
      }
      uint64_t lane = insitu__order_divide(&o->by_lane_anchors, at);
      struct insitu__order_window other;
      if (lane >= l->lanes) break; /* dropped in this epoch */
      at = insitu__order_lane_end(o, lane);
      if (lane - l->first_lane >= l->rank_lanes) continue;
      insitu__order_window_range(o, &other, lane, rank);
      if (other.offset < w->offset || (other.offset == w->offset && lane < w->lane)) return true;
    }
  }
  return false;
}

/* The anchor at (batch, row of this rank); false when the epoch has no such row. */
static bool insitu__plan_locate(
    const struct insitu__plan *p, const struct insitu__order *o, uint64_t batch, uint64_t row, int64_t *anchor) {
  const struct insitu__plan_layout *l = &p->layout;
  struct insitu__order_place place;
  if (batch >= o->batches || row >= l->batch) return false;
  uint64_t index = batch * l->lane_rows + row / l->rank_lanes;
  if (!insitu__order_at(o, index * l->lanes + l->first_lane + row % l->rank_lanes, &place)) return false;
  *anchor = insitu__split_unit_anchor(p->split, p->part, place.unit) + (int64_t)place.within;
  return true;
}

/* ---- what an epoch costs ---- */

struct insitu__plan_count {
  uint64_t reads, bytes, wanted;
};

/* Adds the chunks that one unit's anchors [lo, hi) touch for the first time in the window: shared holds (array, chunk), alone
 * (view, chunk). */
static void insitu__plan_count_unit(const struct insitu__geometry *g, struct insitu__plan_set *shared,
    struct insitu__plan_set *alone, const uint64_t *fields, int64_t lo, int64_t hi, struct insitu__plan_count *n) {
  uint32_t view = 0;
  for (uint64_t i = 0; i < g->n_arrays; i++) {
    const struct insitu__geometry_array *a = &g->arrays[i];
    for (uint64_t v = 0; v < a->n_views; v++, view++) {
      uint64_t first = (uint64_t)(lo + a->views[v].delta) / a->rows, last = (uint64_t)(hi - 1 + a->views[v].delta) / a->rows;
      for (uint64_t c = first; c <= last; c++) {
        if (insitu__plan_set_add(alone, view, c)) n->wanted += fields[g->n_arrays + a->views[v].variable];
        if (!insitu__plan_set_add(shared, (uint32_t)i, c)) continue;
        n->reads += fields[i];
        n->bytes += fields[i] * a->chunk_bytes;
      }
    }
  }
}

/* Counts one window and returns one past its last index in the lane. */
static uint64_t insitu__plan_count_window(const struct insitu__plan *p, const struct insitu__order *o, uint64_t lane,
    uint64_t index, struct insitu__plan_set set[2], const uint64_t *fields, struct insitu__plan_count *n) {
  struct insitu__order_window w;
  insitu__order_window_init(o, &w, lane, insitu__order_lane_begin(o, lane) + index);
  insitu__plan_set_clear(&set[0]);
  insitu__plan_set_clear(&set[1]);
  for (uint64_t a = w.begin; a < w.end;) {
    uint64_t rank = insitu__order_rank_of(o, a), begin = insitu__order_rank_begin(o, rank);
    uint64_t end = insitu__base_min(w.end, insitu__order_rank_begin(o, rank + 1));
    int64_t first = insitu__split_unit_anchor(p->split, p->part, insitu__order_perm_fwd(&o->perm, rank));
    insitu__plan_count_unit(
        p->geometry, &set[0], &set[1], fields, first + (int64_t)(a - begin), first + (int64_t)(end - begin), n);
    a = end;
  }
  return w.offset + (w.end - w.begin);
}

/* How many fields of a chunk are read, per array and then per variable. */
static uint64_t *insitu__plan_fields(const struct insitu__geometry *g) {
  uint64_t *fields = (uint64_t *)insitu__mem_alloc(g->n_arrays + g->n_variables, sizeof *fields), tile[INSITU__MAX_DIMS];
  for (uint64_t i = 0; fields && i < g->n_arrays; i++) {
    const struct insitu__geometry_array *a = &g->arrays[i];
    for (uint64_t f = 0; f < a->fields; f++) {
      bool any = false;
      for (uint64_t v = 0; v < g->n_variables; v++) {
        if (g->variables[v].array != i || !insitu__geometry_field(a, &g->variables[v], f, tile)) continue;
        fields[g->n_arrays + v]++;
        any = true;
      }
      fields[i] += any;
    }
  }
  return fields;
}

/* Different chunks, fields included, that the whole split needs. */
static bool insitu__plan_distinct(const struct insitu__plan *p, const uint64_t *fields, uint64_t *out) {
  bool ok = true;
  *out = 0;
  for (uint64_t i = 0; ok && i < p->geometry->n_arrays; i++) {
    const struct insitu__geometry_array *a = &p->geometry->arrays[i];
    uint64_t segments = insitu__split_count(&p->part->segments), next = 0, last = 0;
    if (a->n_views * segments > INSITU__PLAN_EXACT_UNITS) { /* many short segments: count what the ranges cover instead */
      *out += fields[i] * a->chunks;
      continue;
    }
    struct insitu__split_interval *all = (struct insitu__split_interval *)insitu__mem_alloc(a->n_views * segments, sizeof *all);
    ok = all != NULL;
    for (uint64_t v = 0; ok && v < a->n_views; v++)
      for (uint64_t s = 0; s < segments; s++) {
        struct insitu__split_interval seg = p->part->segments.at[s];
        all[next].lo = (seg.lo + a->views[v].delta) / (int64_t)a->rows;
        all[next++].hi = (seg.hi - 1 + a->views[v].delta) / (int64_t)a->rows + 1;
      }
    if (ok) qsort(all, (size_t)next, sizeof *all, insitu__geometry_compare); /* by lo, which is their first member */
    for (uint64_t k = 0; ok && k < next; k++) {
      uint64_t lo = insitu__base_max((uint64_t)all[k].lo, last), hi = (uint64_t)all[k].hi;
      if (hi > lo) *out += fields[i] * (hi - lo);
      last = insitu__base_max(last, hi);
    }
    insitu__mem_free(all);
  }
  return ok;
}

/* Reads of an epoch of this rank: exact for small epochs, else from evenly spaced windows of each lane. */
static insitu_status insitu__plan_cost(
    const struct insitu__plan *p, const struct insitu__order *o, insitu_plan *out, insitu_error *err) {
  const struct insitu__plan_layout *l = &p->layout;
  struct insitu__plan_set set[2] = {{0}};
  uint64_t *fields = insitu__plan_fields(p->geometry), touched = insitu__plan_touched(p, o), seen = 0, distinct = 0;
  bool ok = fields && touched <= INSITU__PLAN_MAX_SET && insitu__plan_set_init(&set[0], touched) &&
            insitu__plan_set_init(&set[1], touched) && insitu__plan_distinct(p, fields, &distinct);
  struct insitu__plan_count n = {0};
  uint64_t rows = 0;
  for (uint64_t k = 0; k < l->rank_lanes; k++) rows += insitu__order_rows(o, l->first_lane + k);
  uint64_t per_window = insitu__base_max(1, touched / insitu__base_max(1, l->window)); /* chunks of a unit */
  bool exact = p->part->units / l->world <= INSITU__PLAN_EXACT_UNITS / per_window;
  uint64_t per_lane = insitu__base_max(1, INSITU__PLAN_SAMPLED_WINDOWS / l->rank_lanes);
  for (uint64_t k = 0; ok && k < l->rank_lanes; k++) {
    uint64_t lane = l->first_lane + k, lane_rows = insitu__order_rows(o, lane);
    for (uint64_t i = 0, turn = 0; i < lane_rows; turn++) {
      uint64_t next = insitu__plan_count_window(p, o, lane, i, set, fields, &n);
      seen += next - i;
      i = exact ? next : insitu__base_max(next, lane_rows / per_lane * (turn + 1));
      if (!exact && i != next && i < lane_rows) { /* begin at a window's begin */
        struct insitu__order_window w;
        insitu__order_window_init(o, &w, lane, insitu__order_lane_begin(o, lane) + i);
        i = w.offset;
      }
    }
  }
  insitu__mem_free(fields);
  insitu__mem_free(set[0].slot);
  insitu__mem_free(set[1].slot);
  if (!ok)
    return insitu__error_set(
        err, INSITU_E_NOMEM, "plan: no memory for windows of %" PRIu64 " units; lower block_chunks", l->window);
  double scale = seen && !exact ? (double)rows / (double)seen : 1;
  out->estimated = !exact;
  out->reads = exact ? n.reads : (uint64_t)((double)n.reads * scale);
  out->wanted = exact ? n.wanted : (uint64_t)((double)n.wanted * scale);
  out->read_bytes = exact ? n.bytes : (uint64_t)((double)n.bytes * scale);
  out->distinct = insitu__base_ceil_div(distinct, l->world);
  out->amplification = out->distinct ? (double)out->reads / (double)out->distinct : 1;
  out->dedup = out->reads ? (double)out->wanted / (double)out->reads : 1;
  return INSITU_OK;
}

/* Fills all of an insitu_plan but what concerns memory. */
static insitu_status insitu__plan_describe(const struct insitu__plan *p, insitu_plan *out, insitu_error *err) {
  const struct insitu__plan_layout *l = &p->layout;
  struct insitu__order o;
  insitu_status status = insitu__plan_order(p, 0, &o, err);
  if (status) return status;
  memset(out, 0, sizeof *out);
  out->order_version = INSITU_ORDER_VERSION;
  out->samples = p->part->anchors;
  out->batches = o.batches;
  out->rows = l->sequential ? insitu__order_rows(&o, l->first_lane) : o.batches * l->batch;
  out->dropped_edge = p->part->dropped;
  out->dropped_tail = l->sequential ? 0 : p->part->anchors % l->global_batch;
  out->units = p->part->units;
  out->unit_rows = p->split->unit_rows;
  out->lanes = l->lanes;
  out->window = l->window;
  out->span = insitu__order_span(&o);
  out->table_bytes = insitu__plan_scan_bytes(p, &o); /* >>loader adds its own */
  /* The law is 1 + (B/L - 1)(S - 1)/(W S - 1) for B/L rows of a lane in a batch and W units of S rows in a window. Windows are
   * drawn without replacement from the lane's units, which takes the share W / units off the excess. */
  double rows = (double)out->unit_rows, lane_units = (double)out->units / (double)l->lanes, window = (double)l->window;
  if (!l->sequential)
    out->variance_ratio = window >= lane_units || window * rows <= 1
                              ? 1
                              : 1 + ((double)l->lane_rows - 1) * (rows - 1) / (window * rows - 1) * (1 - window / lane_units);
  status = insitu__plan_cost(p, &o, out, err);
  insitu__order_free(&o);
  return status;
}

/* ---- how good the shuffle is ---- */
static insitu_status insitu__plan_quality(const struct insitu__plan *p, uint64_t epoch, insitu_quality *out, insitu_error *err) {
  struct insitu__order o;
  insitu_status status = insitu__plan_order(p, epoch, &o, err);
  if (status) return status;
  uint64_t g = p->layout.global_batch, batches = insitu__base_min(o.batches, insitu__base_max(1, INSITU__PLAN_QUALITY_ROWS / g)),
           full = 0;
  double n = (double)p->part->anchors, mean = (n - 1) / 2, square = 0, gap = 0, last = 0;
  memset(out, 0, sizeof *out);
  for (uint64_t batch = 0; batch < batches; batch++) {
    uint64_t rows = 0;
    double sum = 0;
    for (uint64_t i = 0; i < g; i++) {
      struct insitu__order_place place;
      if (!insitu__order_at(&o, batch * g + i, &place)) continue; /* the end of a sequential lane */
      int64_t anchor = insitu__split_unit_anchor(p->split, p->part, place.unit) + (int64_t)place.within;
      struct insitu__split_unit u = insitu__split_find(p->split, p->part, anchor);
      /* source rank: how many of the split's anchors lie before it in the archive */
      double rank = (double)(p->part->anchor_first[u.segment] + (uint64_t)(anchor - p->part->segments.at[u.segment].lo));
      double step = rank > last ? rank - last : last - rank;
      if (out->rows++) {
        gap += step;
        out->adjacent += step == 1;
      }
      last = rank;
      sum += rank - mean;
      rows++;
    }
    if (rows < g) continue;
    square += sum / (double)g * (sum / (double)g);
    full++;
  }
  double variance = (n * n - 1) / 12; /* of 0 .. n-1 */
  out->variance_ratio = full && n > (double)g ? (double)g * (square / (double)full) / variance * (n - 1) / (n - (double)g) : 1;
  out->gap_score = out->rows > 1 ? gap / (double)(out->rows - 1) / (n / 3) : 1;
  insitu__order_free(&o);
  return INSITU_OK;
}

/* >>cache ------------------------------------------------------------------------------------------------------------------ */
/* What is kept between reads: the indexes of shards. One is read once however many coroutines want it at the same time, and stays
 * until its memory is needed for another. Owns its memory, all of it taken at init. Reactor thread only; the _await functions
 * suspend. */
#define INSITU__CACHE_SLOTS (1u << 20) /* at most */
#define INSITU__CACHE_NONE UINT32_MAX
#define INSITU__CACHE_CHECK (64u << 10) /* bytes of an index from which a worker checks it: 5 us and more */

struct insitu__cache_slot {
  const struct insitu__zarr_array *array; /* whose index: of shard number `cell` in the grid of the array's level; NULL: free */
  uint64_t cell;
  unsigned level;
  uint32_t next; /* in its bucket */
  bool loading, used, absent;
  struct insitu__reactor_gate loaded;
};
struct insitu__cache {
  struct insitu__reactor *reactor;
  struct insitu__store *store;
  struct insitu__cache_slot *slot;
  uint32_t *bucket, n_slots, mask, hand; /* hand: of the clock that looks for a slot to give up */
  uint64_t slot_bytes;
  atomic_uint_least64_t loads, read; /* indexes read, bytes of them */
  unsigned char *memory;             /* slot_bytes for each */
};

static uint32_t insitu__cache_buckets(uint32_t slots) {
  uint32_t n = 16;
  while (n < slots) n *= 2;
  return n;
}
/* Bytes that a cache of so many slots takes; saturates. */
static uint64_t insitu__cache_bytes(uint32_t slots, uint64_t slot_bytes) {
  uint64_t bytes;
  if (!slots) return 0;
  return insitu__base_mul(slots, slot_bytes + sizeof(struct insitu__cache_slot) + 2 * sizeof(uint32_t), &bytes) ? bytes
                                                                                                                : UINT64_MAX;
}
static void insitu__cache_free(struct insitu__cache *c) {
  insitu__mem_unmap(c->memory, c->n_slots * c->slot_bytes);
  insitu__mem_free(c->slot);
  insitu__mem_free(c->bucket);
  memset(c, 0, sizeof *c);
}
/* As many slots as coroutines that look for an index at once, or more: then one to give up is always found. */
static bool insitu__cache_init(struct insitu__cache *c, struct insitu__reactor *reactor, struct insitu__store *store,
    uint32_t slots, uint64_t slot_bytes) { /* false: no memory */
  memset(c, 0, sizeof *c);
  c->reactor = reactor;
  c->store = store;
  c->n_slots = slots;
  c->slot_bytes = slot_bytes;
  if (!slots) return true;
  uint32_t buckets = insitu__cache_buckets(slots);
  c->mask = buckets - 1;
  c->slot = (struct insitu__cache_slot *)insitu__mem_alloc(slots, sizeof *c->slot);
  c->bucket = (uint32_t *)insitu__mem_alloc(buckets, sizeof *c->bucket);
  c->memory = (unsigned char *)insitu__mem_map(slots * slot_bytes);
  if (!c->slot || !c->bucket || !c->memory) {
    insitu__cache_free(c);
    return false;
  }
  memset(c->bucket, 0xff, buckets * sizeof *c->bucket); /* INSITU__CACHE_NONE */
  return true;
}

static uint32_t *insitu__cache_bucket(
    struct insitu__cache *c, const struct insitu__zarr_array *a, unsigned level, uint64_t cell) {
  return &c->bucket[insitu__order_mix(insitu__order_mix(cell ^ (uint64_t)level << 56) ^ (uintptr_t)a) & c->mask];
}
static struct insitu__cache_slot *insitu__cache_find(
    struct insitu__cache *c, const struct insitu__zarr_array *a, unsigned level, uint64_t cell) {
  for (uint32_t i = *insitu__cache_bucket(c, a, level, cell); i != INSITU__CACHE_NONE; i = c->slot[i].next)
    if (c->slot[i].array == a && c->slot[i].cell == cell && c->slot[i].level == level) return &c->slot[i];
  return NULL;
}
static void insitu__cache_drop(struct insitu__cache *c, struct insitu__cache_slot *slot) {
  uint32_t *link = insitu__cache_bucket(c, slot->array, slot->level, slot->cell), i = (uint32_t)(slot - c->slot);
  while (*link != i) link = &c->slot[*link].next;
  *link = slot->next;
  slot->array = NULL;
}
/* A slot for a new index: a free one, or one that was not used since the clock last came by. */
static struct insitu__cache_slot *insitu__cache_take(
    struct insitu__cache *c, const struct insitu__zarr_array *a, unsigned level, uint64_t cell) {
  struct insitu__cache_slot *slot;
  for (;;) {
    slot = &c->slot[c->hand];
    c->hand = (c->hand + 1) % c->n_slots;
    if (slot->loading) continue;
    if (!slot->array || !slot->used) break;
    slot->used = false;
  }
  if (slot->array) insitu__cache_drop(c, slot);
  uint32_t *bucket = insitu__cache_bucket(c, a, level, cell);
  *slot = (struct insitu__cache_slot){.array = a, .cell = cell, .level = level, .next = *bucket, .loading = true, .used = true};
  *bucket = (uint32_t)(slot - c->slot);
  return slot;
}

struct insitu__cache_check { /* lives on its coroutine's stack */
  const struct insitu__codec_shard *shard;
  const void *index;
  uint64_t n;
  insitu_status status;
  insitu_error *err;
};
static void insitu__cache_check(void *arg, unsigned worker) {
  struct insitu__cache_check *check = (struct insitu__cache_check *)arg;
  (void)worker;
  check->status = insitu__codec_shard_index(check->shard, check->index, check->n, check->err);
}
/* Reads the index of a shard that is bytes [offset, offset + bytes) of an object; bytes UINT64_MAX: the whole object. */
static insitu_status insitu__cache_load_await(struct insitu__cache *c, const struct insitu__codec_shard *shard, const char *key,
    uint64_t offset, uint64_t bytes, unsigned char *to, insitu_error *err) {
  uint64_t n = insitu__codec_shard_index_bytes(shard), got;
  if (bytes < n) return insitu__codec_shard_index(shard, to, bytes, err); /* refuses */
  if (!shard->index_first) offset = bytes == UINT64_MAX ? INSITU__RING_TAIL : offset + bytes - n;
  struct iovec iov = {to, (size_t)n};
  c->loads++;
  insitu_status status = insitu__store_read_await(c->store, key, offset, &iov, 1, &got, err);
  c->read += got;
  if (status < 0) return status;
  struct insitu__cache_check check = {shard, to, got, INSITU_OK, err};
  if (n < INSITU__CACHE_CHECK) insitu__cache_check(&check, 0);
  else insitu__reactor_work_await(c->reactor, insitu__cache_check, &check);
  return check.status;
}
/* *index becomes a shard's index, valid until the caller suspends; INSITU_E_NOTFOUND when the object is absent. */
static insitu_status insitu__cache_index_await(struct insitu__cache *c, const struct insitu__zarr_array *a, unsigned level,
    uint64_t cell, const char *key, uint64_t offset, uint64_t bytes, const unsigned char **index, insitu_error *err) {
  struct insitu__cache_slot *slot;
  while ((slot = insitu__cache_find(c, a, level, cell)) && slot->loading) insitu__reactor_gate_await(c->reactor, &slot->loaded);
  insitu_status status = INSITU_OK;
  unsigned char *memory = slot ? c->memory + (uint64_t)(slot - c->slot) * c->slot_bytes : NULL;
  if (!slot) {
    slot = insitu__cache_take(c, a, level, cell);
    memory = c->memory + (uint64_t)(slot - c->slot) * c->slot_bytes;
    status = insitu__cache_load_await(c, a->level[level].shard, key, offset, bytes, memory, err);
    slot->loading = false;
    slot->absent = status == INSITU_E_NOTFOUND;
    if (status < 0 && !slot->absent) insitu__cache_drop(c, slot);
    insitu__reactor_gate_open(&slot->loaded);
  }
  slot->used = true;
  *index = memory;
  return slot->absent ? INSITU_E_NOTFOUND : status;
}

/* Where tile `tile` (its place in the grid of the array's chunks) lies in the object of this key: INSITU_E_NOTFOUND when it or its
 * shard is absent. For arrays with levels. */
static insitu_status insitu__cache_locate_await(struct insitu__cache *c, const struct insitu__zarr_array *a, const uint64_t *tile,
    const char *key, uint64_t *offset, uint64_t *bytes, insitu_error *err) {
  *offset = 0;
  *bytes = UINT64_MAX;
  for (unsigned l = 0; l < a->n_levels; l++) {
    const struct insitu__zarr_level *level = &a->level[l];
    uint64_t cell = 0, number = 0, extent[INSITU__MAX_DIMS], inner_offset, inner_bytes;
    const unsigned char *index;
    for (unsigned k = 0; k < a->ndim; k++) {
      unsigned d = level->axis[k];
      extent[d] = level->shard->chunk[k];
      number = number * (extent[d] / level->shard->inner[k]) + tile[d] * a->chunk[d] % extent[d] / level->shard->inner[k];
    }
    for (unsigned d = 0; d < a->ndim; d++)
      cell = cell * insitu__base_ceil_div(a->shape[d], extent[d]) + tile[d] * a->chunk[d] / extent[d];
    insitu_status status = insitu__cache_index_await(c, a, l, cell, key, *offset, *bytes, &index, err);
    if (status >= 0) status = insitu__codec_shard_entry(level->shard, index, number, *bytes, &inner_offset, &inner_bytes, err);
    if (status < 0) return status;
    if (inner_bytes == UINT64_MAX) return INSITU_E_NOTFOUND;
    *offset += inner_offset;
    *bytes = inner_bytes;
  }
  return INSITU_OK;
}

/* What a shard is that is not found when its index was. */
static insitu_status insitu__cache_gone(insitu_error *err) {
  insitu__error_clear(err);
  return insitu__error_set(
      err, INSITU_E_CORRUPT, "the shard has gone since its index was read; the archive must not change while it is open");
}

/* >>loader ----------------------------------------------------------------------------------------------------------------- */
/* A loader: runtime (reactor, workers, budget) and dataset (store, geometry, split). An iterator: a pass over epochs with its own
 * ring of slabs.
 *
 * Threads. The reactor thread scans, starts a coroutine for each chunk, or for a bunch of small ones that a worker tries first, and
 * places slabs. Workers read what the page cache holds, decode, scatter and count slabs
 * down. The user's thread takes ready slabs. An iterator's lock guards what the user's thread and the reactor share; whatever a
 * worker reads of an iterator was written before its chunk was started, and stays until the iterator has no chunk in flight.
 *
 * Batches carry a running number: epoch * batches + index. An undelivered batch lies in ring[number % n_ring]. */
#define INSITU__LOADER_IOV 1024 /* rows of a chunk that is read straight into batches; more go through a buffer. IOV_MAX */
/* Bytes of batches that prefetch_depth aims at by default. Measured on batches and raw chunks of 0.5 MB, 2 cores: 16 batches
 * ahead reach 0.51 of the bare loop, 64 reach 0.76. */
#define INSITU__LOADER_AHEAD (32u << 20)
/* Chunks of at most so many bytes are small: max_inflight is 64 for each thread then, at most 256. Half as many reach 0.75 of the
 * bare loop on chunks of 16 KiB, these 0.79. */
#define INSITU__LOADER_SMALL (64u << 10)
/* Bytes of chunk buffers that max_inflight aims at by default. Measured on blosc chunks of 4 MB, 2 cores: 32 in flight reach 0.91
 * of the bare loop, 8 reach 1.00. */
#define INSITU__LOADER_BUFFERS (32u << 20)
#define INSITU__LOADER_DIRECT 2048 /* bytes of a row from which reading straight into batches beats a copy */
/* Chunks of at most so many encoded bytes are first tried by a worker with what the caches hold, up to so many chunks or bytes in
 * one job: system calls are then cheaper than turns of the reactor, and all cores make them. Measured on chunks of 16 and of
 * 128 KiB, 2 cores: 0.47 and 0.66 of the bare loop without, 0.79 and 0.9 with it. */
#define INSITU__LOADER_TRIED (1u << 20)
#define INSITU__LOADER_BUNCH 16
#define INSITU__LOADER_BUNCH_BYTES (1u << 20)
#define INSITU__LOADER_MISSED 256 /* chunks that are not tried after a bunch that mostly was not in the caches */
/* Inner chunks of a shard at most so many bytes apart are read at once, until the read has so many bytes. Measured from the page
 * cache on whole fields of 4 x 4 inner chunks of 16 KiB, 2 busy cores: without it the throughput is 0.74 (raw) and 0.83 (blosc)
 * times as high. Gaps of 11 KiB cost in processor time what they save, those of 32 KiB 1.16 times as much. Runs of 256 KiB to
 * 4 MiB differ by less than the noise. */
#define INSITU__LOADER_GAP (16u << 10)
#define INSITU__LOADER_RUN (1u << 20)
/* The same of a remote store, where a request costs a round trip and gaps are dropped as they arrive: at most a quarter of what is
 * wanted. object_store merges over gaps of 1 MiB, zarr-python 3 up to 16 MiB at once. */
#define INSITU__LOADER_FAR_GAP (128u << 10)
#define INSITU__LOADER_FAR_RUN (8u << 20)
/* Of a remote store: requests under way by default, and bytes that the defaults of max_inflight and prefetch_depth aim at. They
 * hide latency. */
#define INSITU__LOADER_FAR 64
#define INSITU__LOADER_FAR_BYTES (256u << 20)
#ifndef INSITU_WATCHDOG_S
#define INSITU_WATCHDOG_S 30
#endif
#define INSITU__LOADER_NEXT_BUCKETS 976 /* of insitu__loader_bucket: 61 octaves of 16 */

struct insitu__loader_slab {
  insitu_batch batch; /* first: what the user holds */
  insitu_iter *iter;
  struct insitu__loader_slab *next; /* in the free list */
  unsigned char *memory;            /* mapped at first use */
  uint64_t number, rows;
  bool held;                     /* by the user; under the iterator's lock */
  bool checked;                  /* or need not be (desc.check); under the iterator's lock */
  atomic_uint_least64_t pending; /* parts to come, and one more until every row is scanned */
  insitu_array *arrays;
  int64_t *shapes; /* per array: shape, whose first entry is this batch's rows, then strides */
};

struct insitu__loader_tile { /* one chunk on its way; owned by its coroutine, lent to a worker while that tries or decodes it */
  insitu_loader *loader;
  insitu_iter *iter;
  struct insitu__loader_tile *next;
  const struct insitu__order *order;
  struct insitu__order_window window;
  uint64_t array, chunk, field, base; /* base: number of the epoch's first batch */
  uint64_t number;                    /* of the batch whose row touched it first */
  struct insitu__box *box;            /* per variable of the loader; those of this array that want the field are set */
  bool *wanted;                       /* per variable */
  struct iovec *iov;
  unsigned char *buffer; /* encoded bytes; mapped at first use */
  uint64_t got;          /* bytes read */
  /* of an inner chunk of a shard: [at, at + want) of an object, read together with its neighbours */
  uint64_t object, at, want; /* object: its number in the grid of the array's */
  unsigned n_iov;
  struct iovec *run_iov;            /* of a head's read */
  struct insitu__loader_tile *run;  /* the neighbour that follows */
  bool head;                        /* reads for itself and the run behind it */
  struct insitu__reactor_gate turn; /* opens for a head to read, for the others when that is done */
  uint64_t first, last;             /* rows of the chunk that some batch wants lie in [first, last) */
  unsigned worker;                  /* whose scratch */
  bool done;                        /* all of it is done: a worker found the chunk in the caches */
  const char *damaged;              /* insitu__loader_fill: the chunk's key if it is not just absent */
  bool ranged;                      /* rows were looked for, and a re-read counted */
  atomic_int stage;                 /* what the watchdog tells */
  const char *key;                  /* on the coroutine's stack; NULL until it is known */
  int64_t began, spent;             /* when it was started; nanoseconds from its first read to its last row, for the debug log */
  insitu_status status;
  insitu_error error;
};

struct insitu__loader_scratch { /* one per worker */
  struct insitu__codec_scratch codec;
  unsigned char *whole; /* a decoded chunk whose rows do not follow each other; mapped at first use */
};

struct insitu__loader_block { /* copies of the desc's strings and arrays */
  struct insitu__loader_block *next;
};

/* The stages of a tile, IDLE while it is in the loader's free list. */
enum { INSITU__LOADER_IDLE, INSITU__LOADER_WAITING, INSITU__LOADER_READING, INSITU__LOADER_DECODING };

struct insitu__loader_tally { /* of one epoch of an iterator, for its line in the log */
  atomic_uint_least64_t rereads, holes;
};

struct insitu__loader_lap { /* what the user's thread saw of the epoch under way */
  int64_t began;
  uint64_t stall, busy, batches, bytes; /* busy: of the workers, when it began */
};

struct insitu_iter {
  insitu_loader *loader;
  insitu_iter *next_iter; /* the loader's list: reactor thread */
  struct insitu__plan plan;
  int split;
  pid_t pid;
  uint64_t batches, n_ring, n_slabs, slab_bytes, reserved, tables; /* reserved: of memory_budget; tables: of that */
  char *names;                                                     /* the arrays' names: batches outlive the loader */
  struct insitu__order order[2];                                   /* of an even and an odd epoch */
  struct insitu__loader_slab *slabs, **ring;
  struct insitu__loader_tally tally[4]; /* by epoch & 3: one that is not told as ended, and those that the scan may be in */
  struct insitu__loader_lap lap;        /* the user's thread */
  /* reactor thread */
  struct insitu__plan_scan scan;
  uint64_t scan_epoch;
  uint64_t inflight[2]; /* chunks of an even and an odd epoch */
  bool stopping;
  struct insitu__reactor_gate idle; /* opens when stopping and nothing is in flight */
  /* under lock */
  pthread_mutex_t lock;
  pthread_cond_t news;
  struct insitu__loader_slab *free;
  uint64_t next, assigned; /* next batch to deliver; one past the last that has a slab */
  uint64_t start;          /* where the scan began: earlier batches are nobody's. Changes only while nothing is in flight */
  uint64_t told;           /* the boundary between epochs that END was returned for */
  uint64_t begun;          /* the boundary that the user passed by calling again: what hold_epoch waits for */
  uint64_t held, max_held, alive; /* alive: slabs with memory */
  uint64_t bad;                   /* number of the first damaged batch, UINT64_MAX if none */
  insitu_error error;             /* what damaged it */
  bool failed, closed;
};

struct insitu_loader {
  insitu_loader_desc config; /* resolved; points to copies */
  struct insitu__loader_block *blocks;
  struct insitu__codec_hooks hooks;
  pid_t pid;
  pthread_t opener;
  struct insitu__reactor reactor;
  bool running; /* the reactor */
  struct insitu__store store;
  struct insitu__zarr_group group;
  struct insitu__geometry geometry;
  struct insitu__split split;
  insitu_array *arrays; /* what insitu_loader_array returns */
  struct insitu__loader_scratch *scratch;
  struct insitu__loader_tile *tiles, *free; /* free: reactor thread */
  struct insitu__cache cache;
  struct insitu__loader_tile *gathered, *gathered_last; /* inner chunks to be read, by array, object and place */
  bool gathering;
  struct insitu__loader_tile *bunch, *bunch_last; /* small chunks that the next job tries */
  unsigned n_bunch, n_missed;                     /* of them; tiles that go without trying, since others were not in the caches */
  uint64_t bunch_bytes;
  uint64_t few; /* the scan waits for so many free tiles: neighbours in a shard then come together */
  uint64_t buffer_bytes, whole_bytes, inflight_bytes, cache_slots, slot_bytes, cache_bytes;
  insitu_iter *iters; /* reactor thread */
  uint64_t inflight;
  uint64_t n_done;                 /* chunks that are through */
  int64_t pump_now;                /* the time, once a pump has asked for it */
  struct insitu__reactor_gate any; /* opens when a chunk is started and none was in flight */
  bool overdue;                    /* the watchdog's word to the pump */
  pthread_mutex_t lock;            /* of changes to reserved and tables */
  atomic_uint_least64_t reserved;  /* of memory_budget, by iterators */
  atomic_uint_least64_t tables;    /* of that, tables */
  int64_t opened;                  /* monotonic nanoseconds */
  int64_t left, away;              /* inline_io: when next returned last; nanoseconds spent outside it */
  bool inside;                     /* inline_io: next is running */
  unsigned char origin[32];        /* per entry of insitu__loader_fields: INSITU__LOADER_FROM_... */
  atomic_bool cancelled;
  /* counters: relaxed */
  atomic_uint_least64_t n_batches, n_rows, n_reads, n_rereads, n_requests, n_read, n_decoded, n_absent, n_bad, slab_now,
      slab_peak, memory_now, memory_peak, inflight_peak, stall, first_batch, n_checked;
  atomic_uint_least64_t first_next, busy_before; /* when next was first called, and how busy the workers had been until then */
  atomic_uint_least64_t next_max, next_in[INSITU__LOADER_NEXT_BUCKETS]; /* calls of next by how long they took */
};

/* ---- counters and log ---- */

static void insitu__loader_add(atomic_uint_least64_t *counter, uint64_t n) {
  atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t insitu__loader_get(const atomic_uint_least64_t *counter) {
  return atomic_load_explicit(counter, memory_order_relaxed);
}

static void insitu__loader_peak(atomic_uint_least64_t *peak, uint64_t now) {
  uint64_t seen = insitu__loader_get(peak);
  while (now > seen && !atomic_compare_exchange_weak_explicit(peak, &seen, now, memory_order_relaxed, memory_order_relaxed))
    continue;
}

static void insitu__loader_memory(insitu_loader *ld, uint64_t bytes) { /* that were mapped or allocated */
  uint64_t now = atomic_fetch_add_explicit(&ld->memory_now, bytes, memory_order_relaxed) + bytes;
  insitu__loader_peak(&ld->memory_peak, now);
}

/* Log-linear: 16 buckets an octave, so that a bucket's middle is within 1/32 of all that falls into it. */
static unsigned insitu__loader_bucket(uint64_t ns) {
  if (ns < 16) return (unsigned)ns;
  unsigned octave = 63 - (unsigned)__builtin_clzll(ns);
  return (octave - 3) * 16 + (unsigned)(ns >> (octave - 4) & 15);
}
static double insitu__loader_bucket_middle(unsigned bucket) {
  unsigned shift = bucket < 16 ? 0 : bucket / 16 - 1;
  uint64_t low = bucket < 16 ? bucket : (uint64_t)(16 + bucket % 16) << shift;
  return (double)low + ((double)(UINT64_C(1) << shift) - 1) / 2;
}

static void insitu__loader_next_took(insitu_loader *ld, uint64_t ns) {
  insitu__loader_add(&ld->next_in[insitu__loader_bucket(ns)], 1);
  insitu__loader_peak(&ld->next_max, ns);
}

/* What the given shares of the calls did not exceed, in nanoseconds; share ascends. */
static void insitu__loader_percentiles(const insitu_loader *ld, const double *share, double *out, int n) {
  uint64_t count[INSITU__LOADER_NEXT_BUCKETS], total = 0, seen = 0, most = insitu__loader_get(&ld->next_max);
  for (unsigned b = 0; b < INSITU__LOADER_NEXT_BUCKETS; b++) total += count[b] = insitu__loader_get(&ld->next_in[b]);
  unsigned b = 0;
  for (int i = 0; i < n; i++) {
    while (total && (double)(seen + count[b]) < share[i] * (double)total) seen += count[b++];
    out[i] = total ? insitu__loader_bucket_middle(b) : 0;
    if (out[i] > (double)most) out[i] = (double)most;
  }
}

static int32_t insitu__loader_stage(uint64_t batches, double stall_share, double decode_busy) { /* see insitu_stats */
  if (!batches) return INSITU_STAGE_NONE;
  if (stall_share < 0.05) return INSITU_STAGE_CONSUMER;
  return decode_busy > 0.8 ? INSITU_STAGE_DECODE : INSITU_STAGE_READ;
}

static double insitu__loader_share(uint64_t part, double whole) { /* at most 1; 0 of nothing */
  return whole <= 0 ? 0 : (double)part < whole ? (double)part / whole : 1;
}

/* The share of the workers' time that they were busy for. Inline there is one, which exists inside next alone. */
static double insitu__loader_busy_share(const insitu_loader *ld, uint64_t busy, uint64_t elapsed, uint64_t stall) {
  return insitu__loader_share(busy, ld->config.inline_io ? (double)stall : (double)elapsed * (double)ld->config.decode_threads);
}

static bool insitu__loader_logs(const insitu_loader *ld, int level) {
  return level < ld->config.log_level && (ld->config.log || ld->config.rank == 0);
}

__attribute__((format(printf, 3, 4))) static void insitu__loader_log(insitu_loader *ld, int level, const char *format, ...) {
  char line[1200];
  va_list args;
  if (!insitu__loader_logs(ld, level)) return;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (ld->config.log) ld->config.log(ld->config.log_user, level, line);
  else fprintf(stderr, "insitubatch: %s\n", line);
}

/* A call of next begins, on the user's thread. */
static void insitu__loader_enter(insitu_iter *it, int64_t begin) {
  insitu_loader *ld = it->loader;
  if (ld->config.inline_io) {
    ld->away += begin - ld->left;
    ld->inside = true;
  }
  bool first = !insitu__loader_get(&ld->first_next);
  if (!first && it->lap.began) return;
  uint64_t busy = insitu__loader_get(&ld->reactor.busy), none = 0;
  if (first && atomic_compare_exchange_strong(&ld->first_next, &none, (uint64_t)begin)) ld->busy_before = busy;
  if (!it->lap.began) it->lap = (struct insitu__loader_lap){.began = begin, .busy = busy};
}

/* It ends. */
static void insitu__loader_exit(insitu_iter *it, int64_t begin, int64_t now, insitu_status status, const insitu_batch *batch) {
  insitu_loader *ld = it->loader;
  uint64_t took = (uint64_t)(now - begin);
  if (ld->config.inline_io) {
    ld->left = now;
    ld->inside = false;
  }
  insitu__loader_add(&ld->stall, took);
  it->lap.stall += took;
  if (status != INSITU_OK) return;
  insitu__loader_next_took(ld, took);
  insitu__loader_add(&ld->n_rows, batch->rows);
  it->lap.batches++;
  for (uint64_t i = 0; i < batch->n_arrays; i++) it->lap.bytes += batch->arrays[i].bytes;
  if (atomic_fetch_add_explicit(&ld->n_batches, 1, memory_order_relaxed) == 0)
    atomic_store_explicit(&ld->first_batch, (uint64_t)(now - ld->opened), memory_order_relaxed);
}

/* The line of an epoch that just ended, number it->told. */
static void insitu__loader_lap_log(insitu_iter *it, int64_t now) {
  insitu_loader *ld = it->loader;
  struct insitu__loader_lap lap = it->lap;
  it->lap.began = 0;
  if (!insitu__loader_logs(ld, 2)) return;
  uint64_t epoch = it->told / it->batches - 1, elapsed = (uint64_t)(now - lap.began);
  double stall = insitu__loader_share(lap.stall, (double)elapsed);
  double busy = insitu__loader_busy_share(ld, insitu__loader_get(&ld->reactor.busy) - lap.busy, elapsed, lap.stall);
  insitu__loader_log(ld, 2,
      "rank %d, iterator %s, epoch %" PRIu64 ": %" PRIu64
      " batches in %.3f s, %.1f MB/s, %.1f %% of it in next, limited by %s; %" PRIu64 " re-reads, %" PRIu64 " holes filled",
      (int)ld->config.rank, insitu__split_names[it->split], epoch, lap.batches, (double)elapsed / 1e9,
      (double)lap.bytes * 1e3 / (double)insitu__base_max(1, elapsed), 100 * stall,
      insitu_stage_name(insitu__loader_stage(lap.batches, stall, busy)), insitu__loader_get(&it->tally[epoch & 3].rereads),
      insitu__loader_get(&it->tally[epoch & 3].holes));
}

/* The loader's own time, nanoseconds: inline it stands still outside next. Reactor thread. */
static int64_t insitu__loader_clock(const insitu_loader *ld) {
  if (!ld->config.inline_io) return insitu__base_now();
  return (ld->inside ? insitu__base_now() : ld->left) - ld->away;
}

/* Looks four times in INSITU_WATCHDOG_S whether a chunk came through, and sleeps while none is in flight. */
static void insitu__loader_watch_await(void *arg) {
  insitu_loader *ld = (insitu_loader *)arg;
  struct insitu__reactor *r = &ld->reactor;
  const int64_t patience = (int64_t)((INSITU_WATCHDOG_S)*1e9);
  while (!r->closing) {
    memset(&ld->any, 0, sizeof ld->any);
    if (!ld->inflight) insitu__reactor_gate_await(r, &ld->any);
    int64_t since = insitu__loader_clock(ld);
    for (uint64_t seen = ld->n_done; ld->inflight && insitu__reactor_sleep_await(r, patience / 4 + 1) && !r->closing;) {
      int64_t now = insitu__loader_clock(ld);
      bool late = seen == ld->n_done && now - since >= patience;
      ld->overdue |= late;
      if (late || seen != ld->n_done) since = now;
      seen = ld->n_done;
    }
  }
}

/* The watchdog's warning: called by the pump, whose stack is large enough for the user's function. */
static void insitu__loader_warn(insitu_loader *ld) {
  static const char *const stages[] = {"idle", "waiting to read", "reading", "decoding"};
  static const char *const look[] = {"", "see whether this process gets processor time",
      "see whether the file system or server that holds the archive answers",
      "see whether this process gets processor time, and lower decode_threads if it has fewer cores"};
  const struct insitu__loader_tile *oldest = NULL;
  int stage = INSITU__LOADER_IDLE;
  ld->overdue = false;
  for (uint64_t i = 0; i < ld->config.max_inflight; i++) {
    const struct insitu__loader_tile *t = &ld->tiles[i];
    int at = atomic_load_explicit(&t->stage, memory_order_relaxed);
    if (at == INSITU__LOADER_IDLE || (oldest && oldest->began <= t->began)) continue;
    oldest = t;
    stage = at;
  }
  if (!oldest) return;
  insitu__loader_log(ld, 1,
      "rank %d, watchdog, array %.200s, chunk %.300s: %s for %.1f s, and no other of the %" PRIu64
      " chunks in flight came through for %g s; %s",
      (int)ld->config.rank, ld->geometry.arrays[oldest->array].zarr.path, oldest->key ? oldest->key : "(no key yet)",
      stages[stage], (double)(insitu__loader_clock(ld) - oldest->began) / 1e9, ld->inflight, (double)(INSITU_WATCHDOG_S),
      look[stage]);
}

static void insitu__loader_say(const struct insitu__loader_tile *t, const char *key) { /* on a worker, as insitu__loader_fill */
  insitu__loader_log(t->loader, 3, "rank %d, array %.200s, chunk %.300s: %" PRIu64 " bytes, %.3f ms%s%s",
      (int)t->loader->config.rank, t->loader->geometry.arrays[t->array].zarr.path, key, t->got, (double)t->spent / 1e6,
      t->status ? ", " : "",
      t->status == INSITU_E_NOTFOUND ? "absent"
      : t->status                    ? "failed"
                                     : "");
}
static void insitu__loader_say_read(void *arg, unsigned worker) {
  const struct insitu__loader_tile *t = (const struct insitu__loader_tile *)arg;
  (void)worker;
  insitu__loader_say(t, t->key);
}

/* ---- rows of a chunk ---- */

static unsigned char *insitu__loader_row(
    const insitu_iter *it, const struct insitu__loader_slab *slab, const struct insitu__geometry_view *view, uint64_t row) {
  const struct insitu__geometry_variable *v = &it->plan.geometry->variables[view->variable];
  return slab->memory + v->block + row * v->row_bytes + view->dst;
}

/* What insitu__loader_each calls: view of the tile's array shows the chunk's row i as `dst` in slab. */
typedef void insitu__loader_visit(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg);

/* Visits every (view, row in [first, last)) that the tile's window shows. */
static void insitu__loader_each(
    struct insitu__loader_tile *t, uint64_t first, uint64_t last, insitu__loader_visit *visit, void *arg) {
  insitu_iter *it = t->iter;
  const struct insitu__geometry_array *a = &it->plan.geometry->arrays[t->array];
  uint64_t begin = t->chunk * a->rows;
  last = insitu__base_min(last, a->samples - begin); /* an edge chunk hangs over */
  for (uint64_t v = 0; v < a->n_views; v++) {
    const struct insitu__geometry_view *view = &a->views[v];
    if (!t->wanted[view->variable]) continue;
    struct insitu__plan_map map;
    insitu__plan_map_init(&map, &it->plan, t->order, &t->window);
    for (uint64_t i = first; i < last; i++) {
      uint64_t batch, row;
      if (!insitu__plan_map_find(&map, (int64_t)(begin + i) - view->delta, &batch, &row) || t->base + batch < it->start) continue;
      struct insitu__loader_slab *slab = it->ring[(t->base + batch) % it->n_ring];
      visit(t, view, i, slab, insitu__loader_row(it, slab, view, row), arg);
    }
  }
}

/* Tells whoever waits in next, with the lock held. Inline, that is this thread, asleep in the ring unless the ring is woken. */
static void insitu__loader_tell(insitu_iter *it) {
  pthread_cond_broadcast(&it->news);
  if (it->loader->config.inline_io) insitu__reactor_wake(&it->loader->reactor);
}

/* Counts one part of a batch down; the last wakes a user who waits for it. Nothing of the slab may be touched afterwards. */
static void insitu__loader_arrive(insitu_iter *it, struct insitu__loader_slab *slab) {
  uint64_t number = slab->number;
  if (atomic_fetch_sub_explicit(&slab->pending, 1, memory_order_acq_rel) != 1) return;
  pthread_mutex_lock(&it->lock);
  if (number == it->next) insitu__loader_tell(it);
  pthread_mutex_unlock(&it->lock);
}

static void insitu__loader_visit_arrive(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  (void)view, (void)i, (void)dst, (void)arg;
  insitu__loader_arrive(t->iter, slab);
}

static void insitu__loader_visit_earliest(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  (void)t, (void)view, (void)i, (void)dst;
  uint64_t *earliest = (uint64_t *)arg;
  *earliest = insitu__base_min(*earliest, slab->number);
}

static void insitu__loader_visit_fill(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  (void)i, (void)slab, (void)arg;
  uint64_t n;
  const unsigned char *fill = insitu__zarr_fill_pattern(&t->iter->plan.geometry->arrays[t->array].zarr, &n);
  insitu__box_fill(&t->box[view->variable], fill, n, dst);
}

/* ---- decode (on a worker) ---- */

struct insitu__loader_piece { /* decoded bytes [offset, offset + bytes) of the chunk */
  const unsigned char *at;
  uint64_t offset, bytes;
};

static void insitu__loader_visit_copy(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  const struct insitu__loader_piece *p = (const struct insitu__loader_piece *)arg;
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  uint64_t row = i * a->stride[a->axis];
  (void)slab;
  if (p->bytes == a->chunk_bytes) {
    insitu__box_copy(&t->box[view->variable], p->at + row, dst);
    return;
  }
  uint64_t from = insitu__base_max(p->offset, row) - row;
  uint64_t to = insitu__base_min(p->offset + p->bytes, row + a->stride[a->axis]) - row;
  insitu__box_copy_part(&t->box[view->variable], p->at + (row + from - p->offset), from, to, dst);
}

static insitu_status insitu__loader_piece(void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)user;
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  struct insitu__loader_piece p = {(const unsigned char *)bytes, offset, n};
  uint64_t stride = a->stride[a->axis];
  (void)err;
  if (n == a->chunk_bytes) insitu__loader_each(t, t->first, t->last, insitu__loader_visit_copy, &p);
  else
    insitu__loader_each(t, insitu__base_max(t->first, offset / stride), insitu__base_min(t->last, (offset + n - 1) / stride + 1),
        insitu__loader_visit_copy, &p);
  return INSITU_OK;
}

struct insitu__loader_target {
  uint64_t from, to; /* bytes of the row */
  void *at;
  unsigned takers;
};

static void insitu__loader_visit_direct(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  struct insitu__loader_target *target = (struct insitu__loader_target *)arg;
  (void)i, (void)slab;
  target->at = insitu__box_direct(&t->box[view->variable], dst, target->from, target->to);
  target->takers++;
}

/* The place of decoded bytes within one row that one view alone wants as they are. */
static void *insitu__loader_direct(void *user, uint64_t offset, uint64_t bytes) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)user;
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  uint64_t stride = a->stride[a->axis], i = offset / stride;
  if (!bytes || offset + bytes > (i + 1) * stride || i < t->first || i >= t->last) return NULL;
  struct insitu__loader_target target = {offset - i * stride, offset + bytes - i * stride, NULL, 0};
  insitu__loader_each(t, i, i + 1, insitu__loader_visit_direct, &target);
  return target.takers == 1 ? target.at : NULL;
}

static void *insitu__loader_whole(void *user, uint64_t offset, uint64_t bytes) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)user;
  (void)bytes;
  return t->loader->scratch[t->worker].whole + offset;
}

static insitu_status insitu__loader_whole_piece(void *user, const void *bytes, uint64_t offset, uint64_t n, insitu_error *err) {
  memcpy(insitu__loader_whole(user, offset, n), bytes, (size_t)n);
  (void)err;
  return INSITU_OK;
}

/* Decodes the tile's buffer and scatters its rows. */
static void insitu__loader_decode(void *arg, unsigned worker) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg;
  insitu_loader *ld = t->loader;
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  struct insitu__loader_scratch *s = &ld->scratch[worker];
  struct insitu__codec_sink sink = {
      .user = t, .direct = insitu__loader_direct, .piece = insitu__loader_piece, .element = a->zarr.itemsize};
  t->worker = worker;
  atomic_store_explicit(&t->stage, INSITU__LOADER_DECODING, memory_order_relaxed);
  if (!a->sample_slowest && a->zarr.codecs.n) {
    if (!s->whole) s->whole = (unsigned char *)insitu__mem_map(ld->whole_bytes);
    if (!s->whole) {
      t->status = insitu__error_set(&t->error, INSITU_E_NOMEM, "no memory to decode; lower decode_threads");
      return;
    }
    sink.direct = insitu__loader_whole;
    sink.piece = insitu__loader_whole_piece;
  }
  t->status = insitu__codec_decode(&a->zarr.codecs, &s->codec, t->buffer, t->got, a->chunk_bytes, &sink, &t->error);
  if (!t->status && sink.direct == insitu__loader_whole)
    t->status = insitu__loader_piece(t, s->whole, 0, a->chunk_bytes, &t->error);
  if (!t->status) insitu__loader_each(t, t->first, t->last, insitu__loader_visit_arrive, NULL);
}

static void insitu__loader_fill(void *arg, unsigned worker) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg;
  (void)worker;
  insitu__loader_add(&t->iter->tally[t->base / t->iter->batches & 3].holes, 1);
  if (t->damaged) /* here, not in the coroutine: the user's function may need more stack than a coroutine has */
    insitu__loader_log(t->loader, 1, "rank %d, array %.200s, chunk %.300s is filled: %s", (int)t->loader->config.rank,
        t->iter->plan.geometry->arrays[t->array].zarr.path, t->damaged, t->error.message);
  insitu__loader_each(t, t->first, t->last, insitu__loader_visit_fill, NULL);
  insitu__loader_each(t, t->first, t->last, insitu__loader_visit_arrive, NULL);
}

/* ---- read straight into batches (raw chunks) ---- */

struct insitu__loader_aim {
  bool possible, twice; /* twice: some row has more than one taker */
};

static void insitu__loader_visit_aim(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  struct insitu__loader_aim *aim = (struct insitu__loader_aim *)arg;
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  void *at = insitu__box_direct(&t->box[view->variable], dst, 0, a->stride[a->axis]);
  struct iovec *iov = &t->iov[i - t->first];
  (void)slab;
  if (!at) aim->possible = false;
  if (iov->iov_base) aim->twice = true;
  else iov->iov_base = at;
}

/* Points the iovec at the rows' places, rows that nobody wants at the buffer, and one byte more there to notice a chunk that is
 * too long. */
static unsigned insitu__loader_aim(struct insitu__loader_tile *t, struct insitu__loader_aim *aim) {
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  uint64_t stride = a->stride[a->axis], n = t->last - t->first;
  aim->possible = !a->zarr.codecs.n && a->sample_slowest && stride >= INSITU__LOADER_DIRECT && n < INSITU__LOADER_IOV;
  aim->twice = false;
  if (!aim->possible) return 0;
  memset(t->iov, 0, n * sizeof *t->iov);
  insitu__loader_each(t, t->first, t->last, insitu__loader_visit_aim, aim);
  if (!aim->possible) return 0;
  for (uint64_t i = 0; i < n; i++) {
    if (!t->iov[i].iov_base) t->iov[i].iov_base = t->buffer;
    t->iov[i].iov_len = (size_t)stride;
  }
  t->iov[n] = (struct iovec){t->buffer, t->last == a->rows}; /* behind the last row only */
  return (unsigned)(n + (t->last == a->rows));
}

static void insitu__loader_visit_twin(struct insitu__loader_tile *t, const struct insitu__geometry_view *view, uint64_t i,
    struct insitu__loader_slab *slab, unsigned char *dst, void *arg) {
  unsigned char **from = (unsigned char **)arg;
  const struct insitu__geometry_array *a = &t->iter->plan.geometry->arrays[t->array];
  unsigned char *at = (unsigned char *)insitu__box_direct(&t->box[view->variable], dst, 0, a->stride[a->axis]);
  (void)i, (void)slab;
  if (!*from) *from = at;
  else memcpy(at, *from, (size_t)a->stride[a->axis]);
}

/* After a direct read: rows with several takers are copied, then everything is counted. */
static void insitu__loader_landed(void *arg, unsigned worker) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg;
  (void)worker;
  for (uint64_t i = t->first; i < t->last; i++) {
    unsigned char *from = NULL;
    insitu__loader_each(t, i, i + 1, insitu__loader_visit_twin, &from);
  }
  insitu__loader_each(t, t->first, t->last, insitu__loader_visit_arrive, NULL);
}

/* ---- a whole array, or a box of it, now ---- */

#define INSITU__LOADER_READERS 16 /* coroutines at most: more would only take memory */

struct insitu__loader_reading { /* lives on the caller's stack */
  insitu_loader *loader;
  const insitu_variable *variable;
  unsigned char *dst;
  uint64_t dst_bytes;
  insitu_shape *shape;
  insitu_status status; /* of all */
  insitu_error *err;
  struct insitu__zarr_array zarr;
  struct insitu__cache cache;
  int32_t dtype;
  struct insitu__cf cf;                                            /* where the variable is decoded */
  uint64_t lo[INSITU__MAX_DIMS], hi[INSITU__MAX_DIMS];             /* the box */
  uint64_t tile_lo[INSITU__MAX_DIMS], tile_n[INSITU__MAX_DIMS];    /* the chunks that hold it */
  uint64_t stride[INSITU__MAX_DIMS], dst_stride[INSITU__MAX_DIMS]; /* bytes */
  uint64_t chunk_bytes, bound, bytes, tiles, next;                 /* next: the chunk to be read */
  uint64_t reserved;                                               /* of memory_budget */
  struct insitu__loader_reader *readers;
  struct insitu__reactor_gate done;
};
struct insitu__loader_reader { /* reads one chunk after the other; lent to a worker while it decodes */
  struct insitu__loader_reading *reading;
  unsigned char *memory; /* the encoded chunk, then the decoded one */
  uint64_t got;
  bool fill;
  struct insitu__codec_scratch codec;
  struct insitu__box box;
  insitu_status status;
  insitu_error error;
};

static void insitu__loader_read_decode(void *arg, unsigned worker) {
  struct insitu__loader_reader *d = (struct insitu__loader_reader *)arg;
  struct insitu__loader_reading *r = d->reading;
  unsigned char *cell = d->memory;
  (void)worker;
  if (d->fill) {
    uint64_t n;
    const unsigned char *fill = insitu__zarr_fill_pattern(&r->zarr, &n);
    insitu__box_fill(&d->box, fill, n, r->dst);
    return;
  }
  if (r->zarr.codecs.n) {
    cell += r->bound + 1;
    struct insitu__codec_sink sink = insitu__codec_memory(cell);
    d->status = insitu__codec_decode(&r->zarr.codecs, &d->codec, d->memory, d->got, r->chunk_bytes, &sink, &d->error);
  } else if (d->got != r->chunk_bytes) {
    d->status = insitu__codec_wrong_length("read", d->got, r->chunk_bytes, &d->error);
  }
  if (!d->status) insitu__box_copy(&d->box, cell, r->dst);
}

/* The part of the chunk at `tile` that lies in the box, and its place in dst. */
static insitu_status insitu__loader_read_box(struct insitu__loader_reader *d, const uint64_t *tile) {
  struct insitu__loader_reading *r = d->reading;
  uint64_t count[INSITU__MAX_DIMS], from = 0, to = 0;
  int64_t src[INSITU__MAX_DIMS], dst[INSITU__MAX_DIMS];
  for (unsigned k = 0; k < r->zarr.ndim; k++) {
    uint64_t begin = tile[k] * r->zarr.chunk[k], lo = insitu__base_max(begin, r->lo[k]);
    count[k] = insitu__base_min(begin + r->zarr.chunk[k], r->hi[k]) - lo;
    from += (lo - begin) * r->stride[k];
    to += (lo - r->lo[k]) * r->dst_stride[k];
    src[k] = (int64_t)r->stride[k];
    dst[k] = (int64_t)r->dst_stride[k];
  }
  insitu_status status =
      insitu__box_init(&d->box, r->zarr.ndim, count, src, dst, from, to, r->zarr.dtype, r->zarr.swap, r->dtype, &d->error);
  if (!status && r->variable->decode) insitu__box_cf(&d->box, &r->cf, r->zarr.swap);
  return status;
}

/* One chunk, from its place in the grid to dst. */
static insitu_status insitu__loader_read_chunk_await(
    struct insitu__loader_reader *d, const uint64_t *tile, char *key, size_t cap) {
  struct insitu__loader_reading *r = d->reading;
  insitu_loader *ld = r->loader;
  uint64_t object[INSITU__MAX_DIMS], offset = 0, bytes = UINT64_MAX;
  d->fill = false;
  key[0] = 0;
  d->status = insitu__loader_read_box(d, tile);
  if (d->status) return d->status;
  insitu__zarr_object_of(&r->zarr, tile, object);
  if (insitu__zarr_chunk_key(&r->zarr, object, key, cap) < 0) {
    key[0] = 0;
    return insitu__error_set(
        &d->error, INSITU_E_FORMAT, "the chunk's key is longer than %d bytes; shorten the path", INSITU__MAX_KEY);
  }
  insitu__loader_add(&ld->n_reads, 1);
  if (!d->status && r->zarr.n_levels)
    d->status = insitu__cache_locate_await(&r->cache, &r->zarr, tile, key, &offset, &bytes, &d->error);
  if (!d->status) {
    bool inner = bytes != UINT64_MAX;
    struct iovec iov = {d->memory, (size_t)insitu__base_min(bytes, r->bound + 1)};
    insitu__loader_add(&ld->n_requests, 1);
    d->status = insitu__store_read_await(&ld->store, key, offset, &iov, 1, &d->got, &d->error);
    insitu__loader_add(&ld->n_read, d->got);
    if (inner && d->status == INSITU_E_NOTFOUND) d->status = insitu__cache_gone(&d->error);
    if (!d->status && (inner ? d->got != bytes : d->got > r->bound))
      d->status = insitu__codec_wrong_length("read", d->got, inner ? bytes : r->bound, &d->error);
  }
  d->fill = d->status == INSITU_E_NOTFOUND && ld->config.on_absent_chunk != INSITU_RAISE;
  if (d->status && !d->fill) return d->status;
  d->status = INSITU_OK;
  insitu__loader_add(d->fill ? &ld->n_absent : &ld->n_decoded, d->fill ? 1 : r->chunk_bytes);
  insitu__reactor_work_await(&ld->reactor, insitu__loader_read_decode, d);
  return d->status;
}

static void insitu__loader_reader_await(void *arg) {
  struct insitu__loader_reader *d = (struct insitu__loader_reader *)arg;
  struct insitu__loader_reading *r = d->reading;
  insitu_loader *ld = r->loader;
  char key[INSITU__MAX_KEY + 32 * INSITU__MAX_DIMS];
  while (r->next < r->tiles && !r->status) {
    uint64_t rest = r->next++, tile[INSITU__MAX_DIMS];
    for (unsigned k = r->zarr.ndim; k-- > 0;) {
      tile[k] = r->tile_lo[k] + rest % r->tile_n[k];
      rest /= r->tile_n[k];
    }
    if (atomic_load_explicit(&ld->cancelled, memory_order_acquire)) {
      r->status = INSITU_CANCELLED;
      break;
    }
    insitu__error_clear(&d->error);
    insitu_status status = insitu__loader_read_chunk_await(d, tile, key, INSITU__MAX_KEY);
    if (status < 0 && status != INSITU_E_NOMEM && status != INSITU_E_NOTFOUND && ld->config.on_bad_chunk == INSITU_FILL) {
      insitu__loader_add(&ld->n_bad, 1);
      d->fill = true;
      insitu__reactor_work_await(&ld->reactor, insitu__loader_read_decode, d);
    } else if (status < 0 && !r->status) {
      insitu__zarr_name_inner(&r->zarr, tile, key, sizeof key);
      insitu__error_cause(r->err, &d->error);
      r->status = insitu__error_set(r->err, status == INSITU_E_NOTFOUND ? INSITU_E_ABSENT : status,
          "read, array %.200s, chunk %.300s: %s", r->zarr.path, key,
          status == INSITU_E_NOTFOUND ? "it is absent; set on_absent_chunk = INSITU_FILL to get its fill value"
                                      : d->error.message);
    }
  }
  insitu__reactor_gate_open(&r->done);
}

/* The box, its chunks, and its shape in dst. */
static insitu_status insitu__loader_read_shape(struct insitu__loader_reading *r) {
  const struct insitu__zarr_array *z = &r->zarr;
  insitu_status status = insitu__geometry_dtype(z, r->variable, &r->cf, &r->dtype, r->err);
  if (!status) status = insitu__geometry_slices(z, r->variable, -1, r->lo, r->hi, r->err);
  if (status) return status;
  r->chunk_bytes = insitu__geometry_strides(z, r->stride);
  r->bound = insitu__codec_bound(&z->codecs, r->chunk_bytes);
  r->bytes = insitu__geometry_itemsize(r->dtype);
  r->tiles = 1;
  for (unsigned k = z->ndim; k-- > 0;) { /* an array has at most 2^63 bytes, which conversion may multiply by 8 */
    r->dst_stride[k] = r->bytes;
    if (!insitu__base_mul(r->bytes, r->hi[k] - r->lo[k], &r->bytes) || r->bytes > PTRDIFF_MAX)
      return insitu__error_set(
          r->err, INSITU_E_SHAPE, "read, array %s: it has more bytes than memory can address; select less with slices", z->path);
    r->tile_lo[k] = r->lo[k] / z->chunk[k];
    r->tile_n[k] = r->hi[k] > r->lo[k] ? (r->hi[k] - 1) / z->chunk[k] + 1 - r->tile_lo[k] : 0;
    r->tiles *= r->tile_n[k];
  }
  if (!r->shape) return INSITU_OK;
  *r->shape = (insitu_shape){.ndim = (int32_t)z->ndim, .dtype = r->dtype, .bytes = r->bytes};
  for (unsigned k = 0; k < z->ndim; k++) r->shape->shape[k] = (int64_t)(r->hi[k] - r->lo[k]);
  return INSITU_OK;
}

/* As many readers as help and as the budget has room for, at least one; returns their number, 0 on failure. */
static unsigned insitu__loader_read_begin(struct insitu__loader_reading *r) {
  insitu_loader *ld = r->loader;
  struct insitu__codec_needs need = insitu__codec_needs(&r->zarr.codecs, r->chunk_bytes);
  uint64_t index = 0, memory = r->bound + 1 + (r->zarr.codecs.n ? r->chunk_bytes : 0);
  for (unsigned l = 0; l < r->zarr.n_levels; l++)
    index = insitu__base_max(index, insitu__codec_shard_index_bytes(r->zarr.level[l].shard));
  uint64_t each = insitu__codec_add(memory, insitu__codec_scratch_bytes(&need)) + INSITU_CORO_STACK + sizeof *r->readers;
  each = insitu__codec_add(each, insitu__cache_bytes(index ? 1 : 0, index));
  unsigned n = (unsigned)insitu__base_min(r->tiles, insitu__base_min(INSITU__LOADER_READERS, 2 * ld->config.decode_threads));
  pthread_mutex_lock(&ld->lock);
  uint64_t used = (ld->config.plan_only ? 0 : ld->inflight_bytes + ld->cache_bytes) + ld->reserved;
  uint64_t left = ld->config.memory_budget - insitu__base_min(used, ld->config.memory_budget);
  n = (unsigned)insitu__base_min(n, left / each);
  ld->reserved += r->reserved = n * each;
  pthread_mutex_unlock(&ld->lock);
  if (!n) {
    r->status = insitu__error_set(r->err, INSITU_E_BUDGET,
        "read, array %s: a chunk of it takes %" PRIu64 " bytes to read, %" PRIu64 " of memory_budget %" PRIu64
        " are left; raise memory_budget",
        r->zarr.path, each, left, ld->config.memory_budget);
    return 0;
  }
  r->readers = (struct insitu__loader_reader *)insitu__mem_alloc(n, sizeof *r->readers);
  bool ok = insitu__cache_init(&r->cache, &ld->reactor, &ld->store, index ? n : 0, index) && r->readers;
  for (unsigned i = 0; ok && i < n; i++) {
    r->readers[i].reading = r;
    insitu__codec_scratch_init(&r->readers[i].codec);
    r->readers[i].memory = (unsigned char *)insitu__mem_map(memory);
    ok = r->readers[i].memory;
  }
  if (!ok)
    r->status = insitu__error_set(r->err, INSITU_E_NOMEM,
        "read, array %s: the system gives no memory; give the process more, or lower decode_threads", r->zarr.path);
  return n;
}

static void insitu__loader_read_end(struct insitu__loader_reading *r, unsigned n) {
  uint64_t memory = r->bound + 1 + (r->zarr.codecs.n ? r->chunk_bytes : 0);
  for (unsigned i = 0; r->readers && i < n; i++) {
    insitu__codec_scratch_free(&r->readers[i].codec);
    insitu__mem_unmap(r->readers[i].memory, memory);
  }
  insitu__mem_free(r->readers);
  insitu__loader_add(&r->loader->cache.loads, insitu__loader_get(&r->cache.loads));
  insitu__loader_add(&r->loader->cache.read, insitu__loader_get(&r->cache.read));
  insitu__cache_free(&r->cache);
  pthread_mutex_lock(&r->loader->lock);
  r->loader->reserved -= r->reserved;
  pthread_mutex_unlock(&r->loader->lock);
}

static void insitu__loader_read_await(void *arg) {
  struct insitu__loader_reading *r = (struct insitu__loader_reading *)arg;
  insitu_loader *ld = r->loader;
  r->status = insitu__zarr_array_await(&ld->group, insitu__geometry_path(r->variable), &r->zarr, r->err);
  if (!r->status) r->status = insitu__loader_read_shape(r);
  if (!r->status && r->dst && r->dst_bytes < r->bytes)
    r->status = insitu__error_set(r->err, INSITU_E_ARG,
        "read, array %s: it has %" PRIu64 " bytes and dst %" PRIu64 "; give room for all of it, or select less with slices",
        r->zarr.path, r->bytes, r->dst_bytes);
  if (!r->status && r->dst && r->tiles) {
    unsigned n = insitu__loader_read_begin(r), started = 0;
    insitu__reactor_gate_expect(&r->done, n);
    for (; !r->status && started < n; started++)
      if (insitu__reactor_spawn(&ld->reactor, insitu__loader_reader_await, &r->readers[started])) break;
    if (n && !started && !r->status)
      r->status = insitu__error_set(
          r->err, INSITU_E_NOMEM, "read, array %s: no memory for a coroutine; give the process more memory", r->zarr.path);
    for (unsigned i = started; i < n; i++) insitu__reactor_gate_open(&r->done);
    insitu__reactor_gate_await(&ld->reactor, &r->done);
    insitu__loader_read_end(r, n);
  }
  insitu__zarr_array_free(&r->zarr);
}

/* ---- the time coordinate: samples by date ---- */

/* The array that holds the moments of the samples: desc.time_path, or the one named as the sample axis, beside the first variable's
 * array or at the root. Error or not, the caller frees it. */
static insitu_status insitu__loader_time_find_await(insitu_loader *ld, struct insitu__zarr_array *z, insitu_error *err) {
  const struct insitu__geometry_array *a = &ld->geometry.arrays[0];
  const char *path = ld->config.time_path, *dim = a->zarr.dim[a->axis], *slash = strrchr(a->zarr.path, '/');
  insitu_status status = INSITU_E_NOTFOUND;
  memset(z, 0, sizeof *z);
  if (!path && !dim)
    return insitu__error_set(err, INSITU_E_NOTFOUND,
        "open, array %.200s: axis %u has no name, so that the coordinate of the samples is not known; name it with time_path, or "
        "select samples by index",
        a->zarr.path, a->axis);
  if (path) {
    status = insitu__zarr_array_await(&ld->group, path, z, err);
  } else {
    char beside[INSITU__MAX_KEY];
    int n = snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash + 1 - a->zarr.path) : 0, a->zarr.path, dim);
    for (path = beside; status == INSITU_E_NOTFOUND && path; path = path == beside && slash ? dim : NULL) {
      if (path == beside && n >= (int)sizeof beside) continue;
      status = insitu__zarr_array_await(&ld->group, path, z, NULL);
      if (status < 0 && status != INSITU_E_NOTFOUND) status = insitu__zarr_array_await(&ld->group, path, z, err);
    }
    if (status == INSITU_E_NOTFOUND)
      return insitu__error_set(err, status,
          "open: there is no coordinate '%.80s' beside array %.200s or at the root to look dates up in; name one with time_path, "
          "or select samples by index",
          dim, a->zarr.path);
  }
  if (status) return status;
  if (z->ndim != 1 || z->shape[0] != ld->geometry.samples)
    return insitu__error_set(err, INSITU_E_SHAPE,
        "open, array %.200s: dates need a coordinate with one axis of %" PRIu64
        " samples, and it is none; name another with time_path, or select samples by index",
        z->path, ld->geometry.samples);
  if (z->dtype >> 8 <= 2 && (z->kind == INSITU__ZARR_NUMBER || z->kind == INSITU__ZARR_DATE)) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_DTYPE,
      "open, array %.200s: %s is no type for dates; name another coordinate with time_path, or select samples by index", z->path,
      z->kind ? "string or timedelta64" : insitu__cf_dtype(z->dtype));
}
static insitu_status insitu__loader_time_units(
    const struct insitu__zarr_array *z, struct insitu__time_units *u, insitu_error *err) {
  struct insitu__text_json j = {0};
  char what[320], units[128], calendar[64], *unit;
  if (z->kind == INSITU__ZARR_DATE) { /* datetime64: "ns", "25s" */
    int64_t count = strtoll(z->unit, &unit, 10);
    if (insitu__time_datetime64(u, unit, unit == z->unit ? 1 : count)) return INSITU_OK;
    return insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "array '%.280s': no dates are read from datetime64[%s]; select samples by index", z->path, z->unit);
  }
  snprintf(what, sizeof what, "array '%.280s', attributes", z->path);
  insitu_status status = z->attributes ? insitu__text_json_parse(&j, z->attributes, strlen(z->attributes), what, err) : INSITU_OK;
  int named = insitu__text_json_get(&j, 0, "calendar");
  bool packed = insitu__text_json_get(&j, 0, "scale_factor") >= 0 || insitu__text_json_get(&j, 0, "add_offset") >= 0;
  snprintf(what, sizeof what, "array '%.280s'", z->path);
  if (!status && packed)
    status = insitu__error_set(err, INSITU_E_UNSUPPORTED,
        "%s: it is packed (scale_factor, add_offset), and no dates are read from such; select samples by index", what);
  if (!status && insitu__text_json_string(&j, insitu__text_json_get(&j, 0, "units"), units, sizeof units) < 0)
    status = insitu__error_set(err, INSITU_E_FORMAT,
        "%s: it has no attribute units, such as 'hours since 1900-01-01', to read dates by; select samples by index", what);
  if (!status && named >= 0 && insitu__text_json_string(&j, named, calendar, sizeof calendar) < 0)
    status = insitu__error_set(err, INSITU_E_FORMAT, "%s: its calendar is no name; select samples by index", what);
  if (!status) status = insitu__time_units(u, what, units, named >= 0 ? calendar : NULL, err);
  insitu__text_json_free(&j);
  return status;
}
/* The moments of samples [start, stop). A value that is no date is an error. */
static insitu_status insitu__loader_time_read_await(insitu_loader *ld, const struct insitu__zarr_array *z,
    const struct insitu__time_units *u, uint64_t start, uint64_t stop, int64_t *moment, insitu_error *err) {
  bool wide = z->dtype == INSITU_I64 || z->dtype == INSITU_U64; /* float64 would not hold them all */
  insitu_slice slice = {.start = (int64_t)start, .stop = (int64_t)stop};
  insitu_variable v = {.path = z->path, .slices = &slice, .n_slices = 1};
  if (!wide) v.dtype = INSITU_F64;
  struct insitu__loader_reading r = {
      .loader = ld, .variable = &v, .dst = (unsigned char *)moment, .dst_bytes = (stop - start) * sizeof *moment, .err = err};
  insitu__loader_read_await(&r);
  for (uint64_t i = 0; !r.status && i < stop - start; i++) {
    double x;
    int64_t n = moment[i];
    memcpy(&x, &n, sizeof x);
    bool ok = v.dtype ? insitu__time_from_double(u, x, &moment[i])
                      : (z->dtype == INSITU_I64 || n >= 0) && insitu__time_from_int(u, n, &moment[i]);
    if (!ok)
      r.status = insitu__error_set(err, INSITU_E_FORMAT,
          "array '%.280s': its value at index %" PRIu64 " is no date, or one beyond year %d; select samples by index", z->path,
          start + i, INSITU__TIME_YEARS);
  }
  return r.status;
}

/* The value of an attribute that is a date, from an object's text. */
static bool insitu__loader_time_attribute(const char *attributes, const char *name, char out[INSITU__TIME_TEXT]) {
  struct insitu__text_json j = {0};
  struct insitu__time_date d;
  bool found = attributes && !insitu__text_json_parse(&j, attributes, strlen(attributes), name, NULL) &&
               insitu__text_json_string(&j, insitu__text_json_get(&j, 0, name), out, INSITU__TIME_TEXT) > 0 &&
               insitu__time_parse(out, &d);
  insitu__text_json_free(&j);
  if (!found) out[0] = 0;
  return found;
}
struct insitu__loader_dates {                                         /* of samples, as far as they are known: else empty */
  char first[INSITU__TIME_TEXT], last[INSITU__TIME_TEXT];             /* of the samples */
  char valid_start[INSITU__TIME_TEXT], valid_stop[INSITU__TIME_TEXT]; /* what attributes say of where data are, as in ARCO-ERA5 */
  bool before, after;                                                 /* the samples lie there of the valid ones */
};
/* The dates of samples [start, stop) of an array, for a message. */
static void insitu__loader_dates_of_await(
    insitu_loader *ld, const struct insitu__zarr_array *a, uint64_t start, uint64_t stop, struct insitu__loader_dates *out) {
  struct insitu__zarr_array z;
  struct insitu__time_units u;
  struct insitu__time_date d;
  int64_t first, last, from, to;
  char *root = NULL;
  memset(out, 0, sizeof *out);
  (void)insitu__zarr_attributes_await(&ld->group, "", &root, NULL);
  const char *const known[2] = {a->attributes, root};
  for (int i = 0; i < 2; i++) {
    if (!out->valid_start[0]) insitu__loader_time_attribute(known[i], "valid_time_start", out->valid_start);
    if (!out->valid_stop[0]) insitu__loader_time_attribute(known[i], "valid_time_stop", out->valid_stop);
  }
  insitu__mem_free(root);
  insitu_status status = insitu__loader_time_find_await(ld, &z, NULL);
  if (!status) status = insitu__loader_time_units(&z, &u, NULL);
  if (!status) status = insitu__loader_time_read_await(ld, &z, &u, start, start + 1, &first, NULL);
  if (!status) status = insitu__loader_time_read_await(ld, &z, &u, stop - 1, stop, &last, NULL);
  insitu__zarr_array_free(&z);
  if (status) return;
  insitu__time_print(u.calendar, first, out->first);
  insitu__time_print(u.calendar, last, out->last);
  if (insitu__time_parse(out->valid_stop, &d) && insitu__time_period(u.calendar, &d, &from, &to)) out->after = last >= to;
  if (insitu__time_parse(out->valid_start, &d) && insitu__time_period(u.calendar, &d, &from, &to)) out->before = first < from;
}

/* ---- one chunk, from its key to its rows ---- */

/* Boxes of the variables that want the tile's field, and the rows that its window wants. */
static insitu_status insitu__loader_boxes(struct insitu__loader_tile *t) {
  const struct insitu__geometry *g = &t->loader->geometry;
  const struct insitu__geometry_array *a = &g->arrays[t->array];
  uint64_t tile[INSITU__MAX_DIMS], count[INSITU__MAX_DIMS];
  int64_t src[INSITU__MAX_DIMS], dst[INSITU__MAX_DIMS];
  memset(t->wanted, 0, g->n_variables * sizeof *t->wanted);
  for (uint64_t i = 0; i < g->n_variables; i++) {
    const struct insitu__geometry_variable *v = &g->variables[i];
    if (v->array != t->array || !insitu__geometry_field(a, v, t->field, tile)) continue;
    uint64_t from = 0, to = 0;
    unsigned n = 0;
    for (unsigned d = 0; d < a->zarr.ndim; d++) {
      if (d == a->axis) continue;
      uint64_t begin = tile[d] * a->zarr.chunk[d], lo = insitu__base_max(begin, v->lo[d]);
      count[n] = insitu__base_min(begin + a->zarr.chunk[d], v->hi[d]) - lo;
      from += (lo - begin) * a->stride[d];
      to += (lo - v->lo[d]) * (uint64_t)v->dst_stride[d];
      src[n] = (int64_t)a->stride[d];
      dst[n++] = v->dst_stride[d];
    }
    insitu_status status =
        insitu__box_init(&t->box[i], n, count, src, dst, from, to, a->zarr.dtype, a->zarr.swap, v->dtype, &t->error);
    if (status) return status;
    if (v->decoded) insitu__box_cf(&t->box[i], &v->cf, a->zarr.swap);
    t->wanted[i] = true;
  }
  return INSITU_OK;
}

/* Which rows of the chunk the window wants: looked for from both ends, so that a chunk of many rows costs little. True when some
 * row may lie in another window as well. */
static bool insitu__loader_range(struct insitu__loader_tile *t) {
  const insitu_iter *it = t->iter;
  const struct insitu__geometry_array *a = &it->plan.geometry->arrays[t->array];
  uint64_t begin = t->chunk * a->rows, rows = insitu__base_min(a->rows, a->samples - begin), batch, row;
  bool elsewhere = false;
  t->first = rows;
  t->last = 0;
  for (uint64_t v = 0; v < a->n_views; v++) {
    if (!t->wanted[a->views[v].variable]) continue;
    struct insitu__plan_map map;
    int64_t anchor = (int64_t)begin - a->views[v].delta;
    insitu__plan_map_init(&map, &it->plan, t->order, &t->window);
    for (uint64_t i = 0; i < t->first; i++)
      if (insitu__plan_map_find(&map, anchor + (int64_t)i, &batch, &row) && t->base + batch >= it->start) t->first = i;
    for (uint64_t i = rows; i > t->last; i--)
      if (insitu__plan_map_find(&map, anchor + (int64_t)i - 1, &batch, &row) && t->base + batch >= it->start) t->last = i;
    elsewhere = elsewhere || !insitu__plan_map_holds(&map, anchor, anchor + (int64_t)rows);
  }
  return elsewhere;
}

/* Counts the tile as a re-read if a window before its own holds a row of it. Windows are compared where they lie in the epoch,
 * whether or not this pass began before them. */
static void insitu__loader_again(struct insitu__loader_tile *t) {
  insitu_iter *it = t->iter;
  const struct insitu__geometry_array *a = &it->plan.geometry->arrays[t->array];
  int64_t begin = (int64_t)(t->chunk * a->rows), end = (int64_t)insitu__base_min((t->chunk + 1) * a->rows, a->samples);
  for (uint64_t v = 0; v < a->n_views; v++) {
    const struct insitu__geometry_view *view = &a->views[v];
    if (!t->wanted[view->variable] ||
        !insitu__plan_before(&it->plan, t->order, &t->window, begin - view->delta, end - view->delta))
      continue;
    insitu__loader_add(&t->loader->n_rereads, 1);
    insitu__loader_add(&it->tally[t->base / it->batches & 3].rereads, 1);
    return;
  }
}

static insitu_status insitu__loader_ready(struct insitu__loader_tile *t) {
  t->first = t->last = 0;
  insitu_status status = insitu__loader_boxes(t);
  if (status) return status;
  if (insitu__loader_range(t) && t->first < t->last && !t->ranged) insitu__loader_again(t);
  t->ranged = true;
  if (!t->buffer) {
    t->buffer = (unsigned char *)insitu__mem_map(t->loader->buffer_bytes);
    if (t->buffer) insitu__loader_memory(t->loader, t->loader->buffer_bytes);
  }
  if (t->buffer) return INSITU_OK;
  return insitu__error_set(
      &t->error, INSITU_E_NOMEM, "no memory for a buffer of %" PRIu64 " bytes; lower max_inflight", t->loader->buffer_bytes);
}

/* -- inner chunks of a shard: neighbours are read at once -- */

static bool insitu__loader_precedes(const struct insitu__loader_tile *t, const struct insitu__loader_tile *u) {
  if (t->array != u->array) return t->array < u->array;
  return t->object != u->object ? t->object < u->object : t->at < u->at;
}
static void insitu__loader_gather(insitu_loader *ld, struct insitu__loader_tile *t) { /* most come in order */
  struct insitu__loader_tile **link = &ld->gathered;
  if (ld->gathered && !insitu__loader_precedes(t, ld->gathered_last)) link = &ld->gathered_last->next;
  while (*link && !insitu__loader_precedes(t, *link)) link = &(*link)->next;
  t->next = *link;
  *link = t;
  if (!t->next) ld->gathered_last = t;
}
/* Cuts what was gathered into runs and lets the head of each go on. */
static void insitu__loader_cut(insitu_loader *ld) {
  struct insitu__loader_tile *t = ld->gathered;
  ld->gathered = NULL;
  while (t) {
    struct insitu__loader_tile *head = t, *last = t;
    bool far = ld->store.remote != NULL;
    uint64_t bytes = t->want, gaps = 0, n_iov = t->n_iov;
    for (t = t->next; t && t->array == head->array && t->object == head->object; t = t->next) {
      uint64_t end = last->at + last->want;
      if (t->at < end || t->at - end > (far ? INSITU__LOADER_FAR_GAP : INSITU__LOADER_GAP) ||
          bytes >= (far ? INSITU__LOADER_FAR_RUN : INSITU__LOADER_RUN) ||
          (far && 4 * (gaps + t->at - end) > bytes - gaps + t->want))
        break;
      n_iov += t->n_iov + 1;
      if (n_iov > INSITU__LOADER_IOV) break;
      gaps += t->at - end;
      bytes += t->at - end + t->want;
      last->run = t;
      last = t;
    }
    last->run = NULL;
    head->head = true;
    insitu__reactor_gate_open(&head->turn);
  }
}
/* Reads a run into the iovecs of its tiles, what lies between two of them to where the first's bytes end: its buffer has room. A
 * remote store drops it. */
static void insitu__loader_run_await(struct insitu__loader_tile *head, const char *key) {
  insitu_loader *ld = head->loader;
  unsigned n = 0;
  uint64_t got = 0;
  for (struct insitu__loader_tile *t = head; t; t = t->run) {
    memcpy(&head->run_iov[n], t->iov, t->n_iov * sizeof *t->iov);
    n += t->n_iov;
    if (t->run)
      head->run_iov[n++] = (struct iovec){ld->store.remote ? NULL : t->buffer + t->want, (size_t)(t->run->at - t->at - t->want)};
  }
  insitu__loader_add(&ld->n_requests, 1);
  struct insitu__store_tag tag = {.give_up = &head->iter->stopping};
  insitu_status status = insitu__store_ask_await(&ld->store, key, head->at, head->run_iov, n, &tag, &got, &head->error);
  insitu__loader_add(&ld->n_read, got);
  for (struct insitu__loader_tile *t = head, *next; t; t = next) {
    uint64_t before = t->at - head->at;
    next = t->run;
    t->status = status;
    t->got = got > before ? insitu__base_min(got - before, t->want) : 0;
    if (t != head) insitu__reactor_gate_open(&t->turn);
  }
}
/* Reads bytes [at, at + want) of the object into the tile's iovecs, together with whoever wants bytes near them at this moment. */
static insitu_status insitu__loader_together_await(struct insitu__loader_tile *t, const char *key) {
  insitu_loader *ld = t->loader;
  memset(&t->turn, 0, sizeof t->turn);
  t->head = false;
  insitu__loader_gather(ld, t);
  if (!ld->gathering) {
    ld->gathering = true;
    insitu__reactor_yield_await(&ld->reactor); /* those that are ready now join */
    ld->gathering = false;
    insitu__loader_cut(ld);
  }
  insitu__reactor_gate_await(&ld->reactor, &t->turn);
  bool together = !t->head || t->run;
  if (t->head) insitu__loader_run_await(t, key);
  if (t->status < 0 && together) { /* whose bytes could not be read shows when each reads alone */
    insitu__error_clear(&t->error);
    t->run = NULL;
    insitu__loader_run_await(t, key);
  }
  return t->status == INSITU_E_NOTFOUND ? insitu__cache_gone(&t->error) : t->status;
}

/* Where the tile's encoded bytes lie; *bytes is UINT64_MAX for a whole object. INSITU_E_NOTFOUND when it is absent. */
static insitu_status insitu__loader_place_await(
    struct insitu__loader_tile *t, const uint64_t *index, const char *key, uint64_t *offset, uint64_t *bytes) {
  insitu_loader *ld = t->loader;
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  *offset = 0;
  *bytes = UINT64_MAX;
  if (!a->zarr.n_levels) return INSITU_OK;
  insitu_status status = insitu__cache_locate_await(&ld->cache, &a->zarr, index, key, offset, bytes, &t->error);
  if (status < 0) return status;
  if (*bytes > a->bound)
    return insitu__error_set(&t->error, INSITU_E_CORRUPT,
        "the shard's index gives it %" PRIu64 " bytes, %" PRIu64 " are the most for %" PRIu64
        " decoded bytes; write it again, or set on_bad_chunk",
        *bytes, a->bound, a->chunk_bytes);
  if (!a->zarr.codecs.n && *bytes != a->chunk_bytes)
    return insitu__error_set(&t->error, INSITU_E_CORRUPT,
        "wrong chunk length: the shard's index gives it %" PRIu64 " bytes where %" PRIu64
        " are expected; write it again, or set on_bad_chunk",
        *bytes, a->chunk_bytes);
  return INSITU_OK;
}

/* Reads and decodes a stored chunk, whose place in the array's grid is `index`. INSITU_E_NOTFOUND when it is absent. */
static insitu_status insitu__loader_fetch_await(struct insitu__loader_tile *t, const uint64_t *index, const char *key) {
  insitu_loader *ld = t->loader;
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  struct insitu__loader_aim aim;
  uint64_t offset, bytes, want;
  insitu__loader_add(&ld->n_reads, 1);
  insitu_status status = insitu__loader_place_await(t, index, key, &offset, &bytes);
  if (status) return status;
  bool inner = bytes != UINT64_MAX;
  unsigned n = insitu__loader_aim(t, &aim);
  if (aim.possible) {
    offset += t->first * a->stride[a->axis];
    want = bytes = (t->last - t->first) * a->stride[a->axis];
    if (inner) n = (unsigned)(t->last - t->first); /* how long it is, the shard's index has told */
  } else {
    bytes = inner ? bytes : a->bound;
    want = inner || a->zarr.codecs.n ? bytes : a->chunk_bytes;
    t->iov[0] = (struct iovec){t->buffer, (size_t)bytes + !inner};
    n = 1;
  }
  if (inner) {
    t->at = offset;
    t->want = bytes;
    t->n_iov = n;
    status = insitu__loader_together_await(t, key);
  } else {
    insitu__loader_add(&ld->n_requests, 1);
    struct insitu__store_tag tag = {.give_up = &t->iter->stopping};
    status = insitu__store_ask_await(&ld->store, key, offset, t->iov, n, &tag, &t->got, &t->error);
    insitu__loader_add(&ld->n_read, t->got);
  }
  if (status) return status;
  if (t->got > bytes)
    return insitu__error_set(&t->error, INSITU_E_CORRUPT,
        "the stored chunk is longer than %" PRIu64 " bytes, the most for %" PRIu64
        " decoded bytes; write it again, or set on_bad_chunk",
        bytes, a->chunk_bytes);
  if ((inner || !a->zarr.codecs.n) && t->got != want)
    return insitu__error_set(&t->error, INSITU_E_CORRUPT,
        "wrong chunk length: %" PRIu64 " bytes where %" PRIu64 " are expected; write the "
        "chunk again, or set on_bad_chunk",
        inner ? t->got : offset + t->got, inner ? want : offset + want);
  insitu__loader_add(&ld->n_decoded, aim.possible ? want : a->chunk_bytes);
  if (!aim.possible) {
    insitu__reactor_work_await(&ld->reactor, insitu__loader_decode, t);
    return t->status;
  }
  if (aim.twice) insitu__reactor_work_await(&ld->reactor, insitu__loader_landed, t);
  else insitu__loader_each(t, t->first, t->last, insitu__loader_visit_arrive, NULL);
  return INSITU_OK;
}

/* Whether some variable would show NaN where the tile's chunk is absent. */
static bool insitu__loader_fill_is_nan(const struct insitu__loader_tile *t) {
  const struct insitu__geometry *g = &t->loader->geometry;
  const struct insitu__zarr_array *z = &g->arrays[t->array].zarr;
  bool nan = false;
  for (uint64_t i = 0; i < g->n_variables && !nan; i++) {
    struct insitu__box one; /* a single element */
    double shown = 0;
    if (!t->wanted[i]) continue;
    nan = z->fill_is_nan;
    if (!g->variables[i].decoded || insitu__box_init(&one, 0, NULL, NULL, NULL, 0, 0, z->dtype, false, INSITU_F64, NULL))
      continue;
    insitu__box_cf(&one, &g->variables[i].cf, false);
    insitu__box_fill(&one, z->fill, 1, &shown);
    nan = __builtin_isnan(shown);
  }
  return nan;
}

/* The chunk is absent, and that is an error: what it would hold, and how to leave it out. */
static insitu_status insitu__loader_absent_await(struct insitu__loader_tile *t, bool nan) {
  const struct insitu__geometry_array *a = &t->loader->geometry.arrays[t->array];
  uint64_t start = t->chunk * a->rows, stop = insitu__base_min(start + a->rows, a->samples);
  struct insitu__loader_dates d;
  char dates[2 * INSITU__TIME_TEXT + 8] = "", valid[2 * INSITU__TIME_TEXT + 120] = "", use[INSITU__TIME_TEXT + 40];
  insitu__loader_dates_of_await(t->loader, &a->zarr, start, stop, &d);
  if (d.first[0]) snprintf(dates, sizeof dates, " (%s to %s)", d.first, d.last);
  if (d.valid_start[0] || d.valid_stop[0])
    snprintf(valid, sizeof valid, "; by its attributes the archive has data%s%s%s%s%s%s",
        d.valid_start[0] ? " from valid_time_start = \"" : "", d.valid_start, d.valid_start[0] ? "\"" : "",
        d.valid_stop[0] ? " to valid_time_stop = \"" : "", d.valid_stop, d.valid_stop[0] ? "\"" : "");
  snprintf(use, sizeof use, "sample_start, sample_stop or the split");
  if (d.after) snprintf(use, sizeof use, "sample_to = \"%s\"", d.valid_stop);
  else if (d.before) snprintf(use, sizeof use, "sample_from = \"%s\"", d.valid_start);
  return insitu__error_set(&t->error, INSITU_E_ABSENT,
      "the chunk is absent and its fill value is %s; leave samples [%" PRIu64 ", %" PRIu64
      ")%s out with %s, or set on_absent_chunk = INSITU_FILL%s",
      nan ? "NaN" : "not wanted", start, stop, dates, use, valid);
}

/* Decides what a missing or damaged chunk is: filled and counted, or an error. */
static insitu_status insitu__loader_hole_await(struct insitu__loader_tile *t, insitu_status status, const char *key) {
  insitu_loader *ld = t->loader;
  bool absent = status == INSITU_E_NOTFOUND, fill = ld->config.on_bad_chunk == INSITU_FILL;
  if (absent) {
    insitu__error_clear(&t->error);
    bool nan = insitu__loader_fill_is_nan(t);
    fill = ld->config.on_absent_chunk == INSITU_FILL || (!ld->config.on_absent_chunk && !nan);
    if (!fill) status = insitu__loader_absent_await(t, nan);
  } else if (status == INSITU_E_NOMEM) {
    fill = false;
  }
  if (!fill) return status;
  insitu__loader_add(absent ? &ld->n_absent : &ld->n_bad, 1);
  t->damaged = absent ? NULL : key;
  insitu__reactor_work_await(&ld->reactor, insitu__loader_fill, t);
  return INSITU_OK;
}

/* Notes that a tile's batches are damaged. The earliest damage counts; batches before it are still delivered. */
static void insitu__loader_damage(insitu_iter *it, uint64_t number, const insitu_error *error) {
  pthread_mutex_lock(&it->lock);
  if (number < it->bad) {
    it->bad = number;
    it->error = *error;
  }
  insitu__loader_tell(it);
  pthread_mutex_unlock(&it->lock);
}

/* The chunk's place in the array's grid, and its object's key. */
static insitu_status insitu__loader_key(struct insitu__loader_tile *t, uint64_t *index, char *key) {
  const struct insitu__geometry_array *a = &t->loader->geometry.arrays[t->array];
  uint64_t object[INSITU__MAX_DIMS];
  insitu__geometry_field(a, NULL, t->field, index);
  index[a->axis] = t->chunk;
  t->object = insitu__zarr_object_of(&a->zarr, index, object);
  if (insitu__zarr_chunk_key(&a->zarr, object, key, INSITU__MAX_KEY) >= 0) return INSITU_OK;
  key[0] = 0;
  return insitu__error_set(
      &t->error, INSITU_E_FORMAT, "the chunk's key is longer than %d bytes; shorten the path", INSITU__MAX_KEY);
}

/* A tile is done with. */
static void insitu__loader_finish(struct insitu__loader_tile *t) {
  insitu_loader *ld = t->loader;
  insitu_iter *it = t->iter;
  it->inflight[t->order == &it->order[1]]--;
  ld->inflight--;
  ld->n_done++;
  atomic_store_explicit(&t->stage, INSITU__LOADER_IDLE, memory_order_relaxed);
  t->key = NULL;
  t->next = ld->free;
  ld->free = t;
  if (it->stopping && !it->inflight[0] && !it->inflight[1]) insitu__reactor_gate_open(&it->idle);
}

static void insitu__loader_tile_await(void *arg) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg;
  insitu_loader *ld = t->loader;
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  uint64_t index[INSITU__MAX_DIMS];
  char key[INSITU__MAX_KEY + 32 * INSITU__MAX_DIMS]; /* and room to name an inner chunk */
  insitu__error_clear(&t->error);
  insitu_status status = insitu__loader_key(t, index, key), ready = insitu__loader_ready(t); /* both: a hole needs its rows */
  if (!status) status = ready;
  t->key = key;
  t->got = 0;
  bool timed = insitu__loader_logs(ld, 3);
  int64_t begin = timed ? insitu__base_now() : 0;
  atomic_store_explicit(&t->stage, INSITU__LOADER_READING, memory_order_relaxed);
  if (!status && t->first < t->last) { /* else another view's field: no row of this window */
    status = t->status = insitu__loader_fetch_await(t, index, key);
    insitu__zarr_name_inner(&a->zarr, index, key, sizeof key);
    if (timed) {
      t->spent = insitu__base_now() - begin;
      insitu__reactor_work_await(&ld->reactor, insitu__loader_say_read, t);
    }
  }
  if (status) status = insitu__loader_hole_await(t, status, key);
  if (status) {
    insitu_error error = {0};
    insitu__error_cause(&error, &t->error);
    insitu__error_set(&error, status, "rank %d, read, array %.200s, chunk %.300s: %s", (int)ld->config.rank, a->zarr.path, key,
        t->error.message);
    uint64_t earliest = UINT64_MAX;
    insitu__loader_each(t, 0, a->rows, insitu__loader_visit_earliest, &earliest);
    insitu__loader_damage(t->iter, earliest == UINT64_MAX ? t->number : earliest, &error);
  }
  insitu__loader_finish(t);
}

/* ---- small chunks: several in one job of a worker, out of the caches ---- */

/* Whether all of the tile could be done at once. Whatever is in the way is left to insitu__loader_tile_await. */
static bool insitu__loader_try(struct insitu__loader_tile *t, unsigned worker) {
  insitu_loader *ld = t->loader;
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  uint64_t index[INSITU__MAX_DIMS], offset = 0, want = a->zarr.codecs.n ? 0 : a->chunk_bytes;
  char key[INSITU__MAX_KEY];
  struct insitu__loader_aim aim;
  insitu__error_clear(&t->error);
  bool timed = insitu__loader_logs(ld, 3);
  int64_t begin = timed ? insitu__base_now() : 0;
  atomic_store_explicit(&t->stage, INSITU__LOADER_READING, memory_order_relaxed);
  if (insitu__loader_key(t, index, key) || insitu__loader_ready(t)) return false;
  if (t->first >= t->last) return true;
  unsigned n = insitu__loader_aim(t, &aim);
  if (aim.possible) {
    offset = t->first * a->stride[a->axis];
    want = (t->last - t->first) * a->stride[a->axis];
  } else {
    t->iov[0] = (struct iovec){t->buffer, (size_t)a->bound + 1};
    n = 1;
  }
  if (insitu__store_read_now(&ld->store, key, offset, t->iov, n, want, &t->got)) return false;
  if (want ? t->got != want : t->got > a->bound) return false;
  insitu__loader_add(&ld->n_requests, 1);
  insitu__loader_add(&ld->n_read, t->got);
  insitu__loader_add(&ld->n_reads, 1); /* before the batch can be delivered */
  insitu__loader_add(&ld->n_decoded, want ? want : a->chunk_bytes);
  t->status = INSITU_OK;
  if (!aim.possible) insitu__loader_decode(t, worker);
  else if (aim.twice) insitu__loader_landed(t, worker);
  else insitu__loader_each(t, t->first, t->last, insitu__loader_visit_arrive, NULL);
  if (t->status) { /* damaged: it is read once more, and the cause told */
    insitu__loader_add(&ld->n_reads, UINT64_MAX);
    insitu__loader_add(&ld->n_decoded, UINT64_C(0) - a->chunk_bytes);
  } else if (timed) {
    t->spent = insitu__base_now() - begin;
    insitu__loader_say(t, key);
  }
  return !t->status;
}
static void insitu__loader_try_bunch(void *arg, unsigned worker) {
  for (struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg; t; t = t->next) t->done = insitu__loader_try(t, worker);
}
static void insitu__loader_bunch_await(void *arg) {
  struct insitu__loader_tile *t = (struct insitu__loader_tile *)arg, *next;
  insitu_loader *ld = t->loader;
  unsigned landed = 0, missed = 0;
  insitu__reactor_work_await(&ld->reactor, insitu__loader_try_bunch, t);
  for (; t; t = next) {
    next = t->next;
    landed += t->done;
    missed += !t->done;
    if (t->done) insitu__loader_finish(t);
    else if (insitu__reactor_spawn(&ld->reactor, insitu__loader_tile_await, t)) insitu__loader_tile_await(t);
  }
  if (missed > landed) ld->n_missed = INSITU__LOADER_MISSED; /* not cached: go without trying for a while */
}

/* ---- scan (reactor thread) ---- */

/* Gives slabs to all batches up to number `last`. The ring is large enough for every batch the scan may touch (see
 * insitu__loader_ring), so there always is a free one. False: no memory. */
static bool insitu__loader_place(insitu_iter *it, uint64_t last) {
  bool ok = true;
  while (ok && it->assigned <= last) {
    pthread_mutex_lock(&it->lock);
    struct insitu__loader_slab *slab = it->free;
    if (!slab->memory) {
      uint64_t bytes = it->plan.geometry->slab_bytes;
      slab->memory = (unsigned char *)insitu__mem_map(bytes);
      ok = slab->memory != NULL;
      if (ok) {
        it->alive++;
        uint64_t now = atomic_fetch_add_explicit(&it->loader->slab_now, bytes, memory_order_relaxed) + bytes;
        insitu__loader_peak(&it->loader->slab_peak, now);
        insitu__loader_memory(it->loader, bytes);
      }
    }
    if (ok) {
      it->free = slab->next;
      insitu__mem_fresh(slab->memory, it->slab_bytes);
      slab->number = it->assigned++;
      slab->checked = !it->loader->config.check;
      uint64_t epoch = slab->number / it->batches;
      slab->rows = insitu__plan_rows(&it->plan, &it->order[epoch & 1], slab->number % it->batches);
      atomic_store_explicit(&slab->pending, slab->rows * it->plan.geometry->parts + 1, memory_order_relaxed);
      it->ring[slab->number % it->n_ring] = slab;
    }
    pthread_mutex_unlock(&it->lock);
  }
  return ok;
}

static void insitu__loader_no_memory(insitu_iter *it, uint64_t number) {
  insitu_error error = {0};
  insitu__error_set(&error, INSITU_E_NOMEM,
      "rank %d, batch: the system gives no memory for a batch or a coroutine; lower memory_budget, "
      "batch_size or max_inflight",
      (int)it->loader->config.rank);
  insitu__loader_damage(it, number, &error);
}

/* One past the last batch that may be scanned now. */
static uint64_t insitu__loader_limit(insitu_iter *it) {
  const insitu_loader_desc *c = &it->loader->config;
  pthread_mutex_lock(&it->lock);
  uint64_t epoch = it->next / it->batches;
  uint64_t end = (epoch + (c->hold_epoch ? 1 : 2)) * it->batches; /* two orders are kept: this epoch's and the next one's */
  if (c->hold_epoch && it->next % it->batches == 0 && it->begun != it->next) end = it->next;
  uint64_t limit = insitu__base_min(insitu__base_min(it->next + c->prefetch_depth, end), it->bad);
  pthread_mutex_unlock(&it->lock);
  return limit;
}

/* Starts a coroutine for a tile, or for the tiles of a bunch, which follow by `next`. */
static void insitu__loader_spawn(struct insitu__loader_tile *t, void (*fn)(void *arg)) {
  if (!insitu__reactor_spawn(&t->loader->reactor, fn, t)) return;
  for (struct insitu__loader_tile *next; t; t = next) {
    next = t->next;
    insitu__loader_no_memory(t->iter, t->number);
    insitu__loader_finish(t);
  }
}

/* Hands the bunch to a worker. */
static void insitu__loader_launch(insitu_loader *ld) {
  struct insitu__loader_tile *t = ld->bunch;
  ld->bunch = NULL;
  ld->n_bunch = 0;
  ld->bunch_bytes = 0;
  if (t) insitu__loader_spawn(t, insitu__loader_bunch_await);
}

static void insitu__loader_start(insitu_iter *it, uint64_t base) {
  insitu_loader *ld = it->loader;
  struct insitu__loader_tile *t = ld->free;
  ld->free = t->next;
  t->next = NULL;
  t->iter = it;
  t->order = it->scan.order;
  t->window = it->scan.current->window;
  t->array = it->scan.array;
  t->chunk = it->scan.chunk;
  t->field = it->scan.field;
  t->base = base;
  t->number = base + it->scan.batch;
  t->ranged = false;
  if (!ld->pump_now) ld->pump_now = insitu__loader_clock(ld);
  t->began = ld->pump_now;
  atomic_store_explicit(&t->stage, INSITU__LOADER_WAITING, memory_order_relaxed);
  it->inflight[t->order == &it->order[1]]++;
  insitu__loader_peak(&ld->inflight_peak, ++ld->inflight);
  if (ld->inflight == 1) insitu__reactor_gate_open(&ld->any);
  const struct insitu__geometry_array *a = &ld->geometry.arrays[t->array];
  bool tried = ld->reactor.n_workers && ld->store.ops->read_now && a->bound <= INSITU__LOADER_TRIED && !a->zarr.n_levels;
  if (!tried || ld->n_missed) {
    ld->n_missed -= ld->n_missed > 0;
    insitu__loader_spawn(t, insitu__loader_tile_await);
    return;
  }
  if (ld->bunch) ld->bunch_last->next = t;
  else ld->bunch = t;
  ld->bunch_last = t;
  ld->bunch_bytes += a->bound;
  uint64_t share = insitu__base_max(1, ld->config.max_inflight / (2 * ld->config.decode_threads)); /* jobs for all workers */
  if (++ld->n_bunch >= insitu__base_min(share, INSITU__LOADER_BUNCH) || ld->bunch_bytes >= INSITU__LOADER_BUNCH_BYTES)
    insitu__loader_launch(ld);
}

/* Scans until a chunk is started (true), or nothing may be scanned for now (false). */
static bool insitu__loader_scan(insitu_iter *it) {
  struct insitu__plan_scan *s = &it->scan;
  uint64_t limit = it->stopping ? 0 : insitu__loader_limit(it);
  for (;;) {
    if (s->batch == it->batches && it->scan_epoch * it->batches + s->batch < limit) { /* on to the next epoch */
      uint64_t epoch = it->scan_epoch + 1;
      if (it->inflight[epoch & 1]) return false; /* the order to be overwritten is still in use */
      insitu__order_reset(&it->order[epoch & 1], epoch);
      atomic_store_explicit(&it->tally[epoch & 3].rereads, 0, memory_order_relaxed);
      atomic_store_explicit(&it->tally[epoch & 3].holes, 0, memory_order_relaxed);
      it->scan_epoch = epoch;
      insitu__plan_scan_seek(s, &it->order[epoch & 1], 0);
    }
    uint64_t base = it->scan_epoch * it->batches, number = base + s->batch;
    if (number >= limit) return false;
    if (!insitu__loader_place(it, number)) {
      insitu__loader_no_memory(it, number);
      return false;
    }
    struct insitu__loader_slab *slab = it->ring[number % it->n_ring];
    switch (insitu__plan_scan_step(s)) {
    case INSITU__PLAN_ROW: ((int64_t *)(void *)(slab->memory + it->plan.geometry->indices))[s->row] = s->anchor; break;
    case INSITU__PLAN_BATCH: insitu__loader_arrive(it, slab); break;
    case INSITU__PLAN_TILE:
      if (!insitu__loader_place(it, base + insitu__plan_last_batch(&it->plan, &s->current->window))) {
        insitu__loader_no_memory(it, number);
        return false;
      }
      insitu__loader_start(it, base);
      return true;
    }
  }
}

/* Starts as many chunks as max_inflight allows, one of each iterator in turn. */
static void insitu__loader_pump(void *arg) {
  insitu_loader *ld = (insitu_loader *)arg;
  bool cancelled = atomic_load_explicit(&ld->cancelled, memory_order_acquire);
  if (ld->overdue) insitu__loader_warn(ld);
  if (ld->reactor.closing) insitu__reactor_gate_open(&ld->any); /* the watchdog ends */
  ld->pump_now = 0;
  if (!cancelled && ld->config.max_inflight - ld->inflight < ld->few) return;
  for (bool any = true; any;) {
    any = false;
    for (insitu_iter *it = ld->iters; it; it = it->next_iter) {
      if (cancelled) {
        pthread_mutex_lock(&it->lock);
        pthread_cond_broadcast(&it->news);
        pthread_mutex_unlock(&it->lock);
      } else if (ld->free) {
        any |= insitu__loader_scan(it);
      }
    }
  }
  insitu__loader_launch(ld);
}

/* ---- opening and closing ---- */

/* A copy that lives as long as the loader; NULL on no memory, or for NULL. */
static void *insitu__loader_keep(insitu_loader *ld, const void *from, uint64_t bytes) {
  struct insitu__loader_block *b = from ? (struct insitu__loader_block *)insitu__mem_alloc(1, sizeof *b + bytes) : NULL;
  if (!b) return NULL;
  b->next = ld->blocks;
  ld->blocks = b;
  return memcpy(b + 1, from, (size_t)bytes);
}

static const char *insitu__loader_keep_text(insitu_loader *ld, const char *s, bool *ok) {
  if (!s) return NULL;
  const char *copy = (const char *)insitu__loader_keep(ld, s, strlen(s) + 1);
  *ok = *ok && copy;
  return copy;
}

/* Where a value of the configuration comes from. */
enum {
  INSITU__LOADER_FROM_DESC,
  INSITU__LOADER_FROM_DEFAULT,
  INSITU__LOADER_FROM_ENVIRONMENT,
  INSITU__LOADER_FROM_CGROUP,
  INSITU__LOADER_FROM_AFFINITY,
  INSITU__LOADER_FROM_MACHINE,
  INSITU__LOADER_FROM_ARCHIVE,
  INSITU__LOADER_FROM_INLINE
};
static const char *const insitu__loader_origins[] = {
    "desc", "default", "environment", "cgroup", "affinity", "machine", "archive", "inline_io"};

/* The desc's members, but for its variables and what says how to run rather than what to read. */
struct insitu__loader_field {
  struct insitu__text_field text;
  uint64_t bytes;
  int unset; /* origin if the desc leaves it zero; DESC: it has no default */
};
static const char *const insitu__loader_hole_words[] = {"auto", "raise", "fill"};
static const char *const insitu__loader_io_words[] = {"auto", "uring", "epoll"};
#define INSITU__LOADER_FIELD(member, kind, words, unset)                                                                         \
  { {#member, offsetof(insitu_loader_desc, member), kind, words}, sizeof(((insitu_loader_desc *)0)->member), unset }
static const struct insitu__loader_field insitu__loader_fields[] = {
    INSITU__LOADER_FIELD(url, INSITU__TEXT_TEXT, NULL, INSITU__LOADER_FROM_DESC),
    INSITU__LOADER_FIELD(sample_dim, INSITU__TEXT_TEXT, NULL, INSITU__LOADER_FROM_DESC),
    INSITU__LOADER_FIELD(sample_axis, INSITU__TEXT_I32, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(batch_size, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(seed, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(rank, INSITU__TEXT_I32, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(world, INSITU__TEXT_I32, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(block_chunks, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(unit_chunks, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(lanes, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(sample_start, INSITU__TEXT_I64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(sample_stop, INSITU__TEXT_I64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(time_path, INSITU__TEXT_TEXT, NULL, INSITU__LOADER_FROM_DESC),
    INSITU__LOADER_FIELD(split, INSITU__TEXT_NONE, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(split_shuffled, INSITU__TEXT_FLAG, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(split_spill, INSITU__TEXT_FLAG, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(split_gap, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(manifest, INSITU__TEXT_TEXT, NULL, INSITU__LOADER_FROM_DESC),
    INSITU__LOADER_FIELD(on_bad_chunk, INSITU__TEXT_WORD, insitu__loader_hole_words, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(on_absent_chunk, INSITU__TEXT_WORD, insitu__loader_hole_words, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(prefetch_depth, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_ARCHIVE),
    INSITU__LOADER_FIELD(max_inflight, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_ARCHIVE),
    INSITU__LOADER_FIELD(decode_threads, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_AFFINITY),
    INSITU__LOADER_FIELD(memory_budget, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_MACHINE),
    INSITU__LOADER_FIELD(cache_dir, INSITU__TEXT_TEXT, NULL, INSITU__LOADER_FROM_DESC),
    INSITU__LOADER_FIELD(cache_budget, INSITU__TEXT_U64, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(io, INSITU__TEXT_WORD, insitu__loader_io_words, INSITU__LOADER_FROM_MACHINE),
    INSITU__LOADER_FIELD(inline_io, INSITU__TEXT_FLAG, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(check, INSITU__TEXT_FLAG, NULL, INSITU__LOADER_FROM_DEFAULT),
    INSITU__LOADER_FIELD(hold_epoch, INSITU__TEXT_FLAG, NULL, INSITU__LOADER_FROM_DEFAULT),
};
enum { INSITU__LOADER_FIELDS = sizeof insitu__loader_fields / sizeof *insitu__loader_fields };
_Static_assert(INSITU__LOADER_FIELDS <= sizeof((insitu_loader *)0)->origin, "an origin for each");

static void insitu__loader_from(insitu_loader *ld, uint64_t at, int origin) { /* at: the member's offset */
  for (int i = 0; i < INSITU__LOADER_FIELDS; i++)
    if (insitu__loader_fields[i].text.at == at) ld->origin[i] = (unsigned char)origin;
}

/* Before defaults are put in: which members the desc gives. */
static void insitu__loader_origin_init(insitu_loader *ld) {
  static const unsigned char zero[sizeof ld->config.split];
  for (int i = 0; i < INSITU__LOADER_FIELDS; i++) {
    const struct insitu__loader_field *f = &insitu__loader_fields[i];
    bool given = memcmp((const char *)&ld->config + f->text.at, zero, (size_t)f->bytes) != 0;
    ld->origin[i] = (unsigned char)(given ? INSITU__LOADER_FROM_DESC : f->unset);
  }
}

/* Copies everything a desc points to. */
static bool insitu__loader_keep_desc(insitu_loader *ld, const insitu_loader_desc *desc) {
  insitu_loader_desc *c = &ld->config;
  bool ok = true;
  *c = *desc;
  c->url = insitu__loader_keep_text(ld, desc->url, &ok);
  c->sample_dim = insitu__loader_keep_text(ld, desc->sample_dim, &ok);
  c->manifest = insitu__loader_keep_text(ld, desc->manifest, &ok);
  c->cache_dir = insitu__loader_keep_text(ld, desc->cache_dir, &ok);
  insitu_option *options = NULL;
  if (desc->n_options)
    ok = (options = (insitu_option *)insitu__loader_keep(ld, desc->options, desc->n_options * sizeof *options)) && ok;
  for (uint64_t i = 0; ok && i < desc->n_options; i++) {
    options[i].key = insitu__loader_keep_text(ld, options[i].key, &ok);
    options[i].value = insitu__loader_keep_text(ld, options[i].value, &ok);
  }
  c->options = options;
  insitu_codec *codecs = NULL;
  if (desc->n_codecs)
    ok = (codecs = (insitu_codec *)insitu__loader_keep(ld, desc->codecs, desc->n_codecs * sizeof *codecs)) && ok;
  for (uint64_t i = 0; ok && i < desc->n_codecs; i++) codecs[i].name = insitu__loader_keep_text(ld, codecs[i].name, &ok);
  c->codecs = codecs;
  ld->hooks = (struct insitu__codec_hooks){.codec = codecs, .n = desc->n_codecs};
  c->sample_from = insitu__loader_keep_text(ld, desc->sample_from, &ok);
  c->sample_to = insitu__loader_keep_text(ld, desc->sample_to, &ok);
  c->time_path = insitu__loader_keep_text(ld, desc->time_path, &ok);
  for (int p = 0; p < 3; p++) {
    c->split[p].from = insitu__loader_keep_text(ld, desc->split[p].from, &ok);
    c->split[p].to = insitu__loader_keep_text(ld, desc->split[p].to, &ok);
  }
  insitu_variable *vars = (insitu_variable *)insitu__loader_keep(ld, desc->variables, desc->n_variables * sizeof *vars);
  c->variables = vars;
  ok = ok && (vars || !desc->n_variables);
  for (uint64_t i = 0; ok && i < desc->n_variables; i++) {
    insitu_variable *v = &vars[i];
    v->label = insitu__loader_keep_text(ld, v->label, &ok);
    v->path = insitu__loader_keep_text(ld, v->path, &ok);
    if (v->n_steps) ok = (v->steps = (const int64_t *)insitu__loader_keep(ld, v->steps, v->n_steps * sizeof *v->steps)) && ok;
    insitu_slice *slices = v->n_slices ? (insitu_slice *)insitu__loader_keep(ld, v->slices, v->n_slices * sizeof *slices) : NULL;
    ok = ok && (slices || !v->n_slices);
    for (uint64_t k = 0; ok && k < v->n_slices; k++) slices[k].dim = insitu__loader_keep_text(ld, slices[k].dim, &ok);
    v->slices = slices;
  }
  return ok;
}

/* What can be said of a desc before the archive is opened. */
static insitu_status insitu__loader_check(const insitu_loader_desc *d, insitu_error *err) {
  if (!d->api || d->api > INSITU_API)
    return insitu__error_set(err, INSITU_E_API,
        "open: desc.api is %u and this implementation knows 1 to %d; set it to INSITU_API, and build "
        "every file with the same insitubatch.h",
        (unsigned)d->api, INSITU_API);
  if (!d->url || !*d->url) return insitu__error_set(err, INSITU_E_ARG, "open: url is empty; give the path of a Zarr archive");
  if (d->world < 0 || d->world > INSITU__MAX_WORLD || d->rank < 0 || d->rank >= (d->world ? d->world : 1))
    return insitu__error_set(
        err, INSITU_E_ARG, "open: rank %d of world %d does not exist; give 0 <= rank < world", (int)d->rank, (int)d->world);
  const struct {
    const char *name;
    uint64_t value, most;
  } limit[] = {{"batch_size", d->batch_size, INSITU__MAX_BATCH}, {"block_chunks", d->block_chunks, INSITU__MAX_LISTED_CHUNKS},
      {"unit_chunks", d->unit_chunks, 1 << 20}, {"lanes", d->lanes, INSITU__MAX_LANES},
      {"prefetch_depth", d->prefetch_depth, INSITU__MAX_DEPTH}, {"max_inflight", d->max_inflight, INSITU__MAX_INFLIGHT},
      {"decode_threads", d->decode_threads, INSITU__REACTOR_MAX_WORKERS}, {"split_gap", d->split_gap, INSITU__MAX_LISTED_CHUNKS}};
  for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
    if (limit[i].value > limit[i].most)
      return insitu__error_set(err, INSITU_E_ARG, "open: %s is %" PRIu64 ", at most %" PRIu64 " makes sense; correct it",
          limit[i].name, limit[i].value, limit[i].most);
  const struct {
    const char *name;
    int32_t value, most;
  } choice[] = {{"on_bad_chunk", d->on_bad_chunk, INSITU_FILL}, {"on_absent_chunk", d->on_absent_chunk, INSITU_FILL},
      {"io", d->io, INSITU_IO_EPOLL}, {"log_level", d->log_level == INSITU_LOG_OFF ? 0 : d->log_level, INSITU_LOG_DEBUG}};
  for (size_t i = 0; i < sizeof choice / sizeof *choice; i++)
    if (choice[i].value < 0 || choice[i].value > choice[i].most)
      return insitu__error_set(
          err, INSITU_E_ARG, "open: %s is %d; use one of its constants", choice[i].name, (int)choice[i].value);
  if (d->n_codecs > INSITU__MAX_USER_CODECS || (d->n_codecs && !d->codecs))
    return insitu__error_set(err, INSITU_E_ARG, "open: n_codecs is %" PRIu64 "; give codecs, at most %d", d->n_codecs,
        d->codecs ? INSITU__MAX_USER_CODECS : 0);
  for (uint64_t i = 0; i < d->n_codecs; i++)
    if (!d->codecs[i].name || !*d->codecs[i].name || !d->codecs[i].decode || d->codecs[i].max_encoded > 2 * INSITU__MAX_CHUNK)
      return insitu__error_set(
          err, INSITU_E_ARG, "open: codecs[%" PRIu64 "] needs a name, decode, and max_encoded of at most 2^32; correct it", i);
  if (d->n_options > INSITU__MAX_OPTIONS || (d->n_options && !d->options))
    return insitu__error_set(err, INSITU_E_ARG, "open: n_options is %" PRIu64 "; give options, at most %d", d->n_options,
        d->options ? INSITU__MAX_OPTIONS : 0);
  for (uint64_t i = 0; i < d->n_options; i++)
    if (!d->options[i].key || !d->options[i].value)
      return insitu__error_set(err, INSITU_E_ARG, "open: options[%" PRIu64 "] needs a key and a value", i);
  bool both = (d->sample_from || d->sample_to) && (d->sample_start || d->sample_stop);
  for (int p = 0; p < 3; p++) {
    const insitu_split_range *r = &d->split[p];
    both = both || ((r->from || r->to) && (r->start || r->stop || r->fraction != 0));
  }
  if (both)
    return insitu__error_set(err, INSITU_E_ARG,
        "open: samples are selected by date and by index or fraction at once; give either sample_from and sample_to or "
        "sample_start and sample_stop, and in each split either from and to or the others");
  return insitu__geometry_check(d, err);
}

/* The number of the word that an environment variable holds, counted from 1; 0: it is unset or empty. */
static insitu_status insitu__loader_environment(
    const char *name, const char *const *words, const char *listed, int32_t *out, insitu_error *err) {
  const char *value = getenv(name);
  *out = 0;
  if (!value || !*value) return INSITU_OK;
  while (words[*out])
    if (!strcmp(words[(*out)++], value)) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_ARG, "open: the environment says %s=%.40s; set it to %s, or unset it", name, value, listed);
}

static insitu_status insitu__loader_defaults_environment(insitu_loader *ld, insitu_error *err) {
  static const char *const io[] = {"uring", "epoll", NULL}, *const log[] = {"error", "warn", "info", "debug", "off", NULL},
                           *const check[] = {"0", "1", NULL};
  insitu_loader_desc *c = &ld->config;
  insitu_status status = INSITU_OK;
  if (!c->io) {
    status = insitu__loader_environment("INSITU_IO", io, "uring or epoll", &c->io, err);
    if (c->io) insitu__loader_from(ld, offsetof(insitu_loader_desc, io), INSITU__LOADER_FROM_ENVIRONMENT);
  }
  if (!status && !c->check) {
    int32_t word;
    status = insitu__loader_environment("INSITU_CHECK", check, "0 or 1", &word, err);
    c->check = word == 2;
    if (word) insitu__loader_from(ld, offsetof(insitu_loader_desc, check), INSITU__LOADER_FROM_ENVIRONMENT);
  }
  if (!status && !c->log_level) {
    status = insitu__loader_environment("INSITU_LOG", log, "off, error, warn, info or debug", &c->log_level, err);
    if (!c->log_level) c->log_level = INSITU_LOG_WARN;
    if (c->log_level > INSITU_LOG_DEBUG) c->log_level = INSITU_LOG_OFF;
  }
  return status;
}

/* Defaults that do not depend on the archive. */
static insitu_status insitu__loader_defaults(insitu_loader *ld, insitu_error *err) {
  insitu_loader_desc *c = &ld->config;
  insitu__loader_origin_init(ld);
  insitu_status status = insitu__loader_defaults_environment(ld, err);
  if (status) return status;
  bool split = false;
  for (int p = 0; p < 3; p++) {
    const insitu_split_range *r = &c->split[p];
    split = split || r->fraction != 0 || r->start || r->stop || r->from || r->to;
  }
  for (int p = 0; !split && p < 3; p++) c->split[p].fraction = p ? 0.1 : 0.8;
  if (!c->world) c->world = 1;
  if (!c->batch_size) c->batch_size = 32;
  if (!c->block_chunks) c->block_chunks = 64;
  if (!c->unit_chunks) c->unit_chunks = 1;
  if (!c->on_bad_chunk) c->on_bad_chunk = INSITU_RAISE;
  if (c->cache_dir && !c->cache_budget) c->cache_budget = UINT64_C(16) << 30;
  if (!c->decode_threads) {
    uint64_t cores = insitu__mem_cores();
    if (insitu__mem_cgroup(true) == cores)
      insitu__loader_from(ld, offsetof(insitu_loader_desc, decode_threads), INSITU__LOADER_FROM_CGROUP);
    c->decode_threads = insitu__base_min(cores, INSITU__REACTOR_MAX_WORKERS);
  }
  if (!c->memory_budget) {
    uint64_t total = insitu__mem_total();
    if (insitu__mem_cgroup(false) == total)
      insitu__loader_from(ld, offsetof(insitu_loader_desc, memory_budget), INSITU__LOADER_FROM_CGROUP);
    c->memory_budget = total / 2;
  }
  if (c->inline_io) {
    c->decode_threads = 1; /* the caller's */
    insitu__loader_from(ld, offsetof(insitu_loader_desc, decode_threads), INSITU__LOADER_FROM_INLINE);
  }
  return INSITU_OK;
}

/* Shards that the variables may touch; *bytes becomes the longest index. */
static uint64_t insitu__loader_indexes(const struct insitu__geometry_array *a, uint64_t *bytes) {
  const struct insitu__zarr_array *z = &a->zarr;
  uint64_t sum = 0;
  for (unsigned l = 0; l < z->n_levels; l++) {
    const struct insitu__codec_shard *shard = z->level[l].shard;
    uint64_t cells = 1;
    for (unsigned k = 0; k < z->ndim; k++) {
      unsigned d = z->level[l].axis[k];
      uint64_t per = shard->chunk[k] / z->chunk[d], n = insitu__base_ceil_div(z->shape[d], shard->chunk[k]);
      if (d != a->axis) n = (a->tile_lo[d] + a->tile_n[d] - 1) / per - a->tile_lo[d] / per + 1;
      cells *= n; /* at most as many as the array has elements */
    }
    sum = insitu__codec_add(sum, cells);
    *bytes = insitu__base_max(*bytes, insitu__codec_shard_index_bytes(shard));
  }
  return sum;
}

/* Buffers and scratch; max_inflight shrinks by itself only when it is not the user's. */
static insitu_status insitu__loader_footprint(insitu_loader *ld, insitu_error *err) {
  insitu_loader_desc *c = &ld->config;
  struct insitu__codec_needs need = {.zstd = false};
  for (uint64_t i = 0; i < ld->geometry.n_arrays; i++) {
    const struct insitu__geometry_array *a = &ld->geometry.arrays[i];
    ld->buffer_bytes = insitu__base_max(ld->buffer_bytes, insitu__base_max(a->bound, a->chunk_bytes) + 1);
    bool whole = !a->sample_slowest && a->zarr.codecs.n;
    if (whole) ld->whole_bytes = insitu__base_max(ld->whole_bytes, a->chunk_bytes);
    insitu__codec_needs_add(&need, &a->zarr.codecs, a->chunk_bytes);
    ld->cache_slots = insitu__codec_add(ld->cache_slots, insitu__loader_indexes(a, &ld->slot_bytes));
  }
  if (ld->slot_bytes) ld->buffer_bytes += INSITU__LOADER_GAP;
  uint64_t scratch = insitu__codec_scratch_bytes(&need) + ld->whole_bytes;
  uint64_t each = ld->buffer_bytes + INSITU_CORO_STACK + insitu__store_read_bytes(&ld->store) +
                  (ld->slot_bytes ? 2u : 1u) * (INSITU__LOADER_IOV + 1) * sizeof(struct iovec) +
                  ld->geometry.n_variables * (sizeof(struct insitu__box) + 1);
  bool far = ld->store.remote != NULL;
  uint64_t ahead = far ? insitu__base_min(INSITU__LOADER_FAR_BYTES, c->memory_budget / 4) : INSITU__LOADER_AHEAD;
  uint64_t buffers = far ? INSITU__LOADER_FAR_BYTES : INSITU__LOADER_BUFFERS;
  if (!c->prefetch_depth)
    c->prefetch_depth = insitu__base_max(4, insitu__base_min(64, ahead / insitu__base_max(1, ld->geometry.slab_bytes)));
  if (!c->max_inflight) { /* few large chunks, so that their buffers stay in the caches; fewer still where memory is short */
    bool small = ld->buffer_bytes <= INSITU__LOADER_SMALL + INSITU__LOADER_GAP + 1;
    c->max_inflight = small ? insitu__base_min(256, 64 * insitu__base_max(1, c->decode_threads)) : far ? INSITU__LOADER_FAR : 32;
    while (c->max_inflight > 4 * c->decode_threads && c->max_inflight * ld->buffer_bytes > buffers) c->max_inflight /= 2;
    while (c->max_inflight > 2 * c->decode_threads && c->max_inflight * (each + ld->slot_bytes) > c->memory_budget / 4)
      c->max_inflight /= 2;
  }
  insitu__store_expect(&ld->store, c->max_inflight);
  ld->inflight_bytes = c->max_inflight * each + c->decode_threads * scratch;
  if (ld->slot_bytes) { /* all indexes, or those that a sixteenth of the budget holds */
    uint64_t fit = c->memory_budget / 16 / insitu__cache_bytes(1, ld->slot_bytes);
    ld->cache_slots =
        insitu__base_max(c->max_inflight, insitu__base_min(insitu__base_min(ld->cache_slots, fit), INSITU__CACHE_SLOTS));
    ld->cache_bytes = insitu__cache_bytes((uint32_t)ld->cache_slots, ld->slot_bytes);
    ld->few = c->max_inflight / 4; /* with INSITU__LOADER_GAP's blosc chunks 1 reaches 0.97 of it, an eighth 0.99, half 1.01 */
  }
  if (c->plan_only || insitu__codec_add(ld->inflight_bytes, ld->cache_bytes) <= c->memory_budget) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_BUDGET,
      "open: %" PRIu64 " chunks in flight of %" PRIu64 " bytes each, %" PRIu64 " decoders with %" PRIu64
      " bytes of scratch and %" PRIu64 " indexes of shards with %" PRIu64 " bytes each need %" PRIu64
      " bytes, memory_budget is %" PRIu64 "; raise memory_budget, or lower max_inflight or decode_threads",
      c->max_inflight, each, c->decode_threads, scratch, ld->cache_slots, ld->slot_bytes,
      insitu__codec_add(ld->inflight_bytes, ld->cache_bytes), c->memory_budget);
}

/* What a remote store is asked for at once, before the arrays are opened one after the other. */
static void insitu__loader_prefetch_await(insitu_loader *ld) {
  const insitu_loader_desc *c = &ld->config;
  const char **paths = (const char **)insitu__mem_alloc(c->n_variables, sizeof *paths);
  for (uint64_t i = 0; paths && i < c->n_variables; i++) paths[i] = insitu__geometry_path(&c->variables[i]);
  if (paths) insitu__zarr_prefetch_await(&ld->group, paths, c->n_variables);
  insitu__mem_free(paths);
}
static insitu_status insitu__loader_array_await(void *arg, const char *path, struct insitu__zarr_array *out, insitu_error *err) {
  return insitu__zarr_array_await(&((insitu_loader *)arg)->group, path, out, err);
}

/* A whole coordinate, while dates are looked up in it. */
struct insitu__loader_time {
  const char *path;
  int calendar;
  const int64_t *at;
  uint64_t n;
  bool falls;
};
static insitu_status insitu__loader_time_check(struct insitu__loader_time *t, insitu_error *err) {
  t->falls = t->n > 1 && t->at[1] < t->at[0];
  for (uint64_t i = 1; i < t->n; i++) {
    char before[INSITU__TIME_TEXT], at[INSITU__TIME_TEXT];
    if (t->falls ? t->at[i] < t->at[i - 1] : t->at[i] > t->at[i - 1]) continue;
    return insitu__error_set(err, INSITU_E_FORMAT,
        "array '%.280s': its dates neither rise nor fall throughout: %s at index %" PRIu64 " follows %s; select samples by index",
        t->path, insitu__time_print(t->calendar, t->at[i], at), i, insitu__time_print(t->calendar, t->at[i - 1], before));
  }
  return INSITU_OK;
}
/* How many samples come before `moment`, or from it on if the dates fall. */
static uint64_t insitu__loader_time_before(const struct insitu__loader_time *t, int64_t moment) {
  uint64_t lo = 0, hi = t->n;
  while (lo < hi) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (t->falls ? t->at[mid] >= moment : t->at[mid] < moment) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
/* Samples [*start, *stop) from one date to another, either NULL: to that end. what: the fields' names in a message. */
static insitu_status insitu__loader_time_range(const struct insitu__loader_time *t, const char *what, const char *from,
    const char *to, int64_t *start, int64_t *stop, insitu_error *err) {
  const char *const text[2] = {from, to};
  int64_t moment[2] = {INT64_MIN, INT64_MAX}, other;
  char first[INSITU__TIME_TEXT], last[INSITU__TIME_TEXT];
  for (int i = 0; i < 2; i++) {
    struct insitu__time_date d;
    if (text[i] && (!insitu__time_parse(text[i], &d) ||
                       !insitu__time_period(t->calendar, &d, i ? &other : &moment[0], i ? &moment[1] : &other)))
      return insitu__error_set(err, INSITU_E_ARG,
          "open: %s: '%.40s' is no date of calendar %s; write it as in 1979, 1979-06, 1979-06-01 or 1979-06-01T12", what, text[i],
          insitu__time_calendars[t->calendar]);
  }
  *start = (int64_t)insitu__loader_time_before(t, moment[t->falls]);
  *stop = (int64_t)insitu__loader_time_before(t, moment[!t->falls]);
  if (*start < *stop) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_SPLIT,
      "open: %s: no sample lies from %.40s to %.40s: the dates of array '%.200s' go from %s to %s; correct the dates", what,
      from ? from : "the begin", to ? to : "the end", t->path, insitu__time_print(t->calendar, t->at[0], first),
      insitu__time_print(t->calendar, t->at[t->n - 1], last));
}
/* Puts indices in the place of the configuration's dates. */
static insitu_status insitu__loader_time_resolve(insitu_loader *ld, const struct insitu__loader_time *t, insitu_error *err) {
  static const char *const names[] = {"from and to of split train", "from and to of split val", "from and to of split test"};
  insitu_loader_desc *c = &ld->config;
  insitu_status status = INSITU_OK;
  if (c->sample_from || c->sample_to) {
    status = insitu__loader_time_range(
        t, "sample_from and sample_to", c->sample_from, c->sample_to, &c->sample_start, &c->sample_stop, err);
    c->sample_from = c->sample_to = NULL;
    insitu__loader_from(ld, offsetof(insitu_loader_desc, sample_start), INSITU__LOADER_FROM_ARCHIVE);
    insitu__loader_from(ld, offsetof(insitu_loader_desc, sample_stop), INSITU__LOADER_FROM_ARCHIVE);
  }
  for (int p = 0; p < 3 && !status; p++) {
    insitu_split_range *r = &c->split[p];
    if (!r->from && !r->to) continue;
    bool begins = r->from, ends = r->to;
    status = insitu__loader_time_range(t, names[p], r->from, r->to, &r->start, &r->stop, err);
    if (!begins) r->start = c->sample_start; /* an open end is that of the samples that take part */
    if (!ends && c->sample_stop) r->stop = c->sample_stop;
    r->from = r->to = NULL;
  }
  return status;
}
/* Looks the configuration's dates up, where it has some. */
static insitu_status insitu__loader_dates_await(insitu_loader *ld, insitu_error *err) {
  const insitu_loader_desc *c = &ld->config;
  bool dates = c->sample_from || c->sample_to;
  for (int p = 0; p < 3; p++) dates = dates || c->split[p].from || c->split[p].to;
  if (!dates) return INSITU_OK;
  struct insitu__zarr_array z;
  struct insitu__time_units u;
  uint64_t n = ld->geometry.samples, bytes = n * sizeof(int64_t);
  insitu_status status = insitu__loader_time_find_await(ld, &z, err);
  if (!status) status = insitu__loader_time_units(&z, &u, err);
  if (!status && (n > INSITU__MAX_COORDINATE || bytes > c->memory_budget))
    status = insitu__error_set(err, INSITU_E_BUDGET,
        "open, array %.200s: %" PRIu64 " dates take more than memory_budget, or are more than INSITU__MAX_COORDINATE; raise "
        "memory_budget, or select samples by index",
        z.path, n);
  if (!status) {
    int64_t *at = (int64_t *)insitu__mem_alloc(n, sizeof *at);
    struct insitu__loader_time t = {z.path, u.calendar, at, n, false};
    ld->reserved += bytes; /* nobody else is there yet */
    status = at ? insitu__loader_time_read_await(ld, &z, &u, 0, n, at, err)
                : insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the dates; give the process more memory");
    if (!status) status = insitu__loader_time_check(&t, err);
    if (!status) status = insitu__loader_time_resolve(ld, &t, err);
    ld->reserved -= bytes;
    insitu__mem_free(at);
  }
  insitu__zarr_array_free(&z);
  return status;
}

/* The text of the manifest file, which the caller frees in any case. */
static insitu_status insitu__loader_manifest_await(insitu_loader *ld, char **text, uint64_t *n, insitu_error *err) {
  const char *path = ld->config.manifest;
  char cause[128];
  for (uint64_t cap = 1 << 16; cap <= INSITU__MAX_META; cap *= 2) {
    char *larger = (char *)insitu__mem_realloc(*text, cap);
    if (!larger)
      return insitu__error_set(
          err, INSITU_E_NOMEM, "open, manifest %s: no memory for %" PRIu64 " bytes; give the process more memory", path, cap);
    *text = larger;
    struct iovec iov = {*text + *n, (size_t)(cap - *n)};
    int64_t got = insitu__reactor_read_file_await(&ld->reactor, AT_FDCWD, path, *n, &iov, 1);
    if (got < 0) {
      if (err && err->status >= 0) err->sys_errno = (int)-got;
      return insitu__error_set(err, got == -ENOENT ? INSITU_E_NOTFOUND : INSITU_E_IO, "open, manifest %s: %s; %s", path,
          strerror_r((int)-got, cause, sizeof cause), got == -ENOENT ? "check the path" : insitu__store_advice((int)-got));
    }
    *n += (uint64_t)got;
    if (*n < cap) return INSITU_OK;
  }
  return insitu__error_set(
      err, INSITU_E_UNSUPPORTED, "open, manifest %s: it has %u bytes or more; check the path", path, INSITU__MAX_META);
}

struct insitu__loader_opening {
  insitu_loader *ld;
  insitu_status status;
  insitu_error *err;
};

/* Store, metadata, geometry, split: everything that open learns from the archive. */
static void insitu__loader_open_await(void *arg) {
  struct insitu__loader_opening *o = (struct insitu__loader_opening *)arg;
  insitu_loader *ld = o->ld;
  insitu_loader_desc *c = &ld->config;
  char *manifest = NULL;
  uint64_t n = 0;
  o->status = insitu__store_open(&ld->store, &ld->reactor, c, o->err);
  if (!o->status && ld->store.remote) c->url = ld->store.url; /* without credentials */
  if (!o->status) o->status = insitu__zarr_open_await(&ld->group, &ld->store, o->err);
  ld->group.hooks = &ld->hooks;
  if (!c->n_variables) { /* for insitu_read alone */
    if (!o->status) o->status = insitu__loader_footprint(ld, o->err);
    return;
  }
  if (!o->status) insitu__loader_prefetch_await(ld);
  if (!o->status) o->status = insitu__geometry_init_await(&ld->geometry, c, insitu__loader_array_await, ld, o->err);
  if (!o->status) o->status = insitu__geometry_slab(&ld->geometry, c->batch_size, o->err);
  if (!o->status && !ld->geometry.samples)
    o->status = insitu__error_set(o->err, INSITU_E_SPLIT, "open: the sample axis has no samples; choose another one");
  if (!o->status) o->status = insitu__loader_dates_await(ld, o->err);
  if (!o->status && c->manifest) o->status = insitu__loader_manifest_await(ld, &manifest, &n, o->err);
  if (!o->status)
    o->status = insitu__split_init(
        &ld->split, c, manifest, n, ld->geometry.samples, ld->geometry.chunk, ld->geometry.deltas, ld->geometry.n_deltas, o->err);
  insitu__mem_free(manifest);
  insitu__store_forget(&ld->store);
  if (!o->status) o->status = insitu__loader_footprint(ld, o->err);
  if (!o->status && !c->plan_only && insitu__reactor_spawn(&ld->reactor, insitu__loader_watch_await, ld))
    o->status = INSITU_E_NOMEM;
}

static bool insitu__loader_tiles(insitu_loader *ld) {
  const struct insitu__geometry *g = &ld->geometry;
  ld->arrays = (insitu_array *)insitu__mem_alloc(g->n_variables, sizeof *ld->arrays);
  for (uint64_t i = 0; ld->arrays && i < g->n_variables; i++) {
    struct insitu__geometry_variable *v = &ld->geometry.variables[i];
    ld->arrays[i] = (insitu_array){.name = v->label,
        .bytes = ld->config.batch_size * v->row_bytes,
        .row_bytes = v->row_bytes,
        .shape = v->shape,
        .strides = v->strides,
        .ndim = v->ndim,
        .dtype = v->dtype};
  }
  if (ld->config.plan_only) return ld->arrays;
  ld->scratch = (struct insitu__loader_scratch *)insitu__mem_alloc(ld->config.decode_threads, sizeof *ld->scratch);
  ld->tiles = (struct insitu__loader_tile *)insitu__mem_alloc(ld->config.max_inflight, sizeof *ld->tiles);
  bool ok = ld->arrays && ld->scratch && ld->tiles &&
            insitu__cache_init(&ld->cache, &ld->reactor, &ld->store, (uint32_t)ld->cache_slots, ld->slot_bytes);
  for (uint64_t i = 0; ok && i < ld->config.decode_threads; i++) insitu__codec_scratch_init(&ld->scratch[i].codec);
  for (uint64_t i = ld->config.max_inflight; ok && i-- > 0;) {
    struct insitu__loader_tile *t = &ld->tiles[i];
    t->loader = ld;
    t->box = (struct insitu__box *)insitu__mem_alloc(g->n_variables, sizeof *t->box);
    t->wanted = (bool *)insitu__mem_alloc(g->n_variables, sizeof *t->wanted);
    t->iov = (struct iovec *)insitu__mem_alloc(INSITU__LOADER_IOV + 1, sizeof *t->iov);
    ok = t->box && t->wanted && t->iov;
    if (ld->slot_bytes) ok = (t->run_iov = (struct iovec *)insitu__mem_alloc(INSITU__LOADER_IOV + 1, sizeof *t->run_iov)) && ok;
    t->next = ld->free;
    ld->free = t;
  }
  return ok;
}

static void insitu__loader_destroy(insitu_loader *ld) {
  if (ld->running) insitu__reactor_close(&ld->reactor);
  insitu__zarr_group_free(&ld->group);
  insitu__store_close(&ld->store);
  insitu__cache_free(&ld->cache);
  for (uint64_t i = 0; ld->tiles && i < ld->config.max_inflight; i++) {
    insitu__mem_free(ld->tiles[i].box);
    insitu__mem_free(ld->tiles[i].wanted);
    insitu__mem_free(ld->tiles[i].iov);
    insitu__mem_free(ld->tiles[i].run_iov);
    insitu__mem_unmap(ld->tiles[i].buffer, ld->buffer_bytes);
  }
  for (uint64_t i = 0; ld->scratch && i < ld->config.decode_threads; i++) {
    insitu__codec_scratch_free(&ld->scratch[i].codec);
    insitu__mem_unmap(ld->scratch[i].whole, ld->whole_bytes);
  }
  insitu__mem_free(ld->tiles);
  insitu__mem_free(ld->scratch);
  insitu__mem_free(ld->arrays);
  insitu__geometry_free(&ld->geometry);
  insitu__split_free(&ld->split);
  insitu__codec_hooks_free(&ld->hooks);
  for (struct insitu__loader_block *b = ld->blocks, *next; b; b = next) {
    next = b->next;
    insitu__mem_free(b);
  }
  pthread_mutex_destroy(&ld->lock);
  insitu__mem_free(ld);
}

static insitu_status insitu__loader_init(insitu_loader *ld, const insitu_loader_desc *desc, insitu_error *err) {
  insitu_loader_desc *c = &ld->config;
  if (!insitu__loader_keep_desc(ld, desc))
    return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for the configuration; give the process more memory");
  insitu_status status = insitu__loader_defaults(ld, err);
  if (status) return status;
  bool inline_mode = c->inline_io || c->plan_only;
  struct insitu__reactor_desc r = {.backend = c->io,
      .inline_mode = inline_mode,
      .workers = inline_mode ? 0 : (unsigned)c->decode_threads,
      .io_threads = inline_mode ? 0 : (unsigned)insitu__base_min(16, insitu__base_max(4, 2 * c->decode_threads)),
      .depth = 256,
      .iowq_max_workers = (unsigned)insitu__base_max(4, 2 * c->decode_threads),
      .stack_bytes = INSITU_CORO_STACK,
      .pump = insitu__loader_pump,
      .pump_arg = ld};
  status = insitu__reactor_open(&ld->reactor, &r, err);
  if (status) return status;
  ld->running = true;
  struct insitu__loader_opening o = {ld, INSITU_OK, err};
  status = insitu__reactor_call(&ld->reactor, insitu__loader_open_await, &o);
  if (!status) status = o.status;
  if (!status && !insitu__loader_tiles(ld)) status = INSITU_E_NOMEM;
  if (status == INSITU_E_NOMEM) insitu__error_set(err, status, "open: the system gives no memory; lower max_inflight");
  c->io = insitu__ring_backend_name(&ld->reactor.ring)[0] == 'u' ? INSITU_IO_URING : INSITU_IO_EPOLL;
  if (!status && !c->plan_only)
    insitu__loader_memory(ld, ld->inflight_bytes + ld->cache_bytes - c->max_inflight * ld->buffer_bytes);
  return status;
}

/* ---- iterators ---- */

/* Frees an iterator of which no batch is held. */
static void insitu__loader_free_iter(insitu_iter *it) {
  for (uint64_t i = 0; it->slabs && i < it->n_slabs; i++) {
    insitu__mem_unmap(it->slabs[i].memory, it->slab_bytes);
    insitu__mem_free(it->slabs[i].arrays);
    insitu__mem_free(it->slabs[i].shapes);
  }
  insitu__mem_free(it->slabs);
  insitu__mem_free(it->ring);
  insitu__mem_free(it->names);
  insitu__plan_scan_free(&it->scan);
  insitu__order_free(&it->order[0]);
  insitu__order_free(&it->order[1]);
  pthread_cond_destroy(&it->news);
  pthread_mutex_destroy(&it->lock);
  insitu__mem_free(it);
}

/* The public structs of one slab; names and strides are copies. */
static bool insitu__loader_slab_init(insitu_iter *it, struct insitu__loader_slab *slab, const struct insitu__geometry *g) {
  slab->iter = it;
  slab->arrays = (insitu_array *)insitu__mem_alloc(g->n_variables, sizeof *slab->arrays);
  slab->shapes = (int64_t *)insitu__mem_alloc(g->n_variables, 2 * (INSITU__MAX_DIMS + 1) * sizeof *slab->shapes);
  slab->next = it->free;
  it->free = slab;
  if (!slab->arrays || !slab->shapes) return false;
  const char *name = it->names;
  for (uint64_t i = 0; i < g->n_variables; i++) {
    const struct insitu__geometry_variable *v = &g->variables[i];
    int64_t *shape = slab->shapes + 2 * (INSITU__MAX_DIMS + 1) * i, *strides = shape + INSITU__MAX_DIMS + 1;
    memcpy(shape, v->shape, sizeof v->shape);
    memcpy(strides, v->strides, sizeof v->strides);
    slab->arrays[i] = (insitu_array){
        .name = name, .row_bytes = v->row_bytes, .shape = shape, .strides = strides, .ndim = v->ndim, .dtype = v->dtype};
    name += strlen(name) + 1;
  }
  slab->batch.arrays = slab->arrays;
  slab->batch.n_arrays = g->n_variables;
  return true;
}

/* The plan of the iterator that desc describes. */
static insitu_status insitu__loader_plan(
    const insitu_loader *ld, const insitu_iter_desc *desc, struct insitu__plan *p, insitu_error *err) {
  bool shuffled = desc->order ? desc->order == INSITU_SHUFFLED : desc->split == INSITU_TRAIN;
  return insitu__plan_init(
      p, &ld->geometry, &ld->split, desc->split, shuffled ? INSITU_SHUFFLED : INSITU_SEQUENTIAL, &ld->config, err);
}

/* Slabs of undelivered batches: while the scan stands at the last of prefetch_depth batches, a window that it opens there reaches
 * span - 1 batches further. */
static uint64_t insitu__loader_ring(const insitu_loader *ld, uint64_t span) {
  return ld->config.prefetch_depth + span - 1;
}

static uint64_t insitu__loader_max_held(const insitu_iter_desc *desc) {
  return desc->max_held ? desc->max_held : 2;
}

/* Everything of an iterator that needs memory but its slabs. */
static insitu_status insitu__loader_iter_init(insitu_iter *it, const insitu_iter_desc *desc, insitu_error *err) {
  insitu_loader *ld = it->loader;
  insitu_status status = insitu__loader_plan(ld, desc, &it->plan, err);
  for (uint64_t i = 0; !status && i < 2; i++) {
    uint64_t epoch = desc->epoch + ((desc->epoch ^ i) & 1);
    status = insitu__plan_order(&it->plan, epoch, &it->order[i], err);
  }
  if (status) return status;
  it->batches = it->order[0].batches;
  it->n_ring = insitu__loader_ring(ld, insitu__order_span(&it->order[0]));
  it->max_held = insitu__loader_max_held(desc);
  it->n_slabs = it->n_ring + it->max_held;
  it->slab_bytes = ld->geometry.slab_bytes;
  if (it->batches < (UINT64_MAX >> 2) / INSITU__MAX_EPOCH) return INSITU_OK;
  return insitu__error_set(
      err, INSITU_E_ARG, "iterator: %" PRIu64 " batches an epoch are more than 2^42; raise batch_size", it->batches);
}

/* Bytes of an iterator besides its slabs' pages: the scan's tables and the structs of its slabs. */
static uint64_t insitu__loader_tables(const insitu_loader *ld, uint64_t scan, uint64_t slabs) {
  uint64_t each = sizeof(struct insitu__loader_slab) + sizeof(struct insitu__loader_slab *) +
                  ld->geometry.n_variables * (sizeof(insitu_array) + 2 * (INSITU__MAX_DIMS + 1) * sizeof(int64_t));
  uint64_t bytes;
  return insitu__base_mul(slabs, each, &bytes) && insitu__base_add(bytes, scan, &bytes) ? bytes : UINT64_MAX;
}

static insitu_status insitu__loader_iter_slabs(insitu_iter *it, insitu_error *err) {
  insitu_loader *ld = it->loader;
  const struct insitu__geometry *g = &ld->geometry;
  uint64_t bytes = 0, names = 0, scan = insitu__plan_scan_bytes(&it->plan, &it->order[0]);
  uint64_t tables = insitu__loader_tables(ld, scan, it->n_slabs);
  bool fits = insitu__base_mul(it->n_slabs, it->slab_bytes, &bytes) && insitu__base_add(bytes, tables, &bytes);
  pthread_mutex_lock(&ld->lock);
  uint64_t used = ld->inflight_bytes + ld->cache_bytes + ld->reserved;
  fits = fits && bytes <= ld->config.memory_budget - insitu__base_min(used, ld->config.memory_budget);
  if (fits) {
    ld->reserved += it->reserved = bytes;
    ld->tables += it->tables = tables;
    insitu__loader_memory(ld, tables);
  }
  pthread_mutex_unlock(&ld->lock);
  if (!fits) {
    return insitu__error_set(err, INSITU_E_BUDGET,
        "iterator %s: %" PRIu64 " + %" PRIu64 " batches (windows and prefetch + held) of %" PRIu64 " bytes each and %" PRIu64
        " bytes of tables do not fit: %" PRIu64 " of memory_budget %" PRIu64
        " are taken by chunks in flight, indexes of shards and other iterators; raise memory_budget, or "
        "lower block_chunks, batch_size, prefetch_depth or max_held",
        insitu__split_names[it->split], it->n_ring, it->max_held, it->slab_bytes, tables, used, ld->config.memory_budget);
  }
  for (uint64_t i = 0; i < g->n_variables; i++) names += strlen(g->variables[i].label) + 1;
  it->names = (char *)insitu__mem_alloc(names, 1);
  it->slabs = (struct insitu__loader_slab *)insitu__mem_alloc(it->n_slabs, sizeof *it->slabs);
  it->ring = (struct insitu__loader_slab **)insitu__mem_alloc(it->n_ring, sizeof(struct insitu__loader_slab *));
  bool ok = it->names && it->slabs && it->ring;
  char *name = it->names;
  for (uint64_t i = 0; ok && i < g->n_variables; i++) name = stpcpy(name, g->variables[i].label) + 1;
  for (uint64_t i = 0; ok && i < it->n_slabs; i++) ok = insitu__loader_slab_init(it, &it->slabs[i], g);
  if (ok) return insitu__plan_scan_init(&it->scan, &it->plan, &it->order[0], err);
  return insitu__error_set(
      err, INSITU_E_NOMEM, "iterator %s: no memory for its tables; give the process more memory", insitu__split_names[it->split]);
}

static void insitu__loader_unreserve(insitu_iter *it) {
  pthread_mutex_lock(&it->loader->lock);
  it->loader->reserved -= it->reserved;
  it->loader->tables -= it->tables;
  it->loader->memory_now -= it->tables + it->alive * it->slab_bytes;
  pthread_mutex_unlock(&it->loader->lock);
}

/* Stops starting chunks of an iterator and waits for those in flight. */
static void insitu__loader_stop_await(insitu_iter *it) {
  it->stopping = true;
  insitu__store_sweep(&it->loader->store);
  memset(&it->idle, 0, sizeof it->idle);
  if (it->inflight[0] || it->inflight[1]) insitu__reactor_gate_await(&it->loader->reactor, &it->idle);
}

struct insitu__loader_move {
  insitu_iter *it;
  uint64_t epoch, batch; /* batch may be the epoch's end: END is then told first */
};

/* Forgets what is under way and goes on elsewhere. The iterator must be in the loader's list. */
static void insitu__loader_move_await(void *arg) {
  struct insitu__loader_move *m = (struct insitu__loader_move *)arg;
  insitu_iter *it = m->it;
  insitu__loader_stop_await(it);
  uint64_t number = m->epoch * it->batches + m->batch, epoch = number / it->batches;
  for (uint64_t i = 0; i < 2; i++) insitu__order_reset(&it->order[i], epoch + ((epoch ^ i) & 1));
  pthread_mutex_lock(&it->lock);
  for (uint64_t n = it->next; n < it->assigned; n++) {
    struct insitu__loader_slab *slab = it->ring[n % it->n_ring];
    insitu__mem_hide(slab->memory, it->slab_bytes);
    slab->next = it->free;
    it->free = slab;
  }
  it->next = it->assigned = it->start = number;
  it->told = it->begun = m->batch ? UINT64_MAX : number;
  it->bad = UINT64_MAX;
  it->failed = false;
  memset(&it->error, 0, sizeof it->error);
  pthread_mutex_unlock(&it->lock);
  memset(it->tally, 0, sizeof it->tally);
  it->scan_epoch = epoch;
  insitu__plan_scan_seek(&it->scan, &it->order[epoch & 1], number % it->batches);
  it->stopping = false;
}

/* Puts a new iterator into the loader's list and sets it going. */
static void insitu__loader_begin_await(void *arg) {
  struct insitu__loader_move *m = (struct insitu__loader_move *)arg;
  m->it->next_iter = m->it->loader->iters;
  m->it->loader->iters = m->it;
  insitu__loader_move_await(m);
}

/* Takes an iterator out of the loader's list once nothing of it is in flight. */
static void insitu__loader_leave_await(void *arg) {
  insitu_iter *it = (insitu_iter *)arg;
  insitu__loader_stop_await(it);
  insitu_iter **link = &it->loader->iters;
  while (*link != it) link = &(*link)->next_iter;
  *link = it->next_iter;
}

/* Leaving must not fail: without memory for a coroutine it waits until one that is under way gives its stack back. */
static void insitu__loader_leave(insitu_iter *it) {
  while (insitu__reactor_call(&it->loader->reactor, insitu__loader_leave_await, it)) {
    if (it->loader->config.inline_io) insitu__reactor_run(&it->loader->reactor, 1000000);
    else poll(NULL, 0, 1);
  }
}

/* After leaving: gives the memory back, but for the batches the user holds. The last of them takes the iterator with it. */
static void insitu__loader_part(insitu_iter *it) {
  insitu__loader_unreserve(it);
  atomic_fetch_sub_explicit(&it->loader->slab_now, it->alive * it->slab_bytes, memory_order_relaxed);
  pthread_mutex_lock(&it->lock);
  it->closed = true;
  it->loader = NULL;
  bool held = it->held > 0;
  for (uint64_t i = 0; held && i < it->n_slabs; i++) {
    if (it->slabs[i].held) continue;
    insitu__mem_unmap(it->slabs[i].memory, it->slab_bytes);
    it->slabs[i].memory = NULL;
  }
  pthread_mutex_unlock(&it->lock);
  if (!held) insitu__loader_free_iter(it);
}

/* ---- strings of any length ---- */

struct insitu__loader_strings { /* lives on the caller's stack */
  insitu_loader *loader;
  const char *path;
  insitu_status status;
  insitu_error *err;
  struct insitu__zarr_array zarr;
  uint64_t n;
  uint64_t *at, *length;           /* of each string in text */
  struct insitu__text_buffer text; /* one NUL after each */
  struct insitu__codec_scratch codec;
  char *stored; /* the object being decoded */
  uint64_t stored_n;
  uint64_t lo[INSITU__MAX_DIMS], box[INSITU__MAX_DIMS]; /* first element and extents of the chunk being parsed */
  unsigned order[INSITU__MAX_DIMS];
  insitu_error error;
};

static bool insitu__loader_string_put(struct insitu__loader_strings *s, uint64_t number, const char *text, uint64_t n) {
  s->at[number] = s->text.n;
  s->length[number] = n;
  return insitu__text_buffer_bytes(&s->text, text, n) && insitu__text_buffer_bytes(&s->text, "", 1);
}
/* String `number` of the chunk, to its place; what lies outside of the array is dropped. */
static insitu_status insitu__loader_string_emit(void *to, uint64_t number, const char *text, uint64_t n) {
  struct insitu__loader_strings *s = (struct insitu__loader_strings *)to;
  const struct insitu__zarr_array *z = &s->zarr;
  uint64_t x[INSITU__MAX_DIMS], flat = 0;
  for (unsigned k = z->ndim; k-- > 0;) {
    unsigned axis = s->order[k];
    x[axis] = s->lo[axis] + number % s->box[axis];
    number /= s->box[axis];
    if (x[axis] >= z->shape[axis]) return INSITU_OK;
  }
  for (unsigned d = 0; d < z->ndim; d++) flat = flat * z->shape[d] + x[d];
  if (insitu__loader_string_put(s, flat, text, n)) return INSITU_OK;
  return insitu__error_set(&s->error, INSITU_E_NOMEM,
      "its strings have more than INSITU__MAX_STRING_BYTES (%u) bytes, or memory is short", INSITU__MAX_STRING_BYTES);
}
/* The strings of one chunk that no shard is. */
static insitu_status insitu__loader_string_chunk(
    struct insitu__loader_strings *s, const struct insitu__codec_chain *codecs, const uint8_t *bytes, uint64_t n) {
  const uint8_t *out;
  uint64_t got, count = 1;
  insitu_status status =
      insitu__codec_decode_unknown(codecs, &s->codec, bytes, n, INSITU__MAX_STRING_CHUNK, &out, &got, &s->error);
  for (unsigned d = 0; d < s->zarr.ndim; d++) count *= s->box[d];
  if (status < 0) return status;
  return (s->zarr.strings == INSITU__ZARR_JSON2 ? insitu__zarr_json2 : insitu__zarr_vlen)(
      out, got, count, insitu__loader_string_emit, s, &s->error);
}
/* A stored object, or an inner chunk of one: level counts the shards around it, INSITU__MAX_SHARD_LEVELS at most. */
static insitu_status insitu__loader_string_object(struct insitu__loader_strings *s, unsigned level,
    const struct insitu__codec_chain *codecs, const uint8_t *bytes, uint64_t n) {
  const struct insitu__zarr_array *z = &s->zarr;
  if (level >= z->n_levels || level >= INSITU__MAX_SHARD_LEVELS) return insitu__loader_string_chunk(s, codecs, bytes, n);
  const struct insitu__codec_shard *shard = z->level[level].shard;
  uint64_t index_bytes = insitu__codec_shard_index_bytes(shard), least = insitu__base_min(n, index_bytes), lo[INSITU__MAX_DIMS];
  const uint8_t *index = shard->index_first ? bytes : bytes + (n - least);
  insitu_status status = insitu__codec_shard_index(shard, index, least, &s->error);
  memcpy(lo, s->lo, sizeof lo);
  for (uint64_t i = 0; status >= 0 && i < shard->entries; i++) {
    uint64_t offset, length, rest = i;
    status = insitu__codec_shard_entry(shard, index, i, n, &offset, &length, &s->error);
    if (status < 0 || length == UINT64_MAX) continue;
    for (unsigned k = z->ndim; k-- > 0;) {
      unsigned axis = z->level[level].axis[k];
      uint64_t across = shard->chunk[k] / shard->inner[k];
      s->lo[axis] = lo[axis] + rest % across * shard->inner[k];
      s->box[axis] = shard->inner[k];
      s->order[k] = z->level[level].axis[shard->order[k]];
      rest /= across;
    }
    status = insitu__loader_string_object(s, level + 1, &shard->codecs, bytes + offset, length);
  }
  return status;
}
static void insitu__loader_string_work(void *arg, unsigned worker) {
  struct insitu__loader_strings *s = (struct insitu__loader_strings *)arg;
  (void)worker;
  s->status = insitu__loader_string_object(s, 0, &s->zarr.object.codecs, (const uint8_t *)s->stored, s->stored_n);
}
/* The object at `tile` of the grid of objects. */
static void insitu__loader_string_read_await(struct insitu__loader_strings *s, const uint64_t *tile) {
  const struct insitu__zarr_array *z = &s->zarr;
  insitu_loader *ld = s->loader;
  char key[INSITU__MAX_KEY];
  memset(&s->error, 0, sizeof s->error);
  for (unsigned d = 0; d < z->ndim; d++) {
    s->lo[d] = tile[d] * z->object.chunk[d];
    s->box[d] = z->object.chunk[d];
    s->order[d] = z->object.order[d];
  }
  if (insitu__zarr_chunk_key(z, tile, key, sizeof key) < 0)
    s->status = insitu__error_set(s->err, INSITU_E_FORMAT,
        "read, array %.200s: a chunk's key is longer than %d bytes; shorten the path", z->path, INSITU__MAX_KEY);
  if (s->status) return;
  insitu__loader_add(&ld->n_reads, 1);
  insitu__loader_add(&ld->n_requests, 1);
  s->status = insitu__store_get_await(&ld->store, key, INSITU__MAX_STRING_CHUNK, &s->stored, &s->stored_n, &s->error);
  bool absent = s->status == INSITU_E_NOTFOUND;
  if (absent) insitu__loader_add(&ld->n_absent, 1);
  if (absent && ld->config.on_absent_chunk != INSITU_RAISE) {
    s->status = INSITU_OK;
    return;
  }
  if (!s->status) {
    insitu__loader_add(&ld->n_read, s->stored_n);
    insitu__reactor_work_await(&ld->reactor, insitu__loader_string_work, s);
  }
  insitu__mem_free(s->stored);
  s->stored = NULL;
  if (s->status < 0)
    s->status = insitu__error_set(s->err, absent ? INSITU_E_ABSENT : s->status, "read, array %.200s, chunk %.300s: %s", z->path,
        key, absent ? "it is absent; set on_absent_chunk = INSITU_FILL to get its fill value" : s->error.message);
}
/* Room for the strings, every one of them the fill value. */
static void insitu__loader_strings_begin(struct insitu__loader_strings *s) {
  const struct insitu__zarr_array *z = &s->zarr;
  bool ok = true;
  s->n = 1;
  for (unsigned d = 0; d < z->axes; d++) ok = ok && insitu__base_mul(s->n, z->shape[d], &s->n);
  if (!ok || s->n > INSITU__MAX_STRINGS) {
    s->status = insitu__error_set(
        s->err, INSITU_E_UNSUPPORTED, "read, array %.200s: it has more strings than INSITU__MAX_STRINGS; leave it out", z->path);
    return;
  }
  s->text.limit = INSITU__MAX_STRING_BYTES;
  s->at = (uint64_t *)insitu__mem_alloc(s->n, sizeof *s->at);
  s->length = (uint64_t *)insitu__mem_alloc(s->n, sizeof *s->length);
  ok = s->at && s->length && insitu__text_buffer_bytes(&s->text, z->wide_fill ? (const char *)z->wide_fill : "", z->wide_n) &&
       insitu__text_buffer_bytes(&s->text, "", 1);
  for (uint64_t i = 0; ok && i < s->n; i++) {
    s->at[i] = 0;
    s->length[i] = z->wide_n;
  }
  if (!ok)
    s->status = insitu__error_set(
        s->err, INSITU_E_NOMEM, "read, array %.200s: no memory for its strings; give the process more memory", z->path);
}
static void insitu__loader_strings_end(struct insitu__loader_strings *s) {
  insitu__codec_scratch_free(&s->codec);
  insitu__zarr_array_free(&s->zarr);
  insitu__text_buffer_free(&s->text);
  insitu__mem_free(s->at);
  insitu__mem_free(s->length);
}
/* Opens the array and, if its strings have any length, reads them; others are left to insitu__loader_read_await. */
static void insitu__loader_strings_await(void *arg) {
  struct insitu__loader_strings *s = (struct insitu__loader_strings *)arg;
  const struct insitu__zarr_array *z = &s->zarr;
  uint64_t tile[INSITU__MAX_DIMS] = {0}, tiles = 1;
  insitu__codec_scratch_init(&s->codec);
  s->status = insitu__zarr_array_await(&s->loader->group, s->path, &s->zarr, s->err);
  if (!s->status && z->kind != INSITU__ZARR_STRING && !insitu__zarr_is_wide(z->kind))
    s->status = insitu__error_set(
        s->err, INSITU_E_DTYPE, "read, array %.200s: it holds numbers, not strings; read it with insitu_read", z->path);
  if (!s->status) insitu__loader_strings_begin(s);
  if (s->status || z->kind != INSITU__ZARR_STRING) return;
  for (unsigned d = 0; d < z->ndim; d++) tiles *= insitu__base_ceil_div(z->shape[d], z->object.chunk[d]);
  for (uint64_t i = 0; i < tiles && !s->status; i++) {
    if (atomic_load_explicit(&s->loader->cancelled, memory_order_acquire)) s->status = INSITU_CANCELLED;
    else insitu__loader_string_read_await(s, tile);
    for (unsigned d = z->ndim; d-- > 0;) { /* the next object: count up from the last axis */
      if (++tile[d] < insitu__base_ceil_div(z->shape[d], z->object.chunk[d])) break;
      tile[d] = 0;
    }
  }
}
/* Elements of fixed size, as insitu_read gives them, to strings: code points become UTF-8. */
static bool insitu__loader_strings_fixed(struct insitu__loader_strings *s, const unsigned char *bytes, uint64_t width) {
  bool ok = true;
  for (uint64_t i = 0; i < s->n && ok; i++, bytes += width) {
    uint64_t used = width;
    uint32_t code = 0;
    if (s->zarr.kind == INSITU__ZARR_CHAR)
      while (used && !bytes[used - 1]) used--;
    if (s->zarr.kind != INSITU__ZARR_UCS4) {
      ok = insitu__loader_string_put(s, i, (const char *)bytes, used);
      continue;
    }
    while (used && (memcpy(&code, bytes + used - 4, 4), !code)) used -= 4;
    s->at[i] = s->text.n;
    for (uint64_t k = 0; k < used && ok; k += 4) {
      char utf8[4];
      memcpy(&code, bytes + k, 4);
      ok = insitu__text_buffer_bytes(&s->text, utf8, insitu__text_put_code(code < 0x200000 ? code : 0xFFFD, utf8));
    }
    s->length[i] = s->text.n - s->at[i];
    ok = ok && insitu__text_buffer_bytes(&s->text, "", 1);
  }
  return ok;
}
/* What the user gets, in one block; NULL without memory. */
static insitu_strings *insitu__loader_strings_give(const struct insitu__loader_strings *s) {
  uint64_t table = s->n * (sizeof(char *) + sizeof(uint64_t));
  insitu_strings *out = (insitu_strings *)insitu__mem_alloc(1, sizeof *out + table + s->text.n);
  if (!out) return NULL;
  const char **text = (const char **)(void *)(out + 1);
  uint64_t *bytes = (uint64_t *)(void *)(text + s->n);
  char *all = (char *)(bytes + s->n);
  memcpy(all, s->text.text, (size_t)s->text.n);
  for (uint64_t i = 0; i < s->n; i++) {
    text[i] = all + s->at[i];
    bytes[i] = s->length[i];
  }
  *out = (insitu_strings){.n = s->n, .text = text, .bytes = bytes, .ndim = (int32_t)s->zarr.axes};
  for (unsigned d = 0; d < s->zarr.axes; d++) out->shape[d] = (int64_t)s->zarr.shape[d];
  return out;
}

/* ---- state ---- */

enum {                            /* byte offsets in an insitu_state; all little-endian u64 */
  INSITU__LOADER_STATE_MAGIC = 0, /* "INSITU", version 1, order_version */
  INSITU__LOADER_STATE_GEOMETRY = 8,
  INSITU__LOADER_STATE_VARIABLES = 16,
  INSITU__LOADER_STATE_SPLIT = 24,
  INSITU__LOADER_STATE_SEED = 32,
  INSITU__LOADER_STATE_LANES = 40, /* and << 32: split, << 40: sequential */
  INSITU__LOADER_STATE_WINDOW = 48,
  INSITU__LOADER_STATE_UNIT = 56,
  INSITU__LOADER_STATE_GLOBAL = 64,
  INSITU__LOADER_STATE_EPOCH = 72,
  INSITU__LOADER_STATE_NEXT = 80,
  INSITU__LOADER_STATE_CHECK = 88 /* hash of all before */
};

static void insitu__loader_state(const insitu_iter *it, uint64_t epoch, uint64_t next, insitu_state *out) {
  const struct insitu__plan *p = &it->plan;
  unsigned char *b = out->bytes;
  memcpy(b, "INSITU\1", 7);
  b[7] = INSITU_ORDER_VERSION;
  insitu__base_store64(b + INSITU__LOADER_STATE_GEOMETRY, p->geometry->hash_geometry);
  insitu__base_store64(b + INSITU__LOADER_STATE_VARIABLES, p->geometry->hash_variables);
  insitu__base_store64(b + INSITU__LOADER_STATE_SPLIT, p->split->hash);
  insitu__base_store64(b + INSITU__LOADER_STATE_SEED, p->layout.seed);
  insitu__base_store64(
      b + INSITU__LOADER_STATE_LANES, p->layout.lanes | (uint64_t)it->split << 32 | (uint64_t)p->layout.sequential << 40);
  insitu__base_store64(b + INSITU__LOADER_STATE_WINDOW, p->layout.window);
  insitu__base_store64(b + INSITU__LOADER_STATE_UNIT, p->split->unit_rows);
  insitu__base_store64(b + INSITU__LOADER_STATE_GLOBAL, p->layout.global_batch);
  insitu__base_store64(b + INSITU__LOADER_STATE_EPOCH, epoch);
  insitu__base_store64(b + INSITU__LOADER_STATE_NEXT, next);
  insitu__base_store64(b + INSITU__LOADER_STATE_CHECK, insitu__geometry_hash(0, b, INSITU__LOADER_STATE_CHECK));
}

/* Names the first field in which a state and an iterator differ. */
static insitu_status insitu__loader_state_check(const insitu_iter *it, const insitu_state *state, insitu_error *err) {
  insitu_state mine;
  const unsigned char *b = state->bytes;
  insitu__loader_state(it, 0, 0, &mine);
  if (memcmp(b, "INSITU", 6) != 0 ||
      insitu__base_load64(b + INSITU__LOADER_STATE_CHECK) != insitu__geometry_hash(0, b, INSITU__LOADER_STATE_CHECK))
    return insitu__error_set(
        err, INSITU_E_STATE, "restore: these 96 bytes are no state, or were changed; give what a batch's `after` held");
  if (b[6] != mine.bytes[6] || b[7] != mine.bytes[7])
    return insitu__error_set(err, INSITU_E_STATE,
        "restore: the state has version %d and order_version %d, this implementation %d and %d; use the "
        "insitubatch.h that wrote it",
        b[6], b[7], mine.bytes[6], mine.bytes[7]);
  const struct {
    int at;
    const char *name;
  } field[] = {{INSITU__LOADER_STATE_GEOMETRY, "the archive's samples or chunks along the sample axis"},
      {INSITU__LOADER_STATE_VARIABLES, "the variables"}, {INSITU__LOADER_STATE_SPLIT, "the split"},
      {INSITU__LOADER_STATE_SEED, "seed"}, {INSITU__LOADER_STATE_LANES, "lanes, or the iterator's split or order"},
      {INSITU__LOADER_STATE_WINDOW, "block_chunks"}, {INSITU__LOADER_STATE_UNIT, "unit_chunks"},
      {INSITU__LOADER_STATE_GLOBAL, "the global batch (batch_size x world)"}};
  for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
    uint64_t theirs = insitu__base_load64(b + field[i].at), ours = insitu__base_load64(mine.bytes + field[i].at);
    if (theirs != ours)
      return insitu__error_set(err, INSITU_E_STATE,
          "restore: the state was taken with another value of %s (%" PRIu64 ", here %" PRIu64 "); open the loader as it was then",
          field[i].name, theirs, ours);
  }
  uint64_t epoch = insitu__base_load64(b + INSITU__LOADER_STATE_EPOCH), next = insitu__base_load64(b + INSITU__LOADER_STATE_NEXT);
  if (epoch >= INSITU__MAX_EPOCH || next > it->batches)
    return insitu__error_set(err, INSITU_E_STATE,
        "restore: the state stands at batch %" PRIu64 " of epoch %" PRIu64 ", which does not exist; "
        "give what a batch's `after` held",
        next, epoch);
  return INSITU_OK;
}

/* ---- delivery (the user's thread, under the iterator's lock) ---- */

static void insitu__loader_deliver(insitu_iter *it, struct insitu__loader_slab *slab) {
  const struct insitu__geometry *g = it->plan.geometry;
  insitu_batch *b = &slab->batch;
  b->epoch = slab->number / it->batches;
  b->index = slab->number % it->batches;
  b->rows = slab->rows;
  b->sample_indices = (const int64_t *)(const void *)(slab->memory + g->indices);
  for (uint64_t i = 0; i < g->n_variables; i++) {
    slab->arrays[i].data = slab->memory + g->variables[i].block;
    slab->arrays[i].bytes = slab->rows * g->variables[i].row_bytes;
    slab->shapes[2 * (INSITU__MAX_DIMS + 1) * i] = (int64_t)slab->rows;
  }
  insitu__loader_state(it, b->epoch, b->index + 1, &b->after);
  slab->held = true;
  it->held++;
  it->next++;
}

/* What next can say at once: OK with *out, END, BUSY, CANCELLED, an error; TIMEOUT when it must wait, INSITU__LOADER_UNCHECKED when
 * the next batch is ready but for insitu__loader_check_batch. */
enum { INSITU__LOADER_UNCHECKED = INT32_MAX };
static insitu_status insitu__loader_poll(insitu_iter *it, insitu_batch **out, insitu_error *err) {
  if (atomic_load_explicit(&it->loader->cancelled, memory_order_acquire)) return INSITU_CANCELLED;
  if (it->failed) goto failed;
  if (it->next % it->batches == 0 && it->told != it->next) {
    it->told = it->next;
    return INSITU_END;
  }
  if (it->next % it->batches == 0 && it->begun != it->next) {
    it->begun = it->next;
    insitu__reactor_wake(&it->loader->reactor);
  }
  if (it->held == it->max_held) return INSITU_BUSY;
  if (it->next >= it->bad) { /* damaged batches come no more */
    it->failed = true;
    goto failed;
  }
  if (it->assigned <= it->next) return INSITU_TIMEOUT;
  struct insitu__loader_slab *slab = it->ring[it->next % it->n_ring];
  if (atomic_load_explicit(&slab->pending, memory_order_acquire)) return INSITU_TIMEOUT;
  if (!slab->checked) return INSITU__LOADER_UNCHECKED;
  insitu__loader_deliver(it, slab);
  *out = &slab->batch;
  return INSITU_OK;
failed:
  if (err && err->status >= 0) *err = it->error;
  return it->error.status;
}

/* Waits for news of the iterator until the deadline (monotonic nanoseconds, INT64_MAX: for ever); lock held before and after. */
static void insitu__loader_wait(insitu_iter *it, int64_t deadline) {
  if (it->loader->config.inline_io) {
    pthread_mutex_unlock(&it->lock);
    int64_t left = deadline == INT64_MAX ? -1 : deadline - insitu__base_now();
    insitu__reactor_run(&it->loader->reactor, deadline != INT64_MAX && left < 0 ? 0 : left);
    pthread_mutex_lock(&it->lock);
  } else if (deadline == INT64_MAX) {
    pthread_cond_wait(&it->news, &it->lock);
  } else {
    struct timespec t = {deadline / 1000000000, deadline % 1000000000};
    pthread_cond_timedwait(&it->news, &it->lock, &t);
  }
}

/* ---- checking (desc.check): rows read again in a second, slow way ---- */

/* It shares store, metadata and codecs with the way that fills batches, but nothing of >>box, >>plan and the scatter: whole objects
 * are read and decoded into plain memory, and elements are picked one by one by the definitions of the two layouts. */

#define INSITU__LOADER_CHECK_OBJECTS 8                       /* of one row at most, so that a wide row costs little */
#define INSITU__LOADER_CHECK_LARGEST (2 * INSITU__MAX_CHUNK) /* bytes of a stored object */

struct insitu__loader_check_object { /* what one key names: a whole stored object of an array */
  const uint64_t *chunk;
  const unsigned *order;
  const struct insitu__codec_chain *codecs;
};
static struct insitu__loader_check_object insitu__loader_check_object(const struct insitu__zarr_array *z) {
  struct insitu__loader_check_object o = {z->object.chunk, z->object.order, &z->object.codecs};
  return o;
}

struct insitu__loader_check { /* one row of one variable and step, one object of it after the other; on the caller's stack */
  insitu_iter *it;
  struct insitu__loader_slab *slab;
  const struct insitu__geometry_variable *variable;
  const struct insitu__zarr_array *zarr;
  struct insitu__loader_check_object object;
  unsigned axis;
  uint64_t row, step, sample;       /* sample: on the array's sample axis */
  uint64_t index[INSITU__MAX_DIMS]; /* the object's, in the grid of objects */
  char key[INSITU__MAX_KEY];
  char *stored; /* n bytes; NULL: the object is absent, or cannot be read */
  uint64_t n;
  unsigned char *decoded; /* decoded_n bytes of `bytes`; NULL: they are not known */
  uint64_t decoded_n, bytes;
  bool absent;
  insitu_error damage; /* why the object cannot be read or decoded */
  insitu_status status;
  insitu_error error;
};

/* Decodes the object as far as it can be decoded. A raw one may be cut short: batches show what is there. */
static void insitu__loader_check_decode(struct insitu__loader_check *c) {
  struct insitu__codec_scratch scratch;
  c->bytes = c->zarr->itemsize;
  for (unsigned d = 0; d < c->zarr->ndim; d++) c->bytes *= c->object.chunk[d];
  c->decoded = (unsigned char *)insitu__mem_alloc(c->bytes, 1);
  if (!c->decoded) {
    c->status = INSITU_E_NOMEM;
    return;
  }
  c->decoded_n = insitu__base_min(c->n, c->bytes);
  if (!c->object.codecs->n) {
    memcpy(c->decoded, c->stored, (size_t)c->decoded_n);
    return;
  }
  struct insitu__codec_sink sink = insitu__codec_memory(c->decoded);
  insitu__codec_scratch_init(&scratch);
  insitu_status status = insitu__codec_decode(c->object.codecs, &scratch, c->stored, c->n, c->bytes, &sink, &c->damage);
  insitu__codec_scratch_free(&scratch);
  c->decoded_n = c->bytes;
  if (status == INSITU_E_NOMEM) c->status = status;
  if (!status) return;
  insitu__mem_free(c->decoded);
  c->decoded = NULL;
}

static double insitu__loader_check_half(uint16_t h) { /* IEEE 754-2008 binary16, exact */
  uint64_t sign = (uint64_t)(h >> 15) << 63, exponent = h >> 10 & 31, fraction = h & 1023, bits;
  double x;
  if (exponent == 31) bits = sign | UINT64_C(0x7ff) << 52 | fraction << 42 | (uint64_t)(fraction != 0) << 51; /* NaNs are quiet */
  else if (exponent) bits = sign | (exponent - 15 + 1023) << 52 | fraction << 42;
  else {
    x = (double)fraction / 16777216.0; /* 2^24: ten bits of fraction, and an exponent of -14 */
    return sign ? -x : x;
  }
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* An element in native byte order, converted to the variable's type as C converts it. */
static void insitu__loader_check_convert(int32_t from, const unsigned char *in, int32_t to, unsigned char *out) {
  float f = 0;
  double d = 0;
  uint16_t half;
  switch (from) {
#define INSITU__LOADER_CHECK_CASE(dtype, type)                                                                                   \
  case dtype: {                                                                                                                  \
    type x;                                                                                                                      \
    memcpy(&x, in, sizeof x);                                                                                                    \
    f = (float)x;                                                                                                                \
    d = (double)x;                                                                                                               \
    break;                                                                                                                       \
  }
    INSITU__LOADER_CHECK_CASE(INSITU_I8, int8_t)
    INSITU__LOADER_CHECK_CASE(INSITU_I16, int16_t)
    INSITU__LOADER_CHECK_CASE(INSITU_I32, int32_t)
    INSITU__LOADER_CHECK_CASE(INSITU_I64, int64_t)
    INSITU__LOADER_CHECK_CASE(INSITU_U8, uint8_t)
    INSITU__LOADER_CHECK_CASE(INSITU_U16, uint16_t)
    INSITU__LOADER_CHECK_CASE(INSITU_U32, uint32_t)
    INSITU__LOADER_CHECK_CASE(INSITU_U64, uint64_t)
    INSITU__LOADER_CHECK_CASE(INSITU_F32, float)
    INSITU__LOADER_CHECK_CASE(INSITU_F64, double)
#undef INSITU__LOADER_CHECK_CASE
  case INSITU_BOOL: f = (float)(d = in[0] != 0); break;
  case INSITU_F16:
    memcpy(&half, in, sizeof half);
    f = (float)(d = insitu__loader_check_half(half));
    break;
  case INSITU_BF16: { /* the upper half of a float */
    unsigned char wide[4] = {0, 0, in[0], in[1]};
    memcpy(&f, wide, sizeof f);
    d = (double)f;
    if (__builtin_isnan(f)) f = (float)d; /* quiet */
    break;
  }
  }
  if (to == INSITU_F32) memcpy(out, &f, sizeof f);
  else memcpy(out, &d, sizeof d);
}

/* An element in native byte order, decoded. */
static void insitu__loader_check_cf(const struct insitu__cf *cf, const unsigned char *in, int32_t to, unsigned char *out) {
  bool real = cf->dtype == INSITU_F16 || cf->dtype == INSITU_BF16 || cf->dtype == INSITU_F32 || cf->dtype == INSITU_F64;
  double x, other;
  bool missing = false;
  insitu__loader_check_convert(cf->dtype, in, INSITU_F64, (unsigned char *)&x);
  for (unsigned m = 0; m < cf->n_missing; m++) {
    insitu__loader_check_convert(cf->dtype, cf->missing[m], INSITU_F64, (unsigned char *)&other);
    missing = missing || (real ? x == other : memcmp(in, cf->missing[m], (size_t)(cf->dtype & 0xff) / 8) == 0);
  }
  volatile double product = x * cf->scale; /* volatile: rounded before the sum */
  x = product + cf->offset;
  if (missing || __builtin_isnan(x)) x = __builtin_nan("");
  insitu__loader_check_convert(INSITU_F64, (const unsigned char *)&x, to, out);
}

/* What the batch must show for a stored element; stored NULL: the fill value, at `inside` of an axis inside elements. */
static void insitu__loader_check_element(
    const struct insitu__loader_check *c, const unsigned char *stored, uint64_t inside, unsigned char out[16]) {
  const struct insitu__zarr_array *z = c->zarr;
  bool complex = z->dtype == INSITU_C64 || z->dtype == INSITU_C128;
  unsigned char native[16];
  uint64_t scalar = complex ? z->itemsize / 2 : z->itemsize;
  for (uint64_t i = 0; i < z->itemsize; i++) {
    uint64_t mirrored = i / scalar * scalar + (scalar - 1 - i % scalar);
    native[i] = stored ? stored[z->swap ? mirrored : i] : z->wide_fill ? z->wide_fill[inside * z->itemsize + i] : z->fill[i];
  }
  if (c->variable->decoded) insitu__loader_check_cf(&c->variable->cf, native, c->variable->dtype, out);
  else if (c->variable->dtype == z->dtype) memcpy(out, native, z->itemsize);
  else insitu__loader_check_convert(z->dtype, native, c->variable->dtype, out);
}

static void insitu__loader_check_print(char to[80], int32_t dtype, const unsigned char *value) { /* "1.5 (0x3fc00000)" */
  unsigned n = (unsigned)(dtype & 0xff) / 8;
  double d = 0;
  unsigned char bytes[8];
  int used = 0;
  if (dtype != INSITU_C64 && dtype != INSITU_C128) {
    insitu__loader_check_convert(dtype, value, INSITU_F64, bytes);
    memcpy(&d, bytes, sizeof d);
    used = snprintf(to, 40, "%.17g ", d);
  }
  used += snprintf(to + used, 4, "(0x");
  while (n--) used += snprintf(to + used, 3, "%02x", value[n]);
  snprintf(to + used, 2, ")");
}

/* Element x of the array is not what it should be. */
static void insitu__loader_check_differs(
    struct insitu__loader_check *c, const uint64_t *x, const unsigned char *is, const unsigned char *should) {
  char shown[80], wanted[80], at[INSITU__MAX_DIMS * 22];
  int n = 0;
  for (unsigned d = 0; d < c->zarr->ndim; d++) n += snprintf(at + n, 22, "%s%" PRIu64, d ? "," : "", x[d]);
  insitu__loader_check_print(shown, c->variable->dtype, is);
  insitu__loader_check_print(wanted, c->variable->dtype, should);
  c->status = insitu__error_set(&c->error, INSITU_E_CHECK,
      "rank %d, check, array %.200s, chunk %.200s: variable %.80s, batch %" PRIu64 ", row %" PRIu64 ", sample %" PRIu64
      ", element [%s]: the batch holds %s, the archive %s%s%.200s; the fault is this library's, not yours: report it with this "
      "message",
      (int)c->it->loader->config.rank, c->zarr->path, c->key, c->variable->label, c->slab->number % c->it->batches, c->row,
      c->sample, at, shown, wanted, c->damage.status ? " as the fill value, for " : "", c->damage.message);
}

/* Compares the elements of the row that lie in the object, until one differs. */
static void insitu__loader_check_compare(struct insitu__loader_check *c) {
  const struct insitu__zarr_array *z = c->zarr;
  const struct insitu__geometry_variable *v = c->variable;
  const insitu_loader *ld = c->it->loader;
  uint64_t lo[INSITU__MAX_DIMS], hi[INSITU__MAX_DIMS], x[INSITU__MAX_DIMS], item = (uint64_t)(v->dtype & 0xff) / 8;
  bool may_be_fill =
      c->absent || (ld->config.on_bad_chunk == INSITU_FILL && atomic_load_explicit(&ld->n_bad, memory_order_relaxed));
  for (unsigned d = 0; d < z->ndim; d++) {
    lo[d] = d == c->axis ? c->sample : insitu__base_max(v->lo[d], c->index[d] * c->object.chunk[d]);
    hi[d] = d == c->axis ? c->sample + 1 : insitu__base_min(v->hi[d], (c->index[d] + 1) * c->object.chunk[d]);
    x[d] = lo[d];
  }
  for (bool more = true; more;) {
    uint64_t from = 0, to = c->row * v->n_steps + c->step;
    for (unsigned k = 0; k < z->ndim; k++)
      from = from * c->object.chunk[c->object.order[k]] + x[c->object.order[k]] % c->object.chunk[c->object.order[k]];
    for (unsigned d = 0; d < z->ndim; d++)
      if (d != c->axis) to = to * (v->hi[d] - v->lo[d]) + (x[d] - v->lo[d]);
    const unsigned char *is = c->slab->memory + v->block + to * item;
    const unsigned char *stored = c->decoded && (from + 1) * z->itemsize <= c->decoded_n ? c->decoded + from * z->itemsize : NULL;
    unsigned char fill[16], should[16];
    insitu__loader_check_element(c, NULL, x[z->ndim - 1], fill);
    insitu__loader_check_element(c, stored, 0, should);
    if (memcmp(is, should, (size_t)item) && !(may_be_fill && !memcmp(is, fill, (size_t)item))) {
      insitu__loader_check_differs(c, x, is, should);
      return;
    }
    more = false;
    for (unsigned d = z->ndim; d-- > 0 && !more;) { /* the next element: count up from the last axis */
      more = ++x[d] < hi[d];
      if (!more) x[d] = lo[d];
    }
  }
}

static void insitu__loader_check_work(void *arg, unsigned worker) {
  struct insitu__loader_check *c = (struct insitu__loader_check *)arg;
  (void)worker;
  if (c->stored) insitu__loader_check_decode(c);
  /* One damaged chunk of a shard keeps the whole from being decoded, and the others are well: nothing can be said. */
  bool shard = memcmp(c->object.chunk, c->zarr->chunk, c->zarr->ndim * sizeof *c->zarr->chunk) != 0;
  if (!c->status && (c->decoded || c->absent || !shard)) insitu__loader_check_compare(c);
  insitu__mem_free(c->decoded);
  c->decoded = NULL;
}

static void insitu__loader_check_await(void *arg) {
  struct insitu__loader_check *c = (struct insitu__loader_check *)arg;
  insitu_loader *ld = c->it->loader;
  insitu_status status = insitu__store_get_await(&ld->store, c->key, INSITU__LOADER_CHECK_LARGEST, &c->stored, &c->n, &c->damage);
  c->absent = status == INSITU_E_NOTFOUND;
  if (c->absent) memset(&c->damage, 0, sizeof c->damage);
  c->status = status == INSITU_E_NOMEM ? status : INSITU_OK;
  bool known = !status || c->absent || ld->config.on_bad_chunk == INSITU_FILL; /* else it cannot be read now: no verdict */
  if (!c->status && known) insitu__reactor_work_await(&ld->reactor, insitu__loader_check_work, c);
  insitu__mem_free(c->stored);
  c->stored = NULL;
}

/* Checks one row, whose position h scatters over the objects that hold it. */
static void insitu__loader_check_row(struct insitu__loader_check *c, uint64_t variable, uint64_t h) {
  insitu_iter *it = c->it;
  insitu_loader *ld = it->loader;
  const insitu_variable *desc = &ld->config.variables[variable];
  c->variable = &ld->geometry.variables[variable];
  const struct insitu__geometry_array *a = &ld->geometry.arrays[c->variable->array];
  c->zarr = &a->zarr;
  c->axis = a->axis;
  c->object = insitu__loader_check_object(c->zarr);
  c->step = h % c->variable->n_steps;
  int64_t shown = ((const int64_t *)(const void *)(c->slab->memory + ld->geometry.indices))[c->row], anchor = -1;
  uint64_t batch = c->slab->number % it->batches, objects = 1, n[INSITU__MAX_DIMS];
  if (!insitu__plan_locate(&it->plan, &it->order[c->slab->number / it->batches & 1], batch, c->row, &anchor) || anchor != shown) {
    c->status = insitu__error_set(&c->error, INSITU_E_CHECK,
        "rank %d, check, batch %" PRIu64 ", row %" PRIu64 ": the batch shows anchor %" PRId64 ", the order says %" PRId64
        "; the fault is this library's, not yours: report it with this message",
        (int)ld->config.rank, batch, c->row, shown, anchor);
    return;
  }
  c->sample = (uint64_t)(anchor + desc->offset + (desc->n_steps ? desc->steps[c->step] : 0));
  for (unsigned d = 0; d < c->zarr->ndim; d++) {
    n[d] = d == c->axis ? 1 : (c->variable->hi[d] - 1) / c->object.chunk[d] - c->variable->lo[d] / c->object.chunk[d] + 1;
    objects *= n[d];
  }
  h = insitu__order_mix(h);
  for (uint64_t k = 0; !c->status && k < insitu__base_min(objects, INSITU__LOADER_CHECK_OBJECTS); k++) {
    uint64_t rest = (h + k) % objects;
    for (unsigned d = c->zarr->ndim; d-- > 0; rest /= n[d])
      c->index[d] = (d == c->axis ? c->sample : c->variable->lo[d]) / c->object.chunk[d] + rest % n[d];
    memset(&c->damage, 0, sizeof c->damage);
    if (insitu__zarr_chunk_key(c->zarr, c->index, c->key, sizeof c->key) < 0) return;
    if (insitu__reactor_call(&ld->reactor, insitu__loader_check_await, c)) c->status = INSITU_E_NOMEM;
  }
  if (!c->status) insitu__loader_add(&ld->n_checked, 1);
}

/* Checks the next batch, which is ready; on the user's thread. The lock is held before and after, not meanwhile: the slab stays
 * where it is until this thread takes it or moves the iterator. */
static void insitu__loader_check_batch(insitu_iter *it) {
  struct insitu__loader_slab *slab = it->ring[it->next % it->n_ring];
  bool first = slab->number == it->start;
  pthread_mutex_unlock(&it->lock);
  const struct insitu__geometry *g = &it->loader->geometry;
  struct insitu__loader_check c;
  memset(&c, 0, sizeof c);
  c.it = it;
  c.slab = slab;
  uint64_t h = insitu__order_mix(slab->number);
  for (uint64_t v = 0; slab->rows && first && !c.status && v < g->n_variables; v++) insitu__loader_check_row(&c, v, h + v);
  c.row = slab->rows ? h % slab->rows : 0;
  h = insitu__order_mix(h);
  if (slab->rows && !c.status) insitu__loader_check_row(&c, h % g->n_variables, insitu__order_mix(h));
  if (c.status) {
    insitu__error_set(&c.error, c.status, "rank %d, check: no memory to read a row again; leave INSITU_CHECK and desc.check out",
        (int)it->loader->config.rank);
    insitu__loader_damage(it, slab->number, &c.error);
  }
  pthread_mutex_lock(&it->lock);
  slab->checked = true;
}

/* >>public ----------------------------------------------------------------------------------------------------------------- */
/* The functions of part A: argument, fork and thread checks, and calls into >>loader. Nothing here runs on the reactor. */

INSITU_DEF const char *insitu_status_name(insitu_status status) {
  static const char *const positive[] = {"INSITU_OK", "INSITU_END", "INSITU_TIMEOUT", "INSITU_BUSY", "INSITU_CANCELLED"};
  static const char *const negative[] = {"INSITU_OK", "INSITU_E_API", "INSITU_E_ARG", "INSITU_E_BUDGET", "INSITU_E_NOMEM",
      "INSITU_E_NOTFOUND", "INSITU_E_NOT_ZARR", "INSITU_E_JSON", "INSITU_E_FORMAT", "INSITU_E_CODEC", "INSITU_E_DTYPE",
      "INSITU_E_GRID", "INSITU_E_UNSUPPORTED", "INSITU_E_SHAPE", "INSITU_E_SPLIT", "INSITU_E_CORRUPT", "INSITU_E_ABSENT",
      "INSITU_E_IO", "INSITU_E_STATE", "INSITU_E_WRONG_THREAD", "INSITU_E_FORKED", "INSITU_E_CHECK", "INSITU_E_HTTP",
      "INSITU_E_AUTH", "INSITU_E_CHANGED"};
  if (status >= 0 && status < (insitu_status)(sizeof positive / sizeof *positive)) return positive[status];
  if (status < 0 && status > -(insitu_status)(sizeof negative / sizeof *negative)) return negative[-status];
  return "an unknown status";
}

/* Whether this process and thread may use the loader. */
static insitu_status insitu__public_check(const insitu_loader *ld, bool any_thread, insitu_error *err) {
  if (!ld) return insitu__error_set(err, INSITU_E_ARG, "the handle is NULL; open it first, and do not use it after close");
  if (getpid() != ld->pid)
    return insitu__error_set(err, INSITU_E_FORKED,
        "process %d uses a loader that process %d opened; threads and rings do not survive fork: open a "
        "loader in the child",
        (int)getpid(), (int)ld->pid);
  if (!any_thread && (ld->config.inline_io || ld->config.plan_only) && !pthread_equal(ld->opener, pthread_self()))
    return insitu__error_set(err, INSITU_E_WRONG_THREAD,
        "inline_io or plan_only: only the thread that opened the loader may call; call there, or open without them");
  return INSITU_OK;
}

static const char *const insitu__public_stages[] = {"none", "consumer", "read", "decode"};
INSITU_DEF const char *insitu_stage_name(int32_t stage) {
  return stage >= INSITU_STAGE_NONE && stage <= INSITU_STAGE_DECODE ? insitu__public_stages[stage] : "unknown";
}

INSITU_DEF insitu_status insitu_loader_open(const insitu_loader_desc *desc, insitu_loader **out, insitu_error *err) {
  if (out) *out = NULL;
  if (!desc || !out) return insitu__error_set(err, INSITU_E_ARG, "open: desc or out is NULL; give both");
  insitu_status status = insitu__loader_check(desc, err);
  if (status) return status;
  insitu_loader *ld = (insitu_loader *)insitu__mem_alloc(1, sizeof *ld);
  if (!ld) return insitu__error_set(err, INSITU_E_NOMEM, "open: no memory for a loader; give the process more memory");
  ld->pid = getpid();
  ld->opener = pthread_self();
  ld->opened = insitu__base_now();
  pthread_mutex_init(&ld->lock, NULL);
  status = insitu__loader_init(ld, desc, err);
  if (status) insitu__loader_destroy(ld);
  if (status) return status;
  *out = ld;
  const insitu_loader_desc *c = &ld->config;
  insitu__loader_log(ld, 2,
      "rank %d, open %.400s: %" PRIu64 " variables of %" PRIu64 " arrays, %" PRIu64 " samples; io %s%s, %" PRIu64
      " decode threads, %" PRIu64 " chunks in flight, %.1f MB for them, memory_budget %.1f MB",
      (int)c->rank, c->url, ld->geometry.n_variables, ld->geometry.n_arrays, ld->geometry.samples, insitu__loader_io_words[c->io],
      c->inline_io ? " (inline)" : "", c->decode_threads, c->max_inflight, (double)ld->inflight_bytes / 1e6,
      (double)c->memory_budget / 1e6);
  return INSITU_OK;
}

INSITU_DEF void insitu_loader_close(insitu_loader **loader) {
  insitu_loader *ld = loader ? *loader : NULL;
  if (loader) *loader = NULL;
  if (!ld || getpid() != ld->pid) return; /* a forked child owns neither threads nor ring */
  while (ld->iters) {                     /* only this thread changes the list now */
    insitu_iter *it = ld->iters;
    insitu__loader_leave(it);
    insitu__loader_part(it);
  }
  insitu__loader_destroy(ld);
}

INSITU_DEF void insitu_loader_cancel(insitu_loader *ld) {
  if (!ld) return;
  atomic_store_explicit(&ld->cancelled, true, memory_order_release);
  insitu__reactor_wake(&ld->reactor);
}

INSITU_DEF const insitu_loader_desc *insitu_loader_config(const insitu_loader *ld) {
  return ld ? &ld->config : NULL;
}

INSITU_DEF const insitu_array *insitu_loader_array(const insitu_loader *ld, uint64_t i) {
  return ld && i < ld->geometry.n_variables ? &ld->arrays[i] : NULL;
}

/* Checks an iterator's desc. */
static insitu_status insitu__public_desc(const insitu_loader *ld, const insitu_iter_desc *desc, insitu_error *err) {
  insitu_status status = insitu__public_check(ld, true, err);
  if (status) return status;
  if (!desc) return insitu__error_set(err, INSITU_E_ARG, "iterator: desc is NULL; give one with api = INSITU_API");
  if (!ld->config.n_variables)
    return insitu__error_set(err, INSITU_E_ARG, "iterator: the loader was opened without variables; open it with some");
  if (!desc->api || desc->api > INSITU_API)
    return insitu__error_set(err, INSITU_E_API,
        "iterator: desc.api is %u and this implementation knows 1 to %d; set it to INSITU_API", (unsigned)desc->api, INSITU_API);
  if (desc->split < INSITU_TRAIN || desc->split > INSITU_ALL || desc->order < INSITU_AUTO || desc->order > INSITU_SEQUENTIAL ||
      desc->max_held > INSITU__MAX_HELD || desc->epoch >= INSITU__MAX_EPOCH)
    return insitu__error_set(err, INSITU_E_ARG,
        "iterator: split %d, order %d, max_held %u or epoch %" PRIu64 " is none of the documented values; "
        "correct it",
        (int)desc->split, (int)desc->order, (unsigned)desc->max_held, desc->epoch);
  return INSITU_OK;
}

INSITU_DEF insitu_status insitu_loader_plan(
    const insitu_loader *ld, const insitu_iter_desc *desc, insitu_plan *out, insitu_error *err) {
  struct insitu__plan p;
  insitu_status status = insitu__public_desc(ld, desc, err);
  if (status) return status;
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "plan: out is NULL; give an insitu_plan");
  status = insitu__loader_plan(ld, desc, &p, err);
  if (!status) status = insitu__plan_describe(&p, out, err);
  if (status) return status;
  out->slabs = insitu__loader_ring(ld, out->span) + insitu__loader_max_held(desc);
  out->slab_bytes = ld->geometry.slab_bytes;
  out->table_bytes = insitu__loader_tables(ld, out->table_bytes, out->slabs);
  out->inflight_bytes = ld->inflight_bytes;
  out->cache_bytes = ld->cache_bytes;
  return INSITU_OK;
}

INSITU_DEF insitu_status insitu_loader_quality(
    const insitu_loader *ld, const insitu_iter_desc *desc, insitu_quality *out, insitu_error *err) {
  struct insitu__plan p;
  insitu_status status = insitu__public_desc(ld, desc, err);
  if (status) return status;
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "quality: out is NULL; give an insitu_quality");
  status = insitu__loader_plan(ld, desc, &p, err);
  return status ? status : insitu__plan_quality(&p, desc->epoch, out, err);
}

INSITU_DEF insitu_status insitu_loader_stats(const insitu_loader *ld, insitu_stats *out, insitu_error *err) {
  insitu_status status = insitu__public_check(ld, true, err);
  if (status) return status;
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "stats: out is NULL; give an insitu_stats");
  memset(out, 0, sizeof *out);
  out->batches = insitu__loader_get(&ld->n_batches);
  out->rows = insitu__loader_get(&ld->n_rows);
  out->reads = insitu__loader_get(&ld->n_reads);
  out->rereads = insitu__loader_get(&ld->n_rereads);
  out->requests = insitu__loader_get(&ld->n_requests);
  out->bytes_read = insitu__loader_get(&ld->n_read);
  out->index_reads = insitu__loader_get(&ld->cache.loads);
  out->index_bytes = insitu__loader_get(&ld->cache.read);
  out->bytes_decoded = insitu__loader_get(&ld->n_decoded);
  insitu__store_stats(&ld->store, out);
  out->absent_chunks = insitu__loader_get(&ld->n_absent);
  out->bad_chunks = insitu__loader_get(&ld->n_bad);
  out->checked_rows = insitu__loader_get(&ld->n_checked);
  out->slab_bytes = insitu__loader_get(&ld->slab_now);
  out->slab_bytes_peak = insitu__loader_get(&ld->slab_peak);
  out->memory_bytes_peak = insitu__loader_get(&ld->memory_peak);
  out->memory_promised = insitu__loader_get(&ld->reserved) + ld->inflight_bytes + ld->cache_bytes;
  out->inflight_peak = insitu__loader_get(&ld->inflight_peak);
  out->first_batch_s = (double)insitu__loader_get(&ld->first_batch) / 1e9;
  strcpy(out->io, insitu__loader_io_words[ld->config.io]);
  uint64_t first = insitu__loader_get(&ld->first_next), stall = insitu__loader_get(&ld->stall);
  if (!first) return INSITU_OK;
  uint64_t elapsed = (uint64_t)insitu__base_now() - first, before = insitu__loader_get(&ld->busy_before);
  out->stall_s = (double)stall / 1e9;
  out->stall_share = insitu__loader_share(stall, (double)elapsed);
  out->decode_busy = insitu__loader_busy_share(ld, insitu__loader_get(&ld->reactor.busy) - before, elapsed, stall);
  out->limiting_stage = insitu__loader_stage(out->batches, out->stall_share, out->decode_busy);
  double percentile[3];
  insitu__loader_percentiles(ld, (const double[]){0.5, 0.95, 0.99}, percentile, 3);
  out->next_p50_s = percentile[0] / 1e9;
  out->next_p95_s = percentile[1] / 1e9;
  out->next_p99_s = percentile[2] / 1e9;
  out->next_max_s = (double)insitu__loader_get(&ld->next_max) / 1e9;
  return INSITU_OK;
}

/* ---- describe ---- */

#define INSITU__PUBLIC_PLAN(member, kind)                                                                                        \
  { #member, offsetof(insitu_plan, member), INSITU__TEXT_##kind, NULL }
static const struct insitu__text_field insitu__public_plan[] = {INSITU__PUBLIC_PLAN(order_version, U32),
    INSITU__PUBLIC_PLAN(estimated, U32), INSITU__PUBLIC_PLAN(samples, U64), INSITU__PUBLIC_PLAN(batches, U64),
    INSITU__PUBLIC_PLAN(rows, U64), INSITU__PUBLIC_PLAN(dropped_edge, U64), INSITU__PUBLIC_PLAN(dropped_tail, U64),
    INSITU__PUBLIC_PLAN(units, U64), INSITU__PUBLIC_PLAN(unit_rows, U64), INSITU__PUBLIC_PLAN(lanes, U64),
    INSITU__PUBLIC_PLAN(window, U64), INSITU__PUBLIC_PLAN(span, U64), INSITU__PUBLIC_PLAN(reads, U64),
    INSITU__PUBLIC_PLAN(distinct, U64), INSITU__PUBLIC_PLAN(read_bytes, U64), INSITU__PUBLIC_PLAN(wanted, U64),
    INSITU__PUBLIC_PLAN(amplification, DOUBLE), INSITU__PUBLIC_PLAN(dedup, DOUBLE), INSITU__PUBLIC_PLAN(slabs, U64),
    INSITU__PUBLIC_PLAN(slab_bytes, U64), INSITU__PUBLIC_PLAN(table_bytes, U64), INSITU__PUBLIC_PLAN(inflight_bytes, U64),
    INSITU__PUBLIC_PLAN(cache_bytes, U64), INSITU__PUBLIC_PLAN(variance_ratio, DOUBLE)};

#define INSITU__PUBLIC_STATS(member, kind, words)                                                                                \
  { #member, offsetof(insitu_stats, member), INSITU__TEXT_##kind, words }
static const struct insitu__text_field insitu__public_stats[] = {INSITU__PUBLIC_STATS(batches, U64, NULL),
    INSITU__PUBLIC_STATS(rows, U64, NULL), INSITU__PUBLIC_STATS(reads, U64, NULL), INSITU__PUBLIC_STATS(rereads, U64, NULL),
    INSITU__PUBLIC_STATS(requests, U64, NULL), INSITU__PUBLIC_STATS(index_reads, U64, NULL),
    INSITU__PUBLIC_STATS(index_bytes, U64, NULL), INSITU__PUBLIC_STATS(checked_rows, U64, NULL),
    INSITU__PUBLIC_STATS(bytes_read, U64, NULL), INSITU__PUBLIC_STATS(bytes_decoded, U64, NULL),
    INSITU__PUBLIC_STATS(absent_chunks, U64, NULL), INSITU__PUBLIC_STATS(bad_chunks, U64, NULL),
    INSITU__PUBLIC_STATS(slab_bytes, U64, NULL), INSITU__PUBLIC_STATS(slab_bytes_peak, U64, NULL),
    INSITU__PUBLIC_STATS(memory_bytes_peak, U64, NULL), INSITU__PUBLIC_STATS(memory_promised, U64, NULL),
    INSITU__PUBLIC_STATS(inflight_peak, U64, NULL), INSITU__PUBLIC_STATS(stall_s, DOUBLE, NULL),
    INSITU__PUBLIC_STATS(stall_share, DOUBLE, NULL), INSITU__PUBLIC_STATS(first_batch_s, DOUBLE, NULL),
    INSITU__PUBLIC_STATS(next_p50_s, DOUBLE, NULL), INSITU__PUBLIC_STATS(next_p95_s, DOUBLE, NULL),
    INSITU__PUBLIC_STATS(next_p99_s, DOUBLE, NULL), INSITU__PUBLIC_STATS(next_max_s, DOUBLE, NULL),
    INSITU__PUBLIC_STATS(decode_busy, DOUBLE, NULL), INSITU__PUBLIC_STATS(limiting_stage, WORD, insitu__public_stages),
    INSITU__PUBLIC_STATS(io, CHARS, NULL)};

static void insitu__public_struct(
    struct insitu__text_buffer *b, const struct insitu__text_field *field, size_t n, const void *from) {
  for (size_t i = 0; i < n; i++) insitu__text_buffer_field(b, i ? ", " : "{", &field[i], from);
  insitu__text_buffer_printf(b, "}");
}

static void insitu__public_numbers(struct insitu__text_buffer *b, const char *name, const void *from, uint64_t n) {
  const int64_t *number = (const int64_t *)from;
  insitu__text_buffer_printf(b, ", \"%s\": [", name);
  for (uint64_t i = 0; i < n; i++) insitu__text_buffer_printf(b, "%s%" PRId64, i ? ", " : "", number[i]);
  insitu__text_buffer_printf(b, "]");
}

static void insitu__public_string(struct insitu__text_buffer *b, const char *before, const char *s) {
  insitu__text_buffer_printf(b, "%s", before);
  if (s) insitu__text_buffer_json_string(b, s);
  else insitu__text_buffer_printf(b, "null");
}

static const char *insitu__public_dtype(int32_t dtype) {
  return dtype ? insitu__cf_dtype(dtype) : "as_stored";
}

static void insitu__public_variable(struct insitu__text_buffer *b, const insitu_variable *v) {
  insitu__public_string(b, "{\"label\": ", v->label);
  insitu__public_string(b, ", \"path\": ", v->path ? v->path : v->label);
  insitu__text_buffer_printf(b, ", \"offset\": %" PRId64, v->offset);
  if (v->n_steps) insitu__public_numbers(b, "steps", v->steps, v->n_steps);
  insitu__public_string(b, ", \"dtype\": ", insitu__public_dtype(v->dtype));
  if (v->decode) insitu__public_string(b, ", \"decode\": ", "cf");
  insitu__text_buffer_printf(b, ", \"slices\": [");
  for (uint64_t k = 0; k < v->n_slices; k++) {
    const insitu_slice *c = &v->slices[k];
    if (c->dim) insitu__public_string(b, k ? ", {\"dim\": " : "{\"dim\": ", c->dim);
    else insitu__text_buffer_printf(b, "%s{\"axis\": %d", k ? ", " : "", (int)c->axis);
    insitu__text_buffer_printf(b, ", \"start\": %" PRId64 ", \"stop\": %" PRId64 "}", c->start, c->stop);
  }
  insitu__text_buffer_printf(b, "]}");
}

static void insitu__public_config(struct insitu__text_buffer *b, const insitu_loader *ld) {
  const insitu_loader_desc *c = &ld->config;
  insitu__text_buffer_printf(b, "{\"config\": {\"variables\": [");
  for (uint64_t i = 0; i < c->n_variables; i++) {
    if (i) insitu__text_buffer_printf(b, ", ");
    insitu__public_variable(b, &c->variables[i]);
  }
  insitu__text_buffer_printf(b, "], \"split\": [");
  for (int p = 0; p < 3; p++) {
    insitu__text_buffer_printf(b, "%s{\"fraction\": ", p ? ", " : "");
    insitu__text_buffer_double(b, c->split[p].fraction);
    insitu__text_buffer_printf(b, ", \"start\": %" PRId64 ", \"stop\": %" PRId64 "}", c->split[p].start, c->split[p].stop);
  }
  insitu__text_buffer_printf(b, "]");
  for (int i = 0; i < INSITU__LOADER_FIELDS; i++) {
    const struct insitu__text_field *f = &insitu__loader_fields[i].text;
    bool other = f->at == offsetof(insitu_loader_desc, sample_axis) && c->sample_dim;
    bool none = f->kind == INSITU__TEXT_TEXT && !*(const char *const *)(const void *)((const char *)c + f->at);
    if (f->kind != INSITU__TEXT_NONE && !other && !none) insitu__text_buffer_field(b, ", ", f, c);
  }
  insitu__text_buffer_printf(b, "}, \"origins\": {");
  const char *separator = "";
  for (int i = 0; i < INSITU__LOADER_FIELDS; i++) {
    if (insitu__loader_fields[i].unset == INSITU__LOADER_FROM_DESC) continue;
    insitu__text_buffer_printf(
        b, "%s\"%s\": \"%s\"", separator, insitu__loader_fields[i].text.name, insitu__loader_origins[ld->origin[i]]);
    separator = ", ";
  }
}

static void insitu__public_arrays(struct insitu__text_buffer *b, const insitu_loader *ld) {
  const struct insitu__geometry *g = &ld->geometry;
  insitu__text_buffer_printf(b, "}, \"arrays\": {\"outputs\": [");
  for (uint64_t i = 0; i < g->n_variables; i++) {
    const insitu_array *a = &ld->arrays[i];
    insitu__public_string(b, i ? ", {\"name\": " : "{\"name\": ", a->name);
    insitu__public_string(b, ", \"dtype\": ", insitu__public_dtype(a->dtype));
    insitu__public_numbers(b, "shape", a->shape, (uint64_t)a->ndim);
    insitu__text_buffer_printf(b, ", \"bytes\": %" PRIu64 "}", a->bytes);
  }
  insitu__text_buffer_printf(b, "], \"stored\": [");
  for (uint64_t i = 0; i < g->n_arrays; i++) {
    const struct insitu__zarr_array *z = &g->arrays[i].zarr;
    insitu__public_string(b, i ? ", {\"path\": " : "{\"path\": ", z->path);
    insitu__public_numbers(b, "shape", z->shape, z->ndim);
    insitu__public_numbers(b, "chunks", z->chunk, z->ndim);
    if (z->n_levels) insitu__public_numbers(b, "shards", z->object.chunk, z->ndim);
    insitu__public_string(b, ", \"dtype\": ", insitu__public_dtype(z->dtype));
    insitu__text_buffer_printf(b, ", \"codecs\": [");
    for (int k = 0; k < z->codecs.n; k++) insitu__public_string(b, k ? ", " : "", z->codecs.codec[z->codecs.n - 1 - k].name);
    insitu__text_buffer_printf(b, "], \"dims\": [");
    for (unsigned d = 0; d < z->ndim; d++) insitu__public_string(b, d ? ", " : "", z->dim[d]);
    insitu__text_buffer_printf(b, "]}");
  }
}

static void insitu__public_plans(struct insitu__text_buffer *b, const insitu_loader *ld) {
  insitu__text_buffer_printf(b, "]}, \"plan\": {");
  for (int p = 0; p < INSITU__SPLIT_PARTS; p++) {
    insitu_iter_desc desc = {.api = INSITU_API, .split = p};
    insitu_plan plan;
    insitu_error error = {0};
    insitu__text_buffer_printf(b, "%s\"%s\": ", p ? ", " : "", insitu__split_names[p]);
    if (insitu_loader_plan(ld, &desc, &plan, &error) == INSITU_OK) {
      insitu__public_struct(b, insitu__public_plan, sizeof insitu__public_plan / sizeof *insitu__public_plan, &plan);
    } else {
      insitu__public_string(b, "{\"error\": ", error.message);
      insitu__text_buffer_printf(b, "}");
    }
  }
}

INSITU_DEF uint64_t insitu_loader_describe(const insitu_loader *ld, char *json, uint64_t cap) {
  struct insitu__text_buffer b = {0};
  insitu_stats stats;
  if (json && cap) json[0] = 0;
  if (insitu_loader_stats(ld, &stats, NULL)) return 0;
  insitu__public_config(&b, ld);
  insitu__public_arrays(&b, ld);
  insitu__public_plans(&b, ld);
  uint64_t tables = insitu__loader_get(&ld->tables), reserved = stats.memory_promised - ld->inflight_bytes - ld->cache_bytes;
  insitu__text_buffer_printf(&b,
      "}, \"memory\": {\"slabs\": %" PRIu64 ", \"tables\": %" PRIu64 ", \"in_flight\": %" PRIu64 ", \"indexes\": %" PRIu64
      ", \"reserved_now\": %" PRIu64 ", \"budget\": %" PRIu64 "}, \"statistics\": ",
      reserved - insitu__base_min(tables, reserved), tables, ld->inflight_bytes, ld->cache_bytes, stats.memory_promised,
      ld->config.memory_budget);
  insitu__public_struct(&b, insitu__public_stats, sizeof insitu__public_stats / sizeof *insitu__public_stats, &stats);
  insitu__text_buffer_printf(&b, "}");
  uint64_t n = b.failed ? 0 : b.n, some = cap ? insitu__base_min(n, cap - 1) : 0;
  if (json && some) memcpy(json, b.text, (size_t)some);
  if (json && cap) json[some] = 0;
  insitu__text_buffer_free(&b);
  return n;
}

INSITU_DEF insitu_status insitu_read(
    insitu_loader *ld, const insitu_variable *variable, void *dst, uint64_t dst_bytes, insitu_shape *shape, insitu_error *err) {
  insitu_status status = insitu__public_check(ld, false, err);
  if (status) return status;
  if (!variable || (!variable->path && !variable->label) || (variable->n_slices && !variable->slices) || (!dst && !shape))
    return insitu__error_set(err, INSITU_E_ARG, "read: variable, its path, its slices, or dst and shape are NULL; give them");
  if (variable->offset || variable->n_steps)
    return insitu__error_set(err, INSITU_E_ARG, "read: offset and steps mean nothing here; use slices");
  struct insitu__loader_reading r = {
      .loader = ld, .variable = variable, .dst = (unsigned char *)dst, .dst_bytes = dst_bytes, .shape = shape, .err = err};
  status = insitu__reactor_call(&ld->reactor, insitu__loader_read_await, &r);
  return status ? insitu__error_set(err, status, "read: no memory for a coroutine; give the process more memory") : r.status;
}

INSITU_DEF insitu_status insitu_read_strings(insitu_loader *ld, const char *path, insitu_strings **out, insitu_error *err) {
  insitu_status status = insitu__public_check(ld, false, err);
  if (out) *out = NULL;
  if (status) return status;
  if (!path || !out) return insitu__error_set(err, INSITU_E_ARG, "read: path or out is NULL; give both");
  struct insitu__loader_strings s = {.loader = ld, .path = path, .err = err};
  status = insitu__reactor_call(&ld->reactor, insitu__loader_strings_await, &s);
  if (status) insitu__error_set(err, status, "read: no memory for a coroutine; give the process more memory");
  else status = s.status;
  if (!status && s.zarr.kind != INSITU__ZARR_STRING) {
    insitu_variable fixed = {.path = path};
    insitu_shape shape;
    unsigned char *bytes = NULL;
    status = insitu_read(ld, &fixed, NULL, 0, &shape, err);
    if (!status && shape.bytes <= INSITU__MAX_STRING_BYTES) bytes = (unsigned char *)insitu__mem_alloc(shape.bytes + 1, 1);
    if (!status && bytes) status = insitu_read(ld, &fixed, bytes, shape.bytes, NULL, err);
    if (!status && (!bytes || !insitu__loader_strings_fixed(&s, bytes, s.n ? shape.bytes / s.n : 0)))
      status = insitu__error_set(err, INSITU_E_NOMEM,
          "read, array %.200s: its strings have more than INSITU__MAX_STRING_BYTES (%u) bytes, or memory is short; leave it out",
          path, INSITU__MAX_STRING_BYTES);
    insitu__mem_free(bytes);
  }
  if (!status && !(*out = insitu__loader_strings_give(&s)))
    status = insitu__error_set(
        err, INSITU_E_NOMEM, "read, array %.200s: no memory for its strings; give the process more memory", path);
  insitu__loader_strings_end(&s);
  return status;
}

INSITU_DEF void insitu_strings_free(insitu_strings **strings) {
  if (!strings) return;
  insitu__mem_free(*strings);
  *strings = NULL;
}

INSITU_DEF insitu_status insitu_manifest_save(const insitu_loader *ld, const char *path, insitu_error *err) {
  insitu_status status = insitu__public_check(ld, true, err);
  if (status) return status;
  if (!ld->config.n_variables)
    return insitu__error_set(err, INSITU_E_ARG, "manifest: the loader was opened without variables; open it with some");
  if (!path || !*path || strlen(path) > INSITU__MAX_KEY)
    return insitu__error_set(
        err, INSITU_E_ARG, "manifest: the path is empty or longer than %d bytes; give another", INSITU__MAX_KEY);
  if (!ld->split.by_chunks)
    return insitu__error_set(err, INSITU_E_SPLIT,
        "manifest %s: the split was given by samples, a manifest holds whole chunks; save the ranges "
        "instead, or split by fraction",
        path);
  struct insitu__text_buffer b = {0};
  char other[INSITU__MAX_KEY + 32];
  snprintf(other, sizeof other, "%s.%d.tmp", path, (int)getpid());
  insitu__split_print(&ld->split, &b, ld->geometry.samples, ld->geometry.chunk, ld->config.seed);
  FILE *f = b.failed ? NULL : fopen(other, "we");
  bool ok = f && fwrite(b.text, 1, (size_t)b.n, f) == b.n && fflush(f) == 0 && fsync(fileno(f)) == 0;
  int error = ok ? 0 : errno;
  if (f && fclose(f) != 0) ok = false;
  ok = ok && rename(other, path) == 0;
  if (!ok) {
    error = error ? error : errno;
    if (f) unlink(other);
    if (!b.failed && err && err->status >= 0) err->sys_errno = error;
    char cause[128];
    status = b.failed ? insitu__error_set(err, INSITU_E_NOMEM,
                            "manifest %s: it has more than 64 MiB, or memory is short; use fewer chunks", path)
                      : insitu__error_set(err, INSITU_E_IO, "manifest %s: %s; choose a path that can be written", path,
                            strerror_r(error, cause, sizeof cause));
  }
  insitu__text_buffer_free(&b);
  return status;
}

INSITU_DEF insitu_status insitu_iter_open(insitu_loader *ld, const insitu_iter_desc *desc, insitu_iter **out, insitu_error *err) {
  if (out) *out = NULL;
  insitu_status status = insitu__public_check(ld, false, err);
  if (!status) status = insitu__public_desc(ld, desc, err);
  if (status) return status;
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "iterator: out is NULL; give the address of a handle");
  if (ld->config.plan_only)
    return insitu__error_set(err, INSITU_E_ARG, "iterator: the loader was opened with plan_only; open it without to read");
  insitu_iter *it = (insitu_iter *)insitu__mem_alloc(1, sizeof *it);
  if (!it) return insitu__error_set(err, INSITU_E_NOMEM, "iterator: no memory; give the process more memory");
  it->loader = ld;
  it->pid = ld->pid;
  it->split = desc->split;
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&it->news, &clock);
  pthread_condattr_destroy(&clock);
  pthread_mutex_init(&it->lock, NULL);
  status = insitu__loader_iter_init(it, desc, err);
  if (!status) status = insitu__loader_iter_slabs(it, err);
  if (!status) {
    struct insitu__loader_move m = {it, desc->epoch, 0};
    status = insitu__reactor_call(&ld->reactor, insitu__loader_begin_await, &m);
    if (status) insitu__error_set(err, status, "iterator: no memory for a coroutine; give the process more memory");
  }
  if (status) {
    insitu__loader_unreserve(it);
    insitu__loader_free_iter(it);
    return status;
  }
  *out = it;
  return INSITU_OK;
}

INSITU_DEF void insitu_iter_close(insitu_iter **iter) {
  insitu_iter *it = iter ? *iter : NULL;
  if (iter) *iter = NULL;
  if (!it || insitu__public_check(it->loader, true, NULL)) return;
  assert(!it->loader->config.inline_io || pthread_equal(it->loader->opener, pthread_self()));
  insitu__loader_leave(it);
  insitu__loader_part(it);
}

INSITU_DEF insitu_status insitu_iter_next(insitu_iter *it, int64_t timeout_ms, insitu_batch **out, insitu_error *err) {
  if (out) *out = NULL;
  insitu_status status = insitu__public_check(it ? it->loader : NULL, false, err);
  if (status) return status;
  if (!out) return insitu__error_set(err, INSITU_E_ARG, "next: out is NULL; give the address of a batch pointer");
  insitu_loader *ld = it->loader;
  int64_t begin = insitu__base_now(), deadline = INT64_MAX;
  if (timeout_ms >= 0 && timeout_ms < (INT64_MAX - begin) / 1000000) deadline = begin + timeout_ms * 1000000;
  insitu__loader_enter(it, begin);
  pthread_mutex_lock(&it->lock);
  for (bool polled = false;; polled = true) {
    status = insitu__loader_poll(it, out, err);
    if (status == INSITU__LOADER_UNCHECKED) {
      insitu__loader_check_batch(it);
      status = insitu__loader_poll(it, out, err);
    }
    if (status != INSITU_TIMEOUT || (insitu__base_now() >= deadline && (polled || !ld->config.inline_io))) break;
    insitu__loader_wait(it, deadline);
  }
  pthread_mutex_unlock(&it->lock);
  if (status == INSITU_OK || status == INSITU_END) insitu__reactor_wake(&ld->reactor); /* one more batch may be prefetched */
  int64_t now = insitu__base_now();
  insitu__loader_exit(it, begin, now, status, *out);
  if (status == INSITU_END) insitu__loader_lap_log(it, now);
  return status;
}

static insitu_status insitu__public_move(insitu_iter *it, uint64_t epoch, uint64_t batch, insitu_error *err) {
  struct insitu__loader_move m = {it, epoch, batch};
  insitu_status status = insitu__reactor_call(&it->loader->reactor, insitu__loader_move_await, &m);
  it->lap.began = 0;
  return status ? insitu__error_set(err, status, "iterator: no memory for a coroutine; give the process more memory") : INSITU_OK;
}

INSITU_DEF insitu_status insitu_iter_set_epoch(insitu_iter *it, uint64_t epoch, insitu_error *err) {
  insitu_status status = insitu__public_check(it ? it->loader : NULL, false, err);
  if (status) return status;
  if (epoch >= INSITU__MAX_EPOCH)
    return insitu__error_set(err, INSITU_E_ARG, "set_epoch: %" PRIu64 " is beyond the last epoch, 2^20 - 1; correct it", epoch);
  pthread_mutex_lock(&it->lock);
  bool there = it->next == epoch * it->batches && it->bad == UINT64_MAX;
  if (there) it->told = it->next;
  if (there) it->lap.began = 0;
  pthread_mutex_unlock(&it->lock);
  return there ? INSITU_OK : insitu__public_move(it, epoch, 0, err);
}

INSITU_DEF insitu_status insitu_iter_restore(insitu_iter *it, const insitu_state *state, insitu_error *err) {
  insitu_status status = insitu__public_check(it ? it->loader : NULL, false, err);
  if (status) return status;
  if (!state) return insitu__error_set(err, INSITU_E_ARG, "restore: state is NULL; give what a batch's `after` held");
  status = insitu__loader_state_check(it, state, err);
  if (status) return status;
  return insitu__public_move(it, insitu__base_load64(state->bytes + INSITU__LOADER_STATE_EPOCH),
      insitu__base_load64(state->bytes + INSITU__LOADER_STATE_NEXT), err);
}

INSITU_DEF insitu_status insitu_iter_locate(
    const insitu_iter *it, uint64_t epoch, uint64_t batch, uint64_t row, int64_t *anchor, insitu_error *err) {
  insitu_status status = insitu__public_check(it ? it->loader : NULL, true, err);
  struct insitu__order o;
  if (status) return status;
  if (!anchor) return insitu__error_set(err, INSITU_E_ARG, "locate: anchor is NULL; give its address");
  status = insitu__plan_order(&it->plan, epoch, &o, err);
  if (status) return status;
  bool found = insitu__plan_locate(&it->plan, &o, batch, row, anchor);
  insitu__order_free(&o);
  if (found) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_ARG,
      "locate: the epoch has no row %" PRIu64 " of batch %" PRIu64 "; it has %" PRIu64 " batches", row, batch, it->batches);
}

INSITU_DEF const insitu_array *insitu_batch_find(const insitu_batch *batch, const char *name) {
  for (uint64_t i = 0; batch && name && i < batch->n_arrays; i++)
    if (!strcmp(batch->arrays[i].name, name)) return &batch->arrays[i];
  return NULL;
}

INSITU_DEF void insitu_batch_release(insitu_batch **batch) {
  struct insitu__loader_slab *slab = batch ? (struct insitu__loader_slab *)(void *)*batch : NULL;
  if (batch) *batch = NULL;
  if (!slab || getpid() != slab->iter->pid) return;
  insitu_iter *it = slab->iter;
  pthread_mutex_lock(&it->lock);
  assert(slab->held); /* else the batch was released twice; without asserts that does no harm */
  if (!slab->held) {
    pthread_mutex_unlock(&it->lock);
    return;
  }
  slab->held = false;
  insitu__mem_hide(slab->memory, it->slab_bytes);
  slab->next = it->free;
  it->free = slab;
  bool last = --it->held == 0 && it->closed;
  pthread_mutex_unlock(&it->lock);
  if (last) insitu__loader_free_iter(it);
}
#endif /* INSITU_IMPLEMENTATION_ONCE */
#endif /* INSITU_IMPLEMENTATION */

/* Copyright (c) 2026 the insitubatch.h authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
 * files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
 * modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
 * is furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
 * OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
 * LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
 * IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
