"""Zarr v2 and v3 by tensorstore. It writes no groups. See cases.py."""
import itertools
import os

import ml_dtypes
import numpy as np
import tensorstore

import cases

DTYPES = cases.NUMBERS + ["bfloat16"]
INNER = ("lz4", "lz4hc", "zstd", "zlib", "blosclz", "snappy")
COMPRESSORS = [("none", None), ("zlib", {"id": "zlib", "level": 1}), ("gzip", {"id": "gzip", "level": 1}),
    ("zstd", {"id": "zstd", "level": 1}), ("bz2", {"id": "bz2", "level": 1})]
COMPRESSORS += [(f"blosc_{c}_{s}", {"id": "blosc", "cname": c, "clevel": 5, "shuffle": s, "blocksize": b})
    for (c, s), b in zip(itertools.product(INNER, (0, 1, 2)), itertools.cycle((0, 256)))]
SQUEEZERS = [("none", []), ("gzip", [{"name": "gzip", "configuration": {"level": 5}}]),
    ("zstd", [{"name": "zstd", "configuration": {"level": 3}}]), ("crc32c", [{"name": "crc32c"}]),
    ("gzip_crc32c", [{"name": "gzip", "configuration": {"level": 1}}, {"name": "crc32c"}])]
SQUEEZERS += [(f"blosc_{c}_{s}", [{"name": "blosc",
    "configuration": {"cname": c, "clevel": 5, "shuffle": s, "typesize": 4, "blocksize": 0}}])
    for c, s in itertools.product(INNER, ("noshuffle", "shuffle", "bitshuffle"))]
PAIRS_V2 = list(itertools.product("<>", DTYPES, COMPRESSORS))
PAIRS_V3 = list(itertools.product(("little", "big"), DTYPES, SQUEEZERS))


def dtype_of(code):
    return np.dtype(ml_dtypes.bfloat16) if code == "bfloat16" else np.dtype(code)


def data_of(rng, shape, code):
    if code == "bfloat16":
        return cases.values(rng, shape, "f4").astype(ml_dtypes.bfloat16)
    return cases.values(rng, shape, code)


def fill_of(rng, code):
    return rng.choice([0, 1.5, -2]) if code == "bfloat16" else cases.fill_of(rng, code)


def write(writer, rng, driver, store, head, metadata, code, shape, chunks, fill):
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": os.path.join(writer.folder, store, head)}, "metadata": metadata}
    array = tensorstore.open(spec, create=True).result()
    data = data_of(rng, shape, code)
    want = cases.with_holes(rng, data, chunks, fill, array.__setitem__)
    dtype = "?" if code == "bfloat16" else None
    return (store, head), want, array[...].read().result(), dtype


def case_v2(writer, rng, number, store, head):
    order, code, (name, compressor) = PAIRS_V2[number * 7 % len(PAIRS_V2)]
    shape, chunks = cases.geometry(rng)
    fill = fill_of(rng, code) if rng.random() < 0.8 and code[0] != "c" else None
    layout = rng.choice("CF") if len(shape) > 1 else "C"
    stored = "bfloat16" if code == "bfloat16" else ("|" if dtype_of(code).itemsize == 1 else order) + code
    metadata = {"dtype": stored, "shape": list(shape), "chunks": list(chunks), "compressor": compressor, "order": layout,
        "fill_value": None if fill is None else cases.fill_json(fill), "dimension_separator": rng.choice("./"), "filters": None}
    return [f"v2{layout}", order.replace("<", "le").replace(">", "be") + code, name], *write(
        writer, rng, "zarr", "v2-" + store, head, metadata, code, shape, chunks, fill)


def case(writer, rng, number, store, head):
    if number % 3 == 0:
        return case_v2(writer, rng, number // 3, store, head)
    order, code, (name, squeeze) = PAIRS_V3[number * 11 % len(PAIRS_V3)]
    shape, chunks = cases.geometry(rng)
    fill = fill_of(rng, code)
    words, inner, axes = [], [], list(range(len(shape)))
    if len(shape) > 1 and rng.random() < 0.4:
        rng.shuffle(axes)
        words.append("transposed")
        inner.append({"name": "transpose", "configuration": {"order": axes}})
    before = inner if words and rng.random() < 0.5 else []  # the transpose lies around the shards
    inner = ([] if before else inner) + [{"name": "bytes", "configuration": {"endian": order}}, *squeeze]
    outer, shards = list(chunks), rng.choice((0, 1, 1)) if shape and 0 not in shape else 0
    if shards:
        index = [{"name": "bytes", "configuration": {"endian": rng.choice(("little", "big"))}}]
        index += [{"name": "crc32c"}] if rng.random() < 0.7 else []
        seen = [chunks[a] for a in axes] if before else list(chunks)
        inner = [{"name": "sharding_indexed", "configuration": {"chunk_shape": seen, "codecs": inner, "index_codecs": index,
            "index_location": rng.choice(("start", "end"))}}]
        outer = [c * rng.choice((1, 2, 3)) for c in chunks]
        words.append("sharded")
    metadata = {"shape": list(shape), "data_type": dtype_of(code).name, "codecs": before + inner,
        "fill_value": cases.fill_json(fill), "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": outer}},
        "chunk_key_encoding": {"name": rng.choice(("default", "v2")), "configuration": {"separator": rng.choice("/.")}}}
    return [order[0] + "e" + code, name, *words], *write(writer, rng, "zarr3", store, head, metadata, code, shape, chunks, fill)


cases.main("ts", case)
