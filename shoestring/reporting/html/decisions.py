"""The report's account of each decision: the choice and its reason, the rejected offers, the prices, and how
to replay it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from shoestring.core.money import from_microusd
from shoestring.reporting import number_text
from shoestring.reporting.html.markup import Head, Html, Row, table, tag, text
from shoestring.reporting.run_story import AttemptStory
from shoestring.routing.candidates import format_text
from shoestring.routing.decision import Choice, Decision, sample_unit
from shoestring.routing.offers.offer_table import OfferTable, stage_offer_table
from shoestring.routing.pages.decision_view import (
    OfferView,
    budget_deductions,
    engine_text,
    offer_views,
    planned_name,
    unlisted_counts,
)
from shoestring.routing.pages.refusal_text import smallest_change
from shoestring.routing.question import Question

VISIBLE_OFFERS = 8
OFFER_HEADS: tuple[Head, ...] = (
    ("Offer", "name"),
    ("Price", "n"),
    ("Expected", "n"),
    ("P95", "n"),
    ("Verdict", "full"),
)
LATER_HEADS: tuple[Head, ...] = (
    ("Stage", "name"),
    ("Expected on", ""),
    ("Writes", ""),
    ("Expected", "n"),
    ("Reserved for it", "n"),
)
PRICE_HEADS: tuple[Head, ...] = (
    ("Pool", "name"),
    ("Market", ""),
    ("Price", "n"),
    ("As of", ""),
    ("Source", ""),
)
REJECTED_HEADS: tuple[Head, ...] = (("Price row", "name"), ("Reason", "full"))


def decision_section(attempt: AttemptStory, run_id: str) -> Html:
    decision = attempt.decision
    question, choice = decision.question, decision.choice
    number = f", attempt {question.attempt}" if question.attempt > 1 else ""
    head = tag("h3", f"{question.stage}{number}: {_chosen(choice) if choice else 'refused'}")
    why = number_text.as_sentence(choice.sentence) if choice else _refusal(decision)
    money = tag("p", _money_text(question, choice), class_="note")
    return tag(
        "article", head, tag("p", why, class_="prose"), money, *_offers(decision), _inputs(attempt, run_id)
    )


def _chosen(choice: Choice) -> str:
    writes = f", writing {format_text(choice.format, choice.storage_class)}" if choice.format else ""
    return f"{choice.pool}, {choice.market}{writes}" + (", from the cache" if choice.cached else "")


def _refusal(decision: Decision) -> str:
    return f"No offer fits: {smallest_change(decision)}."


def _money_text(question: Question, choice: Choice | None) -> str:
    chosen = [f"{number_text.dollars(amount)} {name}" for amount, name in budget_deductions(question)]
    parts = [
        f"{number_text.dollars(question.left_usd)} left of {number_text.dollars(question.budget_usd)}"
        + (f" ({', '.join(chosen)})" if chosen else "")
    ]
    if choice and choice.reserved_later_usd:
        parts.append(f"{number_text.dollars(choice.reserved_later_usd)} of it reserved for later stages")
    if question.stage in question.stage_budgets:
        parts.append(f"stage budget {number_text.dollars(question.stage_budgets[question.stage])}")
    if question.deadline_left_s is not None:
        parts.append(f"{number_text.duration(max(question.deadline_left_s, 0.0))} to the deadline")
    if question.soft_left_s is not None:
        soft = number_text.duration(max(question.soft_left_s, 0.0))
        parts.append(f"{soft} to a soft deadline, which it may miss")
    if question.engine is not None:
        parts.append(f"engine {engine_text(question)}")
    of = f" of {number_text.size(question.row_bytes)}" if question.row_bytes else ""
    parts.append(f"{number_text.count(question.rows)} rows{of}")
    return "; ".join(parts) + "."


def _offers(decision: Decision) -> Iterable[Html]:
    """Yield the candidates for this stage: the first few visible, the others folded."""
    columns, offers = stage_offer_table(decision.candidates, 0), offer_views(decision)
    rows = [_offer(decision, columns, offered) for offered in offers]
    stage, some = (
        decision.question.stage,
        f", the first {VISIBLE_OFFERS}" if len(rows) > VISIBLE_OFFERS else "",
    )
    elastic_note = (
        f", each priced for all the {sample_unit(decision.question.needs[0])} it could use"
        if decision.question.needs[0].elastic
        else ""
    )
    yield table(
        f"Offers for {stage}: {len(decision.refusal_index)}{some}{elastic_note}",
        OFFER_HEADS,
        rows[:VISIBLE_OFFERS],
        class_="stack offers",
    )
    if rows[VISIBLE_OFFERS:]:
        rest = table(
            f"The other offers for {stage}", OFFER_HEADS, rows[VISIBLE_OFFERS:], class_="stack offers"
        )
        yield tag(
            "details",
            tag("summary", f"The other {len(rows) - VISIBLE_OFFERS} offers, and why they were rejected"),
            rest,
        )
    if more := unlisted_counts(decision):
        counts = ", ".join(f"{number_text.count(count)} {code}" for code, count in more.items())
        yield tag("p", f"More rejected offers, each with its code in the JSON: {counts}.", class_="note")


def _offer(decision: Decision, columns: OfferTable, offered: OfferView) -> tuple[object, ...]:
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
        _chosen_cell(decision) if offered.selected else number_text.as_sentence(offered.verdict),
    )


def _chosen_cell(decision: Decision) -> Html:
    """Return the verdict of the chosen offer. An elastic stage may receive fewer samples than
    it could use.
    """
    choice, chosen = decision.choice, tag("strong", "Chosen")
    if choice is None or choice.objective != "max-samples":
        return chosen
    cost, duration = number_text.dollars(choice.est_usd), number_text.duration(choice.est_s)
    unit = sample_unit(decision.question.needs[0])
    given = f"{number_text.count(choice.samples)} {unit} for {cost} in {duration}"
    p95 = (
        f"; at most {number_text.dollars(choice.p95_usd)} in {number_text.duration(choice.p95_s)}"
        if choice.p95_usd > choice.est_usd
        else ""
    )
    return text(chosen, tag("small", given + p95))


def _cost(microusd: int, ms: int) -> Html:
    return text(number_text.dollars(from_microusd(microusd)), tag("small", number_text.duration(ms / 1000)))


def _inputs(attempt: AttemptStory, run_id: str) -> Html:
    """Return the inputs of the decision, folded."""
    decision = attempt.decision
    question = decision.question
    price_dates = {quote.as_of.isoformat() for quote in question.quotes}
    span = (
        f" of {min(price_dates)}"
        if len(price_dates) == 1
        else f" of {min(price_dates)} to {max(price_dates)}"
        if price_dates
        else ""
    )
    rejected = f", {len(question.rejected_prices)} rejected" if question.rejected_prices else ""
    summary = tag(
        "summary",
        f"{len(question.quotes)} prices{span}{rejected}; expected later stages; replay",
    )
    return tag("details", summary, *_tables(decision), _replay_facts(attempt, run_id))


def _tables(decision: Decision) -> Iterable[Html]:
    question = decision.question
    later: list[Row] = [
        (
            planned_name(question, each.stage),
            f"{each.pool}, {each.market}",
            format_text(each.format, each.storage_class) or "no data set",
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
    rejected: list[Row] = [(each.row, each.reason) for each in question.rejected_prices]
    tables = (
        ("Expected of later stages", LATER_HEADS, later),
        ("Prices", PRICE_HEADS, prices),
        ("Rejected prices", REJECTED_HEADS, rejected),
    )
    for caption, heads, rows in tables:
        if rows:
            yield table(caption, heads, rows, class_="stack")


def _cost_s(amount_usd: Decimal, seconds: float) -> Html:
    return text(number_text.dollars(amount_usd), tag("small", number_text.duration(seconds)))


def _replay_facts(attempt: AttemptStory, run_id: str) -> Html:
    """Return how to replay the decision, and the digests of its inputs."""
    decision = attempt.decision
    command = f"shoestring replay runs/{run_id}/decisions/{attempt.key}.json"
    facts = [
        ("Replay", tag("code", command)),
        ("Requested", number_text.utc_time(decision.question.asked_at)),
        ("Made by", f"{decision.made_by}, seed {decision.question.seed}"),
        ("Policy", tag("code", decision.algorithm.sha256)),
        *(
            (name.capitalize(), tag("code", value))
            for name, value in sorted(decision.question.digests.items())
            if value
        ),
    ]
    return tag("dl", *(text(tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")
