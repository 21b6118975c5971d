"""A training in bf16: where its device has it, and a few steps of each precision show that it pays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from small_dataset import reader
from test_net_device import ROWS, kinds
from torch import Tensor, nn

from shoestring.data.loading.loader import Loader
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.contracts import StepPlan
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.precision import PROBE_STEPS, WARM_STEPS, Precision

LAST_OF_PROBE = 2 * (WARM_STEPS + PROBE_STEPS)


class Bf16Cores(Device):
    """Cores that count as a device with bf16, and how often it is waited for."""

    waits = 0

    @property
    def has_bf16(self) -> bool:
        return True

    def wait(self) -> None:
        self.waits += 1


@dataclass
class Steps:
    """Steps of a precision whose time a test gives: in float32, and in bf16. The first of each is slow."""

    exact_s: float
    short_s: float
    device: Bf16Cores = field(default_factory=lambda: Bf16Cores("cpu", 0))
    now_s: float = 0.0

    def made(self, count: int) -> tuple[Precision, list[bool]]:
        """Make steps of 32 rows; return which were in bf16."""
        precision, found = Precision(self.device, lambda: self.now_s), list[bool]()
        for _ in range(count):
            precision.begin_step(32)
            is_new = precision.is_bf16 not in found
            found.append(precision.is_bf16)
            self.now_s += 5.0 if is_new else self.short_s if precision.is_bf16 else self.exact_s
        return precision, found


def test_bf16_is_taken_where_its_steps_are_faster() -> None:
    steps = Steps(exact_s=0.2, short_s=0.1)
    precision, found = steps.made(100)
    half = WARM_STEPS + PROBE_STEPS
    assert found == [False] * half + [True] * (100 - half)
    assert precision.choice == "bf16" and steps.device.waits == 4
    (change,) = precision.taken_changes()
    assert (change.lever, change.before, change.after) == ("precision", "float32", "bf16")
    assert change.reason == "20 steps at 320 rows/s in bf16, 160 in float32"
    assert precision.taken_changes() == ()


@pytest.mark.parametrize("short_s", [0.3, 0.2, 0.192])
def test_float32_stays_where_bf16_gains_less_than_5_percent(short_s: float) -> None:
    steps = Steps(exact_s=0.2, short_s=short_s)
    precision, found = steps.made(100)
    assert precision.choice == "float32" and steps.device.waits == 4
    assert not any(found[LAST_OF_PROBE:]) and found[LAST_OF_PROBE - 1]
    assert precision.taken_changes() == ()


def test_cores_are_never_waited_for_and_stay_with_float32() -> None:
    precision = Precision(Device("cpu", 0), lambda: pytest.fail("the clock is read"))
    for _ in range(LAST_OF_PROBE + 1):
        precision.begin_step(32)
    assert precision.choice == "float32" and not precision.is_bf16


def learner_on(device: Device, name: str) -> tuple[NetLearner, Any]:
    torch.manual_seed(0)
    kind, given = kinds()[name]
    return NetLearner(kind, given, len(given), device), given


@pytest.mark.parametrize("name", [*kinds()])
def test_a_network_in_bf16_has_its_weights_loss_and_norms_in_float32(name: str) -> None:
    learner, given = learner_on(Bf16Cores("cpu", 0), name)
    exact, _ = learner_on(Device("cpu", 0), name)
    learner.precision.choice = "bf16"
    dtypes, outs, batch = set[torch.dtype](), list[torch.dtype](), learner.prepare(given.part(0, 16))

    def watch(module: nn.Module, inputs: Any, out: Any) -> None:
        outs.append(out.dtype)

    def losses(out: Tensor, targets: Any) -> Tensor:
        dtypes.add(out.dtype)
        found: Tensor = type(learner.kind).losses(learner.kind, out, targets)
        return found

    linear = [each for each in learner.net.modules() if isinstance(each, nn.Linear | nn.Conv2d)]
    linear[0].register_forward_hook(watch)
    learner.kind.losses = losses  # type: ignore[method-assign]
    for _ in range(4):
        found, expected = (float(each.step(batch, 1e-3)) for each in (learner, exact))
        assert found == pytest.approx(expected, rel=0.03)
    assert set(outs) == {torch.bfloat16} and dtypes == {torch.float32}
    assert {each.dtype for each in learner.net.parameters()} == {torch.float32}
    assert {each.grad.dtype for each in learner.net.parameters() if each.grad is not None} == {torch.float32}


def test_a_training_measures_both_and_reports_its_choice_once() -> None:
    learner, _ = learner_on(Bf16Cores("cpu", 0), "table")
    clock = Steps(exact_s=0.2, short_s=0.1)
    learner.precision = Precision(learner.device, lambda: clock.now_s)
    changes = []
    with Loader(reader(ROWS), SampleCursor(seed=0), gather=learner.gather) as loader:
        for _ in range(LAST_OF_PROBE + 10):
            done = learner.advance(StepPlan(32, 1.0), loader)
            clock.now_s += 0.1 if learner.precision.is_bf16 else 0.2
            changes += [each.after for each in done.changes]
    assert changes == ["bf16"] and learner.precision.choice == "bf16"
