"""User errors: each has its own message and exit code, and starts nothing."""

from pathlib import Path

import pytest
import yaml
from commands import Finished, Ran, shoestring


def changed(original: Path, copy: Path, **changes: object) -> Path:
    content = yaml.safe_load(original.read_text())
    for name, value in changes.items():
        content[name] = value(content.get(name)) if callable(value) else value
    copy.write_text(yaml.safe_dump(content))
    return copy


def run(recipe: object, world: Path, tmp_path: Path, *more: object) -> Ran:
    return shoestring(
        "run", recipe, "--world", world, "--store", tmp_path / "store", "--out", tmp_path / "out", *more
    )


def test_an_unknown_recipe_lists_the_known_ones(laptop: Path, tmp_path: Path) -> None:
    ran = run("flihgts", laptop, tmp_path)
    assert ran.code == 2
    assert "no recipe called 'flihgts'" in ran.err
    assert "flights" in ran.err.replace("flihgts", "")


def test_an_unknown_stage_lists_the_known_ones(laptop: Path) -> None:
    ran = shoestring("stage", "trian", "--run-id", "r", "--decision-key", "d", "--world", laptop)
    assert ran.code == 2
    assert "evaluate, ingest, predict, preprocess, train" in ran.err


def test_an_unknown_run_and_an_unknown_schema_are_bad_usage(laptop: Path, tmp_path: Path) -> None:
    assert shoestring("run", "--resume", "no-such-run", "--world", laptop, "--store", tmp_path).code == 2
    assert shoestring("schema", "nothing").code == 2


