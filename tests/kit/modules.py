"""Torch modules of the kinds that people train, each made anew with the same weights, and the records they take."""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

CLASSES = 4
Records = np.ndarray | tuple | dict


def rows(rng, n):
    return rng.normal(size=(n, 6)).astype(np.float32)


def images(rng, n):
    return rng.normal(size=(n, 2, 8, 8)).astype(np.float32)


def sequences(rng, n):
    return rng.normal(size=(n, 5, 6)).astype(np.float32)


def tokens(rng, n):
    return rng.integers(0, 12, (n, 7))


def pairs(rng, n):
    return rows(rng, n), tokens(rng, n)


def named(rng, n):
    return {"ids": tokens(rng, n), "mask": rng.random((n, 7)) < 0.3}


def head(width=6):
    return nn.Linear(width, CLASSES)


class Forward(nn.Module):
    """A module with parts and a forward of its own."""

    def __init__(self, forward: Callable[..., torch.Tensor], **parts: nn.Module):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._own = forward

    def forward(self, *inputs, **named):
        return self._own(self, *inputs, **named)


def deep(*layers):
    return nn.Sequential(nn.Linear(6, 6), *layers, nn.ReLU(), head())


def convolutional(*norm, width=4):
    return nn.Sequential(nn.Conv2d(2, width, 3), *norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), head(9 * width))


def trained_statistics(norm):
    """A norm layer as of a pretrained backbone: statistics that are not 0 and 1."""
    with torch.no_grad():
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return norm


def frozen_backbone(norm):
    return nn.Sequential(nn.Linear(6, 6), norm, nn.ReLU()).requires_grad_(False)


class LowRank(nn.Module):
    """LoRA: a frozen layer and a trained product of two thin ones."""

    def __init__(self, layer: nn.Linear, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = (
            nn.Parameter(torch.randn(rank, layer.in_features)),
            nn.Parameter(torch.randn(layer.out_features, rank)),
        )

    def forward(self, x):
        return self.layer(x) + x @ self.down.T @ self.up.T


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool, swap: bool, dropout=0.2):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first, dropout=dropout)
        self.head, self.swap = head(), swap

    def forward(self, x):
        x = x.transpose(0, 1) if self.swap else x
        x = self.attention(x, x, x)[0]
        return self.head((x.transpose(0, 1) if self.swap else x).mean(1))


class HandAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(6, 18), head()

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.head(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, -1])


class Recurrent(nn.Module):
    def __init__(self, cell, head_width=6):
        super().__init__()
        self.cell, self.head = cell, head(head_width)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Stepped(nn.Module):
    """A cell called once for each step, with a loop in Python."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(6, 5), head(5)

    def forward(self, x):
        state = torch.zeros(len(x), 5), torch.zeros(len(x), 5)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


class Tied(nn.Module):
    """The output layer has the weight of the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(12, 6), nn.Linear(6, 12, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.embedding(ids).mean(1))[:, :CLASSES]


def embedded(embedding):
    return Forward(lambda self, ids: self.head(self.embedding(ids).mean(1)), embedding=embedding, head=head())


def masked_tokens():
    def forward(self, ids, mask):
        kept = (~mask).float()[..., None]
        return self.head((self.embedding(ids) * kept).sum(1) / (1 + kept.sum(1)))

    return Forward(forward, embedding=nn.Embedding(12, 6), head=head())


def two_inputs():
    def forward(self, x, ids):
        return self.head(torch.cat([x, self.embedding(ids).mean(1)], 1))

    return Forward(forward, embedding=nn.Embedding(12, 6), head=head(12))


def transformer(**options):
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.3, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def pruned(layer=None):
    model = layer or head()
    prune.l1_unstructured(model, "weight", 0.5)
    return model


def pruned_and_run():
    model = nn.Sequential(pruned(nn.Linear(6, 6)), nn.ReLU(), head())
    model(torch.ones(1, 6))
    return model


def frozen_bias():
    model = head()
    model.bias.requires_grad_(False)
    return model


