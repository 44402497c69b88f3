/* Chunks that are kept and gathered late, beside rows that are scattered: the same batches, states
 * and errors, whatever is drawn; what memory is promised and taken; which assembly is chosen. */
#include "insitubatch.h"
#include "twins.h"

enum { MOST = 6, OUTPUTS = 4 };
static const int64_t out[MOST] = {1, 2, 3, 4, 7, 12};
static const insitu_variable variables[] = {
    {.label = "t_in", .path = "t", .into = "x", .steps = in, .n_steps = 4, .dtype = INSITU_F64},
    {.label = "s_in", .path = "s", .into = "x", .steps = in, .n_steps = 4},
    {.label = "y", .path = "t", .steps = out, .n_steps = MOST},
    {.label = "z", .path = "s", .steps = odd, .n_steps = 3, .select = "lat=[::-2]; lon=[1,4]"},
    {.label = "now", .path = "t", .select = "lat=[2]"}};
static const char *const outputs[OUTPUTS] = {"x", "y", "z", "now"};
static const uint64_t steps[OUTPUTS] = {4, MOST, 3, 1};

static const char *const names[2] = {"scattered", "gathered"};

static insitu_loader_desc base(const char *root, int32_t assembly) {
  return (insitu_loader_desc){.api = INSITU_API,
      .url = root,
      .variables = variables,
      .n_variables = sizeof variables / sizeof *variables,
      .sample_dim = "time",
      .batch_size = 4,
      .split = {{.fraction = 1}},
      .on_absent_chunk = INSITU_FILL,
      .assembly = assembly};
}

static insitu_plan plan_of(const insitu_loader *ld, uint32_t max_held) {
  insitu_plan p;
  insitu_error err;
  insitu_iter_desc d = {.api = INSITU_API, .max_held = max_held};
  if (insitu_loader_plan(ld, &d, &p, &err)) fail_msg("%s", err.message);
  return p;
}
static insitu_iter *iter_of(insitu_loader *ld, uint32_t max_held) {
  return open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .max_held = max_held});
}
static uint64_t promise(const insitu_plan *p) {
  return p->slabs * p->slab_bytes + p->table_bytes;
}

/* Epochs, jumps, states that go from one assembly to the other, fewer steps, held batches. */
static void drawn(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(40); round++) {
    const char *root = make_archive("drawn", false);
    insitu_loader *ld[2];
    insitu_iter *it[2];
    insitu_batch *b[2], *held[2] = {NULL, NULL};
    insitu_state after;
    bool known = false;
    uint64_t batch = 1 + support_below(9), block = 1 + support_below(24),
             unit = 1 + support_below(3);
    int32_t order = 1 + (int32_t)support_below(2);
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc d = base(root, i ? INSITU_GATHER : INSITU_SCATTER);
      draw_resources(&d);
      d.batch_size = batch;
      d.block_chunks = block;
      d.unit_chunks = unit;
      ld[i] = open_or_fail(&d);
      it[i] = open_iter_or_fail(
          ld[i], &(insitu_iter_desc){.api = INSITU_API, .order = order, .split = INSITU_TRAIN});
      assert_int_equal(plan_of(ld[i], 0).assembly, i ? INSITU_GATHER : INSITU_SCATTER);
    }

    for (int n = 0; n < 120; n++) {
      int what = (int)support_below(60);
      insitu_error err;
      uint64_t some = support_below(5), o = support_below(OUTPUTS - 1);
      for (int i = 0; i < 2; i++) {
        insitu_status status = INSITU_OK;
        if (what == 0) status = insitu_iter_set_epoch(it[i], some, &err);
        if (what == 1 && known) status = insitu_iter_restore(it[i], &after, &err);
        if (what == 2) status = insitu_iter_set_epoch(it[i], some, &err);
        if (what == 2 && !status)
          status = insitu_iter_set_steps(it[i], outputs[o], 1 + some % steps[o], &err);
        if (status) fail_msg("%s", err.message);
      }
      if (step(names, it, b) != INSITU_OK) continue;
      after = b[support_below(2)]->after;
      known = true;
      for (int i = 0; i < 2; i++) {
        if (!held[i] && what > 30) held[i] = b[i];
        else insitu_batch_release(&b[i]);
        if (what < 10 && held[i]) insitu_batch_release(&held[i]);
      }
    }

    for (int i = 0; i < 2; i++) {
      insitu_iter_close(&it[i]);
      assert_int_equal(stats_of(ld[i]).slab_bytes, 0);
      insitu_loader_close(&ld[i]);
    }
    if (held[0]) same(held[0], held[1]); /* outlives both */
    for (int i = 0; i < 2; i++)
      if (held[i]) insitu_batch_release(&held[i]);
    support_remove(root);
  }
}

