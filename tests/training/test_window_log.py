"""The log of a training: it replays to the same plans, the curve is drawn from it, and it stays small."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from clocks import BOOT_S, StillClock
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from loop_overhead import IdleLearner, idle_task
from small_dataset import table
from training_bench import TrainingBench, stop_after

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import EpochCap, Guardrails, SkillFloor
from shoestring.core.errors import StageStopped
from shoestring.core.record import record_bytes
from shoestring.spending.meter import Meter
from shoestring.training.control.drift import WINDOW_STEPS
from shoestring.training.curve import CurvePoint, TrainingCurve
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.loop import WINDOW_SHARE, Training
from shoestring.training.replay import replay_differences
from shoestring.training.window_log import WindowLog, read_curve, read_log

LONG = TableNetSettings(max_epochs=40, hidden=(4,), bins=2, batch_rows=16, patience=4, learning_rate=0.01)
GUARDED = Guardrails(
    usd_per_epoch=EpochCap(max_usd=Decimal("0.004"), action="rebalance"),
    skill=SkillFloor(min=0.05, after_epochs=3, action="roll-back"),
)


def moving(step_s: float, chance: random.Random, bench: TrainingBench) -> Callable[[], float]:
    """Return step durations that change their pace, and once the price."""

    def takes_s() -> float:
        if bench.clock.at_s > 20 and not bench.meter.rate_changes:
            changes = ((bench.clock.monotonic_s(), Decimal(5)),)
            bench.meter.update(bench.meter.limit_usd, changes, bench.meter.deadline_s)
        return step_s * chance.uniform(0.5, 1.5) * (3 if bench.clock.at_s > 30 else 1)

    return takes_s


@given(
    seed=st.integers(0, 1000),
    step_s=st.floats(0.02, 0.2),
    validation_s=st.floats(0.0, 2.0),
    length=st.booleans(),
    guarded=st.booleans(),
    stops=st.lists(st.integers(1, 120), max_size=2),
)
@examples(12)
def test_a_training_replays_from_its_log(
    seed: int, step_s: float, validation_s: float, length: bool, guarded: bool, stops: list[int]
) -> None:
    """Whatever paces, prices and restarts its clock showed."""
    chance = random.Random(seed)
    with TemporaryDirectory() as folder:
        bench = TrainingBench(
            Path(folder),
            train=table(800, 0),
            settings=LONG,
            meter=Meter(Decimal("3.6"), BOOT_S, Decimal("0.06"), None),
            limits=AdaptationLimits(length=length),
            guardrails=GUARDED if guarded else Guardrails(),
        )
        bench.step_s, bench.validation_s = moving(step_s, chance, bench), lambda: validation_s
        for steps in stops:
            with suppress(StageStopped):
                replace(bench, should_stop=stop_after(steps)).training().run()
        with suppress(StageStopped):
            bench.training().run()
        log = bench.log()
    assert list(replay_differences(log)) == []
    assert sum(each.rows for each in log.windows) == log.windows[-1].samples
    assert [each.attempt for each in log.starts] == [1] * len(log.starts)


def recorded(folder: Path) -> WindowLog:
    """Return the log of a training whose price rises, so that it is shortened."""
    limit = Meter(Decimal("3.6"), BOOT_S, Decimal("0.06"), None)
    bench = TrainingBench(folder, train=table(800, 0), settings=LONG, meter=limit)
    bench.settings = LONG.model_copy(update={"patience": 99})
    bench.step_s = moving(0.05, random.Random(0), bench)
    bench.training().run()
    log = bench.log()
    assert next(change.lever for window in log.windows for change in window.changes) == "length"
    return log


def test_a_changed_number_of_the_log_is_found(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    number = next(index for index, each in enumerate(log.windows) if each.changes)
    for field, value, found in (
        ("rate", 0.123, "its last learning rate is"),
        ("changes", (), "its changes are"),
        ("rows", log.windows[number].rows // 2, "it ends at"),
        ("seconds", log.windows[number].seconds * 3, "window"),
    ):
        window = log.windows[number].model_copy(update={field: value})
        windows = (*log.windows[:number], window, *log.windows[number + 1 :])
        differences = list(replay_differences(log.model_copy(update={"windows": windows})))
        assert differences and found in differences[0]


def test_the_curve_has_a_point_for_each_window(tmp_path: Path) -> None:
    log = recorded(tmp_path)
    curve = read_curve(FolderStore(tmp_path), "one")
    assert curve is not None and len(curve.points) == len(log.windows)
    for point, window in zip(curve.points, log.windows, strict=True):
        assert point.learning_rate == pytest.approx(LONG.learning_rate * window.rate)
        assert (point.epoch, point.val_loss) == (window.samples / 800, window.val_loss)


def test_the_curve_that_version_4_stored_is_read(tmp_path: Path) -> None:
    point = CurvePoint(
        samples=1, epoch=0.5, spent_usd=Decimal(0), training_s=1.0, learning_rate=0.1, phase="decay"
    )
    curve = TrainingCurve(run_id="one", metric="rmse", points=(point,))
    store = FolderStore(tmp_path)
    store.put("runs/one/curve.json", record_bytes(curve))
    assert (read_curve(store, "one"), read_log(store, "one")) == (curve, None)
    assert read_curve(store, "two") is None


def test_the_log_of_a_long_training_stays_small(tmp_path: Path) -> None:
    """Once `WINDOW_STEPS` steps are a smaller share of the time so far, windows get longer with it."""
    clock, free, step_s = StillClock(), Meter(Decimal(0), BOOT_S, Decimal(0), None), 0.05
    training = Training(idle_task(tmp_path, clock, 160_000, 4, free), IdleLearner(clock, step_s))
    training.run()
    grows = math.log(clock.at_s * WINDOW_SHARE / (WINDOW_STEPS * step_s))
    windows = len(training.state.windows)
    assert 0.8 < windows * WINDOW_SHARE / (1 + grows) < 1.1
    assert windows < 0.85 * clock.at_s / step_s / WINDOW_STEPS
