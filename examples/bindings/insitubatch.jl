# Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.
#
# insitubatch.h for Julia: include("insitubatch.jl"); the shared library is what INSITUBATCH_LIBRARY of the
# environment names, else libinsitubatch. Configurations are best given as JSON: InsituBatch.insitu_loader_open_json.
module InsituBatch

const library = get(ENV, "INSITUBATCH_LIBRARY", "libinsitubatch")

const INSITU_API = Int32(7)
const INSITU_FOREVER = Int32(-1)
const INSITU_AUTO = Int32(0)
const INSITU_RANK_FROM_ENV = Int32(-1)
const INSITU_OK = Int32(0)
const INSITU_END = Int32(1)
const INSITU_TIMEOUT = Int32(2)
const INSITU_BUSY = Int32(3)
const INSITU_CANCELLED = Int32(4)
const INSITU_E_API = Int32(-1)
const INSITU_E_ARG = Int32(-2)
const INSITU_E_BUDGET = Int32(-3)
const INSITU_E_NOMEM = Int32(-4)
const INSITU_E_NOTFOUND = Int32(-5)
const INSITU_E_NOT_ZARR = Int32(-6)
const INSITU_E_JSON = Int32(-7)
const INSITU_E_FORMAT = Int32(-8)
const INSITU_E_CODEC = Int32(-9)
const INSITU_E_DTYPE = Int32(-10)
const INSITU_E_GRID = Int32(-11)
const INSITU_E_UNSUPPORTED = Int32(-12)
const INSITU_E_SHAPE = Int32(-13)
const INSITU_E_SPLIT = Int32(-14)
const INSITU_E_CORRUPT = Int32(-15)
const INSITU_E_ABSENT = Int32(-16)
const INSITU_E_IO = Int32(-17)
const INSITU_E_STATE = Int32(-18)
const INSITU_E_WRONG_THREAD = Int32(-19)
const INSITU_E_FORKED = Int32(-20)
const INSITU_E_CHECK = Int32(-21)
const INSITU_E_HTTP = Int32(-22)
const INSITU_E_AUTH = Int32(-23)
const INSITU_E_CHANGED = Int32(-24)
const INSITU_E_DEVICE = Int32(-25)
const INSITU_AS_STORED = Int32(0)
const INSITU_I8 = Int32(8)
const INSITU_I16 = Int32(16)
const INSITU_I32 = Int32(32)
const INSITU_I64 = Int32(64)
const INSITU_U8 = Int32(264)
const INSITU_U16 = Int32(272)
const INSITU_U32 = Int32(288)
const INSITU_U64 = Int32(320)
const INSITU_F16 = Int32(528)
const INSITU_F32 = Int32(544)
const INSITU_F64 = Int32(576)
const INSITU_BF16 = Int32(1040)
const INSITU_C64 = Int32(1344)
const INSITU_C128 = Int32(1408)
const INSITU_BOOL = Int32(1544)
const INSITU_OP_NORM = Int32(1)
const INSITU_OP_SCALE = Int32(2)
const INSITU_OP_SHIFT = Int32(3)
const INSITU_OP_CLIP = Int32(4)
const INSITU_OP_LOG1P = Int32(5)
const INSITU_OP_ASINH = Int32(6)
const INSITU_OP_FILL = Int32(7)
const INSITU_OP_REPLACE = Int32(8)
const INSITU_OP_MISSING = Int32(9)
const INSITU_CF = Int32(1)
const INSITU_BY_INDEX = Int32(1)
const INSITU_BY_INDEX_FLOOR = Int32(2)
const INSITU_BY_COORDINATE = Int32(3)
const INSITU_HOST = Int32(0)
const INSITU_PINNED = Int32(1)
const INSITU_DEVICE = Int32(2)
const INSITU_DEVICE_OR_HOST = Int32(3)
const INSITU_TRAIN = Int32(0)
const INSITU_VAL = Int32(1)
const INSITU_TEST = Int32(2)
const INSITU_ALL = Int32(3)
const INSITU_IO_URING = Int32(1)
const INSITU_IO_EPOLL = Int32(2)
const INSITU_RAISE = Int32(1)
const INSITU_FILL = Int32(2)
const INSITU_RECEIPT_ANCHORS = Int32(1)
const INSITU_RECEIPT_BYTES = Int32(2)
const INSITU_SCATTER = Int32(1)
const INSITU_GATHER = Int32(2)
const INSITU_SHUFFLED = Int32(1)
const INSITU_SEQUENTIAL = Int32(2)
const INSITU_LOG_OFF = Int32(-1)
const INSITU_LOG_ERROR = Int32(1)
const INSITU_LOG_WARN = Int32(2)
const INSITU_LOG_INFO = Int32(3)
const INSITU_LOG_DEBUG = Int32(4)
const INSITU_DROP_RANGE = Int32(0)
const INSITU_DROP_STRIDE = Int32(1)
const INSITU_DROP_LIST = Int32(2)
const INSITU_DROP_OTHER_SPLIT = Int32(3)
const INSITU_DROP_EXCLUDED = Int32(4)
const INSITU_DROP_GAP = Int32(5)
const INSITU_DROP_NO_PARTNER = Int32(6)
const INSITU_DROP_ARCHIVE_EDGE = Int32(7)
const INSITU_DROP_SPLIT_EDGE = Int32(8)
const INSITU_DROP_TAIL = Int32(9)
const INSITU_DROPS = Int32(10)
const INSITU_STAGE_NONE = Int32(0)
const INSITU_STAGE_CONSUMER = Int32(1)
const INSITU_STAGE_READ = Int32(2)
const INSITU_STAGE_DECODE = Int32(3)
const INSITU_STAGE_UPLOAD = Int32(4)
const INSITU_BAD_CHUNKS = Int32(256)
const INSITU_ORDER_VERSION = Int32(1)

