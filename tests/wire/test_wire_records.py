"""Frames and arrays in Flower's records, through Flower's own serialisation, and what a hostile record gets."""

import io

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_st
from kit.faults import reason_of

from fednode.errors import PeerFault
from fednode.records import ARRAYS, FRAME, arrays_of, frame_of, has_frame, to_arrays, to_content

TYPES = st.sampled_from(["<f2", "<f4", "<f8", "<i1", "<i4", "<i8", "<u1", "<u2"])
SHAPES = arrays_st.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def travelled(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(ProtoRecordDict.FromString(recorddict_to_proto(content).SerializeToString()))


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode() + data


def saved(array, **options) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def one_array(data, dtype="float32", shape=(2,), stype="numpy.ndarray") -> RecordDict:
    return RecordDict({ARRAYS: ArrayRecord({"w": Array(dtype=dtype, shape=shape, stype=stype, data=data)})})


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=300))
def test_a_frame_travels_unchanged(frame):
    content = travelled(to_content(frame))
    assert has_frame(content) and frame_of(content) == frame
    assert ARRAYS not in content


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text("abc.", min_size=1), arrays_st.arrays(TYPES, SHAPES), min_size=1, max_size=3))
def test_arrays_travel_bit_by_bit_in_their_order(arrays):
    read = arrays_of(travelled(to_content(b"frame", arrays)))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()


def test_slices_and_columns_first_arrays_travel_and_can_be_written_to():
    source = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays = {"t": source.T, "cut": source[:, ::2], "f": np.asfortranarray(source[0]), "scalar": source[0, 0, 1]}
    read = arrays_of(travelled(to_content(b"", arrays)))
    for name, array in arrays.items():
        assert np.array_equal(read[name], array)
        read[name][...] = 0
    assert source[0, 0, 1] == 1


def test_a_message_without_a_frame_is_malformed():
    array = Array(np.zeros(2, dtype=np.uint8))
    for content in (
        RecordDict(),
        RecordDict({FRAME: ConfigRecord({"frame": b"bytes"})}),
        RecordDict({FRAME: ArrayRecord()}),
        RecordDict({FRAME: ArrayRecord({"frame": array})}),
        RecordDict({FRAME: ArrayRecord({"other": array})}),
        RecordDict({FRAME: ArrayRecord({**to_content(b"x")[FRAME], "more": array})}),
        RecordDict({"other": to_content(b"x")[FRAME]}),
    ):
        assert reason_of(frame_of, travelled(content)) == "malformed"
    assert not has_frame(RecordDict())


def test_a_message_without_arrays_is_malformed():
    for content in (to_content(b"x"), RecordDict({ARRAYS: ConfigRecord({"w": 1})})):
        with pytest.raises(PeerFault, match="carries no arrays"):
            arrays_of(content)
    with pytest.raises(PeerFault, match="carries no other"):
        arrays_of(to_content(b"x", {"w": np.zeros(1)}), "other")


def test_object_arrays_do_not_leave_and_do_not_arrive():
    objects = np.array([{"a": 1}, None], dtype=object)
    with pytest.raises(ValueError):
        to_arrays({"w": objects})
    assert reason_of(arrays_of, travelled(one_array(saved(objects, allow_pickle=True), "object"))) == "malformed"


FLOATS = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"
GOOD = npy(FLOATS % "2,", bytes(8))
ZIPPED = io.BytesIO()
np.savez(ZIPPED, w=np.zeros(2, dtype=np.float32))
HOSTILE = {
    "nothing": b"",
    "a magic alone": b"\x93NUMPY",
    "a zip's magic": b"PK\x03\x04 and so on",
    "a whole zip of arrays": ZIPPED.getvalue(),
    "a pickle": b"\x80\x04N.",
    "a header that never closes": npy("{'descr': '<f4', 'fortran_order': False, 'shape': ("),
    "a thousand brackets": npy("(" * 1_000),
    "four petabytes": npy(FLOATS % f"{1 << 50},", bytes(8)),
    "more than a word holds": npy(FLOATS % f"{1 << 70},", bytes(8)),
    "a negative size": npy(FLOATS % "-1,", bytes(8)),
    "digits without an end": npy(FLOATS % ("9" * 400), bytes(8)),
    "numbers without commas": npy(FLOATS % "1 2", bytes(8)),
    "another shape": npy(FLOATS % "1, 2", bytes(8)),
    "another type": npy(FLOATS.replace("<f4", "<f8") % "1,", bytes(8)),
    "integers": npy(FLOATS.replace("<f4", "<i4") % "2,", bytes(8)),
    "the other byte order": npy(FLOATS.replace("<f4", ">f4") % "2,", bytes(8)),
    "text": npy(FLOATS.replace("<f4", "|S4") % "2,", bytes(8)),
    "a record type": npy(FLOATS.replace("'<f4'", "[('a', '<f4')]") % "2,", bytes(8)),
    "a float of one byte": npy(FLOATS.replace("<f4", "<f1") % "2,", bytes(2)),
    "too few bytes": GOOD[:-1],
    "too many bytes": GOOD + b"\0",
    "no bytes at all behind the header": GOOD[:-8],
    "a header longer than it says": GOOD[:8] + b"\x01\x00" + GOOD[10:],
    "version 3": npy(FLOATS % "2,", bytes(8), b"\x03\x00"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arrays_are_malformed_and_nothing_else_happens(data):
    assert np.array_equal(arrays_of(one_array(GOOD))["w"], [0, 0])
    assert reason_of(arrays_of, travelled(one_array(data))) == "malformed"


@pytest.mark.parametrize(
    "says",
    [{"dtype": "float64"}, {"dtype": "f4"}, {"dtype": ""}, {"shape": (1, 2)}, {"shape": ()}, {"stype": "torch"}],
    ids=str,
)
def test_an_array_that_says_something_else_than_its_bytes_is_malformed(says):
    assert reason_of(arrays_of, travelled(one_array(GOOD, **says))) == "malformed"
