"""What the books say, as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from shoestring.reporting import number_text
from shoestring.reporting.actuals import Actuals, ActualsGroup
from shoestring.reporting.exports.reconcile import Reconciliation
from shoestring.reporting.hindsight_report import HindsightReport
from shoestring.routing.analysis.hindsight import Hindsight
from shoestring.routing.pages.text import lying, offer
from shoestring.routing.text_table import Grid, text_lines

NOTHING = "-"
MAX_OFFERS_SHOWN = 12
"""Roads that are shown of one choice; all are in the JSON."""

BLAME = {
    "work": "there was less or more to do than was foreseen, or the money and the time left did not allow it",
    "price": "the price was another",
    "speed": "the work took another time than was expected",
    "start-up": "starting up took another time than was expected",
    "preemption": "what was lost to preemption was not what was expected",
}


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
    head = (
        *names,
        "paid",
        "computing",
        "start-up",
        "idle cores",
        "lost",
        "moving",
        "storing",
        "overhead",
        "in use",
        "+-",
    )
    idle = Grid(
        "Where the money went",
        head,
        [(*_keys(each, names), *_money(each)) for each in _and_total(found)],
        frozenset(head[len(names) :]),
        "in use: share of an attempt's core-seconds in which it computed, and its standard deviation",
    )
    return "\n".join([*text_lines(off), "", *text_lines(idle), *found.notes])


def _and_total(found: Actuals) -> Iterable[ActualsGroup]:
    return (*found.groups, found.total) if found.groups else (found.total,)


def _keys(each: ActualsGroup, names: Iterable[str]) -> tuple[str, ...]:
    if not each.group:
        return tuple("all" if index == 0 else "" for index, _ in enumerate(names))
    return tuple(each.group[name] or NOTHING for name in names)


def _errors(each: ActualsGroup) -> tuple[str, ...]:
    ratio = NOTHING if each.median_ratio is None else f"{each.median_ratio:.2f}"
    return (
        number_text.count(each.attempts),
        number_text.count(each.compared),
        *(
            number_text.dollars(amount) if each.compared else NOTHING
            for amount in (each.est_usd, each.actual_usd)
        ),
        ratio,
        share(each.mape),
        share(each.over_p95),
    )


def _money(each: ActualsGroup) -> tuple[str, ...]:
    idle = each.idle
    time = (each.computing_usd, idle.startup_usd, idle.cores_usd, idle.lost_usd)
    amounts = (each.paid_usd, *time, each.moved_usd, each.stored_usd, each.overhead_usd)
    deviation = None if each.use_variance is None else float(Decimal(str(each.use_variance)).sqrt())
    return (*map(number_text.dollars, amounts), share(each.use), share(deviation))


def hindsight_text(found: HindsightReport) -> str:
    if not found.choices:
        return "\n".join(["there is no choice to look back on: nothing was done for money", *found.notes])
    lines: list[str] = []
    if len({each.run_id for each in found.each}) == 1:
        for each in found.each:
            lines += [*text_lines(alternatives_table(each)), f"  {number_text.sentence(verdict(each))}", ""]
    else:
        rows = [(name, number_text.dollars(usd)) for name, usd in found.by_stage.items()]
        lines += [*text_lines(Grid("Regret by stage", ("stage", "regret"), rows, frozenset({"regret"}))), ""]
    if found.by_blame:
        blamed = [(name, number_text.dollars(usd)) for name, usd in found.by_blame.items()]
        lines += [
            *text_lines(Grid("What was to blame", ("assumption", "regret"), blamed, frozenset({"regret"}))),
            "",
        ]
    paid, regret = number_text.dollars(found.paid_usd), number_text.dollars(found.regret_usd)
    total = f"{number_text.things(found.choices, 'choice')}, {paid} paid, {regret} of it to be regretted"
    return "\n".join([*lines, total, *found.notes])


def alternatives_table(each: Hindsight) -> Grid:
    """The roads of one choice, the best first."""
    head = ("pool", "market", "writes", "expected", "stage", "time", "with later stages", "")
    rows = [
        (
            road.pool,
            str(road.market),
            lying(road.format, road.storage_class) or NOTHING,
            number_text.dollars(road.expected_usd),
            number_text.dollars(road.stage_usd),
            number_text.duration(road.stage_s),
            number_text.dollars(road.total_usd),
            "taken" if road.selected else "best" if road.best else "",
        )
        for road in each.offers[:MAX_OFFERS_SHOWN]
    ]
    number = f", attempt {each.attempt}" if each.attempt > 1 else ""
    return Grid(f"{each.stage}{number} of run {each.run_id}", head, rows, frozenset(head[3:7]))


def verdict(each: Hindsight) -> str:
    """What a choice cost beside the best road, and why it was not taken."""
    if not each.regret_usd:
        return f"{number_text.dollars(each.paid_usd)} paid: nothing would have been cheaper"
    best = next(road for road in each.offers if road.best)
    sooner = number_text.duration(abs(each.regret_s)) + (" sooner" if each.regret_s >= 0 else " later")
    name = offer(best.pool, best.market, best.format, best.storage_class)
    why = BLAME[each.main_cause] if each.main_cause else ""
    return f"{number_text.dollars(each.paid_usd)} paid; {name} would have saved {number_text.dollars(each.regret_usd)}, and been {sooner}: {why}"


def reconciliation_text(found: Reconciliation) -> str:
    head = ("run", "stage", "ledger", "OpenCost", "fees", "idle", "shared", "beside", "unexplained")
    rows = [
        (
            each.run_id,
            each.stage or "not told",
            number_text.dollars(each.ledger_usd) if each.where != "theirs" else NOTHING,
            number_text.dollars(each.theirs_usd) if each.where != "ledger" else NOTHING,
            *(
                number_text.dollars(amount)
                for amount in (
                    each.fees_usd,
                    each.idle_usd,
                    each.shared_usd,
                    each.beside_usd,
                    each.unexplained_usd,
                )
            ),
        )
        for each in found.lines
    ]
    note = (
        "fees (moving and holding data): inside of the ledger's; idle, shared, beside (volumes, network): inside of OpenCost's; "
        "unexplained: OpenCost's less the ledger's, each without these"
    )
    caption = f"From {number_text.moment(found.since)} to {number_text.moment(found.until)}"
    lines = (
        text_lines(Grid(caption, head, rows, frozenset(head[2:]), note))
        if rows
        else [f"{caption}: nothing of ours"]
    )
    sums = (
        ("ledger", found.ledger_usd),
        ("OpenCost, of ours", found.ours_of_theirs_usd),
        ("unexplained", found.unexplained_usd),
        ("idle nodes", found.idle_usd),
        ("shared", found.shared_usd),
        ("volumes of no pod", found.unmounted_usd),
        ("other workloads", found.elsewhere_usd),
        ("OpenCost, all", found.theirs_usd),
    )
    grid = Grid(
        "Sums",
        ("", "dollars"),
        [(name, number_text.dollars(usd)) for name, usd in sums],
        frozenset({"dollars"}),
    )
    return "\n".join([*lines, "", *text_lines(grid), *found.notes])


def share(value: float | None) -> str:
    """`71.6%`; a dash where nobody knows."""
    return NOTHING if value is None else number_text.share(value) if value < 1 else f"{100 * value:.0f}%"
