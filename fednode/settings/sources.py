"""Where settings come from, in rising rank, and who is named when one of them is wrong."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fednode.errors import ConfigError
from fednode.settings.model import ClashError, RunSettings
from fednode.settings.nearest import guess, nearest

PREFIX: Final = "FEDNODE_"
_RENAMED: Final = {"z_min": "min_noise"}


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: str


def resolve(toml_path: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> RunSettings:
    """Settle every setting: the file gives way to the environment, the environment to the flags.

    An environment variable that is empty and a flag that is None count as not given. Raises ConfigError with one
    sentence that names the source (`fednode.toml` line 3, FEDNODE_CLIENTS, --clients) and the nearest valid name.
    """
    given: dict[str, _Given] = {}
    if toml_path is not None:
        given.update(_from_file(toml_path))
    given.update(_from_environment(environ))
    given.update(_from_flags(flags))
    try:
        return RunSettings.model_validate({name: one.value for name, one in given.items()})
    except ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0], given)) from None


def flag_name(field: str) -> str:
    """The flag that sets a field: `--min-survivors` for `min_survivors`."""
    return "--" + field.replace("_", "-")


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        # Windows editors begin a UTF-8 file with a byte-order mark
        text = path.read_bytes().decode("utf-8-sig")
        found = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        # TOMLDecodeError, and what tomllib lets through: numbers of thousands of digits, nesting without end
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    given = {}
    for key, value in found.items():
        source = _place(path, text, key)
        if key not in RunSettings.model_fields:
            raise ConfigError(f"{source}: unknown setting {key!r}{_meant(key, repr)}")
        given[key] = _Given(value, source)
    return given


def _place(path: Path, text: str, key: str) -> str:
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.match(line):
            return f"{path} line {number}, {key}"
    return f"{path}, {key}"


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or value == "":
            continue
        field = variable.removeprefix(PREFIX).lower()
        if field not in RunSettings.model_fields or variable != variable.upper():
            raise ConfigError(f"{variable} sets nothing{_meant(field, _variable_name)}")
        given[field] = _Given(value, variable)
    return given


def _from_flags(flags: Mapping[str, object]) -> dict[str, _Given]:
    given = {}
    for field, value in flags.items():
        if value is None or value == []:
            continue
        if field not in RunSettings.model_fields:
            raise ConfigError(f"{flag_name(field)} sets nothing{_meant(field, flag_name)}")
        given[field] = _Given(value, flag_name(field))
    return given


def _meant(name: str, written: Callable[[str], str]) -> str:
    """What else the name of a setting may have been, as it is `written` there; else where all of them are listed."""
    plain = name.lower().replace("-", "_")
    found = _RENAMED.get(plain) or nearest(plain, RunSettings.model_fields)
    return "; `fednode run --help` lists all settings" if found is None else f"; did you mean {written(found)}?"


def _variable_name(field: str) -> str:
    return PREFIX + field.upper()


def _sentence(error: ErrorDetails, given: Mapping[str, _Given]) -> str:
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ClashError):
        named = [given[field].source for field in cause.fields if field in given]
        return f"{cause} (set by {'; '.join(named)})" if named else str(cause)
    field = str(error["loc"][0]) if error["loc"] else ""
    source = given[field].source if field in given else field
    if cause is not None:
        return f"{source}: {cause}"
    return f"{source}: {error['input']!r} {_complaint(error)}"


def _complaint(error: ErrorDetails) -> str:
    """What is wrong with a value, in words that say what would be right."""
    bounds: dict[str, Any] = error.get("ctx", {})
    kind = error["type"]
    if kind == "literal_error":
        valid = [word.strip("'") for word in re.split(r", | or ", str(bounds["expected"]))]
        return f"is not one of {', '.join(valid)}{guess(str(error['input']), valid)}"
    if str(error["input"]).lower().lstrip("+-") in _NOT_FINITE:
        kind = "finite_number"
    phrase = _PHRASES.get(kind)
    return phrase.format(**bounds) if phrase else f"cannot be used: {error['msg']}"


_NOT_FINITE: Final = ("nan", "inf", "infinity")
_PHRASES: Final = {
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_parsing_size": "is too large",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not a finite number",
    "greater_than": "is too small: it must be greater than {gt}",
    "greater_than_equal": "is too small: it must be at least {ge}",
    "less_than": "is too large: it must be less than {lt}",
    "less_than_equal": "is too large: it must be at most {le}",
    "string_type": "is not text",
    "string_too_short": "is empty",
    "string_unicode": "is not valid UTF-8",
    "path_type": "is not a path",
    "tuple_type": "is not a list of faults",
}
