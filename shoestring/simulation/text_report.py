"""Reports for people: one, or two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoestring.simulation.results import SimulationReport

Cell = Callable[[SimulationReport], str]


def percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" + (f" ({part / whole:.1%})" if whole else "")


ROWS: tuple[tuple[str, Cell], ...] = (
    ("pipelines", lambda report: f"{report.pipelines:,} in {report.days:g} days"),
    ("admitted", lambda report: of(report.admitted, report.pipelines)),
    ("  of those that would have fitted", lambda report: of(report.would_fit_admitted, report.would_fit)),
    ("done", lambda report: of(report.outcomes.get("done", 0), report.admitted)),
    ("stopped for money", lambda report: f"{report.outcomes.get('stopped', 0):,}"),
    (
        "failed, abandoned",
        lambda report: f"{report.outcomes.get('failed', 0):,}, {report.outcomes.get('abandoned', 0):,}",
    ),
    (
        "refused: its budget, the month or campaign",
        lambda report: f"{report.outcomes.get('refused', 0):,}, {report.outcomes.get('cap-reached', 0):,}",
    ),
    (
        "waited for what others held",
        lambda report: f"{report.waited:,} of the admitted, at most {report.longest_wait_h:g} h",
    ),
    ("spent above a cap", lambda report: f"{report.accounts_over_cap:,} accounts"),
    ("the most of its cap that a run spent", lambda report: percent(report.max_share_of_cap)),
    ("spent, of what was set aside for runs", lambda report: f"${report.spent_usd} of ${report.cap_usd}"),
    ("set aside for runs and never spent", lambda report: percent(report.unspent_share)),
    (
        "  came back after",
        lambda report: (
            "-"
            if report.mean_release_h is None
            else f"{report.mean_release_h:.1f} h, in the mean over dollars"
        ),
    ),
    ("reserved for stages and given back", lambda report: percent(report.released_share)),
    ("billed, as prices moved", lambda report: f"${report.billed_usd}"),
    (
        "billed above a budget",
        lambda report: (
            f"{report.runs_billed_over_budget:,} runs"
            + (f", at most by {report.max_billed_over_share:.1%}" if report.runs_billed_over_budget else "")
        ),
    ),
    ("cost within its P95", lambda report: f"{percent(report.p95_coverage)} of {report.p95_stages:,} stages"),
    ("pods, of which taken or lost", lambda report: f"{report.attempts:,}, {report.preempted:,}"),
    (
        "processes that died, races, reaped holds",
        lambda report: f"{report.crashes:,}, {report.races:,}, {report.reaped:,}",
    ),
    ("ledger entries", lambda report: f"{report.ledger_entries:,}"),
)


def as_text(named: Sequence[tuple[str, SimulationReport]]) -> str:
    """A line a figure, a column a report."""
    rows = [("", [name for name, _ in named] if len(named) > 1 else [""])]
    rows += [(what, [cell(report) for _, report in named]) for what, cell in ROWS]
    kinds = sorted({kind for _, report in named for kind in report.spent_by_target})
    rows += [
        (f"spent on {kind}", [f"${report.spent_by_target.get(kind, 0):.6f}" for _, report in named])
        for kind in kinds
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
        f"the books of {name}: {report.ledger_check}"
        if len(named) > 1
        else f"the books: {report.ledger_check}"
        for name, report in named
    ]
    return "\n".join([line for line in lines if line] + books)
