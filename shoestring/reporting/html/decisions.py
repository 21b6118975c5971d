"""The report's account of each decision: what was chosen and why, what else there was, at what prices, and how to make it again."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from shoestring.core.money import from_microusd
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Head, Html, Row, scroll, table, tag, text
from shoestring.reporting.run_story import Attempt
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.question import Question
from shoestring.routing.offers.offer_costs import Rows, stage_offer_table
from shoestring.routing.pages.decision_view import (
    OfferView,
    budget_deductions,
    left_usd,
    offer_views,
    unlisted_counts,
)
from shoestring.routing.pages.text import lying

SHOWN = 8
OFFER_HEADS: tuple[Head, ...] = (
    ("Offer", "name"),
    ("Price", "n"),
    ("Expected", "n"),
    ("P95", "n"),
    ("Verdict", "said"),
)
LATER_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Expected on", ""),
    ("Writes", ""),
    ("Expected", "n"),
    ("Kept for it", "n"),
)
PRICE_HEADS: tuple[Head, ...] = (
    ("Pool", "name"),
    ("Market", ""),
    ("Price", "n"),
    ("As of", ""),
    ("Source", ""),
)
DOUBT_HEADS: tuple[Head, ...] = (("Price row", "name"), ("Why it was not believed", "said"))


def decision_section(attempt: Attempt, run_id: str) -> Html:
    decision = attempt.decision
    question, choice = decision.question, decision.choice
    number = f", attempt {question.attempt}" if question.attempt > 1 else ""
    head = tag("h3", f"{question.stage}{number}: {_chosen(choice) if choice else 'refused'}")
    why = number_text.sentence(choice.sentence) if choice else _refusal(decision)
    money = tag("p", _money(question, choice), class_="note")
    return tag(
        "article", head, tag("p", why, class_="prose"), money, *_offers(decision), _grounds(attempt, run_id)
    )


def _chosen(choice: Choice) -> str:
    writes = f", writing {lying(choice.format, choice.storage_class)}" if choice.format else ""
    return f"{choice.pool}, {choice.market}{writes}" + (", from the cache" if choice.cached else "")


def _refusal(decision: Decision) -> str:
    smallest = decision.smallest_budget_usd
    return (
        "Nothing fits, and no budget would change that."
        if smallest is None
        else f"Nothing fits. The smallest budget that would: ${smallest}."
    )


def _money(question: Question, choice: Choice | None) -> str:
    taken = [f"{number_text.dollars(amount)} {name}" for amount, name in budget_deductions(question)]
    parts = [
        f"{number_text.dollars(left_usd(question))} left of {number_text.dollars(question.budget_usd)}"
        + (f" ({', '.join(taken)})" if taken else "")
    ]
    if choice and choice.reserved_later_usd:
        parts.append(f"{number_text.dollars(choice.reserved_later_usd)} of it kept for later stages")
    if question.stage in question.stage_budgets:
        parts.append(f"stage budget {number_text.dollars(question.stage_budgets[question.stage])}")
    if question.deadline_left_s is not None:
        parts.append(f"{number_text.duration(question.deadline_left_s)} to the deadline")
    of = f" of {number_text.size(question.row_bytes)}" if question.row_bytes else ""
    parts.append(f"{number_text.count(question.rows)} rows{of}")
    return "; ".join(parts) + "."


def _offers(decision: Decision) -> Iterable[Html]:
    """The candidates for this stage: the first few in sight, the others folded away."""
    columns, offers = stage_offer_table(decision.candidates, 0), offer_views(decision)
    rows = [_offer(decision, columns, offered) for offered in offers]
    stage, some = decision.question.stage, f", the first {SHOWN}" if len(rows) > SHOWN else ""
    whole = (
        ", each priced for all the samples that it could use" if decision.question.needs[0].elastic else ""
    )
    yield table(
        f"Offers for {stage}: {len(decision.refusal_index)}{some}{whole}",
        OFFER_HEADS,
        rows[:SHOWN],
        class_="stack offers",
    )
    if rows[SHOWN:]:
        rest = table(f"The other offers for {stage}", OFFER_HEADS, rows[SHOWN:], class_="stack offers")
        yield tag("details", tag("summary", f"The other {len(rows) - SHOWN} offers, and why not"), rest)
    if more := unlisted_counts(decision):
        told = ", ".join(f"{number_text.count(count)} {code}" for code, count in more.items())
        yield tag("p", f"And more, each with its code in the JSON: {told}.", class_="note")


def _offer(decision: Decision, columns: Rows, offered: OfferView) -> tuple[object, ...]:
    row = offered.row
    price = offered.usd_per_hour_micro
    return (
        text(
            offered.pool,
            tag("small", offered.market, f", writes {offered.writes}" if offered.writes else None),
        ),
        number_text.hourly(from_microusd(price)) if price else "none",
        _cost(int(columns.est_microusd[row]), int(columns.est_ms[row])) if offered.usable else None,
        _cost(int(columns.p95_microusd[row]), int(columns.p95_ms[row])) if offered.usable else None,
        _taken(decision) if offered.selected else number_text.sentence(offered.verdict),
    )


def _taken(decision: Decision) -> Html:
    """An elastic stage is given what is left, which may be less than all that it could use."""
    choice, taken = decision.choice, tag("strong", "Taken")
    if choice is None or choice.objective != "max-samples":
        return taken
    given = f"{number_text.count(choice.samples)} samples for {number_text.dollars(choice.est_usd)} in {number_text.duration(choice.est_s)}"
    most = (
        f"; at most {number_text.dollars(choice.p95_usd)} in {number_text.duration(choice.p95_s)}"
        if choice.p95_usd > choice.est_usd
        else ""
    )
    return text(taken, tag("small", given + most))


def _cost(microusd: int, ms: int) -> Html:
    return text(number_text.dollars(from_microusd(microusd)), tag("small", number_text.duration(ms / 1000)))


def _grounds(attempt: Attempt, run_id: str) -> Html:
    """What it rested on: folded away."""
    decision = attempt.decision
    question = decision.question
    dated = {quote.as_of.isoformat() for quote in question.quotes}
    span = f" of {min(dated)}" if len(dated) == 1 else f" of {min(dated)} to {max(dated)}" if dated else ""
    doubted = f", {len(question.rejected_prices)} not believed" if question.rejected_prices else ""
    summary = tag(
        "summary",
        f"{len(question.quotes)} prices{span}{doubted}; what it expects of later stages; how to make it again",
    )
    return tag("details", summary, *_tables(decision), _again(attempt, run_id))


def _tables(decision: Decision) -> Iterable[Html]:
    question = decision.question
    later: list[Row] = [
        (
            each.stage,
            f"{each.pool}, {each.market}",
            lying(each.format, each.storage_class) or "no data set",
            _cost_s(each.est_usd, each.est_s),
            _cost_s(each.reserved_usd, each.reserved_s),
        )
        for each in decision.plan
    ]
    quotes = sorted(question.quotes, key=lambda quote: (quote.pool, quote.market))
    prices: list[Row] = [
        (each.pool, each.market, number_text.hourly(each.usd_per_hour), each.as_of, each.source)
        for each in quotes
    ]
    doubted: list[Row] = [(each.row, each.reason) for each in question.rejected_prices]
    grids = (
        ("Expected of later stages", LATER_HEADS, later),
        ("Prices", PRICE_HEADS, prices),
        ("Prices not believed", DOUBT_HEADS, doubted),
    )
    for caption, heads, rows in grids:
        if rows:
            yield tag("div", table(caption, heads, rows), **scroll(f"{caption} ({question.stage})"))


def _cost_s(amount_usd: Decimal, seconds: float) -> Html:
    return text(number_text.dollars(amount_usd), tag("small", number_text.duration(seconds)))


def _again(attempt: Attempt, run_id: str) -> Html:
    """How to replay it, and the digests of what went in."""
    decision = attempt.decision
    command = f"shoestring replay runs/{run_id}/decisions/{attempt.key}.json"
    facts = [
        ("Replay", tag("code", command)),
        ("Asked", number_text.moment(decision.question.asked_at)),
        ("Made by", f"{decision.made_by}, seed {decision.question.seed}"),
        ("Policy", tag("code", decision.algorithm.sha256)),
        *(
            (name.capitalize(), tag("code", value))
            for name, value in sorted(decision.question.digests.items())
            if value
        ),
    ]
    return tag("dl", *(text(tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")
