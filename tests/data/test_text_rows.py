"""Rows of tokens: each byte of each document is predicted once, and no row crosses a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_files import ingested, preprocessed, quiet, samples_of
from hypothesis import given
from hypothesis import strategies as st
from text_sources import documents_of, story, text_folder, text_recipe

from shoestring.core.datasets import GROUP_COLUMN, TARGET_COLUMN, TOKENS_COLUMN, StoredField
from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.loading.open_split import open_split
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.preprocess import preprocess
from shoestring.data.transforms.texts.byte_tokens import PADDING, START, ByteTokens
from shoestring.data.transforms.texts.token_rows import pack_rows


@given(
    st.lists(st.text(min_size=1, max_size=60).map(lambda text: text.encode("utf-8", "ignore")).filter(len)),
    st.integers(2, 40),
)
def test_every_byte_is_predicted_once_from_the_byte_before_it(texts: list[bytes], width: int) -> None:
    packed = pack_rows(texts, np.arange(len(texts), dtype=np.int32), ByteTokens(), width)
    rows = np.array([list(each) for each in packed[TOKENS_COLUMN].to_pylist()]).reshape(-1, width)
    assert (
        rows.shape[0] == -(-(sum(map(len, texts)) + len(texts) - 1) // (width - 1))
        if texts
        else not len(rows)
    )
    stream = np.concatenate([rows[:1, :1].ravel(), rows[:, 1:].ravel()]).astype(np.uint8).tobytes()
    assert stream.rstrip(bytes([PADDING])).split(bytes([START]))[1:] == texts
    # A row begins with the last token of the row before.
    assert (rows[1:, 0] == rows[:-1, -1]).all()
    assert sum(packed[TARGET_COLUMN].to_pylist()) == sum(map(len, texts))
    marks = (rows[:, 1:] == START) | (rows[:, 1:] == PADDING)
    assert packed[TARGET_COLUMN].to_pylist() == (~marks).sum(axis=1).tolist()
    groups = packed[GROUP_COLUMN].to_pylist()
    assert groups == sorted(groups)


@pytest.mark.parametrize("format", Format)
def test_documents_are_split_and_a_batch_is_a_view_of_the_rows(tmp_path: Path, format: Format) -> None:
    folder = text_folder(tmp_path / "texts", 60)
    _, manifest, store = preprocessed(text_recipe(folder), tmp_path, format)
    assert manifest.encoding is not None and manifest.encoding.vocabulary is not None
    assert manifest.encoding.task == "next_token" and not manifest.encoding.features
    assert manifest.encoding.fields == (
        StoredField(name="y", dtype="int32", use="target"),
        StoredField(name="_tokens", dtype="uint8", shape=(32,), use="tokens"),
        StoredField(name="_group", dtype="int32", use="group"),
    )
    found = []
    for split in SPLITS:
        samples = samples_of(store, manifest, split)
        assert samples["tokens"].base is not None
        assert samples["tokens"].dtype == np.uint8 and samples["tokens"].shape == (len(samples), 32)
        found += documents_of(samples)
    assert sorted(found) == sorted(path.read_bytes() for path in folder.iterdir())
    part = open_split(store, manifest, "train").take(np.array([3, 1])).part(1, 2)
    assert part["tokens"].shape == (1, 32)


def test_the_frequencies_are_those_of_train_alone(tmp_path: Path) -> None:
    _, manifest, store = preprocessed(text_recipe(text_folder(tmp_path / "texts", 40)), tmp_path)
    assert manifest.encoding is not None
    text = b"".join(documents_of(samples_of(store, manifest, "train")))
    counts = np.bincount(np.frombuffer(text, np.uint8), minlength=256)
    assert np.allclose(manifest.encoding.train_prior, counts / counts.sum())


def test_files_that_are_added_move_no_document_to_another_split(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 50)
    before = split_of_documents(tmp_path / "one", folder)
    text_folder(folder, {f"a{number}.txt": f"more {number} {story(number)}" for number in range(30)})
    (folder / "000.txt").rename(folder / "zzz.txt")
    after = split_of_documents(tmp_path / "two", folder)
    assert len(after) == 80 and before.items() <= after.items()


def split_of_documents(place: Path, folder: Path) -> dict[bytes, str]:
    _, manifest, store = preprocessed(text_recipe(folder), place)
    return {text: split for split in SPLITS for text in documents_of(samples_of(store, manifest, split))}


def test_equal_documents_are_in_one_split_and_those_of_a_file_if_the_recipe_asks(tmp_path: Path) -> None:
    lines = {
        f"{number}.txt": "".join(f"{number} {story(line)}\n" for line in range(6)) for number in range(40)
    }
    folder = text_folder(
        tmp_path / "texts", lines | {f"copy{number}.txt": lines["7.txt"] for number in range(9)}
    )
    recipe = text_recipe(folder, separator="\n", split={"by": ["path"]})
    _, manifest, store = preprocessed(recipe, tmp_path)
    owners: dict[bytes, set[str]] = {}
    for split in SPLITS:
        for text in documents_of(samples_of(store, manifest, split)):
            owners.setdefault(text.split()[0], set()).add(split)
    assert all(len(splits) == 1 for number, splits in owners.items() if number != b"7")
    copies = text_recipe(folder, name="copies")
    assert len(split_of_documents(tmp_path / "copies", folder)) == 40
    assert preprocessed(copies, tmp_path / "again")[1].rows > manifest.rows / 2


def test_documents_shorter_than_a_row_share_it_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {f"{number}.txt": f"verse {number}" for number in range(40)}
    empty: dict[str, str | bytes] = {f"empty{number}.txt": "" for number in range(30)} | {"blank.txt": " \n"}
    folder = text_folder(tmp_path / "texts", texts | empty)
    _, manifest, store = preprocessed(text_recipe(folder, row_tokens=64), tmp_path)
    assert manifest.quarantined == {"empty documents": 31}
    train = samples_of(store, manifest, "train")
    assert len(train) < len(documents_of(train)) / 4
    assert (train["tokens"] == START).sum(axis=1).max() > 3


def test_another_row_length_is_made_from_the_same_raw_data_and_another_separator_is_not(
    tmp_path: Path,
) -> None:
    folder = text_folder(tmp_path / "texts", 30)
    raw_key, _, store = ingested(text_recipe(folder), tmp_path)
    assert ingested(text_recipe(folder, row_tokens=64), tmp_path)[0] == raw_key
    assert ingested(text_recipe(folder, separator="\n"), tmp_path)[0] != raw_key
    _, manifest = preprocess(
        text_recipe(folder, row_tokens=64), raw_key, Format.ARROW, store, tmp_path / "scratch", quiet
    )
    assert manifest.encoding is not None and manifest.encoding.of_use("tokens")[0].shape == (64,)


def test_too_few_documents_for_three_splits_are_refused(tmp_path: Path) -> None:
    folder = text_folder(tmp_path / "texts", 3)
    with pytest.raises(DataError, match=r"no rows were assigned to .*too few"):
        preprocessed(text_recipe(folder), tmp_path)
