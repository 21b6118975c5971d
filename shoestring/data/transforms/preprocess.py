"""Preprocess: join the raw tables, assign the rows to sealed splits, and encode them for storage, with the
statistics of train beside them.

Only the raw parts that the last version of the data set lacks are encoded. The encoded parts of the others
are used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pydantic import JsonValue

from shoestring.core import store_layout
from shoestring.core.canonical_json import canonical_bytes
from shoestring.core.datasets import DatasetPart, Encoding, Manifest, SplitRule, stored_fields
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import digest
from shoestring.core.types import STANDARD_CLASS, Format
from shoestring.data.increments.encoded_version import EncodedVersion, LastEncoding, last_encoding
from shoestring.data.increments.partitions import EncodedPartition, write_partitions
from shoestring.data.increments.versions import save_version, versions_key
from shoestring.data.recipe import Recipe
from shoestring.data.sources.text.lost_classes import lost_classes
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import load_manifest, put_blob, save_manifest
from shoestring.data.storage.part_writer import REUSING, PartWriter, ReportRows, open_part, part_schema
from shoestring.data.transforms.feature_kinds import ColumnKinds, column_kinds
from shoestring.data.transforms.image_field import ImageField
from shoestring.data.transforms.joined_table import JoinedTable
from shoestring.data.transforms.row_encoder import RowEncoder
from shoestring.data.transforms.texts.encode_texts import encode_texts


def settings(recipe: Recipe) -> dict[str, JsonValue]:
    """Return the fields of a recipe that affect the result of preprocess."""
    used = {"name", "main", "joins", "target", "leaks", "categorical", "numeric", "dates", "split", "seed"}
    used |= {"texts", "max_categories", "weight"}
    found: dict[str, JsonValue] = recipe.model_dump(mode="json", include=used)
    if recipe.image is not None:
        found["image"] = recipe.image.model_dump(mode="json")
    if recipe.text is not None:
        found["text"] = recipe.text.model_dump(mode="json")
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
    raw = load_manifest(store, raw_key)

    def new_writer() -> PartWriter:
        return PartWriter(store, format, scratch, storage_class)

    if recipe.text is not None:
        texts = encode_texts(recipe, recipe.text, raw, store, new_writer, report)
        rule, parts, encoding = texts.rule, texts.parts, texts.encoding
        manifest = _manifest_of_parts(recipe, raw_key, format, store, storage_class, rule, parts, encoding)
        manifest = manifest.model_copy(update={"quarantined": texts.dropped})
        return save_manifest(store, manifest), manifest
    table = JoinedTable(recipe, raw, store)
    key = _versions_key(recipe, raw, table, format, storage_class)
    # Which rows were set aside is not known by part, so images are all decoded again.
    last = None if recipe.image is not None else last_encoding(store, key, raw_key, table.part_names)
    try:
        encoded = _encode(recipe, table, last, store, new_writer, report)
    except (NotInStore, CorruptObject):
        if last is None:
            raise
        encoded = _encode(recipe, table, None, store, new_writer, report)
    manifest = _manifest(recipe, raw_key, format, store, scratch, storage_class, table.split_rule, encoded)
    manifest = _with_left_out(manifest, table.left_out, recipe, raw, store)
    data = save_manifest(store, manifest)
    write_partitions(encoded.partitions, scratch / "partitions.arrow")
    partitions = put_blob(store, scratch / "partitions.arrow", storage_class)
    save_version(store, key, encoded.version(data, partitions))
    return data, manifest


def _with_left_out(
    manifest: Manifest, left_out: Mapping[str, int], recipe: Recipe, raw: Manifest, store: Store
) -> Manifest:
    """Return the manifest with the rows that the split left out, and the classes that lost rows."""
    found = manifest.model_copy(update={"quarantined": {**manifest.quarantined, **left_out}})
    return found.model_copy(update={"lost_classes": _lost_classes(recipe, raw, store, found)})


def _manifest(
    recipe: Recipe,
    raw_key: str,
    format: Format,
    store: Store,
    scratch: Path,
    storage_class: str,
    rule: SplitRule,
    encoded: EncodedTable,
) -> Manifest:
    """Return the manifest, with the statistics of all partitions."""
    fitted = encoded.encoder.finish(scratch, encoded.partitions)
    recipe.metric_for(fitted.encoding.task)
    sha256 = put_blob(store, fitted.dictionaries, storage_class)
    images = encoded.encoder.images
    encoding = fitted.encoding.model_copy(update={"dictionary_sha256": sha256})
    manifest = _manifest_of_parts(
        recipe, raw_key, format, store, storage_class, rule, encoded.parts, encoding
    )
    return manifest.model_copy(
        update={
            "rows": manifest.rows - fitted.unread_rows,
            "quarantined": {**fitted.dropped, **(images.counts if images else {})},
            "quarantine": store_layout.blob(put_blob(store, images.lines))
            if images and images.counts
            else None,
        }
    )


def _lost_classes(recipe: Recipe, raw: Manifest, store: Store, encoded: Manifest) -> dict[str, int]:
    """Return the quarantined rows of each class, where it is known."""
    classes = encoded.encoding.classes if encoded.encoding else ()
    if raw.quarantine is None or not raw.quarantined or not classes:
        return {}
    own = [name.partition(".") for name in raw.columns]
    columns = [column for table, _, column in own if table == recipe.main]
    with store.fetch(raw.quarantine).open(encoding="utf-8") as lines:
        return lost_classes(lines, recipe.main, columns, recipe.target.column, classes)


def _manifest_of_parts(
    recipe: Recipe,
    raw_key: str,
    format: Format,
    store: Store,
    storage_class: str,
    rule: SplitRule,
    by_split: Mapping[str, tuple[DatasetPart, ...]],
    encoding: Encoding,
) -> Manifest:
    """Return the manifest of the encoded parts. `encoding`: of its fields, those that have a shape. Raises
    DataError for a split without rows."""
    _require_rows(by_split)
    parts = [part for of_split in by_split.values() for part in of_split]
    columns = part_schema(store, format, parts[0])
    return Manifest(
        name=recipe.name,
        format=format,
        storage_class=storage_class,
        encoding=encoding.model_copy(
            update={"fields": stored_fields({each.name: str(each.type) for each in columns}, encoding.fields)}
        ),
        splits=by_split,
        rows=sum(part.rows for part in parts),
        row_bytes=sum(column.type.bit_width // 8 for column in columns),
        size_bytes=sum(part.size_bytes for part in parts),
        parents=(raw_key,),
        settings_sha256=digest(canonical_bytes(settings(recipe))),
        split_rule=rule,
    )


def _versions_key(
    recipe: Recipe, raw: Manifest, table: JoinedTable, format: Format, storage_class: str
) -> str:
    """Return the digest of what each encoded part depends on, other than its raw part."""
    made_from: dict[str, JsonValue] = {
        "settings": settings(recipe),
        "columns": dict(raw.columns),
        "joined": [*table.joined_parts],
        "split_rule": table.split_rule.model_dump(mode="json"),
        "format": format,
        "storage_class": storage_class,
    }
    return versions_key(__name__, made_from)


class EncodedTable:
    """The partitions of a table, in order, and the encoder that knows the codes of all of them."""

    def __init__(
        self, encoder: RowEncoder, kinds: ColumnKinds, partitions: Sequence[EncodedPartition]
    ) -> None:
        self.encoder, self.partitions, self._kinds = encoder, partitions, kinds
        self.parts = {
            split: tuple(part for each in partitions for part in each.parts[split]) for split in SPLITS
        }

    def version(self, data: str, partitions: str) -> EncodedVersion:
        """Return the record that the next version builds on."""
        return EncodedVersion(
            data=data,
            partitions=partitions,
            features=tuple(self._kinds.features.items()),
            dates=self._kinds.dates,
            texts=self._kinds.texts,
            task=self._kinds.task,
            train_targets=self.encoder.train_targets,
        )


def _encode(
    recipe: Recipe,
    table: JoinedTable,
    last: LastEncoding | None,
    store: Store,
    new_writer: Callable[[], PartWriter],
    report: ReportRows,
) -> EncodedTable:
    """Encode the parts of the table that the last version lacks, and take away the rows that are gone."""
    schema = table.schema()
    kinds = _kinds(last.version) if last else column_kinds(recipe, table, schema)
    images = None if recipe.image is None else ImageField(recipe.image, recipe.main)
    encoder = RowEncoder(recipe, kinds, schema, last, images)
    known: dict[str, list[EncodedPartition]] = {}
    for each in last.partitions if last else ():
        known.setdefault(each.raw, []).append(each)
    if last is not None:
        shared = Counter(each.raw for each in last.partitions) & Counter(table.part_names)
        report(REUSING, sum(known[raw][0].rows * count for raw, count in shared.items()))
    partitions: list[EncodedPartition] = []
    rows = 0
    for index, name in enumerate(table.part_names):
        if same := known.get(name):
            partitions.append(same.pop())
            continue
        partitions.append(_encode_part(table, index, encoder, new_writer, report, rows))
        rows += table.parts[index].rows
    if images is not None:
        images.check(table.rows_set_aside)
    if last is None:
        table.check_joins()
    if last is not None:
        _remove(encoder, last, store, (each for left in known.values() for each in left))
    return EncodedTable(encoder, kinds, partitions)


def _kinds(version: EncodedVersion) -> ColumnKinds:
    return ColumnKinds(dict(version.features), version.dates, version.task, version.texts)


def _encode_part(
    table: JoinedTable,
    index: int,
    encoder: RowEncoder,
    new_writer: Callable[[], PartWriter],
    report: ReportRows,
    rows_before: int,
) -> EncodedPartition:
    """Write each row of a raw part, encoded, to the writer of its split."""
    writers = {split: new_writer() for split in SPLITS}
    rows = rows_before
    for batch, assigned in table.batches(index):
        encoded, splits = encoder.encode(batch, assigned)
        for split, writer in enumerate(writers.values()):
            writer.add(encoded.filter(pa.array(splits == split)))
        rows += batch.num_rows
        report("encoding", rows)
    parts = {split: writer.close() for split, writer in writers.items()}
    left_out, numbers, weights = encoder.summarise()
    return EncodedPartition(table.part_names[index], parts, left_out, numbers, weights)


def _remove(encoder: RowEncoder, last: LastEncoding, store: Store, gone: Iterable[EncodedPartition]) -> None:
    """Take the rows of partitions that are gone from the counts of the codes."""
    for each in gone:
        for split, parts in each.parts.items():
            for part in parts:
                rows = open_part(store, last.manifest, part, encoder.code_columns)
                encoder.remove(rows, in_train=split == "train")


def _require_rows(parts: Mapping[str, Sequence[DatasetPart]]) -> None:
    if empty := [split for split in SPLITS if not parts[split]]:
        raise DataError(
            f"no rows were assigned to {' and '.join(empty)}: there are too few units (groups of `split.by`, "
            "or rows); choose a finer `split.by`, or write another `seed` in the recipe"
        )
