"""Files made before a run."""

import csv

import numpy as np
import pytest

from fednode.cli import main
from fednode.errors import ConfigError, DataError
from fednode_study.data import CsvLayout, load_csv, load_folder
from fednode_study.features import HashedText


def _write(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(("text", "label"))
        writer.writerows(rows)
    return path


ROWS = [(f"message number {n}, with words", f"label{n % 3}") for n in range(30)]


def test_a_split_that_is_written_is_the_split_of_a_run(tmp_path):
    path = _write(tmp_path / "mine.csv", ROWS)
    assert main(["data", "split", str(path), "--into", str(tmp_path / "parts")]) == 0
    once, again = load_csv(path, CsvLayout()), load_folder(tmp_path / "parts", CsvLayout())
    assert once.train.texts == again.train.texts and once.test.texts == again.test.texts
    assert (once.train.labels == again.train.labels).all() and once.labels == again.labels


def test_a_members_file_has_the_features_and_labels_of_the_task(tmp_path):
    path = _write(tmp_path / "mine.csv", ROWS, ";")
    (tmp_path / "fednode.toml").write_text('delimiter = ";"\nfeatures = 64\n')
    (tmp_path / "labels").write_text("label2\nlabel0\nlabel1\nlabel9\n")
    given = ["--config", str(tmp_path / "fednode.toml"), "--into", str(tmp_path / "ann.npz")]
    assert main(["data", "prepare", str(path), "--labels", str(tmp_path / "labels"), *given]) == 0
    with np.load(tmp_path / "ann.npz") as arrays:
        assert arrays["targets"][:3].tolist() == [1, 2, 0]
        assert np.array_equal(arrays["inputs"], HashedText(64).transform([text for text, _ in ROWS]))
    (tmp_path / "labels").write_text("label2\nlabel0\n")
    assert main(["data", "prepare", str(path), "--labels", str(tmp_path / "labels"), *given]) == DataError.exit_code


@pytest.mark.parametrize(
    ("content", "flags", "parts"),
    [
        (b"text,label\na,x\n,y\nb,\nc,x,z\n", {}, ["line 3", "line 4", "line 5"]),
        (b'text,label\n\n"a\nb",x\n,y\n', {}, ["line 5"]),
        (b"text;label\na;x\n", {}, ["--delimiter"]),
        (b"text;label\n;x\n", {"delimiter": ";"}, ["line 2"]),
        ("text,label\nä,x\n".encode("cp1252"), {}, ["line 2", "--encoding"]),
    ],
)
def test_all_faults_of_a_file_are_said_at_once(content, flags, parts, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_csv(path, CsvLayout(**flags))
    assert all(part in str(caught.value) for part in parts)


def test_other_encodings_and_delimiters_are_read(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes("text\tlabel\nä\tx\nö\ty\nü\tx\né\ty\n".encode("cp1252"))
    texts = load_csv(path, CsvLayout(delimiter="\t", encoding="cp1252"))
    assert set(texts.train.texts + texts.test.texts) == {"ä", "ö", "ü", "é"}


@pytest.mark.parametrize("wrong", [["--delimiter", ";;"], ["--encoding", "latin9000"], ["--data", "x.csv"]])
def test_a_delimiter_is_one_sign_an_encoding_known_and_the_data_named_once(wrong, tmp_path):
    path = _write(tmp_path / "mine.csv", ROWS)
    assert main(["run", str(path), "--dry-run", *wrong]) == ConfigError.exit_code
