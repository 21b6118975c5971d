"""What the networks for texts share: the tokens that they read, the loss of the next one, hashed n-grams.

Shape suffixes: B rows of a batch; T tokens of a row but the last; E width of the embedding of an n-gram;
V tokens of the vocabulary.
"""

from __future__ import annotations

import math
from typing import Generic, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.frameworks.net_settings import NetSettings
from shoestring.training.frameworks.text_batches import text_rows_at_once
from shoestring.training.frameworks.torch_.net_kind import ANY_ROWS, Tensors
from shoestring.training.losses.scores import Array

NGRAMS = (2, 3, 4, 5)
"""The lengths of the n-grams that end at a token and are read as one value."""

BUCKETS, NGRAM_WIDTH = 1 << 13, 32
"""Each length of n-grams shares this many hashed embeddings of this width: 1 MB."""

HASH_FACTOR, HASH_MASK = 0x9E3779B1, (1 << 31) - 1
"""Knuth's multiplicative hash (The Art of Computer Programming 3, section 6.4). The mask prevents an overflow
of 64 bits."""

IGNORED = -100

OwnSettings = TypeVar("OwnSettings", bound=NetSettings)


class HashedNGrams(nn.ModuleList):
    """Embeddings of the n-grams that end at a token, by their hash."""

    def __init__(self, start: int) -> None:
        """`start`: the token before each document."""
        super().__init__(nn.Embedding(BUCKETS, NGRAM_WIDTH) for _ in NGRAMS)
        self.start, self.width = start, len(NGRAMS) * NGRAM_WIDTH

    def init_weights(self) -> None:
        """Draw the embeddings."""
        for embedding in self:
            nn.init.normal_(embedding.weight, std=0.05)  # type: ignore[arg-type]

    def forward(self, tokens_BT: Tensor, document_BT: Tensor) -> Tensor:
        """Return float32[B, T, lengths * E]. An n-gram that would begin in the document before ends at its
        own start token. `document_BT`: the number of the document of each token in its row."""
        hash_BT, found = tokens_BT, []
        for back, embedding in enumerate(self, 1):
            earlier_BT = F.pad(tokens_BT[:, :-back], (back, 0), value=self.start)
            owner_BT = F.pad(document_BT[:, :-back], (back, 0), value=-1)
            earlier_BT = torch.where(owner_BT == document_BT, earlier_BT, self.start)
            hash_BT = (hash_BT * HASH_FACTOR + earlier_BT + 1) & HASH_MASK
            found.append(embedding((hash_BT >> 7) % BUCKETS))
        return torch.cat(found, dim=2)


def begin_as_frequencies(output: nn.Linear, encoding: Encoding) -> None:
    """Make the last layer of an untrained net predict the frequencies of the tokens in train."""
    nn.init.zeros_(output.weight)
    with torch.no_grad():
        output.bias.copy_(torch.tensor(encoding.train_prior).clamp(min=1e-6).log())


class TokenModel(Generic[OwnSettings]):
    """What a network for the texts of one data set reads. `rows_at_once`: the rows that are computed at once
    outside a training step.
    """

    most_micro_rows = ANY_ROWS

    def __init__(self, encoding: Encoding, settings: OwnSettings) -> None:
        assert encoding.vocabulary is not None
        self.encoding, self.settings, self.vocabulary = encoding, settings, encoding.vocabulary
        row_tokens = math.prod(encoding.of_use("tokens")[0].shape)
        self._row_bytes = 1.0
        self.rows_at_once = text_rows_at_once(row_tokens, self.vocabulary.size)

    def net(self) -> nn.Module:
        raise NotImplementedError

    def inputs(self, samples: Samples) -> Tensors:
        """Return the tokens that the others are predicted from: [B, T]."""
        return (_stored(samples["tokens"][:, :-1]),)

    def targets(self, samples: Samples) -> Tensors:
        """Return the token after each: [B, T]."""
        return (_stored(samples["tokens"][:, 1:]),)

    def augmented(self, inputs: Tensors, epochs: float) -> Tensors:
        return inputs

    def new(self, sample: Samples) -> nn.Module:
        self._row_bytes = max(1.0, float(sample["target"].mean()))
        return self.net()

    def losses(self, out: Tensor, targets: Tensors) -> Tensor:
        """Return the nats of all tokens."""
        return token_losses(out, self.counted(targets[0])).sum()

    def divisor(self, rows: int) -> float:
        """Return the expected bytes of rows: those of a batch would be known after its last part alone."""
        return rows * self._row_bytes

    def counted(self, next_BT: Tensor) -> Tensor:
        """Return tokens as int64[B, T], with IGNORED for the start of a document and for padding."""
        next_BT = next_BT.long()
        is_none = (next_BT == self.vocabulary.start) | (next_BT == self.vocabulary.padding)
        return next_BT.masked_fill(is_none, IGNORED)

    def weight(self, samples: Samples) -> int:
        """Return the bytes of the texts."""
        return int(samples["target"].sum())

    def predicted(self, out: Tensor, samples: Samples) -> Array:
        """Return the nats of each row, float64[B]."""
        next_BT = self.targets(samples)[0].to(out.device)
        return np.asarray(token_losses(out, self.counted(next_BT)).double().cpu())

    def metric(self, loss: float) -> float:
        """Return bits per byte."""
        return loss / math.log(2)


def token_losses(out_BTV: Tensor, next_BT: Tensor) -> Tensor:
    """Return the nats of each row, summed over its tokens: float32[B]."""
    nats_BT = F.cross_entropy(
        out_BTV.flatten(0, 1), next_BT.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return nats_BT.view(next_BT.shape).sum(1)


def _stored(tokens_BT: Array) -> Tensor:
    """Return tokens as a tensor: uint8 where they are stored so, else int32, which every device computes."""
    return torch.from_numpy(tokens_BT.astype(np.uint8 if tokens_BT.dtype.itemsize == 1 else np.int32))
