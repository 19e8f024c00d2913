"""The directory of a task: a client is never said to hold what it has not, whatever is lost or comes late."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from fednode.cache.round_directory import Copies, Parcel, RoundDirectory, pack, too_old
from fednode.errors import PeerFault

KEYS = ("a", "b", "c", "d", "e")


def directory(lease: float = 60.0) -> RoundDirectory:
    return RoundDirectory.of(KEYS, lease)


def shared(*clients: str) -> RoundDirectory:
    now, parcels = directory().offer(clients, 0.0)
    return now.acknowledge({client: parcel.number for client, parcel in parcels.items()}, 0.0)


def test_nothing_is_held_before_it_is_acknowledged():
    start = directory()
    offered, parcels = start.offer(["x"], 0.0)
    assert parcels["x"] == Parcel(1, 0, 0, 0b11111)
    assert offered.holds("x", "a") is None and start.offer(["x"], 0.0)[0] == offered
    done = offered.acknowledge({"x": 1}, 1.0)
    assert [done.holds("x", key) for key in KEYS] == [0] * 5 and done.holds("y", "a") is None


def test_what_is_still_held_is_not_sent_again():
    done = shared("x", "y")
    changed = done.bits(["b", "d"])
    written, news = done.write(changed)
    assert news == {"x": changed, "y": changed} and written.waiting() == news
    _, parcels = written.offer(["x"], 1.0)
    assert parcels["x"][1:] == (changed, done.bits(["a", "c", "e"]), changed)
    assert written.names(parcels["x"].send) == ("b", "d")
    assert [written.version(key) for key in KEYS] == [0, 1, 0, 1, 0] and written.holds("x", "a") == 0


def test_a_write_between_offer_and_acknowledgement_leaves_the_written_part_unconfirmed():
    offered, parcels = directory().offer(["x"], 0.0)
    written, news = offered.write(offered.bits(["c"]))
    done = written.acknowledge({"x": parcels["x"].number}, 1.0)
    assert news == {"x": done.bits(["c"])} == done.waiting()
    assert done.holds("x", "c") is None and done.holds("x", "a") == 0
    assert done.offer(["x"], 2.0)[1]["x"][1:] == (0b00100, 0b11011, 0b00100)


def test_an_acknowledgement_of_an_older_parcel_is_void_and_one_of_none_is_a_fault():
    first, parcels = directory().offer(["x"], 0.0)
    second, _ = first.offer(["x"], 1.0)
    assert second.acknowledge({"x": parcels["x"].number}, 2.0) == second
    assert second.acknowledge({"stranger": 1}, 2.0).holds("stranger", "a") is None
    for number in (0, -1, 3):
        with pytest.raises(PeerFault, match="not-offered"):
            second.acknowledge({"x": number}, 2.0)


def test_a_silent_client_is_forgotten_when_its_lease_runs_out_and_no_number_comes_twice():
    done = shared("x", "y").acknowledge({}, 0.0)
    later, parcels = done.offer(["y"], 50.0)
    assert later.expire(59.9) == later
    left = later.expire(60.0)
    assert left.holds("x", "a") is None and left.holds("y", "a") == 0 and "x" not in left.waiting()
    again, more = left.offer(["x"], 61.0)
    assert more["x"].send == 0b11111 and more["x"].number > parcels["y"].number
    assert again.acknowledge({"x": 1}, 62.0).holds("x", "a") is None
    assert again.forget("y").holds("y", "a") is None and again.forget("nobody") == again


def test_a_client_that_lacks_a_copy_says_so():
    copies = Copies().take(pack(Parcel(4, 0, 0, 0b0110)))
    assert copies == (4, 0b0110) and copies.take(pack(Parcel(3, 0b0110, 0, 0))) == copies
    assert copies.take(pack(Parcel(5, 0b0010, 0b0100, 0b1000))) == (5, 0b1100)
    with pytest.raises(PeerFault, match="copy-missing"):
        copies.take(pack(Parcel(5, 0b0010, 0b0010, 0)))


def test_those_of_whom_the_same_is_known_get_one_parcel_and_may_not_answer_another():
    node, parcels = shared("x", "y").offer(["x", "y", "z"], 1.0)
    number = parcels["x"].number
    assert parcels["x"] is parcels["y"] and parcels["z"].number == number and parcels["z"].send == 0b11111
    node, again = node.acknowledge({"x": number, "y": number}, 2.0).offer(["x"], 3.0)
    assert again["x"].number > number
    assert node.acknowledge({"x": number, "y": again["x"].number}, 4.0) == node
    with pytest.raises(PeerFault, match="not-offered"):
        node.acknowledge({"z": again["x"].number + 1}, 5.0)


def test_bad_input_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="twice"):
        RoundDirectory.of(["a", "a"], 1.0)
    for lease in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="give seconds"):
            RoundDirectory.of(["a"], lease)
    for bits in (-1, 0b100000):
        with pytest.raises(ValueError, match="5 keys only"):
            directory().write(bits)
    with pytest.raises(KeyError):
        directory().bits(["z"])


@pytest.mark.parametrize(
    ("computed_from", "bound", "refused"),
    [(7, 0, False), (6, 0, True), (8, 0, True), (5, 2, False), (4, 2, True), (8, 2, True)],
)
def test_an_update_from_too_old_a_version_is_refused(computed_from, bound, refused):
    assert too_old(computed_from, 7, bound) is refused


def test_a_bound_under_nought_means_nothing():
    with pytest.raises(ValueError, match="bound"):
        too_old(1, 1, -1)


sets = st.integers(0, 2**70)


@given(st.integers(1, 2**64 - 1), sets, sets, sets, sets, st.integers(0, 3))
def test_a_parcel_is_taken_from_its_bytes_wherever_they_begin(number, held, drop, keep, send, start):
    data = b"\0" * start + pack(Parcel(number, drop, keep, send))
    left = held & ~drop
    if left & keep == keep:
        assert Copies(0, held).take(data, start) == (number, left | send)
        return
    with pytest.raises(PeerFault, match="copy-missing"):
        Copies(0, held).take(data, start)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_other_bytes_are_a_fault_of_the_peer(data):
    try:
        Copies(0, -1).take(data)
    except PeerFault as fault:
        assert fault.reason == "malformed"
    else:
        _, *lengths = struct.unpack_from("<QIII", data)
        assert len(data) == 20 + sum(lengths)


class Rounds(RuleBasedStateMachine):
    """Clients with real copies, and a plain table beside the directory; messages are lost, late and repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.node = directory(lease=10.0)
        self.versions = dict.fromkeys(KEYS, 0)
        self.clients = {name: Copies() for name in "xyz"}
        self.values: dict[str, dict[str, int]] = {name: {} for name in "xyz"}
        self.out: dict[str, list[tuple[Parcel, dict[str, int]]]] = {name: [] for name in "xyz"}
        self.back: dict[str, list[int]] = {name: [] for name in "xyz"}

    @rule(keys=st.sets(st.sampled_from(KEYS), min_size=1))
    def releases(self, keys):
        self.node, news = self.node.write(self.node.bits(keys))
        for key in keys:
            self.versions[key] += 1
        assert all(set(self.node.names(bits)) <= keys for bits in news.values())

    @rule(names=st.sets(st.sampled_from("xyz"), min_size=1), keys=st.none() | st.sets(st.sampled_from(KEYS)))
    def begins_a_round(self, names, keys):
        bits = None if keys is None else self.node.bits(keys)
        self.node, parcels = self.node.offer(sorted(names), self.now, bits)
        for name, parcel in parcels.items():
            assert parcel.keep & parcel.send == 0 and parcel.keep & parcel.drop == 0
            self.out[name].append((parcel, {key: self.versions[key] for key in self.node.names(parcel.send)}))

    @rule(name=st.sampled_from("xyz"), twice=st.booleans(), lost=st.booleans())
    def arrives(self, name, twice, lost):
        if not self.out[name]:
            return
        parcel, values = self.out[name][0] if twice else self.out[name].pop(0)
        if lost:
            return
        newer = parcel.number > self.clients[name].number
        try:
            self.clients[name] = self.clients[name].take(pack(parcel))
        except PeerFault:
            self.node = self.node.forget(name)
            return
        if newer:
            for key in self.node.names(parcel.drop):
                self.values[name].pop(key, None)
            self.values[name] |= values
        self.back[name].append(self.clients[name].number)

    @rule(name=st.sampled_from("xyz"), twice=st.booleans(), lost=st.booleans())
    def replies(self, name, twice, lost):
        if self.back[name]:
            number = self.back[name][0] if twice else self.back[name].pop(0)
            if not lost:
                self.node = self.node.acknowledge({name: number}, self.now)

    @rule(name=st.sampled_from("xyz"))
    def comes_back_empty(self, name):
        self.clients[name], self.values[name] = Copies(), {}
        self.node = self.node.forget(name)

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def passes(self, seconds):
        self.now += seconds
        self.node = self.node.expire(self.now)

    @invariant()
    def a_client_has_what_it_is_said_to_hold_at_the_newest_version(self):
        for name in "xyz":
            for key in KEYS:
                held = self.node.holds(name, key)
                assert held is None or held == self.versions[key] == self.values[name].get(key)

    @invariant()
    def what_may_be_old_is_never_taken_for_held(self):
        for standing in self.node.standings.values():
            assert standing.held & (standing.stale | standing.sent) == 0
            assert standing.parcel & ~standing.sent == 0 and standing.dropping & ~standing.stale == 0

    @invariant()
    def versions_count_the_releases_of_each_key(self):
        assert {key: self.node.version(key) for key in KEYS} == self.versions