struct insitu_error
    status::Int32
    sys_errno::Int32
    http_status::Int32
    retryable::Int32
    message::NTuple{1008, UInt8}
end

struct insitu_slice
    dim::Ptr{UInt8}
    axis::Int32
    start::Int64
    stop::Int64
end

struct insitu_op
    kind::Int32
    a::Float64
    b::Float64
    dim::Ptr{UInt8}
    as::Ptr{Float64}
    bs::Ptr{Float64}
    n::UInt64
end

struct insitu_variable
    label::Ptr{UInt8}
    path::Ptr{UInt8}
    offset::Int64
    steps::Ptr{Int64}
    n_steps::UInt64
    dtype::Int32
    decode::Int32
    slices::Ptr{Cvoid}
    n_slices::UInt64
    select::Ptr{UInt8}
    into::Ptr{UInt8}
    halo::UInt64
    map::Int32
    rate::Int64
    place::Int32
    device::Int32
    fixed::Int32
    ops::Ptr{Cvoid}
    n_ops::UInt64
    mask::Ptr{UInt8}
end

struct insitu_split_range
    fraction::Float64
    start::Int64
    stop::Int64
    from::Ptr{UInt8}
    to::Ptr{UInt8}
end

struct insitu_axis
    dim::Ptr{UInt8}
    axis::Int32
    start::Int64
    stop::Int64
    from::Ptr{UInt8}
    to::Ptr{UInt8}
    stride::UInt64
    patch::UInt64
    edge::Int32
end

struct insitu_object
    key::Ptr{UInt8}
    bytes::Ptr{Cvoid}
    n::UInt64
end

struct insitu_codec_place
    format::Int32
    elements::Int32
    dtype::Int32
    stored::Int32
end

struct insitu_codec
    name::Ptr{UInt8}
    decode::Ptr{Cvoid}
    user::Ptr{Cvoid}
    max_encoded::UInt64
    open::Ptr{Cvoid}
    close::Ptr{Cvoid}
end

struct insitu_option
    key::Ptr{UInt8}
    value::Ptr{UInt8}
end

struct insitu_output
    label::Ptr{UInt8}
    dtype::Int32
    ndim::Int32
    shape::Ptr{Int64}
    place::Int32
    device::Int32
end

