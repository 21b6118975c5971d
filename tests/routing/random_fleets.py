"""Random questions with a real choice, from a seed: many pools that nearly tie, and limits that bind.

Pools come in a few kinds of machines, so that several offer the same work at other prices, preemption rates,
start-up times and regions. Prices are drawn from a few levels, so that some are equal and some nearly so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from routing_cases import FULL, PACKED, PARQUET, quote

from shoestring.config.preferences import Preferences
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import CommittedHours
from shoestring.core.types import Format, Market, MarketTerms, Need, Pool, Quote
from shoestring.pricing.format_speeds import FormatSpeed
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.dag import UpstreamStage
from shoestring.routing.question import Question
from shoestring.routing.question_parts import CachedOutcome

AMPLE_USD = Decimal(1_000_000)
LARGE_PACKED = PARQUET.model_copy(update={"format": Format.PACKED, "size_ratio": 0.8})  # twice as large
SLOW_PARQUET = PARQUET.model_copy(update={"scan_ns_per_row": 30_000, "write_ns_per_row": 90_000})
SLOW_TO_READ = PACKED.model_copy(update={"scan_ns_per_row": 60_000, "write_ns_per_row": 10_000})
FAST_PACKED = PACKED.model_copy(update={"scan_ns_per_row": 3000, "write_ns_per_row": 10_000})

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "fork": ((), (0,), (0,)),
    "join": ((), (), (0, 1)),
    "diamond": ((), (0,), (0,), (1, 2)),
    "two forks": ((), (0,), (0,), (1,), (1,)),
    "two diamonds": ((), (0,), (0,), (1, 2), (1, 2)),
    "three in parallel": ((), (0,), (0,), (0,), (1, 2, 3)),
}
"""By stage, the stages that it waits for."""

MAX_TARGETS = {1: 24, 2: 24, 3: 10, 4: 5, 5: 4}
"""Targets by number of stages: few enough plans to try them all."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question with ample money and time, and the shape of its stages."""

    shape: str
    question: Question


