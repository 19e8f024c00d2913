"""The node's memory: uploads come from disk, are checked and folded, and their boxes go back to disk, one by one."""

import contextlib
from io import BufferedWriter
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import HOLDERS, Case
from benchmarks.sums.uploads import Upload, planned, upload_file
from fednode_crypto import SumParams
from fednode_crypto.ring.scheme import RingMask


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Fold `clients` uploads out of the `count` that lie in `folder`, in turn, and return the peak of memory."""
    params, folder = planned(Case(asked["dimension"], asked["planned"])), Path(asked["folder"])
    with contextlib.ExitStack() as stack:
        boxes = [stack.enter_context((folder / f"holder-{p}.boxes").open("wb")) for p in range(1, HOLDERS + 1)]
        count = _folded(params, folder, (asked["clients"], asked["count"]), boxes)
    return {"peak_bytes": peak_bytes(), "count": count}


def _folded(params: SumParams, folder: Path, amounts: tuple[int, int], boxes: list[BufferedWriter]) -> int:
    clients, distinct = amounts
    total = RingMask().zero(params)
    for client in range(clients):
        data = upload_file(folder, client % distinct).read_bytes()
        upload = Upload.from_bytes(data, params.payload_bytes)
        upload.check()
        total.absorb(upload.payload)
        for file, box in zip(boxes, upload.boxes, strict=True):
            file.write(upload.sender + upload.signature + box)
    return total.count
