"""A machine whose PyTorch is built without CUDA trains on its cores, with a note in its world."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from shoestring.backends.local import open_local_world
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.pricing.templates import laptop_world
from shoestring.training.families.recipe_needs import RecipeNeeds

OPTIONAL = "{}: Optional[str] = {}\n".format
BUILDS = {
    "cores": (
        "__version__ = '9.1+cpu'\n" + OPTIONAL("cuda", None) + OPTIONAL("hip", None),
        "9.1+cpu, is built",
    ),
    "older": ("__version__ = '2.4.0'\ndebug = False\ncuda = None\n", "2.4.0, is built without CUDA"),
    "cuda": ("__version__ = '9.1'\n" + OPTIONAL("cuda", "'12.8'") + OPTIONAL("hip", None), ""),
    "rocm": ("__version__ = '9.1'\n" + OPTIONAL("cuda", None) + OPTIONAL("hip", "'6.4'"), ""),
}


@pytest.mark.parametrize("build", BUILDS)
def test_the_build_is_read_without_an_import(tmp_path: Path, build: str) -> None:
    content, expected = BUILDS[build]
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch/version.py").write_text(content)
    program = "from shoestring.backends.nvml import pytorch_without_cuda as found; print(found())"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert expected in done.stdout and bool(expected) == bool(done.stdout.strip())


def world_of(folder: Path, purpose: str, gpus: int) -> Path:
    content = laptop_world(
        cores=1, memory_gb=8, store=str(folder / "store"), as_of=date(2026, 1, 1), gpus=[("L4", 24.0)] * gpus
    )
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump({**content, "purpose": purpose}))
    return path


@pytest.mark.skipif("+cpu" not in version("torch"), reason="PyTorch is built for a GPU here")
def test_networks_stay_on_the_cores_of_such_a_machine_and_a_note_says_why(tmp_path: Path) -> None:
    world = open_local_world(world_of(tmp_path, "run", 1))
    (note,) = world.notes
    assert note.startswith("networks are trained on the cores of this machine: its PyTorch, 2.")
    images = {"path": "/images", "image": {"size": [28, 28], "channels": 1}}
    recipe = Recipe.model_validate(
        {"name": "a", "source": {"t": images}, "target": {"column": "y"}, "train": {"family": "image_net"}}
    )
    train = Need(stage="train", elastic=True)
    may, stays = (
        RecipeNeeds(recipe, 1000, 784, on_gpus=on).of_stage(train) for on in (True, world.trains_on_gpus)
    )
    assert (may.gpu, stays.gpu, stays.gpu_flop_per_row, stays.gpu_setup_s) == ("may", "no", 0.0, 0.0)
    assert stays.cpu_us_per_row == may.cpu_us_per_row
    for other in (world_of(tmp_path, "run", 0), world_of(tmp_path, "plan", 1)):
        found = open_local_world(other)
        assert not found.notes and found.trains_on_gpus