struct insitu_loader_desc
    api::UInt32
    url::Ptr{UInt8}
    objects::Ptr{Cvoid}
    n_objects::UInt64
    options::Ptr{Cvoid}
    n_options::UInt64
    virtual_prefixes::Ptr{Ptr{Cvoid}}
    n_virtual_prefixes::UInt64
    cache_dir::Ptr{UInt8}
    cache_budget::UInt64
    cache_decoded::Int32
    offline::Int32
    cache_memory::UInt64
    codecs::Ptr{Cvoid}
    n_codecs::UInt64
    variables::Ptr{Cvoid}
    n_variables::UInt64
    sample_dim::Ptr{UInt8}
    sample_axis::Int32
    axes::Ptr{Cvoid}
    n_axes::UInt64
    split_axis::Int32
    patches::UInt64
    samples::Ptr{Int64}
    n_samples::UInt64
    batch_size::UInt64
    seed::UInt64
    rank::Int32
    world::Int32
    block_chunks::UInt64
    unit_chunks::UInt64
    lanes::UInt64
    sample_start::Int64
    sample_stop::Int64
    sample_from::Ptr{UInt8}
    sample_to::Ptr{UInt8}
    time_path::Ptr{UInt8}
    coordinates::Int32
    split::NTuple{3, insitu_split_range}
    split_shuffled::Int32
    split_spill::Int32
    split_gap::UInt64
    manifest::Ptr{UInt8}
    stats::Ptr{UInt8}
    on_bad_chunk::Int32
    on_absent_chunk::Int32
    prefetch_depth::UInt64
    assembly::Int32
    max_inflight::UInt64
    decode_threads::UInt64
    memory_budget::UInt64
    device_budget::UInt64
    io::Int32
    inline_io::Int32
    plan_only::Int32
    check::Int32
    trace::Ptr{UInt8}
    receipts::Int32
    hold_epoch::Int32
    log_level::Int32
    log::Ptr{Cvoid}
    log_user::Ptr{Cvoid}
    alloc::Ptr{Cvoid}
    release::Ptr{Cvoid}
    alloc_user::Ptr{Cvoid}
    on_batch::Ptr{Cvoid}
    on_batch_user::Ptr{Cvoid}
    on_batch_threads::UInt64
    outputs::Ptr{Cvoid}
    n_outputs::UInt64
end

struct insitu_iter_desc
    api::UInt32
    split::Int32
    order::Int32
    max_held::UInt32
    epoch::UInt64
    stream::Ptr{Cvoid}
end

struct insitu_state
    bytes::NTuple{128, UInt8}
end

struct insitu_array
    name::Ptr{UInt8}
    data::Ptr{Cvoid}
    bytes::UInt64
    row_bytes::UInt64
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    ndim::Int32
    dtype::Int32
    place::Int32
    device::Int32
    fixed::Int32
    channels::Ptr{Ptr{Cvoid}}
end

struct insitu_batch
    epoch::UInt64
    index::UInt64
    rows::UInt64
    n_arrays::UInt64
    arrays::Ptr{Cvoid}
    sample_indices::Ptr{Int64}
    axis_indices::Ptr{Int64}
    n_axes::UInt64
    coordinates::Ptr{Float64}
    time_us::Ptr{Int64}
    calendar::Ptr{UInt8}
    bad_rows::Ptr{UInt8}
    anchors_digest::UInt64
    epoch_digest::UInt64
    bytes_digest::UInt64
    after::insitu_state
end

struct insitu_plan
    order_version::UInt32
    estimated::UInt32
    samples::UInt64
    batches::UInt64
    rows::UInt64
    space::UInt64
    dropped::NTuple{10, UInt64}
    units::UInt64
    unit_rows::UInt64
    lanes::UInt64
    window::UInt64
    span::UInt64
    reads::UInt64
    distinct::UInt64
    read_bytes::UInt64
    wanted::UInt64
    amplification::Float64
    decode_amplification::Float64
    dedup::Float64
    assembly::Int32
    slabs::UInt64
    slab_bytes::UInt64
    kept_bytes::UInt64
    scatter_bytes::UInt64
    gather_bytes::UInt64
    device_bytes::UInt64
    table_bytes::UInt64
    fixed_bytes::UInt64
    inflight_bytes::UInt64
    cache_bytes::UInt64
    hit_rate::Float64
    late_hit_rate::Float64
    disk_hit_rate::Float64
    variance_ratio::Float64
end

struct insitu_quality
    variance_ratio::Float64
    gap_score::Float64
    adjacent::UInt64
    rows::UInt64
end

