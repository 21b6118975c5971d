"""Preprocess: join the raw tables, assign the rows to sealed splits, and encode them with encoders fitted
on train only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import DatasetPart, Encoding, Manifest
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.storage.blobs import load_manifest, save_manifest
from shoestring.data.storage.part_writer import PartWriter, ReportRows, open_part
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


def settings(recipe: Recipe) -> dict[str, JsonValue]:
    """Return the fields of a recipe that affect the result of preprocess."""
    used = {"name", "main", "joins", "target", "leaks", "categorical", "numeric", "split", "seed"}
    found: dict[str, JsonValue] = recipe.model_dump(mode="json", include=used)
    return found


def preprocess(
    recipe: Recipe,
    raw_key: str,
    format: Format,
    store: Store,
    scratch: Path,
    report: ReportRows,
    storage_class: str = STANDARD_CLASS,
) -> tuple[str, Manifest]:
    """Encode the raw data set under `raw_key`. Returns the key and the manifest of the encoded one.

    Raises RecipeError, DataError, StoreFull, and whatever `report` raises.
    """
    source = _JoinedTable(recipe, load_manifest(store, raw_key), store)
    encoders = _fit(recipe, source, report)
    columns = encoders.column_names(grouped=bool(recipe.split.by))
    writers = {split: PartWriter(store, format, scratch, storage_class) for split in SPLITS}
    dropped: Counter[str] = Counter()
    for rows, table, assigned in source.batches():
        encoded = encoders.encode(table, assigned, columns, dropped)
        _write_splits(encoded, assigned, writers.values())
        report("encoding", rows)
    parts = {split: writer.close() for split, writer in writers.items()}
    _require_rows(parts)
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
        quarantined=dict(dropped),
        encoding=encoders.encoding(),
    )
    return save_manifest(store, manifest), manifest


def _write_splits(encoded: pa.Table, assigned: SplitAssignment, writers: Iterable[PartWriter]) -> None:
    """Write each row with a known target to the writer of its split."""
    known = pc.is_valid(encoded[TARGET_COLUMN])
    for index, writer in enumerate(writers):
        writer.add(encoded.filter(pc.and_(pa.array(assigned.split_indices == index), known)))


def _require_rows(parts: Mapping[str, Sequence[DatasetPart]]) -> None:
    if empty := [split for split in SPLITS if not parts[split]]:
        raise DataError(
            f"no rows were assigned to {' and '.join(empty)}: there are too few groups (without `split.by`, "
            "equal rows are one group); choose a finer `split.by`, or another `seed`"
        )


class _JoinedTable:
    """The main table with all joins applied, in batches, each row with its split. Raises RecipeError,
    DataError."""

    def __init__(self, recipe: Recipe, raw: Manifest, store: Store) -> None:
        columns: dict[str, list[str]] = {table: [] for table in recipe.source}
        for name in raw.columns:
            table, _, column = name.partition(".")
            columns[table].append(column)
        check_columns(recipe, columns)
        self._recipe, self._raw, self._store = recipe, raw, store
        self._lookups = [JoinLookup(pa.concat_tables(self._parts(join.table)), join) for join in recipe.joins]

    def batches(self) -> Iterator[tuple[int, pa.Table, SplitAssignment]]:
        """Yield the number of rows so far, the batch, and the split assignment of its rows."""
        rows = 0
        for part in self._parts(self._recipe.main):
            for start in range(0, part.num_rows, BATCH_ROWS):
                batch = part.slice(start, BATCH_ROWS)
                for lookup in self._lookups:
                    batch = lookup.join(batch)
                assigned = assign_splits(batch, self._recipe.split, self._recipe.seed, part.column_names)
                rows += batch.num_rows
                yield rows, batch, assigned

    def _parts(self, table: str) -> Iterator[pa.Table]:
        return (open_part(self._store, self._raw, part) for part in self._raw.splits[table])


@dataclass(frozen=True, slots=True)
class _FittedEncoders:
    """The fitted encoders of all features and of the target."""

    features: tuple[CategoryEncoder | NumberEncoder, ...]
    target: TargetEncoder

    def encoding(self) -> Encoding:
        return Encoding(
            features=tuple(feature for encoder in self.features for feature in encoder.features()),
            task=self.target.task,
            classes=self.target.classes,
            train_prior=self.target.prior,
        )

    def column_names(self, grouped: bool) -> list[str]:
        """Return the columns of the encoded data set. Raises RecipeError when two have the same name."""
        features = [feature.name for feature in self.encoding().features]
        names = [*features, TARGET_COLUMN, *([GROUP_COLUMN] if grouped else [])]
        if clashes := sorted({name for name in names if names.count(name) > 1}):
            raise RecipeError(
                f"the encoded data set would have two columns called {', '.join(clashes)}: "
                "rename those of the source"
            )
        return names

    def encode(
        self, table: pa.Table, assigned: SplitAssignment, names: list[str], dropped: Counter[str]
    ) -> pa.Table:
        """Return the encoded rows. `y` is null in rows that must be dropped, which `dropped` counts by
        reason."""
        y = _encode_target(table[self.target.target.column], self.target, dropped)
        columns = [column for encoder in self.features for column in encoder.encode(table[encoder.name])]
        groups = [] if assigned.groups is None else [assigned.groups]
        return pa.table([*columns, y, *groups], names=names)


def _fit(recipe: Recipe, source: _JoinedTable, report: ReportRows) -> _FittedEncoders:
    """Fit the encoders on the train rows with a known target."""
    fits: list[FeatureFit] = []
    target: TargetFit | None = None
    for rows, table, assigned in source.batches():
        fits = fits or [FeatureFit(name, kind) for name, kind in _features(recipe, table.schema).items()]
        target = target or TargetFit(recipe.target, table.schema.field(recipe.target.column).type)
        in_train = pa.array(assigned.split_indices == SPLITS.index("train"))
        train = table.filter(pc.and_(in_train, is_known(table[recipe.target.column])))
        target.add(train[recipe.target.column])
        for fit in fits:
            fit.add(train[fit.name])
        report("fitting", rows)
    if target is None:
        raise DataError(f"table {recipe.main} has no rows: there is nothing to learn from")
    named = {*recipe.categorical, *recipe.numeric}
    encoders = tuple(fit.encoder() for fit in fits if fit.name in named or fit.is_informative())
    if not encoders:
        raise DataError(
            f"all columns of table {recipe.main} that could be features are constant in train: "
            "name features under `categorical` and `numeric`"
        )
    target_encoder = target.encoder()
    recipe.metric_for(target_encoder.task)
    return _FittedEncoders(encoders, target_encoder)


def _features(recipe: Recipe, schema: pa.Schema) -> dict[str, FeatureKind | None]:
    """Return the columns to encode, and their kinds; None: inferred from the values.

    Without named features these are all columns but the target, the leaks, the groups and timestamps.
    """
    for name in recipe.numeric:
        if pa.types.is_string(schema.field(name).type):
            raise RecipeError(
                f"the numeric feature {name} contains text: name it under `categorical`, "
                "or fix the values that are not numbers"
            )
    named: dict[str, FeatureKind | None] = {
        **dict.fromkeys(recipe.categorical, "categorical"),
        **dict.fromkeys(recipe.numeric, "numeric"),
    }
    if named:
        return named
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


def _encode_target(column: pa.ChunkedArray, encoder: TargetEncoder, dropped: Counter[str]) -> pa.ChunkedArray:
    y = encoder.encode(column)
    missing = column.length() - pc.sum(is_known(column)).as_py()
    reasons = {
        f"{encoder.target.column} is missing": missing,
        f"{encoder.target.column} is of a class that train does not contain": y.null_count - missing,
    }
    dropped.update({reason: count for reason, count in reasons.items() if count})
    return y
