"""What a newer price list changes: what moved, what is new, what is gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from shoestring.core.money import Usd
from shoestring.core.record import Record
from shoestring.core.types import RejectedPrice
from shoestring.pricing.catalogues import Catalogue
from shoestring.pricing.rows import PriceRow
from shoestring.pricing.validation import MachineSize, regional_outliers, validate_rows

LIMIT_PERCENT = 25.0
"""A move that a person should see before it is used."""


class PriceChange(Record):
    """A price that is another now. `percent`: of the one before, with its sign."""

    what: str
    before_usd: Usd
    after_usd: Usd
    percent: float


class PriceListDiff(Record):
    """`beyond` the limit, and `within` it; names of what has `appeared` and `vanished`; `same` counts the others."""

    beyond: tuple[PriceChange, ...]
    within: tuple[PriceChange, ...]
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]
    same: int


@dataclass(frozen=True, slots=True)
class ValidatedRows:
    """A list as it is believed by itself: rows, newest first of each key, and what is set aside."""

    rows: tuple[PriceRow, ...]
    quarantined: tuple[RejectedPrice, ...]


def read_list(catalogue: Catalogue, today: date, most_days: int | None = None) -> ValidatedRows:
    """All of a price list, doubted by what it says of its own machines. Raises WorldError: it is no price list, or not dated."""
    rows, bad = catalogue.read({})
    odd = regional_outliers(rows)
    bad += [RejectedPrice(row=rows[index].said, reason=why) for index, why in odd.items()]
    kept, doubted = validate_rows(
        [row for index, row in enumerate(rows) if index not in odd],
        lambda row: MachineSize(row.cores, row.gpu_count),
        lambda _: most_days,
        today,
    )
    return ValidatedRows(tuple(kept), (*bad, *doubted))


def diff_price_lists(
    before: Iterable[PriceRow], after: Iterable[PriceRow], limit_percent: float = LIMIT_PERCENT
) -> PriceListDiff:
    """Compare two lists, key by key; the largest move first."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    both = sorted(old.keys() & new.keys())
    changed = [_price_change(old[key], new[key]) for key in both if old[key].usd_per_hour != new[key].usd_per_hour]
    changed.sort(key=lambda move: (-abs(move.percent), move.what))
    return PriceListDiff(
        beyond=tuple(move for move in changed if abs(move.percent) > limit_percent),
        within=tuple(move for move in changed if abs(move.percent) <= limit_percent),
        appeared=tuple(_name(new[key]) for key in sorted(new.keys() - old.keys())),
        vanished=tuple(_name(old[key]) for key in sorted(old.keys() - new.keys())),
        same=len(both) - len(changed),
    )


def _price_change(old: PriceRow, new: PriceRow) -> PriceChange:
    share = (new.usd_per_hour - old.usd_per_hour) / old.usd_per_hour
    percent = float((share * 100).quantize(Decimal("0.01")))
    return PriceChange(what=_name(new), before_usd=old.usd_per_hour, after_usd=new.usd_per_hour, percent=percent)


def _name(row: PriceRow) -> str:
    return f"{row.name} {row.market}"
