"""Cached values: owned copies both ways, and their form as bytes under honest and hostile input."""

import json
import math
import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kit.cache.backend import same

from fednode.cache import TooLarge
from fednode.cache.values import freeze as owned
from fednode.cache.values.codec import Undecodable, decode, encode, encode_counted
from fednode.cache.values.freeze import DEPTH, NODES, freeze, size_of, thaw

DTYPES = [
    "m8",
    "M8[25s]",
    "m8[1000000000s]",
    "m8[2147483647as]",
    "?",
    "i1",
    "u2",
    "<i4",
    ">i8",
    "f2",
    "<f4",
    ">f8",
    "g",
    "c8",
    ">c16",
    "M8[ns]",
    "m8[3D]",
]
NAN = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
numbers = st.integers() | st.integers(-(1 << 5_000), 1 << 5_000) | st.floats() | st.booleans() | st.none()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
leaves = numbers | texts | st.binary(max_size=40) | arrays
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
TENSORS = [
    torch.arange(6, dtype=torch.float32).reshape(2, 3).t(),
    torch.tensor([float("nan"), -0.0], dtype=torch.bfloat16),
    torch.tensor(True),
    torch.empty((0, 3), dtype=torch.int64),
    torch.tensor([1 + 2j, 3 - 4j]).conj(),
    torch.nn.Parameter(torch.ones(2)),
    torch.zeros([1] * 64),
    torch.arange(8.0)[3::8],
    torch.arange(16.0).reshape(4, 4)[:1, 1],
    torch.arange(4.0).reshape(4, 1).expand(4, 3)[:, ::2],
    torch.zeros(1).expand(5),
    torch.tensor([1 + 2j]).conj().imag,
    *(torch.tensor([0, 1, 3]).to(getattr(torch, name)) for name in sorted(owned.TENSORS)),
]


@settings(max_examples=150, deadline=None)
@given(trees)
@example(-0.0)
@example(NAN)
@example({"": [(), [], {}, b""]})
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(thaw(freeze(value)), value)
    assert same(decode(encode(value)), value)
    assert freeze(value).size == size_of(value) == size_of(decode(encode(value)))


@pytest.mark.parametrize("tensor", TENSORS)
def test_a_tensor_comes_back_as_it_was(tensor: torch.Tensor) -> None:
    for back in (thaw(freeze(tensor)), decode(encode({"deep": [tensor]}))["deep"][0]):  # type: ignore[index]
        assert type(back) is torch.Tensor and not back.requires_grad
        assert same(back, tensor.detach())


def test_bytes_are_taken_as_they_are_and_other_buffers_become_bytes() -> None:
    value = b"payload"
    assert thaw(freeze(value)) is value
    for buffer in (bytearray(value), memoryview(value), memoryview(b"pXaXyXlXoXaXdX")[::2]):
        assert (thaw(freeze(buffer)), decode(encode(buffer))) == (value, value)
        assert type(thaw(freeze(buffer))) is bytes


def test_an_array_comes_out_in_c_order_and_for_reading_only() -> None:
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    for out in (thaw(freeze(value)), decode(encode(value))):
        assert isinstance(out, np.ndarray) and out.flags.c_contiguous and not out.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            out.flags.writeable = True
        with pytest.raises(ValueError, match="read-only"):
            out[0, 0] = 9.0


@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: [array], lambda array: {"deep": (array,)}])
def test_no_object_of_two_readers_is_the_same_but_immutable_ones(wrap: Any) -> None:
    frozen = freeze(wrap(np.arange(6)))
    readers = [reachable(thaw(frozen)) for _ in range(2)]
    shared = {id(one): one for one in readers[0]}.keys() & {id(one) for one in readers[1]}
    assert {type(one) for one in readers[0] if id(one) in shared} <= {bytes, str, tuple, type(np.dtype("i8"))}
    assert all(type(one) is not np.ndarray for one in readers[0] if id(one) in shared)


def reachable(value: Any) -> list[Any]:
    """`value`, what it contains, and what its arrays lie on."""
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in reachable(item))]
    if isinstance(value, (list, tuple)):
        return [value, *(found for item in value for found in reachable(item))]
    if isinstance(value, np.ndarray):
        return [value, value.dtype, *reachable(value.base)]
    return [value]


@pytest.mark.parametrize("name", ["f8", ">i4", "M8[us]"])
def test_what_a_dtype_carries_along_is_left_behind(name: str) -> None:
    value = np.zeros(3, np.dtype(name, metadata={"any": [1]}))
    for back in (thaw(freeze(value)), thaw(freeze([value]))[0], decode(encode(value))):  # type: ignore[index]
        assert isinstance(back, np.ndarray)
        assert back.dtype == np.dtype(name) and back.dtype.metadata is None


@pytest.mark.parametrize("way", [lambda value: thaw(freeze(value)), lambda value: decode(encode(value))])
def test_booleans_of_other_bytes_are_true(way: Any) -> None:
    octets = bytes([0, 1, 2, 255])
    for truths in (np.frombuffer(octets, np.bool_), torch.frombuffer(bytearray(octets), dtype=torch.bool)):
        back = way(truths)
        assert back.dtype == truths.dtype
        octets = back.view(np.uint8 if isinstance(back, np.ndarray) else torch.uint8)
        assert octets.tolist() == [0, 1, 1, 1]


