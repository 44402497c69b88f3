/* insitu index: HDF5 files, NetCDF-4 among them, through the HDF5 library (1.10.5 or later).
 *
 * Where chunks lie: H5Dget_chunk_info goes through the index of chunks from its begin for each of
 * them, which takes minutes for a hundred thousand. H5Dread_chunk looks a chunk up in the index,
 * whatever its kind. So files are opened through a driver of our own, which reads metadata, and of
 * a chunk's bytes notes only where they were to be read from. */
#ifdef INSITU_TOOL_HDF5
#define H5_USE_110_API
#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

/* ---- the driver ---- */

/* Bytes of one request for metadata in a store: groups, B-trees and heaps lie beside each other. */
enum { HDF5_LEAST = 64 << 10 };

struct hdf5_driver {
  H5FD_t pub;
  struct bytes *b;
  haddr_t eoa;
};
static struct bytes *hdf5_bytes; /* of the file that is scanned */
/* While `on`, reads of raw data are noted, not done. One file is scanned at a time. */
static struct {
  bool on;
  unsigned reads;
  uint64_t at, n;
} hdf5_probe;

static H5FD_t *hdf5_driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t most) {
  (void)flags, (void)fapl, (void)most;
  /* the library opens the files of links by their names, and has no other file from here */
  struct hdf5_driver *d = strcmp(name, hdf5_bytes->name) ? NULL : calloc(1, sizeof *d);
  if (!d) return NULL;
  d->b = hdf5_bytes;
  return &d->pub;
}
static herr_t hdf5_driver_close(H5FD_t *f) {
  free(f);
  return 0;
}
static herr_t hdf5_driver_query(const H5FD_t *f, unsigned long *flags) {
  (void)f;
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA;
  return 0;
}
static haddr_t hdf5_driver_get_eoa(const H5FD_t *f, H5FD_mem_t type) {
  (void)type;
  return ((const struct hdf5_driver *)(const void *)f)->eoa;
}
static herr_t hdf5_driver_set_eoa(H5FD_t *f, H5FD_mem_t type, haddr_t at) {
  (void)type;
  ((struct hdf5_driver *)(void *)f)->eoa = at;
  return 0;
}
static haddr_t hdf5_driver_get_eof(const H5FD_t *f, H5FD_mem_t type) {
  (void)type;
  return (haddr_t)((const struct hdf5_driver *)(const void *)f)->b->size;
}
static herr_t hdf5_driver_read(
    H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, void *to) {
  const struct hdf5_driver *d = (const struct hdf5_driver *)(const void *)f;
  (void)dxpl;
  if (hdf5_probe.on && type == H5FD_MEM_DRAW) {
    hdf5_probe.reads++;
    hdf5_probe.at = at;
    hdf5_probe.n = n;
    return 0;
  }
  uint64_t have = at < d->b->size ? insitu__base_min(n, d->b->size - at) : 0;
  memset((char *)to + have, 0, (size_t)(n - have)); /* behind the end, as HDF5's own drivers do */
  return bytes_read(d->b, to, have, at) ? 0 : -1;
}
static herr_t hdf5_driver_write(
    H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, const void *from) {
  (void)f, (void)type, (void)dxpl, (void)at, (void)n, (void)from;
  return -1;
}
static hid_t hdf5_access(void) {
  static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)601,
#endif
    .name = "insitu",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = hdf5_driver_open,
    .close = hdf5_driver_close,
    .query = hdf5_driver_query,
    .get_eoa = hdf5_driver_get_eoa,
    .set_eoa = hdf5_driver_set_eoa,
    .get_eof = hdf5_driver_get_eof,
    .read = hdf5_driver_read,
    .write = hdf5_driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY
  };
  static hid_t id = -1;
  if (id < 0) id = H5FDregister(&driver);
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (id < 0 || access < 0 || H5Pset_driver(access, id, NULL) < 0) return -1;
  return access;
}

/* ---- what failed ---- */

static herr_t hdf5_first_error(unsigned n, const H5E_error2_t *e, void *to) {
  (void)n;
  if (e->desc && e->desc[0]) snprintf(to, 200, "%s", e->desc);
  return 0;
}
/* The innermost of the library's errors. */
static const char *hdf5_why(void) {
  static char why[200];
  snprintf(why, sizeof why, "the HDF5 library says no more");
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, hdf5_first_error, why);
  return why;
}

struct hdf5_scan {
  struct virtual_archive *v;
  struct virtual_file *f;
  struct bytes *b;
  uint64_t target;
  char *dimension[1024]; /* NetCDF-4: names of dimensions by their numbers */
  haddr_t *seen;         /* growing array: objects that were scanned: links may make rings */
  int code;
};

/* ---- attributes ---- */

/* 'i', 'u', 'f' for numbers that are stored as machines have them, 'S' for text of fixed length;
 * 0: others. */
static char hdf5_kind(hid_t type) {
  size_t size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
  case H5T_INTEGER:
    if (size != 1 && size != 2 && size != 4 && size != 8) return 0;
    if (H5Tget_precision(type) != 8 * size) return 0;
    return H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i';
  case H5T_FLOAT: {
    static const struct {
      size_t size, exponent, mantissa;
    } ieee[] = {{2, 5, 10}, {4, 8, 23}, {8, 11, 52}};
    size_t sign, epos, esize, mpos, msize;
    if (H5Tget_fields(type, &sign, &epos, &esize, &mpos, &msize) < 0) return 0;
    for (size_t i = 0; i < TOOL_COUNT(ieee); i++)
      if (size == ieee[i].size && esize == ieee[i].exponent && msize == ieee[i].mantissa &&
          mpos == 0 && epos == msize && sign == 8 * size - 1)
        return 'f';
    return 0;
  }
  case H5T_STRING: return H5Tis_variable_str(type) > 0 ? 0 : 'S';
  default: return 0;
  }
}
static bool hdf5_big(hid_t type) {
  return H5Tget_order(type) == H5T_ORDER_BE;
}
static const char *const hdf5_hidden[] = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST",
    "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties",
    "_NetCDF4Defined"};

