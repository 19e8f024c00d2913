"""docs/threats.md lists what the report claims: every claim, in its words, and no other."""

import re
from pathlib import Path

import pytest

from fednode.assemble.claims import ONE_LIE, Reached, claims
from fednode.assemble.planning import plan_run
from fednode.reports import Claims
from fednode.settings import RunSettings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/threats.md").read_text(encoding="utf-8")
LISTS = TEXT[TEXT.index("## Verified, attested, assumed") : TEXT.index("## What breaks it")]
PARTS = ("Verified", "Attested", "Assumed")
REACHED = Reached(arrived=True, charged=True, released=20, spared=20)


def listed(part: str) -> list[tuple[str, str]]:
    """Claim and scheme of every row under a heading."""
    _, _, rest = LISTS.partition(f"**{part}**")
    table = re.split(r"^\*\*", rest, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    return [(claim, under) for claim, under in rows if claim != "claim"]


def reported(scheme: str) -> Claims:
    plan = plan_run(RunSettings.model_validate({"scheme": scheme}))
    return claims(plan.terms, plan.sum_params, REACHED)


@pytest.mark.parametrize("scheme", ["ring", "bfv"])
@pytest.mark.parametrize("part", PARTS)
def test_every_line_is_a_claim_of_the_report_and_every_claim_has_a_line(scheme, part):
    said = {claim for claim, under in listed(part) if under.startswith(("both", f"`{scheme}`"))}
    assert said == {claim.what for claim in getattr(reported(scheme), part.lower())}


def test_what_was_made_before_a_run_is_assumed_in_the_words_of_the_page():
    plan = plan_run(RunSettings())
    *rest, last = claims(plan.terms, plan.sum_params, REACHED, ("a file from a set",)).assumed
    assert (*rest,) == reported("ring").assumed
    assert f'"{last.what}"' in LISTS and "a file from a set" in last.how


def test_every_line_says_under_which_scheme():
    rows = [row for part in PARTS for row in listed(part)]
    assert len(rows) >= 25 and all(under.startswith(("both", "`ring`", "`bfv`")) for _, under in rows)


def test_what_needs_an_honest_node_is_marked_in_both():
    marked = {claim for claim, under in listed("Verified") if "honest node" in under}
    assert marked == {claim.what for claim in reported("bfv").verified if "follows the protocol" in claim.how} - {
        "The charge was on disk before the holders were asked"
    }


def test_what_one_lie_costs_under_bfv_is_said_in_full_everywhere():
    words = " ".join(TEXT.split())
    assert "the joint secret key" in ONE_LIE and "past and to come" in ONE_LIE
    assert words.count("joint secret key") >= 3 and words.count("past and to come") >= 2
    assert "learns more" not in words
