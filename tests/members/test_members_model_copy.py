"""A client's copy of the model: only what changed comes down, and the whole model's digest decides."""

import stat
from dataclasses import replace

import numpy as np
import pytest
from kit.cache.chunking import chunked, outline_of
from kit.cohort import TASK, FakeCohort, Size

from fednode.errors import PeerFault
from fednode.protocol.chunks import CHUNK_VALUES, Outline
from fednode.protocol.envelope import Topic
from fednode.protocol.model import Basis, Layout
from fednode.protocol.openings import opening_parts
from fednode.protocol.requests import TaskCard
from fednode.protocol.spec import RoundSpec
from fednode_clients.client import model_copy as copies
from fednode_clients.client.model_copy import ModelCopy, ModelCopyStore

SIZE = Size(clients=3, holders=3)


def model(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full((2, 2), value, dtype=np.float32), "b": np.full(1, value, dtype=np.float32)}


FROZEN = {"ice": np.arange(CHUNK_VALUES + 3, dtype=np.float32), "snow": np.ones(2, dtype=np.float32)}


class Desk:
    """A client's room, and rounds as a node would describe them."""

    def __init__(self, root, frozen=None, staleness=0) -> None:
        self.kit = FakeCohort(root, SIZE)
        self.frozen = frozen or {}
        self.terms = replace(SIZE.terms(), staleness=staleness)
        self.card = TaskCard(TASK, self.kit.cohort, SIZE.sum_params())
        self.restart()

    def restart(self) -> None:
        self.room = ModelCopyStore(self.kit.folder("client-1"))

    def outline(self, trained) -> Outline:
        return outline_of(trained, self.frozen)

    def spec(self, number, trained, version=None, task=TASK) -> RoundSpec:
        digest = self.outline(trained).digest({**trained, **self.frozen})
        key = bytes(32)
        return RoundSpec(
            task, number, number if version is None else version, digest, key, key, self.terms, SIZE.sum_params()
        )

    def take(self, spec, trained, chunks=None, parts=None) -> ModelCopy:
        sent = chunked({**trained, **self.frozen}) if chunks is None else chunks
        return self.room.take(self.card, spec, {"model": self.outline(trained).to_bytes(), **(parts or {})}, sent)

    def must_refuse(self, reason, spec, trained, **what) -> None:
        with pytest.raises(PeerFault) as fault:
            self.take(spec, trained, **what)
        assert fault.value.reason == reason

    def opened(self, spec, holders=3, kind="answer") -> dict[str, bytes]:
        topic = Topic(spec.task, spec.round, spec.digest())
        members = self.kit.cohort.holders[:holders]
        return opening_parts({m.point: self.kit.folder(m.name).signer.write(kind, topic).signed for m in members})

    def files(self) -> int:
        return len(list((self.kit.folder("client-1").path / "state").iterdir()))


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def icy(tmp_path):
    return Desk(tmp_path, FROZEN)


def same(copy: ModelCopy, arrays) -> bool:
    return list(copy.arrays) == list(arrays) and all(np.array_equal(copy.arrays[n], arrays[n]) for n in arrays)


# --- what changed, and what did not


def test_a_model_that_came_whole_is_taken_and_cannot_be_written_to(icy):
    copy = icy.take(icy.spec(1, model(1)), model(1))
    assert same(copy, {**model(1), **FROZEN}) and copy.basis == Basis(1, icy.spec(1, model(1)).model_digest)
    assert (list(copy.trained), list(copy.frozen)) == (["w", "b"], ["ice", "snow"])
    for array in copy.arrays.values():
        assert array.dtype == np.float32
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_is_held_need_not_come_again(icy):
    icy.take(icy.spec(1, model(1)), model(1))
    copy = icy.take(icy.spec(2, model(2)), model(2), chunks=chunked(model(2)))
    assert same(copy, {**model(2), **FROZEN})
    half = {**model(2), "b": model(3)["b"]}
    copy = icy.take(icy.spec(3, half), half, chunks=chunked({"b": half["b"]}))
    assert same(copy, {**half, **FROZEN})
    assert same(icy.take(icy.spec(4, half), half, chunks={}), {**half, **FROZEN})


