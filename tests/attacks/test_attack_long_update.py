"""A client that does not clip: it seals as much as the sum has room for, in every coordinate.

Attacker: one enrolled client. Success: a model is published that it moved further than all honest clients together can.
It fails: the opened sum is longer than its honest updates can be, and is not published; the charge stands. Control:
without that check the sum is published, and the attacker's part of it is longer than everybody else's.
"""

import numpy as np
import pytest
from kit.crypto.attacker import Size, real_cohort

from fednode.driver import holders
from fednode_clients.client import client as clients
from fednode_clients.client.privatise import Bounded

WIDE = Size(clients=5, holders=5, threshold=4, dimension=2_000, scheme="ring")


@pytest.fixture(params=["ring", "bfv"])
def cohort(tmp_path, request, monkeypatch):
    size = WIDE if request.param == "ring" else Size(clients=5, holders=3, threshold=2, dimension=2_000, scheme="bfv")
    cohort = real_cohort(tmp_path, size)

    def unclipped(cohort, name, request):
        with monkeypatch.context() as alone:
            alone.setattr(clients, "bound", lambda total, terms: Bounded(total.vector, terms.clip, terms.max_records))
            return [cohort.speak(name, request)]

    cohort.learned["client-2"] = np.full(2_000, float(cohort.size.records))
    cohort.tell("client-2", unclipped)
    return cohort


def test_a_sum_that_is_too_long_is_not_published_and_stays_charged(cohort):
    node = cohort.node()
    driver = cohort.begun(node)
    before = driver.parameters().copy()
    outcome = driver.run_round(1)
    assert (outcome.cause, outcome.release, outcome.opened) == ("opening-rejected", None, True)
    assert len(node.ledger.entries) == 1 and np.array_equal(driver.parameters(), before)
    assert all(name in outcome.reason for name in cohort.size.client_names)


def test_control_without_the_check_one_client_moves_the_model_more_than_all_others_may(cohort, monkeypatch):
    monkeypatch.setattr(holders, "check_norm", lambda *_: None)
    outcome = cohort.begun().run_round(1)
    size = cohort.size
    assert outcome.cause == ""
    assert np.linalg.norm(outcome.release.mean) > size.clients * size.records * size.terms().clip


def test_what_is_left_is_what_the_others_do_not_use(cohort):
    """A client twice as long as an honest one can be hides below the bound."""
    size = cohort.size
    cohort.learned["client-2"] = np.full(size.dimension, 2.0 * size.records / np.sqrt(size.dimension))
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and np.linalg.norm(outcome.release.mean) < size.clients * size.records + 120