/* One string of variable length. */
static void hdf5_print_string(struct insitu__text_buffer *b, const char *s) {
  if (s) index_print_text(b, s, strlen(s));
  else insitu__text_buffer_printf(b, "\"\"");
}
static bool hdf5_print_strings(struct insitu__text_buffer *b, const char *name, hid_t attribute,
    hid_t type, uint64_t n, bool list) {
  hid_t memory = H5Tget_native_type(type, H5T_DIR_ASCEND), space = H5Aget_space(attribute);
  char **strings = tool_alloc(n + 1, sizeof *strings);
  bool ok = memory >= 0 && H5Aread(attribute, memory, strings) >= 0;
  if (ok) {
    index_print_key(b, name, strlen(name));
    if (list) insitu__text_buffer_printf(b, "[");
    for (uint64_t i = 0; i < n; i++) {
      insitu__text_buffer_printf(b, i ? "," : "");
      hdf5_print_string(b, strings[i]);
    }
    if (list) insitu__text_buffer_printf(b, "]");
    H5Dvlen_reclaim(memory, space, H5P_DEFAULT, strings);
  }
  insitu__mem_free(strings);
  H5Tclose(memory);
  H5Sclose(space);
  return ok;
}
static bool hdf5_print_fixed(struct insitu__text_buffer *b, const char *name, hid_t attribute,
    hid_t type, uint64_t n, bool list) {
  unsigned size = (unsigned)H5Tget_size(type);
  char kind = hdf5_kind(type);
  unsigned char *bytes = tool_alloc(n * size + 1, 1);
  bool ok = H5Aread(attribute, type, bytes) >= 0;
  if (ok) index_print_key(b, name, strlen(name));
  if (ok && kind != 'S') index_print_list(b, kind, size, bytes, hdf5_big(type), n, list);
  if (ok && kind == 'S' && list) insitu__text_buffer_printf(b, "[");
  for (uint64_t i = 0; ok && kind == 'S' && i < n; i++) {
    insitu__text_buffer_printf(b, i ? "," : "");
    index_print_text(b, bytes + i * size, size);
  }
  if (ok && kind == 'S' && list) insitu__text_buffer_printf(b, "]");
  insitu__mem_free(bytes);
  return ok;
}
static herr_t hdf5_print_attribute(hid_t at, const char *name, const H5A_info_t *info, void *to) {
  struct insitu__text_buffer *b = to;
  (void)info;
  for (size_t i = 0; i < TOOL_COUNT(hdf5_hidden); i++)
    if (!strcmp(name, hdf5_hidden[i])) return 0;
  hid_t attribute = H5Aopen(at, name, H5P_DEFAULT);
  if (attribute < 0) return 0;
  hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
  hssize_t n = H5Sget_simple_extent_npoints(space);
  /* NetCDF writes one number as a list of one */
  bool list = H5Sget_simple_extent_ndims(space) > 0 && n != 1;
  uint64_t bytes;
  if (n >= 0 && insitu__base_mul((uint64_t)n, H5Tget_size(type), &bytes) &&
      bytes <= INDEX_MAX_ATTRIBUTE && H5Sget_simple_extent_type(space) != H5S_NULL) {
    if (H5Tis_variable_str(type) > 0)
      hdf5_print_strings(b, name, attribute, type, (uint64_t)n, list);
    else if (hdf5_kind(type)) hdf5_print_fixed(b, name, attribute, type, (uint64_t)n, list);
  }
  H5Tclose(type);
  H5Sclose(space);
  H5Aclose(attribute);
  return 0;
}
static char *hdf5_attributes(hid_t at) {
  struct insitu__text_buffer b = {0};
  insitu__text_buffer_printf(&b, "{");
  H5Aiterate2(at, H5_INDEX_NAME, H5_ITER_INC, NULL, hdf5_print_attribute, &b);
  insitu__text_buffer_printf(&b, "}");
  return virtual_take(&b);
}

/* ---- dimensions ---- */

