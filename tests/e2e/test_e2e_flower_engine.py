"""The same ServerApp and ClientApp on Flower's own simulation engine."""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from fednode.assemble.flower_engine import _end_all_under, _start_superlink, _started_under, app_files
from fednode.errors import FednodeError, Interrupted
from fednode.observer import Observer, StopFlag
from fednode.settings import default_run_config, from_run_config, resolve

APP = Path(__file__).resolve().parents[2] / "experiments" / "customer_service"


def test_the_app_of_the_experiment_is_the_one_the_engine_runs():
    files = app_files("customer-service", default_run_config())
    assert {name: (APP / name).read_text() for name in files} == files


def test_its_run_config_is_every_setting():
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert from_run_config(config) == resolve(None, {}, {"engine": "flower"})


@pytest.mark.timeout(1800)
def test_a_run_on_flowers_engine_ends_with_a_report(tmp_path, monkeypatch):
    from fednode.assemble import run

    # the engine's private home lies in here: what is left behind can be told from other engines on this machine
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flags = {"engine": "flower", "clients": 3, "rounds": 1, "holders": 3, "threshold": 2, "features": 64}
    settings = resolve(None, {}, flags | {"out": str(tmp_path), "min_survivors": 3, "deadline": 1500.0})
    result = run(settings, Observer(), StopFlag())
    assert result.error is None, result.record.outcome_sentence
    assert len(result.record.rounds) == 1 and len(result.record.rounds[0].survivors) == 3
    assert {path.name for path in result.folder.iterdir()} >= {"report.html", "ledger.jsonl", "model.safetensors"}
    assert not left_behind(tmp_path)


SERVE = """#!{python}
import http.server, sys, time
time.sleep(1)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200), self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""


@pytest.fixture
def superlink(tmp_path):
    """Starts a script in place of Flower's SuperLink, and ends it afterwards."""

    def start(script, stop):
        (tmp_path / "flower-superlink").write_text(script)
        (tmp_path / "flower-superlink").chmod(0o755)
        environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FLWR_HOME": str(tmp_path)}
        return _start_superlink(tmp_path, environ, stop)

    yield start
    _end_all_under(tmp_path)


def test_the_engine_waits_for_its_superlink_as_long_as_that_runs(superlink, tmp_path):
    process = superlink(SERVE.format(python=sys.executable), StopFlag())
    assert process.poll() is None and "127.0.0.1:" in (tmp_path / "config.toml").read_text()
    process.kill()
    process.wait()


def test_a_superlink_that_ends_or_a_run_that_is_stopped_ends_the_wait(superlink, tmp_path):
    (tmp_path / "superlink.log").write_text("first\nno database")
    with pytest.raises(FednodeError, match="code 3: no database"):
        superlink("#!/bin/sh\nexit 3\n", StopFlag())
    stop = StopFlag()
    stop.stop()
    with pytest.raises(Interrupted):
        superlink("#!/bin/sh\nexec sleep 60\n", stop)


def test_processes_of_another_pid_namespace_are_not_taken_for_the_engines(tmp_path, monkeypatch):
    home = tmp_path / "flower"
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=os.environ | {"FLWR_HOME": str(home)}
    ) as engine:
        assert _started_under(home) == [engine.pid]
        # what a process sees whose /proc was mounted for the namespace around its own
        monkeypatch.setattr("os.getpid", lambda: 1 << 30)
        assert _started_under(home) == []
        engine.communicate(b"\n")


def left_behind(folder):
    """Processes of a private engine that outlived its run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"FLWR_HOME={folder}".encode() in environ and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found
