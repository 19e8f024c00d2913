"""Exact counts of records are in nothing that is released: round numbers are, and they are chosen."""

import json
from pathlib import Path

import numpy as np
import pytest
from kit.smallrun import small_run, small_settings
from safetensors.numpy import load_file

from fednode.assemble.planning import plan_run
from fednode.assemble.study import rounded_up
from fednode.optimiser import ServerOptimiser


def csv_with(folder: Path, count: int) -> Path:
    file = folder / str(count) / "messages.csv"
    file.parent.mkdir()
    rows = [f"please {('send', 'return', 'cancel')[n % 3]} order {n},{('a', 'b', 'c')[n % 3]}" for n in range(count)]
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


@pytest.mark.parametrize(
    ("count", "public"), [(1, 10), (99, 100), (100, 100), (101, 110), (8_003, 8_100), (995, 1_000)]
)
def test_a_public_number_is_round_and_is_not_below_the_count(count, public):
    assert rounded_up(count) == public


def test_data_sets_of_nearly_one_size_have_the_same_plan(tmp_path):
    plans = [plan_run(small_settings(tmp_path, data=str(csv_with(tmp_path, count)))) for count in (391, 396)]
    assert plans[0].terms == plans[1].terms and plans[0].sum_params == plans[1].sum_params
    assert plans[0].lines()[1:] == plans[1].lines()[1:]
    assert plans[0].workload.records == plans[1].workload.records == 320


def test_the_released_model_and_report_tell_the_public_number_alone(tmp_path):
    """A model of one round is a multiple of rate / (2^bits divisor): a lattice from which the divisor can be read."""
    file = csv_with(tmp_path, 391)
    trained, counted = 391 - 391 // 5, {391, 312, 313, 79, 78}
    folder = small_run(tmp_path, data=str(file), rounds=1, min_noise=0.0, epsilon=50.0).folder
    run = json.loads((folder / "report.json").read_text())["run"]
    task, resolved = run["task"], run["settings"]
    model = np.concatenate([array.ravel() for array in load_file(folder / "model.safetensors").values()])
    optimiser = ServerOptimiser(1, resolved["learning_rate"])
    _, moved = optimiser.apply(optimiser.init(1), np.zeros(1), np.ones(1))

    def off_the_lattice(divisor: float) -> float:
        steps = model.astype(np.float64) * divisor * 2 ** resolved["grid_bits"] / moved[0]
        return float(np.abs(steps - np.round(steps)).mean())

    assert task["divisor"] == task["records"] == rounded_up(trained)
    assert off_the_lattice(task["divisor"]) < 0.05 < 0.2 < off_the_lattice(trained)
    assert not counted & {value for value in task.values() if isinstance(value, int | float)}