class FleetDice:
    """Draws questions from a random generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.rng.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < probability)

    def draw(self, targets: int = 0) -> Drawn:
        """Return a question with ample money and time; 0 targets: few enough to try all plans."""
        shape, after = self.shape()
        stages = len(after)
        needs = self.needs(after)
        formats = self.formats(stages)
        pools, quotes = self.fleet(targets or MAX_TARGETS[stages] * 2 // formats["variants"])
        upstream = () if shape == "chain" else self.upstream(formats["speeds"])
        if upstream:
            needs = tuple(self.waiting(need, number) for number, need in enumerate(needs))
        cached = self.cached(needs, formats["speeds"]) if shape == "chain" and self.chance(0.1) else {}
        question = Question(
            run_id="random",
            stage=needs[0].stage,
            seed=0,
            asked_at=datetime(2026, 11, 1, tzinfo=UTC),
            needs=needs,
            upstream=upstream,
            rows=self.pick(2000, 200_000),
            row_bytes=self.pick(0, 500),
            reads_format=self.pick(None, formats["speeds"][0].format),
            data_region=self.pick("local", "far"),
            budget_usd=AMPLE_USD,
            pools=pools,
            quotes=quotes,
            speeds=formats["speeds"],
            tariffs=formats["tariffs"],
            learned=self.learned(needs, pools),
            exploration_sd=self.pick(0.0, 0.0, 1.0),
            commitments=self.commitments(pools),
            preferences=self.preferences(),
            **cached,
        )
        return Drawn(shape, question)

    def shape(self) -> tuple[str, tuple[tuple[int, ...] | None, ...]]:
        """Return a shape and, by stage, the stages it waits for; None: the one before it."""
        if self.chance(0.5):
            return "chain", (None,) * self.pick(1, 2, 2, 3, 3, 4)
        name = self.pick(*SHAPES, "random DAG")
        if name in SHAPES:
            return name, SHAPES[name]
        stages = int(self.rng.integers(3, 6))
        after = [
            self.rng.choice(number, size=int(self.rng.integers(0, min(number, 2) + 1)), replace=False)
            for number in range(stages)
        ]
        return name, tuple(tuple(sorted(each.tolist())) for each in after)

    def needs(self, after: tuple[tuple[int, ...] | None, ...]) -> tuple[Need, ...]:
        """Return stages of fixed work; in most draws one of them is elastic, often the first."""
        stages = len(after)
        elastic = self.pick(-1, -1, 0, 0, int(self.rng.integers(stages)))
        return tuple(
            Need(
                stage=f"stage-{number}",
                after=None if before is None else tuple(f"stage-{each}" for each in before),
                setup_s=self.pick(0.0, 4.0, float(self.rng.uniform(0, 20))),
                cpu_us_per_row=self.pick(0.0, 10.0, 100.0, 300.0),
                parallel_fraction=float(self.rng.uniform(0, 1)),
                reads=self.pick("none", "scan", "scan", "shuffled"),
                writes_bytes_per_row=self.pick(0, 80, 4000),
                memory_fixed_gb=6.0 if self.chance(0.06) else 0.3,
                checkpoint_s=self.pick(0.0, 0.5),
                **(self.elastic() if number == elastic else {}),
            )
            for number, before in enumerate(after)
        )

    def elastic(self) -> dict[str, Any]:
        return {
            "elastic": True,
            "passes": self.pick(2.5, 40.0, 40.0),
            "min_passes": self.pick(0.0, 0.1, 1.0),
            "gpu": self.pick("no", "no", "may", "may", "may", "must"),
            "gpu_flop_per_row": self.pick(1e5, 1e8),
        }

    def fleet(self, targets: int) -> tuple[tuple[Pool, ...], tuple[Quote, ...]]:
        """Return pools of a few kinds of machines, and the prices of about `targets` targets."""
        kinds = [self.kind(number) for number in range(int(self.rng.integers(1, 4)))]
        regions = self.pick(("local",), ("local", "local", "local", "far", "other"), ("far", "other"))
        pools, quotes = list[Pool](), list[Quote]()
        while len(quotes) < targets:
            kind, usd_per_hour = self.pick(*kinds)
            on_demand = usd_per_hour * self.pick(1.0, 1.0, 1.00002, 1.05, 1.6)
            spot = MarketTerms(preemptions_per_hour=self.pick(0.0, 0.5, 0.5, 4.0, 30.0))
            with_spot = self.chance(0.6)
            pool = kind.model_copy(
                update={
                    "name": f"pool-{len(pools):02}",
                    "startup_s": kind.startup_s + self.pick(0, 0, 0, 9),
                    "region": self.pick(*regions),
                    "markets": {Market.ON_DEMAND: MarketTerms()} | ({Market.SPOT: spot} if with_spot else {}),
                    "capacity": FULL if self.chance(0.06) else None,
                }
            )
            pools.append(pool)
            quotes.append(priced(pool, Market.ON_DEMAND, on_demand))
            if with_spot:
                quotes.append(priced(pool, Market.SPOT, on_demand * self.pick(0.3, 0.9, 1.0, 1.0)))
        order = self.rng.permutation(len(pools))
        return tuple(pools[each] for each in order), tuple(quotes)

    def kind(self, number: int) -> tuple[Pool, float]:
        """Return a kind of machine and the level of its price in dollars an hour."""
        gpus = self.pick(0, 0, 1)
        pool = Pool(
            name=f"kind-{number}",
            cores=self.pick(1, 2, 4, 8),
            memory_gb=self.pick(4.0, 8.0, 16.0),
            core_speed=self.pick(0.7, 1.0, float(self.rng.uniform(0.5, 3))),
            startup_s=self.pick(0.0, 5.0, float(self.rng.uniform(0, 60))),
            gpu_count=gpus,
            gpu_tflops=100.0 * gpus,
            gpu_memory_gb=16.0 * gpus,
        )
        return pool, pool.cores * pool.core_speed * self.pick(0.01, 0.04, 0.042) + gpus * 0.5

    def formats(self, stages: int) -> dict[str, Any]:
        """Return the formats and storage classes, and how many ways to store a data set they make."""
        speeds: tuple[FormatSpeed, ...] = self.pick(
            (PARQUET, PACKED),
            (SLOW_PARQUET, FAST_PACKED),
            (PARQUET, LARGE_PACKED),
            (SLOW_PARQUET, SLOW_TO_READ),
        )
        tariffs: dict[str, Any] = {
            "egress_usd_per_gb": {
                "local->far": "0.02",
                "far->local": "0.09",
                "other->*": self.pick("0.02", "0.09"),
            },
            "default_usd_per_gb": self.pick("0.02", "0.3"),
            "storage_held_hours": self.pick(0.0, float(self.rng.uniform(0, 8760))),
        }
        if self.chance(0.2):
            tariffs["egress_usd_per_gb"]["far->local"] = [
                {"up_to_gb": 0.3, "usd_per_gb": "0.01"},
                {"usd_per_gb": "0.2"},
            ]
        variants = 2
        if self.chance(0.4):
            tariffs["storage_classes"] = {"COLD": self.cold()}
            if stages < 4 and self.chance(0.5):
                variants = 4
            else:
                speeds = (self.pick(*speeds),)
        return {"speeds": speeds, "tariffs": Tariffs.model_validate(tariffs), "variants": variants}

    def cold(self) -> dict[str, Any]:
        return {
            "usd_per_gb_month": f"{self.rng.uniform(0.001, 0.03):.6f}",
            "retrieval_usd_per_gb": f"{self.rng.uniform(0, 0.1):.6f}",
            "min_days": self.pick(0, 30),
        }

    def upstream(self, speeds: tuple[FormatSpeed, ...]) -> tuple[UpstreamStage, ...]:
        """Return, for half of the DAGs, a running stage that some stages wait for."""
        ready_s = self.pick(0.0, 7.5, 60.0)
        written = self.pick(*speeds).format
        side = UpstreamStage(stage="side", format=written, row_bytes=self.pick(0, 80), ready_s=ready_s)
        return (side,) if self.chance(0.5) else ()

    def waiting(self, need: Need, number: int) -> Need:
        """Return a stage that now and then waits for the running one, too."""
        after = need.after or (() if number else ("done",))
        return need.model_copy(update={"after": (*after, "side") if self.chance(0.3) else after})

    def cached(self, needs: tuple[Need, ...], speeds: tuple[FormatSpeed, ...]) -> dict[str, Any]:
        """Return cached results of the first stage and of some of those after it."""
        formats = [each.format for each in speeds]
        later = [
            CachedOutcome(
                outcome=f"cache/{number}.json",
                format=self.pick(*formats) if need.writes_bytes_per_row else None,
            )
            for number, need in enumerate(needs[1:], 1)
        ]
        return {
            "cached_outcome": "cache/0.json",
            "cached_format": self.pick(*formats) if needs[0].writes_bytes_per_row else None,
            "cached_later_stages": tuple(later[: int(self.rng.integers(0, len(needs)))]),
        }

    def learned(self, needs: tuple[Need, ...], pools: tuple[Pool, ...]) -> tuple[LearnedSpeed, ...]:
        """Return, in a third of the draws, speeds learned on some pools, some of them little known."""
        if self.chance(2 / 3):
            return ()
        return tuple(
            LearnedSpeed(
                stage=need.stage,
                pool=pool.name,
                runs=3,
                log_mean=self.pick(0.0, 0.3, -0.3),
                log_sd=self.pick(0.1, 0.5),
                unknown_log_sd=self.pick(0.0, 0.1, 0.4),
            )
            for need in needs
            for pool in pools
            if self.chance(0.2)
        )

    def commitments(self, pools: tuple[Pool, ...]) -> tuple[CommittedHours, ...]:
        """Return, in a fifth of the draws, prepaid minutes of some pools."""
        if self.chance(0.8):
            return ()
        return tuple(
            CommittedHours(
                name=pool.name,
                pool=pool.name,
                market=Market.ON_DEMAND,
                month="2026-11",
                max_hours=self.pick(0.01, 0.02, 10.0),
            )
            for pool in pools
            if self.chance(0.3)
        )

    def preferences(self) -> Preferences:
        """Return a policy: mostly one without rules, else a price of delay or a market that is excluded."""
        if self.chance(0.6):
            return Preferences()
        classes = {self.pick("compute", "data"): {"markets": ("on-demand",)}} if self.chance(0.3) else {}
        return Preferences.model_validate(
            {"delay_usd_per_hour": self.pick("0", "0.05", "3"), "workload_classes": classes}
        )


def priced(pool: Pool, market: Market, usd_per_hour: float) -> Quote:
    """Return the price of a pool on a market: at least a micro-dollar an hour."""
    return quote(pool.name, f"{max(usd_per_hour, 1e-6):.6f}", market)
