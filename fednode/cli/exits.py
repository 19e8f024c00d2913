"""Exit codes by cause, and an error as one sentence."""

from collections.abc import Mapping
from typing import Final

import typer

from fednode import errors
from fednode.errors import FednodeError, StoreError, visible

UNEXPECTED: Final = 1
USAGE: Final = errors.ConfigError.exit_code

CAUSES: Final[dict[int, str]] = {
    0: "the run ended as planned",
    UNEXPECTED: "unexpected error; its traceback is in run.log",
    USAGE: "a setting or a flag is not valid",
    errors.DataError.exit_code: "the data, the run or the key file that was named cannot be found or read",
    errors.BudgetExhausted.exit_code: "the privacy budget is too small for what was asked",
    errors.TooFewSurvivors.exit_code: "too few updates arrived, or the cache had no room for them",
    errors.TooFewHolders.exit_code: "too few key holders answered",
    errors.OpeningRejected.exit_code: "the opened sum failed its check",
    StoreError.exit_code: "a file, a disk, a key folder or a cache failed, or a ledger or a cohort file was changed",
    errors.AuditFailed.exit_code: "an audit failed: epsilon is larger than the ledger says",
    errors.Interrupted.exit_code: "stopped by Ctrl-C; finished rounds and the ledger are kept",
}
"""Every code that the command line ends with."""

LEDGER_CAUSES: Final[dict[int, str]] = {
    0: "the ledger is whole; its last hash is the one in the report.json beside it, if there is one",
    errors.DataError.exit_code: "the file is missing or is no ledger",
    StoreError.exit_code: "a line was changed or cut short, or the ledger lost lines or was continued after the report",
}
"""What the codes of `fednode ledger` mean; `CAUSES` has the others."""

REPORT_CAUSES: Final[dict[int, str]] = {
    0: "the reports are written",
    errors.DataError.exit_code: "the folder holds neither a report nor the notes of a run, or they cannot be read",
    StoreError.exit_code: "the ledger was changed or is not that of the report, or the disk failed",
}
"""What the codes of `fednode report` mean."""

OPTIONAL: Final = frozenset({"dp_accounting", "matplotlib", "redis", "safetensors", "sklearn", "tenseal", "torch"})
"""Modules that a key holder's installation does not have; see the extras in pyproject.toml."""


def epilog(causes: Mapping[int, str] = CAUSES) -> str:
    """The exit codes as a part of the help, one a line."""
    return "\n\n".join(["Exit codes:", *(f"{code}  {cause}" for code, cause in causes.items())])


def exit_code_of(error: BaseException) -> int:
    """The code an error ends the program with. Files and disks fail without a bug of ours; other errors are bugs."""
    if isinstance(error, OSError):
        return StoreError.exit_code
    return error.exit_code if isinstance(error, FednodeError) else UNEXPECTED


def printable(text: str) -> str:
    """The text on one line, with whatever could disturb a terminal escaped."""
    return visible(" ".join(text.split()))


def say(line: str, *, err: bool = False) -> None:
    """Print one line, which may quote a peer, a file or a path, to a terminal that it cannot disturb."""
    typer.echo(visible(line), err=err)


def sentence_of(error: BaseException) -> str:
    """An error as one printable line. One that is not ours also names its type: its text was not written for people."""
    words, kind = printable(str(error)), type(error).__name__
    if isinstance(error, FednodeError):
        return words or kind
    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename} cannot be used: {error.strerror}; name another file or folder")
    if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL:
        return f"{error.name} is not installed here; install all of FedNode with: pip install 'fednode[run]'"
    return f"unexpected {kind}: {words}" if words else f"unexpected {kind}"
