"""The table of secure-sum schemes. A new scheme is a folder with a `scheme` module, and one line here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Final

from fednode_crypto.bfv import planner as bfv_planner
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.errors import WrongParameters
from fednode_crypto.interfaces import SumScheme
from fednode_crypto.params import Demand, SumParams
from fednode_crypto.ring import planner as ring_planner
from fednode_crypto.ring.params import RingParams


@dataclass(frozen=True, slots=True)
class SchemeEntry:
    """One scheme: the module whose `SCHEME` has its verbs, the type of its parameters, and its planner.

    `module` is imported on first use: it brings compiled kernels (`ring`) or TenSEAL (`bfv`).
    """

    module: str
    params: type[SumParams]
    candidates: Callable[[Demand], Iterable[SumParams]]


_SCHEMES: Final[Mapping[str, SchemeEntry]] = {
    "ring": SchemeEntry("fednode_crypto.ring.scheme", RingParams, ring_planner.candidates),
    "bfv": SchemeEntry("fednode_crypto.bfv.scheme", BfvParams, bfv_planner.candidates),
}


def entry(name: object) -> SchemeEntry:
    """Return the entry of the scheme called `name`. Raises WrongParameters for an unknown name."""
    if not isinstance(name, str) or name not in _SCHEMES:
        raise WrongParameters(f"unknown secure sum scheme {name!r:.40}: use {' or '.join(map(repr, _SCHEMES))}")
    return _SCHEMES[name]


def scheme(name: str) -> SumScheme:
    """Return the verbs of the scheme called `name`. Raises WrongParameters for an unknown name."""
    verbs: SumScheme = import_module(entry(name).module).SCHEME
    return verbs


def plan(scheme: str, demand: Demand) -> SumParams:
    """Return the parameters that serve `demand` with the smallest update, boxes included.

    Raises WrongParameters, with the numbers, if there are none.
    """
    found = min(entry(scheme).candidates(demand), key=lambda p: (p.upload_bytes, p.lanes), default=None)
    if found is None:
        raise WrongParameters(
            f"no parameters of scheme '{scheme}' hold sums up to {demand.value_bound} "
            f"(2^{demand.value_bound.bit_length()}) of {demand.summands} updates with {demand.threshold} of "
            f"{demand.holders} holders: take a coarser grid, fewer clients or fewer holders"
        )
    return found


def params_from_dict(document: object) -> SumParams:
    """Return the parameters in `document`: what `to_dict` gives, parsed from anyone's bytes.

    Raises WrongParameters for anything else: an unknown scheme, missing or unknown names, wrong types, values out of
    their limits.
    """
    if not isinstance(document, Mapping):
        raise WrongParameters("sum parameters must be an object of named values")
    kind = entry(document.get("scheme")).params
    names = {field.name for field in fields(kind)}
    if set(document) != names | {"scheme"}:
        raise WrongParameters(f"sum parameters of this scheme need exactly these names: {', '.join(sorted(names))}")
    lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
    values: dict[str, Any] = {**document, **lists}
    del values["scheme"]
    return kind(**values)
