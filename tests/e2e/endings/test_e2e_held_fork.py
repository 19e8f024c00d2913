"""A folder that is held belongs to the process that made it: a forked child that leaves the block removes nothing."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fednode.disk.locked_folder import temporary_folder, temporary_folder_at

pytestmark = pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")


@pytest.mark.parametrize(
    "held", [lambda _: temporary_folder("fednode-forked-"), lambda place: temporary_folder_at(place / "mine")]
)
def test_a_forked_child_leaves_the_folder_to_its_parent(
    tmp_path: Path, held: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    block = held(tmp_path)
    folder = block.__enter__()
    child = os.fork()
    if child == 0:
        try:
            block.__exit__(None, None, None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    stayed = folder.exists()
    block.__exit__(None, None, None)
    assert (stayed, folder.exists()) == (True, False)
