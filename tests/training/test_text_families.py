"""The nets for texts: causal, blind across documents, and measured in bits per byte."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from training_bench import TrainingBench, same_weights, stop_after

from shoestring.core.datasets import TOKENS_COLUMN, Encoding, StoredField, Vocabulary
from shoestring.core.errors import StageStopped
from shoestring.data.loading.samples import Samples
from shoestring.data.transforms.texts.byte_tokens import PADDING, START, ByteTokens
from shoestring.data.transforms.texts.token_rows import pack_rows
from shoestring.training.control.guardrails import prior_loss
from shoestring.training.families.registry import family_of
from shoestring.training.families.text_net.learner import TextNetKind
from shoestring.training.families.text_net.settings import TextNetSettings
from shoestring.training.families.train_family import train_family
from shoestring.training.families.transformer.learner import TransformerKind
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.net_settings import NetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.frameworks.torch_.token_net import IGNORED, token_losses

WIDTH = 24
SMALL = TransformerSettings(width=16, layers=2, heads=2, window=5, dropout=0.0)
WHOLE_ROW = SMALL.model_copy(update={"window": None, "ngrams": False})
SETTINGS = (TextNetSettings(hidden=(16, 16, 16), dropout=0.0), SMALL, WHOLE_ROW)
each_net = pytest.mark.parametrize("settings", SETTINGS, ids=["text_net", "transformer", "whole_row"])


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


def kind_of(settings: NetSettings, described: Encoding | None = None) -> TextNetKind | TransformerKind:
    described = described or encoding()
    if isinstance(settings, TransformerSettings):
        return TransformerKind(described, settings)
    assert isinstance(settings, TextNetSettings)
    return TextNetKind(described, settings)


def untrained(settings: NetSettings) -> torch.nn.Module:
    """Return a net whose last layer is not zero, so that its inputs show."""
    torch.manual_seed(0)
    net = kind_of(settings).net().eval()
    torch.nn.init.normal_(net.output.weight)
    return net


@each_net
def test_a_token_changes_only_what_is_predicted_after_it(settings: NetSettings) -> None:
    net = untrained(settings)
    tokens = torch.randint(0, 250, (1, WIDTH - 1))
    before = net(tokens)
    for place in (0, 7, WIDTH - 2):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % 250
        after = net(changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.allclose(after[:, place], before[:, place])


@each_net
def test_nothing_is_read_from_the_document_before(settings: NetSettings) -> None:
    net = untrained(settings)
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


@each_net
def test_the_prediction_of_a_row_does_not_depend_on_the_rows_beside_it(settings: NetSettings) -> None:
    generator = np.random.default_rng(0)
    samples = rows([bytes(generator.integers(97, 123, size).tolist()) for size in (40, 3, 70, 9, 25)])
    net = untrained(settings)
    predictor = family_of(settings).predictor(encoding(), save(net.state_dict()))
    together = predictor.predict(samples)
    alone = [predictor.predict(samples.part(row, row + 1))[0] for row in range(len(samples))]
    assert len(samples) > 4
    assert together == pytest.approx(np.array(alone), rel=1e-6)


def test_a_layer_of_the_transformer_attends_to_its_window_alone() -> None:
    tokens = torch.randint(0, 250, (2, 17))
    one = SMALL.model_copy(update={"ngrams": False, "layers": 1})
    before = (net := untrained(one))(tokens)
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 250
    differs = (net(changed) != before).any(2).any(0)
    assert differs.nonzero().flatten().tolist() == [6, 7, 8, 9, 10]
    # Blocks of any size compute what the whole row does.
    wide = untrained(one.model_copy(update={"window": 17}))
    narrow = untrained(one.model_copy(update={"window": 16}))
    assert torch.allclose(wide(tokens)[:, :16], narrow(tokens)[:, :16], atol=1e-5)
    assert not torch.allclose(wide(tokens)[:, 16], narrow(tokens)[:, 16], atol=1e-5)


def test_a_width_that_heads_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match="width 20 is no multiple of twice the 4 heads"):
        TransformerSettings(width=20, heads=4)


@each_net
def test_a_training_that_is_stopped_and_resumed_ends_with_the_same_weights(
    settings: NetSettings, tmp_path: Path
) -> None:
    samples = rows([b"abcabdabcabeabc" * 4] * 40)
    packed = np.empty(len(samples), [(TOKENS_COLUMN, "u1", (WIDTH,)), ("y", "<i4")])
    packed[TOKENS_COLUMN], packed["y"] = samples["tokens"], samples["target"]
    own = settings.model_copy(update={"dropout": 0.3, "max_epochs": 2, "batch_rows": 4, "patience": 99})

    def bench(name: str) -> TrainingBench:
        return TrainingBench(
            tmp_path / name, train=packed[:-20], validation=packed[-20:], encoding=encoding(), settings=own
        )

    whole = train_family(bench("whole").task()).weights
    stopped = bench("stopped")
    for steps in (1, 7, 12):
        stopped.should_stop = stop_after(steps)
        with pytest.raises(StageStopped):
            train_family(stopped.task())
    stopped.should_stop = lambda: False
    assert same_weights(train_family(stopped.task()).weights, whole)


def test_neither_the_start_of_a_document_nor_padding_counts() -> None:
    samples = rows([b"ab", b"c"])
    kind = kind_of(SMALL)
    counted = kind.counted(kind.targets(samples)[0])
    (targets,) = counted.tolist()
    assert targets == [ord("a"), ord("b"), IGNORED, ord("c"), *[IGNORED] * (WIDTH - 5)]
    assert kind.weight(samples) == 3
    nats = token_losses(torch.zeros(1, WIDTH - 1, 256), counted)
    assert nats.item() == pytest.approx(3 * math.log(256))


@each_net
def test_an_untrained_net_has_the_loss_of_the_frequencies_and_learns_a_text(settings: NetSettings) -> None:
    torch.manual_seed(0)
    samples = rows([b"abcabcabcabcabcabc" * 4] * 8)
    counts = np.bincount(samples["tokens"][:, 1:].ravel(), minlength=256).astype(float)
    counts[[START, PADDING]] = 0
    described = encoding(counts / counts.sum())
    learner = NetLearner(kind_of(settings, described), samples, len(samples))
    entropy = prior_loss(described)
    assert entropy == pytest.approx(math.log2(3), abs=0.01)
    assert learner.loss([samples], learner.net) == pytest.approx(entropy, abs=0.01)
    for _ in range(12):
        learner.step(learner.prepare(samples), 0.02)
    assert learner.loss([samples], learner.net) < entropy / 4
    assert learner.metric(math.log(2)) == 1.0


def test_an_evaluation_computes_as_many_rows_at_once_as_memory_allows() -> None:
    assert kind_of(SMALL).rows_at_once == 2730
    many = Vocabulary(kind="bytes", size=1 << 16, start=0, padding=1, bytes_per_token=1.0)
    assert kind_of(SMALL, encoding().model_copy(update={"vocabulary": many})).rows_at_once == 10
