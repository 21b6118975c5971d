"""Gradient boosting: a forest that is resumed anywhere is the same, and predicts as it was validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import CODE, NUMBER, encoding_of, reader, samples, table
from training_bench import TrainingBench, class_prior_loss, stop_after

from shoestring.core.datasets import Encoding, Feature, Loss
from shoestring.core.errors import StageStopped
from shoestring.data.families import FamilySettings
from shoestring.data.loading.samples import SampleReader
from shoestring.data.loading.selection import ValidationShare
from shoestring.training.contracts import Feed, StepPlan
from shoestring.training.families.boosted.features import FOLDS, CategoryTables, tree_targets
from shoestring.training.families.boosted.forest import BoostedPredictor
from shoestring.training.families.boosted.learner import BoostedLearner
from shoestring.training.families.boosted.settings import CODE_ROWS, BoostedSettings
from shoestring.training.losses.combination import mean_loss
from shoestring.training.losses.scores import trained_shares
from shoestring.training.replay import replay_differences

SETTINGS = BoostedSettings(max_epochs=40, patience=40)
Array = np.ndarray[Any, np.dtype[Any]]


class NoFeed:
    """A feed of a learner that holds all rows."""

    def __init__(self) -> None:
        self.rows = 0

    def next_batch(self, max_rows: int) -> Any:
        raise AssertionError("a forest reads its rows once")

    def pass_over(self, rows: int) -> None:
        self.rows += rows


FEED: Feed = NoFeed()


def learner_of(rows: Array, encoding: Encoding, settings: BoostedSettings = SETTINGS) -> BoostedLearner:
    return BoostedLearner(encoding, settings, reader(rows, encoding), 0, 1)


def grow(learner: BoostedLearner, rounds: int) -> BoostedLearner:
    for _ in range(rounds):
        learner.advance(StepPlan(learner.batch_rows, 1.0), FEED)
    return learner


def loss_of(learner: BoostedLearner, rows: SampleReader) -> float:
    return learner.validate(ValidationShare(rows, 0), "averaged")


def many_classes(classes: int) -> tuple[Array, Encoding]:
    rows = np.empty(600, np.dtype([("code", "i4"), ("number", "f4"), ("y", "i4")]))
    rng = np.random.default_rng(0)
    rows["code"], rows["number"] = rng.integers(0, 9, 600), rng.normal(size=600)
    rows["y"] = (rows["code"] + (rows["number"] > 0)) % classes
    shares = np.bincount(rows["y"], minlength=classes) / 600
    names = tuple(str(each) for each in range(classes))
    prior = tuple(shares.tolist())
    return rows, Encoding(features=(CODE, NUMBER), task="multiclass", classes=names, train_prior=prior)


def values() -> tuple[Array, Encoding]:
    rows = np.empty(400, np.dtype([("code", "i4"), ("number", "f4"), ("y", "f4")]))
    rng = np.random.default_rng(0)
    rows["code"], rows["number"] = rng.integers(0, 9, 400), rng.normal(size=400)
    rows["y"] = 100 + 20 * (rows["code"] % 3) + 5 * rows["number"]
    prior = float(rows["y"].mean()), float(rows["y"].std())
    return rows, Encoding(features=(CODE, NUMBER), task="regression", train_prior=prior)


def binary() -> tuple[Array, Encoding]:
    rows = table(600, 0)
    return rows, encoding_of(rows)


def with_loss(found: tuple[Array, Encoding], loss: Loss) -> tuple[Array, Encoding]:
    return found[0], found[1].model_copy(update={"loss": loss})


TASKS = {
    "binary": binary(),
    "three": many_classes(3),
    "twelve": many_classes(12),
    "regression": values(),
    "balanced": with_loss(many_classes(3), Loss(balanced=True)),
    "median": with_loss(values(), Loss(quantile=0.5)),
    "quantile": with_loss(values(), Loss(quantile=0.9)),
    # Too few rows of each code for a split into sets of codes.
    "few": (many_classes(3)[0][:240], many_classes(3)[1]),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("at", [[0], [1], [7], [3, 5, 6], [20]])
def test_a_forest_that_is_written_and_read_grows_into_the_same_one(task: str, at: list[int]) -> None:
    rows, encoding = TASKS[task]
    whole = grow(learner_of(rows, encoding), 20)
    resumed, grown = learner_of(rows, encoding), 0
    for rounds in at:
        state = grow(resumed, rounds - grown).state()
        resumed, grown = learner_of(rows, encoding), rounds
        resumed.restore(state)
        assert resumed.rounds == rounds
    grow(resumed, 20 - grown)
    assert resumed.export("last").data == whole.export("last").data


@pytest.mark.parametrize("task", TASKS)
def test_a_forest_learns_and_its_stored_form_has_the_loss_that_was_validated(task: str) -> None:
    rows, encoding = TASKS[task]
    learner, held = (
        learner_of(rows[:400], encoding),
        reader(rows[400:] if len(rows) > 400 else rows, encoding),
    )
    losses = [loss_of(learner, held)]
    kept = learner.export("averaged")
    for _ in range(12):
        losses.append(loss_of(grow(learner, 1), held))
    assert losses[-1] < 0.8 * losses[0]
    stored = learner.export("averaged").data
    assert learner.validate(ValidationShare(held, 0), stored) == pytest.approx(losses[-1], rel=1e-12)
    # What was kept of an earlier round is written later, and is of that round.
    assert learner.validate(ValidationShare(held, 0), kept.data) == pytest.approx(losses[0], rel=1e-12)
    found = BoostedPredictor(encoding, stored).predict(held.take(np.arange(len(held))))
    target = held.take(np.arange(len(held)))["target"]
    if encoding.classes:
        assert found.sum(axis=1) == pytest.approx(1)
    assert mean_loss(found, target, encoding) == pytest.approx(losses[-1])


@pytest.mark.parametrize("task", TASKS)
def test_a_forest_without_trees_predicts_the_prior(task: str) -> None:
    rows, encoding = TASKS[task]
    learner = learner_of(rows, encoding)
    found = BoostedPredictor(encoding, learner.export("last").data).predict(samples(rows[:5], encoding))
    expected = encoding.train_prior[0] if encoding.task == "regression" else trained_shares(encoding)
    assert found == pytest.approx(np.tile(np.atleast_1d(expected), (5, 1)).squeeze(), abs=1e-5)


def test_a_row_of_train_is_not_among_those_that_its_category_is_the_mean_of() -> None:
    """A category that each row has alone would give away its target."""
    rows = np.empty(50, np.dtype([("id", "i4"), ("y", "i4")]))
    rows["id"], rows["y"] = np.arange(1, 51), np.arange(50) % 2
    feature = Feature(name="id", kind="categorical", cardinality=51)
    encoding = Encoding(features=(feature,), task="binary", classes=("a", "b"), train_prior=(0.5, 0.5))
    read = samples(rows, encoding)
    targets = tree_targets(encoding, read["target"])
    tables = CategoryTables.fitted(encoding, read["code"], targets)
    inside = tables.features(read)[:, 0]
    assert (inside[rows["y"] == 1].min()) > inside[rows["y"] == 0].max()
    outside = tables.train_features(read, targets)[:, 0]
    assert len(np.unique(outside)) <= FOLDS
    assert tables.tables[0][0, 0] == pytest.approx(0.5)


def test_a_category_whose_words_are_features_is_the_place_of_its_name() -> None:
    rows = np.empty(50, np.dtype([("id", "i4"), ("y", "i4")]))
    rows["id"], rows["y"] = np.arange(50)[::-1], np.arange(50) % 2
    feature = Feature(name="id", kind="categorical", cardinality=51, has_words=True)
    encoding = Encoding(features=(feature,), task="binary", classes=("a", "b"), train_prior=(0.5, 0.5))
    read = samples(rows, encoding)
    targets = tree_targets(encoding, read["target"])
    tables = CategoryTables.fitted(encoding, read["code"], targets)
    for found in (tables.features(read), tables.train_features(read, targets)):
        assert found[:, 0].tolist() == rows["id"].tolist()


def test_a_category_is_read_by_its_codes_where_it_has_enough_rows() -> None:
    """The order of its values is another for numbers above 0, so no order of theirs serves all nodes."""
    draw, rows = np.random.default_rng(0), table(4000, 0)
    effects = draw.normal(size=(2, 9))
    score = effects[(rows["number"] > 0).astype(int), rows["code"]]
    rows["y"] = draw.random(len(rows)) < 1 / (1 + np.exp(-3 * score))
    encoding, few = encoding_of(rows), CODE.cardinality * CODE_ROWS
    for count, by_code in ((few, [0]), (few - 1, [])):
        assert learner_of(rows[:count], encoding).tables.by_code == by_code
    held = reader(rows[3000:], encoding)
    learner = grow(learner_of(rows[:3000], encoding), 10)
    assert "cat_threshold" in learner.state().data.decode()
    found = learner.export("last").data
    unknown = samples(rows[:50], encoding)
    unknown["code"][:] = 0
    assert np.isfinite(BoostedPredictor(encoding, found).predict(unknown)).all()
    assert loss_of(learner, held) < 0.75 * class_prior_loss(rows[:3000], rows[3000:])


def test_rows_that_no_leaf_is_large_enough_for_give_the_prior() -> None:
    rows = table(15, 0)
    learner = grow(learner_of(rows, encoding_of(rows)), 3)
    held = reader(table(100, 1), encoding_of(rows))
    assert loss_of(learner, held) == pytest.approx(class_prior_loss(rows, table(100, 1)), rel=1e-6)
    again = learner_of(rows, encoding_of(rows))
    again.restore(learner.state())
    grow(again, 1)
    assert loss_of(again, held) == pytest.approx(loss_of(learner, held))


def test_a_lower_rate_adds_less_of_each_tree_also_in_a_forest_that_is_resumed() -> None:
    rows, encoding = TASKS["binary"]
    held = reader(rows, encoding)
    whole, half = (learner_of(rows, encoding) for _ in range(2))
    for learner in (whole, half):
        grow(learner, 2)
    half.advance(StepPlan(half.batch_rows, 0.5), FEED)
    again = learner_of(rows, encoding)
    again.restore(grow(learner_of(rows, encoding), 2).state())
    again.advance(StepPlan(again.batch_rows, 0.5), FEED)
    assert again.state().data == half.state().data
    assert loss_of(grow(whole, 1), held) < loss_of(half, held)


def test_the_controller_keeps_the_rate_of_rounds(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, BoostedSettings(max_epochs=15))
    bench.training().run()
    assert {window.rate for window in bench.log().windows if window.steps} == {1.0}
    assert list(replay_differences(bench.log())) == []


def bench_of(folder: Path, settings: FamilySettings = SETTINGS, **changes: Any) -> TrainingBench:
    return TrainingBench(folder, train=table(1000, 0), settings=settings, **changes)


def test_a_training_ends_when_rounds_stop_helping_and_keeps_the_best(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, BoostedSettings(patience=5))
    trained = bench.training().run()
    rounds = trained.state.samples // 1000
    points = [point.val_loss for point in bench.points() if point.val_loss is not None]
    assert 10 < rounds < 200 and len(points) >= rounds
    assert trained.weights_source == "best round"
    assert trained.val_loss == min(points) < 0.8 * class_prior_loss(bench.train, bench.validation)
    assert trained.stop_reason.startswith("the validation loss stopped improving")
    assert {window.steps for window in bench.log().windows} <= {0, 1}


def test_a_training_that_is_stopped_and_resumed_ends_with_the_same_forest(tmp_path: Path) -> None:
    whole = bench_of(tmp_path / "whole").training().run()
    for steps in (3, 9):
        with pytest.raises(StageStopped):
            bench_of(tmp_path / "cut", should_stop=stop_after(steps)).training().run()
    resumed = bench_of(tmp_path / "cut").training().run()
    assert (resumed.weights, resumed.val_loss) == (whole.weights, whole.val_loss)
    assert resumed.state.samples == whole.state.samples == 40_000
    assert resumed.state.sample_ranges == whole.state.sample_ranges
