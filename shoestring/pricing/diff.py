"""Compares two price lists: changed, added and removed prices."""

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
"""A price that changed by more than this should be confirmed by a person before it is used."""


class PriceChange(Record):
    """A changed price. `percent` is the signed change, relative to the price before."""

    name: str
    before_usd: Usd
    after_usd: Usd
    percent: float


class PriceListDiff(Record):
    """The differences between two price lists.

    `over_limit` and `within_limit` are the changed prices, by whether they changed by more than the limit.
    `added` and `removed` are names. `unchanged` counts the other prices.
    """

    over_limit: tuple[PriceChange, ...]
    within_limit: tuple[PriceChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


@dataclass(frozen=True, slots=True)
class ValidatedRows:
    """The accepted rows of a price list, one per key, and the rejected ones."""

    rows: tuple[PriceRow, ...]
    rejected: tuple[RejectedPrice, ...]


def read_list(catalogue: Catalogue, today: date, max_days: int | None = None) -> ValidatedRows:
    """Return all rows of a price list, validated against its own other rows.

    `max_days` is how old a row may be; None accepts any age.

    Raises:
        WorldError: it is not a price list, or has no dates.
    """
    rows, rejected = catalogue.read({})
    outliers = regional_outliers(rows)
    rejected += [
        RejectedPrice(row=rows[index].description, reason=reason) for index, reason in outliers.items()
    ]
    accepted, invalid = validate_rows(
        [row for index, row in enumerate(rows) if index not in outliers],
        lambda row: MachineSize(row.cores, row.gpu_count),
        lambda _: max_days,
        today,
    )
    return ValidatedRows(tuple(accepted), (*rejected, *invalid))


def diff_price_lists(
    before: Iterable[PriceRow], after: Iterable[PriceRow], limit_percent: float = LIMIT_PERCENT
) -> PriceListDiff:
    """Compare two lists by key. Changed prices are sorted by the size of the change, largest first."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    both = sorted(old.keys() & new.keys())
    pairs = [(old[key], new[key]) for key in both if old[key].usd_per_hour != new[key].usd_per_hour]
    changes = [_price_change(*pair) for pair in pairs]
    changes.sort(key=lambda change: (-abs(change.percent), change.name))
    return PriceListDiff(
        over_limit=tuple(change for change in changes if abs(change.percent) > limit_percent),
        within_limit=tuple(change for change in changes if abs(change.percent) <= limit_percent),
        added=tuple(_name(new[key]) for key in sorted(new.keys() - old.keys())),
        removed=tuple(_name(old[key]) for key in sorted(old.keys() - new.keys())),
        unchanged=len(both) - len(changes),
    )


def _price_change(old: PriceRow, new: PriceRow) -> PriceChange:
    share = (new.usd_per_hour - old.usd_per_hour) / old.usd_per_hour
    percent = float((share * 100).quantize(Decimal("0.01")))
    return PriceChange(
        name=_name(new), before_usd=old.usd_per_hour, after_usd=new.usd_per_hour, percent=percent
    )


def _name(row: PriceRow) -> str:
    return f"{row.name} {row.market}"
