"""A second look at where a stage runs: stay, or stop at a checkpoint and be placed anew. Pure.

Compared are the samples that the money and the time that are left buy here, and elsewhere:

    saving      1 - here / elsewhere, as if moving were free
    disruption  1 - elsewhere after moving / elsewhere as if moving were free
    moving      the checkpoint and the exit at this price, start-up and set-up at that one; nothing is lost, since it leaves by a checkpoint

Where all samples that are left can be had at both, their cost takes the place of samples: dollars and what the time is worth. A stage
moves only when saving >= k x disruption + margin x moves made, k >= 1: what it moves for always outweighs the move. As no saving is above
1, no run moves more than 1 + 1 / margin times, whatever prices do; and for prices that wobble by less than the margin, once at most.
The time that is left counts like the money, so a place that is faster and dearer wins where the deadline is what ends the training.

A place that turns out worse than it was taken for is left by the same rule, after minutes instead of a whole run. So what nobody knows is
tried the sooner (`tries_sd`), here in the midst of a run, too: what finding out is worth comes off the cost of the place that is tried.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from shoestring.config.policy import MigrationPolicy, Policy
from shoestring.core.types import Market, Need, Record
from shoestring.routing.text_table import Grid

NEVER_IN = frozenset({"", "warm-up", "decay"})
"""Before it learns, while it warms up, while it anneals: what is begun there is brought to its end."""

TRIES_SD = 2.0
"""By how many standard deviations a place is taken for better than it is known to be, where a second look can end what turns out badly.
More than LOOK_SD of pricing/learning, since a try takes minutes; tuned on every other model of bench/gpu_choice.py."""


class Standing(Record):
    """A stage that runs. `s_per_sample` is measured; `left_s` None: no deadline. `leave_s`: a checkpoint and the exit."""

    pool: str
    market: Market
    usd_per_hour: float = Field(gt=0)
    s_per_sample: float = Field(gt=0)
    phase: str
    here_s: float = Field(ge=0, description="since it began here")
    moves: int = Field(ge=0, description="made in this run already")
    left_usd: float
    left_s: float | None
    samples_left: float = Field(ge=0)
    leave_s: float = Field(ge=0)
    delay_usd_per_hour: float = Field(0.0, ge=0)


class Elsewhere(Record):
    """The place that a router would choose now. `s_per_sample`: by the model, scaled like what was measured here is to its own."""

    pool: str
    market: Market
    usd_per_hour: float = Field(gt=0)
    s_per_sample: float = Field(gt=0)
    start_s: float = Field(ge=0, description="start-up and set-up")
    worth: float = Field(
        0.0, ge=0, lt=1, description="share of its cost that finding out how fast it is there is worth"
    )


class Why(StrEnum):
    MOVE = "move"
    PHASE = "phase"
    DWELL = "dwell"
    MOVES = "moves"
    SAME = "same-place"
    NO_SAVING = "no-saving"
    DISRUPTION = "disruption"


class Verdict(Record):
    """Move, or stay; the sentence holds the numbers."""

    code: Why
    sentence: str
    saving: float = 0.0
    disruption: float = 0.0

    @property
    def moves(self) -> bool:
        return self.code is Why.MOVE


class Look(Record):
    """What was put to `second_look`, and its answer: `runs/RUN_ID/looks/STAGE-N.json` is the last one of an attempt."""

    standing: Standing
    elsewhere: Elsewhere | None
    verdict: Verdict


LOOK_HEADS = ("place", "$/hour", "a thousand samples", "the money and time left buy", "to begin there")


def look_grid(look: Look) -> Grid:
    """The last look at where a stage ran: what it was held against, and why it stayed or was moved."""
    at, there = look.standing, look.elsewhere
    rows = [_look_row(at, at.pool, at.market, at.usd_per_hour, at.s_per_sample, "runs here")]
    if there is not None:
        begin = f"{there.start_s + at.leave_s:,.1f} s"
        rows.append(_look_row(at, there.pool, there.market, there.usd_per_hour, there.s_per_sample, begin))
    left_s = "" if at.left_s is None else f" and {at.left_s:,.0f} s"
    left = f"in {at.phase or 'its first steps'}, {at.here_s:,.0f} s here, ${at.left_usd:.6f}{left_s} left for {at.samples_left:,.0f} samples"
    return Grid(
        "Last second look", LOOK_HEADS, rows, frozenset(LOOK_HEADS[1:]), f"{look.verdict.sentence}; {left}"
    )


def _look_row(
    at: Standing, pool: str, market: Market, usd_per_hour: float, s_per_sample: float, begin: str
) -> tuple[str, ...]:
    buys = f"{bought(at, usd_per_hour, s_per_sample):,.0f} samples"
    return (f"{pool} {market}", f"{usd_per_hour:.6f}", f"{1000 * s_per_sample:,.3f} s", buys, begin)


def looks_twice(rules: Policy, need: Need) -> bool:
    """May this stage be moved while it runs: it takes what its money buys, by checkpoints, and the policy says so."""
    return bool(rules.migration.check_every_s and rules.adaptation_limits.pool and need.elastic)


def tries_sd(rules: Policy, need: Need, moves: int) -> float:
    """What `Question.tries_sd` is of a stage that was moved so often: 0 where it could not be moved once more."""
    return TRIES_SD if looks_twice(rules, need) and moves < rules.migration.max_migrations else 0.0


def second_look(at: Standing, there: Elsewhere | None, rules: MigrationPolicy) -> Verdict:
    """What to do about a stage that runs. `there` None: a router would choose the same place."""
    if at.phase in NEVER_IN or at.phase in rules.critical_phases:
        return Verdict(code=Why.PHASE, sentence=f"stays: nothing is moved in {at.phase or 'its first steps'}")
    if at.here_s < rules.min_dwell_s:
        return Verdict(
            code=Why.DWELL, sentence=f"stays: {at.here_s:.0f} s here, and it dwells for {rules.min_dwell_s:g}"
        )
    if at.moves >= rules.max_migrations:
        return Verdict(
            code=Why.MOVES, sentence=f"stays: it was moved {at.moves} times, {rules.max_migrations} are allowed"
        )
    if there is None or (there.pool, there.market) == (at.pool, at.market):
        return Verdict(
            code=Why.SAME, sentence=f"stays: {at.pool} {at.market} is what a router would choose now"
        )
    saving, disruption, what = weighed(at, there)
    named = f"{there.pool} {there.market} at ${there.usd_per_hour:.6f} an hour"
    if saving <= 0:
        return Verdict(
            code=Why.NO_SAVING, sentence=f"stays: {named} saves nothing", saving=saving, disruption=disruption
        )
    needed = rules.saving_over_disruption * disruption + rules.extra_saving_per_migration * at.moves
    numbers = f"{named} saves {saving:.1%}{what}, moving takes {disruption:.1%}"
    if there.worth and not what:
        numbers += f", with {there.worth:.1%} taken off for finding out how fast it is there"
    if saving < needed:
        sentence = f"stays: {numbers}, and {needed:.1%} would have to be saved"
        return Verdict(code=Why.DISRUPTION, sentence=sentence, saving=saving, disruption=disruption)
    return Verdict(code=Why.MOVE, sentence=f"moves: {numbers}", saving=saving, disruption=disruption)


def weighed(at: Standing, there: Elsewhere) -> tuple[float, float, str]:
    """Relative saving and disruption, and of what. Each at most 1; the saving may be below 0."""
    moving_usd = (at.usd_per_hour * at.leave_s + there.usd_per_hour * there.start_s) / 3600
    moving_s = at.leave_s + there.start_s
    here = bought(at, at.usd_per_hour, at.s_per_sample)
    free = bought(at, there.usd_per_hour, there.s_per_sample)
    moved = bought(at, there.usd_per_hour, there.s_per_sample, moving_usd, moving_s)
    if here >= at.samples_left > 0 and moved >= at.samples_left:
        waiting = at.delay_usd_per_hour
        cost_here = at.samples_left * at.s_per_sample * (at.usd_per_hour + waiting) / 3600
        cost_there = (
            at.samples_left * there.s_per_sample * ((1 - there.worth) * there.usd_per_hour + waiting) / 3600
        )
        return 1 - cost_there / cost_here, (moving_usd + waiting * moving_s / 3600) / cost_here, ""
    if free <= 0:
        return 0.0, 1.0, ""
    return 1 - here / free, 1 - moved / free, " a sample"


def bought(
    at: Standing, usd_per_hour: float, s_per_sample: float, usd: float = 0.0, seconds: float = 0.0
) -> float:
    """Samples that money and time buy at a price and a pace, after so much of both is gone."""
    by_money_s = (at.left_usd - usd) * 3600 / usd_per_hour
    by_time_s = by_money_s if at.left_s is None else at.left_s - seconds
    return min(at.samples_left, max(0.0, min(by_money_s, by_time_s)) / s_per_sample)
