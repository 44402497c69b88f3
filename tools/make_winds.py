#!/usr/bin/env python3
"""Converts the Fleet Numerical monthly winds (netCDF classic) to the Zarr v2 store that the examples train on.

    python3 -m venv /tmp/winds && /tmp/winds/bin/pip install numcodecs==0.15.1 "numpy<2.3"
    /tmp/winds/bin/python tools/make_winds.py monthly_navy_winds.cdf [examples/data/winds.zarr] [--keep-bits N]

The original is usr/share/ferret-vis/data/monthly_navy_winds.cdf of Debian's package ferret-datasets. The header is parsed here,
so no netCDF library is needed; numcodecs is needed for blosc. The result depends on the input and the versions above alone:
converting twice gives the same bytes. The monthly means fill all 23 bits of the mantissa, which no codec packs well (8.7 MB), so
the winds are rounded to 14 bits: an error of at most 0.0005 m/s, far below that of the observations; the attributes say so.
--keep-bits 23 keeps every bit.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import struct
import sys

import numpy  # blosc takes the element size from the array
from numcodecs import BitRound, blosc

SHA256 = "225a9e4fed7bb1a7b558afb662abbe2dc5e3d3db4100fa019cb994f10b115faa"
RENAME = {"UWND": "uwnd", "VWND": "vwnd", "TIME": "time", "FNOCY": "lat", "FNOCX": "lon"}
TYPES = {1: ("b", 1), 2: ("c", 1), 3: ("h", 2), 4: ("i", 4), 5: ("f", 4), 6: ("d", 8)}  # nc_type: struct letter, bytes
CHUNK_MONTHS = 6


class Classic:
    """The header of a netCDF classic file (CDF-1: magic, dimensions, attributes, variables; all big-endian, padded to 4)."""

    def __init__(self, data):
        self.data, self.at = data, 4
        if data[:4] != b"CDF\x01":
            raise SystemExit("make_winds: not a netCDF classic (CDF-1) file")
        self.records = self.u32()
        self.dims = [(self.text(), self.u32()) for _ in range(self.count(10))]  # length 0: the record dimension
        self.attrs = self.attributes()
        self.variables = {}
        for _ in range(self.count(11)):
            name = self.text()
            dims = [self.dims[self.u32()] for _ in range(self.u32())]
            attrs = self.attributes()
            kind, _size, begin = self.u32(), self.u32(), self.u32()
            self.variables[name] = (dims, attrs, kind, begin)
        # One record holds a padded part of each record variable, in the order of the header.
        self.record_bytes = sum(
            -(-self.part_bytes(dims, kind) // 4) * 4 for dims, _, kind, _ in self.variables.values() if dims[0][1] == 0)

    def u32(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def raw(self, n):
        self.at += -(-n // 4) * 4
        return self.data[self.at - -(-n // 4) * 4:][:n]

    def text(self):
        return self.raw(self.u32()).decode("ascii")

    def count(self, tag):
        found, n = self.u32(), self.u32()
        if found != tag and (found or n):
            raise SystemExit(f"make_winds: header list tagged {found}, not {tag}, at byte {self.at - 8}")
        return n

    def attributes(self):
        out = {}
        for _ in range(self.count(12)):
            name, kind, n = self.text(), self.u32(), self.u32()
            letter, size = TYPES[kind]
            raw = self.raw(n * size)
            values = struct.unpack(f">{n}{letter}", raw) if letter != "c" else raw.decode("ascii")
            out[name] = values[0] if letter != "c" and n == 1 else values
        return out

    @staticmethod
    def part_bytes(dims, kind):
        return math.prod(n for _, n in dims if n) * TYPES[kind][1]

    def little(self, name):
        """All values of a variable in C order as little-endian bytes, and its shape."""
        dims, _, kind, begin = self.variables[name]
        part = self.part_bytes(dims, kind)
        if dims[0][1] == 0:
            shape = [self.records] + [n for _, n in dims[1:]]
            starts = [begin + r * self.record_bytes for r in range(self.records)]
        else:
            shape, starts = [n for _, n in dims], [begin]
        raw = b"".join(self.data[s:s + part] for s in starts)
        letter, size = TYPES[kind]
        if len(raw) != math.prod(shape) * size:
            raise SystemExit(f"make_winds: {name}: the file is too short")
        flipped = bytearray(len(raw))
        for k in range(size):
            flipped[k::size] = raw[size - 1 - k::size]
        return bytes(flipped), shape


def dump(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii", newline="\n") as f:
        f.write(json.dumps(value, indent=4, sort_keys=True) + "\n")


def report(name, raw, missing):
    """Statistics of the valid values, in double precision; missing values compared by their bits."""
    values = struct.unpack(f"<{len(raw) // 4}f", raw)
    absent = struct.pack("<f", missing)
    valid = [v for i, v in enumerate(values) if raw[4 * i:4 * i + 4] != absent]
    mean = math.fsum(valid) / len(valid)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in valid) / len(valid))
    odd = sum(not math.isfinite(v) for v in valid)
    print(f"{name}: {len(values)} values, {len(values) - len(valid)} missing ({missing:g}), {odd} not finite, "
          f"min {min(valid):.6g}, max {max(valid):.6g}, mean {mean:.6g}, standard deviation {std:.6g}")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("original")
    args.add_argument("out", nargs="?", default=os.path.relpath(os.path.join(root, "examples", "data", "winds.zarr")))
    args.add_argument("--keep-bits", type=int, default=14, choices=range(1, 24), metavar="N")
    args = args.parse_args()
    out = args.out
    with open(args.original, "rb") as f:
        data = f.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        print(f"make_winds: warning: sha256 {digest}, expected {SHA256}", file=sys.stderr)
    source = Classic(data)
    blosc.set_nthreads(1)
    blosc.use_threads = False
    if os.path.exists(out):
        if not os.path.exists(os.path.join(out, ".zgroup")):
            raise SystemExit(f"make_winds: {out} exists and is no Zarr group: not replacing it")
        shutil.rmtree(out)
    dump(os.path.join(out, ".zgroup"), {"zarr_format": 2})  # first, so that a run cut short can be run again
    meta = {".zgroup": {"zarr_format": 2}}
    meta[".zattrs"] = dict(
        source.attrs,
        title="Monthly mean surface winds over the globe, 1982-1992",
        institution="Fleet Numerical Oceanography Center, US Navy",
        source="monthly_navy_winds.cdf, distributed by NOAA/PMEL with Ferret (Debian package ferret-datasets)",
        source_sha256=digest,
        license="public domain",
        conversion="tools/make_winds.py of insitubatch.h: chunked by 6 months, little-endian, "
        + ("same values bit for bit" if args.keep_bits == 23 else f"mantissa rounded to {args.keep_bits} bits"))
    for old, new in RENAME.items():
        dims, attrs, kind, _ = source.variables[old]
        raw, shape = source.little(old)
        wide = len(shape) == 3
        if wide and args.keep_bits < 23:
            exact = numpy.frombuffer(raw, "<f4")
            rounded = BitRound(args.keep_bits).encode(exact).view("<f4")
            raw = numpy.where(exact == numpy.float32(attrs["_FillValue"]), exact, rounded).astype("<f4").tobytes()
        chunks = [CHUNK_MONTHS] + shape[1:] if wide else shape
        size = TYPES[kind][1]
        compressor = {"id": "blosc", "cname": "zstd", "clevel": 9, "shuffle": 1, "blocksize": 0} if wide else None
        meta[f"{new}/.zarray"] = {
            "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": f"<f{size}", "order": "C", "filters": None,
            "compressor": compressor, "fill_value": attrs.get("_FillValue"), "dimension_separator": "."}
        meta[f"{new}/.zattrs"] = dict(attrs, _ARRAY_DIMENSIONS=[RENAME[d] for d, _ in dims])
        os.makedirs(os.path.join(out, new))
        step = chunks[0] * math.prod(shape[1:]) * size
        assert shape[0] % chunks[0] == 0, "no edge chunk: the last one would need padding"
        for c in range(shape[0] // chunks[0]):
            part = raw[c * step:(c + 1) * step]
            if compressor:
                part = blosc.compress(numpy.frombuffer(part, f"<f{size}"), b"zstd", 9, blosc.SHUFFLE, 0)
            with open(os.path.join(out, new, ".".join([str(c)] + ["0"] * (len(shape) - 1))), "wb") as f:
                f.write(part)
        if wide:
            report(new, raw, attrs["_FillValue"])
    for key, value in meta.items():
        dump(os.path.join(out, key), value)
    dump(os.path.join(out, ".zmetadata"), {"metadata": meta, "zarr_consolidated_format": 1})
    files = [os.path.join(d, f) for d, _, names in os.walk(out) for f in names]
    print(f"{out}: {len(files)} files, {sum(map(os.path.getsize, files))} bytes")


if __name__ == "__main__":
    main()
