"""The report's tables of actuals and hindsight."""

from __future__ import annotations

from shoestring.core.attempt_id import declared_stage, item_of
from shoestring.reporting import number_text
from shoestring.reporting.actuals import ActualsGroup, compute_actuals
from shoestring.reporting.hindsight_report import build_hindsight_report
from shoestring.reporting.html.markup import Head, Html, Row, table, tag, text
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.terminal_text import verdict_text
from shoestring.routing.analysis.hindsight import CounterfactualOffer, Hindsight
from shoestring.routing.candidates import format_text

ACTUAL_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Expected", "n"),
    ("Actual", "n"),
    ("Actual / expected", "n"),
    ("Paid", "n"),
    ("Start-up", "n"),
    ("Idle", "n"),
    ("Lost", "n"),
    ("Core use", "n"),
)
HINDSIGHT_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Paid", "n"),
    ("Chosen", "place"),
    ("Best", "place"),
    ("Regret", "n"),
    ("In hindsight", "full"),
)


def actuals_table(story: RunStory) -> Html | None:
    """Return a row per paid stage, or None before the first."""
    found = compute_actuals(story.charges, ("stage",))
    order = {declared_stage(stage.name): number for number, stage in enumerate(story.stages)}
    groups = sorted(found.groups, key=lambda each: order.get(each.group["stage"], len(order)))
    if not found.total.attempts:
        return None
    caption = "Expected and actual cost of the work done, and the dollars that bought no computation."
    rows = [
        _row(number_text.capitalized(each.group["stage"]) if each.overhead_usd else each.group["stage"], each)
        for each in groups
    ]
    return text(
        table(caption, ACTUAL_HEADS, rows, totals=[_row("Whole run", found.total)], class_="stack"),
        tag("p", _note(found.total), class_="note"),
    )


def hindsight_table(story: RunStory) -> Html | None:
    """Return a row per choice: the cost, the best alternative in hindsight, and the cause of the regret.

    None while nothing is done.
    """
    found = build_hindsight_report(story.charges, {})
    if not found.choice_count:
        return None
    caption = (
        "Each choice compared with the best one, by the actual costs of its stages and the prices of the "
        "time."
    )
    total = (
        "Whole run",
        number_text.dollars(found.paid_usd),
        None,
        None,
        number_text.dollars(found.regret_usd),
        None,
    )
    loops: dict[str, list[Row]] = {}
    for each in found.choices:
        loops.setdefault(declared_stage(each.stage) if item_of(each.stage) else "", []).append(_choice(each))
    whole = table(caption, HINDSIGHT_HEADS, loops.pop("", []), totals=[total], class_="stack")
    return text(whole, *(_choices_of_items(name, rows) for name, rows in loops.items()))


def _choices_of_items(name: str, rows: list[Row]) -> Html:
    summary = f"{number_text.quantity(len(rows), 'choice')} for items of {name}"
    made = table(f"Each choice for an item of {name}.", HINDSIGHT_HEADS, rows, class_="stack")
    return tag("details", tag("summary", summary), made)


def _choice(each: Hindsight) -> tuple[object, ...]:
    taken, best = (
        next(option for option in each.offers if getattr(option, name)) for name in ("selected", "best")
    )
    number = tag("small", f"attempt {each.attempt}") if each.attempt > 1 else None
    return (
        text(each.stage, number),
        number_text.dollars(each.paid_usd),
        _target_cell(taken),
        _target_cell(best),
        number_text.dollars(each.regret_usd),
        number_text.as_sentence(verdict_text(each)),
    )


def _target_cell(option: CounterfactualOffer) -> Html:
    return text(
        option.pool,
        tag(
            "small",
            option.market,
            f", {format_text(option.format, option.storage_class)}" if option.format else None,
        ),
    )


def _row(name: str, each: ActualsGroup) -> tuple[object, ...]:
    idle = each.idle
    attempts_note = (
        tag("small", number_text.quantity(each.attempts, "attempt"))
        if each.group and each.attempts > 1
        else None
    )
    return (
        text(name, attempts_note),
        number_text.dollars(each.est_usd) if each.compared else None,
        number_text.dollars(each.actual_usd) if each.compared else None,
        f"{each.actual_usd / each.est_usd:.2f}" if each.est_usd else None,
        number_text.dollars(each.paid_usd),
        *(number_text.dollars(amount) for amount in (idle.startup_usd, idle.unused_usd, idle.lost_usd)),
        None if each.core_utilization is None else number_text.percent(each.core_utilization),
    )


def _note(total: ActualsGroup) -> str:
    idle_usd = total.idle.startup_usd + total.idle.unused_usd + total.idle.lost_usd
    part = number_text.percent(float(idle_usd / total.paid_usd)) if total.paid_usd else "0%"
    return f"{number_text.dollars(idle_usd)} idle, {part} of the cost."
