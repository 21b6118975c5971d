"""What the offers of one stage cost, as arrays.

    seconds  = start-up + multiplier x prior + lost to preemption          multiplier: mean or P95 of true over prior (pricing/learning)
    prior    = setup + samples x row seconds + reading + writing
    reading  = scan: one pass over the rows in their format;  shuffled: the same once, to decode, then samples x a random
               take of a packed record from memory (a loader keeps what it decoded)
    dollars  = price x seconds + bytes moved x egress + bytes written x size ratio x storage held

Lost to preemption, at a rate of r an hour over T hours of running, each start costing s:
    kept nothing (starts again from nothing)   (e^rT - 1) s + ((e^rT - 1) / rT - 1) T      repeated trials, exponential lifetimes
    kept a checkpoint (need.checkpoint_s > 0)  rT (s + setup + checkpoint_s)
    at P95, besides, 1.645 sqrt(rT) losses more (Poisson, normal approximation), each of a start and half the work or the checkpoint.

Everything is rounded up to milliseconds and micro-dollars here, and compared only afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.model import Format, FormatSpeed, Market, Need, Pool
from shoestring.pricing.calibration import Z95
from shoestring.pricing.learning import spreads
from shoestring.pricing.throughput import Machines, row_seconds, setup_seconds, uses_gpu
from shoestring.routing.decision import Question, Reason
from shoestring.routing.policy import BYTES_PER_GB, MOST_LOSSES, MOST_MICRO, UNKNOWN_SIZE_RATIO
from shoestring.routing.preferences import kept_off, kind_of
from shoestring.rules import StockOut
from shoestring.tariffs import egress_table, held_microusd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NONE = -1
"""No format, or one that is not known. As an index it takes the last row of a table, which is made for it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A pool on a market, and their numbers in the lists of names. `price` is micro-dollars an hour, 0 when none is believed.

    `objection` holds at any time, `shortage` for a pod that is asked for now.
    """

    pool: Pool
    market: Market
    pool_number: int
    market_number: int
    price: int
    objection: Reason | None
    shortage: Reason | None

    @property
    def preemptions_per_hour(self) -> float:
        return self.pool.markets[self.market].preemptions_per_hour if self.market in self.pool.markets else 0.0


@dataclass(frozen=True, slots=True)
class Input:
    """The data set a stage is given: the formats it may lie in (their numbers), its bytes a row, where it is."""

    formats: tuple[int, ...]
    row_bytes: int
    region: str


def needed_gb(need: Need, rows: int) -> float:
    """Memory that a stage takes."""
    return need.memory_fixed_gb + need.memory_bytes_per_row * rows / BYTES_PER_GB


def objection(need: Need, pool: Pool, rows: int) -> Reason | None:
    """What keeps a stage off a pool at any price."""
    if needed_gb(need, rows) > pool.memory_gb:
        return Reason.MEMORY
    if need.gpu == "must" and not uses_gpu(need, pool):
        return Reason.GPU_MEMORY if pool.gpu_count > 0 and pool.gpu_tflops > 0 else Reason.NO_GPU
    return None


def shortage(question: Question, pool: Pool, market: Market) -> Reason | None:
    """What keeps a pod off a pool now, though a later one may find room there."""
    if stockout(question, pool, market):
        return Reason.STOCKED_OUT
    room = pool.room
    return Reason.NO_ROOM if room and not room.fits and room.nodes >= room.most_nodes else None


def stockout(question: Question, pool: Pool, market: Market) -> StockOut | None:
    """The memory that the pool's nodes took no pod in time."""
    node_pool = pool.node_pool or pool.name
    return next((found for found in question.stockouts if (found.node_pool, found.market) == (node_pool, market)), None)


def sample_range(need: Need, rows: int) -> tuple[int, int]:
    """The least samples worth starting for, and the most; of a stage of fixed work, all of them twice."""
    most = int(rows * need.passes)
    return (min(most, ceil(rows * need.min_passes)) if need.elastic else most), most


def _up(values: Floats) -> Ints:
    return np.minimum(np.ceil(values), MOST_MICRO).astype(np.int64)


