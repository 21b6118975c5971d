"""The interfaces of a network to the learner and the predictor of networks."""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from shoestring.data.loading.samples import Samples
from shoestring.training.frameworks.net_settings import NetSettings

Array = np.ndarray[Any, np.dtype[Any]]
Weights = dict[str, Any]

EVALUATION_ROWS = 8192


class NetModel(Protocol):
    """The network for one data set: its inputs, and the meaning of its output.

    `rows_at_once`: the rows that are computed at once outside a training step.
    """

    rows_at_once: int

    def empty(self, weights: Weights) -> nn.Module:
        """Return a network that can load these weights."""
        ...

    def inputs(self, samples: Samples) -> tuple[Tensor, ...]:
        """Return the inputs of the network."""
        ...

    def predictions(self, out: Tensor, samples: Samples) -> Array:
        """Return an output as a `Predictor` does."""
        ...


class NetKind(NetModel, Protocol):
    """The same network while it is trained: how it begins, and its loss."""

    @property
    def settings(self) -> NetSettings: ...

    def new(self, sample: Samples) -> nn.Module:
        """Return the untrained network. `sample`: samples of train whose distribution it may use."""
        ...

    def losses(self, out: Tensor, samples: Samples, reduction: str) -> Tensor:
        """Return the loss of a network's output: the "mean" that a step minimises, or the "sum"."""
        ...

    def weight(self, samples: Samples) -> int:
        """Return the number of things that a mean loss is the mean over."""
        ...

    def metric(self, loss: float) -> float:
        """Return a mean loss in the run's metric."""
        ...


def to_bytes(state: Weights) -> bytes:
    """Return tensors and plain values as `from_bytes` reads them."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Weights:
    state: Weights = torch.load(io.BytesIO(data), weights_only=True)
    return state


class NetPredictor:
    """Predicts with a trained network. A `Predictor`."""

    def __init__(self, model: NetModel, weights: bytes) -> None:
        state = from_bytes(weights)
        self._model, self._net = model, model.empty(state)
        self._net.load_state_dict(state)
        self._net.eval()
        self.rows_at_once = model.rows_at_once

    @torch.no_grad()
    def predict(self, samples: Samples) -> Array:
        return self._model.predictions(self._net(*self._model.inputs(samples)), samples)
