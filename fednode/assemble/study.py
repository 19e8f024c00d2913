"""Studies: what is trained on which data. Others add theirs under the entry point group `fednode.studies`.

A study knows data and features. The rest of FedNode knows the arrays of the model, and public numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError
from fednode.protocol.model import Layout
from fednode.settings import RunSettings, guess

if TYPE_CHECKING:
    from fednode_clients.client.privatise import ClippedSum
    from fednode_clients.membership import NodeContext

KEPT_NOISE, KEPT_NOISE_OF_LAYERS = 0.22, 0.04
"""For one linear layer over rows of common length, and for any other module, whose parameters are small."""
GROUP = "fednode.studies"
PYTHON = "python"
"""The name of a study that is no installed one, but a task and arrays in the memory of a Python program."""

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is trained, on how many records: arrays and public numbers, no data.

    `unit` is what training bounds by the clip, and what the other counts count, of `fednode.units`. `records`, the
    divisor of every sum, is a public number near the total over all clients; a client that holds more than
    `max_records` contributes no more than so many. Choose both, with `rounded_up` for instance: the guarantee
    covers what a unit says and not how many there are, so exact counts would be given away. `model`, `dataset` and
    `source` stand in the report; `labels` is 0 where the model is no classifier; `summary` says in one line how large
    the data set is, and `warnings` what makes its figures say less than they seem to, a sentence each.
    `initial`, float64 [d], is the model that all start from, zeros without it; it has to be public, and `public_inputs`
    says of it, and of all else that was made beforehand, where it comes from. `kept_noise` is the most noise that the
    default path leaves in each parameter of the last model, in clips (docs/privacy.md): a linear model bears most.
    """

    layout: Layout
    records: int
    max_records: int
    model: str = "a model of the members' own app"
    dataset: str = "the members' own files"
    source: str = "read by each member alone"
    labels: int = 0
    summary: str = ""
    warnings: tuple[str, ...] = ()
    public_inputs: tuple[str, ...] = ()
    initial: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)
    unit: str = "record"
    kept_noise: float = KEPT_NOISE


def rounded_up(count: int) -> int:
    """Return `count` rounded up to two digits and to tens, to publish in its place: 8,100 for 8,003, 10 for 7."""
    unit: int = 10 ** max(1, len(str(count)) - 2)
    return -(-count // unit) * unit


class Evaluator(Protocol):
    """Tests and saves a model; a study's has its test records loaded."""

    def hits(self, arrays: Arrays) -> Mapping[str, tuple[int, int]]:
        """For each label of the test records: how many the model gets right, of how many; empty if there are none."""
        ...

    def save(self, folder: Path, arrays: Mapping[str, NDArray[np.float32]], run_id: str) -> None:
        """Write the model and what prediction needs into `folder`. Raises `StoreError`."""
        ...


class Study(Protocol):
    """Data, features and a model. Every method raises `ConfigError` or `DataError` with one sentence."""

    def workload(self, settings: RunSettings) -> Workload:
        """Count the records. Computes no features, so that a dry run is quick."""
        ...

    def evaluator(self, settings: RunSettings) -> Evaluator:
        """Load the test records; this may take as long as making features takes."""
        ...

    def train(self, place: "NodeContext", arrays: Arrays, clip: float) -> "ClippedSum":
        """On a client: the sum over the units of its data at `arrays`, each clipped to L2 norm `clip`."""
        ...

    def predict(self, folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
        """For each text the most likely label of the model in `folder`, and its score, 0 to 1."""
        ...


def study_entry(name: str) -> EntryPoint:
    """Where the study of that name is found. Raises `ConfigError` if none is installed under it."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ConfigError(f"no study {name!r} is installed; there is {', '.join(sorted(found))}{guess(name, found)}")
    return found[name]


def find_study(name: str) -> Study:
    """Load the study of that name. Raises `ConfigError`."""
    entry = study_entry(name)
    try:
        study: Study = entry.load()
    except Exception as error:  # whatever code of others raises while it is imported
        raise ConfigError(f"the study {name!r} ({entry.value}) cannot be loaded: {error}; install it again") from error
    return study
