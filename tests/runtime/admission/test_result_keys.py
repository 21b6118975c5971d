"""Cache keys where router and stage share their libraries, and where they run in different images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_world import small_world

import shoestring
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import StageFailed
from shoestring.core.pod_ref import ClusterPod
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage.import_closure import library_versions
from shoestring.evaluation.baselines import (
    baseline_key_fields,
    baseline_libraries,
    find_baseline,
    save_baseline,
)
from shoestring.evaluation.results import BaselineFit
from shoestring.runtime.admission.result_keys import (
    ImageLibraries,
    StageInputs,
    StageWork,
    check_libraries,
    has_baseline,
    known_libraries,
    lookup_keys,
    pod_closure,
    record_libraries,
    saving_key,
)

IMAGE = "registry/train:1"
POD = ClusterPod("ns", "12345678-1234-1234-1234-123456789012", "stage")

# A router's image has neither PyTorch nor scikit-learn.
ROUTER = """
import importlib.util, json, sys
from dataclasses import replace
from pathlib import Path
from shoestring.backends.local import open_local_world
from shoestring.core.pod_ref import ClusterPod
from shoestring.data.recipe import Recipe
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, lookup_keys
assert not importlib.util.find_spec("torch") and not importlib.util.find_spec("sklearn")
world, store, recipe, image = sys.argv[1:]
pod = ClusterPod("ns", "87654321-1234-1234-1234-123456789012", "route")
opened = replace(open_local_world(Path(world), store=Path(store)), pod=pod)
work = StageWork(Recipe.model_validate_json(recipe), 7, "r", "train", image, StageInputs("datasets/d/1.json"))
print(json.dumps(lookup_keys(opened, work)))
"""


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path)


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "few",
            "source": {"rows": {"path": "/rows.csv"}},
            "target": {"column": "y"},
            "train": {"family": "table_net"},
        }
    )


@pytest.fixture
def router_libraries(tmp_path: Path) -> Path:
    """All installed libraries except those that only a stage's image has."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("torch", "sklearn", "scikit_learn", "__editable__")):
            (folder / path.name).symlink_to(path)
    return folder


def work_of(recipe: Recipe, run_id: str = "r") -> StageWork:
    return StageWork(recipe, 7, run_id, "train", IMAGE, StageInputs("datasets/d/1.json"))


def test_on_one_machine_a_router_looks_where_a_stage_saves(world: World, recipe: Recipe) -> None:
    work = work_of(recipe)
    shared, own = lookup_keys(world, work)
    assert saving_key(world, work, only_its_run=False)[0] == shared
    assert saving_key(world, work, only_its_run=True)[0] == own
    assert lookup_keys(world, work_of(recipe, "other")) == (
        shared,
        saving_key(world, work_of(recipe, "other"), only_its_run=True)[0],
    )
    assert not record_libraries(world, work_of(recipe))
    assert not any(world.store.list("learned/images/"))


def test_a_router_without_the_stages_libraries_finds_its_result_once_a_pod_has_recorded_them(
    world: World, recipe: Recipe, laptop: Path, router_libraries: Path
) -> None:
    pod, work = replace(world, pod=POD), work_of(recipe)

    def routed() -> list[str]:
        source = Path(shoestring.__path__[0]).parent
        path = os.pathsep.join([str(source), str(router_libraries)])
        folder = world.store.fetch("store.json").parent
        done = subprocess.run(
            [sys.executable, "-S", "-c", ROUTER, laptop, folder, recipe.model_dump_json(), IMAGE],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found: list[str] = json.loads(done.stdout)
        return found

    world.store.put("store.json", b"{}")
    assert routed() == []
    assert record_libraries(pod, work_of(recipe))
    assert routed() == [saving_key(pod, work, only)[0] for only in (False, True)]
    assert not record_libraries(pod, work_of(recipe))


def test_another_version_of_a_library_is_another_key(world: World, recipe: Recipe) -> None:
    pod, work = replace(world, pod=POD), work_of(recipe)
    record_libraries(pod, work_of(recipe))
    before = lookup_keys(pod, work)
    older(world)
    after = lookup_keys(pod, work)
    assert before and after and not set(before) & set(after)


def test_an_image_that_changed_under_its_name_is_found_when_a_cached_result_is_used(
    world: World, recipe: Recipe
) -> None:
    pod = replace(world, pod=POD)
    record_libraries(pod, work_of(recipe))
    check_libraries(pod, work_of(recipe))
    older(world)
    with pytest.raises(StageFailed, match="registry/train:1 has other libraries than when the cached result"):
        check_libraries(pod, work_of(recipe))
    check_libraries(pod, work_of(recipe))
    libraries = pod_closure(work_of(recipe)).libraries
    assert known_libraries(pod, IMAGE, "train", libraries) == known_libraries(world, "", "", libraries)


def older(world: World) -> None:
    """Make the record of the image that of one with an older PyTorch."""
    key = next(iter(world.store.list("learned/images/")))
    found = read_record(world.store, key, ImageLibraries)
    changed = found.model_copy(update={"libraries": found.libraries | {"torch": "1.0"}})
    world.store.put(key, changed.model_dump_json().encode())


@pytest.mark.parametrize("is_pod", [False, True])
def test_a_router_finds_a_baseline_once_the_libraries_of_its_image_are_known(
    world: World, recipe: Recipe, is_pod: bool
) -> None:
    router = replace(world, pod=POD) if is_pod else world
    work = replace(work_of(recipe), stage="evaluate")
    versions = library_versions(baseline_libraries())
    fields = baseline_key_fields(work.inputs.upstream, work.recipe.loss, work.seed, versions)
    assert not has_baseline(router, work)
    fit = BaselineFit(elapsed_s=1, cores=1, iterations=1, fitted_iterations=2, stop_reason="")
    save_baseline(world.store, fields, "boosting", fit, np.ones((3, 2)))
    if is_pod:
        assert not has_baseline(router, work)
        record_libraries(router, work)
    assert has_baseline(router, work)
    other = work.recipe.model_copy(update={"metric": "mae"})
    assert not has_baseline(router, replace(work, recipe=other))
    assert not has_baseline(router, replace(work, seed=8))
    found = find_baseline(world.store, fields)
    assert found is not None
    world.store.fetch(store_layout.blob(found[0].predictions_sha256)).unlink()
    assert not has_baseline(router, work)
