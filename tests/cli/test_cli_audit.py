"""`fednode audit`: its verdict is its exit code, and a run keeps it as audit.json."""

import json

import pytest
from kit.auditing import halved
from kit.smallrun import flags_of, small_run, small_settings

from fednode.cli import main

SAMPLER = "fednode_clients.client.privatise.discrete_gaussian"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(
        tmp_path_factory.mktemp("run"), rounds=3, features=128, faults=("lost-before-upload@2:client-4",)
    ).folder


def test_a_finished_run_is_audited_as_it_was_set(run, capsys):
    assert main(["audit", str(run)]) == 0
    kept = json.loads((run / "audit.json").read_bytes())
    figures = kept["figures"]
    assert (kept["schema"], kept["verdict"], kept["findings"]) == (1, "pass", [])
    # its faults are not injected: all four clients are in all rounds
    assert (figures["rounds"], figures["clients"], figures["dimension"]) == (3, 4, 387)
    assert f"{figures['mu']:.5g}" in capsys.readouterr().out


def test_an_audit_that_fails_says_so_in_its_code_and_in_the_file(run, capsys, monkeypatch):
    monkeypatch.setattr(SAMPLER, halved)
    assert main(["audit", str(run)]) == 9
    kept = json.loads((run / "audit.json").read_bytes())
    assert kept["verdict"] == "fail" and "0.2" in kept["findings"][0]
    assert kept["findings"][0] in capsys.readouterr().err


def test_a_rehearsal_takes_settings_and_leaves_nothing(tmp_path, capsys):
    settings = small_settings(tmp_path, rounds=1)
    assert main(["audit", "--rehearse", *flags_of(settings)]) == 0
    assert "noise error" in capsys.readouterr().out and not settings.out.exists()


def test_a_run_is_not_audited_with_other_settings(run):
    assert main(["audit", str(run), "--rounds", "5"]) == 2


def test_a_run_is_rehearsed_with_its_own_settings(run, capsys):
    (run / "audit.json").unlink(missing_ok=True)
    assert main(["audit", str(run), "--rehearse"]) == 0
    shown = capsys.readouterr().out
    assert "noise error" in shown and "canaries" not in shown and not (run / "audit.json").exists()


def test_what_is_no_run_is_named(tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 3 and str(tmp_path) in capsys.readouterr().err
    (tmp_path / "config.toml").write_text("")
    assert main(["audit", str(tmp_path)]) == 3 and "charge" in capsys.readouterr().err
