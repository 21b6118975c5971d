"""The steps of an engine that end in an error: what their log has, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from warm_scripts import start_script

from shoestring.backends.folder_store import FolderStore
from shoestring.core.record import SCHEMA_VERSION
from shoestring.data.recipe_files import read_recipe
from shoestring.data.run_records import read_step_error
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.runtime.admission.stages import training_needs

NEEDS = RemainingStages(schema_version=SCHEMA_VERSION, needs=training_needs()).model_dump_json()
COMPONENT = """\
import json, sys
from shoestring.runtime import route, run

step, arguments = json.loads(sys.argv[1])
if step == "caught":
    try:
        run("ingest", **arguments)
    except Exception as error:
        print("caught", type(error).__name__)
elif step == "bug":
    route(1, **arguments)
elif step == "route":
    route(**arguments)
else:
    run(step, **arguments)
"""


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("route", "the features: nowhere is not a column of table flights, which has"),
        ("ingest", "the store has no runs/r/decisions/ingest-1.json"),
        ("caught", "the store has no runs/r/decisions/ingest-1.json"),
        ("bug", ""),
    ],
)
def test_an_error_of_the_user_is_one_line_of_the_log_and_kept_with_the_run(
    step: str, reason: str, laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    """In the process of a component of Kubeflow, which calls the functions that a template calls."""
    (script := tmp_path / "component.py").write_text(COMPONENT)
    recipe = read_recipe(flights_slice).model_dump_json().replace('"distance"', '"nowhere"')
    routing = {"needs": NEEDS, "recipe": recipe, "budget_usd": "", "deadline_s": 0.0, "seed": -1}
    routing |= {"upstream": "", "side_input": "", "decision_path": "decision.json", "page_path": "page.md"}
    staging = {"decision_key": "runs/r/decisions/ingest-1.json", "inputs": {}}
    arguments = {"world": str(laptop), "run_id": "r"} | (routing if step in ("route", "bug") else staging)
    process = start_script(
        *(script, json.dumps([step, arguments])),
        variables={"SHOESTRING_STORE": str(tmp_path / "store")},
        modules="shoestring.runtime.route_step.route,shoestring.runtime.supervisor.run_stage",
    )
    out, err = process.communicate(timeout=120)
    kept = read_step_error(FolderStore(tmp_path / "store"), "r")
    if step == "bug":
        assert (process.returncode, "Traceback" in err, kept) == (1, True, None), err
        return
    assert kept is not None and kept.step == ("ingest" if step == "caught" else step)
    assert kept.reason.startswith(reason)
    if step == "caught":
        assert (process.returncode, out, err) == (0, "caught NotInStore\n", "")
    else:
        assert (process.returncode, out, err) == (1, "", f"shoestring: {kept.reason}\n")
