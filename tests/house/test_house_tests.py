"""The rules for tests find what they are for, and nothing else."""

import pytest
from kit.planted import places, plant

from scripts.house_tests import every_test_asserts, no_test_sleeps

EMPTY = {
    "nothing": "do()",
    "a constant": "assert True",
    "a tuple that always holds": "assert (x == 1, 'message')",
    "a print": "print(do())",
    "another's check": "recheck_all(do())",
}
SEEING = {
    "assert": "assert do() == 1",
    "raises": "with pytest.raises(ValueError):\n        do()",
    "warns": "with pytest.warns(UserWarning):\n        do()",
    "a kit's check": "store.check_store(do())",
    "must": "must_hold(do())",
    "verify": "verify_all(do())",
    "a state machine": "run_state_machine_as_test(Machine)",
    "an inner function": "def inner():\n        assert do()\n    inner()",
}


@pytest.mark.parametrize("body", EMPTY.values(), ids=EMPTY)
def test_a_test_that_asserts_nothing_is_found(tmp_path, body):
    sources = plant(tmp_path, {"tests/test_x.py": f"def test_x():\n    {body}\n"})
    assert places(every_test_asserts(sources)) == [("tests/test_x.py", 1)]


@pytest.mark.parametrize("body", SEEING.values(), ids=SEEING)
def test_a_test_that_asserts_is_left_alone(tmp_path, body):
    sources = plant(tmp_path, {"tests/test_x.py": f"def test_x():\n    {body}\n"})
    assert places(every_test_asserts(sources)) == []


def test_methods_and_coroutines_are_looked_at_and_other_functions_are_not(tmp_path):
    sources = plant(
        tmp_path,
        {
            "tests/test_x.py": """\
            class TestX:
                def test_a(self):
                    do()

                async def test_b(self):
                    do()

                def prepare(self):
                    do()
            """,
            "fednode/x.py": "def test_like():\n    do()\n",
        },
    )
    assert places(every_test_asserts(sources)) == [("tests/test_x.py", 2), ("tests/test_x.py", 5)]


@pytest.mark.parametrize(
    "text", ["import time\ntime.sleep(1)", "\nfrom time import sleep", "\nawait_(asyncio.sleep(0))"]
)
def test_a_sleep_in_a_test_is_found(tmp_path, text):
    sources = plant(tmp_path, {"tests/test_x.py": text + "\n"})
    assert places(no_test_sleeps(sources)) == [("tests/test_x.py", 2)]


def test_a_fake_clock_may_sleep(tmp_path):
    sources = plant(tmp_path, {"tests/test_x.py": "import time\nclock.sleep(1)\ntime.monotonic()\n"})
    assert places(no_test_sleeps(sources)) == []
