"""insitubatch, the Python package. Its order is its own; the window is block_chunks.

Settings: "block_chunks" (the job's window where it is not given; its default: 16), "max_inflight"
(32), "prefetch_depth" (2).
"""

import common
import insitubatch


def loader(job):
    settings, store = job["settings"], job["store"]
    if store["kind"] == "file":
        there = insitubatch.obstore_store("file://" + common.url(job))
    elif store["kind"] == "http":
        there = insitubatch.obstore_store(common.url(job), client_options={"allow_http": True})
    else:
        there = insitubatch.obstore_store(
            common.url(job),
            endpoint=store["endpoint"],
            region=common.REGION,
            access_key_id=store["access"],
            secret_access_key=store["secret"],
            client_options={"allow_http": True},
        )
    geometry = insitubatch.open_geometries(there, variables=[job["array"]])[job["array"]]
    views = {"x": geometry}
    if job["offset"]:
        views["y"] = geometry.shift(job["offset"])
    manifest = insitubatch.split_by_chunk(geometry, fractions=(1.0, 0.0, 0.0))
    given = {
        k: settings[k]
        for k in ("block_chunks", "max_inflight", "prefetch_depth")
        if settings.get(k)
    }
    dataset = insitubatch.InSituDataset(
        there, manifest, geometries=views, batch_size=job["batch"], seed=job["seed"], **given
    )
    for epoch in range(job["epochs"]):
        dataset.set_epoch(epoch)
        for batch in dataset.train:
            yield batch.sample_indices, batch.arrays["x"], batch.arrays.get("y")


common.main(loader, "insitubatch", "zarr", "obstore", "numpy")
