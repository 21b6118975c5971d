"""`shoestring new`: its output compiles and passes its own test at once, and existing files are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Ran, command

ROOT = Path(__file__).parent.parent.parent


def new(folder: Path, *arguments: str) -> Ran:
    done = subprocess.run(
        command("new", *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the parts of this repository that a new stage needs for its tests."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("shoestring", "components", "pipelines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("components", "pipelines"):
        # An editable install maps these packages in the same way.
        (folder / "shoestring" / name).symlink_to(folder / name)
    for name in (
        "tests/conftest.py",
        "tests/commands.py",
        "tests/warm_command.py",
        "tests/examples.py",
        "tests/stages/test_data_stages.py",
        "pyproject.toml",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def test_a_stage_made_in_the_repository_passes_its_test_and_the_linter_at_once(repository: Path) -> None:
    ran = new(repository, "thin_out")
    assert ran.code == 0, ran.err
    written = [Path(line) for line in ran.out.split("\n\n")[0].splitlines()]
    assert [str(path) for path in written] == [
        "components/thin_out.py",
        "shoestring/stages/thin_out.py",
        "tests/stages/test_thin_out.py",
    ]
    assert "routed(thin_out, CHAIN[1:]" in ran.out
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(written[-1])],
        cwd=repository,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(repository)},
    )
    assert tested.returncode == 0, tested.stdout[-4000:]
    clean(repository, written)


def test_a_new_package_is_clean_and_is_not_overwritten(tmp_path: Path) -> None:
    ran = new(tmp_path, "dedupe", "--into", "dedupe-rows")
    assert ran.code == 0, ran.err
    written = [tmp_path / line for line in ran.out.split("\n\n")[0].splitlines()]
    assert all(path.exists() for path in written)
    assert [
        path for path in written if "__stage__" in path.read_text() or "__package__" in path.read_text()
    ] == []
    pipelines = [path.read_text() for path in written if path.name == "pipeline.py"]
    assert [text.count("seed: int = -1,") for text in pipelines] == [1]  # -1: the recipe's own seed
    # The order of imports depends on the name of the package.
    clean(tmp_path, [path for path in written if path.suffix == ".py"], "--ignore=I001")
    before = {path: path.read_bytes() for path in written}
    again = new(tmp_path, "dedupe", "--into", "dedupe-rows")
    assert again.code == 2
    assert "already exists" in again.err
    assert {path: path.read_bytes() for path in written} == before


@pytest.mark.slow
def test_the_test_of_a_stage_that_fails_prints_the_error_of_the_stage_first(tmp_path: Path) -> None:
    assert new(tmp_path, "dedupe", "--into", "dedupe-rows").code == 0
    package = tmp_path / "dedupe-rows"
    code = package / "dedupe_rows" / "stage.py"
    code.write_text(code.read_text().replace("        return rows\n", '        return rows["absent"]\n'))
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=package,
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert tested.returncode == 1
    errors = [line for line in tested.stdout.splitlines() if line.startswith("E ")]
    assert "KeyError: 'Field \"absent\" does not exist in schema'" in errors[0]
    assert any("stage.py" in line for line in errors[:20])
    assert len(tested.stdout.splitlines()) < 80


def clean(folder: Path, written: list[Path], *but: str) -> None:
    """Check that files pass ruff with this project's own rules."""
    for rules in (["check", *but], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *rules, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        linted = subprocess.run([*ruff, *map(str, written)], cwd=folder, capture_output=True, text=True)
        assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dedupe"], "give the folder of your own package with --into DIR"),
        (["dedupe-rows", "--into", "mine"], "a stage cannot be called 'dedupe-rows'"),
        (["class", "--into", "mine"], "a stage cannot be called 'class'"),
        (["train", "--into", "mine"], "a stage called train already exists"),
        (["dedupe", "--into", "2nd"], "a package cannot be called '2nd'"),
        (["dedupe", "--into", "dedupe"], "would both be called dedupe"),
    ],
)
def test_an_invalid_name_is_bad_usage_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    ran = new(tmp_path, *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_training_is_a_package_of_its_own(tmp_path: Path) -> None:
    refused = new(tmp_path, "digits", "--train")
    assert (refused.code, "--into DIR" in refused.err) == (2, True)
    made = new(tmp_path, "digits", "--train", "--into", "digit-budget")
    assert made.code == 0 and "shoestring exec --budget 0.01 -- python -m digit_budget.train" in made.out
    text = (tmp_path / "digit-budget" / "digit_budget" / "train.py").read_text()
    assert 'if __name__ == "__main__":' in text
