"""What the books say, as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from shoestring.reporting import words
from shoestring.reporting.actuals import Actual, Actuals
from shoestring.routing.grid import Grid, text_lines

NOTHING = "-"


def actuals_text(found: Actuals) -> str:
    if not found.total.attempts:
        return "\n".join(["nothing was settled in that time", *found.notes])
    names = found.by
    head = (*names, "n", "compared", "expected", "actual", "ratio", "off by", "over P95")
    off = Grid(
        "Estimate against actual, of what was done",
        head,
        [(*_keys(each, names), *_errors(each)) for each in _and_total(found)],
        frozenset(head[len(names) :]),
        "ratio: median of actual over estimate; off by: mean of |actual - estimate| / actual",
    )
    head = (*names, "paid", "computing", "start-up", "idle cores", "lost", "overhead", "in use", "+-")
    idle = Grid(
        "Where the money went",
        head,
        [(*_keys(each, names), *_money(each)) for each in _and_total(found)],
        frozenset(head[len(names) :]),
        "in use: share of an attempt's core-seconds in which it computed, and its standard deviation",
    )
    return "\n".join([*text_lines(off), "", *text_lines(idle), *found.notes])


def _and_total(found: Actuals) -> Iterable[Actual]:
    return (*found.groups, found.total) if found.groups else (found.total,)


def _keys(each: Actual, names: Iterable[str]) -> tuple[str, ...]:
    if not each.group:
        return tuple("all" if index == 0 else "" for index, _ in enumerate(names))
    return tuple(each.group[name] or NOTHING for name in names)


def _errors(each: Actual) -> tuple[str, ...]:
    ratio = NOTHING if each.median_ratio is None else f"{each.median_ratio:.2f}"
    return (
        words.count(each.attempts),
        words.count(each.compared),
        *(words.dollars(amount) if each.compared else NOTHING for amount in (each.est_usd, each.actual_usd)),
        ratio,
        share(each.mape),
        share(each.over_p95),
    )


def _money(each: Actual) -> tuple[str, ...]:
    idle = each.idle
    amounts = (each.paid_usd, each.computing_usd, idle.startup_usd, idle.cores_usd, idle.lost_usd, each.overhead_usd)
    deviation = None if each.use_variance is None else float(Decimal(str(each.use_variance)).sqrt())
    return (*map(words.dollars, amounts), share(each.use), share(deviation))


def share(value: float | None) -> str:
    """`71.6%`; a dash where nobody knows."""
    return NOTHING if value is None else words.share(value) if value < 1 else f"{100 * value:.0f}%"
