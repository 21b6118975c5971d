"""A forest as a graph of ONNX.

Shape suffixes as in `features`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.training.families.boosted.forest import read_forest
from shoestring.training.families.onnx_graph import CODE, NUMBER, OnnxGraph
from shoestring.training.losses.scores import Array, outputs, prior_scores

ZERO = float(np.float32(1e-35))
"""`kZeroThreshold` of LightGBM's `meta.h`."""


@dataclass(slots=True)
class TreeNodes:
    """The nodes of all trees as ONNX has them: a list for each attribute of a node, or of a leaf's value.

    The runtime adds leaves in float32. The middle of each tree's leaves is therefore added apart, in float64:
    the values of a regression may be much larger than their differences.
    """

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
            _append(
                self.nodes,
                treeids=tree,
                nodeids=number,
                featureids=0 if is_leaf else node["split_feature"],
                values=0.0 if is_leaf else float32_threshold(node["threshold"]),
                modes="LEAF" if is_leaf else "BRANCH_LEQ",
                truenodeids=0 if is_leaf else numbers[id(node["left_child"])],
                falsenodeids=0 if is_leaf else numbers[id(node["right_child"])],
            )
            if is_leaf:
                _append(
                    self.leaves, treeids=tree, nodeids=number, ids=target, weights=node["leaf_value"] - middle
                )


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
    targets = outputs(encoding)
    forest = TreeNodes()
    trees = [each["tree_structure"] for each in booster.dump_model()["tree_info"]]
    for number, root in enumerate(trees):
        forest.add_tree(root, number % targets)
    middle_K = [sum(forest.middles[target::targets]) for target in range(targets)]
    sums_BK = graph.add(
        "TreeEnsembleRegressor",
        _features(graph, encoding, tables.tables),
        domain="ai.onnx.ml",
        n_targets=targets,
        **{f"nodes_{name}": values for name, values in forest.nodes.items()},
        **{f"target_{name}": values for name, values in forest.leaves.items()},
    )
    scores_BK = graph.scaled(graph.cast(sums_BK, "float64"), 1.0, middle_K)
    return graph.predictions(scores_BK, encoding)


def _features(graph: OnnxGraph, encoding: Encoding, tables: Sequence[Array]) -> str:
    """Add what trees read: float32[B, C * K + F]."""
    parts = [
        graph.add("Gather", graph.constant(table_VK, np.float32), graph.column(CODE, at))
        for at, table_VK in enumerate(tables)
    ]
    if len(encoding.features) > len(tables):
        parts.append(NUMBER)
    return graph.add("Concat", *parts, axis=1)
