"""zarr-python with the codec pipeline of zarrs. It reads arrays and has no order of its own: the
order is common.shuffled.

Settings: "style": "index", a batch is one selection by numbers, or "window", see
common.by_window, where each run of neighbours is read into place; "threads" that call it;
"workers": its own threads (0: its default); "depth" batches on their way (index).
"""

import warnings

import common
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype


def loader(job):
    settings, offset = job["settings"], job["offset"]
    zarr.config.set(
        {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    )
    if settings.get("workers"):
        zarr.config.set({"threading.max_workers": settings["workers"]})
    warnings.simplefilter("ignore")
    array = zarr.open_array(
        common.zarr_store(job), path=job["array"], mode="r", zarr_format=job["format"]
    )
    pool = common.threads(settings.get("threads", 2))
    prototype = default_buffer_prototype()

    def read(lo, hi):
        into = np.empty((hi - lo, *array.shape[1:]), np.float32)
        array.get_basic_selection((slice(lo, hi),), out=prototype.nd_buffer.from_numpy_array(into))
        return into

    if settings["style"] == "window":
        yield from common.by_window(
            job,
            settings.get("run") or job["chunk"],
            lambda lo, hi: pool.submit(read, lo, hi),
            array.shape[1:],
        )
        return

    def select(numbers):
        # Sorted and once each: that is what a selection along one axis reads best.
        distinct, back = np.unique(numbers, return_inverse=True)
        return array.get_orthogonal_selection((distinct,))[back]

    def start(anchors):
        both = [pool.submit(select, anchors)]
        return both + [pool.submit(select, anchors + offset)] if offset else both

    def finish(reads):
        fields = [r.result() for r in reads]
        return fields[0], fields[1] if offset else None

    yield from common.by_index(job, start, finish, settings.get("depth", 2))


common.main(loader, "zarrs", "zarr", "numpy")
