"""The rules on imports, clocks, generators and import names find a planted breach."""

import shutil
from pathlib import Path

import pytest
from kit.planted import places, plant

from scripts.house_imports import (
    clocks_are_arguments,
    narrow_doors,
    one_door,
    randomness_is_an_argument,
    unique_import_names,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("package", "allowed"), [("flwr", 6), ("tenseal", 1), ("opacus", 1)])
def test_one_file_too_many_is_found(tmp_path, package, allowed):
    for number in range(allowed):
        sources = plant(tmp_path, {f"fednode/x{number}.py": f"def f():\n    from {package}.a import b\n"})
    assert places(narrow_doors(sources)) == []
    sources = plant(tmp_path, {"clients/fednode_clients/y.py": f"\nimport {package} as z\n"})
    found = list(narrow_doors(sources))
    assert len(found) == 1 and f"{package} is imported in {allowed + 1} files" in str(found[0])


def test_tests_and_experiments_may_import_anything(tmp_path):
    files = {f"{folder}/x{n}.py": "import tenseal\n" for folder in ("tests", "experiments") for n in range(3)}
    assert places(narrow_doors(plant(tmp_path, files))) == []


def test_redis_outside_its_door_is_found(tmp_path):
    text = "def f():\n    from redis.a import b\n"
    allowed = ["fednode/cache/redis/client.py", "benchmarks/cache/x.py", "tests/x.py"]
    assert places(one_door(plant(tmp_path, dict.fromkeys(allowed, text)))) == []
    sources = plant(tmp_path, {"fednode/cache/y.py": text, "clients/fednode_clients/z.py": "import redis\n"})
    assert sorted(places(one_door(sources))) == [("clients/fednode_clients/z.py", 1), ("fednode/cache/y.py", 2)]


@pytest.mark.parametrize("text", ["import time\ntime.time()", "\nfrom time import monotonic", "\ndatetime.now()"])
def test_reading_the_machines_clock_is_found(tmp_path, text):
    sources = plant(tmp_path, {"fednode/x.py": text + "\n", "fednode/clock.py": text + "\n", "tests/x.py": text + "\n"})
    assert places(clocks_are_arguments(sources)) == [("fednode/x.py", 2)]


@pytest.mark.parametrize(
    "text", ["import random\nrandom.random()", "\nnp.random.normal()", "\nfrom random import choice"]
)
def test_drawing_from_a_global_generator_is_found(tmp_path, text):
    sources = plant(tmp_path, {"fednode/x.py": text + "\n", "tests/x.py": text + "\n"})
    assert places(randomness_is_an_argument(sources)) == [("fednode/x.py", 2)]


def test_a_generator_of_ones_own_is_left_alone(tmp_path):
    text = "import random\nfrom random import Random\nrandom.Random(3)\nnp.random.default_rng(3)\nrng.random()\n"
    assert places(randomness_is_an_argument(plant(tmp_path, {"fednode/x.py": text}))) == []


@pytest.mark.parametrize("folder", ["clients", "crypto", "tests", "experiments"])
def test_a_folder_that_would_be_installed_under_its_own_name_is_found(tmp_path, folder):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert places(unique_import_names(tmp_path)) == []
    plant(tmp_path, {f"{folder}/__init__.py": ""})
    assert places(unique_import_names(tmp_path)) == [(f"{folder}/__init__.py", 1)]


@pytest.mark.parametrize(
    ("ours", "wrong"),
    [('fednode_crypto = "crypto/fednode_crypto"', 'crypto = "crypto"'), ('include = ["fednode*"]', 'include = ["*"]')],
)
def test_a_packaging_table_that_installs_another_name_is_found(tmp_path, ours, wrong):
    text = (ROOT / "pyproject.toml").read_text()
    assert ours in text
    (tmp_path / "pyproject.toml").write_text(text.replace(ours, wrong))
    assert places(unique_import_names(tmp_path)) == [("pyproject.toml", 1)]