def re_registered():
    model = head()
    weight = model.weight
    del model.weight
    model.register_parameter("weight", nn.Parameter(weight.detach().clone()))
    return model


def reparametrised():
    """The weight is three times a parameter of another name."""
    model = head()
    weight = nn.Parameter(model.weight.detach().clone())
    del model.weight
    model.register_parameter("base", weight)
    model.weight = model.base * 3
    model.register_forward_pre_hook(lambda layer, _: setattr(layer, "weight", layer.base * 3))
    return model


def hooked(model, **hooks):
    for kind, hook in hooks.items():
        getattr(model, f"register_{kind}")(hook)
    return model


def masked_gradient():
    model = head()
    model.weight.register_hook(lambda gradient: gradient * 0.25)
    return model


def patched():
    model = head()
    model.forward = lambda x: torch.nn.functional.linear(torch.tanh(x), model.weight, model.bias)
    return model


def spectral():
    return parametrizations.spectral_norm(head())


def in_place():
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), head())


def functional_dropout():
    return Forward(lambda self, x: self.head(torch.nn.functional.dropout(x, 0.5, training=self.training)), head=head())


def residual():
    return Forward(
        lambda self, x: self.head(x + self.body(x)), body=nn.Sequential(nn.Linear(6, 6), nn.GELU()), head=head()
    )


def unused_parameter():
    model = residual()
    model.spare = nn.Linear(3, 3)
    return model


def branching():
    """A forward that decides by a record's value, which no tracer follows."""
    return Forward(lambda self, x: self.one(x) if float(x.detach().sum()) > 0 else self.two(x), one=head(), two=head())


def experts():
    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        return (torch.stack([self.one(x), self.two(x)], -1) * weights[:, None]).sum(-1)

    return Forward(forward, gate=nn.Linear(6, 2), one=head(), two=head())


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(deep())


def private_gru():
    from opacus.layers import DPGRU

    return Recurrent(DPGRU(6, 6, batch_first=True))


def private_lstm():
    from opacus.layers import DPLSTM

    return Recurrent(DPLSTM(6, 6, batch_first=True))


