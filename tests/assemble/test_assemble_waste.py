"""What a plan and a report say of a run that teaches nothing."""

import pytest

from fednode.assemble.planning import plan_task
from fednode.assemble.report_facts import guesses
from fednode.assemble.study import Workload
from fednode.protocol.model import Layout
from fednode.reports import LabelScore
from fednode.settings import resolve


def told(records: int, width: int, **options: object) -> bool:
    settings = resolve(None, {}, {"clients": 6, **options})
    workload = Workload(layout=Layout(("w",), ((width,),)), records=records, max_records=100)
    return any("expect a model that guesses" in sentence for sentence in plan_task(settings, workload).warnings)


# N mu / sqrt(d), with mu = 1.67 at epsilon 8 and 0.27 at epsilon 1: 0.62, 4.4, 2.7, 0.98
@pytest.mark.parametrize(("records", "width", "epsilon", "found"), [
    (24, 4_100, 8, True), (24, 83, 8, False), (100, 100, 1, False), (100, 750, 1, True),
])  # fmt: skip
def test_a_plan_whose_noise_is_louder_than_its_records_is_told(records, width, epsilon, found):
    assert told(records, width, epsilon=epsilon) is found


def test_fewer_rounds_of_each_client_carry_less():
    assert not told(150, 10_000, rounds=16, clients=40)
    assert told(150, 10_000, rounds=16, clients=40, rounds_per_client=4)


def test_a_model_that_guesses_is_told():
    assert len(guesses((LabelScore("a", 5, 10), LabelScore("b", 1, 6)))) == 1
    assert guesses((LabelScore("a", 8, 10), LabelScore("b", 3, 6))) == ()
    assert guesses((LabelScore("a", 8, 10),)) == guesses(()) == ()
