"""The file of the control socket: private from its first moment, and usable under a path of any length."""

import contextlib
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fednode.errors import StoreError

LONGEST: Final = 103
"""Bytes of a path that every Unix takes for a socket; Linux takes 107."""
_BACKLOG: Final = 64
_CREDENTIALS: Final = struct.Struct("iII")
_TIME: Final = struct.Struct("ll")


@contextmanager
def reachable(folder: Path, name: str) -> Iterator[str]:
    """A path to `name` in `folder` that is short enough for a socket, through a temporary link if need be.

    Raises `StoreError` where even the link's path is too long.
    """
    direct = folder / name
    if len(os.fsencode(direct)) <= LONGEST:
        yield str(direct)
        return
    with tempfile.TemporaryDirectory(prefix="fednode-live-") as short:
        link = Path(short) / "r"
        link.symlink_to(folder.resolve(), target_is_directory=True)
        if len(os.fsencode(link / name)) > LONGEST:
            raise StoreError(
                f"no socket can be in {folder}: its path and that of {tempfile.gettempdir()} are too long; choose a "
                "shorter --out, or a shorter TMPDIR"
            )
        yield str(link / name)


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, 0600, which replaces one that a killed run left.

    It is made in a folder that nobody else may enter, and renamed into place when it has its mode. Raises `StoreError`:
    another node answers there, or something else has the name.
    """
    _refuse_taken(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tempfile.TemporaryDirectory(prefix=".control-", dir=path.parent) as private:
            with reachable(Path(private), "s") as short:
                listener.bind(short)
            made = Path(private) / "s"
            made.chmod(0o600)
            listener.listen(_BACKLOG)
            made.replace(path)
    except OSError as error:
        listener.close()
        raise StoreError(f"no socket can be made at {path}: {error.strerror or error}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: Path, seconds: float) -> socket.socket:
    """A connection to the socket at `path`, on which every wait ends after `seconds`. Raises `OSError`, `StoreError`
    for a path that is too long."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # a connect that may not block is refused at once where others wait to be let in
        wait = _TIME.pack(int(seconds), int(seconds % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        with reachable(path.parent, path.name) as short:
            connection.connect(short)
        connection.settimeout(seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def answers(path: Path) -> bool:
    """Whether somebody listens at `path`, however busy."""
    try:
        connect(path, 1.0).close()
    except BlockingIOError:
        return True
    except (OSError, StoreError):
        return False
    return True


def remove(path: Path, mark: tuple[int, int] | None) -> None:
    """Remove the socket if it is still the one that `mark_of` marked."""
    if mark is not None and mark_of(path) == mark:
        with contextlib.suppress(OSError):
            path.unlink()


def mark_of(path: Path) -> tuple[int, int] | None:
    """Identifies this file among files of the same name; None if it does not exist."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_ours(connection: socket.socket) -> bool:
    """Whether this user, or root, is at the other end; True where the system cannot say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return user in (0, os.geteuid())


def _refuse_taken(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"no socket can be made at {path}: {error.strerror or error}") from error
    if not stat.S_ISSOCK(kind):
        raise StoreError(f"no socket can be made at {path}: something else has that name; move it away")
    if answers(path):
        raise StoreError(f"another node answers at {path} already; end it, or use another folder")
