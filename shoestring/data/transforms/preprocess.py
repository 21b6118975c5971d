"""Raw tables into encoded rows: joined, shared out into sealed splits, and encoded by what train alone shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from shoestring.core.datasets import Encoding, Manifest
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.storage.blobs import load_manifest, save_manifest
from shoestring.data.storage.cache import canonical_bytes
from shoestring.data.storage.part_writer import PartWriter, open_part
from shoestring.data.transforms.encode import (
    TARGET_COLUMN,
    CategoryEncoder,
    FeatureFit,
    FeatureKind,
    NumberEncoder,
)
from shoestring.data.transforms.join import JoinLookup
from shoestring.data.transforms.split import GROUP_COLUMN, SPLITS, SplitAssignment, assign_splits
from shoestring.data.transforms.target import TargetEncoder, TargetFit, is_known, is_numeric

BATCH_ROWS = 1 << 17

ReportRows = Callable[[str, int], None]
"""Called with what is being done and the rows so far, batch by batch; may raise to stop."""


def settings(recipe: Recipe) -> dict[str, JsonValue]:
    """What in a recipe changes what preprocess makes."""
    used = {"name", "main", "joins", "target", "leaks", "categorical", "numeric", "split", "seed"}
    found: dict[str, JsonValue] = recipe.model_dump(mode="json", include=used)
    return found


def preprocess(
    recipe: Recipe,
    raw_key: str,
    format: Format,
    store: Store,
    scratch: Path,
    tell: ReportRows,
    storage_class: str = STANDARD_CLASS,
) -> tuple[str, Manifest]:
    """Encode the raw data set under `raw_key`; returns the manifest and its key. Raises RecipeError, DataError, StoreFull."""
    source = _JoinedTable(recipe, load_manifest(store, raw_key), store)
    encoders, answer = _fit(recipe, source, tell)
    features = tuple(feature for encoder in encoders for feature in encoder.features())
    names = [
        *(feature.name for feature in features),
        TARGET_COLUMN,
        *([GROUP_COLUMN] if recipe.split.by else []),
    ]
    if clashes := sorted({name for name in names if names.count(name) > 1}):
        raise RecipeError(
            f"the encoded data set would have two columns called {', '.join(clashes)}: rename those of the source"
        )
    writers = {split: PartWriter(store, format, scratch, storage_class) for split in SPLITS}
    left_out: Counter[str] = Counter()
    for rows, table, assigned in source.batches():
        y = _encode_target(table[recipe.target.column], answer, left_out)
        columns = [column for encoder in encoders for column in encoder.encode(table[encoder.name])]
        groups = [] if assigned.groups is None else [assigned.groups]
        encoded = pa.table([*columns, y, *groups], names=names)
        for place, writer in enumerate(writers.values()):
            writer.add(encoded.filter(pc.and_(pa.array(assigned.split_indices == place), pc.is_valid(y))))
        tell("encoding", rows)
    parts = {split: writer.close() for split, writer in writers.items()}
    if empty := [split for split in SPLITS if not parts[split]]:
        raise DataError(
            f"no rows fell to {' and '.join(empty)}: there are too few groups; choose a finer `split.by`, or another `seed`"
        )
    manifest = Manifest(
        name=recipe.name,
        format=format,
        storage_class=storage_class,
        columns={column.name: str(column.type) for column in encoded.schema},
        splits=parts,
        rows=sum(writer.rows for writer in writers.values()),
        row_bytes=4 * len(encoded.schema),
        size_bytes=sum(part.size_bytes for of_split in parts.values() for part in of_split),
        parents=(raw_key,),
        settings_sha256=digest(canonical_bytes(settings(recipe))),
        quarantined=dict(left_out),
        encoding=Encoding(
            features=features, task=answer.task, classes=answer.classes, train_prior=answer.prior
        ),
    )
    return save_manifest(store, manifest), manifest


class _JoinedTable:
    """The main table with everything joined, in batches, each row with its split. Raises RecipeError, DataError."""

    def __init__(self, recipe: Recipe, raw: Manifest, store: Store) -> None:
        columns: dict[str, list[str]] = {table: [] for table in recipe.source}
        for name in raw.columns:
            table, _, column = name.partition(".")
            columns[table].append(column)
        check_columns(recipe, columns)
        self._recipe, self._raw, self._store = recipe, raw, store
        self._lookups = [JoinLookup(pa.concat_tables(self._parts(join.table)), join) for join in recipe.joins]

    def batches(self) -> Iterator[tuple[int, pa.Table, SplitAssignment]]:
        """The rows up to and with this batch, the batch, and where each of its rows belongs."""
        rows = 0
        for part in self._parts(self._recipe.main):
            for start in range(0, part.num_rows, BATCH_ROWS):
                batch = part.slice(start, BATCH_ROWS)
                for lookup in self._lookups:
                    batch = lookup.join(batch)
                assigned = assign_splits(batch, self._recipe.split, self._recipe.seed, rows)
                rows += batch.num_rows
                yield rows, batch, assigned

    def _parts(self, table: str) -> Iterator[pa.Table]:
        return (open_part(self._store, self._raw, part) for part in self._raw.splits[table])


def _fit(
    recipe: Recipe, source: _JoinedTable, tell: ReportRows
) -> tuple[tuple[CategoryEncoder | NumberEncoder, ...], TargetEncoder]:
    """Learn the encodings and the task from the train rows that have a target."""
    fits: list[FeatureFit] = []
    target: TargetFit | None = None
    for rows, table, assigned in source.batches():
        fits = fits or [FeatureFit(name, kind) for name, kind in _features(recipe, table.schema).items()]
        target = target or TargetFit(recipe.target, table.schema.field(recipe.target.column).type)
        train = table.filter(
            pc.and_(
                pa.array(assigned.split_indices == SPLITS.index("train")),
                is_known(table[recipe.target.column]),
            )
        )
        target.add(train[recipe.target.column])
        for fit in fits:
            fit.add(train[fit.name])
        tell("fitting", rows)
    if target is None:
        raise DataError(f"table {recipe.main} has no rows: there is nothing to learn from")
    stated = {*recipe.categorical, *recipe.numeric}
    encoders = tuple(fit.encoder() for fit in fits if fit.name in stated or fit.is_informative())
    if not encoders:
        raise DataError(
            f"no column of table {recipe.main} tells rows apart: name features under `categorical` and `numeric`"
        )
    answer = target.encoder()
    recipe.metric_for(answer.task)
    return encoders, answer


def _features(recipe: Recipe, schema: pa.Schema) -> dict[str, FeatureKind | None]:
    """The columns to encode: those the recipe names, else all but the target, leaks, groups and moments, by their types."""
    for name in recipe.numeric:
        if pa.types.is_string(schema.field(name).type):
            raise RecipeError(
                f"the numeric feature {name} holds text: name it under `categorical`, or mend the values that are no numbers"
            )
    stated: dict[str, FeatureKind | None] = {
        **dict.fromkeys(recipe.categorical, "categorical"),
        **dict.fromkeys(recipe.numeric, "numeric"),
    }
    if stated:
        return stated
    unused = {recipe.target.column, *recipe.leaks, *recipe.split.by}
    return {
        field.name: _inferred(field.type)
        for field in schema
        if field.name not in unused and not pa.types.is_temporal(field.type)
    }


def _inferred(kind: pa.DataType) -> FeatureKind | None:
    if pa.types.is_floating(kind):
        return "numeric"
    return None if is_numeric(kind) else "categorical"


def _encode_target(column: pa.ChunkedArray, answer: TargetEncoder, left_out: Counter[str]) -> pa.ChunkedArray:
    """`y`, null in rows that have to be left out, which are counted by reason."""
    y = answer.encode(column)
    missing = column.length() - pc.sum(is_known(column)).as_py()
    reasons = {
        f"{answer.target.column} is missing": missing,
        f"{answer.target.column} is of a class that train does not hold": y.null_count - missing,
    }
    left_out.update({reason: count for reason, count in reasons.items() if count})
    return y
