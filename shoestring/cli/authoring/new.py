"""`shoestring new`: a stage, or a training, that compiles and passes its test at once, for its author to fill
in.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from shoestring.core.errors import UsageError
from shoestring.runtime.admission.stages import stage_names

# The target of each template file. __stage__, __package__ and __pipeline__ are replaced in paths and texts.
REPOSITORY_FILES = {
    "component.py.txt": "components/__stage__.py",
    "stage.py.txt": "shoestring/stages/__stage__.py",
    "test.py.txt": "tests/stages/test___stage__.py",
}
PACKAGE_FILES = {
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "init.py.txt": "__package__/__init__.py",
    "stage.py.txt": "__package__/stage.py",
    "component.py.txt": "__package__/component.py",
    "pipeline.py.txt": "__package__/pipeline.py",
    "test.py.txt": "tests/test___stage__.py",
}
TRAIN_FILES = {
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "init.py.txt": "__package__/__init__.py",
    "train.py.txt": "__package__/train.py",
    "pipeline.py.txt": "__package__/pipeline.py",
    "test.py.txt": "tests/test___stage__.py",
}


def check_identifier(kind: str, name: str) -> str:
    """Return the name. Raises UsageError unless Python, a pod label and a file can all have it."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name.endswith("_") or keyword.iskeyword(name):
        raise UsageError(
            f"{kind} cannot be called {name!r}: use at most 40 lower-case letters, digits and underscores, "
            "beginning with a letter"
        )
    return name


def write_template(template: str, targets: dict[str, str], root: Path, names: dict[str, str]) -> list[Path]:
    """Fill in a template under `root`; return the files. Raises UsageError, before writing anything, if one
    of them exists.
    """

    def filled(text: str) -> str:
        for word, name in names.items():
            text = text.replace(f"__{word}__", name)
        return text

    folder = files("shoestring.cli").joinpath("template", template)
    contents = {
        root / filled(target): filled(folder.joinpath(source).read_text(encoding="utf-8"))
        for source, target in targets.items()
    }
    if existing := [str(path) for path in contents if path.exists()]:
        raise UsageError(f"{', '.join(existing)}: already exists; choose another name, or move it")
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def package_steps(into: Path, package: str, train: bool) -> str:
    """Return the commands for a new package."""
    here = f"shoestring exec --budget 0.01 -- python -m {package}.train"
    run_it = f"run it:    cd {into} && {here}\n" if train else ""
    return f"""test it:   cd {into} && python -m pytest
{run_it}compile:   cd {into} && shoestring compile --pipeline {package}.pipeline:pipeline
image:     docker build --tag {package}:0.1.0 {into}"""


IntoOption = Annotated[
    Path | None,
    typer.Option(help="folder for a package of your own; default: add the stage to this repository"),
]
TrainOption = Annotated[
    bool, typer.Option("--train", help="a package with a training script in PyTorch and its pipeline")
]


def new(
    name: Annotated[str, typer.Argument(help="name of the stage, like dedupe")],
    into: IntoOption = None,
    train: TrainOption = False,
) -> None:
    """Create a stage that compiles and passes its test.

    It has a component, code, a NEED and a test; in a package of your own, also a small pipeline that routes
    it. With --train, the stage is a training script of your own, which keeps to its budget.
    """
    stage = check_identifier("a stage", name)
    if stage in stage_names():
        raise UsageError(f"a stage called {stage} already exists: choose another name")
    if train and into is None:
        raise UsageError("--train creates a package of your own: give its folder with --into DIR")
    if into is None:
        root = Path()
        if not (root / "shoestring" / "stages").is_dir() or not (root / "components").is_dir():
            raise UsageError(
                "this folder is not Shoestring's repository: "
                "give the folder of your own package with --into DIR"
            )
        paths = write_template("here", REPOSITORY_FILES, root, {"stage": stage})
        next_steps = f"""test it:   pytest {paths[-1]}
route it:  in shoestring/runtime/admission/stages.py, add it to TRAINING_STAGES at its position,
           and in pipelines/train.py
           routed({stage}, CHAIN[1:], run, upstream=raw.outputs["Output"], data=raw.outputs["Output"])
then:      shoestring compile --out tests/pipelines/golden"""
    else:
        package = check_identifier("a package", into.name.replace("-", "_"))
        if package == stage:
            raise UsageError(
                f"the package and its stage would both be called {stage}: choose another folder or name"
            )
        names = {"stage": stage, "package": package, "pipeline": package.replace("_", "-")}
        template, package_files = ("train", TRAIN_FILES) if train else ("own", PACKAGE_FILES)
        paths = write_template(template, package_files, into, names)
        next_steps = package_steps(into, package, train)
    typer.echo("\n".join([*map(str, paths), "", next_steps]))
