"""Open a split of an encoded data set."""

from __future__ import annotations

from pathlib import Path

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.types import Format
from shoestring.data.formats.dictionaries import read_model_codes
from shoestring.data.formats.readers import open_rows
from shoestring.data.loading.samples import Collator, SampleReader, StoredRows
from shoestring.data.loading.streamed_rows import StreamedRows
from shoestring.data.storage.blobs import open_blob


def require_encoding(manifest: Manifest) -> Encoding:
    """Return the encoding of a data set. Raises DataError when it has none."""
    if manifest.encoding is None:
        raise DataError(f"{manifest.name} is not encoded: models read what preprocess wrote")
    return manifest.encoding


def open_split(store: Store, manifest: Manifest, split: str, scratch: Path | None = None) -> SampleReader:
    """Open the samples of a split; with a folder `scratch`, for reading them in random order.

    Those of a data set in shards are streamed from the store then. Raises DataError when it holds none.
    """
    encoding, parts = require_encoding(manifest), manifest.splits.get(split, ())
    if not sum(part.rows for part in parts):
        raise DataError(
            f"the {split} split of {manifest.name} holds no rows: "
            "give it a larger share, or write another `seed` in the recipe"
        )
    rows: StoredRows
    if scratch is not None and manifest.format is Format.SHARDS:
        rows = StreamedRows(store, parts)
    else:
        rows = open_rows([open_blob(store, part.sha256) for part in parts], manifest.format, scratch)
    sha256 = encoding.dictionary_sha256
    model_codes = read_model_codes(open_blob(store, sha256)) if sha256 else {}
    return SampleReader(rows, Collator(encoding, rows.dtype, model_codes))
