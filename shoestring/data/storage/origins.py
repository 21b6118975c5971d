"""The origins of a data set: the data sets before it, and in the end the source files."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.core import store_layout
from shoestring.core.datasets import Manifest
from shoestring.core.interfaces import Store
from shoestring.data.storage.blobs import load_manifest, open_blob


def dataset_chain(store: Store, key: str) -> Iterator[tuple[str, Manifest]]:
    """Yield a data set and those that it was made from, the one with the rows of the files last. Raises
    NotInStore, CorruptObject.
    """
    while True:
        manifest = load_manifest(store, key)
        yield key, manifest
        parents = [parent for parent in manifest.parents if parent.startswith(store_layout.DATASETS)]
        if not parents:
            return
        key = parents[0]


def source_of(store: Store, key: str) -> str:
    """Return the digest of the list of source files that a data set was made from. Raises NotInStore,
    CorruptObject.
    """
    *_, (_, raw) = dataset_chain(store, key)
    return raw.parents[0]


def source_files(store: Store, source: str) -> dict[str, str]:
    """Return TABLE/FILE -> SHA-256 of each source file, from the digest of their list. Raises CorruptObject;
    NotInStore where an earlier version stored none.
    """
    return parse_contents(open_blob(store, source).read_text(encoding="utf-8"))


def parse_contents(listed: str) -> dict[str, str]:
    """Return the files of a list of contents, as `list_contents` makes it."""
    lines = (line.rpartition(" ") for line in listed.splitlines())
    return {name: sha256 for name, _, sha256 in lines}
