"""The device of a training: how rows come to it, and its random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from shoestring.core.errors import StageFailed
from shoestring.data.loading.samples import Positions
from shoestring.training.frameworks.torch_.net_kind import NetRows

SEED_FACTOR, STEP_FACTOR, SEED_MASK = 0x9E3779B1, 0x85EBCA6B, (1 << 32) - 1
"""Two odd numbers of 32 bits: no two of 2^32 consecutive steps begin with the same seed."""

FUSED = ("cpu", "cuda")
"""The types of devices that update all weights at once by AdamW's own kernel."""


class Device:
    """A device that trains: its rows are copied to it while it computes on earlier ones."""

    def __init__(self, name: str, seed: int) -> None:
        """`name`: as PyTorch names it: cpu, cuda, cuda:1. Raises StageFailed: PyTorch finds no GPU."""
        self.torch, self._seed = torch.device(name), seed
        self._generator: torch.Generator | None = None
        self._stream: torch.cuda.Stream | None = None
        if self.torch.type == "cpu":
            self._generator = torch.default_generator
        elif self.torch.type == "cuda":
            _require_cuda()
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._generator = torch.cuda.default_generators[self.torch.index or 0]
            # The tensor cores of TF32: losses stay within those of other seeds.
            torch.set_float32_matmul_precision("high")
            self._stream = torch.cuda.Stream(self.torch)  # type: ignore[no-untyped-call]

    @property
    def queues_steps(self) -> bool:
        """True if it computes steps later than it is asked to."""
        return self.torch.type != "cpu"

    @property
    def updates_at_once(self) -> bool:
        return self.torch.type in FUSED

    @property
    def has_bf16(self) -> bool:
        """True if it multiplies bf16 faster than float32: NVIDIA's from Ampere on."""
        return self.torch.type == "cuda" and torch.cuda.get_device_capability(self.torch)[0] >= 8

    def autocast(self, is_bf16: bool) -> AbstractContextManager[Any]:
        """Return the context in which a network is computed."""
        return torch.autocast(self.torch.type, torch.bfloat16) if is_bf16 else nullcontext()

    def wait(self) -> None:
        """Wait for the steps that it was given."""
        if self.torch.type == "cuda":
            torch.cuda.synchronize(self.torch)

    def begin_step(self, step: int) -> None:
        """Seed what is drawn next by the step alone, so that a training that is resumed draws the same, on
        whichever device of its type."""
        if self._generator is not None:
            self._generator.manual_seed((self._seed * SEED_FACTOR + step * STEP_FACTOR) & SEED_MASK)

    def free_bytes(self) -> int:
        """Return the memory that a device of its own has left; 0: it has none, or none is known."""
        return torch.cuda.mem_get_info(self.torch)[0] if self.torch.type == "cuda" else 0

    def rows(self, rows: NetRows) -> NetRows:
        """Return rows on the device. The threads that load them call it, and wait for the copy."""
        if self.torch.type == "cpu":
            return rows
        with self.copying():
            copied = rows.to(self.torch) if self._stream is None else rows.pinned().to(self.torch, True)
        return self.for_steps(copied)

    def release(self) -> None:
        """Give memory that nothing holds back to the device."""
        if self.torch.type == "cuda":
            torch.cuda.empty_cache()

    def positions(self, samples: Positions) -> Tensor:
        """Return positions on the device: int64[rows]."""
        return torch.from_numpy(samples).to(self.torch)

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Run copies while steps are computed, and wait for them."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield
        self._stream.synchronize()

    def for_steps(self, copied: NetRows) -> NetRows:
        """Return what was made by `copying`. Its memory was given out on the stream of the copies, and steps
        read it on another one."""
        if self._stream is not None:
            reader = torch.cuda.default_stream(self.torch)
            for tensor in (*copied.inputs, *copied.targets):
                tensor.record_stream(reader)
        return copied


def _require_cuda() -> None:
    if torch.cuda.is_available():
        return
    lacks = (
        "is built without CUDA: install a build for CUDA, or use the image train-gpu"
        if torch.version.cuda is None
        else f"for CUDA {torch.version.cuda} finds none: look at nvidia-smi and at the driver's version"
    )
    raise StageFailed(f"the stage was placed on a GPU, and PyTorch {torch.__version__} {lacks}")
