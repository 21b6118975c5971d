"""The baselines of texts, and bits per byte."""

from __future__ import annotations

import gzip
import math
import random
from pathlib import Path

import numpy as np
import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import TOKENS_COLUMN, Encoding, StoredField
from shoestring.core.types import Format
from shoestring.data.formats.readers import open_rows, write_table
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.data.transforms.texts.byte_tokens import ByteTokens
from shoestring.data.transforms.texts.token_rows import pack_rows
from shoestring.evaluation.metrics import statistics
from shoestring.evaluation.resampling import resample
from shoestring.evaluation.split_rows import read_targets
from shoestring.evaluation.text_baselines import stored_texts, text_baselines
from shoestring.evaluation.units import make_units

TEXT = " ".join(random.Random(0).choices(["of", "the", "river", "and", "stone", "went"], k=4000)).encode()


def split(folder: Path, texts: list[bytes], prior: tuple[float, ...]) -> tuple[SampleReader, Encoding]:
    """Return rows in a file, read as evaluate reads them."""
    described = Encoding(
        features=(),
        fields=(StoredField(name=TOKENS_COLUMN, dtype="uint8", shape=(64,), use="tokens"),),
        vocabulary=ByteTokens.vocabulary,
        task="next_token",
        train_prior=prior,
    )
    folder.mkdir(exist_ok=True)
    path = folder / "rows"
    write_table(
        pack_rows(texts, np.arange(len(texts), dtype=np.int32), ByteTokens(), 64), Format.PACKED, path
    )
    rows = open_rows([path], Format.PACKED)
    return SampleReader(rows, Collator(described, rows.dtype)), described


def test_gzip_and_the_frequencies_cost_what_they_cost_on_the_text_itself(tmp_path: Path) -> None:
    texts = stored_texts(FolderStore(tmp_path), ByteTokens.vocabulary)
    counts = np.bincount(np.frombuffer(TEXT, np.uint8), minlength=256)
    shares = counts / counts.sum()
    rows, described = split(tmp_path, [TEXT[:9000], TEXT[9000:]], tuple(shares.tolist()))
    y = read_targets(rows)
    units = make_units(None, len(y))
    frequencies, packed = text_baselines(described, rows, y, texts)
    found = {
        each.name: float(statistics("next_token", y, each.values, units)["bits_per_byte"](np.ones(len(y))))
        for each in (frequencies, packed)
    }
    used = shares[shares > 0]
    assert found["token frequencies"] == pytest.approx(float(-(used * np.log2(used)).sum()))
    assert found["gzip"] == pytest.approx(8 * len(gzip.compress(TEXT, 9)) / len(TEXT), abs=0.02)


def test_bits_per_byte_are_those_of_all_bytes_whatever_the_rows() -> None:
    y, nats = np.array([10, 30]), np.array([20.0, 15.0]) * math.log(2)
    units = make_units(None, 2)
    metric = statistics("next_token", y, nats, units)["bits_per_byte"]
    assert float(metric(np.ones(2))) == pytest.approx(35 / 40)
    assert np.allclose(metric(np.array([[1.0, 0.0], [0.0, 1.0]])), [2.0, 0.5])
    (found,) = resample([metric], units, 0, lambda *_: None)
    assert 0.5 <= found.draws.min() <= found.draws.max() <= 2.0
