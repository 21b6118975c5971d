"""Format one report as text, or two next to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoestring.simulation.results import SimulationReport

Cell = Callable[[SimulationReport], str]


def percent_or_dash(part: float | None) -> str:
    """Return a fraction as a percentage; "-" for None."""
    return "-" if part is None else f"{part:.1%}"


def count_of(part: int, whole: int) -> str:
    """Return "PART of WHOLE (PERCENTAGE)"."""
    return f"{part:,} of {whole:,}" + (f" ({part / whole:.1%})" if whole else "")


ROWS: tuple[tuple[str, Cell], ...] = (
    ("pipelines", lambda report: f"{report.pipelines:,} in {report.days:g} days"),
    ("admitted", lambda report: count_of(report.admitted, report.pipelines)),
    (
        "  of those that would fit their budget",
        lambda report: count_of(report.would_fit_admitted, report.would_fit),
    ),
    ("done", lambda report: count_of(report.outcomes.get("done", 0), report.admitted)),
    ("  let miss a soft deadline", lambda report: f"{report.late:,}"),
    ("stopped: budget exhausted", lambda report: f"{report.outcomes.get('stopped', 0):,}"),
    ("stopped by a guardrail", lambda report: f"{report.outcomes.get('guardrail', 0):,}"),
    (
        "failed, abandoned",
        lambda report: f"{report.outcomes.get('failed', 0):,}, {report.outcomes.get('abandoned', 0):,}",
    ),
    (
        "refused: run budget, month or campaign",
        lambda report: f"{report.outcomes.get('refused', 0):,}, {report.outcomes.get('cap-reached', 0):,}",
    ),
    (
        "waited before their start",
        lambda report: f"{report.waited:,} of the admitted, longest {report.longest_wait_h:g} h",
    ),
    ("  delayed by the start policy", lambda report: f"{report.delayed:,}"),
    (
        "followed the policy on trial",
        lambda report: f"{report.candidate_runs:,}" + (", then rolled back" if report.rollback else ""),
    ),
    ("migrations", lambda report: f"{report.migrations:,}"),
    ("useful samples that were trained", lambda report: percent_or_dash(report.trained_share)),
    ("paid by commitments", lambda report: f"${report.committed_usd}"),
    ("accounts above their cap", lambda report: f"{report.accounts_over_cap:,}"),
    ("largest share of its budget that a run spent", lambda report: percent_or_dash(report.max_share_of_cap)),
    ("spent of all run budgets", lambda report: f"${report.spent_usd} of ${report.cap_usd}"),
    ("run budgets never spent", lambda report: percent_or_dash(report.unspent_share)),
    (
        "  released after",
        lambda report: (
            "-" if report.mean_release_h is None else f"{report.mean_release_h:.1f} h, averaged over dollars"
        ),
    ),
    ("stage reservations released unspent", lambda report: percent_or_dash(report.released_share)),
    ("billed at the actual prices", lambda report: f"${report.billed_usd}"),
    (
        "billed above the run budget",
        lambda report: (
            f"{report.runs_billed_over_budget:,} runs"
            + (f", by at most {report.max_billed_over_share:.1%}" if report.runs_billed_over_budget else "")
        ),
    ),
    (
        "cost within the reserved P95",
        lambda report: f"{percent_or_dash(report.p95_coverage)} of {report.p95_stages:,} stages",
    ),
    ("pods; preempted or lost", lambda report: f"{report.attempts:,}, {report.preempted:,}"),
    (
        "process deaths, races, reaped entries",
        lambda report: f"{report.crashes:,}, {report.races:,}, {report.reaped:,}",
    ),
    ("ledger entries", lambda report: f"{report.ledger_entries:,}"),
)


def report_text(named: Sequence[tuple[str, SimulationReport]]) -> str:
    """Return one line for each figure, with one column for each report."""
    rows = [("", [name for name, _ in named] if len(named) > 1 else [""])]
    rows += [(label, [cell(report) for _, report in named]) for label, cell in ROWS]
    kinds = sorted({kind for _, report in named for kind in report.spent_by_target})
    rows += [
        (f"spent on {kind}", [f"${report.spent_by_target.get(kind, 0):.6f}" for _, report in named])
        for kind in kinds
    ]
    widths = [
        max(len(label) for label, _ in rows),
        *(max(len(cells[column]) for _, cells in rows) for column in range(len(named))),
    ]
    lines = [
        "  ".join(
            [
                label.ljust(widths[0]),
                *(cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True)),
            ]
        ).rstrip()
        for label, cells in rows
    ]
    ledger = [
        f"ledger of {name}: {report.ledger_check}" if len(named) > 1 else f"ledger: {report.ledger_check}"
        for name, report in named
    ]
    return "\n".join([line for line in lines if line] + ledger)
