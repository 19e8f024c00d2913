"""A multilayer perceptron on measurements of tumours: five clinics with 90 records each."""

import sklearn.datasets
import torch
from plain import accuracy, fit
from torch import nn

import fednode

torch.manual_seed(0)
data = sklearn.datasets.load_breast_cancer()
x, y = torch.tensor(data.data).log1p().float(), torch.tensor(data.target)
x = (x - x.mean(0)) / x.std(0)
order = torch.randperm(len(x))
train, test = order[:450], order[450:]
clients = [(x[part], y[part]) for part in train.chunk(5)]

model = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))
task = fednode.Task(model, loss=nn.functional.cross_entropy, epsilon=8.0, rounds=6, options={"learning_rate": 4.0})
run = fednode.simulate(task, clients, test=(x[test], y[test]))

fit(model, x[train], y[train])
plain = accuracy(model, x[test], y[test])
print(f"accuracy {run.accuracy:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
