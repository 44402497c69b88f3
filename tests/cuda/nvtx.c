/* What a profiler sees of a loader that is built with INSITU_WITH_NVTX: this program is the
 * profiler, too. It takes NVTX's calls as a library linked into the program may, and checks that
 * there is one domain, that each thread ends the ranges that it began, and how they are named.
 * Batches go to the simulated device of tests/cudasim. tests/cuda/check.sh builds it and runs it in
 * the repository's root; with the argument "none" no profiler answers. */
#include "insitubatch.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

enum { MONTHS = 132, CHUNKS = 22, DEPTH = 8, KINDS = 6 };
static const char *const kinds[KINDS] = {
    "uwnd", "insitu read", "insitu gather", "insitu on_batch", "insitu upload", "insitu next"};
static atomic_uint ranges[KINDS], domains, open_ranges, nested;
static bool watches = true;
static char domain[16];
static _Thread_local int depth;

static _Noreturn void die(const char *mode, const char *what) {
  printf("nvtx, %s: %s\n", mode, what);
  exit(1);
}

/* ---- the profiler ---- */

static nvtxDomainHandle_t domain_create(const char *name) {
  atomic_fetch_add(&domains, 1);
  snprintf(domain, sizeof domain, "%s", name);
  return (nvtxDomainHandle_t)(void *)domain;
}

static int push(nvtxDomainHandle_t where, const nvtxEventAttributes_t *what) {
  int kind = 0;
  if ((void *)where != domain) die("push", "another domain");
  if (what->version != NVTX_VERSION || what->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE ||
      what->messageType != NVTX_MESSAGE_TYPE_ASCII)
    die("push", "attributes that a profiler does not know");
  while (kind < KINDS && strcmp(kinds[kind], what->message.ascii)) kind++;
  if (kind == KINDS) die("push: unknown name", what->message.ascii);
  atomic_fetch_add(&ranges[kind], 1);
  atomic_fetch_add(&open_ranges, 1);
  if (depth) atomic_fetch_add(&nested, 1);
  if (depth == DEPTH) die("push", "ranges are not ended");
  return depth++;
}

static int pop(nvtxDomainHandle_t where) {
  if ((void *)where != domain || !depth) die("pop", "a thread ends a range that it did not begin");
  atomic_fetch_sub(&open_ranges, 1);
  return --depth;
}

static int attach(NvtxGetExportTableFunc_t export_table) {
  const NvtxExportTableCallbacks *callbacks = export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned n = 0;
  if (!watches) return 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n) ||
      n <= NVTX_CBID_CORE2_DomainCreateA)
    die("attach", "no table of functions");
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
/* NVTX calls it where no library of the environment is named. */
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

/* ---- an epoch ---- */

static insitu_status on_batch(
    void *user, insitu_batch *batch, const uint64_t *keys, insitu_error *err) {
  (void)user, (void)batch, (void)keys, (void)err;
  return INSITU_OK;
}

static void epoch(const char *mode, insitu_loader_desc desc) {
  insitu_variable variable = {.path = "uwnd", .place = INSITU_DEVICE};
  insitu_error err = {0};
  insitu_loader *loader = NULL;
  insitu_iter *iter = NULL;
  insitu_batch *batch;
  insitu_status status;
  uint64_t rows = 0;

  for (int kind = 0; kind < KINDS; kind++) atomic_store(&ranges[kind], 0);
  atomic_store(&nested, 0);
  desc.api = INSITU_API, desc.url = "examples/data/winds.zarr";
  desc.variables = &variable, desc.n_variables = 1;
  desc.batch_size = 6, desc.on_batch = on_batch;
  if (insitu_loader_open(&desc, &loader, &err)) die(mode, err.message);
  if (insitu_iter_open(
          loader, &(insitu_iter_desc){.api = INSITU_API, .split = INSITU_ALL}, &iter, &err))
    die(mode, err.message);
  while ((status = insitu_iter_next(iter, INSITU_FOREVER, &batch, &err)) == INSITU_OK) {
    rows += batch->rows;
    insitu_batch_release(&batch);
  }
  if (status != INSITU_END) die(mode, err.message);
  if (rows != MONTHS) die(mode, "rows are missing");
  insitu_loader_close(&loader);

  printf("nvtx, %s:", mode);
  for (int kind = 0; kind < KINDS; kind++)
    printf(" %s %u%s", kinds[kind], atomic_load(&ranges[kind]), kind < KINDS - 1 ? "," : "\n");
  if (atomic_load(&open_ranges) || depth) die(mode, "ranges were left open");
  if (atomic_load(&domains) != watches) die(mode, "not one domain");
  if (!watches) return;
  if (strcmp(domain, "insitubatch")) die(mode, "another name of the domain");
  if (atomic_load(&ranges[0]) < CHUNKS) die(mode, "chunks were decoded unseen");
  if (atomic_load(&ranges[3]) < CHUNKS || atomic_load(&ranges[4]) < CHUNKS)
    die(mode, "not a call and an upload for each batch"); /* the next epoch's have begun, too */
  if (desc.inline_io && !atomic_load(&ranges[5])) die(mode, "no wait was seen");
  if (!desc.inline_io == (atomic_load(&nested) > 0)) die(mode, "nested otherwise than expected");
  if ((desc.assembly == INSITU_GATHER) != (atomic_load(&ranges[2]) > 0))
    die(mode, "gathered otherwise than expected");
}

int main(int argc, char **argv) {
  watches = argc < 2 || strcmp(argv[1], "none") != 0;
  epoch("threads", (insitu_loader_desc){.decode_threads = 2, .assembly = INSITU_SCATTER});
  epoch("gather", (insitu_loader_desc){.decode_threads = 2, .assembly = INSITU_GATHER});
  epoch("inline", (insitu_loader_desc){.inline_io = 1, .assembly = INSITU_SCATTER});
  return 0;
}
