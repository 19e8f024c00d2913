"""The same training without privacy: for the figure that the examples print beside their own."""

import torch
from torch.nn.functional import cross_entropy


def fit(model, x, y, loss=cross_entropy, steps=100):
    """Train what is not frozen on all records together."""
    optimiser = torch.optim.Adam([part for part in model.parameters() if part.requires_grad], lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()


def accuracy(model, x, y):
    """The share of records whose label the model names."""
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())
