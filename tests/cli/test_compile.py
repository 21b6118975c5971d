"""`shoestring compile`: the compiled files, other registries, single pipelines, and bad arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import shoestring
from engine_scenarios.own_package import AUTHORED

ROOT = Path(__file__).parent.parent.parent


def test_compile_writes_the_files_that_the_golden_folder_holds_and_names_them(tmp_path: Path) -> None:
    golden = ROOT / "tests/pipelines/golden"
    ran = shoestring("compile", "--target", "kfp", "--out", tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
    written = [Path(line) for line in ran.out.splitlines()]
    assert {path.relative_to(tmp_path / "out"): path.read_text() for path in written} == {
        path.relative_to(golden): path.read_text()
        for path in (*golden.glob("*.yaml"), *golden.glob("components/*.yaml"))
    }


@pytest.mark.parametrize("target", ["kfp", "argo"])
def test_another_registry_replaces_the_default_in_every_compiled_file(tmp_path: Path, target: str) -> None:
    ran = shoestring(
        "compile", "--target", target, "--out", tmp_path, "--registry", "registry.example.com/ml/"
    )
    assert ran.code == 0, ran.err
    texts = [Path(line).read_text() for line in ran.out.splitlines()]
    assert any("registry.example.com/ml/shoestring-base:" in text for text in texts)
    assert not any("ghcr.io/" in text for text in texts)


def test_compiling_for_an_unknown_engine_is_bad_usage(tmp_path: Path) -> None:
    ran = shoestring("compile", "--target", "airflow", "--out", tmp_path)
    assert ran.code == 2
    assert "there is no target called 'airflow'; known: kfp" in ran.err


@pytest.mark.parametrize("target", ["kfp", "argo"])
def test_one_pipeline_compiles_to_the_same_file_as_among_all(tmp_path: Path, target: str) -> None:
    options = ("compile", "--target", target, "--out")
    all_of_them = shoestring(*options, tmp_path / "all")
    ran = shoestring(*options, tmp_path / "one", "--pipeline", "shoestring.pipelines.train:train_pipeline")
    assert (ran.code, ran.out.strip()) == (0, str(tmp_path / "one" / "shoestring-train.yaml")), ran.err
    assert (tmp_path / "one" / "shoestring-train.yaml").read_text() == Path(
        all_of_them.out.splitlines()[0]
    ).read_text()


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("there.is_none:pipeline", "No module named 'there'"),
        ("shoestring.pipelines.train:none", "has no attribute 'none'"),
        ("shoestring.pipelines.train", "MODULE:NAME, as Python imports it from "),
        (":pipeline", "MODULE:NAME, as Python imports it from "),
        ("shoestring.components.ingest:ingest", "shoestring.components.ingest:ingest is not a pipeline"),
        ("shoestring.pipelines.train:CHAIN", "shoestring.pipelines.train:CHAIN is not a pipeline"),
    ],
)
def test_compiling_a_non_pipeline_is_bad_usage_and_writes_nothing(
    pipeline: str, message: str, tmp_path: Path
) -> None:
    ran = shoestring("compile", "--out", tmp_path / "out", "--pipeline", pipeline)
    assert ran.code == 2
    assert message in ran.err and pipeline in ran.err
    assert not (tmp_path / "out").exists()


def test_compiling_into_a_file_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("mine")
    ran = shoestring("compile", "--out", tmp_path / "train.yaml")
    assert (ran.code, (tmp_path / "train.yaml").read_text()) == (2, "mine")
    assert "has to be a folder" in ran.err


BRACES = """
from kfp import dsl
from strangers import IMAGE, after_ingest

@dsl.container_component
def repeat(text: str):
    return dsl.ContainerSpec(IMAGE, ["echo", "{{workflow.name}}"], [text])

pipeline = after_ingest("braces", repeat)
"""


@pytest.mark.parametrize(("target", "warnings"), [("argo", 1), ("kfp", 0)])
def test_a_template_of_argo_in_a_container_is_warned_of(tmp_path: Path, target: str, warnings: int) -> None:
    (tmp_path / "braces.py").write_text(BRACES)
    line = ("compile", "--target", target, "--pipeline", "braces:pipeline", "--out", tmp_path)
    ran = shoestring(*line, env={"PYTHONPATH": str(AUTHORED)}, folder=tmp_path)
    assert (ran.code, ran.out.strip()) == (0, str(tmp_path / "braces.yaml")), ran.err
    found = "warning: Argo takes {{workflow.name}} in the command, inputs or environment of theirs"
    assert ran.err.count(found) == len(ran.err.splitlines()) == warnings
