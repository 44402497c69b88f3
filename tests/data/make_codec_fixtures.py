"""Writes tests/data/codec: *.bin with numcodecs 0.16, and with libblosc where numcodecs' own lacks a compressor, for
tests/unit/test_codec.c; filters.jsonl for tests/unit/test_filter.c.
Usage: python3 tests/data/make_codec_fixtures.py [directory [filters]]; with "filters" only these.

A name is codec-cname-shuffle-typesize-blocksize-bytes.bin. For codecs other than blosc the middle fields are 0; the second one may
say start or end, where a checksum stands elsewhere than it usually does, or streams, of which there are two then. The decoded
byte i is ((i // 16) * 5 + (i % 16) * (i % 16)) & 255 where i & 3 != 1, else the low byte of (i * 2654435761 mod 2**32) >>
13.

A line of filters.jsonl is an object: format 2 or 3; codec, its JSON; type, of the array there (format 3); encoded and decoded,
in hexadecimal. What numcodecs has, numcodecs decodes; cast_value, scale_offset and v3's packbits are computed here by their
specification, with exact fractions.
"""
import ctypes
import json
import math
import os
import sys
import warnings
from fractions import Fraction

import numcodecs
import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.checksum32 import CRC32, CRC32C, Adler32


def expected(n):
    i = np.arange(n, dtype=np.uint64)
    smooth = (i // 16) * 5 + (i % 16) * (i % 16)
    noise = (i * 2654435761 % 2**32) >> 13
    return np.where(i & 3 != 1, smooth, noise).astype(np.uint8)


def main(directory):
    os.makedirs(directory, exist_ok=True)

    def write(name, data):
        with open(os.path.join(directory, name + ".bin"), "wb") as file:
            file.write(bytes(data))

    def blosc(cname, shuffle, typesize, blocksize, n, clevel=5):
        data = expected(n)
        codec = Blosc(cname=cname, clevel=clevel, shuffle=shuffle, blocksize=blocksize)
        if n % typesize:  # numcodecs takes the typesize from the array: store a whole number of elements
            n -= n % typesize
            data = expected(n)
        encoded = codec.encode(data.view(np.dtype(("V", typesize))) if typesize > 1 else data)
        assert encoded[3] == typesize
        write(f"blosc-{cname}-{shuffle}-{typesize}-{blocksize}-{n}", encoded)

    for typesize in (1, 2, 3, 4, 8, 16, 17):
        for cname in ("lz4", "zstd"):
            blosc(cname, 1, typesize, 0, 3001)
            blosc(cname, 2, typesize, 0, 3001)
            blosc(cname, 1, typesize, 1024, 3001)  # a leftover block
        blosc("lz4hc", 0, typesize, 512, 1500)
        blosc("lz4", 1, typesize, 0, 100)  # too short to compress: stored plain
        blosc("zlib", 1, typesize, 1024, 3001)
    for n in (0, 1, 127, 128, 129):
        blosc("lz4", 1, 1, 0, n)
    for shuffle in (0, 1, 2):
        blosc("lz4", shuffle, 4, 4096, 12292)
        blosc("zstd", shuffle, 4, 4096, 12292)
    blosc("lz4", 1, 4, 0, 40000)
    blosc("blosclz", 1, 4, 0, 3001)
    for shuffle, typesize, blocksize in ((1, 8, 0), (1, 16, 1024), (2, 1, 0), (2, 2, 0), (2, 4, 0), (2, 16, 1024)):
        blosc("blosclz", shuffle, typesize, blocksize, 12288, clevel=9)
    library = ctypes.CDLL("libblosc.so.1")
    for shuffle, typesize, blocksize in ((1, 4, 0), (1, 16, 1024), (2, 4, 0), (2, 8, 2048)):
        n, out = 12288, ctypes.create_string_buffer(12288 + 16)
        size = library.blosc_compress_ctx(9, shuffle, ctypes.c_size_t(typesize), ctypes.c_size_t(n), expected(n).tobytes(), out,
            ctypes.c_size_t(n + 16), b"snappy", ctypes.c_size_t(blocksize), 1)
        assert 0 < size < n
        write(f"blosc-snappy-{shuffle}-{typesize}-{blocksize}-{n}", out.raw[:size])
    blosc("lz4", 1, 2, 300, 3001)
    for n in (0, 1, 3000):
        data = expected(n).tobytes()
        write(f"zstd-0-0-0-0-{n}", numcodecs.Zstd(level=3).encode(data))
        write(f"gzip-0-0-0-0-{n}", numcodecs.GZip(level=3).encode(data))
        write(f"zlib-0-0-0-0-{n}", numcodecs.Zlib(level=3).encode(data))
        write(f"bz2-0-0-0-0-{n}", numcodecs.BZ2(level=3).encode(data))
        write(f"crc32-0-0-0-0-{n}", CRC32().encode(data))
        write(f"crc32-end-0-0-0-{n}", CRC32(location="end").encode(data))
        write(f"adler32-0-0-0-0-{n}", Adler32().encode(data))
        write(f"adler32-end-0-0-0-{n}", Adler32(location="end").encode(data))
        write(f"crc32c-start-0-0-0-{n}", CRC32C(location="start").encode(data))
        if n:
            write(f"lz4-0-0-0-0-{n}", numcodecs.LZ4().encode(data))
            write(f"crc32c-0-0-0-0-{n}", CRC32C().encode(data))
    write("zstd-checksum-0-0-0-3000", numcodecs.Zstd(level=3, checksum=True).encode(expected(3000).tobytes()))
    for n in (1, 2, 721, 3000):  # odd ones, and more than the 360 words that HDF5 sums up at a time
        write(f"fletcher32-0-0-0-0-{n}", numcodecs.Fletcher32().encode(expected(n)))
    data = expected(3000).tobytes()
    streams = numcodecs.BZ2(level=9).encode(data[:1000]), numcodecs.BZ2(level=1).encode(data[1000:])
    write("bz2-streams-0-0-0-3000", b"".join(streams))



NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def ordered(dtype, order):
    return ("|" if dtype[1] == "1" else order) + dtype


def values(dtype, n=9):
    """Some of every size, extremes included."""
    i = np.arange(n, dtype=np.int64)
    if dtype[0] == "b":
        return np.array(i % 3 == 1)
    if dtype[0] == "f":
        x = ((i * 2654435761) % 4093 / 64 - 20).astype(dtype)
        x[1], x[2], x[3] = -0.0, np.finfo(dtype).max / 4, np.finfo(dtype).smallest_subnormal
        return x
    x = (i.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64).astype(dtype)
    x[1], x[2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return x


def numcodecs_cases():
    for order in "<>":
        for d in NUMBERS:
            if order == ">" and d[1] == "1":
                continue
            a = ordered(d, order)
            yield {"id": "delta", "dtype": a}, values(d).astype(a)
            yield {"id": "shuffle", "elementsize": int(d[1])}, values(d).astype(a)
            for k, e in enumerate(NUMBERS):  # every pair of types once, in some order
                b = ordered(e, "<>"[k % 2] if order == "<" else order)
                if (k + NUMBERS.index(d)) % (2 if order == "<" else 5) == 0 or (order == "<" and "f" in d + e):
                    x = values(e)
                    if e[0] == "f" and d[0] != "f":
                        x = x % 100  # what does not fit has no defined value
                    yield {"id": "astype", "encode_dtype": b, "decode_dtype": a}, x.astype(b)
                    x = values(e)
                    if e[0] == "f" and d[0] != "f":
                        x = abs(x) % 9
                    if (k + NUMBERS.index(d)) % 3 == 0 and not (d == "i8" and e == "u8"):
                        yield {"id": "delta", "dtype": a, "astype": b}, x.astype(b)
            for scale, offset in ((10, 1000), (0.5, -3.25), (1e12, 7)):
                wide = "f8" if order == "<" else ">f4"
                yield {"id": "fixedscaleoffset", "dtype": wide, "astype": a, "scale": scale, "offset": offset}, values(d).astype(a)
        yield {"id": "fixedscaleoffset", "dtype": order + "i4", "astype": "|u1", "scale": 0.25, "offset": -30}, values("u1")
        yield {"id": "fixedscaleoffset", "dtype": order + "f2", "astype": order + "f2", "scale": 3, "offset": 0.1}, (
            values("f2").astype(order + "f2"))
        for d in "248":
            for e in "248":
                yield {"id": "quantize", "digits": 3, "dtype": order + "f" + d, "astype": order + "f" + e}, (
                    values("f" + e).astype(order + "f" + e))
    yield {"id": "bitround", "keepbits": 4}, values("f4")
    yield {"id": "shuffle"}, values("i4")
    yield {"id": "shuffle", "elementsize": 0}, values("i4")
    yield {"id": "shuffle", "elementsize": 300}, np.arange(900, dtype="u2").astype("u1")
    for n in (1, 7, 8, 9, 40, 0):
        yield {"id": "packbits"}, numcodecs.PackBits().encode(np.array([k % 3 == 0 for k in range(n)], dtype=bool))


def rounded(x, mode):
    """A Fraction as an integer."""
    below = math.floor(x)
    if x == below:
        return below
    up = {"towards-positive": True, "towards-negative": False, "towards-zero": x < 0}.get(mode)
    if up is None:
        half = x - below - Fraction(1, 2)
        up = half > 0 or (half == 0 and (below % 2 == 1 if mode == "nearest-even" else x > 0))
    return below + up


def cast(x, dtype, mode, beyond):
    """One element by cast_value's rules; None: an error."""
    info = np.finfo(dtype) if dtype[0] == "f" else np.iinfo(dtype)
    if isinstance(x, float) and not math.isfinite(x):
        return np.array([x], dtype) if dtype[0] == "f" else None
    x = Fraction(x)
    if dtype[0] != "f":
        n = rounded(x, mode)
        if not info.min <= n <= info.max:
            if beyond == "wrap":
                n = (n - int(info.min)) % 2**info.bits + int(info.min)
            elif beyond == "clamp":
                n = min(max(n, int(info.min)), int(info.max))
            else:
                return None
        return np.array([n], dtype)
    step = Fraction(2) ** max((math.frexp(float(abs(x)))[1] if x else 0) - info.nmant - 2, info.minexp - info.nmant)
    while x and abs(x) / step >= 2 ** (info.nmant + 1):
        step *= 2
    n = rounded(x / step, mode) * step
    if abs(n) > Fraction(float(info.max)):
        return np.array([math.inf if n > 0 else -math.inf], dtype) if beyond == "clamp" else None
    return np.array([float(n)], dtype)


def specified_cases():
    """(configuration, the array's type, encoded, decoded; None: an error)"""
    names = {d: np.dtype(d).name for d in NUMBERS}
    edges = [2**24 + 1, 2**24 + 3, 2**53 + 1, 2**53 + 3, 2**63 - 1, 2**62 + 2**38 + 1, 2**11 + 1, 65519, 65520, 0, 200]
    reals = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4999, -2.7, 1e-9, 1 + 2**-11, 1 + 2**-24, 1 + 3 * 2**-24, -1 - 2**-24, 65519.9,
        65520.0, 3e38, 1e-46, 2**-25, 3 * 2**-26, 300.0, -129.0]
    for mode in ("nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative"):
        for d in ("i1", "i4", "u8", "f2", "f4", "f8"):
            for e in ("i8", "u8", "f4", "f8"):
                for beyond in (None, "clamp", "wrap") if mode == "nearest-even" else ("clamp",):
                    if beyond == "wrap" and (e[0] == "f" or d[0] == "f"):
                        continue
                    most = (np.finfo if e[0] == "f" else np.iinfo)(e).max
                    x = np.array([v for v in (reals if e[0] == "f" else edges) if abs(v) <= most], e)
                    if e[0] == "i":
                        x = np.concatenate([x, -x])
                    x = x[np.isfinite(x.astype("f8"))]
                    wanted = [cast(v.item(), d, mode, beyond) for v in x]
                    fit = [k for k, w in enumerate(wanted) if w is not None]
                    config = {"data_type": names[e], "rounding": mode}
                    if beyond:
                        config["out_of_range"] = beyond
                    codec = {"name": "cast_value", "configuration": config}
                    yield codec, names[d], x[fit], np.concatenate([wanted[k] for k in fit]) if fit else np.zeros(0, d)
                    if len(fit) < len(x) and mode == "nearest-even":
                        first = [k for k in range(len(x)) if k not in fit][0]
                        yield codec, names[d], x[first:first + 1], None
    special = np.array([1.5, np.nan, np.inf, -np.inf, -0.0, 7.0])
    yield {"name": "cast_value", "configuration": {"data_type": "float64"}}, "float32", special, special.astype("f4")
    yield {"name": "cast_value", "configuration": {"data_type": "float64", "out_of_range": "clamp"}}, "uint8", special[2:3], None
    mapped = {"decode": [["NaN", 9], ["+Infinity", 200], ["-Infinity", 0], [7, 70], [7, 71]]}
    yield {"name": "cast_value", "configuration": {"data_type": "float64", "scalar_map": mapped}}, "uint8", special, (
        np.array([2, 9, 200, 0, 0, 70], "u1"))
    back = {"encode": [["NaN", 0]], "decode": [[0, "NaN"], [255, "0x7fc00000"]]}
    yield {"name": "cast_value", "configuration": {"data_type": "uint8", "scalar_map": back}}, "float32", (
        np.array([0, 1, 255], "u1")), np.array([np.nan, 1, np.nan], "f4")
    for d in NUMBERS[1:]:
        scale, offset = (2, 5) if d[0] != "f" else (0.125, -3.5)
        x = np.array([0, 2, 4, 60], d)
        codec = {"name": "scale_offset", "configuration": {"scale": scale, "offset": offset}}
        yield codec, names[d], x, (x / np.dtype(d).type(scale) + np.dtype(d).type(offset)).astype(d)
        if d[0] != "f":
            yield codec, names[d], np.array([3], d), None
            yield {"name": "scale_offset", "configuration": {"offset": 100}}, names[d], np.array([np.iinfo(d).max - 50], d), None
    yield {"name": "scale_offset", "configuration": {"scale": 0.001}}, "float16", np.array([60000], "f2"), None
    yield {"name": "scale_offset", "configuration": {"scale": 0.5, "offset": -65504}}, "float16", np.array([65504], "f2"), None
    for d in ("b1", "u1", "i1", "i2", "u4", "i8", "f4"):
        width = 1 if d == "b1" else np.dtype(d).itemsize * 8
        for place in ("none", "first_byte", "last_byte"):
            for first, last in ((0, width - 1), (2, 6), (0, 2)):
                if last >= width:
                    continue
                x = values(d, 7)
                raw = [int.from_bytes(v.tobytes(), "little") for v in x]
                bits = [r >> k & 1 for r in raw for k in range(first, last + 1)]
                pad = -len(bits) % 8
                packed = np.packbits(np.array(bits, "u1"), bitorder="little").tobytes()
                packed = bytes([pad]) * (place == "first_byte") + packed + bytes([pad]) * (place == "last_byte")
                kept = [(r >> first) & ((1 << (last - first + 1)) - 1) for r in raw]
                if d[0] == "i":
                    kept = [k - (1 << (last - first + 1)) if k >> (last - first) else k for k in kept]
                decoded = b"".join(((k << first) % 2**max(width, 8)).to_bytes(max(width, 8) // 8, "little") for k in kept)
                config = {"padding_encoding": place, "first_bit": first, "last_bit": last}
                yield {"name": "packbits", "configuration": config}, names[d], np.frombuffer(packed, "u1"), (
                    np.frombuffer(decoded, "u1"))


def filters(directory):
    """One line of JSON for each case."""
    with open(os.path.join(directory, "filters.jsonl"), "w", encoding="ascii") as file:
        def write(**line):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

        for config, encoded in numcodecs_cases():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                decoded = numcodecs.get_codec(config).decode(encoded.tobytes())
            write(format=2, codec=config, encoded=encoded.tobytes().hex(), decoded=np.asarray(decoded).tobytes().hex())
        for codec, dtype, encoded, decoded in specified_cases():
            write(format=3, codec=codec, type=dtype, encoded=encoded.tobytes().hex(),
                decoded=None if decoded is None else decoded.tobytes().hex())


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join("tests", "data", "codec")
    if sys.argv[2:] != ["filters"]:
        main(target)
    filters(target)
