"""The rows of the comparison, and with what each peer takes part in them."""

import fnmatch

BATCH, ARRAY = 32, "t2m"
PLACES = {
    "local": "local, page cache warm",
    "http0": "HTTP",
    "http50": "HTTP, 50 ms",
    "s3": "S3 protocol",
}
ARCHIVES = ["lz4-1", "lz4-8", "lz4-32", "lz4-s32", "zstd-1", "zstd-8", "zstd-32", "zstd-s32"]
JOBS = {"pairs": 1, "plain": 0}
USUAL = ["local/*/pairs", "local/lz4-[18]/plain", "http*/lz4-[18s]*/pairs", "s3/lz4-[18]/pairs"]
PEERS = ["insitubatch", "tensorstore", "zarrs", "beluga", "xbatcher"]
SHUFFLED = [
    "tensorstore",
    "zarrs",
    "beluga",
]  # these have no order of their own: common.shuffled is theirs


def chunk(archive):
    """Samples in a stored chunk: of shards, in an inner one."""
    number = archive.split("-")[1]
    return 1 if number.startswith("s") else int(number)


def unit(archive):
    """Samples in a file."""
    return int(archive.split("-")[1].lstrip("s"))


def zarr_format(archive):
    return 3 if "-s" in archive else 2


def select(patterns):
    """The names PLACE/ARCHIVE/JOB that the patterns take; without any, the usual ones."""
    every = [f"{place}/{archive}/{job}" for place in PLACES for archive in ARCHIVES for job in JOBS]
    return [name for name in every if any(fnmatch.fnmatch(name, p) for p in patterns or USUAL)]


def best(peer, name, equal):
    """What is tried for a peer's own best, most promising first. equal: its window for equal
    mixing, in units."""
    place, archive, _ = name.split("/")
    remote = place != "local"
    of_128 = max(1, 128 // unit(archive))  # a window of 128 samples, in files
    if peer == "insitubatch":
        flights = [64, 128, 32] if remote else [8, 32, 2]
        return [
            {"block_chunks": w, "max_inflight": f}
            for w in dict.fromkeys([of_128, equal])
            for f in flights
        ]
    sharded = zarr_format(archive) == 3
    runs = (
        ([32, 8, 1] if remote else [8, 32, 1]) if sharded else [chunk(archive)]
    )  # samples of one read
    if peer == "tensorstore":
        io = 128 if remote else 0
        windows = [{"style": "window", "io": io, "run": r} for r in runs]
        windows.append({**windows[0], "threads": 2})
        batches = ((4, 0), (8, 0), (4, 512 << 20))
        indexed = [{"style": "index", "depth": d, "cache": c, "io": io} for d, c in batches]
        return indexed + windows if unit(archive) == 1 else windows + indexed
    if peer == "zarrs":
        windows = [
            {"style": "window", "threads": t, "run": r}
            for r in runs
            for t in ([32, 128] if remote else [2, 4])
        ]
        if chunk(archive) > 1:
            return windows  # single rows of a chunk are nothing that its codecs can select
        indexed = [
            {"style": "index", "threads": 4, "depth": 4, "workers": w}
            for w in ([64, 128] if remote else [0, 2])
        ]
        return indexed + windows if unit(archive) == 1 else windows + indexed
    if peer == "beluga":
        return [
            {"prefetch_depth": d, "decode_threads": 2, "max_inflight": 192}
            for d in ((32, 64, 8) if remote else (8, 32, 2))
        ]
    runs = dict.fromkeys([BATCH, min(BATCH, unit(archive)), 1])
    return [{"run": r, "workers": w, "zarrs": z} for r in runs for w, z in ((0, 1), (2, 1), (2, 0))]


def defaults(peer, name):
    """What a peer takes part with where only its window is set."""
    _, archive, _ = name.split("/")
    if peer == "tensorstore":
        return {"style": "window"} if chunk(archive) > 1 else {"style": "index", "depth": 4}
    if peer == "zarrs":
        return {"style": "window", "threads": 2 if name.startswith("local") else 32}
    if peer == "xbatcher":
        return {"workers": 2, "zarrs": 1}
    return {}
