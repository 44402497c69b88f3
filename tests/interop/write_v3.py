"""Zarr v3, and some v2, by zarr-python 3 with the codecs of numcodecs. See cases.py."""
import itertools
import json
import os
import shutil
import warnings

import numpy as np
import zarr

import cases

warnings.filterwarnings("ignore")
OTHERS = {"S5": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}},
    "U3": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 12}},
    "M8[ns]": {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}},
    "m8[s]": {"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 1}}}
OTHER_FILLS = {"S5": "", "U3": "", "M8[ns]": 0, "m8[s]": 0}


def codec(name, **configuration):
    plain = not configuration and not name.startswith("numcodecs.")  # zarr-python wants an empty one of those
    return {"name": name} if plain else {"name": name, "configuration": configuration}


def compressors(size):
    """(name, bytes-to-bytes codecs) for elements of so many bytes."""
    out = [("none", []), ("gzip", [codec("gzip", level=5)]), ("zstd", [codec("zstd", level=3, checksum=False)]),
        ("zstdsum", [codec("zstd", level=0, checksum=True)]), ("crc32c", [codec("crc32c")]),
        ("zstd_crc32c", [codec("zstd", level=1, checksum=False), codec("crc32c")]),
        ("ncshuffle_zlib", [codec("numcodecs.shuffle", elementsize=size), codec("numcodecs.zlib", level=1)]),
        ("nclz4", [codec("numcodecs.lz4", acceleration=1)]), ("ncbz2", [codec("numcodecs.bz2", level=1)]),
        ("ncgzip", [codec("numcodecs.gzip", level=1)]), ("nczstd", [codec("numcodecs.zstd", level=1)]),
        ("ncblosc", [codec("numcodecs.blosc", cname="zstd", clevel=1, shuffle=2, blocksize=0)]),
        *((name, [codec(f"numcodecs.{name}")]) for name in ("crc32", "adler32", "fletcher32"))]
    return out + [(f"blosc_{c}_{s}", [codec("blosc", cname=c, clevel=5, shuffle=s, typesize=size, blocksize=0)])
        for c, s in itertools.product(("lz4", "lz4hc", "zstd", "zlib", "blosclz"), ("noshuffle", "shuffle", "bitshuffle"))]


PAIRS = list(itertools.product(("little", "big"), cases.NUMBERS, range(len(compressors(1)))))


def filters_of(rng, dtype):
    """(name, array-to-array codecs of numcodecs, does it lose)."""
    kind, size = dtype.kind, dtype.itemsize
    choices = []
    if kind in "iuf":
        choices.append(("delta", [codec("numcodecs.delta", dtype=dtype.str)], kind == "f"))
    if kind in "iu" and 1 < size < 8:
        wide = f"<{kind}8"
        choices.append(("astype", [codec("numcodecs.astype", encode_dtype=wide, decode_dtype=dtype.str)], False))
    if kind == "b":
        choices.append(("packbits", [codec("numcodecs.packbits")], False))
    if kind == "f" and size > 2:
        name = dtype.str
        choices += [("quantize", [codec("numcodecs.quantize", digits=2, dtype=name)], True),
            ("bitround", [codec("numcodecs.bitround", keepbits=6)], True),
            ("fso", [codec("numcodecs.fixedscaleoffset", offset=-10, scale=8, dtype=name, astype="<i4")], True),
            ("fso_delta", [codec("numcodecs.fixedscaleoffset", offset=3, scale=10, dtype=name, astype="<i2"),
                codec("numcodecs.delta", dtype="<i2")], True)]
    return rng.choice(choices) if choices else ("", [], False)


def chain(rng, shape, chunks, order, squeeze, filters):
    """(words, the stored object's shape, codecs)."""
    to_bytes = codec("bytes", endian=order)
    turned = []
    if len(shape) > 1 and rng.random() < 0.3 and not any(c["name"] == "numcodecs.packbits" for c in filters):
        axes = list(range(len(shape)))
        rng.shuffle(axes)
        turned = [codec("transpose", order=axes)]
    inner = [*turned, *filters, to_bytes, *squeeze]
    words, outer = (["transposed"] if turned else []), chunks
    for _ in range(rng.choice((0, 0, 1, 1, 2)) if shape and 0 not in shape else 0):
        index = [codec("bytes", endian=rng.choice(("little", "big")))] + ([codec("crc32c")] if rng.random() < 0.7 else [])
        shard = {"chunk_shape": list(outer), "codecs": inner, "index_codecs": index, "index_location": rng.choice(("start", "end"))}
        inner = [{"name": "sharding_indexed", "configuration": shard}]
        outer = tuple(c * rng.choice((1, 2, 3)) for c in outer)
        words.append("sharded")
    if words and words[-1] == "sharded" and rng.random() < 0.1:
        inner.append(codec("gzip", level=1))
        words.append("gzipped")
    return words, outer, inner


def case_v2(writer, rng, store, head):
    """The format before, by the newer library."""
    dtype = np.dtype(rng.choice("<>") + rng.choice(cases.NUMBERS))
    shape, chunks = cases.geometry(rng, 800)
    name, compressor = rng.choice([("none", None), ("default", "auto"), ("gzip", zarr.codecs.numcodecs.GZip(level=1)._codec),
        ("blosc", zarr.codecs.numcodecs.Blosc(cname="lz4", shuffle=1)._codec), ("lz4", zarr.codecs.numcodecs.LZ4()._codec)])
    fill, layout = cases.fill_of(rng, dtype), rng.choice("CF")
    root = zarr.open_group(os.path.join(writer.folder, store), mode="a", zarr_format=2)
    array = root.create_array(head, shape=shape, chunks=chunks or "auto", dtype=dtype, compressors=compressor, fill_value=fill,
        order=layout, chunk_key_encoding={"name": "v2", "separator": rng.choice("./")})
    want = cases.with_holes(rng, cases.values(rng, shape, dtype).astype(dtype), chunks, fill, array.__setitem__)
    return ["v2" + layout, dtype.str[1:], name], (store, head), want, array[...], None


def case(writer, rng, number, store, head):
    if number % 6 == 5:
        return case_v2(writer, rng, "v2-" + store, head)
    order, code, which = PAIRS[(number * 11) % len(PAIRS)] if number % 10 else rng.choice(PAIRS)
    if number % 20 == 19:
        code = rng.choice(sorted(OTHERS))
    dtype = np.dtype(code).newbyteorder("=")
    squeeze_name, squeeze = compressors(dtype.itemsize)[which]
    filter_name, filters, loses = filters_of(rng, dtype) if number % 4 == 0 else ("", [], False)
    if filters:
        order = "little"  # in the other, zarr-python does not read back what it wrote
    shape, chunks = cases.geometry(rng, 1200)
    fill = None if code in OTHERS or filters else cases.fill_of(rng, dtype)
    words, outer, codecs = chain(rng, shape, chunks, order, squeeze, filters)
    path = ("group/" if number % 5 == 0 else "") + head
    where = os.path.join(writer.folder, store)
    root = zarr.open_group(where, mode="a", zarr_format=3)
    if path != head:
        root.require_group("group")
    keys = codec(rng.choice(("default", "default", "v2")), separator=rng.choice("/."))
    document = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": OTHERS.get(code, dtype.name),
        "chunk_grid": codec("regular", chunk_shape=list(outer)), "chunk_key_encoding": keys,
        "fill_value": OTHER_FILLS.get(code, cases.fill_json(fill)), "codecs": codecs, "attributes": {}}
    os.makedirs(os.path.join(where, path))
    with open(os.path.join(where, path, "zarr.json"), "w", encoding="ascii") as f:
        json.dump(document, f)
    with zarr.config.set({"array.write_empty_chunks": rng.random() < 0.5}), np.errstate(all="ignore"):
        try:
            array = zarr.open_array(os.path.join(where, path), mode="r+")
        except Exception:
            shutil.rmtree(os.path.join(where, path))  # or the store could not be consolidated
            raise
        want = cases.with_holes(rng, cases.values(rng, shape, dtype, bool(filters)), chunks, fill, array.__setitem__)
        own = array[...]
    if loses:
        want = np.asarray(own)
    if number // cases.STORE % 2 and ((number + 2) % cases.STORE == 0 or number + 2 >= writer.count or writer.only):
        zarr.consolidate_metadata(where)
    words = [order[0] + "e" + code.split("[")[0], squeeze_name] + ([filter_name] if filter_name else []) + words
    return words, (store, path), want, own, None


cases.main("v3", case)
