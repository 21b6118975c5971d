"""The report's tables of money: a row per stage, and the ledger."""

from __future__ import annotations

from decimal import Decimal

from shoestring.core.receipt import Receipt
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Html, table, tag, text
from shoestring.reporting.run_story import RunStory, StageStory, StartAccount
from shoestring.reporting.summary import attempt_seconds, placed_attempt
from shoestring.routing.candidates import format_text

STATES = {
    "waiting": "not reached",
    "skipped": "not taken",
    "placed": "placed, not started",
    "running": "running",
    "done": "done",
    "reused": "reused from the cache",
    "stopped": "stopped",
    "failed": "failed",
    "lost": "lost without a message",
    "refused": "refused",
}
STAGE_HEADS = (
    ("Stage", "name"),
    ("Actual within budget", "line"),
    ("Budget", "n"),
    ("Estimate", "n"),
    ("P95", "n"),
    ("Actual", "n"),
    ("Time", "n"),
    ("Cache", ""),
    ("Placed on", "place"),
)


def stages_table(story: RunStory) -> Html:
    rows = [_stage_row(story, stage) for stage in story.stages]
    overhead, spent, budget = (
        number_text.dollars(amount) for amount in (story.overhead_usd, story.spent_usd, story.budget_usd)
    )
    totals = [
        (
            text("Overhead", tag("small", "routing, settling")),
            None,
            None,
            None,
            None,
            overhead,
            None,
            None,
            None,
        ),
        *_engine_rows(story),
        ("Whole run", None, budget, None, None, spent, number_text.duration(story.wall_s()), None, None),
    ]
    caption = "Dollars and time by stage. Bar: spent part of the stage's budget; tick: estimate."
    return table(caption, STAGE_HEADS, rows, totals=totals, class_="stack stages")


def _engine_rows(story: RunStory) -> list[tuple[object, ...]]:
    """Return the row of the engine's time, measured and planned; none before the second stage."""
    steps = story.engine_steps
    if not steps:
        return []
    took, planned = (
        number_text.duration(sum(seconds))
        for seconds in ([each.step_s for each in steps], [each.planned_s for each in steps])
    )
    name = text("Engine", tag("small", f"between the stages, {planned} planned"))
    return [(name, None, None, None, None, None, took, None, None)]


def _stage_row(story: RunStory, stage: StageStory) -> tuple[object, ...]:
    name = text(stage.name, tag("small", _state(stage)))
    attempt = placed_attempt(stage)
    if attempt is None or attempt.decision.choice is None:
        return (name, *(None,) * (len(STAGE_HEADS) - 1))
    choice, spent_usd = attempt.decision.choice, story.stage_spent_usd(stage)
    budget_usd, extended_usd = choice.budget_usd, story.extended_usd(attempt)
    raised = tag("small", f"raised by {number_text.dollars(extended_usd)}") if extended_usd else None
    budget_usd += extended_usd
    seconds = sum(attempt_seconds(each) for each in stage.attempts)
    pace = tag("small", _pace(attempt.receipt)) if attempt.receipt and _pace(attempt.receipt) else None
    return (
        name,
        None if choice.cached else bullet(stage.name, budget_usd, choice.est_usd, spent_usd),
        text(number_text.dollars(budget_usd), raised),
        number_text.dollars(choice.est_usd),
        number_text.dollars(choice.p95_usd),
        number_text.dollars(spent_usd),
        text(number_text.duration(seconds), pace),
        "hit" if choice.cached else "miss",
        text(
            choice.pool,
            tag(
                "small",
                f"{choice.market}, {format_text(choice.format, choice.storage_class)}"
                if choice.format
                else choice.market,
            ),
        ),
    )


def _state(stage: StageStory) -> str:
    attempts_note = (
        f", {number_text.quantity(len(stage.attempts), 'attempt')}" if len(stage.attempts) > 1 else ""
    )
    return STATES[stage.state] + attempts_note


def _pace(receipt: Receipt) -> str:
    outcome = receipt.outcome
    return (
        ""
        if outcome is None or receipt.cache_hit
        else number_text.rate(outcome.samples or outcome.rows, receipt.seconds)
    )


def bullet(name: str, budget_usd: Decimal, est_usd: Decimal, spent_usd: Decimal) -> Html:
    """Return the spent amount as a bar on the track of its budget, with a tick at the estimate.

    All are scaled to a hundredth of the largest amount.
    """
    whole = max(budget_usd, est_usd, spent_usd) or Decimal(1)
    budget, estimate = number_text.dollars(budget_usd), number_text.dollars(est_usd)
    description = f"{name}: {number_text.dollars(spent_usd)} spent of {budget}, {estimate} estimated"
    track, fill, tick = (round(100 * amount / whole, 2) for amount in (budget_usd, spent_usd, est_usd))
    marks = (
        tag("rect", x=0, y=7, width=track, height=8, class_="track"),
        tag("rect", x=0, y=7, width=fill, height=8, class_="fill"),
        tag("line", x1=tick, y1=3, x2=tick, y2=19, class_="tick", vector_effect="non-scaling-stroke")
        if est_usd
        else None,
    )
    return tag(
        "svg",
        tag("title", description),
        *marks,
        viewBox="0 0 100 22",
        preserveAspectRatio="none",
        role="img",
        class_="bullet",
    )


LEDGER_HEADS = (
    ("Account", "name"),
    ("Cap", "n"),
    ("Spent", "n"),
    ("Held", "n"),
    ("Not used", "n"),
    ("Entries", "n"),
    ("State", ""),
    ("Hash of the last entry", "hash"),
)
HEAD_HEADS = (("Account", "name"), ("Entries", "n"), ("Hash of the last entry", "hash"))
RESERVATION_HEADS = (("Reservation", "name"), ("Amount", "n"), ("Since", ""))


def ledger_tables(story: RunStory) -> Html:
    """Return an account per start of the run, and their open reservations."""
    accounts = table(
        "Accounts of this run, one per start.",
        LEDGER_HEADS,
        [_account_row(each, is_last=each is story.start_accounts[-1]) for each in story.start_accounts],
        class_="stack",
    )
    held = [
        (name, hold)
        for start_account in story.start_accounts
        for name, hold in start_account.account.reservations.items()
    ]
    rows = [
        (name, number_text.dollars(hold.amount_usd), number_text.utc_time(hold.reserved_at))
        for name, hold in held
    ]
    return text(
        accounts,
        table("Open reservations, not settled yet.", RESERVATION_HEADS, rows, class_="stack")
        if rows
        else None,
        _parent_heads(story),
    )


def _parent_heads(story: RunStory) -> Html | None:
    """Return the heads of the month and the campaign, which a page that is kept elsewhere can prove."""
    rows = [(each.account, number_text.count(each.entries), each.sha256) for each in story.parent_heads]
    title = "Heads of the accounts around it, when this page was written."
    return table(title, HEAD_HEADS, rows, class_="stack") if rows else None


def _account_row(start_account: StartAccount, *, is_last: bool) -> tuple[object, ...]:
    """Return the row of one start. What an earlier start did not use is in the cap of the next."""
    account = start_account.account
    return (
        text(account.account, tag("small", f"in {account.parent}") if account.parent else None),
        "no limit" if account.cap_usd is None else number_text.dollars(account.cap_usd),
        number_text.dollars(account.spent_usd),
        number_text.dollars(account.held_usd),
        number_text.dollars(account.left_usd) if is_last and account.left_usd is not None else None,
        number_text.count(account.entries),
        "closed" if account.closed else "open",
        tag("code", account.head_hash),
    )
