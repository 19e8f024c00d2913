"""File < environment < flags, and every wrong name or value named with its source."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode.settings import (
    RunSettings,
    default_run_config,
    from_run_config,
    resolve,
    to_run_config,
    to_toml,
    toml_text,
)

FIELDS = tuple(RunSettings.model_fields)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
LEGAL: dict[str, st.SearchStrategy[object]] = {
    "data": NAMES,
    "text_column": NAMES,
    "vectors": st.text("abc/ .é\\\"'\t\x7f\U0001f600", min_size=1).map(Path),
    "features": st.integers(16, 65536),
    "alpha": st.floats(1e-300, 1e6),
    "seed": st.integers(0, 2**63 - 1),
    "clients": st.integers(4, 99_999),
    "deadline": st.floats(1e-9, 86_400),
    "learning_rate": st.floats(1e-12, 1e6),
    "epsilon": st.floats(1e-12, 50.0),
    "delta": st.floats(1e-300, 0.999),
    "clip": st.floats(1e-12, 1e6),
    "grid_bits": st.integers(8, 24),
    "min_noise": st.floats(0, 1e6),
    "engine": st.sampled_from(["inproc", "flower"]),
    "partition": st.sampled_from(["iid", "dirichlet"]),
    "faults": st.lists(st.sampled_from(["garbage@3:client-1", "dead@2-:holder-1", "slow@1-4:client-3"]), max_size=3),
}
CHOICES = st.fixed_dictionaries({}, optional={name: value for name, value in LEGAL.items() if name != "faults"})


@given(st.permutations(sorted(LEGAL.keys() - {"faults"})), st.data())
@settings(max_examples=40, deadline=None)
def test_the_last_source_that_names_a_setting_wins(tmp_path_factory, names, data):
    in_file, in_environment, in_flags = (
        {name: data.draw(LEGAL[name]) for name in names[start : start + 6]} for start in (0, 3, 6)
    )
    in_environment = {n: v for n, v in in_environment.items() if "\0" not in str(v)}
    path = tmp_path_factory.mktemp("toml") / "fednode.toml"
    wanted = RunSettings.model_validate(in_file)
    path.write_text("".join(line + "\n" for line in to_toml(wanted).split("\n") if line.split(" ")[0] in in_file))

    found = resolve(path, {f"FEDNODE_{n.upper()}": str(v) for n, v in in_environment.items()}, dict(in_flags))

    assert found == RunSettings.model_validate({**in_file, **in_environment, **in_flags})


@given(CHOICES, st.sampled_from([(), ("dead@2-:holder-1",), ("dead@2:holder-2", "dead@3-4:holder-5")]))
@settings(max_examples=100, deadline=None)
def test_what_is_written_as_toml_reads_back_the_same(tmp_path_factory, chosen, faults):
    wanted = RunSettings.model_validate({**chosen, "faults": faults})
    text = to_toml(wanted)
    path = tmp_path_factory.mktemp("toml") / "config.toml"
    path.write_bytes(text.encode())

    assert resolve(path, {}, {}) == wanted
    assert set(tomllib.loads(text)) == {name for name in FIELDS if getattr(wanted, name) is not None}
    assert from_run_config(to_run_config(wanted)) == wanted.model_copy(update={"faults": ()})


ANY_TEXT = st.text(st.characters() | st.sampled_from("\ud800\udcff\x00\x1b\x7f\x85\r\n\u2028\u202e\ufeff'\"\\#"))


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("data", "text_column", "label_column", "out"), ANY_TEXT)))
@settings(max_examples=200, deadline=None)
def test_any_text_is_refused_or_written_as_toml_that_reads_back_the_same(chosen):
    try:
        wanted = resolve(None, {}, chosen)
    except ConfigError:
        return
    found = tomllib.loads(to_toml(wanted).encode().decode())
    assert all(found[name] == str(getattr(wanted, name)) for name in chosen)


@given(ANY_TEXT)
def test_what_is_no_unicode_is_named_and_never_written(text):
    try:
        written = toml_text({"clients": 3, "run-folder": text})
    except ConfigError as error:
        assert "run-folder" in str(error) and any("\ud800" <= sign <= "\udfff" for sign in text)
    else:
        assert tomllib.loads(written.encode().decode()) == {"clients": 3, "run-folder": text}


def test_a_run_config_may_name_what_only_the_apps_read():
    config = default_run_config() | {"cohort": "cohort.json", "key-root": "keys", "run-folder": "runs/x"}
    assert from_run_config(config) == resolve(None, {}, {"engine": "flower"})
    with pytest.raises(ConfigError, match="--cohorts"):
        from_run_config(config | {"cohorts": "cohort.json"})


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "fednode.toml"
    path.write_bytes(b"\xef\xbb\xbfclients = 6\r\nrounds = 3\r\n")
    assert resolve(path, {}, {}) == RunSettings(clients=6, rounds=3)


def test_the_old_name_of_a_setting_leads_to_its_new_one():
    for source in ({"FEDNODE_Z_MIN": "1"}, {}), ({}, {"z_min": "1"}):
        with pytest.raises(ConfigError, match=r"FEDNODE_MIN_NOISE|--min-noise"):
            resolve(None, *source)


def test_defaults_need_no_source_at_all():
    assert resolve(None, {"PATH": "x", "FEDNODE_CLIENTS": ""}, {"clients": None, "faults": []}) == RunSettings()


@pytest.mark.parametrize(
    ("variables", "flags", "named"),
    [
        ({"FEDNODE_clients": "3"}, {}, ("FEDNODE_clients", "FEDNODE_CLIENTS?")),
        ({"FEDNODE_CLIENTS": "3x"}, {}, ("FEDNODE_CLIENTS", "'3x'")),
        ({}, {"min_survivers": "3"}, ("--min-survivers", "--min-survivors?")),
        ({"FEDNODE_BUILD_SYSTEM": "3"}, {}, ("FEDNODE_BUILD_SYSTEM", "fednode run --help")),
        ({}, {"scheme": "xyz"}, ("--scheme", "'xyz'", "ring, bfv")),
        ({}, {"clients": "20.5"}, ("--clients", "'20.5'")),
        ({}, {"epsilon": "-inf"}, ("--epsilon", "'-inf'", "finite")),
        ({}, {"epsilon": "0"}, ("--epsilon", "'0'", "greater than 0.0")),
        ({}, {"scheme": "rinq"}, ("--scheme", "'rinq'", "'ring'?")),
    ],
)
def test_a_wrong_name_or_value_is_one_sentence_with_its_source(variables, flags, named):
    with pytest.raises(ConfigError) as caught:
        resolve(None, variables, flags)
    sentence = str(caught.value)
    assert [part for part in named if part not in sentence] == [] and "\n" not in sentence
    assert ("did you mean" in sentence) == named[-1].endswith("?")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"# a comment\nrounds = 3\n\nclinets = 4\n", "line 4, clinets.*'clients'"),
        (b'rounds = 3\nclients = "many"\n', "line 2, clients.*'many'"),
        (b"[run]\nclients = 3\n", "line 1, run"),
        (b"build-system = 4\n", "'build-system'; `fednode run --help`"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path, content, named):
    path = tmp_path / "fednode.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"fednode\.toml.*{named}"):
        resolve(path, {}, {})


def test_a_contradiction_names_both_settings_and_their_sources():
    with pytest.raises(ConfigError, match=r"4 .*3 holders.*2 to 3.*\(set by --threshold; FEDNODE_HOLDERS\)"):
        resolve(None, {"FEDNODE_HOLDERS": "3"}, {"threshold": "4"})


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ({"clients": "2"}, r"clients and min_survivors to 3.*to 0 .*--clients"),
        ({"min_survivors": "2"}, r"raise min_survivors to 3.*to 0 .*--min-survivors"),
        ({"assumed_colluders": "19"}, r"clients and min_survivors to 21.*to 13 .*--assumed-colluders"),
    ],
)
def test_too_few_honest_survivors_are_refused_with_the_setting_to_change(flags, advice):
    with pytest.raises(ConfigError, match=advice):
        resolve(None, {}, flags)
