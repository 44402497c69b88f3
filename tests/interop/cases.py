"""What the writers of make test-interop share: seeded cases, their values, and the index that tests/interop/read.c reads.

    python write_X.py FOLDER SEED COUNT [ONLY]     ONLY: the name of one case, or its beginning

A writer fills FOLDER with stores, expected.bin with the elements in C order and native bytes, and index.txt with a line for each
array: name, store, path, dtype, shape, offset and bytes in expected.bin, between tabs. A case depends on the seed and on its number
alone.
"""
import itertools
import math
import os
import random
import shutil
import sys
import traceback
import zipfile

import numpy as np

NUMBERS = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
OTHERS = ["S5", "U3", "V4", "M8[ns]", "m8[s]"]
STORE = 40  # arrays in one store
ZIPPED = 8  # one store of so many becomes a zip file


def short(dtype):
    """As the index says it: kind and bytes; "?" where it is not compared."""
    dtype = np.dtype(dtype)
    return f"{dtype.kind}{dtype.itemsize}" if dtype.kind in "biufc" else "?"


def values(rng, shape, dtype, tame=False):
    """Runs that compressors find, noise, and in floats what is special; tame: small numbers without any of that."""
    n = math.prod(shape)
    steps = np.array([rng.randrange(-4, 5) for _ in range(min(n, 64))] or [0], np.int64)
    flat = np.resize(steps, n).cumsum() + np.arange(n) // 7
    dtype = np.dtype(dtype).newbyteorder("=")
    if dtype.kind in "SU":
        words = ["", "a", "\u00e9t\u00e9" if dtype.kind == "U" else "xyz", "abcdef"]
        return np.array([words[int(k) % 4] for k in flat], dtype).reshape(shape)
    if dtype.kind in "Vb":
        raw = np.frombuffer(np.random.RandomState(rng.randrange(2 ** 31)).bytes(n * dtype.itemsize), "u1")
        return (raw & 1).astype(bool).reshape(shape) if dtype.kind == "b" else raw.view(dtype).reshape(shape)
    if dtype.kind == "c":
        return (flat / 4 - 1j * (flat % 5)).astype(dtype).reshape(shape)
    if dtype.kind == "f":
        out = (flat / 8).astype(dtype)
        if not tame and n > 8 and rng.random() < 0.3:
            out[:6] = [math.nan, math.inf, -math.inf, -0.0, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max]
            out = np.roll(out, rng.randrange(n))
        return out.reshape(shape)
    if not tame and rng.random() < 0.3:
        noise = np.random.RandomState(rng.randrange(2 ** 31)).bytes(n * dtype.itemsize)
        return np.frombuffer(noise, dtype).reshape(shape).copy()
    return (flat & 0x7f if tame else flat).astype(dtype).reshape(shape)


def fill_of(rng, dtype):
    """None, or an element; None says nothing about absent chunks."""
    dtype = np.dtype(dtype).newbyteorder("=")
    if dtype.kind == "f":
        pick = rng.choice([0, math.nan, math.inf, -math.inf, -9.5, 1e20 if dtype.itemsize > 2 else 3.25])
        return dtype.type(pick)
    if dtype.kind == "c":
        return dtype.type(rng.choice([0, complex(1.5, -2)]))
    if dtype.kind == "b":
        return dtype.type(rng.random() < 0.5)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(rng.choice([0, 1, 7, info.max, info.min]))
    return None


