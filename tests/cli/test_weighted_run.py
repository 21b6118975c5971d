"""A run on a table with weights, by the command: its figures are those of the repeated rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import shoestring

RECIPE = """\
name: survey
source: {people: {path: survey.csv}}
target: {column: vote}
split: {by: [person]}
budget_usd: "0.01"
deadline_s: 300
train: {family: boosted, max_epochs: 30}
"""


def write(folder: Path, *, repeats: bool) -> Path:
    """Write a recipe with weights of 1 to 3, or of the rows as many times."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "survey.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["person", "age", "vote", "weight"])
        for person in range(900):
            age = int(rng.integers(18, 90))
            vote = "yes" if rng.random() < 1 / (1 + np.exp((50 - age) / 15)) else "no"
            weight = int(rng.integers(1, 3)) + (vote == "yes")
            for _ in range(weight if repeats else 1):
                rows.writerow([person, age, vote, weight])
    recipe = folder / "survey.yaml"
    recipe.write_text(RECIPE + ("leaks: [weight]\n" if repeats else "weight: weight\n"))
    return recipe


def test_a_run_with_weights_is_that_of_repeated_rows_and_its_report_says_so(tmp_path: Path) -> None:
    found = {}
    for name in ("weighted", "repeated"):
        recipe = write(tmp_path / name, repeats=name == "repeated")
        out = tmp_path / name / "out"
        ran = shoestring("run", recipe, "--store", tmp_path / name / "store", "--out", out)
        assert ran.code == 0, ran.err
        found[name] = json.loads((out / "evaluation.json").read_text())
    weighted, repeated = found["weighted"], found["repeated"]
    assert weighted["weighted_by"] == "weight" and "weighted_by" not in repeated
    assert weighted["unit_count"] == repeated["unit_count"]
    prior, other = (each["baselines"][0]["scores"] for each in (weighted, repeated))
    for metric in prior:
        assert prior[metric]["value"] == pytest.approx(other[metric]["value"], rel=1e-9, abs=1e-9), metric
    assert prior["log_loss"]["low"] == pytest.approx(other["log_loss"]["low"], rel=1e-9)
    ours, theirs = (each["model"]["scores"]["log_loss"]["value"] for each in (weighted, repeated))
    assert ours == pytest.approx(theirs, rel=0.1) and ours < 0.9 * prior["log_loss"]["value"]
    report = (tmp_path / "weighted" / "out" / "report.html").read_text()
    assert "Rows are weighted by weight, in all figures." in report
    new = tmp_path / "new.csv"
    new.write_text("age\n20\n80\n")
    predicted = tmp_path / "predicted.jsonl"
    ran = shoestring("predict", tmp_path / "weighted" / "out", new, "--out", predicted)
    assert ran.code == 0, ran.err
    assert [json.loads(line)["prediction"] for line in predicted.read_text().splitlines()] == ["no", "yes"]
