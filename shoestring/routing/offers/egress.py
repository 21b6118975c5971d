"""The bytes that a placed stage transfers and stores, by the same sizes that its price was computed from."""

from __future__ import annotations

from dataclasses import dataclass

from shoestring.config.tariff_costs import Volumes
from shoestring.config.tariffs import HOURS_PER_MONTH
from shoestring.core.types import Format
from shoestring.routing.candidates import BYTES_PER_GB, UNKNOWN_SIZE_RATIO
from shoestring.routing.dag import FIRST_SOURCE, build_dag
from shoestring.routing.decision import Choice
from shoestring.routing.offers.factors import add_volume
from shoestring.routing.offers.reading import read_passes
from shoestring.routing.question import Question


@dataclass(frozen=True, slots=True)
class Transfer:
    """A data set that moves from one region to another."""

    source: str
    target: str
    gb: float


def stage_transfers(question: Question, choice: Choice) -> tuple[tuple[Transfer, ...], Transfer]:
    """Return the transfers of a stage: one for each data set that it reads, and the one that it writes."""
    tariffs, need = question.tariffs, question.needs[0]
    pool = question.pool(choice.pool)
    region = tariffs.route_end(pool.provider, pool.region)
    datasets = [(question.data_region, question.row_bytes, question.reads_format)]
    if (sources := build_dag(question.needs, question.upstream).sources[0]) != (FIRST_SOURCE,):
        upstream = (question.upstream[FIRST_SOURCE - 1 - source] for source in sources)
        datasets = [(tariffs.store_region, each.row_bytes, each.format) for each in upstream]
    if need.reads == "none":
        datasets = []
    read = tuple(
        Transfer(source, region, _gb(question, row_bytes, stored) * read_passes(need, stored))
        for source, row_bytes, stored in datasets
    )
    written_gb = _gb(question, need.writes_bytes_per_row, choice.format)
    return read, Transfer(region, tariffs.store_region, written_gb)


def _gb(question: Question, row_bytes: int, stored: Format | None) -> float:
    """Return the size of all rows on disk."""
    ratios = {speed.format: speed.size_ratio for speed in question.speeds}
    return question.rows * row_bytes / BYTES_PER_GB * (ratios[stored] if stored else UNKNOWN_SIZE_RATIO)


def transferred_gb_by_route(question: Question, choice: Choice) -> Volumes:
    """Return the GB that a placed stage transfers, by egress route."""
    read, written = stage_transfers(question, choice)
    volumes: Volumes = {}
    for each in (*read, written):
        volumes = add_volume(volumes, question.tariffs.route(each.source, each.target), each.gb)
    return volumes


def billed_gb(question: Question, choice: Choice) -> tuple[float, float, float]:
    """Return what fees are charged for: GB read, GB written and GB-months stored; 0 where a fee is $0."""
    read, written = stage_transfers(question, choice)
    tariffs = question.tariffs
    hours = tariffs.storage_class(choice.storage_class).billed_hours(tariffs.storage_held_hours)
    volumes = (sum(each.gb for each in read), written.gb, written.gb * hours / HOURS_PER_MONTH)
    fees = (choice.transfer_in_usd, choice.transfer_out_usd, choice.storage_usd)
    into, out, stored = (volume if fee else 0.0 for volume, fee in zip(volumes, fees, strict=True))
    return into, out, stored
