"""What the offers of one stage are made of: tables by kind of machine, by format and by region, as routing/priced multiplies them.

    reading  = scan: one pass over the rows in their format;  shuffled: the same once, to decode, then samples x a random
               take of a packed record from memory (a loader keeps what it decoded)
    work     = samples x (row seconds + random take)
    moving   = bytes read into the pool's region, from their storage class, and bytes written out of it
    holding  = bytes written x time held, on their storage class

Throughput is asked once for each kind of machine: 10,000 offers are a few hundred kinds, in regions, on markets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shoestring.config.policy import ANY_PLACEMENT, WorkloadClass
from shoestring.config.tariffs import StorageClass, Volumes, egress_table, held_microusd, read_microusd
from shoestring.core.types import Format, Market, Need, Pool, StockOut
from shoestring.pricing.learning import EXPLORATION_SD_FIXED_WORK, exploration_bonus, runtime_factors
from shoestring.pricing.throughput import PoolArrays, gpu_mask, row_seconds, setup_seconds
from shoestring.routing.algorithm import BYTES_PER_GB, UNKNOWN_SIZE_RATIO
from shoestring.routing.candidates import (
    MOST_US,
    NONE,
    PPB,
    Floats,
    Ints,
    RefusalCode,
    StageOffers,
    up,
)
from shoestring.routing.dag import read_combinations
from shoestring.routing.question import Question
from shoestring.routing.policy.preferences import kept_off, kind_of

REASONS = tuple(RefusalCode)

Table = TypeVar("Table", Floats, Ints)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where pods could go. `pools` are sorted by name, and `names` their names; arrays go by slot, a pool on a market, in the order of
    pools, then markets.

    `price` is micro-dollars an hour, 0 when none is believed. `exclusion` (a number in REASONS, or -1) holds at any time, `shortage`
    for a pod that is asked for now. `machines` has one pool of each kind: those of a kind do the same work in the same time.
    """

    pools: tuple[Pool, ...]
    names: tuple[str, ...]
    markets: tuple[Market, ...]
    regions: tuple[str, ...]
    machines: tuple[Pool, ...]
    kinds: PoolArrays
    memory_gb: Floats
    pool: Ints
    market: Ints
    region: Ints
    machine: Ints
    price: Ints
    startup_ms: Ints
    preemptions_ppb: Ints
    free_ms: Ints
    exclusion: Ints
    shortage: Ints


@dataclass(frozen=True, slots=True)
class Input:
    """A data set that a stage is given: the formats it may lie in (their numbers), its bytes a row, where it is."""

    formats: tuple[int, ...]
    row_bytes: int
    region: str


def stage_memory_gb(need: Need, rows: int) -> float:
    """Memory that a stage takes."""
    return need.memory_fixed_gb + need.memory_bytes_per_row * rows / BYTES_PER_GB


def unfit(need: Need, fleet: Fleet, rows: int) -> Ints:
    """By machine, what keeps a stage off it at any price: a number in REASONS, or -1."""
    kinds = fleet.kinds
    no_gpu = (need.gpu == "must") & ~np.asarray(gpu_mask(need, kinds), dtype=np.bool_)
    too_small = (kinds.gpu_count > 0) & (kinds.gpu_tflops > 0)
    reasons = [REASONS.index(each) for each in (RefusalCode.TOO_LITTLE_MEMORY, RefusalCode.TOO_LITTLE_GPU_MEMORY, RefusalCode.NO_GPU)]
    return np.select([stage_memory_gb(need, rows) > fleet.memory_gb, no_gpu & too_small, no_gpu], reasons, NONE)


def stockout(question: Question, pool: Pool, market: Market) -> StockOut | None:
    """The memory that the pool's nodes took no pod in time."""
    node_pool = pool.node_pool or pool.name
    return next(
        (found for found in question.stockouts if (found.node_pool, found.market) == (node_pool, market)),
        None,
    )


def sample_range(need: Need, rows: int) -> tuple[int, int]:
    """The least samples worth starting for, and the most; of a stage of fixed work, all of them twice."""
    most = int(rows * need.passes)
    return (min(most, ceil(rows * need.min_passes)) if need.elastic else most), most


