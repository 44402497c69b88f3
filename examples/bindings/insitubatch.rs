// Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.
//
// insitubatch.h for Rust 1.63 or later: mod insitubatch; and link the library (insitubatch) or an object of the
// implementation. A desc begins as Default: all zero, but api.
#![allow(non_camel_case_types, dead_code)]
use std::ffi::{c_void, CStr};
use std::os::raw::c_char;

pub const INSITU_API: u32 = 7;
pub const INSITU_FOREVER: i32 = -1;
pub const INSITU_AUTO: i32 = 0;
pub const INSITU_RANK_FROM_ENV: i32 = -1;
pub const INSITU_OK: i32 = 0;
pub const INSITU_END: i32 = 1;
pub const INSITU_TIMEOUT: i32 = 2;
pub const INSITU_BUSY: i32 = 3;
pub const INSITU_CANCELLED: i32 = 4;
pub const INSITU_E_API: i32 = -1;
pub const INSITU_E_ARG: i32 = -2;
pub const INSITU_E_BUDGET: i32 = -3;
pub const INSITU_E_NOMEM: i32 = -4;
pub const INSITU_E_NOTFOUND: i32 = -5;
pub const INSITU_E_NOT_ZARR: i32 = -6;
pub const INSITU_E_JSON: i32 = -7;
pub const INSITU_E_FORMAT: i32 = -8;
pub const INSITU_E_CODEC: i32 = -9;
pub const INSITU_E_DTYPE: i32 = -10;
pub const INSITU_E_GRID: i32 = -11;
pub const INSITU_E_UNSUPPORTED: i32 = -12;
pub const INSITU_E_SHAPE: i32 = -13;
pub const INSITU_E_SPLIT: i32 = -14;
pub const INSITU_E_CORRUPT: i32 = -15;
pub const INSITU_E_ABSENT: i32 = -16;
pub const INSITU_E_IO: i32 = -17;
pub const INSITU_E_STATE: i32 = -18;
pub const INSITU_E_WRONG_THREAD: i32 = -19;
pub const INSITU_E_FORKED: i32 = -20;
pub const INSITU_E_CHECK: i32 = -21;
pub const INSITU_E_HTTP: i32 = -22;
pub const INSITU_E_AUTH: i32 = -23;
pub const INSITU_E_CHANGED: i32 = -24;
pub const INSITU_E_DEVICE: i32 = -25;
pub const INSITU_AS_STORED: i32 = 0;
pub const INSITU_I8: i32 = 8;
pub const INSITU_I16: i32 = 16;
pub const INSITU_I32: i32 = 32;
pub const INSITU_I64: i32 = 64;
pub const INSITU_U8: i32 = 264;
pub const INSITU_U16: i32 = 272;
pub const INSITU_U32: i32 = 288;
pub const INSITU_U64: i32 = 320;
pub const INSITU_F16: i32 = 528;
pub const INSITU_F32: i32 = 544;
pub const INSITU_F64: i32 = 576;
pub const INSITU_BF16: i32 = 1040;
pub const INSITU_C64: i32 = 1344;
pub const INSITU_C128: i32 = 1408;
pub const INSITU_BOOL: i32 = 1544;
pub const INSITU_OP_NORM: i32 = 1;
pub const INSITU_OP_SCALE: i32 = 2;
pub const INSITU_OP_SHIFT: i32 = 3;
pub const INSITU_OP_CLIP: i32 = 4;
pub const INSITU_OP_LOG1P: i32 = 5;
pub const INSITU_OP_ASINH: i32 = 6;
pub const INSITU_OP_FILL: i32 = 7;
pub const INSITU_OP_REPLACE: i32 = 8;
pub const INSITU_OP_MISSING: i32 = 9;
pub const INSITU_CF: i32 = 1;
pub const INSITU_BY_INDEX: i32 = 1;
pub const INSITU_BY_INDEX_FLOOR: i32 = 2;
pub const INSITU_BY_COORDINATE: i32 = 3;
pub const INSITU_HOST: i32 = 0;
pub const INSITU_PINNED: i32 = 1;
pub const INSITU_DEVICE: i32 = 2;
pub const INSITU_DEVICE_OR_HOST: i32 = 3;
pub const INSITU_TRAIN: i32 = 0;
pub const INSITU_VAL: i32 = 1;
pub const INSITU_TEST: i32 = 2;
pub const INSITU_ALL: i32 = 3;
pub const INSITU_IO_URING: i32 = 1;
pub const INSITU_IO_EPOLL: i32 = 2;
pub const INSITU_RAISE: i32 = 1;
pub const INSITU_FILL: i32 = 2;
pub const INSITU_RECEIPT_ANCHORS: i32 = 1;
pub const INSITU_RECEIPT_BYTES: i32 = 2;
pub const INSITU_SCATTER: i32 = 1;
pub const INSITU_GATHER: i32 = 2;
pub const INSITU_SHUFFLED: i32 = 1;
pub const INSITU_SEQUENTIAL: i32 = 2;
pub const INSITU_LOG_OFF: i32 = -1;
pub const INSITU_LOG_ERROR: i32 = 1;
pub const INSITU_LOG_WARN: i32 = 2;
pub const INSITU_LOG_INFO: i32 = 3;
pub const INSITU_LOG_DEBUG: i32 = 4;
pub const INSITU_DROP_RANGE: i32 = 0;
pub const INSITU_DROP_STRIDE: i32 = 1;
pub const INSITU_DROP_LIST: i32 = 2;
pub const INSITU_DROP_OTHER_SPLIT: i32 = 3;
pub const INSITU_DROP_EXCLUDED: i32 = 4;
pub const INSITU_DROP_GAP: i32 = 5;
pub const INSITU_DROP_NO_PARTNER: i32 = 6;
pub const INSITU_DROP_ARCHIVE_EDGE: i32 = 7;
pub const INSITU_DROP_SPLIT_EDGE: i32 = 8;
pub const INSITU_DROP_TAIL: i32 = 9;
pub const INSITU_DROPS: i32 = 10;
pub const INSITU_STAGE_NONE: i32 = 0;
pub const INSITU_STAGE_CONSUMER: i32 = 1;
pub const INSITU_STAGE_READ: i32 = 2;
pub const INSITU_STAGE_DECODE: i32 = 3;
pub const INSITU_STAGE_UPLOAD: i32 = 4;
pub const INSITU_BAD_CHUNKS: i32 = 256;
pub const INSITU_ORDER_VERSION: i32 = 1;

