import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError, DataError
from fednode_study.data import CsvLayout, load, load_csv, read_rows
from fednode_study.features import load_vectors

BANK = 'text,category\n"Where, please,\nis my card?",card_arrival\nTop up failed,top_up_failed\n'


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_support_loads_with_its_source():
    data = load("support")
    assert data.train.labels.dtype == np.int64
    assert (len(data.train), len(data.test), len(data.labels)) == (8000, 2000, 25)
    assert "Apache-2.0" in data.source


def test_banking77_reads_quoted_line_breaks(tmp_path):
    write(tmp_path / "train.csv", BANK)
    write(tmp_path / "test.csv", BANK)
    data = load("banking77", tmp_path)
    assert data.train.texts[0] == "Where, please,\nis my card?"
    assert data.labels == ("card_arrival", "top_up_failed")
    assert data.test.labels.tolist() == [0, 1]
    assert "CC BY 4.0" in data.source


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (" \n\n", "is empty"),
        ("said,label\na,b\n", "'text'.* said, label.*--text-column"),
        ("text\tlabel\na\tb\n", "tabs"),
        ("text,label\na,x\nb\n", "line 3:.*empty"),
        ('text,label\n"a\nb",x\n"c"d,y\n', "line 4:.*CSV"),
        ('text,label\n"a\nb",x\n"c\nd",\n', "line 4:.*empty"),
        ("label,text,label\nx,a,y\n", "2 columns 'label'"),
        ("text,label,note,note\na,x,b,c\n", "2 columns 'note'"),
    ],
)
def test_bad_files_are_refused_by_their_line_or_column(tmp_path, content, says):
    with pytest.raises(DataError, match=says):
        load_csv(write(tmp_path / "mine.csv", content), CsvLayout())


def test_test_part_with_a_label_nobody_trains_is_refused(tmp_path):
    write(tmp_path / "train.csv", BANK)
    write(tmp_path / "test.csv", BANK + "x,never_seen\n")
    with pytest.raises(DataError, match="never_seen"):
        load("banking77", tmp_path)


def test_columns_can_be_named_and_a_byte_order_mark_does_not_matter(tmp_path):
    path = write(tmp_path / "mine.csv", "\ufeffid,said,meant\n1,a\u2028b,x\n2,c,y\n".encode())
    assert read_rows(path, CsvLayout("said", "meant")) == [("a\u2028b", "x", ""), ("c", "y", "")]


def test_blank_lines_and_spaces_around_names_do_not_matter(tmp_path):
    path = write(tmp_path / "mine.csv", "\r\n text , label\r\n\r\na,x\r\n,\r\n")
    assert read_rows(path, CsvLayout()) == [("a", "x", "")]


FIELD = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: text.strip())


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=9), ends=st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_a_csv_writer_writes_is_read_back(tmp_path_factory, rows, ends):
    page = io.StringIO(newline="")
    csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator=ends).writerows([("text", "label"), *rows])
    path = write(tmp_path_factory.mktemp("csv") / "mine.csv", page.getvalue())
    assert read_rows(path, CsvLayout()) == [(text.strip(), label.strip(), "") for text, label in rows]


@given(body=st.one_of(st.binary(max_size=60), st.text('a,;"\n\r \0', max_size=60).map(str.encode)))
def test_any_bytes_are_records_or_one_sentence_that_names_the_file(tmp_path_factory, body):
    path = write(tmp_path_factory.mktemp("csv") / "mine.csv", b"text,label\n" + body)
    try:
        rows = read_rows(path, CsvLayout())
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert rows and all(row.text and row.label for row in rows)


def test_test_share_outside_0_and_1_is_refused():
    with pytest.raises(ConfigError, match=r"1\.0"):
        CsvLayout(test_share=1.0)


def test_a_text_column_that_is_the_label_column_is_refused():
    with pytest.raises(ConfigError, match="both 'label'"):
        CsvLayout(text="label")


def test_columns_without_a_name_are_not_one_name_twice(tmp_path):
    assert read_rows(write(tmp_path / "mine.csv", "text,label,,\na,x,,\n"), CsvLayout()) == [("a", "x", "")]


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(1, 30), min_size=2, max_size=6), seed=st.integers(0, 99))
def test_csv_split_is_stratified_seeded_and_loses_nothing(tmp_path_factory, counts, seed):
    rows = [f"text {label} {i},label{label}" for label, count in enumerate(counts) for i in range(count)]
    path = write(tmp_path_factory.mktemp("csv") / "mine.csv", "\n".join(["text,label", *rows]))
    data = load_csv(path, CsvLayout(seed=seed))
    assert sorted(data.train.texts + data.test.texts) == sorted(row.split(",")[0] for row in rows)
    for label, count in enumerate(counts):
        held_out = int((data.test.labels == label).sum())
        assert held_out == min(count - 1, max(1, round(0.2 * count)))
    assert load_csv(path, CsvLayout(seed=seed)).test.texts == data.test.texts
    if len(data.train) > 60:
        assert load_csv(path, CsvLayout(seed=seed + 1)).test.texts != data.test.texts


@pytest.mark.parametrize(
    ("step", "load_it"),
    [
        ("is_file", lambda folder: load("banking77", folder)),
        ("read_bytes", lambda folder: load(str(folder / "train.csv"))),
        ("open", lambda folder: load_vectors(folder / "train.csv", 1, 1)),
    ],
)
def test_what_this_user_may_not_read_is_a_data_error_that_says_so(tmp_path, monkeypatch, step, load_it):
    for name in ("train.csv", "test.csv"):
        write(tmp_path / name, BANK)

    def refuse(self, *_args, **_named):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, step, refuse)
    with pytest.raises(DataError, match="Permission denied"):
        load_it(tmp_path)
