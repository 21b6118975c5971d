"""Pipelines of a few rows in KFP's local runner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.data.recipe import Recipe
from shoestring.pipelines.local_runner import run_locally
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.summary import RunSummary, summarise_run


@dataclass(frozen=True)
class LocalRun:
    """A run that has ended. `log`: the end of what its steps printed."""

    succeeded: bool
    story: RunStory
    log: str

    @property
    def summary(self) -> RunSummary:
        return summarise_run(self.story)


def run_few(
    pipeline: Any, laptop: Path, folder: Path, patch: pytest.MonkeyPatch, **arguments: str
) -> LocalRun:
    """Run a pipeline whose parameters are recipe, run_id, world and these."""
    patch.setenv("SHOESTRING_STORE", str(folder / "store"))
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    source = {"rows": {"path": folder / "rows.csv"}}
    recipe = Recipe.model_validate({"name": "few", "source": source, "target": {"column": "y"}})
    given = {"recipe": recipe.model_dump_json(), "run_id": "r", "world": str(laptop)}
    succeeded = run_locally(given | arguments, log := folder / "log.txt", pipeline)
    story = read_run_story(FolderStore(folder / "store"), "r")
    return LocalRun(succeeded, story, log.read_text()[-60_000:])
