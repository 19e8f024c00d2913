"""The one JSON encoding that is hashed, signed and compared anywhere in the project."""

import json
from collections.abc import Mapping


def canonical(value: Mapping[str, object]) -> bytes:
    """Return `value` as JSON with sorted keys, no spaces, in ASCII.

    Raises `ValueError` for NaN or infinity and `TypeError` for a value that JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
