"""What all the peers share, so that they differ in nothing but the loader: the job, the order,
the clock, the checks.

A peer is a script that ends in common.main(loader). It is started as

    peer_NAME.py JOB        JOB: a file that holds the job as a JSON object

and prints one JSON object on one line: "opened", "first" and "end" (CLOCK_MONOTONIC, in seconds),
"rows", and the versions of the packages that did the work; or "error". loader(job) is a generator
of (anchors, x, y): the numbers of a batch's samples, their fields, and for pairs the fields that
follow (else None). Imports happen before the clock's "opened"; whatever a peer has to open, plan
or start happens behind it.

The job: "store" (see url), "archive", "array", "format" (Zarr's), "chunk" (samples in one),
"samples", "offset" (0: plain, 1: pairs), "batch", "seed", "epochs", "window" and "unit" (see
shuffled), "settings" (of the peer), "anchors" (a file for the numbers of all samples, in the
order of delivery) and "rows" (a file for the checksums of all rows), both optional.
"""

import importlib.metadata
import json
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

REGION = "us-east-1"


def url(job):
    """The archive's address: store has "kind" (file, http, s3), and "root" or "endpoint" with
    "bucket" and keys."""
    store = job["store"]
    if store["kind"] == "file":
        return f"{store['root']}/{job['archive']}"
    if store["kind"] == "http":
        return f"{store['endpoint']}/{job['archive']}"
    return f"s3://{store['bucket']}/{job['archive']}"


def object_store(job):
    """The archive as an obstore store, or None where it is a local directory."""
    import obstore.store

    store, plain = job["store"], {"allow_http": True}
    if store["kind"] == "file":
        return None
    if store["kind"] == "http":
        return obstore.store.HTTPStore.from_url(url(job), client_options=plain)
    return obstore.store.S3Store(
        store["bucket"],
        prefix=job["archive"],
        endpoint=store["endpoint"],
        region=REGION,
        access_key_id=store["access"],
        secret_access_key=store["secret"],
        client_options=plain,
    )


def zarr_store(job):
    """The same for zarr-python."""
    import zarr.storage

    there = object_store(job)
    if there is None:
        return zarr.storage.LocalStore(url(job), read_only=True)
    return zarr.storage.ObjectStore(there, read_only=True)


def anchors_of(job):
    return job["samples"] - job["offset"]


def shuffled(job, epoch):
    """The order for libraries that read arrays and have none of their own: units of "unit"
    neighbours are permuted, and all samples of "window" units are mixed. Whole batches only."""
    unit, count = job["unit"], anchors_of(job)
    rng = np.random.default_rng((job["seed"], epoch))
    starts = rng.permutation(-(-count // unit)) * unit
    order = []
    for at in range(0, len(starts), job["window"]):
        block = (starts[at : at + job["window"], None] + np.arange(unit)).ravel()
        order.append(rng.permutation(block[block < count]))
    order = np.concatenate(order)
    return order[: len(order) // job["batch"] * job["batch"]]


def batches_of(job):
    """The order of all epochs, cut into batches."""
    for epoch in range(job["epochs"]):
        order = shuffled(job, epoch)
        yield from order.reshape(-1, job["batch"])


def by_index(job, start, finish, depth):
    """Batches by number: start(numbers) begins to read, finish(what it gave) waits; depth batches
    are on their way."""
    ahead = []
    for anchors in batches_of(job):
        ahead.append((anchors, start(anchors)))
        if len(ahead) > depth:
            first, read = ahead.pop(0)
            yield first, *finish(read)
    for first, read in ahead:
        yield first, *finish(read)


def by_window(job, rows, read, shape):
    """Batches out of windows that are held in memory: each run of `rows` neighbours that a window
    touches is read once, by read(low, high) -> a future of an array; the next window's are read
    while this one is drained.
    """
    offset, batch = job["offset"], job["batch"]

    def windows():
        for epoch in range(job["epochs"]):
            order, size = shuffled(job, epoch), job["window"] * job["unit"]
            for at in range(0, len(order), size):
                yield order[at : at + size]

    def begin(order):
        wanted = np.unique(np.concatenate([order // rows, (order + offset) // rows]))
        return order, {
            int(k): read(int(k) * rows, min((int(k) + 1) * rows, job["samples"])) for k in wanted
        }

    def new():
        return np.empty((batch, *shape), np.float32), (
            np.empty((batch, *shape), np.float32) if offset else None
        )

    source, fill, anchors = windows(), 0, np.empty(batch, np.int64)
    x, y = new()
    upcoming = begin(next(source))
    while upcoming:
        order, chunks = upcoming
        following = next(source, None)
        upcoming = None if following is None else begin(following)
        chunks = {k: future.result() for k, future in chunks.items()}
        for anchor in order:
            x[fill] = chunks[anchor // rows][anchor % rows]
            if offset:
                y[fill] = chunks[(anchor + offset) // rows][(anchor + offset) % rows]
            anchors[fill] = anchor
            fill += 1
            if fill == batch:
                yield anchors.copy(), x, y
                fill = 0
                x, y = new()


def threads(count):
    return ThreadPoolExecutor(count)


def versions(*names):
    return {name: importlib.metadata.version(name) for name in names}


def checksums(anchors, x, y):
    """A line for each row: its number and the checksums of its fields."""
    for i, anchor in enumerate(anchors):
        fields = [a[i] for a in (x, y) if a is not None]
        yield " ".join(
            [str(int(anchor))]
            + [f"{zlib.crc32(np.ascontiguousarray(f).tobytes()):08x}" for f in fields]
        ) + "\n"


def main(loader, *packages):
    with open(sys.argv[1], encoding="utf-8") as f:
        job = json.load(f)
    out, seen = {"versions": versions(*packages)}, []
    try:
        rows = open(job["rows"], "w", encoding="utf-8") if job.get("rows") else None
        out["opened"] = time.monotonic()
        for anchors, x, y in loader(job):
            out.setdefault("first", time.monotonic())
            seen.append(np.array(anchors, np.int64))
            if rows:
                rows.writelines(checksums(anchors, x, y))
        out["end"] = time.monotonic()
        out["rows"] = int(sum(map(len, seen)))
        if rows:
            rows.close()
        if job.get("anchors"):
            np.concatenate(seen).tofile(job["anchors"])
    except BaseException as e:  # pylint: disable=broad-except  # of Rust, too
        out = {"error": f"{type(e).__name__}: {e}"[:2000]}
    print(json.dumps(out), flush=True)
    sys.exit("error" in out)
