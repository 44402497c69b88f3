! Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.
!
! insitubatch.h for Fortran 2018 (gfortran 9 or later). Types, constants and functions have the names that
! they have in C. Handles and batches are type(c_ptr); a desc has its api set, and all else zero. A text ends
! with c_null_char: insitu_loader_open_json('{...}' // c_null_char, loader=loader, err=err). What C takes as
! NULL, such as err, may be left out. For the arrays of a batch, without a copy:
!
!   call insitu_batch_view(batch, info)              type(insitu_batch), pointer: rows, epoch, after...
!   call insitu_view(batch, 'x', x, status)          real(c_float), pointer :: x(:,:,:): the first axis of C,
!                                                    rows, is the last one of Fortran; or integers, doubles
!   print *, insitu_message(err)                     the text of an error
module insitubatch
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int32_t), parameter :: INSITU_API = 7
  integer(c_int32_t), parameter :: INSITU_FOREVER = -1
  integer(c_int32_t), parameter :: INSITU_AUTO = 0
  integer(c_int32_t), parameter :: INSITU_RANK_FROM_ENV = -1
  integer(c_int32_t), parameter :: INSITU_OK = 0
  integer(c_int32_t), parameter :: INSITU_END = 1
  integer(c_int32_t), parameter :: INSITU_TIMEOUT = 2
  integer(c_int32_t), parameter :: INSITU_BUSY = 3
  integer(c_int32_t), parameter :: INSITU_CANCELLED = 4
  integer(c_int32_t), parameter :: INSITU_E_API = -1
  integer(c_int32_t), parameter :: INSITU_E_ARG = -2
  integer(c_int32_t), parameter :: INSITU_E_BUDGET = -3
  integer(c_int32_t), parameter :: INSITU_E_NOMEM = -4
  integer(c_int32_t), parameter :: INSITU_E_NOTFOUND = -5
  integer(c_int32_t), parameter :: INSITU_E_NOT_ZARR = -6
  integer(c_int32_t), parameter :: INSITU_E_JSON = -7
  integer(c_int32_t), parameter :: INSITU_E_FORMAT = -8
  integer(c_int32_t), parameter :: INSITU_E_CODEC = -9
  integer(c_int32_t), parameter :: INSITU_E_DTYPE = -10
  integer(c_int32_t), parameter :: INSITU_E_GRID = -11
  integer(c_int32_t), parameter :: INSITU_E_UNSUPPORTED = -12
  integer(c_int32_t), parameter :: INSITU_E_SHAPE = -13
  integer(c_int32_t), parameter :: INSITU_E_SPLIT = -14
  integer(c_int32_t), parameter :: INSITU_E_CORRUPT = -15
  integer(c_int32_t), parameter :: INSITU_E_ABSENT = -16
  integer(c_int32_t), parameter :: INSITU_E_IO = -17
  integer(c_int32_t), parameter :: INSITU_E_STATE = -18
  integer(c_int32_t), parameter :: INSITU_E_WRONG_THREAD = -19
  integer(c_int32_t), parameter :: INSITU_E_FORKED = -20
  integer(c_int32_t), parameter :: INSITU_E_CHECK = -21
  integer(c_int32_t), parameter :: INSITU_E_HTTP = -22
  integer(c_int32_t), parameter :: INSITU_E_AUTH = -23
  integer(c_int32_t), parameter :: INSITU_E_CHANGED = -24
  integer(c_int32_t), parameter :: INSITU_E_DEVICE = -25
  integer(c_int32_t), parameter :: INSITU_AS_STORED = 0
  integer(c_int32_t), parameter :: INSITU_I8 = 8
  integer(c_int32_t), parameter :: INSITU_I16 = 16
  integer(c_int32_t), parameter :: INSITU_I32 = 32
  integer(c_int32_t), parameter :: INSITU_I64 = 64
  integer(c_int32_t), parameter :: INSITU_U8 = 264
  integer(c_int32_t), parameter :: INSITU_U16 = 272
  integer(c_int32_t), parameter :: INSITU_U32 = 288
  integer(c_int32_t), parameter :: INSITU_U64 = 320
  integer(c_int32_t), parameter :: INSITU_F16 = 528
  integer(c_int32_t), parameter :: INSITU_F32 = 544
  integer(c_int32_t), parameter :: INSITU_F64 = 576
  integer(c_int32_t), parameter :: INSITU_BF16 = 1040
  integer(c_int32_t), parameter :: INSITU_C64 = 1344
  integer(c_int32_t), parameter :: INSITU_C128 = 1408
  integer(c_int32_t), parameter :: INSITU_BOOL = 1544
  integer(c_int32_t), parameter :: INSITU_OP_NORM = 1
  integer(c_int32_t), parameter :: INSITU_OP_SCALE = 2
  integer(c_int32_t), parameter :: INSITU_OP_SHIFT = 3
  integer(c_int32_t), parameter :: INSITU_OP_CLIP = 4
  integer(c_int32_t), parameter :: INSITU_OP_LOG1P = 5
  integer(c_int32_t), parameter :: INSITU_OP_ASINH = 6
  integer(c_int32_t), parameter :: INSITU_OP_FILL = 7
  integer(c_int32_t), parameter :: INSITU_OP_REPLACE = 8
  integer(c_int32_t), parameter :: INSITU_OP_MISSING = 9
  integer(c_int32_t), parameter :: INSITU_CF = 1
  integer(c_int32_t), parameter :: INSITU_BY_INDEX = 1
  integer(c_int32_t), parameter :: INSITU_BY_INDEX_FLOOR = 2
  integer(c_int32_t), parameter :: INSITU_BY_COORDINATE = 3
  integer(c_int32_t), parameter :: INSITU_HOST = 0
  integer(c_int32_t), parameter :: INSITU_PINNED = 1
  integer(c_int32_t), parameter :: INSITU_DEVICE = 2
  integer(c_int32_t), parameter :: INSITU_DEVICE_OR_HOST = 3
  integer(c_int32_t), parameter :: INSITU_TRAIN = 0
  integer(c_int32_t), parameter :: INSITU_VAL = 1
  integer(c_int32_t), parameter :: INSITU_TEST = 2
  integer(c_int32_t), parameter :: INSITU_ALL = 3
  integer(c_int32_t), parameter :: INSITU_IO_URING = 1
  integer(c_int32_t), parameter :: INSITU_IO_EPOLL = 2
  integer(c_int32_t), parameter :: INSITU_RAISE = 1
  integer(c_int32_t), parameter :: INSITU_FILL = 2
  integer(c_int32_t), parameter :: INSITU_RECEIPT_ANCHORS = 1
  integer(c_int32_t), parameter :: INSITU_RECEIPT_BYTES = 2
  integer(c_int32_t), parameter :: INSITU_SCATTER = 1
  integer(c_int32_t), parameter :: INSITU_GATHER = 2
  integer(c_int32_t), parameter :: INSITU_SHUFFLED = 1
  integer(c_int32_t), parameter :: INSITU_SEQUENTIAL = 2
  integer(c_int32_t), parameter :: INSITU_LOG_OFF = -1
  integer(c_int32_t), parameter :: INSITU_LOG_ERROR = 1
  integer(c_int32_t), parameter :: INSITU_LOG_WARN = 2
  integer(c_int32_t), parameter :: INSITU_LOG_INFO = 3
  integer(c_int32_t), parameter :: INSITU_LOG_DEBUG = 4
  integer(c_int32_t), parameter :: INSITU_DROP_RANGE = 0
  integer(c_int32_t), parameter :: INSITU_DROP_STRIDE = 1
  integer(c_int32_t), parameter :: INSITU_DROP_LIST = 2
  integer(c_int32_t), parameter :: INSITU_DROP_OTHER_SPLIT = 3
  integer(c_int32_t), parameter :: INSITU_DROP_EXCLUDED = 4
  integer(c_int32_t), parameter :: INSITU_DROP_GAP = 5
  integer(c_int32_t), parameter :: INSITU_DROP_NO_PARTNER = 6
  integer(c_int32_t), parameter :: INSITU_DROP_ARCHIVE_EDGE = 7
  integer(c_int32_t), parameter :: INSITU_DROP_SPLIT_EDGE = 8
  integer(c_int32_t), parameter :: INSITU_DROP_TAIL = 9
  integer(c_int32_t), parameter :: INSITU_DROPS = 10
  integer(c_int32_t), parameter :: INSITU_STAGE_NONE = 0
  integer(c_int32_t), parameter :: INSITU_STAGE_CONSUMER = 1
  integer(c_int32_t), parameter :: INSITU_STAGE_READ = 2
  integer(c_int32_t), parameter :: INSITU_STAGE_DECODE = 3
  integer(c_int32_t), parameter :: INSITU_STAGE_UPLOAD = 4
  integer(c_int32_t), parameter :: INSITU_BAD_CHUNKS = 256
  integer(c_int32_t), parameter :: INSITU_ORDER_VERSION = 1

  type, bind(C) :: insitu_error
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: sys_errno = 0
    integer(c_int32_t) :: http_status = 0
    integer(c_int32_t) :: retryable = 0
    character(kind=c_char) :: message(1008) = c_null_char
  end type

  type, bind(C) :: insitu_slice
    type(c_ptr) :: dim = c_null_ptr
    integer(c_int32_t) :: axis = 0
    integer(c_int64_t) :: start = 0
    integer(c_int64_t) :: stop = 0
  end type

  type, bind(C) :: insitu_op
    integer(c_int32_t) :: kind = 0
    real(c_double) :: a = 0
    real(c_double) :: b = 0
    type(c_ptr) :: dim = c_null_ptr
    type(c_ptr) :: as = c_null_ptr
    type(c_ptr) :: bs = c_null_ptr
    integer(c_int64_t) :: n = 0
  end type

  type, bind(C) :: insitu_variable
    type(c_ptr) :: label = c_null_ptr
    type(c_ptr) :: path = c_null_ptr
    integer(c_int64_t) :: offset = 0
    type(c_ptr) :: steps = c_null_ptr
    integer(c_int64_t) :: n_steps = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int32_t) :: decode = 0
    type(c_ptr) :: slices = c_null_ptr
    integer(c_int64_t) :: n_slices = 0
    type(c_ptr) :: select = c_null_ptr
    type(c_ptr) :: into = c_null_ptr
    integer(c_int64_t) :: halo = 0
    integer(c_int32_t) :: map = 0
    integer(c_int64_t) :: rate = 0
    integer(c_int32_t) :: place = 0
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: fixed = 0
    type(c_ptr) :: ops = c_null_ptr
    integer(c_int64_t) :: n_ops = 0
    type(c_ptr) :: mask = c_null_ptr
  end type

  type, bind(C) :: insitu_split_range
    real(c_double) :: fraction = 0
    integer(c_int64_t) :: start = 0
    integer(c_int64_t) :: stop = 0
    type(c_ptr) :: from = c_null_ptr
    type(c_ptr) :: to = c_null_ptr
  end type

  type, bind(C) :: insitu_axis
    type(c_ptr) :: dim = c_null_ptr
    integer(c_int32_t) :: axis = 0
    integer(c_int64_t) :: start = 0
    integer(c_int64_t) :: stop = 0
    type(c_ptr) :: from = c_null_ptr
    type(c_ptr) :: to = c_null_ptr
    integer(c_int64_t) :: stride = 0
    integer(c_int64_t) :: patch = 0
    integer(c_int32_t) :: edge = 0
  end type

  type, bind(C) :: insitu_object
    type(c_ptr) :: key = c_null_ptr
    type(c_ptr) :: bytes = c_null_ptr
    integer(c_int64_t) :: n = 0
  end type

  type, bind(C) :: insitu_codec_place
    integer(c_int32_t) :: format = 0
    integer(c_int32_t) :: elements = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int32_t) :: stored = 0
  end type

  type, bind(C) :: insitu_codec
    type(c_ptr) :: name = c_null_ptr
    type(c_funptr) :: decode = c_null_funptr
    type(c_ptr) :: user = c_null_ptr
    integer(c_int64_t) :: max_encoded = 0
    type(c_funptr) :: open = c_null_funptr
    type(c_funptr) :: close = c_null_funptr
  end type

  type, bind(C) :: insitu_option
    type(c_ptr) :: key = c_null_ptr
    type(c_ptr) :: value = c_null_ptr
  end type

  type, bind(C) :: insitu_output
    type(c_ptr) :: label = c_null_ptr
    integer(c_int32_t) :: dtype = 0
    integer(c_int32_t) :: ndim = 0
    type(c_ptr) :: shape = c_null_ptr
    integer(c_int32_t) :: place = 0
    integer(c_int32_t) :: device = 0
  end type

  type, bind(C) :: insitu_loader_desc
    integer(c_int32_t) :: api = INSITU_API
    type(c_ptr) :: url = c_null_ptr
    type(c_ptr) :: objects = c_null_ptr
    integer(c_int64_t) :: n_objects = 0
    type(c_ptr) :: options = c_null_ptr
    integer(c_int64_t) :: n_options = 0
    type(c_ptr) :: virtual_prefixes = c_null_ptr
    integer(c_int64_t) :: n_virtual_prefixes = 0
    type(c_ptr) :: cache_dir = c_null_ptr
    integer(c_int64_t) :: cache_budget = 0
    integer(c_int32_t) :: cache_decoded = 0
    integer(c_int32_t) :: offline = 0
    integer(c_int64_t) :: cache_memory = 0
    type(c_ptr) :: codecs = c_null_ptr
    integer(c_int64_t) :: n_codecs = 0
    type(c_ptr) :: variables = c_null_ptr
    integer(c_int64_t) :: n_variables = 0
    type(c_ptr) :: sample_dim = c_null_ptr
    integer(c_int32_t) :: sample_axis = 0
    type(c_ptr) :: axes = c_null_ptr
    integer(c_int64_t) :: n_axes = 0
    integer(c_int32_t) :: split_axis = 0
    integer(c_int64_t) :: patches = 0
    type(c_ptr) :: samples = c_null_ptr
    integer(c_int64_t) :: n_samples = 0
    integer(c_int64_t) :: batch_size = 0
    integer(c_int64_t) :: seed = 0
    integer(c_int32_t) :: rank = 0
    integer(c_int32_t) :: world = 0
    integer(c_int64_t) :: block_chunks = 0
    integer(c_int64_t) :: unit_chunks = 0
    integer(c_int64_t) :: lanes = 0
    integer(c_int64_t) :: sample_start = 0
    integer(c_int64_t) :: sample_stop = 0
    type(c_ptr) :: sample_from = c_null_ptr
    type(c_ptr) :: sample_to = c_null_ptr
    type(c_ptr) :: time_path = c_null_ptr
    integer(c_int32_t) :: coordinates = 0
    type(insitu_split_range) :: split(3)
    integer(c_int32_t) :: split_shuffled = 0
    integer(c_int32_t) :: split_spill = 0
    integer(c_int64_t) :: split_gap = 0
    type(c_ptr) :: manifest = c_null_ptr
    type(c_ptr) :: stats = c_null_ptr
    integer(c_int32_t) :: on_bad_chunk = 0
    integer(c_int32_t) :: on_absent_chunk = 0
    integer(c_int64_t) :: prefetch_depth = 0
    integer(c_int32_t) :: assembly = 0
    integer(c_int64_t) :: max_inflight = 0
    integer(c_int64_t) :: decode_threads = 0
    integer(c_int64_t) :: memory_budget = 0
    integer(c_int64_t) :: device_budget = 0
    integer(c_int32_t) :: io = 0
    integer(c_int32_t) :: inline_io = 0
    integer(c_int32_t) :: plan_only = 0
    integer(c_int32_t) :: check = 0
    type(c_ptr) :: trace = c_null_ptr
    integer(c_int32_t) :: receipts = 0
    integer(c_int32_t) :: hold_epoch = 0
    integer(c_int32_t) :: log_level = 0
    type(c_funptr) :: log = c_null_funptr
    type(c_ptr) :: log_user = c_null_ptr
    type(c_funptr) :: alloc = c_null_funptr
    type(c_funptr) :: release = c_null_funptr
    type(c_ptr) :: alloc_user = c_null_ptr
    type(c_funptr) :: on_batch = c_null_funptr
    type(c_ptr) :: on_batch_user = c_null_ptr
    integer(c_int64_t) :: on_batch_threads = 0
    type(c_ptr) :: outputs = c_null_ptr
    integer(c_int64_t) :: n_outputs = 0
  end type

  type, bind(C) :: insitu_iter_desc
    integer(c_int32_t) :: api = INSITU_API
    integer(c_int32_t) :: split = 0
    integer(c_int32_t) :: order = 0
    integer(c_int32_t) :: max_held = 0
    integer(c_int64_t) :: epoch = 0
    type(c_ptr) :: stream = c_null_ptr
  end type

  type, bind(C) :: insitu_state
    integer(c_int8_t) :: bytes(128) = 0
  end type

  type, bind(C) :: insitu_array
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: bytes = 0
    integer(c_int64_t) :: row_bytes = 0
    type(c_ptr) :: shape = c_null_ptr
    type(c_ptr) :: strides = c_null_ptr
    integer(c_int32_t) :: ndim = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int32_t) :: place = 0
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: fixed = 0
    type(c_ptr) :: channels = c_null_ptr
  end type

  type, bind(C) :: insitu_batch
    integer(c_int64_t) :: epoch = 0
    integer(c_int64_t) :: index = 0
    integer(c_int64_t) :: rows = 0
    integer(c_int64_t) :: n_arrays = 0
    type(c_ptr) :: arrays = c_null_ptr
    type(c_ptr) :: sample_indices = c_null_ptr
    type(c_ptr) :: axis_indices = c_null_ptr
    integer(c_int64_t) :: n_axes = 0
    type(c_ptr) :: coordinates = c_null_ptr
    type(c_ptr) :: time_us = c_null_ptr
    type(c_ptr) :: calendar = c_null_ptr
    type(c_ptr) :: bad_rows = c_null_ptr
    integer(c_int64_t) :: anchors_digest = 0
    integer(c_int64_t) :: epoch_digest = 0
    integer(c_int64_t) :: bytes_digest = 0
    type(insitu_state) :: after
  end type

  type, bind(C) :: insitu_plan
    integer(c_int32_t) :: order_version = 0
    integer(c_int32_t) :: estimated = 0
    integer(c_int64_t) :: samples = 0
    integer(c_int64_t) :: batches = 0
    integer(c_int64_t) :: rows = 0
    integer(c_int64_t) :: space = 0
    integer(c_int64_t) :: dropped(10) = 0
    integer(c_int64_t) :: units = 0
    integer(c_int64_t) :: unit_rows = 0
    integer(c_int64_t) :: lanes = 0
    integer(c_int64_t) :: window = 0
    integer(c_int64_t) :: span = 0
    integer(c_int64_t) :: reads = 0
    integer(c_int64_t) :: distinct = 0
    integer(c_int64_t) :: read_bytes = 0
    integer(c_int64_t) :: wanted = 0
    real(c_double) :: amplification = 0
    real(c_double) :: decode_amplification = 0
    real(c_double) :: dedup = 0
    integer(c_int32_t) :: assembly = 0
    integer(c_int64_t) :: slabs = 0
    integer(c_int64_t) :: slab_bytes = 0
    integer(c_int64_t) :: kept_bytes = 0
    integer(c_int64_t) :: scatter_bytes = 0
    integer(c_int64_t) :: gather_bytes = 0
    integer(c_int64_t) :: device_bytes = 0
    integer(c_int64_t) :: table_bytes = 0
    integer(c_int64_t) :: fixed_bytes = 0
    integer(c_int64_t) :: inflight_bytes = 0
    integer(c_int64_t) :: cache_bytes = 0
    real(c_double) :: hit_rate = 0
    real(c_double) :: late_hit_rate = 0
    real(c_double) :: disk_hit_rate = 0
    real(c_double) :: variance_ratio = 0
  end type

  type, bind(C) :: insitu_quality
    real(c_double) :: variance_ratio = 0
    real(c_double) :: gap_score = 0
    integer(c_int64_t) :: adjacent = 0
    integer(c_int64_t) :: rows = 0
  end type

  type, bind(C) :: insitu_stats
    integer(c_int64_t) :: batches = 0
    integer(c_int64_t) :: rows = 0
    integer(c_int64_t) :: skipped = 0
    integer(c_int64_t) :: reads = 0
    integer(c_int64_t) :: rereads = 0
    integer(c_int64_t) :: requests = 0
    integer(c_int64_t) :: index_reads = 0
    integer(c_int64_t) :: index_bytes = 0
    integer(c_int64_t) :: bytes_read = 0
    integer(c_int64_t) :: bytes_decoded = 0
    integer(c_int64_t) :: http_requests = 0
    integer(c_int64_t) :: retries = 0
    integer(c_int64_t) :: throttled = 0
    integer(c_int64_t) :: hedges = 0
    integer(c_int64_t) :: bytes_fetched = 0
    integer(c_int64_t) :: disk_hits = 0
    integer(c_int64_t) :: disk_misses = 0
    integer(c_int64_t) :: disk_bytes = 0
    integer(c_int64_t) :: disk_written = 0
    integer(c_int64_t) :: disk_unkept = 0
    integer(c_int64_t) :: cache_hits = 0
    integer(c_int64_t) :: cache_misses = 0
    integer(c_int64_t) :: absent_chunks = 0
    integer(c_int64_t) :: bad_chunks = 0
    integer(c_int64_t) :: bad_unlisted = 0
    integer(c_int64_t) :: slab_bytes = 0
    integer(c_int64_t) :: slab_bytes_peak = 0
    integer(c_int64_t) :: memory_bytes_peak = 0
    integer(c_int64_t) :: memory_promised = 0
    integer(c_int64_t) :: inflight_peak = 0
    integer(c_int64_t) :: uploads = 0
    integer(c_int64_t) :: uploaded_bytes = 0
    integer(c_int64_t) :: pinned_bytes = 0
    integer(c_int64_t) :: device_bytes = 0
    integer(c_int64_t) :: checked_rows = 0
    real(c_double) :: stall_s = 0
    real(c_double) :: stall_share = 0
    real(c_double) :: upload_stall_s = 0
    real(c_double) :: consumer_stall_s = 0
    real(c_double) :: first_batch_s = 0
    real(c_double) :: next_p50_s = 0
    real(c_double) :: next_p95_s = 0
    real(c_double) :: next_p99_s = 0
    real(c_double) :: next_max_s = 0
    real(c_double) :: decode_busy = 0
    integer(c_int32_t) :: limiting_stage = 0
    character(kind=c_char) :: io(8) = c_null_char
  end type

  type, bind(C) :: insitu_bad_chunk
    character(kind=c_char) :: array(256) = c_null_char
    character(kind=c_char) :: chunk(256) = c_null_char
    character(kind=c_char) :: cause(256) = c_null_char
    integer(c_int32_t) :: status = 0
  end type

  type, bind(C) :: insitu_shape
    integer(c_int32_t) :: ndim = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int64_t) :: shape(16) = 0
    integer(c_int64_t) :: bytes = 0
  end type

  type, bind(C) :: insitu_strings
    integer(c_int64_t) :: n = 0
    type(c_ptr) :: text = c_null_ptr
    type(c_ptr) :: bytes = c_null_ptr
    integer(c_int64_t) :: shape(16) = 0
    integer(c_int32_t) :: ndim = 0
  end type

  type, bind(C) :: insitu_date
    integer(c_int64_t) :: year = 0
    integer(c_int32_t) :: month = 0
    integer(c_int32_t) :: day = 0
    integer(c_int32_t) :: hour = 0
    integer(c_int32_t) :: minute = 0
    integer(c_int32_t) :: second = 0
    integer(c_int32_t) :: microsecond = 0
    integer(c_int32_t) :: day_of_year = 0
    integer(c_int32_t) :: days_in_year = 0
    real(c_double) :: of_year = 0
    real(c_double) :: of_day = 0
    character(kind=c_char) :: text(48) = c_null_char
  end type

  type, bind(C) :: insitu_scan_desc
    integer(c_int32_t) :: api = INSITU_API
    integer(c_int32_t) :: split = 0
    type(c_ptr) :: loader = c_null_ptr
    type(c_ptr) :: dim = c_null_ptr
    type(c_ptr) :: lags = c_null_ptr
    integer(c_int64_t) :: n_lags = 0
    type(c_ptr) :: path = c_null_ptr
    real(c_double) :: checkpoint_s = 0
    type(c_funptr) :: progress = c_null_funptr
    type(c_ptr) :: user = c_null_ptr
  end type

  type, bind(C) :: insitu_order_desc
    integer(c_int32_t) :: api = INSITU_API
    integer(c_int32_t) :: sequential = 0
    integer(c_int64_t) :: units = 0
    integer(c_int64_t) :: unit_rows = 0
    integer(c_int64_t) :: seed = 0
    integer(c_int64_t) :: epoch = 0
    integer(c_int64_t) :: global_batch = 0
    integer(c_int64_t) :: lanes = 0
    integer(c_int64_t) :: window = 0
    type(c_ptr) :: irregular = c_null_ptr
    integer(c_int64_t) :: n_irregular = 0
    type(c_ptr) :: classes = c_null_ptr
    integer(c_int64_t) :: n_classes = 0
  end type

  type, bind(C) :: insitu_order_place
    integer(c_int64_t) :: unit = 0
    integer(c_int64_t) :: within = 0
    integer(c_int64_t) :: lane = 0
    integer(c_int64_t) :: window = 0
  end type

  interface
    function insitu_status_name(status) result(returned) bind(C, name="insitu_status_name")
      import
      integer(c_int32_t), value :: status
      type(c_ptr) :: returned
    end function
    function insitu_version() result(returned) bind(C, name="insitu_version")
      import
      type(c_ptr) :: returned
    end function
    function insitu_drop_name(drop) result(returned) bind(C, name="insitu_drop_name")
      import
      integer(c_int32_t), value :: drop
      type(c_ptr) :: returned
    end function
    function insitu_stage_name(stage) result(returned) bind(C, name="insitu_stage_name")
      import
      integer(c_int32_t), value :: stage
      type(c_ptr) :: returned
    end function
    function insitu_loader_open(desc, out, err) result(returned) bind(C, name="insitu_loader_open")
      import
      type(insitu_loader_desc), intent(in), optional :: desc
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_open_json(json, base, out, err) result(returned) bind(C, &
      name="insitu_loader_open_json")
      import
      character(kind=c_char), intent(in), optional :: json(*)
      type(insitu_loader_desc), intent(in), optional :: base
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    subroutine insitu_loader_close(loader) bind(C, name="insitu_loader_close")
      import
      type(c_ptr), intent(inout) :: loader
    end subroutine
    subroutine insitu_loader_cancel(loader) bind(C, name="insitu_loader_cancel")
      import
      type(c_ptr), value :: loader
    end subroutine
    function insitu_loader_config(loader) result(returned) bind(C, name="insitu_loader_config")
      import
      type(c_ptr), value :: loader
      type(c_ptr) :: returned
    end function
    function insitu_loader_array(loader, i) result(returned) bind(C, name="insitu_loader_array")
      import
      type(c_ptr), value :: loader
      integer(c_int64_t), value :: i
      type(c_ptr) :: returned
    end function
    function insitu_loader_norm(loader, label, index, mean, deviation, &
      err) result(returned) bind(C, name="insitu_loader_norm")
      import
      type(c_ptr), value :: loader
      character(kind=c_char), intent(in), optional :: label(*)
      integer(c_int64_t), value :: index
      real(c_double), intent(inout) :: mean
      real(c_double), intent(inout) :: deviation
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_plan(loader, desc, out, err) result(returned) bind(C, &
      name="insitu_loader_plan")
      import
      type(c_ptr), value :: loader
      type(insitu_iter_desc), intent(in), optional :: desc
      type(insitu_plan), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_quality(loader, desc, out, err) result(returned) bind(C, &
      name="insitu_loader_quality")
      import
      type(c_ptr), value :: loader
      type(insitu_iter_desc), intent(in), optional :: desc
      type(insitu_quality), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_stats(loader, out, err) result(returned) bind(C, &
      name="insitu_loader_stats")
      import
      type(c_ptr), value :: loader
      type(insitu_stats), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_bad_chunk(loader, i, out, err) result(returned) bind(C, &
      name="insitu_loader_bad_chunk")
      import
      type(c_ptr), value :: loader
      integer(c_int64_t), value :: i
      type(insitu_bad_chunk), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_read(loader, variable, dst, dst_bytes, shape, err) result(returned) bind(C, &
      name="insitu_read")
      import
      type(c_ptr), value :: loader
      type(insitu_variable), intent(in), optional :: variable
      type(c_ptr), value :: dst
      integer(c_int64_t), value :: dst_bytes
      type(insitu_shape), intent(inout), optional :: shape
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_read_strings(loader, path, out, err) result(returned) bind(C, &
      name="insitu_read_strings")
      import
      type(c_ptr), value :: loader
      character(kind=c_char), intent(in), optional :: path(*)
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    subroutine insitu_strings_free(strings) bind(C, name="insitu_strings_free")
      import
      type(c_ptr), intent(inout) :: strings
    end subroutine
    function insitu_sample_dates(loader, samples, n, out, err) result(returned) bind(C, &
      name="insitu_sample_dates")
      import
      type(c_ptr), value :: loader
      integer(c_int64_t), intent(in) :: samples(*)
      integer(c_int64_t), value :: n
      type(insitu_date), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_date_from_int(value, units, calendar, out, err) result(returned) bind(C, &
      name="insitu_date_from_int")
      import
      integer(c_int64_t), value :: value
      character(kind=c_char), intent(in), optional :: units(*)
      character(kind=c_char), intent(in), optional :: calendar(*)
      type(insitu_date), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_date_from_double(value, units, calendar, out, err) result(returned) bind(C, &
      name="insitu_date_from_double")
      import
      real(c_double), value :: value
      character(kind=c_char), intent(in), optional :: units(*)
      character(kind=c_char), intent(in), optional :: calendar(*)
      type(insitu_date), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_date_from_us(us, calendar, out, err) result(returned) bind(C, &
      name="insitu_date_from_us")
      import
      integer(c_int64_t), value :: us
      character(kind=c_char), intent(in), optional :: calendar(*)
      type(insitu_date), intent(inout), optional :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_loader_describe(loader, json, cap) result(returned) bind(C, &
      name="insitu_loader_describe")
      import
      type(c_ptr), value :: loader
      character(kind=c_char), intent(inout), optional :: json(*)
      integer(c_int64_t), value :: cap
      integer(c_int64_t) :: returned
    end function
    function insitu_manifest_save(loader, path, err) result(returned) bind(C, &
      name="insitu_manifest_save")
      import
      type(c_ptr), value :: loader
      character(kind=c_char), intent(in), optional :: path(*)
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_scan(desc, err) result(returned) bind(C, name="insitu_scan")
      import
      type(insitu_scan_desc), intent(in), optional :: desc
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_scan_merge(parts, n, path, err) result(returned) bind(C, &
      name="insitu_scan_merge")
      import
      type(c_ptr), intent(in) :: parts(*)
      integer(c_int64_t), value :: n
      character(kind=c_char), intent(in), optional :: path(*)
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_open(loader, desc, out, err) result(returned) bind(C, &
      name="insitu_iter_open")
      import
      type(c_ptr), value :: loader
      type(insitu_iter_desc), intent(in), optional :: desc
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_open_json(loader, json, base, out, err) result(returned) bind(C, &
      name="insitu_iter_open_json")
      import
      type(c_ptr), value :: loader
      character(kind=c_char), intent(in), optional :: json(*)
      type(insitu_iter_desc), intent(in), optional :: base
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    subroutine insitu_iter_close(iter) bind(C, name="insitu_iter_close")
      import
      type(c_ptr), intent(inout) :: iter
    end subroutine
    function insitu_iter_next(iter, timeout_ms, out, err) result(returned) bind(C, &
      name="insitu_iter_next")
      import
      type(c_ptr), value :: iter
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_set_epoch(iter, epoch, err) result(returned) bind(C, &
      name="insitu_iter_set_epoch")
      import
      type(c_ptr), value :: iter
      integer(c_int64_t), value :: epoch
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_restore(iter, state, err) result(returned) bind(C, &
      name="insitu_iter_restore")
      import
      type(c_ptr), value :: iter
      type(insitu_state), intent(in), optional :: state
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_set_steps(iter, output, n, err) result(returned) bind(C, &
      name="insitu_iter_set_steps")
      import
      type(c_ptr), value :: iter
      character(kind=c_char), intent(in), optional :: output(*)
      integer(c_int64_t), value :: n
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_skip(iter, first, n, err) result(returned) bind(C, name="insitu_iter_skip")
      import
      type(c_ptr), value :: iter
      integer(c_int64_t), value :: first
      integer(c_int64_t), value :: n
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_iter_locate(iter, epoch, batch, row, index, err) result(returned) bind(C, &
      name="insitu_iter_locate")
      import
      type(c_ptr), value :: iter
      integer(c_int64_t), value :: epoch
      integer(c_int64_t), value :: batch
      integer(c_int64_t), value :: row
      integer(c_int64_t), intent(inout) :: index
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_batch_find(batch, name) result(returned) bind(C, name="insitu_batch_find")
      import
      type(c_ptr), value :: batch
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr) :: returned
    end function
    function insitu_batch_receipt(batch, line, cap) result(returned) bind(C, &
      name="insitu_batch_receipt")
      import
      type(c_ptr), value :: batch
      character(kind=c_char), intent(inout), optional :: line(*)
      integer(c_int64_t), value :: cap
      integer(c_int64_t) :: returned
    end function
    function insitu_digest_add(a, b) result(returned) bind(C, name="insitu_digest_add")
      import
      integer(c_int64_t), value :: a
      integer(c_int64_t), value :: b
      integer(c_int64_t) :: returned
    end function
    subroutine insitu_batch_release(batch) bind(C, name="insitu_batch_release")
      import
      type(c_ptr), intent(inout) :: batch
    end subroutine
    subroutine insitu_batch_release_on(batch, stream) bind(C, name="insitu_batch_release_on")
      import
      type(c_ptr), intent(inout) :: batch
      type(c_ptr), value :: stream
    end subroutine
    function insitu_batch_wait(batch, stream, err) result(returned) bind(C, &
      name="insitu_batch_wait")
      import
      type(c_ptr), value :: batch
      type(c_ptr), value :: stream
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_batch_copy_to(batch, array, dst, dst_bytes, stream, &
      err) result(returned) bind(C, name="insitu_batch_copy_to")
      import
      type(c_ptr), value :: batch
      integer(c_int64_t), value :: array
      type(c_ptr), value :: dst
      integer(c_int64_t), value :: dst_bytes
      type(c_ptr), value :: stream
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_batch_dlpack(batch, array, versioned, stream, managed, &
      err) result(returned) bind(C, name="insitu_batch_dlpack")
      import
      type(c_ptr), value :: batch
      integer(c_int64_t), value :: array
      integer(c_int32_t), value :: versioned
      type(c_ptr), value :: stream
      type(c_ptr), intent(inout) :: managed
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_order_open(desc, out, err) result(returned) bind(C, name="insitu_order_open")
      import
      type(insitu_order_desc), intent(in), optional :: desc
      type(c_ptr), intent(inout) :: out
      type(insitu_error), intent(inout), optional :: err
      integer(c_int32_t) :: returned
    end function
    function insitu_order_batches(order) result(returned) bind(C, name="insitu_order_batches")
      import
      type(c_ptr), value :: order
      integer(c_int64_t) :: returned
    end function
    function insitu_order_at(order, position, out) result(returned) bind(C, name="insitu_order_at")
      import
      type(c_ptr), value :: order
      integer(c_int64_t), value :: position
      type(insitu_order_place), intent(inout), optional :: out
      integer(c_int32_t) :: returned
    end function
    function insitu_order_where(order, unit, within, position) result(returned) bind(C, &
      name="insitu_order_where")
      import
      type(c_ptr), value :: order
      integer(c_int64_t), value :: unit
      integer(c_int64_t), value :: within
      integer(c_int64_t), intent(inout) :: position
      integer(c_int32_t) :: returned
    end function
    subroutine insitu_order_close(order) bind(C, name="insitu_order_close")
      import
      type(c_ptr), intent(inout) :: order
    end subroutine
  end interface

  ! Unsigned integers, float16 and bfloat16 are shown as the signed integers of their size.
  interface insitu_view
    module procedure insitu_view_f32_1, insitu_view_f32_2, insitu_view_f32_3, insitu_view_f32_4, &
      insitu_view_f32_5, insitu_view_f32_6, insitu_view_f32_7
    module procedure insitu_named_f32_1, insitu_named_f32_2, insitu_named_f32_3, &
      insitu_named_f32_4, insitu_named_f32_5, insitu_named_f32_6, insitu_named_f32_7
    module procedure insitu_view_f64_1, insitu_view_f64_2, insitu_view_f64_3, insitu_view_f64_4, &
      insitu_view_f64_5, insitu_view_f64_6, insitu_view_f64_7
    module procedure insitu_named_f64_1, insitu_named_f64_2, insitu_named_f64_3, &
      insitu_named_f64_4, insitu_named_f64_5, insitu_named_f64_6, insitu_named_f64_7
    module procedure insitu_view_i8_1, insitu_view_i8_2, insitu_view_i8_3, insitu_view_i8_4, &
      insitu_view_i8_5, insitu_view_i8_6, insitu_view_i8_7
    module procedure insitu_named_i8_1, insitu_named_i8_2, insitu_named_i8_3, insitu_named_i8_4, &
      insitu_named_i8_5, insitu_named_i8_6, insitu_named_i8_7
    module procedure insitu_view_i16_1, insitu_view_i16_2, insitu_view_i16_3, insitu_view_i16_4, &
      insitu_view_i16_5, insitu_view_i16_6, insitu_view_i16_7
    module procedure insitu_named_i16_1, insitu_named_i16_2, insitu_named_i16_3, &
      insitu_named_i16_4, insitu_named_i16_5, insitu_named_i16_6, insitu_named_i16_7
    module procedure insitu_view_i32_1, insitu_view_i32_2, insitu_view_i32_3, insitu_view_i32_4, &
      insitu_view_i32_5, insitu_view_i32_6, insitu_view_i32_7
    module procedure insitu_named_i32_1, insitu_named_i32_2, insitu_named_i32_3, &
      insitu_named_i32_4, insitu_named_i32_5, insitu_named_i32_6, insitu_named_i32_7
    module procedure insitu_view_i64_1, insitu_view_i64_2, insitu_view_i64_3, insitu_view_i64_4, &
      insitu_view_i64_5, insitu_view_i64_6, insitu_view_i64_7
    module procedure insitu_named_i64_1, insitu_named_i64_2, insitu_named_i64_3, &
      insitu_named_i64_4, insitu_named_i64_5, insitu_named_i64_6, insitu_named_i64_7
  end interface

