#!/usr/bin/env python3
"""Writes small Zarr stores whose values follow a formula, so that C tests know every element without Python.

    make_stores.py write FOLDER    zarr-python 2 writes the *.v2.zarr stores; zarr-python 3 and tensorstore, side by side, the
                                   *.v3.zarr ones and the *.v3.zip files; all append to INDEX.txt
    make_stores.py check FOLDER    (zarr-python 3) reads every readable array back and compares

Run by make_stores.sh. README.md beside it describes the formula and INDEX.txt; tests/support/expect.h is the same in C.
"""
import gzip
import itertools
import json
import math
import os
import shutil
import sys
import types
import warnings
import zipfile

import numpy as np
import zarr
from numcodecs import blosc as blosc_library

V3 = int(zarr.__version__.split(".")[0]) >= 3
warnings.filterwarnings("ignore")
# The same bytes on every run: no time in gzip headers, blosc's blocks in order.
gzip.time = types.SimpleNamespace(time=lambda: 0)
blosc_library.use_threads = False
blosc_library.set_nthreads(1)


def hash32(n):
    """n: array of uint64. Runs of 16 rise by 17, so that compressors find something; the rest is a mixed product."""
    x = ((n >> np.uint64(4)) * np.uint64(2654435761) + np.uint64(12345)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(16)
    return (x + np.uint64(17) * (n & np.uint64(15))) & np.uint64(0xFFFFFFFF)


def value(flat, dtype):
    """The elements of dtype at the flat C-order indices."""
    dtype = np.dtype(dtype).newbyteorder("=")
    flat = np.asarray(flat, np.uint64)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        two = np.uint64(2)
        return (value(flat * two, part) + 1j * value(flat * two + np.uint64(1), part)).astype(dtype)
    x = hash32(flat)
    if dtype.kind == "b":
        return (x >> np.uint64(7) & np.uint64(1)).astype(bool)
    if dtype == np.float16:
        return ((x & np.uint64(0x7FF)).astype(np.int64) - 1000).astype(dtype)
    if dtype.kind == "f":
        return ((x & np.uint64(0xFFFF)).astype(np.float64) / 8 - 1000).astype(dtype)
    if dtype.itemsize == 8:
        x |= hash32(flat + np.uint64(1)) << np.uint64(32)
    return (x & np.uint64(2 ** (8 * dtype.itemsize) - 1)).astype(f"u{dtype.itemsize}").view(dtype)


def filled(shape, dtype):
    return value(np.arange(math.prod(shape), dtype=np.uint64), dtype).reshape(shape)


TEXT = ["", "a", "b\u00e9", "\u4e16\u754c", "\U0001f680\U0001f389", "hello"]
ASCII = [b"", b"a", b"bc", b"d", b"\xff\x80", b"hello"]
DATES = [0, 1, -1, 900000, "NaT", 5]


def elements(values, dtype):
    """Six elements that are no numbers, as three rows."""
    if dtype is object:
        array = np.empty(6, object)
        array[:] = values
    elif np.dtype(dtype).kind == "V":
        array = np.array(values, "S5").view("V5")
    elif np.dtype(dtype).kind in "Mm":
        array = np.array([np.iinfo("i8").min if v == "NaT" else v for v in values], "i8").view(np.dtype(dtype).newbyteorder("="))
    else:
        array = np.array(values, dtype)
    return array.reshape(3, 2)


def grid(shape, chunks):
    """(number, slices) of every chunk, numbered in C order of the chunk grid."""
    cells = itertools.product(*(range(-(-s // c)) for s, c in zip(shape, chunks)))
    return [(n, tuple(slice(i * c, min((i + 1) * c, s)) for i, c, s in zip(cell, chunks, shape))) for n, cell in enumerate(cells)]


def is_absent(number):
    return number % 3 == 1


def name_of(dtype):
    dtype = np.dtype(dtype)
    return f"{dtype.kind}{dtype.itemsize}"


def sizes(shape):
    return "x".join(map(str, shape)) if shape else "scalar"


class Index:
    """INDEX.txt, one line per array."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "INDEX.txt")

    def add(self, store, path, dtype, shape, chunks, expect):
        with open(self.path, "a", encoding="ascii") as f:
            f.write(f"{store} {path} {dtype} {sizes(shape)} {sizes(chunks)} {expect}\n")


def put(array, store, path, index, shape, chunks, dtype, absent, expect="ok"):
    """Writes the formula's values; with absent (the fill value's element), leaves out every third chunk."""
    values = filled(shape, dtype)
    if absent is None:
        if values.size:
            array[...] = values
    else:
        for number, box in grid(shape, chunks):
            if not is_absent(number):
                array[box] = values[box]
        fill = np.array(absent, np.dtype(dtype).newbyteorder("<"))
        expect = "absent 0x" + fill.tobytes()[::-1].hex()
    index.add(store, path, name_of(dtype), shape, chunks, expect)


def edit(path, change):
    """Edits a metadata file by hand, for what zarr-python would not write."""
    with open(path, encoding="ascii") as f:
        meta = json.load(f)
    change(meta)
    with open(path, "w", encoding="ascii") as f:
        json.dump(meta, f, indent=2)


DTYPES = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
TRAIN = [  # name, dtype, shape, chunks, dimensions; the sample axis (time) is second in w
    ("x", "f4", (97, 6, 10), (8, 6, 10), ("time", "lat", "lon")),
    ("y", "i2", (97, 6, 10), (12, 3, 5), ("time", "lat", "lon")),
    ("z", "f8", (97,), (97,), ("time",)),
    ("w", "f4", (6, 97, 4), (6, 8, 4), ("lev", "time", "k")),
]


# ---- v2 -------------------------------------------------------------------------------------------------------------------------


def write_v2(folder, index):
    from numcodecs import (BZ2, CRC32, JSON, LZMA, Adler32, Blosc, Fletcher32, GZip, VLenBytes, VLenUTF8, Zlib, Zstd)

    def lz4(shuffle=Blosc.SHUFFLE, **more):
        return Blosc("lz4", 5, shuffle, **more)

    def root(store):
        return zarr.open_group(zarr.DirectoryStore(os.path.join(folder, store)), mode="w")

    def make(group, store, path, shape, chunks, dtype, absent=None, fill=0, separator=".", order="C", compressor=None, dims=None,
            **more):
        a = group.create_dataset(path, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, dimension_separator=separator,
            order=order, compressor=compressor, write_empty_chunks=True, **more)
        if dims:
            a.attrs["_ARRAY_DIMENSIONS"] = list(dims)
        put(a, store, path, index, shape, chunks, dtype, absent)
        return a

    # Every dtype in both byte orders; order, compressor and separator take turns.
    store, n = "dtypes.v2.zarr", 0
    g = root(store)
    turns = [None, lz4(), Zstd(3), Zlib(5), lz4(Blosc.NOSHUFFLE), Blosc("zstd", 3, Blosc.SHUFFLE), GZip(5)]
    for dtype, end in itertools.product(DTYPES, "<>"):
        if np.dtype(dtype).itemsize == 1 and end == ">":
            continue
        make(g, store, f"{dtype}_{'little' if end == '<' else 'big'}", (7, 40), (8, 40), end + dtype, order="CF"[n % 2],
            separator="./"[n // 2 % 2], compressor=turns[n % len(turns)])
        n += 1
    # "<u1" and ">u1" are found in the wild beside "|u1".
    for end in "<>":
        path = f"u1_marked_{'little' if end == '<' else 'big'}"
        make(g, store, path, (7, 40), (8, 40), "u1")
        edit(os.path.join(folder, store, path, ".zarray"), lambda m, d=end + "u1": m.update(dtype=d))

    # Compressors, on chunks big enough for several blosc blocks, split and not, with an edge chunk.
    store = "codecs.v2.zarr"
    g = root(store)
    for path, compressor, dtype in [
            ("raw", None, "<f4"), ("lz4_shuffle", lz4(), "<f4"), ("lz4_noshuffle", lz4(Blosc.NOSHUFFLE), "<f4"),
            ("lz4_bitshuffle", lz4(Blosc.BITSHUFFLE), "<f4"), ("lz4_auto_1", lz4(Blosc.AUTOSHUFFLE), "|u1"),
            ("lz4_auto_8", lz4(Blosc.AUTOSHUFFLE), "<f8"), ("lz4_blocks", Blosc("lz4", 1), "<i4"),
            ("lz4_complex", lz4(), "<c16"), ("lz4hc", Blosc("lz4hc", 9), "<f4"),
            ("lz4_clevel0", Blosc("lz4", 0), "<f4"), ("blosc_zstd_shuffle", Blosc("zstd", 5, Blosc.SHUFFLE), "<f4"),
            ("blosc_zstd_blocks", Blosc("zstd", 5, Blosc.SHUFFLE, blocksize=1024), "<u2"),
            ("blosc_zstd_bitshuffle", Blosc("zstd", 5, Blosc.BITSHUFFLE), "<i2"), ("zstd", Zstd(5), "<f4"),
            ("zstd_checksum", Zstd(1, checksum=True), "<i4"), ("gzip", GZip(6), "<f4"), ("zlib", Zlib(6), "<f4"),
            ("blosclz", Blosc("blosclz", 9), "<f4"), ("bz2", BZ2(5), "<i2"), ("crc32", CRC32(), "|u1"),
            ("adler32", Adler32(), "|u1"), ("fletcher32", Fletcher32(), "|u1")]:
        n = 90 if path == "lz4_blocks" else 17  # blosc enlarges small blocks that it splits
        make(g, store, path, (5, 33, n), (6, 33, n), dtype, compressor=compressor)

    # Grids: ranks, edges, inner chunking, F order, both separators.
    store = "grids.v2.zarr"
    g = root(store)
    for n, (shape, chunks) in enumerate([((11,), (4,)), ((9, 5), (4, 3)), ((5, 4, 6), (2, 4, 4)), ((3, 4, 5, 6), (2, 4, 5, 4)),
                                         ((4, 4), (4, 4)), ((3, 3), (8, 8)), ((6, 2, 2), (1, 2, 2))]):
        for order, separator in itertools.product("CF", "./"):
            if (n + (order == "F") + (separator == "/")) % 2 == 0:
                make(g, store, f"g{n}_{order}_{'dot' if separator == '.' else 'slash'}", shape, chunks, "<i4", order=order,
                    separator=separator, compressor=lz4() if n % 2 else None)
    make(g, store, "scalar", (), (), "<f8")
    make(g, store, "empty", (0, 3), (2, 3), "<f4")
    make(g, store, "no_separator_key", (5, 4), (2, 2), "<f4")
    edit(os.path.join(folder, store, "no_separator_key", ".zarray"), lambda m: m.pop("dimension_separator"))

    # Absent chunks and every form of fill value.
    store = "fills.v2.zarr"
    g = root(store)
    nan, inf = float("nan"), float("inf")
    for path, dtype, fill, order in [
            ("zero", "<f4", 0, "C"), ("one_half", "<f4", 1.5, "F"), ("nan", "<f4", nan, "C"), ("minus_inf", ">f4", -inf, "C"),
            ("nan_f8", "<f8", nan, "F"), ("plus_inf_f2", "<f2", inf, "C"), ("minus_int", "<i4", -999900, "C"),
            ("min_i8", "<i8", -2 ** 63, "C"), ("max_u8", "<u8", 2 ** 64 - 1, "C"), ("byte", "|u1", 255, "C"),
            ("true", "|b1", True, "C"), ("large", "<f4", 1e20, "C"), ("big_endian_int", ">i2", -2, "F")]:
        wide = path in ("one_half", "nan")
        make(g, store, path, (5, 6) if wide else (3, 6), (2, 4) if wide else (2, 6), dtype, absent=np.array(fill, dtype), fill=fill,
            order=order)
    make(g, store, "null", (3, 6), (2, 6), "<f4", absent=0, fill=None)
    for path, token in [("bare_nan", "NaN"), ("bare_minus_inf", "-Infinity")]:  # tokens that are not JSON, but are written
        fill = float(token)
        make(g, store, path, (3, 6), (2, 6), "<f4", absent=fill, fill=fill)
        edit(os.path.join(folder, store, path, ".zarray"), lambda m, v=fill: m.update(fill_value=v))

    # Groups within groups: the same without and with consolidated metadata; a store that is one array.
    for store in "groups.v2.zarr", "consolidated.v2.zarr":
        g = root(store)
        g.attrs["title"] = "nested groups"
        for path in "top", "a/b", "a/c/d":
            make(g, store, path, (6, 5), (4, 5), "<f4", compressor=lz4(), dims=("time", "x"))
        make(g, store, "a/c/holes", (6, 5), (2, 5), "<f4", absent=nan, fill=nan, compressor=lz4(), dims=("time", "x"))
        if store.startswith("consolidated"):
            zarr.consolidate_metadata(zarr.DirectoryStore(os.path.join(folder, store)))
    store = "array.v2.zarr"
    a = zarr.open_array(zarr.DirectoryStore(os.path.join(folder, store)), mode="w", shape=(6, 5), chunks=(4, 5), dtype="<f4",
        compressor=None)
    put(a, store, "/", index, (6, 5), (4, 5), "<f4", None)

    # Elements that are no numbers, the same in every array; tests/loader/test_strings.c knows them.
    g = root("elements.v2.zarr")
    for path, values, options in [
            ("s", ASCII, {"dtype": "|S5"}), ("u", TEXT, {"dtype": "<U5"}), ("u_big", TEXT, {"dtype": ">U5", "order": "F"}),
            ("vlen", TEXT, {"dtype": object, "object_codec": VLenUTF8()}),
            ("json", TEXT, {"dtype": object, "object_codec": JSON()}),
            ("bytes", ASCII, {"dtype": object, "object_codec": VLenBytes()}), ("raw", ASCII, {"dtype": "|V5"}),
            ("date", DATES, {"dtype": "<M8[h]"}), ("difference", DATES, {"dtype": ">m8[25s]"})]:
        a = g.create_dataset(path, shape=(3, 2), chunks=(2, 2), compressor=Zstd(1), fill_value=None, **options)
        a[...] = elements(values, options["dtype"])

    # To be refused by name.
    store = "refused.v2.zarr"
    g = root(store)
    g.create_dataset("structured", data=np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")]), compressor=None)
    index.add(store, "structured", "structured", (2,), (2,), "refuse INSITU_E_DTYPE dtype")
    g.create_dataset("lzma", data=filled((4, 3), "<i4"), compressor=LZMA())
    index.add(store, "lzma", "i4", (4, 3), (4, 3), "refuse INSITU_E_CODEC lzma")
    g.create_dataset("unknown", data=filled((4, 3), "<i4"), compressor=None)
    edit(os.path.join(folder, store, "unknown", ".zarray"), lambda m: m.update(compressor={"id": "squeezer9000", "level": 3}))
    index.add(store, "unknown", "i4", (4, 3), (4, 3), "refuse INSITU_E_CODEC squeezer9000")

    store = "train.v2.zarr"
    g = root(store)
    turns = {"x": lz4(), "y": Zstd(3), "z": None, "w": Blosc("zstd", 3, Blosc.SHUFFLE)}
    for path, dtype, shape, chunks, dims in TRAIN:
        make(g, store, path, shape, chunks, "<" + dtype, compressor=turns[path], dims=dims, fill=math.nan if dtype[0] == "f" else 0)
    zarr.consolidate_metadata(zarr.DirectoryStore(os.path.join(folder, store)))


# ---- v3 -------------------------------------------------------------------------------------------------------------------------


def write_v3(folder, index):
    from zarr.dtype import (DateTime64, FixedLengthUTF32, NullTerminatedBytes, RawBytes, TimeDelta64, VariableLengthBytes,
        VariableLengthUTF8)
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

    def blosc(cname="lz4", shuffle="shuffle", typesize=4, clevel=5, blocksize=0):
        return BloscCodec(typesize=typesize, cname=cname, clevel=clevel, shuffle=shuffle, blocksize=blocksize)

    def root(store):
        return zarr.open_group(os.path.join(folder, store), mode="w", zarr_format=3)

    def make(group, store, path, shape, chunks, dtype, absent=None, fill=0, endian="little", compressors=None, filters=None,
            keys=("default", "/"), dims=None, expect="ok", **more):
        serializer = BytesCodec(endian=endian if np.dtype(dtype).itemsize > 1 else None)
        a = group.create_array(path, shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, serializer=serializer,
            compressors=compressors, filters=filters, chunk_key_encoding={"name": keys[0], "separator": keys[1]},
            dimension_names=dims, config={"write_empty_chunks": True}, **more)
        put(a, store, path, index, shape, chunks, dtype, absent, expect)
        return a

    def meta(store, path):
        return os.path.join(folder, store, path, "zarr.json")

    # Every dtype in both byte orders; compressor and chunk keys take turns.
    store, n = "dtypes.v3.zarr", 0
    g = root(store)
    turns = [None, [blosc()], [ZstdCodec(level=3)], [GzipCodec(level=5)], [blosc("zstd", "noshuffle")], [Crc32cCodec()]]
    keys = [("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")]
    for dtype, endian in itertools.product(DTYPES, ("little", "big")):
        if np.dtype(dtype).itemsize == 1 and endian == "big":
            continue
        make(g, store, f"{dtype}_{endian}", (7, 40), (8, 40), dtype, fill=False if dtype == "b1" else 0, endian=endian,
            compressors=turns[n % len(turns)], keys=keys[n % len(keys)],
            filters=[TransposeCodec(order=(1, 0))] if n % 3 == 2 else None)
        n += 1

    # Codec chains, on chunks big enough for several blosc blocks, split and not, with an edge chunk.
    store = "codecs.v3.zarr"
    g = root(store)
    for path, compressors, dtype in [
            ("raw", None, "f4"), ("lz4_shuffle", [blosc()], "f4"), ("lz4_noshuffle", [blosc(shuffle="noshuffle")], "f4"),
            ("lz4_bitshuffle", [blosc(shuffle="bitshuffle")], "f4"), ("lz4_typesize_4_on_i2", [blosc(typesize=4)], "i2"),
            ("lz4_typesize_1_on_f8", [blosc(typesize=1)], "f8"), ("lz4_typesize_16", [blosc(typesize=16)], "c16"),
            ("lz4_typesize_3_on_f4", [blosc(typesize=3)], "f4"), ("lz4_typesize_31_on_f4", [blosc(typesize=31)], "f4"),
            ("lz4_blocks", [blosc(clevel=1)], "i4"), ("lz4hc", [blosc("lz4hc", clevel=9)], "f4"),
            ("blosc_zstd", [blosc("zstd", typesize=8)], "f8"), ("blosc_zstd_bitshuffle", [blosc("zstd", "bitshuffle", 2)], "u2"),
            ("zstd", [ZstdCodec(level=5)], "f4"), ("zstd_checksum", [ZstdCodec(level=1, checksum=True)], "i4"),
            ("gzip", [GzipCodec(level=6)], "f4"), ("crc32c", [Crc32cCodec()], "f4"),
            ("zstd_crc32c", [ZstdCodec(level=3), Crc32cCodec()], "f4"), ("crc32c_gzip", [Crc32cCodec(), GzipCodec(level=1)], "f4"),
            ("blosc_crc32c", [blosc(), Crc32cCodec()], "f4"), ("two_compressors", [blosc(), ZstdCodec(level=1)], "f4")]:
        n = 90 if path == "lz4_blocks" else 17  # blosc enlarges small blocks that it splits
        make(g, store, path, (5, 33, n), (6, 33, n), dtype, compressors=compressors)

    # Grids: ranks, edges, inner chunking, transposes, chunk keys.
    store = "grids.v3.zarr"
    g = root(store)
    shapes = [((11,), (4,)), ((9, 5), (4, 3)), ((5, 4, 6), (2, 4, 4)), ((3, 4, 5, 6), (2, 4, 5, 4)), ((3, 3), (8, 8))]
    for n, (shape, chunks) in enumerate(shapes):
        orders = [None] + list(itertools.permutations(range(len(shape))))[1:][::max(1, math.factorial(len(shape)) // 2)]
        for k, order in enumerate(orders):
            make(g, store, f"g{n}_t{''.join(map(str, order)) if order else 'none'}", shape, chunks, "i4", keys=keys[(n + k) % 4],
                filters=[TransposeCodec(order=order)] if order else None, compressors=[blosc()] if (n + k) % 2 else None,
                dims=tuple("dim%d" % d for d in range(len(shape))) if k == 0 else None)
    make(g, store, "transposed_twice", (4, 3, 5), (2, 3, 4), "i2",
        filters=[TransposeCodec(order=(1, 2, 0)), TransposeCodec(order=(2, 1, 0))])
    make(g, store, "scalar", (), (), "f8")
    make(g, store, "scalar_v2_key", (), (), "f8", keys=("v2", "."))
    make(g, store, "empty", (0, 3), (2, 3), "f4")
    make(g, store, "some_names", (4, 3), (2, 3), "f4", dims=("time", None))

    # Absent chunks and every form of fill value. The forms that zarr-python does not write are put in by hand.
    store = "fills.v3.zarr"
    g = root(store)
    nan, inf = float("nan"), float("inf")
    for path, dtype, fill in [
            ("zero", "f4", 0), ("one_half", "f4", 1.5), ("nan", "f4", nan), ("minus_inf", "f4", -inf), ("plus_inf_f8", "f8", inf),
            ("nan_f2", "f2", nan), ("minus_int", "i4", -999900), ("min_i8", "i8", -2 ** 63), ("max_u8", "u8", 2 ** 64 - 1),
            ("true", "b1", True), ("complex", "c8", complex(1.5, -2)), ("complex_nan", "c16", complex(nan, -inf))]:
        wide = path in ("one_half", "nan")
        make(g, store, path, (5, 6) if wide else (3, 6), (2, 4) if wide else (2, 6), dtype, absent=np.array(fill, dtype), fill=fill)
    for path, dtype, text, bits in [
            ("hex_nan", "f4", "0x7fc00000", 0x7FC00000), ("hex_payload", "f4", "0x7fc0beef", 0x7FC0BEEF),
            ("hex_signalling_f8", "f8", "0x7ff0000000000001", 0x7FF0000000000001), ("hex_f2", "f2", "0x7e01", 0x7E01)]:
        fill = np.array(bits, f"u{dtype[1]}").view(dtype)
        make(g, store, path, (3, 6), (2, 6), dtype, absent=fill, fill=0)
        edit(meta(store, path), lambda m, t=text: m.update(fill_value=t))
    make(g, store, "hex_complex", (3, 6), (2, 6), "c8", absent=np.array([0x7FC00001, 0xFF800000], "<u4").view("<c8")[0], fill=0)
    edit(meta(store, "hex_complex"), lambda m: m.update(fill_value=["0x7fc00001", "-Infinity"]))

    # Groups within groups: the same without and with inline consolidated metadata; a store that is one array.
    for store in "groups.v3.zarr", "consolidated.v3.zarr":
        g = root(store)
        g.attrs["title"] = "nested groups"
        for path in "top", "a/b", "a/c/d":
            make(g, store, path, (6, 5), (4, 5), "f4", compressors=[blosc()], dims=("time", "x"))
        make(g, store, "a/c/holes", (6, 5), (2, 5), "f4", absent=nan, fill=nan, compressors=[blosc()], dims=("time", "x"))
        if store.startswith("consolidated"):
            zarr.consolidate_metadata(os.path.join(folder, store))
    store = "array.v3.zarr"
    a = zarr.create_array(os.path.join(folder, store), shape=(6, 5), chunks=(4, 5), dtype="f4", compressors=None)
    put(a, store, "/", index, (6, 5), (4, 5), "f4", None)

    g = root("elements.v3.zarr")
    for path, values, dtype, read in [
            ("s", ASCII, "S5", NullTerminatedBytes(length=5)), ("u", TEXT, "<U5", FixedLengthUTF32(length=5)),
            ("raw", ASCII, "V5", RawBytes(length=5)), ("date", DATES, "M8[h]", DateTime64(unit="h")),
            ("difference", DATES, "m8[25s]", TimeDelta64(unit="s", scale_factor=25)),
            ("vlen", TEXT, object, VariableLengthUTF8()), ("vlen_shards", TEXT, object, VariableLengthUTF8()),
            ("bytes", ASCII, object, VariableLengthBytes())]:
        a = g.create_array(path, shape=(3, 2), chunks=(1, 2) if "shards" in path else (2, 2), dtype=read,
            shards=(2, 2) if "shards" in path else None, compressors=[ZstdCodec(level=1)])
        a[...] = elements(values, dtype)

    # Extensions: what may be passed over, what must not be.
    store = "extensions.v3.zarr"
    g = root(store)

    def odd(path, change, expect):
        make(g, store, path, (4, 3), (4, 3), "i4", expect=expect)
        edit(meta(store, path), change)

    make(g, store, "bare_strings", (4, 3), (4, 3), "i4", compressors=[Crc32cCodec()])
    edit(meta(store, "bare_strings"), lambda m: m.update(chunk_key_encoding="default", codecs=[m["codecs"][0], "crc32c"]))
    edit(meta(store, ""), lambda m: m.update(consolidated_metadata=None))  # legal on a group
    odd("may_ignore", lambda m: m.update(curiosity={"name": "curiosity", "must_understand": False}), "ok")
    unsupported = "refuse INSITU_E_UNSUPPORTED "
    odd("must_understand", lambda m: m.update(curiosity={"name": "curiosity", "must_understand": True}), unsupported + "curiosity")
    odd("must_understand_unsaid", lambda m: m.update(curiosity={"name": "curiosity"}), unsupported + "curiosity")
    odd("storage_transformer", lambda m: m.update(storage_transformers=[{"name": "mirror"}]), unsupported + "storage_transformers")
    odd("unknown_codec", lambda m: m["codecs"].append({"name": "squeezer9000"}), "refuse INSITU_E_CODEC squeezer9000")
    odd("unknown_grid", lambda m: m.update(chunk_grid={"name": "rectangular", "configuration": {"kind": "inline",
        "chunk_shapes": [[4], [3]]}}), "refuse INSITU_E_GRID rectangular")
    odd("unknown_keys", lambda m: m.update(chunk_key_encoding={"name": "hilbert"}), unsupported + "hilbert")
    odd("unknown_dtype", lambda m: m.update(data_type="float7"), "refuse INSITU_E_DTYPE float7")

    store = "train.v3.zarr"
    g = root(store)
    turns = {"x": [blosc()], "y": [ZstdCodec(level=3)], "z": None, "w": [blosc("zstd"), Crc32cCodec()]}
    for path, dtype, shape, chunks, dims in TRAIN:
        make(g, store, path, shape, chunks, dtype, compressors=turns[path], dims=dims, fill=math.nan if dtype[0] == "f" else 0)
    zarr.consolidate_metadata(os.path.join(folder, store))


# ---- v3, sharded ----------------------------------------------------------------------------------------------------------------

NAN = float("nan")


def blosc_codec(cname, shuffle, typesize):
    return {"name": "blosc",
        "configuration": {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": typesize, "blocksize": 0}}


BLOSC = blosc_codec("lz4", "shuffle", 4)
BLOSC_ZSTD = blosc_codec("zstd", "bitshuffle", 2)
ZSTD = {"name": "zstd", "configuration": {"level": 3}}
GZIP = {"name": "gzip", "configuration": {"level": 5}}
CRC32C = {"name": "crc32c"}


def bytes_codec(endian="little"):
    return {"name": "bytes", "configuration": {"endian": endian}}


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def shard(inner, *codecs, end=True, checksum=True, index_endian="little"):
    """A sharding_indexed codec; codecs without one that makes bytes get the little-endian bytes codec in front."""
    makes_bytes = any(c["name"] in ("bytes", "sharding_indexed") for c in codecs)
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": list(inner),
        "codecs": list(codecs) if makes_bytes else [bytes_codec(), *codecs],
        "index_codecs": [bytes_codec(index_endian)] + ([CRC32C] if checksum else []),
        "index_location": "end" if end else "start"}}


def sharded_arrays():
    """(path, dtype, shape, shard shape, inner chunk shape, codecs, absent) of every sharded array; absent: None, or the fill value.
    Shapes are the array's; below a transpose, the codec's chunk_shape is the transposed one."""
    # The index: at the end or the start, with and without checksum, big-endian; a shard may hold one inner chunk, or many.
    for end, checksum in itertools.product((True, False), repeat=2):
        name = f"{'end' if end else 'start'}_{'crc32c' if checksum else 'plain'}"
        yield name, "f4", (16, 6), (8, 6), (2, 3), [shard((2, 3), end=end, checksum=checksum)], None
        yield "holes_" + name, "f4", (16, 6), (8, 6), (2, 3), [shard((2, 3), ZSTD, end=end, checksum=checksum)], NAN
    yield "index_big_endian", "i4", (8, 6), (4, 6), (2, 3), [shard((2, 3), index_endian="big")], 7
    yield "one_inner_chunk", "i4", (9, 5), (3, 5), (3, 5), [shard((3, 5), BLOSC)], None
    yield "one_element", "i2", (3, 4), (2, 2), (1, 1), [shard((1, 1))], None
    yield "many", "u2", (300,), (256,), (4,), [shard((4,), end=False)], None
    # Codecs inside, and around: then a shard is decoded whole.
    for name, dtype, codecs in [
            ("lz4", "f4", [BLOSC]), ("blosc_zstd_bitshuffle", "u2", [BLOSC_ZSTD]), ("zstd", "f4", [ZSTD]), ("gzip", "f8", [GZIP]),
            ("crc32c", "i4", [CRC32C]), ("zstd_crc32c", "i4", [ZSTD, CRC32C]), ("big_endian", "f4", [bytes_codec("big")]),
            ("big_endian_lz4", "i2", [bytes_codec("big"), BLOSC]), ("bool", "b1", []), ("complex", "c16", [ZSTD]),
            ("half", "f2", [])]:
        yield "inside_" + name, dtype, (10, 33, 7), (6, 33, 7), (2, 33, 7), [shard((2, 33, 7), *codecs)], None
    for name, around in [("gzip", [GZIP]), ("zstd", [ZSTD]), ("crc32c", [CRC32C]), ("lz4", [BLOSC]),
            ("gzip_crc32c", [GZIP, CRC32C])]:
        yield "around_" + name, "f4", (7, 6), (4, 6), (2, 3), [shard((2, 3)), *around], None
    yield "around_gzip_holes", "f4", (7, 6), (4, 6), (2, 3), [shard((2, 3), BLOSC, end=False), GZIP], NAN
    # Transposes before sharding, where chunk_shape is already transposed, inside, and both. zarr-python wants chunk_shape to divide
    # the untransposed shard too.
    yield "transpose_before", "i4", (7, 14), (6, 12), (2, 3), [transpose(1, 0), shard((3, 2))], None
    yield "transpose_before_3d", "f4", (5, 13, 9), (6, 12, 12), (2, 3, 4), [transpose(1, 2, 0), shard((3, 4, 2), ZSTD)], None
    yield "transpose_inside", "i4", (7, 10), (4, 9), (2, 3), [shard((2, 3), transpose(1, 0), bytes_codec())], None
    yield "transpose_inside_3d", "f4", (5, 6, 8), (4, 6, 8), (2, 3, 4), [
        shard((2, 3, 4), transpose(2, 0, 1), bytes_codec(), BLOSC)], None
    yield "transpose_both", "i2", (5, 13, 9), (6, 12, 12), (2, 3, 4), [transpose(1, 2, 0),
        shard((3, 4, 2), transpose(0, 2, 1), bytes_codec("big"))], None
    yield "transpose_holes", "f4", (7, 14), (6, 12), (2, 3), [transpose(1, 0), shard((3, 2), BLOSC)], -1.5
    yield "transpose_around_gzip", "f4", (7, 14), (6, 12), (2, 3), [transpose(1, 0), shard((3, 2)), GZIP], NAN
    # Holes: single inner chunks; whole shards (the middle column, and a shard of one inner chunk); every form of a fill value.
    yield "holes_zero", "f4", (9, 7), (6, 6), (2, 3), [shard((2, 3))], 0
    yield "holes_whole_shards", "f4", (12, 9), (4, 3), (2, 3), [shard((2, 3), BLOSC)], NAN
    yield "holes_one_inner_chunk", "f8", (9, 5), (1, 5), (1, 5), [shard((1, 5), end=False)], -999.5
    yield "holes_1d", "i8", (50,), (24,), (6,), [shard((6,), ZSTD)], -(2 ** 63)
    yield "holes_big_endian", "u4", (50,), (24,), (6,), [shard((6,), bytes_codec("big"))], 0x01020304
    yield "holes_complex", "c8", (6, 6), (6, 3), (2, 3), [shard((2, 3))], complex(1.5, NAN)
    # Edges: shards and inner chunks that hang over the array, in one to four dimensions.
    yield "edge_1d", "i4", (47,), (20,), (4,), [shard((4,), BLOSC)], None
    yield "edge_2d", "f4", (11, 7), (8, 4), (4, 2), [shard((4, 2))], None
    yield "edge_3d", "i2", (5, 7, 9), (4, 4, 8), (2, 4, 4), [shard((2, 4, 4), ZSTD)], None
    yield "edge_4d", "i4", (3, 5, 4, 7), (2, 4, 4, 6), (1, 2, 4, 3), [shard((1, 2, 4, 3), BLOSC)], None
    yield "edge_4d_holes", "i4", (3, 5, 4, 7), (2, 4, 4, 6), (1, 2, 4, 3), [shard((1, 2, 4, 3), end=False)], -5
    yield "larger_than_array", "i4", (3, 3), (8, 8), (2, 4), [shard((2, 4))], None
    # Shards within shards.
    yield "nested", "i4", (13, 10), (8, 8), (2, 4), [shard((4, 8), shard((2, 4)))], None
    yield "nested_lz4_mixed", "f4", (13, 10), (8, 8), (2, 4), [shard((4, 8), shard((2, 4), BLOSC, end=False, checksum=False))], None
    yield "nested_holes", "f4", (13, 10), (8, 8), (2, 4), [shard((4, 8), shard((2, 4), ZSTD), end=False)], NAN
    yield "nested_holes_whole_shards", "i4", (16, 9), (8, 9), (2, 3), [shard((4, 3), shard((2, 3)))], 11
    yield "nested_thrice", "i2", (17,), (16,), (2,), [shard((8,), shard((4,), shard((2,))))], None


def fill_json(value):
    """The fill value as the metadata says it."""
    if isinstance(value, complex):
        return [fill_json(value.real), fill_json(value.imag)]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def write_sharded(folder, index):
    """The same arrays by zarr-python and by tensorstore, which lay inner chunks out in other orders and leave out other ones."""
    import tensorstore
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.metadata.v3 import ArrayV3Metadata

    def root(store):
        return zarr.open_group(os.path.join(folder, store), mode="w", zarr_format=3)

    def meta(path, dtype, shape, outer, codecs, fill, n):
        return {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": np.dtype(dtype).name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(outer)}},
            "chunk_key_encoding": {"name": ("default", "v2")[n % 5 == 4], "configuration": {"separator": "/."[n % 3 == 2]}},
            "fill_value": fill_json(np.array(0 if fill is None else fill, dtype).item()), "codecs": codecs, "attributes": {}}

    store = "sharded.v3.zarr"
    root(store)
    for n, (path, dtype, shape, outer, inner, codecs, absent) in enumerate(sharded_arrays()):
        where = os.path.join(folder, store, path)
        document = ArrayV3Metadata.from_dict(meta(path, dtype, shape, outer, codecs, absent, n))
        os.makedirs(where)
        with open(os.path.join(where, "zarr.json"), "wb") as f:
            f.write(document.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())
        with zarr.config.set({"array.write_empty_chunks": absent is None}):
            put(zarr.open_array(where, mode="r+"), store, path, index, shape, inner, dtype, absent)

    def refused(path, change, expect):
        where = os.path.join(folder, store, path)
        os.makedirs(where)
        document = meta(path, "i4", (8, 6), (4, 6), [shard((2, 3))], 0, 0)
        change(document["codecs"][0]["configuration"])
        with open(os.path.join(where, "zarr.json"), "w", encoding="ascii") as f:
            json.dump(document, f, indent=2)
        index.add(store, path, "i4", (8, 6), (2, 3), expect)

    refused("index_of_variable_size", lambda c: c["index_codecs"].append(GZIP), "refuse INSITU_E_CODEC index_codecs")
    refused("undivided", lambda c: c.update(chunk_shape=[3, 3]), "refuse INSITU_E_FORMAT chunk_shape")
    refused("fewer_axes", lambda c: c.update(chunk_shape=[2]), "refuse INSITU_E_FORMAT chunk_shape")
    refused("index_in_the_middle", lambda c: c.update(index_location="middle"), "refuse INSITU_E_FORMAT index_location")
    refused("unknown_codec_inside", lambda c: c["codecs"].append({"name": "squeezer9000"}), "refuse INSITU_E_CODEC squeezer9000")
    refused("no_bytes_inside", lambda c: c.update(codecs=[]), "refuse INSITU_E_FORMAT codecs")

    store = "sharded-ts.v3.zarr"
    root(store)
    for n, (path, dtype, shape, outer, inner, codecs, absent) in enumerate(sharded_arrays()):
        if codecs[-1]["name"] != "sharding_indexed":
            continue  # it has no codecs around a shard
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": os.path.join(folder, store, path)},
            "metadata": meta(path, dtype, shape, outer, codecs, absent, n)}
        array = tensorstore.open(spec, create=True).result()
        put(array, store, path, index, shape, inner, dtype, absent)


def write_zips(folder, index):
    """A group that zarr-python wrote into a zip file, stored; and a folder that Python's zipfile packed, deflated."""
    from zarr.codecs import BytesCodec, ZstdCodec
    from zarr.storage import ZipStore, _zip

    store = "store.v3.zip"
    _zip.time = types.SimpleNamespace(time=lambda: 0, localtime=lambda t: (1980, 1, 1, 0, 0, 0))  # the same bytes on every run
    to = ZipStore(os.path.join(folder, store), mode="w")
    g = zarr.open_group(to, mode="w", zarr_format=3)
    for path, dtype, shape, chunks, more in [("raw", "i2", (7, 5), (3, 5), {"compressors": None}),
            ("a/shards", "f4", (10, 6), (2, 3), {"shards": (4, 6), "compressors": [ZstdCodec(level=3)]})]:
        a = g.create_array(path, shape=shape, chunks=chunks, dtype=dtype, fill_value=0, serializer=BytesCodec(), **more)
        put(a, store, path, index, shape, chunks, dtype, None)
    g["raw"].attrs["units"] = "m"  # written again: the first zarr.json stays in the file
    to.close()

    store, packed = "folder.v3.zip", "groups.v3.zarr"
    with zipfile.ZipFile(os.path.join(folder, store), "w", zipfile.ZIP_DEFLATED) as z:
        for root, below, names in os.walk(os.path.join(folder, packed)):
            below.sort()
            for path in (os.path.join(root, name) for name in sorted(names)):
                info = zipfile.ZipInfo(os.path.relpath(path, folder), (1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(info, open(path, "rb").read())
    lines = [line.split(" ", 1) for line in open(index.path, encoding="ascii")]
    with open(index.path, "a", encoding="ascii") as f:
        f.writelines(f"{store} {rest}" for name, rest in lines if name == packed)


# ---- check ----------------------------------------------------------------------------------------------------------------------


def check(folder):
    """Every ok and absent line as zarr-python reads it; bits compared, so that NaN equals NaN. What it refuses is named."""
    good, unread = 0, []
    for line in open(os.path.join(folder, "INDEX.txt"), encoding="ascii"):
        store, path, dtype, shape, chunks, expect = line.rstrip("\n").split(" ", 5)
        if expect.startswith("refuse"):
            continue
        shape, chunks = ([] if s == "scalar" else [int(n) for n in s.split("x")] for s in (shape, chunks))
        want = filled(shape, dtype)
        if expect != "ok":
            fill = np.frombuffer(bytes.fromhex(expect.split("0x")[1])[::-1], np.dtype(dtype).newbyteorder("<")).astype(dtype)[0]
            for number, box in grid(shape, chunks):
                if is_absent(number):
                    want[box] = fill
        try:
            where = os.path.join(folder, store)
            if store.endswith(".zip"):
                where = zarr.storage.ZipStore(where, mode="r")
            below = "groups.v3.zarr" if store == "folder.v3.zip" else ""
            array = zarr.open_array(where, mode="r") if path == "/" else zarr.open_group(where, path=below, mode="r")[path]
            got = array[...]
        except Exception as e:  # what zarr-python itself does not read
            unread.append(f"{store}/{path}: {type(e).__name__}: {str(e)[:80]}")
            continue
        got = np.asarray(got, want.dtype)
        if got.shape == tuple(shape) and got.tobytes() != want.tobytes() and "0x7e01" in expect:
            unread.append(f"{store}/{path}: the payload of a float16 NaN is lost")
            continue
        if got.shape != tuple(shape) or got.tobytes() != want.tobytes():
            raise SystemExit(f"make_stores: {store}/{path} does not read back as written")
        good += 1
    print(f"make_stores: {good} arrays read back equal; zarr-python does not read {len(unread)} as specified:", *unread, sep="\n  ")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        raise SystemExit(__doc__)
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        os.makedirs(sys.argv[2], exist_ok=True)
        for name in os.listdir(sys.argv[2]):
            if name.endswith(".v3.zarr" if V3 else ".v2.zarr"):
                shutil.rmtree(os.path.join(sys.argv[2], name))
        for write in (write_v3, write_sharded, write_zips) if V3 else (write_v2,):
            write(sys.argv[2], Index(sys.argv[2]))
