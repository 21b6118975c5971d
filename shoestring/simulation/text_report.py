"""Reports for people: one, or two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoestring.simulation.results import Report

Cell = Callable[[Report], str]


def percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" + (f" ({part / whole:.1%})" if whole else "")


ROWS: tuple[tuple[str, Cell], ...] = (
    ("pipelines", lambda report: f"{report.pipelines:,} in {report.days:g} days"),
    ("admitted", lambda report: of(report.admitted, report.pipelines)),
    ("  of those that would have fitted", lambda report: of(report.would_fit_admitted, report.would_fit)),
    ("done", lambda report: of(report.ended.get("done", 0), report.admitted)),
    ("stopped for money", lambda report: f"{report.ended.get('stopped', 0):,}"),
    (
        "failed, abandoned",
        lambda report: f"{report.ended.get('failed', 0):,}, {report.ended.get('abandoned', 0):,}",
    ),
    (
        "refused: its budget, the month or campaign",
        lambda report: f"{report.ended.get('refused', 0):,}, {report.ended.get('full', 0):,}",
    ),
    (
        "waited for what others held",
        lambda report: f"{report.waited:,} of the admitted, at most {report.longest_wait_h:g} h",
    ),
    ("spent above a cap", lambda report: f"{report.over_cap:,} accounts"),
    ("the most of its cap that a run spent", lambda report: percent(report.most_of_cap)),
    ("spent, of what was set aside for runs", lambda report: f"${report.spent_usd} of ${report.cap_usd}"),
    ("set aside for runs and never spent", lambda report: percent(report.stranded_share)),
    (
        "  came back after",
        lambda report: (
            "-" if report.back_after_h is None else f"{report.back_after_h:.1f} h, in the mean over dollars"
        ),
    ),
    ("reserved for stages and given back", lambda report: percent(report.stranded_stages_share)),
    ("billed, as prices moved", lambda report: f"${report.billed_usd}"),
    (
        "billed above a budget",
        lambda report: (
            f"{report.billed_over:,} runs"
            + (f", at most by {report.most_billed_over_share:.1%}" if report.billed_over else "")
        ),
    ),
    ("cost within its P95", lambda report: f"{percent(report.p95_coverage)} of {report.p95_stages:,} stages"),
    ("pods, of which taken or lost", lambda report: f"{report.attempts:,}, {report.preempted:,}"),
    (
        "processes that died, races, swept holds",
        lambda report: f"{report.crashes:,}, {report.races:,}, {report.swept:,}",
    ),
    ("ledger entries", lambda report: f"{report.ledger_entries:,}"),
)


def as_text(named: Sequence[tuple[str, Report]]) -> str:
    """A line a figure, a column a report."""
    rows = [("", [name for name, _ in named] if len(named) > 1 else [""])]
    rows += [(what, [cell(report) for _, report in named]) for what, cell in ROWS]
    kinds = sorted({kind for _, report in named for kind in report.money})
    rows += [
        (f"spent on {kind}", [f"${report.money.get(kind, 0):.6f}" for _, report in named]) for kind in kinds
    ]
    widths = [
        max(len(what) for what, _ in rows),
        *(max(len(cells[place]) for _, cells in rows) for place in range(len(named))),
    ]
    lines = [
        "  ".join(
            [
                what.ljust(widths[0]),
                *(cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True)),
            ]
        ).rstrip()
        for what, cells in rows
    ]
    books = [
        f"the books of {name}: {report.verified}" if len(named) > 1 else f"the books: {report.verified}"
        for name, report in named
    ]
    return "\n".join([line for line in lines if line] + books)
