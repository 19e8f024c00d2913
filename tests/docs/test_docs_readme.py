"""The README tells the truth: commands, flags, exit codes, faults, and the ClientApp that it shows."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

from fednode import errors
from fednode.cli import main
from fednode.cli.app import app
from fednode.cli.exits import CAUSES
from fednode.observer import SilentObserver, StopFlag
from fednode.settings import RunSettings, resolve
from fednode.settings.faults import ROLE_OF

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
SHOWN = [line.strip() for line in PROSE.splitlines() if re.match(r"    (?:make|fednode|flwr) ", line)]
SHOWN += re.findall(r"`(fednode run --(?!help)[^`]+)`", PROSE)
FLOWERS_OWN = {"--stream", "--federation-config", "--run-config"}


def commands(program: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in SHOWN if line.startswith(f"{program} ")]


def test_it_is_short_and_starts_with_the_two_commands():
    assert len(README.splitlines()) < 150
    assert SHOWN[:2] == ["make run", "make test"]


def test_its_exit_codes_are_those_of_the_program():
    table = {int(code): cause for code, cause in re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert table == CAUSES
    assert set(table) == raised | {0}


def test_every_flag_that_it_names_is_in_the_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["run", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PROSE))
    assert "--faults" in named and named - known == FLOWERS_OWN


@pytest.mark.parametrize("arguments", commands("fednode"), ids=" ".join)
def test_every_command_that_it_shows_parses(arguments):
    command = typer.main.get_command(app).get_command(None, arguments[0])
    given = command.make_context(arguments[0], arguments[1:]).params
    if arguments[0] == "run":
        settings = resolve(None, {}, {name: given[name] for name in RunSettings.model_fields})
        wanted = {name for name, value in given.items() if value and name != "dry_run"}
        assert wanted and wanted <= settings.model_fields_set
    else:
        assert given and all(given.values())


def test_every_target_of_make_that_it_shows_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", README, re.MULTILINE))
    assert {"run", "test"} <= named and named - targets == set()


def test_it_names_every_kind_of_fault():
    assert [kind for kind in ROLE_OF if f"`{kind}`" not in README] == []


def test_the_client_app_that_it_shows_trains(tmp_path, monkeypatch):
    from fednode.assemble.running import run_inproc

    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), shown)  # noqa: S102 - it is our own
    monkeypatch.setattr("fednode_clients.app.build_app", lambda _parts: shown["app"])
    rows = [f"{text} {number},{text}" for text in ("parcel", "refund") for number in range(20)]
    Path("mine.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    x = np.random.default_rng(1).standard_normal((30, 64)).astype(np.float32)
    np.savez("mine.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    few = {"data": "mine.csv", "features": 64, "clients": 4, "holders": 2, "threshold": 2, "rounds": 1}
    result = run_inproc(resolve(None, {}, few), SilentObserver(), StopFlag())
    assert result.error is None
    assert [len(entry.survivors) for entry in result.record.released] == [4]
