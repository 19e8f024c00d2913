"""Settings written as TOML that `resolve` reads to the same value."""

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fednode.errors import ConfigError
from fednode.settings.model import RunSettings


def to_toml(settings: RunSettings) -> str:
    """All settings as resolved. What is None stands as a comment: TOML has no null."""
    values = {name: getattr(settings, name) for name in RunSettings.model_fields}
    given = {name: _plain(value) for name, value in values.items() if value is not None}
    return toml_text(given) + "".join(f"# {name} is not set\n" for name, value in values.items() if value is None)


def toml_text(values: Mapping[str, object]) -> str:
    """Values as TOML. Raises `ConfigError` for a text that is not Unicode, such as a path of other bytes."""
    text = tomli_w.dumps(values)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = text[: error.start].rpartition("\n")[2] + text[error.start :].partition("\n")[0]
        raise ConfigError(f"{bad} is not valid UTF-8; use a folder or a file of another name") from error
    return text


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return str(value) if isinstance(value, Path) else value
