"""A node that talks nonsense: whoever asks gets a sentence, an end, and nothing that moves a cursor."""

import base64
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fednode.cli import main
from fednode.errors import DataError, visible
from fednode.live import LiveNode, StoreStats, exposition, unix_socket
from fednode.live.messages import MOST_ANSWERED, PIECE, line
from fednode.live.schema import FoundValue

pytestmark = pytest.mark.thorough

VALUE = bytes(range(200))
EVIL = "evil\x1b[2J\x07\n\u202e\x9b\ud800"
FOUND = {
    "store": "parameters",
    "sealed": False,
    "kind": "array",
    "size": 200,
    "digest": sha256(VALUE).hexdigest(),
    "dtype": "uint8",
    "shape": [2, 100],
    "ttl_left": 2.5,
    "version": 3,
}
GOOD: dict[str, dict[str, Any]] = {
    "stats": {"run": "run-1", "stores": {"parameters": asdict(StoreStats(1, 2, hits=3, misses=1))}},
    "get": {"found": [FOUND]},
    "fetch": {"bytes": 200, "data": base64.b64encode(VALUE).decode()},
    "keys": {"keys": [["parameters", "a"], ["updates", "b"]], "more": True},
    "knobs": {"knobs": [["parameters", "jitter", 0.1, "what it is", "0 to 0.5"]], "fixed": ["updates"]},
    "tune": {"made": [["parameters", "jitter", 0.1, 0.2]]},
}
COMMANDS: dict[str, list[list[str]]] = {
    "stats": [["stats"], ["stats", "--prometheus"]],
    "get": [["get", "a"], ["get", "a", "--out", "out"]],
    "fetch": [["get", "a", "--out", "out"]],
    "keys": [["keys"]],
    "knobs": [["tune"]],
    "tune": [["tune", "--set", "parameters.jitter=0.2"]],
}
NONSENSE: list[Any] = [None, True, -1, 1.5, 10**400, -(10**400), "soon", EVIL, [], {}, [5], {"a": 5}, [[]], 1 << 64]


class FakeNode:
    """The other end of a connection: answers as it is told to."""

    def __init__(self, answers: Callable[[dict[str, Any]], bytes]) -> None:
        self._answers = answers
        self._waiting = b""
        self.asked = 0

    def sendall(self, request: bytes) -> None:
        self.asked += 1
        self._waiting += self._answers(json.loads(request))

    def recv(self, most: int) -> bytes:
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        return taken

    def close(self) -> None:
        pass


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], bytes]], FakeNode]:
    monkeypatch.chdir(tmp_path)

    def use(answers: Callable[[dict[str, Any]], bytes]) -> FakeNode:
        node = FakeNode(answers)
        monkeypatch.setattr(unix_socket, "connect", lambda *_: node)
        monkeypatch.setattr(unix_socket, "answers", lambda _: True)
        return node

    return use


def truthful(request: dict[str, Any]) -> bytes:
    return line({"ok": True, **GOOD[request["do"]]})


def variants(found: Any) -> Iterator[Any]:
    """`found` with each of its parts replaced by each kind of nonsense, left out, or doubled."""
    yield from NONSENSE
    if isinstance(found, dict):
        yield {**found, EVIL: found}
        for name, part in found.items():
            yield {other: value for other, value in found.items() if other != name}
            yield {(EVIL if other == name else other): value for other, value in found.items()}
            for wrong in variants(part):
                yield {**found, name: wrong}
    elif isinstance(found, list):
        yield [*found, *copy.deepcopy(found)]
        for at, part in enumerate(found):
            yield found[:at] + found[at + 1 :]
            for wrong in variants(part):
                yield [*found[:at], wrong, *found[at + 1 :]]


def with_run(arguments: list[str]) -> list[str]:
    at = 2 if arguments[0] == "get" else 1
    return [*arguments[:at], "run", *arguments[at:]]


