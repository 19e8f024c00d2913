"""The README tells the truth: commands, flags, exit codes, faults, figures."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from fednode import errors
from fednode.assemble.claims import STRENGTH
from fednode.assemble.planning import plan_run
from fednode.cli.app import app
from fednode.cli.exits import CAUSES
from fednode.privacy import epsilon
from fednode.settings import RunSettings, resolve
from fednode.settings.faults import ROLE_OF
from fednode_crypto import Demand, plan

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


def flags(command: click.Command) -> set[str]:
    own = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts) if flag[:2] == "--"}
    deeper = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(flags, deeper)) | {"--help"}


def test_every_flag_that_it_names_is_one_of_ours():
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PROSE))
    assert "--faults" in named and named - flags(typer.main.get_command(app)) == FLOWERS_OWN


@pytest.mark.parametrize("arguments", commands("fednode"), ids=" ".join)
def test_every_command_that_it_shows_parses(arguments):
    command, rest = typer.main.get_command(app), list(arguments)
    while isinstance(command, click.Group):
        command = command.get_command(None, rest.pop(0))
    given = command.make_context(arguments[0], list(rest)).params
    if arguments[0] == "run":
        settings = resolve(None, {}, {name: given[name] for name in RunSettings.model_fields})
        wanted = {name for name, value in given.items() if value and name != "dry_run"}
        assert wanted and wanted <= settings.model_fields_set
    else:
        assert (rest and all(given.values())) or command.name in (
            "init",
            "enrol",
            "stats",
            "audit",
            "verify",
            "predict",
        )


def test_every_target_of_make_that_it_shows_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z-]+)", README, re.MULTILINE))
    assert {"run", "test"} <= named and named - targets == set()


def test_it_says_whom_each_kind_of_fault_befalls():
    words = " ".join(README.split())
    client, _, holder = words[words.index("Clients can have") :].partition(";")
    for role, said in (("client", client), ("holder", holder.partition(".")[0])):
        assert {kind for kind, whose in ROLE_OF.items() if whose == role} == set(re.findall(r"`([a-z-]+)`", said))


def test_its_figures_of_bytes_are_the_plans():
    def ratio(**settings: object) -> float:
        params = plan_run(RunSettings.model_validate(settings)).sum_params
        return params.upload_bytes / (4 * params.dimension)

    words = " ".join(README.split())
    short = plan("ring", Demand(1_000_000, 100, 100 * 2048, holders=5, threshold=4)).upload_bytes / 4_000_000
    large = plan_run(RunSettings(features=40_000, clients=100))
    assert f"`ring` {short:.2f} x float32 for 12-bit values and {ratio(features=40_000, clients=100):.2f} x" in words
    assert f"({large.sum_params.lane_bits} bits)" in words and large.sum_params.dimension > 1_000_000
    assert f"a small model, {ratio():.2f} x, and {ratio(scheme='bfv'):.2f} x under `bfv`" in words


def test_its_figure_of_strength_is_the_reports():
    assert "96 to 98 by core-SVP" in " ".join(README.split()) and "96 to 98 by core-SVP" in STRENGTH["ring"]


def test_few_rounds_use_most_of_the_budget_too():
    few, many = (plan_run(RunSettings(rounds=rounds)) for rounds in (2, 20))
    spent = [epsilon(plan.events(20), plan.budget.delta) for plan in (few, many)]
    assert 7.3 < spent[0] < spent[1] < 8.0 and few.terms.noise_multiplier() < many.terms.noise_multiplier() / 2
