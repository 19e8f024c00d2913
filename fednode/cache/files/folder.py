"""The folder of a `FileBackend`: locked, and with the files in it that no longer count.

Of the files of one key the one with the highest number counts. A file that no longer counts, and cannot be removed, is
remembered and removed later; until then no newer file of the key is removed, or the old value would come back.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from fednode.cache.files.format import (
    VALUE_NAME,
    DamagedFile,
    FileHeader,
    is_withdrawn,
    number_of,
    open_value,
    stem_of,
    withdraw,
)
from fednode.disk.atomic import temp_target
from fednode.disk.locks import is_at, lock, open_folder, unlock
from fednode.disk.private_folder import make_private
from fednode.errors import StoreError


@contextmanager
def disk_errors(verb: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` that names what failed."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"could not {verb} {path}: {error.strerror or error}; check the disk and who may use the folder"
        ) from error


class CacheFolder:
    """A private folder that this process has locked. Not thread-safe: the owner holds its lock. Raises `StoreError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        self._stale: dict[str, list[str]] = {}
        """Names of files that do not count and could not be removed, by their stem, oldest first."""
        make_private(path)
        with disk_errors("open", path):
            self._descriptor = open_folder(path)
        self.release = finalize(self, os.close, self._descriptor)
        try:
            with disk_errors("lock", path):
                locked = lock(self._descriptor)
            if not locked:
                raise StoreError(
                    f"the cache folder {path} is in use by another process; wait for it to end or choose another folder"
                )
        except BaseException:
            self.release()
            raise

    def close(self) -> None:
        """Unlock the folder. Closing twice is allowed."""
        if self.release.alive:
            # a forked child may hold a copy of the descriptor: closing ours alone would leave the folder locked
            unlock(self._descriptor)
            self.release()

    def require_same(self) -> None:
        """Raise `StoreError` if the path no longer leads to the folder that is locked."""
        with disk_errors("find", self.path):
            if is_at(self._descriptor, self.path):
                return
        raise StoreError(
            f"the cache folder {self.path} was moved or replaced while it was in use; put it back, or close this cache "
            "and open it again"
        )

    def next_number(self) -> int:
        """A number above that of every file here."""
        self._number += 1
        return self._number

    def unlink(self, name: str) -> None:
        """Remove one file if it is there."""
        path = self.path / name
        with disk_errors("remove", path):
            path.unlink(missing_ok=True)

    def replaced(self, name: str) -> None:
        """Remove a file that no longer counts; one that cannot be removed now is removed later."""
        self._stale.setdefault(stem_of(name), []).append(name)
        with suppress(StoreError):
            self.remove_stale(stem_of(name))

    def remove_stale(self, stem: str) -> None:
        """Remove the files with this stem that no longer count. Raises `StoreError` at the first that stays."""
        names = self._stale.get(stem, [])
        while names:
            self.unlink(names[0])
            del names[0]
        self._stale.pop(stem, None)

    def remove_all_stale(self) -> None:
        """Remove all files that no longer count, as far as the disk lets us."""
        for stem in tuple(self._stale):
            with suppress(StoreError):
                self.remove_stale(stem)

    def take_back(self, name: str) -> None:
        """Undo a write that failed: its file may be there, and has the highest number of its key.

        If it cannot be removed it is marked as withdrawn, so that it does not count after a restart.
        """
        self.replaced(name)
        if name in self._stale.get(stem_of(name), ()):
            with suppress(OSError):
                withdraw(self.path / name)

    def load(self) -> tuple[list[FileHeader], int]:
        """The headers of the files that count, oldest first, and how many files were damaged."""
        with disk_errors("open", self.path):
            names = [path.name for path in self.path.iterdir() if path.is_file() and not path.is_symlink()]
        by_key: dict[str, list[str]] = {}
        for name in names:
            if VALUE_NAME.fullmatch(temp_target(name)):
                self.unlink(name)
            elif VALUE_NAME.fullmatch(name):
                by_key.setdefault(stem_of(name), []).append(name)
        found = [self._newest(sorted(names)) for names in by_key.values()]
        headers = [header for header, _ in found if header is not None]
        left = [*(header.name for header in headers), *(name for names in self._stale.values() for name in names)]
        self._number = max(map(number_of, left), default=0)
        return sorted(headers, key=lambda header: header.number), sum(damaged for _, damaged in found)

    def _newest(self, names: list[str]) -> tuple[FileHeader | None, int]:
        """The header of the file that counts among those of one key, and how many files were damaged.

        The other files are removed. If the newest is damaged none counts: an older value must not come back.
        """
        with disk_errors("read", self.path):
            withdrawn = [name for name in names if is_withdrawn(self.path / name)]
        standing = [name for name in names if name not in withdrawn]
        stale, damaged, header = [*withdrawn, *standing[:-1]], 0, None
        if standing:
            path = self.path / standing[-1]
            try:
                with disk_errors("read", path), open_value(path) as file:
                    header = FileHeader.read(file, path.name)
            except DamagedFile:
                damaged = 1
                stale.append(path.name)
        stem = stem_of(names[0])
        self._stale[stem] = stale
        with suppress(StoreError):
            self.remove_stale(stem)
        return header, damaged