class Cost:
    """One stage: its need, on every kind of machine, in every format and region."""

    def __init__(self, question: Question, need: Need, fleet: Fleet, inputs: tuple[Input, ...]) -> None:
        self.question, self.need, self.fleet, self.inputs = question, need, fleet, inputs
        self.ways = read_combinations([each.formats for each in inputs])
        # By format, then storage class.
        self.all_storage_classes = list(question.tariffs.all_storage_classes.values())
        self.speeds = [
            speed for speed in sorted(question.speeds, key=lambda speed: speed.format) for _ in self.all_storage_classes
        ]
        self.least, self.most = sample_range(need, question.rows)

    def offers(self, writes: tuple[int, ...], earlier_gb: Volumes, *, now: bool) -> StageOffers:
        """The factors of every offer. `now`: its pod is asked for at once, so that what has no room is left out.

        `earlier_gb`: by route, the most that other stages may have moved before, which tiers of egress are shared with.
        """
        need, machines = self.need, self.fleet.machines
        kinds = self.fleet.kinds
        take_s, row_s = self._take_s(), row_seconds(need, kinds)
        mean, p95 = runtime_factors(need, machines, self.question.learned)
        exploration_sd = self.question.exploration_sd if need.elastic else EXPLORATION_SD_FIXED_WORK
        reasons, exclusion = self._objections(now=now)
        return StageOffers(
            reads=tuple(self.ways),
            writes=writes,
            samples=self.most,
            min_samples=self.least,
            checkpoint_ms=ceil(need.checkpoint_s * 1e3),
            takes_us=int(_us(np.array([take_s * self.most]))[0]),
            exclusions=reasons,
            exclusion=exclusion,
            setup_us_by_machine=_us(setup_seconds(need, kinds)),
            work_us_by_machine=_us((row_s + take_s) * self.most),
            min_work_us_by_machine=_us((row_s + take_s) * self.least),
            mean_ppb_by_machine=up(mean * PPB),
            p95_ppb_by_machine=up(p95 * PPB),
            worth_ppb_by_machine=up(exploration_bonus(need, machines, self.question.learned, exploration_sd) * PPB),
            scan_us_by_format=self._scan_us(),
            write_us_by_format=self._write_us(),
            storage_microusd_by_format=self._storage_microusd(),
            into_microusd_by_region=self._into_microusd(earlier_gb),
            out_microusd_by_region=self._out_microusd(earlier_gb),
        )

    def _objections(self, *, now: bool) -> tuple[tuple[RefusalCode, ...], Ints]:
        """The reasons that occur, and for each slot which of them it is, or -1: of its price, of its machine, of its room."""
        fleet = self.fleet
        code = np.where(
            fleet.exclusion != NONE,
            fleet.exclusion,
            unfit(self.need, fleet, self.question.rows)[fleet.machine],
        )
        if now:
            code = np.where(code != NONE, code, fleet.shortage)
        workload_class = self.question.active_policy.workload_class(kind_of(self.need, stage_memory_gb(self.need, self.question.rows)))
        # A policy's exclusions come last: where one is, nothing else stands in the way, and another policy may let it pass.
        return coded(
            np.where(code != NONE, code, policed(workload_class, fleet.pools, fleet.markets, fleet.pool, fleet.market))
        )

    def _of_ways(self, tables: list[Table]) -> Table:
        """By way to read, of what reading each data set takes by format, and last where none is known."""
        if len(tables) == 1:
            return tables[0]
        ways = [*self.ways.values(), (NONE,) * len(tables)]
        sums: Table = np.stack(
            [
                np.sum([table[..., each] for table, each in zip(tables, way, strict=True)], axis=0)
                for way in ways
            ],
            axis=-1,
        )
        return sums

    def _scan_us(self) -> Ints:
        rows = 0 if self.need.reads == "none" else self.question.rows
        return _us(
            self._of_ways(
                [
                    np.array(
                        [
                            *(
                                rows * (each.scan_ns_per_row / 1e9 + given.row_bytes / each.scan_bytes_per_s)
                                for each in self.speeds
                            ),
                            0.0,
                        ]
                    )
                    for given in self.inputs
                ]
            )
        )

    def _take_s(self) -> float:
        """Seconds of one random take; without a speed of packed records, at that of the first format there is."""
        if self.need.reads != "shuffled" or not self.speeds:
            return 0.0
        packed = next((speed for speed in self.speeds if speed.format is Format.PACKED), self.speeds[0])
        return sum(
            packed.take_ns_per_row / 1e9 + given.row_bytes / packed.take_bytes_per_s for given in self.inputs
        )

    def _write_us(self) -> Ints:
        rows, row_bytes = self.question.rows, self.need.writes_bytes_per_row
        return _us(
            np.array(
                [
                    *(
                        rows * (each.write_ns_per_row / 1e9 + row_bytes / each.write_bytes_per_s)
                        for each in self.speeds
                    ),
                    0.0,
                ]
            )
        )

    def _sizes_gb(self, row_bytes: int) -> Floats:
        """Size on disk in each format, and last in one that is not known."""
        ratios: Floats = np.array([*(speed.size_ratio for speed in self.speeds), UNKNOWN_SIZE_RATIO])
        return self.question.rows * row_bytes / BYTES_PER_GB * ratios

    def _into_microusd(self, earlier_gb: Volumes) -> Ints:
        """The data sets off their storage classes and to the pool, by region and way to read them."""
        tables = [
            egress_table(
                self.question.tariffs,
                self._ways_in(given),
                self._read_gb(given),
                self._earlier_gb(earlier_gb),
            )
            + self._on_shelves(read_microusd, self._read_gb(given))
            for given in self.inputs
        ]
        return self._of_ways(tables).ravel()

    def _out_microusd(self, earlier_gb: Volumes) -> Ints:
        """The outcome to the store, by region and format: after what the stage itself has read."""
        earlier = self._earlier_gb(earlier_gb, *self.inputs, reading=True)
        return egress_table(self.question.tariffs, self._ways_out(), self._write_gb(), earlier).ravel()

    def _read_gb(self, given: Input) -> Floats:
        return self._sizes_gb(0 if self.need.reads == "none" else given.row_bytes)

    def _write_gb(self) -> Floats:
        return self._sizes_gb(self.need.writes_bytes_per_row)

    def _ways_in(self, given: Input) -> list[tuple[str, str]]:
        return [(given.region, region) for region in self.fleet.regions]

    def _ways_out(self) -> list[tuple[str, str]]:
        return [(region, self.question.tariffs.store_region) for region in self.fleet.regions]

    def _earlier_gb(self, earlier_gb: Volumes, *inputs: Input, reading: bool = False) -> list[Volumes]:
        """By region, what may have moved before its bytes do; nothing, where no tariff has tiers. `reading`: these, too."""
        tariffs = self.question.tariffs
        if not tariffs.is_tiered:
            return []
        found = [earlier_gb for _ in self.fleet.regions]
        for given in inputs if reading else ():
            read_gb = self._most_gb(self._read_gb(given), given.formats)
            found = [
                added(each, tariffs.route(*way), read_gb)
                for each, way in zip(found, self._ways_in(given), strict=True)
            ]
        return found

    def _most_gb(self, sizes_gb: Floats, formats: Sequence[int]) -> float:
        return max((float(sizes_gb[number]) for number in formats), default=0.0)

    def transferred_gb(self, writes: tuple[int, ...], earlier_gb: Volumes) -> Volumes:
        """By route, the most that this stage and those before it may move, wherever they are."""
        tariffs, after = self.question.tariffs, dict(earlier_gb)
        if not tariffs.is_tiered:
            return after
        write_gb = self._most_gb(self._write_gb(), writes)
        for read, way_out in zip(
            self._earlier_gb(earlier_gb, *self.inputs, reading=True), self._ways_out(), strict=True
        ):
            here = added(read, tariffs.route(*way_out), write_gb)
            after |= {route: max(gb, after.get(route, 0.0)) for route, gb in here.items()}
        return after

    def _storage_microusd(self) -> Ints:
        hours = self.question.tariffs.storage_held_hours
        return self._on_shelves(lambda shelf, gb: held_microusd(shelf, gb, hours), self._write_gb())

    def _on_shelves(self, microusd: Callable[[StorageClass, Floats], Ints], gb: Floats) -> Ints:
        """What these sizes cost, each on its storage class: the last, in a format that is not known, on the standard one."""
        on = np.append(np.arange(len(self.speeds)) % len(self.all_storage_classes), 0)
        found: Ints = np.stack([microusd(shelf, gb) for shelf in self.all_storage_classes])[on, np.arange(len(gb))]
        return found


