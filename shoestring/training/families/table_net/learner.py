"""What the network for tables learns: its layers and its first weights.

Shape suffixes: B rows of a batch; C categorical features; N numeric features; P bins of a numeric feature;
V values of the pixels of an image; D inputs of the first layer; U units of a hidden layer; K outputs; R rows
of a sample.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.table_net.predictor import ROWS_AT_ONCE
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout, keep_mask
from shoestring.training.frameworks.torch_.net_kind import Tensors
from shoestring.training.frameworks.torch_.score_losses import ScoreLosses, start_as_prior
from shoestring.training.losses.scores import Array, outputs


class TableNet(nn.Module):
    """Embeddings of categories, piecewise-linear encodings of numbers, the pixels of images as they are,
    hidden layers with LayerNorm, and a linear path.

    The encoding is that of Gorishniy et al. 2022, "On Embeddings for Numerical Features" (arXiv
    2203.05556), with bins at quantiles. The net starts as the prior: the last layer is zero, and its bias
    holds the class shares of train.
    """

    def __init__(self, encoding: Encoding, settings: TableNetSettings, edges_NP1: Tensor) -> None:
        super().__init__()
        cardinalities = [
            feature.cardinality for feature in encoding.features if feature.kind == "categorical"
        ]
        widths = [settings.embedding_width(size) for size in cardinalities]
        scores = outputs(encoding)
        self.category_dropout = settings.category_dropout
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, width) for size, width in zip(cardinalities, widths, strict=True)
        )
        self.offsets = nn.ModuleList(nn.Embedding(size, scores) for size in cardinalities)
        self.register_buffer("edges_NP1", edges_NP1)
        layers: list[nn.Module] = []
        numbers, bins = edges_NP1.shape[0], edges_NP1.shape[1] - 1
        pixels = sum(math.prod(each.shape) for each in encoding.of_use("image"))
        width = sum(widths) + numbers * (bins + 1) + pixels
        for units in settings.hidden:
            layers += [nn.Linear(width, units), nn.LayerNorm(units), nn.ReLU(), ByteDropout(settings.dropout)]
            width = units
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, scores)
        self._initialize(encoding)

    def _initialize(self, encoding: Encoding) -> None:
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=0.05)  # type: ignore[arg-type]
        for offset in self.offsets:
            nn.init.zeros_(offset.weight)  # type: ignore[arg-type]
        start_as_prior(self.output, encoding)

    def forward(self, codes_BC: Tensor, numbers_BN: Tensor, *pixels_BV: Tensor) -> Tensor:
        """Return logits, or standardised values for a regression: float32[B, K]."""
        if self.training and self.category_dropout:
            # Code 0 stands for unknown categories, which get trained this way.
            codes_BC = codes_BC * keep_mask(codes_BC, self.category_dropout)
        columns = codes_BC.unbind(1)
        parts = [embed(code_B) for embed, code_B in zip(self.embeddings, columns, strict=True)]
        edges_NP1 = self.get_buffer("edges_NP1")
        low_NP, width_NP = edges_NP1[:, :-1], edges_NP1.diff(dim=1)
        # Each bin holds the share of it that lies below the number: 1 for lower bins, 0 for higher ones.
        bins_BNP = ((numbers_BN[:, :, None] - low_NP) / width_NP).clamp(0, 1)
        scaled_BV = [each * (1 / 255) for each in pixels_BV]
        h_BD = torch.cat([*parts, bins_BNP.flatten(1), numbers_BN, *scaled_BV], dim=1)
        out_BK: Tensor = self.output(self.hidden(h_BD))
        for offset, code_B in zip(self.offsets, columns, strict=True):
            out_BK = out_BK + offset(code_B)
        return out_BK


class TableNetKind(ScoreLosses):
    """The network for the tables of one data set. A `NetKind`."""

    rows_at_once = ROWS_AT_ONCE

    def __init__(self, encoding: Encoding, settings: TableNetSettings) -> None:
        super().__init__(encoding)
        self.settings = settings

    def inputs(self, samples: Samples) -> Tensors:
        """Return categorical codes int32[B, C] and numbers float32[B, N], which share the samples' memory; of
        images also the pixels, uint8[B, V]."""
        tables = torch.from_numpy(samples["code"]), torch.from_numpy(samples["number"])
        if "image" not in samples:
            return tables
        return *tables, torch.from_numpy(samples["image"].reshape(len(samples), -1).copy())

    def augmented(self, inputs: Tensors, epochs: float) -> Tensors:
        return inputs

    def net(self) -> TableNet:
        numbers = sum(each.kind == "numeric" for each in self.encoding.features)
        return TableNet(self.encoding, self.settings, torch.zeros(numbers, self.settings.bins + 1))

    def new(self, sample: Samples) -> TableNet:
        """Return the untrained network. The quantiles of the sample place the bins of the numbers."""
        return TableNet(self.encoding, self.settings, quantile_edges(sample["number"], self.settings.bins))


def quantile_edges(numbers_RN: Array, bins: int) -> Tensor:
    """Return the strictly increasing bin edges, at quantiles of a sample of rows: float32[N, bins + 1]."""
    rows: list[Array] = []
    for column in numbers_RN.T:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32))
        missing = bins + 1 - len(edges)
        rows.append(np.concatenate([edges, edges[-1] + 1.0 + np.arange(missing)]))
    return torch.tensor(np.array(rows).reshape(len(rows), bins + 1), dtype=torch.float32)
