"""The experiment of privacy against utility: its inputs, its baseline, its intervals and its verdicts."""

import csv
import json

import numpy as np
import pytest
from kit.smallrun import small_settings

from fednode.assemble.planning import plan_run
from fednode.settings import RunSettings
from privacy_utility.inputs import FEWEST, data_settings
from privacy_utility.measure import Figure, shared_epsilon
from privacy_utility.results import add, interval, read, table
from privacy_utility.rows import GAPS, ROWS


def test_an_interval_is_students():
    mean, half = interval([80.0, 81.0, 82.0, 83.0, 84.0])
    assert mean == 82.0 and half == pytest.approx(2.776 * (2.5 / 5) ** 0.5, rel=1e-3)
    assert np.isnan(interval([80.0])[1])


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_in_the_baseline_the_noise_of_each_silo_is_enough_for_itself(tmp_path, epsilon):
    """Five clients of whom one may reveal its noise: four times the local variance of a run that adds theirs up."""
    settings = {"clients": 5, "min_survivors": 5, "rounds": 1, "min_noise": 0.0}
    together = plan_run(small_settings(tmp_path, epsilon=epsilon, **settings)).terms.local_variance
    alone = plan_run(small_settings(tmp_path, epsilon=shared_epsilon(epsilon, 5), **settings)).terms.local_variance
    assert alone / together == pytest.approx(4.0, rel=0.02)


def test_figures_are_kept_and_judged(tmp_path):
    path = tmp_path / "results.json"
    for seed, accuracy in enumerate((72.0, 73.4)):
        add(path, "banking77-hashed-eps2", seed, Figure(accuracy, 1.99, 20, 1.0), "abc")
    add(path, "banking77-hashed-eps2-local", 0, Figure(65.0, 2.0, 20, 1.0), "abc")
    assert read(path)["banking77-hashed-eps2"]["1"]["accuracy"] == 73.4
    *_, row, other = table(read(path))
    assert "72.70" in row and "+7.70" in row and row.endswith("| NO |")
    assert "65.00" in other and other.endswith("|  |")
    add(path, "banking77-hashed-eps2-local", 0, Figure(64.0, 2.0, 20, 1.0), "abc")
    assert table(read(path))[2].endswith("| yes |")


def test_every_row_is_made_of_settings_that_exist():
    assert set(GAPS) | {other for other, _, _ in GAPS.values()} <= set(ROWS)
    for row in ROWS.values():
        assert set(row.settings) <= set(RunSettings.model_fields)


def test_multidogo_keeps_turns_of_one_service_intent_with_their_conversation(tmp_path):
    turns = [(f"c{n}", f"book {n % 3}", "bookflight") for n in range(FEWEST)]
    turns += [("c0", "hello", "openinggreeting"), ("c1", "two", "bookflight<div>getseatinfo"), ("c2", "x", "rare")]
    turns += [("c3", "", ""), ("c4", "not encoded", "bookflight")]
    for service in ("airline", "fastfood", "finance", "insurance", "media", "software"):
        folder = tmp_path / "multidogo/turn_level" / service
        folder.mkdir(parents=True)
        for part, rows in (("train", turns), ("test", turns[:4])):
            lines = [f"{c}\t1\t-\t{text}\tO\t{intent}" for c, text, intent in rows] if service == "airline" else []
            (folder / f"{part}.tsv").write_text("\n".join(["conversationId\t...", *lines]))
    (tmp_path / "embeddings").mkdir()
    (tmp_path / "embeddings/multidogo_texts.json").write_text(json.dumps(["book 0", "book 1", "book 2", "hello"]))
    np.savez(tmp_path / "embeddings/multidogo_minilm.npz", vectors=np.arange(8.0).reshape(4, 2))

    found = data_settings("multidogo", tmp_path, tmp_path / "out", hashed=False)
    with (tmp_path / "out/multidogo/train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == FEWEST and rows[4] == {"text": "book 1", "label": "bookflight", "customer": "airline/c4"}
    with np.load(found["vectors"]) as arrays:
        assert arrays["train"][4].tolist() == [2.0, 3.0] and len(arrays["test"]) == 4
