"""The predictions of a network with stored weights."""

from __future__ import annotations

import torch

from shoestring.data.loading.samples import Samples
from shoestring.training.frameworks.torch_.net_kind import NetKind, load_weights
from shoestring.training.losses.scores import Array


class NetPredictor:
    """Predicts on a device. A `Predictor`."""

    def __init__(self, kind: NetKind, weights: bytes, device: str) -> None:
        self._kind, self._device, self.rows_at_once = kind, torch.device(device), kind.rows_at_once
        net = kind.net()
        load_weights(net, weights)
        self._net = net.to(self._device).eval()

    @torch.no_grad()
    def predict(self, samples: Samples) -> Array:
        inputs = (each.to(self._device) for each in self._kind.inputs(samples))
        return self._kind.predicted(self._net(*inputs), samples)
