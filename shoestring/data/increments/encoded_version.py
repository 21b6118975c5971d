"""A version of an encoded data set, as the next one builds on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from shoestring.core.datasets import Manifest
from shoestring.core.errors import CorruptObject, DataError, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.record import Count, StoredRecord
from shoestring.data.formats.dictionaries import ColumnDictionary, read_dictionaries
from shoestring.data.increments.partitions import EncodedPartition, read_partitions
from shoestring.data.increments.versions import last_version
from shoestring.data.metrics import Task
from shoestring.data.storage.blobs import load_manifest, open_blob


class EncodedVersion(StoredRecord):
    """The record of a version. The kinds of its columns are those of the first version."""

    data: str = Field(description="key of the manifest")
    partitions: str = Field(description="digest of the blob with the partitions")
    features: tuple[tuple[str, Literal["categorical", "numeric"]], ...]
    dates: tuple[str, ...]
    texts: tuple[str, ...] = Field((), exclude_if=lambda texts: not texts)
    task: Task
    train_targets: tuple[Count, ...] = Field(description="rows of train by the target's code")


@dataclass(frozen=True, slots=True)
class LastEncoding:
    """A version with its manifest, its partitions, and its dictionaries by stored column."""

    version: EncodedVersion
    manifest: Manifest
    partitions: Sequence[EncodedPartition]
    dictionaries: Mapping[str, ColumnDictionary]


def last_encoding(store: Store, key: str, raw_key: str, parts: Sequence[str]) -> LastEncoding | None:
    """Return the last version of the data set; None where a new one would reuse nothing of it.

    That is so if it has none of the raw `parts`, by name; and if it was made from the same raw data set: then
    its result is damaged, or it would be used as it is.
    """
    if (version := last_version(store, key, EncodedVersion)) is None:
        return None
    try:
        manifest = load_manifest(store, version.data)
        partitions = read_partitions(open_blob(store, version.partitions), manifest)
        if raw_key in manifest.parents or not {*parts} & {each.raw for each in partitions}:
            return None
        sha256 = manifest.encoding.dictionary_sha256 if manifest.encoding else ""
        return LastEncoding(version, manifest, partitions, read_dictionaries(open_blob(store, sha256)))
    except (NotInStore, CorruptObject, DataError):
        return None
