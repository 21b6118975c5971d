"""A forest as a graph of ONNX.

Its trees split numbers alone. Where LightGBM splits a code by a set, they read whether it is outside the set.

Shape suffixes as in `features`; S the sets of a category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.training.families.boosted.features import CategoryTables
from shoestring.training.families.boosted.forest import read_forest
from shoestring.training.families.onnx_graph import CODE, NUMBER, OnnxGraph
from shoestring.training.losses.scores import outputs, prior_scores

ZERO = float(np.float32(1e-35))
"""`kZeroThreshold` of LightGBM's `meta.h`."""


@dataclass(slots=True)
class TreeNodes:
    """The nodes of all trees as ONNX has them: a list for each attribute of a node, or of a leaf's value.

    `places`: where the feature of a set is, by the column of its codes and by LightGBM's text of it.

    The runtime adds leaves in float32. The middle of each tree's leaves is therefore added apart, in float64:
    the values of a regression may be much larger than their differences.
    """

    places: Mapping[tuple[int, str], int]
    nodes: dict[str, list[Any]] = field(default_factory=dict)
    leaves: dict[str, list[Any]] = field(default_factory=dict)
    middles: list[float] = field(default_factory=list)

    def add_tree(self, root: dict[str, Any], target: int) -> None:
        """Add a tree of `lightgbm.Booster.dump_model`, whose leaves are values of a target."""
        each = [*_walk(root)]
        values = [node["leaf_value"] for node in each if "leaf_value" in node]
        middle = (min(values) + max(values)) / 2
        tree, numbers = len(self.middles), {id(node): number for number, node in enumerate(each)}
        self.middles.append(middle)
        for number, node in enumerate(each):
            is_leaf = "leaf_value" in node
            feature, threshold = (0, 0.0) if is_leaf else self._split(node)
            _append(
                self.nodes,
                treeids=tree,
                nodeids=number,
                featureids=feature,
                values=threshold,
                modes="LEAF" if is_leaf else "BRANCH_LEQ",
                truenodeids=0 if is_leaf else numbers[id(node["left_child"])],
                falsenodeids=0 if is_leaf else numbers[id(node["right_child"])],
            )
            if is_leaf:
                _append(
                    self.leaves, treeids=tree, nodeids=number, ids=target, weights=node["leaf_value"] - middle
                )

    def _split(self, node: dict[str, Any]) -> tuple[int, float]:
        """Return the feature of a node, and what it is at most to the left."""
        if _is_set(node):
            return self.places[node["split_feature"], node["threshold"]], 0.5
        return node["split_feature"], float32_threshold(node["threshold"])


def _is_set(node: dict[str, Any]) -> bool:
    return node.get("decision_type") == "=="


def _walk(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes of a tree, the root first."""
    found = [root]
    for node in found:
        found += [node[side] for side in ("left_child", "right_child") if side in node]
    return found


def _append(lists: dict[str, list[Any]], **values: Any) -> None:
    for name, value in values.items():
        lists.setdefault(name, []).append(value)


def float32_threshold(threshold: float) -> float:
    """Return the float32 that every float32 is at most if and only if LightGBM finds it at most a threshold:
    the largest that is not above it. LightGBM reads numbers up to `ZERO` from 0 as 0.
    """
    if abs(threshold) <= ZERO:
        return ZERO if threshold >= 0 else float(np.nextafter(np.float32(-ZERO), np.float32(-np.inf)))
    with np.errstate(over="ignore"):
        nearest = np.float32(threshold)
    return float(np.nextafter(nearest, np.float32(-np.inf)) if float(nearest) > threshold else nearest)


def add_forest(graph: OnnxGraph, encoding: Encoding, weights: bytes) -> str:
    """Add the predictions of a stored forest; return their name."""
    booster, tables = read_forest(weights)
    if booster is None:
        return graph.predictions(graph.repeated(prior_scores(encoding, 1)[0], encoding), encoding)
    targets, trees = outputs(encoding), [each["tree_structure"] for each in booster.dump_model()["tree_info"]]
    sets = sorted(
        {
            (node["split_feature"], node["threshold"])
            for root in trees
            for node in _walk(root)
            if _is_set(node)
        }
    )
    first = booster.num_feature() - len(tables.by_code)
    forest = TreeNodes({each: first + at for at, each in enumerate(sets)})
    for number, root in enumerate(trees):
        forest.add_tree(root, number % targets)
    middle_K = [sum(forest.middles[target::targets]) for target in range(targets)]
    if not any("split_feature" in root for root in trees):
        return graph.predictions(graph.repeated(np.array(middle_K), encoding), encoding)
    sets_of = [[text for feature, text in sets if feature == first + at] for at in range(len(tables.by_code))]
    sums_BK = graph.add(
        "TreeEnsembleRegressor",
        _features(graph, encoding, tables, sets_of),
        domain="ai.onnx.ml",
        n_targets=targets,
        **{f"nodes_{name}": values for name, values in forest.nodes.items()},
        **{f"target_{name}": values for name, values in forest.leaves.items()},
    )
    scores_BK = graph.scaled(graph.cast(sums_BK, "float64"), 1.0, middle_K)
    return graph.predictions(scores_BK, encoding)


def _features(
    graph: OnnxGraph, encoding: Encoding, tables: CategoryTables, sets: Sequence[Sequence[str]]
) -> str:
    """Add what trees read, float32: as `CategoryTables.features`, with the sets of each category of `by_code`
    instead of its codes."""
    parts = [
        graph.add("Gather", graph.constant(table_VK, np.float32), graph.column(CODE, at))
        for at, table_VK in enumerate(tables.tables)
        if table_VK.shape[1]
    ]
    if len(encoding.features) > len(tables.tables):
        parts.append(NUMBER)
    for at, texts in zip(tables.by_code, sets, strict=True):
        if texts:
            outside_VS = np.ones((len(tables.tables[at]), len(texts)))
            for column, text in enumerate(texts):
                outside_VS[[int(code) for code in text.split("||")], column] = 0
            parts.append(graph.add("Gather", graph.constant(outside_VS, np.float32), graph.column(CODE, at)))
    return graph.add("Concat", *parts, axis=1)
