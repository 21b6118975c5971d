"""The cost factors of one stage's offers: tables by kind of machine, by format and by region.

    reading   = scan: one pass over the rows in their format, fetched from the store where it sends copies
                shuffled: the same once (of shards, which are streamed, in each pass that the stage may make),
                then samples x one random read of a packed record (a loader keeps what it decoded)
    work      = samples x (row seconds + random read)
    transfer  = bytes read into the pool's region, from their storage class, and bytes written out of it
    storage   = bytes written x time stored, on their storage class

Throughput is computed once for each kind of machine: 10,000 targets have only a few hundred kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

import numpy as np

from shoestring.config.preferences import ANY_PLACEMENT, WorkloadClass
from shoestring.config.tariff_costs import Volumes, egress_table, retrieval_microusd, storage_microusd
from shoestring.config.tariffs import StorageClass
from shoestring.core.types import Format, Market, Need, Pool
from shoestring.pricing.learned.learning import EXPLORATION_SD_FIXED_WORK
from shoestring.pricing.learned.runtime_factors import exploration_bonus, runtime_factors
from shoestring.pricing.throughput import PoolArrays, gpu_mask, row_seconds, setup_seconds
from shoestring.routing.candidates import (
    BYTES_PER_GB,
    MAX_US,
    NONE,
    POLICY_CODES,
    PPB,
    REFUSAL_CODES,
    UNKNOWN_SIZE_RATIO,
    Floats,
    Ints,
    RefusalCode,
    StageOffers,
    index_codes,
    round_up,
)
from shoestring.routing.dag import read_combinations
from shoestring.routing.offers.reading import read_passes, read_seconds
from shoestring.routing.question import Question
from shoestring.routing.question_parts import sample_range

Table = TypeVar("Table", Floats, Ints)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All targets, sorted by pool, then market; arrays are indexed by target.

    `pools` are sorted by name, and `names` holds their names. `usd_per_hour_micro` is in micro-dollars an
    hour, 0 where no price was accepted. `exclusion` and `shortage` are indices into REFUSAL_CODES or -1: an
    exclusion holds at any time, a shortage for a pod started now. `machines` has one pool of each kind of
    machine.
    """

    pools: tuple[Pool, ...]
    names: tuple[str, ...]
    markets: tuple[Market, ...]
    regions: tuple[str, ...]
    machines: tuple[Pool, ...]
    machine_arrays: PoolArrays
    memory_gb: Floats
    pool: Ints
    market: Ints
    region: Ints
    machine: Ints
    usd_per_hour_micro: Ints
    startup_ms: Ints
    preemptions_ppb: Ints
    prepaid_ms: Ints
    exclusion: Ints
    shortage: Ints


@dataclass(frozen=True, slots=True)
class InputDataset:
    """A data set that a stage reads: the formats it can be stored in, its bytes a row, its region."""

    formats: tuple[int, ...]
    row_bytes: int
    region: str


def machine_exclusions(question: Question, need: Need, fleet: Fleet) -> Ints:
    """Return, by kind of machine, an index into REFUSAL_CODES where it cannot run a stage, or -1."""
    machines = fleet.machine_arrays
    no_gpu = (need.gpu == "must") & ~np.asarray(gpu_mask(need, machines), dtype=np.bool_)
    has_gpu = (machines.gpu_count > 0) & (machines.gpu_tflops > 0)
    codes = (RefusalCode.TOO_LITTLE_MEMORY, RefusalCode.TOO_LITTLE_GPU_MEMORY, RefusalCode.NO_GPU)
    conditions = [question.memory_gb(need) > fleet.memory_gb, no_gpu & has_gpu, no_gpu]
    return np.select(conditions, [REFUSAL_CODES.index(each) for each in codes], NONE)


def policy_exclusions(
    workload: WorkloadClass, pools: Sequence[Pool], markets: Sequence[Market], pool: Ints, market: Ints
) -> Ints:
    """Return, by target, an index into REFUSAL_CODES where the policy excludes it, or -1."""
    if workload is ANY_PLACEMENT:
        return np.full(len(pool), NONE)
    numbers = {"": NONE} | {key: REFUSAL_CODES.index(code) for key, code in POLICY_CODES.items()}
    targets = zip(pool.tolist(), market.tolist(), strict=True)
    violated = [numbers[workload.violated_key(pools[p], markets[m])] for p, m in targets]
    return np.array(violated, dtype=np.int64)


