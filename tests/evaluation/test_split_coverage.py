"""A test score estimates what a model scores on new rows, whichever rows of a table are equal: the split and
the interval go by the same units, and neither by the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.split import assign_table
from shoestring.evaluation.metrics import statistics
from shoestring.evaluation.resampling import resample
from shoestring.evaluation.units import make_units

TABLES, NEW_ROWS = 400, 100_000
Array = np.ndarray[Any, np.dtype[Any]]


def quiet(phase: str, done: int) -> None:
    pass


@dataclass
class Sheets:
    """A generator of questionnaires: the chance of each distinct sheet, and that of `yes` for it."""

    random: np.random.Generator
    chance: Array
    yes: Array

    @classmethod
    def drawn(cls, random: np.random.Generator) -> Sheets:
        count = int(np.exp(random.uniform(np.log(2), np.log(501))))
        return cls(random, random.dirichlet(np.full(count, 2.0)), random.beta(1, 1, count))

    def draw(self, rows: int) -> tuple[Array, Array]:
        """Return the sheet and the label of each row."""
        sheet = np.searchsorted(self.chance.cumsum()[:-1], self.random.random(rows))
        return sheet, (self.random.random(rows) < self.yes[sheet]).astype(np.int64)


def scores(p_yes: Array, y: Array, groups: Array | None = None) -> Iterator[tuple[float, float, float]]:
    """Yield log loss and accuracy, each with the ends of its interval."""
    units = make_units(groups, len(y))
    prepared = statistics("binary", y, np.column_stack([1 - p_yes, p_yes]), units)
    chosen = [prepared[name] for name in ("log_loss", "accuracy")]
    for found in resample(chosen, units, 0, quiet):
        score = found.score()
        low, high = (np.nan if end is None else end for end in (score.low, score.high))
        yield score.value, low, high


def true_scores(p_yes: Array, sheets: Sheets) -> tuple[float, float]:
    """Return log loss and accuracy on new rows of the generator, by how many each sheet has of each label."""
    rows = sheets.random.multinomial(NEW_ROWS, sheets.chance)
    yes = sheets.random.binomial(rows, sheets.yes)
    loss = -(yes * np.log(p_yes) + (rows - yes) * np.log(1 - p_yes)).sum() / NEW_ROWS
    return float(loss), float(np.where(p_yes > 0.5, yes, rows - yes).sum() / NEW_ROWS)


def test_the_interval_holds_the_score_on_new_rows_however_many_rows_are_equal() -> None:
    """Of 400 drawn tables, the model is the mean of each sheet in train. A fifth has a number in every row,
    which makes all rows distinct."""
    found = np.array([errors(seed) for seed in range(TABLES)])
    held, error = found[:, :, 0], found[:, :, 1]
    assert (held.mean(axis=0) >= 0.9).all(), held.mean(axis=0)
    bias, standard_error = error.mean(axis=0), error.std(axis=0) / np.sqrt(TABLES)
    assert (abs(bias) <= 2 * standard_error).all(), (bias, standard_error)


def errors(seed: int) -> list[tuple[bool, float]]:
    """Return for each metric whether its interval holds the true score, and the error of its value."""
    random = np.random.default_rng(seed)
    sheets, rows = Sheets.drawn(random), int(random.integers(300, 5001))
    sheet, y = sheets.draw(rows)
    table = pa.table({"first": sheet % 10, "second": (sheet // 10).astype(str), "y": y})
    if seed % 5 == 0:
        table = table.append_column("person", pa.array(np.arange(rows)))
    recipe = {"name": "sheets", "source": {"rows": {"path": "sheets.csv"}}, "target": {"column": "y"}}
    _, assigned = assign_table(table, Recipe.model_validate(recipe | {"seed": seed}), table.column_names)
    train, _, test = (assigned.split_indices == index for index in range(len(SPLITS)))
    size = len(sheets.chance)
    ones, counts = np.bincount(sheet[train], y[train], size), np.bincount(sheet[train], minlength=size)
    model = (ones + 1) / (counts + 2)
    groups = None if assigned.groups is None else assigned.groups[test]
    return [
        (low <= truth <= high, value - truth)
        for (value, low, high), truth in zip(
            scores(model[sheet[test]], y[test], groups), true_scores(model, sheets), strict=True
        )
    ]
