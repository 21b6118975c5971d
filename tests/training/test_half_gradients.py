"""A batch computed as two halves: what they say of the gradient's noise, and what they leave as it is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from image_nets import image_learner, squares
from small_dataset import table
from test_micro_batches import PLAIN, learner_of, without_dropout
from torch import Tensor, nn
from training_bench import TINY, TrainingBench, net_learner

from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import StepPlan
from shoestring.training.control.noise import DENSE_EVERY, NOT_MEASURED, GradientNoise
from shoestring.training.curve import Halves
from shoestring.training.frameworks.torch_.gradients.halves import HalfGradients
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.replay import replay_differences

KINDS = ("table", "weighted classes", "quantile", "pixels of a table", "text_net", "transformer")


def gradients(learner: NetLearner, given: Samples) -> list[Tensor]:
    """Return the gradient of the mean loss of some rows, by the weights that have one."""
    rows, weights = learner.prepare(given), [each for each in learner.net.parameters() if each.requires_grad]
    loss = learner.kind.losses(learner.net(*rows.inputs), rows.targets) / learner.kind.divisor(len(rows))
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [
        torch.zeros_like(weight) if each is None else each
        for weight, each in zip(weights, found, strict=True)
    ]


def scales(learner: NetLearner) -> list[Tensor]:
    """Return 1 / (sqrt(v) + epsilon) of each weight, zero where v is."""
    found = []
    for weight in learner.net.parameters():
        if weight.requires_grad:
            root = (learner.optimizer.state[weight]["exp_avg_sq"] / (1 - 0.99**learner.steps)).sqrt()
            found.append(torch.where(root > 0, 1 / (root + 1e-8), 0.0).double())
    return found


def measured(learner: NetLearner, given: Samples, rate: float = 0.01) -> tuple[Halves, ...]:
    """Return the halves of one step."""
    learner.mark()
    learner.step(learner.prepare(given), rate, is_measured=True)
    return learner.readings().halves


@pytest.mark.parametrize("micro_rows", [1 << 40, 3])
@pytest.mark.parametrize("name", KINDS)
def test_halves_are_the_gradients_of_each_half(name: str, micro_rows: int) -> None:
    kind, given = without_dropout(name)
    learner = learner_of(kind, given)
    learner.micro_rows = micro_rows
    learner.step(learner.prepare(given.part(0, 20)), 0.01)
    pairs = zip(gradients(learner, given.part(20, 30)), gradients(learner, given.part(30, 40)), strict=True)
    product = difference = 0.0
    for scale, (first, second) in zip(scales(learner), pairs, strict=True):
        product += float((first.double() * second.double() * scale).sum())
        difference += float(((first.double() - second.double()).square() * scale).sum())
    (found,) = measured(learner, given.part(20, 40))
    assert (found.seen, found.rows) == (20, 10)
    assert found.difference == pytest.approx(difference, rel=1e-3)
    assert found.product == pytest.approx(product, rel=1e-2, abs=1e-3 * difference)


@pytest.mark.parametrize("name", KINDS)
def test_a_measured_step_learns_what_another_one_does(name: str) -> None:
    kind, given = without_dropout(name)
    plain, halved = learner_of(kind, given), learner_of(kind, given)
    for start in (0, 20):
        rows = plain.prepare(given.part(start, start + 20))
        losses = [float(plain.step(rows, 0.01)), float(halved.step(rows, 0.01, is_measured=True))]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for one, other in zip(plain.net.parameters(), halved.net.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-4)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_batch_without_halves_measures_nothing(rows: int) -> None:
    kind, given = without_dropout("table")
    learner = learner_of(kind, given)
    learner.step(learner.prepare(given.part(0, 20)), 0.01)
    assert measured(learner, given.part(20, 20 + rows)) == ()


def test_the_first_step_has_no_preconditioner_and_measures_nothing() -> None:
    kind, given = without_dropout("table")
    assert measured(learner_of(kind, given), given.part(0, 20)) == ()


def test_the_halves_of_images_are_normalised_as_other_batches_are() -> None:
    given = squares(64, 0)
    plain, halved = (image_learner(given, batch_rows=16, **PLAIN_IMAGES) for _ in range(2))
    for learner, is_measured in ((plain, False), (halved, True)):
        for start in (0, 32):
            learner.step(learner.prepare(given.part(start, start + 32)), 0.01, is_measured)
    # 32 rows are two parts of 16 in either case.
    for one, other in zip(plain.net.parameters(), halved.net.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [each.rows for each in halved.readings().halves] == [16]


PLAIN_IMAGES: dict[str, Any] = {"dropout": PLAIN["dropout"], "flip": False}


def quadratic(phi: float, rows: int, steps: int) -> GradientNoise:
    """Return the noise of the loss |w - x|^2 / 2 with x of a normal distribution around 0, at a w that stays.
    The gradient of a row is w - x; of all, w, whose elements are of one size: so Adam's weights are."""
    torch.manual_seed(0)
    size = 400
    weight = nn.Parameter(torch.randn(size).sign() / math.sqrt(size))
    optimizer = torch.optim.AdamW([weight], lr=0.0, betas=(0.9, 0.99), weight_decay=0.0)
    halves, noise = HalfGradients([weight], optimizer), NOT_MEASURED
    for step in range(steps):
        optimizer.zero_grad()
        # The mean of a half's rows: its noise has 1 / rows of their variance.
        for half in range(2):
            centre = torch.randn(size) * math.sqrt(phi / size / rows)
            ((weight - centre).square().sum() / 4).backward()
            if not half:
                halves.end_first()
        if step:
            noise = noise.after([halves.compared(2 * rows * step, rows, step).read()])
        optimizer.step()
    return noise


