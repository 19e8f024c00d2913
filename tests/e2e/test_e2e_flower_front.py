"""A FedAvg app and the same app under FedNode: ten lines apart, both on Flower's engine; and a task's own two apps."""

import difflib
import os
import subprocess
from pathlib import Path

import pytest

from fednode.assemble.flower_engine import _engine
from fednode.observer import StopFlag
from fednode.reports import parse_report

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAIN, OURS = EXAMPLES / "flower_fedavg", EXAMPLES / "flower_fednode"


def test_the_two_apps_differ_in_ten_lines_at_most():
    files = sorted(path.relative_to(PLAIN) for path in PLAIN.rglob("*") if path.suffix in (".py", ".toml"))
    assert files == sorted(path.relative_to(OURS) for path in OURS.rglob("*") if path.suffix in (".py", ".toml"))
    added = removed = 0
    for file in files:
        lines = difflib.ndiff((PLAIN / file).read_text().splitlines(), (OURS / file).read_text().splitlines())
        marks = [line[0] for line in lines]
        added, removed = added + marks.count("+"), removed + marks.count("-")
    assert removed <= added <= 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("app", "nodes"), [(PLAIN, 4), (OURS, 7)])
def test_both_apps_run_on_flowers_engine(app, nodes, tmp_path, monkeypatch):
    # the run's folder and the model file lie where the SuperLink is started
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    with _engine(tmp_path / "scratch", StopFlag()) as environ:
        federation = f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus={os.cpu_count() or 1}"
        command = ["flwr", "run", str(app), "--stream", "--federation-config", federation]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0 and (tmp_path / "final_model.pt").exists(), done.stdout[-3000:] + done.stderr[-3000:]
    if app == OURS:
        reports = list(tmp_path.glob("runs/*/report.json"))
        assert reports, done.stdout[-3000:]
        record = parse_report(max(reports).read_bytes())
        assert len(record.released) == 3 and record.guarantee.unit == "client" and len(record.accuracies) == 3
