"""A small transformer on made-up sequences of token ids: do low or high ones come more often?"""

import torch
from plain import accuracy, fit
from torch import nn

import fednode

torch.manual_seed(0)


class Reader(nn.Module):
    """Token ids [n, length] to scores [n, 2]."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.block(self.table(ids)).mean(1))


x = torch.randint(0, 12, (1500, 11))
y = (2 * (x < 6).sum(1) > 11).long()
clients = list(zip(x[:600].chunk(4), y[:600].chunk(4), strict=True))

model = Reader()
task = fednode.Task(model, loss=nn.functional.cross_entropy, epsilon=8.0, rounds=6, options={"learning_rate": 4.0})
run = fednode.simulate(task, clients, test=(x[600:], y[600:]))

fit(model, x[:600], y[:600])
plain = accuracy(model, x[600:], y[600:])
print(f"accuracy {run.accuracy:.3f} at epsilon {run.epsilon:.2f}, {plain:.3f} without privacy")
