"""The folder of a run: its name, its settings, its log."""

import copy
import logging
import re
import secrets
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fednode.clock import Clock
from fednode.disk.atomic import write_whole
from fednode.errors import StoreError, visible
from fednode.settings import RunSettings, to_toml

_MEMBERS = "fednode.clients"

POPULATIONS = "populations"
"""Where the ledgers of populations lie, beside the folders of the runs."""


def require_writable(out: Path) -> None:
    """Return if a folder can be made at `out`; nothing is left there. Raises `StoreError`."""
    place = out
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".fednode-", dir=place):
            return
    except OSError as error:
        raise StoreError(f"nothing can be written under {out}: {error.strerror}; choose another --out") from error


def make_run_folder(settings: RunSettings, clock: Clock) -> Path:
    """Make a folder under `settings.out`, named after the new run, with config.toml in it. Raises `StoreError`.

    Nobody else may enter it.
    """
    stamp = datetime.fromtimestamp(clock.time(), UTC).strftime("%Y%m%d-%H%M%S")
    folder = settings.out / f"{stamp}-{secrets.token_hex(2)}"
    try:
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(f"could not make {folder}: {error.strerror}; choose another --out") from error
    write_whole(folder / "config.toml", to_toml(settings).encode("utf-8"))
    return folder


def population_file(settings: RunSettings, dataset: str, unit: str) -> Path:
    """Where the ledger of these records lies: as the setting says, or under the name of the data set and the unit."""
    given = settings.population
    if given is not None and ("/" in given or given.endswith(".jsonl")):
        return Path(given)
    plain = re.sub(r"[^a-z0-9._-]+", "-", dataset.lower()).strip("-.") or "records"
    name = given or (plain if unit == "record" else f"{plain}-{unit}")
    return settings.out / POPULATIONS / f"{name}.ledger.jsonl"


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send FedNode's log to the run's own file and not to the terminal. Raises `StoreError`."""
    try:
        path.touch(0o600)
        handler = _RunLogHandler(path, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"could not write {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("fednode")
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        handler.close()


class _RunLogHandler(logging.FileHandler):
    """Ignores a full disk: the error that ends the run is the one to report."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        del record

    def format(self, record: logging.LogRecord) -> str:
        """One line a record, whatever a peer's words in it hold. Reduce a member's traceback to type and place.

        In a run on one machine the members' log is ours, and their errors may quote records.
        """
        bare = copy.copy(record)
        bare.msg, bare.args = visible(record.getMessage()), ()
        if record.exc_info is None or not record.name.startswith(_MEMBERS):
            return visible(super().format(bare), keep="\n")
        bare.exc_info, bare.exc_text, bare.stack_info = None, None, None
        return f"{super().format(bare)}: {_where_raised(record.exc_info[1])}"

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def _where_raised(error: BaseException | None) -> str:
    """An error's type and the line that raised it, without its message."""
    place = traceback.extract_tb(None if error is None else error.__traceback__)[-1:]
    return type(error).__name__ + "".join(f" at {frame.filename}:{frame.lineno}, in {frame.name}" for frame in place)