/* A state of other units, lanes and windows, for which gathering needs another amount of memory. */
static void restored(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(30); round++) {
    const char *root = make_archive("restored", false);
    insitu_loader *from, *ld[2];
    insitu_iter *first, *it[2];
    insitu_batch *b[2];
    insitu_error err;
    insitu_state after;
    insitu_loader_desc d = base(root, INSITU_GATHER);
    d.block_chunks = 1 + support_below(24);
    d.unit_chunks = 1 + support_below(4);
    from = open_or_fail(&d);
    first = iter_of(from, 0);
    if (insitu_iter_next(first, 20000, b, &err)) fail_msg("%s", err.message);
    after = b[0]->after;
    insitu_batch_release(b);
    for (int i = 0; i < 2; i++) {
      int32_t chosen = round % 2 ? INSITU_GATHER : 0; /* 0: the state's windows may change it */
      insitu_loader_desc other = base(root, i ? chosen : INSITU_SCATTER);
      draw_resources(&other);
      ld[i] = open_or_fail(&other);
      it[i] = iter_of(ld[i], 0);
    }
    for (int n = (int)support_below(9); n > 0; n--)
      if (step(names, it, b) == INSITU_OK)
        for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
    for (int i = 0; i < 2; i++)
      if (insitu_iter_restore(it[i], &after, &err)) fail_msg("%s", err.message);
    insitu_iter *both[2] = {first, it[1]};
    for (int n = 0; n < 40; n++) {
      if (step(names, both, b) == INSITU_OK)
        for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
    }
    insitu_stats st = stats_of(ld[1]);
    assert_true(st.memory_bytes_peak <= st.memory_promised + (64u << 20));
    for (int i = 0; i < 2; i++) insitu_iter_close(&it[i]);
    assert_true(stats_of(ld[1]).memory_promised <= insitu_loader_config(ld[1])->memory_budget);
    for (int i = 0; i < 2; i++) insitu_loader_close(&ld[i]);
    insitu_iter_close(&first);
    insitu_loader_close(&from);
    support_remove(root);
  }
}

/* Large chunks, of which slots hold what a window shows. Windows are small beside the archive, so
 * that a chunk has slots of its own for several windows. */
