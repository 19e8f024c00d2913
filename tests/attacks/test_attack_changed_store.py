"""The cache gives back something else than what the node stored.

Attacker: whoever writes to the node's cache (a Redis server, a folder, the node's memory) and has no key. Success: the
published sum moves by a number of its choice, or clients are sent another model than the one that was written, and the
report says nothing of it. It fails: an update is compared with the hashes that its client signed, the model with the
hashes that the node keeps in memory, before anything is charged. Control: without the comparison, the sum moves by 5.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit import cohort as kit
from kit.cache import redis_server
from kit.cohort import TASK, FakeCohort, check_released, opened_sum
from kit.crypto.attacker import real_cohort
from kit.crypto.insecure import InsecureRng

from fednode.cache import CacheBackend, FileBackend, Limits, MemoryBackend, WhenFull
from fednode.clock import SystemClock
from fednode.driver import Driver, Request, collecting
from fednode.errors import StoreError
from fednode.stores import ParameterStore, UpdateId, UpdateStore
from fednode.stores.parameter_manifest import ModelManifest, StoredChunk, travel_digest
from fednode.wire import join_parts, split_parts
from fednode_crypto import SumParams, scheme
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.ring.sealing import RingSealedSum

ROOM = Limits(256, 1 << 28, 1 << 26)
MOVED = 5
VICTIM = "client-2"


@contextmanager
def cache(kind: str, folder: Path) -> Iterator[CacheBackend]:
    """An empty cache, open for everybody."""
    match kind:
        case "memory":
            yield MemoryBackend(SystemClock(), ROOM, WhenFull.REFUSE)
        case "files":
            with FileBackend(folder / "cache", SystemClock(), ROOM, WhenFull.REFUSE) as files:
                yield files
        case _:
            with (
                redis_server.RedisServer(folder) as server,
                redis_server.opened_on(server, SystemClock(), limits=ROOM, pins=True, piece_bytes=1 << 16) as backend,
            ):
                yield backend


@pytest.fixture(params=["memory", "files", pytest.param("redis", marks=pytest.mark.server)])
def shared(request, tmp_path, tmp_path_factory):
    with cache(request.param, tmp_path_factory.mktemp("c")) as backend:
        yield backend


@pytest.fixture
def cohort(tmp_path):
    return real_cohort(tmp_path)


def begun(cohort: FakeCohort, backend: CacheBackend) -> Driver:
    """A node whose updates and model lie in `backend`; holder 3 will strike one client."""
    cohort.tell(VICTIM, kit.spoiling_box(3))
    node = replace(cohort.node(), updates=UpdateStore(backend, 1.0), parameters=ParameterStore(backend, TASK))
    return cohort.begun(node)


def changing(backend: CacheBackend, key: str, change) -> kit.Conduct:
    """While a member is asked, somebody changes what is stored under `key`."""

    def conduct(cohort: FakeCohort, name: str, request: Request):
        found = backend.get(key)
        assert isinstance(found, bytes)
        backend.pin(key, change(found))
        return [cohort.speak(name, request)]

    return conduct


def moved(params: SumParams, payload: bytes) -> bytes:
    """The payload of the same client, had it said `MOVED` less in the first coordinate."""
    values = np.zeros((2, params.dimension), dtype=np.int64)
    values[1, 0] = -MOVED
    low, high = (scheme("ring").sealer(params).seal(row, InsecureRng(7), b"any round").payload for row in values)
    moduli, lead = RingSealedSum.shape(params)
    words = from_bytes(payload, moduli, lead)
    moduli.add(words, from_bytes(high, moduli, lead))
    moduli.subtract(words, from_bytes(low, moduli, lead))
    return to_bytes(words, moduli)


def key_of(name: str) -> str:
    return UpdateId(TASK, 1, name).key()


def change_payload(cohort: FakeCohort, backend: CacheBackend) -> None:
    params = cohort.size.sum_params()
    cohort.tell("holder-1", changing(backend, key_of(VICTIM), lambda data: moved(params, data)), "boxes")


def test_what_is_stored_and_not_changed_is_released(cohort, shared):
    check_released(cohort, begun(cohort, shared).run_round(1), {VICTIM})


def test_the_update_of_a_struck_client_that_was_changed_is_found_before_the_charge(cohort, shared):
    driver = begun(cohort, shared)
    change_payload(cohort, shared)
    with pytest.raises(StoreError, match=f"the update of {VICTIM} in round 1") as caught:
        driver.run_round(1)
    assert caught.value.exit_code == 8 and not cohort.asked("open")
    assert driver.broken is not None and not driver.broken.opened and driver.broken.release is None


def test_control_unless_it_is_compared_the_released_sum_moves(cohort, shared, monkeypatch):
    monkeypatch.setattr(collecting, "_is", lambda _data, _sha256: True)
    driver = begun(cohort, shared)
    change_payload(cohort, shared)
    outcome = driver.run_round(1)
    assert outcome.release is not None and VICTIM not in outcome.survivors
    wrong = opened_sum(outcome.release.mean, cohort.size.terms()) - cohort.sum_of(outcome.survivors)
    assert wrong[0] == MOVED and not wrong[1:].any()


@pytest.mark.parametrize(
    "change",
    [
        lambda boxes: join_parts({**boxes, "box-1": boxes["box-2"]}),
        lambda boxes: join_parts({name: box for name, box in boxes.items() if name != "box-1"}),
        lambda boxes: join_parts({**boxes, "box-9": boxes["box-1"]}),
        lambda boxes: b"no parts",
    ],
    ids=["exchanged", "one missing", "one more", "junk"],
)
def test_boxes_that_were_changed_are_found_before_a_holder_sees_them(cohort, change):
    backend = MemoryBackend(cohort.clock, ROOM, WhenFull.REFUSE)
    driver = begun(cohort, backend)
    told = changing(backend, key_of("client-1/boxes"), lambda data: change(split_parts(data, 5)))
    cohort.tell("client-5", told)
    with pytest.raises(StoreError, match="the boxes of client-1 in round 1"):
        driver.run_round(1)
    assert not cohort.asked("boxes")


# --- the model


def another_model(backend: CacheBackend) -> None:
    """Replace the one chunk of version 1, and all that names it."""
    store = f"parameters/{TASK}"
    manifest = ModelManifest.from_bytes(backend.get(f"{store}/1"), 1)
    (array,) = manifest.arrays
    (old,) = array.chunks
    values = np.full(old.chunk.count, 3.0)
    data = values.astype(array.dtype).tobytes()
    new = StoredChunk(old.chunk, 1, hashlib.sha256(data).digest(), travel_digest(values))
    backend.pin(f"{store}/{old.id}@1", data)
    backend.pin(f"{store}/1", replace(manifest, arrays=(replace(array, chunks=(new,)),)).to_bytes())


def test_a_model_that_was_changed_together_with_its_manifest_is_not_read(cohort, shared):
    driver = begun(cohort, shared)
    another_model(shared)
    with pytest.raises(StoreError, match="version 1 of the parameters"):
        driver.parameters()
    with pytest.raises(StoreError, match="version 1 of the parameters"):
        driver.run_round(1)
    assert not cohort.asked("round")


def test_control_unless_it_is_compared_the_other_model_is_read(cohort, shared, monkeypatch):
    driver = begun(cohort, shared)
    another_model(shared)
    monkeypatch.setattr(ParameterStore, "_whole", lambda _self, _version, _key, _sha256, value: value)
    assert (driver.parameters() == 3.0).all()
