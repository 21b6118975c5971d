"""`shoestring new`: a stage that compiles and passes its test at once, for its author to fill in."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from shoestring.core.errors import UsageError
from shoestring.runtime.admission.build_question import stage_names

# Where each file of a template goes. __stage__, __package__ and __name__ stand for names, here as in the files.
HERE = {
    "component.py.txt": "components/__stage__.py",
    "stage.py.txt": "shoestring/stages/__stage__.py",
    "test.py.txt": "tests/stages/test___stage__.py",
}
OWN = {
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "init.py.txt": "__package__/__init__.py",
    "stage.py.txt": "__package__/stage.py",
    "component.py.txt": "__package__/component.py",
    "pipeline.py.txt": "__package__/pipeline.py",
    "test.py.txt": "tests/test___stage__.py",
}


def identifier(what: str, name: str) -> str:
    """Raises UsageError for what Python, a pod's label and a file cannot all be called."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name.endswith("_") or keyword.iskeyword(name):
        raise UsageError(
            f"{what} cannot be called {name!r}: small letters, digits and underscores, beginning with a letter, at most 40"
        )
    return name


def written(template: str, places: dict[str, str], root: Path, names: dict[str, str]) -> list[Path]:
    """Fill in a template under `root`; returns the files. Raises UsageError, before anything is written, where one is there already."""

    def filled(text: str) -> str:
        for word, name in names.items():
            text = text.replace(f"__{word}__", name)
        return text

    folder = files("shoestring.cli").joinpath("template", template)
    contents = {
        root / filled(place): filled(folder.joinpath(source).read_text(encoding="utf-8"))
        for source, place in places.items()
    }
    if there := [str(path) for path in contents if path.exists()]:
        raise UsageError(f"{', '.join(there)}: there already; choose another name, or move it away")
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(contents)


def new(
    name: Annotated[str, typer.Argument(help="what the stage is called, like dedupe")],
    into: Annotated[
        Path | None, typer.Option(help="folder for a package of your own; without it, into this repository")
    ] = None,
) -> None:
    """Make a stage: component, work, NEED and test, and in a package of your own a small pipeline that routes it."""
    stage = identifier("a stage", name)
    if stage in stage_names():
        raise UsageError(f"there is a stage called {stage} already: choose another name")
    if into is None:
        root = Path()
        if not (root / "shoestring" / "stages").is_dir() or not (root / "components").is_dir():
            raise UsageError(
                "this folder is not Shoestring's repository: name one for a package of your own with --into DIR"
            )
        paths = written("here", HERE, root, {"stage": stage})
        after = f"""test it:   pytest {paths[-1]}
route it:  in pipelines/train.py, add {stage}'s NEED to CHAIN where it belongs, and
           routed({stage}, CHAIN[1:], run, upstream=raw.outputs["Output"], data=raw.outputs["Output"])
then:      shoestring compile --out tests/pipelines/golden"""
    else:
        package = identifier("a package", into.name.replace("-", "_"))
        if package == stage:
            raise UsageError(
                f"the package and its stage would both be called {stage}: choose another folder, or another name"
            )
        paths = written(
            "own", OWN, into, {"stage": stage, "package": package, "name": package.replace("_", "-")}
        )
        after = f"""test it:   cd {into} && python -m pytest
compile:   cd {into} && shoestring compile --pipeline {package}.pipeline:pipeline
image:     docker build --tag {package}:0.1.0 {into}"""
    typer.echo("\n".join([*map(str, paths), "", after]))


def add_to(app: typer.Typer) -> None:
    app.command()(new)
