"""A training that ends anywhere continues from its checkpoint as if it had not ended."""

from __future__ import annotations

import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from small_trainings import PEAK, CountedRows, Killed, SmallTraining, kill_at, seeded
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from shoestring.budget import Budget, budgeted
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files
from shoestring.training.own_loop.loading.random_states import random_states, set_random_states

pytestmark = pytest.mark.filterwarnings("ignore:.* ended with")
STEPS, ROWS = 45, 40  # four and a half epochs


class NumberStream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield from (torch.tensor([float(each)]) for each in range(ROWS))


class StatefulNumbers:
    """A loader that saves its own position, with the methods of torchdata's StatefulDataLoader."""

    def __init__(self) -> None:
        self.at, self.read = 0, list[int]()

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]

    def __iter__(self) -> Iterator[Tensor]:
        while self.at < ROWS:
            self.read += range(self.at, self.at + 4)
            self.at += 4
            yield torch.arange(self.at - 4.0, self.at).reshape(4, 1)
        self.at = 0


def torchdata_loader(rows: CountedRows) -> object:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(rows, batch_size=4, shuffle=True)


LOADERS: dict[str, Callable[[CountedRows], object]] = {
    "shuffled": lambda rows: DataLoader(rows, batch_size=4, shuffle=True),
    "own generator": lambda rows: DataLoader(
        rows, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "batch sampler": lambda rows: DataLoader(
        rows, batch_sampler=BatchSampler(RandomSampler(rows), 4, drop_last=True)
    ),
    "workers": lambda rows: DataLoader(
        rows, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "stream": lambda rows: DataLoader(NumberStream(), batch_size=4),
    "list": lambda rows: [torch.arange(first, first + 4.0).reshape(4, 1) for first in range(0, ROWS, 4)],
    "stateful": lambda rows: StatefulNumbers(),
    "torchdata": torchdata_loader,
}


def attempt(kind: str, folder: Path | None, killed_at: int | None = None) -> SmallTraining:
    """Run one attempt of a script, which seeds everything as scripts do, and return what it saw."""
    torch.manual_seed(5)
    rows = CountedRows(ROWS)
    training = SmallTraining(rows=rows, loader=LOADERS[kind](rows))
    if killed_at is not None:
        training.after_step = kill_at(killed_at)
    # With so many seconds the named steps alone set the rates, which are the same after any kill.
    budget = Budget(seconds=5000, checkpoints=folder, monotonic_s=training.clock.monotonic_s)
    budget.loop.checkpoint_interval_s = 3.0
    try:
        training.run(budget, steps=STEPS)
    except Killed:
        assert killed_at is not None
    if kind == "workers":
        training.loader._iterator._shutdown_workers()
    return training


undisturbed = cache(partial(attempt, folder=None))


@pytest.mark.filterwarnings("ignore:no folder|the loader has no position")
@pytest.mark.parametrize("killed_at", [2, 10, 11, 27, 44])
@pytest.mark.parametrize("kind", LOADERS)
def test_a_killed_training_ends_with_the_same_weights(kind: str, killed_at: int, tmp_path: Path) -> None:
    if kind == "workers" and killed_at not in (10, 27):
        pytest.skip("processes are slow to start")
    whole = undisturbed(kind)
    first = attempt(kind, tmp_path, killed_at)
    saved = newest(tmp_path)
    rest = attempt(kind, tmp_path)
    assert len(first.rates) == killed_at
    assert rest.rates == whole.rates[saved:]
    if kind == "torchdata" and saved % 10 == 0:
        # It draws the order of the next epoch from one seed later than without the restart.
        assert all(sorted(epoch) == list(range(ROWS)) for epoch in rest.seen[1:-1])
        return
    assert rest.weights() == whole.weights()
    flat = [row for epoch in whole.seen for row in epoch]
    assert [row for epoch in rest.seen for row in epoch] == flat[4 * saved :]


def newest(folder: Path) -> int:
    """Return the number of batches in the newest checkpoint; 0: there is none."""
    return int(files[0].stem.split("-")[1]) if (files := checkpoint_files(folder)) else 0


def test_a_resumed_epoch_loads_only_the_rows_that_are_left(tmp_path: Path) -> None:
    first = attempt("shuffled", tmp_path, 7)
    saved = newest(tmp_path)
    rest = attempt("shuffled", tmp_path)
    assert 0 < saved < 7
    assert len(rest.rows.loaded) == 4 * (STEPS - saved)
    assert sorted(first.seen[0][: 4 * saved] + rest.seen[0]) == list(range(ROWS))
    for epoch in rest.seen[1:-1]:
        assert sorted(epoch) == list(range(ROWS))


def test_other_iterables_are_read_and_dropped_which_is_said_once(tmp_path: Path) -> None:
    attempt("stream", tmp_path, 17)
    with pytest.warns(
        UserWarning, match=r"the loader has no position of its own: \d batches are read"
    ) as found:
        attempt("stream", tmp_path)
    assert sum("no position" in str(each.message) for each in found) == 1


def test_a_loader_with_a_position_of_its_own_reads_nothing_twice(tmp_path: Path) -> None:
    attempt("stateful", tmp_path, 17)
    saved = newest(tmp_path)
    rest = attempt("stateful", tmp_path)
    assert isinstance(rest.loader, StatefulNumbers)
    assert rest.loader.read[0] == 4 * (saved % 10)


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    attempt("shuffled", tmp_path)
    assert len(checkpoint_files(tmp_path)) == 2
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "text"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(damage: str, tmp_path: Path) -> None:
    attempt("shuffled", tmp_path, 30)
    newer, older = checkpoint_files(tmp_path)
    do_damage(newer, damage)
    with pytest.warns(UserWarning, match=f"{newer.name} is damaged"):
        rest = attempt("shuffled", tmp_path)
    assert len(rest.rates) == STEPS - int(older.stem.split("-")[1])


def test_if_both_are_damaged_training_starts_over(tmp_path: Path) -> None:
    attempt("shuffled", tmp_path, 30)
    for path in checkpoint_files(tmp_path):
        do_damage(path, "flipped")
    with pytest.warns(UserWarning, match="is damaged"):
        rest = attempt("shuffled", tmp_path)
    assert len(rest.rates) == STEPS


def do_damage(path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        with zipfile.ZipFile(path) as archive:
            tensor = max(archive.infolist(), key=lambda each: each.file_size)
        names = sum(struct.unpack("<HH", data[tensor.header_offset + 26 : tensor.header_offset + 30]))
        data[tensor.header_offset + 30 + names + tensor.file_size // 2] ^= 1
    half, text = len(data) // 2, b"x" * 99
    found = {"truncated": bytes(data[:half]), "empty": b"", "flipped": bytes(data), "text": text}
    path.write_bytes(found[damage])


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    attempt("shuffled", tmp_path, 30)
    other = SmallTraining(model=seeded(lambda: nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))))
    budget = Budget(seconds=1000, checkpoints=tmp_path, monotonic_s=other.clock.monotonic_s)
    with pytest.raises(UsageError, match="is of another model or optimizer"):
        other.run(budget)


@pytest.mark.filterwarnings("ignore:no folder")
def test_a_second_optimizer_in_one_budget_is_refused() -> None:
    training = SmallTraining()
    budget = Budget(seconds=1000, monotonic_s=training.clock.monotonic_s)
    training.run(budget, steps=3)
    other = SmallTraining()
    with pytest.raises(UsageError, match="the optimizers that it has begun with"):
        other.run(budget, steps=3)


def test_all_attempts_share_one_budget_and_the_rate_does_not_rise_again(tmp_path: Path) -> None:
    rates, spent_s = list[float](), 0.0
    for killed_at in (90, 90, None):
        training = SmallTraining(validation_s=3)
        if killed_at:
            training.after_step = kill_at(killed_at)
        budget = Budget(seconds=300, checkpoints=tmp_path, monotonic_s=training.clock.monotonic_s)
        try:
            training.run(budget)
        except Killed:
            rates += training.rates
        spent_s += training.clock.at_s
    rates += training.rates
    assert 280 < spent_s <= 300 + 2  # the time is saved once a second
    after_warm_up = rates[20:]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(after_warm_up))
    assert rates[-1] < 0.05 * PEAK


def test_a_budget_that_is_used_up_trains_nothing_but_loads_the_model(tmp_path: Path) -> None:
    first = SmallTraining()
    first.run(Budget(seconds=50, checkpoints=tmp_path, monotonic_s=first.clock.monotonic_s))
    again = SmallTraining(model=nn.Linear(1, 1))
    with pytest.warns(UserWarning, match=r"no batch is trained \(the budget"):
        again.run(Budget(seconds=50, checkpoints=tmp_path, monotonic_s=again.clock.monotonic_s))
    assert again.weights() == first.weights()
    assert again.rates == []


def test_a_larger_budget_continues_the_training(tmp_path: Path) -> None:
    first = SmallTraining()
    first.run(Budget(seconds=50, checkpoints=tmp_path, monotonic_s=first.clock.monotonic_s))
    more = SmallTraining()
    more.run(Budget(seconds=100, checkpoints=tmp_path, monotonic_s=more.clock.monotonic_s))
    assert 40 < len(more.rates) <= 51
    assert more.epochs[0] == first.epochs[-1]


@pytest.mark.filterwarnings("ignore:no folder")
def test_a_script_may_leave_an_epoch_and_the_next_one_begins() -> None:
    training = SmallTraining()
    budget = Budget(seconds=200, monotonic_s=training.clock.monotonic_s)
    assert training.optimizer is not None
    counts = []
    for _ in budget.epochs(5):
        for number, batch in enumerate(
            budgeted(training.loader, training.model, training.optimizer, budget), 1
        ):
            training.seen.append(batch.flatten().int().tolist())
            training.clock.sleep(1)
            if number == 4:
                break
        counts.append(number)
        budget.report(loss=1.0)
    assert counts == [4] * 5


@pytest.mark.filterwarnings("ignore:no folder")
def test_a_script_with_its_own_epochs_gets_no_batch_after_the_end() -> None:
    training = SmallTraining()
    budget = Budget(seconds=55, monotonic_s=training.clock.monotonic_s)
    assert training.optimizer is not None
    counts = []
    for _ in range(9):
        count = 0
        for _ in budgeted(training.loader, training.model, training.optimizer, budget):
            count += 1
            training.clock.sleep(1)
        counts.append(count)
    assert counts[:5] == [10] * 5
    assert 0 < counts[5] < 5
    assert counts[6:] == [0] * 3


def test_without_a_folder_it_is_said_once_that_no_checkpoint_is_written() -> None:
    training = SmallTraining()
    with pytest.warns(UserWarning, match="no folder for checkpoints is named") as found:
        training.run(Budget(seconds=50, monotonic_s=training.clock.monotonic_s))
    assert len(found) == 1


def test_all_random_generators_are_restored() -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), float(torch.rand(())), float(np.random.rand()), float(np.random.randn())

    draw()
    states = random_states()
    drawn = draw()
    draw()
    set_random_states(states)
    assert draw() == drawn
