"""The address of a Redis or Valkey server with its credentials, and the names of our keys there."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import SplitResult, quote_from_bytes, unquote, unquote_to_bytes, urlsplit

from fednode.cache.values.pieces import key_bytes
from fednode.errors import ConfigError

_FORMS: Final = "redis://[user[:password]@]host[:port][/db], rediss://... (TLS) or unix:///path[?db=0]"
_PORT: Final = 6379
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the authorities for the server's certificate (None: the system's), and our own certificate if any."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate for the cache server needs its key beside it; give both or none")
        for path in (self.ca, self.certificate, self.key):
            if path is not None and not path.is_file():
                raise ConfigError(f"{path} is not a file; give the PEM file for the cache server's TLS")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One server, or with `cluster` any node of a cluster. Its password appears in no repr and no error."""

    host: str = ""
    port: int = _PORT
    socket: Path | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    cluster: bool = False

    @classmethod
    def parse(
        cls, text: str, tls: TlsFiles | None = None, password: str | None = None, *, cluster: bool = False
    ) -> Self:
        """The address in the URL `text`; `password` is used if the URL has none.

        Raises `ConfigError`, which never repeats `text`, as it may contain a password.
        """
        try:
            url = urlsplit(text)
            port = _PORT if url.port is None else url.port
        except ValueError:
            # the message of urlsplit may contain a part of the password
            raise ConfigError(f"the address of the cache server is not a URL; write {_FORMS}") from None
        if url.scheme not in ("redis", "rediss", "unix") or url.fragment:
            raise ConfigError(f"the address of the cache server has another form; write {_FORMS}")
        if tls is not None and url.scheme != "rediss":
            raise ConfigError("TLS files were given for a cache server without TLS; write rediss:// or leave them out")
        user, password = _credentials(url, password)
        if url.scheme == "unix":
            return cls(socket=_socket(url, cluster=cluster), db=_database(url), user=user, password=password)
        if not port:
            raise ConfigError("the cache server's port is 0; write 1 to 65535, or none for 6379")
        if not url.hostname or url.query:
            raise ConfigError(f"the address of the cache server lacks a host, or has a query; write {_FORMS}")
        db = _database(url)
        if cluster and db:
            raise ConfigError(f"a cluster has database 0 alone; leave /{db} out of the cache server's address")
        files = (tls or TlsFiles()) if url.scheme == "rediss" else None
        return cls(url.hostname, port, None, db, user, password, files, cluster)

    def __str__(self) -> str:
        """For people and logs: no user, no password."""
        return str(self.socket) if self.socket else f"{self.host}:{self.port}"


def _credentials(url: SplitResult, apart: str | None) -> tuple[str | None, str | None]:
    user = unquote(url.username) if url.username else None
    password = unquote(url.password) if url.password is not None else apart
    if user is not None and password is None:
        raise ConfigError("the cache server's address names a user without a password; write user:password@")
    return user, password


def _socket(url: SplitResult, *, cluster: bool) -> Path:
    path = unquote(url.path)
    if url.hostname or url.port is not None or not path.startswith("/") or "\0" in path or cluster:
        raise ConfigError(f"a unix socket has an absolute path, no host, no port and no cluster; write {_FORMS}")
    return Path(path)


def _database(url: SplitResult) -> int:
    form, text = (r"(?:db=([0-9]{1,5}))?", url.query) if url.scheme == "unix" else (r"/?([0-9]{1,5})?", url.path)
    found = re.fullmatch(form, text)
    if found is None:
        raise ConfigError(f"the database of the cache server is not a number; write {_FORMS}")
    return int(found[1] or 0)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the keys of one namespace on the server.

    A record is `NS:v:{k<key>}`, a piece `NS:p:{k<key>}<generation>:<number>`, the key percent-encoded. So any text is
    a key, no key leaves the namespace, and the braces put all of a value into one slot of a cluster.
    """

    namespace: str

    def __post_init__(self) -> None:
        if not is_namespace(self.namespace):
            raise ConfigError("a cache namespace has 1 to 64 characters of A-Z a-z 0-9 _ . -; choose such a name")

    @property
    def records(self) -> bytes:
        """The prefix of all records, and of no piece."""
        return f"{self.namespace}:v:".encode()

    @property
    def everything(self) -> tuple[bytes, bytes]:
        """Patterns for SCAN that match exactly this namespace."""
        return self.records + b"*", f"{self.namespace}:p:*".encode()

    def record(self, key: str) -> bytes:
        """The name of a value's record."""
        return self.records + b"{k" + _quoted(key) + b"}"

    def pieces(self, key: str, generation: bytes, count: int) -> list[bytes]:
        """The names of a value's pieces, in order."""
        stem = f"{self.namespace}:p:".encode() + b"{k" + _quoted(key) + b"}" + generation.hex().encode()
        return [stem + b":%d" % number for number in range(count)]

    def beginning(self, prefix: str) -> bytes:
        """A pattern for SCAN that matches the records of all keys that begin with `prefix`."""
        return self.records + b"{k" + _quoted(prefix) + b"*"

    def probe(self, token: str) -> bytes:
        """A name with the prefix of records that belongs to no key."""
        return self.records + f"?{token}".encode()

    def key(self, record: bytes) -> str | None:
        """The key whose record has this name; None for other names, such as a probe's."""
        start = self.records + b"{k"
        if not (record.startswith(start) and record.endswith(b"}")):
            return None
        try:
            key = unquote_to_bytes(record[len(start) : -1]).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None
        # another program may have written a name that we would encode differently
        return key if self.record(key) == record else None


def is_namespace(name: str) -> bool:
    """Whether a namespace may have this name."""
    return _NAMESPACE.fullmatch(name) is not None


def _quoted(key: str) -> bytes:
    return quote_from_bytes(key_bytes(key), safe="/:").encode()
