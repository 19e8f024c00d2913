"""The control socket for real: who may come, what is too much, what is left behind."""

import errno
import os
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend
from fednode.errors import ConfigError, DataError, StoreError
from fednode.live import SOCKET_NAME, Inspectable, LiveNode, LiveView, StoreView, live_runs, unix_socket
from fednode.live.bounded_server import BoundedServer
from fednode.live.messages import MOST_ANSWERED, MOST_ASKED, parsed

ROOMY = Limits(entries=10_000, total_bytes=32 << 20, value_bytes=8 << 20)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memory(clock: FakeClock) -> MemoryBackend:
    return MemoryBackend(clock, ROOMY)


@pytest.fixture
def view(run: Path, memory: MemoryBackend, clock: FakeClock) -> Iterator[LiveView]:
    with LiveView(run / SOCKET_NAME, {"parameters": StoreView(memory)}, clock) as view:
        assert view.error is None
        yield view


def raw(run: Path) -> socket.socket:
    return unix_socket.connect(run / SOCKET_NAME, 20.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(5_000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it never came to that")


def received(connection: socket.socket) -> bytes:
    """Everything until the other end hangs up."""
    data = b""
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionError:
        pass
    return data


def test_one_asks_another_answers(run: Path, view: LiveView, memory: MemoryBackend) -> None:
    memory.set("k", bytes(3 << 20), None)
    with LiveNode(run) as node:
        name, stats = node.stats()
        (found,) = node.found("k")
        assert (name, stats["parameters"].entries) == ("run-1", 1)
        assert node.fetch(found, "k") == bytes(3 << 20)
        with pytest.raises(DataError, match="nothing under"):
            node.ask("get", key="absent")
        with pytest.raises(ConfigError, match="'stop'"):
            node.ask("stop")
        assert node.stats()[0] == "run-1"


def test_the_socket_is_private_and_gone_at_the_end(run: Path, memory: MemoryBackend, clock: FakeClock) -> None:
    before = threading.active_count()
    with LiveView(run / SOCKET_NAME, {}, clock):
        mode = (run / SOCKET_NAME).lstat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert names(run) == [SOCKET_NAME]
    assert (names(run), threading.active_count()) == ([], before)


def test_stores_may_come_later(run: Path, memory: MemoryBackend, clock: FakeClock) -> None:
    stores: dict[str, Inspectable] = {}
    with LiveView(run / SOCKET_NAME, stores, clock), LiveNode(run) as node:
        assert node.stats()[1] == {}
        stores["parameters"] = StoreView(memory)
        assert list(node.stats()[1]) == ["parameters"]


def test_the_socket_of_a_killed_run_is_replaced(run: Path, clock: FakeClock) -> None:
    dead = socket.socket(socket.AF_UNIX)
    with unix_socket.reachable(run, SOCKET_NAME) as path:
        dead.bind(path)
    dead.close()
    assert not unix_socket.answers(run / SOCKET_NAME)
    with LiveView(run / SOCKET_NAME, {}, clock), LiveNode(run) as node:
        assert node.stats()[0] == "run-1"


def test_a_living_node_keeps_its_socket(run: Path, view: LiveView, clock: FakeClock) -> None:
    with LiveView(run / SOCKET_NAME, {}, clock) as second:
        assert isinstance(second.error, StoreError)
        assert "another node answers" in str(second.error)
    with LiveNode(run) as node:
        assert list(node.stats()[1]) == ["parameters"]


def test_what_is_no_socket_is_left_alone(run: Path, clock: FakeClock) -> None:
    (run / SOCKET_NAME).write_text("mine")
    with LiveView(run / SOCKET_NAME, {}, clock) as view:
        assert "something else has that name" in str(view.error)
    assert (run / SOCKET_NAME).read_text() == "mine"


def test_without_a_folder_the_run_goes_on(tmp_path: Path, clock: FakeClock) -> None:
    with LiveView(tmp_path / "absent" / SOCKET_NAME, {}, clock) as view:
        assert "no socket can be made" in str(view.error)


def test_a_long_path_is_no_hindrance(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / ("x" * 120) / ("y" * 120)
    folder.mkdir(parents=True)
    with LiveView(folder / SOCKET_NAME, {}, clock) as view:
        assert view.error is None
        with LiveNode(live_runs(folder)[0]) as node:
            assert node.stats()[0] == "y" * 120
    assert names(folder) == []


def test_a_path_too_long_even_through_a_link_is_said_so(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with LiveView(folder / SOCKET_NAME, {}, clock) as view:
        assert "shorter TMPDIR" in str(view.error)
    assert names(folder) == []


@pytest.mark.parametrize(
    "request_line", [b"\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b"GET / HTTP/1.1\n", b'{"do":' + b"[" * 9_000 + b"\n"]
)
def test_nonsense_is_answered_and_the_next_caller_served(run: Path, view: LiveView, request_line: bytes) -> None:
    with raw(run) as connection:
        connection.sendall(request_line)
        assert parsed(connection.makefile("rb").readline())["ok"] is False
    with LiveNode(run) as node:
        assert node.stats()[0] == "run-1"


def test_a_request_without_end_is_cut(run: Path, view: LiveView) -> None:
    with raw(run) as connection:
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                connection.sendall(b"x" * MOST_ASKED)
        assert b"at most" in received(connection)
    with LiveNode(run) as node, pytest.raises(ConfigError, match="shorter key"):
        node.ask("get", key="x" * MOST_ASKED)


def test_many_requests_at_once_are_answered_in_order(run: Path, view: LiveView) -> None:
    with raw(run) as connection:
        connection.sendall(b'{"do":"stats"}\n{"do":"keys"}\nnonsense\n{"do":"knobs"}\n')
        lines = connection.makefile("rb")
        answers = [parsed(lines.readline()) for _ in range(4)]
    assert [sorted(answer)[0] for answer in answers] == ["ok", "keys", "cause", "fixed"]


def test_a_request_in_drops_is_answered(run: Path, view: LiveView) -> None:
    with raw(run) as connection:
        for byte in b'{"do":"stats"}\n':
            connection.sendall(bytes([byte]))
        assert parsed(connection.makefile("rb").readline())["run"] == "run-1"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedServer, "patience", 0.3)


@pytest.mark.usefixtures("impatient")
def test_who_says_nothing_is_hung_up_on(run: Path, view: LiveView) -> None:
    with raw(run) as idle:
        idle.sendall(b'{"do"')
        assert received(idle) == b""


@pytest.mark.usefixtures("impatient")
def test_who_trickles_is_hung_up_on_and_who_asks_again_and_again_is_not(run: Path, view: LiveView) -> None:
    pause = threading.Event()
    with raw(run) as slow, LiveNode(run) as node:
        with pytest.raises(ConnectionError):
            for _ in range(400):
                slow.sendall(b"x")
                pause.wait(0.02)
                assert node.stats()[0] == "run-1"
        for _ in range(10):
            pause.wait(0.02)
            assert node.stats()[0] == "run-1"


def test_without_a_thread_the_run_goes_on(run: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    open_before = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(threading.Thread, "start", refused)
    with LiveView(run / SOCKET_NAME, {}, clock) as view:
        assert isinstance(view.error, StoreError) and "thread" in str(view.error)
        assert (names(run), len(list(Path("/dev/fd").iterdir()))) == ([], open_before)


def test_without_descriptors_the_server_pauses_and_serves_later(
    run: Path, view: LiveView, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refused(_server: socketserver.TCPServer) -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with raw(run) as waiting:
        with monkeypatch.context() as patch:
            patch.setattr(socketserver.TCPServer, "get_request", refused)
            with raw(run):
                until(lambda: len(tries) >= 5)
        assert tries[4] - tries[0] >= 4 * 0.04
        waiting.sendall(b'{"do":"stats"}\n')
        assert parsed(waiting.makefile("rb").readline())["run"] == "run-1"


@pytest.mark.usefixtures("impatient")
def test_who_does_not_read_is_hung_up_on(run: Path, view: LiveView, memory: MemoryBackend) -> None:
    for number in range(2_000):
        memory.set("k" * 100 + str(number), b"", None)
    with raw(run) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.sendall(b'{"do":"keys","limit":10000}\n' * 300)
        with LiveNode(run) as node:
            assert node.stats()[0] == "run-1"
        until(lambda: view.callers == 0)
        assert len(received(lazy)) < 300 * 200_000
    with LiveNode(run) as node:
        assert node.stats()[0] == "run-1"


def test_who_vanishes_hurts_nobody(run: Path, view: LiveView, memory: MemoryBackend) -> None:
    memory.set("k", bytes(1 << 20), None)
    for _ in range(20):
        connection = raw(run)
        connection.sendall(b'{"do":"keys"}\n' * 50)
        connection.close()
    with LiveNode(run) as node:
        assert node.stats()[0] == "run-1"


def test_too_many_callers_are_turned_away_and_come_in_later(run: Path, view: LiveView) -> None:
    with ExitStack() as stack:
        inside = [stack.enter_context(LiveNode(run)) for _ in range(BoundedServer.most)]
        assert [node.stats()[0] for node in inside] == ["run-1"] * BoundedServer.most
        with LiveNode(run) as one_more, pytest.raises(DataError, match="no proper answer"):
            one_more.stats()
        assert inside[0].stats()[0] == "run-1"

    def served() -> bool:
        try:
            with LiveNode(run) as node:
                return node.stats()[0] == "run-1"
        except DataError:
            return False

    until(served)
    assert served()


def test_callers_of_other_users_are_turned_away(run: Path, view: LiveView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_socket, "is_ours", lambda _: False)
    with LiveNode(run) as node, pytest.raises(DataError):
        node.stats()
    monkeypatch.undo()
    with LiveNode(run) as node:
        assert node.stats()[0] == "run-1"


class Hanging(StoreView):
    """A store that does not answer until it is let go."""

    go = threading.Event()

    def stats(self) -> object:  # type: ignore[override]
        assert Hanging.go.wait(20)
        return super().stats()


def test_a_store_that_hangs_does_not_hold_the_run_up(run: Path, memory: MemoryBackend, clock: FakeClock) -> None:
    Hanging.go.clear()
    view = LiveView(run / SOCKET_NAME, {"parameters": Hanging(memory)}, clock)
    with view, raw(run) as connection:
        connection.sendall(b'{"do":"stats"}\n')
        until(lambda: view.callers == 1)
    assert not (run / SOCKET_NAME).exists()
    Hanging.go.set()
    until(lambda: view.callers == 0)
    assert view.callers == 0


def served_by(path: Path, answer: bytes) -> tuple[socket.socket, threading.Thread]:
    """A node that says `answer` to whatever it is asked, once."""
    listener = unix_socket.listen(path)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            try:
                connection.sendall(answer)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listener, thread


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"half",
        b"nonsense\n",
        b"[]\n",
        b"{}\n",
        b'{"ok":1}\n',
        b'{"ok":true}\n',
        b'{"ok":true,"run":"r","stores":{"a":{"entries":-1}}}\n',
        b"x" * (2 * MOST_ANSWERED),
    ],
)
def test_a_node_that_talks_nonsense_is_said_to(run: Path, answer: bytes) -> None:
    listener, thread = served_by(run / SOCKET_NAME, answer)
    with listener, LiveNode(run) as node, pytest.raises(DataError, match="no proper answer"):
        node.stats()
    thread.join(20)
    assert not thread.is_alive()


def test_the_newest_running_run_is_found(tmp_path: Path, clock: FakeClock) -> None:
    runs = tmp_path / "runs"
    folders = [runs / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir(parents=True)
    with pytest.raises(DataError, match="no run under"):
        live_runs(None, runs)
    with ExitStack() as stack:
        for folder in folders[:2]:
            stack.enter_context(LiveView(folder / SOCKET_NAME, {}, clock))
        os.utime(runs / "a" / SOCKET_NAME, (1, 1))
        dead = socket.socket(socket.AF_UNIX)
        with unix_socket.reachable(folders[2], SOCKET_NAME) as path:
            dead.bind(path)
        dead.close()
        assert live_runs(None, runs)[0] == runs / "b"
        assert live_runs(runs / "a", runs) == [runs / "a"]
        with pytest.raises(DataError, match="no node is running"):
            live_runs(runs / "c", runs)


@pytest.mark.thorough
def test_a_node_that_is_too_busy_to_let_anybody_in_is_running_all_the_same(run: Path, clock: FakeClock) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        with unix_socket.reachable(run, SOCKET_NAME) as path:
            listener.bind(path)
        listener.listen(0)
        stack.enter_context(unix_socket.connect(run / SOCKET_NAME, 1.0))
        assert unix_socket.answers(run / SOCKET_NAME)
        with LiveView(run / SOCKET_NAME, {}, clock) as view:
            assert "another node answers" in str(view.error)
