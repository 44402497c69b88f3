"""Zarr v2 by zarr-python 2 and numcodecs. See cases.py."""
import itertools
import os
import warnings

import numcodecs
import numpy as np
import zarr
from numcodecs import Adler32, AsType, BitRound, Blosc, BZ2, CRC32, Delta, FixedScaleOffset, GZip, LZ4, PackBits, Quantize, Shuffle
from numcodecs import Zlib, Zstd
from numcodecs.fletcher32 import Fletcher32

import cases

warnings.filterwarnings("ignore")
numcodecs.blosc.use_threads = False

COMPRESSORS = [("none", lambda: None), ("zstd", lambda: Zstd(3)), ("zstdsum", lambda: Zstd(1, checksum=True)), ("lz4", LZ4),
    ("gzip", lambda: GZip(5)), ("zlib", lambda: Zlib(1)), ("bz2", lambda: BZ2(1))]
COMPRESSORS += [(f"blosc_{c}_{s}_{b}", lambda c=c, s=s, b=b: Blosc(c, 5, s, b))
    for c, s, b in itertools.product(("lz4", "lz4hc", "zstd", "zlib", "blosclz"), (0, 1, 2), (0, 512))]
PAIRS = list(itertools.product([">", "<"], cases.NUMBERS, COMPRESSORS))
CHECKSUMS = [("crc32", CRC32), ("adler32", Adler32), ("fletcher32", Fletcher32)]


def filters_of(rng, dtype):
    """(name, filters, does it lose) that fit the dtype; most often none."""
    kind, size = dtype.kind, dtype.itemsize
    choices = [("", None, False)] * 6
    choices += [("shuffle", [Shuffle(size)], False), ("shufflehalf", [Shuffle(max(1, size // 2))], False)]
    choices += [(name, [make()], False) for name, make in CHECKSUMS]
    if kind in "iufb":
        choices.append(("delta", [Delta(dtype)], kind == "b"))  # booleans do not come back
    if kind in "iu" and size < 8:
        choices.append(("deltawide", [Delta(dtype, astype=f"{kind}8")], False))
        choices.append(("astype", [AsType(f"{kind}8", dtype)], False))
    if kind == "b":
        choices += [("packbits", [PackBits()], False)] * 4
    if kind == "f" and size > 2:
        choices += [("quantize", [Quantize(2, dtype)], True), ("quantizehalf", [Quantize(1, dtype, astype="f2")], True),
            ("fso", [FixedScaleOffset(offset=-10, scale=8, dtype=dtype, astype="i4")], True),
            ("fso_delta", [FixedScaleOffset(offset=3, scale=10, dtype=dtype, astype="u2"), Delta("u2")], True),
            ("fsobig", [FixedScaleOffset(offset=0.5, scale=4, dtype=dtype, astype=">i2")], True),
            ("astypehalf", [AsType("f2", dtype)], True)]
    if kind == "f" and dtype.isnative:  # all that numcodecs knows
        choices += [("bitround", [BitRound(6)], True), ("bitround_delta", [BitRound(6), Delta(f"i{size}")], True)]
    return rng.choice(choices)


def case(writer, rng, number, store, head):
    order, code, (compressor_name, compressor) = PAIRS[(number * 7) % len(PAIRS)] if number % 12 else rng.choice(PAIRS)
    if number % 20 == 19:
        code = rng.choice(cases.OTHERS)
    dtype = np.dtype(code if code[0] in "SV" else order + code)
    filter_name, filters, loses = filters_of(rng, dtype) if number % 3 == 0 else ("", None, False)
    shape, chunks = cases.geometry(rng)
    tame = bool(filter_name) and filter_name not in ("shuffle", "shufflehalf") and filter_name not in dict(CHECKSUMS)
    data = cases.values(rng, shape, dtype, tame)
    fill = cases.fill_of(rng, dtype) if rng.random() < 0.7 and not tame else None
    layout, separator = rng.choice("CCF"), rng.choice("../")
    consolidated = number // cases.STORE % 2 == 1
    path = ("group/" if number % 5 == 0 else "") + head
    where = os.path.join(writer.folder, store)
    root = zarr.open_group(where, mode="a")
    array = root.create_dataset(path, shape=shape, chunks=chunks or True, dtype=dtype, compressor=compressor(), filters=filters,
        order=layout, fill_value=fill, dimension_separator=separator, write_empty_chunks=rng.random() < 0.5)
    with np.errstate(all="ignore"):
        want = cases.with_holes(rng, data.astype(dtype), chunks, fill, array.__setitem__)
        own = array[...]
    if loses:
        want = own
    if consolidated and (number + 1) % cases.STORE == 0 or consolidated and (number + 1 == writer.count or writer.only):
        zarr.consolidate_metadata(where)
    words = [order.replace("<", "le").replace(">", "be") + code.split("[")[0], compressor_name]
    words += [filter_name] if filter_name else []
    return words, (store, path), want, own, None


cases.main("v2", case)
