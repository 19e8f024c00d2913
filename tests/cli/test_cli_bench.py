"""`fednode bench trace` and `fednode bench cache`: end to end on little, and one sentence for what cannot work."""

import json

import pytest

from fednode.cli import main

pytestmark = pytest.mark.thorough


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.jsonl"
    lines = [json.dumps({"timestamp": 10 * n, "hash_ids": [n % 7, n % 3, n]}) for n in range(50)]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(folder, ending):
    (path,) = folder.glob(f"*{ending}")
    return path.read_text()


def test_a_trace_is_replayed_and_left_as_json_and_plot(trace, tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["--sizes", "2,5", "--policies", "adaptive", "--seeds", "2", "--out", str(out)]
    assert main(["bench", "trace", str(trace), *asked]) == 0
    said = capsys.readouterr().out
    assert "150 accesses" in said and "Belady" in said and "an infinite cache: " in said
    found = json.loads(read(out, "-trace.json"))
    assert [(row["policy"], row["entries"]) for row in found["rows"]] == [
        (policy, size) for policy in ("belady", "lru", "adaptive") for size in (2, 5)
    ]
    assert str(tmp_path) not in json.dumps(found)
    assert "<svg" in read(out, "-trace.svg")


def test_a_bad_line_ends_with_its_number(trace, tmp_path, capsys):
    trace.write_text(trace.read_text() + "{}\n")
    assert main(["bench", "trace", str(trace), "--out", str(tmp_path)]) == 3
    assert "line 51: timestamp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trace", "FILE", "--policies", "magic"], "no policy 'magic'"),
        (["trace", "FILE", "--sizes", "many"], "--sizes takes whole numbers"),
        (["trace", "FILE", "--seeds", "0"], "give larger numbers"),
        (["cache", "--rows", "cold"], "no row 'cold'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(trace, capsys, arguments, words):
    arguments = [str(trace) if argument == "FILE" else argument for argument in arguments]
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1


def test_its_help_names_the_extra_with_its_brackets(capsys):
    assert main(["bench", "cache", "--help"]) == 0
    assert "fednode[bench]" in "".join(capsys.readouterr().out.split())


def test_a_quick_run_of_the_cache_judges_nothing(trace, tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["--quick", "--rows", "many,trace", "--trace", str(trace), "--out", str(out)]
    assert main(["bench", "cache", *asked]) == 0
    said = capsys.readouterr().out
    assert "loop over get" in said and "Belady" in said and "PASS" not in said and "FAIL" not in said
    found = json.loads(read(out, "-cache.json"))
    assert (found["bench"], found["full"], list(found["rows"])) == ("cache", False, ["many"])
    assert "<svg" in read(out, "-cache.svg")


def test_without_a_trace_the_run_says_how_to_give_one(tmp_path, capsys):
    assert main(["bench", "cache", "--quick", "--rows", "trace", "--out", str(tmp_path)]) == 0
    assert "give a trace of block accesses with --trace FILE" in capsys.readouterr().out


def test_without_a_checkout_one_sentence_says_where_the_benchmarks_are(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fednode.__file__", str(tmp_path / "fednode" / "__init__.py"))
    assert main(["bench", "sum", "--quick"]) == 2
    said = capsys.readouterr().err
    assert "make bench" in said and len(said.splitlines()) == 1
