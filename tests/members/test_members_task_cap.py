"""A node that makes up tasks fills no member's disk: each member takes so many, ever."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from kit.cohort import TASK, FakeCohort, Size, wide_limits

from fednode.driver.steps.ceremony import agree_on_key
from fednode.errors import PeerFault, StoreError
from fednode.protocol.requests import TaskCard, ask_frame
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_crypto import scheme
from fednode_crypto.identity import SigningKey

BOXED = Size(clients=3, holders=3, dimension=4, scheme="ring")


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder.create(tmp_path / "keys", "client-1", SigningKey.generate().public)


def reason(folder: KeyFolder, task: str, most: int) -> str:
    try:
        folder.tasks.admit(task, most)
    except PeerFault as fault:
        return fault.reason
    return "admitted"


def files(folder: KeyFolder) -> list[Path]:
    return sorted(path for path in folder.path.rglob("*") if path.is_file())


def test_so_many_tasks_and_no_more_also_after_a_restart(folder: KeyFolder) -> None:
    assert [reason(folder, f"task-{number}", 3) for number in range(5)] == ["admitted"] * 3 + ["task-cap"] * 2
    before = files(folder)
    again = KeyFolder.open(folder.path)
    assert [reason(again, f"task-{number}", 3) for number in range(3)] == ["admitted"] * 3
    assert [reason(again, f"../{number}", 3) for number in range(9)] == ["task-cap"] * 9
    # a refused name leaves nothing
    assert files(again) == before
    assert reason(again, "task-4", 4) == "admitted" and reason(again, "task-5", 4) == "task-cap"


def test_processes_that_count_at_once_take_no_more_together(folder: KeyFolder) -> None:
    said: list[str] = []
    gate = threading.Barrier(8)

    def ask(number: int) -> None:
        mine = KeyFolder.open(folder.path)
        gate.wait()
        said.append(reason(mine, f"task-{number}", 4))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = sum(not path.name.startswith(".") for path in (folder.path / "tasks").iterdir())
    assert len(said) == 8 and said.count("admitted") == kept <= 4


def test_a_disk_that_cannot_count_admits_nobody(folder: KeyFolder) -> None:
    (folder.path / "tasks").touch()
    with pytest.raises(StoreError, match="could not"):
        folder.tasks.admit("task", 3)


def give(kit: FakeCohort, member: str, card: TaskCard) -> None:
    one = kit.client(member) if member.startswith("client") else kit.holder(member)
    one.take_task(ask_frame("task", card.task, card.parts()))


def test_a_ceremony_too_many_is_refused_before_a_secret_is_kept(tmp_path: Path) -> None:
    kit = FakeCohort(tmp_path, Size(clients=3, holders=2), None, wide_limits(max_tasks=1))
    agreed = agree_on_key(kit.node(), kit.task())
    before = files(kit.folder("holder-1"))
    card = replace(agreed.card, task="another")
    with pytest.raises(PeerFault, match="task-cap"):
        kit.holder("holder-1").handle(ask_frame("key-commit", "another", card.parts()))
    assert [path for path in files(kit.folder("holder-1")) if path.name != "turn.lock"] == [
        path for path in before if path.name != "turn.lock"
    ]


@pytest.mark.parametrize("member", ["client-1", "holder-1"])
def test_tasks_that_were_closed_make_room_and_stay_refused_for_ever(tmp_path: Path, member: str) -> None:
    """Whoever speaks in the node's place fills the cap; the member's owner empties it, and opens nothing by that."""
    kit = FakeCohort(tmp_path, BOXED, scheme("ring"), wide_limits(max_tasks=2))
    task, taken = kit.task(), []
    for _ in range(3):
        fresh = [f"made-up-{len(taken) + number}" for number in range(2)]
        for name in fresh:
            give(kit, member, TaskCard(name, task.cohort, task.sum_params))
        taken += fresh
        before = files(kit.folder(member))
        with pytest.raises(PeerFault, match=r"max-tasks .* fednode keys retire "):
            give(kit, member, TaskCard(TASK, task.cohort, task.sum_params))
        # refused with a reason, and nothing is left of it; a task that was taken may come again
        assert files(kit.folder(member)) == before
        give(kit, member, TaskCard(fresh[0], task.cohort, task.sum_params))
        assert retire(kit.folder(member)).closed == len(fresh)
        kit.restart(member)
        for name in taken:
            with pytest.raises(PeerFault) as refused:
                give(kit, member, TaskCard(name, task.cohort, task.sum_params))
            assert refused.value.reason == "retired"
            with pytest.raises(PeerFault, match="retired"):
                kit.folder(member).tasks.admit(name, 2)
    give(kit, member, TaskCard(TASK, task.cohort, task.sum_params))
    # no more than before, whatever was closed
    give(kit, member, TaskCard("another", task.cohort, task.sum_params))
    with pytest.raises(PeerFault, match="task-cap"):
        give(kit, member, TaskCard("a third", task.cohort, task.sum_params))
