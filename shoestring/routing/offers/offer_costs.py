"""The time and price of offers, computed from their recorded factors.

It uses only operations that IEEE 754 rounds identically everywhere, so that every machine computes the same
offers from the same record, to the last digit.

    ms       = start-up + factor x prior + lost to preemption
               factor: mean or P95 of true over prior seconds (pricing/learned/learning.py)
    prior    = setup + computing and random reads + scan in the format read + writing in the format written
               setup: with the wait for a store that is far away, which no pool shortens
    microusd = usd_per_hour x ms + transfer in and out + storage
               at the mean, less the time that a commitment covers

Time lost to preemption, at a rate of r an hour over T hours of running, with each start costing s:

    without checkpoints            (e^rT - 1) s + ((e^rT - 1) / rT - 1) T
                                   restarts from scratch: repeated trials, exponential lifetimes
    with them (checkpoint_ms > 0)  rT (s + setup + checkpoint), or half of a checkpoint interval in place of
                                   the checkpoint where the engine ends pods without notice
    at P95, in addition            1.645 sqrt(rT) more preemptions (Poisson, normal approximation), each of
                                   which costs a start and half the work, or a start, the setup and the
                                   checkpoint, or half of the interval
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.pricing.checkpoint_interval import checkpoint_interval_s
from shoestring.pricing.learned.calibration import Z95
from shoestring.routing.candidates import (
    MAX_ESTIMATE,
    MAX_PREEMPTIONS,
    MS_PER_HOUR,
    PPB,
    Candidates,
    Floats,
    Ints,
    round_up,
)

POWERS_OF_TWO: Floats = np.ldexp(1.0, np.arange(74))
"""As many as `portable_expm1` needs."""


def portable_expm1(z: Floats) -> Floats:
    """Return e^z - 1 for 0 <= z <= 50, identical on every machine. Library versions differ in the last bit.

    Cody and Waite's reduction by powers of two, then the Taylor series to the 15th term, which is below 1e-17
    there.
    """
    exponent = np.floor(z * 1.4426950408889634 + 0.5)
    rest = (z - exponent * 0.693147180369123816490) - exponent * 1.90821492927058770002e-10
    series = np.ones_like(rest)
    for term in range(15, 1, -1):
        series *= rest
        series /= term
        series += 1.0
    series *= rest
    power = POWERS_OF_TWO.take(exponent.astype(np.int64))
    series *= power
    power -= 1.0
    series += power
    return series


def delay_cost(ms: Ints, microusd_per_hour: int) -> Ints:
    """Return what a delay of `ms` costs, in micro-dollars.

    Whole hours and the remainder are multiplied separately, so that the products fit 64 bits.
    """
    if not microusd_per_hour:
        return np.broadcast_to(np.int64(0), ms.shape)
    hours, rest = np.divmod(ms, MS_PER_HOUR)
    cost: Ints = np.minimum(hours * microusd_per_hour + rest * microusd_per_hour // MS_PER_HOUR, MAX_ESTIMATE)
    return cost


@dataclass(frozen=True, slots=True)
class BlockPrices:
    """Time and price of a block of offers: [formats read, formats written, targets]."""

    ms: Ints
    microusd: Ints


class OfferBlock:
    """The offers of one stage on some targets.

    Arrays are [formats read, formats written, targets], or broadcast to it.
    """

    def __init__(self, candidates: Candidates, stage: int, targets: Ints) -> None:
        self.offers, self.targets = candidates.offers[stage], targets
        self.usd_per_hour_micro: Floats = candidates.usd_per_hour_micro[targets].astype(np.float64)
        self.startup_ms: Floats = candidates.startup_ms[targets].astype(np.float64)
        self.preemptions_per_ms: Floats = candidates.preemptions_ppb[targets] / (PPB * float(MS_PER_HOUR))
        self.prepaid_ms = candidates.prepaid_ms[targets] if candidates.prepaid_ms.size else None
        self.machine, self.region = candidates.machine[targets], candidates.region[targets]
        self.formats = len(candidates.formats) + 1
        self.setup_us = self.offers.setup_us_by_machine[self.machine].astype(np.float64)
        self.preemptible = np.flatnonzero(self.preemptions_per_ms)

    def fixed_us(self) -> Floats:
        """Return the time of reading once and writing, which does not grow with the samples."""
        scan_us = self.offers.scan_us_by_format[list(self.offers.reads)][:, None]
        write_us = self.offers.write_us_by_format[list(self.offers.writes)][None, :]
        return (scan_us + write_us)[:, :, None].astype(np.float64)

    def transfer_by_region(self) -> tuple[Ints, Ints]:
        """Return the transfer price into each region and out of it.

        The first is [formats read, regions], the second [formats written, regions].
        """
        into = self.offers.transfer_in_microusd_by_region.reshape(-1, len(self.offers.scan_us_by_format))
        out = self.offers.transfer_out_microusd_by_region.reshape(-1, self.formats)
        return into[:, list(self.offers.reads)].T, out[:, list(self.offers.writes)].T

    def fees_by_region(self) -> tuple[Ints, Ints]:
        """Return the same as `transfer_by_region`, with storage added to what is written."""
        into, out = self.transfer_by_region()
        return into, out + self.offers.storage_microusd_by_format[list(self.offers.writes)][:, None]

    def transfer_microusd(self) -> Ints:
        """Return the transfer price of every offer."""
        into, out = self.transfer_by_region()
        return into[:, self.region][:, None, :] + out[:, self.region][None, :, :]

    def fees_microusd(self) -> Ints:
        """Return the price of transfer and storage of every offer."""
        into, out = self.fees_by_region()
        return into[:, self.region][:, None, :] + out[:, self.region][None, :, :]

    def prices(
        self, fixed_us: Floats, fees: Ints, *, minimum: bool = False, p95: bool = False
    ) -> BlockPrices:
        """Return time and price of all the work (`minimum`: of the fewest samples), at the mean or at P95; of
        a loop, those of all its items.
        """
        offers = self.offers
        work_us = offers.min_work_us_by_machine if minimum else offers.work_us_by_machine
        work_us = work_us + offers.setup_us_by_machine.astype(np.float64)
        factor = (offers.p95_ppb_by_machine if p95 else offers.mean_ppb_by_machine) / (PPB * 1e3)
        running_ms = ((fixed_us + work_us) * factor).take(self.machine, axis=-1)
        ms = running_ms + self.startup_ms
        if self.preemptible.size:
            at_risk_ms = running_ms.take(self.preemptible, axis=-1)
            ms[..., self.preemptible] += self._lost_ms(at_risk_ms, self.preemptible, p95=p95)
        whole_ms = round_up(ms)
        # Another run may use up the commitment first, so at P95 every hour is paid.
        paid_ms = whole_ms if p95 or self.prepaid_ms is None else np.maximum(whole_ms - self.prepaid_ms, 0)
        paid_microusd = self.usd_per_hour_micro * paid_ms
        paid_microusd /= MS_PER_HOUR
        microusd = round_up(paid_microusd)
        microusd += fees
        if offers.items != 1:
            whole_ms = np.minimum(whole_ms * offers.rounds, MAX_ESTIMATE)
            microusd = np.minimum(microusd * offers.items, MAX_ESTIMATE)
        return BlockPrices(whole_ms, microusd)

    def lost_ms(self, fixed_us: Floats) -> Ints:
        """Return the expected time that all the work loses to preemption."""
        factor = self.offers.mean_ppb_by_machine[self.machine] / (PPB * 1e3)
        running_ms = (fixed_us + self.offers.work_us_by_machine[self.machine] + self.setup_us) * factor
        return round_up(self._lost_ms(running_ms, np.arange(len(self.targets)), p95=False))

    def _lost_ms(self, running_ms: Floats, at: Ints, *, p95: bool) -> Floats:
        """Return the time lost on the targets `at`, by the formula at the head of the module."""
        preemptions = np.minimum(self.preemptions_per_ms[at] * running_ms, MAX_PREEMPTIONS)
        if self.offers.checkpoint_ms:
            each_ms = self.startup_ms[at] + self.setup_us[at] / 1e3 + self._saving_ms(at)
            lost_ms = preemptions * each_ms
        else:
            each_ms = self.startup_ms[at] + running_ms / 2
            restarts = portable_expm1(preemptions)
            attempts = np.divide(
                restarts, preemptions, out=np.ones_like(preemptions), where=preemptions > 1e-12
            )
            lost_ms = restarts * self.startup_ms[at] + (attempts - 1) * running_ms
        return lost_ms + (Z95 * np.sqrt(preemptions) * each_ms if p95 else 0.0)

    def _saving_ms(self, at: Ints) -> Floats | int:
        """Return what a preemption costs besides a start: the checkpoint at its end, or else what was done
        since the last one.
        """
        checkpoint_ms, rates_per_hour = self.offers.checkpoint_ms, self.preemptions_per_ms[at] * MS_PER_HOUR
        if self.offers.gives_notice:
            return checkpoint_ms
        return checkpoint_interval_s(checkpoint_ms / 1e3, rates_per_hour) * 500


@dataclass(frozen=True, slots=True)
class OfferCost:
    """The parts of one offer's time and price, in milliseconds and micro-dollars.

    `p95_min_*`: at P95, for the fewest samples worth starting for. `prior_*`: before receipts, start-up and
    preemption are counted; `prior_fixed_ms` is the part that does not grow with the samples.
    """

    est_microusd: int
    est_ms: int
    p95_min_microusd: int
    p95_min_ms: int
    prior_ms: int
    prior_fixed_ms: int
    transfer_in_microusd: int
    transfer_out_microusd: int
    storage_microusd: int


FREE = OfferCost(0, 0, 0, 0, 0, 0, 0, 0, 0)
"""The cost of a cached result."""


def offer_cost(candidates: Candidates, stage: int, target: int, reads: int, writes: int) -> OfferCost:
    """Return the parts of the cost of one offer, with all the work done."""
    offers, block = candidates.offers[stage], OfferBlock(candidates, stage, np.array([target]))
    row, column = offers.reads.index(reads), offers.writes.index(writes)
    cell, machine, region = (row, column, 0), int(block.machine[0]), int(block.region[0])
    fixed_us, fees = block.fixed_us(), block.fees_microusd()
    est, p95 = block.prices(fixed_us, fees), block.prices(fixed_us, fees, minimum=True, p95=True)
    prior_fixed_us = float(fixed_us[row, column, 0]) + float(block.setup_us[0])
    prior_us = prior_fixed_us + float(offers.work_us_by_machine[machine])
    into, out = block.transfer_by_region()
    return OfferCost(
        est_microusd=int(est.microusd[cell]),
        est_ms=int(est.ms[cell]),
        p95_min_microusd=int(p95.microusd[cell]),
        p95_min_ms=int(p95.ms[cell]),
        prior_ms=-int(-prior_us // 1000),
        prior_fixed_ms=-int(-prior_fixed_us // 1000),
        transfer_in_microusd=int(into[row, region]),
        transfer_out_microusd=int(out[column, region]),
        storage_microusd=int(offers.storage_microusd_by_format[writes]),
    )
