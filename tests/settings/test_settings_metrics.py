"""Where `--metrics` serves: a port of this machine, unless a host is named."""

import pytest

from fednode.errors import ConfigError
from fednode.settings import resolve


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("9100", "127.0.0.1:9100"),
        (9100, "127.0.0.1:9100"),
        ("0.0.0.0:9100", "0.0.0.0:9100"),
        ("[::1]:9100", "[::1]:9100"),
        ("node.example:0", "node.example:0"),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(given: object, address: str) -> None:
    assert resolve(None, {}, {"metrics": given}).metrics == address


@pytest.mark.parametrize("given", ["", "host", "host:", ":9100", "70000", "-1", "http://host:1", True, 9.5])
def test_anything_else_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="metrics"):
        resolve(None, {}, {"metrics": given})
