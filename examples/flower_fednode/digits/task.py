"""The model, the data and the training loop of the app."""

import torch
from sklearn.datasets import load_digits

import fednode


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def load_data(partition=None, partitions=1):
    """The records of one client, or of the test set."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    return (x[1500:], y[1500:]) if partition is None else (x[partition:1500:partitions], y[partition:1500:partitions])


def train(model, x, y, epochs, rate):
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(epochs):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


ROUNDS = 3
TASK = fednode.Task(make_model(), unit="client", rounds=ROUNDS, options={"holders": 3, "threshold": 2})
