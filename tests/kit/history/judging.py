"""A client's verdict on a round apart from the model: `Client.join` gives it to who has sent all of that too."""

from collections.abc import Mapping

from fednode.protocol.model import Basis
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.client import Client, _JoinedRound


def judge(client: Client, spec: RoundSpec, parts: Mapping[str, bytes] | None = None) -> bytes | None:
    """What was sealed for this very spec before, or None if it may be joined with the model that it names."""
    keys = client._box_keys(client._check(spec), spec, parts or {})
    earlier = client._earlier(spec)
    if earlier is None:
        client._joined = {spec.digest(): _JoinedRound(keys, Basis(spec.model_version, spec.model_digest))}
    return earlier
