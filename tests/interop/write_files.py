"""Writes HDF5, NetCDF-4, NetCDF-3 and GRIB files, Zarr archives of single years and kerchunk's references with the libraries that
people use, has `insitu index` or `insitu refs` describe them, and writes what these libraries read of every array beside it.

    write_files.py FOLDER INSITU [WINDS WINDS.zarr]   FOLDER/list: a line "index TAB array TAB file of bytes" for each array
"""
import json
import os
import shutil
import subprocess
import sys
import warnings

import cfgrib
import eccodes
import h5py
import hdf5plugin
import kerchunk.df
import kerchunk.hdf
import netCDF4
import numpy as np
import pandas as pd
import xarray as xr
import zarr

warnings.simplefilter("ignore")
folder, insitu, *WINDS = map(os.path.abspath, sys.argv[1:])
os.makedirs(folder, exist_ok=True)
os.chdir(folder)
rng = np.random.default_rng(1)
smooth = np.cumsum(rng.normal(size=(50, 37, 29)), 0).astype("f4")
lines, problems = [], 0


def index(name, *files, command="index", options=(), left_out=()):
    global problems
    done = subprocess.run([insitu, command, *files, "-o", name, *options], capture_output=True, text=True)
    told = [line.split("'")[1] for line in done.stderr.splitlines() if "is left out" in line]
    if done.returncode or sorted(told) != sorted(left_out):
        problems += 1
        print(f"failed: {name}: {done.stderr.strip()}")
    return done.returncode == 0


def expect(name, array, values):
    values = np.ascontiguousarray(values)
    values = values.astype(values.dtype.newbyteorder("="))
    path = f"{len(lines)}.bin"
    values.tofile(path)
    lines.append(f"{name}\t{array}\t{path}")


def hdf5():
    c = {"chunks": (7, 20, 29)}
    filters = {
        "plain": {}, "gzip": {"compression": "gzip"}, "shuffle": {"shuffle": True}, "fletcher32": {"fletcher32": True},
        "gzip_shuffle": {"compression": "gzip", "shuffle": True},
        "gzip_shuffle_fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "zstd": hdf5plugin.Zstd(), "bzip2": hdf5plugin.BZip2(), "zstd_shuffle": {"shuffle": True, **hdf5plugin.Zstd()},
        "lzf": {"compression": "lzf"}, "bitshuffle": hdf5plugin.Bitshuffle()}
    for inside in "lz4", "zstd", "blosclz", "zlib", "lz4hc":
        for shuffle in 0, 1, 2:
            filters[f"blosc_{inside}_{shuffle}"] = hdf5plugin.Blosc(cname=inside, shuffle=shuffle)
    for version, bounds in ("old", None), ("v110", ("v110", "v110")):
        name = f"{version}.h5"
        with h5py.File(name, "w", libver=bounds, userblock_size=512) as f:
            for key, how in filters.items():
                f.create_dataset(key, data=smooth, **c, **how)
            f.create_dataset("contiguous", data=smooth)
            f.create_dataset("big", data=smooth.astype(">f8"), **c, compression="gzip")
            noise = rng.integers(0, 2**32, size=(50, 37), dtype="u4")
            f.create_dataset("noise", data=noise, chunks=(16, 37), **hdf5plugin.Zstd(), shuffle=True)
            for kind in "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ?".split():
                f.create_dataset(f"type_{kind}".replace("?", "bool"), data=(smooth[:5] * 3).astype(kind), chunks=(2, 37, 29),
                                 compression="gzip")
            f.create_dataset("text", data=np.array([[b"ab", b"cde"], [b"", b"xyzw"]], "S6"))
            f.create_dataset("scalar", data=np.float64(3.25))
            d = f.create_dataset("holes", shape=(100, 40), dtype="f4", chunks=(10, 20), fillvalue=-9.5, compression="gzip")
            d[35:47, 5:8] = 2
            f.create_dataset("unwritten", shape=(10, 10), dtype="i4")
            f.create_dataset("grows", data=smooth, **c, maxshape=(None, 37, 29), compression="gzip")
            f.create_dataset("grows_twice", data=smooth, **c, maxshape=(None, None, 29), compression="gzip")
            f.create_dataset("one_chunk", data=smooth, chunks=smooth.shape, compression="gzip")
            f.create_group("a/b").create_dataset("deep", data=np.arange(1000), chunks=(100,))
            f.create_dataset("strings", data=["a", "bb"], dtype=h5py.string_dtype())
        if not index(f"{version}.insitu", name, left_out=("lzf", "bitshuffle", "strings")):
            continue
        with h5py.File(name) as f:
            names = []
            f.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
            for n in names:
                if n not in ("lzf", "bitshuffle", "strings"):
                    expect(f"{version}.insitu", n, f[n][...])


