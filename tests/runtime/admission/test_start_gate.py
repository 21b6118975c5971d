"""The start gate: a run that waits opens and pays nothing, and starts when it is allowed to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from commands import shoestring
from runtime_world import CHAIN, SetClock, run_request, small_world

from shoestring.config.policy import Policy, PriceWindow, StartPolicy
from shoestring.config.world import World
from shoestring.core.errors import NotYet
from shoestring.data.run_records import Run
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest, after_waiting
from shoestring.runtime.admission.start_gate import start_when_allowed


def waiting_world(laptop: Path, folder: Path, **fields: object) -> World:
    """A world whose clock shows noon, and whose prices halve at three."""
    clock = SetClock()
    noon = clock.now().replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)
    clock.sleep((noon - clock.now()).total_seconds())
    windows = (PriceWindow(from_hour=15, to_hour=18, price_factor=0.5),)
    rules = Policy(start=StartPolicy.model_validate({"max_delay_s": 14_400, "windows": windows} | fields))
    return replace(small_world(laptop, folder, clock), policy=rules)


def begin(world: World, request: RunRequest, max_s: float) -> tuple[Run, list[str]]:
    sentences: list[str] = []
    return start_when_allowed(
        world,
        request.run_id,
        lambda waited_s: admit(world, after_waiting(request, waited_s)),
        max_s,
        sentences.append,
    ), sentences


def test_a_run_that_has_to_wait_opens_no_account_and_names_the_time(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = waiting_world(laptop, tmp_path)
    with pytest.raises(
        NotYet, match=r"^not before .*T15:00:00.000Z: .* 50% less; start it then, let it wait \(--wait\)"
    ):
        begin(world, run_request(flights_slice, needs=CHAIN), 0)
    assert not list(world.store.list("ledger/")) and not list(world.store.list("runs/r/starts/"))
    summary = summarise_run(read_run_story(world.store, "r"))
    assert (summary.status, summary.starts) == ("refused", 0)
    assert summary.reason.startswith("not before ") and "15:00:00" in summary.reason


def test_a_waiting_run_starts_when_its_window_opens_with_less_time_to_its_deadline(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = waiting_world(laptop, tmp_path)
    request = run_request(flights_slice, needs=CHAIN).with_terms(deadline_s=20_000.0)
    run, sentences = begin(world, request, 14_400)
    assert len(sentences) == 1 and "T15:00:00.000Z" in sentences[0]
    assert run.start.started_at.hour == 15 and run.start.deadline_at is not None
    assert (run.start.deadline_at - run.start.started_at).total_seconds() == pytest.approx(
        20_000 - 3 * 3600, abs=2
    )


def test_an_urgent_run_does_not_wait(laptop: Path, flights_slice: Path, tmp_path: Path) -> None:
    world, request = waiting_world(laptop, tmp_path), run_request(flights_slice, needs=CHAIN)
    assert begin(world, request.with_terms(priority="high"), 0)[0].start.started_at.hour == 12


def test_a_run_waits_for_missing_data_without_a_pod_or_an_account(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = waiting_world(laptop, tmp_path, windows=(), poll_s=60)
    request = run_request(flights_slice, needs=CHAIN)
    (name, source), path = next(iter(request.recipe.source.items())), tmp_path / "late.csv"
    late = replace(
        request,
        task=request.recipe.model_copy(update={"source": {name: source.model_copy(update={"path": path})}}),
    )
    with pytest.raises(NotYet, match=r"its data does not exist yet: .*late\.csv"):
        begin(world, late, 0)
    assert not list(world.store.list("runs/")) and not list(world.store.list("ledger/"))
    tries: list[float] = []

    def come(waited_s: float) -> Run:
        tries.append(waited_s)
        if len(tries) == 3 and source.path:
            path.write_bytes(source.path.read_bytes())
        return admit(world, after_waiting(late, waited_s))

    assert start_when_allowed(world, "r", come, 14_400, lambda _: None).run_id == "r"
    assert tries == pytest.approx([0, 60, 120], abs=3)


def test_the_run_command_exits_with_1_if_the_run_has_to_wait_and_knows_three_priorities(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(laptop.read_text())
    days = [
        {"from_hour": hour, "to_hour": hour + 1, "price_factor": 0.9 if hour % 2 else 1.0}
        for hour in range(24)
    ]
    content["policy"] = {"start": {"max_delay_s": 604800, "min_saving": 0.001, "windows": days}}
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(content))
    given = (
        "run",
        flights_slice,
        "--world",
        tmp_path / "world.yaml",
        "--store",
        tmp_path / "store",
        "--out",
        tmp_path / "out",
        "--deadline",
        "604800",
    )
    days[datetime.now(UTC).hour] |= {"price_factor": 2.0}
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(content))
    ran = shoestring(*given)
    assert ran.code == 1 and "not before " in ran.err and "start it then, let it wait (--wait)" in ran.err, (
        ran.err
    )
    assert "priority soon: choose one of low, normal, high" in shoestring(*given, "--priority", "soon").err
