"""Folders of texts that a test writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.core.datasets import TEXT_COLUMN, Manifest
from shoestring.core.interfaces import Store
from shoestring.data.loading.samples import Samples
from shoestring.data.recipe import Recipe
from shoestring.data.storage.part_writer import open_part
from shoestring.data.transforms.texts.byte_tokens import PADDING, START

WORDS = ("river", "stone", "märz", "light", "of", "the", "and", "sea", "went", "down")


def story(seed: int, words: int = 40) -> str:
    """Return a text of its own for each seed."""
    return " ".join(WORDS[(seed * 7 + index * index * (seed + 3)) % len(WORDS)] for index in range(words))


def text_folder(folder: Path, texts: dict[str, str | bytes] | int) -> Path:
    """Write texts by name; a number: this many stories."""
    if isinstance(texts, int):
        texts = {f"{number:03}.txt": f"{number} {story(number)}\n" for number in range(texts)}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def text_recipe(path: Path, *, row_tokens: int = 32, separator: str = "", **changes: Any) -> Recipe:
    """Return a recipe on texts at `path`."""
    text = {"row_tokens": row_tokens, "separator": separator}
    found = {"name": "mine", "source": {"rows": {"path": path, "text": text}}} | changes
    return Recipe.model_validate(found)


def raw_documents(store: Store, manifest: Manifest) -> list[tuple[str, bytes]]:
    """Return file and text of each ingested document, in order."""
    tables = [open_part(store, manifest, part) for part in manifest.splits["rows"]]
    return [
        (path, text)
        for table in tables
        for path, text in zip(table["path"].to_pylist(), table[TEXT_COLUMN].to_pylist(), strict=True)
    ]


def documents_of(samples: Samples) -> list[bytes]:
    """Return the documents in rows of bytes, from the tokens that a model predicts."""
    predicted = samples["tokens"][:, 1:].ravel()
    text = predicted[predicted != PADDING].tobytes()
    return text.split(bytes([START]))
