"""An attempt that ends with the last batch of a pass: no later pass is without batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from small_trainings import SmallTraining
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from shoestring.budget import Budget
from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files

pytestmark = pytest.mark.filterwarnings("ignore:.* ended with", "ignore:the loader has no position")
ROWS, STEPS, STEPS_PER_PASS = 40, 45, 10


class NumberStream(IterableDataset[Tensor]):
    """A data set that does not know its length."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from (torch.tensor([float(each)]) for each in range(ROWS))


LOADERS: dict[str, Callable[[], object]] = {
    "shuffled": lambda: None,
    "stream": lambda: DataLoader(NumberStream(), batch_size=4),
    "list": lambda: [torch.arange(first, first + 4.0).reshape(4, 1) for first in range(0, ROWS, 4)],
}


def train(kind: str, folder: Path, stop_after: int | None) -> SmallTraining:
    """Run a script until it has 45 steps, or gets SIGTERM."""
    torch.manual_seed(5)
    training = SmallTraining(loader=LOADERS[kind]())
    budget = Budget(seconds=5000, checkpoints=folder, monotonic_s=training.clock.monotonic_s)

    def stop(step: int) -> None:
        budget.loop.termination.requested = step == stop_after

    training.after_step = stop
    training.run(budget, steps=STEPS)
    return training


@pytest.mark.parametrize("kind", LOADERS)
def test_the_next_attempt_begins_with_a_whole_pass(kind: str, tmp_path: Path) -> None:
    first = train(kind, tmp_path, 2 * STEPS_PER_PASS)
    assert int(checkpoint_files(tmp_path)[0].stem.split("-")[1]) == len(first.rates) == 2 * STEPS_PER_PASS
    rest = train(kind, tmp_path, None)
    assert [len(rows) for rows in rest.seen] == [ROWS, ROWS, ROWS // 2]
    assert len(rest.rates) == STEPS - 2 * STEPS_PER_PASS