/* The numbers of an attribute of at most `most` integers; how many. */
static unsigned hdf5_integers(hid_t at, const char *name, int *out, unsigned most) {
  if (H5Aexists(at, name) <= 0) return 0;
  hid_t attribute = H5Aopen(at, name, H5P_DEFAULT), space = H5Aget_space(attribute);
  hssize_t n = H5Sget_simple_extent_npoints(space);
  bool ok = n > 0 && n <= (hssize_t)most && H5Aread(attribute, H5T_NATIVE_INT, out) >= 0;
  H5Sclose(space);
  H5Aclose(attribute);
  return ok ? (unsigned)n : 0;
}
/* Whether a dataset is a dimension's scale; the name that it gives itself. */
static bool hdf5_scale(hid_t at, char *name, size_t cap) {
  char class[20] = "";
  name[0] = 0;
  if (H5Aexists(at, "CLASS") <= 0) return false;
  const struct {
    const char *attribute;
    char *to;
    size_t cap;
  } text[] = {{"CLASS", class, sizeof class}, {"NAME", name, cap}};
  for (int i = 0; i < 2; i++) {
    if (H5Aexists(at, text[i].attribute) <= 0) continue;
    hid_t a = H5Aopen(at, text[i].attribute, H5P_DEFAULT), type = H5Aget_type(a);
    if (hdf5_kind(type) == 'S' && H5Tget_size(type) < text[i].cap) H5Aread(a, type, text[i].to);
    text[i].to[text[i].cap - 1] = 0;
    H5Tclose(type);
    H5Aclose(a);
  }
  return !strcmp(class, "DIMENSION_SCALE");
}
/* Names of axes from the scales that the dataset refers to. */
static void hdf5_scales(hid_t at, struct virtual_array *a) {
  if (H5Aexists(at, "DIMENSION_LIST") <= 0) return;
  hid_t attribute = H5Aopen(at, "DIMENSION_LIST", H5P_DEFAULT), space = H5Aget_space(attribute),
        type = H5Aget_type(attribute), reference = H5Tcopy(H5T_STD_REF_OBJ),
        memory = H5Tvlen_create(reference);
  hvl_t list[INSITU__MAX_DIMS] = {{0}};
  bool ok = H5Sget_simple_extent_npoints(space) == (hssize_t)a->ndim &&
            H5Tget_class(type) == H5T_VLEN && H5Aread(attribute, memory, list) >= 0;
  for (unsigned k = 0; ok && k < a->ndim; k++) {
    char path[INSITU__MAX_DIM_NAME * 4];
    if (!list[k].len || a->dim[k]) continue;
    hid_t scale = H5Rdereference2(at, H5P_DEFAULT, H5R_OBJECT, list[k].p);
    ssize_t n = scale < 0 ? -1 : H5Iget_name(scale, path, sizeof path);
    if (n > 0 && n < (ssize_t)sizeof path) a->dim[k] = tool_copy(index_last_name(path));
    if (scale >= 0) H5Oclose(scale);
  }
  if (ok) H5Dvlen_reclaim(memory, space, H5P_DEFAULT, list);
  H5Tclose(memory);
  H5Tclose(reference);
  H5Tclose(type);
  H5Sclose(space);
  H5Aclose(attribute);
}
static void hdf5_dimensions(const struct hdf5_scan *s, hid_t at, struct virtual_array *a) {
  int number[INSITU__MAX_DIMS];
  char name[80];
  if (hdf5_integers(at, "_Netcdf4Coordinates", number, INSITU__MAX_DIMS) == a->ndim)
    for (unsigned k = 0; k < a->ndim; k++)
      if (number[k] >= 0 && number[k] < (int)TOOL_COUNT(s->dimension) && s->dimension[number[k]])
        a->dim[k] = tool_copy(s->dimension[number[k]]);
  hdf5_scales(at, a);
  if (a->ndim == 1 && !a->dim[0] && hdf5_scale(at, name, sizeof name))
    a->dim[0] = tool_copy(index_last_name(a->path));
}

/* ---- types and fill values ---- */

/* h5py's bool: an enumeration of FALSE and TRUE in a byte. */
static bool hdf5_is_bool(hid_t type) {
  char *name[2] = {NULL, NULL};
  bool yes = H5Tget_class(type) == H5T_ENUM && H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2;
  for (unsigned i = 0; yes && i < 2; i++) name[i] = H5Tget_member_name(type, i);
  yes = yes && name[0] && name[1] && !strcmp(name[0], "FALSE") && !strcmp(name[1], "TRUE");
  for (unsigned i = 0; i < 2; i++) H5free_memory(name[i]);
  return yes;
}
/* h5py's complex numbers: a compound of two floats, r and i. The float's type, or -1. */
static hid_t hdf5_complex(hid_t type) {
  if (H5Tget_class(type) != H5T_COMPOUND || H5Tget_nmembers(type) != 2) return -1;
  char *r = H5Tget_member_name(type, 0), *i = H5Tget_member_name(type, 1);
  bool named = r && i && !strcmp(r, "r") && !strcmp(i, "i");
  H5free_memory(r);
  H5free_memory(i);
  hid_t real = named ? H5Tget_member_type(type, 0) : -1,
        imaginary = named ? H5Tget_member_type(type, 1) : -1;
  bool ok = named && H5Tequal(real, imaginary) > 0 && hdf5_kind(real) == 'f' &&
            H5Tget_size(type) == 2 * H5Tget_size(real) && H5Tget_size(real) >= 4;
  if (imaginary >= 0) H5Tclose(imaginary);
  if (!ok && real >= 0) H5Tclose(real);
  return ok ? real : -1;
}
/* Sets the array's type; NULL, or why that cannot be. */
static const char *hdf5_set_type(struct virtual_array *a, hid_t type) {
  size_t size = H5Tget_size(type);
  char kind = hdf5_kind(type);
  if (kind == 'S' && size > INSITU__MAX_ELEMENT)
    return "its strings are longer than INSITU__MAX_ELEMENT";
  if (kind == 'S') index_set_text(a, size);
  else if (kind) index_set_type(a, kind, (unsigned)size, hdf5_big(type));
  if (kind) return NULL;
  if (hdf5_is_bool(type)) {
    index_set_type(a, 'u', 1, false);
    insitu__mem_free(a->type);
    a->type = tool_copy("\"bool\"");
    return NULL;
  }
  if (H5Tget_class(type) == H5T_ENUM) {
    hid_t base = H5Tget_super(type);
    const char *why = hdf5_set_type(a, base);
    H5Tclose(base);
    return why;
  }
  hid_t real = hdf5_complex(type);
  if (real >= 0) {
    index_set_type(a, 'f', (unsigned)size / 2, hdf5_big(real));
    insitu__mem_free(a->type);
    a->type = tool_copy(size == 8 ? "\"complex64\"" : "\"complex128\"");
    a->itemsize = (uint32_t)size;
    H5Tclose(real);
    return NULL;
  }
  switch (H5Tget_class(type)) {
  case H5T_STRING: return "strings of variable length lie in a heap, which no chunk holds";
  case H5T_COMPOUND: return "compound types are not supported";
  case H5T_VLEN: return "elements of variable length lie in a heap, which no chunk holds";
  case H5T_REFERENCE: return "references are no data";
  default:
    return "its type is not supported (integers, IEEE floats, complex, bool, fixed strings are)";
  }
}
/* What a chunk holds that was never written: the file's fill value, else zero. */
static void hdf5_set_fill(struct virtual_array *a, hid_t create, hid_t type) {
  unsigned char value[16] = {0};
  H5D_fill_value_t has = H5D_FILL_VALUE_UNDEFINED;
  struct insitu__text_buffer b = {0};
  char kind = index_kind(a);
  bool text = a->type[0] == '{', number = a->itemsize <= 16 && !text;
  if (number && H5Pfill_value_defined(create, &has) >= 0 && has == H5D_FILL_VALUE_USER_DEFINED)
    if (H5Pget_fill_value(create, type, value) < 0) memset(value, 0, sizeof value);
  if (text) insitu__text_buffer_printf(&b, "\"\"");
  else if (kind) index_print(&b, kind, a->itemsize, value, a->big);
  else if (a->scalar == 1) insitu__text_buffer_printf(&b, value[0] ? "true" : "false");
  else index_print_list(&b, 'f', a->scalar, value, a->big, 2, true);
  insitu__mem_free(a->fill);
  a->fill = virtual_take(&b);
}

