"""Settings written as TOML that `resolve` reads to the same value."""

from pathlib import Path

import tomli_w

from fednode.settings.model import RunSettings


def to_toml(settings: RunSettings) -> str:
    """All settings as resolved. What is None stands as a comment: TOML has no null."""
    values = {name: getattr(settings, name) for name in RunSettings.model_fields}
    given = {name: _plain(value) for name, value in values.items() if value is not None}
    return tomli_w.dumps(given) + "".join(f"# {name} is not set\n" for name, value in values.items() if value is None)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return str(value) if isinstance(value, Path) else value
