"""Every setting of a run: its default, its bounds and its sentence of help."""

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from fednode.members import clients_a_round, default_survivors, member_names
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


_CACHE = re.compile(
    r"file|memory"
    r"|rediss?(\+cluster)?://([\w.%~-]+@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[0-9]{1,5})?/?"
    r"|unix://([\w.%~-]+@)?/[^?#@]+(\?db=[0-9]{1,5})?",
    re.ASCII,
)


def _cache_location(value: str) -> str:
    """Refuse an unknown location, and a password: settings are written into the run's folder and its report.

    No sentence repeats the value, which may hold a password.
    """
    if _CACHE.fullmatch(value):
        return value
    before, at, _ = value.rpartition("@")
    if at and ":" in before.partition("//")[2]:
        raise ValueError("the address contains a password; put it into a file and name that by --cache-password-file")
    raise ValueError(
        "unknown cache location; expected file, memory, redis://[USER@]HOST[:PORT][/DB], rediss:// (TLS), "
        "redis+cluster:// or unix:///SOCKET"
    )


_ADDRESS = re.compile(r"(?:([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})", re.ASCII)


def _http_address(value: object) -> object:
    found = _ADDRESS.fullmatch(str(value)) if type(value) in (str, int) else None
    if found is None or int(found[2]) > 65_535:
        raise ValueError("expected PORT or HOST:PORT, as 9100")
    return f"{found[1] or '127.0.0.1'}:{found[2]}"


def _sign(value: str) -> str:
    sign = {"tab": "\t", "\\t": "\t"}.get(value, value)
    if len(sign) != 1 or sign in '"\r\n':
        raise ValueError("expected one sign, such as ; or tab")
    return sign


def _known_encoding(value: str) -> str:
    try:
        return codecs.lookup(value).name
    except LookupError as error:
        raise ValueError("Python knows no encoding of that name; utf-8 and cp1252 are common") from error


Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Real = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]
Delimiter = Annotated[str, AfterValidator(_sign)]
Encoding = Annotated[Name, AfterValidator(_known_encoding)]
Location = Annotated[Path, AfterValidator(_writable)]
Cache = Annotated[Name, AfterValidator(_cache_location)]
HttpAddress = Annotated[str, BeforeValidator(_http_address)]
Faults = Annotated[tuple[Fault, ...], BeforeValidator(_read_faults), AfterValidator(_as_named)]

_DATA, _ROUNDS, _PRIVACY, _COMMITTEE = "Data", "Rounds", "Privacy", "Committee"
_CACHING, _FLOORS, _RUNNING = "Cache", "Floors of clients and holders", "Running"
_REPORT = "Report"


def _setting(panel: str, default: object, description: str, **bounds: Any) -> Any:
    """A field with its help, under a heading of `--help`. `...` as a default: computed from the other settings."""
    if default is ...:
        bounds["default_factory"] = _default_survivors
    else:
        bounds["default"] = default
    return Field(description=description, json_schema_extra={"panel": panel}, **bounds)


def _default_survivors(validated: dict[str, Any]) -> int:
    clients, rounds = int(validated.get("clients", 20)), int(validated.get("rounds", 20))
    return default_survivors(clients_a_round(clients, rounds, validated.get("rounds_per_client")))


