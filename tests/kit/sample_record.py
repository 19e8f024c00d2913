"""A made-up run with everything in it that a report has to tell."""

import math
from dataclasses import replace

from fednode.reports import (
    About,
    AuditFound,
    Claim,
    Claims,
    DeltaPrice,
    GroupPrice,
    Guarantee,
    LabelScore,
    Mechanism,
    NamedReason,
    RoundRecord,
    RunRecord,
    TaskFacts,
    Trust,
)

CLIENTS = tuple(f"client-{number:02d}" for number in range(1, 21))
HOLDERS = tuple(f"holder-{number}" for number in range(1, 6))


def sample_round(number: int, spent: float, **changes: object) -> RoundRecord:
    entry = RoundRecord(
        round=number,
        outcome="released",
        reason=None,
        invited=20,
        survivors=CLIENTS,
        rejected=(),
        discarded=(),
        lost=(),
        holders_answered=HOLDERS,
        holders_silent=(),
        noise_planned=2.9873,
        noise_added=2.9873 * math.sqrt(20 / 14),
        epsilon_after=spent,
        renyi_after=1.07 * spent,
        accuracy=0.86 - 0.55 * math.exp(-number / 4),
        bytes_up=1_871_034,
        bytes_down=102_400,
        seconds=2.41,
        charged=True,
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def sample_record() -> RunRecord:
    """20 rounds: one with losses of every kind, one failed before its charge, one charged in vain, a silent holder."""
    return RunRecord(
        run_id="2023-11-14-221320-support",
        version="0.1.0",
        started=1_700_000_000.0,
        ended=1_700_000_061.5,
        outcome="finished",
        outcome_sentence="The run finished: 18 of 20 rounds were released, and the budget held.",
        settings={
            "data": "support",
            "clients": 20,
            "rounds": 20,
            "epsilon": 8.0,
            "delta": 1e-5,
            "learning_rate": None,
            "faults": ["lost-before-upload@5:client-17", "garbage@5:client-18"],
        },
        task=TaskFacts("an intent classifier", "support", "ships with FedNode", 24, 24_600, 20, 3_600, 3_600.0),
        mechanism=_mechanism(),
        guarantee=_guarantee(),
        trust=_trust(),
        claims=_claims(),
        rounds=tuple(_rounds()),
        warnings=("The settings are odd, and were known to be.",),
        deviations=(
            "Round 9 failed: 13 updates arrived, 15 are needed. Nothing was charged.",
            "Round 16 was charged and not released: too few key holders answered.",
        ),
        about=About("Intents of the shop", "Shop Inc.", "to sort messages", "privacy@shop.example"),
        labels=(LabelScore("card", 90, 100), LabelScore("late parcel", 30, 60), LabelScore("unseen", 0, 0)),
        population="support: epsilon 9.1 spent by 2 runs, of 20 for all runs together",
        audit=AuditFound("pass", (), {"canaries": 5000, "mu": 1.08, "ledger_mu": 1.17}),
    )


def _guarantee() -> Guarantee:
    return Guarantee(
        unit="record",
        adjacency="one record that is zero",
        setting="distributed noise",
        epsilon_limit=8.0,
        delta=1e-5,
        epsilon=7.874,
        renyi=8.471,
        attack_advantage=0.571,
        attack_tpr=0.2367,
        replace_one=18.31,
        deltas=(DeltaPrice(1e-3, 5.804), DeltaPrice(1e-8, 10.25)),
        groups=(GroupPrice(2, 18.31), GroupPrice(5, 64.2), GroupPrice(10, None)),
        rounds_left=1,
    )


def _rounds() -> list[RoundRecord]:
    rounds = [sample_round(number, 7.874 * math.sqrt(number / 20)) for number in range(1, 21)]
    rounds[4] = replace(
        rounds[4],
        survivors=CLIENTS[:16],
        lost=("client-17",),
        rejected=(NamedReason("client-18", "damaged"), NamedReason("client-19", "other-round")),
        discarded=(NamedReason("client-03", "repeated"), NamedReason("client-20", "late")),
        noise_added=2.9873 * math.sqrt(16 / 14),
    )
    rounds[8] = replace(
        rounds[8],
        outcome="failed",
        reason="13 updates arrived, 15 are needed",
        survivors=CLIENTS[:13],
        lost=CLIENTS[13:],
        holders_answered=(),
        holders_silent=(),
        noise_added=0.0,
        epsilon_after=rounds[7].epsilon_after,
        charged=False,
        renyi_after=rounds[7].renyi_after,
        accuracy=None,
    )
    rounds[12] = replace(rounds[12], holders_answered=HOLDERS[:4], holders_silent=HOLDERS[4:])
    rounds[15] = replace(
        rounds[15],
        outcome="failed",
        reason="3 key holders answered, 4 are needed; the charge is kept",
        holders_answered=HOLDERS[:3],
        holders_silent=HOLDERS[3:],
        accuracy=None,
    )
    return rounds


def _mechanism() -> Mechanism:
    return Mechanism(
        name="distributed discrete Gaussian: integers, added by each client before it seals",
        sampling="none: every client and every record in every round, no amplification is claimed",
        clip=1.0,
        grid_bits=16,
        sensitivity=1.002393,
        local_stddev=0.79839,
        target_z=2.9873,
        min_survivors=15,
        assumed_colluders=1,
        sampler_error=3.1e-31,
        overflow_chance=2.9e-39,
    )


def _trust() -> Trust:
    return Trust(
        enrolment="all keys were made by this run on one machine, for this run alone: a study, not a deployment",
        scheme="bfv",
        adversary="a node and key holders that follow the protocol and look; a node that lies is out of scope",
        strength="a standard scheme, read by many; about 128 bits",
        sum_params={"scheme": "bfv", "ring": 8192, "modulus_bits": 218, "lanes": 1, "blocks": 4},
        payload_bytes=1_871_034,
        float32_bytes=98_400,
        holders=5,
        threshold=4,
        ledger_path="ledger.jsonl",
        ledger_head="9f2b6c0e4d1a83577c60b9d2e8f413a5b7c6d8e9f00112233445566778899aab",
        ledger_check=None,
        model_digest="04d3a1c7be55f0923781aa64cfe0125d9b8e7f60718293a4b5c6d7e8f9012345",
        cohort="718d5fcf0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5",
    )


def _claims() -> Claims:
    return Claims(
        verified=(
            Claim("Every update was signed by an enrolled client", "Ed25519, by the node and by each key holder"),
            Claim("At least 15 updates stood in each opened sum", "roster, by the node and by each key holder"),
            Claim("The charge was on disk before the sum was opened", "the ledger is written and synced first"),
        ),
        attested=(
            Claim(
                "Every record's gradient was clipped", "by the client's own code; a sealed update cannot be looked into"
            ),
            Claim("Every client added its share of noise", "by the client's own code"),
        ),
        assumed=(
            Claim(
                "At most 1 survivor gives its noise away", "more of them: the noise of a sum is smaller than charged"
            ),
            Claim("Fewer than 4 key holders collude", "4 of them could open a single update"),
            Claim("Each person stands behind one record", "who stands behind several is protected less"),
        ),
    )
