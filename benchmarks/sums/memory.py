"""Row `memory`: uploads come from disk, are checked and folded, and their boxes go back to disk, one by one."""

import contextlib
from io import BufferedWriter
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import HOLDERS, Case
from benchmarks.sums.uploads import Upload, planned, upload_file
from fednode_crypto import SumParams
from fednode_crypto.ring.scheme import RingMask


def work(folder: str, dimension: int, planned_for: int, count: int, clients: int) -> dict[str, Any]:
    """Fold `clients` uploads, the `count` that lie in `folder` in turn, and return the peak of memory."""
    params, place = planned(Case(dimension, planned_for)), Path(folder)
    files = [upload_file(place, client % count) for client in range(clients)]
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context((place / f"holder-{p}.boxes").open("wb")) for p in range(1, HOLDERS + 1)]
        folded = _folded(params, files, boxes)
    return {"peak_bytes": peak_bytes(), "count": folded}


def _folded(params: SumParams, files: list[Path], boxes: list[BufferedWriter]) -> int:
    total = RingMask().zero(params)
    for path in files:
        upload = Upload.from_bytes(path.read_bytes(), params)
        upload.check()
        total.absorb(upload.payload)
        for file, box in zip(boxes, upload.boxes, strict=True):
            file.write(upload.sender + upload.signature + box)
    return total.count