def geometry(rng, most=3000):
    """(shape, chunks): 0 to 4 axes, ragged edges, sometimes chunks that are larger than the array, sometimes no elements."""
    ndim = rng.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4])
    shape, chunks = [], []
    for _ in range(ndim):
        side = rng.randrange(1, max(2, int(most ** (1 / ndim)) + 1))
        chunk = max(1, rng.choice([side, side, (side + 1) // 2, side // 2, side // 3, side // 4 + 1, side + 2]))
        while math.prod(-(-s // c) for s, c in zip(shape, chunks)) * -(-side // chunk) > 30:
            chunk *= 2
        shape.append(side)
        chunks.append(chunk)
    if ndim and rng.random() < 0.01:
        shape[rng.randrange(ndim)] = 0
    return tuple(shape), tuple(chunks)


def boxes(shape, chunks):
    cells = itertools.product(*(range(-(-s // c)) for s, c in zip(shape, chunks)))
    return [tuple(slice(i * c, min((i + 1) * c, s)) for i, c, s in zip(cell, chunks, shape)) for cell in cells]


def with_holes(rng, data, chunks, fill, write, share=0.25):
    """Writes the data by chunks, some of them left out when there is a fill value; returns what must be read."""
    if fill is None or data.size == 0 or not data.ndim or rng.random() > share:
        if data.size:
            write(..., data)
        return data
    want = data.copy()
    for box in boxes(data.shape, chunks):
        if rng.random() < 0.4:
            want[box] = fill
        else:
            write(box, data[box])
    return want


def fill_json(value):
    """A fill value as metadata have it."""
    if value is None:
        return 0
    value = np.asarray(value)
    if value.dtype.kind == "c":
        return [fill_json(value.real), fill_json(value.imag)]
    value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def same(a, b):
    """Bits compared."""
    a, b = (np.asarray(x) for x in (a, b))
    a, b = (np.ascontiguousarray(x.astype(x.dtype.newbyteorder("="))) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def zip_store(folder, deflated):
    """The folder as a zip file beside it, and gone."""
    with zipfile.ZipFile(folder + ".zip", "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as z:
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(where, name)
                z.write(path, os.path.relpath(path, folder))
    shutil.rmtree(folder)


class Writer:
    """kind: the beginning of its names. case(rng, number, store, head) writes one array, which may be named head, into the folder's
    store. It returns words of its name, (store, path), what must be read, what the writer itself reads or None, and dtype or
    None."""

    def __init__(self, kind, folder, seed, count, only=""):
        self.kind, self.folder, self.seed, self.count, self.only = kind, folder, int(seed), int(count), only
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.index = open(os.path.join(folder, "index.txt"), "w", encoding="utf-8")
        self.expected = open(os.path.join(folder, "expected.bin"), "wb")
        self.written = self.unlike = 0
        self.zips = set()

    def add(self, name, store, path, want, dtype=None):
        want = np.asarray(want)
        raw = want.astype(want.dtype.newbyteorder("=")).tobytes(order="C")
        shape = ",".join(map(str, want.shape))
        fields = (name, store, path, dtype or short(want.dtype), shape, str(self.expected.tell()), str(len(raw)))
        self.index.write("\t".join(fields) + "\n")
        self.expected.write(raw)
        self.written += 1

    def run(self, case):
        for number in range(self.count):
            head = f"{self.kind}-{number:04d}"
            if self.only and not (self.only.startswith(head) or head.startswith(self.only)):
                continue
            rng = random.Random(f"{self.seed}-{head}")
            store = f"{number // STORE:03d}.zarr"
            try:
                words, (store, path), want, own, dtype = case(rng, number, store, head)
            except Exception as e:
                print(f"{head}: the writer fails: {type(e).__name__}: {e}"[:300])
                if self.only:
                    traceback.print_exc()
                self.unlike += 1
                continue
            name = "-".join([head, *words])
            if own is not None and not same(own, want):
                print(f"{name}: the writer does not read back what it wrote: not tried")
                self.unlike += 1
                continue
            if number // STORE % ZIPPED == ZIPPED - 1:
                self.zips.add(store)
                store += ".zip"
            self.add(name, store, path, want, dtype)
        self.index.close()
        self.expected.close()


def main(kind, case, finish=None):
    """finish: called when all is written, before stores are zipped."""
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    writer = Writer(kind, *sys.argv[1:])
    writer.run(lambda *a: case(writer, *a))
    if finish:
        finish()
    for number, store in enumerate(sorted(writer.zips)):
        zip_store(os.path.join(writer.folder, store), number % 2)
    print(f"{writer.kind}: {writer.written} arrays written, {writer.unlike} left out")
