"""The same secret for two seals: then the difference of two payloads is the difference of two updates.

Attacker: an honest but curious node that sees two payloads of one client in one round. Success: their difference opens
without any holder. It fails: every seal draws a fresh secret, a retry sends the stored bytes, and after a crash between
record and bytes the round is not sealed again. Control: with a generator that repeats itself, it opens exactly.
"""

from itertools import combinations

import numpy as np
import pytest
from kit import cohort as kit
from kit.crypto.algebra import unmasked
from kit.crypto.attacker import envelope, must_refuse, real_cohort
from kit.crypto.committee import CONTEXT, updates_for
from kit.crypto.insecure import InsecureRng
from kit.history.judging import judge

from fednode_crypto import Demand, SystemRng, plan, scheme

SCHEME = scheme("ring")
PARAMS = plan("ring", Demand(dimension=60, summands=4, value_bound=9_000, holders=3, threshold=2))


def difference(params, first: bytes, second: bytes, context: bytes):
    """first - second as the secret 0 opens it; None if it does not."""
    total = SCHEME.zero(params).add(first).subtract(second)
    return unmasked(total, context, np.zeros(params.ring_degree, dtype=np.int64))


def test_control_a_repeated_secret_gives_the_difference_of_two_updates():
    first, second = updates_for(PARAMS, 2, seed=1)
    seals = [SCHEME.sealer(PARAMS).seal(values, InsecureRng(7), CONTEXT) for values in (first, second)]
    assert seals[0].shares == seals[1].shares and seals[0].payload != seals[1].payload
    assert np.array_equal(difference(PARAMS, seals[0].payload, seals[1].payload, CONTEXT), first - second)


@pytest.mark.parametrize("rng", [SystemRng(), InsecureRng(7)], ids=["the real one", "one seed, read on"])
def test_two_seals_of_one_generator_never_share_a_secret(rng):
    sealer, values = SCHEME.sealer(PARAMS), np.zeros(PARAMS.dimension, dtype=np.int64)
    payloads = [sealer.seal(values, rng, CONTEXT).payload for _ in range(12)]
    assert all(difference(PARAMS, a, b, CONTEXT) is None for a, b in combinations(payloads, 2))


# --- the product


def test_no_two_updates_of_a_round_share_a_secret(ring):
    bodies = [ring.updates[name].body for name in ring.names]
    digest = ring.spec.digest()
    assert all(difference(ring.spec.sum_params, a, b, digest) is None for a, b in combinations(bodies, 2))


def test_a_retry_sends_the_stored_bytes_also_after_a_restart(ring):
    for name in ring.names:
        for _ in range(2):
            again = judge(ring.cohort.client(name), ring.spec, ring.own[name])
            assert again == ring.updates[name].to_bytes()
            ring.cohort.restart(name)


def test_a_round_whose_bytes_are_gone_is_not_sealed_again(ring):
    ring.cohort.folder("client-1").state.drop(f"sealed/{kit.TASK}")
    for _ in range(2):
        client = ring.cohort.client("client-1")
        must_refuse(lambda c=client: judge(c, ring.spec, ring.parts), "second-spec")
        must_refuse(lambda c=client: c.answer(ring.spec, lambda: ring.learned("client-1")), "no-consent")
        ring.cohort.restart("client-1")


def test_consent_is_used_up_by_one_seal(tmp_path):
    cohort = real_cohort(tmp_path)
    asked_twice = []

    def twice(cohort, name, request):
        frame = cohort.speak(name, request)
        spec = envelope(frame).head.spec
        asked_twice.append(spec in cohort.client(name)._joined)
        return [frame]

    cohort.tell("client-1", twice)
    assert cohort.begun().run_round(1).cause == "" and asked_twice == [False]


def test_two_processes_of_a_client_seal_one_update_between_them(tmp_path):
    """The node sends the round twice at once: both processes have judged it before either has sealed."""
    cohort = real_cohort(tmp_path)
    told = []

    def together(cohort, name, request):
        spec, parts = kit.read_spec("round", request.frame)
        both = [cohort._opened(name).client(kit.place(name)) for _ in range(2)]
        cohort.speaking = name
        assert [judge(client, spec, parts) for client in both] == [None, None]
        told.extend(c.answer(spec, lambda: kit.FakeSum(cohort.learned[name], cohort.size.records)) for c in both)
        return [told[0]]

    cohort.tell("client-1", together)
    assert cohort.begun().run_round(1).cause == ""
    assert told[0] == told[1] and len(cohort.folder("client-1").audit_log.entries()) == 1
