"""The arithmetic that makes offers of their recorded factors. Only operations that IEEE 754 rounds alike everywhere, so that any machine
makes the same offers of the same record, to the last digit.

    ms       = start-up + multiplier x prior + lost to preemption       multiplier: mean or P95 of true over prior (pricing/learning)
    prior    = setup + computing and random takes + scan in the format read + writing in the format written
    microusd = usd_per_hour x ms + moving the bytes in and out + holding them       ms: at the mean, less what is paid for already

Lost to preemption, at a rate of r an hour over T hours of running, each start costing s:
    kept nothing (starts again from nothing)   (e^rT - 1) s + ((e^rT - 1) / rT - 1) T      repeated trials, exponential lifetimes
    kept a checkpoint (checkpoint_ms > 0)      rT (s + setup + checkpoint)
    at P95, besides, 1.645 sqrt(rT) losses more (Poisson, normal approximation), each of a start and half the work or the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.pricing.calibration import Z95
from shoestring.routing.candidates import (
    MOST_LOSSES,
    MOST_MICRO,
    MS_PER_HOUR,
    NONE,
    PPB,
    Cached,
    Candidates,
    Floats,
    Ints,
    StageOffers,
    up,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Offers as columns. `est` and `p95` are for all of a stage's work (an elastic stage: all its passes), `least_*` for the least worth
    starting for (a fixed stage: the same). `prior` is what the throughput model says before anything learned, start-up and preemption;
    `fixed` the part of it that does not grow with the samples. `exclusion` numbers its stage's exclusions."""

    stage: Ints
    pool: Ints
    market: Ints
    reads: Ints
    writes: Ints
    cached: Ints
    exclusion: Ints
    usd_per_hour_micro: Ints
    samples: Ints
    min_samples: Ints
    prior_ms: Ints
    fixed_ms: Ints
    startup_ms: Ints
    read_ms: Ints
    write_ms: Ints
    loss_ms: Ints
    transfer_microusd: Ints
    storage_microusd: Ints
    est_ms: Ints
    p95_ms: Ints
    est_microusd: Ints
    p95_microusd: Ints
    min_est_ms: Ints
    min_p95_ms: Ints
    min_est_microusd: Ints
    min_p95_microusd: Ints


POWERS_OF_TWO: Floats = np.ldexp(1.0, np.arange(74))
"""As far as `growth` needs them."""


def growth(z: Floats) -> Floats:
    """e^z - 1 for 0 <= z <= 50, by operations that are rounded alike everywhere: a library's own differ in the last bit.

    Cody and Waite's reduction by powers of two, then the Taylor series to the 15th term, which is below 1e-17 there.
    """
    halves = np.floor(z * 1.4426950408889634 + 0.5)
    rest = (z - halves * 0.693147180369123816490) - halves * 1.90821492927058770002e-10
    series = np.ones_like(rest)
    for term in range(15, 1, -1):
        series *= rest
        series /= term
        series += 1.0
    series *= rest
    power = POWERS_OF_TWO.take(halves.astype(np.int64))
    series *= power
    power -= 1.0
    series += power
    return series