Norm = nn.BatchNorm1d
RIGHT: dict[str, tuple[Callable[[], nn.Module], Callable]] = {
    "linear": (head, rows),
    "linear without bias": (lambda: nn.Linear(6, CLASSES, bias=False), rows),
    "linear with a frozen bias": (frozen_bias, rows),
    "perceptron with dropout": (lambda: deep(nn.Dropout(0.5)), rows),
    "perceptron, in place": (in_place, rows),
    "functional dropout": (functional_dropout, rows),
    "residual, custom forward": (residual, rows),
    "a parameter that is never used": (unused_parameter, rows),
    "mixture of experts": (experts, rows),
    "decides by a value": (branching, rows),
    "bilinear": (lambda: Forward(lambda self, x: self.form(x, x), form=nn.Bilinear(6, 6, CLASSES)), rows),
    "CNN": (convolutional, images),
    "CNN, GroupNorm": (lambda: convolutional(nn.GroupNorm(2, 4)), images),
    "CNN, InstanceNorm": (lambda: convolutional(nn.InstanceNorm2d(4, affine=True)), images),
    "CNN, InstanceNorm that counts": (lambda: convolutional(nn.InstanceNorm2d(4, track_running_stats=True)), images),
    "CNN, local response": (lambda: convolutional(nn.LocalResponseNorm(2)), images),
    "CNN, BatchNorm in evaluation": (lambda: convolutional(trained_statistics(nn.BatchNorm2d(4)).eval()), images),
    "depthwise convolution": (lambda: convolutional(nn.Conv2d(4, 4, 3, padding=1, groups=4)), images),
    "convolution over time": (
        lambda: nn.Sequential(nn.Conv1d(5, 3, 2), nn.PReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), head(6)),
        sequences,
    ),
    "transposed convolution": (lambda: convolutional(nn.ConvTranspose2d(4, 4, 1)), images),
    "LayerNorm": (lambda: deep(nn.LayerNorm(6)), rows),
    "RMSNorm": (lambda: deep(nn.RMSNorm(6)), rows),
    "BatchNorm in evaluation": (lambda: deep(trained_statistics(Norm(6)).eval()), rows),
    "BatchNorm in evaluation, frozen": (lambda: deep(trained_statistics(Norm(6)).eval().requires_grad_(False)), rows),
    "BatchNorm in evaluation, not affine": (lambda: deep(trained_statistics(Norm(6, affine=False)).eval()), rows),
    "frozen backbone, BatchNorm": (
        lambda: nn.Sequential(frozen_backbone(trained_statistics(Norm(6)).eval()), head()),
        rows,
    ),
    "frozen backbone, LayerNorm": (lambda: nn.Sequential(frozen_backbone(nn.LayerNorm(6)), head()), rows),
    "frozen backbone, GroupNorm": (lambda: nn.Sequential(frozen_backbone(nn.GroupNorm(2, 6)), head()), rows),
    "LoRA": (lambda: nn.Sequential(LowRank(nn.Linear(6, 6)), nn.ReLU(), LowRank(head())), rows),
    "GRU": (lambda: Recurrent(nn.GRU(6, 6, 2, batch_first=True, dropout=0.3)), sequences),
    "LSTM, both ways": (lambda: Recurrent(nn.LSTM(6, 3, batch_first=True, bidirectional=True)), sequences),
    "RNN": (lambda: Recurrent(nn.RNN(6, 6, batch_first=True)), sequences),
    "LSTM cell in a loop": (Stepped, sequences),
    "DPGRU": (private_gru, sequences),
    "DPLSTM": (private_lstm, sequences),
    "attention, batch first": (lambda: Attention(batch_first=True, swap=False), sequences),
    "attention, time first": (lambda: Attention(batch_first=False, swap=True), sequences),
    "attention by hand": (HandAttention, sequences),
    "transformer": (lambda: nn.Sequential(transformer(batch_first=True), nn.Flatten(), head(30)), sequences),
    "transformer, norm first": (
        lambda: nn.Sequential(transformer(batch_first=True, norm_first=True), nn.Flatten(), head(30)),
        sequences,
    ),
    "frozen transformer": (
        lambda: nn.Sequential(transformer(batch_first=True).requires_grad_(False), nn.Flatten(), head(30)),
        sequences,
    ),
    "embedding": (lambda: embedded(nn.Embedding(12, 6, padding_idx=0)), tokens),
    "sparse embedding": (lambda: embedded(nn.Embedding(12, 6, sparse=True)), tokens),
    "bag of embeddings": (lambda: nn.Sequential(nn.EmbeddingBag(12, 6), head()), tokens),
    "tied weights": (Tied, tokens),
    "two inputs": (two_inputs, pairs),
    "named inputs and a mask": (masked_tokens, named),
    "pruned": (pruned, rows),
    "pruned, run before": (pruned_and_run, rows),
    "pruned convolution": (lambda: nn.Sequential(pruned(nn.Conv2d(2, 4, 3)), nn.Flatten(), head(144)), images),
    "spectral norm": (lambda: spectral().eval(), rows),
    "spectral norm in training": (spectral, rows),
    "spectral norm by hooks": (lambda: nn.utils.spectral_norm(head()).eval(), rows),
    "weight norm": (lambda: parametrizations.weight_norm(head()), rows),
    "weight norm by hooks": (lambda: nn.utils.weight_norm(head()), rows),
    "orthogonal": (lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(6, 6)), head()), rows),
    "weight registered again": (re_registered, rows),
    "weight of another parameter": (reparametrised, rows),
    "forward hook": (lambda: hooked(head(), forward_hook=lambda *call: 2 * call[-1]), rows),
    "forward hook before": (lambda: hooked(head(), forward_pre_hook=lambda _, x: (x[0] - 1,)), rows),
    "hook on a gradient": (masked_gradient, rows),
    "forward replaced": (patched, rows),
    "checkpointed": (
        lambda: Forward(
            lambda self, x: torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False), body=deep()
        ),
        rows,
    ),
    "scripted": (scripted, rows),
}
"""Modules whose gradients are right."""


