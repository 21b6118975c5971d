"""Encoded rows on the thresholds of a forest, where one that rounds them otherwise takes another branch."""

from __future__ import annotations

import numpy as np

from shoestring.data.loading.samples import Samples
from shoestring.models.model import FittedModel
from shoestring.models.onnx_file import random_samples
from shoestring.training.families.boosted.family import CATEGORIES_FILE, FOREST_FILE, BoostedFamily
from shoestring.training.families.boosted.forest import read_forest
from shoestring.training.families.boosted.settings import BASELINE


def threshold_rows(model: FittedModel) -> Samples:
    """Return two random rows for each threshold of a number: with the largest float32 that is at most it, and
    with the next one. The forest is that of the model, or of a member."""
    files = model.folder.weights
    start = next(name for name in files if name.endswith(FOREST_FILE)).removesuffix(FOREST_FILE)
    own = {name: files[start + name] for name in (FOREST_FILE, CATEGORIES_FILE)}
    booster, tables = read_forest(BoostedFamily(BASELINE).from_files(own))
    categories = sum(table.shape[1] for table in tables.tables)
    nodes = booster.trees_to_dataframe()
    nodes = nodes[nodes["decision_type"] == "<="]
    places = nodes["split_feature"].map(booster.feature_name().index) - categories
    splits = sorted(each for each in {*zip(places, nodes["threshold"], strict=True)} if each[0] >= 0)
    samples = random_samples(model.encoding, 2 * len(splits))
    for row, (number, threshold) in enumerate(splits):
        below = np.float32(threshold)
        if float(below) > threshold:
            below = np.nextafter(below, np.float32(-np.inf))
        samples["number"][2 * row, number] = below
        samples["number"][2 * row + 1, number] = np.nextafter(below, np.float32(np.inf))
    return samples
