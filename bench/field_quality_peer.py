"""The peer of bench/field_quality.py: boosting on the fields of skrub's TableVectorizer. It runs in an
environment with skrub, and without Shoestring.

python field_quality_peer.py FOLDER CLASSES
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from skrub import TableVectorizer

folder, classes = Path(sys.argv[1]), [name for name in sys.argv[2].split(",") if name]
rows = pd.read_parquet(folder / "peer.parquet")
y = rows.pop("_y")
split = rows.pop("_split")
if classes:
    kept = y.isin(classes)
    rows, split, y = rows[kept], split[kept], y[kept].map({name: code for code, name in enumerate(classes)})
train, val, test = (np.asarray(split == number) for number in range(3))
vectorizer = TableVectorizer()
inputs = vectorizer.fit_transform(rows[train], y[train])
kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
model = kind(max_iter=1000, early_stopping=True, n_iter_no_change=10, random_state=0)
model.fit(inputs, y[train], X_val=vectorizer.transform(rows[val]), y_val=y[val])
best = 1 + int(np.argmax(model.validation_score_[1:]))
stages = getattr(model, "staged_predict_proba", None) or model.staged_predict
*_, found = (each for each, _ in zip(stages(vectorizer.transform(rows[test])), range(best), strict=False))
np.save(folder / "peer.npy", found)
