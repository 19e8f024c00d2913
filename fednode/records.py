"""Frames and model arrays to Flower's records and back; used by the server and the client side.

A frame travels as a uint8 `Array`: Flower splits arrays, and only arrays, into pieces that fit its transport.
"""

import math
import re
from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.reasons import Reason

FRAME, SEAL, ARRAYS, CHUNKS, FROZEN = "fednode", "seal", "arrays", "chunks", "frozen"
_STYPE = "fednode.frame"
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00([\x00-\xff]{2})\{'descr': '[<|]([fiu][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]{0,500})\), \} *\n"
)
"""The head of an array of numbers as `numpy.save` writes it: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html"""


def to_content(frame: bytes, arrays: Mapping[str, NDArray[np.generic]] | None = None, name: str = ARRAYS) -> RecordDict:
    """The content of a message: the frame, and named arrays, if any, under `name`."""
    carried = Array(dtype="uint8", shape=(len(frame),), stype=_STYPE, data=frame)
    content = RecordDict({FRAME: ArrayRecord({"frame": carried})})
    if arrays:
        content[name] = to_arrays(arrays)
    return content


def to_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Named arrays as Flower's record, in their order."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def frame_of(content: RecordDict) -> bytes:
    """The frame in a message. Raises `PeerFault(MALFORMED)` if there is none."""
    record = content.get(FRAME)
    if not isinstance(record, ArrayRecord) or set(record) != {"frame"} or record["frame"].stype != _STYPE:
        raise PeerFault(Reason.MALFORMED, "the message carries no frame")
    return record["frame"].data


def seal_in(seal: bytes) -> ConfigRecord:
    """The node's signature as the record that travels under `SEAL`."""
    return ConfigRecord({SEAL: seal})


def seal_of(content: RecordDict) -> bytes:
    """The node's signature in a message, or b""."""
    record = content.get(SEAL)
    seal = record.get(SEAL) if isinstance(record, ConfigRecord) else None
    return seal if isinstance(seal, bytes) else b""


def has_frame(content: RecordDict) -> bool:
    """Whether the message has a frame."""
    return FRAME in content


def arrays_of(content: RecordDict, name: str = ARRAYS) -> dict[str, NDArray[np.generic]]:
    """The named arrays of a record, in order. Raises `PeerFault(MALFORMED)`, also for bytes that numpy would have to
    unpickle or unzip, or whose header asks for more memory than the bytes hold."""
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise PeerFault(Reason.MALFORMED, f"the message carries no {name}")
    try:
        return {key: _numbers(array) for key, array in record.items()}
    except (ValueError, TypeError) as error:
        raise PeerFault(Reason.MALFORMED, f"{name} cannot be read as arrays") from error


def _numbers(array: Array) -> NDArray[np.generic]:
    """The array, if its bytes are exactly what `numpy.save` writes for its dtype and shape."""
    head = _NPY.match(array.data)
    if array.stype != "numpy.ndarray" or head is None or int.from_bytes(head[1], "little") != head.end() - 10:
        raise ValueError("not an array of numbers as numpy.save writes it")
    dtype = np.dtype(f"<{head[2].decode()}")
    shape = tuple(int(size) for size in head[4].split(b",") if size.strip())
    flat = np.frombuffer(array.data, dtype, offset=head.end())
    if (str(dtype), shape, math.prod(shape)) != (array.dtype, tuple(array.shape), flat.size):
        raise ValueError("the bytes have another dtype or shape than the array declares")
    return flat.reshape(shape, order="F" if head[3] == b"True" else "C").copy(order="K")
