"""Explain a decision on one page: plain text for a terminal, or Markdown for the Kubeflow UI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoestring.core.attempt_id import declared_stage
from shoestring.core.money import from_microusd, microusd
from shoestring.core.record import utc_text
from shoestring.core.text import join_names, microusd_text, ms_text
from shoestring.routing.candidates import format_text, offer_text
from shoestring.routing.decision import Choice, Decision, sample_unit
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.pages.decision_view import (
    budget_deductions,
    engine_text,
    late_s,
    offer_views,
    planned_name,
)
from shoestring.routing.pages.refusal_text import nearest_offer, smallest_change
from shoestring.routing.question import Question
from shoestring.routing.text_table import TextTable, escape_markdown, markdown_lines, text_lines

MAX_OFFERS = 12
"""Offers that a page lists. The JSON holds all of them."""

PageRows = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ExplainPage:
    """The content of the page, before it is formatted."""

    title: str
    headline: str
    facts: PageRows
    tables: list[TextTable]
    footer: str


def as_text(decision: Decision) -> str:
    """Return the page as plain text with aligned columns."""
    page = _page(decision)
    width = max(len(label) for label, _ in page.facts)
    facts = [f"  {label:<{width}}  {fact}" for label, fact in page.facts]
    lines = [page.title, "", f"  {page.headline}", *facts]
    for table in page.tables:
        lines += ["", *text_lines(table)]
    return "\n".join([*lines, "", page.footer]) + "\n"


def as_markdown(decision: Decision) -> str:
    """Return the page as Markdown tables."""
    page = _page(decision)
    title, headline = escape_markdown(page.title), escape_markdown(page.headline)
    lines = [f"# {title}", "", f"**{headline}**", "", "| | |", "|---|---|"]
    lines += [f"| {escape_markdown(label)} | {escape_markdown(fact)} |" for label, fact in page.facts]
    for table in page.tables:
        lines += ["", *markdown_lines(table)]
    return "\n".join([*lines, "", f"<sub>{escape_markdown(page.footer)}</sub>"]) + "\n"


def items_table(decisions: Sequence[Decision]) -> TextTable:
    """Return a row for each decision of the items of a loop."""
    name, run_id = declared_stage(decisions[0].question.stage), decisions[0].question.run_id
    rows = [
        (
            str(decision.question.attempt_id),
            _headline(decision),
            *((f"${choice.est_usd}", f"${choice.p95_usd}", f"${choice.budget_usd}") if choice else [""] * 3),
        )
        for decision in decisions
        for choice in [decision.choice]
    ]
    header = ("attempt", "placed on", "expected", "P95", "budget")
    note = f"each in full: shoestring explain {run_id} --stage {decisions[-1].question.stage}"
    title = f"Decisions for the items of {name}"
    return TextTable(title, header, rows, frozenset(header[2:]), note)


def _page(decision: Decision) -> ExplainPage:
    question, choice, policy = decision.question, decision.choice, decision.applied_policy
    digests = [f"{name} {value[:12]}" for name, value in sorted(question.digests.items()) if value]
    made_by = [
        *([f"policy {policy.name} {policy.version} ({policy.sha256[:12]})"] if policy else []),
        f"routing {decision.algorithm.algorithm_version} ({decision.algorithm.sha256[:12]})",
        f"seed {question.seed}",
        *digests,
    ]
    return ExplainPage(
        title=f"{question.stage}, attempt {question.attempt} of run {question.run_id}",
        headline=_headline(decision),
        facts=(_choice_facts(decision, choice) if choice else _nearest(decision)) + _limits(decision),
        tables=[
            table
            for table in (_offers(decision), _later(decision), _prices(decision), _rejected_prices(decision))
            if table.rows
        ],
        footer=f"{utc_text(question.asked_at)}, {', '.join(made_by)}",
    )


def _headline(decision: Decision) -> str:
    choice = decision.choice
    if choice is None:
        return f"refused: nothing fits; {smallest_change(decision)}"
    return offer_text(choice.pool, choice.market, choice.format, choice.storage_class) + (
        ", from the cache" if choice.cached else ""
    )


def _nearest(decision: Decision) -> PageRows:
    """Return the offer that exceeds the limits least, with its reason; nothing where none is possible."""
    return [] if decision.nearest is None else [("nearest", nearest_offer(decision))]


def _choice_facts(decision: Decision, choice: Choice) -> PageRows:
    unit = sample_unit(decision.question.needs[0])
    samples = f", {choice.samples:,} {unit}" if choice.objective == "max-samples" else ""
    p95 = "at most" if choice.objective == "max-samples" else "P95"
    return [
        ("expected", f"${choice.est_usd} in {choice.est_s:,.1f} s{samples}"),
        (p95, f"${choice.p95_usd} in {choice.p95_s:,.1f} s, at ${choice.usd_per_hour} an hour"),
        ("reason", choice.sentence),
        *([] if choice.cached else [("model", _parts(decision, choice)), *_store_wait(decision.question)]),
        *_commitment(decision.question, choice),
    ]


def _store_wait(question: Question) -> PageRows:
    wait = question.store_wait
    if not wait.request_s:
        return []
    text = f"{wait.requests} requests of {wait.request_s:.3f} s, one after another"
    return [("store", f"{text}: {wait.stage_s:,.1f} s of the computing of each stage")]


def _commitment(question: Question, choice: Choice) -> PageRows:
    found = question.commitment(choice.pool, choice.market)
    if found is None:
        return []
    left = (
        f"{found.left_hours:,.2f} of {found.max_hours:,.0f} hours of {found.name} are left in {found.month}"
    )
    return [("prepaid", f"{left}: estimated at $0 while they last, reserved at the full price")]


def _parts(decision: Decision, choice: Choice) -> str:
    """Return the model's breakdown of the stage's time and fees, before correction by receipts."""
    columns, row = stage_offer_table(decision.candidates, 0), choice.candidate
    spent = columns.startup_ms[row] + columns.read_ms[row] + columns.write_ms[row]
    parts = [
        ("start-up", columns.startup_ms[row]),
        ("reading", columns.read_ms[row]),
        ("computing", max(0, columns.prior_ms[row] + columns.startup_ms[row] - spent)),
        ("writing", columns.write_ms[row]),
        ("lost to preemption", columns.loss_ms[row]),
    ]
    times = [f"{name} {ms_text(ms)}" for name, ms in parts if ms]
    transfer = "transfer and retrieval" if decision.candidates.storage_classes else "transfer"
    fees = [(transfer, columns.transfer_microusd[row]), ("storage", columns.storage_microusd[row])]
    return ", ".join(times + [f"{name} {microusd_text(micro)}" for name, micro in fees if micro])


def _limits(decision: Decision) -> PageRows:
    question, choice = decision.question, decision.choice
    deducted = [f" - ${amount} {name}" for amount, name in budget_deductions(question)]
    later = [need.stage for need in question.needs[1:]]
    reserved = (
        f", of which ${choice.reserved_later_usd} is reserved for {join_names(later)}"
        if choice and choice.reserved_later_usd
        else ""
    )
    sums = f"${question.budget_usd} budget{''.join(deducted)}" + (
        f" = {microusd_text(microusd(question.left_usd))} left" if deducted else ""
    )
    declared = question.stage_budgets.get(question.stage)
    return [
        ("money", sums + reserved),
        *([("stage budget", f"${declared}, declared")] if declared is not None else []),
        ("time", _time_text(decision)),
        *([("engine", engine_text(question))] if question.engine and not question.needs[0].by_time else []),
        *([("search", _gap_text(decision.optimality_gap_ppm))] if decision.optimality_gap_ppm != 0 else []),
        *_other_policy(decision),
        *((("family", f"{question.family.name}: {question.family.reason}"),) if question.family else ()),
        *(("note", note) for note in question.notes),
    ]


def _time_text(decision: Decision) -> str:
    question = decision.question
    if question.soft_left_s is not None:
        left_s = max(question.soft_left_s, 0)
        return f"{left_s:,.1f} s left to a soft deadline: {late_s(decision):,.1f} s late at P95"
    if question.deadline_left_s is None:
        return "no deadline"
    if not question.deadline_used_s:
        return f"{max(question.deadline_left_s, 0):,.1f} s left"
    used = f"{question.deadline_used_s:,.1f} s used, or kept for the engine"
    return f"{max(question.deadline_left_s, 0):,.1f} s left, after {used}"


def _other_policy(decision: Decision) -> PageRows:
    """Return what the other policy of a trial would choose, and why the candidate was rolled back."""
    shadow, applied = decision.shadow, decision.applied_policy
    if shadow is None or applied is None:
        return []
    other = f"policy {shadow.name} {shadow.version}"
    if shadow.same:
        would = f"{other} chooses the same"
    elif shadow.pool is None or shadow.market is None:
        would = f"{other} would choose nothing: {shadow.sentence}"
    else:
        chosen = offer_text(shadow.pool, shadow.market, shadow.format, shadow.storage_class)
        would = f"{other} would choose {chosen}: ${shadow.est_usd} in {shadow.est_s:,.1f} s"
    chance = f"; this run used {applied.name} {applied.version} with probability {applied.propensity:.0%}"
    rollback = decision.question.rollback_reason
    return [
        ("policy trial", would + (chance if applied.propensity < 1 else "")),
        *([("rolled back", rollback)] if rollback else []),
    ]


def _offers(decision: Decision) -> TextTable:
    offers = offer_views(decision)
    rows = [
        (
            each.pool,
            str(each.market),
            each.writes or "-",
            _hourly(each.usd_per_hour_micro),
            each.verdict_text,
        )
        for each in offers[:MAX_OFFERS]
    ]
    more = len(decision.refusal_index) - len(rows)
    note = f"and {more:,} more, each with its reason in the JSON" if more else ""
    return TextTable(
        "Offers", ("pool", "market", "writes", "$/hour", "verdict"), rows, frozenset({"$/hour"}), note
    )


def _hourly(micro: int) -> str:
    return str(from_microusd(micro)) if micro else "-"


def _later(decision: Decision) -> TextTable:
    rows: PageRows = [
        (
            *(planned_name(decision.question, each.stage), each.pool, each.market),
            format_text(each.format, each.storage_class) or "-",
            *(f"${each.est_usd}", f"{each.est_s:,.1f}", f"${each.reserved_usd}"),
        )
        for each in decision.plan
    ]
    header = ("stage", "pool", "market", "writes", "expected", "seconds", "reserved")
    elastic = next((need.stage for need in decision.question.needs[1:] if need.elastic), None)
    note = (
        f"{elastic}: estimated for all passes, reserved for the minimum number of passes" if elastic else ""
    )
    return TextTable(
        "Estimates of later stages", header, rows, frozenset({"expected", "seconds", "reserved"}), note
    )


def _prices(decision: Decision) -> TextTable:
    quotes = sorted(decision.question.quotes, key=lambda quote: (quote.pool, quote.market))
    rows: PageRows = [
        (quote.pool, quote.market, _hourly(microusd(quote.usd_per_hour)), str(quote.as_of), quote.source)
        for quote in quotes
    ]
    return TextTable("Prices", ("pool", "market", "$/hour", "as of", "source"), rows, frozenset({"$/hour"}))


def _rejected_prices(decision: Decision) -> TextTable:
    return TextTable(
        "Rejected prices",
        ("row", "reason"),
        [(each.row, each.reason) for each in decision.question.rejected_prices],
    )


def _gap_text(gap_ppm: int | None) -> str:
    """Return how near the plan is to the best possible one, where the search did not compare all plans."""
    if gap_ppm is None:
        return "not all plans were compared, and one of the others may fit"
    return f"not all plans were compared: this one is within {gap_ppm / 1e4:.2f}% of the best possible"
