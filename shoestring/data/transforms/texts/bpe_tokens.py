"""Tokens of byte-pair encoding (Sennrich, Haddow and Birch 2016), from the library tokenizers.

The vocabulary is trained on bytes, as that of GPT-2, so any UTF-8 text has tokens, and these spell it again.
It is stored in the format of tokenizers. It is trained and used in one thread, so that equal texts have equal
tokens on any machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shoestring.core.datasets import Vocabulary
from shoestring.core.errors import DataError, RecipeError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from shoestring.data.transforms.texts.byte_tokens import Tokens

MAX_TRAINING_BYTES = 64 << 20
"""The vocabulary is trained on this much text of train, from the first document on."""

PIECE_CHARACTERS = 1 << 18
"""Documents are encoded in pieces of this length, which bounds memory: a token takes 100 bytes at first."""


class BpeTokens:
    """Documents as tokens of a trained vocabulary, whose ids come first; then the start and padding."""

    dtype = np.dtype(np.uint16)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.serialised: bytes = tokenizer.to_str().encode()
        size = tokenizer.get_vocab_size()
        self.vocabulary = Vocabulary(
            kind="bpe", size=size + 2, start=size, padding=size + 1, bytes_per_token=1.0
        )
        sizes = [len(text) for text in token_texts(self.serialised)]
        self.token_bytes = np.array([*sizes, 0, 0], np.int32)

    def encode(self, document: bytes) -> Tokens:
        """Return the tokens of a document."""
        text = document.decode()
        ids: list[int] = []
        for start in range(0, len(text), PIECE_CHARACTERS):
            ids += self._tokenizer.encode(text[start : start + PIECE_CHARACTERS]).ids
        return np.array(ids, np.uint16)


def require_tokenizers() -> None:
    """Raise RecipeError if the package tokenizers is not installed."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        raise RecipeError(
            "`text.vocabulary` needs the package tokenizers: pip install 'shoestring[texts]', or remove the "
            "key to use bytes as tokens"
        ) from None


def train_bpe(documents: Iterable[bytes], size: int) -> BpeTokens:
    """Return the tokens of a vocabulary of at most `size`, trained on documents."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(documents), trainer)
    return BpeTokens(tokenizer)


def _texts(documents: Iterable[bytes]) -> Iterator[str]:
    left_bytes = MAX_TRAINING_BYTES
    for document in documents:
        if left_bytes <= 0:
            return
        yield document[:left_bytes].decode(errors="ignore")
        left_bytes -= len(document)


def token_texts(serialised: bytes) -> list[bytes]:
    """Return the bytes of text that each token stands for, in the order of their ids. Raises DataError."""
    try:
        found: dict[str, int] = json.loads(serialised)["model"]["vocab"]
        byte_of = _byte_of_character()
        texts = {index: bytes(byte_of[each] for each in token) for token, index in found.items()}
        return [texts[index] for index in range(len(texts))]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the vocabulary of tokens cannot be read ({error!r}): run preprocess again"
        ) from None


def _byte_of_character() -> dict[str, int]:
    """Return the byte that each character of a token is written for: printable Latin-1 as it is, the others
    as the characters from 256 on, in their order (GPT-2's `bytes_to_unicode`)."""
    plain: list[Any] = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