def test_one_chunk_of_a_large_array_is_enough(tmp_path):
    ice = {"ice": np.arange(3 * CHUNK_VALUES, dtype=np.float32)}
    desk = Desk(tmp_path, ice)
    desk.take(desk.spec(1, model(1)), model(1))
    desk.frozen = {"ice": ice["ice"].copy()}
    desk.frozen["ice"][CHUNK_VALUES + 5] = -1
    sent = {"ice/1": desk.frozen["ice"][CHUNK_VALUES : 2 * CHUNK_VALUES]}
    assert same(desk.take(desk.spec(2, model(1)), model(1), chunks=sent), {**model(1), **desk.frozen})


# --- what a node may claim


@pytest.mark.parametrize("left_out", ["w/0", "b/0", "ice/0", "ice/1", "snow/0"])
def test_a_chunk_that_is_nowhere_is_missing(icy, left_out):
    sent = {name: chunk for name, chunk in chunked({**model(1), **FROZEN}).items() if name != left_out}
    icy.must_refuse("missing-chunks", icy.spec(1, model(1)), model(1), chunks=sent)
    icy.take(icy.spec(1, model(1)), model(1))


def test_a_chunk_that_the_node_wrongly_left_out_is_found(icy):
    icy.take(icy.spec(1, model(1)), model(1))
    for sent in ({}, chunked({"w": model(2)["w"]}), chunked({"b": model(2)["b"]})):
        icy.must_refuse("missing-chunks", icy.spec(2, model(2)), model(2), chunks=sent)
    assert same(icy.take(icy.spec(2, model(2)), model(2), chunks=chunked(model(2))), {**model(2), **FROZEN})


def test_swapped_and_foreign_chunks_never_make_a_model(icy):
    honest = chunked({**model(1), **FROZEN})
    honest["w/0"] = np.float32([1, 2, 3, 4])
    spec = icy.spec(1, {"w": honest["w/0"].reshape(2, 2), "b": model(1)["b"]})
    swaps = {
        "another round's": honest | chunked(model(9)),
        "in another order": honest | {"w/0": honest["w/0"][::-1]},
        "one bit": honest | {"snow/0": np.nextafter(honest["snow/0"], np.float32(2))},
        "minus zero": honest | {"ice/0": np.copysign(honest["ice/0"], np.where(honest["ice/0"] == 0, -1, 1))},
    }
    for what, sent in swaps.items():
        with pytest.raises(PeerFault) as fault:
            icy.take(spec, model(1), chunks={n: c.astype(np.float32) for n, c in sent.items()})
        assert fault.value.reason == "another-model", what
    assert icy.room._held(TASK) is None and icy.files() == 0


def test_chunks_that_the_model_does_not_have_are_refused_as_they_come(icy):
    honest = chunked({**model(1), **FROZEN})
    spec, free = icy.spec(1, model(1)), np.zeros(4, dtype=np.float32)
    for name in ("w/1", "w", "w/00", "ice/2", "ice/-1", "other/0", "", "w/0/0", "../w/0"):
        icy.must_refuse("unknown-chunk", spec, model(1), chunks=honest | {name: free})
    shapes = [free[:3], free.reshape(2, 2), np.zeros(5, np.float32), free.astype(np.float64), free.astype(np.int32)]
    for chunk in [*shapes, np.zeros(0, np.float32), np.float32(1)]:
        icy.must_refuse("wrong-shape", spec, model(1), chunks=honest | {"w/0": np.asarray(chunk)})
    wide = {**model(1), "b": np.ones(2, dtype=np.float32)}
    icy.must_refuse("wrong-shape", icy.spec(1, wide), wide)


def test_an_outline_alone_makes_nobody_allocate(desk):
    """The node says that the frozen part has eight gigabytes, and sends none of it."""
    spec, outline = desk.spec(1, model(1)), Outline(Layout.of(model(1)), Layout(("ice",), (((1 << 31) - 5,),)))
    with pytest.raises(PeerFault) as fault:
        desk.room.take(desk.card, spec, {"model": outline.to_bytes()}, chunked(model(1)))
    assert fault.value.reason == "missing-chunks"
    desk.must_refuse("malformed", spec, model(1), parts={"model": b"{}"})


