"""Words that do not belong are found in every kind of file."""

import pytest
from kit.planted import places, plant

from scripts.house_words import names_say_something, no_forbidden_words, nothing_for_later


@pytest.mark.parametrize(
    "text",
    [
        "see /home/someone/x",
        "cd /root",
        "`/tmp/notes`",
        "open('/" + "work/main')",
        "/Users/x",
        "https://pypi" + ".org/simple",
        "registry.npm" + "js.org",
    ],
)
def test_a_machines_path_or_a_registrys_host_is_found(tmp_path, text):
    (tmp_path / "notes.md").write_text(f"\n{text}\n")
    assert places(no_forbidden_words(tmp_path)) == [("notes.md", 2)]


@pytest.mark.parametrize(
    "text",
    ["#!/usr/bin/env bash", "example.com/work/x", "$HOME/tmp/x", "PyPI has it", "docs/root.md", "/homely", "2/home"],
)
def test_words_that_only_look_like_it_are_left_alone(tmp_path, text):
    (tmp_path / "notes.md").write_text(f"{text}\n")
    assert places(no_forbidden_words(tmp_path)) == []


def test_what_people_did_not_write_is_not_read(tmp_path):
    for place in (".venv/x.py", "runs/1/run.log", ".git/config", "fednode.egg-info/PKG-INFO", "__pycache__/x"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("/home/someone\n")
    (tmp_path / "picture.bin").write_bytes(b"\0/home/someone")
    assert places(no_forbidden_words(tmp_path)) == []


def test_a_package_called_cache_is_read_like_any_other(tmp_path):
    plant(tmp_path, {"fednode/cache/x.py": "# /home/someone\n"})
    assert places(no_forbidden_words(tmp_path)) == [("fednode/cache/x.py", 1)]


@pytest.mark.parametrize("text", ["# TODO: later", "x = 1  # FIXME", "raise NotImplementedError", "# XXX"])
def test_a_promise_is_found(tmp_path, text):
    assert places(nothing_for_later(plant(tmp_path, {"fednode/x.py": f"\n{text}\n"}))) == [("fednode/x.py", 2)]


@pytest.mark.parametrize("name", ["RoundManager", "CryptoHelper", "Utils", "StoreBase", "RoundImpl"])
def test_a_name_that_says_nothing_is_found(tmp_path, name):
    assert places(names_say_something(plant(tmp_path, {"fednode/x.py": f"class {name}:\n    x = 1\n"}))) == [
        ("fednode/x.py", 1)
    ]


def test_other_names_are_left_alone(tmp_path):
    sources = plant(tmp_path, {"fednode/x.py": "class Round:\n    x = 1  # todos\n"})
    assert places([*names_say_something(sources), *nothing_for_later(sources)]) == []
