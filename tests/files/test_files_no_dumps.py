"""Where keys are, nothing dumps the memory; each case in a process of its own, since there is no way back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PR_GET_DUMPABLE is Linux's")

STATE = """
def state():
    import ctypes, resource
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), list(resource.getrlimit(resource.RLIMIT_CORE))
"""
OPEN, SHUT = 1, [0, [0, 0]]


def told(code: str, *arguments: object) -> object:
    """What the last line that this code prints says, as JSON."""
    command = [sys.executable, "-c", f"import json, sys\n{STATE}\n{code}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return KeyFolder.create(tmp_path / "keys", "client-1", SigningKey.generate().public).path


def test_importing_changes_nothing() -> None:
    modules = "fednode.cli, fednode_clients.membership, fednode_clients.app, fednode.disk.no_dumps"
    found = told(f"import {modules}; print(json.dumps(state()))")
    assert isinstance(found, list) and found[0] == OPEN


def test_the_commands_with_keys_close_the_process(keys: Path) -> None:
    code = "from fednode.cli import main; assert main(['keys', 'show', sys.argv[1]]) == 0; print(json.dumps(state()))"
    assert told(code, keys) == SHUT


def test_a_run_closes_the_process_and_what_it_starts_dumps_nothing(tmp_path: Path) -> None:
    code = """
from fednode.cli.run import _run
from fednode.settings import RunSettings
import pathlib, subprocess
try:
    _run(RunSettings(data="gone.csv", out=pathlib.Path(sys.argv[1])))
except Exception: pass
child = subprocess.run(["sh", "-c", "ulimit -c"], capture_output=True, text=True).stdout.strip()
print(json.dumps([*state(), child]))
"""
    assert told(code, tmp_path) == [*SHUT, "0"]


@pytest.mark.parametrize("call", ["client", "holder", "query"])
def test_a_member_with_a_key_folder_of_its_own_closes_its_process(keys: Path, call: str) -> None:
    code = f"""
from fednode.protocol.requests import hello_request
from fednode.protocol.signed_requests import SignedRequest
from fednode_clients.membership import MemberParts, Members, NodeContext
members, place = Members(MemberParts()), NodeContext(1, {{"key-folder": sys.argv[1]}}, {{}})
before = state()[0]
members.{call}(place, *((SignedRequest(hello_request(bytes(32))),) if "{call}" == "query" else ()))
print(json.dumps([before, state()]))
"""
    assert told(code, keys) == [OPEN, SHUT]


def test_a_closed_process_still_does_what_members_do(tmp_path: Path) -> None:
    code = """
import multiprocessing.popen_fork, os, socket, threading
from fednode.disk.no_dumps import keep_keys_in_memory
os.chdir(sys.argv[1])
if os.getuid() == 0:
    # root may read everything anyway
    os.chown(".", 65534, 65534)
    os.setgid(65534); os.setuid(65534)
keep_keys_in_memory()
child = multiprocessing.get_context("fork").Process(target=lambda: open("made", "w").close())
child.start(); child.join()
peer, other = socket.socketpair()
thread = threading.Thread(target=other.sendall, args=(b"x",)); thread.start(); thread.join()
found = [os.path.exists("made"), len(os.listdir("/proc/self/fd")) > 2, peer.recv(1) == b"x"]
print(json.dumps([*found, "VmRSS" in open("/proc/self/status").read()]))
"""
    assert told(code, tmp_path) == [True] * 4
