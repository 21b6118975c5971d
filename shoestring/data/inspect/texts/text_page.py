"""The data page of texts: documents, bytes, rows and splits, and what looks wrong."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from shoestring.core.datasets import TEXT_COLUMN
from shoestring.core.errors import DataError
from shoestring.core.interfaces import RemoteSources
from shoestring.data.inspect.page_records import DataPage, TextEntry
from shoestring.data.inspect.tables.split_page import split_remarks
from shoestring.data.recipe import Recipe
from shoestring.data.source import TextSettings
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.data_file import DataFile, unpacked_bytes
from shoestring.data.sources.documents.text_documents import TextDocuments
from shoestring.data.sources.documents.text_files import require_documents
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.open_table import open_texts
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.sources.table import TypesChanged
from shoestring.data.split_settings import SPLIT_COLUMN, SPLITS, split_of_name
from shoestring.data.transforms.split import assign_splits
from shoestring.data.transforms.splits.given_split import GivenSplit, given_split
from shoestring.data.transforms.texts.bpe_tokens import require_tokenizers
from shoestring.data.values import text_array

SAMPLE_BYTES = 8 << 20
"""Documents are read up to this size, and to the end of a batch, by a hash of the names of their files."""

MAX_DUPLICATE_SHARE = 0.01
MAX_EMPTY_SHARE = 0.01
"""A larger share of such documents looks wrong."""

MAX_LINE_BYTES = 1 << 20
"""A longer line is probably no text that people wrote."""


@dataclass(slots=True)
class TextCounts:
    """The counts of the documents read. `by_split`: those of each split that can be used."""

    documents: int = 0
    empty: int = 0
    duplicates: int = 0
    size_bytes: int = 0
    foreign: int = 0
    longest_line: tuple[int, str] = (0, "")
    short: int = 0
    by_split: Counter[str] = field(default_factory=Counter)
    digests: set[bytes] = field(default_factory=set)

    def add(self, rows: pa.Table, recipe: Recipe, settings: TextSettings, given: GivenSplit | None) -> None:
        """Count documents: rows of their bytes and the names of their files."""
        assigned = assign_splits(rows, recipe.split, recipe.seed, [TEXT_COLUMN], given=given)
        indices = assigned.split_indices
        pairs = zip(rows[TEXT_COLUMN].to_pylist(), rows["path"].to_pylist(), indices.tolist(), strict=True)
        for text, path, index in pairs:
            if not text:
                self.empty += 1
                continue
            self.documents += 1
            self.by_split[SPLITS[index]] += 1
            self.size_bytes += len(text)
            self.foreign += not text.isascii()
            self.short += len(text) < settings.row_tokens - 1
            self.longest_line = max(self.longest_line, (max(map(len, text.split(b"\n"))), path))
            digest = hashlib.blake2b(text, digest_size=16).digest()
            self.duplicates += digest in self.digests
            self.digests.add(digest)


def text_page(
    recipe: Recipe, settings: TextSettings, remote: RemoteSources
) -> tuple[DataPage, DataError | None]:
    """Return the data page of texts, and why a run would be refused; None: it would not be.

    Raises:
        RecipeError: there are no texts, the recipe names a column that texts do not have, or it asks for a
            vocabulary and tokenizers is not installed.
        DataError: a file cannot be read.
        SourceUnreachable, UsageError: `remote` cannot read a URL.
    """
    if settings.vocabulary:
        require_tokenizers()
    files = list_data_files(recipe.source[recipe.main], remote)
    documents = open_texts(settings, chosen := _chosen(files))
    check_columns(recipe, {recipe.main: documents.names})
    names = pa.table({SPLIT_COLUMN: text_array(tuple(split_of_name(file.name) or "" for file in files))})
    given = given_split([names], recipe) if recipe.split_column else None
    while True:
        quarantine, counts = Quarantine(recipe.main, io.StringIO()), TextCounts()
        try:
            is_whole = _count(documents, quarantine, counts, recipe, given) and len(chosen) == len(files)
            break
        except TypesChanged:  # It is raised once.
            continue
    refusal = None
    try:
        require_documents(settings, files)
        quarantine.check(counts.documents)
        if is_whole:
            _require_splits(counts)
    except DataError as error:
        refusal = error
    entry = _entry(files, counts, quarantine, settings, is_whole)
    page = _page(recipe, counts, entry, is_whole, str(refusal or ""))
    named = tuple(split_remarks(recipe, (file.name for file in files)))
    return page.model_copy(update={"files": named}), refusal


def _count(
    documents: TextDocuments,
    quarantine: Quarantine,
    counts: TextCounts,
    recipe: Recipe,
    given: GivenSplit | None,
) -> bool:
    """Count the documents of a sample. Returns whether these were all."""
    assert recipe.text is not None
    for rows in documents.batches(quarantine):
        if rows.num_rows and counts.size_bytes > SAMPLE_BYTES:
            return False
        counts.add(rows, recipe, recipe.text, given)
    return True


def _entry(
    files: Sequence[DataFile],
    counts: TextCounts,
    quarantine: Quarantine,
    settings: TextSettings,
    is_whole: bool,
) -> TextEntry:
    size_bytes = counts.size_bytes if is_whole else sum(map(unpacked_bytes, files))
    scale = size_bytes / max(1, counts.size_bytes)
    return TextEntry(
        files=len(files),
        documents=counts.documents if is_whole else round(counts.documents * scale),
        size_bytes=size_bytes,
        rows=settings.expected_rows(size_bytes),
        row_tokens=settings.row_tokens,
        vocabulary=settings.vocabulary,
        encoding="UTF-8" if counts.foreign else "ASCII, a part of UTF-8",
        unusable=dict(quarantine.counts),
        findings=tuple(_findings(counts, settings)),
    )


def _page(recipe: Recipe, counts: TextCounts, entry: TextEntry, is_whole: bool, refusal: str) -> DataPage:
    return DataPage(
        recipe=recipe.name,
        rows=entry.rows,
        is_whole=is_whole,
        rows_read=counts.documents,
        misfits=sum(entry.unusable.values()),
        without_target=counts.empty,
        splits=_splits(recipe, counts, entry.documents, is_whole),
        prediction=_prediction(entry),
        refusal=refusal,
        target=None,
        columns=(),
        warnings=(),
        texts=entry,
    )


def _chosen(files: Sequence[DataFile]) -> list[DataFile]:
    """Return files to look at: all, or as many as fit, chosen by their names so that no folder decides."""
    order = sorted(files, key=lambda file: hashlib.blake2b(file.name.encode()).digest())
    found: list[DataFile] = []
    size_bytes = 0
    for file in order:
        size_bytes += unpacked_bytes(file)
        if found and size_bytes > SAMPLE_BYTES:
            break
        found.append(file)
    return sorted(found, key=lambda file: file.name)


def _require_splits(counts: TextCounts) -> None:
    if empty := [split for split in SPLITS if not counts.by_split[split]]:
        raise DataError(
            f"of {counts.documents} documents, none falls into the split {' or '.join(empty)}: use more "
            "documents, divide them by `text.separator`, or write another `seed` in the recipe"
        )


def _splits(recipe: Recipe, counts: TextCounts, documents: int, is_whole: bool) -> dict[str, int]:
    if is_whole:
        return {split: counts.by_split[split] for split in SPLITS}
    shares: tuple[float, ...] = (recipe.split.train, recipe.split.val, recipe.split.test)
    if recipe.split_column:
        shares = tuple(counts.by_split[split] / max(1, counts.documents) for split in SPLITS)
    return {split: round(documents * share) for split, share in zip(SPLITS, shares, strict=True)}


def _prediction(entry: TextEntry) -> str:
    token = "byte" if entry.vocabulary is None else "token"
    return (
        f"predicted is each {token} of a document from those before it, at most {entry.row_tokens - 1}; "
        "quality is in bits per byte"
    )


def _findings(counts: TextCounts, settings: TextSettings) -> Iterator[str]:
    if counts.empty > MAX_EMPTY_SHARE * (counts.documents + counts.empty):
        yield f"{counts.empty:,} documents are empty, and are left out"
    if counts.duplicates > MAX_DUPLICATE_SHARE * counts.documents:
        yield (
            f"{counts.duplicates:,} of {counts.documents:,} documents repeat another one word for word; "
            "equal documents are in one split, but train counts each: remove the copies"
        )
    length, path = counts.longest_line
    if length > MAX_LINE_BYTES:
        yield f"{path} has a line of {length / 1e6:.3g} MB: look whether it is text"
    if counts.documents and counts.short == counts.documents:
        yield (
            f"every document is shorter than a row of {settings.row_tokens} tokens: several share a row, and "
            "none sees another; a smaller `text.row_tokens` reads the same and needs less memory"
        )
