"""What a stage's credentials can do to the books: SeaweedFS keeps it from deleting an entry; what it overwrites, `verify` finds."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from minio.error import S3Error
from s3_server import ADMIN, BUCKET, STAGE, S3Server, environment
from store_places import Place

from shoestring.backends.local import WallClock
from shoestring.core.errors import LedgerCorrupt
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.entry import entry_key, hash_entry, head_key, parse_object
from shoestring.spending.ledger.ledger import Ledger

ENTRIES = 4


@pytest.fixture
def store(s3_place: Place, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a run's books, opened and written by a stage."""
    for name, value in environment(STAGE).items():
        monkeypatch.setenv(name, value)
    store = s3_place.open()
    ledger = Ledger(store, WallClock())
    ledger.open("run", Decimal(1))
    for number in range(2, ENTRIES + 1):
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.10"))
    verify(store, {"run": (ledger.state("run").head_hash,)})
    return store


def overwrite(server: S3Server, place: Place, key: str, data: bytes) -> None:
    assert place.s3
    server.minio(STAGE).put_object(BUCKET, place.s3.root + key, io.BytesIO(data), len(data))


def test_a_stage_deletes_nothing(s3_server: S3Server, s3_place: Place, store: Store) -> None:
    assert s3_place.s3
    for key in [*store.list("ledger/run/"), *store.list("learned/")]:
        with pytest.raises(S3Error, match="AccessDenied"):
            s3_server.minio(STAGE).remove_object(BUCKET, s3_place.s3.root + key)
    assert verify(store, {}).entries == ENTRIES + 2


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_an_entry_that_a_stage_overwrote_is_found(
    s3_server: S3Server, s3_place: Place, store: Store, number: int
) -> None:
    key = entry_key("run", number)
    overwrite(s3_server, s3_place, key, store.fetch(key).read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(LedgerCorrupt, match=key):
        verify(s3_place.open(), {})


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_an_entry_that_a_stage_wrote_anew_with_a_right_hash_is_found(
    s3_server: S3Server, s3_place: Place, store: Store, number: int
) -> None:
    head = Ledger(store, WallClock()).state("run").head_hash
    key = entry_key("run", number)
    forged = hash_entry(parse_object(store.fetch(key).read_bytes()).entries[0].entry.model_copy(update={"why": "forged"}))
    overwrite(s3_server, s3_place, key, record_bytes(forged))
    with pytest.raises(LedgerCorrupt):
        verify(s3_place.open(), {})
    # With the hint forged, too, it is the receipts that know better.
    hint = store.fetch(head_key("run")).read_bytes()
    overwrite(s3_server, s3_place, head_key("run"), hint.replace(head.encode(), forged.sha256.encode()))
    with pytest.raises(LedgerCorrupt):
        verify(s3_place.open(), {"run": (head,)})


def test_a_tail_that_an_administrator_cut_off_is_found(
    s3_server: S3Server, s3_place: Place, store: Store
) -> None:
    assert s3_place.s3
    s3_server.minio(ADMIN).remove_object(BUCKET, s3_place.s3.root + entry_key("run", ENTRIES))
    with pytest.raises(LedgerCorrupt, match=rf"{entry_key('run', ENTRIES)}: is missing"):
        verify(s3_place.open(), {})
