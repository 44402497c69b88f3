#!/usr/bin/env python3
"""What zarr-python and numcodecs read, for tests/interop/conformance.c to compare with. Run by tests/interop/conformance.sh:

    conformance.py LIST FOLDER    LIST: the items of 'conformance --list'

Writes FOLDER/N.npy for the item of line N, or FOLDER/N.txt: why there is none, which begins with "differs: " where the metadata say
something else than what insitubatch.h made of them. What an earlier run wrote as .npy stays, so several Pythons may take turns.
Without the libraries it compares the metadata alone. Prints what it compares with.
"""
import json
import os
import re
import sys
import warnings
import zipfile

warnings.filterwarnings("ignore")
try:
    import numpy as np
except ImportError:
    np = None
try:
    import numcodecs
except ImportError:
    numcodecs = None
try:
    import zarr
except ImportError:
    zarr = None
ZARR = int(zarr.__version__.split(".")[0]) if zarr else 0
# v3 names and their short forms; others are not compared
SHORT = {"bool": "b1", "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16",
    **{f"{u}int{8 * n}": f"{u or 'i'}{n}" for u in ("", "u") for n in (1, 2, 4, 8)}}


class Unknown(Exception):
    pass


# ---- metadata -------------------------------------------------------------------------------------------------------------------


def open_text(root):
    """A function from a key to the parsed document, or None; and the path of the hierarchy inside a zip file."""
    if os.path.isdir(root):
        def get(key):
            path = os.path.join(root, key)
            return json.load(open(path, encoding="utf-8")) if os.path.isfile(path) else None
        return get, ""
    names = set(zipfile.ZipFile(root).namelist())
    inside = ""
    if not names & {"zarr.json", ".zgroup", ".zarray", ".zmetadata"}:
        top = {n.split("/", 1)[0] for n in names}
        if len(top) == 1:
            inside = top.pop() + "/"

    def get(key):
        return json.loads(zipfile.ZipFile(root).read(inside + key)) if inside + key in names else None
    return get, inside


def metadata(root, path):
    """The document of an array: its own, else the consolidated one's."""
    get, _ = open_text(root)
    prefix = path + "/" if path else ""
    for key in "zarr.json", ".zarray":
        own = get(prefix + key)
        if own is not None:
            return own
    found = ((get("zarr.json") or {}).get("consolidated_metadata") or {}).get("metadata", {}).get(path)
    return found or (get(".zmetadata") or {}).get("metadata", {}).get(prefix + ".zarray")


def geometry_differs(root, path, shape, chunk, dtype):
    meta = metadata(root, path)
    if meta is None:
        raise Unknown("there is no metadata document")
    numbers = [[int(n) for n in text.split(",") if n] for text in (shape, chunk)]
    if meta.get("zarr_format") == 2:
        want, name = [meta["shape"], meta["chunks"]], meta["dtype"]
        name = name[1:] if isinstance(name, str) and name[0] in "<>|" and re.fullmatch("[biufc][0-9]+", name[1:]) else None
    else:
        want, name = [meta["shape"], meta["chunk_grid"]["configuration"]["chunk_shape"]], meta["data_type"]
        name = SHORT.get(name) if isinstance(name, str) else None
    for what, is_, should in zip(("shape", "chunk"), numbers, want):
        if is_ != should:
            return f"{what} is {is_}, the metadata say {should}"
    return f"dtype is {dtype}, the metadata say {name}" if name and name != dtype else None


# ---- values ---------------------------------------------------------------------------------------------------------------------


def plain(values):
    """As numpy.save takes it without pickling: C and native byte order, text of fixed width."""
    values = np.asarray(values, order="C")
    if values.dtype.kind == "T":
        values = np.array(values.tolist(), "U").reshape(values.shape)
    if values.dtype.kind == "O":
        kinds = {type(v) for v in values.ravel()}
        if not kinds <= {str, type(None)} and kinds != {bytes}:
            raise Unknown(f"objects of {sorted(k.__name__ for k in kinds)}")
        values = values.astype("S" if kinds == {bytes} else "U")
    return values.astype(values.dtype.newbyteorder("="), order="C")


def read_zarr(root, path, region):
    where = [slice(*map(int, part.split(":"))) for part in region.split(",")] if region else ...
    inside = open_text(root)[1]
    store = root
    if not os.path.isdir(root):
        store = (zarr.storage.ZipStore if ZARR >= 3 else zarr.ZipStore)(root, mode="r")
    full = (path if path.startswith(inside) else inside + path).strip("/")
    try:
        group = zarr.open(store, mode="r", path=inside.strip("/") or None) if path else None
        array = group[path] if path else zarr.open_array(store, mode="r", path=full or None)
    except Exception:  # no group around it, or only the consolidated document knows it
        if ZARR >= 3:
            array = zarr.open_array(store, mode="r", path=full or None)
        elif path and metadata(root, path) and not os.path.exists(os.path.join(root, path)):
            array = zarr.open_consolidated(store, mode="r")[path]
        else:
            array = zarr.open_array(store, mode="r", path=full or None)
    if ZARR == 2 and array.fill_value is None and not array.dtype.hasobject:
        array._fill_value = np.zeros((), array.dtype)[()]  # or absent chunks would be memory as it was found
    return plain(array[tuple(where) if region else ...])


def read_numcodecs(encoded, config, array):
    with open(config, encoding="utf-8") as f:
        config = json.load(f)
    with open(encoded, "rb") as f:
        decoded = numcodecs.get_codec(config).decode(f.read())
    if isinstance(decoded, np.ndarray) and decoded.dtype.kind == "O":
        return plain(decoded)
    if "dtype" in config or "decode_dtype" in config:
        return plain(np.asarray(decoded).view(config.get("decode_dtype") or config["dtype"]))
    return np.frombuffer(np.asarray(decoded).tobytes(order="A") if isinstance(decoded, np.ndarray) else bytes(decoded), "u1")


def item(fields):
    """The values; None where the metadata alone were compared."""
    kind = fields[0]
    if kind == "zarr":
        root, path, shape, chunk, dtype, region = fields[1:]
        if dtype:
            difference = geometry_differs(root, path, shape, chunk, dtype)
            if difference:
                raise Unknown("differs: " + difference)
        if region == "-" or zarr is None:
            return None
        return read_zarr(root, path, region)
    if kind == "numcodecs":
        return read_numcodecs(*fields[1:]) if numcodecs else None
    if kind == "root":
        get = open_text(fields[1])[0]
        if not any(get(key) for key in ("zarr.json", ".zgroup", ".zarray", ".zmetadata")):
            raise Unknown("no metadata at its root")
    return None


def main(listing, folder):
    names = [f"{m.__name__} {m.__version__}" for m in (zarr, numcodecs) if m]
    python = "Python " + sys.version.split()[0]
    print(f"conformance: compared with {' and '.join(names) or 'the metadata as JSON'}, by {python}", flush=True)
    for number, line in enumerate(open(listing, encoding="utf-8", errors="surrogateescape"), 1):
        out = os.path.join(folder, str(number))
        if os.path.exists(out + ".npy"):
            continue
        try:
            values = item(line.rstrip("\n").split("\t"))
        except Exception as e:
            said = str(e) if isinstance(e, Unknown) else f"{type(e).__name__}: {e}"
            with open(out + ".txt", "w", encoding="utf-8", errors="replace") as f:
                f.write(" ".join(said.split())[:250])
            continue
        if values is not None:
            with open(out + ".npy", "wb") as f:
                np.save(f, values, allow_pickle=False)
            if os.path.exists(out + ".txt"):
                os.remove(out + ".txt")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
