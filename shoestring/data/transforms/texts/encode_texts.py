"""Preprocess texts: assign documents to sealed splits, and pack each split into rows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import (
    TEXT_COLUMN,
    TOKENS_COLUMN,
    DatasetPart,
    Encoding,
    Manifest,
    SplitRule,
    StoredField,
)
from shoestring.core.interfaces import Store
from shoestring.data.recipe import Recipe
from shoestring.data.source import TextSettings
from shoestring.data.split_settings import SPLITS
from shoestring.data.storage.blobs import put_blob
from shoestring.data.storage.part_writer import PartWriter, ReportRows, open_part
from shoestring.data.transforms.split import Groups, assign_splits, split_rule
from shoestring.data.transforms.splits.given_split import GivenSplit, given_split
from shoestring.data.transforms.texts.bpe_tokens import train_bpe
from shoestring.data.transforms.texts.byte_tokens import ByteTokens
from shoestring.data.transforms.texts.token_rows import TokenCodec, pack_rows

EMPTY = "empty documents"
SHARE_DIGITS = 9


class EncodedTexts(NamedTuple):
    """The parts of each split, how documents were assigned to it, how models read them, and the documents
    that were left out, by reason."""

    parts: Mapping[str, tuple[DatasetPart, ...]]
    rule: SplitRule
    encoding: Encoding
    dropped: Mapping[str, int]


def encode_texts(
    recipe: Recipe,
    settings: TextSettings,
    raw: Manifest,
    store: Store,
    new_writer: Callable[[], PartWriter],
    report: ReportRows,
) -> EncodedTexts:
    """Write each document to the split of its content, of the columns in `split.by`, or that the name of its
    file gives.

    A raw part makes rows of its own, so that equal parts make equal rows. Raises DataError, StoreFull, and
    what `report` raises.
    """
    given = _given(recipe, raw, store)
    tokens: TokenCodec = ByteTokens()
    sha256 = ""
    if settings.vocabulary is not None:
        report("training the vocabulary", 0)
        trained = train_bpe(_train_documents(recipe, raw, store, given), settings.vocabulary)
        tokens, sha256 = trained, put_blob(store, trained.serialised)
    writers = {split: new_writer() for split in SPLITS}
    train_counts = np.zeros(tokens.vocabulary.size, np.int64)
    empty = rows = 0
    for part in raw.splits[recipe.main]:
        texts, left_out = _texts(store, raw, part)
        empty += left_out
        for split, (documents, groups) in _by_split(recipe, texts, given).items():
            packed = pack_rows(documents, groups, tokens, settings.row_tokens)
            writers[split].add(packed)
            rows += packed.num_rows
            if split == "train":
                train_counts += _token_counts(packed, tokens)
        report("encoding", rows)
    return EncodedTexts(
        parts={split: writer.close() for split, writer in writers.items()},
        rule=split_rule(recipe, (), None, given),
        encoding=_encoding(settings, tokens, train_counts, sha256),
        dropped={EMPTY: empty} if empty else {},
    )


def _texts(store: Store, raw: Manifest, part: DatasetPart) -> tuple[pa.Table, int]:
    """Return the documents of a raw part that are not empty, and how many are."""
    table = open_part(store, raw, part)
    texts = table.filter(pc.greater(pc.binary_length(table[TEXT_COLUMN]), 0))
    return texts, table.num_rows - texts.num_rows


def _train_documents(
    recipe: Recipe, raw: Manifest, store: Store, given: GivenSplit | None
) -> Iterator[bytes]:
    """Yield the documents of train, in order."""
    for part in raw.splits[recipe.main]:
        yield from _by_split(recipe, _texts(store, raw, part)[0], given)["train"][0]


def _given(recipe: Recipe, raw: Manifest, store: Store) -> GivenSplit | None:
    """Return the splits that the names of files give. Raises DataError for files of which none is of
    train."""
    if not (column := recipe.split_column):
        return None
    return given_split((open_part(store, raw, part, [column]) for part in raw.splits[recipe.main]), recipe)


def _by_split(
    recipe: Recipe, texts: pa.Table, given: GivenSplit | None
) -> dict[str, tuple[list[bytes], Groups]]:
    """Return the documents of each split, in order, and the group of each: without `split.by`, equal
    documents are one."""
    assigned = assign_splits(texts, recipe.split, recipe.seed, [TEXT_COLUMN], given=given)
    documents: list[bytes] = texts[TEXT_COLUMN].to_pylist()
    groups = assigned.groups
    assert groups is not None, "documents are never numbered"
    found: dict[str, tuple[list[bytes], Groups]] = {}
    for index, split in enumerate(SPLITS):
        chosen = np.flatnonzero(assigned.split_indices == index)
        found[split] = [documents[each] for each in chosen.tolist()], groups[chosen]
    return found


def _token_counts(table: pa.Table, tokens: TokenCodec) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how often each token is predicted, without the start of documents and padding."""
    found = np.zeros(tokens.vocabulary.size, np.int64)
    for chunk in table[TOKENS_COLUMN].chunks:
        width = chunk.type.byte_width // tokens.dtype.itemsize
        rows_RT = np.frombuffer(chunk.buffers()[1], tokens.dtype).reshape(-1, width)
        found += np.bincount(rows_RT[:, 1:].ravel(), minlength=len(found))
    found[[tokens.vocabulary.start, tokens.vocabulary.padding]] = 0
    return found


def _encoding(
    settings: TextSettings,
    tokens: TokenCodec,
    train_counts: np.ndarray[tuple[int], np.dtype[np.int64]],
    sha256: str,
) -> Encoding:
    total = max(1, int(train_counts.sum()))
    bytes_per_token = float(train_counts @ tokens.token_bytes) / total
    return Encoding(
        features=(),
        fields=(
            StoredField(
                name=TOKENS_COLUMN,
                dtype="uint8" if tokens.dtype.itemsize == 1 else "uint16",
                shape=(settings.row_tokens,),
                use="tokens",
            ),
        ),
        vocabulary=tokens.vocabulary.model_copy(
            update={"bytes_per_token": bytes_per_token, "sha256": sha256}
        ),
        task="next_token",
        train_prior=tuple((train_counts / total).round(SHARE_DIGITS).tolist()),
    )
