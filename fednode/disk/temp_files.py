"""Temporary files of `write_whole` that a crash left: they may hold a secret, and nothing reads them again.

A writer holds a shared lock on the folder; the kernel frees it if the writer dies. So the holder of the folder's
exclusive lock knows that no temporary file in it belongs to a living process.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fednode.disk.atomic import temp_target
from fednode.disk.locks import locked, open_folder, try_locked


@contextmanager
def writing_in(folder: Path) -> Iterator[None]:
    """Keep `sweep_temp_files` out of `folder` for the block; others may write there too. Raises `OSError`."""
    with locked(open_folder(folder), shared=True):
        yield


def sweep_temp_files(folder: Path, targets: re.Pattern[str]) -> None:
    """Remove temporary files whose target name matches `targets`, unless somebody is writing in `folder`.

    Files that cannot be removed stay; they do no harm.
    """
    with suppress(OSError), try_locked(open_folder(folder)) as alone:
        for file in folder.iterdir() if alone else ():
            if targets.fullmatch(temp_target(file.name)):
                file.unlink(missing_ok=True)
