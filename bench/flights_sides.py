"""The two trainings of bench/flights_days.py. Each runs in a process that imports its own library alone.

python bench/flights_sides.py shoestring FOLDER FOLD DATA_KEY
python bench/flights_sides.py boosting FOLDER FOLD days|rows
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoestring.data.recipe import Recipe

LIMIT_USD = "0.002"
"""About what the route step grants the training of the recipe's $0.003: 180 s of a core at $0.04 an hour."""


def fold_recipe(fold: int) -> Recipe:
    """Return the recipe of the flights, whose seed draws the days of a fold."""
    from shoestring.data.recipe_files import find_recipe

    return find_recipe("flights").model_copy(update={"seed": fold})


def train_shoestring(folder: Path, fold: int, data_key: str) -> str:
    """Train the family that `auto` prefers; return the key of the model's record."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from stage_work import stage_work

    from shoestring.data.storage.blobs import load_manifest
    from shoestring.stages import train

    recipe = fold_recipe(fold)
    recipe = recipe.with_family(recipe.families[0].family)
    work = stage_work(
        folder, recipe, "train", run_id=f"fold-{fold}", seed=fold, limit_usd=LIMIT_USD, data=data_key
    )
    planned = recipe.train.most_epochs() * load_manifest(work.store, data_key).rows
    return train.run(replace(work, format=None, planned_samples=planned)).key


def train_boosting(folder: Path, fold: int, validation: str) -> str:
    """Fit scikit-learn's boosting to the file of a fold; return the path of the pickled model.

    `validation`: `days`, the rows of the fold's validation days; `rows`, as many drawn from all its days.
    """
    import pandas as pd
    from sklearn_boosting import fit, with_categories

    rows = with_categories(pd.read_parquet(rows_file(folder, fold)))
    y, is_validation = rows.pop("y"), rows.pop("is_validation").to_numpy()
    if validation == "rows":
        share = float(is_validation.mean())
        model = fit(rows, y, is_classifier=True, seed=fold, validation=share)
    else:
        own = (rows[is_validation], y[is_validation])
        model = fit(rows[~is_validation], y[~is_validation], is_classifier=True, seed=fold, validation=own)
    path = folder / f"boosting-{fold}"
    path.write_bytes(pickle.dumps(model))
    return str(path)


def rows_file(folder: Path, fold: int) -> Path:
    """Return the file of the rows of train and validation: the raw features, categories as text, `y` and
    `is_validation`."""
    return folder / f"rows-{fold}.parquet"


def main() -> None:
    if len(sys.argv) == 1:
        print("it is started by flights_days.py")
        return
    side, folder, fold, last = sys.argv[1:]
    if side == "shoestring":
        print(train_shoestring(Path(folder), int(fold), last))
    else:
        print(train_boosting(Path(folder), int(fold), last))


if __name__ == "__main__":
    main()
