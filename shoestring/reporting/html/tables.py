"""The report's tables of money: a row per stage, and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from shoestring.core.receipt import Receipt
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Html, table, tag, text
from shoestring.reporting.loop_stories import LoopStory, in_loops
from shoestring.reporting.run_story import ZERO_USD, RunStory, StageStory, StartAccount
from shoestring.reporting.summary import attempt_seconds, placed_attempt
from shoestring.routing.candidates import format_text
from shoestring.routing.decision import Choice

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
    """Return a row for each stage and each loop, and below them, folded, a row for each item of a loop."""
    groups = in_loops(story.stages)
    loops = [each for each in groups if isinstance(each, LoopStory)]
    rows = [
        _loop_row(story, each) if isinstance(each, LoopStory) else _stage_row(story, each) for each in groups
    ]
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
    whole = table(caption, STAGE_HEADS, rows, totals=totals, class_="stack stages")
    return text(whole, *(_items_table(story, loop) for loop in loops))


def _items_table(story: RunStory, loop: LoopStory) -> Html:
    rows = [_stage_row(story, item) for item in loop.items]
    items = table(f"Dollars and time by item of {loop.name}.", STAGE_HEADS, rows, class_="stack stages")
    return tag("details", tag("summary", f"The items of {loop.name}: {loop.states_text}"), items)


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
    attempt = placed_attempt(stage)
    pace = _pace(attempt.receipt) if attempt and attempt.receipt else ""
    return _row(story, text(stage.name, tag("small", _state(stage))), stage.name, [stage], pace)


def _loop_row(story: RunStory, loop: LoopStory) -> tuple[object, ...]:
    """Return the row of a loop: its items together."""
    name = text(loop.name, tag("small", f"{loop.states_text}{_attempts_note(*loop.items)}"))
    return _row(story, name, loop.name, loop.items)


def _row(
    story: RunStory, title: Html, name: str, stages: Sequence[StageStory], pace: str = ""
) -> tuple[object, ...]:
    """Return the cells of stages together: with the sums of their dollars and seconds, and all their
    places.
    """
    attempts = [attempt for stage in stages if (attempt := placed_attempt(stage))]
    choices = [attempt.decision.choice for attempt in attempts if attempt.decision.choice]
    if not choices:
        return (title, *(None,) * (len(STAGE_HEADS) - 1))
    extended_usd = sum(map(story.extended_usd, attempts), ZERO_USD)
    raised = tag("small", f"raised by {number_text.dollars(extended_usd)}") if extended_usd else None
    budget_usd = sum((choice.budget_usd for choice in choices), extended_usd)
    est_usd, p95_usd = (
        sum((getattr(choice, name) for choice in choices), ZERO_USD) for name in ("est_usd", "p95_usd")
    )
    spent_usd = sum(map(story.stage_spent_usd, stages), ZERO_USD)
    seconds = sum(attempt_seconds(attempt) for stage in stages for attempt in stage.attempts)
    hits = sum(choice.cached for choice in choices)
    places = dict.fromkeys(map(_place, choices))
    return (
        title,
        None if hits == len(choices) else bullet(name, budget_usd, est_usd, spent_usd),
        text(number_text.dollars(budget_usd), raised),
        number_text.dollars(est_usd),
        number_text.dollars(p95_usd),
        number_text.dollars(spent_usd),
        text(number_text.duration(seconds), tag("small", pace) if pace else None),
        "hit" if hits == len(choices) else f"{hits:,} of {len(choices):,}" if hits else "miss",
        text(*(text(pool, tag("small", market)) for pool, market in places)),
    )


def _place(choice: Choice) -> tuple[str, str]:
    """Return the pool, and the market with the format that is written."""
    if not choice.format:
        return choice.pool, choice.market
    return choice.pool, f"{choice.market}, {format_text(choice.format, choice.storage_class)}"


def _state(stage: StageStory) -> str:
    return STATES[stage.state] + _attempts_note(stage)


def _attempts_note(*stages: StageStory) -> str:
    attempts = sum(len(stage.attempts) for stage in stages)
    return f", {number_text.quantity(attempts, 'attempt')}" if attempts > len(stages) else ""


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