class StageFactors:
    """Computes the cost factors of one stage for every kind of machine, format and region."""

    def __init__(
        self, question: Question, need: Need, fleet: Fleet, inputs: tuple[InputDataset, ...]
    ) -> None:
        self.question, self.need, self.fleet, self.inputs = question, need, fleet, inputs
        self.combinations = read_combinations([each.formats for each in inputs])
        self.storage_classes = list(question.tariffs.all_storage_classes.values())
        # A stored format is a format on a storage class: the speeds repeat for each class.
        formats = sorted(question.speeds, key=lambda speed: speed.format)
        self.speeds = [speed for speed in formats for _ in self.storage_classes]
        self.min_samples, self.max_samples = sample_range(need, question.rows)
        self.write_gb = self._sizes_gb(need.writes_bytes_per_row)

    def offers(self, writes: tuple[int, ...], earlier_gb: Volumes, *, now: bool) -> StageOffers:
        """Return the factors of every offer.

        Args:
            writes: indices of the formats that the stage may write. earlier_gb: by route, the most that other
            stages may have transferred before; egress tiers are shared. now: the pod would start now, so
            targets without capacity are excluded.
        """
        need, machines = self.need, self.fleet.machine_arrays
        take_s, row_s = self._take_s(), row_seconds(need, machines)
        mean, p95 = runtime_factors(need, self.fleet.machines, self.question.learned)
        sd = self.question.exploration_sd if need.elastic else EXPLORATION_SD_FIXED_WORK
        bonus = exploration_bonus(need, self.fleet.machines, self.question.learned, sd)
        exclusions, exclusion = index_codes(self._exclusions(now=now))
        return StageOffers(
            reads=tuple(self.combinations),
            writes=writes,
            samples=self.max_samples,
            min_samples=self.min_samples,
            checkpoint_ms=ceil(need.checkpoint_s * 1e3),
            gives_notice=self.question.engine is None or self.question.engine.gives_notice,
            take_us=int(_us(np.array([take_s * self.max_samples]))[0]),
            exclusions=exclusions,
            exclusion=exclusion,
            setup_us_by_machine=_us(setup_seconds(need, machines) + self.question.store_wait.stage_s),
            work_us_by_machine=_us((row_s + take_s) * self.max_samples),
            min_work_us_by_machine=_us((row_s + take_s) * self.min_samples),
            mean_ppb_by_machine=round_up(mean * PPB),
            p95_ppb_by_machine=round_up(p95 * PPB),
            exploration_ppb_by_machine=round_up(bonus * PPB),
            scan_us_by_format=self._scan_us(),
            write_us_by_format=self._write_us(),
            storage_microusd_by_format=self._storage_microusd(),
            transfer_in_microusd_by_region=self._transfer_in_microusd(earlier_gb),
            transfer_out_microusd_by_region=self._transfer_out_microusd(earlier_gb),
        )

    def _exclusions(self, *, now: bool) -> Ints:
        """Return, by target, an index into REFUSAL_CODES, or -1.

        The policy comes last: it excludes a target only where nothing else does.
        """
        fleet, workload = self.fleet, self.question.workload_class(self.need)
        by_machine = machine_exclusions(self.question, self.need, fleet)
        code = np.where(fleet.exclusion != NONE, fleet.exclusion, by_machine[fleet.machine])
        if now:
            code = np.where(code != NONE, code, fleet.shortage)
        by_policy = policy_exclusions(workload, fleet.pools, fleet.markets, fleet.pool, fleet.market)
        return np.where(code != NONE, code, by_policy)

    def _sum_inputs(self, tables: list[Table]) -> Table:
        """Return the sums over the inputs, by combination of formats read, with the unknown format last.

        Args:
            tables: for each input, an array whose last axis is the format.
        """
        if len(tables) == 1:
            return tables[0]
        combinations = [*self.combinations.values(), (NONE,) * len(tables)]
        sums: Table = np.stack(
            [
                np.sum([table[..., each] for table, each in zip(tables, formats, strict=True)], axis=0)
                for formats in combinations
            ],
            axis=-1,
        )
        return sums

    def _scan_us(self) -> Ints:
        rows = 0 if self.need.reads == "none" else self.question.rows
        return _us(self._sum_inputs([self._scan_seconds(rows, given.row_bytes) for given in self.inputs]))

    def _scan_seconds(self, rows: int, row_bytes: int) -> Floats:
        seconds = (read_seconds(self.question, self.need, each, row_bytes) for each in self.speeds)
        return np.array([*(rows * each for each in seconds), 0.0])

    def _take_s(self) -> float:
        """Return the seconds of one random read: of packed records, or else of the first format."""
        if self.need.reads != "shuffled" or not self.speeds:
            return 0.0
        packed = next((speed for speed in self.speeds if speed.format is Format.PACKED), self.speeds[0])
        return sum(
            packed.take_ns_per_row / 1e9 + given.row_bytes / packed.take_bytes_per_s for given in self.inputs
        )

    def _write_us(self) -> Ints:
        rows, row_bytes = self.question.rows, self.need.writes_bytes_per_row
        speeds = ((each.write_ns_per_row / 1e9, each.write_bytes_per_s) for each in self.speeds)
        return _us(np.array([*(rows * (row_s + row_bytes / rate) for row_s, rate in speeds), 0.0]))

    def _sizes_gb(self, row_bytes: int) -> Floats:
        """Return the size on disk in each format, with that of an unknown format last."""
        ratios: Floats = np.array([*(speed.size_ratio for speed in self.speeds), UNKNOWN_SIZE_RATIO])
        return self.question.rows * row_bytes / BYTES_PER_GB * ratios

    def _transfer_in_microusd(self, earlier_gb: Volumes) -> Ints:
        """Return the price of retrieving and moving the inputs, by region of the pool and formats read."""
        earlier, tariffs = self._earlier_gb(earlier_gb), self.question.tariffs
        tables = [
            egress_table(tariffs, self._routes_in(given), self._read_gb(given), earlier)
            + self._by_storage_class(retrieval_microusd, self._read_gb(given))
            for given in self.inputs
        ]
        return self._sum_inputs(tables).ravel()

    def _transfer_out_microusd(self, earlier_gb: Volumes) -> Ints:
        """Return the price of moving the result to the store, by region and format.

        The inputs of the stage count as transferred before it.
        """
        earlier = self._earlier_gb(earlier_gb, *self.inputs)
        return egress_table(self.question.tariffs, self._routes_out(), self.write_gb, earlier).ravel()

    def _read_gb(self, given: InputDataset) -> Floats:
        passes = np.array([*(read_passes(self.need, each.format) for each in self.speeds), 1.0])
        sizes_gb: Floats = self._sizes_gb(0 if self.need.reads == "none" else given.row_bytes) * passes
        return sizes_gb

    def _routes_in(self, given: InputDataset) -> list[tuple[str, str]]:
        return [(given.region, region) for region in self.fleet.regions]

    def _routes_out(self) -> list[tuple[str, str]]:
        return [(region, self.question.tariffs.store_region) for region in self.fleet.regions]

    def _earlier_gb(self, earlier_gb: Volumes, *inputs: InputDataset) -> list[Volumes]:
        """Return, by region, what may have been transferred before; empty where no tariff has tiers.

        The volumes of `inputs` are counted as transferred, too.
        """
        tariffs = self.question.tariffs
        if not tariffs.is_tiered:
            return []
        volumes = [earlier_gb for _ in self.fleet.regions]
        for given in inputs:
            read_gb = _max_gb(self._read_gb(given), given.formats)
            routes = (tariffs.route(*ends) for ends in self._routes_in(given))
            volumes = [add_volume(each, route, read_gb) for each, route in zip(volumes, routes, strict=True)]
        return volumes

    def max_transferred_gb(self, writes: tuple[int, ...], earlier_gb: Volumes) -> Volumes:
        """Return, by route, the most that this stage and those before it may transfer, wherever they run."""
        tariffs, maxima = self.question.tariffs, dict(earlier_gb)
        if not tariffs.is_tiered:
            return maxima
        write_gb = _max_gb(self.write_gb, writes)
        read = self._earlier_gb(earlier_gb, *self.inputs)
        for volumes, ends in zip(read, self._routes_out(), strict=True):
            after = add_volume(volumes, tariffs.route(*ends), write_gb)
            maxima |= {route: max(gb, maxima.get(route, 0.0)) for route, gb in after.items()}
        return maxima

    def _storage_microusd(self) -> Ints:
        hours = self.question.tariffs.storage_held_hours
        return self._by_storage_class(lambda each, gb: storage_microusd(each, gb, hours), self.write_gb)

    def _by_storage_class(self, microusd: Callable[[StorageClass, Floats], Ints], gb: Floats) -> Ints:
        """Return the price of each size on its storage class; of the unknown format, on the standard one."""
        index = np.append(np.arange(len(self.speeds)) % len(self.storage_classes), 0)
        prices = np.stack([microusd(each, gb) for each in self.storage_classes])
        by_format: Ints = prices[index, np.arange(len(gb))]
        return by_format


def add_volume(volumes: Volumes, route: str | None, gb: float) -> Volumes:
    """Return the volumes with `gb` more on a route. None (same region, or no tariff) adds nothing."""
    return {**volumes, route: volumes.get(route, 0.0) + gb} if route is not None and gb else volumes


def _max_gb(sizes_gb: Floats, formats: Sequence[int]) -> float:
    return max((float(sizes_gb[index]) for index in formats), default=0.0)


def _us(seconds: Floats) -> Ints:
    return round_up(seconds * 1e6, MAX_US)
