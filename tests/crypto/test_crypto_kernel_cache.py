"""Machine code is kept, and loaded, only where nobody else can put other code in its place."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fednode_crypto
from fednode_crypto.hazmat.kernels import is_ours

SOURCES = Path(fednode_crypto.__file__).parent
STRANGER = 65_534


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "cache"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.mark.parametrize(
    ("above", "own", "ours"),
    [
        (0o755, 0o755, True),
        (0o1777, 0o755, True),
        (0o755, 0o777, False),
        (0o755, 0o1777, False),
        (0o755, 0o757, False),
        (0o777, 0o700, False),
        (0o757, 0o700, False),
    ],
)
def test_who_else_can_write_there(place: Path, above: int, own: int, ours: bool) -> None:
    place.chmod(own)
    place.parent.chmod(above)
    assert is_ours.__wrapped__(str(place)) is ours


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_whose_it_is(place: Path) -> None:
    for changed in (place, place.parent):
        os.chown(changed, STRANGER, STRANGER)
        assert not is_ours.__wrapped__(str(place))
        os.chown(changed, 0, 0)
    os.chown(place, 0, STRANGER)
    place.chmod(0o775)
    assert not is_ours.__wrapped__(str(place))
    link = place.parent.parent / "link"
    link.symlink_to(place)
    assert not is_ours.__wrapped__(str(link))
    place.chmod(0o755)
    assert is_ours.__wrapped__(str(link))


CODE = """
import numpy as np
from fednode_crypto.hazmat.kernels import multiply
one = np.ones((1, 8), dtype=np.uint64)
multiply(one, one, np.full(1, 97, np.uint64), np.full(1, 1, np.uint64), np.full(1, 57, np.uint64))
print("kept" if multiply.stats.cache_path else "compiled", sum(multiply.stats.cache_hits.values()))
"""


def said(folder: Path) -> str:
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environ)
    return done.stdout.strip()


@pytest.mark.thorough
def test_code_in_a_folder_that_others_can_write_is_not_run(place: Path) -> None:
    assert (said(place), said(place)) == ("kept 0", "kept 1")
    assert list(place.rglob("*.nbc"))
    for inside in place.iterdir():
        inside.chmod(0o777)
    assert said(place) == "compiled 0"


def test_every_kernel_is_compiled_so() -> None:
    found = {path.name for path in SOURCES.rglob("*.py") if re.search(r"cache=True", path.read_text("utf-8"))}
    assert found == {"kernels.py"}
    assert (SOURCES / "hazmat/kernels.py").read_text("utf-8").count("cache=True") == 1