def netcdf():
    for form, name in ("NETCDF4", "n4"), ("NETCDF3_CLASSIC", "n1"), ("NETCDF3_64BIT_OFFSET", "n2"), ("NETCDF3_64BIT_DATA", "n5"):
        with netCDF4.Dataset(f"{name}.nc", "w", format=form) as n:
            for dim, length in ("time", None), ("lat", 37), ("lon", 29), ("len", 8):
                n.createDimension(dim, length)
            time = n.createVariable("time", "f8", ("time",))
            time.units = "hours since 2000-01-01"
            time[:] = np.arange(50)
            n.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-90, 90, 37)
            more = {"zlib": True, "shuffle": True} if name == "n4" else {}
            n.createVariable("t2m", "f4", ("time", "lat", "lon"), fill_value=-999., **more)[:] = smooth
            more = {"zlib": True, "fletcher32": True} if more else {}
            packed = n.createVariable("packed", "i2", ("time", "lat", "lon"), fill_value=-32768, **more)
            packed.scale_factor, packed.add_offset = 0.01, 5.0
            packed[:] = smooth
            n.createVariable("fixed", "f8", ("lat", "lon"))[:] = smooth[0]
            n.createVariable("odd", "i1", ("time", "lon"))[:] = (smooth[:, 0] * 5).astype("i1")
            n.createVariable("name", "S1", ("lat", "len"))[:] = np.array(list("stationx"), "S1")[None].repeat(37, 0)
        if index(f"{name}.insitu", f"{name}.nc"):
            with netCDF4.Dataset(f"{name}.nc") as n:
                n.set_auto_maskandscale(False)
                for v in n.variables.values():
                    expect(f"{name}.insitu", v.name, v[...])
    references = kerchunk.hdf.SingleHdf5ToZarr("n4.nc", inline_threshold=100, error="ignore").translate()
    with open("n4.json", "w") as f:
        json.dump(references, f)
    kerchunk.df.refs_to_dataframe(references, "n4.parq", record_size=7, categorical_threshold=3)
    for source in "n4.json", "n4.parq":
        if index(f"{source}.insitu", source, command="refs", options=("--python", sys.executable)):
            with netCDF4.Dataset("n4.nc") as n:
                n.set_auto_maskandscale(False)
                for v in n.variables.values():
                    if f"{v.name}/.zarray" in references["refs"]:
                        expect(f"{source}.insitu", v.name, v[...])


def years():
    """Twelve years of unequal length, as Zarr v2 and v3, NetCDF-4 and NetCDF-3."""
    sets = {"zarr2": [], "zarr3": [], "nc4": [], "nc3": []}
    for year in range(1999, 2011):
        time = pd.date_range(f"{year}-01-01", f"{year}-12-31", freq="D")
        x = np.random.default_rng(year).normal(size=(len(time), 6, 8)).astype("f4")
        axes = ("time", "lat", "lon")
        ds = xr.Dataset({"t2m": (axes, x), "wind": (axes, (x * 100).astype("i2"))},
                        coords={"time": time, "lat": np.arange(6.), "lon": np.arange(8.)})
        chunks = {"t2m": (30, 6, 8), "wind": (50, 3, 8)}
        for form in 2, 3:
            sets[f"zarr{form}"].append(f"y{year}-{form}.zarr")
            ds.to_zarr(sets[f"zarr{form}"][-1], zarr_format=form, encoding={k: {"chunks": c} for k, c in chunks.items()})
        sets["nc4"].append(f"y{year}.nc4")
        ds.to_netcdf(sets["nc4"][-1], encoding={k: {"chunksizes": c, "zlib": True, "shuffle": True} for k, c in chunks.items()})
        sets["nc3"].append(f"y{year}.nc")
        ds.to_netcdf(sets["nc3"][-1], format="NETCDF3_64BIT", unlimited_dims=["time"])
    for kind, files in sets.items():
        if not index(f"years-{kind}.insitu", *files):
            continue
        engine = "zarr" if "zarr" in kind else None
        parts = [xr.open_dataset(name, engine=engine, decode_times=True).load() for name in files]
        for array in "t2m", "wind":
            expect(f"years-{kind}.insitu", array, np.concatenate([p[array].values for p in parts]))
        days = np.concatenate([p["time"].values for p in parts]) - np.datetime64("1999-01-01", "ns")
        expect(f"years-{kind}.insitu", "time", (days / np.timedelta64(1, "D")).astype("i4" if kind == "nc3" else "i8"))
        expect(f"years-{kind}.insitu", "lat", parts[0]["lat"].values)


