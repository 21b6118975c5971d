"""A causal net for rows of tokens: hashed n-grams, then convolutions that reach twice as far back each.

Nothing is read across the start of a document.

Shape suffixes: B rows of a batch; T tokens of a row but the last; U units of a layer; V tokens of the
vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout
from shoestring.training.frameworks.torch_.token_net import HashedNGrams, TokenModel, begin_as_frequencies


class TextNet(nn.Module):
    """Predicts each token of a row from those before it, in the same document and the same row.

    The net starts as the frequencies of the tokens in train: the last layer is zero, and its bias holds them.
    """

    def __init__(self, encoding: Encoding, settings: TextNetSettings) -> None:
        super().__init__()
        assert encoding.vocabulary is not None
        self.start, size, units = encoding.vocabulary.start, encoding.vocabulary.size, settings.hidden[0]
        self.embedding = nn.Embedding(size, units)
        self.ngrams = HashedNGrams(self.start)
        self.widen = nn.Linear(self.ngrams.width, units)
        self.norms = nn.ModuleList(nn.LayerNorm(units) for _ in settings.hidden)
        self.layers = nn.ModuleList(nn.Linear(2 * units, units) for _ in settings.hidden)
        self.dropout = ByteDropout(settings.dropout)
        self.output_norm, self.output = nn.LayerNorm(units), nn.Linear(units, size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.ngrams.init_weights()
        begin_as_frequencies(self.output, encoding)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each: float32[B, T, V]."""
        tokens_BT = tokens_BT.long()
        document_BT = (tokens_BT == self.start).cumsum(1)
        h_BTU = self.embedding(tokens_BT) + self.widen(self.ngrams(tokens_BT, document_BT))
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


class TextNetKind(TokenModel[TextNetSettings]):
    """The network for the texts of one data set. A `NetKind`."""

    def net(self) -> TextNet:
        return TextNet(self.encoding, self.settings)
