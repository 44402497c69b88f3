"""zarr-beluga: it is told the whole order and reads ahead along it. The order is common.shuffled;
batches are stacked here.

Settings: "prefetch_depth" samples (its default: 8), "max_inflight" (192), "decode_threads",
"queue_depth" samples.
"""

import beluga
import common
import numpy as np


def reader(job):
    settings, store = job["settings"], job["store"]
    sched = {
        k: settings[k]
        for k in ("prefetch_depth", "max_inflight", "decode_threads")
        if settings.get(k)
    }
    if store["kind"] == "file":
        return beluga.open_zarr_group(
            store["root"], job["archive"], variables=[job["array"]], sched=sched
        )
    if store["kind"] == "http":
        return beluga.open_zarr_group(
            store["endpoint"],
            job["archive"],
            variables=[job["array"]],
            sched=sched,
            store_options={"allow_http": "true"},
        )
    options = {
        "aws_endpoint": store["endpoint"],
        "aws_region": common.REGION,
        "aws_access_key_id": store["access"],
        "aws_secret_access_key": store["secret"],
        "aws_allow_http": "true",
    }
    return beluga.open_zarr_group(
        "s3://" + store["bucket"],
        job["archive"],
        variables=[job["array"]],
        sched=sched,
        store_options=options,
    )


def loader(job):
    batch, frames = job["batch"], 1 + job["offset"]
    source = reader(job)
    for epoch in range(job["epochs"]):
        order = common.shuffled(job, epoch)
        stream = iter(
            source.stream(
                order.tolist(),
                frames=frames,
                stride=max(job["offset"], 1),
                queue_depth=job["settings"].get("queue_depth", batch),
            )
        )
        for anchors in order.reshape(-1, batch):
            fields = None
            for i in range(batch):
                sample = np.from_dlpack(next(stream))  # frames, channels, height, width
                if fields is None:
                    fields = [
                        np.empty((batch, *sample.shape[2:]), np.float32) for _ in range(frames)
                    ]
                for f in range(frames):
                    fields[f][i] = sample[f, 0]
            yield anchors, fields[0], fields[1] if job["offset"] else None


common.main(loader, "zarr-beluga", "numpy")
