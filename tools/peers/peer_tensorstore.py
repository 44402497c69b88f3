"""tensorstore. It reads arrays and has no order of its own: the order is common.shuffled.

Settings: "style": "index", a batch is one read by numbers, or "window", see common.by_window;
"depth" batches on their way; "cache" bytes of decoded chunks that are kept (index); "io" reads at
once; "threads" that decode.
"""

import os

import common
import numpy as np
import tensorstore as ts


def spec(job):
    store = job["store"]
    if store["kind"] == "file":
        there = {"driver": "file", "path": common.url(job)}
    elif store["kind"] == "http":
        there = {"driver": "http", "base_url": store["endpoint"], "path": "/" + job["archive"]}
    else:
        os.environ.update(AWS_ACCESS_KEY_ID=store["access"], AWS_SECRET_ACCESS_KEY=store["secret"])
        there = {
            "driver": "s3",
            "bucket": store["bucket"],
            "path": job["archive"],
            "endpoint": store["endpoint"],
            "aws_region": common.REGION,
            "aws_credentials": {"type": "environment"},
        }
    there["path"] += "/" + job["array"] + "/"
    return {
        "driver": "zarr3" if job["format"] == 3 else "zarr",
        "kvstore": there,
        "recheck_cached_data": False,
        "recheck_cached_metadata": "open",
    }


def context(job):
    settings, kind = job["settings"], job["store"]["kind"]
    of = {"cache_pool": {"total_bytes_limit": settings.get("cache", 0)}}
    if settings.get("threads"):
        of["data_copy_concurrency"] = {"limit": settings["threads"]}
    if settings.get("io"):
        name = {
            "file": "file_io_concurrency",
            "http": "http_request_concurrency",
            "s3": "s3_request_concurrency",
        }[kind]
        of[name] = {"limit": settings["io"]}
    return ts.Context(of)


def loader(job):
    settings, offset = job["settings"], job["offset"]
    array = ts.open(spec(job), open=True, read=True, context=context(job)).result()

    if settings["style"] == "window":
        yield from common.by_window(
            job,
            settings.get("run") or job["chunk"],
            lambda lo, hi: array[lo:hi].read(),
            array.shape[1:],
        )
        return

    def start(anchors):
        both = [array[anchors].read()]
        return both + [array[anchors + offset].read()] if offset else both

    def finish(reads):
        fields = [np.asarray(r.result()) for r in reads]
        return fields[0], fields[1] if offset else None

    yield from common.by_index(job, start, finish, settings.get("depth", 4))


common.main(loader, "tensorstore", "numpy")
