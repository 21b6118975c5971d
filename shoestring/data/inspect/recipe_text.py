"""A guessed recipe as YAML, with its reasons as comments."""

from __future__ import annotations

import os
from pathlib import Path

from shoestring.config.yaml_loader import dump
from shoestring.data.inspect.guess import TABLE, RecipeGuess
from shoestring.data.inspect.page_records import ColumnEntry


def recipe_text(guess: RecipeGuess, folder: Path) -> str:
    """Return the recipe as YAML, for a file in `folder`: a relative path of its data starts from there."""
    recipe, page = guess.recipe, guess.page
    source = recipe.source[TABLE]
    key, place = "url", source.url
    if source.path is not None:
        path = source.path.expanduser()
        key, place = "path", str(path) if path.is_absolute() else os.path.relpath(path.absolute(), folder)
    lines = [
        "# Made by `shoestring init` from a sample of the data. `shoestring data` shows how it is read, and",
        "# `shoestring schema recipe` prints every key.",
        f"name: {scalar(recipe.name)}",
        *_source_lines(f"{key}: {scalar(str(place))}", guess),
        f"target: {{column: {scalar(recipe.target.column)}}}  # {_target_comment(guess)}",
    ]
    if guess.leaks:
        lines += ["leaks:  # never features"]
        lines += [
            f"- {scalar(each.column)}  # guess: {each.fault}, {comment(each.finding)}" for each in guess.leaks
        ]
    if recipe.split.by:
        by = ", ".join(map(scalar, recipe.split.by))
        lines += [f"split: {{by: [{by}]}}  # guess: {comment(guess.split_reason)}"]
    if recipe.split.column:
        lines += [f"split: {{column: {scalar(recipe.split.column)}}}  # guess: {comment(guess.split_reason)}"]
    lines += [f"# {comment(each)}" for each in guess.by_time if not recipe.split_column]
    lines += [
        "",
        "# The columns, as they are read and used. To choose the features, name them under `categorical`,",
        "# `numeric` and `dates`.",
    ]
    return (
        "\n".join([*lines, *(f"# {_column_comment(each, page.rows_read)}" for each in page.columns)]) + "\n"
    )


def _source_lines(place: str, guess: RecipeGuess) -> list[str]:
    image, found = guess.recipe.image, guess.page.images
    splits = ["splits: true"] if guess.recipe.source[TABLE].splits else []
    reason = "  # guess: files are named by splits" if splits else ""
    if image is None or found is None:
        return [f"source: {{{TABLE}: {{{', '.join([place, *splits])}}}}}{reason}"]
    height, width = image.size
    sizes = ", ".join(f"{size} ({number})" for size, number in found.sizes.items())
    settings = f"size: [{height}, {width}], channels: {image.channels}, column: {scalar(image.column)}"
    return [
        "source:",
        f"  {TABLE}:",
        f"    {place}",
        *(f"    {each}{reason}" for each in splits),
        f"    image: {{{settings}}}  # guess: of {found.looked_at} looked at: {sizes}",
    ]


def scalar(text: str) -> str:
    """Return text as a YAML scalar for a flow of values, on one line, quoted where it must be."""
    dumped = dump([text], default_flow_style=True, width=1 << 30, allow_unicode=True)
    return dumped.strip()[1:-1]


def comment(text: str) -> str:
    """Return text on one line."""
    return " ".join(text.split())


def _target_comment(guess: RecipeGuess) -> str:
    prediction = comment(guess.page.prediction)
    if guess.is_target_given:
        return prediction
    others = f"; it could also be {comment(', '.join(guess.alternatives))}" if guess.alternatives else ""
    return f"guess: {prediction}{others}"


def _column_comment(entry: ColumnEntry, rows: int) -> str:
    values = f"{entry.values:,} value{'s' * (entry.values != 1)}"
    missing = f", {100 * entry.missing / rows:.1f}% missing" if entry.missing else ""
    return comment(f"{entry.name}: {entry.type}, {values}{missing}; {entry.use} ({entry.reason})")
