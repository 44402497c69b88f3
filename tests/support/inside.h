/* What looks into a loader: allocations ahead of time, and full rings. Needs insitubatch.h with its
 * implementation. */
#ifndef TESTS_INSIDE_H
#define TESTS_INSIDE_H
/* ---- allocations ---- */
static inline void support_reserve_chain(
    struct insitu__codec_scratch *s, const struct insitu__codec_chain *chain, uint64_t decoded) {
  assert_int_equal(insitu__chain_scratch_reserve(s, chain, decoded, NULL), INSITU_OK);
  for (int i = 0; i < chain->n; i++) {
    const struct insitu__codec_shard *shard =
        chain->codec[i].kind == INSITU__CODEC_SHARD ? chain->codec[i].shard : NULL;
    if (shard) support_reserve_chain(s->inner, &shard->codecs, shard->inner_bytes);
  }
}
/* What a worker makes when it decodes its first chunk, before any iterator is open: one that comes
 * late would else make it while allocations are counted. */
static inline void support_reserve(insitu_loader *ld) {
  for (uint64_t w = 0; w < ld->config.decode_threads; w++)
    for (uint64_t i = 0; i < ld->geometry.n_arrays; i++) {
      const struct insitu__geometry_array *a = &ld->geometry.arrays[i];
      support_reserve_chain(&ld->scratch[w].codec, &a->zarr.codecs, a->chunk_bytes);
    }
}

/* ---- full rings ---- */
/* Waits until the scan stands where it may go no further, and all up to there has come: so that a
 * peak is a true one. The reactor is woken each time: next wakes it only once a share of the
 * batches ahead is taken, and nobody calls next meanwhile. */
static inline void support_fill_up(insitu_loader *ld, insitu_iter *it) {
  for (bool full = false; !full;) {
    pthread_mutex_lock(&it->lock);
    uint64_t last = insitu__pass_end(it) - 1;
    if (it->kept && last >= it->shared.next + it->n_ring) last = it->shared.next + it->n_ring - 1;
    full = it->shared.assigned > last && !atomic_load(&it->ring[last % it->n_ring]->pending);
    pthread_mutex_unlock(&it->lock);
    if (ld->config.inline_io) {
      insitu__reactor_run(&ld->reactor, 1000000);
    } else {
      insitu__reactor_wake(&ld->reactor);
      poll(NULL, 0, 1);
    }
  }
}
#endif