/* ---- filters ---- */

/* registered by The HDF Group */
enum {
  HDF5_BZIP2 = 307,
  HDF5_BLOSC = 32001,
  HDF5_ZSTD = 32015,
  HDF5_BITGROOM = 32022,
  HDF5_BITROUND = 32023
};

static const char *hdf5_filter_name(int id) {
  static const struct {
    int id;
    const char *name;
  } known[] = {{4, "szip"}, {5, "nbit"}, {6, "scaleoffset"}, {305, "lzo"}, {32000, "lzf"},
      {32004, "lz4 (in HDF5's own framing)"}, {32008, "bitshuffle"}, {32013, "zfp"}, {32017, "sz"},
      {32018, "fpzip"}, {32019, "jpeg"}, {32024, "sz3"}, {32026, "blosc2"}, {32028, "jpeg-ls"},
      {32029, "b3d"}, {32030, "ffmpeg"}};
  for (size_t i = 0; i < TOOL_COUNT(known); i++)
    if (known[i].id == id) return known[i].name;
  return "unknown";
}
/* A filter as a codec of Zarr v3. False: none decodes it. */
static bool hdf5_print_filter(
    struct insitu__text_buffer *b, int id, const unsigned *value, size_t n, uint32_t size) {
  static const char *const compressor[] = {"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"};
  static const char *const shuffle[] = {"noshuffle", "shuffle", "bitshuffle"};
  switch (id) {
  case H5Z_FILTER_DEFLATE:
    insitu__text_buffer_printf(
        b, ",{\"name\":\"numcodecs.zlib\",\"configuration\":{\"level\":%u}}", n ? value[0] : 1);
    return true;
  case H5Z_FILTER_SHUFFLE:
    insitu__text_buffer_printf(b,
        ",{\"name\":\"numcodecs.shuffle\",\"configuration\":{\"elementsize\":%u}}",
        n && value[0] ? value[0] : size);
    return true;
  case H5Z_FILTER_FLETCHER32:
    insitu__text_buffer_printf(b, ",{\"name\":\"numcodecs.fletcher32\",\"configuration\":{}}");
    return true;
  case HDF5_BZIP2:
    insitu__text_buffer_printf(
        b, ",{\"name\":\"numcodecs.bz2\",\"configuration\":{\"level\":%u}}", n ? value[0] : 9);
    return true;
  case HDF5_BLOSC:
    insitu__text_buffer_printf(b,
        ",{\"name\":\"blosc\",\"configuration\":{\"typesize\":%u,\"cname\":\"%s\",\"clevel\":%u,"
        "\"shuffle\":\"%s\",\"blocksize\":0}}",
        n > 2 && value[2] ? value[2] : size, compressor[n > 6 && value[6] < 6 ? value[6] : 0],
        n > 4 ? value[4] : 5, shuffle[n > 5 && value[5] < 3 ? value[5] : 1]);
    return true;
  case HDF5_ZSTD:
    insitu__text_buffer_printf(b,
        ",{\"name\":\"zstd\",\"configuration\":{\"level\":%d,\"checksum\":false}}",
        n ? (int)value[0] : 3);
    return true;
  /* they rounded the values when these were written, and decode to what they find */
  case HDF5_BITGROOM:
  case HDF5_BITROUND: return true;
  default: return false;
  }
}
/* The chain of filters as codecs. False after a message. */
static bool hdf5_set_codecs(struct hdf5_scan *s, struct virtual_array *a, hid_t create) {
  struct insitu__text_buffer b = {0};
  int n = H5Pget_nfilters(create);
  for (int i = 0; i < n; i++) {
    unsigned flags, value[16], config;
    size_t count = TOOL_COUNT(value);
    char name[64] = "";
    int id =
        (int)H5Pget_filter2(create, (unsigned)i, &flags, &count, value, sizeof name, name, &config);
    count = (size_t)insitu__base_min(count, TOOL_COUNT(value));
    if (id >= 0 && hdf5_print_filter(&b, id, value, count, a->itemsize)) continue;
    insitu__text_buffer_free(&b);
    virtual_leave_out(s->v, s->f, a->path,
        "its filter %d (%s) is not decoded here; deflate, shuffle, fletcher32, bzip2, blosc and "
        "zstd are: rewrite it with these (h5repack -f SHUF -f GZIP=4 OLD NEW%s)",
        id, id < 0 ? "damaged" : hdf5_filter_name(id),
        id < H5Z_FILTER_RESERVED ? "" : "; HDF5_PLUGIN_PATH needs the filter's plugin");
    return false;
  }
  if (b.n) a->codecs = virtual_take(&b);
  return true;
}

