"""Recorded markets: pods meet the recorded prices and preemptions; invalid files are refused with the
reason.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from scenarios import NOTHING_WRONG, budgeted, scenario

from shoestring.core.errors import WorldError
from shoestring.core.types import Market
from shoestring.simulation.market import SimulatedMarket
from shoestring.simulation.scenario import MarketModel, Scenario, scenario_world_file
from shoestring.simulation.simulate import simulate

SPOT, ON_DEMAND = Market.SPOT, Market.ON_DEMAND


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three ticks of a minute; the zone `b` is gone in the second."""
    (tmp_path / "availability.csv.gz").write_bytes(gzip.compress(b"tick,a,b\n0,1,1\n1,1,0\n2,1,1\n"))
    (tmp_path / "prices.csv").write_text("tick,a,b\n0,2,1\n1,3,1\n2,1,1\n")
    return tmp_path


def market(model: MarketModel, starts_at: datetime = datetime(2026, 11, 1, tzinfo=UTC)) -> SimulatedMarket:
    return SimulatedMarket(model, scenario_world_file(scenario()), starts_at, seed=0)


def recorded(folder: Path, zone: str) -> MarketModel:
    return MarketModel(trace=folder, tick_s=60.0, step_s=60.0, zones={"n2-standard-4": zone})


def test_a_pools_spot_price_follows_its_zone_and_the_recording_repeats(folder: Path) -> None:
    found = market(recorded(folder, "a"))
    first = found.micro("n2-standard-4", SPOT, 0)
    assert [found.micro("n2-standard-4", SPOT, step) / first for step in range(6)] == pytest.approx(
        [1, 1.5, 0.5, 1, 1.5, 0.5], rel=1e-4
    )
    assert len({found.micro("n2-standard-4", ON_DEMAND, step) for step in range(6)}) == 1


def test_availability_and_preemptions_follow_the_recording(folder: Path) -> None:
    found, pool = market(recorded(folder, "b")), scenario_world_file(scenario()).pools[0]
    assert [found.is_available(pool.name, SPOT, at_s) for at_s in (0, 59, 60, 119, 120, 240)] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert found.is_available(pool.name, ON_DEMAND, 60)
    ends_s = [found.preempted_s(pool, SPOT, at_s, None) for at_s in (0, 130)]  # type: ignore[arg-type]
    assert ends_s == [60, 240]


