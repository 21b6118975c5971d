"""A multi-layer perceptron for tables.

Shape suffixes: B rows of a batch; C categorical features; N numeric features; P bins of a numeric feature;
V values of the pixels of an image; D inputs of the first layer; U units of a hidden layer; K outputs; R rows
of a sample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.net_settings import NetSettings
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.torch_.byte_dropout import ByteDropout, keep_mask
from shoestring.training.torch_.text_net import TextNet, token_inputs, token_losses, token_targets

Array = np.ndarray[Any, np.dtype[Any]]


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
        # 1.6 * cardinality^0.56 is fastai's rule for the width of an embedding.
        widths = [min(settings.max_embedding_dim, round(1.6 * size**0.56)) for size in cardinalities]
        outputs = len(encoding.classes) if encoding.task == "multiclass" else 1
        self.category_dropout = settings.category_dropout
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, width) for size, width in zip(cardinalities, widths, strict=True)
        )
        self.offsets = nn.ModuleList(nn.Embedding(size, outputs) for size in cardinalities)
        self.register_buffer("edges_NP1", edges_NP1)
        layers: list[nn.Module] = []
        numbers, bins = edges_NP1.shape[0], edges_NP1.shape[1] - 1
        pixels = sum(math.prod(each.shape) for each in encoding.of_use("image"))
        width = sum(widths) + numbers * (bins + 1) + pixels
        for units in settings.hidden:
            layers += [nn.Linear(width, units), nn.LayerNorm(units), nn.ReLU(), ByteDropout(settings.dropout)]
            width = units
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, outputs)
        self._initialize(encoding)

    def _initialize(self, encoding: Encoding) -> None:
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=0.05)  # type: ignore[arg-type]
        for zero in (*(offset.weight for offset in self.offsets), self.output.weight, self.output.bias):
            nn.init.zeros_(zero)  # type: ignore[arg-type]
        if encoding.task == "regression":
            return
        shares = [min(max(share, 1e-6), 1 - 1e-6) for share in encoding.train_prior]
        start = (
            [math.log(shares[1] / shares[0])]
            if encoding.task == "binary"
            else [math.log(share) for share in shares]
        )
        with torch.no_grad():
            self.output.bias.copy_(torch.tensor(start))

    def forward(self, codes_BC: Tensor, numbers_BN: Tensor, *pixels_BV: Tensor) -> Tensor:
        """Return logits, or standardised values for a regression: float32[B, K]."""
        if self.training and self.category_dropout:
            # Code 0 stands for unknown categories, which get trained this way.
            codes_BC = codes_BC * keep_mask(codes_BC.shape, self.category_dropout)
        columns = codes_BC.unbind(1)
        parts = [embed(code_B) for embed, code_B in zip(self.embeddings, columns, strict=True)]
        edges_NP1 = self.get_buffer("edges_NP1")
        low_NP, width_NP = edges_NP1[:, :-1], edges_NP1.diff(dim=1)
        # Each bin holds the share of it that lies below the number: 1 for lower bins, 0 for higher ones.
        bins_BNP = ((numbers_BN[:, :, None] - low_NP) / width_NP).clamp(0, 1)
        h_BD = torch.cat([*parts, bins_BNP.flatten(1), numbers_BN, *pixels_BV], dim=1)
        out_BK: Tensor = self.output(self.hidden(h_BD))
        for offset, code_B in zip(self.offsets, columns, strict=True):
            out_BK = out_BK + offset(code_B)
        return out_BK


def quantile_edges(numbers_RN: Array, bins: int) -> Tensor:
    """Return the strictly increasing bin edges, at quantiles of a sample of rows: float32[N, bins + 1]."""
    rows: list[Array] = []
    for column in numbers_RN.T:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32))
        missing = bins + 1 - len(edges)
        rows.append(np.concatenate([edges, edges[-1] + 1.0 + np.arange(missing)]))
    return torch.tensor(np.array(rows).reshape(len(rows), bins + 1), dtype=torch.float32)


class NetInputs:
    """Converts samples to the tensors that the net reads."""

    def __init__(self, encoding: Encoding) -> None:
        self.vocabulary = encoding.vocabulary
        self.is_regression = encoding.task == "regression"
        self.mean, self.sd = encoding.train_prior if self.is_regression else (0.0, 1.0)

    def features(self, samples: Samples) -> tuple[Tensor, ...]:
        """Return categorical codes int32[B, C] and numbers float32[B, N], which share the samples' memory; of
        images also the pixels from 0 to 1, float32[B, V]. Of texts return their tokens alone.
        """
        if self.vocabulary is not None:
            return (token_inputs(samples),)
        tables = torch.from_numpy(samples["code"]), torch.from_numpy(samples["number"])
        if "image" not in samples:
            return tables
        pixels_BV = samples["image"].reshape(len(samples), -1)
        return *tables, torch.from_numpy(np.multiply(pixels_BV, np.float32(1 / 255), dtype=np.float32))

    def target(self, samples: Samples) -> Tensor:
        """Return classes int64[B]; for regression standardised values float32[B]; of texts their tokens."""
        if self.vocabulary is not None:
            return token_targets(samples, self.vocabulary)
        if self.is_regression:
            return torch.from_numpy(((samples["target"] - self.mean) / (self.sd or 1.0)).astype(np.float32))
        return torch.from_numpy(samples["target"].astype(np.int64))

    def weight(self, samples: Samples) -> int:
        """Return what a loss is the mean over: the rows of a batch, or the bytes of its texts."""
        return len(samples) if self.vocabulary is None else int(samples["target"].sum())


def make_net(encoding: Encoding, settings: NetSettings, sample: Samples) -> TableNet | TextNet:
    """Return the untrained net of a data set. `sample`: samples whose quantiles place the bins of the numeric
    features."""
    if isinstance(settings, TextNetSettings):
        return TextNet(encoding, settings)
    assert isinstance(settings, TableNetSettings), settings.family
    return TableNet(encoding, settings, quantile_edges(sample["number"], settings.bins))


def compute_loss(out_BK: Tensor, y_B: Tensor, task: str, reduction: str = "mean") -> Tensor:
    """Return the log loss in nats, of texts always their sum; for regression the squared error of the
    standardised target."""
    if task == "next_token":
        return token_losses(out_BK, y_B).sum()
    if task == "binary":
        return F.binary_cross_entropy_with_logits(out_BK[:, 0], y_B.float(), reduction=reduction)
    if task == "multiclass":
        return F.cross_entropy(out_BK, y_B, reduction=reduction)
    return F.mse_loss(out_BK[:, 0], y_B, reduction=reduction)