def test_frozen_is_what_the_spec_says_is_frozen(icy):
    """An array that others train is not frozen for one: the digest says which are."""
    mixed = Outline(Layout(("b", "w"), ((1,), (2, 2))), Layout(("ice", "snow"), ((CHUNK_VALUES + 3,), (2,))))
    swapped = Outline(Layout(("w",), ((2, 2),)), Layout(("b", "ice", "snow"), ((1,), (CHUNK_VALUES + 3,), (2,))))
    spec, sent = icy.spec(1, model(1)), chunked({**model(1), **FROZEN})
    for outline, reason in ((mixed, "another-model"), (swapped, "wrong-shape")):
        with pytest.raises(PeerFault) as fault:
            icy.room.take(icy.card, spec, {"model": outline.to_bytes()}, sent)
        assert fault.value.reason == reason


def test_a_copy_of_one_task_is_none_of_another(icy):
    icy.take(icy.spec(1, model(1)), model(1))
    other = icy.spec(1, model(1), task="task-2")
    icy.must_refuse("missing-chunks", other, model(1), chunks={})
    icy.take(other, model(1))
    # one copy is all there is, whatever tasks a node thinks of
    files = icy.files()
    for number in range(5):
        icy.take(icy.spec(1, model(1), task=f"task-{number}"), model(1))
    assert icy.files() == files


def other_model(number):
    return {f"ice-{number}": np.full(3, number, dtype=np.float32), f"snow-{number}": np.ones(number, dtype=np.float32)}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("same_task", [False, True])
def test_models_of_other_names_leave_nothing_behind(desk, restarted, same_task):
    for number in range(1, 6):
        desk.frozen = other_model(number)
        task = TASK if same_task else f"task-{number}"
        copy = desk.take(desk.spec(1, model(1), task=task), model(1))
        assert same(copy, {**model(1), **desk.frozen}) and desk.files() == 1 + len(copy.outline.chunks()) == 5
        if restarted:
            desk.restart()
    assert same(desk.take(desk.spec(2, model(1), task=task), model(1), chunks={}), {**model(1), **desk.frozen})


@pytest.mark.parametrize("others", [1, 2], ids=["the same arrays", "other arrays"])
@pytest.mark.parametrize("writes", range(1, 6))
def test_a_crash_while_a_model_is_written_leaves_no_mix_and_nothing_forgotten(desk, monkeypatch, others, writes):
    desk.frozen = other_model(1)
    desk.take(desk.spec(1, model(1)), model(1))
    put, left = type(desk.room._folder.state).put, [1] * writes

    def dying(folder, name, data):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        put(folder, name, data)

    monkeypatch.setattr(type(desk.room._folder.state), "put", dying)
    desk.frozen = other_model(others)
    try:
        desk.take(desk.spec(2, model(2)), model(2))
    except KeyboardInterrupt:
        assert writes < 5
    monkeypatch.undo()
    desk.restart()
    held = desk.room._held(TASK)
    assert held is None or same(held, {**model(2), **other_model(others)})
    desk.frozen = other_model(3)
    copy = desk.take(desk.spec(3, model(3)), model(3))
    assert desk.files() == 1 + len(copy.outline.chunks())


def test_an_index_that_is_damaged_is_written_anew(icy):
    icy.take(icy.spec(1, model(1)), model(1))
    icy.kit.folder("client-1").state.put("copy", b"junk")
    icy.restart()
    icy.take(icy.spec(2, model(2)), model(2))
    icy.restart()
    assert same(icy.room._held(TASK), {**model(2), **FROZEN})


# --- across processes


def test_a_copy_outlives_its_process_where_it_saves_a_download(icy):
    first = icy.take(icy.spec(1, model(1)), model(1))
    icy.restart()
    copy = icy.take(icy.spec(2, model(2)), model(2), chunks=chunked(model(2)))
    assert same(copy, {**model(2), **FROZEN}) and icy.files() == 1 + len(first.outline.chunks())
    state = icy.kit.folder("client-1").path / "state"
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in state.iterdir())


