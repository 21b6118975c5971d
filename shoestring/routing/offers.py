"""Every offer for every remaining stage, priced: stages x pools x markets x (format read, format written), as arrays.

    seconds  = start-up + multiplier x prior + lost to preemption          multiplier: mean or P95 of true over prior (pricing/throughput)
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

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.model import Format, Market, Need, Pool, microusd
from shoestring.pricing.throughput import Z95, row_seconds, setup_seconds, spread, uses_gpu
from shoestring.routing.decision import Candidates, Question, Reason
from shoestring.routing.policy import BYTES_PER_GB, HOURS_PER_MONTH, MOST_MICRO, UNKNOWN_SIZE_RATIO

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NONE = -1
"""No format, or one that is not known. As an index it takes the last row of a table, which is made for it."""

MOST_LOSSES = 50.0
"""Expected preemptions beyond which an offer is hopeless and e^x only overflows."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A pool on a market. `micro` is micro-dollars an hour, 0 when there is no believable price."""

    pool: Pool
    market: Market
    micro: int
    objection: Reason | None


@dataclass(frozen=True, slots=True)
class Input:
    """The data set a stage is given: the formats it may lie in, its bytes a row, where it is."""

    formats: tuple[int, ...]
    row_bytes: int
    region: str


def candidates(question: Question) -> Candidates:
    """Price everything. Rows are sorted by stage, pool, market, format read, format written, whatever the order asked in."""
    formats = tuple(sorted(speed.format for speed in question.speeds))
    slots = _slots(question)
    given = Input((_index(formats, question.reads_format),), question.row_bytes, question.data_region)
    blocks: list[dict[str, Any]] = []
    for stage, need in enumerate(question.needs):
        writes = tuple(range(len(formats))) if need.writes_bytes_per_row else (NONE,)
        blocks.append(Block(question, need, slots, formats, given, writes).columns(stage))
        left = set(writes)
        if stage == 0 and question.cached_outcome and (row := _cached(question, need, slots, formats, given)):
            blocks.append(row)
            left.add(_index(formats, question.cached_format))
        if need.writes_bytes_per_row:
            given = Input(tuple(sorted(left)), need.writes_bytes_per_row, question.tariffs.store_region)
    pools, markets = _names(slots)
    joined = {name: tuple(np.concatenate([block[name] for block in blocks]).tolist()) for name in blocks[0]}
    stages = tuple(need.stage for need in question.needs)
    return Candidates.model_validate({"stages": stages, "pools": pools, "markets": markets, "formats": formats} | joined)


def _index(formats: tuple[Format, ...], name: Format | None) -> int:
    return NONE if name is None else formats.index(name)


def _names(slots: list[Slot]) -> tuple[tuple[str, ...], tuple[Market, ...]]:
    return tuple(sorted({slot.pool.name for slot in slots})), tuple(sorted({slot.market for slot in slots}))


def _slots(question: Question) -> list[Slot]:
    """Pools x the markets they declare or are quoted on, by name."""
    quoted = {(quote.pool, quote.market): microusd(quote.usd_per_hour) for quote in question.quotes}
    slots = []
    for pool in sorted(question.pools, key=lambda pool: pool.name):
        for market in sorted({*pool.markets, *(market for name, market in quoted if name == pool.name)}):
            micro = quoted.get((pool.name, market), 0)
            objection = Reason.NO_TERMS if market not in pool.markets else None if micro else Reason.NO_PRICE
            slots.append(Slot(pool, market, micro, objection))
    return slots


def objection(need: Need, pool: Pool, rows: int) -> Reason | None:
    """What keeps a stage off a pool at any price."""
    if needed_gb(need, rows) > pool.memory_gb:
        return Reason.MEMORY
    if need.gpu == "must" and not uses_gpu(need, pool):
        has_one = pool.gpu_count > 0 and pool.gpu_tflops > 0
        return Reason.GPU_MEMORY if has_one else Reason.NO_GPU
    return None


def needed_gb(need: Need, rows: int) -> float:
    return need.memory_fixed_gb + need.memory_bytes_per_row * rows / BYTES_PER_GB


def least_samples(need: Need, rows: int) -> tuple[int, int]:
    """The least and the most samples a stage reads."""
    most = int(rows * need.passes)
    return (min(most, int(np.ceil(rows * need.min_passes))) if need.elastic else most), most