struct insitu_stats
    batches::UInt64
    rows::UInt64
    skipped::UInt64
    reads::UInt64
    rereads::UInt64
    requests::UInt64
    index_reads::UInt64
    index_bytes::UInt64
    bytes_read::UInt64
    bytes_decoded::UInt64
    http_requests::UInt64
    retries::UInt64
    throttled::UInt64
    hedges::UInt64
    bytes_fetched::UInt64
    disk_hits::UInt64
    disk_misses::UInt64
    disk_bytes::UInt64
    disk_written::UInt64
    disk_unkept::UInt64
    cache_hits::UInt64
    cache_misses::UInt64
    absent_chunks::UInt64
    bad_chunks::UInt64
    bad_unlisted::UInt64
    slab_bytes::UInt64
    slab_bytes_peak::UInt64
    memory_bytes_peak::UInt64
    memory_promised::UInt64
    inflight_peak::UInt64
    uploads::UInt64
    uploaded_bytes::UInt64
    pinned_bytes::UInt64
    device_bytes::UInt64
    checked_rows::UInt64
    stall_s::Float64
    stall_share::Float64
    upload_stall_s::Float64
    consumer_stall_s::Float64
    first_batch_s::Float64
    next_p50_s::Float64
    next_p95_s::Float64
    next_p99_s::Float64
    next_max_s::Float64
    decode_busy::Float64
    limiting_stage::Int32
    io::NTuple{8, UInt8}
end

struct insitu_bad_chunk
    array::NTuple{256, UInt8}
    chunk::NTuple{256, UInt8}
    cause::NTuple{256, UInt8}
    status::Int32
end

struct insitu_shape
    ndim::Int32
    dtype::Int32
    shape::NTuple{16, Int64}
    bytes::UInt64
end

struct insitu_strings
    n::UInt64
    text::Ptr{Ptr{Cvoid}}
    bytes::Ptr{UInt64}
    shape::NTuple{16, Int64}
    ndim::Int32
end

struct insitu_date
    year::Int64
    month::Int32
    day::Int32
    hour::Int32
    minute::Int32
    second::Int32
    microsecond::Int32
    day_of_year::Int32
    days_in_year::Int32
    of_year::Float64
    of_day::Float64
    text::NTuple{48, UInt8}
end

struct insitu_scan_desc
    api::UInt32
    split::Int32
    loader::Ptr{Cvoid}
    dim::Ptr{UInt8}
    lags::Ptr{UInt64}
    n_lags::UInt64
    path::Ptr{UInt8}
    checkpoint_s::Float64
    progress::Ptr{Cvoid}
    user::Ptr{Cvoid}
end

struct insitu_order_desc
    api::UInt32
    sequential::UInt32
    units::UInt64
    unit_rows::UInt64
    seed::UInt64
    epoch::UInt64
    global_batch::UInt64
    lanes::UInt64
    window::UInt64
    irregular::Ptr{UInt64}
    n_irregular::UInt64
    classes::Ptr{UInt64}
    n_classes::UInt64
end

struct insitu_order_place
    unit::UInt64
    within::UInt64
    lane::UInt64
    window::UInt64
end

function insitu_status_name(status)
    ccall((:insitu_status_name, library), Cstring,
        (Int32,), status)
end

function insitu_version()
    ccall((:insitu_version, library), Cstring,
        ())
end

function insitu_drop_name(drop)
    ccall((:insitu_drop_name, library), Cstring,
        (Int32,), drop)
end

function insitu_stage_name(stage)
    ccall((:insitu_stage_name, library), Cstring,
        (Int32,), stage)
end

function insitu_loader_open(desc, out, err)
    ccall((:insitu_loader_open, library), Int32,
        (Ptr{insitu_loader_desc}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), desc, out, err)
end

function insitu_loader_open_json(json, base, out, err)
    ccall((:insitu_loader_open_json, library), Int32,
        (Cstring, Ptr{insitu_loader_desc}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), json, base, out, err)
end

function insitu_loader_close(loader)
    ccall((:insitu_loader_close, library), Cvoid,
        (Ptr{Ptr{Cvoid}},), loader)
end

function insitu_loader_cancel(loader)
    ccall((:insitu_loader_cancel, library), Cvoid,
        (Ptr{Cvoid},), loader)
end

function insitu_loader_config(loader)
    ccall((:insitu_loader_config, library), Ptr{insitu_loader_desc},
        (Ptr{Cvoid},), loader)
end

function insitu_loader_array(loader, i)
    ccall((:insitu_loader_array, library), Ptr{insitu_array},
        (Ptr{Cvoid}, UInt64), loader, i)
end

function insitu_loader_norm(loader, label, index, mean, deviation, err)
    ccall((:insitu_loader_norm, library), Int32,
        (Ptr{Cvoid}, Cstring, UInt64, Ptr{Float64}, Ptr{Float64}, Ptr{insitu_error}),
        loader, label, index, mean, deviation, err)
