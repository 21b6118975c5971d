"""The net: any mix of columns, the prior as its start, increasing bin edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_dataset import CODE, NUMBER, RECORD, encoding_of, samples, table
from training_bench import TINY, class_prior_loss

from shoestring.core.datasets import Encoding, Feature
from shoestring.training.families.table_net.learner import TableNetKind, quantile_edges
from shoestring.training.families.table_net.predictor import TableNetPredictor
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout, keep_mask
from shoestring.training.frameworks.torch_.net_learner import NetLearner


@pytest.mark.parametrize("features", [(CODE,), (NUMBER,), (NUMBER, CODE), (CODE, CODE, NUMBER)], ids=len)
def test_any_mix_of_columns_starts_as_the_prior_and_takes_a_step(features: tuple[Feature, ...]) -> None:
    train = table(200, 0)
    encoding = encoding_of(train).model_copy(update={"features": features})
    rows = samples(train, encoding)
    learner = NetLearner(TableNetKind(encoding, TINY), rows, len(train))
    assert learner.loss([rows], learner.net) == pytest.approx(class_prior_loss(train, train), rel=1e-5)
    before = learner.loss([rows], learner.net)
    for _ in range(50):
        learner.step(learner.prepare(rows), 0.01)
    assert learner.loss([rows], learner.net) < before - 0.02


@pytest.mark.parametrize("features", [(CODE,), (NUMBER,), (NUMBER, CODE), (CODE, CODE, NUMBER)], ids=len)
@pytest.mark.parametrize("hidden", [(8,), (16, 8)])
def test_numpy_predicts_what_the_net_computes(features: tuple[Feature, ...], hidden: tuple[int, ...]) -> None:
    train = table(300, 0)
    encoding = encoding_of(train).model_copy(update={"features": features})
    rows = samples(train, encoding)
    learner = NetLearner(TableNetKind(encoding, TINY.model_copy(update={"hidden": hidden})), rows, len(train))
    for _ in range(30):
        learner.step(learner.prepare(rows), 0.05)
    with torch.no_grad():
        expected = learner.net.eval()(*learner.kind.inputs(rows)).numpy()
    assert expected.std() > 0.1
    predictor = TableNetPredictor(encoding, learner.export("last").data)
    assert predictor.scores(rows) == pytest.approx(expected, abs=1e-5)


def test_a_regression_net_starts_as_the_mean_with_losses_in_the_unit_of_y() -> None:
    train = np.empty(500, np.dtype([("number", "f4"), ("y", "f4")]))
    train["number"] = np.random.default_rng(0).normal(size=500)
    train["y"] = 100 + 50 * train["number"]
    mean, sd = float(train["y"].mean()), float(train["y"].std())
    encoding = Encoding(features=(NUMBER,), task="regression", train_prior=(mean, sd))
    rows = samples(train, encoding)
    learner = NetLearner(TableNetKind(encoding, TINY), rows, len(train))
    assert learner.loss([rows.part(0, 200), rows.part(200, 500)], learner.net) == pytest.approx(sd, rel=1e-4)


def test_a_class_unseen_in_train_starts_with_a_small_finite_probability() -> None:
    train = table(100, 0)
    encoding = Encoding(
        features=(CODE,), task="multiclass", classes=("a", "b", "c"), train_prior=(0.4, 0.6, 0.0)
    )
    rows = samples(train, encoding)
    learner = NetLearner(TableNetKind(encoding, TINY), rows, len(train))
    assert np.isfinite(learner.loss([rows], learner.net))


def test_a_constant_target_causes_no_division_by_zero() -> None:
    train = np.zeros(50, np.dtype([("number", "f4"), ("y", "f4")]))
    train["y"] = 3.0
    encoding = Encoding(features=(NUMBER,), task="regression", train_prior=(3.0, 0.0))
    rows = samples(train, encoding)
    learner = NetLearner(TableNetKind(encoding, TINY), rows, len(train))
    learner.step(learner.prepare(rows), 0.01)
    assert learner.loss([rows], learner.net) == 0.0


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(1, 40), st.integers(0, 3)), elements=st.floats(-1e4, 1e4, width=32)
    ),
    st.integers(2, 16),
)
def test_quantile_edges_are_strictly_increasing(numbers_RN: np.ndarray, bins: int) -> None:
    edges = quantile_edges(numbers_RN, bins)
    assert edges.shape == (numbers_RN.shape[1], bins + 1)
    assert (edges.diff(dim=1) > 0).all()


def test_edges_increase_even_when_quantiles_are_equal_as_floats() -> None:
    one = np.float32(1)
    edges = quantile_edges(np.repeat(np.float32([one, np.nextafter(one, np.float32(2)), 2]), 5)[:, None], 16)
    assert (edges.diff(dim=1) > 0).all()


def test_category_dropout_trains_the_unknown_code_and_the_average_follows_the_weights() -> None:
    train = np.zeros(64, RECORD)
    train["code"] = 5
    torch.manual_seed(0)
    encoding = encoding_of(table(50, 0))
    rows = samples(train, encoding)
    learner = NetLearner(
        TableNetKind(encoding, TINY.model_copy(update={"category_dropout": 0.5})), rows, len(train)
    )
    unknown = learner.net.embeddings[0].weight[0].clone()
    for _ in range(20):
        learner.step(learner.prepare(rows), 0.01)
    assert not torch.equal(unknown, learner.net.embeddings[0].weight[0])
    assert learner.loss([rows], learner.net) < learner.loss([rows], learner.average) < math.log(2)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_dropout_drops_its_share_of_every_position_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    dropout = ByteDropout(share)
    ones = torch.ones(4096, 33)
    dropped = sum((dropout(ones) == 0).double() for _ in range(16)) / 16
    assert abs(float(dropped.mean()) - share) < 0.005
    # Eight elements share one random number: none of its bytes is biased.
    assert np.ptp(dropped.flatten().reshape(-1, 8).mean(0).numpy()) < 0.01
    kept = dropout(ones)
    assert torch.allclose(kept[kept != 0], torch.tensor(1 / (1 - dropout.share)))
    assert bool((dropout.eval()(ones) == ones).all())


def test_masks_of_neighbouring_elements_are_independent() -> None:
    torch.manual_seed(1)
    kept = keep_mask(torch.empty(100_000, 8), 0.5).double()
    correlations = torch.corrcoef(kept.T) - torch.eye(8)
    assert float(correlations.abs().max()) < 0.02
