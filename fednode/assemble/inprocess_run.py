"""A run in one process: the node, all members with keys made for this run, and the grid between them."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fednode.assemble.cache_location import reach_server
from fednode.assemble.enrolment import enrol_simulation
from fednode.assemble.planning import plan_task
from fednode.assemble.run_folder import logging_to, make_run_folder
from fednode.assemble.run_result import RunResult, conclude
from fednode.assemble.session import Environment, Session
from fednode.assemble.study import Study, find_study
from fednode.disk.locked_folder import remove_abandoned, temporary_folder
from fednode.errors import FednodeError
from fednode.members import member_names
from fednode.observer import Observer, StopFlag
from fednode.settings import RunSettings, to_run_config
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_clients.keyfolder.untrained import untrained
from fednode_clients.membership import MemberParts

if TYPE_CHECKING:
    from fednode_clients.app import Train

KEYS = "fednode-keys-"
"""How the folder of a run's simulated keys is called in the temporary folder."""


def run_inproc(
    settings: RunSettings, observer: Observer, stop: StopFlag, environment: Environment | None = None
) -> RunResult:
    """Run everything in this process. Raises what `plan_run` raises, and `StoreError` for the folder."""
    return run_study(settings, find_study(settings.study), observer, stop, environment)


def run_study(
    settings: RunSettings, study: Study, observer: Observer, stop: StopFlag, environment: Environment | None = None
) -> RunResult:
    """The same with a study that is given, whatever the settings name."""
    environment = environment or Environment()
    observer.phase("reading the data")
    plan = plan_task(settings, study.workload(settings))
    folder = make_run_folder(plan.settings, environment.clock)
    session = Session(plan, folder, observer, stop, lambda: study.evaluator(plan.settings), environment)
    session.announce()
    # keys of runs that were killed before they could remove them
    remove_abandoned(KEYS)
    with logging_to(folder / "run.log"), temporary_folder(KEYS) as keys:
        return conclude(session, lambda: run_members(session, keys, study.train))


def run_members(session: Session, keys: Path, train: "Train") -> FednodeError | None:
    """Make keys for all members and run the session over them; returns what ended it early, or None."""
    from fednode.inproc import InProcGrid, run_in_process
    from fednode.server import build_server_app
    from fednode_clients.app import build_app

    settings, environment = session.plan.settings, session.environment
    try:
        reach_server(settings)
    except FednodeError as error:
        session.observer.phase("the cache server cannot be used")
        logging.getLogger("fednode.run").error("%s", error)
        return error
    session.observer.phase("making keys")
    members = enrol_simulation(keys, settings.clients, settings.holders, session.observer.progress)
    names = member_names("client", settings.clients) + member_names("holder", settings.holders)
    config = to_run_config(settings) | {"key-root": str(keys)}
    layout = session.plan.layout
    parts = MemberParts(schemes=environment.schemes, rng=environment.rng, layout=lambda _: layout)
    grid = InProcGrid(build_app(parts, train), names, config, settings.faults)
    ended: list[FednodeError | None] = []
    run_in_process(build_server_app(lambda grid, _: ended.append(session.execute(grid, members))), grid, config)
    session.noticed.extend(_untrained(keys, names))
    return ended[0]


def _untrained(keys: Path, names: Sequence[str]) -> Iterator[str]:
    """A sentence for each client whose training failed; the node itself cannot see that, but these keys are ours."""
    for name in names:
        note = untrained(StateFiles(keys / name / "state"))
        if note:
            yield f"{name} sent zeros in {note['rounds']} rounds: training failed ({note['reason']}); see run.log."
