"""A redis-server of the test's own: on a unix socket or a free port, with any options; it ends what it started."""

import contextlib
import datetime as dt
import ipaddress
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kit.clocks import FakeClock

from fednode.cache import Limits, LinkOptions, RedisAddress, RedisBackend, RedisOptions, TlsFiles
from fednode.cache.redis.address import Names


def required() -> str:
    """The path of redis-server, or of what `FEDNODE_TEST_SERVER` names (valkey-server, say); skips where there is none,
    fails in CI."""
    name = os.environ.get("FEDNODE_TEST_SERVER", "redis-server")
    found = shutil.which(name)
    if found is None:
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say(f"{name} is not installed (Debian: apt-get install {name})")
    assert found is not None
    return found


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to connections: none takes it meanwhile."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class RedisServer:
    """One server process, running from the start. `folder` must be short enough for a socket's path (100 bytes)."""

    def __init__(self, folder: Path, *options: str, port: int = 0, tls: "Authority | None" = None) -> None:
        self._command = [required(), "--port", str(0 if tls else port), "--dir", str(folder), "--save", ""]
        self._command += ["--unixsocket", "s", "--daemonize", "no", "--enable-debug-command", "yes"]
        if tls is not None:
            self._command += ["--tls-port", str(port), *tls.server_options()]
        self._command += options
        self.folder, self.port, self.socket = folder, port, folder / "s"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> RedisAddress:
        return RedisAddress(socket=self.socket)

    def client(self, **arguments: object) -> redis.Redis:
        """A client of the tests' own."""
        return redis.Redis(unix_socket_path=str(self.socket), **arguments)  # type: ignore[arg-type]

    def names(self, pattern: str = "*") -> list[bytes]:
        return sorted(self.client().scan_iter(pattern))

    def pieces(self) -> list[bytes]:
        """The names of the pieces that backends of `opened_on` keep here."""
        return self.names("ns:p:*")

    def start(self) -> None:
        """Start, and wait until it says that it is ready."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said: list[bytes] = []
        assert self._process.stdout is not None
        watchdog = threading.Timer(20.0, self._process.kill)
        watchdog.start()
        for line in self._process.stdout:
            said.append(line)
            if b"eady to accept connections" in line:
                break
        watchdog.cancel()
        if self._process.poll() is not None:
            pytest.fail(f"redis-server ended at its start: {b''.join(said).decode(errors='replace')}")
        threading.Thread(target=_drain, args=(self._process,), daemon=True).start()
        self._wait_for_socket()

    def kill(self) -> None:
        """kill -9, paused or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.socket.unlink(missing_ok=True)
        self.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It stands still: takes connections, answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if self._process is not None:
                self._process.send_signal(signal.SIGCONT)

    def _wait_for_socket(self) -> None:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self.socket))
                return
            threading.Event().wait(0.01)
        pytest.fail("redis-server does not listen on its socket")


PIECES = 2_000
PATIENT = LinkOptions(timeout=20.0)


def opened_on(server: RedisServer, clock: Any = None, namespace: str = "ns", **options: Any) -> RedisBackend:
    """A backend with pieces of `PIECES` bytes."""
    given = {"limits": Limits(1_000, 1 << 30, 1 << 24), "piece_bytes": PIECES, "link": PATIENT} | options
    return RedisBackend(server.address, RedisOptions(namespace, **given), clock or FakeClock())


def record_of(key: str) -> bytes:
    """The name of its record."""
    return Names("ns").record(key)


def _drain(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    with process.stdout:
        for _ in process.stdout:
            pass


class Authority:
    """A certificate authority in `folder`, a server certificate for `host` and a client certificate."""

    def __init__(self, folder: Path, host: x509.GeneralName | None = None) -> None:
        self._folder = folder
        self._host = host or x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(self._signed(self._name, self._key, authority=True)))
        self.server, self.client = self._issue("server"), self._issue("client")

    def server_options(self) -> list[str]:
        certificate, key = self.server
        files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.ca)]
        return [*files, "--tls-auth-clients", "yes"]

    def files(self, *, client: bool = True) -> TlsFiles:
        certificate, key = self.client if client else (None, None)
        return TlsFiles(self.ca, certificate, key)

    def _issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(_pem(self._signed(subject, key, authority=False)))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([self._host]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
