"""Each row of secure sums measured for real, on a few values: what it counts, and that it checks the sum first."""

import json
from importlib import import_module

import numpy as np
import pytest

from benchmarks.harness.timing import Repeats, Stopwatch
from benchmarks.sums import cases, exact, memory, ring, uploads
from benchmarks.sums.bfv import planned as bfv_planned
from benchmarks.sums.cases import LARGEST_VALUE, Case, WrongSum, check_sum, some_floats, some_values
from benchmarks.sums.secagg import neighbours
from fednode.cli import main
from fednode.clock import SystemClock
from fednode.errors import PeerFault
from fednode_clients.holder.holder import Holder
from fednode_crypto import NotEnoughShares, SystemRng
from fednode_crypto.errors import BadSignature

pytestmark = pytest.mark.thorough

ONCE = Repeats(1, 0.0, 1)
CASE = Case(300, 4, ONCE)


def measured(row, dimension=300, clients=4):
    program = import_module(f"benchmarks.sums.{row}")
    return program.measure(Case(dimension, clients, ONCE), Stopwatch(SystemClock(), ONCE))


def test_plain_is_what_ratios_are_taken_against():
    found = cases.work("plain", 300, 4, {"least": 1, "seconds": 0.0, "most": 1})
    assert (found["bytes_up"], found["bytes_down"], found["holder"]) == (1_200, 1_200, None)


def test_secagg_sends_int64_and_masks_once_a_neighbour():
    few, more = measured("secagg", clients=2), measured("secagg", 300, 50)
    assert few.bytes_up == more.bytes_up >= 8 * 300
    for found, masks in ((few, 2), (more, 50)):
        parts = found.parts
        total = parts["quantise"] + masks * parts["mask"] + parts["reduce and serialise"]
        assert found.client.median == pytest.approx(total)
    assert [neighbours(n) for n in (2, 10, 100, 101, 1_000)] == [1, 9, 99, 100, 100]


def test_bfv_counts_what_a_holder_receives_and_sends():
    found, params = measured("bfv"), bfv_planned(CASE)
    assert found.bytes_up == params.payload_bytes
    assert found.holder_bytes == params.request_bytes + params.answer_bytes


def test_ckks_sends_more_than_ten_times_the_floats():
    found = measured("ckks", 5_000)
    assert found.bytes_up > 10 * 4 * 5_000 and found.holder is None


def test_ring_counts_boxes_signature_and_the_holders_keys():
    found, params = measured("ring"), uploads.planned(CASE)
    assert found.bytes_up == params.upload_bytes + 32 + 64
    assert found.bytes_down == 4 * 300 + 5 * (32 + 64) + 32
    assert found.holder_bytes > 4 * params.share_bytes + params.answer_bytes
    assert set(found.parts) == {
        "pack, mask and share", "boxes", "hash and sign", "node: hash and check the signature"
    }  # fmt: skip


def test_confirm_counts_what_one_holder_is_sent_and_sends_in_a_real_round():
    few, more = measured("confirm", 40, 3), measured("confirm", 40, 5)
    assert few.bytes_up == more.bytes_up and few.bytes_down < more.bytes_down < 1_024 * 5
    assert few.holder.median > 0 and few.holder.runs == 1 and more.total == more.bytes_up + more.bytes_down


def test_a_confirmation_in_a_round_that_does_not_open_is_not_measured(monkeypatch):
    def away(holder, frame):
        raise PeerFault("unexpected", "I am away")

    monkeypatch.setattr(Holder, "open", away)
    with pytest.raises(RuntimeError, match="round failed"):
        measured("confirm", 40, 3)


def test_a_row_whose_sum_is_wrong_is_not_measured(monkeypatch):
    real = ring.RingMask.combine
    monkeypatch.setattr(ring.RingMask, "combine", lambda *arguments: real(*arguments) + 1)
    with pytest.raises(WrongSum):
        measured("ring")


