"""Questions about DAGs of stages, and all plans of a question by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st
from routing_cases import EVALUATE, INGEST, PREPROCESS, laptop_question, questions, tight_questions

from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Format, Need
from shoestring.routing.candidates import Candidates, Ints
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.question import Question

DIAMOND = (
    INGEST,
    PREPROCESS.model_copy(update={"stage": "left", "after": ("ingest",)}),
    PREPROCESS.model_copy(update={"stage": "right", "after": ("ingest",)}),
    EVALUATE.model_copy(update={"stage": "join", "after": ("left", "right")}),
)


SIDE = UpstreamStage(stage="side", format=Format.PACKED, row_bytes=80, ready_s=7.5)


def datasets_read(question: Question, datasets: dict[str, tuple[str, ...]], stage: int) -> tuple[str, ...]:
    """Return the names of the stages whose data sets a stage reads; "" is the question's own input."""
    need = question.needs[stage]
    if stage == 0:
        return ("side",) if "side" in (need.after or ()) else ("",)
    names = need.after if need.after is not None else (question.needs[stage - 1].stage,)
    order = ["side", "", *(each.stage for each in question.needs)]
    return tuple(sorted({source for name in names for source in datasets[name]}, key=order.index))


class AllPlans:
    """All plans, one an index.

    A plan has a usable offer for each stage, which reads the formats written before.

    `current`: this stage's offer. `cost`, `p95`: sums over the later stages, expected for all the work and at
    P95 for the fewest samples. `ends`: the end of each stage. `behind`: how much later than the
    current stage each stage ends; far below 0 if it does not wait for the current stage.
    """

    def __init__(self, question: Question, candidates: Candidates) -> None:
        self.question, self.candidates, self.columns = question, candidates, full_offer_table(candidates)
        zero = np.zeros(1, dtype=np.int64)
        self.current, self.cost, self.p95 = zero, zero, zero
        self.ends, self.behind = dict[str, Ints](), dict[str, Ints]()
        datasets = {"side": ("side",), "": ("",), "up": ("",)}
        self.formats = {"": self._format(question.reads_format), "side": self._format(SIDE.format)}
        for stage, need in enumerate(question.needs):
            reads = datasets_read(question, datasets, stage)
            self._add_stage(stage, need, reads)
            datasets[need.stage] = (need.stage,) if need.writes_bytes_per_row else reads

    def _format(self, name: Format | None) -> Ints:
        return np.full(
            1,
            -1
            if name is None or name not in self.candidates.formats
            else self.candidates.formats.index(name),
        )

    def _add_stage(self, stage: int, need: Need, reads: tuple[str, ...]) -> None:
        rows, offers = self.columns, self.candidates.offers[stage]
        cap = self.question.stage_budgets.get(need.stage)
        is_usable = (rows.stage == stage) & (rows.exclusion < 0)
        row_numbers = np.flatnonzero(
            is_usable if cap is None else is_usable & (rows.min_p95_microusd <= microusd(cap))
        )
        before, own = (
            np.repeat(np.arange(len(self.current)), len(row_numbers)),
            np.tile(row_numbers, len(self.current)),
        )
        if len(reads) == 1:
            fits = rows.reads[own] == self.formats[reads[0]][before]
        else:
            combinations = list(product(*(sorted(set(self.formats[name].tolist())) for name in reads)))
            numbered = product(*(self._possible_formats(name) for name in reads))
            code = {combination: number for number, combination in enumerate(numbered)} if reads else {(): -1}
            assert not reads or set(combinations) <= code.keys()
            assert offers.reads == (tuple(range(len(code))) if reads else (-1,))
            stored = (
                [tuple(each) for each in np.stack([self.formats[name] for name in reads], axis=1).tolist()]
                if reads
                else [()] * len(self.current)
            )
            fits = rows.reads[own] == np.array([code[each] for each in stored], dtype=np.int64)[before]
        before, own = before[fits], own[fits]
        for table in (self.formats, self.ends, self.behind):
            table |= {name: values[before] for name, values in table.items()}
        self.current = own if stage == 0 else self.current[before]
        self.cost = self.cost[before] + (0 if stage == 0 else rows.est_microusd[own])
        self.p95 = self.p95[before] + (0 if stage == 0 else rows.min_p95_microusd[own])
        ms = rows.min_p95_ms[own]
        names = (
            need.after
            if need.after is not None
            else ()
            if stage == 0
            else (self.question.needs[stage - 1].stage,)
        )
        starts, later = np.zeros_like(ms), np.full_like(ms, 0 if stage == 0 else -(2**40))
        for name in names:
            starts = np.maximum(starts, self.ends.get(name, 7500 if name == "side" else 0))
            later = np.maximum(later, self.behind.get(name, -(2**40)))
        self.ends[need.stage] = (0 if stage == 0 else starts) + ms
        self.behind[need.stage] = later + (0 if stage == 0 else ms)
        self.formats[need.stage] = rows.writes[own]

    def _possible_formats(self, name: str) -> tuple[int, ...]:
        if name in ("", "side"):
            return (int(self._format(self.question.reads_format if name == "" else SIDE.format)[0]),)
        offers = self.candidates.offers[self.candidates.stages.index(name)]
        return tuple(sorted({*offers.writes} | ({offers.cached.writes} if offers.cached else set())))

    def fitting(self) -> tuple[Ints, Ints]:
        """Return, for the plans that fit, the samples of this stage and the expected price of all stages."""
        question, rows, row = self.question, self.columns, self.current
        money = microusd(question.left_usd) - self.p95
        late_ms = np.max(list(self.ends.values()), axis=0)
        left_ms = 2**50 if question.deadline_left_s is None else int(question.deadline_left_s * 1000)
        fit = (rows.min_p95_microusd[row] <= money) & (late_ms <= left_ms)
        if not question.needs[0].elastic:
            return rows.samples[row][fit], (rows.est_microusd[row] + self.cost)[fit]
        if (cap := question.stage_budgets.get(question.stage)) is not None:
            money = np.minimum(money, microusd(cap))
        shares = [np.ones(len(row))]
        left = left_ms - np.max(list(self.behind.values()), axis=0)
        for limit, least, most in (
            (money, rows.min_est_microusd[row], rows.est_microusd[row]),
            (left, rows.min_est_ms[row], rows.est_ms[row]),
        ):
            shares.append(
                np.where(limit >= most, 1.0, np.clip((limit - least) / np.maximum(most - least, 1), 0.0, 1.0))
            )
        share, least, least_est = (
            np.min(shares, axis=0),
            rows.min_samples[row],
            rows.min_est_microusd[row],
        )
        samples = least + np.floor((rows.samples[row] - least) * share).astype(np.int64)
        price = least_est + np.ceil((rows.est_microusd[row] - least_est) * share).astype(np.int64)
        return samples[fit], (price + self.cost)[fit]

    def min_p95(self) -> int | None:
        """Return the minimum P95 micro-dollars of the plans that keep the deadline; None: there is none."""
        left_ms = (
            2**50 if self.question.deadline_left_s is None else int(self.question.deadline_left_s * 1000)
        )
        in_time = np.max(list(self.ends.values()), axis=0) <= left_ms
        needed = (self.columns.min_p95_microusd[self.current] + self.p95)[in_time]
        return int(needed.min()) if len(needed) else None


