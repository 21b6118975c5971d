"""Features of trees: numbers as they are, and categories by their codes or by the mean target of their rows.

LightGBM splits codes into two sets, by an order that each node finds for its own rows (Fisher 1958, "On
grouping for maximum homogeneity"). It takes many rows of each value.

A category with fewer of them becomes a number, the mean target of its rows in train. The mean is shrunk
towards that of all rows, as if the category had `PRIOR_ROWS` more rows with it (Micci-Barreca 2001, "A
preprocessing scheme for high-cardinality categorical attributes"). A row of train is given the mean of the
rows in other folds, so that its own target is not among them (Prokhorenkova et al. 2018, "CatBoost", section
3.2).

A category whose words are features becomes its code, which is its place in the order of the names. The words
identify the category as well, so its mean would disclose a row's own target: within a category, the mean of
the other folds is high where the target of this one is low.

Shape suffixes: B rows; C categorical features; F numeric features; K targets; V codes of a category.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.boosted.settings import MAX_CLASSES, is_by_code
from shoestring.training.losses.scores import total_weight

Array = np.ndarray[Any, np.dtype[Any]]

PRIOR_ROWS, FOLDS = 10.0, 5


def tree_targets(encoding: Encoding, target_B: Array) -> Array | None:
    """Return what the mean of a category is of: float64[B, K]; None for more than `MAX_CLASSES` classes."""
    if encoding.task == "regression":
        return target_B.astype(np.float64)[:, None]
    if encoding.task == "binary":
        return np.asarray(target_B == 1, np.float64)[:, None]
    if len(encoding.classes) > MAX_CLASSES:
        return None
    return np.asarray(target_B[:, None] == np.arange(len(encoding.classes)), np.float64)


class CategoryTables:
    """For each categorical feature, what trees read for each of its codes: float32[V, K]. One that they read
    by its codes has no columns: float32[V, 0]. `by_name`: those that are the place of their name.

    Code 0, and any that train does not contain, has the mean of all rows.
    """

    def __init__(self, tables: Sequence[Array], by_name: Collection[int] = ()) -> None:
        self.tables, self._by_name = tables, by_name
        self.by_code = [at for at, table in enumerate(tables) if not table.shape[1]]

    @classmethod
    def fitted(
        cls, encoding: Encoding, codes_BC: Array, targets_BK: Array | None, weight_B: Array | None = None
    ) -> CategoryTables:
        categories = [each for each in encoding.features if each.kind == "categorical"]
        tables = [
            np.empty((each.cardinality, 0), np.float32)
            if is_by_code(each.cardinality, len(codes_BC))
            else np.arange(each.cardinality, dtype=np.float32)[:, None]
            if each.has_words
            else _table(codes_BC[:, index], each.cardinality, targets_BK, weight_B)
            for index, each in enumerate(categories)
        ]
        return cls(tables, {index for index, each in enumerate(categories) if each.has_words})

    def code_columns(self, features_B: Array) -> list[int]:
        """Return the columns of features that are codes."""
        width = features_B.shape[1]
        return [*range(width - len(self.by_code), width)]

    def features(self, samples: Samples) -> Array:
        """Return what trees read of samples, float32: the columns of the tables, the numbers, the codes."""
        return self._joined(self._columns(samples), samples)

    def train_features(self, samples: Samples, targets_BK: Array | None) -> Array:
        """Return the features of the rows that the tables were fitted on, by folds of every `FOLDS`th row."""
        by_mean = [at for at in range(len(self.tables)) if at not in {*self.by_code, *self._by_name}]
        if targets_BK is None or not by_mean:
            return self.features(samples)
        fold_B, codes_BC, weight_B = np.arange(len(samples)) % FOLDS, samples["code"], samples.weights
        columns = self._columns(samples)
        for fold in range(FOLDS):
            mine, others = fold_B == fold, fold_B != fold
            if not others.any():
                others = mine
            weight = None if weight_B is None else weight_B[others]
            for at in by_mean:
                own = _table(codes_BC[others, at], len(self.tables[at]), targets_BK[others], weight)
                columns[at][mine] = own[codes_BC[mine, at]]
        return self._joined(columns, samples)

    def _columns(self, samples: Samples) -> list[Array]:
        return [table[samples["code"][:, at]] for at, table in enumerate(self.tables)]

    def _joined(self, columns: Sequence[Array], samples: Samples) -> Array:
        codes = samples["code"][:, self.by_code]
        return np.concatenate([*columns, samples["number"], codes], axis=1, dtype=np.float32)


def _table(codes_B: Array, size: int, targets_BK: Array | None, weight_B: Array | None) -> Array:
    counts_V = np.bincount(codes_B, weight_B, size)
    if targets_BK is None:
        return _ranks(counts_V)
    weighted_BK = targets_BK if weight_B is None else targets_BK * weight_B[:, None]
    sums_VK = np.stack([np.bincount(codes_B, target_B, size) for target_B in weighted_BK.T], axis=1)
    mean_K = weighted_BK.sum(axis=0) / total_weight(len(codes_B), weight_B)
    means_VK = (sums_VK + PRIOR_ROWS * mean_K) / (counts_V[:, None] + PRIOR_ROWS)
    return np.asarray(means_VK, np.float32)


def _ranks(counts_V: Array) -> Array:
    ranks_V = np.empty(len(counts_V), np.float32)
    ranks_V[np.argsort(-counts_V, kind="stable")] = np.arange(len(counts_V))
    return ranks_V[:, None]