@pytest.mark.parametrize(
    "ticks", ["1,1,0,1", "1.0,1.0,0.0,1.0", "True,TRUE,false,true", " 1, 1, 0, 1", "4,1,0,16"]
)
def test_availability_is_read_in_every_spelling(folder: Path, ticks: str) -> None:
    (folder / "availability.csv").write_text(
        "tick,b\n" + "".join(f"{tick},{value}\n" for tick, value in enumerate(ticks.split(",")))
    )
    (folder / "availability.csv.gz").unlink()
    found, pool = market(recorded(folder, "b")), scenario_world_file(scenario()).pools[0]
    assert [found.is_available(pool.name, SPOT, 60.0 * tick) for tick in range(4)] == [
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("value", ["yes", "", "0.5", "-1", "nan", "inf", "1,000"])
def test_an_unknown_availability_is_refused_with_its_value(folder: Path, value: str) -> None:
    (folder / "availability.csv").write_text(f'tick,b\n0,1\n1,"{value}"\n')
    with pytest.raises(WorldError, match=f"{value!r} is not an availability"):
        market(recorded(folder, "b"))


def test_without_spot_capacity_the_stage_is_routed_to_another_market(tmp_path: Path) -> None:
    (tmp_path / "availability.csv").write_text("tick,a\n0,0\n")
    (tmp_path / "prices.csv").write_text("zone,spot_usd_per_hour\na,1\n")
    gone = NOTHING_WRONG | {
        "market": {"trace": str(tmp_path), "zones": {"n2-standard-4": "a", "g2-standard-4": "a"}}
    }
    base = budgeted(20.0, scenario("tables", **gone))
    report = simulate(base, 3, 1)
    assert report.outcomes == {"done": 3}
    assert all(kind == "overhead" or kind.endswith("on-demand") for kind in report.spent_by_target)


def test_price_changes_apply_by_machine_and_region_from_their_date(tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    rows = (
        "2026-11-02,n2-standard-4,us-central1,spot,0.03",
        "2026-10-01,n2-standard-4,us-central1,spot,0.02",
    )
    path.write_text(
        "\n".join(
            (
                "from_date,machine_type,region,market,usd_per_hour",
                *rows,
                "2026-11-01,n2-standard-4,mars,spot,9",
            )
        )
    )
    found = market(MarketModel(trace=path))
    assert [found.micro("n2-standard-4", SPOT, hour) for hour in (0, 23, 24)] == [20_000, 20_000, 30_000]
    assert found.bill_usd("n2-standard-4", SPOT, 23 * 3600, 25 * 3600) * 100 == 5


@pytest.mark.parametrize(
    ("files", "zones", "message"),
    [
        ({}, {"n2-standard-4": "a"}, "there is no availability.csv"),
        ({"availability.csv": "tick,a\n0,1\n"}, {"n2-standard-4": "a"}, "there is no prices.csv"),
        (
            {"availability.csv": "tick,a\n0,1\n", "prices.csv": "tick,a\n0,free\n"},
            {"n2-standard-4": "a"},
            "'free' is not a price",
        ),
        (
            {"availability.csv": "tick,a\n0,1\n", "prices.csv": "tick,a\n0,1\n"},
            {"n2-standard-4": "z"},
            "has no zone z; it has: a",
        ),
        ({"availability.csv": "tick,a\n"}, {"n2-standard-4": "a"}, "has no rows"),
        ({"availability.csv": "tick,a\n0,1\n"}, {}, "name the zone of each pool"),
    ],
)
def test_an_invalid_recording_is_refused(
    tmp_path: Path, files: dict[str, str], zones: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(WorldError, match=message):
        market(MarketModel(trace=tmp_path, zones=zones))


PRICE_HEADER = "from_date,machine_type,region,market,usd_per_hour\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day,price\n1,2\n", "has no column from_date"),
        (
            PRICE_HEADER + "2026-11-01,x,us-central1,spot,1\n",
            "has no price of",
        ),
        (
            PRICE_HEADER + "2026-11-01,n2-standard-4,us-central1,spit,1\n",
            "'spit'",
        ),
        (
            PRICE_HEADER + "2025-08-01,n2-standard-4,us-central1,spot,1\n",
            "ends on 2025-08-01, before the simulation starts on 2026-11-01, "
            "so no price would change; start between",
        ),
        (
            PRICE_HEADER + "2026-11-01,n2-standard-4,us-central1,spot,-1\n",
            "'-1' is not a price",
        ),
    ],
)
def test_invalid_price_changes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "changes.csv").write_text(text)
    with pytest.raises(WorldError, match=message):
        market(MarketModel(trace=tmp_path / "changes.csv"))


def with_record(base: Scenario, path: Path) -> Scenario:
    return base.model_copy(update={"durations": base.durations.model_copy(update={"recorded_file": path})})


def test_duration_factors_are_drawn_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "record.csv"
    path.write_text(
        "stage,prior_s,seconds\n" + "".join(f"{stage},10,90\n" for stage in ("ingest", "preprocess", "score"))
    )
    base = budgeted(2.0, scenario("tables", **NOTHING_WRONG))
    assert simulate(base, 5, 1).would_fit == 5
    assert simulate(with_record(base, path), 5, 1).would_fit == 0


@pytest.mark.parametrize(
    "text", ["stage,seconds\na,1\n", "stage,prior_s,seconds\na,0,1\n", "stage,prior_s,seconds\na,1,soon\n"]
)
def test_an_invalid_recording_of_durations_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.csv").write_text(text)
    with pytest.raises(WorldError, match="is not a record of durations"):
        simulate(with_record(scenario("tables"), tmp_path / "record.csv"), 1, 1)
