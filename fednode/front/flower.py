"""A task on Flower: a ServerApp and a ClientApp of its own, or those of an app that there is already.

    strategy = fednode.flower.FedNodeStrategy(task, context)     # in the place of FedAvg(...)
    app = fednode.flower.client_app(task)                        # in the place of ClientApp()

A simulation needs one node for each client and for each of the key holders, 5 unless the task's options say otherwise.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednode.assemble.study import Arrays, Workload
from fednode.errors import ConfigError, Interrupted, PeerFault
from fednode.front.data import client_data
from fednode.front.python_study import ModelTest
from fednode.front.run import parameters_in
from fednode.front.task import Task, layout_of, loaded
from fednode.front.training import clipped_sum
from fednode.protocol.cohort import Cohort
from fednode.server import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Grid,
    MetricRecord,
    Result,
    ServerApp,
    Strategy,
    build_server_app,
    to_arrays,
)
from fednode.settings import RunConfig, RunSettings, to_run_config
from fednode.settings.run_config import APP_KEYS
from fednode_clients.app import PrivateApp
from fednode_clients.membership import MemberParts, NodeContext

if TYPE_CHECKING:
    from fednode_clients.client.privatise import ClippedSum

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

_ANY = 1000
"""Clients of a run, where a member need not know how many there are."""
_INSTEAD = {
    "fraction_train": "every client is asked in every round, or in options={'rounds_per_client': k}",
    "fraction_evaluate": "clients do not evaluate; give start an evaluate_fn, or server_app a test set",
    "min_train_nodes": "the fewest updates that a sum may hold are options={'min_survivors': n}",
    "min_available_nodes": "a run waits for its members; the fewest updates are options={'min_survivors': n}",
    "weighted_by_key": "a weight would raise one client's share above the clip: all have weight 1",
    "train_metrics_aggr_fn": "what a client says besides its update has no noise: clients return no metrics",
    "evaluate_metrics_aggr_fn": "clients do not evaluate; give start an evaluate_fn",
}


class FedNodeStrategy(Strategy):
    """A task as an ordinary strategy: `start` trains it over the grid, with ledger, report and model file in `runs/`.

    `context` is that of the ServerApp's main function. What other strategies take and this one cannot is a
    `ConfigError`, which says what to do instead.
    """

    def __init__(self, task: Task, context: Context, **others: object) -> None:
        for name in others:
            raise ConfigError(f"FedNodeStrategy takes no {name}: {_INSTEAD.get(name, 'see docs/flower.md')}")
        self._task, self._context = task, context

    def summary(self) -> None:
        """Nothing: `start` prints the plan."""

    def start(  # noqa: PLR0913, PLR0917 - the signature is Flower's
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train from these arrays; returns Flower's result with the last ones.

        Raises `ConfigError` for another number of rounds than the task's and for a config that clients could not
        check, and what ended the run early.
        """
        del timeout
        if train_config or evaluate_config:
            raise ConfigError("clients take no config from the node, which they could not check: use the run config")
        if num_rounds not in (None, self._task.rounds):
            raise ConfigError(
                f"num_rounds is {num_rounds} and the task is planned for {self._task.rounds}, which decides its noise: "
                "give Task(rounds=...) and leave num_rounds out"
            )
        start = {name: array.numpy() for name, array in initial_arrays.items()}
        task, result = replace(self._task, model=loaded(self._task.module(), start)), Result()
        test = _Evaluated(evaluate_fn, result) if evaluate_fn else ModelTest(task, None)
        folder = _served(task, grid, self._context, test)
        if folder is None:
            raise Interrupted("the plan is printed, and nothing was trained: dry-run is on in the run config")
        result.arrays = to_arrays(parameters_in(folder))
        return result

    def configure_train(self, *_: object, **__: object) -> Any:
        """Raise `ConfigError`, as all hooks do: updates are folded sealed."""
        raise ConfigError("call FedNodeStrategy.start(); it does not use the hooks of a strategy")

    aggregate_train = configure_evaluate = aggregate_evaluate = configure_train


def server_app(task: Task, test: Any = None) -> ServerApp:
    """A ServerApp that trains the task; `test` is a set that the node alone looks at, for the accuracy of each round.

    With `dry-run = true` in the run config it prints the plan and ends.
    """
    measured = ModelTest(task, None if test is None else client_data(test, "record", "the test set"))

    def main(grid: Grid, context: Context) -> None:
        _served(task, grid, context, measured)

    return build_server_app(main)


