"""Lists and comparisons of runs as plain text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from shoestring.core.attempt_id import declared_stage
from shoestring.evaluation.results import Score
from shoestring.reporting import number_text
from shoestring.reporting.runs.run_comparison import RunComparison, StagePair, choice_of
from shoestring.reporting.runs.run_list import RunOverview
from shoestring.reporting.summary import StageSummary
from shoestring.routing.text_table import TextTable, text_lines

EMPTY = "-"


def runs_text(found: Sequence[RunOverview]) -> str:
    """Return a table with a row for each run, and a line for each that is interrupted."""
    if not found:
        return "there is no such run"
    header = ("run", "status", "requested", "spent", "budget", "time", "quality")
    rows = [
        (
            each.run_id,
            each.status,
            number_text.utc_time(each.requested_at),
            number_text.dollars(each.spent_usd),
            number_text.dollars(each.budget_usd),
            number_text.duration(each.wall_s) if each.starts else EMPTY,
            main_quality_text(each.quality),
        )
        for each in found
    ]
    caption = number_text.quantity(len(found), "run")
    reasons = [f"{each.run_id}: {each.reason}" for each in found if each.status == "interrupted"]
    return "\n".join([*text_lines(TextTable(caption, header, rows, frozenset(header[3:6]))), *reasons])


def main_quality_text(quality: dict[str, float]) -> str:
    """Return the primary metric with its interval.

    It is the one whose interval and baselines are beside it, under names that begin with its own.
    """
    if not quality:
        return EMPTY
    name = max(quality, key=lambda each: sum(other.startswith(f"{each}_") for other in quality))
    interval = _interval(quality[name], quality.get(f"{name}_low"), quality.get(f"{name}_high"))
    return f"{number_text.metric_name(name)} {interval}"


def comparison_text(found: RunComparison) -> str:
    """Return tables of the stages and the metrics, and the difference in dollars."""
    header = ("stage", "", "ran on", "expected", "spent", "time", "state")
    together: dict[str, list[StagePair]] = {}
    for pair in found.stages:
        together.setdefault(declared_stage(pair.stage), []).append(pair)
    rows = [row for name, pairs in together.items() for row in _rows_of(name, pairs)]
    changed = [name for name, pairs in together.items() if not all(pair.same_choice for pair in pairs)]
    note = f"placed differently: {', '.join(changed)}" if changed else "every stage was placed alike"
    lines = [f"first   {found.first}", f"second  {found.second}", ""]
    lines += text_lines(TextTable("Stages", header, rows, frozenset(header[3:6]), note))
    if found.metrics:
        heads = ("metric", "first", "second", "verdict")
        cells = [
            (
                number_text.metric_name(each.metric),
                _score_text(each.first),
                _score_text(each.second),
                each.verdict,
            )
            for each in found.metrics
        ]
        caption = "Quality on the sealed test split, with 95% intervals"
        lines += ["", *text_lines(TextTable(caption, heads, cells))]
    else:
        lines += ["", "quality: not both runs were evaluated"]
    spent = (number_text.dollars(amount) for amount in (found.first_spent_usd, found.second_spent_usd))
    times = (number_text.duration(seconds) for seconds in (found.first_wall_s, found.second_wall_s))
    return "\n".join(
        [
            *lines,
            "",
            f"{' and '.join(spent)} spent{_difference(found.second_costs_usd)}; {' and '.join(times)}",
        ]
    )


def _difference(second_costs_usd: Decimal) -> str:
    if not second_costs_usd:
        return ""
    more = "more" if second_costs_usd > 0 else "less"
    return f": the second {number_text.dollars(abs(second_costs_usd))} {more}"


def _rows_of(name: str, pairs: Sequence[StagePair]) -> list[tuple[str, ...]]:
    """Return the two rows of a stage, or of the items of a loop together."""
    first, second = ([getattr(pair, which) for pair in pairs] for which in ("first", "second"))
    return [
        (name, "first", *_stage_cells([stage for stage in first if stage])),
        ("", "second", *_stage_cells([stage for stage in second if stage])),
    ]


def _stage_cells(stages: Sequence[StageSummary]) -> tuple[str, ...]:
    if not stages:
        return ("not placed", EMPTY, EMPTY, EMPTY, EMPTY)
    states = Counter(stage.state for stage in stages)
    return (
        ", ".join(dict.fromkeys(map(choice_of, stages))),
        *(
            number_text.dollars(sum(amounts, Decimal(0)))
            for amounts in ([stage.est_usd for stage in stages], [stage.spent_usd for stage in stages])
        ),
        number_text.duration(sum(stage.seconds for stage in stages)),
        ", ".join(f"{count:,} {state}" if len(stages) > 1 else state for state, count in states.items()),
    )


def _score_text(score: Score) -> str:
    return _interval(score.value, score.low, score.high)


def _interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return number_text.score(value)
    return f"{number_text.score(value)} ({number_text.score(low)} to {number_text.score(high)})"
