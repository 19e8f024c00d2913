"""A member goes by the newest list of members that it has seen signed, and by none that has expired."""

from contextlib import suppress

import pytest
from kit.clocks import FakeClock
from kit.cohort import TASK, Size, wide_limits
from kit.members import NODE

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.requests import TaskCard, ask_frame, close_request, key_request
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.client import Client
from fednode_clients.holder.holder import Holder
from fednode_clients.keyfolder.cohort_marks import CohortMarks
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_crypto import SystemRng, scheme
from fednode_crypto.identity import SigningKey

SIZE = Size(clients=3, holders=2, scheme="ring")
KEY = SigningKey.generate()
NOW = 1_800_000_000


class Yard:
    """Key folders of members whose enroller the test is; their clock stands at `NOW`."""

    def __init__(self, root) -> None:
        self.clock = FakeClock()
        self.clock.sleep(NOW - self.clock.time())
        self.folders = {name: KeyFolder.create(root / name, name, KEY.public) for name in self.names}
        self.root = root

    names = (*SIZE.client_names, *SIZE.holder_names)

    def cohort(self, serial=1, expires=NOW + 1_000, key=KEY) -> Cohort:
        members = [self.folders[name].member("client") for name in SIZE.client_names]
        members += [self.folders[name].member("holder", point) for point, name in enumerate(SIZE.holder_names, 1)]
        return Cohort.enrol(members, key, NODE.signing_key.public, serial, expires)

    def opened(self, kind, name):
        """The member's process, as started now."""
        return kind(KeyFolder.open(self.root / name, self.clock), wide_limits(), scheme, SystemRng())

    def frame(self, cohort, task=TASK) -> bytes:
        return ask_frame("task", task, TaskCard(task, cohort, SIZE.sum_params()).parts())

    def spec(self, cohort) -> RoundSpec:
        return RoundSpec(TASK, 1, 1, bytes(32), cohort.digest(), bytes(32), SIZE.terms(), SIZE.sum_params())


@pytest.fixture
def yard(tmp_path):
    return Yard(tmp_path)


def refused(ask) -> str:
    with pytest.raises(PeerFault) as caught:
        ask()
    return caught.value.reason


@pytest.mark.parametrize("kind", [Client, Holder])
def test_a_task_of_an_older_serial_is_refused_also_after_a_restart_and_a_retirement(yard, kind):
    name = "client-1" if kind is Client else "holder-1"
    member = yard.opened(kind, name)
    member.take_task(yard.frame(yard.cohort(3)))
    for task, serial in (("again", 3), ("next", 4)):
        member.take_task(yard.frame(yard.cohort(serial), task))
    retire(yard.folders[name])
    for one in (member, yard.opened(kind, name)):
        assert refused(lambda: one.take_task(yard.frame(yard.cohort(3), "third"))) == "older-cohort"  # noqa: B023
        one.take_task(yard.frame(yard.cohort(4), "fourth"))


@pytest.mark.parametrize("kind", [Client, Holder])
def test_of_two_lists_of_one_serial_the_first_alone_holds(yard, kind):
    """Whoever was removed in one would come back by the other. Control: the other is good by itself."""
    name = "client-1" if kind is Client else "holder-1"
    member, first, second = yard.opened(kind, name), yard.cohort(2), yard.cohort(2, NOW + 2_000)
    member.take_task(yard.frame(first))
    for one in (member, yard.opened(kind, name)):
        assert refused(lambda: one.take_task(yard.frame(second, "another"))) == "older-cohort"  # noqa: B023
        one.take_task(yard.frame(first, "again"))
    retire(yard.folders[name])
    assert refused(lambda: yard.opened(kind, name).take_task(yard.frame(second, "another"))) == "older-cohort"
    yard.opened(kind, name).take_task(yard.frame(yard.cohort(3), "next"))
    yard.opened(Client, "client-2").take_task(yard.frame(second))


def test_of_two_lists_of_one_serial_that_come_at_once_one_holds(yard, monkeypatch):
    lists = [yard.cohort(1), yard.cohort(1, NOW + 2_000)]
    marks = [KeyFolder.open(yard.root / "client-1", yard.clock).cohorts for _ in lists]
    with monkeypatch.context() as meanwhile:
        newest = CohortMarks._newest
        # the second process looked before the first had made its mark
        seen = iter([(0, "")])
        marks[0].require_current(lists[0])
        meanwhile.setattr(CohortMarks, "_newest", lambda self: next(seen, None) or newest(self))
        with suppress(PeerFault):
            marks[1].require_current(lists[1])
    holds = max(lists, key=lambda one: one.digest())
    for one in marks:
        one.require_current(holds)
        assert refused(lambda: one.require_current(min(lists, key=lambda one: one.digest()))) == "older-cohort"  # noqa: B023


def test_a_serial_of_another_enroller_counts_for_nothing(yard):
    member = yard.opened(Client, "client-1")
    forged = yard.cohort(9, key=SigningKey.generate())
    assert refused(lambda: member.take_task(yard.frame(forged))) == "unknown-cohort"
    member.take_task(yard.frame(yard.cohort(1)))


def test_rounds_of_a_task_stop_when_a_newer_list_was_seen(yard):
    client, holder = yard.opened(Client, "client-1"), yard.opened(Holder, "holder-1")
    old, new = yard.cohort(1), yard.cohort(2)
    for member in (client, holder):
        member.take_task(yard.frame(old))
    assert holder.box_key(key_request(TASK, 1)).head.round == 1
    assert refused(lambda: client.join(yard.spec(old), {}, {})) == "malformed"
    for member in (client, holder):
        member.take_task(yard.frame(new, "another"))
    assert refused(lambda: client.join(yard.spec(old), {}, {})) == "older-cohort"
    assert refused(lambda: holder.box_key(key_request(TASK, 2))) == "older-cohort"
    assert holder.box_key(key_request("another", 1)).head.task == "another"


def test_tasks_and_rounds_end_with_the_list(yard):
    client, holder = yard.opened(Client, "client-1"), yard.opened(Holder, "holder-1")
    cohort = yard.cohort(1, NOW + 100)
    for member in (client, holder):
        member.take_task(yard.frame(cohort))
    yard.clock.sleep(99)
    assert holder.box_key(key_request(TASK, 1)).head.round == 1
    yard.clock.sleep(1)
    for one in (client, yard.opened(Client, "client-1")):
        assert refused(lambda: one.join(yard.spec(cohort), {}, {})) == "expired-cohort"  # noqa: B023
        assert refused(lambda: one.take_task(yard.frame(cohort, "another"))) == "expired-cohort"  # noqa: B023
    for frame in (key_request(TASK, 2), close_request(TASK, 1)):
        assert refused(lambda: holder.handle(frame)) == "expired-cohort"  # noqa: B023


def test_whoever_was_replaced_is_told_by_the_next_list_and_does_not_go_back(yard, tmp_path):
    old = yard.cohort(1)
    lost = yard.opened(Holder, "holder-2")
    yard.folders["holder-2"] = KeyFolder.create(tmp_path / "new", "holder-2", KEY.public)
    assert refused(lambda: lost.take_task(yard.frame(yard.cohort(2)))) == "not-enrolled"
    assert refused(lambda: lost.take_task(yard.frame(old))) == "older-cohort"