def added(volumes: Volumes, route: str | None, gb: float) -> Volumes:
    """With so much more over a route; None: a region to itself, or a route that no tariff names."""
    return {**volumes, route: volumes.get(route, 0.0) + gb} if route is not None and gb else volumes


def policed(workload_class: WorkloadClass, pools: Sequence[Pool], markets: Sequence[Market], pool: Ints, market: Ints) -> Ints:
    """By slot, what of a policy's workload_class keeps its work off it: a number in REASONS, or -1."""
    if workload_class is ANY_PLACEMENT:
        return np.full(len(pool), NONE)
    offered = zip(pool.tolist(), market.tolist(), strict=True)
    return np.array(
        [_code(kept_off(workload_class, pools[place], markets[column])) for place, column in offered], dtype=np.int64
    )


def coded(code: npt.NDArray[np.integer[Any]]) -> tuple[tuple[RefusalCode, ...], Ints]:
    """Numbers in REASONS, or -1, as the reasons that occur and numbers in those."""
    counts = np.bincount(code + 1, minlength=len(REASONS) + 1)
    occurring = np.flatnonzero(counts[1:])
    place = np.full(len(counts), NONE)
    place[occurring + 1] = np.arange(len(occurring))
    return tuple(REASONS[each] for each in occurring.tolist()), place[code + 1]


def _us(seconds: Floats) -> Ints:
    return up(seconds * 1e6, MOST_US)


def _code(reason: RefusalCode | None) -> int:
    return NONE if reason is None else REASONS.index(reason)
