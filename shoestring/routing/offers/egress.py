"""How many bytes a stage moves and leaves where it was placed, by the sizes that its price was made of."""

from __future__ import annotations

from dataclasses import dataclass

from shoestring.config.tariffs import HOURS_PER_MONTH, Volumes
from shoestring.core.types import Format
from shoestring.routing.algorithm import BYTES_PER_GB, UNKNOWN_SIZE_RATIO
from shoestring.routing.dag import FIRST_SOURCE, build_dag
from shoestring.routing.decision import Choice
from shoestring.routing.question import Question
from shoestring.routing.offers.factors import added


@dataclass(frozen=True, slots=True)
class Moved:
    """A data set on its way from one region to another."""

    source: str
    target: str
    gb: float


def stage_transfers(question: Question, choice: Choice) -> tuple[tuple[Moved, ...], Moved]:
    """What a stage reads, data set by data set, and what it writes."""
    tariffs, need = question.tariffs, question.needs[0]
    pool = next(pool for pool in question.pools if pool.name == choice.pool)
    place = tariffs.route_end(pool.provider, pool.region)
    read = [(question.data_region, question.row_bytes, question.reads_format)]
    if (sources := build_dag(question.needs, question.upstream).sources[0]) != (FIRST_SOURCE,):
        left = (question.upstream[FIRST_SOURCE - 1 - source] for source in sources)
        read = [(tariffs.store_region, each.row_bytes, each.format) for each in left]
    if need.reads == "none":
        read = []
    taken = tuple(Moved(region, place, _gb(question, row_bytes, lies)) for region, row_bytes, lies in read)
    return taken, Moved(place, tariffs.store_region, _gb(question, need.writes_bytes_per_row, choice.format))


def _gb(question: Question, row_bytes: int, lies: Format | None) -> float:
    """Of all rows, on disk."""
    ratios = {speed.format: speed.size_ratio for speed in question.speeds}
    return question.rows * row_bytes / BYTES_PER_GB * (ratios[lies] if lies else UNKNOWN_SIZE_RATIO)


def transferred_gb_by_route(question: Question, choice: Choice) -> Volumes:
    """GB by route that a stage moves where it was placed."""
    taken, left = stage_transfers(question, choice)
    moved: Volumes = {}
    for each in (*taken, left):
        moved = added(moved, question.tariffs.route(each.source, each.target), each.gb)
    return moved


def billed_gb(question: Question, choice: Choice) -> tuple[float, float, float]:
    """What its fees are for: GB brought in, GB brought out, GB-months held; nothing where nothing is paid."""
    taken, left = stage_transfers(question, choice)
    hours = question.tariffs.storage_class(choice.storage_class).billed_hours(question.tariffs.storage_held_hours)
    volumes = (sum(each.gb for each in taken), left.gb, left.gb * hours / HOURS_PER_MONTH)
    paid = (choice.transfer_in_usd, choice.transfer_out_usd, choice.storage_usd)
    into, out, held = (volume if usd else 0.0 for volume, usd in zip(volumes, paid, strict=True))
    return into, out, held
