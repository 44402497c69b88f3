"""Zarr v2 by GDAL's multidimensional interface; its v3 is a draft of before the specification. See cases.py."""
import itertools
import os

import numpy as np
from osgeo import gdal

import cases

gdal.UseExceptions()
TYPES = {"u1": gdal.GDT_Byte, "u2": gdal.GDT_UInt16, "i2": gdal.GDT_Int16, "u4": gdal.GDT_UInt32, "i4": gdal.GDT_Int32,
    "u8": gdal.GDT_UInt64, "i8": gdal.GDT_Int64, "f4": gdal.GDT_Float32, "f8": gdal.GDT_Float64, "c8": gdal.GDT_CFloat32,
    "c16": gdal.GDT_CFloat64}
COMPRESSORS = [("none", []), ("zlib", ["COMPRESS=ZLIB"]), ("gzip", ["COMPRESS=GZIP"]), ("zstd", ["COMPRESS=ZSTD"]),
    ("lz4", ["COMPRESS=LZ4"])]
COMPRESSORS += [(f"blosc_{c}_{s}", ["COMPRESS=BLOSC", f"BLOSC_CNAME={c}", f"BLOSC_SHUFFLE={s}"])
    for c, s in itertools.product(("lz4", "lz4hc", "zstd", "zlib", "blosclz", "snappy"), ("NONE", "BYTE", "BIT"))]
PAIRS = list(itertools.product(TYPES, COMPRESSORS))
opened = {}  # the store being written


def root_of(writer, store, number):
    if store not in opened:
        opened.clear()  # closes the one before
        options = ["FORMAT=ZARR_V2", f"CREATE_ZMETADATA={'YES' if number // cases.STORE % 2 else 'NO'}"]
        opened[store] = gdal.GetDriverByName("Zarr").CreateMultiDimensional(os.path.join(writer.folder, store), [], options)
    return opened[store].GetRootGroup()


def case(writer, rng, number, store, head):
    code, (name, options) = PAIRS[number * 7 % len(PAIRS)]
    shape, chunks = (), ()
    while not shape or 0 in shape:
        shape, chunks = cases.geometry(rng)
    root = root_of(writer, store, number)
    dims = [root.CreateDimension(f"{head}_{i}", None, None, n) for i, n in enumerate(shape)]
    layout, delta = rng.choice("CCF"), code[0] in "iu" and rng.random() < 0.2
    options = options + [f"BLOCKSIZE={','.join(map(str, chunks))}", f"CHUNK_MEMORY_LAYOUT={layout}",
        f"DIM_SEPARATOR={rng.choice('./')}"]
    if delta:
        options.append("FILTER=DELTA")
    array = root.CreateMDArray(head, dims, gdal.ExtendedDataType.Create(TYPES[code]), options)
    fill = cases.fill_of(rng, code) if code[0] in "iuf" and code[1:] != "8" and rng.random() < 0.6 else None
    if fill is not None:
        array.SetNoDataValueDouble(float(fill))

    def write(box, part):
        start = [0] * len(shape) if box is ... else [s.start for s in box]
        array.Write(np.ascontiguousarray(part), array_start_idx=start, count=list(part.shape))
    want = cases.with_holes(rng, cases.values(rng, shape, code), chunks, fill, write)
    return [code, name, layout] + (["delta"] if delta else []), (store, head), want, None, None


cases.main("gdal", case, opened.clear)
