"""A run in one process: a folder, a log, keys that live as long as the run, the grid, the report."""

import copy
import logging
import secrets
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fednode.assemble.cache_location import reach_server
from fednode.assemble.enrolment import enrol_simulation
from fednode.assemble.planning import Plan, plan_run
from fednode.assemble.report_facts import run_record
from fednode.assemble.session import Session, Tools
from fednode.clock import Clock, SkippingClock
from fednode.disk.atomic import write_whole
from fednode.disk.locked_folder import remove_abandoned, temporary_folder
from fednode.errors import FednodeError, StoreError
from fednode.members import member_names
from fednode.observer import Observer, StopFlag
from fednode.reports import RunRecord, summary_rows, write_reports
from fednode.settings import RunSettings, to_toml
from fednode_clients.membership import Parts
from fednode_crypto import Rng, SumScheme, SystemRng, scheme

FILES = ("report.html", "report.json", "model.safetensors", "ledger.jsonl", "run.log", "config.toml")
_MEMBERS = "fednode.clients"
KEYS = "fednode-keys-"
"""How the folder of a run's simulated keys is called in the temporary folder."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended: its record, its folder, what ended it early, and the lines to print."""

    record: RunRecord
    folder: Path
    error: FednodeError | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inside:
    """What tests may put in place of the real parts; there is no flag for any of it."""

    schemes: Callable[[str], SumScheme] = scheme
    rng: Callable[[], Rng] = SystemRng
    clock: Clock = field(default_factory=SkippingClock)


def run_inproc(settings: RunSettings, observer: Observer, stop: StopFlag, inside: Inside | None = None) -> RunResult:
    """Everything in this process: members, node, grid. Raises what `plan_run` raises, and `StoreError` for the
    folder."""
    inside = inside or Inside()
    observer.phase("reading the data")
    plan = plan_run(settings)
    run_id, folder = make_run_folder(plan.settings, inside.clock)
    observer.writing_to(folder)
    observer.started(settings.rounds)
    for warning in plan.warnings:
        observer.phase(f"warning: {warning}")
    session = Session(plan, run_id, folder, observer, Tools(inside.clock, inside.schemes, stop))
    # keys of runs that were killed before they could remove them
    remove_abandoned(KEYS)
    with logging_to(folder / "run.log"), temporary_folder(KEYS) as keys:
        return conclude(session, lambda: _execute(session, keys, inside))


def conclude(session: Session, work: Callable[[], FednodeError | None]) -> RunResult:
    """Do the work, then write the reports, whatever came of it: also for an error that it raises, before that goes
    on."""
    session.started = session.tools.clock.time()
    try:
        error = work()
    except BaseException as raised:
        try:
            write_reports(run_record(session, raised), session.folder)
        except Exception as refused:  # noqa: BLE001 - what ended the run is what its operator has to hear of
            logging.getLogger("fednode.run").error("no report could be written: %s", refused)
        raise
    session.observer.phase("writing the report")
    record = run_record(session, error)
    write_reports(record, session.folder)
    session.observer.finished()
    return RunResult(record, session.folder, error, tuple(closing_lines(record, session.folder)))


def _execute(session: Session, keys: Path, inside: Inside) -> FednodeError | None:
    from fednode.inproc import InProcGrid, run_in_process
    from fednode.server import build_server_app
    from fednode_study.app import build_app

    settings = session.plan.settings
    try:
        reach_server(settings)
    except FednodeError as error:
        session.observer.phase("the cache server cannot be used")
        logging.getLogger("fednode.run").error("%s", error)
        return error
    session.observer.phase("making keys")
    cohort = enrol_simulation(keys, settings.clients, settings.holders, session.observer.progress)
    names = member_names("client", settings.clients) + member_names("holder", settings.holders)
    config = run_config(session.plan, keys)
    parts = Parts(schemes=inside.schemes, rng=inside.rng)
    grid = InProcGrid(build_app(parts), names, config, settings.faults)
    ended: list[FednodeError | None] = []
    run_in_process(build_server_app(lambda grid, _: ended.append(session.execute(grid, cohort))), grid, config)
    return ended[0]


def run_config(plan: Plan, keys: Path) -> dict[str, str | int | float | bool]:
    """What clients read from Flower's run config: the experiment, the cohort, members' limits, where simulated keys
    lie."""
    settings = plan.settings
    return {
        **plan.experiment.to_run_config(),
        "holders": settings.holders,
        "floor-survivors": settings.floor_survivors,
        "z-min": settings.z_min,
        "max-rounds": settings.max_rounds,
        "staleness": settings.staleness,
        "key-root": str(keys),
    }


def require_room(out: Path) -> None:
    """Return if a folder can be made where runs go; what it takes to find out is taken away again. Raises
    `StoreError`."""
    place = out
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".fednode-", dir=place):
            return
    except OSError as error:
        raise StoreError(f"nothing can be written under {out}: {error.strerror}; choose another --out") from error


def make_run_folder(settings: RunSettings, clock: Clock) -> tuple[str, Path]:
    """A new folder under `settings.out` with config.toml in it, and the run's id. Raises `StoreError`."""
    stamp = datetime.fromtimestamp(clock.time(), UTC).strftime("%Y%m%d-%H%M%S")
    run_id = f"{stamp}-{secrets.token_hex(2)}"
    folder = settings.out / run_id
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise StoreError(f"could not make {folder}: {error.strerror}; choose another --out") from error
    write_whole(folder / "config.toml", to_toml(settings).encode("utf-8"))
    return run_id, folder


def where_raised(error: BaseException | None) -> str:
    """An error by its type, and by the line that raised it; none of its words."""
    place = traceback.extract_tb(None if error is None else error.__traceback__)[-1:]
    return type(error).__name__ + "".join(f" at {frame.filename}:{frame.lineno}, in {frame.name}" for frame in place)


class _QuietFileHandler(logging.FileHandler):
    """A log that a full disk silences: the run's own error is told, not the log's."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        del record

    def format(self, record: logging.LogRecord) -> str:
        """A member's traceback by type and place: in one process its log is ours, and its errors may quote records."""
        if record.exc_info is None or not record.name.startswith(_MEMBERS):
            return super().format(record)
        bare = copy.copy(record)
        bare.exc_info, bare.exc_text, bare.stack_info = None, None, None
        return f"{super().format(bare)}: {where_raised(record.exc_info[1])}"

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send what FedNode logs to the run's own file, and nothing of it to the terminal. Raises `StoreError`."""
    try:
        handler = _QuietFileHandler(path, encoding="utf-8")
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


def closing_lines(record: RunRecord, folder: Path) -> list[str]:
    """The final table, and where everything lies."""
    rows = summary_rows(record)
    width = max(len(what) for what, _ in rows)
    lines = ["", *(f"{what:<{width}}  {value}" for what, value in rows), ""]
    return lines + [str(folder / name) for name in FILES if (folder / name).exists()]
