"""The compiled training is kept, and belongs to the sources and the compilers that made it."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

import shoestring
from shoestring import components, pipelines
from shoestring.pipelines.kept_training import compiled_digest, compiled_training

DIGEST = "from shoestring.pipelines.kept_training import compiled_digest; print(compiled_digest())"


def test_it_is_compiled_once_and_replaces_that_of_other_sources(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "train.0123.yaml").write_text("of other sources")
    first = compiled_training(tmp_path, kept)
    assert first == tmp_path / "train.yaml"
    second = compiled_training(tmp_path / "absent", kept)
    assert second == kept / f"train.{compiled_digest()}.yaml"
    assert list(kept.iterdir()) == [second] and second.read_bytes() == first.read_bytes()


def test_a_folder_that_cannot_be_written_to_keeps_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert compiled_training(tmp_path, tmp_path / "file" / "kept") == tmp_path / "train.yaml"


@pytest.mark.parametrize("changed", ["components/train.py", "pipelines/routed.py", "config/world.py"])
def test_its_digest_is_of_all_sources(changed: str, tmp_path: Path) -> None:
    root = tmp_path / "shoestring"
    for package in (shoestring, components, pipelines):
        copytree(
            package.__path__[0],
            root.joinpath(*package.__name__.split(".")[1:]),
            ignore=ignore_patterns("__pycache__", "components", "pipelines"),
            dirs_exist_ok=True,
        )

    def digest() -> str:
        return subprocess.check_output([sys.executable, "-c", DIGEST], text=True, cwd=tmp_path).strip()

    before = digest()
    assert digest() == before
    with (root / changed).open("a") as file:
        file.write("# changed\n")
    assert digest() != before