static void parts(void **state) {
  (void)state;
  static const int64_t far[] = {-3, -1, 0};
  const insitu_variable shown[] = {{.label = "x", .path = "x", .steps = far, .n_steps = 3},
      {.label = "y", .path = "x", .offset = 1, .select = "lon=[100:700]"}};
  uint64_t fewer = 0;
  for (int round = 0; round < (support_slow() ? 5 : 12); round++) {
    const char *root = support_path("parts");
    uint64_t rows = 16 + support_below(17);
    struct support_array x = {.name = "x",
        .ndim = 2,
        .shape = {40 * rows - support_below(rows), 1024},
        .chunk = {rows, 1024},
        .dtype = INSITU_F32,
        .format = 2,
        .zstd = support_below(2),
        .absent = support_below(2) ? 5 : 0,
        .dims = "[\"time\",\"lon\"]"};
    insitu_loader *ld[2];
    insitu_iter *it[2];
    insitu_batch *b[2];
    int32_t order = 1 + (int32_t)support_below(2);
    uint64_t blocks = 1 + support_below(3), batch = 1 + support_below(2 * rows);
    support_make(root, &x);
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc d = base(root, i ? INSITU_GATHER : INSITU_SCATTER);
      draw_resources(&d);
      d.variables = shown;
      d.n_variables = 2;
      d.batch_size = batch;
      d.block_chunks = blocks;
      d.unit_chunks = 1;
      d.lanes = 1;
      ld[i] = open_or_fail(&d);
      it[i] = open_iter_or_fail(ld[i], &(insitu_iter_desc){.api = INSITU_API, .order = order});
    }
    for (int n = 0; n < 150; n++)
      if (step(names, it, b) == INSITU_OK)
        for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
    insitu_stats st = stats_of(ld[1]);
    fewer += st.bytes_decoded < (st.reads - st.absent_chunks) * rows * 4096;
    for (int i = 0; i < 2; i++) {
      insitu_iter_close(&it[i]);
      insitu_loader_close(&ld[i]);
    }
    support_remove(root);
  }
  /* of 12 rounds, or 5; how many depends on the draws, and on who comes first */
  assert_true(fewer > (support_slow() ? 0 : 2));
}

/* Damaged chunks: the same batches come before the error, and fill is the same. */
static void damaged(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(40); round++) {
    const char *root = make_archive("damaged", false);
    insitu_loader *ld[2];
    insitu_iter *it[2];
    insitu_batch *b[2];
    uint64_t order = 1 + support_below(2), n = 0, index[4];
    bool fill = round % 2;
    char path[700];
    for (int d = 0; d < 3; d++) index[d] = support_below(support_ceil_div(t.shape[d], t.chunk[d]));
    for (int d = 0; d < 3 && t.shard[d]; d++) index[d] /= t.shard[d];
    support_chunk_path(path, sizeof path, root, &t, index);
    if (access(path, F_OK) == 0) support_write(path, "damaged", 7);
    for (int i = 0; i < 2; i++) {
      insitu_loader_desc d = base(root, i ? INSITU_GATHER : INSITU_SCATTER);
      draw_resources(&d);
      d.block_chunks = 7;
      d.on_bad_chunk = fill ? INSITU_FILL : INSITU_RAISE;
      d.log_level = INSITU_LOG_OFF;
      ld[i] = open_or_fail(&d);
      it[i] =
          open_iter_or_fail(ld[i], &(insitu_iter_desc){.api = INSITU_API, .order = (int32_t)order});
    }
    for (;; n++) {
      insitu_error err[2];
      insitu_status status[2];
      for (int i = 0; i < 2; i++) status[i] = insitu_iter_next(it[i], 20000, &b[i], &err[i]);
      /* several chunks of a batch may be damaged: which one is told, is a matter of time */
      assert_int_equal(status[0] < 0, status[1] < 0);
      if (status[0] < 0) assert_false(fill);
      if (status[0] != INSITU_OK) break;
      same(b[0], b[1]);
      for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
    }
    for (int i = 0; i < 2; i++) {
      assert_int_equal(insitu_iter_set_epoch(it[i], 1, NULL), INSITU_OK);
      insitu_iter_close(&it[i]);
      insitu_loader_close(&ld[i]);
    }
    support_remove(root);
  }
}

/* A budget that holds just what is promised is enough: for two iterators at once, with as many held
 * batches as they may have; a byte less is not. */
