/* DLPack as its specification has it (https://dmlc.github.io/dlpack/latest/c_api.html, version
 * 1.0), written down once more and not taken from the header under test; and what every export must
 * be. */
#ifndef TESTS_DLPACK_H
#define TESTS_DLPACK_H
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BOOL = 6 };
typedef struct DLTensor {
  void *data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
#define DL_AT(type, member, at) _Static_assert(offsetof(type, member) == (at), #type "." #member)
DL_AT(DLTensor, data, 0);
DL_AT(DLTensor, device.device_type, 8);
DL_AT(DLTensor, device.device_id, 12);
DL_AT(DLTensor, ndim, 16);
DL_AT(DLTensor, dtype.code, 20);
DL_AT(DLTensor, dtype.bits, 21);
DL_AT(DLTensor, dtype.lanes, 22);
DL_AT(DLTensor, shape, 24);
DL_AT(DLTensor, strides, 32);
DL_AT(DLTensor, byte_offset, 40);
DL_AT(DLManagedTensor, manager_ctx, 48);
DL_AT(DLManagedTensor, deleter, 56);
DL_AT(DLManagedTensorVersioned, version.minor, 4);
DL_AT(DLManagedTensorVersioned, manager_ctx, 8);
DL_AT(DLManagedTensorVersioned, deleter, 16);
DL_AT(DLManagedTensorVersioned, flags, 24);
DL_AT(DLManagedTensorVersioned, dl_tensor, 32);
_Static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                   sizeof(DLManagedTensorVersioned) == 80,
    "DLPack 1.0");

/* An export of either kind. */
struct dl {
  void *managed;
  bool versioned;
};
static inline const DLTensor *dl_tensor(struct dl e) {
  return e.versioned ? &((DLManagedTensorVersioned *)e.managed)->dl_tensor
                     : &((DLManagedTensor *)e.managed)->dl_tensor;
}
static inline void dl_delete(struct dl e) {
  if (e.versioned) ((DLManagedTensorVersioned *)e.managed)->deleter(e.managed);
  else ((DLManagedTensor *)e.managed)->deleter(e.managed);
}
/* flags: as the versioned one must have them */
static inline struct dl dl_export_flags(
    insitu_batch *b, uint64_t i, bool versioned, void *stream, uint64_t flags) {
  insitu_error err = {0};
  struct dl e = {NULL, versioned};
  insitu_status s = insitu_batch_dlpack(b, i, versioned, stream, &e.managed, &err);
  if (s) fail_msg("%s: %s", insitu_status_name(s), err.message);
  assert_non_null(e.managed);
  if (versioned) {
    const DLManagedTensorVersioned *m = e.managed;
    assert_int_equal(m->version.major, 1);
    assert_int_equal(m->version.minor, 0);
    assert_int_equal(m->flags, flags);
    assert_non_null(m->deleter);
  } else {
    assert_non_null(((DLManagedTensor *)e.managed)->deleter);
  }
  return e;
}
static inline struct dl dl_export(insitu_batch *b, uint64_t i, bool versioned, void *stream) {
  return dl_export_flags(b, i, versioned, stream, 0); /* neither read-only nor a copy */
}
/* Of a fixed array, which is read-only. */
static inline struct dl dl_export_fixed(insitu_batch *b, uint64_t i, bool versioned, void *stream) {
  return dl_export_flags(b, i, versioned, stream, 1);
}
/* Every field. code, bits: what the array's elements are by DLPack's numbers; inner: the axes
 * behind the rows. */
static inline void dl_check(struct dl e, const insitu_batch *b, uint64_t i, int type, int id,
    int code, int bits, int n_inner, const int64_t *inner) {
  const DLTensor *t = dl_tensor(e);
  assert_ptr_equal(t->data, b->arrays[i].data);
  assert_int_equal((uintptr_t)t->data % 256, 0);
  assert_int_equal(t->byte_offset, 0);
  assert_int_equal(t->device.device_type, type);
  assert_int_equal(t->device.device_id, id);
  assert_int_equal(t->dtype.code, code);
  assert_int_equal(t->dtype.bits, bits);
  assert_int_equal(t->dtype.lanes, 1);
  assert_int_equal(t->ndim, n_inner + 1);
  assert_non_null(t->shape);
  assert_non_null(t->strides); /* NULL means C order, but since 1.2 no more */
  assert_int_equal(t->shape[0], b->rows);
  int64_t stride = 1;
  for (int d = n_inner; d > 0; d--) {
    assert_int_equal(t->shape[d], inner[d - 1]);
    assert_int_equal(t->strides[d], stride);
    stride *= inner[d - 1];
  }
  assert_int_equal(t->strides[0], stride);
  assert_int_equal(b->arrays[i].bytes, (uint64_t)(stride * t->shape[0]) * (uint64_t)bits / 8);
}

/* ---- refusals: that a call is INSITU_E_ARG, with words in err, `managed` having been set ---- */
#define MISUSE(call, ...)                                                                          \
  do {                                                                                             \
    insitu_error err = {0};                                                                        \
    managed = &err;                                                                                \
    assert_int_equal(call, INSITU_E_ARG);                                                          \
    const char *const words[] = {__VA_ARGS__};                                                     \
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) HAS(err.message, words[w]);          \
  } while (0)
#endif
