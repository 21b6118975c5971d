"""A decoder-only transformer for rows of tokens: pre-norm layers, rotary positions, causal attention.

Nothing is read across the start of a document.

Shape suffixes: B rows of a batch; T tokens of a row but the last; U units of a token; H heads; D units of a
head; V tokens of the vocabulary. Of the blocks that a row is cut into: N their number; Q tokens of a block;
K tokens that a block attends to, its own and those of the block before.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout
from shoestring.training.frameworks.torch_.net_kind import RecomputingNet
from shoestring.training.frameworks.torch_.token_net import HashedNGrams, TokenModel, begin_as_frequencies

ROTARY_BASE, INIT_STD = 10_000.0, 0.02


class Blocks:
    """The pairs of tokens of a batch that attend to one another, and the angles of their positions.

    A row is cut into blocks as long as the window, each of which attends to itself and the one before, so
    time and memory grow with the window and not with the row.
    """

    def __init__(self, document_BT: Tensor, window: int, head_width: int) -> None:
        length = document_BT.shape[1]
        self.size = min(window, length)
        self.count = -(-length // self.size)
        self.padding = self.count * self.size - length
        device = document_BT.device
        at_Q = torch.arange(self.size, device=device)
        at_K = torch.arange(-self._before, self.size, device=device)
        distance_QK = at_Q[:, None] - at_K[None]
        near_QK = (distance_QK >= 0) & (distance_QK < window)
        owner_BNQ = F.pad(document_BT, (0, self.padding), value=-1).view(-1, self.count, self.size)
        owner_BNK = self.keys(owner_BNQ[..., None], outside=-2)[..., 0]
        self.mask_BNQK = near_QK & (owner_BNQ[..., None] == owner_BNK[..., None, :])
        rates_D = ROTARY_BASE ** -(torch.arange(0, head_width, 2, device=device) / head_width)
        angles_TD = torch.arange(length, device=device)[:, None] * rates_D
        self._cos_TD, self._sin_TD = angles_TD.cos(), angles_TD.sin()

    @property
    def _before(self) -> int:
        """Tokens of the block before that each attends to."""
        return self.size if self.count > 1 else 0

    def keys(self, blocks_BNQU: Tensor, outside: int = 0) -> Tensor:
        """Return each block behind the one before it: [B, N, K, U]. Before the first is `outside`."""
        if self.count == 1:
            return blocks_BNQU
        before_BNQU = F.pad(blocks_BNQU[:, :-1], (0, 0, 0, 0, 1, 0), value=outside)
        return torch.cat([before_BNQU, blocks_BNQU], dim=2)

    def turned(self, h_BTHD: Tensor) -> Tensor:
        """Return queries or keys with rotary positions (Su et al. 2021)."""
        left, right = h_BTHD.chunk(2, dim=3)
        cos, sin = self._cos_TD[:, None], self._sin_TD[:, None]
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=3)

    def cut(self, h_BTHD: Tensor) -> Tensor:
        """Return the blocks of the rows: float32[B, N, Q, H * D]."""
        padded = F.pad(h_BTHD.flatten(2), (0, 0, 0, self.padding))
        return padded.view(len(padded), self.count, self.size, -1)


class TransformerLayer(nn.Module):
    """Attention, then a feed-forward net, each behind a norm and added to its input."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        width, inner = settings.width, settings.feed_forward * settings.width
        self.heads = settings.heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = ByteDropout(settings.dropout)
        # GPT-2's: what the layers add has the same variance, however many there are.
        for linear in (self.attended, self.outer):
            nn.init.normal_(linear.weight, std=INIT_STD / (2 * settings.layers) ** 0.5)

    def forward(self, h_BTU: Tensor, blocks: Blocks) -> Tensor:
        h_BTU = h_BTU + self.dropout(self.attended(self._attention(self.attention_norm(h_BTU), blocks)))
        added_BTU: Tensor = self.dropout(self.outer(F.silu(self.inner(self.norm(h_BTU)))))
        return h_BTU + added_BTU

    def _attention(self, h_BTU: Tensor, blocks: Blocks) -> Tensor:
        rows, length, width = h_BTU.shape
        query, key, value = self.query_key_value(h_BTU).view(rows, length, 3, self.heads, -1).unbind(2)
        found = F.scaled_dot_product_attention(
            self._by_head(blocks.cut(blocks.turned(query))),
            self._by_head(blocks.keys(blocks.cut(blocks.turned(key)))),
            self._by_head(blocks.keys(blocks.cut(value))),
            attn_mask=blocks.mask_BNQK.flatten(0, 1)[:, None],
        )
        return found.transpose(1, 2).reshape(rows, -1, width)[:, :length]

    def _by_head(self, h_BNKU: Tensor) -> Tensor:
        """Return blocks as attention reads them: float32[B * N, H, K, D]."""
        _, _, tokens, width = h_BNKU.shape
        return h_BNKU.reshape(-1, tokens, self.heads, width // self.heads).transpose(1, 2)


class Transformer(RecomputingNet):
    """Predicts each token of a row from those before it, in the same document and the same row.

    The net starts as the frequencies of the tokens in train: the last layer is zero, and its bias holds them.
    """

    def __init__(self, encoding: Encoding, settings: TransformerSettings) -> None:
        super().__init__()
        assert encoding.vocabulary is not None
        self.start, size, width = encoding.vocabulary.start, encoding.vocabulary.size, settings.width
        self.window, self.head_width = settings.window, width // settings.heads
        self.embedding = nn.Embedding(size, width)
        self.ngrams = HashedNGrams(self.start) if settings.ngrams else None
        self.widen = nn.Linear(self.ngrams.width, width) if self.ngrams is not None else None
        self.layers = nn.ModuleList(TransformerLayer(settings) for _ in range(settings.layers))
        self.output_norm, self.output = nn.LayerNorm(width), nn.Linear(width, size)
        nn.init.normal_(self.embedding.weight, std=0.1)
        if self.ngrams is not None:
            self.ngrams.init_weights()
        begin_as_frequencies(self.output, encoding)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each: float32[B, T, V]."""
        tokens_BT = tokens_BT.long()
        document_BT = (tokens_BT == self.start).cumsum(1)
        h_BTU = self.embedding(tokens_BT)
        if self.ngrams is not None and self.widen is not None:
            h_BTU = h_BTU + self.widen(self.ngrams(tokens_BT, document_BT))
        blocks = Blocks(document_BT, self.window or tokens_BT.shape[1], self.head_width)
        for layer in self.layers:
            h_BTU = self.computed(layer, h_BTU, blocks)
        out_BTV: Tensor = self.output(self.output_norm(h_BTU))
        return out_BTV


class TransformerKind(TokenModel[TransformerSettings]):
    """The transformer for the texts of one data set. A `NetKind`."""

    def net(self) -> Transformer:
        return Transformer(self.encoding, self.settings)