class Remembering(nn.Module):
    """Adds to each record what it saw of the one before."""

    def __init__(self, kind: str):
        super().__init__()
        self.head, self.kind, self.seen = head(), kind, []
        self.last = torch.zeros(6)

    def forward(self, x):
        if self.kind == "list":
            self.seen.append(x.detach().mean())
            return self.head(x * len(self.seen))
        before = self.last.clone()
        self.last.copy_(x.detach()[-1])
        return self.head(x + before)


MIXING: dict[str, tuple[Callable[[], nn.Module], Callable, str]] = {
    "BatchNorm": (lambda: deep(Norm(6)), rows, "'1' (BatchNorm1d)"),
    "BatchNorm, frozen": (lambda: deep(Norm(6).requires_grad_(False)), rows, "'1' (BatchNorm1d)"),
    "BatchNorm without statistics": (
        lambda: deep(Norm(6, track_running_stats=False).eval()),
        rows,
        "'1' (BatchNorm1d)",
    ),
    "BatchNorm of images": (lambda: convolutional(nn.BatchNorm2d(4)), images, "'1' (BatchNorm2d)"),
    "frozen backbone in training": (
        lambda: nn.Sequential(frozen_backbone(Norm(6)), head()),
        rows,
        "'0.1' (BatchNorm1d)",
    ),
    "less the mean": (lambda: Forward(lambda self, x: self.head(x - x.mean(0)), head=head()), rows, "model (Forward)"),
    "softmax over records": (lambda: deep(nn.Softmax(dim=0)), rows, "'1' (Softmax)"),
    "GRU, time first": (lambda: Recurrent(nn.GRU(6, 6)), sequences, "'cell' (GRU)"),
    "attention in the wrong layout": (
        lambda: Attention(batch_first=False, swap=False),
        sequences,
        "'attention' (MultiheadAttention)",
    ),
    "transformer, time first": (
        lambda: nn.Sequential(transformer(), nn.Flatten(), head(30)),
        sequences,
        "'0.layers.0.self_attn' (MultiheadAttention)",
    ),
    "norm over records": (
        lambda: Forward(lambda self, x: self.head(torch.nn.functional.normalize(x, dim=0)), head=head()),
        rows,
        "model (Forward)",
    ),
    "noise": (lambda: deep(Forward(lambda self, x: x + torch.randn_like(x))), rows, "'1' (Forward)"),
}
"""Modules that mix records, and the layer that does."""

REMEMBERING: dict[str, tuple[Callable[[], nn.Module], Callable, str]] = {
    "list": (lambda: nn.Sequential(Remembering("list")), rows, "'0' (Remembering)"),
    "tensor": (lambda: nn.Sequential(Remembering("tensor")), rows, "'0' (Remembering)"),
}
"""Modules that keep something of the records that they saw."""


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def chosen(features: Records, which) -> Records:
    """Some of the records."""
    if isinstance(features, dict):
        return {name: array[which] for name, array in features.items()}
    return tuple(array[which] for array in features) if isinstance(features, tuple) else features[which]


def gradient_alone(make: Callable[[], nn.Module], features: Records, label: int) -> np.ndarray:
    """The gradient of a batch of one record by plain autograd, in a model that has seen no other, without dropout."""
    model = made(make)
    for module in model.modules():
        if not isinstance(module, nn.InstanceNorm2d | parametrizations._SpectralNorm):
            module.training = False
    if isinstance(features, dict):
        scores = model(**{name: torch.from_numpy(array) for name, array in features.items()})
    else:
        scores = model(*map(torch.from_numpy, features if isinstance(features, tuple) else [features]))
    torch.nn.functional.cross_entropy(scores, torch.tensor([label])).backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    rows = [torch.zeros(p.numel()) if p.grad is None else p.grad.to_dense().double().ravel() for p in trained]
    return torch.cat(rows).numpy()