static void bounded(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(30); round++) {
    const char *root = make_archive("bounded", false);
    insitu_loader_desc d = base(root, INSITU_GATHER);
    draw_resources(&d);
    d.prefetch_depth = 1 + support_below(4);
    d.max_inflight = 1 + support_below(4);
    d.batch_size = 1 + support_below(8);
    d.block_chunks = 1 + support_below(24);
    uint32_t most = 1 + (uint32_t)support_below(3);
    insitu_loader *ld = open_or_fail(&d);
    insitu_plan p = plan_of(ld, most);
    insitu_loader_close(&ld);
    assert_int_equal(p.gather_bytes, p.kept_bytes + p.slabs * p.slab_bytes);
    assert_int_equal(p.slabs, most + (d.prefetch_depth < 2 ? 1 : p.slabs - most));

    d.memory_budget = p.inflight_bytes + p.cache_bytes + 2 * promise(&p);
    ld = open_or_fail(&d);
    insitu_iter *it[2] = {iter_of(ld, most), iter_of(ld, most)}, *more = NULL;
    insitu_batch *held[2][3], *b;
    insitu_error err;
    assert_int_equal(stats_of(ld).memory_promised, d.memory_budget);
    assert_int_equal(
        insitu_iter_open(ld, &(insitu_iter_desc){.api = INSITU_API}, &more, &err), INSITU_E_BUDGET);
    for (int i = 0; i < 2; i++)
      for (uint32_t k = 0; k < most; k++) held[i][k] = next_batch_or_fail(it[i]);
    for (int i = 0; i < 2; i++)
      assert_int_equal(insitu_iter_next(it[i], 20000, &b, &err), INSITU_BUSY);
    for (int i = 0; i < 2; i++) /* one by one, all others held */
      for (int n = 0; n < 60; n++) {
        insitu_batch_release(&held[i][n % (int)most]);
        insitu_status status;
        while ((status = insitu_iter_next(it[i], 20000, &b, &err)) == INSITU_END) {}
        if (status) fail_msg("%s: %s", insitu_status_name(status), err.message);
        held[i][n % (int)most] = b;
      }
    insitu_stats st = stats_of(ld);
    assert_true(st.slab_bytes_peak <= 2 * p.slabs * p.slab_bytes);
    assert_true(st.memory_bytes_peak <= d.memory_budget);
    for (int i = 0; i < 2; i++) {
      for (uint32_t k = 0; k < most; k++) insitu_batch_release(&held[i][k]);
      insitu_iter_close(&it[i]);
    }
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

/* Windows share what they show: in order every chunk is read once. */
static void once(void **state) {
  (void)state;
  const char *root = support_path("once");
  struct support_array x = {.name = "x",
      .ndim = 2,
      .shape = {480, 5},
      .chunk = {8, 5},
      .dtype = INSITU_I32,
      .format = 2,
      .dims = "[\"time\",\"lat\"]"};
  static const int64_t ahead[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const insitu_variable shown = {.path = "x", .steps = ahead, .n_steps = 16};
  support_make(root, &x);
  for (int32_t order = 1; order <= 2; order++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &shown,
        .n_variables = 1,
        .batch_size = 8,
        .prefetch_depth = 2,
        .hold_epoch = 1,
        .split = {{.fraction = 1}},
        .assembly = INSITU_GATHER};
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it = open_iter_or_fail(ld, &(insitu_iter_desc){.api = INSITU_API, .order = order});
    insitu_batch *b;
    insitu_status status;
    uint64_t before = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
      while ((status = insitu_iter_next(it, 20000, &b, NULL)) == INSITU_OK) {
        for (uint64_t r = 0; r < b->rows; r++)
          for (uint64_t i = 0; i < 16 * 5; i++)
            assert_int_equal(((const int32_t *)b->arrays[0].data)[r * 80 + i],
                b->sample_indices[r] * 5 + (int64_t)i);
        insitu_batch_release(&b);
      }
      assert_int_equal(status, INSITU_END);
      uint64_t reads = stats_of(ld).reads - before;
      if (order == INSITU_SEQUENTIAL && !epoch) assert_int_equal(reads, 60);
      else if (order == INSITU_SEQUENTIAL) assert_true(reads <= 60); /* some are still kept */
      else if (!epoch) assert_true(reads >= 60);
      before += reads;
    }
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
}

/* What the plan tells of both assemblies. The smaller one is taken, but where no field is shown
 * twice rows are scattered. */
static void chosen(void **state) {
  (void)state;
  const char *root = support_path("chosen");
  struct support_array x = {.name = "x",
      .ndim = 2,
      .shape = {4096, 1024},
      .chunk = {1, 1024},
      .dtype = INSITU_F32,
      .format = 2,
      .dims = "[\"time\",\"lat\"]"};
  static int64_t ahead[64];
  for (int i = 0; i < 64; i++) ahead[i] = i;
  for (uint64_t n = 0; n <= 64; n += 64) {
    if (n) x.chunk[0] = 32;
    support_make(root, &x);
    const insitu_variable shown = {.path = "x", .steps = n ? ahead : NULL, .n_steps = n};
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = &shown,
        .n_variables = 1,
        .prefetch_depth = n ? 0 : 64,
        .block_chunks = n ? 0 : 4,
        .batch_size = n ? 0 : 256,
        .split = {{.fraction = 1}}};
    insitu_loader *ld = open_or_fail(&d);
    insitu_plan p = plan_of(ld, 0);
    assert_int_equal(p.assembly, n ? INSITU_GATHER : INSITU_SCATTER);
    assert_true(p.gather_bytes && p.gather_bytes < p.scatter_bytes);
    if (n) {
      assert_true(promise(&p) <= 4 * (4096 * 1024 * 4)); /* of the distinct fields */
      assert_int_equal(p.slabs * p.slab_bytes + p.kept_bytes, p.gather_bytes);
    } else {
      assert_int_equal(p.slabs * p.slab_bytes, p.scatter_bytes);
      assert_int_equal(p.kept_bytes, 0);
    }
    insitu_loader_close(&ld);
  }
}

