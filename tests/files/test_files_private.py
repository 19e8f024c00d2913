"""Private folders: whose they have to be, what is above them, and links that are never followed."""

import stat
from pathlib import Path

import pytest

from fednode.disk.locked_folder import temporary_folder_at
from fednode.disk.private_folder import claim_private, make_private
from fednode.errors import ConfigError, StoreError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_alone_is_private_and_those_above_it_are_as_usual(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    above = tmp_path / "usual"
    above.mkdir()
    assert (mode_of(tmp_path / "a" / "b"), mode_of(tmp_path / "a")) == (0o700, mode_of(above))


def test_a_link_at_a_name_that_others_can_guess_is_refused_and_what_is_behind_it_stays(tmp_path: Path) -> None:
    behind, link = tmp_path / "home", tmp_path / "guessed"
    behind.mkdir(mode=0o755)
    (behind / "kept").touch()
    mode = mode_of(behind)
    link.symlink_to(behind)
    with pytest.raises((StoreError, ConfigError)):
        claim_private(link, "choose another folder")
    with pytest.raises(StoreError), temporary_folder_at(link):
        raise AssertionError("the link was taken for a folder of our own")
    assert mode_of(behind) == mode
    assert (behind / "kept").exists()


def test_a_folder_of_ours_is_claimed_and_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o755)
    for name in ("ours", "new"):
        claim_private(tmp_path / name, "choose another folder")
        assert mode_of(tmp_path / name) == 0o700
