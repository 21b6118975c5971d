"""The interface of a network to the learner of networks, and how both are stored."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shoestring.data.loading.samples import Samples
from shoestring.training.frameworks.net_settings import NetSettings
from shoestring.training.losses.scores import Array

Tensors = tuple[Tensor, ...]
ANY_ROWS = 1 << 40


@dataclass(frozen=True, slots=True)
class NetRows:
    """Rows as tensors, whose first dimension is the rows."""

    inputs: Tensors
    targets: Tensors

    def __len__(self) -> int:
        return len(self.targets[0])

    def part(self, start: int, stop: int) -> NetRows:
        """Return the rows from `start` to `stop`, as views."""
        return self._each(lambda tensor: tensor[start:stop])

    @classmethod
    def joined(cls, pieces: Sequence[NetRows]) -> NetRows:
        """Return one piece as it is, and several as a copy."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(
            tuple(map(torch.cat, zip(*(each.inputs for each in pieces), strict=True))),
            tuple(map(torch.cat, zip(*(each.targets for each in pieces), strict=True))),
        )

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in (*self.inputs, *self.targets))

    def unset(self, count: int) -> NetRows:
        """Return other rows, whose values are not set, on the same device."""
        return self._each(lambda tensor: tensor.new_empty((count, *tensor.shape[1:])))

    def take(self, positions: Tensor) -> NetRows:
        """Return the rows at positions, int64[rows], as a copy."""
        return self._each(lambda tensor: tensor.index_select(0, positions))

    def put(self, positions: Tensor, rows: NetRows) -> None:
        """Set the rows at positions, int64[rows]."""
        mine, theirs = (*self.inputs, *self.targets), (*rows.inputs, *rows.targets)
        for own, given in zip(mine, theirs, strict=True):
            own.index_copy_(0, positions, given)

    def to(self, device: torch.device, non_blocking: bool = False) -> NetRows:
        """Return the rows on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pinned(self) -> NetRows:
        """Return the rows in memory that a device reads while the processor computes."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> NetRows:
        return NetRows(tuple(map(change, self.inputs)), tuple(map(change, self.targets)))


class RecomputingNet(nn.Module):
    """A network whose layers can be computed again in the backward pass, instead of being kept for it:
    gradient checkpointing (Chen et al. 2016, arXiv 1604.06174)."""

    recomputes = False

    def computed(self, layer: nn.Module, *inputs: Any) -> Tensor:
        """Return a layer's output."""
        if self.recomputes and self.training:
            found: Tensor = checkpoint(layer, *inputs, use_reentrant=False)
            return found
        return layer(*inputs)  # type: ignore[no-any-return]


class NetKind(Protocol):
    """The network for one data set while it is trained: its inputs, how it begins, and its loss.

    `inputs` and `targets` are called by the threads that load the rows; what a step calls sees tensors only.
    `rows_at_once`: the rows that are computed at once outside a training step; `most_micro_rows`: at most, in
    one, on any device.
    """

    rows_at_once: int
    most_micro_rows: int

    @property
    def settings(self) -> NetSettings: ...

    def inputs(self, samples: Samples) -> Tensors:
        """Return the inputs of the network, in the types in which they take the least memory."""
        ...

    def targets(self, samples: Samples) -> Tensors:
        """Return what `losses` needs to know of the rows."""
        ...

    def augmented(self, inputs: Tensors, epochs: float) -> Tensors:
        """Return the inputs of a training step; `epochs`: those that were trained before it."""
        ...

    def new(self, sample: Samples) -> nn.Module:
        """Return the untrained network. `sample`: samples of train whose distribution it may use."""
        ...

    def net(self) -> nn.Module:
        """Return a network for stored weights."""
        ...

    def predicted(self, out: Tensor, samples: Samples) -> Array:
        """Return what a `Predictor` predicts, from the network's output for samples."""
        ...

    def losses(self, out: Tensor, targets: Tensors) -> Tensor:
        """Return the loss of a network's output, summed over the rows."""
        ...

    def divisor(self, rows: int) -> float:
        """Return what a step divides the loss of a batch by. It depends on its rows alone, so that a batch
        can be computed in parts."""
        ...

    def weight(self, samples: Samples) -> float:
        """Return what the loss of a validation is divided by: the number of things, or their weight."""
        ...

    def metric(self, loss: float) -> float:
        """Return a mean loss in the run's metric."""
        ...


def to_bytes(state: dict[str, Any]) -> bytes:
    """Return the state of a training, tensors and plain values, as `from_bytes` reads it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    # Their tensors may be those of a device that this machine lacks.
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return state


def weight_bytes(net: nn.Module) -> bytes:
    """Return the weights of a network as they are stored, in the format of safetensors."""
    return bytes(save({name: tensor.contiguous() for name, tensor in net.state_dict().items()}))


def load_weights(net: nn.Module, data: bytes) -> None:
    """Give a network stored weights."""
    net.load_state_dict(load(data))