/* What does not fit memory_budget is refused with values that do. */
static void too_large(void **state) {
  (void)state;
  const char *root = support_path("too_large");
  struct support_array x = {.name = "x",
      .ndim = 2,
      .shape = {2048, 1024},
      .chunk = {2, 1024},
      .dtype = INSITU_F32,
      .format = 2,
      .dims = "[\"time\",\"lat\"]"};
  const insitu_variable shown[] = {
      {.label = "x", .path = "x"}, {.label = "y", .path = "x", .offset = 1}};
  support_make(root, &x);
  for (int32_t assembly = 0; assembly <= INSITU_GATHER; assembly++) {
    insitu_loader_desc d = {.api = INSITU_API,
        .url = root,
        .variables = shown,
        .n_variables = 2,
        .block_chunks = 1024,
        .prefetch_depth = 2,
        .decode_threads = 1,
        .max_inflight = 2,
        .memory_budget = 7 << 20,
        .assembly = assembly};
    insitu_iter_desc id = {.api = INSITU_API, .order = INSITU_SHUFFLED};
    const insitu_loader_desc first = d;
    for (int knob = 0; knob < 2; knob++) {
      insitu_iter *it = NULL;
      insitu_error err;
      d = first;
      insitu_loader *ld = open_or_fail(&d);
      assert_int_equal(insitu_iter_open(ld, &id, &it, &err), INSITU_E_BUDGET);
      insitu_loader_close(&ld);
      const char *told = strstr(err.message, knob ? "set block_chunks to " : "memory_budget to ");
      if (!told) fail_msg("%s", err.message);
      uint64_t value = strtoull(strstr(told, " to ") + 4, NULL, 10);
      if (knob) d.block_chunks = value;
      else d.memory_budget = value;
      ld = open_or_fail(&d);
      if (insitu_iter_open(ld, &id, &it, &err)) fail_msg("%s", err.message);
      insitu_iter_close(&it);
      insitu_loader_close(&ld);
    }
  }
}

