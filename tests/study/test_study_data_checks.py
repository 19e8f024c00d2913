import json

import pytest
from kit.smallrun import small_run, small_settings

from fednode.assemble.planning import plan_run
from fednode_study.data import load
from fednode_study.data_checks import data_warnings

TRAIN = [("where is my card", "Card"), ("top up failed", "topup"), ("caf\u00e9 charge", "topup")]


def bank(folder, train, test):
    for name, rows in (("train.csv", train), ("test.csv", test)):
        lines = "\n".join(["text,category", *(f"{text},{label}" for text, label in rows)])
        (folder / name).write_text(lines, encoding="utf-8")
    return load("banking77", folder)


@pytest.mark.parametrize(
    ("test", "public"),
    [
        ([("is it new", "Card"), ("where is my card", "topup")], None),
        ([("where is my card", "Card")], "10"),
        ([("Where  is MY card", "Card"), ("cafe\u0301 charge", "topup")] * 6, "20"),
    ],
)
def test_test_rows_that_are_training_rows_are_counted_roundly(tmp_path, test, public):
    found = data_warnings(bank(tmp_path, TRAIN, test))
    assert [f"up to {public} of about {'20' if len(test) > 10 else '10'} test rows" in text for text in found] == (
        [] if public is None else [True]
    )


@pytest.mark.parametrize("other", ["card", "CARD ", "C\uff41rd", "C a r d"])
def test_labels_in_two_spellings_are_named(tmp_path, other):
    found = data_warnings(bank(tmp_path, [*TRAIN, ("a b", other)], [("is it new", "Card")]))
    if other == "C a r d":
        assert found == ()
    elif other == "CARD ":
        assert len(found) == 1 and "'CARD' and 'Card'" in found[0]
    else:
        assert len(found) == 1 and "'Card' and" in found[0] and ascii(other) in found[0]


def test_the_built_in_set_has_nothing_to_warn_of():
    assert data_warnings(load("support")) == ()


def test_warnings_stand_in_the_plan_and_in_the_report(tmp_path):
    file = tmp_path / "doubled.csv"
    rows = [f"{word} order {n % 10},{word}" for word in ("send", "return", "Send") for n in range(40)]
    file.write_text("\n".join(["text,label", *rows]))
    lines = plan_run(small_settings(tmp_path, data=str(file))).lines()
    assert sum(line.startswith("warning") and "test rows" in line for line in lines) == 1
    assert any("'Send' and 'send'" in line for line in lines)
    folder = small_run(tmp_path, data=str(file), rounds=1).folder
    warnings = json.loads((folder / "report.json").read_text())["run"]["warnings"]
    assert sum("test rows" in text or "'Send' and 'send'" in text for text in warnings) == 2
