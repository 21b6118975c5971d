"""The record of a run has the terms of its job, and a recipe or a command; those of before are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from shoestring.core.errors import UsageError
from shoestring.core.record import record_bytes
from shoestring.data.job import Command, OfTask, command_name, job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import RunRecord

WORLD = {
    "world": "laptop",
    "world_sha256": "",
    "created_at": "2026-11-27T12:00:00Z",
    "environment": {},
    "run_id": "r",
}


class AnyTask(OfTask):
    def __init__(self, task: Recipe | Command) -> None:
        self.task = task


def recipe_fields() -> dict[str, Any]:
    fields: dict[str, Any] = find_recipe("flights").model_dump(mode="json")
    return fields


def test_a_record_of_before_is_read_as_a_job_with_its_recipe() -> None:
    fields = recipe_fields() | {"budget_usd": "0.25", "campaign": "spring", "priority": "high"}
    old = {"schema_version": 4, "recipe": fields, "recipe_sha256": "aa", "seed": 9, **WORLD}
    record = RunRecord.model_validate_json(json.dumps(old))
    job = record.job
    assert (job.name, str(job.budget_usd), job.seed) == ("flights", "0.250000", 9)
    assert (job.campaign, job.priority, job.owner) == ("spring", "high", "")
    assert record.task == record.recipe and record.resume_text == "shoestring run --resume r"


def test_a_record_of_a_command_is_written_and_read() -> None:
    command = Command(argv=("python", "train.py"), cores=2)
    job = job_of_recipe(find_recipe("flights")).model_copy(update={"name": "train"})
    record = RunRecord.model_validate(WORLD | {"job": job, "command": command})
    assert RunRecord.model_validate_json(record_bytes(record)) == record
    # Without a folder of this machine, it is the stage of a pipeline.
    assert record.task == command and record.resume_text == "shoestring run --resume r"
    here = record.model_copy(update={"command": command.model_copy(update={"folder": "/work"})})
    assert here.resume_text == "shoestring exec --resume r"


@pytest.mark.parametrize("both", [True, False])
def test_a_record_has_exactly_one_of_recipe_and_command(both: bool) -> None:
    recipe = find_recipe("flights")
    given = {"recipe": recipe, "command": Command(argv=("true",))} if both else {}
    with pytest.raises(ValidationError, match="either a recipe or a command"):
        RunRecord.model_validate(WORLD | {"job": job_of_recipe(recipe)} | given)


def test_the_recipe_of_a_command_is_an_error_with_the_command_in_it() -> None:
    with pytest.raises(UsageError, match=r"python 'my script\.py'"):
        _ = AnyTask(Command(argv=("python", "my script.py"))).recipe
    assert AnyTask(find_recipe("flights")).command is None


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "train.py", "--lr", "3"], "train"),
        (["python3", "-u", "My Script.py"], "my-script"),
        (["bash", "-c", "exit 3"], "bash"),
        (["bash", "-lc", "python train.py --lr 0.1"], "bash"),
        (["/usr/bin/python", "-u", "-c", "import time; time.sleep(0.5)"], "python"),
        (["python", "train.py", "-c", "a.yaml"], "train"),
        (["python", "-m", "pkg.train", "--rows", "a.csv"], "pkg"),
        (["python", "-m", "fit", "--rows", "a.csv"], "fit"),
        (["bash", "-e", "train.sh"], "train"),
        (["sleep", "0.5"], "sleep"),
        (["./run.sh"], "run"),
        (["/usr/bin/env"], "env"),
        (["..."], "command"),
        (["x" * 200], "x" * 63),
    ],
)
def test_a_run_is_named_after_its_script(argv: list[str], name: str) -> None:
    assert command_name(argv) == name
