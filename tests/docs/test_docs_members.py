"""docs/members.md tells the truth: both apps run, its commands make what they say, its limits are the members'."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.clocks import FakeClock

from fednode.cli import main
from fednode.errors import PeerFault
from fednode.front.data import client_data
from fednode.front.training import clipped_sum
from fednode.inproc import InProcGrid, run_in_process
from fednode.observer import Observer, StopFlag
from fednode.protocol.cohort import Cohort
from fednode.reports import parse_report
from fednode.settings import RunSettings, to_run_config
from fednode_clients.app import build_app
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.limits import MemberLimits
from fednode_clients.membership import MemberParts
from fednode_study import study

TEXT = (Path(__file__).resolve().parents[2] / "docs/members.md").read_text(encoding="utf-8")
SERVER, CLIENT, LOCAL = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
MEMBERS = ("ann", "ben", "hal", "hol")
CARDS = (*MEMBERS, "node")


def shown(block: str) -> dict[str, object]:
    found: dict[str, object] = {}
    exec(compile(block, "docs/members.md", "exec"), found)  # noqa: S102 - it is our own
    return found


@pytest.fixture
def messages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{text} {number},{text}" for text in ("parcel", "refund") for number in range(20)]
    Path("mine.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return {"data": "mine.csv", "features": 64, "rounds": 1, "holders": 2, "threshold": 2}


def run_command(line: str) -> None:
    assert main(shlex.split(line, comments=True)[1:]) == 0, line


def test_members_who_made_their_own_keys_are_met_by_the_node_that_it_shows(messages, tmp_path, monkeypatch):
    init, member, enrol, show, replace, *retire = re.findall(r"^    (fednode keys .*)$", TEXT, re.MULTILINE)
    run_command(init)
    for name in CARDS:
        run_command(member.replace("ann", name).replace("enrolment.pub", "enrol/enrolment.pub"))
        Path(f"{name}.json").write_bytes(Path(name, "member.json").read_bytes())
    run_command(enrol)
    run_command(show.replace("enrolment.pub", "enrol/enrolment.pub"))
    run_command(
        member.replace("init ann", "init new").replace("ann", "hol").replace("enrolment.pub", "enrol/enrolment.pub")
    )
    Path("new-hol.json").write_bytes(Path("new", "member.json").read_bytes())
    run_command(replace)
    assert Cohort.from_bytes(Path("next.json").read_bytes()).serial == 2
    settings = RunSettings.model_validate({**messages, "clients": 2, "min_survivors": 2, "assumed_colluders": 0})
    config = to_run_config(settings) | {"cohort": "cohort.json", "node-key-folder": "node"}
    monkeypatch.setattr("fednode.assemble.serve.SystemClock", FakeClock)
    assert "colluders=0" in TEXT
    own = MemberParts(limits=MemberLimits(colluders=0), folder=lambda place: tmp_path / MEMBERS[place.partition()])
    grid = InProcGrid(build_app(own, study.train), MEMBERS, config)
    run_in_process(shown(SERVER)["app"], grid, config)
    (report,) = Path("runs").glob("*/report.json")
    record = parse_report(report.read_bytes())
    assert record.deviations == () and record.trust.enrolment.startswith("each member made its own keys")
    assert "40 records" in (report.parent / "report.html").read_text() and record.task.labels == 0
    (released,) = record.released
    assert (released.survivors, released.holders_answered) == (("ann", "ben"), ("hal", "hol"))
    for line in retire:
        run_command(line.replace("/srv/keys/ann", "ann"))
    for task in (report.parent.name, "NAME"):
        with pytest.raises(PeerFault, match="retired"):
            KeyFolder.open(tmp_path / "ann").tasks.require_open(task)


def test_the_client_app_that_it_shows_trains(messages, monkeypatch):
    from fednode.assemble.inprocess_run import run_inproc

    app = shown(CLIENT)["app"]
    monkeypatch.setattr("fednode_clients.app.build_app", lambda *_: app)
    x = np.random.default_rng(1).standard_normal((30, 64)).astype(np.float32)
    np.savez("mine.npz", inputs=x, targets=(x[:, 0] > 0).astype(np.int64))
    result = run_inproc(RunSettings.model_validate({**messages, "clients": 4}), Observer(), StopFlag())
    assert result.error is None
    assert [len(entry.survivors) for entry in result.record.released] == [4]


def test_its_limits_are_those_of_a_member_without_any():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| .*, `?([\w.,-]+)`? \|$", TEXT, re.MULTILINE))
    assert {name.replace("-", "_") for name in rows} == set(MemberLimits.__slots__)
    node = {name: value if name == "units" else value.replace(",", "") for name, value in rows.items()}
    assert MemberLimits().configured(node, {}, simulated=False) == MemberLimits()


def test_the_local_training_of_the_page_is_a_clipped_update_of_the_client_unit():
    page = {"my_model": lambda: torch.nn.Linear(3, 2), "my_records": list}
    exec(LOCAL, page)  # noqa: S102 - the page's own code
    records = client_data((np.ones((4, 3), np.float32), np.array([0, 1, 1, 1])), "client", "mine")
    task = page["task"]
    update = clipped_sum(task, task.module(), records, 1e-3, task.settings(3))
    assert (update.unit, update.clip, update.vector.shape) == ("client", 1e-3, (8,))
    assert 0.0 < np.linalg.norm(update.vector) <= 1e-3 and task.settings(3).proximal == 0.01