end

function insitu_loader_plan(loader, desc, out, err)
    ccall((:insitu_loader_plan, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_iter_desc}, Ptr{insitu_plan}, Ptr{insitu_error}), loader, desc, out, err)
end

function insitu_loader_quality(loader, desc, out, err)
    ccall((:insitu_loader_quality, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_iter_desc}, Ptr{insitu_quality}, Ptr{insitu_error}), loader, desc, out, err)
end

function insitu_loader_stats(loader, out, err)
    ccall((:insitu_loader_stats, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_stats}, Ptr{insitu_error}), loader, out, err)
end

function insitu_loader_bad_chunk(loader, i, out, err)
    ccall((:insitu_loader_bad_chunk, library), Int32,
        (Ptr{Cvoid}, UInt64, Ptr{insitu_bad_chunk}, Ptr{insitu_error}), loader, i, out, err)
end

function insitu_read(loader, variable, dst, dst_bytes, shape, err)
    ccall((:insitu_read, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_variable}, Ptr{Cvoid}, UInt64, Ptr{insitu_shape}, Ptr{insitu_error}),
        loader, variable, dst, dst_bytes, shape, err)
end

function insitu_read_strings(loader, path, out, err)
    ccall((:insitu_read_strings, library), Int32,
        (Ptr{Cvoid}, Cstring, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), loader, path, out, err)
end

function insitu_strings_free(strings)
    ccall((:insitu_strings_free, library), Cvoid,
        (Ptr{Ptr{Cvoid}},), strings)
end

function insitu_sample_dates(loader, samples, n, out, err)
    ccall((:insitu_sample_dates, library), Int32,
        (Ptr{Cvoid}, Ptr{Int64}, UInt64, Ptr{insitu_date}, Ptr{insitu_error}), loader, samples, n, out, err)
end

function insitu_date_from_int(value, units, calendar, out, err)
    ccall((:insitu_date_from_int, library), Int32,
        (Int64, Cstring, Cstring, Ptr{insitu_date}, Ptr{insitu_error}), value, units, calendar, out, err)
end

function insitu_date_from_double(value, units, calendar, out, err)
    ccall((:insitu_date_from_double, library), Int32,
        (Float64, Cstring, Cstring, Ptr{insitu_date}, Ptr{insitu_error}), value, units, calendar, out, err)
end

function insitu_date_from_us(us, calendar, out, err)
    ccall((:insitu_date_from_us, library), Int32,
        (Int64, Cstring, Ptr{insitu_date}, Ptr{insitu_error}), us, calendar, out, err)
end

function insitu_loader_describe(loader, json, cap)
    ccall((:insitu_loader_describe, library), UInt64,
        (Ptr{Cvoid}, Ptr{UInt8}, UInt64), loader, json, cap)
end

function insitu_manifest_save(loader, path, err)
    ccall((:insitu_manifest_save, library), Int32,
        (Ptr{Cvoid}, Cstring, Ptr{insitu_error}), loader, path, err)
end

function insitu_scan(desc, err)
    ccall((:insitu_scan, library), Int32,
        (Ptr{insitu_scan_desc}, Ptr{insitu_error}), desc, err)
end

function insitu_scan_merge(parts, n, path, err)
    ccall((:insitu_scan_merge, library), Int32,
        (Ptr{Ptr{Cvoid}}, UInt64, Cstring, Ptr{insitu_error}), parts, n, path, err)
end

function insitu_iter_open(loader, desc, out, err)
    ccall((:insitu_iter_open, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_iter_desc}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), loader, desc, out, err)
end

function insitu_iter_open_json(loader, json, base, out, err)
    ccall((:insitu_iter_open_json, library), Int32,
        (Ptr{Cvoid}, Cstring, Ptr{insitu_iter_desc}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), loader, json, base, out, err)
end

function insitu_iter_close(iter)
    ccall((:insitu_iter_close, library), Cvoid,
        (Ptr{Ptr{Cvoid}},), iter)
end

function insitu_iter_next(iter, timeout_ms, out, err)
    ccall((:insitu_iter_next, library), Int32,
        (Ptr{Cvoid}, Int64, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), iter, timeout_ms, out, err)
end

function insitu_iter_set_epoch(iter, epoch, err)
    ccall((:insitu_iter_set_epoch, library), Int32,
        (Ptr{Cvoid}, UInt64, Ptr{insitu_error}), iter, epoch, err)
