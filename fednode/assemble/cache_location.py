"""Where `--cache` puts updates and model: checked before a run has a folder, and reached before anything costs time."""

import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fednode.clock import SystemClock
from fednode.errors import ConfigError
from fednode.settings import RunSettings

if TYPE_CHECKING:
    from fednode.cache.redis.address import RedisAddress


def on_server(settings: RunSettings) -> bool:
    """Whether updates and model are on a Redis server."""
    return settings.cache not in ("file", "memory")


def require_usable(settings: RunSettings) -> None:
    """Read all files that the cache needs, and the address; asks no server. Raises `ConfigError`."""
    if on_server(settings):
        server_address(settings)
        _require_pem(settings.cache_ca, settings.cache_certificate, settings.cache_key)


def reach_server(settings: RunSettings) -> None:
    """Return if there is no server, or it lets us in and evicts nothing.

    Raises `StoreError` if it cannot be reached or refuses, `ConfigError` if it could evict.
    """
    if not on_server(settings):
        return
    from fednode.cache import Limits
    from fednode.cache.redis.backend import RedisBackend
    from fednode.cache.redis.records import RedisOptions

    # reads under a name that nothing is written to
    options = RedisOptions("fednode.reach", Limits(1, 1, 1), pins=True)
    RedisBackend(server_address(settings), options, SystemClock()).close()


def server_address(settings: RunSettings) -> "RedisAddress":
    """The server that `--cache` names, with the password and the TLS files. Raises `ConfigError`."""
    from fednode.cache.redis.address import RedisAddress, TlsFiles

    files = settings.cache_ca, settings.cache_certificate, settings.cache_key
    scheme, _, rest = settings.cache.partition("://")
    plain, _, cluster = scheme.partition("+")
    password = _password(settings.cache_password_file)
    if password is None and urlsplit(settings.cache).username:
        raise ConfigError("--cache names a user without a password; name the file that holds it: --cache-password-file")
    tls = TlsFiles(*files) if any(files) else None
    return RedisAddress.parse(f"{plain}://{rest}", tls, password, cluster=bool(cluster))


def kept_where(settings: RunSettings) -> str:
    """Where updates and model are, for `--dry-run`; without user and password."""
    if settings.cache == "file":
        return "file: updates and model in the run's folder, .updates-*, until it ends"
    if settings.cache == "memory":
        return "memory: updates and model in this process"
    scheme, _, rest = settings.cache.partition("://")
    host, slash, path = rest.partition("/")
    shown = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    return f"{shown}: updates and model on that server, which --dry-run does not ask"


def cache_warnings(settings: RunSettings) -> list[str]:
    """A warning if the connection to the cache server can be read and changed on its way."""
    url = urlsplit(settings.cache)
    if url.scheme not in ("redis", "redis+cluster") or _is_here(url.hostname or ""):
        return []
    password = "the password, " if settings.cache_password_file else ""
    warning = (
        f"the connection to the cache server {url.hostname} has no TLS: whoever is on it can read {password}who took "
        "part and when, the sealed updates and every version of the model, and change them; rediss:// has TLS"
    )
    return [warning]


def _require_pem(ca: Path | None, certificate: Path | None, key: Path | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca is not None:
            context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{ca} cannot be used as --cache-ca: {_reason(error)}; give a PEM file") from error
    try:
        if certificate is not None:
            # without a password of its own, OpenSSL would ask the terminal for one
            context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{certificate} and {key} cannot be used as --cache-certificate and --cache-key: {_reason(error)}; give "
            "the PEM files of a certificate and its key, which no password protects"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)


def _password(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        found = path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"the password in {path} cannot be read: {reason}; check --cache-password-file") from error
    if not found:
        raise ConfigError(f"{path} is empty; write the password into it, or leave --cache-password-file out")
    return found


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
