"""Which cohort files a member has seen signed: the newest holds, so that whoever was replaced or removed stays out."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fednode.clock import Clock
from fednode.disk.atomic import sync_folder
from fednode.errors import PeerFault, StoreError
from fednode.protocol.cohort import Cohort
from fednode.reasons import Reason
from fednode_clients.keyfolder.task_marks import marks_in
from fednode_crypto.identity import VerifyKey

COHORTS: Final = "cohorts"


class CohortMarks:
    """The marks in `cohorts/` of a key folder: an empty file for each serial, named after it and its list."""

    def __init__(self, folder: Path, enrolment_key: VerifyKey, clock: Clock) -> None:
        self._folder, self._prefix, self._clock = folder / COHORTS, enrolment_key.raw.hex()[:32], clock

    def require_current(self, cohort: Cohort) -> None:
        """Return if this cohort, whose signature was checked, has not expired and is the newest seen.

        Of two lists of one serial the first holds: whoever was removed in one does not come back by the other.
        Raises `PeerFault` EXPIRED_COHORT or OLDER_COHORT, `StoreError`.
        """
        if self._clock.time() >= cohort.expires:
            date = datetime.fromtimestamp(cohort.expires, UTC).date()
            raise PeerFault(Reason.EXPIRED_COHORT, f"the list expired on {date}; the enroller makes the next")
        named = (cohort.serial, cohort.digest().hex())
        try:
            newest = self._newest()
            if cohort.serial > newest[0]:
                # a file each, never changed: two processes cannot set the highest back
                self._folder.mkdir(mode=0o700, exist_ok=True)
                (self._folder / "-".join((self._prefix, str(named[0]), named[1]))).touch(mode=0o600)
                sync_folder(self._folder)
                # of two lists of one serial that came at once, the larger digest holds from here on
                newest = self._newest()
        except OSError as error:
            raise StoreError(f"could not use {self._folder}: {error.strerror}; make it writable") from error
        if named != newest:
            other = "another list of " if cohort.serial == newest[0] else ""
            raise PeerFault(Reason.OLDER_COHORT, f"{other}serial {cohort.serial}; I have seen {newest[0]}")

    def _newest(self) -> tuple[int, str]:
        """The highest serial seen, and the digest of its list."""
        seen = (re.fullmatch(rf"{self._prefix}-(\d+)-([0-9a-f]{{64}})", name) for name in marks_in(self._folder))
        return max(((int(mark[1]), mark[2]) for mark in seen if mark), default=(0, ""))
