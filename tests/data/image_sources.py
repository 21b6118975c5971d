"""Folders of images, IDX files and tables of images that a test writes."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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


CLASSES = ("dark", "bright")


def encoded(pixels: np.ndarray[Any, Any], format: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format)
    return stream.getvalue()


def hub_metadata(classes: Sequence[str] = CLASSES) -> dict[str, str]:
    """Return the metadata of a file as the library `datasets` writes it."""
    features = {"image": {"_type": "Image"}, "label": {"names": [*classes], "_type": "ClassLabel"}}
    return {"huggingface": json.dumps({"info": {"features": features}})}


def hub_file(
    path: Path,
    images: Sequence[bytes | None],
    *,
    paths: Sequence[str | None] = (),
    labels: Sequence[int | None] = (),
    kind: pa.DataType | None = None,
    metadata: dict[str, str] | None = None,
    row_group: int = 100,
    **columns: Any,
) -> Path:
    """Write a Parquet or Arrow file in the layout of the Hugging Face Hub: `image`, with the type `kind` or
    as a struct of bytes and path, and `label`, which is 0, 1, 0, ... if it is not given."""
    data = pa.array(images, kind or pa.binary())
    if kind is None:
        data = pa.StructArray.from_arrays(
            [data, pa.array(paths or [None] * len(images), pa.string())], ["bytes", "path"]
        )
    numbers = pa.array(labels or [row % 2 for row in range(len(images))], pa.int64())
    table = pa.table({"image": data, "label": numbers, **columns})
    table = table.replace_schema_metadata(hub_metadata() if metadata is None else metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=row_group)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=row_group)
    return path
