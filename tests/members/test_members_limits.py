"""What a member's own configuration allows: schemes, committees, and what a simulated member gets from its run."""

import math
from dataclasses import replace

import pytest
from kit.cohort import TASK, FakeCohort, Size, wide_limits

from fednode.errors import ConfigError, PeerFault
from fednode.members import corrupt_holders, least_threshold
from fednode.privacy import member_epsilon
from fednode.protocol.requests import TaskCard, ask_frame
from fednode.reasons import Reason
from fednode.settings import RunSettings, default_run_config, to_run_config
from fednode.units import UNITS
from fednode_clients.keyfolder.audit_log import RECORD_HEAD
from fednode_clients.keyfolder.state_files import hashed
from fednode_clients.limits import MemberLimits

BFV = Size(clients=3, holders=2)
RING = Size(clients=3, holders=3, threshold=3, dimension=4, scheme="ring")


def refused(call) -> str:
    try:
        call()
    except PeerFault as fault:
        return fault.reason
    return ""


def kept(cohort: FakeCohort, name: str) -> list[str]:
    """Names of the files that a task leaves in a key folder; the head of its empty record is of no task."""
    path = cohort.folder(name).path
    places = [path / name for name in ("state", "tasks") if (path / name).exists()]
    return [file.name for place in places for file in place.iterdir() if file.name != hashed(RECORD_HEAD)]


@pytest.mark.parametrize("kind", ["key-commit", "task"])
def test_a_scheme_is_refused_before_anything_of_the_task_is_kept(tmp_path, kind):
    cohort = FakeCohort(tmp_path, BFV, limits=MemberLimits())
    frame = ask_frame(kind, TASK, TaskCard(TASK, cohort.cohort, BFV.sum_params()).parts())
    for name in ("holder-1", *(["client-1"] if kind == "task" else [])):
        call = cohort.client(name).take_task if name == "client-1" else cohort.holder(name).handle
        assert refused(lambda call=call: call(frame)) == Reason.SCHEME_FLOOR
        assert kept(cohort, name) == []


def test_a_task_that_was_taken_is_refused_once_the_configuration_is_narrower(tmp_path):
    cohort = FakeCohort(tmp_path, BFV)
    assert cohort.begun().run_round(1).cause == ""
    spec = cohort.asked("round")[0][1].frame
    cohort.limits = wide_limits(schemes=("ring",))
    for name in ("client-1", "holder-1"):
        cohort.restart(name)
    assert refused(lambda: cohort.client("client-1")._task(TASK)) == Reason.SCHEME_FLOOR
    assert refused(lambda: cohort.holder("holder-1").handle(spec)) == Reason.UNEXPECTED
    for kind in ("key-reveal", "key-join"):
        assert refused(lambda kind=kind: cohort.holder("holder-1").handle(ask_frame(kind, TASK, {}))) == "scheme-floor"


def test_one_of_one_and_two_of_three_are_refused_by_default():
    params = RING.sum_params()
    taken = [
        (t, k)
        for k in range(1, 8)
        for t in range(1, k + 1)
        if not refused(lambda t=t, k=k: MemberLimits().check_sum(replace(params, threshold=t, holders=k)))
    ]
    assert [(t, k) for t, k in taken if t == min(t for t, n in taken if n == k)] == [
        (2, 2), (3, 3), (3, 4), (4, 5), (4, 6), (5, 7)
    ]  # fmt: skip
    assert all(2 * t - k > 1 for t, k in taken)
    assert refused(lambda: MemberLimits(min_threshold=4).check_sum(params)) == Reason.LOW_THRESHOLD


def test_the_least_threshold_withstands_what_it_says_and_one_less_does_not():
    for holders in range(1, 17):
        for corrupt in range(holders):
            least = least_threshold(holders, corrupt)
            assert corrupt_holders(least, holders) >= corrupt > corrupt_holders(least - 1, holders)


def test_units_are_a_text_with_commas_and_all_by_default():
    assert MemberLimits().units == tuple(UNITS)
    assert MemberLimits().configured({"units": "customer, client"}, {}, simulated=False).units == ("customer", "client")
    with pytest.raises(ConfigError, match="'household'"):
        MemberLimits().configured({"units": "record,household"}, {}, simulated=False)


def test_schemes_are_a_text_with_commas():
    limits = MemberLimits().configured({"schemes": "ring, bfv", "max-corrupt": "0"}, {}, simulated=False)
    assert (limits.schemes, limits.max_corrupt) == (("ring", "bfv"), 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("delta", 0.0), ("delta", 1), ("delta", "nan"), ("max-corrupt", -1), ("colluders", -1), ("max-rounds", -1)]
    + [(name, value) for name in ("max-epsilon", "min-noise", "max-weight") for value in ("nan", "-3")],
)
def test_a_limit_that_means_nothing_is_refused_by_its_name_alone(name, value):
    with pytest.raises(ConfigError) as refused:
        MemberLimits().configured({name: value}, {}, simulated=False)
    limits = [limit.replace("_", "-") for limit in MemberLimits.__slots__]
    assert [limit for limit in limits if limit in str(refused.value)] == [name]


def test_an_endless_budget_is_a_limit():
    assert MemberLimits().configured({"max-epsilon": "inf"}, {}, simulated=False).max_epsilon == math.inf


def test_a_run_widens_nothing_unless_the_keys_are_its_own():
    settings = RunSettings(scheme="bfv", holders=3, threshold=2, epsilon=50.0, delta=1e-3, assumed_colluders=0)
    run = to_run_config(settings)
    assert MemberLimits().configured({}, run, simulated=False) == MemberLimits()
    assert MemberLimits().configured({}, run, simulated=True) == MemberLimits(
        schemes=("bfv",),
        min_threshold=2,
        max_corrupt=0,
        max_epsilon=member_epsilon(50.0, 1e-3, 20, 15),
        delta=1e-3,
        colluders=0,
    )
    assert MemberLimits().configured({}, to_run_config(RunSettings()), simulated=True) == MemberLimits(
        min_threshold=4, max_corrupt=2, max_epsilon=member_epsilon(8.0, 1e-5, 19, 14)
    )
    assert MemberLimits().configured({}, default_run_config(), simulated=True).max_epsilon == pytest.approx(
        9.69, abs=0.01
    )


def test_a_pad_that_is_no_time_is_refused():
    for value in ("-1", "inf", "nan", "soon"):
        with pytest.raises(ConfigError, match="pad"):
            MemberLimits().configured({"pad": value}, {}, simulated=False)
