"""A whole evaluation in a store, of predictors with a known true model."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoded_datasets import MODEL_KEY, Task, chances, dataset, encoding_of, model_of, trained

from shoestring.backends.local import WallClock
from shoestring.core.datasets import STANDARD_LOSS
from shoestring.core.errors import DataError, StageFailed, StageStopped
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.data.loading.samples import SampleReader
from shoestring.data.metrics import METRICS
from shoestring.data.split_settings import Split
from shoestring.data.storage.blobs import load_manifest
from shoestring.evaluation.evaluate import (
    BOOSTING,
    FINISH_S,
    EvaluationRequest,
    evaluate,
)
from shoestring.evaluation.resampling import MIN_RESAMPLES, RESAMPLES
from shoestring.evaluation.results import EvaluationResults
from shoestring.spending.meter import Meter
from shoestring.training.families.boosted.settings import BASELINE
from shoestring.training.families.table_net.settings import TableNetSettings

ROWS = {"train": 2000, "val": 400, "test": 600}
CLOCK = WallClock()


def meter(left_s: float = 3600.0) -> Meter:
    return Meter(Decimal("40"), CLOCK.monotonic_s(), Decimal("1"), CLOCK.monotonic_s() + left_s)


def quiet(phase: str, done: int) -> None:
    """Ignore the progress."""


def true_predictor(task: Task) -> Any:
    """Return a predictor that predicts the true probabilities."""

    def predict(store: Store, key: str, rows: SampleReader) -> Any:
        (found,) = rows.scan(10**6)
        names = {"where": found["code"][:, 0], "shade": found["code"][:, 1], "size": found["number"][:, 0]}
        return chances(task, names)

    return predict


def evaluation_request(data_key: str, predict: Any, **changes: Any) -> EvaluationRequest:
    fields = {
        "run_id": "one",
        "split": Split(),
        "split_seed": 0,
        "dataset_key": data_key,
        "model_key": MODEL_KEY,
        "metric_for": lambda task: METRICS[task][0],
        "loss": STANDARD_LOSS,
        "seed": 0,
        "cores": 1,
        "meter": meter(),
    } | changes
    return EvaluationRequest(predict=predict, **fields)


def evaluated(
    folder: Path, task: Task, *, groups: int = 0, seconds: float = 0.6, predict: Any = None, **changes: Any
) -> EvaluationResults:
    store, data_key = dataset(folder, task, ROWS, groups=groups)
    trained(store, data_key, seconds)
    return evaluate(
        evaluation_request(data_key, predict or true_predictor(task), **changes), store, CLOCK, quiet
    )


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_results_hold_every_metric_of_every_model_and_survive_a_round_trip(
    tmp_path: Path, task: Task
) -> None:
    card = evaluated(tmp_path, task, groups=30)
    assert [each.name for each in card.scored_models] == [
        "model",
        "mean" if task == "regression" else "class prior",
        BOOSTING,
    ]
    for each in card.scored_models:
        assert tuple(each.scores) == METRICS[task]
        assert tuple(each.difference) == (() if each is card.model else METRICS[task])
    assert (card.metric, card.rows, card.unit_count, card.resampling_unit) == (
        METRICS[task][0],
        600,
        30,
        "groups",
    )
    assert sum(each.rows for each in card.calibration) == (0 if task == "regression" else 600)
    assert EvaluationResults.model_validate_json(record_bytes(card)) == card


def test_the_true_model_is_significantly_better_than_the_baselines(tmp_path: Path) -> None:
    card = evaluated(tmp_path, "binary")
    assert card.resampling_unit == "rows" and card.unit_count == 600
    for baseline in card.baselines:
        difference = baseline.difference["log_loss"]
        assert difference.value == pytest.approx(
            card.model.scores["log_loss"].value - baseline.scores["log_loss"].value
        )
        assert (
            difference.low is not None
            and difference.high is not None
            and difference.low < difference.value < difference.high < 0
        )
    fit = card.baselines[1].fit
    assert fit is not None and 1 <= fit.iterations < fit.fitted_iterations
    assert fit.cpu_s and fit.usd is not None and fit.usd > 0


def test_a_model_worse_than_the_prior_has_a_worse_score(tmp_path: Path) -> None:
    def backwards(store: Store, key: str, rows: SampleReader) -> Any:
        return true_predictor("binary")(store, key, rows)[:, ::-1]

    card = evaluated(tmp_path, "binary", predict=backwards)
    assert all(
        each.difference["log_loss"].value > 0 > each.difference["auc"].value for each in card.baselines
    )
    assert (
        card.quality["log_loss"]
        > card.quality["log_loss_class_prior"]
        > card.quality["log_loss_gradient_boosting"]
    )


def test_quality_is_flat_for_scripts(tmp_path: Path) -> None:
    quality = evaluated(tmp_path, "regression").quality
    assert set(quality) == {
        "rmse",
        "mae",
        "r2",
        "rmse_low",
        "rmse_high",
        "rmse_mean",
        "rmse_gradient_boosting",
    }
    assert quality["rmse_low"] < quality["rmse"] < quality["rmse_high"]


def test_a_model_of_a_share_of_the_rows_is_described_as_such(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    encoding = load_manifest(store, data_key).encoding
    assert encoding is not None
    settings = TableNetSettings(rows_share=0.07)
    model = model_of(data_key, encoding, 0.3).model_copy(update={"settings": settings})
    store.put(MODEL_KEY, record_bytes(model))
    request = evaluation_request(data_key, true_predictor("binary"), meter=meter(left_s=FINISH_S / 4))
    card = evaluate(request, store, CLOCK, quiet)
    assert card.model.description == "table_net, 1.0 epochs of 7% of the rows in 0.3 s on 1 core"


def test_without_time_left_boosting_is_skipped_with_the_reason(tmp_path: Path) -> None:
    card = evaluated(tmp_path, "binary", meter=meter(left_s=FINISH_S / 4))
    assert [each.name for each in card.baselines] == ["class prior"]
    assert card.skipped_baselines[BOOSTING].startswith("no time was left to train it: 0.")


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_a_test_split_of_one_class_or_value_is_refused(tmp_path: Path, task: Task) -> None:
    store, data_key = dataset(tmp_path, task, ROWS, only=1)
    trained(store, data_key)
    with pytest.raises(DataError, match="all 600 rows of the test split have the target"):
        evaluate(evaluation_request(data_key, true_predictor(task)), store, CLOCK, quiet)


def test_an_empty_test_split_is_refused(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", {**ROWS, "test": 0})
    trained(store, data_key)
    with pytest.raises(DataError, match="the test split of made-up holds no rows"):
        evaluate(evaluation_request(data_key, true_predictor("binary")), store, CLOCK, quiet)


def test_a_model_of_other_data_is_refused(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    store.put(
        MODEL_KEY,
        record_bytes(model_of("datasets/other/1.json", encoding_of("binary", np.zeros(1, int)), 1.0)),
    )
    with pytest.raises(DataError, match=r"was trained on datasets/other/1\.json"):
        evaluate(evaluation_request(data_key, true_predictor("binary")), store, CLOCK, quiet)


def test_nan_predictions_are_refused(tmp_path: Path) -> None:
    def diverged(store: Store, key: str, rows: SampleReader) -> Any:
        return np.full((len(rows), 2), np.nan)

    with pytest.raises(StageFailed, match="1200 of 1200 predictions of the model"):
        evaluated(tmp_path, "binary", predict=diverged)


@pytest.mark.parametrize(
    "where", ["opening the test split", "predicting", "training gradient boosting", "resampling"]
)
def test_evaluation_can_be_stopped_in_every_phase(tmp_path: Path, where: str) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    trained(store, data_key)

    def report(phase: str, done: int) -> None:
        if phase == where:
            raise StageStopped(phase)

    with pytest.raises(StageStopped, match=where):
        evaluate(evaluation_request(data_key, true_predictor("binary")), store, CLOCK, report)


def test_an_evaluation_that_is_told_to_stop_late_ends_with_the_intervals_that_it_has(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    trained(store, data_key)

    def report(phase: str, done: int) -> None:
        if phase == "resampling" and done >= MIN_RESAMPLES:
            raise StageStopped(phase)

    request = evaluation_request(data_key, true_predictor("binary"))
    early, whole = evaluate(request, store, CLOCK, report), evaluate(request, store, CLOCK, quiet)
    assert (early.resamples, whole.resamples) == (MIN_RESAMPLES, RESAMPLES)
    found, expected = (each.model.scores["log_loss"] for each in (early, whole))
    assert found.value == expected.value and found.low and expected.low
    assert found.low == pytest.approx(expected.low, abs=0.1 * (expected.value - expected.low) + 0.003)


def test_a_fit_that_would_leave_no_time_for_the_rest_is_given_up(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    trained(store, data_key)
    running_out = meter()

    def report(phase: str, done: int) -> None:
        if phase == f"training {BOOSTING}" and done == 2:
            running_out.update(Decimal(1), (), CLOCK.monotonic_s() + FINISH_S / 2)

    request = evaluation_request(data_key, true_predictor("binary"), meter=running_out)
    card = evaluate(request, store, CLOCK, report)
    assert [each.name for each in card.baselines] == ["class prior"]
    assert "are left until the budget or the deadline ends" in card.skipped_baselines[BOOSTING]


def test_a_model_that_is_the_baseline_is_not_compared_with_it(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    encoding = load_manifest(store, data_key).encoding
    assert encoding is not None
    skipped = {BOOSTING: "the model is that one: boosted with its default settings"}
    for settings, seed, reason in (
        (BASELINE, 1, {}),
        (BASELINE.model_copy(update={"leaves": 15}), 0, {}),
        (BASELINE, 0, skipped),
    ):
        model = model_of(data_key, encoding, 0.3).model_copy(update={"settings": settings, "seed": seed})
        store.put(MODEL_KEY, record_bytes(model))
        card = evaluate(evaluation_request(data_key, true_predictor("binary")), store, CLOCK, quiet)
        assert card.skipped_baselines == reason
        assert [each.name for each in card.baselines] == ["class prior", BOOSTING][: 2 - len(reason)]


def fitting_runs(store: Store, data_key: str, *runs: tuple[str, int]) -> list[tuple[str, bool]]:
    """Evaluate for each run and seed; return which run paid for the baseline, and whether this one fitted."""
    found = []
    for run_id, seed in runs:
        phases = set[str]()
        request = evaluation_request(data_key, true_predictor("binary"), run_id=run_id, seed=seed)
        card = evaluate(request, store, CLOCK, lambda phase, _, seen=phases: seen.add(phase))
        fit = card.baselines[1].fit
        assert fit is not None
        found.append((fit.run_id, f"training {BOOSTING}" in phases))
    return found


def test_one_run_fits_the_baseline_of_a_data_set_and_a_seed_and_the_others_name_it(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "binary", ROWS)
    trained(store, data_key)
    assert fitting_runs(store, data_key, ("one", 0), ("two", 0), ("three", 1)) == [
        ("one", True),
        ("one", False),
        ("three", True),
    ]
    for path in (tmp_path / "store" / "cache" / "baselines").iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    assert fitting_runs(store, data_key, ("four", 0)) == [("four", True)]


def test_a_cached_baseline_gives_the_scores_of_a_fitted_one(tmp_path: Path) -> None:
    store, data_key = dataset(tmp_path, "multiclass", ROWS, groups=20)
    trained(store, data_key)
    request = evaluation_request(data_key, true_predictor("multiclass"))
    first, second = (evaluate(request, store, CLOCK, quiet) for _ in range(2))
    assert first == second
