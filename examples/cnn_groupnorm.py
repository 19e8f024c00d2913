"""A convolutional network on images of digits; its BatchNorm is replaced by GroupNorm."""

import sklearn.datasets
import torch
from plain import accuracy, fit
from torch import nn

import fednode

torch.manual_seed(0)
data = sklearn.datasets.load_digits()
x, y = torch.tensor(data.images[:, None] / 8 - 1).float(), torch.tensor(data.target)
train, test = slice(0, 1000), slice(1000, None)
clients = list(zip(x[train].chunk(5), y[train].chunk(5), strict=True))

layers = [nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)]
model = fednode.prepare_model(nn.Sequential(*layers))
task = fednode.Task(model, loss=nn.functional.cross_entropy, epsilon=8.0, rounds=6, options={"learning_rate": 4.0})
run = fednode.simulate(task, clients, test=(x[test], y[test]))

fit(model, x[train], y[train])
plain = accuracy(model, x[test], y[test])
print(f"accuracy {run.accuracy:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