#[repr(C)]
pub struct insitu_loader {
    _private: [u8; 0],
}

#[repr(C)]
pub struct insitu_iter {
    _private: [u8; 0],
}

#[repr(C)]
pub struct insitu_order {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_error {
    pub status: i32,
    pub sys_errno: i32,
    pub http_status: i32,
    pub retryable: i32,
    pub message: [c_char; 1008],
}
impl Default for insitu_error {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_slice {
    pub dim: *const c_char,
    pub axis: i32,
    pub start: i64,
    pub stop: i64,
}
impl Default for insitu_slice {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_op {
    pub kind: i32,
    pub a: f64,
    pub b: f64,
    pub dim: *const c_char,
    pub r#as: *const f64,
    pub bs: *const f64,
    pub n: u64,
}
impl Default for insitu_op {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_variable {
    pub label: *const c_char,
    pub path: *const c_char,
    pub offset: i64,
    pub steps: *const i64,
    pub n_steps: u64,
    pub dtype: i32,
    pub decode: i32,
    pub slices: *const insitu_slice,
    pub n_slices: u64,
    pub select: *const c_char,
    pub into: *const c_char,
    pub halo: u64,
    pub map: i32,
    pub rate: i64,
    pub place: i32,
    pub device: i32,
    pub fixed: i32,
    pub ops: *const insitu_op,
    pub n_ops: u64,
    pub mask: *const c_char,
}
impl Default for insitu_variable {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_split_range {
    pub fraction: f64,
    pub start: i64,
    pub stop: i64,
    pub from: *const c_char,
    pub to: *const c_char,
}
impl Default for insitu_split_range {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_axis {
    pub dim: *const c_char,
    pub axis: i32,
    pub start: i64,
    pub stop: i64,
    pub from: *const c_char,
    pub to: *const c_char,
    pub stride: u64,
    pub patch: u64,
    pub edge: i32,
}
impl Default for insitu_axis {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_object {
    pub key: *const c_char,
    pub bytes: *const c_void,
    pub n: u64,
}
impl Default for insitu_object {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_codec_place {
    pub format: i32,
    pub elements: i32,
    pub dtype: i32,
    pub stored: i32,
}
impl Default for insitu_codec_place {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_codec {
    pub name: *const c_char,
    pub decode: Option<unsafe extern "C" fn(*mut c_void,
        *const c_char,
        *const c_void,
        u64,
        *mut c_void,
        u64,
        *mut u64,
        *mut insitu_error) -> i32>,
    pub user: *mut c_void,
    pub max_encoded: u64,
    pub open: Option<unsafe extern "C" fn(*mut c_void,
        *const c_char,
        *mut insitu_codec_place,
        *mut *mut c_void,
        *mut insitu_error) -> i32>,
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
}
impl Default for insitu_codec {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_option {
    pub key: *const c_char,
    pub value: *const c_char,
}
impl Default for insitu_option {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_output {
    pub label: *const c_char,
    pub dtype: i32,
    pub ndim: i32,
    pub shape: *const i64,
    pub place: i32,
    pub device: i32,
}
impl Default for insitu_output {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_loader_desc {
    pub api: u32,
    pub url: *const c_char,
    pub objects: *const insitu_object,
    pub n_objects: u64,
    pub options: *const insitu_option,
    pub n_options: u64,
    pub virtual_prefixes: *const *const c_char,
    pub n_virtual_prefixes: u64,
    pub cache_dir: *const c_char,
    pub cache_budget: u64,
    pub cache_decoded: i32,
    pub offline: i32,
    pub cache_memory: u64,
    pub codecs: *const insitu_codec,
    pub n_codecs: u64,
    pub variables: *const insitu_variable,
    pub n_variables: u64,
    pub sample_dim: *const c_char,
    pub sample_axis: i32,
    pub axes: *const insitu_axis,
    pub n_axes: u64,
    pub split_axis: i32,
    pub patches: u64,
    pub samples: *const i64,
    pub n_samples: u64,
    pub batch_size: u64,
    pub seed: u64,
    pub rank: i32,
    pub world: i32,
    pub block_chunks: u64,
    pub unit_chunks: u64,
    pub lanes: u64,
    pub sample_start: i64,
    pub sample_stop: i64,
    pub sample_from: *const c_char,
    pub sample_to: *const c_char,
    pub time_path: *const c_char,
    pub coordinates: i32,
    pub split: [insitu_split_range; 3],
    pub split_shuffled: i32,
    pub split_spill: i32,
    pub split_gap: u64,
    pub manifest: *const c_char,
    pub stats: *const c_char,
    pub on_bad_chunk: i32,
    pub on_absent_chunk: i32,
    pub prefetch_depth: u64,
    pub assembly: i32,
    pub max_inflight: u64,
    pub decode_threads: u64,
    pub memory_budget: u64,
    pub device_budget: u64,
    pub io: i32,
    pub inline_io: i32,
    pub plan_only: i32,
    pub check: i32,
    pub trace: *const c_char,
    pub receipts: i32,
    pub hold_epoch: i32,
    pub log_level: i32,
    pub log: Option<unsafe extern "C" fn(*mut c_void, i32, *const c_char)>,
    pub log_user: *mut c_void,
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, u64, u64, i32, i32, *mut c_void) -> *mut c_void>,
    pub release: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64, i32, i32)>,
    pub alloc_user: *mut c_void,
    pub on_batch: Option<unsafe extern "C" fn(*mut c_void,
        *mut insitu_batch,
        *const u64,
        *mut insitu_error) -> i32>,
    pub on_batch_user: *mut c_void,
    pub on_batch_threads: u64,
    pub outputs: *const insitu_output,
    pub n_outputs: u64,
}
impl Default for insitu_loader_desc {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { api: INSITU_API, ..zero }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_iter_desc {
    pub api: u32,
    pub split: i32,
    pub order: i32,
    pub max_held: u32,
    pub epoch: u64,
    pub stream: *mut c_void,
}
impl Default for insitu_iter_desc {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { api: INSITU_API, ..zero }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_state {
    pub bytes: [u8; 128],
}
impl Default for insitu_state {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_array {
    pub name: *const c_char,
    pub data: *mut c_void,
    pub bytes: u64,
    pub row_bytes: u64,
    pub shape: *const i64,
    pub strides: *const i64,
    pub ndim: i32,
    pub dtype: i32,
    pub place: i32,
    pub device: i32,
    pub fixed: i32,
    pub channels: *const *const c_char,
}
impl Default for insitu_array {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_batch {
    pub epoch: u64,
    pub index: u64,
    pub rows: u64,
    pub n_arrays: u64,
    pub arrays: *const insitu_array,
    pub sample_indices: *const i64,
    pub axis_indices: *const i64,
    pub n_axes: u64,
    pub coordinates: *const f64,
    pub time_us: *const i64,
    pub calendar: *const c_char,
    pub bad_rows: *const u8,
    pub anchors_digest: u64,
    pub epoch_digest: u64,
    pub bytes_digest: u64,
    pub after: insitu_state,
}
impl Default for insitu_batch {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_plan {
    pub order_version: u32,
    pub estimated: u32,
    pub samples: u64,
    pub batches: u64,
    pub rows: u64,
    pub space: u64,
    pub dropped: [u64; 10],
    pub units: u64,
    pub unit_rows: u64,
    pub lanes: u64,
    pub window: u64,
    pub span: u64,
    pub reads: u64,
    pub distinct: u64,
    pub read_bytes: u64,
    pub wanted: u64,
    pub amplification: f64,
    pub decode_amplification: f64,
    pub dedup: f64,
    pub assembly: i32,
    pub slabs: u64,
    pub slab_bytes: u64,
    pub kept_bytes: u64,
    pub scatter_bytes: u64,
    pub gather_bytes: u64,
    pub device_bytes: u64,
    pub table_bytes: u64,
    pub fixed_bytes: u64,
    pub inflight_bytes: u64,
    pub cache_bytes: u64,
    pub hit_rate: f64,
    pub late_hit_rate: f64,
    pub disk_hit_rate: f64,
    pub variance_ratio: f64,
}
impl Default for insitu_plan {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_quality {
    pub variance_ratio: f64,
    pub gap_score: f64,
    pub adjacent: u64,
    pub rows: u64,
}
impl Default for insitu_quality {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_stats {
    pub batches: u64,
    pub rows: u64,
    pub skipped: u64,
    pub reads: u64,
    pub rereads: u64,
    pub requests: u64,
    pub index_reads: u64,
    pub index_bytes: u64,
    pub bytes_read: u64,
    pub bytes_decoded: u64,
    pub http_requests: u64,
    pub retries: u64,
    pub throttled: u64,
    pub hedges: u64,
    pub bytes_fetched: u64,
    pub disk_hits: u64,
    pub disk_misses: u64,
    pub disk_bytes: u64,
    pub disk_written: u64,
    pub disk_unkept: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub absent_chunks: u64,
    pub bad_chunks: u64,
    pub bad_unlisted: u64,
    pub slab_bytes: u64,
    pub slab_bytes_peak: u64,
    pub memory_bytes_peak: u64,
    pub memory_promised: u64,
    pub inflight_peak: u64,
    pub uploads: u64,
    pub uploaded_bytes: u64,
    pub pinned_bytes: u64,
    pub device_bytes: u64,
    pub checked_rows: u64,
    pub stall_s: f64,
    pub stall_share: f64,
    pub upload_stall_s: f64,
    pub consumer_stall_s: f64,
    pub first_batch_s: f64,
    pub next_p50_s: f64,
    pub next_p95_s: f64,
    pub next_p99_s: f64,
    pub next_max_s: f64,
    pub decode_busy: f64,
    pub limiting_stage: i32,
    pub io: [c_char; 8],
}
impl Default for insitu_stats {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_bad_chunk {
    pub array: [c_char; 256],
    pub chunk: [c_char; 256],
    pub cause: [c_char; 256],
    pub status: i32,
}
impl Default for insitu_bad_chunk {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_shape {
    pub ndim: i32,
    pub dtype: i32,
    pub shape: [i64; 16],
    pub bytes: u64,
}
impl Default for insitu_shape {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_strings {
    pub n: u64,
    pub text: *const *const c_char,
    pub bytes: *const u64,
    pub shape: [i64; 16],
    pub ndim: i32,
}
impl Default for insitu_strings {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_date {
    pub year: i64,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
    pub microsecond: i32,
    pub day_of_year: i32,
    pub days_in_year: i32,
    pub of_year: f64,
    pub of_day: f64,
    pub text: [c_char; 48],
}
impl Default for insitu_date {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_scan_desc {
    pub api: u32,
    pub split: i32,
    pub loader: *const insitu_loader_desc,
    pub dim: *const c_char,
    pub lags: *const u64,
    pub n_lags: u64,
    pub path: *const c_char,
    pub checkpoint_s: f64,
    pub progress: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> i32>,
    pub user: *mut c_void,
}
impl Default for insitu_scan_desc {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { api: INSITU_API, ..zero }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_order_desc {
    pub api: u32,
    pub sequential: u32,
    pub units: u64,
    pub unit_rows: u64,
    pub seed: u64,
    pub epoch: u64,
    pub global_batch: u64,
    pub lanes: u64,
    pub window: u64,
    pub irregular: *const u64,
    pub n_irregular: u64,
    pub classes: *const u64,
    pub n_classes: u64,
}
impl Default for insitu_order_desc {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        let zero: Self = unsafe { std::mem::zeroed() };
        Self { api: INSITU_API, ..zero }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct insitu_order_place {
    pub unit: u64,
    pub within: u64,
    pub lane: u64,
    pub window: u64,
}
impl Default for insitu_order_place {
    fn default() -> Self {
        // Every field may be zero: numbers, addresses, functions that are optional.
        unsafe { std::mem::zeroed() }
    }
}

extern "C" {
    pub fn insitu_status_name(
        status: i32,
    ) -> *const c_char;
    pub fn insitu_version(
    ) -> *const c_char;
    pub fn insitu_drop_name(
        drop: i32,
    ) -> *const c_char;
    pub fn insitu_stage_name(
        stage: i32,
    ) -> *const c_char;
    pub fn insitu_loader_open(
        desc: *const insitu_loader_desc,
        out: *mut *mut insitu_loader,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_open_json(
        json: *const c_char,
        base: *const insitu_loader_desc,
        out: *mut *mut insitu_loader,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_close(
        loader: *mut *mut insitu_loader,
    );
    pub fn insitu_loader_cancel(
        loader: *mut insitu_loader,
    );
    pub fn insitu_loader_config(
        loader: *const insitu_loader,
    ) -> *const insitu_loader_desc;
    pub fn insitu_loader_array(
        loader: *const insitu_loader,
        i: u64,
    ) -> *const insitu_array;
    pub fn insitu_loader_norm(
        loader: *const insitu_loader,
        label: *const c_char,
        index: u64,
        mean: *mut f64,
        deviation: *mut f64,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_plan(
        loader: *const insitu_loader,
        desc: *const insitu_iter_desc,
        out: *mut insitu_plan,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_quality(
        loader: *const insitu_loader,
        desc: *const insitu_iter_desc,
        out: *mut insitu_quality,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_stats(
        loader: *const insitu_loader,
        out: *mut insitu_stats,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_bad_chunk(
        loader: *const insitu_loader,
        i: u64,
        out: *mut insitu_bad_chunk,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_read(
        loader: *mut insitu_loader,
        variable: *const insitu_variable,
        dst: *mut c_void,
        dst_bytes: u64,
        shape: *mut insitu_shape,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_read_strings(
        loader: *mut insitu_loader,
        path: *const c_char,
        out: *mut *mut insitu_strings,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_strings_free(
        strings: *mut *mut insitu_strings,
    );
    pub fn insitu_sample_dates(
        loader: *mut insitu_loader,
        samples: *const i64,
        n: u64,
        out: *mut insitu_date,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_date_from_int(
        value: i64,
        units: *const c_char,
        calendar: *const c_char,
        out: *mut insitu_date,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_date_from_double(
        value: f64,
        units: *const c_char,
        calendar: *const c_char,
        out: *mut insitu_date,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_date_from_us(
        us: i64,
        calendar: *const c_char,
        out: *mut insitu_date,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_loader_describe(
        loader: *const insitu_loader,
        json: *mut c_char,
        cap: u64,
    ) -> u64;
    pub fn insitu_manifest_save(
        loader: *const insitu_loader,
        path: *const c_char,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_scan(
        desc: *const insitu_scan_desc,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_scan_merge(
        parts: *const *const c_char,
        n: u64,
        path: *const c_char,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_open(
        loader: *mut insitu_loader,
        desc: *const insitu_iter_desc,
        out: *mut *mut insitu_iter,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_open_json(
        loader: *mut insitu_loader,
        json: *const c_char,
        base: *const insitu_iter_desc,
        out: *mut *mut insitu_iter,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_close(
        iter: *mut *mut insitu_iter,
    );
    pub fn insitu_iter_next(
        iter: *mut insitu_iter,
        timeout_ms: i64,
        out: *mut *mut insitu_batch,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_set_epoch(
        iter: *mut insitu_iter,
        epoch: u64,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_restore(
        iter: *mut insitu_iter,
        state: *const insitu_state,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_set_steps(
        iter: *mut insitu_iter,
        output: *const c_char,
        n: u64,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_skip(
        iter: *mut insitu_iter,
        first: u64,
        n: u64,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_iter_locate(
        iter: *const insitu_iter,
        epoch: u64,
        batch: u64,
        row: u64,
        index: *mut i64,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_batch_find(
        batch: *const insitu_batch,
        name: *const c_char,
    ) -> *const insitu_array;
    pub fn insitu_batch_receipt(
        batch: *const insitu_batch,
        line: *mut c_char,
        cap: u64,
    ) -> u64;
    pub fn insitu_digest_add(
        a: u64,
        b: u64,
    ) -> u64;
    pub fn insitu_batch_release(
        batch: *mut *mut insitu_batch,
    );
    pub fn insitu_batch_release_on(
        batch: *mut *mut insitu_batch,
        stream: *mut c_void,
    );
    pub fn insitu_batch_wait(
        batch: *const insitu_batch,
        stream: *mut c_void,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_batch_copy_to(
        batch: *const insitu_batch,
        array: u64,
        dst: *mut c_void,
        dst_bytes: u64,
        stream: *mut c_void,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_batch_dlpack(
        batch: *mut insitu_batch,
        array: u64,
        versioned: i32,
        stream: *mut c_void,
        managed: *mut *mut c_void,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_order_open(
        desc: *const insitu_order_desc,
        out: *mut *mut insitu_order,
        err: *mut insitu_error,
    ) -> i32;
    pub fn insitu_order_batches(
        order: *const insitu_order,
    ) -> u64;
    pub fn insitu_order_at(
        order: *const insitu_order,
        position: u64,
        out: *mut insitu_order_place,
    ) -> i32;
    pub fn insitu_order_where(
        order: *const insitu_order,
        unit: u64,
        within: u64,
        position: *mut u64,
    ) -> i32;
    pub fn insitu_order_close(
        order: *mut *mut insitu_order,
    );
}

impl insitu_error {
    /// The name of the status, and the message.
    pub fn text(&self) -> String {
        let name = unsafe { CStr::from_ptr(insitu_status_name(self.status)) };
        let bytes: Vec<u8> = self.message.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        format!("{}: {}", name.to_string_lossy(), String::from_utf8_lossy(&bytes))
    }
}
