"""Whole runs with members that fail: the run goes on, and report.json names each with its reason."""

from kit.smallrun import InsecureLiar, report_of, small_run

from fednode.assemble.session import Environment
from fednode.clock import SystemClock
from fednode.privacy import Ledger
from fednode.privacy.budget import Budget


def named(entries) -> dict[str, str]:
    return {entry["name"]: entry["reason"] for entry in entries}


def test_a_run_goes_on_whatever_single_members_do(tmp_path):
    faults = (
        "garbage@1:client-1",
        "slow@1:client-2",
        "repeat@1:client-3",
        "lost-before-upload@2-3:client-4",
        "lie@2:client-5",
        "lost-after-upload@2:client-1",
        "lost-before-upload@3:client-6",
        "lost-before-upload@3:client-7",
        "lost-before-opening@3:client-1",
        "dead@2-:holder-2",
    )
    result = small_run(tmp_path, clients=7, rounds=3, min_survivors=4, faults=faults)
    assert result.error is None
    report = report_of(result.folder)
    one, two, three = report["rounds"]
    assert report["outcome"] == "finished" and [r["outcome"] for r in report["rounds"]] == ["released"] * 3
    assert named(one["rejected"]) == {"client-1": "malformed"}
    assert named(one["discarded"]) == {"client-2": "late", "client-3": "repeat"}
    assert one["lost"] == [] and one["holders_silent"] == []
    assert one["survivors"] == [f"client-{n}" for n in (3, 4, 5, 6, 7)]
    assert named(two["rejected"]) == {"client-5": "another-round"} and two["lost"] == ["client-4"]
    assert two["holders_silent"] == ["holder-2 (no-key)"]
    assert two["holders_answered"] == ["holder-1", "holder-3"]
    assert three["lost"] == ["client-4", "client-6", "client-7"] and len(three["survivors"]) == 4
    assert any("injected on purpose" in text for text in report["deviations"])
    page = (result.folder / "report.html").read_text()
    assert all(text in page for text in ("client-5", "another-round", "holder-2", "no-key"))


def test_a_lying_holder_is_left_out_and_named(tmp_path):
    result = small_run(tmp_path, Environment(schemes=lambda _: InsecureLiar()))
    assert result.error is None
    for entry in report_of(result.folder)["rounds"]:
        assert entry["holders_silent"] == ["holder-1 (wrong-answer)"]
        assert entry["holders_answered"] == ["holder-2", "holder-3"]


def test_the_report_and_the_ledger_agree(tmp_path):
    result = small_run(tmp_path, faults=("lost-before-upload@1:client-1",))
    report = report_of(result.folder)
    budget = Budget(report["guarantee"]["epsilon_limit"], report["guarantee"]["delta"])
    with Ledger.open(result.folder / "ledger.jsonl", budget, SystemClock(), report["run_id"]) as ledger:
        assert ledger.head == report["trust"]["ledger_head"] and ledger.repair is None
        assert ledger.spent == report["guarantee"]["epsilon"] <= budget.epsilon
        survivors = [sorted(entry.charge.survivors) for entry in ledger.entries]
        assert survivors == [entry["survivors"] for entry in report["rounds"]]
        assert [len(names) for names in survivors] == [3, 4]