contains

  ! A text of C's, without its NUL; '' for NULL.
  function insitu_text(text) result(returned)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: returned
    character(kind=c_char), pointer :: letters(:)
    integer(c_size_t) :: n, i
    interface
      function strlen(text) result(n) bind(C, name="strlen")
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: n
      end function
    end interface
    returned = ''
    if (.not. c_associated(text)) return
    n = strlen(text)
    call c_f_pointer(text, letters, [n])
    deallocate(returned)
    allocate(character(n) :: returned)
    do i = 1, n
      returned(i:i) = letters(i)
    end do
  end function

  ! The status of an error by its name, and the message: "INSITU_E_NOTFOUND: ...".
  function insitu_message(err) result(returned)
    type(insitu_error), intent(in) :: err
    character(:), allocatable :: returned
    integer :: i
    returned = insitu_text(insitu_status_name(err%status)) // ': '
    do i = 1, size(err%message)
      if (err%message(i) == c_null_char) exit
      returned = returned // err%message(i)
    end do
  end function

  ! The fields of a batch, which the handle points to; gone with the batch.
  subroutine insitu_batch_view(batch, info)
    type(c_ptr), intent(in) :: batch
    type(insitu_batch), pointer, intent(out) :: info
    call c_f_pointer(batch, info)
  end subroutine

  ! Array i of a batch, from 0; not associated: there is none.
  subroutine insitu_batch_array(batch, i, array)
    type(c_ptr), intent(in) :: batch
    integer(c_int64_t), intent(in) :: i
    type(insitu_array), pointer, intent(out) :: array
    type(insitu_batch), pointer :: info
    type(insitu_array), pointer :: arrays(:)
    nullify(array)
    call c_f_pointer(batch, info)
    if (i < 0 .or. i >= info%n_arrays) return
    call c_f_pointer(info%arrays, arrays, [info%n_arrays])
    array => arrays(i + 1)
  end subroutine

  ! The sample of each row; with several axes, the index on each axis: (n_axes, rows).
  subroutine insitu_batch_samples(batch, samples)
    type(c_ptr), intent(in) :: batch
    integer(c_int64_t), pointer, intent(out) :: samples(:,:)
    type(insitu_batch), pointer :: info
    call c_f_pointer(batch, info)
    call c_f_pointer(info%axis_indices, samples, [info%n_axes, info%rows])
  end subroutine

  ! The lengths of an array's axes in Fortran's order, the last axis of C first. INSITU_E_DTYPE: it
  ! has elements of another type than `codes`; INSITU_E_SHAPE: it has more or fewer axes;
  ! INSITU_E_DEVICE: it lies in the memory of a device.
  subroutine insitu_view_shape(array, codes, lengths, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), intent(in) :: codes(:)
    integer(c_int64_t), intent(out) :: lengths(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t), pointer :: shape(:)
    lengths = 0
    status = INSITU_E_DTYPE
    if (.not. any(codes == array%dtype)) return
    status = INSITU_E_SHAPE
    if (size(lengths) /= array%ndim) return
    status = INSITU_E_DEVICE
    if (array%place == INSITU_DEVICE) return
    call c_f_pointer(array%shape, shape, [array%ndim])
    lengths = shape(array%ndim:1:-1)
    status = INSITU_OK
  end subroutine

  subroutine insitu_view_f32_1(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_2(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_3(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_4(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_5(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_6(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f32_7(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f32_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_float), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_1(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_2(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_3(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_4(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_5(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_6(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_f64_7(array, view, status)
    type(insitu_array), intent(in) :: array
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_F64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_f64_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    real(c_double), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_1(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_2(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_3(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_4(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_5(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_6(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i8_7(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I8, INSITU_U8, INSITU_BOOL], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i8_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int8_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_1(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_2(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_3(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_4(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_5(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_6(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i16_7(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16], lengths, &
      status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i16_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int16_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_1(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_2(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_3(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_4(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_5(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_6(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i32_7(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I32, INSITU_U32], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i32_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int32_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_1(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(1)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_1(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_2(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(2)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_2(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_3(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(3)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_3(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_4(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(4)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_4(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_5(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(5)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_5(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_6(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(6)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_6(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

  subroutine insitu_view_i64_7(array, view, status)
    type(insitu_array), intent(in) :: array
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t) :: lengths(7)
    nullify(view)
    call insitu_view_shape(array, [INSITU_I64, INSITU_U64], lengths, status)
    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)
  end subroutine

  subroutine insitu_named_i64_7(batch, name, view, status)
    type(c_ptr), intent(in) :: batch
    character(*), intent(in) :: name
    integer(c_int64_t), pointer, intent(out) :: view(:,:,:,:,:,:,:)
    integer(c_int32_t), intent(out) :: status
    type(insitu_array), pointer :: array
    nullify(view)
    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)
    status = INSITU_E_NOTFOUND
    if (associated(array)) call insitu_view(array, view, status)
  end subroutine

end module insitubatch
