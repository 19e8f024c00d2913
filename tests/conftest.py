"""What holds for every test: which kind it is, and which tests share a worker where tests run on several cores."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
KINDS = {"e2e": "e2e", "attacks": "attack"}
GROUPS = {
    # two of Flower's engines at the same time are too much for two cores
    "test_e2e_flower_engine.py": "flower",
    "test_e2e_own_app.py": "flower",
    # one process searches once for all of these
    "test_coherence_doc.py": "coherence",
    "test_coherence_round_search.py": "coherence",
    "test_coherence_search.py": "coherence",
}
"""The worker that files share, by name; the fixtures of any other file are made once, on the worker of that file."""


# the parent is "ci" where CI is set: the same examples in every run, so that a failure there can be repeated.
# No property fails because the machine was slow while its examples were drawn.
settings.register_profile("any machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

if "PYTEST_XDIST_WORKER" in os.environ:
    # a worker has one core
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and send each file to one worker; files that take minutes come first."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in KINDS:
            item.add_marker(KINDS[folder])
        if hasattr(item.module, "RedisServer"):
            item.add_marker("server")
        item.add_marker(pytest.mark.xdist_group(GROUPS.get(item.path.name, str(item.path))))
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
