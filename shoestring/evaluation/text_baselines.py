"""The baselines of a model of texts: the frequencies of train's tokens, and gzip.

Both give the nats of each row, like a model: of the tokens that it predicts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from shoestring.core.datasets import Encoding, Vocabulary
from shoestring.core.interfaces import Store
from shoestring.data.loading.samples import Array, SampleReader
from shoestring.data.storage.blobs import open_blob
from shoestring.data.transforms.texts.bpe_tokens import token_texts
from shoestring.evaluation.metrics import Targets
from shoestring.evaluation.significance import Predictions
from shoestring.evaluation.units import Floats

BATCH_ROWS = 1 << 8
"""Rows read at once: 4 million of the most tokens a row may have."""

GZIP_LEVEL = 9
GZIP_HEADER_BYTES = 12
"""What the gzip format adds to zlib's: a longer header and trailer."""

MIN_SHARE = 1e-7
"""A token that train does not contain costs as much as one of this frequency."""


def text_baselines(
    encoding: Encoding, test: SampleReader, y: Targets, texts: Sequence[bytes]
) -> list[Predictions]:
    """Return the nats of each row under each baseline. `y`: the bytes of each row; `texts`: those of each
    token."""
    found = [
        Predictions(
            "token frequencies", "train's share of each token, at every place", _prior_nats(encoding, test)
        )
    ]
    nats = _gzip_bytes(test, texts) * 8 * math.log(2)
    spread = nats * y.astype(np.float64) / max(1, int(y.sum()))
    description = f"gzip -{GZIP_LEVEL} of the test split as one file, spread evenly over its bytes"
    return [*found, Predictions("gzip", description, spread)]


def _prior_nats(encoding: Encoding, test: SampleReader) -> Floats:
    assert encoding.vocabulary is not None
    nats_V = -np.log(np.maximum(np.array(encoding.train_prior), MIN_SHARE))
    nats_V[[encoding.vocabulary.start, encoding.vocabulary.padding]] = 0.0
    return np.concatenate([nats_V[tokens].sum(axis=1) for tokens in _predicted_tokens(test)])


def _predicted_tokens(test: SampleReader) -> Iterator[Array]:
    """Yield the tokens of rows that a model predicts: all but the first."""
    for samples in test.scan(BATCH_ROWS):
        yield samples["tokens"][:, 1:]


def stored_texts(store: Store, vocabulary: Vocabulary) -> list[bytes]:
    """Return the bytes of text of each token; none of the start of a document and of padding. Raises
    CorruptObject, DataError."""
    if not vocabulary.sha256:
        found = [bytes([byte]) for byte in range(vocabulary.size)]
        found[vocabulary.start] = found[vocabulary.padding] = b""
        return found
    return [*token_texts(open_blob(store, vocabulary.sha256).read_bytes()), b"", b""]


def _gzip_bytes(test: SampleReader, texts: Sequence[bytes]) -> int:
    """Return the size of the text of all rows in one gzip file."""
    packer = zlib.compressobj(GZIP_LEVEL)
    size_bytes = GZIP_HEADER_BYTES
    for tokens in _predicted_tokens(test):
        size_bytes += len(packer.compress(b"".join(map(texts.__getitem__, tokens.ravel().tolist()))))
    return size_bytes + len(packer.flush())