@pytest.mark.thorough
def test_rounds_with_every_kind_of_trouble():
    run_state_machine_as_test(Rounds, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))


def test_a_thousand_keys_and_clients_cost_a_few_operations_a_client():
    many = RoundDirectory.of((f"chunk-{number}" for number in range(1_000)), 60.0)
    names = [f"client-{number}" for number in range(1_000)]
    now, parcels = many.offer(names, 0.0)
    now = now.acknowledge({name: parcel.number for name, parcel in parcels.items()}, 0.0)
    written, news = now.write((1 << 500) - 1)
    assert len(news) == 1_000 and len({id(one) for one in written.standings.values()}) == 1
    _, parcels = written.offer(names, 1.0)
    assert {parcel[1:] for parcel in parcels.values()} == {((1 << 500) - 1, ((1 << 500) - 1) << 500, (1 << 500) - 1)}


def test_a_proof_confirms_without_a_parcel_and_however_late():
    directory = RoundDirectory.of(("a", "b"), lease=10.0)
    both = directory.bits(("a", "b"))
    directory, _ = directory.write(both)
    directory = directory.confirm("c1", both, now=0.0)
    assert (directory.holds("c1", "a"), directory.holds("c1", "b")) == (1, 1)
    directory, news = directory.write(directory.bits(("a",)))
    assert news == {"c1": 1} and directory.waiting() == {"c1": 1}
    # an answer to the round before: it has b at its newest version, and says nothing of a
    directory = directory.confirm("c1", directory.bits(("b",)), now=1.0)
    assert (directory.holds("c1", "a"), directory.holds("c1", "b")) == (None, 1)
    directory, parcels = directory.offer(("c1", "c2"), now=2.0)
    assert (parcels["c1"].send, parcels["c2"].send) == (1, both)
    directory = directory.confirm("c1", both, now=3.0)
    assert directory.waiting() == {} and directory.holds("c1", "a") == 2
    assert directory.expire(14.0).holds("c1", "a") is None
