"""Has VirtualiZarr scan NetCDF-4 and HDF5 files and write what it found in its three forms: kerchunk's JSON and Parquet, of which
insitu refs makes indexes, and an Icechunk repository.

    write_virtualizarr.py FOLDER INSITU   FOLDER/list: a line "archive TAB array TAB file of bytes" for each array of each form

The bytes are what h5py reads of the files. xarray (Parquet) and zarr-python (JSON, Icechunk) must read the same of what was
written, but for three things that they cannot do, which are named below.
"""
import importlib.metadata
import os
import subprocess
import sys
import warnings

import fsspec
import h5py
import hdf5plugin
import icechunk
import numpy as np
import obstore.store
import virtualizarr
import xarray as xr
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr.parsers import HDFParser

warnings.simplefilter("ignore")
folder, insitu = map(os.path.abspath, sys.argv[1:])
os.makedirs(folder)
os.chdir(folder)
here = f"file://{folder}/"
rng = np.random.default_rng(1)
lines, problems = [], []
# zarr-python does not look where VirtualiZarr writes a scalar's chunk, at "scalar/", and gives the fill value
WRONG = {("kinds.json", "scalar")}
registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})


def scan(name, loaded=()):
    """What VirtualiZarr finds in a file: references, but for what it loads, whose bytes it writes inline."""
    return virtualizarr.open_virtual_dataset(here + name, registry=registry, parser=HDFParser(),
                                             loadable_variables=list(loaded))


def raw_hdf5():
    """One variable for each filter and layout; returns what h5py reads of them."""
    # Of few digits: where a filter gains nothing HDF5 stores the chunk without it, which references cannot say.
    x = np.round(np.cumsum(rng.normal(size=(23, 9, 14)), 0) * 2) / 2
    chunks = {"chunks": (5, 9, 6)}
    kinds = {
        "contiguous": ("f4", {}), "plain": (">i4", chunks), "gzip": ("f8", {"compression": "gzip", **chunks}),
        "shuffle": ("i2", {"shuffle": True, **chunks}),
        "shuffle_gzip": ("f4", {"compression": "gzip", "shuffle": True, **chunks}),
        "fletcher32": ("u2", {"fletcher32": True, **chunks}),
        "all": ("i8", {"compression": "gzip", "shuffle": True, "fletcher32": True, **chunks}),
        "zstd": ("f4", {**hdf5plugin.Zstd(), **chunks}),
        "blosc": ("f4", {**hdf5plugin.Blosc(cname="zstd", shuffle=1), **chunks}),
        "blosc_lz4_bits": ("i4", {**hdf5plugin.Blosc(cname="lz4", shuffle=2), **chunks}),
        "one_chunk": ("f4", {"compression": "gzip", "chunks": (23, 9, 14)}),
        "bool": ("?", {"compression": "gzip", **chunks})}
    with h5py.File("kinds.h5", "w") as f:
        for name, (dtype, how) in kinds.items():
            f.create_dataset(name, data=(x * 5).astype(dtype), **how)
        holes = f.create_dataset("holes", shape=(23, 9), dtype="f4", chunks=(7, 4), fillvalue=-9.5, compression="gzip")
        holes[12:17, 5:] = 2
        f.create_dataset("unwritten", shape=(23, 9), dtype="i2", fillvalue=7)
        f.create_dataset("scalar", data=np.float64(3.25))
    with h5py.File("kinds.h5") as f:
        return {name: d[...] for name, d in f.items()}