def test_an_upload_read_back_is_what_was_signed():
    params = uploads.planned(CASE)
    sent = uploads.BenchClient.made(params, uploads.holder_keys()).upload(some_values(CASE), SystemRng())
    data = sent.to_bytes()
    read = uploads.Upload.from_bytes(data, params.payload_bytes)
    assert read == sent
    read.check()
    for place in (40, 200, len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(BadSignature):
            uploads.Upload.from_bytes(bytes(damaged), params.payload_bytes).check()


def test_the_node_takes_uploads_from_disk_and_puts_boxes_there(tmp_path):
    asked = {"folder": str(tmp_path), "dimension": 300, "planned_for": 8, "count": 3}
    size = uploads.work(**asked)["bytes"]
    found = memory.work(**asked, clients=8)
    assert found["count"] == 8 and found["peak_bytes"] > 0
    boxes = [path.stat().st_size for path in sorted(tmp_path.glob("holder-*.boxes"))]
    assert len(boxes) == 5 and len(set(boxes)) == 1 and 0 < boxes[0] < 8 * size


def test_small_rounds_with_drops_are_exact_and_a_wrong_or_refused_sum_is_a_difference(monkeypatch):
    assert exact.work(seed=7, rounds=40) == {"rounds": 40, "differences": 0, "first": []}
    real = exact.RingMask.combine
    monkeypatch.setattr(exact.RingMask, "combine", lambda *arguments: real(*arguments) + 1)
    assert exact.work(seed=7, rounds=7) == {"rounds": 7, "differences": 7, "first": [0, 1, 2, 3, 4]}

    def refuse(*arguments):
        raise NotEnoughShares("none came")

    monkeypatch.setattr(exact.RingMask, "combine", refuse)
    assert exact.work(seed=7, rounds=1)["differences"] == 1


def test_values_fill_their_bits_and_differ_between_clients():
    case = Case(50_000, 10)
    values = some_values(case)
    assert values.dtype == np.int64 and (values.min(), values.max()) == (-LARGEST_VALUE, LARGEST_VALUE)
    assert np.array_equal(values, some_values(case)) and not np.array_equal(values, some_values(case, 1))
    floats = some_floats(case)
    assert floats.dtype == np.float32 and np.array_equal(np.rint(floats * LARGEST_VALUE), values)


def test_a_wrong_sum_stops_the_row():
    parts = [np.array([1, 2]), np.array([3, 4])]
    for wrong, updates in ((np.array([4, 7]), parts), (np.array([4]), [np.array([4, 6])])):
        with pytest.raises(WrongSum):
            check_sum(wrong, updates)
    assert check_sum(np.array([4, 6]), parts) is None
    assert check_sum(np.array([4.05, 6.0]), parts, tolerance=0.1) is None


@pytest.fixture
def command(tmp_path, capsys):
    def run(*arguments):
        code = main(["bench", "sum", "--out", str(tmp_path / "out"), *arguments])
        return code, capsys.readouterr()

    run.folder = tmp_path / "out"
    return run


def test_the_command_measures_prints_and_writes(command):
    code, said = command("--quick", "--rows", "plain", "--sizes", "1_000,2000", "--clients", "10")
    assert (code, said.err) == (0, "")
    assert said.out.count("| plain |") == 2 and said.out.count("----  ") == 7
    (written,) = command.folder.glob("*-sum.json")
    found = json.loads(written.read_text())
    assert found["bench"] == "sum" and [row["dimension"] for row in found["rows"]] == [1_000, 2_000]
    assert written.with_suffix(".svg").read_text().count("<svg") == 1


def test_a_row_that_breaks_is_exit_code_1(command, monkeypatch):
    monkeypatch.setattr("benchmarks.sums.suite.FOLDED", 0)
    code, said = command("--quick", "--rows", "memory", "--sizes", "1000")
    assert code == 1 and "FAIL  node's peak memory" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--rows", "paillier"), "'paillier'"), (("--sizes", "many"), "--sizes"), (("--clients", ""), "--clients")],
)
def test_a_flag_that_cannot_work_is_one_sentence(command, arguments, words):
    code, said = command(*arguments)
    assert code == 2 and words in said.err and said.err.count("\n") == 1
