"""Arrays with rectilinear chunk grids, by zarr-python 3.2 or newer, which needs Python 3.12. See cases.py."""
import os
import warnings

import numpy as np
import zarr

import cases

warnings.filterwarnings("ignore")
zarr.config.set({"array.rectilinear_chunks": True})


def edges(rng, length, unit=1):
    """Lengths of chunks along an axis: of any kind, runs of equal ones, one behind the end."""
    out, most = [], 1 + rng.randrange(max(1, -(-length // unit)))
    while sum(out) < length:
        out.append(out[-1] if out and rng.random() < 0.4 else unit * (1 + rng.randrange(most)))
    return out + ([unit] if rng.random() < 0.1 else [])


def compressors(rng):
    return rng.choice([None, zarr.codecs.ZstdCodec(level=1), zarr.codecs.GzipCodec(level=1),
        zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="shuffle")])


def case(writer, rng, number, store, head):
    dtype = np.dtype(rng.choice(cases.NUMBERS))
    shape = tuple(1 + rng.randrange(12) for _ in range(1 + rng.randrange(3)))
    root = zarr.open_group(os.path.join(writer.folder, store), mode="a", zarr_format=3)
    fill = cases.fill_of(rng, dtype)
    words, more = ["rect", dtype.str[1:]], {}
    grid = [edges(rng, n) for n in shape]
    if number % 4 == 3:
        inner = tuple(1 + rng.randrange(3) for _ in shape)
        more = {"shards": [edges(rng, n, i) for n, i in zip(shape, inner)]}
        grid = inner
        words.append("sharded")
    elif len(shape) > 1 and rng.random() < 0.3:
        order = list(range(len(shape)))
        rng.shuffle(order)
        more = {"filters": [zarr.codecs.TransposeCodec(order=order)]}
        words.append("transposed")
    array = root.create_array(head, shape=shape, chunks=grid, dtype=dtype, fill_value=fill, compressors=compressors(rng), **more)
    want = cases.values(rng, shape, dtype)
    if rng.random() < 0.5:  # some chunks are left out
        keep = np.zeros(shape, bool)
        keep[tuple(slice(rng.randrange(n), None) for n in shape)] = True
        box = tuple(slice(int(i.min()), None) for i in np.nonzero(keep))
        whole = np.full(shape, array.fill_value, want.dtype)
        array[box] = want[box]
        whole[box] = want[box]
        want = whole
    else:
        array[...] = want
    return words, (store, head), want, array[...], None


cases.main("rect", case)
