"""Every setting of a run with its default, its bounds and its sentence of help; and how settings bind each other."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from fednode.members import member_names
from fednode.settings.clash import find_clash
from fednode.settings.faults import Fault, parse_fault


def _no_truth_value(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _read_faults(value: object) -> object:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        return value
    parts = [part for item in value for part in (item.split(",") if isinstance(item, str) else [item])]
    return tuple(parse_fault(part) if isinstance(part, str) else part for part in parts if part != "")


def _as_named(faults: tuple[Fault, ...], info: ValidationInfo) -> tuple[Fault, ...]:
    counts = {role: info.data.get(f"{role}s") for role in ("client", "holder")}
    names = {role: member_names(role, count) for role, count in counts.items() if count is not None}
    return tuple(fault.named_as(names.get(fault.role, ())) for fault in faults)


def _writable(value: Path) -> Path:
    _no_nul(str(value))
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise ValueError("the path is not valid UTF-8; rename it") from error
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("a NUL character cannot be part of a name; remove it")
    return value


def _default_survivors(validated: dict[str, Any]) -> int:
    return -(-3 * int(validated.get("clients", 20)) // 4)


_CACHE = re.compile(
    r"file|memory"
    r"|rediss?(\+cluster)?://([\w.%~-]+@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[0-9]{1,5})?/?"
    r"|unix://([\w.%~-]+@)?/[^?#@]+(\?db=[0-9]{1,5})?",
    re.ASCII,
)


def _cache_place(value: str) -> str:
    """Refuse what is no place, and a password: settings are written into the run's folder and its report.

    The value is in no sentence: whatever it is, it may hold a password.
    """
    if _CACHE.fullmatch(value):
        return value
    before, at, _ = value.rpartition("@")
    if at and ":" in before.partition("//")[2]:
        raise ValueError(
            "a password stands in the address: put it into a file and name that with --cache-password-file"
        )
    raise ValueError(
        "that is no place for a cache: give file, memory, redis://[USER@]HOST[:PORT][/DB], rediss:// (TLS), "
        "redis+cluster:// or unix:///SOCKET"
    )


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Real = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]
Place = Annotated[Path, AfterValidator(_writable)]
Cache = Annotated[Name, AfterValidator(_cache_place)]
Faults = Annotated[tuple[Fault, ...], BeforeValidator(_read_faults), AfterValidator(_as_named)]


def _panel(name: str) -> dict[str, Any]:
    return {"panel": name}


class RunSettings(BaseModel):
    """Everything that decides what a run does; frozen, complete, and free of contradictions once it exists.

    `min_survivors` is never empty: left out, it is three quarters of the clients, rounded up. `learning_rate` stays
    None where the data's own default shall hold. Raises pydantic's ValidationError, which `resolve` turns into a
    ConfigError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Name = Field(
        "customer-service", description="Installed study: data, features, model.", json_schema_extra=_panel("Data")
    )
    data: Name = Field("support", description="support, banking77, or a CSV file.", json_schema_extra=_panel("Data"))
    data_dir: Place | None = Field(
        None, description="Folder with the files of banking77.", json_schema_extra=_panel("Data")
    )
    text_column: Name = Field("text", description="The CSV column with the message.", json_schema_extra=_panel("Data"))
    label_column: Name = Field("label", description="The CSV column with the intent.", json_schema_extra=_panel("Data"))
    vectors: Place | None = Field(
        None, description="Sentence vectors (.npz) in place of hashed features.", json_schema_extra=_panel("Data")
    )
    features: Whole = Field(
        1024, ge=16, le=65536, description="Length of a hashed feature vector.", json_schema_extra=_panel("Data")
    )
    partition: Literal["iid", "dirichlet"] = Field(
        "iid", description="How records are dealt to clients.", json_schema_extra=_panel("Data")
    )
    alpha: Real = Field(
        0.5, gt=0, le=1e6, description="Dirichlet skew: small is uneven.", json_schema_extra=_panel("Data")
    )
    seed: Whole = Field(
        0, ge=0, le=2**63 - 1, description="Deals the records; never used for noise.", json_schema_extra=_panel("Data")
    )

    clients: Whole = Field(
        20, ge=2, le=100_000, description="How many clients take part.", json_schema_extra=_panel("Rounds")
    )
    rounds: Whole = Field(
        20, ge=1, le=100_000, description="How many rounds to run.", json_schema_extra=_panel("Rounds")
    )
    min_survivors: Whole = Field(
        default_factory=_default_survivors,
        ge=2,
        description="Fewest updates a round may open [default: 3/4 of the clients].",
        json_schema_extra=_panel("Rounds"),
    )
    deadline: Real = Field(
        60.0, gt=0, le=86_400, description="Seconds that a round waits for updates.", json_schema_extra=_panel("Rounds")
    )
    staleness: Whole = Field(
        0,
        ge=0,
        le=1_000,
        description="Versions that the model of an update may lag behind the round's.",
        json_schema_extra=_panel("Rounds"),
    )
    learning_rate: Real | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Server step [default: what suits the data].",
        json_schema_extra=_panel("Rounds"),
    )

    epsilon: Real = Field(
        8.0, gt=0, le=1e6, description="Privacy budget of the whole run.", json_schema_extra=_panel("Privacy")
    )
    delta: Real = Field(
        1e-5, gt=0, lt=1, description="Chance left outside that budget.", json_schema_extra=_panel("Privacy")
    )
    clip: Real = Field(
        1.0, gt=0, le=1e6, description="L2 bound on one record's gradient.", json_schema_extra=_panel("Privacy")
    )
    grid_bits: Whole = Field(
        16, ge=8, le=24, description="Values are rounded to multiples of 2^-BITS.", json_schema_extra=_panel("Privacy")
    )
    assumed_colluders: Whole = Field(
        1, ge=0, description="Survivors whose noise is not counted on.", json_schema_extra=_panel("Privacy")
    )

    scheme: Literal["ring", "bfv"] = Field(
        "ring",
        description="Secure sum: ring; or bfv, the reference, where one lie of the node opens every update.",
        json_schema_extra=_panel("Committee"),
    )
    holders: Whole = Field(
        5, ge=2, le=16, description="Key holders that guard the sum.", json_schema_extra=_panel("Committee")
    )
    threshold: Whole = Field(
        4, ge=2, le=16, description="Holders it takes to open a sum.", json_schema_extra=_panel("Committee")
    )

    cache: Cache = Field(
        "file",
        description="Where updates wait and the model is kept: file, memory, or a Redis server: "
        "redis://[USER@]HOST[:PORT][/DB], rediss:// (TLS), redis+cluster://, unix:///SOCKET.",
        json_schema_extra=_panel("Cache"),
    )
    cache_password_file: Place | None = Field(
        None, description="File with the Redis password.", json_schema_extra=_panel("Cache")
    )
    cache_ca: Place | None = Field(
        None, description="PEM file of who signs the Redis server.", json_schema_extra=_panel("Cache")
    )
    cache_certificate: Place | None = Field(
        None, description="PEM file of the node's own certificate for Redis.", json_schema_extra=_panel("Cache")
    )
    cache_key: Place | None = Field(
        None, description="PEM file of that certificate's key.", json_schema_extra=_panel("Cache")
    )

    min_noise: Real = Field(
        0.5,
        ge=0,
        le=1e6,
        description="Least noise, in clips, under which a client still takes part.",
        json_schema_extra=_panel("Floors of clients and holders"),
    )
    floor_survivors: Whole = Field(
        2,
        ge=2,
        description="Fewest survivors under which clients and holders still take part.",
        json_schema_extra=_panel("Floors of clients and holders"),
    )
    max_rounds: Whole = Field(
        1000,
        ge=1,
        description="Most rounds of one task in which a member takes part.",
        json_schema_extra=_panel("Floors of clients and holders"),
    )

    engine: Literal["inproc", "flower"] = Field(
        "inproc", description="One process, or Flower's simulation.", json_schema_extra=_panel("Running")
    )
    out: Place = Field(Path("runs"), description="Where the run's folder is made.", json_schema_extra=_panel("Running"))
    faults: Faults = Field(
        (),
        description="Faults to inject: KIND@ROUND:MEMBER, as garbage@3:client-04; repeat the flag or use commas.",
        json_schema_extra=_panel("Running"),
    )

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        clash = find_clash(self)
        if clash is not None:
            raise clash
        return self
