"""Real processes of several runs on one store: what they share is computed once, also if its holder dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from done_once import highest_fence, results, stopped_holder, together, write_recipe
from warm_command import PipedProcess, warm_server

ROWS = 50_000

pytestmark = pytest.mark.slow


def in_command_server(words: list[str], variables: dict[str, str]) -> PipedProcess:
    return warm_server().start_piped(words, variables, Path.cwd())


def test_of_eight_runs_at_once_one_pays(laptop: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, ROWS)
    found = together(recipe, tmp_path / "many", laptop, 8, stages=1, launch=in_command_server)
    assert (found.computed, found.cached) == (1, 7)
    assert highest_fence(tmp_path / "many/store") == 1
    assert results(tmp_path / "many/store") == 1


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped and continued"])
def test_a_run_takes_over_from_a_holder_that_computes_no_longer(
    laptop: Path, tmp_path: Path, kill: bool
) -> None:
    recipe, folder = write_recipe(tmp_path, ROWS), tmp_path / "pair"
    found = stopped_holder(recipe, folder, laptop, kill=kill, launch=in_command_server)
    store = tmp_path / "pair/store"
    assert (highest_fence(store), results(store)) == (2, 1)
    assert ("its pod has ended" if kill else "its last heartbeat is 1") in found.note
    assert found.holder_key == ("" if kill else found.key)
