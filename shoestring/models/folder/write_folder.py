"""Write a trained model as a folder that predicts raw rows, on any machine and without a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shoestring.core.datasets import Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest, record_bytes
from shoestring.data.increments.schema_version import last_schema
from shoestring.data.loading.open_split import require_encoding
from shoestring.data.recipe import Recipe
from shoestring.data.sources.column_types import arrow_type
from shoestring.data.sources.text.fixed_kinds import WRITTEN
from shoestring.data.storage.blobs import load_manifest, open_blob
from shoestring.data.storage.part_writer import open_part
from shoestring.models.folder.read_folder import read_digests
from shoestring.models.folder.record import (
    DICTIONARIES_FILE,
    DIGESTS_FILE,
    LINEAGE_FILE,
    MAX_TABLES_BYTES,
    MODEL_FILE,
    TABLES_FOLDER,
    WEIGHTS_FOLDER,
    ModelFolderRecord,
)
from shoestring.models.inputs import ModelInputs, inputs_of
from shoestring.models.raw_columns import RawColumn
from shoestring.training.families.registry import family_of
from shoestring.training.model_record import ModelRecord


def write_model(
    store: Store,
    model: ModelRecord,
    recipe: Recipe,
    lineage: bytes,
    folder: Path,
    max_tables_bytes: int = MAX_TABLES_BYTES,
) -> None:
    """Write a model into `folder`, in place of one that is there. `lineage`: JSON about where the model comes
    from. `max_tables_bytes`: those of all joined tables that the folder holds.

    Raises NotInStore, CorruptObject: its data set or its weights are not stored; DataError: its data set has
    no raw one, or a version before dictionaries were stored made it.
    """
    manifest = load_manifest(store, model.dataset_key)
    if not manifest.parents:
        raise DataError(f"{model.dataset_key} names no raw data set: how its rows were encoded is not known")
    raw, encoding = load_manifest(store, manifest.parents[0]), require_encoding(manifest)
    weights = open_blob(store, model.weights_sha256).read_bytes()
    files = {
        f"{WEIGHTS_FOLDER}/{name}": data for name, data in family_of(model.settings).files(weights).items()
    }
    tables, inputs = dict[str, bytes](), ModelInputs(main=())
    if encoding.vocabulary is None:
        if not encoding.dictionary_sha256:
            raise DataError(f"{manifest.name} was encoded by an earlier version: train its model again")
        files[DICTIONARIES_FILE] = open_blob(store, encoding.dictionary_sha256).read_bytes()
        inputs = inputs_of(encoding, recipe, _raw_columns(store, recipe, raw))
        tables = _joined_tables(store, raw, inputs, max_tables_bytes)
    files |= {f"{TABLES_FOLDER}/{name}.parquet": data for name, data in tables.items()}
    target = raw.columns.get(f"{_table_of(recipe, recipe.target.column)}.{recipe.target.column}", "string")
    record = ModelFolderRecord(
        model=model, recipe=recipe, inputs=inputs, target_type=target, tables=tuple(tables)
    )
    _write(folder, files | {MODEL_FILE: record_bytes(record), LINEAGE_FILE: lineage})


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files and their digests, after those of an earlier model are removed. Other files stay."""
    digests = folder / DIGESTS_FILE
    if digests.is_file():
        for name in read_digests(digests):
            (folder / name).unlink(missing_ok=True)
        digests.unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    # The last: without it, the folder is none of a model.
    lines = [f"{digest(data)}  {name}\n" for name, data in sorted(files.items())]
    digests.write_text("".join(lines), encoding="utf-8")


def _table_of(recipe: Recipe, column: str) -> str:
    """Return the table of a column of the joined table."""
    return next((join.table for join in recipe.joins if column in join.columns), recipe.main)


def _raw_columns(store: Store, recipe: Recipe, raw: Manifest) -> dict[str, Mapping[str, RawColumn]]:
    """Return the raw columns by table, with how their text is read.

    The first version of the data set fixed that for all versions of its name.
    """
    schema = last_schema(store, recipe.name)
    found: dict[str, dict[str, RawColumn]] = {table: {} for table in recipe.source}
    for key, type_ in raw.columns.items():
        table, _, name = key.partition(".")
        kind = schema.tables.get(table, {}).get(name, "")
        is_written = kind in WRITTEN and str(arrow_type(WRITTEN[kind])) == type_
        found[table][name] = RawColumn(name=name, type=type_, written=kind if is_written else "")
    return {**found}


def _joined_tables(store: Store, raw: Manifest, inputs: ModelInputs, max_bytes: int) -> dict[str, bytes]:
    """Return the joined tables as Parquet, without the largest until the others are small enough."""
    found = dict[str, bytes]()
    for table, columns in inputs.joined.items():
        names = [*dict.fromkeys(each.name for each in columns)]
        parts = [open_part(store, raw, part, names) for part in raw.splits[table]]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(parts), sink, compression="zstd")
        found[table] = sink.getvalue().to_pybytes()
    while sum(map(len, found.values())) > max_bytes:
        del found[max(found, key=lambda name: len(found[name]))]
    return found
