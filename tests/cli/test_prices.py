"""A price list is shown with its rejected rows; a newer one replaces it unless a price moved too far."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from commands import shoestring
from hypothesis import given
from hypothesis import strategies as st

from shoestring.pricing.diff import diff_price_lists
from shoestring.pricing.rows import PriceRow

HEAD = "provider,region,machine,cores,gpu,gpu_count,market,usd_per_hour,as_of,source\n"


OWN = {"a": "0.20", "b": "0.40", "gone": "0.30", "c": "0.10"}


def row(machine: str, usd: str, market: str = "on-demand") -> str:
    return f"aws,us-east-1,{machine},4,,0,{market},{usd},2026-07-30,list\n"


@pytest.fixture
def current(tmp_path: Path) -> Path:
    path = tmp_path / "current.csv"
    path.write_text(HEAD + "".join(row(machine, usd) for machine, usd in OWN.items()))
    return path


def newer(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "newer.csv"
    path.write_text(HEAD + "".join(rows))
    return path


def test_the_packaged_list_is_shown_with_its_sources() -> None:
    ran = shoestring("prices", "show", "--json")
    assert ran.code == 0 and ran.json["rejected"] == []
    assert {row["provider"] for row in ran.json["prices"]} == {"aws", "gcp", "azure"}
    assert all(row["source"] and row["as_of"] for row in ran.json["prices"])


def test_rejected_rows_are_shown_with_reasons(tmp_path: Path) -> None:
    ran = shoestring(
        "prices", "show", newer(tmp_path, row("a", "0.20"), row("b", "700.0"), row("c", "cheap"))
    )
    assert ran.code == 0
    assert (
        "$700.000000 an hour is a placeholder" in ran.out and "'cheap' is not an amount of dollars" in ran.out
    )


def test_transfer_prices_are_shown_with_the_default_for_undeclared_routes(
    laptop: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(laptop.read_text())
    content["pools"][0]["region"] = "away"
    content["tariffs"]["egress_usd_per_gb"] = {
        "local->away": [{"up_to_gb": 100, "usd_per_gb": "0"}, {"usd_per_gb": "0.09"}]
    }
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    ran = shoestring("prices", "show", "--world", path)
    assert ran.code == 0
    assert "$0.000000 up to 100 GB, $0.090000 a month" in ran.out and "transfer away->local" in ran.out
    assert "$0.120000 per GB is assumed" in ran.out and "transfer local->away" not in ran.out
    assert shoestring("prices", "show", "--world", path, "--json").json["tariffs"]["store_region"] == "local"


def test_commitments_are_shown_with_their_remaining_hours(laptop: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(laptop.read_text())
    declared = [{"name": "deed", "pool": "cpu-1", "hours_per_month": 1460, "source": "a deed"}]
    content |= {
        "commitments": [*declared, declared[0] | {"name": "old", "until_day": "2020-01-01"}],
        "store": str(tmp_path / "store"),
    }
    path = tmp_path / "world.yaml"
    path.write_text(yaml.safe_dump(content))
    ran = shoestring("prices", "show", "--world", path)
    assert (
        ran.code == 0
        and "1,460.00 of 1,460" in ran.out
        and "it ended on 2020-01-01: the on-demand price applies" in ran.out
    )
    (found,) = shoestring("prices", "show", "--world", path, "--json").json["commitments"]
    assert (found["name"], found["pool"], found["used_hours"]) == ("deed", "cpu-1", 0)
    path.write_text(yaml.safe_dump(content | {"commitments": [declared[0] | {"pool": "cpu-99"}]}))
    wrong = shoestring("prices", "show", "--world", path)
    assert wrong.code == 2 and "commitment deed: there is no pool called 'cpu-99'" in wrong.err


def test_a_change_beyond_the_limit_is_shown_and_not_applied(current: Path, tmp_path: Path) -> None:
    before, update = (
        current.read_text(),
        newer(tmp_path, row("a", "0.26"), row("b", "0.42"), row("c", "0.10"), row("new", "1")),
    )
    ran = shoestring("prices", "refresh", current, update)
    assert ran.code == 1 and current.read_text() == before
    assert "1 moved by more than 25%, 1 by less, 1 not at all; 1 added, 1 removed, 0 rejected" in ran.out
    assert "+30.0%" in ran.out and "give --accept to replace it" in ran.err
    found = shoestring("prices", "refresh", current, update, "--check", "--json")
    assert (found.code, found.json["replaced"], [move["percent"] for move in found.json["over_limit"]]) == (
        1,
        False,
        [30.0],
    )
    assert (found.json["added"], found.json["removed"]) == (
        ["aws us-east-1 new on-demand"],
        ["aws us-east-1 gone on-demand"],
    )
    assert (
        shoestring("prices", "refresh", current, update, "--accept", "--force").code == 0
        and current.read_text() == update.read_text()
    )


def test_small_changes_are_applied_and_a_fully_rejected_list_is_not(current: Path, tmp_path: Path) -> None:
    current.write_text(HEAD + row("a", "0.20"))
    update = newer(tmp_path, row("a", "0.21"))
    assert (
        shoestring("prices", "refresh", current, update).code == 0
        and current.read_text() == update.read_text()
    )
    ran = shoestring("prices", "refresh", current, newer(tmp_path, row("a", "0")), "--accept")
    assert (
        ran.code == 2
        and "every row was rejected" in ran.err
        and current.read_text() == HEAD + row("a", "0.21")
    )
    assert shoestring("prices", "refresh", current, tmp_path / "none.csv").code == 2


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (row("a", "0.20") + row("b", "0.40"), "2 of 4 prices are missing in the newer list"),
        (
            row("a", "0.20") + row("b", "0.40") + row("c", "0.10") + row("gone", "x"),
            "1 of 4 prices are missing",
        ),
        (
            "".join(row(each, usd) for each, usd in OWN.items()).replace("07-30", "07-01"),
            "4 of 4 prices are older than those in use (newest: 2026-07-01, in use: 2026-07-30)",
        ),
        (
            "".join(row(each, usd) for each, usd in OWN.items()).replace("07-30", "07-29", 1),
            "1 of 4 prices are older than those in use",
        ),
    ],
)
def test_an_older_or_a_truncated_list_is_refused_with_its_counts(
    current: Path, tmp_path: Path, update: str, sentence: str
) -> None:
    before, path = current.read_text(), newer(tmp_path, update)
    for options in ((), ("--accept",), ("--check",), ("--json",)):
        ran = shoestring("prices", "refresh", current, path, *options)
        assert (ran.code, current.read_text()) == (1, before)
        assert sentence in ran.err and "give --force" in ran.err
    assert shoestring("prices", "refresh", current, path, "--force").code == 0
    assert current.read_text() == path.read_text()


def test_a_retired_machine_among_many_is_no_truncation(current: Path, tmp_path: Path) -> None:
    machines = [row(f"m{number}", "0.20") for number in range(40)]
    current.write_text(HEAD + "".join(machines))
    assert shoestring("prices", "refresh", current, newer(tmp_path, *machines[1:])).code == 0


def test_a_market_in_another_spelling_is_the_same_market(current: Path, tmp_path: Path) -> None:
    for spelling in ("On-Demand ", "on_demand", "ONDEMAND", " on demand"):
        ran = shoestring(
            "prices",
            "refresh",
            current,
            newer(tmp_path, *(row(each, usd, spelling) for each, usd in OWN.items())),
            "--json",
        )
        assert (ran.code, ran.json["unchanged"], ran.json["rejected"]) == (0, 4, [])


rows = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 500), max_size=6)


@given(rows, rows)
def test_every_price_of_either_list_is_counted_once(old: dict[str, int], new: dict[str, int]) -> None:
    def parsed(prices: dict[str, int]) -> list[PriceRow]:
        fields = {"market": "spot", "as_of": "2026-07-30", "source": "list"}
        return [
            PriceRow.model_validate(fields | {"machine": name, "usd_per_hour": f"{cents}e-2"})
            for name, cents in prices.items()
        ]

    found = diff_price_lists(parsed(old), parsed(new))
    assert len(found.over_limit) + len(found.within_limit) + len(found.added) + len(
        found.removed
    ) + found.unchanged == len(old.keys() | new.keys())
    assert len(found.added) == len(new.keys() - old.keys()) and len(found.removed) == len(
        old.keys() - new.keys()
    )
    for move in (*found.over_limit, *found.within_limit):
        assert (abs(move.percent) > 25) is (move in found.over_limit)
