"""What the network for images learns: its layers and its first weights.

Shape suffixes as in `predictor`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.image_net.layers import PADDING, Layer
from shoestring.training.families.image_net.predictor import NORM_EPSILON, net_layers, rows_at_once
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.frameworks.net_settings import embedding_width
from shoestring.training.frameworks.torch_.batch_norm import BatchNorm
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout, keep_mask
from shoestring.training.frameworks.torch_.net_kind import Tensors
from shoestring.training.frameworks.torch_.score_losses import ScoreLosses, start_as_prior
from shoestring.training.losses.scores import outputs

CATEGORY_DROPOUT = 0.1
"""The share of category codes that each step replaces by 'unknown', so that it is trained too."""


class Convolution(nn.Module):
    """A convolution with its normalisation and ReLU."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.kernel = nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, PADDING, bias=False)
        self.norm = BatchNorm(layer.outputs, NORM_EPSILON)

    def forward(self, h_BCHW: Tensor) -> Tensor:
        if max(self.layer.pool) > 1:
            h_BCHW = F.max_pool2d(h_BCHW, self.layer.pool)
        out_BOHW = F.relu(self.norm(self.kernel(h_BCHW)))
        return out_BOHW + h_BCHW if self.layer.is_residual else out_BOHW


class ImageNet(nn.Module):
    """Convolutions, the mean of each channel, and a linear layer. Where a row has features, a layer between
    reads these beside the means. The net starts as the prior: the last layer is zero, and its bias holds the
    class shares of train.
    """

    def __init__(self, encoding: Encoding, settings: ImageNetSettings) -> None:
        super().__init__()
        sizes = [each.cardinality for each in encoding.features if each.kind == "categorical"]
        self.settings, channels = settings, settings.hidden[-1]
        layers = net_layers(encoding, settings)
        self.convolutions = nn.ModuleList(map(Convolution, layers))
        self.register_buffer("pools", torch.tensor([each.pool for each in layers]))
        self.embeddings = nn.ModuleList(nn.Embedding(size, embedding_width(size)) for size in sizes)
        if encoding.features:
            width = channels + sum(map(embedding_width, sizes)) + len(encoding.features) - len(sizes)
            self.mix = nn.Linear(width, channels)
        self.dropout = ByteDropout(settings.dropout)
        self.output = nn.Linear(channels, outputs(encoding))
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=0.05)  # type: ignore[arg-type]
        start_as_prior(self.output, encoding)

    def forward(self, pixels_BCHW: Tensor, codes_BF: Tensor, numbers_BN: Tensor) -> Tensor:
        """Return logits, or standardised values for a regression: float32[B, S]."""
        h_BCHW = pixels_BCHW * (1 / 255)
        for convolution in self.convolutions:
            h_BCHW = convolution(h_BCHW)
        h_BD = h_BCHW.mean((2, 3))
        if hasattr(self, "mix"):
            if self.training:
                codes_BF = codes_BF * keep_mask(codes_BF, CATEGORY_DROPOUT)
            columns = zip(self.embeddings, codes_BF.unbind(1), strict=True)
            parts = [embedding(code_B) for embedding, code_B in columns]
            h_BD = F.relu(self.mix(torch.cat([h_BD, *parts, numbers_BN], dim=1)))
        out_BS: Tensor = self.output(self.dropout(h_BD))
        return out_BS


class ImageNetKind(ScoreLosses):
    """The network for the images of one data set. A `NetKind`."""

    def __init__(self, encoding: Encoding, settings: ImageNetSettings) -> None:
        super().__init__(encoding)
        self.settings = settings
        self.rows_at_once = rows_at_once(net_layers(encoding, settings))
        # Its normalisation depends on the rows that are computed together.
        self.most_micro_rows = settings.batch_rows

    def inputs(self, samples: Samples) -> Tensors:
        """Return the pixels, uint8[B, C, H, W], and the codes and numbers of the features."""
        pixels_BCHW = torch.from_numpy(samples["image"].copy())
        return pixels_BCHW, torch.from_numpy(samples["code"]), torch.from_numpy(samples["number"])

    def augmented(self, inputs: Tensors, epochs: float) -> Tensors:
        """Return the inputs with images that are moved and mirrored as the settings allow."""
        pixels_BCHW, *others = inputs
        return _moved(pixels_BCHW, self.settings, epochs), *others

    def net(self) -> ImageNet:
        return ImageNet(self.encoding, self.settings)

    def new(self, sample: Samples) -> ImageNet:
        return self.net()


def _moved(pixels_BCHW: Tensor, settings: ImageNetSettings, epochs: float) -> Tensor:
    rows, _, height, width = pixels_BCHW.shape
    device = pixels_BCHW.device
    if settings.flip:
        is_flipped_B = torch.rand(rows, device=device) < 0.5
        pixels_BCHW = torch.where(is_flipped_B[:, None, None, None], pixels_BCHW.flip(3), pixels_BCHW)
    if not (most := settings.shift_at(epochs, min(height, width))):
        return pixels_BCHW
    down_B1, right_B1 = torch.randint(2 * most + 1, (2, rows, 1), device=device)
    y_BH = torch.arange(height, device=device) + down_B1
    x_BW = torch.arange(width, device=device) + right_B1
    padded_BHWC = F.pad(pixels_BCHW, (most,) * 4).permute(0, 2, 3, 1)
    at_B = torch.arange(rows, device=device)[:, None, None]
    return padded_BHWC[at_B, y_BH[:, :, None], x_BW[:, None, :]].permute(0, 3, 1, 2)
