"""The report's look back: what was expected of what was done, and where the money went."""

from __future__ import annotations

from shoestring.reporting import number_text
from shoestring.reporting.actuals import ActualsGroup, actuals
from shoestring.reporting.hindsight_report import build_hindsight_report
from shoestring.reporting.html.markup import Head, Html, table, tag, text
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.terminal_text import BLAME
from shoestring.routing.analysis.hindsight import CounterfactualOffer, Hindsight
from shoestring.routing.pages.text import lying

ACTUAL_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Expected", "n"),
    ("Actual", "n"),
    ("Actual / expected", "n"),
    ("Paid", "n"),
    ("Start-up", "n"),
    ("Idle cores", "n"),
    ("Lost", "n"),
    ("In use", "n"),
)
HINDSIGHT_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Paid", "n"),
    ("Taken", "place"),
    ("Best", "place"),
    ("Regret", "n"),
    ("To blame", "said"),
)


def actuals_table(story: RunStory) -> Html | None:
    """A row a stage that was paid for; None before the first is."""
    found = actuals(story.charges, ("stage",))
    order = {stage.name: number for number, stage in enumerate(story.stages)}
    groups = sorted(found.groups, key=lambda each: order.get(each.group["stage"], len(order)))
    if not found.total.attempts:
        return None
    caption = "Expected of the work that was done, beside what was paid for it; and what was paid while nothing was computed."
    rows = [
        _row(number_text.capital(each.group["stage"]) if each.overhead_usd else each.group["stage"], each)
        for each in groups
    ]
    return text(
        table(caption, ACTUAL_HEADS, rows, totals=[_row("Whole run", found.total)], class_="stack"),
        tag("p", _note(found.total), class_="note"),
    )


def hindsight_table(story: RunStory) -> Html | None:
    """A row a choice: what was paid, the best road by what is known now, and why it was not taken. None while nothing is done."""
    found = build_hindsight_report(story.charges, {})
    if not found.choices:
        return None
    caption = "Each choice beside the best that could have been made, by what its stages turned out to take, at the prices of then."
    total = (
        "Whole run",
        number_text.dollars(found.paid_usd),
        None,
        None,
        number_text.dollars(found.regret_usd),
        None,
    )
    return table(
        caption, HINDSIGHT_HEADS, [_choice(each) for each in found.each], totals=[total], class_="stack"
    )


def _choice(each: Hindsight) -> tuple[object, ...]:
    taken, best = (next(road for road in each.offers if getattr(road, name)) for name in ("selected", "best"))
    number = tag("small", f"attempt {each.attempt}") if each.attempt > 1 else None
    why = (
        number_text.sentence(BLAME[each.main_cause])
        if each.main_cause
        else "Nothing would have been cheaper."
    )
    return (
        text(each.stage, number),
        number_text.dollars(each.paid_usd),
        _where(taken),
        _where(best),
        number_text.dollars(each.regret_usd),
        why,
    )


def _where(road: CounterfactualOffer) -> Html:
    return text(
        road.pool,
        tag("small", road.market, f", {lying(road.format, road.storage_class)}" if road.format else None),
    )


def _row(name: str, each: ActualsGroup) -> tuple[object, ...]:
    idle = each.idle
    many = (
        tag("small", number_text.things(each.attempts, "attempt"))
        if each.group and each.attempts > 1
        else None
    )
    return (
        text(name, many),
        number_text.dollars(each.est_usd) if each.compared else None,
        number_text.dollars(each.actual_usd) if each.compared else None,
        f"{each.actual_usd / each.est_usd:.2f}" if each.est_usd else None,
        number_text.dollars(each.paid_usd),
        *(number_text.dollars(amount) for amount in (idle.startup_usd, idle.cores_usd, idle.lost_usd)),
        None if each.use is None else number_text.share(each.use),
    )


def _note(total: ActualsGroup) -> str:
    idle_usd = total.idle.startup_usd + total.idle.cores_usd + total.idle.lost_usd
    part = number_text.share(float(idle_usd / total.paid_usd)) if total.paid_usd else "0%"
    kept = total.reserved_usd - total.paid_usd
    return f"{number_text.dollars(idle_usd)} idle, {part} of what was paid; {number_text.dollars(kept)} was set aside beyond it, and handed back."
