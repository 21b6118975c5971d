"""What the network for texts learns: the nats of the next token."""

from __future__ import annotations

import math

from torch import Tensor

from shoestring.data.loading.samples import Samples
from shoestring.training.families.text_net.predictor import TextNet, TextNetModel, token_losses


class TextNetKind(TextNetModel):
    """The network for the texts of one data set. A `NetKind`."""

    def new(self, sample: Samples) -> TextNet:
        return TextNet(self.encoding, self.settings)

    def losses(self, out: Tensor, samples: Samples, reduction: str) -> Tensor:
        """Return the nats of all tokens, or their mean over the bytes."""
        nats = token_losses(out, self.targets(samples)).sum()
        return nats / self.weight(samples) if reduction == "mean" else nats

    def weight(self, samples: Samples) -> int:
        """Return the bytes of the texts."""
        return int(samples["target"].sum())

    def metric(self, loss: float) -> float:
        """Return bits per byte."""
        return loss / math.log(2)
