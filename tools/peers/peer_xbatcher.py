"""xbatcher with a torch DataLoader. The order is the DataLoader's: items are runs of "run"
neighbours, batch/run items are drawn at random for each batch.

Settings: "run" samples (1: an ideal shuffle, and no chunk is used for more than one of them; the
batch size: each batch is neighbours), "workers" processes (0: none), "start" of these (fork,
forkserver, spawn), "zarrs": 1 for its codecs.
"""

import common
import numpy as np
import torch
import xarray
import xbatcher
import xbatcher.loaders.torch
import zarr


class Numbered(xbatcher.loaders.torch.MapDataset):
    """xbatcher's own dataset, which also tells the numbers of its samples."""

    def __init__(self, first, second, run):
        super().__init__(first, second)
        self.run = run

    def __getitem__(self, item):
        return torch.arange(item * self.run, (item + 1) * self.run), super().__getitem__(item)


def join(items):
    numbers = torch.cat([n for n, _ in items])
    fields = [f if isinstance(f, tuple) else (f,) for _, f in items]
    return numbers, tuple(torch.cat(f) for f in zip(*fields))


def codecs(settings):
    if settings.get("zarrs"):
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})


class Worker:
    """A worker that is not forked begins with nothing configured."""

    def __init__(self, settings):
        self.settings = settings

    def __call__(self, _number):
        codecs(self.settings)
        torch.set_num_threads(1)


def open_array(job):
    codecs(job["settings"])
    return xarray.open_zarr(
        common.zarr_store(job),
        consolidated=True,
        chunks=None,
        zarr_format=job["format"],
        decode_times=False,
        mask_and_scale=False,
    )[job["array"]]


def loader(job):
    settings, run, count = job["settings"], job["settings"]["run"], common.anchors_of(job)
    array = open_array(job)
    whole = {dim: size for dim, size in zip(array.dims[1:], array.shape[1:])}

    def generator(offset):
        shifted = array.isel({array.dims[0]: slice(offset, offset + count)})
        return xbatcher.BatchGenerator(
            shifted, input_dims={array.dims[0]: run, **whole}, preload_batch=False
        )

    torch.manual_seed(job["seed"])
    dataset = Numbered(generator(0), generator(job["offset"]) if job["offset"] else None, run)
    workers = settings.get("workers", 0)
    started = (
        {
            "multiprocessing_context": settings.get("start", "forkserver"),
            "persistent_workers": True,
            "worker_init_fn": Worker(settings),
            "prefetch_factor": settings.get("prefetch", 2),
        }
        if workers
        else {}
    )
    items = torch.utils.data.DataLoader(
        dataset,
        batch_size=job["batch"] // run,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        collate_fn=join,
        **started
    )
    for _ in range(job["epochs"]):
        for numbers, fields in items:
            x, *y = [np.asarray(f) for f in fields]
            yield numbers.numpy(), x, y[0] if y else None


if __name__ == "__main__":
    common.main(loader, "xbatcher", "xarray", "zarr", "numpy")
