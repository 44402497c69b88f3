"""Random Icechunk repositories, and what zarr-python reads of each of their branches, tags and snapshots:

    write_icechunk.py FOLDER SEED COUNT

FOLDER/list has a line for each array of each: repository, array, file with its bytes, option, value.
"""
import os
import sys

import icechunk
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

TWO = int(icechunk.__version__.split(".")[0]) >= 2
TYPES = ["i1", "u2", "i4", "i8", "f2", "f4", "f8"]


def configuration(random, path):
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = int(random.choice([0, 40, 512, 4096]))
    more = {}
    if TWO:
        more["virtual_chunk_location_compression"] = icechunk.ManifestVirtualChunkLocationCompressionConfig(
            min_num_chunks=int(random.choice([1, 10, 1000])))
    if random.random() < 0.7:
        dims = {icechunk.ManifestSplitDimCondition.Axis(int(random.integers(2))): int(random.integers(1, 5))}
        if random.random() < 0.4:
            dims[icechunk.ManifestSplitDimCondition.Axis(2)] = int(random.integers(1, 4))
        more["splitting"] = icechunk.ManifestSplittingConfig.from_dict({icechunk.ManifestSplitCondition.AnyArray(): dims})
    config.manifest = icechunk.ManifestConfig(**more)
    prefix = "file://" + os.path.abspath(path) + "/elsewhere/"
    os.makedirs(prefix[7:])
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(
        prefix, icechunk.local_filesystem_store(prefix[7:]), **({"name": "data"} if TWO else {})))
    return config, prefix


def values(random, shape, dtype):
    return random.integers(-100 if dtype[0] != "u" else 0, 100, shape).astype(dtype)


def array(random, group, name):
    ndim = int(random.integers(0, 5))
    shape = tuple(int(n) for n in random.integers(1, [14, 10, 8, 6, 4][ndim] + 1, ndim))
    chunks = tuple(int(random.integers(1, n + 1)) for n in shape)
    more = {}
    if ndim and random.random() < 0.3:
        more["shards"] = tuple(c * int(random.integers(1, 4)) for c in chunks)
    dtype = str(random.choice(TYPES))
    codec = random.choice(["none", "zstd", "gzip", "blosc"])
    made = {"none": None, "zstd": ZstdCodec(level=3), "gzip": GzipCodec(level=3),
            "blosc": BloscCodec(typesize=np.dtype(dtype).itemsize)}[codec]
    fill = int(random.integers(0, 9))
    a = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, compressors=made, fill_value=fill, **more)
    wanted = values(random, shape, dtype)
    if ndim and random.random() < 0.4:  # chunks that are not written
        some = int(random.integers(1, shape[0] + 1))
        a[:some] = wanted[:some]
    else:
        a[...] = wanted


def virtual(random, store, group, name, prefix):
    n, length = int(random.integers(1, 60)), int(random.integers(1, 5))
    group.create_array(name, shape=(n * length,), chunks=(length,), dtype="i4", compressors=None, filters=None, fill_value=-1)
    path = os.path.join(prefix[7:], name.replace("/", "-") + str(random.integers(1 << 30)))
    content = random.integers(0, 1 << 30, n * length + 5).astype("i4")
    for k in range(3):
        content.tofile(f"{path}-{k}.bin")
    for k in random.permutation(n)[: int(random.integers(1, n + 1))]:
        location = prefix if not TWO or random.random() < 0.5 else "vcc://data/"
        store.set_virtual_ref(f"{name}/c/{k}", f"{location}{os.path.basename(path)}-{k % 3}.bin",
                              offset=4 * int(random.integers(0, 6)) + int(k) * 4 * (length - 1), length=4 * length)


def change(random, repo, branch, prefix, number):
    session = repo.writable_session(branch)
    root = zarr.open_group(session.store, mode="a")
    for k in range(int(random.integers(1, 4))):
        group = root if random.random() < 0.6 else root.require_group(f"g{random.integers(3)}/h")
        array(random, group, f"a{number}-{k}")
    if random.random() < 0.6:
        virtual(random, session.store, root, f"v{number}", prefix)
    for path, one in sorted(root.arrays()):
        if random.random() < 0.3 and path[0] == "a" and one.ndim:
            one[: int(random.integers(1, one.shape[0] + 1))] = 7
        if random.random() < 0.1:
            del root[path]
        elif random.random() < 0.2 and one.ndim and one.shards is None:
            zarr.core.sync.sync(session.store.delete(path + "/c/" + "/".join("0" for _ in one.shape)))
    return session.commit(f"change {number}")


def every(group, path=""):
    for name, node in sorted(group.members()):
        at = f"{path}/{name}" if path else name
        if isinstance(node, zarr.Group):
            yield from every(node, at)
        else:
            yield at, node


def main():
    folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(folder)
    lines, total = [], 0
    for r in range(count):
        random = np.random.default_rng([seed, r])
        path = os.path.join(folder, f"repo{r}")
        config, prefix = configuration(random, path)
        more = {"spec_version": int(random.integers(1, 3))} if TWO else {}
        access = icechunk.containers_credentials({prefix: None})
        repo = icechunk.Repository.create(
            icechunk.local_filesystem_storage(path), config=config, authorize_virtual_chunk_access=access, **more)
        repo.save_config()
        snapshots = [change(random, repo, "main", prefix, 0)]
        for number in range(1, int(random.integers(2, 5))):
            snapshots.append(change(random, repo, "main", prefix, number))
        repo.create_tag("one", snapshots[int(random.integers(len(snapshots)))])
        repo.create_branch("side", snapshots[0])
        change(random, repo, "side", prefix, 9)
        for key, value in [("branch", "main"), ("branch", "side"), ("tag", "one"), ("snapshot", snapshots[0])]:
            named = {key if key != "snapshot" else "snapshot_id": value}
            root = zarr.open_group(repo.readonly_session(**named).store, mode="r")
            for at, node in every(root):
                name = f"wanted{total}"
                total += 1
                np.asarray(node[...]).tofile(os.path.join(folder, name))
                lines.append(f"repo{r}\t{at}\t{name}\t{key}\t{value}")
    with open(os.path.join(folder, "list"), "w") as f:
        f.write("\n".join(lines) + "\n")


main()
