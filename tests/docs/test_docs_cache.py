"""docs/cache.md: its blocks run in order, what it names is there, the commands it asks an ACL for are enough."""

import re
import subprocess
import sys
from pathlib import Path

from kit.cache.redis_server import RedisServer, free_port

import fednode.cache
from fednode.cache import Limits, MemoryBackend, RedisAddress, RedisBackend, RedisOptions, near
from fednode.cache.redis.lease import namespace_of
from fednode.clock import SystemClock

TEXT = (Path(__file__).resolve().parents[2] / "docs/cache.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
ADDRESS = '"redis://localhost:6379"'
SECRET = "of-the-test"


def test_the_blocks_run_as_one_program(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--maxmemory", "100mb") as server:
        program = "\n".join(BLOCKS).replace(ADDRESS, repr(f"unix://{server.socket}"))
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        told = subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert (told.returncode, told.stderr) == (0, "")
        assert list(server.client().scan_iter()) == []
    assert len(BLOCKS) >= 6 and sum(ADDRESS in block for block in BLOCKS) == 1


def test_what_is_imported_is_public() -> None:
    for line in re.findall(r"^from fednode\.cache import (.+)$", "\n".join(BLOCKS), flags=re.MULTILINE):
        assert set(line.split(", ")) <= set(fednode.cache.__all__)
    assert all(hasattr(fednode.cache, name) for name in fednode.cache.__all__)


def test_importing_the_cache_loads_neither_redis_nor_torch() -> None:
    code = "import fednode.cache, sys; print(sorted({'redis', 'torch', 'numba'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"


def commands(row: str) -> list[str]:
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {row}")]
    return line.replace("\\|", "|").split(" | ", 1)[1].replace("`", " ").replace(",", " ").strip(" |").split()


def granted(server: RedisServer, *rows: str) -> list[str]:
    rules = [word for row in rows for word in commands(row) if word.startswith("+")]
    server.client().execute_command("ACL", "SETUSER", "node", "reset", "on", f">{SECRET}", "~mine:*", *rules)
    return rules


def use(address: RedisAddress) -> None:
    with RedisBackend(
        address, RedisOptions("mine", Limits(10, 1 << 20, 1 << 16), piece_bytes=1_000, pins=True), SystemClock()
    ) as backend:
        backend.pin("pin", bytes(3_000))
        backend.set_many({"a": 1, "b": bytes(3_000)}, 60.0)
        assert (backend.get("a"), backend.delete("pin"), sorted(backend.keys())) == (1, True, ["a", "b"])
        backend.clear()


def test_the_commands_of_the_table_are_enough(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        granted(server, "every backend", "pins", "a near cache", "a database")
        use(RedisAddress.parse(f"unix://node@{server.socket}?db=3", password=SECRET))
        address = RedisAddress(socket=server.socket, user="node", password=SECRET)
        clock, limits = SystemClock(), Limits(10, 1 << 20, 1 << 16)
        with (
            RedisBackend(address, RedisOptions("mine"), clock) as far,
            near(MemoryBackend(clock, limits), far) as tiered,
        ):
            assert tiered.near.followed


def test_the_commands_of_the_table_are_enough_in_a_cluster(tmp_path: Path) -> None:
    port = free_port()
    options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--bind", "127.0.0.1"]
    with RedisServer(tmp_path, *options, port=port) as server:
        server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        granted(server, "every backend", "pins", "a cluster")
        clock = SystemClock()
        deadline = clock.now() + 20.0
        while "ok" not in str(server.client().execute_command("CLUSTER", "INFO")).partition("slots")[0]:
            assert clock.now() < deadline
            clock.sleep(0.02)
        use(RedisAddress("127.0.0.1", port, user="node", password=SECRET, cluster=True))


def test_the_pattern_for_what_a_killed_run_leaves_is_that_of_its_names() -> None:
    assert namespace_of("<run-id>", "updates") == "fednode.<run-id>.updates" and "'fednode.<run-id>.*'" in TEXT