class Growing:
    """Changes `value` while a cache looks at an item before it: what another thread would do, at the worst moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
        real = owned._buffer_size

        def measured(value: Any) -> int:
            size = real(value)
            change()
            return size

        monkeypatch.setattr(owned, "_buffer_size", measured)


def test_what_grows_while_it_is_copied_counts_as_it_was_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = bytearray(4)
    Growing(monkeypatch, lambda: buffer.extend(bytes(100)))
    frozen = freeze([buffer])
    copied: Any = thaw(frozen)
    assert frozen.size == 32 + len(copied[0])
    with pytest.raises(TooLarge):
        freeze([buffer], most=len(buffer) + 40)


def test_containers_that_change_while_they_are_copied_are_taken_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[Any] = [bytearray(1), 2]
    pairs: dict[str, Any] = {"a": bytearray(1), "b": items}

    def change() -> None:
        items.append(3)
        pairs[str(len(pairs))] = None

    Growing(monkeypatch, change)
    frozen = freeze(pairs)
    assert size_of(thaw(frozen)) == frozen.size
    assert list(thaw(frozen)) == ["a", "b"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(2, dtype=[("a", "f8")]),
        np.array(["text"]),
        np.ma.masked_array([1.0]),
        np.float64(1.0),
        torch.zeros(2, device="meta"),
        torch.zeros((2, 2)).to_sparse(),
        torch.zeros([1] * 65),
        {1: "a"},
        {"a": {2, 3}},
        [object()],
        1j,
    ],
)
def test_what_is_no_value_is_refused(value: Any) -> None:
    for refuse in (freeze, size_of, encode):
        with pytest.raises(TypeError, match="cannot be cached"):
            refuse(value)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, ["a", "\udfff"]])
def test_text_that_is_not_utf_8_is_refused(value: Any) -> None:
    for refuse in (freeze, size_of, encode):
        with pytest.raises(ValueError, match="lone surrogate"):
            refuse(value)


def test_a_value_too_deep_or_inside_itself_is_refused() -> None:
    deep: Any = 0
    for _ in range(DEPTH):
        deep = [deep]
    assert decode(encode(deep)) == deep
    inside: list[Any] = []
    inside += [inside, inside]
    for value in ([deep], inside):
        for refuse in (freeze, size_of, encode):
            with pytest.raises(ValueError, match="nested"):
                refuse(value)


def test_sizes_are_bytes_and_nothing_is_free() -> None:
    leaves = (b"123", "ü", 7, None, np.zeros((2, 3)), torch.zeros(3))
    assert [size_of(value) for value in leaves] == [3, 2, 8, 8, 48, 12]
    assert size_of([np.zeros(0)]) > 150 and size_of([torch.zeros(0)]) > 400
    assert size_of([]) > 0 and size_of({"key": b"12"}) > 5 and size_of(1 << 800) > 100


def planted(tree: object, raw: bytes = b"") -> bytes:
    text = json.dumps(tree).encode()
    return struct.pack("<4sI", b"FNv1", len(text)) + text + raw


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"FNv1",
        b"FNv1\xff\xff\xff\xff",
        b"XXXX" + encode(1)[4:],
        encode(1) + b"\0",
        planted(["b", 1 << 62]),
        planted(["b", -1]),
        planted(["b", True]),
        planted(["b"]),
        planted([]),
        planted([[]]),
        planted(["x", 1]),
        planted(["a", "|O8", 1], bytes(64)),
        planted(["a", "<i3", 1], bytes(64)),
        planted(["a", "<f8", 1 << 40, 1 << 40]),
        planted(["a", "<f8", 0, 1 << 62, 1 << 62], bytes(8)),
        planted(["a", "<f8", *[1] * 65], bytes(64)),
        planted(["a", "|b1", 1], b"\2" * 1),
        planted(["a", "[('a','f8')]", 1], bytes(64)),
        planted(["T", "complex32", 1], bytes(64)),
        planted(["T", "__class__", 1], bytes(64)),
        struct.pack("<4sI", b"FNv1", 13) + b'{"a":1,"a":2}',
        planted(["T", "float32", *[1] * 65], bytes(4)),
        planted(["a", "<m8[9999999999s]", 1], bytes(8)),
        planted(["i", "zz"]),
        planted(["i", 5]),
        planted(["f", "00"]),
        planted("\ud800"),
        planted(float("nan")),
        struct.pack("<4sI", b"FNv1", 90_000) + b"[" * 90_000,
        struct.pack("<4sI", b"FNv1", 9_000) + b"9" * 9_000,
        struct.pack("<4sI", b"FNv1", 1) + b"\xff",
    ],
)
def test_hostile_bytes_have_one_error(data: bytes) -> None:
    with pytest.raises(Undecodable, match="treat it as a miss"):
        decode(data)


@pytest.mark.thorough
def test_a_tree_of_too_many_parts_is_refused_before_it_is_built() -> None:
    for part in (b"[],", b'"",'):
        tree = b'["l",' + part * (2 * NODES + 1_000) + b"0]"
        tracemalloc.start()
        try:
            with pytest.raises(Undecodable, match="items"):
                decode(struct.pack("<4sI", b"FNv1", len(tree)) + tree)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(tree) + (1 << 20)
        finally:
            tracemalloc.stop()


def test_text_full_of_brackets_and_commas_is_no_tree() -> None:
    value = {'"[{,\\"': ",[{" * NODES + '\\"', "more": '"],[' * 1_000}
    assert decode(encode(value)) == value


def test_dimensions_count_as_items_so_that_what_is_stored_can_be_read() -> None:
    array = np.zeros([1] * 64)
    most: list[Any] = [array] * (NODES // 65)
    assert len(decode(encode(most))) == len(most)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="items"):
        size_of([*most, *most])


@settings(max_examples=40, deadline=None)
@given(trees)
def test_cut_bytes_never_decode(value: Any) -> None:
    data = encode(value)
    for end in range(0, len(data), max(1, len(data) // 50)):
        with pytest.raises(Undecodable):
            decode(data[:end])


@settings(max_examples=150, deadline=None)
@given(trees, st.data())
def test_changed_bytes_decode_to_a_value_or_not_at_all(value: Any, data: st.DataObject) -> None:
    changed = bytearray(encode(value))
    for _ in range(3):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = decode(bytes(changed))
    except Undecodable:
        return
    assert same(decode(encode(back)), back)


def test_the_cache_alone_does_not_import_torch() -> None:
    code = (
        "import sys; from fednode.cache.values.codec import *; decode(encode([1, b'2'])); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _read_where(prepare: str) -> str:
    """What a process says that reads tensors after `prepare`."""
    code = f"""