@pytest.mark.parametrize("budget", ["free", "-1", "0", "nan", "1e400"])
def test_a_malformed_budget_is_bad_usage(
    budget: str, flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    ran = run(flights_slice, laptop, tmp_path, f"--budget={budget}")
    assert ran.code == 2
    assert "--budget" in ran.err
    assert not (tmp_path / "store").exists()


def test_a_malformed_world_names_the_place(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("pools: [")
    assert "is not YAML" in run(flights_slice, tmp_path / "broken.yaml", tmp_path).err
    world = changed(laptop, tmp_path / "w.yaml", pools=lambda pools: [pools[0] | {"cores": 0}])
    ran = run(flights_slice, world, tmp_path)
    assert ran.code == 2
    assert "pools.0.cores" in ran.err


@pytest.mark.parametrize("price", ["-0.04", "0"])
def test_an_impossible_price_is_rejected(
    price: str, flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    world = changed(
        laptop, tmp_path / "w.yaml", prices=lambda rows: [row | {"usd_per_hour": price} for row in rows]
    )
    ran = run(flights_slice, world, tmp_path)
    assert ran.code == 1
    assert "price" in ran.err
    assert not list((tmp_path / "store").glob("ledger/*"))


def test_a_price_for_a_pool_that_does_not_exist_names_those_that_do(
    flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    world = changed(laptop, tmp_path / "w.yaml", prices=lambda rows: [*rows, rows[0] | {"pool": "gpu-9"}])
    ran = run(flights_slice, world, tmp_path)
    assert ran.code == 2
    assert "gpu-9" in ran.err
    assert "cpu-1" in ran.err


def test_a_planning_world_cannot_be_run_on(flights_slice: Path, tmp_path: Path) -> None:
    assert shoestring("world", "init", "--example", "cloud", "--out", tmp_path / "cloud.yaml").code == 0
    ran = run(flights_slice, tmp_path / "cloud.yaml", tmp_path)
    assert ran.code == 2
    assert "world init" in ran.err


def test_a_missing_target_column_lists_the_columns(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    recipe = changed(flights_slice, flights_slice.parent / "no-target.yaml", target={"column": "lateness"})
    ran = run(recipe, laptop, tmp_path)
    assert ran.code == 2
    assert "lateness" in ran.err
    assert "arr_delay" in ran.err


def test_a_malformed_recipe_names_the_place(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    recipe = changed(flights_slice, flights_slice.parent / "typo.yaml", numerics=["hour"])
    ran = run(recipe, laptop, tmp_path)
    assert ran.code == 2
    assert "numerics" in ran.err


def test_an_empty_data_file_is_reported_as_empty(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    recipe = changed(flights_slice, tmp_path / "r.yaml", source={"flights": {"path": "empty.csv"}})
    ran = run(recipe, laptop, tmp_path)
    assert ran.code == 1
    assert "empty.csv" in ran.err
    assert "empty" in ran.err.replace("empty.csv", "")


def test_a_truncated_data_file_is_reported(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    import gzip

    whole = gzip.compress((flights_slice.parent / "flights.csv").read_bytes())
    (tmp_path / "flights.csv.gz").write_bytes(whole[: len(whole) // 2])
    recipe = changed(flights_slice, tmp_path / "r.yaml", source={"flights": {"path": "flights.csv.gz"}})
    ran = run(recipe, laptop, tmp_path)
    assert ran.code == 1
    assert "flights.csv.gz" in ran.err


def test_an_edited_ledger_entry_is_named(finished: Finished, tmp_path: Path) -> None:
    import shutil

    ledger = shutil.copytree(finished.out / "ledger", tmp_path / "ledger")
    entry = sorted(
        path
        for path in ledger.rglob("*.json")
        if path.stem.isdecimal() and finished.ran.json["run_id"] in str(path)
    )[1]
    entry.write_text(entry.read_text().replace('microusd": ', 'microusd": 1', 1))
    ran = shoestring("ledger", "verify", "--store", ledger)
    assert ran.code == 1
    assert entry.name in ran.err


def test_with_json_a_refusal_is_json_too(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    ran = run(flights_slice, laptop, tmp_path, "--budget", "0.000001", "--json")
    assert ran.code == 1
    assert ran.json["status"] == "refused"
    assert ran.json["smallest_budget_usd"] in ran.err


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ({"run_usd": "0.001"}, "raise run_usd"),
        ({"month_usd": "0.001"}, "$0.003000 requested, $0.001000 left of $0.001000"),
    ],
)
def test_a_cap_refuses_with_its_numbers(
    budgets: dict[str, str], reason: str, flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    ran = run(
        flights_slice,
        changed(laptop, tmp_path / "w.yaml", budgets=budgets),
        tmp_path,
        "--budget",
        "0.003",
        "--json",
    )
    assert ran.code == 1
    assert reason in ran.err
    assert (ran.json["status"], reason in ran.json["error"]) == ("refused", True)


def test_the_old_name_of_reap_is_bad_usage_and_names_the_new_one() -> None:
    ran = shoestring("sweep")
    assert (ran.code, ran.out) == (2, "")
    assert "`shoestring sweep` was renamed: use `shoestring reap`" in ran.err


def test_reap_needs_the_world_of_a_cluster(laptop: Path) -> None:
    ran = shoestring("reap", "--world", laptop)
    assert ran.code == 2
    assert "is not the folder of a cluster's world" in ran.err


def test_a_plan_never_exceeds_the_caps(flights_slice: Path, laptop: Path, tmp_path: Path) -> None:
    world = changed(laptop, tmp_path / "w.yaml", budgets={"stages": {"train": "0.000001"}})
    ran = shoestring("plan", flights_slice, "--world", world, "--store", tmp_path / "store")
    assert ran.code == 1
    assert "train cannot follow" in ran.out and "the stage's own budget is $0.000001" in ran.out


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({"campaign": "nosuch"}, "there is no campaign called 'nosuch'"),
        ({"stage_budgets_usd": {"trian": "0.001"}}, "budget for trian"),
        ({"target": {"column": "y", "above": 9}}, "1 distinct value"),
    ],
)
def test_a_recipe_that_cannot_run_leaves_no_run(
    recipe: dict[str, object], reason: str, laptop: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{row},{row % 7}\n" for row in range(200)))
    content = {
        "name": "mine",
        "source": {"rows": {"path": "rows.csv"}},
        "target": {"column": "y"},
        "budget_usd": "0.01",
        "deadline_s": 600,
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content | recipe))
    ran = run(tmp_path / "mine.yaml", laptop, tmp_path)
    assert ran.code in (1, 2) and reason in ran.err
    assert not list(tmp_path.glob("store/runs/*")) and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named_and_nothing_starts(
    flights_slice: Path, laptop: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file")
    ran = run(flights_slice, laptop, tmp_path)
    assert ran.code == 2 and f"cannot make the folder {tmp_path / 'out'}" in ran.err and "--out" in ran.err
    assert not list(tmp_path.glob("store/runs/*"))
