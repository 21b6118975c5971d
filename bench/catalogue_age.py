"""Measure the extra cost of decisions with a price list that is N months old, on three and a half years of
Google Cloud's real prices.

python bench/catalogue_age.py [--out curve.svg] [--seed 0]

A decision takes the machine and market (of one region, or of all) with the lowest dollars per token for a
model, by measured training throughputs on 8 GPUs. It uses the prices of N months before and pays those of the
day.

extra cost   paid over the lowest price of that day among the offers in both lists, minus 1. New offers do not
             count, because the recording learned of spot prices and of machines at dates of its own.
error        |paid over the old list's price, minus 1|: the error of a budget that uses the old list

Both are means over days x models (x regions), with the 95% interval from resampling whole days 2,000 times,
and the P95.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from machine import describe
from traces import trace

from shoestring.pricing.validation import MIN_REGION_RATIO, MIN_REGIONS

Floats = npt.NDArray[np.float64]

MACHINES = {"a2-highgpu-8g": "a100_40gb", "a2-ultragpu-8g": "a100_80gb", "a3-highgpu-8g": "h100_80gb"}
MONTHS = (0, 1, 2, 3, 6, 9, 12, 18)
DAYS = [
    date(year, month, 1)
    for year in (2023, 2024, 2025)
    for month in range(1, 13)
    if date(2023, 9, 1) <= date(year, month, 1) <= date(2025, 8, 30)
]
DRAWS = 2000
MONTH_DAYS = 30.4375


def throughputs() -> dict[str, dict[str, float]]:
    """Return tokens/s of one GPU, by model and GPU: the median of its runs, for models that ran on two GPU
    types or more.
    """
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    with trace("throughput/llm_foundry.csv").open() as file:
        for row in csv.DictReader(file):
            if row["sequence_length"] == "2048":
                runs[row["model"], row["gpu"]].append(float(row["tokens_per_second_per_gpu"]))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (model, gpu), rates in runs.items():
        found[model][gpu] = median(rates)
    return {model: rates for model, rates in sorted(found.items()) if len(rates) > 1}


class History:
    """The prices by day: dollars an hour of each (region, machine, market), NaN before it was sold."""

    def __init__(self, path: Path) -> None:
        changes: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                if row["machine_type"] in MACHINES:
                    day = date.fromisoformat(row["from_date"]).toordinal()
                    changes[row["region"], row["machine_type"], row["market"]].append(
                        (day, float(row["usd_per_hour"]))
                    )
        self.offers = sorted(changes)
        self._series = [
            tuple(map(np.array, zip(*sorted(changes[offer]), strict=True))) for offer in self.offers
        ]

    def on(self, day: float) -> Floats:
        """Return the accepted prices of the list of that day.

        Rejected are spot prices not below on-demand, and machines below half the median price of their
        regions.
        """
        prices = np.full(len(self.offers), np.nan)
        for index, (days, usd) in enumerate(self._series):
            if (at := np.searchsorted(days, day, side="right") - 1) >= 0:
                prices[index] = usd[at]
        for index, (region, machine, market) in enumerate(self.offers):
            if market == "spot" and (region, machine, "on-demand") in self.offers:
                above = prices[self.offers.index((region, machine, "on-demand"))]
                prices[index] = np.nan if prices[index] >= above else prices[index]
        for machine in MACHINES:
            on_demand = [
                index for index, offer in enumerate(self.offers) if offer[1:] == (machine, "on-demand")
            ]
            if np.isfinite(prices[on_demand]).sum() >= MIN_REGIONS:
                lowest = float(MIN_REGION_RATIO) * np.nanmedian(prices[on_demand])
                outliers = {self.offers[index][0] for index in on_demand if prices[index] < lowest}
                prices[
                    [
                        index
                        for index, offer in enumerate(self.offers)
                        if offer[0] in outliers and offer[1] == machine
                    ]
                ] = np.nan
        return prices


def decided(
    history: History, rates: dict[str, float], groups: list[npt.NDArray[np.int64]], old: Floats, now: Floats
) -> list[tuple[float, float]]:
    """Return (extra cost, error) of the decision in each group with two or more offers in both lists."""
    speed = np.array([rates.get(MACHINES[machine], np.nan) for _, machine, _ in history.offers])
    found = []
    for group in groups:
        expected, paid = (old / speed)[group], (now / speed)[group]
        usable = np.isfinite(expected) & np.isfinite(paid)
        if usable.sum() < 2:
            continue
        taken = int(np.nanargmin(np.where(usable, expected, np.nan)))
        found.append(
            (float(paid[taken] / np.min(paid[usable]) - 1), float(abs(paid[taken] / expected[taken] - 1)))
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="SVG file for the chart")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    history, models, draw = (
        History(trace("gcp-prices/changes.csv.gz")),
        throughputs(),
        np.random.default_rng(options.seed),
    )
    regions = sorted({region for region, _, _ in history.offers})
    one = [
        np.array([index for index, offer in enumerate(history.offers) if offer[0] == region])
        for region in regions
    ]
    scopes = {"any region": [np.arange(len(history.offers))], "one region": one}
    print(describe())
    print(f"{len(DAYS)} days x {len(models)} models x {len(regions)} regions, {len(history.offers)} offers")
    print(
        f"{'scope':<11} {'months':>6} {'decisions':>9} {'extra':>7} {'interval':>15} {'P95':>7} "
        f"{'worse':>6} {'error':>8} {'P95':>7}"
    )
    curves = {
        scope: [row(history, models, groups, scope, months, draw) for months in MONTHS]
        for scope, groups in scopes.items()
    }
    if options.out:
        options.out.write_text(svg(curves), encoding="utf-8")
        print(f"drawn: {options.out}")


def row(
    history: History,
    models: dict[str, dict[str, float]],
    groups: list[npt.NDArray[np.int64]],
    scope: str,
    months: int,
    draw: np.random.Generator,
) -> tuple[float, float, float]:
    """Print one line of the table. Returns the mean extra cost and its interval."""
    days: list[list[tuple[float, float]]] = []
    for day in DAYS:
        old, now = history.on(day.toordinal() - months * MONTH_DAYS), history.on(day.toordinal())
        days.append([each for rates in models.values() for each in decided(history, rates, groups, old, now)])
    days = [each for each in days if each]
    sums = np.array([[sum(extra for extra, _ in each), len(each)] for each in days])
    picked = sums[draw.integers(len(days), size=(DRAWS, len(days)))].sum(axis=1)
    low, high = np.quantile(picked[:, 0] / picked[:, 1], (0.025, 0.975))
    extra, error = np.array([each for day in days for each in day]).T
    print(
        f"{scope:<11} {months:>6} {len(extra):>9,} {extra.mean():>7.1%} {f'{low:.1%} to {high:.1%}':>15} "
        f"{np.quantile(extra, 0.95):>7.1%} {(extra > 1e-9).mean():>6.1%} "
        f"{error.mean():>8.1%} {np.quantile(error, 0.95):>7.1%}"
    )
    return float(extra.mean()), float(low), float(high)


def svg(curves: dict[str, list[tuple[float, float, float]]]) -> str:
    """Return a chart of the mean extra cost and its interval by months, one line per scope."""
    wide, tall, edge = 640, 400, 60
    top = max(high for points in curves.values() for _, _, high in points) * 1.1 or 1.0

    def at(months: float, share: float) -> str:
        x, y = months / MONTHS[-1] * (wide - 2 * edge), share / top * (tall - 2 * edge)
        return f"{edge + x:.1f},{tall - edge - y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" '
        'font-family="sans-serif" font-size="13">'
    ]
    parts.append(
        f'<text x="{edge}" y="24">extra cost by age of the price list in months (mean, 95% interval)</text>'
    )
    for months in MONTHS:
        x, _, y = at(months, 0).partition(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{months}</text>')
    for share in np.linspace(0, top, 5):
        x, _, y = at(0, share).partition(",")
        parts.append(f'<text x="{float(x) - 8}" y="{y}" text-anchor="end">{share:.0%}</text>')
    for (scope, points), colour in zip(curves.items(), ("#1565c0", "#c62828"), strict=True):
        band = [at(month, high) for month, (_, _, high) in zip(MONTHS, points, strict=True)]
        band += [at(month, low) for month, (_, low, _) in reversed(list(zip(MONTHS, points, strict=True)))]
        line = [at(month, mean) for month, (mean, _, _) in zip(MONTHS, points, strict=True)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>')
        parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, _, y = line[-1].partition(",")
        parts.append(f'<text x="{x}" y="{float(y) - 8}" text-anchor="end" fill="{colour}">{scope}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()
