"""The names of classes in the metadata of a file, as the library `datasets` of Hugging Face writes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.values import text_array

METADATA = b"huggingface"


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of each column of whole numbers that has them, by number from 0."""
    try:
        features: dict[str, Any] = json.loads((schema.metadata or {})[METADATA])["info"]["features"]
        named = {
            name: tuple(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    whole = {column.name for column in schema if pa.types.is_integer(column.type)}
    return {name: names for name, names in named.items() if name in whole and len({*names}) == len(names)}


def named_classes(numbers: pa.Array, names: tuple[str, ...]) -> pa.Array:
    """Return the names of classes by their numbers; null for a number without a name, such as -1."""
    known = pa.Array.from_buffers(
        pa.int64(), len(names), [None, pa.py_buffer(np.arange(len(names), dtype=np.int64))]
    )
    return text_array(names).take(pc.index_in(numbers.cast(pa.int64()), options=pc.SetLookupOptions(known)))
