"""The times on the page: a split by time, and local times next to UTC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.columns import SampleColumn
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.times.time_split import time_split, time_text

MIN_TIMES = 30
"""A column of dates spans time when it has at least this many different ones."""

MIN_DATED = 0.99
"""The share of rows that have a date, where a split by it is proposed."""

MAX_SHARE_OFF = 0.5
"""How far val or test may be from their share of the rows, as a part of it, before the page names it."""

MINUTE = 60e6
MAX_ZONE, ZONE_STEP = 14 * 60 * MINUTE, 30 * MINUTE
"""The largest distance of a local time from UTC, in microseconds, and what nearly all are a multiple of."""


def time_remarks(
    recipe: Recipe, samples: Mapping[str, TableSample], columns: Sequence[SampleColumn], warned: set[str]
) -> tuple[str, ...]:
    """Return what is to know of the times of a recipe's rows, a sentence each. `warned`: columns with a
    warning."""
    own = [each for each in columns if each.name in samples[recipe.main].rows.column_names]
    is_chosen = recipe.split.by or recipe.split.time or recipe.split_column
    proposed = [] if is_chosen else time_proposal(recipe, own, warned)
    return (*_boundaries(recipe, samples[recipe.main]), *proposed, *_local_beside_utc(columns))


def time_proposal(recipe: Recipe, columns: Sequence[SampleColumn], warned: set[str]) -> list[str]:
    """Return the sentence that proposes a split by time; none unless exactly one column dates the rows."""
    unused = {recipe.target.column, *recipe.leaks, *warned}
    dates = [each for each in columns if each.is_date and each.name not in unused]
    if len(dates) != 1 or len(dates[0].values) < MIN_TIMES or dates[0].filled.mean() < MIN_DATED:
        return []
    name, numbers = dates[0].name, dates[0].numbers
    assert numbers is not None
    first, last = (time_text(float(each), dates[0].kind) for each in (np.nanmin(numbers), np.nanmax(numbers)))
    return [
        f"rows have {name} from {first} to {last}: a model that will predict later rows is tested fairly by "
        f"`split: {{time: {name}}}`"
    ]


def _boundaries(recipe: Recipe, main: TableSample) -> Iterator[str]:
    """Yield where a split by time divides a table that was read whole, and the rows that it leaves out."""
    if not recipe.split.time or not main.is_whole:
        return
    try:
        found = time_split([main.rows], recipe)
    except (DataError, RecipeError):  # The page has it as its refusal.
        return
    val, test = found.rule.boundaries
    yield f"rows are split by {recipe.split.time}: val from {val} on, test from {test} on"
    dated = found.assign(found.with_time(main.rows))[0]
    for index, (split, share) in enumerate({"val": recipe.split.val, "test": recipe.split.test}.items(), 1):
        rows = int((dated == index).sum())
        if abs(rows / len(dated) - share) > MAX_SHARE_OFF * share:
            yield (
                f"{split} gets {rows:,} of {len(dated):,} rows, and not {share:.0%}, since many have the "
                f"same {recipe.split.time}: split by a finer column, or by `split.by`"
            )
    if found.left_out:
        yield f"{found.left_out:,} rows without {recipe.split.time} are left out"


def _local_beside_utc(columns: Sequence[SampleColumn]) -> Iterator[str]:
    """Yield each pair of a time without a zone and one with, whose distance is that of a time zone."""
    times = [each for each in columns if pa.types.is_timestamp(each.kind) and each.numbers is not None]
    for local, utc in product(times, times):
        if local.kind.tz is not None or utc.kind.tz is None:
            continue
        assert local.numbers is not None and utc.numbers is not None
        gaps = np.unique((local.numbers - utc.numbers)[local.filled & utc.filled])
        # Daylight saving time adds an hour for a part of the year.
        if not 0 < len(gaps) <= 2 or (gaps % ZONE_STEP).any() or np.ptp(gaps) > 60 * MINUTE:
            continue
        if not gaps.any() or np.abs(gaps).max() > MAX_ZONE:
            continue
        hours = " or ".join(f"{gap / (60 * MINUTE):+g}" for gap in gaps)
        yield (
            f"{local.name} seems to be the local time of {utc.name}, which is in UTC: {hours} hours; both "
            "stay as they are, and differences of the two are off by the zone"
        )
