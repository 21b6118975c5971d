"""The Python API: what its functions return, what they raise, and what `import shoestring` imports."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import SMALL_RECIPE, Finished

import shoestring
from shoestring.core.errors import BudgetTooSmall, UnknownName, UsageError
from shoestring.data.recipe_files import find_recipe

STAGES = ["ingest", "preprocess", "train", "evaluate"]


def places(finished: Finished) -> dict[str, Path]:
    return {"world": finished.world, "store": finished.store}


def modules_after(code: str) -> set[str]:
    """Return the modules that a new interpreter has imported after running the code."""
    code += "\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    # importlib is part of the interpreter; whatever else appears would slow every process of a pipeline.
    assert modules_after("import shoestring") - modules_after("import importlib") == {"shoestring"}


def test_the_names_of_the_api_are_those_of_the_stub_and_of_the_docs() -> None:
    root = Path(shoestring.__path__[0])
    stub = (root / "__init__.pyi").read_text()
    page = (root.parent / "docs" / "api.md").read_text()
    for name in shoestring.API_NAMES:
        assert f"import {name} as {name}\n" in stub
        assert f"`{name}(" in page or f"`{name}`" in page
        assert name in dir(shoestring)
    assert stub.count(" as ") == len(shoestring.API_NAMES)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        shoestring.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_api_needs_no_command_line_and_no_library_of_training() -> None:
    found = modules_after("import shoestring; shoestring.run")
    assert not found & {"typer", "kfp", "torch", "sklearn", "kubernetes"}
    assert not any(name.startswith("shoestring.cli") for name in found)


def test_a_run_is_read_as_objects(finished: Finished, whole_run: Path) -> None:
    run_id = finished.ran.json["run_id"]
    # Other tests run on the worker's copy, and a run that is resumed has its summary written again.
    run = shoestring.open_run(run_id, world=finished.world, store=whole_run / "store")
    assert run.summary.model_dump(mode="json") == finished.ran.json
    assert [decision.question.stage for decision in run.decisions] == STAGES
    assert [receipt.stage for receipt in run.receipts] == STAGES
    spent = sum((receipt.spent_usd for receipt in run.receipts), Decimal(0))
    assert spent + run.summary.overhead_usd == run.summary.spent_usd
    assert run.evaluation is not None and run.evaluation.quality == run.summary.quality
    assert "<html" in run.report()
    assert repr(run) == f"RunView({run_id}: done, ${run.summary.spent_usd} of $0.002500 spent)"
    assert "Offers" in shoestring.explain(run.decisions[0])
    assert shoestring.compare(run, run).second_costs_usd == 0


def test_runs_are_listed(finished: Finished) -> None:
    found = shoestring.runs(name="slice", status="done", **places(finished))
    assert finished.ran.json["run_id"] in [each.run_id for each in found]
    assert shoestring.runs(name="another", **places(finished)) == ()
    with pytest.raises(UnknownName, match="no run called 'gone'"):
        shoestring.open_run("gone", **places(finished))


def test_a_plan_is_the_decision_that_the_command_prints(finished: Finished) -> None:
    decision = shoestring.plan(str(finished.recipe), **places(finished))
    printed = finished.again("plan", finished.recipe, "--json").json
    assert decision.choice is not None
    assert decision.choice.model_dump(mode="json") == printed["choice"]
    elsewhere = shoestring.plan(str(finished.recipe), engine="kubeflow", **places(finished)).question.engine
    assert elsewhere is not None and elsewhere.engine == "kubeflow"
    small = shoestring.plan(find_recipe(str(finished.recipe)), budget="0.000001", **places(finished))
    assert small.choice is None
    assert small.smallest_budget_usd is not None


@pytest.mark.parametrize("budget", ["much", "0", 0.003, "-1"])
def test_a_budget_that_is_none_is_bad_usage(budget: Any, finished: Finished) -> None:
    with pytest.raises(UsageError, match="budget: "):
        shoestring.plan(str(finished.recipe), budget=budget, **places(finished))


def test_a_refusal_raises_and_leaves_no_folder_and_no_variable(finished: Finished, tmp_path: Path) -> None:
    before = dict(os.environ)
    with pytest.raises(BudgetTooSmall) as raised:
        shoestring.run(
            str(finished.recipe), budget="0.000001", out=tmp_path / "runs" / "1", **places(finished)
        )
    assert raised.value.smallest_usd > Decimal("0.000001")
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == before


def test_a_world_is_written_once_and_told_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("SHOESTRING_WORLD", raising=False)
    with caplog.at_level(logging.WARNING, logger="shoestring"):
        assert shoestring.runs() == shoestring.runs() == ()
    assert [record.message.split()[0] for record in caplog.records] == ["wrote"]
    assert (tmp_path / "shoestring" / "world.yaml").exists()


def test_a_done_run_is_resumed_by_reading_it(finished: Finished, tmp_path: Path) -> None:
    run_id = finished.ran.json["run_id"]
    out = tmp_path / "out"
    assert shoestring.resume(run_id, out=out, **places(finished)).summary.starts == 1
    assert not out.exists()


def page_as_a_cell(recipe: Path) -> str:
    """Return the code of the API's page as one cell of a notebook, which runs inside an event loop."""
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    cell = textwrap.indent("\n".join(blocks).replace('"flights"', repr(str(recipe))), "    ")
    return (
        f"import asyncio\n\nasync def cell():\n{cell}\n    return run\n\nprint(repr(asyncio.run(cell())))\n"
    )


@pytest.mark.slow
def test_the_code_of_the_page_runs_in_a_notebook(finished: Finished, tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text(page_as_a_cell(finished.recipe))
    store = finished.warm_store(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, "cell.py"],
        cwd=tmp_path,
        env=os.environ | {"SHOESTRING_WORLD": str(finished.world), "SHOESTRING_STORE": str(store)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("done 0.000") for line in lines)
    assert any(line.startswith("evaluate done ") for line in lines)
    assert lines[-1].startswith("RunView(") and Decimal(lines[-2]) > Decimal("0.00001")
    assert "train: done" in done.stderr and "overhead: " in done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


TWO_RUNS = """\
import shoestring, sys
recipe, *places = sys.argv[1:]
for store, world in zip(places[::2], places[1::2]):
    run = shoestring.run(recipe, store=store, world=world, out=store + "-out")
    print(run.summary.status)
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_twice_in_two_worlds(laptop: Path, tmp_path: Path) -> None:
    """From standard input, as a notebook's cells are: a process that imports its main module again fails."""
    words = [str(tmp_path / "small.yaml")]
    Path(words[0]).write_text(SMALL_RECIPE)
    for name in ("here", "there"):
        world = tmp_path / f"{name}.yaml"
        world.write_text(re.sub("(?m)^name: .*", f"name: {name}", laptop.read_text()))
        words += [str(tmp_path / name), str(world)]
    done = subprocess.run(
        [sys.executable, "-", *words], input=TWO_RUNS, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["done", "done"]
    for name in ("here", "there"):
        (record,) = (tmp_path / name).glob("runs/*/run.json")
        assert json.loads(record.read_text())["world"] == name
        (steps,) = (tmp_path / name).glob("runs/*/overhead/1")
        assert len(list(steps.glob("step-server.*"))) == 1 and len(list(steps.glob("route-*"))) == 4
