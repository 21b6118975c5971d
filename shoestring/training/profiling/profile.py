"""The profile of a training's steps: where their time goes, and what would pay."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord

OperatorKind = Literal["product", "pointwise", "layout", "optimizer", "other"]
"""Products of matrices and convolutions; what computes each value alone or sums over some; copies; the update
of the weights; and the rest, most of it PyTorch's own work."""

Lever = Literal["loading", "precision", "fusion", "layout", "batch", "threads"]


class Operator(Record):
    """An operator of PyTorch in a mean step, without those that it calls."""

    name: str
    kind: OperatorKind
    calls: float = Field(description="a step")
    seconds: float = Field(description="of a step: of a device of its own, else of the calling thread")
    share: float = Field(description="of a step, as the profiler measured it")
    usd: Usd = Field(description="of a million rows")
    bytes: int = Field(
        description="of memory that it takes in a step, some of it given back in the same step"
    )


class Trial(Record):
    """Some steps with one setting changed."""

    lever: Lever
    setting: str
    rows_per_s: float
    gain: float = Field(description="rows a second, as a multiple of those without the change")


class Advice(Record):
    """A change that would pay."""

    lever: Lever
    gain: float = Field(description="rows a second, as a multiple; at most, where it is not measured")
    is_measured: bool
    text: str


class WeightStep(Record):
    """A weight in one step. Norms are Euclidean (of a matrix: Frobenius)."""

    name: str
    is_matrix: bool = Field(description="of two dimensions or more: no bias, and no gain of a norm")
    gradient_norm: float
    norm: float
    update_norm: float
    times_median: float = Field(0.0, description="its relative update, of the median of all matrices")

    @property
    def relative_update(self) -> float:
        return self.update_norm / self.norm if self.norm else 0.0


class DeviceMemory(Record):
    """The memory of a device of its own, as PyTorch's allocator has it."""

    peak_bytes: int = Field(description="the most that tensors took at once")
    reserved_bytes: int = Field(description="taken from the device")
    wasted_bytes: int = Field(description="reserved in pieces too small for what was needed")


class Profile(StoredRecord):
    """Where the time of a training's steps goes."""

    device: str
    framework: str
    threads: int
    rows: int = Field(description="of a step")
    step_s: float = Field(description="mean of steps without the profiler, with loading")
    loading_share: float = Field(description="of a step: waiting for its rows")
    usd_per_hour: Usd
    operators: tuple[Operator, ...] = Field(description="by their time")
    host_s: float = Field(description="of a step: of the host's cores, in operators")
    device_s: float | None = Field(description="of a step: in kernels of the device; null: it has none")
    memory: DeviceMemory | None
    trials: tuple[Trial, ...]
    advice: tuple[Advice, ...]
    badly_conditioned: tuple[WeightStep, ...] = Field(
        description="weights whose update is small or large among those of the same step"
    )
    profile_s: float = Field(description="what profiling took beyond the steps themselves")
    limit_s: float = Field(description="what it might take")
    left_out: tuple[str, ...] = Field(description="what the limit left no time for")

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.step_s
