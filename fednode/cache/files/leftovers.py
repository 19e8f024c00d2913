"""Which files of a key stay in the folder of a `FileBackend`, where a removal failed or a write was cut short."""

import contextlib
from pathlib import Path

from fednode.cache.files.folder import require_same, spoken
from fednode.cache.files.format import (
    NUMBERS,
    VALUE_NAME,
    DamagedFile,
    Header,
    is_withdrawn,
    number_of,
    open_value,
    stem_of,
    stem_of_key,
    withdraw,
)
from fednode.cache.files.index import FileBook
from fednode.disk.atomic import temp_target
from fednode.errors import StoreError


class FilesLeft:
    """For use under its owner's lock, but for the two stores that say that a write has failed.

    `coming`: the file that is being written, and counts only once it is in the book. `doubted`: keys whose entries and
    files are being changed; once a call was cut short, or failed, they may disagree.
    """

    def __init__(self, folder: Path, held: int, book: FileBook) -> None:
        self._folder = folder
        self._held = held
        self._book = book
        self._names: dict[str, list[str]] = {}
        """Files that could not be removed, by the key's part of their names: the value in force outlasts them."""
        self.coming: str | None = None
        self.doubted: dict[str, None] = {}

    @property
    def last_number(self) -> int:
        """The highest number that one of ours is left with; 0 where none is."""
        numbers = [number_of(name) for names in self._names.values() for name in names]
        return max((number for number in numbers if number < NUMBERS), default=0)

    def settle(self) -> None:
        """Bring book and folder into line where a change was cut short, or failed. Raises `StoreError`."""
        require_same(self._folder, self._held)
        # before the look at the folder: what a write adds meanwhile was not looked for, and stays in doubt
        doubted = tuple(self.doubted)
        with spoken("read", self._folder):
            names = sorted(path.name for path in self._folder.iterdir() if VALUE_NAME.fullmatch(path.name))
        for key in doubted:
            stem = stem_of_key(key)
            entry = self._book.entries.get(key)
            if entry is not None and entry.name not in names:
                del self._book.entries[key]
            in_force = -1 if entry is None or entry.name not in names else entry.number
            others = [name for name in names if stem_of(name) == stem and number_of(name) != in_force]
            self._names[stem] = [name for name in others if name != self.coming]
            self._withdraw(stem, in_force)
        self._book.recount()
        for key in doubted:
            self.doubted.pop(key, None)

    def take_back(self, header: Header) -> None:
        """As `settle`, where all that is in doubt is a file that the disk refused: no folder is listed for it."""
        require_same(self._folder, self._held)
        entry = self._book.entries.get(header.key)
        self.leave(header.name)
        self._withdraw(stem_of(header.name), -1 if entry is None else entry.number)
        self.doubted.clear()

    def unlink(self, name: str) -> None:
        """Remove one file, if it is there. Raises `StoreError`."""
        path = self._folder / name
        with spoken("remove", path):
            path.unlink(missing_ok=True)

    def leave(self, name: str) -> None:
        """Have it removed later."""
        self._names.setdefault(stem_of(name), []).append(name)

    def remove(self, stem: str) -> None:
        """Remove what was left of a key, in order. Raises `StoreError` at the first that stays."""
        names = self._names.get(stem, [])
        while names:
            self.unlink(names[0])
            del names[0]
        self._names.pop(stem, None)

    def remove_all(self) -> None:
        """Remove what was left of any key, as far as it can be."""
        for stem in tuple(self._names):
            with contextlib.suppress(StoreError):
                self.remove(stem)

    def load(self) -> tuple[list[Header], int]:
        """What is in force in the folder, oldest first, and how many files were damaged. Raises `StoreError`."""
        with spoken("open", self._folder):
            paths = [path for path in self._folder.iterdir() if path.is_file() and not path.is_symlink()]
        kept: dict[str, list[str]] = {}
        for path in paths:
            if VALUE_NAME.fullmatch(temp_target(path.name)):
                self.unlink(path.name)
            elif VALUE_NAME.fullmatch(path.name):
                kept.setdefault(stem_of(path.name), []).append(path.name)
        found = [self._newest(sorted(names)) for names in kept.values()]
        headers = [header for header, _ in found if header is not None]
        return sorted(headers, key=lambda header: header.number), sum(damaged for _, damaged in found)

    def _newest(self, names: list[str]) -> tuple[Header | None, int]:
        """The header in the last of the files of a key that was not withdrawn; the others are removed, or left.

        None where there is none, or it is damaged: then it is what keeps the older ones from coming back. And how many
        of them were damaged.
        """
        with spoken("read", self._folder):
            withdrawn = [name for name in names if is_withdrawn(self._folder / name)]
        # no file of ours is called so, and none that comes after it could be
        forged = [name for name in names if number_of(name) >= NUMBERS and name not in withdrawn]
        standing = [name for name in names if name not in withdrawn and name not in forged]
        for name in (*withdrawn, *forged, *standing[:-1]):
            self.leave(name)
        damaged, header = len(forged), None
        if standing:
            path = self._folder / standing[-1]
            try:
                with spoken("read", path), open_value(path) as file:
                    header = Header.read(file, path.name)
            except DamagedFile:
                damaged += 1
                self.leave(path.name)
        with contextlib.suppress(StoreError):
            self.remove(stem_of(names[0]))
        return header, damaged

    def _withdraw(self, stem: str, in_force: int) -> None:
        """Remove what was left of a key; where that cannot be, let nothing in it count as newer than what is in force.

        Files of a write that never happened have a higher number, or there is none in force.
        """
        with contextlib.suppress(StoreError):
            self.remove(stem)
        for name in self._names.get(stem, ()):
            if in_force < 0 or number_of(name) > in_force:
                with contextlib.suppress(OSError):
                    withdraw(self._folder / name)
