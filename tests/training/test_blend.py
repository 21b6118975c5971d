"""A blend: each member is trained once by the common loop, and the weights are the best on validation."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import Array, encoding_of, reader, table
from test_linear import three_classes, values
from training_bench import FREE, TrainingBench, slow_steps

from shoestring.core.datasets import Encoding
from shoestring.core.errors import StageStopped
from shoestring.data.families import settings_of
from shoestring.spending.meter import Meter, MeterShare
from shoestring.training.checkpoints import Checkpoints
from shoestring.training.families.blend.predictor import BlendPredictor
from shoestring.training.families.blend.settings import MOST_LINEAR_ROWS, BlendSettings
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.registry import family_modules, family_of, whole_training
from shoestring.training.families.train_family import train_family
from shoestring.training.losses.combination import combine, mean_loss
from shoestring.training.losses.fitting import fit_weights
from shoestring.training.replay import replay_differences
from shoestring.training.task import TrainedModel

TREES = {"family": "boosted", "max_epochs": 25, "min_leaf_rows": 5}
NET = {"family": "table_net", "max_epochs": 4, "hidden": [8], "bins": 4, "batch_rows": 32}
LINEAR = {"family": "linear", "max_epochs": 8}


def blend(*members: dict[str, Any]) -> BlendSettings:
    return BlendSettings.model_validate({"members": members or (TREES, NET)})


def two_classes() -> tuple[Array, Encoding]:
    rows = table(1200, 0)
    return rows, encoding_of(rows)


TASKS = {"binary": two_classes, "three": three_classes, "regression": values}


def bench_of(folder: Path, task: str = "binary", settings: BlendSettings | None = None) -> TrainingBench:
    rows, encoding = TASKS[task]()
    return TrainingBench(
        folder,
        train=rows[:800],
        validation=rows[800:],
        settings=settings or blend(LINEAR, TREES, NET),
        encoding=encoding,
    )


def trained(bench: TrainingBench) -> TrainedModel:
    return train_family(bench.task())


@pytest.mark.parametrize("task", TASKS)
def test_a_blend_validates_no_worse_than_its_best_member(tmp_path: Path, task: str) -> None:
    bench = bench_of(tmp_path, task)
    found = trained(bench)
    assert found.val_loss is not None and not found.depends_on_limits
    predictor = BlendPredictor(bench.task().encoding, found.weights)
    held = reader(bench.validation, bench.encoding).take(np.arange(len(bench.validation)))
    assert mean_loss(predictor.predict(held), held["target"], bench.task().encoding) == found.val_loss
    own = [
        member_loss(tmp_path / f"{number}", task, each) for number, each in enumerate((LINEAR, TREES, NET))
    ]
    assert found.val_loss < 1.002 * min(own)
    assert found.weights_source.startswith("blend of linear ")


def member_loss(folder: Path, task: str, member: dict[str, Any]) -> float:
    bench = replace(bench_of(folder, task), settings=settings_of(member))
    loss = trained(bench).val_loss
    assert loss is not None
    return loss


@pytest.mark.parametrize("task", TASKS)
def test_the_weights_have_the_lowest_loss_of_all(task: str) -> None:
    rows, encoding = TASKS[task]()
    rng, target = np.random.default_rng(0), rows["y"]
    if encoding.task == "regression":
        predictions = [target + rng.normal(0, sd, len(target)) for sd in (3.0, 4.0)]
    else:
        sharp = np.eye(len(encoding.classes))[target] * 2
        predictions = [np.exp(sharp + rng.normal(0, sd, sharp.shape)) for sd in (1.5, 2.5)]
        predictions = [each / each.sum(axis=1, keepdims=True) for each in predictions]
    weights = fit_weights(predictions, target, encoding, len(target))
    found = mean_loss(combine(weights, predictions, encoding), target, encoding)
    for pair in product(np.linspace(0, 1.5, 31), repeat=2):
        other = mean_loss(combine(np.array(pair), predictions, encoding), target, encoding)
        assert found < other * 1.0005
    assert weights[0] > weights[1] > 0


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_the_same_day_count_as_one(task: str) -> None:
    rows, encoding = TASKS[task]()
    rng, target = np.random.default_rng(0), rows["y"][:60]
    if encoding.task == "regression":
        predictions = [target + rng.normal(0, sd, len(target)) for sd in (3.0, 4.0)]
    else:
        predictions = [rng.dirichlet(np.ones(len(encoding.classes)), len(target)) for _ in range(2)]
    alone = fit_weights(predictions, target, encoding, 60)
    repeated = [np.repeat(each, 50, axis=0) for each in predictions]
    assert fit_weights(repeated, np.repeat(target, 50), encoding, 60) == pytest.approx(alone, abs=1e-4)
    assert np.abs(fit_weights(repeated, np.repeat(target, 50), encoding, 3000) - alone).max() > 0.01


def test_a_member_that_is_worse_than_nothing_gets_no_weight_on_few_rows() -> None:
    encoding, target = encoding_of(table(400, 0)), table(40, 1)["y"]
    good = np.where(np.eye(2)[target] == 1, 0.8, 0.2)
    weights = fit_weights([good[:, ::-1], good], target, encoding, 40)
    assert weights[0] < 0.02 and weights[1] > 0.9


@pytest.mark.parametrize("stops", [[1], [3, 4], [1, 1, 1, 1, 1, 1]])
def test_a_blend_that_is_stopped_anywhere_ends_as_the_same_one(tmp_path: Path, stops: list[int]) -> None:
    whole = trained(bench_of(tmp_path / "whole"))
    bench = bench_of(tmp_path / "stopped")
    for attempt, windows in enumerate(stops, 1):
        answers = iter(range(60 * windows))
        bench.should_stop = lambda left=answers: next(left, None) is None
        try:
            again = train_family(replace(bench.task(), attempt=attempt))
            break
        except StageStopped:
            continue
    else:
        bench.should_stop = lambda: False
        again = train_family(replace(bench.task(), attempt=len(stops) + 1))
    assert again.weights == whole.weights
    assert again.val_loss == whole.val_loss
    assert list(replay_differences(bench.log())) == []


def test_a_member_that_is_trained_is_not_trained_again(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)

    def stop_in_the_net() -> bool:
        return bool(bench.reports) and bench.reports[-1].samples > 0

    bench.should_stop = stop_in_the_net
    with pytest.raises(StageStopped):
        trained(bench)
    saved, _ = Checkpoints(bench.store, "one", 1).load(bench.task().rows_sha256())
    assert saved is not None and [each.family for each in saved.checkpoint.members] == ["linear", "boosted"]
    phases = [each.phase.split(",")[0] for each in bench.reports]
    assert {"linear", "boosted"} <= {*phases}
    bench.reports, bench.should_stop = [], lambda: False
    train_family(replace(bench.task(), attempt=2))
    assert not {"linear", "boosted"} & {each.phase.split(",")[0] for each in bench.reports}


def test_the_log_holds_each_member_and_the_time_of_all(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    found, log = trained(bench), bench.log()
    assert [each.member for each in log.starts] == ["linear", "boosted", "table_net"]
    rates = {point.learning_rate for point in log.curve.points}
    assert 0.1 in rates, "of the trees, which do not decay"
    seconds = [each.training_s for each in log.windows]
    assert seconds == sorted(seconds)
    assert found.state.training_s >= seconds[-1] - 1e-9


def test_a_member_before_the_last_leaves_half_of_the_time(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings=blend({**NET, "max_epochs": 999, "patience": 999}, TREES))
    now_s = bench.clock.monotonic_s()
    bench.meter = Meter(Decimal(0), now_s, Decimal(0), now_s + 100.0)
    bench.validation_s, bench.should_stop = lambda: 1.0, slow_steps(bench, float("inf"))
    found = trained(bench)
    first, second = bench.log().starts
    assert (first.member, second.member) == ("table_net", "boosted")
    assert 40 < bench.log().windows[second.first_window].training_s < 60
    assert found.depends_on_limits, "the net would have learned for longer"
    assert bench.clock.monotonic_s() - now_s <= 100


@pytest.mark.parametrize("stops_s", [[30], [45], [20, 35, 45]])
def test_a_member_that_is_resumed_still_leaves_half_of_the_time(tmp_path: Path, stops_s: list[float]) -> None:
    bench = bench_of(tmp_path, settings=blend({**NET, "max_epochs": 999, "patience": 999}, TREES))
    began_s = bench.clock.monotonic_s()
    bench.meter = Meter(Decimal(0), began_s, Decimal(0), began_s + 100.0)
    bench.validation_s = lambda: 1.0
    for attempt, stop_s in enumerate(stops_s, 1):
        bench.should_stop = slow_steps(bench, began_s + stop_s)
        with pytest.raises(StageStopped):
            train_family(replace(bench.task(), attempt=attempt))
    bench.should_stop = slow_steps(bench, float("inf"))
    train_family(replace(bench.task(), attempt=len(stops_s) + 1))
    log = bench.log()
    trees = next(start for start in log.starts if start.member == "boosted")
    assert 40 < log.windows[trees.first_window].training_s < 60
    rates = [each.rate for each in log.windows[: trees.first_window] if each.steps]
    decay = rates[rates.index(max(rates)) :]
    assert decay == sorted(decay, reverse=True), "a decay that was begun goes on"
    assert list(replay_differences(log)) == []


def test_a_share_of_a_meter_follows_its_price() -> None:
    meter = Meter(Decimal("3600"), 0.0, Decimal("100"), None)
    share = MeterShare(meter, 10.0, 0.5, 10.0)
    assert (meter.ends_s, share.ends_s) == (pytest.approx(100), pytest.approx(50))
    meter.update(Decimal("100"), ((0.0, Decimal("7200")),), None)
    assert (meter.ends_s, share.ends_s) == (pytest.approx(50), pytest.approx(25))
    assert MeterShare(FREE, 10.0, 0.5).ends_s == FREE.ends_s == float("inf")


def test_a_share_of_a_deadline_is_a_deadline() -> None:
    meter = Meter(Decimal("0.04"), 0.0, Decimal("9"), 100.0)
    share = MeterShare(meter, 0.0, 0.5, 10.0)
    assert (share.ends_s, share.deadline_s) == (45.0, 45.0), "else a change of the price counts as time"
    meter.update(Decimal("0.001"), ((50.0, Decimal("1")),), 100.0)
    assert meter.ends_s < 100 and share.deadline_s == 100, "the money ends it first"
    assert MeterShare(FREE, 0.0, 0.5).deadline_s is None


def test_without_time_for_a_step_of_the_net_the_trees_are_the_model(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings=blend())
    now_s = bench.clock.monotonic_s()
    bench.meter = Meter(Decimal(0), now_s, Decimal(0), now_s + 12.0)
    bench.validation_s, bench.should_stop = lambda: 1.0, slow_steps(bench, float("inf"))
    found = trained(bench)
    assert found.depends_on_limits
    predictor = BlendPredictor(bench.task().encoding, found.weights)
    held = reader(bench.validation, bench.encoding).take(np.arange(len(bench.validation)))
    assert np.isfinite(predictor.predict(held)).all()


def test_without_time_for_the_weights_a_net_without_a_step_has_none(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings=blend(TREES, NET))

    def killed_in_the_net() -> bool:
        saved, _ = Checkpoints(bench.store, "one", 1).load(bench.task().rows_sha256())
        if saved is not None and saved.checkpoint.members:
            raise KeyboardInterrupt
        return False

    bench.should_stop = killed_in_the_net
    with pytest.raises(KeyboardInterrupt):
        trained(bench)
    now_s = bench.clock.monotonic_s()
    bench.meter, bench.should_stop = Meter(Decimal(0), now_s, Decimal(0), now_s), lambda: False
    found = train_family(replace(bench.task(), attempt=2))
    assert (found.state.samples, found.val_loss, found.depends_on_limits) == (0, None, True)
    assert found.weights_source == "blend of boosted 1.00, table_net 0.00"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"members": [TREES]}, "at least 2 items"),
        ({"members": [TREES, {"family": "blend"}]}, "blend cannot be a member of a blend"),
        ({"members": [TREES, {"family": "auto"}]}, "auto cannot be a member of a blend"),
        ({"members": [TREES, {"family": "text_net"}]}, "members: text_net does not learn from tables"),
        ({"members": [TREES, {**NET, "rows_share": 0.5}]}, "members: table_net has a rows_share of its own"),
        ({"members": [TREES, {"family": "forest"}]}, "there is no family 'forest'"),
        ({"leaves": 8}, "leaves is a key of boosted, and this family is blend: its keys are "),
        (
            {"members": [TREES, {"family": "linear", "leaves": 8}]},
            "leaves is a key of boosted, and .* linear",
        ),
    ],
)
def test_a_wrong_blend_is_refused_by_name(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of({"family": "blend"} | section)


def test_the_default_members_have_a_linear_model_on_few_rows_only() -> None:
    names = [
        [each.family for each in BlendSettings().members_for(rows)]
        for rows in (MOST_LINEAR_ROWS, MOST_LINEAR_ROWS + 1)
    ]
    assert names == [["linear", "boosted", "table_net"], ["boosted", "table_net"]]
    modules = family_modules(BlendSettings())
    assert {name.split(".")[-2] for name in modules} == {"blend", "linear", "boosted", "table_net"}


def test_the_price_of_a_blend_is_that_of_all_members() -> None:
    from shoestring.stages.train import NEED

    settings, shape = blend(), DataShape(100_000, numbers=10)
    trees, net = (family_of(each) for each in settings.members_for(shape.rows))
    need, alone = family_of(settings).train_need(NEED, shape), net.train_need(NEED, shape)
    begins_s, us_per_row = whole_training(settings.members_for(0)[0], shape)
    assert need.setup_s == pytest.approx(alone.setup_s + begins_s + us_per_row * 0.1, abs=0.01)
    assert (need.cpu_us_per_row, need.reads) == (alone.cpu_us_per_row, "shuffled")
    assert need.memory_bytes_per_row == max(
        each.train_need(NEED, shape).memory_bytes_per_row for each in (trees, net)
    )
