"""Settings written back as TOML that `resolve` reads to the same value."""

import json
from pathlib import Path

from fednode.settings.model import RunSettings


def to_toml(settings: RunSettings) -> str:
    """Write all settings as resolved; what is None stands as a comment, since TOML has no word for it."""
    lines = []
    for name in RunSettings.model_fields:
        value = getattr(settings, name)
        lines.append(f"# {name} is not set" if value is None else f"{name} = {_literal(value)}")
    return "\n".join(lines) + "\n"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_quoted(str(item)) for item in value) + "]"
    if isinstance(value, str | Path):
        return _quoted(str(value))
    return repr(value)


def _quoted(text: str) -> str:
    # a JSON string is a TOML basic string, save that TOML wants DEL escaped too
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