import sys
from fednode.cache.values.codec import decode
data = bytes.fromhex({encode([torch.arange(6.0).reshape(2, 3), True]).hex()!r})
{prepare}
try:
    print(decode(data)[0].sum().item())
except Exception as error:
    print(type(error).__name__, error)
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.thorough
def test_a_tensor_is_read_whatever_device_is_the_default() -> None:
    assert _read_where("import torch; torch.set_default_device('meta')") == "15.0"


def test_a_tensor_where_there_is_no_torch_is_no_damage() -> None:
    assert _read_where("sys.modules['torch'] = None").startswith("StoreError the cached value is a tensor")


@pytest.mark.parametrize(
    "error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError(), TypeError()]
)
def test_what_this_process_lacks_is_no_damage(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: object, **__: object) -> None:
        raise error

    data = encode([torch.arange(3.0)])
    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(type(error)) as raised:
        decode(data)
    assert raised.value is error


@pytest.mark.parametrize("lengths", [[0, 1 << 62, 4], [1 << 63, 0], [0, 1 << 62], [1 << 70], [1 << 62, 1 << 62]])
def test_lengths_that_no_tensor_has_are_no_value(lengths: list[int]) -> None:
    data = planted(["T", "float64", *lengths])
    try:
        found = decode(data)
    except Undecodable:
        return
    assert found.shape == tuple(lengths)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("wrap", [lambda tensor: tensor, lambda tensor: [tensor]], ids=["alone", "nested"])
def test_a_tensor_that_is_no_block_of_numbers_is_no_value(wrap: Any) -> None:
    for keep in (freeze, size_of, encode):
        with pytest.raises(TypeError, match="cannot be cached"):
            keep(wrap(torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])))

        def mapped(tensor: Any, keep: Any = keep) -> Any:
            with pytest.raises(TypeError, match="cannot be cached"):
                keep(wrap(tensor))
            return tensor

        torch.vmap(mapped)(torch.zeros(2, 3))


@pytest.mark.parametrize("value", [np.ones(1 << 20), [np.ones((1 << 10, 1 << 10))]], ids=["array", "in a list"])
def test_what_is_written_is_copied_once(value: Any) -> None:
    tracemalloc.start()
    try:
        data, size = encode_counted(value, 1 << 24)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size >= 1 << 23 and peak < 1.5 * len(data)


def test_what_is_too_large_is_told_before_it_is_copied() -> None:
    value = [np.ones(1 << 20), bytearray(1 << 20)]
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            encode_counted(value, 1 << 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 19


def test_the_bits_of_a_nan_are_kept() -> None:
    back = decode(encode([NAN, np.array([NAN])]))
    assert isinstance(back, list)
    assert struct.pack("<d", back[0]) == struct.pack("<d", NAN) == back[1].tobytes()
    assert math.copysign(1.0, decode(encode(-0.0))) == -1.0  # type: ignore[arg-type]


def test_two_readers_of_an_array_do_not_share_its_shape() -> None:
    frozen = freeze(np.arange(6))
    first: Any = thaw(frozen)
    first.shape = (2, 3)
    assert thaw(frozen).shape == (6,)  # type: ignore[attr-defined]
