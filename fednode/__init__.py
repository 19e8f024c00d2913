"""FedNode: a federated-learning aggregation node.

task = fednode.Task(model, loss=torch.nn.functional.cross_entropy, unit="record", epsilon=2.0, rounds=20)
run = fednode.simulate(task, clients=[(x1, y1), (x2, y2), (x3, y3)], test=(xt, yt))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fednode.errors import FednodeError
    from fednode.front import flower
    from fednode.front.comparison import compare
    from fednode.front.models import prepare_model
    from fednode.front.own_training import gradient_sum, local_update
    from fednode.front.run import Run, load
    from fednode.front.simulate import simulate
    from fednode.front.task import Task

__version__ = "0.1.0"
__all__ = [
    "FednodeError",
    "Run",
    "Task",
    "compare",
    "flower",
    "gradient_sum",
    "load",
    "local_update",
    "prepare_model",
    "simulate",
]

_WHERE = {
    "FednodeError": "fednode.errors",
    "Run": "fednode.front.run",
    "Task": "fednode.front.task",
    "compare": "fednode.front.comparison",
    "gradient_sum": "fednode.front.own_training",
    "load": "fednode.front.run",
    "local_update": "fednode.front.own_training",
    "prepare_model": "fednode.front.models",
    "simulate": "fednode.front.simulate",
}


def __getattr__(name: str) -> object:
    # imported when used: the command line and members need none of it
    if name == "flower":
        return import_module("fednode.front.flower")
    if name not in _WHERE:
        raise AttributeError(f"module 'fednode' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
