"""The limit of the gradient's norm: its own interval, whatever the device, the window or the attempt."""

from __future__ import annotations

import math

import pytest
import torch
from test_micro_batches import learner_of, without_dropout
from torch import nn

from shoestring.training.frameworks.torch_.gradients.norm_limit import (
    BLOCK_STEPS,
    LEAST_BLOCKS,
    MAX_NORM,
    NormLimit,
)
from shoestring.training.frameworks.torch_.net_kind import from_bytes, to_bytes

OWN = BLOCK_STEPS * LEAST_BLOCKS
CPU = torch.device("cpu")


def norms(count: int, seed: int, middle: float = 0.1) -> list[float]:
    """Return norms whose logarithm is normal."""
    torch.manual_seed(seed)
    return (middle * (0.2 * torch.randn(count)).exp()).tolist()


def clipped(limit: NormLimit, values: list[float]) -> list[float]:
    """Return the norms after the limit."""
    weight, found = nn.Parameter(torch.zeros(4)), []
    for value in values:
        weight.grad = torch.full((4,), value / 2)
        assert float(limit.clip([weight])) == pytest.approx(value)
        found.append(float(weight.grad.norm()))
    return found


def test_in_the_first_steps_the_limit_is_1() -> None:
    values = [0.5, 3.0, 1.0, 1e-9]
    assert clipped(NormLimit(CPU), values) == pytest.approx([0.5, MAX_NORM, MAX_NORM, 1e-9], rel=1e-5)
    weight = nn.Parameter(torch.zeros(4))
    weight.grad = torch.tensor([1.0, -2.0, 3.0, 0.5])
    expected = weight.grad.clone()
    NormLimit(CPU).clip([weight])
    weight.grad, own = expected, weight.grad
    nn.utils.clip_grad_norm_([weight], MAX_NORM)
    assert torch.equal(weight.grad, own)


def test_later_it_is_the_upper_end_of_the_99_9_percent_interval() -> None:
    limit = NormLimit(CPU)
    clipped(limit, norms(50 * BLOCK_STEPS, 0))
    limit.mark()
    values = norms(100 * BLOCK_STEPS, 1)
    found = clipped(limit, values)
    mean, count = limit.read()
    assert mean == pytest.approx(sum(values) / len(values), rel=1e-5)
    assert count == sum(after < before * (1 - 1e-5) for before, after in zip(values, found, strict=True))
    # One in 2,000 is above.
    assert count <= 8
    (outlier,) = clipped(limit, [0.9])
    assert outlier == pytest.approx(0.1 * math.exp(3.29 * 0.2), rel=0.25)
    assert limit.read()[1] == count + 1


def test_an_outlier_does_not_raise_the_limit_far() -> None:
    limit, other = NormLimit(CPU), NormLimit(CPU)
    clipped(limit, norms(OWN, 0))
    clipped(other, norms(OWN, 0))
    values = norms(BLOCK_STEPS, 1)
    clipped(limit, values)
    clipped(other, [0.99, *values[1:]])
    one, with_outlier = (clipped(each, [0.99])[0] for each in (limit, other))
    assert one <= with_outlier < 1.5 * one


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_has_no_part_in_it(bad: float) -> None:
    limit, weight = NormLimit(CPU), nn.Parameter(torch.zeros(4))
    for _ in range(OWN):
        weight.grad = torch.full((4,), bad)
        limit.clip([weight])
    mean, count = limit.read()
    assert mean is None and count == 0
    clipped(limit, norms(OWN, 0))
    assert 0 < clipped(limit, [0.99])[0] <= MAX_NORM


def test_a_limit_continues_from_its_state_in_the_middle_of_a_block() -> None:
    values = norms(2 * OWN + 5, 0)
    whole, first, second = (NormLimit(CPU) for _ in range(3))
    clipped(whole, values)
    clipped(first, values[: OWN + 7])
    second.restore(from_bytes(to_bytes({"norms": first.state()}))["norms"])
    clipped(second, values[OWN + 7 :])
    assert clipped(second, [0.9]) == clipped(whole, [0.9])


def test_a_learner_goes_back_with_its_limit_and_stores_it() -> None:
    kind, given = without_dropout("table")
    learner, other = learner_of(kind, given), learner_of(kind, given)
    rows = learner.prepare(given.part(0, 20))
    for _ in range(OWN):
        learner.step(rows, 0.01)
        other.step(rows, 0.01)
    learner.mark()
    for _ in range(BLOCK_STEPS):
        learner.step(rows, 0.5)
    learner.go_back()
    again = learner_of(kind, given)
    again.restore(learner.state())
    for _ in range(BLOCK_STEPS + 1):
        for each in (learner, other, again):
            each.step(rows, 0.01)
    for one, two, three in zip(*(each.net.parameters() for each in (learner, other, again)), strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)
