"""The learner of networks: the tensors of a batch, losses read once a window, states in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path

import pytest
import torch
from clocks import StillClock
from image_nets import image_learner, squares
from loop_overhead import IdleLearner, idle_task
from small_dataset import encoding_of, reader, samples, table
from training_bench import FREE, TINY

from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Samples
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.spending.meter import Meter
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.frameworks.torch_.net_kind import NetRows, Tensors
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.loop import Training

ROWS = table(600, 0)
ENCODING = encoding_of(ROWS)
DROPPING = TINY.model_copy(update={"dropout": 0.3, "category_dropout": 0.2})


def net_of(kind: TableNetKind | None = None) -> NetLearner:
    torch.manual_seed(0)
    return NetLearner(kind or TableNetKind(ENCODING, DROPPING), samples(ROWS), len(ROWS))


def test_the_threads_that_load_the_rows_make_their_tensors() -> None:
    makers = list[str]()

    class Watched(TableNetKind):
        def inputs(self, samples: Samples) -> Tensors:
            makers.append(threading.current_thread().name)
            return super().inputs(samples)

        def targets(self, samples: Samples) -> Tensors:
            makers.append(threading.current_thread().name)
            return super().targets(samples)

    learner = net_of(Watched(ENCODING, TINY))
    with Loader(reader(ROWS), SampleCursor(seed=0), gather=learner.gather) as loader:
        for _ in range(30):
            learner.advance(StepPlan(64, 1.0), loader)
    assert makers and all(name.startswith("loader") for name in makers)


def test_batches_of_tensors_are_those_of_samples_also_across_blocks() -> None:
    learner = net_of()
    small = {"prefetch_bytes": 3 * 50 * ROWS.dtype.itemsize}
    with (
        Loader(reader(ROWS), SampleCursor(seed=3), **small) as plain,
        Loader(reader(ROWS), SampleCursor(seed=3), gather=learner.gather, **small) as prepared,
    ):
        for _ in range(20):
            expected = learner.prepare(plain.next_batch(70).samples)
            rows: NetRows = prepared.next_batch(70).samples
            assert len(rows) == len(expected)
            for found, made in zip(
                (*rows.inputs, *rows.targets), (*expected.inputs, *expected.targets), strict=True
            ):
                assert torch.equal(found, made)


@dataclass
class CountedLoss:
    """A loss that counts how often it is read."""

    reads: list[int]
    steps: int = 1

    def __add__(self, other: CountedLoss) -> CountedLoss:
        return CountedLoss(self.reads, self.steps + other.steps)

    def __float__(self) -> float:
        self.reads.append(self.steps)
        return 0.5 * self.steps


class CountingLearner(IdleLearner):
    def __init__(self, clock: StillClock) -> None:
        super().__init__(clock)
        self.reads = list[int]()

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        return Progress(super().advance(plan, feed).samples, CountedLoss(self.reads))


def test_the_losses_of_a_window_are_read_once(tmp_path: Path) -> None:
    clock = StillClock()
    learner = CountingLearner(clock)
    training = Training(idle_task(tmp_path, clock, 6_400, 3, FREE), learner)
    training.run()
    windows = [window for window in training.state.windows if window.steps]
    assert learner.reads == [window.steps for window in windows]
    assert len(windows) < sum(learner.reads)
    assert {window.train_loss for window in windows} == {0.5}


class Device:
    """A device that computes the steps that it is given one after the other. `ends_s`: when it is ready."""

    def __init__(self, clock: StillClock, step_s: Callable[[], float]) -> None:
        self.clock, self.step_s, self.ends_s = clock, step_s, 0.0

    def queue(self) -> None:
        self.ends_s = max(self.ends_s, self.clock.monotonic_s()) + self.step_s()

    def wait(self) -> None:
        self.clock.sleep(max(0.0, self.ends_s - self.clock.monotonic_s()))


@dataclass
class QueuedLoss:
    device: Device

    def __add__(self, other: QueuedLoss) -> QueuedLoss:
        return self

    def __float__(self) -> float:
        self.device.wait()
        return 0.5


class QueueingLearner(IdleLearner):
    """Names a step to a device in `HOST_S` seconds."""

    queues_steps = True
    is_used = False

    def __init__(self, clock: StillClock, device: Device) -> None:
        super().__init__(clock, HOST_S)
        self.device = device

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        done = super().advance(plan, feed)
        self.device.queue()
        return Progress(done.samples, QueuedLoss(self.device))

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        """The first use of the device takes 5 s."""
        self.device.clock.sleep(0.01 if self.is_used else 5.0)
        self.is_used = True
        return super().validate(rows, weights)


HOST_S, STEP_S = 0.0001, 0.02


@pytest.mark.parametrize("first_s", [STEP_S, 4.0])
def test_a_device_is_given_no_more_steps_than_its_money_pays_for(tmp_path: Path, first_s: float) -> None:
    """A device of which steps take 200 times as long as it takes to name them. The first may take long: its
    kernels are loaded."""
    clock = StillClock()
    started_s, steps = clock.monotonic_s(), count()
    deadline = Meter(Decimal(0), started_s, Decimal(0), started_s + 60)
    device = Device(clock, lambda: STEP_S if next(steps) else first_s)
    learner = QueueingLearner(clock, device)
    training = Training(idle_task(tmp_path, clock, 64_000, 1000, deadline), learner)
    assert training.measured.costs.validation_s == pytest.approx(0.01)
    training.run()
    device.wait()
    assert clock.monotonic_s() <= started_s + 60
    # All but the first use, the first step, and the guard's reserve is steps.
    assert learner.steps * STEP_S > 60 - 5 - first_s - 2 * first_s - 2
    windows = [each for each in training.state.windows if each.steps > 1]
    assert all(each.seconds == pytest.approx(STEP_S * each.steps, rel=0.05) for each in windows)
    assert max(each.seconds for each in windows) < 2


@pytest.mark.parametrize("of", ["memory", "bytes", "memory, then bytes"])
def test_a_learner_returns_to_a_marked_state_as_often_as_it_is_asked(of: str) -> None:
    learner = net_of()
    rows = learner.prepare(samples(ROWS[:64]))
    for _ in range(3):
        learner.step(rows, 0.01)
    marked = learner.state()
    state = marked if of != "bytes" else Deferred(lambda: marked.data)
    ends = list[list[torch.Tensor]]()
    for attempt in range(3):
        losses = [learner.step(rows, 0.01) for _ in range(5)]
        found = (*losses, *learner.net.parameters(), *learner.average.parameters())
        ends.append([each.detach().clone() for each in found])
        if of == "memory, then bytes" and attempt == 1:
            assert marked.data
        learner.restore(state)
        assert (learner.steps, learner.seen) == (3, 3 * 64)
    for other in ends[1:]:
        assert all(torch.equal(one, again) for one, again in zip(ends[0], other, strict=True))
    assert float(ends[0][0]) != float(ends[0][4])


def test_the_normalisation_of_a_net_that_returns_to_its_beginning_is_new_again() -> None:
    rows = squares(64, 0)
    learner = image_learner(rows)
    before, batch = learner.state(), learner.prepare(rows)
    first = [float(learner.step(batch, 0.01)) for _ in range(3)]
    after = learner.state()
    expected = learner.net.convolutions[0].norm.mean.clone()
    learner.restore(before)
    assert [float(learner.step(batch, 0.01)) for _ in range(3)] == first
    assert torch.equal(learner.net.convolutions[0].norm.mean, expected)
    learner.restore(after)
    learner.step(batch, 0.0)
    # A tenth of the mean is that of the last batch; of a new one it would be all.
    moved = learner.net.convolutions[0].norm.mean
    assert 0 < float((moved - expected).abs().max()) < 0.2 * float(expected.abs().max())
