"""A regression: how a disease progresses in a year, from ten measurements; the loss is the squared error."""

import sklearn.datasets
import torch
from plain import fit
from torch import nn

import fednode

torch.manual_seed(0)
x, y = (torch.tensor(part).float() for part in sklearn.datasets.load_diabetes(return_X_y=True))
x, y = 20 * x, (y[:, None] - 150) / 80
train, test = slice(0, 350), slice(350, None)
clients = list(zip(x[train].chunk(5), y[train].chunk(5), strict=True))

model = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1))
task = fednode.Task(model, loss=nn.functional.mse_loss, epsilon=8.0, rounds=6, options={"learning_rate": 1.0})
run = fednode.simulate(task, clients)


def explained(predicted):
    """The share of the variance that the model explains: R squared."""
    return 1 - float(((predicted - y[test]) ** 2).mean() / y[test].var())


fit(model, x[train], y[train], nn.functional.mse_loss)
mine, plain = explained(torch.tensor(run.predict(x[test]))), explained(model(x[test]).detach())
print(f"R squared {mine:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
