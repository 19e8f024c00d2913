"""The requests and answers of the live view as pydantic models: neither end trusts the other."""

import base64
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr, TypeAdapter, ValidationError

from fednode.errors import ConfigError, PeerFault
from fednode.live.messages import MOST_KEYS
from fednode.live.stats import Count, StoreStats
from fednode.reasons import Reason


def _from_base64(found: object) -> bytes:
    if not isinstance(found, str):
        raise ValueError("not base64 text")
    return base64.b64decode(found, validate=True)


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Data = Annotated[bytes, BeforeValidator(_from_base64)]
Name = Annotated[StrictStr, Field(min_length=1)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


# --- requests


class StatsRequest(_Message):
    """The numbers of all stores."""

    do: Literal["stats"]


class KeysRequest(_Message):
    """Keys that begin with `prefix`, at most `limit`; of `store`, or of all."""

    do: Literal["keys"]
    prefix: StrictStr = ""
    limit: Count = 100
    store: StrictStr = ""

    @property
    def most(self) -> int:
        """How many keys the answer may have."""
        return min(self.limit, MOST_KEYS)


class GetRequest(_Message):
    """What is under `key`: facts, without the value."""

    do: Literal["get"]
    key: StrictStr
    store: StrictStr = ""


class FetchRequest(_Message):
    """A piece, from `offset`, of the file of a value that `get` found."""

    do: Literal["fetch"]
    store: StrictStr
    key: StrictStr
    digest: StrictStr
    offset: Count = 0


class KnobsRequest(_Message):
    """What may be changed."""

    do: Literal["knobs"]
    store: StrictStr = ""


class TuneRequest(_Message):
    """Changes, all or none: store, knob and number of each."""

    do: Literal["tune"]
    changes: Annotated[list[tuple[Name, Name, Number]], Field(min_length=1)]


LiveRequest = StatsRequest | KeysRequest | GetRequest | FetchRequest | KnobsRequest | TuneRequest
_REQUESTS: Final[TypeAdapter[LiveRequest]] = TypeAdapter(Annotated[LiveRequest, Field(discriminator="do")])


def read_request(found: dict[str, Any]) -> LiveRequest:
    """The request in an object. Raises `ConfigError`."""
    try:
        return _REQUESTS.validate_python(found)
    except ValidationError as error:
        raise ConfigError(f"the node does not know this request: {_first(error)}") from error


# --- answers


class StatsAnswer(_Message):
    """The run's id, and the numbers of each store."""

    run: StrictStr
    stores: dict[StrictStr, StoreStats]


class KeysAnswer(_Message):
    """Store and key of each, and whether there are more."""

    keys: list[tuple[StrictStr, StrictStr]]
    more: StrictBool


class FoundValue(_Message):
    """The facts of one value: `digest` is the SHA-256 of its file, `size` the bytes that it counts in the cache."""

    store: StrictStr
    sealed: StrictBool
    kind: StrictStr
    size: Count
    digest: Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]
    dtype: StrictStr | None
    shape: Annotated[list[Count], Field(max_length=64)] | None
    ttl_left: Number | None
    version: Count | None


class GetAnswer(_Message):
    """The value in each store that has the key."""

    found: Annotated[list[FoundValue], Field(min_length=1)]


class FetchAnswer(_Message):
    """The bytes that the whole file has, and the next ones of it."""

    bytes: Count
    data: Data


class KnobsAnswer(_Message):
    """Store, name, value, meaning and range of each knob; the stores that have none."""

    knobs: list[tuple[StrictStr, StrictStr, Number, StrictStr, StrictStr]]
    fixed: list[StrictStr]


class TuneAnswer(_Message):
    """Store, name, old and new number of each change."""

    made: list[tuple[StrictStr, StrictStr, Number, Number]]


_Answer = TypeVar("_Answer", bound=BaseModel)


def read_answer(kind: type[_Answer], found: dict[str, Any]) -> _Answer:
    """The answer in an object. Raises `PeerFault("malformed")`."""
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        raise PeerFault(Reason.MALFORMED, _first(error)) from error


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, found["loc"]))
    return f"{where}: {found['msg']}" if where else found["msg"]
