"""`--engine flower`: the same apps on Flower's simulation engine, by `flwr run`, in a private home that is ended after
the run."""

import contextlib
import http
import http.client
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from fednode.assemble.cache_location import reach_server
from fednode.assemble.planning import plan_run
from fednode.assemble.report_facts import OUTCOMES
from fednode.assemble.run_folder import make_run_folder
from fednode.assemble.run_result import RunResult, closing_lines
from fednode.assemble.serve import MARK, STOP_NAME
from fednode.assemble.study import study_entry
from fednode.clock import SystemClock
from fednode.disk.locked_folder import remove_abandoned, temporary_folder
from fednode.errors import ConfigError, FednodeError, Interrupted, one_line
from fednode.flower_env import flower_environment
from fednode.observer import Observer, StopFlag
from fednode.reports import JSON_NAME, parse_report
from fednode.settings import RunConfig, RunSettings, to_run_config, toml_text

log = logging.getLogger("fednode.run")

SCRATCH = "fednode-flower-"
"""Prefix of an engine's folder in the temporary folder."""
_HOME = "flower"
_KEYS = "keys"
"""Locked by the run itself, which may go on without its submitter."""
_SCANS = 50
_BETWEEN_SCANS = 0.1
"""Seconds between two scans for processes, and the most scans."""


def app_files(study: str, config: RunConfig) -> dict[str, str]:
    """The thin Flower app over a study. `experiments/customer_service` holds the same with the default settings.

    Raises `ConfigError` if there is no such study.
    """
    entry, package = study_entry(study), study.replace("-", "_")
    imported = entry.attr if entry.attr == "study" else f"{entry.attr} as study"
    project = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": study,
            "version": "0.1.0",
            "description": "A FedNode study as a Flower app.",
            "license": "Apache-2.0",
            "dependencies": [],
        },
    }
    components = {"serverapp": f"{package}.server_app:app", "clientapp": f"{package}.client_app:app"}
    flower = {"publisher": "fednode", "components": components, "config": config}
    return {
        "pyproject.toml": toml_text(project | {"tool": {"flwr": {"app": flower}}}),
        f"{package}/__init__.py": '"""A FedNode study as a Flower app."""\n',
        f"{package}/server_app.py": (
            '"""The ServerApp: FedNode\'s node over Flower\'s grid."""\n\n'
            "from fednode.assemble.serve import node_app\n\napp = node_app()\n"
        ),
        f"{package}/client_app.py": (
            '"""The ClientApp: clients and key holders of FedNode."""\n\n'
            "from fednode_clients.app import build_app\nfrom fednode_clients.membership import MemberParts\n"
            f"from {entry.module} import {imported}\n\n"
            "app = build_app(MemberParts(), study.train)\n"
        ),
    }


def run_on_flower(settings: RunSettings, observer: Observer, stop: StopFlag) -> RunResult:
    """Submit to a private local engine, follow its log, read the report back.

    Raises what `plan_run` raises, and `ConfigError` for faults or if Flower's simulation extra is missing.
    """
    _check(settings)
    plan_run(settings)
    reach_server(settings)
    folder = make_run_folder(settings, SystemClock())
    observer.writing_to(folder)
    observer.started(settings.rounds)
    # homes of engines whose submitter was killed; a run that goes on without its submitter keeps its own
    remove_abandoned(SCRATCH, inner=_KEYS, before=lambda left: _end_all_under(left / _HOME))
    with temporary_folder(SCRATCH) as scratch, _engine(scratch, stop) as environ:
        keys = scratch / _KEYS
        config = to_run_config(settings.model_copy(update={"out": settings.out.absolute()}))
        config |= {"run-folder": str(folder.absolute()), "key-root": str(keys)}
        app = scratch / "app"
        for name, text in app_files(settings.study, config).items():
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            (app / name).write_text(text, encoding="utf-8")
        with _passing_on(stop, folder):
            last = _follow(_command(app, settings), environ, observer)
    observer.finished()
    return _result(folder, last)


def _check(settings: RunSettings) -> None:
    if settings.faults:
        raise ConfigError("faults are injected by the engine in one process only; drop --faults or --engine flower")
    if shutil.which("flwr", path=_path()) is None or find_spec("ray") is None:
        raise ConfigError("Flower's simulation engine is missing; install it: pip install 'fednode[simulation]'")


