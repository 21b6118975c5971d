"""The report of a run: one HTML file without scripts, fonts or external images."""

from __future__ import annotations

from decimal import Decimal
from importlib.resources import files

from shoestring.core.attempt_id import declared_stage, item_of
from shoestring.data.run_records import RunRecord
from shoestring.reporting import number_text
from shoestring.reporting.html.changes import changes_table, migration_checks_table, resources_table
from shoestring.reporting.html.curve import curve_section
from shoestring.reporting.html.data_section import data_section, predictions_section
from shoestring.reporting.html.decisions import decision_section
from shoestring.reporting.html.markup import Html, tag, text
from shoestring.reporting.html.outcome import actuals_table, hindsight_table
from shoestring.reporting.html.quality import quality_figure, quality_section
from shoestring.reporting.html.tables import ledger_tables, stages_table
from shoestring.reporting.run_story import RunStory
from shoestring.reporting.summary import RunSummary, summarise_run


def page(story: RunStory) -> str:
    """Return the complete report."""
    style = files("shoestring.reporting.html").joinpath("report.css").read_text(encoding="utf-8")
    summary = summarise_run(story)
    sections = [(key, name, made) for key, name, made in _sections(story) if made is not None]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{story.record.job.name}: {summary.status}"),
        tag("style", Html(style)),
    )
    links = [tag("a", name, href=f"#{key}") for key, name, _ in sections]
    body = tag(
        "body",
        tag("header", *_headline(story, summary), tag("nav", *links, aria_label="Sections")),
        tag("main", *(tag("section", tag("h2", name, id=key), made) for key, name, made in sections)),
        tag(
            "footer",
            f"Made by Shoestring from the records of run {story.run_id}. Amounts are rounded; the records "
            "hold the exact values.",
        ),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(story: RunStory) -> list[tuple[str, str, Html | None]]:
    return [
        ("quality", "Quality", quality_section(story)),
        ("loss", "Loss against dollars", curve_section(story)),
        ("predictions", "Predictions", predictions_section(story)),
        ("data", "Data", data_section(story)),
        ("stages", "Stages", stages_table(story) if story.start_accounts else None),
        ("actuals", "Estimate against actual", actuals_table(story)),
        ("hindsight", "Hindsight", hindsight_table(story)),
        ("changes", "Changes", changes_table(story)),
        ("migration-checks", "Migration checks", migration_checks_table(story)),
        ("energy", "Energy", resources_table(story)),
        ("decisions", "Decisions", _decisions(story)),
        ("ledger", "Ledger", ledger_tables(story) if story.start_accounts else None),
        ("environment", "Environment", _environment(story)),
    ]


def _decisions(story: RunStory) -> Html | None:
    """Return the decisions in their order. Of the items of a loop, all but the first are folded below it."""
    found: dict[str, list[Html]] = {}
    for attempt in story.attempts:
        section = decision_section(attempt, story.run_id)
        name = declared_stage(attempt.stage) if item_of(attempt.stage) else attempt.key
        found.setdefault(name, []).append(section)
    return text(*(_folded(name, made) for name, made in found.items())) if found else None


def _folded(name: str, sections: list[Html]) -> Html:
    first, *others = sections
    if not others:
        return first
    summary = tag("summary", f"{number_text.quantity(len(others), 'other decision')} for items of {name}")
    return text(first, tag("details", summary, *others))


def _headline(story: RunStory, summary: RunSummary) -> list[Html | None]:
    name = story.record.job.name
    over = tag("p", f"Run {story.run_id}", class_="over")
    title = tag("h1", name, " ", tag("span", summary.status, class_=f"badge {summary.status}"))
    return [over, title, *_lead(story, summary), tag("dl", *_figures(story, summary), class_="headline")]


def _lead(story: RunStory, summary: RunSummary) -> list[Html]:
    """Return why the run achieved less than requested, and the command to run next."""
    if not summary.reason:
        return []
    lead = tag("p", number_text.as_sentence(summary.reason), class_="lead")
    if summary.smallest_budget_usd is not None:
        again = f"{start_again(story)} --budget {summary.smallest_budget_usd.normalize():f}"
        return [lead, tag("p", tag("code", again), class_="command")]
    if summary.status in ("failed", "stopped"):
        return [lead, tag("p", tag("code", story.record.resume_text), class_="command")]
    return [lead]


def start_again(story: RunStory) -> str:
    """Return the command that starts the run again, or for the first time."""
    record = story.record
    return (
        record.resume_text if story.start_accounts or record.command else f"shoestring run {record.job.name}"
    )


def _figures(story: RunStory, summary: RunSummary) -> list[Html]:
    spent, budget = number_text.dollars(summary.spent_usd), number_text.dollars(summary.budget_usd)
    held_usd = sum((each.account.held_usd for each in story.start_accounts), Decimal(0))
    left_usd = max(Decimal(0), summary.budget_usd - summary.spent_usd)
    part = summary.spent_usd / summary.budget_usd if summary.budget_usd else Decimal(0)
    rest = (
        f"{number_text.dollars(held_usd)} held" if held_usd else f"{number_text.dollars(left_usd)} not used"
    )
    money = _figure(
        "Spent",
        text(spent, tag("small", f" of {budget}")),
        _bar(part, f"{spent} of {budget} spent"),
        tag("p", f"{number_text.percent(float(part))} of the budget; {rest}{_overrun(summary)}"),
    )
    starts = (
        f"started {len(story.start_accounts)} times, first at "
        if len(story.start_accounts) > 1
        else "started "
    )
    started = (
        f"{starts}{number_text.utc_time(story.start_accounts[0].start.started_at)}"
        if story.start_accounts
        else "not started"
    )
    time = _figure(
        "Wall time",
        number_text.duration(summary.wall_s) if story.start_accounts else "none",
        tag("p", f"{started}{_deadline(summary)}"),
    )
    quality = quality_figure(story)
    return [quality, money, time] if quality else [money, time]


def _deadline(summary: RunSummary) -> str:
    if summary.deadline_at is None or summary.status == "running":
        return ""
    deadline = f"deadline {number_text.utc_time(summary.deadline_at)}"
    return f"; {deadline} missed by {summary.late_s:,.1f} s" if summary.late_s else f"; {deadline} met"


def _overrun(summary: RunSummary) -> str:
    if not summary.overrun_usd:
        return ""
    return f"; an overrun of {number_text.dollars(summary.overrun_usd)} above the cap could not be booked"


def _figure(name: str, big: object, *rest: Html) -> Html:
    return tag("div", tag("dt", name), tag("dd", big, class_="big"), tag("dd", *rest))


def _bar(part: Decimal, lead: str) -> Html:
    marks = (
        tag("rect", x=0, y=0, width=100, height=10, class_="track"),
        tag("rect", x=0, y=0, width=round(100 * min(Decimal(1), part), 2), height=10, class_="fill"),
    )
    return tag(
        "svg",
        tag("title", lead),
        *marks,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        class_="bar",
    )


def _task(record: RunRecord) -> tuple[str, object]:
    """Return the row of the recipe or of the command: its name and its content."""
    if record.command is not None:
        return "Command", tag("code", record.command.text)
    return "Recipe", text(record.job.name, ", ", tag("code", record.recipe_sha256))


def _environment(story: RunStory) -> Html:
    """Return what is needed to reproduce the run."""
    record = story.record
    facts: list[tuple[str, object]] = [
        _task(record),
        ("World", text(record.world, ", ", tag("code", record.world_sha256))),
        ("Seed", record.job.seed),
        *([("Owner", record.job.owner)] if record.job.owner else []),
        ("Requested", number_text.utc_time(record.created_at)),
        *sorted(record.environment.items()),
    ]
    return tag("dl", *(text(tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")