def check_harmless(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Runs to an end that a person can read; its exit code."""
    code = main(["cache", *arguments])
    Path("out").unlink(missing_ok=True)
    shown = capsys.readouterr()
    assert code in (0, 2, 3, 8), (arguments, shown.err)
    assert "unexpected" not in shown.err and "Traceback" not in shown.err
    assert all(sign.isprintable() or sign == "\n" for sign in shown.out + shown.err)
    assert code == 0 or shown.err.startswith("fednode: ")
    return code


def test_what_is_told_rightly_is_shown(
    speak: Callable[..., FakeNode], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    speak(truthful)
    (tmp_path / "run").mkdir()
    codes = {check_harmless(with_run(each), capsys) for commands in COMMANDS.values() for each in commands}
    assert codes == {0} and (tmp_path / "out").exists() is False
    assert main(["cache", *with_run(COMMANDS["tune"][0])]) == 0
    assert capsys.readouterr().out == "parameters.jitter: 0.1 -> 0.2\n"
    assert main(["cache", *with_run(COMMANDS["fetch"][0])]) == 0 and (tmp_path / "out").read_bytes() == VALUE


@pytest.mark.parametrize("do", COMMANDS)
def test_whatever_a_node_answers_there_is_a_sentence_and_an_end(
    do: str, speak: Callable[..., FakeNode], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    codes = set()
    for number, answer in enumerate(variants(GOOD[do])):
        said = line({"ok": True, **answer}) if isinstance(answer, dict) else line(answer)
        speak(lambda request, said=said: said if request["do"] == do else truthful(request))
        codes.add(check_harmless(with_run(COMMANDS[do][number % len(COMMANDS[do])]), capsys))
    assert 3 in codes


@pytest.mark.parametrize("words", [EVIL, "", "x" * 100_000])
@pytest.mark.parametrize("cause", ["config", "data", "store", "failed", EVIL, None, 5])
def test_the_words_of_a_refusal_are_shown_harmlessly(
    words: str, cause: object, speak: Callable[..., FakeNode], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    speak(lambda _: line({"ok": False, "cause": cause, "error": words}))
    assert check_harmless(["stats", "run"], capsys) != 0


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_none_are_no_answer(constant: str, speak: Callable[..., FakeNode], tmp_path: Path) -> None:
    told = json.dumps({"ok": True, "made": [["p", "jitter", 0.1, 0.2]]}).replace("0.1", constant)
    speak(lambda _: told.encode() + b"\n")
    with LiveNode(tmp_path) as node, pytest.raises(DataError, match="no proper answer"):
        node.tune([("p", "jitter", 0.2)])


PIECES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "never fits": lambda asked: {"bytes": asked["offset"] + 2 * PIECE, "data": base64.b64encode(bytes(PIECE)).decode()},
    "huge": lambda _: {"bytes": 1 << 60, "data": base64.b64encode(bytes(PIECE)).decode()},
    "nothing comes": lambda _: {"bytes": 200, "data": ""},
    "too much": lambda _: {"bytes": 200, "data": base64.b64encode(bytes(201)).decode()},
    "less each time": lambda asked: {"bytes": 200 - asked["offset"], "data": base64.b64encode(b"1").decode()},
    "another value": lambda _: {"bytes": 200, "data": base64.b64encode(bytes(200)).decode()},
    "no base64": lambda _: {"bytes": 200, "data": "%%%%"},
}


@pytest.mark.parametrize("how", PIECES)
def test_no_more_is_fetched_than_was_told(how: str, speak: Callable[..., FakeNode], tmp_path: Path) -> None:
    node = speak(lambda asked: line({"ok": True, **PIECES[how](asked)}))
    with LiveNode(tmp_path) as live, pytest.raises(DataError, match=r"ask again|no proper answer"):
        live.fetch(FoundValue(**FOUND), "a")
    assert node.asked <= 3 * MOST_ANSWERED // PIECE


def test_a_page_for_prometheus_moves_no_cursor() -> None:
    page = exposition(EVIL, {EVIL: StoreStats(1, 2)})
    assert all(sign.isprintable() or sign == "\n" for sign in page)
    parser = pytest.importorskip("prometheus_client.parser")
    (info,) = [one for one in parser.text_string_to_metric_families(page) if one.name == "fednode_run_info"]
    assert info.samples[0].labels == {"run": "\n".join(map(visible, EVIL.split("\n")))}
    assert visible("ü a\\b \x1b\ud800\u202e") == "ü a\\b \\x1b\\ud800\\u202e"
