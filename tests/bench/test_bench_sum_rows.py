"""Each row of secure sums measured for real, on a few values: what it counts, and that it checks the sum first."""

import json
from importlib import import_module
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.harness.timing import Repeats, Stopwatch
from benchmarks.sums import exact, memory, uploads
from benchmarks.sums.bfv import planned as bfv_planned
from benchmarks.sums.cases import CHECK_BOX, CHECK_CLIENT, CHECK_HEAD, CHECK_HOLDER, Case, WrongSum, check_sum
from benchmarks.sums.secagg import neighbours
from fednode.cli import main
from fednode.clock import SystemClock
from fednode_crypto import NotEnoughShares

pytestmark = pytest.mark.thorough

ONCE = Repeats(1, 0.0, 1)
CASE = Case(300, 4, ONCE)


def measured(row, dimension=300, clients=4):
    program = import_module(f"benchmarks.sums.{row}")
    return program.measure(Case(dimension, clients, ONCE), Stopwatch(SystemClock(), ONCE))


def test_secagg_sends_int64_and_masks_once_a_neighbour():
    few, more = measured("secagg", clients=2), measured("secagg", 300, 50)
    assert few.bytes_up == more.bytes_up >= 8 * 300
    for found, masks in ((few, 2), (more, 50)):
        parts = found.parts
        total = parts["quantise"] + masks * parts["mask"] + parts["reduce and serialise"]
        assert found.client.median == pytest.approx(total)
    assert [neighbours(n) for n in (2, 10, 100, 101, 1_000)] == [1, 9, 99, 100, 100]


def test_bfv_and_ckks_count_what_is_sent():
    bfv, ckks, params = measured("bfv"), measured("ckks", 5_000), bfv_planned(CASE)
    assert (bfv.bytes_up, bfv.holder_bytes) == (params.payload_bytes, params.request_bytes + params.answer_bytes)
    assert ckks.bytes_up > 10 * 4 * 5_000 and ckks.holder is None


def test_ring_counts_boxes_signature_and_the_holders_keys():
    found, params = measured("ring"), uploads.planned(CASE)
    assert found.bytes_up == params.upload_bytes + params.check_bytes + 32 + 64
    assert found.bytes_down == 4 * 300 + 5 * (32 + 3 * 32 + 64) + 32
    assert found.holder_bytes > 4 * params.share_bytes + params.answer_bytes
    assert found.parts[CHECK_BOX] == params.share_bytes - params.answer_bytes
    assert found.parts[CHECK_HEAD] == len(',"check":""') + 4 * -(-params.check_bytes // 3)
    assert min(found.parts[CHECK_CLIENT], found.parts[CHECK_HOLDER]) > 0


def test_confirm_counts_what_one_holder_is_sent_and_sends_in_a_real_round():
    few, more = measured("confirm", 40, 3), measured("confirm", 40, 5)
    assert few.bytes_up == more.bytes_up and few.bytes_down < more.bytes_down < 1_024 * 5
    assert few.holder.median > 0 and few.holder.runs == 1 and more.total == more.bytes_up + more.bytes_down


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
    monkeypatch.setattr(exact.RingMask, "combine", Mock(side_effect=NotEnoughShares("none came")))
    assert exact.work(seed=7, rounds=1)["differences"] == 1


def test_a_wrong_sum_stops_the_row():
    parts = [np.array([1, 2]), np.array([3, 4])]
    for wrong, updates in ((np.array([4, 7]), parts), (np.array([4]), [np.array([4, 6])])):
        with pytest.raises(WrongSum):
            check_sum(wrong, updates)
    assert check_sum(np.array([4, 6]), parts) is None
    assert check_sum(np.array([4.05, 6.0]), parts, tolerance=0.1) is None


def test_the_command_measures_prints_and_writes(tmp_path, capsys, monkeypatch):
    """`fednode bench sum` once; the row memory, which breaks, is exit code 1."""
    monkeypatch.setattr("benchmarks.sums.suite.FOLDED", 0)
    asked = ["--quick", "--rows", "plain,memory", "--sizes", "1_000,2000", "--clients", "10"]
    assert main(["bench", "sum", "--out", str(tmp_path), *asked]) == 1
    said = capsys.readouterr().out
    assert said.count("| plain |") == 2 and said.count("----  ") == 7 and "FAIL  node's peak memory" in said
    (written,) = tmp_path.glob("*-sum.json")
    found = json.loads(written.read_text())
    assert found["bench"] == "sum" and [row["dimension"] for row in found["rows"]] == [1_000, 2_000]
    assert written.with_suffix(".svg").read_text().count("<svg") == 1
