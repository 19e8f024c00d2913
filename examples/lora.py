"""LoRA: an encoder trained on public digits learns private ones that lie one column further right, by
adapters of low rank; nothing else travels."""

import sklearn.datasets
import torch
from plain import accuracy, fit
from torch import nn

import fednode

torch.manual_seed(0)
data = sklearn.datasets.load_digits()
x, y = torch.tensor(data.images / 8 - 1).float(), torch.tensor(data.target)


class Adapted(nn.Module):
    """A frozen linear layer, and a product of two narrow matrices that is trained."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, rank), nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + self.down(x) @ self.up.T


encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
fit(encoder, x[:600], y[:600])
model = nn.Sequential(encoder[0], Adapted(encoder[1]), encoder[2], Adapted(encoder[3]))
x = x.roll(1, 2)
clients = list(zip(x[600:1300].chunk(5), y[600:1300].chunk(5), strict=True))
task = fednode.Task(model, loss=nn.functional.cross_entropy, epsilon=8.0, rounds=6, options={"learning_rate": 4.0})
run = fednode.simulate(task, clients, test=(x[1300:], y[1300:]))
fit(model, x[600:1300], y[600:1300])
plain = accuracy(model, x[1300:], y[1300:])
print(f"accuracy {run.accuracy:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
