"""Recipes in files: the user's, and those of the package."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from shoestring.config.yaml_files import parse, read_text
from shoestring.core.errors import RecipeError, UnknownName
from shoestring.data.recipe import Recipe
from shoestring.data.source import Source


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a YAML file, with relative paths from the file's folder. Raises RecipeError."""
    recipe = _parse(read_text(path, f"there is no recipe file at {path}", RecipeError), str(path))
    folder = path.absolute().parent
    source = {name: _absolute(source, folder) for name, source in recipe.source.items()}
    return recipe.model_copy(update={"source": source})


def find_recipe(name_or_path: str) -> Recipe:
    """Return an included recipe by name, or read the user's by a path that ends in .yaml. Raises
    UnknownName, RecipeError."""
    if name_or_path.endswith((".yaml", ".yml")):
        return read_recipe(Path(name_or_path))
    included = _included_recipes()
    if name_or_path not in included:
        raise UnknownName("recipe", name_or_path, [*included, "or a path ending in .yaml"])
    return _parse(included[name_or_path].read_text(encoding="utf-8"), name_or_path)


def _included_recipes() -> dict[str, Traversable]:
    folder = files("shoestring.pipelines").joinpath("recipes")
    found = (file for file in folder.iterdir() if file.name.endswith(".yaml"))
    return {file.name.removesuffix(".yaml"): file for file in sorted(found, key=lambda file: file.name)}


def _parse(text: str, place: str) -> Recipe:
    return parse(text, Recipe, place, RecipeError, "; `shoestring schema recipe` prints all keys")


def _absolute(source: Source, folder: Path) -> Source:
    if source.path is None:
        return source
    return source.model_copy(update={"path": folder / source.path.expanduser()})
