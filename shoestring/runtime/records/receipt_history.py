"""Receipts that teach, where a router finds them without a look at every run: a bounded number of them for each stage.

learned/receipts/STAGE/BUCKET-SLOT.json is a copy of a receipt. The bucket is named by its work and hardware, so that what is run often does
not crowd out what is run seldom; the slot by its run, so that a new receipt takes the place of one at random: what stays is a sample that
favours the newer. A write reads nothing, two at once hurt nobody, and the same receipt again is the same object.

learned/stockouts/NODE_POOL-MARKET.json is what a sweeper remembers of a pool that took no pod in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.types import StockOut, digest, record_bytes
from shoestring.data.run_records import readable
from shoestring.runtime.records.receipts import receipt_key

FOLDER, STOCKOUTS = "learned/receipts/", "learned/stockouts/"
BUCKETS, SLOTS = 8, 64
IMPORTED = 200


def lesson_key(receipt: Receipt) -> str:
    """Where its copy lies."""
    kind = receipt.hardware.type if receipt.hardware else receipt.pool
    bucket = int(digest(f"{receipt.work} {kind}".encode()), 16) % BUCKETS
    slot = int(digest(f"{receipt.run_id} {receipt.attempt}".encode()), 16) % SLOTS
    return f"{FOLDER}{receipt.stage}/{bucket}-{slot:02d}.json"


def keep_receipt(store: Store, hold: str, receipt: Receipt) -> None:
    """Write a receipt, and teach with it if it can. Raises StoreError, StoreFull: the receipt itself could not be written."""
    store.put(receipt_key(receipt.run_id, hold), record_bytes(receipt))
    with contextlib.suppress(StoreError):
        teach(store, receipt)


def teach(store: Store, receipt: Receipt) -> None:
    """Raises StoreError."""
    if receipt.teaches:
        store.put(lesson_key(receipt), record_bytes(receipt))


def lessons(store: Store, stages: Sequence[str], until: datetime) -> tuple[list[Receipt], tuple[str, ...]]:
    """What can teach about these stages, and a note where one cannot be read.

    What ended after `until`, when the run began, is left out: so its estimates stay as they were admitted, but for receipts whose
    place a newer one took meanwhile.
    """
    notes: tuple[str, ...] = ()
    if not any(store.list(FOLDER)):
        notes = _import(store)
    receipts, unread = readable(
        store, [key for stage in stages for key in store.list(f"{FOLDER}{stage}/")], Receipt
    )
    return [receipt for receipt in receipts if receipt.finished_at <= until], (*notes, *unread)


def own_lessons(
    store: Store, run_id: str, stage: str, since: datetime
) -> tuple[list[Receipt], int, tuple[str, ...]]:
    """Receipts of a run's attempts at a stage that ended after `since`, so that `lessons` leaves them out; how often it was moved in this
    run; a note where one cannot be read."""
    found, notes = readable(store, list(store.list(f"runs/{run_id}/receipts/{stage}-")), Receipt)
    own = [each for each in found if each.stage == stage]
    return (
        [each for each in own if each.finished_at > since],
        sum(each.cause == "moved" for each in own),
        notes,
    )


def known_to(
    store: Store, run_id: str, stages: Sequence[str], since: datetime
) -> tuple[list[Receipt], int, tuple[str, ...]]:
    """What can teach the first of these stages, and those after it, in a start of a run that began at `since`: receipts of before that, and
    of the first one's attempts since then; how often that was moved in this run; notes where one cannot be read."""
    before, unread = lessons(store, stages, since)
    own, moves, unread_own = own_lessons(store, run_id, stages[0], since)
    return [*before, *own], moves, (*unread, *unread_own)


def stockouts(store: Store, now: datetime) -> tuple[tuple[StockOut, ...], tuple[str, ...]]:
    """What is still remembered of node pools that took no pod in time, and a note where that cannot be read."""
    found, notes = readable(store, list(store.list(STOCKOUTS)), StockOut)
    return tuple(each for each in found if each.until > now), notes


def _import(store: Store) -> tuple[str, ...]:
    """A store that was there before this folder was: teach with what receipts it has, once."""
    keys = [key for key in store.list("runs/") if "/receipts/" in key]
    receipts, notes = readable(store, keys, Receipt)
    for receipt in sorted(receipts, key=lambda receipt: receipt.finished_at)[-IMPORTED:]:
        teach(store, receipt)
    return notes
