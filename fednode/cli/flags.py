"""One flag for every setting, generated from the settings."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, cast, get_args

import typer
from pydantic.fields import FieldInfo

from fednode.settings import RunSettings
from fednode.settings.sources import flag_name

_HAS_DEFAULT: Final = "[default"


def with_setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `command(own parameters, **flags)` one option for each setting, all None unless given.

    The options arrive as text: `resolve` checks values from flags, file and environment by the same rules.
    """
    known = inspect.signature(command).parameters.values()
    own = [p for p in known if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [_option(name, field) for name, field in RunSettings.model_fields.items()]

    def wrapped(**given: object) -> None:
        command(**given)

    wrapped.__doc__ = command.__doc__
    wrapped.__annotations__ = {p.name: p.annotation for p in (*own, *added)} | {"return": None}
    cast("Any", wrapped).__signature__ = inspect.Signature([*own, *added])
    return wrapped


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    extra = field.json_schema_extra
    panel = str(extra["panel"]) if isinstance(extra, dict) else "Settings"
    several = name == "faults"
    option = typer.Option(
        flag_name(name), help=_help(field), metavar=_metavar(name, field), rich_help_panel=panel, show_default=False
    )
    kind = Annotated[list[str] | None, option] if several else Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _help(field: FieldInfo) -> str:
    words = field.description or ""
    if _HAS_DEFAULT not in words and field.default not in (None, ()):
        words = f"{words} [default: {field.default}]"
    # square brackets are markup to rich
    return words.replace("[", r"\[")


def _metavar(name: str, field: FieldInfo) -> str:
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    if choices:
        return "|".join(choices)
    if name == "faults":
        return "FAULT"
    kind = str(field.annotation)
    return next((word for part, word in (("int", "N"), ("float", "X"), ("Path", "PATH")) if part in kind), "TEXT")
