"""A profile as text for a terminal: what would pay first, then where the time goes."""

from __future__ import annotations

from shoestring.reporting import number_text
from shoestring.routing.text_table import TextTable, text_lines
from shoestring.training.profiling.profile import Profile, WeightStep

NOTES = {
    "product": "matrices and convolutions",
    "pointwise": "values alone, and sums",
    "layout": "copies",
    "optimizer": "weights' update",
    "other": "",
}
SHOWN_OPERATORS = 12


def profile_text(found: Profile) -> str:
    """Return the profile in lines."""
    million_usd = number_text.dollars(found.usd_per_hour * 1_000_000 / 3600 / max(1, round(found.rows_per_s)))
    step = f"a step of {number_text.quantity(found.rows, 'row')}: {number_text.short_duration(found.step_s)}"
    place = f"{found.device}, {number_text.quantity(found.threads, 'thread')}, {found.framework}"
    lines = [
        f"{step}, {found.rows_per_s:,.0f} rows/s, {million_usd} a million rows; {place}",
        "",
        *_advice(found),
        "",
        *text_lines(_operators(found)),
        *_memory(found),
        *_weights(found),
    ]
    if found.left_out:
        limit = number_text.duration(found.limit_s)
        lines.append(f"no time for {', '.join(found.left_out)}: the profile might take {limit}")
    return "\n".join(lines)


def _advice(found: Profile) -> list[str]:
    if not found.advice:
        return ["nothing that was tried or estimated would pay"]
    lines = ["what would pay:"]
    for each in found.advice:
        gain = f"{each.gain:.2f} times the rows a second"
        how = "measured" if each.is_measured else "at most, an estimate"
        lines.append(f"  {each.lever}: {gain} ({how}): {each.text}")
    return lines


def _operators(found: Profile) -> TextTable:
    shown = found.operators[:SHOWN_OPERATORS]
    rows = [
        (
            each.name,
            NOTES[each.kind],
            f"{each.calls:g}",
            number_text.short_duration(each.seconds),
            number_text.percent(each.share),
            number_text.dollars(each.usd),
            number_text.size(each.bytes),
        )
        for each in shown
    ]
    head = ("operator", "kind", "calls", "time", "share", "a million rows", "memory")
    note = "of a step, without the operators that each calls"
    return TextTable("where a step's time goes", head, rows, frozenset(head[2:]), note)


def _memory(found: Profile) -> list[str]:
    if (memory := found.memory) is None:
        return []
    wasted = memory.wasted_bytes / max(1, memory.reserved_bytes)
    return [
        f"memory: {number_text.size(memory.peak_bytes)} at most in tensors, "
        f"{number_text.size(memory.reserved_bytes)} reserved, {wasted:.0%} of it in fragments"
    ]


def _weights(found: Profile) -> list[str]:
    lines = [f"  {each.name}: {_condition(each)}" for each in found.badly_conditioned]
    return ["badly conditioned in one step, by their updates:", *lines] if lines else []


def _condition(weight: WeightStep) -> str:
    if not weight.gradient_norm:
        return "no gradient"
    change = f"update {weight.relative_update:.1e} of the weight, gradient {weight.gradient_norm:.2g}"
    return f"{weight.times_median:.2g} times the median: {change}"
