"""scripts/check, the Makefile and .ci/run do what they say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house import SOURCE_RULES, TREE_RULES, find_all

ROOT = Path(__file__).resolve().parents[2]
FROM_AN_OUTER_MAKE = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS"}


def run(*command, cwd=ROOT, **environ):
    # a `make test` around this run must not reach into a `make` inside it
    outer = {name: value for name, value in os.environ.items() if name not in FROM_AN_OUTER_MAKE}
    env = outer | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | environ
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_the_project_keeps_its_own_house_rules():
    assert [str(finding) for finding in find_all(ROOT)] == []


def test_every_rule_says_what_it_holds():
    names = [rule.__name__ for rule in (*SOURCE_RULES, *TREE_RULES)]
    assert len(set(names)) == len(names)
    assert [rule.__name__ for rule in (*SOURCE_RULES, *TREE_RULES) if not rule.__doc__] == []


def test_check_refuses_a_step_it_does_not_know():
    done = run(str(ROOT / "scripts" / "check"), "hose")
    assert done.returncode == 2 and "the steps are: format lint types imports house quick tests" in done.stderr


@pytest.fixture
def small_project(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    return tmp_path


def test_check_runs_from_any_folder(small_project, tmp_path_factory):
    done = run(str(small_project / "scripts" / "check"), "house", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0
    assert "== house\n" in done.stdout and "house rules hold" in done.stdout and "== house passed in" in done.stdout


def test_check_stops_at_the_first_failure(small_project):
    (small_project / "tests" / "test_x.py").write_text("def test_x():\n    print('nothing')\n")
    done = run(str(small_project / "scripts" / "check"), "house", "tests")
    assert done.returncode == 1
    assert "tests/test_x.py:1: test_x asserts nothing" in done.stdout
    assert "== house failed after" in done.stderr and "== tests" not in done.stdout


def test_the_house_command_prints_every_finding_and_fails(small_project):
    (small_project / "notes.md").write_text("".join(["/ho", "me/someone\n"]) * 2)
    done = run(sys.executable, "-m", "scripts.house", cwd=small_project)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 2


def test_the_house_command_names_the_file_that_is_not_python(small_project):
    (small_project / "tests" / "test_x.py").write_text("x = 1\ndef\n")
    done = run(sys.executable, "-m", "scripts.house", cwd=small_project)
    assert done.returncode == 1 and "test_x.py:2: not Python" in done.stdout and done.stderr == ""


WITH_SERVERS = "$(grep -rl RedisServer tests --include='test_*.py')"


@pytest.mark.parametrize(
    ("target", "last"),
    [
        ("run", ".venv/bin/fednode run"),
        ("test", ".venv/bin/python -m pytest -n auto"),
        ("quick", "scripts/check format lint types imports house quick"),
        ("test-slow", ".venv/bin/python -m pytest -n auto -m slow"),
        ("test-valkey", f"FEDNODE_TEST_SERVER=valkey-server .venv/bin/python -m pytest {WITH_SERVERS}"),
        ("bench", "exit $sums"),
        ("check", "scripts/check"),
        ("lock", ".venv/bin/python -m scripts.lock"),
        ("lint", "scripts/check format lint types imports house"),
    ],
)
def test_make_installs_first_and_then_does_its_job(tmp_path, target, last):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    lines = [line.strip() for line in run("make", "-n", target, cwd=tmp_path).stdout.splitlines()]
    assert "HASHES= scripts/install .venv/bin/python && touch .venv/.installed" in lines[:-1]
    assert lines[-1] == last


def test_make_installs_again_only_when_the_requirements_change(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    stamp = tmp_path / ".venv" / ".installed"
    stamp.parent.mkdir()
    stamp.touch()
    newest = max((tmp_path / name).stat().st_mtime for name in ("pyproject.toml", "requirements.lock"))
    os.utime(stamp, (newest + 10, newest + 10))
    assert "scripts/install" not in run("make", "-n", "test", cwd=tmp_path).stdout
    os.utime(tmp_path / "requirements.lock", (newest + 20, newest + 20))
    assert "scripts/install" in run("make", "-n", "test", cwd=tmp_path).stdout


PIP = """\
#!/bin/sh
case "$1 $2" in
    "-c import"*) exit {platform} ;;
