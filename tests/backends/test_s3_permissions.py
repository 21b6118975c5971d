"""A stage's rights on the ledger: SeaweedFS denies it to delete an entry, and `verify` finds an overwritten
one.
"""

from __future__ import annotations

import io
import uuid
from decimal import Decimal
from pathlib import Path

import pytest
from minio.error import S3Error
from s3_server import ADMIN, BUCKET, STAGE, VISION, S3Server, environment
from store_locations import StoreLocation

from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, StoreError, UsageError
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.entry import hash_entry, parse_object
from shoestring.spending.ledger.ledger import Ledger

ENTRIES = 4


@pytest.fixture
def store(s3_location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a run's ledger, opened and written with a stage's credentials."""
    for name, value in environment(STAGE).items():
        monkeypatch.setenv(name, value)
    store = s3_location.open()
    ledger = Ledger(store, WallClock())
    ledger.open("run", Decimal(1))
    for number in range(2, ENTRIES + 1):
        ledger.reserve("run", f"work-{number}", "work", number, Decimal("0.10"))
    verify(store, {"run": (Anchor(ledger.state("run").head_hash),)})
    return store


def overwrite(server: S3Server, location: StoreLocation, key: str, data: bytes) -> None:
    assert location.s3
    server.minio(STAGE).put_object(BUCKET, location.s3.root + key, io.BytesIO(data), len(data))


def test_a_stage_cannot_delete_objects(s3_server: S3Server, s3_location: StoreLocation, store: Store) -> None:
    assert s3_location.s3
    for key in [*store.list("ledger/run/"), *store.list("learned/")]:
        with pytest.raises(S3Error, match="AccessDenied"):
            s3_server.minio(STAGE).remove_object(BUCKET, s3_location.s3.root + key)
    assert verify(store, {}).entries == ENTRIES + 2


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_an_entry_that_a_stage_overwrote_is_found(
    s3_server: S3Server, s3_location: StoreLocation, store: Store, number: int
) -> None:
    key = store_layout.ledger_entry("run", number)
    overwrite(s3_server, s3_location, key, store.fetch(key).read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(LedgerCorrupt, match=key):
        verify(s3_location.open(), {})


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_an_entry_that_a_stage_replaced_with_a_correct_hash_is_found(
    s3_server: S3Server, s3_location: StoreLocation, store: Store, number: int
) -> None:
    head = Ledger(store, WallClock()).state("run").head_hash
    key = store_layout.ledger_entry("run", number)
    forged = hash_entry(
        parse_object(store.fetch(key).read_bytes()).entries[0].entry.model_copy(update={"reason": "forged"})
    )
    overwrite(s3_server, s3_location, key, record_bytes(forged))
    with pytest.raises(LedgerCorrupt):
        verify(s3_location.open(), {})
    # If the hint is forged, too, the receipts still reveal the change.
    hint = store.fetch(store_layout.ledger_head("run")).read_bytes()
    overwrite(
        s3_server,
        s3_location,
        store_layout.ledger_head("run"),
        hint.replace(head.encode(), forged.sha256.encode()),
    )
    with pytest.raises(LedgerCorrupt):
        verify(s3_location.open(), {"run": (Anchor(head),)})


def test_entries_that_an_administrator_removed_from_the_end_are_found(
    s3_server: S3Server, s3_location: StoreLocation, store: Store
) -> None:
    assert s3_location.s3
    s3_server.minio(ADMIN).remove_object(
        BUCKET, s3_location.s3.root + store_layout.ledger_entry("run", ENTRIES)
    )
    with pytest.raises(LedgerCorrupt, match=rf"{store_layout.ledger_entry('run', ENTRIES)}: is missing"):
        verify(s3_location.open(), {})


def test_the_documented_policy_of_a_team_allows_its_own_prefix_and_no_other(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = f"vision/{uuid.uuid4().hex}"
    own, other = (StoreLocation(tmp_path, s3_server.location(prefix)) for prefix in (team, "speech"))
    for name, value in environment(ADMIN).items():
        monkeypatch.setenv(name, value)
    other.open().put("ledger/run/00000001.json", b"theirs")
    for name, value in environment(VISION).items():
        monkeypatch.setenv(name, value)
    store = own.open()
    Ledger(store, WallClock()).open("run", Decimal(1))
    assert verify(store, {}).entries == 3
    with pytest.raises((StoreError, UsageError), match="AccessDenied"):
        other.open()
    client = s3_server.minio(VISION)
    for act in (
        lambda: client.get_object(BUCKET, "speech/ledger/run/00000001.json"),
        lambda: client.put_object(BUCKET, "speech/ledger/run/00000001.json", io.BytesIO(b"x"), 1),
        lambda: list(client.list_objects(BUCKET, "speech/", recursive=True)),
        lambda: client.remove_object(BUCKET, f"{team}/ledger/run/00000001.json"),
    ):
        with pytest.raises(S3Error, match="AccessDenied"):
            act()
