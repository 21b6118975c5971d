"""The peer of several benches: scikit-learn's gradient boosting on raw columns, with early stopping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

MAX_ROUNDS = 1000
MOST_CATEGORIES = 255
"""More categories in a column are refused by scikit-learn."""


def with_categories(inputs: Any) -> Any:
    """Return a frame whose columns are numbers and categories: of a column with too many, the most frequent
    ones keep their values, and the others share one."""
    found = inputs.copy()
    for name in found.columns:
        if not pd.api.types.is_numeric_dtype(found[name]):
            found[name] = found[name].astype("category")
            if found[name].nunique() > MOST_CATEGORIES:
                kept = found[name].value_counts().index[: MOST_CATEGORIES - 1]
                texts = found[name].astype(object)
                found[name] = texts.where(found[name].isin(kept), "other").astype("category")
    return found


def fit(
    inputs: Any, y: Any, *, is_classifier: bool, seed: int, validation: tuple[Any, Any] | float = 0.1
) -> Any:
    """Return a fitted model. `validation`: the inputs and targets that early stopping validates on, or the
    share of the rows given that it draws at random."""
    kind = HistGradientBoostingClassifier if is_classifier else HistGradientBoostingRegressor
    model = kind(
        max_iter=MAX_ROUNDS,
        early_stopping=True,
        categorical_features="from_dtype",
        random_state=seed,
    )
    if isinstance(validation, float):
        return model.set_params(validation_fraction=validation).fit(inputs, y)
    return model.fit(inputs, y, X_val=validation[0], y_val=validation[1])


def row_log_losses(model: Any, inputs: Any, y: Any) -> Any:
    """Return the log loss of each row: float64[rows]. A class that the model does not know has probability
    0."""
    at = {code: place for place, code in enumerate(model.classes_)}
    places = np.array([at.get(code, -1) for code in y])
    chosen = model.predict_proba(inputs)[np.arange(len(places)), places]
    return log_losses(np.where(places < 0, 0, chosen))


def log_losses(probabilities: Any) -> Any:
    """Return the log losses of the probabilities of the classes that are right, at least 1e-7."""
    return -np.log(np.clip(probabilities, 1e-7, 1))