def client_app(task: Task, data: Callable[[NodeContext], Any] | None = None) -> PrivateApp:
    """A ClientApp of clients and key holders, which trains on what `data(context)` gives, as `simulate` takes it.

    `context` has the `run_id`, `node_config` and `run_config` of Flower's.

    Without `data`, write the training function yourself: `@app.train()` may return an ordinary reply of FedAvg, the
    trained arrays, with unit client; how far they moved is clipped, noised and sealed before it leaves.
    """
    layout = layout_of(task.model)
    app = PrivateApp(MemberParts(layout=lambda _: layout), lambda node, run: _member_config(task, node, run))
    if data is not None:
        app.trains(lambda place, arrays, clip: _trained(task, data, place, arrays, clip))
    return app


def _trained(
    task: Task, data: Callable[[NodeContext], Any], place: NodeContext, arrays: Arrays, clip: float
) -> "ClippedSum":
    records = client_data(data(place), task.unit, "this client's data")
    return clipped_sum(task, loaded(task.module(), arrays), records, clip, _settings(task, place.run, _ANY))


def _served(task: Task, grid: Grid, context: Context, test: "ModelTest | _Evaluated") -> Path | None:
    """The folder of the run, or None after a dry run. Raises what ended the run early."""
    from fednode.assemble.planning import plan_task
    from fednode.assemble.serve import serve

    given = dict(context.run_config)
    if given.get("cohort"):
        # `serve` verifies it, and says what is wrong with it
        with suppress(OSError, PeerFault):
            cohort = Cohort.from_bytes(Path(str(given["cohort"])).read_bytes())
            given |= {"clients": len(cohort.clients), "holders": len(cohort.holders)}
    holders = int(str(given.get("holders", task.options.get("holders", 5))))
    settings = _settings(task, given, len(list(grid.get_node_ids())) - holders)
    workload = _workload(task, settings)
    if given.get("dry-run") is True:
        print(plan_task(settings, workload))  # noqa: T201 - Flower streams it to who submitted the run
        return None
    config: RunConfig = to_run_config(settings) | {key: given[key] for key in APP_KEYS if key in given}
    result = serve(grid, context.run_id, config, workload, test)
    if result.error is not None:
        raise result.error
    return result.folder


def _workload(task: Task, settings: RunSettings) -> Workload:
    named = replace(task, records=task.records or settings.clients) if task.unit == "client" else task
    return replace(named.workload(), dataset=settings.population or "the members' own records")


def _settings(task: Task, run: Mapping[str, object], clients: int) -> RunSettings:
    """The task's settings, those of the run config above them; keys of the app's own are left alone."""
    known = {key.replace("-", "_"): value for key, value in run.items() if value != ""}
    named = {name: known[name] for name in RunSettings.model_fields.keys() & known.keys()}
    return task.settings(int(str(named.pop("clients", clients))), named)


def _member_config(task: Task, node: Mapping[str, object], run: Mapping[str, object]) -> dict[str, Any]:
    """The run config that a member of a simulation needs: every setting. One with its own keys needs none."""
    if node.get("key-folder"):
        return dict(run)
    holders = int(str(run.get("holders", task.options.get("holders", 5))))
    clients = int(str(node.get("num-partitions", holders + 2))) - holders
    return {**to_run_config(_settings(task, run, clients)), **run}


class _Evaluated:
    """The evaluation function of an app, in the place of a test set."""

    def __init__(self, evaluate: EvaluateFn, result: Result) -> None:
        self._evaluate, self._result, self._number = evaluate, result, 0

    def hits(self, arrays: Arrays) -> Mapping[str, tuple[int, int]]:
        """Its accuracy, of a million; nothing if it measures none."""
        self._number += 1
        metrics = self._evaluate(self._number, to_arrays(arrays))
        if metrics is not None:
            self._result.evaluate_metrics_serverapp[self._number] = metrics
        found = None if metrics is None else metrics.get("accuracy")
        return {} if not isinstance(found, float | int) else {"all": (round(found * 1_000_000), 1_000_000)}

    def save(self, folder: Path, arrays: Any, run_id: str) -> None:
        """Write model.safetensors. Raises `StoreError`."""
        from fednode.assemble.serve import ArraysOnly

        ArraysOnly().save(folder, arrays, run_id)
