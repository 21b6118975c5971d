"""The records of a run that has ended: the entry that closes its account holds their digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from shoestring.core import store_layout
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import PARALLEL_READS, Store
from shoestring.core.record import digest
from shoestring.spending.audit.records import run_of_account
from shoestring.spending.ledger.chain import AccountChain
from shoestring.spending.ledger.entry import Entry

FINAL = ("run.json", "starts/", "decisions/", "receipts/", "migration-checks/", "ends/")
"""How the names of the records begin that never change once the account is closed."""
RESULTS = ("model.json", "curve.json", "evaluation.json")
"""The records that a later start of the run replaces."""


def record_digests(store: Store, run_id: str) -> dict[str, str]:
    """Return the digests of a run's records by name: its key below the run's prefix."""
    prefix = store_layout.run(run_id)
    names = (key.removeprefix(prefix) for key in store.list(prefix))
    return _digests(store, run_id, [name for name in names if name.startswith(FINAL) or name in RESULTS])


def _digests(store: Store, run_id: str, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of those of these records that exist."""

    def read(name: str) -> tuple[str, str] | None:
        try:
            return name, digest(store.fetch(f"{store_layout.run(run_id)}{name}").read_bytes())
        except NotInStore:
            return None

    with ThreadPoolExecutor(PARALLEL_READS) as readers:
        return dict(filter(None, readers.map(read, names)))


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run with at least one start that has ended.

    `closings`: the entries that closed the accounts of its starts, in order. `is_closed`: no start is open.
    """

    run_id: str
    closings: tuple[Entry, ...]
    is_closed: bool

    def digests(self) -> dict[str, tuple[str, Entry]]:
        """Return name -> the digest that the record must have, and the entry that holds it.

        Of a record that never changes, the first digest counts: the ledger holds one each time that a start
        ends. Of a result the last one counts, and none while a start is open.
        """
        found: dict[str, tuple[str, Entry]] = {}
        for entry in self.closings:
            for name, sha256 in entry.records.items():
                if name not in RESULTS:
                    found.setdefault(name, (sha256, entry))
                elif self.is_closed:
                    found[name] = sha256, entry
        return found


def ended_runs(chains: Mapping[str, AccountChain]) -> list[EndedRun]:
    accounts: dict[str, list[AccountChain]] = {}
    for chain in chains.values():
        # The account of a month or a campaign has no parents. One that was never opened has no records.
        if chain.account.parents and chain.entries[0].entry.kind == "open":
            accounts.setdefault(run_of_account(chain.account.name), []).append(chain)
    runs = []
    for run_id, found in accounts.items():
        found.sort(key=lambda chain: (len(chain.account.name), chain.account.name))
        closings = tuple(chain.entries[-1].entry for chain in found if chain.account.closed)
        if closings:
            runs.append(EndedRun(run_id, closings, len(closings) == len(found)))
    return runs


@dataclass(frozen=True, slots=True)
class ChangedRecord:
    """A record that is not as it was when its run ended, and the entry that shows it."""

    key: str
    how: Literal["changed", "removed", "added"]
    entry: Entry

    @property
    def sentence(self) -> str:
        return (
            f"it was {self.how} after entry {self.entry.number} of account {self.entry.account} ended the run"
        )

    @property
    def reason(self) -> str:
        """Completes "ledger/ACCOUNT/NUMBER.json"."""
        return (
            f"ended the run with{'out' if self.how == 'added' else ''} {self.key}, which was {self.how} later"
        )


def changed_records(
    store: Store, chains: Mapping[str, AccountChain], *, is_export: bool = False
) -> Iterator[ChangedRecord]:
    """Yield the records of runs that do not have the digests that the ledger holds since their starts ended.

    An export need not hold every record.
    """
    for run in ended_runs(chains):
        if run.closings[-1].records:
            yield from _changed_digests(store, chains, run, is_export=is_export)
            if run.is_closed:
                yield from _added_receipts(store, chains, run)


def records_not_compared(
    store: Store, chains: Mapping[str, AccountChain], *, is_export: bool
) -> tuple[str, ...]:
    """Return a sentence for each kind of record that the ledger holds no digests of."""
    runs, notes = ended_runs(chains), []
    if earlier := sum(not run.closings[-1].records for run in runs):
        notes.append(
            f"{earlier} of {len(runs)} runs were closed by an earlier version: "
            "their decisions and the dollars of their receipts are compared, and no other record"
        )
    if not is_export and not any(store.list(store_layout.RUNS)):
        notes.append("there is no folder runs/ next to this ledger, so no record of a run is compared")
    return tuple(notes)


def _changed_digests(
    store: Store, chains: Mapping[str, AccountChain], run: EndedRun, *, is_export: bool
) -> Iterator[ChangedRecord]:
    expected = run.digests()
    found = _digests(store, run.run_id, expected)
    for name, (sha256, entry) in sorted(expected.items()):
        if found.get(name) == sha256 or (is_export and name not in found):
            continue
        if name not in RESULTS or not _has_started(store, chains, run.run_id):
            key = f"{store_layout.run(run.run_id)}{name}"
            yield ChangedRecord(key, "changed" if name in found else "removed", entry)


def _added_receipts(
    store: Store, chains: Mapping[str, AccountChain], run: EndedRun
) -> Iterator[ChangedRecord]:
    last, prefix = run.closings[-1], store_layout.run(run.run_id)
    for key in store.list(store_layout.receipts(run.run_id)):
        if key.removeprefix(prefix) not in last.records and not _has_started(store, chains, run.run_id):
            yield ChangedRecord(key, "added", last)


def _has_started(store: Store, chains: Mapping[str, AccountChain], run_id: str) -> bool:
    """Return whether the run has a start whose account was opened after the chains were read."""
    accounts = {key.split("/")[1] for key in store.list(f"{store_layout.LEDGER}{run_id}.")}
    return not accounts <= chains.keys()