class SettingFields(BaseModel):
    """Every setting. `min_survivors` is never empty; what is None follows from the others in the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Name = _setting(_DATA, "customer-service", "Installed study: data, features and model.")
    data: Name = _setting(_DATA, "support", "support, banking77, or a CSV file.")
    data_dir: Location | None = _setting(_DATA, None, "Folder with the files of banking77.")
    text_column: Name = _setting(_DATA, "text", "The CSV column with the message.")
    label_column: Name = _setting(_DATA, "label", "The CSV column with the intent.")
    customer_column: Name | None = _setting(_DATA, None, "The CSV column with the customer: each is dealt whole.")
    delimiter: Delimiter = _setting(_DATA, ",", "What stands between the columns of a CSV file: one sign, or tab.")
    encoding: Encoding = _setting(_DATA, "utf-8", "How a CSV file is encoded, such as utf-8 or cp1252.")
    vectors: Location | None = _setting(_DATA, None, "Sentence vectors (.npz) in place of hashed features.")
    preparation: Location | None = _setting(_DATA, None, "Public whitening and start, from `fednode prepare`.")
    features: Whole = _setting(_DATA, 1024, "Length of a hashed feature vector.", ge=16, le=65536)
    partition: Literal["iid", "dirichlet"] = _setting(_DATA, "iid", "How records are dealt to clients.")
    alpha: Real = _setting(_DATA, 0.5, "Dirichlet skew: small is uneven.", gt=0, le=1e6)
    seed: Whole = _setting(_DATA, 0, "Deals the records; never used for noise.", ge=0, le=2**63 - 1)

    clients: Whole = _setting(_ROUNDS, 20, "How many clients take part.", ge=2, le=100_000)
    rounds: Whole = _setting(_ROUNDS, 20, "How many rounds to run.", ge=1, le=100_000)
    rounds_per_client: Whole | None = _setting(
        _ROUNDS, None, "Rounds in which each client takes part, drawn at random [default: all].", ge=1
    )
    min_survivors: Whole = _setting(
        _ROUNDS, ..., "Fewest updates a round may open [default: 3/4 of the clients in a round].", ge=2
    )
    deadline: Real = _setting(_ROUNDS, 60.0, "Seconds that a round waits for updates.", gt=0, le=86_400)
    staleness: Whole = _setting(
        _ROUNDS, 0, "Versions that the model of an update may lag behind the round's.", ge=0, le=1_000
    )
    server_optimiser: Literal["sgd", "momentum", "adam"] = _setting(
        _ROUNDS, "sgd", "How the node steps, with unit client: FedAvg, FedAvg with momentum 0.9, FedAdam."
    )
    schedule: Literal["linear", "constant"] = _setting(
        _ROUNDS, "linear", "Server steps that shrink to zero by the same amount each round, or that stay as long."
    )
    learning_rate: Real | None = _setting(_ROUNDS, None, "Server step [default: what suits the budget].", gt=0, le=1e6)
    local_epochs: Whole = _setting(_ROUNDS, 5, "Epochs of local training, with unit client.", ge=1, le=10_000)
    local_rate: Real = _setting(_ROUNDS, 1.0, "Step of local training, with unit client.", gt=0, le=1e6)
    local_batch: Whole = _setting(_ROUNDS, 32, "Records in a batch of local training.", ge=1, le=1_000_000)
    proximal: Real = _setting(_ROUNDS, 0.0, "Weight of FedProx's proximal term in local training.", ge=0, le=1e6)

    epsilon: Real = _setting(_PRIVACY, 8.0, "Privacy budget of the whole run.", gt=0, le=50)
    delta: Real = _setting(_PRIVACY, 1e-5, "Chance left outside that budget.", gt=0, lt=1)
    unit: Literal["record", "customer", "client"] = _setting(
        _PRIVACY, "record", "What the budget protects: one record, one customer of a client, or one client."
    )
    clip: Real = _setting(_PRIVACY, 1.0, "L2 bound on what one unit adds, as on a record's gradient.", gt=0, le=1e6)
    clip_quantile: Real | None = _setting(
        _PRIVACY, None, "Share of updates that an adaptive clip leaves whole; it begins at clip.", gt=0, lt=1
    )
    grid_bits: Whole | None = _setting(
        _PRIVACY, None, "Rounding to multiples of 2^-BITS [default: what costs neither noise nor bytes].", ge=0, le=40
    )
    population: Name | None = _setting(
        _PRIVACY, None, "Name or file of the ledger that all runs over these records charge [default: the data set]."
    )
    assumed_colluders: Whole = _setting(_PRIVACY, 1, "Survivors whose noise is not counted on.", ge=0)

    scheme: Literal["ring", "bfv"] = _setting(
        _COMMITTEE, "ring", "Secure sum: ring; or bfv, the reference, where one lie of the node opens every update."
    )
    holders: Whole = _setting(_COMMITTEE, 5, "Key holders that guard the sum.", ge=2, le=10)
    threshold: Whole = _setting(_COMMITTEE, 4, "Holders it takes to open a sum.", ge=2, le=10)

    cache: Cache = _setting(
        _CACHING,
        "file",
        "Where updates wait and the model is kept: file, memory, or a Redis server: "
        "redis://[USER@]HOST[:PORT][/DB], rediss:// (TLS), redis+cluster://, unix:///SOCKET.",
    )
    cache_password_file: Location | None = _setting(_CACHING, None, "File with the Redis password.")
    cache_ca: Location | None = _setting(_CACHING, None, "PEM file of who signs the Redis server.")
    cache_certificate: Location | None = _setting(_CACHING, None, "PEM file of the node's own certificate for Redis.")
    cache_key: Location | None = _setting(_CACHING, None, "PEM file of that certificate's key.")

    metrics: HttpAddress | None = _setting(
        _CACHING,
        None,
        "Serve the numbers of run and caches to Prometheus while the run lasts, at PORT of this machine or HOST:PORT.",
    )

    min_noise: Real = _setting(
        _FLOORS, 0.5, "Least noise, in clips, under which a client still takes part.", ge=0, le=1e6
    )
    floor_survivors: Whole = _setting(
        _FLOORS, 2, "Fewest survivors under which clients and holders still take part.", ge=2
    )
    max_rounds: Whole = _setting(_FLOORS, 1000, "Most rounds of one task in which a member takes part.", ge=1)

    title: Name | None = _setting(_REPORT, None, "What the report is called.")
    organisation: Name | None = _setting(_REPORT, None, "Who answers for the run.")
    purpose: Name | None = _setting(_REPORT, None, "What the model is for.")
    contact: Name | None = _setting(_REPORT, None, "Whom a reader of the report can ask.")

    engine: Literal["inproc", "flower"] = _setting(_RUNNING, "inproc", "One process, or Flower's simulation.")
    out: Location = _setting(_RUNNING, Path("runs"), "Folder of runs and of their populations' ledgers.")
    faults: Faults = _setting(
        _RUNNING, (), "Faults to inject: KIND@ROUND:MEMBER, as garbage@3:client-04; repeat the flag or use commas."
    )