/* ---- chunks ---- */

struct hdf5_dataset {
  hid_t id, type, create, space;
  hsize_t chunk[INSITU__MAX_DIMS];
  uint64_t found;      /* chunks that are stored */
  unsigned char *room; /* for a chunk: only chunks that are encoded anew are read into it */
  uint64_t cap;
};

/* Reads part of a dataset, in the file's own byte order, into a whole chunk. */
static bool hdf5_read_chunk(const struct hdf5_dataset *d, const struct virtual_array *a,
    const hsize_t *at, unsigned char *to) {
  hsize_t count[INSITU__MAX_DIMS], zero[INSITU__MAX_DIMS] = {0}, whole[INSITU__MAX_DIMS];
  for (unsigned k = 0; k < a->ndim; k++) {
    whole[k] = d->chunk[k];
    count[k] = insitu__base_min(d->chunk[k], a->shape[k] - at[k]);
  }
  hid_t memory = H5Screate_simple((int)a->ndim, whole, NULL);
  bool ok = H5Sselect_hyperslab(d->space, H5S_SELECT_SET, at, NULL, count, NULL) >= 0 &&
            H5Sselect_hyperslab(memory, H5S_SELECT_SET, zero, NULL, count, NULL) >= 0 &&
            H5Dread(d->id, d->type, memory, d->space, H5P_DEFAULT, to) >= 0;
  H5Sclose(memory);
  return ok;
}
/* Shuffles n bytes of elements of `size` bytes; what is left over stays at the end. */
static void hdf5_shuffle(unsigned char *to, const unsigned char *from, uint64_t n, uint64_t size) {
  uint64_t count = n / size;
  for (uint64_t i = 0; i < count; i++)
    for (uint64_t k = 0; k < size; k++) to[k * count + i] = from[i * size + k];
  memcpy(to + count * size, from + count * size, n - count * size);
}
/* n bytes at *x through one filter, into *y of `room` bytes; the two are exchanged then. */
static bool hdf5_apply(int id, const unsigned *value, uint32_t item, uint64_t *n, uint64_t room,
    unsigned char **x, unsigned char **y) {
  unsigned char *from = *x, *to = *y;
  *x = to;
  *y = from;
  switch (id) {
  case H5Z_FILTER_SHUFFLE: hdf5_shuffle(to, from, *n, value[0] ? value[0] : item); return true;
#ifdef INSITU_WITH_ZLIB
  case H5Z_FILTER_DEFLATE: {
    uLong deflated = (uLong)room;
    if (compress2(to, &deflated, from, (uLong)*n, 1) != Z_OK) return false;
    *n = deflated;
    return true;
  }
#endif
  case H5Z_FILTER_FLETCHER32:
    memcpy(to, from, *n);
    index_store(to + *n, insitu__comp_fletcher32(from, *n), 4, false);
    *n += 4;
    return true;
#ifdef INSITU_WITH_BZIP2
  case HDF5_BZIP2: {
    unsigned got = (unsigned)room;
    if (BZ2_bzBuffToBuffCompress((char *)to, &got, (char *)from, (unsigned)*n, 1, 0, 0))
      return false;
    *n = got;
    return true;
  }
#endif
  case HDF5_ZSTD: *n = ZSTD_compress(to, room, from, *n, 1); return !ZSTD_isError(*n);
  case HDF5_BLOSC: { /* a copy behind a header: version, format, flags, type size, sizes */
    static const unsigned char head[4] = {2, 1, 2, 1};
    memcpy(to, head, sizeof head);
    index_store(to + 4, *n, 4, false);
    index_store(to + 8, *n, 4, false);
    index_store(to + 12, *n + 16, 4, false);
    memcpy(to + 16, from, *n);
    *n += 16;
    return true;
  }
  default: return id == HDF5_BITGROOM || id == HDF5_BITROUND;
  }
}
/* A chunk that skips some of its filters, as those do that did not shrink: it is encoded anew with
 * all of them, and goes into the index. False: it cannot be read, or a filter cannot encode. */