def _cached(question: Question, need: Need, slots: list[Slot], formats: tuple[Format, ...], given: Input) -> dict[str, Any] | None:
    """The outcome that is there already, as a free row on the cheapest priced pool; None if no pool has a price."""
    priced = [slot for slot in slots if slot.objection is None]
    if not priced:
        return None
    slot = min(priced, key=lambda slot: slot.micro)
    pools, markets = _names(slots)
    _, most = least_samples(need, question.rows)
    columns: dict[str, Any] = {name: [0] for name in Candidates.model_fields if name not in ("stages", "pools", "markets", "formats")}
    return columns | {
        "pool": [pools.index(slot.pool.name)],
        "market": [markets.index(slot.market)],
        "reads": [given.formats[0]],
        "writes": [_index(formats, question.cached_format) if need.writes_bytes_per_row else NONE],
        "cached": [1],
        "objection": [""],
        "usd_per_hour_micro": [slot.micro],
        "samples": [most],
        "least_samples": [most],
    }


def _up(values: Floats) -> Ints:
    return np.minimum(np.ceil(values), MOST_MICRO).astype(np.int64)


class Block:
    """The offers of one stage. Tables by slot and by format are gathered into columns; only the tables are built in loops."""

    def __init__(
        self, question: Question, need: Need, slots: list[Slot], formats: tuple[Format, ...], given: Input, writes: tuple[int, ...]
    ) -> None:
        self.question, self.need, self.slots, self.formats, self.given = question, need, slots, formats, given
        grid = np.meshgrid(np.arange(len(slots)), np.array(given.formats), np.array(writes), indexing="ij")
        self.slot: Ints = grid[0].ravel()
        self.reads: Ints = grid[1].ravel()
        self.writes: Ints = grid[2].ravel()
        self.least, self.most = least_samples(need, question.rows)
        self.price = self._by_slot([slot.micro for slot in slots])
        self.startup_s = self._by_slot([slot.pool.startup_s for slot in slots])
        self.setup_s = self._by_slot([setup_seconds(need, slot.pool) for slot in slots])
        self.rate = self._by_slot(
            [slot.pool.markets[slot.market].preemptions_per_hour if slot.market in slot.pool.markets else 0.0 for slot in slots]
        )

    def _by_slot(self, values: list[float] | list[int]) -> Floats:
        table: Floats = np.array(values, dtype=np.float64)
        return table[self.slot]

    def _by_format(self, values: list[float], unknown: float, index: Ints) -> Floats:
        table: Floats = np.array([*values, unknown], dtype=np.float64)
        return table[index]

    def _speeds(self) -> list[Any]:
        by_format = {speed.format: speed for speed in self.question.speeds}
        return [by_format[name] for name in self.formats]

    def columns(self, stage: int) -> dict[str, Any]:
        need, count = self.need, len(self.slot)
        scan_s, take_row_s = self._reading()
        write_s = self._writing()
        row_s = self._by_slot([row_seconds(need, slot.pool) for slot in self.slots]) + take_row_s
        fixed_s = self.setup_s + scan_s + write_s
        transfer_usd, storage_usd = self._transfer_usd(), self._storage_usd()
        extra_micro = _up(transfer_usd * 1e6) + _up(storage_usd * 1e6)
        ratios = [spread(need.stage, slot.pool.name, self.question.learned) for slot in self.slots]
        mean, p95 = self._by_slot([ratio.mean for ratio in ratios]), self._by_slot([ratio.p95 for ratio in ratios])
        most_s, least_s = fixed_s + row_s * self.most, fixed_s + row_s * self.least
        pools, markets = _names(self.slots)
        columns: dict[str, Any] = {
            "stage": np.full(count, stage),
            "pool": np.array([pools.index(slot.pool.name) for slot in self.slots])[self.slot],
            "market": np.array([markets.index(slot.market) for slot in self.slots])[self.slot],
            "reads": self.reads,
            "writes": self.writes,
            "cached": np.zeros(count, dtype=np.int64),
            "objection": np.array([slot.objection or objection(need, slot.pool, self.question.rows) or "" for slot in self.slots])[
                self.slot
            ],
            "usd_per_hour_micro": self.price.astype(np.int64),
            "samples": np.full(count, self.most),
            "least_samples": np.full(count, self.least),
            "prior_ms": _up(most_s * 1e3),
            "fixed_ms": _up(fixed_s * 1e3),
            "startup_ms": _up(self.startup_s * 1e3),
            "read_ms": _up((scan_s + take_row_s * self.most) * 1e3),
            "write_ms": _up(write_s * 1e3),
            "loss_ms": _up(self._loss_s(mean * most_s, worst=False) * 1e3),
            "transfer_microusd": _up(transfer_usd * 1e6),
            "storage_microusd": _up(storage_usd * 1e6),
        }
        for name, prior_s, ratio in (
            ("est", most_s, mean),
            ("p95", most_s, p95),
            ("least_est", least_s, mean),
            ("least_p95", least_s, p95),
        ):
            running_s = ratio * prior_s
            seconds = self.startup_s + running_s + self._loss_s(running_s, worst=name.endswith("p95"))
            columns[f"{name}_ms"] = _up(seconds * 1e3)
            columns[f"{name}_microusd"] = _up(self.price * columns[f"{name}_ms"] / 3.6e6 + extra_micro)
        return columns

    def _reading(self) -> tuple[Floats, float]:
        """Seconds of the one scan, and seconds of a take for each sample."""
        rows, speeds = self.question.rows, self._speeds()
        if self.need.reads == "none" or not speeds:
            return np.zeros(len(self.slot)), 0.0
        size_bytes = rows * self.given.row_bytes
        scan_s = [rows * speed.scan_ns_per_row / 1e9 + size_bytes / speed.scan_bytes_per_s for speed in speeds]
        packed = next((speed for speed in speeds if speed.format is Format.PACKED), speeds[0])
        take_row_s = packed.take_ns_per_row / 1e9 + self.given.row_bytes / packed.take_bytes_per_s
        return self._by_format(scan_s, 0.0, self.reads), take_row_s if self.need.reads == "shuffled" else 0.0

    def _writing(self) -> Floats:
        rows, row_bytes = self.question.rows, self.need.writes_bytes_per_row
        write_s = [rows * speed.write_ns_per_row / 1e9 + rows * row_bytes / speed.write_bytes_per_s for speed in self._speeds()]
        return self._by_format(write_s, 0.0, self.writes)

    def _bytes(self, row_bytes: int, index: Ints) -> Floats:
        ratios = [speed.size_ratio for speed in self._speeds()]
        return self.question.rows * row_bytes * self._by_format(ratios, UNKNOWN_SIZE_RATIO, index)

    def _transfer_usd(self) -> Floats:
        tariffs = self.question.tariffs
        egress = {pair: float(price) for pair, price in tariffs.egress_usd_per_gb.items()}
        into = self._by_slot([egress.get(f"{self.given.region}->{slot.pool.region}", 0.0) for slot in self.slots])
        out_of = self._by_slot([egress.get(f"{slot.pool.region}->{tariffs.store_region}", 0.0) for slot in self.slots])
        read_bytes = self._bytes(0 if self.need.reads == "none" else self.given.row_bytes, self.reads)
        return (into * read_bytes + out_of * self._bytes(self.need.writes_bytes_per_row, self.writes)) / BYTES_PER_GB

    def _storage_usd(self) -> Floats:
        tariffs = self.question.tariffs
        usd_per_gb = float(tariffs.storage_usd_per_gb_month) * tariffs.storage_held_hours / HOURS_PER_MONTH
        return self._bytes(self.need.writes_bytes_per_row, self.writes) / BYTES_PER_GB * usd_per_gb

    def _loss_s(self, running_s: Floats, *, worst: bool) -> Floats:
        """Seconds that preemptions are expected to cost, at the module's head; `worst`: at the 95th percentile."""
        losses = np.minimum(self.rate * running_s / 3600, MOST_LOSSES)
        if self.need.checkpoint_s > 0:
            each_s = self.startup_s + self.setup_s + self.need.checkpoint_s
            lost_s = losses * each_s
        else:
            each_s = self.startup_s + running_s / 2
            again = np.expm1(losses)
            times = np.divide(again, losses, out=np.ones_like(losses), where=losses > 1e-12)
            lost_s = again * self.startup_s + (times - 1) * running_s
        return lost_s + (Z95 * np.sqrt(losses) * each_s if worst else 0.0)