end

function insitu_iter_restore(iter, state, err)
    ccall((:insitu_iter_restore, library), Int32,
        (Ptr{Cvoid}, Ptr{insitu_state}, Ptr{insitu_error}), iter, state, err)
end

function insitu_iter_set_steps(iter, output, n, err)
    ccall((:insitu_iter_set_steps, library), Int32,
        (Ptr{Cvoid}, Cstring, UInt64, Ptr{insitu_error}), iter, output, n, err)
end

function insitu_iter_skip(iter, first, n, err)
    ccall((:insitu_iter_skip, library), Int32,
        (Ptr{Cvoid}, UInt64, UInt64, Ptr{insitu_error}), iter, first, n, err)
end

function insitu_iter_locate(iter, epoch, batch, row, index, err)
    ccall((:insitu_iter_locate, library), Int32,
        (Ptr{Cvoid}, UInt64, UInt64, UInt64, Ptr{Int64}, Ptr{insitu_error}), iter, epoch, batch, row, index, err)
end

function insitu_batch_find(batch, name)
    ccall((:insitu_batch_find, library), Ptr{insitu_array},
        (Ptr{Cvoid}, Cstring), batch, name)
end

function insitu_batch_receipt(batch, line, cap)
    ccall((:insitu_batch_receipt, library), UInt64,
        (Ptr{Cvoid}, Ptr{UInt8}, UInt64), batch, line, cap)
end

function insitu_digest_add(a, b)
    ccall((:insitu_digest_add, library), UInt64,
        (UInt64, UInt64), a, b)
end

function insitu_batch_release(batch)
    ccall((:insitu_batch_release, library), Cvoid,
        (Ptr{Ptr{Cvoid}},), batch)
end

function insitu_batch_release_on(batch, stream)
    ccall((:insitu_batch_release_on, library), Cvoid,
        (Ptr{Ptr{Cvoid}}, Ptr{Cvoid}), batch, stream)
end

function insitu_batch_wait(batch, stream, err)
    ccall((:insitu_batch_wait, library), Int32,
        (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{insitu_error}), batch, stream, err)
end

function insitu_batch_copy_to(batch, array, dst, dst_bytes, stream, err)
    ccall((:insitu_batch_copy_to, library), Int32,
        (Ptr{Cvoid}, UInt64, Ptr{Cvoid}, UInt64, Ptr{Cvoid}, Ptr{insitu_error}),
        batch, array, dst, dst_bytes, stream, err)
end

function insitu_batch_dlpack(batch, array, versioned, stream, managed, err)
    ccall((:insitu_batch_dlpack, library), Int32,
        (Ptr{Cvoid}, UInt64, Int32, Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}),
        batch, array, versioned, stream, managed, err)
end

function insitu_order_open(desc, out, err)
    ccall((:insitu_order_open, library), Int32,
        (Ptr{insitu_order_desc}, Ptr{Ptr{Cvoid}}, Ptr{insitu_error}), desc, out, err)
end

function insitu_order_batches(order)
    ccall((:insitu_order_batches, library), UInt64,
        (Ptr{Cvoid},), order)
end

function insitu_order_at(order, position, out)
    ccall((:insitu_order_at, library), Int32,
        (Ptr{Cvoid}, UInt64, Ptr{insitu_order_place}), order, position, out)
end

function insitu_order_where(order, unit, within, position)
    ccall((:insitu_order_where, library), Int32,
        (Ptr{Cvoid}, UInt64, UInt64, Ptr{UInt64}), order, unit, within, position)
end

function insitu_order_close(order)
    ccall((:insitu_order_close, library), Cvoid,
        (Ptr{Ptr{Cvoid}},), order)
end

# The name of an error's status, and its message.
function text(err::insitu_error)
    bytes = collect(Iterators.takewhile(!=(0x00), err.message))
    unsafe_string(insitu_status_name(err.status)) * ": " * String(bytes)
end

# A value of a struct with all bytes zero; of a desc, with its api set.
function zeroed(T)
    r = Ref{T}()
    GC.@preserve r begin
        p = Base.unsafe_convert(Ptr{T}, r)
        unsafe_store!.(Ptr{UInt8}(p) .+ (0:sizeof(T)-1), 0x00)
        fieldname(T, 1) == :api && unsafe_store!(Ptr{UInt32}(p), UInt32(INSITU_API))
    end
    r
end

end
