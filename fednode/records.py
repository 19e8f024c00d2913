"""Frames and model arrays in Flower's records, and back. The one codec that both skins use.

A frame travels as a uint8 `Array`, since Flower cuts arrays, and only arrays, into pieces that fit its transport.
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fednode.errors import PeerFault

FRAME, ARRAYS = "fednode", "arrays"
_STYPE = "fednode.frame"


def to_content(frame: bytes, arrays: Mapping[str, NDArray[np.generic]] | None = None) -> RecordDict:
    """A message's content: the frame, and the model under "arrays" where there is one."""
    carried = Array(dtype="uint8", shape=(len(frame),), stype=_STYPE, data=frame)
    content = RecordDict({FRAME: ArrayRecord({"frame": carried})})
    if arrays:
        content[ARRAYS] = to_arrays(arrays)
    return content


def to_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    """Named arrays as Flower's record, in their order."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def frame_of(content: RecordDict) -> bytes:
    """The frame in a message. Raises `PeerFault("malformed")` if there is none."""
    record = content.get(FRAME)
    if not isinstance(record, ArrayRecord) or set(record) != {"frame"} or record["frame"].stype != _STYPE:
        raise PeerFault("malformed", "the message carries no frame")
    return record["frame"].data


def has_frame(content: RecordDict) -> bool:
    """Whether a frame is there at all."""
    return FRAME in content


def arrays_of(content: RecordDict, name: str = ARRAYS) -> dict[str, NDArray[np.generic]]:
    """The named arrays of a record, in their order. Raises `PeerFault("malformed")`, also for what numpy would have to
    unpickle."""
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise PeerFault("malformed", f"the message carries no {name}")
    try:
        return {key: array.numpy() for key, array in record.items()}
    except (ValueError, TypeError, EOFError) as error:
        raise PeerFault("malformed", f"{name} cannot be read as arrays") from error
