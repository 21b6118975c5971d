"""What a newer price list changes: what moved, what is new, what is gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from shoestring.core.money import Usd
from shoestring.core.types import Record, RejectedPrice
from shoestring.pricing.catalogues import Catalogue
from shoestring.pricing.rows import PriceRow
from shoestring.pricing.validation import Body, distrust, unlike_elsewhere

LIMIT_PERCENT = 25.0
"""A move that a person should see before it is used."""


class Move(Record):
    """A price that is another now. `percent`: of the one before, with its sign."""

    what: str
    before_usd: Usd
    after_usd: Usd
    percent: float


class Moves(Record):
    """`beyond` the limit, and `within` it; names of what has `appeared` and `vanished`; `same` counts the others."""

    beyond: tuple[Move, ...]
    within: tuple[Move, ...]
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]
    same: int


@dataclass(frozen=True, slots=True)
class Read:
    """A list as it is believed by itself: rows, newest first of each key, and what is set aside."""

    rows: tuple[PriceRow, ...]
    quarantined: tuple[RejectedPrice, ...]


def read_list(catalogue: Catalogue, today: date, most_days: int | None = None) -> Read:
    """All of a price list, doubted by what it says of its own machines. Raises WorldError: it is no price list, or not dated."""
    rows, bad = catalogue.read({})
    odd = unlike_elsewhere(rows)
    bad += [RejectedPrice(row=rows[index].said, reason=why) for index, why in odd.items()]
    kept, doubted = distrust(
        [row for index, row in enumerate(rows) if index not in odd],
        lambda row: Body(row.cores, row.gpu_count),
        lambda _: most_days,
        today,
    )
    return Read(tuple(kept), (*bad, *doubted))


def moves(
    before: Iterable[PriceRow], after: Iterable[PriceRow], limit_percent: float = LIMIT_PERCENT
) -> Moves:
    """Compare two lists, key by key; the largest move first."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    both = sorted(old.keys() & new.keys())
    changed = [_move(old[key], new[key]) for key in both if old[key].usd_per_hour != new[key].usd_per_hour]
    changed.sort(key=lambda move: (-abs(move.percent), move.what))
    return Moves(
        beyond=tuple(move for move in changed if abs(move.percent) > limit_percent),
        within=tuple(move for move in changed if abs(move.percent) <= limit_percent),
        appeared=tuple(_name(new[key]) for key in sorted(new.keys() - old.keys())),
        vanished=tuple(_name(old[key]) for key in sorted(old.keys() - new.keys())),
        same=len(both) - len(changed),
    )


def _move(old: PriceRow, new: PriceRow) -> Move:
    share = (new.usd_per_hour - old.usd_per_hour) / old.usd_per_hour
    percent = float((share * 100).quantize(Decimal("0.01")))
    return Move(what=_name(new), before_usd=old.usd_per_hour, after_usd=new.usd_per_hour, percent=percent)


def _name(row: PriceRow) -> str:
    return f"{row.name} {row.market}"