def _path() -> str:
    """PATH with this Python's folder first: Flower starts its parts by name."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _command(app: Path, settings: RunSettings) -> list[str]:
    nodes = settings.clients + settings.holders
    federation = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus={os.cpu_count() or 1}"
    flwr = shutil.which("flwr", path=_path()) or "flwr"
    return [flwr, "run", str(app), "--stream", "--federation-config", federation]


@contextlib.contextmanager
def _engine(scratch: Path, stop: StopFlag) -> Iterator[dict[str, str]]:
    """The environment of a private engine. At the end, all processes that it started are killed by their ids."""
    home = scratch / _HOME
    home.mkdir()
    environ = dict(os.environ)
    environ |= flower_environment(home) | {"PATH": _path(), "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    superlink: subprocess.Popen[bytes] | None = None
    try:
        superlink = _start_superlink(home, environ, stop)
        yield environ
    finally:
        _end_all_under(home)
        if superlink is not None:
            superlink.wait()


def _start_superlink(home: Path, environ: Mapping[str, str], stop: StopFlag) -> "subprocess.Popen[bytes]":
    """Start Flower's SuperLink for this run, and wait until it answers.

    The wait follows the process, not a clock: `flwr run` would start a SuperLink itself, but ends it after 15 seconds,
    which is too short on a busy machine. Raises `FednodeError` if it ends, `Interrupted` if the operator stops the run.
    """
    port, log_file = _free_port(), home / "superlink.log"
    private = f'[superlink.private]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "private"\n\n{private}', encoding="utf-8")
    command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--database", str(home / "state.db"), "--log-file", str(log_file)]
    process = subprocess.Popen(  # noqa: S603 # nosec B603 # our own command
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not _answers(port):
        if process.poll() is not None:
            lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines() if log_file.exists() else []
            told = one_line(lines[-1], 300) if lines else "without a log"
            raise FednodeError(f"Flower's SuperLink ended with code {process.returncode}: {told}")
        if stop.raised:
            raise Interrupted("stopped before Flower's engine was up; nothing was asked of a member")
        SystemClock().sleep(_BETWEEN_SCANS)
    return process


def _answers(port: int) -> bool:
    """Whether a SuperLink on this port answers."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def _end_all_under(home: Path) -> None:
    """Kill the processes of that home until there is none: one that is killed may just have started another."""
    for _ in range(_SCANS):
        started = _started_under(home)
        if not started:
            return
        for process in started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        SystemClock().sleep(_BETWEEN_SCANS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _started_under(home: Path) -> list[int]:
    """Ids of the processes whose environment names this private home.

    Empty if /proc belongs to another pid namespace: its ids mean other processes here.
    """
    if Path("/proc/self").exists() and Path("/proc/self").readlink() != Path(str(os.getpid())):
        log.warning("/proc shows another pid namespace: what Flower's engine left running is not ended")
        return []
    wanted = f"FLWR_HOME={home}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _follow(command: list[str], environ: dict[str, str], observer: Observer) -> str:
    """Pass on FedNode's own lines of Flower's log until the run ends; return the last line that is not FedNode's."""
    last = ""
    # a session of its own: Ctrl-C in a terminal reaches this process alone, which passes it on as a file
    with subprocess.Popen(  # noqa: S603 # nosec B603 # our own command
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        for line in process.stdout or ():
            _, mark, text = line.partition(MARK)
            if mark:
                observer.phase(text.strip())
            else:
                last = line.strip() or last
    return last


@contextlib.contextmanager
def _passing_on(stop: StopFlag, folder: Path) -> Iterator[None]:
    """Pass the operator's request to stop on to the run's own process, as a file, for as long as the block lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            if stop.raised:
                (folder / STOP_NAME).touch(0o600)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _result(folder: Path, last: str) -> RunResult:
    path = folder / JSON_NAME
    (folder / STOP_NAME).unlink(missing_ok=True)
    if not path.exists():
        raise FednodeError(
            f"Flower's engine ended run {folder.name} without a report; see {folder / 'run.log'}; its last line was: "
            f"{one_line(last, 200) or 'nothing'}"
        )
    record = parse_report(path.read_bytes())
    kinds = {word: kind for kind, word in OUTCOMES.items()}
    error = None if record.outcome == "finished" else kinds.get(record.outcome, FednodeError)(record.outcome_sentence)
    return RunResult(record, folder, error, closing_lines(record, folder))
