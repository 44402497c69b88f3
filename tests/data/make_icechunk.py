"""Writes the repositories of tests/data/icechunk that test_icechunk reads, with the icechunk of the Python that runs it:

    python make_icechunk.py 1 icechunk/v1       icechunk 1.1.21: specification 1
    python make_icechunk.py 2 icechunk/v2       icechunk 2.3.0, which needs Python 3.12: specification 2

Ids are random, so that a new run gives other names. What is in them:

    branch main   first: t2m, time, scalar, hole, group/wind, virtual; tag v1
                  second: t2m[22:24] += 0.5, chunk 3 of hole is deleted; tag "gone", which was deleted again
    branch dev    from v1: t2m[0:2] = -1
    branch bare   the first snapshot of all, which has no nodes
"""
import datetime
import os
import shutil
import sys

import icechunk
import numpy as np
import zarr

VIRTUAL = "file:///tmp/insitu-test-virtual/"


def configuration():
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 64
    split = icechunk.ManifestSplittingConfig.from_dict({
        icechunk.ManifestSplitCondition.name_matches("t2m"): {icechunk.ManifestSplitDimCondition.Axis(0): 4}})
    more = {}
    if int(icechunk.__version__.split(".")[0]) >= 2:
        more["virtual_chunk_location_compression"] = icechunk.ManifestVirtualChunkLocationCompressionConfig(
            min_num_chunks=10)
    config.manifest = icechunk.ManifestConfig(splitting=split, **more)
    os.makedirs(VIRTUAL[7:], exist_ok=True)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(
        VIRTUAL, icechunk.local_filesystem_store(VIRTUAL[7:]), **({"name": "data"} if more else {})))
    return config


def fill(store):
    root = zarr.create_group(store)
    i, j, k = np.ogrid[:24, :6, :8]
    t2m = root.create_array("t2m", shape=(24, 6, 8), chunks=(2, 6, 8), dtype="f4", dimension_names=["time", "lat", "lon"])
    t2m[:] = (1000 * i + 10 * j + k).astype("f4")
    time = root.create_array("time", shape=(24,), chunks=(6,), dtype="i8", compressors=None, dimension_names=["time"])
    time[:] = np.arange(24)
    time.attrs["units"] = "hours since 2001-01-01"
    root.create_array("scalar", shape=(), dtype="f8")[...] = 3.5
    hole = root.create_array("hole", shape=(24, 4), chunks=(4, 4), dtype="f4", fill_value=7, compressors=None)
    for c in 0, 3, 5:
        hole[4 * c:4 * c + 4] = c
    wind = root.create_group("group").create_array(
        "wind", shape=(24, 8, 8), chunks=(3, 4, 4), shards=(12, 8, 8), dtype="i2")
    i, j, k = np.ogrid[:24, :8, :8]
    wind[:] = (100 * i + 8 * j + k).astype("i2")

    # Chunk number n is the 8 bytes from 8 n on of a file that holds 0, 1, ... as 16-bit numbers; of `many`, of another
    # file each, of that content. Those of `stale` are older than any file can be.
    root.create_array("virtual", shape=(80,), chunks=(4,), dtype="i2", compressors=None, filters=None)
    root.create_array("stale", shape=(4,), chunks=(4,), dtype="i2", compressors=None, filters=None)
    root.create_array("many", shape=(400,), chunks=(4,), dtype="i2", compressors=None, filters=None)
    return root


def main():
    version, path = int(sys.argv[1]), sys.argv[2]
    shutil.rmtree(path, ignore_errors=True)
    more = {"spec_version": version} if hasattr(icechunk.Repository, "spec_version") else {}
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(path), config=configuration(), **more)
    repo.save_config()
    repo.create_branch("bare", repo.lookup_branch("main"))
    session = repo.writable_session("main")
    fill(session.store)
    name = ["vcc://data/", VIRTUAL][version == 1]
    for n in range(20):
        later = datetime.datetime(2060, 1, 1, tzinfo=datetime.timezone.utc) if n % 2 else None
        session.store.set_virtual_ref(
            f"virtual/c/{n}", (VIRTUAL if n < 10 else name) + "numbers.bin", offset=8 * n, length=8, checksum=later)
    session.store.set_virtual_ref("stale/c/0", VIRTUAL + "numbers.bin", offset=0, length=8,
                                  checksum=datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc))
    for n in range(100):
        place = f"many/with-a-name-that-is-long-enough/number-{n:03d}.bin"
        session.store.set_virtual_ref(f"many/c/{n}", name + place, offset=8 * n, length=8)
    first = session.commit("first")
    repo.create_tag("v1", first)
    repo.create_branch("dev", first)

    session = repo.writable_session("main")
    root = zarr.open_group(session.store)
    root["t2m"][22:24] += 0.5
    zarr.core.sync.sync(session.store.delete("hole/c/3/0"))
    second = session.commit("second")
    repo.create_tag("gone", second)
    repo.delete_tag("gone")

    session = repo.writable_session("dev")
    zarr.open_group(session.store)["t2m"][0:2] = -1
    session.commit("third")
    for unused in "transactions", "overwritten":
        shutil.rmtree(os.path.join(path, unused), ignore_errors=True)


main()
