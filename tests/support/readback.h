/* Reads a whole array in two ways through the public functions: by insitu_read, and by batches in
 * sequence along one axis.
 * Needs insitubatch.h with its implementation. */
#ifndef TESTS_READBACK_H
#define TESTS_READBACK_H

/* Into memory that free() frees; at most `most` bytes. where: url and objects. */
static inline insitu_status readback_read(const insitu_loader_desc *where, const insitu_variable *v,
    uint64_t most, insitu_shape *shape, unsigned char **bytes, insitu_error *err) {
  insitu_loader_desc d = *where;
  insitu_loader *ld = NULL;
  *bytes = NULL;
  d.api = INSITU_API;
  d.plan_only = 1;
  d.log_level = INSITU_LOG_OFF;
  insitu_status status = insitu_loader_open(&d, &ld, err);
  if (status == INSITU_OK) status = insitu_read(ld, v, NULL, 0, shape, err);
  if (status == INSITU_OK && shape->bytes > most)
    status = insitu__error_set(err, INSITU_E_ARG,
        "%" PRIu64 " bytes; at most %" PRIu64 " are read here", shape->bytes, most);
  if (status == INSITU_OK) {
    *bytes = (unsigned char *)malloc((size_t)shape->bytes + 1);
    if (!*bytes)
      status =
          insitu__error_set(err, INSITU_E_NOMEM, "no memory for %" PRIu64 " bytes", shape->bytes);
  }
  if (status == INSITU_OK) status = insitu_read(ld, v, *bytes, shape->bytes, NULL, err);
  insitu_loader_close(&ld);
  if (status < 0) free(*bytes), *bytes = NULL;
  return status;
}

/* elements of these axes */
static inline uint64_t readback_count(const insitu_shape *s, int32_t from, int32_t to) {
  uint64_t n = 1;
  for (int32_t i = from; i < to; i++) n *= (uint64_t)s->shape[i];
  return n;
}

/* Every row along an axis once, in sequence, equal to what insitu_read gave; INSITU_E_CHECK where
 * it differs. The array has elements and an axis. */
static inline insitu_status readback_batches(const insitu_loader_desc *where, const char *path,
    const insitu_shape *shape, const unsigned char *want, int32_t axis, insitu_error *err) {
  insitu_variable v = {.label = "it", .path = path};
  insitu_loader_desc d = *where;
  insitu_iter_desc id = {.api = INSITU_API, .split = INSITU_ALL, .order = INSITU_SEQUENTIAL};
  insitu_loader *ld = NULL;
  insitu_iter *it = NULL;
  insitu_batch *b;
  uint64_t outer = readback_count(shape, 0, axis),
           inner = shape->bytes / readback_count(shape, 0, axis + 1), rows = 0;
  uint64_t length = (uint64_t)shape->shape[axis];
  bool equal = true;
  d.api = INSITU_API;
  d.variables = &v;
  d.n_variables = 1;
  d.sample_axis = axis;
  d.on_absent_chunk = INSITU_FILL;
  d.log_level = INSITU_LOG_OFF;
  if (!d.batch_size) d.batch_size = 1 + length / 3;
  if (d.batch_size > 4096) d.batch_size = 4096;
  insitu_status status = insitu_loader_open(&d, &ld, err);
  if (status == INSITU_OK) status = insitu_iter_open(ld, &id, &it, err);
  while (status == INSITU_OK && (status = insitu_iter_next(it, 60000, &b, err)) == INSITU_OK) {
    const unsigned char *p = (const unsigned char *)b->arrays[0].data;
    for (uint64_t r = 0; equal && r < b->rows; r++, rows++)
      for (uint64_t o = 0; equal && o < outer; o++, p += inner)
        equal = b->sample_indices[r] == (int64_t)rows &&
                memcmp(p, want + (o * length + rows) * inner, (size_t)inner) == 0;
    insitu_batch_release(&b);
    if (!equal) break;
  }
  insitu_iter_close(&it);
  insitu_loader_close(&ld);
  if (status < 0) return status;
  if (status == INSITU_TIMEOUT)
    return insitu__error_set(err, INSITU_E_CHECK, "no batch within a minute");
  if (equal && rows == length) return INSITU_OK;
  return insitu__error_set(err, INSITU_E_CHECK,
      "row %" PRIu64 " of %" PRIu64 " along axis %d differs between batch and insitu_read", rows,
      length, (int)axis);
}
#endif
