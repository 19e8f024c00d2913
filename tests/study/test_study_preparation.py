"""A public preparation: what it does to rows, that a run takes it and says so, and what is refused."""

import json

import numpy as np
import pytest
from kit.smallrun import messages, small_run, small_settings
from safetensors import safe_open

from fednode.assemble import predict, study_step
from fednode.assemble.planning import plan_run
from fednode.errors import ConfigError, DataError
from fednode_study.features import ROW_LENGTH, HashedText, SentenceVectors
from fednode_study.preparation import Preparation, fitted, kind_of, label_rows, read_preparation

SOURCE = "letters to a shop, CC0"


def public(folder, **changes):
    """Settings of a public set: other messages than those of the run, about the same things."""
    file = folder / "public.csv"
    words = {"card": "card bank lost", "pay": "pay money bill", "parcel": "parcel box late"}
    rows = [f"{a} {b} again {n},{label}" for label, text in words.items() for a in text.split() for b in "xyz"
            for n in range(3)]  # fmt: skip
    file.write_text("\n".join(["text,label", *rows]))
    return small_settings(folder, **{"data": str(file)} | changes)


def made(folder, columns=12, start=1.5, **changes):
    file = folder / "shop.safetensors"
    study_step("prepare", public(folder, **changes), file, columns, start, SOURCE)
    return file


def test_half_whitening_leaves_the_root_of_each_standard_deviation():
    rows = np.random.default_rng(1).normal(size=(4000, 6)).astype(np.float32) * np.float32([8, 4, 2, 1, 0.5, 0.1]) + 3
    mean, axes = fitted(rows, 4)
    kept = (rows - mean) @ axes
    assert np.abs(kept.mean(axis=0)).max() < 1e-4
    assert np.sqrt(kept.std(axis=0)) == pytest.approx(np.sqrt(np.sqrt([8, 4, 2, 1])), rel=0.05)
    assert np.abs(np.corrcoef(kept.T) - np.eye(4)).max() < 1e-3


@pytest.mark.parametrize("columns", [0, 7, 6])
def test_more_directions_than_the_public_rows_have_are_refused(columns):
    rows = np.zeros((40, 6), dtype=np.float32)
    rows[:, :5] = np.random.default_rng(1).normal(size=(40, 5))
    with pytest.raises(ConfigError):
        fitted(rows, columns)
    assert fitted(rows, 5)[1].shape == (6, 5)


def test_prepared_rows_have_the_common_length_and_an_empty_row_stays_empty():
    rows = HashedText(64).transform(["card lost", "pay the bill", "where is it", "box late", ""])
    mean, axes = fitted(rows[:4], 3)
    preparation = Preparation(mean, axes, kind_of(HashedText(64)), 2.0, SOURCE, "")
    lengths = np.linalg.norm(preparation.apply(rows), axis=1)
    assert lengths[:4] == pytest.approx(ROW_LENGTH, rel=1e-5) and lengths[4] == 0
    head = preparation.head(rows[:3])
    assert np.linalg.norm(head, axis=1) == pytest.approx(2.0, rel=1e-5)
    assert (preparation.apply(rows[:3]) @ head.T).argmax(axis=1).tolist() == [0, 1, 2]


def test_a_file_is_read_back_as_it_was_written(tmp_path):
    file = made(tmp_path)
    found = read_preparation(file)
    assert (found.source, found.start, found.columns, found.featuriser) == (SOURCE, 1.5, 12, "hashed-text-1 64")
    assert found.to_bytes() == file.read_bytes()
    first = file.read_bytes()
    assert made(tmp_path).read_bytes() == first


def test_a_run_starts_from_the_label_names_and_says_what_it_began_from(tmp_path):
    file = made(tmp_path)
    digest = read_preparation(file).digest()
    plan = plan_run(small_settings(tmp_path, preparation=file))
    assert plan.layout.shapes == ((3, 12), (3,))
    assert np.linalg.norm(plan.workload.initial[:36].reshape(3, 12), axis=1) == pytest.approx(1.5, rel=1e-5)
    assert not plan.workload.initial[36:].any()
    assert any(line.startswith("public") and digest in line and SOURCE in line for line in plan.lines())

    folder = small_run(tmp_path, preparation=file, epsilon=50.0, min_noise=0.0).folder
    run = json.loads((folder / "report.json").read_text())["run"]
    assert sum(digest in claim["how"] and SOURCE in claim["how"] for claim in run["claims"]["assumed"]) == 1
    with safe_open(str(folder / "model.safetensors"), framework="np") as model:
        assert model.metadata()["preparation"] == digest
    assert (folder / "preparation.safetensors").read_bytes() == file.read_bytes()
    assert predict(folder, ["card lost", "pay the bill"]) == predict(folder, ["card lost", "pay the bill"])
    (folder / "preparation.safetensors").write_bytes(made(tmp_path, start=3.0).read_bytes())
    with pytest.raises(DataError, match="not the preparation"):
        predict(folder, ["card lost"])


def test_what_travels_first_is_what_the_plan_starts_from(tmp_path):
    """With a path so short that nothing is learned, the model of the last round is the first one."""
    file = made(tmp_path)
    settings = {"preparation": file, "learning_rate": 1e-9, "rounds": 1}
    initial = plan_run(small_settings(tmp_path, **settings)).workload.initial
    folder = small_run(tmp_path, **settings).folder
    with safe_open(str(folder / "model.safetensors"), framework="np") as model:
        assert model.get_tensor("weight").ravel() == pytest.approx(initial[:36], abs=1e-6)


def test_the_runs_own_records_and_other_features_are_refused(tmp_path):
    own = tmp_path / "own.safetensors"
    study_step("prepare", small_settings(tmp_path, data=str(messages(tmp_path))), own, 4, 0.0, SOURCE)
    with pytest.raises(DataError, match="the records of this run"):
        plan_run(small_settings(tmp_path, preparation=own))
    with pytest.raises(DataError, match=r"'hashed-text-1 64'.*'hashed-text-1 32'"):
        plan_run(small_settings(tmp_path, preparation=made(tmp_path), features=32))


def test_a_set_of_the_operators_needs_its_source(tmp_path):
    with pytest.raises(ConfigError, match="--source"):
        study_step("prepare", public(tmp_path), tmp_path / "p.safetensors", 4, 1.0, None)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x08" + bytes(30)])
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = tmp_path / "p.safetensors"
    file.write_bytes(damage)
    with pytest.raises(DataError, match="no preparation"):
        read_preparation(file)


def test_vectors_start_the_head_if_the_file_holds_those_of_the_labels():
    rows = np.eye(4, dtype=np.float32)
    assert label_rows(("a", "b"), SentenceVectors(rows, rows)) is None
    assert label_rows(("a", "b"), SentenceVectors(rows, rows, labels=rows[:2])) is not None
    with pytest.raises(DataError, match="a row for each label"):
        label_rows(("a", "b"), SentenceVectors(rows, rows, labels=rows[:3]))
