"""The policies alone: whom each of them chooses, and that none chooses what it was not shown."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.cache.memory.policies import POLICIES, Adaptive, Lfu, Lru, Policy, S3Fifo, policy_maker
from fednode.errors import ConfigError

Step = tuple[str, int]
steps = st.lists(st.tuples(st.sampled_from(["add", "use", "remove", "victim"]), st.integers(0, 9)), max_size=80)


def fill(policy: Policy, keys: str, now: float = 0.0) -> dict[str, Any]:
    return {key: policy.added(key, 1, now) for key in keys}


def victims(policy: Policy, now: float = 0.0) -> str:
    gone = iter(lambda: policy.victim(now), None)
    return "".join(gone)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60, deadline=None)
@given(steps)
def test_a_victim_is_one_that_was_shown_and_is_then_forgotten(name: str, steps: list[Step]) -> None:
    policy, marks = policy_maker(name)(), dict[str, Any]()
    for now, (step, number) in enumerate(steps):
        key = str(number)
        if step == "victim":
            victim = policy.victim(now)
            assert (victim is None) is (not marks)
            marks.pop(victim or "", None)
        elif step == "add" and key not in marks:
            marks[key] = policy.added(key, number, now)
        elif step == "use" and key in marks:
            policy.used([marks[key]], now)
        elif step == "remove" and key in marks:
            policy.removed(marks.pop(key))
    assert sorted(victims(policy, 1_000.0)) == sorted(marks)


def test_an_unknown_name_is_refused_with_those_known() -> None:
    with pytest.raises(ConfigError, match="use one of lru, lfu"):
        policy_maker("fifo")


def test_lru_chooses_the_longest_unused() -> None:
    policy = Lru()
    marks = fill(policy, "abcd")
    policy.used([marks["b"], marks["a"]], 1.0)
    policy.removed(marks["d"])
    assert victims(policy) == "cba"


@settings(max_examples=60, deadline=None)
@given(steps)
def test_lfu_chooses_the_fewest_uses_and_of_equals_the_first_to_have_so_many(steps: list[Step]) -> None:
    policy, marks, model = Lfu(), dict[str, Any](), dict[str, tuple[int, int]]()
    for turn, (step, number) in enumerate(steps):
        key = str(number)
        if step == "victim" and model:
            expected = min(model, key=lambda one: model[one])
            assert policy.victim(0.0) == expected
            del model[expected], marks[expected]
        elif step == "add" and key not in model:
            marks[key], model[key] = policy.added(key, 1, 0.0), (0, turn)
        elif step == "use" and key in model:
            policy.used([marks[key]], 0.0)
            model[key] = (model[key][0] + 1, turn)
        elif step == "remove" and key in model:
            policy.removed(marks.pop(key))
            del model[key]


def test_adaptive_lets_an_entry_go_that_was_read_often_and_then_left() -> None:
    policy = Adaptive(Random(1).random)
    marks = fill(policy, "abc")
    policy.used([marks["a"]] * 1_000, 1.0)
    # as long as it is not much older than the rest, having been read keeps it
    assert policy.victim(2.0) in ("b", "c")
    fill(policy, "defg", 90.0)
    assert policy.victim(100.0) in ("b", "c")
    assert policy.victim(100.0) == "a"


def test_adaptive_follows_the_age_of_those_that_go() -> None:
    fast, slow = Adaptive(Random(1).random), Adaptive(Random(1).random)
    for held, measured in ((5, fast), (50, slow)):
        for now in range(2_000):
            measured.added(str(now), 1, now)
            if now >= held:
                measured.victim(now)
    assert 3.0 < fast.tau < 8.0
    assert 30.0 < slow.tau < 80.0


def test_adaptive_draws_from_the_generator_it_was_given() -> None:
    def run(seed: int) -> str:
        policy = Adaptive(Random(seed).random, batch=2)
        fill(policy, "abcdefghij")
        return victims(policy, 1.0)

    assert run(1) == run(1) != run(2)


def test_adaptive_finds_the_oldest_where_it_looks_at_all() -> None:
    policy = Adaptive(Random(1).random, batch=100)
    for number, key in enumerate("dacb"):
        policy.added(key, 1, float(number))
    assert victims(policy, 10.0) == "dacb"


def test_s3fifo_drops_newcomers_nobody_reads_and_keeps_what_came_back() -> None:
    policy = S3Fifo()
    marks = fill(policy, "ab")
    policy.used([marks["a"]] * 2, 0.0)
    # a goes to the main queue, b was not read
    assert policy.victim(0.0) == "b"
    fill(policy, "cd")
    assert policy.victim(0.0) == "c"
    # c is remembered, and goes past the small queue
    fill(policy, "c")
    assert victims(policy) == "dac"


def test_s3fifo_remembers_no_more_keys_than_it_holds() -> None:
    policy = S3Fifo()
    for number in range(1_000):
        policy.added(str(number), number % 7, 0.0)
        if number >= 20:
            policy.victim(0.0)
        assert len(policy._gone) <= 20


def dialogues(choice: Random) -> Iterator[tuple[float, str]]:
    """Dialogues that read all they said so far at every turn, and end."""
    turns: list[tuple[float, list[str]]] = []
    for dialogue in range(60):
        now, said = choice.uniform(0, 3_600), list[str]()
        for turn in range(choice.randint(1, 25)):
            said.append(f"{dialogue} {turn}")
            turns.append((now, said[:]))
            now += choice.expovariate(1 / 30)
    for now, said in sorted(turns):
        yield from ((now, key) for key in said)


@pytest.mark.parametrize("held", [20, 50, 150])
def test_adaptive_hits_no_less_than_lru_on_dialogues(held: int) -> None:
    def hits(policy: Policy) -> int:
        marks, found = dict[str, Any](), 0
        for now, key in dialogues(Random(3)):
            if key in marks:
                policy.used([marks[key]], now)
                found += 1
                continue
            if len(marks) >= held:
                del marks[policy.victim(now) or ""]
            marks[key] = policy.added(key, 1, now)
        return found

    assert hits(policy_maker("adaptive")()) >= 0.99 * hits(policy_maker("lru")())
