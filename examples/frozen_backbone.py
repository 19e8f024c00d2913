"""A frozen backbone with a head: trained on public images of 0 to 4, the head is trained on private ones of 5 to 9."""

import sklearn.datasets
import torch
from plain import accuracy, fit
from torch import nn

import fednode

torch.manual_seed(0)
data = sklearn.datasets.load_digits()
x, y = torch.tensor(data.data / 8 - 1).float(), torch.tensor(data.target)

backbone = nn.Sequential(nn.Linear(64, 64), nn.Tanh())
fit(nn.Sequential(backbone, nn.Linear(64, 5)), x[y < 5], y[y < 5])
backbone.requires_grad_(False)

x, y = x[y > 4], y[y > 4] - 5
clients = list(zip(x[:500].chunk(5), y[:500].chunk(5), strict=True))
model = nn.Sequential(backbone, nn.Linear(64, 5))
task = fednode.Task(model, loss=nn.functional.cross_entropy, epsilon=8.0, rounds=6, options={"learning_rate": 8.0})
run = fednode.simulate(task, clients, test=(x[500:], y[500:]))
fit(model, x[:500], y[:500])
plain = accuracy(model, x[500:], y[500:])
print(f"accuracy {run.accuracy:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
