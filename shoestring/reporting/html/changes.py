"""The report's tables of changes during stages: prices, adaptations, migration checks and resource usage."""

from __future__ import annotations

from itertools import pairwise

from shoestring.core.attempt_id import declared_stage
from shoestring.core.receipt import ResourceUsage
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Html, table
from shoestring.reporting.run_story import AttemptStory, RunStory, StageStory
from shoestring.routing.policy.migration import MIGRATION_COLUMNS, migration_table

HEADS = (("Attempt", "name"), ("At", ""), ("What", ""), ("Before", ""), ("After", ""), ("Reason", "reason"))

Row = tuple[str, str, str, str, str, str]


def changes_table(story: RunStory) -> Html | None:
    """Return the changes of all attempts, or None if nothing changed."""
    rows = [row for attempt in story.attempts for row in attempt_changes(attempt)]
    caption = "Changes while a stage ran: its price, and what it adapted to stay inside its budget."
    return table(caption, HEADS, rows, class_="stack") if rows else None


def attempt_changes(attempt: AttemptStory) -> list[Row]:
    """Return the changes of an attempt in order, from its receipt or else its last heartbeat."""
    record = attempt.receipt or attempt.heartbeat
    if record is None:
        return []
    # An attempt that continued from an earlier attempt's checkpoint repeats the changes of that attempt.
    started_at = record.started_at
    reason = "new price in the world; pods on this market pay the current price"
    price_changes = [
        (
            after.at,
            (
                attempt.key,
                number_text.utc_time(after.at),
                "price",
                number_text.hourly(before.usd_per_hour),
                number_text.hourly(after.usd_per_hour),
                reason,
            ),
        )
        for before, after in pairwise(record.prices)
    ]
    changed = [
        (change.at, (attempt.key, at, change.lever, change.before, change.after, change.reason))
        for change in record.changes
        if change.at >= started_at
        for at in [number_text.utc_time(change.at)]
    ]
    return [row for _, row in sorted([*price_changes, *changed], key=lambda found: found[0])]


def migration_checks_table(story: RunStory) -> Html | None:
    """Return the last migration check of each attempt: the alternative, and the verdict with its reason."""
    rows: list[tuple[str, ...]] = []
    for attempt in story.attempts:
        if attempt.migration_check is not None:
            checks = migration_table(attempt.migration_check)
            rows += [
                (attempt.key, *row, checks.note if number == 0 else "")
                for number, row in enumerate(checks.rows)
            ]
    columns = (
        (number_text.capitalized(name), "n" if number else "")
        for number, name in enumerate(MIGRATION_COLUMNS)
    )
    heads = (("Attempt", "name"), *columns, ("Verdict", "reason"))
    caption = "The last migration check of each attempt: where it ran, and the best alternative."
    return table(caption, heads, rows, class_="stack") if rows else None


RESOURCE_HEADS = (("Stage", "name"), ("Joules", "n"), ("Core-minutes", "n"))
CARBON_HEAD = ("CO2, g", "n")


def resources_table(story: RunStory) -> Html | None:
    """Return energy and compute by stage, all attempts together, or None if none was recorded.

    CO2 has a column only where the grid's carbon is declared.
    """
    usages: dict[str, list[ResourceUsage]] = {}
    for stage in story.stages:
        usages.setdefault(declared_stage(stage.name), []).extend(stage_usage(stage))
    used = {name: found for name, found in usages.items() if any(each.joules for each in found)}
    has_carbon = any(each.co2_g is not None for found in used.values() for each in found)
    rows: list[tuple[object, ...]] = []
    for name, found in used.items():
        grams = [each.co2_g for each in found if each.co2_g is not None]
        row = (
            name,
            f"{sum(each.joules for each in found):,.0f}",
            f"{sum(each.core_minutes for each in found):,.2f}",
        )
        rows.append((*row, f"{sum(grams):,.3f}" if grams else None) if has_carbon else row)
    caption = (
        "Energy by stage. Joules are estimated: declared watts times the busy cores; GPUs by their own "
        "counters, or as if busy."
    )
    heads = (*RESOURCE_HEADS, CARBON_HEAD) if has_carbon else RESOURCE_HEADS
    return table(caption, heads, rows, class_="stack") if rows else None


def stage_usage(stage: StageStory) -> list[ResourceUsage]:
    """Return the usage of each attempt of a stage, from its receipt or else its last heartbeat."""
    records = (attempt.receipt or attempt.heartbeat for attempt in stage.attempts)
    return [record.usage for record in records if record]