/* Asked for where it does not apply, it is refused; by itself such a loader scatters. */
static void refused(void **state) {
  (void)state;
  const char *root = make_archive("refused", false);
  const insitu_axis axes[] = {{.dim = "time"}, {.dim = "lat", .patch = 3}};
  insitu_loader_desc d = base(root, 0);
  insitu_variable shown = {.path = "t"};
  d.variables = &shown;
  d.n_variables = 1;
  d.sample_dim = NULL;
  d.axes = axes;
  d.n_axes = 2;
  for (int32_t assembly = 0; assembly <= INSITU_GATHER; assembly++) {
    insitu_error err = {0};
    insitu_plan p;
    insitu_iter *it = NULL;
    insitu_iter_desc id = {.api = INSITU_API};
    d.assembly = assembly;
    insitu_loader *ld = open_or_fail(&d);
    insitu_status want = assembly == INSITU_GATHER ? INSITU_E_UNSUPPORTED : INSITU_OK;
    assert_int_equal(insitu_loader_plan(ld, &id, &p, &err), want);
    if (want) assert_non_null(strstr(err.message, "patches"));
    else assert_true(p.assembly == INSITU_SCATTER && !p.gather_bytes);
    assert_int_equal(insitu_iter_open(ld, &id, &it, &err), want);
    insitu_iter_close(&it);
    insitu_loader_close(&ld);
  }
  d.assembly = 3;
  insitu_loader *ld = NULL;
  assert_int_equal(insitu_loader_open(&d, &ld, NULL), INSITU_E_ARG);
}

static void z_is_twice_x(const insitu_batch *b) {
  const float *x = b->arrays[0].data, *z = b->arrays[2].data;
  for (uint64_t i = 0; i < b->arrays[0].bytes / 4; i++)
    if (z[i] != 2 * x[i]) fail_msg("element %" PRIu64 ": %g, %g", i, x[i], z[i]);
}

/* The batches of an epoch, gathered, have the bytes of scattered ones. least: bytes that a batch
 * has at least. check: looks at each gathered batch; may be NULL. */
static void same_batches(const char *root, const insitu_variable *shown, uint32_t n_shown,
    int64_t batch_size, int n_batches, uint64_t least, void (*check)(const insitu_batch *b)) {
  insitu_loader *ld[2];
  insitu_iter *it[2];
  insitu_batch *b[2];
  for (int i = 0; i < 2; i++) {
    insitu_loader_desc d = base(root, i ? INSITU_SCATTER : INSITU_GATHER);
    d.variables = shown;
    d.n_variables = n_shown;
    d.batch_size = batch_size;
    ld[i] = open_or_fail(&d);
    it[i] = iter_of(ld[i], 0);
  }

  int batches = 0;
  for (; insitu_iter_next(it[0], 20000, &b[0], NULL) == INSITU_OK; batches++) {
    assert_int_equal(insitu_iter_next(it[1], 20000, &b[1], NULL), INSITU_OK);
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < n_shown; k++) {
      assert_int_equal(b[0]->arrays[k].bytes, b[1]->arrays[k].bytes);
      bytes += b[0]->arrays[k].bytes;
      if (memcmp(b[0]->arrays[k].data, b[1]->arrays[k].data, b[0]->arrays[k].bytes))
        fail_msg("batch %d, array %d differs", batches, (int)k);
    }
    assert_true(bytes >= least);
    if (check) check(b[0]);
    for (int i = 0; i < 2; i++) insitu_batch_release(&b[i]);
  }
  assert_int_equal(batches, n_batches);

  for (int i = 0; i < 2; i++) {
    insitu_iter_close(&it[i]);
    insitu_loader_close(&ld[i]);
  }
}

