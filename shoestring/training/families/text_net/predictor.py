"""A causal net for rows of tokens: hashed n-grams, then convolutions that reach twice as far back each.

Nothing is read across the start of a document.

Shape suffixes: B rows of a batch; T tokens of a row but the last; U units of a layer; E width of the
embedding of an n-gram; V tokens of the vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout
from shoestring.training.frameworks.torch_.net_kind import load_weights
from shoestring.training.losses.scores import Array

NGRAMS = (2, 3, 4, 5)
"""The lengths of the n-grams that end at a token and are read as one value."""

BUCKETS, NGRAM_WIDTH = 1 << 13, 32
"""Each length of n-grams shares this many hashed embeddings of this width: 1 MB."""

HASH_FACTOR, HASH_MASK = 0x9E3779B1, (1 << 31) - 1
"""Knuth's multiplicative hash (The Art of Computer Programming 3, section 6.4). The mask prevents an overflow
of 64 bits."""

IGNORED, ROWS_AT_ONCE = -100, 8192
MAX_LOGITS = 1 << 24
"""At most this many logits, 64 MB, are computed at once outside a training step."""


class TextNet(nn.Module):
    """Predicts each token of a row from those before it, in the same document and the same row.

    The net starts as the frequencies of the tokens in train: the last layer is zero, and its bias holds them.
    """

    def __init__(self, encoding: Encoding, settings: TextNetSettings) -> None:
        super().__init__()
        assert encoding.vocabulary is not None
        self.start, size, units = encoding.vocabulary.start, encoding.vocabulary.size, settings.hidden[0]
        self.embedding = nn.Embedding(size, units)
        self.ngrams = nn.ModuleList(nn.Embedding(BUCKETS, NGRAM_WIDTH) for _ in NGRAMS)
        self.widen = nn.Linear(len(NGRAMS) * NGRAM_WIDTH, units)
        self.norms = nn.ModuleList(nn.LayerNorm(units) for _ in settings.hidden)
        self.layers = nn.ModuleList(nn.Linear(2 * units, units) for _ in settings.hidden)
        self.dropout = ByteDropout(settings.dropout)
        self.output_norm, self.output = nn.LayerNorm(units), nn.Linear(units, size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        for ngrams in self.ngrams:
            nn.init.normal_(ngrams.weight, std=0.05)  # type: ignore[arg-type]
        nn.init.zeros_(self.output.weight)
        with torch.no_grad():
            self.output.bias.copy_(torch.tensor(encoding.train_prior).clamp(min=1e-6).log())

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each: float32[B, T, V]."""
        document_BT = (tokens_BT == self.start).cumsum(1)
        h_BTU = self.embedding(tokens_BT) + self.widen(self._ngrams(tokens_BT, document_BT))
        for index, (norm, layer) in enumerate(zip(self.norms, self.layers, strict=True)):
            back = 1 << index
            if back >= tokens_BT.shape[1]:
                break
            now_BTU = norm(h_BTU)
            same_BT = document_BT[:, back:] == document_BT[:, :-back]
            before_BTU = F.pad(now_BTU[:, :-back] * same_BT[:, :, None], (0, 0, back, 0))
            h_BTU = h_BTU + self.dropout(F.relu(layer(torch.cat([now_BTU, before_BTU], dim=2))))
        out_BTV: Tensor = self.output(self.output_norm(h_BTU))
        return out_BTV

    def _ngrams(self, tokens_BT: Tensor, document_BT: Tensor) -> Tensor:
        """Return the embeddings of the n-grams that end at each token, float32[B, T, lengths * E]. One that
        would begin in the document before ends at its own start token."""
        hash_BT, found = tokens_BT, []
        for back, embedding in enumerate(self.ngrams, 1):
            earlier_BT = F.pad(tokens_BT[:, :-back], (back, 0), value=self.start)
            owner_BT = F.pad(document_BT[:, :-back], (back, 0), value=-1)
            earlier_BT = torch.where(owner_BT == document_BT, earlier_BT, self.start)
            hash_BT = (hash_BT * HASH_FACTOR + earlier_BT + 1) & HASH_MASK
            found.append(embedding((hash_BT >> 7) % BUCKETS))
        return torch.cat(found, dim=2)


class TextNetModel:
    """What the network for the texts of one data set reads. `rows_at_once`: the rows that are computed at
    once outside a training step.
    """

    def __init__(self, encoding: Encoding, settings: TextNetSettings) -> None:
        assert encoding.vocabulary is not None
        self.encoding, self.settings, self.vocabulary = encoding, settings, encoding.vocabulary
        row_logits = math.prod(encoding.of_use("tokens")[0].shape) * self.vocabulary.size
        self.rows_at_once = max(1, min(ROWS_AT_ONCE, MAX_LOGITS // row_logits))

    def inputs(self, samples: Samples) -> tuple[Tensor, ...]:
        """Return the tokens that the others are predicted from: int64[B, T]."""
        return (torch.from_numpy(samples["tokens"][:, :-1].astype("int64")),)

    def targets(self, samples: Samples) -> Tensor:
        """Return the token after each: int64[B, T]; IGNORED for the start of a document and for padding."""
        next_BT = torch.from_numpy(samples["tokens"][:, 1:].astype("int64"))
        is_none = (next_BT == self.vocabulary.start) | (next_BT == self.vocabulary.padding)
        return next_BT.masked_fill(is_none, IGNORED)


class TextNetPredictor(TextNetModel):
    """Predicts the tokens of rows with stored weights. A `Predictor`."""

    def __init__(self, encoding: Encoding, settings: TextNetSettings, weights: bytes) -> None:
        super().__init__(encoding, settings)
        self._net = TextNet(encoding, settings)
        load_weights(self._net, weights)
        self._net.eval()

    @torch.no_grad()
    def predict(self, samples: Samples) -> Array:
        out_BTV = self._net(*self.inputs(samples))
        return np.asarray(token_losses(out_BTV, self.targets(samples)).double())


def token_losses(out_BTV: Tensor, next_BT: Tensor) -> Tensor:
    """Return the nats of each row, summed over its tokens: float32[B]."""
    nats_BT = F.cross_entropy(
        out_BTV.flatten(0, 1), next_BT.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return nats_BT.view(next_BT.shape).sum(1)
