"""Nothing here is about what outlives a power cut, so nothing here waits for the disk."""

import pytest
from kit.crypto.attacker import SIZES, lying_node, real_cohort


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@pytest.fixture(params=SIZES)
def node(tmp_path, request):
    """A lying node under either scheme, with one round collected."""
    return lying_node(real_cohort(tmp_path, SIZES[request.param]))


@pytest.fixture
def ring(tmp_path):
    return lying_node(real_cohort(tmp_path))
