"""The built wheel works without a checkout, next to an author's own `pipelines` and `components`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from commands import RECIPE, flights_lines

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "shoestring", "components", "pipelines")

PIPELINE = """\
from components.names import NAME
from kfp import dsl

from shoestring.components.ingest import ingest
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.stages import ingest as ingest_stage


@dsl.pipeline(name=NAME)
def pipeline(
    recipe: str,
    run_id: str = "",
    world: str = "",
    budget_usd: str = "",
    deadline_s: float = 0.0,
    seed: int = -1,
) -> None:
    run = RunParameters(world, run_id, recipe, budget_usd, deadline_s, seed)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(ingest, (ingest_stage.NEED,), run)
"""

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    """Return the output of a command that must succeed, outside the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHOESTRING"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=env | {"HOME": str(cwd)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment with the wheel.

    The libraries are those of this environment. Its editable installation is not active there: a path file
    adds a folder, not the path files inside the folder.
    """
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, target = ROOT / name, folder / "source" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder)
    run(*build, folder / "source", cwd=folder)
    shutil.rmtree(folder / "source")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=folder)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("shoestring-*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    paths = sysconfig.get_path("purelib", vars={"base": str(environment)})
    Path(paths, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def test_the_wheel_installs_one_top_level_package(installed: Path, tmp_path: Path) -> None:
    where = run(
        installed / "python",
        "-c",
        "import importlib.util as u, shoestring.components, shoestring.pipelines as p;"
        "print(p.__file__); print([u.find_spec(name) for name in ('components', 'pipelines')])",
        cwd=tmp_path,
    ).splitlines()
    assert Path(where[0]).is_relative_to(installed.parent) and where[1] == "[None, None]"


def test_a_run_needs_no_checkout(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_bytes(b"".join(flights_lines(20_000)))
    (tmp_path / "slice.yaml").write_text(RECIPE)
    run(installed / "shoestring", "run", "slice.yaml", cwd=tmp_path)
    (summary,) = (tmp_path / "runs").glob("*/summary.json")
    assert '"status": "done"' in summary.read_text()


def test_an_authors_own_pipelines_and_components_compile(installed: Path, tmp_path: Path) -> None:
    for name, text in (("components/names.py", 'NAME = "mine"\n'), ("pipelines/mine.py", PIPELINE)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
        (tmp_path / name).with_name("__init__.py").touch()
    run(
        installed / "shoestring",
        "compile",
        "--pipeline",
        "pipelines.mine:pipeline",
        "--out",
        "out",
        cwd=tmp_path,
    )
    assert "name: mine" in (tmp_path / "out" / "mine.yaml").read_text()
