"""Writes tests/data/codec/*.bin with numcodecs 0.16, and with libblosc where numcodecs' own lacks a compressor, for
tests/test_codec.c. Usage: python3 tests/data/make_codec_fixtures.py [directory]

A name is codec-cname-shuffle-typesize-blocksize-bytes.bin. For codecs other than blosc the middle fields are 0; the second one may
say start or end, where a checksum stands elsewhere than it usually does, or streams, of which there are two then. The decoded
byte i is ((i // 16) * 5 + (i % 16) * (i % 16)) & 255 where i & 3 != 1, else the low byte of (i * 2654435761 mod 2**32) >>
13.
"""
import ctypes
import os
import sys

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


main(sys.argv[1] if len(sys.argv) > 1 else os.path.join("tests", "data", "codec"))