esac
echo "$@" >> {log}
for one; do
    case "$one" in /dev/fd/*) if grep -q ^torch== "$one"; then echo {error} >&2; exit {torch}; fi ;; esac
done
"""
NO_CPU_BUILD = "ERROR: No matching distribution found for torch==2.13.0+cpu"


def installed(tmp_path, platform=0, torch=0, error="", **environ):
    """What scripts/install asks of pip, one line each time, with a Python that only writes it down."""
    (tmp_path / "scripts").mkdir(exist_ok=True)
    for name in ("requirements.lock", "scripts/install"):
        shutil.copy(ROOT / name, tmp_path / name)
    python, log = tmp_path / "venv" / "bin" / "python", tmp_path / "asked"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(PIP.format(platform=platform, torch=torch, error=error, log=log))
    python.chmod(0o755)
    log.write_text("")
    done = run(str(tmp_path / "scripts" / "install"), str(python), cwd=tmp_path, **{"CI": "", "HASHES": ""} | environ)
    return done, log.read_text().splitlines()


def test_everything_is_installed_by_hash_and_in_ci_nothing_else(tmp_path):
    done, (torch, others, rest) = installed(tmp_path, CI="true")
    assert done.returncode == 0
    for line in (torch, others):
        assert "--no-deps --require-hashes --only-binary :all: -r /dev/fd/" in line
    assert "--no-index --no-build-isolation" in rest and rest.endswith("versions.txt -e .[dev]")
    assert "--no-index" not in installed(tmp_path)[1][-1]


def test_an_index_without_the_cpu_build_is_enough_outside_ci(tmp_path):
    done, asked = installed(tmp_path, torch=1, error=NO_CPU_BUILD)
    assert done.returncode == 0 and len(asked) == 3 and "without a hash" in done.stdout
    done, asked = installed(tmp_path, torch=1, error=NO_CPU_BUILD, CI="true")
    assert done.returncode == 1 and len(asked) == 1 and NO_CPU_BUILD in done.stderr


def test_a_wheel_with_another_hash_ends_the_installation(tmp_path):
    done, asked = installed(tmp_path, torch=1, error="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
    assert done.returncode == 1 and len(asked) == 1 and "DO NOT MATCH" in done.stderr


@pytest.mark.parametrize("other", [{"platform": 1}, {"HASHES": "no"}])
def test_another_platform_takes_the_versions_alone(tmp_path, other):
    done, (asked,) = installed(tmp_path, **other)
    assert done.returncode == 0 and "--require-hashes" not in asked and asked.endswith("versions.txt -e .[dev]")
    lines = (tmp_path / "venv" / "versions.txt").read_text().splitlines()
    assert "torch==2.13.0" in lines and not any("hash" in line for line in lines)


def test_make_says_what_is_missing_when_python_is_too_old(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run("make", f"PYTHON={old}", "test", cwd=tmp_path)
    assert done.returncode != 0 and "FedNode needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_alone_says_what_there_is():
    done = run("make")
    assert done.returncode == 0 and "make run" in done.stdout and "make test" in done.stdout


def test_ci_ends_with_the_tests_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.startswith("#!/usr/bin/env bash\n") and "set -euo pipefail" in script
    assert script.rstrip().splitlines()[-1].endswith("make test")
    assert run("bash", "-n", str(ROOT / ".ci" / "run")).returncode == 0
    assert os.access(ROOT / ".ci" / "run", os.X_OK) and os.access(ROOT / "scripts" / "check", os.X_OK)