@pytest.mark.parametrize(("phi", "rows"), [(10.0, 16), (1_000.0, 64), (100_000.0, 4_096)])
def test_the_noise_scale_of_a_quadratic_is_the_analytic_one(phi: float, rows: int) -> None:
    scale = quadratic(phi, rows, 300).scale
    assert scale is not None and scale.high is not None
    assert scale.low <= phi * 1.1 and phi * 0.9 <= scale.high
    assert scale.rows == pytest.approx(phi, rel=0.4)


def test_weights_without_a_gradient_so_far_are_left_out() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], betas=(0.9, 0.99))
    weight.grad = torch.tensor([1.0, 0.0])
    optimizer.step()
    halves = HalfGradients([weight], optimizer)
    weight.grad = torch.tensor([0.5, 7.0])
    halves.end_first()
    weight.grad = torch.tensor([1.0, 9.0])
    found = halves.compared(0, 8, 1).read()
    # v is 1 and 0: of the first weight both halves are 1, and the second has no scale.
    assert (found.product, found.difference) == (pytest.approx(1.0), pytest.approx(0.0))


def test_a_training_measures_its_noise_and_replays(tmp_path: Path) -> None:
    settings = TINY.model_copy(update={"max_epochs": 40})
    bench = TrainingBench(tmp_path, train=table(1_000, 0), settings=settings, step_s=lambda: 0.01)
    training = bench.training()
    training.run()
    log = bench.log()
    found = [each for window in log.windows for each in window.halves]
    assert len(found) > 20 and {each.rows for each in found} == {31}
    assert found[0].seen == DENSE_EVERY * 31
    scales = [window.noise for window in log.windows if window.noise is not None]
    assert scales and all(each.low <= each.rows for each in scales)
    assert training.state.controller.noise.measurements == len(found)
    assert all(each.gradient_norm is not None for each in log.windows if each.steps)
    assert list(replay_differences(log)) == []


def test_a_plan_that_measures_reaches_the_learner(tmp_path: Path) -> None:
    training = TrainingBench(tmp_path, train=table(2_000, 0)).training()
    learner, task = net_learner(training), training.task
    with training._loader() as loader:
        learner.advance(StepPlan(32, 1.0), loader)
        learner.mark()
        done = learner.advance(StepPlan(64, 1.0, is_measured=True), loader)
    assert done.samples == 64 and len(learner.readings().halves) == 1
    assert task.setup(learner).measures_noise
