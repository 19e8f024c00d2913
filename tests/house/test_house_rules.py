"""The house rules, and the linter's, find a planted breach and nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit.planted import places, plant

from scripts import house

ROOT = Path(__file__).resolve().parents[2]

EMPTY = {
    "nothing": "do()",
    "a constant": "assert True",
    "a tuple that always holds": "assert (x == 1, 'message')",
    "a print": "print(do())",
    "another's check": "recheck_all(do())",
}
SEEING = {
    "assert": "assert do() == 1",
    "raises": "with pytest.raises(ValueError):\n        do()",
    "warns": "with pytest.warns(UserWarning):\n        do()",
    "a kit's check": "store.check_store(do())",
    "must": "must_hold(do())",
    "verify": "verify_all(do())",
    "a state machine": "run_state_machine_as_test(Machine)",
    "an inner function": "def inner():\n        assert do()\n    inner()",
}


@pytest.mark.parametrize("body", [*EMPTY.values(), *SEEING.values()], ids=[*EMPTY, *SEEING])
def test_a_test_that_asserts_nothing_is_found(tmp_path, body):
    sources = plant(tmp_path, {"tests/test_x.py": f"def test_x():\n    {body}\n"})
    wanted = [("tests/test_x.py", 1)] if body in EMPTY.values() else []
    assert places(house.every_test_asserts(sources)) == wanted


def test_methods_and_coroutines_are_looked_at_and_other_functions_are_not(tmp_path):
    text = """\
    class TestX:
        def test_a(self):
            do()

        async def test_b(self):
            do()

        def prepare(self):
            do()
    """
    sources = plant(tmp_path, {"tests/test_x.py": text, "fednode/x.py": "def test_like():\n    do()\n"})
    assert places(house.every_test_asserts(sources)) == [("tests/test_x.py", 2), ("tests/test_x.py", 5)]


@pytest.mark.parametrize(
    ("text", "found"),
    [("", 1), ("def help(): ...\n", 1), ("def test_x(): ...\n", 0), ("TestX = Machine.TestCase\n", 0)],
)
def test_a_file_of_tests_without_a_test_is_found(tmp_path, text, found):
    sources = plant(tmp_path, {"tests/test_x.py": text, "tests/kit/x.py": ""})
    assert places(house.files_of_tests_hold_tests(sources)) == [("tests/test_x.py", 1)] * found


@pytest.mark.parametrize(("lines", "found"), [(500, []), (501, [("scripts/x.py", 501)])])
def test_a_file_has_at_most_five_hundred_lines(tmp_path, lines, found):
    assert places(house.short_files(plant(tmp_path, {"scripts/x.py": "x = 1\n" * lines}))) == found


@pytest.mark.parametrize(("modules", "found"), [(15, []), (16, [("fednode/a", 1)])])
def test_a_folder_of_the_product_has_at_most_fifteen_modules(tmp_path, modules, found):
    files = {f"{folder}/x{number}.py": "" for folder in ("fednode/a", "tests") for number in range(modules)}
    assert places(house.small_folders(plant(tmp_path, {**files, "fednode/a/__init__.py": ""}))) == found


@pytest.mark.parametrize("name", ["RoundManager", "CryptoHelper", "Utils", "StoreBase", "RoundImpl"])
def test_a_name_that_says_nothing_is_found(tmp_path, name):
    sources = plant(tmp_path, {"fednode/x.py": f"class {name}:\n    x = 1\n", "fednode/y.py": "class Round: ...\n"})
    assert places(house.names_say_something(sources)) == [("fednode/x.py", 1)]


def test_two_public_classes_of_one_name_are_found(tmp_path):
    text = "class Round: ...\nclass _Local: ...\n"
    sources = plant(tmp_path, {"clients/x.py": text, "fednode/y.py": text, "tests/x.py": text})
    assert places(house.class_names_are_unique(sources)) == [("fednode/y.py", 1)]


HOSTS = ["https://pypi" + ".org/simple", "registry.npm" + "js.org"]
PATHS = ["see /home/someone/x", "cd /root", "`/tmp/notes`", "open('/" + "work/main')", "/Users/x"]


@pytest.mark.parametrize("text", [*HOSTS, *PATHS])
def test_a_machines_path_or_a_registrys_host_is_found_in_any_kind_of_file(tmp_path, text):
    plant(tmp_path, {"notes.md": f"\n{text}\n", "fednode/cache/x.py": f"# {text}\n"})
    assert places(house.no_forbidden_words(tmp_path)) == [("fednode/cache/x.py", 1), ("notes.md", 2)]


def test_what_only_looks_like_a_path_or_was_not_written_by_people_is_left_alone(tmp_path):
    harmless = ["#!/usr/bin/env bash", "example.com/work/x", "$HOME/tmp/x", "PyPI has it", "docs/root.md", "/homely"]
    generated = (".venv/x.py", "runs/1/run.log", ".git/config", "fednode.egg-info/PKG-INFO", "__pycache__/x")
    plant(tmp_path, {"notes.md": "\n".join(harmless), **dict.fromkeys(generated, "/home/someone\n")})
    (tmp_path / "picture.bin").write_bytes(b"\0/home/someone")
    assert places(house.no_forbidden_words(tmp_path)) == []


@pytest.mark.parametrize("folder", ["clients", "crypto", "tests", "experiments"])
def test_a_folder_that_would_be_installed_under_its_own_name_is_found(tmp_path, folder):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert places(house.unique_import_names(tmp_path)) == []
    plant(tmp_path, {f"{folder}/__init__.py": ""})
    assert places(house.unique_import_names(tmp_path)) == [(f"{folder}/__init__.py", 1)]


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [('fednode_crypto = "crypto/fednode_crypto"', 'crypto = "crypto"'), ('include = ["fednode*"]', 'include = ["*"]')],
)
def test_a_packaging_table_that_installs_another_name_is_found(tmp_path, ours, wrong):
    text = (ROOT / "pyproject.toml").read_text()
    assert ours in text
    (tmp_path / "pyproject.toml").write_text(text.replace(ours, wrong))
    assert places(house.unique_import_names(tmp_path)) == [("pyproject.toml", 1)]


FAULTS = {
    "fednode/x.py": ("import time\n\ntime.time()\n", "TID251"),
    "clients/fednode_clients/x.py": ("from random import choice\n\nchoice([1])\n", "TID251"),
    "crypto/fednode_crypto/x.py": ("import numpy as np\n\nnp.random.normal()\n", "NPY002"),
    "experiments/fednode_study/x.py": ("import datetime\n\ndatetime.datetime.now()\n", "DTZ005"),
    "tests/test_x.py": ("import time\n\ntime.sleep(1)\n", "TID251"),
    "scripts/x.py": ("# TO" + "DO: later\n", "FIX002"),
    "benchmarks/x.py": ("def f(a, b, c, d, e, f):\n    return a\n", "PLR0917"),
}


def test_the_linter_knows_where_time_randomness_and_notes_to_oneself_are_banned(tmp_path):
    for name in ("pyproject.toml", "tests/ruff.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    fine = {"fednode/clock.py": FAULTS["fednode/x.py"][0], "tests/test_y.py": FAULTS["fednode/x.py"][0]}
    plant(tmp_path, {**{path: text for path, (text, _) in FAULTS.items()}, **fine})
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--output-format",
        "concise",
        "--select",
        "DTZ,FIX,NPY,PLR,TID",
        ".",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {line.split(":")[0]: line for line in done.stdout.splitlines() if line.count(":") >= 3}
    assert set(found) == set(FAULTS)
    assert [path for path, (_, rule) in FAULTS.items() if rule not in found[path]] == []
