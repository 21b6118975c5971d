"""A window of steps whose loss is not a finite number is taken back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_dataset import NUMBER
from training_bench import TINY, TrainingBench

from shoestring.core.datasets import Encoding
from shoestring.core.errors import StageFailed
from shoestring.training.replay import replay_differences


def broken(folder: Path, epochs: int, value: float) -> TrainingBench:
    """A training on 600 rows, the target of one of which is not finite."""
    generator = np.random.default_rng(0)
    rows = np.empty(700, np.dtype([("number", "f4"), ("y", "f4")]))
    rows["number"] = generator.normal(size=len(rows))
    rows["y"] = 3 * rows["number"] + generator.normal(size=len(rows))
    rows["y"][311] = value
    encoding = Encoding(features=(NUMBER,), task="regression", train_prior=(0.0, 3.0))
    settings = TINY.model_copy(update={"max_epochs": epochs, "batch_rows": 16, "learning_rate": 0.05})
    return TrainingBench(
        folder,
        train=rows[:600],
        validation=rows[600:],
        settings=settings,
        encoding=encoding,
        step_s=lambda: 0.02,
    )


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_the_steps_of_a_window_whose_loss_is_not_finite_are_taken_back(tmp_path: Path, value: float) -> None:
    bench = broken(tmp_path, 3, value)
    trained = bench.training().run()
    log = bench.log()
    bad = [each for each in log.windows if each.diverged_loss]
    assert len(bad) == 3 and all(each.train_loss is None for each in bad)
    for number, window in enumerate(bad, 1):
        (change,) = (each for each in window.changes if each.lever == "guardrail")
        began = window.samples - window.rows
        assert change.sentence == (
            f"at {window.samples:,} samples, guardrail weights at {window.samples:,} samples -> weights at "
            f"{began:,} samples, learning rate times {0.5**number:g}: the loss of the steps between them is "
            f"{window.diverged_loss}"
        )
    assert [*replay_differences(log)] == []
    assert trained.val_loss is not None and trained.val_loss < 1.5
    assert trained.state.samples == 3 * 600 and trained.depends_on_limits


def test_a_loss_that_is_never_finite_again_fails_the_training_with_its_numbers(tmp_path: Path) -> None:
    bench = broken(tmp_path, 9, np.inf)
    with pytest.raises(StageFailed, match=r"the loss is nan, also at a learning rate 8 times lower\. Lower"):
        bench.training().run()