/* Batches so large that they are written past the caches have the bytes of scattered ones. Rows are
 * no multiple of a cache line; steps of x follow each other, steps of y do not. Operations write
 * past the caches, too: z shows twice what x does. */
static void past_caches(void **state) {
  (void)state;
  static struct support_array large = {.name = "large",
      .ndim = 3,
      .shape = {10, 1021, 389},
      .chunk = {3, 1021, 389},
      .format = 2,
      .dtype = INSITU_F32,
      .dims = "[\"time\",\"lat\",\"lon\"]"};
  static const int64_t near[] = {0, 1}, far[] = {0, 2};
  const insitu_op scale = {.kind = INSITU_OP_SCALE, .a = 2};
  const insitu_variable shown[] = {{.label = "x", .path = "large", .steps = near, .n_steps = 2},
      {.label = "y", .path = "large", .steps = far, .n_steps = 2},
      {.label = "z", .path = "large", .steps = near, .n_steps = 2, .ops = &scale, .n_ops = 1}};
  const char *root = support_path("past");
  support_make(root, &large);
  same_batches(root, shown, 3, 2, 4, 12u << 20, z_is_twice_x); /* INSITU__MEM_PAST_CACHES */
  support_remove(root);
}

/* Slots of a cache line each follow each other in memory, mostly as their chunks do: one copy takes
 * several of them. Not those of absent chunks, and not where steps leave chunks out or turn
 * back. */
static void side_by_side(void **state) {
  (void)state;
  static struct support_array small = {.name = "small",
      .ndim = 3,
      .shape = {203, 4, 4},
      .chunk = {1, 4, 4},
      .format = 2,
      .absent = 7,
      .fill = "3",
      .dtype = INSITU_F32,
      .dims = "[\"time\",\"lat\",\"lon\"]"};
  static const int64_t near[] = {0, 1, 2, 3, 4, 5, 6, 7}, far[] = {0, 2, 4}, back[] = {3, 2, 1, 1};
  const insitu_variable shown[] = {{.label = "x", .path = "small", .steps = near, .n_steps = 8},
      {.label = "y", .path = "small", .steps = far, .n_steps = 3},
      {.label = "z", .path = "small", .steps = back, .n_steps = 4}};
  const char *root = support_path("beside");
  support_make(root, &small);
  same_batches(root, shown, 3, 4, 49, 4 * 15 * 64, NULL);
  support_remove(root);
}

/* Closed and cancelled in the middle of everything. */
static void ended(void **state) {
  (void)state;
  for (int round = 0; round < support_rounds(60); round++) {
    const char *root = make_archive("ended", false);
    insitu_loader_desc d = base(root, INSITU_GATHER);
    draw_resources(&d);
    insitu_loader *ld = open_or_fail(&d);
    insitu_iter *it[2] = {iter_of(ld, 0), iter_of(ld, 0)};
    insitu_batch *b;
    for (uint64_t n = support_below(4); n > 0; n--)
      if (insitu_iter_next(it[0], 20000, &b, NULL) == INSITU_OK) insitu_batch_release(&b);
    if (support_below(2)) {
      insitu_loader_cancel(ld);
      assert_int_equal(insitu_iter_next(it[1], 20000, &b, NULL), INSITU_CANCELLED);
    }
    if (support_below(2)) insitu_iter_close(&it[0]);
    if (support_below(2)) insitu_loader_close(&ld);
    insitu_iter_close(&it[0]);
    insitu_iter_close(&it[1]);
    insitu_loader_close(&ld);
    support_remove(root);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn), cmocka_unit_test(restored),
      cmocka_unit_test(parts), cmocka_unit_test(damaged), cmocka_unit_test(bounded),
      cmocka_unit_test(once), cmocka_unit_test(chosen), cmocka_unit_test(too_large),
      cmocka_unit_test(refused), cmocka_unit_test(past_caches), cmocka_unit_test(side_by_side),
      cmocka_unit_test(ended)};
  return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
