"""`shoestring simulate` on the command line."""

from __future__ import annotations

from pathlib import Path

from commands import shoestring


def test_the_same_seed_prints_the_same_json_and_nothing_else() -> None:
    one, same = (shoestring("simulate", "--pipelines", 4, "--seed", 7, "--json") for _ in range(2))
    assert one.code == 0, one.err
    assert one.out == same.out
    assert one.json["pipelines"] == 4
    assert one.json["accounts_over_cap"] == 0


def test_a_recorded_market_starts_on_the_given_day(tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    path.write_text(
        "from_date,machine_type,region,market,usd_per_hour\n2025-08-01,n2-standard-4,us-central1,spot,0.01\n"
    )
    assert "before the simulation starts" in shoestring("simulate", "--trace", path, "--pipelines", 2).err
    ran = shoestring("simulate", "--trace", path, "--from", "2025-08-01", "--pipelines", 2, "--json")
    assert ran.json["pipelines"] == 2
    assert list(ran.json["parent_accounts"]) == ["2025-08"]


def test_two_policies_are_reported_in_two_columns(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("name: plain\n")
    (tmp_path / "slow.yaml").write_text("name: slow\npod_exit_s: 30\n")
    ran = shoestring(
        "simulate", "--pipelines", 4, "--policy", tmp_path / "plain.yaml", "--against", tmp_path / "slow.yaml"
    )
    assert ran.code == 0, ran.err
    head, *lines = ran.out.splitlines()
    assert head.split() == [str(tmp_path / "plain.yaml"), str(tmp_path / "slow.yaml")]
    assert next(line for line in lines if line.startswith("accounts above their cap")).split()[-2:] == [
        "0",
        "0",
    ]
    assert "8 pipelines in" in lines[-1]


def test_a_policy_that_caps_memory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "capped.yaml").write_text("name: capped\nguardrails: {memory_gb: {max: 4}}\n")
    ran = shoestring("simulate", "--pipelines", 2, "--policy", tmp_path / "capped.yaml")
    assert ran.code and "guardrails.memory_gb (4 GB) cannot be simulated" in ran.err


def test_a_users_scenario_is_read_and_an_invalid_one_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\npools: [n2-standard-4]\npipeline_kinds:\n"
        "- {name: one, median_rows: 1e6, needs: [{stage: count, cpu_us_per_row: 100.0}]}\n"
    )
    ran = shoestring("simulate", path, "--pipelines", 3, "--json")
    assert ran.json["scenario"] == "mine"
    assert list(ran.json["pipeline_kinds"]) == ["one"]
    for text, expected in (
        ("name: mine\n", "pipeline_kinds: Field required"),
        (
            "name: mine\npools: [tpu]\n"
            "pipeline_kinds: [{name: one, median_rows: 1, needs: [{stage: count}]}]\n",
            "there is no pool called tpu",
        ),
        (
            "name: mine\npipeline_kinds:\n"
            "- {name: one, median_rows: 1, needs: [{stage: count, gpu: must, gpu_memory_gb: 999}]}\n",
            "no pool can run one",
        ),
    ):
        path.write_text(text)
        refused = shoestring("simulate", path, "--pipelines", 1)
        assert refused.code in (1, 2)
        assert expected in refused.err
    assert shoestring("simulate", tmp_path / "none.yaml").code == 2
    assert "there is no policy file" in shoestring("simulate", "--policy", tmp_path / "none.yaml").err
