"""The report's tables of what moved while stages ran, prices and what a stage changed of itself, and of what they used beside money."""

from __future__ import annotations

from itertools import pairwise

from shoestring.core.record import utc_text
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Html, table
from shoestring.reporting.run_story import Attempt, RunStory
from shoestring.routing.policy.migration import MIGRATION_COLUMNS, migration_table

HEADS = (("Attempt", "name"), ("At", ""), ("What", ""), ("Before", ""), ("After", ""), ("Why", "why"))

Row = tuple[str, str, str, str, str, str]


def changes_table(story: RunStory) -> Html | None:
    """None where nothing moved."""
    rows = [row for attempt in story.attempts for row in attempt_changes(attempt)]
    caption = (
        "What moved while a stage ran: its price, and what it changed of itself to stay inside its money."
    )
    return table(caption, HEADS, rows, class_="stack") if rows else None


def attempt_changes(attempt: Attempt) -> list[Row]:
    """In the order in which they came; by the receipt, and before there is one by the last heartbeat."""
    said = attempt.receipt or attempt.heartbeat
    if said is None:
        return []
    # An attempt that went on from another's checkpoint tells that one's changes again.
    began = said.started_at
    why = "the world's prices said so; on this market a pod pays the price of the moment"
    moved = [
        (
            after.at,
            (
                attempt.key,
                utc_text(after.at),
                "price",
                number_text.hourly(before.usd_per_hour),
                number_text.hourly(after.usd_per_hour),
                why,
            ),
        )
        for before, after in pairwise(said.prices)
    ]
    changed = [
        (change.at, (attempt.key, utc_text(change.at), change.lever, change.before, change.after, change.reason))
        for change in said.changes
        if change.at >= began
    ]
    return [row for _, row in sorted([*moved, *changed], key=lambda found: found[0])]


def migration_checks_table(story: RunStory) -> Html | None:
    """The last look of each attempt at where it ran: the place that it was held against, and why it stayed or was moved."""
    rows: list[tuple[str, ...]] = []
    for attempt in story.attempts:
        if attempt.look is not None:
            grid = migration_table(attempt.look)
            rows += [
                (attempt.key, *row, grid.note if number == 0 else "") for number, row in enumerate(grid.rows)
            ]
    said = ((number_text.capital(name), "n" if number else "") for number, name in enumerate(MIGRATION_COLUMNS))
    heads = (("Attempt", "name"), *said, ("Verdict", "why"))
    caption = "Where an attempt ran, at its last second look, and where a router would have had it go on."
    return table(caption, heads, rows, class_="stack") if rows else None


USED_HEADS = (("Stage", "name"), ("Joules", "n"), ("Core-minutes", "n"), ("CO2, g", "n"))


def resources_table(story: RunStory) -> Html | None:
    """Beside money, all attempts together. None where nothing was."""
    rows: list[tuple[str, str, str, str]] = []
    for stage in story.stages:
        used = [said.usage for attempt in stage.attempts if (said := attempt.receipt or attempt.heartbeat)]
        if not any(each.joules for each in used):
            continue
        grams = [each.co2_g for each in used if each.co2_g is not None]
        minutes = f"{sum(each.core_minutes for each in used):,.2f}"
        rows.append(
            (
                stage.name,
                f"{sum(each.joules for each in used):,.0f}",
                minutes,
                f"{sum(grams):,.3f}" if grams else "grid not known",
            )
        )
    caption = "What stages used beside money. Joules are reckoned: watts by the cores in use, GPUs by their own count or as if busy."
    return table(caption, USED_HEADS, rows, class_="stack") if rows else None
