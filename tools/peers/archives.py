"""Writes the archives that the peers read: the same bytes for the same arguments.

    archives.py FOLDER SAMPLES ROWS COLUMNS NAME...     NAME: CODEC-CHUNK, such as lz4-1, lz4-s32

lz4 and zstd are blosc's lz4 (level 5, byte shuffle) and zstd (level 3, no filter); the number is
samples in a chunk, and s32 is shards of 32 chunks of one sample each (Zarr v3; the others are v2,
which all the peers read). An archive that is there is left as it is. FOLDER/truth holds the
checksum of each sample, computed before anything is written.

A field looks like a temperature: a profile along latitude, waves that travel, and noise in steps
of 1/256. All is made of integers and exact float32 arithmetic, so that no machine's libm makes a
difference.
"""

import os
import shutil
import sys
import zlib

import numcodecs
import numpy as np
import zarr
import zarr.codecs

ARRAY = "t2m"


def triangle(phase, period):
    """A wave of integers, from -period/4 to period/4."""
    return np.abs(phase % period - period // 2) - period // 4


def field(number, rows, columns):
    lat, lon = np.arange(rows, dtype=np.int64)[:, None], np.arange(columns, dtype=np.int64)[None, :]
    far = 2 * lat - rows
    steps = 256 * 290 - 256 * 60 * far * far // max(rows * rows, 1)  # in steps of 1/256 K
    steps = (
        steps
        + 8 * triangle(lon * 4 + lat + 3 * number, 512)
        + 5 * triangle(lon - 3 * lat - 5 * number, 240)
    )
    noise = np.random.Generator(np.random.PCG64(number)).bytes(rows * columns)
    steps = steps + (np.frombuffer(noise, np.uint8).reshape(rows, columns) >> 3)
    return steps.astype(np.float32) / np.float32(256)


def create(folder, name, samples, rows, columns):
    codec, chunk = name.split("-")
    sharded = chunk.startswith("s")
    inner = 1 if sharded else int(chunk)
    shape, dims = (samples, rows, columns), ("time", "latitude", "longitude")
    common = {
        "name": ARRAY,
        "shape": shape,
        "chunks": (inner, rows, columns),
        "dtype": "float32",
        "fill_value": float("nan"),
        "attributes": {"units": "K"},
    }
    group = zarr.open_group(folder, mode="w", zarr_format=3 if sharded else 2)
    if sharded:
        packed = (
            zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4)
            if codec == "lz4"
            else zarr.codecs.ZstdCodec(level=3)
        )
        array = group.create_array(
            **common,
            shards=(int(chunk[1:]), rows, columns),
            compressors=[packed],
            dimension_names=dims,
        )
    else:
        packed = (
            numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)
            if codec == "lz4"
            else numcodecs.Zstd(3)
        )
        array = group.create_array(**common, compressors=[packed])
        array.attrs["_ARRAY_DIMENSIONS"] = dims
    coordinates = {
        "time": np.arange(samples, dtype=np.int64) * 6,
        "latitude": np.linspace(-90, 90, rows),
        "longitude": np.arange(columns) * (360 / columns),
    }
    for dim, values in coordinates.items():
        named = {"dimension_names": (dim,)} if sharded else {}
        made = group.create_array(
            name=dim,
            shape=values.shape,
            chunks=values.shape,
            dtype=values.dtype,
            compressors=None,
            **named,
        )
        made[:] = values
        if not sharded:
            made.attrs["_ARRAY_DIMENSIONS"] = (dim,)
        if dim == "time":
            made.attrs.update(units="hours since 1979-01-01", calendar="proleptic_gregorian")
    zarr.consolidate_metadata(group.store)
    return array, int(chunk[1:]) if sharded else inner


def main():
    folder, (samples, rows, columns), names = sys.argv[1], map(int, sys.argv[2:5]), sys.argv[5:]
    truth = os.path.join(folder, "truth")
    missing = [n for n in names if not os.path.exists(os.path.join(folder, n))]
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(truth):
        with open(truth + ".new", "w", encoding="utf-8") as f:
            f.writelines(
                f"{zlib.crc32(field(i, rows, columns).tobytes()):08x}\n" for i in range(samples)
            )
        os.rename(truth + ".new", truth)
    for name in missing:
        new = os.path.join(folder, name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        array, step = create(new, name, samples, rows, columns)
        for low in range(0, samples, step):
            array[low : low + step] = np.stack(
                [field(i, rows, columns) for i in range(low, min(low + step, samples))]
            )
        os.rename(new, os.path.join(folder, name))
        print(f"bench-peers: wrote {name}", flush=True)


main()
