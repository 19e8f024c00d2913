"""Row `frozen`: rounds on a model whose half is never trained, and the bytes that come down, against sending all of it.

The rounds are real ones, with real members, sealed updates and an opening each. What is counted is what the record of
a round counts: frames and chunks, without the carrier's own bytes.
"""

from typing import Any, Final

from benchmarks.harness.local_rounds import LocalRounds, run_rounds

HALF: Final = 100_000


def work(rounds: int, half: int = HALF) -> dict[str, Any]:
    """Answer the bytes down of each round, a client's mean, and their ratio to sending everything in each round."""
    outcomes = run_rounds(LocalRounds(3, half, holders=3, threshold=3, rounds=rounds, frozen=half))
    down = [outcome.bytes_down for outcome in outcomes]
    # the first round sends all there is
    return {"ratio": sum(down) / (len(down) * down[0]), "rounds": down}
