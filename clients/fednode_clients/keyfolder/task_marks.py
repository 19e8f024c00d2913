"""Which tasks a member has taken and which it has closed for good: an empty file each, since the node chooses names."""

from pathlib import Path
from typing import Final

from fednode.disk.atomic import write_whole
from fednode.disk.temp_files import writing_in
from fednode.errors import PeerFault, StoreError
from fednode.reasons import Reason
from fednode_clients.keyfolder.state_files import hashed

TASKS: Final = "tasks"
RETIRED: Final = "retired"


class TaskMarks:
    """The marks in a member's key folder."""

    def __init__(self, folder: Path) -> None:
        self.taken, self.retired = folder / TASKS, folder / RETIRED

    def admit(self, task: str, most: int) -> None:
        """Mark `task` as taken, unless `most` open tasks are. Call it before the first thing of a task is kept, and
        `AuditLog.settle` before it: a mark without a head of the record means that the record was lost.

        Returns also if it was taken before. Raises `PeerFault`: TASK_CAP, RETIRED; `StoreError`.
        """
        self.require_open(task)
        mark = self.taken / hashed(task)
        if mark.exists():
            return
        try:
            self.taken.mkdir(mode=0o700, exist_ok=True)
            count = self._open_tasks()
            if count < most:
                with writing_in(self.taken):
                    write_whole(mark, b"", 0o600)
                # Another process may have marked a task between our count and our mark. Both count again after their
                # marks, so at least the later one sees too many and takes its mark back.
                if self._open_tasks() <= most:
                    return
                mark.unlink()
        except OSError as error:
            raise StoreError(f"could not count tasks in {self.taken}: {error.strerror}; make it writable") from error
        raise PeerFault(
            Reason.TASK_CAP,
            f"{count} tasks taken, my maximum is {most}: raise max-tasks in this member's own configuration, or run "
            "fednode keys retire on its key folder between runs, which closes all of them for good",
        )

    def require_open(self, task: str) -> None:
        """Return if `task` was not closed. Raises `PeerFault` RETIRED, `StoreError`."""
        try:
            closed = (self.retired / hashed(task)).exists()
        except OSError as error:
            raise StoreError(f"could not read {self.retired}: {error.strerror}") from error
        if closed:
            raise PeerFault(Reason.RETIRED, f"{task} is closed here for good")

    def _open_tasks(self) -> int:
        return len(marks_in(self.taken) - marks_in(self.retired))


def marks_in(folder: Path) -> set[str]:
    """The marks in a folder, which may be missing; a name with a dot is a temporary file. Raises `OSError`."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()
