"""A whole run under scheme `ring`: the same faults, the same report, nothing left behind."""

import json

from kit.smallrun import small_run

FAULTS = ("garbage@1:client-1", "dead@2:holder-1", "slow@2:client-2")


def test_a_run_goes_on_whatever_single_members_do(tmp_path):
    changes = {"scheme": "ring", "clients": 6, "min_survivors": 4, "holders": 4, "threshold": 3, "faults": FAULTS}
    result = small_run(tmp_path, **changes)
    assert result.error is None, result.record.outcome_sentence
    first, second = result.record.rounds
    assert [(entry.name, entry.reason) for entry in first.rejected] == [("client-1", "malformed")]
    assert second.holders_silent == ("holder-1 (no-key)",) and len(second.holders_answered) == 3
    assert ("client-2", "late") in [(entry.name, entry.reason) for entry in second.discarded] or second.lost == (
        "client-2",
    )
    report = json.loads((result.folder / "report.json").read_text())
    assert report["run"]["trust"]["scheme"] == "ring" and "a node that lies" in report["statement"]
    assert not list(result.folder.glob(".updates-*"))
