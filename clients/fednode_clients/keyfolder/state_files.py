"""The small files in `state/` of a key folder: shares of joint keys, answers, sealed updates, each under a name."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fednode.disk.atomic import write_whole
from fednode.disk.temp_files import writing_in
from fednode.errors import StoreError
from fednode.wire import digest

COMMON: Final = ".fednode-common"
"""A folder beside the key folders of a simulation, made with them."""
HASHED: Final = re.compile(r"[0-9a-f]{40}")
"""What `hashed` returns."""


class StateFiles:
    """Bytes by name, each on disk before `put` returns. Every method raises `StoreError`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, whole or not at all."""
        with _sentence("write", self.folder):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with writing_in(self.folder):
                write_whole(self._file(name), data, 0o600)

    def put_common(self, name: str, data: bytes) -> None:
        """As `put`, of bytes that all members of a task have: those of a simulation keep them once (`COMMON`)."""
        common = self.folder.parent.parent / COMMON
        if not common.is_dir():
            self.put(name, data)
            return
        with _sentence("write", self.folder):
            kept = common / hashlib.sha256(data).hexdigest()
            if not kept.exists():
                write_whole(kept, data, 0o600)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            linked = self._file(name).with_suffix(".new")
            linked.unlink(missing_ok=True)
            linked.hardlink_to(kept)
            linked.replace(self._file(name))

    def get(self, name: str) -> bytes | None:
        """The bytes under `name`, or None."""
        with _sentence("read", self._file(name)):
            try:
                return self._file(name).read_bytes()
            except FileNotFoundError:
                return None

    def shorten(self, name: str, size: int) -> None:
        """Keep the first `size` bytes under `name`, in place: works on a full disk too."""
        with _sentence("shorten", self._file(name)), self._file(name).open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def drop(self, name: str) -> None:
        """Remove the bytes under `name`."""
        with _sentence("remove", self._file(name)):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.folder / hashed(name)


def hashed(name: str) -> str:
    """A file name that no name from outside can lead out of its folder."""
    return digest("key-folder", name.encode("utf-8")).hex()[:40]


@contextmanager
def _sentence(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"could not {verb} {path}: {error.strerror}; make the key folder writable") from error