def test_nothing_is_written_where_everything_changes_every_time(desk):
    desk.take(desk.spec(1, model(1)), model(1))
    assert desk.files() == 0
    desk.restart()
    desk.must_refuse("missing-chunks", desk.spec(2, model(1)), model(1), chunks={})


def test_only_what_changed_is_written_again(icy, monkeypatch):
    icy.take(icy.spec(1, model(1)), model(1))
    written = []
    put = type(icy.room._folder.state).put
    monkeypatch.setattr(
        type(icy.room._folder.state), "put", lambda self, name, data: (written.append(name), put(self, name, data))
    )
    icy.take(icy.spec(2, model(2)), model(2), chunks=chunked(model(2)))
    assert written == ["copy/w/0", "copy/b/0", "copy"]


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data[:-4] + b"\0\0\0\1", lambda data: b""])
def test_a_damaged_file_is_no_copy(icy, spoil):
    icy.take(icy.spec(1, model(1)), model(1))
    state = icy.kit.folder("client-1").path / "state"
    for file in sorted(state.iterdir()):
        kept = file.read_bytes()
        file.write_bytes(spoil(kept))
        icy.restart()
        assert icy.room._held(TASK) is None
        icy.must_refuse("missing-chunks", icy.spec(2, model(1)), model(1), chunks={})
        file.write_bytes(kept)
    icy.restart()
    assert same(icy.take(icy.spec(2, model(1)), model(1), chunks={}), {**model(1), **FROZEN})


# --- older copies


@pytest.fixture
def lagging(tmp_path):
    """A task that allows models of one version back, and a client that has version 1."""
    desk = Desk(tmp_path, staleness=1)
    desk.take(desk.spec(1, model(1)), model(1))
    return desk


def test_an_older_copy_is_used_where_holders_vouch_for_its_round(lagging):
    first, spec = lagging.spec(1, model(1)), lagging.spec(2, model(2))
    for holders in (3, 2):
        copy = lagging.take(spec, model(2), chunks={}, parts=lagging.opened(first, holders))
        assert copy.basis == Basis(1, first.model_digest) and same(copy, model(1))
    lagging.restart()
    assert lagging.take(spec, model(2), chunks={}, parts=lagging.opened(first)).basis.version == 1


def test_without_enough_holders_words_it_is_not(lagging):
    first, spec = lagging.spec(1, model(1)), lagging.spec(2, model(2))
    for parts in (
        {},
        lagging.opened(first, holders=1),
        lagging.opened(spec),
        lagging.opened(lagging.spec(1, model(7))),
        lagging.opened(first, kind="checked"),
    ):
        lagging.must_refuse("missing-chunks", spec, model(2), chunks={}, parts=parts)


def test_a_copy_that_is_too_old_or_too_new_is_not_used(lagging):
    vouched = lagging.opened(lagging.spec(1, model(1)))
    for version in (3, 9, 0):
        spec = lagging.spec(3, model(2), version)
        lagging.must_refuse("missing-chunks", spec, model(2), chunks={}, parts=vouched)
    spec = lagging.spec(2, model(2), version=1)
    lagging.must_refuse("missing-chunks", spec, model(2), chunks={}, parts=vouched)


def test_what_came_is_used_where_something_came(lagging):
    vouched = lagging.opened(lagging.spec(1, model(1)))
    copy = lagging.take(lagging.spec(2, model(2)), model(2), parts=vouched)
    assert copy.basis.version == 2 and same(copy, model(2))


def test_a_task_without_staleness_has_no_older_copies(desk):
    first = desk.spec(1, model(1))
    desk.take(first, model(1))
    desk.must_refuse("missing-chunks", desk.spec(2, model(2)), model(2), chunks={}, parts=desk.opened(first))


def test_control_unchecked_a_made_up_model_would_be_trained_from(lagging, monkeypatch):
    monkeypatch.setattr(copies, "opened_by", lambda *_: {1, 2, 3})
    assert lagging.take(lagging.spec(2, model(2)), model(2), chunks={}).basis.version == 1