def message(f, name, level_type, level, date, clock, step, number=None, missing=False, packing="grid_simple",
            south_up=False):
    h = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    first, last = (-50, 50) if south_up else (50, -50)
    for key, value in {"Ni": 20, "Nj": 11, "latitudeOfFirstGridPointInDegrees": first,
                       "latitudeOfLastGridPointInDegrees": last, "longitudeOfFirstGridPointInDegrees": 0,
                       "longitudeOfLastGridPointInDegrees": 342,
                       "iDirectionIncrementInDegrees": 18, "jDirectionIncrementInDegrees": 10,
                       "jScansPositively": int(south_up)}.items():
        eccodes.codes_set(h, key, value)
    if number is not None:
        eccodes.codes_set(h, "productDefinitionTemplateNumber", 1)
        eccodes.codes_set(h, "perturbationNumber", number)
    for key, value in {"typeOfLevel": level_type, "level": level, "shortName": name, "dataDate": date,
                       "dataTime": clock, "step": step, "bitsPerValue": 16, "packingType": packing}.items():
        eccodes.codes_set(h, key, value)
    values = rng.normal(280, 20, 220)
    if missing:
        eccodes.codes_set(h, "bitmapPresent", 1)
        eccodes.codes_set(h, "missingValue", 9999.0)
        values[::7] = 9999
    eccodes.codes_set_values(h, values)
    eccodes.codes_write(h, f)
    eccodes.codes_release(h)


def grib():
    with open("analysis.grib2", "wb") as f:
        for day in range(20260101, 20260104):
            for clock in 0, 600, 1200, 1800:
                message(f, "2t", "heightAboveGround", 2, day, clock, 0)
                for level in 500, 850, 1000:
                    message(f, "t", "isobaricInhPa", level, day, clock, 0, missing=level == 850,
                            packing="grid_ccsds" if level == 500 else "grid_simple")
    with open("forecast.grib2", "wb") as f:
        for step in 0, 6, 12:
            for number in range(3):
                message(f, "10u", "heightAboveGround", 10, 20260101, 0, step, number=number, south_up=True)
    if index("analysis.insitu", "analysis.grib2"):
        for level_type, array, order in ("isobaricInhPa", "t", ("time", "isobaricInhPa")), ("heightAboveGround", "t2m", ("time",)):
            ds = cfgrib.open_dataset("analysis.grib2", filter_by_keys={"typeOfLevel": level_type}, indexpath="")
            ds = ds.sortby("isobaricInhPa") if "isobaricInhPa" in order else ds
            expect("analysis.insitu", array, ds[array].transpose(*order, "latitude", "longitude").values)
            expect("analysis.insitu", "latitude", ds["latitude"].values)
    if index("forecast.insitu", "forecast.grib2"):
        ds = cfgrib.open_dataset("forecast.grib2", indexpath="")
        expect("forecast.insitu", "u10", ds["u10"].transpose("step", "number", "latitude", "longitude").values)


def winds(original, archive):
    """The demo's winds straight from the file that its archive was made of, equal within the rounding to 14 bits."""
    global problems
    shutil.copy(original, "winds.cdf")
    names = {"UWND": "uwnd", "VWND": "vwnd", "TIME": "time", "FNOCY": "lat", "FNOCX": "lon"}
    rename = ",".join(f"{old}={new}" for old, new in names.items())
    if not index("winds.insitu", "winds.cdf", options=("--rename", rename, "--any-order")):
        return
    with netCDF4.Dataset(original) as n:
        n.set_auto_maskandscale(False)
        demo = zarr.open_group(archive, mode="r")
        for old, new in names.items():
            expect("winds.insitu", new, n[old][...])
            problems += not np.allclose(n[old][...], demo[new][...], rtol=0, atol=0.0005)


hdf5()
netcdf()
years()
grib()
if len(sys.argv) > 4:
    winds(*WINDS)
with open("list", "w") as f:
    f.write("\n".join(lines) + "\n")
print(f"files: {len(lines)} arrays written, {problems} problems")
sys.exit(problems != 0)
