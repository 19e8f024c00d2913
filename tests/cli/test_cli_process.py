"""The installed command as a person meets it: exit codes and sentences of a real process."""

import importlib.metadata
import os
import subprocess
import sys

import fednode


def fednode_command(*arguments):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FEDNODE_")}
    return subprocess.run(
        [sys.executable, "-m", "fednode", *arguments], capture_output=True, text=True, env=clean, check=False
    )


def test_version():
    assert importlib.metadata.version("fednode") == fednode.__version__
    assert fednode_command("wander").returncode == 2
    done = fednode_command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"fednode {fednode.__version__}\n", "")


def test_help():
    done = fednode_command("run", "--help")
    assert done.returncode == 0 and "--min-survivors" in done.stdout and "Exit codes" in done.stdout


def test_the_command_line_loads_nothing_heavy():
    code = (
        "import sys, fednode.cli; "
        "print(sorted({'flwr', 'torch', 'numpy', 'sklearn', 'tenseal', 'numba', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
