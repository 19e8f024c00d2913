"""What travels is what the vectors say, byte for byte, and what they call bad is refused in the step they name."""

import json
from pathlib import Path
from typing import Any

import pytest
from vectors import make_sum_vectors as made

from fednode_crypto import params_from_dict

VECTORS = Path(__file__).parents[1] / "vectors"
RING: dict[str, Any] = json.loads((VECTORS / "sum_ring.json").read_text(encoding="utf-8"))
BFV: dict[str, Any] = json.loads((VECTORS / "sum_bfv.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", RING["cases"], ids=lambda c: f"{c['params']['ring_degree']}-{c['params']['lanes']}")
def test_ring(case: dict[str, Any]) -> None:
    params = params_from_dict(case["params"])
    assert made.ring_case(params, case["bound"]) == case


def test_bfv() -> None:
    (case,) = BFV["cases"]
    assert made.bfv_case(params_from_dict(case["params"]), case["bound"]) == case


def test_every_bad_case_names_an_error_and_all_steps_have_one() -> None:
    bad = [(c["params"]["scheme"], b) for c in (*RING["cases"], *BFV["cases"]) for b in c["bad"]]
    assert all(
        b["error"] in ("Tampered", "WrongAnswer", "WrongParameters", "NotEnoughShares", "ValueError") for _, b in bad
    )
    assert {b["step"] for s, b in bad if s == "ring"} == {"params", "add", "check_share", "combine"}
    assert {b["step"] for s, b in bad if s == "bfv"} == {"params", "joint_key", "add", "answer", "combine"}


def test_documents_hold_nothing_else() -> None:
    assert {**made.ring_document(), "cases": None} == {**RING, "cases": None}
    assert len(BFV["cases"]) == 1
