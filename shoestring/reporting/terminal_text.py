"""Actuals, hindsight and reconciliation as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from shoestring.reporting import number_text
from shoestring.reporting.actuals import Actuals, ActualsGroup, GpuActuals
from shoestring.reporting.exports.reconcile import Reconciliation, ReconciliationLine
from shoestring.reporting.hindsight_report import HindsightReport
from shoestring.routing.analysis.hindsight import Hindsight
from shoestring.routing.candidates import format_text, offer_text
from shoestring.routing.text_table import TextTable, text_lines

EMPTY = "-"
MAX_OFFERS_SHOWN = 12
"""Alternatives of one choice in the table; the JSON holds all of them."""

REGRET_CAUSES = {
    "work": "the amount of work differed from the estimate, or the remaining money or time did not allow the "
    "best offer",
    "price": "the price differed",
    "speed": "the speed differed from the estimate",
    "start-up": "start-up took another time than estimated",
    "preemption": "losses to preemption differed from the estimate",
}


def actuals_text(found: Actuals) -> str:
    if not found.total.attempts:
        return "\n".join(["nothing was settled in this period", *found.notes])
    names = found.group_by
    head = (*names, "attempts", "compared", "expected", "actual", "ratio", "error", "over P95")
    estimates = TextTable(
        "Estimate against actual, attempts that are done",
        head,
        [(*_group_cells(each, names), *_estimate_cells(each)) for each in _with_total(found)],
        frozenset(head[len(names) :]),
        "ratio: median of actual / estimate; error: mean of |actual - estimate| / actual",
    )
    head = (
        *names,
        "paid",
        "computing",
        "start-up",
        "idle",
        "lost",
        "transfer",
        "storage",
        "overhead",
        "use",
        "std dev",
    )
    idle = TextTable(
        "Where the money went",
        head,
        [(*_group_cells(each, names), *_money_cells(each)) for each in _with_total(found)],
        frozenset(head[len(names) :]),
        "idle: cores that did nothing, and GPUs on which no kernel ran, during attempts; "
        "use: mean share of core-seconds in which attempts computed, and its standard deviation",
    )
    overrun = (
        [f"overrun: {number_text.dollars(found.total.overrun_usd)} above the caps, not in these sums"]
        if found.total.overrun_usd
        else []
    )
    gpus = _gpu_lines(found, names)
    return "\n".join([*text_lines(estimates), "", *text_lines(idle), *gpus, *overrun, *found.notes])


def _gpu_lines(found: Actuals, names: Sequence[str]) -> list[str]:
    """Return a table of the groups whose GPUs were read."""
    head = (*names, "attempts", "kernels", "idle", "moved to it", "memory", "power", "energy")
    rows = [
        (*_group_cells(each, names), *_gpu_cells(each.gpu))
        for each in _with_total(found)
        if each.gpu is not None
    ]
    note = (
        "kernels: time in which one ran on the GPUs; moved to it: over PCIe; memory: the highest share in "
        "use; -: not reported"
    )
    table = TextTable("GPUs, by their own counters", head, rows, frozenset(head[len(names) :]), note)
    return ["", *text_lines(table)] if rows else []


def _gpu_cells(gpu: GpuActuals) -> tuple[str, ...]:
    idle_s = gpu.seconds - gpu.kernel_s
    return (
        number_text.count(gpu.attempts),
        number_text.duration(gpu.kernel_s) if gpu.seconds else EMPTY,
        f"{number_text.duration(idle_s)}, {idle_s / gpu.seconds:.0%}" if gpu.seconds else EMPTY,
        f"{gpu.received_gb:,.1f} GB" if gpu.received_gb else EMPTY,
        percent_text(gpu.peak_memory_share),
        f"{gpu.watts:,.0f} W" if gpu.watts is not None else EMPTY,
        f"{gpu.joules / 1000:,.1f} kJ" if gpu.joules else EMPTY,
    )


def _with_total(found: Actuals) -> Iterable[ActualsGroup]:
    return (*found.groups, found.total) if found.groups else (found.total,)


def _group_cells(each: ActualsGroup, names: Iterable[str]) -> tuple[str, ...]:
    if not each.group:
        return tuple("all" if index == 0 else "" for index, _ in enumerate(names))
    return tuple(each.group[name] or EMPTY for name in names)


def _estimate_cells(each: ActualsGroup) -> tuple[str, ...]:
    ratio = EMPTY if each.median_cost_ratio is None else f"{each.median_cost_ratio:.2f}"
    return (
        number_text.count(each.attempts),
        number_text.count(each.compared),
        *(
            number_text.dollars(amount) if each.compared else EMPTY
            for amount in (each.est_usd, each.actual_usd)
        ),
        ratio,
        percent_text(each.mape),
        percent_text(each.share_over_p95),
    )


def _money_cells(each: ActualsGroup) -> tuple[str, ...]:
    idle = each.idle
    time = (each.compute_usd, idle.startup_usd, idle.unused_usd, idle.lost_usd)
    amounts = (each.paid_usd, *time, each.transfer_usd, each.storage_usd, each.overhead_usd)
    deviation = (
        None
        if each.core_utilization_variance is None
        else float(Decimal(str(each.core_utilization_variance)).sqrt())
    )
    return (*map(number_text.dollars, amounts), percent_text(each.core_utilization), percent_text(deviation))


def hindsight_text(found: HindsightReport) -> str:
    if not found.choice_count:
        return "\n".join(["there is no choice to evaluate: no paid attempt is done", *found.notes])
    lines: list[str] = []
    if len({each.run_id for each in found.choices}) == 1:
        for each in found.choices:
            lines += [
                *text_lines(alternatives_table(each)),
                f"  {number_text.as_sentence(regret_text(each))}",
                "",
            ]
    else:
        rows = [(name, number_text.dollars(usd)) for name, usd in found.regret_by_stage.items()]
        lines += [
            *text_lines(TextTable("Regret by stage", ("stage", "regret"), rows, frozenset({"regret"}))),
            "",
        ]
    if found.regret_by_cause:
        causes = [(name, number_text.dollars(usd)) for name, usd in found.regret_by_cause.items()]
        lines += [
            *text_lines(
                TextTable("Regret by cause", ("assumption", "regret"), causes, frozenset({"regret"}))
            ),
            "",
        ]
    paid, regret = number_text.dollars(found.paid_usd), number_text.dollars(found.regret_usd)
    total = f"{number_text.quantity(found.choice_count, 'choice')}, {paid} paid, {regret} of it avoidable"
    return "\n".join([*lines, total, *found.notes])


def alternatives_table(each: Hindsight) -> TextTable:
    """Return the offers of one choice as a table, cheapest in total first."""
    head = ("pool", "market", "writes", "expected", "stage", "time", "with later stages", "")
    rows = [
        (
            offer_option.pool,
            str(offer_option.market),
            format_text(offer_option.format, offer_option.storage_class) or EMPTY,
            number_text.dollars(offer_option.expected_usd),
            number_text.dollars(offer_option.stage_usd),
            number_text.duration(offer_option.stage_s),
            number_text.dollars(offer_option.total_usd),
            "chosen" if offer_option.selected else "best" if offer_option.best else "",
        )
        for offer_option in each.offers[:MAX_OFFERS_SHOWN]
    ]
    number = f", attempt {each.attempt}" if each.attempt > 1 else ""
    return TextTable(f"{each.stage}{number} of run {each.run_id}", head, rows, frozenset(head[3:7]))


def regret_text(each: Hindsight) -> str:
    """Return the regret of a choice, and its cause."""
    return f"{number_text.dollars(each.paid_usd)} paid; {verdict_text(each)}"


def verdict_text(each: Hindsight) -> str:
    """Return how the best offer in hindsight compares with the choice, as the amounts of both say.

    The best offer is the cheapest one that leaves enough time, so it may be more expensive than the choice.
    """
    best = next(offer_option for offer_option in each.offers if offer_option.best)
    if best.selected:
        return "no alternative was cheaper"
    name = offer_text(best.pool, best.market, best.format, best.storage_class)
    amount = number_text.dollars(abs(each.regret_usd))
    time_difference = number_text.duration(abs(each.regret_s)) + (
        " faster" if each.regret_s >= 0 else " slower"
    )
    if each.regret_usd < 0:
        return f"{name} would have cost {amount} more and been {time_difference}, which the deadline asks for"
    if not each.regret_usd:
        return f"{name} would have cost the same and been {time_difference}"
    cause = "no single estimate explains it"
    if each.main_cause and each.saved_by_knowing[each.main_cause] > 0:
        cause = REGRET_CAUSES[each.main_cause]
    return f"{name} would have saved {amount} and been {time_difference}: {cause}"


def reconciliation_text(found: Reconciliation) -> str:
    head = ("run", "stage", "ledger", "OpenCost", "fees", "idle", "shared", "other", "unexplained")
    rows = [_reconciliation_cells(each) for each in found.lines]
    note = (
        "fees (data transfer and storage) are in the ledger only; idle, shared and other (volumes, network) "
        "are in OpenCost only; unexplained: OpenCost minus ledger, each without these"
    )
    caption = f"From {number_text.utc_time(found.since)} to {number_text.utc_time(found.until)}"
    lines = (
        text_lines(TextTable(caption, head, rows, frozenset(head[2:]), note))
        if rows
        else [f"{caption}: no pods of Shoestring"]
    )
    sums = (
        ("ledger", found.ledger_usd),
        ("OpenCost, Shoestring pods", found.opencost_shoestring_usd),
        ("unexplained", found.unexplained_usd),
        ("idle nodes", found.idle_usd),
        ("shared", found.shared_usd),
        ("unmounted volumes", found.unmounted_usd),
        ("other workloads", found.other_workloads_usd),
        ("OpenCost, total", found.opencost_usd),
    )
    table = TextTable(
        "Sums",
        ("", "dollars"),
        [(name, number_text.dollars(usd)) for name, usd in sums],
        frozenset({"dollars"}),
    )
    return "\n".join([*lines, "", *text_lines(table), *found.notes])


def _reconciliation_cells(line: ReconciliationLine) -> tuple[str, ...]:
    amounts = (line.fees_usd, line.idle_usd, line.shared_usd, line.other_usd, line.unexplained_usd)
    return (
        line.run_id,
        line.stage or "unknown",
        number_text.dollars(line.ledger_usd) if line.found_in != "opencost" else EMPTY,
        number_text.dollars(line.opencost_usd) if line.found_in != "ledger" else EMPTY,
        *map(number_text.dollars, amounts),
    )


def percent_text(value: float | None) -> str:
    """Return `71.6%`; a dash for None."""
    return EMPTY if value is None else number_text.percent(value) if value < 1 else f"{100 * value:.0f}%"
