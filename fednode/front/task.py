"""A task: the module to train, its loss, and the privacy that the training has to keep."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fednode.assemble.study import KEPT_NOISE, KEPT_NOISE_OF_LAYERS, PYTHON, Workload, rounded_up
from fednode.errors import ConfigError, DataError, PeerFault
from fednode.front.checks import check_task
from fednode.front.losses import classifies, per_record
from fednode.front.models import require_unmixed
from fednode.protocol.model import Layout
from fednode.reports.figures import plural
from fednode.settings import RunSettings, resolve

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from fednode.assemble.planning import Plan
    from fednode_clients.training.gradients import GradientSum
    from fednode_clients.training.local import LocalUpdate

_ASSUMED = 100

Unit = Literal["record", "customer", "client"]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What clients train together, and how much of anybody's data the models may show.

    `model` is any torch module; its trainable floating-point parameters are trained, from the values that they have
    now, which have to be public. `loss` takes what the model gives for records, and their targets: a function or module
    of torch, or one of your own that gives a value a record. `unit` says what `epsilon` and `delta` protect, and `clip`
    bounds what one unit adds: with "record" and "customer" each unit's gradient, with "client" the way that local
    training moves the model. `optimiser` makes the optimiser of local training, SGD without one. `train` is training
    code of your own: it gets the module, a client's (inputs, targets), with unit customer (inputs, targets, customers),
    as arrays, and the clip, and returns what `fednode.gradient_sum` or, with unit client, `fednode.local_update` gives.

    `records` and `max_records` are public numbers, the records of all clients and the most of one: a simulation rounds
    up what it is given, a deployment has to name them. `options` are further settings of `fednode run`, by name, such
    as `server_optimiser` (sgd, momentum, adam), `schedule` (linear, constant) and `learning_rate` of the node's steps.
    Raises `ConfigError` for settings that contradict each other and for a module without trainable parameters.
    """

    model: "torch.nn.Module" = field(repr=False)
    _: KW_ONLY
    loss: "Callable[..., Any] | None" = None
    unit: Unit = "record"
    epsilon: float = 8.0
    delta: float = 1e-5
    rounds: int = 20
    clip: float = 1.0
    optimiser: "Callable[..., torch.optim.Optimizer] | None" = None
    train: "Callable[[torch.nn.Module, tuple[Any, ...], float], GradientSum | LocalUpdate] | None" = field(
        default=None, repr=False
    )
    records: int | None = None
    max_records: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from fednode_clients.training.models import travelling

        check_task(self)
        object.__setattr__(self, "loss", per_record(self.loss))
        if not travelling(self.model):
            raise ConfigError("the model has no trainable floating-point parameter; set requires_grad on what to train")
        require_unmixed(self.model)

    @property
    def classifies(self) -> bool:
        """Whether the loss is cross-entropy, over one whole number a record."""
        return self.loss is None or classifies(self.loss)

    def plan(self, clients: int) -> "Plan":
        """What training by so many clients costs, before anything runs: print it, or read its fields.

        Where the task names no `records`, 100 at each client are assumed, and the plan says so. Raises `ConfigError`
        for what would fail.
        """
        from fednode.assemble.planning import plan_task

        settings = self.settings(clients)
        workload = self.with_counts([_ASSUMED] * settings.clients).workload()
        if self.unit != "client" and None in (self.records, self.max_records):
            workload = replace(workload, summary=f"{_ASSUMED} {self.unit}s at each client, as nothing else was named")
        return plan_task(settings, workload)

    def settings(self, clients: int, more: Mapping[str, object] | None = None) -> RunSettings:
        """All settings of a run with so many clients; `more` goes before `options`. Raises `ConfigError`."""
        named = {name: getattr(self, name) for name in ("unit", "epsilon", "delta", "rounds", "clip")}
        twice = sorted(named.keys() & self.options.keys())
        if twice:
            raise ConfigError(f"options hold {', '.join(twice)}: give it to Task by its own name")
        return resolve(None, {}, {"study": PYTHON, "clients": clients, **named, **self.options, **(more or {})})

    def workload(self) -> Workload:
        """The arrays that are trained, and the public numbers."""
        from torch.nn import Linear

        from fednode_clients.training.models import frozen_parts, to_vector

        records, most = self.records, 1 if self.unit == "client" else self.max_records
        if records is None or most is None:
            missing = "the public number of clients" if self.unit == "client" else "records and max_records"
            raise ConfigError(f"give Task {missing}: rounded figures that may be published, never exact counts")
        count, digest = frozen_parts(self.model)
        frozen = f"{plural(count, 'frozen array')} and buffers that every member has to have: SHA-256 {digest}"
        return Workload(
            layout=layout_of(self.model),
            records=records,
            max_records=most,
            unit=self.unit,
            model=type(self.model).__name__,
            initial=to_vector(self.model),
            kept_noise=KEPT_NOISE if self.unit == "client" or type(self.model) is Linear else KEPT_NOISE_OF_LAYERS,
            public_inputs=(
                "the parameters that training starts from, as the task gives them",
                *((frozen,) if count else ()),
            ),
        )

    def with_counts(self, counts: "list[int]") -> "Task":
        """This task with public numbers made of the units of each client, rounded up where it names none."""
        if self.unit == "client":
            return replace(self, records=self.records or len(counts))
        return replace(
            self,
            records=self.records or rounded_up(sum(counts)),
            max_records=self.max_records or rounded_up(max(counts)),
        )

    def module(self) -> "torch.nn.Module":
        """A copy of the model."""
        return copy.deepcopy(self.model)

    def trained(self, arrays: "Mapping[str, NDArray[np.generic]]") -> "torch.nn.Module":
        """A copy of the model with these parameters. Raises `DataError` for those of another."""
        return loaded(self.module(), arrays)


def loaded(module: "torch.nn.Module", arrays: "Mapping[str, NDArray[np.generic]]") -> "torch.nn.Module":
    """The module, with these parameters written into it. Raises `DataError` for those of another."""
    from fednode_clients.training.models import load_vector

    wanted = layout_of(module)
    try:
        load_vector(module, wanted.flatten({name: arrays[name] for name in wanted.names}))
    except (ValueError, KeyError, PeerFault) as error:
        raise DataError(f"these parameters are not of this model: {error}") from error
    return module


def layout_of(model: "torch.nn.Module") -> Layout:
    """Names and shapes of the parameters that travel."""
    from fednode_clients.training.models import travelling

    shapes = {name: tuple(parameter.shape) for name, parameter in travelling(model)}
    return Layout(tuple(shapes), tuple(shapes.values()))
