"""Folders of images, IDX files and tables of paths that a test writes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from data_files import recipe_of
from PIL import Image

from shoestring.data.recipe import Recipe

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

SIZE = {"size": [4, 6], "channels": 1}


def noise(count: int, seed: int = 0) -> Pixels:
    """Return uint8[count, 4, 6]; the left half is bright in every second one."""
    found = np.random.default_rng(seed).integers(0, 100, (count, 4, 6), np.uint8)
    found[1::2, :, :3] += 150
    return found


def image_folder(folder: Path, pixels: Pixels, labels: tuple[str, ...] = ("dark", "bright")) -> Path:
    """Write images as PNG files, each in the folder of its label."""
    for number, each in enumerate(pixels):
        path = folder / labels[number % len(labels)] / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each).save(path)
    return folder


def idx_bytes(values: np.ndarray[Any, Any]) -> bytes:
    return (
        b"\0\0\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    )


def idx_files(folder: Path, pixels: Pixels, name: str = "train", labels: int | None = None) -> Path:
    """Write images as gzipped IDX files, with the labels 0 and 1."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = (np.arange(len(pixels) if labels is None else labels) % 2).astype(np.uint8)
    (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(pixels)))
    (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(numbers)))
    return folder


def image_recipe(path: Path, target: str = "label", column: str = "path", **changes: Any) -> Recipe:
    """Return a recipe on images at `path`, stored as 4 x 6 pixels."""
    source = {"rows": {"path": path, "image": SIZE | {"column": column}}}
    return recipe_of(path, **{"source": source, "target": {"column": target}} | changes)
