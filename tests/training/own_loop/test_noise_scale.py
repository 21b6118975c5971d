"""The noise of the gradient in a loop of one's own, from pairs of its steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import StillClock
from torch import Tensor, nn

from shoestring.budget import Budget, budgeted
from shoestring.training.control.noise import DENSE_EVERY, DENSE_STEPS, LATER_EVERY, LEAST_MEASUREMENTS
from shoestring.training.frameworks.torch_.gradients.step_pairs import MOST_VALUES, StepPairs

SIZE, FIRST = 400, DENSE_STEPS // DENSE_EVERY


class Loop:
    """Steps of an optimizer whose gradient has a known noise scale, at weights that stay."""

    def __init__(self, phi: float, rows: int, make: Any = torch.optim.AdamW) -> None:
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(SIZE).sign() / math.sqrt(SIZE))
        self.optimizer = make([self.weight], lr=0.0)
        self.phi, self.rows, self.seen = phi, rows, 0
        self.pairs = StepPairs(self.optimizer, lambda: self.seen)

    def steps(self, count: int, rows: int | None = None) -> None:
        for _ in range(count):
            now = rows or self.rows
            self.seen += now
            noise = torch.randn(SIZE) * math.sqrt(self.phi / SIZE / now)
            self.weight.grad = self.weight.detach() + noise
            self.optimizer.step()


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_pairs_of_steps_have_the_analytic_scale(make: Any) -> None:
    loop = Loop(1_000.0, 64, make)
    loop.steps(100 * LATER_EVERY)
    scale = loop.pairs.scale
    assert scale is not None and scale.high is not None and scale.measurements >= 99
    assert scale.low <= 1_100 and scale.high >= 900 and scale.rows == pytest.approx(1_000, rel=0.4)
    # What was read stays.
    assert loop.pairs.scale == scale


def test_one_in_so_many_steps_is_compared() -> None:
    loop = Loop(1_000.0, 64)
    loop.steps(LEAST_MEASUREMENTS * DENSE_EVERY)
    assert loop.pairs.scale is None
    loop.steps(DENSE_STEPS + 1 - LEAST_MEASUREMENTS * DENSE_EVERY)
    assert loop.pairs.scale is not None and loop.pairs.scale.measurements == FIRST
    loop.steps(10 * LATER_EVERY)
    assert loop.pairs.scale.measurements == FIRST + 10


def test_batches_of_two_sizes_are_not_compared() -> None:
    loop = Loop(1_000.0, 64)
    for _ in range(40):
        loop.steps(LATER_EVERY)
        loop.steps(1, rows=32)
        loop.steps(LATER_EVERY - 1)
    loop.steps(1)
    scale = loop.pairs.scale
    assert scale is not None and 40 <= scale.measurements <= 40 + FIRST


@pytest.mark.parametrize("kind", ["sparse", "large"])
def test_a_gradient_that_would_take_much_memory_is_left_alone(kind: str) -> None:
    net: nn.Module = nn.Embedding(8, 2, sparse=True)
    if kind == "large":
        net = nn.Linear(MOST_VALUES // 1000 + 1, 1000, bias=False, device="meta")
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.0)
    rows = iter(range(0, 10**6, 8))
    pairs = StepPairs(optimizer, lambda: next(rows))
    for _ in range(2 * DENSE_EVERY):
        if kind == "sparse":
            net(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
    assert pairs.scale is None


def test_a_budget_has_the_noise_scale_of_its_loop(tmp_path: Path) -> None:
    clock = StillClock()
    torch.manual_seed(0)
    inputs = torch.randn(640, 4)
    targets = inputs.sum(1, keepdim=True) + torch.randn(640, 1)
    data = torch.utils.data.TensorDataset(inputs, targets)
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    budget = Budget(seconds=1_000_000, checkpoints=tmp_path, monotonic_s=clock.monotonic_s)
    assert budget.noise_scale is None
    before: list[Tensor] = []
    for epoch in budget.epochs(40):
        for x, y in budgeted(loader, model, optimizer, budget):
            clock.sleep(1.0)
            (model(x) - y).square().mean().backward()
            before.append(model.weight.grad.clone())  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()
        assert epoch or budget.noise_scale is None
    scale = budget.noise_scale
    assert scale is not None and scale.rows > 0 and scale.measurements >= 20
    assert len(before) == 40 * 40