def time_cost(ms: Ints, micro_per_hour: int) -> Ints:
    """What waiting so long is worth, in micro-dollars. Hours and the rest apart, so that products stay within 64 bits."""
    if not micro_per_hour:
        return np.broadcast_to(np.int64(0), ms.shape)
    hours, rest = np.divmod(ms, MS_PER_HOUR)
    found: Ints = np.minimum(hours * micro_per_hour + rest * micro_per_hour // MS_PER_HOUR, MOST_MICRO)
    return found


@dataclass(frozen=True, slots=True)
class Prices:
    """Time and money of a block of offers, [formats read, formats written, slots], at the mean or at P95."""

    ms: Ints
    microusd: Ints


class Block:
    """The offers of one stage on some of its slots. All arrays are [formats read, formats written, slots], or broadcast to it."""

    def __init__(self, candidates: Candidates, stage: int, slots: Ints) -> None:
        self.offers, self.slots = candidates.offers[stage], slots
        self.price: Floats = candidates.usd_per_hour_micro[slots].astype(np.float64)
        self.startup_ms: Floats = candidates.startup_ms[slots].astype(np.float64)
        self.rate: Floats = candidates.preemptions_ppb[slots] / (PPB * float(MS_PER_HOUR))
        self.free_ms = candidates.free_ms[slots] if candidates.free_ms.size else None
        self.machine, self.region, self.width = (
            candidates.machine[slots],
            candidates.region[slots],
            len(candidates.formats) + 1,
        )
        self.setup_us = self.offers.setup_us_by_machine[self.machine].astype(np.float64)
        self.at_risk = np.flatnonzero(self.rate)

    def fixed_us(self) -> Floats:
        """What does not grow with the samples, but for the setup: reading once and writing."""
        offers = self.offers
        found = (
            offers.scan_us_by_format[list(offers.reads)][:, None]
            + offers.write_us_by_format[list(offers.writes)][None, :]
        )
        return found[:, :, None].astype(np.float64)

    def transfer_by_region(self) -> tuple[Ints, Ints]:
        """The bytes into a region, [formats read, regions], and out of it, [formats written, regions]."""
        into = self.offers.into_microusd_by_region.reshape(-1, len(self.offers.scan_us_by_format))
        out = self.offers.out_microusd_by_region.reshape(-1, self.width)
        return into[:, list(self.offers.reads)].T, out[:, list(self.offers.writes)].T

    def fees_by_region(self) -> tuple[Ints, Ints]:
        """The same, with holding what is written."""
        into, out = self.transfer_by_region()
        return into, out + self.offers.storage_microusd_by_format[list(self.offers.writes)][:, None]

    def transfer_microusd(self) -> Ints:
        into, out = self.transfer_by_region()
        return into[:, self.region][:, None, :] + out[:, self.region][None, :, :]

    def fees_microusd(self) -> Ints:
        into, out = self.fees_by_region()
        return into[:, self.region][:, None, :] + out[:, self.region][None, :, :]

    def prices(self, fixed_us: Floats, fees: Ints, *, least: bool = False, worst: bool = False) -> Prices:
        """Of all the work or the least, at the mean or at P95."""
        offers = self.offers
        work_us = (
            offers.min_work_us_by_machine if least else offers.work_us_by_machine
        ) + offers.setup_us_by_machine.astype(np.float64)
        multiplier = (offers.p95_ppb_by_machine if worst else offers.mean_ppb_by_machine) / (PPB * 1e3)
        running_ms = ((fixed_us + work_us) * multiplier).take(self.machine, axis=-1)
        ms = running_ms + self.startup_ms
        if self.at_risk.size:
            ms[..., self.at_risk] += self._loss_ms(
                running_ms.take(self.at_risk, axis=-1), self.at_risk, worst=worst
            )
        whole_ms = up(ms)
        # Somebody else may use what is paid for first: at P95 every hour has its price.
        paid_ms = whole_ms if worst or self.free_ms is None else np.maximum(whole_ms - self.free_ms, 0)
        paid_microusd = self.price * paid_ms
        paid_microusd /= MS_PER_HOUR
        microusd = up(paid_microusd)
        microusd += fees
        return Prices(whole_ms, microusd)

    def loss_ms(self, fixed_us: Floats) -> Ints:
        """Expected time lost to preemption, of all the work."""
        multiplier = self.offers.mean_ppb_by_machine[self.machine] / (PPB * 1e3)
        running_ms = (fixed_us + self.offers.work_us_by_machine[self.machine] + self.setup_us) * multiplier
        return up(self._loss_ms(running_ms, np.arange(len(self.slots)), worst=False))

    def _loss_ms(self, running_ms: Floats, at: Ints, *, worst: bool) -> Floats:
        """As at the module's head, for the slots `at`."""
        losses = np.minimum(self.rate[at] * running_ms, MOST_LOSSES)
        if self.offers.checkpoint_ms:
            each_ms = self.startup_ms[at] + self.setup_us[at] / 1e3 + self.offers.checkpoint_ms
            lost_ms = losses * each_ms
        else:
            each_ms = self.startup_ms[at] + running_ms / 2
            again = growth(losses)
            times = np.divide(again, losses, out=np.ones_like(losses), where=losses > 1e-12)
            lost_ms = again * self.startup_ms[at] + (times - 1) * running_ms
        return lost_ms + (Z95 * np.sqrt(losses) * each_ms if worst else 0.0)


def stage_offer_table(candidates: Candidates, stage: int) -> Rows:
    """The offers of one stage, one a row."""
    offers, slots = candidates.offers[stage], np.arange(len(candidates.pool))
    block = Block(candidates, stage, slots)
    fixed_us, fees = block.fixed_us(), block.fees_microusd()
    shape = (len(offers.reads), len(offers.writes), len(slots))
    found = {name: block.prices(fixed_us, fees, least=least, worst=worst) for name, least, worst in PRICED}
    work_us, scan = (
        offers.work_us_by_machine[block.machine],
        offers.scan_us_by_format[list(offers.reads)][:, None, None],
    )
    fixed = fixed_us + block.setup_us
    columns: dict[str, Any] = {
        "stage": stage,
        "pool": candidates.pool,
        "market": candidates.market,
        "reads": np.array(offers.reads)[:, None, None],
        "writes": np.array(offers.writes)[None, :, None],
        "cached": 0,
        "exclusion": offers.exclusion,
        "usd_per_hour_micro": candidates.usd_per_hour_micro,
        "samples": offers.samples,
        "min_samples": offers.min_samples,
        "prior_ms": up((fixed + work_us) / 1e3),
        "fixed_ms": up(fixed / 1e3),
        "startup_ms": candidates.startup_ms,
        "read_ms": up((scan + offers.takes_us) / 1e3),
        "write_ms": up(offers.write_us_by_format[list(offers.writes)][None, :, None] / 1e3),
        "loss_ms": block.loss_ms(fixed_us),
        "transfer_microusd": block.transfer_microusd(),
        "storage_microusd": offers.storage_microusd_by_format[list(offers.writes)][None, :, None],
    }
    columns |= {f"{name}_ms": prices.ms for name, prices in found.items()}
    columns |= {f"{name}_microusd": prices.microusd for name, prices in found.items()}
    # Numbered by slot first.
    flat = {
        name: np.broadcast_to(np.asarray(value, dtype=np.int64), shape).transpose(2, 0, 1).ravel()
        for name, value in columns.items()
    }
    if offers.cached:
        flat = {
            name: np.append(values, _free(candidates, offers, offers.cached, stage).get(name, 0))
            for name, values in flat.items()
        }
    return Rows(**flat)


PRICED = (("est", False, False), ("p95", False, True), ("least_est", True, False), ("least_p95", True, True))


def _free(candidates: Candidates, offers: StageOffers, cached: Cached, stage: int) -> dict[str, int]:
    """What of a cached outcome's row is not nothing."""
    return {
        "stage": stage,
        "pool": int(candidates.pool[cached.slot]),
        "market": int(candidates.market[cached.slot]),
        "reads": cached.reads,
        "writes": cached.writes,
        "cached": 1,
        "exclusion": NONE,
        "usd_per_hour_micro": int(candidates.usd_per_hour_micro[cached.slot]),
        "samples": offers.samples,
        "min_samples": offers.samples,
    }


def full_offer_table(candidates: Candidates) -> Rows:
    """The offers of all stages, one a row, by their numbers."""
    parts = [stage_offer_table(candidates, stage) for stage in range(len(candidates.offers))]
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__slots__))