@st.composite
def branching(draw: st.DrawFn, stages: int = 4) -> Question:
    """Random small questions: stages wait for earlier ones, the input, a running stage, or none."""
    question = draw(st.one_of(questions(stages), tight_questions(stages)))
    needs, names = list[Need](), list[str]()
    for number, need in enumerate(question.needs):
        others = st.sampled_from([*names, *names, "up", "side"])
        after = ("up",) if number == 0 else tuple(dict.fromkeys(draw(st.lists(others, max_size=3))))
        needs.append(need.model_copy(update={"after": after}))
        names.append(need.stage)
    changes = {"needs": tuple(needs), "speeds": laptop_question().speeds, "upstream": (SIDE,)}
    if question.deadline_left_s is not None:
        changes["deadline_left_s"] = question.deadline_left_s * draw(st.floats(0.3, 1.5))
    return Question.model_validate(question.model_copy(update=changes).model_dump())


def wide(stages: int, deadline_left_s: float) -> Question:
    """Pairs of parallel stages, on pools that trade money for time in many ways."""
    needs = [INGEST]
    for number in range(1, stages):
        after = tuple(
            dict.fromkeys(f"s{max(0, number - step)}" if number > step else "ingest" for step in (2, 3))
        )
        size = {
            "cpu_us_per_row": 1.0 * (1 + number * 7 % 5),
            "parallel_fraction": 0.9,
            "setup_s": float(number % 4),
        }
        needs.append(
            PREPROCESS.model_copy(
                update={
                    "stage": f"s{number}",
                    "after": tuple("ingest" if name == "s0" else name for name in after),
                }
                | size
            )
        )
    question = laptop_question(tuple(needs), "1000", deadline_left_s=deadline_left_s)
    one = question.pools[0]
    pools = tuple(
        one.model_copy(update={"name": f"p{cores}", "cores": cores, "startup_s": float(cores % 7)})
        for cores in range(1, 41)
    )
    price = {pool.name: from_microusd(40_000 * pool.cores + 3_000 * pool.cores**2) for pool in pools}
    quotes = tuple(
        question.quotes[0].model_copy(update={"pool": name, "usd_per_hour": amount})
        for name, amount in price.items()
    )
    return question.model_copy(update={"pools": pools, "quotes": quotes})
