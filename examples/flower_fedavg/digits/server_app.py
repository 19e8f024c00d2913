"""The server."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import ROUNDS, accuracy, load_data, make_model

app = ServerApp()


def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
    model = make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(model, *load_data())})


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord(make_model().state_dict())
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS, evaluate_fn=evaluate)
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
