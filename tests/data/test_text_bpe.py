"""Tokens of byte-pair encoding: lossless, of train alone, and named by the data set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_files import preprocessed, samples_of
from hypothesis import given, settings
from hypothesis import strategies as st
from text_sources import documents_of, story, text_folder, text_recipe

from shoestring.core.datasets import TEXT_COLUMN, Manifest
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS, Split
from shoestring.data.transforms.split import assign_splits
from shoestring.data.transforms.texts.bpe_tokens import PIECE_CHARACTERS, token_texts, train_bpe
from shoestring.evaluation.text_baselines import stored_texts

TRAINED = train_bpe([story(seed, 200).encode() for seed in range(30)], 600)
TEXTS = token_texts(TRAINED.serialised)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_tokens_spell_any_text_byte_by_byte(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    tokens = TRAINED.encode(data)
    assert b"".join(TEXTS[token] for token in tokens) == data
    assert int(TRAINED.token_bytes[tokens].sum()) == len(data)


def test_a_long_document_is_encoded_in_pieces(tmp_path: Path) -> None:
    data = story(5, PIECE_CHARACTERS // 4).encode()
    tokens = TRAINED.encode(data)
    assert b"".join(TEXTS[token] for token in tokens) == data and len(tokens) < len(data) / 2


def bpe_recipe(folder: Path, vocabulary: int = 512) -> Recipe:
    text = {"row_tokens": 16, "vocabulary": vocabulary}
    return Recipe.model_validate({"name": "mine", "source": {"rows": {"path": folder, "text": text}}})


def text_of(store: Store, manifest: Manifest, split: str) -> bytes:
    """Return the text of a split, without the bounds of documents."""
    assert manifest.encoding is not None and manifest.encoding.vocabulary is not None
    texts, samples = stored_texts(store, manifest.encoding.vocabulary), samples_of(store, manifest, split)
    return b"".join(texts[token] for token in samples["tokens"][:, 1:].ravel())


@pytest.mark.parametrize("format", Format)
def test_rows_of_tokens_hold_the_text_of_rows_of_bytes(tmp_path: Path, format: Format) -> None:
    folder = text_folder(tmp_path / "texts", 60)
    _, manifest, store = preprocessed(bpe_recipe(folder), tmp_path / "bpe", format)
    _, of_bytes, other = preprocessed(text_recipe(folder), tmp_path / "bytes", format)
    assert manifest.encoding is not None
    assert manifest.encoding.of_use("tokens")[0].shape == (16,)
    vocabulary = manifest.encoding.vocabulary
    assert vocabulary is not None and vocabulary.sha256 in manifest.blobs
    assert (vocabulary.kind, len(manifest.encoding.train_prior)) == ("bpe", vocabulary.size)
    assert vocabulary.bytes_per_token > 1.5 and manifest.rows < of_bytes.rows
    for split in SPLITS:
        assert text_of(store, manifest, split) == text_of(other, of_bytes, split)
        assert samples_of(store, manifest, split)["target"].sum() == len(text_of(store, manifest, split))


def document_of_split(split: str) -> bytes:
    """Return a document of words that no other has, which a recipe's seed assigns to a split."""
    texts = [b"zebra quagga okapi " * count for count in range(100, 200)]
    assigned = assign_splits(pa.table({TEXT_COLUMN: texts}), Split(), 0, [TEXT_COLUMN]).split_indices
    return texts[assigned.tolist().index(SPLITS.index(split))]


def test_the_vocabulary_is_trained_on_train_alone(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 60)
    _, manifest, _ = preprocessed(bpe_recipe(folder), tmp_path)
    _, of_bytes, other = preprocessed(text_recipe(folder), tmp_path / "bytes")
    sealed = documents_of(samples_of(other, of_bytes, "test"))[0]
    (unseen,) = (path for path in folder.iterdir() if path.read_bytes() == sealed)
    unseen.write_bytes(document_of_split("test"))
    _, without, again = preprocessed(bpe_recipe(folder), tmp_path / "again")
    assert b"zebra" not in text_of(again, without, "train")
    assert manifest.encoding is not None and without.encoding is not None
    assert manifest.encoding.vocabulary == without.encoding.vocabulary
    assert manifest.rows != without.rows


def test_the_vocabulary_is_the_same_in_another_process_with_other_threads() -> None:
    code = (
        "from shoestring.data.transforms.texts.bpe_tokens import train_bpe; from text_sources import story; "
        "print(train_bpe([story(seed, 200).encode() for seed in range(30)], 600).serialised.decode(), end='')"
    )
    again = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env={"RAYON_NUM_THREADS": "4", "PYTHONHASHSEED": "4", "PATH": ""},
        capture_output=True,
        check=True,
    )
    assert again.stdout == TRAINED.serialised


def test_a_damaged_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match=r"the vocabulary of tokens cannot be read .*: run preprocess again"):
        token_texts(b'{"model": {"vocab": {"a": 7}}}')
    with pytest.raises(DataError, match="the vocabulary of tokens cannot be read"):
        token_texts(b"{}")


def test_tokens_are_small_numbers_whatever_the_vocabulary() -> None:
    assert TRAINED.encode(b"the river").dtype == np.uint16
    assert TRAINED.vocabulary.padding == TRAINED.vocabulary.size - 1 == TRAINED.vocabulary.start + 1