class Cost:
    """One stage: its slots x formats read x formats written. Tables by slot and by format are gathered into columns."""

    def __init__(self, question: Question, need: Need, slots: Sequence[Slot], given: Input, writes: tuple[int, ...]) -> None:
        self.question, self.need, self.slots, self.given = question, need, slots, given
        self.speeds: list[FormatSpeed] = sorted(question.speeds, key=lambda speed: speed.format)
        self.slot: Ints = np.repeat(np.arange(len(slots)), len(given.formats) * len(writes))
        self.reads: Ints = np.tile(np.repeat(given.formats, len(writes)), len(slots))
        self.writes: Ints = np.tile(writes, len(slots) * len(given.formats))
        self.least, self.most = sample_range(need, question.rows)
        self.price = self._by_slot([slot.price for slot in slots])
        self.startup_s = self._by_slot([slot.pool.startup_s for slot in slots])
        self.machines = Machines.of([slot.pool for slot in slots])
        self.setup_s = setup_seconds(need, self.machines)[self.slot]
        self.per_hour = self._by_slot([slot.preemptions_per_hour for slot in slots])

    def columns(self, stage: int) -> dict[str, Any]:
        """The stage's part of every column of Candidates."""
        scan_s, take_s, write_s = self._scan_s(), self._take_s(), self._write_s()
        row_s = row_seconds(self.need, self.machines)[self.slot] + take_s
        fixed_s = self.setup_s + scan_s + write_s
        transfer, storage = self._transfer_microusd(), self._storage_microusd()
        work = {
            "prior_ms": _up((fixed_s + row_s * self.most) * 1e3),
            "fixed_ms": _up(fixed_s * 1e3),
            "startup_ms": _up(self.startup_s * 1e3),
            "read_ms": _up((scan_s + take_s * self.most) * 1e3),
            "write_ms": _up(write_s * 1e3),
            "transfer_microusd": transfer,
            "storage_microusd": storage,
        }
        return self._names(stage) | work | self._estimates(fixed_s, row_s, transfer + storage)

    def _names(self, stage: int) -> dict[str, Any]:
        rows, count = self.question.rows, len(self.slot)
        tier = self.question.in_force.tier(kind_of(self.need, needed_gb(self.need, rows)))
        # A policy's objections come last: where one is, nothing else stands in the way, and another policy may let it pass.
        objections = [
            slot.objection or objection(self.need, slot.pool, rows) or slot.shortage or kept_off(tier, slot.pool, slot.market) or ""
            for slot in self.slots
        ]
        return {
            "stage": np.full(count, stage),
            "pool": self._by_slot([slot.pool_number for slot in self.slots]).astype(np.int64),
            "market": self._by_slot([slot.market_number for slot in self.slots]).astype(np.int64),
            "reads": self.reads,
            "writes": self.writes,
            "cached": np.zeros(count, dtype=np.int64),
            "objection": np.array(objections, dtype=np.str_)[self.slot],
            "usd_per_hour_micro": self.price.astype(np.int64),
            "samples": np.full(count, self.most),
            "least_samples": np.full(count, self.least),
        }

    def _estimates(self, fixed_s: Floats, row_s: Floats, fees_micro: Ints) -> dict[str, Any]:
        """Time and money, for all the samples and for the least, at the mean and at P95."""
        mean, p95 = (each[self.slot] for each in spreads(self.need, [slot.pool for slot in self.slots], self.question.learned))
        found: dict[str, Any] = {"loss_ms": _up(self._loss_s(mean * (fixed_s + row_s * self.most), worst=False) * 1e3)}
        for prefix, samples in (("", self.most), ("least_", self.least)):
            for name, multiplier in (("est", mean), ("p95", p95)):
                running_s = multiplier * (fixed_s + row_s * samples)
                ms = _up((self.startup_s + running_s + self._loss_s(running_s, worst=name == "p95")) * 1e3)
                found[f"{prefix}{name}_ms"] = ms
                found[f"{prefix}{name}_microusd"] = _up(self.price * ms / 3.6e6 + fees_micro)
        return found

    def _by_slot(self, values: Sequence[float]) -> Floats:
        table: Floats = np.array(values, dtype=np.float64)
        return table[self.slot]

    def _by_format(self, values: Sequence[float], unknown: float, index: Ints) -> Floats:
        table: Floats = np.array([*values, unknown], dtype=np.float64)
        return table[index]

    def _scan_s(self) -> Floats:
        if self.need.reads == "none":
            return np.zeros(len(self.slot))
        rows, row_bytes = self.question.rows, self.given.row_bytes
        seconds = [rows * (speed.scan_ns_per_row / 1e9 + row_bytes / speed.scan_bytes_per_s) for speed in self.speeds]
        return self._by_format(seconds, 0.0, self.reads)

    def _take_s(self) -> float:
        """Seconds of one random take; without a speed of packed records, at that of the first format there is."""
        if self.need.reads != "shuffled" or not self.speeds:
            return 0.0
        packed = next((speed for speed in self.speeds if speed.format is Format.PACKED), self.speeds[0])
        return packed.take_ns_per_row / 1e9 + self.given.row_bytes / packed.take_bytes_per_s

    def _write_s(self) -> Floats:
        rows, row_bytes = self.question.rows, self.need.writes_bytes_per_row
        seconds = [rows * (speed.write_ns_per_row / 1e9 + row_bytes / speed.write_bytes_per_s) for speed in self.speeds]
        return self._by_format(seconds, 0.0, self.writes)

    def _sizes_gb(self, row_bytes: int) -> Floats:
        """Size on disk in each format, and last in one that is not known."""
        ratios: Floats = np.array([*(speed.size_ratio for speed in self.speeds), UNKNOWN_SIZE_RATIO])
        return self.question.rows * row_bytes / BYTES_PER_GB * ratios

    def _transfer_microusd(self) -> Ints:
        """The data set to the pool, the outcome from there to the store."""
        tariffs, here = self.question.tariffs, [slot.pool.region for slot in self.slots]
        read_gb = self._sizes_gb(0 if self.need.reads == "none" else self.given.row_bytes)
        write_gb = self._sizes_gb(self.need.writes_bytes_per_row)
        into = egress_table(tariffs, [(self.given.region, region) for region in here], read_gb)
        out_of = egress_table(tariffs, [(region, tariffs.store_region) for region in here], write_gb)
        return into[self.slot, self.reads] + out_of[self.slot, self.writes]

    def _storage_microusd(self) -> Ints:
        tariffs = self.question.tariffs
        return held_microusd(tariffs.shelf(), self._sizes_gb(self.need.writes_bytes_per_row), tariffs.storage_held_hours)[self.writes]

    def _loss_s(self, running_s: Floats, *, worst: bool) -> Floats:
        """Seconds lost to preemption, as at the module's head: the mean, or at the 95th percentile."""
        losses = np.minimum(self.per_hour * running_s / 3600, MOST_LOSSES)
        if self.need.checkpoint_s > 0:
            each_s = self.startup_s + self.setup_s + self.need.checkpoint_s
            lost_s = losses * each_s
        else:
            each_s = self.startup_s + running_s / 2
            again = np.expm1(losses)
            times = np.divide(again, losses, out=np.ones_like(losses), where=losses > 1e-12)
            lost_s = again * self.startup_s + (times - 1) * running_s
        return lost_s + (Z95 * np.sqrt(losses) * each_s if worst else 0.0)