static bool hdf5_encode(struct hdf5_scan *s, struct hdf5_dataset *d, const struct virtual_array *a,
    const hsize_t *at, struct virtual_ref *ref) {
  uint64_t n = a->itemsize;
  for (unsigned k = 0; k < a->ndim; k++) n *= d->chunk[k];
  uint64_t room = n + n / 50 + (64 << 10); /* what any of these may add, twice */
  unsigned char *x = tool_alloc(room, 1), *y = tool_alloc(room, 1);
  bool ok = hdf5_read_chunk(d, a, at, x);
  for (int i = 0; ok && i < H5Pget_nfilters(d->create); i++) {
    unsigned flags, value[16] = {0}, config;
    size_t count = TOOL_COUNT(value);
    char name[8];
    int id = (int)H5Pget_filter2(
        d->create, (unsigned)i, &flags, &count, value, sizeof name, name, &config);
    ok = hdf5_apply(id, value, a->itemsize, &n, room, &x, &y);
  }
  if (ok) *ref = virtual_inline(s->v, x, n);
  insitu__mem_free(x);
  insitu__mem_free(y);
  return ok;
}
/* Where one chunk lies. NULL, or what is wrong with it. */
static const char *hdf5_chunk(struct hdf5_scan *s, struct hdf5_dataset *d, struct virtual_array *a,
    const hsize_t *at, bool partial, struct virtual_ref *ref) {
  hsize_t size = 0;
  uint32_t mask = 0;
  *ref = virtual_ref(0, 0, VIRTUAL_ABSENT);
  /* fails for a chunk that was never written, too: hdf5_chunks counts those */
  if (H5Dget_chunk_storage_size(d->id, at, &size) < 0 || !size) return NULL;
  d->found++;
  if (size > d->cap) {
    insitu__mem_free(d->room);
    d->cap = size;
    d->room = tool_alloc(size, 1);
  }
  hdf5_probe.on = true;
  hdf5_probe.reads = 0;
  herr_t status = H5Dread_chunk(d->id, H5P_DEFAULT, at, &mask, d->room);
  hdf5_probe.on = false;
  if (s->b->err.status < 0) return s->b->err.message;
  if (status < 0) return hdf5_why();
  if (hdf5_probe.reads != 1 || hdf5_probe.n != size)
    return "the library reads it in several pieces";
  uint64_t end, bytes = s->v->target[s->target].size;
  if (!insitu__base_add(hdf5_probe.at, size, &end) || end > bytes)
    return "it ends behind the file, which is cut off: fetch it again";
  if ((mask || partial) && H5Pget_nfilters(d->create) > 0)
    return hdf5_encode(s, d, a, at, ref) ? NULL : "it skips a filter, and cannot be encoded anew";
  *ref = virtual_ref(hdf5_probe.at, size, s->target);
  return NULL;
}
/* All chunks of a dataset. False after a message. */
static bool hdf5_chunks(struct hdf5_scan *s, struct hdf5_dataset *d, struct virtual_array *a) {
  uint64_t grid[INSITU__MAX_DIMS], total;
  hsize_t at[INSITU__MAX_DIMS];
  unsigned options = 0;
  virtual_grid(a, grid);
  if (!virtual_grid_product(grid, a->ndim, &total)) {
    virtual_leave_out(s->v, s->f, a->path, "it has more than VIRTUAL_MAX_REFS chunks");
    return false;
  }
  H5Pget_chunk_opts(d->create, &options);
  H5Sselect_all(d->space);
  a->kind = VIRTUAL_REFS;
  a->n_refs = total;
  a->ref = tool_alloc(total + 1, sizeof *a->ref);
  tool_progress_begin(total, "chunks");
  for (uint64_t i = 0; i < total; i++) {
    uint64_t rest = i;
    bool edge = false;
    for (unsigned k = a->ndim; k-- > 0; rest /= grid[k]) {
      at[k] = rest % grid[k] * d->chunk[k];
      edge = edge || at[k] + d->chunk[k] > a->shape[k];
    }
    bool partial = edge && (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    const char *why = hdf5_chunk(s, d, a, at, partial, &a->ref[i]);
    tool_progress(i + 1);
    if (!why && s->b->err.status >= 0) continue;
    if (s->b->err.status >= 0)
      virtual_leave_out(s->v, s->f, a->path, "chunk %" PRIu64 ": %s", i, why);
    tool_progress_end();
    return false;
  }
  tool_progress_end();
  hsize_t stored = 0;
  if (H5Dget_num_chunks(d->id, d->space, &stored) >= 0 && stored == d->found) return true;
  virtual_leave_out(s->v, s->f, a->path,
      "%" PRIu64 " of its chunks were found, and %" PRIu64 " are stored; the file is damaged",
      d->found, (uint64_t)stored);
  return false;
}

/* ---- datasets ---- */

/* All of it, decoded, in the file's byte order. False: a filter is not at hand. */
static bool hdf5_read_values(struct hdf5_dataset *d, struct virtual_array *a) {
  uint64_t n = virtual_bytes(a);
  unsigned char *values = tool_alloc(n + 1, 1);
  if (n && H5Dread(d->id, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    insitu__mem_free(values);
    return false;
  }
  index_set_values(a, values, n);
  return true;
}
/* Contiguous data: rows; where nothing was written, one chunk that is absent. */
static bool hdf5_contiguous(struct hdf5_scan *s, struct hdf5_dataset *d, struct virtual_array *a) {
  haddr_t at = H5Dget_offset(d->id);
  uint64_t rows = a->ndim ? insitu__base_max(1, a->shape[0]) : 1, bytes = virtual_bytes(a), end;
  H5D_space_status_t written = H5D_SPACE_STATUS_NOT_ALLOCATED;
  if (H5Dget_space_status(d->id, &written) < 0) return false;
  if (written == H5D_SPACE_STATUS_NOT_ALLOCATED || at == HADDR_UNDEF) {
    a->kind = VIRTUAL_REFS;
    a->n_refs = bytes != 0;
    a->ref = tool_alloc(1, sizeof *a->ref);
    a->ref[0] = virtual_ref(0, 0, VIRTUAL_ABSENT);
    return true;
  }
  if (!insitu__base_add(at, bytes, &end) || end > s->v->target[s->target].size) {
    virtual_leave_out(
        s->v, s->f, a->path, "it ends behind the file, which is cut off: fetch it again");
    return false;
  }
  a->kind = VIRTUAL_RAW;
  a->target = s->target;
  a->offset = at;
  a->stride = bytes / rows;
  return !index_is_small(a) || hdf5_read_values(d, a);
}
static bool hdf5_layout(struct hdf5_scan *s, struct hdf5_dataset *d, struct virtual_array *a) {
  for (unsigned k = 0; k < a->ndim; k++) a->chunk[k] = insitu__base_max(1, a->shape[k]);
  H5D_layout_t layout = H5Pget_layout(d->create);
  if (layout == H5D_COMPACT) return hdf5_read_values(d, a);
  if (layout == H5D_CONTIGUOUS && H5Pget_external_count(d->create) > 0) {
    virtual_leave_out(
        s->v, s->f, a->path, "its data lie in external files; h5repack brings them in");
    return false;
  }
  if (layout == H5D_CONTIGUOUS) return hdf5_contiguous(s, d, a);
  if (layout != H5D_CHUNKED) {
    virtual_leave_out(s->v, s->f, a->path,
        "it is a virtual dataset over other files; index those, joined along an axis");
    return false;
  }
  if (H5Pget_chunk(d->create, (int)a->ndim, d->chunk) != (int)a->ndim) return false;
  if (index_is_small(a) && hdf5_read_values(d, a)) return true;
  for (unsigned k = 0; k < a->ndim; k++) a->chunk[k] = d->chunk[k];
  return hdf5_set_codecs(s, a, d->create) && hdf5_chunks(s, d, a);
}
/* Characters of NetCDF-4, whose last axis is their length, become strings. */
static void hdf5_join_characters(struct virtual_array *a) {
  unsigned last = a->ndim - 1;
  if (!a->ndim || a->type[0] != '{' || a->itemsize != 1 || !a->dim[last]) return;
  uint64_t n = a->shape[last];
  if (a->chunk[last] != n || !n || n > INSITU__MAX_ELEMENT || index_is_coordinate(a)) return;
  index_set_text(a, n);
  insitu__mem_free(a->dim[last]);
  a->dim[last] = NULL;
  a->ndim--;
}
static bool hdf5_describe(struct hdf5_scan *s, struct hdf5_dataset *d, struct virtual_array *a) {
  hsize_t shape[H5S_MAX_RANK];
  int ndim = H5Sget_simple_extent_ndims(d->space);
  if (ndim > INSITU__MAX_DIMS || H5Sget_simple_extent_type(d->space) == H5S_NULL) {
    virtual_leave_out(s->v, s->f, a->path,
        ndim > 0 ? "it has more axes than INSITU__MAX_DIMS" : "it has no values at all");
    return false;
  }
  H5Sget_simple_extent_dims(d->space, shape, NULL);
  a->ndim = (unsigned)ndim;
  for (unsigned k = 0; k < a->ndim; k++) a->shape[k] = shape[k];
  const char *why = hdf5_set_type(a, d->type);
  if (!why && virtual_bytes(a) > INT64_MAX) why = "it has 2^63 bytes or more";
  if (why) {
    virtual_leave_out(s->v, s->f, a->path, "%s", why);
    return false;
  }
  hdf5_dimensions(s, d->id, a);
  hdf5_set_fill(a, d->create, d->type);
  a->attributes = hdf5_attributes(d->id);
  if (!hdf5_layout(s, d, a)) return false;
  hdf5_join_characters(a);
  return true;
}
static void hdf5_add_dataset(struct hdf5_scan *s, hid_t id, const char *path) {
  char name[120];
  int number;
  bool scale = hdf5_scale(id, name, sizeof name);
  if (scale && hdf5_integers(id, "_Netcdf4Dimid", &number, 1) == 1 && number < 0) return;
  if (scale && !strncmp(name, "This is a netCDF dimension but not a netCDF variable", 52)) return;
  struct hdf5_dataset d = {.id = id,
      .type = H5Dget_type(id),
      .create = H5Dget_create_plist(id),
      .space = H5Dget_space(id)};
  struct virtual_array *a = virtual_add_array(s->f, path);
  uint64_t before = s->v->left_out;
  if (!hdf5_describe(s, &d, a)) {
    if (s->v->left_out == before && s->b->err.status >= 0)
      virtual_leave_out(s->v, s->f, path, "%s", hdf5_why());
    virtual_drop_last(s->f);
  }
  insitu__mem_free(d.room);
  H5Tclose(d.type);
  H5Pclose(d.create);
  H5Sclose(d.space);
}

/* ---- the tree ---- */

/* Whether a group was visited: links may make a ring. */
static bool hdf5_seen(struct hdf5_scan *s, hid_t id) {
  H5O_info_t info;
  if (H5Oget_info2(id, &info, H5O_INFO_BASIC) < 0) return true;
  for (uint64_t i = 0; i < INSITU__ARRAY_LEN(s->seen); i++)
    if (s->seen[i] == info.addr) return true;
  if (!INSITU__ARRAY_PUSH(s->seen, info.addr)) tool_no_memory();
  return false;
}
struct hdf5_visit {
  struct hdf5_scan *scan;
  const char *path;
  bool dimensions; /* the first time only these are looked at */
  unsigned depth;
};
/* Of a dataset that is a dimension of NetCDF-4, its name under its number. */
static void hdf5_note_dimension(struct hdf5_scan *s, hid_t id, const char *path) {
  int number;
  char name[80]; /* variables of one axis have the number of theirs, too */
  if (!hdf5_scale(id, name, sizeof name)) return;
  if (hdf5_integers(id, "_Netcdf4Dimid", &number, 1) != 1) return;
  if (number < 0 || number >= (int)TOOL_COUNT(s->dimension) || s->dimension[number]) return;
  s->dimension[number] = tool_copy(index_last_name(path));
}
/* One link of a group: called once to note dimensions, then to describe datasets. */
static herr_t hdf5_link(hid_t group, const char *name, const H5L_info_t *link, void *to) {
  enum { DEEPEST = 32 };
  struct hdf5_visit *v = to;
  struct hdf5_scan *s = v->scan;
  char path[INSITU__MAX_KEY];
  int n = snprintf(path, sizeof path, "%s%s%s", v->path, v->path[0] ? "/" : "", name);
  if (link->type != H5L_TYPE_HARD) {
    if (!v->dimensions)
      virtual_leave_out(s->v, s->f, path, "it is a link by name; index the file that it names");
    return 0;
  }
  if (n >= INSITU__MAX_KEY / 2 || v->depth > DEEPEST ||
      INSITU__ARRAY_LEN(s->f->array) >= VIRTUAL_MAX_ARRAYS) {
    s->code = tool_fail("%s: more groups within groups, longer names or more arrays than are "
                        "supported, at '%.200s'",
        s->f->name, path);
    return -1;
  }
  hid_t id = s->b->err.status < 0 ? -1 : H5Oopen(group, name, H5P_DEFAULT);
  if (s->b->err.status < 0) { /* reading failed, which is no fault of the file's */
    if (id >= 0) H5Oclose(id);
    return -1;
  }
  if (id < 0) {
    if (!v->dimensions)
      virtual_leave_out(s->v, s->f, path,
          "%s; it is damaged, or written by a newer HDF5 library than this one (%d.%d.%d)",
          hdf5_why(), H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    return 0;
  }
  H5I_type_t type = H5Iget_type(id);
  if (type == H5I_DATASET && v->dimensions) hdf5_note_dimension(s, id, path);
  if (type == H5I_DATASET && !v->dimensions) hdf5_add_dataset(s, id, path);
  if (type == H5I_GROUP && !hdf5_seen(s, id)) {
    struct hdf5_visit inner = {s, path, v->dimensions, v->depth + 1};
    if (!v->dimensions) virtual_add_group(s->f, path, hdf5_attributes(id));
    H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, NULL, hdf5_link, &inner);
  }
  H5Oclose(id);
  return s->code == TOOL_OK ? 0 : -1;
}
static void hdf5_tree(struct hdf5_scan *s, hid_t root, bool dimensions) {
  struct hdf5_visit v = {s, "", dimensions, 0};
  INSITU__ARRAY_FREE(s->seen);
  hdf5_seen(s, root);
  bool ok = H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, NULL, hdf5_link, &v) >= 0;
  if (s->code == TOOL_OK && s->b->err.status < 0) s->code = tool_fail_error(&s->b->err);
  else if (!ok && s->code == TOOL_OK)
    s->code = tool_fail("%s: %s; the file is damaged", s->f->name, hdf5_why());
}
static int hdf5_scan(
    struct virtual_archive *v, struct virtual_file *f, struct bytes *b, uint64_t target) {
  struct hdf5_scan s = {.v = v, .f = f, .b = b, .target = target};
  hdf5_bytes = b;
  b->least = HDF5_LEAST;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  hid_t access = hdf5_access();
  hid_t file = access < 0 ? -1 : H5Fopen(b->name, H5F_ACC_RDONLY, access);
  hid_t root = file < 0 ? -1 : H5Gopen2(file, "/", H5P_DEFAULT);
  if (b->err.status < 0) {
    s.code = tool_fail_error(&b->err);
  } else if (root < 0) {
    s.code =
        tool_fail("%s: %s; the file is damaged or cut off: fetch it again", f->name, hdf5_why());
  } else {
    virtual_add_group(f, "", hdf5_attributes(root));
    hdf5_tree(&s, root, true);
    if (s.code == TOOL_OK) hdf5_tree(&s, root, false);
  }
  if (root >= 0) H5Gclose(root);
  if (file >= 0) H5Fclose(file);
  if (access >= 0) H5Pclose(access);
  for (size_t i = 0; i < TOOL_COUNT(s.dimension); i++) insitu__mem_free(s.dimension[i]);
  INSITU__ARRAY_FREE(s.seen);
  return s.code;
}
#else
static int hdf5_scan(
    struct virtual_archive *v, struct virtual_file *f, struct bytes *b, uint64_t target) {
  (void)v, (void)b, (void)target;
  return tool_fail(
      "%s is an HDF5 file, and this insitu was built without the HDF5 library; install "
      "it (apt-get install libhdf5-dev, dnf install hdf5-devel) and run make tools",
      f->name);
}
#endif
