"""The report's tables of changes during stages: prices, adaptations, migration checks and resource usage."""

from __future__ import annotations

from itertools import pairwise

from shoestring.core.attempt_id import declared_stage
from shoestring.core.receipt import GpuUse, ResourceUsage
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
GPU_HEADS = (("GPU busy", "n"), ("GPU memory, peak", "n"), ("Moved to GPU", "n"), ("GPU watts", "n"))


def resources_table(story: RunStory) -> Html | None:
    """Return energy and compute by stage, all attempts together, or None if none was recorded.

    CO2 has a column only where the grid's carbon is declared, GPUs where they were read.
    """
    uses = {declared_stage(stage.name): use for stage in story.stages if (use := last_gpu_use(stage))}
    usages: dict[str, list[ResourceUsage]] = {}
    for stage in story.stages:
        usages.setdefault(declared_stage(stage.name), []).extend(stage_usage(stage))
    used = {name: found for name, found in usages.items() if any(each.joules for each in found)}
    has_carbon = any(each.co2_g is not None for found in used.values() for each in found)
    rows: list[tuple[object, ...]] = []
    for name, found in used.items():
        grams = [each.co2_g for each in found if each.co2_g is not None]
        joules, core_minutes = sum(each.joules for each in found), sum(each.core_minutes for each in found)
        carbon = (f"{sum(grams):,.3f}" if grams else None,) * has_carbon
        gpus = _gpu_cells(uses.get(name)) if uses else ()
        rows.append((name, f"{joules:,.0f}", f"{core_minutes:,.2f}", *carbon, *gpus))
    caption = (
        "Energy by stage. Joules are estimated: declared watts times the busy cores; GPUs by their own "
        "counters, or as if busy." + " Of GPUs: the last attempt of a stage." * bool(uses)
    )
    heads = (*RESOURCE_HEADS, *(CARBON_HEAD,) * has_carbon, *(GPU_HEADS if uses else ()))
    return table(caption, heads, rows, class_="stack") if rows else None


def last_gpu_use(stage: StageStory) -> GpuUse | None:
    """Return the use of GPUs by the last attempt that read them."""
    records = [attempt.receipt or attempt.heartbeat for attempt in stage.attempts]
    return next((each.gpu for each in reversed(records) if each and each.gpu), None)


def _gpu_cells(use: GpuUse | None) -> tuple[str | None, ...]:
    if use is None:
        return (None,) * len(GPU_HEADS)
    return (
        None if use.busy is None else number_text.percent(use.busy),
        f"{use.peak_memory_bytes / 1e9:,.1f} of {use.memory_bytes / 1e9:,.1f} GB",
        None if use.received_bytes is None else f"{use.received_bytes / 1e9:,.1f} GB",
        None if use.watts is None else f"{use.watts:,.0f}",
    )


def stage_usage(stage: StageStory) -> list[ResourceUsage]:
    """Return the usage of each attempt of a stage, from its receipt or else its last heartbeat."""
    records = (attempt.receipt or attempt.heartbeat for attempt in stage.attempts)
    return [record.usage for record in records if record]
