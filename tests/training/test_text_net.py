"""The net for texts: causal, blind across documents, and measured in bits per byte."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shoestring.core.datasets import TOKENS_COLUMN, Encoding, StoredField, Vocabulary
from shoestring.data.loading.samples import Samples
from shoestring.data.transforms.texts.byte_tokens import PADDING, START, ByteTokens
from shoestring.data.transforms.texts.token_rows import pack_rows
from shoestring.training.control.guardrails import prior_loss
from shoestring.training.families.text_net.learner import TextNetKind
from shoestring.training.families.text_net.predictor import IGNORED, TextNet, token_losses
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner

WIDTH = 24
SETTINGS = TextNetSettings(hidden=(16, 16, 16), dropout=0.0)


def encoding(prior: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None) -> Encoding:
    if prior is None:
        prior = np.full(256, 1 / 254)
        prior[[START, PADDING]] = 0
    return Encoding(
        features=(),
        fields=(StoredField(name=TOKENS_COLUMN, dtype="uint8", shape=(WIDTH,), use="tokens"),),
        vocabulary=ByteTokens.vocabulary,
        task="next_token",
        train_prior=tuple(prior.tolist()),
    )


def rows(texts: list[bytes]) -> Samples:
    packed = pack_rows(texts, np.zeros(len(texts), np.int32), ByteTokens(), WIDTH)
    tokens = np.array([list(each) for each in packed[TOKENS_COLUMN].to_pylist()], np.uint8)
    y = np.array(packed["y"].to_pylist(), np.int32)
    none = np.zeros((len(y), 0))
    return Samples(
        {"code": none.astype(np.int32), "number": none.astype(np.float32), "target": y, "tokens": tokens}
    )


def untrained(seed: int = 0) -> TextNet:
    """Return a net whose last layer is not zero, so that its inputs show."""
    torch.manual_seed(seed)
    net = TextNet(encoding(), SETTINGS).eval()
    torch.nn.init.normal_(net.output.weight)
    return net


def test_a_token_changes_only_what_is_predicted_after_it() -> None:
    net = untrained()
    tokens = torch.randint(0, 250, (1, WIDTH - 1))
    before = net(tokens)
    for place in (0, 7, WIDTH - 2):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % 250
        after = net(changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.allclose(after[:, place], before[:, place])


def test_nothing_is_read_from_the_document_before() -> None:
    net = untrained()
    (first,), (second,) = (
        rows([b"abcde", b"the same text"])["tokens"],
        rows([b"XYZ12", b"the same text"])["tokens"],
    )
    one, other = (net(torch.from_numpy(each[None].astype(np.int64))) for each in (first, second))
    start = 6
    assert (first[start], second[start]) == (START, START)
    assert torch.equal(one[:, start:], other[:, start:])
    assert not torch.allclose(one[:, start - 1], other[:, start - 1])
    # Its prediction is that of the document alone, at the beginning of a row.
    alone = net(torch.from_numpy(rows([b"the same text"])["tokens"].astype(np.int64)))
    assert torch.allclose(one[0, start:], alone[0, : WIDTH - start], atol=1e-5)


def test_neither_the_start_of_a_document_nor_padding_counts() -> None:
    samples = rows([b"ab", b"c"])
    kind = TextNetKind(encoding(), SETTINGS)
    (targets,) = kind.targets(samples).tolist()
    assert targets == [ord("a"), ord("b"), IGNORED, ord("c"), *[IGNORED] * (WIDTH - 5)]
    assert kind.weight(samples) == 3
    nats = token_losses(torch.zeros(1, WIDTH - 1, 256), kind.targets(samples))
    assert nats.item() == pytest.approx(3 * math.log(256))


def test_an_untrained_net_has_the_loss_of_the_frequencies_and_learns_a_text() -> None:
    torch.manual_seed(0)
    samples = rows([b"abcabcabcabcabcabc" * 4] * 8)
    counts = np.bincount(samples["tokens"][:, 1:].ravel(), minlength=256).astype(float)
    counts[[START, PADDING]] = 0
    described = encoding(counts / counts.sum())
    learner = NetLearner(TextNetKind(described, SETTINGS), samples, len(samples))
    entropy = prior_loss(described)
    assert entropy == pytest.approx(math.log2(3), abs=0.01)
    assert learner.loss([samples], learner.net) == pytest.approx(entropy, abs=0.01)
    for _ in range(12):
        learner.step(samples, 0.02)
    assert learner.loss([samples], learner.net) < entropy / 4
    assert learner.metric(math.log(2)) == 1.0


def test_an_evaluation_computes_as_many_rows_at_once_as_memory_allows() -> None:
    assert TextNetKind(encoding(), SETTINGS).rows_at_once == 2730
    many = Vocabulary(kind="bytes", size=1 << 16, start=0, padding=1, bytes_per_token=1.0)
    assert TextNetKind(encoding().model_copy(update={"vocabulary": many}), SETTINGS).rows_at_once == 10
