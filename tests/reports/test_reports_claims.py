"""What a report claims: as much as the run did, and no more."""

import pytest

from fednode.assemble.claims import Reached, adversary, claims, committee_warnings
from fednode.assemble.planning import plan_run
from fednode.reports import Claims
from fednode.settings import RunSettings

EXACT = "What was opened is the exact sum"
WHOLE = Reached(arrived=True, charged=True, released=20, spared=20)


def claimed(reached: Reached = WHOLE, **settings: object) -> Claims:
    plan = plan_run(RunSettings.model_validate(settings))
    return claims(plan.terms, plan.sum_params, reached)


def found(part: tuple) -> dict[str, str]:
    return {claim.what: claim.how for claim in part}


@pytest.mark.parametrize("scheme", ["ring", "bfv"])
def test_only_what_was_reached_is_verified(scheme: str) -> None:
    none = found(claimed(Reached(arrived=False, charged=False, released=0, spared=0), scheme=scheme).verified)
    assert list(none) == ["No sum was opened"]
    sealed = found(claimed(Reached(arrived=True, charged=False, released=0, spared=0), scheme=scheme).verified)
    assert "Every update was made for this round, model and task" in sealed and "No sum was opened" in sealed
    charged = found(claimed(Reached(arrived=True, charged=True, released=0, spared=0), scheme=scheme).verified)
    assert any(what.startswith("No sum of fewer than 15 updates") for what in charged)
    assert EXACT not in charged and "No model was released" in charged and "No sum was opened" not in charged
    assert EXACT in found(claimed(scheme=scheme).verified)


def test_answers_are_said_to_agree_only_where_there_were_more_than_it_takes() -> None:
    some = found(claimed(Reached(arrived=True, charged=True, released=20, spared=7)).verified)
    assert "in 7 of 20 releases the surplus answers agreed" in some[EXACT]
    never = Reached(arrived=True, charged=True, released=20, spared=0)
    assert "agreed" not in found(claimed(never).verified)[EXACT]


def test_under_bfv_a_sum_without_an_answer_to_spare_is_not_verified() -> None:
    """A holder may shift it, and nobody sees it (docs/threats.md)."""
    never = claimed(Reached(arrived=True, charged=True, released=20, spared=0), scheme="bfv")
    assert EXACT not in found(never.verified) and "What was opened is no junk" in found(never.verified)
    assert "20 releases" in found(never.assumed)["No holder shifted a sum that had no surplus answer"]
    assert not any("shifted" in what for what in found(claimed(scheme="bfv").assumed))


def test_what_only_an_honest_node_keeps_is_said_so() -> None:
    said = "only for a node that follows the protocol"
    weak = [what for what, how in found(claimed(scheme="bfv").verified).items() if said in how]
    assert weak == ["No sum of fewer than 15 updates was opened, and none counted an update twice", EXACT]
    assert not any(said in how for how in found(claimed().verified).values())


@pytest.mark.parametrize("scheme", ["ring", "bfv"])
def test_the_charge_is_the_nodes_word(scheme: str) -> None:
    how = found(claimed(scheme=scheme).verified)["The charge was on disk before the holders were asked"]
    assert how.startswith("the node alone") and "only a node that follows the protocol" in how


@pytest.mark.parametrize(
    ("holders", "threshold", "beside", "assumed"),
    [
        (5, 4, "up to 2 corrupt holders", "Fewer than 3 of 5 holders are corrupt, if the node lies"),
        (3, 3, "up to 2 corrupt holders", "Fewer than 3 of 3 holders are corrupt, if the node lies"),
        (4, 3, "up to 1 corrupt holder,", "Fewer than 2 of 4 holders are corrupt, if the node lies"),
        (3, 2, "no corrupt holder", "No holder is corrupt, if the node lies"),
    ],
)
def test_what_is_withstood_and_what_is_assumed_are_the_same(
    holders: int, threshold: int, beside: str, assumed: str
) -> None:
    plan = plan_run(RunSettings(holders=holders, threshold=threshold))
    assert beside in adversary(plan.sum_params) and "0" not in adversary(plan.sum_params)
    assert assumed in found(claims(plan.terms, plan.sum_params, WHOLE).assumed)
    alone = any("one corrupt holder is enough" in told for told in committee_warnings(plan.sum_params))
    assert alone is (beside == "no corrupt holder")


def test_the_plan_names_the_scheme_what_it_withstands_and_its_warnings() -> None:
    shown = "\n".join(plan_run(RunSettings(holders=3, threshold=2)).lines())
    assert "withstands  a node that lies, together with any clients but no corrupt holder" in shown
    assert "nobody outside has audited" in shown and "warning     with 2 of 3 holders one corrupt holder" in shown
    reference = "\n".join(plan_run(RunSettings(scheme="bfv")).lines())
    assert "warning     bfv does not withstand a node that lies: one lie gives it the joint secret key" in reference
    assert "warning" not in "\n".join(plan_run(RunSettings()).lines())


@pytest.mark.parametrize(
    ("scheme", "gravest"),
    [("ring", "Fewer than 4 of 5 holders work together"), ("bfv", "The node follows the protocol")],
)
def test_what_opens_single_updates_is_the_gravest_assumption(scheme: str, gravest: str) -> None:
    assumed = list(found(claimed(scheme=scheme).assumed))
    assert assumed[0] == gravest
    assert assumed.index("The enrolment key is honest") < assumed.index("At most 1 survivor reveals its noise")