def months():
    """NetCDF-4 files of three months, packed, with fill values and times; returns what h5py reads of them, concatenated."""
    parts = []
    for month in 1, 2, 3:
        days, axes = 15, ("time", "lat", "lon")
        x = rng.normal(10, 5, size=(days, 6, 8))
        x[rng.random(x.shape) < 0.1] = np.nan
        ds = xr.Dataset({"t2m": (axes, x), "packed": (axes, x), "wind": (axes, np.nan_to_num(x * 100).astype("i4"))},
                        coords={"time": np.datetime64(f"2001-0{month}-01", "ns") + np.arange(days).astype("m8[D]"),
                                "lat": np.linspace(-50, 50, 6), "lon": np.arange(8.)})
        how = {"chunksizes": (5, 6, 4), "zlib": True, "shuffle": True}
        ds.to_netcdf(f"month{month}.nc", engine="h5netcdf", encoding={
            "t2m": {"dtype": "f4", "_FillValue": np.float32(-999), **how},
            "packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 5.0, "_FillValue": -32768, "fletcher32": True, **how},
            "wind": {"chunksizes": (5, 3, 8)},
            "time": {"units": "hours since 2000-01-01", "dtype": "i8", "chunksizes": (5,)}})
        with h5py.File(f"month{month}.nc") as f:
            parts.append({name: f[name][...] for name in ("t2m", "packed", "wind", "time", "lat", "lon")})
    joined = {name: np.concatenate([p[name] for p in parts]) for name in ("t2m", "packed", "wind", "time")}
    return {**joined, "lat": parts[0]["lat"], "lon": parts[0]["lon"]}


def expect(archive, wanted, read):
    """Notes what an archive must give; `read` has what its usual reader gave."""
    for name, values in wanted.items():
        values = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("="))
        got = np.ascontiguousarray(read(name)).astype(values.dtype)
        if got.tobytes() != values.tobytes() and (archive, name) not in WRONG:
            problems.append(f"{archive} {name}: its usual reader gives other bytes than h5py")
        path = f"{len(lines)}.bin"
        values.tofile(path)
        lines.append(f"{archive}\t{name}\t{path}")


def index(name):
    done = subprocess.run([insitu, "refs", name, "-o", f"{name}.insitu", "--python", sys.executable],
                          capture_output=True, text=True)
    if done.returncode:
        problems.append(f"{name}: {done.stderr.strip()}")


def write(name, ds, wanted):
    ds.vz.to_kerchunk(f"{name}.json", format="json")
    mapper = fsspec.get_mapper("reference://", fo=f"{name}.json", remote_protocol="file")
    opened = zarr.open_group(zarr.storage.FsspecStore.from_mapper(mapper), mode="r", zarr_format=2)
    expect(f"{name}.json", wanted, lambda array: opened[array][...])

    # kerchunk cannot write VirtualiZarr's scalars in Parquet, nor can fsspec with pandas 3 read an absent chunk there
    dims = {array: values for array, values in wanted.items() if values.ndim}
    ds[list(dims)].vz.to_kerchunk(f"{name}.parq", format="parquet", record_size=4)
    table = xr.open_dataset(f"{name}.parq", engine="kerchunk", mask_and_scale=False, decode_times=False,
                            storage_options={"remote_protocol": "file"})
    index(f"{name}.parq")
    expect(f"{name}.parq.insitu", dims, lambda array: dims[array] if array in ("holes", "unwritten") else table[array].values)
    index(f"{name}.json")
    expect(f"{name}.json.insitu", wanted, lambda array: wanted[array])

    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(here, icechunk.local_filesystem_store(folder)))
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(f"{name}.icechunk"), config=config,
                                      authorize_virtual_chunk_access=icechunk.containers_credentials({here: None}))
    session = repo.writable_session("main")
    ds.vz.to_icechunk(session.store)
    session.commit("what VirtualiZarr found")
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    expect(f"{name}.icechunk", wanted, lambda array: group[array][...])


wanted = raw_hdf5()
write("kinds", scan("kinds.h5"), wanted)
wanted = months()
parts = [scan(f"month{m}.nc", ["time", "lat"]) for m in (1, 2, 3)]
write("months", xr.concat(parts, dim="time", data_vars="minimal", coords="minimal", compat="override"), wanted)
with open("list", "w") as f:
    f.write("\n".join(lines) + "\n")
for problem in problems:
    print(f"failed: {problem}")
print(f"virtualizarr {importlib.metadata.version('virtualizarr')}: {len(lines)} arrays written, {len(problems)} problems")
sys.exit(problems != [])
